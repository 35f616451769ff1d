/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * path.c: posts, polls and the way from post to poll, by inlay, by libmlx5 and by the floor (floor.h), on the stepped
 * software device, which works only between what is measured. The doorbell page is ordinary memory.
 *
 * Posts: after every LAP of them the device takes all for done, and one completion gives the credit back. Polls: the
 * device puts LAP completions of the same requests into the CQ. Each way has queues of its own.
 *
 * BENCH_VERBS=1: libmlx5's ways alone, by QPs that examples/shim takes.
 */
#include <infiniband/mlx5dv.h>
#include <inlay/inlay.h>
#include <inlay/queue/raw.h>
#include <inlay/queue/sync.h>
#include "bench.h"
#include "floor.h"
#include "softdev.h"

#define LAP 128u

struct side {
	struct inlay_sq sq;
	struct inlay_cq icq __attribute__((aligned(64)));
	struct floor_sq floor_sq;
	struct floor_cq floor_cq;
	int own;                /* inlay has taken the queues over */
	struct inlay_sq full;   /* inlay: LAP requests outstanding */
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq_ex *cqx;
	struct ibv_cq *cq;
	struct ibv_qp *qp, *peer;
	struct ibv_qp_ex *qpx;
	struct mlx5dv_qp_ex *qpdv;
	struct inlay_uar uar;
	struct ibv_mr *mr;
	uint32_t cqn;
	struct mlx5_cqe64 cqe;  /* a send completion, as the device writes it */
} __attribute__((aligned(64)));

static uint8_t data[4096] __attribute__((aligned(64))), target[4096];
static uint64_t sum;                     /* of what names the requests: somebody uses it */
static struct ibv_sge sges[4];
static struct ibv_send_wr wr[32];
static uint8_t raw[64] __attribute__((aligned(64)));
static volatile uint32_t any_len = 8;    /* a length that the compiler does not know */

/* ---- What is posted ---- */

#define POST_ARGS struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, const void *from, uint32_t lkey
#define INLAY_POST(name, call)											\
	COUNTED int count_inlay_##name##_(POST_ARGS)								\
	{													\
		struct ibv_sge sge = {(uintptr_t)from, 8, lkey};						\
		struct inlay_wr wr = {.raddr = raddr, .rkey = rkey, .imm_be = 7, .data = from, .len = 8, .lkey = lkey};	\
		(void)raddr; (void)rkey; (void)sge; (void)wr;							\
		return call;											\
	}
#define DOORBELL(name, call) INLAY_POST(name, INLAY_UNLIKELY(call) ? -1 : inlay_sq_ring_doorbell(sq))
#define INLAY_INLINE_POST(len)											\
	INLAY_POST(inline##len, inlay_post_write_inline(sq, raddr, rkey, from, len, INLAY_SIGNALED | INLAY_RING))
DOORBELL(inline8_db, inlay_post_write_inline(sq, raddr, rkey, from, 8, INLAY_SIGNALED))
INLAY_INLINE_POST(8)
INLAY_POST(any, inlay_post_write_inline(sq, raddr, rkey, from, any_len, INLAY_SIGNALED | INLAY_RING))
INLAY_POST(two, inlay_post_write_inline(sq, raddr, rkey, from, 8, INLAY_SIGNALED) == 0 ? inlay_sq_ring(sq) : -1)
INLAY_INLINE_POST(32)
INLAY_INLINE_POST(64)
INLAY_INLINE_POST(128)
INLAY_INLINE_POST(256)
DOORBELL(sge1, inlay_post_write(sq, raddr, rkey, &sge, 1, INLAY_SIGNALED))
INLAY_POST(sge1_bf, inlay_post_write(sq, raddr, rkey, &sge, 1, INLAY_SIGNALED | INLAY_RING))
DOORBELL(sge4, inlay_post_write(sq, raddr, rkey, sges, 4, INLAY_SIGNALED))
DOORBELL(imm, inlay_post(sq, MLX5_OPCODE_RDMA_WRITE_IMM, &wr, INLAY_SIGNALED))
DOORBELL(send, inlay_post_send(sq, &sge, 1, INLAY_SIGNALED))
DOORBELL(read, inlay_post_read(sq, raddr, rkey, &sge, 1, INLAY_SIGNALED))
DOORBELL(add, inlay_post_atomic(sq, inlay_atomic_add(1), &wr, INLAY_SIGNALED))
DOORBELL(swap, inlay_post_atomic(sq, inlay_atomic_cmp_swap(1, 2), &wr, INLAY_SIGNALED))
DOORBELL(raw, inlay_post_raw(sq, raw, 0))
DOORBELL(copy, inlay_post_memcpy(sq, &sges[1], &sges[0], &sges[2], INLAY_SIGNALED))

#define INLAY_BURST(n)												\
	COUNTED int count_inlay_burst##n##_(POST_ARGS)								\
	{													\
		const uint64_t *value = (const uint64_t *)from, *end = value + n;				\
		struct inlay_sq burst = *sq;									\
		int err = 0;											\
		(void)lkey;											\
		for (; value < end; value++, raddr += 8) {							\
			err = inlay_post_write_inline(&burst, raddr, rkey, value, 8, 0);			\
			if (err)										\
				break;										\
		}												\
		inlay_sq_join(sq, &burst);									\
		inlay_sq_ring_doorbell(sq);									\
		return err;											\
	}
INLAY_BURST(8)
INLAY_BURST(32)

COUNTED int count_ibv_post_send_(struct ibv_qp *qp, struct ibv_send_wr *first)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(qp, first, &bad);
}

