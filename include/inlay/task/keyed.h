/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/keyed.h: payloads and responses by key, for those that do not fit a message. The
 * worker reads a payload, and writes a response, through memory windows that the host opens for one
 * command. Included by name.
 *
 *   the host                                             the worker
 *
 *   inlay_task_keys_create(&keys, task, &why);           inlay_task_worker_pull(&worker, pool);
 *   inlay_task_set_payload(task, large);                 ... inlay_task_conn_create ...
 *   inlay_task_set_response(task, larger);
 *   inlay_task_submit(task, INLAY_RING);                 handler: cmd->payload, cmd->pulled
 *                                                        inlay_task_cmd_answer_buf(cmd, 0, buf);
 *
 * Payload. A single buffer of a task with keys that does not fit a message goes by key: the worker
 * reads it to an element of its pool before it calls the handler. Response. A buffer that is larger
 * than an answer's space may be written to by the worker before it answers. The maps of both must
 * permit INLAY_MW_BIND.
 *
 * Windows are opened at submit and closed before the task completes. A task that completes without
 * an answer stays in quarantine until its late answer, or until inlay_task_revoke has closed its
 * windows; a worker that uses them afterwards breaks the connection. After the connection's end it
 * lasts until the device has returned everything.
 *
 * Each connection has an equal share of the pool. Payloads are read in the order of the commands;
 * the next one waits for a free element. A payload that exceeds an element is refused with -E2BIG.
 *
 * Threads: as task/task.h and task/worker.h.
 * Sources: the InfiniBand specification on type 2 memory windows.
 */
#ifndef INLAY_TASK_KEYED_H
#define INLAY_TASK_KEYED_H

#include <inlay/queue/umr.h>
#include <inlay/task/host.h>
#include <inlay/task/worker.h>

/* ---- The host ---- */

/* Opens a window over len bytes of a buffer: posts the bind. The ring has room. */
INLAY_COLD void inlay_task_keys_bind_(struct inlay_task *t, uint32_t what, const struct inlay_buf *buf, uint32_t len,
				      uint8_t **key)
{
	struct inlay_sq *sq = &t->host->link.sq;
	struct ibv_sge memory = inlay_buf_sge(buf);
	uint32_t now = t->keys->rkey[what], access = what ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
	struct inlay_umr umr;

	memory.length = len;
	t->keys->rkey[what] = (now & ~0xffu) | ((now + 1) & 0xff);
	inlay_umr_window(inlay_sq_qpn(sq), t->keys->rkey[what], &memory, access | IBV_ACCESS_ZERO_BASED, &umr);
	inlay_had_room_(inlay_post_umr(sq, now, &umr, 0));
	inlay_task_key_write_(key, t->keys->rkey[what], len);
}

/* Whether a window may be bound to a buffer: otherwise the bind would break the connection. */
INLAY_COLD int inlay_task_keys_bindable_(const struct inlay_buf *buf)
{
	const struct inlay_range *r = inlay_mmap_find(inlay_buf_mmap(buf), inlay_buf_head(buf), inlay_buf_len(buf));

	return inlay_buf_keys(buf).lkey != INLAY_NO_KEY && r && r->access & INLAY_MW_BIND;
}

/* Posts the binds, 3 WQEBBs each; bbs: of the command that follows them. */
INLAY_COLD int inlay_task_keys_open_(struct inlay_task *t, uint32_t flags, uint32_t payload, uint32_t response,
				     uint32_t bbs, uint8_t *key)
{
	const struct inlay_buf *buf = t->payload;

	while (flags & INLAY_TASK_PAYLOAD_KEY && !inlay_buf_data_len(buf)) /* one of a list has all of it */
		buf = inlay_buf_next(buf);
	if ((flags & INLAY_TASK_PAYLOAD_KEY && !inlay_task_keys_bindable_(buf)) ||
	    (flags & INLAY_TASK_RESPONSE_KEY && !inlay_task_keys_bindable_(t->response)))
		return -EPERM;
	if (inlay_sq_room(&t->host->link.sq) < 3 * ((flags & 1) + (flags >> 1)) + bbs)
		return -EAGAIN;
	if (flags & INLAY_TASK_PAYLOAD_KEY)
		inlay_task_keys_bind_(t, 0, buf, payload, &key);
	if (flags & INLAY_TASK_RESPONSE_KEY)
		inlay_task_keys_bind_(t, 1, t->response, response, &key);
	return 0;
}

