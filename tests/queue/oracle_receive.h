/* SPDX-License-Identifier: BSD-3-Clause */
/* oracle_receive.h: receive queues, of QPs and of their own (WQs), and shared ones */
#ifndef TESTS_QUEUE_ORACLE_RECEIVE_H
#define TESTS_QUEUE_ORACLE_RECEIVE_H

#include "oracle_send.h"

static struct ibv_recv_wr *recv_list(const struct req *r, unsigned n, uint64_t wr_id)
{
	static struct ibv_recv_wr wr[MAX_BATCH];
	unsigned i;

	for (i = 0; i < n; i++) {
		wr[i].wr_id = wr_id + i;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		wr[i].sg_list = (struct ibv_sge *)(uintptr_t)r[i].sge;
		wr[i].num_sge = (int)r[i].nsge;
	}
	return wr;
}

static int rx_post_lib(struct lib *l, const struct req *r, unsigned n, uint64_t wr_id)
{
	struct ibv_recv_wr *bad, *wr = recv_list(r, n, wr_id);

	return l->wq ? ibv_post_wq_recv(l->wq, wr, &bad) : ibv_post_recv(l->qp, wr, &bad);
}

static int srq_post_lib(struct ibv_srq *srq, const struct req *r, uint64_t wr_id)
{
	struct ibv_recv_wr *bad;

	return ibv_post_srq_recv(srq, recv_list(r, 1, wr_id), &bad);
}

static void req_receive(struct req *r, uint32_t nsge, unsigned pattern)
{
	req_init(r, SEND, 0);
	while (r->nsge < nsge)
		req_pointer(r, is_empty(pattern, r->nsge, nsge) ? 0 : some_length());
}

/* ---- WQs: three in the place of three QPs ---- */

static void wq_to(struct ibv_wq *wq, enum ibv_wq_state to)
{
	struct ibv_wq_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.attr_mask = IBV_WQ_ATTR_STATE;
	attr.wq_state = to;
	must(ibv_modify_wq(wq, &attr));
}

static struct ibv_wq *make_wq(struct ibv_cq *cq, const struct ibv_qp_cap *cap, struct mlx5dv_rwq *dv)
{
	struct ibv_wq_init_attr init;
	struct ibv_wq *wq;

	memset(&init, 0, sizeof(init));
	init.wq_type = IBV_WQT_RQ;
	init.max_wr = cap->max_recv_wr;
	init.max_sge = cap->max_recv_sge;
	init.pd = dev.pd;
	init.cq = cq;
	wq = ibv_create_wq(dev.ctx, &init);
	assert_non_null(wq);
	wq_to(wq, IBV_WQS_RDY);
	view(RWQ, rwq, wq, dv);
	return wq;
}

/* A WQ sends nothing that would show its number in CQEs: it is the lowest that is free, which a QP had that is gone again */
static void lib_wq(struct lib *l, struct ibv_cq *cq, const struct ibv_qp_cap *cap)
{
	struct ibv_qp_cap small = cap_of(1, 1, 0);
	struct mlx5dv_rwq dv;
	uint32_t uidx;

	lib_open(l, cq, &small, 0, NULL);
	uidx = l->uidx;
	lib_close(l);
	memset(l, 0, sizeof(*l));
	l->wq = make_wq(cq, cap, &dv);
	l->uidx = uidx;
	l->rq = (uint8_t *)dv.buf;
	l->dbrec = (uint32_t *)dv.dbrec;
}

static bool wqs(void)
{
	return !K->table;
}

static void rx_open(struct trio *t, uint32_t max_wr, uint32_t max_sge)
{
	struct ibv_qp_cap cap = cap_of(1, 1, 0);
	struct mlx5dv_rwq dv;

	cap.max_recv_wr = max_wr;
	cap.max_recv_sge = max_sge;
	if (!wqs()) {
		trio_open(t, &cap, K->lean, INLAY_UAR_SERIAL);
		return;
	}
	trio_cq(t, &cap);
	lib_wq(&t->a, t->cq, &cap);
	lib_wq(&t->b, t->cq, &cap);
	t->wq = make_wq(t->cq, &cap, &dv);
	must(inlay_rq_from_wq(&t->in_rq, t->wq, NULL, NULL));
	t->rq = (uint8_t *)dv.buf;
	t->dbrec = (uint32_t *)dv.dbrec;
	t->rq_cnt = dv.wqe_cnt;
	t->rq_stride = dv.stride;
}

