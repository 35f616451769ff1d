/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/task.h: a task, which is a command and its answer: allocate, fill, submit, release.
 *
 *   inlay_task_alloc(&host, PLUGIN, done, &task);
 *   ... write to the buffer of inlay_task_payload(task), and set its data ...
 *   inlay_task_submit(task, INLAY_RING);
 *   ... the host's progress calls done, which looks at status and response, and may submit the task
 *   again or release it ...
 *
 * A submitted task completes when neither the device nor the worker uses its memory any more:
 *
 *   what                                              status
 *   the handler answered                              0 or its errno
 *   the worker has no such plugin                     -ENOENT
 *   the handler's status was out of range             -EIO
 *   the payload by key or the response is too large   -E2BIG
 *   the command is malformed, or its answer           -EBADMSG
 *   it was cancelled                                  -ECANCELED
 *   the worker died or is unreachable                 -ECONNRESET
 *   the connection was broken or stopped              -ECONNABORTED
 *
 *   FREE --alloc--> IDLE --submit--> SUBMITTED --answer, cancel, end--> [ENDING] --> callback: IDLE
 *
 * Up to params.max_inline bytes of a single buffer are copied into the WQE; longer payloads that
 * fit a message are gathered. The caller's memory stays registered and unchanged from submit to the
 * callback.
 *
 * By key. With params.windows, memory windows carry what does not fit a message: the worker reads
 * a payload, a single buffer, before it calls the handler, and writes a response to the buffer of
 * inlay_task_set_response. The maps of both must permit INLAY_MW_BIND. A window is opened at
 * submit, for one command, and closed before the task completes.
 */
#ifndef INLAY_TASK_TASK_H
#define INLAY_TASK_TASK_H /* a trial: names may change */

#include <inlay/buf.h>
#include <inlay/mmap.h>
#include <inlay/queue/umr.h>
#include <inlay/task/wire.h>

#define INLAY_TASK_MAX 65536u           /* tasks of a host */
#define INLAY_TASK_USER 32u             /* bytes for the caller in each task */

struct inlay_task;

/* user_data: the task's; host_user_data: params.user_data */
typedef void (*inlay_task_cb)(struct inlay_task *task, uint64_t user_data, uint64_t host_user_data);

enum inlay_task_state {
	INLAY_TASK_FREE,
	INLAY_TASK_IDLE,
	INLAY_TASK_SUBMITTED,
	INLAY_TASK_ENDING,              /* answered, cancelled or lost; its memory may be in use */
};

/* Flags: what holds a task's memory. 0 when IDLE. */
enum inlay_task_held_ {
	INLAY_TASK_HELD_KEYS = 3,       /* open windows, of payload and response: flags of its command */
	INLAY_TASK_HELD_SEND = 4,       /* the WQEs before `end` */
	INLAY_TASK_HELD_MARK = 8,       /* of these, the last is not signaled */
	INLAY_TASK_HELD_CLOSE = 16,     /* the worker is done with the windows, or they are revoked */
};

/* A task. Its first line is the queue's, the second the caller's, the third rarely used. */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_task {
	struct inlay_task_host *host;
	struct inlay_task_ids ids;      /* destination: the caller's, while IDLE; context: generation << 32 | index */
	struct inlay_buf *payload;
	inlay_task_cb cb;
	uint8_t *slot;                  /* its last answer */
	uint8_t state;                  /* may be read: enum inlay_task_state */
	uint8_t held;                   /* enum inlay_task_held_ */
	uint16_t other;                 /* payload or response are the caller's */
	uint32_t end;                   /* inlay_sq_index after its last post */
	int status;
	uint32_t response_len;          /* may be read */
	uint64_t user_data;             /* the caller's, in any state, for the callback; 0 after alloc */
	uint8_t user[INLAY_TASK_USER];  /* the caller's, in any state; zeroed by alloc */
	struct inlay_buf *response;     /* the caller's, or NULL */
	struct inlay_buf *own_payload __attribute__((aligned(INLAY_CACHE_LINE)));
	struct inlay_buf *own_response; /* in the slot */
	struct inlay_task *next;        /* in the list of free or ENDING tasks */
	struct ibv_mw *mw[2];           /* windows of payload and response, or NULL */
	uint32_t rkey[2];               /* of these, last; or 0 */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_task) == 3 * INLAY_CACHE_LINE, "a task is three lines");
INLAY_STATIC_ASSERT(offsetof(struct inlay_task, status) == INLAY_CACHE_LINE, "the first is the queue's");

