/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * room.c: room for completions. A CQ that overruns is dead, and its QPs with it: what a queue reserves at take-over, how many CQEs a QP needs
 * before there is one, and that nothing is left reserved by what was refused or is gone.
 */
#include "common.h"

/*
 * The program that fell into it: 16 requests, 64 bytes inline and two SGEs are 128 WQEBBs, beside a CQ of 32 CQEs. All of them posted
 * signaled would overrun it. Refused, with both numbers; with a CQ as large as is said, or with a promise, it runs.
 */
static void program(void **state)
{
	struct ibv_qp_init_attr init;
	const char *why = NULL;
	struct opt opt = usual;
	struct inlay_sq was;
	struct end a, b;
	uint32_t i, turn;
	int way;

	(void)state;
	memset(&opt.cap, 0, sizeof(opt.cap));
	opt.cap.max_send_wr = 16;
	opt.cap.max_inline_data = 64;
	opt.cap.max_send_sge = 2;
	opt.bytes = 4096;
	memset(&init, 0, sizeof(init));
	init.qp_type = IBV_QPT_RC;
	init.cap = opt.cap;
	assert_int_equal(inlay_send_cqes(&init), 128);
	assert_int_equal(inlay_recv_cqes(&init), 0);
	for (way = 0; way < 3; way++) {
		const uint32_t most = way == 1 ? 128 : 32; /* outstanding */

		opt.cqe = way == 1 ? 128 : 16;
		ends_make(&a, &b, &opt);
		must(inlay_uar_from_qp(&a.uar, a.qp, NULL));
		must(inlay_cq_from_cq(&a.cq, a.scq, NULL));
		memset(&a.sq, 0x5a, sizeof(a.sq));
		was = a.sq;
		if (way == 0) {
			assert_int_equal(inlay_sq_from_qp(&a.sq, a.qp, &a.uar, &a.cq, &why), -ENOSPC);
			assert_true(strstr(why, "128") && strstr(why, "32"));
			assert_memory_equal(&a.sq, &was, sizeof(was));
			assert_int_equal(a.uar.queues, 0);
			assert_int_equal(a.cq.reserved, 0);
		}
		if (way == 2)
			must(inlay_cq_reserve(&a.cq, 32, &why));
		if (way)
			must(inlay_sq_from_qp(&a.sq, a.qp, &a.uar, way == 1 ? &a.cq : NULL, &why));
		for (turn = 0; way && turn < 5; turn++) {
			for (i = 0; i < most; i++)
				must(inlay_post_write_inline(&a.sq, raddr_of(&b, i * 8), b.mr->rkey, &turn, 4, INLAY_SIGNALED));
			inlay_sq_ring(&a.sq);
			settle();
			for (i = 0; i < most; i++)
				sent(&a);
			for (i = 0; i < most; i++)
				assert_memory_equal(b.buf + i * 8, &turn, 4);
		}
		if (way == 2) {
			assert_int_equal(inlay_cq_reserve(&a.cq, 1, NULL), -ENOSPC);
			inlay_sq_fini(&a.sq);
			assert_int_equal(a.cq.reserved, 32);
			inlay_cq_unreserve(&a.cq, 32);
			must(inlay_cq_reserve(&a.cq, 1, NULL));
		}
		end_free(&a);
		end_free(&b);
	}
}

