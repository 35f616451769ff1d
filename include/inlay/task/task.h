/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/task.h: a task: one command that a host gives to a worker, and its one answer.
 * Allocate, fill, submit, cancel, revoke, release.
 *
 *   inlay_task_alloc(&host, PLUGIN, done, &task);
 *   buf = inlay_task_payload(task);
 *   n = pack(inlay_buf_head(buf), inlay_buf_len(buf));
 *   inlay_buf_set_data(buf, inlay_buf_head(buf), n);
 *   inlay_task_submit(task);              one WQE and a doorbell; -EAGAIN: full, try again
 *   ...
 *   done(task, ...)                       from inlay_task_host_progress (host.h)
 *           inlay_task_status(task), inlay_task_response(task)
 *           then submit it again, release it or keep it
 *
 * Every submitted task completes once, by one call of its callback, whatever happens:
 *
 *   what                               status                  inlay_task_by
 *   the handler answered               0 or its errno          INLAY_TASK_BY_HANDLER
 *   no such plugin                     -ENOENT                 INLAY_TASK_BY_WORKER
 *   the worker finds it malformed      -EBADMSG                INLAY_TASK_BY_WORKER
 *   payload too large for the worker   -E2BIG                  INLAY_TASK_BY_WORKER
 *   its deadline passed                -ETIMEDOUT              INLAY_TASK_BY_HOST
 *   it was cancelled                   -ECANCELED              INLAY_TASK_BY_HOST
 *   its answer is impossible           -EBADMSG                INLAY_TASK_BY_HOST
 *   response too long for the buffer   -EMSGSIZE               INLAY_TASK_BY_HOST
 *   the worker died or is unreachable  -ECONNRESET             INLAY_TASK_BY_CONNECTION
 *   connection broken or stopped       -ECONNABORTED           INLAY_TASK_BY_CONNECTION
 *
 * States
 * ------
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
 * Payload. A task has a buffer of params.payload bytes; inlay_task_set_payload takes a buffer or
 * list of the caller's instead. Up to params.max_inline bytes are copied into the WQE, unless they
 * are a list or there is a response buffer. What else fits a message is gathered. A single larger
 * buffer goes by a key: the worker reads it through a memory window.
 *
 * Response. It stays in the answer until the task is submitted or released. A buffer of the
 * caller's (inlay_task_set_response) gets it instead, copied, or written by the worker through a
 * window if the buffer is larger than what an answer holds.
 *
 * Windows are bound at submit and closed before the task completes. They take params.windows, and a
 * map that permits INLAY_MW_BIND. Memory of the caller's must stay registered and unchanged from
 * submit to the callback, or to the end of quarantine.
 *
 * Quarantine. A task that completes without an answer may not be reused while the device could
 * still read its payload, or the worker could use its windows. It waits until its send is done and
 * its windows are closed; that happens after the late answer or inlay_task_revoke, and then a
 * worker that uses them breaks the connection. After the connection's end it waits until the
 * device has returned everything. Then params.reusable is called. The worker may still carry out
 * such a command.
 *
 * Threads: a host and its tasks have one owner at a time.
 * Sources: DOCA's documentation of doca_urom and doca_pe; the InfiniBand specification on type 2
 * memory windows; Linux's nvme-rdma, which waits for a command's send besides its answer.
 */
#ifndef INLAY_TASK_TASK_H
#define INLAY_TASK_TASK_H

#include <inlay/buf.h>
#include <inlay/mmap.h>
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
	INLAY_TASK_CLOSING,             /* answered; its windows are being closed, or its send is not done */
	INLAY_TASK_DUE,                 /* completed without answer; its callback comes next */
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

/* What holds a task's memory, and what is done about it: flags. None when IDLE. */
enum inlay_task_held_ {
	INLAY_TASK_HELD_PAYLOAD = 1,    /* the payload's window is open */
	INLAY_TASK_HELD_RESPONSE = 2,   /* the response's window is open */
	INLAY_TASK_HELD_WINDOWS = 3,
	INLAY_TASK_HELD_SEND = 4,       /* the device gathers from the caller's memory */
	INLAY_TASK_HELD_MEMORY = 7,
	INLAY_TASK_HELD_CLOSE = 8,      /* a completion after which nothing is held is to be asked for */
	INLAY_TASK_HELD_CLOSED = 16,    /* it was: when everything before `end` is done */
};

