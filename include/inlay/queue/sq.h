/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/sq.h: a send queue: ring, credit, doorbells. post.h posts to it.
 *
 *   if (inlay_sq_begin(&sq, 1, &at) == 0) {                   a WQE by hand, of one WQEBB
 *           at = inlay_seg_raddr(at, raddr, rkey);
 *           at = inlay_seg_inline(at, data, 8);
 *           inlay_sq_commit(&sq, at, MLX5_OPCODE_RDMA_WRITE, 0, INLAY_SIGNALED | INLAY_RING, 0);
 *   }
 *   ...
 *   freed = inlay_sq_release(&sq, cqe);                       WQEBBs that came back, or -EPROTO
 *
 * The ring holds WQEBBs of 64 bytes. Indices count modulo 2^32 and are masked at use:
 *
 *        pi - pending               pi
 *   -----|--------------------------|-----------------------
 *        posted, the device's         free
 *
 * Credit. A completion names the first WQEBB of its WQE. inlay_sq_release frees that WQE and all
 * before it, with selective signaling too, because their lengths are still in the ring. A ring full
 * of unsignaled WQEs never gets credit back: signal often enough (inlay_sq_signal).
 *
 * Threads: one owner at a time. The register may be shared as its mode says (uar.h).
 * Sources: libmlx5's qp.c (what the device is told and when), the PRM's "Doorbells" chapter.
 */
#ifndef INLAY_QUEUE_SQ_H
#define INLAY_QUEUE_SQ_H /* names are stable until 1.0 */

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/cqe.h>
#include <inlay/wqe.h>
#include <inlay/queue/cq.h>
#include <inlay/queue/uar.h>

/*
 * A send queue, best aligned to a cache line. A post of one WQEBB with INLAY_RING then touches only
 * the first line and, on a serial register, the register's object; other posts, rings and releases
 * touch the second line too.
 */
struct inlay_sq {
	uint8_t *buf;
	uint8_t *end;             /* of the ring */
	volatile inlay_record *dbrec; /* low half of the record's send word, big-endian */
	uint8_t **next;           /* SERIAL: &uar->next; NULL: ask uar */
	uint64_t qpn8;            /* QPN << 8 */
	/* In this order no compiler merges a post's stores into a vector store, which is slower. */
	uint32_t mask;            /* WQEBBs in the ring, less 1 */
	uint32_t pi;              /* WQEBBs posted */
	uint32_t copy_max;        /* reg_size; 0 while something is not rung for */
	uint32_t pending;         /* WQEBBs posted and not yet given back */
	uint32_t last_ds;         /* the last WQE's length in 16-byte units */
	uint32_t unrung;          /* WQEBBs posted since the last doorbell */

	uint8_t *last;            /* the WQE posted last */
	struct inlay_uar *uar;
	uint32_t reg_size;        /* SERIAL: bytes of one half of the register; else 0 */
	uint32_t short_from;      /* from this index on, every WQE has one WQEBB */
	uint32_t max_ds;          /* longest WQE that this QP may post, in 16-byte units */
	uint32_t atomics;         /* bit 0: plain atomics; others: sizes of masked ones (inlay_sq_set_atomics) */
	uint32_t type;            /* enum ibv_qp_type; 0: not known, nothing is checked against it */
	struct inlay_cq *cq;      /* where CQEs are reserved for it, or NULL */
	struct ibv_qp *verbs;     /* of inlay_sq_from_qp, else NULL */
	uint32_t reserved;        /* CQEs reserved in cq */
	uint8_t min_inline;       /* raw packets: bytes of header that must be inline, 0 or 18 */
	uint8_t multi_packet;     /* raw packets: whether the device takes multi-packet WQEs */
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_sq, last) == INLAY_CACHE_LINE, "a short post touches one line of its queue");

/* ---- Set-up ---- */

/*
 * Initializes *sq for a fresh send ring and attaches it to the register that its QP was created
 * with. Returns 0; -EINVAL for an argument out of its range; -EPROTO for a register of another
 * version of inlay. On failure sq and uar are unchanged.
 *
 * buf        the ring, 64-byte aligned; wqebb_cnt its WQEBBs, a power of two, 1 .. 32768
 * dbrec      the QP's doorbell record: two words, receive then send. QPs without one
 *            (send_dbr_mode) are not supported
 * max_ds     longest WQE in 16-byte units, 1 .. 63
 */
