/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/conn.h: a worker's connection to one host: created, connected, served, destroyed.
 *
 *   inlay_task_conn_create(&conn, memory, inlay_task_conn_size(&p), &worker, &why);
 *   inlay_task_address_write(mine, &conn.link.self);  send it to the host, and get the host's
 *   inlay_task_conn_connect(&conn, theirs, len, &why);
 *   ... inlay_task_worker_progress (worker.h) serves it ...
 *   if (conn.broken)                                  its host died or misbehaved
 *           inlay_task_conn_destroy(&conn);
 *
 * Each connection has its own params.credits receives. A command holds one until its answer, so a
 * host that floods, or whose commands are kept, slows down no other. A receive is reposted before
 * the doorbell of its command's answer.
 *
 * A command's path
 *
 *   receive --> [waiting: others before it, its payload] --> handler --> [kept]
 *           --> answer --> [answered: no room in the ring] --> [sending] --> spare
 *
 * Threads: a worker and its connections have one owner at a time.
 * Sources: as cmd.h.
 */
#ifndef INLAY_TASK_CONN_H
#define INLAY_TASK_CONN_H

#include <inlay/cqe.h>
#include <inlay/task/cmd.h>

/* ---- Set-up ---- */

INLAY_COLD int inlay_task_worker_valid_(const struct inlay_task_worker_params *p)
{
	return p && p->connections && p->connections <= INLAY_TASK_CONNECTIONS &&
	       p->num_plugins <= INLAY_TASK_PLUGINS && (p->plugins || !p->num_plugins) &&
	       inlay_is_pow2(p->credits) && p->credits <= INLAY_TASK_RECEIVES_MAX && p->spare &&
	       p->spare <= INLAY_TASK_RECEIVES_MAX && p->message >= INLAY_TASK_MESSAGE_MIN &&
	       p->message <= INLAY_TASK_MESSAGE_MAX && p->response >= INLAY_TASK_MESSAGE_MIN - INLAY_TASK_HEAD &&
	       p->response <= INLAY_TASK_MESSAGE_MAX && p->max_inline <= 512 && p->max_inline <= p->response;
}

INLAY_COLD uint32_t inlay_task_conn_wqebbs_(const struct inlay_task_worker_params *p)
{
	uint64_t each = inlay_task_bbs_(INLAY_TASK_HEAD + p->max_inline, 0), all;

	if (each < 3) /* a response written by key, and its answer */
		each = 3;
	all = each * ((uint64_t)p->credits + p->spare) + p->credits + 16;
	if (all < 8 * each)
		all = 8 * each;
	return all > 32768 ? 32768 : (uint32_t)all;
}

/* Lays a connection out from `at` on: messages, which are registered, then the rest. Returns the end. */
INLAY_COLD uintptr_t inlay_task_conn_place_(struct inlay_task_conn *c, const struct inlay_task_worker_params *p, uintptr_t at)
{
	c->num = p->credits + p->spare;
	c->message = (uint32_t)inlay_round_up(p->message, INLAY_CACHE_LINE);
	c->stride = c->message + (uint32_t)inlay_round_up(p->response, INLAY_CACHE_LINE);
	inlay_task_place_(&at, (uint64_t)c->num * c->stride);
	c->cmds = (struct inlay_task_cmd *)inlay_task_place_(&at, c->num * sizeof(*c->cmds));
	c->ring = (struct inlay_task_cmd **)inlay_task_place_(&at, p->credits * sizeof(*c->ring));
	c->states = (void **)inlay_task_place_(&at, p->num_plugins * sizeof(*c->states));
	return at;
}

/* Bytes of memory for a connection of such a worker; 0 if a parameter is out of range. */
INLAY_COLD size_t inlay_task_conn_size(const struct inlay_task_worker_params *p)
{
	struct inlay_task_conn c;

	return inlay_task_worker_valid_(p) ? (size_t)inlay_task_conn_place_(&c, p, 0) : 0;
}

/* Rebuilds the worker's table of connections by QPN. */
INLAY_COLD void inlay_task_worker_name_(struct inlay_task_worker *w)
{
	uint32_t i, at;

	__builtin_memset(w->named, 0, sizeof(*w->named) * ((size_t)w->named_mask + 1));
	for (i = 0; i < w->num_conns; i++) {
		at = inlay_sq_qpn(&w->conns[i]->link.sq) & w->named_mask;
		while (w->named[at])
			at = (at + 1) & w->named_mask;
		w->named[at] = w->conns[i];
	}
}

