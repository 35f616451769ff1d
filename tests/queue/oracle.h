/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oracle.h: does inlay write, byte for byte, what libmlx5 writes? What the programs share that ask it: tests/oracle_*.c.
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
 * Each program sets K, the kind of QP that it is about, before its first test. Environment: ORACLE_CASES, requests of each random run
 * (100,000); ORACLE_SEED, where its random numbers begin.
 */
#ifndef TESTS_ORACLE_H
#define TESTS_ORACLE_H

#include "common.h"
#include <endian.h>

#define MAX_SGE 30u             /* the device's */
#define MAX_BATCH 48u
#define MAX_PEERS 64u
#define WQE_MAX 15u             /* WQEBBs of the longest */
#define DATA_BYTES 8192u

enum op { SEND, SEND_IMM, SEND_INV, WRITE, WRITE_IMM, READ, CAS, FAA, BIND1, BIND2, INV, UMR, RAW, COPY, TSO, OPS };
enum { SIG = 1, SOL = 2, FENCE = 4, FLAG_SETS = 8 };
enum { POST_SEND, WR, APIS };
enum { PLAIN, CONST, CURSOR, IOV, TEMPLATE, WAYS };

static const char *const op_name[OPS] = {"SEND", "SEND_IMM", "SEND_INV", "WRITE", "WRITE_IMM", "READ", "CAS", "FAA", "BIND1", "BIND2",
					  "INV", "UMR", "RAW", "COPY", "TSO"};
static const uint8_t op_code[OPS] = {MLX5_OPCODE_SEND, MLX5_OPCODE_SEND_IMM, MLX5_OPCODE_SEND_INVAL, MLX5_OPCODE_RDMA_WRITE,
				     MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_OPCODE_RDMA_READ, MLX5_OPCODE_ATOMIC_CS,
				     MLX5_OPCODE_ATOMIC_FA, MLX5_OPCODE_UMR, MLX5_OPCODE_UMR, MLX5_OPCODE_UMR, MLX5_OPCODE_UMR, 0,
				     MLX5_OPCODE_MMO, MLX5_OPCODE_TSO};
static const enum ibv_wr_opcode op_verb[OPS] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, IBV_WR_RDMA_WRITE,
						IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
						IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV,
						IBV_WR_SEND, IBV_WR_SEND, IBV_WR_SEND /* by other means */, IBV_WR_TSO};

/* What a program is about */
struct kind {
	enum ibv_qp_type type;
	uint32_t ops;           /* 1 << op, of those that it posts */
	uint64_t lean;          /* the ibv_wr_* interface with the least room for segments in front of the payload */
	uint64_t full;          /* and with all operations; a QP without that interface has room for these too */
	uint32_t fixed;         /* bytes of a send in front of its payload */
	uint32_t overhead;      /* bytes that inlay leaves in front of the longest payload, at most: of LEAN's, and of others */
	uint32_t overhead_full;
	uint32_t max_inline;    /* the longest that fits the device's longest WQE with libmlx5's overhead for lean, and for full */
	uint32_t max_inline_full;
	uint64_t dv;            /* MLX5DV_QP_EX_*: libmlx5's own operations, without scatter to CQE */
};

#define RC_LEAN (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |   \
		 IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |               \
		 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
#define UC_LEAN (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)
#define UD_LEAN (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define WINDOWS (IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW)

UNUSED static const struct kind rc_kind = {IBV_QPT_RC, 1 << SEND | 1 << SEND_IMM | 1 << SEND_INV | 1 << WRITE | 1 << WRITE_IMM | 1 << READ |
					   1 << CAS | 1 << FAA, RC_LEAN, RC_LEAN | WINDOWS, 16, 48, 192, 908, 764, 0};
UNUSED static const struct kind uc_kind = {IBV_QPT_UC, 1 << SEND | 1 << SEND_IMM | 1 << WRITE | 1 << WRITE_IMM, UC_LEAN, UC_LEAN | WINDOWS,
					   16, 32, 192, 924, 764, 0};
/* Those that name a destination: XRC, and DCIs, which ibv_post_send does not know */
UNUSED static const struct kind xrc_kind = {IBV_QPT_XRC_SEND, 1 << SEND | 1 << SEND_IMM | 1 << SEND_INV | 1 << WRITE | 1 << WRITE_IMM |
					    1 << READ | 1 << CAS | 1 << FAA, RC_LEAN, RC_LEAN | WINDOWS, 32, 64, 208, 892, 748, 0};
UNUSED static const struct kind dci_kind = {IBV_QPT_DRIVER, 1 << SEND | 1 << SEND_IMM | 1 << SEND_INV | 1 << WRITE | 1 << WRITE_IMM |
					    1 << READ | 1 << CAS | 1 << FAA, RC_LEAN, RC_LEAN | WINDOWS, 64, 96, 240, 860, 716, 0};
UNUSED static const struct kind ud_kind = {IBV_QPT_UD, 1 << SEND | 1 << SEND_IMM, UD_LEAN, UD_LEAN, 64, 64, 64, 892, 892, 0};

enum { NO_LAYOUT, LIST, INTERLEAVED };          /* of a UMR's request */
enum { KEY_PLAIN, KEY_OFF, KEY_KEPT, KEY_SIGNED };  /* the key has none; has room for one, has one, gets one */

/* A request, in a form of neither side */
struct req {
	uint8_t op, flags;
	uint8_t inl;
	uint8_t list;           /* ibv_wr_*: the list setter, for one buffer too */
	uint8_t av_last;        /* ibv_wr_*: buffers before the address */
	uint32_t nsge;
	uint32_t rkey, imm;     /* imm: as on the wire, or the rkey to invalidate in host order. rkey of a window: the new one */
	uint64_t raddr;
	uint64_t a, b;          /* CAS: compare, swap. FAA: add, nothing */
	struct ibv_ah *to;      /* UD, DCI; else NULL */
	uint32_t qpn, qkey;     /* the same; XRC: the SRQ's number, and nothing */
	uint64_t key;           /* DCI */
	uint32_t stream;        /* DCI, with 1 << 16 for one that is named */
	struct inlay_av av;     /* of all three */
	struct ibv_mw mw;       /* BIND1, BIND2 */
	struct ibv_mw_bind_info bind;
	struct {                /* UMR; the key is rkey, a list's pieces are sge */
		uint8_t layout, sig, access, errors, seen, order, simple;
		uint32_t rights, rounds, psv[2];
		struct mlx5dv_mr_interleaved part[MAX_SGE + 4];
		struct mlx5dv_sig_t10dif dif[2];
		struct mlx5dv_sig_crc crc[2];
		struct mlx5dv_sig_block_domain domain[2]; /* memory, wire */
		struct mlx5dv_sig_block_attr attr;
	} umr;
	uint8_t csum;           /* raw packets: IBV_SEND_IP_CSUM */
	uint8_t hdr[256];       /* TSO */
	uint16_t hdr_len, mss;
	struct ibv_sge sge[MAX_SGE + 4];
};

