/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/verbs.h: takes over queues made with libibverbs, and makes doorbell registers for them. Set-up only; calls libibverbs and libmlx5.
 *
 *   struct inlay_uar uar;  struct inlay_sq sq;  struct inlay_cq cq;
 *
 *   inlay_uar_create(&uar, pd, INLAY_UAR_EXCLUSIVE);   a register of the queue's own
 *   attr.send_cq = attr.recv_cq = ibcq;
 *   qp = ibv_create_qp(uar.pd, &attr);                 note the PD: it carries the register
 *   ... ibv_modify_qp to RTS as ever ...
 *   inlay_sq_from_qp(&sq, qp, &uar);
 *   inlay_cq_from_cq(&cq, ibcq);
 *   ...
 *   ibv_destroy_qp(qp);  inlay_sq_fini(&sq);  inlay_uar_destroy(&uar);   down again; the first two in any order, who posts no more
 *
 * Likewise inlay_rq_from_qp, inlay_rq_from_wq, inlay_srq_from_srq; inlay_av_from_ah makes of an address handle what a datagram's WQE says.
 *
 * What taking over means. From then on the caller posts and polls through inlay alone: libmlx5 keeps counters of its own for each queue,
 * which nobody can see or set, and the first ibv_post_send or ibv_poll_cq after a take-over writes over what inlay wrote. The
 * verbs objects stay the caller's: modify, query and destroy them as ever. Send queue, receive queue and CQ of one QP are
 * taken over one by one: the receive side may stay with ibv_post_recv, as long as its CQ is not taken over.
 *
 * After an error the queues need not be taken over anew: see queue.h.
 *
 * What is refused is what can be seen: a device that is not mlx5, a queue of a kind or size that inlay does not know, a queue already
 * posted to, a CQ already used, sq_sig_all (it is libmlx5 that sets the bit in each WQE; inlay signals what is posted with
 * INLAY_SIGNALED), atomics on a device that has none. What cannot be seen, and is the caller's to get right:
 *   - Compressed CQEs: a CQ made with MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE must not be taken over.
 *   - WQE signatures (mlx5dv's or the environment's MLX5_QP_SIGNATURE): the device would reject unsigned WQEs.
 *   - An SRQ whose receives complete to a CQ that libmlx5 still polls: it would give entries back to a list that is not its own any more.
 *   - ibv_req_notify_cq: it arms with libmlx5's own count of what was polled; inlay_cq_arm does it.
 *   - Counters that have come round: a queue posted to exactly 65,536 times looks fresh.
 *   - A CQ shared with queues that libmlx5 still posts to: their credit comes back only through ibv_poll_cq.
 *   - A register's other users: every QP created in uar->pd must be taken over through this uar, or its post by libmlx5 copies into a
 *     register that inlay holds for its own.
 *   - ibv_resize_cq: a CQ is not resized, neither before it is taken over nor after.
 *   - MLX5_SHUT_UP_BF in the environment: libmlx5 then copies no WQEs; inlay does not look, and copies into a register made for it.
 *   - Scatter to CQE: small payloads come in the CQE unless the QP was made with MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE; see cqe.h.
 *
 * A CQ that was taken over is no longer cleaned by libmlx5 when a QP is reset or destroyed: call inlay_cq_clean (queue.h) with its number.
 *
 * Threads: as the verbs that each function calls; the objects filled belong to the caller.
 * Sources: mlx5dv_init_obj(3), mlx5dv_query_device(3), ibv_alloc_td(3), ibv_alloc_parent_domain(3), ibv_query_qp(3); libmlx5's mlx5.c.
 */
#ifndef INLAY_VERBS_H
#define INLAY_VERBS_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/queue.h>