/* Makes all of a connection but verbs objects. c->link's queues are set, the rest is zero. */
INLAY_COLD void inlay_task_conn_init_(struct inlay_task_conn *c, void *memory, struct inlay_task_worker *w,
				      uint32_t lkey)
{
	const struct inlay_task_worker_params *p = &w->params;
	struct ibv_sge sge = {(uintptr_t)memory, 0, lkey};
	uintptr_t end = inlay_task_conn_place_(c, p, (uintptr_t)memory);
	uint32_t i;

	c->worker = w;
	c->mask = p->credits - 1;
	c->lkey = lkey;
	c->half = (inlay_sq_size(&c->link.sq) - 1) >> 1;
	__builtin_memset(c->cmds, 0, end - (uintptr_t)c->cmds);
	sge.length = c->message;
	inlay_rq_prepare(&c->link.rq, c->message, lkey);
	for (i = 0; i < c->num; i++, sge.addr += c->stride) {
		c->cmds[i].conn = c;
		c->cmds[i].response = (uint8_t *)memory + (size_t)i * c->stride + c->message;
		if (i >= p->credits) {
			inlay_task_fifo_push_(&c->spare, &c->cmds[i]);
			continue;
		}
		c->ring[i] = &c->cmds[i];
		inlay_had_room_(inlay_post_recv(&c->link.rq, &sge, 1));
	}
	inlay_rq_ring(&c->link.rq);
	w->conns[w->num_conns++] = c;
	inlay_task_worker_name_(w);
}

/* Tells the plugins that the connection has come or ended. */
INLAY_COLD void inlay_task_conn_tell_(struct inlay_task_conn *c, enum inlay_task_change up)
{
	struct inlay_task_worker *w = c->worker;
	uint32_t i, k;

	w->inside++;
	for (i = 0; i < w->num_plugins; i++) {
		k = up ? i : w->num_plugins - 1 - i;
		if (w->plugins[k].plugin->connection)
			w->plugins[k].plugin->connection(w->plugins[k].argument, c, &c->states[k], up);
	}
	w->inside--;
}

/* Opens the connection, whose host is connected. */
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

/*
 * Makes a connection: its queue pair and memory region, with the receives posted.
 *
 * c       aligned to a cache line; c and memory are the connection's until it is destroyed
 * memory  for commands and messages, aligned to a cache line, better to a page
 * size    bytes, at least inlay_task_conn_size(&worker->params)
 *
 * Returns as inlay_task_host_create; -EAGAIN when the worker has params.connections; -ENOSPC when
 * its CQ has too few CQEs left.
 */
INLAY_COLD int inlay_task_conn_create(struct inlay_task_conn *c, void *memory, size_t size, struct inlay_task_worker *w,
				      const char **why)
{
	const struct inlay_task_worker_params *p = &w->params;
	struct inlay_task_caps caps;
	int err;

	if (!c || (uintptr_t)c % INLAY_CACHE_LINE || !memory || (uintptr_t)memory % INLAY_CACHE_LINE)
		return inlay_refuse_(-EINVAL, why, "a connection's argument is out of its range");
	if (size < inlay_task_conn_size(p))
		return inlay_refuse_(-ENOBUFS, why, "less memory than inlay_task_conn_size");
	if (w->num_conns == p->connections)
		return inlay_refuse_(-EAGAIN, why, "the worker has all its connections");
	__builtin_memset(c, 0, sizeof(*c));
	__builtin_memset(&caps, 0, sizeof(caps));
	caps.pd = w->pd;
	caps.ibcq = w->ibcq;
	caps.cq = &w->cq;
	caps.uar = w->uar.td ? &w->uar : NULL;
	caps.wqebbs = inlay_task_conn_wqebbs_(p);
	caps.receives = p->credits;
	caps.max_inline = INLAY_TASK_HEAD + p->max_inline;
	caps.max_gather = INLAY_TASK_RESPONSE_PIECES;
	caps.access = IBV_ACCESS_REMOTE_WRITE; /* for the host's probes; no region grants it */
	err = inlay_task_link_create(&c->link, &caps, &p->path, why);
	if (err)
		return err;
	errno = 0;
	inlay_task_conn_place_(c, p, 0);
	c->mr = ibv_reg_mr(w->pd, memory, (size_t)c->num * c->stride, (unsigned)IBV_ACCESS_LOCAL_WRITE);
	if (!c->mr) {
		err = inlay_task_errno_(why, "the connection's memory cannot be registered");
		inlay_task_link_destroy(&c->link);
		return err;
	}
	inlay_task_conn_init_(c, memory, w, c->mr->lkey);
	c->link.self.role = INLAY_TASK_WORKER;
	c->link.self.message = p->message;
	c->link.self.receives = p->credits;
	c->link.self.largest = w->pull ? w->pool->element_size : 0;
	c->link.self.id = p->id;
	return 0;
}

