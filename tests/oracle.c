/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oracle.c: does inlay write, byte for byte, what libmlx5 writes, and read CQEs as libmlx5 reads them?
 *
 * The twins. Queue pairs created alike, in one context, kept in lockstep: whatever is asked of one is asked of all, so that
 * they stand at the same place of rings of the same size. Two are driven by libmlx5, one by inlay:
 *
 *   a    libmlx5   free ring, register and record filled with 00
 *   b    libmlx5   the same filled with ff: a byte that differs between a and b is one that libmlx5 left alone
 *   c    inlay     filled with a third value
 *
 * Where a and b agree, c must agree: whole ring, both halves of the register, doorbell record. Only the QPN differs between
 * twins; it is looked at, and then c's is put in its place. Beyond what libmlx5 says, inlay must leave alone every byte of the
 * ring outside of the units of its WQEs.
 *
 * The device is stepped and executes nothing. Completions that give libmlx5 its credit back are injected.
 *
 * Environment: ORACLE_CASES, requests of the random run (100,000); ORACLE_SEED, where its random numbers begin.
 */
#include "common.h"
#include <endian.h>

#define MAX_SGE 30u             /* the device's */
#define MAX_INLINE 908u         /* the longest that fits the device's longest WQE with libmlx5's overhead for LEAN */
#define MAX_BATCH 48u
#define WQE_MAX 15u             /* WQEBBs of the longest */
#define DATA_BYTES 8192u

#define LEAN (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |      \
	      IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |                  \
	      IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
#define FULL (LEAN | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW)

enum op { SEND, SEND_IMM, SEND_INV, WRITE, WRITE_IMM, READ, CAS, FAA, OPS };
enum { SIG = 1, SOL = 2, FENCE = 4, FLAG_SETS = 8 };
enum { POST_SEND, WR, APIS };
enum { PLAIN, CONST, CURSOR, WAYS };

static const char *const op_name[OPS] = {"SEND", "SEND_IMM", "SEND_INV", "WRITE", "WRITE_IMM", "READ", "CAS", "FAA"};
static const uint8_t op_code[OPS] = {MLX5_OPCODE_SEND, MLX5_OPCODE_SEND_IMM, MLX5_OPCODE_SEND_INVAL, MLX5_OPCODE_RDMA_WRITE,
				     MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_OPCODE_RDMA_READ, MLX5_OPCODE_ATOMIC_CS,
				     MLX5_OPCODE_ATOMIC_FA};
static const enum ibv_wr_opcode op_verb[OPS] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, IBV_WR_RDMA_WRITE,
						IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
						IBV_WR_ATOMIC_FETCH_AND_ADD};

/* A request, in a form of neither side */
struct req {
	uint8_t op, flags;
	uint8_t inl;
	uint8_t list;           /* ibv_wr_*: the list setter, for one buffer too */
	uint32_t nsge;
	uint32_t rkey, imm;     /* imm: as on the wire, or the rkey to invalidate in host order */
	uint64_t raddr;
	uint64_t a, b;          /* CAS: compare, swap. FAA: add, nothing */
	struct ibv_sge sge[MAX_SGE + 4];
};

/* A twin of libmlx5's */
struct lib {
	struct ibv_qp *qp;
	struct ibv_qp_ex *qpx;  /* NULL: created without the ibv_wr_* interface */
	struct ibv_td *td;
	struct ibv_pd *pd;
	uint8_t *ring, *reg, *rq;
	uint32_t *dbrec;
	uint32_t uidx;          /* how a CQE names it */
	uint32_t half;          /* of the register, that the next doorbell goes to: 0 or 1 */
};

struct trio {
	struct lib a, b;
	struct ibv_cq *cq;      /* of all */
	uint32_t cqn;
	struct ibv_qp *qp;      /* c's */
	struct inlay_uar uar;
	struct inlay_sq sq;
	struct inlay_rq in_rq;
	uint8_t *ring, *reg, *rq;
	uint32_t *dbrec;
	uint32_t half;
	struct ibv_qp_cap cap;  /* as granted */
	uint32_t bbs;           /* WQEBBs in the ring */
	uint32_t size;          /* bytes of half a register */
	uint32_t rq_cnt, rq_stride;
	uint32_t pos;           /* WQEBBs posted, never masked */
	uint32_t tail_pos;      /* where the oldest outstanding WQE begins */
	uint32_t head, tail;    /* WQEs posted, completed */
	uint32_t rhead, rtail;  /* receive WQEs */
	uint64_t wr_id;         /* of the next WQE to complete */
	uint8_t salt;           /* what c is filled with */
	uint32_t start[65536];  /* where the outstanding WQEs begin */
};

static struct trio T;
static uint8_t data[DATA_BYTES];
static uint64_t cases, requests, compared; /* batches compared, requests in them, bytes */
static FILE *report_to;

/* ---- requests ---- */

static bool is_rdma(unsigned op)
{
	return op >= WRITE;
}

static bool is_atomic(unsigned op)
{
	return op == CAS || op == FAA;
}

/* Length of the WQE in 16-byte units, from the layout alone */
static uint32_t req_ds(const struct req *r)
{
	uint32_t ds = 1 + is_rdma(r->op) + is_atomic(r->op), i;
	uint64_t total = 0;

	for (i = 0; i < r->nsge; i++)
		total += r->sge[i].length;
	if (r->inl)
		return ds + (total ? (uint32_t)((4 + total + 15) / 16) : 0);
	for (i = 0; i < r->nsge; i++)
		ds += r->sge[i].length != 0;
	return ds;
}

static void req_print(FILE *out, const struct req *r)
{
	uint32_t i;

	fprintf(out, "%s%s%s%s%s, %u buffers:", op_name[r->op], r->inl ? " inline" : "", r->flags & SIG ? " signaled" : "",
		r->flags & SOL ? " solicited" : "", r->flags & FENCE ? " fence" : "", r->nsge);
	for (i = 0; i < r->nsge; i++)
		fprintf(out, " %u", r->sge[i].length);
	fprintf(out, "\n");
}

/* Everything that a request can have beside opcode, flags and buffers */
static void req_init(struct req *r, unsigned op, unsigned flags)
{
	r->op = (uint8_t)op;
	r->flags = (uint8_t)flags;
	r->inl = 0;
	r->list = 0;
	r->nsge = 0;
	r->rkey = (uint32_t)rnd();
	r->imm = (uint32_t)rnd();
	r->raddr = rnd();
	r->a = rnd();
	r->b = rnd();
}

static void req_inline(struct req *r, uint32_t len)
{
	r->sge[r->nsge].addr = (uintptr_t)data + rnd_below(DATA_BYTES - 1024);
	r->sge[r->nsge].length = len;
	r->sge[r->nsge].lkey = (uint32_t)rnd();
	r->nsge++;
	r->inl = 1;
}

static void req_pointer(struct req *r, uint32_t len)
{
	r->sge[r->nsge].addr = rnd();
	r->sge[r->nsge].length = len;
	r->sge[r->nsge].lkey = (uint32_t)rnd();
	r->nsge++;
}

/* ---- libmlx5's way ---- */

static int post_send(struct lib *l, const struct req *r, unsigned n, uint64_t wr_id)
{
	static struct ibv_send_wr wr[MAX_BATCH];
	struct ibv_send_wr *bad;
	unsigned i;

	for (i = 0; i < n; i++, r++) {
		struct ibv_send_wr *w = &wr[i];

		w->wr_id = wr_id + i;
		w->next = i + 1 < n ? w + 1 : NULL;
		w->sg_list = (struct ibv_sge *)(uintptr_t)r->sge;
		w->num_sge = (int)r->nsge;
		w->opcode = op_verb[r->op];
		w->send_flags = (r->flags & SIG ? IBV_SEND_SIGNALED : 0) | (r->flags & SOL ? IBV_SEND_SOLICITED : 0) |
				(r->flags & FENCE ? IBV_SEND_FENCE : 0) | (r->inl ? IBV_SEND_INLINE : 0);
		w->imm_data = r->imm; /* invalidate_rkey is in the same place */
		if (is_atomic(r->op)) {
			w->wr.atomic.remote_addr = r->raddr;
			w->wr.atomic.rkey = r->rkey;
			w->wr.atomic.compare_add = r->a;
			w->wr.atomic.swap = r->b;
		} else {
			w->wr.rdma.remote_addr = r->raddr;
			w->wr.rdma.rkey = r->rkey;
		}
	}
	return ibv_post_send(l->qp, wr, &bad);
}

static int post_wr(struct lib *l, const struct req *r, unsigned n, uint64_t wr_id)
{
	struct ibv_data_buf buf[MAX_SGE + 4];
	struct ibv_qp_ex *q = l->qpx;
	unsigned i, k;

	ibv_wr_start(q);
	for (i = 0; i < n; i++, r++) {
		q->wr_id = wr_id + i;
		q->wr_flags = (r->flags & SIG ? IBV_SEND_SIGNALED : 0) | (r->flags & SOL ? IBV_SEND_SOLICITED : 0) |
			      (r->flags & FENCE ? IBV_SEND_FENCE : 0);
		switch (r->op) {
		case SEND: ibv_wr_send(q); break;
		case SEND_IMM: ibv_wr_send_imm(q, r->imm); break;
		case SEND_INV: ibv_wr_send_inv(q, r->imm); break;
		case WRITE: ibv_wr_rdma_write(q, r->rkey, r->raddr); break;
		case WRITE_IMM: ibv_wr_rdma_write_imm(q, r->rkey, r->raddr, r->imm); break;
		case READ: ibv_wr_rdma_read(q, r->rkey, r->raddr); break;
		case CAS: ibv_wr_atomic_cmp_swp(q, r->rkey, r->raddr, r->a, r->b); break;
		default: ibv_wr_atomic_fetch_add(q, r->rkey, r->raddr, r->a); break;
		}
		if (r->inl && r->nsge == 1 && !r->list) {
			ibv_wr_set_inline_data(q, (void *)(uintptr_t)r->sge[0].addr, r->sge[0].length);
		} else if (r->inl) {
			for (k = 0; k < r->nsge; k++) {
				buf[k].addr = (void *)(uintptr_t)r->sge[k].addr;
				buf[k].length = r->sge[k].length;
			}
			ibv_wr_set_inline_data_list(q, r->nsge, buf);
		} else if (r->nsge == 1 && !r->list) {
			ibv_wr_set_sge(q, r->sge[0].lkey, r->sge[0].addr, r->sge[0].length);
		} else {
			ibv_wr_set_sge_list(q, r->nsge, r->sge);
		}
	}
	return ibv_wr_complete(q);
}

static int post_lib(struct lib *l, unsigned api, const struct req *r, unsigned n, uint64_t wr_id)
{
	return api == WR ? post_wr(l, r, n, wr_id) : post_send(l, r, n, wr_id);
}

/* ---- inlay's ways ---- */

static uint32_t in_flags(const struct req *r)
{
	return (r->flags & SIG ? INLAY_SIGNALED : 0) | (r->flags & SOL ? INLAY_SOLICITED : 0) |
	       (r->flags & FENCE ? INLAY_FENCE_SMALL_AND_FENCE : 0) | (r->inl ? INLAY_INLINE : 0);
}

/* What an application whose arguments are variables writes; with constants, what folds */
INLAY_ALWAYS int in_post(struct inlay_sq *sq, const struct req *r, uint8_t op, const struct ibv_sge *sge, uint32_t n,
			 uint32_t flags)
{
	switch (op) {
	case SEND: return inlay_post_send(sq, sge, n, flags);
	case SEND_IMM: return inlay_post_send_imm(sq, r->imm, sge, n, flags);
	case SEND_INV: return inlay_post_send_inv(sq, r->imm, sge, n, flags);
	case WRITE: return inlay_post_write(sq, r->raddr, r->rkey, sge, n, flags);
	case WRITE_IMM: return inlay_post_write_imm(sq, r->raddr, r->rkey, r->imm, sge, n, flags);
	case READ: return inlay_post_read(sq, r->raddr, r->rkey, sge, n, flags);
	case CAS: return inlay_post_cmp_swap(sq, r->raddr, r->rkey, r->a, r->b, sge, flags);
	default: return inlay_post_fetch_add(sq, r->raddr, r->rkey, r->a, sge, flags);
	}
}

static __attribute__((noinline)) int in_plain(struct inlay_sq *sq, const struct req *r)
{
	return in_post(sq, r, r->op, r->sge, r->nsge, in_flags(r));
}

/* Call sites at which opcode, number of SGEs or inline length, and flags are constants; many functions, for the compiler's sake */
#define LEN(n) case (n): return is_send ? inlay_post_send_inline(sq, p, (n), flags) :                                              \
					  inlay_post_write_inline(sq, r->raddr, r->rkey, p, (n), flags);
#define LEN4(n) LEN(n) LEN((n) + 1) LEN((n) + 2) LEN((n) + 3)

INLAY_ALWAYS int const_inline(struct inlay_sq *sq, const struct req *r, int is_send, int high, uint32_t flags)
{
	const void *p = (const void *)(uintptr_t)r->sge[0].addr;

	if (high) {
		switch (r->sge[0].length) {
		LEN(36) LEN(40) LEN4(42) LEN(48) LEN(59) LEN4(60) LEN(64) LEN(65) LEN(76) LEN(77) LEN(92) LEN(96) LEN(107) LEN4(108)
		LEN(128) LEN(172) LEN(173) LEN(256) LEN(908)
		default: return in_plain(sq, r);
		}
	}
	switch (r->sge[0].length) {
	LEN4(0) LEN4(4) LEN4(8) LEN4(12) LEN4(16) LEN(20) LEN(24) LEN4(26) LEN(30) LEN(31) LEN(32) LEN(33)
	default: return in_plain(sq, r);
	}
}

