/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf/inventory.h: an inventory: descriptors for buffers anywhere in any map. A get takes a
 * descriptor, finds the range of the address and fills in its keys; a release puts it back.
 *
 *   inlay_inventory_create(memory, inlay_inventory_size(4096), 4096, &inv);
 *   inlay_inventory_start(inv);
 *   ...
 *   if (inlay_inventory_get_by_data(inv, &map, packet, len, &buf) == 0)
 *           inlay_post_send_bufs(&sq, buf, INLAY_SIGNALED);
 *   ...
 *   inlay_buf_dec_refcount(buf, NULL);                              its completion
 *
 * Invariants:
 *   - Gets, dup and expand need a started inventory; gets and dup also a map that is started or
 *     imported. Buffers in use can always be given back.
 *   - A buffer in use keeps its map from being stopped, and the inventory from being destroyed. An
 *     inventory may be stopped and started again.
 *   - Gets are fast for eight maps at a time; for further ones, each get looks the range up.
 *   - Destroy an inventory and its maps before their memory is reused.
 *
 * Threads: one owner at a time, which also gives buffers back; for many threads see shared.h.
 */
#ifndef INLAY_BUF_INVENTORY_H
#define INLAY_BUF_INVENTORY_H

#include <inlay/base.h>
#include <inlay/mmap/map.h>
#include <inlay/buf/buf.h>
#include <inlay/buf/shared.h>
#include <inlay/buf/store.h>

/* ---- Set-up ---- */

/* Bytes of memory for an inventory of num descriptors; 0 when num is 0 or above 2^30. */
INLAY_COLD size_t inlay_inventory_size(uint32_t num)
{
	return inlay_store_size_(sizeof(struct inlay_inventory), num);
}

/*
 * Makes a stopped inventory for the keys of its maps' first device. memory begins on a cache line,
 * has inlay_inventory_size(num) bytes or more, and is in use until inlay_inventory_destroy.
 *
 * Returns 0; -EINVAL for a bad argument; -ENOBUFS when size is too small.
 */
INLAY_COLD int inlay_inventory_create(void *memory, size_t size, uint32_t num, struct inlay_inventory **inv)
{
	int err = inlay_store_create_(memory, size, sizeof(**inv), num);

	if (!err)
		*inv = (struct inlay_inventory *)memory;
	return err;
}

/* Whether properties may be set: before the first start. */
INLAY_COLD int inlay_inventory_set_(const struct inlay_inventory *inv)
{
	return inlay_inventory_(inv)->store->state == INLAY_STORE_STOPPED_ && inv->store->turn == 1 ? 0 : -EBADFD;
}

/*
 * Makes it shared by threads (shared.h). Returns 0; -EBADFD after the first start; -EINVAL for a
 * pool's.
 */
INLAY_COLD int inlay_inventory_share(struct inlay_inventory *inv)
{
	int err = inlay_inventory_(inv)->store->pool ? -EINVAL : inlay_inventory_set_(inv);

	if (!err)
		inv->store->shared = 1;
	return err;
}

/* Chooses the keys of the maps' device number dev. Returns 0, or -EBADFD after the first start. */
INLAY_COLD int inlay_inventory_set_dev(struct inlay_inventory *inv, uint32_t dev)
{
	int err = inlay_inventory_set_(inv);

	if (!err)
		inv->store->dev = dev;
	return err;
}

/* Returns 0, or -EBADFD after the first start. User data is 0 at first. */
INLAY_COLD int inlay_inventory_set_user_data(struct inlay_inventory *inv, uint64_t data)
{
	int err = inlay_inventory_set_(inv);

	if (!err)
		inv->store->user_data = data;
	return err;
}

INLAY_COLD uint64_t inlay_inventory_user_data(const struct inlay_inventory *inv)
{
	return inlay_inventory_(inv)->store->user_data;
}

/* Returns 0; -EBADFD when it is started or destroyed; -EINVAL for a pool's. */
INLAY_COLD int inlay_inventory_start(struct inlay_inventory *inv)
{
	return inlay_inventory_(inv)->store->pool ? -EINVAL : inlay_store_start_(inv->store);
}

