/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/task.h: a task: one command from a host to a worker, and its answer. Allocate, fill,
 * submit, cancel, revoke, release.
 *
 *   inlay_task_alloc(&host, PLUGIN, done, &task);
 *   buf = inlay_task_payload(task);
 *   n = pack(inlay_buf_head(buf), inlay_buf_len(buf));
 *   inlay_buf_set_data(buf, inlay_buf_head(buf), n);
 *   inlay_task_submit(task);              one WQE and a doorbell; -EAGAIN: full, try again
 *   done(task, ...)                       from inlay_task_host_progress (host.h)
 *           inlay_task_status(task), inlay_task_response(task)
 *           then submit it again, release it or keep it
 *
 * Every submitted task completes once, with one call of its callback:
 *
 *   what                               status                  inlay_task_by
 *   the handler answered               0 or its errno          INLAY_TASK_BY_HANDLER
 *   no such plugin                     -ENOENT                 INLAY_TASK_BY_WORKER
 *   the command is malformed           -EBADMSG                INLAY_TASK_BY_WORKER
 *   payload too large for the worker   -E2BIG                  INLAY_TASK_BY_WORKER
 *   its deadline passed                -ETIMEDOUT              INLAY_TASK_BY_HOST
 *   it was cancelled                   -ECANCELED              INLAY_TASK_BY_HOST
 *   its answer is malformed            -EBADMSG                INLAY_TASK_BY_HOST
 *   response too long for the buffer   -EMSGSIZE               INLAY_TASK_BY_HOST
 *   the worker died or is unreachable  -ECONNRESET             INLAY_TASK_BY_CONNECTION
 *   connection broken or stopped       -ECONNABORTED           INLAY_TASK_BY_CONNECTION
 *
 * States
 *
 *   FREE --alloc--> IDLE --submit--> SUBMITTED --answer--> [CLOSING] --> callback: IDLE
 *                               --deadline, cancel, end--> DUE --> callback: QUARANTINE or IDLE
 *   IDLE --release--> FREE                      QUARANTINE --> params.reusable: IDLE
 *
 *               FREE      IDLE      SUBMITTED      CLOSING, DUE   QUARANTINE
 *   submit      -EBUSY    0         -EBUSY         -EBUSY         -EBUSY
 *   set_...     -EBUSY    0         -EBUSY         -EBUSY         -EBUSY
 *   release     -EBADFD   0         -EPERM         -EPERM         -EBUSY
 *   cancel      -EBADFD   -EBADFD   0              -EBUSY         -EBADFD
 *   revoke      -EBADFD   -EBADFD   -EBADFD        -EBADFD        0
 *   status      -         as last   -EINPROGRESS   -EINPROGRESS   as last
 *
 * Payload. A task has a buffer of params.payload bytes; inlay_task_set_payload replaces it with the
 * caller's buffer or list. Up to params.max_inline bytes are copied into the WQE, except from a
 * list or with a response buffer. Longer payloads that fit a message are gathered. A single buffer
 * that does not fit goes by key: the worker reads it through a memory window.
 *
 * Response. It stays in the answer until the task is submitted or released. With a buffer set by
 * inlay_task_set_response it goes there: copied, or, if the buffer is larger than an answer's
 * space, written by the worker through a window.
 *
 * Windows are bound at submit and closed before the task completes. They need params.windows, and a
 * map that permits INLAY_MW_BIND. The caller's memory must stay registered and unchanged from
 * submit to the callback, or to the end of quarantine.
 *
 * Quarantine. A task that completes without an answer is in quarantine while the device could still
 * read its payload, or the worker use its windows. Its windows are closed after the late answer or
 * inlay_task_revoke; a worker that uses them afterwards breaks the connection. Once the connection
 * has ended, quarantine lasts until the device has returned everything. At the end, params.reusable
 * is called. The worker may still execute such a command.
 *
 * Threads: a host and its tasks have one owner at a time.
 * Sources: DOCA's documentation of doca_urom and doca_pe; the InfiniBand specification on type 2
 * memory windows; Linux's nvme-rdma, which waits for a command's send as well as its answer.
 */
#ifndef INLAY_TASK_TASK_H
#define INLAY_TASK_TASK_H

