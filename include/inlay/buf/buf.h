/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf/buf.h: the buffer: a descriptor of memory in an mmap, with a window, a reference count, and links to others.
 *
 *   head                data             data + data_len            head + len
 *   |                   |                |                          |
 *   ---------------------================----------------------------       the buffer, and in it the window: what is posted
 *
 * A descriptor is one cache line. It holds the keys of its range, and begins with its gather entry, so that a post loads 16 bytes of it and
 * looks nothing up. Descriptors belong to an inventory, a pool or a shared inventory, and are made by nothing else.
 *
 *   +0   data, data_len, lkey      as in struct ibv_sge
 *   +16  head, len
 *   +32  mmap, rkey, range         where the keys are from
 *   +48  next, last                of a list
 *   +56  refcount, flags           written for lists, and for more than one reference
 *
 * Blocks. Descriptors lie in blocks of 4 KiB, 62 in each, beside a header of two lines:
 *
 *   | descriptor | descriptor | ... | header | state of each | ... | descriptor |
 *
 * A byte of state says whether a descriptor is free, or a live buffer with one reference and in no list (mmap/ledger.h): most are no more
 * than that until they are given back, and then their own line is not touched, which may be in another CPU's cache, or in none. A get finds
 * out once which ones of a block are free, and uses these up in the order of addresses; a release writes the byte. So neither waits for
 * what the other has just written, and buffers that came back in any order go out in the order in which memory is fastest.
 *
 * Lists. A list is named by its head; what follows is linked forwards, and the head knows the last one, so that lists are chained in a
 * constant time.
 *
 *   head ---next---> element ---next---> element          (next, last: signed distances in descriptors; 0: none)
 *     \--------------last----------------^
 *
 * Only the head is counted: the count of an element is always 1, and cannot be changed. At 0, the head's whole list goes back, each
 * descriptor to its owner. So a list needs one call to be posted, and one to be given back:
 *
 *   index = inlay_sq_index(&sq);
 *   inlay_post_write_bufs(&sq, raddr, rkey, head, INLAY_SIGNALED);              buf/post.h: the list as a gather list
 *   inflight[index & mask] = head;                                              file it by the index of its WQE
 *   ...
 *   inlay_buf_dec_refcount(inflight[inlay_cqe_wqe_counter(cqe) & mask], NULL);  its completion gives it back
 *
 * DOCA's rules, where they leave something open:
 *   - A window is at most 2^31 - 1 bytes: what an mlx5 gather entry can say. The buffer itself may be larger.
 *   - What DOCA calls undefined (a window outside of its buffer, a list named by what is not its head) is a precondition when only a walk
 *     or every access could tell, and an error where it costs nothing. inlay_buf_try_* check in both modes.
 *   - Buffers of several inventories may be in one list, when their descriptors lie within 128 GiB of each other.
 *   - chain_list with a tail is chain_list: the head keeps it.
 *
 * Threads: one owner of a buffer, and of its list, at a time; a buffer is returned to its inventory by whoever owns the inventory. Buffers
 * of a shared inventory are handed from thread to thread, and their reference counts are atomic; see buf/shared.h.
 * Sources: DOCA's documentation of doca_buf; struct ibv_sge of libibverbs.
 */
#ifndef INLAY_BUF_BUF_H
#define INLAY_BUF_BUF_H

#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/mmap/ledger.h>
#include <inlay/mmap/lookup.h>
#include <inlay/mmap/map.h>

#define INLAY_BUF_WINDOW 0x7fffffffu /* bytes of the largest window */

#define INLAY_BUF_ELEMENT 1u         /* flags: in a list, and not its head */

/* Where a buffer's keys are from */
struct inlay_origin {
	struct inlay_mmap *mmap;
	uint32_t rkey;
	uint32_t range;          /* id of the range in its mmap */
};

/* A free descriptor has a count of 1, no flags and no links, so that a get need not write them. */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_buf {
	uint8_t *data;
	uint32_t data_len;
	uint32_t lkey;
	uint8_t *head;
	uint64_t len;
	struct inlay_origin from;
	int32_t next;            /* descriptors from this one to the next of its list; 0: none */
	int32_t last;            /* of a head that has a next: to the last */
	uint16_t refcount;
	uint16_t flags;
	uint32_t reserved;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_buf) == INLAY_CACHE_LINE, "a descriptor is one line");
INLAY_STATIC_ASSERT(offsetof(struct inlay_buf, data_len) == offsetof(struct ibv_sge, length), "a descriptor begins with its entry");
INLAY_STATIC_ASSERT(offsetof(struct inlay_buf, lkey) == offsetof(struct ibv_sge, lkey), "a descriptor begins with its entry");

/* Length and key in one store */
typedef uint64_t inlay_buf_word __attribute__((may_alias));

#define INLAY_BLOCK 4096u
#define INLAY_BLOCK_BUFS 62u

/* A buffer to be: what inlay_inventory_get_by_args takes. */
struct inlay_buf_args {
	void *addr;
	size_t len;
	void *data;
	size_t data_len;
};