/* A twin of libmlx5's */
struct lib {
	struct ibv_qp *qp;
	struct ibv_qp_ex *qpx;  /* NULL: created without the ibv_wr_* interface */
	struct ibv_td *td;
	struct ibv_pd *pd;
	struct ibv_wq *wq;      /* in the place of a QP */
	uint8_t *ring, *reg, *rq;
	uint32_t *dbrec;
	uint32_t uidx;          /* how a CQE names it */
	uint32_t half;          /* of the register, that the next doorbell goes to: 0 or 1 */
	uint8_t scratch[12];    /* what its copies name besides their data, once one was seen */
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
	uint32_t fence;         /* what libmlx5 puts into the next WQE by itself, after a change of a window */
	uint8_t salt;           /* what c is filled with */
	uint32_t start[65536];  /* where the outstanding WQEs begin */
	bool more[65536];       /* whether the request's next WQE follows */
};

static struct trio T;
static const struct kind *K;
static struct ibv_sge scratch = {UINT64_C(0x1234567890abcdc0), 64, 0x11223344}; /* of inlay's copies */
static uint8_t data[DATA_BYTES];
static uint64_t cases, requests, compared; /* batches compared, requests in them, bytes */
static FILE *report_to;
static struct ibv_ah *peers[MAX_PEERS];
static struct ibv_mr *mrs[4];

/* ---- requests ---- */

UNUSED static bool is_window(unsigned op)
{
	return op >= BIND1 && op <= INV;
}

UNUSED static bool is_rdma(unsigned op)
{
	return op >= WRITE && op <= FAA;
}

UNUSED static bool is_atomic(unsigned op)
{
	return op == CAS || op == FAA;
}

UNUSED static bool has_op(unsigned op)
{
	return K->ops >> op & 1;
}

UNUSED static bool is_xrc(void)
{
	return K->type == IBV_QPT_XRC_SEND;
}

UNUSED static bool is_dci(void)
{
	return K->type == IBV_QPT_DRIVER;
}

#define TSO_HEADER 128u         /* the longest of raw packet QPs */

/* Bytes of each packet that the device wants inline */
UNUSED static uint32_t inline_l2(void)
{
	const char *env = getenv("SOFTDEV_INLINE");

	return env && !strcmp(env, "l2") ? 18 : 0;
}

/* Of a raw packet: its header is in the Ethernet segment, from two bytes before its end on */
UNUSED static uint32_t raw_ds(const struct req *r)
{
	uint32_t hdr = r->op == TSO ? r->hdr_len : inline_l2(), skip = r->op == TSO ? 0 : hdr, n = 0, i;
	uint64_t total = 0;

	for (i = 0; i < r->nsge; i++) {
		uint32_t gone = r->sge[i].length < skip ? r->sge[i].length : skip;

		skip -= gone;
		total += r->sge[i].length - gone;
		n += r->sge[i].length != gone;
	}
	if (r->inl)
		n = total ? (uint32_t)((4 + total + 15) / 16) : 0;
	return 2 + (hdr ? (hdr - 2 + 15) / 16 : 0) + n;
}

/* Length of the WQE in 16-byte units, from the layout alone */
UNUSED static uint32_t req_ds(const struct req *r)
{
	uint32_t ds = 1 + is_rdma(r->op) + is_atomic(r->op) + (r->to ? 3 : is_xrc()), i;
	uint64_t total = 0;

	if (K->type == IBV_QPT_RAW_PACKET)
		return raw_ds(r);
	if (is_window(r->op))
		return r->op != INV && r->bind.length ? 12 : 8;
	if (r->op == RAW)
		return r->nsge;
	if (r->op == UMR)
		return 8 + (r->umr.layout ? (r->nsge + (r->umr.layout == INTERLEAVED) + 3) / 4 * 4 : 0) + (r->umr.sig == KEY_SIGNED ? 4 : 0);
	if (r->op == COPY)
		return 4;
	for (i = 0; i < r->nsge; i++)
		total += r->sge[i].length;
	if (r->inl)
		return ds + (total ? (uint32_t)((4 + total + 15) / 16) : 0);
	for (i = 0; i < r->nsge; i++)
		ds += r->sge[i].length != 0;
	return ds;
}

/* WQEs of a request: a UMR that gives a key signatures has one more for each PSV, of one WQEBB */
UNUSED static uint32_t req_psvs(const struct req *r)
{
	if (r->op != UMR || !(r->umr.sig == KEY_SIGNED || (r->umr.sig == KEY_KEPT && r->umr.seen)))
		return 0;
	return !!r->umr.attr.mem + !!r->umr.attr.wire;
}

UNUSED static void req_print(FILE *out, const struct req *r)
{
	uint32_t i;

	fprintf(out, "%s%s%s%s%s, %u buffers:", op_name[r->op], r->inl ? " inline" : "", r->flags & SIG ? " signaled" : "",
		r->flags & SOL ? " solicited" : "", r->flags & FENCE ? " fence" : "", r->nsge);
	for (i = 0; i < r->nsge; i++)
		fprintf(out, " %u", r->sge[i].length);
	if (r->to || is_xrc())
		fprintf(out, ", to 0x%x qkey 0x%x key 0x%llx stream 0x%x", r->qpn, r->qkey, (unsigned long long)r->key, r->stream);
	if (is_window(r->op))
		fprintf(out, ", key 0x%x to 0x%x, %llu bytes at 0x%llx, access 0x%x", r->op == INV ? r->imm : r->mw.rkey, r->rkey,
			(unsigned long long)r->bind.length, (unsigned long long)r->bind.addr, r->bind.mw_access_flags);
	if (r->op == UMR)
		fprintf(out, ", key 0x%x, layout %u, signature %u", r->rkey, r->umr.layout, r->umr.sig);
	fprintf(out, "\n");
}

/* One of the address handles; numbers and keys may be any, and 0xffffff is a group */
UNUSED static void req_peer(struct req *r)
{
	r->qpn = rnd_below(5) ? rnd_below(1 << 24) : 0xffffff;
	if (is_xrc()) {
		inlay_av_init_xrc(&r->av, r->qpn);
		return;
	}
	r->to = peers[rnd_below(MAX_PEERS)];
	r->qkey = (uint32_t)rnd();
	must(inlay_av_from_ah(&r->av, r->to, r->qpn, r->qkey));
	if (!is_dci())
		return;
	r->key = rnd();
	r->stream = rnd_below(2) ? 1 << 16 | rnd_below(1 << 16) : 0;
	inlay_av_to_dct(&r->av, r->qpn, r->key);
}

UNUSED static bool has_peers(void)
{
	return K->type == IBV_QPT_UD || is_dci() || is_xrc();
}

