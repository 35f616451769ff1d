/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * errors.c: error completions: each with the right status, syndrome, opcode and WQE, followed by flushes of all that was outstanding, with
 * all credit given back; and the way back: reset, clean, take over again, work. On a stepped device, if it is the software one.
 */
#include "rig.h"
#include <endian.h>

static void recv_into(struct end *e, size_t offset, uint32_t len, uint32_t lkey)
{
	struct ibv_sge sge = sge_of(e, offset, len);

	sge.lkey = lkey;
	must(inlay_post_recv(&e->rq, &sge, 1));
	inlay_rq_ring(&e->rq);
}

/* Both directions carry a message, and nothing else comes */
static void works(struct pair *p)
{
	struct end *from = &p->a, *to = &p->b, *swap;
	int way;

	for (way = 0; way < 2; way++, swap = from, from = to, to = swap) {
		const struct mlx5_cqe64 *cqe;
		uint32_t tag = (uint32_t)rnd();

		recv_into(to, 0x2000, 512, to->mr->lkey);
		fill(from->buf + 0x1000, 500, tag);
		{
			struct ibv_sge sge = sge_of(from, 0x1000, 500);

			must(inlay_post_send(&from->sq, &sge, 1, INLAY_SIGNALED));
		}
		inlay_sq_ring(&from->sq);
		cqe = cqe_wait(&to->rxcq);
		assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_RESP_SEND);
		assert_int_equal(inlay_cqe_qpn(cqe), to->qp->qp_num);
		assert_true(0 < inlay_rq_release(&to->rq, cqe));
		inlay_cq_advance(&to->rxcq, 1);
		assert_int_equal(differs(to->buf + 0x2000, 500, tag), 500);
		sent(from);
		assert_int_equal(inlay_sq_pending(&from->sq), 0);
	}
	expect_nothing(&p->a.cq);
	expect_nothing(&p->b.cq);
	expect_nothing(&p->a.rxcq);
	expect_nothing(&p->b.rxcq);
}

/* Reset, clean, connect, take over again. What was left in the CQs is counted */
static uint32_t revive(struct pair *p)
{
	struct end *ends[2] = {&p->a, &p->b};
	uint32_t left = 0, i;

	for (i = 0; i < 2; i++) {
		struct end *e = ends[i];

		inlay_sq_fini(&e->sq);
		if (e->qp) {
			qp_to(e->qp, IBV_QPS_RESET);
			left += inlay_cq_clean(&e->cq, e->qp->qp_num, NULL, NULL);
			left += inlay_cq_clean(&e->rxcq, e->qp->qp_num, NULL, NULL);
		} else {
			e->qp = qp_make(&p->a.opt, e->scq, e->rcq);
		}
	}
	ends_connect(&p->a, &p->b);
	for (i = 0; i < 2; i++) {
		struct end *e = ends[i];

		must(inlay_uar_from_qp(&e->uar, e->qp, NULL));
		must(inlay_sq_from_qp(&e->sq, e->qp, &e->uar, NULL, NULL));
		must(inlay_rq_from_qp(&e->rq, e->qp, NULL, NULL));
		assert_null(inlay_cq_peek(&e->cq));
		assert_null(inlay_cq_peek(&e->rxcq));
	}
	return left;
}

/* An error completion: everything in it; not yet released */
static const struct mlx5_cqe64 *error(struct inlay_cq *cq, struct end *e, uint8_t kind, uint8_t syndrome, enum ibv_wc_status status,
				      uint32_t counter)
{
	const struct mlx5_cqe64 *cqe = cqe_wait(cq);

	if (!inlay_cqe_is_error(cqe) || inlay_cqe_syndrome(cqe) != syndrome)
		inlay_cqe_print(stderr, cqe);
	assert_true(inlay_cqe_is_error(cqe));
	assert_int_equal(inlay_cqe_opcode(cqe), kind);
	assert_int_equal(!!inlay_cqe_is_send(cqe), kind == MLX5_CQE_REQ_ERR);
	assert_int_equal(inlay_cqe_syndrome(cqe), syndrome);
	assert_int_equal(inlay_cqe_status(cqe), status);
	assert_int_equal(inlay_cqe_qpn(cqe), e->qp->qp_num);
	assert_int_equal(inlay_cqe_wqe_counter(cqe), counter & 0xffff);
	return cqe;
}