/* What gets look at: an inventory's own, or a magazine's */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_front {
	struct inlay_mmap *mmap; /* what is said here is of a range of it; INLAY_NO_MMAP: look anew. Others may make it that */
	uint64_t bits;           /* descriptors of the block at hand that are free */
	struct inlay_origin from;
	uint64_t start;          /* of the range */
	uint64_t len;
	uint64_t lkey;           /* in the upper half */
	uint64_t state;          /* of a buffer that is got now */
	uint8_t *page;           /* the block at hand, and its states */
	uint8_t *states;
	struct inlay_store *store;
	/* A magazine's */
	struct inlay_block *back; /* the block that was given to last */
	uint64_t back_bits;      /* what was given */
	uint64_t reserved;
	struct inlay_shown shown;
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_front, page) == INLAY_CACHE_LINE, "a line, and the next");
INLAY_STATIC_ASSERT(sizeof(struct inlay_front) == 2 * INLAY_CACHE_LINE, "two lines");

/*
 * What inventories, pools and shared inventories have in common: the start of their memory. Blocks follow, from the next 4 KiB on; those
 * added later are elsewhere.
 */
struct inlay_store {
	struct inlay_front front; /* not of a shared one, whose magazines have them */
	uint32_t floor;          /* 0: started; 1: stopped; 2: destroyed */
	uint32_t shared;
	uint32_t dev;            /* keys are those of this device of the mmap */
	uint32_t frozen;         /* was started once */
	uint64_t user_data;
	uint32_t strangers;      /* how often an mmap got no account */
	uint32_t reserved[9];
	struct inlay_ledger ledger;
	/* Written by who gives back; shared: under the lock */
	struct inlay_block *blocks __attribute__((aligned(INLAY_CACHE_LINE)));
	uint32_t lock;
	uint32_t num;            /* descriptors */
	uint32_t magazines;      /* shared: that are attached */
	uint32_t reserved2[11];
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_store) % INLAY_CACHE_LINE == 0, "whole lines");

