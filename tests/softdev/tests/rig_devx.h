/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rig_devx.h: what the tests of queues by device commands (devx_*.c) share: boxes by bit offsets,
 * registered memory, and CQs, QPs and shared receive queues that are made by commands, posted to
 * and polled by hand. Every function here fails the running test by itself.
 */
#ifndef SOFTDEV_TESTS_RIG_DEVX_H
#define SOFTDEV_TESTS_RIG_DEVX_H

#include "rig.h"

#define BOX 0x400u
#define GUARD 64u                 /* bytes after an outbox that nobody may write */
#define FILL 0xa5
#define ARENA (1u << 20)
#define POST_SIZE 64u             /* bytes of a receive WQE */

enum { OK = 0, BAD_OP = 2, BAD_PARAM = 3, BAD_RES = 5, BUSY = 6, LIMIT = 8, BAD_RES_STATE = 9, BAD_QP_STATE = 0x10, BAD_INLEN = 0x50,
       BAD_OUTLEN = 0x51 };
enum { RC, UC, UD, DCI = 5 };
enum { RST2INIT = 0x502, INIT2RTR, RTR2RTS, RTS2RTS, SQERR2RTS, TO_ERR, TO_RST = 0x50a, QUERY_QP, INIT2INIT = 0x50e };
enum { RST, INIT, RTR, RTS, SQER, ERR = 6 };
enum { M_RRE = 1 << 1, M_RAE = 1 << 2, M_RWE = 1 << 3, M_PKEY = 1 << 4, M_QKEY = 1 << 5, M_RNR = 1 << 6 };

/* Contexts in their boxes, in bits */
enum { CQC = 0x80, QPC = 0xc0, RMPC = 0x100, WQ = 0x280, DCTC = 0x80, PATH = QPC + 0xc0 };

static uint32_t pdn;
static struct mlx5dv_devx_uar *uar, *uar2;

/* ---- fields: bit 0 is the most significant of byte 0 ---- */

UNUSED static uint64_t get(const uint8_t *b, unsigned bit, unsigned width)
{
	uint64_t v = 0;

	for (unsigned i = bit; i < bit + width; i++)
		v = v << 1 | (b[i / 8] >> (7 - i % 8) & 1);
	return v;
}

UNUSED static void put(uint8_t *b, unsigned bit, unsigned width, uint64_t v)
{
	for (unsigned i = 0; i < width; i++) {
		unsigned at = bit + width - 1 - i;

		b[at / 8] = (b[at / 8] & ~(0x80 >> at % 8)) | (v >> i & 1) << (7 - at % 8);
	}
}

/* Several fields of an inbox, or of an answer: { bit, width, value } each */
struct field {
	unsigned bit, width;
	uint64_t value;
};

#define ROWS(type, ...) (const struct type[]){ __VA_ARGS__ }, sizeof((const struct type[]){ __VA_ARGS__ }) / sizeof(struct type)
#define SET(c, ...) set_fields(c, ROWS(field, __VA_ARGS__))
#define EXPECT(c, ...) expect_fields(c, ROWS(field, __VA_ARGS__))
#define REFUSE(c, ...) refuse_all(c, ROWS(wrong, __VA_ARGS__))

struct cmd {
	uint8_t in[BOX], out[BOX + GUARD];
	size_t inlen, outlen;
};

UNUSED static void set_fields(struct cmd *c, const struct field *f, size_t n)
{
	for (; n--; f++)
		put(c->in, f->bit, f->width, f->value);
}

UNUSED static void expect_fields(const struct cmd *c, const struct field *f, size_t n)
{
	for (; n--; f++) {
		uint64_t v = get(c->out, f->bit, f->width);

		if (v != f->value)
			print_error("opcode %x, field %x/%u\n", (unsigned)get(c->in, 0, 16), f->bit, f->width);
		assert_int_equal(v, f->value);
	}
}

UNUSED static struct cmd command(unsigned opcode, size_t inlen, size_t outlen)
{
	struct cmd c = { .inlen = inlen, .outlen = outlen };

	memset(c.out, FILL, sizeof(c.out));
	put(c.in, 0, 16, opcode);
	return c;
}

