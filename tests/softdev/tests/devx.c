/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * devx.c: device commands: which of them come by which call, statuses, registered memory, uids,
 * asynchronous queries, events, capabilities, keys and what goes through them.
 */
#include "rig.h"
#include <sys/eventfd.h>

#define IN 0x200u                 /* bytes of an inbox, more than most commands want */
#define OUT 0x200u
#define GUARD 64u
#define FILL 0xa5

static struct ibv_context *second, *other; /* another context of the same device, one of another device */
static uint32_t pdn;

/* ---- fields: bit 0 is the most significant of byte 0 ---- */

static uint64_t get(const uint8_t *b, unsigned bit, unsigned width)
{
	uint64_t v = 0;

	for (unsigned i = bit; i < bit + width; i++)
		v = v << 1 | (b[i / 8] >> (7 - i % 8) & 1);
	return v;
}

static void put(uint8_t *b, unsigned bit, unsigned width, uint64_t v)
{
	for (unsigned i = 0; i < width; i++) {
		unsigned at = bit + width - 1 - i;

		b[at / 8] = (b[at / 8] & ~(0x80 >> at % 8)) | (v >> i & 1) << (7 - at % 8);
	}
}

/* ---- a command and its answer ---- */

struct cmd {
	uint8_t in[IN];
	uint8_t out[OUT + GUARD];
	size_t inlen, outlen;
};

static struct cmd command(unsigned opcode, size_t inlen, size_t outlen)
{
	struct cmd c = { .inlen = inlen, .outlen = outlen };

	memset(c.out, FILL, sizeof(c.out));
	put(c.in, 0, 16, opcode);
	return c;
}

static unsigned status(const struct cmd *c)
{
	return c->out[0];
}

static void check_guard(const struct cmd *c)
{
	assert_true(all_bytes(c->out + c->outlen, sizeof(c->out) - c->outlen, FILL));
}

static bool untouched(const struct cmd *c)
{
	return all_bytes(c->out, sizeof(c->out), FILL);
}

static int general(struct ibv_context *x, struct cmd *c)
{
	int ret = mlx5dv_devx_general_cmd(x, c->in, c->inlen, c->out, c->outlen);

	check_guard(c);
	return ret;
}

static struct mlx5dv_devx_obj *create(struct ibv_context *x, struct cmd *c)
{
	struct mlx5dv_devx_obj *o;

	errno = 0;
	o = mlx5dv_devx_obj_create(x, c->in, c->inlen, c->out, c->outlen);
	check_guard(c);
	return o;
}

static int query(struct mlx5dv_devx_obj *o, struct cmd *c)
{
	int ret = mlx5dv_devx_obj_query(o, c->in, c->inlen, c->out, c->outlen);

	check_guard(c);
	return ret;
}

static int modify(struct mlx5dv_devx_obj *o, struct cmd *c)
{
	int ret = mlx5dv_devx_obj_modify(o, c->in, c->inlen, c->out, c->outlen);

	check_guard(c);
	return ret;
}

/* A command that the firmware refuses */
static void refused(struct ibv_context *x, struct cmd *c, unsigned with)
{
	assert_null(create(x, c));
	assert_int_equal(errno, EREMOTEIO);
	assert_int_equal(status(c), with);
	assert_int_not_equal(get(c->out, 0x20, 32), 0);
}

static struct mlx5dv_devx_obj *simple(struct ibv_context *x, unsigned opcode, uint32_t *number)
{
	struct cmd c = command(opcode, 16, 16);
	struct mlx5dv_devx_obj *o = create(x, &c);

	assert_non_null(o);
	assert_int_equal(status(&c), 0);
	*number = opcode == 0x771 ? get(c.out, 0x58, 8) : get(c.out, 0x48, 24);
	return o;
}

static uint32_t pd_number(struct ibv_pd *p)
{
	struct mlx5dv_pd dv = { 0 };
	struct mlx5dv_obj obj = { .pd = { p, &dv } };

	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_PD));
	return dv.pdn;
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

static void by_general(UNUSED void **state)
{
	unsigned passed = 0;

	for (unsigned op = 0; op <= 0xfff; op++) {
		bool listed = in(generals, ARRAY(generals), op) || (op >= 0xb00 && op < 0xd00);
		struct cmd c = command(op, IN, OUT);
		int ret = general(ctx, &c);

		if (listed ? ret != 0 && ret != EREMOTEIO : ret != EINVAL || !untouched(&c))
			fail_msg("opcode %x: %d", op, ret);
		if (ret == EREMOTEIO)
			assert_int_not_equal(status(&c), 0);
		passed += listed;
	}
	assert_int_equal(passed, 17 + 0x200);
}

static void by_create(UNUSED void **state)
{
	uint32_t eqn;

	must(mlx5dv_devx_query_eqn(ctx, 0, &eqn));
	for (unsigned op = 0; op <= 0xfff; op++) {
		bool listed = in(creates, ARRAY(creates), op);
		struct cmd c = command(op, IN, OUT);
		struct mlx5dv_devx_obj *o;

		if (op == 0x600)
			put(c.in, 0x40, 4, 1);
		if (op == 0x400)
			put(c.in, 0x80 + 0xa0, 32, eqn);
		o = create(ctx, &c);
		if (listed ? !o && errno != EREMOTEIO : o || errno != EINVAL || !untouched(&c))
			fail_msg("opcode %x: %p, errno %d", op, (void *)o, errno);
		if (o)
			must(mlx5dv_devx_obj_destroy(o));
	}
}

/* What the kernel looks at beside the opcode */
static void kernel_checks(UNUSED void **state)
{
	struct mlx5dv_devx_obj *o;
	uint32_t number;
	struct cmd c;

	c = command(0x600, 16, 32);
	put(c.in, 0x40, 4, 2);
	assert_null(create(ctx, &c));
	assert_int_equal(errno, EINVAL);
	c = command(0x936, 0x40, 16);
	put(c.in, 0x30, 16, 1);
	assert_null(create(ctx, &c));
	assert_int_equal(errno, EINVAL);
	/* A key without the whole of its context */
	c = command(0x200, 0x4c, 16);
	assert_null(create(ctx, &c));
	assert_int_equal(errno, EINVAL);
	c = command(0x200, 0x50, 16);
	refused(ctx, &c, 0x50);
	/* A CQ of an event queue that does not exist */
	c = command(0x400, 0x110, 16);
	put(c.in, 0x80 + 0xa0, 32, 3);
	assert_null(create(ctx, &c));
	assert_int_equal(errno, ENOENT);
	/* Tunnels */
	c = command(0x800, 16, 16);
	put(c.in, 0x20, 16, 1);
	assert_null(create(ctx, &c));
	assert_int_equal(errno, EINVAL);
	c = command(0x842, 16, 16);
	put(c.in, 0x20, 16, 1);
	assert_int_equal(general(ctx, &c), EREMOTEIO);
	assert_int_equal(status(&c), 3);
	/* Boxes that are no boxes */
	for (size_t len = 0; len < 16; len++) {
		c = command(0x800, len, 16);
		assert_null(create(ctx, &c));
		assert_int_equal(errno, EINVAL);
		c = command(0x800, 16, len);
		assert_null(create(ctx, &c));
		assert_int_equal(errno, EINVAL);
		assert_true(untouched(&c));
		c = command(0x842, len, 16);
		assert_int_equal(general(ctx, &c), EINVAL);
	}
	/* The uid that the caller writes is overwritten */
	c = command(0x800, 16, 16);
	put(c.in, 0x10, 16, 0xffff);
	o = create(ctx, &c);
	assert_non_null(o);
	/* By its handle an object is neither another of its kind, nor one of another kind */
	must(mlx5dv_devx_obj_destroy(o));
	o = simple(ctx, 0x771, &number);
	c = command(0x773, 0x20, 0x100);
	put(c.in, 0xf8, 8, number);
	must(query(o, &c));
	put(c.in, 0xf8, 8, number + 1);
	assert_int_equal(query(o, &c), EINVAL);
	put(c.in, 0xf8, 8, number);
	put(c.in, 0x20, 16, 1);
	assert_int_equal(query(o, &c), EINVAL);
	put(c.in, 0x20, 16, 0);
	assert_int_equal(modify(o, &c), EINVAL);
	must(mlx5dv_devx_obj_destroy(o));
}

/* Verbs objects by their handles: every opcode, with the object's number where numbers are */
enum { V_CQ, V_QP, V_SRQ, V_WQ, V_TBL, VERBS };

static struct {
	const char *name;
	uint16_t queries[2], modifies[9];
} verbs[VERBS] = {
	[V_CQ] = { "cq", { 0x402 }, { 0x403 } },
	[V_QP] = { "qp", { 0x50b }, { 0x502, 0x503, 0x504, 0x505, 0x506, 0x507, 0x50a, 0x50e } },
	[V_SRQ] = { "srq", { 0x90f }, { 0x90d } },
	[V_WQ] = { "wq", { 0x90b }, { 0x703, 0x909 } },
	[V_TBL] = { "ind_tbl", { 0x919 }, { 0x917 } },
};

static int verbs_call(unsigned kind, void *o, bool change, struct cmd *c)
{
	switch (kind << 1 | change) {
	case V_CQ << 1:
		return mlx5dv_devx_cq_query(o, c->in, c->inlen, c->out, c->outlen);
	case V_CQ << 1 | 1:
		return mlx5dv_devx_cq_modify(o, c->in, c->inlen, c->out, c->outlen);
	case V_QP << 1:
		return mlx5dv_devx_qp_query(o, c->in, c->inlen, c->out, c->outlen);
	case V_QP << 1 | 1:
		return mlx5dv_devx_qp_modify(o, c->in, c->inlen, c->out, c->outlen);
	case V_SRQ << 1:
		return mlx5dv_devx_srq_query(o, c->in, c->inlen, c->out, c->outlen);
	case V_SRQ << 1 | 1:
		return mlx5dv_devx_srq_modify(o, c->in, c->inlen, c->out, c->outlen);
	case V_WQ << 1:
		return mlx5dv_devx_wq_query(o, c->in, c->inlen, c->out, c->outlen);
	case V_WQ << 1 | 1:
		return mlx5dv_devx_wq_modify(o, c->in, c->inlen, c->out, c->outlen);
	case V_TBL << 1:
		return mlx5dv_devx_ind_tbl_query(o, c->in, c->inlen, c->out, c->outlen);
	default:
		return mlx5dv_devx_ind_tbl_modify(o, c->in, c->inlen, c->out, c->outlen);
	}
}

static void walk(unsigned kind, void *o, uint32_t number)
{
	for (unsigned op = 0; op <= 0xfff; op++)
		for (int change = 0; change < 2; change++) {
			bool listed = change ? in(verbs[kind].modifies, ARRAY(verbs[kind].modifies), op) :
					       in(verbs[kind].queries, ARRAY(verbs[kind].queries), op);
			struct cmd c = command(op, IN, OUT);
			int ret;

			put(c.in, 0x48, 24, number);
			ret = verbs_call(kind, o, change, &c);
			check_guard(&c);
			if (op && listed ? ret != 0 && ret != EREMOTEIO : ret != EINVAL || !untouched(&c))
				fail_msg("%s, opcode %x, %s: %d", verbs[kind].name, op, change ? "modify" : "query", ret);
			if (!listed)
				continue;
			/* Not under another number */
			c = command(op, IN, OUT);
			put(c.in, 0x48, 24, number ^ 1);
			assert_int_equal(verbs_call(kind, o, change, &c), EINVAL);
		}
}

