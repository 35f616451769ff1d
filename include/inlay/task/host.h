/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/host.h: the host's side of command tasks: a worker as the host sees it, and the tasks that it gives to it.
 *
 *   p = inlay_task_host_default();
 *   memory = aligned_alloc(4096, inlay_task_host_size(&p));
 *   inlay_task_host_create(&host, memory, inlay_task_host_size(&p), pd, &p);
 *   inlay_task_host_address(&host, mine);  ... to the worker, and its own from there ...  inlay_task_host_connect(&host, theirs, len);
 *
 *   inlay_task_alloc_init(&host, PLUGIN, done, &task);
 *   buf = inlay_task_get_payload(task);
 *   n = pack(inlay_buf_head(buf), inlay_buf_len(buf));
 *   inlay_buf_set_data(buf, inlay_buf_head(buf), n);
 *   inlay_task_submit(task);                                 one WQE, one doorbell; -EAGAIN: full, and the task is still the caller's
 *   ...
 *   inlay_task_host_progress(&host, now, 32);                calls done(task, ...) when the answer is there
 *
 *   done: inlay_task_status(task), inlay_task_get_response(task); then it may submit the task again, release it, or keep it
 *
 * Every submitted command is completed once, by one call of its callback in inlay_task_host_progress, whatever happens:
 *
 *   what                          status                             inlay_task_by
 *   the handler has answered      0 or the handler's negative errno  INLAY_TASK_BY_HANDLER
 *   no such plugin                -ENOENT                            INLAY_TASK_BY_WORKER
 *   the worker finds it malformed -EBADMSG                           INLAY_TASK_BY_WORKER
 *   payload too large for it      -E2BIG                             INLAY_TASK_BY_WORKER
 *   its deadline has passed       -ETIMEDOUT                         INLAY_TASK_BY_HOST
 *   cancelled before it was sent  -ECANCELED                         INLAY_TASK_BY_HOST
 *   an answer for a task that     -EBADMSG                           INLAY_TASK_BY_HOST
 *     cannot be
 *   the response is longer than   -EMSGSIZE                          INLAY_TASK_BY_HOST
 *     the caller's buffer for it
 *   the worker has died, or       -ECONNRESET                        INLAY_TASK_BY_CONNECTION
 *     cannot be reached
 *   the connection has broken     -ECONNABORTED                      INLAY_TASK_BY_CONNECTION
 *     otherwise, or was stopped
 *
 * A task's life
 * -------------
 *   FREE --alloc--> IDLE --submit--> FLYING --answer--> [CLOSING] --> callback, IDLE again --release--> FREE
 *                                           --deadline, cancel, end of the connection--> RIPE --> callback, IDLE or QUARANTINE
 *
 *                     FREE       IDLE      FLYING, CLOSING, RIPE   QUARANTINE
 *   submit            -EBUSY     0         -EBUSY                  -EBUSY       and -EAGAIN, -E2BIG, -ENOTCONN: still the caller's
 *   release           -EBADFD    0         -EPERM                  -EBUSY
 *   set_...           -EBUSY     0         -EBUSY                  -EBUSY       user data and the 32 bytes are always the caller's
 *   cancel            -EBADFD    -EBADFD   0 unsent; else -EBUSY   -EBADFD
 *   revoke            -EBADFD    -EBADFD   -EBADFD                 0
 *   status            -          as last   -EINPROGRESS            as last
 *
 * In its callback a task is IDLE or QUARANTINE: it may be submitted anew, released, or kept. Callbacks may submit, cancel and flush any
 * task of any host, allocate, and call inlay_task_host_stop; they must not call progress of the same host, nor destroy it.
 *
 * Payload. A task has a buffer of its own for it, of params.payload bytes; inlay_task_set_payload takes one of the caller's instead, or a
 * list. Up to params.max_inline bytes, and up to 12 in any case, are copied into the WQE, unless they are a list or the task has a response
 * buffer. What else fits a message beside a head of 32 bytes is gathered by the device from where it lies. A single buffer larger than that
 * goes by a key: a memory window is opened over it (wire.h), the worker reads from it, and the window is closed before the task completes.
 * This takes params.windows, and a buffer of a map that permits INLAY_MW_BIND (inlay_mmap_set_permissions).
 *
 * Response. It comes in the answer, and inlay_task_get_response shows it there, uncopied, until the task is submitted again or released. A
 * caller's buffer (inlay_task_set_response) gets the response instead: copied when it came in the message, written by the worker when it is
 * longer. For the latter it must be larger than a message's room, and registered like a payload that goes by a key.
 *
 * Memory of the caller's that a task uses must stay as it is, and registered, from submit until its callback, and longer if the task is
 * then in quarantine.
 *
 * Quarantine. A task that was completed early, by its deadline, although its command was sent, is not to be used again as long as the
 * device could still read its payload, or the worker read its payload or write its response through a window. It leaves that state when the
 * late answer comes (its windows are then closed), when its windows have been closed at the caller's request (inlay_task_revoke), when its
 * send is done, if it was only that, or after the connection's end, when the device has given back everything that was posted: tasks
 * whose callbacks come after the connection's end, and which are so held, may be in quarantine in them, too. params.reusable is then
 * called. A worker that uses a revoked window breaks the connection: a refused RDMA access costs a reliable queue pair. A task without
 * windows whose send is done, or whose payload was copied into the WQE, has nothing to wait for: it is IDLE in its callback, and its late
 * answer is dropped by its generation.
 *
 * The in-flight limit is the smaller one of params.in_flight, a power of two, and the worker's credits. A command that was sent and whose
 * answer has not come counts, also when its task was completed early: the worker has still to do with it. inlay_task_host_outstanding
 * tells. An answer that says it is nobody's was still somebody's: the next task that ends early no longer counts.
 *
 * Deadlines. The caller says what time it is, in progress, in any unit (nanoseconds, if params.period has its default), never going back. A
 * deadline is a point of that time and holds for the next submit only. Who uses neither deadlines nor probes may say 0 all the time.
 *
 * A dead worker. RC tries again what is not acknowledged, and fails: all that is on the wire notices. When nothing is, because all commands
 * have arrived and are being worked on, a zero-byte RDMA write asks: every params.period while commands are outstanding, by progress. So
 * tasks of a dead worker are completed within
 *
 *   params.period + inlay_task_path_bound(&params.path)       = inlay_task_host_bound(&params)
 *
 * of calls of progress. A worker that lives and does not answer is not dead: deadlines are for that.
 *
 * Sending without a doorbell. inlay_task_submit_quiet only fills the ring; inlay_task_host_flush rings for all. Until then the task can be
 * cancelled. The host itself rings when it closes windows or probes, and then shows the device all that is in the ring.
 *
 * Progress. It handles at most `max` completions, calls at most as many callbacks, and returns how many it called: of whichever tasks. Who
 * waits for one task looks at that task: while (inlay_task_status(task) == -EINPROGRESS).
 *
 * Sleeping. With params.events:
 *
 *   for (;;) {
 *           while (inlay_task_host_progress(&host, now(), 64))
 *                   ;
 *           if (inlay_task_host_arm(&host))
 *                   continue;                                            something came meanwhile
 *           poll inlay_task_host_fd(&host) until inlay_task_host_due(&host)
 *           inlay_task_host_event(&host);                                takes what the descriptor told, if anything
 *   }
 *
 * DOCA's names: doca_urom_worker is a struct inlay_task_host; doca_urom_worker_cmd_task and its doca_task (as_task) are one struct
 * inlay_task. RELEASE in use is -EPERM, allocation without one left -ENOMEM, a full queue -EAGAIN.
 *
 * Instructions. A submit of a small payload and its completion are one send, one receive posted, one poll, and what finds the task; sends
 * are signaled four times in a lap of the ring.
 *
 * Threads: a host and its tasks have one owner at a time.
 * Sources: DOCA's documentation of doca_urom and doca_pe (tasks); the InfiniBand specification on memory windows of type 2; Linux's
 * nvme-rdma, which found that a command's memory is free only when both its send and its answer are there.
 */
