/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oracle_poll.h: are completions read and given back as libmlx5 does it? The same CQEs go into three CQs: one polled by ibv_poll_cq, one by
 * ibv_start_poll, one by inlay. How they are found in rings of all sizes is in compressed.c.
 */
#ifndef TESTS_QUEUE_ORACLE_POLL_H
#define TESTS_QUEUE_ORACLE_POLL_H

#include "oracle_receive.h"

#define ENTRIES 255u /* of the SRQ that the QPs receive through, if they do */

static struct ibv_cq_ex *make_cq(uint32_t size, bool lazy)
{
	struct ibv_cq_init_attr_ex attr;
	struct mlx5dv_cq_init_attr dv;
	struct ibv_cq_ex *cq;

	memset(&attr, 0, sizeof(attr));
	memset(&dv, 0, sizeof(dv));
	attr.cqe = 15;
	if (lazy)
		attr.wc_flags = (uint64_t)IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	dv.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
	dv.cqe_size = (uint16_t)size;
	cq = mlx5dv_create_cq(dev.ctx, &attr, &dv);
	assert_non_null(cq);
	return cq;
}

/* Any CQE that a device could write, of the lib's QP as far as libmlx5 must find it */
static void cqe_random(struct mlx5_cqe64 *cqe, const struct lib *l, uint8_t opcode, uint8_t syndrome)
{
	static const uint8_t sops[] = {MLX5_OPCODE_SEND, MLX5_OPCODE_SEND_IMM, MLX5_OPCODE_SEND_INVAL, MLX5_OPCODE_RDMA_WRITE,
		MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_OPCODE_RDMA_READ, MLX5_OPCODE_ATOMIC_CS, MLX5_OPCODE_ATOMIC_FA};
	uint64_t w[8];
	unsigned i;

	for (i = 0; i < 8; i++)
		w[i] = rnd();
	memcpy(cqe, w, sizeof(w));
	cqe->app = 0; /* not tag matching */
	cqe->srqn_uidx = htobe32(rnd_below(256) << 24 | l->uidx);
	cqe->sop_drop_qpn = htobe32((uint32_t)sops[rnd_below(ARRAY(sops))] << 24 | rnd_below(1 << 24));
	cqe->op_own = (uint8_t)(opcode << 4 | rnd_below(4)); /* solicited, and an owner bit that is none of the caller's affair */
	if (opcode == MLX5_CQE_REQ_ERR || opcode == MLX5_CQE_RESP_ERR)
		((struct mlx5_err_cqe *)cqe)->syndrome = syndrome;
	/* libmlx5 believes the entry's number. A page fault, of which it makes no completion, is not for here */
	if (srq_of_qps && opcode != MLX5_CQE_REQ && opcode != MLX5_CQE_REQ_ERR)
		cqe->wqe_counter = htobe16((uint16_t)rnd_below(ENTRIES));
	if (srq_of_qps && opcode == MLX5_CQE_RESP_ERR)
		((struct mlx5_err_cqe *)cqe)->vendor_err_synd &= 0x7f;
	/* libmlx5 reports 8 for an atomic and does not look */
	if (opcode == MLX5_CQE_REQ && be32toh(cqe->sop_drop_qpn) >> 24 >= MLX5_OPCODE_ATOMIC_CS)
		cqe->byte_cnt = htobe32(8);
}

static enum ibv_wc_opcode verb_of(const struct mlx5_cqe64 *cqe)
{
	if (!inlay_cqe_is_send(cqe))
		return inlay_cqe_opcode(cqe) == MLX5_CQE_RESP_WR_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
	switch (inlay_cqe_send_opcode(cqe)) {
	case MLX5_OPCODE_RDMA_WRITE:
	case MLX5_OPCODE_RDMA_WRITE_IMM: return IBV_WC_RDMA_WRITE;
	case MLX5_OPCODE_RDMA_READ: return IBV_WC_RDMA_READ;
	case MLX5_OPCODE_ATOMIC_CS: return IBV_WC_COMP_SWAP;
	case MLX5_OPCODE_ATOMIC_FA: return IBV_WC_FETCH_ADD;
	default: return IBV_WC_SEND;
	}
}

