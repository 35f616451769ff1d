/* SPDX-License-Identifier: BSD-3-Clause */
/* srq.c: shared receive queues: none left, the limit's event, and what a QP leaves when it stops or goes away */
#include "rig.h"

static struct ibv_srq *srq;
static struct side rx[2], tx[2]; /* receivers on the SRQ, and their senders, which are not */
static uint32_t room;            /* receives that it holds; query adds those that libmlx5 keeps for itself */

static void open_to(struct side *r, struct side *t, const struct how *as)
{
	struct how how = *as;

	open_side(t, &how);
	how.srq = srq;
	open_side(r, &how);
	bring_up(t->qp, r->qp->qp_num, &how);
	bring_up(r->qp, t->qp->qp_num, &how);
}

static struct ibv_srq *make(struct ibv_pd *of, uint32_t wr, uint32_t sge)
{
	struct ibv_srq_init_attr init = { .srq_context = &port, .attr = { .max_wr = wr, .max_sge = sge } };
	struct ibv_srq *made = ibv_create_srq(of, &init);

	assert_true(!made || (init.attr.max_wr >= wr && init.attr.max_sge >= sge));
	room = init.attr.max_wr;
	return made;
}

static void open_scene(uint32_t wr, const struct how *second)
{
	srq = made(make(pd, wr, 2));
	open_to(&rx[0], &tx[0], &usual);
	open_to(&rx[1], &tx[1], second);
}

static void close_scene(void)
{
	for (int i = 0; i < 2; i++) {
		close_side(&tx[i]);
		close_side(&rx[i]);
	}
	must(ibv_destroy_srq(srq));
	assert_false(readable(ctx->async_fd, 5));
}

static int put(uint64_t id, struct ibv_sge sg)
{
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sg, .num_sge = 1 }, *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

static void puts_up_to(unsigned first, unsigned n)
{
	for (unsigned i = first; i < first + n; i++)
		must(put(i, sge(&rx[0], 64 * i, 64)));
}

/* A message of 64 bytes or another length, and what becomes of it */
static void message(struct side *from, uint32_t len, enum ibv_wc_status status)
{
	sg = sge(from, 0, len);
	wr = request(IBV_WR_SEND, 1, &sg, 1, from, 0);
	post(from, &wr);
	expect(from->scq, 1, status);
}

static void received(unsigned i, unsigned first, unsigned n)
{
	for (unsigned k = first; k < first + n; k++) {
		message(&tx[i], 64, IBV_WC_SUCCESS);
		expect_op(rx[i].rcq, k, IBV_WC_RECV);
	}
}

static struct ibv_srq_attr attr_of(void)
{
	struct ibv_srq_attr a;

	memset(&a, 0xff, sizeof(a));
	must(ibv_query_srq(srq, &a));
	return a;
}

static int set_limit(uint32_t limit)
{
	struct ibv_srq_attr a = { .srq_limit = limit };

	return ibv_modify_srq(srq, &a, IBV_SRQ_LIMIT);
}

/* A sender that waits gets through when there is a receive again; one that does not gives up, and the receiver goes on */
TEST(empty)
{
	struct how hasty = usual;

	hasty.rnr_retry = 2;
	open_scene(16, &hasty);
	sg = sge(&tx[0], 0, 64);
	wr = request(IBV_WR_SEND, 3, &sg, 1, &rx[0], 0);
	post(&tx[0], &wr);
	expect_nothing(tx[0].scq);
	puts_up_to(4, 1);
	expect_op(tx[0].scq, 3, IBV_WC_SEND);
	expect_op(rx[0].rcq, 4, IBV_WC_RECV);
	message(&tx[1], 64, IBV_WC_RNR_RETRY_EXC_ERR);
	assert_int_equal(state_of(rx[1].qp), IBV_QPS_RTS);
	close_scene();
}

/* Fewer are left already: the event comes at once. Taken back before it is reached: never. queue/srq.c has what is between. */
TEST(limit)
{
	open_scene(32, &usual);
	puts_up_to(0, 1);
	must(set_limit(2));
	assert_ptr_equal(expect_event(ctx, IBV_EVENT_SRQ_LIMIT_REACHED), srq);
	assert_int_equal(attr_of().srq_limit, 0);
	puts_up_to(1, 1);
	must(set_limit(1));
	must(set_limit(0));
	received(0, 0, 2);
	assert_false(readable(ctx->async_fd, 5));
	/* An unread event goes with it */
	must(set_limit(3));
	assert_true(readable(ctx->async_fd, PATIENCE * 1000));
	close_scene();
}

