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

/* A message to any of the QPs takes the next receive of the SRQ */
static void in_order(UNUSED void **state)
{
	struct ibv_srq *srq = a_srq(100, 2);
	struct side rx[4], tx[4];

	for (int i = 0; i < 4; i++) {
		struct how how = usual;

		how.type = i == 3 ? IBV_QPT_UC : IBV_QPT_RC;
		if (i == 3)
			how.qp_access = IBV_ACCESS_LOCAL_WRITE;
		open_to(&rx[i], &tx[i], &how, srq);
		fill(tx[i].buf, 65536, i);
	}
	for (int i = 0; i < 60; i++)
		must(post_one(srq, 1000 + i, &rx[0], 4096 * i, 4096));
	for (int i = 0; i < 60; i++) {
		int who = (i * 7 + i / 9) % 4;
		uint32_t len = 1 + (i * 331) % 4096;

		message(&tx[who], i, len);
		wc = expect_op(rx[who].rcq, 1000 + i, IBV_WC_RECV);
		assert_int_equal(wc.byte_len, len);
		assert_int_equal(wc.qp_num, rx[who].qp->qp_num);
		assert_memory_equal(rx[0].buf + 4096 * i, tx[who].buf + i, len);
	}
	for (int i = 0; i < 4; i++) {
		expect_nothing(rx[i].rcq);
		close_side(&tx[i]);
		close_side(&rx[i]);
	}
	must(ibv_destroy_srq(srq));
}

/*
 * All kinds of receives: immediates, writes with them, several places; small ones which libmlx5 may
 * have in the CQE
 */
