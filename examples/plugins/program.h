/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * program.h: what worker.c, offload.c and group.c have in common as programs: how they end when something is wrong, memory, a number among
 * the arguments, the device.
 */
#ifndef PLUGINS_PROGRAM_H
#define PLUGINS_PROGRAM_H

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

/* One line on stderr, and the end. */
static __attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...)
{
	va_list args;

	fflush(stdout);
	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static inline void need(int err, const char *what)
{
	if (err)
		die("%s: %s", what, strerror(-err));
}

/* Zeroed memory of its own pages. */
static inline void *memory(size_t bytes)
{
	void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

	if (!p)
		die("no memory for %zu bytes", bytes);
	memset(p, 0, (bytes + 4095) / 4096 * 4096);
	return p;
}

/* An option's argument. */
static inline uint32_t number(const char *name, const char *text, uint32_t min, uint32_t max)
{
	char *rest;
	unsigned long n = strtoul(text, &rest, 10);

	if (*text < '0' || *text > '9' || *rest || n < min || n > max)
		die("--%s wants a number from %u to %u, not '%s'", name, min, max, text);
	return (uint32_t)n;
}

/* A protection domain of the mlx5 device of this name, or of the first one. */
static inline struct ibv_pd *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	struct ibv_pd *pd;

	for (int i = 0; list && list[i] && !ctx; i++)
		if (mlx5dv_is_supported(list[i]) && (!name || !strcmp(name, ibv_get_device_name(list[i]))))
			ctx = ibv_open_device(list[i]);
	if (!ctx)
		die("no mlx5 device%s%s", name ? " named " : "", name ? name : "");
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(ctx);
	if (!pd)
		die("no protection domain: %s", strerror(errno));
	return pd;
}

#endif
