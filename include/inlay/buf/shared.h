/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf/shared.h: an inventory for many threads, who get buffers and give back those of others.
 *
 *   inlay_shared_create(memory, inlay_shared_size(65536), 65536, &shared);
 *   inlay_shared_start(shared);
 *   inlay_magazine_attach(&mine, shared);                             each thread, in memory of its own
 *   ...
 *   inlay_magazine_get_by_data(&mine, &mmap, packet, len, &buf);      hand it to another thread, and there:
 *   inlay_magazine_dec_refcount(&its_own, buf, NULL);
 *   ...
 *   inlay_magazine_detach(&mine);                                     before the thread ends
 *
 * Free descriptors are in one place, the depot, under a lock. A thread's magazine holds up to 250 of them, so that getting and giving back
 * touch nothing that is shared. An empty magazine takes whole blocks (buf.h) from the depot until it has 64 descriptors, and brings all
 * that was given back when these are 64 or more: between two locks lie 64 buffers, and 124 where they come and go in the order of
 * addresses.
 *
 *   depot  | block | block | block | ...   lock
 *             ^ 64 or more     | 64 or more
 *          magazine         magazine
 *          producer         consumer
 *
 * The lock is held for as long as it takes to move some 64 descriptors (expand: to go along all blocks), and a thread that finds it taken
 * spins: nothing here calls the system, so that a data path can be bound to anything. With more busy threads than CPUs, the holder may lose
 * its CPU, and who waits then spends its own time slice: some milliseconds, once in a great many refills. Threads on CPUs of their own
 * never see it.
 *
 * A consumer that gives back what it never looked into does not touch the descriptor, but only its state, on a line with those of the whole
 * block.
 *
 * What lies in magazines is out of others' reach: while there are n of them, a get may answer -ENOMEM with up to 250 (n - 1) descriptors
 * free.
 *
 * The count of an mmap is kept by magazines, each for itself, for the first 8 mmaps (mmap/ledger.h); more than these, as long as none of
 * the 8 is stopped, count each buffer themselves, one by one. The mmap must be in thread-safe mode.
 *
 * A buffer is handed to another thread by anything that orders memory (a lock, a queue, a release store and an acquire load): its
 * fields are plain. Its reference count is atomic: several threads may each have a reference, and whoever gives back the last one has it
 * alone. Lists, windows: by one thread at a time, as ever.
 *
 * States and errors are those of an inventory.
 *
 * Threads: every function says who may call it, except inlay_magazine_*, which are the magazine's owner's; it has one at a time.
 * Sources: DOCA's documentation of doca_buf_inventory; Bonwick and Adams, "Magazines and Vmem" (USENIX 2001), for magazines and depot.
 */
#ifndef INLAY_BUF_SHARED_H
#define INLAY_BUF_SHARED_H

#include <inlay/base.h>
#include <inlay/mmap/ledger.h>
#include <inlay/mmap/lookup.h>
#include <inlay/mmap/map.h>
#include <inlay/buf/buf.h>
#include <inlay/buf/inventory.h>

#define INLAY_MAGAZINE 64u               /* descriptors that are moved at a time, or some more */

struct inlay_shared {
	struct inlay_store store;
};

/* Free descriptors of one block */
struct inlay_lot {
	struct inlay_block *block;
	uint64_t bits;
};

/* A thread's own. In the caller's memory, on a cache line; attach makes it. */
struct inlay_magazine {
	struct inlay_front front;
	uint64_t refills;                /* how often the depot was asked, and brought to */
	uint64_t flushes;
	uint32_t num_back;               /* lots that were given back, */
	uint32_t sum_back;               /* and their descriptors; beside those of front.back */
	uint32_t num_stock;              /* lots from the depot */
	uint32_t reserved[9];
	struct inlay_lot back[INLAY_MAGAZINE];
	struct inlay_lot stock[INLAY_MAGAZINE];
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_magazine, back) % INLAY_CACHE_LINE == 0, "whole lines");

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up
 */

/* Bytes of memory that a shared inventory of num descriptors needs; 0 when num is 0 or above 2^30. */
INLAY_COLD size_t inlay_shared_size(uint32_t num)
{
	size_t bytes = inlay_store_bytes(num, num);

	return bytes ? sizeof(struct inlay_shared) + bytes : 0;
}

