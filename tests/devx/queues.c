/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * queues.c: queues that device commands made carry traffic: one row for each kind of CQ, register,
 * flag and peer; compressed, collapsed and out of order; and what the device says of them when it is
 * asked. The queues themselves are proved by tests/queue, two processes by tests/tag.
 */
#include "common.h"
#include "rig.h"

/* ---- All operations ---- */

static void pairs(void **state)
{
	static const struct {
		const char *name;
		struct how a, b;
	} rows[] = {
		{"two by commands", {.verbs = false}, {.verbs = false}},
		{"one of verbs", {.verbs = false}, {.verbs = true}},
		{"CQEs of 64 and 128, scatter", {.cqe_size = 64, .scatter = 32}, {.cqe_size = 128, .scatter = 64}},
		{"less scatter than a CQE has room for", {.cqe_size = 128, .scatter = 32}, {.cqe_size = 128}},
		{"BlueFlame", {.blueflame = true}, {.verbs = false}},
		{"a user index, one CQ", {.flags = INLAY_DEVX_QP_USER_INDEX}, {.one_cq = true}},
		{"short rings", {.bbs = 16, .wqes = 4}, {.blueflame = true, .bbs = 8, .wqes = 1}},
		{"UC", {.type = INLAY_QP_ST_UC}, {.type = INLAY_QP_ST_UC}},
	};
	static const enum op uc[] = {OP_WRITE_IMM, OP_SEND_IMM, OP_SEND_INLINE};
	static struct side a, b;
	size_t i, j;

	(void)state;
	for (i = 0; i < ARRAY(rows); i++) {
		print_message("# %s\n", rows[i].name);
		rig_empty(NULL);
		sides_make(&a, &rows[i].a, &b, &rows[i].b);
		if (rows[i].a.type != INLAY_QP_ST_UC)
			exercise(&a, &b, 80);
		else /* completes when it is gone: what has arrived is looked at */
			for (j = 0; j < 30; j++)
				operate(j & 1 ? &a : &b, j & 1 ? &b : &a, uc[rnd_below(ARRAY(uc))], rnd_below(100), (uint32_t)j + 1);
		sides_free(&a, &b);
	}
	/* A QP that is its own peer */
	rig_empty(NULL);
	side_make(&a, &rows[0].a);
	must(inlay_devx_qp_connect_self(&a.qp, &a.path));
	for (i = 0; i < 50; i++)
		operate(&a, &a, (enum op)rnd_below(OPS), rnd_below(101), (uint32_t)i + 1);
	side_free(&a);
}

/* Many at once, so that there are blocks: messages of one kind in a row, whose lengths and contents are told apart */
static void flood(struct side *a, struct side *b, uint32_t rounds)
{
	uint32_t round, i, n, first, len[32];
	struct ibv_sge sge;

	for (round = 0; round < rounds; round++) {
		n = 1 + rnd_below(ARRAY(len));
		first = inlay_sq_index(a->sq);
		for (i = 0; i < n; i++) {
			len[i] = 1 + rnd_below(500);
			sge = piece(b, 512 * i, 512);
			must(inlay_post_recv(b->rq, &sge, 1));
			fill(a->buf + 512 * i, len[i], 100 * round + i);
			sge = piece(a, 512 * i, len[i]);
			must(inlay_post_send_imm(a->sq, 7, &sge, 1, INLAY_SIGNALED));
		}
		inlay_rq_ring(b->rq);
		inlay_sq_ring(a->sq);
		for (i = 0; i < n; i++) {
			take_received(b, MLX5_CQE_RESP_SEND_IMM, len[i], 7, b->buf + 512 * i);
			assert_int_equal(differs(b->buf + 512 * i, len[i], 100 * round + i), len[i]);
		}
		for (i = 0; i < n; i++)
			take_sent(a, first + i, NULL);
	}
}

static void compressed(void **state)
{
	static const uint32_t formats[] = {INLAY_MINI_HASH, INLAY_MINI_CSUM, INLAY_MINI_CSUM_STRIDX, INLAY_MINI_L34H_STRIDX};
	static const struct how kinds[] = {
		{.zip = INLAY_DEVX_CQ_COMPRESSED}, {.zip = INLAY_DEVX_CQ_ENHANCED},
	};
	static struct side a, b;
	uint32_t i, j, before;

	(void)state;
	for (i = 0; i < ARRAY(kinds); i++)
		for (j = 0; j < ARRAY(formats); j++) {
			struct how how = kinds[i];

			how.cqe_size = rnd_below(2) ? 64 : 128;
			how.scatter = rnd_below(2) ? 32 : 0;
			how.mini = formats[j];
			before = blocks;
			rig_empty(NULL);
			sides_make(&a, &how, &b, &how);
			flood(&a, &b, 20);
			exercise(&a, &b, 20);
			sides_free(&a, &b);
			assert_true(blocks > before);
		}
}

