/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * post.c: what it costs to post. The same signaled 8-byte RDMA writes by one of three ways:
 *
 *   post --path inlay|ibv_post_send|ibv_wr|none --ops N [--shape inline8|sge1|list16]
 *
 *   inline8  payload in the WQE, one BlueFlame doorbell each
 *   sge1     payload by one SGE, one BlueFlame doorbell each
 *   list16   as inline8, sixteen with one 8-byte doorbell; an operation is still one write
 *
 * After every ROUND writes the device takes them for done at once, and one completion gives all credit back, by the path's own
 * poll. Each path and shape is a function of its own, so that a profiler can count it.
 */
#include "bench.h"

BENCH_FN void post_inlay_inline8(struct bench *b)
{
	NEED(!inlay_post_write_inline(&b->sq, (uintptr_t)&b->target, b->mr->rkey, &b->value, 8, INLAY_SIGNALED), "post");
	inlay_sq_ring(&b->sq);
}

BENCH_FN void post_inlay_sge1(struct bench *b)
{
	NEED(!inlay_post_write(&b->sq, (uintptr_t)&b->target, b->mr->rkey, &b->sge, 1, INLAY_SIGNALED), "post");
	inlay_sq_ring(&b->sq);
}

BENCH_FN void post_inlay_list16(struct bench *b)
{
	for (int i = 0; i < 16; i++)
		NEED(!inlay_post_write_inline(&b->sq, (uintptr_t)&b->target, b->mr->rkey, &b->value, 8, INLAY_SIGNALED), "post");
	inlay_sq_ring_doorbell(&b->sq);
}

/* inline8, sge1 and list16 alike: what differs is in the requests, made in main. */
BENCH_FN void post_ibv_post_send(struct bench *b)
{
	struct ibv_send_wr *bad;

	NEED(!ibv_post_send(b->qp, b->wr, &bad), "ibv_post_send");
}

static inline void wr_write(struct bench *b, uint64_t wr_id, int inl)
{
	b->qpx->wr_id = wr_id;
	b->qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(b->qpx, b->mr->rkey, (uintptr_t)&b->target);
	if (inl)
		ibv_wr_set_inline_data(b->qpx, &b->value, 8);
	else
		ibv_wr_set_sge(b->qpx, b->sge.lkey, b->sge.addr, b->sge.length);
}

BENCH_FN void post_ibv_wr_inline8(struct bench *b)
{
	ibv_wr_start(b->qpx);
	wr_write(b, 1000, 1);
	NEED(!ibv_wr_complete(b->qpx), "ibv_wr_complete");
}

BENCH_FN void post_ibv_wr_sge1(struct bench *b)
{
	ibv_wr_start(b->qpx);
	wr_write(b, 1000, 0);
	NEED(!ibv_wr_complete(b->qpx), "ibv_wr_complete");
}

BENCH_FN void post_ibv_wr_list16(struct bench *b)
{
	ibv_wr_start(b->qpx);
	for (unsigned i = 0; i < 16; i++)
		wr_write(b, 1000 + i, 1);
	NEED(!ibv_wr_complete(b->qpx), "ibv_wr_complete");
}

BENCH_FN void post_none(struct bench *b)
{
	BENCH_TOUCH(b);
}

/* The device is done with all posted so far, posted in number: one CQE for the last gives the credit back. */
static void refill(struct bench *b, uint32_t posted, int expect)
{
	const struct mlx5_cqe64 *cqe;
	struct ibv_wc wc;

	NEED(softdev_skip(b->qp->qp_num) == expect, "softdev_skip");
	b->cqe.wqe_counter = inlay_to_be16((uint16_t)(posted - 1));
	NEED(softdev_inject_cqes(b->cqn, &b->cqe, 1, 0) == 1, "softdev_inject_cqes");
	if (!b->own) {
		NEED(ibv_poll_cq(b->cq, 1, &wc) == 1 && !wc.status, "ibv_poll_cq");
		return;
	}
	cqe = inlay_cq_peek(&b->icq);
	NEED(cqe && (!inlay_sq_pending(&b->sq) || 0 < inlay_sq_release(&b->sq, cqe)), "the completion");
	inlay_cq_advance(&b->icq, 1);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *path;
		void (*post[3])(struct bench *);
	} paths[] = {
		{"none", {post_none, post_none, post_none}},
		{"inlay", {post_inlay_inline8, post_inlay_sge1, post_inlay_list16}},
		{"ibv_post_send", {post_ibv_post_send, post_ibv_post_send, post_ibv_post_send}},
		{"ibv_wr", {post_ibv_wr_inline8, post_ibv_wr_sge1, post_ibv_wr_list16}},
	};
	static const char *const shapes[] = {"inline8", "sge1", "list16"}, *const names[] = {"--path", "--ops", "--shape", NULL};
	static const char usage[] = "usage: post --path inlay|ibv_post_send|ibv_wr|none [--ops N] [--shape inline8|sge1|list16]";
	static struct bench b;
	const char *path, *shape;
	unsigned long ops, done;
	unsigned p, s, n, i;

	bench_args(argc, argv, names, usage);
	path = bench_arg(argc, argv, "--path", "");
	shape = bench_arg(argc, argv, "--shape", "inline8");
	ops = bench_ops(argc, argv);
	for (p = 0; p < 4 && strcmp(path, paths[p].path); p++)
		;
	for (s = 0; s < 3 && strcmp(shape, shapes[s]); s++)
		;
	if (p == 4 || s == 3)
		bench_die(usage);

	bench_open(&b, p < 2, 0);
	bench_requests(&b, s != 1);
	for (i = 0; s == 2 && i < 15; i++)
		b.wr[i].next = &b.wr[i + 1];
	n = s == 2 ? 16 : 1;
	for (done = 0; done < ops; done += ROUND) {
		for (i = 0; i < ROUND; i += n)
			paths[p].post[s](&b);
		refill(&b, (uint32_t)(done + ROUND + 1), p ? (int)ROUND : 0); /* and the one of bench_open */
	}
	if (p && inlay_sq_pending(&b.sq))
		bench_die("credit was lost");
	return 0;
}
