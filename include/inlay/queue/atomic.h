/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/atomic.h: posts of atomics: the two of 8 bytes that every device has, and extended
 * ones, which have masks and other sizes.
 *
 *   inlay_post_fetch_add(&sq, raddr, rkey, 1, &result, INLAY_SIGNALED);        8 bytes, verbs' own
 *
 *   struct inlay_atomics can;
 *   inlay_atomics_query(&can, ctx, &why);                   once per device (verbs.h)
 *   inlay_sq_set_atomics(&sq, can.sizes);                   once per queue
 *   struct ibv_sge old = {(uintptr_t)&word, 4, lkey};       its length is the atomic's
 *   inlay_post_masked(&sq, raddr, rkey, inlay_masked_add(1, 0), &old, INLAY_SIGNALED);
 *   inlay_post_masked(&sq, raddr, rkey, inlay_masked_or(0x80), &old, INLAY_SIGNALED);
 *   ...
 *   value = inlay_atomic_answer(&can, &word, 4);            after the completion
 *
 * Invariants:
 *   - raddr is aligned to the atomic's size. RC; for a DCI or an XRC QP see queue/to.h.
 *   - Arguments and the word at raddr are in host order. The answer, the word's old value, is in
 *     host order for 8 bytes, and usually big-endian for others: inlay_atomics.sizes_be tells, and
 *     inlay_atomic_answer converts. An answer that the device leaves in the CQE (cqe.h) may be
 *     big-endian for 8 bytes too.
 *   - Every atomic has an answer. Callers that do not need it give all of them one place.
 *   - Atomics are atomic with respect to each other, not to CPU instructions.
 *   - The peer's QP has atomic_mode UP_TO_8 or more for extended ones. The kernel sees to that for
 *     QPs of verbs; inlay_devx_path.atomic_mode is the caller's.
 *
 * Flags and results are those of inlay_post_* (post.h). Besides, extended atomics return -ENOTSUP
 * for a size that inlay_sq_set_atomics did not name, and -EINVAL for a size that is not 4 or 8.
 *
 * Threads: one owner of the queue at a time. Sources: wqe/atomic.h; UCX's rc_mlx5.inl and nvshmem's
 * ibgda_device.cuh (the named forms); UCX's ib_mlx5dv_md.c (sizes and byte order).
 */
#ifndef INLAY_QUEUE_ATOMIC_H
#define INLAY_QUEUE_ATOMIC_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/wqe.h>
#include <inlay/queue/post.h>
#include <inlay/queue/sq.h>

/*
 * Both atomics: without a destination, control, remote address, operands and one data pointer fill
 * one WQEBB. av and av_ds as in inlay_post_build_.
 */
