/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/srq.h: a shared receive queue: entries that several QPs receive into.
 *
 *   while (inlay_post_srq_recv(&srq, &sge, 1, user) == 0)    fills it: one buffer for each entry
 *           ...
 *   inlay_srq_ring(&srq);
 *   ...
 *   user = inlay_srq_user(&srq, inlay_cqe_wqe_counter(cqe)); of a receive completion: which buffer
 *   inlay_srq_recycle(&srq, cqe);                            message used: its buffer goes back
 *   inlay_srq_replace(&srq, cqe, &other, 1, user);           message kept: another buffer goes back
 *   inlay_srq_release(&srq, cqe);                            message kept, no other buffer
 *   inlay_srq_ring(&srq);                                    once for many
 *
 * Exactly one of the three follows each receive completion, good or error, before inlay_cq_advance.
 * A released entry is empty until inlay_post_srq_recv, or in a list a recycled buffer, fills it.
 *
 * An SRQ is a list (verbs) or cyclic (devx/srq.h). In a list the device follows the links and may
 * read them ahead, so an entry is handed over only when its successor is known. When every entry
 * holds a buffer, the last one is held until another comes back and is linked behind it. When some
 * are empty, a recycled buffer moves with its user word to the empty entry at the head.
 *
 *   all full    ... --> posted --> posted --> posted     held
 *   some empty  ... --> posted --> posted --> empty --> empty --> empty
 *                                             head                tail
 *
 * Empty entries join the list in runs of neighbours, which the device reads faster: libmlx5 has
 * done so since 2023, and measured 31 % more throughput on RC and 267 % more on UD (10 QPs,
 * messages of 4 KiB, ConnectX-6 Dx).
 *
 *   +0   next    be16 at +2: number of the entry that follows
 *   +5   state   0: posted; 1: empty or held; 2: full, behind one that is not (cyclic)
 *   +6   used    strides used up, of a striding queue (queue/striding.h)
 *   +8   user    8 bytes that belong to the caller
 *   +16  data    pointer | pointer | ...  and an end (key 0x100) when there is room for more
 *
 * The device walks a cyclic queue (devx/srq.h) from entry to entry, whatever the links say. An
 * entry that comes back before its predecessors waits for them, full or empty; none is held. The
 * WQE counter of its completions may go on to 2^16.
 *
 * A completion that names an entry that is not posted (a faulty device) is refused
 * with -EPROTO, and the queue stays intact.
 *
 * Every QP on the queue must complete its receives to a CQ that inlay polls: libmlx5 would put the
 * entry of each completion that it polls or removes into a free list of its own.
 *
 * Entries that a QP in error has not fetched stay available to the other QPs. The QP raises
 * IBV_EVENT_QP_LAST_WQE_REACHED when it will fetch no more. Reset or destroy it only after that
 * event, with its CQ polled empty. For the limit event use ibv_modify_srq with IBV_SRQ_LIMIT.
 *
 * Threads: one owner at a time. Sources: libmlx5's srq.c; the PRM's "Shared Receive Queue" chapter;
 * ibv_modify_srq(3), ibv_modify_qp(3).
 */
#ifndef INLAY_QUEUE_SRQ_H
#define INLAY_QUEUE_SRQ_H /* names are stable until 1.0 */

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/cqe.h>
#include <inlay/wqe.h>
#include <inlay/queue/cq.h>
#include <inlay/queue/uar.h>

/* Offsets of what the device ignores: the entry's state; 16 bits of a striding one. */
#define INLAY_SRQ_STATE_ 5
#define INLAY_SRQ_USED_ 6
#define INLAY_SRQ_EMPTY_ 1
#define INLAY_SRQ_FULL_ 2