/*
 * Makes a doorbell register: a thread domain and a parent domain over pd, so that a QP created in uar->pd gets a register that libmlx5
 * hands to no QP outside. The register itself is known when inlay_sq_from_qp attaches the first QP.
 *
 * mode  INLAY_UAR_EXCLUSIVE for one queue, INLAY_UAR_LOCKED for several; with INLAY_UAR_DOORBELL it is merely apart from others
 *
 * Returns 0; -EINVAL for a mode that cannot be; -ENOTSUP when pd's device is not mlx5, or cannot map such a register (some virtual
 * machines: inlay_uar_from_qp then serves); else the negative errno of ibv_alloc_td or ibv_alloc_parent_domain. On failure
 * nothing is left behind.
 */
INLAY_COLD int inlay_uar_create(struct inlay_uar *uar, struct ibv_pd *pd, uint32_t mode)
{
	struct ibv_parent_domain_init_attr parent;
	struct ibv_td_init_attr attr;
	int err;

	if (mode > INLAY_UAR_LOCKED)
		return -EINVAL;
	if (!mlx5dv_is_supported(pd->context->device))
		return -ENOTSUP;
	__builtin_memset(uar, 0, sizeof(*uar));
	__builtin_memset(&attr, 0, sizeof(attr));
	uar->mode = mode;
	uar->td = ibv_alloc_td(pd->context, &attr);
	if (!uar->td)
		return errno ? -errno : -ENOMEM;
	__builtin_memset(&parent, 0, sizeof(parent));
	parent.pd = pd;
	parent.td = uar->td;
	uar->pd = ibv_alloc_parent_domain(pd->context, &parent);
	if (!uar->pd) {
		err = errno ? -errno : -ENOMEM;
		ibv_dealloc_td(uar->td);
		uar->td = NULL;
		return err;
	}
	return 0;
}

/*
 * Frees what inlay_uar_create made. Destroy the QPs in uar->pd and inlay_sq_fini their queues first.
 *
 * Returns 0; -EBUSY when a queue or a QP is left (then nothing is freed, and it may be called again); -EINVAL for a register not made by
 * inlay_uar_create.
 */
INLAY_COLD int inlay_uar_destroy(struct inlay_uar *uar)
{
	int err;

	if (!uar->td)
		return -EINVAL;
	if (uar->queues)
		return -EBUSY;
	if (uar->pd) {
		err = ibv_dealloc_pd(uar->pd);
		if (err)
			return -err;
		uar->pd = NULL;
	}
	err = ibv_dealloc_td(uar->td);
	if (err)
		return -err;
	__builtin_memset(uar, 0, sizeof(*uar));
	return 0;
}

/*
 * mlx5dv_init_obj for an object of this context. Returns 0; -ENOTSUP when it is not of an mlx5 device; else mlx5dv_init_obj's negative
 * errno.
 */
INLAY_COLD int inlay_dv_init(struct ibv_context *context, struct mlx5dv_obj *obj, uint64_t type)
{
	if (!mlx5dv_is_supported(context->device))
		return -ENOTSUP;
	return -mlx5dv_init_obj(obj, type);
}

/* mlx5dv's view of a QP. Returns what inlay_dv_init does, and -ENOTSUP for a type of QP that inlay does not know. */
INLAY_COLD int inlay_dv_qp(struct ibv_qp *qp, struct mlx5dv_qp *dv)
{
	struct mlx5dv_obj obj;

	if (qp->qp_type != IBV_QPT_RC && qp->qp_type != IBV_QPT_UC && qp->qp_type != IBV_QPT_UD)
		return -ENOTSUP;
	__builtin_memset(&obj, 0, sizeof(obj));
	__builtin_memset(dv, 0, sizeof(*dv));
	obj.qp.in = qp;
	obj.qp.out = dv;
	return inlay_dv_init(qp->context, &obj, MLX5DV_OBJ_QP);
}

/*
 * Describes the doorbell register that libmlx5 gave a QP, in memory that all queues on this register may share. QPs of one context share
 * such registers freely, so the mode is INLAY_UAR_DOORBELL, the one that is right whoever else rings it. For BlueFlame see
 * inlay_uar_create; who made a thread domain by other means describes its register with inlay_uar_init.
 *
 * Returns 0; -ENOTSUP for a QP that is not an RC, UC or UD QP of an mlx5 device; -EINVAL for a register that cannot be; else the negative
 * errno of mlx5dv_init_obj.
 */
