/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/conn.h: a worker's connection to a host: made, connected, taken down; and the numbered objects that a plugin files under it.
 * The manual is worker.h's.
 *
 *   inlay_task_conn_create --> inlay_task_conn_connect --> commands ... --> broken --> inlay_task_conn_destroy
 *                                                                       by itself, or inlay_task_conn_break
 *
 * Memory of a connection
 *
 *   | receive | response | receive | response | ...          one pair for each command, registered
 *   | commands | which command has which receive | a pointer for each plugin |
 *
 * Threads: as worker.h.
 * Sources: as worker.h.
 */
#ifndef INLAY_TASK_CONN_H
#define INLAY_TASK_CONN_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/queue.h>
#include <inlay/verbs.h>
#include <inlay/task/link.h>
#include <inlay/task/wire.h>
#include <inlay/task/worker.h>

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up
 */

/* Bytes of a command's receive and response. */
INLAY_COLD uint64_t inlay_task_conn_stride(const struct inlay_task_worker_params *p)
{
	return inlay_task_worker_lines(p->message) + inlay_task_worker_lines(p->response);
}

/* Bytes of memory for a connection of such a worker; 0 when there cannot be one. */
INLAY_COLD size_t inlay_task_conn_size(const struct inlay_task_worker_params *p)
{
	uint64_t num = (uint64_t)p->credits + p->spare;

	if (inlay_task_worker_check(p))
		return 0;
	return (size_t)(num * inlay_task_conn_stride(p) + num * sizeof(struct inlay_task_cmd) +
			inlay_task_worker_lines((uint64_t)p->credits * sizeof(void *)) +
			inlay_task_worker_lines((uint64_t)p->plugins * sizeof(void *)));
}

/* The worker's table of connections, anew: one has come or gone. */
INLAY_COLD void inlay_task_worker_name(struct inlay_task_worker *w)
{
	uint32_t i, at;

	__builtin_memset(w->named, 0, sizeof(*w->named) * ((size_t)w->named_mask + 1));
	for (i = 0; i < w->num_conns; i++) {
		uint32_t qpn = inlay_sq_qpn(&w->conns[i]->link.sq);

		for (at = qpn & w->named_mask; w->named[at].conn; at = (at + 1) & w->named_mask)
			;
		w->named[at].conn = w->conns[i];
		w->named[at].qpn = qpn;
	}
}

/*
 * Makes a connection of everything but verbs objects: for inlay_task_conn_create, and for who has queues of another making. c->link.sq and
 * c->link.rq are in place, the rest of *c is zeroed. Posts the receives.
 *
 * memory  inlay_task_conn_size bytes, of which lkey opens the front part
 *
 * Returns 0, or -EAGAIN when the worker has as many connections as it may.
 */
INLAY_COLD int inlay_task_conn_init(struct inlay_task_conn *c, void *memory, struct inlay_task_worker *w, uint32_t lkey)
{
	const struct inlay_task_worker_params *p = &w->params;
	uint64_t message = inlay_task_worker_lines(p->message), stride = inlay_task_conn_stride(p);
	uint8_t *at = (uint8_t *)memory;
	struct ibv_sge sge;
	uint32_t i;

	if (w->num_conns == p->connections)
		return -EAGAIN;
	c->worker = w;
	c->num = p->credits + p->spare;
	c->slots = at;
	c->message = (uint32_t)message;
	c->mask = p->credits - 1;
	c->lkey = lkey;
	c->quarter = inlay_task_quarter(&c->link.sq);
	inlay_rq_prepare(&c->link.rq, c->message, lkey);
	c->waiting.first = c->waiting.last = INLAY_TASK_NOBODY;
	c->answered = c->sending = c->waiting;
	c->spare = INLAY_TASK_NOBODY;
	at += c->num * stride;
	c->cmds = (struct inlay_task_cmd *)(void *)at;
	__builtin_memset(at, 0, c->num * sizeof(struct inlay_task_cmd));
	at += c->num * sizeof(struct inlay_task_cmd);
	c->ring = (struct inlay_task_cmd **)(void *)at;
	at += inlay_task_worker_lines((uint64_t)p->credits * sizeof(void *));
	c->states = (void **)(void *)at;
	__builtin_memset(at, 0, p->plugins * sizeof(void *));
	for (i = 0; i < c->num; i++) {
		c->cmds[i].conn = c;
		c->cmds[i].response = c->slots + i * stride + message;
		if (i < p->credits) {
			c->ring[i] = &c->cmds[i];
			sge.addr = (uintptr_t)c->slots + i * stride;
			sge.length = c->message;
			sge.lkey = lkey;
			inlay_post_recv(&c->link.rq, &sge, 1);
		} else {
			c->cmds[i].next = c->spare;
			c->spare = i;
		}
	}
	inlay_rq_ring(&c->link.rq);
	w->conns[w->num_conns++] = c;
	inlay_task_worker_name(w);
	return 0;
}