/* Makes one, not started; as inlay_inventory_create. */
INLAY_COLD int inlay_shared_create(void *memory, size_t size, uint32_t num, struct inlay_shared **shared)
{
	int err = inlay_store_create(memory, size, sizeof(**shared), num, 1);

	if (!err)
		*shared = (struct inlay_shared *)memory;
	return err;
}

/* As inlay_inventory_set_dev, _set_user_data, _get_user_data: while no other thread uses it. */
INLAY_COLD int inlay_shared_set_dev(struct inlay_shared *shared, uint32_t dev)
{
	INLAY_CHECK(shared, "a shared inventory is not NULL");
	return inlay_store_set_dev(&shared->store, dev);
}

INLAY_COLD int inlay_shared_set_user_data(struct inlay_shared *shared, uint64_t data)
{
	INLAY_CHECK(shared, "a shared inventory is not NULL");
	return inlay_store_set_user_data(&shared->store, data);
}

INLAY_COLD uint64_t inlay_shared_get_user_data(const struct inlay_shared *shared)
{
	INLAY_CHECK(shared, "a shared inventory is not NULL");
	return shared->store.user_data;
}

/* Start and stop, by one thread, whatever others do. Return 0, or -EBADFD when it is so already. */
INLAY_COLD int inlay_shared_start(struct inlay_shared *shared)
{
	INLAY_CHECK(shared, "a shared inventory is not NULL");
	return inlay_store_start(&shared->store);
}

INLAY_COLD int inlay_shared_stop(struct inlay_shared *shared)
{
	INLAY_CHECK(shared, "a shared inventory is not NULL");
	return inlay_store_stop(&shared->store);
}

/*
 * More descriptors, as inlay_inventory_expand; by any thread, at any time. Of two that expand at the same time one may see -EINVAL, because
 * there would be too many with those of the other. What the memory holds after an error is undefined.
 */
INLAY_COLD size_t inlay_shared_expand_size(struct inlay_shared *shared, uint32_t num)
{
	INLAY_CHECK(shared, "a shared inventory is not NULL");
	size_t bytes;

	inlay_spin_lock(&shared->store.lock);
	bytes = inlay_store_bytes(num, (uint64_t)shared->store.num + num);
	inlay_spin_unlock(&shared->store.lock);
	return bytes;
}

INLAY_COLD int inlay_shared_expand(struct inlay_shared *shared, void *memory, size_t size, uint32_t num)
{
	INLAY_CHECK(shared, "a shared inventory is not NULL");
	struct inlay_store *s = &shared->store;
	struct inlay_block *first;
	int err;

	inlay_spin_lock(&s->lock);
	err = inlay_store_expandable(s, memory, size, num);
	inlay_spin_unlock(&s->lock);
	if (err)
		return err;
	first = inlay_store_make(s, memory, inlay_store_bytes(num, num), num);
	inlay_spin_lock(&s->lock);
	err = inlay_store_expandable(s, memory, size, num);
	if (!err)
		inlay_store_adopt(s, first, num);
	inlay_spin_unlock(&s->lock);
	return err;
}

/* Stops it if need be; its memory is the caller's again. Returns 0, or -EBUSY while a buffer is out or a magazine attached. */
INLAY_COLD int inlay_shared_destroy(struct inlay_shared *shared)
{
	INLAY_CHECK(shared, "a shared inventory is not NULL");
	struct inlay_store *s = &shared->store;
	int err;

	inlay_spin_lock(&s->lock);
	err = s->magazines || inlay_ledger_free(&s->ledger) != s->num ? -EBUSY : 0;
	inlay_spin_unlock(&s->lock);
	if (err)
		return err;
	inlay_store_stop(s);
	inlay_ledger_close(&s->ledger);
	s->floor = 2;
	return 0;
}

