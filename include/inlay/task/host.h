/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/host.h: a host: a worker as its user sees it. Set-up, and the progress that completes
 * tasks.
 *
 *   p = inlay_task_host_default();
 *   memory = aligned_alloc(4096, inlay_task_host_size(&p));
 *   inlay_task_host_create(&host, memory, inlay_task_host_size(&p), pd, &p);
 *   inlay_task_host_address(&host, mine);             to the worker, and its address from there
 *   inlay_task_host_connect(&host, theirs, len);
 *   ... submit tasks (task.h) ...
 *   inlay_task_host_progress(&host, now, 32);         calls the callbacks of what completed
 *
 * Limit. Params.in_flight or the worker's credits, whichever is smaller. A command that was sent
 * and not answered counts, also when its task completed early. If an answer names no task, then the
 * next task that completes early no longer counts.
 *
 * Time. Progress is told what time it is, in any unit (nanoseconds, if params.period keeps its
 * default); it never goes back. Callers that use neither deadlines nor probes may pass 0.
 *
 * A dead worker. RC retransmits what is not acknowledged, and fails. When everything is
 * acknowledged and being worked on, a zero-byte RDMA write asks every params.period. So the tasks
 * of a dead worker complete within params.period + inlay_task_path_bound(&params.path) of calls of
 * progress. A worker that lives and does not answer is not dead: use deadlines.
 *
 * Callbacks may submit, cancel, allocate and release tasks of any host, and call
 * inlay_task_host_stop. They must not call progress of the same host, nor destroy it.
 *
 * Doorbells. The host itself rings when it closes windows or probes, and with that shows the worker
 * everything that was submitted quietly.
 *
 * Sleeping, with params.events:
 *
 *   while (inlay_task_host_progress(&host, now(), 64))
 *           ;
 *   if (inlay_task_host_arm(&host) == 0) {
 *           poll inlay_task_host_fd(&host) until inlay_task_host_due(&host);
 *           inlay_task_host_event(&host);
 *   }
 *
 * Message slots. There are as many as tasks and receives together. The slot that an answer came in
 * becomes its task's, and the task's old slot is posted in its place. So all receives are posted
 * all the time, and an answer stays where it is until its task is used again.
 *
 * Threads: a host and its tasks have one owner at a time.
 * Sources: as task/task.h.
 */
#ifndef INLAY_TASK_HOST_H
#define INLAY_TASK_HOST_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/buf.h>
#include <inlay/cqe.h>
#include <inlay/mmap.h>
#include <inlay/queue.h>
#include <inlay/verbs.h>
#include <inlay/task/link.h>
#include <inlay/task/task.h>
#include <inlay/task/wire.h>

/* ------------------------------------------------------------------------------------------------
 * Set-up
 */

/*
 * 64 tasks, 32 in flight, messages of 4096 bytes, 96 bytes inline, lists of 4, no windows, no
 * events, a probe every second.
 */
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

INLAY_COLD int inlay_task_host_valid_(const struct inlay_task_host_params *p)
{
	return p && p->tasks && p->tasks <= INLAY_TASK_MAX && inlay_is_pow2(p->in_flight) &&
	       p->in_flight <= INLAY_TASK_RECEIVES_MAX && p->message >= INLAY_TASK_MESSAGE_MIN &&
	       p->message <= INLAY_TASK_MESSAGE_MAX && p->payload && p->payload <= INLAY_BUF_DATA_MAX &&
	       p->max_inline <= 512 && p->max_gather <= 16 && p->windows <= 2 * p->tasks;
}

/* WQEBBs that the send ring needs: twice what may be outstanding, since credit comes late. */
INLAY_COLD uint32_t inlay_task_host_wqebbs_(const struct inlay_task_host_params *p)
{
	uint64_t each = inlay_task_inline_bbs_(INLAY_TASK_MESSAGE_MIN - INLAY_TASK_HEAD + p->max_inline);
	uint64_t gather = (1 + 5 + p->max_gather + 3) / 4, all;

	if (each < gather)
		each = gather;
	all = 2 * each * p->in_flight + 12ull * p->windows + 16;
	if (all < 8 * each) /* no WQE is as long as a quarter */
		all = 8 * each;
	return all > 32768 ? 32768 : (uint32_t)all;
}