#define WR_ARGS struct side *s, uint64_t raddr, uint32_t rkey, const void *from, uint32_t lkey
#define WR_POST(name, n, call, payload)										\
	COUNTED int count_wr_##name##_(WR_ARGS)									\
	{													\
		struct ibv_qp_ex *qp = s->qpx;									\
		(void)raddr; (void)rkey; (void)lkey; (void)from;						\
		ibv_wr_start(qp);										\
		for (unsigned i = 0; i < n; i++) {								\
			qp->wr_id = i;										\
			qp->wr_flags = n == 1 ? IBV_SEND_SIGNALED : 0;						\
			call;											\
			payload;										\
		}												\
		return ibv_wr_complete(qp);									\
	}
#define WR_WRITE ibv_wr_rdma_write(qp, rkey, raddr + 8 * i)
#define WR_SGE ibv_wr_set_sge(qp, lkey, (uintptr_t)from, 8)
#define WR_INLINE(len) ibv_wr_set_inline_data(qp, (uint64_t *)(uintptr_t)from + i, len)
#define WR_INLINE_POST(len) WR_POST(inline##len, 1, WR_WRITE, WR_INLINE(len))
WR_INLINE_POST(8)
WR_INLINE_POST(32)
WR_INLINE_POST(64)
WR_INLINE_POST(128)
WR_INLINE_POST(256)
WR_POST(sge1, 1, WR_WRITE, WR_SGE)
WR_POST(sge4, 1, WR_WRITE, ibv_wr_set_sge_list(qp, 4, sges))
WR_POST(imm, 1, ibv_wr_rdma_write_imm(qp, rkey, raddr, 7), WR_SGE)
WR_POST(send, 1, ibv_wr_send(qp), WR_SGE)
WR_POST(read, 1, ibv_wr_rdma_read(qp, rkey, raddr), WR_SGE)
WR_POST(add, 1, ibv_wr_atomic_fetch_add(qp, rkey, raddr, 1), WR_SGE)
WR_POST(swap, 1, ibv_wr_atomic_cmp_swp(qp, rkey, raddr, 1, 2), WR_SGE)
WR_POST(raw, 1, mlx5dv_wr_raw_wqe(s->qpdv, raw), )
WR_POST(copy, 1, mlx5dv_wr_memcpy(s->qpdv, lkey, sges[1].addr, lkey, sges[0].addr, 8), )
WR_POST(burst8, 8, WR_WRITE, WR_INLINE(8))
WR_POST(burst32, 32, WR_WRITE, WR_INLINE(8))

#define NOT_VERBS -1            /* ibv_post_send does not have it */
#define MLX5DV -2               /* nor has ibv_wr_* */
#define BOTH(name) count_inlay_##name##_, count_wr_##name##_