INLAY_COLD INLAY_RESULT int inlay_sq_init(struct inlay_sq *sq, void *buf, uint32_t wqebb_cnt, volatile uint32_t *dbrec,
					  uint32_t qpn, uint32_t max_ds, struct inlay_uar *uar)
{
	if (!buf || (uintptr_t)buf % INLAY_WQEBB || !inlay_is_pow2(wqebb_cnt) || wqebb_cnt > 32768 || qpn >> 24 || !dbrec)
		return -EINVAL;
	if (!max_ds || max_ds > INLAY_MAX_DS || !uar || !uar->reg)
		return -EINVAL;
	if (uar->abi != INLAY_ABI)
		return -EPROTO;
	uar->queues++;
	__builtin_memset(sq, 0, sizeof(*sq));
	sq->buf = (uint8_t *)buf;
	sq->end = sq->buf + (size_t)wqebb_cnt * INLAY_WQEBB;
	sq->last = sq->buf;
	dbrec[MLX5_SND_DBR] = 0;
	sq->dbrec = (volatile inlay_record *)(dbrec + MLX5_SND_DBR) + 1;
	sq->uar = uar;
	sq->mask = wqebb_cnt - 1;
	sq->qpn8 = (uint64_t)qpn << 8;
	sq->max_ds = max_ds;
	sq->atomics = 1;
	sq->multi_packet = 1;
	sq->next = uar->mode == INLAY_UAR_SERIAL ? &uar->next : NULL;
	sq->reg_size = sq->copy_max = sq->next ? uar->size : 0;
	return 0;
}

/*
 * Reserves a CQE for each WQEBB, until inlay_sq_fini. Returns as inlay_cq_reserve. A key with block
 * signatures (inlay_post_umr_sig) can add a MLX5_CQE_SIG_ERR: reserve one more for each such key.
 */
INLAY_COLD int inlay_sq_reserve_(struct inlay_sq *sq, struct inlay_cq *cq, const char **why)
{
	return inlay_cq_reserve_for_(cq, sq->mask + 1, &sq->cq, &sq->reserved, why);
}

/*
 * Sets the QP's type (enum ibv_qp_type) and whether it has atomics. With INLAY_CHECKED, posting an
 * operation that the type does not have then aborts; without atomics, atomic posts return -ENOTSUP.
 * Resets the sizes of inlay_sq_set_atomics (queue/masked.h).
 */
INLAY_COLD void inlay_sq_set_type(struct inlay_sq *sq, uint32_t type, uint32_t atomics)
{
	sq->type = type;
	sq->atomics = !!atomics;
}

/*
 * Sets the raw-packet capabilities of the device: the bytes of header that must be inline, 0 or 18
 * (INLAY_L2_INLINE), and whether it takes multi-packet WQEs. inlay_sq_init assumes 0 and 1.
 */
INLAY_COLD void inlay_sq_set_packet_(struct inlay_sq *sq, uint32_t min_inline, uint32_t multi_packet)
{
	INLAY_CHECK(!min_inline || min_inline == INLAY_L2_INLINE, "a device needs 18 bytes inline, or none");
	sq->min_inline = (uint8_t)min_inline;
	sq->multi_packet = multi_packet != 0;
}

/*
 * Detaches a send queue from its register and gives back its CQEs. Call it after the QP was reset
 * or destroyed and the CQ cleaned (inlay_cq_clean). Does not touch the ring.
 */
INLAY_COLD void inlay_sq_fini(struct inlay_sq *sq)
{
	INLAY_CHECK(sq, "the queue is not NULL");
	if (!sq->uar)
		return;
	sq->uar->queues--;
	sq->uar = NULL;
	inlay_cq_unreserve(sq->cq, sq->reserved);
	sq->cq = NULL;
}

/* Restores the state at take-over. Call it after ibv_modify_qp to RESET, before posting. */
INLAY_COLD void inlay_sq_reset(struct inlay_sq *sq)
{
	INLAY_CHECK(sq, "the queue is not NULL");
	sq->pi = 0;
	sq->unrung = 0;
	sq->last_ds = 0;
	sq->pending = 0;
	sq->last = sq->buf;
	sq->short_from = 0;
	sq->copy_max = sq->reg_size;
	*sq->dbrec = 0;
}

