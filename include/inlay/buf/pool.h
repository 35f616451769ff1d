/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf/pool.h: a pool: buffers of one size. Each keeps its own slice of a map, so an alloc
 * looks nothing up.
 *
 *   inlay_pool_create(memory, inlay_pool_size(1024), 1024, 2048, &map, &pool);    1024 of 2 KiB
 *   pool->alignment = 64;
 *   inlay_pool_start(pool);
 *   ...
 *   if (inlay_pool_alloc(pool, &buf) == 0)
 *           ...
 *   inlay_buf_dec_refcount(buf, NULL);                                            back again
 *   sge = inlay_pool_sge(pool, i);                                            an array, by number
 *
 * Invariants:
 *   - Slices are cut from all ranges of the map, in the order of addresses, none across two.
 *   - A started pool keeps its map from being stopped. A pool does not move.
 *
 * Threads: one owner at a time, which also gives buffers back. Any thread may call inlay_pool_sge.
 */
#ifndef INLAY_BUF_POOL_H
#define INLAY_BUF_POOL_H /* a trial: names may change */

#include <inlay/base.h>
#include <inlay/mmap/map.h>
#include <inlay/buf/buf.h>
#include <inlay/buf/store.h>

struct inlay_pool {
	struct inlay_cache_ cache_; /* first: inlay_store_create_ */
	/* The caller may read these */
	struct inlay_mmap *mmap;
	size_t element_size;    /* bytes of a buffer */
	uint32_t num;           /* buffers */
	/* and set these while the pool is stopped */
	struct ibv_pd *pd;      /* whose keys buffers get; NULL, as at first: the map's first device */
	size_t alignment;       /* of slices: a power of two, at first 1 */
	uint64_t user_data;     /* in any state */
};

/* ---- Set-up ---- */

/* Bytes of memory for a pool of num buffers; 0 when num is 0 or above 2^30. */
INLAY_COLD size_t inlay_pool_size(uint32_t num)
{
	return inlay_store_size_(sizeof(struct inlay_pool), num);
}

/*
 * Makes a stopped pool of num buffers of element_size bytes. memory begins on a cache line, has
 * inlay_pool_size(num) bytes or more, and is in use until inlay_pool_destroy. Returns 0; -EINVAL for
 * a bad argument; -ENOBUFS when size is too small; -EPROTO for a map of another version of inlay.
 */
INLAY_COLD int inlay_pool_create(void *memory, size_t size, uint32_t num, size_t element_size, struct inlay_mmap *mmap,
				 struct inlay_pool **pool)
{
	struct inlay_pool *p = (struct inlay_pool *)memory;
	int err;

	if (!element_size || !mmap)
		return -EINVAL;
	if (mmap->abi != INLAY_ABI)
		return -EPROTO;
	err = inlay_store_create_(memory, size, sizeof(*p), num);
	if (err)
		return err;
	p->mmap = mmap;
	p->element_size = element_size;
	p->num = num;
	p->alignment = 1;
	*pool = p;
	return 0;
}

/*
 * Cuts the slices. Returns 0; -EBADFD when it is started or destroyed, or the map is not started;
 * -EINVAL for a bad alignment; -ENOSPC when the map's ranges hold fewer slices than the pool has
 * buffers; -ENOENT when the map lacks the pool's device. May be tried again after an error.
 */
INLAY_COLD int inlay_pool_start(struct inlay_pool *pool)
{
	struct inlay_store_ *s;
	const struct inlay_range *r;
	struct inlay_keys keys;
	uint64_t stride, pad, at, n;
	uint32_t i, k;

	INLAY_CHECK(pool, "a pool is not NULL");
	s = pool->cache_.store;
	if (s->state != INLAY_STORE_STOPPED_ || !inlay_mmap_started_(pool->mmap))
		return -EBADFD;
	if (!inlay_is_pow2(pool->alignment))
		return -EINVAL;
	s->pd = pool->pd;
	stride = inlay_round_up(pool->element_size, pool->alignment);
	if (stride < pool->element_size)
		return -ENOSPC;
	for (i = k = 0; k < pool->num; i++) {
		r = inlay_mmap_range_(pool->mmap, i);
		if (!r)
			return -ENOSPC;
		keys.lkey = r->lkey;
		keys.rkey = r->rkey;
		if (s->pd && inlay_mmap_keys(pool->mmap, r->id, s->pd, &keys))
			return -ENOENT;
		pad = (0 - r->start) & (pool->alignment - 1);
		n = pad >= r->len || r->len - pad < pool->element_size ? 0 : (r->len - pad - pool->element_size) / stride + 1;
		for (at = r->start + pad; n && k < pool->num; n--, at += stride, k++)
			inlay_buf_fill_(inlay_piece_buf_(s->pieces, k), pool->mmap, &keys, (void *)(uintptr_t)at,
					pool->element_size, (void *)(uintptr_t)at, 0);
	}
	inlay_store_hold_(s, pool->mmap); /* its only map, so it can */
	inlay_mmap_hold(pool->mmap);
	s->state = INLAY_STORE_STARTED_;
	return 0;
}