/* From a to b, in lines. A shift: compilers divide when they save space. */
INLAY_ALWAYS int64_t inlay_store_lines(const void *a, const void *b)
{
	return ((intptr_t)b - (intptr_t)a) >> 6;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Where things are
 */

/*
 * Where a buffer's state is: on the first line of its block's header, by its line in the block. The header is at a place of each block's
 * own, which other bits of the address say, so that headers do not meet in the same sets of a cache.
 *
 *   address    | block 18 | 17 .. 12 | line 11 .. 6 | 0 |
 *   its state  | the same            | 17 .. 13 | 0 | line 11 .. 6 |
 */
INLAY_ALWAYS uint8_t *inlay_buf_state_at(const void *buf)
{
	uintptr_t at = (uintptr_t)buf;

	return (uint8_t *)((at & ~(uintptr_t)(INLAY_BLOCK - 1)) | (at >> 6 & 0xfbf));
}

INLAY_ALWAYS struct inlay_block *inlay_state_block(const uint8_t *state)
{
	return (struct inlay_block *)((uintptr_t)state & ~(uintptr_t)63);
}

INLAY_ALWAYS struct inlay_block *inlay_buf_block(const void *buf)
{
	return inlay_state_block(inlay_buf_state_at(buf));
}

/* The line in its block */
INLAY_ALWAYS unsigned inlay_buf_line(const struct inlay_buf *buf)
{
	return (unsigned)((uintptr_t)buf >> 6) & 63;
}

INLAY_ALWAYS uint8_t *inlay_block_page(const struct inlay_block *b)
{
	return (uint8_t *)((uintptr_t)b & ~(uintptr_t)(INLAY_BLOCK - 1));
}

/* Descriptor i of a block, 0 .. 61 */
INLAY_FN struct inlay_buf *inlay_block_buf(uint8_t *page, uint32_t i)
{
	struct inlay_buf *buf = (struct inlay_buf *)(void *)page + i;

	return (uint8_t *)buf < (uint8_t *)inlay_buf_block(page) ? buf : buf + 2;
}

/* Whom it belongs to. */
INLAY_ALWAYS struct inlay_store *inlay_buf_store(const struct inlay_buf *buf)
{
	return inlay_buf_block(buf)->store;
}

INLAY_ALWAYS uint8_t inlay_buf_state(const struct inlay_buf *buf)
{
	return __atomic_load_n(inlay_buf_state_at(buf), __ATOMIC_RELAXED);
}

INLAY_ALWAYS void inlay_buf_set_state(const struct inlay_buf *buf, uint8_t state)
{
	__atomic_store_n(inlay_buf_state_at(buf), state, __ATOMIC_RELEASE);
}

/* From here on a live buffer is more than one with one reference in no list. */
INLAY_FN void inlay_buf_other(struct inlay_buf *buf)
{
	uint8_t state = inlay_buf_state(buf);

	if (state >= INLAY_STATE_SHARED)
		inlay_buf_set_state(buf, (uint8_t)(INLAY_STATE_OTHER + state % INLAY_LEDGER_ACCOUNTS));
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up: what owners of descriptors do
 */

/* Bytes that hold num descriptors, wherever they begin; 0 when there are none, or above 2^30 with those that are there. */
INLAY_COLD size_t inlay_store_bytes(uint64_t num, uint64_t all)
{
	if (!num || all > (1u << 30))
		return 0;
	return (size_t)((num + INLAY_BLOCK_BUFS - 1) / INLAY_BLOCK_BUFS * INLAY_BLOCK + INLAY_BLOCK - INLAY_CACHE_LINE);
}

/* Where the first block is. */
INLAY_COLD uint8_t *inlay_store_page(void *memory)
{
	return (uint8_t *)(((uintptr_t)memory + INLAY_BLOCK - 1) & ~(uintptr_t)(INLAY_BLOCK - 1));
}

/*
 * Makes num descriptors in blocks that are linked, and writes to all of the memory, so that who works on blocks under a lock does not wait
 * for pages. Changes nothing of the store. Returns the first block.
 */
INLAY_COLD struct inlay_block *inlay_store_make(struct inlay_store *s, void *memory, size_t size, uint32_t num)
{
	uint8_t *page = inlay_store_page(memory);
	struct inlay_block *first = inlay_buf_block(page), *b;
	struct inlay_buf *buf;
	uint32_t i;

	__builtin_memset(memory, 0, size);
	for (;; page += INLAY_BLOCK) {
		b = inlay_buf_block(page);
		b->store = s;
		__builtin_memset(b->state, INLAY_STATE_NONE, sizeof(b->state));
		for (i = 0; i < INLAY_BLOCK_BUFS && num; i++, num--) {
			buf = inlay_block_buf(page, i);
			buf->refcount = 1;
			b->state[inlay_buf_line(buf)] = INLAY_STATE_FREE;
			b->given |= 1ull << inlay_buf_line(buf);
		}
		if (!num)
			return first;
		b->next = b->after = inlay_buf_block(page + INLAY_BLOCK);
	}
}

/* They are the store's, and found when those that it has are out. */
INLAY_COLD void inlay_store_adopt(struct inlay_store *s, struct inlay_block *first, uint32_t num)
{
	struct inlay_block *last = first, **end = &s->blocks;

	while (last->after)
		last = last->after;
	last->after = s->ledger.blocks;
	__atomic_store_n(&s->ledger.blocks, first, __ATOMIC_RELEASE);
	while (*end)
		end = &(*end)->next;
	*end = first;
	s->num += num;
}

/* The check of every create: memory on a line, large enough. */
INLAY_COLD int inlay_store_check(const void *memory, size_t size, size_t need)
{
	return !memory || (uintptr_t)memory % INLAY_CACHE_LINE || !need || size < need ? -EINVAL : 0;
}

/*
 * A store at the start of memory, not started, with its first descriptors. `head` bytes come before these: the object that begins with the
 * store.
 * Returns 0, or -EINVAL.
 */
INLAY_COLD int inlay_store_create(void *memory, size_t size, size_t head, uint32_t num, uint32_t shared)
{
	struct inlay_store *s = (struct inlay_store *)memory;
	size_t bytes = inlay_store_bytes(num, num);

	if (inlay_store_check(memory, size, bytes ? head + bytes : 0))
		return -EINVAL;
	__builtin_memset(memory, 0, head);
	s->floor = 1;
	s->shared = shared;
	s->front.store = s;
	s->front.mmap = INLAY_NO_MMAP;
	inlay_ledger_show(&s->ledger, &s->front.shown, &s->front.mmap);
	inlay_store_adopt(s, inlay_store_make(s, (uint8_t *)memory + head, bytes, num), num);
	return 0;
}

/* May there be more descriptors in memory of their own? See inlay_inventory_expand. */
INLAY_COLD int inlay_store_expandable(const struct inlay_store *s, const void *memory, size_t size, uint32_t num)
{
	int64_t at = inlay_store_lines(s, memory);
	size_t bytes = inlay_store_bytes(num, (uint64_t)s->num + num);

	if (__atomic_load_n(&s->floor, __ATOMIC_RELAXED))
		return -EBADFD;
	if (inlay_store_check(memory, size, bytes))
		return -EINVAL;
	if (at < -(1ll << 31) || at + (int64_t)(bytes / INLAY_CACHE_LINE) >= 1ll << 31)
		return -ERANGE;
	return 0;
}

/* What may be said before the first start only. Both return 0, or -EBADFD after it. */
INLAY_COLD int inlay_store_set_dev(struct inlay_store *s, uint32_t dev)
{
	if (s->frozen)
		return -EBADFD;
	s->dev = dev;
	return 0;
}

INLAY_COLD int inlay_store_set_user_data(struct inlay_store *s, uint64_t data)
{
	if (s->frozen)
		return -EBADFD;
	s->user_data = data;
	return 0;
}

INLAY_COLD int inlay_store_start(struct inlay_store *s)
{
	if (s->floor != 1)
		return -EBADFD;
	s->frozen = 1;
	__atomic_store_n(&s->floor, 0, __ATOMIC_RELEASE);
	return 0;
}

/* And no front goes on with what it has found before. */
INLAY_COLD int inlay_store_stop(struct inlay_store *s)
{
	const struct inlay_shown *shown;

	if (s->floor)
		return -EBADFD;
	__atomic_store_n(&s->floor, 1, __ATOMIC_SEQ_CST);
	inlay_spin_lock(&s->ledger.lock);
	for (shown = s->ledger.shown; shown; shown = shown->next)
		__atomic_store_n(shown->map, INLAY_NO_MMAP, __ATOMIC_SEQ_CST);
	inlay_spin_unlock(&s->ledger.lock);
	return 0;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: what owners of descriptors do
 */

/* The block has free descriptors. */
INLAY_ALWAYS void inlay_store_link(struct inlay_store *s, struct inlay_block *b)
{
	b->next = s->blocks;
	s->blocks = b;
}

/* In a shared one's: these. Under the lock. */
INLAY_FN void inlay_store_give(struct inlay_store *s, struct inlay_block *b, uint64_t bits)
{
	INLAY_CHECK(!(b->given & bits), "no buffer is given back twice");
	if (!b->given)
		inlay_store_link(s, b);
	b->given |= bits;
}

/* The block whose descriptors come first, which are the caller's; NULL: there is none. */
INLAY_ALWAYS struct inlay_block *inlay_store_pop(struct inlay_store *s)
{
	struct inlay_block *b = s->blocks;

	if (b) {
		s->blocks = b->next;
		__builtin_prefetch(b->next, 1);
		__builtin_prefetch((const void *)((uintptr_t)b->next + INLAY_CACHE_LINE), 1); /* of none, too */
	}
	return b;
}

/* They are at hand for gets now. */
INLAY_ALWAYS void inlay_front_load(struct inlay_front *f, struct inlay_block *b, uint64_t bits)
{
	f->page = inlay_block_page(b);
	f->states = b->state;
	f->bits = bits;
}

/* Another block for an inventory or a pool that has none at hand: all that are free in it. Returns whether there is one. */
INLAY_FN int inlay_store_refill(struct inlay_store *s)
{
	struct inlay_block *b = inlay_store_pop(s);

	if (!b)
		return 0;
	b->given = 0;
	inlay_front_load(&s->front, b, inlay_block_lines(b, INLAY_STATE_FREE));
	return 1;
}

/* The lowest bit's number. In 64 bits, so that compilers need not extend it; x is not 0. */
INLAY_ALWAYS uint64_t inlay_front_lowest(uint64_t x)
{
#if defined(__x86_64__)
	uint64_t i;

	/* CPUs that know tzcnt do that, which is the faster one; others bsf, which is the same here. */
	__asm__("rep bsfq %1, %0" : "=r"(i) : "r"(x) : "cc");
	return i;
#else
	return (unsigned)__builtin_ctzll(x);
#endif
}

/* A free descriptor of the block at hand, in which there is one, and its line. The state is still to be set. */
INLAY_ALWAYS struct inlay_buf *inlay_front_take(struct inlay_front *f, uint64_t *line)
{
	uint64_t bits = f->bits, i = inlay_front_lowest(bits);
	struct inlay_buf *buf = (struct inlay_buf *)(void *)f->page + i;

	f->bits = bits & (bits - 1);
	INLAY_CHECK(f->states[i] == INLAY_STATE_FREE && buf->refcount == 1 && !buf->flags && !buf->next,
		    "nobody writes to a buffer that was given back");
	*line = i;
	return buf;
}

/* Whether [data, data + data_len) lies in [head, head + len). */
INLAY_ALWAYS int inlay_buf_fits(const void *head, uint64_t len, const void *data, uint64_t data_len)
{
	uint64_t offset = (uint64_t)((uintptr_t)data - (uintptr_t)head);

	return offset <= len && data_len <= len - offset;
}

/* Writes a descriptor. */
INLAY_ALWAYS void inlay_buf_fill(struct inlay_buf *buf, const struct inlay_origin *from, uint64_t lkey, void *head, uint64_t len,
				 void *data, uint64_t data_len)
{
	INLAY_CHECK(inlay_buf_fits(head, len, data, data_len), "a window lies in its buffer");
	buf->data = (uint8_t *)data;
	*(inlay_buf_word *)(void *)&buf->data_len = data_len | lkey;
	buf->head = (uint8_t *)head;
	/* Nothing: it keeps compilers from gathering both into a vector first, which takes longer. */
	__asm__("" : "+r"(len));
	buf->len = len;
	buf->from = *from;
}

/* A buffer that was taken and filled is live. */
INLAY_FN void inlay_buf_begin(struct inlay_buf *buf, uint8_t state)
{
	if (state == INLAY_STATE_COUNTED)
		inlay_mmap_hold(buf->from.mmap);
	inlay_buf_set_state(buf, state);
}

/* A live buffer of any state becomes a free descriptor, alone, which the caller gives to where it belongs. */
INLAY_FN void inlay_buf_end(struct inlay_buf *buf)
{
	struct inlay_mmap *mmap = inlay_buf_state(buf) == INLAY_STATE_COUNTED ? buf->from.mmap : NULL;

	buf->next = 0;
	buf->flags = 0;
	__atomic_store_n(&buf->refcount, 1, __ATOMIC_RELAXED);
	inlay_buf_set_state(buf, INLAY_STATE_FREE);
	if (mmap)
		inlay_mmap_drop(mmap);
}

/* Gives one descriptor back, whatever it was: it is alone then, and free. */
INLAY_FN void inlay_buf_free(struct inlay_buf *buf)
{
	struct inlay_block *b = inlay_buf_block(buf);
	struct inlay_store *s = b->store;

	if (s->shared) {
		/* Free under the lock only: who destroys the inventory then finds nobody here. */
		inlay_spin_lock(&s->lock);
		inlay_buf_end(buf);
		inlay_store_give(s, b, 1ull << inlay_buf_line(buf));
		inlay_spin_unlock(&s->lock);
		return;
	}
	inlay_buf_end(buf);
	if (!b->given) {
		inlay_store_link(s, b);
		b->given = 1;
	}
}

/* ---- Which mmap counts where ---- */

/* The state of a plain buffer that an account counts */
INLAY_ALWAYS uint8_t inlay_store_state(const struct inlay_store *s, uint32_t account)
{
	return (uint8_t)((s->shared ? INLAY_STATE_SHARED : INLAY_STATE_PLAIN) + account);
}

/* The account of an mmap; INLAY_LEDGER_ACCOUNTS: it has none. NULL: one that is free. */
INLAY_FN uint32_t inlay_store_find(const struct inlay_store *s, const struct inlay_mmap *mmap)
{
	uint32_t i;

	for (i = 0; i < INLAY_LEDGER_ACCOUNTS; i++)
		if (__atomic_load_n(&s->ledger.account[i].map, __ATOMIC_RELAXED) == mmap)
			break;
	return i;
}

/* One for an mmap that has none: one that is free, or now and then one none of whose buffers is out, if one thread can tell. */
INLAY_COLD uint32_t inlay_store_open(struct inlay_store *s, struct inlay_mmap *mmap)
{
	uint32_t i;

	if (s->shared)
		inlay_spin_lock(&s->lock);
	i = inlay_store_find(s, mmap);
	if (i == INLAY_LEDGER_ACCOUNTS) {
		i = inlay_store_find(s, NULL);
		if (i == INLAY_LEDGER_ACCOUNTS && !s->shared && !(++s->strangers % 4096)) {
			for (i = 0; i < INLAY_LEDGER_ACCOUNTS && inlay_ledger_live(&s->ledger, i);)
				i++;
			if (i < INLAY_LEDGER_ACCOUNTS) {
				inlay_account_close(&s->ledger.account[i]);
				__atomic_store_n(&s->front.mmap, INLAY_NO_MMAP, __ATOMIC_RELAXED);
			}
		}
		if (i < INLAY_LEDGER_ACCOUNTS)
			inlay_account_open(&s->ledger.account[i], &s->ledger, mmap, &mmap->accounts);
	}
	if (s->shared)
		inlay_spin_unlock(&s->lock);
	return i;
}

/* The state of a buffer of that mmap, which is started, in a new descriptor: INLAY_STATE_COUNTED when the mmap has to count it. */
INLAY_FN uint8_t inlay_store_new_state(struct inlay_store *s, struct inlay_mmap *mmap)
{
	uint32_t i = inlay_store_find(s, mmap);

	if (INLAY_UNLIKELY(i == INLAY_LEDGER_ACCOUNTS))
		i = inlay_store_open(s, mmap);
	return i < INLAY_LEDGER_ACCOUNTS ? inlay_store_state(s, i) : INLAY_STATE_COUNTED;
}

/* The keys of a range for a device that is not the first; INLAY_NO_KEY, both, when the mmap has no such device. */
INLAY_FN struct inlay_keys inlay_store_other_keys(uint32_t dev, const struct inlay_mmap *mmap, uint32_t range)
{
	struct inlay_keys keys;

	if (inlay_mmap_keys(mmap, range, dev, &keys))
		keys.lkey = keys.rkey = INLAY_NO_KEY;
	return keys;
}

/* The keys of a range for the owner's device. 0, or -ENOENT when the mmap has no such device (an mmap without devices has a first one). */
INLAY_ALWAYS int inlay_store_keys(uint32_t dev, const struct inlay_mmap *mmap, const struct inlay_range *r, struct inlay_keys *keys)
{
	keys->lkey = r->lkey;
	keys->rkey = r->rkey;
	if (INLAY_LIKELY(!dev))
		return 0;
	*keys = inlay_store_other_keys(dev, mmap, r->id);
	return keys->lkey == INLAY_NO_KEY ? -ENOENT : 0;
}

/*
 * Turns a front to the range of an mmap that holds [addr, addr + len): looks it up, and its keys and its account. An mmap without an
 * account is looked up each time. Returns 0, or the error of a get.
 */
INLAY_COLD int inlay_front_turn(struct inlay_front *f, struct inlay_mmap *mmap, const void *addr, size_t len,
				size_t data_len)
{
	struct inlay_store *s = f->store;
	const struct inlay_range *r;
	struct inlay_keys keys;

	if (!mmap)
		return -EINVAL;
	if (__atomic_load_n(&s->floor, __ATOMIC_RELAXED) || !inlay_mmap_started(mmap))
		return -EBADFD;
	r = inlay_mmap_find(mmap, addr, len);
	if (data_len > INLAY_BUF_WINDOW || !r)
		return -EINVAL;
	if (inlay_store_keys(s->dev, mmap, r, &keys))
		return -ENOENT;
	if (s->shared && !mmap->thread_safe)
		return -EPERM;
	if (__atomic_load_n(&f->mmap, __ATOMIC_RELAXED) != mmap)
		f->state = inlay_store_new_state(s, mmap);
	f->from.mmap = mmap;
	f->from.rkey = keys.rkey;
	f->from.range = r->id;
	f->start = r->start;
	f->len = r->len;
	f->lkey = (uint64_t)keys.lkey << 32;
	/* Whoever stops a shared inventory sees this, or is seen here. */
	__atomic_store_n(&f->mmap, f->state != INLAY_STATE_COUNTED ? mmap : INLAY_NO_MMAP, s->shared ? __ATOMIC_SEQ_CST : __ATOMIC_RELAXED);
	if (s->shared && __atomic_load_n(&s->floor, __ATOMIC_SEQ_CST)) {
		__atomic_store_n(&f->mmap, INLAY_NO_MMAP, __ATOMIC_RELAXED);
		return -EBADFD;
	}
	return 0;
}

/* Whether a front is turned to where the buffer shall be, and has a descriptor. */
INLAY_ALWAYS int inlay_front_ready(const struct inlay_front *f, const struct inlay_mmap *mmap, const void *addr, size_t len,
				   size_t data_len)
{
	return INLAY_LIKELY(__atomic_load_n(&f->mmap, __ATOMIC_RELAXED) == mmap) &&
	       inlay_lookup_holds(f->start, f->len, (uintptr_t)addr, len) && INLAY_LIKELY(f->bits != 0) &&
	       INLAY_LIKELY(data_len <= INLAY_BUF_WINDOW);
}

/* A buffer from a front that is ready. */
INLAY_ALWAYS struct inlay_buf *inlay_front_get(struct inlay_front *f, void *addr, size_t len, void *data, size_t data_len)
{
	uint64_t line;
	struct inlay_buf *buf = inlay_front_take(f, &line);
	uint8_t *states = f->states;
	uint8_t state = (uint8_t)f->state;

	inlay_buf_fill(buf, &f->from, f->lkey, addr, len, data, data_len);
	__atomic_store_n(&states[line], state, __ATOMIC_RELAXED);
	return buf;
}

/* Several, from a front that is ready for the first: up to the first one that it is not ready for. Returns how many. */
INLAY_ALWAYS uint32_t inlay_front_get_many(struct inlay_front *f, const struct inlay_buf_args *args, uint32_t n, struct inlay_buf **bufs)
{
	const struct inlay_origin from = f->from;
	const uint64_t start = f->start, len = f->len, lkey = f->lkey;
	uint8_t *states = f->states, state = (uint8_t)f->state;
	struct inlay_buf *page = (struct inlay_buf *)(void *)f->page;
	uint64_t bits = f->bits, line;
	uint32_t i = 0;

	do {
		line = inlay_front_lowest(bits);
		bits &= bits - 1;
		INLAY_CHECK(states[line] == INLAY_STATE_FREE && page[line].refcount == 1 && !page[line].flags && !page[line].next,
			    "nobody writes to a buffer that was given back");
		inlay_buf_fill(&page[line], &from, lkey, args[i].addr, args[i].len, args[i].data, args[i].data_len);
		__atomic_store_n(&states[line], state, __ATOMIC_RELAXED);
		bufs[i] = &page[line];
	} while (++i < n && bits && inlay_lookup_holds(start, len, (uintptr_t)args[i].addr, args[i].len) &&
		 args[i].data_len <= INLAY_BUF_WINDOW);
	f->bits = bits;
	return i;
}

/* Likewise when the mmap may have no account. */
INLAY_FN struct inlay_buf *inlay_front_get_any(struct inlay_front *f, void *addr, size_t len, void *data, size_t data_len)
{
	uint64_t line;
	struct inlay_buf *buf = inlay_front_take(f, &line);

	inlay_buf_fill(buf, &f->from, f->lkey, addr, len, data, data_len);
	inlay_buf_begin(buf, (uint8_t)f->state);
	return buf;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: the buffer
 */

/* The buffer's start and size. */
INLAY_FN void *inlay_buf_head(const struct inlay_buf *buf)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	return buf->head;
}

INLAY_FN size_t inlay_buf_len(const struct inlay_buf *buf)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	return (size_t)buf->len;
}

/* The window. */
INLAY_FN void *inlay_buf_data(const struct inlay_buf *buf)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	return buf->data;
}

INLAY_FN size_t inlay_buf_data_len(const struct inlay_buf *buf)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	return buf->data_len;
}

