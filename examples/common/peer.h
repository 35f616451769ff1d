/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peer.h: the other process of two: one that this one started, or one found by TCP. They pass
 * bytes, and wait for each other. Every function ends the program, in one line, if the peer is gone
 * or silent.
 */
#ifndef COMMON_PEER_H
#define COMMON_PEER_H

#include <endian.h>
#include <sched.h>
#include <sys/wait.h>
#include "socket.h"

static struct {
	int wire;                       /* -1: there is no other process */
	int is_child;                   /* started by the other one */
	pid_t child;                    /* the other one, if this one started it */
	uint32_t timeout;               /* seconds without a word */
} peer = {.wire = -1, .timeout = 10};

/*
 * Starts it, before there is a device: neither registers nor queues survive a fork. Returns 0 here
 * and 1 there.
 */
static inline int peer_fork(void)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		die("socketpair: %s", strerror(errno));
	fflush(stdout);
	peer.child = fork();
	if (peer.child < 0)
		die("fork: %s", strerror(errno));
	peer.is_child = !peer.child;
	peer.wire = pair[peer.is_child];
	close(pair[!peer.is_child]);
	return peer.is_child;
}

/* The one that was started here has to end well. */
static inline void peer_join(void)
{
	int status = 0;

	if (peer.child && (waitpid(peer.child, &status, 0) != peer.child || status))
		die("the other process did not end well");
}

/* One that we started, or that started us, has said why itself, unless it was killed. */
static inline __attribute__((noreturn)) void peer_gone(void)
{
	int status = 0;

	if (peer.is_child || (peer.child && waitpid(peer.child, &status, 0) == peer.child && !WIFSIGNALED(status)))
		exit(1);
	if (peer.child)
		die("the other process was killed by signal %d", WTERMSIG(status));
	die("the peer closed the connection");
}

/* Whether it has gone, or goes within so many ms. */
static inline int peer_left(int ms)
{
	return socket_closed(peer.wire, ms);
}

static inline void peer_move(int out, void *at, size_t len, const char *what)
{
	int err = socket_move(peer.wire, out, at, len, now_ns() + peer.timeout * 1000000000ull);

	if (err == -ETIMEDOUT)
		die("%s the peer within %u s", what, peer.timeout);
	if (err)
		peer_gone();
}

static inline void peer_tell(const void *from, size_t len)
{
	peer_move(1, (void *)(uintptr_t)from, len, "nothing is taken by");
}

static inline void peer_hear(void *to, size_t len)
{
	peer_move(0, to, len, "no word from");
}

/* Both say and hear as much. */
static inline void peer_swap(const void *mine, void *theirs, size_t len)
{
	peer_tell(mine, len);
	peer_hear(theirs, len);
}

/* Both have come as far as this. patient: the peer may take longer than peer.timeout, if it lives. */
static inline void peer_meet(int patient)
{
	uint32_t step = htobe32(0x53544550), word;

	if (peer.wire < 0)
		return;
	peer_tell(&step, sizeof(step));
	while (patient && !socket_ready(peer.wire, POLLIN, now_ns() + 1000000000))
		;
	peer_hear(&word, sizeof(word));
	if (word != step)
		die("the peer is out of step: 0x%08x", be32toh(word));
}

/* One wait for something to move; zeroed at first. */
struct wait {
	uint64_t since, looked;
	uint32_t spins;
};

/* Called while nothing moves. Ends the program if the peer has gone, or nothing has moved for peer.timeout. */
static inline void peer_wait(struct wait *w)
{
	uint64_t now;

	if (++w->spins % 256)
		return;
	sched_yield(); /* the peer may need this CPU to answer */
	now = now_ns();
	if (!w->since)
		w->since = w->looked = now;
	if (now - w->looked <= 1000000)
		return;
	w->looked = now;
	if (peer_left(0))
		peer_gone();
	if (now - w->since > peer.timeout * 1000000000ull)
		die("nothing has moved for %u s", peer.timeout);
}

#endif
