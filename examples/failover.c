/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * failover.c: two rails. When a queue pair dies, what it has not completed goes to the other rail,
 * in order, and the dead one comes back as the spare. Posts keep no copy for that: the ring has it,
 * and inlay_wqe_decode reads it.
 *
 *   sends           posted again; they are numbered, and the receiver drops what it has seen
 *   writes, reads   posted again, with the other rail's keys
 *   atomics         not posted again: the peer may have executed them. The caller is told "unknown"
 *
 * Both ends of both rails are in this process. The rails are the first two mlx5 devices, or two
 * queue pairs of one. The k-th death comes k / 4 % 250 steps after the one before, in one of four
 * ways: here, at the peer, by a write that fails, or with no completion any more, as when a port is
 * gone.
 */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <inlay/inlay.h>
#include "common/program.h"

#define WINDOW 64u      /* operations under way: a send, a write, a read, an atomic in turn */
#define BUFFERS 64u     /* receives */

static uint32_t deaths = 1000;

/* Memory that both rails have registered: the peer's, then the caller's. Slots are by operation % WINDOW. */
static struct {
	uint64_t counter, board[WINDOW], constants[WINDOW];
	uint64_t answers[WINDOW], reads[WINDOW], buffers[2][BUFFERS];
} *area;

static struct rail {
	struct ibv_context *ctx;
	struct ibv_mr *mr;
	struct ibv_qp *from, *to;
	struct ibv_cq *ibcq[2];
	struct inlay_uar uar;
	struct inlay_cq from_cq, to_cq;
	struct inlay_sq sq;
	struct inlay_rq rq;
	uint32_t given, taken;  /* buffers: posted, come back */
} rails[2], *on = &rails[0];

static uint64_t posted, done;   /* operations; done in order */
static uint8_t unknown[WINDOW];
static uint32_t steps;          /* operations posted, completions: since the last death */
static uint64_t known_adds, unknown_adds, received, doubles, again;

/* ---- The peer ---- */

static void give(struct rail *r)
{
	uint64_t *buffers = area->buffers[r - rails];

	while (r->given - r->taken < BUFFERS) {
		struct ibv_sge sge = {(uintptr_t)&buffers[r->given % BUFFERS], sizeof(*buffers), r->mr->lkey};

		must(!inlay_post_recv(&r->rq, &sge, 1), "posting a receive");
		r->given++;
	}
	inlay_rq_ring(&r->rq);
}

static void receive(struct rail *r)
{
	const struct mlx5_cqe64 *cqe = inlay_cq_peek(&r->to_cq);
	uint64_t number;

	if (!cqe)
		return;
	if (!inlay_cqe_is_error(cqe)) {
		memcpy(&number, inlay_cqe_data(cqe, inlay_cq_cqe_size(&r->to_cq), &area->buffers[r - rails][r->taken % BUFFERS]),
		       sizeof(number));
		must(number <= received, "receiving without a gap");
		doubles += number < received;
		received += number == received;
	}
	must(inlay_rq_release(&r->rq, cqe) == 1, "the receive's completion");
	inlay_cq_advance(&r->to_cq, 1);
	r->taken++;
}

/* ---- The caller ---- */

static int post(uint64_t n)
{
	const uint32_t flags = (n % 8 == 7 ? INLAY_SIGNALED : 0) | (n % 3 ? 0 : INLAY_RING), slot = n % WINDOW;
	struct inlay_wr wr = {.rkey = on->mr->rkey, .lkey = on->mr->lkey, .len = 8};
	uint64_t number = n / 4;

	switch (n % 4) {
	case 0: return inlay_post_send_inline(&on->sq, &number, 8, flags);
	case 1: return inlay_post_write_inline(&on->sq, (uintptr_t)&area->board[slot], wr.rkey, &n, 8, flags);
	case 2:
		area->reads[slot] = 0;
		wr.raddr = (uintptr_t)&area->constants[slot];
		wr.data = &area->reads[slot];
		return inlay_post(&on->sq, MLX5_OPCODE_RDMA_READ, &wr, flags);
	default:
		wr.raddr = (uintptr_t)&area->counter;
		wr.data = &area->answers[slot];
		return inlay_post_atomic(&on->sq, inlay_atomic_add(1), &wr, flags);
	}
}

/* Completes the next n operations of known outcome, and the unknown ones before and between them. Each is one WQEBB. */
static void complete(uint32_t n)
{
	for (; n || (done < posted && unknown[done % WINDOW]); done++) {
		uint32_t slot = done % WINDOW;

		must(done < posted, "completing what was posted");
		must(done % 4 != 1 || area->board[slot] == done, "finding what was written");
		must(done % 4 != 2 || area->reads[slot] == area->constants[slot], "finding what was read");
		if (unknown[slot]) {
			unknown[slot] = 0;
			unknown_adds++;
			continue;
		}
		known_adds += done % 4 == 3;
		n--;
	}
}

