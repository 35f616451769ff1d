/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oracle_recv.c: receive queues, of QPs of every kind and of their own (WQs), byte for byte as libmlx5's: see oracle.h.
 * The device is stepped.
 */
#include "common.h"
#include "oracle.h"

/* ---- WQs ---- */

static bool wqs; /* three WQs in the place of three QPs */
static struct ibv_wq *in_wq;

static struct ibv_wq *make_wq(struct ibv_cq *cq, const struct ibv_qp_cap *cap)
{
	struct ibv_wq_init_attr init;
	struct ibv_wq_attr attr;
	struct ibv_wq *wq;

	memset(&init, 0, sizeof(init));
	memset(&attr, 0, sizeof(attr));
	init.wq_type = IBV_WQT_RQ;
	init.max_wr = cap->max_recv_wr;
	init.max_sge = cap->max_recv_sge;
	init.pd = dev.pd;
	init.cq = cq;
	wq = ibv_create_wq(dev.ctx, &init);
	assert_non_null(wq);
	attr.attr_mask = IBV_WQ_ATTR_STATE;
	attr.wq_state = IBV_WQS_RDY;
	must(ibv_modify_wq(wq, &attr));
	return wq;
}

static struct mlx5dv_rwq view_wq(struct ibv_wq *wq)
{
	struct mlx5dv_obj obj;
	struct mlx5dv_rwq dv;

	memset(&obj, 0, sizeof(obj));
	memset(&dv, 0, sizeof(dv));
	obj.rwq.in = wq;
	obj.rwq.out = &dv;
	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_RWQ));
	return dv;
}

/* A WQ sends nothing that would show its number in CQEs: it is the lowest that is free, which a QP had that is gone again */
static void lib_wq(struct lib *l, struct ibv_cq *cq, const struct ibv_qp_cap *cap)
{
	struct ibv_qp_cap small;
	struct mlx5dv_rwq dv;
	uint32_t uidx;

	memset(&small, 0, sizeof(small));
	small.max_send_wr = 1;
	small.max_send_sge = 1;
	lib_open(l, cq, &small, 0, NULL);
	uidx = l->uidx;
	lib_close(l);
	memset(l, 0, sizeof(*l));
	l->wq = make_wq(cq, cap);
	l->uidx = uidx;
	dv = view_wq(l->wq);
	l->rq = (uint8_t *)dv.buf;
	l->dbrec = (uint32_t *)dv.dbrec;
}

static void rx_open(struct trio *t, const struct ibv_qp_cap *cap)
{
	struct mlx5dv_rwq dv;

	if (!wqs) {
		trio_open(t, cap, K->lean, INLAY_UAR_SERIAL);
		return;
	}
	memset(t, 0, sizeof(*t));
	t->cq = ibv_create_cq(dev.ctx, (int)(2 * cap->max_recv_wr < 64 ? 63 : 4 * cap->max_recv_wr), NULL, NULL, 0);
	assert_non_null(t->cq);
	t->cqn = view_cq(t->cq).cqn;
	lib_wq(&t->a, t->cq, cap);
	lib_wq(&t->b, t->cq, cap);
	in_wq = make_wq(t->cq, cap);
	must(inlay_rq_from_wq(&t->in_rq, in_wq, NULL, NULL));
	dv = view_wq(in_wq);
	t->rq = (uint8_t *)dv.buf;
	t->dbrec = (uint32_t *)dv.dbrec;
	t->rq_cnt = dv.wqe_cnt;
	t->rq_stride = dv.stride;
}

static void rx_close(struct trio *t)
{
	if (!wqs) {
		trio_close(t);
		return;
	}
	must(ibv_destroy_wq(in_wq));
	must(ibv_destroy_wq(t->a.wq));
	must(ibv_destroy_wq(t->b.wq));
	must(ibv_destroy_cq(t->cq));
}

