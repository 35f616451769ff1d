/* SPDX-License-Identifier: BSD-3-Clause */
/* oracle_receive.h: receive queues, of QPs and of their own (WQs), and shared ones (SRQs): two of libmlx5's and one of inlay's */
#ifndef TESTS_QUEUE_ORACLE_RECEIVE_H
#define TESTS_QUEUE_ORACLE_RECEIVE_H

#include "oracle_send.h"

enum { OF_QP, OF_WQ, OF_SRQ };

/*
 * An entry that will be posted is filled with 00, ff and something else, but for an SRQ's link and (inlay) mark. Which entry of an SRQ a
 * request goes to depends on libmlx5's version, so requests are compared wherever they are, and srq_ring.c holds inlay's order against a
 * model. The mark is the one byte that is inlay's own, at +5 of an entry: 1 while it is free, else 0. The user word is the filling.
 * Completions are injected.
 */
#define MOST 2048u
#define MARK 5u

static struct {
	unsigned kind;
	struct lib lib[2];      /* of an SRQ: QPs that receive through it, by which libmlx5 finds it */
	struct ibv_srq *srq[3];
	struct ibv_wq *wq;      /* inlay's */
	struct inlay_rq in_rq;
	struct inlay_srq in_srq;
	uint8_t *ring[3];
	uint32_t *dbrec[3], cnt, stride, most, posted;
	uint8_t salt;
	struct {
		uint32_t lib, in, next; /* libmlx5's entry, inlay's, and the one after that */
	} out[MOST];            /* posted ones, from the oldest */
	uint32_t outs;
	uint64_t wr_id[MOST];   /* of each entry */
} R;

static void req_receive(struct req *r, uint32_t nsge, unsigned pattern)
{
	req_init(r, SEND, 0);
	while (r->nsge < nsge)
		req_pointer(r, is_empty(pattern, r->nsge, nsge) ? 0 : some_length());
}

static struct ibv_wq *make_wq(const struct ibv_qp_cap *cap, unsigned i)
{
	struct ibv_wq *wq = made(new_wq(T.cq, cap->max_recv_wr, cap->max_recv_sge));
	struct ibv_wq_attr attr = {};
	struct mlx5dv_rwq dv;

	attr.attr_mask = IBV_WQ_ATTR_STATE;
	attr.wq_state = IBV_WQS_RDY;
	must(ibv_modify_wq(wq, &attr));
	view(RWQ, rwq, wq, &dv);
	R.ring[i] = (uint8_t *)dv.buf;
	R.dbrec[i] = (uint32_t *)dv.dbrec;
	R.cnt = dv.wqe_cnt;
	R.stride = dv.stride;
	return wq;
}

static struct mlx5dv_srq view_srq(struct ibv_srq *srq)
{
	struct mlx5dv_srq dv;

	view(SRQ, srq, srq, &dv);
	return dv;
}

static void rx_open(uint32_t max_wr, uint32_t max_sge)
{
	struct ibv_qp_cap cap = cap_of(1, 1, 0);
	struct mlx5dv_srq dv;

	memset(&R, 0, sizeof(R));
	R.kind = K->table ? OF_QP : strcmp(K->name, "srqs") ? OF_WQ : OF_SRQ;
	cap.max_recv_wr = max_wr;
	cap.max_recv_sge = max_sge;
	if (R.kind == OF_QP) {
		trio_open(&T, &cap, K->lean, INLAY_UAR_SERIAL);
		must(inlay_rq_from_qp(&R.in_rq, T.qp, NULL, NULL));
		R.lib[0] = T.a;
		R.lib[1] = T.b;
		for (unsigned i = 0; i < 3; i++) {
			struct mlx5dv_qp qp = view_qp(i < 2 ? R.lib[i].qp : T.qp);

			R.ring[i] = (uint8_t *)qp.rq.buf;
			R.dbrec[i] = (uint32_t *)qp.dbrec;
			R.cnt = qp.rq.wqe_cnt;
			R.stride = qp.rq.stride;
		}
	} else {
		const struct ibv_qp_cap plain = cap_of(1, 1, 0);

		trio_cq(&T, &cap);
		for (unsigned i = 0; i < 3; i++) {
			srq_of_qps = R.srq[i] = R.kind == OF_SRQ ? new_srq(max_wr, max_sge) : NULL;
			if (i < 2)
				lib_open(&R.lib[i], T.cq, &plain, 0, NULL);
			srq_of_qps = NULL;
			if (R.kind == OF_SRQ) {
				dv = view_srq(R.srq[i]);
				R.ring[i] = (uint8_t *)dv.buf;
				R.dbrec[i] = (uint32_t *)dv.dbrec;
				R.cnt = dv.tail + 1;
				R.stride = dv.stride;
			} else if (i < 2) {
				/* It sends nothing that would show its number in CQEs: it is the lowest free one, which a QP had that is gone */
				lib_close(&R.lib[i]);
				R.lib[i].wq = make_wq(&cap, i);
			} else {
				R.wq = make_wq(&cap, i);
			}
		}
		if (R.kind == OF_SRQ)
			must(inlay_srq_from_srq(&R.in_srq, R.srq[2], NULL, NULL));
		else
			must(inlay_rq_from_wq(&R.in_rq, R.wq, NULL, NULL));
	}
	R.most = R.kind == OF_SRQ ? R.in_srq.max_sge : R.stride / 16;
	assert_true(R.cnt >= max_wr + (R.kind == OF_SRQ) && !(R.cnt & (R.cnt - 1)) && R.cnt <= MOST && R.most >= max_sge);
}

