/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rig.h: what the tests of the builders share, beside common.h: a context that is open for
 * commands, memory that commands may name, one end of a connection that is made of it or of verbs,
 * and operations of all kinds between two ends.
 *
 * A test makes its ends with side_make, connects them, and gives them back with side_free, which
 * fails where something is left.
 */
#ifndef TESTS_DEVX_RIG_H
#define TESTS_DEVX_RIG_H

#include "common.h"
#include <fcntl.h>
#include <inlay/devx.h>

#define ARENA (8u << 20)       /* bytes of the umem */
#define RECORDS 16384u         /* of which the first are for doorbell records */
#define PSN 0xfffff0u          /* comes round early; common.h's ends begin there too */
#define BYTES (1u << 20)       /* of each end's buffer, in four quarters */
#define QUARTER (BYTES / 4)

static struct {
	struct inlay_devx_umem umem;
	struct inlay_devx_uar uar; /* doorbells only; any number of queues */
	uint8_t *memory;
	uint64_t records, rings;   /* bytes taken */
	uint32_t pdn;
	bool errno_only;           /* the kernel turns a refused command's status into an errno */
} rig;

/* ---- group set-up ---- */

UNUSED static int rig_open(void **state)
{
	struct ibv_context *ctx;
	const char *env = getenv("SOFTDEV_DEVX");
	int err;

	if (dev_open(state))
		return -1;
	err = inlay_devx_open(dev.ctx->device, &ctx);
	if (err) {
		print_error("no device commands: %s\n", strerror(-err));
		return -1;
	}
	ibv_dealloc_pd(dev.pd);
	ibv_close_device(dev.ctx);
	dev.ctx = ctx;
	dev.pd = ibv_alloc_pd(ctx);
	if (!dev.pd || inlay_pdn_from_pd(&rig.pdn, dev.pd))
		return -1;
	rig.errno_only = env && !strcmp(env, "errno");
	rig.memory = (uint8_t *)pages(ARENA);
	if (inlay_devx_umem_reg(&rig.umem, ctx, rig.memory, ARENA, IBV_ACCESS_LOCAL_WRITE, INLAY_DEVX_PAGE))
		return -1;
	return inlay_devx_uar_alloc(&rig.uar, ctx, MLX5DV_UAR_ALLOC_TYPE_NC, INLAY_UAR_DOORBELL) ? -1 : 0;
}

/* That all can be given back tells that every test has cleaned up behind itself */
UNUSED static int rig_close(void **state)
{
	if (inlay_devx_uar_free(&rig.uar) || inlay_devx_umem_dereg(&rig.umem))
		return -1;
	free(rig.memory);
	return dev_close(state);
}

/* Whether there is anything to test: a real device, its kernel or our rights need not allow commands */
UNUSED static bool rig_here(void)
{
	struct ibv_context *ctx, *commands;
	int err;

	if (softdev_present())
		return true;
	ctx = dev_context();
	err = ctx ? inlay_devx_open(ctx->device, &commands) : -ENODEV;
	if (!err)
		ibv_close_device(commands);
	if (ctx)
		ibv_close_device(ctx);
	if (err)
		printf("1..0 # skipped: no device commands: %s\n", strerror(-err));
	return !err;
}

/* Each test: the whole arena, of bytes that no ring may do with */
UNUSED static int rig_empty(UNUSED void **state)
{
	rig.records = 0;
	rig.rings = RECORDS;
	memset(rig.memory, 0xa5, ARENA);
	return 0;
}

/* An object's context, by a query of its number */
#define context(object, op, number, out) \
	inlay_devx_query_context((object)->obj, INLAY_CMD_OP_QUERY_##op, (object)->number, out, sizeof(*(out)), \
				 &(object)->error)

