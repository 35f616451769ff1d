/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/host.h: a host: the side that uses a worker. Set-up, and progress of its tasks.
 *
 *   p = inlay_task_host_default();
 *   memory = aligned_alloc(4096, inlay_task_host_size(&p));
 *   inlay_task_host_create(&host, memory, inlay_task_host_size(&p), pd, &p, &why);
 *   inlay_task_host_address(&host, mine);             send it to the worker, and get the worker's
 *   inlay_task_host_connect(&host, theirs, len, &why);
 *   ... submit tasks (task.h) ...
 *   inlay_task_host_progress(&host, now, 32);         calls the callbacks of completed tasks
 *
 * Invariants
 *
 *   - At most params.in_flight commands are outstanding, or the worker's credits if fewer. Commands
 *     count until their answer, even if their task completed early. Each message from the worker
 *     counts as one answer.
 *   - All receives are always posted. A task takes over the message slot of its answer, and its old
 *     slot is posted instead.
 *   - The tasks of a dead worker complete. RC retransmits unacknowledged commands until it fails
 *     (link.h). If all are acknowledged, a zero-byte RDMA write probes the worker every
 *     params.period. A worker that lives but does not answer is not dead: use deadlines.
 *   - The host rings by itself to close windows and to probe; this rings for quiet submits, too.
 *
 * Time. The caller passes the time to progress, in any unit (nanoseconds, if params.period keeps
 * its default); it never goes back. Without deadlines and probes it may be 0.
 *
 * Callbacks may do anything with tasks of any host, and call inlay_task_host_stop, but not
 * progress of the same host.
 *
 * Sleeping, with params.events:
 *
 *   while (inlay_task_host_progress(&host, now(), 64))
 *           ;
 *   if (inlay_task_host_arm(&host, &until) == 0)
 *           poll inlay_task_host_fd(&host) until then
 *
 * Threads: a host and its tasks have one owner at a time.
 * Sources: as task/task.h.
 */
#ifndef INLAY_TASK_HOST_H
#define INLAY_TASK_HOST_H

#include <inlay/cqe.h>
#include <inlay/task/task.h>

/* ---- Set-up ---- */

/* 64 tasks, 32 in flight, messages of 4096 bytes, 96 inline, no windows, a probe a second. */
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

/* WQEBBs that the send ring needs: for twice the commands in flight, since credit comes late. */
INLAY_COLD uint32_t inlay_task_host_wqebbs_(const struct inlay_task_host_params *p)
{
	uint64_t each = inlay_task_inline_bbs_(INLAY_TASK_MESSAGE_MIN - INLAY_TASK_HEAD + p->max_inline);
	uint64_t gather = (1 + 5 + p->max_gather + 3) / 4, all;

	if (each < gather)
		each = gather;
	all = 2 * each * p->in_flight + 12ull * p->windows + 16;
	if (all < 8 * each) /* every WQE is shorter than a quarter */
		all = 8 * each;
	return all > 32768 ? 32768 : (uint32_t)all;
}

/* Offsets of the parts of a host in its memory. All before the tasks is registered. */
struct inlay_task_host_parts_ {
	uint64_t stride;                /* of payload buffers: each follows a line with room for the head */
	uint64_t slot;                  /* bytes of a slot */
	uint64_t payloads, slots, tasks, slot_of, windows, mmap, inventory, end;
};

