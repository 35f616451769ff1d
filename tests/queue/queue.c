/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * queue.c: queue.h on a device that works by itself: every operation moves the right bytes and completes as it should, rings of every
 * size, credit, laps of the completion ring, events. What needs no device is in rings.c, what needs a device stepped by hand in errors.c
 * and uar.c.
 */
#include "rig.h"
#include <endian.h>

#define NUMBER(n) (0x1000 + (n)) /* an offset in a buffer, off the page's beginning */

/* A good completion of the WQE at that index */
static void sent_as(struct end *e, uint8_t opcode, uint32_t index)
{
	const struct mlx5_cqe64 *cqe = cqe_wait(&e->cq);

	assert_int_equal(inlay_cqe_send_opcode(cqe), opcode);
	assert_int_equal(inlay_cqe_wqe_counter(cqe), index & 0xffff);
	assert_true(inlay_cqe_is_send(cqe));
	sent(e);
}

/* ---- every operation ---- */

enum op { SEND, SEND_IMM, SEND_INV, WRITE, WRITE_IMM, READ, FETCH_ADD, CMP_SWAP, NOP, OPS };

static const struct {
	uint8_t opcode, cqe;
	bool remote;
} ops[OPS] = {
	{MLX5_OPCODE_SEND, MLX5_CQE_RESP_SEND, false},
	{MLX5_OPCODE_SEND_IMM, MLX5_CQE_RESP_SEND_IMM, false},
	{MLX5_OPCODE_SEND_INVAL, MLX5_CQE_RESP_SEND_INV, false},
	{MLX5_OPCODE_RDMA_WRITE, 0, true},
	{MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_CQE_RESP_WR_IMM, true},
	{MLX5_OPCODE_RDMA_READ, 0, true},
	{MLX5_OPCODE_ATOMIC_FA, 0, true},
	{MLX5_OPCODE_ATOMIC_CS, 0, true},
	{MLX5_OPCODE_NOP, 0, false},
};

/* A memory window on b's first bytes, bound to its QP: the key that a SEND may invalidate */
struct window {
	struct ibv_mr *mr;
	struct ibv_mw *mw;
};