/* A channel for events that does not wait. bare: events are cookies alone */
UNUSED static struct mlx5dv_devx_event_channel *channel_open(bool bare)
{
	struct mlx5dv_devx_event_channel *channel;

	channel = made(mlx5dv_devx_create_event_channel(dev.ctx, (enum mlx5dv_devx_create_event_channel_flags)(
		bare ? MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA : 0)));
	must(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK));
	return channel;
}

#define devx_test(f) TEST_WITH(f, rig_empty, NULL)

/* The whole program once more under a kernel that keeps a refused command's outbox to itself */
UNUSED static int again_errno(void)
{
	if (getenv("SOFTDEV_DEVX") && !strcmp(getenv("SOFTDEV_DEVX"), "1"))
		unsetenv("SOFTDEV_DEVX");
	return again_with("SOFTDEV_DEVX", "errno");
}

static inline bool trapping(void)
{
	const char *env = getenv("SOFTDEV_TRAP");

	return env && *env && strcmp(env, "0");
}

/* ---- places ---- */

static inline struct inlay_devx_place place_record(void)
{
	const struct inlay_devx_place place = {&rig.umem, rig.records};

	rig.records += 64;
	assert_true(rig.records <= RECORDS);
	return place;
}

static inline struct inlay_devx_place place_ring(size_t bytes)
{
	const struct inlay_devx_place place = {&rig.umem, rig.rings};

	assert_true(bytes && rig.rings + bytes <= ARENA);
	rig.rings += (bytes + INLAY_DEVX_PAGE - 1) & ~(uint64_t)(INLAY_DEVX_PAGE - 1);
	return place;
}

/* A queue begins with both words of its doorbell record 0 (a CQ's arm word is the device's) */
static inline void record_is_clear(struct inlay_devx_place place)
{
	assert_true(all_bytes(place.umem->addr + place.offset, 8, 0));
}

/* ---- objects ---- */

static inline struct inlay_devx_cq_attr cq_want(uint32_t cqes, uint32_t cqe_size)
{
	const struct inlay_devx_place ring = place_ring(cqes * cqe_size);

	return (struct inlay_devx_cq_attr){ring, place_record(), &rig.uar, cqes, cqe_size, 0, 0, 0, 0, 0};
}

UNUSED static void cq_open(struct inlay_devx_cq *cq, uint32_t cqes, uint32_t cqe_size)
{
	struct inlay_devx_cq_attr attr = cq_want(cqes, cqe_size);

	must(inlay_devx_cq_create(cq, dev.ctx, &attr));
}

static inline struct inlay_devx_qp_attr qp_want(uint32_t send_cqn, uint32_t recv_cqn, uint32_t bbs, uint32_t wqes)
{
	const uint32_t stride = wqes ? 64 : 0;
	const struct inlay_devx_qp_attr attr = {
		.ring = place_ring(INLAY_WQEBB * bbs + wqes * stride), .record = place_record(), .uar = &rig.uar, .pdn = rig.pdn,
		.send_cqn = send_cqn, .recv_cqn = recv_cqn, .sq_bbs = bbs, .rq_wqes = wqes, .rq_stride = stride,
	};

	return attr;
}

/* A QP that receives through a shared queue */
static inline struct inlay_devx_qp_attr qp_on(uint32_t type, uint32_t cqn, uint32_t bbs, uint32_t srqn)
{
	struct inlay_devx_qp_attr attr = qp_want(cqn, cqn, bbs, 0);

	attr.type = type;
	attr.rq_type = INLAY_RQ_TYPE_SHARED;
	attr.srqn = srqn;
	return attr;
}

/* Connects a QP to itself */
UNUSED static int qp_to_itself(struct inlay_devx_qp *qp, const struct inlay_devx_path *path)
{
	struct inlay_connect_record mine;
	int err = inlay_devx_qp_address(qp, path, &mine);

	return err ? err : inlay_devx_qp_connect(qp, path, &mine);
}

static inline struct inlay_devx_srq_attr srq_want(uint32_t entries, uint32_t stride, uint32_t flags)
{
	const struct inlay_devx_place ring = place_ring(entries * stride);

	return (struct inlay_devx_srq_attr){ring, place_record(), NULL, rig.pdn, entries, stride, flags, {0, 0, 0}, 0, 0, 0};
}

