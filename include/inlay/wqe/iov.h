/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/wqe/iov.h: segments that gather a list of struct iovec.
 *
 *   struct inlay_iov from = {iov, 3, mr->lkey, NULL};       one key for all entries
 *   struct inlay_iov from = {iov, 3, 0, lkeys};             one for each
 *
 *   at = inlay_seg_iov(at, &from);
 *
 * Threads: pure functions of their arguments. Sources: wqe.h.
 */
#ifndef INLAY_WQE_IOV_H
#define INLAY_WQE_IOV_H

#include <sys/uio.h>
#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
#include <inlay/wqe/segment.h>

/* Local memory to gather from or scatter to. */
struct inlay_iov {
	const struct iovec *iov;
	uint32_t num;
	uint32_t lkey;         /* of all entries, */
	const uint32_t *lkeys; /* unless this is not NULL: then one for each. Host order */
};

/*
 * Appends a data pointer segment for each entry that is not empty: at most from->num. An entry has
 * at most 2^31 - 1 bytes.
 */
INLAY_ALWAYS struct inlay_cursor inlay_seg_iov(struct inlay_cursor c, const struct inlay_iov *from)
{
	uint32_t i;

	for (i = 0; i < from->num; i++) {
		const struct iovec *v = &from->iov[i];

		INLAY_CHECK(!(v->iov_len >> 31), "a data segment holds at most 2^31 - 1 bytes");
		if (INLAY_LIKELY(v->iov_len))
			c = inlay_seg_data(c, (uintptr_t)v->iov_base, (uint32_t)v->iov_len,
					   from->lkeys ? from->lkeys[i] : from->lkey);
	}
	return c;
}

/* Copies all entries into one inline segment. total is the sum of their lengths. */
INLAY_ALWAYS struct inlay_cursor inlay_seg_inline_iov(struct inlay_cursor c, const struct inlay_iov *from,
						      uint32_t total)
{
	uint8_t *p;
	uint32_t i;

	if (!total)
		return c;
	c = inlay_seg_inline_open(c, total, 0, &p);
	for (i = 0; i < from->num; i++)
		c = inlay_seg_inline_append(c, from->iov[i].iov_base, (uint32_t)from->iov[i].iov_len);
	return c;
}

#endif
