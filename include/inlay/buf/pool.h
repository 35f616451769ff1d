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
 * Slices are cut from all ranges of the mmap, in the order of addresses, none across two. A started pool counts as one buffer of its mmap,
 * and each buffer that is out as one more, so that keys and slices stay good.
 *
 * Threads: one owner at a time, who gives back its buffers too.
 * Sources: DOCA's documentation of doca_buf_pool.
 */
#ifndef INLAY_BUF_POOL_H
#define INLAY_BUF_POOL_H

#include <inlay/base.h>
#include <inlay/mmap/ledger.h>
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

INLAY_STATIC_ASSERT(sizeof(struct inlay_pool) == sizeof(struct inlay_store) + INLAY_CACHE_LINE, "whole lines");

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
INLAY_COLD int inlay_pool_create(void *memory, size_t size, uint32_t num, size_t element_size, struct inlay_mmap *mmap,
				 struct inlay_pool **pool)
{
	struct inlay_pool *p = (struct inlay_pool *)memory;

	if (!element_size || !mmap || inlay_store_create(memory, size, sizeof(*p), num, 0))
		return -EINVAL;
	p->mmap = mmap;
	p->element_size = element_size;
	p->alignment = 1;
	*pool = p;
	return 0;
}

/* The keys shall be those of this device, by the order of adding to the mmap; 0 before. Returns 0, or -EBADFD when the pool is started. */
INLAY_COLD int inlay_pool_set_dev(struct inlay_pool *pool, uint32_t dev)
{
	INLAY_CHECK(pool, "a pool is not NULL");
	if (!pool->store.floor)
		return -EBADFD;
	pool->store.dev = dev;
	return 0;
}

/* Returns 0, or -EBADFD when the pool is started. 0 before it is set. */
INLAY_COLD int inlay_pool_set_user_data(struct inlay_pool *pool, uint64_t data)
{
	INLAY_CHECK(pool, "a pool is not NULL");
	if (!pool->store.floor)
		return -EBADFD;
	pool->store.user_data = data;
	return 0;
}

INLAY_COLD uint64_t inlay_pool_get_user_data(const struct inlay_pool *pool)
{
	INLAY_CHECK(pool, "a pool is not NULL");
	return pool->store.user_data;
}

/* Every slice shall start at a multiple of alignment, a power of two; 1 before. Returns 0, -EBADFD when the pool is started, or -EINVAL. */
INLAY_COLD int inlay_pool_set_element_alignment(struct inlay_pool *pool, size_t alignment)
{
	INLAY_CHECK(pool, "a pool is not NULL");
	if (!pool->store.floor)
		return -EBADFD;
	if (!alignment || alignment & (alignment - 1))
		return -EINVAL;
	pool->alignment = alignment;
	return 0;
}

INLAY_COLD size_t inlay_pool_get_element_alignment(const struct inlay_pool *pool)
{
	INLAY_CHECK(pool, "a pool is not NULL");
	return (size_t)pool->alignment;
}

INLAY_COLD size_t inlay_pool_get_element_size(const struct inlay_pool *pool)
{
	INLAY_CHECK(pool, "a pool is not NULL");
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
	INLAY_CHECK(pool, "a pool is not NULL");
	struct inlay_store *s = &pool->store;
	uint64_t stride = (pool->element_size + pool->alignment - 1) & ~(pool->alignment - 1), at, n;
	uint8_t *page = inlay_store_page(pool + 1);
	struct inlay_origin from;
	const struct inlay_range *r;
	struct inlay_keys keys;
	uint32_t i, k;

	if (s->floor != 1 || !inlay_mmap_started(pool->mmap))
		return -EBADFD;
	if (stride < pool->element_size)
		return -ENODEV;
	from.mmap = pool->mmap;
	for (i = k = 0; k < s->num; i++) {
		r = inlay_lookup_at(&pool->mmap->lookup, i);
		if (!r)
			return -ENODEV;
		if (inlay_store_keys(s->dev, pool->mmap, r, &keys))
			return -ENOENT;
		from.rkey = keys.rkey;
		from.range = r->id;
		for (n = inlay_pool_slices(pool, r, stride, &at); n && k < s->num; n--, at += stride, k++)
			inlay_buf_fill(inlay_block_buf(page + (size_t)(k / INLAY_BLOCK_BUFS) * INLAY_BLOCK, k % INLAY_BLOCK_BUFS), &from,
				       (uint64_t)keys.lkey << 32, (void *)(uintptr_t)at, pool->element_size, (void *)(uintptr_t)at, 0);
	}
	/* The mmap may have been stopped meanwhile, which closed the account. Another one there is not. */
	s->front.state = inlay_store_new_state(s, pool->mmap);
	inlay_mmap_hold(pool->mmap);
	return inlay_store_start(s);
}

