/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * queue.c: messages on a device. Every operation of RC, UC and UD in every shape moves the right bytes, touches nothing beside them and
 * completes as it should; indices past 2^16; send queues that have stopped and go on. storm.c posts at random, over all transports, with
 * failures and recoveries.
 */
#include "rig.h"
#include <endian.h>

/* A good completion of the WQE at that index */
static void sent_as(struct end *e, uint8_t opcode, uint32_t index)
{
	const struct mlx5_cqe64 *cqe = cqe_wait(&e->cq);

	assert_int_equal(inlay_cqe_send_opcode(cqe), opcode);
	assert_int_equal(inlay_cqe_wqe_counter(cqe), index & 0xffff);
	assert_true(inlay_cqe_is_send(cqe));
	sent(e);
}

enum op { SEND, SEND_IMM, SEND_INV, WRITE, WRITE_IMM, READ, OPS };
enum { RC = 1, UC = 2, UD = 4 };

/* cqe: of the receiver, or 0 */
static const struct { uint8_t opcode, cqe, types; } ops[OPS] = {
	{MLX5_OPCODE_SEND, MLX5_CQE_RESP_SEND, RC | UC | UD},
	{MLX5_OPCODE_SEND_IMM, MLX5_CQE_RESP_SEND_IMM, RC | UC | UD},
	{MLX5_OPCODE_SEND_INVAL, MLX5_CQE_RESP_SEND_INV, RC}, {MLX5_OPCODE_RDMA_WRITE, 0, RC | UC},
	{MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_CQE_RESP_WR_IMM, RC | UC},
	{MLX5_OPCODE_RDMA_READ, 0, RC},
};

static struct inlay_av to; /* where datagrams go */

static uint8_t type_of(const struct end *e)
{
	return e->qp->qp_type == IBV_QPT_RC ? RC : e->qp->qp_type == IBV_QPT_UC ? UC : UD;
}

static uint32_t header(const struct end *e)
{
	return type_of(e) == UD ? INLAY_GRH : 0;
}

static uint32_t oldest(const struct end *e)
{
	return e->rq.pi - inlay_rq_pending(&e->rq);
}

/* A memory window on b's first bytes, bound to its QP: the key that a SEND may invalidate */
struct window { struct ibv_mr *mr; struct ibv_mw *mw; };

