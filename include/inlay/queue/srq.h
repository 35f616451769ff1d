/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/srq.h: a shared receive queue: entries that several QPs receive into.
 *
 *   uint32_t i = inlay_srq_index(&srq);                      which entry comes next: file its buffer under i
 *   inlay_post_srq_recv(&srq, &sge, 1);  inlay_srq_ring(&srq);
 *   ...
 *   if (inlay_srq_release(&srq, cqe) < 0) ...                gives its entry back, good or error;
 *                                                            < 0: it names none that is posted
 *   i = inlay_srq_entry(&srq, cqe);                          which entry that was; both read the CQE,
 *                                                            so before inlay_cq_advance
 *
 * Entries complete in any order, so the ring is a linked list. The same links give the device's
 * order and the free list:
 *
 *        device's next                head                    tail
 *   ... --> entry --> entry --> entry --> entry --> entry --> entry
 *          posted                         free
 *
 * A released entry joins the list only when head has reached tail: then the nearest run of
 * neighbours that are free, from head on, is appended. The device reads entries that lie side by
 * side faster; libmlx5 has done so since 2023 and measured 31 % on RC and 267 % on UD. Runs form
 * when some entries are free, so do not keep all of them posted.
 *
 *   +0   next    be16 at +2: number of the entry that follows
 *   +5   free    1 while the entry is in the free list
 *   +6   used    strides used up, of a striding queue (queue/striding.h)
 *   +8   user    8 bytes that belong to the caller: inlay_srq_user
 *   +16  data    pointer | pointer | ...  and an end (key 0x100) when there is room for more
 *
 * The last posted entry needs a successor, so of n entries n - 1 can be posted at a time
 * (inlay_srq_size). A completion that names a free entry (a faulty device, a CQE released twice) is
 * refused, and the list stays intact.
 *
 * Buffers that stay with their entries. A released entry keeps its data segments. If most buffers
 * are free again by then, prepare all entries once and post them again without writing anything.
 * Posting takes the entry that inlay_srq_index names, not the entry released last:
 *
 *   for (i = 0; i <= inlay_srq_size(&srq); i++)                       also the one that is held back
 *           inlay_srq_set_user(&srq, i, buffer[i]), inlay_srq_prepare(&srq, i, &sge[i], 1);
 *   ...
 *   i = inlay_srq_index(&srq);
 *   if (... the buffer inlay_srq_user(&srq, i) is free again ...)
 *           inlay_srq_repost(&srq);
 *   else
 *           inlay_srq_set_user(&srq, i, other), inlay_post_srq_recv(&srq, &sge_of_other, 1);
 *
 * The device walks a cyclic queue (devx/rmp.h) from entry to entry, whatever the links say. An
 * entry released before its predecessors waits for them; its release returns 0. The WQE counter of
 * its completions may go on to 2^16: inlay_srq_entry masks it.
 *
 * Every QP on the queue must complete its receives to a CQ that inlay polls: libmlx5 would put the
 * entry of each completion that it polls or removes into a free list of its own.
 *
 * A QP in error leaves entries that it has not started to the other QPs, and raises
 * IBV_EVENT_QP_LAST_WQE_REACHED when it will take no more. Reset or destroy it only after that
 * event, with its CQ polled empty. For the limit event use ibv_modify_srq with IBV_SRQ_LIMIT.
 *
 * Threads: one owner at a time. Sources: libmlx5's srq.c; the PRM's "Shared Receive Queue" chapter;
 * ibv_modify_srq(3), ibv_modify_qp(3).
 */
#ifndef INLAY_QUEUE_SRQ_H
#define INLAY_QUEUE_SRQ_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/cqe.h>
#include <inlay/wqe.h>
#include <inlay/queue/cq.h>
#include <inlay/queue/uar.h>

/* Offsets of what the device ignores: the byte that marks a free entry; 16 bits of a striding one. */
#define INLAY_SRQ_FREE_ 5
#define INLAY_SRQ_USED_ 6

