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
	struct ibv_mw *mw = made(ibv_alloc_mw(of, type));

	assert_int_equal(mw->type, type);
	return mw;
}

/* An access to len bytes at an address */
static void access_to(struct side *by, enum ibv_wr_opcode op, uint32_t rkey, uint64_t addr, uint32_t len, enum ibv_wc_status status)
{
	struct ibv_sge sg = sge(by, op == IBV_WR_RDMA_WRITE ? 0 : HALF, len);
	struct ibv_send_wr wr = request(op, 5, &sg, 1, by, 0);

	aim(&wr, addr, rkey);
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr.wr.atomic.compare_add = 1;
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

/* ---- windows: queue/windows.c opens and closes them in every way ---- */

static void posted(struct side *by, struct ibv_send_wr wr, enum ibv_wc_status status)
{
	wr.wr_id = 70;
	wr.send_flags = IBV_SEND_SIGNALED;
	post(by, &wr);
	expect(by->scq, 70, status);
}

static void bind(struct side *by, struct ibv_mw *mw, struct ibv_mr *mr, size_t off, uint64_t len, unsigned access,
		 enum ibv_wc_status status)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW };

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ mr, (uintptr_t)mr->addr + off, len, access };
	posted(by, wr, status);
	if (status)
		cannot_reach(wr.bind_mw.rkey, (uintptr_t)mr->addr, 1);
	else
		mw->rkey = wr.bind_mw.rkey;
}

