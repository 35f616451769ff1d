/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * errors.c: error completions: each with the right status, syndrome, opcode and WQE, followed by flushes of all that was outstanding, with
 * all credit given back; and the way back: reset, clean, take over again, work. On a stepped device, if it is the software one.
 */
#include "rig.h"

static void recv_into(struct end *e, size_t offset, uint32_t len, uint32_t lkey)
{
	struct ibv_sge sge = sge_of(e, offset, len);

	sge.lkey = lkey;
	must(inlay_post_recv(&e->rq, &sge, 1));
	inlay_rq_ring(&e->rq);
}

/* Reset, clean, connect, take over again; then both directions carry a message, and nothing else comes. Returns what was left in the CQs */
static uint32_t revive(struct pair *p)
{
	struct end *from = &p->a, *to = &p->b, *swap, *e;
	uint32_t left = 0, tag = (uint32_t)rnd(), i;
	struct ibv_sge sge;

	for (i = 0; i < 2; i++) {
		e = i ? to : from;
		inlay_sq_fini(&e->sq);
		if (e->qp) {
			qp_to(e->qp, IBV_QPS_RESET);
			left += inlay_cq_clean(&e->cq, e->qp->qp_num, NULL, NULL);
			left += inlay_cq_clean(&e->rxcq, e->qp->qp_num, NULL, NULL);
		} else {
			e->qp = qp_make(&e->opt, e->scq, e->rcq);
		}
	}
	ends_connect(from, to);
	for (i = 0; i < 2; i++) {
		e = i ? to : from;
		must(inlay_uar_from_qp(&e->uar, e->qp, NULL));
		must(inlay_sq_from_qp(&e->sq, e->qp, &e->uar, NULL, NULL));
		must(inlay_rq_from_qp(&e->rq, e->qp, NULL, NULL));
		assert_null(inlay_cq_peek(&e->cq));
		assert_null(inlay_cq_peek(&e->rxcq));
	}
	for (i = 0; i < 2; i++, swap = from, from = to, to = swap) {
		recv_into(to, 0x2000, 512, to->mr->lkey);
		fill(from->buf + 0x1000, 500, tag);
		sge = sge_of(from, 0x1000, 500);
		must(inlay_post_send(&from->sq, &sge, 1, INLAY_SIGNALED | INLAY_RING));
		received(to, MLX5_CQE_RESP_SEND, 500, 0);
		assert_int_equal(differs(to->buf + 0x2000, 500, tag), 500);
		sent(from);
		assert_int_equal(inlay_sq_pending(&from->sq), 0);
		expect_nothing(&from->cq);
		expect_nothing(&to->rxcq);
	}
	return left;
}

#define RECEIVE -1

/* An error completion of that WQE: everything in it; its slot and credit go back. opcode: what was posted */
static void error(struct end *e, int opcode, uint8_t syndrome, enum ibv_wc_status status, uint32_t counter)
{
	const bool send = opcode != RECEIVE;
	struct inlay_cq *cq = send ? &e->cq : &e->rxcq;
	const struct mlx5_cqe64 *cqe = cqe_wait(cq);

	if (!inlay_cqe_is_error(cqe) || inlay_cqe_syndrome(cqe) != syndrome)
		inlay_cqe_print(stderr, cqe);
	assert_true(inlay_cqe_is_error(cqe));
	assert_int_equal(inlay_cqe_opcode(cqe), send ? MLX5_CQE_REQ_ERR : MLX5_CQE_RESP_ERR);
	assert_int_equal(inlay_cqe_is_send(cqe), send);
	assert_int_equal(inlay_cqe_syndrome(cqe), syndrome);
	assert_int_equal(inlay_cqe_status(cqe), status);
	assert_int_equal(inlay_cqe_qpn(cqe), e->qp->qp_num);
	assert_int_equal(inlay_cqe_wqe_counter(cqe), counter & 0xffff);
	if (send)
		assert_int_equal(inlay_cqe_send_opcode(cqe), opcode);
	assert_true(0 < (send ? inlay_sq_release(&e->sq, cqe) : inlay_rq_release(&e->rq, cqe)));
	inlay_cq_advance(cq, 1);
}