/* A host's parameters. Start from inlay_task_host_default. */
struct inlay_task_host_params {
	struct inlay_connect_attr path;
	uint32_t tasks;                 /* at most INLAY_TASK_MAX */
	uint32_t in_flight;             /* a power of two, at most INLAY_TASK_RECEIVES_MAX */
	uint32_t message;               /* bytes of the longest answer, head included; 64 .. 2^24 */
	uint32_t payload;               /* bytes of each task's own payload buffer; 1 .. INLAY_SGE_MAX */
	uint32_t max_inline;            /* bytes of payload copied into a WQE; at most 512 */
	uint32_t max_gather;            /* SGEs of a payload, 1 .. INLAY_TASK_GATHER */
	uint32_t windows;               /* 1: each task has two, for its payload and its response */
	struct ibv_comp_channel *channel; /* of the CQ, to sleep on; or NULL */
	uint64_t user_data;             /* for callbacks */
};

/* A host */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_task_host {
	struct inlay_task *tasks;
	uint8_t **slot_of;              /* the slot of each receive */
	uint64_t user_data;
	struct inlay_task *first;       /* list of tasks that are ENDING */
	uint32_t outstanding;           /* may be read: commands without an answer */
	uint32_t limit;                 /* may be read: maximum of outstanding; 0: not connected */
	uint32_t half;                  /* of inlay_task_post_inline_ */
	uint32_t num;                   /* tasks */
	uint32_t mask;                  /* receives - 1 */
	uint32_t response_max;          /* bytes of response in an answer */
	uint32_t payload_max;           /* bytes of payload in a command without keys */
	uint32_t max_inline;
	struct inlay_cq cq __attribute__((aligned(INLAY_CACHE_LINE)));
	struct inlay_task_link link;
	/* Rarely used */
	struct inlay_task *free;        /* list of free tasks */
	struct inlay_task *last;        /* of those */
	uint8_t *slots;
	uint64_t stride;                /* bytes of a payload buffer with its line */
	void *mmap_memory;
	void *inventory_memory;
	uint32_t message;               /* bytes of a slot */
	uint32_t late;                  /* of the outstanding commands, those that were cancelled */
	uint32_t strays;                /* may be read: unexpected messages and completions */
	int broken;                     /* may be read: 0, -ECONNRESET or -ECONNABORTED */
	struct inlay_mmap mmap;
	struct inlay_inventory *inventory;
	struct inlay_task_host_params params;
	struct ibv_pd *pd;
	struct ibv_cq *ibcq;
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_task_host, cq) == INLAY_CACHE_LINE, "a submit touches one line of its host");

/* ---- Data path ---- */

/* Lists a task as ENDING with this status; progress completes it. */
INLAY_COLD void inlay_task_end_(struct inlay_task *t, int status)
{
	struct inlay_task_host *h = t->host;

	t->status = status;
	t->state = INLAY_TASK_ENDING;
	t->next = NULL;
	if (h->first)
		h->last->next = t;
	else
		h->first = t;
	h->last = t;
}

/*
 * Allocates a task: IDLE, with its own payload buffer (empty), destination 0, user data 0. cb may
 * be NULL. Returns 0, or -EAGAIN when none is free.
 */
INLAY_FN int inlay_task_alloc(struct inlay_task_host *h, uint64_t plugin, inlay_task_cb cb, struct inlay_task **task)
{
	struct inlay_task *t = h->free;

	if (INLAY_UNLIKELY(!t))
		return -EAGAIN;
	h->free = t->next;
	t->payload = t->own_payload;
	(void)inlay_buf_set_data(t->payload, inlay_buf_head(t->payload), 0);
	t->ids.plugin = plugin;
	t->ids.destination = 0;
	t->cb = cb;
	__builtin_memset((uint8_t *)t + INLAY_CACHE_LINE, 0, INLAY_CACHE_LINE); /* status to response */
	t->other = 0;
	t->state = INLAY_TASK_IDLE;
	*task = t;
	return 0;
}

/* Unchains what was chained to the task's own payload buffer. */
INLAY_FN void inlay_task_unchain_(const struct inlay_task *t)
{
	if (INLAY_UNLIKELY(inlay_buf_next(t->own_payload) != NULL))
		inlay_buf_unchain_list(t->own_payload, inlay_buf_next(t->own_payload));
}

/*
 * Frees a task. Buffers chained to its own payload buffer become a list of their own. Returns 0;
 * -EPERM from submit until the callback; -EBADFD for a free task.
 */
