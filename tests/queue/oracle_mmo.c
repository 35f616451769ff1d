/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oracle_mmo.c: copies inside the device, byte for byte as libmlx5's mlx5dv_wr_memcpy, alone and among all else that an RC QP sends: see
 * oracle.h. The 64 bytes that libmlx5 names besides the data are its own; all else is compared. The device is stepped.
 */
#include "common.h"
#include "oracle_send.h"

/* Every slot of the ring, every set of flags, lengths at the edges */
static void copies(void **state)
{
	static const uint32_t lengths[] = {1, 2, 63, 64, 4096, 0x7fffffff, UINT32_C(1) << 31};
	const struct ibv_qp_cap cap = {.max_send_wr = 32, .max_send_sge = 2, .max_inline_data = 64};
	uint32_t slot, k, flags;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	trio_open(&T, &cap, K->lean, INLAY_UAR_SERIAL);
	for (slot = 0; slot < T.bbs; slot++)
		for (flags = 0; flags < FLAG_SETS; flags++)
			for (k = 0; k < ARRAY(lengths); k++) {
				req_init(&r, COPY, flags);
				req_pointer(&r, lengths[k]);
				req_pointer(&r, lengths[k]);
				go_to(&T, slot);
				run(&T, WR, PLAIN, false, &r, 1);
			}
	trio_close(&T);
	counted("copies");
}

/* Lengths that neither takes: nothing is written */
static void refused(void **state)
{
	static const uint32_t lengths[] = {0, (UINT32_C(1) << 31) + 1, UINT32_MAX};
	const struct ibv_qp_cap cap = {.max_send_wr = 4, .max_send_sge = 2};
	struct inlay_sq before;
	struct req r;
	uint32_t k;

	(void)state;
	need_softdev("the oracle");
	trio_open(&T, &cap, K->lean, INLAY_UAR_SERIAL);
	before = T.sq;
	memset(T.ring, 0xa5, T.bbs * 64);
	for (k = 0; k <= ARRAY(lengths); k++) {
		req_init(&r, COPY, SIG);
		req_pointer(&r, k < ARRAY(lengths) ? lengths[k] : 8);
		req_pointer(&r, k < ARRAY(lengths) ? lengths[k] : 9);
		if (k < ARRAY(lengths))
			assert_int_equal(post_lib(&T.a, WR, &r, 1, 0), EINVAL);
		assert_int_equal(in_plain(&T.sq, &r), -EINVAL);
		assert_true(all_bytes(T.ring, T.bbs * 64, 0xa5));
		assert_memory_equal(&T.sq, &before, sizeof(before));
	}
	trio_close(&T);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies),
		cmocka_unit_test(refused),
		cmocka_unit_test(index_wraps),
		cmocka_unit_test(random_runs),
	};
	struct kind rc = rc_kind;

	rc.ops |= 1 << COPY;
	rc.full = rc.lean;
	rc.max_inline = rc.max_inline_full;
	rc.dv = MLX5DV_QP_EX_WITH_MEMCPY;
	about(&rc);
	return cmocka_run_group_tests_name("oracle: copies", tests, open_group, close_group);
}