UNUSED static void srq_open(struct inlay_devx_srq *rmp, uint32_t entries, uint32_t flags)
{
	struct inlay_devx_srq_attr attr = srq_want(entries, 64, flags);

	must(inlay_devx_srq_create(rmp, dev.ctx, &attr));
	record_is_clear(attr.record);
}

static inline struct inlay_devx_path path_usual(void)
{
	struct inlay_devx_path path;

	path = inlay_devx_path_defaults();
	path.gid_index = (uint8_t)dev.gid_index;
	path.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	path.psn = PSN;
	path.qkey = QKEY;
	path.mtu = IBV_MTU_1024;
	path.timeout = 10;
	path.min_rnr_timer = 1;
	return path;
}

/* ---- ends ---- */

/* What a test wants of an end; all 0: RC by commands, CQEs of 64 bytes, doorbells, queues of 64 */
struct how {
	bool verbs;       /* all of it is made by verbs */
	bool blueflame;   /* a register of its own */
	bool one_cq;      /* of both sides; by commands only */
	uint32_t type;    /* INLAY_QP_ST_RC or _UC or _UD */
	uint32_t cqe_size, scatter, bbs, wqes, flags;
	uint32_t srqn;    /* receives through it */
};

UNUSED static struct how plain; /* all 0 */

struct side {
	struct how how;
	struct end verbs;
	struct inlay_devx_qp qp;
	struct inlay_devx_cq scq, rcq;
	struct inlay_devx_uar own;
	struct inlay_devx_path path;
	/* Of whichever kind it is */
	struct inlay_sq *sq;
	struct inlay_rq *rq;
	struct inlay_cq *cq, *rxcq;
	uint32_t qpn;
	uint8_t *buf;
	struct ibv_mr *mr;
};

static inline struct opt side_opt(const struct how *how)
{
	struct opt opt = usual;

	opt.type = how->type == INLAY_QP_ST_UD ? IBV_QPT_UD : how->type == INLAY_QP_ST_UC ? IBV_QPT_UC : IBV_QPT_RC;
	opt.cqe_size = how->cqe_size ? (int)how->cqe_size : 64;
	opt.scatter = how->scatter != 0;
	opt.bytes = BYTES;
	return opt;
}

/* The attributes of the QP that an end wants; its CQs are there */
static inline struct inlay_devx_qp_attr side_want(struct side *s)
{
	uint32_t bbs = s->how.bbs ? s->how.bbs : 64, wqes = s->how.srqn ? 0 : s->how.wqes ? s->how.wqes : 64;
	struct inlay_devx_qp_attr attr = qp_want(s->cq->cqn, s->rxcq->cqn, bbs, wqes);

	attr.type = s->how.type;
	attr.flags = s->how.flags;
	attr.user_index = s->how.flags & INLAY_DEVX_QP_USER_INDEX ? 0x5a5a5a : 0;
	attr.uar = s->how.blueflame ? &s->own : &rig.uar;
	attr.scatter_req = attr.scatter_res = s->how.scatter;
	attr.rq_type = s->how.srqn ? (uint32_t)INLAY_RQ_TYPE_SHARED : 0;
	attr.srqn = s->how.srqn;
	return attr;
}