/* ---- What is in the ring ---- */

/* Where WQEBB `index` lies. */
INLAY_ALWAYS uint8_t *inlay_sq_wqe(const struct inlay_sq *sq, uint32_t index)
{
	return sq->buf + (size_t)(index & sq->mask) * INLAY_WQEBB;
}

/* WQEBBs of the WQE that begins at index, as its control segment says. */
INLAY_ALWAYS uint32_t inlay_sq_bbs_(const struct inlay_sq *sq, uint32_t index)
{
	return ((inlay_sq_wqe(sq, index)[7] & 0x3fu) + 3) / 4;
}

/* Number of the queue's QP. */
INLAY_FN uint32_t inlay_sq_qpn(const struct inlay_sq *sq)
{
	return (uint32_t)(sq->qpn8 >> 8);
}

/* WQEBBs in the ring. */
INLAY_FN uint32_t inlay_sq_size(const struct inlay_sq *sq)
{
	return sq->mask + 1;
}

/* Longest WQE of the queue, in 16-byte units. */
INLAY_FN uint32_t inlay_sq_max_ds(const struct inlay_sq *sq)
{
	return sq->max_ds;
}

/* The QP's type, enum ibv_qp_type; 0 for a queue of inlay_sq_init. */
INLAY_FN uint32_t inlay_sq_type(const struct inlay_sq *sq)
{
	return sq->type;
}

/* Index of the next WQE, modulo 2^32; inlay_cqe_wqe_counter of its completion has the low 16 bits. */
INLAY_FN uint32_t inlay_sq_index(const struct inlay_sq *sq)
{
	return sq->pi;
}

/* Index of the first WQE that has not been rung for; inlay_sq_index if there is none. */
INLAY_FN uint32_t inlay_sq_rung(const struct inlay_sq *sq)
{
	return sq->pi - sq->unrung;
}

/* WQEBBs that may be posted now. */
INLAY_FN uint32_t inlay_sq_room(const struct inlay_sq *sq)
{
	return sq->mask + 1 - sq->pending;
}

/* WQEBBs posted and not yet given back. */
INLAY_FN uint32_t inlay_sq_pending(const struct inlay_sq *sq)
{
	return sq->pending;
}

/* WQEs posted and not yet given back. Reads the ring: not for the data path. */
INLAY_COLD uint32_t inlay_sq_wqes(const struct inlay_sq *sq)
{
	uint32_t at, bbs, n = 0;

	for (at = sq->pi - sq->pending; at != sq->pi; at += bbs, n++) {
		bbs = inlay_sq_bbs_(sq, at);
		if (!bbs || bbs > sq->pi - at)
			break; /* something else wrote to the ring */
	}
	return n;
}

/* ---- Data path: a WQE from begin to commit ---- */

/* A cursor for a WQE of bbs WQEBBs, after its control segment. */
INLAY_ALWAYS struct inlay_cursor inlay_sq_cursor_(const struct inlay_sq *sq, uint32_t mask, uint32_t bbs)
{
	struct inlay_cursor at;

	at.index = sq->pi;
	at.wqe = sq->buf + (size_t)(at.index & mask) * INLAY_WQEBB;
	/* One pointer from here on, not ring and offset, saves clang a register, a push and a pop. */
	INLAY_HIDE_WQE_(at.wqe);
	at.begin = sq->buf;
	at.end = sq->end;
	at.fill = at.at = at.wqe + INLAY_DS;
	at.ds = 1;
	at.bbs = bbs;
	at.left = 0;
	return at;
}

