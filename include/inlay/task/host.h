/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/host.h: a host: the side that uses a worker. Set-up, and progress of its tasks.
 *
 *   p = inlay_task_host_default();
 *   memory = aligned_alloc(4096, inlay_task_host_size(&p));
 *   inlay_task_host_create(&host, memory, inlay_task_host_size(&p), pd, &p, &why);
 *   inlay_task_address_write(mine, &host.link.self);  send it to the worker, and get the worker's
 *   inlay_task_host_connect(&host, theirs, len, &why);
 *   ... submit tasks (task.h) ...
 *   inlay_task_host_progress(&host, 32);              calls the callbacks of completed tasks
 *
 * Invariants
 *
 *   - At most params.in_flight commands are outstanding, or the worker's credits if fewer. Commands
 *     count until their answer, even if their task completed early. Each message from the worker
 *     counts as one answer.
 *   - All receives are always posted. A task takes over the message slot of its answer, and its old
 *     slot is posted instead.
 *   - The tasks of a dead worker complete once the connection has broken. If all commands are
 *     acknowledged, nothing is sent that could notice it: use inlay_task_link_probe(&host.link). A
 *     worker that lives but does not answer is not dead: use inlay_task_cancel.
 *
 * Callbacks may do anything with tasks of any host, and call inlay_task_host_stop, but not
 * progress of the same host.
 *
 * To sleep, give params.channel. When progress has returned 0, arm with inlay_cq_arm(&host.cq, 0),
 * call progress once more, and if it returns 0 again, wait for the channel. After each event of
 * ibv_get_cq_event call inlay_cq_event(&host.cq).
 *
 * Threads: a host and its tasks have one owner at a time.
 * Sources: as task/task.h.
 */
#ifndef INLAY_TASK_HOST_H
#define INLAY_TASK_HOST_H

#include <inlay/cqe.h>
#include <inlay/task/task.h>

/* ---- Set-up ---- */

/* 64 tasks, 32 in flight, messages of 4096 bytes, 96 inline. */
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
	return p;
}

/* WQEBBs that the send ring needs: for twice the commands in flight, since credit comes late. */
INLAY_COLD uint32_t inlay_task_host_wqebbs_(const struct inlay_task_host_params *p)
{
	uint64_t each = inlay_task_bbs_(INLAY_TASK_HEAD + p->max_inline, 0), all;

	if (each < inlay_task_bbs_(INLAY_TASK_MESSAGE_MIN, p->max_gather))
		each = inlay_task_bbs_(INLAY_TASK_MESSAGE_MIN, p->max_gather);
	all = 2 * each * p->in_flight + 16;
	if (all < 4 * each) /* every WQE is shorter than half the ring */
		all = 4 * each;
	return all > 32768 ? 32768 : (uint32_t)all;
}

/*
 * Lays a host out from `at` on: payload buffers, each behind a line for the head, and slots, which
 * are registered; then the rest. Returns the end; 0 if a parameter is out of range.
 */
