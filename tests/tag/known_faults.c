/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * known_faults.c: what is known to go wrong in libmlx5 and UCX, one test each. That libmlx5 compares
 * 16 bits with 32 is in list.c, counters.
 */
#include "rig.h"

/* libmlx5: posting operations takes the SRQ's lock, then the CQ's; polling takes them the other way round. Here there is none: operations
   may be posted between a peek and its advance, on a ring that looks full too */
static void no_lock_inversion(void **state)
{
	const struct mlx5_cqe64 *cqe;
	struct inlay_tag_wc wc;
	uint32_t i, rounds = 0;

	(void)state;
	usual_list(4, 8);
	for (i = 0; i < 8; i++)
		must(inlay_tag_list_sync(&t.list, i, IBV_OPS_SIGNALED));
	inlay_tag_list_ring(&t.list);
	while (rounds < 100) {
		cqe = cqe_wait(&t.cq.cq);
		if (rounds < 90)
			assert_int_equal(inlay_tag_list_sync(&t.list, 0, IBV_OPS_SIGNALED), -EAGAIN);
		assert_int_equal(inlay_tag_list_complete(&t.list, cqe, 64, &wc), 1);
		if (rounds < 92)
			must(inlay_tag_list_sync(&t.list, 0, IBV_OPS_SIGNALED));
		inlay_tag_list_ring(&t.list);
		inlay_cq_advance(&t.cq.cq, 1);
		rounds++;
	}
	tm_close(&t);
}

/* libmlx5 frees the entry of an unsignaled DEL at once: the completion of a message that was faster finds another receive there */
static void unsignaled_del_keeps_its_entry(void **state)
{
	struct inlay_tag_wc wc;
	uint32_t a, b;

	(void)state;
	usual_list(1, 16);
	a = add(&t, 1, 0, 5, EXACT);
	eager(&t, 5, 1, 0, 100);
	must(inlay_tag_list_del(&t.list, 2, a, 0));
	inlay_tag_list_ring(&t.list);
	/* Of two entries one is the dummy, the other is not yet free */
	assert_int_equal(try_add(&t, 3, 0, 5, EXACT, 0, &b), -EAGAIN);
	wc = expect(&t, IBV_WC_TM_RECV, IBV_WC_SUCCESS, 1001, BOTH);
	assert_int_equal(wc.handle, a);
	assert_int_equal(try_add(&t, 3, 0, 5, EXACT, 0, &b), -EAGAIN);
	assert_int_equal(take(&t, &wc), 0);
	b = add(&t, 3, 0, 5, EXACT);
	assert_int_not_equal(a, b);
	matched(&t, 5, 1003);
	whole(&t.list);
	tm_close(&t);
}

/* libmlx5 takes the error of a tagged buffer for one of an SRQ entry: it frees entry 0, and the tag is lost */
static void error_of_a_tagged_buffer(void **state)
{
	struct inlay_tag_wc wc;
	struct ibv_sge sge;
	uint32_t room;

	(void)state;
	usual_list(4, 16);
	entries(&t, 3);
	room = inlay_srq_room(&t.xrq.srq);
	add(&t, 1, 0, 4, EXACT);
	sge = piece(&t.rx, 0, 50);
	must(inlay_tag_list_add(&t.list, 1002, 5, EXACT, &sge, IBV_OPS_SIGNALED, NULL));
	inlay_tag_list_ring(&t.list);
	expect(&t, IBV_WC_TM_ADD, IBV_WC_SUCCESS, 1002, 0);
	post_eager(5, 51);
	failed_sender(IBV_WC_REM_INV_REQ_ERR);
	wc = expect(&t, IBV_WC_TM_RECV, IBV_WC_LOC_LEN_ERR, 1002, IBV_WC_TM_MATCH);
	assert_int_equal(wc.handle & 0xffff, 1);
	assert_int_equal(inlay_srq_room(&t.xrq.srq), room);
	assert_int_equal(t.list.room, 3);
	whole(&t.list);
	tm_close(&t);
}