/* One about the object of a number */
UNUSED static struct cmd command_of(unsigned opcode, size_t inlen, size_t outlen, uint32_t number)
{
	struct cmd c = command(opcode, inlen, outlen);

	put(c.in, 0x48, 24, number);
	return c;
}

#define IN(bit, width, v) put(c.in, bit, width, v)
#define OUT(bit, width) get(c.out, bit, width)

/* ---- the calls; none writes beside the outbox ---- */

static int answered(const struct cmd *c, int err)
{
	assert_true(all_bytes(c->out + c->outlen, sizeof(c->out) - c->outlen, FILL));
	return err;
}

#define CALL(f, about, c) (memset((c)->out, FILL, sizeof((c)->out)), answered(c, f(about, (c)->in, (c)->inlen, (c)->out, (c)->outlen)))

UNUSED static bool untouched(const struct cmd *c)
{
	return all_bytes(c->out, sizeof(c->out), FILL);
}

UNUSED static int general(struct ibv_context *x, struct cmd *c)
{
	return CALL(mlx5dv_devx_general_cmd, x, c);
}

/* The object, or NULL and errno */
UNUSED static struct mlx5dv_devx_obj *create_in(struct ibv_context *x, struct cmd *c)
{
	struct mlx5dv_devx_obj *o;

	errno = 0;
	memset(c->out, FILL, sizeof(c->out));
	o = mlx5dv_devx_obj_create(x, c->in, c->inlen, c->out, c->outlen);
	assert_int_equal(!o, !!answered(c, errno));
	return o;
}

#define ask(o, c) CALL(mlx5dv_devx_obj_query, o, c)

/* A command's status: what the device said, and the call's own answer must fit it */
UNUSED static unsigned verdict(const struct cmd *c, int err)
{
	assert_int_equal(err, c->out[0] ? EREMOTEIO : 0);
	assert_int_equal(!c->out[0], !get(c->out, 0x20, 32));
	return c->out[0];
}

UNUSED static struct mlx5dv_devx_obj *create(struct cmd *c, unsigned *status)
{
	struct mlx5dv_devx_obj *o = create_in(ctx, c);

	*status = verdict(c, errno);
	return o;
}

UNUSED static struct mlx5dv_devx_obj *must_create(struct cmd *c, uint32_t *number)
{
	unsigned status;
	struct mlx5dv_devx_obj *o = create(c, &status);

	if (!o)
		print_error("opcode %x: status %x, syndrome %x\n", (unsigned)get(c->in, 0, 16), status, (unsigned)get(c->out, 0x20, 32));
	assert_non_null(o);
	*number = get(c->out, 0x48, 24);
	return o;
}

UNUSED static unsigned modify(struct mlx5dv_devx_obj *o, struct cmd *c)
{
	return verdict(c, CALL(mlx5dv_devx_obj_modify, o, c));
}

/* One more field of command c, and how the device then takes it */
#define MODIFY(obj, bit, width, v, status) \
	do { \
		IN(bit, width, v); \
		assert_int_equal(modify(obj, &c), status); \
	} while (0)

UNUSED static unsigned query(struct mlx5dv_devx_obj *o, struct cmd *c)
{
	return verdict(c, ask(o, c));
}

UNUSED static struct cmd query_of(unsigned opcode, struct mlx5dv_devx_obj *o, uint32_t number, size_t outlen)
{
	struct cmd c = command_of(opcode, 0x10, outlen, number);

	assert_int_equal(query(o, &c), OK);
	return c;
}

/* The kernel's errno for its own destroy command, 0 when the object is gone */
#define destroy mlx5dv_devx_obj_destroy

/* What one field away from a command that works is answered with */
struct wrong {
	const char *what;
	uint16_t bit;
	uint8_t width;
	uint64_t value;
	uint8_t status;
};

