/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * threads.c: several threads on one device, each with objects of its own and all with one domain:
 * traffic of every kind goes on while objects come and go beside it. In threads nothing asserts;
 * what is wrong is counted.
 */
#include "rig.h"

#define SECONDS 0.6

struct task {
	pthread_t thread;
	void (*run)(struct task *);
	enum ibv_qp_type type;
	unsigned bad, done, seed;
	double end;
};

static struct ibv_ah *ah;

static uint32_t any(struct task *t)
{
	t->seed = t->seed * 1103515245 + 12345;
	return t->seed >> 16;
}

/* A call that should give what is not zero */
#define want(t, good) ((t)->bad += !(good))

static bool polled(struct ibv_cq *cq, struct ibv_wc *wc)
{
	double end = now() + PATIENCE;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, wc)) && now() < end)
		sched_yield();
	return n == 1 && wc->status == IBV_WC_SUCCESS;
}

static struct ibv_qp *new_qp(struct task *t, enum ibv_qp_type type, struct ibv_cq *cq, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .srq = srq, .cap = usual.cap, .qp_type = type };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	want(t, qp);
	return qp;
}

static bool raise_qp(struct ibv_qp *qp, uint32_t dest)
{
	struct how how = how_of_type(qp->qp_type);

	return !move(qp, IBV_QPS_INIT, dest, &how) && !move(qp, IBV_QPS_RTR, dest, &how) && !move(qp, IBV_QPS_RTS, dest, &how);
}

/*
 * Messages through a QP to itself, received by an SRQ, slept for on a channel, its CQ resized now
 * and then
 */
static void messages(struct task *t)
{
	const enum ibv_qp_type type = t->type;
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct ibv_srq_init_attr si = { .attr = { .max_wr = 31, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &si);
	struct ibv_cq *cq = ibv_create_cq(ctx, 63, NULL, ch, 0), *from;
	uint8_t *buf = aligned_alloc(4096, 65536);
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, 65536, ALL_ACCESS);
	struct ibv_qp *qp = new_qp(t, type, cq, srq);
	unsigned header = type == IBV_QPT_UD ? GRH_BYTES : 0, events = 0;
	void *arg;

	if (!ch || !srq || !cq || !mr || !qp || !raise_qp(qp, qp->qp_num)) {
		t->bad++;
		return;
	}
	while (now() < t->end || t->done <= 3) {
		uint32_t len = 1 + any(t) % 4000;
		struct ibv_sge to = { .addr = (uintptr_t)buf + 32768, .length = 8192, .lkey = mr->lkey },
			       sg = { .addr = (uintptr_t)buf, .length = len, .lkey = mr->lkey };
		struct ibv_recv_wr rwr = { .wr_id = 7, .sg_list = &to, .num_sge = 1 }, *rbad;
		struct ibv_send_wr wr = { .wr_id = 8, .sg_list = &sg, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
		unsigned got = 0;
		struct ibv_wc wc;

		fill(buf, len, any(t));
		if (type == IBV_QPT_UD)
			address(&wr, ah, qp->qp_num);
		want(t, !ibv_post_srq_recv(srq, &rwr, &rbad));
		want(t, !ibv_req_notify_cq(cq, 0));
		want(t, !ibv_post_send(qp, &wr, &bad));
		if (any(t) % 16 == 0)
			want(t, !ibv_resize_cq(cq, 20 + any(t) % 500));
		if (any(t) % 4 == 0) {
			want(t, readable(ch->fd, PATIENCE * 1000) && !ibv_get_cq_event(ch, &from, &arg) && from == cq);
			events++;
		}
		while (got != 3 && !t->bad) {
			want(t, polled(cq, &wc));
			got |= wc.wr_id == 7 ? 1 : 2;
			if (wc.wr_id == 7)
				want(t, wc.byte_len == header + len);
		}
		want(t, !memcmp(buf, buf + 32768 + header, len));
		while (readable(ch->fd, 0)) {
			want(t, !ibv_get_cq_event(ch, &from, &arg));
			events++;
		}
		if (t->bad)
			break;
		t->done++;
	}
	ibv_ack_cq_events(cq, events);
	want(t, !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_destroy_srq(srq) && !ibv_dereg_mr(mr) && !ibv_destroy_comp_channel(ch));
	free(buf);
}

/* Objects come, are used once, and go, in the middle of something as often as not */
static void come_and_go(struct task *t)
{
	uint8_t *buf = aligned_alloc(4096, 65536);

	while ((now() < t->end || t->done <= 3) && !t->bad) {
		struct ibv_cq *cq = ibv_create_cq(ctx, 31, NULL, NULL, 0);
		struct ibv_mr *mr = ibv_reg_mr(pd, buf, 65536, ALL_ACCESS | IBV_ACCESS_MW_BIND);
		struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
		struct ibv_qp *qp = cq ? new_qp(t, any(t) % 2 ? IBV_QPT_RC : IBV_QPT_UC, cq, NULL) : NULL;
		struct ibv_sge sg;
		struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sg, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
		struct ibv_mw_bind b = { .wr_id = 2, .send_flags = IBV_SEND_SIGNALED };
		struct ibv_wc wc;

		want(t, cq && mr && mw && qp && raise_qp(qp, qp->qp_num));
		if (t->bad)
			break;
		b.bind_info = (struct ibv_mw_bind_info){ .mr = mr, .addr = (uintptr_t)buf + 32768, .length = 32768,
							 .mw_access_flags = IBV_ACCESS_REMOTE_WRITE };
		want(t, !ibv_bind_mw(qp, mw, &b) && polled(cq, &wc));
		sg = (struct ibv_sge){ .addr = (uintptr_t)buf, .length = 30000, .lkey = mr->lkey };
		fill(buf, 30000, any(t));
		wr.wr.rdma.remote_addr = (uintptr_t)buf + 32768;
		wr.wr.rdma.rkey = mw->rkey;
		want(t, !ibv_post_send(qp, &wr, &bad));
		if (any(t) % 2) {
			want(t, polled(cq, &wc));
			if (qp->qp_type == IBV_QPT_RC)
				want(t, !memcmp(buf, buf + 32768, 30000));
		}
		want(t, !ibv_destroy_qp(qp) && !ibv_dealloc_mw(mw) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq));
		t->done++;
	}
	free(buf);
}

static void *start(void *arg)
{
	struct task *t = arg;

	t->run(t);
	return NULL;
}

static void all_at_once(UNUSED void **state)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	struct task t[5];

	ah = own_ah();
	for (unsigned i = 0; i < ARRAY(t); i++) {
		t[i] = (struct task){ .run = i < 3 ? messages : come_and_go, .type = types[i % 3], .seed = i + 1, .end = now() + SECONDS };
		must(pthread_create(&t[i].thread, NULL, start, &t[i]));
	}
	for (unsigned i = 0; i < ARRAY(t); i++)
		must(pthread_join(t[i].thread, NULL));
	for (unsigned i = 0; i < ARRAY(t); i++) {
		if (t[i].bad)
			print_error("thread %u: %u bad after %u good rounds\n", i, t[i].bad, t[i].done);
		assert_int_equal(t[i].bad, 0);
		assert_true(t[i].done > 3);
	}
	must(ibv_destroy_ah(ah));
	assert_false(readable(ctx->async_fd, 5));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(all_at_once),
	};

	return cmocka_run_group_tests(tests, setup, teardown) + (NO_TRAPS ? 0 : again_with("SOFTDEV_TRAP", "1"));
}