static const struct post {
	const char *row;
	unsigned per, bbs, len, num_sge; /* writes a call, WQEBBs a write, bytes inline */
	int opcode;
	int (*inlay)(POST_ARGS);
	int (*wr)(WR_ARGS);
	int (*floor)(struct floor_sq *sq, uint64_t raddr, uint32_t rkey, const void *from, uint32_t lkey);
} posts[] = {
	{"write 8 B inline, BlueFlame", 1, 1, 8, 1, IBV_WR_RDMA_WRITE, BOTH(inline8), count_floor_inline_},
	{"write 8 B inline, doorbell", 1, 1, 8, 1, NOT_VERBS, count_inlay_inline8_db_, NULL, NULL},
	{"write 32 B inline, BlueFlame", 1, 2, 32, 1, IBV_WR_RDMA_WRITE, BOTH(inline32), NULL},
	{"write 64 B inline, BlueFlame", 1, 2, 64, 1, IBV_WR_RDMA_WRITE, BOTH(inline64), NULL},
	{"write 128 B inline, BlueFlame", 1, 3, 128, 1, IBV_WR_RDMA_WRITE, BOTH(inline128), NULL},
	{"write 256 B inline", 1, 5, 256, 1, IBV_WR_RDMA_WRITE, BOTH(inline256), NULL},
	{"write 1 SGE, doorbell", 1, 1, 0, 1, IBV_WR_RDMA_WRITE, BOTH(sge1), count_floor_sge_},
	{"write 1 SGE, BlueFlame", 1, 1, 0, 1, NOT_VERBS, count_inlay_sge1_bf_, NULL, NULL},
	{"write 4 SGEs, doorbell", 1, 2, 0, 4, IBV_WR_RDMA_WRITE, BOTH(sge4), NULL},
	{"write with immediate, doorbell", 1, 1, 0, 1, IBV_WR_RDMA_WRITE_WITH_IMM, BOTH(imm), NULL},
	{"send 1 SGE, doorbell", 1, 1, 0, 1, IBV_WR_SEND, BOTH(send), NULL},
	{"read 1 SGE, doorbell", 1, 1, 0, 1, IBV_WR_RDMA_READ, BOTH(read), NULL},
	{"fetch-and-add, doorbell", 1, 1, 0, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, BOTH(add), NULL},
	{"compare-and-swap, doorbell", 1, 1, 0, 1, IBV_WR_ATOMIC_CMP_AND_SWP, BOTH(swap), NULL},
	{"raw WQE of 64 B, doorbell", 1, 1, 0, 1, MLX5DV, BOTH(raw), NULL},
	{"copy of local memory, doorbell", 1, 1, 0, 1, MLX5DV, BOTH(copy), NULL},
	{"write 8 B inline, 8 a doorbell", 8, 1, 8, 1, IBV_WR_RDMA_WRITE, BOTH(burst8), NULL},
	{"write 8 B inline, 32 a doorbell", 32, 1, 8, 1, IBV_WR_RDMA_WRITE, BOTH(burst32), count_floor_burst_},
	{"write 8 B inline, length known at run time", 1, 1, 8, 1, IBV_WR_RDMA_WRITE, count_inlay_any_, count_wr_inline8_, NULL},
	{"write 8 B inline, post, then ring", 1, 1, 8, 1, NOT_VERBS, count_inlay_two_, NULL, NULL},
	{"bare copy of a prebuilt WQE", 1, 1, 0, 1, NOT_VERBS, NULL, NULL, count_floor_copy_},
};
#define ONE_SGE (&posts[6])
static const struct post *post;

/* ---- Polls: found, its status looked at, its request named, credit and slot given back ---- */

#define MOST 64

/* One: what names its request, or -1 */
COUNTED int count_poll_inlay_(struct side *s)
{
	const struct mlx5_cqe64 *cqe = inlay_cq_peek(&s->icq);
	int name;

	if (!cqe || INLAY_UNLIKELY(inlay_cqe_is_error(cqe)) || INLAY_UNLIKELY(inlay_sq_release(&s->sq, cqe) < 0))
		return -1;
	name = inlay_cqe_wqe_counter(cqe);
	inlay_cq_advance(&s->icq, 1);
	return name;
}

COUNTED int count_poll_cq_(struct side *s)
{
	struct ibv_wc wc;

	return ibv_poll_cq(s->cq, 1, &wc) == 1 && !wc.status ? (int)wc.wr_id : -1;
}

COUNTED int count_start_poll_(struct side *s)
{
	struct ibv_poll_cq_attr attr = {0};
	int name;

	if (ibv_start_poll(s->cqx, &attr))
		return -1;
	name = s->cqx->status ? -1 : (int)s->cqx->wr_id;
	ibv_end_poll(s->cqx);
	return name;
}