UNUSED static void side_make(struct side *s, const struct how *how)
{
	const uint32_t cqe_size = how->cqe_size ? how->cqe_size : 64;
	struct inlay_devx_qp_attr attr;
	struct opt opt = side_opt(how);

	memset(s, 0, sizeof(*s));
	s->how = *how;
	s->path = path_usual();
	if (how->verbs) {
		end_make(&s->verbs, &opt);
		end_take(&s->verbs, INLAY_UAR_DOORBELL);
		s->sq = &s->verbs.sq;
		s->rq = &s->verbs.rq;
		s->cq = &s->verbs.cq;
		s->rxcq = &s->verbs.rxcq;
		s->qpn = s->verbs.qp->qp_num;
		s->buf = s->verbs.buf;
		s->mr = s->verbs.mr;
		return;
	}
	cq_open(&s->scq, 256, cqe_size);
	if (!how->one_cq)
		cq_open(&s->rcq, 256, cqe_size);
	s->cq = &s->scq.cq;
	s->rxcq = how->one_cq ? s->cq : &s->rcq.cq;
	if (how->blueflame)
		must(inlay_devx_uar_alloc(&s->own, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL));
	attr = side_want(s);
	must(inlay_devx_qp_create(&s->qp, dev.ctx, &attr));
	record_is_clear(attr.record);
	assert_int_equal(s->qp.state, INLAY_QP_STATE_RST);
	s->sq = &s->qp.sq;
	s->rq = &s->qp.rq;
	s->qpn = s->qp.qpn;
	s->buf = (uint8_t *)pages(BYTES);
	s->mr = made(ibv_reg_mr(dev.pd, s->buf, BYTES, ALL_ACCESS));
}

UNUSED static void side_free(struct side *s)
{
	if (s->how.verbs) {
		end_free(&s->verbs);
		return;
	}
	must(inlay_devx_qp_destroy(&s->qp));
	must(inlay_devx_uar_free(&s->own));
	must(inlay_devx_cq_destroy(&s->scq));
	must(inlay_devx_cq_destroy(&s->rcq));
	must(ibv_dereg_mr(s->mr));
	free(s->buf);
	memset(s, 0, sizeof(*s));
}

/* What the peer is told: a QP of verbs has no function for it, its port has */
UNUSED static void side_address(struct side *s, struct inlay_connect_record *address)
{
	memset(address, 0xee, sizeof(*address));
	if (!s->how.verbs) {
		must(inlay_devx_qp_address(&s->qp, &s->path, address));
		assert_int_equal(address->qpn, s->qpn);
		return;
	}
	memset(address, 0, sizeof(*address));
	must(inlay_connect_port(address, dev.ctx, 1, dev.gid_index, NULL));
	must(inlay_devx_address_resolve(address, dev.pd, &s->path));
	address->type = (uint8_t)s->verbs.qp->qp_type;
	address->qpn = s->qpn;
	address->psn = PSN;
	address->rd_atomic = (uint8_t)side_opt(&s->how).rd_atomic;
}

/* To RTS, when the peer is in this process and on this port */
UNUSED static void side_connect(struct side *s, struct side *peer)
{
	struct opt opt = side_opt(&s->how);
	struct inlay_connect_record address;

	if (s->how.verbs) {
		qp_init(s->verbs.qp, &opt);
		qp_connect(s->verbs.qp, peer->qpn, &opt);
		return;
	}
	side_address(peer, &address);
	must(inlay_devx_qp_connect(&s->qp, &s->path, s->how.type == INLAY_QP_ST_UD ? NULL : &address));
	assert_int_equal(s->qp.state, INLAY_QP_STATE_RTS);
}

UNUSED static void sides_make(struct side *a, const struct how *how_a, struct side *b, const struct how *how_b)
{
	side_make(a, how_a);
	side_make(b, how_b);
	side_connect(a, b);
	side_connect(b, a);
}

UNUSED static void sides_free(struct side *a, struct side *b)
{
	side_free(a);
	side_free(b);
}

static inline struct ibv_sge piece(const struct side *s, size_t offset, size_t len)
{
	return (struct ibv_sge){(uintptr_t)s->buf + offset, (uint32_t)len, s->mr->lkey};
}

static inline uint64_t at_peer(const struct side *s, size_t offset)
{
	return (uintptr_t)s->buf + offset;
}

/* ---- completions ---- */

static uint32_t blocks; /* of compressed CQEs, seen since the program began */