static void window_open(struct end *e, struct window *w)
{
	const uint32_t index = e->sq.pi;
	struct ibv_mw_bind_info bind;

	w->mr = ibv_reg_mr(dev.pd, e->buf, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	w->mw = ibv_alloc_mw(dev.pd, IBV_MW_TYPE_2);
	assert_non_null(w->mr);
	assert_non_null(w->mw);
	memset(&bind, 0, sizeof(bind));
	bind.mr = w->mr;
	bind.addr = (uintptr_t)e->buf;
	bind.length = 64;
	bind.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
	must(inlay_post_bind_mw(&e->sq, w->mw, ibv_inc_rkey(w->mw->rkey), &bind, INLAY_SIGNALED));
	w->mw->rkey = ibv_inc_rkey(w->mw->rkey);
	inlay_sq_ring(&e->sq);
	sent_as(e, MLX5_OPCODE_UMR, index);
}

/* The MR can go only because nothing is bound to it any more */
static void window_close(struct window *w)
{
	must(ibv_dereg_mr(w->mr));
	must(ibv_dealloc_mw(w->mw));
}

/*
 * One message of num pieces with lens[] bytes from a's buffer (READ: into it), to (READ: from) 0x40000 in b's. The
 * bytes on both sides are checked, and that nothing around the target was touched.
 */
static void one(struct pair *p, enum op op, uint32_t num, const uint32_t *lens, uint32_t flags)
{
	struct end *a = &p->a, *b = &p->b;
	uint32_t total = 0, i, at, k, index = a->sq.pi, recv = b->rq.pi, imm = (uint32_t)rnd(), tag = (uint32_t)rnd();
	struct window w = {NULL, NULL};
	const size_t where = 0x40000 + rnd_below(64);
	static uint8_t whole[2 << 20]; /* the message in one piece */
	struct ibv_sge sge[32];
	const struct mlx5_cqe64 *cqe;
	int ret = 0;

	for (i = 0, at = 0x1000; i < num; i++, at += lens[i - 1] + 1 + rnd_below(37)) {
		sge[i] = sge_of(a, at, lens[i]);
		total += lens[i];
	}
	memset(a->buf, 0x11, at);
	memset(b->buf + where - 64, 0x22, total + 128);
	if (op == READ) {
		fill(b->buf + where, total, tag);
	} else {
		fill(whole, total, tag);
		for (i = k = 0; i < num; k += lens[i++])
			memcpy(a->buf + (sge[i].addr - (uintptr_t)a->buf), whole + k, lens[i]);
	}
	if (op == SEND || op == SEND_IMM || op == SEND_INV || op == WRITE_IMM)
		post_recv(b, where, op == WRITE_IMM ? 0 : total);
	switch (op) {
	case SEND:
		ret = inlay_post_send(&a->sq, sge, num, flags);
		break;
	case SEND_IMM:
		ret = inlay_post_send_imm(&a->sq, htobe32(imm), sge, num, flags);
		break;
	case SEND_INV:
		window_open(b, &w);
		imm = w.mw->rkey;
		ret = inlay_post_send_inv(&a->sq, imm, sge, num, flags);
		break;
	case WRITE:
		ret = inlay_post_write(&a->sq, raddr_of(b, where), b->mr->rkey, sge, num, flags);
		break;
	case WRITE_IMM:
		ret = inlay_post_write_imm(&a->sq, raddr_of(b, where), b->mr->rkey, htobe32(imm), sge, num, flags);
		break;
	case READ:
		ret = inlay_post_read(&a->sq, raddr_of(b, where), b->mr->rkey, sge, num, flags);
		break;
	default:
		fail();
	}
	must(ret);
	inlay_sq_ring(&a->sq);
	if (ops[op].cqe) {
		cqe = cqe_wait(rx_cq(b));
		if (op != SEND)
			assert_int_equal(inlay_cqe_imm_be(cqe), htobe32(imm));
		if (op == SEND_INV)
			assert_int_equal(inlay_cqe_invalidated_rkey(cqe), imm);
		if (op == SEND_INV)
			window_close(&w);
		assert_int_equal(!!(cqe->op_own & INLAY_CQE_SOLICITED), !!(flags & INLAY_SOLICITED));
		received(b, ops[op].cqe, total, recv);
	}
	cqe = cqe_wait(&a->cq);
	if (op == READ)
		assert_int_equal(inlay_cqe_byte_count(cqe), total);
	sent_as(a, ops[op].opcode, index);
	assert_int_equal(inlay_sq_pending(&a->sq), 0);
	/* The target, and that nothing beside it was touched */
	if (op == READ) {
		for (i = k = 0; i < num; k += lens[i++])
			assert_memory_equal(a->buf + (sge[i].addr - (uintptr_t)a->buf), b->buf + where + k, lens[i]);
		for (i = 0, at = 0x1000; i < num; i++) {
			uint32_t from = (uint32_t)(sge[i].addr - (uintptr_t)a->buf);

			assert_true(all_bytes(a->buf + at, from - at, 0x11));
			at = from + lens[i];
		}
		assert_true(all_bytes(b->buf + where - 64, 64, 0x22));
		assert_int_equal(differs(b->buf + where, total, tag), total);
	} else {
		assert_int_equal(differs(b->buf + where, total, tag), total);
		assert_true(all_bytes(b->buf + where - 64, 64, 0x22));
	}
	assert_true(all_bytes(b->buf + where + total, 64, 0x22));
}

static void lengths(const struct opt *opt)
{
	uint32_t lens[32], n, i, op, max_inline, laps;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct pair p;

	pair_make(&p, opt);
	must(ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init));
	max_inline = init.cap.max_inline_data;
	assert_true(max_inline >= opt->cap.max_inline_data);
	for (op = SEND; op <= READ; op++) {
		if (op == SEND_INV && p.b.sq.max_ds < 12)
			continue; /* no room for the WQE that binds a window */
		/* Every number of pieces, with and without empty ones */
		for (n = 0; n <= opt->cap.max_send_sge; n++)
			for (laps = 0; laps < 6; laps++) {
				for (i = 0; i < n; i++)
					lens[i] = laps == 5 ? 0 : laps > 2 && rnd_below(2) ? 0 : 1 + rnd_below(laps == 1 ? 3000 : 100);
				one(&p, (enum op)op, n, lens, INLAY_SIGNALED | (laps & 1 ? INLAY_SOLICITED : 0));
			}
		if (op == READ)
			break;
		/* Every inline length, in one piece and in several */
		for (n = 0; n <= max_inline; n += n < 130 ? 1 : 7) {
			lens[0] = n;
			one(&p, (enum op)op, 1, lens, INLAY_SIGNALED | INLAY_INLINE);
			lens[0] = rnd_below(n + 1);
			lens[1] = rnd_below(n + 1 - lens[0]);
			lens[2] = 0;
			lens[3] = n - lens[0] - lens[1];
			one(&p, (enum op)op, 4, lens, INLAY_SIGNALED | INLAY_INLINE);
		}
		lens[0] = max_inline;
		one(&p, (enum op)op, 1, lens, INLAY_SIGNALED | INLAY_INLINE);
	}
	/* What is too long is refused: the longest WQE is the QP's, whichever way it is filled */
	{
		uint32_t sge_ds = 3 + init.cap.max_send_sge, inl_ds = 3 + (max_inline + 4 + 15) / 16;
		uint32_t ds = sge_ds > inl_ds ? sge_ds : inl_ds;
		struct ibv_sge many[64];

		for (i = 0; i < 64; i++)
			many[i] = sge_of(&p.a, i, 1);
		assert_int_equal(inlay_post_write(&p.a.sq, 0, 0, many, ds - 1, 0), -EINVAL);
		assert_int_equal(inlay_post_send(&p.a.sq, many, ds, 0), -EINVAL);
		assert_int_equal(inlay_post_write_inline(&p.a.sq, 0, 0, p.a.buf, (ds - 2) * 16 - 3, 0), -EINVAL);
		assert_int_equal(inlay_post_send_inline(&p.a.sq, p.a.buf, (ds - 1) * 16 - 3, 0), -EINVAL);
		assert_int_equal(inlay_sq_pending(&p.a.sq), 0);
	}
	pair_free(&p);
}

static void transfers(void **state)
{
	struct opt opt = usual;

	(void)state;
	lengths(&opt);
	opt.one_cq = true;
	opt.cqe_size = 128;
	opt.cap.max_send_sge = 1;
	opt.cap.max_inline_data = 0;
	lengths(&opt);
	opt = usual;
	opt.cap.max_send_sge = 16;
	opt.cap.max_inline_data = 512;
	lengths(&opt);
}

static void inv(void **state)
{
	static const uint32_t lens[] = {64, 0, 3};
	struct pair p;
	uint32_t i;

	(void)state;
	pair_make(&p, &usual);
	for (i = 0; i < 16; i++)
		one(&p, SEND_INV, 1 + i % 3, lens, INLAY_SIGNALED | (i & 1 ? INLAY_INLINE : 0));
	pair_free(&p);
}

static void atomics(void **state)
{
	const size_t there = 0x40000, here = NUMBER(8);
	uint64_t value = 0x0123456789abcdef, add, old;
	struct ibv_sge sge;
	struct pair p;
	uint32_t i;

	(void)state;
	pair_make(&p, &usual);
	sge = sge_of(&p.a, here, 8);
	for (i = 0; i < 300; i++) {
		const struct mlx5_cqe64 *cqe;
		uint32_t index = p.a.sq.pi;
		bool match = rnd_below(2);

		memset(p.a.buf + here - 8, 0x11, 24);
		memset(p.b.buf + there - 8, 0x22, 24);
		memcpy(p.b.buf + there, &value, 8);
		add = rnd();
		if (i % 2) {
			must(inlay_post_fetch_add(&p.a.sq, raddr_of(&p.b, there), p.b.mr->rkey, add, &sge, INLAY_SIGNALED));
			inlay_sq_ring(&p.a.sq);
			cqe = cqe_wait(&p.a.cq);
			assert_int_equal(inlay_cqe_byte_count(cqe), 8);
			sent_as(&p.a, MLX5_OPCODE_ATOMIC_FA, index);
			memcpy(&old, p.a.buf + here, 8);
			assert_true(old == value);
			value += add;
		} else {
			must(inlay_post_cmp_swap(&p.a.sq, raddr_of(&p.b, there), p.b.mr->rkey, match ? value : ~value, add, &sge,
						 INLAY_SIGNALED));
			inlay_sq_ring(&p.a.sq);
			sent_as(&p.a, MLX5_OPCODE_ATOMIC_CS, index);
			memcpy(&old, p.a.buf + here, 8);
			assert_true(old == value);
			value = match ? add : value;
		}
		memcpy(&old, p.b.buf + there, 8);
		assert_true(old == value);
		assert_true(all_bytes(p.a.buf + here - 8, 8, 0x11) && all_bytes(p.a.buf + here + 8, 8, 0x11));
		assert_true(all_bytes(p.b.buf + there - 8, 8, 0x22) && all_bytes(p.b.buf + there + 8, 8, 0x22));
	}
	pair_free(&p);
}