#include <inlay/buf.h>
#include <inlay/mmap.h>
#include <inlay/queue/umr.h>
#include <inlay/task/link.h>

#define INLAY_TASK_NEVER UINT64_MAX     /* no deadline */
#define INLAY_TASK_NONE 0xffffffffu     /* no index */
#define INLAY_TASK_MAX 65536u           /* tasks of a host */
#define INLAY_TASK_USER 32u             /* bytes for the caller in each task */

struct inlay_task;
struct inlay_task_host;

/* user_data: the task's; host_user_data: params.user_data */
typedef void (*inlay_task_cb)(struct inlay_task *task, uint64_t user_data, uint64_t host_user_data);

enum inlay_task_state {
	INLAY_TASK_FREE,
	INLAY_TASK_IDLE,
	INLAY_TASK_SUBMITTED,
	INLAY_TASK_CLOSING,             /* answered, but its windows are open or its send is not done */
	INLAY_TASK_DUE,                 /* completed without an answer; its callback comes next */
	INLAY_TASK_QUARANTINE,
};

/* Who completed a task */
enum inlay_task_by {
	INLAY_TASK_BY_NOBODY,           /* it never completed */
	INLAY_TASK_BY_HANDLER,
	INLAY_TASK_BY_WORKER,
	INLAY_TASK_BY_HOST,
	INLAY_TASK_BY_CONNECTION,
};

/* Flags: what holds a task's memory, and how it is released. None when IDLE. */
enum inlay_task_held_ {
	INLAY_TASK_HELD_PAYLOAD = 1,    /* the payload's window is open */
	INLAY_TASK_HELD_RESPONSE = 2,   /* the response's window is open */
	INLAY_TASK_HELD_WINDOWS = 3,
	INLAY_TASK_HELD_SEND = 4,       /* the device gathers from the caller's memory */
	INLAY_TASK_HELD_MEMORY = 7,
	INLAY_TASK_HELD_CLOSE = 8,      /* post the WQE whose completion releases the memory */
	INLAY_TASK_HELD_CLOSED = 16,    /* posted: the memory is released when all before `end` is done */
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
	uint8_t by;                     /* enum inlay_task_by */
	uint8_t listed;                 /* in the host's list of tasks to settle */
	uint32_t end;                   /* inlay_sq_index after its last post */
	int status;
	uint32_t response_len;          /* may be read; with -EMSGSIZE, the length that did not fit */
	uint64_t user_data;             /* the caller's, in any state, for the callback; 0 after alloc */
	uint8_t user[INLAY_TASK_USER];  /* the caller's, in any state; zeroed by alloc */
	uint64_t deadline;              /* the caller's, while IDLE, for one submit, in the time of progress */
	struct inlay_buf *response;     /* the caller's, or NULL */
	struct inlay_buf *own_payload;
	struct inlay_buf *own_response; /* in the slot */
	struct inlay_task *next;        /* in the list of free tasks, or of those to settle */
	uint32_t windows[2];            /* of payload and response */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_task) == 3 * INLAY_CACHE_LINE, "a task is three lines");
INLAY_STATIC_ASSERT(offsetof(struct inlay_task, status) == INLAY_CACHE_LINE, "the first is the queue's");
INLAY_STATIC_ASSERT(offsetof(struct inlay_task, own_payload) == 2 * INLAY_CACHE_LINE, "the last is rarely used");

/* A type 2 memory window */
struct inlay_task_window_ {
	struct ibv_mw *mw;
	uint32_t rkey;
	uint32_t next;                  /* in the list of free windows */
};

/* A host's parameters. Start from inlay_task_host_default. */
struct inlay_task_host_params {
	struct inlay_connect_attr path;
	uint32_t tasks;                 /* at most INLAY_TASK_MAX */
	uint32_t in_flight;             /* a power of two, at most INLAY_TASK_RECEIVES_MAX */
	uint32_t message;               /* bytes of the longest answer, head included */
	uint32_t payload;               /* bytes of each task's own payload buffer */
	uint32_t max_inline;            /* bytes of payload copied into a WQE; at most 512 */
	uint32_t max_gather;            /* SGEs of a payload that is a list; at most 16 */
	uint32_t windows;               /* payloads and responses by key at a time */
	uint32_t events;                /* 1: with a completion channel, to sleep on */
	uint64_t period;                /* between probes, in the caller's unit of time; 0: none */
	uint64_t user_data;             /* for callbacks */
	uint64_t id;                    /* told to the worker in the address */
	inlay_task_cb reusable;         /* called when a task leaves quarantine; may be NULL */
};