#ifndef INLAY_TASK_HOST_H
#define INLAY_TASK_HOST_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/buf.h>
#include <inlay/mmap.h>
#include <inlay/queue.h>
#include <inlay/verbs.h>
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
	INLAY_TASK_FLYING,              /* submitted */
	INLAY_TASK_CLOSING,             /* answered; its windows are being closed, or its send is not done */
	INLAY_TASK_RIPE,                /* its callback is due */
	INLAY_TASK_QUARANTINE,
};

/* Who has completed it */
enum inlay_task_by {
	INLAY_TASK_BY_NOBODY,           /* it was never completed */
	INLAY_TASK_BY_HANDLER,
	INLAY_TASK_BY_WORKER,
	INLAY_TASK_BY_HOST,
	INLAY_TASK_BY_CONNECTION,
};

/* Why a task's memory may still be in use, and what is done about it */
enum inlay_task_held {
	INLAY_TASK_HELD_PAYLOAD = 1,    /* its payload's window is open */
	INLAY_TASK_HELD_RESPONSE = 2,   /* its response's window is open */
	INLAY_TASK_HELD_SEND = 4,       /* the device gathers from the caller's memory */
	INLAY_TASK_HELD_CLOSE = 8,      /* windows are to be closed */
	INLAY_TASK_HELD_CLOSED = 16,    /* that is posted */
	INLAY_TASK_HELD_COPY = 32,      /* it has a response buffer of the caller's */
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
	uint8_t state;                  /* enum inlay_task_state; with the three that follow, a word */
	uint8_t held;                   /* enum inlay_task_held */
	uint8_t by;                     /* enum inlay_task_by */
	uint8_t early;                  /* completed, and its answer is still to come */
	uint32_t end;                   /* the WQEBB of the send queue behind what was posted for it last */
	int status;
	uint32_t response_len;
	uint64_t user_data;
	uint8_t user[INLAY_TASK_USER];
	uint64_t deadline;
	struct inlay_buf *response;     /* the caller's, as INLAY_TASK_HELD_COPY tells; NULL: it stays in the answer */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_task) == 2 * INLAY_CACHE_LINE, "a task is two lines");
