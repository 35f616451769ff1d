/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/host.h: a host, the side that uses a worker: set-up, and progress of its tasks (task.h).
 *
 *   p = inlay_task_host_default();
 *   memory = aligned_alloc(4096, inlay_task_host_size(&p));
 *   inlay_task_host_create(&host, memory, inlay_task_host_size(&p), pd, &p, &why);
 *   ... send INLAY_TASK_ADDRESS bytes at &host.link.self to the worker; get its connection's ...
 *   inlay_task_host_connect(&host, theirs, len, &why);
 *   ... submit tasks ...
 *   inlay_task_host_progress(&host, 32);     calls the callbacks of those that completed
 *   inlay_task_link_break(&host.link);       the end: progress completes all tasks
 *   while (inlay_task_host_destroy(&host))
 *           inlay_task_host_progress(&host, 32);
 *
 * At most params.in_flight commands are outstanding, or the worker's credits if fewer. A cancelled
 * command stays outstanding until its answer; any message that matches no submitted task is taken
 * for it, or is a stray if none was cancelled. A task keeps the receive slot of its answer; its
 * previous slot is posted instead. Callbacks may do anything with tasks of any host, and break its
 * link, but not call progress of the same host.
 */
#ifndef INLAY_TASK_HOST_H
#define INLAY_TASK_HOST_H /* a trial: names may change */

#include <inlay/cqe.h>
#include <inlay/task/task.h>

/* ---- Set-up ---- */

/* 64 tasks, 32 in flight, messages of 4096 bytes, 96 inline. */
INLAY_COLD struct inlay_task_host_params inlay_task_host_default(void)
{
	struct inlay_task_host_params p;

	__builtin_memset(&p, 0, sizeof(p));
	p.path = inlay_connect_defaults();
	p.path.retry_count = 4; /* fails after 1.4 s without ACKs, */
	p.path.rnr_retry = 6;   /* or 4 ms of RNR NAKs */
	p.tasks = 64;
	p.in_flight = 32;
	p.message = 4096;
	p.payload = 4096 - INLAY_TASK_HEAD;
	p.max_inline = 96;
	p.max_gather = 4;
	return p;
}

/*
 * Lays a host out from `at` on: payload buffers, each behind a line for the head, slots, the rest;
 * all of it is registered. Returns the end; 0 if a parameter is out of range.
 */
INLAY_COLD uintptr_t inlay_task_host_place_(struct inlay_task_host *h, const struct inlay_task_host_params *p, uintptr_t at)
{
	if (!p || !p->tasks || p->tasks > INLAY_TASK_MAX || !inlay_is_pow2(p->in_flight) ||
	    p->in_flight > INLAY_TASK_RECEIVES_MAX || p->message < INLAY_TASK_MESSAGE_MIN ||
	    p->message > INLAY_TASK_MESSAGE_MAX || !p->payload || p->payload > INLAY_SGE_MAX ||
	    p->max_inline > 512 || !p->max_gather || p->max_gather > INLAY_TASK_GATHER)
		return 0;
	h->message = (uint32_t)inlay_round_up(p->message, INLAY_CACHE_LINE);
	h->stride = INLAY_CACHE_LINE + inlay_round_up(p->payload, INLAY_CACHE_LINE);
	inlay_task_place_(&at, p->tasks * h->stride);
	h->slots = (uint8_t *)inlay_task_place_(&at, ((uint64_t)p->tasks + p->in_flight) * h->message);
	h->tasks = (struct inlay_task *)inlay_task_place_(&at, p->tasks * sizeof(struct inlay_task));
	h->slot_of = (uint8_t **)inlay_task_place_(&at, p->in_flight * sizeof(uint8_t *));
	h->mmap_memory = inlay_task_place_(&at, inlay_mmap_size(1, 1));
	h->inventory_memory = inlay_task_place_(&at, inlay_inventory_size(2 * p->tasks));
	return at;
}

/* Bytes of memory for such a host; 0 if a parameter is out of range. */
INLAY_COLD size_t inlay_task_host_size(const struct inlay_task_host_params *p)
{
	struct inlay_task_host h;

	return (size_t)inlay_task_host_place_(&h, p, 0);
}

