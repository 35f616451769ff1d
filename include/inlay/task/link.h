/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/link.h: one end of a connection: an RC queue pair, its queues and its address. For
 * hosts and workers, and for plugins with their own connections; set-up only.
 *
 *   link.self.role = INLAY_TASK_HOST; ...                 what self does not get from create
 *   inlay_task_link_create(&link, &caps, &path, &why);    a QP in INIT: post receives now
 *   ... send link.self to the other side ...
 *   inlay_task_link_connect(&link, theirs, len, role, &why);
 *   inlay_task_link_break(&link);                         everything is flushed
 *   inlay_task_link_destroy(&link);
 */
#ifndef INLAY_TASK_LINK_H
#define INLAY_TASK_LINK_H

#include <infiniband/mlx5dv.h>
#include <inlay/verbs.h>
#include <inlay/task/wire.h>

/* What a link needs */
struct inlay_task_caps {
	struct ibv_pd *pd;
	struct ibv_cq *ibcq;            /* of both directions */
	struct inlay_cq *cq;            /* of ibcq, to reserve CQEs in; NULL: the caller keeps count */
	struct inlay_uar *uar;          /* from inlay_uar_create; NULL: the link's own, or else the QP's */
	uint32_t sends;                 /* messages of the greatest length in the send queue */
	uint32_t max_inline;            /* bytes */
	uint32_t max_gather;            /* SGEs of a message besides its inline part */
	uint32_t access;                /* IBV_ACCESS_REMOTE_*: what the peer may do through the QP */
};

/* CQEs for each of `sends`: with what libmlx5 adds, 12 WQEBBs, and a ring that is rounded up. */
#define INLAY_TASK_CQES_ 24u

struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_task_link {
	struct inlay_sq sq;
	struct inlay_rq rq __attribute__((aligned(INLAY_CACHE_LINE)));
	struct inlay_uar own __attribute__((aligned(INLAY_CACHE_LINE)));
	struct ibv_qp *qp;              /* NULL: the queues have no verbs object */
	struct inlay_connect_attr path;
	struct inlay_connect_record at;
	struct inlay_task_address self;
	struct inlay_task_address peer; /* zero until connected */
	uint8_t drained;                /* inlay_task_link_drain_ has posted */
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_task_link, sq) == 0, "a short post touches one line of its queue");

/* Destroys the QP and the link's own register. Returns 0; -EBUSY when one is in use: call again. */
INLAY_COLD int inlay_task_link_destroy(struct inlay_task_link *l)
{
	if (l->qp && ibv_destroy_qp(l->qp))
		return -EBUSY;
	l->qp = NULL;
	inlay_sq_fini(&l->sq);
	inlay_rq_fini(&l->rq);
	return l->own.td && inlay_uar_destroy(&l->own, NULL) ? -EBUSY : 0;
}

/* The negative errno of a verbs call that failed; sets *why. */
INLAY_COLD int inlay_task_errno_(const char **why, const char *text)
{
	return inlay_refuse_(errno ? -errno : -ENOMEM, why, text);
}

/*
 * Makes one end: a QP in INIT, its queues and its address, l->self.
 *
 * l     zeroed, but for role, message, receives (a power of two) and largest of l->self
 * path  copied, with access from caps
 *
 * Returns 0; -EINVAL for a path that is out of range, or without timeout; -ENOTSUP when the device
 * is not mlx5; -ENOSPC when the CQ has too few CQEs left; else an error of inlay_connect_local, or
 * the negative errno of the verbs call that failed.
 */