static void by_verbs_handle(UNUSED void **state)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_wq_init_attr wq_attr = { .wq_type = IBV_WQT_RQ, .max_wr = 16, .max_sge = 1 };
	struct ibv_rwq_ind_table_init_attr tbl_attr = { .log_ind_tbl_size = 0 };
	struct ibv_rwq_ind_table *tbl;
	struct mlx5dv_cq dvcq;
	struct mlx5dv_srq dvsrq = { .comp_mask = MLX5DV_SRQ_MASK_SRQN };
	struct mlx5dv_obj obj;
	struct ibv_srq *srq;
	struct ibv_wq *wq;
	struct side s;

	open_side(&s, &usual);
	srq = ibv_create_srq(pd, &srq_attr);
	assert_non_null(srq);
	obj.cq.in = s.scq;
	obj.cq.out = &dvcq;
	obj.srq.in = srq;
	obj.srq.out = &dvsrq;
	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ | MLX5DV_OBJ_SRQ));
	walk(V_CQ, s.scq, dvcq.cqn);
	walk(V_QP, s.qp, s.qp->qp_num);
	walk(V_SRQ, srq, dvsrq.srqn);
	must(ibv_destroy_srq(srq));
	if (is_roce()) {
		wq_attr.pd = pd;
		wq_attr.cq = s.rcq;
		wq = ibv_create_wq(ctx, &wq_attr);
		assert_non_null(wq);
		tbl_attr.ind_tbl = &wq;
		tbl = ibv_create_rwq_ind_table(ctx, &tbl_attr);
		assert_non_null(tbl);
		walk(V_WQ, wq, wq->wq_num);
		walk(V_TBL, tbl, tbl->ind_tbl_num);
		must(ibv_destroy_rwq_ind_table(tbl));
		must(ibv_destroy_wq(wq));
	}
	close_side(&s);
}

/*
 * The handle of what a command made: every opcode, by all that take one. Of most simple objects
 * nothing can be asked
 */
static void by_devx_handle(UNUSED void **state)
{
	static const struct {
		uint16_t creator, query;
	} kinds[] = { { 0x800, 0 }, { 0x80e, 0 }, { 0x816, 0 }, { 0x771, 0x773 } };
	struct mlx5dv_devx_cmd_comp *comp = mlx5dv_devx_create_cmd_comp(ctx);
	uint64_t answer[1 + OUT / 8];
	uint32_t number;

	assert_non_null(comp);
	for (size_t i = 0; i < ARRAY(kinds); i++) {
		struct mlx5dv_devx_obj *o = simple(ctx, kinds[i].creator, &number);
		unsigned asked = 0;

		for (unsigned op = 0; op <= 0xfff; op++) {
			struct cmd c = command(op, IN, OUT);
			int expected = op && op == kinds[i].query ? 0 : EINVAL;

			put(c.in, 0x48, 24, number);
			put(c.in, 0xf8, 8, number);
			if (query(o, &c) != expected || (expected && !untouched(&c)))
				fail_msg("object of %x, query %x", kinds[i].creator, op);
			if (mlx5dv_devx_obj_query_async(o, c.in, c.inlen, OUT, op, comp) != expected)
				fail_msg("object of %x, asynchronous query %x", kinds[i].creator, op);
			if (!expected) {
				must(mlx5dv_devx_get_async_cmd_comp(comp, (void *)answer, sizeof(answer)));
				assert_int_equal(answer[0], op);
				asked++;
			}
			c = command(op, IN, OUT);
			put(c.in, 0x48, 24, number);
			if (modify(o, &c) != EINVAL || !untouched(&c))
				fail_msg("object of %x, modify %x", kinds[i].creator, op);
		}
		assert_int_equal(asked, kinds[i].query != 0);
		must(mlx5dv_devx_obj_destroy(o));
	}
	mlx5dv_devx_destroy_cmd_comp(comp);
}

/* ---- statuses ---- */

static void statuses(UNUSED void **state)
{
	struct mlx5dv_devx_obj *mine, *his;
	uint32_t number, his_number;
	struct cmd c;

	c = command(0xb55, 16, 16);
	assert_int_equal(general(ctx, &c), EREMOTEIO);
	assert_int_equal(status(&c), 2);
	c = command(0x930, 0x40, 16);
	refused(ctx, &c, 2);
	c = command(0x800, 16, 16);
	put(c.in, 0x30, 16, 1);
	refused(ctx, &c, 2);
	/* Too short for the command, though long enough to be one */
	c = command(0x101, 16, 0x100);
	assert_int_equal(general(ctx, &c), EREMOTEIO);
	assert_int_equal(status(&c), 0x51);
	c = command(0x842, 17, 16);
	assert_int_equal(general(ctx, &c), EREMOTEIO);
	assert_int_equal(status(&c), 0x50);
	mine = simple(ctx, 0x771, &number);
	c = command(0x773, 0x1c, 0x100);
	assert_int_equal(query(mine, &c), EINVAL); /* it does not reach to the number */
	must(mlx5dv_devx_obj_destroy(mine));

	/* Bad resources: not there, another context's, and another device's */
	c = command(0x600, 16, 0x20);
	put(c.in, 0x40, 4, 1);
	put(c.in, 0x48, 24, 0xffffff);
	refused(ctx, &c, 5);
	mine = simple(ctx, 0x800, &number);
	his = simple(second, 0x800, &his_number);
	assert_int_not_equal(number, his_number);
	put(c.in, 0x48, 24, his_number);
	refused(ctx, &c, 5);
	put(c.in, 0x48, 24, number);
	refused(second, &c, 5);
	refused(other, &c, 5);

	/* In use */
	{
		struct mlx5dv_devx_obj *psv = create(ctx, &c);

		assert_non_null(psv);
		assert_int_equal(mlx5dv_devx_obj_destroy(mine), EBUSY);
		must(mlx5dv_devx_obj_destroy(psv));
	}
	must(mlx5dv_devx_obj_destroy(mine));
	must(mlx5dv_devx_obj_destroy(his));
}

/* As many as there are, and what a context leaves is free when it is closed */
static void limits(UNUSED void **state)
{
	static struct mlx5dv_devx_obj *all[1 << 12];
	struct mlx5dv_context_attr attr = { .flags = MLX5DV_CONTEXT_FLAGS_DEVX };
	unsigned n;

	for (int round = 0; round < 2; round++) {
		struct ibv_context *x = mlx5dv_open_device(list[0], &attr);
		struct cmd c;

		assert_non_null(x);
		for (n = 0; n < ARRAY(all); n++) {
			c = command(0x80e, 16, 16);
			all[n] = create(x, &c);
			if (!all[n])
				break;
		}
		assert_int_equal(errno, EREMOTEIO);
		assert_int_equal(status(&c), 8);
		assert_in_range(n, (1 << 12) - 16, 1 << 12);
		/* libmlx5's own memory for them: the device is not told */
		if (!round)
			for (unsigned i = 0; i < n; i += 2)
				must(mlx5dv_devx_obj_destroy(all[i]));
		must(ibv_close_device(x));
		for (unsigned i = round ? 0 : 1; i < n; i += round ? 1 : 2)
			free(all[i]);
	}
}

/* ---- contexts ---- */

static void without_uid(UNUSED void **state)
{
	uint16_t types[] = { 9 };
	struct mlx5dv_devx_event_channel *ch;
	struct ibv_context *x;
	uint8_t *p = pages(1);
	struct cmd c;

	/* The first attempt asks for commands, the second does not */
	must(softdev_fault("setup=EINVAL@1"));
	x = ibv_open_device(list[0]);
	must(softdev_fault(NULL));
	assert_non_null(x);
	for (unsigned op = 0; op <= 0xfff; op++) {
		int ret;

		c = command(op, IN, OUT);
		ret = general(x, &c);
		if (op == 0x100 || op == 0x740 || op == 0x752 || op == 0x762)
			assert_true(ret == 0 || ret == EREMOTEIO);
		else
			assert_int_equal(ret, EINVAL);
	}
	c = command(0x800, 16, 16);
	assert_null(create(x, &c));
	assert_int_equal(errno, EINVAL);
	assert_null(mlx5dv_devx_umem_reg(x, p, 4096, 0));
	assert_int_equal(errno, EINVAL);
	ch = mlx5dv_devx_create_event_channel(x, 0);
	assert_non_null(ch);
	assert_int_equal(mlx5dv_devx_subscribe_devx_event(ch, NULL, sizeof(types), types, 0), EINVAL);
	mlx5dv_devx_destroy_event_channel(ch);
	must(ibv_close_device(x));
	munmap(p, 4096);
}

/* ---- registered memory ---- */

static void umems(UNUSED void **state)
{
	struct mlx5dv_devx_umem_in ex = { .size = 4096 };
	struct mlx5dv_devx_umem *u;
	uint8_t *p = pages(4);
	static const struct {
		size_t off, size;
		uint32_t access;
		int err;
	} cases[] = {
		{ 0, 4096, 0, 0 },
		{ 0, 4 * 4096, IBV_ACCESS_LOCAL_WRITE, 0 },
		{ 100, 8, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, 0 },
		{ 0, 4096, IBV_ACCESS_RELAXED_ORDERING, 0 },
		{ 0, 0, 0, EINVAL },
		{ 0, 4096, IBV_ACCESS_REMOTE_WRITE, EINVAL },
		{ 0, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC, EINVAL },
		{ 0, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, EINVAL },
		{ 3 * 4096, 4096, 0, 0 },
		{ 3 * 4096, 4096, IBV_ACCESS_LOCAL_WRITE, EFAULT },
	};
	uint32_t first;

	must(mprotect(p + 3 * 4096, 4096, PROT_READ));
	for (unsigned i = 0; i < ARRAY(cases); i++) {
		errno = 0;
		if (i == 1) /* writable for this one */
			must(mprotect(p + 3 * 4096, 4096, PROT_READ | PROT_WRITE));
		u = mlx5dv_devx_umem_reg(ctx, p + cases[i].off, cases[i].size, cases[i].access);
		must(mprotect(p + 3 * 4096, 4096, PROT_READ));
		if (!u != !!cases[i].err || (!u && errno != cases[i].err))
			fail_msg("case %u: %p, %s", i, (void *)u, strerror(errno));
		if (u) {
			assert_int_not_equal(u->umem_id, 0);
			must(mlx5dv_devx_umem_dereg(u));
		}
	}
	/* Which page sizes will do: 4 KiB must be among them */
	ex.addr = p;
	for (unsigned bit = 0; bit < 64; bit++) {
		ex.pgsz_bitmap = 1ull << bit;
		errno = 0;
		u = mlx5dv_devx_umem_reg_ex(ctx, &ex);
		assert_int_equal(!!u, bit == 12);
		if (u)
			must(mlx5dv_devx_umem_dereg(u));
		else
			assert_int_equal(errno, EINVAL);
	}
	ex.pgsz_bitmap = ~0ull;
	u = mlx5dv_devx_umem_reg_ex(ctx, &ex);
	assert_non_null(u);
	first = u->umem_id;
	must(mlx5dv_devx_umem_dereg(u));
	/* Unmapped memory, and a file that is no dma-buf */
	munmap(p, 4 * 4096);
	assert_null(mlx5dv_devx_umem_reg(ctx, p, 4096, 0));
	assert_int_equal(errno, EFAULT);
	ex.comp_mask = MLX5DV_UMEM_MASK_DMABUF;
	ex.addr = NULL;
	ex.dmabuf_fd = memfd_create("none", 0);
	assert_null(mlx5dv_devx_umem_reg_ex(ctx, &ex));
	assert_int_equal(errno, EINVAL);
	close(ex.dmabuf_fd);
	assert_null(mlx5dv_devx_umem_reg_ex(ctx, &ex));
	assert_int_equal(errno, EBADF);
	assert_int_not_equal(first, 0);
}

/* ---- asynchronous queries ---- */

