/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sync.c: WQEs by hand that wait for a CQ, for memory and for the clock, and that let other queues send. Their
 * layouts are held against DPDK's (mlx5_prm.h, mlx5_txpp.c, mlx5_tx.h), UCC's (tl_mlx5_wqe.c) and gpunetio's;
 * copies of local memory: tests/queue/oracle.c; what such waits and dumps do: tests/softdev/tests/umr.c.
 */
#include "rig.h"

/* A QP that is its own peer, with these flags; one CQ for both sides */
static void self_make(struct side *s, uint32_t flags, uint32_t bbs)
{
	const struct how how = {.one_cq = true, .bbs = bbs, .flags = flags};

	side_make(s, &how);
	side_connect(s, s);
}

/* The next completion of the send side; it is of this opcode, and good */
static void done(struct side *s, uint8_t opcode)
{
	const struct mlx5_cqe64 *cqe = cqe_wait(s->cq);

	if (inlay_cqe_is_error(cqe))
		inlay_cqe_print(stderr, cqe);
	assert_true(inlay_cqe_opcode(cqe) == MLX5_CQE_REQ && inlay_cqe_send_opcode(cqe) == opcode);
	assert_int_equal(inlay_cqe_qpn(cqe), s->qpn);
	assert_true(0 < inlay_sq_release(s->sq, cqe));
	inlay_cq_advance(s->cq, 1);
}

/* A WAIT for a CQ, or a SEND_EN of a QP */
static void post_queue(struct inlay_sq *sq, uint32_t opcode, uint32_t number, uint32_t index, uint32_t flags)
{
	struct inlay_cursor at;

	must(inlay_sq_begin(sq, 1, &at));
	assert_int_equal(inlay_sq_commit(sq, inlay_seg_queue(at, index, number), opcode, 0, flags, 0), 1);
}

/* ---- bytes ---- */