static void nops(void **state)
{
	struct pair p;
	uint32_t i;

	(void)state;
	pair_make(&p, &usual);
	for (i = 0; i < 200; i++) {
		uint32_t index = p.a.sq.pi;

		must(inlay_post_nop(&p.a.sq, INLAY_SIGNALED | (i & 1 ? INLAY_INLINE : 0)));
		inlay_sq_ring(&p.a.sq);
		sent_as(&p.a, MLX5_OPCODE_NOP, index);
	}
	must(inlay_post_nop(&p.a.sq, 0));
	inlay_sq_ring(&p.a.sq);
	expect_nothing(&p.a.cq);
	pair_free(&p);
}

/* A message that is sent from where a read has just put its bytes: right only if the fence holds it back */
static void fences(void **state)
{
	static const uint32_t modes[] = {0, INLAY_FENCE_INITIATOR_SMALL, INLAY_FENCE, INLAY_FENCE_STRONG, INLAY_FENCE_SMALL_AND_FENCE};
	struct ibv_sge into, from;
	struct pair p;
	uint32_t i;

	(void)state;
	pair_make(&p, &usual);
	into = sge_of(&p.a, 0x1000, 0x8000);
	from = sge_of(&p.a, 0x1000 + 0x7000, 0x1000);
	for (i = 0; i < 100; i++) {
		uint32_t mode = modes[i % ARRAY(modes)], read = p.a.sq.pi, index;

		memset(p.a.buf + 0x1000, 0x11, 0x8000);
		memset(p.b.buf + 0x80000, 0x22, 0x1000);
		fill(p.b.buf + 0x40000, 0x8000, i);
		post_recv(&p.b, 0x80000, 0x1000);
		must(inlay_post_read(&p.a.sq, raddr_of(&p.b, 0x40000), p.b.mr->rkey, &into, 1, INLAY_SIGNALED));
		index = p.a.sq.pi;
		must(inlay_post_send(&p.a.sq, &from, 1, INLAY_SIGNALED | mode));
		inlay_sq_ring(&p.a.sq);
		received(&p.b, MLX5_CQE_RESP_SEND, 0x1000, i);
		sent_as(&p.a, MLX5_OPCODE_RDMA_READ, read);
		sent_as(&p.a, MLX5_OPCODE_SEND, index);
		assert_int_equal(differs(p.a.buf + 0x1000, 0x8000, i), 0x8000);
		if (mode && mode != INLAY_FENCE_INITIATOR_SMALL)
			assert_memory_equal(p.b.buf + 0x80000, p.a.buf + 0x8000, 0x1000);
	}
	pair_free(&p);
}

/* Messages of a thousand packets */
static void long_messages(void **state)
{
	struct opt opt = usual;
	uint32_t lens[4], op;
	struct pair p;

	(void)state;
	opt.bytes = 4 << 20;
	for (opt.mtu = IBV_MTU_256; opt.mtu <= IBV_MTU_4096; opt.mtu = (enum ibv_mtu)(opt.mtu + 2)) {
		pair_make(&p, &opt);
		for (op = SEND; op <= READ; op++) {
			if (op == SEND_INV)
				continue;
			lens[0] = 1 << 20;
			one(&p, (enum op)op, 1, lens, INLAY_SIGNALED);
			lens[0] = 1000001;
			lens[1] = 0;
			lens[2] = 1;
			lens[3] = 300000;
			one(&p, (enum op)op, 4, lens, INLAY_SIGNALED);
		}
		pair_free(&p);
	}
}

/* Small payloads that the device leaves in the CQE */
static void scatter(void **state)
{
	struct opt opt = usual;
	uint32_t n, at_cqe = 0;
	struct pair p;

	(void)state;
	opt.scatter = true;
	for (opt.cqe_size = 64; opt.cqe_size <= 128; opt.cqe_size += 64) {
		pair_make(&p, &opt);
		for (n = 0; n <= 100; n++) {
			const struct mlx5_cqe64 *cqe;
			const void *payload;

			memset(p.b.buf + 0x40000, 0x22, 128);
			post_recv(&p.b, 0x40000, 100);
			fill(p.a.buf, n, n);
			must(inlay_post_send_inline(&p.a.sq, p.a.buf, n, INLAY_SIGNALED));
			inlay_sq_ring(&p.a.sq);
			cqe = cqe_wait(&p.b.rxcq);
			assert_int_equal(inlay_cqe_byte_count(cqe), n);
			payload = inlay_cqe_payload(cqe, p.b.rxcq.stride);
			at_cqe += payload != NULL && n;
			assert_ptr_equal(inlay_cqe_data(cqe, p.b.rxcq.stride, p.b.buf + 0x40000), payload ? payload : p.b.buf + 0x40000);
			assert_int_equal(differs(payload ? payload : p.b.buf + 0x40000, n, n), n);
			received(&p.b, MLX5_CQE_RESP_SEND, n, n);
			sent(&p.a);
		}
		pair_free(&p);
	}
	if (softdev_present())
		assert_int_equal(at_cqe, 32 + 64);
}