static void async_queries(UNUSED void **state)
{
	struct {
		uint64_t wr_id;
		uint8_t out[0x10000];
	} r;
	struct mlx5dv_devx_cmd_comp *comp = mlx5dv_devx_create_cmd_comp(ctx);
	struct mlx5dv_devx_obj *q;
	unsigned n, order = 0, seen = 0;
	uint64_t last = 0;
	uint32_t number;
	struct cmd c = command(0x773, 0x20, 0);

	assert_non_null(comp);
	q = simple(ctx, 0x771, &number);
	put(c.in, 0xf8, 8, number);
	assert_false(readable(comp->fd, 0));
	must(fcntl(comp->fd, F_SETFL, O_NONBLOCK));
	assert_int_equal(mlx5dv_devx_get_async_cmd_comp(comp, (void *)&r, sizeof(r)), EAGAIN);
	for (n = 1; n <= 16; n++)
		must(mlx5dv_devx_obj_query_async(q, c.in, c.inlen, 0x100, 0x1234567800000000 + n, comp));
	assert_true(readable(comp->fd, PATIENCE * 1000));
	/* Each once, in any order */
	for (n = 1; n <= 16; n++) {
		if (n == 3) {
			assert_int_equal(mlx5dv_devx_get_async_cmd_comp(comp, (void *)&r, 8 + 0xff), ENOSPC);
			assert_true(readable(comp->fd, 0));
		}
		memset(&r, FILL, sizeof(r));
		must(mlx5dv_devx_get_async_cmd_comp(comp, (void *)&r, sizeof(r)));
		assert_int_equal(r.wr_id >> 32, 0x12345678);
		assert_in_range(r.wr_id & 0xffffffff, 1, 16);
		assert_int_equal(seen >> (r.wr_id & 31) & 1, 0);
		seen |= 1u << (r.wr_id & 31);
		order += r.wr_id < last;
		last = r.wr_id;
		assert_int_equal(r.out[0], 0);
		assert_true(all_bytes(r.out + 0x100, sizeof(r.out) - 0x100, FILL));
	}
	assert_true(order > 0);
	assert_false(readable(comp->fd, 0));
	/* A command that fails does so there */
	must(mlx5dv_devx_obj_query_async(q, c.in, c.inlen, 0x20, 7, comp));
	must(mlx5dv_devx_get_async_cmd_comp(comp, (void *)&r, sizeof(r)));
	assert_int_equal(r.wr_id, 7);
	assert_int_equal(r.out[0], 0x51);
	/* At most 1 MiB of answers wait */
	for (n = 0; n < 32; n++)
		if (mlx5dv_devx_obj_query_async(q, c.in, c.inlen, 0xfff0, n, comp))
			break;
	assert_int_equal(n, 16);
	assert_int_equal(mlx5dv_devx_obj_query_async(q, c.in, c.inlen, 0xfff0, n, comp), EAGAIN);
	must(mlx5dv_devx_get_async_cmd_comp(comp, (void *)&r, sizeof(r)));
	must(mlx5dv_devx_obj_query_async(q, c.in, c.inlen, 0xfff0, n, comp));
	/* And nothing but a query, of this object */
	put(c.in, 0xf8, 8, number + 1);
	assert_int_equal(mlx5dv_devx_obj_query_async(q, c.in, c.inlen, 0x100, 1, comp), EINVAL);
	put(c.in, 0, 16, 0x771);
	assert_int_equal(mlx5dv_devx_obj_query_async(q, c.in, c.inlen, 0x100, 1, comp), EINVAL);
	mlx5dv_devx_destroy_cmd_comp(comp);
	must(mlx5dv_devx_obj_destroy(q));
}

/* A blocking read in another thread ends when there is something */
struct reader {
	struct mlx5dv_devx_cmd_comp *comp;
	struct mlx5dv_devx_async_cmd_hdr *into;
	int ret;
};

static void *reads_one(void *arg)
{
	struct reader *r = arg;

	r->ret = mlx5dv_devx_get_async_cmd_comp(r->comp, r->into, 8 + 0x100);
	return NULL;
}

static void async_blocking(UNUSED void **state)
{
	uint64_t buf[(8 + 0x100) / 8];
	struct reader r = { .comp = mlx5dv_devx_create_cmd_comp(ctx), .into = (void *)buf, .ret = -1 };
	struct mlx5dv_devx_obj *q;
	struct cmd c = command(0x773, 0x20, 0);
	pthread_t t;
	uint32_t number;

	q = simple(ctx, 0x771, &number);
	put(c.in, 0xf8, 8, number);
	must(pthread_create(&t, NULL, reads_one, &r));
	usleep(10000);
	must(mlx5dv_devx_obj_query_async(q, c.in, c.inlen, 0x100, 99, r.comp));
	must(pthread_join(t, NULL));
	assert_int_equal(r.ret, 0);
	assert_int_equal(buf[0], 99);
	mlx5dv_devx_destroy_cmd_comp(r.comp);
	must(mlx5dv_devx_obj_destroy(q));
}

/* ---- subscriptions ---- */

static void subscriptions(UNUSED void **state)
{
	static const uint16_t affiliated[] = { 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x07, 0x10, 0x11, 0x12, 0x13, 0x14, 0x18, 0x1c, 0x1d };
	struct mlx5dv_devx_event_channel *ch = mlx5dv_devx_create_event_channel(ctx, MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA);
	uint16_t many[17] = { 0 }, type;
	struct mlx5dv_devx_obj *o;
	uint32_t number;
	uint64_t cookie;
	int fd;

	assert_non_null(ch);
	assert_null(mlx5dv_devx_create_event_channel(ctx, 2));
	o = simple(ctx, 0x800, &number);
	for (unsigned t = 0; t < 0x10000; t += t < 0x200 ? 1 : 0x111) {
		type = t;
		assert_int_equal(mlx5dv_devx_subscribe_devx_event(ch, o, 2, &type, t),
				 in(affiliated, ARRAY(affiliated), t) ? 0 : EINVAL);
		assert_int_equal(mlx5dv_devx_subscribe_devx_event(ch, NULL, 2, &type, t), t == 9 ? 0 : EINVAL);
	}
	must(mlx5dv_devx_subscribe_devx_event(ch, o, 32, many, 1));
	assert_int_equal(mlx5dv_devx_subscribe_devx_event(ch, o, 34, many, 1), EINVAL);
	many[15] = 0x09;
	assert_int_equal(mlx5dv_devx_subscribe_devx_event(ch, o, 32, many, 1), EINVAL);
	/* Eventfds */
	fd = memfd_create("none", 0);
	assert_int_equal(mlx5dv_devx_subscribe_devx_event_fd(ch, fd, o, 0x13), EINVAL);
	close(fd);
	assert_int_equal(mlx5dv_devx_subscribe_devx_event_fd(ch, fd, o, 0x13), EBADF);
	must(fcntl(ch->fd, F_SETFL, O_NONBLOCK));
	assert_int_equal(mlx5dv_devx_get_event(ch, (void *)&cookie, sizeof(cookie)), -1);
	assert_int_equal(errno, EAGAIN);
	must(mlx5dv_devx_obj_destroy(o));
	mlx5dv_devx_destroy_event_channel(ch);
}

/*
 * A QP of one shared receive queue and no send queue, by command: going into the error state, it
 * tells that it takes no more
 */
struct dq {
	struct mlx5dv_devx_obj *obj;
	uint32_t number;
	struct mlx5dv_devx_umem *umem;
	uint8_t *page;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
};

static uint32_t cq_number(struct ibv_cq *cq)
{
	struct mlx5dv_cq dv = { 0 };
	struct mlx5dv_obj obj = { .cq = { cq, &dv } };

	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ));
	return dv.cqn;
}

static void dq_open(struct dq *d)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct mlx5dv_srq dv = { .comp_mask = MLX5DV_SRQ_MASK_SRQN };
	struct mlx5dv_obj obj;
	struct cmd c = command(0x500, 0x110, 16);

	d->page = pages(1);
	d->umem = mlx5dv_devx_umem_reg(ctx, d->page, 4096, 0);
	d->cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	d->srq = ibv_create_srq(pd, &attr);
	assert_true(d->umem && d->cq && d->srq);
	obj.srq.in = d->srq;
	obj.srq.out = &dv;
	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ));
	put(c.in, 0xc0 + 0x13, 2, 3);
	put(c.in, 0xc0 + 0x28, 24, pdn);
	put(c.in, 0xc0 + 0x50, 1, 1);
	put(c.in, 0xc0 + 0x88, 24, 0xffffff);
	put(c.in, 0xc0 + 0x3e8, 24, cq_number(d->cq));
	put(c.in, 0xc0 + 0x4e8, 24, cq_number(d->cq));
	put(c.in, 0xc0 + 0x565, 3, 1);
	put(c.in, 0xc0 + 0x568, 24, dv.srqn);
	put(c.in, 0xc0 + 0x720, 32, d->umem->umem_id);
	put(c.in, 0x840, 32, d->umem->umem_id);
	d->obj = create(ctx, &c);
	if (!d->obj)
		fail_msg("status %x, syndrome %x", status(&c), (unsigned)get(c.out, 0x20, 32));
	d->number = get(c.out, 0x48, 24);
}

static void dq_close(struct dq *d)
{
	if (d->obj)
		must(mlx5dv_devx_obj_destroy(d->obj));
	must(ibv_destroy_srq(d->srq));
	must(ibv_destroy_cq(d->cq));
	must(mlx5dv_devx_umem_dereg(d->umem));
	munmap(d->page, 4096);
}

/* Into INIT, into the error state, and back */
static void dq_fails(struct dq *d)
{
	struct cmd c = command(0x502, 0x110, 16);

	put(c.in, 0x48, 24, d->number);
	put(c.in, 0xc0 + 0x13, 2, 3);
	put(c.in, 0xc0 + 0xc0 + 0x128, 8, 1);
	must(modify(d->obj, &c));
	c = command(0x507, 16, 16);
	put(c.in, 0x48, 24, d->number);
	must(modify(d->obj, &c));
	c = command(0x50a, 16, 16);
	put(c.in, 0x48, 24, d->number);
	must(modify(d->obj, &c));
}

static void events(UNUSED void **state)
{
	struct mlx5dv_devx_event_channel *omit = mlx5dv_devx_create_event_channel(ctx, 1), *full = mlx5dv_devx_create_event_channel(ctx, 0);
	uint16_t last = 0x13, others[] = { 0x05, 0x10, 0x12 };
	struct {
		uint64_t cookie;
		uint8_t eqe[64], guard[8];
	} e;
	uint64_t n;
	struct dq d;
	int fd;

	assert_true(omit && full);
	dq_open(&d);
	fd = eventfd(0, EFD_NONBLOCK);
	must(mlx5dv_devx_subscribe_devx_event(omit, d.obj, 2, &last, 0x1122334455667788));
	must(mlx5dv_devx_subscribe_devx_event(omit, d.obj, sizeof(others), others, 1));
	must(mlx5dv_devx_subscribe_devx_event(full, d.obj, 2, &last, 77));
	must(mlx5dv_devx_subscribe_devx_event(full, d.obj, 2, &last, 78));
	must(mlx5dv_devx_subscribe_devx_event_fd(full, fd, d.obj, last));
	must(fcntl(omit->fd, F_SETFL, O_NONBLOCK));
	must(fcntl(full->fd, F_SETFL, O_NONBLOCK));
	assert_false(readable(omit->fd, 0) || readable(full->fd, 0));
	for (int i = 0; i < 3; i++)
		dq_fails(&d);

	/* The cookie alone, and once only until it is read */
	assert_true(readable(omit->fd, PATIENCE * 1000));
	assert_int_equal(mlx5dv_devx_get_event(omit, (void *)&e, 4), -1);
	assert_int_equal(errno, EINVAL);
	memset(&e, FILL, sizeof(e));
	assert_int_equal(mlx5dv_devx_get_event(omit, (void *)&e, sizeof(e)), 8);
	assert_true(e.cookie == 0x1122334455667788 && all_bytes(e.eqe, 64, FILL));
	assert_int_equal(mlx5dv_devx_get_event(omit, (void *)&e, sizeof(e)), -1);
	assert_int_equal(errno, EAGAIN);
	assert_false(readable(omit->fd, 0));
	dq_fails(&d);
	assert_int_equal(mlx5dv_devx_get_event(omit, (void *)&e, sizeof(e)), 8);

	/* Cookie and EQE, each time and for each subscription */
	for (unsigned i = 0; i < 8; i++) {
		assert_true(readable(full->fd, PATIENCE * 1000));
		memset(&e, FILL, sizeof(e));
		assert_int_equal(mlx5dv_devx_get_event(full, (void *)&e, i ? sizeof(e) : 71), i ? 72 : -1);
		if (!i)
			assert_int_equal(mlx5dv_devx_get_event(full, (void *)&e, 72), 72);
		assert_int_equal(e.cookie, i & 1 ? 78 : 77);
		assert_int_equal(e.eqe[1], 0x13);
		assert_int_equal(e.eqe[0x34], 0);
		assert_int_equal(get(e.eqe, 0x38 * 8, 32), d.number);
		assert_true(all_bytes(e.guard, sizeof(e.guard), FILL));
	}
	assert_false(readable(full->fd, 0));
	assert_int_equal(read(fd, &n, sizeof(n)), 8);
	assert_int_equal(n, 4);

	/* With the object go its subscriptions; what waits stays to be read. With a channel its own */
	dq_fails(&d);
	must(mlx5dv_devx_obj_destroy(d.obj));
	d.obj = NULL;
	assert_int_equal(mlx5dv_devx_get_event(full, (void *)&e, sizeof(e)), 72);
	assert_int_equal(mlx5dv_devx_get_event(omit, (void *)&e, sizeof(e)), 8);
	dq_close(&d);
	dq_open(&d);
	must(mlx5dv_devx_subscribe_devx_event(full, d.obj, 2, &last, 1));
	must(mlx5dv_devx_subscribe_devx_event(omit, d.obj, 2, &last, 2));
	mlx5dv_devx_destroy_event_channel(full);
	dq_fails(&d);
	assert_int_equal(mlx5dv_devx_get_event(omit, (void *)&e, sizeof(e)), 8);
	assert_int_equal(e.cookie, 2);
	mlx5dv_devx_destroy_event_channel(omit);
	dq_fails(&d);
	dq_close(&d);
	close(fd);
}

