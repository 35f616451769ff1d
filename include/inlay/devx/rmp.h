/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/rmp.h: a receive memory pool, that is a shared receive queue, made by device commands.
 * rmp.srq is a queue of queue/srq.h. Receives complete to the CQs of its QPs.
 *
 *   struct inlay_devx_rmp_attr attr;
 *   struct inlay_devx_rmp rmp;
 *
 *   memset(&attr, 0, sizeof(attr));
 *   attr.pdn = pdn;
 *   attr.ring.umem = attr.record.umem = &umem;
 *   attr.record.offset = inlay_devx_rmp_size(256, 64);
 *   attr.entries = 256;
 *   attr.stride = 64;                                  one next segment, up to three SGEs
 *   inlay_devx_rmp_create(&rmp, ctx, &attr);
 *   qp_attr.rq_type = INLAY_RQ_TYPE_SHARED;
 *   qp_attr.srqn = rmp.rmpn;
 *   ... inlay_post_srq_recv(&rmp.srq, &sge, 1); inlay_srq_ring(&rmp.srq); ...
 *   inlay_devx_rmp_destroy(&rmp);                      after its QPs
 *
 * With INLAY_DEVX_RMP_STRIDING, rmp.striding is a queue of queue/striding.h, of the shape
 * attr.strides.
 *
 * Threads: the queue as queue/srq.h; all else as device commands.
 * Sources: devx/ifc/wq.h; Linux, infiniband/hw/mlx5/srq_cmd.c; UCX's rc_mlx5_devx.c (a cyclic one).
 */
#ifndef INLAY_DEVX_RMP_H
#define INLAY_DEVX_RMP_H

#include <inlay/devx/call.h>
#include <inlay/devx/ifc/wq.h>
#include <inlay/devx/umem.h>
#include <inlay/queue/srq.h>
#include <inlay/queue/striding.h>

enum inlay_devx_rmp_flags {
	INLAY_DEVX_RMP_CYCLIC = 1,  /* posted and taken in order: queue/srq.h */
	INLAY_DEVX_RMP_STRIDING = 2 /* each entry takes many messages or packets: queue/striding.h */
};

/* What to create. Zero it first. */
struct inlay_devx_rmp_attr {
	struct inlay_devx_place ring;   /* inlay_devx_rmp_size() bytes */
	struct inlay_devx_place record; /* 8 bytes, of which the first 4 are used */
	struct inlay_cq *cq;            /* reserves a CQE per entry or stride. NULL: the caller reserves them */
	uint32_t pdn;                   /* 24 bits */
	uint32_t entries;               /* a power of two, 2 .. 32768, of which one is never posted */
	uint32_t stride;                /* bytes of an entry, a power of two, 32 .. 1024: 16, and 16 per SGE */
	uint32_t flags;                 /* enum inlay_devx_rmp_flags */
	struct inlay_strides strides;   /* of a striding queue; log_number 3 .. 16 */
};

/* The queue and its object. */
struct inlay_devx_rmp {
	union {
		struct inlay_srq srq;
		struct inlay_striding_srq striding; /* with INLAY_DEVX_RMP_STRIDING */
	};
	struct mlx5dv_devx_obj *obj;   /* NULL: there is none */
	uint32_t rmpn;
	uint32_t reserved;
	struct inlay_devx_error error; /* of the last call on it */
};

/* Returns the bytes of a ring, a multiple of 64; 0 for an impossible number or size of entries. */
INLAY_COLD size_t inlay_devx_rmp_size(uint32_t entries, uint32_t stride)
{
	if (!inlay_is_pow2(entries) || entries < 2 || entries > 32768 || !inlay_is_pow2(stride) ||
	    stride < 2 * INLAY_DS || stride > 1024)
		return 0;
	return (size_t)entries * stride;
}

/* Fills in the place and type of a zeroed work queue. strides: NULL unless it is a striding one. */
INLAY_COLD void inlay_devx_wqc_(struct inlay_wqc *wq, uint32_t type, struct inlay_devx_place ring,
				struct inlay_devx_place record, const struct inlay_strides *strides)
{
	inlay_wqc_set(wq, INLAY_WQC_WQ_TYPE, type | (strides ? INLAY_WQ_STRIDING : 0));
	if (strides) {
		inlay_wqc_set(wq, INLAY_WQC_LOG_WQE_NUM_OF_STRIDES, (strides->log_number - 9) & 0xf);
		inlay_wqc_set(wq, INLAY_WQC_LOG_WQE_STRIDE_SIZE, strides->log_size - 6);
		inlay_wqc_set(wq, INLAY_WQC_TWO_BYTE_SHIFT_EN, !!strides->shift);
	}
	inlay_wqc_set(wq, INLAY_WQC_WQ_UMEM_VALID, 1);
	inlay_wqc_set(wq, INLAY_WQC_WQ_UMEM_ID, ring.umem->id);
	inlay_wqc_set(wq, INLAY_WQC_WQ_UMEM_OFFSET, ring.offset);
	inlay_wqc_set(wq, INLAY_WQC_DBR_UMEM_VALID, 1);
	inlay_wqc_set(wq, INLAY_WQC_DBR_UMEM_ID, record.umem->id);
	inlay_wqc_set(wq, INLAY_WQC_DBR_ADDR, record.offset);
}

