/* SPDX-License-Identifier: BSD-3-Clause */
/* tm_errors.c: tag matching as libmlx5 drives it, when something goes wrong; and step by step */
#include "rig_tm.h"

/*
 * A message that its tagged buffer cannot hold, and one whose buffer's key is not good. libmlx5:
 * the error is charged to the SRQ's WQE that the CQE's counter would name; the tag is lost
 */
static void bad_tagged_buffer(UNUSED void **state)
{
	static const uint32_t sizes[] = { 65, 1000, 5000 };

	for (unsigned i = 0; i < 2 * ARRAY(sizes) + 1; i++) {
		bool key = i >= ARRAY(sizes), rndv = i == 2 * ARRAY(sizes);
		uint32_t len = rndv ? 4096 : sizes[i % ARRAY(sizes)];
		struct ibv_tmh h = tmh_of(IBV_TMH_EAGER, 5, 1);
		struct ibv_ops_wr wr;
		struct match t;
		struct done d;

		open_tm(&t, 16, 8, 64);
		sg = sge(&t.rx, 0, key ? 8192 : 64);
		sg.lkey ^= key ? 0x5500 : 0;
		wr = add_wr(1, &sg, 5, ALL, IBV_OPS_SIGNALED);
		post_ops(&t, &wr);
		expect_done(t.cq, 1, IBV_WC_TM_ADD, 0);
		untagged(&t, 42, HALF, 64);
		if (rndv) {
			struct request q = rndv_of(&t, 5, 0, len, 0);

			memcpy(t.tx.buf + HALF + HALF / 2, &q, TMH + RVH);
			send_raw(&t.tx, NULL, 0, HALF + HALF / 2, TMH + RVH);
		} else {
			send_raw(&t.tx, &h, TMH, 0, len);
		}
		failed_send(&t, key ? IBV_WC_REM_OP_ERR : IBV_WC_REM_INV_REQ_ERR);
		/* What has come of it before the key was looked at is nothing */
		d = next_done(t.cq);
		assert_int_equal(d.status, key ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_LEN_ERR);
		assert_int_equal(d.wr_id, 42);
		assert_int_equal(state_of(t.rx.qp), IBV_QPS_ERR);
		close_failed(&t);
	}
}

/* The same of an SRQ buffer, and that an unexpected message which fails is not counted */
static void bad_untagged_buffer(UNUSED void **state)
{
	for (int key = 0; key < 2; key++) {
		struct ibv_recv_wr wr = { .wr_id = 3, .sg_list = &sg, .num_sge = 1 }, *bad;
		struct ibv_tmh h = tmh_of(IBV_TMH_EAGER, 5, 1);
		struct match t;
		struct done d;

		open_tm(&t, 16, 8, 64);
		sg = sge(&t.rx, 0, key ? 8192 : 64);
		sg.lkey ^= key ? 0x5500 : 0;
		must(ibv_post_srq_recv(t.srq, &wr, &bad));
		send_raw(&t.tx, &h, TMH, 0, 64);
		failed_send(&t, key ? IBV_WC_REM_OP_ERR : IBV_WC_REM_INV_REQ_ERR);
		d = next_done(t.cq);
		assert_int_equal(d.status, key ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_LEN_ERR);
		assert_int_equal(d.wr_id, 3);
		add(&t, 4, 0, 64, 5, ALL);
		close_failed(&t);
	}
	/* In the middle, when it had been counted */
	{
		struct ibv_sge sg[2];
		struct ibv_recv_wr wr = { .wr_id = 3, .sg_list = sg, .num_sge = 2 }, *bad;
		struct ibv_tmh h = tmh_of(IBV_TMH_EAGER, 5, 1);
		struct match t;

		open_tm(&t, 16, 8, 64);
		sg[0] = sge(&t.rx, 0, 300000);
		sg[1] = sge(&t.rx, HALF, 300000);
		sg[1].lkey ^= 0x5500;
		must(ibv_post_srq_recv(t.srq, &wr, &bad));
		send_raw(&t.tx, &h, TMH, 0, 500000);
		failed_send(&t, IBV_WC_REM_OP_ERR);
		assert_int_equal(next_done(t.cq).status, IBV_WC_LOC_PROT_ERR);
		add(&t, 4, 0, 64, 5, ALL);
		close_failed(&t);
	}
}

