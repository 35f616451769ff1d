/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/conn.h: a worker's connection to one host: made, connected, served, taken down.
 *
 *   inlay_task_conn_create(&conn, memory, inlay_task_conn_size(&p), &worker);
 *   inlay_task_conn_address(&conn, mine);             to the host, and its address from there
 *   inlay_task_conn_connect(&conn, theirs, len);
 *   ... inlay_task_worker_progress (worker.h) serves it ...
 *   while ((gone = inlay_task_worker_gone(&worker)))  it broke: its host died, or was out of order
 *           inlay_task_conn_destroy(gone);
 *
 * Credits. Each connection has its own receives, params.credits. A command holds one until it is
 * answered. So a host that floods, or whose commands are kept, slows down nobody else. A receive is
 * reposted before its command's answer is rung for.
 *
 * Payloads by key. Each connection may use its share of params.pull, the elements divided by
 * params.connections; the next command by key waits until one comes back. Without a pool, or when
 * the payload is larger than an element, the command is refused with -E2BIG.
 *
 * A command's way
 *
 *   receive --> [waiting: others before it, its payload] --> handler --> [kept]
 *           --> answer --> [answered: no room in the ring] --> [sending] --> spare
 *
 * Memory of a connection
 *
 *   | receive | response | receive | response | ...   a pair for each command; registered
 *   | commands | which command has which receive | a pointer for each plugin |
 *
 * Threads: a worker and its connections have one owner at a time.
 * Sources: as cmd.h.
 */
#ifndef INLAY_TASK_CONN_H
#define INLAY_TASK_CONN_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/buf.h>
#include <inlay/cqe.h>
#include <inlay/queue.h>
#include <inlay/verbs.h>
#include <inlay/task/cmd.h>
#include <inlay/task/link.h>
#include <inlay/task/wire.h>

/* ------------------------------------------------------------------------------------------------
 * Set-up
 */

INLAY_COLD int inlay_task_worker_valid_(const struct inlay_task_worker_params *p)
{
	return p && p->connections && p->connections <= INLAY_TASK_CONNECTIONS && p->plugins &&
	       p->plugins <= INLAY_TASK_PLUGINS && inlay_is_pow2(p->credits) && p->credits <= INLAY_TASK_RECEIVES_MAX &&
	       p->spare && p->spare <= INLAY_TASK_RECEIVES_MAX && p->message >= INLAY_TASK_MESSAGE_MIN &&
	       p->message <= INLAY_TASK_MESSAGE_MAX && p->response && p->response <= INLAY_TASK_MESSAGE_MAX &&
	       p->max_inline <= 512 && p->max_inline <= p->response &&
	       (!p->pull || inlay_inventory_num_elements(&p->pull->inventory) >= p->connections);
}

/* WQEBBs that a connection's send ring needs. */
INLAY_COLD uint32_t inlay_task_conn_wqebbs_(const struct inlay_task_worker_params *p)
{
	uint64_t each = inlay_task_inline_bbs_(p->max_inline), all;

	if (each < 3) /* a response written by key, and its answer */
		each = 3;
	all = each * ((uint64_t)p->credits + p->spare) + p->credits + 16;
	if (all < 8 * each)
		all = 8 * each;
	return all > 32768 ? 32768 : (uint32_t)all;
}

/* Bytes of a command's receive and response. */
INLAY_COLD uint64_t inlay_task_conn_stride_(const struct inlay_task_worker_params *p)
{
	return inlay_round_up(p->message, INLAY_CACHE_LINE) + inlay_round_up(p->response, INLAY_CACHE_LINE);
}

/* Bytes of memory for a connection of such a worker; 0 when there cannot be one. */
INLAY_COLD size_t inlay_task_conn_size(const struct inlay_task_worker_params *p)
{
	uint64_t num;

	if (!inlay_task_worker_valid_(p))
		return 0;
	num = (uint64_t)p->credits + p->spare;
	return (size_t)(num * (inlay_task_conn_stride_(p) + sizeof(struct inlay_task_cmd)) +
			inlay_round_up(p->credits * sizeof(void *), INLAY_CACHE_LINE) +
			inlay_round_up(p->plugins * sizeof(void *), INLAY_CACHE_LINE));
}