INLAY_FN int inlay_task_release(struct inlay_task *t)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return t->state == INLAY_TASK_FREE ? -EBADFD : -EPERM;
	t->state = INLAY_TASK_FREE;
	inlay_task_unchain_(t);
	t->next = t->host->free;
	t->host->free = t;
	return 0;
}

/*
 * Gives a submitted task up; the worker may still execute the command. The callback comes when the
 * send is acknowledged, or the connection ends. With open windows it also waits for the late
 * answer, unless revoke is set: that closes the windows, and a worker that uses them afterwards
 * breaks the connection. Returns 0; -EBUSY in ENDING without revoke; -EBADFD if not submitted.
 */
INLAY_COLD int inlay_task_cancel(struct inlay_task *t, int revoke)
{
	if (t->state <= INLAY_TASK_IDLE)
		return -EBADFD;
	if (t->state == INLAY_TASK_ENDING && !revoke)
		return -EBUSY;
	if (t->state == INLAY_TASK_SUBMITTED) {
		inlay_task_end_(t, -ECANCELED);
		t->response_len = 0;
		t->host->late++;
		if (!(t->held & INLAY_TASK_HELD_SEND))
			t->held |= INLAY_TASK_HELD_SEND | INLAY_TASK_HELD_MARK;
	}
	if (revoke && t->held & INLAY_TASK_HELD_KEYS)
		t->held |= INLAY_TASK_HELD_CLOSE;
	return 0;
}

/* Sets the plugin that handles the command, by id. Returns 0, or -EBUSY unless IDLE. */
INLAY_FN int inlay_task_set_plugin(struct inlay_task *t, uint64_t plugin)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->ids.plugin = plugin;
	return 0;
}

/* Sets the callback, or NULL. Returns 0, or -EBUSY unless IDLE. */
INLAY_FN int inlay_task_set_cb(struct inlay_task *t, inlay_task_cb cb)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->cb = cb;
	return 0;
}

/*
 * Sets the caller's buffer, or a list's head, as the payload; NULL: the task's own again, which must
 * be the head of its list. The caller keeps its reference. Returns 0, or -EBUSY unless IDLE.
 */
INLAY_FN int inlay_task_set_payload(struct inlay_task *t, struct inlay_buf *payload)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->payload = payload ? payload : t->own_payload;
	t->other = t->payload != t->own_payload || t->response;
	return 0;
}

/*
 * Sets the caller's buffer, not a list, for a response longer than an answer, from its data to its
 * end; NULL: none. The caller keeps its reference. Returns 0, or -EBUSY unless IDLE.
 */
INLAY_FN int inlay_task_set_response(struct inlay_task *t, struct inlay_buf *response)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->response = response;
	t->other = t->payload != t->own_payload || response;
	return 0;
}

/* The payload's buffer, whose data is sent. Do not give back the task's own. */
INLAY_FN struct inlay_buf *inlay_task_payload(const struct inlay_task *t)
{
	return t->payload;
}

/*
 * The response of the last completion; an empty buffer if the task got none. It may be in the
 * caller's buffer: read it before inlay_task_set_response changes that. Else it is valid until the
 * task is submitted or released; do not give it back.
 */
INLAY_FN struct inlay_buf *inlay_task_response(const struct inlay_task *t)
{
	struct inlay_buf *buf = t->own_response;

	if (t->response_len > t->host->response_max)
		return t->response;
	buf->head = t->slot;
	buf->len = t->host->message;
	(void)inlay_buf_set_data(buf, t->slot + INLAY_TASK_HEAD, t->response_len);
	return buf;
}

/* 0 or the negative errno of the last completion; -EINPROGRESS from submit until the callback. */
INLAY_FN int inlay_task_status(const struct inlay_task *t)
{
	return INLAY_LIKELY(t->state <= INLAY_TASK_IDLE) ? t->status : -EINPROGRESS;
}

/* State, held and other at once. */
INLAY_ALWAYS uint32_t inlay_task_word_(const struct inlay_task *t)
{
	uint32_t word;

	__builtin_memcpy(&word, &t->state, sizeof(word));
	return word;
}

