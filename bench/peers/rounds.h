/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rounds.h: what lookup.c and pool.c share: contenders that take turns, the best time of each, and one of them alone for a profiler.
 *
 *   PROGRAM                          all cases: for each contender a line "case contender ns"
 *   PROGRAM --case CASE              one case
 *   PROGRAM --only CASE NAME N       N operations of one of them, in the function run_NAME: for callgrind
 */
#ifndef ROUNDS_H
#define ROUNDS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct contender {
	const char *name;
	double (*run)(uint64_t ops);     /* does ops operations, returns the seconds that count */
};

#define BENCH_FN static __attribute__((noinline))

static __attribute__((noreturn, unused)) void die(const char *what)
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
static uint64_t seed = 88172645463325252u;

static inline uint64_t rnd(void)
{
	seed ^= seed >> 12;
	seed ^= seed << 25;
	seed ^= seed >> 27;
	return seed * 2685821657736338717u;
}

static const char *only_case, *only_name;
static uint64_t only_ops;

static inline void rounds_args(int argc, char **argv)
{
	if (argc == 1)
		return;
	if (argc == 3 && !strcmp(argv[1], "--case")) {
		only_case = argv[2];
		return;
	}
	if (argc != 5 || strcmp(argv[1], "--only"))
		die("usage: [--case CASE | --only CASE NAME N]");
	only_case = argv[2];
	only_name = argv[3];
	only_ops = strtoull(argv[4], NULL, 10);
}

static inline int wanted(const char *name)
{
	return !only_case || !strcmp(only_case, name);
}

/* Contenders take turns, so that what else the machine does hits all alike; the best of all rounds is what each can do. */
static inline void rounds(const char *name, const struct contender *c, unsigned n, uint64_t ops, unsigned times)
{
	double best[32], t;
	unsigned i, r;

	for (i = 0; only_name && i < n; i++)
		if (!strcmp(c[i].name, only_name)) {
			c[i].run(only_ops);
			exit(0);
		}
	if (only_name)
		die("no such contender");
	for (i = 0; i < n; i++) {
		best[i] = 1e9;
		c[i].run(ops);
	}
	for (r = 0; r < times; r++)
		for (i = 0; i < n; i++) {
			t = c[i].run(ops);
			if (t < best[i])
				best[i] = t;
		}
	for (i = 0; i < n; i++)
		printf("%s %s %.3f\n", name, c[i].name, best[i] * 1e9 / (double)ops);
	fflush(stdout);
	if (only_case)
		exit(0);
}

#endif