static void rx_close(struct trio *t)
{
	if (!wqs()) {
		trio_close(t);
		return;
	}
	must(ibv_destroy_wq(t->wq));
	must(ibv_destroy_wq(t->a.wq));
	must(ibv_destroy_wq(t->b.wq));
	must(ibv_destroy_cq(t->cq));
}

/* ---- receive queues ---- */

/* Completes the n oldest receives */
static void rx_complete(struct trio *t, uint32_t n)
{
	static struct ibv_wc wc[2 * 1024];
	struct lib *const lib[2] = {&t->a, &t->b};
	struct mlx5_cqe64 cqe;
	uint32_t i;

	if (!n)
		return;
	for (i = 0; i < 2; i++) {
		cqe_for(&cqe, MLX5_CQE_RESP_SEND, 0, lib[i]->wq ? lib[i]->wq->wq_num : lib[i]->qp->qp_num,
			lib[i]->uidx, (uint16_t)t->rtail);
		assert_int_equal(softdev_inject_cqes(t->cqn, &cqe, n, 1), n);
	}
	assert_int_equal(ibv_poll_cq(t->cq, (int)(2 * n), wc), 2 * n);
	for (i = 0; i < 2 * n; i++)
		assert_true(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == t->rtail + i % n);
	t->rtail += n;
	assert_int_equal(inlay_rq_release_until(&t->in_rq, t->rtail), n);
}

static void words(const char *who, const uint8_t *at, uint32_t bytes)
{
	uint32_t i, w;

	fprintf(report_to, " %s\n", who);
	for (i = 0; i < bytes; i += 4) {
		memcpy(&w, at + i, 4);
		fprintf(report_to, i % 16 == 12 ? " %08x\n" : " %08x", be32toh(w));
	}
}

/* Rings and records after n were posted. Returns whether something is wrong */
static int rx_check(const struct trio *t, const struct req *r, unsigned n)
{
	uint32_t i, k, at, used, known = 0, full, begin = t->rhead - n;
	const uint8_t *slot;

	at = compare(t->a.rq, t->b.rq, t->rq, t->rq_cnt * t->rq_stride, &known);
	if (at < t->rq_cnt * t->rq_stride) {
		fprintf(report_to, "%s: receive ring of %u, stride %u, WQE %u: byte %u: libmlx5 0x%02x, inlay 0x%02x\n", K->name, t->rq_cnt,
			t->rq_stride, at / t->rq_stride, at % t->rq_stride, t->a.rq[at], t->rq[at]);
		words("libmlx5", t->a.rq + (at & ~15u), 16);
		words("inlay", t->rq + (at & ~15u), 16);
		return 1;
	}
	assert_true(known >= 16 * n);
	/* Nothing behind the segment that ends a list, and nothing in a slot that was not posted */
	for (i = begin; i - t->rtail < t->rq_cnt; i++) {
		slot = t->rq + (size_t)(i & (t->rq_cnt - 1)) * t->rq_stride;
		for (k = 0, full = 0; i - begin < n && k < r[i - begin].nsge; k++)
			full += r[i - begin].sge[k].length != 0;
		used = i - begin >= n ? 0 : full * 16 == t->rq_stride ? full * 16 : full * 16 + 16;
		if (!all_bytes(slot + used, t->rq_stride - used, t->salt)) {
			fprintf(report_to, "%s: WQE %u of %u was written to behind its %u bytes\n", K->name, i, t->rq_cnt, used);
			return 1;
		}
	}
	assert_int_equal(t->a.dbrec[MLX5_RCV_DBR], t->b.dbrec[MLX5_RCV_DBR]);
	assert_int_equal(be32toh(t->a.dbrec[MLX5_RCV_DBR]), t->rhead & 0xffff);
	compared += known + 4;
	return t->dbrec[MLX5_RCV_DBR] != t->a.dbrec[MLX5_RCV_DBR];
}

