/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * library.h: what a library that has inlay inside shows to the program: functions over an object of its own.
 */
#ifndef TESTS_HOUSE_VERSIONS_LIBRARY_H
#define TESTS_HOUSE_VERSIONS_LIBRARY_H

#include <stdint.h>
#include <infiniband/verbs.h>

struct library {
	unsigned version, checked, mask;        /* of inlay; mask: where a send queue has it */
	void *(*open)(struct ibv_pd *pd);       /* NULL: failed, and stderr says why */
	int (*close)(void *self);
	/* Writes n values, each to the memory of its own peer QP, and looks whether they have come */
	int (*write)(void *self, unsigned n);
	/* Its objects, and another's put to use in the place of its own; as inlay answers */
	void *(*object)(void *self, int which);
	int (*attach)(void *self, int which, void *object, const char **why);
};

enum { OBJECT_UAR, OBJECT_CQ, OBJECT_MAP, OBJECT_REGISTRY, OBJECTS };

#endif
