/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * devx.c: device commands: which of them come by which call, statuses, registered memory, uids, events, capabilities, and the keys that
 * are refused. What good keys do: tests/devx/queues.c, memdomain.
 */
#include "rig_devx.h"
#include <sys/eventfd.h>

#define ROOM 0x200u               /* bytes of a box, more than most commands want */

static struct ibv_context *second, *other; /* another context of the same device, one of another device */

static struct mlx5dv_devx_obj *simple(struct ibv_context *x, unsigned opcode, uint32_t *number)
{
	struct cmd c = command(opcode, 16, 16);
	struct mlx5dv_devx_obj *o = create_in(x, &c);

	assert_non_null(o);
	*number = opcode == 0x771 ? OUT(0x58, 8) : OUT(0x48, 24);
	return o;
}

/* A query of a set of counters, the one simple object that can be asked */
static struct cmd counters(uint32_t number, size_t outlen)
{
	struct cmd c = command(0x773, 0x20, outlen);

	IN(0xf8, 8, number);
	return c;
}

/* A PSV of a PD */
static struct cmd psv(uint32_t of)
{
	struct cmd c = command_of(0x600, 16, 0x20, of);

	IN(0x40, 4, 1);
	return c;
}

/* A command that the firmware refuses */
static void refused(struct ibv_context *x, struct cmd *c, unsigned with)
{
	must_refuse(create_in(x, c), EREMOTEIO);
	assert_int_equal(c->out[0], with);
	assert_int_not_equal(get(c->out, 0x20, 32), 0);
}

