/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf/inventory.h: an inventory: descriptors for buffers anywhere in any map. A get takes a
 * descriptor, finds the range of the address and fills in its keys; a release puts it back.
 *
 *   inlay_inventory_create(memory, inlay_inventory_size(4096), 4096, &inv);
 *   inv->shared = 1;                                                for many threads
 *   inlay_inventory_start(inv);
 *
 *   inlay_inventory_attach(&mine, inv);                             each of many; one takes inv
 *   inlay_inventory_get_by_data(&mine, &map, packet, len, &buf);
 *   ...
 *   inlay_inventory_dec_refcount(&mine, buf, NULL);                 by any thread, with its own
 *   inlay_inventory_detach(&mine);                                  before the thread ends
 *
 * Invariants:
 *   - Gets, dup and expand need a started inventory; gets and dup also a map that is started or
 *     imported. Buffers in use can always be given back.
 *   - A buffer in use keeps its map from being stopped, and the inventory from being destroyed. An
 *     inventory may be stopped and started again.
 *   - Gets are fast while they stay in one range of one map. Another of up to eight maps costs a
 *     look under the lock; further ones cost a lookup at each get.
 *   - Destroy an inventory and its maps before their memory is reused. An inventory does not move.
 *   - Shared: gets, dup, releases and detach take the thread's own inventory, all other calls inv.
 *     A get may return -EAGAIN while other threads' caches hold up to 128 free descriptors each.
 *     Waiters for the lock spin, so give busy threads CPUs of their own.
 *
 * Threads: one owner at a time, which also gives buffers back. Shared: each attached inventory has
 * one owner; any thread may call the functions that take inv at any time, except create and
 * destroy; start and stop, one thread at a time.
 * Source: Bonwick and Adams, "Magazines and Vmem" (USENIX 2001).
 */
#ifndef INLAY_BUF_INVENTORY_H
#define INLAY_BUF_INVENTORY_H /* a trial: names may change */

#include <inlay/base.h>
#include <inlay/mmap/map.h>
#include <inlay/buf/buf.h>
#include <inlay/buf/store.h>

struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_inventory {
	struct inlay_cache_ cache_; /* first: inlay_store_create_ */
	/* The range of the last get */
	struct inlay_mmap *mmap_ __attribute__((aligned(INLAY_CACHE_LINE)));
	uint64_t turn_;             /* store->turn at that get; 0: no range is remembered */
	uint64_t start_, len_;
	struct inlay_keys keys_;
	uint32_t flags_;            /* of its buffers: 0 or INLAY_BUF_HELD_ */
	/* Set before the first start; inlay_inventory_attach ignores those of its own */
	uint32_t shared;            /* 1: for many threads, each with inlay_inventory_attach */
	struct ibv_pd *pd;          /* the device whose keys buffers get; NULL: each map's first */
	uint64_t user_data;         /* in any state */
};

INLAY_ALWAYS struct inlay_store_ *inlay_inventory_store_(const struct inlay_inventory *inv)
{
	INLAY_CHECK(inv, "an inventory is not NULL");
	return inv->cache_.store;
}

/* ---- Set-up ---- */

/* Bytes of memory for an inventory of num descriptors; 0 when num is 0 or above 2^30. */
INLAY_COLD size_t inlay_inventory_size(uint32_t num)
{
	return inlay_store_size_(sizeof(struct inlay_inventory), num);
}

/*
 * Makes a stopped inventory. memory begins on a cache line, has inlay_inventory_size(num) bytes or
 * more, and is in use until inlay_inventory_destroy. Before the first start, the caller may set pd,
 * shared and user_data. Returns 0; -EINVAL for a bad argument; -ENOBUFS when size is too small.
 */
INLAY_COLD int inlay_inventory_create(void *memory, size_t size, uint32_t num, struct inlay_inventory **inv)
{
	int err = inlay_store_create_(memory, size, sizeof(**inv), num);

	if (!err)
		*inv = (struct inlay_inventory *)memory;
	return err;
}