/*
 * Connects to a host, by its address. Returns 0; an error of
 * inlay_task_address_read or inlay_connect_rts; -EBADFD when it is or was connected. After an
 * error of inlay_connect_rts, destroy the connection.
 */
INLAY_COLD int inlay_task_conn_connect(struct inlay_task_conn *c, const void *blob, size_t len, const char **why)
{
	struct inlay_task_address peer;
	int err = inlay_task_address_read(&peer, blob, len, INLAY_TASK_HOST, why);

	if (err)
		return err;
	if (c->connected || c->broken)
		return inlay_refuse_(-EBADFD, why, "the connection is connected, or was");
	err = inlay_task_link_connect(&c->link, &peer, why);
	if (!err)
		inlay_task_conn_begin_(c, &peer);
	return err;
}

/* ---- Data path ---- */

INLAY_ALWAYS struct inlay_task_entry *inlay_task_worker_plugin_(const struct inlay_task_worker *w, uint64_t id)
{
	struct inlay_task_entry *e;

	for (e = w->plugins; e != w->plugins + w->num_plugins; e++)
		if (e->id == id)
			return e;
	return NULL;
}

/* The command whose receive completed; NULL if none is posted (a faulty device). */
INLAY_ALWAYS struct inlay_task_cmd *inlay_task_conn_next_(struct inlay_task_conn *c)
{
	return INLAY_LIKELY(c->taken != inlay_rq_index(&c->link.rq)) ? c->ring[c->taken++ & c->mask] : NULL;
}

/* Breaks the connection; progress then finds it broken. Returns as inlay_task_link_break. */
INLAY_COLD int inlay_task_conn_break_(struct inlay_task_conn *c)
{
	int err = c->link.qp ? inlay_task_link_break(&c->link) : 0;

	/* Without receives and sends there would be nothing to flush, and no completion. */
	if (c->link.qp && !err && !c->marked)
		c->marked = inlay_task_link_mark_(&c->link);
	return err;
}

/* Ends the connection. Commands whose memory the device may still use go to `sending`. */
INLAY_COLD void inlay_task_conn_end_(struct inlay_task_conn *c)
{
	struct inlay_task_cmd *cmd;

	if (c->broken)
		return;
	c->broken = 1;
	while ((cmd = inlay_task_fifo_pop_(&c->waiting)) || (cmd = inlay_task_fifo_pop_(&c->answered)))
		if (cmd->pulled)
			inlay_task_fifo_push_(&c->sending, cmd);
		else
			inlay_task_cmd_spare_(cmd);
	if (c->connected)
		inlay_task_conn_tell_(c, INLAY_TASK_ENDED);
}

/* Hands a command to its handler. Returns 0 when it is stalled, otherwise 1. */
INLAY_ALWAYS uint32_t inlay_task_cmd_dispatch_(struct inlay_task_cmd *cmd)
{
	struct inlay_task_conn *c = cmd->conn;
	const struct inlay_task_entry *e = inlay_task_worker_plugin_(c->worker, cmd->ids.plugin);
	int err;

	if (INLAY_UNLIKELY(!e)) {
		inlay_task_cmd_finish_(cmd, INLAY_TASK_REFUSED, -ENOENT, 0);
		return 1;
	}
	cmd->state = &c->states[e - c->worker->plugins];
	cmd->response_len = 0;
	cmd->response_max = c->response_max;
	cmd->kept = 1;
	c->kept++;
	err = e->plugin->command(e->argument, cmd);
	/* If the handler has answered, its return value does not matter. */
	if (INLAY_UNLIKELY(!cmd->kept))
		return 1;
	if (INLAY_LIKELY(err <= 0)) {
		/* It claims a longer response than fits: the command still gets its answer. */
		if (INLAY_UNLIKELY(inlay_task_cmd_answer(cmd, err, cmd->response, cmd->response_len) == -E2BIG))
			inlay_task_cmd_answer_other_(cmd, -E2BIG, cmd->response, 0);
	} else if (err == INLAY_TASK_STALL) {
		inlay_task_cmd_taken_(cmd);
		return 0;
	}
	return 1;
}

