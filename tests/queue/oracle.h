/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oracle.h: requests, libmlx5's and inlay's ways to post them, and the comparison of what the two write.
 *
 * The twins are queue pairs created alike in one context and kept in lockstep, at the same place of rings of the same size:
 *
 *   a    libmlx5   free ring, register and record filled with 00
 *   b    libmlx5   the same filled with ff: a byte that differs between a and b is one that libmlx5 left alone
 *   c    inlay     filled with a third value
 *
 * Where a and b agree, c must agree: the whole ring, both halves of the register, the doorbell record. Only the QPN differs between twins;
 * it is checked, and then replaced by c's. inlay must also leave alone every byte of the ring outside the units of its WQEs.
 *
 * The device is stepped and executes nothing. Completions that give libmlx5 its credit back are injected.
 */
#ifndef TESTS_QUEUE_ORACLE_H
#define TESTS_QUEUE_ORACLE_H

#include "common.h"
#include <endian.h>

#define MAX_SGE 30u             /* the device's */
#define MAX_ENTRIES (MAX_SGE + 4u)
#define MAX_BATCH 48u
#define MAX_PEERS 64u
#define WQE_MAX 15u             /* WQEBBs of the longest */
#define DATA_BYTES 8192u
#define TSO_HEADER 128u         /* the longest of raw packet QPs */

enum op { SEND, SEND_IMM, SEND_INV, WRITE, WRITE_IMM, READ, CAS, FAA, BIND1, BIND2, INV, UMR, RAW, COPY, TSO, OPS };
enum { SIG = 1, SOL = 2, FENCE = 4, FLAG_SETS = 8 };
enum { POST_SEND, WR, APIS };
enum { PLAIN, CONST, IOV, WAYS };
enum family { POST, DATAGRAM, TO, PACKET };     /* what inlay is told: nothing more, a destination of 48 bytes or of any, packets */

static const struct { const char *name; uint8_t code; enum ibv_wr_opcode verb; } ops[OPS] = {
	{"SEND", MLX5_OPCODE_SEND, IBV_WR_SEND},
	{"SEND_IMM", MLX5_OPCODE_SEND_IMM, IBV_WR_SEND_WITH_IMM},
	{"SEND_INV", MLX5_OPCODE_SEND_INVAL, IBV_WR_SEND_WITH_INV},
	{"WRITE", MLX5_OPCODE_RDMA_WRITE, IBV_WR_RDMA_WRITE},
	{"WRITE_IMM", MLX5_OPCODE_RDMA_WRITE_IMM, IBV_WR_RDMA_WRITE_WITH_IMM},
	{"READ", MLX5_OPCODE_RDMA_READ, IBV_WR_RDMA_READ},
	{"CAS", MLX5_OPCODE_ATOMIC_CS, IBV_WR_ATOMIC_CMP_AND_SWP},
	{"FAA", MLX5_OPCODE_ATOMIC_FA, IBV_WR_ATOMIC_FETCH_AND_ADD},
	{"BIND1", MLX5_OPCODE_UMR, IBV_WR_BIND_MW}, {"BIND2", MLX5_OPCODE_UMR, IBV_WR_BIND_MW},
	{"INV", MLX5_OPCODE_UMR, IBV_WR_LOCAL_INV}, {"UMR", MLX5_OPCODE_UMR, IBV_WR_SEND}, {"RAW", 0, IBV_WR_SEND},
	{"COPY", MLX5_OPCODE_MMO, IBV_WR_SEND}, {"TSO", MLX5_OPCODE_TSO, IBV_WR_TSO},
};

#define SENDS (1u << SEND | 1u << SEND_IMM)
#define WRITES (1u << WRITE | 1u << WRITE_IMM)
#define RC_OPS (SENDS | 1u << SEND_INV | WRITES | 1u << READ | 1u << CAS | 1u << FAA)
#define WINDOWS (1u << BIND1 | 1u << BIND2 | 1u << INV)

struct kind {
	const char *name;
	const char *set, *to;   /* the device's setting */
	enum ibv_qp_type type;
	enum family family;
	uint32_t tests;         /* which: oracle.c */
	uint32_t ops;           /* 1 << op, of those that it posts */
	uint32_t table;         /* of those in the table of all requests */
	uint64_t lean;          /* the ibv_wr_* interface with the least room for segments in front of the payload */
	uint64_t full;          /* and with all operations; a QP without that interface has room for these too */
	uint32_t fixed;         /* bytes of a send in front of its payload */
	uint32_t max_inline;    /* the longest that fits the device's longest WQE with libmlx5's overhead for lean, and for full */
	uint32_t max_inline_full;
	uint64_t dv;            /* MLX5DV_QP_EX_*: libmlx5's own operations, without scatter to CQE */
};

enum { NO_LAYOUT, LIST, INTERLEAVED, LAYOUTS };             /* of a UMR's request */
enum { KEY_PLAIN, KEY_OFF, KEY_KEPT, KEY_SIGNED, SIGNS };   /* the key has none; has room for one, has one, gets one */

/* A request, in a form of neither side */
struct req {
	uint8_t op, flags, inl;
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
		struct mlx5dv_mr_interleaved part[MAX_ENTRIES];
		struct mlx5dv_sig_t10dif dif[2];
		struct mlx5dv_sig_crc crc[2];
		struct mlx5dv_sig_block_domain domain[2]; /* memory, wire */
		struct mlx5dv_sig_block_attr attr;
	} umr;
	uint8_t csum;           /* raw packets: IBV_SEND_IP_CSUM */
	uint8_t hdr[256];       /* TSO */
	uint16_t hdr_len, mss;
	struct ibv_sge sge[MAX_ENTRIES];
};

