/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/rq.h: a receive queue of packets, made by device commands. It has a queue of its own,
 * rq.rq (queue/rq.h) or rq.striding (queue/striding.h), or takes entries of an RMP (rmp.h) that
 * several RQs share. devx/steer.h leads packets to it.
 *
 *   struct inlay_devx_rq_attr attr;
 *   struct inlay_devx_rq rq;
 *
 *   memset(&attr, 0, sizeof(attr));
 *   attr.cq = &cq.cq;
 *   attr.pdn = pdn;
 *   attr.ring.umem = attr.record.umem = &umem;
 *   attr.record.offset = inlay_devx_rq_size(16, 32);
 *   attr.wqes = 16;  attr.stride = 32;                   bytes of a WQE
 *   attr.flags = INLAY_DEVX_RQ_STRIDING;
 *   attr.strides.log_number = 9;  attr.strides.log_size = 8;
 *   inlay_devx_rq_create(&rq, ctx, &attr);
 *   ... inlay_striding_post(&rq.striding, ...);  inlay_rq_ring(&rq.striding.rq);
 *   inlay_devx_rq_destroy(&rq);                          before its CQ and RMP
 *
 *   attr.cq = &cq.cq;                                    on an RMP, this is all
 *   attr.flags = INLAY_DEVX_RQ_SHARED;
 *   attr.rmpn = rmp.rmpn;
 *
 * Threads: for the queue, as its own header says; for the rest, as device commands.
 * Sources: devx/ifc/rq.h; Linux, infiniband/hw/mlx5/qp.c (create_raw_packet_qp_rq) and
 * ethernet/mellanox/mlx5/core/en_main.c; DPDK's mlx5_devx.c.
 */
#ifndef INLAY_DEVX_RQ_H
#define INLAY_DEVX_RQ_H

#include <inlay/devx/ifc/rq.h>
#include <inlay/devx/rmp.h>
#include <inlay/queue/rq.h>

enum inlay_devx_rq_flags {
	INLAY_DEVX_RQ_STRIDING = 1,   /* each WQE takes many packets: queue/striding.h */
	INLAY_DEVX_RQ_SHARED = 2,     /* no queue of its own: entries of attr.rmpn */
	INLAY_DEVX_RQ_STRIP_VLAN = 4  /* the outermost VLAN tag goes from the packet into the CQE (inlay_cqe_vlan) */
};

/* What to create. Zero it first. */
struct inlay_devx_rq_attr {
	struct inlay_cq *cq;            /* required. Reserves a CQE per WQE or stride, unless on an RMP */
	struct inlay_devx_place ring;   /* inlay_devx_rq_size() bytes */
	struct inlay_devx_place record; /* 8 bytes */
	uint32_t pdn;                   /* 24 bits */
	uint32_t wqes;                  /* a power of two, 1 .. 32768 */
	uint32_t stride;                /* bytes of a WQE, a power of two, 16 .. 1024; striding: 32 .. 1024 */
	uint32_t rmpn;                  /* with INLAY_DEVX_RQ_SHARED; then ring .. stride are not read */
	uint32_t user_index;            /* in the CQEs of this queue (inlay_cqe_user_index), 24 bits */
	uint32_t flags;                 /* enum inlay_devx_rq_flags */
	struct inlay_strides strides;   /* of a striding queue; log_number 3 .. 16 */
};

/* The queue and its object. */
struct inlay_devx_rq {
	union {
		struct inlay_rq rq;             /* unless INLAY_DEVX_RQ_SHARED */
		struct inlay_striding striding; /* with INLAY_DEVX_RQ_STRIDING */
	};
	struct mlx5dv_devx_obj *obj;   /* NULL: there is none */
	uint32_t rqn;
	uint32_t flags;                /* enum inlay_devx_rq_flags */
	struct inlay_devx_error error; /* of the last call on it */
};