/* The window as a gather or scatter entry. */
INLAY_ALWAYS struct ibv_sge inlay_buf_sge(const struct inlay_buf *buf)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	struct ibv_sge sge = {(uintptr_t)buf->data, buf->data_len, buf->lkey};

	return sge;
}

/* The mmap it lies in, and the keys of its range for the device that its owner was made for. */
INLAY_FN struct inlay_mmap *inlay_buf_mmap(const struct inlay_buf *buf)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	return buf->from.mmap;
}

INLAY_FN uint32_t inlay_buf_lkey(const struct inlay_buf *buf)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	return buf->lkey;
}

INLAY_FN uint32_t inlay_buf_rkey(const struct inlay_buf *buf)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	return buf->from.rkey;
}

/* Its keys for any device of its mmap, by the order of adding. Returns as inlay_mmap_keys does. */
INLAY_FN int inlay_buf_keys(const struct inlay_buf *buf, uint32_t dev, struct inlay_keys *keys)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	return inlay_mmap_keys(buf->from.mmap, buf->from.range, dev, keys);
}

/* Sets the window, which must lie in the buffer: [data, data + data_len) in [head, head + len). */
INLAY_ALWAYS void inlay_buf_set_data(struct inlay_buf *buf, void *data, size_t data_len)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	INLAY_CHECK(data_len <= INLAY_BUF_WINDOW, "a window is at most 2^31 - 1 bytes");
	INLAY_CHECK(inlay_buf_fits(buf->head, buf->len, data, data_len), "a window lies in its buffer");
	buf->data = (uint8_t *)data;
	buf->data_len = (uint32_t)data_len;
}

