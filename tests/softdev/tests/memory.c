/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c: memory windows of both types, and the device's own memory: which access goes through which key, and when no more */
#include "rig.h"

#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define BINDABLE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)

static struct how with_access(int access)
{
	struct how how = usual;

	how.access = access;
	return how;
}

static struct ibv_mw *window(struct ibv_pd *of, enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(of, type);

	assert_non_null(mw);
	assert_int_equal(mw->type, type);
	return mw;
}

/* An access to len bytes at an address */
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

/* By a pair of its own, which a refusal costs */
static void access_by_others(enum ibv_wr_opcode op, uint32_t rkey, uint64_t addr, uint32_t len, enum ibv_wc_status status)
{
	struct side t[2];

	open_pair(t, &usual);
	access_to(&t[0], op, rkey, addr, len, status);
	close_pair(t);
}

static void cannot_reach(uint32_t rkey, uint64_t addr, uint32_t len)
{
	access_by_others(IBV_WR_RDMA_WRITE, rkey, addr, len, IBV_WC_REM_ACCESS_ERR);
}

/* Written, read and added to */
static void reaches(struct side *from, uint32_t rkey, uint64_t addr, uint8_t *there, uint32_t len)
{
	uint64_t word;

	fill(from->buf, len, rnd());
	access_to(from, IBV_WR_RDMA_WRITE, rkey, addr, len, IBV_WC_SUCCESS);
	assert_memory_equal(there, from->buf, len);
	access_to(from, IBV_WR_RDMA_READ, rkey, addr, len, IBV_WC_SUCCESS);
	assert_memory_equal(there, from->buf + HALF, len);
	if (addr % 8 || (uintptr_t)there % 8)
		return;
	access_to(from, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, 8, IBV_WC_SUCCESS);
	memcpy(&word, from->buf, 8);
	word++;
	assert_memory_equal(there, &word, 8);
}

/* ---- windows ---- */

struct bind {
	size_t off;
	uint64_t len;             /* 0: closes it */
	unsigned access;
	enum ibv_wc_status status;
};

/* Under another key, if it can be done */
static void bind(struct side *by, struct ibv_mw *mw, struct ibv_mr *mr, struct bind b)
{
	struct ibv_mw_bind_info info = { .mr = b.len ? mr : NULL, .addr = b.len ? (uintptr_t)mr->addr + b.off : 0, .length = b.len,
					 .mw_access_flags = b.access };
	struct ibv_mw_bind type_1 = { .wr_id = 70, .send_flags = IBV_SEND_SIGNALED, .bind_info = info };
	struct ibv_send_wr wr = { .wr_id = 70, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED };
	uint32_t before = mw->rkey;

	if (mw->type == IBV_MW_TYPE_1) {
		must(ibv_bind_mw(by->qp, mw, &type_1));
	} else {
		wr.bind_mw.mw = mw;
		wr.bind_mw.rkey = (before & ~0xffu) | ((before + 17) & 0xff);
		wr.bind_mw.bind_info = info;
		post(by, &wr);
		mw->rkey = b.status ? before : wr.bind_mw.rkey;
	}
	if (b.status)
		expect(by->scq, 70, b.status);
	else
		expect_op(by->scq, 70, IBV_WC_BIND_MW);
	assert_true(b.status || (mw->rkey != before && mw->rkey >> 8 == before >> 8));
}

static void invalidate(struct side *by, uint32_t rkey, enum ibv_wc_status status)
{
	struct ibv_send_wr wr = { .wr_id = 81, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = rkey };

	post(by, &wr);
	if (status)
		expect(by->scq, 81, status);
	else
		expect_op(by->scq, 81, IBV_WC_LOCAL_INV);
}

