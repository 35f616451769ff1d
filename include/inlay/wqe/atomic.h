/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/wqe/atomic.h: operands of atomics: compare-and-swap and fetch-and-add of 8 bytes, and the
 * masked (extended) ones of 4 and 8 bytes.
 *
 *   at = inlay_seg_raddr(at, raddr, rkey);
 *   at = inlay_seg_atomic(at, 4, &add);                      inlay_masked_add(1, 0): a 4-byte fetch-and-add
 *   at = inlay_seg_data(at, result, 4, lkey);
 *   inlay_sq_commit(&sq, at, MLX5_OPCODE_ATOMIC_MASKED_FA, inlay_opmod_atomic(4), INLAY_SIGNALED, 0);
 *
 * The masked opcodes are MLX5_OPCODE_ATOMIC_MASKED_CS (0x14) and MLX5_OPCODE_ATOMIC_MASKED_FA
 * (0x15). The operands follow the remote address segment, all big-endian:
 *
 *                0          4          8            12
 *   CS of 4      | swap     | compare  | swap mask  | compare mask |
 *   CS of 8      | swap                | compare                   |   these 16 bytes
 *                | swap mask           | compare mask              |   and these, which may wrap
 *   FA of 4      | add      | boundary | 0                         |
 *   FA of 8      | add                 | boundary                  |
 *   plain        | swap, or add        | compare, or 0             |
 *
 *   CS   if (old & compare mask) == (compare & compare mask), the bits of the swap mask become
 *        those of swap
 *   FA   a bit of the boundary is the topmost of a field: nothing is carried past it. 0 is one
 *        field; all ones is a field per bit, so that the addition is an exclusive or
 *
 * Devices have longer ones too; no public source says which of their words is most significant.
 *
 * Threads: pure functions of their arguments. Sources: UCX's ib_mlx5.h and rc_mlx5.inl.
 */
#ifndef INLAY_WQE_ATOMIC_H
#define INLAY_WQE_ATOMIC_H /* names are stable until 1.0 */

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/wqe/segment.h>

INLAY_STATIC_ASSERT(sizeof(struct mlx5_wqe_atomic_seg) == 16 && INLAY_AT_(mlx5_wqe_atomic_seg, swap_add, 0) &&
		    INLAY_AT_(mlx5_wqe_atomic_seg, compare, 8), "atomic");
INLAY_STATIC_ASSERT(MLX5_OPCODE_ATOMIC_MASKED_CS == 0x14 && MLX5_OPCODE_ATOMIC_MASKED_FA == 0x15, "opcodes");

/*
 * An atomic operation. The functions that make one take host order; for 4 bytes the lower halves
 * count.
 */
struct inlay_atomic {
	uint64_t swap;         /* or what is added */
	uint64_t compare;      /* or the boundary */
	uint64_t swap_mask;
	uint64_t compare_mask;
	uint64_t opcode;       /* MLX5_OPCODE_ATOMIC_* */
};

/* Fetch-and-add of 8 bytes: every device with atomics has it. */
INLAY_ALWAYS struct inlay_atomic inlay_atomic_add(uint64_t add)
{
	struct inlay_atomic op = {add, 0, 0, 0, MLX5_OPCODE_ATOMIC_FA};

	return op;
}

/* Compare-and-swap of 8 bytes, likewise: the word becomes swap if it equals compare. */
INLAY_ALWAYS struct inlay_atomic inlay_atomic_cmp_swap(uint64_t compare, uint64_t swap)
{
	struct inlay_atomic op = {swap, compare, 0, 0, MLX5_OPCODE_ATOMIC_CS};

	return op;
}

/* Opcode modifier of a masked atomic of `size` bytes, a power of two, 4 .. 256. */
INLAY_ALWAYS uint32_t inlay_opmod_atomic(uint32_t size)
{
	INLAY_CHECK(inlay_is_pow2(size) && size >= 4 && size <= 256, "an atomic has a power of two of bytes, 4 to 256");
	return 8 | (INLAY_CTZ_(size) - 2);
}

/*
 * Appends the operands of an atomic of `size` bytes, 8 or, if masked, 4: two units for a masked
 * compare-and-swap of 8, else one.
 */
INLAY_ALWAYS struct inlay_cursor inlay_seg_atomic(struct inlay_cursor c, uint32_t size, const struct inlay_atomic *op)
{
	int swap = op->opcode == MLX5_OPCODE_ATOMIC_MASKED_CS;
	uint8_t *seg = inlay_seg_at(c);

	INLAY_CHECK(size == 4 || size == 8, "operands of 4 or 8 bytes");
	if (size == 4 && swap) {
		inlay_put64(seg, inlay_to_be64(op->swap << 32 | (uint32_t)op->compare));
		inlay_put64(seg + 8, inlay_to_be64(op->swap_mask << 32 | (uint32_t)op->compare_mask));
	} else if (size == 4) {
		inlay_put64(seg, inlay_wide_be32_((uint32_t)op->swap) |
				 (uint64_t)inlay_to_be32((uint32_t)op->compare) << 32);
		inlay_put64(seg + 8, 0);
	} else {
		INLAY_PUT_TWO_(seg, inlay_to_be64(op->swap), inlay_to_be64(op->compare));
	}
	c = inlay_seg_done(c, seg);
	if (size == 4 || !swap)
		return c;
	seg = inlay_seg_at(c);
	INLAY_PUT_TWO_(seg, inlay_to_be64(op->swap_mask), inlay_to_be64(op->compare_mask));
	return inlay_seg_done(c, seg);
}

INLAY_CASTS_END_
#endif
