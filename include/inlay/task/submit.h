/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/submit.h: the host's tasks: allocated, filled, submitted. The manual is host.h's.
 *
 * What a submit writes, when the payload is small
 *
 *   +0   ctrl     SEND, index, QPN, DS
 *   +16  inline   byte count | head of 32 bytes | payload ...      wraps at the ring's end
 *
 * and when it is gathered
 *
 *   +0   ctrl     SEND, index, QPN, DS
 *   +16  data     pointer to the head, and right behind it the payload: in the task's own buffer, from its start on
 *
 *   +0   ctrl     SEND, index, QPN, DS
 *   +16  inline   byte count | head of 32 bytes, with the keys that there are
 *   +64  data     pointers to the payload: from elsewhere
 *
 * Threads: as host.h.
 * Sources: as host.h.
 */
#ifndef INLAY_TASK_SUBMIT_H
#define INLAY_TASK_SUBMIT_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/buf.h>
#include <inlay/mmap.h>
#include <inlay/queue.h>
#include <inlay/task/host.h>
#include <inlay/task/wire.h>

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: lists of tasks, by index
 */

INLAY_ALWAYS uint32_t inlay_task_index(const struct inlay_task *t)
{
	return inlay_task_context_index(t->context);
}

/* State, held, by and early in one load or store; and the first two. */
typedef uint32_t inlay_task_word __attribute__((may_alias));
typedef uint16_t inlay_task_half __attribute__((may_alias));

INLAY_ALWAYS uint32_t inlay_task_get_word(const struct inlay_task *t)
{
	return *(const inlay_task_word *)(const void *)&t->state;
}

INLAY_ALWAYS void inlay_task_set_word(struct inlay_task *t, uint32_t word)
{
	*(inlay_task_word *)(void *)&t->state = word;
}

INLAY_ALWAYS uint32_t inlay_task_get_half(const struct inlay_task *t)
{
	return *(const inlay_task_half *)(const void *)&t->state;
}

/* Its own part of the rest. */
INLAY_ALWAYS struct inlay_task_more *inlay_task_rest(const struct inlay_task *t)
{
	return &t->host->more[inlay_task_index(t)];
}

/* A callback of the task is due. */
INLAY_COLD void inlay_task_queue(struct inlay_task *t)
{
	struct inlay_task_host *h = t->host;

	inlay_task_rest(t)->next = INLAY_TASK_NONE;
	if (h->ripe == INLAY_TASK_NONE)
		h->ripe = inlay_task_index(t);
	else
		h->more[h->ripe_last].next = inlay_task_index(t);
	h->ripe_last = inlay_task_index(t);
	h->due = 0;
}

/* The one of its completion. */
INLAY_COLD void inlay_task_ripen(struct inlay_task *t)
{
	t->state = INLAY_TASK_RIPE;
	inlay_task_queue(t);
}