static void flushed(struct end *e, int opcode, uint32_t counter)
{
	error(e, opcode, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR, counter);
}

static void recv_flushed(struct end *e, uint32_t from, uint32_t to)
{
	for (; from != to; from++)
		flushed(e, RECEIVE, from);
	assert_null(inlay_cq_peek(&e->rxcq));
}

static void write_one(struct pair *p, uint32_t n, uint32_t flags)
{
	struct ibv_sge sge[4];

	for (uint32_t i = 0; i < 4; i++)
		sge[i] = sge_of(&p->a, 64 * i, 16);
	must(inlay_post_write(&p->a.sq, raddr_of(&p->b, 0x8000), p->b.mr->rkey, sge, n, flags));
}

#define WRONG 0x55aa00
#define BYTES (1u << 20) /* of each end's memory */

/* A WQE that must fail: with these bytes of its own, that place at the peer, and keys changed so */
struct row {
	const char *name;
	uint8_t opcode, syndrome;
	enum ibv_wc_status status;
	uint8_t rnr_retry;
	uint32_t offset, len, lkey, to, rkey;
	bool gone;                    /* the peer */
};

static int post_row(struct pair *p, const struct row *r, uint32_t flags)
{
	struct ibv_sge sge[2] = {sge_of(&p->a, 0, 8), sge_of(&p->a, r->offset, r->len)};
	const uint64_t to = raddr_of(&p->b, r->to);
	const uint32_t rkey = p->b.mr->rkey ^ r->rkey;
	struct inlay_cursor at;

	sge[1].lkey ^= r->lkey;
	switch (r->opcode) {
	case MLX5_OPCODE_SEND: return inlay_post_send(&p->a.sq, sge, 2, flags);
	case MLX5_OPCODE_RDMA_WRITE: return inlay_post_write(&p->a.sq, to, rkey, sge, 2, flags);
	case MLX5_OPCODE_RDMA_READ: return inlay_post_read(&p->a.sq, to, rkey, sge, 2, flags);
	case MLX5_OPCODE_ATOMIC_CS: return wr_atomic(&p->a.sq, inlay_atomic_cmp_swap(1, 2), wr_at(wr_sge(sge, 1), to, rkey), flags);
	default:
		must(inlay_sq_begin(&p->a.sq, 1, &at));
		inlay_sq_commit(&p->a.sq, inlay_seg_data(at, sge[0].addr, 8, sge[0].lkey), r->opcode, 0, flags, 0);
		return 0;
	}
}

/* Good WQEs, that one, signaled or not, eight more, rung at once. leave: what is behind the error, for inlay_cq_clean */
static void breaks(struct pair *p, const struct row *r, uint32_t flags, bool leave)
{
	uint32_t where[8], bad, i, room = inlay_sq_room(&p->a.sq), left;
	struct end *a = &p->a;

	for (i = 0; i < 3; i++)
		recv_into(a, 0x4000, 64, a->mr->lkey);
	if (r->gone) {
		must(ibv_destroy_qp(p->b.qp));
		p->b.qp = NULL;
	} else {
		write_one(p, 3, 0);
		write_one(p, 1, INLAY_SIGNALED);
	}
	bad = a->sq.pi;
	must(post_row(p, r, flags));
	for (i = 0; i < 8; i++) {
		where[i] = a->sq.pi;
		write_one(p, 1 + i % 4, i % 3 && i != 7 ? 0 : INLAY_SIGNALED);
	}
	inlay_sq_ring(&a->sq);
	if (!r->gone) {
		assert_int_equal(inlay_cqe_wqe_counter(cqe_wait(&a->cq)), (bad - 1) & 0xffff);
		sent(a);
	}
	assert_int_equal(inlay_sq_pending(&a->sq), a->sq.pi - bad);
	error(a, r->opcode, r->syndrome, r->status, bad);
	assert_int_equal(inlay_sq_pending(&a->sq), a->sq.pi - where[0]);
	if (leave) {
		settle();
		left = revive(p);
		assert_true(left >= 3);
		if (softdev_present())
			assert_in_range(left, 8 + 3, 64);
		return;
	}
	for (i = 0; i < 8; i++) {
		/* A device may leave out those that were not signaled; ours does not */
		while (i < 7 && !softdev_present() && inlay_cqe_wqe_counter(cqe_wait(&a->cq)) != (where[i] & 0xffff))
			i++;
		flushed(a, MLX5_OPCODE_RDMA_WRITE, where[i]);
		assert_int_equal(inlay_sq_pending(&a->sq), i == 7 ? 0 : a->sq.pi - where[i + 1]);
	}
	assert_int_equal(inlay_sq_room(&a->sq), room);
	assert_null(inlay_cq_peek(&a->cq));
	recv_flushed(a, a->rq.pi - 3, a->rq.pi);
	stopped_nop(a);
	revive(p);
}