/* Sets the window's size, likewise; it begins where it did. */
INLAY_ALWAYS void inlay_buf_set_data_len(struct inlay_buf *buf, size_t data_len)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	inlay_buf_set_data(buf, buf->data, data_len);
}

/* Empties the window; it begins where it did. */
INLAY_ALWAYS void inlay_buf_reset_data_len(struct inlay_buf *buf)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	buf->data_len = 0;
}

/* Both setters for windows that come from outside. Return 0, or -EINVAL for one that does not lie in the buffer or is too large. */
INLAY_ALWAYS int inlay_buf_try_set_data(struct inlay_buf *buf, void *data, size_t data_len)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	if (INLAY_UNLIKELY(data_len > INLAY_BUF_WINDOW || !inlay_buf_fits(buf->head, buf->len, data, data_len)))
		return -EINVAL;
	inlay_buf_set_data(buf, data, data_len);
	return 0;
}

INLAY_ALWAYS int inlay_buf_try_set_data_len(struct inlay_buf *buf, size_t data_len)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	return inlay_buf_try_set_data(buf, buf->data, data_len);
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: lists
 */

/* The next buffer of the list, or NULL. */
INLAY_ALWAYS struct inlay_buf *inlay_buf_next(const struct inlay_buf *buf)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	return buf->next ? (struct inlay_buf *)((uintptr_t)buf + (uintptr_t)((intptr_t)buf->next * (intptr_t)sizeof(*buf))) : NULL;
}

