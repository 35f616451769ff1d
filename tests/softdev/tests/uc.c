/* SPDX-License-Identifier: BSD-3-Clause */
/* uc.c: unreliable connections: what arrives, what is lost without a word, what they do not have */
#include "rig.h"

static struct how how_uc(void)
{
	struct how how = usual;

	how.type = IBV_QPT_UC;
	how.qp_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	return how;
}

static const uint32_t sizes[] = { 1, 4, 31, 64, 65, 1024, 1025, 4096, 5000, 70000, HALF };

static void transfer(struct side s[2], bool write, bool imm, uint32_t len, unsigned flags)
{
	struct ibv_sge sg = sge(&s[0], 8, len);
	enum ibv_wr_opcode op = write ? imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE : imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
	struct ibv_send_wr wr = request(op, 7, &sg, 1, &s[1], 64);
	struct ibv_wc wc;
	double end = now() + PATIENCE;

	fill(s[0].buf, SIZE, len);
	memset(s[1].buf, 0xaa, SIZE);
	wr.imm_data = htobe32(0x11223344);
	wr.send_flags |= flags;
	if (!write || imm)
		recv_at(&s[1], 9, write ? HALF + 4096 : 64, write ? 16 : len + 1);
	post(&s[0], &wr);
	expect_op(s[0].scq, 7, write ? IBV_WC_RDMA_WRITE : IBV_WC_SEND);
	if (!write || imm) {
		wc = expect_op(s[1].rcq, 9, write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
		assert_int_equal(!!(wc.wc_flags & IBV_WC_WITH_IMM), imm);
		if (imm)
			assert_int_equal(be32toh(wc.imm_data), 0x11223344);
		assert_int_equal(wc.byte_len, len);
		assert_int_equal(wc.qp_num, s[1].qp->qp_num);
	} else {
		/* The sender's completion does not say that it has arrived */
		while (memcmp(s[1].buf + 64, s[0].buf + 8, len) && now() < end)
			usleep(20);
	}
	assert_memory_equal(s[1].buf + 64, s[0].buf + 8, len);
	assert_true(all_bytes(s[1].buf, 64, 0xaa) && all_bytes(s[1].buf + 64 + len, SIZE - 64 - len, 0xaa));
}

static void transfers(UNUSED void **state)
{
	struct how how = how_uc();

	how.cap.max_inline_data = 100;
	open_pair(s, &how);
	for (unsigned i = 0; i < ARRAY(sizes); i++)
		for (int kind = 0; kind < 4; kind++) {
			transfer(s, kind & 1, kind & 2, sizes[i], 0);
			if (sizes[i] <= 100)
				transfer(s, kind & 1, kind & 2, sizes[i], IBV_SEND_INLINE);
		}
	close_pair(s);
}

static void in_order(UNUSED void **state)
{
	struct how how = how_uc();
	struct ibv_send_wr wr[8];
	struct ibv_sge sg[8];

	how.cap.max_send_wr = 8;
	how.cap.max_recv_wr = 8;
	how.cqe = 15;
	open_pair(s, &how);
	fill(s[0].buf, SIZE, 21);
	for (unsigned round = 0; round < 300; round++) {
		for (unsigned i = 0; i < 8; i++) {
			recv_at(&s[1], round * 8 + i, 8192 * i, 8192);
			sg[i] = sge(&s[0], 64 * i + round, 1 + (round * 37 + i * 1001) % 8000);
			wr[i] = request(IBV_WR_SEND, i, &sg[i], 1, &s[1], 0);
			wr[i].send_flags = i == 7 ? IBV_SEND_SIGNALED : 0;
			wr[i].next = i < 7 ? &wr[i + 1] : NULL;
		}
		post(&s[0], wr);
		expect_op(s[0].scq, 7, IBV_WC_SEND);
		for (unsigned i = 0; i < 8; i++) {
			assert_int_equal(expect_op(s[1].rcq, round * 8 + i, IBV_WC_RECV).byte_len, sg[i].length);
			assert_memory_equal(s[1].buf + 8192 * i, s[0].buf + 64 * i + round, sg[i].length);
		}
	}
	close_pair(s);
}

/* ibv_wr_* */
static void wr_interface(UNUSED void **state)
{
	struct how how = how_uc();
	struct ibv_qp_ex *qx;

	how.ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	open_pair(s, &how);
	qx = ibv_qp_to_qp_ex(s[0].qp);
	fill(s[0].buf, SIZE, 31);
	memset(s[1].buf, 0xaa, SIZE);
	for (int i = 0; i < 3; i++)
		recv_at(&s[1], 20 + i, HALF + 4096 * i, 4096);
	ibv_wr_start(qx);
	qx->wr_flags = IBV_SEND_SIGNALED;
	qx->wr_id = 1;
	ibv_wr_rdma_write(qx, s[1].mr->rkey, (uintptr_t)s[1].buf);
	ibv_wr_set_sge(qx, s[0].mr->lkey, (uintptr_t)s[0].buf, 3000);
	qx->wr_id = 2;
	ibv_wr_rdma_write_imm(qx, s[1].mr->rkey, (uintptr_t)s[1].buf + 4096, htobe32(2));
	ibv_wr_set_inline_data(qx, s[0].buf + 1, 40);
	qx->wr_id = 3;
	ibv_wr_send(qx);
	ibv_wr_set_sge(qx, s[0].mr->lkey, (uintptr_t)s[0].buf + 100, 1500);
	qx->wr_id = 4;
	ibv_wr_send_imm(qx, htobe32(4));
	ibv_wr_set_inline_data(qx, s[0].buf + 200, 50);
	must(ibv_wr_complete(qx));
	expect_op(s[0].scq, 1, IBV_WC_RDMA_WRITE);
	expect_op(s[0].scq, 2, IBV_WC_RDMA_WRITE);
	expect_op(s[0].scq, 3, IBV_WC_SEND);
	expect_op(s[0].scq, 4, IBV_WC_SEND);
	wc = expect_op(s[1].rcq, 20, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(be32toh(wc.imm_data), 2);
	wc = expect_op(s[1].rcq, 21, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, 1500);
	wc = expect_op(s[1].rcq, 22, IBV_WC_RECV);
	assert_int_equal(be32toh(wc.imm_data), 4);
	assert_memory_equal(s[1].buf, s[0].buf, 3000);
	assert_memory_equal(s[1].buf + 4096, s[0].buf + 1, 40);
	assert_memory_equal(s[1].buf + HALF + 4096, s[0].buf + 100, 1500);
	assert_memory_equal(s[1].buf + HALF + 8192, s[0].buf + 200, 50);
	close_pair(s);
	/* Operations that they do not have */
	{
		static const uint64_t not[] = { IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
						IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP };
		struct ibv_cq *cq = ibv_create_cq(ctx, 10, NULL, NULL, 0);
		struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .cap = usual.cap, .qp_type = IBV_QPT_UC, .pd = pd,
						    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS };

		for (unsigned i = 0; i < ARRAY(not); i++) {
			init.send_ops_flags = IBV_QP_EX_WITH_SEND | not[i];
			assert_null(ibv_create_qp_ex(ctx, &init));
			assert_int_equal(errno, EOPNOTSUPP);
		}
		must(ibv_destroy_cq(cq));
	}
}

/* Without a receive the message is lost, whole, and the next one is not */
static void no_receive(UNUSED void **state)
{
	struct how how = how_uc();

	open_pair(s, &how);
	fill(s[0].buf, SIZE, 3);
	for (int i = 0; i < 12; i++) {
		uint32_t len = i & 1 ? 5000 : 100;

		memset(s[1].buf, 0xaa, 65536);
		sg = sge(&s[0], 16 * i, len);
		if (i % 4 == 3)
			recv_at(&s[1], i, 4096, len);
		wr = request(i % 3 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM, i, &sg, 1, &s[1], 0);
		post_done(&s[0], &wr);
		if (i % 4 == 3) {
			assert_int_equal(expect_op(s[1].rcq, i, IBV_WC_RECV).byte_len, len);
			assert_memory_equal(s[1].buf + 4096, s[0].buf + 16 * i, len);
		} else {
			expect_nothing(s[1].rcq);
			assert_true(all_bytes(s[1].buf, 65536, 0xaa));
		}
	}
	/* A write needs no receive; with an immediate it does */
	transfer(s, true, false, 5000, 0);
	wr = request(IBV_WR_RDMA_WRITE_WITH_IMM, 50, &sg, 1, &s[1], 0);
	post_done(&s[0], &wr);
	expect_nothing(s[1].rcq);
	transfer(s, true, true, 5000, 0);
	transfer(s, false, true, 5000, 0);
	assert_int_equal(state_of(s[0].qp), IBV_QPS_RTS);
	assert_int_equal(state_of(s[1].qp), IBV_QPS_RTS);
	close_pair(s);
}

/*
 * More than the receive has room for: it is lost, nothing is written after the room, and the sender
 * does not know
 */
static void receive_too_short(UNUSED void **state)
{
	static const uint32_t sizes[] = { 100, 5000 };

	for (unsigned i = 0; i < ARRAY(sizes); i++) {
		struct how how = how_uc();

		open_pair(s, &how);
		memset(s[1].buf, 0xaa, 65536);
		recv_at(&s[1], 1, 0, sizes[i] - 1);
		sg = sge(&s[0], 0, sizes[i]);
		wr = request(IBV_WR_SEND, 2, &sg, 1, &s[1], 0);
		post_done(&s[0], &wr);
		usleep(2000);
		assert_true(ibv_poll_cq(s[1].rcq, 1, &wc) == 0 || wc.status != IBV_WC_SUCCESS);
		assert_true(all_bytes(s[1].buf + sizes[i] - 1, 65536 - sizes[i], 0xaa));
		assert_int_equal(state_of(s[0].qp), IBV_QPS_RTS);
		close_pair(s);
	}
}

/* No QP there, or none that is ready: the sender does not know */
static void nobody_there(UNUSED void **state)
{
	struct how how = how_uc();

	open_pair(s, &how);
	must(move(s[1].qp, IBV_QPS_RESET, 0, &how));
	memset(s[1].buf, 0xaa, 4096);
	sg = sge(&s[0], 0, 64);
	for (int i = 0; i < 3; i++) {
		wr = request(i ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, i, &sg, 1, &s[1], 0);
		post(&s[0], &wr);
		expect_op(s[0].scq, i, i ? IBV_WC_RDMA_WRITE : IBV_WC_SEND);
	}
	assert_true(all_bytes(s[1].buf, 4096, 0xaa));
	/* Its peer comes up again: what is sent now arrives */
	bring_up(s[1].qp, s[0].qp->qp_num, &how);
	must(move(s[0].qp, IBV_QPS_RESET, 0, &how));
	bring_up(s[0].qp, s[1].qp->qp_num, &how);
	transfer(s, false, false, 5000, 0);
	close_pair(s);
}

/* An access that the responder forbids changes nothing there, and is no error here */
static void forbidden(UNUSED void **state)
{
	for (int what = 0; what < 4; what++) {
		struct how how = how_uc();

		if (what == 0)
			how.access = IBV_ACCESS_LOCAL_WRITE;
		if (what == 1)
			how.qp_access = 0;
		open_pair(s, &how);
		memset(s[1].buf, 0xaa, SIZE);
		sg = sge(&s[0], 0, 64);
		wr = request(IBV_WR_RDMA_WRITE, 1, &sg, 1, &s[1], what == 2 ? SIZE - 8 : 0);
		wr.wr.rdma.rkey ^= what == 3 ? 0x40 : 0;
		post_done(&s[0], &wr);
		usleep(2000);
		assert_true(all_bytes(s[1].buf, SIZE, 0xaa));
		assert_int_equal(state_of(s[0].qp), IBV_QPS_RTS);
		close_pair(s);
	}
}

/*
 * READs and atomics need answers, of which there are none: such a WQE is refused; the send queue
 * stops, the receive queue does not
 */
static void no_answers(UNUSED void **state)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP };

	for (unsigned i = 0; i < ARRAY(ops); i++) {
		struct how how = how_uc();
		struct ibv_send_wr wr, good;
		struct ibv_qp_attr a;

		open_pair(s, &how);
		memset(s[0].buf, 0x33, 4096);
		memset(s[1].buf, 0xaa, 4096);
		wr = first_to_second(ops[i], 1, 0, 8, 0);
		good = request(IBV_WR_RDMA_WRITE, 2, &sg, 1, &s[1], 512);
		wr.next = &good;
		post(&s[0], &wr);
		expect(s[0].scq, 1, IBV_WC_LOC_QP_OP_ERR);
		expect(s[0].scq, 2, IBV_WC_WR_FLUSH_ERR);
		assert_true(all_bytes(s[0].buf, 4096, 0x33) && all_bytes(s[1].buf, 4096, 0xaa));
		assert_int_equal(state_of(s[0].qp), IBV_QPS_SQE);
		/* It still receives, and goes on when it is told to */
		recv_at(&s[0], 3, 2048, 64);
		sg = sge(&s[1], 0, 64);
		wr = request(IBV_WR_SEND, 4, &sg, 1, &s[0], 0);
		post_done(&s[1], &wr);
		expect_op(s[0].rcq, 3, IBV_WC_RECV);
		memset(&a, 0, sizeof(a));
		a.qp_state = IBV_QPS_RTS;
		must(ibv_modify_qp(s[0].qp, &a, IBV_QP_STATE));
		transfer(s, false, true, 5000, 0);
		close_pair(s);
	}
}

static void local_errors(UNUSED void **state)
{
	for (int what = 0; what < 2; what++) {
		struct how how = how_uc();

		open_pair(s, &how);
		memset(s[1].buf, 0xaa, SIZE);
		recv_at(&s[1], 1, 0, 4096);
		sg = sge(&s[0], what ? SIZE - 7 : 0, 8);
		sg.lkey ^= what ? 0 : 0x80;
		wr = request(IBV_WR_SEND, 2, &sg, 1, &s[1], 0);
		post(&s[0], &wr);
		expect(s[0].scq, 2, IBV_WC_LOC_PROT_ERR);
		expect_nothing(s[1].rcq);
		assert_true(all_bytes(s[1].buf, SIZE, 0xaa));
		assert_int_equal(state_of(s[1].qp), IBV_QPS_RTS);
		close_pair(s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(transfers), TEST(in_order), TEST(wr_interface), TEST(no_receive), TEST(receive_too_short),
		TEST(nobody_there), TEST(forbidden), TEST(no_answers), TEST(local_errors),
	};

	return cmocka_run_group_tests(tests, setup, teardown) + again_with("SOFTDEV_LINK", "ib");
}
