/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/task.h: a task: one command that a host gives to a worker, and its one answer.
 * Allocate, fill, submit, cancel, revoke, release.
 *
 *   inlay_task_alloc(&host, PLUGIN, done, &task);
 *   buf = inlay_task_get_payload(task);
 *   n = pack(inlay_buf_head(buf), inlay_buf_len(buf));
 *   inlay_buf_set_data(buf, inlay_buf_head(buf), n);
 *   inlay_task_submit(task);              one WQE and a doorbell; -EAGAIN: full, try again
 *   ...
 *   done(task, ...)                       from inlay_task_host_progress (host.h)
 *           inlay_task_status(task), inlay_task_get_response(task)
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
 *   cancelled before it was sent       -ECANCELED              INLAY_TASK_BY_HOST
 *   its answer is impossible           -EBADMSG                INLAY_TASK_BY_HOST
 *   response too long for the buffer   -EMSGSIZE               INLAY_TASK_BY_HOST
 *   the worker died or is unreachable  -ECONNRESET             INLAY_TASK_BY_CONNECTION
 *   connection broken or stopped       -ECONNABORTED           INLAY_TASK_BY_CONNECTION
 *
 * States
 * ------
 *   FREE --alloc--> IDLE --submit--> SUBMITTED --answer--> [CLOSING] --> callback: IDLE
 *                               --deadline, cancel, end--> DUE --> callback: IDLE or QUARANTINE
 *   IDLE --release--> FREE
 *
 *               FREE      IDLE      SUBMITTED, CLOSING, DUE    QUARANTINE
 *   submit      -EBUSY    0         -EBUSY                     -EBUSY
 *   set_...     -EBUSY    0         -EBUSY                     -EBUSY     user data: any state
 *   release     -EBADFD   0         -EPERM                     -EBUSY
 *   cancel      -EBADFD   -EBADFD   0 if unsent, else -EBUSY   -EBADFD
 *   revoke      -EBADFD   -EBADFD   -EBADFD                    0
 *   status      -         as last   -EINPROGRESS               as last
 *
 * In its callback a task is IDLE or in QUARANTINE.
 *
 * Payload. A task has a buffer of params.payload bytes. inlay_task_set_payload takes a buffer or
 * list of the caller's instead. Up to params.max_inline bytes are copied into the WQE, unless they
 * are a list or the task has a response buffer. What else fits a message is gathered. A single
 * larger buffer goes by a key: the host opens a memory window over it, the worker reads it, and the
 * window is closed before the task completes. That takes params.windows and a map that permits
 * INLAY_MW_BIND.
 *
 * Response. It stays in the answer, where inlay_task_get_response shows it until the task is
 * submitted or released. A buffer of the caller's (inlay_task_set_response) gets it instead, copied
 * from the answer. If it is larger than the response in an answer can be, the worker may write to
 * it through a window; its map must then permit INLAY_MW_BIND.
 *
 * Memory of the caller's must stay registered and unchanged from submit to the callback, or to the
 * end of quarantine.
 *
 * Quarantine. A task that completed early although its command was sent may not be reused while the
 * device could still read its payload, or the worker could use its windows. It ends when the late
 * answer comes, when the windows are closed (inlay_task_revoke), when the send is done if that was
 * all, or when the connection has ended and the device has returned everything. Then
 * params.reusable is called. A worker that uses a revoked window breaks the connection. A task with
 * nothing to wait for is IDLE in its callback; its generation tells its late answer from the next
 * one.
 *
 * Threads: a host and its tasks have one owner at a time.
 * Sources: DOCA's documentation of doca_urom and doca_pe; the InfiniBand specification on type 2
 * memory windows; Linux's nvme-rdma: a command's memory is free when its send and its answer are
 * both there.
 */
#ifndef INLAY_TASK_TASK_H
#define INLAY_TASK_TASK_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/buf.h>
#include <inlay/mmap.h>
#include <inlay/queue.h>
#include <inlay/task/link.h>
#include <inlay/task/wire.h>

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
	INLAY_TASK_DUE,                 /* completed; its callback comes next */
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

