/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/atomic.h: posts of atomics.
 *
 *   wr.raddr = raddr, wr.rkey = rkey;                       the peer's word
 *   wr.data = &old, wr.lkey = lkey;                         takes what it was
 *   inlay_post_atomic(&sq, inlay_atomic_add(1), &wr, INLAY_SIGNALED);
 *   inlay_post_atomic(&sq, inlay_atomic_cmp_swap(compare, swap), &wr, INLAY_SIGNALED);
 *
 * These two, of 8 bytes, are on every device that has atomics. queue/masked.h makes the others.
 *
 * Invariants:
 *   - raddr is aligned to the atomic's size. RC, DCI, XRC.
 *   - Arguments, the word at raddr and the answer, which is the word's old value, are in host order.
 *   - Every atomic has an answer. Callers that do not need it give all of them one place.
 *   - Atomics are atomic with respect to each other, not to CPU instructions.
 *
 * Threads: one owner of the queue at a time. Sources: wqe/atomic.h.
 */
#ifndef INLAY_QUEUE_ATOMIC_H
#define INLAY_QUEUE_ATOMIC_H /* names are stable until 1.0 */

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/wqe.h>
#include <inlay/queue/post.h>
#include <inlay/queue/sq.h>

/* Any atomic. av_ds: units of the destination, or 0. op->opcode is a constant, or this is out of line. */
INLAY_ALWAYS int inlay_post_atomic_(struct inlay_sq *sq, const struct inlay_atomic *op, const struct inlay_wr *wr,
				    uint32_t av_ds, uint32_t flags)
{
	int plain = op->opcode == MLX5_OPCODE_ATOMIC_FA || op->opcode == MLX5_OPCODE_ATOMIC_CS;
	int swap = op->opcode == MLX5_OPCODE_ATOMIC_MASKED_CS;
	uint32_t size = plain ? 8 : wr->len, units = 1;
	struct inlay_cursor at;
	int err;

	if (!plain) {
		if (INLAY_UNLIKELY(size != 4 && size != 8))
			return -EINVAL;
		units += swap && size == 8;
	}
	if (INLAY_UNLIKELY(!(sq->atomics & (plain ? 1 : size))))
		return -ENOTSUP;
	err = inlay_sq_begin_ds(sq, 3 + units + av_ds, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	if (av_ds)
		at = inlay_seg_av(at, wr->to, av_ds);
	at = inlay_seg_raddr(at, wr->raddr, wr->rkey);
	at = inlay_seg_atomic(at, size, op);
	at = inlay_seg_data(at, (uintptr_t)wr->data, size, wr->lkey);
	return inlay_sq_finish_(sq, at, (uint32_t)op->opcode, plain ? 0 : inlay_opmod_atomic(size), flags, 0);
}

/* By value: clang does not split a struct whose address leaves the function. */
INLAY_APART int inlay_post_atomic_apart_(struct inlay_sq *sq, struct inlay_atomic op, struct inlay_wr wr, uint32_t flags)
{
	return inlay_post_atomic_(sq, &op, &wr, wr.to ? inlay_av_ds(wr.to) : 0, flags);
}

/*
 * Posts an atomic.
 *
 *   +0   ctrl     opcode, index, QPN, DS, flags
 *   +16  av       destination                            if wr->to
 *   +..  raddr    remote address, rkey
 *   +..  operands 1 unit; 2 for a masked compare-and-swap of 8 bytes
 *   +..  data     size, lkey, where the old value goes
 *
 * op     what happens to the word: inlay_atomic_*, or inlay_masked_* (queue/masked.h)
 * wr     raddr, rkey; data, len, lkey: the answer, as long as the atomic. The plain ones have 8
 *        bytes, whatever len says. to as in inlay_post; the other fields are not used
 * flags  as inlay_post, without INLAY_INLINE
 *
 * Returns as inlay_post; -ENOTSUP when the device has no atomics, or has none of this size
 * (inlay_sq_set_atomics); -EINVAL for another size than 4 or 8. Same bytes as
 * IBV_WR_ATOMIC_FETCH_AND_ADD and IBV_WR_ATOMIC_CMP_AND_SWP.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_atomic(struct inlay_sq *sq, struct inlay_atomic op, const struct inlay_wr *wr,
						uint32_t flags)
{
	int plain = op.opcode == MLX5_OPCODE_ATOMIC_FA || op.opcode == MLX5_OPCODE_ATOMIC_CS;

	INLAY_CHECK(sq && wr, "queue and request are not NULL");
	INLAY_CHECK(plain || op.opcode == MLX5_OPCODE_ATOMIC_MASKED_CS || op.opcode == MLX5_OPCODE_ATOMIC_MASKED_FA,
		    "the operation is an atomic");
	INLAY_CHECK(!wr->num_sge && !wr->iov, "the answer goes to one place");
	INLAY_CHECK(!(flags & INLAY_INLINE), "an atomic has no payload to inline");
	INLAY_CHECK(inlay_post_fits_(sq->type, MLX5_OPCODE_ATOMIC_FA, wr->to != NULL), "the QP's type has the operation");
	inlay_flags_check_(flags);
	if (!INLAY_KNOWN_(op.opcode) || !(plain || INLAY_KNOWN_(wr->len)) ||
	    (!INLAY_KNOWN_(!wr->to) && INLAY_UNLIKELY(!wr->to))) {
		/* A copy by fields: else clang does not split the caller's. */
		struct inlay_wr r = {wr->raddr, wr->rkey, 0, wr->to, wr->data, wr->len, wr->lkey, NULL, 0, 0, NULL};

		return inlay_post_atomic_apart_(sq, op, r, flags);
	}
	if (INLAY_KNOWN_(!wr->to) && !wr->to)
		return inlay_post_atomic_(sq, &op, wr, 0, flags);
	if (inlay_av_ds(wr->to) == 1)
		return inlay_post_atomic_(sq, &op, wr, 1, flags);
	return inlay_post_atomic_(sq, &op, wr, 3, flags);
}

INLAY_CASTS_END_
#endif