INLAY_ALWAYS int const_sges(struct inlay_sq *sq, const struct req *r, uint8_t op, uint32_t flags)
{
	switch (r->nsge) {
	case 0: return in_post(sq, r, op, r->sge, 0, flags);
	case 1: return in_post(sq, r, op, r->sge, 1, flags);
	case 2: return in_post(sq, r, op, r->sge, 2, flags);
	case 3: return in_post(sq, r, op, r->sge, 3, flags);
	case 5: return in_post(sq, r, op, r->sge, 5, flags);
	default: return in_plain(sq, r);
	}
}

#define CONST_FN(name, call)                                                                                                       \
	static __attribute__((noinline)) int name(struct inlay_sq *sq, const struct req *r)                                        \
	{                                                                                                                          \
		return call;                                                                                                       \
	}
#define CONST_OP(op)                                                                                                               \
	CONST_FN(const_##op, const_sges(sq, r, op, INLAY_SIGNALED))                                                                \
	CONST_FN(const_inline_##op, const_sges(sq, r, op, INLAY_INLINE))                                                           \
	CONST_FN(const_flags_##op, const_sges(sq, r, op, in_flags(r)))

CONST_FN(const_send_low, const_inline(sq, r, 1, 0, INLAY_SIGNALED))
CONST_FN(const_send_high, const_inline(sq, r, 1, 1, in_flags(r) & 0xff))
CONST_FN(const_write_low, const_inline(sq, r, 0, 0, INLAY_SIGNALED | INLAY_SOLICITED | INLAY_FENCE_SMALL_AND_FENCE))
CONST_FN(const_write_high, const_inline(sq, r, 0, 1, INLAY_SIGNALED))
CONST_OP(SEND)
CONST_OP(SEND_IMM)
CONST_OP(SEND_INV)
CONST_OP(WRITE)
CONST_OP(WRITE_IMM)
CONST_FN(const_READ, const_sges(sq, r, READ, INLAY_SIGNALED))
CONST_FN(const_flags_READ, const_sges(sq, r, READ, in_flags(r)))
CONST_FN(const_CAS, in_post(sq, r, CAS, r->sge, 1, INLAY_SIGNALED))
CONST_FN(const_FAA, in_post(sq, r, FAA, r->sge, 1, INLAY_SIGNALED))

/* The function whose constants are r's; else the one whose are not */
static int in_const(struct inlay_sq *sq, const struct req *r)
{
	static int (*const signaled[OPS])(struct inlay_sq *, const struct req *) = {
		const_SEND, const_SEND_IMM, const_SEND_INV, const_WRITE, const_WRITE_IMM, const_READ, const_CAS, const_FAA};
	static int (*const inl[OPS])(struct inlay_sq *, const struct req *) = {
		const_inline_SEND, const_inline_SEND_IMM, const_inline_SEND_INV, const_inline_WRITE, const_inline_WRITE_IMM};
	static int (*const any[OPS])(struct inlay_sq *, const struct req *) = {
		const_flags_SEND, const_flags_SEND_IMM, const_flags_SEND_INV, const_flags_WRITE, const_flags_WRITE_IMM,
		const_flags_READ, in_plain, in_plain};

	if (r->inl && r->nsge == 1 && r->op == SEND) {
		if (r->sge[0].length > 33)
			return const_send_high(sq, r);
		if (r->flags == SIG)
			return const_send_low(sq, r);
	}
	if (r->inl && r->nsge == 1 && r->op == WRITE) {
		if (r->sge[0].length > 33 && r->flags == SIG)
			return const_write_high(sq, r);
		if (r->sge[0].length <= 33 && r->flags == (SIG | SOL | FENCE))
			return const_write_low(sq, r);
	}
	if (r->inl && !r->flags)
		return inl[r->op](sq, r);
	if (!r->inl && r->flags == SIG)
		return signaled[r->op](sq, r);
	return any[r->op](sq, r);
}

/* The WQE built by hand */
static __attribute__((noinline)) int in_cursor(struct inlay_sq *sq, const struct req *r)
{
	struct inlay_cursor at;
	uint32_t i, total = 0, imm = 0;
	int err = inlay_sq_begin(sq, (req_ds(r) + 3) / 4, &at);

	if (err)
		return err;
	if (is_rdma(r->op))
		at = inlay_seg_raddr(at, r->raddr, r->rkey);
	if (is_atomic(r->op))
		at = inlay_seg_atomic(at, r->op == CAS ? r->b : r->a, r->op == CAS ? r->a : 0);
	if (r->inl && r->nsge == 1) {
		at = inlay_seg_inline(at, (const void *)(uintptr_t)r->sge[0].addr, r->sge[0].length);
	} else if (r->inl) {
		for (i = 0; i < r->nsge; i++)
			total += r->sge[i].length;
		at = inlay_seg_inlinev(at, r->sge, r->nsge, total);
	} else if (r->list) {
		at = inlay_seg_sges(at, r->sge, r->nsge);
	} else {
		for (i = 0; i < r->nsge; i++)
			if (r->sge[i].length)
				at = inlay_seg_data(at, r->sge[i].addr, r->sge[i].length, r->sge[i].lkey);
	}
	if (r->op == SEND_IMM || r->op == WRITE_IMM)
		imm = r->imm;
	else if (r->op == SEND_INV)
		imm = inlay_to_be32(r->imm);
	if (imm)
		inlay_sq_commit_imm(sq, at, op_code[r->op], in_flags(r), imm);
	else
		inlay_sq_commit(sq, at, op_code[r->op], in_flags(r));
	return 0;
}

static int post_inlay(struct inlay_sq *sq, unsigned way, const struct req *r)
{
	return way == CURSOR ? in_cursor(sq, r) : way == CONST ? in_const(sq, r) : in_plain(sq, r);
}

/* ---- the trio ---- */

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq, const struct ibv_qp_cap *cap, uint64_t ops,
			      struct ibv_qp_cap *granted)
{
	struct ibv_qp_init_attr_ex attr;
	struct ibv_qp *qp;

	memset(&attr, 0, sizeof(attr));
	attr.qp_type = IBV_QPT_RC;
	attr.send_cq = cq;
	attr.recv_cq = cq;
	attr.cap = *cap;
	attr.pd = pd;
	attr.comp_mask = IBV_QP_INIT_ATTR_PD;
	if (ops) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = ops;
	}
	qp = ibv_create_qp_ex(dev.ctx, &attr);
	assert_non_null(qp);
	if (granted)
		*granted = attr.cap;
	/* To itself: that nothing is executed is the device's affair, not the state's */
	qp_init(qp, &usual);
	qp_connect(qp, qp->qp_num, &usual);
	return qp;
}

static struct mlx5dv_qp view_qp(struct ibv_qp *qp)
{
	struct mlx5dv_obj obj;
	struct mlx5dv_qp dv;

	memset(&obj, 0, sizeof(obj));
	memset(&dv, 0, sizeof(dv));
	obj.qp.in = qp;
	obj.qp.out = &dv;
	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP));
	return dv;
}

static struct mlx5dv_cq view_cq(struct ibv_cq *cq)
{
	struct mlx5dv_obj obj;
	struct mlx5dv_cq dv;

	memset(&obj, 0, sizeof(obj));
	memset(&dv, 0, sizeof(dv));
	obj.cq.in = cq;
	obj.cq.out = &dv;
	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ));
	return dv;
}

/*
 * What libmlx5 keeps to itself: the number by which CQEs name its QP, and the half of the register that comes next (a register
 * of a thread domain that was freed comes back as its last owner left it). One empty RDMA write to itself, executed, shows
 * both.
 */