/*
 * Makes all of a host but its queues, and posts the receives. h->link's queues, h->cq and h->pd are
 * set. source: the memory. After a failure, inlay_task_host_destroy frees what was made.
 */
INLAY_COLD int inlay_task_host_init_(struct inlay_task_host *h, void *memory, const struct inlay_task_host_params *p,
				     struct inlay_source source)
{
	struct ibv_sge sge = {0, 0, 0};
	uint32_t i;
	int err;

	inlay_task_host_place_(h, p, (uintptr_t)memory);
	h->params = *p;
	h->user_data = p->user_data;
	h->response_max = h->message - INLAY_TASK_HEAD;
	h->mask = p->in_flight - 1;
	h->half = (inlay_sq_size(&h->link.sq) - 1) >> 1;
	h->free = h->tasks;
	__builtin_memset(h->tasks, 0, (uintptr_t)h->mmap_memory - (uintptr_t)h->tasks);
	err = inlay_mmap_create(&h->mmap, h->mmap_memory, inlay_mmap_size(1, 1), 1, 1);
	if (!err)
		err = inlay_mmap_add_dev(&h->mmap, h->pd);
	if (!err)
		err = inlay_mmap_add(&h->mmap, source);
	if (!err)
		err = inlay_mmap_set_permissions(&h->mmap, INLAY_LOCAL_READ_WRITE | INLAY_MW_BIND);
	if (!err)
		err = inlay_mmap_start(&h->mmap);
	if (!err)
		err = inlay_inventory_create(h->inventory_memory, inlay_inventory_size(2 * p->tasks), 2 * p->tasks, &h->inventory);
	if (!err)
		err = inlay_inventory_start(h->inventory);
	if (err)
		return err;
	h->num = p->tasks;
	for (i = 0; i < h->num; i++) {
		struct inlay_task *t = &h->tasks[i];

		t->host = h;
		t->ids.context = (uint64_t)((i + 1) * 0x9e3779b1u) << 32 | i;
		t->slot = h->slots + (size_t)i * h->message;
		t->next = i + 1 < p->tasks ? t + 1 : NULL;
		/* The inventory and the map have room for both */
		(void)inlay_inventory_get_by_addr(h->inventory, &h->mmap, (uint8_t *)memory + i * h->stride +
						  INLAY_CACHE_LINE, p->payload, &t->own_payload);
		(void)inlay_inventory_get_by_addr(h->inventory, &h->mmap, t->slot, h->message, &t->own_response);
	}
	for (i = 0; p->windows && i < 2 * h->num; i++) {
		struct inlay_task *t = &h->tasks[i >> 1];

		errno = 0;
		t->mw[i & 1] = ibv_alloc_mw(h->pd, IBV_MW_TYPE_2);
		if (!t->mw[i & 1])
			return errno ? -errno : -ENOMEM;
		t->rkey[i & 1] = t->mw[i & 1]->rkey;
	}
	sge.lkey = inlay_buf_keys(h->tasks->own_response).lkey;
	sge.length = h->message;
	inlay_rq_prepare(&h->link.rq, h->message, sge.lkey);
	for (i = 0; i <= h->mask; i++) {
		h->slot_of[i] = h->slots + ((size_t)h->num + i) * h->message;
		sge.addr = (uintptr_t)h->slot_of[i];
		inlay_had_room_(inlay_post_recv(&h->link.rq, &sge, 1));
	}
	inlay_rq_ring(&h->link.rq);
	return 0;
}

/* Opens the host, which is connected to h->link.peer, for submits. */
INLAY_COLD void inlay_task_host_begin_(struct inlay_task_host *h)
{
	h->payload_max = h->link.peer.message - INLAY_TASK_HEAD;
	h->max_inline = h->params.max_inline < h->payload_max ? h->params.max_inline : h->payload_max;
	h->limit = h->link.peer.receives < h->params.in_flight ? h->link.peer.receives : h->params.in_flight;
}

/*
 * Frees all that inlay_task_host_create made. Buffers chained to a task's own payload buffer become
 * lists of their own. Returns 0: memory is the caller's again; -EBUSY while a task is submitted;
 * -EBUSY while a task's own buffer is referenced or a verbs object in use: call only this again.
 */