INLAY_STATIC_ASSERT(offsetof(struct inlay_task, status) == INLAY_CACHE_LINE, "the first is for the queue, the second for the caller");
INLAY_STATIC_ASSERT(offsetof(struct inlay_task, state) % 4 == 0, "a word");

/* The rest of a task */
struct inlay_task_more {
	struct inlay_buf *payload;      /* its own buffers */
	struct inlay_buf *response;
	uint32_t next;                  /* free, ripe or waiting: in which list a task is, its state says */
	uint32_t windows[2];            /* of payload and response */
	uint32_t reserved;
};

/* A memory window of type 2 */
struct inlay_task_window {
	struct ibv_mw *mw;
	uint32_t rkey;
	uint32_t next;                  /* free ones */
};

/* What a host is to be. Start from inlay_task_host_default. */
struct inlay_task_host_params {
	struct inlay_task_path path;
	uint32_t tasks;                 /* at most INLAY_TASK_MAX */
	uint32_t in_flight;             /* a power of two, at most INLAY_TASK_RECEIVES_MAX */
	uint32_t message;               /* bytes of the longest answer that it receives, head included */
	uint32_t payload;               /* bytes of each task's own payload buffer */
	uint32_t max_inline;            /* payloads up to that many bytes are copied into the WQE; at most 512 */
	uint32_t max_gather;            /* pieces of a payload that is a list; at most 16 */
	uint32_t windows;               /* payloads and responses by key at a time */
	uint32_t events;                /* a completion channel, to sleep on */
	uint64_t period;                /* between two probes, in the caller's unit of time; 0: none */
	uint64_t user_data;             /* for callbacks */
	uint64_t id;                    /* told to the worker in the address */
	inlay_task_cb reusable;         /* called when a task leaves quarantine; NULL: not */
};

