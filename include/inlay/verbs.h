/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/verbs.h: takes over queues made with libibverbs and makes doorbell registers for them.
 * Set-up only.
 *
 *   struct inlay_uar uar;  struct inlay_cq cq;  struct inlay_sq sq;  const char *why;
 *
 *   inlay_uar_create(&uar, pd, INLAY_UAR_SERIAL, &why);            a register for this thread's queues
 *   ibcq = ibv_create_cq(ctx, inlay_send_cqes(&init) + inlay_recv_cqes(&init), NULL, NULL, 0);
 *   inlay_cq_from_cq(&cq, ibcq, &why);
 *   qp = ibv_create_qp(uar.pd, &init);                             uar.pd: this QP rings the register
 *                                                                  (MRs, SRQs and AHs stay in pd)
 *   inlay_sq_from_qp(&sq, qp, &uar, &cq, &why);                    reserves CQEs; before the first post
 *   ... to RTS, by connect.h or ibv_modify_qp ...
 *   qpn = qp->qp_num;  ibv_destroy_qp(qp);  inlay_cq_clean(&cq, qpn, NULL, NULL);
 *   inlay_sq_fini(&sq);  inlay_uar_destroy(&uar, &why);
 *
 * inlay_rq_from_qp, inlay_rq_from_wq and inlay_srq_from_srq work like inlay_sq_from_qp.
 * inlay_av_from_ah makes the address vector for datagrams and DC. DC targets and XRC receive QPs
 * have no queues: take over their SRQ and CQ.
 *
 * Taking over cannot be undone. libmlx5 keeps its own counters, so a later ibv_post_send or
 * ibv_poll_cq overwrites what inlay wrote. libmlx5 also stops cleaning the CQ when a QP is
 * reset or destroyed: call inlay_cq_clean. The caller still modifies, queries and destroys the
 * verbs objects. The queues of a QP are taken over one by one: receives may stay with ibv_post_recv
 * if their CQ is not taken over. After an error a queue need not be taken over again: see
 * recovery.md.
 *
 * Refused, with a reason: a device that is not mlx5, a queue of unknown kind or size, a queue that
 * was posted to, a CQ that was used or is too small, sq_sig_all.
 *
 * The caller's part, which inlay cannot check:
 *   - For a CQ with compressed CQEs (MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE), call
 *     inlay_cq_set_compression.
 *   - Ask for no WQE signatures (mlx5dv's, or MLX5_QP_SIGNATURE and MLX5_SRQ_SIGNATURE in the
 *     environment): the device would reject inlay's WQEs, which are not signed.
 *   - Let no SRQ's receives complete to a CQ that libmlx5 polls: see queue/srq.h.
 *   - Let no queue that libmlx5 posts to complete to a CQ that inlay polls: only ibv_poll_cq
 *     returns its credit.
 *   - Arm with inlay_cq_arm: ibv_req_notify_cq uses libmlx5's own consumer index.
 *   - Take over every QP created in uar->pd through this uar.
 *   - Do not resize a CQ (ibv_resize_cq), before its take-over or after.
 *
 * To know:
 *   - A used queue looks fresh when its 16-bit doorbell record has wrapped to exactly 0.
 *   - inlay uses BlueFlame even if MLX5_SHUT_UP_BF is set in the environment.
 *   - Small payloads may arrive in the CQE: see cqe.h, "Scatter to CQE".
 *
 * Errors, besides those of each function: -ENOTSUP when the object's device is not mlx5, -EPROTO
 * when another version of inlay made uar or cq, and the negative errno of the verb (or
 * mlx5dv_init_obj) that failed. Threads: thread-safe across distinct objects; serialize calls that
 * share a register or a CQ. Sources: mlx5dv_init_obj(3), ibv_alloc_td(3),
 * ibv_alloc_parent_domain(3), ibv_query_qp(3); libmlx5's mlx5.c and, for the sizes of rings,
 * verbs.c.
 */
#ifndef INLAY_VERBS_H
#define INLAY_VERBS_H /* names are stable until 1.0 */

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/queue.h>

/* ---- The device ---- */

/*
 * Opens the mlx5 device of this name; NULL: the first one. Returns NULL, errno and a reason on
 * failure: ENODEV when there is no such device, else the errno of the verb that failed.
 */