struct inlay_srq {
	uint8_t *buf;
	volatile inlay_record *dbrec; /* low half of the record, big-endian: WQEs posted */
	uint8_t *tail;            /* the last entry of the list, whose link is not known yet; never posted */
	uint32_t head;            /* the entry that is posted next */
	uint32_t cnt;             /* entries; 0 for a cyclic queue, so that its releases leave the common path */
	uint32_t room;            /* free entries, the last one not counted */
	uint32_t stride;          /* bytes of an entry, a power of two */
	uint32_t max_sge;         /* stride / 16 - 1 */
	uint32_t wqe_cnt;         /* entries */
	uint32_t pi;              /* entries posted */
	uint32_t reserved;        /* CQEs set aside for it */
	struct inlay_cq *cq;      /* in this CQ, or NULL */
	uint64_t back[32768 / 64]; /* a bit for each entry that came back and is not in the list */
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_srq, back) == INLAY_CACHE_LINE, "a post touches one line of its queue");

/* ---- Set-up ---- */

/*
 * Describes a fresh shared receive queue, all entries free. The struct takes 4 KiB. Returns 0, or
 * -EINVAL for an argument out of its range.
 *
 * buf      the entries, 16-byte aligned; wqe_cnt of them, 2 .. 32768, of which one is never posted
 * stride   bytes of an entry, a power of two, 32 .. 1024
 * dbrec    the SRQ's doorbell record: one word
 */
INLAY_COLD int inlay_srq_init(struct inlay_srq *srq, void *buf, uint32_t wqe_cnt, uint32_t stride,
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
	srq->wqe_cnt = srq->cnt = wqe_cnt;
	srq->max_sge = stride / INLAY_DS - 1;
	srq->tail = srq->buf + (size_t)(wqe_cnt - 1) * stride;
	srq->room = wqe_cnt - 1;
	dbrec[0] = 0;
	srq->dbrec = (volatile inlay_record *)dbrec + 1;
	for (i = 0, wqe = srq->buf; i < wqe_cnt; i++, wqe += stride) {
		inlay_wqe_next(wqe, (uint16_t)(i + 1 < wqe_cnt ? i + 1 : 0));
		wqe[INLAY_SRQ_FREE_] = 1;
		inlay_put64(wqe + 8, 0);
	}
	return 0;
}

/* As inlay_srq_init, for a queue that the device walks cyclically; wqe_cnt is a power of two. */
INLAY_COLD int inlay_srq_init_cyclic(struct inlay_srq *srq, void *buf, uint32_t wqe_cnt, uint32_t stride,
				     volatile uint32_t *dbrec)
{
	int err = inlay_is_pow2(wqe_cnt) ? inlay_srq_init(srq, buf, wqe_cnt, stride, dbrec) : -EINVAL;

	if (!err)
		srq->cnt = 0;
	return err;
}

