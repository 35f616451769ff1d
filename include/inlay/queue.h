/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue.h: send queue, receive queue, completion queue and the doorbell register they ring: rings, indices, credit, doorbells.
 *
 * The idea.  Sending:    post -> post -> ring          Completing:   peek -> use -> advance
 *
 *   inlay_post_write(&sq, raddr, rkey, &sge, 1, INLAY_SIGNALED);      fills the ring; the device does not look yet
 *   inlay_sq_ring(&sq);                                               one doorbell for all that was posted
 *
 *   const struct mlx5_cqe64 *cqe = inlay_cq_peek(&cq);                NULL: nothing there
 *   if (cqe) {
 *           if (inlay_cqe_is_error(cqe)) ...
 *           inlay_sq_release(&sq, cqe);                               credit back, in WQEBBs
 *           inlay_cq_advance(&cq, 1);                                 the slot back
 *   }
 *
 * A send ring, in WQEBBs of 64 bytes; indices grow without bound and are masked at use:
 *
 *        pi - pending               pi
 *   -----|--------------------------|-----------------------
 *        posted, the device's         free
 *
 * Credit. A completion names the first WQEBB of its WQE. inlay_sq_release reads that WQE's length from the ring, where it still lies
 * untouched, and frees it and all before it: exact under selective signaling, with no array beside the ring. Signal often
 * enough: a ring full of unsignaled WQEs never gets credit back.
 *
 * The register. struct inlay_uar stands for one doorbell register. libmlx5 hands the same register to several QPs and says so
 * nowhere, and two queues that copy WQEs into one register at the same time corrupt each other. So every queue points at the one
 * inlay_uar of its register, and the mode says what is allowed:
 *
 *   INLAY_UAR_DOORBELL   8-byte doorbells only. Stores of 8 bytes do not mix, so any number of inlay's queues and threads may share the
 *                        register. What taking over a QP gives. Beside a QP that libmlx5 drives and that copies into the same register:
 *                        never seen to fail, and not proven either; a register of one's own is the safe way.
 *   INLAY_UAR_EXCLUSIVE  one queue; BlueFlame copies for single WQEs up to the register's size. The register must have
 *                        been made for it (verbs.h: inlay_uar_create). A second queue is refused with -EBUSY.
 *   INLAY_UAR_LOCKED     several inlay queues, any threads; BlueFlame copies under the object's lock.
 *
 * Threads: every queue has one owner at a time. Only the register may be shared, as its mode says; attaching queues to it and detaching
 * them (inlay_sq_init, inlay_sq_from_qp, inlay_sq_fini) is for one thread at a time. After fork() only the parent uses the queues.
 *
 * Set-up is in verbs.h, which fills these structs from ibv objects. Who has rings from elsewhere calls inlay_sq_init and its sisters.
 * Sources: libmlx5's qp.c and cq.c (what the device is told and when), the PRM's "Doorbells" and "UAR" chapters.
 */
#ifndef INLAY_QUEUE_H
#define INLAY_QUEUE_H

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
#include <inlay/cqe.h>
#include <inlay/wqe.h>

/* The doorbell record is written by halves; memory of any declared type may hold it. */
typedef uint16_t inlay_record __attribute__((may_alias));
typedef uint64_t inlay_doorbell __attribute__((may_alias));

enum inlay_uar_mode {
	INLAY_UAR_DOORBELL,
	INLAY_UAR_EXCLUSIVE,
	INLAY_UAR_LOCKED,
};

/* One doorbell register. In caller memory; lives as long as a queue points at it. */
struct inlay_uar {
	uint8_t *reg;      /* the register, as mlx5dv gives it; NULL: not known yet */
	uint8_t *next;     /* where the next copy or doorbell goes: toggles between the register's two halves */
	uint32_t size;     /* bytes of one half, a power of two; 0: the page takes no BlueFlame copies */
	uint32_t mode;     /* enum inlay_uar_mode */
	uint32_t lock;     /* LOCKED only */
	uint32_t queues;   /* send queues that point here */
	struct ibv_td *td; /* of a register made by inlay_uar_create, else NULL; likewise pd, in which its QPs are created */
	struct ibv_pd *pd;
};