INLAY_COLD INLAY_RESULT struct ibv_context *inlay_device_open(const char *name, const char **why)
{
	struct ibv_context *context = NULL;
	struct ibv_device **list, **at;
	int err = ENODEV;

	errno = 0;
	list = at = ibv_get_device_list(NULL);
	if (!list) {
		errno = errno ? errno : ENOMEM;
		inlay_refuse_(0, why, "ibv_get_device_list failed");
		return NULL;
	}
	while (*at && (!mlx5dv_is_supported(*at) || (name && __builtin_strcmp(name, ibv_get_device_name(*at)))))
		at++;
	if (*at) {
		errno = 0;
		context = ibv_open_device(*at);
		err = errno ? errno : ENOMEM;
	}
	if (!context)
		inlay_refuse_(0, why, *at ? "ibv_open_device failed" :
			      name ? "no mlx5 device has this name" : "there is no mlx5 device");
	ibv_free_device_list(list);
	errno = context ? 0 : err;
	return context;
}

/* ---- Room for completions ---- */

/* Bytes before a WQE's payload, as libmlx5 sizes rings: all but UD have room for a window bind. */
INLAY_COLD uint32_t inlay_send_overhead_(uint32_t type)
{
	uint32_t to = type == IBV_QPT_UD || type == IBV_QPT_DRIVER ? 48 : type == IBV_QPT_XRC_SEND ? 16 : 0;

	if (type == IBV_QPT_RAW_PACKET)
		return 3 * INLAY_DS;
	return to + INLAY_DS + (type == IBV_QPT_UD ? 0 : 48 + 64 + 64);
}

/*
 * CQEs that the send queue of a QP (RC, UC, UD, XRC, DCI or raw packet) needs in its CQ: the WQEBBs
 * of libmlx5's ring, usually more than cap.max_send_wr. Call it before the QP exists, for
 * ibv_create_cq. 32768, the largest ring, for attributes that ibv_create_qp refuses. With a
 * max_tso_header, first add an SGE to cap.max_send_sge for each 16 bytes of it.
 */
INLAY_COLD uint32_t inlay_send_cqes(const struct ibv_qp_init_attr *init)
{
	uint64_t fixed = inlay_send_overhead_(init->qp_type), gather, inlined = 0, wqe, ring;

	if (!init->cap.max_send_wr)
		return 0;
	gather = fixed + (uint64_t)init->cap.max_send_sge * INLAY_DS;
	if (init->cap.max_inline_data)
		inlined = fixed + inlay_round_up(4 + (uint64_t)init->cap.max_inline_data, INLAY_DS);
	wqe = inlay_round_up(gather > inlined ? gather : inlined, INLAY_WQEBB);
	ring = ((uint64_t)1 << inlay_log2_ceil(init->cap.max_send_wr * wqe)) / INLAY_WQEBB;
	return ring > 32768 ? 32768 : (uint32_t)ring;
}

/* As inlay_send_cqes, for the receive queue. 0 with an SRQ or without receives. */
INLAY_COLD uint32_t inlay_recv_cqes(const struct ibv_qp_init_attr *init)
{
	uint64_t stride, wqes;

	if (init->srq || !init->cap.max_recv_wr)
		return 0;
	/* The ring has at least 64 bytes. */
	stride = (uint64_t)1 << inlay_log2_ceil((init->cap.max_recv_sge ? init->cap.max_recv_sge : 1) *
						(uint64_t)INLAY_DS);
	wqes = (uint64_t)1 << inlay_log2_ceil(init->cap.max_recv_wr);
	if (wqes * stride < INLAY_WQEBB)
		wqes = INLAY_WQEBB / stride;
	return wqes > 32768 ? 32768 : (uint32_t)wqes;
}

/*
 * As inlay_send_cqes, for an SRQ of max_wr entries, in each CQ that its receives complete to. This
 * is also the number of its entries: their indices are below it.
 */
INLAY_COLD uint32_t inlay_srq_cqes(uint32_t max_wr)
{
	uint64_t entries = (uint64_t)1 << inlay_log2_ceil((uint64_t)max_wr + 1);

	return entries > 32768 ? 32768 : (uint32_t)entries;
}

/* ---- Registers ---- */

