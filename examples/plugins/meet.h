/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * meet.h: how a host and the worker of worker.c meet: through a stream socket, over which each
 * gives the other its address. All fields are little-endian. The socket stays open; whoever closes
 * it has gone.
 *
 *   greeting, host to worker                        welcome, worker to host
 *
 *   +0   magic      8   "inlaymee"                  +0   magic      8
 *   +8   version    2   1                           +8   version    2   1
 *   +10  reserved   6   0                           +10  status     2   0, or an errno: then all that follows is 0
 *   +16  token     16   as the address file has it  +12  plugins    4   at most MEET_PLUGINS
 *   +32  address   76   of the host's task queues   +16  address   76   of the worker's
 *   +108                                            +92  reserved   4   0
 *                                                   +96  a plugin: id 8, name 48, ended by a zero;  and so on
 *
 * The address file, which its owner alone may read, is one line: "inlay-worker 1 tcp ADDRESS PORT
 * TOKEN" or "inlay-worker 1 unix PATH - TOKEN". The token, 32 hexadecimal digits, is the worker's
 * random number: who can read the file may give commands, and nobody else.
 */
#ifndef PLUGINS_MEET_H
#define PLUGINS_MEET_H

#include <arpa/inet.h>
#include <sys/un.h>
#include <inlay/task.h>
#include "../common/bytes.h"
#include "../common/socket.h"
#include "load.h"

#define MEET_GREETING (32u + INLAY_TASK_ADDRESS)
#define MEET_WELCOME (20u + INLAY_TASK_ADDRESS)
#define MEET_ENTRY (8u + PLUGIN_NAME)
#define MEET_PLUGINS 64u
#define MEET_TOKEN 16u

struct meet_plugin {
	uint64_t id;
	char name[PLUGIN_NAME];
};

/* Where a worker is: what an address file says. */
struct meet_place {
	char kind[8], where[108], port[8];
	uint8_t token[MEET_TOKEN];
};

static inline void meet_greeting_write(uint8_t *at, const uint8_t *token, const void *address)
{
	memset(at, 0, MEET_GREETING);
	memcpy(at, "inlaymee", 8);
	put_le(at + 8, 1, 2);
	memcpy(at + 16, token, MEET_TOKEN);
	memcpy(at + 32, address, INLAY_TASK_ADDRESS);
}

/*
 * MEET_GREETING bytes. 0; -EPROTO: no greeting of this version; -EACCES: not this token, all of
 * which is looked at, whatever it is.
 */
static inline int meet_greeting_read(const uint8_t *at, const uint8_t *token)
{
	uint32_t i, differ = 0;

	if (memcmp(at, "inlaymee", 8) || get_le(at + 8, 2) != 1 || get_le(at + 10, 6))
		return -EPROTO;
	for (i = 0; i < MEET_TOKEN; i++)
		differ |= at[16 + i] ^ token[i];
	return differ ? -EACCES : 0;
}

/* The welcome's head; plugins follow. err: 0 or a negative errno. */
static inline void meet_welcome_write(uint8_t *at, int err, uint32_t plugins, const void *address)
{
	memset(at, 0, MEET_WELCOME);
	memcpy(at, "inlaymee", 8);
	put_le(at + 8, 1, 2);
	put_le(at + 10, (uint64_t)-err, 2);
	if (err)
		return;
	put_le(at + 12, plugins, 4);
	memcpy(at + 16, address, INLAY_TASK_ADDRESS);
}

static inline void meet_entry_write(uint8_t *at, uint64_t id, const char *name)
{
	memset(at, 0, MEET_ENTRY);
	put_le(at, id, 8);
	memcpy(at + 8, name, strnlen(name, PLUGIN_NAME - 1));
}

