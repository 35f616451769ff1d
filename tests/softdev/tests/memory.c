/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * memory.c: memory windows of both types, and the device's own memory: which access goes through
 * which key, and when no more
 */
#include "rig.h"

#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* Memory that is to be had through windows only */
static struct how windowed(void)
{
	struct how how = usual;

	how.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
	return how;
}

static struct ibv_mw *window(enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, type);

	assert_non_null(mw);
	assert_int_equal(mw->type, type);
	return mw;
}

/* An access to len bytes at an address, and what becomes of it */
static void access_to(struct side *by, enum ibv_wr_opcode op, uint32_t rkey, uint64_t addr, uint32_t len, enum ibv_wc_status status)
{
	struct ibv_sge sg = sge(by, op == IBV_WR_RDMA_WRITE ? 0 : HALF, len);
	struct ibv_send_wr wr = request(op, 5, &sg, 1, by, 0);

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = rkey;
	}
	post(by, &wr);
	expect(by->scq, 5, status);
}

static void write_to(struct side *from, uint32_t rkey, uint64_t addr, uint32_t len, enum ibv_wc_status status)
{
	access_to(from, IBV_WR_RDMA_WRITE, rkey, addr, len, status);
}

static void read_from(struct side *to, uint32_t rkey, uint64_t addr, uint32_t len, enum ibv_wc_status status)
{
	access_to(to, IBV_WR_RDMA_READ, rkey, addr, len, status);
}

static void add_to(struct side *from, uint32_t rkey, uint64_t addr, uint32_t len, enum ibv_wc_status status)
{
	access_to(from, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, len, status);
}

/* Both allowed and done right */
static void reaches(struct side *from, uint32_t rkey, uint64_t addr, uint8_t *there, uint32_t len)
{
	fill(from->buf, len, rnd());
	write_to(from, rkey, addr, len, IBV_WC_SUCCESS);
	assert_memory_equal(there, from->buf, len);
	fill(there, len, rnd());
	read_from(from, rkey, addr, len, IBV_WC_SUCCESS);
	assert_memory_equal(there, from->buf + HALF, len);
}

/* Refused; it costs the pair */
static void cannot_reach(uint32_t rkey, uint64_t addr, uint32_t len)
{
	struct side s[2];

	open_pair(s, &usual);
	write_to(&s[0], rkey, addr, len, IBV_WC_REM_ACCESS_ERR);
	close_pair(s);
}

static struct ibv_mw_bind_info info_of(const struct side *s, size_t off, uint64_t len, unsigned access)
{
	return (struct ibv_mw_bind_info){ .mr = len ? s->mr : NULL, .addr = len ? (uintptr_t)s->buf + off : 0, .length = len,
					  .mw_access_flags = access };
}

/* ---- type 1 ---- */

static void bind1(struct side *s, struct ibv_mw *mw, const struct side *memory, size_t off, uint64_t len, unsigned access)
{
	struct ibv_mw_bind b = { .wr_id = 70, .send_flags = IBV_SEND_SIGNALED, .bind_info = info_of(memory, off, len, access) };

	must(ibv_bind_mw(s->qp, mw, &b));
	expect_op(s->scq, 70, IBV_WC_BIND_MW);
}

