/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/progress.h: the host's tasks: completed, by an answer, early, or with the connection. The manual is host.h's.
 *
 *   completion --plain answer to a task in flight--> callback
 *              --anything else--> sort --> settle --> what holds its memory --> ripe --> callback
 *   tend: deadlines, those that wait for a send or for windows to be closed, the probe, callbacks that are due
 *
 * Slots. There are as many as tasks and receives together, and a task always has one. The slot that its answer came in becomes the task's,
 * and the one that it had is posted in its place. So, until the end, all receives are posted all the time, and an answer lies where it
 * came until the task is used again.
 *
 * Threads: as host.h.
 * Sources: as host.h.
 */
#ifndef INLAY_TASK_PROGRESS_H
#define INLAY_TASK_PROGRESS_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/buf.h>
#include <inlay/cqe.h>
#include <inlay/queue.h>
#include <inlay/task/host.h>
#include <inlay/task/submit.h>
#include <inlay/task/wire.h>

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: what is rare
 */

INLAY_COLD void inlay_task_give_window(struct inlay_task_host *h, uint32_t window)
{
	h->windows[window].next = h->free_window;
	h->free_window = window;
}

/* A task's windows are closed. */
INLAY_COLD void inlay_task_closed(struct inlay_task *t)
{
	if (t->held & INLAY_TASK_HELD_PAYLOAD)
		inlay_task_give_window(t->host, inlay_task_rest(t)->windows[0]);
	if (t->held & INLAY_TASK_HELD_RESPONSE)
		inlay_task_give_window(t->host, inlay_task_rest(t)->windows[1]);
	t->held = 0;
}

/* The generation that follows: whatever was said of the one before is said of nobody. */
INLAY_ALWAYS void inlay_task_next(struct inlay_task *t)
{
	/* The upper half; it comes round by itself. Two that are near each other differ by more than a bit. */
	((inlay_task_word *)(void *)&t->context)[1] += 3;
	t->deadline = INLAY_TASK_NEVER;
}

/* Nothing holds a task's memory any more. */
INLAY_COLD void inlay_task_let_go(struct inlay_task *t)
{
	inlay_task_closed(t);
	if (t->state == INLAY_TASK_CLOSING)
		inlay_task_ripen(t);
	else if (t->state == INLAY_TASK_QUARANTINE)
		inlay_task_queue(t);
}

/* Whether a task's send and, if it was posted, the closing of its windows are done. */
INLAY_ALWAYS int inlay_task_is_sent(const struct inlay_task *t)
{
	return (int32_t)(inlay_task_sent(&t->host->link.sq) - t->end) >= 0;
}

/* Waits from now on for what holds a task's memory. */
INLAY_COLD void inlay_task_wait(struct inlay_task *t)
{
	struct inlay_task_host *h = t->host;

	/* In quarantine it may do so already. */
	if (t->state == INLAY_TASK_QUARANTINE)
		inlay_task_host_forget(h, t);
	inlay_task_rest(t)->next = h->waiting;
	h->waiting = inlay_task_index(t);
	h->due = 0;
}

/* Posts what closes a task's windows, if there is room for it. */
INLAY_COLD void inlay_task_close(struct inlay_task *t)
{
	struct inlay_task_host *h = t->host;
	struct inlay_sq *sq = &h->link.sq;
	uint32_t i;

	if (inlay_sq_room(sq) < 4)
		return;
	for (i = 0; i < 2; i++)
		if (t->held & (i ? INLAY_TASK_HELD_RESPONSE : INLAY_TASK_HELD_PAYLOAD)) {
			struct inlay_task_window *w = &h->windows[inlay_task_rest(t)->windows[i]];

			inlay_post_local_inv(sq, w->rkey, INLAY_SIGNALED);
		}
	t->end = inlay_sq_index(sq);
	t->held |= INLAY_TASK_HELD_CLOSED;
	h->owed = 1;
}

/*
 * Whether the device has given back all that was posted to a broken connection. Only then is it done with memory that it gathers from or
 * that windows were open to; the first completion that has failed says nothing of the others.
 */
INLAY_COLD int inlay_task_host_drained(const struct inlay_task_host *h)
{
	return !inlay_sq_pending(&h->link.sq) && h->flushed > h->mask;
}

