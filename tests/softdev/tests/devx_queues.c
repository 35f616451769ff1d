/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * devx_queues.c: queues by device commands: what is wrong is refused with its status, what each step takes, what is in use stays. What is
 * made reads back: also tests/devx/queues.c; transitions: tests/devx/objects.c; traffic: devx_traffic.c.
 */
#include "rig_devx.h"

/* Compares a field of a query with what the create command had */
static void same(const struct cmd *made, unsigned from, const struct cmd *got, unsigned to, const uint16_t (*f)[2], size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t a = get(made->in, from + f[i][0], f[i][1]), b = get(got->out, to + f[i][0], f[i][1]);

		if (a != b)
			print_error("field %x/%u: %llx, not %llx\n", f[i][0], f[i][1], (unsigned long long)b, (unsigned long long)a);
		assert_int_equal(a, b);
	}
}

/* Too short a box, either way, and an op_mod that there is not */
static void lengths(const struct cmd *good)
{
	struct cmd c = *good;
	unsigned status;

	c.inlen -= 4;
	assert_null(create(&c, &status));
	assert_int_equal(status, BAD_INLEN);
	refuse_all(good, &(struct wrong){ "op_mod", 0x30, 16, 7, BAD_OP }, 1);
}

/* ---- what each test has ---- */

static struct dcq cq64, cq128;
static struct drmp rmp;

static int open_common(UNUSED void **state)
{
	empty_arena();
	open_cq(&cq64, 6, 64);
	open_cq(&cq128, 6, 128);
	open_rmp(&rmp, 0, 4);
	return 0;
}

/* Nothing that was refused holds anything */
static int close_common(UNUSED void **state)
{
	return destroy(rmp.obj) || destroy(cq64.obj) || destroy(cq128.obj);
}

#define CASE(name) TEST_WITH(name, open_common, close_common)

/* ---- CQ ---- */

CASE(cq_modified)
{
	struct dcq q;
	struct cmd c, g;

	open_cq(&q, 4, 64);
	g = query_of(0x402, q.obj, q.cqn, 0x50); /* a shorter box gets what fits, or nothing */
	EXPECT(&g, { CQC + 0x14, 4, 0xa }, { CQC + 0x63, 5, 4 });
	g.outlen = 0x4c;
	assert_int_equal(query(q.obj, &g), BAD_OUTLEN);
	for (unsigned bits = 1; bits < 8; bits++) {
		g = query_of(0x402, q.obj, q.cqn, 0x110);
		c = command_of(0x403, 0x110, 0x10, q.cqn);
		SET(&c, { 0x60, 32, bits }, { CQC + 0x84, 12, 0x100 + bits }, { CQC + 0x90, 16, 0x200 + bits }, { CQC + 0xe, 1, bits & 1 });
		assert_int_equal(modify(q.obj, &c), OK);
		c = query_of(0x402, q.obj, q.cqn, 0x110);
		EXPECT(&c, { CQC + 0x84, 12, bits & 1 ? 0x100 + bits : get(g.out, CQC + 0x84, 12) },
		       { CQC + 0x90, 16, bits & 2 ? 0x200 + bits : get(g.out, CQC + 0x90, 16) },
		       { CQC + 0xe, 1, bits & 4 ? bits & 1 : get(g.out, CQC + 0xe, 1) });
	}
	c = command_of(0x403, 0x110, 0x10, q.cqn);
	assert_int_equal(modify(q.obj, &c), BAD_PARAM);
	MODIFY(q.obj, 0x60, 32, 8, BAD_PARAM);
	IN(0x60, 32, 1);
	MODIFY(q.obj, 0x30, 16, 1, BAD_OP);
	must(destroy(q.obj));
}

CASE(cq_refused)
{
	static const struct wrong w[] = {
		{ "log_cq_size", CQC + 0x63, 5, 23, LIMIT }, { "cqe_sz", CQC + 0x8, 3, 3, BAD_PARAM },
		{ "initiator_src_dct", CQC + 0x5, 1, 1, BAD_PARAM }, { "compression's format", CQC + 0x12, 2, 2, BAD_PARAM },
		{ "compression's layout", CQC + 0x1e, 2, 2, BAD_PARAM }, { "the ring's umem", 0x2c0, 32, 0xffffff, BAD_RES },
		{ "the record's umem", CQC + 0x20, 32, 0, BAD_RES }, { "the ring beyond its umem", 0x280, 64, ARENA - 64, BAD_PARAM },
		{ "the ring far beyond its umem", 0x280, 64, ~63ull, BAD_PARAM }, { "the ring's alignment", 0x280, 64, 32, BAD_PARAM },
		{ "the record beyond its umem", CQC + 0x1c0, 64, ARENA, BAD_PARAM },
		{ "the record's alignment", CQC + 0x1c0, 64, 4, BAD_PARAM }, { "uar_page", CQC + 0x68, 24, 0xfffff, BAD_RES },
	};
	struct mlx5dv_devx_umem *ro;
	struct dcq q;
	struct cmd c, good;

	good = cq_command(&q, 4, 64);
	refuse_all(&good, w, ARRAY(w));
	lengths(&good);
	/* A ring in memory that the device may only read; a record there is well */
	ro = made(mlx5dv_devx_umem_reg(ctx, arena.p, ARENA, 0));
	REFUSE(&good, { "a ring that is only read", 0x2c0, 32, ro->umem_id, BAD_PARAM });
	c = good;
	IN(CQC + 0x20, 32, ro->umem_id);
	q.obj = must_create(&c, &q.cqn);
	assert_int_equal(mlx5dv_devx_umem_dereg(ro), EBUSY);
	must(destroy(q.obj) || mlx5dv_devx_umem_dereg(ro));
}

