/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * recover.c: a connection that breaks, and goes on without losing a completion, a buffer or a
 * message. Numbered messages go from one queue pair of this process to the other. Now and then a
 * write with a wrong key breaks the connection. Then both sides
 *
 *   stop      ibv_modify_qp to ERR: what is outstanding is flushed
 *   drain     poll until nothing is pending: each WQE and each receive has come back once
 *   reset     ibv_modify_qp to RESET, inlay_cq_clean, inlay_sq_reset and inlay_rq_reset
 *   connect   to RTS again, receives first
 *
 * and the sender begins after the last message that was acknowledged. A flushed message may have
 * arrived all the same: the receiver drops what it has seen. The queues are taken over once.
 */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <inlay/inlay.h>
#include "common/program.h"

#define WINDOW 16u      /* messages under way */
#define BUFFERS 32u     /* receives */

static uint32_t messages = 1000, breaks = 4;

static struct ibv_qp *from, *to;
static struct inlay_cq from_cq, to_cq;
static struct inlay_sq sq;
static struct inlay_rq rq;
static struct ibv_mr *mr;
static uint32_t *buffers;       /* one number each */

static uint32_t acknowledged;   /* messages whose completion was good */
static uint32_t received;       /* the number that comes next */
static uint32_t given, taken;   /* buffers: posted, come back */
static uint32_t connections;

/* ---- The receiver ---- */

static void give(void)
{
	while (given - taken < BUFFERS) {
		struct ibv_sge sge = {(uintptr_t)&buffers[given % BUFFERS], sizeof(*buffers), mr->lkey};

		must(!inlay_post_recv(&rq, &sge, 1), "posting a receive");
		given++;
	}
	inlay_rq_ring(&rq);
}

/* One completion, if there is one. A flushed buffer comes back as any other. */
static void receive(void)
{
	const struct mlx5_cqe64 *cqe = inlay_cq_peek(&to_cq);

	if (!cqe)
		return;
	if (!inlay_cqe_is_error(cqe)) {
		uint32_t number;

		memcpy(&number, inlay_cqe_data(cqe, inlay_cq_cqe_size(&to_cq), &buffers[taken % BUFFERS]), sizeof(number));
		must(number <= received, "receiving without a gap");
		received += number == received;
	}
	must(inlay_rq_release(&rq, cqe) == 1, "the receive's completion");
	inlay_cq_advance(&to_cq, 1);
	taken++;
}

/* ---- The sender ---- */

/* One completion, if there is one. Returns 0 when it was an error's. */
static int acknowledge(void)
{
	const struct mlx5_cqe64 *cqe = inlay_cq_peek(&from_cq);
	int good;

	if (!cqe)
		return 1;
	good = !inlay_cqe_is_error(cqe);
	acknowledged += good;
	must(inlay_sq_release(&sq, cqe) > 0, "the send's completion");
	inlay_cq_advance(&from_cq, 1);
	return good;
}

/* ---- The connection ---- */

static void up(void)
{
	need(inlay_connect_pair(from, to, NULL, &why), "connecting");
	give();
	connections++;
}

static void change(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "ibv_modify_qp");
}

static void recover(uint64_t end)
{
	change(from, IBV_QPS_ERR);
	change(to, IBV_QPS_ERR);

	/* All sends are signaled. With others, a signaled NOP would be posted here: its flush is the last. */
	while (inlay_sq_pending(&sq) || inlay_rq_pending(&rq)) {
		acknowledge();
		receive();
		must(now_ns() < end, "draining");
	}
	must(given == taken, "getting each buffer back");

	change(from, IBV_QPS_RESET);
	change(to, IBV_QPS_RESET);
	must(!inlay_cq_clean(&from_cq, from->qp_num, NULL, NULL) && !inlay_cq_clean(&to_cq, to->qp_num, NULL, NULL),
	     "finding the CQs empty"); /* after the drain; callers that need no completions clean instead */
	inlay_sq_reset(&sq);
	inlay_rq_reset(&rq);
	up();
}