struct inlay_srq {
	uint8_t *buf;
	volatile inlay_record *dbrec; /* low half of the record, big-endian: entries shown */
	uint8_t *tail;            /* list: the last entry, whose link is not known yet */
	uint32_t head;            /* list: the entry that is filled next */
	uint32_t cnt;             /* entries; 0 for a cyclic queue */
	uint32_t room;            /* empty entries. List: 0 means that tail is held */
	uint32_t stride;          /* bytes of an entry, a power of two */
	uint32_t max_sge;         /* stride / 16 - 1 */
	uint32_t wqe_cnt;         /* entries */
	uint32_t pi;              /* entries shown */
	uint32_t some;            /* cnt while an entry of a list is empty, else 0 */
	uint32_t full;            /* cnt while none is, else 0 */
	uint32_t wrap;            /* what of a WQE counter names the entry: 16 bits, or of a cyclic queue wqe_cnt - 1 */
	uint64_t back[32768 / 64]; /* list: a bit for each empty entry that is not in it */
	struct inlay_cq *cq;      /* where CQEs are reserved for it, or NULL */
	uint32_t reserved;        /* CQEs reserved in cq */
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_srq, back) == INLAY_CACHE_LINE, "a post touches one line of its queue");

/* ---- Set-up ---- */

/*
 * Initializes *srq for a fresh shared receive queue, all entries empty. The struct takes 4 KiB.
 * Returns 0, or -EINVAL for an argument out of its range.
 *
 * buf      the entries, 16-byte aligned; wqe_cnt of them, 2 .. 32768
 * stride   bytes of an entry, a power of two, 32 .. 1024
 * dbrec    the SRQ's doorbell record: one word
 */
INLAY_COLD INLAY_RESULT int inlay_srq_init(struct inlay_srq *srq, void *buf, uint32_t wqe_cnt, uint32_t stride,
					   volatile uint32_t *dbrec)
{
	uint8_t *wqe;
	uint32_t i;

	if (!buf || (uintptr_t)buf % INLAY_DS || wqe_cnt < 2 || wqe_cnt > 32768 || !dbrec)
		return -EINVAL;
	if (!inlay_is_pow2(stride) || stride < 2 * INLAY_DS || stride > 1024)
		return -EINVAL;
	__builtin_memset(srq, 0, sizeof(*srq));
	srq->buf = (uint8_t *)buf;
	srq->stride = stride;
	srq->wqe_cnt = srq->cnt = srq->some = srq->room = wqe_cnt;
	srq->max_sge = stride / INLAY_DS - 1;
	srq->wrap = 0xffff;
	srq->tail = srq->buf + (size_t)(wqe_cnt - 1) * stride;
	dbrec[0] = 0;
	srq->dbrec = (volatile inlay_record *)dbrec + 1;
	for (i = 0, wqe = srq->buf; i < wqe_cnt; i++, wqe += stride) {
		inlay_wqe_next_(wqe, (uint16_t)(i + 1 < wqe_cnt ? i + 1 : 0));
		wqe[INLAY_SRQ_STATE_] = INLAY_SRQ_EMPTY_;
		inlay_put64(wqe + 8, 0);
	}
	return 0;
}

/* As inlay_srq_init, for a queue that the device walks cyclically; wqe_cnt is a power of two. */
INLAY_COLD INLAY_RESULT int inlay_srq_init_cyclic(struct inlay_srq *srq, void *buf, uint32_t wqe_cnt, uint32_t stride,
						  volatile uint32_t *dbrec)
{
	int err = inlay_is_pow2(wqe_cnt) ? inlay_srq_init(srq, buf, wqe_cnt, stride, dbrec) : -EINVAL;

	if (!err) {
		srq->cnt = srq->some = 0;
		srq->wrap = wqe_cnt - 1;
		srq->tail = srq->buf; /* its head */
	}
	return err;
}

/* Reserves as many CQEs as there are entries; see inlay_sq_reserve_. */
INLAY_COLD int inlay_srq_reserve_(struct inlay_srq *srq, struct inlay_cq *cq, const char **why)
{
	return inlay_cq_reserve_for_(cq, srq->wqe_cnt, &srq->cq, &srq->reserved, why);
}