/* Reserves as many CQEs as there are entries; see inlay_sq_reserve. */
INLAY_COLD int inlay_srq_reserve(struct inlay_srq *srq, struct inlay_cq *cq, const char **why)
{
	int err = inlay_cq_reserve(cq, srq->wqe_cnt, why);

	if (!err) {
		srq->cq = cq;
		srq->reserved = srq->wqe_cnt;
	}
	return err;
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

/* Entries that can be posted at a time: one less than there are. */
INLAY_FN uint32_t inlay_srq_size(const struct inlay_srq *srq)
{
	return srq->wqe_cnt - 1;
}

/* Entries that may be posted now. */
INLAY_FN uint32_t inlay_srq_room(const struct inlay_srq *srq)
{
	return srq->room;
}

/* Entries posted and not given back, or (cyclic) waiting for their predecessors to come back. */
INLAY_FN uint32_t inlay_srq_pending(const struct inlay_srq *srq)
{
	return srq->wqe_cnt - 1 - srq->room;
}

/* Entries posted so far, modulo 2^32. */
INLAY_FN uint32_t inlay_srq_posted(const struct inlay_srq *srq)
{
	return srq->pi;
}

/* The next entry: inlay_srq_entry of its completion will be this. Undefined without room. */
INLAY_FN uint16_t inlay_srq_index(const struct inlay_srq *srq)
{
	return (uint16_t)srq->head;
}

/* The entry that a receive completion names; of a linked list that is inlay_cqe_wqe_counter. */
INLAY_ALWAYS uint32_t inlay_srq_entry(const struct inlay_srq *srq, const struct mlx5_cqe64 *cqe)
{
	uint32_t index = inlay_cqe_wqe_counter(cqe);

	return INLAY_LIKELY(srq->cnt) ? index : index & (srq->wqe_cnt - 1);
}

/* 8 bytes of entry `index` that belong to the caller; inlay and the device ignore them. */
INLAY_ALWAYS uint64_t inlay_srq_user(const struct inlay_srq *srq, uint32_t index)
{
	uint64_t user;

	INLAY_CHECK(index < srq->wqe_cnt, "there is such an entry");
	__builtin_memcpy(&user, inlay_srq_wqe(srq, index) + 8, sizeof(user));
	return user;
}

INLAY_ALWAYS void inlay_srq_set_user(struct inlay_srq *srq, uint32_t index, uint64_t user)
{
	INLAY_CHECK(index < srq->wqe_cnt, "there is such an entry");
	inlay_put64(inlay_srq_wqe(srq, index) + 8, user);
}

/* Appends the next run of free entries to a list whose head is its tail. Returns whether there is one. */
INLAY_APART int inlay_srq_extend_(struct inlay_srq *srq)
{
	uint32_t at = srq->head + 1, stride = srq->stride, end;
	uint64_t bits, run;
	uint8_t *wqe;

	/* Without links, room is 0 whenever head has reached tail. */
	if (!srq->room)
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
	inlay_wqe_next(srq->tail, (uint16_t)at);
	wqe = inlay_srq_wqe(srq, at);
#pragma GCC unroll 4
	for (; at != end; wqe += stride)
		inlay_wqe_next(wqe, (uint16_t)++at);
	srq->tail = wqe;
	return 1;
}

/* Takes the next entry from the free list, at the end of both posts. */
INLAY_ALWAYS void inlay_srq_take_(struct inlay_srq *srq, uint8_t *wqe)
{
	wqe[INLAY_SRQ_FREE_] = 0;
	srq->head = inlay_wqe_next_of(wqe);
	INLAY_CHECK(srq->head < srq->wqe_cnt, "nobody else writes the entries' links");
	srq->room--;
	srq->pi++;
}

INLAY_ALWAYS int inlay_srq_post_(struct inlay_srq *srq, uint8_t *wqe, const struct ibv_sge *sge, uint32_t num_sge)
{
	if (__builtin_constant_p(num_sge) && num_sge == 1 && INLAY_LIKELY(sge->length)) {
		inlay_wqe_data(wqe + INLAY_DS, sge->addr, sge->length, sge->lkey);
		if (srq->max_sge != 1)
			inlay_wqe_data_end(wqe + 2 * INLAY_DS);
	} else {
		inlay_wqe_recv(wqe + INLAY_DS, wqe + srq->stride, sge, num_sge);
	}
	inlay_srq_take_(srq, wqe);
	return 0;
}

/* With the list extended first. The arguments are passed on, so that the common path saves none. */
INLAY_APART int inlay_srq_post_last_(struct inlay_srq *srq, uint64_t addr, uint32_t len, uint32_t lkey)
{
	struct ibv_sge sge = {addr, len, lkey};

	return inlay_srq_extend_(srq) ? inlay_srq_post_(srq, inlay_srq_wqe(srq, srq->head), &sge, 1) : -EAGAIN;
}

/*
 * Fills the next entry. Same bytes as ibv_post_srq_recv, except for empty SGEs: libmlx5 writes
 * them, and the device reads them as 2^31 bytes.
 *
 * sge  host order, num_sge of them, of at most 2^31 - 1 bytes each; empty ones are left out
 *
 * Returns 0; -EAGAIN when no entry is free; -EINVAL for more SGEs than an entry holds. The device
 * sees nothing before inlay_srq_ring().
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_srq_recv(struct inlay_srq *srq, const struct ibv_sge *sge, uint32_t num_sge)
{
	uint8_t *wqe;

	INLAY_CHECK(srq && (sge || !num_sge), "queue and SGEs are not NULL");
	INLAY_CHECK(srq->buf, "the queue is not finished");
	/* Every entry has room for one. */
	if (!(__builtin_constant_p(num_sge) && num_sge <= 1) && INLAY_UNLIKELY(num_sge > srq->max_sge))
		return -EINVAL;
	wqe = inlay_srq_wqe(srq, srq->head);
	if (INLAY_UNLIKELY(wqe == srq->tail)) {
		if (__builtin_constant_p(num_sge) && num_sge == 1)
			return inlay_srq_post_last_(srq, sge->addr, sge->length, sge->lkey);
		if (!inlay_srq_extend_(srq))
			return -EAGAIN;
	}
	return inlay_srq_post_(srq, wqe, sge, num_sge);
}