ALWAYS unsigned named(int name)
{
	sum += (unsigned)name;
	return name >= 0;
}

ALWAYS unsigned poll_inlay(struct side *s, unsigned most)
{
	const struct mlx5_cqe64 *cqe, *last = NULL;
	unsigned n;

	for (n = 0; n < most && (cqe = inlay_cq_peek(&s->icq)); n++) {
		if (INLAY_UNLIKELY(inlay_cqe_is_error(cqe)))
			die("an error completion");
		sum += inlay_cqe_wqe_counter(cqe);
		last = cqe;
		inlay_cq_advance_quiet(&s->icq, 1);
	}
	if (n && INLAY_UNLIKELY(inlay_sq_release(&s->sq, last) < 0)) /* the queue's own CQ: the last one's releases all */
		die("another queue's completion");
	inlay_cq_update(&s->icq);
	return n;
}

ALWAYS unsigned poll_cq(struct side *s, unsigned most)
{
	struct ibv_wc wc[MOST];
	int n = ibv_poll_cq(s->cq, (int)most, wc);

	for (int i = 0; i < n; i++) {
		if (wc[i].status)
			die("an error completion");
		sum += wc[i].wr_id;
	}
	return n > 0 ? (unsigned)n : 0;
}

ALWAYS unsigned start_poll(struct side *s, unsigned most)
{
	struct ibv_poll_cq_attr attr = {0};
	unsigned n = 0;

	if (ibv_start_poll(s->cqx, &attr))
		return 0;
	do {
		if (s->cqx->status)
			die("an error completion");
		sum += s->cqx->wr_id;
	} while (++n < most && !ibv_next_poll(s->cqx));
	ibv_end_poll(s->cqx);
	return n;
}

#define POLLS(n)												\
	COUNTED unsigned count_poll_inlay_##n##_(struct side *s) { return poll_inlay(s, n); }			\
	COUNTED unsigned count_poll_cq_##n##_(struct side *s) { return poll_cq(s, n); }				\
	COUNTED unsigned count_start_poll_##n##_(struct side *s) { return start_poll(s, n); }
POLLS(16)
POLLS(64)

/* ---- The device, and its queues ---- */