/*
 * Makes a doorbell register: a thread domain and a parent domain over pd. QPs created in uar->pd
 * share one register that no other QP uses; the first inlay_sq_from_qp finds its address.
 *
 * mode  enum inlay_uar_mode (queue/uar.h): INLAY_UAR_SERIAL for the queues of one thread
 *
 * Returns 0, or -EINVAL for an unknown mode. ibv_alloc_td fails where the device maps no such
 * register, as in some virtual machines: use inlay_uar_from_qp. On failure nothing is left behind.
 */
INLAY_COLD INLAY_RESULT int inlay_uar_create(struct inlay_uar *uar, struct ibv_pd *pd, uint32_t mode, const char **why)
{
	struct ibv_parent_domain_init_attr parent;
	struct ibv_td_init_attr attr;
	int err;

	INLAY_CHECK(uar && pd, "only why may be NULL");
	if (!inlay_uar_mode_ok_(mode))
		return inlay_refuse_(-EINVAL, why, "the mode is not one of enum inlay_uar_mode");
	if (!mlx5dv_is_supported(pd->context->device))
		return inlay_refuse_(-ENOTSUP, why, "the PD's device is not an mlx5 device");
	__builtin_memset(uar, 0, sizeof(*uar));
	__builtin_memset(&attr, 0, sizeof(attr));
	uar->mode = mode;
	uar->abi = INLAY_ABI;
	errno = 0;
	uar->td = ibv_alloc_td(pd->context, &attr);
	if (!uar->td)
		return inlay_refuse_(
			errno ? -errno : -ENOMEM, why,
			"ibv_alloc_td failed: the device maps no dedicated register; use inlay_uar_from_qp");
	__builtin_memset(&parent, 0, sizeof(parent));
	parent.pd = pd;
	parent.td = uar->td;
	errno = 0;
	uar->pd = ibv_alloc_parent_domain(pd->context, &parent);
	if (!uar->pd) {
		err = errno ? -errno : -ENOMEM;
		ibv_dealloc_td(uar->td);
		uar->td = NULL;
		return inlay_refuse_(err, why, "ibv_alloc_parent_domain failed");
	}
	return 0;
}

/*
 * Frees what inlay_uar_create made, after the QPs in uar->pd were destroyed and their queues
 * detached (inlay_sq_fini).
 *
 * Returns 0; -EBUSY while a queue or a QP is left: call it again; -EINVAL for a register that
 * inlay_uar_create did not make.
 */
INLAY_COLD int inlay_uar_destroy(struct inlay_uar *uar, const char **why)
{
	int err;

	if (!uar->td)
		return inlay_refuse_(-EINVAL, why, "the register was not made by inlay_uar_create");
	if (uar->queues)
		return inlay_refuse_(-EBUSY, why, "a send queue is still attached: inlay_sq_fini");
	if (uar->pd) {
		err = ibv_dealloc_pd(uar->pd);
		if (err)
			return inlay_refuse_(-err, why, "ibv_dealloc_pd failed: a QP is left in uar->pd");
		uar->pd = NULL;
	}
	err = ibv_dealloc_td(uar->td);
	if (err)
		return inlay_refuse_(-err, why, "ibv_dealloc_td failed");
	__builtin_memset(uar, 0, sizeof(*uar));
	return 0;
}

/* mlx5dv_init_obj for an object of this context. */
INLAY_COLD int inlay_dv_init_(struct ibv_context *context, struct mlx5dv_obj *obj, uint64_t type, const char **why)
{
	int err;

	if (!mlx5dv_is_supported(context->device))
		return inlay_refuse_(-ENOTSUP, why, "the object is not of an mlx5 device");
	err = mlx5dv_init_obj(obj, type);
	return err ? inlay_refuse_(-err, why, "mlx5dv_init_obj failed") : 0;
}

/* mlx5dv's view of a verbs object, into *view. */
#define INLAY_DV_(obj, kind, type, from, view, why) \
	(__builtin_memset(obj, 0, sizeof(*(obj))), __builtin_memset(view, 0, sizeof(*(view))), (obj)->kind.in = (from), \
	 (obj)->kind.out = (view), inlay_dv_init_((from)->context, obj, type, why))

/*
 * The same for a QP. Also -ENOTSUP for an unknown type of QP, and -EINVAL for a DC target, which
 * has neither queues nor register and crashes mlx5dv_init_obj.
 */