/* Waits until the queue's latest completion says something new */
static int latest(struct inlay_devx_qp *qp, struct inlay_devx_cq *cq)
{
	int got;

	await((got = inlay_sq_release_latest(&qp->sq, &cq->cq)) != 0);
	return got;
}

/* A queue of which only the last completion is seen; then one that fails */
static void collapsed(void **state)
{
	struct inlay_devx_path path = path_usual();
	struct inlay_devx_cq_attr attr;
	struct inlay_query_cq_out out;
	struct inlay_devx_qp_attr want;
	struct inlay_devx_cq cq, rcq;
	struct inlay_devx_qp qp;
	uint64_t *word, n;
	struct ibv_mr *mr;
	uint32_t cqes;

	(void)state;
	word = (uint64_t *)pages(4096);
	mr = ibv_reg_mr(dev.pd, word, 4096, ALL_ACCESS);
	assert_non_null(mr);
	for (cqes = 1; cqes <= 8; cqes *= 8) {
		rig_empty(NULL);
		attr = cq_want(cqes, cqes == 1 ? 64 : 128);
		attr.flags = INLAY_DEVX_CQ_COLLAPSED;
		must(inlay_devx_cq_create(&cq, dev.ctx, &attr));
		must(context(&cq, CQ, cq.cqn, &out));
		assert_true(inlay_cqc_get(&out.cqc, INLAY_CQC_CC) && inlay_cqc_get(&out.cqc, INLAY_CQC_OI));
		cq_open(&rcq, 64, 64);
		want = qp_want(cq.cq.cqn, rcq.cq.cqn, 64, 16);
		must(inlay_devx_qp_create(&qp, dev.ctx, &want));
		must(inlay_devx_qp_connect_self(&qp, &path));
		assert_int_equal(inlay_sq_release_latest(&qp.sq, &cq.cq), 0);
		for (n = 1; n <= 200; n++) {
			if (!inlay_sq_room(&qp.sq))
				assert_true(latest(&qp, &cq) > 0);
			must(inlay_post_write_inline(&qp.sq, (uintptr_t)word, mr->rkey, &n, 8, inlay_sq_signal(&qp.sq, 1, 8)));
			if (rnd_below(3) == 0 || !inlay_sq_room(&qp.sq))
				inlay_sq_ring(&qp.sq);
		}
		must(inlay_sq_room(&qp.sq) || latest(&qp, &cq) > 0 ? 0 : -1);
		must(inlay_post_nop(&qp.sq, INLAY_SIGNALED | INLAY_RING));
		while (inlay_sq_pending(&qp.sq))
			assert_true(latest(&qp, &cq) > 0);
		assert_int_equal(*word, 200);
		must(inlay_post_write_inline(&qp.sq, (uintptr_t)word, ~mr->rkey, &n, 8, INLAY_SIGNALED | INLAY_RING));
		assert_int_equal(latest(&qp, &cq), -EIO);
		assert_int_equal(inlay_cqe_status(inlay_cq_latest(&cq.cq)), IBV_WC_REM_ACCESS_ERR);
		inlay_cq_latest_reset(&cq.cq);
		must(inlay_devx_qp_to_reset(&qp));
		must(inlay_devx_qp_connect_self(&qp, &path));
		must(inlay_post_write_inline(&qp.sq, (uintptr_t)word, mr->rkey, &n, 8, INLAY_SIGNALED | INLAY_RING));
		assert_int_equal(latest(&qp, &cq), 1);
		assert_int_equal(*word, n);
		must(inlay_devx_qp_destroy(&qp));
		must(inlay_devx_cq_destroy(&rcq));
		must(inlay_devx_cq_destroy(&cq));
	}
	must(ibv_dereg_mr(mr));
	free(word);
}

/* Receives out of order: completions come in the order of the messages, and say which WQE; half the ring is posted at a time */
static void out_of_order(void **state)
{
	static const struct how how = {.wqes = 32, .flags = INLAY_DEVX_QP_OOO};
	uint32_t i, posted = 0, early = 0;
	static struct side a, b;
	struct ibv_sge to;

	(void)state;
	sides_make(&a, &how, &b, &how);
	assert_int_equal(inlay_rq_size(b.rq), 16);
	for (i = 0; i < 300; i++) {
		const struct mlx5_cqe64 *cqe;
		uint16_t at;

		/* Each WQE has a place of its own */
		for (; i % 16 == 0 && inlay_rq_room(b.rq); posted++) {
			to = piece(&b, posted % 32 * 64, 64);
			must(inlay_post_recv(b.rq, &to, 1));
		}
		inlay_rq_ring(b.rq);
		must(inlay_post_send_inline(a.sq, &i, 4, INLAY_SIGNALED | INLAY_RING));
		cqe = cqe_wait(b.rxcq);
		at = inlay_cqe_wqe_counter(cqe);
		assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_RESP_SEND);
		assert_memory_equal(b.buf + at % 32 * 64, &i, 4);
		early += at != (uint16_t)i;
		assert_int_equal(inlay_rq_release_ooo(b.rq, cqe), 1);
		inlay_cq_advance(b.rxcq, 1);
		take_sent(&a, i, NULL);
	}
	assert_true(early > 30);
	sides_free(&a, &b);
}

