/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oracle_poll.h: are completions found, read and given back as libmlx5 does it? The same CQEs go into three CQs: one polled by ibv_poll_cq,
 * one by ibv_start_poll, one by inlay.
 */
#ifndef TESTS_QUEUE_ORACLE_POLL_H
#define TESTS_QUEUE_ORACLE_POLL_H

#include "oracle_receive.h"

struct cqs {
	struct ibv_cq *poll;      /* libmlx5, ibv_poll_cq */
	struct ibv_cq_ex *lazy;   /* libmlx5, ibv_start_poll */
	struct ibv_cq *taken;     /* inlay */
	struct inlay_cq cq;
	struct mlx5dv_cq dv[3];
};

static uint32_t entries; /* of the SRQ that the QPs receive through, if they do */

static struct ibv_cq_ex *make_cq(uint32_t cqe, uint32_t size, bool lazy)
{
	struct ibv_cq_init_attr_ex attr;
	struct mlx5dv_cq_init_attr dv;
	struct ibv_cq_ex *cq;

	memset(&attr, 0, sizeof(attr));
	memset(&dv, 0, sizeof(dv));
	attr.cqe = cqe;
	if (lazy)
		attr.wc_flags = (uint64_t)IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	dv.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
	dv.cqe_size = (uint16_t)size;
	cq = mlx5dv_create_cq(dev.ctx, &attr, &dv);
	assert_non_null(cq);
	return cq;
}

static void cqs_open(struct cqs *q, uint32_t cqe, uint32_t size)
{
	memset(q, 0, sizeof(*q));
	q->poll = ibv_cq_ex_to_cq(make_cq(cqe, size, false));
	q->lazy = make_cq(cqe, size, true);
	q->taken = ibv_cq_ex_to_cq(make_cq(cqe, size, false));
	must(inlay_cq_from_cq(&q->cq, q->taken, NULL));
	q->dv[0] = view_cq(q->poll);
	q->dv[1] = view_cq(ibv_cq_ex_to_cq(q->lazy));
	q->dv[2] = view_cq(q->taken);
	assert_int_equal(q->dv[0].cqe_size, size);
	assert_int_equal(q->dv[0].cqe_cnt, q->dv[2].cqe_cnt);
	assert_int_equal(q->dv[1].cqe_cnt, q->dv[2].cqe_cnt);
}

static void cqs_close(struct cqs *q)
{
	must(ibv_destroy_cq(q->poll));
	must(ibv_destroy_cq(ibv_cq_ex_to_cq(q->lazy)));
	must(ibv_destroy_cq(q->taken));
}

static void inject(struct cqs *q, const struct mlx5_cqe64 *cqe)
{
	unsigned i;

	for (i = 0; i < 3; i++)
		assert_int_equal(softdev_inject_cqes(q->dv[i].cqn, cqe, 1, 0), 1);
}

static const uint8_t good_sop[] = {MLX5_OPCODE_SEND, MLX5_OPCODE_SEND_IMM, MLX5_OPCODE_SEND_INVAL, MLX5_OPCODE_RDMA_WRITE,
				   MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_OPCODE_RDMA_READ, MLX5_OPCODE_ATOMIC_CS, MLX5_OPCODE_ATOMIC_FA};

/* Any CQE that a device could write, of the lib's QP as far as libmlx5 must find it */
static void cqe_random(struct mlx5_cqe64 *cqe, const struct lib *l, uint8_t opcode, uint8_t syndrome)
{
	uint64_t w[8];
	unsigned i;

	for (i = 0; i < 8; i++)
		w[i] = rnd();
	memcpy(cqe, w, sizeof(w));
	cqe->app = 0; /* not tag matching */
	cqe->srqn_uidx = htobe32(rnd_below(256) << 24 | l->uidx);
	cqe->sop_drop_qpn = htobe32((uint32_t)good_sop[rnd_below(ARRAY(good_sop))] << 24 | rnd_below(1 << 24));
	cqe->op_own = (uint8_t)(opcode << 4 | rnd_below(4)); /* solicited, and an owner bit that is none of the caller's affair */
	if (opcode == MLX5_CQE_REQ_ERR || opcode == MLX5_CQE_RESP_ERR)
		((struct mlx5_err_cqe *)cqe)->syndrome = syndrome;
	/* libmlx5 believes the entry's number. A page fault, of which it makes no completion, is not for here */
	if (entries && opcode != MLX5_CQE_REQ && opcode != MLX5_CQE_REQ_ERR)
		cqe->wqe_counter = htobe16((uint16_t)rnd_below(entries));
	if (entries && opcode == MLX5_CQE_RESP_ERR)
		((struct mlx5_err_cqe *)cqe)->vendor_err_synd &= 0x7f;
	/* libmlx5 reports 8 for an atomic and does not look */
	if (opcode == MLX5_CQE_REQ && be32toh(cqe->sop_drop_qpn) >> 24 >= MLX5_OPCODE_ATOMIC_CS)
		cqe->byte_cnt = htobe32(8);
}

