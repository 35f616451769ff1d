/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * srq.c: shared receive queues under connected and datagram QPs: order, the limit's event, what a
 * QP leaves when it goes away
 */
#include "rig.h"

static uint32_t room; /* receives that the latest one holds; query adds those that libmlx5 keeps for itself */

static struct ibv_srq *a_srq(uint32_t wr, uint32_t sge)
{
	struct ibv_srq_init_attr init = { .srq_context = &port, .attr = { .max_wr = wr, .max_sge = sge } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);

	assert_non_null(srq);
	assert_true(init.attr.max_wr >= wr && init.attr.max_sge >= sge);
	room = init.attr.max_wr;
	return srq;
}

static int post_one(struct ibv_srq *srq, uint64_t id, const struct side *s, size_t off, uint32_t len)
{
	struct ibv_sge sg = sge(s, off, len);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sg, .num_sge = 1 }, *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

static struct ibv_srq_attr attr_of(struct ibv_srq *srq)
{
	struct ibv_srq_attr a;

	memset(&a, 0xff, sizeof(a));
	must(ibv_query_srq(srq, &a));
	return a;
}

static int set_limit(struct ibv_srq *srq, uint32_t limit)
{
	struct ibv_srq_attr a = { .srq_limit = limit };

	return ibv_modify_srq(srq, &a, IBV_SRQ_LIMIT);
}

static void message(struct side *from, size_t off, uint32_t len)
{
	struct ibv_sge sg = sge(from, off, len);
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sg, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };

	post_done(from, &wr);
}

/* A receiver on the SRQ and its sender, which is not */
static void open_to(struct side *rx, struct side *tx, const struct how *usual_how, struct ibv_srq *srq)
{
	struct how how = *usual_how;

	open_side(tx, &how);
	how.srq = srq;
	open_side(rx, &how);
	bring_up(tx->qp, rx->qp->qp_num, &how);
	bring_up(rx->qp, tx->qp->qp_num, &how);
}

/* ---- data ---- */

/* ---- none left ---- */

static void empty(UNUSED void **state)
{
	struct ibv_srq *srq = a_srq(16, 1);
	struct how how = usual;
	struct side rx, tx;

	/* A sender that waits gets through when there is a receive again */
	open_to(&rx, &tx, &how, srq);
	sg = sge(&tx, 0, 100);
	wr = request(IBV_WR_SEND, 3, &sg, 1, &rx, 0);
	post(&tx, &wr);
	expect_nothing(tx.scq);
	must(post_one(srq, 4, &rx, 0, 100));
	expect_op(tx.scq, 3, IBV_WC_SEND);
	expect_op(rx.rcq, 4, IBV_WC_RECV);
	close_side(&tx);
	close_side(&rx);
	/* One that does not gives up */
	how.rnr_retry = 2;
	open_to(&rx, &tx, &how, srq);
	sg = sge(&tx, 0, 100);
	post(&tx, &wr);
	expect(tx.scq, 3, IBV_WC_RNR_RETRY_EXC_ERR);
	assert_int_equal(state_of(rx.qp), IBV_QPS_RTS);
	close_side(&tx);
	close_side(&rx);
	must(ibv_destroy_srq(srq));
}

/* ---- the limit ---- */

static void limit(UNUSED void **state)
{
	struct ibv_srq *srq = a_srq(32, 1);
	struct side rx, tx;

	open_to(&rx, &tx, &usual, srq);
	assert_int_equal(attr_of(srq).srq_limit, 0);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 10; i++)
			must(post_one(srq, i, &rx, 0, 64));
		must(set_limit(srq, 4));
		assert_int_equal(attr_of(srq).srq_limit, 4);
		/* Four are left after six messages: that is not less than the limit */
		for (int i = 0; i < 6; i++) {
			message(&tx, 0, 8);
			expect_op(rx.rcq, i, IBV_WC_RECV);
		}
		assert_false(readable(ctx->async_fd, 10));
		assert_int_equal(attr_of(srq).srq_limit, 4);
		message(&tx, 0, 8);
		expect_op(rx.rcq, 6, IBV_WC_RECV);
		assert_ptr_equal(expect_event(ctx, IBV_EVENT_SRQ_LIMIT_REACHED), srq);
		/* Once, and the limit is gone */
		assert_int_equal(attr_of(srq).srq_limit, 0);
		for (int i = 7; i < 10; i++) {
			message(&tx, 0, 8);
			expect_op(rx.rcq, i, IBV_WC_RECV);
		}
		assert_false(readable(ctx->async_fd, 10));
	}
	/* Set where there are fewer already: at once */
	must(post_one(srq, 20, &rx, 0, 64));
	must(set_limit(srq, 2));
	assert_ptr_equal(expect_event(ctx, IBV_EVENT_SRQ_LIMIT_REACHED), srq);
	assert_false(readable(ctx->async_fd, 10));
	/* Taken back before it is reached: never */
	must(post_one(srq, 21, &rx, 0, 64));
	must(set_limit(srq, 1));
	must(set_limit(srq, 0));
	for (int i = 20; i < 22; i++) {
		message(&tx, 0, 8);
		expect_op(rx.rcq, i, IBV_WC_RECV);
	}
	assert_false(readable(ctx->async_fd, 10));
	/* An unread event does not delay the destruction */
	must(set_limit(srq, 3));
	assert_true(readable(ctx->async_fd, PATIENCE * 1000));
	close_side(&tx);
	close_side(&rx);
	must(ibv_destroy_srq(srq));
	assert_false(readable(ctx->async_fd, 10));
}