/* Those that wait: windows are closed as soon as there is room for it, and who has nothing to wait for any more goes on. */
INLAY_COLD void inlay_task_host_wait(struct inlay_task_host *h)
{
	const uint8_t windows = INLAY_TASK_HELD_PAYLOAD | INLAY_TASK_HELD_RESPONSE;
	uint32_t i = h->waiting, next;

	h->waiting = INLAY_TASK_NONE;
	for (; i != INLAY_TASK_NONE; i = next) {
		struct inlay_task *t = &h->tasks[i];

		next = h->more[i].next;
		if (h->broken) {
			if (inlay_task_host_drained(h)) {
				inlay_task_let_go(t);
			} else {
				h->more[i].next = h->waiting;
				h->waiting = i;
			}
			continue;
		}
		if (t->held & windows && (t->held & (INLAY_TASK_HELD_CLOSE | INLAY_TASK_HELD_CLOSED)) == INLAY_TASK_HELD_CLOSE)
			inlay_task_close(t);
		if (inlay_task_is_sent(t) && (!(t->held & windows) || t->held & INLAY_TASK_HELD_CLOSED)) {
			inlay_task_let_go(t);
		} else if (!inlay_task_is_sent(t) || t->held & INLAY_TASK_HELD_CLOSE) {
			h->more[i].next = h->waiting;
			h->waiting = i;
		}
	}
}

/* The command has not been shown to the device: its WQEBBs become NOPs. */
INLAY_COLD void inlay_task_erase(struct inlay_task *t)
{
	struct inlay_task_host *h = t->host;
	struct inlay_sq *sq = &h->link.sq;
	uint32_t first = inlay_sq_rung(sq), bbs, windows = 0, i;

	/* From what was not rung for, WQE by WQE, to the command; what opens its windows is right before it, three WQEBBs each. */
	for (;;) {
		bbs = ((inlay_sq_wqe(sq, first)[7] & 0x3fu) + 3) / 4;
		if (first + bbs == t->end)
			break;
		first += bbs;
	}
	windows += t->held & INLAY_TASK_HELD_PAYLOAD ? 3 : 0;
	windows += t->held & INLAY_TASK_HELD_RESPONSE ? 3 : 0;
	inlay_sq_erase(sq, first - windows, t->end);
	for (i = 0; i < 2; i++)
		if (t->held & (i ? INLAY_TASK_HELD_RESPONSE : INLAY_TASK_HELD_PAYLOAD)) {
			struct inlay_task_window *w = &h->windows[inlay_task_rest(t)->windows[i]];

			w->rkey = (w->rkey & ~0xffu) | ((w->rkey - 1) & 0xff);
		}
	inlay_task_closed(t);
	h->outstanding--;
}

/* Whether the device has not been shown the task's command. */
INLAY_ALWAYS int inlay_task_unsent(const struct inlay_task_host *h, const struct inlay_task *t)
{
	return (int32_t)(t->end - inlay_sq_rung(&h->link.sq)) > 0;
}

/* Completes a task in flight early. */
INLAY_COLD void inlay_task_end(struct inlay_task *t, int status)
{
	if (inlay_task_unsent(t->host, t)) {
		inlay_task_erase(t);
	} else {
		t->early = 1;
		t->held &= (uint8_t)~INLAY_TASK_HELD_COPY;
		/* Gathered, from its own buffer too, as all are beside a response buffer: the answer would have told that it is sent. */
		if (!t->held && (t->payload->next || t->response || t->payload->data_len > t->host->max_inline) && !inlay_task_is_sent(t)) {
			t->held = INLAY_TASK_HELD_SEND;
			t->host->hurry = 1;
		}
		if (t->held == INLAY_TASK_HELD_SEND && inlay_task_is_sent(t))
			t->held = 0;
	}
	t->status = status;
	t->by = INLAY_TASK_BY_HOST;
	t->response_len = 0;
	inlay_task_ripen(t);
}

/*
 * Takes back a command that was submitted quietly and not rung for. Its callback comes with the next progress, with -ECANCELED.
 *
 * Returns 0; -EBUSY when it was sent, or is on its way to its callback; -EBADFD when it was not submitted.
 */