/* A window's new place: none, or somewhere of up to 2^31 bytes */
UNUSED static void req_window(struct req *r)
{
	static const uint64_t edge[] = {0, 1, 4096, 0x7fffffff, UINT64_C(1) << 31};

	memset(&r->mw, 0, sizeof(r->mw));
	memset(&r->bind, 0, sizeof(r->bind));
	r->mw.context = dev.ctx;
	r->mw.pd = dev.pd;
	r->mw.rkey = (uint32_t)rnd();
	r->mw.type = r->op == BIND1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2;
	/* ibv_bind_mw makes the key itself */
	r->rkey = r->op == BIND1 || rnd_below(2) ? ibv_inc_rkey(r->mw.rkey) : (r->mw.rkey & ~0xffu) | rnd_below(256);
	r->bind.mr = mrs[rnd_below(ARRAY(mrs))];
	r->bind.addr = rnd();
	r->bind.length = rnd_below(2) ? edge[rnd_below(ARRAY(edge))] : 1 + rnd() % (UINT64_C(1) << 31);
	r->bind.mw_access_flags = (rnd_below(2) ? IBV_ACCESS_LOCAL_WRITE : 0) | (rnd_below(2) ? IBV_ACCESS_REMOTE_WRITE : 0) |
				  (rnd_below(2) ? IBV_ACCESS_REMOTE_READ : 0) | (rnd_below(2) ? IBV_ACCESS_REMOTE_ATOMIC : 0) |
				  (r->op != BIND1 && rnd_below(2) ? IBV_ACCESS_ZERO_BASED : 0);
}

/* Everything that a request can have beside opcode, flags and buffers */
UNUSED static void req_init(struct req *r, unsigned op, unsigned flags)
{
	r->op = (uint8_t)op;
	r->flags = (uint8_t)flags;
	r->inl = 0;
	r->list = 0;
	r->av_last = 0;
	r->nsge = 0;
	r->rkey = (uint32_t)rnd();
	r->imm = (uint32_t)rnd();
	r->raddr = rnd();
	r->a = rnd();
	r->b = rnd();
	r->to = NULL;
	r->csum = rnd_below(2);
	r->hdr_len = 0;
	r->stream = 0;
	r->key = 0;
	if (has_peers() && !is_window(op))
		req_peer(r);
	if (is_window(op))
		req_window(r);
}

UNUSED static void req_inline(struct req *r, uint32_t len)
{
	r->sge[r->nsge].addr = (uintptr_t)data + rnd_below(DATA_BYTES - 1024);
	r->sge[r->nsge].length = len;
	r->sge[r->nsge].lkey = (uint32_t)rnd();
	r->nsge++;
	r->inl = 1;
}

UNUSED static void req_pointer(struct req *r, uint32_t len)
{
	r->sge[r->nsge].addr = rnd();
	r->sge[r->nsge].length = len;
	r->sge[r->nsge].lkey = (uint32_t)rnd();
	r->nsge++;
}

/* ---- libmlx5's way ---- */

/* What of raw packets alone goes into the flags */
UNUSED static uint32_t in_csum(const struct req *r, uint32_t flag)
{
	return K->type == IBV_QPT_RAW_PACKET && r->csum ? flag : 0;
}

UNUSED static int post_send(struct lib *l, const struct req *r, unsigned n, uint64_t wr_id)
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
				(r->flags & FENCE ? IBV_SEND_FENCE : 0) | (r->inl ? IBV_SEND_INLINE : 0) | in_csum(r, IBV_SEND_IP_CSUM);
		w->imm_data = r->imm; /* invalidate_rkey is in the same place */
		if (is_xrc())
			w->qp_type.xrc.remote_srqn = r->qpn;
		if (r->to) {
			w->wr.ud.ah = r->to;
			w->wr.ud.remote_qpn = r->qpn;
			w->wr.ud.remote_qkey = r->qkey;
		} else if (r->op == TSO) {
			w->tso.hdr = (void *)(uintptr_t)r->hdr;
			w->tso.hdr_sz = r->hdr_len;
			w->tso.mss = r->mss;
		} else if (is_atomic(r->op)) {
			w->wr.atomic.remote_addr = r->raddr;
			w->wr.atomic.rkey = r->rkey;
			w->wr.atomic.compare_add = r->a;
			w->wr.atomic.swap = r->b;
		} else if (is_window(r->op)) {
			w->bind_mw.mw = (struct ibv_mw *)(uintptr_t)&r->mw;
			w->bind_mw.rkey = r->rkey;
			w->bind_mw.bind_info = r->bind;
		} else {
			w->wr.rdma.remote_addr = r->raddr;
			w->wr.rdma.rkey = r->rkey;
		}
	}
	return ibv_post_send(l->qp, wr, &bad);
}

/* What a program puts here that has UMR and RAW among its operations */
static void (*lib_umr)(struct lib *l, const struct req *r);
static int (*in_umr)(struct inlay_sq *sq, const struct req *r, uint32_t flags);

static void set_peer(struct ibv_qp_ex *q, const struct req *r)
{
	if (is_xrc())
		ibv_wr_set_xrc_srqn(q, r->qpn);
	else if (!is_dci())
		ibv_wr_set_ud_addr(q, r->to, r->qpn, r->qkey);
	else if (r->stream)
		mlx5dv_wr_set_dc_addr_stream(mlx5dv_qp_ex_from_ibv_qp_ex(q), r->to, r->qpn, r->key, (uint16_t)r->stream);
	else
		mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(q), r->to, r->qpn, r->key);
}

UNUSED static int post_wr(struct lib *l, const struct req *r, unsigned n, uint64_t wr_id)
{
	struct ibv_data_buf buf[MAX_SGE + 4];
	struct ibv_qp_ex *q = l->qpx;
	unsigned i, k;

	ibv_wr_start(q);
	for (i = 0; i < n; i++, r++) {
		wr_id += req_psvs(r);
		q->wr_id = wr_id + i;
		q->wr_flags = (r->flags & SIG ? IBV_SEND_SIGNALED : 0) | (r->flags & SOL ? IBV_SEND_SOLICITED : 0) |
			      (r->flags & FENCE ? IBV_SEND_FENCE : 0) | in_csum(r, IBV_SEND_IP_CSUM);
		switch (r->op) {
		case SEND: ibv_wr_send(q); break;
		case SEND_IMM: ibv_wr_send_imm(q, r->imm); break;
		case SEND_INV: ibv_wr_send_inv(q, r->imm); break;
		case WRITE: ibv_wr_rdma_write(q, r->rkey, r->raddr); break;
		case WRITE_IMM: ibv_wr_rdma_write_imm(q, r->rkey, r->raddr, r->imm); break;
		case READ: ibv_wr_rdma_read(q, r->rkey, r->raddr); break;
		case CAS: ibv_wr_atomic_cmp_swp(q, r->rkey, r->raddr, r->a, r->b); break;
		case FAA: ibv_wr_atomic_fetch_add(q, r->rkey, r->raddr, r->a); break;
		case TSO: ibv_wr_send_tso(q, (void *)(uintptr_t)r->hdr, r->hdr_len, r->mss); break;
		case INV: ibv_wr_local_inv(q, r->imm); continue;
		case UMR:
		case RAW: lib_umr(l, r); continue;
		case COPY:
			mlx5dv_wr_memcpy(mlx5dv_qp_ex_from_ibv_qp_ex(q), r->sge[0].lkey, r->sge[0].addr, r->sge[1].lkey, r->sge[1].addr,
					 r->sge[0].length);
			continue;
		default: ibv_wr_bind_mw(q, (struct ibv_mw *)(uintptr_t)&r->mw, r->rkey, &r->bind); continue;
		}
		if (has_peers() && !r->av_last)
			set_peer(q, r);
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
		if (has_peers() && r->av_last)
			set_peer(q, r);
	}
	return ibv_wr_complete(q);
}

