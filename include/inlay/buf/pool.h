/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf/pool.h: a pool: buffers of one size, each with a slice of an mmap of its own for good, so that taking one looks nothing up.
 *
 *   inlay_pool_create(memory, inlay_pool_size(1024), 1024, 2048, &mmap, &pool);      1024 slices of 2048 bytes
 *   inlay_pool_set_element_alignment(pool, 64);
 *   inlay_pool_start(pool);
 *   ...
 *   if (inlay_pool_alloc(pool, &buf) == 0) ...                                       an empty window at the slice's start
 *   inlay_buf_dec_refcount(buf, NULL);                                               back again
 *
 *                                      fresh     started   stopped
 *   start                              0         -EBADFD   0           -EBADFD when the mmap is not started
 *   alloc                              -EBADFD   0         -EBADFD
 *   stop                               -EBADFD   0         -EBADFD     -EBUSY while a buffer is out
 *   destroy                            0         0         0           likewise
 *   set_user_data, set_element_...     0         -EBADFD   0
 *
 * Slices are cut from all ranges of the mmap, in the order of addresses, none across two. A started pool counts as one buffer of its mmap, and
 * each buffer that is out as one more, so that keys and slices stay good.
 *
 * Threads: one owner at a time, who gives back its buffers too.
 * Sources: DOCA's documentation of doca_buf_pool.
 */
#ifndef INLAY_BUF_POOL_H
#define INLAY_BUF_POOL_H

#include <inlay/base.h>
#include <inlay/mmap/lookup.h>
#include <inlay/mmap/map.h>
#include <inlay/buf/buf.h>

struct inlay_pool {
	struct inlay_store store;
	struct inlay_mmap *mmap;
	uint64_t element_size;
	uint64_t alignment;
	uint64_t reserved[5];
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_pool) == 2 * INLAY_CACHE_LINE, "descriptors begin on a line");

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up
 */

/* Bytes of memory that a pool of num buffers needs; 0 when num is 0 or above 2^30. */
INLAY_COLD size_t inlay_pool_size(uint32_t num)
{
	size_t bytes = inlay_store_bytes(num, num);

	return bytes ? sizeof(struct inlay_pool) + bytes : 0;
}

/*
 * Makes a pool in the caller's memory, not started.
 *
 * memory        on a cache line; of the pool until it is destroyed
 * size          its bytes, at least inlay_pool_size(num)
 * element_size  bytes of a slice
 * mmap          started before the pool is
 *
 * Returns 0, or -EINVAL for an argument out of its range.
 */
INLAY_COLD int inlay_pool_create(void *memory, size_t size, uint32_t num, size_t element_size, struct inlay_mmap *mmap, struct inlay_pool **pool)
{
	struct inlay_pool *p = (struct inlay_pool *)memory;

	if (inlay_store_check(memory, size, inlay_pool_size(num)) || !element_size || !mmap)
		return -EINVAL;
	__builtin_memset(p, 0, sizeof(*p));
	p->store.floor = INLAY_STORE_STOPPED;
	p->mmap = mmap;
	p->element_size = element_size;
	p->alignment = 1;
	inlay_store_add(&p->store, (struct inlay_buf *)(void *)(p + 1), num, 0);
	*pool = p;
	return 0;
}

/* The keys shall be those of this device, by the order of adding to the mmap; 0 before. Returns 0, or -EBADFD when the pool is started. */
INLAY_COLD int inlay_pool_set_dev(struct inlay_pool *pool, uint32_t dev)
{
	if (!pool->store.floor)
		return -EBADFD;
	pool->store.dev = dev;
	return 0;
}

/* Returns 0, or -EBADFD when the pool is started. 0 before it is set. */
INLAY_COLD int inlay_pool_set_user_data(struct inlay_pool *pool, uint64_t data)
{
	if (!pool->store.floor)
		return -EBADFD;
	pool->store.user_data = data;
	return 0;
}

INLAY_COLD uint64_t inlay_pool_get_user_data(const struct inlay_pool *pool)
{
	return pool->store.user_data;
}

/* Every slice shall start at a multiple of alignment, a power of two; 1 before. Returns 0, -EBADFD when the pool is started, or -EINVAL. */
INLAY_COLD int inlay_pool_set_element_alignment(struct inlay_pool *pool, size_t alignment)
{
	if (!pool->store.floor)
		return -EBADFD;
	if (!alignment || alignment & (alignment - 1))
		return -EINVAL;
	pool->alignment = alignment;
	return 0;
}

INLAY_COLD size_t inlay_pool_get_element_alignment(const struct inlay_pool *pool)
{
	return (size_t)pool->alignment;
}

INLAY_COLD size_t inlay_pool_get_element_size(const struct inlay_pool *pool)
{
	return (size_t)pool->element_size;
}

/* How many slices a range holds, and where the first one starts. */
INLAY_COLD uint64_t inlay_pool_slices(const struct inlay_pool *pool, const struct inlay_range *r, uint64_t stride, uint64_t *first)
{
	uint64_t pad = (0 - r->start) & (pool->alignment - 1);

	*first = r->start + pad;
	if (pad >= r->len || r->len - pad < pool->element_size)
		return 0;
	return (r->len - pad - pool->element_size) / stride + 1;
}