/* A worker, as the host sees it. The first two lines are what submit and completion touch beside the queues. */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_task_host {
	struct inlay_task *tasks;
	uint64_t due;                   /* when something beside the CQ is to be looked at; 0: at once */
	uint64_t earliest;              /* no deadline of a task in flight is before this */
	uint32_t outstanding;           /* commands sent and not answered */
	uint32_t limit;                 /* of them; 0: not connected, or no longer */
	uint32_t max_inline;
	uint32_t quarter;               /* of the send ring, in WQEBBs less 1: a send that reaches its end is signaled */
	uint32_t num;                   /* tasks */
	uint32_t ripe;                  /* list of tasks whose callback is due: first, last */
	uint32_t ripe_last;
	uint32_t waiting;               /* list of tasks that wait for a send, or for a window to be closed */
	uint64_t user_data;
	uint8_t *slots;
	uint8_t **slot_of;              /* which slot the receive has, by its number */
	uint64_t now;                   /* of this progress */
	uint32_t mask;                  /* receives - 1 */
	uint32_t message;               /* bytes of a slot */
	uint32_t lkey;
	struct inlay_task_more *more;
	uint32_t free;                  /* list of free tasks */
	uint32_t room;                  /* bytes of payload in a command without keys */
	uint32_t answer_room;           /* bytes of a response in an answer */
	uint32_t quiet;                 /* of this progress: completions that called nothing */
	struct inlay_cq cq __attribute__((aligned(INLAY_CACHE_LINE)));
	struct inlay_task_link link;
	/* Seldom */
	struct inlay_mmap mmap;
	struct inlay_inventory *inventory;
	struct inlay_task_window *windows;
	uint32_t num_windows;
	uint32_t free_window;
	uint32_t orphans;               /* answers to come that no task waits for */
	uint32_t unclaimed;             /* answers that came and were no task's */
	uint32_t strays;                /* of all time: those, and whatever else should not have come */
	uint32_t flushed;               /* receives that the device has given back since the connection's end */
	uint32_t marked;                /* the last WQE of a broken connection is posted: one that says when it is done */
	uint32_t aged;                  /* the send queue's pi when inlay_task_host_age was called last */
	int broken;                     /* why: a negative errno; 0: it is not */
	uint32_t stopped;
	uint32_t probing;
	uint32_t probe_end;
	uint32_t owed;                  /* the ring holds something of the host's own to ring for */
	uint32_t hurry;                 /* somebody waits for a send that may be unsignaled */
	uint64_t probe_at;
	struct inlay_task_host_params params;
	struct ibv_pd *pd;
	struct ibv_cq *ibcq;
	struct ibv_mr *mr;
	struct ibv_comp_channel *channel;
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_task_host, slots) == INLAY_CACHE_LINE, "a submit touches one line of its host");
INLAY_STATIC_ASSERT(offsetof(struct inlay_task_host, cq) == 2 * INLAY_CACHE_LINE, "a completion touches two");

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up
 */

/* 64 tasks, 32 in flight, messages of 4096 bytes, 96 bytes inline, lists of 4, no windows, no events, a probe every second. */
INLAY_COLD struct inlay_task_host_params inlay_task_host_default(void)
{
	struct inlay_task_host_params p;

	__builtin_memset(&p, 0, sizeof(p));
	p.path = inlay_task_path_default();
	p.tasks = 64;
	p.in_flight = 32;
	p.message = 4096;
	p.payload = 4096 - INLAY_TASK_HEAD;
	p.max_inline = 96;
	p.max_gather = 4;
	p.period = 1000000000;
	return p;
}

/*
 * Within how long a dead worker's tasks are completed, by progress that is called all the time: params.period and what the path needs, in
 * nanoseconds, when the period is in nanoseconds. UINT64_MAX without probes.
 */
INLAY_COLD uint64_t inlay_task_host_bound(const struct inlay_task_host_params *p)
{
	return p->period ? p->period + inlay_task_path_bound(&p->path) : UINT64_MAX;
}

INLAY_COLD uint64_t inlay_task_lines(uint64_t bytes)
{
	return (bytes + INLAY_CACHE_LINE - 1) / INLAY_CACHE_LINE * INLAY_CACHE_LINE;
}