/*
 * Begins a WQE of at most bbs WQEBBs, 1 .. 16, and sets *at after its control segment. n 16-byte
 * units take (n + 3) / 4 WQEBBs. A WQE that is never committed has no effect.
 *
 * Returns 0; -EAGAIN when the ring has no room for it now, -E2BIG when it never will.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_sq_begin(struct inlay_sq *sq, uint32_t bbs, struct inlay_cursor *at)
{
	uint32_t mask;

	INLAY_CHECK(sq && at, "queue and cursor are not NULL");
	INLAY_CHECK(sq->uar, "the queue is attached to a register");
	INLAY_CHECK(bbs - 1 < 16, "a WQE has 1 to 16 WQEBBs");
	mask = sq->mask;
	if (INLAY_UNLIKELY((int32_t)sq->pending > (int32_t)(mask - (bbs - 1)))) {
		INLAY_PROBE_(full, (uint32_t)(sq->qpn8 >> 8), sq->pending, bbs);
		return bbs - 1 > mask ? -E2BIG : -EAGAIN;
	}
	*at = inlay_sq_cursor_(sq, mask, bbs);
	return 0;
}

/*
 * As inlay_sq_begin, for a WQE of `ds` 16-byte units, control segment included; also returns
 * -EINVAL when that is longer than the QP's longest.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_sq_begin_ds(struct inlay_sq *sq, uint32_t ds, struct inlay_cursor *at)
{
	/* A WQE of one WQEBB is legal on every QP: for short constant payloads the test folds away. */
	if (ds > 4 && INLAY_UNLIKELY(ds > sq->max_ds))
		return -EINVAL;
	return inlay_sq_begin(sq, (ds + 3) / 4, at);
}

/* As inlay_sq_begin, for callers that count credit themselves and know that there is room. */
INLAY_ALWAYS struct inlay_cursor inlay_sq_begin_counted(struct inlay_sq *sq, uint32_t bbs)
{
	INLAY_CHECK(sq, "the queue is not NULL");
	INLAY_CHECK(sq->uar, "the queue is attached to a register");
	INLAY_CHECK(bbs - 1 < 16, "a WQE has 1 to 16 WQEBBs");
	INLAY_CHECK(bbs <= inlay_sq_room(sq), "the ring has room for the WQE");
	return inlay_sq_cursor_(sq, sq->mask, bbs);
}

/* ---- Data path: doorbells ---- */

/* Writes the doorbell record, which tells the device how far the ring is filled. */
INLAY_ALWAYS void inlay_sq_record_(struct inlay_sq *sq, uint32_t pi)
{
	/* The device may fetch the WQE as soon as the record says so. */
	inlay_fence_wqe_record();
	INLAY_STORE_(sq->dbrec, inlay_to_be16((uint16_t)pi));
	INLAY_PROBE_(ring, (uint32_t)(sq->qpn8 >> 8), pi, sq->pending);
	/* The device reads the record when the register is written, and must not find the old one. */
	inlay_fence_record_reg();
}

/* Whether the WQE is copied into a register that takes `max` bytes, or an 8-byte doorbell is written. */
INLAY_ALWAYS int inlay_sq_copies_(uint32_t ds, uint32_t bbs, uint32_t max)
{
	return bbs * INLAY_WQEBB <= max && ds > 1;
}

/*
 * Writes the register for sq->last in any mode. ds: its length, or 0 for a doorbell. If unrung is
 * not 0, other WQEs wait for the same doorbell. Returns 0, so that posts can end in a jump to it.
 */
INLAY_APART int inlay_sq_doorbell_(struct inlay_sq *sq, uint32_t ds)
{
	const uint8_t *wqe = sq->last;
	struct inlay_uar *uar = sq->uar;
	uint32_t mode = uar->mode & ~(uint32_t)INLAY_UAR_FULL_FENCE, bbs = (ds + 3) / 4, others = sq->unrung;
	int none = 0;

	sq->unrung = 0;
	sq->copy_max = sq->reg_size;
	if (mode == INLAY_UAR_LOCKED)
		inlay_lock(&uar->lock);
	/* No fence here: one follows the record, and another precedes each unlock. */
	if (mode == INLAY_UAR_DOORBELL)
		inlay_uar_doorbell_(uar->reg, wqe);
	else if (!others && inlay_sq_copies_(ds, bbs, uar->size))
		inlay_uar_copy_(inlay_uar_toggle_(&uar->next, uar->size), wqe, bbs, sq->buf, sq->end);
	else
		inlay_uar_doorbell_(inlay_uar_toggle_(&uar->next, uar->size), wqe);
	/* Before the unlock: the next owner's write must reach the device after this one. */
	if (uar->mode & INLAY_UAR_FULL_FENCE)
		inlay_fence_reg_full();
	else
		inlay_fence_reg();
	if (mode == INLAY_UAR_LOCKED)
		inlay_unlock(&uar->lock);
	INLAY_HIDE_(none); /* if the compiler knew that it is 0, posts would not jump */
	return none;
}

