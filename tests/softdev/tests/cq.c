/* SPDX-License-Identifier: BSD-3-Clause */
/* cq.c: completion queues: resize, overrun, channels, asynchronous events and what waits for their acknowledgement */
#include "rig.h"

static void open_own(struct side *s, int cqe, struct ibv_comp_channel *channel)
{
	struct how how = usual;

	how.cap.max_send_wr = how.cap.max_recv_wr = 512;
	how.cq = made(ibv_create_cq(ctx, cqe, s, channel, 0));
	open_self(s, &how);
}

static void write_some(struct side *s, unsigned first, unsigned n)
{
	for (unsigned i = first; i < first + n; i++) {
		struct ibv_sge sg = sge(s, 0, 8);
		struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, i, &sg, 1, s, HALF);

		post(s, &wr);
	}
}

static void written(struct side *s, unsigned first, unsigned n)
{
	for (unsigned i = first; i < first + n; i++)
		expect_op(s->scq, i, IBV_WC_RDMA_WRITE);
}

/* ---- resize ---- */

/* What was rung before has to fit, whether or not it has completed; else all stays as it was */
TEST(resize_refused)
{
	struct ibv_device_attr dev;

	must(ibv_query_device(ctx, &dev));
	for (unsigned i = 6; i < 26; i++) {
		const int sizes[] = { -1, dev.max_cqe + 1, 3 };

		open_own(s, 63, NULL);
		write_some(s, 0, i);
		for (unsigned k = i == 6 ? 0 : 2; k < ARRAY(sizes); k++) /* libmlx5 fills the large one first */
			assert_int_equal(ibv_resize_cq(s->scq, sizes[k]), EINVAL);
		assert_int_equal(s->scq->cqe, 63);
		written(s, 0, i);
		must(ibv_resize_cq(s->scq, 3));
		assert_int_equal(s->scq->cqe, 3);
		close_side(s);
	}
}

/* Under traffic nothing is lost, doubled or out of order */
TEST(resize_traffic)
{
	for (int wide = 0; wide < 2; wide++) {
		unsigned sent = 0, got[2] = { 0 }, resized = 0;
		double end = now() + PATIENCE;

		if (wide)
			setenv("MLX5_CQE_SIZE", "128", 1);
		open_own(s, 100, NULL);
		unsetenv("MLX5_CQE_SIZE");
		while (got[0] < 1500 || got[1] < 1500) {
			struct ibv_wc wc[16];
			int n;

			assert_true(now() < end);
			for (; sent - got[0] < 12 && sent - got[1] < 12 && sent < 1500; sent++) {
				sg = sge(s, 0, 1 + sent % 40);
				wr = request(IBV_WR_SEND, sent, &sg, 1, s, 0);
				recv_at(s, sent, HALF, 64);
				post(s, &wr);
			}
			if (rnd() % 16 == 0) { /* at most 24 wait */
				must(ibv_resize_cq(s->scq, 24 + rnd() % 1000));
				resized++;
			}
			n = ibv_poll_cq(s->scq, 1 + rnd() % ARRAY(wc), wc);
			assert_true(n >= 0);
			for (int i = 0; i < n; i++) {
				bool recv = wc[i].opcode & IBV_WC_RECV;

				assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
				assert_true(!recv || wc[i].byte_len == 1 + got[1] % 40);
				assert_int_equal(wc[i].wr_id, got[recv]++);
			}
		}
		assert_true(resized > 20);
		close_side(s);
	}
}

/* libmlx5 does not poll them: a title that counts, and eight minis to a slot in slots 1, 8, 16 after it */
static void lengths_of_compressed(const uint8_t *cqes, unsigned n, uint32_t first)
{
	uint32_t len, cnt;

	for (unsigned at = 0; at < n; at += cnt) {
		const volatile uint8_t *own = cqes + 128 * at + 63;

		until(*own >> 4 != 0xf);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		memcpy(&len, cqes + 128 * at + 44, 4);
		cnt = (*own >> 2 & 3) == 3 ? be32toh(len) : 1;
		assert_true(cnt >= 1 && at + cnt <= n);
		for (unsigned k = 0; k < cnt; k++) {
			if (cnt > 1)
				memcpy(&len, cqes + 128 * (at + (k < 8 ? 1 : k & ~7u)) + 8 * (k & 7) + 4, 4);
			assert_int_equal(be32toh(len), first + at + k);
		}
	}
}

