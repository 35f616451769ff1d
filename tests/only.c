/* SPDX-License-Identifier: BSD-3-Clause */
/* only.c: part of each test program. TEST_ONLY names the function, or with * and ? the functions, that it runs. */
#include <stdlib.h>

#ifdef __cplusplus
extern "C"
#endif
void cmocka_set_test_filter(const char *pattern);

__attribute__((constructor)) static void only(void)
{
	const char *pattern = getenv("TEST_ONLY");

	if (pattern)
		cmocka_set_test_filter(pattern);
}