/* Receives that are posted anew by their address alone, while others come and go; what comes is looked at only once its place is due */
static void recycled(void **state)
{
	uint32_t posted[4096], room, n, done = 0, flying = 0, i;
	struct opt opt = usual;
	struct pair p;

	(void)state;
	opt.cap.max_recv_sge = 2;
	opt.cap.max_recv_wr = 32;
	pair_make(&p, &opt);
	room = inlay_rq_room(&p.b.rq);
	inlay_rq_prepare(&p.b.rq, 64, p.b.mr->lkey);
	for (n = 0; n < room; n++)
		post_recv(&p.b, posted[n] = 64 * n, 64);
	for (i = 0; done < ARRAY(posted);) {
		uint8_t data[64];

		for (; flying < room && i < ARRAY(posted) && rnd_below(8); i++, flying++) {
			fill(data, sizeof(data), i);
			must(inlay_post_send_inline(&p.a.sq, data, sizeof(data), INLAY_SIGNALED | INLAY_RING));
			sent(&p.a);
		}
		for (; flying && rnd_below(8); flying--, done++) {
			const struct mlx5_cqe64 *cqe = cqe_wait(&p.b.rxcq);

			assert_int_equal(inlay_cqe_wqe_counter(cqe), done & 0xffff);
			assert_int_equal(inlay_cqe_byte_count(cqe), 64);
			assert_int_equal(differs(p.b.buf + posted[done], 64, done), 64);
			if (n < ARRAY(posted)) {
				posted[n] = 64 * (1024 + n * 37 % 4096);
				inlay_rq_recycle(&p.b.rq, raddr_of(&p.b, posted[n++]));
				inlay_rq_ring(&p.b.rq);
			} else {
				assert_int_equal(inlay_rq_release(&p.b.rq, cqe), 1);
			}
			inlay_cq_advance(&p.b.rxcq, 1);
		}
		room = inlay_rq_pending(&p.b.rq);
	}
	assert_int_equal(inlay_rq_pending(&p.b.rq), 0);
	pair_free(&p);
}

/* ---- credit ---- */

/* Runs of unsignaled WQEs: one CQE at their end brings all of their credit back */
static void unsignaled(void **state)
{
	struct pair p;
	uint32_t run, i, room, lap;

	(void)state;
	pair_make(&p, &usual);
	room = inlay_sq_room(&p.a.sq);
	assert_true(room >= 64);
	for (lap = 0; lap < 3; lap++)
		for (run = 1; run <= room; run++) {
			for (i = 0; i < run; i++) {
				uint64_t word = (uint64_t)run << 32 | i;

				must(inlay_post_write_inline(&p.a.sq, raddr_of(&p.b, 8 * i), p.b.mr->rkey, &word, 8,
							     i + 1 == run ? INLAY_SIGNALED : 0));
				if (rnd_below(4) == 0)
					inlay_sq_ring(&p.a.sq);
			}
			assert_int_equal(inlay_sq_pending(&p.a.sq), run);
			inlay_sq_ring(&p.a.sq);
			sent_as(&p.a, MLX5_OPCODE_RDMA_WRITE, p.a.sq.pi - 1);
			assert_int_equal(inlay_sq_room(&p.a.sq), room);
			for (i = 0; i < run; i++) {
				uint64_t word;

				memcpy(&word, p.b.buf + 8 * i, 8);
				assert_true(word == ((uint64_t)run << 32 | i));
			}
			assert_null(inlay_cq_peek(&p.a.cq));
		}
	pair_free(&p);
}

/* Nothing moves before the ring; what is refused with -EAGAIN leaves no trace on the wire */
static void full(void **state)
{
	struct opt opt = usual;
	uint32_t room, i, lap;
	struct pair p;
	uint32_t word;

	(void)state;
	opt.cqe = 2047; /* room for all of them */
	pair_make(&p, &opt);
	room = inlay_sq_room(&p.a.sq);
	assert_true(room <= 2048);
	for (lap = 1; lap <= 5; lap++) {
		for (i = 0; i < room; i++) {
			word = lap << 16 | i;
			must(inlay_post_write_inline(&p.a.sq, raddr_of(&p.b, 4 * i), p.b.mr->rkey, &word, 4, INLAY_SIGNALED));
		}
		word = 0xffffffff;
		for (i = 0; i < 3; i++)
			assert_int_equal(inlay_post_write_inline(&p.a.sq, raddr_of(&p.b, 0), p.b.mr->rkey, &word, 4, INLAY_SIGNALED),
				-EAGAIN);
		expect_nothing(&p.a.cq);
		for (i = 0; i < room; i++) {
			memcpy(&word, p.b.buf + 4 * i, 4);
			assert_int_equal(word, lap == 1 ? 0 : (lap - 1) << 16 | i);
		}
		inlay_sq_ring(&p.a.sq);
		for (i = 0; i < room; i++) {
			assert_int_equal(inlay_sq_room(&p.a.sq), i);
			sent(&p.a);
		}
		for (i = 0; i < room; i++) {
			memcpy(&word, p.b.buf + 4 * i, 4);
			assert_int_equal(word, lap << 16 | i);
		}
	}
	pair_free(&p);
}

/* Rings of all sizes that libmlx5 makes, three times round each: it takes three WQEBBs for a work request, so 8192 of them are the most */
static void ring_sizes(void **state)
{
	uint32_t wr, i, k, room = 0, max = (uint32_t)dev.attr.max_qp_wr < 8192 ? (uint32_t)dev.attr.max_qp_wr : 8192;
	struct opt opt = usual;
	struct pair p;

	(void)state;
	for (wr = 1; wr <= max; wr *= 2) {
		opt.cap.max_send_wr = wr;
		opt.cap.max_send_sge = 1;
		opt.cap.max_inline_data = 0;
		opt.cap.max_recv_wr = wr;
		pair_make(&p, &opt);
		room = inlay_sq_room(&p.a.sq);
		assert_true(room >= wr && room <= 32768);
		for (i = 0; i < 3 * room;) {
			uint32_t run = 1 + rnd_below(room);

			for (k = 0; k < run; k++, i++) {
				uint64_t word = (uint64_t)wr << 32 | i;

				must(inlay_post_write_inline(&p.a.sq, raddr_of(&p.b, 8 * (i % room)), p.b.mr->rkey, &word, 8,
							     k + 1 == run ? INLAY_SIGNALED : 0));
			}
			inlay_sq_ring(&p.a.sq);
			sent_as(&p.a, MLX5_OPCODE_RDMA_WRITE, i - 1);
			assert_int_equal(inlay_sq_room(&p.a.sq), room);
			for (k = 0; k < run; k++) {
				uint64_t word;

				memcpy(&word, p.b.buf + 8 * ((i - 1 - k) % room), 8);
				assert_true(word == ((uint64_t)wr << 32 | (i - 1 - k)));
			}
		}
		pair_free(&p);
	}
	if (max == 8192)
		assert_int_equal(room, 32768);
}