/*
 * The device reads what it may not, or gets no answer: the match stands and the data do not come.
 * libmlx5: this is IBV_WC_RECV
 */
static void cancelled(UNUSED void **state)
{
	for (int how = 0; how < 4; how++) {
		struct request q;
		struct match t;
		struct done d;

		open_tm(&t, 16, 8, 64);
		q = rndv_of(&t, 5, 0, 4096, 0);
		if (how == 0)
			q.r.rkey ^= htobe32(0x5500);
		/* In SQD the QP receives, but does not ask */
		if (how > 1)
			must(move(t.rx.qp, IBV_QPS_SQD, 0, &t.how));
		add(&t, 1, 0, 8192, 5, ALL);
		if (how == 1) {
			/* No right to read here */
			struct ibv_qp_attr a = attr_for(IBV_QPS_RTS, 0, &t.how);

			a.qp_access_flags = IBV_ACCESS_LOCAL_WRITE;
			must(ibv_modify_qp(t.tx.qp, &a, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS));
		}
		offer(&t, &q, 0);
		d = expect_done(t.cq, 1001, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);
		assert_int_equal(d.tm.tag, 5);
		if (how > 1) {
			nothing_done(t.cq);
			must(move(t.rx.qp, how == 2 ? IBV_QPS_ERR : IBV_QPS_RESET, 0, &t.how));
		}
		d = next_done(t.cq);
		assert_int_equal(d.status, IBV_WC_TM_RNDV_INCOMPLETE);
		assert_int_equal(d.wr_id, 1001);
		assert_int_equal(d.opcode, IBV_WC_RECV);
		assert_int_equal(d.flags, MATCHED);
		assert_int_equal(state_of(t.rx.qp), how == 3 ? IBV_QPS_RESET : IBV_QPS_ERR);
		/* The list is as good as before */
		assert_int_equal(del(&t, 3, add(&t, 2, 0, 64, 5, ALL), 0).status, IBV_WC_SUCCESS);
		close_failed(&t);
	}
}

/*
 * The peer fails in the middle of a message, and connects again: what it began does not come, and
 * what it sends then is another message
 */
static void given_up(UNUSED void **state)
{
	for (int late = 0; late < 2; late++) {
		struct ibv_tmh h = tmh_of(IBV_TMH_EAGER, 5, 1);
		struct match t;
		struct done d;

		open_tm(&t, 16, 8, 64);
		if (late)
			untagged(&t, 42, 0, SIZE);
		else
			add(&t, 1, 0, SIZE, 5, ALL);
		add(&t, 2, 0, 100, 6, ALL);
		/* A page of the message goes, which its key does not tell */
		munmap(t.tx.buf + HALF, 4096);
		send_raw(&t.tx, &h, TMH, 0, HALF + 10);
		failed_send(&t, IBV_WC_LOC_PROT_ERR);
		if (!late)
			expect_done(t.cq, 1001, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);
		nothing_done(t.cq);
		must(move(t.tx.qp, IBV_QPS_RESET, 0, &t.how));
		bring_up(t.tx.qp, t.rx.qp->qp_num, &t.how);
		eager(&t.tx, 6, 1, 5, 100);
		if (!late) {
			d = next_done(t.cq);
			assert_int_equal(d.status, IBV_WC_TM_RNDV_INCOMPLETE);
			assert_int_equal(d.wr_id, 1001);
		}
		expect_done(t.cq, 1002, IBV_WC_TM_RECV, MATCHED);
		/* The SRQ's buffer was not used, and nothing counted */
		if (late) {
			eager(&t.tx, 5, 1, 5, 100);
			expect_done(t.cq, 42, IBV_WC_TM_RECV, 0);
			t.unexpected++;
		}
		add(&t, 3, 0, 64, 5, ALL);
		close_tm(&t);
	}
}