/* MEET_WELCOME bytes. How many plugins follow, or the worker's negative errno, or -EPROTO. */
static inline int meet_welcome_read(const uint8_t *at)
{
	uint32_t status = (uint32_t)get_le(at + 10, 2), plugins = (uint32_t)get_le(at + 12, 4);

	if (memcmp(at, "inlaymee", 8) || get_le(at + 8, 2) != 1 || plugins > MEET_PLUGINS ||
	    status > INLAY_TASK_STATUS_MAX)
		return -EPROTO;
	return status ? -(int)status : (int)plugins;
}

static inline void meet_entry_read(const uint8_t *at, struct meet_plugin *p)
{
	p->id = get_le(at, 8);
	memcpy(p->name, at + 8, PLUGIN_NAME);
	p->name[PLUGIN_NAME - 1] = 0;
}

/* ---- The host's way to a worker ---- */

/* Reads an address file. 0; -EPROTO when it is none; else the errno of fopen. */
static inline int meet_place_read(const char *file, struct meet_place *p)
{
	char hex[2 * MEET_TOKEN + 1];
	unsigned byte, i;
	FILE *f = fopen(file, "re");
	int n;

	if (!f)
		return -errno;
	n = fscanf(f, "inlay-worker 1 %7s %107s %7s %32s", p->kind, p->where, p->port, hex);
	fclose(f);
	if (n != 4 || strlen(hex) != 2 * MEET_TOKEN)
		return -EPROTO;
	for (i = 0; i < MEET_TOKEN; i++) {
		if (sscanf(hex + 2 * (size_t)i, "%2x", &byte) != 1)
			return -EPROTO;
		p->token[i] = (uint8_t)byte;
	}
	return 0;
}

/* What a negative errno of meet_worker's is. */
static inline const char *meet_why(int err)
{
	switch (err) {
	case -ENOSPC: return "it has as many hosts as it may have";
	case -EAGAIN: return "too many others were there at the same time";
	case -EPROTO: return "it is no worker, or one of another version";
	default: return strerror(-err);
	}
}

/* A socket connected to that place, or a negative errno. */
static inline int meet_connect(const struct meet_place *p)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	int unix_socket = !strcmp(p->kind, "unix"), fd, port = 0;

	if (!unix_socket && (strcmp(p->kind, "tcp") || inet_pton(AF_INET, p->where, &in.sin_addr) != 1 ||
			     sscanf(p->port, "%5d", &port) != 1))
		return -EPROTO;
	in.sin_port = htons((uint16_t)port);
	memcpy(un.sun_path, p->where, strnlen(p->where, sizeof(un.sun_path) - 1));
	fd = socket(unix_socket ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (!(unix_socket ? connect(fd, (struct sockaddr *)&un, sizeof(un))
			  : connect(fd, (struct sockaddr *)&in, sizeof(in))))
		return fd;
	port = errno;
	close(fd);
	return -port;
}

/*
 * Connects a host to the worker at that place. plugins: room for MEET_PLUGINS, *num of which it
 * has. Returns the socket, to be closed after the host's end, or a negative errno.
 */
static inline int meet_worker(const struct meet_place *p, struct inlay_task_host *host, struct meet_plugin *plugins,
			      uint32_t *num)
{
	uint8_t greeting[MEET_GREETING], welcome[MEET_WELCOME], entry[MEET_ENTRY];
	uint64_t end = now_ns() + 20000000000u;
	int fd = meet_connect(p), err, n = 0;

	if (fd < 0)
		return fd;
	meet_greeting_write(greeting, p->token, &host->link.self);
	err = socket_move(fd, 1, greeting, sizeof(greeting), end);
	if (!err)
		err = socket_move(fd, 0, welcome, sizeof(welcome), end);
	if (!err)
		err = n = meet_welcome_read(welcome);
	for (*num = 0; err >= 0 && *num < (uint32_t)n; ++*num) {
		err = socket_move(fd, 0, entry, sizeof(entry), end);
		if (!err)
			meet_entry_read(entry, &plugins[*num]);
	}
	if (err >= 0)
		err = inlay_task_host_connect(host, welcome + 16, INLAY_TASK_ADDRESS, NULL);
	if (err >= 0)
		return fd;
	close(fd);
	return err;
}

#endif
