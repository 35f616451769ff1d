/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * clock.c: completion times in nanoseconds: on the device's page against libmlx5, on pages of every kind, and on one that is rewritten
 * meanwhile, as Linux's mlx5_update_clock_info_page does.
 */
#include "rig.h"
#include <signal.h>
#include <sys/mman.h>
#include <rdma/mlx5-abi.h>

#define SAME_AT(mine, theirs) (offsetof(struct inlay_clock_page, mine) == offsetof(struct mlx5_ib_clock_info, theirs))
INLAY_STATIC_ASSERT(sizeof(struct inlay_clock_page) == sizeof(struct mlx5_ib_clock_info) && SAME_AT(sign, sign) && SAME_AT(nsec, nsec) &&
	       SAME_AT(cycles, cycles) && SAME_AT(frac, frac) && SAME_AT(mult, mult) && SAME_AT(shift, shift) && SAME_AT(mask, mask),
	       "the kernel's page");

/* The device's page says what libmlx5 finds there */
static void mapped(void **state)
{
	struct mlx5dv_clock_info info;
	struct inlay_clock clock;
	const char *why = NULL;
	int i;

	(void)state;
	must(inlay_clock_map(&clock, dev.ctx, &why));
	for (i = 0; i < 100000; i++) {
		uint64_t cycles, before, ns;

		/* The page may change in between, on a device that has a kernel behind it */
		must(mlx5dv_get_clock_info(dev.ctx, &info));
		cycles = i & 1 ? rnd() : info.last_cycles + (rnd() & 0xffffffffff) - (1ull << 39);
		before = mlx5dv_ts_to_ns(&info, cycles);
		ns = inlay_clock_ns(&clock, cycles);
		must(mlx5dv_get_clock_info(dev.ctx, &info));
		if (before == mlx5dv_ts_to_ns(&info, cycles))
			assert_true(ns == before);
	}
	must(inlay_clock_unmap(&clock));
}

/* The formula, in 128 bits: cycles before and after the page's, across the counter's end */
static void formula(void **state)
{
	struct inlay_clock_page page;
	struct inlay_clock clock;
	int i;

	(void)state;
	memset(&page, 0, sizeof(page));
	for (i = 0; i < 200000; i++) {
		uint32_t bits = 41 + rnd_below(24);
		uint64_t away = rnd() & 0xffffffffff, want;
		__uint128_t scaled;

		page.shift = rnd_below(24);
		page.mult = (uint32_t)rnd() >> (9 + rnd_below(16));
		page.nsec = rnd() >> 2;
		page.frac = page.shift ? rnd() & ((1ull << page.shift) - 1) : 0;
		page.mask = bits == 64 ? ~0ull : (1ull << bits) - 1;
		page.cycles = rnd() & page.mask;
		page.sign += 2;
		must(inlay_clock_init(&clock, &page));
		scaled = (__uint128_t)away * page.mult;
		want = page.nsec + (uint64_t)((scaled + page.frac) >> page.shift);
		assert_true(inlay_clock_ns(&clock, (page.cycles + away) & page.mask) == want);
		if (scaled < page.frac || !away)
			continue;
		want = page.nsec - (uint64_t)((scaled - page.frac) >> page.shift);
		assert_true(inlay_clock_ns(&clock, (page.cycles - away) & page.mask) == want);
	}
}

/* A page that stays odd */
static void unfinished(void **state)
{
	struct inlay_clock_page page;
	struct inlay_clock clock;

	(void)state;
	memset(&page, 0, sizeof(page));
	page.mult = 1;
	page.mask = ~0ull;
	page.nsec = 500;
	page.sign = 1;
	assert_int_equal(inlay_clock_init(&clock, &page), -EBUSY);
	page.sign = 2;
	must(inlay_clock_init(&clock, &page));
	assert_true(inlay_clock_ns(&clock, 7) == 507);
	page.sign = 3;
	page.nsec = 900;
	assert_true(inlay_clock_ns(&clock, 7) == 507);
	page.sign = 4;
	assert_true(inlay_clock_ns(&clock, 7) == 907);
	/* The sign wraps */
	page.sign = 0;
	page.nsec = 100;
	assert_true(inlay_clock_ns(&clock, 7) == 107);
}

static struct inlay_clock_page *shared;

/* Update n of the page: all fields follow from n */
static void update(uint32_t n)
{
	uint32_t sign = __atomic_load_n(&shared->sign, __ATOMIC_ACQUIRE);

	__atomic_store_n(&shared->sign, sign | 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&shared->cycles, (uint64_t)n * 3, __ATOMIC_RELEASE);
	__atomic_store_n(&shared->mult, n % 1000 + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&shared->nsec, (uint64_t)n * 1000003, __ATOMIC_RELEASE);
	__atomic_store_n(&shared->frac, (uint64_t)n * 7, __ATOMIC_RELEASE);
	__atomic_store_n(&shared->sign, sign + 2, __ATOMIC_RELEASE);
}

static uint8_t *second;

/* The first load from the second page: an update comes exactly there */
static void touched(int sig)
{
	(void)sig;
	if (mprotect(second, 4096, PROT_READ | PROT_WRITE))
		abort();
	update(2);
}

/*
 * An update between any two loads: the information lies across two pages, and the second cannot be read
 * at first. shift, at 36, is loaded with mult: no update changes it.
 */
static void split(void **state)
{
	static const uint32_t before[] = {8, 16, 24, 32, 40};
	uint8_t *mem = (uint8_t *)mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sigaction act, was;
	size_t i;

	(void)state;
	assert_true(mem != MAP_FAILED);
	second = mem + 4096;
	memset(&act, 0, sizeof(act));
	act.sa_handler = touched;
	must(sigaction(SIGSEGV, &act, &was));
	for (i = 0; i < ARRAY(before); i++) {
		struct inlay_clock clock;

		shared = (struct inlay_clock_page *)(void *)(second - before[i]);
		memset(shared, 0, sizeof(*shared));
		shared->mask = ~0ull;
		update(1);
		must(mprotect(second, 4096, PROT_NONE));
		must(inlay_clock_init(&clock, shared));
		assert_int_equal(clock.sign, 4);
		assert_true(clock.info.nsec == 2000006 && clock.info.last_cycles == 6);
		assert_true(clock.info.frac == 14 && clock.info.mult == 3);
	}
	must(sigaction(SIGSEGV, &was, NULL));
	must(munmap(mem, 8192));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(mapped),
		cmocka_unit_test(formula),
		cmocka_unit_test(unfinished),
		cmocka_unit_test(split),
	};

	return cmocka_run_group_tests_name("clock", tests, dev_open, dev_close);
}