/* Stops gets; releases still work. Returns 0; -EBADFD unless started; -EINVAL for a pool's. */
INLAY_COLD int inlay_inventory_stop(struct inlay_inventory *inv)
{
	return inlay_inventory_(inv)->store->pool ? -EINVAL : inlay_store_stop_(inv->store);
}

/* Descriptors, and how many are free. The second reads all states: a cache line for each 62. */
INLAY_FN uint32_t inlay_inventory_num_elements(const struct inlay_inventory *inv)
{
	return __atomic_load_n(&inlay_inventory_(inv)->store->num, __ATOMIC_RELAXED);
}

INLAY_FN uint32_t inlay_inventory_num_free(const struct inlay_inventory *inv)
{
	return inlay_store_free_(inlay_inventory_(inv)->store);
}

/*
 * Stops it if needed. Returns 0; -EBUSY while a buffer is in use or a magazine attached; -EINVAL
 * for a pool's.
 */
INLAY_COLD int inlay_inventory_destroy(struct inlay_inventory *inv)
{
	struct inlay_store_ *s = inlay_inventory_(inv)->store;
	int busy;

	if (s->pool)
		return -EINVAL;
	/* Under the lock, no other thread is still releasing. */
	inlay_lock(&s->lock);
	busy = __atomic_load_n(&s->magazines, __ATOMIC_ACQUIRE) || inlay_store_free_(s) != s->num;
	inlay_unlock(&s->lock);
	if (busy)
		return -EBUSY;
	inlay_store_destroy_(s);
	return 0;
}

/*
 * Adds num descriptors, in memory as for inlay_inventory_create. Returns 0; -EBADFD when it is not
 * started; -EINVAL for a bad argument, more than 2^30 in all, and a pool's; -ENOBUFS when size is
 * too small.
 */
INLAY_COLD int inlay_inventory_expand(struct inlay_inventory *inv, void *memory, size_t size, uint32_t num)
{
	struct inlay_store_ *s = inlay_inventory_(inv)->store;
	struct inlay_block_ *first;
	int err;

	if (s->pool)
		return -EINVAL;
	if (__atomic_load_n(&s->state, __ATOMIC_RELAXED) != INLAY_STORE_STARTED_)
		return -EBADFD;
	err = inlay_store_check_(memory, size, inlay_inventory_size(num));
	if (!err && num > INLAY_STORE_MAX_ - inlay_inventory_num_elements(inv))
		err = -EINVAL;
	if (err)
		return err;
	first = inlay_store_make_(s, memory, num);
	inlay_lock(&s->lock);
	inlay_store_adopt_(s, first, num);
	inlay_unlock(&s->lock);
	return 0;
}

/* ---- Data path ---- */

INLAY_FN int inlay_inventory_refill_(struct inlay_inventory *inv)
{
	return inv->bits || (inv->magazine ? inlay_magazine_refill_(inv->magazine) : inlay_store_refill_(inv));
}

/* Returns 0 if a get of the map is possible, or its error. *turn: the store's, read first. */
INLAY_FN int inlay_inventory_usable_(const struct inlay_inventory *inv, const struct inlay_mmap *mmap, uint64_t *turn)
{
	struct inlay_store_ *s = inv->store;

	*turn = __atomic_load_n(&s->turn, __ATOMIC_ACQUIRE);
	if (!mmap || s->pool || (s->shared && !inv->magazine))
		return -EINVAL;
	if (__atomic_load_n(&s->state, __ATOMIC_RELAXED) != INLAY_STORE_STARTED_ || !inlay_mmap_started(mmap))
		return -EBADFD;
	return 0;
}

/* Finds and remembers the range of a buffer. Returns 0, or a get's error. */
INLAY_COLD int inlay_inventory_find_(struct inlay_inventory *inv, struct inlay_mmap *mmap, const void *addr, size_t len,
				     size_t data_len)
{
	const struct inlay_range *r;
	struct inlay_keys keys;
	uint64_t turn;
	int err = inlay_inventory_usable_(inv, mmap, &turn);

	if (err)
		return err;
	r = inlay_mmap_find(mmap, addr, len);
	if (data_len > INLAY_SGE_MAX || !r)
		return -EINVAL;
	err = inlay_store_keys_(inv->store, mmap, r, &keys);
	if (err)
		return err;
	if (inv->mmap != mmap || inv->turn != turn)
		inv->state = inlay_store_tie_to_(inv->store, mmap);
	inv->mmap = mmap;
	inv->start = r->start;
	inv->len = r->len;
	inv->keys = keys;
	/* A map without a tie is looked up each time. */
	inv->turn = inv->state != INLAY_BUF_HELD_ ? turn : 0;
	return 0;
}

