/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/rq.h: the receive queue of a QP, or of a WQ (ibv_create_wq).
 *
 *   inlay_post_recv(&rq, &sge, 1);  inlay_rq_ring(&rq);      shows the device what was posted
 *   ...
 *   inlay_rq_release(&rq, cqe);                              one receive completion: its WQE may be posted anew
 *
 * Invariants
 *
 *   - WQEs complete in the order in which they were posted. Indices grow without bound and are
 *     masked at use. There is no register: ringing writes the doorbell record.
 *   - A WQ's record is cleared on its way from RESET to RDY (libmlx5's mlx5_modify_wq): take over
 *     or reset, move it to RDY, and only then post. A QP takes receives from INIT on.
 *
 * Threads: one owner at a time.
 * Sources: libmlx5's mlx5_post_recv and mlx5_post_wq_recv (qp.c).
 */
#ifndef INLAY_QUEUE_RQ_H
#define INLAY_QUEUE_RQ_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/cqe.h>
#include <inlay/wqe.h>
#include <inlay/queue/cq.h>
#include <inlay/queue/uar.h>

/* A receive queue. */
struct inlay_rq {
	uint8_t *buf;
	volatile inlay_record *dbrec; /* the receive word of the doorbell record: its low half, big-endian */
	uint32_t mask;            /* WQEs in the ring, less 1 */
	uint32_t stride;          /* bytes of a WQE, a power of two */
	uint32_t pi;              /* WQEs posted */
	uint32_t limit;           /* pi may go so far: WQEs given back, and the ring */
	uint32_t max_sge;         /* stride / 16 */
	uint32_t reserved;        /* CQEs set aside for it */
	struct inlay_cq *cq;      /* in this CQ, or NULL */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_rq) <= INLAY_CACHE_LINE, "a post touches one line of its queue");

/* ------------------------------------------------------------------------------------------------
 * Set-up
 */

/*
 * Describes a fresh receive ring of wqe_cnt WQEs (a power of two, 1 .. 32768) of stride bytes (a
 * power of two, 16 .. 1024). Returns 0, or -EINVAL.
 */
INLAY_COLD int inlay_rq_init(struct inlay_rq *rq, void *buf, uint32_t wqe_cnt, uint32_t stride,
			     volatile uint32_t *dbrec)
{
	if (!buf || (uintptr_t)buf % INLAY_DS || !inlay_is_pow2(wqe_cnt) || wqe_cnt > 32768 || !dbrec)
		return -EINVAL;
	if (!inlay_is_pow2(stride) || stride < INLAY_DS || stride > 1024)
		return -EINVAL;
	__builtin_memset(rq, 0, sizeof(*rq));
	rq->buf = (uint8_t *)buf;
	dbrec[MLX5_RCV_DBR] = 0;
	rq->dbrec = (volatile inlay_record *)(dbrec + MLX5_RCV_DBR) + 1;
	rq->mask = wqe_cnt - 1;
	rq->stride = stride;
	rq->limit = wqe_cnt;
	rq->max_sge = stride / INLAY_DS;
	return 0;
}

/* Reserves as many CQEs as the ring has WQEs; see inlay_sq_reserve. */
INLAY_COLD int inlay_rq_reserve(struct inlay_rq *rq, struct inlay_cq *cq, const char **why)
{
	int err = inlay_cq_reserve(cq, rq->mask + 1, why);

	if (!err) {
		rq->cq = cq;
		rq->reserved = rq->mask + 1;
	}
	return err;
}

/* Gives back the CQEs reserved for the queue, when its QP or WQ is destroyed. */
INLAY_COLD void inlay_rq_fini(struct inlay_rq *rq)
{
	inlay_cq_unreserve(rq->cq, rq->reserved);
	rq->cq = NULL;
}

/*
 * Makes the queue as it was when it was taken over: after ibv_modify_qp to RESET (of a WQ,
 * ibv_modify_wq), before anything is posted.
 */
INLAY_COLD void inlay_rq_reset(struct inlay_rq *rq)
{
	rq->pi = 0;
	rq->limit = rq->mask + 1;
	*rq->dbrec = 0;
}

/*
 * Writes one SGE of len bytes (1 .. 2^31 - 1) and lkey into every WQE of the ring, so that
 * inlay_rq_recycle need only write its address. Before anything is posted.
 */
INLAY_COLD void inlay_rq_prepare(struct inlay_rq *rq, uint32_t len, uint32_t lkey)
{
	struct ibv_sge sge = {0, len, lkey};
	uint32_t i;

	for (i = 0; i <= rq->mask; i++) {
		uint8_t *wqe = rq->buf + (size_t)i * rq->stride;

		inlay_wqe_recv(wqe, wqe + rq->stride, &sge, 1);
	}
}