static uint32_t be32_at(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint64_t be64_at(const uint8_t *p)
{
	return (uint64_t)be32_at(p) << 32 | be32_at(p + 4);
}

/* Word by word what the sources above write */
devx_test(bytes)
{
	static uint8_t ring[64 * 64] __attribute__((aligned(4096))), reg[4096] __attribute__((aligned(4096)));
	struct ibv_sge a = {0x1122334455667788, 4096, 0xabcd}, b = {0x99aabbccddeeff00, 4096, 0xef01}, c = {0x7777777777777740, 64, 0x23};
	uint32_t record[2] = {0, 0}, i;
	struct inlay_cursor at;
	struct inlay_uar uar;
	struct inlay_sq sq;

	must(inlay_uar_init(&uar, reg, 256, INLAY_UAR_SERIAL));
	must(inlay_sq_init(&sq, ring, 64, record, 0xabcdef, 63, &uar));
	memset(ring, 0x5a, sizeof(ring));
	post_queue(&sq, INLAY_OPCODE_WAIT, 0x123456, 0xabcdef, INLAY_SIGNALED);
	post_queue(&sq, INLAY_OPCODE_SEND_EN, 0x654321, 0x2345, 0);
	must(inlay_sq_begin(&sq, 1, &at));
	at = inlay_seg_condition(at, INLAY_WAIT_EQUAL | INLAY_WAIT_INVERT, a.addr, a.lkey, 0x0102030405060708, 0xff00);
	inlay_sq_commit(&sq, at, INLAY_OPCODE_WAIT, INLAY_OPMOD_WAIT_DATA, INLAY_FENCE, 0);
	must(inlay_sq_begin(&sq, 1, &at));
	at = inlay_seg_condition(at, INLAY_WAIT_CYCLIC_SMALLER, 0, 0, 0x1234, UINT64_MAX);
	inlay_sq_commit(&sq, at, INLAY_OPCODE_WAIT, INLAY_OPMOD_WAIT_TIME, 0, 0);
	must(inlay_sq_begin(&sq, 1, &at));
	inlay_sq_commit(&sq, inlay_seg_data(at, a.addr, a.length, a.lkey), INLAY_OPCODE_DUMP, 0, 0, 0);
	must(inlay_post_memcpy(&sq, &b, &a, &c, INLAY_SIGNALED));
	for (i = 0; i < 6; i++) {
		static const uint32_t first[] = {0x0f, 0x17, 0x0100000f, 0x0200000f, 0x23, 0x0100002f}, ds[] = {2, 2, 3, 3, 2, 4};
		static const uint32_t flags[] = {8, 0, 2 << 5, 0, 0, 8};
		const uint8_t *wqe = ring + 64 * i;

		assert_true(be32_at(wqe) == (first[i] | i << 8) && be32_at(wqe + 4) == (0xabcdef00 | ds[i]));
		assert_true(be32_at(wqe + 8) == flags[i] && be32_at(wqe + 12) == 0);
		assert_true(all_bytes(wqe + 16 * ds[i], 64 - 16 * ds[i], 0x5a));
	}
	for (i = 0; i < 2; i++) {
		assert_true(be64_at(ring + 64 * i + 16) == 0);
		assert_int_equal(be32_at(ring + 64 * i + 24), i ? 0x2345 : 0xabcdef);
		assert_int_equal(be32_at(ring + 64 * i + 28), i ? 0x654321 : 0x123456);
	}
	assert_true(be32_at(ring + 128 + 16) == 0x11 && be32_at(ring + 128 + 20) == a.lkey);
	assert_true(be64_at(ring + 128 + 24) == a.addr && be64_at(ring + 128 + 32) == 0x0102030405060708);
	assert_true(be64_at(ring + 128 + 40) == 0xff00);
	INLAY_STATIC_ASSERT(INLAY_WAIT_ALWAYS == 0 && INLAY_WAIT_EQUAL == 1 && INLAY_WAIT_BIGGER == 2 && INLAY_WAIT_SMALLER == 3 &&
			    INLAY_WAIT_CYCLIC_BIGGER == 4 && INLAY_WAIT_CYCLIC_SMALLER == 5 && INLAY_WAIT_INVERT == 16, "DPDK's conditions");
	/* DPDK's wait on time: condition 5, no key, no address */
	assert_true(be64_at(ring + 192 + 16) == UINT64_C(5) << 32);
	assert_true(be64_at(ring + 192 + 24) == 0 && be64_at(ring + 192 + 32) == 0x1234 && be64_at(ring + 192 + 40) == ~UINT64_C(0));
	assert_true(be64_at(ring + 256 + 16) == (UINT64_C(4096) << 32 | a.lkey) && be64_at(ring + 256 + 24) == a.addr);
	assert_true(be64_at(ring + 320 + 16) == c.lkey && be64_at(ring + 320 + 24) == c.addr);
	assert_true(be64_at(ring + 320 + 32) == (UINT64_C(4096) << 32 | a.lkey) && be64_at(ring + 320 + 40) == a.addr);
	assert_true(be64_at(ring + 320 + 48) == (UINT64_C(4096) << 32 | b.lkey) && be64_at(ring + 320 + 56) == b.addr);
	inlay_sq_fini(&sq);
}

/* ---- queues that wait for each other ---- */

/* The chain of the manual: a message is answered by the device, as often as it was armed */
devx_test(chain)
{
	struct side master, asker, slave;
	const struct how how = {.flags = INLAY_DEVX_QP_CD_SLAVE};
	uint32_t i, n = 0, round;

	sides_make(&asker, &plain, &slave, &how);
	self_make(&master, INLAY_DEVX_QP_CD_MASTER, 0);
	for (round = 0; round < 8; round++) {
		uint32_t k = 1 + rnd_below(4);

		for (i = 0; i < k; i++) {
			struct ibv_sge there = piece(&slave, 64 * i, 64), back = piece(&asker, 1024 + 64 * i, 64);
			uint64_t answer = rnd();

			must(inlay_post_recv(slave.rq, &there, 1));
			must(inlay_post_recv(asker.rq, &back, 1));
			/* Rung for or not: it does not start */
			memcpy(asker.buf + 8 * i, &answer, 8);
			must(inlay_post_send_inline(slave.sq, &answer, 8, INLAY_SIGNALED));
			if (rnd_below(2))
				inlay_sq_ring(slave.sq);
			post_queue(master.sq, INLAY_OPCODE_WAIT, slave.rxcq->cqn, ++n, 0);
			post_queue(master.sq, INLAY_OPCODE_SEND_EN, slave.qpn, (uint16_t)inlay_sq_index(slave.sq), INLAY_SIGNALED);
		}
		inlay_rq_ring(slave.rq);
		inlay_rq_ring(asker.rq);
		inlay_sq_ring(master.sq);
		expect_nothing(master.cq);
		expect_nothing(slave.cq);
		for (i = 0; i < k; i++) {
			const struct mlx5_cqe64 *cqe;

			must(inlay_post_send_inline(asker.sq, "question", 8, INLAY_SIGNALED | INLAY_RING));
			/* Nobody looks at what has been received before the answer is there */
			cqe = cqe_wait(asker.rxcq);
			assert_int_equal(inlay_cqe_byte_count(cqe), 8);
			assert_memory_equal(asker.buf + 1024 + 64 * i, asker.buf + 8 * i, 8);
			assert_true(0 < inlay_rq_release(asker.rq, cqe));
			inlay_cq_advance(asker.rxcq, 1);
			assert_null(inlay_cq_peek(asker.rxcq));
			done(&asker, MLX5_OPCODE_SEND);
			done(&slave, MLX5_OPCODE_SEND);
			done(&master, INLAY_OPCODE_SEND_EN);
			cqe = cqe_wait(slave.rxcq);
			assert_memory_equal(slave.buf + 64 * i, "question", 8);
			assert_true(0 < inlay_rq_release(slave.rq, cqe));
			inlay_cq_advance(slave.rxcq, 1);
		}
		expect_nothing(master.cq);
	}
	side_free(&master);
	sides_free(&asker, &slave);
}

int main(void)
{
	return rig_here() && (run_all(rig_open, rig_close) || again_with("SOFTDEV_MANUAL", "1") || again_trapped());
}
