/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oracle_mw.c: memory windows bound and invalidated on RC and UC QPs, byte for byte as libmlx5's, and the fence that libmlx5 then puts into
 * the WQE behind by itself: see oracle.h. The device is stepped.
 */
#include "common.h"
#include "oracle_send.h"

#define WINDOW_OPS (1 << BIND1 | 1 << BIND2 | 1 << INV)

/* ---- tests ---- */

/* A QP with room for windows in each of its WQEs, and a ring of 32 */
static void window_open(struct trio *t, uint64_t ops)
{
	struct ibv_qp_cap cap;

	memset(&cap, 0, sizeof(cap));
	cap.max_send_wr = 2;
	cap.max_send_sge = 4;
	cap.max_inline_data = 700;
	trio_open(t, &cap, ops, INLAY_UAR_SERIAL);
	assert_int_equal(t->bbs, 32);
}

/* Every set of rights, none and other lengths, at every slot of the ring, both ways to libmlx5, what follows with a fence and without */
static void windows(void **state)
{
	static const uint64_t lengths[] = {0, 1, 4096, UINT64_C(0x12345678), UINT64_C(0x7fffffff), UINT64_C(1) << 31};
	static const uint32_t rights[] = {IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC,
					  IBV_ACCESS_ZERO_BASED};
	uint32_t op, slot, set, k, api, n = 0;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	window_open(&T, K->full);
	for (op = BIND1; op <= INV; op++)
		for (slot = 0; slot < T.bbs; slot++)
			for (set = 0; set < (op == BIND2 ? 32u : op == BIND1 ? 16u : 1u); set++)
				for (k = 0; k < (op == INV ? 4u : ARRAY(lengths)); k++)
					for (api = 0; api < (op == BIND1 ? 1u : 2u); api++, n++) {
						uint32_t i;

						req_init(&r, op, n % FLAG_SETS);
						r.bind.mw_access_flags = 0;
						for (i = 0; i < 5; i++)
							r.bind.mw_access_flags |= set >> i & 1 ? rights[i] : 0;
						if (op != INV)
							r.bind.length = lengths[k];
						go_to(&T, slot);
						run(&T, api, PLAIN, false, &r, 1);
						/* And what comes behind it */
						req_init(&r, n & 8 ? SEND : WRITE_IMM, n / 16 % FLAG_SETS);
						if (n & 128)
							req_inline(&r, 30);
						else
							req_pointer(&r, 30);
						run(&T, n & 256 ? (unsigned)WR : (unsigned)POST_SEND, n % WAYS, false, &r, 1);
						/* The fence is for one */
						assert_int_equal(T.fence, 0);
					}
	trio_close(&T);
	counted("windows");
}

/* Every bit of keys, address and length, most of them of windows that are real */
static void bits(void **state)
{
	struct ibv_mw *mw[2];
	uint32_t op, k;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	mw[0] = ibv_alloc_mw(dev.pd, IBV_MW_TYPE_1);
	mw[1] = ibv_alloc_mw(dev.pd, IBV_MW_TYPE_2);
	assert_non_null(mw[0]);
	assert_non_null(mw[1]);
	window_open(&T, 0);
	for (op = BIND1; op <= INV; op++)
		for (k = 0; k < 64 + 32 + 32 + 32 + 8; k++) {
			req_init(&r, op, SIG);
			if (op != INV && k % 8)
				r.mw = *mw[op - BIND1];
			r.bind.length = 1 + rnd_below(0x7fffffff);
			if (k < 64)
				r.bind.addr = UINT64_C(1) << k;
			else if (k < 64 + 32)
				r.bind.length = UINT64_C(1) << (k - 64);
			else if (k < 64 + 64)
				r.mw.rkey = r.imm = 1u << (k - 96);
			else if (k < 64 + 96)
				r.mw.rkey = r.imm = ~(1u << (k - 128));
			r.rkey = op == BIND1 ? ibv_inc_rkey(r.mw.rkey)
					       : (r.mw.rkey & ~0xffu) | (k < 160 ? rnd_below(256) : 1u << (k - 160));
			complete_all(&T);
			run(&T, POST_SEND, PLAIN, false, &r, 1);
		}
	trio_close(&T);
	must(ibv_dealloc_mw(mw[0]));
	must(ibv_dealloc_mw(mw[1]));
	counted("bits");
}