/* Gives back the queue's CQEs. Call it when the SRQ is destroyed. */
INLAY_COLD void inlay_srq_fini(struct inlay_srq *srq)
{
	inlay_cq_unreserve(srq->cq, srq->reserved);
	srq->cq = NULL;
	srq->buf = NULL;
}

/* ---- Data path ---- */

/* Where entry `index` lies. */
INLAY_ALWAYS uint8_t *inlay_srq_wqe(const struct inlay_srq *srq, uint32_t index)
{
	/* 32768 entries of 1024 bytes fit 32 bits. */
	return srq->buf + index * srq->stride;
}

/* Entries: buffers that the queue holds when it is full. */
INLAY_FN uint32_t inlay_srq_size(const struct inlay_srq *srq)
{
	return srq->wqe_cnt;
}

/*
 * Empty entries. Of a cyclic queue, one that came back before its predecessors waits for them:
 * until then a post returns -EAGAIN.
 */
INLAY_FN uint32_t inlay_srq_room(const struct inlay_srq *srq)
{
	return srq->room;
}

/* The entry that this WQE counter names, or NULL. */
INLAY_ALWAYS uint8_t *inlay_srq_entry_(const struct inlay_srq *srq, uint32_t index)
{
	uint8_t *wqe;

	index &= srq->wrap;
	wqe = inlay_srq_wqe(srq, index);
	if (!wqe)
		__builtin_unreachable(); /* the caller's test folds */
	return INLAY_LIKELY(index < srq->wqe_cnt) ? wqe : NULL;
}

/*
 * What was given with the buffer of entry `index`: inlay_cqe_wqe_counter of a receive completion.
 * It stays until the entry is filled again. 0 when there is no such entry.
 */
INLAY_ALWAYS uint64_t inlay_srq_user(const struct inlay_srq *srq, uint32_t index)
{
	const uint8_t *wqe = inlay_srq_entry_(srq, index);
	uint64_t user = 0;

	if (INLAY_LIKELY(wqe != NULL))
		__builtin_memcpy(&user, wqe + 8, sizeof(user));
	return user;
}

/* Appends the next run of empty entries to a list whose head is its tail. Returns whether there is one. */
INLAY_APART int inlay_srq_extend_(struct inlay_srq *srq)
{
	uint32_t at = srq->head + 1, stride = srq->stride, end;
	uint64_t bits, run;
	uint8_t *wqe;

	if (srq->room < 2)
		return 0;
	for (;; at = (at | 63) + 1) {
		at = at < srq->cnt ? at : 0;
		bits = srq->back[at / 64] >> at % 64 << at % 64;
		if (bits)
			break;
	}
	/* Adding the lowest bit carries through the run. A run ends with its word, for the next call to go on. */
	run = bits & ~(bits + (bits & -bits));
	srq->back[at / 64] ^= run;
	end = (at & ~63u) + 63 - (uint32_t)__builtin_clzll(run);
	at = (at & ~63u) + (uint32_t)__builtin_ctzll(run);
	inlay_wqe_next_(srq->tail, (uint16_t)at);
	wqe = inlay_srq_wqe(srq, at);
	INLAY_UNROLL_(4)
	for (; at != end; wqe += stride)
		inlay_wqe_next_(wqe, (uint16_t)++at);
	srq->tail = wqe;
	return 1;
}

/* The entry of a cyclic queue that is shown next. Its head and tail never change, so that every post is one to the tail. */
INLAY_ALWAYS uint8_t *inlay_srq_cyclic_(const struct inlay_srq *srq)
{
	return inlay_srq_wqe(srq, srq->pi & srq->wrap);
}

/* Shows the next entries of a cyclic queue while they are full. */
INLAY_APART int inlay_srq_show_(struct inlay_srq *srq)
{
	uint8_t *wqe;
	int none = 0;

	while (wqe = inlay_srq_cyclic_(srq), wqe[INLAY_SRQ_STATE_] == INLAY_SRQ_FULL_) {
		wqe[INLAY_SRQ_STATE_] = 0;
		srq->pi++;
	}
	__asm__("" : "+r"(none)); /* as in inlay_sq_doorbell_ */
	return none;
}