/* Requests of `of`, with these keys */
static void requests(const struct post *of, const struct side *s)
{
	unsigned i;

	for (i = 0; i < 4; i++) {
		sges[i].addr = (uintptr_t)data + 64 * i;
		sges[i].length = of->len ? of->len : 8;
		sges[i].lkey = s->mr->lkey;
	}
	memset(wr, 0, sizeof(wr));
	for (i = 0; i < of->per; i++) {
		wr[i].wr_id = 1000 + i;
		wr[i].opcode = (enum ibv_wr_opcode)of->opcode;
		wr[i].send_flags = (of->len ? IBV_SEND_INLINE : 0) | (of->per == 1 ? IBV_SEND_SIGNALED : 0);
		wr[i].sg_list = sges;
		wr[i].num_sge = (int)of->num_sge;
		wr[i].next = i + 1 < of->per ? &wr[i + 1] : NULL;
		wr[i].wr.rdma.remote_addr = wr[i].wr.atomic.remote_addr = (uintptr_t)target;
		if (of->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || of->opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
			wr[i].wr.atomic.rkey = s->mr->rkey;
		else
			wr[i].wr.rdma.rkey = s->mr->rkey;
	}
}

/* Makes connected queues; one write goes all the way, which shows the CQE that the device writes */
static struct side *open_side(int own, const char *locks)
{
	struct side *s = aligned_alloc(64, sizeof(*s));
	const struct ibv_qp_cap cap = {2 * LAP, 1, 4, 1, 256};
	struct ibv_cq_init_attr_ex cq_attr = {.cqe = 4 * LAP};
	struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_RC, .cap = cap,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
			IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
			IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD};
	struct mlx5dv_qp_init_attr dv_attr = {.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE | MLX5DV_QP_EX_WITH_MEMCPY};
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_send_wr *bad;
	struct mlx5dv_obj obj;
	struct mlx5dv_qp qp;
	struct mlx5dv_cq cq;
	struct ibv_wc wc;

	NEED(s, "aligned_alloc");
	memset(s, 0, sizeof(*s));
	setenv("MLX5_SINGLE_THREADED", locks, 1);       /* libmlx5 reads it as it opens the device */
	s->ctx = inlay_device_open(NULL, NULL);
	NEED(s->ctx, "opening the device");
	s->pd = ibv_alloc_pd(s->ctx);
	s->mr = s->pd ? ibv_reg_mr(s->pd, data, sizeof(data), access) : NULL;
	NEED(s->mr && ibv_reg_mr(s->pd, target, sizeof(target), access), "ibv_reg_mr");
	s->cqx = ibv_create_cq_ex(s->ctx, &cq_attr);
	NEED(s->cqx, "ibv_create_cq_ex");
	s->cq = attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(s->cqx);
	attr.pd = s->pd;
	s->peer = ibv_create_qp_ex(s->ctx, &attr);
	if (own) {
		NEED(!inlay_uar_create(&s->uar, s->pd, INLAY_UAR_SERIAL, NULL), "inlay_uar_create");
		attr.pd = s->uar.pd;
	}
	s->qp = getenv("BENCH_VERBS") ? ibv_create_qp_ex(s->ctx, &attr) : mlx5dv_create_qp(s->ctx, &attr, &dv_attr);
	NEED(s->qp && s->peer && !inlay_connect_pair(s->qp, s->peer, NULL, NULL), "connecting");
	s->qpx = ibv_qp_to_qp_ex(s->qp);
	s->qpdv = mlx5dv_qp_ex_from_ibv_qp_ex(s->qpx);
	requests(ONE_SGE, s);
	wr[0].wr.rdma.rkey = s->mr->rkey;
	wr[0].wr.rdma.remote_addr = (uintptr_t)data + 64;
	s->own = own;
	if (own) {
		NEED(!inlay_sq_from_qp(&s->sq, s->qp, &s->uar, NULL, NULL) &&
		     !inlay_cq_from_cq(&s->icq, s->cq, NULL), "taking over");
		NEED(!inlay_post_write(&s->sq, wr[0].wr.rdma.remote_addr, s->mr->rkey, sges, 1,
				       INLAY_SIGNALED | INLAY_RING), "post");
	} else {
		NEED(!ibv_post_send(s->qp, wr, &bad), "the first post");
	}
	NEED(softdev_run() == 1, "the first write");
	obj.cq.in = s->cq;
	obj.cq.out = &cq;
	obj.qp.in = s->qp;
	obj.qp.out = &qp;
	memset(&cq, 0, sizeof(cq));
	memset(&qp, 0, sizeof(qp));
	NEED(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ | MLX5DV_OBJ_QP) && cq.cqe_size == 64, "mlx5dv_init_obj");
	memcpy(&s->cqe, cq.buf, 64);
	s->cqn = cq.cqn;
	if (own) {
		NEED(inlay_sq_release(&s->sq, inlay_cq_peek(&s->icq)) > 0, "the first release");
		inlay_cq_advance(&s->icq, 1);
	} else {
		NEED(ibv_poll_cq(s->cq, 1, &wc) == 1 && !wc.status, "the first poll");
	}
	s->floor_sq = (struct floor_sq){qp.sq.buf, qp.bf.reg, (uint16_t *)(qp.dbrec + 1) + 1, qp.sq.wqe_cnt - 1, 1,
		(uint64_t)MLX5_OPCODE_RDMA_WRITE << 32 | s->qp->qp_num << 8 | 3, qp.bf.size};
	s->floor_cq = (struct floor_cq){cq.buf, cq.dbrec, cq.cqe_cnt, 1};
	memset(raw, 0, sizeof(raw));
	raw[3] = MLX5_OPCODE_NOP;
	raw[7] = 4;
	raw[11] = 8;
	return s;
}

/* The device is done with what was posted: one CQE for the last gives the credit back */
static void refill(struct side *s)
{
	uint16_t end = be16toh(*s->floor_sq.record);
	struct ibv_wc wc;

	NEED(softdev_skip(s->qp->qp_num) == (int)(LAP * post->bbs), "every WQE is there: softdev_skip");
	s->cqe.wqe_counter = inlay_to_be16((uint16_t)(end - post->bbs));
	NEED(softdev_inject_cqes(s->cqn, &s->cqe, 1, 0) == 1, "softdev_inject_cqes");
	if (s->own) {
		NEED(inlay_sq_release(&s->sq, inlay_cq_peek(&s->icq)) > 0 && !inlay_sq_pending(&s->sq), "all credit");
		inlay_cq_advance(&s->icq, 1);
	} else {
		NEED(ibv_poll_cq(s->cq, 1, &wc) == 1 && !wc.status, "ibv_poll_cq");
	}
}