/* What is said before there is a queue is the ring that libmlx5 then makes */
static void sizes(void **state)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	uint32_t made[3] = {0}, i, t, shared = 0;
	struct ibv_srq *srq;
	struct ibv_cq *cq = ibv_create_cq(dev.ctx, 1, NULL, NULL, 0);

	(void)state;
	assert_non_null(cq);
	srq = new_srq(1, 1);
	for (i = 0; i < 1500; i++) {
		struct ibv_qp_init_attr init, asked;
		struct mlx5dv_qp dv;
		struct ibv_qp *qp;

		t = i % 3;
		memset(&init, 0, sizeof(init));
		init.qp_type = types[t];
		init.send_cq = init.recv_cq = cq;
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

		t = 1 + rnd_below(rnd_below(4) ? 70 : 16000);
		one = new_srq(t, 1 + rnd_below(4));
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

/* Random reservations on one CQ: the sum is kept, what does not fit changes nothing and says why, what goes is given back */
static void sums(void **state)
{
	static uint8_t ring[1024 * 64] __attribute__((aligned(64)));
	uint32_t dbrec[2], sum = 0, part[16] = {0}, i, n, s, refused = 0;
	char number[2][32];
	struct inlay_cq cq;
	const char *why;

	(void)state;
	must(inlay_cq_init(&cq, ring, 1024, 64, dbrec, NULL, 1));
	for (s = 0; s < 50000; s++) {
		i = rnd_below(16);
		inlay_cq_unreserve(&cq, part[i]);
		sum -= part[i];
		n = rnd_below(4) ? rnd_below(200) : rnd_below(8) ? 1024 - sum + rnd_below(3) : (uint32_t)rnd();
		part[i] = n <= 1024 - sum ? n : 0;
		assert_int_equal(inlay_cq_reserve(&cq, n, &why), part[i] == n ? 0 : -ENOSPC);
		if (part[i] != n) {
			snprintf(number[0], sizeof(number[0]), " %u ", n);
			snprintf(number[1], sizeof(number[1]), " %u of 1024", 1024 - sum);
			assert_true(strstr(why, number[0]) && strstr(why, number[1]) && strlen(why) < sizeof(cq.refusal) - 1);
			assert_int_equal(inlay_cq_reserve(&cq, n, NULL), -ENOSPC);
			refused++;
		}
		assert_int_equal(cq.reserved, sum += part[i]);
	}
	assert_true(refused > 1000);
}

/* All kinds of queues on one CQ, taken and finished, twice without harm; a CQ that is not the queue's; one that has too little left */
static void queues(void **state)
{
	struct opt opt = usual;
	struct inlay_srq srq;
	struct inlay_rq wrq;
	struct ibv_srq *ib;
	struct ibv_wq *wq;
	struct end a, b;
	uint32_t sum;
	int i;

	(void)state;
	opt.one_cq = true;
	opt.cqe = 4000;
	end_make(&a, &opt);
	end_make(&b, &opt);
	must(inlay_uar_from_qp(&a.uar, a.qp, NULL));
	must(inlay_cq_from_cq(&a.cq, a.scq, NULL));
	must(inlay_cq_from_cq(&b.cq, b.scq, NULL));
	ib = new_srq(100, 1);
	wq = new_wq(a.scq, 30, 1);
	for (i = 0; i < 2; i++) {
		assert_int_equal(inlay_sq_from_qp(&a.sq, a.qp, &a.uar, &b.cq, NULL), -EINVAL);
		assert_int_equal(inlay_rq_from_qp(&a.rq, a.qp, &b.cq, NULL), -EINVAL);
		assert_int_equal(wq ? inlay_rq_from_wq(&wrq, wq, &b.cq, NULL) : -EINVAL, -EINVAL);
		assert_int_equal(b.cq.reserved, 0);
		must(inlay_sq_from_qp(&a.sq, a.qp, &a.uar, &a.cq, NULL));
		assert_int_equal(a.cq.reserved, sum = inlay_sq_size(&a.sq));
		must(inlay_rq_from_qp(&a.rq, a.qp, &a.cq, NULL));
		assert_int_equal(a.cq.reserved, sum += inlay_rq_size(&a.rq));
		if (wq) {
			must(inlay_rq_from_wq(&wrq, wq, &a.cq, NULL));
			assert_int_equal(a.cq.reserved, sum + inlay_rq_size(&wrq));
			inlay_rq_fini(&wrq);
			inlay_rq_fini(&wrq);
		}
		assert_non_null(ib);
		must(inlay_srq_from_srq(&srq, ib, &a.cq, NULL));
		assert_int_equal(a.cq.reserved, sum + 128);
		must(inlay_cq_reserve(&a.cq, a.cq.mask - sum - 128, NULL));
		assert_int_equal(inlay_srq_from_srq(&srq, ib, &a.cq, NULL), -ENOSPC);
		assert_int_equal(inlay_rq_from_qp(&a.rq, a.qp, &a.cq, NULL), -ENOSPC);
		assert_int_equal(a.cq.reserved, a.cq.mask);
		inlay_cq_unreserve(&a.cq, a.cq.mask - sum - 128);
		inlay_srq_fini(&srq);
		inlay_srq_fini(&srq);
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
	must(ibv_destroy_srq(ib));
	end_free(&a);
	end_free(&b);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(program),
		cmocka_unit_test(sizes),
		cmocka_unit_test(sums),
		cmocka_unit_test(queues),
	};

	return cmocka_run_group_tests_name("room", tests, dev_open, dev_close);
}