INLAY_COLD int inlay_task_cancel(struct inlay_task *t)
{
	if (t->state == INLAY_TASK_FREE || t->state == INLAY_TASK_IDLE || t->state == INLAY_TASK_QUARANTINE)
		return -EBADFD;
	if (t->state != INLAY_TASK_FLYING || !inlay_task_unsent(t->host, t))
		return -EBUSY;
	inlay_task_end(t, -ECANCELED);
	return 0;
}

/*
 * Closes the windows of a task in quarantine, which leaves it when that is done, in some later progress. If the worker uses them after all,
 * the connection breaks. A task that waits for its send, or is being closed, needs none of it.
 *
 * Returns 0, or -EBADFD when it is not in quarantine.
 */
INLAY_COLD int inlay_task_revoke(struct inlay_task *t)
{
	if (t->state != INLAY_TASK_QUARANTINE)
		return -EBADFD;
	if (t->held) {
		t->held |= INLAY_TASK_HELD_CLOSE;
		inlay_task_wait(t);
	}
	return 0;
}

/*
 * The connection is at its end: every task is completed. Those whose memory the device could still use are in quarantine until it has
 * given back all that was posted. Their own buffers are not looked at: they stay registered, and what is read from them goes nowhere.
 */
INLAY_COLD void inlay_task_host_break(struct inlay_task_host *h, int why)
{
	uint32_t i;

	if (h->broken)
		return;
	h->broken = h->stopped ? -ECONNABORTED : why;
	h->limit = 0;
	h->outstanding = h->orphans = h->unclaimed = 0;
	h->hurry = 0;
	h->due = 0;
	h->waiting = INLAY_TASK_NONE;
	for (i = 0; i < h->num; i++) {
		struct inlay_task *t = &h->tasks[i];

		if (t->state == INLAY_TASK_FREE || t->state == INLAY_TASK_IDLE)
			continue;
		t->early = 0;
		t->held &= INLAY_TASK_HELD_PAYLOAD | INLAY_TASK_HELD_RESPONSE | INLAY_TASK_HELD_SEND;
		if (t->state == INLAY_TASK_FLYING) {
			t->status = h->broken;
			t->by = INLAY_TASK_BY_CONNECTION;
			t->response_len = 0;
		}
		if (t->state == INLAY_TASK_FLYING || t->state == INLAY_TASK_CLOSING) {
			inlay_task_ripen(t);
		} else if (t->state == INLAY_TASK_QUARANTINE && t->held) {
			h->more[i].next = h->waiting;
			h->waiting = i;
		}
	}
}

/*
 * Tasks may fly as long as they like, and WQEBBs are counted in 32 bits: the ends of those whose sends are done are brought along, so that
 * none is ever further behind than half of what can be counted.
 */
INLAY_COLD void inlay_task_host_age(struct inlay_task_host *h)
{
	uint32_t i;

	h->aged = inlay_sq_index(&h->link.sq);
	for (i = 0; i < h->num; i++)
		if (inlay_task_is_sent(&h->tasks[i]))
			h->tasks[i].end = inlay_task_sent(&h->link.sq);
}

/* An error completion: the first one tells why. */
INLAY_COLD void inlay_task_host_error(struct inlay_task_host *h, const struct mlx5_cqe64 *cqe)
{
	enum ibv_wc_status status = inlay_cqe_status(cqe);

	if (!inlay_cqe_is_send(cqe))
		h->flushed++;
	else if (inlay_sq_release(&h->link.sq, cqe) < 0)
		h->strays++;
	h->due = 0;
	inlay_task_host_break(h, status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_RNR_RETRY_EXC_ERR ? -ECONNRESET : -ECONNABORTED);
}

