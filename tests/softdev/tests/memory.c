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

/* s[0] writes len bytes of its buffer's start to an address, and what becomes of that */
static void write_to(struct side *from, uint32_t rkey, uint64_t addr, uint32_t len, enum ibv_wc_status status)
{
	struct ibv_sge sg = sge(from, 0, len);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 5, &sg, 1, from, 0);

	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	post(from, &wr);
	expect(from->scq, 5, status);
}

static void read_from(struct side *to, uint32_t rkey, uint64_t addr, uint32_t len, enum ibv_wc_status status)
{
	struct ibv_sge sg = sge(to, HALF, len);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, 6, &sg, 1, to, 0);

	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	post(to, &wr);
	expect(to->scq, 6, status);
}

static void add_to(struct side *from, uint32_t rkey, uint64_t addr, enum ibv_wc_status status)
{
	struct ibv_sge sg = sge(from, HALF, 8);
	struct ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, 7, &sg, 1, from, 0);

	wr.wr.atomic.remote_addr = addr;
	wr.wr.atomic.rkey = rkey;
	wr.wr.atomic.compare_add = 1;
	post(from, &wr);
	expect(from->scq, 7, status);
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

static int bind1(struct side *s, struct ibv_mw *mw, const struct side *memory, size_t off, uint64_t len, unsigned access)
{
	struct ibv_mw_bind b = { .wr_id = 70, .send_flags = IBV_SEND_SIGNALED, .bind_info = info_of(memory, off, len, access) };

	return ibv_bind_mw(s->qp, mw, &b);
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
	must(bind1(&s[1], mw, &s[1], 4096, 8192, REMOTE));
	expect_op(s[1].scq, 70, IBV_WC_BIND_MW);
	assert_int_equal(mw->rkey >> 8, first >> 8);
	assert_int_not_equal(mw->rkey, first);
	/* Any QP of the domain, all of the window */
	reaches(&s[0], mw->rkey, (uintptr_t)s[1].buf + 4096, s[1].buf + 4096, 8192);
	reaches(&t[0], mw->rkey, (uintptr_t)s[1].buf + 5000, s[1].buf + 5000, 7000);
	*(uint64_t *)(s[1].buf + 4096) = 41;
	add_to(&t[0], mw->rkey, (uintptr_t)s[1].buf + 4096, IBV_WC_SUCCESS);
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
	must(bind1(&s[1], mw, &s[1], HALF, 100, REMOTE));
	expect_op(s[1].scq, 70, IBV_WC_BIND_MW);
	assert_int_not_equal(mw->rkey, old);
	reaches(&s[0], mw->rkey, (uintptr_t)s[1].buf + HALF, s[1].buf + HALF, 100);
	cannot_reach(old, (uintptr_t)s[1].buf + 4096, 1);
	cannot_reach(mw->rkey, (uintptr_t)s[1].buf + 4096, 1);
	/* Closed */
	old = mw->rkey;
	must(bind1(&s[1], mw, &s[1], 0, 0, 0));
	expect_op(s[1].scq, 70, IBV_WC_BIND_MW);
	cannot_reach(old, (uintptr_t)s[1].buf + HALF, 1);
	cannot_reach(mw->rkey, (uintptr_t)s[1].buf + HALF, 1);
	/* And opened once more, then freed as it is */
	must(bind1(&s[1], mw, &s[1], 0, 64, REMOTE));
	expect_op(s[1].scq, 70, IBV_WC_BIND_MW);
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

		must(bind1(&s, mw, &s, 64, 64, rights[i]));
		expect_op(s.scq, 70, IBV_WC_BIND_MW);
		for (int op = 0; op < 3; op++) {
			static const unsigned needs[] = { IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC };
			enum ibv_wc_status want = rights[i] & needs[op] ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR;
			uint64_t at = (uintptr_t)s.buf + 64;
			struct side t[2];

			open_pair(t, &usual);
			if (op == 0)
				read_from(&t[0], mw->rkey, at, 8, want);
			else if (op == 1)
				write_to(&t[0], mw->rkey, at, 8, want);
			else
				add_to(&t[0], mw->rkey, at, want);
			close_pair(t);
		}
		must(ibv_dealloc_mw(mw));
	}
	close_side(&s);
}