/* A host; host.h */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_task_host {
	struct inlay_task *tasks;
	uint64_t due;                   /* when something besides the CQ needs progress; 0: at once */
	uint64_t earliest;              /* no submitted task has an earlier deadline */
	uint32_t outstanding;           /* may be read: commands without an answer */
	uint32_t limit;                 /* may be read: maximum of outstanding; 0: not connected */
	uint32_t max_inline;
	uint32_t quarter;               /* of inlay_task_post_inline_ */
	uint32_t num;                   /* tasks */
	uint32_t message;               /* bytes of a slot */
	struct inlay_task *free;        /* list of free tasks */
	uint64_t user_data;
	uint8_t *slots;
	uint8_t **slot_of;              /* the slot of each receive */
	uint64_t now;                   /* of this progress */
	struct inlay_task *first;       /* list of tasks to settle: callback due, or waiting */
	struct inlay_task *last;
	uint32_t mask;                  /* receives - 1 */
	uint32_t lkey;
	uint32_t payload_max;           /* bytes of payload in a command without keys */
	uint32_t response_max;          /* bytes of response in an answer */
	uint32_t strays;                /* may be read: messages that name no task, or with none outstanding */
	int broken;                     /* may be read: 0, -ECONNRESET or -ECONNABORTED */
	struct inlay_cq cq __attribute__((aligned(INLAY_CACHE_LINE)));
	struct inlay_task_link link;
	/* Rarely used */
	struct inlay_mmap mmap;
	struct inlay_inventory *inventory;
	struct inlay_task_window_ *windows;
	uint32_t num_windows;
	uint32_t free_window;
	uint32_t marked;                /* broken, and the last WQE, a signaled NOP, is posted */
	uint32_t owed;                  /* the host itself has posted something to ring for */
	uint32_t probe_end;             /* inlay_sq_index after the last probe */
	uint64_t probe_at;
	struct inlay_task_host_params params;
	struct ibv_pd *pd;
	struct ibv_cq *ibcq;
	struct ibv_mr *mr;
	struct ibv_comp_channel *channel;
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_task_host, slots) == INLAY_CACHE_LINE,
		    "a submit touches one line of its host");
INLAY_STATIC_ASSERT(offsetof(struct inlay_task_host, cq) == 2 * INLAY_CACHE_LINE, "a completion touches two");

/* ---- Data path: a task, then submitting ---- */

/* Appends a task to the list that progress settles, if it is not there. */
INLAY_COLD void inlay_task_list_(struct inlay_task *t)
{
	struct inlay_task_host *h = t->host;

	if (t->listed)
		return;
	t->listed = 1;
	t->next = NULL;
	if (h->first)
		h->last->next = t;
	else
		h->first = t;
	h->last = t;
}

/* Has progress release the task's memory. */
INLAY_COLD void inlay_task_let_go_(struct inlay_task *t)
{
	t->held |= INLAY_TASK_HELD_CLOSE;
	inlay_task_list_(t);
	t->host->due = 0;
}

/* Completes a submitted task without its answer. */
INLAY_COLD void inlay_task_end_(struct inlay_task *t, int status, enum inlay_task_by by)
{
	t->status = status;
	t->by = (uint8_t)by;
	t->response_len = 0;
	t->state = INLAY_TASK_DUE;
	if (!(t->held & INLAY_TASK_HELD_WINDOWS))
		t->held |= INLAY_TASK_HELD_CLOSE;
	inlay_task_list_(t);
	t->host->due = 0;
}

/* Unchains what was chained to the task's own payload buffer. */
INLAY_FN void inlay_task_unchain_(const struct inlay_task *t)
{
	struct inlay_buf *next = inlay_buf_next(t->own_payload);

	if (INLAY_UNLIKELY(next != NULL))
		inlay_buf_unchain_list(t->own_payload, next);
}