/* ---- a million messages ---- */

#define SRC (64u << 10)
#define SLOT 2048u
#define WINDOW 256u

struct message {
	uint32_t offset, len; /* in the pattern */
};

/* What message number i is: both ends can tell */
static struct message message(uint32_t i)
{
	uint64_t z = (i + 1) * 0x9e3779b97f4a7c15;
	struct message m;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z ^= z >> 27;
	m.offset = (uint32_t)(z % (SRC - SLOT));
	m.len = (uint32_t)(z >> 32) % (z >> 60 ? 250 : SLOT + 1);
	return m;
}

/*
 * Sends of random length from a random place of a pattern, in WQEs of 1 to 4 WQEBBs (inline, or up to 14 pieces), signaled now and then,
 * rung now and then. The receiver compares every byte with what that message must be. Send and receive indices pass 2^16 fifteen times,
 * in the checked program thrice.
 */
static void million(void **state)
{
	const uint32_t count = INLAY_CHECKED ? 200000 : 1000000;
	struct opt opt = usual;
	struct pair p;
	uint32_t posted = 0, got = 0, recvs = 0, unsignaled_run = 0, largest = 0, i;
	uint8_t *pattern;
	double end = now() + DEADLINE;

	(void)state;
	opt.cap.max_send_wr = 512;
	opt.cap.max_send_sge = 14;
	opt.cap.max_recv_wr = WINDOW;
	opt.cap.max_recv_sge = 1;
	opt.cap.max_inline_data = 200;
	opt.cqe = 1023;
	pair_make(&p, &opt);
	pattern = p.a.buf;
	fill(pattern, SRC, 4711);
	while (got < count) {
		const struct mlx5_cqe64 *cqes[32];
		uint32_t n, k;
		bool idle = true;

		/* Receives first, so that nothing waits for them */
		while (recvs < count && recvs - got < WINDOW) {
			struct ibv_sge sge = sge_of(&p.b, (size_t)(recvs % WINDOW) * SLOT, SLOT);

			must(inlay_post_recv(&p.b.rq, &sge, 1));
			recvs++;
			idle = false;
		}
		inlay_rq_ring(&p.b.rq);
		while (posted < recvs) {
			struct message m = message(posted);
			uint32_t flags = rnd_below(8) == 0 || unsignaled_run > 30 || posted + 1 == count ? INLAY_SIGNALED : 0;
			uint32_t before = p.a.sq.pi;
			int ret;

			if (m.len <= 200 && rnd_below(2)) {
				ret = inlay_post_send_inline(&p.a.sq, pattern + m.offset, m.len, flags);
			} else {
				uint32_t pieces = 1 + rnd_below(14), at = 0;
				struct ibv_sge sge[14];

				for (i = 0; i < pieces; i++) {
					uint32_t part = i + 1 == pieces ? m.len - at : rnd_below(m.len - at + 1) / 3;

					sge[i] = sge_of(&p.a, m.offset + at, part);
					at += part;
				}
				ret = inlay_post_send(&p.a.sq, sge, pieces, flags);
			}
			if (ret) {
				assert_int_equal(ret, -EAGAIN);
				break;
			}
			if (p.a.sq.pi - before > largest)
				largest = p.a.sq.pi - before;
			unsignaled_run = flags ? 0 : unsignaled_run + 1;
			posted++;
			idle = false;
			if (rnd_below(3) == 0)
				inlay_sq_ring(&p.a.sq);
		}
		inlay_sq_ring(&p.a.sq);
		n = inlay_cq_peek_many(&p.a.cq, cqes, ARRAY(cqes));
		for (k = 0; k < n; k++) {
			assert_int_equal(inlay_cqe_opcode(cqes[k]), MLX5_CQE_REQ);
			assert_true(0 < inlay_sq_release(&p.a.sq, cqes[k]));
		}
		if (n)
			inlay_cq_advance(&p.a.cq, n);
		idle &= !n;
		n = inlay_cq_peek_many(&p.b.rxcq, cqes, ARRAY(cqes));
		for (k = 0; k < n; k++, got++) {
			struct message m = message(got);

			assert_int_equal(inlay_cqe_opcode(cqes[k]), MLX5_CQE_RESP_SEND);
			assert_int_equal(inlay_cqe_wqe_counter(cqes[k]), got & 0xffff);
			assert_int_equal(inlay_cqe_byte_count(cqes[k]), m.len);
			if (memcmp(p.b.buf + (size_t)(got % WINDOW) * SLOT, pattern + m.offset, m.len))
				fail_msg("message %u of %u bytes came wrong", got, m.len);
			assert_true(0 < inlay_rq_release(&p.b.rq, cqes[k]));
		}
		if (n)
			inlay_cq_advance(&p.b.rxcq, n);
		idle &= !n;
		if (!idle) {
			end = now() + DEADLINE;
		} else {
			if (now() > end)
				fail_msg("%u posted, %u received, and no more", posted, got);
			step();
		}
	}
	assert_int_equal(largest, 4);
	while (inlay_sq_pending(&p.a.sq))
		sent(&p.a);
	assert_int_equal(p.b.rq.pi, count);
	assert_true(p.a.sq.pi > count);
	pair_free(&p);
}

/* ---- receiving ---- */