static void lib_probe(struct lib *l, uint32_t size)
{
	struct ibv_cq *cq = l->qp->send_cq;
	struct mlx5dv_cq dv = view_cq(cq);
	uint32_t at = be32toh(dv.dbrec[0]) & (dv.cqe_cnt - 1), half;
	struct mlx5_cqe64 *cqe = (struct mlx5_cqe64 *)((uint8_t *)dv.buf + (size_t)at * dv.cqe_size + (dv.cqe_size - 64));
	struct ibv_wc wc;
	struct req r;

	memset(l->reg, 0, 2 * size);
	req_init(&r, WRITE, SIG);
	must(post_lib(l, POST_SEND, &r, 1, 77));
	for (half = 0; half < 2 && all_bytes(l->reg + half * size, size, 0); half++)
		;
	assert_true(half < 2 && all_bytes(l->reg + !half * size, size, 0));
	l->half = !half;
	softdev_run();
	assert_int_equal(cqe->op_own >> 4, MLX5_CQE_REQ);
	l->uidx = be32toh(cqe->srqn_uidx) & 0xffffff;
	assert_int_equal(ibv_poll_cq(cq, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 77);
	assert_int_equal(wc.qp_num, l->qp->qp_num);
	/* Back to the beginning of the ring: RESET zeroes libmlx5's counters, the device's and the record */
	qp_to(l->qp, IBV_QPS_RESET);
	qp_init(l->qp, &usual);
	qp_connect(l->qp, l->qp->qp_num, &usual);
}

static void lib_open(struct lib *l, struct ibv_cq *cq, const struct ibv_qp_cap *cap, uint64_t ops, struct ibv_qp_cap *granted)
{
	struct ibv_parent_domain_init_attr parent;
	struct ibv_td_init_attr attr;
	struct mlx5dv_qp dv;

	memset(l, 0, sizeof(*l));
	memset(&attr, 0, sizeof(attr));
	memset(&parent, 0, sizeof(parent));
	l->td = ibv_alloc_td(dev.ctx, &attr);
	assert_non_null(l->td);
	parent.pd = dev.pd;
	parent.td = l->td;
	l->pd = ibv_alloc_parent_domain(dev.ctx, &parent);
	assert_non_null(l->pd);
	l->qp = make_qp(l->pd, cq, cap, ops, granted);
	l->qpx = ops ? ibv_qp_to_qp_ex(l->qp) : NULL;
	dv = view_qp(l->qp);
	l->ring = (uint8_t *)dv.sq.buf;
	l->rq = (uint8_t *)dv.rq.buf;
	l->reg = (uint8_t *)dv.bf.reg;
	l->dbrec = (uint32_t *)dv.dbrec;
	lib_probe(l, dv.bf.size);
}

static void lib_close(struct lib *l)
{
	must(ibv_destroy_qp(l->qp));
	must(ibv_dealloc_pd(l->pd));
	must(ibv_dealloc_td(l->td));
}

static void trio_open(struct trio *t, const struct ibv_qp_cap *cap, uint64_t ops, uint32_t mode)
{
	struct ibv_qp_cap cap_c;
	struct mlx5dv_qp dv;
	uint32_t cqes = 2 * cap->max_recv_wr < 64 ? 63 : 4 * cap->max_recv_wr;

	memset(t, 0, sizeof(*t));
	t->cq = ibv_create_cq(dev.ctx, (int)cqes, NULL, NULL, 0);
	assert_non_null(t->cq);
	t->cqn = view_cq(t->cq).cqn;
	lib_open(&t->a, t->cq, cap, ops, &t->cap);
	lib_open(&t->b, t->cq, cap, ops, NULL);
	must(inlay_uar_create(&t->uar, dev.pd, INLAY_UAR_EXCLUSIVE));
	t->uar.mode = mode;
	t->qp = make_qp(t->uar.pd, t->cq, cap, ops, &cap_c);
	assert_memory_equal(&cap_c, &t->cap, sizeof(cap_c));
	must(inlay_sq_from_qp(&t->sq, t->qp, &t->uar));
	dv = view_qp(t->qp);
	t->ring = (uint8_t *)dv.sq.buf;
	t->bbs = dv.sq.wqe_cnt;
	t->reg = (uint8_t *)dv.bf.reg;
	t->size = dv.bf.size;
	t->dbrec = (uint32_t *)dv.dbrec;
	t->rq = (uint8_t *)dv.rq.buf;
	t->rq_cnt = dv.rq.wqe_cnt;
	t->rq_stride = dv.rq.stride;
	if (cap->max_recv_wr)
		must(inlay_rq_from_qp(&t->in_rq, t->qp));
	dv = view_qp(t->a.qp);
	assert_int_equal(dv.sq.wqe_cnt, t->bbs);
	assert_int_equal(dv.bf.size, t->size);
	assert_true(t->a.reg != t->reg && t->a.reg != t->b.reg && t->b.reg != t->reg);
	assert_true(t->size && t->bbs >= 1);
}

static void trio_close(struct trio *t)
{
	inlay_sq_fini(&t->sq);
	must(ibv_destroy_qp(t->qp));
	must(inlay_uar_destroy(&t->uar));
	lib_close(&t->a);
	lib_close(&t->b);
	must(ibv_destroy_cq(t->cq));
}

static void cqe_for(struct mlx5_cqe64 *cqe, uint8_t opcode, uint8_t sop, uint32_t qpn, uint32_t uidx, uint16_t counter)
{
	memset(cqe, 0, sizeof(*cqe));
	cqe->srqn_uidx = htobe32(uidx);
	cqe->sop_drop_qpn = htobe32((uint32_t)sop << 24 | qpn);
	cqe->wqe_counter = htobe16(counter);
	cqe->op_own = (uint8_t)(opcode << 4);
}

/* Completes the k oldest WQEs with one CQE: of each libmlx5 twin through the CQ, of inlay's by itself */
static void complete(struct trio *t, unsigned k)
{
	struct mlx5_cqe64 cqe;
	struct ibv_wc wc[2];
	uint32_t at;

	if (!k)
		return;
	/* The device has executed none of what was rung for: it takes it as done */
	assert_true(softdev_skip(t->a.qp->qp_num) >= 0);
	assert_true(softdev_skip(t->b.qp->qp_num) >= 0);
	at = t->start[(t->tail + k - 1) & 0xffff];
	cqe_for(&cqe, MLX5_CQE_REQ, MLX5_OPCODE_SEND, t->a.qp->qp_num, t->a.uidx, (uint16_t)at);
	assert_int_equal(softdev_inject_cqes(t->cqn, &cqe, 1, 0), 1);
	cqe_for(&cqe, MLX5_CQE_REQ, MLX5_OPCODE_SEND, t->b.qp->qp_num, t->b.uidx, (uint16_t)at);
	assert_int_equal(softdev_inject_cqes(t->cqn, &cqe, 1, 0), 1);
	assert_int_equal(ibv_poll_cq(t->cq, 2, wc), 2);
	t->tail += k;
	t->wr_id += k;
	assert_true(wc[0].status == IBV_WC_SUCCESS && wc[0].qp_num == t->a.qp->qp_num && wc[0].wr_id == t->wr_id - 1);
	assert_true(wc[1].status == IBV_WC_SUCCESS && wc[1].qp_num == t->b.qp->qp_num && wc[1].wr_id == t->wr_id - 1);
	cqe_for(&cqe, MLX5_CQE_REQ, MLX5_OPCODE_SEND, t->qp->qp_num, 0, (uint16_t)at);
	must(inlay_sq_release(&t->sq, &cqe));
	t->tail_pos = t->tail == t->head ? t->pos : t->start[t->tail & 0xffff];
	assert_int_equal(inlay_sq_pending(&t->sq), t->pos - t->tail_pos);
	assert_int_equal(inlay_sq_room(&t->sq), t->bbs - (t->pos - t->tail_pos));
}

static void complete_all(struct trio *t)
{
	complete(t, t->head - t->tail);
}

/* ---- bytes ---- */

static void ring_fill(uint8_t *ring, uint32_t bbs, uint32_t from, uint32_t n, uint8_t byte)
{
	uint32_t at = from & (bbs - 1), first = n < bbs - at ? n : bbs - at;

	memset(ring + at * 64, byte, first * 64);
	memset(ring, byte, (n - first) * 64);
}

/* inlay stores the half of the record that counts, and keeps the other at the 0 that it found there */
static uint32_t record_salt(const struct trio *t)
{
	return htobe32(t->salt * 0x0101u);
}

/* Before a batch: what is free of the rings, the registers, the records */
static void fill_free(struct trio *t)
{
	uint32_t n = t->bbs - (t->pos - t->tail_pos);

	t->salt = (uint8_t)(t->salt * 5 + 0x5b);
	ring_fill(t->a.ring, t->bbs, t->pos, n, 0);
	ring_fill(t->b.ring, t->bbs, t->pos, n, 0xff);
	ring_fill(t->ring, t->bbs, t->pos, n, t->salt);
	memset(t->a.reg, 0, 2 * t->size);
	memset(t->b.reg, 0xff, 2 * t->size);
	memset(t->reg, t->salt, 2 * t->size);
	t->a.dbrec[MLX5_SND_DBR] = 0;
	t->b.dbrec[MLX5_SND_DBR] = ~0u;
	t->dbrec[MLX5_SND_DBR] = record_salt(t);
}

/* Puts c's QPN into a control segment of a twin's, having seen that the twin's own is there, and its index. 0 or -1 */
static int swap_qpn(uint8_t *ctrl, uint32_t from, uint32_t to, uint32_t index)
{
	uint32_t w[2];

	memcpy(w, ctrl, 8);
	if (be32toh(w[1]) >> 8 != from || (be32toh(w[0]) >> 8 & 0xffff) != (index & 0xffff))
		return -1;
	w[1] = htobe32(to << 8 | (be32toh(w[1]) & 0xff));
	memcpy(ctrl + 4, &w[1], 4);
	return 0;
}

/* First byte at which c differs from what libmlx5 wrote; len when none. *known counts the bytes that libmlx5 wrote */
static uint32_t compare(const uint8_t *a, const uint8_t *b, const uint8_t *c, uint32_t len, uint32_t *known)
{
	uint32_t i, k;

	for (i = 0; i < len; i += 8) {
		uint64_t x, y, z;

		memcpy(&x, a + i, 8);
		memcpy(&y, b + i, 8);
		if ((x ^ y) == ~UINT64_C(0))
			continue;
		memcpy(&z, c + i, 8);
		if (x == y && x == z) {
			*known += 8;
			continue;
		}
		for (k = i; k < i + 8; k++) {
			if (a[k] != b[k])
				continue;
			if (a[k] != c[k])
				return k;
			++*known;
		}
	}
	return len;
}

/* First byte of the given units of c's ring that is not what it was filled with; UINT32_MAX when none */
static uint32_t touched(const struct trio *t, uint32_t pos, uint32_t from, uint32_t to)
{
	uint64_t want = t->salt * UINT64_C(0x0101010101010101), x, y;
	uint32_t ds, at;

	for (ds = from; ds < to; ds++) {
		at = ((pos * 4 + ds) & (t->bbs * 4 - 1)) * 16;
		memcpy(&x, t->ring + at, 8);
		memcpy(&y, t->ring + at + 8, 8);
		if (x == want && y == want)
			continue;
		while (t->ring[at] == t->salt)
			at++;
		return at;
	}
	return UINT32_MAX;
}

static void report(const struct trio *t, const struct req *r, unsigned n, uint32_t begin, const char *what, uint32_t at,
		   unsigned lib, unsigned in)
{
	uint32_t pos = begin, ds, where;
	bool found = false;
	unsigned i;

	fprintf(report_to, "%s, byte %u (0x%x): libmlx5 0x%02x, inlay 0x%02x; ", what, at, at, lib, in);
	fprintf(report_to, "ring of %u WQEBBs, batch of %u at %u (slot %u)\n", t->bbs, n, begin, begin & (t->bbs - 1));
	for (i = 0; i < n; i++, pos += (ds + 3) / 4) {
		ds = req_ds(&r[i]);
		where = (at - (pos & (t->bbs - 1)) * 64) & (t->bbs * 64 - 1);
		if (!strcmp(what, "ring") && n > 1 && where >= (ds + 3) / 4 * 64)
			continue;
		if (!strcmp(what, "ring"))
			fprintf(report_to, "WQE %u of the batch, +%u byte %u: ", i, where & ~15u, where & 15);
		found = true;
		req_print(report_to, &r[i]);
		fprintf(report_to, " libmlx5\n");
		inlay_wqe_print(report_to, t->a.ring, t->bbs * 64, pos, 0);
		fprintf(report_to, " inlay\n");
		inlay_wqe_print(report_to, t->ring, t->bbs * 64, pos, 0);
	}
	if (!found)
		fprintf(report_to, "in no WQE of the batch: written over one that was there before\n");
}

/*
 * Posts a batch to all three and rings. The rings hold a's and b's bytes with c's QPN afterwards. Fails the test when libmlx5
 * does what this test does not know it to do.
 */
static void post_batch(struct trio *t, unsigned api, unsigned way, bool doorbell, const struct req *r, unsigned n)
{
	uint32_t pos = t->pos, ds;
	unsigned i;

	must(post_lib(&t->a, api, r, n, t->head));
	must(post_lib(&t->b, api, r, n, t->head));
	for (i = 0; i < n; i++) {
		int err = post_inlay(&t->sq, way, &r[i]);

		if (err) {
			req_print(report_to, &r[i]);
			fail_msg("inlay answers %d", err);
		}
	}
	if (doorbell)
		inlay_sq_ring_doorbell(&t->sq);
	else
		inlay_sq_ring(&t->sq);
	for (i = 0; i < n; i++) {
		t->start[t->head++ & 0xffff] = pos;
		if (swap_qpn(t->a.ring + (pos & (t->bbs - 1)) * 64, t->a.qp->qp_num, t->qp->qp_num, pos) ||
		    swap_qpn(t->b.ring + (pos & (t->bbs - 1)) * 64, t->b.qp->qp_num, t->qp->qp_num, pos)) {
			req_print(report_to, &r[i]);
			fail_msg("libmlx5 is not at WQEBB %u", pos);
		}
		ds = req_ds(&r[i]);
		pos += (ds + 3) / 4;
	}
	i = t->start[(t->head - 1) & 0xffff];
	if (swap_qpn(t->a.reg + t->a.half * t->size, t->a.qp->qp_num, t->qp->qp_num, i) ||
	    swap_qpn(t->b.reg + t->b.half * t->size, t->b.qp->qp_num, t->qp->qp_num, i))
		fail_msg("libmlx5 did not ring in the half expected, or not for WQEBB %u", i);
	t->pos = pos;
	t->a.half ^= 1;
	t->b.half ^= 1;
	t->half ^= 1;
}

/* Compares after post_batch. Returns the number of things that are wrong: 0 or 1 */
static int check_batch(struct trio *t, const struct req *r, unsigned n, uint32_t begin)
{
	uint32_t at, known = 0, bytes = t->bbs * 64, pos = begin, ds, room = t->bbs - (begin - t->tail_pos);
	const uint8_t *a, *b, *c;
	unsigned i;

	at = compare(t->a.ring, t->b.ring, t->ring, bytes, &known);
	if (at < bytes) {
		report(t, r, n, begin, "ring", at, t->a.ring[at], t->ring[at]);
		return 1;
	}
	/* ibv_wr_* leaves the immediate alone where there is none */
	if (known < 12 * n)
		fail_msg("libmlx5 wrote %u bytes only", known);
	for (i = 0; i < n; i++, pos += (ds + 3) / 4) {
		ds = req_ds(&r[i]);
		at = touched(t, pos, ds, (ds + 3) & ~3u);
		if (at != UINT32_MAX) {
			report(t, r, n, begin, "ring", at, t->salt, t->ring[at]);
			return 1;
		}
	}
	at = touched(t, t->pos, 0, (room - (t->pos - begin)) * 4);
	if (at != UINT32_MAX) {
		report(t, r, n, begin, "free ring", at, t->salt, t->ring[at]);
		return 1;
	}
	compared += known;
	known = 0;
	/* The halves have been toggled already */
	a = t->a.reg + !t->a.half * t->size;
	b = t->b.reg + !t->b.half * t->size;
	c = t->reg + !t->half * t->size;
	at = compare(a, b, c, t->size, &known);
	if (at < t->size) {
		report(t, r, n, begin, "register", at, a[at], c[at]);
		return 1;
	}
	if (known < 8)
		fail_msg("libmlx5 wrote %u bytes to its register", known);
	/* libmlx5's 8-byte doorbell leaves the rest alone: so must inlay's */
	if (known == 8 && !all_bytes(c + 8, t->size - 8, t->salt)) {
		for (at = 8; c[at] == t->salt; at++)
			;
		report(t, r, n, begin, "register behind the doorbell", at, t->salt, c[at]);
		return 1;
	}
	c = t->reg + t->half * t->size;
	if (!all_bytes(t->a.reg + t->a.half * t->size, t->size, 0))
		fail_msg("libmlx5 wrote to both halves of its register");
	if (!all_bytes(c, t->size, t->salt)) {
		for (at = 0; c[at] == t->salt; at++)
			;
		report(t, r, n, begin, "the register's other half", at, t->salt, c[at]);
		return 1;
	}
	if (t->a.dbrec[MLX5_SND_DBR] != t->b.dbrec[MLX5_SND_DBR] || be32toh(t->a.dbrec[MLX5_SND_DBR]) != (t->pos & 0xffff))
		fail_msg("libmlx5's doorbell record is 0x%x", be32toh(t->a.dbrec[MLX5_SND_DBR]));
	if (t->dbrec[MLX5_SND_DBR] != t->a.dbrec[MLX5_SND_DBR]) {
		fprintf(report_to, "doorbell record: libmlx5 0x%08x, inlay 0x%08x\n", be32toh(t->a.dbrec[MLX5_SND_DBR]),
			be32toh(t->dbrec[MLX5_SND_DBR]));
		return 1;
	}
	compared += known + 4;
	cases++;
	requests += n;
	return 0;
}

/* One comparison. The ring's outstanding WQEs are compared along with the new ones */
static void run(struct trio *t, unsigned api, unsigned way, bool doorbell, const struct req *r, unsigned n)
{
	uint32_t begin = t->pos;

	fill_free(t);
	post_batch(t, api, way, doorbell, r, n);
	if (check_batch(t, r, n, begin))
		fail();
}

/* Goes on to the given slot of the ring, over inline sends that nobody compares; all are completed afterwards */
static void go_to(struct trio *t, uint32_t slot)
{
	uint32_t max = (t->cap.max_inline_data + 20) / 64, need, k;
	struct req r;

	if (max > WQE_MAX - 1)
		max = WQE_MAX - 1;
	complete_all(t);
	memset(&r, 0, offsetof(struct req, sge));
	r.op = SEND;
	r.inl = 1;
	r.nsge = 1;
	r.sge[0].addr = (uintptr_t)data;
	while ((need = (slot - t->pos) & (t->bbs - 1)) != 0) {
		k = need < max ? need : max ? max : 1;
		r.nsge = k > 1;
		r.sge[0].length = k * 64 - 20;
		/* post_batch looks for the QPN where libmlx5 rang: nothing to clear before */
		post_batch(t, POST_SEND, PLAIN, false, &r, 1);
		if (t->head - t->tail == t->cap.max_send_wr)
			complete_all(t);
	}
	complete_all(t);
}

/* The slots at which a WQE of bbs wraps, then some at which it does not; ends with -1. Of a ring of n */
static int slot_of(uint32_t n, uint32_t bbs, unsigned i)
{
	if (i + 1 < bbs)
		return (int)(n - bbs + 1 + i);
	switch (i + 1 - bbs) {
	case 0: return 0;
	case 1: return (int)(n - bbs);
	case 2: return (int)(n / 2);
	default: return -1;
	}
}

static const struct ibv_qp_cap table_cap = {.max_send_wr = 2, .max_send_sge = MAX_SGE, .max_inline_data = MAX_INLINE};

static void table_open(struct trio *t)
{
	trio_open(t, &table_cap, LEAN, INLAY_UAR_EXCLUSIVE);
	assert_int_equal(t->cap.max_inline_data, MAX_INLINE);
	assert_int_equal(t->bbs, 32);
}

static void counted(const char *what)
{
	print_message("# %s: %llu comparisons of %llu requests, %llu bytes\n", what, (unsigned long long)cases,
		      (unsigned long long)requests, (unsigned long long)compared);
	cases = requests = compared = 0;
}

/* One request at every slot that matters, through both of libmlx5's interfaces, with every set of flags in `sets` */
static void everywhere(struct trio *t, struct req *r, unsigned way, unsigned first, unsigned sets)
{
	uint32_t bbs = (req_ds(r) + 3) / 4;
	unsigned i, f, api;
	int slot;

	for (i = 0; (slot = slot_of(t->bbs, bbs, i)) >= 0; i++)
		for (f = first; f < first + sets; f++)
			for (api = 0; api < APIS; api++) {
				r->flags = f & (FLAG_SETS - 1);
				r->list = (f ^ api) & 1;
				go_to(t, (uint32_t)slot);
				run(t, api, way, false, r, 1);
			}
}

/* ---- tests: send queue ---- */

/* Inline, one buffer, every length */
static void inline_single(void **state)
{
	uint32_t op, len;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (op = SEND; op <= WRITE_IMM; op++)
		for (len = 0; len <= MAX_INLINE; len++) {
			req_init(&r, op, 0);
			req_inline(&r, len);
			everywhere(&T, &r, PLAIN, 0, FLAG_SETS);
		}
	trio_close(&T);
	counted("inline, one buffer");
}

/* Inline, gathered, every length in several splits, some with empty buffers */
static void inline_gather(void **state)
{
	uint32_t op, len, left, k, n = 0;
	struct req r;
	unsigned split;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (op = SEND; op <= WRITE_IMM; op++)
		for (len = 0; len <= MAX_INLINE; len++)
			for (split = 0; split < 8; split++) {
				req_init(&r, op, 0);
				r.inl = 1;
				switch (split) {
				case 0: /* nothing at all, or two halves */
					for (k = 0; len && k < 2; k++)
						req_inline(&r, k ? len - len / 2 : len / 2);
					break;
				case 1:
					req_inline(&r, 0);
					req_inline(&r, len);
					break;
				case 2:
					req_inline(&r, len);
					req_inline(&r, 0);
					break;
				case 3:
					req_inline(&r, len / 3);
					req_inline(&r, 0);
					req_inline(&r, len - len / 3);
					break;
				case 4: /* the header's 12 bytes, then the rest */
					req_inline(&r, len < 12 ? len : 12);
					req_inline(&r, len < 12 ? 0 : len - 12);
					break;
				case 5: /* as many as there may be */
					for (left = len, k = 0; k < MAX_SGE; k++) {
						uint32_t piece = k + 1 == MAX_SGE ? left : len / MAX_SGE;

						req_inline(&r, piece);
						left -= piece;
					}
					break;
				default: /* at random, every third empty */
					for (left = len, k = 0; k < 7; k++) {
						uint32_t piece = k == 6 ? left : rnd_below(3) ? rnd_below(left + 1) : 0;

						req_inline(&r, piece);
						left -= piece;
					}
					break;
				}
				everywhere(&T, &r, n % 2 ? PLAIN : CURSOR, n * 3, 1);
				n++;
			}
	trio_close(&T);
	counted("inline, gathered");
}

/* Whether SGE i of n is empty in a pattern; the last is none, all but one, all */
static bool is_empty(unsigned pattern, uint32_t i, uint32_t n)
{
	switch (pattern) {
	case 0: return false;
	case 1: return i == 0;
	case 2: return i + 1 == n;
	case 3: return i == 0 || i + 1 == n;
	case 4: return i & 1;
	case 5: return !(i & 1);
	case 6: return i >= n / 3 && i < n - n / 3;
	case 7: return i != n / 2;
	default: return true;
	}
}

static uint32_t some_length(void)
{
	switch (rnd_below(4)) {
	case 0: return 1;
	case 1: return 0x7fffffff;
	case 2: return 1 + rnd_below(4096);
	default: return 1 + rnd_below(0x7fffffff);
	}
}

/* Pointers: every number of them, with empty ones in several positions */
static void pointers(void **state)
{
	uint32_t op, n, i;
	unsigned pattern;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (op = SEND; op <= READ; op++)
		for (n = 0; n <= MAX_SGE; n++)
			for (pattern = 0; pattern < 9; pattern++) {
				req_init(&r, op, 0);
				for (i = 0; i < n; i++)
					req_pointer(&r, is_empty(pattern, i, n) ? 0 : some_length());
				everywhere(&T, &r, PLAIN, 0, FLAG_SETS);
			}
	trio_close(&T);
	counted("pointers");
}

/*
 * Atomics: at every slot. ibv_wr_* writes the SGE's length as it stands and ibv_post_send always 8; inlay takes it as 8. An
 * atomic without a buffer, or with an empty one, is a WQE without data segment in libmlx5: inlay has no such thing.
 */
static void atomics(void **state)
{
	static const uint64_t edge[] = {0, 1, ~UINT64_C(0), UINT64_C(1) << 63};
	uint32_t op, slot;
	unsigned f, api, way, k;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (op = CAS; op <= FAA; op++)
		for (slot = 0; slot < T.bbs; slot++)
			for (f = 0; f < FLAG_SETS; f++)
				for (api = 0; api < APIS; api++)
					for (way = 0; way < WAYS; way++)
						for (k = 0; k < 6; k++) {
							req_init(&r, op, f);
							if (k < 4) {
								r.a = edge[k];
								r.b = edge[rnd_below(4)];
								r.raddr = edge[rnd_below(4)];
							}
							r.list = k & 1;
							req_pointer(&r, api == WR || way == CURSOR ? 8 : 1 + rnd_below(64));
							go_to(&T, slot);
							run(&T, api, way, false, &r, 1);
						}
	trio_close(&T);
	counted("atomics");
}

/* The same posts with constant arguments, and by the cursor: other code, same bytes */
static void constants_and_cursor(void **state)
{
	static const uint8_t sets[] = {0, SIG, SIG | SOL | FENCE};
	uint32_t op, n, i, len;
	unsigned way, pattern, s;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (way = CONST; way <= CURSOR; way++) {
		for (op = SEND; op <= WRITE; op += WRITE - SEND)
			for (len = 0; len <= MAX_INLINE; len++)
				for (s = 0; s < ARRAY(sets); s++) {
					req_init(&r, op, 0);
					req_inline(&r, len);
					everywhere(&T, &r, way, sets[s], 1);
				}
		for (op = SEND; op <= READ; op++)
			for (n = 0; n <= 8; n++)
				for (pattern = 0; pattern < 9; pattern++)
					for (s = 0; s < ARRAY(sets); s++) {
						req_init(&r, op, 0);
						for (i = 0; i < n; i++)
							req_pointer(&r, is_empty(pattern, i, n) ? 0 : some_length());
						everywhere(&T, &r, way, sets[s], 1);
						if (op == READ)
							continue;
						req_init(&r, op, 0);
						r.inl = 1;
						for (i = 0; i < n; i++)
							req_inline(&r, is_empty(pattern, i, n) ? 0 : 1 + rnd_below(80));
						everywhere(&T, &r, way, sets[s], 1);
					}
	}
	trio_close(&T);
	counted("constants and cursor");
}

/*
 * NOP: libmlx5 has no verb for it. The expectation is written down here, from the layouts of the PRM: a control segment
 * { opmod 0 | index | opcode 0, QPN << 8 | DS 1, 0, fm_ce_se, 0 } and nothing else. All five fence modes, likewise.
 */
static void nop_by_hand(void **state)
{
	static const uint32_t flags[] = {0, INLAY_SIGNALED, INLAY_SOLICITED, INLAY_SIGNALED | INLAY_SOLICITED,
					 INLAY_SIGNALED | INLAY_FENCE_INITIATOR_SMALL, INLAY_SIGNALED | INLAY_FENCE,
					 INLAY_SIGNALED | INLAY_FENCE_STRONG, INLAY_SIGNALED | INLAY_FENCE_SMALL_AND_FENCE};
	static const uint8_t fm_ce_se[] = {0x00, 0x08, 0x02, 0x0a, 0x28, 0x48, 0x68, 0x88};
	uint8_t want[16];
	uint32_t i, pos = 0;
	unsigned f;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (i = 0; i < 3000; i++)
		for (f = 0; f < ARRAY(flags); f++, pos++) {
			uint8_t *at = T.ring + (pos & (T.bbs - 1)) * 64, *reg = T.reg + (pos & 1) * T.size;
			struct mlx5_cqe64 cqe;
			uint32_t w[2];

			w[0] = htobe32((pos & 0xffff) << 8 | 0x00);
			w[1] = htobe32(T.qp->qp_num << 8 | 1);
			memset(want, 0, sizeof(want));
			memcpy(want, w, 8);
			want[11] = fm_ce_se[f];
			memset(T.ring, 0xa5, T.bbs * 64);
			memset(T.reg, 0xa5, 2 * T.size);
			must(inlay_post_nop(&T.sq, flags[f]));
			inlay_sq_ring(&T.sq);
			assert_memory_equal(at, want, 16);
			assert_true(all_bytes(T.ring, (size_t)(at - T.ring), 0xa5));
			assert_true(all_bytes(at + 16, (size_t)(T.ring + T.bbs * 64 - at) - 16, 0xa5));
			assert_memory_equal(reg, want, 8);
			assert_true(all_bytes(reg + 8, T.size - 8, 0xa5));
			assert_true(all_bytes(T.reg + (~pos & 1) * T.size, T.size, 0xa5));
			assert_int_equal(be32toh(T.dbrec[MLX5_SND_DBR]), (pos + 1) & 0xffff);
			cqe_for(&cqe, MLX5_CQE_REQ, MLX5_OPCODE_NOP, T.qp->qp_num, 0, (uint16_t)pos);
			must(inlay_sq_release(&T.sq, &cqe));
		}
	/* c has gone its own way: the trio is of no use any more */
	trio_close(&T);
}

/*
 * Pointers and inline data mixed in one WQE, by the cursor. The expectation is put together from libmlx5's own segments: the
 * mixed WQE is write(raddr) + data(0) + inline(1) + data(2), each segment taken from a WQE in which libmlx5 wrote it alone.
 */
static void mixed_by_cursor(void **state)
{
	struct req p, q, h;
	uint8_t want[1024], got[1024];
	uint32_t len, slot, units, i, w;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (len = 1; len <= 300; len++)
		for (slot = 0; slot < T.bbs; slot++) {
			struct inlay_cursor at;
			struct mlx5_cqe64 cqe;

			units = (len + 4 + 15) / 16;
			req_init(&p, WRITE, SIG);
			req_pointer(&p, some_length());
			req_pointer(&p, some_length());
			req_init(&q, SEND, 0);
			req_inline(&q, len);
			memset(want, 0, sizeof(want));
			/* libmlx5's, at the ring's beginning: control, raddr, data 0, data 2; and control, inline 1 */
			complete_all(&T);
			go_to(&T, 0);
			memset(T.a.ring, 0, T.bbs * 64);
			h = p;
			h.list = 1;
			post_batch(&T, len & 1, PLAIN, false, &h, 1);
			memcpy(want, T.a.ring, 48);
			memcpy(want + 48 + units * 16, T.a.ring + 48, 16);
			complete_all(&T);
			go_to(&T, 8);
			memset(T.a.ring + 8 * 64, 0, 24 * 64);
			post_batch(&T, len & 1, PLAIN, false, &q, 1);
			memcpy(want + 48, T.a.ring + 8 * 64 + 16, units * 16);
			complete_all(&T);
			go_to(&T, slot);
			w = htobe32((T.pos & 0xffff) << 8 | MLX5_OPCODE_RDMA_WRITE);
			memcpy(want, &w, 4);
			w = htobe32(T.qp->qp_num << 8 | (4 + units));
			memcpy(want + 4, &w, 4);
			memset(T.ring, 0, T.bbs * 64);
			must(inlay_sq_begin(&T.sq, (4 + units + 3) / 4, &at));
			at = inlay_seg_raddr(at, p.raddr, p.rkey);
			at = inlay_seg_data(at, p.sge[0].addr, p.sge[0].length, p.sge[0].lkey);
			at = inlay_seg_inline(at, (const void *)(uintptr_t)q.sge[0].addr, len);
			at = inlay_seg_data(at, p.sge[1].addr, p.sge[1].length, p.sge[1].lkey);
			inlay_sq_commit(&T.sq, at, MLX5_OPCODE_RDMA_WRITE, INLAY_SIGNALED);
			for (i = 0; i < (4 + units) * 16; i++)
				got[i] = T.ring[(slot * 64 + i) & (T.bbs * 64 - 1)];
			assert_memory_equal(got, want, (4 + units) * 16);
			/* Take c's post back, so that the three are in step again: nobody has been told of it */
			cqe_for(&cqe, MLX5_CQE_REQ, MLX5_OPCODE_RDMA_WRITE, T.qp->qp_num, 0, (uint16_t)T.pos);
			must(inlay_sq_release(&T.sq, &cqe));
			T.sq.pi = T.sq.rung;
			cases++;
		}
	trio_close(&T);
	counted("mixed segments");
}

/* ---- tests: doorbells ---- */

static void req_of_ds(struct req *r, uint32_t ds)
{
	uint32_t i;

	if (ds > 1 && rnd_below(2)) {
		req_init(r, SEND, rnd_below(FLAG_SETS));
		req_inline(r, (ds - 1) * 16 - 4 - rnd_below(ds == 2 ? 12 : 16));
	} else {
		req_init(r, SEND, rnd_below(FLAG_SETS));
		for (i = 1; i < ds; i++)
			req_pointer(r, some_length());
	}
	assert_int_equal(req_ds(r), ds);
}

/* Every length of WQE, shorter and longer than the register, at every slot; the register in the mode given */
static void doorbells_in(uint32_t mode)
{
	static struct req r[MAX_BATCH];
	const struct ibv_qp_cap cap = {.max_send_wr = 16, .max_send_sge = 4, .max_inline_data = 140};
	uint32_t ds, slot, rings, n, i;
	unsigned api;

	/* Long ones: up to twice the register and more */
	trio_open(&T, &table_cap, LEAN, mode);
	for (ds = 1; ds <= 31; ds++)
		for (slot = 0; slot < T.bbs; slot++)
			for (api = 0; api < APIS; api++) {
				req_of_ds(&r[0], ds);
				go_to(&T, slot);
				run(&T, api, PLAIN, false, &r[0], 1);
				/* A WQE that libmlx5 does not copy either: the doorbell asked for by name writes the same */
				if (ds > 1 && ds <= 16)
					continue;
				go_to(&T, slot);
				run(&T, api, PLAIN, true, &r[0], 1);
			}
	trio_close(&T);
	/* Batches: one doorbell for all, rung either way; many rings in a row, singles among them */
	trio_open(&T, &cap, LEAN, mode);
	for (rings = 0; rings < 20000; rings++) {
		complete(&T, rnd_below(T.head - T.tail + 1));
		n = T.cap.max_send_wr - (T.head - T.tail);
		if (!n) {
			complete_all(&T);
			n = T.cap.max_send_wr;
		}
		n = 1 + rnd_below(rnd_below(2) ? 1 : n);
		for (i = 0; i < n; i++)
			req_of_ds(&r[i], 1 + rnd_below(5));
		run(&T, rnd_below(APIS), PLAIN, n > 1 && rnd_below(2), r, n);
	}
	trio_close(&T);
}

static void doorbells(void **state)
{
	(void)state;
	need_softdev("the oracle");
	doorbells_in(INLAY_UAR_EXCLUSIVE);
	doorbells_in(INLAY_UAR_LOCKED);
	counted("doorbells");
}

/*
 * Where inlay's user may ask for what libmlx5's cannot: a single short WQE rung by 8 bytes, and a register in doorbell-only
 * mode. By hand: the first 8 bytes of the last WQE posted, nothing else; on an exclusive register in the next half, in
 * doorbell-only mode at its beginning, always.
 */
static void doorbells_by_hand(void **state)
{
	const struct ibv_qp_cap cap = {.max_send_wr = 16, .max_send_sge = 4, .max_inline_data = 140};
	struct inlay_uar uar;
	struct inlay_sq sq;
	struct mlx5dv_qp dv;
	struct ibv_qp *qp;
	struct req r;
	uint32_t i, n, k, half = 0, last, mode;
	uint8_t *reg;

	(void)state;
	need_softdev("the oracle");
	trio_open(&T, &cap, LEAN, INLAY_UAR_EXCLUSIVE);
	qp = make_qp(dev.pd, T.cq, &cap, LEAN, NULL);
	for (mode = 0; mode < 2; mode++) {
		if (mode) {
			must(inlay_uar_from_qp(&uar, qp));
			must(inlay_sq_from_qp(&sq, qp, &uar));
		} else {
			sq = T.sq;
		}
		dv = view_qp(mode ? qp : T.qp);
		reg = (uint8_t *)dv.bf.reg;
		assert_true(dv.bf.size >= 256);
		for (i = 0; i < 5000; i++) {
			memset(reg, 0xa5, 2 * dv.bf.size);
			n = 1 + rnd_below(mode ? 3 : 1);
			for (k = 0, last = 0; k < n; k++) {
				req_of_ds(&r, 1 + rnd_below(9));
				last = sq.pi;
				must(post_inlay(&sq, rnd_below(WAYS), &r));
			}
			if (mode && rnd_below(2))
				inlay_sq_ring(&sq);
			else
				inlay_sq_ring_doorbell(&sq);
			assert_memory_equal(reg + half * dv.bf.size, (uint8_t *)dv.sq.buf + (last & (dv.sq.wqe_cnt - 1)) * 64, 8);
			assert_true(all_bytes(reg + half * dv.bf.size + 8, dv.bf.size - 8, 0xa5));
			assert_true(all_bytes(reg + !half * dv.bf.size, dv.bf.size, 0xa5));
			assert_int_equal(be32toh(dv.dbrec[MLX5_SND_DBR]), sq.pi & 0xffff);
			if (mode == 0)
				half ^= 1;
			if (inlay_sq_room(&sq) < 10) {
				struct mlx5_cqe64 cqe;

				cqe_for(&cqe, MLX5_CQE_REQ, MLX5_OPCODE_SEND, 0, 0, (uint16_t)last);
				must(inlay_sq_release(&sq, &cqe));
			}
			/* A ring with nothing posted is no ring */
			memset(reg, 0xa5, 2 * dv.bf.size);
			inlay_sq_ring(&sq);
			assert_true(all_bytes(reg, 2 * dv.bf.size, 0xa5));
		}
		half = 0;
	}
	inlay_sq_fini(&sq);
	must(ibv_destroy_qp(qp));
	trio_close(&T);
}

/* ---- tests: at random ---- */

static uint64_t env_number(const char *name, uint64_t otherwise)
{
	const char *env = getenv(name);

	return env && *env ? strtoull(env, NULL, 0) : otherwise;
}

static void req_random(struct req *r, const struct trio *t)
{
	uint32_t n, k, left;

	req_init(r, rnd_below(OPS), rnd_below(FLAG_SETS));
	r->list = (uint8_t)rnd_below(2);
	if (is_atomic(r->op)) {
		req_pointer(r, 8);
		return;
	}
	n = rnd_below(4) ? rnd_below(4) : rnd_below(t->cap.max_send_sge + 1);
	if (n > t->cap.max_send_sge)
		n = t->cap.max_send_sge;
	r->inl = r->op != READ && rnd_below(2);
	left = rnd_below(t->cap.max_inline_data + 1);
	if (rnd_below(2) && left > 64)
		left = rnd_below(65);
	for (k = 0; k < n; k++) {
		if (r->inl) {
			uint32_t piece = k + 1 == n ? left : rnd_below(4) ? rnd_below(left + 1) : 0;

			req_inline(r, piece);
			left -= piece;
		} else {
			req_pointer(r, rnd_below(5) ? some_length() : 0);
		}
	}
}

static void random_runs(void **state)
{
	static struct req r[MAX_BATCH];
	uint64_t want = env_number("ORACLE_CASES", 100000), seed = env_number("ORACLE_SEED", (uint64_t)(now() * 1e9)), rings = 0;

	(void)state;
	need_softdev("the oracle");
	print_message("# ORACLE_SEED=%llu ORACLE_CASES=%llu\n", (unsigned long long)seed, (unsigned long long)want);
	rnd_state = seed;
	while (requests < want) {
		static const uint64_t ops[] = {LEAN, LEAN, FULL, 0};
		uint64_t with = ops[rnd_below(4)], until = requests + 500 + rnd_below(8000);
		struct ibv_qp_cap cap;

		memset(&cap, 0, sizeof(cap));
		cap.max_send_wr = (1u << rnd_below(8)) + rnd_below(3);
		cap.max_send_sge = 1 + rnd_below(rnd_below(2) ? 4 : MAX_SGE);
		/* FULL, which is what a QP of ibv_create_qp gets too, leaves less for the payload */
		cap.max_inline_data = rnd_below(rnd_below(2) ? 129 : with == LEAN ? MAX_INLINE + 1 : 765);
		trio_open(&T, &cap, with, rnd_below(4) ? INLAY_UAR_EXCLUSIVE : INLAY_UAR_LOCKED);
		rings++;
		while (requests < until && requests < want) {
			uint32_t n, i, most;

			if (rnd_below(2))
				complete(&T, rnd_below(T.head - T.tail + 1));
			if (T.head - T.tail == T.cap.max_send_wr)
				complete(&T, 1 + rnd_below(T.head - T.tail));
			most = T.cap.max_send_wr - (T.head - T.tail);
			n = 1 + (rnd_below(2) ? 0 : rnd_below(most < MAX_BATCH ? most : MAX_BATCH));
			for (i = 0; i < n; i++)
				req_random(&r[i], &T);
			run(&T, T.a.qpx ? rnd_below(APIS) : POST_SEND, rnd_below(WAYS), n > 1 && rnd_below(2), r, n);
		}
		complete_all(&T);
		trio_close(&T);
	}
	print_message("# %llu rings\n", (unsigned long long)rings);
	counted("at random");
}

/* The index that goes into the WQE has 16 bits, and so have record and CQE: three times round, on small WQEs in long batches */
static void index_wraps(void **state)
{
	const struct ibv_qp_cap cap = {.max_send_wr = 64, .max_send_sge = 1};
	static struct req r[MAX_BATCH];
	uint32_t n, i;

	(void)state;
	need_softdev("the oracle");
	trio_open(&T, &cap, LEAN, INLAY_UAR_EXCLUSIVE);
	while (T.pos < 3 * 65536 + 100) {
		n = 1 + rnd_below(MAX_BATCH);
		if (T.head - T.tail + n > T.cap.max_send_wr)
			complete_all(&T);
		for (i = 0; i < n; i++)
			req_random(&r[i], &T);
		run(&T, rnd_below(APIS), PLAIN, false, r, n);
	}
	complete_all(&T);
	trio_close(&T);
	counted("index wrap");
}

/* ---- tests: limits ---- */

/*
 * What libmlx5 refuses. Where inlay accepts it, it is because it draws another line, on purpose:
 *   - libmlx5 limits the payload, to the same number of bytes or SGEs for each opcode: what is left of the QP's longest WQE
 *     when the longest opcode's segments are taken off. inlay limits the WQE: a send may use the room of the remote address
 *     and atomic segments that it does not have. One WQEBB is legal on every QP.
 *   - libmlx5 counts SGEs that are empty, inlay those that are written.
 *   - libmlx5 looks at the QP's state; inlay does not know it.
 * inlay refuses nothing that libmlx5 accepts, and a refused post writes nothing.
 */
static void limits_of(const struct ibv_qp_cap *cap, uint64_t ops)
{
	struct inlay_sq before;
	uint32_t op, len, n, i, refused = 0, more = 0;
	unsigned api, way;
	struct req r;
	int lib, in;

	trio_open(&T, cap, ops, INLAY_UAR_EXCLUSIVE);
	before = T.sq;
	/* inlay's limit is no longer than the WQE that the QP was made for: payload, its header, the longest opcode's segments */
	assert_true(T.sq.max_ds * 16 <= T.cap.max_inline_data + 4 + (ops == LEAN ? 48 : 192));
	for (op = SEND; op <= READ; op++)
		for (len = 0; len <= 1100; len++)
			for (api = 0; api < (T.a.qpx ? 2u : 1u); api++)
				for (way = 0; way < 2; way++) {
					req_init(&r, op, SIG);
					if (op == READ) {
						/* Pointers; len is their number */
						if (len > MAX_SGE + 4)
							break;
						for (i = 0; i < len; i++)
							req_pointer(&r, way && i == 0 ? 0 : 1);
					} else {
						req_inline(&r, way ? len / 2 : len);
						if (way && cap->max_send_sge > 1)
							req_inline(&r, len - len / 2);
					}
					lib = post_lib(&T.a, api, &r, 1, 0);
					memset(T.ring, 0xa5, T.bbs * 64);
					in = in_plain(&T.sq, &r);
					if (lib) {
						assert_int_equal(lib, ENOMEM);
						refused++;
						more += !in;
					}
					if (!in) {
						assert_true(req_ds(&r) <= T.sq.max_ds || req_ds(&r) <= 4);
						assert_true(req_ds(&r) * 16 <= T.bbs * 64);
					} else {
						assert_true(lib != 0);
						assert_true(in == -EINVAL || in == -E2BIG);
						assert_true(req_ds(&r) > T.sq.max_ds || req_ds(&r) * 16 > T.bbs * 64);
						assert_true(all_bytes(T.ring, T.bbs * 64, 0xa5));
						assert_memory_equal(&T.sq, &before, sizeof(before));
					}
					T.sq = before;
					/* Back to the beginning, for libmlx5 has no credit to go on */
					if (!lib) {
						struct mlx5_cqe64 cqe;
						struct ibv_wc wc;

						cqe_for(&cqe, MLX5_CQE_REQ, MLX5_OPCODE_SEND, T.a.qp->qp_num, T.a.uidx, 0);
						cqe.wqe_counter = htobe16((uint16_t)T.pos);
						assert_int_equal(softdev_inject_cqes(T.cqn, &cqe, 1, 0), 1);
						assert_int_equal(ibv_poll_cq(T.cq, 1, &wc), 1);
						T.pos += (req_ds(&r) + 3) / 4;
					}
				}
	/* Sums that do not fit 32 bits, and lengths near the end of them */
	for (n = 1; n <= 4; n++) {
		static const uint32_t huge[] = {1009, 0x7fffffff, 0x80000000, 0xfffffffc, 0xffffffff};

		for (i = 0; i < ARRAY(huge); i++) {
			req_init(&r, WRITE, SIG);
			for (len = 0; len < n; len++)
				req_inline(&r, len + 1 == n ? huge[i] : 0xffffffff);
			memset(T.ring, 0xa5, T.bbs * 64);
			assert_int_equal(in_plain(&T.sq, &r), -EINVAL);
			assert_true(all_bytes(T.ring, T.bbs * 64, 0xa5));
			assert_memory_equal(&T.sq, &before, sizeof(before));
		}
	}
	trio_close(&T);
	print_message("# sge %u inline %u: libmlx5 refused %u, of which inlay takes %u as a WQE that is short enough\n",
		      cap->max_send_sge, cap->max_inline_data, refused, more);
}

/*
 * A full ring. libmlx5 counts WQEs, each as long as the QP's longest, and inlay counts WQEBBs: so inlay takes at least as
 * many, and of short ones more.
 */
static void full_of(const struct ibv_qp_cap *cap)
{
	uint32_t n, k, ds;
	struct req r;

	for (ds = 1; ds <= 60; ds += ds < 5 ? 1 : 11) {
		trio_open(&T, cap, LEAN, INLAY_UAR_EXCLUSIVE);
		if (ds * 16 - 20 > T.cap.max_inline_data && ds > 1) {
			trio_close(&T);
			break;
		}
		req_init(&r, SEND, 0);
		if (ds > 1)
			req_inline(&r, ds * 16 - 20);
		/* The one too many by ibv_post_send: ibv_wr_* would build it over the WQE before */
		for (n = 0; !post_lib(&T.a, n < T.cap.max_send_wr ? n & 1 : POST_SEND, &r, 1, 0); n++)
			;
		assert_int_equal(n, T.cap.max_send_wr);
		for (k = 0; !in_plain(&T.sq, &r); k++)
			;
		assert_int_equal(k, T.bbs / ((ds + 3) / 4));
		assert_true(k >= n);
		assert_int_equal(in_plain(&T.sq, &r), -EAGAIN);
		assert_int_equal(inlay_sq_room(&T.sq), T.bbs - k * ((ds + 3) / 4));
		trio_close(&T);
	}
}

static void limits(void **state)
{
	static const struct ibv_qp_cap cap[] = {
		{.max_send_wr = 1, .max_send_sge = 1},
		{.max_send_wr = 4, .max_send_sge = 1},
		{.max_send_wr = 4, .max_send_sge = 4, .max_inline_data = 64},
		{.max_send_wr = 16, .max_send_sge = 13, .max_inline_data = 100},
		{.max_send_wr = 2, .max_send_sge = MAX_SGE, .max_inline_data = 764},
	};
	struct ibv_qp_cap most = table_cap;
	uint32_t i;

	(void)state;
	need_softdev("the oracle");
	for (i = 0; i < ARRAY(cap); i++) {
		limits_of(&cap[i], LEAN);
		limits_of(&cap[i], 0);
		full_of(&cap[i]);
	}
	limits_of(&most, LEAN);
	full_of(&most);
	counted("limits");
}

/* ---- tests: receive queue ---- */

/* Completes the n oldest receives */
static void rx_complete(struct trio *t, uint32_t n)
{
	static struct ibv_wc wc[2 * 1024];
	struct mlx5_cqe64 cqe;
	uint32_t i;

	if (!n)
		return;
	cqe_for(&cqe, MLX5_CQE_RESP_SEND, 0, t->a.qp->qp_num, t->a.uidx, (uint16_t)t->rtail);
	assert_int_equal(softdev_inject_cqes(t->cqn, &cqe, n, 1), n);
	cqe_for(&cqe, MLX5_CQE_RESP_SEND, 0, t->b.qp->qp_num, t->b.uidx, (uint16_t)t->rtail);
	assert_int_equal(softdev_inject_cqes(t->cqn, &cqe, n, 1), n);
	assert_int_equal(ibv_poll_cq(t->cq, (int)(2 * n), wc), 2 * n);
	for (i = 0; i < 2 * n; i++)
		assert_true(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == t->rtail + i % n);
	t->rtail += n;
	must(inlay_rq_release(&t->in_rq, n));
}

static int rx_post_lib(struct lib *l, const struct req *r, unsigned n, uint32_t wr_id)
{
	static struct ibv_recv_wr wr[MAX_BATCH];
	struct ibv_recv_wr *bad;
	unsigned i;

	for (i = 0; i < n; i++) {
		wr[i].wr_id = wr_id + i;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		wr[i].sg_list = (struct ibv_sge *)(uintptr_t)r[i].sge;
		wr[i].num_sge = (int)r[i].nsge;
	}
	return ibv_post_recv(l->qp, wr, &bad);
}

/* Posts a list of receives to all three and compares rings and records. Slots whose receives are outstanding keep what they hold */
static void rx_run(struct trio *t, const struct req *r, unsigned n)
{
	uint32_t bytes = t->rq_cnt * t->rq_stride, i, k, at, used, known = 0, full;
	uint8_t *slot;

	t->salt = (uint8_t)(t->salt * 5 + 0x5b);
	for (i = t->rhead; i - t->rtail < t->rq_cnt; i++) {
		at = (i & (t->rq_cnt - 1)) * t->rq_stride;
		memset(t->a.rq + at, 0, t->rq_stride);
		memset(t->b.rq + at, 0xff, t->rq_stride);
		memset(t->rq + at, t->salt, t->rq_stride);
	}
	t->a.dbrec[MLX5_RCV_DBR] = 0;
	t->b.dbrec[MLX5_RCV_DBR] = ~0u;
	t->dbrec[MLX5_RCV_DBR] = record_salt(t);
	must(rx_post_lib(&t->a, r, n, t->rhead));
	must(rx_post_lib(&t->b, r, n, t->rhead));
	for (i = 0; i < n; i++)
		must(inlay_post_recv(&t->in_rq, r[i].sge, r[i].nsge));
	inlay_rq_ring(&t->in_rq);
	at = compare(t->a.rq, t->b.rq, t->rq, bytes, &known);
	if (at < bytes) {
		uint32_t unit = at & ~15u, w;

		fprintf(report_to, "receive ring of %u, stride %u, WQE %u: byte %u: libmlx5 0x%02x, inlay 0x%02x\n", t->rq_cnt,
			t->rq_stride, at / t->rq_stride, at % t->rq_stride, t->a.rq[at], t->rq[at]);
		for (i = 0; i < 2; i++) {
			fprintf(report_to, i ? " inlay  " : " libmlx5");
			for (k = 0; k < 16; k += 4) {
				memcpy(&w, (i ? t->rq : t->a.rq) + unit + k, 4);
				fprintf(report_to, " %08x", be32toh(w));
			}
			fprintf(report_to, "\n");
		}
		fail();
	}
	assert_true(known >= 16 * n);
	/* Nothing behind the segment that ends a list, and nothing in a slot that was not posted */
	for (i = t->rhead; i - t->rtail < t->rq_cnt; i++) {
		slot = t->rq + (size_t)(i & (t->rq_cnt - 1)) * t->rq_stride;
		used = 0;
		if (i - t->rhead < n) {
			for (k = 0, full = 0; k < r[i - t->rhead].nsge; k++)
				full += r[i - t->rhead].sge[k].length != 0;
			used = full * 16 == t->rq_stride ? full * 16 : full * 16 + 16;
		}
		assert_true(all_bytes(slot + used, t->rq_stride - used, t->salt));
	}
	t->rhead += n;
	assert_int_equal(t->a.dbrec[MLX5_RCV_DBR], t->b.dbrec[MLX5_RCV_DBR]);
	assert_int_equal(be32toh(t->a.dbrec[MLX5_RCV_DBR]), t->rhead & 0xffff);
	assert_int_equal(t->dbrec[MLX5_RCV_DBR], t->a.dbrec[MLX5_RCV_DBR]);
	compared += known + 4;
	requests += n;
	cases++;
}

static void receive_table(void **state)
{
	static const uint32_t sges[] = {1, 2, 3, 4, 5, 8, 9, 16, 30}, counts[] = {1, 2, 3, 16};
	struct req r, full;
	uint32_t s, c, n, i, k, most;
	unsigned pattern;

	(void)state;
	need_softdev("the oracle");
	for (s = 0; s < ARRAY(sges); s++)
		for (c = 0; c < ARRAY(counts); c++) {
			struct ibv_qp_cap cap;

			memset(&cap, 0, sizeof(cap));
			cap.max_send_wr = 1;
			cap.max_send_sge = 1;
			cap.max_recv_wr = counts[c];
			cap.max_recv_sge = sges[s];
			trio_open(&T, &cap, LEAN, INLAY_UAR_EXCLUSIVE);
			most = T.rq_stride / 16;
			if (most > MAX_SGE + 4)
				most = MAX_SGE + 4;
			for (n = 0; n <= most; n++)
				for (pattern = 0; pattern < 9; pattern++) {
					req_init(&r, SEND, 0);
					for (i = 0; i < n; i++)
						req_pointer(&r, is_empty(pattern, i, n) ? 0 : some_length());
					/* Twice round and one more, so that the next begins elsewhere */
					for (k = 0; k < 2 * T.rq_cnt + 1; k++) {
						if (T.rhead - T.rtail == T.rq_cnt)
							rx_complete(&T, 1 + rnd_below(T.rq_cnt));
						rx_run(&T, &r, 1);
					}
				}
			/* More than a WQE holds; and, full: both count WQEs here, and take the same number */
			if (T.rq_stride / 16 < MAX_SGE + 4) {
				rx_complete(&T, T.rhead - T.rtail);
				for (full = r, full.nsge = 0; full.nsge <= T.rq_stride / 16;)
					req_pointer(&full, 0);
				assert_int_equal(rx_post_lib(&T.a, &full, 1, 0), EINVAL);
				assert_int_equal(inlay_post_recv(&T.in_rq, full.sge, full.nsge), -EINVAL);
			}
			rx_complete(&T, T.rhead - T.rtail);
			for (k = 0; k < T.rq_cnt; k++)
				rx_run(&T, &r, 1);
			assert_int_equal(rx_post_lib(&T.a, &r, 1, 0), ENOMEM);
			assert_int_equal(inlay_post_recv(&T.in_rq, r.sge, r.nsge), -EAGAIN);
			trio_close(&T);
		}
	counted("receive table");
}

static void receive_random(void **state)
{
	static struct req r[MAX_BATCH];
	uint32_t i, k, n, room, runs;

	(void)state;
	need_softdev("the oracle");
	for (runs = 0; runs < 40; runs++) {
		struct ibv_qp_cap cap;

		memset(&cap, 0, sizeof(cap));
		cap.max_send_wr = 1;
		cap.max_send_sge = 1;
		cap.max_recv_wr = 1 + rnd_below(runs % 4 ? 64 : 1024);
		cap.max_recv_sge = 1 + rnd_below(rnd_below(2) ? 4 : MAX_SGE);
		trio_open(&T, &cap, LEAN, INLAY_UAR_EXCLUSIVE);
		/* The first goes round its 16 bits */
		while (T.rhead < (runs ? 2000u : 140000u)) {
			if (rnd_below(2))
				rx_complete(&T, rnd_below(T.rhead - T.rtail + 1));
			room = T.rq_cnt - (T.rhead - T.rtail);
			if (!room) {
				rx_complete(&T, 1 + rnd_below(T.rq_cnt));
				continue;
			}
			n = 1 + rnd_below(room < MAX_BATCH ? room : MAX_BATCH);
			for (i = 0; i < n; i++) {
				req_init(&r[i], SEND, 0);
				k = rnd_below((T.rq_stride / 16 < MAX_SGE ? T.rq_stride / 16 : MAX_SGE) + 1);
				while (r[i].nsge < k)
					req_pointer(&r[i], rnd_below(4) ? some_length() : 0);
			}
			rx_run(&T, r, n);
		}
		trio_close(&T);
	}
	counted("receive at random");
}

/* ---- tests: completions ---- */

struct cqs {
	struct ibv_cq *poll;      /* libmlx5, ibv_poll_cq */
	struct ibv_cq_ex *lazy;   /* libmlx5, ibv_start_poll */
	struct ibv_cq *taken;     /* inlay */
	struct inlay_cq cq;
	struct mlx5dv_cq dv[3];
};

static struct ibv_comp_channel *channel; /* of the CQs made while it is there */

static struct ibv_cq_ex *make_cq(uint32_t cqe, uint32_t size, bool lazy)
{
	struct ibv_cq_init_attr_ex attr;
	struct mlx5dv_cq_init_attr dv;
	struct ibv_cq_ex *cq;

	memset(&attr, 0, sizeof(attr));
	memset(&dv, 0, sizeof(dv));
	attr.cqe = cqe;
	attr.channel = channel;
	if (lazy)
		attr.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	dv.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
	dv.cqe_size = (uint16_t)size;
	cq = mlx5dv_create_cq(dev.ctx, &attr, &dv);
	assert_non_null(cq);
	return cq;
}

static void cqs_open(struct cqs *q, uint32_t cqe, uint32_t size)
{
	memset(q, 0, sizeof(*q));
	q->poll = ibv_cq_ex_to_cq(make_cq(cqe, size, false));
	q->lazy = make_cq(cqe, size, true);
	q->taken = ibv_cq_ex_to_cq(make_cq(cqe, size, false));
	must(inlay_cq_from_cq(&q->cq, q->taken));
	q->dv[0] = view_cq(q->poll);
	q->dv[1] = view_cq(ibv_cq_ex_to_cq(q->lazy));
	q->dv[2] = view_cq(q->taken);
	assert_int_equal(q->dv[0].cqe_size, size);
	assert_int_equal(q->dv[0].cqe_cnt, q->dv[2].cqe_cnt);
	assert_int_equal(q->dv[1].cqe_cnt, q->dv[2].cqe_cnt);
}

static void cqs_close(struct cqs *q)
{
	must(ibv_destroy_cq(q->poll));
	must(ibv_destroy_cq(ibv_cq_ex_to_cq(q->lazy)));
	must(ibv_destroy_cq(q->taken));
}

static void inject(struct cqs *q, const struct mlx5_cqe64 *cqe)
{
	unsigned i;

	for (i = 0; i < 3; i++)
		assert_int_equal(softdev_inject_cqes(q->dv[i].cqn, cqe, 1, 0), 1);
}

static const uint8_t good_sop[] = {MLX5_OPCODE_SEND, MLX5_OPCODE_SEND_IMM, MLX5_OPCODE_SEND_INVAL, MLX5_OPCODE_RDMA_WRITE,
				   MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_OPCODE_RDMA_READ, MLX5_OPCODE_ATOMIC_CS, MLX5_OPCODE_ATOMIC_FA};

/* Any CQE that a device could write, of the lib's QP as far as libmlx5 must find it */
static void cqe_random(struct mlx5_cqe64 *cqe, const struct lib *l, uint8_t opcode, uint8_t syndrome)
{
	uint64_t w[8];
	unsigned i;

	for (i = 0; i < 8; i++)
		w[i] = rnd();
	memcpy(cqe, w, sizeof(w));
	cqe->app = 0; /* not tag matching */
	cqe->srqn_uidx = htobe32(rnd_below(256) << 24 | l->uidx);
	cqe->sop_drop_qpn = htobe32((uint32_t)good_sop[rnd_below(ARRAY(good_sop))] << 24 | rnd_below(1 << 24));
	cqe->op_own = (uint8_t)(opcode << 4 | rnd_below(4)); /* solicited, and an owner bit that is none of the caller's affair */
	if (opcode == MLX5_CQE_REQ_ERR || opcode == MLX5_CQE_RESP_ERR)
		((struct mlx5_err_cqe *)cqe)->syndrome = syndrome;
	/* libmlx5 reports 8 for an atomic and does not look */
	if (opcode == MLX5_CQE_REQ && be32toh(cqe->sop_drop_qpn) >> 24 >= MLX5_OPCODE_ATOMIC_CS)
		cqe->byte_cnt = htobe32(8);
}

static enum ibv_wc_opcode verb_of(const struct mlx5_cqe64 *cqe)
{
	switch (inlay_cqe_opcode(cqe)) {
	case MLX5_CQE_RESP_WR_IMM: return IBV_WC_RECV_RDMA_WITH_IMM;
	case MLX5_CQE_RESP_SEND:
	case MLX5_CQE_RESP_SEND_IMM:
	case MLX5_CQE_RESP_SEND_INV: return IBV_WC_RECV;
	}
	switch (inlay_cqe_send_opcode(cqe)) {
	case MLX5_OPCODE_RDMA_WRITE:
	case MLX5_OPCODE_RDMA_WRITE_IMM: return IBV_WC_RDMA_WRITE;
	case MLX5_OPCODE_RDMA_READ: return IBV_WC_RDMA_READ;
	case MLX5_OPCODE_ATOMIC_CS: return IBV_WC_COMP_SWAP;
	case MLX5_OPCODE_ATOMIC_FA: return IBV_WC_FETCH_ADD;
	default: return IBV_WC_SEND;
	}
}

/* The CQE as inlay reads it, against what libmlx5 made of it by either way */
static void cqe_check(const struct mlx5_cqe64 *cqe, const struct ibv_wc *wc, struct ibv_cq_ex *lazy)
{
	uint8_t op = inlay_cqe_opcode(cqe), sop = inlay_cqe_send_opcode(cqe);
	bool error = inlay_cqe_is_error(cqe), bad = false;
	enum ibv_wc_status status = inlay_cqe_status(cqe);

#define SAME(x, y) (bad |= (x) != (y))
	SAME(wc->status, status);
	SAME(lazy->status, status);
	SAME(error, wc->status != IBV_WC_SUCCESS);
	SAME(wc->qp_num, inlay_cqe_qpn(cqe));
	SAME(ibv_wc_read_qp_num(lazy), inlay_cqe_qpn(cqe));
	if (error) {
		SAME(wc->vendor_err, inlay_cqe_vendor_syndrome(cqe));
		SAME(ibv_wc_read_vendor_err(lazy), inlay_cqe_vendor_syndrome(cqe));
		SAME(inlay_cqe_is_send(cqe), op == MLX5_CQE_REQ_ERR);
	} else {
		SAME(wc->opcode, verb_of(cqe));
		SAME(ibv_wc_read_opcode(lazy), verb_of(cqe));
		SAME(inlay_cqe_is_send(cqe), !(wc->opcode & IBV_WC_RECV));
		SAME(ibv_wc_read_completion_ts(lazy), inlay_cqe_timestamp(cqe));
		if (!inlay_cqe_is_send(cqe) || sop == MLX5_OPCODE_RDMA_READ || sop >= MLX5_OPCODE_ATOMIC_CS) {
			SAME(wc->byte_len, inlay_cqe_byte_count(cqe));
			SAME(ibv_wc_read_byte_len(lazy), inlay_cqe_byte_count(cqe));
		}
		if (op == MLX5_CQE_RESP_WR_IMM || op == MLX5_CQE_RESP_SEND_IMM) {
			SAME(wc->wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
			SAME(wc->imm_data, inlay_cqe_imm_be(cqe));
			SAME(ibv_wc_read_imm_data(lazy), inlay_cqe_imm_be(cqe));
		}
		if (op == MLX5_CQE_RESP_SEND_INV) {
			SAME(wc->wc_flags & IBV_WC_WITH_INV, IBV_WC_WITH_INV);
			SAME(wc->invalidated_rkey, inlay_cqe_invalidated_rkey(cqe));
			SAME(ibv_wc_read_invalidated_rkey(lazy), inlay_cqe_invalidated_rkey(cqe));
		}
	}
#undef SAME
	if (bad) {
		fprintf(report_to,
			"libmlx5: status %d opcode %d byte_len %u imm 0x%x qp_num 0x%x vendor 0x%x flags 0x%x; inlay: status %d\n",
			wc->status, wc->opcode, wc->byte_len, wc->imm_data, wc->qp_num, wc->vendor_err, wc->wc_flags, status);
		inlay_cqe_print(report_to, cqe);
		fail();
	}
	cases++;
}

/* Takes up to n completions from all three, and compares them and what the device is told of it. Returns how many */
static uint32_t take(struct cqs *q, uint32_t n, unsigned way)
{
	static const struct mlx5_cqe64 *cqes[4096];
	static struct ibv_wc wc[4096];
	struct ibv_poll_cq_attr attr;
	uint32_t got, i, there;
	int polled, err;

	memset(&attr, 0, sizeof(attr));
	memset(wc, 0xee, n * sizeof(wc[0]));
	polled = ibv_poll_cq(q->poll, (int)n, wc);
	assert_true(polled >= 0);
	if (way == 0) {
		got = inlay_cq_peek_many(&q->cq, cqes, n);
		assert_int_equal(got, polled);
	} else {
		got = (uint32_t)polled;
	}
	err = n ? ibv_start_poll(q->lazy, &attr) : ENOENT;
	there = !err;
	for (i = 0; i < got; i++) {
		assert_int_equal(err, 0);
		if (way) {
			cqes[i] = inlay_cq_peek(&q->cq);
			assert_non_null(cqes[i]);
			assert_ptr_equal(inlay_cq_peek(&q->cq), cqes[i]);
		}
		cqe_check(cqes[i], &wc[i], q->lazy);
		if (way == 1)
			inlay_cq_advance(&q->cq, 1);
		else if (way == 2)
			inlay_cq_advance_quiet(&q->cq, 1);
		if (i + 1 < got)
			err = ibv_next_poll(q->lazy);
	}
	/* Ended, or fewer than asked for: then nothing may be left */
	if (there)
		ibv_end_poll(q->lazy);
	if (way == 0)
		inlay_cq_advance(&q->cq, got);
	else if (way == 2)
		inlay_cq_update(&q->cq);
	if (got < n) {
		assert_null(inlay_cq_peek(&q->cq));
		assert_int_equal(inlay_cq_peek_many(&q->cq, cqes, 1), 0);
		assert_int_equal(ibv_start_poll(q->lazy, &attr), ENOENT);
		assert_int_equal(ibv_poll_cq(q->poll, 1, wc), 0);
	}
	if (got) {
		assert_int_equal(q->dv[0].dbrec[0], q->dv[2].dbrec[0]);
		assert_int_equal(q->dv[1].dbrec[0], q->dv[2].dbrec[0]);
		assert_int_equal(be32toh(q->dv[2].dbrec[0]), q->cq.ci & 0xffffff);
	}
	return got;
}

static const uint8_t cqe_ops[] = {MLX5_CQE_REQ, MLX5_CQE_RESP_WR_IMM, MLX5_CQE_RESP_SEND, MLX5_CQE_RESP_SEND_IMM,
				  MLX5_CQE_RESP_SEND_INV, MLX5_CQE_REQ_ERR, MLX5_CQE_RESP_ERR};
static const struct ibv_qp_cap cq_cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 4, .max_recv_sge = 4};

/* Every opcode and, of errors, every syndrome; CQEs of both sizes; then rings of all sizes, filled and emptied at random */
static void completions(void **state)
{
	static const uint32_t sizes[] = {64, 128};
	uint32_t s, o, k, there, rings;
	struct mlx5_cqe64 cqe;
	struct cqs q;

	(void)state;
	need_softdev("the oracle");
	trio_open(&T, &cq_cap, LEAN, INLAY_UAR_EXCLUSIVE);
	for (s = 0; s < ARRAY(sizes); s++) {
		cqs_open(&q, 63, sizes[s]);
		assert_int_equal(take(&q, 1, 0), 0);
		for (o = 0; o < ARRAY(cqe_ops); o++)
			for (k = 0; k < 256; k++) {
				cqe_random(&cqe, &T.a, cqe_ops[o], (uint8_t)k);
				inject(&q, &cqe);
				assert_int_equal(take(&q, 2, k % 3), 1);
			}
		cqs_close(&q);
		for (rings = 0; rings < 12; rings++) {
			/* libmlx5's CQ has one slot more than was asked for, and a power of two */
			uint32_t want = rings < 10 ? 1u << rings : 1 + rnd_below(1000), laps;

			cqs_open(&q, want, sizes[s]);
			for (there = 0, laps = 0; laps < 60; laps++) {
				k = rnd_below(4) ? rnd_below(q.cq.mask + 2 - there) : q.cq.mask + 1 - there;
				there += k;
				while (k--) {
					cqe_random(&cqe, &T.a, cqe_ops[rnd_below(ARRAY(cqe_ops))], (uint8_t)rnd_below(0x24));
					inject(&q, &cqe);
				}
				k = rnd_below(3) ? rnd_below(there + 2) : q.cq.mask + 1;
				there -= take(&q, k, rnd_below(3));
			}
			while (there)
				there -= take(&q, q.cq.mask + 1, 0);
			cqs_close(&q);
		}
	}
	trio_close(&T);
	counted("completions");
}

/*
 * Payload scattered to the CQE. libmlx5 copies it to the receive buffer (or, of a READ, to the buffer of the send WQE); inlay
 * says where in the CQE it is. The same bytes must come out. One CQ of each kind reaches the same receive queue, so each CQE
 * takes two receives.
 */
static void scattered(void **state)
{
	static const uint32_t sizes[] = {64, 128};
	uint32_t s, len, slot, i, most, scatter, last;
	uint8_t buf[2][64], want[64];
	struct ibv_poll_cq_attr attr;
	struct mlx5_cqe64 cqe;
	struct ibv_wc wc;
	struct req r;
	struct cqs q;

	(void)state;
	need_softdev("the oracle");
	memset(&attr, 0, sizeof(attr));
	trio_open(&T, &cq_cap, LEAN, INLAY_UAR_EXCLUSIVE);
	for (s = 0; s < ARRAY(sizes); s++) {
		cqs_open(&q, 15, sizes[s]);
		last = sizes[s] == 64 ? INLAY_CQE_SCATTER_32 : INLAY_CQE_SCATTER_64;
		for (scatter = INLAY_CQE_SCATTER_32; scatter <= last; scatter *= 2) {
			most = scatter == INLAY_CQE_SCATTER_32 ? 32 : 64;
			for (len = 1; len <= most; len++) {
				const struct mlx5_cqe64 *got;

				memset(buf, 0, sizeof(buf));
				for (i = 0; i < 2; i++) {
					req_init(&r, SEND, 0);
					/* In two pieces, the device's split */
					r.sge[0].addr = (uintptr_t)buf[i];
					r.sge[0].length = len / 2;
					r.sge[1].addr = (uintptr_t)buf[i] + len / 2;
					r.sge[1].length = 64 - len / 2;
					r.sge[0].lkey = r.sge[1].lkey = 0x1234;
					r.nsge = 2;
					must(rx_post_lib(&T.a, &r, 1, 0));
				}
				cqe_random(&cqe, &T.a, MLX5_CQE_RESP_SEND, 0);
				cqe.byte_cnt = htobe32(len);
				cqe.op_own |= (uint8_t)scatter;
				fill(want, 64, (uint32_t)rnd());
				slot = q.cq.ci & q.cq.mask;
				if (scatter == INLAY_CQE_SCATTER_32) {
					uint8_t app = cqe.app;

					/* It lies over fields without meaning then; libmlx5 looks at `app` all the same */
					memcpy(&cqe, want, 32);
					cqe.app = app;
					memcpy(want, &cqe, 32);
				} else {
					for (i = 0; i < 3; i++)
						memcpy((uint8_t *)q.dv[i].buf + slot * 128, want, 64);
				}
				inject(&q, &cqe);
				assert_int_equal(ibv_poll_cq(q.poll, 1, &wc), 1);
				must(ibv_start_poll(q.lazy, &attr));
				assert_int_equal(q.lazy->status, IBV_WC_SUCCESS);
				ibv_end_poll(q.lazy);
				assert_int_equal(wc.status, IBV_WC_SUCCESS);
				got = inlay_cq_peek(&q.cq);
				assert_non_null(got);
				assert_non_null(inlay_cqe_payload(got, q.cq.stride));
				assert_memory_equal(buf[0], want, len);
				assert_memory_equal(buf[1], want, len);
				assert_memory_equal(inlay_cqe_payload(got, q.cq.stride), buf[0], len);
				inlay_cq_advance(&q.cq, 1);
				cases++;
			}
		}
		/* READ and atomics: of 64-byte CQEs only; in 128-byte ones libmlx5 44 looks for it one byte before the slot */
		for (len = 1; s == 0 && len <= 32; len++) {
			const struct mlx5_cqe64 *got;

			memset(buf, 0, sizeof(buf));
			req_init(&r, len == 8 ? FAA : READ, SIG);
			req_pointer(&r, len);
			r.sge[0].addr = (uintptr_t)buf[0];
			must(post_lib(&T.a, POST_SEND, &r, 1, 5));
			fill(want, 32, (uint32_t)rnd());
			cqe_for(&cqe, MLX5_CQE_REQ, op_code[r.op], T.a.qp->qp_num, T.a.uidx, (uint16_t)T.pos++);
			cqe.byte_cnt = htobe32(len);
			cqe.op_own |= INLAY_CQE_SCATTER_32;
			memcpy(&cqe, want, 32);
			inject(&q, &cqe);
			assert_int_equal(ibv_poll_cq(q.poll, 1, &wc), 1);
			must(ibv_start_poll(q.lazy, &attr));
			ibv_end_poll(q.lazy);
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			got = inlay_cq_peek(&q.cq);
			assert_non_null(got);
			assert_memory_equal(buf[0], want, len);
			assert_memory_equal(inlay_cqe_payload(got, q.cq.stride), buf[0], len);
			assert_true(all_bytes(buf[0] + len, 64 - len, 0));
			inlay_cq_advance(&q.cq, 1);
			cases++;
		}
		cqs_close(&q);
	}
	trio_close(&T);
	counted("scattered payload");
}

/* Arming: both words that the device looks at, with the number of events seen so far in them */
static void arming(void **state)
{
	volatile uint64_t *lib_db, *in_db;
	uint32_t i, k, n, lib_events = 0, in_events = 0;
	struct mlx5_cqe64 cqe;
	struct ibv_cq *cq;
	struct cqs q;
	void *context;

	(void)state;
	need_softdev("the oracle");
	trio_open(&T, &cq_cap, LEAN, INLAY_UAR_EXCLUSIVE);
	channel = ibv_create_comp_channel(dev.ctx);
	assert_non_null(channel);
	must(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK));
	cqs_open(&q, 15, 64);
	lib_db = (volatile uint64_t *)((uint8_t *)q.dv[0].cq_uar + 0x20);
	in_db = (volatile uint64_t *)((uint8_t *)q.cq.uar + 0x20);
	for (i = 0; i < 200; i++) {
		uint64_t x, y;

		*lib_db = 0;
		must(ibv_req_notify_cq(q.poll, i & 1));
		x = be64toh(*lib_db);
		*in_db = 0;
		must(inlay_cq_arm(&q.cq, i & 1));
		y = be64toh(*in_db);
		assert_int_equal(q.dv[0].dbrec[1], q.dv[2].dbrec[1]);
		assert_int_equal(q.dv[0].dbrec[0], q.dv[2].dbrec[0]);
		assert_int_equal(x >> 32, y >> 32);
		assert_int_equal((uint32_t)x, q.dv[0].cqn);
		assert_int_equal((uint32_t)y, q.dv[2].cqn);
		n = 1 + rnd_below(16);
		for (k = 0; k < n; k++) {
			cqe_random(&cqe, &T.a, MLX5_CQE_REQ, 0);
			inject(&q, &cqe);
		}
		while (!ibv_get_cq_event(channel, &cq, &context)) {
			if (cq == q.taken) {
				inlay_cq_event(&q.cq);
				in_events++;
			} else {
				assert_ptr_equal(cq, q.poll);
				lib_events++;
			}
			ibv_ack_cq_events(cq, 1);
		}
		/* At most one event for each arming, and the same for both */
		assert_true(lib_events <= i + 1);
		assert_int_equal(in_events, lib_events);
		assert_int_equal(take(&q, n, 0), n);
	}
	assert_true(lib_events > 100);
	cqs_close(&q);
	must(ibv_destroy_comp_channel(channel));
	channel = NULL;
	trio_close(&T);
	print_message("# %u armings, %u events\n", i, in_events);
}