/* The next completion, unzipped if it must be */
static inline const struct mlx5_cqe64 *cqe_next(struct inlay_cq *cq)
{
	const struct mlx5_cqe64 *cqe = cqe_wait(cq);

	if (inlay_cqe_is_compressed(cqe)) {
		assert_true(inlay_cq_unzip(cq) > 0);
		blocks++;
		assert_true(inlay_cq_peek(cq) == cqe && !inlay_cqe_is_compressed(cqe));
	}
	return cqe;
}

/* Takes a send completion of WQE `index`: credit and slot go back. What is in the CQE goes to `to`, as its owner would have it */
UNUSED static void take_sent(struct side *s, uint32_t index, uint8_t *to)
{
	const struct mlx5_cqe64 *cqe = cqe_next(s->cq);
	const void *payload;

	if (inlay_cqe_is_error(cqe))
		inlay_cqe_print(stderr, cqe);
	assert_true(inlay_cqe_opcode(cqe) == MLX5_CQE_REQ && inlay_cqe_qpn(cqe) == s->qpn);
	assert_int_equal(inlay_cqe_wqe_counter(cqe), (uint16_t)index);
	payload = inlay_cqe_data(cqe, s->cq->stride, NULL);
	assert_true((payload != NULL) == inlay_cqe_is_scattered(cqe) && (!payload || (to && s->how.scatter)));
	if (payload && to) {
		assert_true(inlay_cqe_byte_count(cqe) <= s->how.scatter);
		memcpy(to, payload, inlay_cqe_byte_count(cqe));
		/* An atomic's is big-endian there, whatever memory gets; operate() has no other */
		if (inlay_cqe_send_opcode(cqe) == MLX5_OPCODE_ATOMIC_FA) {
			uint64_t word;

			assert_int_equal(inlay_cqe_byte_count(cqe), 8);
			memcpy(&word, to, 8);
			word = inlay_from_be64(word);
			memcpy(to, &word, 8);
		}
	}
	assert_true(0 < inlay_sq_release(s->sq, cqe));
	inlay_cq_advance(s->cq, 1);
}

/* Takes a receive completion; `to` is where its receive was posted */
UNUSED static void take_received(struct side *s, uint8_t opcode, uint32_t len, uint32_t imm_be, uint8_t *to)
{
	const struct mlx5_cqe64 *cqe = cqe_next(s->rxcq);
	const void *payload;

	if (inlay_cqe_is_error(cqe))
		inlay_cqe_print(stderr, cqe);
	assert_true(inlay_cqe_opcode(cqe) == opcode && inlay_cqe_qpn(cqe) == s->qpn);
	assert_int_equal(inlay_cqe_byte_count(cqe), len);
	if (opcode != MLX5_CQE_RESP_SEND)
		assert_int_equal(inlay_cqe_imm_be(cqe), imm_be);
	if (s->how.flags & INLAY_DEVX_QP_USER_INDEX)
		assert_int_equal(inlay_from_be32(cqe->srqn_uidx) & 0xffffff, 0x5a5a5a);
	payload = inlay_cqe_data(cqe, s->rxcq->stride, NULL);
	assert_true((payload != NULL) == inlay_cqe_is_scattered(cqe) && (!payload || (to && len <= s->how.scatter)));
	if (payload && to)
		memcpy(to, payload, len);
	if (!s->how.srqn)
		assert_true(0 < inlay_rq_release(s->rq, cqe));
	inlay_cq_advance(s->rxcq, 1);
}

/* ---- traffic ---- */

enum op { OP_WRITE, OP_WRITE_IMM, OP_READ, OP_SEND_IMM, OP_SEND_INLINE, OP_ADD, OPS };

/*
 * One operation from a to b and all that can be seen of it. A buffer's quarters: what is received, what is sent, what the peer writes to
 * and reads, what reads and atomics bring.
 */