INLAY_COLD int inlay_task_host_destroy(struct inlay_task_host *h)
{
	uint32_t i;

	for (i = 0; i < h->num; i++)
		if (h->tasks[i].state > INLAY_TASK_IDLE)
			return -EBUSY;
	h->limit = 0;
	if (inlay_task_link_destroy(&h->link) || inlay_task_cq_free_(&h->ibcq))
		return -EBUSY;
	for (i = 0; i < 2 * h->num; i++) {
		struct ibv_mw **mw = &h->tasks[i >> 1].mw[i & 1];

		if (*mw && ibv_dealloc_mw(*mw))
			return -EBUSY;
		*mw = NULL;
	}
	for (i = 0; h->inventory && i < h->num; i++) {
		inlay_task_unchain_(&h->tasks[i]);
		inlay_buf_dec_refcount(h->tasks[i].own_payload, NULL);
		inlay_buf_dec_refcount(h->tasks[i].own_response, NULL);
	}
	if (h->inventory)
		inlay_inventory_destroy(h->inventory);
	h->inventory = NULL;
	return inlay_mmap_destroy(&h->mmap);
}

/*
 * Makes a host: its CQ, queue pair and memory region, with the receives posted.
 *
 * size  bytes of memory, at least inlay_task_host_size(p)
 *
 * Returns 0; -EINVAL for NULL, a wrong alignment, or a parameter out of range; -ENOBUFS if size is
 * too small; an error of inlay_cq_from_cq, inlay_task_link_create or inlay_mmap_start; else the
 * negative errno of the verbs call.
 */
INLAY_COLD int inlay_task_host_create(struct inlay_task_host *h, void *memory, size_t size, struct ibv_pd *pd,
				      const struct inlay_task_host_params *p, const char **why)
{
	struct inlay_task_caps caps;
	int err;

	if (!h || (uintptr_t)h % INLAY_CACHE_LINE || !memory || (uintptr_t)memory % INLAY_CACHE_LINE || !pd ||
	    !inlay_task_host_size(p))
		return inlay_refuse_(-EINVAL, why, "a host's argument or parameter is out of its range");
	if (size < inlay_task_host_size(p))
		return inlay_refuse_(-ENOBUFS, why, "less memory than inlay_task_host_size");
	__builtin_memset(h, 0, sizeof(*h));
	__builtin_memset(&caps, 0, sizeof(caps));
	h->pd = caps.pd = pd;
	caps.sends = 2 * p->in_flight + 8; /* their credit comes late */
	caps.max_inline = INLAY_TASK_HEAD + (p->max_inline < 32 ? 32 : p->max_inline);
	caps.max_gather = p->max_gather + 2;
	caps.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	caps.cq = &h->cq;
	h->link.self.role = INLAY_TASK_HOST;
	h->link.self.message = (uint32_t)inlay_round_up(p->message, INLAY_CACHE_LINE);
	h->link.self.receives = p->in_flight;
	err = inlay_task_cq_make_(&h->cq, &h->ibcq, p->channel, pd, INLAY_TASK_CQES_ * caps.sends + p->in_flight, why);
	caps.ibcq = h->ibcq;
	if (!err)
		err = inlay_task_link_create(&h->link, &caps, &p->path, why);
	if (!err) {
		err = inlay_task_host_init_(h, memory, p, inlay_source_host(memory, inlay_task_host_size(p)));
		if (err)
			inlay_refuse_(err, why, "the host's memory or a window cannot be registered");
	}
	if (err)
		inlay_task_host_destroy(h);
	return err;
}

/* Connects to a worker's connection, by its address. Returns as inlay_task_link_connect. */
INLAY_COLD int inlay_task_host_connect(struct inlay_task_host *h, const void *blob, size_t len, const char **why)
{
	int err = inlay_task_link_connect(&h->link, blob, len, INLAY_TASK_WORKER, why);

	if (!err)
		inlay_task_host_begin_(h);
	return err;
}

/* ---- Data path: rare cases, then progress ---- */