/* A window of type 1 by itself: libmlx5 makes the new key, and writes it into the window */
UNUSED static int post_bind(struct lib *l, const struct req *r, uint64_t wr_id)
{
	struct ibv_mw_bind bind;
	struct ibv_mw mw = r->mw;
	int err;

	memset(&bind, 0, sizeof(bind));
	bind.wr_id = wr_id;
	bind.send_flags = (r->flags & SIG ? IBV_SEND_SIGNALED : 0) | (r->flags & SOL ? IBV_SEND_SOLICITED : 0) |
			  (r->flags & FENCE ? IBV_SEND_FENCE : 0);
	bind.bind_info = r->bind;
	err = ibv_bind_mw(l->qp, &mw, &bind);
	if (!err)
		assert_int_equal(mw.rkey, r->rkey);
	return err;
}

UNUSED static int post_lib(struct lib *l, unsigned api, const struct req *r, unsigned n, uint64_t wr_id)
{
	if (n == 1 && r->op == BIND1)
		return post_bind(l, r, wr_id);
	return api == WR || is_dci() ? post_wr(l, r, n, wr_id) : post_send(l, r, n, wr_id);
}

/* ---- inlay's ways ---- */

UNUSED static uint32_t in_flags(const struct req *r)
{
	return (r->flags & SIG ? INLAY_SIGNALED : 0) | (r->flags & SOL ? INLAY_SOLICITED : 0) |
	       (r->flags & FENCE ? (uint32_t)INLAY_FENCE_SMALL_AND_FENCE : T.fence) | (r->inl ? INLAY_INLINE : 0) |
	       (r->stream ? INLAY_STREAM(r->stream & 0xffff) : 0);
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

INLAY_ALWAYS int in_datagram(struct inlay_sq *sq, const struct req *r, uint8_t op, const struct ibv_sge *sge, uint32_t n, uint32_t flags)
{
	return op == SEND_IMM ? inlay_post_ud_send_imm(sq, &r->av, r->imm, sge, n, flags) : inlay_post_ud_send(sq, &r->av, sge, n, flags);
}

INLAY_ALWAYS int in_to(struct inlay_sq *sq, const struct req *r, uint8_t op, const struct ibv_sge *sge, uint32_t n, uint32_t flags)
{
	struct inlay_remote there = {r->raddr, r->rkey};

	switch (op) {
	case SEND: return inlay_post_to_send(sq, &r->av, sge, n, flags);
	case SEND_IMM: return inlay_post_to_send_imm(sq, &r->av, r->imm, sge, n, flags);
	case SEND_INV: return inlay_post_to_send_inv(sq, &r->av, r->imm, sge, n, flags);
	case WRITE: return inlay_post_to_write(sq, &r->av, &there, sge, n, flags);
	case WRITE_IMM: return inlay_post_to_write_imm(sq, &r->av, &there, r->imm, sge, n, flags);
	case READ: return inlay_post_to_read(sq, &r->av, &there, sge, n, flags);
	case CAS: return inlay_post_to_cmp_swap(sq, &r->av, &there, r->a, r->b, sge, flags);
	default: return inlay_post_to_fetch_add(sq, &r->av, &there, r->a, sge, flags);
	}
}

INLAY_ALWAYS int in_packet(struct inlay_sq *sq, const struct req *r, const struct ibv_sge *sge, uint32_t n, uint32_t flags)
{
	struct inlay_eth eth = inlay_eth_csum(in_csum(r, INLAY_CSUM_L3 | INLAY_CSUM_L4));

	if (r->op == TSO)
		return inlay_post_tso(sq, inlay_eth_mss(eth, r->mss), r->hdr, r->hdr_len, sge, n, flags);
	return inlay_post_packet(sq, eth, sge, n, flags);
}

UNUSED static __attribute__((noinline)) int in_plain(struct inlay_sq *sq, const struct req *r)
{
	if (r->op == UMR || r->op == RAW)
		return in_umr(sq, r, in_flags(r));
	if (K->type == IBV_QPT_RAW_PACKET)
		return in_packet(sq, r, r->sge, r->nsge, in_flags(r));
	if (r->op == INV)
		return inlay_post_local_inv(sq, r->imm, in_flags(r));
	if (r->op == COPY)
		return inlay_post_memcpy(sq, &r->sge[0], &r->sge[1], &scratch, in_flags(r));
	if (is_window(r->op))
		return inlay_post_bind_mw(sq, &r->mw, r->rkey, &r->bind, in_flags(r));
	if (is_dci() || is_xrc())
		return in_to(sq, r, r->op, r->sge, r->nsge, in_flags(r));
	if (r->to)
		return in_datagram(sq, r, r->op, r->sge, r->nsge, in_flags(r));
	return in_post(sq, r, r->op, r->sge, r->nsge, in_flags(r));
}

/* Call sites with constant arguments: a program that has some puts its own here */
static int (*in_const)(struct inlay_sq *sq, const struct req *r) = in_plain;

/* And those that post several at once */
static int (*in_batch)(struct inlay_sq *sq, const struct req *r, unsigned n);

/* An inline segment that is opened, its first bytes written in place and the others appended in pieces of any size */
static struct inlay_cursor in_open(struct inlay_cursor at, const struct req *r, uint32_t total)
{
	uint32_t head, done, n, i;
	uint8_t all[2048], *p;

	assert_true(total <= sizeof(all));
	for (i = 0, n = 0; i < r->nsge; n += r->sge[i++].length)
		memcpy(all + n, (const void *)(uintptr_t)r->sge[i].addr, r->sge[i].length);
	head = rnd_below(1 + (total < 12 ? total : 12));
	at = inlay_seg_inline_open(at, total, head, &p);
	memcpy(p, all, head);
	for (done = head; done < total; done += n) {
		n = rnd_below(4) ? 1 + rnd_below(total - done) : rnd_below(2);
		at = inlay_seg_inline_append(at, all + done, n);
	}
	return at;
}

/* A raw packet's; its header comes out of its first buffers */
UNUSED static int in_packet_cursor(struct inlay_sq *sq, const struct req *r)
{
	struct inlay_eth eth = inlay_eth_csum(in_csum(r, INLAY_CSUM_L3 | INLAY_CSUM_L4));
	uint32_t len = r->op == TSO ? r->hdr_len : inline_l2(), skip = r->op == TSO ? 0 : len, have = 0, total = 0, i;
	struct ibv_sge sge[MAX_SGE + 4];
	struct inlay_cursor at;
	uint8_t hdr[256];
	int err = inlay_sq_begin(sq, (req_ds(r) + 3) / 4, &at);

	if (err)
		return err;
	memcpy(hdr, r->hdr, r->op == TSO ? len : 0);
	for (i = 0; i < r->nsge; i++) {
		uint32_t n = r->sge[i].length < skip ? r->sge[i].length : skip;

		memcpy(hdr + have, (const void *)(uintptr_t)r->sge[i].addr, n);
		have += n;
		skip -= n;
		sge[i] = r->sge[i];
		sge[i].addr += n;
		sge[i].length -= n;
		total += sge[i].length;
	}
	at = inlay_seg_eth(at, r->op == TSO ? inlay_eth_mss(eth, r->mss) : eth, len ? hdr : NULL, len);
	at = r->inl ? inlay_seg_inlinev(at, sge, r->nsge, total) : inlay_seg_sges(at, sge, r->nsge);
	return inlay_sq_commit(sq, at, op_code[r->op], 0, in_flags(r), 0);
}

/* The WQE built by hand */
UNUSED static __attribute__((noinline)) int in_cursor(struct inlay_sq *sq, const struct req *r)
{
	struct inlay_cursor at;
	uint32_t i, total = 0, imm = 0;
	int err = inlay_sq_begin(sq, (req_ds(r) + 3) / 4, &at);

	if (err)
		return err;
	if (is_xrc())
		at = inlay_seg_av_compact(at, &r->av);
	else if (r->to)
		at = inlay_seg_av(at, &r->av);
	if (is_rdma(r->op))
		at = inlay_seg_raddr(at, r->raddr, r->rkey);
	if (is_atomic(r->op))
		at = inlay_seg_atomic(at, r->op == CAS ? r->b : r->a, r->op == CAS ? r->a : 0);
	if (r->inl && r->nsge == 1 && !r->list) {
		at = inlay_seg_inline(at, (const void *)(uintptr_t)r->sge[0].addr, r->sge[0].length);
	} else if (r->inl) {
		for (i = 0; i < r->nsge; i++)
			total += r->sge[i].length;
		if (r->list && total)
			at = in_open(at, r, total);
		else
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
		inlay_sq_commit(sq, at, op_code[r->op], 0, in_flags(r), imm);
	else
		inlay_sq_commit(sq, at, op_code[r->op], 0, in_flags(r), 0);
	return 0;
}

/* What goes into the control segment's last word */
static uint32_t in_imm(const struct req *r)
{
	return r->op == SEND_INV ? inlay_to_be32(r->imm) : r->op == SEND_IMM || r->op == WRITE_IMM ? r->imm : 0;
}

/* As a list of struct iovec: with a key for each, or for all when there is but one */
UNUSED static __attribute__((noinline)) int in_iov(struct inlay_sq *sq, const struct req *r)
{
	struct inlay_remote remote = {r->raddr, r->rkey};
	struct iovec iov[MAX_SGE + 4];
	uint32_t lkeys[MAX_SGE + 4], i;
	struct inlay_iov from = {iov, r->nsge, r->sge[0].lkey, r->nsge == 1 && r->list ? NULL : lkeys};

	for (i = 0; i < r->nsge; i++) {
		iov[i].iov_base = (void *)(uintptr_t)r->sge[i].addr;
		iov[i].iov_len = r->sge[i].length;
		lkeys[i] = r->sge[i].lkey;
	}
	return inlay_post_iov(sq, op_code[r->op], has_peers() ? &r->av : NULL, is_rdma(r->op) ? &remote : NULL, &from, in_imm(r),
			      in_flags(r));
}

UNUSED static __attribute__((noinline)) int in_template(struct inlay_sq *sq, const struct req *r)
{
	struct inlay_template t;

	memset(&t, 0, sizeof(t));
	must(inlay_template_init(&t, sq, op_code[r->op], r->rkey, r->sge[0].lkey));
	if (!is_rdma(r->op))
		return inlay_post_template_send(sq, &t, r->sge[0].addr, r->sge[0].length, in_imm(r), in_flags(r));
	return inlay_post_template(sq, &t, r->raddr, r->sge[0].addr, r->sge[0].length, in_imm(r), in_flags(r));
}

UNUSED static int post_inlay(struct inlay_sq *sq, unsigned way, const struct req *r)
{
	if (K->type == IBV_QPT_RAW_PACKET && way >= CURSOR)
		return in_packet_cursor(sq, r);
	if (r->op >= BIND1 || (way == CONST && T.fence))
		way = PLAIN;
	if (way == TEMPLATE && (has_peers() || is_atomic(r->op) || r->inl || r->nsge != 1 || !r->sge[0].length))
		way = IOV;
	if (way == IOV && is_atomic(r->op))
		way = PLAIN;
	if (way == IOV || way == TEMPLATE)
		return way == IOV ? in_iov(sq, r) : in_template(sq, r);
	return way == CURSOR ? in_cursor(sq, r) : way == CONST ? in_const(sq, r) : in_plain(sq, r);
}

/* ---- the trio ---- */

/* From RESET to RTS, connected to itself: that nothing is executed is the device's affair, not the state's */
UNUSED static void qp_up(struct ibv_qp *qp)
{
	struct ibv_qp_attr a;

	if (qp->qp_type == IBV_QPT_RC) {
		qp_init(qp, &usual);
		qp_connect(qp, qp->qp_num, &usual);
		return;
	}
	memset(&a, 0, sizeof(a));
	a.timeout = 14;
	a.max_rd_atomic = 8;
	if (is_dci()) {
		a.qp_state = IBV_QPS_INIT;
		a.port_num = 1;
		must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT));
		a.qp_state = IBV_QPS_RTR;
		a.path_mtu = IBV_MTU_1024;
		must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PATH_MTU));
		a.qp_state = IBV_QPS_RTS;
		must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				   IBV_QP_MAX_QP_RD_ATOMIC));
		return;
	}
	if (qp->qp_type == IBV_QPT_RAW_PACKET) {
		raw_up(qp);
		return;
	}
	a.qp_state = IBV_QPS_INIT;
	a.port_num = 1;
	a.qp_access_flags = ALL_ACCESS & ~(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	a.qkey = 0x11111111;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			   (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_1024;
	a.dest_qp_num = qp->qp_num;
	a.ah_attr.port_num = 1;
	a.ah_attr.dlid = dev.port.lid;
	if (dev.port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		a.ah_attr.is_global = 1;
		a.ah_attr.grh.dgid = dev.gid;
		a.ah_attr.grh.sgid_index = (uint8_t)dev.gid_index;
		a.ah_attr.grh.hop_limit = 64;
	}
	must(ibv_modify_qp(qp, &a, qp->qp_type == IBV_QPT_UD ? IBV_QP_STATE :
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN));
	a.qp_state = IBV_QPS_RTS;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN |
			   (is_xrc() ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0)));
}