/* Ends a post to a list: the entry before the tail is shown. */
INLAY_ALWAYS int inlay_srq_fill_(struct inlay_srq *srq, uint8_t *wqe)
{
	wqe[INLAY_SRQ_STATE_] = 0;
	srq->head = inlay_wqe_next_of_(wqe);
	INLAY_CHECK(srq->head < srq->wqe_cnt, "nobody else writes the entries' links");
	srq->room--;
	srq->pi++;
	return 0;
}

/* Ends a post to the tail: held, shown if the list goes on, or of a cyclic queue. */
INLAY_APART int inlay_srq_fill_tail_(struct inlay_srq *srq, uint8_t *wqe)
{
	if (!srq->cnt) {
		srq->room--;
		wqe[INLAY_SRQ_STATE_] = INLAY_SRQ_FULL_;
		return inlay_srq_show_(srq);
	}
	if (inlay_srq_extend_(srq))
		return inlay_srq_fill_(srq, wqe);
	srq->room = srq->some = 0;
	srq->full = srq->cnt;
	return 0;
}

INLAY_ALWAYS void inlay_srq_write_(struct inlay_srq *srq, uint8_t *wqe, const struct ibv_sge *sge, uint32_t num_sge,
				   uint64_t user)
{
	inlay_put64(wqe + 8, user);
	if (INLAY_KNOWN_(num_sge) && num_sge == 1 && INLAY_LIKELY(sge->length)) {
		inlay_wqe_data(wqe + INLAY_DS, sge->addr, sge->length, sge->lkey);
		if (srq->max_sge != 1)
			inlay_wqe_data_end_(wqe + 2 * INLAY_DS);
	} else {
		inlay_wqe_recv_(wqe + INLAY_DS, wqe + srq->stride, sge, num_sge);
	}
}

/* All in registers, so that the common path saves none. */
INLAY_APART int inlay_srq_post_tail_(struct inlay_srq *srq, uint64_t addr, uint64_t len_lkey, uint64_t user)
{
	struct ibv_sge sge = {addr, (uint32_t)(len_lkey >> 32), (uint32_t)len_lkey};
	uint8_t *wqe = srq->cnt ? srq->tail : inlay_srq_cyclic_(srq);

	if (!srq->room || wqe[INLAY_SRQ_STATE_] != INLAY_SRQ_EMPTY_)
		return -EAGAIN;
	inlay_srq_write_(srq, wqe, &sge, 1, user);
	return inlay_srq_fill_tail_(srq, wqe);
}

/*
 * Fills an empty entry. Same bytes as ibv_post_srq_recv, except for empty SGEs, which libmlx5
 * writes and the device reads as 2^31 bytes, and for the user word.
 *
 * sge   host order, num_sge of them, of at most 2^31 - 1 bytes each; empty ones are left out
 * user  what inlay_srq_user returns for the completion
 *
 * Returns 0; -EAGAIN when no entry is empty, or the next of a cyclic queue is not; -EINVAL for more
 * SGEs than an entry holds. The device sees nothing before inlay_srq_ring().
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_srq_recv(struct inlay_srq *srq, const struct ibv_sge *sge, uint32_t num_sge,
						  uint64_t user)
{
	uint8_t *wqe;

	INLAY_CHECK(srq && (sge || !num_sge), "queue and SGEs are not NULL");
	INLAY_CHECK(srq->buf, "inlay_srq_fini was not called");
	/* Every entry has room for one. */
	if (!(INLAY_KNOWN_(num_sge) && num_sge <= 1) && INLAY_UNLIKELY(num_sge > srq->max_sge))
		return -EINVAL;
	wqe = inlay_srq_wqe(srq, srq->head);
	if (INLAY_UNLIKELY(wqe == srq->tail)) {
		if (INLAY_KNOWN_(num_sge) && num_sge == 1)
			return inlay_srq_post_tail_(srq, sge->addr, (uint64_t)sge->length << 32 | sge->lkey, user);
		if (!srq->cnt)
			wqe = inlay_srq_cyclic_(srq);
		if (!srq->room || wqe[INLAY_SRQ_STATE_] != INLAY_SRQ_EMPTY_)
			return -EAGAIN;
		inlay_srq_write_(srq, wqe, sge, num_sge, user);
		return inlay_srq_fill_tail_(srq, wqe);
	}
	inlay_srq_write_(srq, wqe, sge, num_sge, user);
	return inlay_srq_fill_(srq, wqe);
}

