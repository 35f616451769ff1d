/* SPDX-License-Identifier: BSD-3-Clause */
/* Completing: turns the CQEs that inlay finds into what libmlx5 would have reported. */
#include <stdio.h>
#include "shim.h"

enum {
	POLL_ERROR = -2, /* libmlx5's: a completion of a QP that there is not, or a device gone mad */
};

/* ---- One completion, for ibv_poll_cq and ibv_start_poll alike ---- */

/*
 * Copies a completion's payload from the CQE to the memory of the WQE's data segments, as verbs
 * promises. There are `segs` segments: up to `before` of them lie before the end of the ring, the
 * others at its beginning.
 */
static enum ibv_wc_status scatter(const struct shim_context *context, const uint8_t *seg, uint32_t segs,
				  uint32_t before, const uint8_t *begin, const uint8_t *payload, uint32_t left)
{
	uint32_t i;

	for (i = 0; i < segs && left; i++, seg += INLAY_DS) {
		struct mlx5_wqe_data_seg data;
		uint32_t length;

		if (i == before)
			seg = begin;
		__builtin_memcpy(&data, seg, sizeof(data));
		length = inlay_from_be32(data.byte_count);
		if (length > left)
			length = left;
		if (!context->has_null_mr || inlay_from_be32(data.lkey) != context->null_lkey)
			__builtin_memcpy((void *)(uintptr_t)inlay_from_be64(data.addr), payload, length);
		payload += length;
		left -= length;
	}
	return left ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

/*
 * The result of an RDMA read or an atomic. As in libmlx5, the WQE's own opcode says which of the two
 * it was. A faulty CQE could name the other one, and the data segments would be looked for in the
 * wrong place.
 */
static enum ibv_wc_status scatter_send(const struct shim_qp *qp, const struct mlx5_cqe64 *cqe, const void *payload)
{
	const struct inlay_sq *q = &qp->sq.q;
	const uint8_t *wqe = inlay_sq_wqe(q, inlay_cqe_wqe_counter(cqe));
	uint32_t before = (uint32_t)(q->buf + (size_t)inlay_sq_size(q) * INLAY_WQEBB - wqe) / INLAY_DS;
	uint32_t units = wqe[7] & 0x3f, fixed = 2 + qp->sq.to, length = inlay_cqe_byte_count(cqe);

	if (wqe[3] == MLX5_OPCODE_ATOMIC_CS || wqe[3] == MLX5_OPCODE_ATOMIC_FA) {
		fixed++;
		length = 8;
	} else if (wqe[3] != MLX5_OPCODE_RDMA_READ) {
		return IBV_WC_REM_INV_REQ_ERR;
	}
	return scatter(qp->context, wqe + fixed * INLAY_DS, units - fixed, before - fixed, q->buf, payload, length);
}

static enum ibv_wc_status scatter_recv(const struct shim_qp *qp, uint32_t index, const struct mlx5_cqe64 *cqe,
				       const void *payload)
{
	const struct inlay_rq *q = &qp->rq.q;

	return scatter(qp->context, q->buf + (size_t)(index & q->mask) * q->stride, q->max_sge, q->max_sge, NULL,
		       payload, inlay_cqe_byte_count(cqe));
}

static enum ibv_wc_status scatter_srq(const struct shim_qp *qp, const struct mlx5_cqe64 *cqe, const void *payload)
{
	const struct inlay_srq *q = &qp->srq->q;

	return scatter(qp->context, inlay_srq_wqe(q, inlay_cqe_wqe_counter(cqe)) + INLAY_DS, q->max_sge, q->max_sge,
		       NULL, payload, inlay_cqe_byte_count(cqe));
}

/* Like libmlx5, prints an error CQE unless it is a flush or a retry timeout. */
static void show(const struct mlx5_cqe64 *cqe)
{
	uint8_t syndrome = inlay_cqe_syndrome(cqe);

	if (syndrome == MLX5_CQE_SYNDROME_WR_FLUSH_ERR || syndrome == MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR)
		return;
	fprintf(stderr, "inlay-shim: completion with error:\n");
	inlay_cqe_print(stderr, cqe);
}

/*
 * Completes the WQE that a CQE names: finds its wr_id and status, copies the payload to where it
 * belongs, and frees the WQE. *opcode is set if the CQE does not contain it.
 * Returns 0 or POLL_ERROR.
 */
INLAY_ALWAYS int complete(struct shim_cq *cq, const struct mlx5_cqe64 *cqe, uint64_t *wr_id,
			  enum ibv_wc_status *status, uint32_t *opcode)
{
	const void *payload = NULL;
	struct shim_qp *qp = NULL;

	if (INLAY_UNLIKELY(cq->context->indexed) && !inlay_cqe_is_send(cqe))
		qp = shim_qp_of(cq->context->by_index, inlay_cqe_user_index(cqe));
	if (INLAY_LIKELY(!qp))
		qp = shim_qp_of(cq->context->by_number, inlay_cqe_qpn(cqe));
	if (INLAY_UNLIKELY(!qp))
		return POLL_ERROR;
	*status = IBV_WC_SUCCESS;
	if (inlay_cqe_is_error(cqe)) {
		*status = inlay_cqe_status(cqe);
		show(cqe);
	} else {
		payload = inlay_cqe_data(cqe, inlay_cq_cqe_size(&cq->q), NULL);
		if (INLAY_UNLIKELY(!payload && inlay_cqe_is_scattered(cqe)))
			*status = IBV_WC_LOC_LEN_ERR; /* more than a CQE holds */
	}
	if (inlay_cqe_is_send(cqe)) {
		struct shim_send *send = &qp->sq.sends[inlay_cqe_wqe_counter(cqe) & (inlay_sq_size(&qp->sq.q) - 1)];

		if (INLAY_UNLIKELY(payload))
			*status = scatter_send(qp, cqe, payload);
		*wr_id = send->wr_id;
		*opcode = send->opcode;
		__atomic_store_n(&qp->sq.done, send->end, __ATOMIC_RELEASE);
		__atomic_store_n(&qp->sq.tail, send->number + 1, __ATOMIC_RELEASE);
		return 0;
	}
	cq->csum = qp->csum;
	if (qp->srq) {
		struct shim_srq *srq = qp->srq;
		uint16_t index = inlay_cqe_wqe_counter(cqe);
		int err;

		if (INLAY_UNLIKELY(index >= srq->q.wqe_cnt))
			return POLL_ERROR;
		if (INLAY_UNLIKELY(payload))
			*status = scatter_srq(qp, cqe, payload);
		*wr_id = inlay_srq_user(&srq->q, index);
		shim_acquire(&srq->lock);
		err = inlay_srq_release(&srq->q, cqe);
		shim_release(&srq->lock);
		if (INLAY_UNLIKELY(err < 0))
			return POLL_ERROR;
	} else {
		uint32_t tail = qp->rq.tail;

		if (INLAY_UNLIKELY(payload))
			*status = scatter_recv(qp, tail, cqe, payload);
		*wr_id = qp->rq.wr_ids[tail & (inlay_rq_size(&qp->rq.q) - 1)];
		__atomic_store_n(&qp->rq.tail, tail + 1, __ATOMIC_RELEASE);
	}
	return 0;
}

INLAY_ALWAYS uint32_t send_opcode(const struct mlx5_cqe64 *cqe, uint32_t recorded)
{
	if (INLAY_UNLIKELY(recorded == IBV_WC_DRIVER2)) /* a raw WQE, whatever it is */
		return recorded;
	switch (inlay_cqe_send_opcode(cqe)) {
	case MLX5_OPCODE_RDMA_WRITE_IMM:
	case MLX5_OPCODE_RDMA_WRITE: return IBV_WC_RDMA_WRITE;
	case MLX5_OPCODE_SEND_IMM:
	case MLX5_OPCODE_SEND:
	case MLX5_OPCODE_SEND_INVAL: return IBV_WC_SEND;
	case MLX5_OPCODE_RDMA_READ: return IBV_WC_RDMA_READ;
	case MLX5_OPCODE_ATOMIC_CS: return IBV_WC_COMP_SWAP;
	case MLX5_OPCODE_ATOMIC_FA: return IBV_WC_FETCH_ADD;
	case MLX5_OPCODE_TSO: return IBV_WC_TSO;
	default: return recorded;
	}
}

/* The packet's fields in the CQE of a receive. */
static uint32_t flags_rqpn(const struct mlx5_cqe64 *cqe)
{
	return inlay_from_be32(cqe->flags_rqpn);
}

static unsigned int grh_flag(const struct mlx5_cqe64 *cqe)
{
	return flags_rqpn(cqe) >> 28 & 3 ? IBV_WC_GRH : 0;
}

/* Whether a packet's IPv4 header and payload checksums are good. */
static unsigned int csum_flag(const struct mlx5_cqe64 *cqe)
{
	const uint32_t both = MLX5_CQE_L3_OK | MLX5_CQE_L4_OK;

	return (inlay_cqe_checks(cqe) & both) == both && inlay_cqe_l3_type(cqe) == MLX5_CQE_L3_HDR_TYPE_IPV4 ?
		       IBV_WC_IP_CSUM_OK : 0;
}

/* The next completion. A signature error does not count: its transfer completes later. */
static inline const struct mlx5_cqe64 *next(struct shim_cq *cq)
{
	const struct mlx5_cqe64 *cqe;

	while ((cqe = inlay_cq_peek(&cq->q)) && INLAY_UNLIKELY(inlay_cqe_is_error(cqe)) &&
	       inlay_cqe_opcode(cqe) == MLX5_CQE_SIG_ERR) {
		shim_key_error(cqe);
		inlay_cq_advance(&cq->q, 1);
	}
	return cqe;
}

/* ---- ibv_poll_cq ---- */

/* For a send. Fields that libmlx5 does not write are not written here either. */
INLAY_ALWAYS void fill_send(struct ibv_wc *wc, const struct mlx5_cqe64 *cqe, uint32_t opcode)
{
	uint8_t sent = inlay_cqe_send_opcode(cqe);

	wc->opcode = send_opcode(cqe, opcode);
	if (sent == MLX5_OPCODE_RDMA_WRITE_IMM || sent == MLX5_OPCODE_SEND_IMM)
		wc->wc_flags |= IBV_WC_WITH_IMM;
	if (sent == MLX5_OPCODE_RDMA_READ)
		wc->byte_len = inlay_cqe_byte_count(cqe);
	else if (sent == MLX5_OPCODE_ATOMIC_CS || sent == MLX5_OPCODE_ATOMIC_FA)
		wc->byte_len = 8;
}

INLAY_ALWAYS void fill_recv(struct ibv_wc *wc, const struct mlx5_cqe64 *cqe, bool csum)
{
	wc->byte_len = inlay_cqe_byte_count(cqe);
	if (INLAY_UNLIKELY(csum))
		wc->wc_flags |= csum_flag(cqe);
	if (INLAY_UNLIKELY(wc->status != IBV_WC_SUCCESS))
		return;
	wc->opcode = IBV_WC_RECV;
	switch (inlay_cqe_opcode(cqe)) {
	case MLX5_CQE_RESP_WR_IMM:
		wc->opcode = IBV_WC_RECV_RDMA_WITH_IMM;
		/* fall through */
	case MLX5_CQE_RESP_SEND_IMM:
		wc->wc_flags |= IBV_WC_WITH_IMM;
		wc->imm_data = inlay_cqe_imm_be(cqe);
		break;
	case MLX5_CQE_RESP_SEND_INV:
		wc->wc_flags |= IBV_WC_WITH_INV;
		wc->invalidated_rkey = inlay_cqe_invalidated_rkey(cqe);
		break;
	}
	wc->slid = inlay_from_be16(cqe->slid);
	wc->sl = flags_rqpn(cqe) >> 24 & 0xf;
	wc->src_qp = flags_rqpn(cqe) & 0xffffff;
	wc->dlid_path_bits = cqe->ml_path & 0x7f;
	wc->wc_flags |= grh_flag(cqe);
	wc->pkey_index = inlay_from_be32(cqe->imm_inval_pkey) & 0xffff;
}

int shim_poll_cq(struct ibv_cq *ibcq, int entries, struct ibv_wc *wc)
{
	struct shim_cq *cq = shim_find(ibcq);
	int n, err = 0;

	if (INLAY_UNLIKELY(!cq || cq->owner != SHIM_INLAY))
		return ((struct shim_context *)shim_find(ibcq->context))->ops.poll_cq(ibcq, entries, wc);
	shim_acquire(&cq->lock);
	for (n = 0; n < entries; n++, wc++) {
		const struct mlx5_cqe64 *cqe = next(cq);
		uint32_t opcode = 0;

		if (!cqe)
			break;
		wc->wc_flags = 0;
		wc->qp_num = inlay_cqe_qpn(cqe);
		err = complete(cq, cqe, &wc->wr_id, &wc->status, &opcode);
		if (INLAY_LIKELY(!err)) {
			if (inlay_cqe_opcode(cqe) == MLX5_CQE_REQ)
				fill_send(wc, cqe, opcode);
			else if (inlay_cqe_is_error(cqe))
				wc->vendor_err = inlay_cqe_vendor_syndrome(cqe);
			else
				fill_recv(wc, cqe, cq->csum);
		}
		inlay_cq_advance_quiet(&cq->q, 1);
		if (INLAY_UNLIKELY(err))
			break;
	}
	if (n || err)
		inlay_cq_update(&cq->q);
	shim_release(&cq->lock);
	if (INLAY_UNLIKELY(err))
		return err;
	if (INLAY_UNLIKELY(cq->second != NULL) && n < entries) {
		int more = cq->context->ops.poll_cq(cq->second, entries - n, wc);

		n = more < 0 ? more : n + more;
	}
	return n;
}

/* ---- ibv_start_poll, ibv_next_poll, ibv_end_poll ---- */

/*
 * A field that no CQ of inlay's reports. The shim keeps its own pointer there, so that these calls
 * need no lookup.
 */
static struct shim_cq *cq_of(struct ibv_cq_ex *ex)
{
	return (struct shim_cq *)ex->read_tm_info;
}

static struct ibv_cq_ex *second_of(struct shim_cq *cq)
{
	return (struct ibv_cq_ex *)cq->second;
}

/*
 * Between start and end, the program reads a CQE of the first CQ (cq->cqe) or of the second.
 */
static int own_next(struct shim_cq *cq, struct ibv_cq_ex *ex)
{
	const struct mlx5_cqe64 *cqe = next(cq);
	int err;

	if (!cqe)
		return ENOENT;
	cq->cqe = cqe;
	err = complete(cq, cqe, &ex->wr_id, &ex->status, &cq->send_opcode);
	inlay_cq_advance_quiet(&cq->q, 1);
	return err;
}

static int second_start(struct shim_cq *cq, struct ibv_cq_ex *ex)
{
	struct ibv_poll_cq_attr attr = {};
	int err = ibv_start_poll(second_of(cq), &attr);

	if (err)
		return err;
	cq->cqe = NULL;
	ex->wr_id = second_of(cq)->wr_id;
	ex->status = second_of(cq)->status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct shim_cq *cq = cq_of(ex);
	int err;

	if (INLAY_UNLIKELY(attr->comp_mask))
		return EINVAL;
	shim_acquire(&cq->lock);
	err = own_next(cq, ex);
	if (err == ENOENT && INLAY_UNLIKELY(cq->second != NULL))
		err = second_start(cq, ex);
	if (err) {
		if (err != ENOENT)
			inlay_cq_update(&cq->q);
		shim_release(&cq->lock);
		return err;
	}
	cq->poller = pthread_self();
	cq->polling = true;
	return 0;
}

static int next_poll(struct ibv_cq_ex *ex)
{
	struct shim_cq *cq = cq_of(ex);
	int err;

	if (INLAY_UNLIKELY(!cq->cqe)) {
		err = ibv_next_poll(second_of(cq));
		ex->wr_id = second_of(cq)->wr_id;
		ex->status = second_of(cq)->status;
		return err;
	}
	err = own_next(cq, ex);
	if (err == ENOENT && INLAY_UNLIKELY(cq->second != NULL))
		err = second_start(cq, ex);
	return err;
}

static void end_poll(struct ibv_cq_ex *ex)
{
	struct shim_cq *cq = cq_of(ex);

	if (INLAY_UNLIKELY(!cq->cqe))
		ibv_end_poll(second_of(cq));
	inlay_cq_update(&cq->q);
	cq->polling = false;
	shim_release(&cq->lock);
}

/* ibv_wc_read_NAME: from the CQE, or by libmlx5 if the completion is in the second CQ. */
#define READ(type, name, value) \
static type read_##name(struct ibv_cq_ex *ex) \
{ \
	struct shim_cq *cq = cq_of(ex); \
	const struct mlx5_cqe64 *cqe = cq->cqe; \
	\
	if (INLAY_UNLIKELY(!cqe)) \
		return second_of(cq)->read_##name(second_of(cq)); \
	return value; \
}

static enum ibv_wc_opcode opcode_of(const struct shim_cq *cq)
{
	switch (inlay_cqe_opcode(cq->cqe)) {
	case MLX5_CQE_REQ: return send_opcode(cq->cqe, cq->send_opcode);
	case MLX5_CQE_RESP_WR_IMM: return IBV_WC_RECV_RDMA_WITH_IMM;
	case MLX5_CQE_RESP_SEND:
	case MLX5_CQE_RESP_SEND_IMM:
	case MLX5_CQE_RESP_SEND_INV: return IBV_WC_RECV;
	default: return 0;
	}
}

static unsigned int flags_of(const struct mlx5_cqe64 *cqe, bool csum)
{
	unsigned int flags = grh_flag(cqe) | (csum && !inlay_cqe_is_send(cqe) ? csum_flag(cqe) : 0);

	switch (inlay_cqe_opcode(cqe)) {
	case MLX5_CQE_RESP_WR_IMM:
	case MLX5_CQE_RESP_SEND_IMM: return flags | IBV_WC_WITH_IMM;
	case MLX5_CQE_RESP_SEND_INV: return flags | IBV_WC_WITH_INV;
	default: return flags;
	}
}

READ(enum ibv_wc_opcode, opcode, opcode_of(cq))
READ(unsigned int, wc_flags, flags_of(cqe, cq->csum))
READ(uint32_t, vendor_err, inlay_cqe_vendor_syndrome(cqe))
READ(uint32_t, byte_len, inlay_cqe_byte_count(cqe))
READ(__be32, imm_data,
     inlay_cqe_opcode(cqe) == MLX5_CQE_RESP_SEND_INV ? inlay_cqe_invalidated_rkey(cqe) : inlay_cqe_imm_be(cqe))
READ(uint32_t, qp_num, inlay_cqe_qpn(cqe))
READ(uint32_t, src_qp, flags_rqpn(cqe) & 0xffffff)
READ(uint32_t, slid, inlay_from_be16(cqe->slid))
READ(uint8_t, sl, flags_rqpn(cqe) >> 24 & 0xf)
READ(uint8_t, dlid_path_bits, cqe->ml_path & 0x7f)
READ(uint64_t, completion_ts, inlay_cqe_timestamp(cqe))
READ(uint16_t, cvlan, inlay_from_be16(cqe->vlan_info))
READ(uint32_t, flow_tag, inlay_from_be32(cqe->sop_drop_qpn) & 0xffffff)

/* Readers that the program did not ask for stay as libmlx5 left them. */
void shim_poll_install(struct ibv_cq_ex *ex)
{
	ex->read_tm_info = (void (*)(struct ibv_cq_ex *, struct ibv_wc_tm_info *))shim_find(ex);
	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
#define INSTALL(name) if (ex->read_##name) ex->read_##name = read_##name
	INSTALL(opcode);
	INSTALL(wc_flags);
	INSTALL(vendor_err);
	INSTALL(byte_len);
	INSTALL(imm_data);
	INSTALL(qp_num);
	INSTALL(src_qp);
	INSTALL(slid);
	INSTALL(sl);
	INSTALL(dlid_path_bits);
	INSTALL(completion_ts);
	INSTALL(cvlan);
	INSTALL(flow_tag);
}

/* ---- Events, and the end of a QP ---- */

/*
 * libmlx5 takes no lock to arm a CQ or to count its events, so a program may do this between
 * ibv_start_poll and ibv_end_poll. A thread that already holds the lock does not take it again.
 * Returns the argument for leave().
 */
static bool enter(struct shim_cq *cq)
{
	if (__atomic_load_n(&cq->polling, __ATOMIC_RELAXED) && pthread_equal(cq->poller, pthread_self()))
		return false;
	shim_acquire(&cq->lock);
	return true;
}

static void leave(struct shim_cq *cq, bool entered)
{
	if (entered)
		shim_release(&cq->lock);
}

int shim_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct shim_cq *cq = shim_find(ibcq);
	uint32_t asked = solicited_only ? SHIM_ARMED_SOLICITED : SHIM_ARMED;
	struct ibv_cq *second;
	bool entered;
	int err;

	/* Set before looking for the second CQ: the thread that makes it reads this afterwards. */
	if (cq && !(__atomic_load_n(&cq->armed, __ATOMIC_RELAXED) & asked))
		__atomic_fetch_or(&cq->armed, asked, __ATOMIC_SEQ_CST);
	if (INLAY_UNLIKELY(!cq || cq->owner != SHIM_INLAY))
		return ((struct shim_context *)shim_find(ibcq->context))->ops.req_notify_cq(ibcq, solicited_only);
	entered = enter(cq);
	err = -inlay_cq_arm(&cq->q, solicited_only);
	leave(cq, entered);
	second = __atomic_load_n(&cq->second, __ATOMIC_SEQ_CST);
	if (!err && second)
		err = cq->context->ops.req_notify_cq(second, solicited_only);
	return err;
}