static struct ibv_srq *srq_of_qps; /* of the QPs made while it is there */

UNUSED static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq, const struct ibv_qp_cap *cap, uint64_t ops,
			      struct ibv_qp_cap *granted)
{
	struct ibv_qp_init_attr_ex attr;
	struct mlx5dv_qp_init_attr dv;
	struct ibv_qp *qp;

	memset(&attr, 0, sizeof(attr));
	memset(&dv, 0, sizeof(dv));
	attr.qp_type = K->type;
	attr.send_cq = cq;
	attr.recv_cq = is_xrc() ? NULL : cq;
	attr.srq = srq_of_qps;
	attr.cap = *cap;
	attr.pd = pd;
	attr.comp_mask = IBV_QP_INIT_ATTR_PD;
	if (K->type == IBV_QPT_RAW_PACKET) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
		attr.max_tso_header = TSO_HEADER;
	}
	if (ops) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = ops;
	}
	if (is_dci()) {
		dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
		dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
		dv.dc_init_attr.dci_streams.log_num_concurent = 3;
		dv.dc_init_attr.dci_streams.log_num_errored = 2;
	} else if (K->dv) {
		dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
		dv.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
		dv.send_ops_flags = K->dv;
	}
	qp = dv.comp_mask ? mlx5dv_create_qp(dev.ctx, &attr, &dv) : ibv_create_qp_ex(dev.ctx, &attr);
	assert_non_null(qp);
	if (granted)
		*granted = attr.cap;
	qp_up(qp);
	return qp;
}