UNUSED static void operate(struct side *a, struct side *b, enum op op, uint32_t len, uint32_t seed)
{
	const size_t sent = QUARTER + rnd_below(1024), there = 2 * QUARTER + 8 * rnd_below(128), brought = 3 * QUARTER + 8 * rnd_below(128);
	const uint8_t answer = op == OP_SEND_IMM ? MLX5_CQE_RESP_SEND_IMM : op == OP_SEND_INLINE ? MLX5_CQE_RESP_SEND :
			       op == OP_WRITE_IMM ? MLX5_CQE_RESP_WR_IMM : 0;
	const uint32_t imm = (uint32_t)seed * 77777, index = inlay_sq_index(a->sq);
	const uint64_t remote = at_peer(b, there), word = 0x0123456789abcdefull * seed;
	struct ibv_sge to = piece(b, 0, len), sge = piece(a, op == OP_READ ? brought : sent, len), result = piece(a, brought, 8);
	uint8_t *at = op == OP_READ ? a->buf + brought : b->buf + (op == OP_SEND_IMM || op == OP_SEND_INLINE ? 0 : there);
	uint64_t old[2];

	if (answer) {
		must(inlay_post_recv(b->rq, &to, 1));
		inlay_rq_ring(b->rq);
	}
	memset(at, 0, len + 1);
	fill(op == OP_READ ? b->buf + there : a->buf + sent, len, seed);
	switch (op) {
	case OP_WRITE: must(inlay_post_write(a->sq, remote, b->mr->rkey, &sge, 1, INLAY_SIGNALED)); break;
	case OP_WRITE_IMM: must(wr_post(a->sq, MLX5_OPCODE_RDMA_WRITE_IMM, wr_imm(wr_at(wr_sge(&sge, 1), remote, b->mr->rkey), imm), INLAY_SIGNALED)); break;
	case OP_READ: must(inlay_post_read(a->sq, remote, b->mr->rkey, &sge, 1, INLAY_SIGNALED)); break;
	case OP_SEND_IMM: must(wr_post(a->sq, MLX5_OPCODE_SEND_IMM, wr_imm(wr_sge(&sge, 1), imm), INLAY_SIGNALED)); break;
	case OP_SEND_INLINE: must(inlay_post_send_inline(a->sq, a->buf + sent, len, INLAY_SIGNALED)); break;
	default:
		memcpy(b->buf + there, &word, 8);
		must(wr_atomic(a->sq, inlay_atomic_add(seed), wr_at(wr_sge(&result, 1), remote, b->mr->rkey), INLAY_SIGNALED));
	}
	inlay_sq_ring(a->sq);
	if (answer)
		take_received(b, answer, len, imm, b->buf);
	/* What a read brought may be in the CQE, and then not in the piece: put it where that begins */
	take_sent(a, index, a->buf + brought);
	assert_int_equal(inlay_sq_pending(a->sq), 0);
	if (op == OP_ADD) {
		memcpy(&old[0], a->buf + brought, 8);
		memcpy(&old[1], b->buf + there, 8);
		assert_true(old[0] == word && old[1] == word + seed);
		return;
	}
	assert_true(differs(at, len, seed) == len && !at[len]);
}

/* n operations of all kinds and in both directions */
UNUSED static void exercise(struct side *a, struct side *b, uint32_t n)
{
	static const uint32_t lengths[] = {0, 1, 4, 8, 31, 32, 33, 63, 64, 65, 128, 1000, 1023, 1024, 1025, 3000, 9000, 40000};
	uint32_t i, op, len;

	for (i = 0; i < n; i++) {
		op = rnd_below(OPS);
		len = lengths[rnd_below(op == OP_SEND_INLINE ? 11 : ARRAY(lengths))];
		operate(i & 1 ? a : b, i & 1 ? b : a, (enum op)op, len, i + 1);
	}
	assert_true(!inlay_cq_peek(a->cq) && !inlay_cq_peek(a->rxcq) && !inlay_cq_peek(b->cq) && !inlay_cq_peek(b->rxcq));
}

#endif
