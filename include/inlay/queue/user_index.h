/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/user_index.h: queues whose receives do not name a QP of the caller's. Their
 * completions carry a user index instead (inlay_cqe_user_index): raw packet QPs, WQs, XRC SRQs.
 *
 *   inlay_wq_user_index(wq, &index, &why);                   libmlx5 has chosen it
 *   ...
 *   inlay_cq_clean_index(&cq, index, gone, arg);             when the WQ produces no more
 *
 * Threads: set-up as verbs; inlay_cq_clean_index as queue/cq.h. Sources: libmlx5's mlx5.c
 * (mlx5_store_uidx); the PRM's QUERY_QP, QUERY_SRQ and QUERY_RQ.
 */
#ifndef INLAY_QUEUE_USER_INDEX_H
#define INLAY_QUEUE_USER_INDEX_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/cqe.h>
#include <inlay/queue/cq.h>

/* Finishes a query for a user index, which is in the given dword of the answer. */
INLAY_COLD int inlay_user_index_(int err, const uint32_t *out, uint32_t dword, uint32_t *index, const char **why)
{
	if (err || inlay_from_be32(out[0]) >> 24)
		return inlay_refuse_(-ENOTSUP, why, "no DEVX, or a DC target before RTR");
	*index = inlay_from_be32(out[dword]) & 0xffffff;
	return 0;
}

/*
 * Asks for the index by which CQEs name a verbs QP (inlay_cqe_user_index). Receives of a raw packet
 * QP name it in no other way: in place of the QPN they have a flow tag.
 *
 * Returns 0; -ENOTSUP when the context has no DEVX, and for a DC target before RTR, which has no
 * number yet.
 */
INLAY_COLD int inlay_qp_user_index(struct ibv_qp *qp, uint32_t *index, const char **why)
{
	uint32_t in[4] = {0, 0, 0, 0}, out[68], opcode = 0x50b, dword = 10; /* QUERY_QP */
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int err;

	INLAY_CHECK(qp && index, "only why may be NULL");
	if (!mlx5dv_is_supported(qp->context->device))
		return inlay_refuse_(-ENOTSUP, why, "the QP is not of an mlx5 device");
	err = ibv_query_qp(qp, &attr, IBV_QP_CAP, &init);
	if (qp->qp_type == IBV_QPT_DRIVER && (err || !init.cap.max_send_wr)) {
		opcode = 0x713; /* as in inlay_dv_qp_: a DC target */
		dword = 5;
	} else if (err) {
		return inlay_refuse_(-err, why, "ibv_query_qp failed");
	} else if (qp->qp_type == IBV_QPT_RAW_PACKET) {
		opcode = init.cap.max_send_wr ? 0x907 : 0x90b; /* to the device an SQ and an RQ */
		dword = 9;
	}
	__builtin_memset(out, 0, sizeof(out));
	in[0] = inlay_to_be32(opcode << 16);
	in[2] = inlay_to_be32(qp->qp_num);
	err = mlx5dv_devx_qp_query(qp, in, sizeof(in), out, sizeof(out));
	return inlay_user_index_(err, out, dword, index, why);
}

/*
 * As inlay_qp_user_index, for an XRC SRQ: its receives name it, and the number of a target QP that
 * may be another process's.
 */
INLAY_COLD int inlay_srq_user_index(struct ibv_srq *srq, uint32_t *index, const char **why)
{
	uint32_t in[4] = {inlay_to_be32(0x707u << 16), 0, 0, 0}, out[68], number; /* QUERY_XRC_SRQ */
	int err;

	INLAY_CHECK(srq && index, "only why may be NULL");
	if (!mlx5dv_is_supported(srq->context->device))
		return inlay_refuse_(-ENOTSUP, why, "the SRQ is not of an mlx5 device");
	err = ibv_get_srq_num(srq, &number);
	if (err)
		return inlay_refuse_(-err, why, "ibv_get_srq_num failed");
	__builtin_memset(out, 0, sizeof(out));
	in[2] = inlay_to_be32(number);
	err = mlx5dv_devx_srq_query(srq, in, sizeof(in), out, sizeof(out));
	return inlay_user_index_(err, out, 8, index, why);
}

/* As inlay_qp_user_index, for a WQ: its receives name it in no other way. */
INLAY_COLD int inlay_wq_user_index(struct ibv_wq *wq, uint32_t *index, const char **why)
{
	uint32_t in[4] = {inlay_to_be32(0x90bu << 16), 0, 0, 0}, out[68]; /* QUERY_RQ */
	int err;

	INLAY_CHECK(wq && index, "only why may be NULL");
	if (!mlx5dv_is_supported(wq->context->device))
		return inlay_refuse_(-ENOTSUP, why, "the WQ is not of an mlx5 device");
	__builtin_memset(out, 0, sizeof(out));
	in[2] = inlay_to_be32(wq->wq_num);
	err = mlx5dv_devx_wq_query(wq, in, sizeof(in), out, sizeof(out));
	return inlay_user_index_(err, out, 9, index, why);
}

/*
 * As inlay_cq_clean, for queues whose receives do not name a QP of the caller's: raw packet QPs, WQs
 * and XRC SRQs. index: of the functions above, or the user_index with which an RQ was created (devx/packets.h).
 */
INLAY_COLD uint32_t inlay_cq_clean_index(struct inlay_cq *cq, uint32_t index,
					 void (*gone)(const struct mlx5_cqe64 *cqe, void *arg), void *arg)
{
	INLAY_CHECK(cq, "the queue is not NULL");
	return inlay_cq_clean_(cq, inlay_cqe_user_index, index, gone, arg);
}

#endif