/* Opened one way after another, and used where it is open and beside it; the memory is to be had through windows only */
static void windows(UNUSED void **state)
{
	static const struct bind rows[] = { { 4096, 8192, REMOTE, 0 }, { HALF, 104, REMOTE, 0 }, { 0, 64, REMOTE, 0 } };
	struct how how = with_access(BINDABLE);

	for (enum ibv_mw_type type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; type++) {
		struct ibv_mw *mw = window(pd, type);
		uint64_t at = 0;

		open_pair(s, &how);
		cannot_reach(s[1].mr->rkey, (uintptr_t)s[1].buf, 8);
		cannot_reach(mw->rkey, (uintptr_t)s[1].buf, 8);
		for (unsigned i = 0; i < ARRAY(rows); i++) {
			uint32_t before = mw->rkey;

			bind(&s[1], mw, s[1].mr, rows[i]);
			/* Nothing under the key it had, nor where it was, nor beside it */
			memset(s[1].buf, 0xaa, SIZE);
			cannot_reach(before, (uintptr_t)s[1].buf + rows[i].off, 1);
			if (i)
				cannot_reach(mw->rkey, at, 1);
			at = (uintptr_t)s[1].buf + rows[i].off;
			cannot_reach(mw->rkey, at - 1, 1);
			cannot_reach(mw->rkey, at + rows[i].len - 1, 2);
			if (type == IBV_MW_TYPE_1) /* any QP of the domain; of type 2 only the one it was bound on */
				access_by_others(IBV_WR_RDMA_WRITE, mw->rkey, at, 8, IBV_WC_SUCCESS);
			else
				cannot_reach(mw->rkey, at, 1);
			reaches(&s[0], mw->rkey, at, s[1].buf + rows[i].off, rows[i].len);
			assert_true(all_bytes(s[1].buf, rows[i].off, 0xaa));
			/* The memory stays registered as long as a window is open on it */
			assert_int_equal(ibv_dereg_mr(s[1].mr), EBUSY);
			if (type == IBV_MW_TYPE_2)
				invalidate(&s[1], mw->rkey, 0);
			else if (i == 1)
				bind(&s[1], mw, NULL, (struct bind){ .len = 0 });
			else
				continue;
			cannot_reach(mw->rkey, at, 1);
		}
		if (type == IBV_MW_TYPE_2) { /* from 0 on */
			bind(&s[1], mw, s[1].mr, (struct bind){ 12344, 1000, REMOTE | IBV_ACCESS_ZERO_BASED, 0 });
			reaches(&s[0], mw->rkey, 0, s[1].buf + 12344, 1000);
			reaches(&s[0], mw->rkey, 900, s[1].buf + 12344 + 900, 100);
			invalidate(&s[1], mw->rkey, 0);
			access_to(&s[0], IBV_WR_RDMA_WRITE, mw->rkey, 0, 1, IBV_WC_REM_ACCESS_ERR);
			at = 0;
		}
		must(ibv_dealloc_mw(mw)); /* of type 1 as it is, open */
		cannot_reach(mw->rkey, at, 1);
		close_pair(s);
	}
	assert_null(ibv_alloc_mw(pd, 3));
}