/*
 * Cuts the slices.
 *
 * Returns 0; -EBADFD when it is started, or the mmap is not; -ENODEV when the mmap's ranges hold fewer slices than the pool has buffers
 * (DOCA_ERROR_INITIALIZATION); -ENOENT when the mmap has no such device as the pool is for. On failure it may be tried again.
 */
INLAY_COLD int inlay_pool_start(struct inlay_pool *pool)
{
	struct inlay_store *s = &pool->store;
	uint64_t stride = (pool->element_size + pool->alignment - 1) & ~(pool->alignment - 1), at, n;
	struct inlay_buf *buf = (struct inlay_buf *)(void *)(pool + 1), *end = buf + s->num;
	const struct inlay_range *r;
	struct inlay_keys keys;
	uint32_t i;

	if (!s->floor || !inlay_mmap_started(pool->mmap))
		return -EBADFD;
	if (stride < pool->element_size)
		return -ENODEV;
	for (i = 0; buf != end; i++) {
		r = inlay_lookup_at(&pool->mmap->lookup, i);
		if (!r)
			return -ENODEV;
		if (inlay_store_keys(s->dev, pool->mmap, r, &keys))
			return -ENOENT;
		for (n = inlay_pool_slices(pool, r, stride, &at); n && buf != end; n--, at += stride, buf++) {
			inlay_buf_fill(buf, 0, pool->mmap, r->id, &keys, (void *)(uintptr_t)at, pool->element_size, (void *)(uintptr_t)at, 0);
			inlay_buf_set_state(buf, 0);
		}
	}
	inlay_mmap_hold(pool->mmap);
	return inlay_store_start(s);
}

/* Returns 0; -EBADFD when it is not started; -EBUSY while a buffer is out. */
INLAY_COLD int inlay_pool_stop(struct inlay_pool *pool)
{
	if (pool->store.floor)
		return -EBADFD;
	if (pool->store.free != pool->store.num)
		return -EBUSY;
	inlay_mmap_drop(pool->mmap);
	return inlay_store_stop(&pool->store);
}

/* Stops it if need be; its memory is the caller's again. Returns 0, or -EBUSY while a buffer is out: then it is as it was. */
INLAY_COLD int inlay_pool_destroy(struct inlay_pool *pool)
{
	return pool->store.floor ? 0 : inlay_pool_stop(pool);
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path
 */

/* Buffers, and those of them that are not out. */
INLAY_FN uint32_t inlay_pool_num_elements(const struct inlay_pool *pool)
{
	return pool->store.num;
}

INLAY_FN uint32_t inlay_pool_num_free(const struct inlay_pool *pool)
{
	return pool->store.free;
}

INLAY_ALWAYS struct inlay_buf *inlay_pool_take(struct inlay_store *s, int32_t index)
{
	struct inlay_buf *buf = inlay_store_buf(s, index);

	INLAY_CHECK(!(inlay_buf_state(buf) & 0xffff) && !buf->next, "nobody writes to a buffer that was given back");
	buf->data = buf->head;
	buf->data_len = 0;
	inlay_buf_set_state(buf, INLAY_BUF_STATE(1, 0));
	return buf;
}

/*
 * A buffer over its slice, with an empty window at the start and one reference. inlay_buf_dec_refcount gives it back.
 *
 * Returns 0; -ENODATA when none is free (DOCA_ERROR_EMPTY; an inventory says -ENOMEM); -EBADFD when the pool is not started.
 */
INLAY_ALWAYS int inlay_pool_alloc(struct inlay_pool *pool, struct inlay_buf **buf)
{
	struct inlay_store *s = &pool->store;

	if (INLAY_UNLIKELY(s->free <= s->floor))
		return s->floor ? -EBADFD : -ENODATA;
	*buf = inlay_pool_take(s, s->stack[--s->free]);
	inlay_mmap_hold(pool->mmap);
	return 0;
}

/* inlay_buf_dec_refcount of a buffer of this pool; a little faster, where the next alloc follows at once. */
INLAY_ALWAYS int inlay_pool_dec_refcount(struct inlay_pool *pool, struct inlay_buf *buf, uint16_t *prev)
{
	return inlay_store_dec_refcount(&pool->store, pool->mmap, buf, prev);
}

/* n of them: all, or none with the error of inlay_pool_alloc. */
INLAY_ALWAYS int inlay_pool_alloc_many(struct inlay_pool *pool, uint32_t n, struct inlay_buf **bufs)
{
	struct inlay_store *s = &pool->store;
	const int32_t *stack;
	uint32_t i;

	if (INLAY_UNLIKELY(s->floor) || INLAY_UNLIKELY(s->free < n))
		return s->floor ? -EBADFD : -ENODATA;
	s->free -= n;
	stack = s->stack + s->free;
	for (i = n; i--;)
		*bufs++ = inlay_pool_take(s, stack[i]);
	inlay_mmap_hold_many(pool->mmap, n);
	return 0;
}

#endif