/* More than 2^31 bytes: refused by both, and nothing written. inlay leaves the key that was asked for unmade, as libmlx5 does */
static void too_long(void **state)
{
	static const uint64_t lengths[] = {(UINT64_C(1) << 31) + 1, UINT64_C(1) << 32, ~UINT64_C(0)};
	struct inlay_sq before;
	uint32_t op, k;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	window_open(&T, K->full);
	before = T.sq;
	memset(T.ring, 0xa5, T.bbs * 64);
	for (op = BIND1; op <= BIND2; op++)
		for (k = 0; k < ARRAY(lengths); k++) {
			req_init(&r, op, SIG);
			r.bind.length = lengths[k];
			assert_int_equal(post_lib(&T.a, POST_SEND, &r, 1, 0), EOPNOTSUPP);
			if (op == BIND2)
				assert_int_equal(post_lib(&T.b, WR, &r, 1, 0), EOPNOTSUPP);
			assert_int_equal(in_plain(&T.sq, &r), -ENOTSUP);
			assert_true(all_bytes(T.ring, T.bbs * 64, 0xa5));
			assert_memory_equal(&T.sq, &before, sizeof(before));
		}
	trio_close(&T);
}

/* A full ring: libmlx5 counts WQEs, inlay the WQEBBs that a window takes */
static void full_ring(void **state)
{
	struct req r;
	uint32_t op, k, bbs;

	(void)state;
	need_softdev("the oracle");
	for (op = BIND1; op <= INV; op++) {
		window_open(&T, K->full);
		req_init(&r, op, 0);
		bbs = (req_ds(&r) + 3) / 4;
		for (k = 0; !in_plain(&T.sq, &r); k++)
			;
		assert_int_equal(k, T.bbs / bbs);
		assert_int_equal(in_plain(&T.sq, &r), -EAGAIN);
		assert_int_equal(inlay_sq_room(&T.sq), T.bbs % bbs);
		trio_close(&T);
	}
}

/* Can the comparison fail? Each byte of a window's WQE, spoiled after both have written it */
static void self_check(void **state)
{
	FILE *was = report_to, *null = fopen("/dev/null", "w");
	uint32_t i, begin, caught = 0;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	assert_non_null(null);
	window_open(&T, K->full);
	go_to(&T, 30);
	req_init(&r, BIND2, SIG);
	r.bind.length = 4096;
	r.bind.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
	begin = T.pos;
	fill_free(&T);
	post_batch(&T, POST_SEND, PLAIN, false, &r, 1);
	assert_int_equal(check_batch(&T, &r, 1, begin), 0);
	for (i = 0; i < 12 * 16; i++) {
		uint32_t at = (30 * 64 + i) & (T.bbs * 64 - 1);
		bool known = T.a.ring[at] == T.b.ring[at];
		int wrong;

		report_to = null;
		T.ring[at] ^= 1;
		wrong = check_batch(&T, &r, 1, begin);
		T.ring[at] ^= 1;
		report_to = was;
		assert_int_equal(wrong, known);
		caught += known;
	}
	/* What libmlx5 leaves alone of the memory key's context: all but the key, rights, address and length */
	assert_int_equal(caught, 12 * 16 - (64 - (1 + 1 + 4 + 8 + 8)));
	fclose(null);
	/* The fence that nobody asked for is compared too */
	req_init(&r, SEND, 0);
	req_pointer(&r, 8);
	begin = T.pos;
	fill_free(&T);
	assert_int_equal(T.fence, INLAY_FENCE_INITIATOR_SMALL);
	T.fence = 0;
	post_batch(&T, POST_SEND, PLAIN, false, &r, 1);
	report_to = fopen("/dev/null", "w");
	assert_non_null(report_to);
	assert_int_equal(check_batch(&T, &r, 1, begin), 1);
	fclose(report_to);
	report_to = was;
	trio_close(&T);
	cases = requests = compared = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(self_check),
		cmocka_unit_test(windows),
		cmocka_unit_test(bits),
		cmocka_unit_test(too_long),
		cmocka_unit_test(full_ring),
		cmocka_unit_test(index_wraps),
		cmocka_unit_test(random_runs),
	};
	struct kind rc = rc_kind, uc = uc_kind;
	int bad;

	/* Windows among all that there is beside */
	rc.ops |= WINDOW_OPS;
	uc.ops |= WINDOW_OPS;
	rc.lean = rc.full;
	uc.lean = uc.full;
	rc.max_inline = rc.max_inline_full;
	uc.max_inline = uc.max_inline_full;
	about(&rc);
	bad = cmocka_run_group_tests_name("oracle: windows, RC", tests, open_group, close_group);
	about(&uc);
	return bad | cmocka_run_group_tests_name("oracle: windows, UC", tests, open_group, close_group);
}