/* ---- the comparison itself ---- */

/*
 * Can it fail? A batch that compares well is spoiled at one byte after the other, and each time the comparison must say so and
 * name the place: in c's ring, register and record. A byte that libmlx5 leaves alone inside of a WQE's units is not looked at.
 */
static void self_check(void **state)
{
	static struct req r[3];
	uint32_t i, begin, caught = 0, missed = 0, tail;
	char *text = NULL, place[32];
	size_t len = 0;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	go_to(&T, 28);
	/* A single one, which wraps and is copied to the register. Its last unit ends in padding, which libmlx5 leaves alone */
	req_init(&r[0], WRITE_IMM, SIG | SOL | FENCE);
	req_inline(&r[0], 200 - 3);
	begin = T.pos;
	fill_free(&T);
	post_batch(&T, POST_SEND, PLAIN, false, r, 1);
	assert_int_equal(check_batch(&T, r, 1, begin), 0);
	for (i = 0; i < T.bbs * 64; i++) {
		bool known = T.a.ring[i] == T.b.ring[i];
		bool outside = ((i / 16 - 28 * 4) & (T.bbs * 4 - 1)) >= req_ds(r);
		FILE *out = open_memstream(&text, &len), *was = report_to;
		int wrong;

		assert_non_null(out);
		report_to = out;
		T.ring[i] ^= 1;
		wrong = check_batch(&T, r, 1, begin);
		T.ring[i] ^= 1;
		report_to = was;
		fclose(out);
		assert_int_equal(wrong, known || outside);
		if (wrong) {
			snprintf(place, sizeof(place), "byte %u (", i);
			assert_non_null(strstr(text, place));
			caught++;
		} else {
			missed++;
		}
		if (known) {
			assert_non_null(strstr(text, " libmlx5\n"));
			assert_non_null(strstr(text, " inlay\n"));
			assert_non_null(strstr(text, "raddr"));
			assert_non_null(strstr(text, "inline  197 bytes"));
			assert_non_null(strstr(text, "WRITE_IMM inline"));
		}
		free(text);
	}
	/* 16 bytes of units hold 4 + 197: 7 of the last are padding */
	tail = 16 - (4 + 197) % 16;
	assert_int_equal(missed, tail);
	for (i = 0; i < 2 * T.size; i++) {
		uint8_t *at = T.reg + i;
		uint32_t in = i % T.size;
		bool there = i / T.size == !T.half, known;
		FILE *was = report_to;
		int wrong;

		known = there && T.a.reg[!T.a.half * T.size + in] == T.b.reg[!T.b.half * T.size + in];
		report_to = fopen("/dev/null", "w");
		assert_non_null(report_to);
		*at ^= 0x80;
		wrong = check_batch(&T, r, 1, begin);
		*at ^= 0x80;
		fclose(report_to);
		report_to = was;
		assert_int_equal(wrong, known || !there);
		caught += wrong;
	}
	for (i = 0; i < 32; i++) {
		FILE *was = report_to;

		report_to = fopen("/dev/null", "w");
		assert_non_null(report_to);
		T.dbrec[MLX5_SND_DBR] ^= 1u << i;
		caught += (uint32_t)check_batch(&T, r, 1, begin);
		T.dbrec[MLX5_SND_DBR] ^= 1u << i;
		fclose(report_to);
		report_to = was;
	}
	assert_int_equal(check_batch(&T, r, 1, begin), 0);
	print_message("# %u corruptions caught, %u in bytes that libmlx5 leaves alone\n", caught, missed);
	assert_int_equal(caught, T.bbs * 64 - missed + 32 + 2 * T.size - (T.size - req_ds(r) * 16) - missed);
	trio_close(&T);
	cases = requests = compared = 0;
}