/* Computes them. Returns 0 if a parameter is out of range, else 1. */
INLAY_COLD int inlay_task_host_place_(const struct inlay_task_host_params *p, struct inlay_task_host_parts_ *at)
{
	uint64_t end = 0;

	if (!p || !p->tasks || p->tasks > INLAY_TASK_MAX || !inlay_is_pow2(p->in_flight) ||
	    p->in_flight > INLAY_TASK_RECEIVES_MAX || p->message < INLAY_TASK_MESSAGE_MIN ||
	    p->message > INLAY_TASK_MESSAGE_MAX || !p->payload || p->payload > INLAY_SGE_MAX ||
	    p->max_inline > 512 || p->max_gather > 16 || p->windows > 2 * p->tasks)
		return 0;
	at->stride = INLAY_CACHE_LINE + inlay_round_up(p->payload, INLAY_CACHE_LINE);
	at->slot = inlay_round_up(p->message, INLAY_CACHE_LINE);
	at->payloads = inlay_task_place_(&end, p->tasks * at->stride) + INLAY_CACHE_LINE;
	at->slots = inlay_task_place_(&end, ((uint64_t)p->tasks + p->in_flight) * at->slot);
	at->tasks = inlay_task_place_(&end, p->tasks * sizeof(struct inlay_task));
	at->slot_of = inlay_task_place_(&end, p->in_flight * sizeof(uint8_t *));
	at->windows = inlay_task_place_(&end, p->windows * sizeof(struct inlay_task_window_));
	at->mmap = inlay_task_place_(&end, inlay_mmap_size(1, 1));
	at->inventory = inlay_task_place_(&end, inlay_inventory_size(2 * p->tasks));
	at->end = end;
	return 1;
}

/* Bytes of memory for such a host; 0 if a parameter is out of range. */
INLAY_COLD size_t inlay_task_host_size(const struct inlay_task_host_params *p)
{
	struct inlay_task_host_parts_ at;

	return inlay_task_host_place_(p, &at) ? (size_t)at.end : 0;
}

/* Undoes inlay_task_host_init_. */
INLAY_COLD void inlay_task_host_unmake_(struct inlay_task_host *h)
{
	uint32_t i;

	for (i = 0; i < h->num && h->tasks[i].own_payload; i++) {
		inlay_task_unchain_(&h->tasks[i]);
		inlay_buf_dec_refcount(h->tasks[i].own_payload, NULL);
		if (h->tasks[i].own_response)
			inlay_buf_dec_refcount(h->tasks[i].own_response, NULL);
	}
	if (h->inventory)
		inlay_inventory_destroy(h->inventory);
	h->inventory = NULL;
	inlay_mmap_destroy(&h->mmap);
}

/*
 * Makes all of a host but verbs objects, and posts the receives. h->link's queues, h->cq and h->pd
 * are set, the rest of *h is zero. keys: of the memory before the tasks.
 */
INLAY_COLD int inlay_task_host_init_(struct inlay_task_host *h, void *memory, const struct inlay_task_host_params *p,
				     const struct inlay_task_host_parts_ *at, struct inlay_keys keys)
{
	uint8_t *base = (uint8_t *)memory;
	struct ibv_sge sge;
	uint32_t i;
	int err;

	h->params = *p;
	h->num = p->tasks;
	h->user_data = p->user_data;
	h->lkey = keys.lkey;
	h->due = h->earliest = INLAY_TASK_NEVER;
	h->free_window = INLAY_TASK_NONE;
	h->slots = base + at->slots;
	h->message = (uint32_t)at->slot;
	h->response_max = h->message - INLAY_TASK_HEAD;
	h->mask = p->in_flight - 1;
	h->quarter = inlay_task_link_quarter_(&h->link);
	h->num_windows = p->windows;
	h->tasks = h->free = (struct inlay_task *)(void *)(base + at->tasks);
	h->slot_of = (uint8_t **)(void *)(base + at->slot_of);
	h->windows = (struct inlay_task_window_ *)(void *)(base + at->windows);
	__builtin_memset(h->tasks, 0, (size_t)(at->mmap - at->tasks));
	err = inlay_mmap_create(&h->mmap, base + at->mmap, inlay_mmap_size(1, 1), 1, 1);
	if (!err)
		err = inlay_mmap_add_dev(&h->mmap, h->pd);
	if (!err)
		err = inlay_mmap_add(&h->mmap, inlay_source_keys((uintptr_t)memory, (size_t)at->tasks, keys));
	if (!err)
		err = inlay_mmap_set_permissions(&h->mmap, INLAY_LOCAL_READ_WRITE | INLAY_MW_BIND);
	if (!err)
		err = inlay_mmap_start(&h->mmap);
	if (!err)
		err = inlay_inventory_create(base + at->inventory, inlay_inventory_size(2 * p->tasks), 2 * p->tasks,
					     &h->inventory);
	if (!err)
		err = inlay_inventory_start(h->inventory);
	for (i = 0; i < p->tasks && !err; i++) {
		struct inlay_task *t = &h->tasks[i];

		t->host = h;
		t->ids.context = (uint64_t)((i + 1) * 0x9e3779b1u) << 32 | i;
		t->slot = h->slots + i * at->slot;
		t->next = i + 1 < p->tasks ? t + 1 : NULL;
		err = inlay_inventory_get_by_addr(h->inventory, &h->mmap, base + at->payloads + i * at->stride,
						  p->payload, &t->own_payload);
		if (!err)
			err = inlay_inventory_get_by_addr(h->inventory, &h->mmap, t->slot, (size_t)at->slot,
							  &t->own_response);
	}
	if (err) {
		inlay_task_host_unmake_(h);
		return err;
	}
	inlay_rq_prepare(&h->link.rq, h->message, h->lkey);
	for (i = 0; i <= h->mask; i++) {
		h->slot_of[i] = h->slots + (h->num + i) * at->slot;
		sge.addr = (uintptr_t)h->slot_of[i];
		sge.length = h->message;
		sge.lkey = h->lkey;
		inlay_had_room_(inlay_post_recv(&h->link.rq, &sge, 1));
	}
	inlay_rq_ring(&h->link.rq);
	return 0;
}