/* Makes a task IDLE, in the next generation, so that late messages name no task; calls its callback. */
INLAY_ALWAYS void inlay_task_complete_(const struct inlay_task_host *h, struct inlay_task *t)
{
	t->ids.context += 3ull << 32; /* neighbours differ by more than a bit */
	t->state = INLAY_TASK_IDLE;
	t->held = 0;
	if (t->cb)
		t->cb(t, t->user_data, h->user_data);
}

/* Whether the device and the worker are done with the memory of a task that is ENDING. */
INLAY_COLD int inlay_task_is_loose_(struct inlay_task *t)
{
	struct inlay_task_link *l = &t->host->link;

	/* An error completion says nothing about other WQEs: the device must have returned all. */
	if (t->host->broken)
		return !inlay_sq_pending(&l->sq) && !inlay_rq_pending(&l->rq);
	if ((t->held & INLAY_TASK_HELD_KEYS) && (t->held & INLAY_TASK_HELD_CLOSE))
		inlay_task_keys_close_(t);
	if (t->held & INLAY_TASK_HELD_KEYS)
		return 0;
	if (!(t->held & INLAY_TASK_HELD_SEND) || inlay_task_link_done_(l, t->end))
		return 1;
	if (t->held & INLAY_TASK_HELD_MARK && inlay_task_link_mark_(l))
		t->held ^= INLAY_TASK_HELD_MARK;
	return 0;
}

/* Completes the listed tasks, but not those that callbacks append. Returns how many. */
INLAY_COLD uint32_t inlay_task_host_settle_(struct inlay_task_host *h)
{
	struct inlay_task *t, *last = h->last;
	uint32_t n = 0;

	do {
		t = h->first;
		h->first = t->next;
		if (inlay_task_is_loose_(t)) {
			n++;
			inlay_task_complete_(h, t);
		} else {
			inlay_task_end_(t, t->status); /* to the end of the list */
		}
	} while (t != last);
	return n;
}

/* The connection has broken: all that is in flight ends. */
INLAY_COLD void inlay_task_host_break_(struct inlay_task_host *h, int why)
{
	uint32_t i;

	h->broken = why;
	h->limit = 0;
	for (i = 0; i < h->num; i++)
		if (h->tasks[i].state == INLAY_TASK_SUBMITTED) {
			inlay_task_end_(&h->tasks[i], why);
			h->tasks[i].response_len = 0;
		}
	h->outstanding = h->late = 0;
}

/* Handles a message that is not the plain answer of a plain command. It took a receive. */
INLAY_COLD void inlay_task_host_message_(struct inlay_task_host *h, uint32_t bytes)
{
	/* All receives are posted, so the next post takes the place of the oldest in the ring. */
	uint8_t **slot = &h->slot_of[inlay_rq_index(&h->link.rq) & h->mask], *msg = *slot;
	struct inlay_task_message m;
	int err = inlay_task_message_read_(&m, msg, bytes > h->message ? 0 : bytes);
	struct inlay_task *t = (uint32_t)m.ids.context < h->num ? &h->tasks[(uint32_t)m.ids.context] : NULL;

	if (t && (t->ids.context != m.ids.context || t->state < INLAY_TASK_SUBMITTED))
		t = NULL;
	if (t && t->held & INLAY_TASK_HELD_KEYS)
		t->held |= INLAY_TASK_HELD_CLOSE; /* in time or late, the worker is done with the windows */
	if (t && t->state == INLAY_TASK_SUBMITTED) {
		*slot = t->slot;
		t->slot = msg;
		h->outstanding--;
		/* A worker writes only what no answer has room for. */
		if (m.kind == INLAY_TASK_COMMAND ||
		    (m.kind == INLAY_TASK_WRITTEN &&
		     (!(t->held & INLAY_TASK_RESPONSE_KEY) || m.length <= h->response_max ||
		      inlay_buf_set_data_len(t->response, m.length))))
			err = -EBADMSG;
		t->response_len = err ? 0 : m.length;
		inlay_task_end_(t, err ? err : m.status);
	} else if (h->late) {
		/* The answer of a task that was cancelled */
		h->late--;
		h->outstanding--;
	} else {
		h->strays += !h->broken;
	}
	inlay_rq_recycle(&h->link.rq, (uintptr_t)*slot);
	inlay_rq_ring(&h->link.rq);
}