/* A lone buffer is first and last, and in no list. */
INLAY_FN int inlay_buf_is_first(const struct inlay_buf *buf)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	return !(buf->flags & INLAY_BUF_ELEMENT);
}

INLAY_FN int inlay_buf_is_last(const struct inlay_buf *buf)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	return !buf->next;
}

INLAY_FN int inlay_buf_in_list(const struct inlay_buf *buf)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	return buf->next || buf->flags & INLAY_BUF_ELEMENT;
}

/* The last of the list that buf is in; buf itself when it is in none. Of a head, at once; of an element, by going there. */
INLAY_FN struct inlay_buf *inlay_buf_last(const struct inlay_buf *buf)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	if (!(buf->flags & INLAY_BUF_ELEMENT) && buf->next)
		return (struct inlay_buf *)((uintptr_t)buf + (uintptr_t)((intptr_t)buf->last * (intptr_t)sizeof(*buf)));
	while (buf->next)
		buf = inlay_buf_next(buf);
	return (struct inlay_buf *)(uintptr_t)buf;
}

/* The buffers of a list; 1 for a lone one. -EPERM when buf is not a head. */
INLAY_FN int inlay_buf_list_len(const struct inlay_buf *buf)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	int n = 1;

	if (buf->flags & INLAY_BUF_ELEMENT)
		return -EPERM;
	while ((buf = inlay_buf_next(buf)))
		n++;
	return n;
}