/* Returns the bytes of a ring; 0 for an impossible number or size of WQEs. */
INLAY_COLD size_t inlay_devx_rq_size(uint32_t wqes, uint32_t stride)
{
	if (!inlay_is_pow2(wqes) || wqes > 32768 || !inlay_is_pow2(stride) || stride < INLAY_DS || stride > 1024)
		return 0;
	return (size_t)wqes * stride;
}

/* Fills the zeroed work queue of an RQ, and initialises its queue. */
INLAY_COLD int inlay_devx_rq_own_(struct inlay_wqc *wq, struct inlay_devx_rq *rq, const struct inlay_devx_rq_attr *attr)
{
	uint32_t striding = attr->flags & INLAY_DEVX_RQ_STRIDING;
	size_t bytes = inlay_devx_rq_size(attr->wqes, attr->stride);
	uint32_t *record;
	uint8_t *ring;
	int err;

	rq->error.why = inlay_devx_places_(attr->ring, bytes, attr->record, &ring, &record);
	if (!bytes || attr->pdn >> 24 || (striding && (attr->strides.log_number < 3 || attr->stride < 2 * INLAY_DS ||
						       !inlay_strides_ok_(&attr->strides))))
		rq->error.why = "an impossible number or size of WQEs or strides, or PD number";
	if (rq->error.why)
		return inlay_devx_refuse_(&rq->error, -EINVAL, rq->error.why);
	record[1] = 0;
	err = striding ? inlay_striding_init(&rq->striding, ring, attr->wqes, attr->stride, record, &attr->strides) :
			 inlay_rq_init(&rq->rq, ring, attr->wqes, attr->stride, record);
	if (!err)
		err = striding ? inlay_striding_reserve_(&rq->striding, attr->cq, &rq->error.why) :
				 inlay_rq_reserve_(&rq->rq, attr->cq, &rq->error.why);
	if (err)
		return inlay_devx_refuse_(&rq->error, err, rq->error.why);
	inlay_devx_wqc_(wq, INLAY_WQ_CYCLIC, attr->ring, attr->record, striding ? &attr->strides : NULL);
	inlay_wqc_set(wq, INLAY_WQC_PD, attr->pdn);
	inlay_wqc_set(wq, INLAY_WQC_LOG_WQ_SZ, inlay_log2_ceil(attr->wqes));
	inlay_wqc_set(wq, INLAY_WQC_LOG_WQ_STRIDE, inlay_log2_ceil(attr->stride));
	return 0;
}

/* Moves an RQ from one state to another. */
INLAY_COLD int inlay_devx_rq_move_(struct inlay_devx_rq *rq, uint32_t from, uint32_t to)
{
	struct inlay_create_rq_in in;

	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_MODIFY_RQ, rq->rqn);
	inlay_create_rq_in_set(&in, INLAY_CREATE_RQ_IN_RQ_STATE, from);
	inlay_rqc_set(&in.rqc, INLAY_RQC_STATE, to);
	return inlay_devx_change_(rq->obj, &in, sizeof(in), &rq->error);
}

/* Destroys the RQ. Returns 0, or a negative errno: -EBUSY while packets are led to it. */
INLAY_COLD int inlay_devx_rq_destroy(struct inlay_devx_rq *rq)
{
	int err;

	INLAY_CHECK(rq, "no argument is NULL");
	err = inlay_devx_drop_(&rq->obj);
	if (!err && !(rq->flags & INLAY_DEVX_RQ_SHARED))
		inlay_rq_fini(&rq->rq);
	return err;
}

/*
 * Creates an RQ that is ready to receive, and initialises ring and record. Returns 0; -EINVAL for
 * an impossible attribute, ring or record (devx/umem.h); -ENOSPC when the CQ has too few CQEs left;
 * else the negative errno of CREATE_RQ or MODIFY_RQ. On failure rq->obj is NULL.
 */