UNUSED static void refuse_all(const struct cmd *good, const struct wrong *w, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct cmd c = *good;
		struct mlx5dv_devx_obj *o;
		unsigned status;

		put(c.in, w[i].bit, w[i].width, w[i].value);
		o = create(&c, &status);
		if (status != w[i].status)
			print_error("%s: status %x, not %x\n", w[i].what, status, w[i].status);
		assert_int_equal(status, w[i].status);
		assert_null(o);
	}
}

/* ---- registered memory: one piece, handed out in parts ---- */

static struct {
	uint8_t *p;
	size_t used;
	struct mlx5dv_devx_umem *umem;
	struct ibv_mr *mr;
} arena;

/* Offset of so many bytes, by 64 */
UNUSED static size_t part(size_t bytes)
{
	size_t at = arena.used;

	arena.used += (bytes + 63) & ~63ul;
	assert_true(arena.used <= ARENA);
	memset(arena.p + at, 0, bytes);
	return at;
}

/* Gives a test the whole of it again */
#define empty_arena() (arena.used = 0)

/* ---- CQ ---- */

struct dcq {
	struct mlx5dv_devx_obj *obj;
	uint32_t cqn, ci, log, cqe_size;
	uint8_t *buf;
	volatile uint32_t *dbrec;
};

UNUSED static struct cmd cq_command(struct dcq *q, unsigned log, unsigned cqe_size)
{
	struct cmd c = command(0x400, 0x110, 0x10);
	size_t buf = part((size_t)cqe_size << log), record = part(8);
	uint32_t eqn;

	must(mlx5dv_devx_query_eqn(ctx, 0, &eqn));
	*q = (struct dcq){ .log = log, .cqe_size = cqe_size, .buf = arena.p + buf, .dbrec = (uint32_t *)(void *)(arena.p + record) };
	for (unsigned i = 0; i < 1u << log; i++)
		q->buf[(i + 1) * cqe_size - 1] = 0xf0;
	SET(&c, { 0x280, 64, buf }, { 0x2c0, 32, arena.umem->umem_id }, { CQC + 0x8, 3, cqe_size == 128 },
	    { CQC + 0x20, 32, arena.umem->umem_id }, { CQC + 0x63, 5, log }, { CQC + 0x68, 24, uar->page_id },
	    { CQC + 0xa0, 32, eqn }, { CQC + 0x1c0, 64, record });
	return c;
}

UNUSED static void open_cq(struct dcq *q, unsigned log, unsigned cqe_size)
{
	struct cmd c = cq_command(q, log, cqe_size);

	q->obj = must_create(&c, &q->cqn);
}

/* The next CQE, or NULL: its 64 bytes, which stay until the ring comes round */
UNUSED static struct mlx5_cqe64 *peek(struct dcq *q)
{
	unsigned i = q->ci & ((1u << q->log) - 1);
	struct mlx5_cqe64 *c = (struct mlx5_cqe64 *)(void *)(q->buf + (i + 1) * q->cqe_size - 64);
	uint8_t own = __atomic_load_n(&c->op_own, __ATOMIC_ACQUIRE);

	return own >> 4 != MLX5_CQE_INVALID && (own & 1) == (q->ci >> q->log & 1) ? c : NULL;
}

UNUSED static struct mlx5_cqe64 *poll_wait(struct dcq *q)
{
	struct mlx5_cqe64 *c;

	until((c = peek(q)));
	q->ci++;
	q->dbrec[0] = htobe32(q->ci & 0xffffff);
	return c;
}

UNUSED static void poll_nothing(struct dcq *q)
{
	usleep(5000);
	assert_null(peek(q));
}

UNUSED static unsigned cqe_op(const struct mlx5_cqe64 *c)
{
	return c->op_own >> 4;
}

/* A good completion of the QP's send WQE at that index */
UNUSED static struct mlx5_cqe64 *sent(struct dcq *q, uint32_t qpn, uint16_t index)
{
	struct mlx5_cqe64 *c = poll_wait(q);

	if (cqe_op(c) == MLX5_CQE_REQ_ERR)
		print_error("syndrome %x\n", ((struct mlx5_err_cqe *)(void *)c)->syndrome);
	assert_int_equal(cqe_op(c), MLX5_CQE_REQ);
	assert_int_equal(be32toh(c->sop_drop_qpn) & 0xffffff, qpn);
	assert_int_equal(be16toh(c->wqe_counter), index);
	return c;
}