TEST(broken)
{
#define ERROR(synd, wc) MLX5_CQE_SYNDROME_##synd, IBV_WC_##wc
	static const struct row rows[] = {
		{"local key", MLX5_OPCODE_RDMA_WRITE, ERROR(LOCAL_PROT_ERR, LOC_PROT_ERR), 7, 64, 64, WRONG, 0, 0, false},
		{"local bounds", MLX5_OPCODE_RDMA_READ, ERROR(LOCAL_PROT_ERR, LOC_PROT_ERR), 7, BYTES - 10, 11, 0, 0, 0, false},
		{"length", MLX5_OPCODE_SEND, ERROR(LOCAL_LENGTH_ERR, LOC_LEN_ERR), 7, 0, 0x7fffffff, 0, 0, 0, false},
		{"opcode", 0x5f, ERROR(LOCAL_QP_OP_ERR, LOC_QP_OP_ERR), 7, 0, 0, 0, 0, 0, false},
		{"rkey", MLX5_OPCODE_RDMA_WRITE, ERROR(REMOTE_ACCESS_ERR, REM_ACCESS_ERR), 7, 0, 64, 0, 0, WRONG, false},
		{"raddr", MLX5_OPCODE_RDMA_READ, ERROR(REMOTE_ACCESS_ERR, REM_ACCESS_ERR), 7, 0, 56, 0, BYTES - 63, 0, false},
		{"atomic", MLX5_OPCODE_ATOMIC_CS, ERROR(REMOTE_ACCESS_ERR, REM_ACCESS_ERR), 7, 0, 0, 0, BYTES, 0, false},
		{"no receive", MLX5_OPCODE_SEND, ERROR(RNR_RETRY_EXC_ERR, RNR_RETRY_EXC_ERR), 0, 0, 64, 0, 0, 0, false},
		{"none, tried again", MLX5_OPCODE_SEND, ERROR(RNR_RETRY_EXC_ERR, RNR_RETRY_EXC_ERR), 2, 0, 64, 0, 0, 0, false},
		{"no peer", MLX5_OPCODE_RDMA_WRITE, ERROR(TRANSPORT_RETRY_EXC_ERR, RETRY_EXC_ERR), 7, 0, 64, 0, 0, 0, true},
	};
	struct opt opt = usual;
	struct pair p;

	opt.bytes = BYTES;
	for (uint32_t i = 0; i < ARRAY(rows); i++) {
		if (rows[i].len == 0x7fffffff && !softdev_present())
			continue; /* how long a message may be is the device's matter */
		print_message("# %s\n", rows[i].name);
		opt.rnr_retry = rows[i].rnr_retry;
		opt.retry_cnt = rows[i].gone ? 1 : 7;
		opt.cqe_size = i % 2 ? 128 : 64;
		pair_make(&p, &opt);
		for (uint32_t k = 0; k < 4; k++)
			breaks(&p, &rows[i], k & 1 ? 0 : INLAY_SIGNALED, k & 2);
		pair_free(&p);
	}
}