/* The sum of all windows from buf to the end of its list. */
INLAY_FN uint64_t inlay_buf_list_bytes(const struct inlay_buf *buf)
{
	uint64_t sum = 0;

	for (; buf; buf = inlay_buf_next(buf))
		sum += buf->data_len;
	return sum;
}

/* Descriptors from a to b; 0 when they are too far apart for a link. */
INLAY_ALWAYS int32_t inlay_buf_distance(const struct inlay_buf *a, const struct inlay_buf *b)
{
	int64_t far = inlay_store_lines(a, b);

	return far == (int32_t)far ? (int32_t)far : 0;
}

/* References; 0: it was given back. 1 for an element of a list. */
INLAY_FN uint16_t inlay_buf_refcount(const struct inlay_buf *buf)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	return inlay_buf_state(buf) == INLAY_STATE_FREE ? 0 : __atomic_load_n(&buf->refcount, __ATOMIC_RELAXED);
}

/*
 * Appends list2 to list1: both are heads (or lone buffers), and then list1 alone is. list2 loses its count, which is 1.
 *
 * Returns 0; -EPERM when one is not a head, or list2 has another count than 1; -EINVAL when both are the same, or list1 was given back;
 * -ERANGE when they are more than 128 GiB apart.
 */
INLAY_ALWAYS int inlay_buf_chain_list(struct inlay_buf *list1, struct inlay_buf *list2)
{
	INLAY_CHECK(list1, "a buffer is not NULL");
	struct inlay_buf *tail1, *tail2;
	int32_t link, last;

	if (INLAY_UNLIKELY((list1->flags | list2->flags) & INLAY_BUF_ELEMENT) || INLAY_UNLIKELY(inlay_buf_refcount(list2) != 1))
		return -EPERM;
	if (INLAY_UNLIKELY(list1 == list2) || INLAY_UNLIKELY(!inlay_buf_refcount(list1)))
		return -EINVAL;
	tail1 = inlay_buf_last(list1);
	tail2 = inlay_buf_last(list2);
	link = inlay_buf_distance(tail1, list2);
	last = inlay_buf_distance(list1, tail2);
	if (INLAY_UNLIKELY(!link) || INLAY_UNLIKELY(!last))
		return -ERANGE;
	inlay_buf_other(list1);
	inlay_buf_other(list2);
	tail1->next = link;
	list1->last = last;
	list2->flags |= INLAY_BUF_ELEMENT;
	return 0;
}

/* The same for who has kept the tail of list1, as DOCA wants it. -EPERM also when it is another. */
INLAY_ALWAYS int inlay_buf_chain_list_tail(struct inlay_buf *list1, const struct inlay_buf *tail, struct inlay_buf *list2)
{
	INLAY_CHECK(list1, "a buffer is not NULL");
	if (INLAY_UNLIKELY(list1->flags & INLAY_BUF_ELEMENT) || INLAY_UNLIKELY(inlay_buf_last(list1) != tail))
		return -EPERM;
	return inlay_buf_chain_list(list1, list2);
}

/*
 * Cuts a list in two: list2, an element of it, becomes the head of what follows, with a count of 1. Takes as long as it is far from
 * list1 to there.
 *
 * Returns 0; -EPERM when list1 is not a head; -EINVAL when list2 is not behind it; -ERANGE when one of both would have its first and its
 * last more than 128 GiB apart. Nothing is changed then.
 */
