/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/rq.h: the receive queue of a QP, or of a WQ (ibv_create_wq).
 *
 *   inlay_post_recv(&rq, &sge, 1);  inlay_rq_ring(&rq);      shows the device what was posted
 *   ...
 *   inlay_rq_release(&rq, cqe);                              returns the WQE of one completion
 *
 * Invariants:
 *   - WQEs complete in the order in which they were posted. Indices count modulo 2^32 and are
 *     masked at use. There is no register: ringing writes the doorbell record.
 *   - A QP of MLX5DV_QP_CREATE_OOO_DP takes its WQEs in any order: queue/ooo.h.
 *   - libmlx5 clears a WQ's record on the way from RESET to RDY (mlx5_modify_wq), so take over or
 *     reset, move it to RDY, then post. A QP takes receives from INIT on. On a raw packet
 *     QP, ring only in RTR: packets must not arrive earlier, and libmlx5 sets the record to its own
 *     count, 0, on the way there (ibv_modify_qp, mlx5_post_recv).
 *
 * Threads: one owner at a time.
 * Sources: libmlx5's mlx5_post_recv and mlx5_post_wq_recv (qp.c).
 */
#ifndef INLAY_QUEUE_RQ_H
#define INLAY_QUEUE_RQ_H /* names are stable until 1.0 */

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
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
	uint32_t limit;           /* pi stops here: WQEs given back, plus `most` */
	uint32_t most;            /* most receives posted at a time: the ring's size, or half of it if out of order */
	uint32_t early;           /* out of order: WQEs that came back before an older one */
	uint32_t max_sge;         /* stride / 16 */
	uint32_t reserved;        /* CQEs set aside for it */
	struct inlay_cq *cq;      /* in this CQ, or NULL */
	uint32_t qpn;             /* what its completions name; 0: not known */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_rq) <= INLAY_CACHE_LINE, "a post touches one line of its queue");

/* ---- Set-up ---- */

/*
 * Describes a fresh receive ring, 16-byte aligned, of wqe_cnt WQEs (a power of two, 1 .. 32768) of
 * stride bytes (a power of two, 16 .. 1024). dbrec is the doorbell record of its QP or WQ. Returns
 * 0, or -EINVAL for an argument out of its range.
 */
INLAY_COLD INLAY_RESULT int inlay_rq_init(struct inlay_rq *rq, void *buf, uint32_t wqe_cnt, uint32_t stride,
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
	rq->limit = rq->most = wqe_cnt;
	rq->max_sge = stride / INLAY_DS;
	return 0;
}

/* Reserves as many CQEs as the ring has WQEs; see inlay_sq_reserve_. */
INLAY_COLD int inlay_rq_reserve_(struct inlay_rq *rq, struct inlay_cq *cq, const char **why)
{
	return inlay_cq_reserve_for_(cq, rq->mask + 1, &rq->cq, &rq->reserved, why);
}

/* Gives back the queue's CQEs. Call it when its QP or WQ is destroyed. */
INLAY_COLD void inlay_rq_fini(struct inlay_rq *rq)
{
	inlay_cq_unreserve(rq->cq, rq->reserved);
	rq->cq = NULL;
	rq->buf = NULL;
}

INLAY_COLD void inlay_rq_set_qpn_(struct inlay_rq *rq, uint32_t qpn)
{
	rq->qpn = qpn;
}

/*
 * Restores the state at take-over. Call it after ibv_modify_qp (ibv_modify_wq) to RESET, before
 * posting.
 */
INLAY_COLD void inlay_rq_reset(struct inlay_rq *rq)
{
	rq->pi = rq->early = 0;
	rq->limit = rq->most;
	*rq->dbrec = 0;
}

/*
 * Writes one SGE of len bytes (1 .. 2^31 - 1) and lkey into every WQE of the ring, so that
 * inlay_rq_recycle need only write its address. Call it before posting.
 */
INLAY_COLD void inlay_rq_prepare(struct inlay_rq *rq, uint32_t len, uint32_t lkey)
{
	struct ibv_sge sge = {0, len, lkey};
	uint32_t i;

	for (i = 0; i <= rq->mask; i++) {
		uint8_t *wqe = rq->buf + (size_t)i * rq->stride;

		inlay_wqe_recv_(wqe, wqe + rq->stride, &sge, 1);
	}
}

/* ---- Data path ---- */