static uint8_t *pages(unsigned n)
{
	uint8_t *p = mmap(NULL, n * 4096u, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

/* ---- which command comes by which call: the kernel's lists ---- */

static const uint16_t creates[] = {
	0x200, 0x400, 0x500, 0x600, 0x700, 0x705, 0x710, 0x717, 0x771, 0x782, 0x800, 0x806, 0x80e, 0x816, 0x827, 0x829, 0x900, 0x904, 0x908,
	0x90c, 0x912, 0x916, 0x930, 0x933, 0x936, 0x939, 0x93d, 0x940, 0xa00,
};
static const uint16_t generals[] = {
	0x100, 0x101, 0x10a, 0x740, 0x750, 0x752, 0x754, 0x760, 0x762, 0x76f, 0x770, 0x80a, 0x80d, 0x822, 0x824, 0x826, 0x842,
};

static bool in(const uint16_t *list, size_t n, unsigned opcode)
{
	while (n && list[n - 1] != opcode)
		n--;
	return n;
}

/* What is not listed never reaches the firmware */
static void passes(const char *by, unsigned op, bool listed, int err, const struct cmd *c)
{
	if (listed ? err && err != EREMOTEIO : err != EINVAL || !untouched(c))
		fail_msg("%s, opcode %x: %d", by, op, err);
	assert_true(err != EREMOTEIO || c->out[0]);
}

TEST(by_opcode)
{
	uint32_t eqn;

	must(mlx5dv_devx_query_eqn(ctx, 0, &eqn));
	for (unsigned op = 0; op <= 0xfff; op++) {
		struct cmd c = command(op, ROOM, ROOM);
		struct mlx5dv_devx_obj *o;

		passes("general", op, in(generals, ARRAY(generals), op) || (op >= 0xb00 && op < 0xd00), general(ctx, &c), &c);
		if (op == 0x600)
			IN(0x40, 4, 1);
		if (op == 0x400)
			IN(CQC + 0xa0, 32, eqn);
		o = create_in(ctx, &c);
		passes("create", op, in(creates, ARRAY(creates), op), errno, &c);
		if (o)
			must(destroy(o));
	}
}

/* What the kernel looks at beside the opcode */
TEST(kernel_checks)
{
	static const struct {
		const char *what;
		uint16_t opcode, inlen, bit, width, value;
		int err;
	} rows[] = {
		{ "two PSVs", 0x600, 16, 0x40, 4, 2, EINVAL }, { "a flow table of another function", 0x936, 0x40, 0x30, 16, 1, EINVAL },
		{ "a key without the whole of its context", 0x200, 0x4c, 0x40, 1, 0, EINVAL },
		{ "a CQ of no event queue", 0x400, 0x110, CQC + 0xa0, 32, 3, ENOENT }, { "a tunnel", 0x800, 16, 0x20, 16, 1, EINVAL },
	};
	uint32_t number;
	struct cmd c;

	for (unsigned i = 0; i < ARRAY(rows); i++) {
		c = command(rows[i].opcode, rows[i].inlen, 32);
		IN(rows[i].bit, rows[i].width, rows[i].value);
		assert_null(create_in(ctx, &c));
		if (errno != rows[i].err)
			fail_msg("%s: %d", rows[i].what, errno);
	}
	/* Boxes that are no boxes */
	for (size_t len = 0; len < 16; len++) {
		c = command(0x800, len, 16);
		must_refuse(create_in(ctx, &c), EINVAL);
		c = command(0x800, 16, len);
		assert_null(create_in(ctx, &c));
		assert_true(errno == EINVAL && untouched(&c));
		c = command(0x842, len, 16);
		assert_int_equal(general(ctx, &c), EINVAL);
	}
	/* The uid that the caller writes is overwritten */
	c = command(0x800, 16, 16);
	IN(0x10, 16, 0xffff);
	must(destroy(must_create(&c, &number)));
}

#define HANDLE(name) \
	static int name##_call(void *o, bool modifies, struct cmd *c) \
	{ \
		return modifies ? CALL(mlx5dv_devx_##name##_modify, o, c) : CALL(mlx5dv_devx_##name##_query, o, c); \
	}

HANDLE(cq)
HANDLE(qp)
HANDLE(srq)
HANDLE(obj)

/* Every opcode by the handle of an object: those of its kind alone, and only with its number */
TEST(by_handle)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
	struct mlx5dv_srq dv_srq = { .comp_mask = MLX5DV_SRQ_MASK_SRQN };
	struct mlx5dv_cq dv_cq = { 0 };
	struct mlx5dv_devx_obj *o[2];
	uint32_t n[ARRAY(o)];
	struct side s;

	for (unsigned i = 0; i < ARRAY(o); i++)
		o[i] = simple(ctx, i ? 0x800 : 0x771, &n[i]);
	open_side(&s, &usual);
	assert_non_null(srq);
	must(mlx5dv_init_obj(&(struct mlx5dv_obj){ .cq = { s.scq, &dv_cq }, .srq = { srq, &dv_srq } }, MLX5DV_OBJ_CQ | MLX5DV_OBJ_SRQ));
	const struct {
		const char *name;
		int (*call)(void *, bool, struct cmd *);
		void *object;
		uint32_t number;
		uint16_t query, modifies[8];
	} kinds[] = {
		{ "cq", cq_call, s.scq, dv_cq.cqn, 0x402, { 0x403 } }, { "srq", srq_call, srq, dv_srq.srqn, 0x90f, { 0x90d } },
		{ "qp", qp_call, s.qp, s.qp->qp_num, 0x50b, { 0x502, 0x503, 0x504, 0x505, 0x506, 0x507, 0x50a, 0x50e } },
		{ "counters", obj_call, o[0], n[0], 0x773, { 0 } }, { "pd", obj_call, o[1], n[1], 0, { 0 } },
	};
	for (unsigned k = 0; k < ARRAY(kinds); k++)
		for (unsigned op = 1; op <= 0xfff; op++)
			for (int modifies = 0; modifies < 2; modifies++) {
				bool listed = modifies ? in(kinds[k].modifies, 8, op) : op == kinds[k].query;
				struct cmd c = command(op, ROOM, ROOM);
				unsigned at = op == 0x773 ? 0xf8 : 0x48;

				IN(at, at == 0x48 ? 24 : 8, kinds[k].number);
				passes(kinds[k].name, op, listed, kinds[k].call(kinds[k].object, modifies, &c), &c);
				IN(at, at == 0x48 ? 24 : 8, kinds[k].number ^ 1);
				passes(kinds[k].name, op, false, kinds[k].call(kinds[k].object, modifies, &c), &c);
			}
	for (unsigned i = 0; i < ARRAY(o); i++)
		must(destroy(o[i]));
	must(ibv_destroy_srq(srq));
	close_side(&s);
}

/* ---- statuses ---- */

TEST(statuses)
{
	static const struct {
		uint16_t opcode, inlen, outlen, bit, width, value, status;
	} generals_wrong[] = {
		{ 0xb55, 16, 16, 0x40, 1, 0, BAD_OP }, { 0x842, 16, 16, 0x20, 16, 1, BAD_PARAM },
		{ 0x101, 16, 0x100, 0x40, 1, 0, BAD_OUTLEN }, { 0x842, 17, 16, 0x40, 1, 0, BAD_INLEN },
		{ 0x100, 16, ROOM, 0x30, 16, 0x7e, BAD_PARAM }, { 0x754, 16, 0x110, 0x40, 1, 1, BAD_PARAM },
		{ 0xb0c, 0x2c, 0x2c, 0x50, 16, 0x1234, BAD_PARAM }, { 0xb0c, 0x50, 0x4c, 0x50, 16, 0x6001, BAD_OUTLEN },
		{ 0xb0c, 0x2c, 0x2c, 0x50, 16, 0x9055, BAD_PARAM }, /* the clock cannot be set */
	};
	struct mlx5dv_devx_obj *mine, *his, *uses;
	uint32_t number, his_number;
	struct cmd c;

	for (unsigned i = 0; i < ARRAY(generals_wrong); i++) {
		c = command(generals_wrong[i].opcode, generals_wrong[i].inlen, generals_wrong[i].outlen);
		IN(generals_wrong[i].bit, generals_wrong[i].width, generals_wrong[i].value);
		assert_int_equal(general(ctx, &c), EREMOTEIO);
		if (c.out[0] != generals_wrong[i].status)
			fail_msg("row %u: status %x", i, c.out[0]);
	}
	/* What is written to a register is read there */
	c = command(0xb0c, 0x50, 0x50);
	IN(0x50, 16, 0x6001);
	fill(c.in + 16, 64, 5);
	must(general(ctx, &c));
	IN(0x30, 16, 1);
	must(general(ctx, &c));
	assert_memory_equal(c.out + 16, c.in + 16, 64);
	c = command(0x750, 16, 16);
	must(general(ctx, &c));
	EXPECT(&c, { 0x78, 8, 0x11 });
	c = command(0x930, 0x40, 16);
	refused(ctx, &c, BAD_OP);
	c = command(0x800, 16, 16);
	IN(0x30, 16, 1);
	refused(ctx, &c, BAD_OP);
	/* Bad resources: not there, another context's, and another device's */
	mine = simple(ctx, 0x800, &number);
	his = simple(second, 0x800, &his_number);
	c = psv(0xffffff);
	refused(ctx, &c, BAD_RES);
	c = psv(his_number);
	refused(ctx, &c, BAD_RES);
	c = psv(number);
	refused(second, &c, BAD_RES);
	refused(other, &c, BAD_RES);
	/* In use */
	uses = made(create_in(ctx, &c));
	assert_int_equal(destroy(mine), EBUSY);
	must(destroy(uses) || destroy(mine) || destroy(his));
}

TEST(without_uid)
{
	struct ibv_context *x;
	struct cmd c;

	/* The first attempt asks for commands, the second does not */
	must(softdev_fault("setup=EINVAL@1"));
	x = ibv_open_device(list[0]);
	must(softdev_fault(NULL));
	assert_non_null(x);
	for (unsigned op = 0; op <= 0xfff; op++) {
		c = command(op, ROOM, ROOM);
		passes("no uid", op, op == 0x100 || op == 0x740 || op == 0x752 || op == 0x762, general(x, &c), &c);
	}
	c = command(0x800, 16, 16);
	must_refuse(create_in(x, &c), EINVAL);
	must_refuse(mlx5dv_devx_umem_reg(x, arena.p, 4096, 0), EINVAL);
	must(ibv_close_device(x));
}

/* ---- registered memory ---- */

TEST(umems)
{
	enum { W = IBV_ACCESS_LOCAL_WRITE, RW = IBV_ACCESS_REMOTE_WRITE, MAX = 3 * 4096 };
	uint8_t *p = pages(5);
	const struct {
		size_t off, size;
		uint32_t access;
		uint64_t sizes;
		int err;
	} rows[] = {
		{ 0, 4096, 0, 1 << 12, 0 }, { 0, MAX, W, ~0ull, 0 }, { 100, 8, W | RW | IBV_ACCESS_REMOTE_READ, 1 << 12, 0 },
		{ 0, 4096, IBV_ACCESS_RELAXED_ORDERING, 1 << 12, 0 }, { 0, 0, 0, 1 << 12, EINVAL }, { 0, 4096, RW, 1 << 12, EINVAL },
		{ 0, 4096, W | IBV_ACCESS_REMOTE_ATOMIC, 1 << 12, EINVAL }, { 0, 4096, W | IBV_ACCESS_MW_BIND, 1 << 12, EINVAL },
		/* Of page sizes 4 KiB must be among those that will do */
		{ 0, 4096, 0, ~(1ull << 12), EINVAL }, { 0, 4096, 0, 1 << 11, EINVAL }, { 0, 4096, 0, 1 << 13, EINVAL },
		/* Memory that is only read, that is not there */
		{ MAX, 4096, 0, 1 << 12, 0 }, { MAX, 4096, W, 1 << 12, EFAULT }, { MAX + 4096, 4096, 0, 1 << 12, EFAULT },
	};

	must(mprotect(p + MAX, 4096, PROT_READ));
	must(munmap(p + MAX + 4096, 4096));
	for (unsigned i = 0; i < ARRAY(rows); i++) {
		struct mlx5dv_devx_umem_in ex = { .addr = p + rows[i].off, .size = rows[i].size, .access = rows[i].access,
						  .pgsz_bitmap = rows[i].sizes };
		struct mlx5dv_devx_umem *u;

		errno = 0;
		u = mlx5dv_devx_umem_reg_ex(ctx, &ex);
		if (!u != !!rows[i].err || (!u && errno != rows[i].err))
			fail_msg("row %u: %p, %s", i, (void *)u, strerror(errno));
		if (u)
			must(mlx5dv_devx_umem_dereg(u));
	}
	munmap(p, 4 * 4096);
}

/* ---- events ---- */

/* A QP of a shared receive queue: going into the error state, it tells that it takes no more; by file descriptor too */
TEST(events)
{
	struct mlx5dv_devx_event_channel *ch = a_channel(true);
	int fd = eventfd(0, EFD_NONBLOCK), file = memfd_create("none", 0);
	struct drmp rmp;
	struct dcq cq;
	struct dqp q;
	uint64_t n;

	empty_arena();
	open_cq(&cq, 4, 64);
	open_rmp(&rmp, 1, 4);
	open_qp(&q, RC, &cq, &cq, rmp.rmpn);
	subscribe(ch, q.obj, 0x13, 77);
	subscribe(ch, q.obj, 0x13, 78);
	must(mlx5dv_devx_subscribe_devx_event_fd(ch, fd, q.obj, 0x13));
	assert_int_equal(mlx5dv_devx_subscribe_devx_event_fd(ch, file, q.obj, 0x13), EINVAL);
	close(file);
	assert_int_equal(mlx5dv_devx_subscribe_devx_event_fd(ch, file, q.obj, 0x13), EBADF);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(stop(&q, TO_ERR), OK);
		assert_int_equal(stop(&q, TO_RST), OK);
		expect_devx(ch, 77, 0x13, q.qpn);
		expect_devx(ch, 78, 0x13, q.qpn);
	}
	expect_no_devx(ch);
	assert_int_equal(read(fd, &n, sizeof(n)), 8);
	assert_int_equal(n, 3);
	/* With the object go its subscriptions; what waits stays to be read */
	assert_int_equal(stop(&q, TO_ERR), OK);
	expect_devx(ch, 77, 0x13, q.qpn);
	must(destroy(q.obj));
	expect_devx(ch, 78, 0x13, q.qpn);
	mlx5dv_devx_destroy_event_channel(ch);
	must(destroy(rmp.obj) || destroy(cq.obj));
	close(fd);
}

/* ---- the device itself ---- */

static struct cmd caps(struct ibv_context *x, unsigned type, bool current, size_t outlen)
{
	struct cmd c = command(0x100, 16, outlen);

	IN(0x30, 16, type << 1 | current);
	must(general(x, &c));
	return c;
}

TEST(capabilities)
{
	/* Type 7, of flow tables: none can be made, and who asks for packet reformat must be told so */
	static const unsigned types[] = { 0x00, 0x02, 0x03, 0x07, 0x0f, 0x14, 0x20 };
	struct ibv_device_attr attr;
	struct cmd c, less;

	for (unsigned i = 0; i < ARRAY(types); i++) {
		c = caps(ctx, types[i], true, BOX);
		less = caps(ctx, types[i], false, BOX);
		assert_memory_equal(c.out, less.out, BOX);
		/* As many bytes as there is room for */
		less = caps(ctx, types[i], true, 0x34);
		assert_memory_equal(less.out, c.out, 0x34);
	}
	must(ibv_query_device(ctx, &attr));
	c = caps(ctx, 0, true, BOX);
#define AT 0x80
	EXPECT(&c, { AT + 0x30, 16, 0 }, { AT + 0x20, 1, 1 }, { AT + 0x1fc, 4, 1 }, { AT + 0x1b6, 2, is_roce() }, { AT + 0x1b8, 8, 1 },
	       { AT + 0x780, 64, 0 });
	assert_true((int)(1u << OUT(AT + 0x9b, 5)) >= attr.max_qp && (int)(1u << OUT(AT + 0xdb, 5)) >= attr.max_cq);
	assert_true((int)(1u << OUT(AT + 0xea, 6)) >= attr.max_mr && (int)(1u << OUT(AT + 0x32b, 5)) >= attr.max_pd);
	assert_int_equal(1u << OUT(AT + 0x88, 8), attr.max_qp_wr);
	assert_int_equal(1u << OUT(AT + 0xc8, 8), attr.max_cqe + 1);
	assert_int_equal(1u << OUT(AT + 0x14a, 6), attr.max_qp_init_rd_atom);
	assert_int_equal(1u << OUT(AT + 0x1c3, 5), port.max_msg_sz);
	assert_int_equal(8u << OUT(AT + 0x170, 16), port.gid_tbl_len);
	c = caps(other, 0, true, ROOM);
	EXPECT(&c, { AT + 0x30, 16, 1 });
	c = caps(ctx, 3, true, ROOM);
	EXPECT(&c, { AT + 0x90, 16, 0xf }, { AT + 0xb0, 16, 4 | 8 | 16 | 32 | 64 }, { AT + 0xd0, 16, 4 | 8 | 16 | 32 | 64 });
	c = caps(ctx, 0x14, true, ROOM);
	EXPECT(&c, { AT + 63 - 0x13, 1, 1 }, { AT + 63 - 0x09, 1, 0 }, { AT + 0x100 + 63 - 0x09, 1, 1 });
	/* InfiniBand only; the outbox that UCX gives is 4 bytes short */
	c = command(0x762, 16, 0x1fc);
	IN(0x4c, 4, 1);
	assert_int_equal(general(ctx, &c), is_roce() ? EREMOTEIO : 0);
	if (!is_roce())
		EXPECT(&c, { 0x80 + 0x300, 16, port.lid }, { 0x80 + 0x320, 16, port.sm_lid });
}

/* What comes to a QP is counted by the set that it names */
TEST(counter_sets)
{
	struct ibv_send_wr add;
	uint32_t number;
	struct mlx5dv_devx_obj *q = simple(ctx, 0x771, &number);
	struct cmd c;

	open_side(&s[0], &usual);
	open_side(&s[1], &usual);
	/* A verbs QP, whose first step is done by command */
	c = to_init(s[1].qp->qp_num, RC);
	IN(QPC + 0x60, 8, number);
	must(qp_call(s[1].qp, true, &c));
	must(move(s[1].qp, IBV_QPS_RTR, s[0].qp->qp_num, &usual));
	must(move(s[1].qp, IBV_QPS_RTS, s[0].qp->qp_num, &usual));
	bring_up(s[0].qp, s[1].qp->qp_num, &usual);
	writes(s, 1000, false);
	writes(s, 1 << 19, false);
	reads(s, 100);
	add = first_to_second(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0, 8, 0);
	post_done(&s[0], &add);
	wr = first_to_second(IBV_WR_SEND, 3, 0, 8, 0);
	post(&s[0], &wr); /* nothing to receive it with, until that is counted */
	c = counters(number, 0x100);
	until((ask(q, &c), OUT(0x180, 32)));
	recv_at(&s[1], 4, 0, 64);
	expect(s[0].scq, 3, IBV_WC_SUCCESS);
	EXPECT(&c, { 0x80, 32, 2 }, { 0xc0, 32, 1 }, { 0x100, 32, 1 }, { 0x200, 32, 0 });
	/* One that comes twice is done once */
	must(softdev_fault("dup@*"));
	writes(s, 64, false);
	must(softdev_fault(NULL));
	/* Read and cleared */
	IN(0xc0, 1, 1);
	must(ask(q, &c));
	EXPECT(&c, { 0x80, 32, 3 }, { 0x200, 32, 1 });
	must(ask(q, &c));
	EXPECT(&c, { 0x80, 32, 0 });
	must(destroy(q));
	writes(s, 10, false);
	close_pair(s);
}

/* ---- keys ---- */

enum { MTT = 1, KLM = 2, KSM = 3, KEY = 0x80 };
#define KEY_ALL 0x1fu             /* a, rw, rr, lw, lr */

struct entry {
	uint32_t bytes, key;
	uint64_t addr;
};

/* A key of the first pages of a umem (MTT), or of one entry */
static struct cmd key_command(unsigned mode, unsigned rights, uint64_t start, uint64_t len, unsigned log, struct entry e)
{
	struct cmd c = command(0x200, 0x110, 16);

	SET(&c, { KEY + 0x11, 5, rights }, { KEY + 0x16, 2, mode }, { KEY + 0x20, 24, 0xffffff }, { KEY + 0x38, 8, 0x42 },
	    { KEY + 0x68, 24, pdn }, { KEY + 0x80, 64, start }, { KEY + 0xc0, 64, len }, { KEY + 0x1db, 5, log },
	    { KEY + 0x1a0, 32, mode == MTT ? 2 : 1 });
	if (mode == MTT) {
		IN(0x320, 32, e.key);
	} else {
		SET(&c, { 0x300, 32, 1 }, { 0x880, 32, e.bytes }, { 0x8a0, 32, e.key }, { 0x8c0, 64, e.addr });
		c.inlen += 16;
	}
	return c;
}

static struct mlx5dv_devx_obj *key_make(struct cmd *c, uint32_t *key)
{
	struct mlx5dv_devx_obj *o = must_create(c, key);

	*key = *key << 8 | 0x42;
	return o;
}

enum how_used { READ, WRITE, ADD, GATHER, SCATTER };

/* 8 bytes by a key, remote or local: whether it may */
static void by_key(enum how_used how, uint32_t key, uint64_t addr, bool may)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_WRITE,
						  IBV_WR_RDMA_READ };

	wr = first_to_second(ops[how], 7, 0, 8, 0);
	if (how <= ADD)
		aim(&wr, addr, key);
	else
		sg = (struct ibv_sge){ addr, 8, key };
	post(&s[0], &wr);
	expect(s[0].scq, 7, may ? IBV_WC_SUCCESS : how < GATHER ? IBV_WC_REM_ACCESS_ERR : IBV_WC_LOC_PROT_ERR);
	if (!may)
		reconnect(s, &usual);
}