/* Takes a task out of the list of those that wait; not being there is no fault. */
INLAY_COLD void inlay_task_host_forget(struct inlay_task_host *h, const struct inlay_task *t)
{
	uint32_t *link = &h->waiting;

	while (*link != INLAY_TASK_NONE && *link != inlay_task_index(t))
		link = &h->more[*link].next;
	if (*link != INLAY_TASK_NONE)
		*link = h->more[*link].next;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: the task
 */

/* The task's own payload buffer was given back as if it were the caller's: the host gets it anew. Returns 0, or as the inventory. */
INLAY_COLD int inlay_task_own_again(struct inlay_task *t)
{
	struct inlay_task_host *h = t->host;
	uint8_t *at = h->slots - (uint64_t)(h->num - inlay_task_index(t)) * inlay_task_host_stride(&h->params) + INLAY_CACHE_LINE;

	return inlay_inventory_get_by_addr(h->inventory, &h->mmap, at, h->params.payload, &inlay_task_rest(t)->payload);
}

/*
 * A task, IDLE, with its own payload buffer (the window empty), plugin and destination 0, no callback, no deadline, user data 0. Returns 0;
 * -ENOMEM when none is free.
 */
INLAY_FN int inlay_task_alloc(struct inlay_task_host *h, struct inlay_task **task)
{
	struct inlay_task_more *more;
	struct inlay_task *t;
	uint32_t i;

	/* Allocation is of all times: the list of free tasks is the first line's only by its head. */
	if (INLAY_UNLIKELY(h->free == INLAY_TASK_NONE))
		return -ENOMEM;
	t = &h->tasks[h->free];
	more = &h->more[h->free];
	if (INLAY_UNLIKELY(!inlay_buf_refcount(more->payload)) && inlay_task_own_again(t))
		return -ENOMEM;
	h->free = more->next;
	inlay_buf_set_data(more->payload, inlay_buf_head(more->payload), 0);
	t->plugin = t->destination = 0;
	t->payload = more->payload;
	t->response = NULL;
	t->cb = NULL;
	t->deadline = INLAY_TASK_NEVER;
	t->status = 0;
	t->response_len = 0;
	t->user_data = 0;
	for (i = 0; i < INLAY_TASK_USER; i += 8)
		inlay_put64(t->user + i, 0);
	inlay_task_set_word(t, INLAY_TASK_IDLE);
	*task = t;
	return 0;
}

/* The same with plugin and callback. */
INLAY_FN int inlay_task_alloc_init(struct inlay_task_host *h, uint64_t plugin, inlay_task_cb cb, struct inlay_task **task)
{
	int err = inlay_task_alloc(h, task);

	if (!err) {
		(*task)->plugin = plugin;
		(*task)->cb = cb;
	}
	return err;
}

/*
 * Gives a task back; what was chained behind its own payload buffer is the caller's again, as a list of its own.
 *
 * Returns 0; -EPERM while it is in flight or its callback is due; -EBUSY in quarantine: its memory may still be in use; -EBADFD when it was
 * given back.
 */
INLAY_FN int inlay_task_release(struct inlay_task *t)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return t->state == INLAY_TASK_FREE ? -EBADFD : t->state == INLAY_TASK_QUARANTINE ? -EBUSY : -EPERM;
	t->state = INLAY_TASK_FREE;
	inlay_task_unchain(t);
	inlay_task_rest(t)->next = t->host->free;
	t->host->free = inlay_task_index(t);
	return 0;
}

/* Where it stands: enum inlay_task_state. */
INLAY_FN uint32_t inlay_task_state(const struct inlay_task *t)
{
	return t->state;
}

/* Which plugin, by its id, is to have the command. All setters that follow return 0, or -EBUSY unless the task is IDLE. */
INLAY_FN int inlay_task_set_plugin(struct inlay_task *t, uint64_t plugin)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->plugin = plugin;
	return 0;
}

/* A number for the plugin, which the answer echoes: whom of several the command concerns. */
INLAY_FN int inlay_task_set_destination(struct inlay_task *t, uint64_t destination)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->destination = destination;
	return 0;
}

/* What is called when it completes; NULL: nothing. */
INLAY_FN int inlay_task_set_cb(struct inlay_task *t, inlay_task_cb cb)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->cb = cb;
	return 0;
}

/* When it is over, for the next submit: a point of the time that progress is told; INLAY_TASK_NEVER: no deadline. */
INLAY_FN int inlay_task_set_deadline(struct inlay_task *t, uint64_t deadline)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->deadline = deadline;
	return 0;
}

/*
 * A buffer of the caller's, or a list by its head, for the payload; NULL: its own again. The caller keeps his reference. Who chains buffers
 * to the task's own has descriptors within 128 GiB of the host's memory (buf.h): both on the heap, or both mapped. The own one may only
 * be a list's head.
 */
INLAY_FN int inlay_task_set_payload(struct inlay_task *t, struct inlay_buf *payload)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	if (!payload) {
		if (INLAY_UNLIKELY(!inlay_buf_refcount(inlay_task_rest(t)->payload)) && inlay_task_own_again(t))
			return -ENOMEM;
		payload = inlay_task_rest(t)->payload;
	}
	t->payload = payload;
	return 0;
}

/*
 * A buffer of the caller's for the response, which gets room from the start of its window to its end. The window is empty from submit on,
 * and has the response's length when there is one. NULL: the response stays in the answer. No list. The caller keeps his reference.
 */
INLAY_FN int inlay_task_set_response(struct inlay_task *t, struct inlay_buf *response)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->response = response;
	t->held = response ? INLAY_TASK_HELD_COPY : 0;
	return 0;
}

/* For the callback. Any time. */
INLAY_FN void inlay_task_set_user_data(struct inlay_task *t, uint64_t user_data)
{
	t->user_data = user_data;
}