/* The receives [from, to) come back flushed */
static void recv_flushed(struct end *e, uint32_t from, uint32_t to)
{
	for (; from != to; from++) {
		const struct mlx5_cqe64 *cqe =
			error(&e->rxcq, e, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR, from);

		assert_int_equal(inlay_rq_release(&e->rq, cqe), 1);
		inlay_cq_advance(&e->rxcq, 1);
	}
	assert_null(inlay_cq_peek(&e->rxcq));
}

static void write_one(struct pair *p, uint32_t n, uint32_t flags)
{
	struct ibv_sge sge[4];
	uint32_t i;

	for (i = 0; i < 4; i++)
		sge[i] = sge_of(&p->a, 64 * i, 16);
	must(inlay_post_write(&p->a.sq, raddr_of(&p->b, 0x8000), p->b.mr->rkey, sge, n, flags));
}

enum { LEAVE, POLL };

/*
 * What follows a WQE that `break_it` posts and that must fail: some good ones before it, some of all lengths behind it, all rung at once.
 * The good ones complete, it fails, those behind it are flushed in order. how: whether what comes behind the error is polled, or left
 * in the CQ for inlay_cq_clean.
 */
static void breaks(struct pair *p, void (*break_it)(struct pair *, uint32_t flags), uint8_t opcode, uint8_t syndrome,
		   enum ibv_wc_status status, uint32_t flags, int how)
{
	struct end *a = &p->a;
	uint32_t where[8], bad, i, room = inlay_sq_room(&a->sq), at, left;
	const struct mlx5_cqe64 *cqe;

	for (i = 0; i < 3; i++)
		recv_into(a, 0x4000, 64, a->mr->lkey);
	write_one(p, 1, INLAY_SIGNALED);
	inlay_sq_ring(&a->sq);
	sent(a);
	write_one(p, 3, 0);
	write_one(p, 1, INLAY_SIGNALED);
	bad = a->sq.pi;
	break_it(p, flags);
	for (i = 0; i < 8; i++) {
		where[i] = a->sq.pi;
		write_one(p, 1 + i % 4, i % 3 && i != 7 ? 0 : INLAY_SIGNALED);
	}
	inlay_sq_ring(&a->sq);
	/* The good one and the unsignaled one before it */
	cqe = cqe_wait(&a->cq);
	assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_REQ);
	assert_int_equal(inlay_cqe_wqe_counter(cqe), bad - 1);
	sent(a);
	assert_int_equal(inlay_sq_pending(&a->sq), a->sq.pi - bad);
	cqe = error(&a->cq, a, MLX5_CQE_REQ_ERR, syndrome, status, bad);
	assert_int_equal(inlay_cqe_send_opcode(cqe), opcode);
	assert_true(0 < inlay_sq_release(&a->sq, cqe));
	inlay_cq_advance(&a->cq, 1);
	assert_int_equal(inlay_sq_pending(&a->sq), a->sq.pi - where[0]);
	if (how == LEAVE) {
		settle();
		left = revive(p);
		assert_true(left >= 3);
		if (softdev_present())
			assert_in_range(left, 8 + 3, 64);
		works(p);
		return;
	}
	for (i = 0; i < 8; i++) {
		cqe = cqe_wait(&a->cq);
		at = inlay_cqe_wqe_counter(cqe);
		/* A device may leave out those that were not signaled; ours does not */
		while (i < 7 && !softdev_present() && at != (where[i] & 0xffff))
			i++;
		cqe = error(&a->cq, a, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR, where[i]);
		assert_true(0 < inlay_sq_release(&a->sq, cqe));
		inlay_cq_advance(&a->cq, 1);
		assert_int_equal(inlay_sq_pending(&a->sq), i == 7 ? 0 : a->sq.pi - where[i + 1]);
	}
	assert_int_equal(inlay_sq_room(&a->sq), room);
	assert_null(inlay_cq_peek(&a->cq));
	recv_flushed(a, a->rq.pi - 3, a->rq.pi);
	/* Posting goes on being possible, and is flushed as well */
	at = a->sq.pi;
	write_one(p, 1, INLAY_SIGNALED);
	inlay_sq_ring(&a->sq);
	cqe = error(&a->cq, a, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR, at);
	assert_true(0 < inlay_sq_release(&a->sq, cqe));
	inlay_cq_advance(&a->cq, 1);
	revive(p);
	works(p);
}