UNUSED static struct mlx5dv_cq view_cq(struct ibv_cq *cq)
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
 * both; a datagram, which nobody receives, does so too, and so does the error of a request with a destination, which nobody answers.
 */
UNUSED static void probe_post(struct lib *l)
{
	struct req r;

	req_init(&r, has_op(WRITE) ? WRITE : SEND, SIG);
	if (K->type == IBV_QPT_RAW_PACKET)
		req_inline(&r, 26); /* a packet is never empty */
	must(post_lib(l, POST_SEND, &r, 1, 77));
}

UNUSED static void probe_end(struct lib *l)
{
	struct ibv_cq *cq = l->qp->send_cq;
	struct mlx5dv_cq dv = view_cq(cq);
	uint32_t at = be32toh(dv.dbrec[0]) & (dv.cqe_cnt - 1);
	struct mlx5_cqe64 *cqe = (struct mlx5_cqe64 *)((uint8_t *)dv.buf + (size_t)at * dv.cqe_size + (dv.cqe_size - 64));
	struct ibv_wc wc;

	softdev_run();
	assert_int_equal(cqe->op_own >> 4, is_dci() || is_xrc() ? MLX5_CQE_REQ_ERR : MLX5_CQE_REQ);
	l->uidx = be32toh(cqe->srqn_uidx) & 0xffffff;
	assert_int_equal(ibv_poll_cq(cq, 1, &wc), 1);
	assert_int_equal(wc.status, is_dci() || is_xrc() ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 77);
	assert_int_equal(wc.qp_num, l->qp->qp_num);
	/* Back to the beginning of the ring: RESET zeroes libmlx5's counters, the device's and the record */
	qp_to(l->qp, IBV_QPS_RESET);
	qp_up(l->qp);
}

UNUSED static void lib_probe(struct lib *l, uint32_t size)
{
	uint32_t half;

	memset(l->reg, 0, 2 * size);
	probe_post(l);
	for (half = 0; half < 2 && all_bytes(l->reg + half * size, size, 0); half++)
		;
	assert_true(half < 2 && all_bytes(l->reg + !half * size, size, 0));
	l->half = !half;
	probe_end(l);
}

UNUSED static void lib_open(struct lib *l, struct ibv_cq *cq, const struct ibv_qp_cap *cap, uint64_t ops, struct ibv_qp_cap *granted)
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

UNUSED static void lib_close(struct lib *l)
{
	must(ibv_destroy_qp(l->qp));
	must(ibv_dealloc_pd(l->pd));
	must(ibv_dealloc_td(l->td));
}

UNUSED static void trio_open(struct trio *t, const struct ibv_qp_cap *cap, uint64_t ops, uint32_t mode)
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
	must(inlay_uar_create(&t->uar, dev.pd, INLAY_UAR_SERIAL, NULL));
	t->uar.mode = mode;
	t->qp = make_qp(t->uar.pd, t->cq, cap, ops, &cap_c);
	assert_memory_equal(&cap_c, &t->cap, sizeof(cap_c));
	must(inlay_sq_from_qp(&t->sq, t->qp, &t->uar, NULL, NULL));
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
		must(inlay_rq_from_qp(&t->in_rq, t->qp, NULL, NULL));
	dv = view_qp(t->a.qp);
	assert_int_equal(dv.sq.wqe_cnt, t->bbs);
	assert_int_equal(dv.bf.size, t->size);
	assert_true(t->a.reg != t->reg && t->a.reg != t->b.reg && t->b.reg != t->reg);
	assert_true(t->size && t->bbs >= 1);
}

UNUSED static void trio_close(struct trio *t)
{
	inlay_sq_fini(&t->sq);
	must(ibv_destroy_qp(t->qp));
	must(inlay_uar_destroy(&t->uar, NULL));
	lib_close(&t->a);
	lib_close(&t->b);
	must(ibv_destroy_cq(t->cq));
}

UNUSED static void cqe_for(struct mlx5_cqe64 *cqe, uint8_t opcode, uint8_t sop, uint32_t qpn, uint32_t uidx, uint16_t counter)
{
	memset(cqe, 0, sizeof(*cqe));
	cqe->srqn_uidx = htobe32(uidx);
	cqe->sop_drop_qpn = htobe32((uint32_t)sop << 24 | qpn);
	cqe->wqe_counter = htobe16(counter);
	cqe->op_own = (uint8_t)(opcode << 4);
}

/* Completes the k oldest WQEs with one CQE: of each libmlx5 twin through the CQ, of inlay's by itself */
UNUSED static void complete(struct trio *t, unsigned k)
{
	struct mlx5_cqe64 cqe;
	struct ibv_wc wc[2];
	uint32_t at;

	if (!k)
		return;
	/* A request of several WQEs is completed whole */
	while (t->more[(t->tail + k - 1) & 0xffff])
		k++;
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
	assert_true(0 < inlay_sq_release(&t->sq, &cqe));
	t->tail_pos = t->tail == t->head ? t->pos : t->start[t->tail & 0xffff];
	assert_int_equal(inlay_sq_pending(&t->sq), t->pos - t->tail_pos);
	assert_int_equal(inlay_sq_room(&t->sq), t->bbs - (t->pos - t->tail_pos));
}

UNUSED static void complete_all(struct trio *t)
{
	complete(t, t->head - t->tail);
}
/* ---- bytes ---- */

UNUSED static void ring_fill(uint8_t *ring, uint32_t bbs, uint32_t from, uint32_t n, uint8_t byte)
{
	uint32_t at = from & (bbs - 1), first = n < bbs - at ? n : bbs - at;

	memset(ring + at * 64, byte, first * 64);
	memset(ring, byte, (n - first) * 64);
}

/* inlay stores the half of the record that counts, and keeps the other at the 0 that it found there */
UNUSED static uint32_t record_salt(const struct trio *t)
{
	return htobe32(t->salt * 0x0101u);
}