static void run(void)
{
	uint64_t end = now_ns() + 30000000000;
	uint32_t next = 0, broken = 0;

	while (acknowledged < messages) {
		int good = 1;

		must(now_ns() < end, "getting everything through");
		while (next < messages && next - acknowledged < WINDOW) {
			if (broken < breaks && next == (broken + 1) * messages / (breaks + 1)) {
				must(!inlay_post_write_inline(&sq, (uintptr_t)buffers, ~mr->rkey, &next, sizeof(next), INLAY_SIGNALED),
				     "the bad write");
				broken++;
			}
			must(!inlay_post_send_inline(&sq, &next, sizeof(next), INLAY_SIGNALED), "the send");
			next++;
		}
		inlay_sq_ring(&sq);
		receive();
		give();
		good = acknowledge();
		if (!good) {
			recover(end);
			next = acknowledged;
		}
	}
	while (received < messages) {
		receive();
		must(now_ns() < end, "receiving everything");
	}
}

int main(int argc, char **argv)
{
	static const struct option_of options[] = {
		{"messages", "N", "how many messages (1000)", NULL, &messages, 1, 100000000, NULL},
		{"breaks", "N", "how often the connection breaks (4)", NULL, &breaks, 0, 1000000, NULL},
		{NULL, NULL, NULL, NULL, NULL, 0, 0, NULL},
	};
	struct ibv_qp_cap cap = {.max_send_wr = 2 * WINDOW, .max_recv_wr = BUFFERS, .max_send_sge = 1, .max_recv_sge = 1,
				 .max_inline_data = sizeof(uint32_t)};
	struct ibv_qp_init_attr init = {.cap = cap, .qp_type = IBV_QPT_RC};
	struct ibv_cq *from_ibcq, *to_ibcq;
	struct ibv_context *ctx;
	struct inlay_uar uar;
	struct ibv_pd *pd;
	int cqes;

	arguments(argc, argv, "A connection that breaks and recovers.", "", options);
	pd = open_pd(NULL);
	ctx = pd->context;
	need(inlay_uar_create(&uar, pd, INLAY_UAR_SERIAL, &why), "a doorbell register");
	buffers = memory(BUFFERS * sizeof(*buffers));
	mr = ibv_reg_mr(pd, buffers, BUFFERS * sizeof(*buffers), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	cqes = (int)(inlay_send_cqes(&init) + inlay_recv_cqes(&init));
	from_ibcq = ibv_create_cq(ctx, cqes, NULL, NULL, 0);
	to_ibcq = ibv_create_cq(ctx, cqes, NULL, NULL, 0);
	must(mr && from_ibcq && to_ibcq, "ibv_reg_mr or ibv_create_cq");
	need(inlay_cq_from_cq(&from_cq, from_ibcq, &why), "the sender's CQ");
	need(inlay_cq_from_cq(&to_cq, to_ibcq, &why), "the receiver's CQ");
	init.send_cq = init.recv_cq = from_ibcq;
	from = ibv_create_qp(uar.pd, &init);
	init.send_cq = init.recv_cq = to_ibcq;
	to = ibv_create_qp(uar.pd, &init);
	must(from && to, "ibv_create_qp");
	need(inlay_sq_from_qp(&sq, from, &uar, &from_cq, &why), "the send queue");
	need(inlay_rq_from_qp(&rq, to, &to_cq, &why), "the receive queue");

	up();
	run();
	printf("recover: %u messages, each once and in order, over %u connections\n", received, connections);

	must(!ibv_destroy_qp(from) && !ibv_destroy_qp(to), "destroying the queue pairs");
	inlay_sq_fini(&sq);
	inlay_rq_fini(&rq);
	must(!ibv_destroy_cq(from_ibcq) && !ibv_destroy_cq(to_ibcq) && !inlay_uar_destroy(&uar, &why) && !ibv_dereg_mr(mr) &&
		     !ibv_dealloc_pd(pd) && !ibv_close_device(ctx),
	     "closing down");
	return 0;
}