#define LAPS(name, per, call, after)										\
	static double name(void *arg, uint64_t n)								\
	{													\
		struct side *s = arg;										\
		double seconds = 0, t;										\
		uint64_t done, raddr = (uintptr_t)target;							\
		uint32_t rkey = s->mr->rkey, lkey = s->mr->lkey;						\
		const struct post *p = post;									\
		(void)raddr, (void)rkey, (void)lkey, (void)p;							\
		for (done = 0; done < n; done += LAP) {								\
			int bad = 0;										\
			t = now();										\
			for (unsigned i = 0; i < LAP; i += per)							\
				bad |= call;									\
			seconds += now() - t;									\
			NEED(!bad, "an operation");								\
			after;											\
		}												\
		return seconds;											\
	}
LAPS(post_by_inlay, p->per, p->inlay(&s->sq, raddr, rkey, data, lkey), refill(s))
LAPS(post_by_verbs, p->per, count_ibv_post_send_(s->qp, wr), refill(s))
LAPS(post_by_wr, p->per, p->wr(s, raddr, rkey, data, lkey), refill(s))
LAPS(post_by_floor, p->per, p->floor(&s->floor_sq, raddr, rkey, data, lkey), softdev_skip(s->qp->qp_num))

/* The requests of s complete again and again; which are LAP, outstanding */
#define POLL_LAPS(name, per, call)										\
	static double name(void *arg, uint64_t n)								\
	{													\
		struct side *s = arg;										\
		double seconds = 0, t;										\
		for (uint64_t done = 0; done < n; done += LAP) {						\
			unsigned got = 0;									\
			if (s->own)										\
				s->sq = s->full;								\
			NEED(softdev_inject_cqes(s->cqn, &s->cqe, LAP, 1) == (int)LAP, "softdev_inject_cqes");	\
			t = now();										\
			for (unsigned i = 0; i < LAP; i += per)							\
				got += call;									\
			seconds += now() - t;									\
			NEED(got == LAP, "finding every completion");						\
		}												\
		return seconds;											\
	}