/* An empty magazine, for the calling thread or another. Returns 0, or -EINVAL when it is not on a cache line. */
INLAY_COLD int inlay_magazine_attach(struct inlay_magazine *mag, struct inlay_shared *shared)
{
	INLAY_CHECK(mag, "a magazine is not NULL");
	struct inlay_store *s = &shared->store;

	if ((uintptr_t)mag % INLAY_CACHE_LINE)
		return -EINVAL;
	__builtin_memset(mag, 0, sizeof(*mag));
	mag->front.store = s;
	mag->front.mmap = INLAY_NO_MMAP;
	inlay_ledger_show(&s->ledger, &mag->front.shown, &mag->front.mmap);
	inlay_spin_lock(&s->lock);
	s->magazines++;
	inlay_spin_unlock(&s->lock);
	return 0;
}

/* Lots to the depot, under the lock. */
INLAY_FN void inlay_magazine_give(struct inlay_store *s, const struct inlay_lot *lots, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		inlay_store_give(s, lots[i].block, lots[i].bits);
}

/* Brings what the magazine holds to the depot. By its owner. */
INLAY_COLD void inlay_magazine_flush(struct inlay_magazine *mag)
{
	INLAY_CHECK(mag, "a magazine is not NULL");
	struct inlay_front *f = &mag->front;
	struct inlay_store *s = f->store;

	inlay_spin_lock(&s->lock);
	inlay_magazine_give(s, mag->back, mag->num_back);
	inlay_magazine_give(s, mag->stock, mag->num_stock);
	if (f->back_bits)
		inlay_store_give(s, f->back, f->back_bits);
	if (f->bits)
		inlay_store_give(s, inlay_buf_block(f->page), f->bits);
	inlay_spin_unlock(&s->lock);
	mag->num_back = mag->sum_back = mag->num_stock = 0;
	f->back_bits = f->bits = 0;
}