/* Advances answers, reads and commands that wait. Returns how many handlers were called. */
INLAY_COLD uint32_t inlay_task_conn_tend_(struct inlay_task_conn *c)
{
	struct inlay_task_cmd *cmd, *next;
	uint32_t n = 0;

	while ((cmd = c->answered.first)) {
		next = cmd->next; /* before it enters another list */
		if (inlay_task_cmd_post_(cmd))
			break;
		c->answered.first = next;
	}
	for (cmd = c->waiting.first; cmd; cmd = cmd->next)
		if (cmd->payload_key.bytes && !cmd->pulled && c->worker->pull(cmd))
			break;
	for (; (cmd = c->waiting.first); n++) {
		if (cmd->payload_key.bytes && (!cmd->pulled || !inlay_task_link_done_(&c->link, cmd->posted)))
			break;
		/* Pop it first: an answer may enter another list. A stalled command goes back. */
		inlay_task_fifo_pop_(&c->waiting);
		if (!inlay_task_cmd_dispatch_(cmd)) {
			if (!c->waiting.first)
				c->waiting.last = cmd;
			cmd->next = c->waiting.first;
			c->waiting.first = cmd;
			break;
		}
	}
	return n;
}

/* Handles a message that is not a plain command, or has to wait for others. */
INLAY_COLD void inlay_task_conn_message_(struct inlay_task_cmd *cmd, const uint8_t *msg, uint32_t bytes)
{
	struct inlay_task_conn *c = cmd->conn;
	struct inlay_task_worker *w = c->worker;
	struct inlay_task_message m;
	int err = inlay_task_message_read_(&m, msg, bytes > c->message ? 0 : bytes);

	cmd->ids = m.ids;
	cmd->response_key.bytes = 0;
	if (err || m.kind != INLAY_TASK_COMMAND || c->broken) {
		inlay_task_cmd_finish_(cmd, INLAY_TASK_REFUSED, -EBADMSG, 0);
	} else if (m.payload.bytes && (!w->pull || m.length > w->pool->element_size)) {
		inlay_task_cmd_finish_(cmd, INLAY_TASK_REFUSED, -E2BIG, 0);
	} else {
		cmd->payload = msg + m.at;
		cmd->payload_len = m.length;
		cmd->payload_key = m.payload;
		cmd->response_key = m.response;
		inlay_task_fifo_push_(&c->waiting, cmd);
		inlay_task_conn_dirty_(c);
	}
}

/* Returns how many handlers were called. */
INLAY_ALWAYS uint32_t inlay_task_conn_take_(struct inlay_task_conn *c, uint32_t bytes)
{
	struct inlay_task_cmd *cmd = inlay_task_conn_next_(c);
	const uint8_t *msg;
	uint64_t first;

	if (INLAY_UNLIKELY(!cmd)) {
		c->strays++;
		return 0;
	}
	msg = cmd->response - c->message;
	first = inlay_task_get64_(msg);
	/* Trust only what the device has written: the head's length must match the device's count. */
	if (INLAY_UNLIKELY((first >> 32) + INLAY_TASK_HEAD != bytes) || INLAY_UNLIKELY(bytes > c->message) ||
	    INLAY_UNLIKELY((uint32_t)first != (INLAY_TASK_COMMAND << 8 | INLAY_TASK_VERSION)) ||
	    INLAY_UNLIKELY(c->waiting.first != NULL) || INLAY_UNLIKELY(c->broken)) {
		inlay_task_conn_message_(cmd, msg, bytes);
		return 0;
	}
	cmd->payload = msg + INLAY_TASK_HEAD;
	cmd->payload_len = (uint32_t)(first >> 32);
	__builtin_memcpy(&cmd->ids, msg + 8, sizeof(cmd->ids));
	cmd->payload_key.bytes = cmd->response_key.bytes = 0;
	if (INLAY_UNLIKELY(!inlay_task_cmd_dispatch_(cmd))) {
		inlay_task_fifo_push_(&c->waiting, cmd);
		inlay_task_conn_dirty_(c);
	}
	return 1;
}

