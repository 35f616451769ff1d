/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/sq.h: send queue: ring, credit, doorbells. What is posted to it is in post.h.
 *
 * A ring of WQEBBs of 64 bytes; indices grow without bound and are masked at use:
 *
 *        pi - pending               pi
 *   -----|--------------------------|-----------------------
 *        posted, the device's         free
 *
 * Credit. A completion names the first WQEBB of its WQE. inlay_sq_release reads that WQE's length from the ring, where it still lies
 * untouched, and frees it and all before it: exact under selective signaling, with no array beside the ring. Signal often
 * enough: a ring full of unsignaled WQEs never gets credit back.
 *
 *   if (inlay_sq_begin(&sq, 1, &at) == 0) {                          a WQE by hand, of one WQEBB
 *           at = inlay_seg_raddr(at, raddr, rkey);
 *           at = inlay_seg_inline(at, data, 8);
 *           inlay_sq_commit(&sq, at, MLX5_OPCODE_RDMA_WRITE, INLAY_SIGNALED);
 *           inlay_sq_ring(&sq);
 *   }
 *
 * Threads: one owner at a time; the register may be shared as its mode says.
 * Sources: libmlx5's qp.c (what the device is told and when), the PRM's "Doorbells" chapter.
 */
#ifndef INLAY_QUEUE_SQ_H
#define INLAY_QUEUE_SQ_H

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
#include <inlay/cqe.h>
#include <inlay/wqe.h>
#include <inlay/queue/uar.h>

/*
 * A send queue. The first cache line is all that a post, a ring on a register of its own and a release touch of it; WQEs longer than one
 * WQEBB, atomics and shared registers look at the second.
 */
struct inlay_sq {
	uint8_t *buf;
	uint8_t *last;            /* the WQE posted last */
	volatile inlay_record *dbrec; /* the send word of the QP's doorbell record: its low half, big-endian */
	uint8_t *reg;             /* EXCLUSIVE: where the next copy or doorbell goes; NULL: ask uar */
	uint64_t qpn8;            /* QPN << 8 */
	/* In this order so that no compiler gathers the stores of a post into a vector, which takes longer. */
	uint32_t rung;            /* pi at the last doorbell */
	uint32_t mask;            /* WQEBBs in the ring, less 1 */
	uint32_t pi;              /* WQEBBs posted */
	uint32_t reg_size;        /* EXCLUSIVE: bytes of one half of the register, which reg toggles by; else 0 */
	uint32_t pending;         /* WQEBBs posted and not yet given back */
	uint32_t last_ds;         /* the last WQE's length in 16-byte units */
	struct inlay_uar *uar;
	uint32_t max_ds;          /* longest WQE that this QP may post, in 16-byte units */
	uint32_t atomics;         /* whether the device does atomics as verbs defines them */
	uint32_t type;            /* enum ibv_qp_type; 0: not known, nothing is checked against it */
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_sq, uar) == INLAY_CACHE_LINE, "a short post touches one line of its queue");

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up
 */

/*
 * Describes a fresh send ring and binds it to its register.
 *
 * buf        the ring, 64-byte aligned; wqebb_cnt its WQEBBs, a power of two, 1 .. 32768
 * dbrec      the QP's doorbell record: two words, receive then send
 * qpn        24 bits
 * max_ds     longest WQE in 16-byte units, 1 .. 63
 * uar        the register the QP was created with
 *
 * Returns 0; -EINVAL for an argument out of its range; -EBUSY when the register is exclusive and has a queue. On failure sq and uar
 * are as they were.
 */