/* A window allows what it was opened for and no more */
static void rights(UNUSED void **state)
{
	static const unsigned rights[] = { 0, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC };
	static const enum ibv_wr_opcode ops[] = { 0, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct how how = with_access(BINDABLE);
	struct ibv_mw *mw = window(pd, IBV_MW_TYPE_1);

	open_self(s, &how);
	for (unsigned i = 0; i < ARRAY(rights); i++) {
		bind(s, mw, s->mr, (struct bind){ 64, 64, rights[i], 0 });
		for (unsigned op = 1; op < ARRAY(ops); op++)
			access_by_others(ops[op], mw->rkey, (uintptr_t)s->buf + 64, 8, op == i ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
	}
	must(ibv_dealloc_mw(mw));
	close_side(s);
}

/* What cannot be bound: the QP that tries comes to a stop, the window is as it was */
static void bad_binds(UNUSED void **state)
{
	static const struct {
		int access;
		size_t off;
		uint64_t len;
		bool mw_of_other, mr_of_other, elsewhere;
	} rows[] = {
		{ .access = IBV_ACCESS_LOCAL_WRITE, .len = 4096 }, /* not meant for windows */
		{ .access = IBV_ACCESS_MW_BIND, .len = 4096 }, /* not to be written to */
		{ .access = BINDABLE, .off = SIZE - 4095, .len = 4096 },
		{ .access = BINDABLE, .len = SIZE + 1ull },
		{ .access = BINDABLE, .len = 4096, .mw_of_other = true },
		{ .access = BINDABLE, .len = 4096, .mr_of_other = true },
		{ .access = BINDABLE, .len = 64, .elsewhere = true }, /* open already, by another QP */
	};
	struct ibv_pd *p = ibv_alloc_pd(ctx);

	for (unsigned i = 0; i < 2 * ARRAY(rows); i++) {
		const enum ibv_mw_type type = i % 2 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2;
		struct ibv_mw *mw = window(rows[i / 2].mw_of_other ? p : pd, type);
		struct how how = with_access(rows[i / 2].access);
		struct ibv_send_wr wr = { .wr_id = 70, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED };
		struct ibv_mr *mr;

		if (rows[i / 2].elsewhere && type == IBV_MW_TYPE_1) {
			must(ibv_dealloc_mw(mw));
			continue; /* such a window only moves */
		}
		open_pair(s, &how);
		mr = ibv_reg_mr(rows[i / 2].mr_of_other ? p : pd, s[0].buf, SIZE, how.access);
		assert_non_null(mr);
		if (rows[i / 2].elsewhere)
			bind(&s[1], mw, s[1].mr, (struct bind){ 0, 4096, REMOTE, 0 });
		wr.bind_mw.mw = mw;
		wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
		wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ mr, (uintptr_t)mr->addr + rows[i / 2].off, rows[i / 2].len,
								  IBV_ACCESS_REMOTE_WRITE };
		post(&s[0], &wr);
		expect(s[0].scq, 70, IBV_WC_MW_BIND_ERR);
		assert_int_equal(state_of(s[0].qp), IBV_QPS_ERR);
		cannot_reach(wr.bind_mw.rkey, (uintptr_t)s[0].buf, 1);
		if (rows[i / 2].elsewhere) { /* nor may another close it */
			reconnect(s, &how);
			invalidate(&s[0], mw->rkey, IBV_WC_MW_BIND_ERR);
			reconnect(s, &how);
			reaches(&s[0], mw->rkey, (uintptr_t)s[1].buf, s[1].buf, 4096);
		}
		must(ibv_dealloc_mw(mw));
		must(ibv_dereg_mr(mr));
		close_pair(s);
	}
	must(ibv_dealloc_pd(p));
}

/* The peer closes it with its message; a key of a region it may not take away */
static void send_with_invalidate(UNUSED void **state)
{
	struct ibv_mw *mw = window(pd, IBV_MW_TYPE_2);
	struct how how = with_access(BINDABLE | REMOTE);

	for (int good = 1; good >= 0; good--) {
		open_pair(s, &how);
		bind(&s[1], mw, s[1].mr, (struct bind){ 0, 4096, REMOTE, 0 });
		recv_at(&s[1], 3, HALF, 100);
		fill(s[0].buf, 100, 4);
		wr = first_to_second(IBV_WR_SEND_WITH_INV, 4, 0, 100, 0);
		wr.invalidate_rkey = good ? mw->rkey : s[1].mr->rkey;
		post(&s[0], &wr);
		wc = next_wc(s[0].scq);
		assert_int_equal(!wc.status, good);
		wc = next_wc(s[1].rcq);
		assert_int_equal(!wc.status, good);
		if (good) {
			assert_true(wc.wc_flags & IBV_WC_WITH_INV && !(wc.wc_flags & IBV_WC_WITH_IMM));
			assert_int_equal(wc.invalidated_rkey, mw->rkey);
			assert_int_equal(wc.byte_len, 100);
			assert_memory_equal(s[1].buf + HALF, s[0].buf, 100);
			access_to(&s[0], IBV_WR_RDMA_WRITE, mw->rkey, (uintptr_t)s[1].buf, 1, IBV_WC_REM_ACCESS_ERR);
		} else {
			access_by_others(IBV_WR_RDMA_WRITE, s[1].mr->rkey, (uintptr_t)s[1].buf, 8, IBV_WC_SUCCESS);
			must(ibv_dealloc_mw(mw));
		}
		close_pair(s);
	}
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

	return ibv_alloc_dm(ctx, &a);
}

/* As source and as target, by all of it and by a part: an address is an offset from where the registration begins */
static void dm_transfers(UNUSED void **state)
{
	struct ibv_dm *dm = device_memory(8192);
	struct ibv_mr *mr[2];
	uint8_t out[8192], in[8192];

	assert_non_null(dm);
	for (int part = 0; part < 2; part++) {
		const size_t first = part ? 4096 : 0, len = part ? 1024 : 8192;

		open_pair(s, &usual);
		fill(s[0].buf, SIZE, 6 + part);
		fill(in, sizeof(in), part);
		mr[part] = ibv_reg_dm_mr(pd, dm, first, len, ALL_ACCESS | IBV_ACCESS_ZERO_BASED);
		assert_non_null(mr[part]);
		must(ibv_memcpy_to_dm(dm, 0, in, sizeof(in)));
		access_to(&s[0], IBV_WR_RDMA_WRITE, mr[part]->rkey, 24, 900, IBV_WC_SUCCESS);
		access_to(&s[0], IBV_WR_RDMA_READ, mr[part]->rkey, 24, 900, IBV_WC_SUCCESS);
		assert_memory_equal(s[0].buf + HALF, s[0].buf, 900);
		access_to(&s[0], IBV_WR_ATOMIC_FETCH_AND_ADD, mr[part]->rkey, 8, 8, IBV_WC_SUCCESS);
		assert_memory_equal(s[0].buf + HALF, in + first + 8, 8);
		memcpy(in + first + 24, s[0].buf, 900);
		*(uint64_t *)(void *)(in + first + 8) += 1;
		/* Received into (libmlx5 itself would write what comes in the CQE), and sent from */
		sg = (struct ibv_sge){ .addr = 924, .length = 100, .lkey = mr[part]->lkey };
		must(post_recv(&s[1], 3, &sg, 1));
		wr = first_to_second(IBV_WR_SEND, 1, 5000, 100, 0);
		post_done(&s[0], &wr);
		expect_op(s[1].rcq, 3, IBV_WC_RECV);
		memcpy(in + first + 924, s[0].buf + 5000, 100);
		must(ibv_memcpy_from_dm(out, dm, 0, sizeof(out)));
		assert_memory_equal(out, in, sizeof(in));
		sg = (struct ibv_sge){ .addr = 24, .length = 900, .lkey = mr[part]->lkey };
		recv_at(&s[1], 2, 0, 4096);
		post_done(&s[0], &wr);
		expect_op(s[1].rcq, 2, IBV_WC_RECV);
		assert_memory_equal(s[1].buf, s[0].buf, 900);
		cannot_reach(mr[part]->rkey, len - 4, 8);
		cannot_reach(mr[part]->rkey, len, 1);
		close_pair(s);
	}
	/* Words only, and inside */
	assert_int_equal(ibv_memcpy_to_dm(dm, 2, in, 64), EINVAL);
	assert_int_equal(ibv_memcpy_to_dm(dm, 0, in, 63), EINVAL);
	assert_int_equal(ibv_memcpy_from_dm(out, dm, 8188, 8), EFAULT);
	assert_int_equal(ibv_free_dm(dm), EBUSY);
	must(ibv_dereg_mr(mr[0]));
	must(ibv_dereg_mr(mr[1]));
	must(ibv_free_dm(dm));
}

static void dm_objects(UNUSED void **state)
{
	static const struct {
		uint64_t off, len;
		unsigned access;
	} rows[] = { { 0, 1000, 0 }, { 0, 8192, IBV_ACCESS_ZERO_BASED }, { 500, 4096, IBV_ACCESS_ZERO_BASED },
		     { UINT64_MAX - 7, 16, IBV_ACCESS_ZERO_BASED } };
	struct ibv_dm *dm, *many[16];
	uint32_t word;

	/* All of it, and no more; what is freed is there again */
	assert_null(device_memory(dm_max() + 1));
	for (uint32_t i = 0; i < 3; i++) {
		dm = device_memory(dm_max());
		assert_non_null(dm);
		must(ibv_memcpy_to_dm(dm, dm_max() - 4, &i, 4));
		assert_null(device_memory(4));
		must(ibv_free_dm(dm));
	}
	dm = device_memory(1000);
	for (unsigned i = 0; i < ARRAY(rows); i++)
		assert_null(ibv_reg_dm_mr(pd, dm, rows[i].off, rows[i].len, IBV_ACCESS_LOCAL_WRITE | rows[i].access));
	must(ibv_dereg_mr(ibv_reg_dm_mr(pd, dm, 1000, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED)));
	must(ibv_free_dm(dm));
	/* Several at once lie apart */
	for (uint32_t i = 0; i < ARRAY(many); i++) {
		many[i] = device_memory(64 + 64 * i);
		for (unsigned at = 0; at < 64 + 64 * i; at += 4)
			must(ibv_memcpy_to_dm(many[i], at, &i, 4));
	}
	for (unsigned i = 0; i < ARRAY(many); i++) {
		for (unsigned at = 0; at < 64 + 64 * i; at += 4) {
			must(ibv_memcpy_from_dm(&word, many[i], at, 4));
			assert_int_equal(word, i);
		}
		must(ibv_free_dm(many[i]));
	}
}

/* A child of fork() shares the amount with its parent */
static void dm_of_child(UNUSED void **state)
{
	struct ibv_dm *half = device_memory(dm_max() / 2), *other;
	struct ibv_device_attr device;
	pid_t pid = fork();
	int status;

	if (!pid) {
		other = ibv_query_device(ctx, &device) ? NULL : device_memory(dm_max() / 2);
		_exit(!other || ibv_memcpy_to_dm(other, 0, &pid, 4) || device_memory(dm_max() / 2) || errno != ENOMEM || ibv_free_dm(other));
	}
	assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
	assert_int_equal(status, 0);
	other = device_memory(dm_max() / 2);
	assert_non_null(other);
	must(ibv_free_dm(other));
	must(ibv_free_dm(half));
}

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(windows), TEST(rights), TEST(bad_binds), TEST(send_with_invalidate), TEST(dm_transfers),
					    TEST(dm_objects), TEST(dm_of_child) };

	return cmocka_run_group_tests(tests, setup, teardown);
}