/* An overrun CQ takes along the QPs of its SRQ, though their own CQs are well */
static void overrun(UNUSED void **state)
{
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_SYNC, .flags = IBV_OPS_SIGNALED };
	struct ibv_async_event ev;
	bool seen = false;
	struct match t;

	need_lists();
	memset(&t, 0, sizeof(t));
	t.how = usual;
	t.cq = a_cq(15, 64);
	t.srq = try_srq(ibv_cq_ex_to_cq(t.cq), 16, 8, 64);
	assert_non_null(t.srq);
	open_side(&t.tx, &t.how);
	t.how.srq = t.srq;
	open_side(&t.rx, &t.how);
	bring_up(t.rx.qp, t.tx.qp->qp_num, &t.how);
	for (int i = 0; i < 40; i++)
		post_ops(&t, &wr);
	for (double end = now() + PATIENCE; state_of(t.rx.qp) != IBV_QPS_ERR && now() < end;)
		go();
	assert_int_equal(state_of(t.rx.qp), IBV_QPS_ERR);
	while (readable(ctx->async_fd, 50)) {
		must(ibv_get_async_event(ctx, &ev));
		seen |= ev.event_type == IBV_EVENT_CQ_ERR && ev.element.cq == ibv_cq_ex_to_cq(t.cq);
		ibv_ack_async_event(&ev);
	}
	assert_true(seen);
	close_side(&t.tx);
	close_side(&t.rx);
	must(ibv_destroy_srq(t.srq));
	must(ibv_destroy_cq(ibv_cq_ex_to_cq(t.cq)));
}

/*
 * libmlx5 gives the place of a tag away when it is removed without a completion, even if data are
 * still on their way to it
 */
static void removed_too_late(UNUSED void **state)
{
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_DEL };
	struct ibv_qp_attr a;
	struct request q;
	struct match t;
	struct done d;

	open_tm(&t, 16, 8, 64);
	must(move(t.rx.qp, IBV_QPS_SQD, 0, &t.how));
	fin_room(&t, 9);
	q = rndv_of(&t, 5, 0, 4096, 0);
	wr.tm.handle = add(&t, 1, 0, 8192, 5, ALL);
	offer(&t, &q, 0);
	expect_done(t.cq, 1001, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);
	post_ops(&t, &wr);
	nothing_done(t.cq);
	a = attr_for(IBV_QPS_RTS, 0, &t.how);
	must(ibv_modify_qp(t.rx.qp, &a, IBV_QP_STATE));
	d = next_done(t.cq);
	assert_int_equal(d.status, IBV_WC_GENERAL_ERR);
	fin_comes(&t, 9, &q);
	assert_memory_equal(t.rx.buf, t.tx.buf, 4096);
	close_tm(&t);
}

/* ---- faults: what the device asks of the peer is sent as any message ---- */

