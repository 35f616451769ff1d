/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/worker.h: a worker, which executes the commands of many hosts by plugins, and its
 * connection to each host.
 *
 *   static const struct inlay_task_entry plugins[] = {{COUNTER, &counter, NULL}};
 *   p = inlay_task_worker_default();
 *   p.plugins = plugins;
 *   p.num_plugins = 1;
 *   inlay_task_worker_create(&worker, pd, &p, &why);
 *   ... for each host, with its host.link.self ...
 *   inlay_task_conn_create(&conn, memory, inlay_task_conn_size(&p), &worker, theirs, len, &why);
 *   ... send INLAY_TASK_ADDRESS bytes at &conn.link.self back to it ...
 *   for (;;) {
 *           inlay_task_worker_progress(&worker, 64);
 *           if (conn.broken)                             its host died or misbehaved
 *                   inlay_task_conn_destroy(&conn);
 *   }
 *
 * Connections share the worker's CQ and doorbell register. Each breaks alone: when its host dies,
 * when a key is invalid, or when the host has no receive for an answer. Each has its own
 * params.credits receives, so a host that floods cannot use up another's.
 *
 *   receive --> [waiting: others before it, its payload] --> handler --> [kept]
 *           --> answer --> [answered: no room in the ring] --> [sending] --> spare
 *
 * Payloads by key are read to elements of params.pool, in the order of the commands; each
 * connection has an equal share of the pool, and waits for a free element.
 */
#ifndef INLAY_TASK_WORKER_H
#define INLAY_TASK_WORKER_H /* a trial: names may change */

#include <inlay/cqe.h>
#include <inlay/task/cmd.h>

/* ---- Set-up: a worker ---- */

INLAY_COLD int inlay_task_worker_valid_(const struct inlay_task_worker_params *p)
{
	return p && p->connections && p->connections <= INLAY_TASK_CONNECTIONS &&
	       p->num_plugins <= INLAY_TASK_PLUGINS && (p->plugins || !p->num_plugins) &&
	       inlay_is_pow2(p->credits) && p->credits <= INLAY_TASK_RECEIVES_MAX && p->spare &&
	       p->spare <= INLAY_TASK_RECEIVES_MAX && p->message >= INLAY_TASK_MESSAGE_MIN &&
	       p->message <= INLAY_TASK_MESSAGE_MAX && p->response >= INLAY_TASK_MESSAGE_MIN - INLAY_TASK_HEAD &&
	       p->response <= INLAY_TASK_MESSAGE_MAX && p->max_inline <= 512 && p->max_inline <= p->response &&
	       (!p->pool || p->pool->num >= p->connections);
}

/* No plugins, 16 connections of 32 credits, messages of 4096 bytes, 96 inline. */
INLAY_COLD struct inlay_task_worker_params inlay_task_worker_default(void)
{
	struct inlay_task_worker_params p;

	__builtin_memset(&p, 0, sizeof(p));
	p.path = inlay_connect_defaults();
	p.path.retry_count = 4; /* fails after 1.4 s without ACKs, */
	p.path.rnr_retry = 6;   /* or 4 ms of RNR NAKs */
	p.connections = 16;
	p.credits = 32;
	p.spare = 32;
	p.message = 4096;
	p.response = 4096 - INLAY_TASK_HEAD;
	p.max_inline = 96;
	return p;
}

INLAY_ALWAYS const struct inlay_task_entry *inlay_task_worker_plugin_(const struct inlay_task_worker *w, uint64_t id)
{
	const struct inlay_task_entry *e;

	for (e = w->plugins; e != w->plugins + w->num_plugins; e++)
		if (e->id == id)
			return e;
	return NULL;
}