/* What holds a task's memory, and what is done about it: flags */
enum inlay_task_held_ {
	INLAY_TASK_HELD_PAYLOAD = 1,    /* the payload's window is open */
	INLAY_TASK_HELD_RESPONSE = 2,   /* the response's window is open */
	INLAY_TASK_HELD_WINDOWS = 3,
	INLAY_TASK_HELD_SEND = 4,       /* the device gathers from the caller's memory */
	INLAY_TASK_HELD_CLOSE = 8,      /* windows are to be closed */
	INLAY_TASK_HELD_CLOSED = 16,    /* that was posted */
	INLAY_TASK_HELD_COPY = 32,      /* there is a response buffer of the caller's */
};

/* A task. The first line is the queue's, the second the caller's. */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_task {
	struct inlay_task_host *host;
	uint64_t context;               /* index below generation */
	uint64_t plugin;
	uint64_t destination;
	struct inlay_buf *payload;
	inlay_task_cb cb;
	uint8_t *slot;                  /* where its last answer lies */
	uint8_t state;                  /* enum inlay_task_state */
	uint8_t held;                   /* enum inlay_task_held_ */
	uint8_t by;                     /* enum inlay_task_by */
	uint8_t early;                  /* completed, and its answer is still to come */
	uint32_t end;                   /* inlay_sq_index after what was posted for it last */
	int status;
	uint32_t response_len;
	uint64_t user_data;
	uint8_t user[INLAY_TASK_USER];
	uint64_t deadline;
	struct inlay_buf *response;     /* the caller's, or NULL */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_task) == 2 * INLAY_CACHE_LINE, "a task is two lines");
INLAY_STATIC_ASSERT(offsetof(struct inlay_task, status) == INLAY_CACHE_LINE, "the first is the queue's");

/* The rest of a task */
struct inlay_task_rest_ {
	struct inlay_buf *payload;      /* its own buffers */
	struct inlay_buf *response;
	uint32_t next;                  /* in the list that its state tells: free, due or waiting */
	uint32_t windows[2];            /* of payload and response */
	uint32_t reserved;
};

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