static void recv_limits(void **state)
{
	struct opt opt = usual;
	uint32_t sges, wr, room, i, k, lap;
	struct ibv_sge sge[40];
	struct pair p;

	(void)state;
	for (sges = 1; sges <= 16; sges *= 2)
		for (wr = 1; wr <= 64; wr *= 8) {
			struct ibv_qp_init_attr init;
			struct ibv_qp_attr attr;

			opt.cap.max_recv_sge = sges;
			opt.cap.max_recv_wr = wr;
			pair_make(&p, &opt);
			must(ibv_query_qp(p.b.qp, &attr, IBV_QP_CAP, &init));
			assert_true(init.cap.max_recv_sge >= sges);
			/* Pieces of 8 bytes with gaps of 8, an empty one in front */
			sge[0] = sge_of(&p.b, 0, 0);
			for (i = 1; i < 40; i++)
				sge[i] = sge_of(&p.b, 16 * i, 8);
			for (room = 0; inlay_post_recv(&p.b.rq, sge, sges) == 0; room++)
				assert_true(room < 1024);
			assert_true(room >= wr);
			assert_int_equal(inlay_post_recv(&p.b.rq, sge, 1), -EAGAIN);
			inlay_rq_ring(&p.b.rq);
			for (lap = 0; lap < 3; lap++)
				for (i = 0; i < room; i++) {
					uint32_t len = 8 * (sges - 1);

					memset(p.b.buf, 0x22, 1024);
					fill(p.a.buf, len, i + lap);
					k = p.b.rq.pi - room;
					sge[20] = sge_of(&p.a, 0, len);
					must(inlay_post_send(&p.a.sq, &sge[20], 1, INLAY_SIGNALED));
					inlay_sq_ring(&p.a.sq);
					assert_int_equal(inlay_post_recv(&p.b.rq, sge, sges), -EAGAIN);
					received(&p.b, MLX5_CQE_RESP_SEND, len, k);
					for (k = 1; k < sges; k++)
						assert_memory_equal(p.b.buf + 16 * k, p.a.buf + 8 * (k - 1), 8);
					sent(&p.a);
					sge[20] = sge_of(&p.b, 16 * 20, 8);
					assert_int_equal(inlay_post_recv(&p.b.rq, sge, 33), -EINVAL);
					if (p.b.rq.max_sge == 1)
						assert_int_equal(inlay_post_recv(&p.b.rq, sge, 2), -EINVAL);
					must(inlay_post_recv(&p.b.rq, sge, sges));
					inlay_rq_ring(&p.b.rq);
				}
			pair_free(&p);
		}
}

/* ---- completing ---- */

/* Many laps of small completion rings, freed one by one, in batches, quietly, and never told at all */
static void cq_laps(void **state)
{
	struct opt opt = usual;
	uint32_t how, i, k, run;
	struct pair p;

	(void)state;
	opt.cqe = 15;
	opt.cap.max_send_wr = 8;
	opt.cap.max_inline_data = 0;
	opt.cap.max_send_sge = 1;
	for (how = 0; how < 8; how++) {
		uint32_t size, posted = 0;

		opt.cqe_size = how & 1 ? 128 : 64;
		opt.ignore_overrun = how >= 6;
		pair_make(&p, &opt);
		size = p.a.cq.mask + 1;
		assert_true(size >= 16);
		assert_null(inlay_cq_peek(&p.a.cq));
		while (posted < 20 * size) {
			const struct mlx5_cqe64 *cqes[64];
			uint32_t n = 0;

			run = 1 + rnd_below(8);
			for (i = 0; i < run; i++) {
				uint32_t word = posted + i;

				must(inlay_post_write_inline(&p.a.sq, raddr_of(&p.b, 4 * i), p.b.mr->rkey, &word, 4, INLAY_SIGNALED));
			}
			inlay_sq_ring(&p.a.sq);
			if (how / 2 == 0) {
				for (i = 0; i < run; i++)
					sent_as(&p.a, MLX5_OPCODE_RDMA_WRITE, posted + i);
				assert_null(inlay_cq_peek(&p.a.cq));
			} else {
				double end = now() + DEADLINE;

				while (n < run && now() < end) {
					step();
					n = inlay_cq_peek_many(&p.a.cq, cqes, ARRAY(cqes));
				}
				assert_int_equal(n, run);
				for (k = 0; k < n; k++) {
					assert_int_equal(inlay_cqe_wqe_counter(cqes[k]), posted + k);
					assert_int_equal(inlay_cqe_opcode(cqes[k]), MLX5_CQE_REQ);
				}
				assert_true(0 < inlay_sq_release(&p.a.sq, cqes[n - 1]));
				if (how / 2 == 1) {
					inlay_cq_advance(&p.a.cq, n);
				} else {
					for (k = 0; k < n; k++)
						inlay_cq_advance_quiet(&p.a.cq, 1);
					if (how / 2 == 2)
						inlay_cq_update(&p.a.cq);
				}
			}
			posted += run;
			assert_int_equal(inlay_sq_pending(&p.a.sq), 0);
		}
		/* A device that has not been told for many laps, and was made not to mind */
		if (how / 2 == 3)
			assert_int_equal(*p.a.cq.dbrec, 0);
		pair_free(&p);
	}
}

/* `n` successful completions of QP `qpn` as the device's producer would write them */
static void inject(struct inlay_cq *cq, uint32_t qpn, uint32_t n)
{
	struct mlx5_cqe64 cqe;

	memset(&cqe, 0, sizeof(cqe));
	cqe.sop_drop_qpn = htobe32(qpn);
	cqe.op_own = MLX5_CQE_REQ << 4;
	assert_int_equal(softdev_inject_cqes(cq->cqn, &cqe, n, 1), n);
}

/*
 * A QP goes and leaves completions behind in a CQ that others use; they are cleaned out. When its number comes back nothing of the old one
 * is in sight. The software device takes numbers in turn, so that the next one is known, and its last owner's completions can be put
 * there.
 */