/* Shows the device all entries posted so far, except any held back: writes the doorbell record. */
INLAY_ALWAYS void inlay_srq_ring(struct inlay_srq *srq)
{
	INLAY_CHECK(srq, "the queue is not NULL");
	/* The device may take the entry, and write to its buffer, as soon as the record says so. */
	inlay_fence_recv_record();
	*srq->dbrec = inlay_to_be16((uint16_t)srq->pi);
}

/* A posted entry of a list is appended to it, when all others are full: what was held is shown. */
INLAY_ALWAYS void inlay_srq_append_(struct inlay_srq *srq, uint8_t *wqe, uint32_t index)
{
	uint8_t *last = srq->tail;

	wqe[INLAY_SRQ_STATE_] = INLAY_SRQ_EMPTY_;
	last[INLAY_SRQ_STATE_] = 0;
	inlay_wqe_next_(last, (uint16_t)index);
	srq->tail = wqe;
	srq->head = index;
	srq->pi++;
}

/* Gives back a posted entry, empty. */
INLAY_ALWAYS int inlay_srq_free_(struct inlay_srq *srq, uint32_t index)
{
	uint8_t *wqe = inlay_srq_wqe(srq, index);

	if (INLAY_LIKELY(index < srq->some)) {
		if (INLAY_UNLIKELY(wqe[INLAY_SRQ_STATE_]))
			return -EPROTO;
		wqe[INLAY_SRQ_STATE_] = INLAY_SRQ_EMPTY_;
		srq->back[index / 64] |= (uint64_t)1 << index % 64;
		srq->room++;
		return 0;
	}
	__asm__ volatile("" ::: "memory"); /* as in inlay_sq_release_ */
	wqe = inlay_srq_entry_(srq, index);
	if (!wqe || wqe[INLAY_SRQ_STATE_])
		return -EPROTO;
	wqe[INLAY_SRQ_STATE_] = INLAY_SRQ_EMPTY_;
	if (srq->cnt)
		inlay_srq_append_(srq, wqe, index);
	srq->some = srq->cnt;
	srq->full = 0;
	srq->room++;
	return 0;
}

/* inlay_srq_recycle for a list with empty entries: the buffer moves to the one that is filled next. */
INLAY_APART int inlay_srq_move_(struct inlay_srq *srq, uint32_t index)
{
	uint8_t *wqe, *to;

	if (inlay_srq_free_(srq, index))
		return -EPROTO;
	wqe = inlay_srq_wqe(srq, index);
	to = inlay_srq_wqe(srq, srq->head);
	inlay_copy(to + 8, wqe + 8, srq->stride - 8);
	return to == srq->tail ? inlay_srq_fill_tail_(srq, to) : inlay_srq_fill_(srq, to);
}

/* And for a cyclic queue; apart from the list, so that it saves no registers. */
INLAY_APART int inlay_srq_recycle_(struct inlay_srq *srq, uint32_t index)
{
	uint8_t *wqe;

	if (INLAY_UNLIKELY(srq->cnt))
		return inlay_srq_move_(srq, index);
	index &= srq->wrap;
	wqe = inlay_srq_wqe(srq, index);
	if (INLAY_UNLIKELY(wqe[INLAY_SRQ_STATE_]))
		return -EPROTO;
	if (INLAY_UNLIKELY(index != (srq->pi & srq->wrap))) {
		wqe[INLAY_SRQ_STATE_] = INLAY_SRQ_FULL_;
		return 0;
	}
	srq->pi++;
	return INLAY_LIKELY(inlay_srq_cyclic_(srq)[INLAY_SRQ_STATE_] != INLAY_SRQ_FULL_) ? 0 : inlay_srq_show_(srq);
}