/* An armed CQ by command reports its completions to subscribers */
static void completion_events(UNUSED void **state)
{
	struct mlx5dv_devx_event_channel *ch = mlx5dv_devx_create_event_channel(ctx, 0);
	struct mlx5dv_devx_uar *uar = mlx5dv_devx_alloc_uar(ctx, MLX5DV_UAR_ALLOC_TYPE_BF);
	uint8_t *p = pages(2), cqe[64] = { 0 };
	struct mlx5dv_devx_umem *u = mlx5dv_devx_umem_reg(ctx, p, 2 * 4096, IBV_ACCESS_LOCAL_WRITE);
	struct cmd c = command(0x400, 0x110, 16);
	struct mlx5dv_devx_obj *cq;
	uint16_t type = 0;
	uint32_t eqn, cqn, *record = (uint32_t *)(void *)(p + 4096);
	uint8_t e[72];

	assert_true(ch && uar && u);
	must(mlx5dv_devx_query_eqn(ctx, 0, &eqn));
	for (unsigned i = 0; i < 4096; i += 64)
		p[i + 63] = 0xf0;
	put(c.in, 0x280, 64, 0);
	put(c.in, 0x2c0, 32, u->umem_id);
	put(c.in, 0x80 + 0x20, 32, u->umem_id);
	put(c.in, 0x80 + 0x63, 5, 6);
	put(c.in, 0x80 + 0x68, 24, uar->page_id);
	put(c.in, 0x80 + 0xa0, 32, eqn);
	put(c.in, 0x80 + 0x1c0, 64, 4096);
	cq = create(ctx, &c);
	assert_non_null(cq);
	cqn = get(c.out, 0x48, 24);
	must(mlx5dv_devx_subscribe_devx_event(ch, cq, 2, &type, 5));
	must(fcntl(ch->fd, F_SETFL, O_NONBLOCK));
	cqe[63] = 0; /* a requester's completion */
	assert_int_equal(softdev_inject_cqes(cqn, cqe, 1, 0), 1);
	usleep(10000);
	assert_false(readable(ch->fd, 0));
	record[0] = htobe32(1);
	record[1] = htobe32(1);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*(volatile uint64_t *)(void *)((uint8_t *)uar->base_addr + 0x20) = htobe64((uint64_t)1 << 32 | cqn);
	assert_int_equal(softdev_inject_cqes(cqn, cqe, 3, 0), 3);
	assert_true(readable(ch->fd, PATIENCE * 1000));
	assert_int_equal(mlx5dv_devx_get_event(ch, (void *)e, sizeof(e)), 72);
	assert_int_equal(e[8 + 1], 0);
	assert_int_equal(get(e, 64 + 0x38 * 8, 32), cqn);
	assert_int_equal(mlx5dv_devx_get_event(ch, (void *)e, sizeof(e)), -1);
	assert_int_equal(mlx5dv_devx_umem_dereg(u), EBUSY);
	must(mlx5dv_devx_obj_destroy(cq));
	must(mlx5dv_devx_umem_dereg(u));
	mlx5dv_devx_free_uar(uar);
	mlx5dv_devx_destroy_event_channel(ch);
	munmap(p, 2 * 4096);
}

/* A request to or from addr by a key, at [off, off + len) of the sender's buffer */
static enum ibv_wc_status request_by(struct side s[2], enum ibv_wr_opcode op, size_t off, uint32_t len, uint32_t key, uint64_t addr)
{
	struct ibv_sge sg = sge(&s[0], off, len);
	struct ibv_send_wr wr = request(op, 7, &sg, 1, &s[1], 0);

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = key;
		wr.wr.atomic.compare_add = 5;
	} else {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = key;
	}
	post(&s[0], &wr);
	return next_wc(s[0].scq).status;
}

/* What comes to a QP is counted by the set that it names */
static void counter_sets(UNUSED void **state)
{
	struct mlx5dv_devx_obj *q;
	uint32_t number;
	struct cmd c;

	q = simple(ctx, 0x771, &number);
	open_side(&s[0], &usual);
	open_side(&s[1], &usual);
	/* A verbs QP, whose first step is done by command */
	c = command(0x502, 0x110, 16);
	put(c.in, 0x48, 24, s[1].qp->qp_num);
	put(c.in, 0xc0 + 0x13, 2, 3);
	put(c.in, 0xc0 + 0x60, 8, number);
	put(c.in, 0xc0 + 0x490, 3, 7);
	put(c.in, 0xc0 + 0x48c, 4, 1);
	put(c.in, 0xc0 + 0xc0 + 0x128, 8, 1);
	must(mlx5dv_devx_qp_modify(s[1].qp, c.in, c.inlen, c.out, c.outlen));
	must(move(s[1].qp, IBV_QPS_RTR, s[0].qp->qp_num, &usual));
	must(move(s[1].qp, IBV_QPS_RTS, s[0].qp->qp_num, &usual));
	bring_up(s[0].qp, s[1].qp->qp_num, &usual);
	writes(s, 1000, false);
	writes(s, 1 << 19, false);
	reads(s, 100);
	assert_int_equal(request_by(s, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, s[1].mr->rkey, (uintptr_t)s[1].buf), IBV_WC_SUCCESS);
	wr = first_to_second(IBV_WR_SEND, 3, 0, 8, 0);
	post(&s[0], &wr); /* nothing to receive it with, yet */
	usleep(20000);
	recv_at(&s[1], 4, 0, 64);
	expect(s[0].scq, 3, IBV_WC_SUCCESS);
	c = command(0x773, 0x20, 0x100);
	put(c.in, 0xf8, 8, number);
	must(query(q, &c));
	assert_int_equal(get(c.out, 0x80, 32), 2);
	assert_int_equal(get(c.out, 0xc0, 32), 1);
	assert_int_equal(get(c.out, 0x100, 32), 1);
	assert_true(get(c.out, 0x180, 32) >= 1);
	/* Read and cleared */
	put(c.in, 0xc0, 1, 1);
	must(query(q, &c));
	assert_int_equal(get(c.out, 0x80, 32), 2);
	must(query(q, &c));
	assert_int_equal(get(c.out, 0x80, 32), 0);
	must(mlx5dv_devx_obj_destroy(q));
	writes(s, 10, false);
	close_pair(s);
}

/* ---- the device itself ---- */

static void query_cap(struct ibv_context *x, unsigned type, bool current, uint8_t out[0x1010])
{
	struct cmd c = command(0x100, 16, 0);

	put(c.in, 0x30, 16, type << 1 | current);
	memset(out, FILL, 0x1010);
	must(mlx5dv_devx_general_cmd(x, c.in, 16, out, 0x1010));
}

static void capabilities(UNUSED void **state)
{
	/* Type 7, of flow tables: none can be made, and who asks for packet reformat must be told so */
	static const unsigned types[] = { 0x00, 0x02, 0x03, 0x07, 0x0f, 0x14, 0x20 };
	uint8_t cur[0x1010], max[0x1010], *cap = cur + 16;
	struct ibv_device_attr attr;
	struct cmd c;

	must(ibv_query_device(ctx, &attr));
	for (unsigned i = 0; i < ARRAY(types); i++) {
		query_cap(ctx, types[i], true, cur);
		query_cap(ctx, types[i], false, max);
		assert_memory_equal(cur, max, sizeof(cur));
		/* As many bytes as there is room for */
		for (size_t len = 16; len <= OUT; len += 36) {
			c = command(0x100, 16, len);
			put(c.in, 0x30, 16, types[i] << 1 | 1);
			must(general(ctx, &c));
			assert_memory_equal(c.out, cur, len);
		}
	}
	c = command(0x100, 16, OUT);
	put(c.in, 0x30, 16, 0x3f << 1);
	assert_int_equal(general(ctx, &c), EREMOTEIO);
	assert_int_equal(status(&c), 3);

	query_cap(ctx, 0, true, cur);
	assert_int_equal(get(cap, 0x30, 16), 0);
	assert_int_equal(get(cap, 0x20, 1), 1);
	assert_true((int)(1u << get(cap, 0x9b, 5)) >= attr.max_qp);
	assert_true((int)(1u << get(cap, 0xdb, 5)) >= attr.max_cq);
	assert_true((int)(1u << get(cap, 0xea, 6)) >= attr.max_mr);
	assert_true((int)(1u << get(cap, 0x32b, 5)) >= attr.max_pd);
	assert_true((int)(1u << get(cap, 0x88, 8)) == attr.max_qp_wr);
	assert_true((int)(1u << get(cap, 0xc8, 8)) == attr.max_cqe + 1);
	assert_true((int)(1u << get(cap, 0x14a, 6)) == attr.max_qp_init_rd_atom);
	assert_true((1u << get(cap, 0x1c3, 5)) == port.max_msg_sz);
	assert_int_equal(get(cap, 0x1fc, 4), 1);
	assert_int_equal(get(cap, 0x1b6, 2), is_roce());
	assert_int_equal(get(cap, 0x1b8, 8), 1);
	assert_int_equal(8u << get(cap, 0x170, 16), port.gid_tbl_len);
	assert_int_not_equal(get(cap, 0x463, 5), 0);
	assert_int_not_equal(get(cap, 0x46b, 5), 0);
	assert_int_equal(get(cap, 0x780, 64), 0);
	query_cap(other, 0, true, max);
	assert_int_equal(get(max + 16, 0x30, 16), 1);
	query_cap(ctx, 3, true, cur);
	assert_int_equal(get(cap, 0x90, 16), 0xf);
	assert_int_equal(get(cap, 0xb0, 16), 4 | 8 | 16 | 32 | 64);
	assert_int_equal(get(cap, 0xd0, 16), 4 | 8 | 16 | 32 | 64);
	query_cap(ctx, 0x14, true, cur);
	assert_int_equal(get(cap, 63 - 0x13, 1), 1);
	assert_int_equal(get(cap, 63 - 0x09, 1), 0);
	assert_int_equal(get(cap, 0x100 + 63 - 0x09, 1), 1);
}