INLAY_COLD int inlay_dv_qp_(struct ibv_qp *qp, struct mlx5dv_qp *dv, const char **why)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct mlx5dv_obj obj;

	if (qp->qp_type != IBV_QPT_RC && qp->qp_type != IBV_QPT_UC && qp->qp_type != IBV_QPT_UD &&
	    qp->qp_type != IBV_QPT_XRC_SEND && qp->qp_type != IBV_QPT_DRIVER && qp->qp_type != IBV_QPT_RAW_PACKET)
		return inlay_refuse_(-ENOTSUP, why, "the QP is not RC, UC, UD, XRC, DCI or raw packet");
	if (qp->qp_type == IBV_QPT_DRIVER && mlx5dv_is_supported(qp->context->device) &&
	    (ibv_query_qp(qp, &attr, IBV_QP_CAP, &init) || !init.cap.max_send_wr))
		return inlay_refuse_(-EINVAL, why, "a DC target has no queue and no register");
	return INLAY_DV_(&obj, qp, MLX5DV_OBJ_QP, qp, dv, why);
}

/*
 * Initializes *uar for the doorbell register that libmlx5 gave a QP, for all queues on it. libmlx5
 * shares these registers among the QPs of a context, so the mode is INLAY_UAR_DOORBELL. For
 * BlueFlame use inlay_uar_create, or inlay_uar_init for the register of a thread domain of the
 * caller's.
 *
 * Returns 0; -ENOTSUP for a QP that is not RC, UC, UD, XRC (send), DCI or raw packet; -EINVAL for a
 * DC target, and for a register of impossible size or alignment.
 */
INLAY_COLD INLAY_RESULT int inlay_uar_from_qp(struct inlay_uar *uar, struct ibv_qp *qp, const char **why)
{
	struct mlx5dv_qp dv;
	int err = inlay_dv_qp_(qp, &dv, why);

	if (err)
		return err;
	err = inlay_uar_init(uar, dv.bf.reg, dv.bf.size, INLAY_UAR_DOORBELL);
	return err ? inlay_refuse_(err, why, "mlx5dv gave a register of impossible size or alignment") : 0;
}

/* ---- Queues ---- */

/*
 * Takes over a CQ that has had no completion, before anything is posted to its QPs.
 *
 * Returns 0; -ENOTSUP when its CQEs are neither 64 nor 128 bytes long; -EBUSY when a completion has
 * come; -EINVAL for an impossible ring. After -EBUSY or -ENOTSUP libmlx5 can still poll the CQ, but
 * no longer cleans it when a QP is destroyed: mlx5dv_init_obj has marked it.
 */
INLAY_COLD INLAY_RESULT int inlay_cq_from_cq(struct inlay_cq *cq, struct ibv_cq *ibcq, const char **why)
{
	struct mlx5dv_obj obj;
	struct mlx5dv_cq dv;
	uint32_t i;
	int err;

	INLAY_CHECK(cq && ibcq, "only why may be NULL");
	err = INLAY_DV_(&obj, cq, MLX5DV_OBJ_CQ, ibcq, &dv, why);
	if (err)
		return err;
	if (dv.cqe_size != 64 && dv.cqe_size != 128)
		return inlay_refuse_(-ENOTSUP, why, "the CQ's entries are neither 64 nor 128 bytes long");
	for (i = 0; i < dv.cqe_cnt; i++) {
		const uint8_t *slot = (const uint8_t *)dv.buf + (size_t)i * dv.cqe_size + (dv.cqe_size - 64);

		if (slot[63] >> 4 != MLX5_CQE_INVALID)
			return inlay_refuse_(-EBUSY, why, "a completion has come to the CQ already");
	}
	err = inlay_cq_init(cq, dv.buf, dv.cqe_cnt, dv.cqe_size, (volatile uint32_t *)dv.dbrec, dv.cq_uar, dv.cqn);
	if (err)
		return inlay_refuse_(err, why, "the CQ's ring has an impossible size or alignment");
	cq->verbs = ibcq;
	return 0;
}

/*
 * Queries the raw-packet capabilities for a queue of inlay_sq_init; inlay_sq_from_qp calls it. As
 * in the kernel, wqe_inline_mode of the Ethernet capabilities says that no header need be inline
 * (2), or leaves it to the port's context (1).
 */
