/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench.h: the harness. A row is one operation, done by several ways that take turns.
 *
 *   static double by_inlay(void *arg, uint64_t n);       does n operations, returns the seconds that count
 *   static const struct way ways[] = {{"inlay", by_inlay, NULL, ""}, {"malloc", by_malloc, NULL, ""}};
 *   bench_row("pool", "get and release", ways, 2, 64);
 *
 * A program prints one line a way, fields divided by tabs: group, row, way, value, unit, first and third quartile,
 * what the way includes. The value is the median of interleaved rounds. Under callgrind it counts instead: functions
 * named count_*_ are collected, and each way's instructions are dumped under "group|row|way|n".
 *
 * BENCH_ONLY="way/way": these alone. BENCH_ROWS=text: only rows whose "group|row" has it. BENCH_ROUNDS: how many (15).
 * BENCH_N=operations: so many of each and no clock, for a profiler or hyperfine.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <valgrind/callgrind.h>

struct way {
	const char *name;
	double (*run)(void *arg, uint64_t n);
	void *arg;
	const char *includes;
};

/* A function of its own for the profiler: neither inlined nor changed, nor merged with another of the same code */
#ifdef __clang__
#define COUNTED __attribute__((noinline))
#else
#define COUNTED __attribute__((noipa))
#endif
#define ALWAYS static inline __attribute__((always_inline))

static __attribute__((noreturn, noinline, cold, unused)) void die(const char *what)
{
	fprintf(stderr, "%s\n", what);
	exit(1);
}

#define NEED(cond, what) ((cond) ? (void)0 : die(what " failed"))

static inline double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* xorshift64*: the same sequence everywhere */
static inline uint64_t rnd_of(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 2685821657736338717u;
}

static uint64_t seed = 88172645463325252u;

static inline uint64_t rnd(void)
{
	return rnd_of(&seed);
}

static inline int bench_wants(const char *way)
{
	const char *only = getenv("BENCH_ONLY"), *at = only;
	size_t len = strlen(way);

	while (at && (at = strstr(at, way)) && ((at > only && at[-1] != '/') || (at[len] && at[len] != '/')))
		at++;
	return !only || at;
}

static inline int bench_wants_row(const char *group, const char *row)
{
	const char *rows = getenv("BENCH_ROWS");
	char name[128];

	snprintf(name, sizeof(name), "%s|%s", group, row);
	return !rows || strstr(name, rows);
}

static inline int bench_counts(void)
{
	return RUNNING_ON_VALGRIND != 0;
}

static inline int bench_less(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* lap: operations come in multiples of it. A time is of a millisecond or more, after as much that is not timed:
 * the way before has left the caches as it likes. */
static inline void bench_row(const char *group, const char *row, const struct way *ways, unsigned num, uint64_t lap)
{
	unsigned rounds = getenv("BENCH_ROUNDS") ? (unsigned)atoi(getenv("BENCH_ROUNDS")) : 15, i, r;
	static double t[16][256];
	double began;
	uint64_t n[16] = {0};
	char name[256];

	if (!bench_wants_row(group, row))
		return;
	NEED(num <= 16 && rounds && rounds <= 256, "a row of that size");
	if (getenv("BENCH_N")) {
		for (i = 0; i < num; i++)
			if (bench_wants(ways[i].name))
				ways[i].run(ways[i].arg, strtoull(getenv("BENCH_N"), NULL, 10));
		return;
	}
	for (i = 0; i < num; i++) {
		if (!bench_wants(ways[i].name))
			continue;
		n[i] = bench_counts() ? (256 + lap - 1) / lap * lap : lap;
		ways[i].run(ways[i].arg, n[i]);
		if (!bench_counts()) {
			/* Nor much longer where a device works between what is timed */
			began = now();
			while (ways[i].run(ways[i].arg, n[i]) < 1e-3 && now() - began < 1e-2 && n[i] < 1u << 24) {
				n[i] *= 2;
				began = now();
			}
			continue;
		}
		CALLGRIND_DUMP_STATS;
		ways[i].run(ways[i].arg, n[i]);
		snprintf(name, sizeof(name), "%s|%s|%s|%llu", group, row, ways[i].name, (unsigned long long)n[i]);
		CALLGRIND_DUMP_STATS_AT(name);
	}
	for (r = 0; !bench_counts() && r < rounds; r++)
		for (i = 0; i < num; i++)
			if (n[i]) {
				ways[i].run(ways[i].arg, n[i]);
				t[i][r] = ways[i].run(ways[i].arg, n[i]) * 1e9 / (double)n[i];
			}
	for (i = 0; !bench_counts() && i < num; i++) {
		if (!n[i])
			continue;
		qsort(t[i], rounds, sizeof(double), bench_less);
		printf("%s\t%s\t%s\t%.3f\tns\t%.3f\t%.3f\t%s\n", group, row, ways[i].name, t[i][rounds / 2],
		       t[i][rounds / 4], t[i][rounds * 3 / 4], ways[i].includes);
	}
	fflush(stdout);
}

#endif