UNUSED static void failed(struct dcq *q, bool responder, uint8_t syndrome)
{
	struct mlx5_cqe64 *c = poll_wait(q);

	assert_int_equal(cqe_op(c), responder ? MLX5_CQE_RESP_ERR : MLX5_CQE_REQ_ERR);
	assert_int_equal(((struct mlx5_err_cqe *)(void *)c)->syndrome, syndrome);
}

/* Asks for an event: the record, then the register */
UNUSED static void arm(struct dcq *q, unsigned sn, struct mlx5dv_devx_uar *through)
{
	uint32_t v = sn << 28 | (q->ci & 0xffffff);

	q->dbrec[1] = htobe32(v);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n((uint64_t *)(void *)((uint8_t *)through->base_addr + 0x20), htobe64((uint64_t)v << 32 | q->cqn), __ATOMIC_RELEASE);
}

/* ---- QP ---- */

struct dqp {
	struct mlx5dv_devx_obj *obj;
	uint32_t qpn, log_sq, log_rq, pi, rq_pi;
	unsigned st;
	uint8_t *sq, *rq;
	volatile uint32_t *dbrec;
	struct mlx5dv_devx_uar *uar;
};

/* log_rq 0: none; srqn not 0: a shared one */
UNUSED static struct cmd qp_command(struct dqp *q, unsigned st, unsigned log_sq, unsigned log_rq, uint32_t scqn, uint32_t rcqn,
				    uint32_t srqn)
{
	struct cmd c = command(0x500, 0x110, 0x10);
	size_t rq_bytes = log_rq ? (size_t)POST_SIZE << log_rq : 0, buf = part(rq_bytes + (64ul << log_sq)), record = part(8);

	*q = (struct dqp){ .log_sq = log_sq, .log_rq = log_rq, .st = st, .rq = arena.p + buf, .sq = arena.p + buf + rq_bytes,
			   .dbrec = (uint32_t *)(void *)(arena.p + record), .uar = uar };
	SET(&c, { 0x800, 64, buf }, { 0x840, 32, arena.umem->umem_id }, { QPC + 0x8, 8, st }, { QPC + 0x13, 2, 3 },
	    { QPC + 0x28, 24, pdn }, { QPC + 0x49, 4, log_rq }, { QPC + 0x4d, 3, log_rq ? 2 : 0 }, { QPC + 0x51, 4, log_sq },
	    { QPC + 0x58, 2, 1 }, { QPC + 0x68, 24, uar->page_id }, { QPC + 0x88, 24, 0xabcde }, { QPC + 0x3e8, 24, scqn },
	    { QPC + 0x4e8, 24, rcqn }, { QPC + 0x500, 64, record }, { QPC + 0x565, 3, srqn ? 1 : log_rq ? 0 : 3 },
	    { QPC + 0x568, 24, srqn }, { QPC + 0x720, 32, arena.umem->umem_id });
	return c;
}

UNUSED static void open_qp(struct dqp *q, unsigned st, struct dcq *scq, struct dcq *rcq, uint32_t srqn)
{
	struct cmd c = qp_command(q, st, 6, srqn ? 0 : 6, scq->cqn, rcq->cqn, srqn);

	q->obj = must_create(&c, &q->qpn);
}

/* The MAC address of the port, as an address handle resolves it */
static uint8_t port_mac[6];

/* The command of a step, with all that the step wants; the peer is behind the port that the tests use */
UNUSED static struct cmd step_command(unsigned opcode, uint32_t qpn)
{
	return command_of(opcode, opcode == TO_ERR || opcode == TO_RST ? 0x10 : 0x110, 0x10, qpn);
}