/* Returns 0; -EBADFD when it is started or destroyed. */
INLAY_COLD int inlay_inventory_start(struct inlay_inventory *inv)
{
	struct inlay_store_ *s = inlay_inventory_store_(inv);

	if (s->state != INLAY_STORE_STOPPED_)
		return -EBADFD;
	/* Later, threads read them. */
	if (s->turn == 1) {
		s->pd = inv->pd;
		s->shared = inv->shared;
		inv->cache_.num = inv->shared ? INLAY_CACHED_ : 0;
	}
	__atomic_store_n(&s->state, INLAY_STORE_STARTED_, __ATOMIC_RELEASE);
	return 0;
}

/* Stops gets; releases still work. Returns 0; -EBADFD unless started. */
INLAY_COLD int inlay_inventory_stop(struct inlay_inventory *inv)
{
	return inlay_store_stop_(inlay_inventory_store_(inv));
}

/* Descriptors, and how many are free. The second reads all descriptors. */
INLAY_FN uint32_t inlay_inventory_num_elements(const struct inlay_inventory *inv)
{
	return __atomic_load_n(&inlay_inventory_store_(inv)->num, __ATOMIC_RELAXED);
}

INLAY_COLD uint32_t inlay_inventory_num_free(const struct inlay_inventory *inv)
{
	return inlay_inventory_num_elements(inv) - inlay_store_count_(inv->cache_.store, NULL);
}

/* Stops it if needed. Returns 0; -EBUSY while a buffer is in use or an inventory attached. */
INLAY_COLD int inlay_inventory_destroy(struct inlay_inventory *inv)
{
	struct inlay_store_ *s = inlay_inventory_store_(inv);
	int busy;

	/* Under the lock, no other thread is still releasing. */
	inlay_lock(&s->lock);
	busy = __atomic_load_n(&s->attached, __ATOMIC_ACQUIRE) || inlay_store_count_(s, NULL);
	inlay_unlock(&s->lock);
	if (busy)
		return -EBUSY;
	inlay_store_destroy_(s);
	return 0;
}

/*
 * Adds num descriptors, in memory as for inlay_inventory_create. Returns 0; -EBADFD when it is not
 * started; -EINVAL for a bad argument, and more than 2^30 in all; -ENOBUFS when size is too small.
 */
INLAY_COLD int inlay_inventory_expand(struct inlay_inventory *inv, void *memory, size_t size, uint32_t num)
{
	struct inlay_store_ *s = inlay_inventory_store_(inv);
	int err;

	if (__atomic_load_n(&s->state, __ATOMIC_RELAXED) != INLAY_STORE_STARTED_)
		return -EBADFD;
	err = inlay_store_check_(memory, size, inlay_inventory_size(num));
	if (!err && num > INLAY_STORE_MAX_ - inlay_inventory_num_elements(inv))
		err = -EINVAL;
	if (!err)
		inlay_store_grow_(&inv->cache_, memory, num);
	return err;
}

/*
 * Makes `mine` a thread's inventory of the shared one, on a cache line of its own. It takes 64
 * descriptors at a time and holds up to 128. Returns 0; -EINVAL when inv is not shared, or `mine`
 * not on a cache line.
 */
INLAY_COLD int inlay_inventory_attach(struct inlay_inventory *mine, struct inlay_inventory *inv)
{
	INLAY_CHECK(mine && inv, "an inventory is not NULL");
	if ((uintptr_t)mine % INLAY_CACHE_LINE || !inv->shared)
		return -EINVAL;
	__builtin_memset(mine, 0, sizeof(*mine));
	mine->cache_.store = inv->cache_.store;
	__atomic_fetch_add(&inv->cache_.store->attached, 1, __ATOMIC_RELAXED);
	return 0;
}

/* Gives back all that its cache holds. Called by its owner, or after that thread has ended. */
INLAY_COLD void inlay_inventory_detach(struct inlay_inventory *mine)
{
	struct inlay_store_ *s = inlay_inventory_store_(mine);

	inlay_cache_flush_(&mine->cache_, mine->cache_.num);
	__atomic_fetch_sub(&s->attached, 1, __ATOMIC_RELEASE);
	mine->cache_.store = NULL;
}

/* ---- Data path ---- */

/*
 * Drops one reference, as inlay_buf_dec_refcount. The last one gives the buffer to the calling
 * thread's inventory without a lock, whichever thread got it. Buffers of other inventories go back
 * there.
 */