static enum ibv_wc_opcode verb_of(const struct mlx5_cqe64 *cqe)
{
	switch (inlay_cqe_opcode(cqe)) {
	case MLX5_CQE_RESP_WR_IMM: return IBV_WC_RECV_RDMA_WITH_IMM;
	case MLX5_CQE_RESP_SEND:
	case MLX5_CQE_RESP_SEND_IMM:
	case MLX5_CQE_RESP_SEND_INV: return IBV_WC_RECV;
	}
	switch (inlay_cqe_send_opcode(cqe)) {
	case MLX5_OPCODE_RDMA_WRITE:
	case MLX5_OPCODE_RDMA_WRITE_IMM: return IBV_WC_RDMA_WRITE;
	case MLX5_OPCODE_RDMA_READ: return IBV_WC_RDMA_READ;
	case MLX5_OPCODE_ATOMIC_CS: return IBV_WC_COMP_SWAP;
	case MLX5_OPCODE_ATOMIC_FA: return IBV_WC_FETCH_ADD;
	default: return IBV_WC_SEND;
	}
}

/* The CQE as inlay reads it, against what libmlx5 made of it by either way. Returns whether they differ */
static bool cqe_check(const struct mlx5_cqe64 *cqe, const struct ibv_wc *wc, struct ibv_cq_ex *lazy)
{
	uint8_t op = inlay_cqe_opcode(cqe), sop = inlay_cqe_send_opcode(cqe);
	bool error = inlay_cqe_is_error(cqe), bad = false;
	enum ibv_wc_status status = inlay_cqe_status(cqe);

#define SAME(x, y) (bad |= (x) != (y))
	SAME(wc->status, status);
	SAME(lazy->status, status);
	SAME(error, wc->status != IBV_WC_SUCCESS);
	SAME(wc->qp_num, inlay_cqe_qpn(cqe));
	SAME(ibv_wc_read_qp_num(lazy), inlay_cqe_qpn(cqe));
	/* Entry n of the SRQ was posted as n */
	if (entries && !inlay_cqe_is_send(cqe)) {
		SAME(wc->wr_id, inlay_cqe_wqe_counter(cqe));
		SAME(lazy->wr_id, inlay_cqe_wqe_counter(cqe));
	}
	if (error) {
		SAME(wc->vendor_err, inlay_cqe_vendor_syndrome(cqe));
		SAME(ibv_wc_read_vendor_err(lazy), inlay_cqe_vendor_syndrome(cqe));
		SAME(inlay_cqe_is_send(cqe), op == MLX5_CQE_REQ_ERR);
	} else {
		SAME(wc->opcode, verb_of(cqe));
		SAME(ibv_wc_read_opcode(lazy), verb_of(cqe));
		SAME(inlay_cqe_is_send(cqe), !(wc->opcode & IBV_WC_RECV));
		if (!inlay_cqe_is_send(cqe)) {
			SAME(wc->src_qp, inlay_cqe_src_qpn(cqe));
			SAME(wc->slid, inlay_cqe_slid(cqe));
			SAME(wc->sl, inlay_cqe_sl(cqe));
			SAME(wc->dlid_path_bits, inlay_cqe_path_bits(cqe));
			SAME(!!(wc->wc_flags & IBV_WC_GRH), inlay_cqe_has_grh(cqe));
			SAME(ibv_wc_read_src_qp(lazy), inlay_cqe_src_qpn(cqe));
			SAME(ibv_wc_read_slid(lazy), inlay_cqe_slid(cqe));
			SAME(ibv_wc_read_sl(lazy), inlay_cqe_sl(cqe));
			SAME(ibv_wc_read_dlid_path_bits(lazy), inlay_cqe_path_bits(cqe));
			SAME(!!(ibv_wc_read_wc_flags(lazy) & IBV_WC_GRH), inlay_cqe_has_grh(cqe));
		}
		SAME(ibv_wc_read_completion_ts(lazy), inlay_cqe_timestamp(cqe));
		if (!inlay_cqe_is_send(cqe) || sop == MLX5_OPCODE_RDMA_READ || sop >= MLX5_OPCODE_ATOMIC_CS) {
			SAME(wc->byte_len, inlay_cqe_byte_count(cqe));
			SAME(ibv_wc_read_byte_len(lazy), inlay_cqe_byte_count(cqe));
		}
		if (op == MLX5_CQE_RESP_WR_IMM || op == MLX5_CQE_RESP_SEND_IMM) {
			SAME(wc->wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
			SAME(wc->imm_data, inlay_cqe_imm_be(cqe));
			SAME(ibv_wc_read_imm_data(lazy), inlay_cqe_imm_be(cqe));
		}
		if (op == MLX5_CQE_RESP_SEND_INV) {
			SAME(wc->wc_flags & IBV_WC_WITH_INV, IBV_WC_WITH_INV);
			SAME(wc->invalidated_rkey, inlay_cqe_invalidated_rkey(cqe));
			SAME(ibv_wc_read_invalidated_rkey(lazy), inlay_cqe_invalidated_rkey(cqe));
		}
	}
#undef SAME
	if (bad) {
		fprintf(report_to,
			"libmlx5: status %d opcode %d byte_len %u imm 0x%x qp_num 0x%x vendor 0x%x flags 0x%x "
			"src_qp 0x%x slid %u sl %u path %u; "
			"inlay: status %d\n", wc->status, wc->opcode, wc->byte_len, wc->imm_data, wc->qp_num, wc->vendor_err, wc->wc_flags,
			wc->src_qp, wc->slid, wc->sl, wc->dlid_path_bits, status);
		inlay_cqe_print(report_to, cqe);
	}
	cases++;
	return bad;
}

/* Takes up to n completions from all three, and compares them and what the device is told of it. Returns how many */
static uint32_t take(struct cqs *q, uint32_t n, unsigned way)
{
	static const struct mlx5_cqe64 *cqes[4096];
	static struct ibv_wc wc[4096];
	struct ibv_poll_cq_attr attr;
	uint32_t got, i, there;
	int polled, err;

	memset(&attr, 0, sizeof(attr));
	memset(wc, 0xee, n * sizeof(wc[0]));
	polled = ibv_poll_cq(q->poll, (int)n, wc);
	assert_true(polled >= 0);
	/* An error comes alone */
	for (got = 0; way == 0 && got < (uint32_t)polled; got += i) {
		i = inlay_cq_peek_many(&q->cq, cqes + got, n - got);
		assert_in_range(i, 1, polled - (int)got);
		assert_true(i == 1 || !inlay_cqe_is_error(cqes[got]));
		inlay_cq_advance_quiet(&q->cq, i);
	}
	got = (uint32_t)polled;
	err = n ? ibv_start_poll(q->lazy, &attr) : ENOENT;
	there = !err;
	for (i = 0; i < got; i++) {
		assert_int_equal(err, 0);
		if (way) {
			cqes[i] = inlay_cq_peek(&q->cq);
			assert_non_null(cqes[i]);
			assert_ptr_equal(inlay_cq_peek(&q->cq), cqes[i]);
		}
		assert_false(cqe_check(cqes[i], &wc[i], q->lazy));
		if (way == 1)
			inlay_cq_advance(&q->cq, 1);
		else if (way == 2)
			inlay_cq_advance_quiet(&q->cq, 1);
		if (i + 1 < got)
			err = ibv_next_poll(q->lazy);
	}
	/* Ended, or fewer than asked for: then nothing may be left */
	if (there)
		ibv_end_poll(q->lazy);
	if (way != 1 && got)
		inlay_cq_update(&q->cq);
	if (got < n) {
		assert_null(inlay_cq_peek(&q->cq));
		assert_int_equal(inlay_cq_peek_many(&q->cq, cqes, 1), 0);
		assert_int_equal(ibv_start_poll(q->lazy, &attr), ENOENT);
		assert_int_equal(ibv_poll_cq(q->poll, 1, wc), 0);
	}
	if (got) {
		assert_int_equal(q->dv[0].dbrec[0], q->dv[2].dbrec[0]);
		assert_int_equal(q->dv[1].dbrec[0], q->dv[2].dbrec[0]);
		assert_int_equal(be32toh(q->dv[2].dbrec[0]), q->cq.ci & 0xffffff);
	}
	return got;
}

static const uint8_t cqe_ops[] = {MLX5_CQE_REQ, MLX5_CQE_RESP_WR_IMM, MLX5_CQE_RESP_SEND, MLX5_CQE_RESP_SEND_IMM,
				  MLX5_CQE_RESP_SEND_INV, MLX5_CQE_REQ_ERR, MLX5_CQE_RESP_ERR};
static struct ibv_qp_cap cq_cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 4, .max_recv_sge = 4};