/* Posts a list of receives to all three and compares. Slots whose receives are outstanding keep what they hold */
static int rx_try(struct trio *t, const struct req *r, const struct req *in, unsigned n)
{
	uint32_t i, at;

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
		must(inlay_post_recv(&t->in_rq, in[i].sge, in[i].nsge));
	inlay_rq_ring(&t->in_rq);
	t->rhead += n;
	requests += n;
	cases++;
	return rx_check(t, r, n);
}

static void rx_run(struct trio *t, const struct req *r, unsigned n)
{
	if (rx_try(t, r, r, n))
		fail();
}

/* Can it fail? Each byte of the ring spoiled that libmlx5 wrote, or outside; the record */
static void receive_self_check(void)
{
	FILE *was = report_to, *null = fopen("/dev/null", "w");
	struct req r;
	uint32_t i;

	assert_non_null(null);
	rx_open(&T, 4, 4);
	req_receive(&r, 2, 0);
	rx_run(&T, &r, 1);
	report_to = null;
	for (i = 0; i < T.rq_cnt * T.rq_stride; i++) {
		T.rq[i] ^= 1;
		assert_int_equal(rx_check(&T, &r, 1), 1);
		T.rq[i] ^= 1;
	}
	for (i = 0; i < 32; i++) {
		T.dbrec[MLX5_RCV_DBR] ^= 1u << i;
		assert_int_equal(rx_check(&T, &r, 1), 1);
		T.dbrec[MLX5_RCV_DBR] ^= 1u << i;
	}
	report_to = was;
	fclose(null);
	rx_close(&T);
}

static void receive_random(void)
{
	/* The others do the same in a ring of the same kind: they need not see the large ones */
	bool first = K->type == IBV_QPT_RC && !wqs();
	static struct req r[MAX_BATCH];
	uint32_t i, n, most, room, runs;

	for (runs = 0; runs < (first ? 60u : 24u); runs++) {
		rx_open(&T, 1 + rnd_below(runs % 4 == 1 ? 3 : runs % 4 || !first ? 64 : 1024), 1 + rnd_below(rnd_below(2) ? 4 : MAX_SGE));
		most = T.rq_stride / 16 < MAX_SGE ? T.rq_stride / 16 : MAX_SGE;
		/* The first goes round its 16 bits */
		while (T.rhead < (runs ? 2000u : 140000u)) {
			if (rnd_below(2))
				rx_complete(&T, rnd_below(T.rhead - T.rtail + 1));
			room = T.rq_cnt - (T.rhead - T.rtail);
			n = 1 + rnd_below(room < MAX_BATCH ? room : MAX_BATCH);
			for (i = 0; i < n && room; i++)
				req_receive(&r[i], rnd_below(most + 1), rnd_below(PATTERNS));
			if (room)
				rx_run(&T, r, n);
			else
				rx_complete(&T, 1 + rnd_below(T.rq_cnt));
		}
		/* Full: both take the same number. More buffers than a WQE holds */
		req_receive(&r[0], 1, 0);
		while (T.rhead - T.rtail < T.rq_cnt)
			rx_run(&T, r, 1);
		assert_int_equal(rx_post_lib(&T.a, r, 1, 0), ENOMEM);
		assert_int_equal(inlay_post_recv(&T.in_rq, r[0].sge, 1), -EAGAIN);
		rx_complete(&T, T.rq_cnt);
		if (T.rq_stride / 16 < MAX_ENTRIES) {
			req_receive(&r[0], T.rq_stride / 16 + 1, 8);
			assert_int_equal(rx_post_lib(&T.a, r, 1, 0), EINVAL);
			assert_int_equal(inlay_post_recv(&T.in_rq, r[0].sge, r[0].nsge), -EINVAL);
		}
		rx_close(&T);
	}
}

/* ---- shared receive queues ---- */

/*
 * An entry that will be posted is filled with 00, ff and something else, but for its link and (c) mark. Which entry a request goes to
 * depends on libmlx5's version, so requests are compared wherever they are, and rings.c holds inlay's order against a model. The mark is
 * the one byte that is inlay's own, at +5 of an entry: 1 while it is free, else 0. Entries complete in any order, by CQEs that are injected.
 */
#define MOST 1024u
#define MARK 5u