static void identity(UNUSED void **state)
{
	struct ibv_device_attr attr;
	union ibv_gid g;
	struct cmd c;

	must(ibv_query_device(ctx, &attr));
	c = command(0x10a, 16, 0x70);
	must(general(ctx, &c));
	assert_int_equal(get(c.out, 0x50, 16), 1);
	c = command(0x101, 16, 0x110);
	must(general(ctx, &c));
	assert_memory_equal(c.out + 0x100, "MT_", 3);
	c = command(0x750, 16, 16);
	must(general(ctx, &c));
	assert_int_equal(get(c.out, 0x7c, 4), 1);
	c = command(0x842, 16, 16);
	must(general(ctx, &c));
	assert_int_equal(get(c.out, 0x5d, 3), 0);
	c = command(0x754, 16, 0x110);
	must(general(ctx, &c));
	assert_memory_equal(c.out + 16 + 0x1c0 / 8, &attr.node_guid, 8);
	/* One's own function only */
	put(c.in, 0x40, 1, 1);
	assert_int_equal(general(ctx, &c), EREMOTEIO);
	assert_int_equal(status(&c), 3);

	for (int i = 0; i < port.gid_tbl_len; i++) {
		bool there = !ibv_query_gid(ctx, 1, i, &g) && !all_bytes(g.raw, 16, 0);

		c = command(0x760, 16, 0x30);
		put(c.in, 0x40, 16, i);
		put(c.in, 0x5c, 4, 1);
		if (!is_roce()) {
			assert_int_equal(general(ctx, &c), EREMOTEIO);
			continue;
		}
		must(general(ctx, &c));
		if (!there)
			assert_true(all_bytes(c.out + 16, 16, 0));
		else if (get(c.out, 0x80 + 0xd4, 4) == 1)
			assert_memory_equal(c.out + 16, g.raw, 16);
		else
			assert_memory_equal(c.out + 16 + 12, g.raw + 12, 4);
		if (there)
			assert_int_equal(get(c.out, 0x80 + 0xd8, 8), i & 1 ? 2 : 0);
	}
	c = command(0x760, 16, 0x30);
	put(c.in, 0x40, 16, port.gid_tbl_len);
	assert_int_equal(general(ctx, &c), EREMOTEIO);

	/* InfiniBand only; the outbox that UCX gives is 4 bytes short */
	c = command(0x762, 16, 0x20c);
	c.outlen = 0x1fc;
	put(c.in, 0x4c, 4, 1);
	if (is_roce()) {
		assert_int_equal(general(ctx, &c), EREMOTEIO);
	} else {
		must(general(ctx, &c));
		assert_memory_equal(c.out + 16 + 0x1c0 / 8, &attr.node_guid, 8);
		assert_int_equal(get(c.out, 0x80 + 0x300, 16), port.lid);
		assert_int_equal(get(c.out, 0x80 + 0x320, 16), port.sm_lid);
	}
}

static void registers(UNUSED void **state)
{
	struct cmd c = command(0xb0c, 16 + 64, 16 + 64);
	struct timespec now_;

	put(c.in, 0x50, 16, 0x6001);
	fill(c.in + 16, 64, 5);
	must(general(ctx, &c));
	put(c.in, 0x30, 16, 1);
	memset(c.in + 16, 0, 64);
	must(general(second, &c));
	fill(c.in + 16, 64, 5);
	assert_memory_equal(c.out + 16, c.in + 16, 64);
	must(general(other, &c));
	assert_true(all_bytes(c.out + 16, 64, 0));
	c.outlen = 16 + 60;
	memset(c.out, FILL, sizeof(c.out));
	assert_int_equal(general(ctx, &c), EREMOTEIO);
	assert_int_equal(status(&c), 0x51);
	c = command(0xb0c, 16 + 0x1c, 16 + 0x1c);
	put(c.in, 0x50, 16, 0x9055);
	assert_int_equal(general(ctx, &c), EREMOTEIO); /* the clock cannot be set */
	put(c.in, 0x30, 16, 1);
	must(general(ctx, &c));
	clock_gettime(CLOCK_REALTIME, &now_);
	assert_in_range(now_.tv_sec - get(c.out, 0x80 + 0x80, 32), 0, 60);
	put(c.in, 0x50, 16, 0x1234);
	assert_int_equal(general(ctx, &c), EREMOTEIO);
	assert_int_equal(status(&c), 3);
}

/* ---- keys ---- */

enum { MTT = 1, KLM = 2, KSM = 3 };
#define KEY_ALL 0x1fu             /* a, rw, rr, lw, lr */

struct key {
	uint8_t in[0x110 + 64 * 16];
	uint8_t out[16];
	size_t inlen;
	struct mlx5dv_devx_obj *obj;
	uint32_t key;
};

static void key_init(struct key *k, unsigned mode, unsigned rights, uint32_t of, uint64_t start, uint64_t len, unsigned log)
{
	memset(k, 0, sizeof(*k));
	k->inlen = 0x110;
	put(k->in, 0, 16, 0x200);
	put(k->in, 0x80 + 0x16, 2, mode);
	put(k->in, 0x80 + 0x11, 5, rights);
	put(k->in, 0x80 + 0x20, 24, 0xffffff);
	put(k->in, 0x80 + 0x38, 8, 0x42);
	put(k->in, 0x80 + 0x68, 24, of);
	put(k->in, 0x80 + 0x80, 64, start);
	put(k->in, 0x80 + 0xc0, 64, len);
	put(k->in, 0x80 + 0x1db, 5, log);
}

static void key_entry(struct key *k, uint32_t bytes, uint32_t key, uint64_t addr)
{
	unsigned n = get(k->in, 0x300, 32);
	uint8_t *e = k->in + k->inlen;

	put(e, 0, 32, bytes);
	put(e, 0x20, 32, key);
	put(e, 0x40, 64, addr);
	put(k->in, 0x300, 32, n + 1);
	put(k->in, 0x80 + 0x1a0, 32, n + 1);
	k->inlen += 16;
}

static void key_umem(struct key *k, uint32_t id, uint64_t offset, unsigned octwords)
{
	put(k->in, 0x320, 32, id);
	put(k->in, 0x340, 64, offset);
	put(k->in, 0x80 + 0x1a0, 32, octwords);
}

static unsigned key_try(struct ibv_context *x, struct key *k)
{
	errno = 0;
	k->obj = mlx5dv_devx_obj_create(x, k->in, k->inlen, k->out, sizeof(k->out));
	k->key = get(k->out, 0x48, 24) << 8 | get(k->in, 0x80 + 0x38, 8);
	if (!k->obj)
		assert_int_equal(errno, EREMOTEIO);
	return k->out[0];
}

static void key_make(struct key *k)
{
	unsigned st = key_try(ctx, k);

	if (!k->obj)
		fail_msg("status %x, syndrome %x", st, (unsigned)get(k->out, 0x20, 32));
}

static void renew(struct side s[2])
{
	for (int i = 0; i < 2; i++)
		assert_int_equal(move(s[i].qp, IBV_QPS_RESET, 0, &usual), 0);
	bring_up(s[0].qp, s[1].qp->qp_num, &usual);
	bring_up(s[1].qp, s[0].qp->qp_num, &usual);
}

static void key_refused(struct side s[2], enum ibv_wr_opcode op, uint32_t len, uint32_t key, uint64_t addr)
{
	assert_int_equal(request_by(s, op, 0, len, key, addr), IBV_WC_REM_ACCESS_ERR);
	renew(s);
}

/* A key of a umem, as good as a verbs MR: remote and local */
static void key_of_umem(UNUSED void **state)
{
	struct mlx5dv_devx_umem *u;
	struct key k;
	uint64_t at;
	struct cmd c;

	open_pair(s, &usual);
	u = mlx5dv_devx_umem_reg(ctx, s[1].buf, 16 * 4096, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(u);
	/* Eight pages from the second on, as 0x10000 and following */
	key_init(&k, MTT, KEY_ALL, pdn, 0x10000, 8 * 4096, 12);
	key_umem(&k, u->umem_id, 4096, 4);
	key_make(&k);
	assert_int_equal(mlx5dv_devx_umem_dereg(u), EBUSY);
	fill(s[0].buf, HALF, 1);
	memset(s[1].buf, 0xaa, SIZE);
	assert_int_equal(request_by(s, IBV_WR_RDMA_WRITE, 0, 8 * 4096, k.key, 0x10000), IBV_WC_SUCCESS);
	assert_memory_equal(s[1].buf + 4096, s[0].buf, 8 * 4096);
	assert_true(all_bytes(s[1].buf, 4096, 0xaa) && all_bytes(s[1].buf + 9 * 4096, 4096, 0xaa));
	assert_int_equal(request_by(s, IBV_WR_RDMA_READ, HALF, 100, k.key, 0x10001), IBV_WC_SUCCESS);
	assert_memory_equal(s[0].buf + HALF, s[0].buf + 1, 100);
	memset(s[1].buf + 4096, 0, 8);
	assert_int_equal(request_by(s, IBV_WR_ATOMIC_FETCH_AND_ADD, HALF, 8, k.key, 0x10000), IBV_WC_SUCCESS);
	memcpy(&at, s[1].buf + 4096, 8);
	assert_int_equal(at, 5);
	/* Neither before nor after it, nor with another low byte */
	key_refused(s, IBV_WR_RDMA_WRITE, 8, k.key, 0x10000 - 8);
	key_refused(s, IBV_WR_RDMA_WRITE, 8, k.key, 0x10000 + 8 * 4096 - 4);
	key_refused(s, IBV_WR_RDMA_WRITE, 8, k.key ^ 1, 0x10000);
	/* Local use */
	{
		struct ibv_sge sg = { .addr = 0x10000, .length = 64, .lkey = k.key };
		struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 8, &sg, 1, &s[0], 64);

		post(&s[1], &wr);
		expect(s[1].scq, 8, IBV_WC_SUCCESS);
		assert_memory_equal(s[0].buf + 64, s[1].buf + 4096, 64);
	}
	/* What it is is told again */
	c = command(0x201, 16, 0x50);
	put(c.in, 0x48, 24, k.key >> 8);
	must(query(k.obj, &c));
	assert_memory_equal(c.out + 16, k.in + 16, 0x40);
	must(mlx5dv_devx_obj_destroy(k.obj));
	key_refused(s, IBV_WR_RDMA_WRITE, 8, k.key, 0x10000);
	must(mlx5dv_devx_umem_dereg(u));
	close_pair(s);
}

/* Rights, one by one */
static void key_rights(UNUSED void **state)
{
	static const struct {
		enum ibv_wr_opcode op;
		unsigned right;   /* of KEY_ALL's bits */
	} ops[] = { { IBV_WR_RDMA_WRITE, 0x8 }, { IBV_WR_RDMA_READ, 0x4 }, { IBV_WR_ATOMIC_FETCH_AND_ADD, 0x10 } };
	struct key k;

	open_pair(s, &usual);
	for (unsigned rights = 0; rights <= KEY_ALL; rights++) {
		key_init(&k, KLM, rights, pdn, 0, 4096, 0);
		key_entry(&k, 4096, s[1].mr->lkey, (uintptr_t)s[1].buf);
		key_make(&k);
		for (unsigned i = 0; i < ARRAY(ops); i++)
			if (rights & ops[i].right)
				assert_int_equal(request_by(s, ops[i].op, 0, 8, k.key, 0), IBV_WC_SUCCESS);
			else
				key_refused(s, ops[i].op, 8, k.key, 0);
		must(mlx5dv_devx_obj_destroy(k.obj));
	}
	close_pair(s);
}