static void window_open(struct end *e, struct window *w)
{
	const uint32_t index = e->sq.pi;
	struct ibv_mw_bind_info bind = {};

	w->mr = ibv_reg_mr(dev.pd, e->buf, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	w->mw = ibv_alloc_mw(dev.pd, IBV_MW_TYPE_2);
	assert_non_null(w->mr);
	assert_non_null(w->mw);
	bind.mr = w->mr;
	bind.addr = (uintptr_t)e->buf;
	bind.length = 64;
	bind.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
	must(inlay_post_bind_mw(&e->sq, w->mw, ibv_inc_rkey(w->mw->rkey), &bind, INLAY_SIGNALED | INLAY_RING));
	w->mw->rkey = ibv_inc_rkey(w->mw->rkey);
	sent_as(e, MLX5_OPCODE_UMR, index);
}

/* The MR can go only because nothing is bound to it any more */
static void window_close(struct window *w)
{
	must(ibv_dereg_mr(w->mr));
	must(ibv_dealloc_mw(w->mw));
}

static int post(struct end *a, struct end *b, enum op op, uint64_t raddr, uint32_t imm, struct ibv_sge *sge, uint32_t num, uint32_t flags)
{
	const uint32_t rkey = b->mr->rkey;

	switch (op) {
	case SEND:
		return type_of(a) == UD ? wr_post(&a->sq, MLX5_OPCODE_SEND, wr_to(wr_sge(sge, num), &to), flags) :
					  inlay_post_send(&a->sq, sge, num, flags);
	case SEND_IMM:
		return type_of(a) == UD ? wr_post(&a->sq, MLX5_OPCODE_SEND_IMM, wr_imm(wr_to(wr_sge(sge, num), &to), htobe32(imm)), flags) :
					  wr_post(&a->sq, MLX5_OPCODE_SEND_IMM, wr_imm(wr_sge(sge, num), htobe32(imm)), flags);
	case SEND_INV: return wr_post(&a->sq, MLX5_OPCODE_SEND_INVAL, wr_at(wr_sge(sge, num), 0, imm), flags);
	case WRITE: return inlay_post_write(&a->sq, raddr, rkey, sge, num, flags);
	case WRITE_IMM: return wr_post(&a->sq, MLX5_OPCODE_RDMA_WRITE_IMM, wr_imm(wr_at(wr_sge(sge, num), raddr, rkey), htobe32(imm)), flags);
	default: return inlay_post_read(&a->sq, raddr, rkey, sge, num, flags);
	}
}

/* What the CQE says of a message from a */
static void arrived(struct end *a, struct end *b, enum op op, uint32_t total, uint32_t imm, uint32_t flags)
{
	const struct mlx5_cqe64 *cqe = cqe_wait(rx_cq(b));

	if (op != SEND)
		assert_int_equal(inlay_cqe_imm_be(cqe), htobe32(imm));
	if (op == SEND_INV)
		assert_int_equal(inlay_cqe_invalidated_rkey(cqe), imm);
	if (type_of(a) == UD) {
		assert_int_equal(inlay_cqe_sender(cqe).qpn, a->qp->qp_num);
		assert_null(inlay_cqe_data(cqe, b->rxcq.stride, NULL));
	}
	assert_int_equal(!!(cqe->op_own & INLAY_CQE_SOLICITED), !!(flags & INLAY_SOLICITED));
	received(b, ops[op].cqe, header(b) + total, oldest(b));
}

/* num pieces of lens[] bytes from (READ: into) a's buffer to (READ: from) 0x40000 of b's, and nothing around them */
static void one(struct pair *p, enum op op, uint32_t num, const uint32_t *lens, uint32_t flags)
{
	struct end *a = &p->a, *b = &p->b;
	uint32_t total = 0, i, at, k, index = a->sq.pi, imm = (uint32_t)rnd(), tag = (uint32_t)rnd();
	struct window w = {NULL, NULL};
	const size_t where = 0x40000 + rnd_below(64), body = where + header(b);
	static uint8_t whole[1 << 20]; /* the message in one piece */
	struct ibv_sge sge[32];

	for (i = 0, at = 0x1000; i < num; i++, at += lens[i - 1] + 1 + rnd_below(37)) {
		sge[i] = sge_of(a, at, lens[i]);
		total += lens[i];
	}
	memset(a->buf, 0x11, at);
	memset(b->buf + where - 64, 0x22, header(b) + total + 128);
	fill(op == READ ? b->buf + body : whole, total, tag);
	for (i = k = 0; op != READ && i < num; k += lens[i++])
		memcpy(a->buf + (sge[i].addr - (uintptr_t)a->buf), whole + k, lens[i]);
	if (ops[op].cqe)
		post_recv(b, where, op == WRITE_IMM ? 0 : header(b) + total);
	if (op == SEND_INV) {
		window_open(b, &w);
		imm = w.mw->rkey;
	}
	must(post(a, b, op, raddr_of(b, where), imm, sge, num, flags));
	inlay_sq_ring(&a->sq);
	if (ops[op].cqe)
		arrived(a, b, op, total, imm, flags);
	if (op == SEND_INV)
		window_close(&w);
	if (op == READ)
		assert_int_equal(inlay_cqe_byte_count(cqe_wait(&a->cq)), total);
	sent_as(a, ops[op].opcode, index);
	assert_int_equal(inlay_sq_pending(&a->sq), 0);
	/* UC's writes: done here does not mean arrived there */
	if (type_of(a) == UC && op == WRITE) {
		await(differs(b->buf + body, total, tag) == total);
		inlay_fence_polled();
	}
	for (i = k = 0, at = 0x1000; op == READ && i < num; k += lens[i++]) {
		uint32_t from = (uint32_t)(sge[i].addr - (uintptr_t)a->buf);

		assert_memory_equal(a->buf + from, b->buf + body + k, lens[i]);
		assert_true(all_bytes(a->buf + at, from - at, 0x11));
		at = from + lens[i];
	}
	assert_int_equal(differs(b->buf + body, total, tag), total);
	assert_true(all_bytes(b->buf + where - 64, 64, 0x22));
	assert_true(all_bytes(b->buf + body + total, 64, 0x22));
}

static void lengths(const struct opt *opt)
{
	uint32_t lens[32], n, i, op, max_inline, laps, longest;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct pair p;

	pair_make(&p, opt);
	if (type_of(&p.a) == UD)
		to = av_to(&p.b);
	longest = type_of(&p.a) == UD ? 128u << dev.port.active_mtu : 100000;
	must(ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init));
	max_inline = init.cap.max_inline_data;
	assert_true(max_inline >= opt->cap.max_inline_data);
	for (op = SEND; op <= READ; op++) {
		if (!(ops[op].types & type_of(&p.a)) || (op == SEND_INV && p.b.sq.max_ds < 12))
			continue; /* no room for the WQE that binds a window */
		/* Every number of pieces, with and without empty ones */
		for (n = 0; n <= opt->cap.max_send_sge; n++)
			for (laps = 0; laps < 6; laps++) {
				for (i = 0; i < n; i++)
					lens[i] = laps == 5 || (laps > 2 && rnd_below(2)) ? 0 :
						  1 + rnd_below(laps == 1 && type_of(&p.a) != UD ? 3000 : 60);
				one(&p, (enum op)op, n, lens, INLAY_SIGNALED | (laps & 1 && ops[op].cqe ? INLAY_SOLICITED : 0));
			}
		for (lens[0] = 1; lens[0] < longest; lens[0] += 1 + lens[0] / 3)
			one(&p, (enum op)op, 1, lens, INLAY_SIGNALED);
		lens[0] = longest;
		one(&p, (enum op)op, 1, lens, INLAY_SIGNALED);
		if (op == READ)
			break;
		/* Every inline length, in one piece and in several */
		for (n = 0; n <= max_inline; n += n < 130 || n == max_inline ? 1 : n + 7 < max_inline ? 7 : max_inline - n) {
			lens[0] = n;
			one(&p, (enum op)op, 1, lens, INLAY_SIGNALED | INLAY_INLINE);
			lens[0] = rnd_below(n + 1);
			lens[1] = rnd_below(n + 1 - lens[0]);
			lens[2] = 0;
			lens[3] = n - lens[0] - lens[1];
			one(&p, (enum op)op, 4, lens, INLAY_SIGNALED | INLAY_INLINE);
		}
	}
	if (type_of(&p.a) == UC && !INLAY_CHECKED) /* which would abort */
		assert_int_equal(wr_atomic(&p.a.sq, inlay_atomic_add(1), wr_buf(NULL, 8, 0), 0), -ENOTSUP);
	pair_free(&p);
}