/* Before a batch: what is free of the rings, the registers, the records */
UNUSED static void fill_free(struct trio *t)
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
UNUSED static int swap_qpn(uint8_t *ctrl, uint32_t from, uint32_t to, uint32_t index)
{
	uint32_t w[2];

	memcpy(w, ctrl, 8);
	if (be32toh(w[1]) >> 8 != from || (be32toh(w[0]) >> 8 & 0xffff) != (index & 0xffff))
		return -1;
	w[1] = htobe32(to << 8 | (be32toh(w[1]) & 0xff));
	memcpy(ctrl + 4, &w[1], 4);
	return 0;
}

/* The QPN stands once more in the WQE that binds a window of type 2: the same. `at`: the word behind a wrap or in the register */
UNUSED static int swap_window(const struct req *r, uint8_t *at, uint32_t from, uint32_t to)
{
	uint32_t w;

	if (r->op != BIND2 || !r->bind.length)
		return 0;
	memcpy(&w, at, 4);
	if (be32toh(w) >> 8 != from)
		return -1;
	w = htobe32(to << 8 | (be32toh(w) & 0xff));
	memcpy(at, &w, 4);
	return 0;
}

/* First byte at which c differs from what libmlx5 wrote; len when none. *known counts the bytes that libmlx5 wrote */
UNUSED static uint32_t compare(const uint8_t *a, const uint8_t *b, const uint8_t *c, uint32_t len, uint32_t *known)
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
UNUSED static uint32_t touched(const struct trio *t, uint32_t pos, uint32_t from, uint32_t to)
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

/* A copy's 64 bytes besides its data are libmlx5's own, the same in every WQE of a QP: c's are put in their place. `at`: its second unit */
UNUSED static int swap_scratch(struct lib *l, const struct req *r, uint8_t *at)
{
	static uint8_t none[12];
	uint32_t lkey = htobe32(scratch.lkey);
	uint64_t addr = htobe64(scratch.addr);

	if (r->op != COPY)
		return 0;
	if (!memcmp(l->scratch, none, 12))
		memcpy(l->scratch, at + 4, 12);
	if (memcmp(l->scratch, at + 4, 12))
		return -1;
	memcpy(at + 4, &lkey, 4);
	memcpy(at + 8, &addr, 8);
	return 0;
}

UNUSED static void report(const struct trio *t, const struct req *r, unsigned n, uint32_t begin, const char *what, uint32_t at,
		   unsigned lib, unsigned in)
{
	uint32_t pos = begin, ds, where;
	bool found = false;
	unsigned i;

	fprintf(report_to, "%s, byte %u (0x%x): libmlx5 0x%02x, inlay 0x%02x; ", what, at, at, lib, in);
	fprintf(report_to, "ring of %u WQEBBs, batch of %u at %u (slot %u)\n", t->bbs, n, begin, begin & (t->bbs - 1));
	for (i = 0; i < n; i++, pos += (ds + 3) / 4 + req_psvs(&r[i - 1])) {
		ds = req_ds(&r[i]);
		where = (at - (pos & (t->bbs - 1)) * 64) & (t->bbs * 64 - 1);
		if (!strcmp(what, "ring") && n > 1 && where >= ((ds + 3) / 4 + req_psvs(&r[i])) * 64)
			continue;
		if (!strcmp(what, "ring"))
			fprintf(report_to, "WQE %u of the batch, +%u byte %u: ", i, where & ~15u, where & 15);
		found = true;
		req_print(report_to, &r[i]);
		fprintf(report_to, " libmlx5\n");
		inlay_wqe_print(report_to, t->a.ring, t->bbs * 64, pos, K->type);
		fprintf(report_to, " inlay\n");
		inlay_wqe_print(report_to, t->ring, t->bbs * 64, pos, K->type);
	}
	if (!found)
		fprintf(report_to, "in no WQE of the batch: written over one that was there before\n");
}

/*
 * Posts a batch to all three and rings. The rings hold a's and b's bytes with c's QPN afterwards. Fails the test when libmlx5
 * does what this test does not know it to do.
 */
UNUSED static void post_batch(struct trio *t, unsigned api, unsigned way, bool doorbell, const struct req *r, unsigned n)
{
	uint32_t pos = t->pos, ds, at;
	struct inlay_sq burst;
	unsigned i;

	must(post_lib(&t->a, api, r, n, t->head));
	must(post_lib(&t->b, api, r, n, t->head));
	/* Every other batch is a burst: posted to a copy of the queue */
	burst = t->sq;
	if (in_batch)
		must(in_batch(t->head & 1 ? &burst : &t->sq, r, n));
	for (i = 0; i < n && !in_batch; i++) {
		int err = post_inlay(t->head & 1 ? &burst : &t->sq, way, &r[i]);

		if (err) {
			req_print(report_to, &r[i]);
			fail_msg("inlay answers %d", err);
		}
		t->fence = is_window(r[i].op) || r[i].op == UMR ? INLAY_FENCE_INITIATOR_SMALL : 0;
	}
	if (t->head & 1)
		inlay_sq_join(&t->sq, &burst);
	if (doorbell)
		inlay_sq_ring_doorbell(&t->sq);
	else
		inlay_sq_ring(&t->sq);
	for (i = 0; i < n; i++) {
		uint32_t psvs = req_psvs(&r[i]);

		t->more[t->head & 0xffff] = psvs;
		t->start[t->head++ & 0xffff] = pos;
		if (swap_qpn(t->a.ring + (pos & (t->bbs - 1)) * 64, t->a.qp->qp_num, t->qp->qp_num, pos) ||
		    swap_qpn(t->b.ring + (pos & (t->bbs - 1)) * 64, t->b.qp->qp_num, t->qp->qp_num, pos)) {
			req_print(report_to, &r[i]);
			fail_msg("libmlx5 is not at WQEBB %u", pos);
		}
		at = (pos * 64 + 68) & (t->bbs * 64 - 1);
		if (swap_window(&r[i], t->a.ring + at, t->a.qp->qp_num, t->qp->qp_num) ||
		    swap_window(&r[i], t->b.ring + at, t->b.qp->qp_num, t->qp->qp_num))
			fail_msg("libmlx5 binds to another QP");
		if (swap_scratch(&t->a, &r[i], t->a.ring + (pos & (t->bbs - 1)) * 64 + 16) ||
		    swap_scratch(&t->b, &r[i], t->b.ring + (pos & (t->bbs - 1)) * 64 + 16))
			fail_msg("libmlx5's copies name another place");
		ds = req_ds(&r[i]);
		pos += (ds + 3) / 4;
		for (; psvs; psvs--, pos++) {
			t->more[t->head & 0xffff] = psvs > 1;
			t->start[t->head++ & 0xffff] = pos;
			if (swap_qpn(t->a.ring + (pos & (t->bbs - 1)) * 64, t->a.qp->qp_num, t->qp->qp_num, pos) ||
			    swap_qpn(t->b.ring + (pos & (t->bbs - 1)) * 64, t->b.qp->qp_num, t->qp->qp_num, pos))
				fail_msg("libmlx5 sets no PSV at WQEBB %u", pos);
		}
	}
	i = t->start[(t->head - 1) & 0xffff];
	if (swap_qpn(t->a.reg + t->a.half * t->size, t->a.qp->qp_num, t->qp->qp_num, i) ||
	    swap_qpn(t->b.reg + t->b.half * t->size, t->b.qp->qp_num, t->qp->qp_num, i))
		fail_msg("libmlx5 did not ring in the half expected, or not for WQEBB %u", i);
	/* Where the WQE was copied, and not only its first 8 bytes */
	if (n == 1 && (swap_window(r, t->a.reg + t->a.half * t->size + 68, t->a.qp->qp_num, t->qp->qp_num) ||
		       swap_window(r, t->b.reg + t->b.half * t->size + 68, t->b.qp->qp_num, t->qp->qp_num)))
		fail_msg("libmlx5 copied something else to its register");
	if (n == 1 && (swap_scratch(&t->a, r, t->a.reg + t->a.half * t->size + 16) ||
		       swap_scratch(&t->b, r, t->b.reg + t->b.half * t->size + 16)))
		fail_msg("libmlx5 copied another copy to its register");
	t->pos = pos;
	t->a.half ^= 1;
	t->b.half ^= 1;
	t->half ^= 1;
}