/* A window allows what it was opened for and no more, and holds the memory */
TEST(rights)
{
	static const unsigned rights[] = { 0, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC };
	static const enum ibv_wr_opcode ops[] = { 0, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct how how = with_access(BINDABLE);
	struct ibv_mw *mw = window(pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind b = { .wr_id = 71, .send_flags = IBV_SEND_SIGNALED };
	uint32_t key;

	open_self(s, &how);
	for (unsigned i = 0; i < ARRAY(rights); i++) {
		bind(s, mw, s->mr, 64, 64, rights[i], 0);
		assert_int_equal(ibv_dereg_mr(s->mr), EBUSY);
		assert_int_not_equal(ibv_rereg_mr(s->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, BINDABLE), 0);
		for (unsigned op = 1; op < ARRAY(ops); op++)
			access_by_others(ops[op], mw->rkey, (uintptr_t)s->buf + 64, 8, op == i ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
	}
	must(ibv_bind_mw(s->qp, mw, &b)); /* closes it */
	expect_op(s->scq, 71, IBV_WC_BIND_MW);
	cannot_reach(mw->rkey, (uintptr_t)s->buf + 64, 1);
	bind(s, mw, s->mr, 0, 64, REMOTE, 0);
	key = mw->rkey;
	must(ibv_dealloc_mw(mw)); /* as it is, open */
	cannot_reach(key, (uintptr_t)s->buf, 1);
	close_side(s);
	assert_null(ibv_alloc_mw(pd, 3));
}

/* What cannot be bound: the QP that tries comes to a stop, the window is as it was */
TEST(bad_binds)
{
	static const struct {
		int access;
		size_t off;
		uint64_t len;
		bool mw_of_other, mr_of_other, elsewhere;
	} rows[] = {
		{ .access = IBV_ACCESS_LOCAL_WRITE, .len = 4096 }, /* not meant for windows */
		{ .access = IBV_ACCESS_MW_BIND, .len = 4096 }, /* not to be written to */
		{ .access = BINDABLE, .off = SIZE - 4095, .len = 4096 }, { .access = BINDABLE, .len = SIZE + 1ull },
		{ .access = BINDABLE, .len = 4096, .mw_of_other = true },
		{ .access = BINDABLE, .len = 4096, .mr_of_other = true },
		{ .access = BINDABLE, .len = 64, .elsewhere = true }, /* of type 2: open already, by another QP, which alone may close it */
	};
	struct ibv_pd *p = ibv_alloc_pd(ctx);

	for (unsigned i = 0; i < 2 * ARRAY(rows); i++) {
		struct ibv_mw *mw = window(rows[i / 2].mw_of_other ? p : pd, i % 2 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
		struct how how = with_access(rows[i / 2].access);
		const bool elsewhere = rows[i / 2].elsewhere && mw->type == IBV_MW_TYPE_2;
		struct ibv_mr *mr;

		open_pair(s, &how);
		mr = made(ibv_reg_mr(rows[i / 2].mr_of_other ? p : pd, s[0].buf, SIZE, how.access));
		if (elsewhere)
			bind(&s[1], mw, s[1].mr, 0, 4096, REMOTE, 0);
		if (elsewhere || !rows[i / 2].elsewhere) {
			bind(&s[0], mw, mr, rows[i / 2].off, rows[i / 2].len, IBV_ACCESS_REMOTE_WRITE, IBV_WC_MW_BIND_ERR);
			assert_int_equal(state_of(s[0].qp), IBV_QPS_ERR);
		}
		if (elsewhere) {
			reconnect(s, &how);
			posted(&s[0], (struct ibv_send_wr){ .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = mw->rkey }, IBV_WC_MW_BIND_ERR);
			reconnect(s, &how);
			access_to(&s[0], IBV_WR_RDMA_WRITE, mw->rkey, (uintptr_t)s[1].buf, 4096, IBV_WC_SUCCESS);
		}
		must(ibv_dealloc_mw(mw) || ibv_dereg_mr(mr));
		close_pair(s);
	}
	must(ibv_dealloc_pd(p));
}

/* The key of a region is not a peer's to take away: it stays, and somebody hears of it */
TEST(bad_invalidate)
{
	open_request(&usual, IBV_WR_SEND_WITH_INV, 4, 100, 0);
	recv_at(&s[1], 3, HALF, 100);
	wr.invalidate_rkey = s[1].mr->rkey;
	post(&s[0], &wr);
	assert_int_not_equal(next_wc(s[0].scq).status, IBV_WC_SUCCESS);
	assert_int_not_equal(next_wc(s[1].rcq).status, IBV_WC_SUCCESS);
	access_by_others(IBV_WR_RDMA_WRITE, s[1].mr->rkey, (uintptr_t)s[1].buf, 8, IBV_WC_SUCCESS);
	close_pair(s);
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

/* A part of it, where an address is an offset from where the registration begins; queue/dm.c has the rest */
TEST(dm_transfers)
{
	struct ibv_dm *dm = made(device_memory(8192));
	uint8_t out[8192], in[8192];
	struct ibv_mr *mr;

	mr = made(ibv_reg_dm_mr(pd, dm, 4096, 1024, ALL_ACCESS | IBV_ACCESS_ZERO_BASED));
	open_pair(s, &usual);
	fill(s[0].buf, SIZE, 6);
	fill(in, sizeof(in), 7);
	must(ibv_memcpy_to_dm(dm, 0, in, sizeof(in)));
	access_to(&s[0], IBV_WR_RDMA_WRITE, mr->rkey, 24, 1000, IBV_WC_SUCCESS);
	memcpy(in + 4096 + 24, s[0].buf, 1000);
	access_to(&s[0], IBV_WR_ATOMIC_FETCH_AND_ADD, mr->rkey, 8, 8, IBV_WC_SUCCESS);
	assert_memory_equal(s[0].buf + HALF, in + 4096 + 8, 8);
	++*(uint64_t *)(void *)(in + 4096 + 8);
	must(ibv_memcpy_from_dm(out, dm, 0, sizeof(out)));
	assert_memory_equal(out, in, sizeof(in));
	cannot_reach(mr->rkey, 1020, 8);
	cannot_reach(mr->rkey, 1024, 1);
	close_pair(s);
	/* Words only, and inside */
	assert_int_equal(ibv_memcpy_to_dm(dm, 2, in, 64), EINVAL);
	assert_int_equal(ibv_memcpy_to_dm(dm, 0, in, 63), EINVAL);
	assert_int_equal(ibv_memcpy_from_dm(out, dm, 8188, 8), EFAULT);
	assert_int_equal(ibv_free_dm(dm), EBUSY);
	must(ibv_dereg_mr(mr) || ibv_free_dm(dm));
}

TEST(dm_objects)
{
	struct ibv_dm *dm, *many[16];
	uint32_t words[272];

	/* All of it, and no more; what is freed is there again */
	assert_null(device_memory(dm_max() + 1));
	for (uint32_t i = 0; i < 3; i++) {
		dm = made(device_memory(dm_max()));
		must(ibv_memcpy_to_dm(dm, dm_max() - 4, &i, 4));
		assert_null(device_memory(4));
		must(ibv_free_dm(dm));
	}
	dm = device_memory(1000);
	assert_null(ibv_reg_dm_mr(pd, dm, 500, 501, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED));
	must_refuse(ibv_reg_dm_mr(pd, dm, UINT64_MAX - 7, 16, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED), EINVAL);
	must(ibv_dereg_mr(ibv_reg_dm_mr(pd, dm, 1000, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED)));
	must(ibv_free_dm(dm));
	/* Several at once lie apart */
	for (uint32_t i = 0; i < ARRAY(many); i++) {
		many[i] = device_memory(64 + 64 * i);
		memset(words, (int)i, sizeof(words));
		must(ibv_memcpy_to_dm(many[i], 0, words, 64 + 64 * i));
	}
	for (uint32_t i = 0; i < ARRAY(many); i++) {
		must(ibv_memcpy_from_dm(words, many[i], 0, 64 + 64 * i) || ibv_free_dm(many[i]));
		assert_true(all_bytes((uint8_t *)words, 64 + 64 * i, (uint8_t)i));
	}
}

/* A child of fork() shares the amount with its parent */
TEST(dm_of_child)
{
	struct ibv_dm *half = device_memory(dm_max() / 2), *other;
	struct ibv_device_attr device;
	pid_t pid = fork();
	int status;

	if (!pid) {
		other = ibv_query_device(ctx, &device) ? NULL : device_memory(dm_max() / 2);
		_exit(!other || ibv_memcpy_to_dm(other, 0, &pid, 4) || device_memory(dm_max() / 2) || errno != ENOMEM ||
		      ibv_free_dm(other));
	}
	assert_true(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
	other = made(device_memory(dm_max() / 2));
	must(ibv_free_dm(other) || ibv_free_dm(half));
}

/* ---- on demand ---- */

static void *pages(void *at, int prot)
{
	void *p = mmap(at, 8192, prot, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

/* Only what is mapped at the moment of an access counts, in a region and in all of memory */
TEST(on_demand)
{
	struct how how = usual;

	how.qp_access |= IBV_ACCESS_ON_DEMAND;
	for (unsigned all = 0; all < 2; all++) {
		uint8_t *p = pages(NULL, PROT_NONE);
		struct ibv_mr *mr = made(ibv_reg_mr(pd, all ? NULL : p, all ? SIZE_MAX : 8192, ALL_ACCESS | IBV_ACCESS_ON_DEMAND));

		cannot_reach(mr->rkey, (uintptr_t)p, 100);
		open_pair(s, &how);
		fill(s[0].buf, SIZE, 8);
		for (unsigned twice = 0; twice < 2; twice++) {
			pages(p, PROT_READ | PROT_WRITE); /* others than before */
			access_to(&s[0], IBV_WR_RDMA_WRITE, mr->rkey, (uintptr_t)p + 4000, 200, IBV_WC_SUCCESS);
			assert_memory_equal(p + 4000, s[0].buf, 200);
			assert_int_equal(p[4200], 0);
			access_to(&s[0], IBV_WR_ATOMIC_FETCH_AND_ADD, mr->rkey, (uintptr_t)p, 8, IBV_WC_SUCCESS);
			assert_int_equal(*p, 1);
		}
		close_pair(s);
		must(mprotect(p, 8192, PROT_READ));
		cannot_reach(mr->rkey, (uintptr_t)p, 100);
		if (!all)
			cannot_reach(mr->rkey, (uintptr_t)p + 8000, 200);
		must(ibv_dereg_mr(mr));
		munmap(p, 8192);
	}
}

TEST(prefetch)
{
	enum { READ = IBV_ADVISE_MR_ADVICE_PREFETCH, WRITE = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
	       NO_FAULT = IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, NOW = IBV_ADVISE_MR_FLAG_FLUSH };
	enum { WHOLE, READ_ONLY, ALL, PINNED, OF_OTHER, REGIONS };
	static const struct {
		unsigned region, advice, flags, off, len;
		int err;
		bool there;
	} rows[] = {
		{ WHOLE, WRITE, NOW, 4096, 4096, 0, true }, { WHOLE, WRITE, 0, 8000, 192, 0, true }, { ALL, WRITE, NOW, 4096, 1, 0, true },
		{ WHOLE, NO_FAULT, NOW, 4096, 4096, 0, false }, { READ_ONLY, READ, NOW, 0, 8192, 0, false },
		{ WHOLE, WRITE, NOW, 4096, 0, 0, false },
		{ WHOLE, READ, NOW, 4096, 4097, EFAULT, false }, { WHOLE, READ, 0, 4096, 4097, 0, false },
		{ ALL, READ, NOW, 8192, 1, EFAULT, false }, { ALL, READ, 0, 8192, 1, 0, false },
		{ PINNED, READ, NOW, 0, 1, ENOENT, false }, { OF_OTHER, READ, NOW, 0, 1, EPERM, false },
		{ READ_ONLY, WRITE, NOW, 0, 1, EPERM, false }, { WHOLE, 7, NOW, 0, 1, EOPNOTSUPP, false },
		{ WHOLE, READ, NOW | 2, 0, 1, EINVAL, false },
	};
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	bool can = false; /* the kernel takes the advice */

#ifdef MADV_POPULATE_WRITE
	can = madvise(pages(NULL, PROT_READ | PROT_WRITE), 8192, MADV_POPULATE_WRITE) == 0;
#endif
	for (unsigned i = 0; i < ARRAY(rows); i++) {
		uint8_t *p = mmap(NULL, 12288, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct ibv_mr *mr[REGIONS];
		struct ibv_sge sg;
		unsigned char in[2];

		pages(p, PROT_READ | PROT_WRITE);
		for (unsigned r = 0; r < REGIONS; r++) {
			int access = (r == READ_ONLY ? IBV_ACCESS_REMOTE_READ : ALL_ACCESS) | (r == PINNED ? 0 : IBV_ACCESS_ON_DEMAND);

			mr[r] = made(ibv_reg_mr(r == OF_OTHER ? other : pd, r == ALL ? NULL : p, r == ALL ? SIZE_MAX : 8192, access));
		}
		sg = (struct ibv_sge){ (uintptr_t)p + rows[i].off, rows[i].len, mr[rows[i].region]->lkey };
		assert_int_equal(ibv_advise_mr(pd, rows[i].advice, rows[i].flags, &sg, 1), rows[i].err);
		must(mincore(p, 8192, in));
		/* A page that was only read may be the one of zeros */
		if (can && rows[i].region != READ_ONLY)
			assert_int_equal(in[1] & 1, rows[i].there);
		for (unsigned r = 0; r < REGIONS; r++)
			must(ibv_dereg_mr(mr[r]));
		munmap(p, 12288);
	}
	assert_int_equal(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, NOW, NULL, 0), EINVAL);
	must(ibv_dealloc_pd(other));
}

int main(void)
{
	return run_all(setup, teardown);
}