/* A list of pieces of memory, in any order and of any size */
static void key_klm(UNUSED void **state)
{
	static const struct {
		unsigned off, len;
	} part[] = { { 9000, 1 }, { 4096, 4096 }, { 100, 63 }, { 20000, 5000 }, { 1, 7 } };
	unsigned total = 0, at;
	struct key k, outer[7];

	open_pair(s, &usual);
	for (unsigned i = 0; i < ARRAY(part); i++)
		total += part[i].len;
	key_init(&k, KLM, KEY_ALL & ~0x10u, pdn, 0x123, total, 0);
	for (unsigned i = 0; i < ARRAY(part); i++)
		key_entry(&k, part[i].len, s[1].mr->lkey, (uintptr_t)s[1].buf + part[i].off);
	key_make(&k);
	fill(s[0].buf, HALF, 9);
	memset(s[1].buf, 0, SIZE);
	assert_int_equal(request_by(s, IBV_WR_RDMA_WRITE, 0, total, k.key, 0x123), IBV_WC_SUCCESS);
	at = 0;
	for (unsigned i = 0; i < ARRAY(part); at += part[i++].len)
		assert_memory_equal(s[1].buf + part[i].off, s[0].buf + at, part[i].len);
	assert_int_equal(request_by(s, IBV_WR_RDMA_READ, HALF, total - 60, k.key, 0x123 + 50), IBV_WC_SUCCESS);
	assert_memory_equal(s[0].buf + HALF, s[0].buf + 50, total - 60);
	/* A list in a list; one too deep */
	for (unsigned depth = 2; depth <= 6; depth++) {
		key_init(&outer[depth], KLM, KEY_ALL & ~0x10u, pdn, 0, 100, 0);
		key_entry(&outer[depth], 100, depth == 2 ? k.key : outer[depth - 1].key, depth == 2 ? 0x123 : 0);
		key_make(&outer[depth]);
		if (depth <= 4) {
			assert_int_equal(request_by(s, IBV_WR_RDMA_READ, HALF, 100, outer[depth].key, 0), IBV_WC_SUCCESS);
			assert_memory_equal(s[0].buf + HALF, s[0].buf, 100);
		} else {
			key_refused(s, IBV_WR_RDMA_READ, 8, outer[depth].key, 0);
		}
	}
	/* Those inside go first: they are only numbers to those outside */
	for (unsigned depth = 2; depth <= 6; depth++)
		must(mlx5dv_devx_obj_destroy(outer[depth].obj));
	must(mlx5dv_devx_obj_destroy(k.obj));
	close_pair(s);
}

/* Entries of one size, which are found by shifting the offset from the start */
static void key_ksm(UNUSED void **state)
{
	struct ibv_mr *mr;
	struct key k;
	uint64_t at;

	open_pair(s, &usual);
	fill(s[0].buf, HALF, 3);
	/* Every other page of the buffer, backwards, from an address in the middle of nothing */
	key_init(&k, KSM, KEY_ALL, pdn, 0x7000000000, 16 * 4096, 12);
	for (unsigned i = 0; i < 16; i++)
		key_entry(&k, 0, s[1].mr->lkey, (uintptr_t)s[1].buf + (30 - 2 * i) * 4096);
	key_make(&k);
	assert_int_equal(request_by(s, IBV_WR_RDMA_WRITE, 0, 16 * 4096, k.key, 0x7000000000), IBV_WC_SUCCESS);
	for (unsigned i = 0; i < 16; i++)
		assert_memory_equal(s[1].buf + (30 - 2 * i) * 4096, s[0].buf + i * 4096, 4096);
	assert_int_equal(request_by(s, IBV_WR_RDMA_READ, HALF, 9000, k.key, 0x7000000000 + 5000), IBV_WC_SUCCESS);
	assert_memory_equal(s[0].buf + HALF, s[0].buf + 5000, 9000);
	memset(s[1].buf + 28 * 4096 + 16, 0, 8);
	assert_int_equal(request_by(s, IBV_WR_ATOMIC_FETCH_AND_ADD, HALF, 8, k.key, 0x7000000000 + 4096 + 16), IBV_WC_SUCCESS);
	memcpy(&at, s[1].buf + 28 * 4096 + 16, 8);
	assert_int_equal(at, 5);
	key_refused(s, IBV_WR_RDMA_READ, 8, k.key, 0x7000000000 + 16 * 4096);
	must(mlx5dv_devx_obj_destroy(k.obj));

	/* Its memory goes: the key is looked at when it is used, not before */
	mr = ibv_reg_mr(pd, s[1].buf, SIZE, ALL_ACCESS);
	assert_non_null(mr);
	key_init(&k, KSM, KEY_ALL, pdn, 8, 4096, 31);
	key_entry(&k, 0, mr->lkey, (uintptr_t)s[1].buf);
	key_make(&k);
	assert_int_equal(request_by(s, IBV_WR_RDMA_WRITE, 0, 64, k.key, 8), IBV_WC_SUCCESS);
	assert_memory_equal(s[1].buf, s[0].buf, 64);
	must(ibv_dereg_mr(mr));
	key_refused(s, IBV_WR_RDMA_WRITE, 64, k.key, 8);
	must(mlx5dv_devx_obj_destroy(k.obj));
	close_pair(s);
}

static void key_refusals(UNUSED void **state)
{
	struct mlx5dv_devx_umem *u, *his, *read_only;
	struct ibv_mr *mr;
	uint8_t *p = pages(4);
	struct key k;

	mr = ibv_reg_mr(pd, p, 4 * 4096, ALL_ACCESS);
	assert_non_null(mr);
	u = mlx5dv_devx_umem_reg(ctx, p, 4 * 4096, IBV_ACCESS_LOCAL_WRITE);
	his = mlx5dv_devx_umem_reg(second, p, 4 * 4096, IBV_ACCESS_LOCAL_WRITE);
	read_only = mlx5dv_devx_umem_reg(ctx, p, 4 * 4096, 0);
	assert_true(u && his && read_only);
#define KEY(mode, ...) (key_init(&k, mode, __VA_ARGS__), mode == MTT ? key_umem(&k, u->umem_id, 0, 2) : \
			key_entry(&k, 4096, mr->lkey, (uintptr_t)p))
	KEY(MTT, KEY_ALL, pdn, 0, 4 * 4096, 12);
	key_make(&k);
	must(mlx5dv_devx_obj_destroy(k.obj));

	KEY(MTT, KEY_ALL, 0xffffff, 0, 4096, 12);
	assert_int_equal(key_try(ctx, &k), 5);
	KEY(MTT, KEY_ALL, pdn, 0, 4096, 12);
	assert_int_equal(key_try(second, &k), 5);
	key_umem(&k, his->umem_id, 0, 2);
	assert_int_equal(key_try(ctx, &k), 5);
	key_umem(&k, 0, 0, 2);
	assert_int_equal(key_try(ctx, &k), 5);
	/* Read-only memory is good for reading */
	KEY(MTT, KEY_ALL, pdn, 0, 4096, 12);
	key_umem(&k, read_only->umem_id, 0, 2);
	assert_int_equal(key_try(ctx, &k), 3);
	KEY(MTT, 0x5, pdn, 0, 4096, 12);
	key_umem(&k, read_only->umem_id, 0, 2);
	key_make(&k);
	must(mlx5dv_devx_obj_destroy(k.obj));
	/* Beyond the umem, a bad page size, too few translations, a start that lies elsewhere in its page, too long */
	KEY(MTT, KEY_ALL, pdn, 0, 4 * 4096 + 1, 12);
	key_umem(&k, u->umem_id, 0, 3);
	assert_int_equal(key_try(ctx, &k), 3);
	KEY(MTT, KEY_ALL, pdn, 0, 4096, 12);
	key_umem(&k, u->umem_id, ~0ull, 2);
	assert_int_equal(key_try(ctx, &k), 3);
	KEY(MTT, KEY_ALL, pdn, 0, 4096, 11);
	assert_int_equal(key_try(ctx, &k), 3);
	KEY(MTT, KEY_ALL, pdn, 0, 4 * 4096, 12);
	key_umem(&k, u->umem_id, 0, 1);
	assert_int_equal(key_try(ctx, &k), 3);
	KEY(MTT, KEY_ALL, pdn, 8, 4096, 12);
	assert_int_equal(key_try(ctx, &k), 3);
	KEY(MTT, KEY_ALL, pdn, 0, 0, 12);
	assert_int_equal(key_try(ctx, &k), 3);
	KEY(MTT, KEY_ALL, pdn, ~0xfffull, 2 * 4096, 12);
	assert_int_equal(key_try(ctx, &k), 3);
	/* Modes: physical addresses, and those above 3 */
	KEY(MTT, KEY_ALL, pdn, 0, 4096, 12);
	put(k.in, 0x80 + 0x16, 2, 0);
	assert_int_equal(key_try(ctx, &k), 3);
	put(k.in, 0x80 + 0x3, 3, 1);
	assert_int_equal(key_try(ctx, &k), 3);
	/* One QP's own; signatures without UMR, or of another size */
	KEY(KLM, KEY_ALL, pdn, 0, 4096, 0);
	put(k.in, 0x80 + 0x20, 24, 0x1234);
	assert_int_equal(key_try(ctx, &k), 3);
	KEY(KLM, KEY_ALL, pdn, 0, 4096, 0);
	put(k.in, 0x80 + 0x61, 1, 1);
	assert_int_equal(key_try(ctx, &k), 3);
	put(k.in, 0x80 + 0x10, 1, 1);
	put(k.in, 0x80 + 0x100, 32, 8);
	assert_int_equal(key_try(ctx, &k), 3);
	/* Lists: shorter than the key, than they say, than what there is room for; entities too small; atomics off their place */
	KEY(KLM, KEY_ALL, pdn, 0, 4096 + 8, 0);
	assert_int_equal(key_try(ctx, &k), 3);
	KEY(KLM, KEY_ALL, pdn, 0, 4096, 0);
	put(k.in, 0x300, 32, 2);
	assert_int_equal(key_try(ctx, &k), 3);
	put(k.in, 0x80 + 0x1a0, 32, 2);
	assert_int_equal(key_try(ctx, &k), 0x50);
	put(k.in, 0x300, 32, 0xffffffff);
	put(k.in, 0x80 + 0x1a0, 32, 0xffffffff);
	assert_int_equal(key_try(ctx, &k), 8);
	KEY(KSM, KEY_ALL, pdn, 0, 4096, 11);
	assert_int_equal(key_try(ctx, &k), 3);
	KEY(KSM, KEY_ALL, pdn, 4, 4096, 13);
	assert_int_equal(key_try(ctx, &k), 3);
	KEY(KSM, KEY_ALL, pdn, 8, 4096 + 4, 13);
	assert_int_equal(key_try(ctx, &k), 3);
	KEY(KSM, KEY_ALL & ~0x10u, pdn, 4, 4096 + 4, 13);
	key_make(&k);
	must(mlx5dv_devx_obj_destroy(k.obj));
	/* What a UMR is to fill must allow it, have room, and be a list of KLMs: no others are filled here */
	key_init(&k, KLM, KEY_ALL, pdn, 0, 0, 0);
	put(k.in, 0x80 + 0x1, 1, 1);
	put(k.in, 0x80 + 0x1a0, 32, 4);
	assert_int_equal(key_try(ctx, &k), 3);
	put(k.in, 0x80 + 0x10, 1, 1);
	put(k.in, 0x80 + 0x1a0, 32, 0);
	assert_int_equal(key_try(ctx, &k), 3);
	put(k.in, 0x80 + 0x1a0, 32, 4);
	put(k.in, 0x80 + 0x16, 2, KSM);
	assert_int_equal(key_try(ctx, &k), 3);
	put(k.in, 0x80 + 0x16, 2, KLM);
	key_make(&k);
	must(mlx5dv_devx_obj_destroy(k.obj));
	must(mlx5dv_devx_umem_dereg(u));
	must(mlx5dv_devx_umem_dereg(his));
	must(mlx5dv_devx_umem_dereg(read_only));
	must(ibv_dereg_mr(mr));
	munmap(p, 4 * 4096);
}