INLAY_FN int inlay_buf_unchain_list(struct inlay_buf *list1, struct inlay_buf *list2)
{
	INLAY_CHECK(list1, "a buffer is not NULL");
	struct inlay_buf *before = list1, *next, *tail;
	int32_t last1, last2;

	if (list1->flags & INLAY_BUF_ELEMENT)
		return -EPERM;
	while ((next = inlay_buf_next(before)) && next != list2)
		before = next;
	if (!next)
		return -EINVAL;
	tail = inlay_buf_last(list1);
	last1 = inlay_buf_distance(list1, before);
	last2 = inlay_buf_distance(list2, tail);
	if ((!last1 && before != list1) || (!last2 && tail != list2))
		return -ERANGE;
	before->next = 0;
	list1->last = last1;
	list2->last = last2;
	list2->flags &= (uint16_t)~INLAY_BUF_ELEMENT;
	return 0;
}

/*
 * The windows from buf to the end of its list as gather entries; empty ones are left out, which post nothing. Returns how many there are,
 * or -ENOSPC when there are more than max; then sge[] is undefined.
 */
INLAY_FN int inlay_buf_sges(const struct inlay_buf *buf, struct ibv_sge *sge, uint32_t max)
{
	uint32_t n = 0;

	for (; buf; buf = inlay_buf_next(buf)) {
		if (INLAY_UNLIKELY(!buf->data_len))
			continue;
		if (INLAY_UNLIKELY(n == max))
			return -ENOSPC;
		sge[n++] = inlay_buf_sge(buf);
	}
	return (int)n;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: references
 */

/*
 * One reference more. prev: how many there were, or NULL.
 *
 * Returns 0; -EPERM for an element of a list; -E2BIG at 65535; -EBADFD when it was given back.
 */
INLAY_FN int inlay_buf_inc_refcount(struct inlay_buf *buf, uint16_t *prev)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	uint16_t count = inlay_buf_refcount(buf);

	if (INLAY_UNLIKELY(buf->flags & INLAY_BUF_ELEMENT))
		return -EPERM;
	if (INLAY_UNLIKELY(!count))
		return -EBADFD;
	/* Where the only reference is the caller's, nobody else looks at the state. */
	inlay_buf_other(buf);
	do {
		if (INLAY_UNLIKELY(count == UINT16_MAX))
			return -E2BIG;
		if (!inlay_buf_store(buf)->shared) {
			buf->refcount = (uint16_t)(count + 1);
			break;
		}
	} while (!__atomic_compare_exchange_n(&buf->refcount, &count, (uint16_t)(count + 1), 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	if (prev)
		*prev = count;
	return 0;
}

/*
 * Takes away a reference of a buffer of any kind, in any state. Returns how many there were (1: the buffer is now the caller's alone, to be
 * given back), or the error of inlay_buf_dec_refcount.
 */
INLAY_FN int inlay_buf_unref(struct inlay_buf *buf)
{
	uint16_t count = __atomic_load_n(&buf->refcount, __ATOMIC_ACQUIRE);

	if (inlay_buf_state(buf) == INLAY_STATE_FREE)
		return -EBADFD;
	if (buf->flags & INLAY_BUF_ELEMENT)
		return -EPERM;
	if (count == 1)
		return 1; /* nobody else has one */
	if (inlay_buf_store(buf)->shared)
		return __atomic_fetch_sub(&buf->refcount, 1, __ATOMIC_ACQ_REL);
	buf->refcount = (uint16_t)(count - 1);
	return count;
}

/* inlay_buf_dec_refcount of what is not a plain buffer. */
INLAY_COLD int inlay_buf_dec_other(struct inlay_buf *buf, uint16_t *prev)
{
	int count = inlay_buf_unref(buf);
	struct inlay_buf *next;

	if (count < 0)
		return count;
	if (prev)
		*prev = (uint16_t)count;
	if (count == 1) {
		for (; buf; buf = next) {
			next = inlay_buf_next(buf);
			inlay_buf_free(buf);
		}
	}
	return 0;
}

/*
 * One reference less. The last one gives the buffer, and all others of its list, back to where they are from. prev: how many there were, or
 * NULL.
 *
 * Works for every buffer; those of a shared inventory go to its depot, under its lock (inlay_magazine_dec_refcount is the way without).
 *
 * Returns 0; -EPERM for an element of a list; -EBADFD when it was given back.
 */
INLAY_ALWAYS int inlay_buf_dec_refcount(struct inlay_buf *buf, uint16_t *prev)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	uint8_t *state = inlay_buf_state_at(buf);
	struct inlay_block *b = inlay_state_block(state);

	/* Only who has the buffer writes it. */
	if (INLAY_UNLIKELY(*state < INLAY_STATE_PLAIN))
		return inlay_buf_dec_other(buf, prev);
	if (INLAY_UNLIKELY(!b->given)) {
		inlay_store_link(b->store, b);
		b->given = 1;
	}
	__atomic_store_n(state, INLAY_STATE_FREE, __ATOMIC_RELEASE);
	if (prev)
		*prev = 1;
	return 0;
}

/* Gives back many: inlay_buf_dec_refcount of each. Returns how many it was done for: n, or fewer when bufs[returned] was refused. */
INLAY_FN uint32_t inlay_buf_put(struct inlay_buf *const *bufs, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (INLAY_UNLIKELY(inlay_buf_dec_refcount(bufs[i], NULL)))
			break;
	return i;
}

#endif
