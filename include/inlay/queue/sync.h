/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/sync.h: copies of local memory by the device's DMA engine.
 *
 *   inlay_post_memcpy(&sq, &to, &from, &scratch, INLAY_SIGNALED);
 *
 * The QP must be allowed to: INLAY_DEVX_QP_MMO, or mlx5dv_create_qp with
 * MLX5DV_QP_EX_WITH_MEMCPY. RC and DC only. Without it, the WQE ends in an error completion.
 *
 * What waits, or lets another queue send, is written by hand: wqe/sync.h.
 *
 * Threads: one owner of the queue at a time. Sources: wqe/sync.h; mlx5dv_wr_post(3).
 */
#ifndef INLAY_QUEUE_SYNC_H
#define INLAY_QUEUE_SYNC_H /* a trial: names may change */

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/wqe.h>
#include <inlay/wqe/sync.h>
#include <inlay/queue/post.h>
#include <inlay/queue/sq.h>

/*
 * Copies local memory, by the device's DMA engine.
 *
 *   +16  0 | lkey | scratch address
 *   +32  length | lkey | from
 *   +48  length | lkey | to
 *
 * to, from  of the same length, 1 .. 2^31 bytes, at most the device's 2^log_dma_mmo_max_size
 * scratch   address and lkey of 64 bytes that the device may write to; one per queue is enough, and
 *           the length is not looked at
 *
 * Returns also -EINVAL for other lengths. Same bytes as mlx5dv_wr_memcpy, which has a scratch place
 * of its own per PD.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_memcpy(struct inlay_sq *sq, const struct ibv_sge *to, const struct ibv_sge *from,
				   const struct ibv_sge *scratch, uint32_t flags)
{
	struct inlay_cursor at;
	uint32_t len;
	int err;

	INLAY_CHECK(sq && to && from && scratch, "no argument is NULL");
	INLAY_CHECK(!(flags & INLAY_INLINE), "a copy has no payload to inline");
	INLAY_CHECK(inlay_post_fits_(sq->type, MLX5_OPCODE_MMO, 0), "the QP's type has the operation");
	len = to->length;
	if (INLAY_UNLIKELY(len - 1 > INLAY_SGE_MAX || len != from->length))
		return -EINVAL;
	err = inlay_sq_begin(sq, 1, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	len &= INLAY_SGE_MAX; /* 0 is 2^31 */
	at = inlay_seg_data(at, scratch->addr, 0, scratch->lkey);
	at = inlay_seg_data(at, from->addr, len, from->lkey);
	at = inlay_seg_data(at, to->addr, len, to->lkey);
	return inlay_sq_finish_(sq, at, MLX5_OPCODE_MMO, INLAY_OPMOD_MMO_DMA, flags, 0);
}

INLAY_CASTS_END_
#endif