/* Rights, one by one; lists in lists, down to one too deep; a key whose memory has gone */
TEST(keys)
{
	static const unsigned right[] = { [READ] = 4, [WRITE] = 8, [ADD] = 16, [GATHER] = 1, [SCATTER] = 2 };
	struct mlx5dv_devx_obj *o[6];
	struct ibv_mr *mr;
	uint32_t key = 0;
	struct cmd c;

	open_pair(s, &usual);
	for (unsigned rights = 0; rights <= KEY_ALL; rights++) {
		c = key_command(KLM, rights, 0, 4096, 0, (struct entry){ 4096, s[1].mr->lkey, (uintptr_t)s[1].buf });
		o[0] = key_make(&c, &key);
		for (unsigned i = 0; i < ARRAY(right); i++)
			by_key(i, key, 0, rights & right[i]);
		must(destroy(o[0]));
	}
	for (unsigned depth = 0; depth < ARRAY(o); depth++) {
		struct entry e = { 100, depth ? key : s[1].mr->lkey, depth ? 0 : (uintptr_t)s[1].buf };

		c = key_command(KLM, KEY_ALL & ~0x10u, 0, 100, 0, e);
		o[depth] = key_make(&c, &key);
		by_key(READ, key, 0, depth < 4);
	}
	for (unsigned depth = 0; depth < ARRAY(o); depth++)
		must(destroy(o[depth]));
	/* What a list names must allow it, too */
	mr = made(ibv_reg_mr(pd, s[1].buf, SIZE, IBV_ACCESS_REMOTE_READ));
	c = key_command(KLM, KEY_ALL, 0, 4096, 0, (struct entry){ 4096, mr->lkey, (uintptr_t)s[1].buf });
	o[0] = key_make(&c, &key);
	for (unsigned i = 0; i < ARRAY(right); i++)
		by_key(i, key, 0, i == READ || i == GATHER);
	must(destroy(o[0]) || ibv_dereg_mr(mr));
	mr = made(ibv_reg_mr(pd, s[1].buf, SIZE, ALL_ACCESS));
	c = key_command(KSM, KEY_ALL, 8, 4096, 31, (struct entry){ 0, mr->lkey, (uintptr_t)s[1].buf });
	o[0] = key_make(&c, &key);
	by_key(WRITE, key, 8, true);
	must(ibv_dereg_mr(mr));
	by_key(WRITE, key, 8, false);
	must(destroy(o[0]));
	close_pair(s);
}