/* Opens a window over len bytes of a buffer: posts the bind. The ring has room. */
INLAY_COLD void inlay_task_keys_bind_(struct inlay_task *t, uint32_t what, const struct inlay_buf *buf, uint32_t len,
				      uint8_t **key)
{
	struct inlay_sq *sq = &t->host->link.sq;
	struct ibv_sge memory = inlay_buf_sge(buf);
	uint32_t now = t->rkey[what], access = what ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
	struct inlay_umr umr;

	memory.length = len;
	t->rkey[what] = (now & ~0xffu) | ((now + 1) & 0xff);
	inlay_umr_window(inlay_sq_qpn(sq), t->rkey[what], &memory, access | IBV_ACCESS_ZERO_BASED, &umr);
	inlay_had_room_(inlay_post_umr(sq, now, &umr, 0));
	inlay_task_key_write_(key, t->rkey[what], len);
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

	if (!t->rkey[0])
		return -E2BIG;
	while (flags & INLAY_TASK_PAYLOAD_KEY && !inlay_buf_data_len(buf)) /* one buffer has all of the data */
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
			inlay_had_room_(inlay_post_local_inv(sq, t->rkey[i], INLAY_SIGNALED));
	inlay_sq_ring(sq);
	t->end = inlay_sq_index(sq);
	t->held = INLAY_TASK_HELD_SEND;
}

/* Ends a submit: the task is the host's. */
INLAY_ALWAYS int inlay_task_submitted_(struct inlay_task *t)
{
	t->end = inlay_sq_index(&t->host->link.sq);
	t->state = INLAY_TASK_SUBMITTED;
	t->host->outstanding++;
	return 0;
}

/* Posts a command by keys, from a list or the caller's buffers, or gathered. */
INLAY_APART int inlay_task_submit_sges_(struct inlay_task *t, uint32_t flags)
{
	struct inlay_task_host *h = t->host;
	uint64_t total = inlay_buf_list_bytes(t->payload);
	uint32_t keys = 0, bytes = INLAY_TASK_HEAD;
	uint64_t room = 0;
	struct ibv_sge sge[INLAY_TASK_GATHER];
	uint8_t head[INLAY_TASK_MESSAGE_MIN];
	int num, err;

	INLAY_CHECK(inlay_buf_refcount(t->payload) && inlay_buf_is_first(t->payload), "the payload is a list's head");
	num = inlay_buf_sges(t->payload, sge, h->params.max_gather);
	if (t->response) {
		INLAY_CHECK(inlay_buf_refcount(t->response) && inlay_buf_list_len(t->response) == 1,
			    "the response is a single buffer");
		room = (uintptr_t)inlay_buf_head(t->response) + inlay_buf_len(t->response) -
		       (uintptr_t)inlay_buf_data(t->response);
		keys = room > h->response_max ? INLAY_TASK_RESPONSE_KEY : 0;
		bytes += keys ? INLAY_TASK_KEY : 0;
		room = room > INLAY_SGE_MAX ? INLAY_SGE_MAX : room;
	}
	if (total > h->payload_max + INLAY_TASK_HEAD - bytes) {
		if (total > h->link.peer.largest || total > INLAY_SGE_MAX || num != 1)
			return -E2BIG;
		keys |= INLAY_TASK_PAYLOAD_KEY;
		bytes += INLAY_TASK_KEY;
		num = 0;
	} else if (num < 0) {
		return -E2BIG;
	} else if (num && (t->payload != t->own_payload || inlay_buf_next(t->payload))) {
		flags |= INLAY_SIGNALED; /* some of it is the caller's, until its completion */
	}
	inlay_task_head_write_(head, inlay_task_first_(INLAY_TASK_COMMAND, keys, (uint32_t)total), &t->ids);
	if (keys) {
		err = inlay_task_keys_open_(t, keys, (uint32_t)total, (uint32_t)room, inlay_task_bbs_(bytes, (uint32_t)num),
					    head + INLAY_TASK_HEAD);
		if (err)
			return err;
		/* The worker must not see a key before its window is open. */
		flags |= INLAY_SIGNALED | INLAY_FENCE_INITIATOR_SMALL;
	}
	if (inlay_task_post_sges_(&h->link.sq, head, bytes, sge, (uint32_t)num, h->half, flags))
		return -EAGAIN; /* with keys, open has checked the room */
	t->held = (uint8_t)(keys | (flags & INLAY_SIGNALED ? INLAY_TASK_HELD_SEND : 0));
	return inlay_task_submitted_(t);
}

