/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/xrq.h: a shared receive queue with tag matching (XRQ), made by device commands.
 * xrq.srq, a queue of queue/srq.h, takes the messages that match no tag.
 *
 *   struct inlay_devx_xrq_attr attr;
 *   struct inlay_devx_xrq xrq;
 *
 *   memset(&attr, 0, sizeof(attr));
 *   attr.shared.pdn = pdn;                               ring, record, entries, stride: as in rmp.h
 *   attr.shared.cq = &cq.cq;
 *   attr.tags = 1024;
 *   inlay_devx_xrq_create(&xrq, ctx, &attr);
 *
 *   qp_attr.rq_type = INLAY_RQ_TYPE_SHARED;              the command QP
 *   qp_attr.srqn = xrq.xrqn;
 *   qp_attr.send_cq = qp_attr.recv_cq = &cq.cq;
 *   inlay_devx_qp_create(&command, ctx, &qp_attr);
 *   inlay_devx_qp_connect_self(&command, &path);
 *   ... tag.h ...
 *   inlay_devx_xrq_destroy(&xrq);                        after its QPs
 *
 * The command QP, whose WQEs add and remove tags, is an RC QP on this XRQ, its own peer, with the
 * XRQ's CQ on both sides. With INLAY_DEVX_XRQ_RNDV the device itself reads what a rendezvous
 * announces, on a second QP of each connection, made with INLAY_DEVX_QP_RNDV.
 *
 * Threads: the queue as queue/srq.h; all else as device commands.
 * Sources: devx/ifc/srq.h; UCX's rc_mlx5_devx.c; rdma-core's Documentation/tag_matching.md.
 */
#ifndef INLAY_DEVX_XRQ_H
#define INLAY_DEVX_XRQ_H

#include <inlay/devx/ifc/srq.h>
#include <inlay/devx/rmp.h>

enum inlay_devx_xrq_flags {
	INLAY_DEVX_XRQ_RNDV = 1, /* rendezvous offload; needs rndv_offload_rc, with DCTs rndv_offload_dc */
	INLAY_DEVX_XRQ_DC = 2    /* serves DCTs */
};

/* What to create. Zero it first. */
struct inlay_devx_xrq_attr {
	struct inlay_devx_rmp_attr shared; /* the queue of unexpected messages; its size: inlay_devx_rmp_size */
	uint32_t cqn;                      /* CQ of these and of list operations, if shared.cq is NULL */
	uint32_t tags;                     /* of the list, 1 .. INLAY_TAG_MAX */
	uint32_t user_index;               /* in the CQEs of this queue, 24 bits */
	uint32_t flags;                    /* enum inlay_devx_xrq_flags */
};

/* The queue and its object. */
struct inlay_devx_xrq {
	union {
		struct inlay_srq srq;
		struct inlay_striding_srq striding; /* as in rmp.h */
	};
	struct mlx5dv_devx_obj *obj;   /* NULL: there is none */
	uint32_t xrqn;
	uint32_t log_list;             /* log2 of the device's list: twice the tags, rounded up */
	struct inlay_devx_error error; /* of the last call on it */
};

/*
 * Creates an XRQ, and initialises ring and record. Returns 0; -EINVAL for an impossible attribute,
 * ring or record (devx/umem.h); -ENOSPC when the CQ has too few CQEs left; else the negative errno
 * of CREATE_XRQ, also from a device without tag matching or with a shorter list. On failure
 * xrq->obj is NULL.
 */
INLAY_COLD int inlay_devx_xrq_create(struct inlay_devx_xrq *xrq, struct ibv_context *ctx,
				     const struct inlay_devx_xrq_attr *attr)
{
	uint32_t all = INLAY_DEVX_XRQ_RNDV | INLAY_DEVX_XRQ_DC;
	struct inlay_create_xrq_in in;
	int err;

	INLAY_CHECK(xrq && ctx && attr, "no argument is NULL");
	__builtin_memset(xrq, 0, sizeof(*xrq));
	if (!attr->tags || attr->tags > INLAY_TAG_MAX || (attr->user_index | attr->cqn) >> 24 || attr->flags & ~all)
		return inlay_devx_refuse_(&xrq->error, -EINVAL, "impossible tags, CQ number, user index or flag");
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_CREATE_XRQ, 0);
	err = inlay_devx_shared_(&in.xrqc.wq, &xrq->striding, &attr->shared, &xrq->error);
	if (err)
		return err;
	xrq->log_list = inlay_log2_ceil(attr->tags) + 1;
	inlay_xrqc_set(&in.xrqc, INLAY_XRQC_TOPOLOGY, INLAY_XRQ_TOPOLOGY_TAG_MATCHING);
	inlay_xrqc_set(&in.xrqc, INLAY_XRQC_OFFLOAD,
		       attr->flags & INLAY_DEVX_XRQ_RNDV ? INLAY_XRQ_OFFLOAD_RNDV : INLAY_XRQ_OFFLOAD_NONE);
	inlay_xrqc_set(&in.xrqc, INLAY_XRQC_DC, !!(attr->flags & INLAY_DEVX_XRQ_DC));
	inlay_xrqc_set(&in.xrqc, INLAY_XRQC_USER_INDEX, attr->user_index);
	inlay_xrqc_set(&in.xrqc, INLAY_XRQC_CQN, attr->shared.cq ? inlay_cq_cqn(attr->shared.cq) : attr->cqn);
	inlay_xrqc_set(&in.xrqc, INLAY_XRQC_LOG_MATCHING_LIST_SZ, xrq->log_list);
	err = inlay_devx_make_(ctx, &in, sizeof(in), &xrq->obj, &xrq->xrqn, &xrq->error);
	if (err)
		inlay_srq_fini(&xrq->srq);
	return err;
}

/* Arms the limit, and returns, as inlay_devx_rmp_arm; the command is ARM_XRQ. */
INLAY_COLD int inlay_devx_xrq_arm(struct inlay_devx_xrq *xrq, uint32_t limit)
{
	struct inlay_cmd_in in;

	INLAY_CHECK(xrq, "no argument is NULL");
	if (xrq->obj && limit > inlay_srq_size(&xrq->srq))
		return inlay_devx_refuse_(&xrq->error, -EINVAL, "the limit is above inlay_srq_size()");
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_ARM_XRQ, xrq->xrqn);
	inlay_cmd_in_set(&in, INLAY_CMD_IN_LWM, limit);
	return inlay_devx_change_(xrq->obj, &in, sizeof(in), &xrq->error);
}

/* Destroys the XRQ. Returns 0, or a negative errno: -EBUSY while a QP or DCT uses it. */
INLAY_COLD int inlay_devx_xrq_destroy(struct inlay_devx_xrq *xrq)
{
	INLAY_CHECK(xrq, "no argument is NULL");
	return inlay_devx_shared_destroy_(&xrq->obj, &xrq->srq);
}

#endif