/* Can a host be like this? */
INLAY_COLD int inlay_task_host_check(const struct inlay_task_host_params *p)
{
	if (!p || !p->tasks || p->tasks > INLAY_TASK_MAX || !inlay_is_pow2(p->in_flight) || p->in_flight > INLAY_TASK_RECEIVES_MAX)
		return -EINVAL;
	if (p->message < INLAY_TASK_MESSAGE_MIN || p->message > INLAY_TASK_MESSAGE_MAX || !p->payload || p->payload > INLAY_BUF_DATA_MAX)
		return -EINVAL;
	return p->max_inline > 512 || p->max_gather > 16 || p->windows > 2 * p->tasks ? -EINVAL : 0;
}

/* WQEBBs that the send ring has to have at least: all that may be outstanding, as long as it can be, and twice, since credit comes late. */
INLAY_COLD uint32_t inlay_task_host_wqebbs(const struct inlay_task_host_params *p)
{
	uint64_t each = (INLAY_DS + 4 + INLAY_TASK_MESSAGE_MIN + p->max_inline + INLAY_WQEBB - 1) / INLAY_WQEBB;
	uint64_t gather = (1 + 5 + p->max_gather + 3) / 4, all;

	if (each < gather)
		each = gather;
	all = 2 * each * p->in_flight + 12ull * p->windows + 16;
	if (all < 8 * each) /* no WQE is as long as a quarter */
		all = 8 * each;
	return all > 32768 ? 32768 : (uint32_t)all;
}

/* Of a task's own payload buffer, and a line before it, whose second half has the head when the device gathers both. */
INLAY_COLD uint64_t inlay_task_host_stride(const struct inlay_task_host_params *p)
{
	return INLAY_CACHE_LINE + inlay_task_lines(p->payload);
}

INLAY_COLD uint64_t inlay_task_host_arena(const struct inlay_task_host_params *p)
{
	return p->tasks * inlay_task_host_stride(p) + ((uint64_t)p->tasks + p->in_flight) * inlay_task_lines(p->message);
}

/* Bytes of memory for such a host; 0 when there cannot be one. */
INLAY_COLD size_t inlay_task_host_size(const struct inlay_task_host_params *p)
{
	if (inlay_task_host_check(p))
		return 0;
	return (size_t)(inlay_task_host_arena(p) + (uint64_t)p->tasks * sizeof(struct inlay_task) +
			inlay_task_lines((uint64_t)p->tasks * sizeof(struct inlay_task_more)) +
			inlay_task_lines((uint64_t)p->in_flight * sizeof(uint8_t *)) +
			inlay_task_lines((uint64_t)p->windows * sizeof(struct inlay_task_window)) +
			inlay_inventory_size(2 * p->tasks) + inlay_mmap_size(1, 1));
}

/* A task's own payload buffer without what the caller has chained to it. */
INLAY_FN void inlay_task_unchain(const struct inlay_task *t)
{
	struct inlay_buf *own = t->host->more[inlay_task_context_index(t->context)].payload;

	if (INLAY_UNLIKELY(own->next))
		inlay_buf_unchain_list(own, inlay_buf_next(own));
}

/* Takes the host apart again as far as it was made of inlay's objects. */
INLAY_COLD void inlay_task_host_unmake(struct inlay_task_host *h)
{
	uint32_t i;

	for (i = 0; i < h->num && h->more[i].payload; i++) {
		if (h->tasks[i].host)
			inlay_task_unchain(&h->tasks[i]);
		inlay_buf_dec_refcount(h->more[i].payload, NULL);
		if (h->more[i].response)
			inlay_buf_dec_refcount(h->more[i].response, NULL);
	}
	if (h->inventory)
		inlay_inventory_destroy(h->inventory);
	h->inventory = NULL;
	inlay_mmap_destroy(&h->mmap);
}

/*
 * Makes a host of everything but verbs objects: for inlay_task_host_create, and for who has queues of another making. h->cq, h->link.sq and
 * h->link.rq are in place; the rest of *h is zeroed. Windows and channel are put in afterwards.
 *
 * keys  of the arena, the first inlay_task_host_arena(p) bytes of memory; pd is looked at by no one but buffers' map
 *
 * Returns 0, or what making the map and the inventory returned.
 */