struct trio_srq {
	struct ibv_srq *a, *b, *c;
	struct lib qa, qb;      /* QPs that receive through a and b: libmlx5 finds an SRQ by its QP */
	struct ibv_cq *cq;
	uint32_t cqn;
	struct mlx5dv_srq va, vb, vc;
	struct inlay_srq in;
	uint32_t cnt, stride;
	uint32_t posted;
	uint8_t salt;
	struct {
		uint16_t lib, in;   /* libmlx5's entry, inlay's */
		uint16_t next;      /* the one after inlay's */
	} out[MOST];            /* posted ones, from the oldest */
	uint32_t outs;
	uint64_t wr_id[MOST], next_id;
};

static struct trio_srq Q;

static struct ibv_srq *make_srq(uint32_t max_wr, uint32_t max_sge)
{
	struct ibv_srq_init_attr attr;
	struct ibv_srq *srq;

	memset(&attr, 0, sizeof(attr));
	attr.attr.max_wr = max_wr;
	attr.attr.max_sge = max_sge;
	srq = ibv_create_srq(dev.pd, &attr);
	assert_non_null(srq);
	return srq;
}

static struct mlx5dv_srq view_srq(struct ibv_srq *srq)
{
	struct mlx5dv_srq dv;

	view(SRQ, srq, srq, &dv);
	return dv;
}

static uint8_t *entry(const struct mlx5dv_srq *v, uint32_t index)
{
	return (uint8_t *)v->buf + (size_t)index * v->stride;
}

static void srq_open(struct trio_srq *q, uint32_t max_wr, uint32_t max_sge)
{
	const struct ibv_qp_cap cap = cap_of(1, 1, 0);

	memset(q, 0, sizeof(*q));
	q->cq = ibv_create_cq(dev.ctx, 15, NULL, NULL, 0);
	assert_non_null(q->cq);
	q->cqn = view_cq(q->cq).cqn;
	q->a = make_srq(max_wr, max_sge);
	q->b = make_srq(max_wr, max_sge);
	q->c = make_srq(max_wr, max_sge);
	srq_of_qps = q->a;
	lib_open(&q->qa, q->cq, &cap, 0, NULL);
	srq_of_qps = q->b;
	lib_open(&q->qb, q->cq, &cap, 0, NULL);
	srq_of_qps = NULL;
	q->va = view_srq(q->a);
	q->vb = view_srq(q->b);
	q->vc = view_srq(q->c);
	q->cnt = q->va.tail + 1;
	q->stride = q->va.stride;
	assert_true(q->cnt > max_wr && !(q->cnt & (q->cnt - 1)) && q->cnt <= MOST);
	must(inlay_srq_from_srq(&q->in, q->c, NULL, NULL));
	assert_int_equal(q->in.wqe_cnt, q->cnt);
	assert_int_equal(q->in.stride, q->stride);
	assert_true(q->in.max_sge >= max_sge);
}

static void srq_close(struct trio_srq *q)
{
	lib_close(&q->qa);
	lib_close(&q->qb);
	must(ibv_destroy_srq(q->a));
	must(ibv_destroy_srq(q->b));
	must(ibv_destroy_srq(q->c));
	must(ibv_destroy_cq(q->cq));
}

static uint32_t srq_room(const struct trio_srq *q)
{
	return q->cnt - 1 - q->outs;
}

/* The last n entries, which have just been posted: c as a and b are, but for link and mark. Returns whether something is wrong */
static int srq_check(const struct trio_srq *q, unsigned n)
{
	uint32_t i, k, at, known = 0;

	for (i = q->outs - n; i < q->outs; i++) {
		const uint8_t *a = entry(&q->va, q->out[i].lib), *b = entry(&q->vb, q->out[i].lib), *in = entry(&q->vc, q->out[i].in);
		uint8_t c[1024];

		memcpy(c, in, q->stride);
		memcpy(c + 2, a + 2, 2);
		at = compare(a, b, c, q->stride, &known);
		for (k = 0; k < q->stride && at == q->stride; k++)
			if (k == MARK ? c[k] != 0 : a[k] != b[k] && c[k] != q->salt)
				at = k;
		if (at < q->stride || (in[2] << 8 | in[3]) != q->out[i].next) {
			fprintf(report_to, "entry %u of %u, on to %u, byte %u is wrong\n", q->out[i].in, q->cnt, q->out[i].next, at);
			words("libmlx5", a, q->stride);
			words("inlay", in, q->stride);
			return 1;
		}
	}
	compared += known + 4;
	if (q->va.dbrec[0] != q->vb.dbrec[0] || be32toh(q->va.dbrec[0]) != (q->posted & 0xffff))
		fail_msg("libmlx5's doorbell record is 0x%x", be32toh(q->va.dbrec[0]));
	return q->va.dbrec[0] != q->vc.dbrec[0] || inlay_srq_room(&q->in) != srq_room(q) || inlay_srq_pending(&q->in) != q->outs;
}