/*
 * A worker as the host sees it; host.h. Submit and completion touch the first two lines and the
 * queues.
 */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_task_host {
	struct inlay_task *tasks;
	uint64_t due;                   /* when something besides the CQ needs progress; 0: at once */
	uint64_t earliest;              /* no submitted task has an earlier deadline */
	uint32_t outstanding;           /* commands sent and not answered */
	uint32_t limit;                 /* of them; 0: not connected, or no longer */
	uint32_t max_inline;
	uint32_t quarter;               /* of the send ring, as inlay_task_post_inline_ */
	uint32_t num;                   /* tasks */
	uint32_t first_due;             /* list of tasks whose callback is due */
	uint32_t last_due;
	uint32_t waiting;               /* list of tasks that wait for a send or for their windows to close */
	uint64_t user_data;
	uint8_t *slots;
	uint8_t **slot_of;              /* which slot each receive has */
	uint64_t now;                   /* of this progress */
	uint32_t mask;                  /* receives - 1 */
	uint32_t message;               /* bytes of a slot */
	uint32_t lkey;
	struct inlay_task_rest_ *more;
	uint32_t free;                  /* list of free tasks */
	uint32_t payload_max;           /* bytes of payload in a command without keys */
	uint32_t response_max;          /* bytes of response in an answer */
	uint32_t uncounted;             /* of this progress: completions that called nothing */
	struct inlay_cq cq __attribute__((aligned(INLAY_CACHE_LINE)));
	struct inlay_task_link link;
	/* Seldom */
	struct inlay_mmap mmap;
	struct inlay_inventory *inventory;
	struct inlay_task_window_ *windows;
	uint32_t num_windows;
	uint32_t free_window;
	uint32_t orphans;               /* answers to come that no task waits for */
	uint32_t unclaimed;             /* answers that came and were no task's */
	uint32_t strays;                /* those, and all else that should not have come */
	uint32_t flushed;               /* receives that came back after the connection's end */
	uint32_t marked;                /* a broken connection's last WQE is posted: one with a completion */
	uint32_t aged;                  /* index of the send queue when ends were brought along last */
	int broken;                     /* why: a negative errno; 0: it is not */
	uint32_t stopped;
	uint32_t probing;
	uint32_t probe_end;
	uint32_t owed;                  /* the ring has something of the host's own to ring for */
	uint32_t hurry;                 /* a task waits for a send that may be unsignaled */
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
 * Internal
 */

/* A task's context: its index below its generation. */
INLAY_ALWAYS uint64_t inlay_task_context_(uint32_t index, uint32_t generation)
{
	return (uint64_t)generation << 32 | index;
}

INLAY_ALWAYS uint32_t inlay_task_index_(const struct inlay_task *t)
{
	return (uint32_t)t->context;
}

INLAY_ALWAYS struct inlay_task_rest_ *inlay_task_more_(const struct inlay_task *t)
{
	return &t->host->more[inlay_task_index_(t)];
}

/* Bytes of a task's own payload buffer, with a line before it that ends with room for the head. */
INLAY_COLD uint64_t inlay_task_stride_(const struct inlay_task_host_params *p)
{
	return INLAY_CACHE_LINE + inlay_round_up(p->payload, INLAY_CACHE_LINE);
}

/* The task's own payload buffer without what was chained to it. */
INLAY_FN void inlay_task_unchain_(const struct inlay_task *t)
{
	struct inlay_buf *own = inlay_task_more_(t)->payload, *next = inlay_buf_next(own);

	if (INLAY_UNLIKELY(next != NULL))
		inlay_buf_unchain_list(own, next);
}

/* The task's own payload buffer is anew in its hands, should the caller have given it back. */
INLAY_FN int inlay_task_own_(struct inlay_task *t)
{
	struct inlay_task_host *h = t->host;
	struct inlay_task_rest_ *more = inlay_task_more_(t);
	uint8_t *at;

	if (INLAY_LIKELY(inlay_buf_refcount(more->payload)))
		return 0;
	at = h->slots - (uint64_t)(h->num - inlay_task_index_(t)) * inlay_task_stride_(&h->params) + INLAY_CACHE_LINE;
	return inlay_inventory_get_by_addr(h->inventory, &h->mmap, at, h->params.payload, &more->payload);
}

/* A callback of the task is due. */
INLAY_COLD void inlay_task_queue_(struct inlay_task *t)
{
	struct inlay_task_host *h = t->host;

	inlay_task_more_(t)->next = INLAY_TASK_NONE;
	if (h->first_due == INLAY_TASK_NONE)
		h->first_due = inlay_task_index_(t);
	else
		h->more[h->last_due].next = inlay_task_index_(t);
	h->last_due = inlay_task_index_(t);
	h->due = 0;
}

/* Takes a task out of the waiting list, if it is there. */
INLAY_COLD void inlay_task_forget_(const struct inlay_task *t)
{
	struct inlay_task_host *h = t->host;
	uint32_t *link = &h->waiting;

	while (*link != INLAY_TASK_NONE && *link != inlay_task_index_(t))
		link = &h->more[*link].next;
	if (*link != INLAY_TASK_NONE)
		*link = h->more[*link].next;
}

/* From now on the task waits for what holds its memory. */
INLAY_COLD void inlay_task_wait_(struct inlay_task *t)
{
	if (t->state == INLAY_TASK_QUARANTINE)
		inlay_task_forget_(t); /* it may be waiting already */
	inlay_task_more_(t)->next = t->host->waiting;
	t->host->waiting = inlay_task_index_(t);
	t->host->due = 0;
}

/* The task's windows are closed. */
INLAY_COLD void inlay_task_closed_(struct inlay_task *t)
{
	struct inlay_task_host *h = t->host;
	uint32_t i;

	for (i = 0; i < 2; i++)
		if (t->held & 1u << i) {
			uint32_t w = inlay_task_more_(t)->windows[i];

			h->windows[w].next = h->free_window;
			h->free_window = w;
		}
	t->held = 0;
}

/* Whether the task's send and, if that was posted, the closing of its windows are done. */
INLAY_ALWAYS int inlay_task_sent_(const struct inlay_task *t)
{
	return inlay_task_link_done_(&t->host->link, t->end);
}

/* Whether the device has not been shown the task's command. */
INLAY_ALWAYS int inlay_task_unsent_(const struct inlay_task *t)
{
	return (int32_t)(t->end - inlay_sq_rung(&t->host->link.sq)) > 0;
}

/*
 * Takes back a command that the device has not been shown: its WQEs, with its binds, become NOPs.
 */
INLAY_COLD void inlay_task_erase_(struct inlay_task *t)
{
	struct inlay_task_host *h = t->host;
	struct inlay_sq *sq = &h->link.sq;
	uint32_t first = inlay_sq_rung(sq), bbs, windows = 0, i;

	/* WQE by WQE to the command. Each bind is 3 WQEBBs, right before it. */
	while (bbs = ((inlay_sq_wqe(sq, first)[7] & 0x3fu) + 3) / 4, first + bbs != t->end)
		first += bbs;
	for (i = 0; i < 2; i++)
		if (t->held & 1u << i) {
			struct inlay_task_window_ *w = &h->windows[inlay_task_more_(t)->windows[i]];

			w->rkey = (w->rkey & ~0xffu) | ((w->rkey - 1) & 0xff);
			windows++;
		}
	inlay_sq_erase(sq, first - 3 * windows, t->end);
	inlay_task_closed_(t);
	h->outstanding--;
}

/* Completes a submitted task early. */
INLAY_COLD void inlay_task_end_(struct inlay_task *t, int status)
{
	if (inlay_task_unsent_(t)) {
		inlay_task_erase_(t);
	} else {
		t->early = 1;
		t->held &= (uint8_t)~INLAY_TASK_HELD_COPY;
		/* Gathered, from its own buffer too: the answer would have told that it is sent. */
		if (!t->held && (inlay_buf_next(t->payload) || t->response ||
				 inlay_buf_data_len(t->payload) > t->host->max_inline)) {
			t->held = INLAY_TASK_HELD_SEND;
			t->host->hurry |= !inlay_task_sent_(t);
		}
		if (t->held == INLAY_TASK_HELD_SEND && inlay_task_sent_(t))
			t->held = 0;
	}
	t->status = status;
	t->by = INLAY_TASK_BY_HOST;
	t->response_len = 0;
	t->state = INLAY_TASK_DUE;
	inlay_task_queue_(t);
}

/* ------------------------------------------------------------------------------------------------
 * Data path: the task
 */

/*
 * Allocates a task: IDLE, with its own payload buffer (empty), destination 0, no deadline, user
 * data 0.
 *
 * plugin  the id of the plugin that is to have the command
 * cb      called when it completes; may be NULL
 *
 * Returns 0, or -EAGAIN when none is free.
 */
INLAY_FN int inlay_task_alloc(struct inlay_task_host *h, uint64_t plugin, inlay_task_cb cb, struct inlay_task **task)
{
	struct inlay_task *t;
	uint32_t i;

	if (INLAY_UNLIKELY(h->free == INLAY_TASK_NONE))
		return -EAGAIN;
	t = &h->tasks[h->free];
	if (inlay_task_own_(t))
		return -EAGAIN;
	t->payload = inlay_task_more_(t)->payload;
	h->free = inlay_task_more_(t)->next;
	inlay_buf_set_data(t->payload, inlay_buf_head(t->payload), 0);
	t->plugin = plugin;
	t->destination = 0;
	t->response = NULL;
	t->cb = cb;
	t->deadline = INLAY_TASK_NEVER;
	t->status = 0;
	t->response_len = 0;
	t->user_data = 0;
	for (i = 0; i < INLAY_TASK_USER; i += 8)
		inlay_put64(t->user + i, 0);
	t->state = INLAY_TASK_IDLE;
	t->held = t->by = t->early = 0;
	*task = t;
	return 0;
}

/*
 * Gives a task back. What was chained to its own payload buffer becomes a list of its own.
 *
 * Returns 0; -EPERM until its callback; -EBUSY in quarantine; -EBADFD when it was given back
 * already.
 */
INLAY_FN int inlay_task_release(struct inlay_task *t)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return t->state == INLAY_TASK_FREE ? -EBADFD : t->state == INLAY_TASK_QUARANTINE ? -EBUSY : -EPERM;
	t->state = INLAY_TASK_FREE;
	inlay_task_unchain_(t);
	inlay_task_more_(t)->next = t->host->free;
	t->host->free = inlay_task_index_(t);
	return 0;
}