TEST(transfers)
{
	static const struct {
		enum ibv_qp_type type;
		int cqe_size;
		bool one_cq;
		uint32_t sge, inline_data;
	} rows[] = {
		{IBV_QPT_RC, 64, false, 4, 128}, {IBV_QPT_RC, 128, true, 1, 0}, {IBV_QPT_RC, 64, false, 16, 512},
		{IBV_QPT_UC, 64, false, 4, 128}, {IBV_QPT_UC, 128, true, 2, 0}, {IBV_QPT_UD, 64, false, 4, 128},
		{IBV_QPT_UD, 128, false, 14, 300},
	};

	for (uint32_t i = 0; i < ARRAY(rows); i++) {
		struct opt opt = opt_of(rows[i].type, 1 << 20);

		opt.qp_access = rows[i].type == IBV_QPT_RC ? ALL_ACCESS : IBV_ACCESS_REMOTE_WRITE;
		opt.mtu = (enum ibv_mtu)(IBV_MTU_256 + i % 5);
		opt.cqe_size = rows[i].cqe_size;
		opt.one_cq = rows[i].one_cq;
		opt.cap.max_send_sge = rows[i].sge;
		opt.cap.max_inline_data = rows[i].inline_data;
		lengths(&opt);
	}
}

/* The way to this port over that GID; false when there is no such GID */
static bool path_over(int index, struct ibv_ah_attr *ah)
{
	union ibv_gid gid;

	*ah = own_path();
	if ((index && !ah->is_global) || ibv_query_gid(dev.ctx, 1, index, &gid) ||
	    (!gid.global.subnet_prefix && !gid.global.interface_id))
		return false;
	if (ah->is_global) {
		ah->grh.dgid = gid;
		ah->grh.sgid_index = (uint8_t)index;
	}
	return true;
}