static void type_1(UNUSED void **state)
{
	struct how how = windowed();
	struct ibv_mw *mw = window(IBV_MW_TYPE_1);
	struct side t[2];
	uint32_t first = mw->rkey, old;

	open_pair(s, &how);
	open_pair(t, &usual);
	cannot_reach(s[1].mr->rkey, (uintptr_t)s[1].buf, 8);
	cannot_reach(mw->rkey, (uintptr_t)s[1].buf, 8);
	bind1(&s[1], mw, &s[1], 4096, 8192, REMOTE);
	assert_int_equal(mw->rkey >> 8, first >> 8);
	assert_int_not_equal(mw->rkey, first);
	/* Any QP of the domain, all of the window */
	reaches(&s[0], mw->rkey, (uintptr_t)s[1].buf + 4096, s[1].buf + 4096, 8192);
	reaches(&t[0], mw->rkey, (uintptr_t)s[1].buf + 5000, s[1].buf + 5000, 7000);
	*(uint64_t *)(s[1].buf + 4096) = 41;
	add_to(&t[0], mw->rkey, (uintptr_t)s[1].buf + 4096, 8, IBV_WC_SUCCESS);
	assert_int_equal(*(uint64_t *)(s[1].buf + 4096), 42);
	/* Nothing beside it, nor under the key it had */
	memset(s[1].buf, 0xaa, SIZE);
	cannot_reach(mw->rkey, (uintptr_t)s[1].buf + 4095, 1);
	cannot_reach(mw->rkey, (uintptr_t)s[1].buf + 4096 + 8191, 2);
	cannot_reach(first, (uintptr_t)s[1].buf + 4096, 1);
	assert_true(all_bytes(s[1].buf, SIZE, 0xaa));
	/* The memory stays registered as long as a window is open on it */
	assert_int_equal(ibv_dereg_mr(s[1].mr), EBUSY);
	/* Bound again: elsewhere, under another key, and the old one is gone */
	old = mw->rkey;
	bind1(&s[1], mw, &s[1], HALF, 100, REMOTE);
	assert_int_not_equal(mw->rkey, old);
	reaches(&s[0], mw->rkey, (uintptr_t)s[1].buf + HALF, s[1].buf + HALF, 100);
	cannot_reach(old, (uintptr_t)s[1].buf + 4096, 1);
	cannot_reach(mw->rkey, (uintptr_t)s[1].buf + 4096, 1);
	/* Closed */
	old = mw->rkey;
	bind1(&s[1], mw, &s[1], 0, 0, 0);
	cannot_reach(old, (uintptr_t)s[1].buf + HALF, 1);
	cannot_reach(mw->rkey, (uintptr_t)s[1].buf + HALF, 1);
	/* And opened once more, then freed as it is */
	bind1(&s[1], mw, &s[1], 0, 64, REMOTE);
	reaches(&s[0], mw->rkey, (uintptr_t)s[1].buf, s[1].buf, 64);
	old = mw->rkey;
	must(ibv_dealloc_mw(mw));
	cannot_reach(old, (uintptr_t)s[1].buf, 1);
	close_pair(s);
	close_pair(t);
}