INLAY_COLD uintptr_t inlay_task_host_place_(struct inlay_task_host *h, const struct inlay_task_host_params *p, uintptr_t at)
{
	if (!p || !p->tasks || p->tasks > INLAY_TASK_MAX || !inlay_is_pow2(p->in_flight) ||
	    p->in_flight > INLAY_TASK_RECEIVES_MAX || p->message < INLAY_TASK_MESSAGE_MIN ||
	    p->message > INLAY_TASK_MESSAGE_MAX || !p->payload || p->payload > INLAY_SGE_MAX ||
	    p->max_inline > 512 || p->max_gather > INLAY_TASK_GATHER)
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
 * are set. keys: of the memory before the tasks.
 */
INLAY_COLD int inlay_task_host_init_(struct inlay_task_host *h, void *memory, const struct inlay_task_host_params *p,
				     struct inlay_keys keys)
{
	struct ibv_sge sge = {0, 0, keys.lkey};
	uint8_t *payload;
	uint32_t i;
	int err;

	inlay_task_host_place_(h, p, (uintptr_t)memory);
	h->params = *p;
	h->num = p->tasks;
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
		err = inlay_mmap_add(&h->mmap, inlay_source_keys((uintptr_t)memory, (uintptr_t)h->tasks - (uintptr_t)memory, keys));
	if (!err)
		err = inlay_mmap_set_permissions(&h->mmap, INLAY_LOCAL_READ_WRITE | INLAY_MW_BIND);
	if (!err)
		err = inlay_mmap_start(&h->mmap);
	if (!err)
		err = inlay_inventory_create(h->inventory_memory, inlay_inventory_size(2 * h->num), 2 * h->num,
					     &h->inventory);
	if (!err)
		err = inlay_inventory_start(h->inventory);
	for (i = 0; i < p->tasks && !err; i++) {
		struct inlay_task *t = &h->tasks[i];

		t->host = h;
		t->ids.context = (uint64_t)((i + 1) * 0x9e3779b1u) << 32 | i;
		t->slot = h->slots + (size_t)i * h->message;
		t->next = i + 1 < p->tasks ? t + 1 : NULL;
		payload = (uint8_t *)memory + i * h->stride + INLAY_CACHE_LINE;
		err = inlay_inventory_get_by_addr(h->inventory, &h->mmap, payload, p->payload, &t->own_payload);
		if (!err)
			err = inlay_inventory_get_by_addr(h->inventory, &h->mmap, t->slot, h->message, &t->own_response);
	}
	if (err) {
		inlay_task_host_unmake_(h);
		return err;
	}
	inlay_rq_prepare(&h->link.rq, h->message, keys.lkey);
	sge.length = h->message;
	for (i = 0; i <= h->mask; i++) {
		h->slot_of[i] = h->slots + ((size_t)h->num + i) * h->message;
		sge.addr = (uintptr_t)h->slot_of[i];
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
		if (h->tasks[i].state > INLAY_TASK_IDLE && (h->tasks[i].state != INLAY_TASK_QUARANTINE || !h->broken))
			return -EBUSY;
	h->limit = 0;
	if (inlay_task_link_destroy(&h->link) || inlay_task_cq_free_(&h->ibcq))
		return -EBUSY;
	if (h->inventory)
		inlay_task_host_unmake_(h);
	if (h->mr && ibv_dereg_mr(h->mr))
		return -EBUSY;
	h->mr = NULL;
	return 0;
}

/*
 * Makes a host: its CQ, queue pair and memory region, with the receives posted.
 *
 * h       aligned to a cache line; h and memory are the host's until it is destroyed
 * memory  for tasks and messages, aligned to a cache line, better to a page
 * size    bytes, at least inlay_task_host_size(p)
 * p       copied
 *
 * Returns 0; -EINVAL for NULL, a wrong alignment, or a parameter out of range; -ENOBUFS if size is
 * too small; an error of inlay_task_link_create; else the negative errno of the verbs call that
 * failed. On failure nothing is left behind, and *why says what failed.
 */
INLAY_COLD int inlay_task_host_create(struct inlay_task_host *h, void *memory, size_t size, struct ibv_pd *pd,
				      const struct inlay_task_host_params *p, const char **why)
{
	struct inlay_task_caps caps;
	struct inlay_keys keys;
	int err;

	if (!h || (uintptr_t)h % INLAY_CACHE_LINE || !memory || (uintptr_t)memory % INLAY_CACHE_LINE || !pd ||
	    !inlay_task_host_size(p))
		return inlay_refuse_(-EINVAL, why, "a host's argument or parameter is out of its range");
	if (size < inlay_task_host_size(p))
		return inlay_refuse_(-ENOBUFS, why, "less memory than inlay_task_host_size");
	__builtin_memset(h, 0, sizeof(*h));
	__builtin_memset(&caps, 0, sizeof(caps));
	h->pd = pd;
	caps.wqebbs = inlay_task_host_wqebbs_(p);
	caps.receives = p->in_flight;
	caps.max_inline = INLAY_TASK_HEAD + (p->max_inline < 32 ? 32 : p->max_inline);
	caps.max_gather = p->max_gather + 2;
	caps.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	caps.pd = pd;
	caps.cq = &h->cq;
	/* The device may round the ring up. */
	err = inlay_task_cq_make_(&h->cq, &h->ibcq, p->channel, pd, 5ull * caps.wqebbs + p->in_flight, why);
	caps.ibcq = h->ibcq;
	if (!err)
		err = inlay_task_link_create(&h->link, &caps, &p->path, why);
	if (!err) {
		errno = 0;
		inlay_task_host_place_(h, p, 0);
		h->mr = ibv_reg_mr(pd, memory, (uintptr_t)h->tasks, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
		err = h->mr ? 0 : inlay_task_errno_(why, "the host's memory cannot be registered");
	}
	if (!err) {
		keys.lkey = h->mr->lkey;
		keys.rkey = INLAY_NO_KEY;
		err = inlay_task_host_init_(h, memory, p, keys);
		if (err)
			inlay_refuse_(err, why, "the tasks' buffers cannot be made");
	}
	if (err)
		inlay_task_host_destroy(h);
	h->link.self.role = INLAY_TASK_HOST;
	h->link.self.message = h->message;
	h->link.self.receives = p->in_flight;
	h->link.self.id = p->id;
	return err;
}

/*
 * Connects to a worker's connection, by the address of its end. The worker
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

/* Whether the device and the worker are done with a listed task's memory. */
INLAY_COLD int inlay_task_is_loose_(struct inlay_task *t)
{
	struct inlay_task_link *l = &t->host->link;

	/* An error completion says nothing about other WQEs: the device must have returned all. */
	if (t->host->broken)
		return !t->held || (!inlay_sq_pending(&l->sq) && !inlay_rq_pending(&l->rq));
	if (t->held & INLAY_TASK_HELD_KEYS) {
		if (t->held & INLAY_TASK_HELD_CLOSE)
			t->keys->close(t);
		if (t->held & INLAY_TASK_HELD_KEYS)
			return 0;
	}
	if (inlay_task_link_done_(l, t->end) || (t->state == INLAY_TASK_CLOSING && !t->held))
		return 1;
	if (!(t->held & INLAY_TASK_HELD_SEND) && inlay_task_link_mark_(l))
		t->held |= INLAY_TASK_HELD_SEND;
	return 0;
}

/* Advances the listed tasks, but not those that callbacks append. Returns how many completed. */
INLAY_COLD uint32_t inlay_task_host_settle_(struct inlay_task_host *h)
{
	struct inlay_task *t, *last = h->last;
	uint32_t n = 0, was;
	inlay_task_cb cb;

	do {
		t = h->first;
		h->first = t->next;
		was = t->state;
		if (inlay_task_is_loose_(t)) {
			inlay_task_renew_(t);
		} else {
			inlay_task_list_(t);
			if (was != INLAY_TASK_DUE)
				continue;
			t->state = INLAY_TASK_QUARANTINE;
		}
		n += was != INLAY_TASK_QUARANTINE;
		cb = was == INLAY_TASK_QUARANTINE ? h->params.reusable : t->cb;
		if (cb)
			cb(t, t->user_data, h->user_data);
	} while (t != last);
	return n;
}

/* The connection has broken: all that is in flight completes. */
INLAY_COLD void inlay_task_host_break_(struct inlay_task_host *h, int why)
{
	uint32_t i;

	h->broken = why;
	h->limit = 0;
	for (i = 0; i < h->num; i++)
		if (h->tasks[i].state == INLAY_TASK_SUBMITTED)
			inlay_task_end_(&h->tasks[i], why, INLAY_TASK_BY_CONNECTION);
	h->outstanding = h->late = 0;
}

/* Handles an answer of a submitted task, unless it is a plain one. The task has the answer's slot. */
INLAY_COLD void inlay_task_host_answered_(struct inlay_task *t, const struct inlay_task_message *m, int err)
{
	uint32_t room = t->response ? inlay_task_response_room_(t->response) : 0;
	int copied = m->kind == INLAY_TASK_ANSWER;

	if (m->kind == INLAY_TASK_COMMAND ||
	    (m->kind == INLAY_TASK_WRITTEN && (m->length > room || !(t->held & INLAY_TASK_RESPONSE_KEY))))
		err = -EBADMSG;
	t->status = err ? err : m->status;
	if (err || m->kind == INLAY_TASK_REFUSED)
		t->by = err ? INLAY_TASK_BY_HOST : INLAY_TASK_BY_WORKER;
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
	inlay_task_list_(t);
}

/* Handles a message that is not the plain answer of a plain command. It took a receive. */
INLAY_COLD void inlay_task_host_message_(struct inlay_task_host *h, uint32_t bytes)
{
	/* All receives are posted, so the next post takes the place of the oldest in the ring. */
	uint8_t **slot = &h->slot_of[inlay_rq_index(&h->link.rq) & h->mask], *msg = *slot;
	struct inlay_task_message m;
	int err = inlay_task_message_read_(&m, msg, bytes > h->message ? 0 : bytes);
	struct inlay_task *t = (uint32_t)m.ids.context < h->num ? &h->tasks[(uint32_t)m.ids.context] : NULL;

	if (t && (t->ids.context != m.ids.context || t->state < INLAY_TASK_SUBMITTED || t->state == INLAY_TASK_CLOSING))
		t = NULL;
	if (t && t->held & INLAY_TASK_HELD_KEYS)
		t->held |= INLAY_TASK_HELD_CLOSE; /* in time or late, the worker is done with the windows */
	if (t && t->state == INLAY_TASK_SUBMITTED) {
		*slot = t->slot;
		t->slot = msg;
		h->outstanding--;
		inlay_task_host_answered_(t, &m, err);
	} else if (h->late) {
		/* The answer of a task that is in quarantine, or gone */
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
		/* Unsignaled WQEs get no error completion: a last signaled one returns them. */
		if (h->broken && !h->marked)
			h->marked = inlay_task_link_mark_(&h->link);
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
	t = &h->tasks[(uint32_t)context];
	if (INLAY_UNLIKELY(length > h->response_max) || INLAY_UNLIKELY(inlay_task_get32_(msg + 4) != length) ||
	    INLAY_UNLIKELY((first & ~0xfff0000u) != (INLAY_TASK_ANSWER << 8 | INLAY_TASK_VERSION)) ||
	    INLAY_UNLIKELY((uint32_t)context >= h->num) || INLAY_UNLIKELY(t->ids.context != context) ||
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
	inlay_task_renew_(t);
	if (t->cb)
		t->cb(t, t->user_data, h->user_data);
	return 1;
}

/*
 * Handles completions, and calls the callbacks of completed tasks.
 *
 * max  most completions to handle, at least 1; tasks that completed without one come on top
 *
 * Returns how many tasks completed. To wait for one, call this while its inlay_task_status is
 * -EINPROGRESS.
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
