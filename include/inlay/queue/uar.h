/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/uar.h: a doorbell register, and the rules for the threads that write to it.
 *
 *   struct inlay_uar uar;
 *   inlay_uar_create(&uar, pd, INLAY_UAR_SERIAL, &why);   verbs.h: a register for this thread
 *   qp = ibv_create_qp(uar.pd, &init);                    its QPs are created in uar.pd
 *   inlay_sq_from_qp(&sq, qp, &uar, &cq, &why);           as many queues as the thread has
 *
 *   INLAY_UAR_SERIAL    the normal case, one register per thread: any number of queues, one thread
 *                       at a time, BlueFlame copies, no lock
 *   INLAY_UAR_LOCKED    several threads on one register: BlueFlame copies under the object's lock
 *   INLAY_UAR_DOORBELL  a borrowed register, such as one that libmlx5 gave to a QP: 8-byte
 *                       doorbells only, which cannot corrupt each other, so any threads and queues
 *                       may ring it
 *
 * libmlx5 silently gives one register to several QPs, and two queues that copy WQEs into it at the
 * same time corrupt each other. So all queues on a register point to one inlay_uar, which holds the
 * mode. Nobody has proved that DOORBELL is safe while libmlx5 copies into the same register; a
 * register made by inlay_uar_create is safe.
 *
 * INLAY_UAR_FULL_FENCE, or'ed into a mode, puts libmlx5's fence (base.h) after each register write:
 * when the call returns, the doorbell has left the CPU. A serial register loses its fast path.
 *
 *   base of a register               base + size
 *   | one half: copy or doorbell     | the other half |      alternate, so that consecutive writes
 *                                                            never merge (not in DOORBELL mode)
 *
 * Threads: a register is rung as its mode says; queues are attached and detached by one thread at a
 * time. Sources: the PRM's "Doorbells" and "UAR" chapters; libmlx5's post_send_db (qp.c).
 */
#ifndef INLAY_QUEUE_UAR_H
#define INLAY_QUEUE_UAR_H /* names are stable until 1.0 */

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/wqe.h>

/* Stores to doorbell records (half a word) and registers, whatever their declared type. */
typedef uint16_t inlay_record __attribute__((may_alias));
typedef uint64_t inlay_doorbell __attribute__((may_alias));

enum inlay_uar_mode {
	INLAY_UAR_DOORBELL,
	INLAY_UAR_SERIAL,
	INLAY_UAR_LOCKED,
	INLAY_UAR_FULL_FENCE = 1 << 8,
};

/* One doorbell register. It must outlive the queues that point to it. */
struct inlay_uar {
	uint8_t *reg;      /* the register, as mlx5dv gives it; NULL until it is known */
	uint8_t *next;     /* where the next copy or doorbell goes: one of the register's two halves */
	uint32_t size;     /* bytes of one half, a power of two; 0: the page takes no BlueFlame copies */
	uint32_t mode;     /* enum inlay_uar_mode, with its flag */
	uint32_t lock;     /* LOCKED only */
	uint32_t queues;   /* send queues that point here */
	uint16_t abi;      /* INLAY_ABI */
	struct ibv_td *td; /* of a register made by inlay_uar_create, else NULL */
	struct ibv_pd *pd; /* likewise: the PD in which its QPs are created */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_uar) <= INLAY_CACHE_LINE,
		    "a doorbell touches one line of its register's object");

/* ---- Set-up ---- */

INLAY_FN int inlay_uar_mode_ok_(uint32_t mode)
{
	return (mode & ~(uint32_t)INLAY_UAR_FULL_FENCE) <= INLAY_UAR_LOCKED;
}

/*
 * Describes a doorbell register. Returns 0, or -EINVAL for an impossible mode, size or alignment.
 *
 * reg    the register in the doorbell page (mlx5dv_qp.bf.reg), aligned to 2 * size, or 8 for size 0
 * size   bytes of one half (mlx5dv_qp.bf.size), 0 for a page without BlueFlame
 * mode   enum inlay_uar_mode; a register of size 0 rings 8-byte doorbells in every mode
 */