/* libmlx5 has no case for it and says IBV_WC_RECV with success's flags */
static void cancelled_is_no_receive(void **state)
{
	struct inlay_rvh rvh;
	struct inlay_tag_wc wc;

	(void)state;
	usual_list(4, 16);
	add(&t, 1, 0, 6, EXACT);
	matched(&t, 6, 1001);
	add(&t, 2, 0, 6, EXACT);
	/* A key that is none: the device's READ fails, and with it the connection */
	rvh = rvh_of(0, 1000);
	rvh.rkey ^= 0x55aa00;
	must(inlay_tag_send_rndv(t.tx.sq, 0x99, 6, &rvh, NULL, 0, INLAY_SIGNALED));
	inlay_sq_ring(t.tx.sq);
	expect(&t, IBV_WC_TM_RECV, IBV_WC_SUCCESS, 1002, IBV_WC_TM_MATCH);
	wc = expect(&t, IBV_WC_TM_RECV, IBV_WC_TM_RNDV_INCOMPLETE, 1002, BOTH);
	assert_int_equal(wc.app_op, INLAY_TAG_CANCELED);
	assert_int_equal(wc.tag, 6);
	assert_int_equal(wc.app_ctx, 0x99);
	assert_int_equal(wc.byte_len, 0);
	assert_int_equal(t.list.room, 4);
	whole(&t.list);
	t.dead = true;
	tm_close(&t);
}

/* libmlx5 rings for a batch of which the last does not fit, with that one half built */
static void no_half_built_wqe(void **state)
{
	struct ibv_ops_wr wr[4], *bad;
	uint8_t ring[16 * 64];
	struct ibv_sge sge;
	uint32_t i;

	(void)state;
	usual_list(2, 16);
	sge = piece(&t.rx, 0, 100);
	for (i = 0; i < 4; i++) {
		wr[i] = op_wr(i, IBV_WR_TAG_ADD, IBV_OPS_SIGNALED, i < 3 ? &wr[i + 1] : NULL);
		wr[i].tm.add.sg_list = &sge;
		wr[i].tm.add.num_sge = 1;
	}
	memcpy(ring, t.cmd.sq.buf, sizeof(ring));
	assert_int_equal(inlay_tag_list_post_ops(&t.list, wr, &bad), -EAGAIN);
	assert_ptr_equal(bad, &wr[2]);
	assert_int_equal(t.cmd.sq.pi, 2);
	assert_int_equal(inlay_sq_rung(&t.cmd.sq), 2);
	assert_ptr_equal(t.cmd.sq.last, t.cmd.sq.buf + 64);
	assert_memory_equal(t.cmd.sq.buf + 128, ring + 128, sizeof(ring) - 128);
	expect(&t, IBV_WC_TM_ADD, IBV_WC_SUCCESS, 0, 0);
	expect(&t, IBV_WC_TM_ADD, IBV_WC_SUCCESS, 1, 0);
	/* Nothing of the third: the command queue is alive */
	sync_now(&t, 9);
	eager(&t, 0, 0, 0, 10);
	expect(&t, IBV_WC_TM_RECV, IBV_WC_SUCCESS, 1000, BOTH);
	eager(&t, 1, 0, 0, 10);
	expect(&t, IBV_WC_TM_RECV, IBV_WC_SUCCESS, 1001, BOTH);
	tm_close(&t);
}

/* UCX does not look at it: a cancel that came too late completes a receive which has completed */
static void success_of_removal(void **state)
{
	struct inlay_tag_wc wc;
	uint32_t i, handle = 0;

	(void)state;
	usual_list(2, 16);
	for (i = 0; i < 12; i++) {
		bool first = i & 1, big = i & 2;

		handle = add(&t, 1, 0, 5, EXACT);
		if (first)
			eager(&t, 5, 0, 0, big ? 3000 : 10);
		must(inlay_tag_list_del(&t.list, 2, handle, SYNCED));
		inlay_tag_list_ring(&t.list);
		if (first) {
			/* What there is of it, before and after the DEL's end */
			expect(&t, IBV_WC_TM_RECV, IBV_WC_SUCCESS, 1001, big ? IBV_WC_TM_MATCH : BOTH);
			if (big)
				expect(&t, IBV_WC_TM_RECV, IBV_WC_SUCCESS, 1001, IBV_WC_TM_DATA_VALID);
			wc = expect(&t, IBV_WC_TM_DEL, IBV_WC_TM_ERR, 2, 0);
		} else {
			wc = expect(&t, IBV_WC_TM_DEL, IBV_WC_SUCCESS, 2, 0);
			unexpected(&t, 5);
		}
		assert_int_equal(wc.handle, handle);
		whole(&t.list);
		assert_int_equal(t.list.room, 2);
	}
	tm_close(&t);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		devx_test(no_lock_inversion),
		devx_test(unsignaled_del_keeps_its_entry),
		devx_test(error_of_a_tagged_buffer),
		devx_test(cancelled_is_no_receive),
		devx_test(no_half_built_wqe),
		devx_test(success_of_removal),
	};

	if (!rig_here())
		return 0;
	return on_each(cmocka_run_group_tests_name("tag_known_faults", tests, rig_open, rig_close));
}
