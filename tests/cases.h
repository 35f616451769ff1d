/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cases.h: cmocka, and tests that enter themselves: TEST(name) { ... }; run_all runs all, in their
 * order. And patterns of bytes, and a clock. Include it first.
 */
#ifndef TESTS_CASES_H
#define TESTS_CASES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus /* of which cmocka's header knows nothing */
extern "C" {
#endif
#include <cmocka.h>
#ifdef __cplusplus
}
#endif
#include <err.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#define ARRAY(a) (sizeof(a) / sizeof((a)[0]))
#define UNUSED __attribute__((unused))

/* A call that must give 0 */
#define must(call) assert_int_equal(call, 0)

/* What a call gives, which must not be NULL */
#define made(call)                                                                                                               \
	({                                                                                                                       \
		__typeof__(call) made_ = (call);                                                                                 \
		assert_non_null(made_);                                                                                          \
		made_;                                                                                                           \
	})

static struct CMUnitTest tests_entered[64];
static size_t tests_entered_cnt;

UNUSED static void test_enter(const char *name, CMUnitTestFunction run, CMFixtureFunction up, CMFixtureFunction down)
{
	struct CMUnitTest *t = &tests_entered[tests_entered_cnt++];

	if (tests_entered_cnt > ARRAY(tests_entered))
		errx(1, "cases.h: more tests than tests_entered has room for");
	t->name = name;
	t->test_func = run;
	t->setup_func = up;
	t->teardown_func = down;
}

#define TEST_WITH(name, up, down)                                                                                                \
	static void name(void **state);                                                                                          \
	__attribute__((constructor(1000 + __COUNTER__))) static void name##_enter(void) { test_enter(#name, name, up, down); }   \
	static void name(UNUSED void **state)
#define TEST(name) TEST_WITH(name, NULL, NULL)

/* With set-up and clean-up for all of them. Returns how many have failed */
#define run_all(up, down) _cmocka_run_group_tests(program_invocation_short_name, tests_entered, tests_entered_cnt, up, down)

/* Bytes that depend on the seed and on the place, so that neither a shift nor an old message passes for this one */
UNUSED static void fill(void *at, size_t len, uint32_t seed)
{
	uint8_t *p = (uint8_t *)at;
	uint32_t x = seed * 2654435761u + 1;

	for (size_t i = 0; i < len; i++) {
		x = x * 1103515245 + 12345;
		p[i] = (uint8_t)(x >> 16);
	}
}

UNUSED static bool all_bytes(const void *at, size_t len, uint8_t byte)
{
	const uint8_t *p = (const uint8_t *)at;

	return !len || (*p == byte && !memcmp(p, p + 1, len - 1));
}

UNUSED static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
