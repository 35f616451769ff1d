/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oracle_uc.c: the send queue of a UC QP, byte for byte as libmlx5's: see oracle.h. The device is stepped.
 *
 * libmlx5 posts a send with invalidate too, which no UC responder knows; inlay does not have it there.
 */
#include "common.h"
#include "oracle_send.h"

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(inline_single),
		cmocka_unit_test(inline_gather),
		cmocka_unit_test(pointers),
		cmocka_unit_test(constants_and_cursor),
		cmocka_unit_test(doorbells),
		cmocka_unit_test(index_wraps),
		cmocka_unit_test(limits),
		cmocka_unit_test(random_runs),
	};

	about(&uc_kind);
	return cmocka_run_group_tests_name("oracle: UC", tests, open_group, close_group);
}