/* A task. Its first line is the queue's, the second the caller's, the third seldom used. */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_task {
	struct inlay_task_host *host;
	struct inlay_task_ids ids;      /* destination: the caller's, while IDLE. context: index below generation */
	struct inlay_buf *payload;
	inlay_task_cb cb;
	uint8_t *slot;                  /* where its last answer lies */
	uint8_t state;                  /* enum inlay_task_state */
	uint8_t held;                   /* enum inlay_task_held_ */
	uint8_t by;                     /* enum inlay_task_by */
	uint8_t listed;                 /* in the host's list of tasks to settle */
	uint32_t end;                   /* inlay_sq_index after what was posted for it last */
	int status;
	uint32_t response_len;          /* may be read: with -EMSGSIZE, how long the response would have been */
	uint64_t user_data;             /* the caller's, in any state, for the callback; 0 after alloc */
	uint8_t user[INLAY_TASK_USER];  /* the caller's, in any state; zeroed by alloc */
	uint64_t deadline;              /* the caller's, while IDLE, for one submit, in progress's time */
	struct inlay_buf *response;     /* the caller's, or NULL */
	struct inlay_buf *own_payload;
	struct inlay_buf *own_response; /* over the slot */
	struct inlay_task *next;        /* in the list of free tasks, or of those to settle */
	uint32_t windows[2];            /* of payload and response */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_task) == 3 * INLAY_CACHE_LINE, "a task is three lines");
INLAY_STATIC_ASSERT(offsetof(struct inlay_task, status) == INLAY_CACHE_LINE, "the first is the queue's");
INLAY_STATIC_ASSERT(offsetof(struct inlay_task, own_payload) == 2 * INLAY_CACHE_LINE, "the last is seldom used");

/* A type 2 memory window */
struct inlay_task_window_ {
	struct ibv_mw *mw;
	uint32_t rkey;
	uint32_t next;                  /* free ones */
};

/* What a host is to be. Start from inlay_task_host_default. */
struct inlay_task_host_params {
	struct inlay_connect_attr path;
	uint32_t tasks;                 /* at most INLAY_TASK_MAX */
	uint32_t in_flight;             /* a power of two, at most INLAY_TASK_RECEIVES_MAX */
	uint32_t message;               /* bytes of the longest answer that it receives, with its head */
	uint32_t payload;               /* bytes of each task's own payload buffer */
	uint32_t max_inline;            /* bytes of payload copied into a WQE; at most 512 */
	uint32_t max_gather;            /* pieces of a payload that is a list; at most 16 */
	uint32_t windows;               /* payloads and responses by key at a time */
	uint32_t events;                /* 1: with a completion channel, to sleep on */
	uint64_t period;                /* between probes, in the caller's unit of time; 0: none */
	uint64_t user_data;             /* for callbacks */
	uint64_t id;                    /* told to the worker in the address */
	inlay_task_cb reusable;         /* called when a task leaves quarantine; NULL: not */
};

/* A worker as the host sees it; host.h. */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_task_host {
	struct inlay_task *tasks;
	uint64_t due;                   /* when something besides the CQ needs progress; 0: at once */
	uint64_t earliest;              /* no submitted task has an earlier deadline */
	uint32_t outstanding;           /* may be read: commands posted and not answered */
	uint32_t limit;                 /* may be read: of them; 0: not connected, or no longer */
	uint32_t max_inline;
	uint32_t quarter;               /* of the send ring, as inlay_task_post_inline_ */
	uint32_t num;                   /* tasks */
	uint32_t message;               /* bytes of a slot */
	struct inlay_task *free;        /* list of free tasks */
	uint64_t user_data;
	uint8_t *slots;
	uint8_t **slot_of;              /* which slot each receive has */
	uint64_t now;                   /* of this progress */
	struct inlay_task *first;       /* list of tasks to settle: callback due, or waiting */
	struct inlay_task *last;
	uint32_t mask;                  /* receives - 1 */
	uint32_t lkey;
	uint32_t payload_max;           /* bytes of payload in a command without keys */
	uint32_t response_max;          /* bytes of response in an answer */
	uint32_t strays;                /* may be read: what names no task, or came though nothing was outstanding */
	int broken;                     /* may be read: -ECONNRESET or -ECONNABORTED; 0: it is not */
	struct inlay_cq cq __attribute__((aligned(INLAY_CACHE_LINE)));
	struct inlay_task_link link;
	/* Seldom */
	struct inlay_mmap mmap;
	struct inlay_inventory *inventory;
	struct inlay_task_window_ *windows;
	uint32_t num_windows;
	uint32_t free_window;
	uint32_t marked;                /* a broken connection's last WQE is posted: one with a completion */
	uint32_t owed;                  /* the ring has something of the host's own to ring for */
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

/* ------------------------------------------------------------------------------------------------
 * Data path: a task, then submitting
 */

/* Appends a task to those that progress settles, if it is not there. */
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

/* The task's memory is to be let go as soon as it can be. */
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

/* The task's own payload buffer without what was chained to it. */
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
	inlay_buf_set_data(t->payload, inlay_buf_head(t->payload), 0);
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
 * Gives a task back. What was chained to its own payload buffer becomes a list of its own.
 * Returns 0; -EPERM until its callback; -EBUSY in quarantine; -EBADFD when it is not allocated.
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
 * Gives up waiting for a submitted task's answer: its callback comes with the next progress.
 * Returns 0; -EBUSY when it was answered or has completed; -EBADFD when it was not submitted.
 */
INLAY_COLD int inlay_task_cancel(struct inlay_task *t)
{
	if (t->state != INLAY_TASK_SUBMITTED)
		return t->state == INLAY_TASK_CLOSING || t->state == INLAY_TASK_DUE ? -EBUSY : -EBADFD;
	inlay_task_end_(t, -ECANCELED, INLAY_TASK_BY_HOST);
	return 0;
}

/* Closes the windows of a task in quarantine: that ends in a later progress. 0 or -EBADFD. */
INLAY_COLD int inlay_task_revoke(struct inlay_task *t)
{
	if (t->state != INLAY_TASK_QUARANTINE)
		return -EBADFD;
	inlay_task_let_go_(t);
	return 0;
}

/* Which plugin has the command, by its id. All setters return 0, or -EBUSY unless IDLE. */
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
 * Sets a buffer of the caller's, or a list by its head, as the payload; NULL: the task's own again.
 * The caller keeps its reference. Of a list with the task's own buffer, that one must be the head.
 */
INLAY_FN int inlay_task_set_payload(struct inlay_task *t, struct inlay_buf *payload)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->payload = payload ? payload : t->own_payload;
	return 0;
}