/* A send queue. The first cache line is all that a post, a ring and a release touch of it. */
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
};

/* A receive queue of a QP. */
struct inlay_rq {
	uint8_t *buf;
	volatile inlay_record *dbrec; /* the receive word, likewise */
	uint32_t mask;            /* WQEs in the ring, less 1 */
	uint32_t stride;          /* bytes of a WQE, a power of two */
	uint32_t pi;              /* WQEs posted */
	uint32_t limit;
	uint32_t max_sge;         /* stride / 16 */
};

/* A completion queue. */
struct inlay_cq {
	uint8_t *next;            /* the slot of CQE number ci */
	uint8_t *begin;           /* the first slot's CQE: 64 bytes into the buffer when slots are 128 bytes long */
	uint8_t *end;             /* begin and all slots */
	volatile uint32_t *dbrec; /* consumer index, arm word */
	uint32_t ci;              /* CQEs freed */
	uint32_t mask;            /* CQEs in the ring, less 1 */
	uint32_t stride;          /* 64 or 128 */
	uint32_t lap;             /* the owner bit that makes the slot at next the caller's */
	uint8_t *uar;             /* doorbell page */
	uint32_t cqn;
	uint32_t arm_sn;          /* events seen */
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_sq, uar) == INLAY_CACHE_LINE, "a post touches one line of its queue");
INLAY_STATIC_ASSERT(sizeof(struct inlay_rq) <= INLAY_CACHE_LINE, "a post touches one line of its queue");
INLAY_STATIC_ASSERT(sizeof(struct inlay_cq) <= INLAY_CACHE_LINE, "a poll touches one line of its queue");
INLAY_STATIC_ASSERT(sizeof(struct inlay_uar) <= INLAY_CACHE_LINE, "a doorbell touches one line of its register's object");

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up
 */

INLAY_FN int inlay_is_pow2(uint32_t n)
{
	return n && !(n & (n - 1));
}

/*
 * Describes a doorbell register.
 *
 * reg    the register in the doorbell page (mlx5dv_qp.bf.reg), aligned to twice its size
 * size   bytes of one half (mlx5dv_qp.bf.size), 0 for a page without BlueFlame
 * mode   enum inlay_uar_mode; EXCLUSIVE and LOCKED on a register of size 0 are accepted and ring doorbells
 *
 * Returns 0, or -EINVAL for a mode, size or alignment that cannot be.
 */
INLAY_COLD int inlay_uar_init(struct inlay_uar *uar, void *reg, uint32_t size, uint32_t mode)
{
	if (!reg || mode > INLAY_UAR_LOCKED || (size && (!inlay_is_pow2(size) || size < INLAY_WQEBB)))
		return -EINVAL;
	if ((uintptr_t)reg % (size ? 2 * size : 8))
		return -EINVAL;
	__builtin_memset(uar, 0, sizeof(*uar));
	uar->reg = (uint8_t *)reg;
	uar->next = uar->reg;
	uar->size = size;
	uar->mode = mode;
	return 0;
}

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
 * Describes a fresh receive ring of wqe_cnt WQEs (a power of two, 1 .. 32768) of stride bytes (a power of two, 16 .. 1024).
 * Returns 0, or -EINVAL.
 */
INLAY_COLD int inlay_rq_init(struct inlay_rq *rq, void *buf, uint32_t wqe_cnt, uint32_t stride, volatile uint32_t *dbrec)
{
	if (!buf || (uintptr_t)buf % INLAY_DS || !inlay_is_pow2(wqe_cnt) || wqe_cnt > 32768 || !dbrec)
		return -EINVAL;
	if (!inlay_is_pow2(stride) || stride < INLAY_DS || stride > 1024)
		return -EINVAL;
	rq->buf = (uint8_t *)buf;
	dbrec[MLX5_RCV_DBR] = 0;
	rq->dbrec = (volatile inlay_record *)(dbrec + MLX5_RCV_DBR) + 1;
	rq->mask = wqe_cnt - 1;
	rq->stride = stride;
	rq->pi = 0;
	rq->limit = wqe_cnt;
	rq->max_sge = stride / INLAY_DS;
	return 0;
}