/* A window allows what it was opened for and no more */
static void rights(UNUSED void **state)
{
	static const unsigned rights[] = { 0, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC };
	struct how how = windowed();
	struct side s;

	open_side(&s, &how);
	bring_up(s.qp, s.qp->qp_num, &how);
	for (unsigned i = 0; i < ARRAY(rights); i++) {
		struct ibv_mw *mw = window(IBV_MW_TYPE_1);

		bind1(&s, mw, &s, 64, 64, rights[i]);
		for (unsigned op = 1; op < ARRAY(rights); op++) {
			static void (*const use[])(struct side *, uint32_t, uint64_t, uint32_t, enum ibv_wc_status) = { NULL, read_from, write_to,
															       add_to };
			struct side t[2];

			open_pair(t, &usual);
			use[op](&t[0], mw->rkey, (uintptr_t)s.buf + 64, 8, op == i ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
			close_pair(t);
		}
		must(ibv_dealloc_mw(mw));
	}
	close_side(&s);
}

/* What cannot be bound: the QP that tries comes to a stop, the window is as it was */
static void bad_binds(UNUSED void **state)
{
	static const struct {
		int access;
		size_t off;
		uint64_t len;
		bool mw_of_other, mr_of_other;
	} rows[] = {
		{ IBV_ACCESS_LOCAL_WRITE, 0, 4096, false, false }, /* not meant for windows */
		{ IBV_ACCESS_MW_BIND, 0, 4096, false, false }, /* not to be written to */
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, SIZE - 4095, 4096, false, false },
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, 0, SIZE + 1ull, false, false },
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, 0, 4096, true, false },
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, 0, 4096, false, true },
	};
	struct ibv_pd *p = ibv_alloc_pd(ctx);

	for (unsigned i = 0; i < 2 * ARRAY(rows); i++) {
		enum ibv_mw_type type = i % 2 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2;
		struct ibv_mw *mw = rows[i / 2].mw_of_other ? ibv_alloc_mw(p, type) : window(type);
		struct ibv_send_wr wr = { .wr_id = 70, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED };
		struct how how = usual;
		struct ibv_mr *mr = NULL;
		struct side s;

		assert_non_null(mw);
		how.access = rows[i / 2].access;
		open_side(&s, &how);
		bring_up(s.qp, s.qp->qp_num, &how);
		wr.bind_mw.mw = mw;
		wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
		wr.bind_mw.bind_info = info_of(&s, rows[i / 2].off, rows[i / 2].len, IBV_ACCESS_REMOTE_WRITE);
		if (rows[i / 2].mr_of_other)
			wr.bind_mw.bind_info.mr = mr = ibv_reg_mr(p, s.buf, SIZE, how.access);
		post(&s, &wr);
		expect(s.scq, 70, IBV_WC_MW_BIND_ERR);
		assert_int_equal(state_of(s.qp), IBV_QPS_ERR);
		cannot_reach(wr.bind_mw.rkey, (uintptr_t)s.buf, 1);
		close_side(&s);
		assert_true(!mr || !ibv_dereg_mr(mr));
		must(ibv_dealloc_mw(mw));
	}
	assert_null(ibv_alloc_mw(pd, 3));
	must(ibv_dealloc_pd(p));
}

/* ---- type 2 ---- */

static void bind2(struct side *s, struct ibv_mw *mw, uint32_t rkey, struct ibv_mw_bind_info info, enum ibv_wc_status status)
{
	struct ibv_send_wr wr = { .wr_id = 80, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED };

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info = info;
	post(s, &wr);
	if (status) {
		expect(s->scq, 80, status);
	} else {
		expect_op(s->scq, 80, IBV_WC_BIND_MW);
		mw->rkey = rkey;
	}
}

static void invalidate(struct side *s, uint32_t rkey, enum ibv_wc_status status)
{
	struct ibv_send_wr wr = { .wr_id = 81, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = rkey };

	post(s, &wr);
	if (status)
		expect(s->scq, 81, status);
	else
		expect_op(s->scq, 81, IBV_WC_LOCAL_INV);
}

/* Only the QP it was bound on, with the key that the program chose */
static void type_2(UNUSED void **state)
{
	struct how how = windowed();
	struct ibv_mw *mw = window(IBV_MW_TYPE_2);
	uint32_t key;

	open_pair(s, &how);
	for (int i = 0; i < 5; i++) {
		key = (mw->rkey & ~0xffu) | ((mw->rkey + 17) & 0xff);
		bind2(&s[1], mw, key, info_of(&s[1], 4096 * i, 4096, REMOTE), 0);
		reaches(&s[0], key, (uintptr_t)s[1].buf + 4096 * i, s[1].buf + 4096 * i, 4096);
		cannot_reach(key, (uintptr_t)s[1].buf + 4096 * i, 1); /* a pair of its own */
		assert_int_equal(ibv_dereg_mr(s[1].mr), EBUSY);
		invalidate(&s[1], key, 0);
	}
	/* From 0 on */
	key = ibv_inc_rkey(mw->rkey);
	bind2(&s[1], mw, key, info_of(&s[1], 12345, 1000, REMOTE | IBV_ACCESS_ZERO_BASED), 0);
	reaches(&s[0], key, 0, s[1].buf + 12345, 1000);
	reaches(&s[0], key, 900, s[1].buf + 12345 + 900, 100);
	invalidate(&s[1], key, 0);
	write_to(&s[0], key, 0, 1, IBV_WC_REM_ACCESS_ERR);
	must(ibv_dealloc_mw(mw));
	close_pair(s);
}