UNUSED static struct cmd to_init(uint32_t qpn, unsigned st)
{
	struct cmd c = step_command(RST2INIT, qpn);

	SET(&c, { QPC + 0x13, 2, 3 }, { PATH + 0x128, 8, 1 }, { QPC + 0x48c, 4, 1 }, { QPC + 0x490, 3, st == UD ? 0 : 7 },
	    { QPC + 0x540, 32, st == UD ? QKEY : 0 });
	return c;
}

UNUSED static struct cmd to_rtr(uint32_t qpn, unsigned st, uint32_t peer)
{
	struct cmd c = step_command(INIT2RTR, qpn);

	SET(&c, { QPC + 0x40, 3, st == UD ? 5 : 3 }, { QPC + 0x43, 5, st == UD ? 12 : 30 });
	if (st == RC || st == UC)
		SET(&c, { QPC + 0xa8, 24, peer }, { QPC + 0x4a8, 24, 0x123456 }, { PATH + 0x128, 8, 1 });
	if (st == RC)
		SET(&c, { QPC + 0x488, 3, 4 }, { QPC + 0x4a3, 5, 1 });
	if ((st == RC || st == UC) && !is_roce())
		IN(PATH + 0x30, 16, port.lid);
	if ((st == RC || st == UC) && is_roce()) {
		SET(&c, { PATH + 0x48, 8, sgid }, { PATH + 0x58, 8, 64 }, { PATH + 0x110, 16, 0xc123 });
		memcpy(c.in + (PATH + 0x80) / 8, gid.raw, 16);
		memcpy(c.in + (PATH + 0x130) / 8, port_mac, 6);
	}
	return c;
}

UNUSED static struct cmd to_rts(uint32_t qpn, unsigned st)
{
	struct cmd c = step_command(RTR2RTS, qpn);

	IN(QPC + 0x3c8, 24, 0x123456);
	if (st == RC || st == DCI)
		SET(&c, { QPC + 0x388, 3, 4 }, { QPC + 0x38d, 3, 3 }, { QPC + 0x390, 3, 7 }, { PATH + 0x40, 5, 1 });
	return c;
}

/* Any step from the table of steps */
UNUSED static struct cmd step_of(const struct dqp *q, unsigned opcode, uint32_t peer)
{
	return opcode == RST2INIT ? to_init(q->qpn, q->st) : opcode == INIT2RTR ? to_rtr(q->qpn, q->st, peer) :
	       opcode == RTR2RTS ? to_rts(q->qpn, q->st) : step_command(opcode, q->qpn);
}

UNUSED static void walk(struct dqp *q, uint32_t peer)
{
	for (unsigned op = RST2INIT; op <= RTR2RTS; op++) {
		struct cmd c = step_of(q, op, peer);

		assert_int_equal(modify(q->obj, &c), OK);
	}
}

UNUSED static struct cmd qp_query(const struct dqp *q)
{
	return query_of(QUERY_QP, q->obj, q->qpn, 0x110);
}

/* Of one made by verbs */
UNUSED static struct cmd verbs_qp(struct ibv_qp *q)
{
	struct cmd c = command_of(QUERY_QP, 0x10, 0x110, q->qp_num);

	must(CALL(mlx5dv_devx_qp_query, q, &c));
	return c;
}

UNUSED static unsigned qp_state(const struct dqp *q)
{
	struct cmd c = qp_query(q);

	return OUT(QPC, 4);
}

UNUSED static unsigned stop(struct dqp *q, unsigned opcode)
{
	struct cmd c = step_command(opcode, q->qpn);

	return modify(q->obj, &c);
}

/* ---- work by hand: segments of 16 bytes, one after the other ---- */

UNUSED static uint8_t *wqe(struct dqp *q)
{
	return q->sq + ((q->pi & ((1u << q->log_sq) - 1)) << 6);
}

UNUSED static uint8_t *seg_raddr(uint8_t *at, uint64_t addr, uint32_t rkey)
{
	struct mlx5_wqe_raddr_seg r = { .raddr = htobe64(addr), .rkey = htobe32(rkey) };

	memcpy(at, &r, sizeof(r));
	return at + sizeof(r);
}

