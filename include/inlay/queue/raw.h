/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/raw.h: posts a WQE that the caller has built elsewhere: for opcodes and segments that
 * inlay does not know, such as crypto.
 *
 *   inlay_post_raw(&sq, wqe, 0);
 *
 * A WQE that is built in place needs no copy: inlay_seg_at and inlay_seg_done append any segment
 * at a cursor, inlay_sq_commit takes any opcode.
 *
 * Threads: one owner of the queue at a time. Sources: libmlx5's mlx5_wr_raw_wqe (qp.c).
 */
#ifndef INLAY_QUEUE_RAW_H
#define INLAY_QUEUE_RAW_H /* a trial: names may change */

#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/wqe.h>
#include <inlay/queue/sq.h>

/*
 * Copies a whole WQE into the ring, wrapping.
 *
 * wqe    control segment and what follows, as the device reads it. Its DS count gives its length;
 *        index and QPN become the queue's, all else stays, fence and CQE flags too
 * flags  0 or INLAY_RING
 *
 * Returns as inlay_sq_begin_ds, and -EINVAL for a DS count of 0. Same bytes as mlx5dv_wr_raw_wqe,
 * which expects the right QPN.
 */
INLAY_FN INLAY_RESULT int inlay_post_raw(struct inlay_sq *sq, const void *wqe, uint32_t flags)
{
	const uint8_t *from = (const uint8_t *)wqe;
	struct inlay_cursor at;
	uint32_t ds;
	int err;

	INLAY_CHECK(sq && wqe, "no argument is NULL");
	INLAY_CHECK(!(flags & ~INLAY_RING), "a raw WQE's flags are in its control segment");
	ds = from[7] & 0x3f;
	if (!ds)
		return -EINVAL;
	/* A UMR may be longer than the QP's longest: inlay_sq_commit. */
	err = from[3] == MLX5_OPCODE_UMR ? inlay_sq_begin(sq, (ds + 3) / 4, &at) : inlay_sq_begin_ds(sq, ds, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	inlay_copy_wrap_(at, at.at, from + INLAY_DS, (ds - 1) * INLAY_DS);
	at.ds = ds;
	inlay_sq_commit(sq, at, from[3], from[0], 0, 0);
	inlay_copy(at.wqe + 8, from + 8, 8);
	return flags & INLAY_RING ? inlay_sq_ring(sq) : 0;
}

INLAY_CASTS_END_
#endif
