/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/collapsed.h: progress of a send queue whose CQ is collapsed: the device writes each
 * completion over the one before (INLAY_DEVX_CQ_COLLAPSED, devx/cq.h).
 *
 *   freed = inlay_sq_release_latest(&sq, &cq);          WQEBBs that came back; 0: nothing new
 *   if (freed == -EIO) {
 *           inlay_cqe_print(stderr, inlay_cq_latest(&cq));
 *           inlay_sq_release(&sq, inlay_cq_latest(&cq));   and again until nothing is pending
 *   }
 *
 * There is one CQE to poll, whatever the queue's length. It is neither advanced nor armed, and does
 * not overrun.
 *
 * Invariants:
 *   - One send queue per collapsed CQ: completions of two would hide each other.
 *   - A completion says how far the queue is, not what happened on the way. After an error, flushes
 *     of later WQEs overwrite the CQE that says why.
 *   - inlay_cq_peek and inlay_cq_advance are not for a collapsed CQ.
 *   - The last completion stays when its QP is reset: inlay_cq_latest_reset, with inlay_sq_reset.
 *
 * Threads: one owner at a time. Sources: the PRM's "CQ Context" table (cc); NVSHMEM's IBGDA, which
 * polls the WQE counter of such CQEs.
 */
#ifndef INLAY_QUEUE_COLLAPSED_H
#define INLAY_QUEUE_COLLAPSED_H

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
#include <inlay/cqe.h>
#include <inlay/queue/cq.h>
#include <inlay/queue/sq.h>

/* The CQE that the device rewrites; it may change at any time. Before the first, it is invalid. */
INLAY_FN const struct mlx5_cqe64 *inlay_cq_latest(const struct inlay_cq *cq)
{
	return (const struct mlx5_cqe64 *)(const void *)cq->begin;
}

/* Takes away the last completion. After ibv_modify_qp to RESET, before posting. */
INLAY_COLD void inlay_cq_latest_reset(struct inlay_cq *cq)
{
	INLAY_CHECK(cq, "the queue is not NULL");
	cq->begin[offsetof(struct mlx5_cqe64, op_own)] = MLX5_CQE_INVALID << 4;
}

/*
 * Gives back the credit of everything up to the WQE that completed last.
 *
 * Returns the WQEBBs that came back, 0 when nothing has completed since; -EIO when the last
 * completion is an error (nothing has changed).
 */
INLAY_ALWAYS int inlay_sq_release_latest(struct inlay_sq *sq, const struct inlay_cq *cq)
{
	uint32_t word;
	int freed;

	INLAY_CHECK(sq && cq, "queues are not NULL");
	/* Counter and opcode in one load: two could be of two completions. */
	word = __atomic_load_n((const uint32_t *)(const void *)(cq->begin + offsetof(struct mlx5_cqe64, wqe_counter)),
			       __ATOMIC_RELAXED);
	/* Data that the WQEs have read, and the rest of an error CQE, must be loaded after it. */
	inlay_fence_polled();
	if (INLAY_UNLIKELY(word >> 24 & INLAY_CQE_ERROR))
		return word >> 28 == MLX5_CQE_INVALID ? 0 : -EIO;
	freed = inlay_sq_release_(sq, inlay_from_be16((uint16_t)word));
	return freed < 0 ? 0 : freed;
}

#endif
