/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * poll.c: what it costs to take completions. The same good send completions by one of three ways:
 *
 *   poll --path inlay|ibv_poll_cq|ibv_start_poll|none --ops N [--batch 1|16]
 *
 * An operation is one completion: found, its status looked at, its request named, its credit given back, its slot freed; in a batch the
 * device is told once for all. The device puts ROUND of them into the CQ at a time. What names the request is the WQE's index with
 * inlay, and wr_id with the others. Each path and batch is a function of its own, so that a profiler can count it.
 */
#include "bench.h"

static uint64_t sum; /* of what names the requests: somebody uses it */

BENCH_FN unsigned poll_inlay_1(struct bench *b)
{
	const struct mlx5_cqe64 *cqe = inlay_cq_peek(&b->icq);

	if (!cqe)
		return 0;
	if (inlay_cqe_is_error(cqe))
		bench_die("an error completion");
	NEED(0 < inlay_sq_release(&b->sq, cqe), "release");
	sum += inlay_cqe_wqe_counter(cqe);
	inlay_cq_advance(&b->icq, 1);
	return 1;
}

BENCH_FN unsigned poll_inlay_16(struct bench *b)
{
	const struct mlx5_cqe64 *cqes[16];
	unsigned n = inlay_cq_peek_many(&b->icq, cqes, 16);

	for (unsigned i = 0; i < n; i++) {
		if (inlay_cqe_is_error(cqes[i]))
			bench_die("an error completion");
		NEED(0 < inlay_sq_release(&b->sq, cqes[i]), "release");
		sum += inlay_cqe_wqe_counter(cqes[i]);
	}
	inlay_cq_advance(&b->icq, n);
	return n;
}

BENCH_FN unsigned poll_ibv_poll_cq_1(struct bench *b)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(b->cq, 1, &wc) != 1)
		return 0;
	if (wc.status)
		bench_die("an error completion");
	sum += wc.wr_id;
	return 1;
}

BENCH_FN unsigned poll_ibv_poll_cq_16(struct bench *b)
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(b->cq, 16, wc);

	for (int i = 0; i < n; i++) {
		if (wc[i].status)
			bench_die("an error completion");
		sum += wc[i].wr_id;
	}
	return n > 0 ? (unsigned)n : 0;
}

static inline unsigned start_poll(struct bench *b, unsigned max)
{
	struct ibv_poll_cq_attr attr = {0};
	unsigned n = 0;

	if (ibv_start_poll(b->cqx, &attr))
		return 0;
	do {
		if (b->cqx->status)
			bench_die("an error completion");
		sum += b->cqx->wr_id;
	} while (++n < max && !ibv_next_poll(b->cqx));
	ibv_end_poll(b->cqx);
	return n;
}

BENCH_FN unsigned poll_ibv_start_poll_1(struct bench *b)
{
	return start_poll(b, 1);
}

BENCH_FN unsigned poll_ibv_start_poll_16(struct bench *b)
{
	return start_poll(b, 16);
}

BENCH_FN unsigned poll_none_1(struct bench *b)
{
	BENCH_TOUCH(b);
	return 1;
}

BENCH_FN unsigned poll_none_16(struct bench *b)
{
	BENCH_TOUCH(b);
	return 16;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *path;
		unsigned (*poll[2])(struct bench *);
	} paths[] = {
		{"none", {poll_none_1, poll_none_16}},
		{"inlay", {poll_inlay_1, poll_inlay_16}},
		{"ibv_poll_cq", {poll_ibv_poll_cq_1, poll_ibv_poll_cq_16}},
		{"ibv_start_poll", {poll_ibv_start_poll_1, poll_ibv_start_poll_16}},
	};
	static const char *const names[] = {"--path", "--ops", "--batch", NULL};
	static const char usage[] = "usage: poll --path inlay|ibv_poll_cq|ibv_start_poll|none [--ops N] [--batch 1|16]";
	static struct bench b;
	struct ibv_send_wr *bad;
	struct inlay_sq full;
	const char *path, *batch;
	unsigned long ops, done;
	unsigned p, k, i;

	bench_args(argc, argv, names, usage);
	path = bench_arg(argc, argv, "--path", "");
	batch = bench_arg(argc, argv, "--batch", "1");
	ops = bench_ops(argc, argv);
	for (p = 0; p < 4 && strcmp(path, paths[p].path); p++)
		;
	k = strcmp(batch, "16") ? 0 : 1;
	if (p == 4 || (!k && strcmp(batch, "1")))
		bench_die(usage);

	/* ROUND requests lie in the ring, WQEs 1 to ROUND, and complete again and again: no posting between. */
	bench_open(&b, p < 2, p == 3);
	for (i = 0; i < ROUND; i++)
		if (p < 2)
			NEED(!inlay_post_write(&b.sq, (uintptr_t)&b.target, b.mr->rkey, &b.sge, 1, INLAY_SIGNALED), "post");
		else
			NEED(!ibv_post_send(b.qp, b.wr, &bad), "ibv_post_send");
	full = b.sq;
	b.cqe.wqe_counter = inlay_to_be16(1);
	for (done = 0; done < ops; done += ROUND) {
		NEED(softdev_inject_cqes(b.cqn, &b.cqe, ROUND, 1) == (int)ROUND, "softdev_inject_cqes");
		b.sq = full; /* all outstanding once more; libmlx5 does not look */
		for (i = 0; i < ROUND;) {
			unsigned n = paths[p].poll[k](&b);

			NEED(n, "finding a completion");
			i += n;
		}
		if (!p)
			inlay_cq_advance(&b.icq, ROUND);
	}
	if (p == 1 && inlay_sq_pending(&b.sq))
		bench_die("credit was lost");
	if (p > 1 && sum != 1000 * done)
		bench_die("requests were lost");
	return 0;
}
