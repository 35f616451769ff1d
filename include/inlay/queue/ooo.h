/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/ooo.h: receive queues that the device consumes out of order: QPs made with
 * MLX5DV_QP_CREATE_OOO_DP (rdma-core 54) or INLAY_DEVX_QP_OOO.
 *
 *   inlay_rq_set_ooo(&rq);                                   after the take-over (devx/qp.h does it)
 *   ... inlay_post_recv, inlay_rq_ring: queue/rq.h ...
 *   inlay_rq_release_ooo(&rq, cqe);                          instead of inlay_rq_release
 *
 * Completions arrive in message order, and their WQE counter names the WQE. The device needs a ring of
 * twice the receives that are posted at a time; libmlx5 makes it so. SRQs need no call; their entries
 * always complete out of order.
 *
 * Threads: as queue/rq.h. Sources: mlx5dv_create_qp(3); libmlx5's mlx5_calc_rq_size.
 */
#ifndef INLAY_QUEUE_OOO_H
#define INLAY_QUEUE_OOO_H /* a trial: names may change */

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/cqe.h>
#include <inlay/queue/rq.h>

/*
 * Makes a fresh queue, of at least two WQEs, one whose WQEs the device takes in any order: half of
 * the ring can be posted at a time.
 */
INLAY_COLD void inlay_rq_set_ooo(struct inlay_rq *rq)
{
	INLAY_CHECK(rq && rq->mask && !rq->pi, "the queue is fresh and has two WQEs");
	rq->limit = rq->most = (rq->mask + 1) / 2;
}

/*
 * As inlay_rq_release, of a queue after inlay_rq_set_ooo: gives back the receive WQE that the
 * completion names. Its index in the ring is inlay_cqe_wqe_counter, modulo twice inlay_rq_size.
 *
 * Returns 1. -EPROTO when the CQE is not of this queue (inlay_rq_release) or that WQE is not
 * outstanding; then nothing has changed. No WQE is written again before all older ones have come
 * back, so there can be less room than came back.
 */
INLAY_FN int inlay_rq_release_ooo(struct inlay_rq *rq, const struct mlx5_cqe64 *cqe)
{
	uint32_t oldest, index, all;
	uint8_t *wqe;

	INLAY_CHECK(rq && cqe, "queue and CQE are not NULL");
	if (INLAY_UNLIKELY(!inlay_rq_mine_(rq, cqe)))
		return -EPROTO;
	all = rq->early < rq->most ? rq->early : rq->most;
	oldest = rq->limit - rq->most - all;
	index = (inlay_cqe_wqe_counter(cqe) - oldest) & rq->mask;
	wqe = rq->buf + (size_t)((oldest + index) & rq->mask) * rq->stride;
	if (INLAY_UNLIKELY(index >= rq->pi - oldest) || INLAY_UNLIKELY(wqe[0] & INLAY_RQ_BACK_))
		return -EPROTO;
	if (index) {
		wqe[0] |= INLAY_RQ_BACK_;
		rq->early++;
	} else {
		for (oldest++; rq->early; oldest++, rq->early--)
			if (!(rq->buf[(size_t)(oldest & rq->mask) * rq->stride] & INLAY_RQ_BACK_))
				break;
	}
	all = rq->early < rq->most ? rq->early : rq->most;
	rq->limit = oldest + rq->most + all;
	return 1;
}

INLAY_CASTS_END_
#endif