/* The host is there. peer: what its address says of it. Plugins are told. */
INLAY_COLD void inlay_task_conn_begin(struct inlay_task_conn *c, const struct inlay_task_address *peer)
{
	struct inlay_task_worker *w = c->worker;
	uint32_t i;

	c->link.peer = *peer;
	c->answer_room = inlay_task_room(peer->message);
	c->room = c->answer_room < w->params.response ? c->answer_room : w->params.response;
	c->max_inline = w->params.max_inline < c->room ? w->params.max_inline : c->room;
	c->connected = 1;
	c->up = 1;
	w->inside++;
	for (i = 0; i < w->num_plugins; i++)
		if (w->order[i]->plugin->connection)
			w->order[i]->plugin->connection(w->order[i]->state, c, 1);
	w->inside--;
}

/* Plugins are told that it has ended; once. */
INLAY_COLD void inlay_task_conn_down(struct inlay_task_conn *c)
{
	struct inlay_task_worker *w = c->worker;
	uint32_t i;

	if (!c->up)
		return;
	c->up = 0;
	w->inside++;
	for (i = w->num_plugins; i--;)
		if (w->order[i]->plugin->connection)
			w->order[i]->plugin->connection(w->order[i]->state, c, 0);
	w->inside--;
}

/* Frees verbs objects. */
INLAY_COLD int inlay_task_conn_free(struct inlay_task_conn *c)
{
	if (inlay_task_link_destroy(&c->link))
		return -EBUSY;
	if (c->mr && ibv_dereg_mr(c->mr))
		return -EBUSY;
	c->mr = NULL;
	return 0;
}

/*
 * Makes a connection: its queue pair and memory region, with the receives posted.
 *
 * c       on a cache line; both it and memory are the connection's until it is destroyed
 * memory  for commands and messages, on a cache line, better on a page
 * size    its bytes, at least inlay_task_conn_size(&worker->params)
 *
 * Returns 0; -EINVAL for an argument out of its range; -ENOBUFS when size is too small; -EAGAIN when the worker has as many connections as
 * it may; -ENOSPC when its CQ has no room for all that this one could complete; -ENOMEM when the device has not as much; what inlay_task_link_create returns; else the negative errno of the verbs call that
 * failed. On failure nothing is left behind.
 */
INLAY_COLD int inlay_task_conn_create(struct inlay_task_conn *c, void *memory, size_t size, struct inlay_task_worker *w)
{
	const struct inlay_task_worker_params *p = &w->params;
	const unsigned access = IBV_ACCESS_LOCAL_WRITE;
	struct inlay_task_caps caps;
	int err;

	if (!c || (uintptr_t)c % INLAY_CACHE_LINE || !memory || (uintptr_t)memory % INLAY_CACHE_LINE)
		return -EINVAL;
	if (size < inlay_task_conn_size(p))
		return -ENOBUFS;
	if (w->num_conns == p->connections)
		return -EAGAIN;
	__builtin_memset(c, 0, sizeof(*c));
	__builtin_memset(&caps, 0, sizeof(caps));
	caps.pd = w->pd;
	caps.ibcq = w->ibcq;
	caps.cq = &w->cq;
	caps.uar = w->uar.td ? &w->uar : NULL;
	caps.wqebbs = inlay_task_conn_wqebbs(p);
	caps.receives = p->credits;
	caps.max_inline = INLAY_TASK_HEAD + p->max_inline;
	caps.max_gather = 16;
	caps.access = IBV_ACCESS_REMOTE_WRITE; /* which a zero-byte write asks for; no region grants it */
	err = inlay_task_link_create(&c->link, &caps, &p->path);
	if (err)
		return err;
	errno = 0;
	c->mr = ibv_reg_mr(w->pd, memory, (size_t)(((uint64_t)p->credits + p->spare) * inlay_task_conn_stride(p)), access);
	if (!c->mr)
		err = errno ? -errno : -ENOMEM;
	if (!err)
		err = inlay_task_conn_init(c, memory, w, c->mr->lkey);
	if (err) {
		inlay_task_conn_free(c);
		return err;
	}
	c->link.self.role = INLAY_TASK_WORKER;
	c->link.self.message = p->message;
	c->link.self.receives = p->credits;
	c->link.self.largest = p->pull ? inlay_pool_element_size(p->pull) : 0;
	c->link.self.id = p->id;
	return 0;
}

/* Writes the connection's address blob: INLAY_TASK_ADDRESS bytes, for the host's inlay_task_host_connect. */
INLAY_COLD void inlay_task_conn_address(const struct inlay_task_conn *c, uint8_t *blob)
{
	inlay_task_address_write(blob, &c->link.self);
}

/*
 * Connects it to a host.
 *
 * blob, len  as inlay_task_host_address gave it on the other side
 *
 * Returns 0; an error of inlay_task_address_read; -EBADFD when it is connected, or was; -EINVAL when the host's port is of another link
 * layer; else the negative errno of ibv_modify_qp.
 */
