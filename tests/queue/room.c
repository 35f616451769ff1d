/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * room.c: room for completions. A CQ that overruns is dead, and its QPs with it: what a queue reserves at take-over, how many CQEs a QP needs
 * before there is one, and that nothing is left reserved by what was refused or is gone.
 */
#include "common.h"

/* What is said before there is a queue is the ring that libmlx5 then makes */
TEST(sizes)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	uint32_t made[3] = {0}, i, t, shared = 0;
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(dev.pd, &attr);
	struct ibv_cq *cq = made(ibv_create_cq(dev.ctx, 1, NULL, NULL, 0));

	for (i = 0; i < 1500; i++) {
		struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = types[i % 3]}, asked;
		struct mlx5dv_qp dv;
		struct ibv_qp *qp;

		t = i % 3;
		init.cap.max_send_wr = rnd_below(9) ? 1 + rnd_below(rnd_below(4) ? 300 : 5000) : 0;
		init.cap.max_send_sge = rnd_below(rnd_below(4) ? 6 : 31);
		init.cap.max_inline_data = rnd_below(3) ? rnd_below(rnd_below(4) ? 260 : 1000) : 0;
		init.cap.max_recv_wr = rnd_below(5) ? 1 + rnd_below(rnd_below(4) ? 300 : 20000) : 0;
		init.cap.max_recv_sge = 1 + rnd_below(rnd_below(4) ? 6 : 31);
		init.srq = srq && rnd_below(8) == 0 ? srq : NULL;
		asked = init;
		qp = ibv_create_qp(dev.pd, &init);
		assert_in_range(inlay_send_cqes(&asked), 0, 32768);
		assert_in_range(inlay_recv_cqes(&asked), 0, 32768);
		if (!qp)
			continue;
		dv = view_qp(qp);
		if (dv.sq.wqe_cnt != inlay_send_cqes(&asked) || (asked.srq ? 0 : dv.rq.wqe_cnt) != inlay_recv_cqes(&asked))
			fail_msg("type %u, send wr %u sge %u inline %u: %u, not %u; recv wr %u sge %u: %u, not %u", asked.qp_type,
				 asked.cap.max_send_wr, asked.cap.max_send_sge, asked.cap.max_inline_data, inlay_send_cqes(&asked),
				 dv.sq.wqe_cnt, asked.cap.max_recv_wr, asked.cap.max_recv_sge, inlay_recv_cqes(&asked), dv.rq.wqe_cnt);
		made[t]++;
		must(ibv_destroy_qp(qp));
	}
	for (t = 0; t < 3; t++)
		assert_true(made[t] > 200);
	for (i = 0; i < 200 && srq; i++) {
		struct inlay_srq in;
		struct ibv_srq *one;

		attr.attr.max_wr = 1 + rnd_below(rnd_below(4) ? 70 : 16000);
		attr.attr.max_sge = 1 + rnd_below(4);
		t = attr.attr.max_wr;
		one = ibv_create_srq(dev.pd, &attr);
		if (!one)
			continue;
		must(inlay_srq_from_srq(&in, one, NULL, NULL));
		assert_int_equal(in.wqe_cnt, inlay_srq_cqes(t));
		assert_true(inlay_srq_room(&in) >= t);
		shared++;
		must(ibv_destroy_srq(one));
	}
	assert_true(!srq || shared > 100);
	print_message("# %u RC, %u UC, %u UD, %u SRQs\n", made[0], made[1], made[2], shared);
	if (srq)
		must(ibv_destroy_srq(srq));
	must(ibv_destroy_cq(cq));
}

/* What does not fit changes nothing and says how much there is; what goes is given back */
TEST(sums)
{
	static const struct {
		uint32_t n;
		const char *why;
		uint32_t left;
	} rows[] = {{1, NULL, 1023}, {1024, " 1024 more CQEs wanted, 1023 of 1024 are left", 1023}, {1023, NULL, 0}, {0, NULL, 0}, {1, " 1 more CQEs wanted, 0 of 1024 are left", 0},
		    {0xffffffff, " 4294967295 more CQEs wanted, 0 of 1024 are left", 0}};
	static uint8_t ring[1024 * 64] __attribute__((aligned(64)));
	uint32_t dbrec[2], i;
	struct inlay_cq cq;
	const char *why;

	must(inlay_cq_init(&cq, ring, 1024, 64, dbrec, NULL, 1));
	for (i = 0; i < ARRAY(rows); i++) {
		why = NULL;
		assert_int_equal(inlay_cq_reserve(&cq, 1025, NULL), -ENOSPC);
		assert_int_equal(inlay_cq_reserve(&cq, rows[i].n, &why), rows[i].why ? -ENOSPC : 0);
		assert_int_equal(cq.reserved, 1024 - rows[i].left);
		if (rows[i].why && (!why || !strstr(why, rows[i].why) || strlen(why) >= sizeof(cq.refusal) - 1))
			fail_msg("row %u: %s", i, why);
		assert_true(rows[i].why || !why);
	}
	inlay_cq_unreserve(NULL, 1);
	inlay_cq_unreserve(&cq, 1000);
	assert_int_equal(cq.reserved, 24);
}