/* ---- objects ---- */

static void refusals(UNUSED void **state)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 1u << 20, .max_sge = 1 } };
	struct ibv_device_attr dev;
	struct ibv_srq_attr a;
	struct ibv_srq *srq;
	struct ibv_recv_wr wr, *bad = NULL;
	struct ibv_sge sg[40];
	struct side rx, tx;
	struct ibv_pd *p;

	must(ibv_query_device(ctx, &dev));
	assert_null(ibv_create_srq(pd, &init));
	init.attr = (struct ibv_srq_attr){ .max_wr = dev.max_srq_wr + 1, .max_sge = 1 };
	assert_null(ibv_create_srq(pd, &init));
	init.attr = (struct ibv_srq_attr){ .max_wr = 10, .max_sge = 33 };
	assert_null(ibv_create_srq(pd, &init));
	init.attr = (struct ibv_srq_attr){ .max_wr = dev.max_srq_wr, .max_sge = 1 };
	srq = ibv_create_srq(pd, &init);
	assert_non_null(srq);
	must(ibv_destroy_srq(srq));
	srq = a_srq(10, 2);
	a = attr_of(srq);
	assert_true(a.max_wr >= 10 && a.max_sge >= 2);
	assert_int_equal(set_limit(srq, a.max_wr + 1000), EINVAL);
	assert_int_equal(attr_of(srq).srq_limit, 0);
	a.max_wr = 30;
	assert_int_equal(ibv_modify_srq(srq, &a, IBV_SRQ_MAX_WR), EINVAL);
	/* Too many places; the first good one is posted */
	open_to(&rx, &tx, &usual, srq);
	for (unsigned i = 0; i < ARRAY(sg); i++)
		sg[i] = sge(&rx, 64 * i, 64);
	{
		struct ibv_recv_wr second = { .wr_id = 2, .sg_list = sg, .num_sge = 40 };

		wr = (struct ibv_recv_wr){ .wr_id = 1, .sg_list = sg, .num_sge = 1, .next = &second };
		assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), EINVAL);
		assert_ptr_equal(bad, &second);
	}
	message(&tx, 0, 64);
	expect_op(rx.rcq, 1, IBV_WC_RECV);
	/* A QP on an SRQ has no receive queue of its own */
	assert_int_not_equal(post_recv(&rx, 1, sg, 1), 0);
	/* In use */
	assert_int_equal(ibv_destroy_srq(srq), EBUSY);
	close_side(&tx);
	close_side(&rx);
	must(ibv_destroy_srq(srq));
	p = ibv_alloc_pd(ctx);
	init.attr = (struct ibv_srq_attr){ .max_wr = 10, .max_sge = 1 };
	srq = ibv_create_srq(p, &init);
	assert_non_null(srq);
	assert_int_equal(ibv_dealloc_pd(p), EBUSY);
	must(ibv_destroy_srq(srq));
	must(ibv_dealloc_pd(p));
}

/* ---- QPs that go away ---- */

/*
 * Receives taken by a QP whose completions were not polled come back when it is destroyed; those
 * not taken stay for the others
 */
static void destroyed(UNUSED void **state)
{
	struct ibv_srq *srq = a_srq(15, 1);
	uint32_t max = room;
	struct side keep, keep_tx;

	open_to(&keep, &keep_tx, &usual, srq);
	for (int round = 0; round < 5; round++) {
		struct side rx, tx;
		unsigned n = 0;

		open_to(&rx, &tx, &usual, srq);
		while (!post_one(srq, n, &keep, 64 * n, 64))
			n++;
		assert_int_equal(n, max);
		for (int i = 0; i < 6; i++)
			message(i % 2 ? &tx : &keep_tx, i, 64);
		close_side(&tx);
		close_side(&rx); /* has three that were not polled */
		for (int i = 0; i < 6; i += 2)
			expect_op(keep.rcq, i, IBV_WC_RECV);
		for (unsigned i = 6; i < n; i++) {
			message(&keep_tx, 0, 64);
			expect_op(keep.rcq, i, IBV_WC_RECV);
		}
		expect_nothing(keep.rcq);
	}
	close_side(&keep_tx);
	close_side(&keep);
	must(ibv_destroy_srq(srq));
}