/* Open already: it has to be closed first, and by the QP that it is open on */
static void type_2_order(UNUSED void **state)
{
	struct how how = windowed();
	struct ibv_mw *mw = window(IBV_MW_TYPE_2);
	struct side t;
	uint32_t key = ibv_inc_rkey(mw->rkey);

	open_pair(s, &how);
	bind2(&s[1], mw, key, info_of(&s[1], 0, 4096, REMOTE), 0);
	open_side(&t, &how);
	bring_up(t.qp, t.qp->qp_num, &how);
	bind2(&t, mw, ibv_inc_rkey(key), info_of(&t, 0, 64, REMOTE), IBV_WC_MW_BIND_ERR);
	close_side(&t);
	open_side(&t, &how);
	bring_up(t.qp, t.qp->qp_num, &how);
	invalidate(&t, key, IBV_WC_MW_BIND_ERR);
	close_side(&t);
	reaches(&s[0], key, (uintptr_t)s[1].buf, s[1].buf, 4096);
	must(ibv_dealloc_mw(mw));
	close_pair(s);
}

/* The peer closes it with its message */
static void send_with_invalidate(UNUSED void **state)
{
	struct how how = windowed();
	struct ibv_mw *mw = window(IBV_MW_TYPE_2);

	open_pair(s, &how);
	for (int i = 0; i < 5; i++) {
		uint32_t key = ibv_inc_rkey(mw->rkey);

		bind2(&s[1], mw, key, info_of(&s[1], 0, 4096, REMOTE), 0);
		reaches(&s[0], key, (uintptr_t)s[1].buf, s[1].buf, 4096);
		recv_at(&s[1], 3, HALF, 100);
		wr = first_to_second(IBV_WR_SEND_WITH_INV, 4, 0, 100, 0);
		wr.invalidate_rkey = key;
		post_done(&s[0], &wr);
		wc = expect_op(s[1].rcq, 3, IBV_WC_RECV);
		assert_true(wc.wc_flags & IBV_WC_WITH_INV);
		assert_false(wc.wc_flags & IBV_WC_WITH_IMM);
		assert_int_equal(wc.invalidated_rkey, key);
		assert_int_equal(wc.byte_len, 100);
		assert_memory_equal(s[1].buf + HALF, s[0].buf, 100);
	}
	write_to(&s[0], mw->rkey, (uintptr_t)s[1].buf, 1, IBV_WC_REM_ACCESS_ERR);
	close_pair(s);
	must(ibv_dealloc_mw(mw));
}

/* A key that a peer may not take away: it stays, and somebody hears of it */
static void bad_invalidate(UNUSED void **state)
{
	struct side t[2];

	open_pair(s, &usual);
	open_pair(t, &usual);
	recv_at(&s[1], 3, HALF, 100);
	wr = first_to_second(IBV_WR_SEND_WITH_INV, 4, 0, 100, 0);
	wr.invalidate_rkey = s[1].mr->rkey;
	post(&s[0], &wr);
	wc = next_wc(s[0].scq);
	assert_int_not_equal(wc.status, IBV_WC_SUCCESS);
	wc = next_wc(s[1].rcq);
	assert_int_not_equal(wc.status, IBV_WC_SUCCESS);
	reaches(&t[0], s[1].mr->rkey, (uintptr_t)s[1].buf, s[1].buf, 64);
	close_pair(s);
	close_pair(t);
}

/* ---- device memory ---- */

static size_t dm_max(void)
{
	struct ibv_device_attr_ex ex;

	must(ibv_query_device_ex(ctx, NULL, &ex));
	return ex.max_dm_size;
}

static struct ibv_dm *device_memory(size_t len)
{
	struct ibv_alloc_dm_attr a = { .length = len };
	struct ibv_dm *dm = ibv_alloc_dm(ctx, &a);

	assert_non_null(dm);
	return dm;
}