INLAY_ALWAYS int inlay_post_atomic_(struct inlay_sq *sq, uint8_t opcode, const struct inlay_remote *remote,
				    const struct inlay_av *av, uint32_t av_ds, uint64_t swap_add, uint64_t compare,
				    const struct ibv_sge *sge, uint32_t flags)
{
	struct inlay_cursor at;
	int err;

	INLAY_CHECK(sq && remote && sge, "queue, remote address and SGE are not NULL");
	INLAY_CHECK(!(flags & INLAY_INLINE), "an atomic has no payload to inline");
	INLAY_CHECK(inlay_post_fits_(sq, opcode, av != NULL), "the QP's type has the operation");
	if (INLAY_UNLIKELY(!sq->atomics))
		return -ENOTSUP;
	err = inlay_sq_begin_ds(sq, 4 + av_ds, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	if (av_ds)
		at = inlay_seg_av_(at, av, av_ds);
	at = inlay_seg_raddr(at, remote->addr, remote->rkey);
	at = inlay_seg_atomic(at, swap_add, compare);
	at = inlay_seg_data(at, sge->addr, 8, sge->lkey);
	return inlay_sq_commit(sq, at, opcode, 0, flags, 0);
}

/*
 * Atomic fetch-and-add on 8 bytes at raddr, 8-byte aligned. The old value goes to sge, in host
 * order; sge->length is taken as 8. -ENOTSUP when the device has no atomics.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_fetch_add(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, uint64_t add,
				      const struct ibv_sge *sge, uint32_t flags)
{
	struct inlay_remote remote = {raddr, rkey};

	return inlay_post_atomic_(sq, MLX5_OPCODE_ATOMIC_FA, &remote, NULL, 0, add, 0, sge, flags);
}

/* As inlay_post_fetch_add, but the 8 bytes become swap if they equal compare. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_cmp_swap(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, uint64_t compare,
				     uint64_t swap, const struct ibv_sge *sge, uint32_t flags)
{
	struct inlay_remote remote = {raddr, rkey};

	return inlay_post_atomic_(sq, MLX5_OPCODE_ATOMIC_CS, &remote, NULL, 0, swap, compare, sge, flags);
}

/* ---- Extended atomics ---- */

/* What the extended atomics of a device are, from inlay_atomics_query (verbs.h). */
struct inlay_atomics {
	uint32_t sizes;    /* each bit stands for its own value in bytes: 4 | 8 | 16 ...; 0: there are none */
	uint32_t sizes_dc; /* the same, of DCIs */
	uint32_t sizes_be; /* those whose answer comes in big-endian order */
};

/* The answer of an atomic of 4 or 8 bytes, in host order. */
INLAY_FN uint64_t inlay_atomic_answer(const struct inlay_atomics *can, const void *answer, uint32_t size)
{
	uint64_t wide;
	uint32_t word;

	INLAY_CHECK(can && answer && (size == 4 || size == 8), "an answer of 4 or 8 bytes");
	if (size == 8) {
		__builtin_memcpy(&wide, answer, 8);
		return can->sizes_be & 8 ? inlay_from_be64(wide) : wide;
	}
	__builtin_memcpy(&word, answer, 4);
	return can->sizes_be & 4 ? inlay_from_be32(word) : word;
}

/* A masked atomic. av_ds: units of the destination, or 0. */
INLAY_ALWAYS int inlay_post_masked_(struct inlay_sq *sq, const struct inlay_remote *remote, const struct inlay_av *av,
				    uint32_t av_ds, const struct inlay_masked *op, const struct ibv_sge *sge,
				    uint32_t flags)
{
	uint32_t size = sge->length, wide = size == 8 && op->opcode == MLX5_OPCODE_ATOMIC_MASKED_CS;
	struct inlay_cursor at;
	int err;

	INLAY_CHECK(op->opcode == MLX5_OPCODE_ATOMIC_MASKED_CS || op->opcode == MLX5_OPCODE_ATOMIC_MASKED_FA,
		    "the operation is made by inlay_masked_*");
	INLAY_CHECK(!(flags & INLAY_INLINE), "an atomic has no payload to inline");
	INLAY_CHECK(inlay_post_fits_(sq, MLX5_OPCODE_ATOMIC_FA, av_ds != 0), "the QP's type has the operation");
	if (INLAY_UNLIKELY(!(sq->atomics & size)))
		return size == 4 || size == 8 ? -ENOTSUP : -EINVAL;
	if (INLAY_UNLIKELY(size != 4 && size != 8))
		return -EINVAL;
	err = inlay_sq_begin_ds(sq, 4 + wide + av_ds, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	if (av_ds)
		at = inlay_seg_av_(at, av, av_ds);
	at = inlay_seg_raddr(at, remote->addr, remote->rkey);
	at = inlay_seg_masked(at, size, op);
	at = inlay_seg_data(at, sge->addr, size, sge->lkey);
	return inlay_sq_commit(sq, at, op->opcode, inlay_opmod_atomic(size), flags, 0);
}

/* The same out of line, for a size that is no constant. av may be NULL. */
INLAY_APART int inlay_post_masked_any_(struct inlay_sq *sq, const struct inlay_remote *remote,
				       const struct inlay_av *av, const struct inlay_masked *op,
				       const struct ibv_sge *sge, uint32_t flags)
{
	return inlay_post_masked_(sq, remote, av, av ? inlay_av_ds(av) : 0, op, sge, flags);
}

/*
 * A masked atomic of sge->length bytes, 4 or 8.
 *
 *   +16  raddr | rkey
 *   +32  swap | compare | swap mask | compare mask    of 8 bytes the masks at +48, the answer at +64
 *   +48  size | lkey | where the old value goes
 *
 * op  what happens to the word: one of inlay_masked_* (wqe/atomic.h)
 *
 * Takes one WQEBB, or two for a compare-and-swap of 8 bytes, which all but add and xor are.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_masked(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, struct inlay_masked op,
				   const struct ibv_sge *sge, uint32_t flags)
{
	struct inlay_remote remote = {raddr, rkey};

	INLAY_CHECK(sq && sge, "queue and SGE are not NULL");
	if (!__builtin_constant_p(sge->length))
		return inlay_post_masked_any_(sq, &remote, NULL, &op, sge, flags);
	return inlay_post_masked_(sq, &remote, NULL, 0, &op, sge, flags);
}

/*
 * Any extended atomic of 8 bytes or more, up to the largest size of inlay_atomics.sizes.
 *
 * opcode  MLX5_OPCODE_ATOMIC_MASKED_CS or MLX5_OPCODE_ATOMIC_MASKED_FA
 * words   operands of sge->length bytes each, as 64-bit words in host order: swap, compare, swap
 *         mask, compare mask; or add, boundary. They are copied now
 * sge     the answer: words as well, each big-endian if inlay_atomics.sizes_be has the size
 *
 * Beyond 8 bytes, words go in the order in which the libmlx5 of MLNX_OFED wrote them, and come back
 * as Linux reads them (handle_atomic, mlx5/cq.c): each big-endian, in the order of memory. No public
 * source says which word is most significant, and so where a carry goes: the software device takes
 * the first. Returns -EINVAL for a size that is no power of two from 8 to 256, another opcode, and a
 * WQE longer than the QP's longest.
 */
INLAY_FN INLAY_RESULT int inlay_post_extended_atomic(struct inlay_sq *sq, uint32_t opcode, uint64_t raddr, uint32_t rkey,
					const uint64_t *words, const struct ibv_sge *sge, uint32_t flags)
{
	uint32_t size, n;
	struct inlay_cursor at;
	int err;

	INLAY_CHECK(sq && words && sge, "no argument is NULL");
	INLAY_CHECK(!(flags & INLAY_INLINE), "an atomic has no payload to inline");
	INLAY_CHECK(inlay_post_fits_(sq, MLX5_OPCODE_ATOMIC_FA, 0), "the QP's type has the operation");
	size = sge->length;
	if (!inlay_is_pow2(size) || size < 8 || size > 256 ||
	    (opcode != MLX5_OPCODE_ATOMIC_MASKED_CS && opcode != MLX5_OPCODE_ATOMIC_MASKED_FA))
		return -EINVAL;
	if (!(sq->atomics & size))
		return -ENOTSUP;
	n = (opcode == MLX5_OPCODE_ATOMIC_MASKED_CS ? 4 : 2) * size / 8;
	err = inlay_sq_begin_ds(sq, 3 + n / 2, &at);
	if (err)
		return err;
	at = inlay_seg_raddr(at, raddr, rkey);
	at = inlay_seg_operands(at, words, n);
	at = inlay_seg_data(at, sge->addr, size, sge->lkey);
	return inlay_sq_commit(sq, at, opcode, inlay_opmod_atomic(size), flags, 0);
}

#endif
