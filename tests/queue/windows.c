/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * windows.c: memory windows of both types: bound at every place of the ring, on RC and UC, used by the peer, closed in every way, and
 * refused from then on. What a device refuses to bind or to reach: softdev/tests/memory.c.
 */
#include "rig.h"

#define BASE 0x2000u
#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static struct pair p;
static struct ibv_mw *mw;

/* Rings, and all of the WQEBBs that were posted complete */
static void done(struct end *e, uint32_t wqebbs)
{
	assert_int_equal(inlay_sq_pending(&e->sq), wqebbs);
	inlay_sq_ring(&e->sq);
	sent(e);
	assert_int_equal(inlay_sq_pending(&e->sq), 0);
}

/* b binds and tells a the key, in one doorbell: the fence keeps the message behind the window */
static void bind(uint32_t len, uint32_t access)
{
	struct ibv_mw_bind_info info = {p.b.mr, raddr_of(&p.b, BASE), len, access};
	const uint32_t at = p.b.sq.pi, key = ibv_inc_rkey(mw->rkey);

	post_recv(&p.a, 0, 64);
	must(inlay_post_bind_mw(&p.b.sq, mw, key, &info, INLAY_SIGNALED));
	assert_int_equal(p.b.sq.pi - at, 3);
	must(inlay_post_send_inline(&p.b.sq, &key, sizeof(key), INLAY_SIGNALED | INLAY_RING | INLAY_FENCE_INITIATOR_SMALL));
	received(&p.a, MLX5_CQE_RESP_SEND, sizeof(key), p.a.rq.pi - 1);
	assert_memory_equal(p.a.buf, &key, sizeof(key));
	assert_int_equal(inlay_cqe_send_opcode(cqe_wait(&p.b.cq)), MLX5_OPCODE_UMR);
	assert_int_equal(inlay_cqe_wqe_counter(inlay_cq_peek(&p.b.cq)), at & 0xffff);
	sent(&p.b);
	sent(&p.b);
	mw->rkey = key;
}

/* Written through the window and, if it can be, read; not a byte beside it */
static void reaches(uint64_t start, uint32_t len, bool reads)
{
	struct ibv_sge sge = sge_of(&p.a, 0x4000, len);

	memset(p.b.buf + BASE - 16, 0x22, len + 32);
	fill(p.a.buf + 0x4000, len, len);
	must(inlay_post_write(&p.a.sq, start, mw->rkey, &sge, 1, INLAY_SIGNALED));
	done(&p.a, 1);
	await(differs(p.b.buf + BASE, len, len) == len); /* UC: sent is not yet there */
	assert_true(all_bytes(p.b.buf + BASE - 16, 16, 0x22));
	assert_true(all_bytes(p.b.buf + BASE + len, 16, 0x22));
	if (!reads)
		return;
	memset(p.a.buf + 0x4000, 0, len);
	must(inlay_post_read(&p.a.sq, start, mw->rkey, &sge, 1, INLAY_SIGNALED));
	done(&p.a, 1);
	assert_int_equal(differs(p.a.buf + 0x4000, len, len), len);
}

enum { REBOUND, UNBOUND, INVALIDATED, BY_PEER, UC, WAYS };

static void closed(enum ibv_mw_type type, int way)
{
	const uint32_t len = 8 + rnd_below(4000), zero = type == IBV_MW_TYPE_2 && rnd_below(2) ? IBV_ACCESS_ZERO_BASED : 0;
	struct opt opt = opt_of(way == UC ? IBV_QPT_UC : IBV_QPT_RC, 1 << 16);
	struct ibv_mw_bind_info none = {};
	struct ibv_sge sge;
	uint32_t old, i, turn = rnd_below(600);
	uint64_t start;

	/* b's memory is the peer's through windows only. WQEs of the usual kind are short here, a bind is not */
	opt.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
	opt.qp_access = way == UC ? IBV_ACCESS_REMOTE_WRITE : REMOTE;
	opt.cap.max_send_sge = 1;
	opt.cap.max_inline_data = 8;
	pair_make(&p, &opt);
	mw = made(ibv_alloc_mw(dev.pd, type));
	start = zero ? 0 : raddr_of(&p.b, BASE);
	/* So that binds begin everywhere in the ring, and go over its end */
	for (i = 0; i < turn; i++) {
		must(inlay_post(&p.b.sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED));
		done(&p.b, 1);
	}
	bind(len, (way == UC ? IBV_ACCESS_REMOTE_WRITE : REMOTE) | zero);
	reaches(start, len, way != UC);
	old = mw->rkey;
	switch (way) {
	case REBOUND:
		/* One of type 2 must be free to be bound anew */
		if (type == IBV_MW_TYPE_2) {
			must(inlay_post_local_inv(&p.b.sq, old, INLAY_SIGNALED));
			done(&p.b, 2);
		}
		bind(len, REMOTE | zero);
		reaches(start, len, true);
		break;
	case UNBOUND:
		must(inlay_post_bind_mw(&p.b.sq, mw, ibv_inc_rkey(old), &none, INLAY_SIGNALED));
		done(&p.b, 2);
		break;
	case INVALIDATED: must(inlay_post_local_inv(&p.b.sq, old, INLAY_SIGNALED)); done(&p.b, 2); break;
	case BY_PEER:
		post_recv(&p.b, 0, 64);
		must(wr_post(&p.a.sq, MLX5_OPCODE_SEND_INVAL, wr_at(wr_sge(NULL, 0), 0, old), INLAY_SIGNALED));
		done(&p.a, 1);
		assert_int_equal(inlay_cqe_invalidated_rkey(cqe_wait(&p.b.rxcq)), old);
		received(&p.b, MLX5_CQE_RESP_SEND_INV, 0, 0);
	}
	if (way != UC) {
		memset(p.b.buf + BASE, 0x77, 8192);
		sge = sge_of(&p.a, 0x4000, 8);
		must(inlay_post_write(&p.a.sq, start, old, &sge, 1, INLAY_SIGNALED | INLAY_RING));
		assert_int_equal(inlay_cqe_status(cqe_wait(&p.a.cq)), IBV_WC_REM_ACCESS_ERR);
		inlay_cq_advance(&p.a.cq, 1);
		assert_true(all_bytes(p.b.buf + BASE, 8192, 0x77));
	}
	must(ibv_dealloc_mw(mw));
	end_free(&p.a);
	end_free(&p.b);
}

TEST(types)
{
	for (uint32_t i = 0; i < 8; i++)
		closed(IBV_MW_TYPE_1, i % 2);
	for (uint32_t i = 0; i < 4 * WAYS; i++)
		closed(IBV_MW_TYPE_2, (int)(i % WAYS));
}

int main(void)
{
	return run_all(dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