/* Opens the host for submits. */
INLAY_COLD void inlay_task_host_begin_(struct inlay_task_host *h, const struct inlay_task_address *peer)
{
	h->link.peer = *peer;
	h->payload_max = peer->message - INLAY_TASK_HEAD;
	h->max_inline = h->params.max_inline < h->payload_max ? h->params.max_inline : h->payload_max;
	h->limit = peer->receives < h->params.in_flight ? peer->receives : h->params.in_flight;
	h->due = h->params.period ? 0 : INLAY_TASK_NEVER;
}

/*
 * Frees all that inlay_task_host_create made. Returns 0: memory is the caller's again; -EBUSY while
 * a task is submitted, or in quarantine with the connection not broken (end that with
 * inlay_task_host_stop and progress); -EBUSY when a verbs object is in use: call only this function
 * again.
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

/*
 * Makes a host: its queue pair, CQ, memory region and windows, with the receives posted.
 *
 * h       aligned to a cache line
 * memory  for tasks and messages, aligned to a cache line, better to a page; the host's until it is
 *         destroyed
 * size    bytes, at least inlay_task_host_size(p)
 * pd      of an mlx5 device; must outlive the host
 *
 * Returns 0; -EINVAL for an argument out of range; -ENOBUFS when size is too small; an error of
 * inlay_task_link_create; else the negative errno of the verbs call that failed. On failure nothing
 * is left behind, and *why says what failed.
 */