/* Bytes of payloads and slots: what is registered. */
INLAY_COLD uint64_t inlay_task_host_arena_(const struct inlay_task_host_params *p)
{
	return p->tasks * inlay_task_stride_(p) +
	       ((uint64_t)p->tasks + p->in_flight) * inlay_round_up(p->message, INLAY_CACHE_LINE);
}

/* Bytes of tables after the tasks: the rest of each, slots by receive, windows. */
INLAY_COLD uint64_t inlay_task_host_table_(const struct inlay_task_host_params *p, uint32_t what)
{
	const uint64_t bytes[3] = {(uint64_t)p->tasks * sizeof(struct inlay_task_rest_),
				   (uint64_t)p->in_flight * sizeof(uint8_t *),
				   (uint64_t)p->windows * sizeof(struct inlay_task_window_)};

	return inlay_round_up(bytes[what], INLAY_CACHE_LINE);
}

/* Bytes of memory for such a host; 0 when there cannot be one. */
INLAY_COLD size_t inlay_task_host_size(const struct inlay_task_host_params *p)
{
	if (!inlay_task_host_valid_(p))
		return 0;
	return (size_t)(inlay_task_host_arena_(p) + (uint64_t)p->tasks * sizeof(struct inlay_task) +
			inlay_task_host_table_(p, 0) + inlay_task_host_table_(p, 1) + inlay_task_host_table_(p, 2) +
			inlay_mmap_size(1, 1) + inlay_inventory_size(2 * p->tasks));
}