INLAY_COLD int inlay_devx_rq_create(struct inlay_devx_rq *rq, struct ibv_context *ctx,
				    const struct inlay_devx_rq_attr *attr)
{
	uint32_t shared, all = INLAY_DEVX_RQ_STRIDING | INLAY_DEVX_RQ_SHARED | INLAY_DEVX_RQ_STRIP_VLAN;
	struct inlay_create_rq_in in;
	struct inlay_devx_error error;
	int err;

	INLAY_CHECK(rq && ctx && attr, "no argument is NULL");
	__builtin_memset(rq, 0, sizeof(*rq));
	shared = attr->flags & INLAY_DEVX_RQ_SHARED;
	if (!attr->cq || (attr->rmpn | attr->user_index) >> 24 || attr->flags & ~all ||
	    (shared && attr->flags & INLAY_DEVX_RQ_STRIDING))
		return inlay_devx_refuse_(&rq->error, -EINVAL, "no CQ, a number of more than 24 bits, or impossible flags");
	rq->flags = attr->flags;
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_CREATE_RQ, 0);
	inlay_rqc_set(&in.rqc, INLAY_RQC_VSD, !(attr->flags & INLAY_DEVX_RQ_STRIP_VLAN));
	inlay_rqc_set(&in.rqc, INLAY_RQC_FLUSH_IN_ERROR_EN, 1);
	inlay_rqc_set(&in.rqc, INLAY_RQC_USER_INDEX, attr->user_index);
	inlay_rqc_set(&in.rqc, INLAY_RQC_CQN, inlay_cq_cqn(attr->cq));
	inlay_rqc_set(&in.rqc, INLAY_RQC_MEM_RQ_TYPE, !!shared);
	inlay_rqc_set(&in.rqc, INLAY_RQC_RMPN, shared ? attr->rmpn : 0);
	err = shared ? 0 : inlay_devx_rq_own_(&in.rqc.wq, rq, attr);
	if (err)
		return err;
	err = inlay_devx_make_(ctx, &in, sizeof(in), &rq->obj, &rq->rqn, &rq->error);
	if (!err)
		err = inlay_devx_rq_move_(rq, INLAY_WQ_STATE_RST, INLAY_WQ_STATE_RDY);
	if (err) {
		error = rq->error;
		inlay_devx_rq_destroy(rq);
		rq->error = error;
	}
	return err;
}

/*
 * Empties the RQ, whatever its state, and makes it ready again. Its posted buffers are the
 * caller's; those of an RMP stay posted. Then remove its completions: inlay_cq_clean_index with its
 * user index. Returns 0, -EINVAL without an object, or the negative errno of QUERY_RQ or MODIFY_RQ.
 */
INLAY_COLD int inlay_devx_rq_reset(struct inlay_devx_rq *rq)
{
	struct inlay_query_rq_out out;
	uint32_t state;
	int err;

	INLAY_CHECK(rq, "no argument is NULL");
	/* Ask the device for the state, since an earlier call may have failed halfway. */
	err = inlay_devx_query_context(rq->obj, INLAY_CMD_OP_QUERY_RQ, rq->rqn, &out, sizeof(out), &rq->error);
	state = err ? 0 : (uint32_t)inlay_rqc_get(&out.rqc, INLAY_RQC_STATE);
	if (!err && state != INLAY_WQ_STATE_RST)
		err = inlay_devx_rq_move_(rq, state, INLAY_WQ_STATE_RST);
	if (err)
		return err;
	/* The record must be 0 when the RQ starts. */
	if (rq->flags & INLAY_DEVX_RQ_STRIDING)
		inlay_striding_reset(&rq->striding);
	else if (!(rq->flags & INLAY_DEVX_RQ_SHARED))
		inlay_rq_reset(&rq->rq);
	return inlay_devx_rq_move_(rq, INLAY_WQ_STATE_RST, INLAY_WQ_STATE_RDY);
}

#endif