INLAY_COLD void inlay_sq_query_packet_(struct inlay_sq *sq, struct ibv_context *context)
{
	uint32_t caps[4 + 0x1000 / 4], vport[4 + 0x100 / 4], in[4] = {inlay_to_be32(0x100 << 16), inlay_to_be32(3), 0, 0};
	uint32_t mode = 0, l2 = INLAY_L2_INLINE;
	struct mlx5dv_context dv;

	__builtin_memset(&dv, 0, sizeof(dv));
	__builtin_memset(caps, 0, sizeof(caps));
	__builtin_memset(vport, 0, sizeof(vport));
	if (!mlx5dv_devx_general_cmd(context, in, sizeof(in), caps, sizeof(caps)))
		mode = inlay_from_be32(caps[4]) >> 12 & 3;
	in[0] = inlay_to_be32(0x754 << 16);
	in[1] = 0;
	if (mode == 2 || (mode == 1 && !mlx5dv_devx_general_cmd(context, in, sizeof(in), vport, sizeof(vport)) &&
			  !(inlay_from_be32(vport[4]) >> 24 & 7)))
		l2 = 0;
	inlay_sq_set_packet_(sq, l2, !mlx5dv_query_device(context, &dv) && dv.flags & MLX5DV_CONTEXT_FLAGS_ENHANCED_MPW);
}

/*
 * Takes over the send queue of an RC, UC, UD, XRC or raw packet QP or a DCI that has not been
 * posted to since its creation or reset, and reserves a CQE for each WQEBB of its ring. For a raw
 * packet QP it queries whether the device wants headers inline (without DEVX it assumes 18 bytes,
 * which every device takes) and whether it takes multi-packet WQEs.
 *
 * uar  from inlay_uar_create for a QP created in uar->pd, or from inlay_uar_from_qp for this QP or
 *      one on the same register
 * cq   where the QP's sends complete; NULL if the caller has reserved CQEs (inlay_cq_reserve), or
 *      otherwise ensures that the CQ never overruns
 *
 * Returns 0; -ENOTSUP for another type of QP, with sq_sig_all, or for a ring not of 64-byte units;
 * -EBUSY when the send queue was posted to; -EINVAL when the QP rings another register than uar's,
 * was not created in uar->pd, completes to another CQ, has no send queue, or its ring or register
 * has an impossible size or alignment; -ENOSPC when the CQ has too few CQEs left. On failure sq,
 * uar and cq are unchanged.
 */
INLAY_COLD INLAY_RESULT int inlay_sq_from_qp(struct inlay_sq *sq, struct ibv_qp *qp, struct inlay_uar *uar,
					     struct inlay_cq *cq, const char **why)
{
	struct ibv_qp_init_attr init;
	struct ibv_device_attr device;
	struct ibv_qp_attr attr;
	struct inlay_uar reg, was;
	struct mlx5dv_qp dv;
	uint32_t fixed_ds, inline_ds, sge_ds, max_ds;
	int err;

