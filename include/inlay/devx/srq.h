/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/srq.h: a shared receive queue made by device commands: an RMP, or with attr.tags an
 * XRQ, which matches tags. srq.srq is a queue of queue/srq.h.
 *
 *   struct inlay_devx_srq_attr attr;
 *   struct inlay_devx_srq srq;
 *
 *   memset(&attr, 0, sizeof(attr));
 *   attr.pdn = pdn;
 *   attr.ring.umem = attr.record.umem = &umem;
 *   attr.record.offset = 256 * 64;                     the ring at 0, the record after it
 *   attr.entries = 256;
 *   attr.stride = 64;                                  one next segment, up to three SGEs
 *   inlay_devx_srq_create(&srq, ctx, &attr);
 *   qp_attr.rq_type = INLAY_RQ_TYPE_SHARED;
 *   qp_attr.srqn = srq.srqn;
 *   ... inlay_post_srq_recv(&srq.srq, &sge, 1, user); inlay_srq_ring(&srq.srq); ...
 *   inlay_devx_srq_destroy(&srq);                      after its QPs
 *
 * Receives of an RMP complete to the CQs of its QPs. With INLAY_DEVX_SRQ_STRIDING, srq.striding is
 * a queue of queue/striding.h, of the shape attr.strides.
 *
 * An XRQ takes the messages that match no tag:
 *
 *   attr.cq = &cq.cq;
 *   attr.tags = 1024;
 *   inlay_devx_srq_create(&srq, ctx, &attr);
 *   qp_attr.send_cq = qp_attr.recv_cq = &cq.cq;        the command QP; srqn as above
 *   inlay_devx_qp_create(&command, ctx, &qp_attr);
 *   inlay_devx_qp_address(&command, &path, &mine);
 *   inlay_devx_qp_connect(&command, &path, &mine);     its own peer
 *   ... tag.h ...
 *
 * The command QP, whose WQEs add and remove tags, is an RC QP on this XRQ, its own peer, with the
 * XRQ's CQ on both sides. With INLAY_DEVX_SRQ_RNDV the device itself reads what a rendezvous
 * announces, on a second QP of each connection, made with INLAY_DEVX_QP_RNDV.
 *
 * Threads: the queue as queue/srq.h; all else as device commands.
 * Sources: Linux, infiniband/hw/mlx5/srq_cmd.c; UCX's rc_mlx5_devx.c (a cyclic RMP, an XRQ);
 * rdma-core's Documentation/tag_matching.md.
 */
#ifndef INLAY_DEVX_SRQ_H
#define INLAY_DEVX_SRQ_H /* a trial: names may change */

#include <inlay/devx/call.h>
#include <inlay/devx/ifc.h>
#include <inlay/devx/umem.h>
#include <inlay/queue/srq.h>
#include <inlay/queue/striding.h>

enum inlay_devx_srq_flags {
	INLAY_DEVX_SRQ_CYCLIC = 1,   /* posted and taken in order: queue/srq.h */
	INLAY_DEVX_SRQ_STRIDING = 2, /* each entry takes many messages or packets: queue/striding.h */
	INLAY_DEVX_SRQ_RNDV = 4,     /* XRQ: rendezvous offload; needs rndv_offload_rc, with DCTs rndv_offload_dc */
	INLAY_DEVX_SRQ_DC = 8        /* XRQ: serves DCTs */
};

/* What to create. Zero it first. */
struct inlay_devx_srq_attr {
	struct inlay_devx_place ring;   /* entries * stride bytes */
	struct inlay_devx_place record; /* 8 bytes, of which the first 4 are used */
	struct inlay_cq *cq;            /* reserves a CQE per entry or stride. NULL: the caller reserves them */
	uint32_t pdn;                   /* 24 bits */
	uint32_t entries;               /* a power of two, 2 .. 32768, of which one is never posted */
	uint32_t stride;                /* bytes of an entry, a power of two, 32 .. 1024: 16, and 16 per SGE */
	uint32_t flags;                 /* enum inlay_devx_srq_flags */
	struct inlay_strides strides;   /* of a striding queue; log_number 3 .. 16 */
	uint32_t tags;                  /* XRQ: of its list, 1 .. INLAY_TAG_MAX. 0: an RMP */
	uint32_t cqn;                   /* XRQ: CQ of its messages and list operations, if cq is NULL */
	uint32_t user_index;            /* XRQ: in its CQEs, 24 bits */
};

