/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * queues.c: queues that device commands made carry traffic: all operations between two of them
 * and between one and a QP of verbs, both ways, under CQs of either kind, with doorbells and
 * BlueFlame, in one process and in two, round the ring; and what the device says of them when it is
 * asked.
 */
#include "common.h"
#include "rig.h"

/* ---- All operations ---- */

static void between(const struct how *how_a, const struct how *how_b, uint32_t n)
{
	static struct side a, b;

	rig_empty(NULL);
	sides_make(&a, how_a, &b, how_b);
	exercise(&a, &b, n);
	sides_free(&a, &b);
}

static struct how how_of(bool verbs, uint32_t cqe_size, uint32_t scatter)
{
	struct how how;

	memset(&how, 0, sizeof(how));
	how.verbs = verbs;
	how.cqe_size = cqe_size;
	how.scatter = scatter;
	return how;
}

static void two_by_commands(void **state)
{
	struct how how = how_of(false, 64, 0);

	(void)state;
	between(&how, &how, 400);
}

static void one_of_verbs(void **state)
{
	struct how devx = how_of(false, 64, 0), verbs = how_of(true, 64, 0);

	(void)state;
	between(&devx, &verbs, 400);
	between(&verbs, &devx, 100);
}

static void sizes_of_cqes_and_scatter(void **state)
{
	static const struct {
		uint32_t cqe_size, scatter;
	} kinds[] = {{64, 0}, {64, 32}, {128, 0}, {128, 32}, {128, 64}};
	size_t i, j;

	(void)state;
	for (i = 0; i < ARRAY(kinds); i++)
		for (j = 0; j < ARRAY(kinds); j++) {
			struct how a = how_of(false, kinds[i].cqe_size, kinds[i].scatter);
			struct how b = how_of(false, kinds[j].cqe_size, kinds[j].scatter);

			between(&a, &b, 60);
		}
}

/* Many at once, so that there are blocks: messages of the same kind in a row, whose lengths and contents are told apart */
static void flood(struct side *a, struct side *b, uint32_t rounds)
{
	uint32_t round, i, n, first, len[32];
	struct ibv_sge sge;
	bool imm;

	for (round = 0; round < rounds; round++) {
		n = 1 + rnd_below(ARRAY(len));
		imm = rnd_below(4) == 0;
		first = inlay_sq_index(a->sq);
		for (i = 0; i < n; i++) {
			len[i] = 1 + rnd_below(500);
			sge = piece(b, 512 * i, 512);
			must(inlay_post_recv(b->rq, &sge, 1));
			fill(a->buf + 512 * i, len[i], 100 * round + i);
			sge = piece(a, 512 * i, len[i]);
			must(imm ? inlay_post_send_imm(a->sq, 7, &sge, 1, INLAY_SIGNALED) :
				   inlay_post_send(a->sq, &sge, 1, INLAY_SIGNALED));
		}
		inlay_rq_ring(b->rq);
		inlay_sq_ring(a->sq);
		for (i = 0; i < n; i++) {
			take_received(b, imm ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND, len[i], 7,
				      b->buf + 512 * i);
			assert_int_equal(differs(b->buf + 512 * i, len[i], 100 * round + i), len[i]);
		}
		for (i = 0; i < n; i++)
			take_sent(a, first + i, NULL);
	}
}

static void compressed(void **state)
{
	static const uint32_t formats[] = {INLAY_MINI_HASH, INLAY_MINI_CSUM, INLAY_MINI_CSUM_STRIDX, INLAY_MINI_L34H_STRIDX};
	static const struct {
		uint32_t zip;
		bool verbs_cq;
	} kinds[] = {{INLAY_DEVX_CQ_COMPRESSED, false}, {INLAY_DEVX_CQ_ENHANCED, false}, {INLAY_DEVX_CQ_COMPRESSED, true}};
	struct how how;
	uint32_t i, j;

	(void)state;
	for (i = 0; i < ARRAY(kinds); i++)
		for (j = 0; j < ARRAY(formats) - kinds[i].verbs_cq; j++) {
			static struct side a, b;
			uint32_t before = blocks;

			how = how_of(false, rnd_below(2) ? 64 : 128, rnd_below(2) ? 32 : 0);
			how.zip = kinds[i].zip;
			how.verbs_cq = kinds[i].verbs_cq;
			how.mini = formats[j];
			rig_empty(NULL);
			sides_make(&a, &how, &b, &how);
			flood(&a, &b, 40);
			exercise(&a, &b, 60);
			flood(&b, &a, 20);
			sides_free(&a, &b);
			assert_true(blocks > before);
		}
}