/* What cannot be bound: the QP that tries comes to a stop, the window is as it was */
static void bad_binds(UNUSED void **state)
{
	struct ibv_pd *p = ibv_alloc_pd(ctx);

	for (int what = 0; what < 6; what++)
		for (int type = 1; type <= 2; type++) {
			struct ibv_mw *mw = what == 4 ? ibv_alloc_mw(p, type) : window(type);
			struct ibv_send_wr wr = { .wr_id = 70, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED };
			struct how how = windowed();
			size_t off = 0;
			uint64_t len = 4096;
			struct ibv_mr *mr = NULL;
			struct side s;

			assert_non_null(mw);
			if (what == 0)
				how.access = IBV_ACCESS_LOCAL_WRITE;    /* not meant for windows */
			else if (what == 1)
				how.access = IBV_ACCESS_MW_BIND;        /* not to be written to */
			else if (what == 2)
				off = SIZE - 4095;
			else if (what == 3)
				len = SIZE + 1ull;
			open_side(&s, &how);
			bring_up(s.qp, s.qp->qp_num, &how);
			wr.bind_mw.mw = mw;
			wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
			wr.bind_mw.bind_info = info_of(&s, off, len, IBV_ACCESS_REMOTE_WRITE);
			if (what == 5) {
				mr = ibv_reg_mr(p, s.buf, SIZE, how.access);
				wr.bind_mw.bind_info.mr = mr;
			}
			post(&s, &wr);
			expect(s.scq, 70, IBV_WC_MW_BIND_ERR);
			assert_int_equal(state_of(s.qp), IBV_QPS_ERR);
			cannot_reach(wr.bind_mw.rkey, (uintptr_t)s.buf, 1);
			close_side(&s);
			if (mr)
				must(ibv_dereg_mr(mr));
			must(ibv_dealloc_mw(mw));
		}
	must(ibv_dealloc_pd(p));
}