/*
 * Fills the next receive WQE. Same bytes as ibv_post_recv.
 *
 *   +0   data     pointer | pointer | ...
 *   +..  end      lkey 0x100, when the stride has room for more
 *
 * sge  host order, num_sge of them, of at most 2^31 - 1 bytes each; empty ones are left out
 *
 * Returns 0; -EAGAIN when the ring is full; -EINVAL for more SGEs than a WQE holds. The device sees
 * nothing before inlay_rq_ring().
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_recv(struct inlay_rq *rq, const struct ibv_sge *sge, uint32_t num_sge)
{
	uint8_t *wqe;

	INLAY_CHECK(rq && (sge || !num_sge), "queue and SGEs are not NULL");
	INLAY_CHECK(rq->buf, "inlay_rq_fini was not called");
	if (INLAY_UNLIKELY(rq->limit == rq->pi))
		return -EAGAIN;
	/* Every WQE has room for one. */
	if (!(INLAY_KNOWN_(num_sge) && num_sge <= 1) && INLAY_UNLIKELY(num_sge > rq->max_sge))
		return -EINVAL;
	wqe = rq->buf + (size_t)(rq->pi & rq->mask) * rq->stride;
	inlay_wqe_recv_(wqe, wqe + rq->stride, sge, num_sge);
	rq->pi++;
	return 0;
}

/* Shows the device all receives posted so far: writes the doorbell record. */
INLAY_ALWAYS void inlay_rq_ring(struct inlay_rq *rq)
{
	INLAY_CHECK(rq, "the queue is not NULL");
	/* The device may take the WQE, and write to its buffer, as soon as the record says so. */
	inlay_fence_recv_record();
	*rq->dbrec = inlay_to_be16((uint16_t)rq->pi);
}

/* Receives that can be posted at a time: the WQEs in the ring, or half of them after inlay_rq_set_ooo. */
INLAY_FN uint32_t inlay_rq_size(const struct inlay_rq *rq)
{
	return rq->most;
}

/* Receives posted so far: the index of the next one. */
INLAY_ALWAYS uint32_t inlay_rq_index(const struct inlay_rq *rq)
{
	return rq->pi;
}

/* Receive WQEs that may be posted now. */
INLAY_FN uint32_t inlay_rq_room(const struct inlay_rq *rq)
{
	return rq->limit - rq->pi;
}

/* Receive WQEs posted and not given back. A QP in error produces a flush CQE for each that was rung. */
INLAY_FN uint32_t inlay_rq_pending(const struct inlay_rq *rq)
{
	return rq->most - inlay_rq_room(rq);
}

/* Whether a CQE may belong to this queue. Unchecked, any receive's does. */
INLAY_ALWAYS int inlay_rq_mine_(const struct inlay_rq *rq, const struct mlx5_cqe64 *cqe)
{
	if (INLAY_UNLIKELY(!inlay_cqe_is_recv_(cqe)))
		return 0;
	return !INLAY_CHECKED || !rq->qpn || rq->qpn == inlay_cqe_qpn(cqe);
}

/*
 * Gives back the oldest receive WQE: once for each receive completion of this queue's QP,
 * successful or not.
 *
 * Returns 1, the WQEs that came back. -EPROTO when the CQE does not complete a receive, or no WQE is
 * outstanding. Only INLAY_CHECKED refuses the completion of another QP, and only if the queue knows
 * its own (inlay_rq_from_qp, except for raw packets, whose completions name none).
 */
INLAY_ALWAYS int inlay_rq_release(struct inlay_rq *rq, const struct mlx5_cqe64 *cqe)
{
	INLAY_CHECK(rq && cqe, "queue and CQE are not NULL");
	INLAY_CHECK(rq->most > rq->mask, "WQEs complete in their order");
	if (INLAY_UNLIKELY(!inlay_rq_mine_(rq, cqe)))
		return -EPROTO;
	if (INLAY_UNLIKELY(!inlay_rq_pending(rq)))
		return -EPROTO;
	rq->limit++;
	return 1;
}

/* As inlay_sq_release_until (queue/sq.h): gives back all receives before inlay_rq_index `index`. */
INLAY_FN int inlay_rq_release_until(struct inlay_rq *rq, uint32_t index)
{
	uint32_t n = index + rq->most - rq->limit;

	INLAY_CHECK(rq->most > rq->mask, "WQEs complete in their order");
	if (INLAY_UNLIKELY(n > inlay_rq_pending(rq)))
		return -EPROTO;
	rq->limit += n;
	return (int)n;
}

/*
 * inlay_rq_release and the post of the next receive at addr in one, by writing 8 bytes. Needs
 * inlay_rq_prepare, and a receive completion (not checked). Visible after inlay_rq_ring().
 */
INLAY_ALWAYS void inlay_rq_recycle(struct inlay_rq *rq, uint64_t addr)
{
	INLAY_CHECK(rq, "the queue is not NULL");
	INLAY_CHECK(rq->buf, "inlay_rq_fini was not called");
	INLAY_CHECK(inlay_rq_pending(rq), "a receive is outstanding");
	INLAY_CHECK(rq->most > rq->mask, "WQEs complete in their order");
	inlay_put64(rq->buf + (size_t)(rq->pi & rq->mask) * rq->stride + 8, inlay_to_be64(addr));
	rq->pi++;
	rq->limit++;
}

#define INLAY_RQ_BACK_ 0x80u /* in the first byte of a WQE, whose length has 31 bits: it has come back */

INLAY_CASTS_END_
#endif