static void rx_close(void)
{
	if (R.kind == OF_QP) {
		trio_close(&T);
		return;
	}
	for (unsigned i = 0; i < 3; i++) {
		if (R.kind == OF_WQ)
			must(ibv_destroy_wq(i < 2 ? R.lib[i].wq : R.wq));
		else if (i < 2)
			lib_close(&R.lib[i]);
		if (R.srq[i])
			must(ibv_destroy_srq(R.srq[i]));
	}
	must(ibv_destroy_cq(T.cq));
}

static uint32_t rx_room(void)
{
	return R.cnt - (R.kind == OF_SRQ) - R.outs;
}

static int rx_post_lib(unsigned i, const struct req *r)
{
	struct ibv_recv_wr *bad, wr;

	wr.wr_id = R.posted;
	wr.next = NULL;
	wr.sg_list = (struct ibv_sge *)(uintptr_t)r->sge;
	wr.num_sge = (int)r->nsge;
	return R.kind == OF_SRQ ? ibv_post_srq_recv(R.srq[i], &wr, &bad) : R.kind == OF_WQ ? ibv_post_wq_recv(R.lib[i].wq, &wr, &bad) :
										     ibv_post_recv(R.lib[i].qp, &wr, &bad);
}

static uint64_t rx_user(void)
{
	return R.salt * UINT64_C(0x0101010101010101);
}

static int rx_post_in(const struct req *r)
{
	if (R.kind != OF_SRQ)
		return inlay_post_recv(&R.in_rq, r->sge, r->nsge);
	/* One is a constant half of the time, which folds */
	return r->nsge == 1 && R.posted & 1 ? inlay_post_srq_recv(&R.in_srq, r->sge, 1, rx_user()) :
					      inlay_post_srq_recv(&R.in_srq, r->sge, r->nsge, rx_user());
}

static uint8_t *slot(unsigned side, uint32_t i)
{
	return R.ring[side] + (size_t)i * R.stride;
}

static void rx_fill(unsigned side, uint32_t i)
{
	uint8_t byte = side == 0 ? 0 : side == 1 ? 0xff : R.salt, *at = slot(side, i);

	if (R.kind != OF_SRQ) {
		memset(at, byte, R.stride);
		return;
	}
	memset(at, byte, 2);
	at[4] = byte;
	at[MARK] = side == 2 ? at[MARK] : byte;
	memset(at + MARK + 1, byte, R.stride - MARK - 1);
}

static int rx_wrong(uint32_t i, uint32_t at)
{
	fprintf(report_to, "%s: entry %u of %u, on to %u, byte %u is wrong\n", K->name, R.out[i].in, R.cnt, R.out[i].next, at);
	for (unsigned side = 0; side < 3; side++)
		for (uint32_t k = 0; k < R.stride; k++)
			fprintf(report_to, "%s%02x", k % 16 ? " " : k ? "\n        " : side < 2 ? "\nlibmlx5 " : "\ninlay   ",
				slot(side, side < 2 ? R.out[i].lib : R.out[i].in)[k]);
	fprintf(report_to, "\n");
	return 1;
}

