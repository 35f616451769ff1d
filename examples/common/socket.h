/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * socket.h: the stream socket by which two processes meet: to be found, to find, to pass bytes
 * until a deadline.
 */
#ifndef COMMON_SOCKET_H
#define COMMON_SOCKET_H

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "program.h"

/* Waits until a socket is ready, until `end` at most. Returns 0 when the time is over. */
static inline int socket_ready(int fd, short events, uint64_t end)
{
	struct pollfd p = {fd, events, 0};
	uint64_t now;
	int n;

	do {
		now = now_ns();
		n = poll(&p, 1, now < end ? (int)((end - now) / 1000000) + 1 : 0);
	} while ((n < 0 && errno == EINTR) || (n == 0 && now < end));
	return n > 0;
}

/*
 * Sends or receives all of it. Returns 0, -ETIMEDOUT, or a negative errno: -ECONNRESET when the
 * other side has closed.
 */
static inline int socket_move(int fd, int out, void *buf, size_t len, uint64_t end)
{
	uint8_t *at = (uint8_t *)buf;

	while (len) {
		ssize_t n;

		if (!socket_ready(fd, out ? POLLOUT : POLLIN, end))
			return -ETIMEDOUT;
		n = out ? send(fd, at, len, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, at, len, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n <= 0)
			return n && errno != EPIPE ? -errno : -ECONNRESET;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Whether the other side has closed, or does it within so many ms, whatever it has sent before. */
static inline int socket_closed(int fd, int ms)
{
	struct pollfd p = {fd, POLLRDHUP, 0};

	return fd >= 0 && poll(&p, 1, ms) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

static inline struct addrinfo *socket_find(const char *host, uint32_t port, int flags)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV}, *list;
	char service[16];
	int err;

	snprintf(service, sizeof(service), "%u", port);
	err = getaddrinfo(host, service, &hints, &list);
	if (err)
		die("%s: %s", host, gai_strerror(err));
	return list;
}

/* Listens. port: 0: any free one; gets the actual one. Returns the socket, which does not block. */
static inline int socket_listen(const char *address, uint32_t *port)
{
	struct addrinfo *a = socket_find(address, *port, AI_PASSIVE);
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
	struct sockaddr_storage name;
	socklen_t len = sizeof(name);
	char actual[16] = "";

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, 64) || getsockname(fd, (struct sockaddr *)&name, &len))
		die("cannot listen at %s, port %u: %s", address, *port, strerror(errno));
	getnameinfo((struct sockaddr *)&name, len, NULL, 0, actual, sizeof(actual), NI_NUMERICSERV);
	*port = (uint32_t)atoi(actual);
	freeaddrinfo(a);
	return fd;
}

/* Waits for one client, at a port that it tells. Returns the socket. */
static inline int socket_accept(const char *address, uint32_t port, uint32_t seconds)
{
	uint64_t end = now_ns() + seconds * 1000000000ull;
	int fd = socket_listen(address, &port), on = 1, client;

	printf("waiting for a client at %s, port %u\n", address, port);
	fflush(stdout);
	do
		if (!socket_ready(fd, POLLIN, end))
			die("no client came within %u s", seconds);
	while ((client = accept4(fd, NULL, NULL, SOCK_CLOEXEC)) < 0);
	close(fd);
	setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return client;
}

static inline int socket_connect(const char *host, uint32_t port, uint32_t seconds)
{
	struct addrinfo *list = socket_find(host, port, 0), *a;
	uint64_t end = now_ns() + seconds * 1000000000ull;
	int fd = -1, err = ENOENT, on = 1;
	socklen_t len = sizeof(err);

	for (a = list; a && err; a = a->ai_next) {
		fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		err = fd < 0 || connect(fd, a->ai_addr, a->ai_addrlen) ? errno : 0;
		if (err == EINPROGRESS) {
			err = ETIMEDOUT;
			if (socket_ready(fd, POLLOUT, end))
				getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
		}
		if (err && fd >= 0)
			close(fd);
	}
	freeaddrinfo(list);
	if (err)
		die("cannot connect to %s, port %u: %s", host, port, strerror(err));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

#endif