static struct ibv_mr *dm_mr(struct ibv_dm *dm, size_t off, size_t len)
{
	struct ibv_mr *mr = ibv_reg_dm_mr(pd, dm, off, len, ALL_ACCESS | IBV_ACCESS_ZERO_BASED);

	assert_non_null(mr);
	return mr;
}

static void dm_copies(UNUSED void **state)
{
	struct ibv_dm *dm = device_memory(4096), *other = device_memory(4096);
	uint8_t in[4096], out[4096];

	fill(in, sizeof(in), 1);
	must(ibv_memcpy_to_dm(other, 0, in, 4096));
	fill(in, sizeof(in), 2);
	must(ibv_memcpy_to_dm(dm, 0, in, 4096));
	must(ibv_memcpy_from_dm(out, dm, 0, 4096));
	assert_memory_equal(in, out, 4096);
	must(ibv_memcpy_to_dm(dm, 100, in, 64));
	must(ibv_memcpy_from_dm(out, dm, 0, 4096));
	assert_memory_equal(out, in, 100);
	assert_memory_equal(out + 100, in, 64);
	assert_memory_equal(out + 164, in + 164, 4096 - 164);
	/* Words only, and inside */
	assert_int_equal(ibv_memcpy_to_dm(dm, 2, in, 64), EINVAL);
	assert_int_equal(ibv_memcpy_to_dm(dm, 0, in, 63), EINVAL);
	assert_int_equal(ibv_memcpy_from_dm(out, dm, 4092, 8), EFAULT);
	must(ibv_memcpy_from_dm(out, other, 0, 4096));
	fill(in, sizeof(in), 1);
	assert_memory_equal(in, out, 4096);
	must(ibv_free_dm(dm));
	must(ibv_free_dm(other));
}

/* As source and as target of everything */
static void dm_transfers(UNUSED void **state)
{
	struct ibv_dm *dm = device_memory(8192);
	struct ibv_mr *mr = dm_mr(dm, 0, 8192), *part = dm_mr(dm, 4096, 1024);
	uint8_t out[8192];
	uint64_t word = 41;

	open_pair(s, &usual);
	memset(out, 0, sizeof(out));
	must(ibv_memcpy_to_dm(dm, 0, out, 8192));
	fill(s[0].buf, SIZE, 6);
	/* Remote: an address is an offset from where the registration begins */
	write_to(&s[0], mr->rkey, 1000, 3000, IBV_WC_SUCCESS);
	must(ibv_memcpy_from_dm(out, dm, 0, 8192));
	assert_memory_equal(out + 1000, s[0].buf, 3000);
	assert_true(all_bytes(out, 1000, 0) && all_bytes(out + 4000, 4192, 0));
	read_from(&s[0], mr->rkey, 1000, 3000, IBV_WC_SUCCESS);
	assert_memory_equal(s[0].buf + HALF, s[0].buf, 3000);
	write_to(&s[0], part->rkey, 24, 1000, IBV_WC_SUCCESS);
	must(ibv_memcpy_from_dm(out, dm, 0, 8192));
	assert_memory_equal(out + 4096 + 24, s[0].buf, 1000);
	must(ibv_memcpy_to_dm(dm, 64, &word, 8));
	add_to(&s[0], mr->rkey, 64, 8, IBV_WC_SUCCESS);
	must(ibv_memcpy_from_dm(&word, dm, 64, 8));
	assert_int_equal(word, 42);
	assert_int_equal(*(uint64_t *)(s[0].buf + HALF), 41);
	/* Local: sent from, received into */
	sg = (struct ibv_sge){ .addr = 1000, .length = 2000, .lkey = mr->lkey };
	wr = request(IBV_WR_SEND, 1, &sg, 1, &s[1], 0);
	recv_at(&s[1], 2, 0, 4096);
	post_done(&s[0], &wr);
	expect_op(s[1].rcq, 2, IBV_WC_RECV);
	assert_memory_equal(s[1].buf, s[0].buf, 2000);
	sg = (struct ibv_sge){ .addr = 0, .length = 1024, .lkey = part->lkey };
	assert_int_equal(post_recv(&s[1], 3, &sg, 1), 0);
	sg = sge(&s[0], 5000, 1024);
	post_done(&s[0], &wr);
	expect_op(s[1].rcq, 3, IBV_WC_RECV);
	must(ibv_memcpy_from_dm(out, dm, 0, 8192));
	assert_memory_equal(out + 4096, s[0].buf + 5000, 1024);
	/* Not beyond */
	cannot_reach(part->rkey, 1020, 8);
	cannot_reach(mr->rkey, 8192, 1);
	cannot_reach(mr->rkey, (uintptr_t)s[1].buf, 1);
	must(ibv_dereg_mr(part));
	must(ibv_dereg_mr(mr));
	must(ibv_free_dm(dm));
	close_pair(s);
}