/* Over every GID, and an answer to whomever the CQE names, by verbs' own way of making an address of it */
TEST(answers)
{
	const struct opt opt = opt_of(IBV_QPT_UD, 1 << 18);
	struct ibv_ah_attr path, attr;
	int gid, gids = 0;
	struct pair p;

	pair_make(&p, &opt);
	for (gid = 0; gid < 4; gid++) {
		if (!path_over(gid, &path))
			continue;
		gids++;
		path.sl = path.is_global ? 0 : 3;
		for (uint32_t n = 0; n < 40; n++) {
			const struct mlx5_cqe64 *cqe;
			struct inlay_sender sender;
			struct ibv_wc wc = {};

			to = av_of(&path, p.b.qp->qp_num, n % 2 ? QKEY : 0x80000000); /* the highest bit: the QP's own */
			post_recv(&p.b, 0, 512);
			must(wr_post(&p.a.sq, MLX5_OPCODE_SEND, wr_to(wr_buf(&n, sizeof(n), 0), &to), INLAY_SIGNALED | INLAY_RING | INLAY_INLINE));
			sent(&p.a);
			cqe = cqe_wait(&p.b.rxcq);
			memset(&attr, 0, sizeof(attr));
			sender = inlay_cqe_sender(cqe);
			wc.src_qp = sender.qpn;
			wc.slid = sender.slid;
			wc.sl = sender.sl;
			wc.dlid_path_bits = sender.path_bits;
			wc.wc_flags = sender.has_grh ? IBV_WC_GRH : 0;
			assert_int_equal(!!wc.wc_flags, path.is_global);
			if (!path.is_global) {
				assert_int_equal(wc.sl, 3);
				assert_int_equal(wc.slid, dev.port.lid);
			}
			must(ibv_init_ah_from_wc(dev.ctx, 1, &wc, (struct ibv_grh *)(void *)p.b.buf, &attr));
			arrived(&p.a, &p.b, SEND, sizeof(n), 0, 0);
			to = av_of(&attr, wc.src_qp, QKEY);
			post_recv(&p.a, 0, 512);
			struct ibv_sge sge = {raddr_of(&p.b, INLAY_GRH), sizeof(n), p.b.mr->lkey};
			must(wr_post(&p.b.sq, MLX5_OPCODE_SEND, wr_to(wr_sge(&sge, 1), &to), INLAY_SIGNALED | INLAY_RING));
			sent(&p.b);
			arrived(&p.b, &p.a, SEND, sizeof(n), 0, 0);
			assert_memory_equal(p.a.buf + INLAY_GRH, &n, sizeof(n));
		}
	}
	if (softdev_present())
		assert_int_equal(gids, dev.port.link_layer == IBV_LINK_LAYER_ETHERNET ? 4 : 1);
	assert_true(gids > 0);
	pair_free(&p);
}

/* What UC and UD cannot send stops the send queue only: the rest is flushed; back in RTS the ring goes on where it is */
TEST(stopped)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_UC, IBV_QPT_UD};
	uint32_t t, round, i, behind;

	for (t = 0; t < 2; t++) {
		struct opt opt = opt_of(types[t], 1 << 19);
		struct ibv_qp_init_attr init;
		struct ibv_qp_attr attr;
		struct pair p;

		opt.qp_access = IBV_ACCESS_REMOTE_WRITE;
		pair_make(&p, &opt);
		to = av_to(&p.b);
		for (round = 0; round < 20; round++) {
			const uint32_t lens[] = {30, 40};
			struct ibv_sge bad = sge_of(&p.a, 0, 64);

			bad.lkey ^= 0x55aa00;
			must(post(&p.a, &p.b, SEND, 0, 0, &bad, 1, rnd_below(2) ? INLAY_SIGNALED : 0));
			behind = rnd_below(9);
			for (i = 0; i < behind; i++)
				must(inlay_post(&p.a.sq, MLX5_OPCODE_NOP, NULL, rnd_below(2) ? INLAY_SIGNALED : 0));
			inlay_sq_ring(&p.a.sq);
			for (i = 0; i <= behind; i++) {
				const struct mlx5_cqe64 *cqe = cqe_wait(&p.a.cq);

				assert_int_equal(inlay_cqe_status(cqe), i ? IBV_WC_WR_FLUSH_ERR : IBV_WC_LOC_PROT_ERR);
				assert_true(0 < inlay_sq_release(&p.a.sq, cqe));
				inlay_cq_advance(&p.a.cq, 1);
			}
			assert_int_equal(inlay_sq_pending(&p.a.sq), 0);
			must(ibv_query_qp(p.a.qp, &attr, IBV_QP_STATE, &init));
			assert_int_equal(attr.qp_state, IBV_QPS_SQE);
			stopped_nop(&p.a);
			memset(&attr, 0, sizeof(attr));
			attr.qp_state = IBV_QPS_RTS;
			attr.cur_qp_state = IBV_QPS_SQE;
			must(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE));
			one(&p, round % 2 ? SEND : SEND_IMM, 2, lens, INLAY_SIGNALED);
		}
		pair_free(&p);
	}
}