/* Buffers, and those of them that are not out. The latter looks at all: a line for each 62. */
INLAY_FN uint32_t inlay_pool_num_elements(const struct inlay_pool *pool)
{
	INLAY_CHECK(pool, "a pool is not NULL");
	return pool->store.num;
}

INLAY_FN uint32_t inlay_pool_num_free(const struct inlay_pool *pool)
{
	INLAY_CHECK(pool, "a pool is not NULL");
	return (uint32_t)inlay_ledger_free(&pool->store.ledger);
}

/* Returns 0; -EBADFD when it is not started; -EBUSY while a buffer is out. */
INLAY_COLD int inlay_pool_stop(struct inlay_pool *pool)
{
	INLAY_CHECK(pool, "a pool is not NULL");
	if (pool->store.floor)
		return -EBADFD;
	if (inlay_pool_num_free(pool) != pool->store.num)
		return -EBUSY;
	/* What is at hand goes back, so that an alloc looks at nothing else. */
	if (pool->store.front.bits) {
		struct inlay_block *b = inlay_buf_block(pool->store.front.page);

		if (!b->given)
			inlay_store_link(&pool->store, b);
		b->given = 1;
		pool->store.front.bits = 0;
	}
	inlay_mmap_drop(pool->mmap);
	return inlay_store_stop(&pool->store);
}

/* Stops it if need be; its memory is the caller's again. Returns 0, or -EBUSY while a buffer is out: then it is as it was. */
INLAY_COLD int inlay_pool_destroy(struct inlay_pool *pool)
{
	INLAY_CHECK(pool, "a pool is not NULL");
	int err = pool->store.floor ? 0 : inlay_pool_stop(pool);

	if (err)
		return err;
	inlay_ledger_close(&pool->store.ledger);
	pool->store.floor = 2;
	return 0;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path
 */

/* Another block with free descriptors. Returns 0, or the error of inlay_pool_alloc. */
INLAY_COLD int inlay_pool_refill(struct inlay_pool *pool)
{
	if (pool->store.floor)
		return -EBADFD;
	return inlay_store_refill(&pool->store) ? 0 : -ENODATA;
}

/*
 * A buffer over its slice, with an empty window at the start and one reference. inlay_buf_dec_refcount gives it back.
 *
 * Returns 0; -ENODATA when none is free (DOCA_ERROR_EMPTY; an inventory says -ENOMEM); -EBADFD when the pool is not started.
 */
INLAY_ALWAYS int inlay_pool_alloc(struct inlay_pool *pool, struct inlay_buf **buf)
{
	INLAY_CHECK(pool, "a pool is not NULL");
	struct inlay_front *f = &pool->store.front;
	uint8_t *states, state;
	struct inlay_buf *b;
	uint64_t line;

	if (INLAY_UNLIKELY(!f->bits)) {
		int err = inlay_pool_refill(pool);

		if (err)
			return err;
	}
	b = inlay_front_take(f, &line);
	states = f->states;
	state = (uint8_t)f->state;
	b->data = b->head;
	b->data_len = 0;
	__atomic_store_n(&states[line], state, __ATOMIC_RELAXED);
	*buf = b;
	return 0;
}

/* inlay_buf_dec_refcount of a buffer of this pool, which is not faster; INLAY_CHECKED=1 notices one of another. */
INLAY_ALWAYS int inlay_pool_dec_refcount(struct inlay_pool *pool, struct inlay_buf *buf, uint16_t *prev)
{
	INLAY_CHECK(pool, "a pool is not NULL");
	(void)pool;
	INLAY_CHECK(inlay_buf_store(buf) == &pool->store, "a buffer goes back to where it is from");
	return inlay_buf_dec_refcount(buf, prev);
}

/* n of them: all, or none with the error of inlay_pool_alloc. */
INLAY_ALWAYS int inlay_pool_alloc_many(struct inlay_pool *pool, uint32_t n, struct inlay_buf **bufs)
{
	INLAY_CHECK(pool, "a pool is not NULL");
	uint32_t i;
	int err;

	if (INLAY_UNLIKELY(pool->store.floor))
		return -EBADFD;
	for (i = 0; i < n; i++) {
		err = inlay_pool_alloc(pool, &bufs[i]);
		if (INLAY_UNLIKELY(err)) {
			inlay_buf_put(bufs, i);
			return err;
		}
	}
	return 0;
}

#endif