/* Handles all completions but plain receives, and frees them. */
INLAY_COLD void inlay_task_host_other_(struct inlay_task_host *h, const struct mlx5_cqe64 *cqe)
{
	int send = inlay_cqe_is_send(cqe), error = inlay_cqe_is_error(cqe);
	enum ibv_wc_status status = error ? inlay_cqe_status(cqe) : IBV_WC_SUCCESS;

	if (send || error) {
		if ((send ? inlay_sq_release(&h->link.sq, cqe) : inlay_rq_release(&h->link.rq, cqe)) < 0)
			h->strays++;
		if (error && !h->broken)
			inlay_task_host_break_(h, status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_RNR_RETRY_EXC_ERR ?
							  -ECONNRESET : -ECONNABORTED);
		if (h->broken)
			inlay_task_link_drain_(&h->link);
	}
	inlay_cq_advance(&h->cq, 1);
	/* With an immediate, with invalidate, or an RDMA write: no answer, but it took a receive. */
	if (!send && !error)
		inlay_task_host_message_(h, 0);
}

/* Handles a completion; frees it before the callback. Returns 1 if it completed a task. */
INLAY_ALWAYS uint32_t inlay_task_host_take_(struct inlay_task_host *h, const struct mlx5_cqe64 *cqe)
{
	uint32_t length, first;
	uint64_t context;
	struct inlay_task *t;
	uint8_t **slot, *msg;

	/* Opcode, and format (no data in the CQE), in one test; the owner bit is shifted out. */
	if (INLAY_UNLIKELY(cqe->op_own >> 2 != MLX5_CQE_RESP_SEND << 2)) {
		inlay_task_host_other_(h, cqe);
		return 0;
	}
	length = inlay_cqe_byte_count(cqe) - INLAY_TASK_HEAD;
	inlay_cq_advance(&h->cq, 1);
	slot = &h->slot_of[inlay_rq_index(&h->link.rq) & h->mask];
	msg = *slot;
	/*
	 * Trust only what the device has written: with fewer bytes than a head, the length wraps. Kind and
	 * version are compared together, without the status of 12 bits.
	 */
	first = inlay_task_get32_(msg);
	context = inlay_task_get64_(msg + 8);
	if (INLAY_UNLIKELY(length > h->response_max) || INLAY_UNLIKELY(inlay_task_get32_(msg + 4) != length) ||
	    INLAY_UNLIKELY((first & ~0xfff0000u) != (INLAY_TASK_ANSWER << 8 | INLAY_TASK_VERSION)) ||
	    INLAY_UNLIKELY((uint32_t)context >= h->num) ||
	    INLAY_UNLIKELY((t = &h->tasks[(uint32_t)context])->ids.context != context) ||
	    INLAY_UNLIKELY(inlay_task_word_(t) != INLAY_TASK_SUBMITTED)) {
		inlay_task_host_message_(h, length + INLAY_TASK_HEAD);
		return 0;
	}
	*slot = t->slot;
	/* Ring before the callback: it may submit, and the answer takes this receive. */
	inlay_rq_recycle(&h->link.rq, (uintptr_t)t->slot);
	inlay_rq_ring(&h->link.rq);
	t->slot = msg;
	t->status = -(int)(first >> 16);
	t->response_len = length;
	h->outstanding--;
	inlay_task_complete_(h, t);
	return 1;
}

INLAY_CALLS_COLD_
/*
 * Handles at most max completions, at least 1, and calls the callbacks of completed tasks; those
 * that end without a completion come on top. Returns how many tasks completed. To wait for one,
 * call this while its inlay_task_status is -EINPROGRESS.
 */
INLAY_FN uint32_t inlay_task_host_progress(struct inlay_task_host *h, uint32_t max)
{
	const struct mlx5_cqe64 *cqe;
	uint32_t done = 0;

	INLAY_CHECK(max, "progress may do something");
	for (; max && (cqe = inlay_cq_peek(&h->cq)); max--)
		done += inlay_task_host_take_(h, cqe);
	if (INLAY_UNLIKELY(h->first != NULL))
		done += inlay_task_host_settle_(h);
	return done;
}

#endif