/*
 * Takes back a command that was submitted quietly and not rung for. Its callback comes with the
 * next progress, with -ECANCELED.
 *
 * Returns 0; -EBUSY when it was sent or has completed; -EBADFD when it was not submitted.
 */
INLAY_COLD int inlay_task_cancel(struct inlay_task *t)
{
	if (t->state == INLAY_TASK_FREE || t->state == INLAY_TASK_IDLE || t->state == INLAY_TASK_QUARANTINE)
		return -EBADFD;
	if (t->state != INLAY_TASK_SUBMITTED || !inlay_task_unsent_(t))
		return -EBUSY;
	inlay_task_end_(t, -ECANCELED);
	return 0;
}

/*
 * Closes the windows of a task in quarantine; it leaves quarantine in a later progress. If the
 * worker then uses them, the connection breaks. Does nothing for a task that only waits for its
 * send.
 *
 * Returns 0, or -EBADFD when it is not in quarantine.
 */
INLAY_COLD int inlay_task_revoke(struct inlay_task *t)
{
	if (t->state != INLAY_TASK_QUARANTINE)
		return -EBADFD;
	if (t->held) {
		t->held |= INLAY_TASK_HELD_CLOSE;
		inlay_task_wait_(t);
	}
	return 0;
}

/*
 * Which plugin has the command, by its id. The setters that follow return 0, or -EBUSY unless IDLE.
 */