/* Copies a WQE that wraps, or is long, into a serial register. Returns 0, as inlay_sq_doorbell_. */
INLAY_APART int inlay_sq_copy_(struct inlay_sq *sq, uint8_t *to, const uint8_t *wqe, uint32_t bbs)
{
	int none = 0;

	inlay_uar_copy_(to, wqe, bbs, sq->buf, sq->end);
	inlay_fence_reg_line();
	INLAY_HIDE_(none);
	return none;
}

/* Writes the register for one WQE. max: bytes that a serial register takes, or 0. Returns 0. */
INLAY_ALWAYS int inlay_sq_register_(struct inlay_sq *sq, uint8_t *wqe, uint32_t ds, uint32_t bbs, uint32_t max)
{
	uint8_t *to;

	if (INLAY_UNLIKELY(!inlay_sq_copies_(ds, bbs, max))) {
		sq->last = wqe;
		return inlay_sq_doorbell_(sq, ds);
	}
	to = inlay_uar_toggle_(sq->next, max);
	if (bbs > 1 && (INLAY_UNLIKELY(bbs > 3) || INLAY_UNLIKELY(wqe + bbs * INLAY_WQEBB > sq->end)))
		return inlay_sq_copy_(sq, to, wqe, bbs);
	inlay_uar_copy64_(to, wqe);
	if (bbs > 1)
		inlay_uar_copy64_(to + INLAY_WQEBB, wqe + INLAY_WQEBB);
	if (bbs > 2)
		inlay_uar_copy64_(to + 2 * INLAY_WQEBB, wqe + 2 * INLAY_WQEBB);
	/* Full lines leave the write-combining buffer by themselves. */
	inlay_fence_reg_line();
	return 0;
}

/* inlay_sq_ring in line, after a post in the same function, and out of line. */
INLAY_ALWAYS int inlay_sq_ring_here_(struct inlay_sq *sq, uint32_t ds)
{
	/* Read before the fences, so that what a post in the same function just stored folds. */
	uint32_t bbs = (ds + 3) / 4, unrung = sq->unrung, size = sq->reg_size, others = unrung - bbs;
	uint8_t *wqe = sq->last;

	if (INLAY_UNLIKELY(!unrung))
		return 0;
	sq->unrung = others;
	sq->copy_max = size;
	inlay_sq_record_(sq, sq->pi);
	return inlay_sq_register_(sq, wqe, ds, bbs, others ? 0 : size);
}

INLAY_APART int inlay_sq_ring_apart_(struct inlay_sq *sq)
{
	return inlay_sq_ring_here_(sq, sq->last_ds);
}

/*
 * Rings for everything posted since the last ring; ringing an empty queue is allowed. A single WQE
 * is copied into the register (BlueFlame), which saves the device a fetch: best for latency. As in
 * libmlx5, an 8-byte doorbell is written instead for several WQEs, for one that is longer than the
 * register or only a control segment, and when the mode allows no copy. Returns 0.
 */
INLAY_ALWAYS int inlay_sq_ring(struct inlay_sq *sq)
{
	uint32_t ds;

	INLAY_CHECK(sq, "the queue is not NULL");
	ds = sq->last_ds;
	return INLAY_KNOWN_(ds) ? inlay_sq_ring_here_(sq, ds) : inlay_sq_ring_apart_(sq);
}

/* As inlay_sq_ring, but always with an 8-byte doorbell, as libmlx5 for a list: best for rate. */
INLAY_ALWAYS int inlay_sq_ring_doorbell(struct inlay_sq *sq)
{
	uint32_t size;
	uint8_t *wqe;

	INLAY_CHECK(sq, "the queue is not NULL");
	wqe = sq->last;
	size = sq->reg_size;
	if (INLAY_UNLIKELY(!sq->unrung))
		return 0;
	sq->unrung = 0;
	sq->copy_max = size;
	inlay_sq_record_(sq, sq->pi);
	if (INLAY_UNLIKELY(!sq->next))
		return inlay_sq_doorbell_(sq, 0);
	inlay_uar_doorbell_(inlay_uar_toggle_(sq->next, size), wqe);
	/* Pushes 8 bytes out of the write-combining buffer, before the next doorbell merges with them. */
	inlay_fence_reg();
	return 0;
}