/*
 * Sets a buffer of the caller's for the response, from the start of its data to its end; not a
 * list; NULL: the response stays in the answer. Its data is empty from submit on. The caller keeps
 * its reference.
 */
INLAY_FN int inlay_task_set_response(struct inlay_task *t, struct inlay_buf *response)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->response = response;
	return 0;
}

/* The payload's buffer. Its data is what is sent. The task's own is not to be given back. */
INLAY_FN struct inlay_buf *inlay_task_payload(const struct inlay_task *t)
{
	return t->payload;
}

/*
 * The response of the last completion: the caller's buffer, or one over the answer, not to be given
 * back and valid until the task is submitted or released. Its data is empty when there is none.
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
	/* What was written to a buffer is not here. */
	inlay_buf_set_data(buf, t->slot + INLAY_TASK_HEAD, t->response_len <= h->response_max ? t->response_len : 0);
	return buf;
}

/* 0 or the negative errno of the last completion; -EINPROGRESS from submit until the callback. */
INLAY_FN int inlay_task_status(const struct inlay_task *t)
{
	return INLAY_LIKELY(t->state == INLAY_TASK_IDLE || t->state == INLAY_TASK_QUARANTINE) ? t->status :
												-EINPROGRESS;
}

/* Who completed it last: tells the handler's -ENOENT from the worker's. */
INLAY_FN enum inlay_task_by inlay_task_by(const struct inlay_task *t)
{
	return (enum inlay_task_by)t->by;
}

/* Where the task is in its life; see enum inlay_task_state. */
INLAY_FN enum inlay_task_state inlay_task_state(const struct inlay_task *t)
{
	return (enum inlay_task_state)t->state;
}

/* What follows every post of a command. */
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

/* Room for a response in a caller's buffer, as much as a window can have. */
INLAY_FN uint32_t inlay_task_response_room_(const struct inlay_buf *buf)
{
	uint64_t room = inlay_buf_len(buf) - ((uintptr_t)inlay_buf_data(buf) - (uintptr_t)inlay_buf_head(buf));

	return room > INLAY_BUF_DATA_MAX ? INLAY_BUF_DATA_MAX : (uint32_t)room;
}

/* Opens a window over len bytes of a buffer: posts the bind, for which there is room. */
INLAY_COLD void inlay_task_open_(struct inlay_task *t, uint32_t what, const struct inlay_buf *buf, uint32_t len,
				 uint8_t **key)
{
	struct inlay_task_host *h = t->host;
	struct inlay_task_window_ *w = &h->windows[h->free_window];
	struct ibv_sge memory = {(uintptr_t)inlay_buf_data(buf), len, inlay_buf_lkey(buf)};
	uint32_t now = w->rkey, access = what ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;

	t->windows[what] = h->free_window;
	h->free_window = w->next;
	w->rkey = (now & ~0xffu) | ((now + 1) & 0xff);
	inlay_post_umr(&h->link.sq, now, inlay_sq_qpn(&h->link.sq), w->rkey, &memory, access | IBV_ACCESS_ZERO_BASED,
		       0);
	inlay_task_key_write_(key, w->rkey, len);
}