INLAY_FN uint64_t inlay_task_get_user_data(const struct inlay_task *t)
{
	return t->user_data;
}

/* INLAY_TASK_USER bytes for the caller, on 8 bytes; zeroed by alloc. Any time. */
INLAY_FN void *inlay_task_get_user(struct inlay_task *t)
{
	return t->user;
}

/* The payload's buffer: head and len are the room there is, the window is what is sent. */
INLAY_FN struct inlay_buf *inlay_task_get_payload(const struct inlay_task *t)
{
	return t->payload;
}

/*
 * The response of the last completion: the caller's buffer, or one over the answer, good until the task is submitted or released. The
 * window is the response; empty when there is none. Not to be given back.
 */
INLAY_FN struct inlay_buf *inlay_task_get_response(const struct inlay_task *t)
{
	struct inlay_task_host *h = t->host;
	struct inlay_buf *buf = t->response;

	if (buf)
		return buf;
	buf = inlay_task_rest(t)->response;
	buf->head = t->slot;
	buf->len = h->message;
	buf->data = buf->head + INLAY_TASK_HEAD;
	/* One that was written to a buffer is not here. */
	buf->data_len = t->response_len <= inlay_task_room(h->message) ? t->response_len : 0;
	return buf;
}

/* Bytes of the last response. With -EMSGSIZE: how long it would have been. */
INLAY_FN uint32_t inlay_task_response_len(const struct inlay_task *t)
{
	return t->response_len;
}

/* 0 or the negative errno of the last completion; -EINPROGRESS from submit until its callback; 0 before it was submitted at all. */
INLAY_FN int inlay_task_status(const struct inlay_task *t)
{
	return INLAY_LIKELY(t->state == INLAY_TASK_IDLE || t->state == INLAY_TASK_QUARANTINE) ? t->status : -EINPROGRESS;
}

/* Who completed it last: enum inlay_task_by. It tells the handler's -ENOENT from the worker's. */
INLAY_FN uint32_t inlay_task_by(const struct inlay_task *t)
{
	return t->by;
}

INLAY_FN struct inlay_task_host *inlay_task_get_host(const struct inlay_task *t)
{
	return t->host;
}

/* Commands that were sent, or posted, and not answered: what the limit limits. */
INLAY_FN uint32_t inlay_task_host_outstanding(const struct inlay_task_host *h)
{
	return h->outstanding;
}

/* How many may be; 0: not connected, stopped or broken. */
INLAY_FN uint32_t inlay_task_host_limit(const struct inlay_task_host *h)
{
	return h->limit;
}

/* 0, or why the connection is broken: -ECONNRESET or -ECONNABORTED. */
INLAY_FN int inlay_task_host_broken(const struct inlay_task_host *h)
{
	return h->broken;
}

/* What came and belonged to no task, nor to one that was completed early: of a worker that is out of order. */
INLAY_FN uint32_t inlay_task_host_strays(const struct inlay_task_host *h)
{
	return h->strays;
}