INLAY_ALWAYS int inlay_inventory_dec_refcount(struct inlay_inventory *inv, struct inlay_buf *buf, uint16_t *prev)
{
	INLAY_CHECK(inv, "an inventory is not NULL");
	return inlay_buf_dec_(&inv->cache_, buf, prev);
}

/*
 * As above for each of n buffers. inv: NULL for inlay_buf_dec_refcount. Returns how many succeeded,
 * up to the first that did not.
 */
INLAY_FN uint32_t inlay_buf_dec_refcounts(struct inlay_inventory *inv, struct inlay_buf *const *bufs, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && INLAY_LIKELY(!inlay_buf_dec_(inv ? &inv->cache_ : NULL, bufs[i], NULL)); i++)
		;
	return i;
}

/* Finds and remembers the range of a buffer. Returns 0, or a get's error. */
INLAY_COLD int inlay_inventory_find_(struct inlay_inventory *inv, struct inlay_mmap *mmap, const void *addr, size_t len)
{
	struct inlay_store_ *s = inv->cache_.store;
	uint64_t turn = __atomic_load_n(&s->turn, __ATOMIC_ACQUIRE); /* before the states */
	const struct inlay_range *r;
	struct inlay_keys keys;

	if (!mmap || inv->shared)
		return -EINVAL;
	if (__atomic_load_n(&s->state, __ATOMIC_RELAXED) != INLAY_STORE_STARTED_ || !inlay_mmap_started_(mmap))
		return -EBADFD;
	r = inlay_mmap_find(mmap, addr, len);
	if (!r)
		return -EINVAL;
	keys.lkey = r->lkey;
	keys.rkey = r->rkey;
	if (s->pd && inlay_mmap_keys(mmap, r->id, s->pd, &keys))
		return -ENOENT;
	if (inv->mmap_ != mmap || inv->turn_ != turn)
		inv->flags_ = inlay_store_hold_(s, mmap);
	inv->mmap_ = mmap;
	inv->start_ = r->start;
	inv->len_ = r->len;
	inv->keys_ = keys;
	/* A map that the store does not hold leaves turn alone, so its range is not remembered. */
	inv->turn_ = inv->flags_ ? 0 : turn;
	return 0;
}

/* A get of a range that is not remembered, or with an empty cache. */
INLAY_COLD int inlay_inventory_get_new_(struct inlay_inventory *inv, struct inlay_mmap *mmap, void *addr, size_t len,
					void *data, size_t data_len, struct inlay_buf **buf)
{
	int err = inlay_inventory_find_(inv, mmap, addr, len);

	if (!err && (data_len > INLAY_SGE_MAX || !inlay_buf_fits_(addr, len, data, data_len)))
		err = -EINVAL;
	if (err)
		return err;
	if (!inv->cache_.num && !inlay_cache_refill_(&inv->cache_))
		return -EAGAIN;
	*buf = inlay_cache_pop_(&inv->cache_);
	inlay_buf_fill_(*buf, mmap, &inv->keys_, addr, len, data, data_len);
	if (inv->flags_)
		inlay_mmap_hold(mmap);
	inlay_buf_live_(*buf, inv->flags_);
	return 0;
}

/* Whether [addr, addr + len) lies in the range of the last get, and n descriptors are cached. */
INLAY_ALWAYS int inlay_inventory_near_(const struct inlay_inventory *inv, const struct inlay_mmap *mmap,
				       const void *addr, size_t len, uint32_t n)
{
	return INLAY_LIKELY(inv->mmap_ == mmap) &&
	       INLAY_LIKELY(inv->turn_ == __atomic_load_n(&inv->cache_.store->turn, __ATOMIC_RELAXED)) &&
	       INLAY_LIKELY(inlay_range_holds_(inv->start_, inv->len_, (uintptr_t)addr, len)) &&
	       INLAY_LIKELY(inv->cache_.num >= n);
}

/*
 * Gets a buffer over [addr, addr + len), with one reference and in no list.
 *
 * addr, len       inside one range of the map
 * data, data_len  inside the buffer
 *
 * Returns 0; -EINVAL for a NULL map, when no single range holds the buffer, for data outside the
 * buffer or above INLAY_SGE_MAX bytes, and for a shared inventory itself; -EAGAIN when no
 * descriptor is free; -EBADFD when the inventory or the map is not started; -ENOENT when the map
 * lacks the inventory's device.
 */