INLAY_COLD int inlay_task_host_init(struct inlay_task_host *h, void *memory, const struct inlay_task_host_params *p, struct ibv_pd *pd,
				    struct inlay_keys keys)
{
	uint64_t stride = inlay_task_host_stride(p), slot = inlay_task_lines(p->message), arena = inlay_task_host_arena(p);
	uint8_t *at = (uint8_t *)memory, *payload = at + INLAY_CACHE_LINE;
	uint32_t i;
	int err;

	h->params = *p;
	h->pd = pd;
	h->num = p->tasks;
	h->user_data = p->user_data;
	h->lkey = keys.lkey;
	h->due = h->earliest = INLAY_TASK_NEVER;
	h->ripe = h->ripe_last = h->waiting = INLAY_TASK_NONE;
	h->slots = at + p->tasks * stride;
	h->message = (uint32_t)slot;
	h->mask = p->in_flight - 1;
	h->quarter = inlay_task_quarter(&h->link.sq);
	h->answer_room = inlay_task_room((uint32_t)slot);
	h->num_windows = p->windows;
	h->free_window = INLAY_TASK_NONE;
	at += arena;
	h->tasks = (struct inlay_task *)(void *)at;
	__builtin_memset(at, 0, p->tasks * sizeof(struct inlay_task));
	at += p->tasks * sizeof(struct inlay_task);
	h->more = (struct inlay_task_more *)(void *)at;
	__builtin_memset(at, 0, p->tasks * sizeof(struct inlay_task_more));
	at += inlay_task_lines((uint64_t)p->tasks * sizeof(struct inlay_task_more));
	h->slot_of = (uint8_t **)(void *)at;
	at += inlay_task_lines((uint64_t)p->in_flight * sizeof(uint8_t *));
	h->windows = (struct inlay_task_window *)(void *)at;
	for (i = 0; i < p->windows; i++)
		h->windows[i].mw = NULL;
	at += inlay_task_lines((uint64_t)p->windows * sizeof(struct inlay_task_window));
	err = inlay_mmap_create(&h->mmap, at, inlay_mmap_size(1, 1), 1, 1);
	if (!err)
		err = inlay_mmap_add_dev(&h->mmap, pd);
	if (!err)
		err = inlay_mmap_add(&h->mmap, inlay_source_keys((uintptr_t)memory, (size_t)arena, keys));
	if (!err)
		err = inlay_mmap_set_permissions(&h->mmap, INLAY_LOCAL_READ_WRITE | INLAY_MW_BIND);
	if (!err)
		err = inlay_mmap_start(&h->mmap);
	at += inlay_mmap_size(1, 1);
	if (!err)
		err = inlay_inventory_create(at, inlay_inventory_size(2 * p->tasks), 2 * p->tasks, &h->inventory);
	if (!err)
		err = inlay_inventory_start(h->inventory);
	for (i = 0; i < p->tasks && !err; i++) {
		err = inlay_inventory_get_by_addr(h->inventory, &h->mmap, payload + i * stride, p->payload, &h->more[i].payload);
		if (!err)
			err = inlay_inventory_get_by_addr(h->inventory, &h->mmap, h->slots + i * slot, (size_t)slot, &h->more[i].response);
		h->tasks[i].host = h;
		h->tasks[i].context = inlay_task_context(i, (i + 1) * 0x9e3779b1u);
		h->tasks[i].slot = h->slots + i * slot;
		h->more[i].next = i + 1 < p->tasks ? i + 1 : INLAY_TASK_NONE;
	}
	if (err)
		inlay_task_host_unmake(h);
	return err;
}

/* Posts the receives: one for each command that may be outstanding. Each has a slot, and so has each task. Once. */
INLAY_COLD void inlay_task_host_receive(struct inlay_task_host *h)
{
	uint32_t i;

	inlay_rq_prepare(&h->link.rq, h->message, h->lkey);
	for (i = 0; i <= h->mask; i++) {
		struct ibv_sge sge;

		h->slot_of[i] = h->slots + (uint64_t)(h->num + i) * h->message;
		sge.addr = (uintptr_t)h->slot_of[i];
		sge.length = h->message;
		sge.lkey = h->lkey;
		inlay_post_recv(&h->link.rq, &sge, 1);
	}
	inlay_rq_ring(&h->link.rq);
}