/* ---- Data path: the end of a WQE ---- */

/* WQEBBs of a WQE that is complete. */
INLAY_ALWAYS uint32_t inlay_sq_used_(struct inlay_cursor at)
{
	return INLAY_KNOWN_(at.bbs) && at.bbs == 1 ? 1 : (uint32_t)(at.ds + 3) / 4;
}

/*
 * Takes the credit of a WQE whose control segment is written, and rings for it: the end of every
 * WQE. Returns 0, so that posts can end in a jump.
 */
INLAY_ALWAYS int inlay_sq_end_(struct inlay_sq *sq, struct inlay_cursor at, uint32_t bbs, int ring)
{
	uint32_t unrung;

	INLAY_CHECK(at.index == sq->pi, "a WQE is committed before the next is begun");
	INLAY_CHECK(bbs <= at.bbs, "a WQE has no more WQEBBs than it was begun with");
	INLAY_CHECK(!at.left, "an open inline segment is filled before the commit");
	sq->pi = at.index + bbs;
	sq->pending += bbs;
	if (bbs > 1)
		sq->short_from = at.index + bbs;
	if (ring) {
		inlay_sq_record_(sq, at.index + bbs);
		return inlay_sq_register_(sq, at.wqe, (uint32_t)at.ds, bbs, sq->copy_max);
	}
	unrung = sq->unrung + bbs;
	if (!unrung)
		__builtin_unreachable(); /* a ring in the same function then omits its test */
	sq->unrung = unrung;
	sq->copy_max = 0;
	sq->last = at.wqe;
	sq->last_ds = (uint32_t)at.ds;
	return 0;
}

/* As inlay_sq_commit, but returns 0 instead of the number of WQEBBs: for posts. */
INLAY_ALWAYS int inlay_sq_finish_(struct inlay_sq *sq, struct inlay_cursor at, uint32_t opcode, uint32_t opmod,
				  uint32_t flags, uint32_t imm_be)
{
	inlay_flags_check_(flags);
	INLAY_CHECK(!(flags & INLAY_STREAM_) || !sq->type || sq->type == IBV_QPT_DRIVER, "only a DCI has streams");
	INLAY_CHECK(opcode < 256 && opmod < 256, "opcode and modifier have 8 bits each");
	/* A UMR may be longer: libmlx5 makes room for it in every RC and UC QP. Multi-packet posts check theirs. */
	INLAY_CHECK(at.ds <= sq->max_ds || at.ds <= 4 || opcode == MLX5_OPCODE_UMR || opcode == INLAY_OPCODE_MULTI_PACKET,
		    "a WQE is no longer than the QP's longest");
	inlay_wqe_ctrl(at.wqe, at.index, opmod << 24 | opcode, sq->qpn8, at.ds, flags, imm_be);
	INLAY_PROBE_(post, (uint32_t)(sq->qpn8 >> 8), at.index, opcode);
	return inlay_sq_end_(sq, at, inlay_sq_used_(at), (flags & INLAY_RING) != 0);
}

/*
 * Ends a WQE: writes its control segment and takes its credit. The device sees it after the next
 * ring; INLAY_RING rings now, for it and for everything posted before. Returns its WQEBBs.
 *
 * at      the cursor after the last segment; no more WQEBBs than begun with
 * opcode  MLX5_OPCODE_*; opmod its modifier, 0 for most; flags and imm_be as in inlay_wqe_ctrl
 */
INLAY_ALWAYS int inlay_sq_commit(struct inlay_sq *sq, struct inlay_cursor at, uint32_t opcode, uint32_t opmod,
				 uint32_t flags, uint32_t imm_be)
{
	inlay_sq_finish_(sq, at, opcode, opmod, flags, imm_be);
	return (int)inlay_sq_used_(at);
}

/*
 * Ends a WQE that the caller has written itself, whole, at inlay_sq_wqe(sq, inlay_sq_index(sq)):
 * takes its credit. ds: its length in 16-byte units, as its control segment says; there is room for
 * it (inlay_sq_room). flags: 0 or INLAY_RING. Returns its WQEBBs.
 */