/*
 * Writes the data segments of the free entry `index` for inlay_srq_repost. Returns 0, or -EINVAL
 * when there is no such entry, it is posted, or num_sge is more than it holds.
 */
INLAY_FN int inlay_srq_prepare(struct inlay_srq *srq, uint32_t index, const struct ibv_sge *sge, uint32_t num_sge)
{
	uint8_t *wqe = inlay_srq_wqe(srq, index);

	if (index >= srq->wqe_cnt || !wqe[INLAY_SRQ_FREE_] || num_sge > srq->max_sge)
		return -EINVAL;
	inlay_wqe_recv(wqe + INLAY_DS, wqe + srq->stride, sge, num_sge);
	return 0;
}

/*
 * Posts the next entry (inlay_srq_index) with the data segments of its last post, or of
 * inlay_srq_prepare. Returns 0, or -EAGAIN when no entry is free. The device sees nothing before
 * inlay_srq_ring().
 */
INLAY_ALWAYS int inlay_srq_repost(struct inlay_srq *srq)
{
	uint64_t first;
	uint8_t *wqe;

	INLAY_CHECK(srq, "the queue is not NULL");
	INLAY_CHECK(srq->buf, "the queue is not finished");
	wqe = inlay_srq_wqe(srq, srq->head);
	if (INLAY_UNLIKELY(wqe == srq->tail) && !inlay_srq_extend_(srq))
		return -EAGAIN;
	__builtin_memcpy(&first, wqe + INLAY_DS, sizeof(first)); /* a length or a key, unless never written */
	INLAY_CHECK(first, "an entry is posted again after it was posted or prepared once");
	inlay_srq_take_(srq, wqe);
	return 0;
}

/* Shows the device all entries posted so far: writes the doorbell record. */
INLAY_ALWAYS void inlay_srq_ring(struct inlay_srq *srq)
{
	INLAY_CHECK(srq, "the queue is not NULL");
	/* The device may take the entry, and write to its buffer, as soon as the record says so. */
	inlay_fence_recv_record();
	*srq->dbrec = inlay_to_be16((uint16_t)srq->pi);
}