INLAY_COLD int inlay_sq_init(struct inlay_sq *sq, void *buf, uint32_t wqebb_cnt, volatile uint32_t *dbrec, uint32_t qpn,
			     uint32_t max_ds, struct inlay_uar *uar)
{
	if (!buf || (uintptr_t)buf % INLAY_WQEBB || !inlay_is_pow2(wqebb_cnt) || wqebb_cnt > 32768 || !dbrec || qpn >> 24)
		return -EINVAL;
	if (!max_ds || max_ds > INLAY_MAX_DS || !uar || !uar->reg)
		return -EINVAL;
	if (uar->mode == INLAY_UAR_EXCLUSIVE && uar->queues)
		return -EBUSY;
	uar->queues++;
	sq->buf = (uint8_t *)buf;
	sq->last = sq->buf;
	dbrec[MLX5_SND_DBR] = 0;
	sq->dbrec = (volatile inlay_record *)(dbrec + MLX5_SND_DBR) + 1;
	sq->uar = uar;
	sq->mask = wqebb_cnt - 1;
	sq->pi = 0;
	sq->pending = 0;
	sq->rung = 0;
	sq->qpn8 = (uint64_t)qpn << 8;
	sq->last_ds = 0;
	sq->max_ds = max_ds;
	sq->atomics = 1;
	sq->type = 0;
	sq->reg = uar->mode == INLAY_UAR_EXCLUSIVE ? uar->next : NULL;
	sq->reg_size = uar->mode == INLAY_UAR_EXCLUSIVE ? uar->size : 0;
	return 0;
}

/* Unbinds a send queue from its register, which may then take another. The ring is not touched. */
INLAY_COLD void inlay_sq_fini(struct inlay_sq *sq)
{
	if (!sq->uar)
		return;
	sq->uar->queues--;
	if (sq->reg)
		sq->uar->next = sq->reg;
	sq->uar = NULL;
}

/*
 * The queue as it was when it was taken over, on the same register: after ibv_modify_qp to RESET, before anything is posted. The credit of
 * all that was outstanding is back.
 */
INLAY_COLD void inlay_sq_reset(struct inlay_sq *sq)
{
	sq->pi = 0;
	sq->rung = 0;
	sq->pending = 0;
	sq->last = sq->buf;
	sq->last_ds = 0;
	*sq->dbrec = 0;
}

/*
 * How many WQEs are outstanding: posted, and their credit not given back. A QP in the error state owes a flush CQE for each of them,
 * signaled or not, less those that were done unsignaled before it failed: no more completions than this are yet to come, perhaps fewer.
 * Which of them was the last to come is told by a WQE that cannot have been done: see queue.h, "A QP in error".
 */