#define POLL_ROWS(n)												\
	POLL_LAPS(poll_by_inlay_##n, n, count_poll_inlay_##n##_(s))						\
	POLL_LAPS(poll_by_poll_cq_##n, n, count_poll_cq_##n##_(s))						\
	POLL_LAPS(poll_by_start_poll_##n, n, count_start_poll_##n##_(s))
POLL_LAPS(poll_by_inlay_1, 1, named(count_poll_inlay_(s)))
POLL_LAPS(poll_by_poll_cq_1, 1, named(count_poll_cq_(s)))
POLL_LAPS(poll_by_start_poll_1, 1, named(count_start_poll_(s)))
POLL_LAPS(poll_by_floor, 1, named(count_floor_poll_(&s->floor_cq)))
POLL_ROWS(16)
POLL_ROWS(64)

static double owner_by_floor(void *arg, uint64_t n)
{
	double t = now();

	for (uint64_t i = 0; i < n; i++)
		sum += (unsigned)count_floor_owner_(&((struct side *)arg)->floor_cq);
	return now() - t;
}

/* LAP requests outstanding, WQEs 1 to LAP, that the device never sees done */
static void fill(struct side *s)
{
	struct ibv_send_wr *bad;
	unsigned i;

	requests(ONE_SGE, s);
	for (i = 0; i < LAP; i++)
		NEED(s->own ? !inlay_post_write(&s->sq, (uintptr_t)target, s->mr->rkey, sges, 1, INLAY_SIGNALED) :
			      !ibv_post_send(s->qp, wr, &bad), "post");
	s->full = s->sq;
	s->cqe.wqe_counter = inlay_to_be16(1);
}

/* ---- From post to poll: the device's part is the same for all ---- */

#define TRIP(name, posted, polled)										\
	static double name(void *arg, uint64_t n)								\
	{													\
		struct side *s = arg;										\
		double t = now();										\
		for (uint64_t i = 0; i < n; i++)								\
			if ((posted) || softdev_run() != 1 || !(polled))					\
				die("a round trip failed");							\
		return now() - t;										\
	}
TRIP(trip_inlay, count_inlay_inline8_(&s->sq, (uintptr_t)data + 512, s->mr->rkey, data, 0), count_poll_inlay_(s) >= 0)
TRIP(trip_verbs, count_ibv_post_send_(s->qp, wr), count_poll_cq_(s) >= 0)
TRIP(trip_wr, count_wr_inline8_(s, (uintptr_t)data + 512, s->mr->rkey, data, 0), count_start_poll_(s) >= 0)

int main(void)
{
	static const char locks[] = "function pointer, lock, a wr_id kept, fence", none[] = "as above, no locks";
	static const char plain[] = "credit, WQE, record, register", bare[] = "WQE, record, register";
	static const char polls[] = "lock, QP lookup, wr_id, struct ibv_wc, fence";
	static const char started[] = "lock, QP lookup, wr_id, fence", own[] = "error test, exact credit, record";
	static const char trip[] = "post, device, poll";
	static const char *const by_verbs[] = {"ibv_post_send", "ibv_post_send, no locks"};
	static const char *const by_wr[] = {"ibv_wr", "ibv_wr, no locks"};
	int verbs = getenv("BENCH_VERBS") != NULL;
	struct side *s[9] = {NULL};
	unsigned i, k;

	if (!softdev_present() || softdev_manual(1))
		die("needs the stepped software device: start it with tests/softdev/run --manual");
	/* 0: inlay; 1, 2: libmlx5 with and without its locks; 3: the floor, which needs rings alone. 4 to 8: polls */
	for (i = 0; i < 9; i++)
		s[i] = verbs && i % 4 == 0 ? NULL : open_side(i == 0 || i == 4, i == 2 || i == 6 ? "1" : "0");
	struct way trips[] = {{"inlay", trip_inlay, s[0], trip}, {"ibv_post_send", trip_verbs, s[1], trip},
		{"ibv_wr", trip_wr, s[2], "post, device, poll; no locks"}};
	requests(&posts[0], s[1]);
	wr[0].wr.rdma.remote_addr = (uintptr_t)data + 512;
	bench_row("round trip", "write 8 B, device, completion", trips + verbs, 3 - 2 * (unsigned)verbs, LAP);

	for (i = 0; i < sizeof(posts) / sizeof(posts[0]); i++) {
		struct way ways[8];
		unsigned n = 0;

		post = &posts[i];
		if (post->inlay && !verbs)
			ways[n++] = (struct way){"inlay", post_by_inlay, s[0], plain};
		if (post->floor && !verbs)
			ways[n++] = (struct way){"floor", post_by_floor, s[3], bare};
		for (k = 0; k < 2; k++) {
			if (post->opcode >= 0)
				ways[n++] = (struct way){by_verbs[k], post_by_verbs, s[1 + k], k ? none : locks};
			if (post->wr && !(verbs && post->opcode == MLX5DV))
				ways[n++] = (struct way){by_wr[k], post_by_wr, s[1 + k], k ? none : locks};
		}
		/* Whose key is in them does not matter: the device never reads these */
		requests(post, s[1]);
		bench_row("post", post->row, ways, n, LAP);
	}

	for (i = 4 + (unsigned)verbs; i < 8; i++)
		fill(s[i]);
#define POLL_WAYS(n)												\
	{"inlay", poll_by_inlay_##n, s[4], own}, {"ibv_poll_cq", poll_by_poll_cq_##n, s[5], polls},		\
	{"ibv_poll_cq, no locks", poll_by_poll_cq_##n, s[6], none},						\
	{"ibv_start_poll", poll_by_start_poll_##n, s[7], started}
	struct way one[] = {POLL_WAYS(1), {"floor", poll_by_floor, s[8], "owner test, WQE counter, record"}};
	struct way some[] = {POLL_WAYS(16)}, many[] = {POLL_WAYS(64)};
	struct way owner[] = {{"floor", owner_by_floor, s[8], "one load"}};
	bench_row("poll", "one completion", one + verbs, 5 - 2 * (unsigned)verbs, LAP);
	bench_row("poll", "16 completions", some + verbs, 4 - (unsigned)verbs, LAP);
	bench_row("poll", "64 completions", many + verbs, 4 - (unsigned)verbs, LAP);
	if (!verbs)
		bench_row("poll", "bare load of an owner byte", owner, 1, LAP);
	return 0;
}