/* ---- QP ---- */

static const unsigned types[] = { RC, UC, UD, DCI };

/* Its own receive queue, a shared one, none: what it is made of reads back, and stays as long as it does */
CASE(qp_made)
{
	static const uint16_t fields[][2] = {
		{ 0x8, 8 }, { 0x13, 2 }, { 0x49, 4 }, { 0x4d, 3 }, { 0x50, 1 }, { 0x51, 4 }, { 0x58, 2 }, { 0x88, 24 }, { 0x500, 64 },
		{ 0x565, 3 }, { 0x568, 24 }, { 0x630, 16 }, { 0x640, 64 },
	};
	struct dqp q;
	struct cmd c, g;

	for (unsigned i = 0; i < 3 * ARRAY(types); i++) {
		const unsigned st = types[i / 3], kind = i % 3;
		const bool shared = kind == 1 || st == DCI;

		c = qp_command(&q, st, 3, kind || shared ? 0 : 2, cq64.cqn, cq128.cqn, shared ? rmp.rmpn : 0);
		IN(QPC + 0x50, 1, kind == 2);
		if (st == RC)
			IN(QPC + 0x630, 16, 0x1102);
		if (st == DCI)
			IN(QPC + 0x640, 64, 0x1122334455667788);
		q.obj = must_create(&c, &q.qpn);
		g = qp_query(&q);
		same(&c, QPC, &g, QPC, fields, ARRAY(fields));
		g.outlen = 0xfc;
		assert_int_equal(query(q.obj, &g), BAD_OUTLEN);
		assert_int_equal(destroy(cq64.obj), EBUSY);
		assert_int_equal(destroy(cq128.obj), EBUSY);
		assert_int_equal(mlx5dv_devx_umem_dereg(arena.umem), EBUSY);
		if (shared)
			assert_int_equal(destroy(rmp.obj), EBUSY);
		must(destroy(q.obj));
	}
}

CASE(qp_refused)
{
	const struct wrong w[] = {
		{ "st", QPC + 0x8, 8, 3, BAD_PARAM }, { "st of a DCT", QPC + 0x8, 8, 6, BAD_PARAM },
		{ "a DCI without a shared queue", QPC + 0x8, 8, DCI, BAD_PARAM }, { "pm_state", QPC + 0x13, 2, 0, BAD_PARAM },
		{ "opt_param_mask", 0x80, 32, 2, BAD_PARAM }, { "a longer context", 0x40, 1, 1, BAD_PARAM },
		{ "offload", QPC + 0x18, 4, 1, BAD_PARAM }, { "signature", QPC + 0x20, 1, 1, BAD_PARAM },
		{ "reserved lkey", QPC + 0x5b, 1, 1, BAD_PARAM }, { "ts_format", QPC + 0x58, 2, 2, BAD_PARAM },
		{ "send_dbr_mode", QPC + 0x80, 2, 2, BAD_PARAM }, { "streams", QPC + 0x3e3, 5, 1, BAD_PARAM },
		{ "deth_sqpn", QPC + 0x408, 24, 1, BAD_PARAM }, { "cross-domain, a slave that receives", QPC + 0x49d, 1, 1, BAD_PARAM },
		{ "collapsed receive queue", QPC + 0x565, 3, 2, BAD_PARAM }, { "log_rq_stride", QPC + 0x4d, 3, 6, BAD_PARAM },
		{ "scatter by 64 into CQEs of 64", QPC + 0x630, 8, 0x22, BAD_PARAM },
		{ "scatter by 64 on the responder's", QPC + 0x638, 8, 2, BAD_PARAM },
		{ "scatter by what there is not", QPC + 0x630, 8, 0x33, BAD_PARAM }, { "pd", QPC + 0x28, 24, 0xfff0, BAD_RES },
		{ "cqn_snd", QPC + 0x3e8, 24, 0xffff00, BAD_RES }, { "cqn_rcv", QPC + 0x4e8, 24, 0, BAD_RES },
		{ "uar_page", QPC + 0x68, 24, 0xfffff, BAD_RES },
		{ "no uar_page", QPC + 0x68, 24, 0, BAD_RES }, { "shared queue", QPC + 0x565, 27, 1 << 24 | 0xff, BAD_RES },
		{ "the ring's umem", 0x840, 32, 0, BAD_RES }, { "the record's umem", QPC + 0x720, 32, 0xffffffff, BAD_RES },
		{ "the ring beyond its umem", 0x800, 64, ARENA - 512, BAD_PARAM }, { "the ring's alignment", 0x800, 64, 16, BAD_PARAM },
		{ "the record beyond its umem", QPC + 0x500, 64, ARENA - 4, BAD_PARAM },
		{ "the record's alignment", QPC + 0x500, 64, 12, BAD_PARAM },
	};
	struct dqp q;
	struct cmd good;

	good = qp_command(&q, RC, 3, 2, cq64.cqn, cq64.cqn, 0);
	refuse_all(&good, w, ARRAY(w));
	lengths(&good);
}