/* All kinds of queues on one CQ, taken and finished; a CQ that is not the queue's */
TEST(queues)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 100, .max_sge = 1}};
	struct ibv_wq_init_attr wq_attr = {.wq_type = IBV_WQT_RQ, .max_wr = 30, .max_sge = 1, .pd = dev.pd};
	struct opt opt = usual;
	struct inlay_srq srq;
	struct inlay_sq was;
	struct inlay_rq wrq;
	struct ibv_srq *ib;
	struct ibv_wq *wq;
	struct end a, b;
	uint32_t sum;

	opt.one_cq = true;
	opt.cqe = 4000;
	end_make(&a, &opt);
	end_make(&b, &opt);
	must(inlay_uar_from_qp(&a.uar, a.qp, NULL));
	must(inlay_cq_from_cq(&a.cq, a.scq, NULL));
	must(inlay_cq_from_cq(&b.cq, b.scq, NULL));
	ib = ibv_create_srq(dev.pd, &attr);
	wq_attr.cq = a.scq;
	wq = ibv_create_wq(dev.ctx, &wq_attr);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(inlay_sq_from_qp(&a.sq, a.qp, &a.uar, &b.cq, NULL), -EINVAL);
		assert_int_equal(inlay_rq_from_qp(&a.rq, a.qp, &b.cq, NULL), -EINVAL);
		if (wq)
			assert_int_equal(inlay_rq_from_wq(&wrq, wq, &b.cq, NULL), -EINVAL);
		assert_int_equal(b.cq.reserved, 0);
		/* A CQ that is too small, which a queue's signaled WQEs would overrun: nothing is taken */
		must(inlay_cq_reserve(&a.cq, a.cq.mask, NULL));
		was = a.sq;
		assert_int_equal(inlay_sq_from_qp(&a.sq, a.qp, &a.uar, &a.cq, NULL), -ENOSPC);
		assert_memory_equal(&a.sq, &was, sizeof(was));
		assert_int_equal(a.uar.queues, 0);
		inlay_cq_unreserve(&a.cq, a.cq.mask);
		must(inlay_sq_from_qp(&a.sq, a.qp, &a.uar, &a.cq, NULL));
		assert_int_equal(a.cq.reserved, sum = inlay_sq_size(&a.sq));
		must(inlay_rq_from_qp(&a.rq, a.qp, &a.cq, NULL));
		assert_int_equal(a.cq.reserved, sum += inlay_rq_size(&a.rq));
		if (wq) {
			must(inlay_rq_from_wq(&wrq, wq, &a.cq, NULL));
			assert_int_equal(a.cq.reserved, sum += inlay_rq_size(&wrq));
			inlay_rq_fini(&wrq);
			inlay_rq_fini(&wrq);
			assert_int_equal(a.cq.reserved, sum -= inlay_rq_size(&wrq));
		}
		if (ib) {
			must(inlay_srq_from_srq(&srq, ib, &a.cq, NULL));
			assert_int_equal(a.cq.reserved, sum + 128);
			/* Too many for what is left */
			must(inlay_cq_reserve(&a.cq, a.cq.mask - sum - 128, NULL));
			assert_int_equal(inlay_srq_from_srq(&srq, ib, &a.cq, NULL), -ENOSPC);
			assert_int_equal(inlay_rq_from_qp(&a.rq, a.qp, &a.cq, NULL), -ENOSPC);
			assert_int_equal(a.cq.reserved, a.cq.mask);
			inlay_cq_unreserve(&a.cq, a.cq.mask - sum - 128);
			inlay_srq_fini(&srq);
			inlay_srq_fini(&srq);
		}
		/* Reset keeps what is reserved */
		inlay_sq_reset(&a.sq);
		inlay_rq_reset(&a.rq);
		assert_int_equal(a.cq.reserved, sum);
		inlay_rq_fini(&a.rq);
		inlay_sq_fini(&a.sq);
		inlay_sq_fini(&a.sq);
		assert_int_equal(a.cq.reserved, 0);
	}
	if (wq)
		must(ibv_destroy_wq(wq));
	if (ib)
		must(ibv_destroy_srq(ib));
	end_free(&a);
	end_free(&b);
}

int main(void)
{
	return run_all(dev_open, dev_close);
}