static void fill_entry(uint8_t *at, uint32_t stride, uint8_t byte, uint32_t mark)
{
	memset(at, byte, 2);
	memset(at + 4, byte, 1);
	at[MARK] = mark ? at[MARK] : byte;
	memset(at + MARK + 1, byte, stride - MARK - 1);
}

/* Posts a list to all three and compares; inlay's may have empty buffers beside libmlx5's */
static void srq_run(struct trio_srq *q, const struct req *lib, const struct req *in, unsigned n)
{
	unsigned i;

	q->salt = (uint8_t)(q->salt * 5 + 0x5b);
	q->va.dbrec[0] = 0;
	q->vb.dbrec[0] = ~0u;
	/* inlay stores the half of the record that counts, and keeps the other at the 0 that it found there */
	q->vc.dbrec[0] = htobe32(q->salt * 0x0101u);
	for (i = 0; i < n; i++) {
		uint16_t to = (uint16_t)view_srq(q->a).head, at = inlay_srq_index(&q->in);

		assert_int_equal(view_srq(q->b).head, to);
		fill_entry(entry(&q->va, to), q->stride, 0, 0);
		fill_entry(entry(&q->vb, to), q->stride, 0xff, 0);
		fill_entry(entry(&q->vc, at), q->stride, q->salt, 1);
		must(srq_post_lib(q->a, &lib[i], q->next_id));
		must(srq_post_lib(q->b, &lib[i], q->next_id));
		if (in[i].nsge == 1 && q->next_id & 1) /* a constant, which folds */
			must(inlay_post_srq_recv(&q->in, in[i].sge, 1));
		else
			must(inlay_post_srq_recv(&q->in, in[i].sge, in[i].nsge));
		q->wr_id[to] = q->next_id++;
		q->out[q->outs].lib = to;
		q->out[q->outs].in = at;
		q->out[q->outs++].next = inlay_srq_index(&q->in);
	}
	inlay_srq_ring(&q->in);
	q->posted += n;
	cases++;
	requests += n;
	if (srq_check(q, n))
		fail();
}

/* Completes one that is posted, the i-th oldest */
static void srq_complete(struct trio_srq *q, uint32_t i)
{
	static const uint8_t ops[] = {MLX5_CQE_RESP_SEND, MLX5_CQE_RESP_SEND_IMM, MLX5_CQE_RESP_SEND_INV, MLX5_CQE_RESP_WR_IMM,
		MLX5_CQE_RESP_ERR};
	uint8_t op = ops[rnd_below(ARRAY(ops))];
	uint16_t index = q->out[i].lib;
	struct mlx5_cqe64 cqe;
	struct ibv_wc wc[2];

	cqe_for(&cqe, op, 0, q->qa.qp->qp_num, q->qa.uidx, index);
	if (op == MLX5_CQE_RESP_ERR)
		((struct mlx5_err_cqe *)&cqe)->syndrome = MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
	assert_int_equal(softdev_inject_cqes(q->cqn, &cqe, 1, 0), 1);
	cqe.srqn_uidx = htobe32(q->qb.uidx);
	cqe.sop_drop_qpn = htobe32(q->qb.qp->qp_num);
	assert_int_equal(softdev_inject_cqes(q->cqn, &cqe, 1, 0), 1);
	assert_int_equal(ibv_poll_cq(q->cq, 2, wc), 2);
	assert_true(wc[0].wr_id == q->wr_id[index] && wc[1].wr_id == q->wr_id[index]);
	cqe.wqe_counter = htobe16(q->out[i].in);
	assert_true(0 < inlay_srq_release(&q->in, &cqe));
	memmove(&q->out[i], &q->out[i + 1], (q->outs - i - 1) * sizeof(q->out[0]));
	q->outs--;
}