static void reuse(void **state)
{
	struct end old, other, peer;
	struct opt opt = usual;
	const struct mlx5_cqe64 *cqes[20];
	uint32_t qpn, i, round;
	struct inlay_sq sq;
	struct ibv_qp *qp;

	(void)state;
	opt.bytes = 4096;
	opt.cap.max_send_wr = opt.cap.max_recv_wr = 16;
	opt.cqe = 31;
	for (round = 0; round < 6; round++) {
		opt.cqe_size = round & 1 ? 128 : 64;
		ends_make(&old, &peer, &opt);
		end_make(&other, &opt);
		/* `other` sends to itself through the CQ that `old` completes into */
		must(ibv_destroy_qp(other.qp));
		other.qp = qp_make(&opt, old.scq, other.rcq);
		qp_init(other.qp, &opt);
		qp_connect(other.qp, other.qp->qp_num, &opt);
		end_take(&old, INLAY_UAR_DOORBELL);
		must(inlay_uar_from_qp(&other.uar, other.qp, NULL));
		must(inlay_sq_from_qp(&other.sq, other.qp, &other.uar, NULL, NULL));
		/* Some laps on, so that what is left behind goes over the ring's end */
		for (i = 0; i < 40 + 7 * round; i++) {
			must(inlay_post_nop(&old.sq, INLAY_SIGNALED));
			inlay_sq_ring(&old.sq);
			sent(&old);
		}
		qpn = old.qp->qp_num;
		for (i = 0; i < 10; i++) {
			must(inlay_post_nop(&old.sq, INLAY_SIGNALED));
			inlay_sq_ring(&old.sq);
			must(inlay_post_nop(&other.sq, INLAY_SIGNALED));
			inlay_sq_ring(&other.sq);
		}
		await(inlay_cq_peek_many(&old.cq, cqes, 20) == 20);
		inlay_sq_fini(&old.sq);
		must(ibv_destroy_qp(old.qp));
		old.qp = NULL;
		assert_int_equal(inlay_cq_clean(&old.cq, qpn, NULL, NULL), 10);
		assert_int_equal(inlay_cq_clean(&old.cq, qpn, NULL, NULL), 0);
		for (i = 0; i < 10; i++) {
			const struct mlx5_cqe64 *cqe = inlay_cq_peek(&old.cq);

			assert_non_null(cqe);
			assert_int_equal(inlay_cqe_qpn(cqe), other.qp->qp_num);
			assert_int_equal(inlay_cqe_wqe_counter(cqe), i);
			assert_true(0 < inlay_sq_release(&other.sq, cqe));
			inlay_cq_advance(&old.cq, 1);
		}
		assert_null(inlay_cq_peek(&old.cq));
		qp = qp_make(&opt, old.scq, old.rcq);
		qpn = qp->qp_num + 1;
		must(ibv_destroy_qp(qp));
		if (softdev_present()) {
			inject(&old.cq, qpn, 3);
			inject(&old.cq, other.qp->qp_num, 1);
			inject(&old.cq, qpn, 8);
			assert_int_equal(inlay_cq_clean(&old.cq, qpn, NULL, NULL), 11);
			assert_non_null(inlay_cq_peek(&old.cq));
			assert_int_equal(inlay_cqe_qpn(inlay_cq_peek(&old.cq)), other.qp->qp_num);
			inlay_cq_advance(&old.cq, 1);
		}
		qp = qp_make(&opt, old.scq, old.rcq);
		if (softdev_present())
			assert_int_equal(qp->qp_num, qpn);
		qp_init(qp, &opt);
		qp_connect(qp, qp->qp_num, &opt);
		must(inlay_uar_from_qp(&old.uar, qp, NULL));
		must(inlay_sq_from_qp(&sq, qp, &old.uar, NULL, NULL));
		assert_null(inlay_cq_peek(&old.cq));
		for (i = 0; i < 100; i++) {
			const struct mlx5_cqe64 *cqe;

			must(inlay_post_nop(&sq, INLAY_SIGNALED));
			inlay_sq_ring(&sq);
			cqe = cqe_wait(&old.cq);
			assert_int_equal(inlay_cqe_qpn(cqe), qp->qp_num);
			assert_int_equal(inlay_cqe_wqe_counter(cqe), i);
			assert_true(0 < inlay_sq_release(&sq, cqe));
			inlay_cq_advance(&old.cq, 1);
		}
		expect_nothing(&old.cq);
		must(ibv_destroy_qp(qp));
		must(ibv_destroy_qp(other.qp));
		other.qp = NULL;
		end_free(&old);
		end_free(&other);
		end_free(&peer);
	}
}

/* ---- events ---- */

/* Whether an event comes within that time; it is taken and acknowledged */
static bool event(struct ibv_comp_channel *ch, struct ibv_cq *cq, int ms)
{
	struct pollfd fd = {ch->fd, POLLIN, 0};
	struct ibv_cq *of;
	double end = now() + ms * 1e-3;
	void *ctx;

	while (poll(&fd, 1, stepped() ? 0 : ms) != 1) {
		if (now() > end)
			return false;
		step();
	}
	must(ibv_get_cq_event(ch, &of, &ctx));
	assert_ptr_equal(of, cq);
	ibv_ack_cq_events(of, 1);
	return true;
}

static void message_to(struct pair *p, uint32_t flags, uint32_t n)
{
	post_recv(&p->b, 0, 64);
	must(inlay_post_send_inline(&p->a.sq, "event", 5, INLAY_SIGNALED | flags));
	inlay_sq_ring(&p->a.sq);
	sent(&p->a);
	received(&p->b, MLX5_CQE_RESP_SEND, 5, n);
}