static void faults(UNUSED void **state)
{
	/* Message 1 is the offer, 2 the READ, 3 the FIN; a retry is one more */
	static const struct {
		const char *spec;
		bool spoilt, fails, no_fin;
	} cases[] = { { "drop@2", false, false, false }, { "drop@3", false, false, false }, { "drop@2-4", false, false, false },
		      { "dup@*", false, false, false }, { "delay=2ms@2-3", false, false, false }, { "corrupt@2", true, false, false },
		      { "syndrome=0x13@2", false, true, true }, { "syndrome=0x13@3", false, false, true } };

	if (!softdev_present()) {
		print_message("skipped: faults are the software device's\n");
		skip();
	}
	for (unsigned i = 0; i < ARRAY(cases); i++) {
		struct request q;
		struct match t;
		struct done d;

		open_tm(&t, 16, 8, 64);
		q = rndv_of(&t, 5, 0, 4096, 0);
		fin_room(&t, 9);
		add(&t, 1, 0, 8192, 5, ALL);
		must(softdev_fault(cases[i].spec));
		offer(&t, &q, 0);
		expect_done(t.cq, 1001, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);
		d = next_done(t.cq);
		assert_int_equal(d.wr_id, 1001);
		assert_int_equal(d.status, cases[i].fails ? IBV_WC_TM_RNDV_INCOMPLETE : IBV_WC_SUCCESS);
		if (!cases[i].fails)
			assert_int_equal(!!memcmp(t.rx.buf, t.tx.buf, 4096), cases[i].spoilt);
		if (!cases[i].no_fin)
			fin_comes(&t, 9, &q);
		else
			go();
		must(softdev_fault(NULL));
		if (cases[i].no_fin) {
			for (double end = now() + PATIENCE; state_of(t.rx.qp) != IBV_QPS_ERR && now() < end;)
				go();
			assert_int_equal(state_of(t.rx.qp), IBV_QPS_ERR);
			assert_int_equal(ibv_poll_cq(t.tx.rcq, 1, &(struct ibv_wc){ .wr_id = 0 }), 0);
		}
		close_tm(&t);
	}
}

/* ---- the stepped device: what it does by itself is no WQE, and has its turn like one ---- */

static void steps(UNUSED void **state)
{
	struct ibv_ops_wr wr;
	struct request q;
	struct match t;

	if (!softdev_present() || softdev_execute(0, 0) == -EPERM) {
		print_message("skipped: this device is not stepped\n");
		skip();
	}
	open_tm(&t, 16, 8, 64);
	sg = sge(&t.rx, 0, 8192);
	wr = add_wr(1, &sg, 5, ALL, IBV_OPS_SIGNALED);
	post_ops(&t, &wr);
	q = rndv_of(&t, 5, 0, 4096, 0);
	fin_room(&t, 9);
	memcpy(t.tx.buf + HALF + HALF / 2, &q, TMH + RVH);
	send_raw(&t.tx, NULL, 0, HALF + HALF / 2, TMH + RVH);
	/* No tag yet, and no buffer: the message waits, once more where it has its turn before the operation */
	assert_int_equal(softdev_execute(t.tx.qp->qp_num, 1), 0);
	assert_int_equal(softdev_run(), 1);
	assert_int_equal(softdev_run(), 1);
	assert_memory_equal(t.rx.buf, t.tx.buf, 4096);
	expect_done(t.cq, 1, IBV_WC_TM_ADD, 0);
	sent(&t.tx);
	match_and_data(&t, 1001, &q);
	fin_comes(&t, 9, &q);
	/* The match and what follows, one by one */
	add(&t, 2, 0, 8192, 5, ALL);
	memset(t.rx.buf, 0, 4096);
	fin_room(&t, 10);
	send_raw(&t.tx, NULL, 0, HALF + HALF / 2, TMH + RVH);
	by_hand = true;
	assert_int_equal(softdev_execute(t.tx.qp->qp_num, 1), 1);
	nothing_done(t.cq);
	assert_int_equal(softdev_complete(0, 2), 2);
	sent(&t.tx);
	expect_done(t.cq, 1002, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);
	assert_true(all_bytes(t.rx.buf, 4096, 0));
	assert_int_equal(softdev_execute(t.tx.qp->qp_num, 5), 0);
	assert_int_equal(softdev_complete(0, 5), 0);
	assert_int_equal(softdev_execute(t.rx.qp->qp_num, 1), 0);
	assert_memory_equal(t.rx.buf, t.tx.buf, 4096);
	nothing_done(t.cq);
	assert_int_equal(softdev_complete(0, 5), 2);
	expect_done(t.cq, 1002, IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID);
	fin_comes(&t, 10, &q);
	by_hand = false;
	close_tm(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(bad_tagged_buffer), TEST(bad_untagged_buffer), TEST(cancelled), TEST(given_up), TEST(overrun),
		TEST(removed_too_late), TEST(faults), TEST(steps),
	};

	return RUN(tests);
}
