/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/masked.h: masked (extended) atomics of 4 and 8 bytes.
 *
 *   struct inlay_atomics can;
 *   inlay_atomics_query(&can, ctx, &why);                   once per device
 *   inlay_sq_set_atomics(&sq, can.sizes);                   once per queue
 *
 *   wr.data = &word, wr.len = 4;                            the atomic's length
 *   inlay_post_atomic(&sq, inlay_masked_add(1, 0), &wr, INLAY_SIGNALED);
 *   inlay_post_atomic(&sq, inlay_masked_swap(0x80, 0x80), &wr, INLAY_SIGNALED);      fetch-and-or
 *   ...
 *   value = inlay_atomic_answer(&can, &word, 4);            after the completion
 *
 * Invariants, besides those of queue/atomic.h:
 *   - The answer is in host order for 8 bytes, and usually big-endian for 4:
 *     inlay_atomics.sizes_be tells, and inlay_atomic_answer converts. An answer that the device
 *     leaves in the CQE (cqe.h) may be big-endian for 8 bytes too.
 *   - The peer's QP has atomic_mode UP_TO_8 or more. The kernel sets it for QPs of verbs;
 *     inlay_devx_path.atomic_mode is the caller's.
 *
 * Threads: as queue/atomic.h. Sources: wqe/atomic.h; UCX's rc_mlx5.inl and nvshmem's
 * ibgda_device.cuh (the named forms); UCX's ib_mlx5dv_md.c (sizes and byte order).
 */
#ifndef INLAY_QUEUE_MASKED_H
#define INLAY_QUEUE_MASKED_H /* a trial: names may change */

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/devx/ifc.h>
#include <inlay/wqe.h>
#include <inlay/queue/atomic.h>
#include <inlay/queue/sq.h>

/* ---- Set-up ---- */

/* The masked atomics that a device offers: filled by inlay_atomics_query. */
struct inlay_atomics {
	uint32_t sizes;    /* each bit stands for its own value in bytes: 4 | 8 | 16 ...; 0: none */
	uint32_t sizes_dc; /* the same, of DCIs */
	uint32_t sizes_be; /* those whose answer comes in big-endian order */
};

/*
 * Queries the masked atomics of a device, by one QUERY_HCA_CAP command. libmlx5 sends such commands
 * in plain contexts too.
 *
 * Returns 0, with sizes 0 when the device has plain ones only; -ENOTSUP when the command fails: no
 * atomics at all, or a kernel without DEVX. On failure *can is zero.
 */
INLAY_COLD int inlay_atomics_query(struct inlay_atomics *can, struct ibv_context *context, const char **why)
{
	const struct inlay_hca_cap *cap;
	struct inlay_query_hca_cap_out out;
	struct inlay_cmd_in in;
	int err;

	INLAY_CHECK(can && context, "only why may be NULL");
	__builtin_memset(can, 0, sizeof(*can));
	if (!mlx5dv_is_supported(context->device))
		return inlay_refuse_(-ENOTSUP, why, "the context is not of an mlx5 device");
	__builtin_memset(&in, 0, sizeof(in));
	__builtin_memset(&out, 0, sizeof(out));
	inlay_cmd_in_set(&in, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_QUERY_HCA_CAP);
	inlay_cmd_in_set(&in, INLAY_CMD_IN_OP_MOD, INLAY_CAP_ATOMIC << 1 | 1 /* current */);
	err = mlx5dv_devx_general_cmd(context, &in, sizeof(in), &out, sizeof(out));
	if (err || inlay_from_be32(out.cmd.dword[0]) >> 24)
		return inlay_refuse_(-ENOTSUP, why, "the context cannot query the device's atomics");
	cap = &out.cap;
	if ((inlay_hca_cap_get(cap, INLAY_ATOMIC_CAP_ATOMIC_OPERATIONS) & 0xc) != 0xc)
		return 0;
	can->sizes = inlay_hca_cap_get(cap, INLAY_ATOMIC_CAP_ATOMIC_SIZE_QP) & 0xfffc;
	can->sizes_dc = inlay_hca_cap_get(cap, INLAY_ATOMIC_CAP_ATOMIC_SIZE_DC) & 0xfffc;
	/* The mode, not 0: host order, is about 8 bytes alone. */
	can->sizes_be = can->sizes;
	if (inlay_hca_cap_get(cap, INLAY_ATOMIC_CAP_ATOMIC_REQ_8B_ENDIANNESS_MODE))
		can->sizes_be &= ~8u;
	return 0;
}

/*
 * Names the sizes of masked atomics that may be posted: each bit stands for its own
 * value in bytes, as in inlay_atomics.sizes. Without it, they return -ENOTSUP. A queue without
 * atomics stays without.
 */
INLAY_COLD void inlay_sq_set_atomics(struct inlay_sq *sq, uint32_t sizes)
{
	if (sq->atomics)
		sq->atomics = 1 | (sizes & ~3u);
}

/* ---- Data path ---- */

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

/*
 * Compare-and-swap: the word's bits of swap_mask become those of swap, if it equals compare in the
 * bits of compare_mask.
 */
INLAY_ALWAYS struct inlay_atomic inlay_masked_cmp_swap(uint64_t compare, uint64_t compare_mask, uint64_t swap,
						       uint64_t swap_mask)
{
	struct inlay_atomic op = {swap, compare, swap_mask, compare_mask, MLX5_OPCODE_ATOMIC_MASKED_CS};

	return op;
}

/*
 * Swap: the bits of mask become those of value; ~0 swaps the word. (v, v) is fetch-and-or, (v, ~v)
 * fetch-and-and. Also "set", whose answer nobody reads.
 */
INLAY_ALWAYS struct inlay_atomic inlay_masked_swap(uint64_t value, uint64_t mask)
{
	return inlay_masked_cmp_swap(0, 0, value, mask);
}

/*
 * Fetch-and-add, also of 4 bytes. boundary: 0 adds to the word as a whole; 0x80008000 makes two
 * 16-bit counters of a 4-byte word; ~0 makes a field of each bit, which is fetch-and-xor.
 */
INLAY_ALWAYS struct inlay_atomic inlay_masked_add(uint64_t add, uint64_t boundary)
{
	struct inlay_atomic op = {add, boundary, 0, 0, MLX5_OPCODE_ATOMIC_MASKED_FA};

	return op;
}

INLAY_CASTS_END_
#endif