/* A request that is not the same: the comparison must see each field of it */
static void self_check_requests(void **state)
{
	FILE *was = report_to, *null = fopen("/dev/null", "w");
	struct req lib, in;
	uint32_t begin, i;

	(void)state;
	need_softdev("the oracle");
	assert_non_null(null);
	table_open(&T);
	for (i = 0; i < 9; i++) {
		complete_all(&T);
		req_init(&lib, i == 8 ? CAS : WRITE_IMM, SIG);
		if (i == 6)
			req_inline(&lib, 40);
		else
			req_pointer(&lib, 8);
		data[((uintptr_t)lib.sge[0].addr - (uintptr_t)data + 39) % DATA_BYTES] = 0;
		in = lib;
		switch (i) {
		case 0: in.imm ^= 1; break;
		case 1: in.raddr ^= 1; break;
		case 2: in.rkey ^= 1u << 31; break;
		case 3: in.flags ^= SOL; break;
		case 4: in.sge[0].lkey ^= 1; break;
		case 5: in.sge[0].addr ^= UINT64_C(1) << 63; break;
		case 6: in.sge[0].length--; break;
		case 7: in.op = WRITE; break;
		default: in.a ^= 1; break;
		}
		begin = T.pos;
		fill_free(&T);
		must(post_lib(&T.a, i & 1, &lib, 1, T.head));
		must(post_lib(&T.b, i & 1, &lib, 1, T.head));
		must(in_plain(&T.sq, &in));
		inlay_sq_ring(&T.sq);
		T.start[T.head++ & 0xffff] = T.pos;
		T.pos += (req_ds(&lib) + 3) / 4;
		must(swap_qpn(T.a.ring + (begin & 31) * 64, T.a.qp->qp_num, T.qp->qp_num, begin));
		must(swap_qpn(T.b.ring + (begin & 31) * 64, T.b.qp->qp_num, T.qp->qp_num, begin));
		T.a.half ^= 1;
		T.b.half ^= 1;
		T.half ^= 1;
		report_to = null;
		assert_int_equal(check_batch(&T, &lib, 1, begin), 1);
		report_to = was;
	}
	fclose(null);
	trio_close(&T);
}