INLAY_COLD uint32_t inlay_sq_owed(const struct inlay_sq *sq)
{
	uint32_t left = sq->pending, owed = 0;

	while (left) {
		const uint8_t *wqe = sq->buf + (size_t)((sq->pi - left) & sq->mask) * INLAY_WQEBB;
		uint32_t bbs = ((wqe[7] & 0x3fu) + 3) / 4;

		left -= bbs && bbs < left ? bbs : bbs ? left : 1;
		owed++;
	}
	return owed;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path
 */

/* Where WQEBB `index` lies. */
INLAY_ALWAYS uint8_t *inlay_sq_wqe(const struct inlay_sq *sq, uint32_t index)
{
	return sq->buf + (size_t)(index & sq->mask) * INLAY_WQEBB;
}

/* The ring's end. */
INLAY_ALWAYS uint8_t *inlay_sq_end(const struct inlay_sq *sq)
{
	return sq->buf + ((size_t)sq->mask + 1) * INLAY_WQEBB;
}

/* Rings on a register that is not the queue's own: the whole WQE of bbs WQEBBs under the lock where that may be, or 8 bytes. */
INLAY_ALWAYS void inlay_sq_ring_shared(struct inlay_sq *sq, uint32_t bbs)
{
	struct inlay_uar *uar = sq->uar;

	if (uar->mode == INLAY_UAR_LOCKED) {
		while (__atomic_exchange_n(&uar->lock, 1, __ATOMIC_ACQUIRE))
			while (__atomic_load_n(&uar->lock, __ATOMIC_RELAXED))
				inlay_relax();
		/* No fence here: the caller has put one behind the record, and a write under the lock before this one was pushed out. */
		if (bbs && bbs * INLAY_WQEBB <= uar->size)
			inlay_uar_copy(inlay_uar_toggle(&uar->next, uar->size), sq->last, bbs, sq->buf, inlay_sq_end(sq));
		else
			inlay_uar_doorbell(inlay_uar_toggle(&uar->next, uar->size), sq->last);
		/* Inside the lock: the next owner's write must reach the device after this one. */
		inlay_fence_reg();
		__atomic_store_n(&uar->lock, 0, __ATOMIC_RELEASE);
		return;
	}
	inlay_uar_doorbell(uar->reg, sq->last);
	inlay_fence_reg();
}

/* The index of the WQE to be posted next: what inlay_cqe_wqe_counter of its completion will say. */
INLAY_FN uint16_t inlay_sq_index(const struct inlay_sq *sq)
{
	return (uint16_t)sq->pi;
}

/* WQEBBs that may be posted now. */
INLAY_FN uint32_t inlay_sq_room(const struct inlay_sq *sq)
{
	return sq->mask + 1 - sq->pending;
}

/* WQEBBs that were posted and whose credit has not come back. */
INLAY_FN uint32_t inlay_sq_pending(const struct inlay_sq *sq)
{
	return sq->pending;
}

/*
 * Begins a WQE of at most bbs WQEBBs, 1 .. 16, and sets *at behind its control segment. n 16-byte units take (n + 3) / 4 WQEBBs.
 *
 * Returns 0; -EAGAIN when the ring has no room for it now, -E2BIG when it never will. Nothing is written or reserved: a WQE begun and
 * not committed is forgotten.
 */
INLAY_ALWAYS int inlay_sq_begin(struct inlay_sq *sq, uint32_t bbs, struct inlay_cursor *at)
{
	uint32_t mask = sq->mask;

	INLAY_CHECK(bbs - 1 < 65536, "a WQE has at least one WQEBB, and no more than the largest ring");
	if (INLAY_UNLIKELY((int32_t)sq->pending > (int32_t)(mask - (bbs - 1))))
		return bbs - 1 > mask ? -E2BIG : -EAGAIN;
	at->index = sq->pi;
	at->wqe = sq->buf + (size_t)(at->index & mask) * INLAY_WQEBB;
	/* One pointer from here on, rather than ring and offset: saves clang a register and with it a push and a pop. */
	__asm__("" : "+r"(at->wqe));
	at->begin = sq->buf;
	at->end = inlay_sq_end(sq);
	at->at = at->wqe + INLAY_DS;
	at->ds = 1;
	return 0;
}

/*
 * Ends a WQE: writes its control segment and takes its credit. The device does not see it before a ring.
 *
 * at      the cursor behind the last segment; no more WQEBBs than begun with
 * opcode  MLX5_OPCODE_*
 * flags   enum inlay_post_flags
 * imm_be  see inlay_wqe_ctrl
 */
INLAY_ALWAYS void inlay_sq_commit_imm(struct inlay_sq *sq, struct inlay_cursor at, uint8_t opcode, uint32_t flags, uint32_t imm_be)
{
	uint32_t bbs = (uint32_t)(at.ds + 3) / 4;

	INLAY_CHECK(bbs <= inlay_sq_room(sq), "a WQE is no longer than what inlay_sq_begin was asked for");
	/* A change of a key has the length it has: libmlx5 makes room for it in every RC and UC QP. */
	INLAY_CHECK(at.ds <= sq->max_ds || at.ds <= 4 || opcode == MLX5_OPCODE_UMR, "a WQE is no longer than the QP's longest");
	inlay_wqe_ctrl(at.wqe, at.index, opcode, sq->qpn8, at.ds, flags, imm_be);
	sq->pi = at.index + bbs;
	sq->pending += bbs;
	sq->last = at.wqe;
	sq->last_ds = (uint32_t)at.ds;
}

/* inlay_sq_commit_imm without an immediate. */
INLAY_ALWAYS void inlay_sq_commit(struct inlay_sq *sq, struct inlay_cursor at, uint8_t opcode, uint32_t flags)
{
	inlay_sq_commit_imm(sq, at, opcode, flags, 0);
}

/* The doorbell record: tells the device how far the ring is filled. Ordered behind the WQEs and before the register. */
INLAY_ALWAYS void inlay_sq_record(struct inlay_sq *sq)
{
	uint32_t pi = sq->pi;

	sq->rung = pi;
	/* The device may fetch the WQE as soon as the record says so. */
	inlay_fence_wqe_record();
	*sq->dbrec = inlay_to_be16((uint16_t)pi);
	/* The device reads the record when the register is written, and must not find the old one. */
	inlay_fence_record_reg();
}

/*
 * Rings with an 8-byte doorbell for all WQEs posted since the last ring, of which there must be one. The way for rate.
 *
 * Same bytes as libmlx5 for a list of WQEs.
 */
INLAY_ALWAYS void inlay_sq_ring_doorbell(struct inlay_sq *sq)
{
	uint8_t *wqe = sq->last;

	INLAY_CHECK(sq->pi != sq->rung, "a doorbell is rung for something posted");
	inlay_sq_record(sq);
	if (INLAY_UNLIKELY(!sq->reg)) {
		inlay_sq_ring_shared(sq, 0);
		return;
	}
	inlay_uar_doorbell(inlay_uar_toggle(&sq->reg, sq->reg_size), wqe);
	/* Pushes the write out of the write-combining buffer, and keeps the next one from merging with it. */
	inlay_fence_reg();
}

/*
 * Rings by copying the one WQE posted since the last ring into the register (BlueFlame), so that the device need not fetch it. The way for
 * latency. Falls back to the 8-byte doorbell, as libmlx5 does, when several WQEs were posted, when the WQE is longer than
 * the register or has nothing but a control segment, and when the register's mode does not allow a copy. Does nothing when
 * nothing was posted.
 */
INLAY_ALWAYS void inlay_sq_ring(struct inlay_sq *sq)
{
	/* Read before the fences, so that what a post in the same function has just stored folds. */
	uint32_t ds = sq->last_ds, bbs = (ds + 3) / 4;
	int single = sq->pi - bbs == sq->rung && ds > 1;
	uint8_t *wqe = sq->last;

	if (INLAY_LIKELY(single && ds * INLAY_DS <= sq->reg_size)) {
		inlay_sq_record(sq);
		if (INLAY_LIKELY(bbs == 1))
			inlay_uar_copy64(inlay_uar_toggle(&sq->reg, sq->reg_size), wqe);
		else
			inlay_uar_copy(inlay_uar_toggle(&sq->reg, sq->reg_size), wqe, bbs, sq->buf, inlay_sq_end(sq));
		inlay_fence_reg();
	} else if (sq->pi != sq->rung) {
		inlay_sq_record(sq);
		if (sq->reg) {
			inlay_uar_doorbell(inlay_uar_toggle(&sq->reg, sq->reg_size), wqe);
			inlay_fence_reg();
		} else {
			inlay_sq_ring_shared(sq, single ? bbs : 0);
		}
	}
}

/*
 * Gives back the credit of the WQE that a send completion names and of all before it. Good and error completions alike.
 *
 * cqe  a CQE of this queue's QP and of its send side (inlay_cqe_is_send)
 *
 * Returns 0, or -EPROTO when the CQE names a WQE that is not outstanding (a completion of another queue, a device gone mad); then
 * nothing has changed.
 */
INLAY_ALWAYS int inlay_sq_release(struct inlay_sq *sq, const struct mlx5_cqe64 *cqe)
{
	uint32_t counter = inlay_cqe_wqe_counter(cqe), behind, more;
	const uint8_t *wqe;

#if defined(__clang__)
	/* Made on this side of the branch, where one instruction copies the counter and widens it; on the other clang takes two. */
	wqe = inlay_sq_wqe(sq, counter);
	__asm__("" : "+r"(wqe));
#endif
	/* How many WQEBBs were posted behind the named one; 16 bits tell, since a ring has at most 32768. */
	behind = (uint16_t)~(counter - sq->pi);
	/* Neither gone by nor yet to come: only then is what the ring holds there that WQE's length. */
	if (INLAY_UNLIKELY(behind >= sq->pending))
		return -EPROTO;
#if !defined(__clang__)
	wqe = inlay_sq_wqe(sq, counter); /* and here gcc */
#endif
	/* Its WQEBBs, less the first; a length of 0, which no WQE has, comes out beyond everything. */
	more = (wqe[7] - 1u) / 4;
	if (INLAY_UNLIKELY((int32_t)(behind - more) < 0))
		return -EPROTO;
	sq->pending = behind - more;
	return 0;
}

#endif