UNUSED static uint8_t *seg_data(uint8_t *at, const void *p, uint32_t len, uint32_t lkey)
{
	struct mlx5_wqe_data_seg d = { htobe32(len), htobe32(lkey), htobe64((uintptr_t)p) };

	memcpy(at, &d, sizeof(d));
	return at + sizeof(d);
}

/*
 * Writes the control segment in front of what ends at end, and the record; returns the WQE's index.
 * Not rung
 */
UNUSED static uint16_t commit(struct dqp *q, unsigned opcode, const uint8_t *end, uint32_t imm)
{
	uint8_t *at = wqe(q);
	struct mlx5_wqe_ctrl_seg c = { .opmod_idx_opcode = htobe32((q->pi & 0xffff) << 8 | opcode),
				       .qpn_ds = htobe32(q->qpn << 8 | (uint32_t)((end - at) / 16)), .fm_ce_se = 8, .imm = htobe32(imm) };
	uint16_t index = q->pi;

	memcpy(at, &c, sizeof(c));
	q->pi += ((end - at) + 63) / 64;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	q->dbrec[1] = htobe32(q->pi & 0xffff);
	return index;
}

UNUSED static void ring(struct dqp *q, uint16_t index, struct mlx5dv_devx_uar *through)
{
	uint64_t v;

	memcpy(&v, q->sq + ((index & ((1u << q->log_sq) - 1)) << 6), 8);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n((uint64_t *)through->reg_addr, v, __ATOMIC_RELEASE);
}

UNUSED static uint16_t post_one(struct dqp *q, unsigned opcode, const uint8_t *end, uint32_t imm)
{
	uint16_t index = commit(q, opcode, end, imm);

	ring(q, index, q->uar);
	return index;
}

UNUSED static uint16_t do_write(struct dqp *q, const void *from, uint32_t lkey, uint32_t len, uint64_t to, uint32_t rkey)
{
	return post_one(q, MLX5_OPCODE_RDMA_WRITE, seg_data(seg_raddr(wqe(q) + 16, to, rkey), from, len, lkey), 0);
}

UNUSED static uint16_t do_send(struct dqp *q, const void *from, uint32_t lkey, uint32_t len)
{
	return post_one(q, MLX5_OPCODE_SEND, seg_data(wqe(q) + 16, from, len, lkey), 0);
}

/* A receive into the QP's own queue */
UNUSED static void do_recv(struct dqp *q, void *to, uint32_t lkey, uint32_t len)
{
	uint8_t *at = q->rq + (q->rq_pi & ((1u << q->log_rq) - 1)) * POST_SIZE;

	seg_data(seg_data(at, to, len, lkey), NULL, 0, MLX5_INVALID_LKEY);
	q->rq_pi++;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	q->dbrec[0] = htobe32(q->rq_pi & 0xffff);
}

/*
 * ---- work queues, as they stand in the contexts of RMP, XRQ, RQ and SQ; entries of 64 bytes ----
 */

UNUSED static void set_wq(struct cmd *c, unsigned wq, unsigned type, unsigned log, size_t record, size_t buf)
{
	SET(c, { wq, 4, type }, { wq + 0x48, 24, pdn }, { wq + 0x80, 64, record }, { wq + 0x10c, 4, 6 }, { wq + 0x11b, 5, log },
	    { wq + 0x140, 32, arena.umem->umem_id }, { wq + 0x160, 32, arena.umem->umem_id }, { wq + 0x180, 64, buf });
}

/* ---- RMP ---- */

UNUSED static struct cmd rmp_command(unsigned type, unsigned log)
{
	struct cmd c = command(0x90c, 0x110, 0x10);
	size_t buf = part((size_t)POST_SIZE << log), record = part(8);

	IN(RMPC + 0x8, 4, 1);
	set_wq(&c, WQ, type, log, record, buf);
	return c;
}

struct drmp {
	struct mlx5dv_devx_obj *obj;
	uint32_t rmpn;
};