static int open_group(void **state)
{
	if (!softdev_present())
		return 0;
	if (dev_open(state))
		return -1;
	alarm(600); /* a million cases are asked for, under sanitizers too */
	fill(data, sizeof(data), 4711);
	return 0;
}

static int close_group(void **state)
{
	return softdev_present() ? dev_close(state) : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(self_check),
		cmocka_unit_test(self_check_requests),
		cmocka_unit_test(inline_single),
		cmocka_unit_test(inline_gather),
		cmocka_unit_test(pointers),
		cmocka_unit_test(atomics),
		cmocka_unit_test(constants_and_cursor),
		cmocka_unit_test(mixed_by_cursor),
		cmocka_unit_test(nop_by_hand),
		cmocka_unit_test(doorbells),
		cmocka_unit_test(doorbells_by_hand),
		cmocka_unit_test(index_wraps),
		cmocka_unit_test(limits),
		cmocka_unit_test(receive_table),
		cmocka_unit_test(receive_random),
		cmocka_unit_test(completions),
		cmocka_unit_test(scattered),
		cmocka_unit_test(arming),
		cmocka_unit_test(random_runs),
	};

	/* libmlx5 prints each error CQE that it meets */
	setenv("MLX5_DEBUG_FILE", "/dev/null", 0);
	report_to = stderr;
	return cmocka_run_group_tests_name("oracle", tests, open_group, close_group);
}