/*
 * Allocates a task: IDLE, with its own payload buffer (empty), destination 0, no deadline, user
 * data 0. cb may be NULL. Returns 0, or -EAGAIN when none is free.
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
	t->response = NULL;
	t->cb = cb;
	t->deadline = INLAY_TASK_NEVER;
	t->status = 0;
	t->response_len = 0;
	t->user_data = 0;
	__builtin_memset(t->user, 0, sizeof(t->user));
	t->state = INLAY_TASK_IDLE;
	t->by = INLAY_TASK_BY_NOBODY;
	*task = t;
	return 0;
}

/*
 * Frees a task. Buffers chained to its own payload buffer become a list of their own. Returns 0;
 * -EPERM from submit until the callback; -EBUSY in quarantine; -EBADFD for a free task.
 */
INLAY_FN int inlay_task_release(struct inlay_task *t)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return t->state == INLAY_TASK_FREE ? -EBADFD : t->state == INLAY_TASK_QUARANTINE ? -EBUSY : -EPERM;
	t->state = INLAY_TASK_FREE;
	inlay_task_unchain_(t);
	t->next = t->host->free;
	t->host->free = t;
	return 0;
}

/*
 * Completes a submitted task without its answer: its callback comes with the next progress. Returns
 * 0; -EBUSY when it was answered or has completed; -EBADFD when it was not submitted.
 */
INLAY_COLD int inlay_task_cancel(struct inlay_task *t)
{
	if (t->state != INLAY_TASK_SUBMITTED)
		return t->state == INLAY_TASK_CLOSING || t->state == INLAY_TASK_DUE ? -EBUSY : -EBADFD;
	inlay_task_end_(t, -ECANCELED, INLAY_TASK_BY_HOST);
	return 0;
}

/* Closes the windows of a task in quarantine, in a later progress. Returns 0 or -EBADFD. */
INLAY_COLD int inlay_task_revoke(struct inlay_task *t)
{
	if (t->state != INLAY_TASK_QUARANTINE)
		return -EBADFD;
	inlay_task_let_go_(t);
	return 0;
}

/* Sets the plugin that handles the command, by id. All setters return 0, or -EBUSY unless IDLE. */
INLAY_FN int inlay_task_set_plugin(struct inlay_task *t, uint64_t plugin)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->ids.plugin = plugin;
	return 0;
}

INLAY_FN int inlay_task_set_cb(struct inlay_task *t, inlay_task_cb cb)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->cb = cb;
	return 0;
}

/*
 * Sets the caller's buffer, or the head of a list, as the payload; NULL: the task's own again. The
 * caller keeps its reference. In a list, the task's own buffer may only be the head.
 */
INLAY_FN int inlay_task_set_payload(struct inlay_task *t, struct inlay_buf *payload)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->payload = payload ? payload : t->own_payload;
	return 0;
}

/*
 * Sets the caller's buffer for the response, which may go from the start of the buffer's data to
 * the buffer's end; not a list; NULL: the response stays in the answer. Submit empties the data.
 * The caller keeps its reference.
 */
INLAY_FN int inlay_task_set_response(struct inlay_task *t, struct inlay_buf *response)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->response = response;
	return 0;
}

/* The payload's buffer, whose data is sent. Do not give back the task's own. */
INLAY_FN struct inlay_buf *inlay_task_payload(const struct inlay_task *t)
{
	return t->payload;
}

/*
 * The response of the last completion, empty if there is none: in the caller's buffer, or in the
 * answer. The latter is valid until the task is submitted or released; do not give it back.
 */
INLAY_FN struct inlay_buf *inlay_task_response(const struct inlay_task *t)
{
	struct inlay_task_host *h = t->host;
	struct inlay_buf *buf = t->response;

	if (buf)
		return buf;
	buf = t->own_response;
	buf->head = t->slot;
	buf->len = h->message;
	/* A longer response was written to a buffer. */
	(void)inlay_buf_set_data(buf, t->slot + INLAY_TASK_HEAD,
				 t->response_len <= h->response_max ? t->response_len : 0);
	return buf;
}

/* 0 or the negative errno of the last completion; -EINPROGRESS from submit until the callback. */
INLAY_FN int inlay_task_status(const struct inlay_task *t)
{
	return INLAY_LIKELY(t->state == INLAY_TASK_IDLE || t->state == INLAY_TASK_QUARANTINE) ? t->status :
												-EINPROGRESS;
}

