/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cq.c: completion queues: resize under traffic, overrun, channels, asynchronous events and what
 * waits for their acknowledgement
 */
#include "rig.h"

/* A side whose queues share a CQ of cqe entries; its own peer */
static void open_self(struct side *s, int cqe, struct ibv_comp_channel *channel)
{
	struct how how = usual;

	how.cap.max_send_wr = how.cap.max_recv_wr = 512;
	how.cq = ibv_create_cq(ctx, cqe, s, channel, 0);
	assert_non_null(how.cq);
	open_side(s, &how);
	bring_up(s->qp, s->qp->qp_num, &how);
}

static void close_self(struct side *s)
{
	close_side_but_cqs(s);
	must(ibv_destroy_cq(s->scq));
}

static void write_some(struct side *s, unsigned first, unsigned n)
{
	for (unsigned i = first; i < first + n; i++) {
		struct ibv_sge sg = sge(s, 0, 8);
		struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, i, &sg, 1, s, HALF);

		post(s, &wr);
	}
}

/*
 * Waits until the device has put in what it can without looking at the CQ: the last write has
 * landed
 */
static void landed(struct side *s, uint8_t mark)
{
	double end = now() + PATIENCE;

	while (((volatile uint8_t *)s->buf)[HALF] != mark && now() < end)
		usleep(20);
	assert_int_equal(s->buf[HALF], mark);
	usleep(200);
}

/* ---- resize ---- */

static void resize_pending(UNUSED void **state)
{
	static const int to[] = { 200, 20, 1000, 31, 17, 4000, 16 };
	struct side s;

	open_self(&s, 31, NULL);
	for (unsigned i = 0; i < ARRAY(to); i++) {
		/* Some are taken, some wait, then the size changes, then more come */
		memset(s.buf, i + 1, 8);
		write_some(&s, 0, 20);
		landed(&s, i + 1);
		for (unsigned j = 0; j < 5; j++)
			expect_op(s.scq, j, IBV_WC_RDMA_WRITE);
		must(ibv_resize_cq(s.scq, to[i]));
		assert_true(s.scq->cqe >= to[i]);
		for (unsigned j = 5; j < 10; j++)
			expect_op(s.scq, j, IBV_WC_RDMA_WRITE);
		write_some(&s, 20, 5);
		for (unsigned j = 10; j < 25; j++)
			expect_op(s.scq, j, IBV_WC_RDMA_WRITE);
		expect_nothing(s.scq);
	}
	/* Laps of the ring that it ended with */
	for (unsigned i = 0; i < 300; i++) {
		write_some(&s, i, 1);
		expect_op(s.scq, i, IBV_WC_RDMA_WRITE);
	}
	close_self(&s);
}

/* What waits must fit; else all stays as it was */
static void resize_refused(UNUSED void **state)
{
	struct ibv_device_attr dev;
	struct side s;

	must(ibv_query_device(ctx, &dev));
	open_self(&s, 255, NULL);
	assert_int_not_equal(ibv_resize_cq(s.scq, -1), 0);
	assert_int_not_equal(ibv_resize_cq(s.scq, dev.max_cqe + 1), 0);
	assert_int_equal(s.scq->cqe, 255);
	memset(s.buf, 7, 8);
	write_some(&s, 0, 100);
	landed(&s, 7);
	assert_int_equal(ibv_resize_cq(s.scq, 31), EINVAL);
	assert_int_equal(s.scq->cqe, 255);
	for (unsigned j = 0; j < 80; j++)
		expect_op(s.scq, j, IBV_WC_RDMA_WRITE);
	must(ibv_resize_cq(s.scq, 31));
	assert_int_equal(s.scq->cqe, 31);
	for (unsigned j = 80; j < 100; j++)
		expect_op(s.scq, j, IBV_WC_RDMA_WRITE);
	expect_nothing(s.scq);
	close_self(&s);
}