/* ---- what goes wrong with a WQE: here, and at the peer ---- */

static void bad_lkey(struct pair *p, uint32_t flags)
{
	struct ibv_sge sge[2] = {sge_of(&p->a, 0, 64), sge_of(&p->a, 64, 64)};

	sge[1].lkey ^= 0x55aa00;
	must(inlay_post_write(&p->a.sq, raddr_of(&p->b, 0), p->b.mr->rkey, sge, 2, flags));
}

static void beyond_region(struct pair *p, uint32_t flags)
{
	struct ibv_sge sge = sge_of(&p->a, p->a.opt.bytes - 10, 11);

	must(inlay_post_read(&p->a.sq, raddr_of(&p->b, 0), p->b.mr->rkey, &sge, 1, flags));
}

static void too_long_for_device(struct pair *p, uint32_t flags)
{
	struct ibv_sge sge = sge_of(&p->a, 0, 0x7fffffff);

	must(inlay_post_send(&p->a.sq, &sge, 1, flags));
}

static void no_such_opcode(struct pair *p, uint32_t flags)
{
	struct inlay_cursor at;

	must(inlay_sq_begin(&p->a.sq, 1, &at));
	at = inlay_seg_data(at, (uintptr_t)p->a.buf, 8, p->a.mr->lkey);
	inlay_sq_commit(&p->a.sq, at, 0x5f, 0, flags, 0);
}

static void bad_rkey(struct pair *p, uint32_t flags)
{
	struct ibv_sge sge = sge_of(&p->a, 0, 64);

	must(inlay_post_write(&p->a.sq, raddr_of(&p->b, 0), p->b.mr->rkey ^ 0x55aa00, &sge, 1, flags));
}

static void bad_raddr(struct pair *p, uint32_t flags)
{
	struct ibv_sge sge = sge_of(&p->a, 0, 64);

	must(inlay_post_read(&p->a.sq, raddr_of(&p->b, p->a.opt.bytes - 63), p->b.mr->rkey, &sge, 1, flags));
}

static void bad_atomic(struct pair *p, uint32_t flags)
{
	struct ibv_sge sge = sge_of(&p->a, 0, 8);

	must(inlay_post_cmp_swap(&p->a.sq, raddr_of(&p->b, p->a.opt.bytes), p->b.mr->rkey, 1, 2, &sge, flags));
}

static void send_to_none(struct pair *p, uint32_t flags)
{
	struct ibv_sge sge = sge_of(&p->a, 0, 64);

	must(inlay_post_send(&p->a.sq, &sge, 1, flags));
}