INLAY_ALWAYS int inlay_sq_commit_written(struct inlay_sq *sq, uint32_t ds, uint32_t flags)
{
	uint32_t bbs = (ds + 3) / 4;
	struct inlay_cursor at = inlay_sq_begin_counted(sq, bbs);

	INLAY_CHECK(ds == (at.wqe[7] & 0x3fu), "the control segment says how long the WQE is");
	at.ds = ds;
	inlay_sq_end_(sq, at, bbs, (flags & INLAY_RING) != 0);
	return (int)bbs;
}

/* ---- Data path: bursts ---- */

/*
 * Ends a burst: takes over what was posted to a copy of the queue.
 *
 *   struct inlay_sq burst = sq;                                a copy, which lives in registers
 *   for (i = 0; i < n; i++)
 *           if (inlay_post_write_inline(&burst, raddr[i], rkey, &value[i], 8, 0))
 *                   break;                                     i were posted: go on with the i-th
 *   inlay_sq_join(&sq, &burst);
 *   inlay_sq_ring(&sq);                                        one doorbell for all
 *
 * Between copy and join the queue itself is left alone, and the copy is neither rung nor released:
 * only inlay_post_*, inlay_sq_begin* and inlay_sq_commit. A full ring ends a burst early: what was
 * posted stays posted. A copy that is not joined has no effect.
 *
 * The compiler keeps the copy in registers as long as all posts to it are in line (post.h).
 */
INLAY_ALWAYS void inlay_sq_join(struct inlay_sq *sq, const struct inlay_sq *burst)
{
	uint32_t bbs;

	INLAY_CHECK(sq && burst, "queue and burst are not NULL");
	bbs = burst->pi - sq->pi;
	INLAY_CHECK(burst->buf == sq->buf && bbs <= inlay_sq_room(sq), "the burst is a copy of the queue");
	INLAY_CHECK(burst->pending - sq->pending == bbs && burst->unrung - sq->unrung == bbs,
		    "a burst is rung and released after it is joined");
	if (INLAY_UNLIKELY(!bbs))
		return;
	sq->pi = burst->pi;
	sq->pending += bbs;
	sq->unrung += bbs;
	sq->short_from = burst->short_from;
	sq->copy_max = 0;
	sq->last = burst->last;
	/* Not the burst's own: a loop would write it each time. */
	sq->last_ds = burst->last[7] & 0x3f;
}

/*
 * Which WQE to signal: the one that fills or crosses a multiple of `every` WQEBBs. A full ring then
 * always has a signaled WQE outstanding.
 *
 *   err = inlay_post_write_inline(&sq, raddr, rkey, &value, 8, inlay_sq_signal(&sq, 1, 32));
 *
 * bbs    WQEBBs of the next WQE, or an upper bound
 * every  a power of two, no less than the longest WQE's WQEBBs, and at most half the ring's:
 *        inlay_sq_size(&sq) / 2
 *
 * Returns INLAY_SIGNALED or 0.
 */
INLAY_ALWAYS uint32_t inlay_sq_signal(const struct inlay_sq *sq, uint32_t bbs, uint32_t every)
{
	INLAY_CHECK(sq, "the queue is not NULL");
	INLAY_CHECK(inlay_is_pow2(every) && bbs <= every && every <= (sq->mask + 1) / 2,
		    "a power of two, from the longest WQE to half the ring");
	return (sq->pi & (every - 1)) + bbs >= every ? INLAY_SIGNALED : 0;
}

/* ---- Data path: credit ---- */