/* Of wide CQEs the first half has data, zeros where padding is asked for, or what it had; compressed ones lie in the second */
TEST(wide)
{
	static const struct {
		uint32_t size, flags;
		uint8_t format, first;
	} rows[] = {
		{ 128, 0, 0, 0xee }, { 128, MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD, 0, 0 }, { 128, 0, MLX5DV_CQE_RES_FORMAT_HASH, 0xee },
		{ 128, 0, MLX5DV_CQE_RES_FORMAT_CSUM, 0xee }, { 64, MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD, 0, 1 },
	};

	for (unsigned i = 0; i < ARRAY(rows); i++) {
		struct mlx5dv_cq_init_attr dv = { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, .cqe_size = rows[i].size };
		struct ibv_cq_init_attr_ex a = { .cqe = 255, .wc_flags = IBV_WC_STANDARD_FLAGS };
		struct mlx5dv_cq out;
		struct mlx5dv_obj obj = { .cq.out = &out };
		uint64_t blocks = softdev_present() ? softdev_blocks() : 0;
		struct how how = usual;
		struct ibv_cq_ex *ex;
		uint8_t *half;

		dv.comp_mask |= rows[i].flags ? MLX5DV_CQ_INIT_ATTR_MASK_FLAGS : 0;
		dv.comp_mask |= rows[i].format ? MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE : 0;
		dv.flags = rows[i].flags;
		dv.cqe_comp_res_format = rows[i].format;
		ex = mlx5dv_create_cq(ctx, &a, &dv);
		assert_int_equal(!ex, rows[i].first == 1);
		if (!ex)
			continue;
		how.cq = ibv_cq_ex_to_cq(ex);
		obj.cq.in = how.cq;
		must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ));
		assert_int_equal(out.cqe_size, 128);
		half = out.buf;
		for (unsigned k = 0; k < out.cqe_cnt; k++)
			memset(half + 128 * k, 0xee, 64);
		open_self(s, &how);
		fill(s->buf, SIZE, i);
		for (unsigned k = 0; k < 32; k++)
			recv_at(s, k, HALF + 4096 * k, 4096);
		for (unsigned k = 0; k < 32; k++) { /* the first fits into its CQE, if that one is not compressed */
			sg = sge(s, 4096 * k, k || rows[i].format ? 100 + k : 50);
			wr = request(IBV_WR_SEND, 100 + k, &sg, 1, s, 0);
			wr.send_flags = 0;
			post(s, &wr);
		}
		if (rows[i].format) {
			lengths_of_compressed(half + 64, 32, 100);
		} else {
			for (unsigned k = 0; k < 32; k++)
				expect_op(s->rcq, k, IBV_WC_RECV);
			assert_memory_equal(half, s->buf, 50);
		}
		for (unsigned k = 0; k < 32; k++)
			assert_memory_equal(s->buf + HALF + 4096 * k, s->buf + 4096 * k, k || rows[i].format ? 100 + k : 50);
		for (unsigned k = 1; k < 32; k++)
			for (unsigned at = 0; at < 64; at++)
				assert_int_equal(half[128 * k + at], rows[i].first);
		assert_true(!softdev_present() || rows[i].format || softdev_blocks() == blocks);
		close_side(s);
	}
}

/*
 * With what waits, as many fit as the latest size says. One more: the CQ is dead and its QP has stopped, others have not, and what
 * was in it is good.
 */