/* Gives back entry `index`. As inlay_srq_release. */
INLAY_ALWAYS int inlay_srq_free_(struct inlay_srq *srq, uint32_t index)
{
	uint8_t *wqe = inlay_srq_wqe(srq, index);
	int freed;

	if (INLAY_LIKELY(index < srq->cnt)) {
		if (INLAY_UNLIKELY(wqe[INLAY_SRQ_FREE_]))
			return -EPROTO;
		wqe[INLAY_SRQ_FREE_] = 1;
		srq->back[index / 64] |= (uint64_t)1 << index % 64;
		srq->room++;
		return 1;
	}
	__asm__ volatile("" ::: "memory"); /* as in inlay_sq_release */
	if (srq->cnt)
		return -EPROTO;
	wqe = inlay_srq_wqe(srq, index & (srq->wqe_cnt - 1));
	if (wqe[INLAY_SRQ_FREE_])
		return -EPROTO;
	wqe[INLAY_SRQ_FREE_] = 1;
	/* Of a cyclic queue: the oldest entries that have all come back. */
	for (freed = 0; srq->room < srq->wqe_cnt - 1; freed++) {
		wqe = srq->tail + srq->stride;
		if (wqe == inlay_srq_wqe(srq, srq->wqe_cnt))
			wqe = srq->buf;
		if (!wqe[INLAY_SRQ_FREE_])
			break;
		srq->tail = wqe;
		srq->room++;
		__asm__ volatile("" ::: "memory");
	}
	return freed;
}

/*
 * Gives back the entry that a receive completion of a QP on this queue names, successful or not.
 * The entry keeps its data segments: see inlay_srq_repost.
 *
 * Returns the entries that came back: 1, or 0 or more for a cyclic queue. -EPROTO when the CQE does
 * not complete a receive, or the entry is not posted; then nothing has changed. A completion of
 * another SRQ is not noticed if it names an entry that is posted here.
 */
INLAY_ALWAYS int inlay_srq_release(struct inlay_srq *srq, const struct mlx5_cqe64 *cqe)
{
	INLAY_CHECK(srq && cqe, "queue and CQE are not NULL");
	if (INLAY_UNLIKELY(!inlay_cqe_is_recv_(cqe)))
		return -EPROTO;
	return inlay_srq_free_(srq, inlay_cqe_wqe_counter(cqe));
}

/*
 * inlay_srq_release and inlay_srq_repost in one: gives back an entry, and posts the next one for
 * each that came back. If one entry is free, it is posted; the returned entry becomes the free one,
 * which inlay_srq_prepare may change.
 *
 * Returns 0, or -EPROTO as inlay_srq_release. The device sees nothing before inlay_srq_ring().
 */
INLAY_ALWAYS int inlay_srq_recycle(struct inlay_srq *srq, const struct mlx5_cqe64 *cqe)
{
	uint8_t *wqe, *last;
	uint32_t index;
	int freed;

	INLAY_CHECK(srq && cqe, "queue and CQE are not NULL");
	INLAY_CHECK(srq->buf, "the queue is not finished");
	if (INLAY_UNLIKELY(!inlay_cqe_is_recv_(cqe)))
		return -EPROTO;
	last = srq->tail;
	index = inlay_cqe_wqe_counter(cqe);
	if (INLAY_LIKELY(index < srq->cnt) && INLAY_LIKELY(!srq->room)) {
		wqe = inlay_srq_wqe(srq, index);
		if (INLAY_UNLIKELY(wqe[INLAY_SRQ_FREE_]))
			return -EPROTO;
		wqe[INLAY_SRQ_FREE_] = 1;
		last[INLAY_SRQ_FREE_] = 0;
		inlay_wqe_next(last, (uint16_t)index);
		srq->tail = wqe;
		srq->head = index;
		srq->pi++;
		return 0;
	}
	for (freed = inlay_srq_release(srq, cqe); freed > 0; freed--)
		inlay_srq_repost(srq);
	return freed;
}

/* For inlay_cq_clean, with the SRQ as arg: gives back the entry of a removed receive. */
INLAY_COLD void inlay_srq_gone(const struct mlx5_cqe64 *cqe, void *arg)
{
	if (!inlay_cqe_is_send(cqe))
		inlay_srq_release((struct inlay_srq *)arg, cqe);
}

#endif