INLAY_COLD int inlay_uar_from_qp(struct inlay_uar *uar, struct ibv_qp *qp)
{
	struct mlx5dv_qp dv;
	int err = inlay_dv_qp(qp, &dv);

	return err ? err : inlay_uar_init(uar, dv.bf.reg, dv.bf.size, INLAY_UAR_DOORBELL);
}

/*
 * Takes over the send queue of an RC, UC or UD QP that nothing has been posted to since its creation or reset.
 *
 * uar  from inlay_uar_from_qp for this QP or one on the same register, or from inlay_uar_create for a QP created in uar->pd
 *
 * Returns 0; -ENOTSUP for a QP that is of another kind or not of an mlx5 device, has sq_sig_all, or a ring that inlay does not know; -EBUSY
 * when the send queue was posted to or the register is exclusive and has a queue; -EINVAL when the QP rings another register than uar's,
 * was not created in uar->pd, or has no send queue; else the negative errno of ibv_query_qp or ibv_query_device. On failure sq and uar are
 * as they were.
 */
INLAY_COLD int inlay_sq_from_qp(struct inlay_sq *sq, struct ibv_qp *qp, struct inlay_uar *uar)
{
	struct ibv_qp_init_attr init;
	struct ibv_device_attr device;
	struct ibv_qp_attr attr;
	struct inlay_uar reg;
	struct mlx5dv_qp dv;
	uint32_t fixed_ds, inline_ds, sge_ds, max_ds;
	int err = inlay_dv_qp(qp, &dv);

	if (err)
		return err;
	if (!dv.sq.wqe_cnt)
		return -EINVAL;
	if (dv.sq.stride != INLAY_WQEBB)
		return -ENOTSUP;
	if (dv.dbrec[MLX5_SND_DBR])
		return -EBUSY;
	if (uar->td && qp->pd != uar->pd)
		return -EINVAL;
	err = inlay_uar_init(&reg, dv.bf.reg, dv.bf.size, uar->mode);
	if (err)
		return err;
	if (uar->reg && uar->reg != reg.reg)
		return -EINVAL;
	err = ibv_query_qp(qp, &attr, IBV_QP_CAP, &init);
	if (!err)
		err = ibv_query_device(qp->context, &device);
	if (err)
		return -err;
	if (init.sq_sig_all)
		return -ENOTSUP;
	/*
	 * The longest WQE as libmlx5 sizes it: control and address vector, or control, remote address and (RC) atomic segment; then the
	 * longer of both payloads.
	 */
	fixed_ds = qp->qp_type == IBV_QPT_UD ? 4 : qp->qp_type == IBV_QPT_UC ? 2 : 3;
	inline_ds = fixed_ds + (init.cap.max_inline_data + 4 + INLAY_DS - 1) / INLAY_DS;
	sge_ds = fixed_ds + init.cap.max_send_sge;
	max_ds = inline_ds > sge_ds ? inline_ds : sge_ds;
	if (max_ds > INLAY_MAX_DS)
		max_ds = INLAY_MAX_DS;
	if (!uar->reg) {
		/* A register of inlay_uar_create shows itself with its first QP. */
		reg.td = uar->td;
		reg.pd = uar->pd;
	}
	err = inlay_sq_init(sq, dv.sq.buf, dv.sq.wqe_cnt, (volatile uint32_t *)dv.dbrec, qp->qp_num, max_ds, uar->reg ? uar : &reg);
	if (err)
		return err;
	if (!uar->reg)
		*uar = reg;
	sq->uar = uar;
	sq->atomics = device.atomic_cap != IBV_ATOMIC_NONE && qp->qp_type == IBV_QPT_RC;
	sq->type = qp->qp_type;
	return 0;
}

/*
 * Takes over the receive queue of an RC, UC or UD QP that nothing has been posted to since its creation or reset.
 *
 * Returns 0; -ENOTSUP for a QP that is of another kind or not of an mlx5 device; -EBUSY when the queue was posted to; -EINVAL when the QP
 * has no receive queue of its own (none, or an SRQ); else the negative errno of mlx5dv_init_obj.
 */