/* What was rung before the resize counts, whether or not it has completed by then */
static void resize_at_once(UNUSED void **state)
{
	struct side s;

	for (unsigned i = 0; i < 40; i++) {
		open_self(&s, 63, NULL);
		write_some(&s, 0, 6 + i % 20);
		assert_int_equal(ibv_resize_cq(s.scq, 3), EINVAL);
		assert_int_equal(s.scq->cqe, 63);
		for (unsigned j = 0; j < 6 + i % 20; j++)
			expect_op(s.scq, j, IBV_WC_RDMA_WRITE);
		must(ibv_resize_cq(s.scq, 3));
		close_self(&s);
	}
}

/* While the device is busy: nothing is lost, doubled or out of order */
static void resize_traffic(struct side *s)
{
	unsigned sent = 0, got = 0, received = 0, n, resized = 0;
	struct ibv_wc wc[16];
	double end = now() + PATIENCE;

	while (got < 12000 || received < 12000) {
		assert_true(now() < end);
		while (sent - got < 12 && sent - received < 12 && sent < 12000) {
			struct ibv_sge sg = sge(s, 0, 1 + sent % 40);
			struct ibv_send_wr wr = request(IBV_WR_SEND, sent, &sg, 1, s, 0);

			recv_at(s, sent | 1u << 20, HALF, 64);
			post(s, &wr);
			sent++;
		}
		/* 24 may be waiting at most */
		if (rnd() % 32 == 0) {
			must(ibv_resize_cq(s->scq, 24 + rnd() % 1000));
			resized++;
		}
		n = ibv_poll_cq(s->scq, 1 + rnd() % ARRAY(wc), wc);
		assert_true(n <= ARRAY(wc));
		for (unsigned i = 0; i < n; i++) {
			assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
			if (wc[i].opcode & IBV_WC_RECV) {
				assert_int_equal(wc[i].wr_id, received | 1u << 20);
				assert_int_equal(wc[i].byte_len, 1 + received % 40);
				received++;
			} else {
				assert_int_equal(wc[i].wr_id, got);
				got++;
			}
		}
	}
	assert_true(resized > 100);
}

static void resize_under_traffic(UNUSED void **state)
{
	struct side s;

	for (int wide = 0; wide < 2; wide++) {
		if (wide)
			setenv("MLX5_CQE_SIZE", "128", 1);
		open_self(&s, 100, NULL);
		unsetenv("MLX5_CQE_SIZE");
		resize_traffic(&s);
		close_self(&s);
	}
}

/*
 * A resize takes no room: with what waits, as many fit as the new size says, and one more does not
 */
static void resize_full(UNUSED void **state)
{
	struct side s;

	for (int more = 0; more < 2; more++) {
		open_self(&s, 31, NULL);
		memset(s.buf, 1, 8);
		write_some(&s, 0, 6);
		landed(&s, 1);
		must(ibv_resize_cq(s.scq, 63));
		must(ibv_resize_cq(s.scq, 7));
		must(ibv_resize_cq(s.scq, 15));
		assert_int_equal(s.scq->cqe, 15);
		memset(s.buf, 2, 8);
		write_some(&s, 6, 10 + more);
		if (more) {
			assert_ptr_equal(expect_event(ctx, IBV_EVENT_CQ_ERR), s.scq);
		} else {
			landed(&s, 2);
			assert_false(readable(ctx->async_fd, 2));
			for (unsigned j = 0; j < 16; j++)
				expect_op(s.scq, j, IBV_WC_RDMA_WRITE);
			write_some(&s, 50, 16);
			for (unsigned j = 0; j < 16; j++)
				expect_op(s.scq, 50 + j, IBV_WC_RDMA_WRITE);
		}
		close_self(&s);
	}
}

/* Armed before, and still after */
static void resize_armed(UNUSED void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct side s;

	assert_non_null(ch);
	open_self(&s, 31, ch);
	for (int i = 0; i < 5; i++) {
		must(ibv_req_notify_cq(s.scq, 0));
		must(ibv_resize_cq(s.scq, i & 1 ? 31 : 500));
		assert_false(readable(ch->fd, 5));
		write_some(&s, 1, 1);
		expect_cq_event(ch, s.scq);
		expect_op(s.scq, 1, IBV_WC_RDMA_WRITE);
	}
	close_self(&s);
	must(ibv_destroy_comp_channel(ch));
}