/* The worker is there. peer: what its address says of it. From now on tasks may be submitted. */
INLAY_COLD void inlay_task_host_begin(struct inlay_task_host *h, const struct inlay_task_address *peer)
{
	h->link.peer = *peer;
	h->room = inlay_task_room(peer->message);
	h->max_inline = h->params.max_inline < h->room ? h->params.max_inline : h->room;
	h->limit = peer->receives < h->params.in_flight ? peer->receives : h->params.in_flight;
	h->due = h->params.period ? 0 : INLAY_TASK_NEVER;
}

/*
 * Frees what inlay_task_host_create made; memory is the caller's again. What of it could not be freed is kept, and it may be called again,
 * but nothing else of the host. Whose queue pair is of another making has destroyed it before.
 *
 * Returns 0; -EBUSY while a task is in flight or ripe, or in quarantine and the connection has not broken (inlay_task_host_stop and
 * progress end that), or when something is in use.
 */
INLAY_COLD int inlay_task_host_destroy(struct inlay_task_host *h)
{
	uint32_t i;

	for (i = 0; i < h->num; i++)
		if (h->tasks[i].state != INLAY_TASK_FREE && h->tasks[i].state != INLAY_TASK_IDLE &&
		    (h->tasks[i].state != INLAY_TASK_QUARANTINE || !h->broken))
			return -EBUSY;
	h->limit = 0;
	if (inlay_task_link_destroy(&h->link))
		return -EBUSY;
	for (i = 0; i < h->num_windows; i++) {
		if (h->windows[i].mw && ibv_dealloc_mw(h->windows[i].mw))
			return -EBUSY;
		h->windows[i].mw = NULL;
	}
	if (h->ibcq && ibv_destroy_cq(h->ibcq))
		return -EBUSY;
	h->ibcq = NULL;
	if (h->channel && ibv_destroy_comp_channel(h->channel))
		return -EBUSY;
	h->channel = NULL;
	if (h->inventory)
		inlay_task_host_unmake(h);
	if (h->mr && ibv_dereg_mr(h->mr))
		return -EBUSY;
	h->mr = NULL;
	h->num = h->num_windows = 0;
	return 0;
}