/* Flushes it; its memory is the caller's again. By its owner, or when that one has ended. */
INLAY_COLD void inlay_magazine_detach(struct inlay_magazine *mag)
{
	INLAY_CHECK(mag, "a magazine is not NULL");
	struct inlay_store *s = mag->front.store;

	inlay_magazine_flush(mag);
	inlay_ledger_hide(&s->ledger, &mag->front.shown);
	inlay_spin_lock(&s->lock);
	s->magazines--;
	inlay_spin_unlock(&s->lock);
	mag->front.store = NULL;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path
 */

/* Descriptors; by any thread. */
INLAY_FN uint32_t inlay_shared_num_elements(struct inlay_shared *shared)
{
	INLAY_CHECK(shared, "a shared inventory is not NULL");
	uint32_t num;

	inlay_spin_lock(&shared->store.lock);
	num = shared->store.num;
	inlay_spin_unlock(&shared->store.lock);
	return num;
}

/*
 * Those that are not out, in the depot and in all magazines; by any thread. While others get and give back, about that many. Looks at all.
 */
INLAY_FN uint32_t inlay_shared_num_free(const struct inlay_shared *shared)
{
	INLAY_CHECK(shared, "a shared inventory is not NULL");
	return (uint32_t)inlay_ledger_free(&shared->store.ledger);
}

/*
 * Free descriptors into a magazine that has none at hand, by its owner: those that it was given last, else those that it has from the
 * depot, else others from there. Returns whether there are any.
 */
INLAY_COLD int inlay_magazine_refill(struct inlay_magazine *mag)
{
	struct inlay_front *f = &mag->front;
	struct inlay_store *s = f->store;
	struct inlay_lot lot;
	uint32_t n = 0;

	if (f->back_bits) {
		inlay_front_load(f, f->back, f->back_bits);
		f->back_bits = 0;
		return 1;
	}
	if (mag->num_back) {
		lot = mag->back[--mag->num_back];
		mag->sum_back -= inlay_state_ones(lot.bits);
		inlay_front_load(f, lot.block, lot.bits);
		return 1;
	}
	if (!mag->num_stock) {
		inlay_spin_lock(&s->lock);
		while (n < INLAY_MAGAZINE && (lot.block = inlay_store_pop(s))) {
			lot.bits = lot.block->given;
			lot.block->given = 0;
			n += inlay_state_ones(lot.bits);
			mag->stock[mag->num_stock++] = lot;
		}
		inlay_spin_unlock(&s->lock);
		mag->refills++;
		if (!mag->num_stock)
			return 0;
	}
	lot = mag->stock[--mag->num_stock];
	inlay_front_load(f, lot.block, lot.bits);
	return 1;
}

/*
 * Another block is given to than before: what was given to that one becomes a lot, and many lots go to the depot. Returns whether the block
 * is the magazine's inventory's; else nothing is done.
 */
INLAY_COLD int inlay_magazine_turn(struct inlay_magazine *mag, struct inlay_block *b)
{
	struct inlay_front *f = &mag->front;
	struct inlay_store *s = f->store;

	if (b->store != s)
		return 0;
	if (f->back_bits) {
		mag->back[mag->num_back].block = f->back;
		mag->back[mag->num_back++].bits = f->back_bits;
		mag->sum_back += inlay_state_ones(f->back_bits);
		if (mag->sum_back >= INLAY_MAGAZINE) {
			inlay_spin_lock(&s->lock);
			inlay_magazine_give(s, mag->back, mag->num_back);
			inlay_spin_unlock(&s->lock);
			mag->num_back = mag->sum_back = 0;
			mag->flushes++;
		}
	}
	f->back = b;
	f->back_bits = 0;
	return 1;
}

/* inlay_magazine_get_by_args when something has to be looked for: a range, or free descriptors. */
INLAY_COLD int inlay_magazine_get_new(struct inlay_magazine *mag, struct inlay_mmap *mmap, void *addr, size_t len,
				      void *data, size_t data_len, struct inlay_buf **buf)
{
	struct inlay_front *f = &mag->front;
	int err = inlay_front_turn(f, mmap, addr, len, data_len);

	if (err)
		return err;
	if (!f->bits && !inlay_magazine_refill(mag))
		return -ENOMEM;
	*buf = inlay_front_get_any(f, addr, len, data, data_len);
	return 0;
}

/*
 * As inlay_inventory_get_by_args; and -EPERM when the mmap is not in thread-safe mode. -ENOMEM: neither the magazine nor the depot has one.
 */
INLAY_ALWAYS int inlay_magazine_get_by_args(struct inlay_magazine *mag, struct inlay_mmap *mmap, void *addr, size_t len, void *data,
					    size_t data_len, struct inlay_buf **buf)
{
	INLAY_CHECK(mag, "a magazine is not NULL");
	struct inlay_front *f = &mag->front;

	if (INLAY_UNLIKELY(!inlay_front_ready(f, mmap, addr, len, data_len)))
		return inlay_magazine_get_new(mag, mmap, addr, len, data, data_len, buf);
	*buf = inlay_front_get(f, addr, len, data, data_len);
	return 0;
}

/* The same with an empty window at its start. */
INLAY_ALWAYS int inlay_magazine_get_by_addr(struct inlay_magazine *mag, struct inlay_mmap *mmap, void *addr, size_t len,
					    struct inlay_buf **buf)
{
	INLAY_CHECK(mag, "a magazine is not NULL");
	return inlay_magazine_get_by_args(mag, mmap, addr, len, addr, 0, buf);
}

/* The same with a window over all of it. */
INLAY_ALWAYS int inlay_magazine_get_by_data(struct inlay_magazine *mag, struct inlay_mmap *mmap, void *data, size_t data_len,
					    struct inlay_buf **buf)
{
	INLAY_CHECK(mag, "a magazine is not NULL");
	return inlay_magazine_get_by_args(mag, mmap, data, data_len, data, data_len, buf);
}

/* A free descriptor of the block that is given to is the magazine's. */
INLAY_ALWAYS void inlay_magazine_take_back(struct inlay_front *f, unsigned line)
{
	INLAY_CHECK(!(f->back_bits >> line & 1), "no buffer is given back twice");
	f->back_bits |= 1ull << line;
}

/* inlay_magazine_dec_refcount of what is not a plain buffer of its inventory. */
INLAY_COLD int inlay_magazine_dec_other(struct inlay_magazine *mag, struct inlay_buf *buf, uint16_t *prev)
{
	struct inlay_front *f = &mag->front;
	int count = inlay_buf_unref(buf);
	struct inlay_block *b;
	struct inlay_buf *next;

	if (count < 0)
		return count;
	if (prev)
		*prev = (uint16_t)count;
	if (count == 1) {
		for (; buf; buf = next) {
			next = inlay_buf_next(buf);
			b = inlay_buf_block(buf);
			if (f->back == b || inlay_magazine_turn(mag, b)) {
				inlay_buf_end(buf);
				inlay_magazine_take_back(f, inlay_buf_line(buf));
			} else {
				inlay_buf_free(buf);
			}
		}
	}
	return 0;
}

/*
 * inlay_buf_dec_refcount by the magazine of the calling thread, whoever got the buffer. Buffers of other owners go where they belong.
 */
INLAY_ALWAYS int inlay_magazine_dec_refcount(struct inlay_magazine *mag, struct inlay_buf *buf, uint16_t *prev)
{
	INLAY_CHECK(mag, "a magazine is not NULL");
	uint8_t *at = inlay_buf_state_at(buf), state = __atomic_load_n(at, __ATOMIC_RELAXED);
	struct inlay_front *f = &mag->front;
	struct inlay_block *b = inlay_state_block(at);

	/* The block's second line is where others write when they have the lock: it is looked at once a block. */
	if (INLAY_UNLIKELY((state & ~(INLAY_LEDGER_ACCOUNTS - 1)) != INLAY_STATE_SHARED) ||
	    (INLAY_UNLIKELY(f->back != b) && !inlay_magazine_turn(mag, b)))
		return inlay_magazine_dec_other(mag, buf, prev);
	__atomic_store_n(at, INLAY_STATE_FREE, __ATOMIC_RELEASE);
	inlay_magazine_take_back(f, inlay_buf_line(buf));
	if (prev)
		*prev = 1;
	return 0;
}

/* Gives back many: inlay_magazine_dec_refcount of each. Returns how many it was done for: n, or fewer when bufs[returned] was refused. */
INLAY_FN uint32_t inlay_magazine_put(struct inlay_magazine *mag, struct inlay_buf *const *bufs, uint32_t n)
{
	INLAY_CHECK(mag, "a magazine is not NULL");
	uint32_t i;

	for (i = 0; i < n; i++)
		if (INLAY_UNLIKELY(inlay_magazine_dec_refcount(mag, bufs[i], NULL)))
			break;
	return i;
}

/*
 * n buffers of one mmap: inlay_magazine_get_by_args for each of args[]. All or none: returns 0, or the error of the first that cannot be
 * had, with nothing taken and bufs[] undefined.
 */
INLAY_FN int inlay_magazine_get(struct inlay_magazine *mag, struct inlay_mmap *mmap, const struct inlay_buf_args *args, uint32_t n,
				struct inlay_buf **bufs)
{
	INLAY_CHECK(mag, "a magazine is not NULL");
	uint32_t i;
	int err;

	for (i = 0; i < n; i++) {
		err = inlay_magazine_get_by_args(mag, mmap, args[i].addr, args[i].len, args[i].data, args[i].data_len, &bufs[i]);
		if (INLAY_UNLIKELY(err)) {
			inlay_magazine_put(mag, bufs, i);
			return err;
		}
	}
	return 0;
}

/* As inlay_inventory_dup; and -EPERM as inlay_magazine_get_by_args. The caller has src for the time. */
INLAY_FN int inlay_magazine_dup(struct inlay_magazine *mag, const struct inlay_buf *src, struct inlay_buf **dst)
{
	INLAY_CHECK(mag, "a magazine is not NULL");
	struct inlay_front *f = &mag->front;
	struct inlay_store *s = f->store;
	struct inlay_buf *head = NULL, *buf;
	int err;

	if (__atomic_load_n(&s->floor, __ATOMIC_RELAXED))
		return -EBADFD;
	err = inlay_store_copyable(src, s->dev);
	for (; src && !err; src = inlay_buf_next(src)) {
		err = !src->from.mmap->thread_safe ? -EPERM : !f->bits && !inlay_magazine_refill(mag) ? -ENOMEM : 0;
		if (err)
			break;
		buf = inlay_front_copy(f, src);
		if (!head) {
			head = buf;
			continue;
		}
		err = inlay_buf_chain_list(head, buf);
		if (err)
			inlay_buf_free(buf);
	}
	if (err) {
		if (head)
			inlay_magazine_dec_refcount(mag, head, NULL);
		return err;
	}
	*dst = head;
	return 0;
}

#endif