/* ---- overrun ---- */

/* A CQ that ignores overrun: the device goes round and round, and reports nothing */
static void ignore_overrun(UNUSED void **state)
{
	struct ibv_cq_init_attr_ex ci = { .cqe = 3, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN };
	struct ibv_cq_ex *cx = ibv_create_cq_ex(ctx, &ci);
	struct how how = usual;
	struct side s;

	assert_non_null(cx);
	how.cq = ibv_cq_ex_to_cq(cx);
	open_side(&s, &how);
	bring_up(s.qp, s.qp->qp_num, &how);
	memset(s.buf, 3, 8);
	for (int i = 0; i < 6; i++) {
		s.buf[0] = 10 + i;
		write_some(&s, 10 * i, 10);
		landed(&s, 10 + i);
	}
	assert_false(readable(ctx->async_fd, 5));
	assert_int_equal(state_of(s.qp), IBV_QPS_RTS);
	close_self(&s);
}

/* One more: the CQ is dead, its QP has stopped, others have not; a new pair works */
static void overrun(UNUSED void **state)
{
	struct side s, other;

	open_self(&s, 15, NULL);
	open_self(&other, 63, NULL);
	write_some(&s, 0, 17);
	assert_ptr_equal(expect_event(ctx, IBV_EVENT_CQ_ERR), s.scq);
	write_some(&other, 5, 1);
	expect_op(other.scq, 5, IBV_WC_RDMA_WRITE);
	assert_int_equal(state_of(s.qp), IBV_QPS_ERR);
	assert_int_equal(state_of(other.qp), IBV_QPS_RTS);
	/* What was in it before is good */
	for (int i = 0; i < 16 && ibv_poll_cq(s.scq, 1, &wc) == 1; i++) {
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	memset(s.buf, 0xab, 8);
	write_some(&s, 0, 1);
	usleep(2000);
	assert_int_equal(ibv_poll_cq(s.scq, 1, &wc), 0);
	close_self(&s);
	close_self(&other);
}

/* ---- channels ---- */

/* Armed again before anything is polled: what an event has told of already brings no second one */
static void armed_before_polled(UNUSED void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct side s;

	open_self(&s, 63, ch);
	must(ibv_req_notify_cq(s.scq, 0));
	for (int i = 0; i < 6; i++) {
		write_some(&s, i, 1);
		expect_cq_event(ch, s.scq);
		must(ibv_req_notify_cq(s.scq, 0));
		assert_false(readable(ch->fd, 5));
		/* Two wait, then both are taken */
		if (i & 1) {
			expect_op(s.scq, i - 1, IBV_WC_RDMA_WRITE);
			expect_op(s.scq, i, IBV_WC_RDMA_WRITE);
			must(ibv_req_notify_cq(s.scq, 0));
			assert_false(readable(ch->fd, 5));
		}
	}
	close_self(&s);
	must(ibv_destroy_comp_channel(ch));
}

/* Solicited only: completions that ask for it, and errors, which always do */
static void solicited(UNUSED void **state)
{
	struct how how = usual;

	how.channel = ibv_create_comp_channel(ctx);
	open_pair(s, &how);
	sg = sge(&s[0], 0, 8);
	must(ibv_req_notify_cq(s[1].rcq, 1));
	for (int i = 0; i < 6; i++) {
		recv_at(&s[1], i, 0, 64);
		wr = request(i & 1 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND, i, &sg, 1, &s[1], 0);
		wr.send_flags |= i == 4 ? IBV_SEND_SOLICITED : 0;
		post(&s[0], &wr);
		expect(s[0].scq, i, IBV_WC_SUCCESS);
		expect(s[1].rcq, i, IBV_WC_SUCCESS);
		assert_int_equal(readable(how.channel->fd, i == 4 ? PATIENCE * 1000 : 3), i == 4);
		if (i == 4) {
			expect_cq_event(how.channel, s[1].rcq);
			must(ibv_req_notify_cq(s[1].rcq, 1));
		}
	}
	/* A plain arm is for any; a solicited one after it does not take that back */
	must(ibv_req_notify_cq(s[0].scq, 0));
	/* A device that polls sees the last of two doorbells only. When these two are done it has seen this one. */
	for (int i = 0; i < 2; i++) {
		struct ibv_sge back = sge(&s[1], 0, 8);

		wr = request(IBV_WR_RDMA_WRITE, 8, &back, 1, &s[0], 0);
		post(&s[1], &wr);
		expect(s[1].scq, 8, IBV_WC_SUCCESS);
	}
	must(ibv_req_notify_cq(s[0].scq, 1));
	wr = request(IBV_WR_RDMA_WRITE, 9, &sg, 1, &s[1], 0);
	post(&s[0], &wr);
	expect_cq_event(how.channel, s[0].scq);
	expect(s[0].scq, 9, IBV_WC_SUCCESS);
	/* Flushed receives */
	recv_at(&s[1], 20, 0, 64);
	must(move(s[1].qp, IBV_QPS_ERR, 0, &how));
	expect_cq_event(how.channel, s[1].rcq);
	expect(s[1].rcq, 20, IBV_WC_WR_FLUSH_ERR);
	close_pair(s);
	must(ibv_destroy_comp_channel(how.channel));
}

/* ---- acknowledgement ---- */

struct waiter {
	pthread_t thread;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	volatile int done;
};

static void *destroyer(void *arg)
{
	struct waiter *w = arg;
	int err = w->qp ? ibv_destroy_qp(w->qp) : ibv_destroy_cq(w->cq);

	w->done = err ? -1 : 1;
	return NULL;
}

/*
 * Events that were read and not acknowledged hold up the destruction of what they are about, and
 * only that
 */
static void acknowledgements(UNUSED void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct ibv_async_event ev;
	struct waiter w = { .done = 0 };
	struct ibv_cq *cq;
	struct side s, t[2];
	void *arg;

	open_self(&s, 31, ch);
	for (int i = 0; i < 3; i++) {
		must(ibv_req_notify_cq(s.scq, 0));
		write_some(&s, i, 1);
		must(ibv_get_cq_event(ch, &cq, &arg));
		expect_op(s.scq, i, IBV_WC_RDMA_WRITE);
	}
	close_side_but_cqs(&s);
	w.cq = s.scq;
	must(pthread_create(&w.thread, NULL, destroyer, &w));
	usleep(20000);
	assert_int_equal(w.done, 0);
	ibv_ack_cq_events(cq, 2);
	usleep(20000);
	assert_int_equal(w.done, 0);
	ibv_ack_cq_events(cq, 1);
	must(pthread_join(w.thread, NULL));
	assert_int_equal(w.done, 1);
	must(ibv_destroy_comp_channel(ch));

	/* The same with an asynchronous event */
	open_pair(t, &usual);
	sg = sge(&t[0], 0, 8);
	wr = request(IBV_WR_RDMA_WRITE, 3, &sg, 1, &t[1], SIZE);
	post(&t[0], &wr);
	expect(t[0].scq, 3, IBV_WC_REM_ACCESS_ERR);
	assert_true(readable(ctx->async_fd, PATIENCE * 1000));
	must(ibv_get_async_event(ctx, &ev));
	assert_int_equal(ev.event_type, IBV_EVENT_QP_ACCESS_ERR);
	assert_ptr_equal(ev.element.qp, t[1].qp);
	close_side(&t[0]);
	w = (struct waiter){ .qp = t[1].qp };
	must(pthread_create(&w.thread, NULL, destroyer, &w));
	usleep(20000);
	assert_int_equal(w.done, 0);
	ibv_ack_async_event(&ev);
	must(pthread_join(w.thread, NULL));
	assert_int_equal(w.done, 1);
	must(ibv_destroy_cq(t[1].scq));
	must(ibv_destroy_cq(t[1].rcq));
	must(ibv_dereg_mr(t[1].mr));
	munmap(t[1].buf, SIZE);
}

/* Armed after the CQE has come: the event comes at once, as the program has not taken it; unread, it holds up nothing */
static void late_arm(UNUSED void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct side s;

	for (int read = 1; read >= 0; read--) {
		open_self(&s, 31, ch);
		memset(s.buf, 1, 8);
		write_some(&s, 0, 1);
		landed(&s, 1);
		assert_false(readable(ch->fd, 5));
		must(ibv_req_notify_cq(s.scq, 0));
		if (read)
			expect_cq_event(ch, s.scq);
		else
			assert_true(readable(ch->fd, PATIENCE * 1000));
		close_self(&s);
		assert_false(readable(ch->fd, 0));
	}
	must(ibv_destroy_comp_channel(ch));
}

/* ---- asynchronous events ---- */

/* One that nobody reads goes with its object */
static void unread_event(UNUSED void **state)
{
	open_request(&usual, IBV_WR_RDMA_WRITE, 3, 8, SIZE);
	post(&s[0], &wr);
	expect(s[0].scq, 3, IBV_WC_REM_ACCESS_ERR);
	assert_true(readable(ctx->async_fd, PATIENCE * 1000));
	close_pair(s);
	assert_false(readable(ctx->async_fd, 5));
}

/* A first message while the receiver is in RTR */
static void communication_established(UNUSED void **state)
{
	open_side(&s[0], &usual);
	open_side(&s[1], &usual);
	bring_up(s[0].qp, s[1].qp->qp_num, &usual);
	must(move(s[1].qp, IBV_QPS_INIT, 0, &usual));
	recv_at(&s[1], 1, 0, 64);
	must(move(s[1].qp, IBV_QPS_RTR, s[0].qp->qp_num, &usual));
	assert_false(readable(ctx->async_fd, 2));
	wr = first_to_second(IBV_WR_SEND, 2, 0, 8, 0);
	post_done(&s[0], &wr);
	expect_op(s[1].rcq, 1, IBV_WC_RECV);
	assert_ptr_equal(expect_event(ctx, IBV_EVENT_COMM_EST), s[1].qp);
	recv_at(&s[1], 3, 0, 64);
	post(&s[0], &wr);
	expect_op(s[1].rcq, 3, IBV_WC_RECV);
	assert_false(readable(ctx->async_fd, 5));
	close_pair(s);
}

/*
 * A send queue that is drained holds what is posted until it is let go on; it says so once it has
 * nothing under way
 */
static void drained(UNUSED void **state)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct side s;

	open_self(&s, 63, NULL);
	for (int round = 0; round < 3; round++) {
		memset(s.buf, 2 * round + 1, 8);
		write_some(&s, 0, 3);
		for (int i = 0; i < 3; i++)
			expect_op(s.scq, i, IBV_WC_RDMA_WRITE);
		a.qp_state = IBV_QPS_SQD;
		must(ibv_modify_qp(s.qp, &a, IBV_QP_STATE | (round < 2 ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0)));
		if (round < 2)
			assert_ptr_equal(expect_event(ctx, IBV_EVENT_SQ_DRAINED), s.qp);
		assert_false(readable(ctx->async_fd, 2));
		memset(s.buf, 2 * round + 2, 8);
		write_some(&s, 5, 2);
		expect_nothing(s.scq);
		assert_int_equal(s.buf[HALF], 2 * round + 1);
		a.qp_state = IBV_QPS_RTS;
		must(ibv_modify_qp(s.qp, &a, IBV_QP_STATE));
		expect_op(s.scq, 5, IBV_WC_RDMA_WRITE);
		expect_op(s.scq, 6, IBV_WC_RDMA_WRITE);
		assert_int_equal(s.buf[HALF], 2 * round + 2);
	}
	close_self(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(resize_pending), TEST(resize_refused), TEST(resize_at_once), TEST(resize_under_traffic),
		TEST(resize_full), TEST(resize_armed), TEST(ignore_overrun), TEST(overrun), TEST(armed_before_polled),
		TEST(solicited), TEST(late_arm), TEST(unread_event), TEST(acknowledgements),
		TEST(communication_established), TEST(drained),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