static uint32_t rx_number(const struct lib *l)
{
	return l->wq ? l->wq->wq_num : l->qp->qp_num;
}

/* ---- tests: receive queue ---- */

/* Completes the n oldest receives */
static void rx_complete(struct trio *t, uint32_t n)
{
	static struct ibv_wc wc[2 * 1024];
	struct mlx5_cqe64 cqe;
	uint32_t i;

	if (!n)
		return;
	cqe_for(&cqe, MLX5_CQE_RESP_SEND, 0, rx_number(&t->a), t->a.uidx, (uint16_t)t->rtail);
	assert_int_equal(softdev_inject_cqes(t->cqn, &cqe, n, 1), n);
	cqe_for(&cqe, MLX5_CQE_RESP_SEND, 0, rx_number(&t->b), t->b.uidx, (uint16_t)t->rtail);
	assert_int_equal(softdev_inject_cqes(t->cqn, &cqe, n, 1), n);
	assert_int_equal(ibv_poll_cq(t->cq, (int)(2 * n), wc), 2 * n);
	for (i = 0; i < 2 * n; i++)
		assert_true(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == t->rtail + i % n);
	t->rtail += n;
	assert_int_equal(inlay_rq_release_until(&t->in_rq, t->rtail), n);
}

/* Posts a list of receives to all three and compares rings and records. Slots whose receives are outstanding keep what they hold */
static void rx_run(struct trio *t, const struct req *r, unsigned n)
{
	uint32_t bytes = t->rq_cnt * t->rq_stride, i, k, at, used, known = 0, full;
	uint8_t *slot;

	t->salt = (uint8_t)(t->salt * 5 + 0x5b);
	for (i = t->rhead; i - t->rtail < t->rq_cnt; i++) {
		at = (i & (t->rq_cnt - 1)) * t->rq_stride;
		memset(t->a.rq + at, 0, t->rq_stride);
		memset(t->b.rq + at, 0xff, t->rq_stride);
		memset(t->rq + at, t->salt, t->rq_stride);
	}
	t->a.dbrec[MLX5_RCV_DBR] = 0;
	t->b.dbrec[MLX5_RCV_DBR] = ~0u;
	t->dbrec[MLX5_RCV_DBR] = record_salt(t);
	must(rx_post_lib(&t->a, r, n, t->rhead));
	must(rx_post_lib(&t->b, r, n, t->rhead));
	for (i = 0; i < n; i++)
		must(inlay_post_recv(&t->in_rq, r[i].sge, r[i].nsge));
	inlay_rq_ring(&t->in_rq);
	at = compare(t->a.rq, t->b.rq, t->rq, bytes, &known);
	if (at < bytes) {
		uint32_t unit = at & ~15u, w;

		fprintf(report_to, "receive ring of %u, stride %u, WQE %u: byte %u: libmlx5 0x%02x, inlay 0x%02x\n", t->rq_cnt,
			t->rq_stride, at / t->rq_stride, at % t->rq_stride, t->a.rq[at], t->rq[at]);
		for (i = 0; i < 2; i++) {
			fprintf(report_to, i ? " inlay  " : " libmlx5");
			for (k = 0; k < 16; k += 4) {
				memcpy(&w, (i ? t->rq : t->a.rq) + unit + k, 4);
				fprintf(report_to, " %08x", be32toh(w));
			}
			fprintf(report_to, "\n");
		}
		fail();
	}
	assert_true(known >= 16 * n);
	/* Nothing behind the segment that ends a list, and nothing in a slot that was not posted */
	for (i = t->rhead; i - t->rtail < t->rq_cnt; i++) {
		slot = t->rq + (size_t)(i & (t->rq_cnt - 1)) * t->rq_stride;
		used = 0;
		if (i - t->rhead < n) {
			for (k = 0, full = 0; k < r[i - t->rhead].nsge; k++)
				full += r[i - t->rhead].sge[k].length != 0;
			used = full * 16 == t->rq_stride ? full * 16 : full * 16 + 16;
		}
		assert_true(all_bytes(slot + used, t->rq_stride - used, t->salt));
	}
	t->rhead += n;
	assert_int_equal(t->a.dbrec[MLX5_RCV_DBR], t->b.dbrec[MLX5_RCV_DBR]);
	assert_int_equal(be32toh(t->a.dbrec[MLX5_RCV_DBR]), t->rhead & 0xffff);
	assert_int_equal(t->dbrec[MLX5_RCV_DBR], t->a.dbrec[MLX5_RCV_DBR]);
	compared += known + 4;
	requests += n;
	cases++;
}