/* A twin of libmlx5's */
struct lib {
	struct ibv_qp *qp;
	struct ibv_qp_ex *qpx;  /* NULL: created without the ibv_wr_* interface */
	struct ibv_td *td;
	struct ibv_pd *pd;
	struct ibv_wq *wq;      /* in the place of a QP */
	uint8_t *ring, *reg;
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
	uint8_t *ring, *reg;
	uint32_t *dbrec, half;
	struct ibv_qp_cap cap;  /* as granted */
	uint32_t bbs;           /* WQEBBs in the ring */
	uint32_t size;          /* bytes of half a register */
	uint32_t pos;           /* WQEBBs posted, never masked */
	uint32_t tail_pos;      /* where the oldest outstanding WQE begins */
	uint32_t head, tail;    /* WQEs posted, completed */
	uint64_t wr_id;         /* of the next WQE to complete */
	uint32_t fence;         /* what libmlx5 puts into the next WQE by itself, after a change of a key */
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

#define is_window(op) ((op) >= BIND1 && (op) <= INV)
#define is_rdma(op) ((op) >= WRITE && (op) <= FAA)
#define is_atomic(op) ((op) == CAS || (op) == FAA)
#define has_op(op) (K->ops >> (op) & 1)
#define has_inline(op) ((op) <= WRITE_IMM || (op) == TSO)
#define is_xrc() (K->type == IBV_QPT_XRC_SEND)
#define is_dci() (K->type == IBV_QPT_DRIVER)
#define has_peers() (K->family == DATAGRAM || K->family == TO)

/* Bytes of each packet that the device wants inline */
static uint32_t inline_l2(void)
{
	return K->set && !strcmp(K->to, "l2") ? 18 : 0;
}

/* Of a raw packet: its header is in the Ethernet segment, from two bytes before its end on */
static uint32_t raw_ds(const struct req *r)
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
static uint32_t req_ds(const struct req *r)
{
	uint32_t ds = 1 + is_rdma(r->op) + is_atomic(r->op) + (r->to ? 3 : is_xrc()), i;
	uint64_t total = 0;

	if (K->family == PACKET)
		return raw_ds(r);
	if (is_window(r->op))
		return r->op != INV && r->bind.length ? 12 : 8;
	if (r->op == RAW)
		return r->nsge;
	if (r->op == UMR)
		return 8 + (r->umr.layout ? (r->nsge + (r->umr.layout == INTERLEAVED) + 3) / 4 * 4 : 0) +
		       (r->umr.sig == KEY_SIGNED ? 4 : 0);
	if (r->op == COPY)
		return 4;
	for (i = 0; i < r->nsge; i++) {
		total += r->sge[i].length;
		ds += !r->inl && r->sge[i].length;
	}
	return ds + (r->inl && total ? (uint32_t)((4 + total + 15) / 16) : 0);
}

/* WQEs of a request: a UMR that gives a key signatures has one more for each PSV, of one WQEBB */
static uint32_t req_psvs(const struct req *r)
{
	if (r->op != UMR || !(r->umr.sig == KEY_SIGNED || (r->umr.sig == KEY_KEPT && r->umr.seen)))
		return 0;
	return !!r->umr.attr.mem + !!r->umr.attr.wire;
}

/* All of them, in WQEBBs */
static uint32_t req_bbs(const struct req *r)
{
	return (req_ds(r) + 3) / 4 + req_psvs(r);
}

/* ---- the generator ---- */

/* inlay's form of where a request goes, by each of its two ways */
static void req_address(struct req *r, bool parts)
{
	struct mlx5dv_ah dv;

	if (is_xrc()) {
		inlay_av_init_xrc(&r->av, r->qpn);
		return;
	}
	if (parts) {
		view(AH, ah, r->to, &dv);
		inlay_av_init(&r->av, dv.av, r->qpn, r->qkey);
	} else {
		must(inlay_av_from_ah(&r->av, r->to, r->qpn, r->qkey));
	}
	if (is_dci())
		inlay_av_to_dct(&r->av, r->qpn, r->key);
}

/* One of the address handles; numbers and keys may be any, and 0xffffff is a group */
static void req_peer(struct req *r)
{
	r->qpn = rnd_below(5) ? rnd_below(1 << 24) : 0xffffff;
	r->to = is_xrc() ? NULL : peers[rnd_below(MAX_PEERS)];
	r->qkey = (uint32_t)rnd();
	if (is_dci()) {
		r->key = rnd();
		r->stream = rnd_below(2) ? 1 << 16 | rnd_below(1 << 16) : 0;
	}
	req_address(r, rnd_below(2));
}

/* Everything that a request can have beside opcode, flags and buffers */
static void req_init(struct req *r, unsigned op, unsigned flags)
{
	memset(r, 0, offsetof(struct req, umr));
	r->op = (uint8_t)op;
	r->flags = (uint8_t)flags;
	r->list = (uint8_t)rnd_below(2);
	r->av_last = (uint8_t)rnd_below(2);
	r->rkey = (uint32_t)rnd();
	r->imm = (uint32_t)rnd();
	r->raddr = rnd();
	r->a = rnd();
	r->b = rnd();
	r->csum = rnd_below(2);
	r->hdr_len = 0;
	if (has_peers() && !is_window(op))
		req_peer(r);
}

static void req_inline(struct req *r, uint32_t len)
{
	struct ibv_sge *sge = &r->sge[r->nsge++];

	sge->addr = (uintptr_t)data + rnd_below(DATA_BYTES - 1024);
	sge->length = len;
	sge->lkey = (uint32_t)rnd();
	r->inl = 1;
}

static void req_pointer(struct req *r, uint32_t len)
{
	struct ibv_sge *sge = &r->sge[r->nsge++];

	sge->addr = rnd();
	sge->length = len;
	sge->lkey = (uint32_t)rnd();
}

/* A raw packet's buffer. Its first bytes may be read */
static void req_readable(struct req *r, uint32_t len)
{
	req_inline(r, len);
	r->inl = 0;
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

#define PATTERNS 9u

/* Whether SGE i of n is empty in a pattern; the last is all */
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

/* Cuts inline payload into at most so many pieces */
static void req_cut(struct req *r, uint32_t len, unsigned pattern, uint32_t most)
{
	static const uint8_t pieces[PATTERNS] = {1, 2, 2, 2, 3, 2, MAX_SGE, 7, 7};
	uint32_t n = pattern == 1 && !len && K->family != PACKET ? 0 : pieces[pattern] < most ? pieces[pattern] : most, k, piece;

	r->inl = 1;
	for (k = 0; k < n; k++, len -= piece) {
		switch (k + 1 == n ? 0 : pattern) {
		case 1: piece = len / 2; break;
		case 2: piece = 0; break;
		case 4: piece = k ? 0 : len / 3; break;
		case 5: piece = len < 12 ? len : 12; break; /* what the first unit holds */
		case 6: piece = len / (n - k); break;
		case 7: /* at random, every third empty */
		case 8: piece = rnd_below(3) ? rnd_below(len + 1) : 0; break;
		default: piece = len; break;
		}
		req_inline(r, piece);
	}
}

static void req_pointers(struct req *r, uint32_t n, unsigned pattern)
{
	const bool packet = K->family == PACKET;
	uint32_t i;

	for (i = 0; i < n; i++) {
		uint32_t len = packet && rnd_below(2) ? 1 + rnd_below(18) : r->op == TSO ? 1 + rnd_below(8000) : some_length();

		len = is_empty(pattern, i, n) ? 0 : len;
		if (packet)
			req_readable(r, len);
		else
			req_pointer(r, len);
	}
	if (!packet)
		return;
	/* Longer than its header: of 18 bytes in one piece ibv_wr_* sends the header twice */
	for (i = n - 1; i && !r->sge[i].length; i--)
		;
	r->sge[i].length = 19 + rnd_below(900);
}

#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* All of it, or one bit of it */
static uint64_t some_bits(unsigned bits)
{
	return rnd_below(2) ? UINT64_C(1) << rnd_below(bits) : rnd() >> (64 - bits);
}

/* A window's new place: none, or somewhere of up to 2^31 bytes */
static void req_window(struct req *r)
{
	memset(&r->mw, 0, sizeof(r->mw));
	memset(&r->bind, 0, sizeof(r->bind));
	r->mw.context = dev.ctx;
	r->mw.pd = dev.pd;
	r->mw.rkey = r->imm = (uint32_t)some_bits(32);
	r->mw.type = r->op == BIND1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2;
	r->bind.mr = mrs[rnd_below(ARRAY(mrs))];
	r->bind.addr = some_bits(64);
	r->bind.length = rnd_below(8) ? some_bits(31) : rnd_below(2) ? UINT64_C(1) << 31 : 0;
	r->bind.mw_access_flags = ((uint32_t)rnd() & RIGHTS) | (r->op == BIND2 && rnd_below(2) ? IBV_ACCESS_ZERO_BASED : 0);
	/* ibv_bind_mw makes the key itself */
	r->rkey = r->op == BIND1 || rnd_below(2) ? ibv_inc_rkey(r->mw.rkey) : (r->mw.rkey & ~0xffu) | rnd_below(256);
}


static void domain_random(struct req *r, unsigned i)
{
	struct mlx5dv_sig_block_domain *d = &r->umr.domain[i];

	memset(d, 0, sizeof(*d));
	d->block_size = (enum mlx5dv_block_size)rnd_below(MLX5DV_BLOCK_SIZE_4160 + 1);
	r->umr.dif[i].bg_type = rnd_below(2) ? MLX5DV_SIG_T10DIF_CRC : MLX5DV_SIG_T10DIF_CSUM;
	r->umr.dif[i].bg = rnd_below(2) ? 0xffff : 0;
	r->umr.dif[i].app_tag = (uint16_t)rnd();
	r->umr.dif[i].ref_tag = (uint32_t)rnd();
	r->umr.dif[i].flags = (uint16_t)rnd_below(8);
	r->umr.crc[i].type = (enum mlx5dv_sig_crc_type)rnd_below(3);
	r->umr.crc[i].seed = !rnd_below(2) ? 0 : r->umr.crc[i].type == MLX5DV_SIG_CRC_TYPE_CRC64_XP10 ? UINT64_MAX : UINT32_MAX;
	d->sig_type = rnd_below(2) ? MLX5DV_SIG_TYPE_CRC : MLX5DV_SIG_TYPE_T10DIF;
	if (d->sig_type == MLX5DV_SIG_TYPE_CRC)
		d->sig.crc = &r->umr.crc[i];
	else
		d->sig.dif = &r->umr.dif[i];
}

/* The signature's part. Half of the time both domains are alike, but for a part of it */
static void sig_random(struct req *r)
{
	domain_random(r, 0);
	domain_random(r, 1);
	if (rnd_below(2)) {
		r->umr.domain[1] = r->umr.domain[0];
		if (rnd_below(2))
			r->umr.dif[1] = r->umr.dif[0];
		r->umr.crc[1] = r->umr.crc[0];
		if (rnd_below(2))
			r->umr.crc[1].seed ^= r->umr.crc[1].type == MLX5DV_SIG_CRC_TYPE_CRC64_XP10 ? UINT64_MAX : UINT32_MAX;
		if (r->umr.domain[1].sig_type == MLX5DV_SIG_TYPE_CRC)
			r->umr.domain[1].sig.crc = &r->umr.crc[1];
		else
			r->umr.domain[1].sig.dif = &r->umr.dif[1];
		switch (rnd_below(4)) {
		case 0: r->umr.dif[1].bg ^= 0xffff; break;
		case 1: r->umr.dif[1].app_tag ^= 1; break;
		case 2: r->umr.dif[1].ref_tag ^= 1; break;
		}
	}
	memset(&r->umr.attr, 0, sizeof(r->umr.attr));
	r->umr.attr.mem = rnd_below(3) ? &r->umr.domain[0] : NULL;
	r->umr.attr.wire = !r->umr.attr.mem || rnd_below(3) ? &r->umr.domain[1] : NULL;
	r->umr.attr.check_mask = (uint8_t)rnd();
	r->umr.attr.copy_mask = (uint8_t)rnd();
	if (r->umr.attr.mem && r->umr.attr.wire && r->umr.domain[0].sig_type == r->umr.domain[1].sig_type &&
	    r->umr.domain[0].block_size == r->umr.domain[1].block_size &&
	    (r->umr.domain[0].sig_type == MLX5DV_SIG_TYPE_T10DIF || r->umr.crc[0].type == r->umr.crc[1].type))
		r->umr.attr.flags = rnd_below(2) ? MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK : 0;
	r->umr.psv[0] = rnd_below(1 << 24);
	r->umr.psv[1] = rnd_below(1 << 24);
}

/* n entries, if the QP's WQEs have room for them: libmlx5 grants max_inline for layout and signature */
static void req_umr(struct req *r, uint32_t n, unsigned layout, unsigned sig, const struct ibv_qp_cap *cap)
{
	uint32_t room = (cap->max_inline_data + 4) / 16, i;

	memset(&r->umr, 0, offsetof(__typeof__(r->umr), part));
	r->umr.sig = (uint8_t)sig;
	r->umr.access = (uint8_t)rnd_below(2);
	r->umr.rights = (uint32_t)rnd() & RIGHTS;
	r->umr.errors = (uint8_t)rnd();
	r->umr.seen = (uint8_t)rnd_below(2);
	r->umr.order = (uint8_t)rnd();
	r->umr.simple = (uint8_t)rnd_below(2);
	r->umr.rounds = n ? rnd_below(rnd_below(2) ? 0x7fffffff / 65536 / n : 100) : (uint32_t)rnd();
	sig_random(r);
	if (sig == KEY_SIGNED)
		room = room >= 4 ? room - 4 : 0;
	if (n + (layout == INTERLEAVED) > room / 4 * 4)
		layout = NO_LAYOUT;
	r->umr.layout = (uint8_t)layout;
	for (i = 0; layout && i < n; i++) {
		r->umr.part[i].addr = rnd();
		r->umr.part[i].lkey = (uint32_t)rnd();
		r->umr.part[i].bytes_count = rnd_below(65536);
		r->umr.part[i].bytes_skip = rnd_below(65536 - r->umr.part[i].bytes_count);
		/* rdma-core 44 counts the length of a key in an int, and has the right one below 2^31 only */
		req_pointer(r, n == 1 ? some_length() : rnd_below(5) ? rnd_below(0x7fffffff / n) : 0);
	}
}

/*
 * A request of an opcode; `size` is what it has most of, and `pattern` the shape of that.
 *
 *   sends, inline       bytes, and how they are cut (req_cut)
 *   sends, not inline   buffers, and which of them are empty (is_empty)
 *   atomics             the edges of 64 bits: the operands
 *   windows             how many of them
 *   UMR                 entries, and layout and signature
 *   RAW                 16-byte units
 *   COPY                length
 *   TSO                 bytes of the header; pattern: how many buffers, or how the payload is cut
 */
static void req_make(struct req *r, unsigned op, bool inl, uint32_t size, unsigned pattern, const struct ibv_qp_cap *cap)
{
	static const uint64_t edge[] = {0, 1, ~UINT64_C(0), UINT64_C(1) << 63};
	static const uint32_t copies[] = {1, 2, 63, 64, 4096, 0x7fffffff, UINT32_C(1) << 31};
	uint32_t len, k;

	req_init(r, op, rnd_below(FLAG_SETS));
	switch (op) {
	case CAS: case FAA:
		if (size < ARRAY(edge)) {
			r->a = edge[size];
			r->b = edge[rnd_below(4)];
			r->raddr = edge[rnd_below(4)];
		}
		req_pointer(r, 8);
		return;
	case BIND1: case BIND2: case INV: req_window(r); return;
	case UMR:
		req_umr(r, size, pattern % LAYOUTS, pattern / LAYOUTS % SIGNS, cap);
		return;
	case RAW: r->nsge = size; return;
	case COPY:
		len = size < ARRAY(copies) ? copies[size] : some_length();
		req_pointer(r, len);
		req_pointer(r, len);
		return;
	case TSO:
		r->hdr_len = (uint16_t)size;
		r->mss = (uint16_t)(pattern & 1 ? 1 + rnd_below(16383) : 1u << rnd_below(14));
		for (k = 0; k < size; k++)
			r->hdr[k] = (uint8_t)rnd();
		if (inl) {
			len = cap->max_inline_data - TSO_HEADER - 18;
			req_cut(r, 19 + rnd_below(len < 300 ? len : 300), pattern, cap->max_send_sge);
			return;
		}
		req_pointers(r, 1 + pattern % (cap->max_send_sge < 8 ? cap->max_send_sge : 8), rnd_below(PATTERNS - 1));
		return;
	default:
		if (inl)
			req_cut(r, size, pattern, cap->max_send_sge);
		else
			req_pointers(r, size, pattern);
	}
}

/* The sizes that a table of all requests goes through, and the patterns of each */
static uint32_t last_size(unsigned op, bool inl, const struct trio *t)
{
	switch (op) {
	case CAS: case FAA: return 5;
	case BIND1: case BIND2: case INV: return 600;
	case UMR: return MAX_ENTRIES;
	case RAW: return t->sq.max_ds;
	case COPY: return 7;
	case TSO: return TSO_HEADER;
	default: return inl ? K->max_inline : MAX_SGE;
	}
}

static uint32_t first_size(unsigned op, bool inl)
{
	return op == RAW ? 1 : op == TSO ? 14 : K->family != PACKET ? 0 : inl ? 19 : 1;
}

static uint32_t patterns_of(unsigned op, uint32_t size)
{
	if (is_atomic(op) || op == COPY || is_window(op) || op == RAW)
		return 1;
	return op == UMR ? LAYOUTS * SIGNS * (size ? 2 : 10) : PATTERNS;
}

static void req_random(struct req *r, const struct trio *t)
{
	uint32_t op, size, last;
	bool inl;

	do
		op = rnd_below(OPS);
	while (!has_op(op));
	inl = has_inline(op) && rnd_below(2);
	if (K->family == PACKET && t->cap.max_inline_data < (op == TSO ? TSO_HEADER + 19 : 19))
		inl = false;
	last = has_inline(op) || op == READ ? inl ? t->cap.max_inline_data : t->cap.max_send_sge : last_size(op, inl, t);
	if (op == TSO)
		last = TSO_HEADER;
	/* Short ones half of the time */
	size = first_size(op, inl);
	last = rnd_below(2) && !is_window(op) && last > size + (inl ? 64 : 4) ? size + (inl ? 64 : 4) : last;
	req_make(r, op, inl, rnd_below(8) ? size + rnd_below(last - size + 1) : last, rnd_below(patterns_of(op, 0)), &t->cap);
}

/* n requests at most, as many as there is credit for. Returns their number, and the interface of libmlx5's that knows them all */
static bool libmlx5_wrong(const struct trio *t, const struct req *r, uint32_t pos);

static unsigned batch_random(struct req *r, unsigned n, const struct trio *t, unsigned *api)
{
	uint32_t pos = t->pos, wqes = t->head - t->tail + (has_op(UMR) ? 2 : 0), i;

	*api = t->a.qpx ? rnd_below(APIS) : (unsigned)POST_SEND;
	for (i = 0; i < n && wqes < t->cap.max_send_wr; i++) {
		do /* of TSO in a list libmlx5 forgets where to begin */
			req_random(&r[i], t);
		while (libmlx5_wrong(t, &r[i], pos) || (i && *api == POST_SEND && r[i].op == TSO));
		pos += req_bbs(&r[i]);
		wqes += 1 + req_psvs(&r[i]);
		if (r[i].op == BIND1)
			*api = POST_SEND; /* ibv_wr_bind_mw is for type 2 */
		if (r[i].op >= UMR && r[i].op <= COPY)
			*api = WR;
	}
	return i;
}

/* ---- libmlx5's way ---- */

/* What of raw packets alone goes into the flags */
static uint32_t in_csum(const struct req *r, uint32_t flag)
{
	return K->family == PACKET && r->csum ? flag : 0;
}

static uint32_t lib_flags(const struct req *r)
{
	return (r->flags & SIG ? IBV_SEND_SIGNALED : 0) | (r->flags & SOL ? IBV_SEND_SOLICITED : 0) | 
	       (r->flags & FENCE ? IBV_SEND_FENCE : 0) | in_csum(r, IBV_SEND_IP_CSUM);
}

static int post_send(struct lib *l, const struct req *r, unsigned n, uint64_t wr_id)
{
	static struct ibv_send_wr wr[MAX_BATCH];
	struct ibv_send_wr *bad;

	for (unsigned i = 0; i < n; i++, r++) {
		struct ibv_send_wr *w = &wr[i];

		w->wr_id = wr_id + i;
		w->next = i + 1 < n ? w + 1 : NULL;
		w->sg_list = (struct ibv_sge *)(uintptr_t)r->sge;
		w->num_sge = (int)r->nsge;
		w->opcode = ops[r->op].verb;
		w->send_flags = lib_flags(r) | (r->inl ? IBV_SEND_INLINE : 0);
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

/* libmlx5's struct of a key, which follows the two numbers that it shows: a request brings one, so that keys, PSVs and states are any */
struct lib_psv { uint32_t index; void *obj; };

struct lib_domain {
	int type;               /* 0: none, 1: CRC, 2: T10-DIF */
	union { struct mlx5dv_sig_t10dif dif; struct mlx5dv_sig_crc crc; } sig;
	enum mlx5dv_block_size size;
};

struct lib_sig {
	struct lib_psv *psv[2];
	struct lib_domain domain[2];
	uint32_t flags;
	uint8_t check_mask, copy_mask;
	int state;              /* 0: none yet, 2: set by an earlier UMR, 3: by this one */
	struct { uint16_t syndrome; uint64_t expected, actual, offset; uint8_t type, domain; } error;
	uint32_t errors;
	bool exists, updated;
};

struct lib_key { struct mlx5dv_mkey key; void *obj; uint16_t entries; uint64_t length; struct lib_sig *sig; void *crypto; };

static void raw_build(const struct req *r, uint32_t qpn, uint16_t index, uint8_t *wqe)
{
	struct mlx5_wqe_ctrl_seg c;

	memcpy(wqe, data + r->raddr % (DATA_BYTES - 1024), r->nsge * 16);
	memcpy(&c, wqe, sizeof(c));
	c.opmod_idx_opcode = htobe32((uint32_t)r->a << 24 | (uint32_t)index << 8 | (uint8_t)r->b);
	c.qpn_ds = htobe32(qpn << 8 | r->nsge);
	memcpy(wqe, &c, sizeof(c));
}

static void lib_layout(struct mlx5dv_qp_ex *q, const struct req *r)
{
	if (r->umr.layout == LIST)
		mlx5dv_wr_set_mkey_layout_list(q, (uint16_t)r->nsge, r->sge);
	else if (r->umr.layout == INTERLEAVED)
		mlx5dv_wr_set_mkey_layout_interleaved(q, r->umr.rounds, (uint16_t)r->nsge, r->umr.part);
}

static void lib_umr(struct lib *l, const struct req *r)
{
	struct mlx5dv_qp_ex *q = mlx5dv_qp_ex_from_ibv_qp_ex(l->qpx);
	struct mlx5dv_mkey_conf_attr conf = {.conf_flags = 0};
	struct lib_psv psv[2] = {{r->umr.psv[0], NULL}, {r->umr.psv[1], NULL}};
	struct lib_sig sig = {};
	struct lib_key key = {};
	uint8_t wqe[1024];

	if (r->op == RAW) {
		raw_build(r, l->qp->qp_num, (uint16_t)r->rkey, wqe);
		mlx5dv_wr_raw_wqe(q, wqe);
		return;
	}
	key.key.lkey = key.key.rkey = r->rkey;
	key.entries = 64;
	if (r->umr.sig) {
		key.sig = &sig;
		sig.psv[0] = &psv[0];
		sig.psv[1] = &psv[1];
		sig.errors = r->umr.errors;
		sig.updated = r->umr.seen;
		if (r->umr.sig == KEY_KEPT)
			sig.state = 2 + (r->umr.order & 1);
		else if (r->umr.sig == KEY_OFF)
			sig.state = r->umr.order & 1;
		for (unsigned i = 0; r->umr.sig == KEY_KEPT && i < 2; i++)
			if (i ? r->umr.attr.wire : r->umr.attr.mem) {
				const struct mlx5dv_sig_block_domain *d = &r->umr.domain[i];

				sig.domain[i].type = d->sig_type == MLX5DV_SIG_TYPE_CRC ? 1 : 2;
				sig.domain[i].size = d->block_size;
				if (d->sig_type == MLX5DV_SIG_TYPE_CRC)
					sig.domain[i].sig.crc = r->umr.crc[i];
				else
					sig.domain[i].sig.dif = r->umr.dif[i];
			}
		if (r->umr.sig == KEY_OFF && r->umr.order & 2) {
			conf.conf_flags = MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR;
			sig.state = 2 + (r->umr.order & 1);
		}
	}
	l->qpx->wr_flags |= IBV_SEND_INLINE;
	if (r->umr.simple && r->umr.access && r->umr.layout && r->umr.sig != KEY_SIGNED && !conf.conf_flags) {
		if (r->umr.layout == LIST)
			mlx5dv_wr_mr_list(q, &key.key, r->umr.rights, (uint16_t)r->nsge, (struct ibv_sge *)(uintptr_t)r->sge);
		else
			mlx5dv_wr_mr_interleaved(q, &key.key, r->umr.rights, r->umr.rounds, (uint16_t)r->nsge,
					 (struct mlx5dv_mr_interleaved *)(uintptr_t)r->umr.part);
		return;
	}
	mlx5dv_wr_mkey_configure(q, &key.key, (uint8_t)(r->umr.access + !!r->umr.layout + (r->umr.sig == KEY_SIGNED)), &conf);
	/* The setters in any order */
	for (unsigned i = 0; i < 3; i++)
		switch ((r->umr.order / 4 + i * (1 + r->umr.order % 2)) % 3) {
		case 0:
			if (r->umr.access)
				mlx5dv_wr_set_mkey_access_flags(q, r->umr.rights);
			break;
		case 1: lib_layout(q, r); break;
		default:
			if (r->umr.sig == KEY_SIGNED)
				mlx5dv_wr_set_mkey_sig_block(q, &r->umr.attr);
		}
}

static int post_wr(struct lib *l, const struct req *r, unsigned n, uint64_t wr_id)
{
	struct ibv_data_buf buf[MAX_SGE + 4];
	struct ibv_qp_ex *q = l->qpx;

	ibv_wr_start(q);
	for (unsigned i = 0; i < n; i++, r++) {
		wr_id += req_psvs(r);
		q->wr_id = wr_id + i;
		q->wr_flags = lib_flags(r);
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
		case UMR: case RAW: lib_umr(l, r); continue;
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
			for (unsigned k = 0; k < r->nsge; k++) {
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
static int post_bind(struct lib *l, const struct req *r, uint64_t wr_id)
{
	struct ibv_mw_bind bind = {.wr_id = wr_id, .send_flags = lib_flags(r), .bind_info = r->bind};
	struct ibv_mw mw = r->mw;
	int err = ibv_bind_mw(l->qp, &mw, &bind);

	if (!err)
		assert_int_equal(mw.rkey, r->rkey);
	return err;
}

static int post_lib(struct lib *l, unsigned api, const struct req *r, unsigned n, uint64_t wr_id)
{
	if (n == 1 && r->op == BIND1)
		return post_bind(l, r, wr_id);
	return api == WR || is_dci() ? post_wr(l, r, n, wr_id) : post_send(l, r, n, wr_id);
}

/* ---- inlay's ways ---- */

static uint32_t in_flags(const struct req *r)
{
	return (r->flags & SIG ? INLAY_SIGNALED : 0) | (r->flags & SOL ? INLAY_SOLICITED : 0) |
	       (r->flags & FENCE ? (uint32_t)INLAY_FENCE_SMALL_AND_FENCE : T.fence) | (r->inl ? INLAY_INLINE : 0) |
	       (r->stream ? INLAY_STREAM(r->stream & 0xffff) : 0);
}

/* A list of one may be a buffer. Whether there is a destination is no constant where an immediate is */
INLAY_ALWAYS struct inlay_wr in_wr(const struct req *r, enum family family, uint8_t op, uint32_t n, bool buf)
{
	const struct ibv_sge *sge = r->sge;
	struct inlay_wr wr = buf || is_atomic(op) ? wr_buf((void *)(uintptr_t)sge->addr, sge->length, sge->lkey) : wr_sge(sge, n);

	wr.to = family == DATAGRAM ? inlay_av_long(&r->av) : family == TO ? &r->av : NULL;
	wr.raddr = is_rdma(op) ? r->raddr : 0;
	wr.rkey = is_rdma(op) ? r->rkey : op == SEND_INV ? r->imm : 0;
	if (op == SEND_IMM || op == WRITE_IMM) {
		wr.imm_be = r->imm;
		__asm__("" : "+r"(wr.to));
	}
	return wr;
}

static struct inlay_eth in_eth(const struct req *r)
{
	return inlay_eth_csum(in_csum(r, INLAY_CSUM_L3 | INLAY_CSUM_L4));
}

/* The opcode is a variable, too */
static int in_any(struct inlay_sq *sq, const struct req *r, uint32_t flags)
{
	struct inlay_wr wr = r->nsge == 1 && r->list ? wr_buf((void *)(uintptr_t)r->sge[0].addr, r->sge[0].length, r->sge[0].lkey) :
						       wr_sge(r->sge, r->nsge);

	wr.to = has_peers() ? &r->av : NULL;
	wr.imm_be = r->imm;
	wr.raddr = r->raddr;
	wr.rkey = r->op == SEND_INV ? r->imm : r->rkey;
	return inlay_post(sq, ops[r->op].code, &wr, flags);
}

static int in_umr(struct inlay_sq *sq, const struct req *r, uint32_t flags)
{
	uint32_t quiet = flags & ~(uint32_t)INLAY_SIGNALED, fence = flags >> 29 ? 0 : INLAY_FENCE_INITIATOR_SMALL, i;
	struct inlay_umr umr;
	int err;

	if (r->umr.access && !r->umr.sig && r->umr.layout == LIST && r->umr.order & 1)
		return inlay_post_umr_list(sq, r->rkey, r->umr.rights, r->sge, (uint16_t)r->nsge, flags);
	memset(&umr, 0, sizeof(umr));
	umr.mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY;
	umr.tag = (uint8_t)r->rkey;
	if (r->umr.access) {
		umr.mask |= INLAY_UMR_MASK_ACCESS;
		umr.access = r->umr.rights;
	}
	if (r->umr.layout) {
		umr.mask |= INLAY_UMR_MASK_FILL;
		umr.entries = (uint16_t)r->nsge;
		umr.list = r->umr.layout == LIST ? r->sge : NULL;
		umr.interleaved = r->umr.layout == INTERLEAVED ? r->umr.part : NULL;
		umr.rounds = r->umr.rounds;
		for (i = 0; i < r->nsge; i++)
			umr.len += umr.list ? r->sge[i].length : (uint64_t)r->umr.part[i].bytes_count * r->umr.rounds;
	}
	if (r->umr.sig && r->umr.seen) {
		umr.mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR;
		umr.flags = r->umr.errors & 1 ? INLAY_UMR_SIG_ERR : 0;
	}
	if (r->umr.sig == KEY_OFF)
		umr.mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE;
	if (r->umr.sig == KEY_SIGNED)
		return inlay_post_umr_sig(sq, r->rkey, &umr, &r->umr.attr, r->umr.psv, flags);
	err = inlay_post_umr(sq, r->rkey, &umr, req_psvs(r) ? quiet : flags);
	if (!err && req_psvs(r) && r->umr.attr.mem)
		err = inlay_post_set_psv(sq, r->umr.psv[0], inlay_psv_value(r->umr.attr.mem), (r->umr.attr.wire ? quiet : flags) | fence);
	if (!err && req_psvs(r) && r->umr.attr.wire)
		err = inlay_post_set_psv(sq, r->umr.psv[1], inlay_psv_value(r->umr.attr.wire), flags | fence);
	return err;
}

/* For each opcode, with a list of n or a buffer, and a buffer inline. No function, which would copy all into each call site */
#define POSTS(opcode) inlay_post(sq, opcode, &wr, flags)
#define LISTS(opcode, list) (buf ? POSTS(opcode) : list)
#define COPIES(opcode) inlay_post(sq, opcode, &wr, flags | INLAY_INLINE)
#define CAS_BY_WR inlay_post_atomic(sq, inlay_atomic_cmp_swap(r->a, r->b), &wr, flags)
#define FAA_BY_WR inlay_post_atomic(sq, inlay_atomic_add(r->a), &wr, flags)
#define CALLS(X)															\
	X(POST, SEND, LISTS(MLX5_OPCODE_SEND, inlay_post_send(sq, r->sge, n, flags)))							\
	X(POST, SEND_IMM, POSTS(MLX5_OPCODE_SEND_IMM)) X(POST, SEND_INV, POSTS(MLX5_OPCODE_SEND_INVAL))					\
	X(POST, WRITE, LISTS(MLX5_OPCODE_RDMA_WRITE, inlay_post_write(sq, r->raddr, r->rkey, r->sge, n, flags)))			\
	X(POST, WRITE_IMM, POSTS(MLX5_OPCODE_RDMA_WRITE_IMM))										\
	X(POST, READ, LISTS(MLX5_OPCODE_RDMA_READ, inlay_post_read(sq, r->raddr, r->rkey, r->sge, n, flags)))				\
	X(POST, CAS, CAS_BY_WR) X(POST, FAA, FAA_BY_WR)											\
	X(DATAGRAM, SEND, POSTS(MLX5_OPCODE_SEND)) X(DATAGRAM, SEND_IMM, POSTS(MLX5_OPCODE_SEND_IMM))					\
	X(TO, SEND, POSTS(MLX5_OPCODE_SEND)) X(TO, SEND_IMM, POSTS(MLX5_OPCODE_SEND_IMM))						\
	X(TO, SEND_INV, POSTS(MLX5_OPCODE_SEND_INVAL)) X(TO, WRITE, POSTS(MLX5_OPCODE_RDMA_WRITE))					\
	X(TO, WRITE_IMM, POSTS(MLX5_OPCODE_RDMA_WRITE_IMM)) X(TO, READ, POSTS(MLX5_OPCODE_RDMA_READ))					\
	X(TO, CAS, CAS_BY_WR) X(TO, FAA, FAA_BY_WR)											\
	X(PACKET, SEND, inlay_post_packet(sq, in_eth(r), r->sge, n, flags))								\
	X(PACKET, TSO, inlay_post_tso(sq, inlay_eth_mss(in_eth(r), r->mss), r->hdr, r->hdr_len, r->sge, n, flags))
#define INLINES(X)															\
	X(POST, SEND, LENGTHS_ALL, inlay_post_send_inline(sq, wr.data, wr.len, flags))							\
	X(POST, WRITE, LENGTHS_ALL, inlay_post_write_inline(sq, r->raddr, r->rkey, wr.data, wr.len, flags))				\
	X(DATAGRAM, SEND, LENGTHS, COPIES(MLX5_OPCODE_SEND)) X(TO, SEND, LENGTHS, COPIES(MLX5_OPCODE_SEND))				\
	X(TO, WRITE, LENGTHS, COPIES(MLX5_OPCODE_RDMA_WRITE))
#define PLAIN(family, op, call)														\
	case family << 8 | op: wr = in_wr(r, family, op, n, buf); return call;

/* Its arguments are variables */
static __attribute__((noinline)) int in_plain(struct inlay_sq *sq, const struct req *r)
{
	const uint32_t flags = in_flags(r), n = r->nsge;
	const bool buf = n == 1 && r->list;
	struct inlay_wr wr;
	uint8_t wqe[1024];

	switch (r->op) {
	case BIND1: case BIND2: return inlay_post_bind_mw(sq, &r->mw, r->rkey, &r->bind, flags);
	case INV: return inlay_post_local_inv(sq, r->imm, flags);
	case UMR: return in_umr(sq, r, flags);
	case RAW: raw_build(r, rnd_below(1 << 24), (uint16_t)rnd(), wqe); return inlay_post_raw(sq, wqe, 0);
	case COPY: return inlay_post_memcpy(sq, &r->sge[0], &r->sge[1], &scratch, flags);
	}
	if (K->family != PACKET && !is_atomic(r->op) && r->raddr & 1)
		return in_any(sq, r, flags);
	switch (K->family << 8 | r->op) { CALLS(PLAIN) }
	return in_any(sq, r, flags);
}

/* Call sites at which family, opcode, number of SGEs or inline length, and flags are constants: many functions, for the compiler's sake */
#define CASE_N(n_, flags_, family, op, call)													\
	case n_: {															\
		const uint32_t n = n_, flags = flags_;											\
		struct inlay_wr wr = in_wr(r, family, op, n, false);									\
																	\
		(void)wr;														\
		(void)n;														\
		return call;														\
	}
#define CONST_OP(family, op, call)													\
	static __attribute__((noinline)) int const_##family##_##op(struct inlay_sq *sq, const struct req *r)				\
	{																\
		enum { buf = 0 };													\
																	\
		if (!r->stream && !r->inl && r->flags == SIG) \
			switch (r->nsge) { CASE_N(1, INLAY_SIGNALED, family, op, call) CASE_N(2, INLAY_SIGNALED, family, op, call) } \
		if (!r->stream && r->inl && !r->flags) \
			switch (r->nsge) { CASE_N(1, INLAY_INLINE, family, op, call) CASE_N(2, INLAY_INLINE, family, op, call) } \
		switch (r->nsge) { \
		CASE_N(0, in_flags(r), family, op, call) CASE_N(1, in_flags(r), family, op, call) \
		CASE_N(2, in_flags(r), family, op, call) CASE_N(3, in_flags(r), family, op, call) \
		CASE_N(5, in_flags(r), family, op, call) \
		} \
		return in_plain(sq, r);													\
	}
#define LENGTHS_ALL(X, f, o, c)														\
	LENGTHS(X, f, o, c)														\
	X(5, f, o, c) X(6, f, o, c) X(9, f, o, c) X(10, f, o, c) X(14, f, o, c) X(18, f, o, c) X(19, f, o, c) X(24, f, o, c)		\
	X(25, f, o, c) X(26, f, o, c) X(27, f, o, c) X(30, f, o, c) X(31, f, o, c) X(32, f, o, c) X(33, f, o, c) X(36, f, o, c)		\
	X(40, f, o, c) X(41, f, o, c) X(42, f, o, c) X(43, f, o, c) X(46, f, o, c) X(47, f, o, c) X(48, f, o, c) X(56, f, o, c)		\
	X(57, f, o, c) X(58, f, o, c) X(59, f, o, c) X(62, f, o, c) X(63, f, o, c) X(64, f, o, c) X(65, f, o, c) X(96, f, o, c)		\
	X(107, f, o, c) X(110, f, o, c) X(111, f, o, c) X(128, f, o, c) X(256, f, o, c)
#define LENGTHS(X, f, o, c)														\
	X(0, f, o, c) X(1, f, o, c) X(2, f, o, c) X(3, f, o, c) X(4, f, o, c) X(7, f, o, c) X(8, f, o, c) X(11, f, o, c) X(12, f, o, c)	\
	X(13, f, o, c) X(15, f, o, c) X(16, f, o, c) X(17, f, o, c) X(20, f, o, c) X(28, f, o, c) X(29, f, o, c) X(44, f, o, c)		\
	X(45, f, o, c) X(60, f, o, c) X(61, f, o, c) X(76, f, o, c) X(77, f, o, c) X(92, f, o, c) X(93, f, o, c) X(108, f, o, c)	\
	X(109, f, o, c) X(124, f, o, c) X(125, f, o, c) X(172, f, o, c) X(173, f, o, c) X(716, f, o, c)
#define LEN(N, family, op, call)													\
	static __attribute__((noinline)) int len_##family##_##op##_##N(struct inlay_sq *sq, const struct req *r, uint32_t flags)	\
	{																\
		struct inlay_wr wr = in_wr(r, family, op, 1, true);									\
																	\
		wr.len = N;														\
		if (family == POST && flags == INLAY_SIGNALED) {									\
			const uint32_t flags = INLAY_SIGNALED;										\
																	\
			return call;													\
		}															\
		return call;														\
	}
#define CASE_LEN(len, family, op, call)													\
	case len: return len_##family##_##op##_##len(sq, r, flags);
#define CONST_LEN(family, op, lengths, call)												\
	lengths(LEN, family, op, call)													\
	static __attribute__((noinline)) int len_##family##_##op(struct inlay_sq *sq, const struct req *r)				\
	{																\
		const uint32_t flags = in_flags(r) & ~(uint32_t)INLAY_INLINE;								\
																	\
		switch (r->sge[0].length) { lengths(CASE_LEN, family, op, call) }							\
		return in_plain(sq, r);													\
	}
CALLS(CONST_OP)
INLINES(CONST_LEN)

/* The burst of one, which has no other flag than one */
static __attribute__((noinline)) int in_burst(struct inlay_sq *sq, const struct req *r)
{
	int n = inlay_post_packets(sq, in_eth(r), r->sge, 1, in_flags(r));

	return n == 1 ? 0 : n;
}

/* The function whose constants are r's; else the one that has none */
static int in_const(struct inlay_sq *sq, const struct req *r)
{
#define BY_SGES(family, op, call) {family, op, const_##family##_##op},
#define BY_LEN(family, op, lengths, call) {family, op, len_##family##_##op},
	static const struct {
		uint8_t family, op;
		int (*post)(struct inlay_sq *sq, const struct req *r);
	} all[] = {INLINES(BY_LEN) CALLS(BY_SGES)};
	bool one = r->inl && r->nsge == 1 && !r->stream;

	if (K->family == PACKET && r->op == SEND && r->nsge == 1 && !(r->flags & ~SIG) && rnd_below(2))
		return in_burst(sq, r);
	for (size_t i = one ? 0 : 5; i < ARRAY(all); i++)
		if (all[i].family == K->family && all[i].op == r->op)
			return all[i].post(sq, r);
	return in_plain(sq, r);
}

/* Posts several at once, where that is asked for */
static int (*in_batch)(struct inlay_sq *sq, const struct req *r, unsigned n);

/* What goes into the control segment's last word */
static uint32_t in_imm(const struct req *r)
{
	return r->op == SEND_INV ? inlay_to_be32(r->imm) : r->op == SEND_IMM || r->op == WRITE_IMM ? r->imm : 0;
}

/* As a list of struct iovec: with a key for each, or for all when there is but one */
static __attribute__((noinline)) int in_iov(struct inlay_sq *sq, const struct req *r)
{
	struct remote remote = {r->raddr, r->rkey};
	struct iovec iov[MAX_SGE + 4];
	uint32_t lkeys[MAX_SGE + 4], i;
	struct inlay_iov from = {iov, r->nsge, r->sge[0].lkey, r->nsge == 1 && r->list ? NULL : lkeys};

	for (i = 0; i < r->nsge; i++) {
		iov[i].iov_base = (void *)(uintptr_t)r->sge[i].addr;
		iov[i].iov_len = r->sge[i].length;
		lkeys[i] = r->sge[i].lkey;
	}
	return wr_post(sq, ops[r->op].code, wr_iov(&from, has_peers() ? &r->av : NULL, is_rdma(r->op) ? &remote : NULL, in_imm(r)), in_flags(r));
}

static int post_inlay(struct inlay_sq *sq, unsigned way, const struct req *r)
{
	if (r->op >= BIND1 || (K->family == PACKET && way != CONST) || (way == CONST && T.fence))
		way = PLAIN;
	if (way == IOV && is_atomic(r->op))
		way = PLAIN;
	if (way == IOV)
		return in_iov(sq, r);
	return way == CONST ? in_const(sq, r) : in_plain(sq, r);
}

/* ---- the trio ---- */

/* From RESET to RTS, connected to itself: that nothing is executed is the device's affair, not the state's */
static void qp_up(struct ibv_qp *qp)
{
	static const enum ibv_qp_state to[3] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
	const int rts = IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	const int dci[3] = {IBV_QP_PKEY_INDEX | IBV_QP_PORT, IBV_QP_PATH_MTU, rts};
	const int xrc[3] = {IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
			    IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, rts};
	struct opt opt = usual;
	struct ibv_qp_attr a = {
		.path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .ah_attr = own_path(), .max_rd_atomic = 8, .port_num = 1, .timeout = 14,
	};

	if (K->family == PACKET) {
		raw_up(qp);
		return;
	}
	if (!is_dci() && !is_xrc()) {
		if (K->type == IBV_QPT_UC)
			opt.qp_access &= ~(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
		qp_init(qp, &opt);
		qp_connect(qp, qp->qp_num, &opt);
		return;
	}
	for (unsigned i = 0; i < 3; i++) {
		a.qp_state = to[i];
		must(ibv_modify_qp(qp, &a, IBV_QP_STATE | (is_dci() ? dci : xrc)[i]));
	}
}

static struct ibv_srq *srq_of_qps; /* of the QPs made while it is there */

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq, const struct ibv_qp_cap *cap, uint64_t ops,
			      struct ibv_qp_cap *granted)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq, .recv_cq = is_xrc() ? NULL : cq, .srq = srq_of_qps, .cap = *cap, .qp_type = K->type,
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd,
	};
	struct mlx5dv_qp_init_attr dv = {};
	struct ibv_qp *qp;

	if (K->family == PACKET) {
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
	qp = made(dv.comp_mask ? mlx5dv_create_qp(dev.ctx, &attr, &dv) : ibv_create_qp_ex(dev.ctx, &attr));
	if (granted)
		*granted = attr.cap;
	qp_up(qp);
	return qp;
}

static struct mlx5dv_cq view_cq(struct ibv_cq *cq)
{
	struct mlx5dv_cq dv;

	view(CQ, cq, cq, &dv);
	return dv;
}

/*
 * What libmlx5 keeps to itself: the number by which CQEs name its QP, and the half of the register that comes next (a register
 * of a thread domain that was freed comes back as its last owner left it). One empty RDMA write to itself, executed, shows
 * both; a datagram, which nobody receives, does so too, and so does the error of a request with a destination, which nobody answers.
 */
static void probe_post(struct lib *l)
{
	struct req r;

	req_init(&r, has_op(WRITE) ? WRITE : SEND, SIG);
	if (K->family == PACKET)
		req_inline(&r, 26); /* a packet is never empty */
	must(post_lib(l, POST_SEND, &r, 1, 77));
}

static void probe_end(struct lib *l)
{
	struct ibv_cq *cq = l->qp->send_cq;
	struct mlx5dv_cq dv = view_cq(cq);
	uint32_t at = be32toh(dv.dbrec[0]) & (dv.cqe_cnt - 1);
	struct mlx5_cqe64 *cqe = (struct mlx5_cqe64 *)((uint8_t *)dv.buf + (size_t)at * dv.cqe_size + (dv.cqe_size - 64));
	struct ibv_wc wc;

	softdev_run();
	assert_int_equal(cqe->op_own >> 4, K->family == TO ? MLX5_CQE_REQ_ERR : MLX5_CQE_REQ);
	l->uidx = be32toh(cqe->srqn_uidx) & 0xffffff;
	assert_int_equal(ibv_poll_cq(cq, 1, &wc), 1);
	assert_int_equal(wc.status, K->family == TO ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 77);
	assert_int_equal(wc.qp_num, l->qp->qp_num);
	/* Back to the beginning of the ring: RESET zeroes libmlx5's counters, the device's and the record */
	qp_to(l->qp, IBV_QPS_RESET);
	qp_up(l->qp);
}

static void lib_probe(struct lib *l, uint32_t size)
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

static void lib_open(struct lib *l, struct ibv_cq *cq, const struct ibv_qp_cap *cap, uint64_t ops, struct ibv_qp_cap *granted)
{
	struct ibv_parent_domain_init_attr parent = {};
	struct ibv_td_init_attr attr = {};
	struct mlx5dv_qp dv;

	memset(l, 0, sizeof(*l));
	l->td = made(ibv_alloc_td(dev.ctx, &attr));
	parent.pd = dev.pd;
	parent.td = l->td;
	l->pd = made(ibv_alloc_parent_domain(dev.ctx, &parent));
	l->qp = make_qp(l->pd, cq, cap, ops, granted);
	l->qpx = ops ? ibv_qp_to_qp_ex(l->qp) : NULL;
	dv = view_qp(l->qp);
	l->ring = (uint8_t *)dv.sq.buf;
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

static struct ibv_cq *trio_cq(struct trio *t, const struct ibv_qp_cap *cap)
{
	memset(t, 0, sizeof(*t));
	t->cq = made(ibv_create_cq(dev.ctx, (int)(2 * cap->max_recv_wr < 64 ? 63 : 4 * cap->max_recv_wr), NULL, NULL, 0));
	t->cqn = view_cq(t->cq).cqn;
	return t->cq;
}

static void trio_open(struct trio *t, const struct ibv_qp_cap *cap, uint64_t with, uint32_t mode)
{
	struct ibv_qp_cap cap_c;
	struct mlx5dv_qp dv;

	trio_cq(t, cap);
	lib_open(&t->a, t->cq, cap, with, &t->cap);
	lib_open(&t->b, t->cq, cap, with, NULL);
	must(inlay_uar_create(&t->uar, dev.pd, INLAY_UAR_SERIAL, NULL));
	t->uar.mode = mode;
	t->qp = make_qp(t->uar.pd, t->cq, cap, with, &cap_c);
	assert_memory_equal(&cap_c, &t->cap, sizeof(cap_c));
	must(inlay_sq_from_qp(&t->sq, t->qp, &t->uar, NULL, NULL));
	assert_int_equal(inlay_sq_min_inline(&t->sq), inline_l2());
	dv = view_qp(t->qp);
	t->ring = (uint8_t *)dv.sq.buf;
	t->bbs = dv.sq.wqe_cnt;
	t->reg = (uint8_t *)dv.bf.reg;
	t->size = dv.bf.size;
	t->dbrec = (uint32_t *)dv.dbrec;
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
	must(inlay_uar_destroy(&t->uar, NULL));
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
	t->b.dbrec[MLX5_SND_DBR] = htobe32(0xffff); /* the shim, in the place of libmlx5, keeps the other half too */
	t->dbrec[MLX5_SND_DBR] = record_salt(t);
}

/* First byte at which c differs from what libmlx5 wrote; len when none. *known counts the bytes that libmlx5 wrote */
static uint32_t compare(const uint8_t *a, const uint8_t *b, const uint8_t *c, uint32_t len, uint32_t *known)
{
	uint32_t i, k;

	for (i = 0; i < len; i += 8) {
		uint64_t x, y, z, written = 0;

		/* Most of a ring is not */
		for (k = 0; i % 64 == 0 && i + 64 <= len && k < 64; k += 8) {
			memcpy(&x, a + i + k, 8);
			memcpy(&y, b + i + k, 8);
			written |= ~(x ^ y);
		}
		if (k == 64 && !written) {
			i += 56;
			continue;
		}
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

/* One of the numbers in a WQE of a twin's that are its own: they must be those expected, and c's are put in their place */
static void swap_word(uint8_t *at, uint32_t from, uint32_t to, const char *what)
{
	uint32_t w;

	memcpy(&w, at, 4);
	if (be32toh(w) >> 8 != from)
		fail_msg("libmlx5's %s is 0x%x, not 0x%x", what, be32toh(w) >> 8, from);
	w = htobe32(to << 8 | (be32toh(w) & 0xff));
	memcpy(at, &w, 4);
}

/*
 * All of them: the QPN, which stands once more in the WQE that binds a window of type 2, and the 64 bytes that a copy names besides its
 * data, the same in every WQE of a QP. The WQE begins at `at` of a ring of so many bytes (or in a register); r: NULL, where no more than
 * its control segment is there. Beforehand its index is looked at
 */
static void swap_wqe(struct lib *l, const struct req *r, uint8_t *ring, uint32_t at, uint32_t bytes, uint32_t index)
{
	static const uint8_t none[12] = {0};
	uint32_t lkey = htobe32(scratch.lkey), w;
	uint64_t addr = htobe64(scratch.addr);

	memcpy(&w, ring + at, 4);
	if ((be32toh(w) >> 8 & 0xffff) != (index & 0xffff))
		fail_msg("libmlx5 is not at WQEBB %u, but at %u", index, be32toh(w) >> 8 & 0xffff);
	swap_word(ring + at + 4, l->qp->qp_num, T.qp->qp_num, "QPN");
	if (r && r->op == BIND2 && r->bind.length)
		swap_word(ring + ((at + 68) & (bytes - 1)), l->qp->qp_num, T.qp->qp_num, "window's QPN");
	if (!r || r->op != COPY)
		return;
	if (!memcmp(l->scratch, none, 12))
		memcpy(l->scratch, ring + at + 20, 12);
	assert_memory_equal(l->scratch, ring + at + 20, 12);
	memcpy(ring + at + 20, &lkey, 4);
	memcpy(ring + at + 24, &addr, 8);
}

static int report(const struct trio *t, const struct req *r, unsigned n, uint32_t begin, const char *what, uint32_t at,
		  unsigned lib, unsigned in)
{
	uint32_t pos = begin;

	fprintf(report_to, "%s: %s, byte %u (0x%x): libmlx5 0x%02x, inlay 0x%02x; ", K->name, what, at, at, lib, in);
	fprintf(report_to, "ring of %u WQEBBs, batch of %u at %u (slot %u)\n", t->bbs, n, begin, begin & (t->bbs - 1));
	for (unsigned i = 0; i < n && report_to == stderr; pos += req_bbs(&r[i++])) {
		fprintf(report_to, "%s, libmlx5\n", ops[r[i].op].name);
		inlay_wqe_print(report_to, t->a.ring, t->bbs * 64, pos, K->type);
		fprintf(report_to, " inlay\n");
		inlay_wqe_print(report_to, t->ring, t->bbs * 64, pos, K->type);
	}
	return 1;
}

static void accepted(const struct req *r, const char *who, int err)
{
	if (!err)
		return;
	fail_msg("%s: %s, %u buffers: %s answers %d", K->name, ops[r->op].name, r->nsge, who, err);
}

/* Posts a batch to all three (inlay is told `in`) and rings. Then the rings of a and b have c's QPN */
static void post_batch(struct trio *t, unsigned api, unsigned way, bool doorbell, const struct req *r, const struct req *in, unsigned n)
{
	const uint32_t bytes = t->bbs * 64;
	struct lib *lib[2] = {&t->a, &t->b}, *l;
	/* Every other batch is a burst: posted to a copy of the queue */
	struct inlay_sq burst = t->sq, *sq = t->head & 1 ? &burst : &t->sq;
	uint32_t pos = t->pos, last = pos, psvs;
	unsigned i, k;

	accepted(r, "libmlx5", post_lib(&t->a, api, r, n, t->head));
	accepted(r, "libmlx5", post_lib(&t->b, api, r, n, t->head));
	if (in_batch)
		must(in_batch(sq, in, n));
	for (i = 0; i < n && !in_batch; i++) {
		accepted(&in[i], "inlay", post_inlay(sq, way, &in[i]));
		t->fence = is_window(r[i].op) || r[i].op == UMR ? INLAY_FENCE_INITIATOR_SMALL : 0;
	}
	if (sq == &burst)
		inlay_sq_join(&t->sq, &burst);
	if (doorbell)
		inlay_sq_ring_doorbell(&t->sq);
	else
		inlay_sq_ring(&t->sq);
	for (i = 0; i < n; pos += req_bbs(&r[i++]))
		for (psvs = req_psvs(&r[i]), k = 0; k <= psvs; k++) {
			t->more[t->head & 0xffff] = k < psvs;
			last = k ? pos + req_bbs(&r[i]) - psvs + k - 1 : pos;
			t->start[t->head++ & 0xffff] = last;
			swap_wqe(&t->a, k ? NULL : &r[i], t->a.ring, (last * 64) & (bytes - 1), bytes, last);
			swap_wqe(&t->b, k ? NULL : &r[i], t->b.ring, (last * 64) & (bytes - 1), bytes, last);
		}
	/* The last WQE is in the register if it is alone, and else its first 8 bytes */
	for (i = 0; i < 2; i++) {
		l = lib[i];
		swap_wqe(l, n == 1 && last == t->pos ? r : NULL, l->reg + l->half * t->size, 0, t->size, last);
		l->half ^= 1;
	}
	t->pos = pos;
	t->half ^= 1;
}

/* The first byte of so many that is not c's filling, told of; 0 if there is none */
static int spoiled(const struct trio *t, const struct req *r, unsigned n, uint32_t begin, const char *what, const uint8_t *c, uint32_t from)
{
	uint32_t at = from;

	if (all_bytes(c + from, t->size - from, t->salt))
		return 0;
	while (c[at] == t->salt)
		at++;
	return report(t, r, n, begin, what, at, t->salt, c[at]);
}

/* Compares after post_batch. Returns the number of things that are wrong: 0 or 1 */
static int check_batch(struct trio *t, const struct req *r, unsigned n, uint32_t begin)
{
	uint32_t at, known = 0, bytes = t->bbs * 64, pos = begin, ds, k, room = t->bbs - (begin - t->tail_pos);
	const uint8_t *a, *b, *c;

	at = compare(t->a.ring, t->b.ring, t->ring, bytes, &known);
	if (at < bytes)
		return report(t, r, n, begin, "ring", at, t->a.ring[at], t->ring[at]);
	/* ibv_wr_* leaves the immediate alone where there is none */
	if (known < 12 * n)
		fail_msg("libmlx5 wrote %u bytes only", known);
	for (unsigned i = 0; i < n; i++)
		for (k = 0; k <= req_psvs(&r[i]); k++, pos += (ds + 3) / 4) {
			ds = k ? 2 : req_ds(&r[i]);
			at = touched(t, pos, ds, (ds + 3) & ~3u);
			if (at != UINT32_MAX)
				return report(t, r, n, begin, "ring", at, t->salt, t->ring[at]);
		}
	at = touched(t, t->pos, 0, (room - (t->pos - begin)) * 4);
	if (at != UINT32_MAX)
		return report(t, r, n, begin, "free ring", at, t->salt, t->ring[at]);
	compared += known;
	known = 0;
	/* The halves have been toggled already */
	a = t->a.reg + !t->a.half * t->size;
	b = t->b.reg + !t->b.half * t->size;
	c = t->reg + !t->half * t->size;
	at = compare(a, b, c, t->size, &known);
	if (at < t->size)
		return report(t, r, n, begin, "register", at, a[at], c[at]);
	if (known < 8)
		fail_msg("libmlx5 wrote %u bytes to its register", known);
	if (!all_bytes(t->a.reg + t->a.half * t->size, t->size, 0))
		fail_msg("libmlx5 wrote to both halves of its register");
	/* libmlx5's 8-byte doorbell leaves the rest alone: so must inlay's */
	if ((known == 8 && spoiled(t, r, n, begin, "register behind the doorbell", c, 8)) ||
	    spoiled(t, r, n, begin, "the register's other half", t->reg + t->half * t->size, 0))
		return 1;
	if (t->a.dbrec[MLX5_SND_DBR] != t->b.dbrec[MLX5_SND_DBR] || be32toh(t->a.dbrec[MLX5_SND_DBR]) != (t->pos & 0xffff))
		fail_msg("libmlx5's doorbell record is 0x%x", be32toh(t->a.dbrec[MLX5_SND_DBR]));
	if (t->dbrec[MLX5_SND_DBR] != t->a.dbrec[MLX5_SND_DBR]) {
		fprintf(report_to, "%s: doorbell record: libmlx5 0x%08x, inlay 0x%08x\n", K->name, be32toh(t->a.dbrec[MLX5_SND_DBR]),
			be32toh(t->dbrec[MLX5_SND_DBR]));
		return 1;
	}
	compared += known + 4;
	cases++;
	requests += n;
	return 0;
}

/* Sends, writes and reads are decoded as requests, which post the same bytes again (decode.c has more); all else is not */
static void check_decoded(const struct trio *t, const struct req *r, uint32_t pos, uint32_t ds)
{
	static uint8_t copy[64 * 64] __attribute__((aligned(64)));
	struct inlay_decoded d;

	if (r->op == RAW) /* any opcode over any bytes */
		return;
	assert_int_equal(inlay_wqe_decode(t->ring, t->bbs, pos, K->type, &d), (ds + 3) / 4);
	assert_int_equal(d.is_request, r->op <= READ && K->family != PACKET);
	if (d.is_request && t->bbs * 64 <= sizeof(copy))
		must(decoded_again(&d, t->ring, copy, t->bbs, K->type));
}

/* One comparison. The ring's outstanding WQEs are compared along with the new ones */
static void run(struct trio *t, unsigned api, unsigned way, bool doorbell, const struct req *r, unsigned n)
{
	uint32_t begin = t->pos;

	fill_free(t);
	post_batch(t, api, way, doorbell, r, r, n);
	if (check_batch(t, r, n, begin))
		fail();
	for (unsigned i = 0; i < n; begin += req_bbs(&r[i++]))
		check_decoded(t, &r[i], begin, req_ds(&r[i]));
}

/* Goes on to the given slot of the ring, over inline sends that nobody compares; all are completed afterwards */
static void go_to(struct trio *t, uint32_t slot)
{
	uint32_t max = (t->cap.max_inline_data + K->fixed + 4) / 64, need, k;
	struct req r = {};

	if (max > WQE_MAX - 1)
		max = WQE_MAX - 1;
	complete_all(t);
	r.inl = 1;
	r.sge[0].addr = (uintptr_t)data;
	if (has_peers())
		req_peer(&r);
	while ((need = (slot - t->pos) & (t->bbs - 1)) != 0) {
		k = need < max ? need : max ? max : 1;
		r.nsge = k > 1 || K->family == PACKET;
		r.sge[0].length = r.nsge ? k * 64 - K->fixed - 4 : 0;
		/* post_batch looks for the QPN where libmlx5 rang: nothing to clear before */
		post_batch(t, POST_SEND, PLAIN, false, &r, &r, 1);
		if (t->head - t->tail == t->cap.max_send_wr)
			complete_all(t);
	}
	complete_all(t);
}

static uint64_t env_number(const char *name, uint64_t otherwise)
{
	const char *env = getenv(name);

	return env && *env ? strtoull(env, NULL, 0) : otherwise;
}

#endif