INLAY_FN int inlay_task_set_plugin(struct inlay_task *t, uint64_t plugin)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->plugin = plugin;
	return 0;
}

/* A number for the plugin; the answer echoes it. */
INLAY_FN int inlay_task_set_destination(struct inlay_task *t, uint64_t destination)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->destination = destination;
	return 0;
}

INLAY_FN int inlay_task_set_cb(struct inlay_task *t, inlay_task_cb cb)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->cb = cb;
	return 0;
}

/* When the next submit is over: a point of the time that progress is told, or INLAY_TASK_NEVER. */
INLAY_FN int inlay_task_set_deadline(struct inlay_task *t, uint64_t deadline)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->deadline = deadline;
	return 0;
}

/*
 * Sets a buffer of the caller's, or a list by its head, as the payload; NULL: the task's own again.
 * The caller keeps its reference. Of a list with the task's own buffer, that one must be the head.
 */
INLAY_FN int inlay_task_set_payload(struct inlay_task *t, struct inlay_buf *payload)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE) || (!payload && inlay_task_own_(t)))
		return -EBUSY;
	t->payload = payload ? payload : inlay_task_more_(t)->payload;
	return 0;
}

/*
 * Sets a buffer of the caller's for the response, from the start of its data to its end; NULL: the
 * response stays in the answer. Its data is empty from submit on, and is the response afterwards.
 * Not a list. The caller keeps its reference.
 */
INLAY_FN int inlay_task_set_response(struct inlay_task *t, struct inlay_buf *response)
{
	if (INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE))
		return -EBUSY;
	t->response = response;
	t->held = response ? INLAY_TASK_HELD_COPY : 0;
	return 0;
}

/* A number for the callback. In any state. */
INLAY_FN void inlay_task_set_user_data(struct inlay_task *t, uint64_t user_data)
{
	t->user_data = user_data;
}

INLAY_FN uint64_t inlay_task_get_user_data(const struct inlay_task *t)
{
	return t->user_data;
}

