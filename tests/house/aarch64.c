/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * aarch64.c: as much of cmocka as the test programs without a device need, behind cmocka's own header, for an instruction set whose
 * cmocka is not installed. It writes TAP.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What programs with queues in plain memory name and never call */
#define ABSENT(function)   \
	void function(void); \
	void function(void)  \
	{                    \
		abort();     \
	}
ABSENT(ibv_dealloc_pd)
ABSENT(ibv_dereg_mr)
ABSENT(ibv_destroy_comp_channel)
ABSENT(ibv_destroy_cq)
ABSENT(ibv_destroy_qp)
ABSENT(ibv_modify_qp)
ABSENT(ibv_reg_dmabuf_mr)
ABSENT(ibv_reg_mr_iova2)

static jmp_buf back;

void print_message(const char *const format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	fflush(stdout);
}

void print_error(const char *const format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("# ", stdout);
	vprintf(format, args);
	va_end(args);
	fflush(stdout);
}

void _fail(const char *const file, const int line)
{
	print_error("%s:%d: failed\n", file, line);
	longjmp(back, 1);
}

void _skip(const char *const file, const int line)
{
	(void)file;
	(void)line;
	longjmp(back, 2);
}

void _assert_true(const LargestIntegralType result, const char *const expression, const char *const file, const int line)
{
	if (result)
		return;
	print_error("%s\n", expression);
	_fail(file, line);
}

static void compare(int good, LargestIntegralType a, LargestIntegralType b, const char *file, int line)
{
	if (good)
		return;
	print_error("%#llx, %#llx\n", (unsigned long long)a, (unsigned long long)b);
	_fail(file, line);
}

void _assert_int_equal(const LargestIntegralType a, const LargestIntegralType b, const char *const file, const int line)
{
	compare(a == b, a, b, file, line);
}

void _assert_int_not_equal(const LargestIntegralType a, const LargestIntegralType b, const char *const file, const int line)
{
	compare(a != b, a, b, file, line);
}

void _assert_in_range(const LargestIntegralType value, const LargestIntegralType minimum, const LargestIntegralType maximum,
		      const char *const file, const int line)
{
	compare(value >= minimum, value, minimum, file, line);
	compare(value <= maximum, value, maximum, file, line);
}

void _assert_string_equal(const char *const a, const char *const b, const char *const file, const int line)
{
	if (!strcmp(a, b))
		return;
	print_error("\"%s\", \"%s\"\n", a, b);
	_fail(file, line);
}

void _assert_memory_equal(const void *const a, const void *const b, const size_t size, const char *const file, const int line)
{
	const unsigned char *p = a, *q = b;
	size_t i;

	for (i = 0; i < size && p[i] == q[i]; i++)
		;
	if (i == size)
		return;
	print_error("byte %zu of %zu: 0x%02x, 0x%02x\n", i, size, p[i], q[i]);
	_fail(file, line);
}

/* Set-up and tear-down of single tests are left out: see that no program asks for them. */
int _cmocka_run_group_tests(const char *group, const struct CMUnitTest *const tests, const size_t number, CMFixtureFunction setup,
			    CMFixtureFunction teardown)
{
	static volatile int failed;
	static volatile size_t i;
	void *state = NULL;

	printf("1..%zu\n", number);
	if (setup && setup(&state)) {
		printf("not ok 1 - %s: group set-up\n", group);
		return 1;
	}
	for (i = 0, failed = 0; i < number; i++) {
		int how = tests[i].setup_func || tests[i].teardown_func ? 1 : setjmp(back);

		if (!how)
			tests[i].test_func(&state);
		failed += how == 1;
		printf("%s %zu - %s%s\n", how == 1 ? "not ok" : "ok", i + 1, tests[i].name, how == 2 ? " # SKIP" : "");
		fflush(stdout);
	}
	if (teardown && teardown(&state))
		failed++;
	return failed;
}