INLAY_CALLS_COLD_
/* Reads all descriptors. */
INLAY_FN uint32_t inlay_pool_num_free(const struct inlay_pool *pool)
{
	INLAY_CHECK(pool, "a pool is not NULL");
	return pool->num - inlay_store_count_(pool->cache_.store, NULL);
}

/* Returns 0; -EBADFD when it is not started; -EBUSY while a buffer is in use. */
INLAY_COLD int inlay_pool_stop(struct inlay_pool *pool)
{
	INLAY_CHECK(pool, "a pool is not NULL");
	if (pool->cache_.store->state != INLAY_STORE_STARTED_)
		return -EBADFD;
	if (inlay_pool_num_free(pool) != pool->num)
		return -EBUSY;
	/* With an empty cache, the next alloc takes the slow path, which reads the state. */
	inlay_cache_flush_(&pool->cache_, pool->cache_.num);
	inlay_mmap_drop(pool->mmap);
	return inlay_store_stop_(pool->cache_.store);
}

/* Stops it if needed. Returns 0, or -EBUSY while a buffer is in use. */
INLAY_COLD int inlay_pool_destroy(struct inlay_pool *pool)
{
	if (inlay_pool_stop(pool) == -EBUSY)
		return -EBUSY;
	inlay_store_destroy_(pool->cache_.store);
	return 0;
}

/* ---- Data path ---- */

INLAY_CALLS_COLD_
/*
 * Takes a buffer, with no data yet and one reference. Returns 0; -EAGAIN when none is free; -EBADFD
 * when the pool is not started.
 */
INLAY_ALWAYS int inlay_pool_alloc(struct inlay_pool *pool, struct inlay_buf **buf)
{
	struct inlay_buf *b;

	INLAY_CHECK(pool, "a pool is not NULL");
	if (INLAY_UNLIKELY(!pool->cache_.num)) {
		if (pool->cache_.store->state != INLAY_STORE_STARTED_)
			return -EBADFD;
		if (!inlay_cache_refill_(&pool->cache_))
			return -EAGAIN;
	}
	b = inlay_cache_pop_(&pool->cache_);
	b->data = b->head;
	b->data_len = 0;
	inlay_buf_live_(b, 0);
	*buf = b;
	return 0;
}

/* As above, n of them, or none. They go back by inlay_buf_dec_refcounts. */
INLAY_FN int inlay_pool_alloc_bulk(struct inlay_pool *pool, struct inlay_buf **bufs, uint32_t n)
{
	uint32_t i;
	int err = 0;

	for (i = 0; i < n && !err; i++)
		err = inlay_pool_alloc(pool, &bufs[i]);
	for (i -= err != 0; err && i; i--)
		inlay_buf_dec_refcount(bufs[i - 1], NULL);
	return err;
}

/*
 * Element i of a started pool, in the order of addresses: all of it, allocated or not, as a gather
 * or scatter entry. element_size is at most INLAY_SGE_MAX.
 */
INLAY_ALWAYS struct ibv_sge inlay_pool_sge(const struct inlay_pool *pool, uint32_t i)
{
	const struct inlay_buf *b;
	struct ibv_sge sge;

	INLAY_CHECK(pool && i < pool->num && pool->cache_.store->state == INLAY_STORE_STARTED_,
		    "an element of a started pool");
	b = inlay_piece_buf_(pool->cache_.store->pieces, i);
	sge.addr = (uintptr_t)b->head;
	sge.length = (uint32_t)b->len;
	sge.lkey = b->keys.lkey;
	return sge;
}

#endif
