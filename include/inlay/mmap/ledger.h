/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap/ledger.h: who has buffers of a map, and how many are out: nobody counts, each says what it is, and the map adds up when asked.
 *
 *   map --first--> account --next--> account ...        each in another ledger
 *                     |
 *                  ledger: 8 accounts, each for one map
 *                     |
 *                  blocks: 62 descriptors and a byte of state for each, which names the account while it is out
 *
 * An owner of buffers (an inventory, a pool, a shared inventory) has a ledger, with an account for each map that it makes buffers of. A
 * buffer that is got or given back writes its own byte, and no two of them wait for each other, in one thread or in several. Who wants to
 * know how many are out looks at all bytes: a line for each 62 descriptors.
 *
 * The sum is exact while others do nothing. While they get and give back, what is out all the time is counted.
 *
 * A map that goes (stop, destroy) closes its accounts, and an owner that goes closes its own, whichever is first; both may do so at the
 * same time. Locks are taken in the order map, ledger; an owner, who finds the map by its ledger, tries, and lets go when it is the other
 * way round.
 *
 * Threads: each function says who may call it.
 */
#ifndef INLAY_MMAP_LEDGER_H
#define INLAY_MMAP_LEDGER_H

#include <inlay/base.h>

#define INLAY_LEDGER_ACCOUNTS 8u
#define INLAY_NO_MMAP ((struct inlay_mmap *)(uintptr_t)1) /* no map has this address, and NULL is not it: who passes NULL is told */

struct inlay_mmap;
struct inlay_store;

/*
 * States. A plain buffer is a live one with one reference, in no list; most are that all their life. The last three bits say which account
 * is its mmap's.
 */
#define INLAY_STATE_FREE 0x00u
#define INLAY_STATE_COUNTED 0x01u     /* a live one without an account: its mmap counts it */
#define INLAY_STATE_NONE 0x02u        /* no descriptor */
#define INLAY_STATE_OTHER 0x08u       /* to 0x0f: a live one that is not plain */
#define INLAY_STATE_SHARED 0x40u      /* to 0x47: a plain one of a shared inventory */
#define INLAY_STATE_PLAIN 0xf8u       /* to 0xff: a plain one: with the sign bit, which no other has */

/* A block's header */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_block {
	uint8_t state[64];                /* by line */
	struct inlay_store *store;
	uint64_t given;                   /* not 0: there are free ones; shared: which */
	struct inlay_block *next;         /* of those that have some */
	struct inlay_block *after;        /* of all blocks of the owner */
	uint64_t reserved[4];
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_block) == 2 * INLAY_CACHE_LINE, "a header is two lines");

/* In a map: who has accounts with it */
struct inlay_accounts {
	struct inlay_account *first;
	uint32_t lock;
	uint32_t reserved;
};

struct inlay_account {
	struct inlay_mmap *map;           /* NULL: open to any */
	struct inlay_accounts *in;        /* the map's */
	struct inlay_account *next;
	struct inlay_ledger *ledger;
};

/* A word by which a thread knows a map that it has looked at; it becomes INLAY_NO_MMAP when the map goes. */
struct inlay_shown {
	struct inlay_mmap **map;
	struct inlay_shown *next;
};

struct inlay_ledger {
	struct inlay_block *blocks;
	struct inlay_shown *shown;
	uint32_t lock;
	uint32_t reserved;
	struct inlay_account account[INLAY_LEDGER_ACCOUNTS];
};

/* ---- Locks that are held for some loads and stores ---- */

INLAY_ALWAYS int inlay_spin_try(uint32_t *lock)
{
	return !__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE);
}

INLAY_ALWAYS void inlay_spin_lock(uint32_t *lock)
{
	while (!inlay_spin_try(lock))
		while (__atomic_load_n(lock, __ATOMIC_RELAXED))
			inlay_relax();
}

INLAY_ALWAYS void inlay_spin_unlock(uint32_t *lock)
{
	__atomic_store_n(lock, 0, __ATOMIC_RELEASE);
}

/* ---- Counting ---- */

/* Eight states at once */
typedef uint64_t inlay_state_word __attribute__((may_alias));

#define INLAY_STATE_EACH 0x0101010101010101u

/* Eight bits: which of eight bytes are zero. */
INLAY_ALWAYS uint64_t inlay_state_zero(uint64_t x)
{
	uint64_t low = 0x7f * INLAY_STATE_EACH;

	x = ~(((x & low) + low) | x | low) >> 7;
	return x * 0x0102040810204080u >> 56;
}

/* Bits that are set. Not the builtin: it may be a call. */
INLAY_FN uint32_t inlay_state_ones(uint64_t x)
{
	if (!(x & (x - 1)))
		return x != 0;
	x -= x >> 1 & 0x5555555555555555;
	x = (x & 0x3333333333333333) + (x >> 2 & 0x3333333333333333);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f;
	return (uint32_t)(x * INLAY_STATE_EACH >> 56);
}

/* Which lines of a block have this state; by any thread. */
INLAY_FN uint64_t inlay_block_lines(const struct inlay_block *b, uint8_t state)
{
	const inlay_state_word *w = (const inlay_state_word *)(const void *)b->state;
	uint64_t lines = 0;
	uint32_t i;

	for (i = 0; i < 8; i++)
		lines |= inlay_state_zero(__atomic_load_n(&w[i], __ATOMIC_ACQUIRE) ^ state * INLAY_STATE_EACH) << 8 * i;
	return lines;
}

/* How many descriptors of a ledger are free; by any thread. */
INLAY_FN uint64_t inlay_ledger_free(const struct inlay_ledger *l)
{
	const struct inlay_block *b = __atomic_load_n(&l->blocks, __ATOMIC_ACQUIRE);
	uint64_t n = 0;

	for (; b; b = b->after)
		n += inlay_state_ones(inlay_block_lines(b, INLAY_STATE_FREE));
	return n;
}