/*
 * Describes a fresh completion ring, in which no CQE has been consumed yet.
 *
 * buf       the ring; cqe_cnt its CQEs, a power of two, 1 .. 2^22; cqe_size 64 or 128 bytes
 * dbrec     consumer index and arm word
 * uar       the doorbell page (mlx5dv_cq.cq_uar); may be NULL for a CQ that is never armed
 *
 * Marks every slot that still has no CQE as the device's: an invalid opcode with the owner bit of "not yet". inlay_cq_peek then needs to look
 * at the owner bit alone, in the first lap too. The mark is a compare-and-swap, so a CQE that arrives meanwhile is kept.
 *
 * Returns 0; -EINVAL for an argument out of its range.
 */
INLAY_COLD int inlay_cq_init(struct inlay_cq *cq, void *buf, uint32_t cqe_cnt, uint32_t cqe_size, volatile uint32_t *dbrec, void *uar,
			     uint32_t cqn)
{
	uint32_t i;

	if (!buf || (uintptr_t)buf % INLAY_CACHE_LINE || !inlay_is_pow2(cqe_cnt) || cqe_cnt > 1u << 22 || !dbrec)
		return -EINVAL;
	if ((cqe_size != 64 && cqe_size != 128) || cqn >> 24)
		return -EINVAL;
	cq->begin = (uint8_t *)buf + (cqe_size - 64);
	cq->end = cq->begin + (size_t)cqe_cnt * cqe_size;
	cq->next = cq->begin;
	cq->lap = 0;
	cq->mask = cqe_cnt - 1;
	cq->stride = cqe_size;
	cq->ci = 0;
	cq->arm_sn = 0;
	cq->dbrec = dbrec;
	cq->uar = (uint8_t *)uar;
	cq->cqn = cqn;
	for (i = 0; i < cqe_cnt; i++) {
		struct mlx5_cqe64 *cqe = (struct mlx5_cqe64 *)(cq->begin + (size_t)i * cqe_size);
		uint8_t none = MLX5_CQE_INVALID << 4;

		__atomic_compare_exchange_n(&cqe->op_own, &none, (uint8_t)(none | INLAY_CQE_OWNER), 0, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED);
	}
	return 0;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: the register
 */

/* 64 bytes into the register, in ascending order, in stores that the compiler neither merges nor turns into a string move. */
INLAY_ALWAYS void inlay_uar_copy64(uint8_t *to, const uint8_t *from)
{
#if defined(__x86_64__)
	typedef long long v2 __attribute__((vector_size(16), may_alias));
	v2 a = ((const v2 *)from)[0], b = ((const v2 *)from)[1], c = ((const v2 *)from)[2], d = ((const v2 *)from)[3];

	((volatile v2 *)to)[0] = a;
	((volatile v2 *)to)[1] = b;
	((volatile v2 *)to)[2] = c;
	((volatile v2 *)to)[3] = d;
#else
	/* stp of 16 bytes: the widest plain store of aarch64 */
	__asm__ volatile("ldp q0, q1, [%1]\n\tldp q2, q3, [%1, #32]\n\t"
			 "stp q0, q1, [%0]\n\tstp q2, q3, [%0, #32]"
			 : : "r"(to), "r"(from) : "v0", "v1", "v2", "v3", "memory");
#endif
}

/* Copies a WQE of bbs WQEBBs that may wrap. */
INLAY_ALWAYS void inlay_uar_copy(uint8_t *to, const uint8_t *from, uint32_t bbs, const uint8_t *begin, const uint8_t *end)
{
	do {
		inlay_uar_copy64(to, from);
		to += INLAY_WQEBB;
		from += INLAY_WQEBB;
		if (INLAY_UNLIKELY(from == end))
			from = begin;
	} while (--bbs);
}

/* The 8-byte doorbell: the first 8 bytes of a control segment, in one store. */
INLAY_ALWAYS void inlay_uar_doorbell(uint8_t *reg, const uint8_t *ctrl)
{
	uint64_t db;

	__builtin_memcpy(&db, ctrl, sizeof(db));
	__atomic_store_n((inlay_doorbell *)reg, db, __ATOMIC_RELAXED);
}

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

/* Where to write now; the next write goes to the register's other half, so that two in a row never merge. */
INLAY_ALWAYS uint8_t *inlay_uar_toggle(uint8_t **next, uint32_t size)
{
	uint8_t *at = *next;

	*next = (uint8_t *)((uintptr_t)at ^ size);
	return at;
}

/* Tells the CPU that this is a wait. */
INLAY_ALWAYS void inlay_relax(void)
{
#if defined(__aarch64__)
	__asm__ volatile("yield");
#else
	__asm__ volatile("pause");
#endif
}

/* Rings on a register that is not the queue's own: the whole WQE of bbs WQEBBs under the lock where that may be, or 8 bytes. */
INLAY_ALWAYS void inlay_uar_ring_shared(struct inlay_sq *sq, uint32_t bbs)
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

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: sending
 */

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
	INLAY_CHECK(at.ds <= sq->max_ds || at.ds <= 4, "a WQE is no longer than the QP's longest");
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
		inlay_uar_ring_shared(sq, 0);
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
			inlay_uar_ring_shared(sq, single ? bbs : 0);
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

/* Where an RDMA operation goes: what the remote address segment holds. */
struct inlay_remote {
	uint64_t addr;
	uint32_t rkey;
};

/* All SGE-carrying posts. remote NULL: no remote address segment. Everything that the caller knows at compile time folds. */
INLAY_ALWAYS int inlay_post_gather(struct inlay_sq *sq, uint8_t opcode, uint32_t imm_be, const struct inlay_remote *remote,
				   const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	uint32_t fixed = remote ? 2 : 1, ds = fixed, i;
	struct inlay_cursor at;
	uint64_t total = 0;
	int err;

	if (flags & INLAY_INLINE) {
		for (i = 0; i < num_sge; i++)
			total += sge[i].length;
		if (total > INLAY_MAX_DS * INLAY_DS)
			return -EINVAL;
		ds += total ? (uint32_t)(total + 4 + INLAY_DS - 1) / INLAY_DS : 0;
	} else if (__builtin_constant_p(num_sge) && fixed + num_sge <= 4) {
		ds += num_sge; /* one WQEBB whichever of them are empty */
	} else {
		if (num_sge > INLAY_MAX_DS)
			return -EINVAL;
		for (i = 0; i < num_sge; i++)
			ds += sge[i].length != 0;
	}
	/* A WQE of one WQEBB is legal on every QP: for short constant payloads the test folds away. */
	if (ds > 4 && ds > sq->max_ds)
		return -EINVAL;
	err = inlay_sq_begin(sq, (ds + 3) / 4, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	if (remote)
		at = inlay_seg_raddr(at, remote->addr, remote->rkey);
	if (flags & INLAY_INLINE) {
		if (__builtin_constant_p(num_sge) && num_sge == 1)
			at = inlay_seg_inline(at, (const void *)(uintptr_t)sge->addr, sge->length);
		else
			at = inlay_seg_inlinev(at, sge, num_sge, (uint32_t)total);
	} else if (__builtin_constant_p(num_sge) && num_sge == 1) {
		if (INLAY_UNLIKELY(!sge->length)) {
			/*
			 * The two asm are empty. They hide what this end shares with the one below, which a compiler would else merge: DS
			 * would be a variable there, and the commit of every post longer for the sake of an empty one.
			 */
			__asm__ volatile("" : "+r"(sq), "+r"(opcode), "+r"(at.ds) : : "memory");
			inlay_sq_commit_imm(sq, at, opcode, flags, imm_be);
			__asm__ volatile("" ::: "memory");
			return 0;
		}
		at = inlay_seg_data(at, sge->addr, sge->length, sge->lkey);
	} else {
		at = inlay_seg_sges(at, sge, num_sge);
	}
	inlay_sq_commit_imm(sq, at, opcode, flags, imm_be);
	return 0;
}

/*
 * What all inlay_post_* functions share.
 *
 *   +0   ctrl     opcode, index, QPN, DS, flags, immediate
 *   +16  raddr    remote address, rkey                         RDMA and atomics
 *   +32  atomic   operands                                     atomics
 *   +..  data     pointers to local memory, or the payload     wraps at the ring's end
 *
 * raddr    remote virtual address; rkey as the peer gave it, host order
 * sge      local memory, host order; num_sge of them, empty ones are left out. A constant num_sge folds. A sum of 0 bytes is legal
 * imm_be   immediate, as it shall arrive in the peer's CQE (ibv_send_wr.imm_data)
 * flags    INLAY_SIGNALED | INLAY_SOLICITED | one INLAY_FENCE_* | INLAY_INLINE; constants fold. With INLAY_INLINE the payload is copied
 *          now and lkey is not looked at; it may not be given to reads and atomics, which have none
 *
 * Return 0; -EAGAIN when the ring has no room (nothing was written; poll, release, post again); -E2BIG when the WQE is larger
 * than the ring; -EINVAL when it is longer than the QP's longest (too many SGEs or too long inline). Not visible to the device before
 * inlay_sq_ring().
 *
 * Same bytes as ibv_post_send with the IBV_WR_* opcode of the same name and the IBV_SEND_* flags given in wqe.h (verbs has no NOP).
 */

/* NOP: nothing but a completion, if signaled. */
INLAY_ALWAYS int inlay_post_nop(struct inlay_sq *sq, uint32_t flags)
{
	return inlay_post_gather(sq, MLX5_OPCODE_NOP, 0, NULL, NULL, 0, flags & ~(uint32_t)INLAY_INLINE);
}

/* Send. */
INLAY_ALWAYS int inlay_post_send(struct inlay_sq *sq, const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	return inlay_post_gather(sq, MLX5_OPCODE_SEND, 0, NULL, sge, num_sge, flags);
}

/* Send with immediate. */
INLAY_ALWAYS int inlay_post_send_imm(struct inlay_sq *sq, uint32_t imm_be, const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	return inlay_post_gather(sq, MLX5_OPCODE_SEND_IMM, imm_be, NULL, sge, num_sge, flags);
}

/* Send, and invalidate rkey (host order) at the peer. */
INLAY_ALWAYS int inlay_post_send_inv(struct inlay_sq *sq, uint32_t rkey, const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	return inlay_post_gather(sq, MLX5_OPCODE_SEND_INVAL, inlay_to_be32(rkey), NULL, sge, num_sge, flags);
}

/* RDMA write. */
INLAY_ALWAYS int inlay_post_write(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, const struct ibv_sge *sge, uint32_t num_sge,
				  uint32_t flags)
{
	struct inlay_remote remote = {raddr, rkey};

	return inlay_post_gather(sq, MLX5_OPCODE_RDMA_WRITE, 0, &remote, sge, num_sge, flags);
}

/* RDMA write with immediate. */
INLAY_ALWAYS int inlay_post_write_imm(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, uint32_t imm_be, const struct ibv_sge *sge,
				      uint32_t num_sge, uint32_t flags)
{
	struct inlay_remote remote = {raddr, rkey};

	return inlay_post_gather(sq, MLX5_OPCODE_RDMA_WRITE_IMM, imm_be, &remote, sge, num_sge, flags);
}

/* RDMA read into the SGEs. */
INLAY_ALWAYS int inlay_post_read(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, const struct ibv_sge *sge, uint32_t num_sge,
				 uint32_t flags)
{
	struct inlay_remote remote = {raddr, rkey};

	INLAY_CHECK(!(flags & INLAY_INLINE), "a read has no payload to inline");
	return inlay_post_gather(sq, MLX5_OPCODE_RDMA_READ, 0, &remote, sge, num_sge, flags & ~(uint32_t)INLAY_INLINE);
}

/* Send of a single buffer, copied into the WQE: inlay_post_send with INLAY_INLINE. len in bytes. */
INLAY_ALWAYS int inlay_post_send_inline(struct inlay_sq *sq, const void *data, uint32_t len, uint32_t flags)
{
	struct ibv_sge sge = {(uintptr_t)data, len, 0};

	return inlay_post_send(sq, &sge, 1, flags | INLAY_INLINE);
}

/* RDMA write of a single buffer, copied into the WQE: inlay_post_write with INLAY_INLINE. len in bytes. */
INLAY_ALWAYS int inlay_post_write_inline(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, const void *data, uint32_t len,
					 uint32_t flags)
{
	struct ibv_sge sge = {(uintptr_t)data, len, 0};

	return inlay_post_write(sq, raddr, rkey, &sge, 1, flags | INLAY_INLINE);
}

/* Both atomics: control, remote address, operands and one data pointer fill one WQEBB to the last byte. */
INLAY_ALWAYS int inlay_post_atomic(struct inlay_sq *sq, uint8_t opcode, const struct inlay_remote *remote, uint64_t swap_add,
				   uint64_t compare, const struct ibv_sge *sge, uint32_t flags)
{
	struct inlay_cursor at;
	int err;

	INLAY_CHECK(!(flags & INLAY_INLINE), "an atomic has no payload to inline");
	if (INLAY_UNLIKELY(!sq->atomics))
		return -ENOTSUP;
	err = inlay_sq_begin(sq, 1, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	at = inlay_seg_raddr(at, remote->addr, remote->rkey);
	at = inlay_seg_atomic(at, swap_add, compare);
	at = inlay_seg_data(at, sge->addr, 8, sge->lkey);
	inlay_sq_commit(sq, at, opcode, flags);
	return 0;
}

/*
 * Atomic fetch-and-add on 8 bytes at raddr, 8-byte aligned. add in host order. The old value comes to sge, in host order; sge->length is
 * taken as 8. -ENOTSUP when the device does no atomics.
 */
INLAY_ALWAYS int inlay_post_fetch_add(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, uint64_t add, const struct ibv_sge *sge,
				      uint32_t flags)
{
	struct inlay_remote remote = {raddr, rkey};

	return inlay_post_atomic(sq, MLX5_OPCODE_ATOMIC_FA, &remote, add, 0, sge, flags);
}

/* Atomic compare-and-swap: where 8 bytes at raddr equal compare they become swap. Otherwise as inlay_post_fetch_add. */
INLAY_ALWAYS int inlay_post_cmp_swap(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, uint64_t compare, uint64_t swap,
				     const struct ibv_sge *sge, uint32_t flags)
{
	struct inlay_remote remote = {raddr, rkey};

	return inlay_post_atomic(sq, MLX5_OPCODE_ATOMIC_CS, &remote, swap, compare, sge, flags);
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: receiving
 */

/*
 * Fills the next receive WQE.
 *
 *   +0   data     pointer | pointer | ...
 *   +..  end      lkey 0x100, when the stride has room for more
 *
 * sge  host order, num_sge of them, empty ones are left out
 *
 * Returns 0; -EAGAIN when the ring is full (nothing was written); -EINVAL for more SGEs than a WQE holds. Not visible to the device before
 * inlay_rq_ring(). Same bytes as ibv_post_recv.
 */
INLAY_ALWAYS int inlay_post_recv(struct inlay_rq *rq, const struct ibv_sge *sge, uint32_t num_sge)
{
	uint8_t *seg, *end;
	uint32_t i;

	if (INLAY_UNLIKELY(rq->limit == rq->pi))
		return -EAGAIN;
	if (INLAY_UNLIKELY(num_sge > rq->max_sge))
		return -EINVAL;
	seg = rq->buf + (size_t)(rq->pi & rq->mask) * rq->stride;
	end = seg + rq->stride;
	for (i = 0; i < num_sge; i++) {
		if (INLAY_UNLIKELY(!sge[i].length))
			continue;
		inlay_wqe_data(seg, sge[i].addr, sge[i].length, sge[i].lkey);
		seg += INLAY_DS;
	}
	if (seg != end)
		inlay_wqe_data_end(seg);
	rq->pi++;
	return 0;
}

/* Shows the device all receives posted so far: the doorbell record; an RC queue has no register for it. */
INLAY_ALWAYS void inlay_rq_ring(struct inlay_rq *rq)
{
	/* The device may take the WQE as soon as the record says so. */
	inlay_fence_wqe_record();
	*rq->dbrec = inlay_to_be16((uint16_t)rq->pi);
}

/* Receive WQEs that may be posted now. */
INLAY_FN uint32_t inlay_rq_room(const struct inlay_rq *rq)
{
	return rq->limit - rq->pi;
}

/*
 * Gives back the n oldest receive WQEs: one for each completion of this queue's QP and of its receive side, good or error. They complete in
 * the order in which they were posted.
 *
 * Returns 0, or -EPROTO when fewer are outstanding (completions of another queue, a device gone mad); then nothing has changed.
 */
INLAY_ALWAYS int inlay_rq_release(struct inlay_rq *rq, uint32_t n)
{
	if (INLAY_UNLIKELY(n > rq->mask + 1 - inlay_rq_room(rq)))
		return -EPROTO;
	rq->limit += n;
	return 0;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: completing
 */

/* The slot of completion `index`, whether or not it holds one. */
INLAY_ALWAYS const struct mlx5_cqe64 *inlay_cq_slot(const struct inlay_cq *cq, uint32_t index)
{
	return (const struct mlx5_cqe64 *)(cq->begin + (size_t)(index & cq->mask) * cq->stride);
}

/* Whether that slot is the caller's: the device flips the owner bit from one lap to the next, and the first lap writes 0. */
INLAY_ALWAYS int inlay_cq_valid(const struct inlay_cq *cq, uint32_t index, const struct mlx5_cqe64 *cqe)
{
	uint32_t lap = (index & (cq->mask + 1)) != 0;

	return !((*(const volatile uint8_t *)&cqe->op_own ^ lap) & INLAY_CQE_OWNER);
}

/*
 * The oldest completion not yet freed, or NULL when there is none. The CQE is the caller's until inlay_cq_advance; peeking again
 * gives the same one.
 *
 * Compressed CQEs are not understood: the CQ must have been made without compression.
 */
INLAY_ALWAYS const struct mlx5_cqe64 *inlay_cq_peek(const struct inlay_cq *cq)
{
	const struct mlx5_cqe64 *cqe = (const struct mlx5_cqe64 *)cq->next;
	uint8_t op_own = *(const volatile uint8_t *)&cqe->op_own ^ (uint8_t)cq->lap;

	/* One test for the two rare answers: the slot is the device's, or holds an error. */
	if (INLAY_UNLIKELY(op_own & (INLAY_CQE_ERROR | INLAY_CQE_OWNER))) {
		if (op_own & INLAY_CQE_OWNER)
			return NULL;
		inlay_fence_polled();
		return cqe;
	}
	/* The device writes the owner bit last: nothing of the CQE or of the data it speaks of may be loaded before it. */
	inlay_fence_polled();
	/* What the test has shown, told once more behind the fence: the caller's inlay_cqe_is_error then folds to no. */
	if (cqe->op_own & INLAY_CQE_ERROR)
		__builtin_unreachable();
	return cqe;
}

/* Up to max completions, oldest first, into cqes. Returns how many. Free them with one inlay_cq_advance. */
INLAY_ALWAYS uint32_t inlay_cq_peek_many(const struct inlay_cq *cq, const struct mlx5_cqe64 **cqes, uint32_t max)
{
	const uint8_t *next = cq->next;
	uint32_t lap = cq->lap, n;

	if (max > cq->mask + 1)
		max = cq->mask + 1;
	for (n = 0; n < max; n++) {
		const struct mlx5_cqe64 *cqe = (const struct mlx5_cqe64 *)next;

		if ((*(const volatile uint8_t *)&cqe->op_own ^ lap) & INLAY_CQE_OWNER)
			break;
		cqes[n] = cqe;
		next += cq->stride;
		if (INLAY_UNLIKELY(next == cq->end)) {
			next = cq->begin;
			lap ^= INLAY_CQE_OWNER;
		}
	}
	inlay_fence_polled();
	return n;
}

/*
 * Frees n completions without telling the device: for batches that end with inlay_cq_update, and for a CQ that ignores overrun
 * (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN), which never needs to be told.
 */
INLAY_ALWAYS void inlay_cq_advance_quiet(struct inlay_cq *cq, uint32_t n)
{
	cq->ci += n;
	if (__builtin_constant_p(n) && n == 1) {
		uint8_t *next = cq->next + cq->stride;

		if (INLAY_UNLIKELY(next == cq->end)) {
			next = cq->begin;
			cq->lap ^= INLAY_CQE_OWNER;
		}
		cq->next = next;
		return;
	}
	cq->next = cq->begin + (size_t)(cq->ci & cq->mask) * cq->stride;
	cq->lap = (cq->ci & (cq->mask + 1)) != 0;
}

/* Tells the device how far the ring has been freed. */
INLAY_ALWAYS void inlay_cq_update(struct inlay_cq *cq)
{
	/* The device may overwrite the slots as soon as the record says so. */
	inlay_fence_cqe_free();
	*cq->dbrec = inlay_to_be32(cq->ci & 0xffffff);
}

/* Frees n completions, which inlay_cq_peek or inlay_cq_peek_many have shown, and tells the device. */
INLAY_ALWAYS void inlay_cq_advance(struct inlay_cq *cq, uint32_t n)
{
	inlay_cq_advance_quiet(cq, n);
	inlay_cq_update(cq);
}

/*
 * Asks for one event on the CQ's completion channel when the next completion comes (solicited 0), or the next that is solicited or an error
 * (solicited 1).
 *
 * mlx5 raises the event at once when a completion newer than the last one freed is there already; verbs promises no such thing, so a program
 * that is to be portable arms, then peeks once more, and only then sleeps. After each event call inlay_cq_event. Returns 0, or
 * -ENOTSUP when the CQ has no doorbell page. Same bytes as ibv_req_notify_cq.
 */
INLAY_FN int inlay_cq_arm(struct inlay_cq *cq, int solicited)
{
	uint32_t word = (cq->arm_sn & 3) << 28 | (solicited ? 1u << 24 : 0) | (cq->ci & 0xffffff);

	if (!cq->uar)
		return -ENOTSUP;
	/* The consumer index that the device compares with must not be older than the arm word's. */
	inlay_cq_update(cq);
	cq->dbrec[1] = inlay_to_be32(word);
	inlay_fence_record_reg();
	__atomic_store_n((inlay_doorbell *)(cq->uar + 0x20), inlay_to_be64((uint64_t)word << 32 | cq->cqn), __ATOMIC_RELAXED);
	inlay_fence_reg();
	return 0;
}

/* An event of this CQ was taken from its channel (ibv_get_cq_event): the next arming is a new one. */
INLAY_FN void inlay_cq_event(struct inlay_cq *cq)
{
	cq->arm_sn++;
}

/*
 * Removes the completions of a QP that have not been freed, keeping all others and their order: what libmlx5 does by itself when a QP is
 * destroyed or reset, and no longer does for a CQ that was taken over. Call it when the QP no longer produces (in RESET, or
 * destroyed), before its number can come back. Returns how many were removed.
 *
 * Source: libmlx5's cq.c, __mlx5_cq_clean.
 */
INLAY_COLD uint32_t inlay_cq_clean(struct inlay_cq *cq, uint32_t qpn)
{
	uint32_t end = cq->ci, index, removed = 0;

	while (end - cq->ci <= cq->mask && inlay_cq_valid(cq, end, inlay_cq_slot(cq, end)))
		end++;
	inlay_fence_polled();
	/* From the newest down: what stays moves up into the gap, and takes the owner bit of the slot it lands in. */
	for (index = end; index-- != cq->ci;) {
		const struct mlx5_cqe64 *from = inlay_cq_slot(cq, index);

		if (inlay_cqe_qpn(from) == qpn) {
			removed++;
		} else if (removed) {
			struct mlx5_cqe64 *to = (struct mlx5_cqe64 *)(uintptr_t)inlay_cq_slot(cq, index + removed);
			uint8_t owner = to->op_own & INLAY_CQE_OWNER;

			if (cq->stride == 128) /* its first half may hold payload */
				inlay_copy(to - 1, from - 1, 64);
			inlay_copy(to, from, 64);
			to->op_own = (uint8_t)((to->op_own & ~INLAY_CQE_OWNER) | owner);
		}
	}
	if (removed) {
		/* What was moved must be in place before the slots below it are free. */
		inlay_fence_wqe_record();
		inlay_cq_advance(cq, removed);
	}
	return removed;
}

#endif