/* ---- What the device says ---- */

static void cq_as_it_was_made(void **state)
{
	struct inlay_devx_cq_attr attr;
	struct inlay_query_cq_out c;
	struct inlay_devx_cq cq;
	uint32_t eqn, log, i;

	(void)state;
	must(mlx5dv_devx_query_eqn(dev.ctx, 0, &eqn));
	for (log = 0; log < 11; log++) {
		const struct {
			enum inlay_cqc_field field;
			uint64_t value;
		} said[] = {
			{INLAY_CQC_STATUS, INLAY_CQ_STATUS_OK}, {INLAY_CQC_CQE_SZ, log >> 1 & 1}, {INLAY_CQC_OI, log & 1},
			{INLAY_CQC_LOG_CQ_SIZE, log}, {INLAY_CQC_UAR_PAGE, rig.uar.page_id}, {INLAY_CQC_CQ_PERIOD, log * 100},
			{INLAY_CQC_CQ_MAX_COUNT, log * 1000}, {INLAY_CQC_C_EQN_OR_APU_ELEMENT, eqn}, {INLAY_CQC_DBR_UMEM_ID, rig.umem.id},
			{INLAY_CQC_DBR_ADDR, 0}, {INLAY_CQC_PRODUCER_COUNTER, 0}, {INLAY_CQC_CONSUMER_COUNTER, 0},
		};

		rig_empty(NULL);
		attr = cq_want(1u << log, log & 2 ? 128 : 64);
		attr.period = (uint16_t)(log * 100);
		attr.count = (uint16_t)(log * 1000);
		attr.flags = log & 1 ? INLAY_DEVX_CQ_IGNORE_OVERRUN : 0;
		must(inlay_devx_cq_create(&cq, dev.ctx, &attr));
		must(context(&cq, CQ, cq.cqn, &c));
		for (i = 0; i < ARRAY(said); i++)
			if (inlay_cqc_get(&c.cqc, said[i].field) != said[i].value)
				fail_msg("CQ of 2^%u: field 0x%x is %lu", log, said[i].field, (unsigned long)inlay_cqc_get(&c.cqc, said[i].field));
		must(inlay_devx_cq_destroy(&cq));
		must(inlay_devx_cq_destroy(&cq));
		assert_int_equal(context(&cq, CQ, cq.cqn, &c), -EINVAL);
	}
}