INLAY_COLD int inlay_task_host_create(struct inlay_task_host *h, void *memory, size_t size, struct ibv_pd *pd,
				      const struct inlay_task_host_params *p, const char **why)
{
	struct inlay_task_host_parts_ at;
	struct inlay_task_caps caps;
	struct inlay_keys keys;
	uint32_t i;
	int err;

	if (!h || (uintptr_t)h % INLAY_CACHE_LINE || !memory || (uintptr_t)memory % INLAY_CACHE_LINE || !pd ||
	    !inlay_task_host_place_(p, &at))
		return inlay_refuse_(-EINVAL, why, "a host's argument or parameter is out of its range");
	if (size < at.end)
		return inlay_refuse_(-ENOBUFS, why, "less memory than inlay_task_host_size");
	__builtin_memset(h, 0, sizeof(*h));
	__builtin_memset(&caps, 0, sizeof(caps));
	h->pd = pd;
	caps.wqebbs = inlay_task_host_wqebbs_(p);
	caps.receives = p->in_flight;
	caps.max_inline = INLAY_TASK_MESSAGE_MIN + p->max_inline;
	caps.max_gather = p->max_gather + 2;
	caps.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	caps.pd = pd;
	caps.cq = &h->cq;
	/* The device may round the ring up. */
	err = inlay_task_cq_make_(&h->cq, &h->ibcq, &h->channel, pd->context, 5ull * caps.wqebbs + p->in_flight,
				  p->events, why);
	caps.ibcq = h->ibcq;
	if (!err)
		err = inlay_task_link_create(&h->link, &caps, &p->path, why);
	if (!err) {
		errno = 0;
		h->mr = ibv_reg_mr(pd, memory, (size_t)at.tasks, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
		err = h->mr ? 0 : inlay_task_errno_(why, "the host's memory cannot be registered");
	}
	if (!err) {
		keys.lkey = h->mr->lkey;
		keys.rkey = INLAY_NO_KEY;
		err = inlay_task_host_init_(h, memory, p, &at, keys);
		if (err)
			inlay_refuse_(err, why, "the tasks' buffers cannot be made");
	}
	for (i = 0; i < p->windows && !err; i++) {
		errno = 0;
		h->windows[i].mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
		if (!h->windows[i].mw) {
			err = inlay_task_errno_(why, "ibv_alloc_mw failed");
			break;
		}
		h->windows[i].rkey = h->windows[i].mw->rkey;
		h->windows[i].next = h->free_window;
		h->free_window = i;
	}
	if (err)
		inlay_task_host_destroy(h);
	h->link.self.role = INLAY_TASK_HOST;
	h->link.self.message = h->message;
	h->link.self.receives = p->in_flight;
	h->link.self.id = p->id;
	return err;
}

/* Writes the host's address, INLAY_TASK_ADDRESS bytes, for inlay_task_conn_connect. */
INLAY_COLD void inlay_task_host_address(const struct inlay_task_host *h, uint8_t *blob)
{
	inlay_task_address_write(blob, &h->link.self);
}

/*
 * Connects to a worker's connection, by the address that inlay_task_conn_address wrote. The worker
 * must connect before the first command arrives. Returns 0; an error of inlay_task_address_read or
 * inlay_connect_rts; -EBADFD when the host is or was connected. After an error of
 * inlay_connect_rts, destroy the host.
 */
INLAY_COLD int inlay_task_host_connect(struct inlay_task_host *h, const void *blob, size_t len, const char **why)
{
	struct inlay_task_address peer;
	int err = inlay_task_address_read(&peer, blob, len, INLAY_TASK_WORKER, why);

	if (err)
		return err;
	if (h->limit || h->broken)
		return inlay_refuse_(-EBADFD, why, "the host is connected, or was");
	err = inlay_task_link_connect(&h->link, &peer, why);
	if (!err)
		inlay_task_host_begin_(h, &peer);
	return err;
}

/*
 * Breaks the connection: submits return -ENOTCONN, and progress completes all tasks in flight.
 * Returns 0, or the negative errno of ibv_modify_qp.
 */
INLAY_COLD int inlay_task_host_stop(struct inlay_task_host *h)
{
	h->limit = 0;
	return h->link.qp ? inlay_task_link_break(&h->link) : 0;
}

/* ---- Data path: rare cases, then progress ---- */

/* Makes a task IDLE, in the next generation: late messages then name no task. */
INLAY_ALWAYS void inlay_task_renew_(struct inlay_task *t)
{
	t->ids.context += 3ull << 32; /* neighbours differ by more than a bit */
	t->deadline = INLAY_TASK_NEVER;
	t->state = INLAY_TASK_IDLE;
}

/*
 * Posts signaled invalidations of a task's windows, or a NOP without windows, if there is room for
 * all: an invalidation takes two WQEBBs.
 */
INLAY_COLD void inlay_task_close_(struct inlay_task *t)
{
	struct inlay_task_host *h = t->host;
	uint32_t i;

	if (inlay_sq_room(&h->link.sq) < 4)
		return;
	for (i = 0; i < 2; i++)
		if (t->held & 1u << i)
			inlay_had_room_(inlay_post_local_inv(&h->link.sq, h->windows[t->windows[i]].rkey, INLAY_SIGNALED));
	if (!(t->held & INLAY_TASK_HELD_WINDOWS))
		inlay_had_room_(inlay_post(&h->link.sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED));
	t->end = inlay_sq_index(&h->link.sq);
	t->held |= INLAY_TASK_HELD_CLOSED;
	h->owed = 1;
}

/* Whether the device and the worker are done with a task's memory. */
INLAY_COLD int inlay_task_is_loose_(const struct inlay_task *t)
{
	const struct inlay_task_link *l = &t->host->link;

	/* An error completion says nothing about other WQEs: the device must have returned all. */
	if (t->host->broken)
		return !(t->held & INLAY_TASK_HELD_MEMORY) ||
		       (!inlay_sq_pending(&l->sq) && !inlay_rq_pending(&l->rq));
	if (t->held & INLAY_TASK_HELD_CLOSED)
		return inlay_task_link_done_(l, t->end);
	return t->state == INLAY_TASK_CLOSING && !t->held;
}

/* Advances a listed task. Returns 1 if it completed. */
INLAY_COLD uint32_t inlay_task_settle_(struct inlay_task *t)
{
	struct inlay_task_host *h = t->host;
	inlay_task_cb cb = t->state == INLAY_TASK_QUARANTINE ? h->params.reusable : t->cb;
	uint32_t completed = t->state != INLAY_TASK_QUARANTINE, i;

	if (!h->broken && t->held & INLAY_TASK_HELD_CLOSE && !(t->held & INLAY_TASK_HELD_CLOSED))
		inlay_task_close_(t);
	if (inlay_task_is_loose_(t)) {
		for (i = 0; i < 2; i++)
			if (t->held & 1u << i) {
				h->windows[t->windows[i]].next = h->free_window;
				h->free_window = t->windows[i];
			}
		t->held = 0;
		inlay_task_renew_(t);
	} else {
		if (h->broken || t->held & (INLAY_TASK_HELD_CLOSE | INLAY_TASK_HELD_CLOSED))
			inlay_task_list_(t);
		if (t->state != INLAY_TASK_DUE)
			return 0;
		t->state = INLAY_TASK_QUARANTINE;
	}
	if (cb)
		cb(t, t->user_data, h->user_data);
	return completed;
}

INLAY_COLD void inlay_task_host_break_(struct inlay_task_host *h, int why)
{
	uint32_t i;

	if (h->broken)
		return;
	h->broken = why;
	h->limit = h->outstanding = 0;
	for (i = 0; i < h->num; i++)
		if (h->tasks[i].state == INLAY_TASK_SUBMITTED)
			inlay_task_end_(&h->tasks[i], why, INLAY_TASK_BY_CONNECTION);
		else if (h->tasks[i].state == INLAY_TASK_QUARANTINE)
			inlay_task_list_(&h->tasks[i]);
}

/* Handles the completion of a send, or an error. */
INLAY_COLD void inlay_task_host_sent_(struct inlay_task_host *h, const struct mlx5_cqe64 *cqe)
{
	struct inlay_sq *sq = &h->link.sq;
	enum ibv_wc_status status;

	if ((inlay_cqe_is_send(cqe) ? inlay_sq_release(sq, cqe) : inlay_rq_release(&h->link.rq, cqe)) < 0)
		h->strays++;
	if (inlay_cqe_is_error(cqe)) {
		status = inlay_cqe_status(cqe);
		inlay_task_host_break_(h, status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_RNR_RETRY_EXC_ERR ?
						  -ECONNRESET : -ECONNABORTED);
	}
	/* WQEs that were executed unsignaled get no error completion: a last signaled WQE returns them. */
	if (h->broken && !h->marked) {
		h->marked = !inlay_post(sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED);
		inlay_sq_ring(sq);
	}
	if (h->first)
		h->due = 0; /* a listed task may have waited for it */
}

/* Handles a submitted task's answer, unless it is a plain one. The task has the answer's slot. */
INLAY_COLD void inlay_task_host_answered_(struct inlay_task *t, const struct inlay_task_message *m, int err)
{
	uint32_t room = t->response ? inlay_task_response_room_(t->response) : 0;
	int copied = m->kind == INLAY_TASK_ANSWER;

	if (m->kind == INLAY_TASK_COMMAND ||
	    (m->kind == INLAY_TASK_WRITTEN && (m->length > room || !(t->held & INLAY_TASK_HELD_RESPONSE))))
		err = -EBADMSG;
	t->status = err ? err : m->status;
	t->by = err ? INLAY_TASK_BY_HOST : m->kind == INLAY_TASK_REFUSED ? INLAY_TASK_BY_WORKER : INLAY_TASK_BY_HANDLER;
	t->response_len = err ? 0 : m->length;
	if (!err && copied && t->response && m->length > room) {
		t->status = -EMSGSIZE;
		t->by = INLAY_TASK_BY_HOST;
	} else if (t->response) {
		if (!err && copied)
			inlay_copy(inlay_buf_data(t->response), t->slot + INLAY_TASK_HEAD, m->length);
		(void)inlay_buf_set_data_len(t->response, t->response_len); /* at most room */
	}
	t->state = INLAY_TASK_CLOSING;
	if (t->held & INLAY_TASK_HELD_WINDOWS)
		t->held |= INLAY_TASK_HELD_CLOSE;
	else if (t->held) /* its send was signaled */
		t->held |= INLAY_TASK_HELD_CLOSED;
	inlay_task_list_(t);
	t->host->due = 0;
}

/* The slot of the oldest receive: all are posted, so the next post takes its place in the ring. */
INLAY_ALWAYS uint8_t **inlay_task_host_slot_(const struct inlay_task_host *h)
{
	return &h->slot_of[inlay_rq_index(&h->link.rq) & h->mask];
}

/* Handles a message that inlay_task_host_take_ does not. */
INLAY_COLD void inlay_task_host_message_(struct inlay_task_host *h, uint32_t bytes)
{
	uint8_t **slot = inlay_task_host_slot_(h), *msg = *slot;
	struct inlay_task_message m;
	int err = inlay_task_message_read_(&m, msg, bytes > h->message ? 0 : bytes);
	struct inlay_task *t = (uint32_t)m.ids.context < h->num ? &h->tasks[(uint32_t)m.ids.context] : NULL;

	if (!t || t->ids.context != m.ids.context || t->state < INLAY_TASK_SUBMITTED ||
	    t->state == INLAY_TASK_CLOSING) {
		h->strays += !h->broken && (!t || !h->outstanding);
	} else if (t->state == INLAY_TASK_SUBMITTED) {
		*slot = t->slot;
		t->slot = msg;
		inlay_task_host_answered_(t, &m, err);
	} else {
		inlay_task_let_go_(t); /* late, but the worker is done with the windows */
	}
	h->outstanding -= h->outstanding != 0;
	inlay_rq_recycle(&h->link.rq, (uintptr_t)*slot);
	inlay_rq_ring(&h->link.rq);
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
			inlay_task_end_(t, -ETIMEDOUT, INLAY_TASK_BY_HOST);
		else if (t->deadline < h->earliest)
			h->earliest = t->deadline;
	}
}

