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
#define INLAY_QUEUE_USER_INDEX_H /* a trial: names may change */

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/cqe.h>
#include <inlay/devx/ifc.h>
#include <inlay/queue/cq.h>

/* A query of an object's context, and its answer. */
struct inlay_user_index_query_ {
	struct inlay_cmd_in in;
	uint32_t out[68];
};

/* Begins one, if the object is of an mlx5 device. */
INLAY_COLD int inlay_user_index_begin_(struct inlay_user_index_query_ *q, struct ibv_context *context, uint32_t opcode,
				       uint32_t number, const char **why)
{
	if (!mlx5dv_is_supported(context->device))
		return inlay_refuse_(-ENOTSUP, why, "the object is not of an mlx5 device");
	__builtin_memset(q, 0, sizeof(*q));
	inlay_cmd_in_set(&q->in, INLAY_CMD_IN_OPCODE, opcode);
	inlay_cmd_in_set(&q->in, INLAY_CMD_IN_NUMBER, number);
	return 0;
}

/* Ends it: the user index is in the given dword of the answer. */
INLAY_COLD int inlay_user_index_end_(const struct inlay_user_index_query_ *q, int err, uint32_t dword, uint32_t *index,
				     const char **why)
{
	if (err || inlay_from_be32(q->out[0]) >> 24)
		return inlay_refuse_(-ENOTSUP, why, "no DEVX, or a DC target before RTR");
	*index = inlay_from_be32(q->out[dword]) & 0xffffff;
	return 0;
}

/*
 * Queries the index by which CQEs name a verbs QP (inlay_cqe_user_index). Receives of a raw packet QP
 * name it in no other way: in place of the QPN they have a flow tag.
 *
 * Returns 0; -ENOTSUP when the context has no DEVX, and for a DC target before RTR, which has no
 * number yet; the errno of ibv_query_qp.
 */
INLAY_COLD INLAY_RESULT int inlay_qp_user_index(struct ibv_qp *qp, uint32_t *index, const char **why)
{
	uint32_t opcode = INLAY_CMD_OP_QUERY_QP, dword = 10;
	struct inlay_user_index_query_ q;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int err;

	INLAY_CHECK(qp && index, "only why may be NULL");
	err = inlay_user_index_begin_(&q, qp->context, opcode, qp->qp_num, why);
	if (err)
		return err;
	err = ibv_query_qp(qp, &attr, IBV_QP_CAP, &init);
	if (qp->qp_type == IBV_QPT_DRIVER && (err || !init.cap.max_send_wr)) {
		opcode = INLAY_CMD_OP_QUERY_DCT; /* as in inlay_dv_qp_: a DC target */
		dword = 5;
	} else if (err) {
		return inlay_refuse_(-err, why, "ibv_query_qp failed");
	} else if (qp->qp_type == IBV_QPT_RAW_PACKET) {
		opcode = init.cap.max_send_wr ? INLAY_CMD_OP_QUERY_SQ : INLAY_CMD_OP_QUERY_RQ; /* to the device an SQ and an RQ */
		dword = 9;
	}
	inlay_cmd_in_set(&q.in, INLAY_CMD_IN_OPCODE, opcode);
	err = mlx5dv_devx_qp_query(qp, &q.in, sizeof(q.in), q.out, sizeof(q.out));
	return inlay_user_index_end_(&q, err, dword, index, why);
}

/*
 * As inlay_qp_user_index, for an XRC SRQ: its receives name it, and the number of a target QP that
 * may be another process's.
 */
INLAY_COLD INLAY_RESULT int inlay_srq_user_index(struct ibv_srq *srq, uint32_t *index, const char **why)
{
	struct inlay_user_index_query_ q;
	uint32_t number = 0;
	int err;

	INLAY_CHECK(srq && index, "only why may be NULL");
	err = ibv_get_srq_num(srq, &number);
	if (err)
		return inlay_refuse_(-err, why, "ibv_get_srq_num failed");
	err = inlay_user_index_begin_(&q, srq->context, INLAY_CMD_OP_QUERY_XRC_SRQ, number, why);
	if (err)
		return err;
	err = mlx5dv_devx_srq_query(srq, &q.in, sizeof(q.in), q.out, sizeof(q.out));
	return inlay_user_index_end_(&q, err, 8, index, why);
}

/* As inlay_qp_user_index, for a WQ: its receives name it in no other way. */
INLAY_COLD INLAY_RESULT int inlay_wq_user_index(struct ibv_wq *wq, uint32_t *index, const char **why)
{
	struct inlay_user_index_query_ q;
	int err;

	INLAY_CHECK(wq && index, "only why may be NULL");
	err = inlay_user_index_begin_(&q, wq->context, INLAY_CMD_OP_QUERY_RQ, wq->wq_num, why);
	if (err)
		return err;
	err = mlx5dv_devx_wq_query(wq, &q.in, sizeof(q.in), q.out, sizeof(q.out));
	return inlay_user_index_end_(&q, err, 9, index, why);
}

/*
 * As inlay_cq_clean, for queues whose receives do not name a QP of the caller's: raw packet QPs, WQs
 * and XRC SRQs. index: from the functions above, or the user_index of an RQ's attributes
 * (devx/packets.h).
 */
INLAY_COLD uint32_t inlay_cq_clean_index(struct inlay_cq *cq, uint32_t index,
					 void (*gone)(const struct mlx5_cqe64 *cqe, void *arg), void *arg)
{
	INLAY_CHECK(cq, "the queue is not NULL");
	return inlay_cq_clean_(cq, inlay_cqe_user_index, index, gone, arg);
}

INLAY_CASTS_END_
#endif