/* inlay_task_host_create, which cleans up. */
INLAY_COLD int inlay_task_host_make(struct inlay_task_host *h, void *memory, struct ibv_pd *pd, const struct inlay_task_host_params *p)
{
	struct inlay_task_caps caps;
	struct inlay_keys keys;
	uint32_t i;
	int err;

	__builtin_memset(&caps, 0, sizeof(caps));
	caps.wqebbs = inlay_task_host_wqebbs(p);
	caps.receives = p->in_flight;
	caps.max_inline = INLAY_TASK_MESSAGE_MIN + p->max_inline;
	caps.max_gather = p->max_gather + 2; /* beside the head */
	caps.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	caps.pd = pd;
	errno = 0;
	if (p->events) {
		h->channel = ibv_create_comp_channel(pd->context);
		if (!h->channel)
			return errno ? -errno : -ENOMEM;
	}
	/* Every WQE that is flushed has a completion, signaled or not; the ring may turn out longer than asked for. */
	h->ibcq = ibv_create_cq(pd->context, (int)(5 * caps.wqebbs + p->in_flight), NULL, h->channel, 0);
	if (!h->ibcq)
		return errno ? -errno : -ENOMEM;
	caps.ibcq = h->ibcq;
	caps.cq = &h->cq;
	err = inlay_cq_from_cq(&h->cq, h->ibcq, NULL);
	if (!err)
		err = inlay_task_link_create(&h->link, &caps, &p->path);
	if (err)
		return err;
	h->mr = ibv_reg_mr(pd, memory, (size_t)inlay_task_host_arena(p), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	if (!h->mr)
		return errno ? -errno : -ENOMEM;
	keys.lkey = h->mr->lkey;
	keys.rkey = h->mr->rkey;
	err = inlay_task_host_init(h, memory, p, pd, keys);
	if (err) {
		ibv_dereg_mr(h->mr);
		h->mr = NULL;
		return err;
	}
	for (i = 0; i < p->windows; i++) {
		h->windows[i].mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
		if (!h->windows[i].mw)
			return errno ? -errno : -ENOMEM;
		h->windows[i].rkey = h->windows[i].mw->rkey;
		h->windows[i].next = h->free_window;
		h->free_window = i;
	}
	h->link.self.role = INLAY_TASK_HOST;
	h->link.self.message = h->message;
	h->link.self.receives = p->in_flight;
	h->link.self.id = p->id;
	inlay_task_host_receive(h);
	return 0;
}

/*
 * Makes a host: its queue pair, completion queue, memory region and windows, with the receives posted.
 *
 * memory  for tasks and messages, on a cache line, better on a page; the host's until it is destroyed
 * size    its bytes, at least inlay_task_host_size(p)
 * pd      of an mlx5 device. It must outlive the host
 *
 * Returns 0; -EINVAL for an argument out of its range; -ENOMEM when size is too small, or the device has not as much; what
 * inlay_task_link_create returns; else the negative errno of the verbs call that failed. On failure nothing is left behind.
 */
INLAY_COLD int inlay_task_host_create(struct inlay_task_host *h, void *memory, size_t size, struct ibv_pd *pd,
				      const struct inlay_task_host_params *p)
{
	int err;

	if (!h || (uintptr_t)h % INLAY_CACHE_LINE || !memory || (uintptr_t)memory % INLAY_CACHE_LINE || !pd || inlay_task_host_check(p))
		return -EINVAL;
	if (size < inlay_task_host_size(p))
		return -ENOMEM;
	__builtin_memset(h, 0, sizeof(*h));
	err = inlay_task_host_make(h, memory, pd, p);
	if (err)
		inlay_task_host_destroy(h);
	return err;
}

/* Writes the host's address blob: INLAY_TASK_ADDRESS bytes, for the worker's inlay_task_conn_connect. */
INLAY_COLD void inlay_task_host_address(const struct inlay_task_host *h, uint8_t *blob)
{
	inlay_task_address_write(blob, &h->link.self);
}

/*
 * Connects the host to a worker's connection.
 *
 * blob, len  as inlay_task_conn_address gave it on the other side
 *
 * Returns 0; an error of inlay_task_address_read; -EBADFD when it is connected, or was; -EINVAL when the worker's port is of another link
 * layer; else the negative errno of ibv_modify_qp. The worker must have connected its end before the first command is sent to it: what
 * comes too early is tried again as a dead peer would be.
 */
INLAY_COLD int inlay_task_host_connect(struct inlay_task_host *h, const void *blob, size_t len)
{
	struct inlay_task_address peer;
	int err = inlay_task_address_read(&peer, blob, len, INLAY_TASK_WORKER);

	if (err)
		return err;
	if (h->limit || h->broken)
		return -EBADFD;
	err = inlay_task_link_connect(&h->link, &peer);
	if (!err)
		inlay_task_host_begin(h, &peer);
	return err;
}

/*
 * Breaks the connection: no task is submitted any more (-ENOTCONN), and progress completes what is in flight, with -ECONNABORTED. May be
 * called by callbacks. Returns 0, or the negative errno of ibv_modify_qp.
 */
INLAY_COLD int inlay_task_host_stop(struct inlay_task_host *h)
{
	h->stopped = 1;
	h->limit = 0;
	h->due = 0;
	return h->link.qp ? inlay_task_link_break(&h->link) : 0;
}

/* The descriptor to sleep on; -1 without params.events. */
INLAY_COLD int inlay_task_host_fd(const struct inlay_task_host *h)
{
	return h->channel ? h->channel->fd : -1;
}

/*
 * Takes an event from the descriptor, on which one must be, or the call sleeps for it (unless the caller has made it non-blocking). Returns
 * 0; -ENOTSUP without params.events; else the negative errno of ibv_get_cq_event.
 */
INLAY_COLD int inlay_task_host_event(struct inlay_task_host *h)
{
	struct ibv_cq *cq;
	void *context;

	if (!h->channel)
		return -ENOTSUP;
	errno = 0;
	if (ibv_get_cq_event(h->channel, &cq, &context))
		return errno ? -errno : -EIO;
	inlay_cq_event(&h->cq);
	ibv_ack_cq_events(cq, 1);
	return 0;
}

#endif
