/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/serve.h: a worker's progress: commands received, handed out, answered. The manual is worker.h's.
 *
 *   receive --> [waiting: behind others, for its payload] --> handler --> [kept]
 *           --> answer --> [answered: waits for room] --> [sending] --> spare
 *
 * An answer, when the response is small
 *
 *   +0   ctrl     SEND, index, QPN, DS
 *   +16  inline   byte count | head of 32 bytes | response ...
 *
 * Its command's receive is posted again at once. A larger response is gathered from the command's own memory, or from a caller's buffer;
 * then a spare command gets the receive, and the one that was answered becomes spare when its send is done.
 *
 * Threads: as worker.h.
 * Sources: as worker.h.
 */
#ifndef INLAY_TASK_SERVE_H
#define INLAY_TASK_SERVE_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/buf.h>
#include <inlay/cqe.h>
#include <inlay/queue.h>
#include <inlay/task/conn.h>
#include <inlay/task/wire.h>
#include <inlay/task/worker.h>

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: lists
 */

INLAY_ALWAYS uint32_t inlay_task_cmd_index(const struct inlay_task_cmd *cmd)
{
	return (uint32_t)(cmd - cmd->conn->cmds);
}

INLAY_FN void inlay_task_fifo_push(struct inlay_task_conn *c, struct inlay_task_fifo *f, struct inlay_task_cmd *cmd)
{
	uint32_t i = inlay_task_cmd_index(cmd);

	cmd->next = INLAY_TASK_NOBODY;
	if (f->first == INLAY_TASK_NOBODY)
		f->first = i;
	else
		c->cmds[f->last].next = i;
	f->last = i;
}

/* The first one, or NULL; and away with it. */
INLAY_FN struct inlay_task_cmd *inlay_task_fifo_first(const struct inlay_task_conn *c, const struct inlay_task_fifo *f)
{
	return f->first == INLAY_TASK_NOBODY ? NULL : &c->cmds[f->first];
}

INLAY_FN void inlay_task_fifo_pop(struct inlay_task_conn *c, struct inlay_task_fifo *f)
{
	f->first = c->cmds[f->first].next;
}

/* The connection is to be rung for. */
INLAY_ALWAYS void inlay_task_conn_dirty(struct inlay_task_conn *c)
{
	if (!c->dirty) {
		c->dirty = 1;
		c->next_dirty = c->worker->dirty;
		c->worker->dirty = c;
	}
}

/* There is something to be done for the connection in the next progress. */
INLAY_FN void inlay_task_conn_tend_soon(struct inlay_task_conn *c)
{
	if (!c->tended) {
		c->tended = 1;
		c->next_tended = c->worker->tended;
		c->worker->tended = c;
	}
	c->worker->due = 0;
}

/* Where a command comes to. */
INLAY_ALWAYS uint8_t *inlay_task_cmd_message(const struct inlay_task_cmd *cmd)
{
	return cmd->response - cmd->conn->message;
}

/* Posts the next receive with a command's memory. Rung for with the answers. */
INLAY_ALWAYS void inlay_task_conn_receive(struct inlay_task_conn *c, struct inlay_task_cmd *cmd)
{
	/* No more are posted than there are credits: the place that was taken longest ago is free. */
	c->ring[inlay_rq_index(&c->link.rq) & c->mask] = cmd;
	inlay_rq_recycle(&c->link.rq, (uintptr_t)inlay_task_cmd_message(cmd));
}