/* What the worker says of a task, which is FLYING, or was completed early: all but the commonest case. The answer's slot is the task's. */
INLAY_COLD void inlay_task_host_settle(struct inlay_task *t, const struct inlay_task_answer *a, int err, const uint8_t *msg)
{
	struct inlay_task_host *h = t->host;

	h->outstanding--;
	t->held &= (uint8_t)~INLAY_TASK_HELD_COPY;
	if (t->early) {
		t->early = 0;
		inlay_task_host_forget(h, t); /* it may be waiting already */
	} else {
		t->status = err ? err : a->status;
		t->by = err ? INLAY_TASK_BY_HOST : a->kind == INLAY_TASK_REFUSED ? INLAY_TASK_BY_WORKER : INLAY_TASK_BY_HANDLER;
		t->response_len = err ? 0 : a->length;
		/* Written beyond what was granted, or to where nothing was: it cannot have been. */
		if (!err && a->kind == INLAY_TASK_WRITTEN &&
		    (!(t->held & INLAY_TASK_HELD_RESPONSE) || a->length > inlay_task_response_room(t->response))) {
			t->status = -EBADMSG;
			t->by = INLAY_TASK_BY_HOST;
			t->response_len = 0;
		} else if (!err && a->kind == INLAY_TASK_ANSWER && t->response && a->length > inlay_task_response_room(t->response)) {
			t->status = -EMSGSIZE;
			t->by = INLAY_TASK_BY_HOST;
		} else if (t->response) {
			if (a->kind == INLAY_TASK_ANSWER && !err)
				inlay_copy(t->response->data, msg + INLAY_TASK_HEAD, a->length);
			t->response->data_len = t->response_len;
		}
		t->state = INLAY_TASK_CLOSING;
	}
	if (t->held & (INLAY_TASK_HELD_PAYLOAD | INLAY_TASK_HELD_RESPONSE)) {
		t->held |= INLAY_TASK_HELD_CLOSE;
		if (!(t->held & INLAY_TASK_HELD_CLOSED))
			inlay_task_close(t);
	}
	/* One whose callback is due is in the list of those; deliver sees to it. */
	if (!t->held || (t->held == INLAY_TASK_HELD_SEND && inlay_task_is_sent(t)))
		inlay_task_let_go(t);
	else if (t->state != INLAY_TASK_RIPE)
		inlay_task_wait(t);
}

/*
 * A message that is not a plain answer to a task in flight that nothing holds. Its slot has become `slot`'s. Returns the task that it
 * concerns or NULL.
 */
INLAY_COLD struct inlay_task *inlay_task_host_sort(struct inlay_task_host *h, const uint8_t *msg, uint32_t bytes,
						   struct inlay_task_answer *a, int *err)
{
	struct inlay_task *t;

	*err = inlay_task_answer_read(a, msg, bytes > h->message ? 0 : bytes);
	if (inlay_task_context_index(a->context) < h->num) {
		t = &h->tasks[inlay_task_context_index(a->context)];
		if (t->context == a->context && (t->state == INLAY_TASK_FLYING || t->early) && !inlay_task_unsent(h, t))
			return t;
	}
	if (h->orphans) {
		h->orphans--;
		h->outstanding--;
	} else if (!h->broken) {
		h->unclaimed++;
		h->strays++;
	}
	return NULL;
}

/*
 * A task that was completed early is used again. Its answer is still to come, or it was one of those that said they were nobody's: then the
 * command is no longer outstanding.
 */
INLAY_COLD void inlay_task_host_orphan(struct inlay_task_host *h)
{
	if (h->unclaimed) {
		h->unclaimed--;
		h->outstanding--;
	} else {
		h->orphans++;
	}
}

/* Calls callbacks that are due, at most max. Returns how many. */
INLAY_COLD uint32_t inlay_task_host_deliver(struct inlay_task_host *h, uint32_t max)
{
	uint32_t n;

	for (n = 0; n < max && h->ripe != INLAY_TASK_NONE; n++) {
		struct inlay_task *t = &h->tasks[h->ripe];
		inlay_task_cb cb = t->state == INLAY_TASK_RIPE ? t->cb : h->params.reusable;

		h->quiet += t->state != INLAY_TASK_RIPE;
		h->ripe = h->more[h->ripe].next;
		if (t->held == INLAY_TASK_HELD_SEND && inlay_task_is_sent(t))
			t->held = 0;
		else if (h->broken && inlay_task_host_drained(h))
			inlay_task_closed(t);
		if (t->held) {
			inlay_task_wait(t);
			t->state = INLAY_TASK_QUARANTINE;
		} else {
			if (t->early)
				inlay_task_host_orphan(h);
			t->early = 0;
			inlay_task_next(t);
			t->state = INLAY_TASK_IDLE;
			t->held = t->response ? INLAY_TASK_HELD_COPY : 0;
		}
		if (cb)
			cb(t, t->user_data, h->user_data);
	}
	return n;
}