/* Takes apart what is made of inlay's objects. */
INLAY_COLD void inlay_task_host_unmake_(struct inlay_task_host *h)
{
	uint32_t i;

	for (i = 0; i < h->num && h->more[i].payload; i++) {
		if (h->tasks[i].host)
			inlay_task_unchain_(&h->tasks[i]);
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
 * Makes a host of everything but verbs objects: for inlay_task_host_create, and for queues of
 * another making. h->cq and h->link's queues are in place; the rest of *h is zeroed; h->pd is pd.
 * keys open the arena, the first bytes of memory.
 */
INLAY_COLD int inlay_task_host_init_(struct inlay_task_host *h, void *memory, const struct inlay_task_host_params *p,
				     struct inlay_keys keys)
{
	uint64_t stride = inlay_task_stride_(p), slot = inlay_round_up(p->message, INLAY_CACHE_LINE);
	uint8_t *at = (uint8_t *)memory, *payload = at + INLAY_CACHE_LINE;
	uint32_t i;
	int err;

	h->params = *p;
	h->num = p->tasks;
	h->user_data = p->user_data;
	h->lkey = keys.lkey;
	h->due = h->earliest = INLAY_TASK_NEVER;
	h->first_due = h->last_due = h->waiting = h->free_window = INLAY_TASK_NONE;
	h->slots = at + p->tasks * stride;
	h->message = (uint32_t)slot;
	h->response_max = h->message - INLAY_TASK_HEAD;
	h->mask = p->in_flight - 1;
	h->quarter = inlay_task_link_quarter_(&h->link);
	h->num_windows = p->windows;
	at += inlay_task_host_arena_(p);
	h->tasks = (struct inlay_task *)(void *)at;
	at += p->tasks * sizeof(struct inlay_task);
	h->more = (struct inlay_task_rest_ *)(void *)at;
	at += inlay_task_host_table_(p, 0);
	h->slot_of = (uint8_t **)(void *)at;
	at += inlay_task_host_table_(p, 1);
	h->windows = (struct inlay_task_window_ *)(void *)at;
	at += inlay_task_host_table_(p, 2);
	__builtin_memset(h->tasks, 0, (size_t)(at - (uint8_t *)h->tasks));
	err = inlay_mmap_create(&h->mmap, at, inlay_mmap_size(1, 1), 1, 1);
	at += inlay_mmap_size(1, 1);
	if (!err)
		err = inlay_mmap_add_dev(&h->mmap, h->pd);
	if (!err)
		err = inlay_mmap_add(&h->mmap,
				     inlay_source_keys((uintptr_t)memory, (size_t)inlay_task_host_arena_(p), keys));
	if (!err)
		err = inlay_mmap_set_permissions(&h->mmap, INLAY_LOCAL_READ_WRITE | INLAY_MW_BIND);
	if (!err)
		err = inlay_mmap_start(&h->mmap);
	if (!err)
		err = inlay_inventory_create(at, inlay_inventory_size(2 * p->tasks), 2 * p->tasks, &h->inventory);
	if (!err)
		err = inlay_inventory_start(h->inventory);
	for (i = 0; i < p->tasks && !err; i++) {
		err = inlay_inventory_get_by_addr(h->inventory, &h->mmap, payload + i * stride, p->payload,
						  &h->more[i].payload);
		if (!err)
			err = inlay_inventory_get_by_addr(h->inventory, &h->mmap, h->slots + i * slot, (size_t)slot,
							  &h->more[i].response);
		h->tasks[i].host = h;
		h->tasks[i].context = inlay_task_context_(i, (i + 1) * 0x9e3779b1u);
		h->tasks[i].slot = h->slots + i * slot;
		h->more[i].next = i + 1 < p->tasks ? i + 1 : INLAY_TASK_NONE;
	}
	if (err)
		inlay_task_host_unmake_(h);
	return err;
}

/* Posts the receives: one for each command that may be outstanding. Once. */
INLAY_COLD void inlay_task_host_receive_(struct inlay_task_host *h)
{
	struct ibv_sge sge = {0, h->message, h->lkey};
	uint32_t i;

	inlay_rq_prepare(&h->link.rq, h->message, h->lkey);
	for (i = 0; i <= h->mask; i++) {
		h->slot_of[i] = h->slots + (uint64_t)(h->num + i) * h->message;
		sge.addr = (uintptr_t)h->slot_of[i];
		inlay_post_recv(&h->link.rq, &sge, 1);
	}
	inlay_rq_ring(&h->link.rq);
}

/* The worker is there: from now on tasks may be submitted. */
INLAY_COLD void inlay_task_host_begin_(struct inlay_task_host *h, const struct inlay_task_address *peer)
{
	h->link.peer = *peer;
	h->payload_max = peer->message - INLAY_TASK_HEAD;
	h->max_inline = h->params.max_inline < h->payload_max ? h->params.max_inline : h->payload_max;
	h->limit = peer->receives < h->params.in_flight ? peer->receives : h->params.in_flight;
	h->due = h->params.period ? 0 : INLAY_TASK_NEVER;
}

/*
 * Frees what inlay_task_host_create made; memory is the caller's again.
 *
 * Returns 0; -EBUSY while a task is submitted or its callback due, or in quarantine unless the
 * connection has broken (inlay_task_host_stop and progress end that), or when a verbs object is in
 * use: it may be called again, and nothing else of the host.
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
	if (inlay_task_cq_free_(&h->ibcq, &h->channel))
		return -EBUSY;
	if (h->inventory)
		inlay_task_host_unmake_(h);
	if (h->mr && ibv_dereg_mr(h->mr))
		return -EBUSY;
	h->mr = NULL;
	h->num = h->num_windows = 0;
	return 0;
}

/* inlay_task_host_create, which cleans up. */
INLAY_COLD int inlay_task_host_make_(struct inlay_task_host *h, void *memory, const struct inlay_task_host_params *p)
{
	struct inlay_task_caps caps;
	struct inlay_keys keys;
	uint32_t i;
	int err;

	__builtin_memset(&caps, 0, sizeof(caps));
	caps.wqebbs = inlay_task_host_wqebbs_(p);
	caps.receives = p->in_flight;
	caps.max_inline = INLAY_TASK_MESSAGE_MIN + p->max_inline;
	caps.max_gather = p->max_gather + 2; /* besides the head */
	caps.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	caps.pd = h->pd;
	caps.cq = &h->cq;
	/* The ring may turn out longer than asked for. */
	err = inlay_task_cq_make_(&h->cq, &h->ibcq, &h->channel, h->pd->context, 5ull * caps.wqebbs + p->in_flight,
				  p->events);
	caps.ibcq = h->ibcq;
	if (!err)
		err = inlay_task_link_create(&h->link, &caps, &p->path);
	if (err)
		return err;
	h->mr = ibv_reg_mr(h->pd, memory, (size_t)inlay_task_host_arena_(p),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	if (!h->mr)
		return errno ? -errno : -ENOMEM;
	keys.lkey = h->mr->lkey;
	keys.rkey = INLAY_NO_KEY;
	err = inlay_task_host_init_(h, memory, p, keys);
	for (i = 0; i < p->windows && !err; i++) {
		h->windows[i].mw = ibv_alloc_mw(h->pd, IBV_MW_TYPE_2);
		if (!h->windows[i].mw)
			return errno ? -errno : -ENOMEM;
		h->windows[i].rkey = h->windows[i].mw->rkey;
		h->windows[i].next = h->free_window;
		h->free_window = i;
	}
	if (!err)
		inlay_task_host_receive_(h);
	h->link.self.role = INLAY_TASK_HOST;
	h->link.self.message = h->message;
	h->link.self.receives = p->in_flight;
	h->link.self.id = p->id;
	return err;
}

/*
 * Makes a host: its queue pair, CQ, memory region and windows, with the receives posted.
 *
 * h       aligned to a cache line
 * memory  for tasks and messages, aligned to a cache line, better to a page; the host's until it is
 *         destroyed
 * size    bytes, at least inlay_task_host_size(p)
 * pd      of an mlx5 device; must outlive the host
 *
 * Returns 0; -EINVAL for an argument out of its range; -ENOBUFS when size is too small; an error of
 * inlay_task_link_create; else the negative errno of the verbs call that failed. On failure nothing
 * is left behind.
 */
INLAY_COLD int inlay_task_host_create(struct inlay_task_host *h, void *memory, size_t size, struct ibv_pd *pd,
				      const struct inlay_task_host_params *p)
{
	int err;

	if (!h || (uintptr_t)h % INLAY_CACHE_LINE || !memory || (uintptr_t)memory % INLAY_CACHE_LINE || !pd ||
	    !inlay_task_host_valid_(p))
		return -EINVAL;
	if (size < inlay_task_host_size(p))
		return -ENOBUFS;
	__builtin_memset(h, 0, sizeof(*h));
	h->pd = pd;
	err = inlay_task_host_make_(h, memory, p);
	if (err)
		inlay_task_host_destroy(h);
	return err;
}

/*
 * Writes the host's address, INLAY_TASK_ADDRESS bytes, for inlay_task_conn_connect on the worker's
 * side.
 */
INLAY_COLD void inlay_task_host_address(const struct inlay_task_host *h, uint8_t *blob)
{
	inlay_task_address_write(blob, &h->link.self);
}

/*
 * Connects the host to a worker's connection, whose address inlay_task_conn_address wrote. The
 * worker must have connected its end before the first command arrives there.
 *
 * Returns 0; an error of inlay_task_address_read or inlay_connect_rts; -EBADFD when it is
 * connected, or was.
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
		inlay_task_host_begin_(h, &peer);
	return err;
}

/*
 * Breaks the connection: no task is submitted any more (-ENOTCONN), and progress completes what is
 * in flight with -ECONNABORTED. Returns 0, or the negative errno of ibv_modify_qp.
 */
INLAY_COLD int inlay_task_host_stop(struct inlay_task_host *h)
{
	h->stopped = 1;
	h->limit = 0;
	h->due = 0;
	return h->link.qp ? inlay_task_link_break(&h->link) : 0;
}

/* Commands sent, or posted, and not answered. */
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

/* Messages that no worker in order would have sent. */
INLAY_FN uint32_t inlay_task_host_strays(const struct inlay_task_host *h)
{
	return h->strays;
}

/*
 * When progress is needed though no completion comes, in the caller's time; 0: now; or
 * INLAY_TASK_NEVER.
 */
INLAY_FN uint64_t inlay_task_host_due(const struct inlay_task_host *h)
{
	return h->due;
}

/* ------------------------------------------------------------------------------------------------
 * Data path: what is rare
 */

/* The next generation: what is said of the one before is said of no task. */
INLAY_ALWAYS void inlay_task_renew_(struct inlay_task *t)
{
	t->context += 3ull << 32; /* neighbours differ by more than a bit */
	t->deadline = INLAY_TASK_NEVER;
}

/* Nothing holds the task's memory any more. */
INLAY_COLD void inlay_task_free_memory_(struct inlay_task *t)
{
	inlay_task_closed_(t);
	if (t->state == INLAY_TASK_CLOSING) {
		t->state = INLAY_TASK_DUE;
		inlay_task_queue_(t);
	} else if (t->state == INLAY_TASK_QUARANTINE) {
		inlay_task_queue_(t);
	}
}

/* Posts what closes a task's windows, if there is room. */
INLAY_COLD void inlay_task_close_(struct inlay_task *t)
{
	struct inlay_task_host *h = t->host;
	uint32_t i;

	if (inlay_sq_room(&h->link.sq) < 4)
		return;
	for (i = 0; i < 2; i++)
		if (t->held & 1u << i)
			inlay_post_local_inv(&h->link.sq, h->windows[inlay_task_more_(t)->windows[i]].rkey,
					     INLAY_SIGNALED);
	t->end = inlay_sq_index(&h->link.sq);
	t->held |= INLAY_TASK_HELD_CLOSED;
	h->owed = 1;
}

/*
 * Whether the device has returned everything that was posted to a broken connection. Only then is
 * it done with the memory; the first error completion says nothing of the others.
 */
INLAY_COLD int inlay_task_host_drained_(const struct inlay_task_host *h)
{
	return !inlay_sq_pending(&h->link.sq) && h->flushed > h->mask;
}

/*
 * Goes through the waiting tasks: closes windows when there is room, and lets go those that are
 * ready.
 */
INLAY_COLD void inlay_task_host_wait_(struct inlay_task_host *h)
{
	uint32_t i = h->waiting, next, ready, windows, stay;

	h->waiting = INLAY_TASK_NONE;
	for (; i != INLAY_TASK_NONE; i = next) {
		struct inlay_task *t = &h->tasks[i];

		next = h->more[i].next;
		windows = t->held & INLAY_TASK_HELD_WINDOWS;
		if (h->broken) {
			ready = (uint32_t)inlay_task_host_drained_(h);
			stay = 1;
		} else {
			if (windows && (t->held & INLAY_TASK_HELD_CLOSE) && !(t->held & INLAY_TASK_HELD_CLOSED))
				inlay_task_close_(t);
			ready = inlay_task_sent_(t) && (!windows || t->held & INLAY_TASK_HELD_CLOSED);
			stay = !inlay_task_sent_(t) || t->held & INLAY_TASK_HELD_CLOSE;
		}
		if (ready) {
			inlay_task_free_memory_(t);
		} else if (stay) {
			h->more[i].next = h->waiting;
			h->waiting = i;
		}
	}
}

/*
 * The connection has ended: every task completes. Tasks whose memory the device could still use go
 * to quarantine until it has returned everything. Their own buffers stay registered, so those need
 * not wait.
 */
INLAY_COLD void inlay_task_host_break_(struct inlay_task_host *h, int why)
{
	uint32_t i;

	if (h->broken)
		return;
	h->broken = h->stopped ? -ECONNABORTED : why;
	h->limit = h->outstanding = h->orphans = h->unclaimed = h->hurry = 0;
	h->due = 0;
	h->waiting = INLAY_TASK_NONE;
	for (i = 0; i < h->num; i++) {
		struct inlay_task *t = &h->tasks[i];

		if (t->state == INLAY_TASK_FREE || t->state == INLAY_TASK_IDLE)
			continue;
		t->early = 0;
		t->held &= INLAY_TASK_HELD_WINDOWS | INLAY_TASK_HELD_SEND;
		if (t->state == INLAY_TASK_SUBMITTED) {
			t->status = h->broken;
			t->by = INLAY_TASK_BY_CONNECTION;
			t->response_len = 0;
		}
		if (t->state == INLAY_TASK_SUBMITTED || t->state == INLAY_TASK_CLOSING) {
			t->state = INLAY_TASK_DUE;
			inlay_task_queue_(t);
		} else if (t->state == INLAY_TASK_QUARANTINE && t->held) {
			h->more[i].next = h->waiting;
			h->waiting = i;
		}
	}
}

/* A completion of the send queue, or an error. */
INLAY_COLD void inlay_task_host_sent_(struct inlay_task_host *h, const struct mlx5_cqe64 *cqe)
{
	struct inlay_sq *sq = &h->link.sq;
	enum ibv_wc_status status;
	uint32_t i;

	if (!inlay_cqe_is_send(cqe))
		h->flushed++;
	else if (inlay_sq_release(sq, cqe) < 0)
		h->strays++;
	if (inlay_cqe_is_error(cqe)) {
		status = inlay_cqe_status(cqe);
		h->due = 0;
		inlay_task_host_break_(h, status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_RNR_RETRY_EXC_ERR ?
				       -ECONNRESET :
													-ECONNABORTED);
	} else {
		if (inlay_task_link_done_(&h->link, h->probe_end))
			h->probing = 0;
		/*
		 * Indices have 32 bits: the ends of tasks that are submitted for long are brought
		 * along.
		 */
		if ((inlay_sq_index(sq) - h->aged) >> 30) {
			h->aged = inlay_sq_index(sq);
			for (i = 0; i < h->num; i++)
				if (inlay_task_sent_(&h->tasks[i]))
					h->tasks[i].end = inlay_sq_index(sq) - inlay_sq_pending(sq);
		}
	}
	/* What was done unsignaled has no completion at the end either; a last WQE has. */
	if (h->broken && !h->marked) {
		h->marked = !inlay_post_nop(sq, INLAY_SIGNALED);
		inlay_sq_ring(sq);
	}
}

/* A task's answer: all but the commonest. The answer's slot is the task's already. */
INLAY_COLD void inlay_task_host_answered_(struct inlay_task *t, const struct inlay_task_answer *a, int err)
{
	int copied = !err && a->kind == INLAY_TASK_ANSWER;
	uint32_t room = t->response ? inlay_task_response_room_(t->response) : 0;

	t->host->outstanding--;
	t->held &= (uint8_t)~INLAY_TASK_HELD_COPY;
	if (t->early) {
		t->early = 0;
		inlay_task_forget_(t); /* it may be waiting */
	} else {
		/* Written beyond what was granted, or though nothing was: that cannot be. */
		if (!err && a->kind == INLAY_TASK_WRITTEN && (!(t->held & INLAY_TASK_HELD_RESPONSE) ||
							      a->length > room))
			err = -EBADMSG;
		t->status = err ? err : a->status;
		t->by = a->kind == INLAY_TASK_REFUSED ? INLAY_TASK_BY_WORKER : INLAY_TASK_BY_HANDLER;
		if (err)
			t->by = INLAY_TASK_BY_HOST;
		t->response_len = err ? 0 : a->length;
		if (copied && t->response && a->length > room) {
			t->status = -EMSGSIZE;
			t->by = INLAY_TASK_BY_HOST;
		} else if (t->response) {
			if (copied)
				inlay_copy(inlay_buf_data(t->response), t->slot + INLAY_TASK_HEAD, a->length);
			inlay_buf_set_data_len(t->response, t->response_len);
		}
		t->state = INLAY_TASK_CLOSING;
	}
	if (t->held & INLAY_TASK_HELD_WINDOWS) {
		t->held |= INLAY_TASK_HELD_CLOSE;
		if (!(t->held & INLAY_TASK_HELD_CLOSED))
			inlay_task_close_(t);
	}
	/* A task whose callback is due stays in that list. */
	if (!t->held || (t->held == INLAY_TASK_HELD_SEND && inlay_task_sent_(t)))
		inlay_task_free_memory_(t);
	else if (t->state != INLAY_TASK_DUE)
		inlay_task_wait_(t);
}

/* Which slot the next completion's receive has: all are posted, so it is the one posted next. */
INLAY_ALWAYS uint8_t **inlay_task_host_slot_(const struct inlay_task_host *h)
{
	return &h->slot_of[inlay_rq_index(&h->link.rq) & h->mask];
}

/* A message that is not a plain answer to a submitted task that nothing holds. */
INLAY_COLD void inlay_task_host_message_(struct inlay_task_host *h, uint32_t bytes)
{
	uint8_t **slot = inlay_task_host_slot_(h), *msg = *slot;
	struct inlay_task *t = NULL;
	struct inlay_task_answer a;
	int err = inlay_task_answer_read_(&a, msg, bytes > h->message ? 0 : bytes);

	h->uncounted++;
	if ((uint32_t)a.context < h->num)
		t = &h->tasks[(uint32_t)a.context];
	if (t && t->context == a.context && (t->state == INLAY_TASK_SUBMITTED || t->early) && !inlay_task_unsent_(t)) {
		if (!h->broken) {
			*slot = t->slot;
			t->slot = msg;
			inlay_task_host_answered_(t, &a, err);
		}
	} else if (h->orphans) {
		h->orphans--;
		h->outstanding--;
	} else if (!h->broken) {
		h->unclaimed++;
		h->strays++;
	}
	inlay_rq_recycle(&h->link.rq, (uintptr_t)*slot);
	inlay_rq_ring(&h->link.rq);
}

/* Any completion but a plain message. */
INLAY_COLD void inlay_task_host_other_(struct inlay_task_host *h, const struct mlx5_cqe64 *cqe)
{
	if (inlay_cqe_is_send(cqe) || inlay_cqe_is_error(cqe)) {
		h->uncounted++;
		inlay_task_host_sent_(h, cqe);
		inlay_cq_advance(&h->cq, 1);
		return;
	}
	/*
	 * With an immediate, a key to invalidate, or an RDMA write: no answer. It took a receive.
	 */
	inlay_cq_advance(&h->cq, 1);
	inlay_task_host_message_(h, 0);
}

/* Calls callbacks that are due, at most max. Returns how many. */
INLAY_COLD uint32_t inlay_task_host_deliver_(struct inlay_task_host *h, uint32_t max)
{
	uint32_t n;

	for (n = 0; n < max && h->first_due != INLAY_TASK_NONE; n++) {
		struct inlay_task *t = &h->tasks[h->first_due];
		inlay_task_cb cb = t->state == INLAY_TASK_DUE ? t->cb : h->params.reusable;

		h->uncounted += t->state != INLAY_TASK_DUE;
		h->first_due = h->more[h->first_due].next;
		if (t->held == INLAY_TASK_HELD_SEND && inlay_task_sent_(t))
			t->held = 0;
		else if (h->broken && inlay_task_host_drained_(h))
			inlay_task_closed_(t);
		if (t->held) {
			inlay_task_wait_(t);
			t->state = INLAY_TASK_QUARANTINE;
		} else {
			/*
			 * Used again before its answer came, or the answer was one that named no
			 * task.
			 */
			if (t->early && h->unclaimed) {
				h->unclaimed--;
				h->outstanding--;
			} else if (t->early) {
				h->orphans++;
			}
			t->early = 0;
			inlay_task_renew_(t);
			t->state = INLAY_TASK_IDLE;
			t->held = t->response ? INLAY_TASK_HELD_COPY : 0;
		}
		if (cb)
			cb(t, t->user_data, h->user_data);
	}
	return n;
}

/* Completes tasks whose deadline has passed, and finds the earliest of the others. */
INLAY_COLD void inlay_task_host_expire_(struct inlay_task_host *h)
{
	uint32_t i;

	h->earliest = INLAY_TASK_NEVER;
	for (i = 0; i < h->num; i++) {
		struct inlay_task *t = &h->tasks[i];

		if (t->state != INLAY_TASK_SUBMITTED)
			continue;
		if (t->deadline <= h->now)
			inlay_task_end_(t, -ETIMEDOUT);
		else if (t->deadline < h->earliest)
			h->earliest = t->deadline;
	}
}

/*
 * A zero-byte write, when one is due, something is outstanding and the last one was acknowledged.
 */
INLAY_COLD void inlay_task_host_probe_(struct inlay_task_host *h)
{
	struct inlay_sq *sq = &h->link.sq;
	uint64_t next = h->now + h->params.period;

	if (h->now >= h->probe_at) {
		h->probe_at = next < h->now ? INLAY_TASK_NEVER : next;
		if (h->outstanding && !h->probing && !inlay_post_write(sq, 0, 0, NULL, 0, INLAY_SIGNALED)) {
			h->probing = 1;
			h->probe_end = inlay_sq_index(sq);
			h->owed = 1;
		}
	}
	if (h->probe_at < h->due)
		h->due = h->probe_at;
}

/* All that is not a completion. Returns how many callbacks were called. */
INLAY_COLD uint32_t inlay_task_host_tend_(struct inlay_task_host *h, uint32_t max)
{
	uint32_t n;

	if (h->now >= h->earliest)
		inlay_task_host_expire_(h);
	/* A completion of everything that was sent, some of it unsignaled. */
	if (h->hurry && !inlay_post_nop(&h->link.sq, INLAY_SIGNALED)) {
		h->hurry = 0;
		h->owed = 1;
	}
	if (h->waiting != INLAY_TASK_NONE)
		inlay_task_host_wait_(h);
	h->due = h->earliest;
	if (h->params.period && h->limit)
		inlay_task_host_probe_(h);
	n = inlay_task_host_deliver_(h, max);
	/* After the connection's end, tasks wait for its completions. */
	if (h->first_due != INLAY_TASK_NONE || (h->waiting != INLAY_TASK_NONE && !h->broken) || h->hurry)
		h->due = 0;
	if (h->owed) {
		h->owed = 0;
		inlay_sq_ring(&h->link.sq);
	}
	return n;
}

/* ------------------------------------------------------------------------------------------------
 * Data path: progress
 */

/* One completion, freed before the callback is called. Returns 0 when there is none. */
INLAY_ALWAYS int inlay_task_host_take_(struct inlay_task_host *h)
{
	const struct mlx5_cqe64 *cqe = inlay_cq_peek(&h->cq);
	uint32_t bytes, length, first;
	uint64_t context;
	struct inlay_task *t;
	uint8_t **slot, *msg;

	if (!cqe)
		return 0;
	/* A message that lies in its receive: whose it is, opcode and format in one test. */
	if (INLAY_UNLIKELY(cqe->op_own >> 2 != MLX5_CQE_RESP_SEND << 2)) {
		inlay_task_host_other_(h, cqe);
		return 1;
	}
	bytes = inlay_cqe_byte_count(cqe);
	inlay_cq_advance(&h->cq, 1);
	slot = inlay_task_host_slot_(h);
	msg = *slot;
	/*
	 * Only what the device has written is believed: fewer bytes than a head are a length beyond all. Kind
	 * and version are compared together, without the status of 12 bits.
	 */
	length = bytes - INLAY_TASK_HEAD;
	if (INLAY_UNLIKELY(length > h->response_max))
		goto other;
	first = inlay_task_get32_(msg);
	if (INLAY_UNLIKELY((first & ~0xfff0000u) != (INLAY_TASK_ANSWER << 8 | INLAY_TASK_WIRE)) ||
	    INLAY_UNLIKELY(inlay_task_get32_(msg + 4) != length))
		goto other;
	context = inlay_task_get64_(msg + 8);
	if (INLAY_UNLIKELY((uint32_t)context >= h->num))
		goto other;
	t = &h->tasks[(uint32_t)context];
	if (INLAY_UNLIKELY(t->context != context) || INLAY_UNLIKELY(t->state != INLAY_TASK_SUBMITTED) ||
	    INLAY_UNLIKELY(t->held) || INLAY_UNLIKELY(inlay_task_unsent_(t)))
		goto other;
	*slot = t->slot;
	/* Rung for before a submit can cause an answer that takes it. */
	inlay_rq_recycle(&h->link.rq, (uintptr_t)t->slot);
	inlay_rq_ring(&h->link.rq);
	t->slot = msg;
	t->status = -(int)(first >> 16);
	t->response_len = length;
	inlay_task_renew_(t);
	t->state = INLAY_TASK_IDLE;
	t->by = INLAY_TASK_BY_HANDLER;
	h->outstanding--;
	if (t->cb)
		t->cb(t, t->user_data, h->user_data);
	return 1;
other:
	inlay_task_host_message_(h, bytes);
	return 1;
}

/*
 * Handles completions, deadlines, windows and probes, and calls the callbacks of tasks that
 * completed.
 *
 * now  the time, never less than before
 * max  completions and callbacks handled at most, at least 1
 *
 * Returns how many tasks completed. To wait for one task, look at that task:
 * while (inlay_task_status(task) == -EINPROGRESS).
 */
INLAY_FN uint32_t inlay_task_host_progress(struct inlay_task_host *h, uint64_t now, uint32_t max)
{
	uint32_t left = max;

	INLAY_CHECK(max, "progress may do something");
	h->uncounted = 0;
	h->now = now;
	if (INLAY_UNLIKELY(now >= h->due)) {
		left -= inlay_task_host_tend_(h, left);
		if (!left)
			return max - h->uncounted;
	}
	while (inlay_task_host_take_(h) && --left)
		;
	if (INLAY_UNLIKELY(!h->due))
		left -= inlay_task_host_tend_(h, left);
	return max - left - h->uncounted;
}

/* ------------------------------------------------------------------------------------------------
 * Sleeping
 */

/* The descriptor to sleep on; -1 without params.events. */
INLAY_COLD int inlay_task_host_fd(const struct inlay_task_host *h)
{
	return h->channel ? h->channel->fd : -1;
}

/*
 * Takes an event from the descriptor. Sleeps when there is none, unless the caller made it
 * non-blocking. Returns 0; -ENOTSUP without params.events; else the negative errno of
 * ibv_get_cq_event.
 */
INLAY_COLD int inlay_task_host_event(struct inlay_task_host *h)
{
	return inlay_task_event_(h->channel, &h->cq);
}

/*
 * Arms the descriptor for the next completion. Call it when progress has found nothing.
 *
 * Returns 0; -EAGAIN when there is something to do: call progress; -ENOTSUP without params.events.
 */
INLAY_FN int inlay_task_host_arm(struct inlay_task_host *h)
{
	return inlay_task_arm_(h->channel, &h->cq, !h->due);
}

#endif