INLAY_COLD int inlay_task_conn_connect(struct inlay_task_conn *c, const void *blob, size_t len)
{
	struct inlay_task_address peer;
	int err = inlay_task_address_read(&peer, blob, len, INLAY_TASK_HOST);

	if (err)
		return err;
	if (c->connected || c->broken)
		return -EBADFD;
	err = inlay_task_link_connect(&c->link, &peer);
	if (!err)
		inlay_task_conn_begin(c, &peer);
	return err;
}

/*
 * Breaks the connection: to the error state. Progress then finds it broken. What its handlers keep stays theirs. Returns 0 or the negative
 * errno of ibv_modify_qp.
 */
INLAY_COLD int inlay_task_conn_break(struct inlay_task_conn *c)
{
	int err;

	if (!c->link.qp)
		return 0;
	err = inlay_task_link_break(&c->link);
	/* There may be nothing to flush: all receives taken by commands that are kept, and nothing being sent. */
	if (!err && !c->marked) {
		c->marked = !inlay_post_nop(&c->link.sq, INLAY_SIGNALED);
		inlay_sq_ring(&c->link.sq);
	}
	return err;
}

/* One of the connections that have broken since it was asked last, each once; NULL: none. */
INLAY_COLD struct inlay_task_conn *inlay_task_worker_gone(struct inlay_task_worker *w)
{
	struct inlay_task_conn *c = w->gone;

	if (c)
		w->gone = c->next_gone;
	return c;
}

/* Whether it has broken. */
INLAY_FN int inlay_task_conn_is_broken(const struct inlay_task_conn *c)
{
	return c->broken;
}

/* Commands that handlers keep. */
INLAY_FN uint32_t inlay_task_conn_kept(const struct inlay_task_conn *c)
{
	return c->kept;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Numbered objects: what a plugin gives out to one host
 */

/* One of them: free ones are a list */
struct inlay_task_object {
	void *object;                   /* NULL: free */
	uint32_t generation;
	uint32_t next;
};

/* A table in the caller's memory, of one connection and plugin */
struct inlay_task_handles {
	struct inlay_task_object *objects;
	uint32_t num;
	uint32_t free;
};

/* Makes a table over memory for num objects, on 8 bytes: num * sizeof(struct inlay_task_object). */
INLAY_FN void inlay_task_handles_init(struct inlay_task_handles *t, void *memory, uint32_t num)
{
	uint32_t i;

	t->objects = (struct inlay_task_object *)memory;
	t->num = num;
	t->free = num ? 0 : INLAY_TASK_NOBODY;
	for (i = 0; i < num; i++) {
		t->objects[i].object = NULL;
		t->objects[i].generation = 1;
		t->objects[i].next = i + 1 < num ? i + 1 : INLAY_TASK_NOBODY;
	}
}

/* Files an object, which is not NULL. Its handle, for the host; 0: the table is full. No handle is 0. */
INLAY_FN uint64_t inlay_task_handles_add(struct inlay_task_handles *t, void *object)
{
	uint32_t i = t->free;

	if (i == INLAY_TASK_NOBODY)
		return 0;
	t->free = t->objects[i].next;
	t->objects[i].object = object;
	return (uint64_t)t->objects[i].generation << 32 | i;
}

/* What a handle names; NULL: nothing, whatever the host says. */
INLAY_FN void *inlay_task_handles_find(const struct inlay_task_handles *t, uint64_t handle)
{
	uint32_t i = (uint32_t)handle;

	return i < t->num && t->objects[i].generation == handle >> 32 ? t->objects[i].object : NULL;
}

/* Takes an object away, and its handle's meaning. Returns it, or NULL. */
INLAY_FN void *inlay_task_handles_remove(struct inlay_task_handles *t, uint64_t handle)
{
	void *object = inlay_task_handles_find(t, handle);
	uint32_t i = (uint32_t)handle;

	if (!object)
		return NULL;
	t->objects[i].object = NULL;
	t->objects[i].generation += t->objects[i].generation == UINT32_MAX ? 2 : 1;
	t->objects[i].next = t->free;
	t->free = i;
	return object;
}

/*
 * A plugin's pointer with a connection: NULL at first. index: of the plugin, as cmd->entry has it: its place among the entries. NULL too
 * for an index beyond the worker's params.plugins.
 */
INLAY_FN void *inlay_task_conn_state(const struct inlay_task_conn *c, uint32_t index)
{
	return index < c->worker->params.plugins ? c->states[index] : NULL;
}

/* Sets it. Returns 0, or -EINVAL for an index beyond the worker's params.plugins. */
INLAY_FN int inlay_task_conn_set_state(struct inlay_task_conn *c, uint32_t index, void *state)
{
	if (index >= c->worker->params.plugins)
		return -EINVAL;
	c->states[index] = state;
	return 0;
}

#endif