/* inlay_sq_release of the WQE that has this counter. */
INLAY_ALWAYS int inlay_sq_release_(struct inlay_sq *sq, uint32_t counter)
{
	uint32_t pi, behind, pending, left, bbs;
	int freed;

	pi = sq->pi;
	pending = sq->pending;
	/* WQEBBs posted after the named WQE's first. 16 bits suffice: a ring has at most 32768. */
	behind = (uint16_t)~(counter - pi);
	if (INLAY_UNLIKELY(behind >= pending))
		return -EPROTO;
	freed = (int)(pending - behind);
	if (INLAY_UNLIKELY((int32_t)(pi - sq->short_from) <= (int32_t)behind)) {
		/* The lengths of the WQEs, from the oldest on, show where each begins. */
		for (left = sq->pending;; left -= bbs) {
			/* Reloads, so that the caller's common path saves no registers. */
			__asm__ volatile("" ::: "memory");
			bbs = inlay_sq_bbs_(sq, sq->pi - left);
			/* Signed: left reaches 0 when the middle of the last WQE was named. */
			if ((int32_t)left - 1 <= (int32_t)behind || INLAY_UNLIKELY(!bbs))
				break;
		}
		/* The middle of a WQE was named, or something else wrote to the ring. */
		if (INLAY_UNLIKELY(left - 1 != behind || bbs - 1 >= left))
			return -EPROTO;
		behind = left - bbs;
		/* short_from is 2^31 WQEBBs old or older, and would compare wrongly again. */
		if (sq->pi - sq->short_from > sq->pending)
			sq->short_from = sq->pi - behind;
		freed = (int)(sq->pending - behind);
	}
	if (freed < 1)
		__builtin_unreachable(); /* the caller's error test folds */
	sq->pending = behind;
	return freed;
}

/*
 * Gives back the credit of the WQE that a send completion of this QP names, successful or not, and
 * of all WQEs before it.
 *
 * Returns the WQEBBs that came back, at least 1. -EPROTO when the CQE does not complete a send
 * (a receive, MLX5_CQE_SIG_ERR) or no such WQE is outstanding; then nothing has changed. Only
 * INLAY_CHECKED looks at the QPN: without it, the completion of another send queue frees whatever
 * has the same WQE counter here.
 */
INLAY_ALWAYS int inlay_sq_release(struct inlay_sq *sq, const struct mlx5_cqe64 *cqe)
{
	INLAY_CHECK(sq && cqe, "queue and CQE are not NULL");
	if (INLAY_UNLIKELY(!inlay_cqe_is_send(cqe)))
		return -EPROTO;
	if (INLAY_CHECKED && inlay_cqe_qpn(cqe) != inlay_sq_qpn(sq))
		return -EPROTO;
	return inlay_sq_release_(sq, inlay_cqe_wqe_counter(cqe));
}

/*
 * Gives back the credit of everything posted before `index` (inlay_sq_index), for callers that
 * learn of progress by other means than completions.
 *
 * Returns the WQEBBs that came back, or -EPROTO when `index` is older than the oldest outstanding
 * WQEBB or newer than the last one posted; then nothing has changed.
 */
INLAY_FN int inlay_sq_release_until(struct inlay_sq *sq, uint32_t index)
{
	uint32_t left, freed;

	INLAY_CHECK(sq, "the queue is not NULL");
	left = sq->pi - index;
	freed = sq->pending - left;
	if (INLAY_UNLIKELY(left > sq->pending))
		return -EPROTO;
	sq->pending = left;
	return (int)freed;
}

/* ---- Taking back what was posted and not rung for ---- */

/* Takes back every WQE from `index` (inlay_sq_index) on. None may have been rung for. */
INLAY_COLD void inlay_sq_undo(struct inlay_sq *sq, uint32_t index)
{
	uint32_t at, bbs;

	INLAY_CHECK(sq, "the queue is not NULL");
	at = inlay_sq_rung(sq);
	INLAY_CHECK(sq->pi - index <= sq->unrung, "only what was not rung for is taken back");
	sq->unrung = 0;
	for (; at != index; at += bbs) {
		bbs = inlay_sq_bbs_(sq, at);
		INLAY_CHECK(bbs && bbs <= index - at, "a WQE is taken back whole");
		sq->last = inlay_sq_wqe(sq, at);
		sq->last_ds = sq->last[7] & 0x3f;
		sq->unrung += bbs;
	}
	/* A faulty device may have completed WQEs that were not rung for. */
	sq->pending = sq->pending > sq->pi - index ? sq->pending - (sq->pi - index) : 0;
	sq->pi = index;
	if ((int32_t)(sq->short_from - index) > 0)
		sq->short_from = index;
	if (!sq->unrung)
		sq->copy_max = sq->reg_size;
}

INLAY_CASTS_END_
#endif