/* When progress is to be called next though no completion comes: a point of the caller's time; INLAY_TASK_NEVER: need not be; 0: now. */
INLAY_FN uint64_t inlay_task_host_due(const struct inlay_task_host *h)
{
	return h->due;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: submitting
 */

/* Why a task is not submitted. */
INLAY_COLD int inlay_task_refuse(const struct inlay_task *t)
{
	if (t->state != INLAY_TASK_IDLE)
		return -EBUSY;
	return t->host->limit ? -EAGAIN : -ENOTCONN;
}

/* What follows every post of a command. */
INLAY_ALWAYS void inlay_task_flies(struct inlay_task *t, struct inlay_task_host *h, uint32_t held)
{
	t->end = inlay_sq_index(&h->link.sq);
	inlay_task_set_word(t, INLAY_TASK_FLYING | held << 8);
	h->outstanding++;
	if (INLAY_UNLIKELY(t->deadline < h->earliest)) {
		h->earliest = t->deadline;
		if (h->due > t->deadline)
			h->due = t->deadline;
	}
}

/* Opens a window over len bytes of a buffer: posts the bind, for which there is room. what: its place in more->windows. */
INLAY_FN void inlay_task_open(struct inlay_task *t, uint32_t what, const struct inlay_buf *buf, uint32_t len, uint32_t access,
			      struct inlay_task_key *key)
{
	struct inlay_task_host *h = t->host;
	struct inlay_task_window *w = &h->windows[h->free_window];
	struct ibv_sge memory = {(uintptr_t)buf->data, len, buf->lkey};
	uint32_t now = w->rkey;

	inlay_task_rest(t)->windows[what] = h->free_window;
	h->free_window = w->next;
	w->rkey = (now & ~0xffu) | ((now + 1) & 0xff);
	inlay_post_umr(&h->link.sq, now, inlay_sq_qpn(&h->link.sq), w->rkey, &memory, access | IBV_ACCESS_ZERO_BASED, 0);
	key->rkey = w->rkey;
	key->bytes = len;
}

/* Room for a response in a caller's buffer, at most a window's. */
INLAY_ALWAYS uint32_t inlay_task_response_room(const struct inlay_buf *buf)
{
	uint64_t room = buf->len - (uint64_t)(buf->data - buf->head);

	return room > INLAY_BUF_DATA_MAX ? INLAY_BUF_DATA_MAX : (uint32_t)room;
}

/* Whether a window may be opened over a buffer's memory: its map permits it. A bind without that breaks the connection. */
INLAY_COLD int inlay_task_bindable(const struct inlay_buf *buf)
{
	return buf->lkey != INLAY_NO_KEY && inlay_buf_access(buf) & INLAY_MW_BIND;
}

/* A submit of a list, of a caller's buffer, of a larger payload, with a response buffer; and what is none. */
INLAY_FN int inlay_task_submit_other(struct inlay_task *t, int ring)
{
	struct inlay_task_host *h = t->host;
	struct inlay_sq *sq = &h->link.sq;
	uint64_t total = inlay_buf_list_bytes(t->payload);
	uint32_t segs = inlay_buf_segs(t->payload), response = 0, windows, flags = 0, first = inlay_sq_index(sq), bytes, bbs, held = 0, fence = 0;
	uint8_t head[INLAY_TASK_MESSAGE_MIN];
	const struct inlay_buf *by_key;
	struct inlay_task_command c;
	struct inlay_cursor at;

	if (h->outstanding >= h->limit || t->state != INLAY_TASK_IDLE)
		return inlay_task_refuse(t);
	if (t->response) {
		response = inlay_task_response_room(t->response);
		if (response > inlay_task_room(h->message))
			flags |= INLAY_TASK_RESPONSE_KEY;
	}
	if (total > h->room - (flags ? INLAY_TASK_KEY : 0)) {
		flags |= INLAY_TASK_PAYLOAD_KEY;
		if (total > h->link.peer.largest || total > INLAY_BUF_DATA_MAX || segs > 1)
			return -E2BIG;
		segs = 0;
	} else if (segs > h->params.max_gather) {
		return -E2BIG;
	} else if (segs && (t->payload != inlay_task_rest(t)->payload || inlay_buf_next(t->payload))) {
		held = INLAY_TASK_HELD_SEND; /* some of it is the caller's */
	}
	windows = (flags & INLAY_TASK_PAYLOAD_KEY ? 1u : 0) + (flags & INLAY_TASK_RESPONSE_KEY ? 1u : 0);
	if (windows > h->num_windows)
		return -E2BIG;
	if (windows && (h->free_window == INLAY_TASK_NONE || (windows == 2 && h->windows[h->free_window].next == INLAY_TASK_NONE)))
		return -EAGAIN;
	for (by_key = t->payload; flags & INLAY_TASK_PAYLOAD_KEY && !by_key->data_len;)
		by_key = inlay_buf_next(by_key); /* one of a list has all of it */
	if (((flags & INLAY_TASK_PAYLOAD_KEY) && !inlay_task_bindable(by_key)) ||
	    ((flags & INLAY_TASK_RESPONSE_KEY) && !inlay_task_bindable(t->response)))
		return -EPERM;
	bytes = inlay_task_command_head(flags);
	bbs = (1 + (4 + bytes + INLAY_DS - 1) / INLAY_DS + segs + 3) / 4;
	if (inlay_sq_room(sq) < 3 * windows + bbs)
		return -EAGAIN;
	c.context = t->context;
	c.plugin = t->plugin;
	c.destination = t->destination;
	c.flags = flags;
	c.length = (uint32_t)total;
	c.payload.rkey = c.response.rkey = 0;
	c.payload.bytes = c.response.bytes = 0;
	if (flags & INLAY_TASK_PAYLOAD_KEY) {
		inlay_task_open(t, 0, by_key, by_key->data_len, IBV_ACCESS_REMOTE_READ, &c.payload);
		held |= INLAY_TASK_HELD_PAYLOAD;
	}
	if (flags & INLAY_TASK_RESPONSE_KEY) {
		inlay_task_open(t, 1, t->response, response, IBV_ACCESS_REMOTE_WRITE, &c.response);
		held |= INLAY_TASK_HELD_RESPONSE;
	}
	if (windows)
		fence = INLAY_FENCE_INITIATOR_SMALL;
	inlay_task_command_write(head, &c);
	if (INLAY_UNLIKELY(inlay_sq_begin(sq, bbs, &at)))
		return -EAGAIN; /* there is room, as was seen */
	at = inlay_seg_inline(at, head, bytes);
	if (segs)
		at = inlay_seg_bufs(at, t->payload);
	/* Who waits for a send or a window waits for a completion. */
	if (held)
		fence |= INLAY_SIGNALED;
	else
		fence |= inlay_task_signal(first, bbs, h->quarter);
	inlay_sq_commit(sq, at, MLX5_OPCODE_SEND, 0, fence, 0);
	if (ring)
		inlay_sq_ring(sq);
	if (t->response) {
		t->response->data_len = 0;
		held |= INLAY_TASK_HELD_COPY;
	}
	inlay_task_flies(t, h, held);
	return 0;
}

/* A submit of more than what goes inline, simply or not. ring: whether to. */
INLAY_FN int inlay_task_submit_gather(struct inlay_task *t, struct inlay_task_host *h, const struct inlay_buf *payload, int ring)
{
	uint8_t *head = payload->data - INLAY_TASK_HEAD;
	uint32_t len = payload->data_len;
	struct inlay_cursor at;

	if (INLAY_UNLIKELY(h->outstanding >= h->limit) || INLAY_UNLIKELY(inlay_task_get_half(t) != INLAY_TASK_IDLE) ||
	    INLAY_UNLIKELY(payload->next) || INLAY_UNLIKELY(payload != h->more[inlay_task_index(t)].payload) ||
	    INLAY_UNLIKELY(payload->data != payload->head) || INLAY_UNLIKELY(len > h->room))
		return inlay_task_submit_other(t, ring);
	/* A task's own buffer has room for the head before it, so that one piece is all there is to gather. */
	if (INLAY_UNLIKELY(inlay_sq_begin(&h->link.sq, 1, &at)))
		return -EAGAIN;
	inlay_task_head_write(head, inlay_task_first(INLAY_TASK_COMMAND, 0, len), t->context, t->plugin, t->destination);
	at = inlay_seg_data(at, (uintptr_t)head, INLAY_TASK_HEAD + len, h->lkey);
	inlay_sq_commit(&h->link.sq, at, MLX5_OPCODE_SEND, 0, inlay_task_signal(at.index, 1, h->quarter), 0);
	if (ring)
		inlay_sq_ring(&h->link.sq);
	inlay_task_flies(t, h, 0);
	return 0;
}

/* A submit of more than what fits two WQEBBs inline, or of two that wrap. */
INLAY_FN int inlay_task_submit_long(struct inlay_task *t, struct inlay_task_host *h, const struct inlay_buf *payload, int ring)
{
	uint32_t len = payload->data_len;
	struct inlay_cursor at;

	if (INLAY_UNLIKELY(h->outstanding >= h->limit) || INLAY_UNLIKELY(inlay_task_get_half(t) != INLAY_TASK_IDLE) ||
	    INLAY_UNLIKELY(payload->next))
		return inlay_task_submit_other(t, ring);
	if (INLAY_UNLIKELY(inlay_sq_begin(&h->link.sq, (INLAY_TASK_AT + len + INLAY_WQEBB - 1) / INLAY_WQEBB, &at)))
		return -EAGAIN;
	inlay_put32(at.wqe + INLAY_DS, inlay_to_be32((INLAY_TASK_HEAD + len) | (uint32_t)MLX5_INLINE_SEG));
	inlay_task_head_write(at.wqe + INLAY_DS + 4, inlay_task_first(INLAY_TASK_COMMAND, 0, len), t->context, t->plugin, t->destination);
	inlay_copy_wrap_(at, at.wqe + INLAY_TASK_AT, payload->data, len);
	at.ds = (INLAY_TASK_AT + len + INLAY_DS - 1) / INLAY_DS;
	inlay_sq_commit(&h->link.sq, at, MLX5_OPCODE_SEND, 0, inlay_task_signal(at.index, (uint32_t)(at.ds + 3) / 4, h->quarter), 0);
	if (ring)
		inlay_sq_ring(&h->link.sq);
	inlay_task_flies(t, h, 0);
	return 0;
}

/* 13 to 76 bytes, as up to five moves that overlap: no loop. */
INLAY_ALWAYS void inlay_task_copy_two(uint8_t *to, const uint8_t *from, uint32_t len)
{
	if (INLAY_UNLIKELY(len < 16)) {
		__builtin_memcpy(to, from, 8);
		__builtin_memcpy(to + len - 8, from + len - 8, 8);
		return;
	}
	__builtin_memcpy(to, from, 16);
	if (len > 32) {
		__builtin_memcpy(to + 16, from + 16, 16);
		if (len > 48) {
			__builtin_memcpy(to + 32, from + 32, 16);
			__builtin_memcpy(to + len - 32, from + len - 32, 16);
		}
	}
	__builtin_memcpy(to + len - 16, from + len - 16, 16);
}

/* A submit of what fits two WQEBBs inline, and not one. */
INLAY_FN int inlay_task_submit_two(struct inlay_task *t, struct inlay_task_host *h, const struct inlay_buf *payload, int ring)
{
	struct inlay_sq *sq = &h->link.sq;
	uint32_t len = payload->data_len;
	struct inlay_cursor at;

	/* Two in one piece: those that wrap take the longer way. */
	if (INLAY_UNLIKELY(h->outstanding >= h->limit) || INLAY_UNLIKELY(inlay_task_get_half(t) != INLAY_TASK_IDLE) ||
	    INLAY_UNLIKELY(payload->next) || INLAY_UNLIKELY(inlay_sq_begin(sq, 2, &at)) || INLAY_UNLIKELY(!(~at.index & (inlay_sq_size(sq) - 1))))
		return inlay_task_submit_long(t, h, payload, ring);
	inlay_put32(at.wqe + INLAY_DS, inlay_to_be32((INLAY_TASK_HEAD + len) | (uint32_t)MLX5_INLINE_SEG));
	inlay_task_head_write(at.wqe + INLAY_DS + 4, inlay_task_first(INLAY_TASK_COMMAND, 0, len), t->context, t->plugin, t->destination);
	inlay_task_copy_two(at.wqe + INLAY_TASK_AT, payload->data, len);
	at.ds = (INLAY_TASK_AT + len + INLAY_DS - 1) / INLAY_DS;
	if (at.ds < 5 || at.ds > 8)
		__builtin_unreachable(); /* what follows from two WQEBBs folds */
	if (ring && INLAY_LIKELY(inlay_sq_rung(sq) == at.index)) {
		inlay_sq_commit_ring(sq, at, MLX5_OPCODE_SEND, 0, inlay_task_signal(at.index, 2, h->quarter), 0);
	} else {
		inlay_sq_commit(sq, at, MLX5_OPCODE_SEND, 0, inlay_task_signal(at.index, 2, h->quarter), 0);
		if (ring)
			inlay_sq_ring(sq);
	}
	inlay_task_flies(t, h, 0);
	return 0;
}

/* Both submits. ring: constant. */
INLAY_ALWAYS int inlay_task_submit_one(struct inlay_task *t, int ring)
{
	struct inlay_task_host *h = t->host;
	const struct inlay_buf *payload = t->payload;
	uint32_t len = payload->data_len;
	struct inlay_cursor at;

	if (INLAY_UNLIKELY(len > INLAY_WQEBB - INLAY_TASK_AT)) {
		if (len > h->max_inline)
			return inlay_task_submit_gather(t, h, payload, ring);
		if (len > 2 * INLAY_WQEBB - INLAY_TASK_AT)
			return inlay_task_submit_long(t, h, payload, ring);
		return inlay_task_submit_two(t, h, payload, ring);
	}
	/* IDLE, and no response buffer of the caller's, is half a word. */
	if (INLAY_UNLIKELY(h->outstanding >= h->limit) || INLAY_UNLIKELY(inlay_task_get_half(t) != INLAY_TASK_IDLE) ||
	    INLAY_UNLIKELY(payload->next))
		return inlay_task_submit_other(t, ring);
	/* One WQEBB, whatever the length: all but the payload's copy folds. */
	if (INLAY_UNLIKELY(inlay_sq_begin(&h->link.sq, 1, &at)))
		return -EAGAIN;
	inlay_put32(at.wqe + INLAY_DS, inlay_to_be32((INLAY_TASK_HEAD + len) | (uint32_t)MLX5_INLINE_SEG));
	inlay_task_head_write(at.wqe + INLAY_DS + 4, inlay_task_first(INLAY_TASK_COMMAND, 0, len), t->context, t->plugin, t->destination);
	inlay_copy(at.wqe + INLAY_TASK_AT, payload->data, len);
	at.ds = INLAY_WQEBB / INLAY_DS;
	inlay_sq_commit(&h->link.sq, at, MLX5_OPCODE_SEND, 0, inlay_task_signal(at.index, 1, h->quarter), 0);
	/* At once: what was just stored folds, and the device can begin. */
	if (ring)
		inlay_sq_ring(&h->link.sq);
	inlay_task_flies(t, h, 0);
	return 0;
}

/*
 * Posts the task's command; the worker gets it with the next inlay_task_host_flush, or any other doorbell of this host. Nothing is
 * validated beyond what this says: see inlay_task_try_submit.
 *
 * Returns 0: the task is the host's until its callback. Else it is the caller's, as it was: -EAGAIN when as many are outstanding as may be,
 * the ring is full, or no window is free: flush, progress, and try again; -EBUSY unless it is IDLE; -E2BIG when the payload fits neither a
 * message nor a key (larger than the worker reads, in pieces, more pieces than params.max_gather, no windows); -EPERM when a
 * window would be needed over memory whose map does not permit INLAY_MW_BIND; -ENOTCONN when the host is not connected, or no longer.
 */
INLAY_ALWAYS int inlay_task_submit_quiet(struct inlay_task *t)
{
	return inlay_task_submit_one(t, 0);
}

/* Rings for all that was posted: one doorbell. Nothing to ring for is no fault. */
INLAY_ALWAYS void inlay_task_host_flush(struct inlay_task_host *h)
{
	inlay_sq_ring(&h->link.sq);
}

/* Posts the task's command and rings. Returns as inlay_task_submit_quiet. */
INLAY_ALWAYS int inlay_task_submit(struct inlay_task *t)
{
	return inlay_task_submit_one(t, 1);
}

/* Is this a buffer that a submit may use, with or without a list behind it? key: whether its bytes need one. */
INLAY_COLD int inlay_task_usable(const struct inlay_buf *buf, int key)
{
	if (!buf || !inlay_buf_refcount(buf) || !inlay_buf_is_first(buf))
		return 0;
	for (; buf; buf = inlay_buf_next(buf))
		if (!inlay_buf_fits(buf->head, buf->len, buf->data, buf->data_len) || !inlay_mmap_started(inlay_buf_mmap(buf)) ||
		    (key && buf->data_len && buf->lkey == INLAY_NO_KEY))
			return 0;
	return 1;
}

/*
 * inlay_task_submit, which looks first at what a submit takes for granted: for development, as DOCA's.
 *
 * Returns as inlay_task_submit; -EINVAL also when the payload or the response buffer was given back, is not the head of its list, has a
 * window outside of itself or no local key that it needs, when its map is not started, or when the response buffer is a list.
 */
INLAY_COLD int inlay_task_try_submit(struct inlay_task *t)
{
	if (t->state != INLAY_TASK_IDLE)
		return -EBUSY;
	if (!inlay_task_usable(t->payload, 1))
		return -EINVAL;
	if (t->response && (!inlay_task_usable(t->response, 0) || inlay_buf_next(t->response)))
		return -EINVAL;
	if (t->response && t->response->lkey == INLAY_NO_KEY && inlay_task_response_room(t->response) > inlay_task_room(t->host->message))
		return -EINVAL;
	return inlay_task_submit(t);
}

#endif