/* WQEs of 1 to 4 WQEBBs, signaled and rung now and then; receives posted anew by their address. Indices pass 2^16 */
TEST(many)
{
	enum { COUNT = 70000, WINDOW = 256, SLOT = 2048 };
	uint32_t posted = 0, got = 0, run = 0, i;
	struct opt opt = usual;
	double end = now() + DEADLINE;
	struct pair p;

	opt.cap.max_send_sge = 14;
	opt.cap.max_recv_wr = WINDOW;
	opt.cap.max_recv_sge = 2;
	opt.cap.max_inline_data = 200;
	opt.cqe = 1023;
	pair_make(&p, &opt);
	assert_int_equal(inlay_rq_room(&p.b.rq), WINDOW);
	inlay_rq_prepare(&p.b.rq, SLOT, p.b.mr->lkey);
	for (i = 0; i < WINDOW; i++)
		post_recv(&p.b, (size_t)i * SLOT, SLOT);
	while (got < COUNT) {
		const struct mlx5_cqe64 *cqe;

		while (posted < COUNT && posted - got < WINDOW) {
			uint32_t len = posted * 2654435761u >> 16 & (posted % 8 ? 0xff : SLOT - 1), pieces = 1 + rnd_below(14), at = 0;
			uint8_t *from = p.a.buf + posted % WINDOW * SLOT;
			struct ibv_sge sge[14];
			uint32_t flags = run > 30 || rnd_below(8) == 0 || posted + 1 == COUNT ? INLAY_SIGNALED : 0;
			int ret;

			fill(from, len, posted);
			for (i = 0; i < pieces; i++) {
				uint32_t part = i + 1 == pieces ? len - at : rnd_below(len - at + 1) / 3;

				sge[i] = sge_of(&p.a, (size_t)(from - p.a.buf) + at, part);
				at += part;
			}
			ret = inlay_post_send(&p.a.sq, sge, pieces, flags | (len <= 200 && rnd_below(2) ? INLAY_INLINE : 0));
			assert_true(ret == 0 || ret == -EAGAIN);
			if (ret)
				break;
			run = flags ? 0 : run + 1;
			posted++;
			if (rnd_below(3) == 0)
				inlay_sq_ring(&p.a.sq);
		}
		inlay_sq_ring(&p.a.sq);
		step();
		for (; (cqe = inlay_cq_peek(&p.a.cq)); end = now() + DEADLINE)
			sent(&p.a);
		for (; (cqe = inlay_cq_peek(&p.b.rxcq)); got++) {
			assert_int_equal(inlay_cqe_wqe_counter(cqe), got & 0xffff);
			i = inlay_cqe_byte_count(cqe);
			if (differs(p.b.buf + got % WINDOW * SLOT, i, got) != i || i != (got * 2654435761u >> 16 & (got % 8 ? 0xff : SLOT - 1)))
				fail_msg("message %u of %u bytes came wrong", got, i);
			inlay_rq_recycle(&p.b.rq, raddr_of(&p.b, got % WINDOW * SLOT));
			inlay_rq_ring(&p.b.rq);
			inlay_cq_advance(&p.b.rxcq, 1);
		}
		if (now() > end)
			fail_msg("%u posted, %u received, and no more", posted, got);
	}
	while (inlay_sq_pending(&p.a.sq))
		sent(&p.a);
	assert_true(p.a.sq.pi > 65536 && p.b.rq.pi > 65536);
	pair_free(&p);
}

int main(void)
{
	return run_all(dev_open, dev_close) || again_with("SOFTDEV_LINK", "ib") || again_trapped();
}