/* Opens the plugins of a worker, which is zero but for its verbs objects. */
INLAY_COLD int inlay_task_worker_init_(struct inlay_task_worker *w, const struct inlay_task_worker_params *p, const char **why)
{
	const struct inlay_task_entry *e;
	struct inlay_task_entry *own;
	int err;

	w->params = *p;
	w->share = p->pool ? p->pool->num / p->connections : 0;
	for (e = p->plugins; w->num_plugins < p->num_plugins; e++, w->num_plugins++) {
		if (!e->plugin || e->plugin->version != INLAY_TASK_VERSION)
			return inlay_refuse_(-EPROTO, why, "a plugin is of another version");
		if (!e->plugin->command)
			return inlay_refuse_(-EINVAL, why, "a plugin has no handler");
		if (inlay_task_worker_plugin_(w, e->id))
			return inlay_refuse_(-EEXIST, why, "two plugins have one id");
		own = &w->plugins[w->num_plugins];
		*own = *e;
		err = e->plugin->open ? e->plugin->open(e->argument, w, &own->argument) : 0;
		if (err)
			return inlay_refuse_(err, why, "a plugin cannot be opened");
	}
	return 0;
}

/*
 * Closes the plugins and frees all that inlay_task_worker_create made. Returns 0; -EBUSY while the
 * worker has connections, or a verbs object is in use: call it again.
 */
INLAY_COLD int inlay_task_worker_destroy(struct inlay_task_worker *w)
{
	const struct inlay_task_entry *e;

	if (w->num_conns)
		return -EBUSY;
	while (w->num_plugins) {
		e = &w->plugins[--w->num_plugins];
		if (e->plugin->close)
			e->plugin->close(e->argument);
	}
	if (w->uar.td && inlay_uar_destroy(&w->uar, NULL))
		return -EBUSY;
	return inlay_task_cq_free_(&w->ibcq);
}

/*
 * Makes a worker, its CQ and doorbell register, and opens its plugins in order.
 *
 * Returns 0; -EINVAL for NULL, a wrong alignment, a parameter out of range or a plugin without
 * handler; -EPROTO for a plugin of another version; -EEXIST for two with one id; the error of
 * `open`; else an error of inlay_cq_from_cq or inlay_uar_create, or the negative errno of
 * ibv_create_cq, also for more connections than the device's longest CQ can serve.
 */
INLAY_COLD int inlay_task_worker_create(struct inlay_task_worker *w, struct ibv_pd *pd,
					const struct inlay_task_worker_params *p, const char **why)
{
	int err;

	if (!w || (uintptr_t)w % INLAY_CACHE_LINE || !pd || !inlay_task_worker_valid_(p))
		return inlay_refuse_(-EINVAL, why, "a worker's argument or parameter is out of its range");
	__builtin_memset(w, 0, sizeof(*w));
	w->pd = pd;
	err = inlay_task_cq_make_(&w->cq, &w->ibcq, p->channel, pd,
				  (uint64_t)p->connections * (INLAY_TASK_CQES_ * (p->credits + 8) + p->credits), why);
	if (!err) {
		err = inlay_uar_create(&w->uar, pd, INLAY_UAR_SERIAL, why);
		if (!err || err == -ENOTSUP) /* then each QP uses its own register */
			err = inlay_task_worker_init_(w, p, why);
	}
	if (err)
		inlay_task_worker_destroy(w);
	return err;
}

/* ---- Set-up: a connection ---- */

/* The table entry of the connection with this QPN; the entry holds NULL if no connection has it. */
INLAY_ALWAYS struct inlay_task_conn **inlay_task_worker_conn_(struct inlay_task_worker *w, uint32_t qpn)
{
	struct inlay_task_conn **at = &w->conns[qpn % (INLAY_TASK_CONNECTIONS / 4)];

	while (*at && INLAY_UNLIKELY(inlay_sq_qpn(&(*at)->link.sq) != qpn))
		at = &(*at)->next;
	return at;
}

/* Lays a connection out from `at` on: messages, then the rest; all is registered. Returns the end. */
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

/* Tells the plugins that the connection has come or ended. */
INLAY_COLD void inlay_task_conn_tell_(struct inlay_task_conn *c, int up)
{
	const struct inlay_task_worker *w = c->worker;
	uint32_t i;

	for (i = 0; i < w->num_plugins; i++)
		if (w->plugins[i].plugin->connection)
			w->plugins[i].plugin->connection(w->plugins[i].argument, c, &c->states[i], up);
}