/* The peer's side of its own: a receive that is too short, or that it may not write to */
TEST(peer)
{
	static const struct {
		uint8_t there;
		enum ibv_wc_status status;
		uint8_t here;
		enum ibv_wc_status status_here;
		uint32_t len, lkey;
	} rows[] = {
		{ERROR(LOCAL_LENGTH_ERR, LOC_LEN_ERR), ERROR(REMOTE_INVAL_REQ_ERR, REM_INV_REQ_ERR), 63, 0},
		{ERROR(LOCAL_PROT_ERR, LOC_PROT_ERR), ERROR(REMOTE_OP_ERR, REM_OP_ERR), 64, WRONG},
	};
	struct ibv_sge sge;
	struct pair p;
	uint32_t i, bad, first;

	pair_make(&p, &usual);
	sge = sge_of(&p.a, 0, 64);
	for (i = 0; i < ARRAY(rows); i++) {
		first = p.b.rq.pi;
		recv_into(&p.b, 0x4000, 64, p.b.mr->lkey);
		recv_into(&p.b, 0x5000, rows[i].len, p.b.mr->lkey ^ rows[i].lkey);
		recv_into(&p.b, 0x6000, 64, p.b.mr->lkey);
		must(inlay_post_send(&p.a.sq, &sge, 1, INLAY_SIGNALED));
		bad = p.a.sq.pi;
		must(wr_post(&p.a.sq, MLX5_OPCODE_SEND_IMM, wr_imm(wr_sge(&sge, 1), 1), INLAY_RING));
		sent(&p.a);
		received(&p.b, MLX5_CQE_RESP_SEND, 64, first);
		error(&p.b, RECEIVE, rows[i].there, rows[i].status, first + 1);
		recv_flushed(&p.b, first + 2, first + 3);
		error(&p.a, MLX5_OPCODE_SEND_IMM, rows[i].here, rows[i].status_here, bad);
		assert_int_equal(inlay_sq_pending(&p.a.sq), 0);
		revive(&p);
	}
	pair_free(&p);
}

/* Nothing is wrong: the program itself stops the QP while a send waits for a receive. What waited is flushed with its own opcode */
TEST(flush)
{
	static const uint8_t opcodes[] = {MLX5_OPCODE_SEND, MLX5_OPCODE_RDMA_READ, MLX5_OPCODE_ATOMIC_FA, MLX5_OPCODE_ATOMIC_CS,
					  MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_OPCODE_NOP};
	struct ibv_sge sge;
	struct pair p;
	uint64_t to;
	uint32_t i, rkey;

	pair_make(&p, &usual);
	sge = sge_of(&p.a, 0, 8);
	to = raddr_of(&p.b, 0);
	rkey = p.b.mr->rkey;
	for (i = 0; i < 5; i++)
		recv_into(&p.a, 0x4000, 64, p.a.mr->lkey);
	must(inlay_post_send(&p.a.sq, &sge, 1, INLAY_SIGNALED));
	must(inlay_post_read(&p.a.sq, to, rkey, &sge, 1, 0));
	must(wr_atomic(&p.a.sq, inlay_atomic_add(1), wr_at(wr_sge(&sge, 1), to, rkey), 0));
	must(wr_atomic(&p.a.sq, inlay_atomic_cmp_swap(0, 1), wr_at(wr_sge(&sge, 1), to, rkey), 0));
	must(wr_post(&p.a.sq, MLX5_OPCODE_RDMA_WRITE_IMM, wr_imm(wr_at(wr_sge(&sge, 1), to, rkey), 1), 0));
	must(inlay_post(&p.a.sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED | INLAY_RING));
	expect_nothing(&p.a.cq);
	qp_to(p.a.qp, IBV_QPS_ERR);
	for (i = 0; i < ARRAY(opcodes); i++) {
		flushed(&p.a, opcodes[i], i);
		assert_int_equal(inlay_sq_pending(&p.a.sq), ARRAY(opcodes) - 1 - i);
	}
	assert_true(all_bytes(p.b.buf, 64, 0));
	recv_flushed(&p.a, 0, 5);
	revive(&p);
	pair_free(&p);
}

int main(void)
{
	return run_all(open_stepped, dev_close);
}