/* Deadlines that have passed, and the earliest of the others. */
INLAY_COLD void inlay_task_host_expire(struct inlay_task_host *h, uint64_t now)
{
	uint32_t i;

	h->earliest = INLAY_TASK_NEVER;
	for (i = 0; i < h->num; i++) {
		struct inlay_task *t = &h->tasks[i];

		if (t->state != INLAY_TASK_FLYING)
			continue;
		if (t->deadline <= now)
			inlay_task_end(t, -ETIMEDOUT);
		else if (t->deadline < h->earliest)
			h->earliest = t->deadline;
	}
}

/* A zero-byte write, when it is time for one, something is outstanding and the one before has been acknowledged. */
INLAY_COLD void inlay_task_host_probe(struct inlay_task_host *h, uint64_t now)
{
	struct inlay_sq *sq = &h->link.sq;

	if (now < h->probe_at)
		return;
	h->probe_at = now + h->params.period < now ? INLAY_TASK_NEVER : now + h->params.period;
	if (!h->outstanding || h->probing || inlay_post_write(sq, 0, 0, NULL, 0, INLAY_SIGNALED))
		return;
	h->probing = 1;
	h->probe_end = inlay_sq_index(sq);
	h->owed = 1;
}

/* All that is not a completion. Returns how many callbacks were called. */
INLAY_COLD uint32_t inlay_task_host_tend(struct inlay_task_host *h, uint32_t max)
{
	uint64_t now = h->now;
	uint32_t n;

	if (now >= h->earliest)
		inlay_task_host_expire(h, now);
	/* A completion of all that was sent, some of it unsignaled. */
	if (h->hurry && !inlay_post_nop(&h->link.sq, INLAY_SIGNALED)) {
		h->hurry = 0;
		h->owed = 1;
	}
	if (h->waiting != INLAY_TASK_NONE)
		inlay_task_host_wait(h);
	if (h->params.period && h->limit)
		inlay_task_host_probe(h, now);
	h->due = h->earliest;
	if (h->params.period && h->limit && h->probe_at < h->due)
		h->due = h->probe_at;
	n = inlay_task_host_deliver(h, max);
	/* After the connection's end those that wait do so for its completions. */
	if (h->ripe != INLAY_TASK_NONE || (h->waiting != INLAY_TASK_NONE && !h->broken) || h->hurry)
		h->due = 0;
	if (h->owed) {
		h->owed = 0;
		inlay_sq_ring(&h->link.sq);
	}
	return n;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: progress
 */

/* Which slot the receive has that completes next. As many are posted all the time: it is the one that is posted next. */
INLAY_ALWAYS uint8_t **inlay_task_host_slot(const struct inlay_task_host *h)
{
	return &h->slot_of[inlay_rq_index(&h->link.rq) & h->mask];
}

/* A message that is not a plain answer to a task in flight that nothing holds. */
INLAY_COLD void inlay_task_host_message(struct inlay_task_host *h, uint32_t bytes)
{
	uint8_t **slot = inlay_task_host_slot(h), *msg = *slot;
	struct inlay_task_answer a;
	struct inlay_task *t;
	int err;

	h->quiet++;
	t = inlay_task_host_sort(h, msg, bytes, &a, &err);
	if (t && !h->broken) {
		*slot = t->slot;
		t->slot = msg;
		inlay_task_host_settle(t, &a, err, msg);
	}
	inlay_rq_recycle(&h->link.rq, (uintptr_t)*slot);
	inlay_rq_ring(&h->link.rq);
}

/* A completion that is not of a message as they should be. */
INLAY_COLD void inlay_task_host_other(struct inlay_task_host *h, const struct mlx5_cqe64 *cqe)
{
	struct inlay_sq *sq = &h->link.sq;

	h->quiet++;
	if (inlay_cqe_is_error(cqe)) {
		inlay_task_host_error(h, cqe);
	} else if (!inlay_cqe_is_send(cqe)) {
		/* With an immediate or a key to close, or written: no answer is like that. It has taken a receive, and says nothing. */
		h->quiet--;
		inlay_cq_advance(&h->cq, 1);
		inlay_task_host_message(h, 0);
		return;
	} else if (inlay_sq_release(sq, cqe) < 0) {
		h->strays++;
	} else {
		if ((int32_t)(inlay_task_sent(sq) - h->probe_end) >= 0)
			h->probing = 0;
		if ((inlay_sq_index(sq) - h->aged) >> 30)
			inlay_task_host_age(h);
	}
	/*
	 * WQEs that were done without a completion have none at the end either: one more, behind them all, has. It is posted as soon as it
	 * has room; what was not rung for has to go before.
	 */
	if (h->broken && !h->marked) {
		h->marked = !inlay_post_nop(sq, INLAY_SIGNALED);
		inlay_sq_ring(sq);
	}
	inlay_cq_advance(&h->cq, 1);
}

/* One completion, which is freed before the callback is called. Returns 0 when there is none. */
INLAY_ALWAYS int inlay_task_host_take(struct inlay_task_host *h)
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
		inlay_task_host_other(h, cqe);
		return 1;
	}
	bytes = inlay_cqe_byte_count(cqe);
	inlay_cq_advance(&h->cq, 1);
	length = bytes - INLAY_TASK_HEAD;
	slot = inlay_task_host_slot(h);
	msg = *slot;
	/*
	 * Only what the device has written is believed. Fewer bytes than a head are a length beyond all. Kind and version are looked at
	 * together, past the status of 12 bits. In flight, with nothing held and nothing early, is one word.
	 */
	if (INLAY_UNLIKELY(length > h->answer_room))
		goto other;
	first = inlay_task_get32(msg);
	if (INLAY_UNLIKELY((first & ~0xfff0000u) != (INLAY_TASK_ANSWER << 8 | INLAY_TASK_WIRE)) ||
	    INLAY_UNLIKELY(inlay_task_get32(msg + 4) != length))
		goto other;
	context = inlay_task_get64(msg + 8);
	if (INLAY_UNLIKELY(inlay_task_context_index(context) >= h->num))
		goto other;
	t = &h->tasks[inlay_task_context_index(context)];
	if (INLAY_UNLIKELY(t->context != context) || INLAY_UNLIKELY(inlay_task_get_word(t) != INLAY_TASK_FLYING) ||
	    INLAY_UNLIKELY(inlay_task_unsent(h, t)))
		goto other;
	*slot = t->slot;
	/* Rung for before anything can be submitted whose answer would take it. */
	inlay_rq_recycle(&h->link.rq, (uintptr_t)t->slot);
	inlay_rq_ring(&h->link.rq);
	t->slot = msg;
	t->status = -(int)(first >> 16);
	t->response_len = length;
	inlay_task_next(t);
	inlay_task_set_word(t, INLAY_TASK_IDLE | INLAY_TASK_BY_HANDLER << 16);
	h->outstanding--;
	if (t->cb)
		t->cb(t, t->user_data, h->user_data);
	return 1;