	INLAY_CHECK(sq && qp && uar, "only cq and why may be NULL");
	err = inlay_dv_qp_(qp, &dv, why);
	if (err)
		return err;
	if (!dv.sq.wqe_cnt)
		return inlay_refuse_(-EINVAL, why, "the QP has no send queue");
	if (dv.sq.stride != INLAY_WQEBB)
		return inlay_refuse_(-ENOTSUP, why, "the send ring's units are not 64 bytes");
	if (dv.dbrec[MLX5_SND_DBR])
		return inlay_refuse_(-EBUSY, why, "the send queue was posted to already");
	if (uar->abi != INLAY_ABI)
		return inlay_refuse_(-EPROTO, why, "the register's object is of another version of inlay");
	if (uar->td && qp->pd != uar->pd)
		return inlay_refuse_(-EINVAL, why, "the QP was not created in uar->pd");
	err = inlay_uar_init(&reg, dv.bf.reg, dv.bf.size, uar->mode);
	if (err)
		return inlay_refuse_(err, why, "mlx5dv gave a register of impossible size or alignment");
	if (uar->reg && uar->reg != reg.reg)
		return inlay_refuse_(-EINVAL, why, "the QP rings another register than uar's");
	err = ibv_query_qp(qp, &attr, IBV_QP_CAP, &init);
	if (err)
		return inlay_refuse_(-err, why, "ibv_query_qp failed");
	err = ibv_query_device(qp->context, &device);
	if (err)
		return inlay_refuse_(-err, why, "ibv_query_device failed");
	if (init.sq_sig_all)
		return inlay_refuse_(-ENOTSUP, why,
				     "the QP was made with sq_sig_all: make it without, and post with INLAY_SIGNALED");
	/* The longest WQE as libmlx5 sizes it: the fixed segments, then inline data or SGEs. */
	fixed_ds = qp->qp_type == IBV_QPT_UC ? 2 : qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_RAW_PACKET ? 3 :
		   qp->qp_type == IBV_QPT_DRIVER ? 6 : 4;
	inline_ds = fixed_ds + (init.cap.max_inline_data + 4 + INLAY_DS - 1) / INLAY_DS;
	sge_ds = fixed_ds + init.cap.max_send_sge;
	/* Where there are atomics, libmlx5's slots also hold the longest of 8 bytes: masks, and one SGE. */
	if (sge_ds < fixed_ds + 2 && qp->qp_type != IBV_QPT_UD && qp->qp_type != IBV_QPT_RAW_PACKET)
		sge_ds = fixed_ds + 2;
	max_ds = inline_ds > sge_ds ? inline_ds : sge_ds;
	if (max_ds > INLAY_MAX_DS)
		max_ds = INLAY_MAX_DS;
	err = cq ? inlay_cq_offer_(cq, qp->send_cq, dv.sq.wqe_cnt, why) : 0;
	if (err)
		return err;
	was = *uar;
	if (!uar->reg) {
		/* A register of inlay_uar_create becomes known with its first QP. */
		reg.td = uar->td;
		reg.pd = uar->pd;
		*uar = reg;
	}
	err = inlay_sq_init(sq, dv.sq.buf, dv.sq.wqe_cnt, (volatile uint32_t *)dv.dbrec, qp->qp_num, max_ds, uar);
	if (err) {
		if (!was.reg)
			*uar = was;
		return inlay_refuse_(err, why, "the send ring has an impossible size or alignment");
	}
	if (qp->qp_type == IBV_QPT_RAW_PACKET)
		inlay_sq_query_packet_(sq, qp->context);
	inlay_sq_set_type(sq, qp->qp_type, device.atomic_cap != IBV_ATOMIC_NONE && qp->qp_type != IBV_QPT_UC &&
			  qp->qp_type != IBV_QPT_UD && qp->qp_type != IBV_QPT_RAW_PACKET);
	sq->verbs = qp;
	return cq ? inlay_sq_reserve_(sq, cq, why) : 0;
}

/*
 * Prints why nothing completes, for a person to read: a line for each cause that the queue, its CQ
 * and its QP show. nothing_completes.md also lists the causes that they do not show.
 */