/* Makes all of a connection but verbs objects. c->link's queues and peer are set, the rest is zero. */
INLAY_COLD void inlay_task_conn_init_(struct inlay_task_conn *c, void *memory, struct inlay_task_worker *w,
				      uint32_t lkey)
{
	const struct inlay_task_worker_params *p = &w->params;
	struct ibv_sge sge = {(uintptr_t)memory, 0, lkey};
	uintptr_t end = inlay_task_conn_place_(c, p, (uintptr_t)memory);
	uint32_t i;

	c->worker = w;
	c->answer_max = c->link.peer.message - INLAY_TASK_HEAD;
	c->response_max = c->answer_max < p->response ? c->answer_max : p->response;
	c->max_inline = p->max_inline < c->response_max ? p->max_inline : c->response_max;
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
	*inlay_task_worker_conn_(w, inlay_sq_qpn(&c->link.sq)) = c;
	w->num_conns++;
	inlay_task_conn_tell_(c, 1);
}

/*
 * Makes a connection to a host, by its address, and tells the plugins.
 *
 * size       bytes of memory, at least inlay_task_conn_size(&worker->params)
 * blob, len  the host's address
 *
 * Returns 0; -EINVAL for NULL or a wrong alignment; -ENOBUFS if size is too small; -EAGAIN when the
 * worker has params.connections; an error of inlay_task_link_create or inlay_task_link_connect;
 * else the negative errno of ibv_reg_mr.
 */