/* One completion, if there is one. Returns 0 when it was an error's: all before its WQE is done. */
static int progress(struct rail *r)
{
	const struct mlx5_cqe64 *cqe = inlay_cq_peek(&r->from_cq);
	uint32_t last;
	int good, n;

	if (!cqe)
		return 1;
	good = !inlay_cqe_is_error(cqe);
	last = inlay_sq_index(&r->sq);
	n = good ? inlay_sq_release(&r->sq, cqe) :
		   inlay_sq_release_until(&r->sq, last - (uint16_t)(last - inlay_cqe_wqe_counter(cqe)));
	must(n >= 0, "the completion");
	inlay_cq_advance(&r->from_cq, 1);
	steps++;
	complete((uint32_t)n);
	return good;
}

/* ---- Death ---- */

static void change(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "ibv_modify_qp");
}

static void up(struct rail *r)
{
	struct inlay_connect_attr attr = inlay_connect_defaults();

	attr.access |= IBV_ACCESS_REMOTE_ATOMIC;
	attr.timeout = 8; /* 1 ms: a dead peer is noticed soon */
	attr.retry_count = 1;
	need(inlay_connect_pair(r->from, r->to, &attr, &why), "connecting");
	give(r);
}

/* Posts on `live` what is left in the ring of `dead`. */
static void repost(struct rail *dead, struct rail *live)
{
	const void *ring = inlay_sq_wqe(&dead->sq, 0);
	struct inlay_decoded d;
	uint32_t left, i;
	int bbs;

	for (left = inlay_sq_pending(&dead->sq); left; left -= (uint32_t)bbs) {
		bbs = inlay_wqe_decode(ring, inlay_sq_size(&dead->sq), inlay_sq_index(&dead->sq) - left, inlay_sq_type(&dead->sq), &d);
		must(bbs > 0 && (uint32_t)bbs <= left, "reading the dead queue");
		if (d.opcode == MLX5_OPCODE_ATOMIC_FA) {
			unknown[(uint64_t *)(uintptr_t)d.sge[0].addr - area->answers] = 1;
			continue;
		}
		must((int)d.is_request, "finding a request");
		/* The mark, and the write that was the cause: a key that was never good has none in its place */
		if (d.opcode == MLX5_OPCODE_NOP || (d.wr.rkey && d.wr.rkey != dead->mr->rkey))
			continue;
		d.wr.rkey = live->mr->rkey;
		for (i = 0; i < d.wr.num_sge; i++)
			d.sge[i].lkey = live->mr->lkey;
		must(!inlay_post(&live->sq, d.opcode, &d.wr, d.flags | INLAY_SIGNALED), "posting again");
		again++;
	}
	inlay_sq_ring(&live->sq);
}

/* noticed: no more completions of the dead rail are waited for. */
static void failover(int noticed, uint64_t end)
{
	struct rail *dead = on;

	on = &rails[on == rails];
	change(dead->from, IBV_QPS_ERR);
	change(dead->to, IBV_QPS_ERR);
	/* The first error names what was not completed: that of a NOP, if nothing else is left. */
	if (!noticed)
		must(!inlay_post(&dead->sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED | INLAY_RING), "the mark");
	while (!noticed || dead->given != dead->taken) {
		noticed = noticed || !progress(dead);
		receive(dead);
		must(now_ns() < end, "draining");
	}
	repost(dead, on);
	complete(0);

	change(dead->from, IBV_QPS_RESET);
	change(dead->to, IBV_QPS_RESET);
	must(!inlay_cq_clean(&dead->to_cq, dead->to->qp_num, NULL, NULL), "finding the peer's CQ empty");
	inlay_cq_clean(&dead->from_cq, dead->from->qp_num, NULL, NULL);
	inlay_sq_reset(&dead->sq);
	inlay_rq_reset(&dead->rq);
	up(dead);
}