INLAY_COLD void inlay_sq_explain(FILE *out, const struct inlay_sq *sq)
{
	static const char *const states[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", "an unknown state"};
	uint32_t record, at, bbs, signaled = 0;
	const struct mlx5_cqe64 *cqe;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int found = 0; /* what fprintf returns: not 0 */

	INLAY_CHECK(out && sq, "no argument is NULL");
	if (!sq->uar) {
		fprintf(out, "send queue: not attached: never taken over, refused, or finished (inlay_sq_fini)\n");
		return;
	}
	fprintf(out, "send queue of QP 0x%x: %u of %u WQEBBs posted and not released\n", inlay_sq_qpn(sq), sq->pending,
		inlay_sq_size(sq));
	if (!sq->pending)
		found = fprintf(out, "  everything posted was released\n");
	if (sq->unrung)
		found = fprintf(out, "  %u WQEBBs are posted and not rung for: inlay_sq_ring\n", sq->unrung);
	record = inlay_from_be16(*sq->dbrec);
	if (record != (uint16_t)inlay_sq_rung(sq))
		found = fprintf(out, "  the doorbell record says %u, the queue %u: something else posts to this QP\n", record,
				(uint16_t)inlay_sq_rung(sq));
	for (at = sq->pi - sq->pending; at != sq->pi; at += bbs) {
		bbs = inlay_sq_bbs_(sq, at);
		signaled |= inlay_sq_wqe(sq, at)[11] & (uint32_t)MLX5_WQE_CTRL_CQ_UPDATE;
		if (!bbs || bbs > sq->pi - at) {
			found = fprintf(out, "  WQEBB %u begins no WQE: something else writes to the ring\n", at);
			break;
		}
	}
	if (at == sq->pi && sq->pending && !signaled)
		found = fprintf(out, "  none of them is signaled, so no completion returns their credit: inlay_sq_signal\n");
	if (!inlay_sq_room(sq))
		found = fprintf(out, "  the ring is full: posts return -EAGAIN until a completion is released\n");
	cqe = sq->cq ? inlay_cq_peek(sq->cq) : NULL;
	if (!sq->cq)
		found = fprintf(out, "  it was taken over without a CQ: peek the CQ that it completes to\n");
	if (cqe)
		found = fprintf(out, "  its CQ holds a completion, %s of QP 0x%x: inlay_cq_peek, release, inlay_cq_advance\n",
				inlay_cqe_is_error(cqe) ? "an error" : "one", inlay_cqe_qpn(cqe));
	if (sq->verbs && !ibv_query_qp(sq->verbs, &attr, IBV_QP_STATE, &init) && attr.qp_state != IBV_QPS_RTS)
		found = fprintf(out, "  the QP is in %s, and sends only in RTS\n", states[attr.qp_state & 7]);
	if (!found)
		fprintf(out, "  nothing is wrong here: it is the device's, or the peer's, turn\n");
}

/* Initializes *rq for a receive ring; the CQ was found to have room. */
INLAY_COLD int inlay_rq_take_(struct inlay_rq *rq, void *buf, uint32_t wqe_cnt, uint32_t stride,
			      volatile uint32_t *dbrec, struct inlay_cq *cq, const char **why)
{
	int err = inlay_rq_init(rq, buf, wqe_cnt, stride, dbrec);

	if (err)
		return inlay_refuse_(err, why, "the receive ring has an impossible size or alignment");
	return cq ? inlay_rq_reserve_(rq, cq, why) : 0;
}

/*
 * Takes over the receive queue of an RC, UC, UD or raw packet QP that has not been posted to since
 * its creation or reset, and reserves a CQE for each entry. cq as in inlay_sq_from_qp.
 *
 * Returns 0; -ENOTSUP for another type of QP; -EBUSY when the queue was posted to; -EINVAL when the
 * QP has no receive queue of its own (none, or an SRQ), completes to another CQ or has an
 * impossible ring; -ENOSPC when the CQ has too few CQEs left.
 */
INLAY_COLD INLAY_RESULT int inlay_rq_from_qp(struct inlay_rq *rq, struct ibv_qp *qp, struct inlay_cq *cq,
					     const char **why)
{
	struct mlx5dv_qp dv;
	int err;

	INLAY_CHECK(rq && qp, "only cq and why may be NULL");
	err = inlay_dv_qp_(qp, &dv, why);
	if (err)
		return err;
	if (!dv.rq.wqe_cnt || qp->srq)
		return inlay_refuse_(-EINVAL, why, "the QP has no receive queue of its own");
	if (dv.dbrec[MLX5_RCV_DBR])
		return inlay_refuse_(-EBUSY, why, "the receive queue was posted to already");
	err = cq ? inlay_cq_offer_(cq, qp->recv_cq, dv.rq.wqe_cnt, why) : 0;
	if (err)
		return err;
	err = inlay_rq_take_(rq, dv.rq.buf, dv.rq.wqe_cnt, dv.rq.stride, (volatile uint32_t *)dv.dbrec, cq, why);
	if (!err && qp->qp_type != IBV_QPT_RAW_PACKET)
		inlay_rq_set_qpn_(rq, qp->qp_num);
	return err;
}

/* The ring of a WQ, not posted to yet, with room for so many CQEs per entry. */
INLAY_COLD int inlay_dv_wq_(struct ibv_wq *wq, struct mlx5dv_rwq *dv, uint32_t cqes, struct inlay_cq *cq,
			    const char **why)
{
	struct mlx5dv_obj obj;
	int err = INLAY_DV_(&obj, rwq, MLX5DV_OBJ_RWQ, wq, dv, why);

	if (err)
		return err;
	if (dv->dbrec[0])
		return inlay_refuse_(-EBUSY, why, "the WQ was posted to already");
	return cq ? inlay_cq_offer_(cq, wq->cq, cqes * dv->wqe_cnt, why) : 0;
}

/*
 * As inlay_rq_from_qp, for a WQ (ibv_create_wq). Post only in RDY: see queue/rq.h. Striding WQs
 * (mlx5dv_create_wq) have other entries: inlay_striding_from_wq (steer.h).
 */
INLAY_COLD INLAY_RESULT int inlay_rq_from_wq(struct inlay_rq *rq, struct ibv_wq *wq, struct inlay_cq *cq,
					     const char **why)
{
	struct mlx5dv_rwq dv;
	int err;

	INLAY_CHECK(rq && wq, "only cq and why may be NULL");
	err = inlay_dv_wq_(wq, &dv, 1, cq, why);
	if (err)
		return err;
	return inlay_rq_take_(rq, dv.buf, dv.wqe_cnt, dv.stride, (volatile uint32_t *)dv.dbrec, cq, why);
}

/*
 * Takes over a basic shared receive queue that was not posted to. Take over every CQ that its
 * receives complete to as well: queue/srq.h says why. Never take over an SRQ with tag matching: it
 * looks the same, so it is not refused.
 *
 * cq   a CQ that its receives complete to, in which a CQE is reserved for each entry; call
 *      inlay_cq_reserve for each further one. NULL as in inlay_sq_from_qp
 *
 * libmlx5 keeps further entries in the same ring for receives that meet an on-demand paging fault,
 * and reposts them while polling. inlay does not: in IBV_ACCESS_ON_DEMAND memory such a receive
 * ends in an error CQE.
 *
 * Returns 0; -ENOTSUP for an impossible ring; -EBUSY when it was posted to; -ENOSPC when the CQ has
 * too few CQEs left.
 */
INLAY_COLD INLAY_RESULT int inlay_srq_from_srq(struct inlay_srq *srq, struct ibv_srq *ibsrq, struct inlay_cq *cq,
					       const char **why)
{
	struct mlx5dv_srq dv;
	struct mlx5dv_obj obj;
	int err;

	INLAY_CHECK(srq && ibsrq, "only cq and why may be NULL");
	err = INLAY_DV_(&obj, srq, MLX5DV_OBJ_SRQ, ibsrq, &dv, why);
	if (err)
		return err;
	if (dv.dbrec[0] || dv.head)
		return inlay_refuse_(-EBUSY, why, "the SRQ was posted to already");
	/* A fresh free list runs from entry 0 to the tail; then come libmlx5's further entries. */
	err = cq ? inlay_cq_offer_(cq, NULL, dv.tail + 1, why) : 0;
	if (err)
		return err;
	err = inlay_srq_init(srq, dv.buf, dv.tail + 1, dv.stride, (volatile uint32_t *)dv.dbrec);
	if (err)
		return inlay_refuse_(-ENOTSUP, why, "the SRQ's ring has an impossible size or alignment");
	return cq ? inlay_srq_reserve_(srq, cq, why) : 0;
}

/* ---- Addresses and numbers ---- */

/*
 * Makes the address vector of datagrams to a peer from an address handle, which may be destroyed
 * afterwards. qpn and qkey as in inlay_av_init. For a DC target, inlay_av_to_dct adds number and
 * key. Returns 0, or an error as above.
 */
INLAY_COLD INLAY_RESULT int inlay_av_from_ah(struct inlay_av *av, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct mlx5dv_ah dv;
	struct mlx5dv_obj obj;
	int err;

	err = INLAY_DV_(&obj, ah, MLX5DV_OBJ_AH, ah, &dv, NULL);
	if (err)
		return err;
	inlay_av_init(av, dv.av, qpn, qkey);
	return 0;
}

/* The SRQ's number in device commands. Returns 0, or an error as above. */
INLAY_COLD INLAY_RESULT int inlay_srqn_from_srq(uint32_t *srqn, struct ibv_srq *srq)
{
	struct mlx5dv_srq dv;
	struct mlx5dv_obj obj;
	int err;

	__builtin_memset(&obj, 0, sizeof(obj));
	__builtin_memset(&dv, 0, sizeof(dv));
	dv.comp_mask = MLX5DV_SRQ_MASK_SRQN;
	obj.srq.in = srq;
	obj.srq.out = &dv;
	err = inlay_dv_init_(srq->context, &obj, MLX5DV_OBJ_SRQ, NULL);
	if (!err)
		*srqn = dv.srqn;
	return err;
}

INLAY_CASTS_END_
#endif
