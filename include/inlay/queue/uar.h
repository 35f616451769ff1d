/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/uar.h: one doorbell register.
 *
 * libmlx5 hands the same register to several QPs and says so nowhere, and two queues that copy WQEs into one register at the same time
 * corrupt each other. So every queue points at the one inlay_uar of its register, and the mode says what is allowed:
 *
 *   INLAY_UAR_DOORBELL   8-byte doorbells only. Stores of 8 bytes do not mix, so any number of inlay's queues and threads may share the
 *                        register. What taking over a QP gives. Beside a QP that libmlx5 drives and that copies into the same register:
 *                        never seen to fail, and not proven either; a register of one's own is the safe way.
 *   INLAY_UAR_EXCLUSIVE  one queue; BlueFlame copies for single WQEs up to the register's size. The register must have
 *                        been made for it (verbs.h: inlay_uar_create). A second queue is refused with -EBUSY.
 *   INLAY_UAR_LOCKED     several inlay queues, any threads; BlueFlame copies under the object's lock.
 *
 *   base of a register               base + size
 *   | one half: copy or doorbell     | the other half |      used in turn, so that two writes in a row never merge
 *
 * Threads: writing to the register is as safe as its mode says; attaching queues to it and detaching them is for one thread at a time.
 * Sources: the PRM's "Doorbells" and "UAR" chapters; libmlx5's post_send_db (qp.c).
 */
#ifndef INLAY_QUEUE_UAR_H
#define INLAY_QUEUE_UAR_H

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
#include <inlay/wqe.h>

/* Doorbell records are written by halves, registers by 8 bytes; memory of any declared type may hold them. */
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

INLAY_STATIC_ASSERT(sizeof(struct inlay_uar) <= INLAY_CACHE_LINE, "a doorbell touches one line of its register's object");

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up
 */

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

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path
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

/* Where to write now; the next write goes to the register's other half, so that two in a row never merge. */
INLAY_ALWAYS uint8_t *inlay_uar_toggle(uint8_t **next, uint32_t size)
{
	uint8_t *at = *next;

	*next = (uint8_t *)((uintptr_t)at ^ size);
	return at;
}

#endif