/* The queue and its object. */
struct inlay_devx_srq {
	union {
		struct inlay_srq srq;
		struct inlay_striding_srq striding; /* with INLAY_DEVX_SRQ_STRIDING */
	};
	struct mlx5dv_devx_obj *obj;   /* NULL if not created */
	uint32_t srqn;                 /* the number of the RMP or XRQ */
	uint32_t log_list;             /* XRQ: log2 of the device's list: twice the tags, rounded up. RMP: 0 */
	struct inlay_devx_error error; /* of the last call on it */
};

/* Fills in a zeroed work queue. strides: NULL unless it is a striding one. */
INLAY_COLD void inlay_devx_wqc_(struct inlay_wqc *wq, uint32_t type, struct inlay_devx_place ring,
				struct inlay_devx_place record, uint32_t pdn, uint32_t entries, uint32_t stride,
				const struct inlay_strides *strides)
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
	inlay_wqc_set(wq, INLAY_WQC_PD, pdn);
	inlay_wqc_set(wq, INLAY_WQC_LOG_WQ_SZ, inlay_log2_ceil(entries));
	inlay_wqc_set(wq, INLAY_WQC_LOG_WQ_STRIDE, inlay_log2_ceil(stride));
}

/* Checks the attributes; initialises queue, ring and record; reserves the CQEs. */
INLAY_COLD int inlay_devx_srq_init_(struct inlay_devx_srq *srq, const struct inlay_devx_srq_attr *attr)
{
	uint32_t striding = attr->flags & INLAY_DEVX_SRQ_STRIDING, *record;
	size_t bytes = inlay_devx_ring_(attr->entries, 2, 32768, attr->stride, 2 * INLAY_DS, 1024);
	const char **why = &srq->error.why;
	uint8_t *ring;
	int err;

	*why = inlay_devx_places_(attr->ring, bytes, attr->record, &ring, &record);
	if (!bytes || (attr->pdn | attr->cqn | attr->user_index) >> 24 || attr->flags > 15 ||
	    (striding && (attr->strides.log_number < 3 || !inlay_strides_ok_(&attr->strides))))
		*why = "an impossible number or size of entries or strides, a number of more than 24 bits, or a flag";
	if (attr->tags > INLAY_TAG_MAX || (!attr->tags && (attr->flags > 3 || attr->cqn || attr->user_index)))
		*why = "too many tags, or attributes of an XRQ without tags";
	if (*why)
		return -EINVAL;
	record[1] = 0;
	err = attr->flags & INLAY_DEVX_SRQ_CYCLIC ?
		      inlay_srq_init_cyclic(&srq->srq, ring, attr->entries, attr->stride, record) :
		      inlay_srq_init(&srq->srq, ring, attr->entries, attr->stride, record);
	if (!err && striding)
		err = inlay_striding_srq_init(&srq->striding, &attr->strides);
	if (!err && attr->cq)
		err = striding ? inlay_striding_srq_reserve_(&srq->striding, attr->cq, why) :
				 inlay_srq_reserve_(&srq->srq, attr->cq, why);
	return err;
}

/*
 * Creates an RMP or XRQ, and initialises ring and record. Returns 0; -EINVAL for an impossible
 * attribute, ring or record (devx/umem.h); -ENOSPC when the CQ has too few CQEs left; else the
 * negative errno of CREATE_RMP or CREATE_XRQ, also from a device without tag matching or with a
 * shorter list. On failure srq->obj is NULL.
 */