INLAY_COLD int inlay_task_link_create(struct inlay_task_link *l, const struct inlay_task_caps *caps,
				      const struct inlay_connect_attr *path, const char **why)
{
	struct inlay_uar *uar = caps->uar ? caps->uar : &l->own;
	struct ibv_qp_init_attr_ex init;
	struct mlx5dv_qp_init_attr dv;
	int err = 0;

	if (!path->timeout)
		return inlay_refuse_(-EINVAL, why, "without a timeout a dead peer is never noticed");
	l->path = *path;
	l->path.access = caps->access;
	if (!caps->uar)
		err = inlay_uar_create(uar, caps->pd, INLAY_UAR_SERIAL, why);
	if (err && err != -ENOTSUP)
		return err;
	__builtin_memset(&init, 0, sizeof(init));
	__builtin_memset(&dv, 0, sizeof(dv));
	init.qp_type = IBV_QPT_RC;
	init.comp_mask = IBV_QP_INIT_ATTR_PD;
	init.pd = uar->td ? uar->pd : caps->pd;
	init.send_cq = init.recv_cq = caps->ibcq;
	init.cap.max_inline_data = caps->max_inline;
	init.cap.max_send_sge = caps->max_gather + 1;
	init.cap.max_recv_sge = 1;
	init.cap.max_recv_wr = l->self.receives;
	init.cap.max_send_wr = caps->sends;
	/* No message may be scattered to its CQE. */
	dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
	dv.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
	errno = 0;
	l->qp = mlx5dv_create_qp(caps->pd->context, &init, &dv);
	err = l->qp ? 0 : inlay_task_errno_(why, "mlx5dv_create_qp failed");
	if (!err && !uar->td)
		err = inlay_uar_from_qp(&l->own, l->qp, why);
	if (!err)
		err = inlay_sq_from_qp(&l->sq, l->qp, uar->td ? uar : &l->own, caps->cq, why);
	if (!err)
		err = inlay_rq_from_qp(&l->rq, l->qp, caps->cq, why);
	if (!err)
		err = inlay_connect_local(&l->at, l->qp, &l->path, why);
	if (err) {
		inlay_task_link_destroy(l);
		return err;
	}
	inlay_connect_pack(&l->at, l->self.at);
	inlay_task_address_seal_(&l->self);
	return 0;
}

/*
 * Connects the QP, to RTS, to a peer of this role, by its address. Post receives first.
 *
 * Returns 0; -EBADFD when it was connected before; -EPROTO for less than an address, another magic
 * or version; -EBADMSG for a wrong checksum; -EINVAL for another role, or a field out of range; then
 * nothing has changed. After an error of inlay_connect_rts, destroy the link.
 */
INLAY_COLD int inlay_task_link_connect(struct inlay_task_link *l, const void *blob, size_t len, uint32_t role, const char **why)
{
	struct inlay_connect_record at;
	struct inlay_task_address peer;
	int err;

	if (l->peer.role)
		return inlay_refuse_(-EBADFD, why, "it was connected before");
	err = inlay_task_address_read_(&peer, &at, blob, len, role, why);
	if (!err)
		err = inlay_connect_rts(l->qp, &l->at, &at, &l->path, why);
	if (!err)
		l->peer = peer;
	return err;
}

/* Moves the QP to the error state: everything is flushed. Returns 0 or a negative errno. */
INLAY_COLD int inlay_task_link_break(struct inlay_task_link *l)
{
	struct ibv_qp_attr a;

	__builtin_memset(&a, 0, sizeof(a));
	a.qp_state = IBV_QPS_ERR;
	return -ibv_modify_qp(l->qp, &a, IBV_QP_STATE);
}

/* Posts a NOP whose completion returns all before it, signaled or not. Returns 1 if there was room. */
INLAY_COLD uint8_t inlay_task_link_mark_(struct inlay_task_link *l)
{
	return !inlay_post(&l->sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED | INLAY_RING);
}

/* The same once, behind all else, when the queue has failed: unsignaled WQEs may have no CQE. */
INLAY_COLD void inlay_task_link_drain_(struct inlay_task_link *l)
{
	if (!l->drained)
		l->drained = inlay_task_link_mark_(l);
}

/* Whether all WQEs before `index` are done. An index 2^32 old may briefly look pending. */
INLAY_ALWAYS int inlay_task_link_done_(const struct inlay_task_link *l, uint32_t index)
{
	return inlay_sq_index(&l->sq) - index >= inlay_sq_pending(&l->sq);
}

/* Places an object at *at, and moves *at past it. */
INLAY_COLD void *inlay_task_place_(uintptr_t *at, uint64_t bytes)
{
	uintptr_t begin = *at;

	*at += (uintptr_t)inlay_round_up(bytes, INLAY_CACHE_LINE);
	return (void *)begin;
}

/* A CQ of n CQEs; channel may be NULL. Returns 0 or a negative errno. */
INLAY_COLD int inlay_task_cq_make_(struct inlay_cq *cq, struct ibv_cq **ibcq, struct ibv_comp_channel *channel,
				   struct ibv_pd *pd, uint64_t n, const char **why)
{
	errno = 0;
	*ibcq = ibv_create_cq(pd->context, (int)n, NULL, channel, 0);
	return *ibcq ? inlay_cq_from_cq(cq, *ibcq, why) : inlay_task_errno_(why, "ibv_create_cq failed");
}

INLAY_COLD int inlay_task_cq_free_(struct ibv_cq **ibcq)
{
	if (*ibcq && ibv_destroy_cq(*ibcq))
		return -EBUSY;
	*ibcq = NULL;
	return 0;
}

#endif