static void receive_table(void **state)
{
	static const uint32_t sges[] = {1, 2, 3, 4, 5, 8, 9, 16, 30}, counts[] = {1, 2, 3, 16};
	struct req r, full;
	uint32_t s, c, n, i, k, most;
	unsigned pattern;

	(void)state;
	need_softdev("the oracle");
	for (s = 0; s < ARRAY(sges); s++)
		for (c = 0; c < ARRAY(counts); c++) {
			struct ibv_qp_cap cap;

			memset(&cap, 0, sizeof(cap));
			cap.max_send_wr = 1;
			cap.max_send_sge = 1;
			cap.max_recv_wr = counts[c];
			cap.max_recv_sge = sges[s];
			rx_open(&T, &cap);
			most = T.rq_stride / 16;
			if (most > MAX_SGE + 4)
				most = MAX_SGE + 4;
			for (n = 0; n <= most; n++)
				for (pattern = 0; pattern < 9; pattern++) {
					req_init(&r, SEND, 0);
					for (i = 0; i < n; i++)
						req_pointer(&r, is_empty(pattern, i, n) ? 0 : some_length());
					/* Twice round and one more, so that the next begins elsewhere */
					for (k = 0; k < 2 * T.rq_cnt + 1; k++) {
						if (T.rhead - T.rtail == T.rq_cnt)
							rx_complete(&T, 1 + rnd_below(T.rq_cnt));
						rx_run(&T, &r, 1);
					}
				}
			/* More than a WQE holds; and, full: both count WQEs here, and take the same number */
			if (T.rq_stride / 16 < MAX_SGE + 4) {
				rx_complete(&T, T.rhead - T.rtail);
				for (full = r, full.nsge = 0; full.nsge <= T.rq_stride / 16;)
					req_pointer(&full, 0);
				assert_int_equal(rx_post_lib(&T.a, &full, 1, 0), EINVAL);
				assert_int_equal(inlay_post_recv(&T.in_rq, full.sge, full.nsge), -EINVAL);
			}
			rx_complete(&T, T.rhead - T.rtail);
			for (k = 0; k < T.rq_cnt; k++)
				rx_run(&T, &r, 1);
			assert_int_equal(rx_post_lib(&T.a, &r, 1, 0), ENOMEM);
			assert_int_equal(inlay_post_recv(&T.in_rq, r.sge, r.nsge), -EAGAIN);
			rx_close(&T);
		}
	counted("receive table");
}