/* Each signaled and polled, and neither: an error completes whether it was asked for or not */
static void broken(void **state)
{
	static const struct {
		const char *name;
		void (*break_it)(struct pair *, uint32_t);
		uint8_t opcode, syndrome;
		enum ibv_wc_status status;
		uint8_t rnr_retry;
	} rows[] = {
		{"local key", bad_lkey, MLX5_OPCODE_RDMA_WRITE, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, IBV_WC_LOC_PROT_ERR, 7},
		{"local bounds", beyond_region, MLX5_OPCODE_RDMA_READ, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, IBV_WC_LOC_PROT_ERR, 7},
		{"length", too_long_for_device, MLX5_OPCODE_SEND, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, IBV_WC_LOC_LEN_ERR, 7},
		{"opcode", no_such_opcode, 0x5f, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, IBV_WC_LOC_QP_OP_ERR, 7},
		{"rkey", bad_rkey, MLX5_OPCODE_RDMA_WRITE, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR, 7},
		{"raddr", bad_raddr, MLX5_OPCODE_RDMA_READ, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR, 7},
		{"atomic", bad_atomic, MLX5_OPCODE_ATOMIC_CS, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR, 7},
		{"no receive", send_to_none, MLX5_OPCODE_SEND, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, 0},
		{"none, tried again", send_to_none, MLX5_OPCODE_SEND, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, 2},
	};
	struct opt opt = usual;
	struct pair p;
	uint32_t i, k;

	(void)state;
	for (i = 0; i < ARRAY(rows); i++) {
		if (rows[i].break_it == too_long_for_device && !softdev_present())
			continue; /* how long a message may be is the device's matter */
		print_message("# %s\n", rows[i].name);
		opt.rnr_retry = rows[i].rnr_retry;
		opt.cqe_size = i % 2 ? 128 : 64;
		pair_make(&p, &opt);
		for (k = 0; k < 4; k++)
			breaks(&p, rows[i].break_it, rows[i].opcode, rows[i].syndrome, rows[i].status, k & 1 ? 0 : INLAY_SIGNALED,
			       k & 2 ? LEAVE : POLL);
		pair_free(&p);
	}
}

/* The peer's side of its own: a receive that is too short, or that it may not write to */
static void peer_recv(struct pair *p, uint8_t synd_b, enum ibv_wc_status status_b, uint8_t synd_a, enum ibv_wc_status status_a,
		      uint32_t len, uint32_t lkey)
{
	struct ibv_sge sge = sge_of(&p->a, 0, 64);
	const struct mlx5_cqe64 *cqe;
	uint32_t bad, first;

	first = p->b.rq.pi;
	recv_into(&p->b, 0x4000, 64, p->b.mr->lkey);
	recv_into(&p->b, 0x5000, len, lkey);
	recv_into(&p->b, 0x6000, 64, p->b.mr->lkey);
	must(inlay_post_send(&p->a.sq, &sge, 1, INLAY_SIGNALED));
	bad = p->a.sq.pi;
	must(inlay_post_send_imm(&p->a.sq, 1, &sge, 1, 0));
	inlay_sq_ring(&p->a.sq);
	sent(&p->a);
	cqe = cqe_wait(&p->b.rxcq);
	assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_RESP_SEND);
	assert_true(0 < inlay_rq_release(&p->b.rq, cqe));
	inlay_cq_advance(&p->b.rxcq, 1);
	cqe = error(&p->b.rxcq, &p->b, MLX5_CQE_RESP_ERR, synd_b, status_b, first + 1);
	assert_true(0 < inlay_rq_release(&p->b.rq, cqe));
	inlay_cq_advance(&p->b.rxcq, 1);
	recv_flushed(&p->b, first + 2, first + 3);
	cqe = error(&p->a.cq, &p->a, MLX5_CQE_REQ_ERR, synd_a, status_a, bad);
	assert_int_equal(inlay_cqe_send_opcode(cqe), MLX5_OPCODE_SEND_IMM);
	assert_true(0 < inlay_sq_release(&p->a.sq, cqe));
	inlay_cq_advance(&p->a.cq, 1);
	assert_int_equal(inlay_sq_pending(&p->a.sq), 0);
	revive(p);
	works(p);
}

static void peer(void **state)
{
	struct pair p;

	(void)state;
	pair_make(&p, &usual);
	peer_recv(&p, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, IBV_WC_LOC_LEN_ERR, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, IBV_WC_REM_INV_REQ_ERR,
		  63, p.b.mr->lkey);
	peer_recv(&p, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, IBV_WC_LOC_PROT_ERR, MLX5_CQE_SYNDROME_REMOTE_OP_ERR, IBV_WC_REM_OP_ERR, 64,
		  p.b.mr->lkey ^ 0x55aa00);
	pair_free(&p);
}