static void dm_objects(UNUSED void **state)
{
	struct ibv_alloc_dm_attr a = { .length = dm_max() + 1 };
	struct ibv_dm *dm, *many[16];
	struct ibv_mr *mr;

	assert_null(ibv_alloc_dm(ctx, &a));
	/* All of it, and no more; what is freed is there again */
	a.length = 4;
	for (int i = 0; i < 3; i++) {
		dm = device_memory(dm_max());
		must(ibv_memcpy_to_dm(dm, dm_max() - 4, &i, 4));
		assert_null(ibv_alloc_dm(ctx, &a));
		must(ibv_free_dm(dm));
	}
	dm = device_memory(1000);
	assert_null(ibv_reg_dm_mr(pd, dm, 0, 1000, IBV_ACCESS_LOCAL_WRITE));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_reg_dm_mr(pd, dm, 0, 2 * 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED));
	assert_null(ibv_reg_dm_mr(pd, dm, 500, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED));
	assert_null(ibv_reg_dm_mr(pd, dm, UINT64_MAX - 7, 16, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED));
	mr = dm_mr(dm, 1000, 0);
	must(ibv_dereg_mr(mr));
	mr = dm_mr(dm, 0, 1000);
	assert_int_equal(ibv_free_dm(dm), EBUSY);
	must(ibv_dereg_mr(mr));
	must(ibv_free_dm(dm));
	/* Several at once lie apart */
	for (unsigned i = 0; i < ARRAY(many); i++) {
		uint32_t word = i;

		many[i] = device_memory(64 + 64 * i);
		for (unsigned at = 0; at < 64 + 64 * i; at += 4)
			must(ibv_memcpy_to_dm(many[i], at, &word, 4));
	}
	for (unsigned i = 0; i < ARRAY(many); i++) {
		for (unsigned at = 0; at < 64 + 64 * i; at += 4) {
			uint32_t word = 99;

			must(ibv_memcpy_from_dm(&word, many[i], at, 4));
			assert_int_equal(word, i);
		}
		must(ibv_free_dm(many[i]));
	}
}

/* A child of fork() shares the amount with its parent */
static void dm_of_child(UNUSED void **state)
{
	struct ibv_alloc_dm_attr a = { .length = dm_max() / 2 };
	struct ibv_dm *half = device_memory(a.length), *other;
	struct ibv_device_attr device;
	pid_t pid = fork();
	int status;

	if (!pid) {
		other = ibv_query_device(ctx, &device) ? NULL : ibv_alloc_dm(ctx, &a);
		_exit(!other || ibv_memcpy_to_dm(other, 0, &a, sizeof(a)) || ibv_alloc_dm(ctx, &a) || errno != ENOMEM || ibv_free_dm(other));
	}
	assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
	assert_int_equal(status, 0);
	other = device_memory(a.length);
	must(ibv_free_dm(other));
	must(ibv_free_dm(half));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(type_1), TEST(rights), TEST(bad_binds), TEST(type_2), TEST(type_2_order), TEST(send_with_invalidate),
		TEST(bad_invalidate), TEST(dm_copies), TEST(dm_transfers), TEST(dm_objects), TEST(dm_of_child),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