static void cqs_of_verbs(void **state)
{
	struct how a = how_of(false, 64, 0), b = how_of(false, 128, 64), c = how_of(true, 64, 0);

	(void)state;
	a.verbs_cq = b.verbs_cq = true;
	between(&a, &b, 200);
	between(&a, &c, 100);
}

static void blueflame(void **state)
{
	struct how a = how_of(false, 64, 0), b = how_of(false, 64, 0);
	struct inlay_devx_qp_attr second;
	struct inlay_devx_qp qp;
	static struct side s, t;
	uint64_t i;

	(void)state;
	a.blueflame = true;
	between(&a, &b, 200);
	between(&b, &a, 200);
	between(&a, &a, 200);
	/* Two queues on one serial register, in turn */
	rig_empty(NULL);
	sides_make(&s, &a, &t, &b);
	second = qp_want(s.cq->cqn, s.cq->cqn, 64, 64);
	second.uar = &s.own;
	must(inlay_devx_qp_create(&qp, dev.ctx, &second));
	assert_int_equal(s.own.uar.queues, 2);
	must(inlay_devx_qp_connect_self(&qp, &s.path));
	for (i = 0; i < 100; i++) {
		exercise(&s, &t, 1);
		must(inlay_post_write_inline(&qp.sq, at_peer(&t, 8 * i), t.mr->rkey, &i, sizeof(i), INLAY_SIGNALED));
		inlay_sq_ring(&qp.sq);
		assert_true(inlay_sq_release(&qp.sq, cqe_wait(s.cq)) == 1);
		inlay_cq_advance(s.cq, 1);
		assert_memory_equal(t.buf + 8 * i, &i, sizeof(i));
	}
	assert_int_equal(inlay_devx_uar_free(&s.own), -EBUSY);
	must(inlay_devx_qp_destroy(&qp));
	assert_int_equal(inlay_devx_uar_free(&s.own), -EBUSY);
	sides_free(&s, &t);
}