/* Posts signaled invalidations of the open windows, two WQEBBs each, if there is room for all. */
INLAY_COLD void inlay_task_keys_close_(struct inlay_task *t)
{
	struct inlay_sq *sq = &t->host->link.sq;
	uint32_t i;

	if (inlay_sq_room(sq) < 4)
		return;
	for (i = 0; i < 2; i++)
		if (t->held & 1u << i)
			inlay_had_room_(inlay_post_local_inv(sq, t->keys->rkey[i], INLAY_SIGNALED));
	inlay_sq_ring(sq);
	t->end = inlay_sq_index(sq);
	t->held = INLAY_TASK_HELD_SEND;
}

/* Frees the windows. Returns 0; -EBUSY unless their task is idle or free, or its host destroyed. */
INLAY_COLD int inlay_task_keys_destroy(struct inlay_task_keys *k)
{
	uint32_t i;

	if (k->task->held && k->task->host->link.qp)
		return -EBUSY;
	for (i = 0; i < 2; i++) {
		if (k->mw[i] && ibv_dealloc_mw(k->mw[i]))
			return -EBUSY;
		k->mw[i] = NULL;
	}
	k->task->keys = NULL;
	return 0;
}

/*
 * Lets a task send its payload and get its response by key. It keeps its keys, released or not,
 * until they are destroyed, before the host's memory is. Returns 0; -EBUSY when it has keys or is
 * submitted; or the negative errno of ibv_alloc_mw, and *why says so.
 */
INLAY_COLD int inlay_task_keys_create(struct inlay_task_keys *k, struct inlay_task *t, const char **why)
{
	uint32_t i;

	if (t->keys || t->state > INLAY_TASK_IDLE)
		return inlay_refuse_(-EBUSY, why, "the task has keys, or is submitted");
	__builtin_memset(k, 0, sizeof(*k));
	k->task = t;
	k->open = inlay_task_keys_open_;
	k->close = inlay_task_keys_close_;
	for (i = 0; i < 2; i++) {
		errno = 0;
		k->mw[i] = ibv_alloc_mw(t->host->pd, IBV_MW_TYPE_2);
		if (!k->mw[i]) {
			int err = inlay_task_errno_(why, "ibv_alloc_mw failed");

			inlay_task_keys_destroy(k);
			return err;
		}
		k->rkey[i] = k->mw[i]->rkey;
	}
	t->keys = k;
	return 0;
}

/* Closes the windows of a task in quarantine, in a later progress. Returns 0 or -EBADFD. */
INLAY_COLD int inlay_task_revoke(struct inlay_task *t)
{
	if (t->state != INLAY_TASK_QUARANTINE)
		return -EBADFD;
	if (t->held & INLAY_TASK_HELD_KEYS)
		t->held |= INLAY_TASK_HELD_CLOSE;
	return 0;
}

/* ---- The worker ---- */

INLAY_COLD int inlay_task_cmd_pull_(struct inlay_task_cmd *cmd)
{
	struct inlay_task_conn *c = cmd->conn;
	struct ibv_sge sge;

	if (c->pulls == c->worker->share || !inlay_sq_room(&c->link.sq) ||
	    inlay_pool_alloc(c->worker->pool, &cmd->pulled)) {
		cmd->pulled = NULL;
		return -EAGAIN;
	}
	c->pulls++;
	/* The length was checked. If it did not fit, the command would stall, and never run on another payload. */
	if (INLAY_UNLIKELY(inlay_buf_set_data(cmd->pulled, inlay_buf_head(cmd->pulled), cmd->payload_key.bytes))) {
		inlay_task_cmd_drop_(cmd);
		return -EINVAL;
	}
	sge = inlay_buf_sge(cmd->pulled);
	inlay_had_room_(inlay_post_read(&c->link.sq, 0, cmd->payload_key.rkey, &sge, 1, INLAY_SIGNALED));
	cmd->posted = inlay_sq_index(&c->link.sq);
	cmd->payload = cmd->pulled->data;
	return 0;
}

/*
 * Lets a worker read payloads by key, to a started pool of its PD that has an element per
 * connection at least. Before the first inlay_task_conn_create. Returns 0; -EINVAL for a smaller
 * pool; -EBUSY when the worker has connections.
 */
INLAY_COLD int inlay_task_worker_pull(struct inlay_task_worker *w, struct inlay_pool *pool)
{
	uint32_t share = pool->num / w->params.connections;

	if (!share)
		return -EINVAL;
	if (w->num_conns)
		return -EBUSY;
	w->pool = pool;
	w->share = share;
	w->pull = inlay_task_cmd_pull_;
	return 0;
}

#endif