/* Random lists: what comes out is what the list says */
static void key_random(UNUSED void **state)
{
	const char *env = getenv("DEVX_CASES");
	unsigned cases = env ? strtoul(env, NULL, 10) : 200;

	open_pair(s, &usual);
	for (unsigned i = 0; i < cases; i++) {
		unsigned n = 1 + rnd() % 60, log = 12 + rnd() % 3, total = 0, off, len, at = 0, where[60], size[60];
		bool ksm = rnd() % 2;
		struct key k;

		key_init(&k, ksm ? KSM : KLM, KEY_ALL & ~0x10u, pdn, i * 77, 0, ksm ? log : 0);
		for (unsigned j = 0; j < n; j++) {
			size[j] = ksm ? 1u << log : 1 + rnd() % 8000;
			where[j] = rnd() % (SIZE - size[j]);
			key_entry(&k, ksm ? rnd() : size[j], s[1].mr->lkey, (uintptr_t)s[1].buf + where[j]);
			total += size[j];
		}
		put(k.in, 0x80 + 0xc0, 64, total);
		key_make(&k);
		off = rnd() % total;
		len = 1 + rnd() % (total - off);
		len = len < HALF ? len : HALF;
		fill(s[1].buf, SIZE, i);
		assert_int_equal(request_by(s, IBV_WR_RDMA_READ, 0, len, k.key, i * 77 + off), IBV_WC_SUCCESS);
		for (unsigned j = 0; j < n && at < off + len; at += size[j++]) {
			unsigned from = at < off ? off - at : 0, to = off + len - at < size[j] ? off + len - at : size[j];

			if (from < to)
				assert_memory_equal(s[0].buf + at + from - off, s[1].buf + where[j] + from, to - from);
		}
		must(mlx5dv_devx_obj_destroy(k.obj));
	}
	close_pair(s);
}

/*
 * A context is closed with all that it has, of which one thing is in use by another: all numbers
 * come back, and readers are told
 */
static void leftovers(UNUSED void **state)
{
	struct mlx5dv_context_attr attr = { .flags = MLX5DV_CONTEXT_FLAGS_DEVX };
	static void *kept[300][2]; /* memory of libmlx5 that cannot be freed any more */
	uint8_t *p = pages(1), e[72];

	for (unsigned i = 0; i < ARRAY(kept); i++) {
		struct ibv_context *x = mlx5dv_open_device(list[0], &attr);
		struct mlx5dv_devx_event_channel *ch;
		struct mlx5dv_devx_umem *u;
		struct mlx5dv_devx_obj *o[4];
		struct key k;
		uint16_t type = 0x13;
		uint32_t number, set;
		struct cmd c;

		assert_non_null(x);
		ch = mlx5dv_devx_create_event_channel(x, 0);
		u = mlx5dv_devx_umem_reg(x, p, 4096, IBV_ACCESS_LOCAL_WRITE);
		assert_true(ch && u);
		o[0] = simple(x, 0x800, &number);
		c = command(0x600, 16, 0x20);
		put(c.in, 0x40, 4, 1);
		put(c.in, 0x48, 24, number);
		o[1] = create(x, &c);
		assert_non_null(o[1]);
		key_init(&k, MTT, KEY_ALL, number, 0, 4096, 12);
		key_umem(&k, u->umem_id, 0, 1);
		assert_int_equal(key_try(x, &k), 0);
		o[2] = k.obj;
		o[3] = simple(x, 0x771, &set); /* of these there are 255 */
		must(mlx5dv_devx_subscribe_devx_event(ch, o[0], 2, &type, i));
		must(ibv_close_device(x));
		assert_true(readable(ch->fd, 0));
		assert_int_equal(mlx5dv_devx_get_event(ch, (void *)e, sizeof(e)), -1);
		assert_int_equal(errno, EIO);
		close(ch->fd);
		kept[i][0] = ch;
		kept[i][1] = u;
		for (unsigned j = 0; j < ARRAY(o); j++) /* the same, of what can be freed */
			free(o[j]);
	}
	munmap(p, 4096);
}

/* ---- another function's key ---- */

static struct cmd permission(uint32_t index, uint8_t secret)
{
	struct cmd c = command(0xb16, 0x40, 16);

	put(c.in, 0x90, 16, 0xff01);
	put(c.in, 0xa0, 32, index);
	memset(c.in + 0x20, secret, 32);
	return c;
}

static struct cmd alias_of(unsigned vhca, uint32_t index, uint8_t secret, uint32_t of)
{
	struct cmd c = command(0xa00, 0x50, 0x50);

	put(c.in, 0x30, 16, 0xff01);
	put(c.in, 0x60, 1, 1);
	put(c.in, 0x80, 16, vhca);
	put(c.in, 0x80 + 0x20, 32, index);
	memset(c.in + 16 + 0x10, secret, 32);
	put(c.in, 0x80 + 0x180, 32, of);
	return c;
}

static void aliases(UNUSED void **state)
{
	struct ibv_pd *opd = ibv_alloc_pd(other), *mine = pd;
	struct ibv_context *me = ctx;
	struct mlx5dv_devx_obj *alias;
	uint8_t *p = pages(2), *l;
	struct ibv_mr *mr, *lmr;
	struct key k, again;
	uint32_t opdn, akey;
	struct cmd c;

	assert_non_null(opd);
	opdn = pd_number(opd);
	mr = ibv_reg_mr(pd, p, 2 * 4096, ALL_ACCESS);
	key_init(&k, KSM, KEY_ALL, pdn, 0x5000, 4096, 12);
	key_entry(&k, 0, mr->lkey, (uintptr_t)p + 4096);
	key_make(&k);

	/* Not before it is permitted; only with the key; only by its owner; not within one function; not of a verbs key */
	c = alias_of(0, k.key >> 8, 7, opdn);
	refused(other, &c, 5);
	c = permission(k.key >> 8, 7);
	assert_int_equal(general(second, &c), EREMOTEIO);
	assert_int_equal(status(&c), 5);
	c = permission(mr->lkey >> 8, 7);
	assert_int_equal(general(ctx, &c), EREMOTEIO);
	c = permission(k.key >> 8, 7);
	put(c.in, 0x90, 16, 0xff02);
	assert_int_equal(general(ctx, &c), EREMOTEIO);
	assert_int_equal(status(&c), 3);
	c = permission(k.key >> 8, 7);
	must(general(ctx, &c));
	c = alias_of(0, k.key >> 8, 8, opdn);
	refused(other, &c, 5);
	c = alias_of(3, k.key >> 8, 7, opdn);
	refused(other, &c, 5);
	c = alias_of(0, k.key >> 8, 7, pdn);
	refused(other, &c, 5);
	refused(ctx, &c, 3);
	c = alias_of(0, k.key >> 8, 7, opdn);
	put(c.in, 0x60, 1, 0);
	refused(other, &c, 3);
	c = alias_of(0, k.key >> 8, 7, opdn);
	put(c.in, 0x30, 16, 5);
	refused(other, &c, 2);

	c = alias_of(0, k.key >> 8, 7, opdn);
	alias = create(other, &c);
	assert_non_null(alias);
	assert_int_equal(get(c.out, 0x80 + 0x1d, 3), 0);
	akey = get(c.out, 0x40, 32) << 8 | 0x11;
	c = command(0xa02, 16, 0x50);
	put(c.in, 0x30, 16, 0xff01);
	put(c.in, 0x40, 32, akey >> 8);
	must(query(alias, &c));
	assert_int_equal(get(c.out, 0x80 + 0x20, 32), k.key >> 8);
	assert_true(all_bytes(c.out + 0x20, 32, 0));

	/* On the other device it is a key like its own, to local and to remote use */
	ctx = other;
	pd = opd;
	must(ibv_query_port(ctx, 1, &port));
	must(ibv_query_gid(ctx, 1, sgid, &gid));
	open_pair(s, &usual);
	fill(s[0].buf, HALF, 4);
	assert_int_equal(request_by(s, IBV_WR_RDMA_WRITE, 0, 4096, akey, 0x5000), IBV_WC_SUCCESS);
	assert_memory_equal(p + 4096, s[0].buf, 4096);
	l = s[0].buf;
	lmr = s[0].mr;
	{
		struct ibv_sge sg = { .addr = 0x5000 + 10, .length = 64, .lkey = akey };
		struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 8, &sg, 1, &s[1], 64);

		post(&s[0], &wr);
		expect(s[0].scq, 8, IBV_WC_SUCCESS);
		assert_memory_equal(s[1].buf + 64, p + 4096 + 10, 64);
	}
	assert_ptr_equal(l, s[0].buf);
	assert_ptr_equal(lmr, s[0].mr);
	key_refused(s, IBV_WR_RDMA_WRITE, 8, akey, 0x6000);
	/* The key itself is its owner's alone */
	key_refused(s, IBV_WR_RDMA_WRITE, 8, k.key, 0x5000);
	/* It goes, and one of the same number takes its place: not what was permitted */
	must(mlx5dv_devx_obj_destroy(k.obj));
	key_refused(s, IBV_WR_RDMA_WRITE, 8, akey, 0x5000);
	ctx = me;
	for (unsigned i = 0; i < 1 << 16; i++) { /* numbers come again only in turn */
		memcpy(again.in, k.in, sizeof(k.in));
		again.inlen = k.inlen;
		key_make(&again);
		if (again.key == k.key)
			break;
		must(mlx5dv_devx_obj_destroy(again.obj));
	}
	assert_int_equal(again.key, k.key);
	ctx = other;
	key_refused(s, IBV_WR_RDMA_WRITE, 8, akey, 0x5000);
	must(mlx5dv_devx_obj_destroy(again.obj));
	must(mlx5dv_devx_obj_destroy(alias));
	close_pair(s);
	ctx = me;
	pd = mine;
	must(ibv_query_port(ctx, 1, &port));
	must(ibv_query_gid(ctx, 1, sgid, &gid));
	must(ibv_dealloc_pd(opd));
	must(ibv_dereg_mr(mr));
	munmap(p, 2 * 4096);
}

/* ---- hostile input ---- */

/*
 * Every listed opcode with random fields, at every length, and random opcodes: an answer each time,
 * and not a byte beside the outbox
 */
static void random_commands(UNUSED void **state)
{
	const char *env = getenv("DEVX_CASES");
	unsigned cases = env ? 10 * strtoul(env, NULL, 10) : 5000, made = 0;
	uint32_t eqn, number;
	struct mlx5dv_devx_obj *o[3];

	must(mlx5dv_devx_query_eqn(ctx, 0, &eqn));
	o[0] = simple(ctx, 0x800, &number);
	o[1] = simple(ctx, 0x771, &number);
	o[2] = simple(ctx, 0x80e, &number);
	for (unsigned i = 0; i < cases; i++) {
		unsigned op = i % 3 == 0 ? generals[rnd() % ARRAY(generals)] : i % 3 == 1 ? creates[rnd() % ARRAY(creates)] : rnd() % 0xd00;
		struct cmd c = command(op, rnd() % 4 ? 16 + rnd() % (IN - 16) / 4 * 4 : rnd() % IN, rnd() % 4 ? OUT : rnd() % OUT);
		unsigned density = rnd() % 40;
		struct mlx5dv_devx_obj *n;
		int ret;

		for (unsigned j = 2; j < c.inlen; j++)
			if (rnd() % 40 < density)
				c.in[j] = rnd();
		if (rnd() % 8)
			memset(c.in + 2, 0, 6);
		if (op == 0x600)
			put(c.in, 0x40, 4, 1);
		if (op == 0x400 && c.inlen > 0x28)
			put(c.in, 0x80 + 0xa0, 32, eqn);
		if (rnd() % 2 && c.inlen > 0x20)
			put(c.in, 0x80 + 0x68, 24, pdn);
		ret = general(ctx, &c);
		assert_true(ret == 0 || ret == EREMOTEIO || ret == EINVAL);
		memset(c.out, FILL, sizeof(c.out));
		n = create(ctx, &c);
		if (n) {
			made++;
			must(mlx5dv_devx_obj_destroy(n));
		} else {
			assert_true(errno == EREMOTEIO || errno == EINVAL || errno == ENOENT);
		}
		memset(c.out, FILL, sizeof(c.out));
		put(c.in, 0xf8, 8, number);
		ret = query(o[i % 3], &c);
		assert_true(ret == 0 || ret == EREMOTEIO || ret == EINVAL);
		memset(c.out, FILL, sizeof(c.out));
		assert_true(modify(o[i % 3], &c) != 0);
	}
	assert_true(made > 0);
	for (unsigned i = 0; i < 3; i++)
		must(mlx5dv_devx_obj_destroy(o[i]));
}