static void run(void)
{
	uint64_t end = now_ns() + 60000000000, n = 9;
	uint32_t death = 0, killed = 0;

	while (death < deaths || posted % 8 || done < posted) {
		int dead, noticed;

		if (posted - done < WINDOW && (death < deaths || posted % 8)) {
			must(!post(posted), "a post");
			posted++;
			steps++;
		} else {
			inlay_sq_ring(&on->sq);
		}
		receive(on);
		give(on);
		dead = !progress(on);
		noticed = dead || death % 4 == 3;
		if (!dead && death < deaths && !killed && steps > death / 4 % 250) {
			killed = 1;
			if (death % 4 == 1)
				change(on->to, IBV_QPS_ERR);
			else if (death % 4 == 2)
				must(!inlay_post_write_inline(&on->sq, (uintptr_t)area->board, ~on->mr->rkey, &n, 8, INLAY_RING), "the bad write");
			else
				dead = 1;
		}
		if (dead) {
			failover(noticed, end);
			death++;
			steps = killed = 0;
		}
		must(now_ns() < end, "getting everything through");
	}
}

static void rail_open(struct rail *r, const char *device)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 2 * WINDOW, .max_recv_wr = BUFFERS, .max_send_sge = 1,
								       .max_recv_sge = 1, .max_inline_data = 8}};
	struct ibv_pd *pd = open_pd(device);
	int i, cqes = (int)(inlay_send_cqes(&init) + inlay_recv_cqes(&init));

	r->ctx = pd->context;
	need(inlay_uar_create(&r->uar, pd, INLAY_UAR_SERIAL, &why), "a doorbell register");
	r->mr = ibv_reg_mr(pd, area, sizeof(*area),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	for (i = 0; i < 2; i++)
		r->ibcq[i] = ibv_create_cq(r->ctx, cqes, NULL, NULL, 0);
	must(r->mr && r->ibcq[0] && r->ibcq[1], "ibv_reg_mr or ibv_create_cq");
	need(inlay_cq_from_cq(&r->from_cq, r->ibcq[0], &why), "the sender's CQ");
	need(inlay_cq_from_cq(&r->to_cq, r->ibcq[1], &why), "the receiver's CQ");
	init.send_cq = init.recv_cq = r->ibcq[0];
	r->from = ibv_create_qp(r->uar.pd, &init);
	init.send_cq = init.recv_cq = r->ibcq[1];
	r->to = ibv_create_qp(r->uar.pd, &init);
	must(r->from && r->to, "ibv_create_qp");
	need(inlay_sq_from_qp(&r->sq, r->from, &r->uar, &r->from_cq, &why), "the send queue");
	need(inlay_rq_from_qp(&r->rq, r->to, &r->to_cq, &why), "the receive queue");
	up(r);
}

static void rail_close(struct rail *r)
{
	struct ibv_pd *pd = r->mr->pd;

	must(!ibv_destroy_qp(r->from) && !ibv_destroy_qp(r->to), "destroying the queue pairs");
	inlay_sq_fini(&r->sq);
	inlay_rq_fini(&r->rq);
	must(!ibv_destroy_cq(r->ibcq[0]) && !ibv_destroy_cq(r->ibcq[1]) && !inlay_uar_destroy(&r->uar, &why) && !ibv_dereg_mr(r->mr) &&
		     !ibv_dealloc_pd(pd) && !ibv_close_device(r->ctx), "closing down");
}

int main(int argc, char **argv)
{
	static const struct option_of options[] = {
		{"deaths", "N", "how often a queue pair dies (1000)", NULL, &deaths, 0, 1000000, NULL},
		{NULL, NULL, NULL, NULL, NULL, 0, 0, NULL},
	};
	const char *names[2] = {NULL, NULL};
	struct ibv_device **list;
	uint64_t i, n;

	arguments(argc, argv, "Traffic that moves to a second rail when a queue pair dies.", "", options);
	list = ibv_get_device_list(NULL);
	for (i = n = 0; list && list[i] && n < 2; i++)
		if (mlx5dv_is_supported(list[i]))
			names[n++] = ibv_get_device_name(list[i]);
	area = memory(sizeof(*area));
	for (i = 0; i < WINDOW; i++)
		area->constants[i] = ~i;
	rail_open(&rails[0], names[0]);
	rail_open(&rails[1], names[n == 2]);
	run();
	must(received == posted / 4 && known_adds + unknown_adds == posted / 4, "getting each operation through");
	must(area->counter >= known_adds && area->counter <= known_adds + unknown_adds, "counting");
	printf("failover: %u deaths, %llu operations: sends each once and in order, %llu doubles dropped; %llu posted again; "
	       "%llu atomics unknown, %llu of them executed\n", deaths, (unsigned long long)posted, (unsigned long long)doubles,
	       (unsigned long long)again, (unsigned long long)unknown_adds, (unsigned long long)(area->counter - known_adds));
	rail_close(&rails[0]);
	rail_close(&rails[1]);
	ibv_free_device_list(list);
	return 0;
}