INLAY_ALWAYS int inlay_srq_recycle_entry_(struct inlay_srq *srq, uint32_t index)
{
	uint8_t *wqe;

	if (INLAY_LIKELY(index < srq->full)) {
		wqe = inlay_srq_wqe(srq, index);
		if (INLAY_UNLIKELY(wqe[INLAY_SRQ_STATE_]))
			return -EPROTO;
		inlay_srq_append_(srq, wqe, index);
		return 0;
	}
	return inlay_srq_recycle_(srq, index);
}

/*
 * Gives back the entry that a receive completion of a QP on this queue names, successful or not,
 * with its buffer: the message has been used.
 *
 * Returns 0. -EPROTO when the CQE does not complete a receive, or the entry is not posted; then
 * nothing has changed. A completion of another SRQ is not noticed if it names an entry that is
 * posted here. The device sees nothing before inlay_srq_ring().
 */
INLAY_ALWAYS int inlay_srq_recycle(struct inlay_srq *srq, const struct mlx5_cqe64 *cqe)
{
	INLAY_CHECK(srq && cqe, "queue and CQE are not NULL");
	INLAY_CHECK(srq->buf, "inlay_srq_fini was not called");
	if (INLAY_UNLIKELY(!inlay_cqe_is_recv_(cqe)))
		return -EPROTO;
	return inlay_srq_recycle_entry_(srq, inlay_cqe_wqe_counter(cqe));
}

/*
 * As inlay_srq_recycle, with another buffer: the caller keeps the message. sge, num_sge and user as
 * in inlay_post_srq_recv.
 *
 * Returns also -EINVAL for more SGEs than an entry holds; then nothing has changed.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_srq_replace(struct inlay_srq *srq, const struct mlx5_cqe64 *cqe,
						const struct ibv_sge *sge, uint32_t num_sge, uint64_t user)
{
	uint32_t index;
	uint8_t *wqe;

	INLAY_CHECK(srq && cqe && (sge || !num_sge), "queue, CQE and SGEs are not NULL");
	INLAY_CHECK(srq->buf, "inlay_srq_fini was not called");
	if (!(INLAY_KNOWN_(num_sge) && num_sge <= 1) && INLAY_UNLIKELY(num_sge > srq->max_sge))
		return -EINVAL;
	if (INLAY_UNLIKELY(!inlay_cqe_is_recv_(cqe)))
		return -EPROTO;
	index = inlay_cqe_wqe_counter(cqe);
	wqe = inlay_srq_entry_(srq, index);
	if (INLAY_UNLIKELY(!wqe) || INLAY_UNLIKELY(wqe[INLAY_SRQ_STATE_]))
		return -EPROTO;
	inlay_srq_write_(srq, wqe, sge, num_sge, user);
	return inlay_srq_recycle_entry_(srq, index);
}

/* As inlay_srq_recycle, without a buffer: the caller keeps the message. The entry is empty. */
INLAY_ALWAYS int inlay_srq_release(struct inlay_srq *srq, const struct mlx5_cqe64 *cqe)
{
	INLAY_CHECK(srq && cqe, "queue and CQE are not NULL");
	if (INLAY_UNLIKELY(!inlay_cqe_is_recv_(cqe)))
		return -EPROTO;
	return inlay_srq_free_(srq, inlay_cqe_wqe_counter(cqe));
}

/* For inlay_cq_clean, with the SRQ as arg: gives back the entry of a removed receive, with its buffer. */
INLAY_COLD void inlay_srq_gone(const struct mlx5_cqe64 *cqe, void *arg)
{
	inlay_srq_recycle((struct inlay_srq *)arg, cqe);
}

INLAY_CASTS_END_
#endif