TEST(key_refusals)
{
	uint8_t *p = pages(4);
	struct ibv_mr *mr = ibv_reg_mr(pd, p, 4 * 4096, ALL_ACCESS);
	struct mlx5dv_devx_umem *u = mlx5dv_devx_umem_reg(ctx, p, 4 * 4096, IBV_ACCESS_LOCAL_WRITE);
	struct mlx5dv_devx_umem *his = mlx5dv_devx_umem_reg(second, p, 4 * 4096, IBV_ACCESS_LOCAL_WRITE);
	struct mlx5dv_devx_umem *ro = mlx5dv_devx_umem_reg(ctx, p, 4 * 4096, 0);
	struct entry e = { 4096, mr->lkey, (uintptr_t)p };
	struct cmd mtt = key_command(MTT, KEY_ALL, 0, 4096, 12, (struct entry){ 0, u->umem_id, 0 }), c;
	struct cmd klm = key_command(KLM, KEY_ALL, 0, 4096, 0, e), ksm = key_command(KSM, KEY_ALL, 0, 4096, 13, e);
	uint32_t key;

	REFUSE(&mtt, { "pd", KEY + 0x68, 24, 0xffffff, BAD_RES }, { "another's umem", 0x320, 32, his->umem_id, BAD_RES },
	       { "no umem", 0x320, 32, 0, BAD_RES }, { "writes to memory that is only read", 0x320, 32, ro->umem_id, BAD_PARAM },
	       { "beyond the umem", 0x340, 64, ~0ull, BAD_PARAM }, { "a page size", KEY + 0x1db, 5, 11, BAD_PARAM },
	       { "too few translations", KEY + 0xc0, 64, 5 * 4096, BAD_PARAM },
	       { "another place in its page", KEY + 0x80, 64, 8, BAD_PARAM }, { "no length", KEY + 0xc0, 64, 0, BAD_PARAM },
	       { "past the last address", KEY + 0x80, 64, ~0xfffull + 8, BAD_PARAM },
	       { "physical addresses", KEY + 0x16, 2, 0, BAD_PARAM }, { "a mode above 3", KEY + 0x3, 3, 1, BAD_PARAM });
	assert_null(create_in(second, &mtt));
	assert_int_equal(mtt.out[0], BAD_RES);
	c = mtt;
	SET(&c, { KEY + 0xc0, 64, 4 * 4096 + 1 }, { KEY + 0x1a0, 32, 3 });
	REFUSE(&c, { "longer than the umem", KEY + 0x38, 8, 1, BAD_PARAM });
	/* Read-only memory is good for reading */
	c = mtt;
	SET(&c, { 0x320, 32, ro->umem_id }, { KEY + 0x11, 5, 5 });
	must(destroy(must_create(&c, &key)));

	REFUSE(&klm, { "one QP's own", KEY + 0x20, 24, 0x1234, BAD_PARAM }, { "signatures without UMR", KEY + 0x61, 1, 1, BAD_PARAM },
	       { "a list shorter than the key", KEY + 0xc0, 64, 4096 + 8, BAD_PARAM }, { "than it says", 0x300, 32, 2, BAD_PARAM });
	c = klm;
	IN(0x300, 32, 2);
	REFUSE(&c, { "a list longer than the box", KEY + 0x1a0, 32, 2, BAD_INLEN });
	IN(0x300, 32, 0xffffffff);
	REFUSE(&c, { "than any", KEY + 0x1a0, 32, 0xffffffff, LIMIT });
	REFUSE(&ksm, { "entities too small", KEY + 0x1db, 5, 11, BAD_PARAM }, { "atomics off their place", KEY + 0x80, 64, 4, BAD_PARAM });
	c = ksm;
	IN(KEY + 0x80, 64, 8);
	REFUSE(&c, { "atomics across the end", KEY + 0xc0, 64, 4096 + 4, BAD_PARAM });
	SET(&c, { KEY + 0x80, 64, 4 }, { KEY + 0xc0, 64, 4096 + 4 }, { KEY + 0x11, 5, KEY_ALL & ~0x10u });
	must(destroy(must_create(&c, &key)));
	/* What a UMR is to fill must allow it, have room, and be a list of KLMs: no others are filled here */
	c = key_command(KLM, KEY_ALL, 0, 0, 12, e);
	c.inlen = 0x110;
	SET(&c, { 0x300, 32, 0 }, { KEY + 0x1, 1, 1 }, { KEY + 0x10, 1, 1 }, { KEY + 0x1a0, 32, 4 });
	REFUSE(&c, { "no UMR", KEY + 0x10, 1, 0, BAD_PARAM }, { "no room", KEY + 0x1a0, 32, 0, BAD_PARAM },
	       { "of KSMs", KEY + 0x16, 2, KSM, BAD_PARAM });
	must(destroy(must_create(&c, &key)) || mlx5dv_devx_umem_dereg(u) || mlx5dv_devx_umem_dereg(his));
	must(mlx5dv_devx_umem_dereg(ro) || ibv_dereg_mr(mr));
	munmap(p, 4 * 4096);
}

/* ---- the group ---- */

static int two_setup(void **state)
{
	struct mlx5dv_context_attr attr = { .flags = MLX5DV_CONTEXT_FLAGS_DEVX };

	if (devx_setup(state))
		return -1;
	second = mlx5dv_open_device(list[0], &attr);
	other = list[1] ? mlx5dv_open_device(list[1], &attr) : NULL;
	return !second || !other ? -1 : 0;
}

static int two_teardown(void **state)
{
	if (ibv_close_device(second) || ibv_close_device(other))
		return -1;
	return devx_teardown(state);
}

int main(void)
{
	skip_all_if(!softdev_present(), "what firmware answers is known of the software device alone");
	if (!getenv("SOFTDEV_LINK") && again_with("SOFTDEV_LINK", "ib"))
		return 1;
	setenv("SOFTDEV_DEVX", "1", 1); /* read when a device is first asked for */
	setenv("SOFTDEV_DEVICES", "2", 1);
	return run_all(two_setup, two_teardown);
}