static void objects(UNUSED void **state)
{
	struct ibv_pd *p = ibv_alloc_pd(ctx);
	struct ibv_mw *mw[64];
	struct how how = windowed();
	struct side s;

	for (unsigned i = 0; i < ARRAY(mw); i++) {
		mw[i] = ibv_alloc_mw(p, i % 2 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
		assert_non_null(mw[i]);
		for (unsigned j = 0; j < i; j++)
			assert_int_not_equal(mw[i]->rkey >> 8, mw[j]->rkey >> 8);
	}
	assert_null(ibv_alloc_mw(p, 3));
	assert_int_equal(ibv_dealloc_pd(p), EBUSY);
	for (unsigned i = 0; i < ARRAY(mw); i++)
		must(ibv_dealloc_mw(mw[i]));
	must(ibv_dealloc_pd(p));
	/* ibv_bind_mw is for type 1, and not from address 0 */
	open_side(&s, &how);
	bring_up(s.qp, s.qp->qp_num, &how);
	mw[0] = window(IBV_MW_TYPE_2);
	assert_int_equal(bind1(&s, mw[0], &s, 0, 64, REMOTE), EINVAL);
	mw[1] = window(IBV_MW_TYPE_1);
	assert_int_equal(bind1(&s, mw[1], &s, 0, 64, REMOTE | IBV_ACCESS_ZERO_BASED), EINVAL);
	must(ibv_dealloc_mw(mw[0]));
	must(ibv_dealloc_mw(mw[1]));
	close_side(&s);
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

static void type_2_bounds(UNUSED void **state)
{
	struct how how = windowed();

	for (int what = 0; what < 3; what++) {
		struct ibv_mw *mw = window(IBV_MW_TYPE_2);

		open_pair(s, &how);
		memset(s[1].buf, 0xaa, SIZE);
		bind2(&s[1], mw, ibv_inc_rkey(mw->rkey), info_of(&s[1], 4096, 4096, REMOTE), 0);
		if (what == 0)
			write_to(&s[0], mw->rkey, (uintptr_t)s[1].buf + 4095, 2, IBV_WC_REM_ACCESS_ERR);
		else if (what == 1)
			write_to(&s[0], mw->rkey, (uintptr_t)s[1].buf + 8191, 2, IBV_WC_REM_ACCESS_ERR);
		else
			write_to(&s[0], mw->rkey ^ 1, (uintptr_t)s[1].buf + 4096, 2, IBV_WC_REM_ACCESS_ERR);
		assert_true(all_bytes(s[1].buf, SIZE, 0xaa));
		must(ibv_dealloc_mw(mw));
		close_pair(s);
	}
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

/* The same through ibv_wr_*, in one batch: bound, told to the peer, and later closed */
static void extended(UNUSED void **state)
{
	struct how how = windowed();
	struct ibv_mw *mw = window(IBV_MW_TYPE_2);
	struct ibv_mw_bind_info info;
	struct ibv_qp_ex *qx[2];
	uint32_t key = ibv_inc_rkey(mw->rkey), said;

	how.ops = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_SEND |
		  IBV_QP_EX_WITH_RDMA_WRITE;
	open_pair(s, &how);
	qx[0] = ibv_qp_to_qp_ex(s[0].qp);
	qx[1] = ibv_qp_to_qp_ex(s[1].qp);
	recv_at(&s[0], 1, 0, 4);
	info = info_of(&s[1], 0, 4096, REMOTE);
	ibv_wr_start(qx[1]);
	qx[1]->wr_flags = IBV_SEND_SIGNALED;
	qx[1]->wr_id = 2;
	ibv_wr_bind_mw(qx[1], mw, key, &info);
	qx[1]->wr_id = 3;
	ibv_wr_send(qx[1]);
	ibv_wr_set_inline_data(qx[1], &key, 4);
	must(ibv_wr_complete(qx[1]));
	expect_op(s[1].scq, 2, IBV_WC_BIND_MW);
	expect_op(s[1].scq, 3, IBV_WC_SEND);
	expect_op(s[0].rcq, 1, IBV_WC_RECV);
	memcpy(&said, s[0].buf, 4);
	assert_int_equal(said, key);
	reaches(&s[0], said, (uintptr_t)s[1].buf, s[1].buf, 4096);
	recv_at(&s[1], 4, HALF, 100);
	ibv_wr_start(qx[0]);
	qx[0]->wr_flags = IBV_SEND_SIGNALED;
	qx[0]->wr_id = 5;
	ibv_wr_send_inv(qx[0], said);
	ibv_wr_set_sge(qx[0], s[0].mr->lkey, (uintptr_t)s[0].buf, 50);
	must(ibv_wr_complete(qx[0]));
	expect_op(s[0].scq, 5, IBV_WC_SEND);
	wc = expect_op(s[1].rcq, 4, IBV_WC_RECV);
	assert_true(wc.wc_flags & IBV_WC_WITH_INV);
	assert_int_equal(wc.invalidated_rkey, said);
	/* Closed: so it may be bound again, and this time the owner closes it */
	key = ibv_inc_rkey(key);
	ibv_wr_start(qx[1]);
	qx[1]->wr_id = 6;
	ibv_wr_bind_mw(qx[1], mw, key, &info);
	qx[1]->wr_id = 7;
	ibv_wr_local_inv(qx[1], key);
	must(ibv_wr_complete(qx[1]));
	expect_op(s[1].scq, 6, IBV_WC_BIND_MW);
	expect_op(s[1].scq, 7, IBV_WC_LOCAL_INV);
	write_to(&s[0], key, (uintptr_t)s[1].buf, 1, IBV_WC_REM_ACCESS_ERR);
	close_pair(s);
	must(ibv_dealloc_mw(mw));
}

/* An unreliable connection may have windows, too; what it does not reach is lost without a word */
static void unreliable(UNUSED void **state)
{
	struct how how = windowed();
	struct ibv_mw *mw[2];

	how.type = IBV_QPT_UC;
	how.qp_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	open_pair(s, &how);
	fill(s[0].buf, 4096, 8);
	memset(s[1].buf, 0xaa, SIZE);
	mw[0] = window(IBV_MW_TYPE_1);
	mw[1] = window(IBV_MW_TYPE_2);
	must(bind1(&s[1], mw[0], &s[1], 0, 4096, IBV_ACCESS_REMOTE_WRITE));
	expect_op(s[1].scq, 70, IBV_WC_BIND_MW);
	bind2(&s[1], mw[1], ibv_inc_rkey(mw[1]->rkey), info_of(&s[1], 4096, 4096, IBV_ACCESS_REMOTE_WRITE), 0);
	for (int i = 0; i < 2; i++) {
		write_to(&s[0], mw[i]->rkey, (uintptr_t)s[1].buf + 4096 * i, 4096, IBV_WC_SUCCESS);
		usleep(1000);
		assert_memory_equal(s[1].buf + 4096 * i, s[0].buf, 4096);
	}
	invalidate(&s[1], mw[1]->rkey, 0);
	memset(s[1].buf, 0xaa, SIZE);
	write_to(&s[0], mw[1]->rkey, (uintptr_t)s[1].buf + 4096, 4096, IBV_WC_SUCCESS);
	usleep(1000);
	assert_true(all_bytes(s[1].buf, SIZE, 0xaa));
	must(ibv_dealloc_mw(mw[0]));
	must(ibv_dealloc_mw(mw[1]));
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
	add_to(&s[0], mr->rkey, 64, IBV_WC_SUCCESS);
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

/* All of it, and no more; what is freed is there again */
static void dm_limits(UNUSED void **state)
{
	struct ibv_alloc_dm_attr a = { .length = dm_max() };
	struct ibv_dm *dm;

	for (int i = 0; i < 3; i++) {
		dm = device_memory(dm_max());
		must(ibv_memcpy_to_dm(dm, dm_max() - 4, &i, 4));
		assert_null(ibv_alloc_dm(ctx, &a));
		must(ibv_free_dm(dm));
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

/* ---- keys of lists, which a send queue fills (UMR) ---- */

static struct mlx5dv_mkey *list_key(uint32_t flags)
{
	struct mlx5dv_mkey_init_attr a = { .pd = pd, .create_flags = flags, .max_entries = 8 };

	return mlx5dv_create_mkey(&a);
}

/* Its own peer, and what fills a key for it */
static struct mlx5dv_qp_ex *open_umr(struct side *s, struct ibv_qp_ex **ex)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_RC, .pd = pd, .cap = usual.cap, .send_ops_flags = IBV_QP_EX_WITH_LOCAL_INV,
					    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS };
	struct mlx5dv_qp_init_attr dv = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
					  .send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MR_INTERLEAVED };

	open_side(s, &usual);
	must(ibv_destroy_qp(s->qp));
	init.send_cq = s->scq;
	init.recv_cq = s->rcq;
	init.cap.max_inline_data = 512;
	s->qp = mlx5dv_create_qp(ctx, &init, &dv);
	assert_non_null(s->qp);
	bring_up(s->qp, s->qp->qp_num, &usual);
	*ex = ibv_qp_to_qp_ex(s->qp);
	ibv_wr_start(*ex);
	(*ex)->wr_id = 1;
	(*ex)->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	return mlx5dv_qp_ex_from_ibv_qp_ex(*ex);
}

static void filled(struct side *s, struct ibv_qp_ex *ex, enum ibv_wc_status status)
{
	must(ibv_wr_complete(ex));
	expect(s->scq, 1, status);
}

/*
 * Bytes [off, off + len) of what the key names, as they should be, by a READ and by a WRITE from
 * there
 */
static void through(struct side *s, struct mlx5dv_mkey *key, uint64_t off, uint32_t len, const uint8_t *want)
{
	struct ibv_sge sg = { .addr = off, .length = len, .lkey = key->lkey };
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 5, &sg, 1, s, HALF);

	memset(s->buf + HALF, 0xaa, 8192);
	read_from(s, key->rkey, off, len, IBV_WC_SUCCESS);
	assert_memory_equal(s->buf + HALF, want, len);
	memset(s->buf + HALF, 0xaa, 8192);
	post_done(s, &wr);
	assert_memory_equal(s->buf + HALF, want, len);
	assert_true(all_bytes(s->buf + HALF + len, 100, 0xaa));
}

static void key_of_list(UNUSED void **state)
{
	enum { RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ };
	struct mlx5dv_mkey *key = list_key(MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT);
	struct mlx5dv_qp_ex *dv;
	struct ibv_qp_ex *ex;
	struct ibv_sge l[3];
	uint8_t want[4000];
	struct side s;

	if (!key && errno == EOPNOTSUPP) {
		print_message("# skipped: this device makes no indirect keys\n");
		skip();
	}
	assert_non_null(key);
	/* Nothing lies in it before it is filled */
	dv = open_umr(&s, &ex);
	ibv_wr_abort(ex);
	read_from(&s, key->rkey, 0, 1, IBV_WC_REM_ACCESS_ERR);
	close_side(&s);
	dv = open_umr(&s, &ex);
	fill(s.buf, SIZE, 3);
	l[0] = sge(&s, 100, 1024); /* a length that is a repeated block's mark where a key stands */
	l[1] = sge(&s, 7000, 1);
	l[2] = sge(&s, 3000, 2000);
	memcpy(want, s.buf + 100, 1024);
	want[1024] = s.buf[7000];
	memcpy(want + 1025, s.buf + 3000, 2000);
	mlx5dv_wr_mr_list(dv, key, RIGHTS, 3, l);
	filled(&s, ex, IBV_WC_SUCCESS);
	through(&s, key, 0, 3025, want);
	through(&s, key, 1020, 10, want + 1020);
	write_to(&s, key->rkey, 0, 1, IBV_WC_REM_ACCESS_ERR);
	close_side(&s);
	/* Filled anew, then as good as never made */
	dv = open_umr(&s, &ex);
	fill(s.buf, SIZE, 4);
	l[0] = sge(&s, 0, 64);
	mlx5dv_wr_mr_list(dv, key, RIGHTS, 1, l);
	filled(&s, ex, IBV_WC_SUCCESS);
	through(&s, key, 1, 63, s.buf + 1);
	ibv_wr_start(ex);
	ibv_wr_local_inv(ex, key->rkey);
	filled(&s, ex, IBV_WC_SUCCESS);
	read_from(&s, key->rkey, 0, 1, IBV_WC_REM_ACCESS_ERR);
	close_side(&s);
	/* Beyond its length; and a bad key in its list, which only an access finds */
	for (int what = 0; what < 2; what++) {
		dv = open_umr(&s, &ex);
		l[0] = sge(&s, 0, 64);
		if (what)
			l[0].lkey = s.mr->rkey;
		mlx5dv_wr_mr_list(dv, key, RIGHTS, 1, l);
		filled(&s, ex, IBV_WC_SUCCESS);
		read_from(&s, key->rkey, what ? 0 : 64, 1, IBV_WC_REM_ACCESS_ERR);
		close_side(&s);
	}
	must(mlx5dv_destroy_mkey(key));
}

static void key_of_strides(UNUSED void **state)
{
	struct mlx5dv_mkey *key = list_key(MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT);
	struct mlx5dv_mr_interleaved d[2];
	struct mlx5dv_qp_ex *dv;
	struct ibv_qp_ex *ex;
	uint8_t want[7 * 41];
	struct side s;

	if (!key && errno == EOPNOTSUPP) {
		print_message("# skipped: this device makes no indirect keys\n");
		skip();
	}
	assert_non_null(key);
	dv = open_umr(&s, &ex);
	fill(s.buf, SIZE, 3);
	d[0] = (struct mlx5dv_mr_interleaved){ .addr = (uintptr_t)s.buf, .bytes_count = 10, .bytes_skip = 90, .lkey = s.mr->lkey };
	d[1] = (struct mlx5dv_mr_interleaved){ .addr = (uintptr_t)s.buf + 5000, .bytes_count = 31, .bytes_skip = 0, .lkey = s.mr->lkey };
	for (int i = 0; i < 7; i++) {
		memcpy(want + 41 * i, s.buf + 100 * i, 10);
		memcpy(want + 41 * i + 10, s.buf + 5000 + 31 * i, 31);
	}
	mlx5dv_wr_mr_interleaved(dv, key, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, 7, 2, d);
	filled(&s, ex, IBV_WC_SUCCESS);
	through(&s, key, 0, sizeof(want), want);
	for (unsigned i = 0; i < 200; i++) {
		uint64_t off = rnd() % sizeof(want);

		through(&s, key, off, 1 + rnd() % (sizeof(want) - off), want + off);
	}
	read_from(&s, key->rkey, sizeof(want) - 1, 2, IBV_WC_REM_ACCESS_ERR);
	close_side(&s);
	must(mlx5dv_destroy_mkey(key));
}

/* What no UMR could fill here cannot be made */
static void keys_refused(UNUSED void **state)
{
	assert_null(list_key(MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO));
}

/* A context that is closed with everything still there leaves nothing taken */
static void abandoned(UNUSED void **state)
{
	static uint8_t buf[8192];

	for (int i = 0; i < 3; i++) {
		struct ibv_srq_init_attr si = { .attr = { .max_wr = 8, .max_sge = 1 } };
		struct ibv_qp_init_attr qi = { .cap = usual.cap, .qp_type = IBV_QPT_RC };
		struct ibv_mw_bind b = { .wr_id = 1, .send_flags = IBV_SEND_SIGNALED };
		struct ibv_alloc_dm_attr a = { .length = dm_max() };
		struct ibv_context *c = ibv_open_device(list[0]);
		struct ibv_qp_attr attr;
		union ibv_gid group;
		struct ibv_mw *mw;
		struct ibv_dm *dm;
		struct ibv_pd *p;
		struct ibv_qp *qp, *ud;
		struct how how = usual;

		assert_non_null(c);
		p = ibv_alloc_pd(c);
		b.bind_info.mr = ibv_reg_mr(p, buf, sizeof(buf), ALL_ACCESS | IBV_ACCESS_MW_BIND);
		b.bind_info.addr = (uintptr_t)buf;
		b.bind_info.length = 4096;
		b.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
		assert_non_null(b.bind_info.mr);
		qi.send_cq = qi.recv_cq = ibv_create_cq(c, 10, NULL, NULL, 0);
		qi.srq = ibv_create_srq(p, &si);
		qp = ibv_create_qp(p, &qi);
		assert_non_null(qp);
		bring_up(qp, qp->qp_num, &usual);
		mw = ibv_alloc_mw(p, IBV_MW_TYPE_1);
		assert_non_null(mw);
		must(ibv_bind_mw(qp, mw, &b));
		expect_op(qi.send_cq, 1, IBV_WC_BIND_MW);
		dm = ibv_alloc_dm(c, &a);
		assert_non_null(dm);
		assert_non_null(ibv_reg_dm_mr(p, dm, 0, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED));
		attr = attr_for(IBV_QPS_RTR, 0, &usual);
		assert_non_null(ibv_create_ah(p, &attr.ah_attr));
		qi.qp_type = how.type = IBV_QPT_UD;
		ud = ibv_create_qp(p, &qi);
		assert_non_null(ud);
		bring_up(ud, 0, &how);
		memset(&group, 0, sizeof(group));
		group.raw[0] = 0xff;
		group.raw[1] = 0x12;
		must(ibv_attach_mcast(ud, &group, 0xc000));
		must(ibv_close_device(c));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(type_1), TEST(rights), TEST(bad_binds), TEST(objects), TEST(type_2), TEST(type_2_bounds),
		TEST(type_2_order), TEST(send_with_invalidate), TEST(bad_invalidate), TEST(extended), TEST(unreliable),
		TEST(dm_copies), TEST(dm_transfers), TEST(dm_objects), TEST(dm_limits), TEST(dm_of_child), TEST(key_of_list),
		TEST(key_of_strides), TEST(keys_refused), TEST(abandoned),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