INLAY_COLD int inlay_inventory_get_new_(struct inlay_inventory *inv, struct inlay_mmap *mmap, void *addr, size_t len,
					void *data, size_t data_len, struct inlay_buf **buf)
{
	uint64_t line;
	int err = inlay_inventory_find_(inv, mmap, addr, len, data_len);

	if (!err && !inlay_buf_fits_(addr, len, data, data_len))
		err = -EINVAL;
	if (err)
		return err;
	if (!inlay_inventory_refill_(inv))
		return -EAGAIN;
	*buf = inlay_inventory_take_(inv, &line);
	inlay_buf_fill_(*buf, mmap, &inv->keys, addr, len, data, data_len);
	inlay_buf_set_state_(*buf, (uint8_t)inv->state);
	return 0;
}

INLAY_ALWAYS int inlay_inventory_near_(const struct inlay_inventory *inv, const struct inlay_mmap *mmap,
				       const void *addr, size_t len, size_t data_len)
{
	uint64_t turn = __atomic_load_n(&inv->store->turn, __ATOMIC_RELAXED);

	return INLAY_LIKELY(inv->mmap == mmap) && INLAY_LIKELY(inv->turn == turn) &&
	       inlay_range_holds_(inv->start, inv->len, (uintptr_t)addr, len) &&
	       INLAY_LIKELY(data_len <= INLAY_SGE_MAX);
}

/*
 * Gets a buffer over [addr, addr + len), with one reference and in no list.
 *
 * addr, len       inside one range of the map
 * data, data_len  inside the buffer
 *
 * Returns 0; -EINVAL for a NULL map, when no single range holds the buffer, for data outside the
 * buffer or above INLAY_SGE_MAX bytes, for a pool's inventory, and for a shared one without a
 * magazine; -EAGAIN when no descriptor is free; -EBADFD when the inventory or the map is not
 * started; -ENOENT when the map lacks the inventory's device.
 */
INLAY_ALWAYS int inlay_inventory_get_by_args(struct inlay_inventory *inv, struct inlay_mmap *mmap, void *addr,
					     size_t len, void *data, size_t data_len, struct inlay_buf **buf)
{
	struct inlay_buf *b;
	uint64_t line;

	INLAY_CHECK(inv, "an inventory is not NULL");
	/* Where data is the buffer or its start, the second condition folds. */
	if (INLAY_UNLIKELY(!inlay_inventory_near_(inv, mmap, addr, len, data_len)) ||
	    INLAY_UNLIKELY(!inlay_buf_fits_(addr, len, data, data_len)) || INLAY_UNLIKELY(!inv->bits))
		return inlay_inventory_get_new_(inv, mmap, addr, len, data, data_len, buf);
	b = inlay_inventory_take_(inv, &line);
	inlay_buf_fill_(b, mmap, &inv->keys, addr, len, data, data_len);
	__atomic_store_n(&inv->states[line], (uint8_t)inv->state, __ATOMIC_RELEASE);
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

INLAY_FN int inlay_inventory_copy_(struct inlay_inventory *inv, const struct inlay_buf *src, struct inlay_buf **copy)
{
	const struct inlay_range *r;
	struct inlay_keys keys;
	uint64_t line, turn;
	int err = inlay_inventory_usable_(inv, src->mmap, &turn);

	if (err)
		return err;
	r = inlay_mmap_find(src->mmap, src->head, (size_t)src->len);
	err = r ? inlay_store_keys_(inv->store, src->mmap, r, &keys) : -EINVAL;
	if (err)
		return err;
	if (!inlay_inventory_refill_(inv))
		return -EAGAIN;
	*copy = inlay_inventory_take_(inv, &line);
	inlay_buf_fill_(*copy, src->mmap, &keys, src->head, src->len, src->data, src->data_len);
	inlay_buf_set_state_(*copy, inlay_store_tie_to_(inv->store, src->mmap));
	return 0;
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
		err = inlay_inventory_copy_(inv, src, &copy);
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