/* INLAY_TASK_USER bytes for the caller, aligned to 8, zeroed by alloc. In any state. */
INLAY_FN void *inlay_task_get_user(struct inlay_task *t)
{
	return t->user;
}

/* The payload's buffer. Its data is what is sent. */
INLAY_FN struct inlay_buf *inlay_task_get_payload(const struct inlay_task *t)
{
	return t->payload;
}

/*
 * The response of the last completion: the caller's buffer, or one over the answer, valid until the
 * task is submitted or released. Its data is the response, empty when there is none. Not to be
 * given back.
 */
INLAY_FN struct inlay_buf *inlay_task_get_response(const struct inlay_task *t)
{
	struct inlay_task_host *h = t->host;
	struct inlay_buf *buf = t->response;

	if (buf)
		return buf;
	buf = inlay_task_more_(t)->response;
	buf->head = t->slot;
	buf->len = h->message;
	/* What was written to a buffer is not here. */
	inlay_buf_set_data(buf, t->slot + INLAY_TASK_HEAD, t->response_len <= h->response_max ? t->response_len : 0);
	return buf;
}

/* Bytes of the last response. With -EMSGSIZE: how long it would have been. */
INLAY_FN uint32_t inlay_task_response_len(const struct inlay_task *t)
{
	return t->response_len;
}