INLAY_COLD int inlay_rq_from_qp(struct inlay_rq *rq, struct ibv_qp *qp)
{
	struct mlx5dv_qp dv;
	int err = inlay_dv_qp(qp, &dv);

	if (err)
		return err;
	if (!dv.rq.wqe_cnt || qp->srq)
		return -EINVAL;
	if (dv.dbrec[MLX5_RCV_DBR])
		return -EBUSY;
	return inlay_rq_init(rq, dv.rq.buf, dv.rq.wqe_cnt, dv.rq.stride, (volatile uint32_t *)dv.dbrec);
}

/*
 * Takes over the ring of a WQ (ibv_create_wq) that nothing has been posted to since its creation or reset. A WQ with striding
 * (mlx5dv_create_wq) has entries of another form, and must not be taken over. Post once it is in RDY: see rq.h.
 *
 * Returns 0; -ENOTSUP when it is not of an mlx5 device; -EBUSY when it was posted to; -EINVAL for a ring that inlay does not know; else the
 * negative errno of mlx5dv_init_obj.
 */
INLAY_COLD int inlay_rq_from_wq(struct inlay_rq *rq, struct ibv_wq *wq)
{
	struct mlx5dv_rwq dv;
	struct mlx5dv_obj obj;
	int err;

	__builtin_memset(&obj, 0, sizeof(obj));
	__builtin_memset(&dv, 0, sizeof(dv));
	obj.rwq.in = wq;
	obj.rwq.out = &dv;
	err = inlay_dv_init(wq->context, &obj, MLX5DV_OBJ_RWQ);
	if (err)
		return err;
	if (dv.dbrec[0])
		return -EBUSY;
	return inlay_rq_init(rq, dv.buf, dv.wqe_cnt, dv.stride, (volatile uint32_t *)dv.dbrec);
}

/*
 * Takes over a basic shared receive queue that nothing has been posted to, and with it goes each CQ that its receives complete to
 * (inlay_cq_from_cq): srq.h says why. One with tag matching, or with a doorbell record that has come round
 * after 65,536 posts, cannot be told from it. WQE signatures (MLX5_SRQ_SIGNATURE in the environment) are not seen either.
 *
 * libmlx5 keeps further entries in the same ring, for receives that meet a page fault of on-demand paging and are posted again. It
 * does that while polling; inlay does not, so that with IBV_ACCESS_ON_DEMAND memory such a receive ends in an error CQE.
 *
 * Returns 0; -ENOTSUP when it is not of an mlx5 device or has a ring that inlay does not know; -EBUSY when it was posted to; else the
 * negative errno of mlx5dv_init_obj.
 */
INLAY_COLD int inlay_srq_from_srq(struct inlay_srq *srq, struct ibv_srq *ibsrq)
{
	struct mlx5dv_srq dv;
	struct mlx5dv_obj obj;
	int err;

	__builtin_memset(&obj, 0, sizeof(obj));
	__builtin_memset(&dv, 0, sizeof(dv));
	obj.srq.in = ibsrq;
	obj.srq.out = &dv;
	err = inlay_dv_init(ibsrq->context, &obj, MLX5DV_OBJ_SRQ);
	if (err)
		return err;
	if (dv.dbrec[0] || dv.head)
		return -EBUSY;
	/* The free list of a fresh SRQ runs from entry 0 to the tail, one by one; behind it lie libmlx5's further entries. */
	err = inlay_srq_init(srq, dv.buf, dv.tail + 1, dv.stride, (volatile uint32_t *)dv.dbrec);
	return err == -EINVAL ? -ENOTSUP : err;
}

/*
 * Makes the address vector of datagrams to a peer: path from the address handle, of which nothing is needed afterwards; qpn and qkey of
 * the peer as inlay_av_init has them.
 *
 * Returns 0; -ENOTSUP when the handle is not of an mlx5 device; else the negative errno of mlx5dv_init_obj.
 */
