/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf/shared.h: an inventory for many threads. Each thread has a magazine of free
 * descriptors, and gets and gives back through it without touching anything shared.
 *
 *   inlay_inventory_create(memory, inlay_inventory_size(65536), 65536, &inv);
 *   inlay_inventory_share(inv);                                 before the first start
 *   inlay_inventory_start(inv);
 *   inlay_magazine_attach(&mine, inv);                          each thread, in memory of its own
 *   ...
 *   inlay_inventory_get_by_data(&mine.inventory, &map, packet, len, &buf);
 *   ... another thread, which was handed the buffer:
 *   inlay_inventory_dec_refcount(&its.inventory, buf, NULL);
 *   ...
 *   inlay_magazine_detach(&mine);                               before the thread ends
 *
 * The other free descriptors are in the depot: the inventory's store, under a lock. An empty
 * magazine takes whole blocks from there until it has 64 descriptors, and brings back what was
 * released once that is 64 or more. A magazine holds at most 250.
 *
 * Invariants:
 *   - inlay_inventory_get* and _dup work on magazines only; other calls take inv itself.
 *   - Of n magazines, each may get -EAGAIN while the others hold up to 250 free descriptors each.
 *   - The lock is held while some 64 descriptors move (an expand walks all blocks). Waiters spin
 *     and make no system call, so give busy threads CPUs of their own.
 *   - A release of a plain buffer reads and writes its state, and not the descriptor.
 *
 * Threads: a magazine has one owner at a time. Any thread may call the functions that take inv, at
 * any time, except create, destroy, share and the setters; start and stop, one thread at a time.
 * Source: Bonwick and Adams, "Magazines and Vmem" (USENIX 2001).
 */
#ifndef INLAY_BUF_SHARED_H
#define INLAY_BUF_SHARED_H

#include <inlay/base.h>
#include <inlay/buf/store.h>

#define INLAY_MAGAZINE_ 64u              /* descriptors that move at a time, at least */

/* Free descriptors of one block */
struct inlay_batch_ {
	struct inlay_block_ *block;
	uint64_t bits;
};

/* In the caller's memory, on a cache line */
struct inlay_magazine {
	struct inlay_inventory inventory;
	uint64_t refills;                /* how often it took from the depot, and gave to it */
	uint64_t flushes;
	uint32_t num_back;               /* batches that were given back, */
	uint32_t sum_back;               /* and their descriptors, without inventory.back's */
	uint32_t num_stock;              /* batches from the depot */
	uint32_t reserved[9];
	struct inlay_batch_ back[INLAY_MAGAZINE_];
	struct inlay_batch_ stock[INLAY_MAGAZINE_];
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_magazine, back) % INLAY_CACHE_LINE == 0, "whole lines");

/* ------------------------------------------------------------------------------------------------
 * Set-up
 */

/* An empty magazine. Returns 0; -EINVAL when it is not on a cache line, or inv is not shared. */
INLAY_COLD int inlay_magazine_attach(struct inlay_magazine *mag, struct inlay_inventory *inv)
{
	INLAY_CHECK(mag && inv, "a magazine is not NULL");
	if ((uintptr_t)mag % INLAY_CACHE_LINE || !inv->store->shared)
		return -EINVAL;
	__builtin_memset(mag, 0, sizeof(*mag));
	mag->inventory.store = inv->store;
	mag->inventory.magazine = mag;
	__atomic_fetch_add(&inv->store->magazines, 1, __ATOMIC_RELAXED);
	return 0;
}

/* Batches to the depot, under the lock. */
INLAY_FN void inlay_magazine_give_(struct inlay_store_ *s, const struct inlay_batch_ *batches, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		inlay_store_give_(s, batches[i].block, batches[i].bits);
}

/* Brings all that the magazine holds to the depot. */
INLAY_COLD void inlay_magazine_flush(struct inlay_magazine *mag)
{
	struct inlay_inventory *inv = &mag->inventory;
	struct inlay_store_ *s;

	INLAY_CHECK(mag, "a magazine is not NULL");
	s = inv->store;
	inlay_lock(&s->lock);
	inlay_magazine_give_(s, mag->back, mag->num_back);
	inlay_magazine_give_(s, mag->stock, mag->num_stock);
	if (inv->back_bits)
		inlay_store_give_(s, inv->back, inv->back_bits);
	if (inv->bits)
		inlay_store_give_(s, inlay_buf_block_(inv->page), inv->bits);
	inlay_unlock(&s->lock);
	mag->num_back = mag->sum_back = mag->num_stock = 0;
	inv->back_bits = inv->bits = 0;
}

/* Flushes it; its memory is the caller's again. By its owner, or after that thread has ended. */
INLAY_COLD void inlay_magazine_detach(struct inlay_magazine *mag)
{
	struct inlay_store_ *s;

	INLAY_CHECK(mag, "a magazine is not NULL");
	s = mag->inventory.store;
	inlay_magazine_flush(mag);
	__atomic_fetch_sub(&s->magazines, 1, __ATOMIC_RELEASE);
	mag->inventory.store = NULL;
}

/* ------------------------------------------------------------------------------------------------
 * Data path; internal
 */

/* At hand: what was given back, else what the depot gave, else more of that. Returns whether. */
INLAY_COLD int inlay_magazine_refill_(struct inlay_magazine *mag)
{
	struct inlay_inventory *inv = &mag->inventory;
	struct inlay_store_ *s = inv->store;
	struct inlay_batch_ batch;
	uint32_t n = 0;

	if (inv->back_bits) {
		inlay_inventory_load_(inv, inv->back, inv->back_bits);
		inv->back_bits = 0;
		return 1;
	}
	if (mag->num_back) {
		batch = mag->back[--mag->num_back];
		mag->sum_back -= inlay_ones_(batch.bits);
		inlay_inventory_load_(inv, batch.block, batch.bits);
		return 1;
	}
	if (!mag->num_stock) {
		inlay_lock(&s->lock);
		while (n < INLAY_MAGAZINE_ && (batch.block = inlay_store_pop_(s))) {
			batch.bits = batch.block->given;
			batch.block->given = 0;
			n += inlay_ones_(batch.bits);
			mag->stock[mag->num_stock++] = batch;
		}
		inlay_unlock(&s->lock);
		mag->refills++;
		if (!mag->num_stock)
			return 0;
	}
	batch = mag->stock[--mag->num_stock];
	inlay_inventory_load_(inv, batch.block, batch.bits);
	return 1;
}

/*
 * Releases turn to another block: those of the last one become a batch, and 64 descriptors or more
 * go to the depot. Returns whether inv is a magazine of the block's inventory; if not, nothing
 * happens.
 */
INLAY_COLD int inlay_magazine_turn_(struct inlay_inventory *inv, struct inlay_block_ *b)
{
	struct inlay_magazine *mag = inv->magazine;
	struct inlay_store_ *s = inv->store;

	if (!mag || b->store != s)
		return 0;
	if (inv->back_bits) {
		mag->back[mag->num_back].block = inv->back;
		mag->back[mag->num_back++].bits = inv->back_bits;
		mag->sum_back += inlay_ones_(inv->back_bits);
		if (mag->sum_back >= INLAY_MAGAZINE_) {
			inlay_lock(&s->lock);
			inlay_magazine_give_(s, mag->back, mag->num_back);
			inlay_unlock(&s->lock);
			mag->num_back = mag->sum_back = 0;
			mag->flushes++;
		}
	}
	inv->back = b;
	inv->back_bits = 0;
	return 1;
}

#endif