/*
 * How many buffers of an account are out; by any thread. Each state is read once, whichever of the three it is: one that changes to another
 * of them meanwhile is not missed.
 */
INLAY_FN uint64_t inlay_ledger_live(const struct inlay_ledger *l, uint32_t account)
{
	const uint64_t plain = (INLAY_STATE_PLAIN + account) * INLAY_STATE_EACH, shared = (INLAY_STATE_SHARED + account) * INLAY_STATE_EACH;
	const uint64_t other = (INLAY_STATE_OTHER + account) * INLAY_STATE_EACH;
	const struct inlay_block *b = __atomic_load_n(&l->blocks, __ATOMIC_ACQUIRE);
	const inlay_state_word *w;
	uint64_t lines, x, n = 0;
	uint32_t i;

	for (; b; b = b->after) {
		w = (const inlay_state_word *)(const void *)b->state;
		for (i = 0, lines = 0; i < 8; i++) {
			x = __atomic_load_n(&w[i], __ATOMIC_ACQUIRE);
			lines |= (inlay_state_zero(x ^ plain) | inlay_state_zero(x ^ other) | inlay_state_zero(x ^ shared)) << 8 * i;
		}
		n += inlay_state_ones(lines);
	}
	return n;
}

/* Buffers of a map that are out, as far as accounts know; by any thread. */
INLAY_COLD uint64_t inlay_accounts_live(struct inlay_accounts *in)
{
	const struct inlay_account *a;
	uint64_t live = 0;

	inlay_spin_lock(&in->lock);
	for (a = in->first; a; a = a->next)
		live += inlay_ledger_live(a->ledger, (uint32_t)(a - a->ledger->account));
	inlay_spin_unlock(&in->lock);
	return live;
}

/* ---- Accounts come and go ---- */

/* A thread's word becomes one of the ledger's, or is no longer. */
INLAY_COLD void inlay_ledger_show(struct inlay_ledger *l, struct inlay_shown *shown, struct inlay_mmap **map)
{
	shown->map = map;
	inlay_spin_lock(&l->lock);
	shown->next = l->shown;
	l->shown = shown;
	inlay_spin_unlock(&l->lock);
}

INLAY_COLD void inlay_ledger_hide(struct inlay_ledger *l, struct inlay_shown *shown)
{
	struct inlay_shown **at;

	inlay_spin_lock(&l->lock);
	for (at = &l->shown; *at != shown; at = &(*at)->next)
		;
	*at = shown->next;
	inlay_spin_unlock(&l->lock);
}

/* Opens an account that is free, with a map that is in use. By one thread of the ledger's at a time. */
INLAY_COLD void inlay_account_open(struct inlay_account *a, struct inlay_ledger *l, struct inlay_mmap *map, struct inlay_accounts *in)
{
	inlay_spin_lock(&in->lock);
	inlay_spin_lock(&l->lock);
	a->ledger = l;
	a->in = in;
	a->next = in->first;
	in->first = a;
	__atomic_store_n(&a->map, map, __ATOMIC_RELAXED);
	inlay_spin_unlock(&l->lock);
	inlay_spin_unlock(&in->lock);
}

/* Takes it off the map's list, both locked. */
INLAY_COLD void inlay_account_unlink(struct inlay_account *a)
{
	struct inlay_account **at;

	for (at = &a->in->first; *at != a; at = &(*at)->next)
		;
	*at = a->next;
	__atomic_store_n(&a->map, NULL, __ATOMIC_RELAXED);
}

/* Closes an account, none of whose buffers is out, if the map has not. By its owner. */
INLAY_COLD void inlay_account_close(struct inlay_account *a)
{
	struct inlay_ledger *l = a->ledger;

	while (__atomic_load_n(&a->map, __ATOMIC_RELAXED)) {
		inlay_spin_lock(&l->lock);
		/* While the ledger is locked, a map that is there cannot go. */
		if (a->map && inlay_spin_try(&a->in->lock)) {
			struct inlay_accounts *in = a->in;

			inlay_account_unlink(a);
			inlay_spin_unlock(&in->lock);
		}
		inlay_spin_unlock(&l->lock);
		inlay_relax(); /* the map's turn, if it waits for the ledger */
	}
	/* The map may be about to let the ledger go. */
	if (l) {
		inlay_spin_lock(&l->lock);
		inlay_spin_unlock(&l->lock);
	}
}

INLAY_COLD void inlay_ledger_close(struct inlay_ledger *l)
{
	uint32_t i;

	for (i = 0; i < INLAY_LEDGER_ACCOUNTS; i++)
		inlay_account_close(&l->account[i]);
}

/* Closes all accounts of a map, none of whose buffers is out. By one thread, while no other uses the map. */
INLAY_COLD void inlay_accounts_close(struct inlay_accounts *in)
{
	struct inlay_account *a;
	const struct inlay_shown *shown;

	inlay_spin_lock(&in->lock);
	while ((a = in->first)) {
		struct inlay_ledger *l = a->ledger;
		struct inlay_mmap *map = a->map, *there;

		inlay_spin_lock(&l->lock);
		for (shown = l->shown; shown; shown = shown->next) {
			there = __atomic_load_n(shown->map, __ATOMIC_RELAXED);
			if (there == map)
				__atomic_compare_exchange_n(shown->map, &there, INLAY_NO_MMAP, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
		}
		inlay_account_unlink(a);
		inlay_spin_unlock(&l->lock);
	}
	inlay_spin_unlock(&in->lock);
}

#endif