static void qp_as_it_was_made(void **state)
{
	static const struct how how = {.cqe_size = 128, .scatter = 64, .bbs = 128, .wqes = 32, .flags = INLAY_DEVX_QP_USER_INDEX};
	struct inlay_connect_record peer;
	struct inlay_query_qp_out q;
	struct inlay_query_cq_out c;
	static struct side a, b;
	uint32_t i, step_;

	(void)state;
	side_make(&a, &how);
	side_make(&b, &how);
	side_address(&b, &peer);
	const struct {
		uint32_t state;
		enum inlay_qpc_field field;
		uint64_t value;
	} said[] = {
		{INLAY_QP_STATE_RST, INLAY_QPC_ST, INLAY_QP_ST_RC}, {INLAY_QP_STATE_RST, INLAY_QPC_PD, rig.pdn},
		{INLAY_QP_STATE_RST, INLAY_QPC_CQN_SND, a.scq.cq.cqn}, {INLAY_QP_STATE_RST, INLAY_QPC_CQN_RCV, a.rcq.cq.cqn},
		{INLAY_QP_STATE_RST, INLAY_QPC_LOG_SQ_SIZE, 7}, {INLAY_QP_STATE_RST, INLAY_QPC_LOG_RQ_SIZE, 5},
		{INLAY_QP_STATE_RST, INLAY_QPC_LOG_RQ_STRIDE, 2}, {INLAY_QP_STATE_RST, INLAY_QPC_NO_SQ, 0},
		{INLAY_QP_STATE_RST, INLAY_QPC_RQ_TYPE, INLAY_RQ_TYPE_OWN}, {INLAY_QP_STATE_RST, INLAY_QPC_UAR_PAGE, rig.uar.page_id},
		{INLAY_QP_STATE_RST, INLAY_QPC_USER_INDEX, 0x5a5a5a}, {INLAY_QP_STATE_RST, INLAY_QPC_CS_REQ, INLAY_CS_REQ_UP_TO_64},
		{INLAY_QP_STATE_RST, INLAY_QPC_CS_RES, INLAY_CS_RES_UP_TO_64}, {INLAY_QP_STATE_RST, INLAY_QPC_DBR_UMEM_ID, rig.umem.id},
		{INLAY_QP_STATE_INIT, INLAY_QPC_RRE, 1}, {INLAY_QP_STATE_INIT, INLAY_QPC_RWE, 1}, {INLAY_QP_STATE_INIT, INLAY_QPC_RAE, 1},
		{INLAY_QP_STATE_INIT, INLAY_QPC_ATOMIC_MODE, INLAY_ATOMIC_MODE_IB},
		{INLAY_QP_STATE_RTR, INLAY_QPC_REMOTE_QPN, b.qpn}, {INLAY_QP_STATE_RTR, INLAY_QPC_MTU, IBV_MTU_1024},
		{INLAY_QP_STATE_RTR, INLAY_QPC_NEXT_RCV_PSN, PSN}, {INLAY_QP_STATE_RTR, INLAY_QPC_LOG_RRA_MAX, 4},
		{INLAY_QP_STATE_RTR, INLAY_QPC_MIN_RNR_NAK, 1}, {INLAY_QP_STATE_RTR, INLAY_QPC_LOG_MSG_MAX, 30},
		{INLAY_QP_STATE_RTS, INLAY_QPC_NEXT_SEND_PSN, PSN}, {INLAY_QP_STATE_RTS, INLAY_QPC_LOG_SRA_MAX, 4},
		{INLAY_QP_STATE_RTS, INLAY_QPC_RETRY_COUNT, 7}, {INLAY_QP_STATE_RTS, INLAY_QPC_RNR_RETRY, 7},
	};
	for (step_ = INLAY_QP_STATE_RST; step_ <= INLAY_QP_STATE_RTS; step_++) {
		if (step_ == INLAY_QP_STATE_INIT)
			must(inlay_devx_qp_to_init(&a.qp, &a.path));
		else if (step_ == INLAY_QP_STATE_RTR)
			must(inlay_devx_qp_to_rtr(&a.qp, &a.path, &peer));
		else if (step_ == INLAY_QP_STATE_RTS)
			must(inlay_devx_qp_to_rts(&a.qp, &a.path));
		must(context(&a.qp, QP, qpn, &q));
		assert_int_equal(inlay_qpc_get(&q.qpc, INLAY_QPC_STATE), step_);
		for (i = 0; i < ARRAY(said); i++)
			if (said[i].state == step_ && inlay_qpc_get(&q.qpc, said[i].field) != said[i].value)
				fail_msg("state %u: field 0x%x is %lu", step_, said[i].field, (unsigned long)inlay_qpc_get(&q.qpc, said[i].field));
	}
	assert_int_equal(inlay_ads_get(&q.qpc.primary, INLAY_ADS_ACK_TIMEOUT), 10);
	assert_int_equal(inlay_ads_get(&q.qpc.primary, INLAY_ADS_VHCA_PORT_NUM), 1);
	/* Counters */
	side_connect(&b, &a);
	exercise(&a, &b, 30);
	must(context(&a.scq, CQ, cq.cqn, &c));
	assert_int_equal(inlay_cqc_get(&c.cqc, INLAY_CQC_PRODUCER_COUNTER), a.cq->ci & 0xffffff);
	assert_int_equal(inlay_cqc_get(&c.cqc, INLAY_CQC_STATUS), INLAY_CQ_STATUS_OK);
	must(context(&a.qp, QP, qpn, &q));
	assert_int_equal(inlay_qpc_get(&q.qpc, INLAY_QPC_HW_SQ_WQEBB_COUNTER), inlay_sq_index(a.sq));
	assert_int_equal(inlay_qpc_get(&q.qpc, INLAY_QPC_SW_SQ_WQEBB_COUNTER), inlay_sq_index(a.sq));
	assert_int_equal(inlay_qpc_get(&q.qpc, INLAY_QPC_SW_RQ_COUNTER), a.rq->pi & 0xffff);
	assert_int_equal(inlay_qpc_get(&q.qpc, INLAY_QPC_HW_RQ_COUNTER), a.rq->pi & 0xffff);
	sides_free(&a, &b);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		devx_test(pairs),
		devx_test(compressed),
		devx_test(collapsed),
		devx_test(out_of_order),
		devx_test(cq_as_it_was_made),
		devx_test(qp_as_it_was_made),
	};

	if (!rig_here())
		return 0;
	return cmocka_run_group_tests_name("devx_queues", tests, rig_open, rig_close) ||
	       again_with("SOFTDEV_LINK", "ib") ||
	       again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