INLAY_COLD int inlay_task_conn_create(struct inlay_task_conn *c, void *memory, size_t size, struct inlay_task_worker *w,
				      const void *blob, size_t len, const char **why)
{
	const struct inlay_task_worker_params *p = w ? &w->params : NULL;
	struct inlay_task_caps caps;
	int err;

	if (!c || (uintptr_t)c % INLAY_CACHE_LINE || !memory || (uintptr_t)memory % INLAY_CACHE_LINE || !p)
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
	caps.sends = p->credits + 8; /* half the longest answer on average, and 8 to spare */
	caps.max_inline = INLAY_TASK_HEAD + p->max_inline;
	caps.max_gather = INLAY_TASK_GATHER;
	caps.access = IBV_ACCESS_REMOTE_WRITE; /* for the host's probes; no region grants it */
	c->link.self.role = INLAY_TASK_WORKER;
	c->link.self.message = p->message;
	c->link.self.receives = p->credits;
	c->link.self.largest = p->pool ? p->pool->element_size : 0;
	err = inlay_task_link_create(&c->link, &caps, &p->path, why);
	if (!err)
		err = inlay_task_link_connect(&c->link, blob, len, INLAY_TASK_HOST, why);
	if (!err) {
		errno = 0;
		c->mr = ibv_reg_mr(w->pd, memory, inlay_task_conn_size(p), (unsigned)IBV_ACCESS_LOCAL_WRITE);
		if (!c->mr)
			err = inlay_task_errno_(why, "the connection's memory cannot be registered");
	}
	if (err) {
		inlay_task_link_destroy(&c->link);
		return err;
	}
	inlay_task_conn_init_(c, memory, w, c->mr->lkey);
	return 0;
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
	inlay_task_conn_tell_(c, 0);
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
 * Destroys a connection, broken or not, and tells the plugins unless that was done when it broke.
 * To its host it looks as if the worker had died. Returns 0: memory and *c are the caller's again;
 * -EBUSY while handlers keep its commands, or when a verbs object is in use: call it again.
 */
INLAY_COLD int inlay_task_conn_destroy(struct inlay_task_conn *c)
{
	struct inlay_task_worker *w = c->worker;
	uint32_t qpn = inlay_sq_qpn(&c->link.sq);
	struct inlay_task_cmd *cmd;

	if (c->link.qp)
		inlay_task_link_break(&c->link);
	inlay_task_conn_end_(c);
	if (c->kept)
		return -EBUSY;
	inlay_task_worker_flush_(w); /* w->dirty must not point to c later */
	if (inlay_task_link_destroy(&c->link))
		return -EBUSY;
	if (qpn) { /* which may be reused from now on */
		inlay_cq_clean(&w->cq, qpn, NULL, NULL);
		*inlay_task_worker_conn_(w, qpn) = c->next;
		__builtin_memset(&c->link.sq, 0, sizeof(c->link.sq));
		w->num_conns--;
	}
	while ((cmd = inlay_task_fifo_pop_(&c->sending)))
		inlay_task_cmd_spare_(cmd);
	if (c->mr && ibv_dereg_mr(c->mr))
		return -EBUSY;
	c->mr = NULL;
	return 0;
}

/* ---- Data path ---- */

/* The command whose receive completed; NULL if none is posted (a faulty device). */
INLAY_ALWAYS struct inlay_task_cmd *inlay_task_conn_next_(struct inlay_task_conn *c)
{
	return INLAY_LIKELY(c->taken != inlay_rq_index(&c->link.rq)) ? c->ring[c->taken++ & c->mask] : NULL;
}

/* Posts the read of a payload by key. Returns 0 or -EAGAIN. */
INLAY_COLD int inlay_task_cmd_pull_(struct inlay_task_cmd *cmd)
{
	struct inlay_task_conn *c = cmd->conn;
	struct ibv_sge sge;

	if (c->pulls == c->worker->share || !inlay_sq_room(&c->link.sq) ||
	    inlay_pool_alloc(c->worker->params.pool, &cmd->pulled))
		return -EAGAIN;
	c->pulls++;
	(void)inlay_buf_set_data(cmd->pulled, inlay_buf_head(cmd->pulled), cmd->payload_key.bytes); /* fits: was checked */
	sge = inlay_buf_sge(cmd->pulled);
	inlay_had_room_(inlay_post_read(&c->link.sq, 0, cmd->payload_key.rkey, &sge, 1, INLAY_SIGNALED));
	cmd->posted = inlay_sq_index(&c->link.sq);
	cmd->payload = (const uint8_t *)inlay_buf_data(cmd->pulled);
	return 0;
}

/* Hands a command to its handler. Returns 0 when it is stalled, otherwise 1. */
INLAY_FN uint32_t inlay_task_cmd_dispatch_(struct inlay_task_cmd *cmd)
{
	struct inlay_task_conn *c = cmd->conn;
	const struct inlay_task_entry *e = inlay_task_worker_plugin_(c->worker, cmd->ids.plugin);
	int err, fits;

	if (INLAY_UNLIKELY(!e)) {
		inlay_task_cmd_finish_(cmd, -ENOENT, 0);
		return 1;
	}
	cmd->state = &c->states[e - c->worker->plugins];
	cmd->response_len = 0;
	cmd->response_max = c->response_max;
	cmd->kept = 1;
	c->kept++;
	err = e->plugin->command(e->argument, cmd);
	/* If the handler has answered, its return value does not matter. */
	if (cmd->kept && err == INLAY_TASK_STALL) {
		cmd->kept = 0;
		c->kept--;
		return 0;
	}
	fits = cmd->response_len <= c->response_max;
	if (cmd->kept && err <= 0)
		inlay_task_cmd_answer(cmd, fits ? err : -E2BIG, cmd->response, fits ? cmd->response_len : 0);
	return 1;
}

/* Advances answers, reads and commands that wait. Returns how many commands it dispatched. */
INLAY_COLD uint32_t inlay_task_conn_tend_(struct inlay_task_conn *c)
{
	struct inlay_task_cmd *cmd, *next;
	uint32_t n;

	while ((cmd = c->answered.first)) {
		next = cmd->next; /* before it enters another list */
		if (inlay_task_cmd_post_(cmd))
			break;
		c->answered.first = next;
	}
	for (cmd = c->waiting.first; cmd; cmd = cmd->next)
		if (cmd->payload_key.bytes && !cmd->pulled && inlay_task_cmd_pull_(cmd))
			break;
	for (n = 0; (cmd = c->waiting.first); n++) {
		next = cmd->next;
		if ((cmd->payload_key.bytes && (!cmd->pulled || !inlay_task_link_done_(&c->link, cmd->posted))) ||
		    !inlay_task_cmd_dispatch_(cmd))
			break;
		c->waiting.first = next;
	}
	return n;
}

/* Takes a message of so many bytes; 0: one that is no command. Returns how many it dispatched. */
INLAY_FN uint32_t inlay_task_conn_take_(struct inlay_task_conn *c, uint32_t bytes)
{
	const struct inlay_pool *pool = c->worker->params.pool;
	struct inlay_task_cmd *cmd = inlay_task_conn_next_(c);
	struct inlay_task_message m;
	const uint8_t *msg;

	if (INLAY_UNLIKELY(!cmd)) {
		c->strays++;
		return 0;
	}
	msg = cmd->response - c->message;
	/* Trust only what the device has written. */
	if (inlay_task_message_read_(&m, msg, bytes > c->message ? 0 : bytes) || m.kind != INLAY_TASK_COMMAND)
		m.kind = 0;
	cmd->ids = m.ids;
	cmd->payload = msg + m.at;
	cmd->payload_len = m.length;
	cmd->payload_key = m.payload;
	cmd->response_key = m.response;
	if (INLAY_UNLIKELY(!m.kind) || INLAY_UNLIKELY(c->broken)) {
		inlay_task_cmd_finish_(cmd, -EBADMSG, 0);
	} else if (m.payload.bytes && (!pool || m.length > pool->element_size)) {
		inlay_task_cmd_finish_(cmd, -E2BIG, 0);
	} else if (m.payload.bytes || c->waiting.first || !inlay_task_cmd_dispatch_(cmd)) {
		inlay_task_fifo_push_(&c->waiting, cmd);
		inlay_task_conn_dirty_(c);
	} else {
		return 1;
	}
	return 0;
}

/* Handles a completion of a send, an error or an unexpected one. Advances the CQ. */
INLAY_COLD void inlay_task_conn_other_(struct inlay_task_conn *c, const struct mlx5_cqe64 *cqe)
{
	int error = inlay_cqe_is_error(cqe);
	struct inlay_task_cmd *cmd;

	if (inlay_cqe_is_send(cqe)) {
		c->strays += inlay_sq_release(&c->link.sq, cqe) < 0;
	} else if (!error) {
		/* With an immediate, with invalidate, or an RDMA write: no command, but it took a receive. */
		c->strays++;
		inlay_task_conn_take_(c, 0);
	} else if ((cmd = inlay_task_conn_next_(c))) {
		inlay_task_cmd_spare_(cmd);
	}
	inlay_cq_advance(&c->worker->cq, 1);
	if (error)
		inlay_task_conn_end_(c);
	if (c->broken)
		inlay_task_link_drain_(&c->link);
	/* Commands whose answers were sent become spare. */
	while ((!c->broken || !inlay_sq_pending(&c->link.sq)) && (cmd = c->sending.first) &&
	       inlay_task_link_done_(&c->link, cmd->posted)) {
		inlay_task_fifo_pop_(&c->sending);
		inlay_task_cmd_spare_(cmd);
	}
	if (c->waiting.first || c->answered.first)
		inlay_task_conn_dirty_(c); /* for what has come back */
}

INLAY_CALLS_COLD_
/*
 * Handles at most max completions: hands commands to their plugins, and sends answers; commands
 * that have waited come on top. Calls the plugins' `progress`. Returns how many commands were
 * dispatched, plus what these returned.
 */
INLAY_FN uint32_t inlay_task_worker_progress(struct inlay_task_worker *w, uint32_t max)
{
	const struct mlx5_cqe64 *cqe;
	struct inlay_task_conn *c;
	uint32_t done = 0, i, bytes;

	for (; max && (cqe = inlay_cq_peek(&w->cq)); max--) {
		c = *inlay_task_worker_conn_(w, inlay_cqe_qpn(cqe));
		if (INLAY_UNLIKELY(!c)) {
			w->strays++;
			inlay_cq_advance(&w->cq, 1);
		} else if (INLAY_LIKELY(cqe->op_own >> 2 == MLX5_CQE_RESP_SEND << 2)) {
			bytes = inlay_cqe_byte_count(cqe);
			inlay_cq_advance(&w->cq, 1);
			done += inlay_task_conn_take_(c, bytes);
		} else {
			inlay_task_conn_other_(c, cqe);
		}
	}
	for (i = 0; i < w->num_plugins; i++)
		if (w->plugins[i].plugin->progress)
			done += w->plugins[i].plugin->progress(w->plugins[i].argument);
	for (c = w->dirty; c; c = c->next_dirty)
		if (INLAY_UNLIKELY(c->answered.first != NULL) || INLAY_UNLIKELY(c->waiting.first != NULL))
			done += inlay_task_conn_tend_(c);
	inlay_task_worker_flush_(w);
	return done;
}

#endif
