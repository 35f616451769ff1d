/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rig.h: what the tests of memory domains share: copies as structs, a done that counts.
 */
#ifndef TESTS_MEMDOMAIN_RIG_H
#define TESTS_MEMDOMAIN_RIG_H

#include "common.h"
#include <sys/uio.h>
#include <inlay/memdomain.h>

/* What done was told */
struct word {
	int calls, rc;
};

UNUSED static void word(void *arg, int rc)
{
	struct word *w = (struct word *)arg;

	w->calls++;
	w->rc = rc;
}

UNUSED static void said(const struct word *w, int calls, int rc)
{
	assert_int_equal(w->calls, calls);
	assert_int_equal(w->rc, rc);
}

/* A copy of n pieces to m pieces; w NULL: without done */
UNUSED static struct inlay_memdomain_copy copy_of(const struct iovec *src, uint32_t n, const struct iovec *dst,
						  uint32_t m, struct word *w)
{
	struct inlay_memdomain_copy copy;

	memset(&copy, 0, sizeof(copy));
	copy.src_iov = src;
	copy.src_iovcnt = n;
	copy.dst_iov = dst;
	copy.dst_iovcnt = m;
	copy.done = w ? word : NULL;
	copy.arg = w;
	return copy;
}

/* Whether nothing but the system domain is listed, and nobody holds that */
UNUSED static int unused(const struct inlay_memdomain_registry *reg)
{
	return reg->last == &reg->system && !reg->system.holders;
}

/* Operations in progress */
UNUSED static uint32_t pending(const struct inlay_memdomain_rdma *r)
{
	return r->begun - r->ended;
}

/* Domains in a registry */
UNUSED static int domains(struct inlay_memdomain_registry *reg)
{
	struct inlay_memdomain *d;
	int n = 0;

	for (d = inlay_memdomain_first(reg, NULL); d; d = inlay_memdomain_next(d, NULL))
		n++;
	return n;
}

#endif
