/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf/shared.h: an inventory for many threads. Each thread gets and gives back through its
 * own magazine of free descriptors, without touching anything shared.
 *
 *   inlay_inventory_create(memory, inlay_inventory_size(65536), 65536, &inv);
 *   inlay_inventory_share(inv);                                 before the first start
 *   inlay_inventory_start(inv);
 *   inlay_magazine_attach(&mine, inv);                          each thread, in memory of its own
 *   ...
 *   inlay_inventory_get_by_data(&mine.inventory, &map, packet, len, &buf);
 *   ... another thread that was handed the buffer:
 *   inlay_inventory_dec_refcount(&its.inventory, buf, NULL);
 *   ...
 *   inlay_magazine_detach(&mine);                               before the thread ends
 *
 * All other free descriptors are in the inventory's store, under a lock. An empty magazine takes 64
 * or more from it; one that would hold more than 252 gives some back.
 *
 * Invariants:
 *   - inlay_inventory_get* and _dup take a magazine's inventory, other calls inv itself.
 *   - A get may return -EAGAIN while other magazines hold up to 252 free descriptors each.
 *   - The lock is held while some 64 descriptors move (an expand walks all new blocks). Waiters
 *     spin without a system call, so give busy threads CPUs of their own.
 *
 * Threads: a magazine has one owner at a time. Any thread may call the functions that take inv at
 * any time, except create, destroy, share and the setters; start and stop, one thread at a time.
 * Source: Bonwick and Adams, "Magazines and Vmem" (USENIX 2001).
 */
#ifndef INLAY_BUF_SHARED_H
#define INLAY_BUF_SHARED_H

#include <inlay/base.h>
#include <inlay/buf/store.h>

#define INLAY_MAGAZINE_ 64u              /* descriptors that move at a time, about */

/* Free descriptors of one block */
struct inlay_batch_ {
	struct inlay_block_ *block;
	uint64_t bits;
};

/* In the caller's memory, on a cache line */
struct inlay_magazine {
	struct inlay_inventory inventory;
	uint32_t num;                    /* batches */
	uint32_t sum;                    /* their descriptors, without the two batches in `inventory` */
	struct inlay_batch_ batch[2 * INLAY_MAGAZINE_];
};

/* ---- Set-up ---- */

/* Makes an empty magazine. Returns 0; -EINVAL when it is not on a cache line, or inv not shared. */
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

/* Gives all but the newest batches to the store, until at most `keep` descriptors are left. */
INLAY_COLD void inlay_magazine_give_(struct inlay_magazine *mag, uint32_t keep)
{
	struct inlay_store_ *s = mag->inventory.store;
	uint32_t i, n;

	inlay_lock(&s->lock);
	for (n = 0; mag->sum > keep; n++) {
		inlay_block_give_(mag->batch[n].block, mag->batch[n].bits);
		mag->sum -= inlay_ones_(mag->batch[n].bits);
	}
	inlay_unlock(&s->lock);
	mag->num -= n;
	for (i = 0; i < mag->num; i++)
		mag->batch[i] = mag->batch[n + i];
}

/* Adds a batch, unless it is empty. */
INLAY_COLD void inlay_magazine_push_(struct inlay_magazine *mag, struct inlay_block_ *block, uint64_t bits)
{
	if (!bits)
		return;
	if (mag->sum + inlay_ones_(bits) > 2 * INLAY_MAGAZINE_)
		inlay_magazine_give_(mag, INLAY_MAGAZINE_);
	mag->batch[mag->num].block = block;
	mag->batch[mag->num++].bits = bits;
	mag->sum += inlay_ones_(bits);
}

/* Gives back all that the magazine holds. Called by its owner, or after that thread has ended. */
INLAY_COLD void inlay_magazine_detach(struct inlay_magazine *mag)
{
	struct inlay_inventory *inv = &mag->inventory;

	INLAY_CHECK(mag, "a magazine is not NULL");
	inlay_magazine_push_(mag, inv->back, inv->back_bits);
	inlay_magazine_push_(mag, inlay_buf_block_(inv->page), inv->bits);
	inlay_magazine_give_(mag, 0);
	__atomic_fetch_sub(&inv->store->magazines, 1, __ATOMIC_RELEASE);
	inv->store = NULL;
}

/* ---- Data path; internal ---- */

/* Loads the batch given back last, else another, else one of the store's. Returns 0: none. */
INLAY_COLD int inlay_magazine_refill_(struct inlay_magazine *mag)
{
	struct inlay_inventory *inv = &mag->inventory;
	struct inlay_store_ *s = inv->store;
	struct inlay_batch_ batch = {inv->back, inv->back_bits};

	if (batch.bits) {
		inv->back_bits = 0;
	} else {
		if (!mag->num) {
			inlay_lock(&s->lock);
			while (mag->sum < INLAY_MAGAZINE_ && (batch.block = inlay_store_pop_(s))) {
				inlay_magazine_push_(mag, batch.block, batch.block->given);
				batch.block->given = 0;
			}
			inlay_unlock(&s->lock);
		}
		if (!mag->num)
			return 0;
		batch = mag->batch[--mag->num];
		mag->sum -= inlay_ones_(batch.bits);
	}
	inlay_inventory_load_(inv, batch.block, batch.bits);
	return 1;
}

/*
 * Releases go to another block from now on; those to the last one become a batch. Returns 0, and
 * does nothing, if inv is no magazine of the block's inventory.
 */
INLAY_COLD int inlay_magazine_turn_(struct inlay_inventory *inv, struct inlay_block_ *b)
{
	if (!inv->magazine || b->store != inv->store)
		return 0;
	inlay_magazine_push_(inv->magazine, inv->back, inv->back_bits);
	inv->back = b;
	inv->back_bits = 0;
	return 1;
}

#endif