TEST(refusals)
{
	struct ibv_pd *p = ibv_alloc_pd(ctx);
	struct ibv_recv_wr two[2], *bad;
	struct ibv_device_attr dev;
	struct ibv_srq_attr a;
	struct ibv_sge sg[40];

	must(ibv_query_device(ctx, &dev));
	assert_null(make(pd, dev.max_srq_wr + 1, 1));
	must(ibv_destroy_srq(make(pd, dev.max_srq_wr, 1)));
	srq = make(p, 10, 1);
	assert_int_equal(ibv_dealloc_pd(p), EBUSY);
	must(ibv_destroy_srq(srq) || ibv_dealloc_pd(p));
	open_scene(10, &usual);
	a = attr_of();
	assert_true(a.max_wr >= 10 && a.max_sge >= 2);
	assert_int_equal(set_limit(a.max_wr + 1), EINVAL);
	assert_int_equal(attr_of().srq_limit, 0);
	a.max_wr = 30;
	assert_int_equal(ibv_modify_srq(srq, &a, IBV_SRQ_MAX_WR), EINVAL);
	/* Too many places; the good one before it is posted */
	for (unsigned i = 0; i < ARRAY(sg); i++)
		sg[i] = sge(&rx[0], 64 * i, 64);
	for (unsigned i = 0; i < 2; i++)
		two[i] = (struct ibv_recv_wr){ .wr_id = i, .sg_list = sg, .num_sge = i ? 40 : 1, .next = i ? NULL : &two[1] };
	assert_int_equal(ibv_post_srq_recv(srq, two, &bad), EINVAL);
	assert_ptr_equal(bad, &two[1]);
	received(0, 0, 1);
	/* A QP on an SRQ has no receive queue of its own, and holds it */
	assert_int_not_equal(post_recv(&rx[0], 1, sg, 1), 0);
	assert_int_equal(ibv_destroy_srq(srq), EBUSY);
	close_scene();
}

/* Receives whose completions a destroyed QP left come back; those not taken stay for the others */
TEST(destroyed)
{
	open_scene(15, &usual);
	for (int round = 0; round < 3; round++) {
		unsigned n = 0;

		while (!put(n, sge(&rx[0], 64 * n, 64)))
			n++;
		assert_int_equal(n, room);
		for (int i = 0; i < 6; i++)
			message(&tx[i % 2], 64, IBV_WC_SUCCESS);
		close_side(&tx[1]);
		close_side(&rx[1]);
		for (int i = 0; i < 6; i += 2)
			expect_op(rx[0].rcq, i, IBV_WC_RECV);
		received(0, 6, n - 6);
		expect_nothing(rx[0].rcq);
		open_to(&rx[1], &tx[1], &usual);
	}
	close_scene();
}

/*
 * A QP that stops flushes no shared receives, and an event says when it takes no more. The others have the next, and it comes up
 * again. By modify; by a message that is too long; by a key that is not good; and by modify when a message has broken off, which
 * leaves it with an entry that comes back before the event.
 */
TEST(last_wqe)
{
	static const struct {
		uint32_t len, lkey;
		bool half;
		enum ibv_wc_status sent, got;
	} rows[] = { { .got = 0 }, { .len = 65, .sent = IBV_WC_REM_INV_REQ_ERR, .got = IBV_WC_LOC_LEN_ERR },
		     { .len = 64, .lkey = 0x40, .sent = IBV_WC_REM_OP_ERR, .got = IBV_WC_LOC_PROT_ERR },
		     { .len = 64, .half = true, .sent = IBV_WC_RETRY_EXC_ERR, .got = IBV_WC_WR_FLUSH_ERR } };

	open_scene(16, &usual);
	for (unsigned i = 0; i < ARRAY(rows); i++) {
		struct ibv_sge first = sge(&rx[0], 0, 64);

		first.lkey ^= rows[i].lkey;
		must(put(0, first));
		puts_up_to(1, 3);
		if (rows[i].half)
			must(softdev_fault("syndrome=0x15@1"));
		if (rows[i].len)
			message(&tx[0], rows[i].len, rows[i].sent);
		must(softdev_fault(NULL));
		if (rows[i].half) {
			expect_nothing(rx[0].rcq);
			received(1, 1, 1);
		}
		if (!rows[i].len || rows[i].half)
			must(move(rx[0].qp, IBV_QPS_ERR, 0, &usual));
		if (rows[i].got)
			expect(rx[0].rcq, 0, rows[i].got);
		assert_int_equal(state_of(rx[0].qp), IBV_QPS_ERR);
		assert_ptr_equal(expect_event(ctx, IBV_EVENT_QP_LAST_WQE_REACHED), rx[0].qp);
		expect_nothing(rx[0].rcq);
		if (!rows[i].got)
			received(1, 0, 1);
		received(1, 1 + rows[i].half, 2 - rows[i].half);
		assert_false(readable(ctx->async_fd, 5)); /* it says so once */
		reconnect((struct side[]){ tx[0], rx[0] }, &usual);
		received(0, 3, 1);
	}
	close_scene();
}

int main(void)
{
	return run_all(setup, teardown);
}
