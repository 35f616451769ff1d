/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench.h: what post.c and poll.c share: arguments, and a queue pair on the stepped software device.
 *
 * The device does nothing but what the program asks for, in the program's own thread, so that what is measured is the CPU's
 * way through post and poll. `--path none` does all the rest, and is to be subtracted.
 */
#ifndef BENCH_H
#define BENCH_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/inlay.h>
#include "softdev.h"

#define ROUND 256u /* requests, or completions, between two visits of the device */

struct bench {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_qp *qp, *peer;
	struct ibv_qp_ex *qpx;
	struct ibv_cq *cq;
	struct ibv_cq_ex *cqx;
	struct ibv_mr *mr;
	struct inlay_uar uar;
	struct inlay_sq sq;
	struct inlay_cq icq;
	int own;                /* inlay has taken the queues over */
	uint32_t cqn;
	struct mlx5_cqe64 cqe;  /* a send completion of qp, as the device writes it */
	uint64_t value;         /* the payload */
	uint64_t target;        /* where writes go */
	struct ibv_sge sge;
	struct ibv_send_wr wr[16];
};

static inline __attribute__((noreturn)) void bench_die(const char *what)
{
	fprintf(stderr, "%s\n", what);
	exit(1);
}

#define NEED(cond, what) ((cond) ? (void)0 : bench_die(what " failed"))

/* The argument behind --name, or fallback. */
static inline const char *bench_arg(int argc, char **argv, const char *name, const char *fallback)
{
	for (int i = 1; i + 1 < argc; i += 2)
		if (!strcmp(argv[i], name))
			fallback = argv[i + 1];
	return fallback;
}

/* Every argument is --name value, and every name one of these. */
static inline void bench_args(int argc, char **argv, const char *const *names, const char *usage)
{
	int i = 1, k;

	for (; i + 1 < argc; i += 2) {
		for (k = 0; names[k] && strcmp(argv[i], names[k]); k++)
			;
		if (!names[k])
			break;
	}
	if (i < argc)
		bench_die(usage);
}

static inline unsigned long bench_ops(int argc, char **argv)
{
	const char *text = bench_arg(argc, argv, "--ops", "1000000");
	unsigned long n;
	char *end;

	errno = 0;
	n = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || !n)
		bench_die("--ops is a number, 1 or more");
	return n;
}

/* The same 8-byte write for every path: inlay's arguments and libibverbs' requests. */
static inline void bench_requests(struct bench *b, int inl)
{
	b->sge.addr = (uintptr_t)&b->value;
	b->sge.length = 8;
	b->sge.lkey = b->mr->lkey;
	memset(b->wr, 0, sizeof(b->wr));
	for (int i = 0; i < 16; i++) {
		b->wr[i].wr_id = 1000u + (unsigned)i;
		b->wr[i].opcode = IBV_WR_RDMA_WRITE;
		b->wr[i].send_flags = IBV_SEND_SIGNALED | (inl ? IBV_SEND_INLINE : 0);
		b->wr[i].sg_list = &b->sge;
		b->wr[i].num_sge = 1;
		b->wr[i].wr.rdma.remote_addr = (uintptr_t)&b->target;
		b->wr[i].wr.rdma.rkey = b->mr->rkey;
	}
}

/*
 * Opens the device and makes a connected queue pair. One request goes all the way through, which shows the CQE that the device writes;
 * afterwards send WQE 0 is done and CQE 0 consumed, for whoever owns the queues: inlay (own), or libmlx5.
 */
static inline void bench_open(struct bench *b, int own, int start_poll)
{
	struct ibv_cq_init_attr_ex cq_attr = {.cqe = 2 * ROUND};
	struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE, .cap = {.max_send_wr = 2 * ROUND, .max_recv_wr = 1, .max_send_sge = 1,
		.max_recv_sge = 1, .max_inline_data = 8}};
	struct ibv_device **list;
	struct ibv_send_wr *bad;
	struct mlx5dv_obj obj;
	struct mlx5dv_cq dv;
	struct ibv_wc wc;

	if (!softdev_present() || softdev_manual(1))
		bench_die("needs the stepped software device: start it with tests/softdev/run --manual");
	memset(b, 0, sizeof(*b));
	list = ibv_get_device_list(NULL);
	b->ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	NEED(b->ctx, "opening the device");
	ibv_free_device_list(list);
	b->pd = ibv_alloc_pd(b->ctx);
	NEED(b->pd, "ibv_alloc_pd");
	b->mr = ibv_reg_mr(b->pd, b, sizeof(*b), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	NEED(b->mr, "ibv_reg_mr");
	bench_requests(b, 0);
	if (start_poll) {
		b->cqx = ibv_create_cq_ex(b->ctx, &cq_attr);
		b->cq = b->cqx ? ibv_cq_ex_to_cq(b->cqx) : NULL;
	} else {
		b->cq = ibv_create_cq(b->ctx, 2 * ROUND, NULL, NULL, 0);
	}
	NEED(b->cq, "ibv_create_cq");
	attr.send_cq = attr.recv_cq = b->cq;
	attr.pd = b->pd;
	b->peer = ibv_create_qp_ex(b->ctx, &attr);
	if (own) {
		NEED(!inlay_uar_create(&b->uar, b->pd, INLAY_UAR_SERIAL, NULL), "inlay_uar_create");
		attr.pd = b->uar.pd;
	}
	b->qp = ibv_create_qp_ex(b->ctx, &attr);
	NEED(b->qp && b->peer, "ibv_create_qp_ex");
	b->qpx = ibv_qp_to_qp_ex(b->qp);
	NEED(!inlay_connect_pair(b->qp, b->peer, NULL, NULL), "connecting");
	b->own = own;
	if (own) {
		NEED(!inlay_sq_from_qp(&b->sq, b->qp, &b->uar, NULL, NULL) && !inlay_cq_from_cq(&b->icq, b->cq, NULL), "taking over the queues");
		NEED(!inlay_post_write(&b->sq, (uintptr_t)&b->target, b->mr->rkey, &b->sge, 1, INLAY_SIGNALED), "the first post");
		inlay_sq_ring(&b->sq);
	} else {
		NEED(!ibv_post_send(b->qp, &b->wr[0], &bad), "the first post");
	}
	NEED(softdev_run() == 1, "the first write");
	memset(&obj, 0, sizeof(obj));
	memset(&dv, 0, sizeof(dv));
	obj.cq.in = b->cq;
	obj.cq.out = &dv;
	NEED(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ) && dv.cqe_size == 64, "mlx5dv_init_obj");
	memcpy(&b->cqe, dv.buf, 64);
	b->cqn = dv.cqn;
	NEED(inlay_cqe_opcode(&b->cqe) == MLX5_CQE_REQ, "the first completion");
	if (own) {
		NEED(0 < inlay_sq_release(&b->sq, inlay_cq_peek(&b->icq)), "the first release");
		inlay_cq_advance(&b->icq, 1);
	} else if (start_poll) {
		struct ibv_poll_cq_attr none = {0};

		NEED(!ibv_start_poll(b->cqx, &none), "the first poll");
		ibv_end_poll(b->cqx);
	} else {
		NEED(ibv_poll_cq(b->cq, 1, &wc) == 1 && !wc.status, "the first poll");
	}
}

/* What a noinline function that does nothing still has to look like it needs. */
#define BENCH_TOUCH(b) __asm__ volatile("" : : "r"(b) : "memory")
#define BENCH_FN static __attribute__((noinline))

#endif