TEST(overrun)
{
	for (int more = 0; more < 2; more++) {
		open_own(&s[0], 31, NULL);
		open_own(&s[1], 31, NULL);
		write_some(s, 0, 6);
		for (unsigned i = 0; i < 3; i++)
			must(ibv_resize_cq(s->scq, (const int[]){ 63, 7, 15 }[i]));
		assert_int_equal(s->scq->cqe, 15);
		write_some(s, 6, 10 + more);
		if (more)
			assert_ptr_equal(expect_event(ctx, IBV_EVENT_CQ_ERR), s->scq);
		write_some(&s[1], 5, 1);
		written(&s[1], 5, 1);
		assert_int_equal(state_of(s[0].qp), more ? IBV_QPS_ERR : IBV_QPS_RTS);
		assert_int_equal(state_of(s[1].qp), IBV_QPS_RTS);
		written(s, 0, 16);
		write_some(s, 50, 16);
		if (more)
			expect_nothing(s->scq);
		else
			written(s, 50, 16);
		assert_true(more || !readable(ctx->async_fd, 2));
		close_pair(s);
	}
}

/* A CQ that ignores overrun: the device goes round, and reports nothing */
TEST(ignore_overrun)
{
	struct ibv_cq_init_attr_ex ci = { .cqe = 3, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN };
	struct how how = usual;

	how.cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(ctx, &ci));
	open_self(s, &how);
	for (unsigned i = 1; i < 7; i++) {
		s->buf[0] = i;
		write_some(s, 0, 10);
		until(((volatile uint8_t *)s->buf)[HALF] == i);
	}
	assert_false(readable(ctx->async_fd, 5));
	close_side(s);
}

/* ---- channels ---- */

/* Armed before a resize, and still after; unread, an event holds up nothing. queue/events.c has arming at every other moment. */
TEST(arming)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);

	open_own(s, 31, ch);
	for (int i = 0; i < 5; i++) {
		must(ibv_req_notify_cq(s->scq, 0));
		must(ibv_resize_cq(s->scq, i & 1 ? 31 : 500));
		assert_false(readable(ch->fd, 5));
		write_some(s, i, 1);
		if (i < 4) {
			expect_cq_event(ch, s->scq);
			must(ibv_req_notify_cq(s->scq, 0)); /* not polled yet, but told of: no second event */
			assert_false(readable(ch->fd, 5));
		}
		written(s, i, 1);
	}
	assert_true(readable(ch->fd, PATIENCE * 1000));
	close_side(s);
	assert_false(readable(ch->fd, 0));
	must(ibv_destroy_comp_channel(ch));
}

/* An arm for solicited completions is for errors too, and does not take back a plain one, which is for any */
TEST(solicited)
{
	struct how how = usual;

	how.channel = ibv_create_comp_channel(ctx);
	open_pair(s, &how);
	must(ibv_req_notify_cq(s[0].scq, 0));
	for (int i = 0; i < 2; i++) { /* a device that polls has seen that arm once both of these are done */
		sg = sge(&s[1], 0, 8);
		wr = request(IBV_WR_RDMA_WRITE, 8, &sg, 1, &s[0], 0);
		post_done(&s[1], &wr);
	}
	must(ibv_req_notify_cq(s[0].scq, 1));
	wr = first_to_second(IBV_WR_RDMA_WRITE, 9, 0, 8, 0);
	post(&s[0], &wr);
	expect_cq_event(how.channel, s[0].scq);
	expect(s[0].scq, 9, IBV_WC_SUCCESS);
	must(ibv_req_notify_cq(s[1].rcq, 1));
	recv_at(&s[1], 20, 0, 64);
	must(move(s[1].qp, IBV_QPS_ERR, 0, &how));
	expect_cq_event(how.channel, s[1].rcq);
	expect(s[1].rcq, 20, IBV_WC_WR_FLUSH_ERR);
	close_pair(s);
	must(ibv_destroy_comp_channel(how.channel));
}

/* ---- asynchronous events, and acknowledgement ---- */

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

static void is_held_up(const struct waiter *w)
{
	usleep(20000);
	assert_int_equal(w->done, 0);
}

