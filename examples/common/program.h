/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * program.h: what the examples share as programs: arguments, the device, memory, time, and how they
 * end. Exit status: 0 good, 1 something failed, 2 wrong arguments; then one line on stderr says
 * what.
 */
#ifndef COMMON_PROGRAM_H
#define COMMON_PROGRAM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

/* The reason of the latest refusal: for functions of inlay that take one. */
static const char *why __attribute__((unused));

/* ---- The end ---- */

static inline __attribute__((noreturn, format(printf, 2, 0))) void program_end(int status, const char *format,
									       va_list args)
{
	fflush(stdout);
	fprintf(stderr, "%s: ", program_invocation_short_name);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	exit(status);
}

static inline __attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	program_end(1, format, args);
}

/* The same for wrong arguments. */
static inline __attribute__((noreturn, format(printf, 1, 2))) void wrong(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	program_end(2, format, args);
}

/* Goes on if err is 0. err: a negative errno. */
static inline void need(int err, const char *what)
{
	if (err)
		die("%s: %s", what, why ? why : strerror(-err));
}

/* Goes on if ok. */
static inline void must(int ok, const char *what)
{
	if (!ok)
		die("%s failed%s%s", what, why ? ": " : "", why ? why : "");
}

/* ---- Memory and time ---- */

/* Zeroed memory of its own pages. */
static inline void *memory(size_t bytes)
{
	void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

	if (!p)
		die("no memory for %zu bytes", bytes);
	memset(p, 0, (bytes + 4095) / 4096 * 4096);
	return p;
}

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline int order_of_times(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The smallest of n sorted times that p per cent of them do not exceed. */
static inline uint64_t percentile(const uint64_t *ns, size_t n, double p)
{
	size_t k = (size_t)(p / 100 * (double)n + 0.999999);

	return ns[k ? k - 1 : 0];
}

/* ---- Arguments ---- */

/* An option: a flag if value is NULL. One of string, number and call says where its value goes. */
struct option_of {
	const char *name, *value, *help;
	const char **string;
	uint32_t *number, min, max;     /* a flag sets *number to max */
	void (*call)(const char *text);
};

/* A number from min to max; k and M after it stand for 2^10 and 2^20. */
static inline uint32_t number(const char *name, const char *text, uint32_t min, uint32_t max)
{
	char *rest;
	unsigned long long n;

	errno = 0;
	n = strtoull(text, &rest, 10);
	if (*rest == 'k' || *rest == 'M') {
		n = n >> 32 ? n : n << (*rest == 'M' ? 20 : 10);
		rest++;
	}
	if (*text < '0' || *text > '9' || *rest || errno || n < min || n > max)
		wrong("--%s is a number from %u to %u, not '%s'", name, min, max, text);
	return (uint32_t)n;
}

static inline void usage(const char *about, const char *operands, const struct option_of *o)
{
	printf("usage: %s [OPTION]...%s%s\n\n%s\n\n", program_invocation_short_name, *operands ? " " : "", operands,
	       about);
	for (; o->name; o++) {
		int n = printf("  --%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");

		printf("%*s%s\n", n < 20 ? 20 - n : 1, "", o->help);
	}
	printf("  --help            this text\n");
	exit(0);
}

/*
 * Takes the options from argv, in any order. Returns how many operands are left, in argv[0] and on.
 *
 * operands  for --help; "" if the program takes none
 * options   ended by one without a name; NULL: only --help
 */
static inline int arguments(int argc, char **argv, const char *about, const char *operands,
			    const struct option_of *options)
{
	static const struct option_of none = {.name = NULL};
	struct option longs[32] = {{"help", no_argument, NULL, 0}};
	const struct option_of *o;
	int k;

	options = options ? options : &none;
	for (k = 1, o = options; o->name; k++, o++)
		longs[k] = (struct option){o->name, o->value ? required_argument : no_argument, NULL, k};
	opterr = 0;
	while ((k = getopt_long_only(argc, argv, "", longs, NULL)) >= 0) {
		if (!k)
			usage(about, operands, options);
		if (k == '?')
			wrong("no such option, or without its value: %s (try --help)", argv[optind - 1]);
		o = &options[k - 1];
		if (o->call)
			o->call(optarg);
		else if (o->string)
			*o->string = optarg;
		else
			*o->number = optarg ? number(o->name, optarg, o->min, o->max) : o->max;
	}
	if (optind < argc && !*operands)
		wrong("the program takes no arguments (try --help)");
	memmove(argv, argv + optind, (size_t)(argc - optind) * sizeof(*argv));
	return argc - optind;
}

/* ---- The device ---- */

/*
 * The mlx5 device of this name in a list; NULL: the first one. Ends the program if there is none.
 */
static inline struct ibv_device *find_device(struct ibv_device **list, const char *name)
{
	for (; list && *list; list++)
		if (mlx5dv_is_supported(*list) && (!name || !strcmp(name, ibv_get_device_name(*list))))
			return *list;
	if (name)
		die("no mlx5 device named %s (ibv_devices lists what there is)", name);
	die("no mlx5 device (tests/softdev/run starts a program on the software one)");
}

/* Before other processes are started, so that it is said once. */
static inline void need_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	find_device(list, name);
	ibv_free_device_list(list);
}

static inline struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL), *device = find_device(list, name);
	struct ibv_context *ctx = ibv_open_device(device);

	if (!ctx)
		die("%s: cannot open: %s", ibv_get_device_name(device), strerror(errno));
	ibv_free_device_list(list);
	return ctx;
}

static inline struct ibv_pd *open_pd(const char *name)
{
	struct ibv_pd *pd = ibv_alloc_pd(open_device(name));

	if (!pd)
		die("no protection domain: %s", strerror(errno));
	return pd;
}

/* Whether it is the software device, whose times are no network's. */
static inline int on_softdev(void)
{
	return dlsym(RTLD_DEFAULT, "softdev_manual") != NULL;
}

#endif