/* Handles a completion of a send, an error or an unexpected one. Advances the CQ. */
INLAY_COLD void inlay_task_conn_other_(struct inlay_task_conn *c, const struct mlx5_cqe64 *cqe)
{
	struct inlay_task_cmd *cmd;
	int error = inlay_cqe_is_error(cqe);

	if (inlay_cqe_is_send(cqe)) {
		c->strays += inlay_sq_release(&c->link.sq, cqe) < 0;
	} else if ((cmd = inlay_task_conn_next_(c))) {
		if (error) {
			inlay_task_cmd_spare_(cmd);
		} else {
			/* With an immediate, with invalidate, or an RDMA write: no command, but it took a receive. */
			c->strays++;
			inlay_task_conn_message_(cmd, cmd->response, 0);
		}
	}
	inlay_cq_advance(&c->worker->cq, 1);
	if (error)
		inlay_task_conn_end_(c);
	if (c->broken && !c->marked)
		c->marked = inlay_task_link_mark_(&c->link);
	/* Commands whose answers were sent become spare. */
	while ((!c->broken || !inlay_sq_pending(&c->link.sq)) && (cmd = c->sending.first) &&
	       inlay_task_link_done_(&c->link, cmd->posted)) {
		inlay_task_fifo_pop_(&c->sending);
		inlay_task_cmd_spare_(cmd);
	}
	if (c->waiting.first || c->answered.first)
		inlay_task_conn_dirty_(c); /* for what has come back */
}

/* Rings for all posted answers and receives, at the end of progress. */
INLAY_FN void inlay_task_worker_flush_(struct inlay_task_worker *w)
{
	struct inlay_task_conn *c = w->dirty, *next;
	const struct inlay_task_cmd *cmd;

	w->dirty = NULL;
	for (; c; c = next) {
		next = c->next_dirty;
		c->dirty = 0;
		/* The receive first: an answer is the credit for it. */
		inlay_rq_ring(&c->link.rq);
		inlay_sq_ring(&c->link.sq);
		cmd = c->waiting.first;
		if (INLAY_UNLIKELY(c->answered.first != NULL) ||
		    (INLAY_UNLIKELY(cmd != NULL) && (!cmd->pulled || inlay_task_link_done_(&c->link, cmd->posted))))
			inlay_task_conn_dirty_(c); /* again in the next progress; a read dirties it when it is done */
	}
}

/*
 * Destroys a connection, broken or not. To its host it looks as if the worker had died. Calls the
 * plugins' `connection`, unless that was done when it broke.
 *
 * Returns 0: memory and *c are the caller's again; -EBUSY when a plugin's function calls it, while
 * handlers keep its commands, or when a verbs object is in use: call it again.
 */
INLAY_COLD int inlay_task_conn_destroy(struct inlay_task_conn *c)
{
	struct inlay_task_worker *w = c->worker;
	uint32_t i, qpn = inlay_sq_qpn(&c->link.sq);
	struct inlay_task_cmd *cmd;

	if (w->inside)
		return -EBUSY;
	inlay_task_conn_break_(c);
	inlay_task_conn_end_(c);
	if (c->kept)
		return -EBUSY;
	inlay_task_worker_flush_(w); /* w->dirty must not point to c later */
	if (inlay_task_link_destroy(&c->link))
		return -EBUSY;
	/* The QPN may be reused from now on. */
	if (qpn)
		inlay_cq_clean(&w->cq, qpn, NULL, NULL);
	__builtin_memset(&c->link.sq, 0, sizeof(c->link.sq));
	while ((cmd = inlay_task_fifo_pop_(&c->sending)))
		inlay_task_cmd_spare_(cmd);
	if (c->mr && ibv_dereg_mr(c->mr))
		return -EBUSY;
	c->mr = NULL;
	for (i = 0; i < w->num_conns; i++)
		if (w->conns[i] == c) {
			w->conns[i] = w->conns[--w->num_conns];
			inlay_task_worker_name_(w);
			break;
		}
	return 0;
}

#endif