/* Events that were read and not acknowledged hold up the destruction of what they are about, and only that */
TEST(acknowledgements)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct ibv_async_event ev;
	struct waiter w = { .done = 0 };
	void *arg;

	open_own(s, 31, ch);
	for (int i = 0; i < 3; i++) {
		must(ibv_req_notify_cq(s->scq, 0));
		write_some(s, i, 1);
		must(ibv_get_cq_event(ch, &w.cq, &arg));
		written(s, i, 1);
	}
	close_side_but_cqs(s);
	must(pthread_create(&w.thread, NULL, destroyer, &w));
	is_held_up(&w);
	ibv_ack_cq_events(w.cq, 2);
	is_held_up(&w);
	ibv_ack_cq_events(w.cq, 1);
	must(pthread_join(w.thread, NULL));
	assert_int_equal(w.done, 1);
	must(ibv_destroy_comp_channel(ch));

	open_request(&usual, IBV_WR_RDMA_WRITE, 3, 8, SIZE);
	post(&s[0], &wr);
	expect(s[0].scq, 3, IBV_WC_REM_ACCESS_ERR);
	must(ibv_get_async_event(ctx, &ev));
	assert_int_equal(ev.event_type, IBV_EVENT_QP_ACCESS_ERR);
	assert_ptr_equal(ev.element.qp, s[1].qp);
	close_side(&s[0]);
	w = (struct waiter){ .qp = s[1].qp };
	must(pthread_create(&w.thread, NULL, destroyer, &w));
	is_held_up(&w);
	ibv_ack_async_event(&ev);
	must(pthread_join(w.thread, NULL));
	assert_int_equal(w.done, 1);
	must(ibv_destroy_cq(s[1].scq) || ibv_destroy_cq(s[1].rcq) || ibv_dereg_mr(s[1].mr));
	munmap(s[1].buf, SIZE);
}

/* A first message while the receiver is in RTR */
TEST(communication_established)
{
	open_pair(s, &usual);
	must(move(s[1].qp, IBV_QPS_RESET, 0, &usual));
	must(move(s[1].qp, IBV_QPS_INIT, 0, &usual));
	must(move(s[1].qp, IBV_QPS_RTR, s[0].qp->qp_num, &usual));
	for (int i = 0; i < 2; i++) {
		assert_false(readable(ctx->async_fd, 2));
		recv_at(&s[1], i, 0, 64);
		wr = first_to_second(IBV_WR_SEND, 2, 0, 8, 0);
		post_done(&s[0], &wr);
		expect_op(s[1].rcq, i, IBV_WC_RECV);
		if (!i)
			assert_ptr_equal(expect_event(ctx, IBV_EVENT_COMM_EST), s[1].qp);
	}
	assert_false(readable(ctx->async_fd, 5));
	close_pair(s);
}

/* A drained send queue holds what is posted until it goes on; it says so, if asked, once it has nothing under way */
TEST(drained)
{
	struct ibv_qp_attr a = { .en_sqd_async_notify = 1 };

	open_own(s, 63, NULL);
	for (int notify = 0; notify < 2; notify++) {
		memset(s->buf, 2 * notify + 1, 8);
		write_some(s, 0, 3);
		written(s, 0, 3);
		a.qp_state = IBV_QPS_SQD;
		must(ibv_modify_qp(s->qp, &a, IBV_QP_STATE | (notify ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0)));
		if (notify)
			assert_ptr_equal(expect_event(ctx, IBV_EVENT_SQ_DRAINED), s->qp);
		assert_false(readable(ctx->async_fd, 2));
		memset(s->buf, 2 * notify + 2, 8);
		write_some(s, 5, 2);
		expect_nothing(s->scq);
		assert_int_equal(s->buf[HALF], 2 * notify + 1);
		a.qp_state = IBV_QPS_RTS;
		must(ibv_modify_qp(s->qp, &a, IBV_QP_STATE));
		written(s, 5, 2);
		assert_int_equal(s->buf[HALF], 2 * notify + 2);
	}
	close_side(s);
}

int main(void)
{
	return run_all(setup, teardown);
}