INLAY_ALWAYS int inlay_inventory_get_by_args(struct inlay_inventory *inv, struct inlay_mmap *mmap, void *addr,
					     size_t len, void *data, size_t data_len, struct inlay_buf **buf)
{
	struct inlay_buf *b;

	INLAY_CHECK(inv, "an inventory is not NULL");
	/* Where data is the buffer or its start, the condition about it folds. */
	if (INLAY_UNLIKELY(!inlay_inventory_near_(inv, mmap, addr, len, 1)) || INLAY_UNLIKELY(data_len > INLAY_SGE_MAX) ||
	    INLAY_UNLIKELY(!inlay_buf_fits_(addr, len, data, data_len)))
		return inlay_inventory_get_new_(inv, mmap, addr, len, data, data_len, buf);
	b = inlay_cache_pop_(&inv->cache_);
	inlay_buf_fill_(b, mmap, &inv->keys_, addr, len, data, data_len);
	inlay_buf_live_(b, 0);
	*buf = b;
	return 0;
}

/* As above, with no data yet. */
INLAY_ALWAYS int inlay_inventory_get_by_addr(struct inlay_inventory *inv, struct inlay_mmap *mmap, void *addr,
					     size_t len, struct inlay_buf **buf)
{
	return inlay_inventory_get_by_args(inv, mmap, addr, len, addr, 0, buf);
}

/* As above; the whole buffer is data. */
INLAY_ALWAYS int inlay_inventory_get_by_data(struct inlay_inventory *inv, struct inlay_mmap *mmap, void *data,
					     size_t data_len, struct inlay_buf **buf)
{
	return inlay_inventory_get_by_args(inv, mmap, data, data_len, data, data_len, buf);
}

/*
 * Gets n adjacent buffers of len bytes each, from addr on, with no data yet. Returns as
 * inlay_inventory_get_by_addr; after an error no descriptor is taken.
 */
INLAY_FN int inlay_inventory_get_bulk(struct inlay_inventory *inv, struct inlay_mmap *mmap, void *addr, size_t len,
				      struct inlay_buf **bufs, uint32_t n)
{
	uint8_t *at = (uint8_t *)addr;
	size_t all;
	uint32_t i;
	int err = 0;

	INLAY_CHECK(inv, "an inventory is not NULL");
	if (!__builtin_mul_overflow(len, n, &all) && inlay_inventory_near_(inv, mmap, addr, all, n)) {
		for (i = 0; i < n; i++, at += len) {
			bufs[i] = inlay_cache_pop_(&inv->cache_);
			inlay_buf_fill_(bufs[i], mmap, &inv->keys_, at, len, at, 0);
			inlay_buf_live_(bufs[i], 0);
		}
		return 0;
	}
	for (i = 0; i < n && !err; i++, at += len)
		err = inlay_inventory_get_by_addr(inv, mmap, at, len, &bufs[i]);
	if (INLAY_UNLIKELY(err))
		inlay_buf_dec_refcounts(inv, bufs, i - 1);
	return err;
}

/*
 * Copies a buffer, or a head's whole list: new descriptors of the same memory and data, with one
 * reference, and keys for this inventory's device. src may be of any inventory or pool.
 *
 * Returns as inlay_inventory_get_by_args; -EINVAL also when src is an element that is not a head;
 * -EBADFD also when src was given back. After an error no descriptor is taken.
 */
INLAY_FN int inlay_inventory_dup(struct inlay_inventory *inv, const struct inlay_buf *src, struct inlay_buf **dst)
{
	struct inlay_buf *head = NULL, *copy = NULL;
	int err = 0;

	INLAY_CHECK(inv && src, "an inventory is not NULL");
	if (!inlay_buf_is_first(src))
		return -EINVAL;
	if (!inlay_buf_refcount(src))
		return -EBADFD;
	for (; src && !err; src = inlay_buf_next(src)) {
		err = inlay_inventory_get_by_args(inv, src->mmap, src->head, (size_t)src->len, src->data, src->data_len,
						  &copy);
		if (!err && head)
			inlay_buf_chain_list(head, copy);
		else if (!err)
			head = copy;
	}
	if (!err)
		*dst = head;
	else if (head)
		inlay_inventory_dec_refcount(inv, head, NULL);
	return err;
}

#endif
