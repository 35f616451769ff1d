/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * threads.c: several threads on one device, each with objects of its own and all with one domain: traffic of every kind goes on while
 * objects come and go beside it. In threads nothing asserts; what is wrong is counted.
 */
#include "rig.h"

#define ROUNDS 60

struct task {
	pthread_t thread;
	enum ibv_qp_type type;    /* of its messages; 0: objects come and go */
	unsigned bad, seed;
	uint8_t *buf;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
};

static unsigned moving; /* threads whose rounds are not done; all go on until it is 0, so that they stay beside each other */

static uint32_t any(struct task *t)
{
	t->seed = t->seed * 1103515245 + 12345;
	return t->seed >> 16;
}

/* A call that should give what is not zero */
#define want(t, good) ((t)->bad += !(good))

static bool polled(struct task *t, struct ibv_wc *wc)
{
	double end = now() + PATIENCE;
	int n;

	while (!(n = ibv_poll_cq(t->cq, 1, wc)) && now() < end)
		sched_yield();
	want(t, n == 1 && wc->status == IBV_WC_SUCCESS);
	return !t->bad;
}

/* A QP that is its own peer */
static struct ibv_qp *new_qp(struct task *t, enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = { .send_cq = t->cq, .recv_cq = t->cq, .srq = srq, .cap = usual.cap, .qp_type = type };
	struct ibv_qp *qp = t->cq ? ibv_create_qp(pd, &init) : NULL;
	struct how how = how_of_type(type);

	for (enum ibv_qp_state to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++)
		want(t, qp && !move(qp, to, qp->qp_num, &how));
	return qp;
}

static bool goes_on(struct task *t, unsigned done)
{
	if (done == ROUNDS || (t->bad && done < ROUNDS))
		__atomic_fetch_sub(&moving, 1, __ATOMIC_SEQ_CST);
	return !t->bad && __atomic_load_n(&moving, __ATOMIC_SEQ_CST);
}

/* Messages through an SRQ, slept for on a channel, the CQ resized now and then */
static void messages(struct task *t)
{
	const unsigned header = t->type == IBV_QPT_UD ? GRH_BYTES : 0;
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct ibv_srq_init_attr si = { .attr = { .max_wr = 31, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &si);
	struct ibv_cq *from;
	struct ibv_qp *qp;
	unsigned events = 0;
	void *arg;

	t->cq = ibv_create_cq(ctx, 63, NULL, ch, 0);
	t->mr = ibv_reg_mr(pd, t->buf, 65536, ALL_ACCESS);
	want(t, ch && srq && t->mr);
	qp = new_qp(t, t->type, srq);
	for (unsigned done = 0; goes_on(t, done); done++) {
		uint32_t len = 1 + any(t) % 4000;
		struct ibv_sge to = { .addr = (uintptr_t)t->buf + 32768, .length = 8192, .lkey = t->mr->lkey },
			       sg = { .addr = (uintptr_t)t->buf, .length = len, .lkey = t->mr->lkey };
		struct ibv_recv_wr rwr = { .wr_id = 7, .sg_list = &to, .num_sge = 1 }, *rbad;
		struct ibv_send_wr wr = { .wr_id = 8, .sg_list = &sg, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
		unsigned got = 0;
		struct ibv_wc wc;

		fill(t->buf, len, any(t));
		if (t->type == IBV_QPT_UD)
			address(&wr, ah, qp->qp_num);
		want(t, !ibv_post_srq_recv(srq, &rwr, &rbad) && !ibv_req_notify_cq(t->cq, 0) && !ibv_post_send(qp, &wr, &bad));
		if (any(t) % 16 == 0)
			want(t, !ibv_resize_cq(t->cq, 20 + any(t) % 500));
		if (any(t) % 4 == 0)
			want(t, readable(ch->fd, PATIENCE * 1000));
		while (got != 3 && polled(t, &wc)) {
			got |= wc.wr_id == 7 ? 1 : 2;
			want(t, wc.wr_id != 7 || wc.byte_len == header + len);
		}
		want(t, !memcmp(t->buf, t->buf + 32768 + header, len));
		for (; readable(ch->fd, 0); events++)
			want(t, !ibv_get_cq_event(ch, &from, &arg) && from == t->cq);
	}
	ibv_ack_cq_events(t->cq, events);
	want(t, !ibv_destroy_qp(qp) && !ibv_destroy_cq(t->cq) && !ibv_destroy_srq(srq) && !ibv_dereg_mr(t->mr) &&
		!ibv_destroy_comp_channel(ch));
}

/* Objects come, are used once, and go, in the middle of something as often as not */
static void come_and_go(struct task *t)
{
	for (unsigned done = 0; goes_on(t, done); done++) {
		struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
		struct ibv_send_wr wr = { .wr_id = 1, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
		struct ibv_mw_bind b = { .wr_id = 2, .send_flags = IBV_SEND_SIGNALED };
		struct ibv_qp *qp;
		struct ibv_sge sg;
		struct ibv_wc wc;

		t->cq = ibv_create_cq(ctx, 31, NULL, NULL, 0);
		t->mr = ibv_reg_mr(pd, t->buf, 65536, ALL_ACCESS | IBV_ACCESS_MW_BIND);
		qp = new_qp(t, any(t) % 2 ? IBV_QPT_RC : IBV_QPT_UC, NULL);
		want(t, t->mr && mw);
		if (t->bad)
			continue;
		b.bind_info = (struct ibv_mw_bind_info){ t->mr, (uintptr_t)t->buf + 32768, 32768, IBV_ACCESS_REMOTE_WRITE };
		want(t, !ibv_bind_mw(qp, mw, &b) && polled(t, &wc));
		sg = (struct ibv_sge){ .addr = (uintptr_t)t->buf, .length = 30000, .lkey = t->mr->lkey };
		fill(t->buf, 30000, any(t));
		wr.sg_list = &sg;
		aim(&wr, (uintptr_t)t->buf + 32768, mw->rkey);
		want(t, !ibv_post_send(qp, &wr, &bad));
		if (any(t) % 2 && polled(t, &wc))
			want(t, qp->qp_type == IBV_QPT_UC || !memcmp(t->buf, t->buf + 32768, 30000));
		want(t, !ibv_destroy_qp(qp) && !ibv_dealloc_mw(mw) && !ibv_dereg_mr(t->mr) && !ibv_destroy_cq(t->cq));
	}
}

static void *start(void *arg)
{
	struct task *t = arg;

	t->buf = aligned_alloc(4096, 65536);
	if (t->type)
		messages(t);
	else
		come_and_go(t);
	free(t->buf);
	return NULL;
}

TEST(all_at_once)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, 0, 0 };
	struct task t[ARRAY(types)];

	ah = own_ah();
	moving = ARRAY(t);
	for (unsigned i = 0; i < ARRAY(t); i++) {
		t[i] = (struct task){ .type = types[i], .seed = i + 1 };
		must(pthread_create(&t[i].thread, NULL, start, &t[i]));
	}
	for (unsigned i = 0; i < ARRAY(t); i++) {
		must(pthread_join(t[i].thread, NULL));
		if (t[i].bad)
			print_error("thread %u: %u bad\n", i, t[i].bad);
	}
	for (unsigned i = 0; i < ARRAY(t); i++)
		assert_int_equal(t[i].bad, 0);
	must(ibv_destroy_ah(ah));
	assert_false(readable(ctx->async_fd, 5));
}

int main(void)
{
	return run_all(setup, teardown) + (NO_TRAPS ? 0 : again_with("SOFTDEV_TRAP", "1"));
}