/* The CQE as inlay reads it, against what libmlx5 made of it by either way */
static void cqe_check(const struct mlx5_cqe64 *cqe, const struct ibv_wc *wc, struct ibv_cq_ex *lazy)
{
	const uint8_t op = inlay_cqe_opcode(cqe), sop = inlay_cqe_send_opcode(cqe);
	const bool send = inlay_cqe_is_send(cqe);
	const char *wrong = NULL;

#define SAME(mine, field, read)                                                                                                  \
	do {                                                                                                                     \
		if ((mine) != (field) || (mine) != (read))                                                                       \
			wrong = #field;                                                                                          \
	} while (0)
	SAME(inlay_cqe_status(cqe), wc->status, lazy->status);
	SAME(inlay_cqe_is_error(cqe), wc->status != IBV_WC_SUCCESS, lazy->status != IBV_WC_SUCCESS);
	SAME(inlay_cqe_qpn(cqe), wc->qp_num, ibv_wc_read_qp_num(lazy));
	if (srq_of_qps && !send) /* entry n was posted as n */
		SAME(inlay_cqe_wqe_counter(cqe), wc->wr_id, lazy->wr_id);
	if (inlay_cqe_is_error(cqe)) {
		SAME(inlay_cqe_vendor_syndrome(cqe), wc->vendor_err, ibv_wc_read_vendor_err(lazy));
		SAME(send, op == MLX5_CQE_REQ_ERR, op == MLX5_CQE_REQ_ERR);
	} else {
		SAME(verb_of(cqe), wc->opcode, ibv_wc_read_opcode(lazy));
		SAME(send, !(wc->opcode & IBV_WC_RECV), send);
		SAME(inlay_cqe_timestamp(cqe), ibv_wc_read_completion_ts(lazy), ibv_wc_read_completion_ts(lazy));
	}
	if (!inlay_cqe_is_error(cqe) && !send) {
		SAME(inlay_cqe_src_qpn(cqe), wc->src_qp, ibv_wc_read_src_qp(lazy));
		SAME(inlay_cqe_slid(cqe), wc->slid, ibv_wc_read_slid(lazy));
		SAME(inlay_cqe_sl(cqe), wc->sl, ibv_wc_read_sl(lazy));
		SAME(inlay_cqe_path_bits(cqe), wc->dlid_path_bits, ibv_wc_read_dlid_path_bits(lazy));
		SAME(inlay_cqe_has_grh(cqe), !!(wc->wc_flags & IBV_WC_GRH), !!(ibv_wc_read_wc_flags(lazy) & IBV_WC_GRH));
	}
	if (!inlay_cqe_is_error(cqe) && (!send || sop == MLX5_OPCODE_RDMA_READ || sop >= MLX5_OPCODE_ATOMIC_CS))
		SAME(inlay_cqe_byte_count(cqe), wc->byte_len, ibv_wc_read_byte_len(lazy));
	if (op == MLX5_CQE_RESP_WR_IMM || op == MLX5_CQE_RESP_SEND_IMM)
		SAME(inlay_cqe_imm_be(cqe), wc->wc_flags & IBV_WC_WITH_IMM ? wc->imm_data : 0, ibv_wc_read_imm_data(lazy));
	if (op == MLX5_CQE_RESP_SEND_INV)
		SAME(inlay_cqe_invalidated_rkey(cqe), wc->wc_flags & IBV_WC_WITH_INV ? wc->invalidated_rkey : 0,
		     ibv_wc_read_invalidated_rkey(lazy));
#undef SAME
	cases++;
	if (!wrong)
		return;
	inlay_cqe_print(report_to, cqe);
	fail_msg("%s: status %d", wrong, wc->status);
}

/* Every opcode and, of errors, every syndrome, in CQEs of both sizes; then the same of QPs with an SRQ */
static void completions(void)
{
	static const uint8_t ops[] = {MLX5_CQE_REQ, MLX5_CQE_RESP_WR_IMM, MLX5_CQE_RESP_SEND, MLX5_CQE_RESP_SEND_IMM, MLX5_CQE_RESP_SEND_INV,
		MLX5_CQE_REQ_ERR, MLX5_CQE_RESP_ERR};
	struct ibv_qp_cap cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 4, .max_recv_sge = 4};
	struct ibv_poll_cq_attr attr = {.comp_mask = 0};
	uint32_t turn, o, k, i, size;
	struct ibv_recv_wr wr, *bad;

	memset(&wr, 0, sizeof(wr));
	for (turn = 0; turn < 4; turn++) {
		struct ibv_cq *cqs[3];
		struct ibv_cq_ex *lazy;
		struct mlx5dv_cq dv[3];
		struct inlay_cq cq;

		size = turn % 2 ? 128 : 64;
		srq_of_qps = turn / 2 ? make_srq(ENTRIES, 1) : NULL;
		for (wr.wr_id = 0; srq_of_qps && wr.wr_id < ENTRIES; wr.wr_id++)
			must(ibv_post_srq_recv(srq_of_qps, &wr, &bad));
		cap.max_recv_wr = cap.max_recv_sge = srq_of_qps ? 0 : 4;
		trio_open(&T, &cap, K->lean, INLAY_UAR_SERIAL);
		lazy = make_cq(size, true);
		for (i = 0; i < 3; i++) {
			cqs[i] = ibv_cq_ex_to_cq(i == 1 ? lazy : make_cq(size, false));
			dv[i] = view_cq(cqs[i]);
			assert_int_equal(dv[i].cqe_size, size);
		}
		must(inlay_cq_from_cq(&cq, cqs[2], NULL));
		for (o = 0; o < ARRAY(ops); o++)
			for (k = 0; k < 256; k++) {
				struct mlx5_cqe64 cqe;
				struct ibv_wc wc;

				cqe_random(&cqe, &T.a, ops[o], (uint8_t)k);
				for (i = 0; i < 3; i++)
					assert_int_equal(softdev_inject_cqes(dv[i].cqn, &cqe, 1, 0), 1);
				memset(&wc, 0xee, sizeof(wc));
				assert_int_equal(ibv_poll_cq(cqs[0], 1, &wc), 1);
				must(ibv_start_poll(lazy, &attr));
				assert_non_null(inlay_cq_peek(&cq));
				cqe_check(inlay_cq_peek(&cq), &wc, lazy);
				ibv_end_poll(lazy);
				inlay_cq_advance(&cq, 1);
				assert_null(inlay_cq_peek(&cq));
				for (i = 0; i < 2; i++)
					assert_int_equal(dv[i].dbrec[0], dv[2].dbrec[0]);
			}
		for (i = 0; i < 3; i++)
			must(ibv_destroy_cq(cqs[i]));
		trio_close(&T);
		if (srq_of_qps)
			must(ibv_destroy_srq(srq_of_qps));
		srq_of_qps = NULL;
	}
}

#endif