/* The peer is gone: everything times out */
static void transport(void **state)
{
	struct opt opt = usual;
	struct pair p;
	uint32_t i, k;

	(void)state;
	opt.retry_cnt = 1;
	pair_make(&p, &opt);
	for (i = 0; i < 3; i++) {
		const struct mlx5_cqe64 *cqe;
		uint32_t first = p.a.sq.pi;

		must(ibv_destroy_qp(p.b.qp));
		p.b.qp = NULL;
		for (k = 0; k < 5; k++)
			write_one(&p, 1, k == 4 ? INLAY_SIGNALED : 0);
		inlay_sq_ring(&p.a.sq);
		for (k = 0; k < 5; k++) {
			cqe = k ? error(&p.a.cq, &p.a, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR, first + k) :
				  error(&p.a.cq, &p.a, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR,
					first);
			assert_int_equal(inlay_cqe_send_opcode(cqe), MLX5_OPCODE_RDMA_WRITE);
			assert_true(0 < inlay_sq_release(&p.a.sq, cqe));
			assert_int_equal(inlay_sq_pending(&p.a.sq), 4 - k);
			inlay_cq_advance(&p.a.cq, 1);
		}
		revive(&p);
		works(&p);
	}
	pair_free(&p);
}

/* Nothing is wrong: the program itself stops the QP while a send waits for a receive. What waited is flushed with its own opcode */
static void flush(void **state)
{
	static const uint8_t opcodes[] = {MLX5_OPCODE_SEND, MLX5_OPCODE_RDMA_READ, MLX5_OPCODE_ATOMIC_FA, MLX5_OPCODE_ATOMIC_CS,
					  MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_OPCODE_NOP};
	uint32_t i, round, first, recv;
	struct ibv_sge sge;
	struct pair p;

	(void)state;
	pair_make(&p, &usual);
	sge = sge_of(&p.a, 0, 8);
	for (round = 0; round < 3; round++) {
		const uint64_t to = raddr_of(&p.b, 0);
		const uint32_t rkey = p.b.mr->rkey;

		memset(p.b.buf, 0, 64);
		first = p.a.sq.pi;
		recv = p.a.rq.pi;
		for (i = 0; i < 5; i++)
			recv_into(&p.a, 0x4000, 64, p.a.mr->lkey);
		send_to_none(&p, INLAY_SIGNALED);
		must(inlay_post_read(&p.a.sq, to, rkey, &sge, 1, 0));
		must(inlay_post_fetch_add(&p.a.sq, to, rkey, 1, &sge, 0));
		must(inlay_post_cmp_swap(&p.a.sq, to, rkey, 0, 1, &sge, 0));
		must(inlay_post_write_imm(&p.a.sq, to, rkey, 1, &sge, 1, 0));
		must(inlay_post_nop(&p.a.sq, INLAY_SIGNALED | INLAY_RING));
		expect_nothing(&p.a.cq);
		qp_to(p.a.qp, IBV_QPS_ERR);
		for (i = 0; i < ARRAY(opcodes); i++) {
			const struct mlx5_cqe64 *cqe = error(&p.a.cq, &p.a, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR,
							      IBV_WC_WR_FLUSH_ERR, first + i);

			assert_int_equal(inlay_cqe_send_opcode(cqe), opcodes[i]);
			assert_true(0 < inlay_sq_release(&p.a.sq, cqe));
			assert_int_equal(inlay_sq_pending(&p.a.sq), ARRAY(opcodes) - 1 - i);
			inlay_cq_advance(&p.a.cq, 1);
		}
		assert_true(all_bytes(p.b.buf, 64, 0));
		recv_flushed(&p.a, recv, recv + 5);
		revive(&p);
		works(&p);
	}
	pair_free(&p);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(broken),
		cmocka_unit_test(peer),
		cmocka_unit_test(transport),
		cmocka_unit_test(flush),
	};

	return cmocka_run_group_tests_name("errors", tests, open_stepped, dev_close);
}