/* Who completed the task last: tells the handler's -ENOENT from the worker's. */
INLAY_FN enum inlay_task_by inlay_task_by(const struct inlay_task *t)
{
	return (enum inlay_task_by)t->by;
}

/* Accounts for a command that was posted. */
INLAY_ALWAYS int inlay_task_posted_(struct inlay_task *t, struct inlay_task_host *h, uint32_t held)
{
	t->end = inlay_sq_index(&h->link.sq);
	t->state = INLAY_TASK_SUBMITTED;
	t->held = (uint8_t)held;
	t->by = INLAY_TASK_BY_NOBODY;
	h->outstanding++;
	if (INLAY_UNLIKELY(t->deadline < h->earliest)) {
		h->earliest = t->deadline;
		if (h->due > t->deadline)
			h->due = t->deadline;
	}
	return 0;
}

/* Bytes for a response in the caller's buffer, at most what a window can cover. */
INLAY_FN uint32_t inlay_task_response_room_(const struct inlay_buf *buf)
{
	uint64_t room = inlay_buf_len(buf) - ((uintptr_t)inlay_buf_data(buf) - (uintptr_t)inlay_buf_head(buf));

	return room > INLAY_SGE_MAX ? INLAY_SGE_MAX : (uint32_t)room;
}

/* Opens a window over len bytes of a buffer: posts the bind. The ring has room. */
INLAY_COLD void inlay_task_open_(struct inlay_task *t, uint32_t what, const struct inlay_buf *buf, uint32_t len,
				 uint8_t **key)
{
	struct inlay_task_host *h = t->host;
	struct inlay_task_window_ *w = &h->windows[h->free_window];
	struct ibv_sge memory = {(uintptr_t)inlay_buf_data(buf), len, inlay_buf_lkey(buf)};
	uint32_t now = w->rkey, access = what ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
	struct inlay_umr umr;

	t->windows[what] = h->free_window;
	h->free_window = w->next;
	w->rkey = (now & ~0xffu) | ((now + 1) & 0xff);
	inlay_umr_window(inlay_sq_qpn(&h->link.sq), w->rkey, &memory, access | IBV_ACCESS_ZERO_BASED, &umr);
	inlay_had_room_(inlay_post_umr(&h->link.sq, now, &umr, 0));
	inlay_task_key_write_(key, w->rkey, len);
}

/* Whether a window may be bound to a buffer: otherwise the bind would break the connection. */
INLAY_COLD int inlay_task_bindable_(const struct inlay_buf *buf)
{
	return inlay_buf_lkey(buf) != INLAY_NO_KEY && inlay_buf_access(buf) & INLAY_MW_BIND;
}

/*
 * Submits that are not common, and all refusals.
 *
 *   +0   umr      opens a window: 3 WQEBBs for each key
 *   +0   ctrl     SEND, index, QPN, DS                        with a fence after binds
 *   +16  inline   byte count | head of 32 bytes, keys
 *   +64  data     pointers to the payload, unless it goes by key
 */