/* Whether a window may be opened over a buffer. A bind elsewhere breaks the connection. */
INLAY_COLD int inlay_task_bindable_(const struct inlay_buf *buf)
{
	return inlay_buf_lkey(buf) != INLAY_NO_KEY && inlay_buf_access(buf) & INLAY_MW_BIND;
}

/*
 * All submits but the common ones, and all refusals.
 *
 *   +0   umr      opens a window: 3 WQEBBs for each key
 *   +0   ctrl     SEND, index, QPN, DS                        waits for the binds before it
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
		if (total > h->link.peer.largest || total > INLAY_BUF_DATA_MAX || segs > 1)
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
	/* A task that waits for a send or a window waits for a completion. */
	how = held || windows || (inlay_sq_index(sq) & h->quarter) + bbs > h->quarter ? INLAY_SIGNALED : 0;
	if (windows)
		how |= INLAY_FENCE_INITIATOR_SMALL; /* the worker must not see a key before its window is open */
	inlay_task_head_write_(head, inlay_task_first_(INLAY_TASK_COMMAND, flags, (uint32_t)total), &t->ids);
	if (flags & INLAY_TASK_PAYLOAD_KEY)
		inlay_task_open_(t, 0, keyed, (uint32_t)total, &key);
	if (flags & INLAY_TASK_RESPONSE_KEY)
		inlay_task_open_(t, 1, t->response, response, &key);
	if (INLAY_UNLIKELY(inlay_sq_begin(sq, bbs, &at)))
		return -EAGAIN; /* not with the room seen above */
	at = inlay_seg_inline(at, head, INLAY_TASK_HEAD + windows * INLAY_TASK_KEY);
	if (segs)
		at = inlay_seg_bufs(at, t->payload);
	inlay_sq_commit(sq, at, MLX5_OPCODE_SEND, 0, how, 0);
	if (t->response)
		inlay_buf_set_data_len(t->response, 0);
	if (ring)
		inlay_sq_ring(sq);
	return inlay_task_posted_(t, h, held | flags); /* the windows' bits are the same */
}

INLAY_STATIC_ASSERT((int)INLAY_TASK_PAYLOAD_KEY == INLAY_TASK_HELD_PAYLOAD &&
		    (int)INLAY_TASK_RESPONSE_KEY == INLAY_TASK_HELD_RESPONSE,
		    "a key on the wire is an open window");

/* A submit that is not short: inline, or gathered from the task's own buffer. */
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
	/* The line before a task's own buffer takes the head, so that there is one piece to gather. */
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

/* Both submits. ring: constant. */
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
 * Returns 0: the task is the host's until its callback. Otherwise it is as it was: -EAGAIN when the
 * limit is reached, the ring is full or no window is free: flush, progress, try again; -EBUSY
 * unless IDLE; -E2BIG when the payload fits neither a message nor a key; -EPERM when memory that
 * needs a window is of a map that does not permit INLAY_MW_BIND; -ENOTCONN when the host is not
 * connected.
 */
INLAY_ALWAYS int inlay_task_submit_quiet(struct inlay_task *t)
{
	return inlay_task_submit_(t, 0);
}

/* Posts the task's command and rings. Returns as inlay_task_submit_quiet. */
INLAY_ALWAYS int inlay_task_submit(struct inlay_task *t)
{
	return inlay_task_submit_(t, 1);
}

/* Rings for everything posted. Ringing when nothing was posted is allowed. */
INLAY_ALWAYS void inlay_task_host_flush(struct inlay_task_host *h)
{
	inlay_sq_ring(&h->link.sq);
}

/* Whether a submit may use this buffer and its list. keys: whether its bytes need a local key. */
INLAY_COLD int inlay_task_usable_(struct inlay_buf *buf, int keys)
{
	if (!buf || !inlay_buf_refcount(buf) || !inlay_buf_is_first(buf))
		return 0;
	for (; buf; buf = inlay_buf_next(buf))
		if (inlay_buf_set_data_len(buf, inlay_buf_data_len(buf)) ||
		    !inlay_mmap_started(inlay_buf_mmap(buf)) ||
		    (keys && inlay_buf_data_len(buf) && inlay_buf_lkey(buf) == INLAY_NO_KEY))
			return 0;
	return 1;
}

/*
 * As inlay_task_submit, but first verifies what a submit takes for granted: -EINVAL when a buffer
 * was given back, is not the head of its list, has its data outside itself or lacks a local key
 * that it needs, when its map is not started, or when the response is a list. For development.
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