/* Every opcode and, of errors, every syndrome; CQEs of both sizes; then rings of all sizes, filled and emptied at random */
static void completions(void)
{
	static const uint32_t sizes[] = {64, 128};
	uint32_t s, o, k, there, rings;
	struct mlx5_cqe64 cqe;
	struct cqs q;

	trio_open(&T, &cq_cap, K->lean, INLAY_UAR_SERIAL);
	for (s = 0; s < ARRAY(sizes); s++) {
		cqs_open(&q, 63, sizes[s]);
		assert_int_equal(take(&q, 1, 0), 0);
		for (o = 0; o < ARRAY(cqe_ops); o++)
			for (k = 0; k < 256; k++) {
				cqe_random(&cqe, &T.a, cqe_ops[o], (uint8_t)k);
				inject(&q, &cqe);
				assert_int_equal(take(&q, 2, k % 3), 1);
			}
		cqs_close(&q);
		for (rings = 0; rings < 12; rings++) {
			/* libmlx5's CQ has one slot more than was asked for, and a power of two */
			uint32_t want = rings < 10 ? 1u << rings : 1 + rnd_below(1000), laps;

			cqs_open(&q, want, sizes[s]);
			for (there = 0, laps = 0; laps < 60; laps++) {
				k = rnd_below(4) ? rnd_below(q.cq.mask + 2 - there) : q.cq.mask + 1 - there;
				there += k;
				while (k--) {
					cqe_random(&cqe, &T.a, cqe_ops[rnd_below(ARRAY(cqe_ops))], (uint8_t)rnd_below(0x24));
					inject(&q, &cqe);
				}
				k = rnd_below(3) ? rnd_below(there + 2) : q.cq.mask + 1;
				there -= take(&q, k, rnd_below(3));
			}
			while (there)
				there -= take(&q, q.cq.mask + 1, 0);
			cqs_close(&q);
		}
	}
	trio_close(&T);
}

/*
 * The same of QPs with an SRQ. What libmlx5 makes of its list of free entries, each of which completes many times here, is nobody's
 * concern
 */
static void completions_srq(void)
{
	struct ibv_srq_init_attr attr;
	struct ibv_recv_wr wr, *bad;
	const struct ibv_qp_cap cap = cq_cap;

	memset(&attr, 0, sizeof(attr));
	memset(&wr, 0, sizeof(wr));
	attr.attr.max_wr = 255;
	attr.attr.max_sge = 1;
	srq_of_qps = ibv_create_srq(dev.pd, &attr);
	assert_non_null(srq_of_qps);
	for (entries = 0; entries < 255; entries++) {
		wr.wr_id = entries;
		must(ibv_post_srq_recv(srq_of_qps, &wr, &bad));
	}
	cq_cap.max_recv_wr = 0;
	cq_cap.max_recv_sge = 0;
	completions();
	cq_cap = cap;
	entries = 0;
	must(ibv_destroy_srq(srq_of_qps));
	srq_of_qps = NULL;
}

#endif