static void kinds(UNUSED void **state)
{
	struct ibv_srq *srq = a_srq(16, 3);
	struct ibv_recv_wr rwr = { .wr_id = 1, .num_sge = 3 }, *bad;
	struct ibv_sge to[3], sg;
	struct side rx, tx;

	open_to(&rx, &tx, &usual, srq);
	fill(tx.buf, SIZE, 6);
	for (uint32_t len = 1; len <= 200; len += 7) {
		memset(rx.buf, 0xaa, 4096);
		to[0] = sge(&rx, 10, 5);
		to[1] = sge(&rx, 100, 20);
		to[2] = sge(&rx, 200, 400);
		rwr.sg_list = to;
		must(ibv_post_srq_recv(srq, &rwr, &bad));
		sg = sge(&tx, len, len);
		wr = request(IBV_WR_SEND_WITH_IMM, 2, &sg, 1, &rx, 0);
		wr.imm_data = htobe32(len);
		post_done(&tx, &wr);
		wc = expect_op(rx.rcq, 1, IBV_WC_RECV);
		assert_int_equal(be32toh(wc.imm_data), len);
		for (uint32_t i = 0; i < len; i++)
			assert_int_equal(rx.buf[i < 5 ? 10 + i : i < 25 ? 95 + i : 175 + i], tx.buf[len + i]);
		assert_int_equal(rx.buf[15], 0xaa);
		assert_int_equal(rx.buf[120], 0xaa);
		assert_int_equal(rx.buf[200 + 400], 0xaa);
	}
	must(ibv_post_srq_recv(srq, &rwr, &bad));
	wr = request(IBV_WR_RDMA_WRITE_WITH_IMM, 3, &sg, 1, &rx, HALF);
	wr.imm_data = htobe32(4711);
	post_done(&tx, &wr);
	wc = expect_op(rx.rcq, 1, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(be32toh(wc.imm_data), 4711);
	assert_memory_equal(rx.buf + HALF, (uint8_t *)(uintptr_t)sg.addr, sg.length);
	close_side(&tx);
	close_side(&rx);
	must(ibv_destroy_srq(srq));
}

static void datagrams(UNUSED void **state)
{
	struct ibv_srq *srq = a_srq(32, 1);
	struct ibv_qp_attr a = attr_for(IBV_QPS_RTR, 0, &usual);
	struct ibv_ah *ah = ibv_create_ah(pd, &a.ah_attr);
	struct how how = usual;
	struct side ud[3], rx, tx;

	assert_non_null(ah);
	open_to(&rx, &tx, &usual, srq);
	how.type = IBV_QPT_UD;
	how.srq = srq;
	for (int i = 0; i < 3; i++) {
		open_side(&ud[i], &how);
		bring_up(ud[i].qp, 0, &how);
	}
	fill(tx.buf, 65536, 5);
	for (int i = 0; i < 100; i++) {
		struct side *to = i % 4 == 3 ? &rx : &ud[i % 4], *from = to == &rx ? &tx : &ud[(i + 1) % 3];
		int extra = to == &rx ? 0 : GRH_BYTES;

		must(post_one(srq, i, &rx, HALF, 1000));
		fill(from->buf, 65536, i);
		sg = sge(from, i, 100 + i);
		wr = request(IBV_WR_SEND, 1, &sg, 1, to, 0);
		if (extra) {
			wr.wr.ud.ah = ah;
			wr.wr.ud.remote_qpn = to->qp->qp_num;
			wr.wr.ud.remote_qkey = QKEY;
		}
		post_done(from, &wr);
		wc = expect_op(to->rcq, i, IBV_WC_RECV);
		assert_int_equal(wc.byte_len, 100 + i + extra);
		if (extra)
			assert_int_equal(wc.src_qp, from->qp->qp_num);
		assert_memory_equal(rx.buf + HALF + extra, from->buf + i, 100 + i);
	}
	/* Nothing posted: lost, and nothing else */
	sg = sge(&ud[1], 0, 10);
	wr.sg_list = &sg;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qkey = QKEY;
	wr.wr.ud.remote_qpn = ud[0].qp->qp_num;
	post_done(&ud[1], &wr);
	must(post_one(srq, 7, &rx, 0, 1000));
	expect_nothing(ud[0].rcq);
	message(&tx, 0, 100);
	expect_op(rx.rcq, 7, IBV_WC_RECV);
	for (int i = 0; i < 3; i++)
		close_side(&ud[i]);
	close_side(&tx);
	close_side(&rx);
	must(ibv_destroy_ah(ah));
	must(ibv_destroy_srq(srq));
}

/*
 * A full queue says so; many laps of it, its receives freed in another order than they were taken
 * in
 */
static void laps(UNUSED void **state)
{
	struct ibv_srq *srq = a_srq(15, 1);
	uint32_t max = room, posted = 0, pending[2] = { 0 };
	bool used[64] = { false };
	struct side rx[2], tx[2];
	unsigned order[64], head = 0, tail = 0, waiting[2][64], wh[2] = { 0 }, wt[2] = { 0 };

	assert_true(max >= 15 && max <= 31);
	for (int i = 0; i < 2; i++) {
		open_to(&rx[i], &tx[i], &usual, srq);
		fill(tx[i].buf, SIZE, i + 70);
	}
	for (unsigned n = 0; n < 6000; n++) {
		unsigned who = rnd() % 2;

		if (rnd() % 2) {
			unsigned slot = 0;

			while (slot < max && used[slot])
				slot++;
			if (slot == max) {
				/* As many as it said, and not one more */
				assert_int_equal(post_one(srq, 99, &rx[0], 0, 64), ENOMEM);
			} else {
				must(post_one(srq, slot, &rx[0], 64 * slot, 64));
				memset(rx[0].buf + 64 * slot, 0, 64);
				used[slot] = true;
				order[head++ % 64] = slot;
				posted++;
			}
		} else if (posted && rnd() % 3) {
			unsigned slot = order[tail++ % 64];

			message(&tx[who], n, 33 + n % 31);
			waiting[who][wh[who]++ % 64] = slot | n << 8;
			posted--;
			pending[who]++;
		} else if (pending[who]) {
			unsigned w = waiting[who][wt[who]++ % 64], slot = w & 0xff, seed = w >> 8;
			struct ibv_wc wc = expect_op(rx[who].rcq, slot, IBV_WC_RECV);

			assert_int_equal(wc.byte_len, 33 + seed % 31);
			assert_memory_equal(rx[0].buf + 64 * slot, tx[who].buf + seed, wc.byte_len);
			used[slot] = false;
			pending[who]--;
		}
	}
	for (int i = 0; i < 2; i++) {
		close_side(&tx[i]);
		close_side(&rx[i]);
	}
	must(ibv_destroy_srq(srq));
}

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

/* Both interfaces to make one, and what mlx5dv knows of it */
static void extended(UNUSED void **state)
{
	struct ibv_srq_init_attr_ex init = { .attr = { .max_wr = 50, .max_sge = 3 },
					     .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
					     .srq_type = IBV_SRQT_BASIC, .pd = pd };
	struct ibv_srq *srq = ibv_create_srq_ex(ctx, &init), *other = a_srq(10, 1);
	struct mlx5dv_srq d = { .comp_mask = MLX5DV_SRQ_MASK_SRQN }, e = { .comp_mask = MLX5DV_SRQ_MASK_SRQN };
	struct mlx5dv_obj obj;
	struct side rx, tx;

	assert_non_null(srq);
	obj.srq.in = srq;
	obj.srq.out = &d;
	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ));
	obj.srq.in = other;
	obj.srq.out = &e;
	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ));
	assert_true(d.comp_mask & MLX5DV_SRQ_MASK_SRQN);
	assert_int_not_equal(d.srqn, e.srqn);
	assert_int_equal(d.stride, 64);
	assert_int_equal(be32toh(*d.dbrec), 0);
	open_to(&rx, &tx, &usual, srq);
	for (int i = 0; i < 5; i++)
		must(post_one(srq, i, &rx, 64 * i, 64));
	assert_int_equal(be32toh(*d.dbrec), 5);
	message(&tx, 0, 64);
	expect_op(rx.rcq, 0, IBV_WC_RECV);
	close_side(&tx);
	close_side(&rx);
	must(ibv_destroy_srq(srq));
	must(ibv_destroy_srq(other));
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