/* The command of the receive that has completed; NULL when none is posted (a device gone mad). */
INLAY_ALWAYS struct inlay_task_cmd *inlay_task_conn_next(struct inlay_task_conn *c)
{
	return INLAY_LIKELY(c->taken != inlay_rq_index(&c->link.rq)) ? c->ring[c->taken++ & c->mask] : NULL;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: answers
 */

/* Buffers that a command has held. */
INLAY_FN void inlay_task_cmd_drop(struct inlay_task_cmd *cmd)
{
	if (cmd->pulled) {
		inlay_buf_dec_refcount(cmd->pulled, NULL);
		cmd->conn->pulls--;
	}
	if (cmd->answer)
		inlay_buf_dec_refcount(cmd->answer, NULL);
	cmd->pulled = cmd->answer = NULL;
}

/* A command that is nobody's any more and has no receive. */
INLAY_FN void inlay_task_cmd_spare(struct inlay_task_cmd *cmd)
{
	struct inlay_task_conn *c = cmd->conn;

	inlay_task_cmd_drop(cmd);
	cmd->state = INLAY_TASK_CMD_FREE;
	cmd->next = c->spare;
	c->spare = inlay_task_cmd_index(cmd);
}

/* The WQE of an inline answer that has room in one WQEBB: -EAGAIN when there is no room in the ring. */
INLAY_ALWAYS int inlay_task_cmd_post_short(struct inlay_task_cmd *cmd, uint32_t kind, int status, const void *data, uint32_t len)
{
	struct inlay_task_conn *c = cmd->conn;
	struct inlay_cursor at;

	if (INLAY_UNLIKELY(inlay_sq_begin(&c->link.sq, 1, &at)))
		return -EAGAIN;
	/* Nothing: it keeps compilers from reckoning with copies that a length which they know does not make. */
	__asm__("" : "+r"(data));
	inlay_put32(at.wqe + INLAY_DS, inlay_to_be32((INLAY_TASK_HEAD + len) | (uint32_t)MLX5_INLINE_SEG));
	inlay_task_head_write(at.wqe + INLAY_DS + 4, inlay_task_first(kind, inlay_task_status_wire(status), len), cmd->context, cmd->plugin,
			      cmd->destination);
	inlay_copy(at.wqe + INLAY_TASK_AT, data, len);
	at.ds = INLAY_WQEBB / INLAY_DS;
	inlay_sq_commit(&c->link.sq, at, MLX5_OPCODE_SEND, 0, inlay_task_signal(at.index, 1, c->quarter), 0);
	return 0;
}

/* The same of any length. */
INLAY_FN int inlay_task_cmd_post_inline(struct inlay_task_cmd *cmd, uint32_t kind, int status, const void *data, uint32_t len)
{
	struct inlay_task_conn *c = cmd->conn;
	struct inlay_cursor at;

	if (INLAY_UNLIKELY(inlay_sq_begin(&c->link.sq, (INLAY_TASK_AT + len + INLAY_WQEBB - 1) / INLAY_WQEBB, &at)))
		return -EAGAIN;
	__asm__("" : "+r"(data));
	inlay_put32(at.wqe + INLAY_DS, inlay_to_be32((INLAY_TASK_HEAD + len) | (uint32_t)MLX5_INLINE_SEG));
	inlay_task_head_write(at.wqe + INLAY_DS + 4, inlay_task_first(kind, inlay_task_status_wire(status), len), cmd->context, cmd->plugin,
			      cmd->destination);
	inlay_copy_wrap_(at, at.wqe + INLAY_TASK_AT, data, len);
	at.ds = (INLAY_TASK_AT + len + INLAY_DS - 1) / INLAY_DS;
	inlay_sq_commit(&c->link.sq, at, MLX5_OPCODE_SEND, 0, inlay_task_signal(at.index, (uint32_t)(at.ds + 3) / 4, c->quarter), 0);
	return 0;
}

/*
 * Posts the answer that a command has in it: status, kind, response_len, and the response in its own memory or in its answer buffer.
 * Returns 0, or -EAGAIN when there is no room in the ring, or no spare command to take its receive.
 */
INLAY_FN int inlay_task_cmd_post(struct inlay_task_cmd *cmd)
{
	struct inlay_task_conn *c = cmd->conn;
	struct inlay_sq *sq = &c->link.sq;
	uint32_t len = cmd->response_len, written = cmd->kind == INLAY_TASK_WRITTEN, segs, bbs;
	struct inlay_task_cmd *spare;
	uint8_t head[INLAY_TASK_HEAD];
	struct inlay_cursor at;
	struct ibv_sge own = {(uintptr_t)cmd->response, len, c->lkey};

	if (!cmd->answer && len <= c->max_inline) {
		if (inlay_task_cmd_post_inline(cmd, cmd->kind, cmd->status, cmd->response, len))
			return -EAGAIN;
		inlay_task_cmd_drop(cmd);
		cmd->state = INLAY_TASK_CMD_FREE;
		inlay_task_conn_receive(c, cmd);
	} else {
		segs = cmd->answer ? inlay_buf_segs(cmd->answer) : 1;
		bbs = written ? 1 + (2 + segs + 3) / 4 : (4 + segs + 3) / 4;
		if (c->spare == INLAY_TASK_NOBODY || inlay_sq_room(sq) < bbs)
			return -EAGAIN;
		if (written) {
			if (inlay_post_write_bufs(sq, 0, cmd->response_key.rkey, cmd->answer, 0))
				return -EAGAIN;
			segs = 0;
		}
		inlay_task_head_write(head, inlay_task_first(cmd->kind, inlay_task_status_wire(cmd->status), len), cmd->context,
				      cmd->plugin, cmd->destination);
		if (inlay_sq_begin(sq, (4 + segs + 3) / 4, &at))
			return -EAGAIN; /* there is room, as was seen */
		at = inlay_seg_inline(at, head, INLAY_TASK_HEAD);
		if (segs && cmd->answer)
			at = inlay_seg_bufs(at, cmd->answer);
		else if (segs)
			at = inlay_seg_data(at, own.addr, own.length, own.lkey);
		inlay_sq_commit(sq, at, MLX5_OPCODE_SEND, 0, INLAY_SIGNALED, 0);
		cmd->posted = inlay_sq_index(sq);
		cmd->state = INLAY_TASK_CMD_SENDING;
		inlay_task_fifo_push(c, &c->sending, cmd);
		spare = &c->cmds[c->spare];
		c->spare = spare->next;
		inlay_task_conn_receive(c, spare);
	}
	c->answers++;
	inlay_task_conn_dirty(c);
	return 0;
}

/* Posts it, or has it wait for room behind those that wait already. Or, where nobody is left to hear it, drops it. */
INLAY_FN int inlay_task_cmd_finish(struct inlay_task_cmd *cmd)
{
	struct inlay_task_conn *c = cmd->conn;

	if (c->broken) {
		inlay_task_cmd_spare(cmd);
		return -ENOTCONN;
	}
	if (c->answered.first != INLAY_TASK_NOBODY || inlay_task_cmd_post(cmd)) {
		cmd->state = INLAY_TASK_CMD_ANSWERED;
		inlay_task_fifo_push(c, &c->answered, cmd);
		inlay_task_conn_tend_soon(c);
	}
	return 0;
}

/* The worker's own word. */
INLAY_FN void inlay_task_cmd_refuse(struct inlay_task_cmd *cmd, int status)
{
	cmd->kind = INLAY_TASK_REFUSED;
	cmd->status = status;
	cmd->response_len = 0;
	inlay_task_cmd_finish(cmd);
}

/* A status that is one, to be said by a handler. */
INLAY_ALWAYS int inlay_task_cmd_status(int status)
{
	return status <= 0 && status >= -INLAY_TASK_STATUS_MAX ? status : -EIO;
}

/* An answer that is not short, or not to be posted now. */
INLAY_FN int inlay_task_cmd_answer_long(struct inlay_task_cmd *cmd, int status, const void *data, uint32_t len)
{
	struct inlay_task_conn *c = cmd->conn;

	if (len > c->room)
		return -E2BIG;
	c->kept--;
	status = inlay_task_cmd_status(status);
	if (len <= c->max_inline && !cmd->pulled && !c->broken && c->answered.first == INLAY_TASK_NOBODY &&
	    !inlay_task_cmd_post_inline(cmd, INLAY_TASK_ANSWER, status, data, len)) {
		cmd->state = INLAY_TASK_CMD_FREE;
		inlay_task_conn_receive(c, cmd);
		c->answers++;
		inlay_task_conn_dirty(c);
		return 0;
	}
	if (data != cmd->response)
		inlay_copy(cmd->response, data, len);
	cmd->kind = INLAY_TASK_ANSWER;
	cmd->status = status;
	cmd->response_len = len;
	return inlay_task_cmd_finish(cmd);
}

/*
 * Answers a command with `status`, 0 or a negative errno, and len bytes at `data`, which are copied: they may lie anywhere, in the
 * command's payload too, but not across cmd->response, unless they begin there. From then on the command is the worker's.
 *
 * Returns 0: it will be answered; -ENOTCONN when the connection has ended, and nobody was told; -E2BIG when len is above
 * cmd->response_room: then nothing has happened, and the command is still the handler's.
 *
 * What is answered from outside of a handler, and of a plugin's progress, leaves with the next progress, or inlay_task_worker_flush.
 */
INLAY_ALWAYS int inlay_task_cmd_answer_data(struct inlay_task_cmd *cmd, int status, const void *data, uint32_t len)
{
	struct inlay_task_conn *c = cmd->conn;

	INLAY_CHECK(cmd->state == INLAY_TASK_CMD_KEPT, "a command is answered once, by its handler");
	if (INLAY_UNLIKELY(len > INLAY_WQEBB - INLAY_TASK_AT) || INLAY_UNLIKELY(cmd->pulled != NULL) || INLAY_UNLIKELY(c->broken) ||
	    INLAY_UNLIKELY(c->answered.first != INLAY_TASK_NOBODY) || INLAY_UNLIKELY(len > c->room) ||
	    INLAY_UNLIKELY(inlay_task_cmd_post_short(cmd, INLAY_TASK_ANSWER, inlay_task_cmd_status(status), data, len)))
		return inlay_task_cmd_answer_long(cmd, status, data, len);
	c->kept--;
	cmd->state = INLAY_TASK_CMD_FREE;
	inlay_task_conn_receive(c, cmd);
	c->answers++;
	inlay_task_conn_dirty(c);
	return 0;
}

/* The same with cmd->response_len bytes that were written to cmd->response. */
INLAY_ALWAYS int inlay_task_cmd_answer(struct inlay_task_cmd *cmd, int status)
{
	return inlay_task_cmd_answer_data(cmd, status, cmd->response, cmd->response_len);
}

/* How long a response may be at all: in the answer, or written to what the host has granted. */
INLAY_FN uint64_t inlay_task_cmd_largest(const struct inlay_task_cmd *cmd)
{
	uint32_t room = cmd->conn->answer_room;

	return cmd->response_key.bytes > room ? cmd->response_key.bytes : room;
}

/*
 * Answers with the windows of a buffer, or a list, of the handler's: gathered into the answer, or written to the memory that the host has
 * granted when an answer has no room for them. The worker takes a reference of its own and gives it back when the device is done.
 *
 * buf  registered with the worker's PD, of at most 16 pieces; the handler's reference stays the handler's
 *
 * Returns as inlay_task_cmd_answer_data; -E2BIG when they are longer than inlay_task_cmd_largest, or are too many pieces; -EINVAL when buf
 * was given back or is not a head: in both cases the command is still the handler's.
 */
INLAY_FN int inlay_task_cmd_answer_buf(struct inlay_task_cmd *cmd, int status, struct inlay_buf *buf)
{
	struct inlay_task_conn *c = cmd->conn;
	uint64_t total = inlay_buf_list_bytes(buf);

	INLAY_CHECK(cmd->state == INLAY_TASK_CMD_KEPT, "a command is answered once, by its handler");
	if (total > inlay_task_cmd_largest(cmd) || inlay_buf_segs(buf) > 16)
		return -E2BIG;
	if (inlay_buf_inc_refcount(buf, NULL))
		return -EINVAL;
	c->kept--;
	cmd->answer = buf;
	cmd->kind = total > c->answer_room ? INLAY_TASK_WRITTEN : INLAY_TASK_ANSWER;
	cmd->status = inlay_task_cmd_status(status);
	cmd->response_len = (uint32_t)total;
	return inlay_task_cmd_finish(cmd);
}

/* The plugin's pointer with the connection that a command came from: see inlay_task_conn_state. */
INLAY_FN void *inlay_task_cmd_state(const struct inlay_task_cmd *cmd)
{
	return cmd->conn->states[cmd->entry];
}

/*
 * Answers a command with what its plugin's `notification` packs, or with no response when it has none. A length that notification says, and
 * that is larger than the room it had, is answered with -E2BIG. Returns as inlay_task_cmd_answer.
 */
INLAY_FN int inlay_task_cmd_notify(struct inlay_task_cmd *cmd, int status)
{
	struct inlay_task_conn *c = cmd->conn;
	const struct inlay_task_slot *s = c->worker->order[cmd->entry];
	int64_t len = s->plugin->notification ? s->plugin->notification(s->state, cmd, cmd->response, c->room) : 0;

	if (len > (int64_t)c->room)
		len = -E2BIG;
	if (len < 0)
		return inlay_task_cmd_answer_data(cmd, len < -INLAY_TASK_STATUS_MAX ? -EIO : (int)len, cmd->response, 0);
	return inlay_task_cmd_answer_data(cmd, status, cmd->response, (uint32_t)len);
}

/* Shows the devices all answers and receives that were posted: what progress does at its end. */
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

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: what is rare
 */

/* The connection has ended. What the device may still read or write stays in `sending` until it has given back all that was posted. */
INLAY_COLD void inlay_task_conn_end(struct inlay_task_conn *c)
{
	struct inlay_task_fifo *const lists[2] = {&c->waiting, &c->answered};
	struct inlay_task_cmd *cmd;
	uint32_t i;

	if (c->broken)
		return;
	c->broken = 1;
	for (i = 0; i < 2; i++)
		while ((cmd = inlay_task_fifo_first(c, lists[i]))) {
			inlay_task_fifo_pop(c, lists[i]);
			if (cmd->state == INLAY_TASK_CMD_PULLING)
				inlay_task_fifo_push(c, &c->sending, cmd);
			else
				inlay_task_cmd_spare(cmd);
		}
	c->next_gone = c->worker->gone;
	c->worker->gone = c;
	inlay_task_conn_down(c);
}

/*
 * Starts to read a command's payload. Returns 0; -EAGAIN when the connection's share of buffers is in use, or there is no buffer or no room
 * in the ring; -E2BIG when it cannot be read at all.
 */
INLAY_COLD int inlay_task_cmd_pull(struct inlay_task_cmd *cmd)
{
	struct inlay_task_conn *c = cmd->conn;
	struct inlay_pool *pool = c->worker->params.pull;
	struct ibv_sge sge;

	if (!pool || cmd->payload_key.bytes > inlay_pool_element_size(pool))
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
	inlay_task_conn_dirty(c);
	return 0;
}

/* Hands a command to its handler. Returns 0 when it is stalled, and else 1. */
INLAY_ALWAYS uint32_t inlay_task_cmd_dispatch(struct inlay_task_cmd *cmd)
{
	struct inlay_task_conn *c = cmd->conn;
	const struct inlay_task_slot *s = inlay_task_worker_plugin(c->worker, cmd->plugin);
	int err;

	if (INLAY_UNLIKELY(!s)) {
		inlay_task_cmd_refuse(cmd, -ENOENT);
		return 1;
	}
	cmd->entry = s->index;
	cmd->response_len = 0;
	cmd->state = INLAY_TASK_CMD_KEPT;
	c->kept++;
	err = s->plugin->command(s->state, cmd);
	if (INLAY_LIKELY(err <= 0)) {
		/* One that has answered by itself has answered. */
		if (INLAY_UNLIKELY(cmd->state != INLAY_TASK_CMD_KEPT))
			return 1;
		/* A handler that says it has written more than there was room for has its command answered all the same. */
		if (INLAY_UNLIKELY(inlay_task_cmd_answer(cmd, err) == -E2BIG))
			inlay_task_cmd_answer_data(cmd, -E2BIG, cmd->response, 0);
	} else if (err == INLAY_TASK_STALL && cmd->state == INLAY_TASK_CMD_KEPT) {
		c->kept--;
		cmd->state = INLAY_TASK_CMD_WAITING;
		return 0;
	}
	return 1;
}

/* Whether a command's payload is still to be read. */
INLAY_ALWAYS int inlay_task_cmd_is_dry(const struct inlay_task_cmd *cmd)
{
	return cmd->payload_key.bytes && cmd->state == INLAY_TASK_CMD_WAITING && !cmd->pulled;
}

/*
 * Starts to read the payloads of commands that wait, in their order: a later one must not have the last buffer while an earlier one is
 * without.
 */
INLAY_COLD void inlay_task_conn_pull(struct inlay_task_conn *c)
{
	uint32_t i;

	c->dry = 0;
	for (i = c->waiting.first; i != INLAY_TASK_NOBODY && !c->dry; i = c->cmds[i].next)
		if (inlay_task_cmd_is_dry(&c->cmds[i]))
			c->dry = inlay_task_cmd_pull(&c->cmds[i]) == -EAGAIN;
}

/* Commands that wait, as far as they can go on. Returns how many handlers were called. */
INLAY_COLD uint32_t inlay_task_conn_wait(struct inlay_task_conn *c, uint32_t max)
{
	struct inlay_task_cmd *cmd;
	uint32_t n = 0;
	int err;

	while (n < max && (cmd = inlay_task_fifo_first(c, &c->waiting))) {
		if (c->dry)
			inlay_task_conn_pull(c);
		if (inlay_task_cmd_is_dry(cmd)) {
			err = inlay_task_cmd_pull(cmd);
			if (err == -EAGAIN)
				break;
			if (err) {
				inlay_task_fifo_pop(c, &c->waiting);
				inlay_task_cmd_refuse(cmd, err);
				continue;
			}
		}
		if (cmd->state == INLAY_TASK_CMD_PULLING && (int32_t)(inlay_task_sent(&c->link.sq) - cmd->posted) < 0)
			break;
		/* Out of the list first: an answer may go into another. A stalled one goes back to where it was. */
		inlay_task_fifo_pop(c, &c->waiting);
		if (!inlay_task_cmd_dispatch(cmd)) {
			cmd->next = c->waiting.first;
			if (c->waiting.first == INLAY_TASK_NOBODY)
				c->waiting.last = inlay_task_cmd_index(cmd);
			c->waiting.first = inlay_task_cmd_index(cmd);
			break;
		}
		n++;
	}
	return n;
}

/* What is not a plain command, or has others before it. */
INLAY_COLD void inlay_task_conn_sort(struct inlay_task_cmd *cmd, const uint8_t *msg, uint32_t bytes)
{
	struct inlay_task_conn *c = cmd->conn;
	struct inlay_task_command head;
	int err = inlay_task_command_read(&head, msg, bytes > c->message ? 0 : bytes);

	cmd->context = head.context;
	cmd->plugin = head.plugin;
	cmd->destination = head.destination;
	if (c->broken) {
		inlay_task_cmd_spare(cmd);
		return;
	}
	if (err) {
		inlay_task_cmd_refuse(cmd, -EBADMSG);
		return;
	}
	cmd->payload = msg + head.at;
	cmd->payload_len = head.length;
	cmd->payload_key = head.payload;
	cmd->response_key = head.response;
	cmd->response_room = c->room;
	cmd->state = INLAY_TASK_CMD_WAITING;
	/* As early as can be; if not now, in its turn. */
	if (head.flags & INLAY_TASK_PAYLOAD_KEY && !c->dry)
		c->dry = inlay_task_cmd_pull(cmd) == -EAGAIN;
	inlay_task_fifo_push(c, &c->waiting, cmd);
	inlay_task_conn_tend_soon(c);
}

/* All that waits for something in a connection. Returns how many handlers were called. */
INLAY_COLD uint32_t inlay_task_conn_tend(struct inlay_task_conn *c, uint32_t max)
{
	struct inlay_task_cmd *cmd;
	uint32_t n = 0;

	if (c->broken)
		return 0;
	while ((cmd = inlay_task_fifo_first(c, &c->answered))) {
		/* Out of the list before it enters another. */
		uint32_t next = cmd->next;

		if (inlay_task_cmd_post(cmd))
			break;
		c->answered.first = next;
	}
	n = inlay_task_conn_wait(c, max);
	if (c->answered.first != INLAY_TASK_NOBODY || c->waiting.first != INLAY_TASK_NOBODY)
		inlay_task_conn_tend_soon(c);
	return n;
}

/* Asks each host whether it is there. */
INLAY_COLD void inlay_task_worker_probe(struct inlay_task_worker *w, uint64_t now)
{
	uint32_t i;

	w->probe_at = now + w->params.period < now ? UINT64_MAX : now + w->params.period;
	for (i = 0; i < w->num_conns; i++) {
		struct inlay_task_conn *c = w->conns[i];

		if (!c->connected || c->broken)
			continue;
		if (c->probing)
			continue;
		if (inlay_post_write(&c->link.sq, 0, 0, NULL, 0, INLAY_SIGNALED))
			continue;
		c->probing = 1;
		c->probe_end = inlay_sq_index(&c->link.sq);
		inlay_task_conn_dirty(c);
	}
}

/* All that is not a completion. Returns how many handlers were called. */
INLAY_COLD uint32_t inlay_task_worker_tend(struct inlay_task_worker *w, uint64_t now, uint32_t max)
{
	struct inlay_task_conn *c = w->tended, *next, *last;
	uint32_t n = 0;

	w->tended = NULL;
	if (w->params.period && now >= w->probe_at)
		inlay_task_worker_probe(w, now);
	w->due = w->params.period ? w->probe_at : UINT64_MAX;
	for (; c && n < max; c = next) {
		next = c->next_tended;
		c->tended = 0;
		n += inlay_task_conn_tend(c, max - n);
	}
	/* Those that had no turn come first in the next. */
	if (c) {
		for (last = c; last->next_tended; last = last->next_tended)
			;
		last->next_tended = w->tended;
		w->tended = c;
		w->due = 0;
	}
	return n;
}

/* The connection that a completion belongs to, or NULL. */
INLAY_ALWAYS struct inlay_task_conn *inlay_task_worker_conn(const struct inlay_task_worker *w, uint32_t qpn)
{
	uint32_t i = qpn & w->named_mask;

	while (w->named[i].conn && INLAY_UNLIKELY(w->named[i].qpn != qpn))
		i = (i + 1) & w->named_mask;
	return w->named[i].conn;
}

/* Commands whose answers have been sent. */
INLAY_COLD void inlay_task_conn_sent(struct inlay_task_conn *c)
{
	struct inlay_task_cmd *cmd;

	while ((cmd = inlay_task_fifo_first(c, &c->sending)) && (int32_t)(inlay_task_sent(&c->link.sq) - cmd->posted) >= 0) {
		inlay_task_fifo_pop(c, &c->sending);
		inlay_task_cmd_spare(cmd);
	}
}

/* A completion of a send, an error, or what makes no sense. Frees it. */
INLAY_COLD void inlay_task_conn_other(struct inlay_task_conn *c, const struct mlx5_cqe64 *cqe)
{
	struct inlay_task_cmd *cmd;
	int end = inlay_cqe_is_error(cqe);

	if (inlay_cqe_is_send(cqe)) {
		if (inlay_sq_release(&c->link.sq, cqe) < 0)
			c->strays++;
		else if ((int32_t)(inlay_task_sent(&c->link.sq) - c->probe_end) >= 0)
			c->probing = 0;
	} else {
		cmd = inlay_task_conn_next(c);
		if (cmd && end) {
			inlay_task_cmd_spare(cmd);
		} else if (cmd) {
			/* With an immediate, a key to close, or written: no command is like that. It took a receive, and says nothing. */
			c->strays++;
			c->commands++;
			inlay_task_conn_sort(cmd, inlay_task_cmd_message(cmd), 0);
		}
	}
	inlay_cq_advance(&c->worker->cq, 1);
	if (end)
		inlay_task_conn_end(c);
	if (!c->broken || !inlay_sq_pending(&c->link.sq))
		inlay_task_conn_sent(c);
	/* As a host: WQEs that were done without a completion have none at the end either. */
	if (c->broken && !c->marked) {
		c->marked = !inlay_post_nop(&c->link.sq, INLAY_SIGNALED);
		inlay_task_conn_dirty(c);
	}
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: progress
 */

/* A command that has come. Returns how many handlers were called. */
INLAY_ALWAYS uint32_t inlay_task_conn_take(struct inlay_task_conn *c, uint32_t bytes)
{
	struct inlay_task_cmd *cmd;
	const uint8_t *msg;
	uint32_t length;
	uint64_t first;

	cmd = inlay_task_conn_next(c);
	if (INLAY_UNLIKELY(!cmd)) {
		c->strays++;
		return 0;
	}
	msg = inlay_task_cmd_message(cmd);
	c->commands++;
	first = inlay_task_get64(msg);
	length = (uint32_t)(first >> 32);
	/* Only what the device has written is believed: the lengths are looked at together with it. */
	if (INLAY_UNLIKELY((uint64_t)length + INLAY_TASK_HEAD != bytes) ||
	    INLAY_UNLIKELY(bytes > c->message) ||
	    INLAY_UNLIKELY((uint32_t)first != (INLAY_TASK_COMMAND << 8 | INLAY_TASK_WIRE)) ||
	    INLAY_UNLIKELY(c->waiting.first != INLAY_TASK_NOBODY) || INLAY_UNLIKELY(c->broken)) {
		inlay_task_conn_sort(cmd, msg, bytes);
		return 0;
	}
	cmd->payload = msg + INLAY_TASK_HEAD;
	cmd->payload_len = length;
	cmd->context = inlay_task_get64(msg + 8);
	cmd->plugin = inlay_task_get64(msg + 16);
	cmd->destination = inlay_task_get64(msg + 24);
	cmd->payload_key.bytes = cmd->response_key.bytes = 0;
	cmd->response_room = c->room;
	if (INLAY_UNLIKELY(!inlay_task_cmd_dispatch(cmd))) {
		inlay_task_fifo_push(c, &c->waiting, cmd);
		inlay_task_conn_tend_soon(c);
	}
	return 1;
}

/*
 * Handles completions: hands commands to their plugins, and sends what is answered; and gives plugins their turn.
 *
 * now  what time it is, in the unit of params.period; never less than before. 0 will do without probes
 * max  completions and handlers, each, that are handled at most
 *
 * Returns how many commands were handed out, and what the plugins' progress returned; 0, and does nothing, when it is called by a plugin's
 * command, progress, connection, open or close.
 */
INLAY_FN uint32_t inlay_task_worker_progress(struct inlay_task_worker *w, uint64_t now, uint32_t max)
{
	const struct mlx5_cqe64 *cqe;
	struct inlay_task_conn *c;
	uint32_t done = 0, n, bytes;

	if (INLAY_UNLIKELY(w->inside))
		return 0;
	w->inside = 1;
	if (INLAY_UNLIKELY(now >= w->due))
		done = inlay_task_worker_tend(w, now, max);
	for (n = 0; n < max && done < max && (cqe = inlay_cq_peek(&w->cq)); n++) {
		c = inlay_task_worker_conn(w, inlay_cqe_qpn(cqe));
		if (INLAY_UNLIKELY(!c)) {
			w->strays++;
			inlay_cq_advance(&w->cq, 1);
		} else if (INLAY_LIKELY(cqe->op_own >> 2 == MLX5_CQE_RESP_SEND << 2)) {
			bytes = inlay_cqe_byte_count(cqe);
			inlay_cq_advance(&w->cq, 1);
			done += inlay_task_conn_take(c, bytes);
		} else {
			inlay_task_conn_other(c, cqe);
		}
	}
	for (n = 0; n < w->num_progress; n++)
		done += w->progress[n]->plugin->progress(w->progress[n]->state);
	if (w->dirty)
		inlay_task_worker_flush(w);
	w->inside = 0;
	return done;
}

/* Whether something is to be done though no completion comes: when, as inlay_task_host_due. */
INLAY_FN uint64_t inlay_task_worker_due(const struct inlay_task_worker *w)
{
	return w->due;
}

/* As inlay_task_host_arm. A stalled command has its worker progress at once; what a plugin's progress has to do is not known to it. */
INLAY_FN int inlay_task_worker_arm(struct inlay_task_worker *w)
{
	if (!w->params.events)
		return -ENOTSUP;
	if (!w->due || w->dirty || inlay_cq_peek(&w->cq))
		return -EAGAIN;
	if (inlay_cq_arm(&w->cq, 0))
		return -ENOTSUP;
	return inlay_cq_peek(&w->cq) ? -EAGAIN : 0;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * A connection's end
 */

/*
 * Takes a connection down, broken or not; its host finds out as if the worker had died. Plugins are told, if they have not been. Memory and
 * *c are the caller's again.
 *
 * Returns 0; -EBUSY when a plugin's command, progress or connection calls it: nothing has happened; -EBUSY while handlers keep commands of
 * it (answer them: nothing is sent once it is broken), or when something of it is in use: it is then broken, and it may be called again.
 */
INLAY_COLD int inlay_task_conn_destroy(struct inlay_task_conn *c)
{
	struct inlay_task_worker *w = c->worker;
	struct inlay_task_conn **at;
	struct inlay_task_cmd *cmd;
	uint32_t i, qpn = inlay_sq_qpn(&c->link.sq);

	if (w->inside)
		return -EBUSY;
	inlay_task_conn_break(c);
	inlay_task_conn_end(c);
	if (c->kept)
		return -EBUSY;
	/* Before the queue pair goes: nobody rings for it. */
	for (at = &w->dirty; *at; at = &(*at)->next_dirty)
		if (*at == c) {
			*at = c->next_dirty;
			break;
		}
	c->dirty = 0;
	if (inlay_task_link_destroy(&c->link))
		return -EBUSY;
	/* Its number may be another's from now on. Without a queue pair nothing of it is read or written. */
	if (qpn)
		inlay_cq_clean(&w->cq, qpn, NULL, NULL);
	__builtin_memset(&c->link.sq, 0, sizeof(c->link.sq));
	while ((cmd = inlay_task_fifo_first(c, &c->sending))) {
		inlay_task_fifo_pop(c, &c->sending);
		inlay_task_cmd_spare(cmd);
	}
	if (inlay_task_conn_free(c))
		return -EBUSY;
	for (i = 0; i < w->num_conns && w->conns[i] != c; i++)
		;
	if (i == w->num_conns)
		return 0;
	w->conns[i] = w->conns[--w->num_conns];
	inlay_task_worker_name(w);
	for (at = &w->gone; *at; at = &(*at)->next_gone)
		if (*at == c) {
			*at = c->next_gone;
			break;
		}
	for (at = &w->tended; *at; at = &(*at)->next_tended)
		if (*at == c) {
			*at = c->next_tended;
			break;
		}
	return 0;
}

#endif