/* Probes the worker, when that is due, commands are outstanding and the last probe is done. */
INLAY_COLD void inlay_task_host_probe_(struct inlay_task_host *h)
{
	struct inlay_sq *sq = &h->link.sq;
	uint64_t next = h->now + h->params.period;

	if (h->now >= h->probe_at) {
		h->probe_at = next < h->now ? INLAY_TASK_NEVER : next;
		if (h->outstanding && inlay_task_link_done_(&h->link, h->probe_end) &&
		    !inlay_post_write(sq, 0, 0, NULL, 0, INLAY_SIGNALED)) {
			h->probe_end = inlay_sq_index(sq);
			h->owed = 1;
		}
	}
	if (h->probe_at < h->due)
		h->due = h->probe_at;
}

/* All of progress but CQEs. Settles up to *left tasks, counting down. Returns completed tasks. */
INLAY_COLD uint32_t inlay_task_host_tend_(struct inlay_task_host *h, uint32_t *left)
{
	struct inlay_task *t, *last;
	uint32_t n = 0;

	if (h->now >= h->earliest)
		inlay_task_host_expire_(h);
	h->due = h->earliest;
	if (h->params.period && h->limit)
		inlay_task_host_probe_(h);
	/* Callbacks may append others, which have to wait. */
	for (t = h->first, last = h->last; t; t = t == last ? NULL : h->first) {
		if (!*left) {
			h->due = 0;
			break;
		}
		h->first = t->next;
		t->listed = 0;
		n += inlay_task_settle_(t);
		--*left;
	}
	if (h->owed) {
		h->owed = 0;
		inlay_sq_ring(&h->link.sq);
	}
	return n;
}