INLAY_COLD INLAY_RESULT int inlay_uar_init(struct inlay_uar *uar, void *reg, uint32_t size, uint32_t mode)
{
	if (!reg || !inlay_uar_mode_ok_(mode) || (size && (!inlay_is_pow2(size) || size < INLAY_WQEBB)))
		return -EINVAL;
	if ((uintptr_t)reg % (size ? 2 * size : 8))
		return -EINVAL;
	__builtin_memset(uar, 0, sizeof(*uar));
	uar->reg = (uint8_t *)reg;
	uar->next = uar->reg;
	uar->size = size;
	uar->mode = mode;
	uar->abi = INLAY_ABI;
	return 0;
}

/* ---- Data path, used by queue/sq.h ---- */

/*
 * Copies 64 bytes into the register. x86-64: ascending, in stores that the compiler neither merges
 * nor turns into a string move. aarch64: one instruction, as separate stores rarely combine.
 */
INLAY_ALWAYS void inlay_uar_copy64_(uint8_t *to, const uint8_t *from)
{
#if defined(__CUDA_ARCH__)
	uint32_t i;

	for (i = 0; i < INLAY_WQEBB; i += 8)
		*(volatile inlay_pair_ *)(to + i) = *(const inlay_pair_ *)(from + i);
#elif defined(__x86_64__)
	typedef long long v2 __attribute__((vector_size(16), may_alias));
	const v2 *in = (const v2 *)(const void *)from;
	volatile v2 *out = (volatile v2 *)(void *)to;
	v2 a = in[0], b = in[1], c = in[2], d = in[3];

	out[0] = a;
	out[1] = b;
	out[2] = c;
	out[3] = d;
#else
	__asm__ volatile("ld1 {v0.16b, v1.16b, v2.16b, v3.16b}, [%1]\n\t"
			 "st1 {v0.16b, v1.16b, v2.16b, v3.16b}, [%0]"
			 : : "r"(to), "r"(from) : "v0", "v1", "v2", "v3", "memory");
#endif
}

/* Copies a WQE of bbs WQEBBs that may wrap. */
INLAY_ALWAYS void inlay_uar_copy_(uint8_t *to, const uint8_t *from, uint32_t bbs, const uint8_t *begin,
				  const uint8_t *end)
{
	for (;; to += INLAY_WQEBB) {
		inlay_uar_copy64_(to, from);
		if (!--bbs)
			return;
		from += INLAY_WQEBB;
		if (INLAY_UNLIKELY(from == end))
			from = begin;
	}
}

/* The 8-byte doorbell: the first 8 bytes of a control segment, in one store. */
INLAY_ALWAYS void inlay_uar_doorbell_(uint8_t *reg, const uint8_t *ctrl)
{
	uint64_t db;

	__builtin_memcpy(&db, ctrl, sizeof(db));
	INLAY_STORE_((inlay_doorbell *)(void *)reg, db);
}

/* Where to write now; the next write goes to the register's other half. */
INLAY_ALWAYS uint8_t *inlay_uar_toggle_(uint8_t **next, uint32_t size)
{
	uint8_t *at = *next;

	*next = (uint8_t *)((uintptr_t)at ^ size);
	return at;
}

/*
 * For a caller that also writes to the register by code of its own: where to, this time. Its copy or
 * doorbell then takes part in the alternation. Keep to the register's mode, and fence as
 * inlay_sq_ring does. Returns NULL while the register is not known.
 */
INLAY_ALWAYS uint8_t *inlay_uar_toggle(struct inlay_uar *uar)
{
	return uar->reg ? inlay_uar_toggle_(&uar->next, uar->size) : NULL;
}

INLAY_CASTS_END_
#endif