/* Builds the worker's table of connections anew. */
INLAY_COLD void inlay_task_worker_name_(struct inlay_task_worker *w)
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
 * Makes a connection of everything but verbs objects: for inlay_task_conn_create, and for queues of
 * another making. c->link's queues are in place, the rest of *c is zeroed. Posts the receives. lkey
 * opens the front of memory. Returns 0, or -EAGAIN when the worker has all its connections.
 */
INLAY_COLD int inlay_task_conn_init_(struct inlay_task_conn *c, void *memory, struct inlay_task_worker *w,
				     uint32_t lkey)
{
	const struct inlay_task_worker_params *p = &w->params;
	uint64_t stride = inlay_task_conn_stride_(p);
	uint8_t *at = (uint8_t *)memory;
	struct ibv_sge sge;
	uint32_t i;

	if (w->num_conns == p->connections)
		return -EAGAIN;
	c->worker = w;
	c->num = p->credits + p->spare;
	c->slots = at;
	c->message = (uint32_t)inlay_round_up(p->message, INLAY_CACHE_LINE);
	c->mask = p->credits - 1;
	c->lkey = lkey;
	c->quarter = inlay_task_link_quarter_(&c->link);
	c->waiting.first = c->waiting.last = c->spare = INLAY_TASK_NOBODY;
	c->answered = c->sending = c->waiting;
	at += c->num * stride;
	c->cmds = (struct inlay_task_cmd *)(void *)at;
	at += c->num * sizeof(struct inlay_task_cmd);
	c->ring = (struct inlay_task_cmd **)(void *)at;
	at += inlay_round_up(p->credits * sizeof(void *), INLAY_CACHE_LINE);
	c->states = (void **)(void *)at;
	at += inlay_round_up(p->plugins * sizeof(void *), INLAY_CACHE_LINE);
	__builtin_memset(c->cmds, 0, (size_t)(at - (uint8_t *)c->cmds));
	inlay_rq_prepare(&c->link.rq, c->message, lkey);
	for (i = 0; i < c->num; i++) {
		c->cmds[i].conn = c;
		c->cmds[i].response = c->slots + i * stride + c->message;
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
	inlay_task_worker_name_(w);
	return 0;
}

/* Tells the plugins that the connection has come or ended. */
INLAY_COLD void inlay_task_conn_tell_(struct inlay_task_conn *c, enum inlay_task_change up)
{
	struct inlay_task_worker *w = c->worker;
	uint32_t i;

	if (c->up == up)
		return;
	c->up = (uint8_t)up;
	w->inside++;
	for (i = 0; i < w->num_plugins; i++) {
		const struct inlay_task_opened *s = &w->plugins[up ? i : w->num_plugins - 1 - i];

		if (s->plugin->connection)
			s->plugin->connection(s->state, c, up);
	}
	w->inside--;
}

/* The host is there. */
INLAY_COLD void inlay_task_conn_begin_(struct inlay_task_conn *c, const struct inlay_task_address *peer)
{
	const struct inlay_task_worker_params *p = &c->worker->params;

	c->link.peer = *peer;
	c->answer_max = peer->message - INLAY_TASK_HEAD;
	c->response_max = c->answer_max < p->response ? c->answer_max : p->response;
	c->max_inline = p->max_inline < c->response_max ? p->max_inline : c->response_max;
	c->connected = 1;
	inlay_task_conn_tell_(c, INLAY_TASK_CONNECTED);
}

/* Frees verbs objects. */
INLAY_COLD int inlay_task_conn_free_(struct inlay_task_conn *c)
{
	if (inlay_task_link_destroy(&c->link) || (c->mr && ibv_dereg_mr(c->mr)))
		return -EBUSY;
	c->mr = NULL;
	return 0;
}

/*
 * Makes a connection: its queue pair and memory region, with the receives posted.
 *
 * c       aligned to a cache line; c and memory are the connection's until it is destroyed
 * memory  for commands and messages, aligned to a cache line, better to a page
 * size    bytes, at least inlay_task_conn_size(&worker->params)
 *
 * Returns 0; -EINVAL for an argument out of its range; -ENOBUFS when size is too small; -EAGAIN
 * when the worker has all its connections; -ENOSPC when its CQ has too few CQEs left; an error of
 * inlay_task_link_create; else the negative errno of the verbs call that failed. On failure nothing
 * is left behind.
 */
INLAY_COLD int inlay_task_conn_create(struct inlay_task_conn *c, void *memory, size_t size, struct inlay_task_worker *w)
{
	const struct inlay_task_worker_params *p = &w->params;
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
	caps.wqebbs = inlay_task_conn_wqebbs_(p);
	caps.receives = p->credits;
	caps.max_inline = INLAY_TASK_HEAD + p->max_inline;
	caps.max_gather = 16;
	caps.access = IBV_ACCESS_REMOTE_WRITE; /* which a zero-byte write asks for; no region grants it */
	err = inlay_task_link_create(&c->link, &caps, &p->path);
	if (err)
		return err;
	errno = 0;
	c->mr = ibv_reg_mr(w->pd, memory, (size_t)(((uint64_t)p->credits + p->spare) * inlay_task_conn_stride_(p)),
			   (unsigned)IBV_ACCESS_LOCAL_WRITE);
	err = c->mr ? inlay_task_conn_init_(c, memory, w, c->mr->lkey) : errno ? -errno : -ENOMEM;
	if (err)
		inlay_task_conn_free_(c);
	c->link.self.role = INLAY_TASK_WORKER;
	c->link.self.message = p->message;
	c->link.self.receives = p->credits;
	c->link.self.largest = p->pull ? p->pull->element_size : 0;
	c->link.self.id = p->id;
	return err;
}

/* Writes the connection's address, INLAY_TASK_ADDRESS bytes, for inlay_task_host_connect. */
INLAY_COLD void inlay_task_conn_address(const struct inlay_task_conn *c, uint8_t *blob)
{
	inlay_task_address_write(blob, &c->link.self);
}

/*
 * Connects to a host, whose address inlay_task_host_address wrote. Returns 0; an error of
 * inlay_task_address_read or inlay_connect_rts; -EBADFD when it is connected, or was.
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
		inlay_task_conn_begin_(c, &peer);
	return err;
}

/*
 * Breaks the connection; progress then finds it broken. Returns 0 or the negative errno of
 * ibv_modify_qp.
 */
INLAY_COLD int inlay_task_conn_break(struct inlay_task_conn *c)
{
	int err = c->link.qp ? inlay_task_link_break(&c->link) : 0;

	/* There may be nothing to flush: all receives taken, and nothing being sent. */
	if (c->link.qp && !err && !c->marked) {
		c->marked = !inlay_post_nop(&c->link.sq, INLAY_SIGNALED);
		inlay_sq_ring(&c->link.sq);
	}
	return err;
}

/* A connection that has broken and was not named before; NULL: none. */
INLAY_COLD struct inlay_task_conn *inlay_task_worker_gone(struct inlay_task_worker *w)
{
	uint32_t i;

	for (i = 0; i < w->num_conns; i++)
		if (w->conns[i]->broken && !w->conns[i]->told) {
			w->conns[i]->told = 1;
			return w->conns[i];
		}
	return NULL;
}

/* Whether progress has found the connection broken. */
INLAY_FN int inlay_task_conn_is_broken(const struct inlay_task_conn *c)
{
	return c->broken;
}

/* Commands that handlers keep. */
INLAY_FN uint32_t inlay_task_conn_kept(const struct inlay_task_conn *c)
{
	return c->kept;
}

/*
 * A plugin's pointer with a connection, NULL at first. entry: the plugin's place among the worker's
 * entries (cmd->entry); NULL too for one beyond params.plugins.
 */
INLAY_FN void *inlay_task_conn_state(const struct inlay_task_conn *c, uint32_t entry)
{
	return entry < c->worker->params.plugins ? c->states[entry] : NULL;
}

/* Sets it. Returns 0, or -EINVAL for an entry beyond params.plugins. */
INLAY_FN int inlay_task_conn_set_state(struct inlay_task_conn *c, uint32_t entry, void *state)
{
	if (entry >= c->worker->params.plugins)
		return -EINVAL;
	c->states[entry] = state;
	return 0;
}

/* ------------------------------------------------------------------------------------------------
 * Internal: commands
 */

/* The plugin of this id, or NULL. */
INLAY_ALWAYS struct inlay_task_opened *inlay_task_worker_plugin_(struct inlay_task_worker *w, uint64_t id)
{
	struct inlay_task_opened *s = w->recent;

	if (INLAY_LIKELY(s && s->id == id))
		return s;
	for (s = w->plugins; s != w->plugins + w->num_plugins; s++)
		if (s->id == id)
			return w->recent = s;
	return NULL;
}

/* The worker's own answer. */
INLAY_COLD void inlay_task_cmd_refuse_(struct inlay_task_cmd *cmd, int status)
{
	inlay_task_cmd_finish_(cmd, INLAY_TASK_REFUSED, status, 0);
}

/* The command of the receive that completed; NULL when none is posted (a faulty device). */
INLAY_ALWAYS struct inlay_task_cmd *inlay_task_conn_next_(struct inlay_task_conn *c)
{
	return INLAY_LIKELY(c->taken != inlay_rq_index(&c->link.rq)) ? c->ring[c->taken++ & c->mask] : NULL;
}

/*
 * The connection has ended. What the device may still use stays in `sending` until it has returned
 * everything.
 */
INLAY_COLD void inlay_task_conn_end_(struct inlay_task_conn *c)
{
	struct inlay_task_cmd *cmd;

	if (c->broken)
		return;
	c->broken = 1;
	while ((cmd = inlay_task_fifo_pop_(c, &c->waiting)) || (cmd = inlay_task_fifo_pop_(c, &c->answered)))
		if (cmd->state == INLAY_TASK_CMD_PULLING)
			inlay_task_fifo_push_(&c->sending, cmd);
		else
			inlay_task_cmd_spare_(cmd);
	inlay_task_conn_tell_(c, INLAY_TASK_ENDED);
}

/* Starts to read a payload. Returns 0; -EAGAIN for want of an element or room; -E2BIG. */
INLAY_COLD int inlay_task_cmd_pull_(struct inlay_task_cmd *cmd)
{
	struct inlay_task_conn *c = cmd->conn;
	struct inlay_pool *pool = c->worker->params.pull;
	struct ibv_sge sge;

	if (!pool || cmd->payload_key.bytes > pool->element_size)
		return -E2BIG;
	if (c->pulls == c->worker->share || !inlay_sq_room(&c->link.sq) || inlay_pool_alloc(pool, &cmd->pulled)) {
		cmd->pulled = NULL;
		return -EAGAIN;
	}
	inlay_buf_set_data(cmd->pulled, inlay_buf_head(cmd->pulled), cmd->payload_key.bytes);
	sge = inlay_buf_sge(cmd->pulled);
	if (inlay_post_read(&c->link.sq, 0, cmd->payload_key.rkey, &sge, 1, INLAY_SIGNALED)) {
		inlay_buf_dec_refcount(cmd->pulled, NULL);
		cmd->pulled = NULL;
		return -EAGAIN;
	}
	c->pulls++;
	cmd->posted = inlay_sq_index(&c->link.sq);
	cmd->payload = (const uint8_t *)inlay_buf_data(cmd->pulled);
	cmd->state = INLAY_TASK_CMD_PULLING;
	inlay_task_conn_dirty_(c);
	return 0;
}

/* Whether a command's payload is still to be read. */
INLAY_COLD int inlay_task_cmd_unread_(const struct inlay_task_cmd *cmd)
{
	return cmd->payload_key.bytes && cmd->state == INLAY_TASK_CMD_WAITING && !cmd->pulled;
}

/* Hands a command to its handler. Returns 0 when it is stalled, otherwise 1. */
INLAY_ALWAYS uint32_t inlay_task_cmd_dispatch_(struct inlay_task_cmd *cmd)
{
	struct inlay_task_conn *c = cmd->conn;
	const struct inlay_task_opened *s = inlay_task_worker_plugin_(c->worker, cmd->plugin);
	int err;

	if (INLAY_UNLIKELY(!s)) {
		inlay_task_cmd_refuse_(cmd, -ENOENT);
		return 1;
	}
	cmd->entry = (uint32_t)(s - c->worker->plugins);
	cmd->response_len = 0;
	cmd->state = INLAY_TASK_CMD_KEPT;
	c->kept++;
	err = s->plugin->command(s->state, cmd);
	/* A handler that has answered by itself has answered, whatever it returns. */
	if (INLAY_UNLIKELY(cmd->state != INLAY_TASK_CMD_KEPT))
		return 1;
	if (INLAY_LIKELY(err <= 0)) {
		/* One that claims to have written more than fits is answered all the same. */
		if (INLAY_UNLIKELY(inlay_task_cmd_answer(cmd, err) == -E2BIG))
			inlay_task_cmd_answer_data(cmd, -E2BIG, cmd->response, 0);
	} else if (err == INLAY_TASK_STALL) {
		c->kept--;
		cmd->state = INLAY_TASK_CMD_WAITING;
		return 0;
	}
	return 1;
}

/*
 * Starts to read the payloads of waiting commands, in their order: a later one must not have the
 * last element while an earlier one waits.
 */
INLAY_COLD void inlay_task_conn_pull_(struct inlay_task_conn *c)
{
	uint32_t i;

	c->dry = 0;
	for (i = c->waiting.first; i != INLAY_TASK_NOBODY && !c->dry; i = c->cmds[i].next)
		c->dry = inlay_task_cmd_unread_(&c->cmds[i]) && inlay_task_cmd_pull_(&c->cmds[i]) == -EAGAIN;
}

/* Lets waiting commands go on as far as they can. Returns how many handlers were called. */
INLAY_COLD uint32_t inlay_task_conn_wait_(struct inlay_task_conn *c, uint32_t max)
{
	struct inlay_task_cmd *cmd;
	uint32_t n = 0;

	while (n < max && (cmd = inlay_task_fifo_first_(c, &c->waiting))) {
		if (c->dry)
			inlay_task_conn_pull_(c);
		if (inlay_task_cmd_unread_(cmd)) {
			if (inlay_task_cmd_pull_(cmd) == -EAGAIN)
				break;
			if (cmd->state == INLAY_TASK_CMD_WAITING) { /* too large */
				inlay_task_fifo_pop_(c, &c->waiting);
				inlay_task_cmd_refuse_(cmd, -E2BIG);
				continue;
			}
		}
		if (cmd->state == INLAY_TASK_CMD_PULLING && !inlay_task_link_done_(&c->link, cmd->posted))
			break;
		/*
		 * Out of the list first, since an answer may enter another. A stalled one goes
		 * back.
		 */
		inlay_task_fifo_pop_(c, &c->waiting);
		if (!inlay_task_cmd_dispatch_(cmd)) {
			cmd->next = c->waiting.first;
			if (c->waiting.first == INLAY_TASK_NOBODY)
				c->waiting.last = inlay_task_cmd_index_(cmd);
			c->waiting.first = inlay_task_cmd_index_(cmd);
			break;
		}
		n++;
	}
	return n;
}

/* Does what waits for something in a connection. Returns how many handlers were called. */
INLAY_COLD uint32_t inlay_task_conn_tend_(struct inlay_task_conn *c, uint32_t max)
{
	struct inlay_task_cmd *cmd;
	uint32_t n;

	c->tended = 0;
	if (c->broken)
		return 0;
	while ((cmd = inlay_task_fifo_first_(c, &c->answered))) {
		uint32_t next = cmd->next; /* before it enters another list */

		if (inlay_task_cmd_post_(cmd))
			break;
		c->answered.first = next;
	}
	n = inlay_task_conn_wait_(c, max);
	if (c->answered.first != INLAY_TASK_NOBODY || c->waiting.first != INLAY_TASK_NOBODY)
		inlay_task_conn_tend_soon_(c);
	return n;
}

/* A message that is not a plain command, or has others before it. */
INLAY_COLD void inlay_task_conn_message_(struct inlay_task_cmd *cmd, const uint8_t *msg, uint32_t bytes)
{
	struct inlay_task_conn *c = cmd->conn;
	struct inlay_task_command head;
	int err = inlay_task_command_read_(&head, msg, bytes > c->message ? 0 : bytes);

	cmd->context = head.context;
	cmd->plugin = head.plugin;
	cmd->destination = head.destination;
	if (c->broken) {
		inlay_task_cmd_spare_(cmd);
		return;
	}
	if (err) {
		inlay_task_cmd_refuse_(cmd, -EBADMSG);
		return;
	}
	cmd->payload = msg + head.at;
	cmd->payload_len = head.length;
	cmd->payload_key = head.payload;
	cmd->response_key = head.response;
	cmd->response_max = c->response_max;
	cmd->state = INLAY_TASK_CMD_WAITING;
	/* Read as early as possible; if not now, in its turn. */
	if (head.flags & INLAY_TASK_PAYLOAD_KEY && !c->dry)
		c->dry = inlay_task_cmd_pull_(cmd) == -EAGAIN;
	inlay_task_fifo_push_(&c->waiting, cmd);
	inlay_task_conn_tend_soon_(c);
}

/* A message has come. Returns how many handlers were called. */
INLAY_ALWAYS uint32_t inlay_task_conn_take_(struct inlay_task_conn *c, uint32_t bytes)
{
	struct inlay_task_cmd *cmd = inlay_task_conn_next_(c);
	const uint8_t *msg;
	uint64_t first;

	if (INLAY_UNLIKELY(!cmd)) {
		c->strays++;
		return 0;
	}
	msg = inlay_task_cmd_message_(cmd);
	c->commands++;
	first = inlay_task_get64_(msg);
	/* Only what the device has written is believed: the head's length must be the device's. */
	if (INLAY_UNLIKELY((first >> 32) + INLAY_TASK_HEAD != bytes) || INLAY_UNLIKELY(bytes > c->message) ||
	    INLAY_UNLIKELY((uint32_t)first != (INLAY_TASK_COMMAND << 8 | INLAY_TASK_WIRE)) ||
	    INLAY_UNLIKELY(c->waiting.first != INLAY_TASK_NOBODY) || INLAY_UNLIKELY(c->broken)) {
		inlay_task_conn_message_(cmd, msg, bytes);
		return 0;
	}
	cmd->payload = msg + INLAY_TASK_HEAD;
	cmd->payload_len = (uint32_t)(first >> 32);
	cmd->context = inlay_task_get64_(msg + 8);
	cmd->plugin = inlay_task_get64_(msg + 16);
	cmd->destination = inlay_task_get64_(msg + 24);
	cmd->payload_key.bytes = cmd->response_key.bytes = 0;
	cmd->response_max = c->response_max;
	if (INLAY_UNLIKELY(!inlay_task_cmd_dispatch_(cmd))) {
		inlay_task_fifo_push_(&c->waiting, cmd);
		inlay_task_conn_tend_soon_(c);
	}
	return 1;
}

/* Commands whose answers were sent become spare. */
INLAY_COLD void inlay_task_conn_sent_(struct inlay_task_conn *c)
{
	struct inlay_task_cmd *cmd;

	while ((cmd = inlay_task_fifo_first_(c, &c->sending)) && inlay_task_link_done_(&c->link, cmd->posted)) {
		inlay_task_fifo_pop_(c, &c->sending);
		inlay_task_cmd_spare_(cmd);
	}
}

/* A completion of a send, an error, or one that makes no sense. Frees it. */
INLAY_COLD void inlay_task_conn_other_(struct inlay_task_conn *c, const struct mlx5_cqe64 *cqe)
{
	struct inlay_task_cmd *cmd;
	int error = inlay_cqe_is_error(cqe);

	if (inlay_cqe_is_send(cqe)) {
		if (inlay_sq_release(&c->link.sq, cqe) < 0)
			c->strays++;
		else if (inlay_task_link_done_(&c->link, c->probe_end))
			c->probing = 0;
	} else if ((cmd = inlay_task_conn_next_(c))) {
		if (error) {
			inlay_task_cmd_spare_(cmd);
		} else {
			/*
			 * With an immediate, a key to invalidate, or an RDMA write: no command. It
			 * took a receive.
			 */
			c->strays++;
			c->commands++;
			inlay_task_conn_message_(cmd, inlay_task_cmd_message_(cmd), 0);
		}
	}
	inlay_cq_advance(&c->worker->cq, 1);
	if (error)
		inlay_task_conn_end_(c);
	if (!c->broken || !inlay_sq_pending(&c->link.sq))
		inlay_task_conn_sent_(c);
	/* What was done unsignaled has no completion at the end either; a last WQE has. */
	if (c->broken && !c->marked) {
		c->marked = !inlay_post_nop(&c->link.sq, INLAY_SIGNALED);
		inlay_task_conn_dirty_(c);
	}
}

/* ------------------------------------------------------------------------------------------------
 * Ringing, and the end
 */

/* Rings for all answers and receives that were posted: what progress does at its end. */
INLAY_FN void inlay_task_worker_flush(struct inlay_task_worker *w)
{
	struct inlay_task_conn *c = w->dirty;

	w->dirty = NULL;
	for (; c; c = c->next_dirty) {
		c->dirty = 0;
		/* The receive first: an answer is the credit for it. */
		inlay_rq_ring(&c->link.rq);
		inlay_sq_ring(&c->link.sq);
	}
}

/*
 * Takes a connection down, broken or not; its host finds out as if the worker had died. Plugins are
 * told, if they have not been. Memory and *c are the caller's again.
 *
 * Returns 0; -EBUSY when a plugin's function calls it: nothing has happened; -EBUSY while handlers
 * keep commands of it, or a verbs object is in use: the connection is broken, and it may be called
 * again.
 */
INLAY_COLD int inlay_task_conn_destroy(struct inlay_task_conn *c)
{
	struct inlay_task_worker *w = c->worker;
	uint32_t i, qpn = inlay_sq_qpn(&c->link.sq);
	struct inlay_task_cmd *cmd;

	if (w->inside)
		return -EBUSY;
	inlay_task_conn_break(c);
	inlay_task_conn_end_(c);
	if (c->kept)
		return -EBUSY;
	inlay_task_worker_flush(w); /* nobody rings for it once the queue pair is gone */
	if (inlay_task_link_destroy(&c->link))
		return -EBUSY;
	/*
	 * Its number may be another's from now on. Without a queue pair nothing of it is read or
	 * written.
	 */
	if (qpn)
		inlay_cq_clean(&w->cq, qpn, NULL, NULL);
	__builtin_memset(&c->link.sq, 0, sizeof(c->link.sq));
	while ((cmd = inlay_task_fifo_pop_(c, &c->sending)))
		inlay_task_cmd_spare_(cmd);
	if (inlay_task_conn_free_(c))
		return -EBUSY;
	for (i = 0; i < w->num_conns; i++)
		if (w->conns[i] == c) {
			w->conns[i] = w->conns[--w->num_conns];
			inlay_task_worker_name_(w);
			break;
		}
	return 0;
}

#endif