/* Compares after post_batch. Returns the number of things that are wrong: 0 or 1 */
UNUSED static int check_batch(struct trio *t, const struct req *r, unsigned n, uint32_t begin)
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
	for (i = 0; i < n; i++, pos += (ds + 3) / 4 + req_psvs(&r[i - 1])) {
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
UNUSED static void run(struct trio *t, unsigned api, unsigned way, bool doorbell, const struct req *r, unsigned n)
{
	uint32_t begin = t->pos;

	fill_free(t);
	post_batch(t, api, way, doorbell, r, n);
	if (check_batch(t, r, n, begin))
		fail();
}

/* Goes on to the given slot of the ring, over inline sends that nobody compares; all are completed afterwards */
UNUSED static void go_to(struct trio *t, uint32_t slot)
{
	uint32_t max = (t->cap.max_inline_data + K->fixed + 4) / 64, need, k;
	struct req r;

	if (max > WQE_MAX - 1)
		max = WQE_MAX - 1;
	complete_all(t);
	memset(&r, 0, offsetof(struct req, sge));
	r.op = SEND;
	r.inl = 1;
	r.nsge = 1;
	r.sge[0].addr = (uintptr_t)data;
	if (has_peers())
		req_peer(&r);
	while ((need = (slot - t->pos) & (t->bbs - 1)) != 0) {
		k = need < max ? need : max ? max : 1;
		r.nsge = k > 1 || K->type == IBV_QPT_RAW_PACKET;
		r.sge[0].length = r.nsge ? k * 64 - K->fixed - 4 : 0;
		/* post_batch looks for the QPN where libmlx5 rang: nothing to clear before */
		post_batch(t, POST_SEND, PLAIN, false, &r, 1);
		if (t->head - t->tail == t->cap.max_send_wr)
			complete_all(t);
	}
	complete_all(t);
}

/* ---- receives ---- */

UNUSED static int rx_post_lib(struct lib *l, const struct req *r, unsigned n, uint32_t wr_id)
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
	return l->wq ? ibv_post_wq_recv(l->wq, wr, &bad) : ibv_post_recv(l->qp, wr, &bad);
}

/* ---- runs ---- */

/* Whether SGE i of n is empty in a pattern; the last is none, all but one, all */
UNUSED static bool is_empty(unsigned pattern, uint32_t i, uint32_t n)
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

UNUSED static uint32_t some_length(void)
{
	switch (rnd_below(4)) {
	case 0: return 1;
	case 1: return 0x7fffffff;
	case 2: return 1 + rnd_below(4096);
	default: return 1 + rnd_below(0x7fffffff);
	}
}

UNUSED static uint64_t env_number(const char *name, uint64_t otherwise)
{
	const char *env = getenv(name);

	return env && *env ? strtoull(env, NULL, 0) : otherwise;
}

UNUSED static void counted(const char *what)
{
	print_message("# %s: %llu comparisons of %llu requests, %llu bytes\n", what, (unsigned long long)cases,
		      (unsigned long long)requests, (unsigned long long)compared);
	cases = requests = compared = 0;
}

/* ---- the group ---- */

/* Address handles of every kind that the link has. The first leads back here */
UNUSED static void peers_open(void)
{
	bool eth = dev.port.link_layer == IBV_LINK_LAYER_ETHERNET;
	struct ibv_ah_attr a;
	unsigned i, k;

	for (i = 0; i < MAX_PEERS; i++) {
		memset(&a, 0, sizeof(a));
		a.port_num = 1;
		a.sl = (uint8_t)rnd_below(16);
		a.static_rate = (uint8_t)rnd_below(IBV_RATE_300_GBPS + 1);
		a.dlid = (uint16_t)rnd();
		a.src_path_bits = (uint8_t)rnd_below(128);
		a.is_global = eth || i % 2;
		if (a.is_global) {
			a.grh.sgid_index = eth ? (uint8_t)rnd_below(4) : 0;
			a.grh.traffic_class = (uint8_t)rnd();
			a.grh.hop_limit = (uint8_t)rnd();
			a.grh.flow_label = rnd_below(4) ? rnd_below(1 << 20) : 0;
			a.grh.dgid = dev.gid;
			/* Link-local ones, whose hardware address is in them, and groups; where nothing is resolved, anything */
			for (k = i % 8 == 1 || !i ? 16 : 8; k < 16; k++)
				a.grh.dgid.raw[k] = (uint8_t)rnd();
			if (i % 8 == 5)
				a.grh.dgid.raw[0] = 0xff;
			if (!eth && i % 8 == 3)
				a.grh.dgid.raw[k = rnd_below(8)] = (uint8_t)rnd();
		}
		peers[i] = ibv_create_ah(dev.pd, &a);
		assert_non_null(peers[i]);
	}
}

UNUSED static int open_group(void **state)
{
	unsigned i;

	if (!softdev_present())
		return 0;
	if (dev_open(state))
		return -1;
	fill(data, sizeof(data), 4711);
	for (i = 0; i < ARRAY(mrs); i++) {
		mrs[i] = ibv_reg_mr(dev.pd, data, sizeof(data), ALL_ACCESS | IBV_ACCESS_MW_BIND);
		if (!mrs[i])
			return -1;
	}
	if (K->type == IBV_QPT_UD || is_dci())
		peers_open();
	return 0;
}

UNUSED static int close_group(void **state)
{
	unsigned i;

	if (!softdev_present())
		return 0;
	for (i = 0; i < MAX_PEERS; i++) {
		if (peers[i] && ibv_destroy_ah(peers[i]))
			return -1;
		peers[i] = NULL;
	}
	for (i = 0; i < ARRAY(mrs); i++)
		if (ibv_dereg_mr(mrs[i]))
			return -1;
	return dev_close(state);
}

/* What each main begins with */
UNUSED static void about(const struct kind *kind)
{
	/* libmlx5 prints each error CQE that it meets */
	setenv("MLX5_DEBUG_FILE", "/dev/null", 0);
	report_to = stderr;
	K = kind;
}

#endif