INLAY_FN int inlay_task_submit_other_(struct inlay_task *t, int ring)
{
	struct inlay_task_host *h = t->host;
	struct inlay_sq *sq = &h->link.sq;
	uint64_t total = inlay_buf_list_bytes(t->payload);
	uint32_t segs = inlay_buf_segs(t->payload), response = 0, flags = 0, windows, bbs, held = 0, how;
	const struct inlay_buf *keyed = t->payload;
	uint8_t head[INLAY_TASK_MESSAGE_MIN], *key = head + INLAY_TASK_HEAD;
	struct inlay_cursor at;

	if (t->state != INLAY_TASK_IDLE)
		return -EBUSY;
	if (h->outstanding >= h->limit)
		return h->limit ? -EAGAIN : -ENOTCONN;
	if (t->response) {
		response = inlay_task_response_room_(t->response);
		flags = response > h->response_max ? INLAY_TASK_RESPONSE_KEY : 0;
	}
	if (total > h->payload_max - (flags ? INLAY_TASK_KEY : 0)) {
		flags |= INLAY_TASK_PAYLOAD_KEY;
		if (total > h->link.peer.largest || total > INLAY_SGE_MAX || segs > 1)
			return -E2BIG;
		segs = 0;
		while (!inlay_buf_data_len(keyed)) /* one of a list has all of it */
			keyed = inlay_buf_next(keyed);
	} else if (segs > h->params.max_gather) {
		return -E2BIG;
	} else if (segs && (t->payload != t->own_payload || inlay_buf_next(t->payload))) {
		held = INLAY_TASK_HELD_SEND; /* some of it is the caller's */
	}
	windows = (flags & 1u) + (flags >> 1);
	if (windows > h->num_windows)
		return -E2BIG;
	if ((flags & INLAY_TASK_PAYLOAD_KEY && !inlay_task_bindable_(keyed)) ||
	    (flags & INLAY_TASK_RESPONSE_KEY && !inlay_task_bindable_(t->response)))
		return -EPERM;
	bbs = (1 + (4 + INLAY_TASK_HEAD + windows * INLAY_TASK_KEY + INLAY_DS - 1) / INLAY_DS + segs + 3) / 4;
	if (inlay_sq_room(sq) < 3 * windows + bbs || (windows && h->free_window == INLAY_TASK_NONE) ||
	    (windows == 2 && h->windows[h->free_window].next == INLAY_TASK_NONE))
		return -EAGAIN;
	/* The send and the windows release their memory by a completion. */
	how = held || windows || (inlay_sq_index(sq) & h->quarter) + bbs > h->quarter ? INLAY_SIGNALED : 0;
	if (windows)
		how |= INLAY_FENCE_INITIATOR_SMALL; /* the worker must not see a key before its window is open */
	inlay_task_head_write_(head, inlay_task_first_(INLAY_TASK_COMMAND, flags, (uint32_t)total), &t->ids);
	if (flags & INLAY_TASK_PAYLOAD_KEY)
		inlay_task_open_(t, 0, keyed, (uint32_t)total, &key);
	if (flags & INLAY_TASK_RESPONSE_KEY)
		inlay_task_open_(t, 1, t->response, response, &key);
	if (INLAY_UNLIKELY(inlay_sq_begin(sq, bbs, &at)))
		return -EAGAIN; /* impossible: the room was checked */
	at = inlay_seg_inline(at, head, INLAY_TASK_HEAD + windows * INLAY_TASK_KEY);
	if (segs)
		at = inlay_seg_bufs(at, t->payload);
	inlay_sq_commit(sq, at, MLX5_OPCODE_SEND, 0, how, 0);
	if (t->response)
		(void)inlay_buf_set_data_len(t->response, 0);
	if (ring)
		inlay_sq_ring(sq);
	return inlay_task_posted_(t, h, held | flags); /* the windows' bits are the same */
}

INLAY_STATIC_ASSERT((int)INLAY_TASK_PAYLOAD_KEY == INLAY_TASK_HELD_PAYLOAD &&
		    (int)INLAY_TASK_RESPONSE_KEY == INLAY_TASK_HELD_RESPONSE,
		    "a key on the wire is an open window");

/* A submit of more than one WQEBB: inline, or gathered from the task's own buffer. */
INLAY_FN int inlay_task_submit_long_(struct inlay_task *t, const struct inlay_buf *payload, uint32_t len, int ring)
{
	struct inlay_task_host *h = t->host;
	const uint64_t first = inlay_task_first_(INLAY_TASK_COMMAND, 0, len);
	struct inlay_cursor at;
	uint8_t *before;

	if (len <= h->max_inline) {
		const void *data = inlay_buf_data(payload);
		uint32_t bbs = inlay_task_inline_bbs_(len), q = h->quarter;
		int err = len <= INLAY_TASK_SHORT + INLAY_WQEBB ?
			  inlay_task_post_inline_(&h->link.sq, 2, first, &t->ids, data, len, q, ring) :
			  inlay_task_post_inline_(&h->link.sq, bbs, first, &t->ids, data, len, q, ring);

		return INLAY_UNLIKELY(err) ? err : inlay_task_posted_(t, h, 0);
	}
	if (INLAY_UNLIKELY(payload != t->own_payload) || INLAY_UNLIKELY(len > h->payload_max) ||
	    INLAY_UNLIKELY(inlay_buf_data(payload) != inlay_buf_head(payload)))
		return inlay_task_submit_other_(t, ring);
	/* The head goes to the line before the task's own buffer, so one SGE covers both. */
	if (INLAY_UNLIKELY(inlay_sq_begin(&h->link.sq, 1, &at)))
		return -EAGAIN;
	before = (uint8_t *)inlay_buf_data(payload) - INLAY_TASK_HEAD;
	inlay_task_head_write_(before, first, &t->ids);
	at = inlay_seg_data(at, (uintptr_t)before, INLAY_TASK_HEAD + len, h->lkey);
	inlay_sq_commit(&h->link.sq, at, MLX5_OPCODE_SEND, 0,
			(at.index & h->quarter) == h->quarter ? INLAY_SIGNALED : 0, 0);
	if (ring)
		inlay_sq_ring(&h->link.sq);
	return inlay_task_posted_(t, h, 0);
}