/* One CQ for everything */
static void one_cq(UNUSED void **state)
{
	struct ibv_srq *srq = a_srq(64, 1);
	struct ibv_cq *cq = ibv_create_cq(ctx, 255, NULL, NULL, 0);
	struct how how = usual;
	struct side rx[3], tx[3];
	int sent = 0, got = 0, from[3] = { 0 };

	how.cq = cq;
	for (int i = 0; i < 3; i++) {
		open_to(&rx[i], &tx[i], &how, srq);
		fill(tx[i].buf, SIZE, i);
	}
	for (int i = 0; i < 60; i++)
		must(post_one(srq, i, &rx[0], 1024 * i, 1024));
	for (int i = 0; i < 60; i++) {
		struct ibv_sge sg = sge(&tx[i % 3], i, 10 * i + 1);
		struct ibv_send_wr wr = request(IBV_WR_SEND, 1000 + i, &sg, 1, &rx[i % 3], 0);

		post(&tx[i % 3], &wr);
	}
	while (sent + got < 120) {
		wc = next_wc(cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		if (wc.wr_id >= 1000) {
			assert_int_equal(wc.opcode, IBV_WC_SEND);
			assert_int_equal(wc.qp_num, tx[(wc.wr_id - 1000) % 3].qp->qp_num);
			sent++;
			continue;
		}
		/* Between QPs any order is good; within one it is that of the sends */
		for (int i = 0; i < 3; i++)
			if (rx[i].qp->qp_num == wc.qp_num) {
				int n = i + 3 * from[i]++;

				assert_int_equal(wc.byte_len, 10 * n + 1);
				assert_memory_equal(rx[0].buf + 1024 * wc.wr_id, tx[i].buf + n, wc.byte_len);
				got++;
			}
	}
	assert_int_equal(got, 60);
	for (int i = 0; i < 3; i++) {
		close_side_but_cqs(&tx[i]);
		close_side_but_cqs(&rx[i]);
	}
	must(ibv_destroy_cq(cq));
	must(ibv_destroy_srq(srq));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(in_order), TEST(kinds), TEST(datagrams), TEST(laps), TEST(empty), TEST(limit), TEST(refusals),
		TEST(extended), TEST(destroyed), TEST(last_wqe), TEST(half), TEST(bad_key), TEST(one_cq),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