other:
	inlay_task_host_message(h, bytes);
	return 1;
}

/*
 * Handles completions, deadlines, windows and probes.
 *
 * now  what time it is; never less than before
 * max  completions and callbacks that are handled at most, at least 1
 *
 * Returns how many tasks were completed, of whichever. Calls their callbacks, and params.reusable. After the connection's end it completes
 * what is left; see inlay_task_host_broken.
 */
INLAY_FN uint32_t inlay_task_host_progress(struct inlay_task_host *h, uint64_t now, uint32_t max)
{
	uint32_t left = max;

	INLAY_CHECK(max, "progress may do something");
	h->quiet = 0;
	h->now = now;
	if (INLAY_UNLIKELY(now >= h->due)) {
		left -= inlay_task_host_tend(h, left);
		if (!left)
			return max - h->quiet;
	}
	while (inlay_task_host_take(h) && --left)
		;
	if (INLAY_UNLIKELY(!h->due))
		left -= inlay_task_host_tend(h, left);
	return max - left - h->quiet;
}

/*
 * Arms the event: the descriptor tells of the next completion. Call it when progress has found nothing.
 *
 * Returns 0; -EAGAIN when there is something to do at once: progress; -ENOTSUP without params.events.
 */
INLAY_FN int inlay_task_host_arm(struct inlay_task_host *h)
{
	if (!h->params.events)
		return -ENOTSUP;
	if (!h->due || inlay_cq_peek(&h->cq))
		return -EAGAIN;
	if (inlay_cq_arm(&h->cq, 0))
		return -ENOTSUP;
	return inlay_cq_peek(&h->cq) ? -EAGAIN : 0;
}

#endif
