/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * both.h: what the programs that talk through UCX share: random bytes that both sides know and check, and a TCP connection over
 * which they tell each other addresses and meet. Both sides do the same at the same time, each being sender and receiver.
 */
#ifndef BOTH_H
#define BOTH_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/uio.h>
#include <unistd.h>
#include <ucs/type/status.h>

#define MAX ((size_t)1 << 20)
#define AROUND 256              /* bytes before and behind a message that must stay as they were */
#define ROOM (MAX + 4 * AROUND)
#define LIMIT 280               /* seconds */

static int sock = -1, me;       /* the client is 1 */
static uint64_t seed = 1;
static const char *doing = "setting up";
static size_t doing_size;
static unsigned long checked;

static void progress(void);     /* the program's; also before anything is set up */

static void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "%s: %s, %zu bytes, seed %llu: ", me ? "client" : "server", doing, doing_size, (unsigned long long)seed);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(1);
}

static void ok(ucs_status_t s, const char *what)
{
	if (s != UCS_OK)
		die("%s: %s", what, ucs_status_string(s));
}

static void out_of_time(int sig)
{
	static const char text[] = "out of time: ";
	ssize_t r;

	(void)sig;
	r = write(2, text, sizeof text - 1);
	r = write(2, doing, strlen(doing));
	r = write(2, "\n", 1);
	(void)r;
	_exit(1);
}

/* ---- random bytes that both sides know ---- */

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static uint64_t step;           /* the same on both sides */

/* Of this step: number n of the given side */
static uint64_t chance(int side, unsigned n)
{
	return mix(mix(seed ^ mix(step)) ^ (uint64_t)side << 32 ^ n);
}

static void fill(uint8_t *p, size_t len, uint64_t key)
{
	uint64_t v;
	size_t i;

	for (i = 0; i + 8 <= len; i += 8) {
		v = mix(key + i);
		memcpy(p + i, &v, 8);
	}
	if (i < len) {
		v = mix(key + i);
		memcpy(p + i, &v, len - i);
	}
}

static void check(const uint8_t *p, size_t len, uint64_t key, const char *what)
{
	uint64_t v, f;
	size_t i, n;

	for (i = 0; i < len; i += 8) {
		v = mix(key + i);
		n = len - i < 8 ? len - i : 8;
		if (memcmp(p + i, &v, n) != 0) {
			f = 0;
			memcpy(&f, p + i, n);
			die("%s: wrong data at byte %zu to %zu of %zu: %016llx, not %016llx", what, i, i + n - 1, len,
			    (unsigned long long)f, (unsigned long long)v);
		}
	}
	checked += len;
}

/* ---- meeting ---- */

static void tell(const void *p, size_t len)
{
	ssize_t n;

	for (; len; p = (const uint8_t *)p + n, len -= n) {
		n = send(sock, p, len, MSG_NOSIGNAL);
		if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			progress();
			n = 0;
		} else if (n < 0) {
			die("send: %s", strerror(errno));
		}
	}
}

static void hear(void *p, size_t len)
{
	ssize_t n;

	for (; len; p = (uint8_t *)p + n, len -= n) {
		n = recv(sock, p, len, 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			progress();
			n = 0;
		} else if (n <= 0) {
			die("the other side is gone");
		}
	}
}

/* The word of each is known to both */
static uint64_t meet_with(uint64_t word)
{
	uint64_t mine[2] = { step, word }, theirs[2];

	tell(mine, sizeof mine);
	hear(theirs, sizeof theirs);
	if (theirs[0] != step)
		die("the other side is at step %llu", (unsigned long long)theirs[0]);
	return theirs[1];
}

static void meet(void)
{
	meet_with(0);
}

/* Length, bytes; the caller frees */
static void *swap_blob(const void *mine, uint64_t len, uint64_t *got)
{
	void *p;

	tell(&len, sizeof len);
	tell(mine, len);
	hear(got, sizeof *got);
	p = malloc(*got);
	if (!p)
		die("no memory");
	hear(p, *got);
	return p;
}

static void connect_tcp(const char *host, uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
	int yes = 1, s;

	if (inet_pton(AF_INET, host ? host : "127.0.0.1", &a.sin_addr) != 1)
		die("%s is not an address", host);
	if (host) {
		sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connect(sock, (struct sockaddr *)&a, sizeof a) != 0)
			die("connect: %s", strerror(errno));
	} else {
		s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
		if (bind(s, (struct sockaddr *)&a, sizeof a) != 0 || listen(s, 1) != 0)
			die("listen: %s", strerror(errno));
		sock = accept(s, NULL, NULL);
		if (sock < 0)
			die("accept: %s", strerror(errno));
		close(s);
	}
	setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
	fcntl(sock, F_SETFL, O_NONBLOCK);
}

static void begin(const char *host, uint16_t port)
{
	me = host != NULL;
	signal(SIGALRM, out_of_time);
	alarm(LIMIT);
	connect_tcp(host, port);
}

/* The server's choice is both sides' */
static void agree_on_seed(void)
{
	uint64_t theirs = meet_with(seed);

	if (me)
		seed = theirs;
}

#endif