/* Slow path of submit: a single buffer, of any length. */
INLAY_APART int inlay_task_submit_long_(struct inlay_task *t, uint32_t flags)
{
	struct inlay_task_host *h = t->host;
	struct ibv_sge sge = inlay_buf_sge(t->payload);
	const uint64_t first = inlay_task_first_(INLAY_TASK_COMMAND, 0, sge.length);
	struct inlay_cursor at;

	if (sge.length <= h->max_inline) {
		if (inlay_task_post_inline_(&h->link.sq, first, &t->ids, inlay_buf_data(t->payload), sge.length, h->half, flags))
			return -EAGAIN;
		return inlay_task_submitted_(t);
	}
	if (t->other || sge.length > h->payload_max || inlay_buf_data(t->payload) != inlay_buf_head(t->payload))
		return inlay_task_submit_sges_(t, flags);
	/* Gathers the task's own buffer: the head goes to the line before it, so that one SGE covers both. */
	if (INLAY_UNLIKELY(inlay_sq_begin(&h->link.sq, 1, &at)))
		return -EAGAIN;
	sge.addr -= INLAY_TASK_HEAD;
	inlay_task_head_write_((uint8_t *)(uintptr_t)sge.addr, first, &t->ids);
	at = inlay_seg_data(at, sge.addr, INLAY_TASK_HEAD + sge.length, sge.lkey);
	if ((at.index & h->half) == h->half)
		flags |= INLAY_SIGNALED;
	(void)inlay_sq_finish_(&h->link.sq, at, MLX5_OPCODE_SEND, 0, flags, 0);
	return inlay_task_submitted_(t);
}

/* Slow path of submit: errors, lists, the caller's buffers. */
INLAY_APART int inlay_task_submit_other_(struct inlay_task *t, uint32_t flags)
{
	const struct inlay_task_host *h = t->host;

	if (t->state != INLAY_TASK_IDLE)
		return -EBUSY;
	if (h->outstanding >= h->limit)
		return h->limit ? -EAGAIN : -ENOTCONN;
	return inlay_buf_next(t->payload) || t->response ? inlay_task_submit_sges_(t, flags) : inlay_task_submit_long_(t, flags);
}

/*
 * Posts the task's command.
 *
 * flags  0 or INLAY_RING: rings for it and for all posted before. Without it, the worker gets the
 *        command with the next doorbell: inlay_sq_ring(&host.link.sq)
 *
 * Returns 0: the task is the host's until its callback. Otherwise it is unchanged: -EAGAIN when the
 * limit is reached or the ring is full: ring, progress, try again; -EBUSY unless IDLE; -E2BIG when
 * the payload or the response fits neither a message nor a key; -EPERM when memory needs a window
 * but its map does not permit INLAY_MW_BIND; -ENOTCONN when the host is not connected.
 */
INLAY_ALWAYS int inlay_task_submit(struct inlay_task *t, uint32_t flags)
{
	struct inlay_task_host *h = t->host;
	const struct inlay_buf *payload = t->payload;
	struct inlay_sq *sq = &h->link.sq;
	uint32_t len = (uint32_t)inlay_buf_data_len(payload);
	struct inlay_cursor at;

	INLAY_CHECK(!(flags & ~INLAY_RING), "submit's flag is INLAY_RING");
	if (INLAY_UNLIKELY(inlay_task_word_(t) != INLAY_TASK_IDLE) || INLAY_UNLIKELY(h->outstanding >= h->limit) ||
	    INLAY_UNLIKELY(inlay_buf_next(payload) != NULL))
		return inlay_task_submit_other_(t, flags);
	if (INLAY_UNLIKELY(len > INLAY_TASK_SHORT) || INLAY_UNLIKELY(!(~inlay_sq_index(sq) & h->half)) ||
	    INLAY_UNLIKELY(inlay_sq_begin(sq, 1, &at)))
		return inlay_task_submit_long_(t, flags);
	/* All 12 bytes: what follows a shorter payload lies in the host's memory, and is not sent. */
	__builtin_memcpy(at.wqe + INLAY_WQEBB - INLAY_TASK_SHORT, inlay_buf_data(payload), INLAY_TASK_SHORT);
	inlay_put32(at.wqe + INLAY_DS, inlay_to_be32((INLAY_TASK_HEAD + len) | (uint32_t)MLX5_INLINE_SEG));
	inlay_task_head_write_(at.wqe + INLAY_DS + 4, inlay_task_first_(INLAY_TASK_COMMAND, 0, len), &t->ids);
	at.ds = INLAY_WQEBB / INLAY_DS; /* a constant, whatever the length */
	(void)inlay_sq_finish_(sq, at, MLX5_OPCODE_SEND, 0, flags, 0);
	t->end = at.index + 1;
	t->state = INLAY_TASK_SUBMITTED;
	h->outstanding++;
	return 0;
}

#endif