static void receive_random(void **state)
{
	static struct req r[MAX_BATCH];
	/* The others do the same in a ring of the same kind: they need not see the large ones */
	bool first = K->type == IBV_QPT_RC && !wqs;
	uint32_t i, k, n, room, runs;

	(void)state;
	need_softdev("the oracle");
	for (runs = 0; runs < (first ? 40u : 12u); runs++) {
		struct ibv_qp_cap cap;

		memset(&cap, 0, sizeof(cap));
		cap.max_send_wr = 1;
		cap.max_send_sge = 1;
		cap.max_recv_wr = 1 + rnd_below(runs % 4 || !first ? 64 : 1024);
		cap.max_recv_sge = 1 + rnd_below(rnd_below(2) ? 4 : MAX_SGE);
		rx_open(&T, &cap);
		/* The first goes round its 16 bits */
		while (T.rhead < (runs ? 2000u : 140000u)) {
			if (rnd_below(2))
				rx_complete(&T, rnd_below(T.rhead - T.rtail + 1));
			room = T.rq_cnt - (T.rhead - T.rtail);
			if (!room) {
				rx_complete(&T, 1 + rnd_below(T.rq_cnt));
				continue;
			}
			n = 1 + rnd_below(room < MAX_BATCH ? room : MAX_BATCH);
			for (i = 0; i < n; i++) {
				req_init(&r[i], SEND, 0);
				k = rnd_below((T.rq_stride / 16 < MAX_SGE ? T.rq_stride / 16 : MAX_SGE) + 1);
				while (r[i].nsge < k)
					req_pointer(&r[i], rnd_below(4) ? some_length() : 0);
			}
			rx_run(&T, r, n);
		}
		rx_close(&T);
	}
	counted("receive at random");
}

static void reset(struct ibv_wq *wq)
{
	struct ibv_wq_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.attr_mask = IBV_WQ_ATTR_STATE;
	attr.wq_state = IBV_WQS_RESET;
	must(ibv_modify_wq(wq, &attr));
	attr.wq_state = IBV_WQS_RDY;
	must(ibv_modify_wq(wq, &attr));
}

/* To RESET and back, with some posted or none: all three begin anew. One that was posted to is not taken over before */
static void wq_reset(void **state)
{
	const struct ibv_qp_cap cap = {.max_recv_wr = 16, .max_recv_sge = 3};
	struct inlay_rq other;
	uint32_t runs, k;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	rx_open(&T, &cap);
	for (runs = 0; runs < 500; runs++) {
		for (k = rnd_below(T.rq_cnt + 1); k; k--) {
			req_init(&r, SEND, 0);
			while (r.nsge < 1 + runs % 3)
				req_pointer(&r, some_length());
			rx_run(&T, &r, 1);
		}
		assert_int_equal(inlay_rq_from_wq(&other, in_wq, NULL, NULL), T.rhead ? -EBUSY : 0);
		if (rnd_below(2))
			rx_complete(&T, rnd_below(T.rhead - T.rtail + 1));
		reset(T.a.wq);
		reset(T.b.wq);
		reset(in_wq);
		/* libmlx5 zeroes the record of a WQ that it makes ready; whether inlay does must show */
		T.dbrec[MLX5_RCV_DBR] = htobe32(0x1234);
		inlay_rq_reset(&T.in_rq);
		T.rhead = T.rtail = 0;
		assert_int_equal(inlay_rq_room(&T.in_rq), T.rq_cnt);
		assert_int_equal(be32toh(T.a.dbrec[MLX5_RCV_DBR]), 0);
		assert_int_equal(be32toh(T.dbrec[MLX5_RCV_DBR]), 0);
	}
	rx_close(&T);
	counted("WQs reset");
}

int main(void)
{
	static const struct kind *const kinds[] = {&rc_kind, &uc_kind, &ud_kind};
	static const char *const names[] = {"oracle: receives, RC", "oracle: receives, UC", "oracle: receives, UD"};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(receive_table),
		cmocka_unit_test(receive_random),
	};
	const struct CMUnitTest wq_tests[] = {
		cmocka_unit_test(receive_table),
		cmocka_unit_test(receive_random),
		cmocka_unit_test(wq_reset),
	};
	unsigned i;
	int bad = 0;

	for (i = 0; i < ARRAY(kinds); i++) {
		about(kinds[i]);
		bad |= _cmocka_run_group_tests(names[i], tests, ARRAY(tests), open_group, close_group);
	}
	about(&rc_kind);
	wqs = true;
	return bad | cmocka_run_group_tests_name("oracle: receives, WQs", wq_tests, open_group, close_group);
}