/*
 * Numbers that are right, in contexts of queues that are random otherwise: many of these come to
 * life
 */
static void random_queues(UNUSED void **state)
{
	static const struct {
		uint16_t opcode, inlen;
		struct {
			uint16_t bit, width;
			char what;        /* p PD, u umem, a UAR, c CQ, e EQ, f any QP, s size or page, l length, a digit itself */
		} is[12];
	} kinds[] = {
		{ 0x400, 0x110, { { 0x2c0, 32, 'u' }, { 0xa0, 32, 'u' }, { 0xe8, 24, 'a' }, { 0x120, 32, 'e' } } },
		{ 0x500, 0x110, { { 0xe8, 24, 'p' }, { 0x128, 24, 'a' }, { 0x4a8, 24, 'c' }, { 0x5a8, 24, 'c' }, { 0x840, 32, 'u' },
				  { 0x7e0, 32, 'u' }, { 0xd3, 2, '3' }, { 0xc8, 8, '0' }, { 0x625, 3, '3' } } },
		{ 0x904, 0x110, { { 0x148, 24, 'c' }, { 0x2c8, 24, 'p' }, { 0x2e8, 24, 'a' }, { 0x3c0, 32, 'u' }, { 0x3e0, 32, 'u' },
				  { 0x280, 4, '1' }, { 0x38c, 4, '6' } } },
		{ 0x908, 0x110, { { 0x148, 24, 'c' }, { 0x2c8, 24, 'p' }, { 0x3c0, 32, 'u' }, { 0x3e0, 32, 'u' }, { 0x280, 4, '1' },
				  { 0x38c, 4, '5' } } },
		{ 0x90c, 0x110, { { 0x108, 4, '1' }, { 0x2c8, 24, 'p' }, { 0x3c0, 32, 'u' }, { 0x3e0, 32, 'u' }, { 0x38c, 4, '5' } } },
		{ 0x200, 0x110, { { 0xe8, 24, 'p' }, { 0xa0, 24, 'f' }, { 0x320, 32, 'u' }, { 0x96, 2, '1' }, { 0x25b, 5, 's' },
				  { 0x160, 32, 'l' }, { 0x220, 32, '8' } } },
		{ 0x717, 0x150, { { 0xc8, 24, 'c' }, { 0x4c8, 24, 'p' }, { 0x5c0, 32, 'u' }, { 0x5e0, 32, 'u' }, { 0x58c, 4, '5' } } },
		{ 0x710, 0x80, { { 0xc8, 24, 'c' }, { 0x148, 24, 'p' } } },
	};
	const char *env = getenv("DEVX_CASES");
	unsigned cases = env ? 10 * strtoul(env, NULL, 10) : 4000, made[ARRAY(kinds)] = { 0 };
	struct mlx5dv_devx_uar *uar = mlx5dv_devx_alloc_uar(ctx, MLX5DV_UAR_ALLOC_TYPE_BF);
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	uint8_t *p = pages(64);
	struct mlx5dv_devx_umem *u = mlx5dv_devx_umem_reg(ctx, p, 64 * 4096, IBV_ACCESS_LOCAL_WRITE);
	uint32_t eqn;

	assert_true(uar && cq && u);
	must(mlx5dv_devx_query_eqn(ctx, 0, &eqn));
	for (unsigned i = 0; i < cases; i++) {
		unsigned k = i % ARRAY(kinds), density = rnd() % 4;
		struct cmd c = command(kinds[k].opcode, kinds[k].inlen, 16);
		struct mlx5dv_devx_obj *o;

		for (unsigned j = 16; j < c.inlen; j++)
			if (rnd() % 200 < density)
				c.in[j] = rnd() % 2 ? rnd() : rnd() % 8;
		for (unsigned j = 0; j < ARRAY(kinds[k].is) && kinds[k].is[j].width; j++) {
			uint32_t v = 0;

			switch (kinds[k].is[j].what) {
			case 'p': v = pdn; break;
			case 'u': v = u->umem_id; break;
			case 'a': v = uar->page_id; break;
			case 'c': v = cq_number(cq); break;
			case 'e': v = eqn; break;
			case 'f': v = 0xffffff; break;
			case 's': v = 12; break;
			case 'l': v = 4096; break;
			default: v = kinds[k].is[j].what - '0'; break;
			}
			put(c.in, kinds[k].is[j].bit, kinds[k].is[j].width, v);
		}
		o = create(ctx, &c);
		if (!o) {
			assert_true(errno == EREMOTEIO || errno == ENOENT);
			continue;
		}
		made[k]++;
		/* Every opcode is checked and stopped. Without DEVX_CASES, only every 16th opcode of another kind of object */
		for (unsigned op = 0x400; op < 0x920; op++) {
			struct cmd q = command(op, 16, OUT);
			int ret;

			put(q.in, 0x48, 24, get(c.out, 0x48, 24));
			ret = query(o, &q);
			assert_true(ret == 0 || ret == EREMOTEIO || ret == EINVAL);
			if (op == 0x507 || op == 0x50a || op == 0x403 || op == 0x90d || op == 0x905) {
				q.inlen = 0x110;
				for (unsigned j = 16; j < q.inlen; j++)
					q.in[j] = rnd() % 30 ? 0 : rnd();
				ret = modify(o, &q);
				assert_true(ret == 0 || ret == EREMOTEIO || ret == EINVAL);
			}
			if (op == 0x40f)
				op = 0x4ff;
			if (!env && i / ARRAY(kinds) % 16 && (op == 0x50f || op == 0x71f))
				op = op == 0x50f ? 0x70f : 0x8ff;
		}
		must(mlx5dv_devx_obj_destroy(o));
	}
	for (unsigned k = 0; k < 6; k++)
		if (made[k] < cases / ARRAY(kinds) / 20)
			fail_msg("opcode %x: only %u were made", kinds[k].opcode, made[k]);
	must(mlx5dv_devx_umem_dereg(u));
	must(ibv_destroy_cq(cq));
	mlx5dv_devx_free_uar(uar);
	munmap(p, 64 * 4096);
}

/* ---- faults ---- */

static void faults(UNUSED void **state)
{
	struct cmd c = command(0x800, 16, 16);
	uint8_t *p = pages(1);
	struct mlx5dv_devx_umem *u;
	struct mlx5dv_devx_obj *o;

	must(softdev_fault("setup=EIO@2,setup@4"));
	o = create(ctx, &c);
	assert_non_null(o);
	assert_null(create(ctx, &c));
	assert_int_equal(errno, EIO);
	/* What asks does not count */
	c = command(0x842, 16, 16);
	must(general(ctx, &c));
	u = mlx5dv_devx_umem_reg(ctx, p, 4096, 0);
	assert_non_null(u);
	assert_null(mlx5dv_devx_umem_reg(ctx, p, 4096, 0));
	assert_int_equal(errno, ENOMEM);
	must(softdev_fault(NULL));
	must(mlx5dv_devx_umem_dereg(u));
	must(mlx5dv_devx_obj_destroy(o));
	munmap(p, 4096);
}

/* Doorbell pages by libmlx5: the only way to one */
static void uars(UNUSED void **state)
{
	struct mlx5dv_devx_uar *bf[4], *nc;
	uint32_t eqn[2];

	for (unsigned i = 0; i < ARRAY(bf); i++) {
		bf[i] = mlx5dv_devx_alloc_uar(ctx, MLX5DV_UAR_ALLOC_TYPE_BF);
		assert_non_null(bf[i]);
		for (unsigned j = 0; j < i; j++)
			assert_ptr_not_equal(bf[i]->reg_addr, bf[j]->reg_addr);
	}
	nc = mlx5dv_devx_alloc_uar(ctx, MLX5DV_UAR_ALLOC_TYPE_NC);
	assert_non_null(nc);
	assert_int_not_equal(nc->page_id, bf[0]->page_id);
	for (unsigned i = 0; i < ARRAY(bf); i++)
		mlx5dv_devx_free_uar(bf[i]);
	mlx5dv_devx_free_uar(nc);
	must(mlx5dv_devx_query_eqn(ctx, 0, &eqn[0]));
	must(mlx5dv_devx_query_eqn(ctx, 1, &eqn[1]));
	assert_int_not_equal(eqn[0], eqn[1]);
	assert_int_equal(mlx5dv_devx_query_eqn(ctx, ctx->num_comp_vectors, &eqn[0]), ENOENT);
}

/* ---- the other devices: without device commands, and as older kernels do ---- */

static void off(UNUSED void **state)
{
	struct mlx5dv_context_attr attr = { .flags = MLX5DV_CONTEXT_FLAGS_DEVX };
	struct cmd c;

	errno = 0;
	assert_null(mlx5dv_open_device(list[0], &attr));
	assert_int_equal(errno, EINVAL);
	for (unsigned op = 0; op <= 0xfff; op++) {
		int ret;

		c = command(op, 16, 16);
		ret = general(ctx, &c);
		assert_int_equal(ret, op == 0x100 || op == 0x740 || op == 0x752 || op == 0x762 ? EOPNOTSUPP : EINVAL);
	}
}

static void by_errno(UNUSED void **state)
{
	struct cmd c = command(0x600, 16, 0x20);

	put(c.in, 0x40, 4, 1);
	put(c.in, 0x48, 24, 0xffffff);
	assert_null(create(ctx, &c));
	assert_int_equal(errno, EINVAL);
	assert_true(untouched(&c));
	c = command(0x101, 16, 0x100);
	assert_int_equal(general(ctx, &c), EIO);
	assert_true(untouched(&c));
}

/* ---- the group ---- */

static int devx_setup(void **state)
{
	struct mlx5dv_context_attr attr = { .flags = MLX5DV_CONTEXT_FLAGS_DEVX };
	int ret = setup(state);

	if (ret)
		return ret;
	if (!mlx5dv_is_supported(list[0]))
		return -1;
	second = mlx5dv_open_device(list[0], &attr);
	other = list[1] ? mlx5dv_open_device(list[1], &attr) : NULL;
	pdn = pd_number(pd);
	return !second || !other ? -1 : 0;
}

static int devx_teardown(void **state)
{
	if (ibv_close_device(second) || ibv_close_device(other))
		return -1;
	return teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(by_general), TEST(by_create), TEST(kernel_checks), TEST(by_verbs_handle), TEST(by_devx_handle),
		TEST(statuses), TEST(limits), TEST(without_uid), TEST(umems), TEST(async_queries), TEST(async_blocking),
		TEST(subscriptions), TEST(events), TEST(completion_events), TEST(counter_sets), TEST(capabilities),
		TEST(identity), TEST(registers), TEST(key_of_umem), TEST(key_rights), TEST(key_klm), TEST(key_ksm),
		TEST(key_refusals), TEST(key_random), TEST(leftovers), TEST(aliases), TEST(random_commands),
		TEST(random_queues), TEST(faults), TEST(uars),
	};
	const struct CMUnitTest tests_off[] = { cmocka_unit_test(off) };
	const struct CMUnitTest tests_errno[] = { cmocka_unit_test(by_errno) };
	const char *devx = getenv("SOFTDEV_DEVX");

	if (!softdev_present()) {
		print_message("# skipped: what firmware answers is known of the software device alone\n1..0\n");
		return 0;
	}
	if (devx && !strcmp(devx, "0"))
		return cmocka_run_group_tests(tests_off, setup, teardown);
	if (devx && !strcmp(devx, "errno"))
		return cmocka_run_group_tests(tests_errno, setup, teardown);
	if (!getenv("SOFTDEV_LINK") &&
	    (again_with("SOFTDEV_DEVX", "0") || again_with("SOFTDEV_DEVX", "errno") || again_with("SOFTDEV_LINK", "ib")))
		return 1;
	setenv("SOFTDEV_DEVX", "1", 1); /* read when a device is first asked for */
	setenv("SOFTDEV_DEVICES", "2", 1);
	return cmocka_run_group_tests(tests, devx_setup, devx_teardown);
}
