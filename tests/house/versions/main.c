/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * main.c: one process with three libraries that have inlay inside: two of one version, the second
 * checked, and one of another. Prints a line for each thing that was as it should be.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "library.h"

#define LIBRARIES 3
#define WRITES 500u

static const struct library *libraries[LIBRARIES];
static void *selves[LIBRARIES];
static int failed;

static void check(int ok, const char *what)
{
	printf("%s %s\n", ok ? "good" : "BAD", what);
	failed |= !ok;
}

static void *writer(void *at)
{
	size_t i = (size_t)((void **)at - selves);

	return libraries[i]->write(selves[i], WRITES) ? NULL : at;
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	pthread_t threads[LIBRARIES];
	int i, j, which, ok;
	const char *why;
	void *bad;

	if (!pd || argc != 1 + LIBRARIES)
		return fprintf(stderr, "no device, or not %d libraries\n", LIBRARIES), 2;
	for (i = 0; i < LIBRARIES; i++) {
		void *object = dlopen(argv[1 + i], RTLD_NOW | RTLD_GLOBAL);

		libraries[i] = object ? (const struct library *)dlsym(object, "library") : NULL;
		if (!libraries[i])
			return fprintf(stderr, "%s\n", dlerror()), 2;
		selves[i] = libraries[i]->open(pd);
		if (!selves[i])
			return 2;
	}
	check(libraries[0]->version == libraries[1]->version && libraries[0]->checked != libraries[1]->checked &&
	      libraries[0]->version != libraries[2]->version && libraries[0]->mask != libraries[2]->mask,
	      "three libraries: unchecked, checked, and another version with other structs");

	for (i = 0; i < LIBRARIES; i++)
		pthread_create(&threads[i], NULL, writer, &selves[i]);
	for (i = 0, ok = 1; i < LIBRARIES; i++) {
		pthread_join(threads[i], &bad);
		ok &= !bad;
	}
	check(ok, "each writes from a thread of its own, all at once");
	for (j = 0, ok = 1; j < 50; j++) {
		for (i = 0; i < LIBRARIES; i++)
			ok &= libraries[i]->write(selves[i], 1);
		/* Unchecked C and checked C++ on the same queues */
		ok &= libraries[0]->write(selves[1], 1) && libraries[1]->write(selves[0], 1);
	}
	check(ok, "they take turns in one thread, those of one version on each other's queues");

	for (which = 0; which < OBJECTS; which++) {
		static const char *const names[] = {"register", "CQ", "map", "registry"};
		char line[128];

		for (i = 0, ok = 1; i < LIBRARIES; i++)
			for (j = 0; j < LIBRARIES; j++) {
				int err, same = libraries[i]->version == libraries[j]->version;

				why = NULL;
				err = libraries[i]->attach(selves[i], which, libraries[j]->object(selves[j], which), &why);
				/* A QP rings the register that it was made for, so that another's is refused in any case */
				if (which == OBJECT_UAR && same)
					ok &= i == j || err == -EINVAL;
				else
					ok &= same ? !err : err == -EPROTO && why && *why;
			}
		snprintf(line, sizeof(line), "a %s of another version is refused, one of the same version is not", names[which]);
		check(ok, line);
	}
	for (i = 0, ok = 1; i < LIBRARIES; i++)
		ok &= libraries[i]->close(selves[i]);
	check(ok && !ibv_dealloc_pd(pd) && !ibv_close_device(ctx), "all is closed");
	ibv_free_device_list(list);
	return failed;
}