/* The last n entries, which have just been posted: as libmlx5's; untouched where it touches nothing. Returns whether something is wrong */
static int rx_check(unsigned n)
{
	uint32_t i, k, at, known = 0;
	uint8_t c[1024];

	for (i = R.outs - n; i < R.outs; i++) {
		const uint8_t *a = slot(0, R.out[i].lib), *b = slot(1, R.out[i].lib), *in = slot(2, R.out[i].in);

		memcpy(c, in, R.stride);
		if (R.kind == OF_SRQ)
			memcpy(c + 2, a + 2, 2);
		at = compare(a, b, c, R.stride, &known);
		for (k = 0; k < R.stride && at == R.stride; k++)
			if (R.kind == OF_SRQ && k == MARK ? c[k] != 0 : a[k] != b[k] && c[k] != R.salt)
				at = k;
		if (at < R.stride || (R.kind == OF_SRQ && (uint32_t)(in[2] << 8 | in[3]) != R.out[i].next))
			return rx_wrong(i, at);
	}
	assert_true(known >= 16 * n);
	if (R.kind != OF_SRQ && rx_room() && !all_bytes(slot(2, R.posted & (R.cnt - 1)), R.stride, R.salt))
		return rx_wrong(R.outs - 1, R.stride);
	compared += known + 4;
	if (*R.dbrec[0] != *R.dbrec[1] || be32toh(*R.dbrec[0]) != (R.posted & 0xffff))
		fail_msg("libmlx5's doorbell record is 0x%x", be32toh(*R.dbrec[0]));
	return *R.dbrec[0] != *R.dbrec[2] || rx_room() != (R.kind == OF_SRQ ? inlay_srq_room(&R.in_srq) - 1 : inlay_rq_room(&R.in_rq));
}

/*
 * Posts n to all three and compares. An empty buffer libmlx5 writes into an SRQ as a segment of 0 bytes, which the device reads as 2^31;
 * inlay leaves it out, as both do in all other queues: what it writes is what libmlx5 writes for the list without it.
 */
static void rx_run(const struct req *in, unsigned n)
{
	static struct req lib;
	uint32_t i, k, to, at, plain = R.posted & (R.cnt - 1);

	R.salt = (uint8_t)(R.salt * 5 + 0x5b);
	*R.dbrec[0] = 0;
	*R.dbrec[1] = htobe32(0xffff);
	/* inlay stores the half of the record that counts, and keeps the other at the 0 that it found there */
	*R.dbrec[2] = htobe32(R.salt * 0x0101u);
	for (i = 0; i < n; i++, plain = R.posted & (R.cnt - 1)) {
		lib.nsge = 0;
		for (k = 0; k < in[i].nsge; k++)
			if (R.kind != OF_SRQ || in[i].sge[k].length)
				lib.sge[lib.nsge++] = in[i].sge[k];
		to = R.kind == OF_SRQ ? view_srq(R.srq[0]).head : plain;
		at = R.kind == OF_SRQ ? R.in_srq.head : plain;
		rx_fill(0, to);
		rx_fill(1, to);
		rx_fill(2, at);
		must(rx_post_lib(0, &lib));
		must(rx_post_lib(1, &lib));
		must(rx_post_in(&in[i]));
		assert_true(R.kind != OF_SRQ || inlay_srq_user(&R.in_srq, at) == rx_user());
		R.wr_id[to] = R.posted++;
		R.out[R.outs].lib = to;
		R.out[R.outs].in = at;
		R.out[R.outs++].next = R.kind == OF_SRQ ? R.in_srq.head : 0;
	}
	if (R.kind != OF_SRQ && rx_room())
		rx_fill(2, plain);
	if (R.kind == OF_SRQ)
		inlay_srq_ring(&R.in_srq);
	else
		inlay_rq_ring(&R.in_rq);
	cases++;
	requests += n;
	if (rx_check(n))
		fail();
}