INLAY_COLD int inlay_devx_srq_create(struct inlay_devx_srq *srq, struct ibv_context *ctx,
				     const struct inlay_devx_srq_attr *attr)
{
	union {
		struct inlay_create_rmp_in rmp;
		struct inlay_create_xrq_in xrq;
	} in;
	int err;

	INLAY_CHECK(srq && ctx && attr, "no argument is NULL");
	__builtin_memset(srq, 0, sizeof(*srq));
	err = inlay_devx_srq_init_(srq, attr);
	if (err)
		return inlay_devx_refuse_(&srq->error, err, srq->error.why);
	inlay_devx_inbox_(&in, sizeof(in), attr->tags ? INLAY_CMD_OP_CREATE_XRQ : INLAY_CMD_OP_CREATE_RMP, 0);
	inlay_devx_wqc_(attr->tags ? &in.xrq.xrqc.wq : &in.rmp.rmpc.wq,
			attr->flags & INLAY_DEVX_SRQ_CYCLIC ? INLAY_WQ_CYCLIC : INLAY_WQ_LINKED_LIST, attr->ring,
			attr->record, attr->pdn, attr->entries, attr->stride,
			attr->flags & INLAY_DEVX_SRQ_STRIDING ? &attr->strides : NULL);
	if (attr->tags) {
		srq->log_list = inlay_log2_ceil(attr->tags) + 1;
		inlay_xrqc_set(&in.xrq.xrqc, INLAY_XRQC_TOPOLOGY, INLAY_XRQ_TOPOLOGY_TAG_MATCHING);
		inlay_xrqc_set(&in.xrq.xrqc, INLAY_XRQC_OFFLOAD,
			       attr->flags & INLAY_DEVX_SRQ_RNDV ? INLAY_XRQ_OFFLOAD_RNDV : INLAY_XRQ_OFFLOAD_NONE);
		inlay_xrqc_set(&in.xrq.xrqc, INLAY_XRQC_DC, !!(attr->flags & INLAY_DEVX_SRQ_DC));
		inlay_xrqc_set(&in.xrq.xrqc, INLAY_XRQC_USER_INDEX, attr->user_index);
		inlay_xrqc_set(&in.xrq.xrqc, INLAY_XRQC_CQN, attr->cq ? inlay_cq_cqn(attr->cq) : attr->cqn);
		inlay_xrqc_set(&in.xrq.xrqc, INLAY_XRQC_LOG_MATCHING_LIST_SZ, srq->log_list);
	} else {
		inlay_rmpc_set(&in.rmp.rmpc, INLAY_RMPC_STATE, INLAY_WQ_STATE_RDY);
	}
	err = inlay_devx_make_(ctx, &in, attr->tags ? sizeof(in.xrq) : sizeof(in.rmp), &srq->obj, &srq->srqn,
			       &srq->error);
	if (err)
		inlay_srq_fini(&srq->srq);
	return err;
}

/*
 * Arms one INLAY_EVENT_SRQ_RQ_LIMIT of this object for when fewer than `limit` entries are posted,
 * now or later. 0 disarms. Returns 0; -EINVAL without an object or for a limit of `entries` or
 * more; or the negative errno of MODIFY_RMP or ARM_XRQ.
 */
INLAY_COLD int inlay_devx_srq_arm(struct inlay_devx_srq *srq, uint32_t limit)
{
	union {
		struct inlay_create_rmp_in rmp;
		struct inlay_cmd_in xrq;
	} in;

	INLAY_CHECK(srq, "no argument is NULL");
	if (srq->obj && limit > inlay_srq_size(&srq->srq))
		return inlay_devx_refuse_(&srq->error, -EINVAL, "the limit is above inlay_srq_size()");
	inlay_devx_inbox_(&in, sizeof(in), srq->log_list ? INLAY_CMD_OP_ARM_XRQ : INLAY_CMD_OP_MODIFY_RMP, srq->srqn);
	if (srq->log_list) {
		inlay_cmd_in_set(&in.xrq, INLAY_CMD_IN_LWM, limit);
		return inlay_devx_change_(srq->obj, &in, sizeof(in.xrq), &srq->error);
	}
	inlay_create_rmp_in_set(&in.rmp, INLAY_CREATE_RMP_IN_RMP_STATE, INLAY_WQ_STATE_RDY);
	inlay_create_rmp_in_set(&in.rmp, INLAY_CREATE_RMP_IN_BITMASK_LWM, 1);
	inlay_rmpc_set(&in.rmp.rmpc, INLAY_RMPC_STATE, INLAY_WQ_STATE_RDY);
	inlay_wqc_set(&in.rmp.rmpc.wq, INLAY_WQC_LWM, limit);
	return inlay_devx_change_(srq->obj, &in, sizeof(in.rmp), &srq->error);
}

/*
 * Destroys the queue, and gives back its reserved CQEs. Returns 0, or a negative errno: -EBUSY
 * while a QP or DCT receives through it.
 */
INLAY_COLD int inlay_devx_srq_destroy(struct inlay_devx_srq *srq)
{
	int err;

	INLAY_CHECK(srq, "no argument is NULL");
	err = inlay_devx_drop_(&srq->obj);
	if (!err)
		inlay_srq_fini(&srq->srq);
	return err;
}

#endif
