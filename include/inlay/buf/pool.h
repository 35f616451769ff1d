/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf/pool.h: a pool: buffers of one size. Each keeps its own slice of a map, so an alloc
 * looks nothing up.
 *
 *   inlay_pool_create(memory, inlay_pool_size(1024), 1024, 2048, &map, &pool);    1024 of 2 KiB
 *   inlay_pool_set_element_alignment(pool, 64);
 *   inlay_pool_start(pool);
 *   ...
 *   if (inlay_pool_alloc(pool, &buf) == 0)
 *           ...
 *   inlay_buf_dec_refcount(buf, NULL);                                            back again
 *
 * Invariants:
 *   - A pool contains an inventory. For its device, user data, numbers of buffers and releases,
 *     call inlay_inventory_* with &pool->inventory. Other calls of inventories return -EINVAL.
 *   - Slices are cut from all ranges of the map, in the order of addresses, none across two.
 *   - A started pool keeps its map from being stopped.
 *
 * Threads: one owner at a time, which also gives buffers back.
 */
#ifndef INLAY_BUF_POOL_H
#define INLAY_BUF_POOL_H

#include <inlay/base.h>
#include <inlay/mmap/map.h>
#include <inlay/buf/buf.h>
#include <inlay/buf/inventory.h>
#include <inlay/buf/store.h>

struct inlay_pool {
	struct inlay_inventory inventory;
	struct inlay_mmap *mmap;
	size_t element_size;    /* bytes of a buffer */
	size_t alignment;
};

/* ---- Set-up ---- */

/* Bytes of memory for a pool of num buffers; 0 when num is 0 or above 2^30. */
INLAY_COLD size_t inlay_pool_size(uint32_t num)
{
	return inlay_store_size_(sizeof(struct inlay_pool), num);
}

/*
 * Makes a stopped pool of num buffers of element_size bytes. memory begins on a cache line, has
 * inlay_pool_size(num) bytes or more, and is in use until inlay_pool_destroy.
 *
 * Returns 0; -EINVAL for a bad argument; -ENOBUFS when size is too small; -EPROTO for a map of another
 * version of inlay.
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
	p->inventory.store->pool = 1;
	p->mmap = mmap;
	p->element_size = element_size;
	p->alignment = 1;
	*pool = p;
	return 0;
}

INLAY_COLD int inlay_pool_set_(const struct inlay_pool *pool)
{
	INLAY_CHECK(pool, "a pool is not NULL");
	return pool->inventory.store->state == INLAY_STORE_STOPPED_ ? 0 : -EBADFD;
}

/* Aligns slices to a power of two, at first 1. Returns 0; -EBADFD unless stopped; or -EINVAL. */
INLAY_COLD int inlay_pool_set_element_alignment(struct inlay_pool *pool, size_t alignment)
{
	int err = inlay_pool_set_(pool);

	if (!err && !inlay_is_pow2(alignment))
		err = -EINVAL;
	if (!err)
		pool->alignment = alignment;
	return err;
}

/* How many slices a range holds. *first: where the first one starts. */
INLAY_COLD uint64_t inlay_pool_slices_(const struct inlay_pool *pool, const struct inlay_range *r, uint64_t stride,
				       uint64_t *first)
{
	uint64_t pad = (0 - r->start) & (pool->alignment - 1);

	*first = r->start + pad;
	if (pad >= r->len || r->len - pad < pool->element_size)
		return 0;
	return (r->len - pad - pool->element_size) / stride + 1;
}

/*
 * Cuts the slices. Returns 0; -EBADFD when it is started or destroyed, or the map is not started;
 * -ENOSPC when the map's ranges hold fewer slices than the pool has buffers; -ENOENT when the map
 * lacks the pool's device. May be tried again after an error.
 */
INLAY_COLD int inlay_pool_start(struct inlay_pool *pool)
{
	struct inlay_store_ *s;
	const struct inlay_range *r;
	struct inlay_keys keys;
	uint64_t stride, at, n;
	uint32_t i, k;
	uint8_t *page;
	int err = inlay_pool_set_(pool);

	if (err || !inlay_mmap_started(pool->mmap))
		return -EBADFD;
	s = pool->inventory.store;
	page = inlay_store_page_(s + 1);
	stride = inlay_round_up(pool->element_size, pool->alignment);
	if (stride < pool->element_size)
		return -ENOSPC;
	for (i = k = 0; k < s->num; i++) {
		r = inlay_mmap_range_(pool->mmap, i);
		if (!r)
			return -ENOSPC;
		err = inlay_store_keys_(s, pool->mmap, r, &keys);
		if (err)
			return err;
		for (n = inlay_pool_slices_(pool, r, stride, &at); n && k < s->num; n--, at += stride, k++)
			inlay_buf_fill_(inlay_block_buf_(page + (size_t)(k / INLAY_BLOCK_BUFS_) * INLAY_BLOCK_,
							 k % INLAY_BLOCK_BUFS_),
					pool->mmap, &keys, (void *)(uintptr_t)at, pool->element_size,
					(void *)(uintptr_t)at, 0);
	}
	/* The store's only map: a tie is free, so its buffers are plain. */
	inlay_store_tie_to_(s, pool->mmap);
	inlay_mmap_hold(pool->mmap);
	return inlay_store_start_(s);
}

/* Returns 0; -EBADFD when it is not started; -EBUSY while a buffer is in use. */
INLAY_COLD int inlay_pool_stop(struct inlay_pool *pool)
{
	struct inlay_inventory *inv;

	INLAY_CHECK(pool, "a pool is not NULL");
	inv = &pool->inventory;
	if (inv->store->state != INLAY_STORE_STARTED_)
		return -EBADFD;
	if (inlay_store_free_(inv->store) != inv->store->num)
		return -EBUSY;
	/* With none at hand, the next alloc takes the slow path, which reads the state. */
	if (inv->bits) {
		inlay_block_list_(inlay_buf_block_(inv->page));
		inv->bits = 0;
	}
	inlay_mmap_drop(pool->mmap);
	return inlay_store_stop_(inv->store);
}

/* Stops it if needed. Returns 0, or -EBUSY while a buffer is in use. */
INLAY_COLD int inlay_pool_destroy(struct inlay_pool *pool)
{
	if (inlay_pool_stop(pool) == -EBUSY)
		return -EBUSY;
	inlay_store_destroy_(pool->inventory.store);
	return 0;
}

/* ---- Data path ---- */

INLAY_COLD int inlay_pool_refill_(struct inlay_pool *pool)
{
	if (pool->inventory.store->state != INLAY_STORE_STARTED_)
		return -EBADFD;
	return inlay_store_refill_(&pool->inventory) ? 0 : -EAGAIN;
}

/*
 * Takes a buffer, with no data yet and one reference. Returns 0; -EAGAIN when none is free; -EBADFD
 * when the pool is not started.
 */
INLAY_ALWAYS int inlay_pool_alloc(struct inlay_pool *pool, struct inlay_buf **buf)
{
	struct inlay_inventory *inv;
	struct inlay_buf *b;
	uint64_t line;
	int err;

	INLAY_CHECK(pool, "a pool is not NULL");
	inv = &pool->inventory;
	if (INLAY_UNLIKELY(!inv->bits)) {
		err = inlay_pool_refill_(pool);
		if (err)
			return err;
	}
	b = inlay_inventory_take_(inv, &line);
	b->data = b->head;
	b->data_len = 0;
	__atomic_store_n(&inv->states[line], INLAY_BUF_PLAIN_, __ATOMIC_RELEASE);
	*buf = b;
	return 0;
}

#endif