/*
 * An event of the CQ or of its second was taken from the channel. Returns the CQ that the program
 * knows.
 */
struct ibv_cq *shim_event(struct shim_cq *cq, struct ibv_cq *from)
{
	if (from == cq->cq) {
		bool entered = enter(cq);

		inlay_cq_event(&cq->q);
		leave(cq, entered);
	} else {
		__atomic_fetch_add(&cq->second_events, 1, __ATOMIC_RELAXED);
	}
	return cq->cq;
}

/* The entry of a removed receive, empty as with libmlx5: inlay_srq_gone would post its buffer again */
static void freed(const struct mlx5_cqe64 *cqe, void *srq)
{
	inlay_srq_release(srq, cqe);
}

static void clean(struct shim_cq *cq, struct shim_qp *qp, struct shim_srq *srq)
{
	void (*gone)(const struct mlx5_cqe64 *cqe, void *arg) = srq ? freed : NULL;

	if (cq->programs)
		return;
	if (srq)
		shim_acquire(&srq->lock);
	if (qp->indexed)
		inlay_cq_clean_index(&cq->q, qp->index, gone, srq ? &srq->q : NULL);
	else
		inlay_cq_clean(&cq->q, qp->qpn, gone, srq ? &srq->q : NULL);
	if (srq)
		shim_release(&srq->lock);
}

/*
 * Removes a reset or destroyed QP from its CQs, which are locked. libmlx5 no longer does this, since
 * they are inlay's.
 */
void shim_clean(struct shim_qp *qp)
{
	clean(qp->recv_cq, qp, qp->srq);
	if (qp->send_cq != qp->recv_cq)
		clean(qp->send_cq, qp, NULL);
}