/* Completes one that is posted, the i-th oldest */
static void rx_complete(uint32_t i)
{
	static const uint8_t ops[] = {MLX5_CQE_RESP_SEND, MLX5_CQE_RESP_SEND_IMM, MLX5_CQE_RESP_SEND_INV, MLX5_CQE_RESP_WR_IMM,
		MLX5_CQE_RESP_ERR};
	const uint8_t op = ops[rnd_below(ARRAY(ops))];
	const uint32_t index = R.out[i].lib;
	struct mlx5_cqe64 cqe;
	struct ibv_wc wc[2];

	for (unsigned k = 0; k < 2; k++) {
		cqe_for(&cqe, op, 0, R.kind == OF_WQ ? R.lib[k].wq->wq_num : R.lib[k].qp->qp_num, R.lib[k].uidx, (uint16_t)index);
		if (op == MLX5_CQE_RESP_ERR)
			((struct mlx5_err_cqe *)&cqe)->syndrome = MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
		assert_int_equal(softdev_inject_cqes(T.cqn, &cqe, 1, 0), 1);
	}
	assert_int_equal(ibv_poll_cq(T.cq, 2, wc), 2);
	assert_true(wc[0].wr_id == R.wr_id[index] && wc[1].wr_id == R.wr_id[index]);
	cqe.wqe_counter = htobe16((uint16_t)R.out[i].in);
	if (R.kind == OF_QP)
		cqe.sop_drop_qpn = htobe32(T.qp->qp_num);
	if (R.kind == OF_WQ)
		cqe.sop_drop_qpn = htobe32(R.wq->wq_num);
	assert_int_equal(R.kind == OF_SRQ ? 1 + inlay_srq_release(&R.in_srq, &cqe) : inlay_rq_release(&R.in_rq, &cqe), 1);
	memmove(&R.out[i], &R.out[i + 1], (R.outs - i - 1) * sizeof(R.out[0]));
	R.outs--;
}

/* n of them: the oldest, or of an SRQ from one end or the other or from anywhere */
static void rx_complete_some(uint32_t n)
{
	uint32_t way = R.kind == OF_SRQ ? rnd_below(3) : 0;

	while (n--)
		rx_complete(way == 0 ? 0 : way == 1 ? R.outs - 1 : rnd_below(R.outs));
}

/* Can the comparison fail? Each byte of a posted entry and of the record, spoiled */
static void receive_self_check(void)
{
	FILE *was = report_to, *null = fopen("/dev/null", "w");
	struct req r;

	assert_non_null(null);
	rx_open(3, 3);
	req_receive(&r, 2, 0);
	rx_run(&r, 1);
	report_to = null;
	for (uint32_t i = 0; i < R.stride + 4; i++) {
		uint8_t *byte = i < R.stride ? slot(2, R.out[0].in) + i : (uint8_t *)R.dbrec[2] + i - R.stride;

		*byte ^= 1;
		assert_int_equal(rx_check(1), 1);
		*byte ^= 1;
	}
	report_to = was;
	fclose(null);
	rx_close();
}

static void receive_random(void)
{
	static struct req in[MAX_BATCH];
	uint64_t want = env_number("ORACLE_CASES", 100000), seed = env_number("ORACLE_SEED", rnd()), queues = 0;

	print_message("# ORACLE_SEED=%llu ORACLE_CASES=%llu\n", (unsigned long long)seed, (unsigned long long)want);
	rnd_state = seed;
	while (requests < want) {
		/* The first goes round the 16 bits of its record */
		uint64_t until = requests + (queues ? 500 + rnd_below(8000) : 66000);
		uint32_t most, n, i;

		rx_open(1 + rnd_below(queues % 4 == 1 ? 4 : !queues || rnd_below(8) ? 70 : 1000), 1 + rnd_below(rnd_below(4) ? 4 : MAX_SGE));
		most = R.most < MAX_SGE ? R.most : MAX_SGE;
		queues++;
		while (requests < until && requests < want) {
			if (rnd_below(2))
				rx_complete_some(rnd_below(R.outs + 1));
			if (!rx_room())
				rx_complete_some(1 + rnd_below(R.outs));
			n = 1 + rnd_below(rx_room() < MAX_BATCH ? rx_room() : MAX_BATCH);
			for (i = 0; i < n; i++)
				req_receive(&in[i], rnd_below(most + 1), rnd_below(2) ? 0 : rnd_below(PATTERNS));
			rx_run(in, n);
		}
		/* Full: both take the same number, but that inlay holds one more back. More buffers than an entry holds */
		req_receive(&in[0], 1, 0);
		while (rx_room())
			rx_run(in, 1);
		assert_int_equal(rx_post_lib(0, in), ENOMEM);
		if (R.kind == OF_SRQ)
			must(rx_post_in(in));
		assert_int_equal(rx_post_in(in), -EAGAIN);
		rx_complete_some(R.outs);
		if (R.most < MAX_ENTRIES) {
			req_receive(&in[0], R.most + 1, 0);
			assert_int_equal(rx_post_lib(0, in), EINVAL);
			assert_int_equal(rx_post_in(in), -EINVAL);
		}
		rx_close();
	}
	print_message("# %llu queues\n", (unsigned long long)queues);
}

#endif