/* Handles a completion; frees it before the callback. Returns 1 if it completed a task. */
INLAY_ALWAYS uint32_t inlay_task_host_take_(struct inlay_task_host *h, const struct mlx5_cqe64 *cqe)
{
	uint32_t bytes = 0, length, first;
	uint64_t context;
	struct inlay_task *t;
	uint8_t **slot, *msg;

	/* Opcode, and format (no data in the CQE), in one test; the owner bit is shifted out. */
	if (INLAY_UNLIKELY(cqe->op_own >> 2 != MLX5_CQE_RESP_SEND << 2)) {
		if (inlay_cqe_is_send(cqe) || inlay_cqe_is_error(cqe)) {
			inlay_task_host_sent_(h, cqe);
			inlay_cq_advance(&h->cq, 1);
			return 0;
		}
		/* With an immediate, with invalidate, or an RDMA write: no answer, but it took a receive. */
		inlay_cq_advance(&h->cq, 1);
		goto other;
	}
	bytes = inlay_cqe_byte_count(cqe);
	inlay_cq_advance(&h->cq, 1);
	slot = inlay_task_host_slot_(h);
	msg = *slot;
	/*
	 * Trust only what the device has written: with fewer bytes than a head, the length wraps. Kind and
	 * version are compared together, without the status of 12 bits.
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
	if (INLAY_UNLIKELY(t->ids.context != context) || INLAY_UNLIKELY(t->state != INLAY_TASK_SUBMITTED) ||
	    INLAY_UNLIKELY(t->held) || INLAY_UNLIKELY(t->response != NULL))
		goto other;
	*slot = t->slot;
	/* Ring before the callback: it may submit, and the answer takes this receive. */
	inlay_rq_recycle(&h->link.rq, (uintptr_t)t->slot);
	inlay_rq_ring(&h->link.rq);
	t->slot = msg;
	t->status = -(int)(first >> 16);
	t->response_len = length;
	t->by = INLAY_TASK_BY_HANDLER;
	inlay_task_renew_(t);
	h->outstanding -= h->outstanding != 0;
	if (t->cb)
		t->cb(t, t->user_data, h->user_data);
	return 1;
other:
	inlay_task_host_message_(h, bytes);
	return 0;
}