/* Waits until the queue's latest completion says something new */
static int latest(struct inlay_devx_qp *qp, struct inlay_devx_cq *cq)
{
	double end = now() + DEADLINE;
	int got;

	while (!(got = inlay_sq_release_latest(&qp->sq, &cq->cq))) {
		assert_true(now() < end);
		step();
	}
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
		must(inlay_devx_query_context(cq.obj, INLAY_CMD_OP_QUERY_CQ, cq.cq.cqn, &out, sizeof(out), &cq.error));
		assert_true(inlay_cqc_get(&out.cqc, INLAY_CQC_CC) && inlay_cqc_get(&out.cqc, INLAY_CQC_OI));
		cq_open(&rcq, 64, 64);
		want = qp_want(cq.cq.cqn, rcq.cq.cqn, 64, 16);
		must(inlay_devx_qp_create(&qp, dev.ctx, &want));
		must(inlay_devx_qp_connect_self(&qp, &path));
		assert_int_equal(inlay_sq_release_latest(&qp.sq, &cq.cq), 0);
		for (n = 1; n <= 3000; n++) {
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
		assert_int_equal(*word, 3000);
		must(inlay_post_write_inline(&qp.sq, (uintptr_t)word, ~mr->rkey, &n, 8, INLAY_SIGNALED | INLAY_RING));
		assert_int_equal(latest(&qp, &cq), -EIO);
		assert_int_equal(inlay_sq_release_latest(&qp.sq, &cq.cq), -EIO);
		assert_int_equal(inlay_cqe_status(inlay_cq_latest(&cq.cq)), IBV_WC_REM_ACCESS_ERR);
		assert_int_equal(inlay_sq_release(&qp.sq, inlay_cq_latest(&cq.cq)), 1);
		assert_int_equal(inlay_sq_release_latest(&qp.sq, &cq.cq), -EIO);
		inlay_cq_latest_reset(&cq.cq);
		assert_int_equal(inlay_sq_release_latest(&qp.sq, &cq.cq), 0);
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

static void user_index_and_one_cq(void **state)
{
	struct how a = how_of(false, 64, 0), b = how_of(false, 64, 0);

	(void)state;
	a.flags = INLAY_DEVX_QP_USER_INDEX;
	between(&a, &b, 60);
	b.one_cq = true;
	between(&a, &b, 100);
}

/* A QP that is its own peer */
static void to_itself(void **state)
{
	struct how how = how_of(false, 64, 0);
	static struct side s;
	uint32_t i;

	(void)state;
	side_make(&s, &how);
	must(inlay_devx_qp_connect_self(&s.qp, &s.path));
	for (i = 0; i < 100; i++)
		operate(&s, &s, (enum op)rnd_below(OPS), rnd_below(2) ? rnd_below(100) : 100, i + 1);
	side_free(&s);
}

/* UC: a send completes when it is gone, so what is looked at is what has arrived at the peer */
static void unreliable(void **state)
{
	struct how devx = how_of(false, 64, 0), verbs = how_of(true, 64, 0);
	static const enum op ops[] = {OP_WRITE_IMM, OP_SEND, OP_SEND_IMM, OP_SEND_INLINE};
	static struct side a, b;
	uint32_t i, with;

	(void)state;
	devx.type = verbs.type = INLAY_QP_ST_UC;
	for (with = 0; with < 2; with++) {
		rig_empty(NULL);
		sides_make(&a, &devx, &b, with ? &verbs : &devx);
		for (i = 0; i < 100; i++)
			operate(i & 1 ? &a : &b, i & 1 ? &b : &a, ops[rnd_below(ARRAY(ops))], rnd_below(100), i + 1);
		sides_free(&a, &b);
	}
}

/* ---- Round the ring ---- */

#define BURST 250u /* less than a CQ */

/*
 * Sends in bursts, the last of each signaled, through rings of all sizes, and so many of them that
 * 16-bit counters come round too
 */
static void wraps(void **state)
{
	static const uint32_t rings[] = {4, 16, 64, 1024};
	static struct side a, b;
	struct ibv_sge from, to;
	uint32_t r, i, j, n, total, last, done;

	(void)state;
	for (r = 0; r < ARRAY(rings); r++) {
		struct how how = how_of(false, r & 1 ? 128 : 64, 0);

		how.bbs = how.wqes = rings[r];
		how.blueflame = r == 1;
		rig_empty(NULL);
		sides_make(&a, &how, &b, &how);
		total = rings[r] < 1024 ? 50 * rings[r] : getenv("INLAY_TEST_AGAIN") ? 20000 : 70000;
		for (done = 0; done < total; done += n) {
			n = 1 + rnd_below(rings[r] < BURST ? rings[r] : BURST);
			for (i = 0; i < n; i++) {
				to = piece(&b, i * 64, 64);
				must(inlay_post_recv(b.rq, &to, 1));
			}
			inlay_rq_ring(b.rq);
			for (i = 0; i < n; i++) {
				j = done + i;
				memcpy(a.buf + i * 64, &j, sizeof(j));
				from = piece(&a, i * 64, 4);
				last = inlay_sq_index(a.sq);
				must(inlay_post_send(a.sq, &from, 1, i + 1 == n ? INLAY_SIGNALED : 0));
			}
			inlay_sq_ring(a.sq);
			for (i = 0; i < n; i++) {
				take_received(&b, MLX5_CQE_RESP_SEND, 4, 0, NULL);
				memcpy(&j, b.buf + i * 64, sizeof(j));
				assert_int_equal(j, done + i);
			}
			take_sent(&a, last, NULL);
			assert_int_equal(inlay_sq_pending(a.sq), 0);
		}
		sides_free(&a, &b);
	}
}

/* Receives out of order: completions come in the order of the messages, and say which WQE; half the ring is posted at a time */
static void out_of_order(void **state)
{
	static const uint32_t rings[] = {2, 8, 64};
	uint32_t r, i, j, n, done, early, sent_all = 0, posted;
	struct how how = how_of(false, 64, 0);
	static struct side a, b;
	struct ibv_sge to;

	(void)state;
	how.flags = INLAY_DEVX_QP_OOO;
	for (r = 0, early = 0; r < ARRAY(rings); r++) {
		how.wqes = rings[r];
		rig_empty(NULL);
		sides_make(&a, &how, &b, &how);
		assert_int_equal(inlay_rq_size(b.rq), rings[r] / 2);
		for (posted = done = 0; done < 70000 && (r == 2 || done < 2000); done += n) {
			/* What the queue has room for; each WQE has a place of its own */
			while (inlay_rq_room(b.rq)) {
				to = piece(&b, posted % rings[r] * 64, 64);
				assert_int_equal(inlay_rq_index(b.rq), posted++);
				must(inlay_post_recv(b.rq, &to, 1));
			}
			assert_int_equal(inlay_post_recv(b.rq, &to, 1), -EAGAIN);
			inlay_rq_ring(b.rq);
			n = 1 + rnd_below(inlay_rq_pending(b.rq));
			for (i = 0; i < n; i++) {
				j = done + i;
				must(inlay_post_send_inline(a.sq, &j, 4, i + 1 == n ? INLAY_SIGNALED : 0));
			}
			inlay_sq_ring(a.sq);
			for (i = 0; i < n; i++) {
				const struct mlx5_cqe64 *cqe = cqe_wait(b.rxcq);
				uint16_t at = inlay_cqe_wqe_counter(cqe);

				assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_RESP_SEND);
				memcpy(&j, b.buf + at % rings[r] * 64, sizeof(j));
				assert_int_equal(j, done + i);
				early += (uint16_t)(at - (done + i)) != 0;
				assert_int_equal(inlay_rq_release_ooo(b.rq, cqe), 1);
				assert_int_equal(inlay_rq_release_ooo(b.rq, cqe), -EPROTO);
				inlay_cq_advance(b.rxcq, 1);
				sent_all++;
			}
			take_sent(&a, done + n - 1, NULL);
		}
		sides_free(&a, &b);
	}
	printf("# %u messages, %u into another WQE than in order\n", sent_all, early);
	assert_true(early > 100);
}

/* A full ring answers -EAGAIN, and goes on when the credit is back */
static void full_rings(void **state)
{
	struct how how = how_of(false, 64, 0);
	static struct side a, b;
	struct ibv_sge sge;
	uint32_t i, first;

	(void)state;
	how.bbs = how.wqes = 8;
	sides_make(&a, &how, &b, &how);
	sge = piece(&b, 0, 64);
	for (i = 0; i < 8; i++)
		must(inlay_post_recv(b.rq, &sge, 1));
	assert_int_equal(inlay_post_recv(b.rq, &sge, 1), -EAGAIN);
	first = inlay_sq_index(a.sq);
	for (i = 0; i < 8; i++)
		must(inlay_post_send_inline(a.sq, &i, 4, INLAY_SIGNALED));
	assert_int_equal(inlay_post_send_inline(a.sq, &i, 4, INLAY_SIGNALED), -EAGAIN);
	inlay_rq_ring(b.rq);
	inlay_sq_ring(a.sq);
	for (i = 0; i < 8; i++) {
		take_received(&b, MLX5_CQE_RESP_SEND, 4, 0, NULL);
		take_sent(&a, first + i, NULL);
	}
	exercise(&a, &b, 20);
	sides_free(&a, &b);
}

/* ---- What the device says ---- */

static struct inlay_query_cq_out asked_cq(struct inlay_devx_cq *cq)
{
	struct inlay_query_cq_out out;

	must(context(cq, CQ, cq.cqn, &out));
	return out;
}

static struct inlay_query_qp_out asked_qp(struct inlay_devx_qp *qp)
{
	struct inlay_query_qp_out out;

	must(context(qp, QP, qpn, &out));
	return out;
}

#define CQ_IS(field, value) assert_int_equal(inlay_cqc_get(&c.cqc, INLAY_CQC_##field), value)
#define QP_IS(field, value) assert_int_equal(inlay_qpc_get(&q.qpc, INLAY_QPC_##field), value)

static void cq_as_it_was_made(void **state)
{
	struct inlay_devx_cq_attr attr;
	struct inlay_query_cq_out c;
	struct inlay_devx_cq cq;
	uint32_t eqn, log, size, quiet;

	(void)state;
	must(mlx5dv_devx_query_eqn(dev.ctx, 0, &eqn));
	for (log = 0; log < 11; log++)
		for (size = 64; size <= 128; size += 64) {
			rig_empty(NULL);
			quiet = log & 1;
			attr = cq_want(1u << log, size);
			attr.period = (uint16_t)(log * 100);
			attr.count = (uint16_t)(log * 1000);
			attr.flags = quiet ? INLAY_DEVX_CQ_IGNORE_OVERRUN : 0;
			must(inlay_devx_cq_create(&cq, dev.ctx, &attr));
			assert_int_equal(cq.error.err, 0);
			assert_int_equal(cq.error.opcode, INLAY_CMD_OP_CREATE_CQ);
			c = asked_cq(&cq);
			CQ_IS(STATUS, INLAY_CQ_STATUS_OK);
			CQ_IS(CQE_SZ, size == 128);
			CQ_IS(OI, quiet);
			CQ_IS(LOG_CQ_SIZE, log);
			CQ_IS(UAR_PAGE, rig.uar.page_id);
			CQ_IS(CQ_PERIOD, log * 100);
			CQ_IS(CQ_MAX_COUNT, log * 1000);
			CQ_IS(C_EQN_OR_APU_ELEMENT, eqn);
			CQ_IS(DBR_UMEM_ID, rig.umem.id);
			CQ_IS(DBR_ADDR, attr.record.offset);
			CQ_IS(PRODUCER_COUNTER, 0);
			CQ_IS(CONSUMER_COUNTER, 0);
			assert_null(inlay_cq_peek(&cq.cq));
			must(inlay_devx_cq_destroy(&cq));
			assert_null(cq.obj);
			must(inlay_devx_cq_destroy(&cq));
			assert_int_equal(context(&cq, CQ, cq.cqn, &c), -EINVAL);
		}
}

static void qp_as_it_was_made(void **state)
{
	struct how how = how_of(false, 128, 64);
	struct inlay_connect_record peer;
	struct inlay_query_qp_out q;
	struct inlay_query_cq_out c;
	static struct side a, b;
	uint32_t i, n = 50, base;

	(void)state;
	how.flags = INLAY_DEVX_QP_USER_INDEX;
	how.bbs = 128;
	how.wqes = 32;
	side_make(&a, &how);
	side_make(&b, &how);
	q = asked_qp(&a.qp);
	QP_IS(STATE, INLAY_QP_STATE_RST);
	QP_IS(ST, INLAY_QP_ST_RC);
	QP_IS(PD, rig.pdn);
	QP_IS(CQN_SND, a.scq.cq.cqn);
	QP_IS(CQN_RCV, a.rcq.cq.cqn);
	QP_IS(LOG_SQ_SIZE, 7);
	QP_IS(LOG_RQ_SIZE, 5);
	QP_IS(LOG_RQ_STRIDE, 2);
	QP_IS(NO_SQ, 0);
	QP_IS(RQ_TYPE, INLAY_RQ_TYPE_OWN);
	QP_IS(UAR_PAGE, rig.uar.page_id);
	QP_IS(USER_INDEX, 0x5a5a5a);
	QP_IS(CS_REQ, INLAY_CS_REQ_UP_TO_64);
	QP_IS(CS_RES, INLAY_CS_RES_UP_TO_64);
	QP_IS(DBR_UMEM_ID, rig.umem.id);
	must(inlay_devx_qp_to_init(&a.qp, &a.path));
	q = asked_qp(&a.qp);
	QP_IS(STATE, INLAY_QP_STATE_INIT);
	QP_IS(RRE, 1);
	QP_IS(RWE, 1);
	QP_IS(RAE, 1);
	QP_IS(ATOMIC_MODE, INLAY_ATOMIC_MODE_IB);
	side_address(&b, &peer);
	must(inlay_devx_qp_to_rtr(&a.qp, &a.path, &peer));
	q = asked_qp(&a.qp);
	QP_IS(STATE, INLAY_QP_STATE_RTR);
	QP_IS(REMOTE_QPN, b.qpn);
	QP_IS(MTU, IBV_MTU_1024);
	QP_IS(NEXT_RCV_PSN, PSN);
	QP_IS(LOG_RRA_MAX, 4);
	QP_IS(MIN_RNR_NAK, 1);
	QP_IS(LOG_MSG_MAX, 30);
	must(inlay_devx_qp_to_rts(&a.qp, &a.path));
	q = asked_qp(&a.qp);
	QP_IS(STATE, INLAY_QP_STATE_RTS);
	QP_IS(NEXT_SEND_PSN, PSN);
	QP_IS(LOG_SRA_MAX, 4);
	QP_IS(RETRY_COUNT, 7);
	QP_IS(RNR_RETRY, 7);
	assert_int_equal(inlay_ads_get(&q.qpc.primary, INLAY_ADS_ACK_TIMEOUT), 10);
	assert_int_equal(inlay_ads_get(&q.qpc.primary, INLAY_ADS_VHCA_PORT_NUM), 1);
	side_connect(&b, &a);
	exercise(&a, &b, 100);
	/* Counters: writes of one WQEBB from a, receives of its own */
	c = asked_cq(&a.scq);
	CQ_IS(PRODUCER_COUNTER, a.cq->ci & 0xffffff);
	base = a.cq->ci;
	for (i = 0; i < n; i++)
		must(inlay_post_write_inline(a.sq, at_peer(&b, 0), b.mr->rkey, &i, 4, INLAY_SIGNALED));
	inlay_sq_ring(a.sq);
	for (i = 0; i < n; i++)
		take_sent(&a, inlay_sq_index(a.sq) - n + i, NULL);
	c = asked_cq(&a.scq);
	CQ_IS(PRODUCER_COUNTER, (base + n) & 0xffffff);
	CQ_IS(STATUS, INLAY_CQ_STATUS_OK);
	q = asked_qp(&a.qp);
	QP_IS(HW_SQ_WQEBB_COUNTER, inlay_sq_index(a.sq));
	QP_IS(SW_SQ_WQEBB_COUNTER, inlay_sq_index(a.sq));
	QP_IS(SW_RQ_COUNTER, a.rq->pi & 0xffff);
	QP_IS(HW_RQ_COUNTER, a.rq->pi & 0xffff);
	must(inlay_devx_qp_to_error(&a.qp));
	q = asked_qp(&a.qp);
	QP_IS(STATE, INLAY_QP_STATE_ERR);
	must(inlay_devx_qp_to_reset(&a.qp));
	q = asked_qp(&a.qp);
	QP_IS(STATE, INLAY_QP_STATE_RST);
	sides_free(&a, &b);
}

/* Objects of verbs answer the same commands */
static void objects_of_verbs(void **state)
{
	struct how how = how_of(true, 128, 0), devx = how_of(false, 64, 0);
	struct inlay_devx_error error;
	struct inlay_query_qp_out q;
	struct inlay_query_cq_out c;
	struct inlay_cmd_out done;
	struct inlay_cmd_in in;
	static struct side a, b;

	(void)state;
	sides_make(&a, &how, &b, &devx);
	exercise(&a, &b, 20);
	memset(&in, 0, sizeof(in));
	inlay_cmd_in_set(&in, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_QUERY_QP);
	inlay_cmd_in_set(&in, INLAY_CMD_IN_NUMBER, a.qpn);
	must(inlay_devx_result(mlx5dv_devx_qp_query(a.verbs.qp, &in, sizeof(in), &q, sizeof(q)), &in, &q, &error));
	QP_IS(STATE, INLAY_QP_STATE_RTS);
	QP_IS(REMOTE_QPN, b.qpn);
	QP_IS(CQN_SND, a.cq->cqn);
	QP_IS(CQN_RCV, a.rxcq->cqn);
	QP_IS(PD, rig.pdn);
	memset(&in, 0, sizeof(in));
	inlay_cmd_in_set(&in, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_QUERY_CQ);
	inlay_cmd_in_set(&in, INLAY_CMD_IN_NUMBER, a.cq->cqn);
	must(inlay_devx_result(mlx5dv_devx_cq_query(a.verbs.scq, &in, sizeof(in), &c, sizeof(c)), &in, &c, &error));
	CQ_IS(CQE_SZ, INLAY_CQE_SZ_128);
	CQ_IS(PRODUCER_COUNTER, a.cq->ci & 0xffffff);
	/* Another one's number is refused by the kernel, whose handle it is not */
	inlay_cmd_in_set(&in, INLAY_CMD_IN_NUMBER, a.rxcq->cqn);
	assert_int_equal(inlay_devx_result(mlx5dv_devx_cq_query(a.verbs.scq, &in, sizeof(in), &c, sizeof(c)), &in, &c,
					   &error), -EINVAL);
	assert_int_equal(error.status, 0);
	assert_int_equal(error.err, -EINVAL);
	/* Moved behind the library's back */
	memset(&in, 0, sizeof(in));
	inlay_cmd_in_set(&in, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_2ERR_QP);
	inlay_cmd_in_set(&in, INLAY_CMD_IN_NUMBER, a.qpn);
	must(inlay_devx_result(mlx5dv_devx_qp_modify(a.verbs.qp, &in, sizeof(in), &done, sizeof(done)), &in, &done,
			       &error));
	inlay_cmd_in_set(&in, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_QUERY_QP);
	must(inlay_devx_result(mlx5dv_devx_qp_query(a.verbs.qp, &in, sizeof(in), &q, sizeof(q)), &in, &q, &error));
	QP_IS(STATE, INLAY_QP_STATE_ERR);
	sides_free(&a, &b);
}

/* ---- Two processes ---- */

#define ROUNDS 500u
#define ADDS 100u

struct hello {
	struct inlay_connect_record address;
	uint64_t at;
	uint32_t rkey, last;
};

static int line = -1; /* to the peer */

static void say(const void *what, size_t len)
{
	assert_int_equal(send(line, what, len, MSG_NOSIGNAL), len);
}

static void hear(void *what, size_t len)
{
	assert_int_equal(recv(line, what, len, MSG_WAITALL), len);
}

/* Both ends: told of each other, connected, and each knows that the other is */
static struct hello meet(struct side *s)
{
	struct hello mine, peer;
	char ready = 0;

	memset(&mine, 0, sizeof(mine));
	must(inlay_devx_qp_address(&s->qp, &s->path, &mine.address));
	mine.at = (uintptr_t)s->buf;
	mine.rkey = s->mr->rkey;
	say(&mine, sizeof(mine));
	hear(&peer, sizeof(peer));
	must(inlay_devx_address_resolve(&peer.address, dev.pd, &s->path));
	must(inlay_devx_qp_connect(&s->qp, &s->path, &peer.address));
	say(&ready, 1);
	hear(&ready, 1);
	return peer;
}

static void give(struct side *s)
{
	struct ibv_sge sge = piece(s, 0, 64);

	must(inlay_post_recv(s->rq, &sge, 1));
	inlay_rq_ring(s->rq);
}

/* Answers what comes in with what it was, and one more */
static void answering(void)
{
	struct how how = how_of(false, 64, 0);
	static struct side s;
	uint32_t i, number;
	uint64_t sum;
	char end;

	side_make(&s, &how);
	give(&s);
	memset(s.buf + QUARTER, 0, 8);
	meet(&s);
	for (i = 0; i < ROUNDS; i++) {
		take_received(&s, MLX5_CQE_RESP_SEND, 4, 0, NULL);
		memcpy(&number, s.buf, 4);
		assert_int_equal(number, i);
		give(&s);
		number++;
		must(inlay_post_send_inline(s.sq, &number, 4, INLAY_SIGNALED));
		inlay_sq_ring(s.sq);
		take_sent(&s, i, NULL);
	}
	hear(&end, 1);
	memcpy(&sum, s.buf + QUARTER, 8);
	assert_int_equal(sum, ADDS * 3);
	assert_int_equal(differs(s.buf + 2 * QUARTER, 5000, 77), 5000);
	say(&end, 1);
	side_free(&s);
}

static void calling(struct side *s)
{
	struct hello peer = meet(s);
	struct ibv_sge sge;
	uint32_t i, number;
	uint64_t old;
	char end = 0;

	for (i = 0; i < ROUNDS; i++) {
		give(s);
		must(inlay_post_send_inline(s->sq, &i, 4, INLAY_SIGNALED));
		inlay_sq_ring(s->sq);
		take_sent(s, i, NULL);
		take_received(s, MLX5_CQE_RESP_SEND, 4, 0, NULL);
		memcpy(&number, s->buf, 4);
		assert_int_equal(number, i + 1);
	}
	sge = piece(s, QUARTER, 8);
	for (i = 0; i < ADDS; i++) {
		must(inlay_post_fetch_add(s->sq, peer.at + QUARTER, peer.rkey, 3, &sge, INLAY_SIGNALED));
		inlay_sq_ring(s->sq);
		take_sent(s, ROUNDS + i, NULL);
		memcpy(&old, s->buf + QUARTER, 8);
		assert_int_equal(old, 3 * i);
	}
	sge = piece(s, 2 * QUARTER, 5000);
	fill(s->buf + 2 * QUARTER, 5000, 77);
	must(inlay_post_write(s->sq, peer.at + 2 * QUARTER, peer.rkey, &sge, 1, 0));
	sge = piece(s, 3 * QUARTER, 5000);
	must(inlay_post_read(s->sq, peer.at + 2 * QUARTER, peer.rkey, &sge, 1, INLAY_SIGNALED));
	number = inlay_sq_index(s->sq) - 1;
	inlay_sq_ring(s->sq);
	take_sent(s, number, NULL);
	assert_int_equal(differs(s->buf + 3 * QUARTER, 5000, 77), 5000);
	say(&end, 1);
	hear(&end, 1);
}

static void two_processes(void **state)
{
	struct how how = how_of(false, 64, 0);
	static struct side s;
	int status;
	pid_t child;

	(void)state;
	line = peer_process(&child);
	side_make(&s, &how);
	calling(&s);
	side_free(&s);
	close(line);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		devx_test(two_by_commands),
		devx_test(one_of_verbs),
		devx_test(sizes_of_cqes_and_scatter),
		devx_test(cqs_of_verbs),
		devx_test(compressed),
		devx_test(blueflame),
		devx_test(collapsed),
		devx_test(user_index_and_one_cq),
		devx_test(to_itself),
		devx_test(unreliable),
		devx_test(wraps),
		devx_test(out_of_order),
		devx_test(full_rings),
		devx_test(cq_as_it_was_made),
		devx_test(qp_as_it_was_made),
		devx_test(objects_of_verbs),
		devx_test(two_processes),
	};

	if (getenv("INLAY_TEST_LINE")) {
		line = atoi(getenv("INLAY_TEST_LINE"));
		if (rig_open(NULL))
			return 1;
		rig_empty(NULL);
		answering();
		return rig_close(NULL) != 0;
	}
	if (!rig_here())
		return 0;
	return cmocka_run_group_tests_name("devx_queues", tests, rig_open, rig_close) ||
	       again_with("SOFTDEV_LINK", "ib") ||
	       again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