/* An error of one QP flushes no shared receives, and an event says when it takes no more */
static void last_wqe(UNUSED void **state)
{
	struct ibv_srq *srq = a_srq(16, 1);
	struct side rx[2], tx[2];

	for (int i = 0; i < 2; i++)
		open_to(&rx[i], &tx[i], &usual, srq);
	for (int i = 0; i < 10; i++)
		must(post_one(srq, i, &rx[0], 64 * i, 64));
	/* By modify */
	must(move(rx[0].qp, IBV_QPS_ERR, 0, &usual));
	assert_ptr_equal(expect_event(ctx, IBV_EVENT_QP_LAST_WQE_REACHED), rx[0].qp);
	expect_nothing(rx[0].rcq);
	message(&tx[1], 0, 64);
	expect_op(rx[1].rcq, 0, IBV_WC_RECV);
	/* Up again, and by a message that is too long */
	must(move(rx[0].qp, IBV_QPS_RESET, 0, &usual));
	must(move(tx[0].qp, IBV_QPS_RESET, 0, &usual));
	bring_up(rx[0].qp, tx[0].qp->qp_num, &usual);
	bring_up(tx[0].qp, rx[0].qp->qp_num, &usual);
	message(&tx[0], 0, 64);
	expect_op(rx[0].rcq, 1, IBV_WC_RECV);
	sg = sge(&tx[0], 0, 65);
	wr = request(IBV_WR_SEND, 5, &sg, 1, &rx[0], 0);
	post(&tx[0], &wr);
	expect(tx[0].scq, 5, IBV_WC_REM_INV_REQ_ERR);
	expect(rx[0].rcq, 2, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(state_of(rx[0].qp), IBV_QPS_ERR);
	assert_ptr_equal(expect_event(ctx, IBV_EVENT_QP_LAST_WQE_REACHED), rx[0].qp);
	expect_nothing(rx[0].rcq);
	for (int i = 3; i < 10; i++) {
		message(&tx[1], 0, 64);
		expect_op(rx[1].rcq, i, IBV_WC_RECV);
	}
	assert_false(readable(ctx->async_fd, 5));
	for (int i = 0; i < 2; i++) {
		close_side(&tx[i]);
		close_side(&rx[i]);
	}
	must(ibv_destroy_srq(srq));
}

/* A message that breaks off leaves the QP with an entry: it comes back before the event, long after the command */
static void half(UNUSED void **state)
{
	struct ibv_srq *srq = a_srq(16, 1);
	struct side rx[2], tx[2];

	for (int i = 0; i < 2; i++)
		open_to(&rx[i], &tx[i], &usual, srq);
	for (int i = 0; i < 2; i++)
		must(post_one(srq, i, &rx[0], 64 * i, 64));
	must(softdev_fault("syndrome=0x15@1"));
	sg = sge(&tx[0], 0, 64);
	wr = request(IBV_WR_SEND, 5, &sg, 1, &rx[0], 0);
	post(&tx[0], &wr);
	expect(tx[0].scq, 5, IBV_WC_RETRY_EXC_ERR);
	must(softdev_fault(NULL));
	expect_nothing(rx[0].rcq);
	message(&tx[1], 0, 64); /* takes the next */
	expect_op(rx[1].rcq, 1, IBV_WC_RECV);
	must(move(rx[0].qp, IBV_QPS_ERR, 0, &usual));
	assert_ptr_equal(expect_event(ctx, IBV_EVENT_QP_LAST_WQE_REACHED), rx[0].qp);
	expect(rx[0].rcq, 0, IBV_WC_WR_FLUSH_ERR);
	for (int i = 0; i < 2; i++) {
		close_side(&tx[i]);
		close_side(&rx[i]);
	}
	must(ibv_destroy_srq(srq));
}

/* A receive whose key is not good stops the QP that took it; the others have the next */
static void bad_key(UNUSED void **state)
{
	struct ibv_srq *srq = a_srq(16, 1);
	struct ibv_recv_wr rwr = { .wr_id = 1, .num_sge = 1 }, *bad;
	struct side rx[2], tx[2];

	for (int i = 0; i < 2; i++)
		open_to(&rx[i], &tx[i], &usual, srq);
	sg = sge(&rx[0], 0, 64);
	sg.lkey ^= 0x40;
	rwr.sg_list = &sg;
	must(ibv_post_srq_recv(srq, &rwr, &bad));
	must(post_one(srq, 2, &rx[1], 0, 64));
	sg = sge(&tx[0], 0, 64);
	wr = request(IBV_WR_SEND, 5, &sg, 1, &rx[0], 0);
	post(&tx[0], &wr);
	expect(tx[0].scq, 5, IBV_WC_REM_OP_ERR);
	expect(rx[0].rcq, 1, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(state_of(rx[0].qp), IBV_QPS_ERR);
	assert_ptr_equal(expect_event(ctx, IBV_EVENT_QP_LAST_WQE_REACHED), rx[0].qp);
	message(&tx[1], 0, 64);
	expect_op(rx[1].rcq, 2, IBV_WC_RECV);
	for (int i = 0; i < 2; i++) {
		close_side(&tx[i]);
		close_side(&rx[i]);
	}
	must(ibv_destroy_srq(srq));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(empty), TEST(limit), TEST(refusals),
		TEST(destroyed), TEST(last_wqe), TEST(half), TEST(bad_key), };

	return cmocka_run_group_tests(tests, setup, teardown);
}