/*
 * Handles completions, deadlines, windows and probes, and calls the callbacks of completed tasks.
 *
 * now  the time, never less than before
 * max  most completions and callbacks to handle, at least 1
 *
 * Returns how many tasks completed. To wait for one, call this while its inlay_task_status is
 * -EINPROGRESS.
 */
INLAY_FN uint32_t inlay_task_host_progress(struct inlay_task_host *h, uint64_t now, uint32_t max)
{
	const struct mlx5_cqe64 *cqe;
	uint32_t done = 0;

	INLAY_CHECK(max, "progress may do something");
	h->now = now;
	if (INLAY_UNLIKELY(now >= h->due))
		done = inlay_task_host_tend_(h, &max);
	for (; max && (cqe = inlay_cq_peek(&h->cq)); max--)
		done += inlay_task_host_take_(h, cqe);
	if (INLAY_UNLIKELY(!h->due) && max)
		done += inlay_task_host_tend_(h, &max);
	return done;
}

/* The descriptor to sleep on, which does not block; -1 without params.events. */
INLAY_COLD int inlay_task_host_fd(const struct inlay_task_host *h)
{
	return h->channel ? h->channel->fd : -1;
}

/*
 * Arms the descriptor for the next completion. Returns 0, and in *until the latest time for the
 * next progress, or INLAY_TASK_NEVER; -EAGAIN when there is something to do: call progress;
 * -ENOTSUP without params.events.
 */
INLAY_COLD int inlay_task_host_arm(struct inlay_task_host *h, uint64_t *until)
{
	*until = h->due;
	return inlay_task_arm_(h->channel, &h->cq, !h->due);
}

#endif