/* 0 or the negative errno of the last completion; -EINPROGRESS from submit until the callback. */
INLAY_FN int inlay_task_status(const struct inlay_task *t)
{
	return INLAY_LIKELY(t->state == INLAY_TASK_IDLE ||
			    t->state == INLAY_TASK_QUARANTINE) ? t->status : -EINPROGRESS;
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

/* The host that the task was allocated from. */
INLAY_FN struct inlay_task_host *inlay_task_get_host(const struct inlay_task *t)
{
	return t->host;
}

/* ------------------------------------------------------------------------------------------------
 * Data path: submitting
 */

INLAY_ALWAYS struct inlay_task_head_ inlay_task_head_of_(const struct inlay_task *t, uint32_t len)
{
	const struct inlay_task_head_ head = {inlay_task_first_(INLAY_TASK_COMMAND, 0, len), t->context, t->plugin,
					      t->destination};

	return head;
}

/* What follows every post of a command. */
INLAY_ALWAYS int inlay_task_posted_(struct inlay_task *t, struct inlay_task_host *h, uint32_t held)
{
	t->end = inlay_sq_index(&h->link.sq);
	t->state = INLAY_TASK_SUBMITTED;
	t->held = (uint8_t)held;
	t->by = 0;
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

/*
 * Opens a window over len bytes of a buffer: posts the bind, for which there is room. what: 0
 * payload.
 */
INLAY_COLD void inlay_task_open_(struct inlay_task *t, uint32_t what, const struct inlay_buf *buf, uint32_t len,
				 struct inlay_task_key *key)
{
	struct inlay_task_host *h = t->host;
	struct inlay_task_window_ *w = &h->windows[h->free_window];
	struct ibv_sge memory = {(uintptr_t)inlay_buf_data(buf), len, inlay_buf_lkey(buf)};
	uint32_t now = w->rkey, access = what ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;

	inlay_task_more_(t)->windows[what] = h->free_window;
	h->free_window = w->next;
	w->rkey = (now & ~0xffu) | ((now + 1) & 0xff);
	inlay_post_umr(&h->link.sq, now, inlay_sq_qpn(&h->link.sq), w->rkey, &memory, access | IBV_ACCESS_ZERO_BASED,
		       0);
	key->rkey = w->rkey;
	key->bytes = len;
}

/*
 * Whether a window may be opened over a buffer's memory. To bind one elsewhere breaks the
 * connection.
 */
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
	uint32_t segs = inlay_buf_segs(t->payload), response = 0, windows, bytes, bbs, held = 0, how;
	const struct inlay_buf *keyed = t->payload;
	uint8_t head[INLAY_TASK_MESSAGE_MIN];
	struct inlay_task_command c;
	struct inlay_cursor at;

	if (t->state != INLAY_TASK_IDLE)
		return -EBUSY;
	if (h->outstanding >= h->limit)
		return h->limit ? -EAGAIN : -ENOTCONN;
	inlay_task_command_clear_(&c);
	if (t->response) {
		response = inlay_task_response_room_(t->response);
		if (response > h->response_max)
			c.flags = INLAY_TASK_RESPONSE_KEY;
	}
	if (total > h->payload_max - (c.flags ? INLAY_TASK_KEY : 0)) {
		c.flags |= INLAY_TASK_PAYLOAD_KEY;
		if (total > h->link.peer.largest || total > INLAY_BUF_DATA_MAX || segs > 1)
			return -E2BIG;
		segs = 0;
		while (!inlay_buf_data_len(keyed)) /* one of a list has all of it */
			keyed = inlay_buf_next(keyed);
	} else if (segs > h->params.max_gather) {
		return -E2BIG;
	} else if (segs && (t->payload != inlay_task_more_(t)->payload || inlay_buf_next(t->payload))) {
		held = INLAY_TASK_HELD_SEND; /* some of it is the caller's */
	}
	windows = (c.flags & 1u) + (c.flags >> 1);
	if (windows > h->num_windows)
		return -E2BIG;
	if ((c.flags & INLAY_TASK_PAYLOAD_KEY && !inlay_task_bindable_(keyed)) ||
	    (c.flags & INLAY_TASK_RESPONSE_KEY && !inlay_task_bindable_(t->response)))
		return -EPERM;
	if (windows && (h->free_window == INLAY_TASK_NONE ||
			(windows == 2 && h->windows[h->free_window].next == INLAY_TASK_NONE)))
		return -EAGAIN;
	bytes = INLAY_TASK_HEAD + windows * INLAY_TASK_KEY;
	bbs = (1 + (4 + bytes + INLAY_DS - 1) / INLAY_DS + segs + 3) / 4;
	if (inlay_sq_room(sq) < 3 * windows + bbs)
		return -EAGAIN;
	/* A task that waits for a send or a window waits for a completion. */
	how = held || windows || (inlay_sq_index(sq) & h->quarter) + bbs > h->quarter ? INLAY_SIGNALED : 0;
	if (windows)
		how |= INLAY_FENCE_INITIATOR_SMALL; /* the worker must not see a key before its window is open */
	c.context = t->context;
	c.plugin = t->plugin;
	c.destination = t->destination;
	c.length = (uint32_t)total;
	held |= c.flags; /* the windows' bits are the same */
	if (c.flags & INLAY_TASK_PAYLOAD_KEY)
		inlay_task_open_(t, 0, keyed, c.length, &c.payload);
	if (c.flags & INLAY_TASK_RESPONSE_KEY)
		inlay_task_open_(t, 1, t->response, response, &c.response);
	inlay_task_command_write_(head, &c);
	if (INLAY_UNLIKELY(inlay_sq_begin(sq, bbs, &at)))
		return -EAGAIN; /* not with the room seen above */
	at = inlay_seg_inline(at, head, bytes);
	if (segs)
		at = inlay_seg_bufs(at, t->payload);
	inlay_sq_commit(sq, at, MLX5_OPCODE_SEND, 0, how, 0);
	if (t->response) {
		inlay_buf_set_data_len(t->response, 0);
		held |= INLAY_TASK_HELD_COPY;
	}
	if (ring)
		inlay_sq_ring(sq);
	return inlay_task_posted_(t, h, held);
}

INLAY_STATIC_ASSERT((int)INLAY_TASK_PAYLOAD_KEY == INLAY_TASK_HELD_PAYLOAD &&
		    (int)INLAY_TASK_RESPONSE_KEY == INLAY_TASK_HELD_RESPONSE,
		    "a key on the wire is an open window");

/* A submit that is not short: inline, or gathered from the task's own buffer. */
INLAY_FN int inlay_task_submit_long_(struct inlay_task *t, const struct inlay_buf *payload, uint32_t len, int ring)
{
	struct inlay_task_host *h = t->host;
	const struct inlay_task_head_ head = inlay_task_head_of_(t, len);
	struct inlay_cursor at;
	uint8_t *before;

	if (len <= h->max_inline) {
		const void *data = inlay_buf_data(payload);
		uint32_t bbs = inlay_task_inline_bbs_(len), q = h->quarter;
		int err = len <= INLAY_TASK_SHORT + INLAY_WQEBB ?
			  inlay_task_post_inline_(&h->link.sq, 2, &head, data, len, q, ring) :
			  inlay_task_post_inline_(&h->link.sq, bbs, &head, data, len, q, ring);

		return INLAY_UNLIKELY(err) ? err : inlay_task_posted_(t, h, 0);
	}
	if (INLAY_UNLIKELY(payload != inlay_task_more_(t)->payload) ||
	    INLAY_UNLIKELY(inlay_buf_data(payload) != inlay_buf_head(payload)) || INLAY_UNLIKELY(len > h->payload_max))
		return inlay_task_submit_other_(t, ring);
	/*
	 * The line before a task's own buffer takes the head, so that there is one piece to gather.
	 */
	if (INLAY_UNLIKELY(inlay_sq_begin(&h->link.sq, 1, &at)))
		return -EAGAIN;
	before = (uint8_t *)inlay_buf_data(payload) - INLAY_TASK_HEAD;
	inlay_task_head_write_(before, head.first, head.context, head.plugin, head.destination);
	at = inlay_seg_data(at, (uintptr_t)before, INLAY_TASK_HEAD + len, h->lkey);
	inlay_sq_commit(&h->link.sq, at, MLX5_OPCODE_SEND, 0, (at.index & h->quarter) == h->quarter ? INLAY_SIGNALED :
			0, 0);
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
	struct inlay_task_head_ head;

	if (INLAY_UNLIKELY(h->outstanding >= h->limit) || INLAY_UNLIKELY(t->state != INLAY_TASK_IDLE) ||
	    INLAY_UNLIKELY(t->held) || INLAY_UNLIKELY(inlay_buf_next(payload) != NULL))
		return inlay_task_submit_other_(t, ring);
	if (INLAY_UNLIKELY(len > INLAY_TASK_SHORT))
		return inlay_task_submit_long_(t, payload, len, ring);
	head = inlay_task_head_of_(t, len);
	if (INLAY_UNLIKELY(inlay_task_post_inline_(&h->link.sq, 1, &head, inlay_buf_data(payload), len, h->quarter,
						   ring)))
		return -EAGAIN;
	return inlay_task_posted_(t, h, 0);
}

/*
 * Posts the task's command. The worker gets it with the next inlay_task_host_flush or any other
 * doorbell of this host.
 *
 * Returns 0: the task is the host's until its callback. Otherwise the task is as it was: -EAGAIN
 * when the limit is reached, the ring is full or no window is free: flush, progress, try again;
 * -EBUSY unless it is IDLE; -E2BIG when the payload fits neither a message nor a key; -EPERM when
 * memory that needs a key is of a map that does not permit INLAY_MW_BIND; -ENOTCONN when the host
 * is not connected.
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
 * As inlay_task_submit, but first verifies what a submit takes for granted. For development.
 *
 * Returns as inlay_task_submit; -EINVAL also when a buffer was given back, is not the head of its
 * list, has its data outside itself or lacks a local key that it needs, when its map is not
 * started, or when the response is a list.
 */
INLAY_COLD int inlay_task_try_submit(struct inlay_task *t)
{
	struct inlay_buf *r = t->response;

	if (t->state != INLAY_TASK_IDLE)
		return -EBUSY;
	if (!inlay_task_usable_(t->payload, 1))
		return -EINVAL;
	if (r && (!inlay_task_usable_(r, 0) || inlay_buf_next(r) ||
		  (inlay_buf_lkey(r) == INLAY_NO_KEY && inlay_task_response_room_(r) > t->host->response_max)))
		return -EINVAL;
	return inlay_task_submit(t);
}

#endif