static void events(void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(dev.ctx);
	struct opt opt = usual;
	uint32_t n = 0, i;
	struct ibv_cq *cq;
	struct pair p;

	(void)state;
	assert_non_null(ch);
	opt.channel = ch;
	for (opt.cqe_size = 64; opt.cqe_size <= 128; opt.cqe_size += 64, n = 0) {
		pair_make(&p, &opt);
		cq = p.b.rcq;
		/* Not armed: no event */
		message_to(&p, INLAY_SOLICITED, n++);
		assert_false(event(ch, cq, 20));
		/* More arms than the two bits of the sequence number count */
		for (i = 0; i < 11; i++) {
			/* Any completion */
			must(inlay_cq_arm(&p.b.rxcq, 0));
			assert_false(event(ch, cq, 2));
			message_to(&p, 0, n++);
			assert_true(event(ch, cq, 1000 * DEADLINE));
			inlay_cq_event(&p.b.rxcq);
			/* One event per arming */
			message_to(&p, 0, n++);
			assert_false(event(ch, cq, 2));
			/* Only a solicited one */
			must(inlay_cq_arm(&p.b.rxcq, 1));
			message_to(&p, 0, n++);
			assert_false(event(ch, cq, 5));
			message_to(&p, INLAY_SOLICITED, n++);
			assert_true(event(ch, cq, 1000 * DEADLINE));
			inlay_cq_event(&p.b.rxcq);
			message_to(&p, INLAY_SOLICITED, n++);
			assert_false(event(ch, cq, 2));
		}
		/* Armed for solicited ones, then for any: the later arming counts */
		must(inlay_cq_arm(&p.b.rxcq, 1));
		must(inlay_cq_arm(&p.b.rxcq, 0));
		message_to(&p, 0, n++);
		assert_true(event(ch, cq, 1000 * DEADLINE));
		inlay_cq_event(&p.b.rxcq);
		pair_free(&p);
	}
	must(ibv_destroy_comp_channel(ch));
}

/* Sleeping as the manual says: arm, look once more, only then sleep. Nothing is missed, however arrivals and arming fall */
static void events_race(void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(dev.ctx);
	uint32_t got = 0, i;
	struct opt opt = usual;
	struct pair p;

	(void)state;
	assert_non_null(ch);
	opt.channel = ch;
	pair_make(&p, &opt);
	for (i = 0; i < 1500; i++) {
		uint32_t spin = rnd_below(3) ? rnd_below(3000) : rnd_below(60000);
		volatile uint32_t k;

		post_recv(&p.b, 0, 64);
		must(inlay_post_send_inline(&p.a.sq, "event", 5, INLAY_SIGNALED));
		inlay_sq_ring(&p.a.sq);
		for (k = 0; k < spin;)
			k = k + 1;
		while (got == i) {
			if (inlay_cq_peek(&p.b.rxcq)) {
				received(&p.b, MLX5_CQE_RESP_SEND, 5, got++);
				break;
			}
			must(inlay_cq_arm(&p.b.rxcq, 0));
			if (inlay_cq_peek(&p.b.rxcq))
				continue;
			assert_true(event(ch, p.b.rcq, 1000 * DEADLINE));
			inlay_cq_event(&p.b.rxcq);
		}
		sent(&p.a);
		/* An event of an arming that was not slept on may still come: it must not be counted twice */
		while (event(ch, p.b.rcq, 0))
			inlay_cq_event(&p.b.rxcq);
	}
	pair_free(&p);
	must(ibv_destroy_comp_channel(ch));
}

/* What inlay and libmlx5 leave in the records of twin CQs, through the same history */
static void events_twin(void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(dev.ctx);
	struct opt opt = usual;
	struct pair p, q;
	struct mlx5dv_obj obj;
	struct mlx5dv_cq dv;
	uint32_t i;

	(void)state;
	assert_non_null(ch);
	opt.channel = ch;
	pair_make(&p, &opt);
	/* The twin: taken over are the sender and its CQ only */
	ends_make(&q.a, &q.b, &opt);
	end_take(&q.a, INLAY_UAR_DOORBELL);
	memset(&obj, 0, sizeof(obj));
	memset(&dv, 0, sizeof(dv));
	obj.cq.in = q.b.rcq;
	obj.cq.out = &dv;
	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ));
	for (i = 0; i < 40; i++) {
		bool solicited = rnd_below(2);
		struct ibv_recv_wr wr, *bad;
		struct ibv_sge sge = sge_of(&q.b, 0, 64);
		struct ibv_wc wc;
		double end = now() + DEADLINE;
		int n;

		must(inlay_cq_arm(&p.b.rxcq, solicited));
		must(ibv_req_notify_cq(q.b.rcq, solicited));
		assert_int_equal(p.b.rxcq.dbrec[1], dv.dbrec[1]);
		assert_int_equal(p.b.rxcq.dbrec[0], dv.dbrec[0]);
		message_to(&p, INLAY_SOLICITED, i);
		memset(&wr, 0, sizeof(wr));
		wr.sg_list = &sge;
		wr.num_sge = 1;
		must(ibv_post_recv(q.b.qp, &wr, &bad));
		must(inlay_post_send_inline(&q.a.sq, "event", 5, INLAY_SIGNALED | INLAY_SOLICITED));
		inlay_sq_ring(&q.a.sq);
		sent(&q.a);
		do {
			step();
			n = ibv_poll_cq(q.b.rcq, 1, &wc);
		} while (!n && now() < end);
		assert_int_equal(n, 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		/* Both events, in whichever order */
		for (n = 0; n < 2; n++) {
			struct pollfd fd = {ch->fd, POLLIN, 0};
			struct ibv_cq *of;
			void *ctx;

			step();
			assert_int_equal(poll(&fd, 1, (int)(1000 * DEADLINE)), 1);
			must(ibv_get_cq_event(ch, &of, &ctx));
			ibv_ack_cq_events(of, 1);
			if (of == p.b.rcq)
				inlay_cq_event(&p.b.rxcq);
			else
				assert_ptr_equal(of, q.b.rcq);
		}
	}
	pair_free(&p);
	expect_nothing(&q.a.cq);
	end_free(&q.a);
	end_free(&q.b);
	must(ibv_destroy_comp_channel(ch));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(transfers),
		cmocka_unit_test(inv),
		cmocka_unit_test(atomics),
		cmocka_unit_test(nops),
		cmocka_unit_test(fences),
		cmocka_unit_test(long_messages),
		cmocka_unit_test(scatter),
		cmocka_unit_test(recycled),
		cmocka_unit_test(unsignaled),
		cmocka_unit_test(full),
		cmocka_unit_test(ring_sizes),
		cmocka_unit_test(million),
		cmocka_unit_test(recv_limits),
		cmocka_unit_test(cq_laps),
		cmocka_unit_test(reuse),
		cmocka_unit_test(events),
		cmocka_unit_test(events_race),
		cmocka_unit_test(events_twin),
	};

	return cmocka_run_group_tests_name("queue", tests, dev_open, dev_close);
}