/* n of them, from one end or the other or from anywhere */
static void srq_complete_some(struct trio_srq *q, uint32_t n)
{
	uint32_t way = rnd_below(3);

	while (n--)
		srq_complete(q, way == 0 ? 0 : way == 1 ? q->outs - 1 : rnd_below(q->outs));
}

/* Can the comparison fail? Each byte of a posted entry and of the record, spoiled */
static void srq_self_check(void)
{
	FILE *was = report_to, *null = fopen("/dev/null", "w");
	struct req r;
	uint32_t i;

	assert_non_null(null);
	srq_open(&Q, 3, 3);
	req_receive(&r, 2, 0);
	srq_run(&Q, &r, &r, 1);
	report_to = null;
	for (i = 0; i < Q.stride + 4; i++) {
		uint8_t *byte = i < Q.stride ? entry(&Q.vc, Q.out[0].in) + i : (uint8_t *)Q.vc.dbrec + i - Q.stride;

		*byte ^= 1;
		assert_int_equal(srq_check(&Q, 1), 1);
		*byte ^= 1;
	}
	report_to = was;
	fclose(null);
	srq_close(&Q);
}

/*
 * An empty buffer libmlx5 writes as a segment of 0 bytes, which the device reads as 2^31; inlay leaves it out, as both do in all other
 * queues: what it writes is what libmlx5 writes for the list without it.
 */
static void srq_random(void)
{
	static struct req lib[MAX_BATCH], in[MAX_BATCH];
	uint64_t want = env_number("ORACLE_CASES", 100000), seed = env_number("ORACLE_SEED", rnd()), queues = 0;

	print_message("# ORACLE_SEED=%llu ORACLE_CASES=%llu\n", (unsigned long long)seed, (unsigned long long)want);
	rnd_state = seed;
	while (requests < want) {
		/* The first goes round the 16 bits of its record */
		uint64_t until = requests + (queues ? 500 + rnd_below(8000) : 66000);
		uint32_t most, n, i, k;

		srq_open(&Q, 1 + rnd_below(queues % 4 == 1 ? 4 : !queues || rnd_below(8) ? 70 : 500), 1 + rnd_below(rnd_below(4) ? 4 : MAX_SGE));
		most = Q.in.max_sge < MAX_SGE ? Q.in.max_sge : MAX_SGE;
		queues++;
		while (requests < until && requests < want) {
			if (rnd_below(2))
				srq_complete_some(&Q, rnd_below(Q.outs + 1));
			if (!srq_room(&Q))
				srq_complete_some(&Q, 1 + rnd_below(Q.outs));
			n = 1 + rnd_below(srq_room(&Q) < MAX_BATCH ? srq_room(&Q) : MAX_BATCH);
			for (i = 0; i < n; i++) {
				req_receive(&in[i], rnd_below(most + 1), rnd_below(2) ? 0 : rnd_below(PATTERNS));
				lib[i] = in[i];
				for (lib[i].nsge = k = 0; k < in[i].nsge; k++)
					if (in[i].sge[k].length)
						lib[i].sge[lib[i].nsge++] = in[i].sge[k];
			}
			srq_run(&Q, lib, in, n);
		}
		/* Full: both take the same number. More buffers than an entry holds */
		req_receive(&in[0], 1, 0);
		while (srq_room(&Q))
			srq_run(&Q, in, in, 1);
		assert_int_equal(srq_post_lib(Q.a, in, 0), ENOMEM);
		assert_int_equal(inlay_post_srq_recv(&Q.in, in[0].sge, 1), -EAGAIN);
		srq_complete_some(&Q, Q.outs);
		if (Q.in.max_sge < MAX_ENTRIES) {
			req_receive(&in[0], Q.in.max_sge + 1, 0);
			assert_int_equal(srq_post_lib(Q.a, in, 0), EINVAL);
			assert_int_equal(inlay_post_srq_recv(&Q.in, in[0].sge, in[0].nsge), -EINVAL);
		}
		srq_close(&Q);
	}
	print_message("# %llu queues\n", (unsigned long long)queues);
}

#endif