UNUSED static void open_rmp(struct drmp *r, unsigned type, unsigned log)
{
	struct cmd c = rmp_command(type, log);

	r->obj = must_create(&c, &r->rmpn);
}

/* ---- events ---- */

UNUSED static struct mlx5dv_devx_event_channel *a_channel(bool data)
{
	struct mlx5dv_devx_event_channel *ch = mlx5dv_devx_create_event_channel(ctx, data ? (enum mlx5dv_devx_create_event_channel_flags)0 :
										MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA);

	assert_non_null(ch);
	return ch;
}

UNUSED static void subscribe(struct mlx5dv_devx_event_channel *ch, struct mlx5dv_devx_obj *o, uint16_t type, uint64_t cookie)
{
	must(mlx5dv_devx_subscribe_devx_event(ch, o, sizeof(type), &type, cookie));
}

/* The next event of a channel with data: its type and its number */
UNUSED static void expect_devx(struct mlx5dv_devx_event_channel *ch, uint64_t cookie, unsigned type, uint32_t number)
{
	/* The cookie, then the EQE */
	uint64_t ev[9];
	const uint8_t *eqe = (uint8_t *)&ev[1];

	assert_true(readable(ch->fd, PATIENCE * 1000));
	assert_int_equal(mlx5dv_devx_get_event(ch, (struct mlx5dv_devx_async_event_hdr *)(void *)ev, sizeof(ev)), sizeof(ev));
	assert_int_equal(ev[0], cookie);
	assert_int_equal(eqe[1], type);
	assert_int_equal(get(eqe, 8 * (type == 4 ? 0x20 : 0x38) + 8, 24), number);
}

UNUSED static void expect_no_devx(struct mlx5dv_devx_event_channel *ch)
{
	assert_false(readable(ch->fd, 20));
}

/* ---- the group ---- */

UNUSED static int devx_setup(void **state)
{
	struct mlx5dv_pd dv_pd = { 0 };
	struct mlx5dv_ah dv = { 0 };

	if (setup(state) || mlx5dv_init_obj(&(struct mlx5dv_obj){ .pd = { pd, &dv_pd } }, MLX5DV_OBJ_PD))
		return -1;
	pdn = dv_pd.pdn;
	uar = mlx5dv_devx_alloc_uar(ctx, MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC);
	/* Of one kind libmlx5 gives the same page twice */
	uar2 = mlx5dv_devx_alloc_uar(ctx, MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF);
	if (!uar || !uar2 || uar->page_id == uar2->page_id)
		return -1;
	if (is_roce()) {
		ah = own_ah();
		must(mlx5dv_init_obj(&(struct mlx5dv_obj){ .ah = { ah, &dv } }, MLX5DV_OBJ_AH));
		memcpy(port_mac, dv.av->rmac, 6);
		must(ibv_destroy_ah(ah));
	}
	arena.p = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	arena.umem = mlx5dv_devx_umem_reg(ctx, arena.p, ARENA, IBV_ACCESS_LOCAL_WRITE);
	arena.mr = ibv_reg_mr(pd, arena.p, ARENA, ALL_ACCESS);
	return arena.umem && arena.mr ? 0 : -1;
}

UNUSED static int devx_teardown(void **state)
{
	must(mlx5dv_devx_umem_dereg(arena.umem) || ibv_dereg_mr(arena.mr));
	munmap(arena.p, ARENA);
	mlx5dv_devx_free_uar(uar);
	mlx5dv_devx_free_uar(uar2);
	return teardown(state);
}

/* The end of main(): once per link, with device commands */
UNUSED static int devx_main(bool trap)
{
	skip_all_if(!softdev_present(), "what firmware answers is known of the software device alone");
	setenv("SOFTDEV_DEVX", "1", 1); /* read when a device is first asked for */
	if (!getenv("SOFTDEV_LINK") && again_with("SOFTDEV_LINK", "ib"))
		return 1;
	if (trap && !NO_TRAPS && !getenv("SOFTDEV_LINK") && again_with("SOFTDEV_TRAP", "1"))
		return 1;
	return run_all(devx_setup, devx_teardown);
}

#endif