INLAY_ALWAYS int inlay_task_submit_(struct inlay_task *t, int ring)
{
	struct inlay_task_host *h = t->host;
	const struct inlay_buf *payload = t->payload;
	uint32_t len = (uint32_t)inlay_buf_data_len(payload);

	if (INLAY_UNLIKELY(h->outstanding >= h->limit) || INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE) ||
	    INLAY_UNLIKELY(t->response != NULL) || INLAY_UNLIKELY(inlay_buf_next(payload) != NULL))
		return inlay_task_submit_other_(t, ring);
	if (INLAY_UNLIKELY(len > INLAY_TASK_SHORT))
		return inlay_task_submit_long_(t, payload, len, ring);
	if (INLAY_UNLIKELY(inlay_task_post_inline_(&h->link.sq, 1, inlay_task_first_(INLAY_TASK_COMMAND, 0, len),
						   &t->ids, inlay_buf_data(payload), len, h->quarter, ring)))
		return -EAGAIN;
	return inlay_task_posted_(t, h, 0);
}

/*
 * Posts the task's command. The worker gets it with the host's next doorbell.
 *
 * Returns 0: the task is the host's until its callback. Otherwise it is unchanged: -EAGAIN when the
 * limit is reached, the ring is full or no window is free: flush, progress, try again; -EBUSY
 * unless IDLE; -E2BIG when the payload fits neither a message nor a key; -EPERM when memory needs a
 * window but its map does not permit INLAY_MW_BIND; -ENOTCONN when the host is not connected.
 */
INLAY_ALWAYS int inlay_task_submit_quiet(struct inlay_task *t)
{
	return inlay_task_submit_(t, 0);
}

/* As inlay_task_submit_quiet, and rings. */
INLAY_ALWAYS int inlay_task_submit(struct inlay_task *t)
{
	return inlay_task_submit_(t, 1);
}

/* Rings for all posted commands, if any. */
INLAY_ALWAYS void inlay_task_host_flush(struct inlay_task_host *h)
{
	inlay_sq_ring(&h->link.sq);
}

/* Whether a submit may use this buffer and its list. keys: whether its bytes need an lkey. */
INLAY_COLD int inlay_task_usable_(struct inlay_buf *buf, int keys)
{
	if (!buf || !inlay_buf_refcount(buf) || !inlay_buf_is_first(buf))
		return 0;
	for (; buf; buf = inlay_buf_next(buf))
		if (inlay_buf_set_data_len(buf, inlay_buf_data_len(buf)) ||
		    (keys && inlay_buf_data_len(buf) && inlay_buf_lkey(buf) == INLAY_NO_KEY))
			return 0;
	return 1;
}

/*
 * As inlay_task_submit, but verifies preconditions first, for development: -EINVAL when a buffer
 * was given back, is not the head of its list, has data outside itself or lacks an lkey that it
 * needs, or when the response is a list.
 */
INLAY_COLD int inlay_task_try_submit(struct inlay_task *t)
{
	struct inlay_buf *r = t->response;

	if (t->state != INLAY_TASK_IDLE)
		return -EBUSY;
	if (!inlay_task_usable_(t->payload, 1) ||
	    (r && (!inlay_task_usable_(r, 0) || inlay_buf_next(r) ||
		   (inlay_buf_lkey(r) == INLAY_NO_KEY && inlay_task_response_room_(r) > t->host->response_max))))
		return -EINVAL;
	return inlay_task_submit(t);
}

#endif