/* Brings a new QP to a state; SQER by a WQE that its type does not have */
static void bring_to(struct dqp *q, unsigned st, unsigned state)
{
	open_qp(q, st, &cq64, &cq64, st == DCI || st == RC ? rmp.rmpn : 0);
	for (unsigned i = 0; i < (state == SQER ? RTS : state); i++) {
		struct cmd c = step_of(q, RST2INIT + i, q->qpn);

		assert_int_equal(modify(q->obj, &c), OK);
	}
	if (state == SQER) {
		post_one(q, MLX5_OPCODE_RDMA_READ, seg_data(seg_raddr(wqe(q) + 16, 0, 0), arena.p, 8, arena.mr->lkey), 0);
		failed(&cq64, false, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
	}
}

/* Which fields a step takes by itself, and which only with their bit of the mask */
CASE(masks)
{
	static const struct {
		unsigned opcode, from, st;
		uint32_t allowed;
	} steps[] = {
		{ RST2INIT, RST, RC, 0 }, { RST2INIT, RST, UD, 0 },
		{ INIT2INIT, INIT, RC, M_RRE | M_RAE | M_RWE | M_PKEY | 1 << 16 }, { INIT2INIT, INIT, UC, M_RWE | M_PKEY | 1 << 16 },
		{ INIT2INIT, INIT, UD, M_PKEY | M_QKEY | 1 << 16 },
		{ INIT2RTR, INIT, RC, M_RRE | M_RAE | M_RWE | M_PKEY }, { INIT2RTR, INIT, UC, M_RWE | M_PKEY },
		{ INIT2RTR, INIT, UD, M_PKEY | M_QKEY }, { INIT2RTR, INIT, DCI, M_RAE | M_PKEY },
		{ RTR2RTS, RTR, RC, M_RRE | M_RAE | M_RWE | M_RNR | 1 << 10 }, { RTR2RTS, RTR, UC, M_RWE | 1 << 10 },
		{ RTR2RTS, RTR, UD, M_QKEY },
		{ RTS2RTS, RTS, RC, M_RRE | M_RAE | M_RWE | M_RNR | 1 << 10 }, { RTS2RTS, RTS, UC, M_RWE | 1 << 10 },
		{ RTS2RTS, RTS, UD, M_QKEY }, { SQERR2RTS, SQER, UC, M_RWE }, { SQERR2RTS, SQER, UD, M_QKEY },
	};
	static const struct {
		uint32_t bit;
		unsigned at, width, value;
	} fields[] = {
		{ M_RRE, QPC + 0x490, 1, 0 }, { M_RWE, QPC + 0x491, 1, 0 }, { M_RAE, QPC + 0x492, 1, 0 },
		{ M_QKEY, QPC + 0x540, 32, 0x777 }, { M_RNR, QPC + 0x4a3, 5, 9 },
	};

	const size_t used = arena.used;

	for (unsigned i = 0; i < ARRAY(steps); i++)
		for (unsigned bit = 0; bit < 32; bit++) {
			bool allowed = steps[i].allowed >> bit & 1;
			struct dqp q;
			struct cmd c, before, after;

			bring_to(&q, steps[i].st, steps[i].from);
			c = step_of(&q, steps[i].opcode, q.qpn);
			IN(0x80, 32, 1u << bit);
			/* The port, where its bit is set */
			IN(PATH + 0x128, 8, 1);
			for (unsigned k = 0; k < ARRAY(fields); k++)
				if (steps[i].opcode != RST2INIT && !(steps[i].opcode == INIT2RTR && fields[k].bit == M_RNR))
					put(c.in, fields[k].at, fields[k].width, fields[k].value);
			before = qp_query(&q);
			assert_int_equal(modify(q.obj, &c), allowed ? OK : BAD_PARAM);
			after = qp_query(&q);
			for (unsigned k = 0; allowed && k < ARRAY(fields); k++) {
				if (steps[i].opcode == INIT2RTR && fields[k].bit == M_RNR)
					continue;
				assert_int_equal(get(after.out, fields[k].at, fields[k].width),
					fields[k].bit == 1u << bit ? fields[k].value : get(before.out, fields[k].at, fields[k].width));
			}
			must(destroy(q.obj));
			arena.used = used;
		}
}

/* A connected QP tells all that the steps said; what a step must have is looked at */
CASE(steps_checked)
{
	static const struct {
		unsigned opcode, bit, width, value;
	} wrong[] = {
		{ RST2INIT, QPC + 0x13, 2, 1 }, { RST2INIT, PATH + 0x128, 8, 0 }, { RST2INIT, PATH + 0x128, 8, 2 },
		{ RST2INIT, PATH + 0x10, 16, 999 }, { INIT2RTR, QPC + 0x40, 3, 0 }, { INIT2RTR, QPC + 0x40, 3, 6 },
		{ INIT2RTR, QPC + 0x43, 5, 31 }, { INIT2RTR, QPC + 0x488, 3, 5 }, { INIT2RTR, PATH + 0x128, 8, 7 },
		{ RTR2RTS, QPC + 0x388, 3, 5 },
	};
	static const unsigned opcodes[] = { RST2INIT, INIT2RTR, RTR2RTS };
	struct dqp q;
	struct cmd c, g;

	open_qp(&q, RC, &cq64, &cq64, 0);
	for (unsigned s = 0; s < 3; s++) {
		const struct cmd good = step_of(&q, opcodes[s], 0x123);

		for (unsigned i = 0; i < ARRAY(wrong); i++)
			if (wrong[i].opcode == opcodes[s]) {
				c = good;
				MODIFY(q.obj, wrong[i].bit, wrong[i].width, wrong[i].value, BAD_PARAM);
				assert_int_equal(qp_state(&q), s);
			}
		c = good;
		c.inlen = 0x10c;
		assert_int_equal(modify(q.obj, &c), BAD_INLEN);
		if (s == 1 && is_roce()) {
			c = good;
			IN(PATH + 0x48, 8, 9); /* an empty entry of the GID table */
			assert_int_equal(modify(q.obj, &c), BAD_PARAM);
		}
		c = good;
		assert_int_equal(modify(q.obj, &c), OK);
	}
	g = qp_query(&q);
	EXPECT(&g, { QPC + 0x40, 8, 3 << 5 | 30 }, { QPC + 0xa8, 24, 0x123 }, { QPC + 0x4a8, 24, 0x123456 }, { QPC + 0x3c8, 24, 0x123456 },
	       { QPC + 0x388, 3, 4 }, { QPC + 0x38d, 3, 3 }, { QPC + 0x390, 3, 7 }, { QPC + 0x488, 3, 4 }, { QPC + 0x490, 3, 7 },
	       { PATH + 0x128, 8, 1 });
	if (is_roce()) {
		EXPECT(&g, { PATH + 0x110, 16, 0xc123 });
		assert_memory_equal(g.out + (PATH + 0x80) / 8, gid.raw, 16);
		assert_memory_equal(g.out + (PATH + 0x130) / 8, port_mac, 6);
	} else {
		EXPECT(&g, { PATH + 0x30, 16, port.lid });
	}
	/* A reset forgets the way, not what the QP was made of */
	assert_int_equal(stop(&q, TO_RST), OK);
	g = qp_query(&q);
	EXPECT(&g, { QPC + 0xa8, 24, 0 }, { QPC + 0x490, 3, 0 }, { QPC + 0x3e8, 24, cq64.cqn }, { QPC + 0x51, 4, 6 });
	must(destroy(q.obj));
}

/* The source port of a connected QP's packets, by command and by libmlx5 */
CASE(source_port)
{
	static const struct {
		unsigned st, opcode, port, status;
	} rows[] = {
		{ RC, RTS2RTS, 55555, OK }, { UC, RTS2RTS, 0xc000, OK }, { RC, RTS2RTS, 0xbfff, BAD_PARAM }, { UD, RTS2RTS, 55555, BAD_PARAM },
		{ RC, RTR2RTS, 55555, BAD_PARAM },
	};

	for (unsigned i = 0; i < ARRAY(rows); i++) {
		struct dqp q;
		struct cmd c;

		bring_to(&q, rows[i].st, rows[i].opcode == RTS2RTS ? RTS : RTR);
		c = step_of(&q, rows[i].opcode, q.qpn);
		SET(&c, { 0x840, 64, 4 }, { PATH + 0x110, 16, rows[i].port });
		assert_int_equal(modify(q.obj, &c), is_roce() ? rows[i].status : BAD_PARAM);
		c = qp_query(&q);
		if (is_roce())
			EXPECT(&c, { PATH + 0x110, 16, rows[i].status == OK ? rows[i].port : rows[i].st == UD ? 0 : 0xc123 });
		must(destroy(q.obj));
	}
}

/* What verbs have said of a QP reads back by command, and its port */
CASE(said_by_verbs)
{
	struct how how = usual;
	struct mlx5dv_cq cq[2] = { 0 };
	struct cmd c;

	how.qp_access = IBV_ACCESS_REMOTE_READ;
	open_pair(s, &how);
	must(mlx5dv_init_obj(&(struct mlx5dv_obj){ .cq = { s->scq, &cq[0] } }, MLX5DV_OBJ_CQ));
	must(mlx5dv_init_obj(&(struct mlx5dv_obj){ .cq = { s->rcq, &cq[1] } }, MLX5DV_OBJ_CQ));
	c = verbs_qp(s->qp);
	EXPECT(&c, { QPC, 4, RTS }, { QPC + 0x8, 8, RC }, { QPC + 0x27, 1, 0 }, { QPC + 0x28, 24, pdn }, { QPC + 0x40, 3, 3 }, { QPC + 0x43, 5, 30 },
	       { QPC + 0x49, 4, 6 }, { QPC + 0x4d, 3, 2 }, { QPC + 0x50, 1, 0 }, { QPC + 0x51, 4, 9 }, { QPC + 0xa8, 24, s[1].qp->qp_num },
	       { QPC + 0x380, 4, 8 }, { QPC + 0x388, 3, 4 }, { QPC + 0x38d, 3, 3 }, { QPC + 0x390, 3, 7 }, { QPC + 0x3c8, 24, 0x123456 },
	       { QPC + 0x3e8, 24, cq[0].cqn }, { QPC + 0x488, 3, 4 }, { QPC + 0x48c, 4, 6 }, { QPC + 0x490, 3, 4 }, { QPC + 0x4a3, 5, 1 },
	       { QPC + 0x4a8, 24, 0x123456 }, { QPC + 0x4e8, 24, cq[1].cqn }, { QPC + 0x565, 3, 0 }, { QPC + 0x568, 24, 0 }, { PATH + 0x10, 16, 0 },
	       { PATH + 0x40, 5, 1 }, { PATH + 0x128, 8, 1 }, { PATH + 0x58, 8, is_roce() ? 64 : 0 });
	assert_int_equal(mlx5dv_modify_qp_udp_sport(s[0].qp, 55555), is_roce() ? 0 : EOPNOTSUPP);
	if (is_roce()) {
		assert_int_not_equal(mlx5dv_modify_qp_udp_sport(s[0].qp, 80), 0);
		assert_int_equal(get(verbs_qp(s[0].qp).out, PATH + 0x110, 16), 55555);
		must(move(s[0].qp, IBV_QPS_RESET, 0, &usual));
		assert_int_equal(get(verbs_qp(s[0].qp).out, PATH + 0x110, 16), 0);
	}
	close_pair(s);
}

/* ---- shared receive queues ---- */

CASE(rmp_made)
{
	static const struct wrong w[] = {
		{ "state", RMPC + 0x8, 4, 0, BAD_PARAM }, { "wq_type", WQ, 4, 4, BAD_PARAM }, { "signature", WQ + 0x4, 1, 1, BAD_PARAM },
		{ "limit", WQ + 0x30, 16, 16, BAD_PARAM }, { "stride too small", WQ + 0x10c, 4, 4, BAD_PARAM },
		{ "stride too large", WQ + 0x10c, 4, 10, BAD_PARAM }, { "size", WQ + 0x11b, 5, 16, LIMIT },
		{ "pd", WQ + 0x48, 24, 0xfff0, BAD_RES }, { "the ring's umem", WQ + 0x160, 32, 0, BAD_RES },
		{ "the record's umem", WQ + 0x140, 32, 0, BAD_RES },
		{ "the ring beyond its umem", WQ + 0x180, 64, ARENA - 64, BAD_PARAM },
		{ "the record's alignment", WQ + 0x80, 64, 2, BAD_PARAM }, { "a slave", WQ + 0x7, 1, 1, BAD_PARAM },
	};
	struct mlx5dv_devx_obj *o;
	struct cmd c, g;
	uint32_t n;

	c = rmp_command(1, 4);
	refuse_all(&c, w, ARRAY(w));
	lengths(&c);
	IN(WQ + 0x30, 16, 3);
	o = must_create(&c, &n);
	g = query_of(0x90f, o, n, 0x110);
	EXPECT(&g, { RMPC + 0x8, 4, 1 }, { WQ, 4, 1 }, { WQ + 0x30, 16, 3 }, { WQ + 0x48, 24, pdn }, { WQ + 0x11b, 5, 4 },
	       { WQ + 0x180, 64, get(c.in, WQ + 0x180, 64) });
	/* Its limit, in its own and in other states */
	c = command_of(0x90d, 0x110, 0x10, n);
	SET(&c, { 0x40, 4, 1 }, { 0xbf, 1, 1 }, { RMPC + 0x8, 4, 1 });
	MODIFY(o, WQ + 0x30, 16, 16, BAD_PARAM);
	MODIFY(o, WQ + 0x30, 16, 0, OK);
	g = query_of(0x90f, o, n, 0x110);
	EXPECT(&g, { WQ + 0x30, 16, 0 });
	MODIFY(o, 0x40, 4, 3, BAD_RES_STATE);
	IN(0x40, 4, 1);
	MODIFY(o, 0x80, 64, 2, BAD_PARAM);
	must(destroy(o));
}

CASE(xrc_made)
{
	enum { X = 0x80 };
	static const struct wrong w[] = {
		{ "xrcd", X + 0x28, 24, 0xffff, BAD_RES }, { "cqn", X + 0x48, 24, 0xffff00, BAD_RES }, { "pd", X + 0xc8, 24, 0xfff0, BAD_RES },
		{ "signature", X + 0x24, 1, 1, BAD_PARAM }, { "stride", X + 0x25, 3, 6, BAD_PARAM }, { "limit", X + 0xe0, 16, 16, BAD_PARAM },
		{ "the ring's umem", 0x2c0, 32, 0, BAD_RES }, { "the record's umem", X + 0x60, 32, 0, BAD_RES },
		{ "the ring beyond its umem", 0x280, 64, ARENA - 64, BAD_PARAM }, { "the record's alignment", X + 0x140, 64, 4, BAD_PARAM },
	};
	struct cmd c = command(0x80e, 0x10, 0x10);
	struct mlx5dv_devx_obj *domain, *o;
	uint32_t xrcdn, n;

	domain = must_create(&c, &xrcdn);
	c = command(0x705, 0x110, 0x10);
	SET(&c, { X + 0x4, 4, 4 }, { X + 0x25, 3, 2 }, { X + 0x28, 24, xrcdn }, { X + 0x48, 24, cq64.cqn }, { X + 0x60, 32, arena.umem->umem_id },
	    { X + 0x88, 24, 0x99 }, { X + 0xc8, 24, pdn }, { X + 0xe0, 16, 15 }, { X + 0x140, 64, part(8) }, { 0x280, 64, part(64 << 4) },
	    { 0x2c0, 32, arena.umem->umem_id });
	refuse_all(&c, w, ARRAY(w));
	lengths(&c);
	o = must_create(&c, &n);
	assert_true(destroy(domain) == EBUSY && destroy(cq64.obj) == EBUSY);
	c = query_of(0x707, o, n, 0x110);
	EXPECT(&c, { X, 8, 4 }, { X + 0x25, 3, 2 }, { X + 0x28, 24, xrcdn }, { X + 0x48, 24, cq64.cqn }, { X + 0x88, 24, 0x99 },
	       { X + 0xc8, 24, pdn }, { X + 0xe0, 16, 15 }, { X + 0xf0, 16, 0 });
	c = command_of(0x708, 0x10, 0x10, n);
	IN(0x30, 16, 1);
	MODIFY(o, 0x70, 16, 16, BAD_PARAM);
	MODIFY(o, 0x70, 16, 15, OK);
	must(destroy(o) || destroy(domain));
}

/* ---- DCT ---- */

CASE(dct_made)
{
	static const uint16_t fields[][2] = {
		{ 0x4, 4 }, { 0x28, 24 }, { 0x48, 24 }, { 0x68, 4 }, { 0x6c, 3 }, { 0x88, 8 }, { 0x93, 5 }, { 0xa8, 24 }, { 0xc8, 24 },
		{ 0xe0, 8 }, { 0xec, 20 }, { 0x100, 64 }, { 0x145, 3 }, { 0x148, 8 }, { 0x150, 16 }, { 0x168, 8 }, { 0x178, 8 },
	};
	static const struct wrong w[] = {
		{ "cqn", DCTC + 0x48, 24, 0xffff00, BAD_RES }, { "srqn", DCTC + 0xa8, 24, 0xffff00, BAD_RES },
		{ "pd", DCTC + 0xc8, 24, 0xfff0, BAD_RES }, { "offload", DCTC + 0x18, 4, 1, BAD_PARAM },
		{ "scatter by 32", DCTC + 0x88, 8, 1, BAD_PARAM }, { "mtu", DCTC + 0x145, 3, 0, BAD_PARAM },
		{ "port", DCTC + 0x148, 8, 2, BAD_PARAM }, { "pkey_index", DCTC + 0x150, 16, 999, BAD_PARAM },
		{ "my_addr_index", DCTC + 0x168, 8, 15, BAD_PARAM }, { "reserved lkey", DCTC + 0x71, 1, 1, BAD_PARAM },
	};
	struct cmd c = command(0x710, 0x80, 0x10), g;
	struct mlx5dv_devx_obj *o;
	uint32_t n;

	SET(&c, { DCTC + 0x28, 24, 0x4321 }, { DCTC + 0x48, 24, cq128.cqn }, { DCTC + 0x68, 4, 1 }, { DCTC + 0x6c, 3, 7 },
	    { DCTC + 0x93, 5, 12 }, { DCTC + 0xa8, 24, rmp.rmpn }, { DCTC + 0xc8, 24, pdn }, { DCTC + 0xe0, 8, 0x20 },
	    { DCTC + 0xec, 20, 0x12345 }, { DCTC + 0x100, 64, 0x8877665544332211 }, { DCTC + 0x145, 3, 5 }, { DCTC + 0x148, 8, 1 },
	    { DCTC + 0x168, 8, sgid }, { DCTC + 0x178, 8, 64 });
	refuse_all(&c, w, ARRAY(w));
	lengths(&c);
	IN(DCTC + 0x88, 8, 2);
	o = must_create(&c, &n);
	g = query_of(0x713, o, n, 0x80);
	same(&c, DCTC, &g, DCTC, fields, ARRAY(fields));
	assert_int_equal(destroy(rmp.obj), EBUSY);
	assert_int_equal(destroy(cq128.obj), EBUSY);
	must(destroy(o));
}

/* ---- for raw packets ---- */

/* RST 0, RDY 1, ERR 3: each from each */
static void states_of(unsigned modify_op, unsigned query_op, struct mlx5dv_devx_obj *o, uint32_t n)
{
	static const struct {
		unsigned is, to, status, then;
	} steps[] = {
		{ 0, 3, BAD_RES_STATE, 0 }, { 1, 1, BAD_RES_STATE, 0 }, { 0, 0, OK, 0 }, { 0, 1, OK, 1 }, { 0, 1, BAD_RES_STATE, 1 },
		{ 1, 2, BAD_PARAM, 1 }, { 1, 0, OK, 0 }, { 0, 1, OK, 1 }, { 1, 3, OK, 3 }, { 3, 1, BAD_RES_STATE, 3 }, { 3, 0, OK, 0 },
	};

	for (unsigned i = 0; i < ARRAY(steps); i++) {
		struct cmd c = command_of(modify_op, 0x110, 0x10, n);

		IN(0x40, 4, steps[i].is);
		MODIFY(o, 0x100 + 0x8, 4, steps[i].to, steps[i].status);
		c = query_of(query_op, o, n, 0x110);
		EXPECT(&c, { 0x100 + 0x8, 4, steps[i].then });
	}
}

static struct cmd wq_command(unsigned opcode, unsigned uar_page, unsigned fields)
{
	struct cmd c = command(opcode, 0x110, 0x10);
	size_t buf = part(64 << 4), record = part(8);

	set_wq(&c, WQ, 1, 4, record, buf);
	SET(&c, { 0x100 + 0x28, 24, fields }, { 0x100 + 0x48, 24, cq64.cqn }, { WQ + 0x68, 24, uar_page });
	return c;
}

CASE(raw_objects)
{
	static const struct wrong sq_wrong[] = {
		{ "tis", 0x100 + 0x168, 24, 0xfff, BAD_RES }, { "cqn", 0x100 + 0x48, 24, 0xffff00, BAD_RES },
		{ "two lists", 0x100 + 0x100, 16, 2, BAD_PARAM }, { "state", 0x100 + 0x8, 4, 1, BAD_PARAM },
		{ "wq_type", WQ, 4, 0, BAD_PARAM }, { "stride", WQ + 0x10c, 4, 5, BAD_PARAM },
		{ "uar_page", WQ + 0x68, 24, 0xfffff, BAD_RES }, { "pd", WQ + 0x48, 24, 0xfff0, BAD_RES },
	};
	static const struct wrong rq_wrong[] = {
		{ "cqn", 0x100 + 0x48, 24, 0xffff00, BAD_RES }, { "an RMP that does not exist", 0x100 + 0x4, 4, 1, BAD_RES },
		{ "mem_rq_type", 0x100 + 0x4, 4, 2, BAD_PARAM }, { "scatter_fcs", 0x100 + 0x2, 1, 1, BAD_PARAM },
		{ "wq_type", WQ, 4, 4, BAD_PARAM }, { "umem", WQ + 0x160, 32, 0, BAD_RES },
	};
	struct mlx5dv_devx_obj *td, *tis, *sq, *rq[2], *on_rmp, *rqt, *tir;
	uint32_t tdn, tisn, sqn, rqn[2], on_rmpn, rqtn, tirn;
	struct cmd c = command(0x816, 0x10, 0x10), g;

	td = must_create(&c, &tdn);
	/* TIS: a priority, a domain */
	c = command(0x912, 0xc0, 0x10);
	SET(&c, { 0x100 + 0xc, 4, 5 }, { 0x100 + 0x128, 24, tdn }, { 0x100 + 0x168, 24, pdn });
	lengths(&c);
	REFUSE(&c, { "domain", 0x100 + 0x128, 24, 0xfff, BAD_RES });
	tis = must_create(&c, &tisn);
	c = command_of(0x913, 0xc0, 0x10, tisn);
	IN(0xbf, 1, 1);
	MODIFY(tis, 0x100 + 0xc, 4, 2, OK);
	c = query_of(0x915, tis, tisn, 0xb0);
	EXPECT(&c, { 0x80 + 0xc, 4, 2 }, { 0x80 + 0x128, 24, tdn });

	c = wq_command(0x904, uar->page_id, 0x77);
	SET(&c, { 0x100 + 0x100, 16, 1 }, { 0x100 + 0x168, 24, tisn });
	refuse_all(&c, sq_wrong, ARRAY(sq_wrong));
	lengths(&c);
	sq = must_create(&c, &sqn);
	c = query_of(0x907, sq, sqn, 0x110);
	EXPECT(&c, { 0x100 + 0x48, 24, cq64.cqn }, { 0x100 + 0x168, 24, tisn }, { WQ + 0x68, 24, uar->page_id });
	states_of(0x905, 0x907, sq, sqn);

	/* RQ: two of their own, and one on an RMP */
	for (unsigned i = 0; i < 2; i++) {
		c = wq_command(0x908, 0, 0x55);
		refuse_all(&c, rq_wrong, ARRAY(rq_wrong));
		lengths(&c);
		rq[i] = must_create(&c, &rqn[i]);
	}
	c = query_of(0x90b, rq[1], rqn[1], 0x110);
	EXPECT(&c, { 0x100 + 0x28, 24, 0x55 }, { WQ + 0x11b, 5, 4 });
	states_of(0x909, 0x90b, rq[0], rqn[0]);
	c = command(0x908, 0x110, 0x10);
	SET(&c, { 0x100 + 0x4, 4, 1 }, { 0x100 + 0x48, 24, cq64.cqn }, { 0x100 + 0x88, 24, rmp.rmpn });
	on_rmp = must_create(&c, &on_rmpn);
	assert_int_equal(destroy(rmp.obj), EBUSY);

	/* RQT */
	c = command(0x916, 0x110 + 8, 0x10);
	SET(&c, { 0x100 + 0xb0, 16, 4 }, { 0x100 + 0xd0, 16, 2 }, { 0x888, 24, rqn[0] }, { 0x8a8, 24, rqn[1] });
	REFUSE(&c, { "an RQ", 0x888, 24, 0xffff, BAD_RES }, { "an empty list", 0x100 + 0xd0, 16, 0, BAD_PARAM },
	       { "of virtual queues", 0x100 + 0xa5, 3, 1, BAD_PARAM }, { "raw", 0x100 + 0xc0, 1, 1, BAD_PARAM },
	       { "more than there is room", 0x100 + 0xd0, 16, 5, BAD_PARAM }, { "more than there are", 0x100 + 0xd0, 16, 3, BAD_INLEN });
	rqt = must_create(&c, &rqtn);
	assert_int_equal(destroy(rq[1]), EBUSY);
	c = command_of(0x917, 0x110 + 8, 0x10, rqtn);
	SET(&c, { 0x100 + 0xd0, 16, 2 }, { 0x888, 24, rqn[1] }, { 0x8a8, 24, rqn[0] });
	for (unsigned mask = 0; mask < 2; mask++) {
		MODIFY(rqt, 0x80, 64, mask, OK);
		g = query_of(0x919, rqt, rqtn, 0x120);
		EXPECT(&g, { 0x100 + 0xb0, 16, 4 }, { 0x100 + 0xd0, 16, 2 }, { 0x888, 24, rqn[!!mask] }, { 0x8a8, 24, rqn[!mask] });
	}
	MODIFY(rqt, 0x80, 64, 3, BAD_PARAM);
	IN(0x80, 64, 1);
	MODIFY(rqt, 0x100 + 0xd0, 16, 0, BAD_PARAM);
	MODIFY(rqt, 0x100 + 0xd0, 16, 5, BAD_PARAM);
	SET(&c, { 0x100 + 0xd0, 16, 1 }, { 0x888, 24, rqn[0] });
	assert_int_equal(modify(rqt, &c), OK);
	must(destroy(rq[1]));
	c = query_of(0x919, rqt, rqtn, 0x120);
	EXPECT(&c, { 0x100 + 0xd0, 16, 1 }, { 0x888, 24, rqn[0] });

	/* TIR: to an RQ, to a table */
	c = command(0x900, 0x110, 0x10);
	SET(&c, { 0x100 + 0xe8, 24, rqn[0] }, { 0x100 + 0x128, 24, tdn });
	lengths(&c);
	REFUSE(&c, { "an RQ", 0x100 + 0xe8, 24, 0xffff, BAD_RES }, { "a domain", 0x100 + 0x128, 24, 0xfff, BAD_RES },
	       { "disp_type", 0x100 + 0x20, 4, 2, BAD_PARAM }, { "a hash", 0x100 + 0x120, 4, 3, BAD_PARAM },
	       { "a table", 0x100 + 0x20, 4, 1, BAD_RES });
	SET(&c, { 0x100 + 0x20, 4, 1 }, { 0x100 + 0x108, 24, rqtn }, { 0x100 + 0x120, 4, 2 }, { 0x100 + 0x140, 64, 0x1111222233334444 });
	tir = must_create(&c, &tirn);
	c = query_of(0x903, tir, tirn, 0x110);
	EXPECT(&c, { 0x100 + 0x108, 24, rqtn }, { 0x100 + 0x140, 64, 0x1111222233334444 });
	c = command_of(0x901, 0x110, 0x10, tirn);
	IN(0x80, 64, 4);
	MODIFY(tir, 0x100 + 0x120, 4, 1, BAD_PARAM);
	MODIFY(tir, 0x100 + 0x120, 4, 0, OK);

	/* In the order of their making they are all in use, in the other none is */
	struct mlx5dv_devx_obj *const all[] = { td, tis, rq[0], rqt, tir, sq, on_rmp };
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(destroy(all[i]), EBUSY);
	for (unsigned i = ARRAY(all); i--;)
		must(destroy(all[i]));
}

/* Striding queues of few or large strides, and who may have a striding RMP */
CASE(striding)
{
	static const struct wrong rq_wrong[] = {
		{ "4 strides", WQ + 0x134, 4, 9, BAD_PARAM }, { "2 strides", WQ + 0x134, 4, 8, BAD_PARAM },
		{ "no room for a pointer", WQ + 0x10c, 4, 4, BAD_PARAM }, { "entries too long", WQ + 0x10c, 4, 10, BAD_PARAM },
		{ "wq_type", WQ, 4, 5, BAD_PARAM }, { "umem", WQ + 0x160, 32, 0xfff0, BAD_RES },
	};
	struct mlx5dv_devx_obj *o;
	struct cmd c, g;
	struct dqp q;
	uint32_t n;

	for (unsigned type = 2; type < 4; type++) {
		c = wq_command(0x908, 0, 0x55);
		SET(&c, { WQ, 4, type }, { WQ + 0x10c, 4, 5 });
		refuse_all(&c, rq_wrong, ARRAY(rq_wrong));
		if (!is_roce())
			continue;
		SET(&c, { WQ + 0x134, 4, 3 - 9 }, { WQ + 0x138, 1, 1 }, { WQ + 0x13d, 3, 5 });
		o = must_create(&c, &n);
		g = query_of(0x90b, o, n, 0x110);
		EXPECT(&g, { WQ, 4, type }, { WQ + 0x134, 4, 3 - 9 + 16 }, { WQ + 0x138, 1, 1 }, { WQ + 0x13d, 3, 5 });
		must(destroy(o));
	}
	c = rmp_command(3, 4);
	if (!is_roce()) {
		REFUSE(&c, { "striding", WQ, 4, 3, BAD_PARAM });
		return;
	}
	refuse_all(&c, rq_wrong, ARRAY(rq_wrong));
	REFUSE(&c, { "no links", RMPC + 0x20, 1, 1, BAD_PARAM });
	o = must_create(&c, &n);
	c = qp_command(&q, RC, 4, 0, cq64.cqn, cq64.cqn, n);
	REFUSE(&c, { "a striding RMP", QPC + 0x565, 3, 1, BAD_RES });
	must(destroy(o));
}

int main(void)
{
	return devx_main(false);
}
