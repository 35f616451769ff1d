/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rig.h: what the tests of memory domains share: copies as structs, a done that counts, random
 * pieces and a byte model.
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
	assert_true(w->calls == calls && w->rc == rc);
}

/* A copy of n pieces to m pieces; w NULL: without done */
UNUSED static struct inlay_memdomain_copy copy_of(const struct iovec *src, uint32_t n, const struct iovec *dst,
						  uint32_t m, struct word *w)
{
	struct inlay_memdomain_copy copy = {.src_iov = src, .dst_iov = dst, .src_iovcnt = n, .dst_iovcnt = m,
					    .done = w ? word : NULL, .arg = w};

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
	int n = 0;

	for (struct inlay_memdomain *d = inlay_memdomain_first(reg, NULL); d; d = inlay_memdomain_next(d, NULL))
		n++;
	return n;
}

/* Pieces of `total` bytes in all, with gaps, from byte `from` of an area on, `max` at most; returns how many */
UNUSED static uint32_t cut(struct iovec *iov, uint8_t *area, size_t from, uint32_t total, uint32_t max)
{
	uint32_t n = 1 + rnd_below(max), i;

	for (i = 0; i < n; i++) {
		uint32_t len = i == n - 1 ? total : rnd_below((rnd() & 1 ? total : 2 * total / (n - i)) + 1);

		if (len > total)
			len = total;
		if (rnd_below(8) == 0 && i != n - 1)
			len = 0;
		from += rnd_below(8);
		iov[i].iov_base = area + from;
		iov[i].iov_len = len;
		from += len;
		total -= len;
	}
	return n;
}

/* dst in `to`'s area takes what src has in `from`'s, byte by byte, in models of the two */
UNUSED static void model_copy(const struct iovec *dst, const uint8_t *to_area, uint8_t *to, const struct iovec *src,
			      uint32_t n, const uint8_t *from_area, const uint8_t *from)
{
	size_t at = 0, i;

	for (uint32_t k = 0; k < n; k++)
		for (i = 0; i < src[k].iov_len; i++) {
			while (at == dst->iov_len) {
				dst++;
				at = 0;
			}
			to[(const uint8_t *)dst->iov_base - to_area + at++] =
				from[(const uint8_t *)src[k].iov_base - from_area + i];
		}
}

#endif