/* ------------------------------------------------------------------------------------------------
 * Data path
 */

/*
 * Fills the next receive WQE. Same bytes as ibv_post_recv.
 *
 *   +0   data     pointer | pointer | ...
 *   +..  end      lkey 0x100, when the stride has room for more
 *
 * sge  host order, num_sge of them, of at most 2^31 - 1 bytes each; empty ones are left out
 *
 * Returns 0; -EAGAIN when the ring is full; -EINVAL for more SGEs than a WQE holds. Not visible to
 * the device before inlay_rq_ring().
 */
INLAY_ALWAYS int inlay_post_recv(struct inlay_rq *rq, const struct ibv_sge *sge, uint32_t num_sge)
{
	uint8_t *wqe;

	INLAY_CHECK(rq && (sge || !num_sge), "no queue and no list of SGEs is NULL");
	if (INLAY_UNLIKELY(rq->limit == rq->pi))
		return -EAGAIN;
	/* Every WQE has room for one. */
	if (!(__builtin_constant_p(num_sge) && num_sge <= 1) && INLAY_UNLIKELY(num_sge > rq->max_sge))
		return -EINVAL;
	wqe = rq->buf + (size_t)(rq->pi & rq->mask) * rq->stride;
	inlay_wqe_recv(wqe, wqe + rq->stride, sge, num_sge);
	rq->pi++;
	return 0;
}

/* Shows the device all receives posted so far, by the doorbell record. */
INLAY_ALWAYS void inlay_rq_ring(struct inlay_rq *rq)
{
	INLAY_CHECK(rq, "no queue is NULL");
	/* The device may take the WQE, and write to its buffer, as soon as the record says so. */
	inlay_fence_recv_record();
	*rq->dbrec = inlay_to_be16((uint16_t)rq->pi);
}

/* Receive WQEs in the ring. */
INLAY_FN uint32_t inlay_rq_size(const struct inlay_rq *rq)
{
	return rq->mask + 1;
}

/* Receives posted so far: the index of the next one. It grows without bound. */
INLAY_ALWAYS uint32_t inlay_rq_index(const struct inlay_rq *rq)
{
	return rq->pi;
}

/* Receive WQEs that may be posted now. */
INLAY_FN uint32_t inlay_rq_room(const struct inlay_rq *rq)
{
	return rq->limit - rq->pi;
}

/* Receive WQEs posted and not given back. A QP in the error state owes a flush CQE for each. */
INLAY_FN uint32_t inlay_rq_pending(const struct inlay_rq *rq)
{
	return rq->mask + 1 - inlay_rq_room(rq);
}

/*
 * Gives back the oldest receive WQE: once for each receive completion of this queue's QP, good or
 * error.
 *
 * Returns 1, the WQEs that came back; or -EPROTO when none is outstanding (a completion of another
 * queue, a faulty device).
 */
INLAY_ALWAYS int inlay_rq_release(struct inlay_rq *rq, const struct mlx5_cqe64 *cqe)
{
	INLAY_CHECK(rq && cqe, "a completion is released to its queue");
	(void)cqe;
	if (INLAY_UNLIKELY(!inlay_rq_pending(rq)))
		return -EPROTO;
	rq->limit++;
	return 1;
}

/* As inlay_sq_release_until (queue/sq.h): gives back every receive before inlay_rq_index `index`. */
INLAY_FN int inlay_rq_release_until(struct inlay_rq *rq, uint32_t index)
{
	uint32_t n = index + rq->mask + 1 - rq->limit;

	if (INLAY_UNLIKELY(n > inlay_rq_pending(rq)))
		return -EPROTO;
	rq->limit += n;
	return (int)n;
}

/*
 * inlay_rq_release, and the next receive posted at addr, in one step that writes 8 bytes: for a
 * queue of inlay_rq_prepare. Unchecked: the caller has a receive completion of this queue. Not
 * visible to the device before inlay_rq_ring().
 */
INLAY_ALWAYS void inlay_rq_recycle(struct inlay_rq *rq, uint64_t addr)
{
	INLAY_CHECK(rq, "no queue is NULL");
	INLAY_CHECK(inlay_rq_pending(rq), "a receive that completed was posted");
	inlay_put64(rq->buf + (size_t)(rq->pi & rq->mask) * rq->stride + 8, inlay_to_be64(addr));
	rq->pi++;
	rq->limit++;
}

#endif