INLAY_COLD int inlay_av_from_ah(struct inlay_av *av, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct mlx5dv_ah dv;
	struct mlx5dv_obj obj;
	int err;

	__builtin_memset(&obj, 0, sizeof(obj));
	__builtin_memset(&dv, 0, sizeof(dv));
	obj.ah.in = ah;
	obj.ah.out = &dv;
	err = inlay_dv_init(ah->context, &obj, MLX5DV_OBJ_AH);
	if (err)
		return err;
	inlay_av_init(av, dv.av, qpn, qkey);
	return 0;
}

/*
 * The number by which device commands and memory key contexts know a PD.
 *
 * Returns 0; -ENOTSUP when the PD is not of an mlx5 device; else the negative errno of mlx5dv_init_obj.
 */
INLAY_COLD int inlay_pdn_from_pd(uint32_t *pdn, struct ibv_pd *pd)
{
	struct mlx5dv_pd dv;
	struct mlx5dv_obj obj;
	int err;

	__builtin_memset(&obj, 0, sizeof(obj));
	__builtin_memset(&dv, 0, sizeof(dv));
	obj.pd.in = pd;
	obj.pd.out = &dv;
	err = inlay_dv_init(pd->context, &obj, MLX5DV_OBJ_PD);
	if (!err)
		*pdn = dv.pdn;
	return err;
}

/*
 * The number by which device commands know an SRQ, and QPs made by them receive through it.
 *
 * Returns 0; -ENOTSUP when the SRQ is not of an mlx5 device; else the negative errno of mlx5dv_init_obj.
 */
INLAY_COLD int inlay_srqn_from_srq(uint32_t *srqn, struct ibv_srq *srq)
{
	struct mlx5dv_srq dv;
	struct mlx5dv_obj obj;
	int err;

	__builtin_memset(&obj, 0, sizeof(obj));
	__builtin_memset(&dv, 0, sizeof(dv));
	dv.comp_mask = MLX5DV_SRQ_MASK_SRQN;
	obj.srq.in = srq;
	obj.srq.out = &dv;
	err = inlay_dv_init(srq->context, &obj, MLX5DV_OBJ_SRQ);
	if (!err)
		*srqn = dv.srqn;
	return err;
}

/*
 * Takes over a CQ that no completion has come to. Do it before its QPs are posted to.
 *
 * Returns 0; -ENOTSUP when it is not of an mlx5 device or its CQEs are neither 64 nor 128 bytes long; -EBUSY when a completion has been
 * there; -EINVAL for a ring that inlay does not know; else the negative errno of mlx5dv_init_obj.
 *
 * mlx5dv_init_obj marks the CQ as taken over even when inlay then refuses it with -EBUSY or -ENOTSUP: libmlx5 goes on polling it but no
 * longer cleans it when a QP is destroyed.
 */
INLAY_COLD int inlay_cq_from_cq(struct inlay_cq *cq, struct ibv_cq *ibcq)
{
	struct mlx5dv_obj obj;
	struct mlx5dv_cq dv;
	uint32_t i;
	int err;

	__builtin_memset(&obj, 0, sizeof(obj));
	__builtin_memset(&dv, 0, sizeof(dv));
	obj.cq.in = ibcq;
	obj.cq.out = &dv;
	err = inlay_dv_init(ibcq->context, &obj, MLX5DV_OBJ_CQ);
	if (err)
		return err;
	if (dv.cqe_size != 64 && dv.cqe_size != 128)
		return -ENOTSUP;
	for (i = 0; i < dv.cqe_cnt; i++) {
		const uint8_t *slot = (const uint8_t *)dv.buf + (size_t)i * dv.cqe_size + (dv.cqe_size - 64);

		if (slot[63] >> 4 != MLX5_CQE_INVALID)
			return -EBUSY;
	}
	return inlay_cq_init(cq, dv.buf, dv.cqe_cnt, dv.cqe_size, (volatile uint32_t *)dv.dbrec, dv.cq_uar, dv.cqn);
}

#endif