/* Fills the zeroed work queue of an RMP or XRQ, and initialises its queue. */
INLAY_COLD int inlay_devx_shared_(struct inlay_wqc *wq, struct inlay_striding_srq *rq,
				  const struct inlay_devx_rmp_attr *attr, struct inlay_devx_error *error)
{
	uint32_t cyclic = attr->flags & INLAY_DEVX_RMP_CYCLIC, striding = attr->flags & INLAY_DEVX_RMP_STRIDING;
	size_t bytes = inlay_devx_rmp_size(attr->entries, attr->stride);
	uint32_t *record;
	uint8_t *ring;
	int err;

	error->why = inlay_devx_places_(attr->ring, bytes, attr->record, &ring, &record);
	if (!bytes || attr->pdn >> 24 || attr->flags & ~(uint32_t)(INLAY_DEVX_RMP_CYCLIC | INLAY_DEVX_RMP_STRIDING) ||
	    (striding && (attr->strides.log_number < 3 || !inlay_strides_ok_(&attr->strides))))
		error->why = "an impossible number or size of entries or strides, PD number or flag";
	if (error->why)
		return inlay_devx_refuse_(error, -EINVAL, error->why);
	record[1] = 0;
	if (cyclic)
		err = inlay_srq_init_cyclic(&rq->srq, ring, attr->entries, attr->stride, record);
	else
		err = inlay_srq_init(&rq->srq, ring, attr->entries, attr->stride, record);
	if (!err && striding)
		err = inlay_striding_srq_init(rq, &attr->strides);
	if (!err && attr->cq)
		err = striding ? inlay_striding_srq_reserve_(rq, attr->cq, &error->why) :
				 inlay_srq_reserve_(&rq->srq, attr->cq, &error->why);
	if (err)
		return inlay_devx_refuse_(error, err, error->why);
	inlay_devx_wqc_(wq, cyclic ? INLAY_WQ_CYCLIC : INLAY_WQ_LINKED_LIST, attr->ring, attr->record,
			striding ? &attr->strides : NULL);
	inlay_wqc_set(wq, INLAY_WQC_PD, attr->pdn);
	inlay_wqc_set(wq, INLAY_WQC_LOG_WQ_SZ, inlay_log2_ceil(attr->entries));
	inlay_wqc_set(wq, INLAY_WQC_LOG_WQ_STRIDE, inlay_log2_ceil(attr->stride));
	return 0;
}

/* Destroys an RMP or XRQ, and gives back its reserved CQEs. */
INLAY_COLD int inlay_devx_shared_destroy_(struct mlx5dv_devx_obj **obj, struct inlay_srq *srq)
{
	int err = inlay_devx_drop_(obj);

	if (!err)
		inlay_srq_fini(srq);
	return err;
}

/*
 * Creates an RMP, and initialises ring and record. Returns 0; -EINVAL for an impossible attribute,
 * ring or record (devx/umem.h); -ENOSPC when the CQ has too few CQEs left; else the negative errno
 * of CREATE_RMP. On failure rmp->obj is NULL.
 */
INLAY_COLD int inlay_devx_rmp_create(struct inlay_devx_rmp *rmp, struct ibv_context *ctx,
				     const struct inlay_devx_rmp_attr *attr)
{
	struct inlay_create_rmp_in in;
	int err;

	INLAY_CHECK(rmp && ctx && attr, "no argument is NULL");
	__builtin_memset(rmp, 0, sizeof(*rmp));
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_CREATE_RMP, 0);
	inlay_rmpc_set(&in.rmpc, INLAY_RMPC_STATE, INLAY_WQ_STATE_RDY);
	err = inlay_devx_shared_(&in.rmpc.wq, &rmp->striding, attr, &rmp->error);
	if (err)
		return err;
	err = inlay_devx_make_(ctx, &in, sizeof(in), &rmp->obj, &rmp->rmpn, &rmp->error);
	if (err)
		inlay_srq_fini(&rmp->srq);
	return err;
}

/*
 * Arms one INLAY_EVENT_SRQ_RQ_LIMIT of this object for when fewer than `limit` entries are posted,
 * now or later. 0 disarms. Returns 0; -EINVAL without an object or for a limit of `entries` or
 * more; or the negative errno of MODIFY_RMP.
 */
INLAY_COLD int inlay_devx_rmp_arm(struct inlay_devx_rmp *rmp, uint32_t limit)
{
	struct inlay_create_rmp_in in;

	INLAY_CHECK(rmp, "no argument is NULL");
	if (rmp->obj && limit > inlay_srq_size(&rmp->srq))
		return inlay_devx_refuse_(&rmp->error, -EINVAL, "the limit is above inlay_srq_size()");
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_MODIFY_RMP, rmp->rmpn);
	inlay_create_rmp_in_set(&in, INLAY_CREATE_RMP_IN_RMP_STATE, INLAY_WQ_STATE_RDY);
	inlay_create_rmp_in_set(&in, INLAY_CREATE_RMP_IN_BITMASK_LWM, 1);
	inlay_rmpc_set(&in.rmpc, INLAY_RMPC_STATE, INLAY_WQ_STATE_RDY);
	inlay_wqc_set(&in.rmpc.wq, INLAY_WQC_LWM, limit);
	return inlay_devx_change_(rmp->obj, &in, sizeof(in), &rmp->error);
}

/* Destroys the RMP. Returns 0, or a negative errno: -EBUSY while a QP receives through it. */
INLAY_COLD int inlay_devx_rmp_destroy(struct inlay_devx_rmp *rmp)
{
	INLAY_CHECK(rmp, "no argument is NULL");
	return inlay_devx_shared_destroy_(&rmp->obj, &rmp->srq);
}

#endif
