/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf/store.h: the block store under inventories and pools: where descriptors lie, which are
 * free, and the maps of their buffers. Everything here is internal.
 *
 * Blocks. Descriptors lie in blocks of 4 KiB, 62 in each, around a header of two lines:
 *
 *   | descriptor | descriptor | ... | states | header | ... | descriptor |
 *
 * A descriptor has a byte of state. Most buffers are plain all their life: live, one reference, in
 * no list. Giving a plain buffer back writes only its state, because the descriptor may be in
 * another CPU's cache, or in none. A get reads the states of a block once and uses up its free
 * descriptors in the order of addresses, in which memory is fastest.
 *
 * Counting. Gets and releases count nothing. A store has ties to up to eight maps, and a map counts
 * the live descriptors of the stores tied to it. A buffer of a further map holds its map itself.
 *
 * Turns. An inventory remembers the range that its last get found. Stopping the store or a tied map
 * increments store->turn; the remembered range is then void.
 */
#ifndef INLAY_BUF_STORE_H
#define INLAY_BUF_STORE_H

#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/mmap/map.h>

#define INLAY_STORE_TIES_ 8u
#define INLAY_BLOCK_ 4096u
#define INLAY_BLOCK_BUFS_ 62u
#define INLAY_STORE_MAX_ (1u << 30)  /* descriptors */

/* A free descriptor has a count of 1, no flags and no next, so a get need not write them. */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_buf {
	uint8_t *data;           /* the data: [data, data + data_len) */
	uint32_t data_len;
	struct inlay_keys keys;
	uint16_t refcount;
	uint16_t flags;
	uint8_t *head;           /* the buffer: [head, head + len) */
	uint64_t len;
	struct inlay_mmap *mmap; /* it lies in a range of this map */
	struct inlay_buf *next;  /* of its list, or NULL */
	struct inlay_buf *last;  /* of a head that has a next */
};

#define INLAY_BUF_ELEMENT_ 1u /* flags: in a list, and not its head */

INLAY_STATIC_ASSERT(sizeof(struct inlay_buf) == INLAY_CACHE_LINE, "a descriptor is one line");
INLAY_STATIC_ASSERT(offsetof(struct inlay_buf, data_len) == offsetof(struct ibv_sge, length) &&
		    offsetof(struct inlay_buf, keys.lkey) == offsetof(struct ibv_sge, lkey), "it begins as an entry");

#define INLAY_BUF_FREE_ 0x00u
#define INLAY_BUF_NONE_ 0x01u   /* there is no descriptor */
#define INLAY_BUF_HELD_ 0x02u   /* live, and it holds its map itself */
#define INLAY_BUF_OTHER_ 0x04u  /* live, and was in a list or had several references */
#define INLAY_BUF_SHARED_ 0x08u /* plain, of a shared inventory */
#define INLAY_BUF_PLAIN_ 0x80u  /* plain; the only one with a sign bit */

struct inlay_store_;

struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_block_ {
	uint8_t state[64];            /* by line */
	struct inlay_store_ *store;
	uint64_t given;               /* not 0: some are free, and it is listed; shared: which lines */
	struct inlay_block_ *next;    /* the next listed one */
	struct inlay_block_ *after;   /* the next of all */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_block_) == 2 * INLAY_CACHE_LINE, "a header is two lines");

struct inlay_tie_ {
	struct inlay_holder_ holder;
	struct inlay_store_ *store;
};

enum inlay_store_state_ { INLAY_STORE_STARTED_, INLAY_STORE_STOPPED_, INLAY_STORE_DESTROYED_ };

struct inlay_store_ {
	uint64_t turn;                /* 1 until it is first stopped */
	uint64_t user_data;
	struct inlay_block_ *all;
	uint32_t state;               /* enum inlay_store_state_ */
	uint32_t shared;
	uint32_t dev;                 /* number, in their map, of the device whose keys buffers have */
	uint32_t pool;                /* a pool's: its descriptors keep their slices */
	/* Written by releases; shared: under the lock */
	struct inlay_block_ *blocks __attribute__((aligned(INLAY_CACHE_LINE)));
	uint32_t lock;
	uint32_t num;                 /* descriptors */
	uint32_t magazines;           /* attached */
	struct inlay_tie_ tie[INLAY_STORE_TIES_];
};

/* Free descriptors for one thread, and the range of its last get */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_inventory {
	struct inlay_mmap *mmap;
	uint64_t turn;                /* store->turn at that get; 0: no range is remembered */
	uint64_t start, len;          /* of the range */
	struct inlay_keys keys;
	uint32_t state;               /* of the next buffer */
	struct inlay_store_ *store;
	uint64_t bits;                /* lines of page that are free */
	uint8_t *page;                /* the block at hand, and its states */
	uint8_t *states;
	struct inlay_magazine *magazine; /* that contains this (shared.h), or NULL */
	struct inlay_block_ *back;    /* the block of the last release, and the lines given back */
	uint64_t back_bits;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_inventory) == 2 * INLAY_CACHE_LINE, "two lines");

/* ---- Where things are ---- */

INLAY_ALWAYS const struct inlay_buf *inlay_buf_(const struct inlay_buf *buf)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	return buf;
}

INLAY_ALWAYS const struct inlay_inventory *inlay_inventory_(const struct inlay_inventory *inv)
{
	INLAY_CHECK(inv, "an inventory is not NULL");
	return inv;
}

/*
 * The state of a descriptor, in the first line of its block's header. Address bits choose the
 * header's place in the block, so that headers do not share cache sets.
 *
 *   address    | block 18 | 17 .. 12 | line 11 .. 6 | 0 |
 *   its state  | the same            | 17 .. 13 | 0 | line 11 .. 6 |
 */
INLAY_ALWAYS uint8_t *inlay_buf_state_at_(const void *buf)
{
	uintptr_t at = (uintptr_t)buf;

	return (uint8_t *)((at & ~(uintptr_t)(INLAY_BLOCK_ - 1)) | (at >> 6 & 0xfbf));
}

INLAY_ALWAYS struct inlay_block_ *inlay_state_block_(const uint8_t *state)
{
	return (struct inlay_block_ *)((uintptr_t)state & ~(uintptr_t)63);
}

INLAY_ALWAYS struct inlay_block_ *inlay_buf_block_(const void *buf)
{
	return inlay_state_block_(inlay_buf_state_at_(buf));
}

INLAY_ALWAYS unsigned inlay_buf_line_(const struct inlay_buf *buf)
{
	return (unsigned)((uintptr_t)buf >> 6) & 63;
}

INLAY_ALWAYS uint8_t *inlay_block_page_(const struct inlay_block_ *b)
{
	return (uint8_t *)((uintptr_t)b & ~(uintptr_t)(INLAY_BLOCK_ - 1));
}

/* Descriptor i of a block, 0 .. 61. */
INLAY_FN struct inlay_buf *inlay_block_buf_(uint8_t *page, uint32_t i)
{
	struct inlay_buf *buf = (struct inlay_buf *)(void *)page + i;

	return (uint8_t *)buf < (uint8_t *)inlay_buf_block_(page) ? buf : buf + 2;
}

INLAY_ALWAYS uint8_t inlay_buf_state_(const struct inlay_buf *buf)
{
	return __atomic_load_n(inlay_buf_state_at_(buf), __ATOMIC_RELAXED);
}

/* With HELD, the buffer holds its map from now on. */
INLAY_ALWAYS void inlay_buf_set_state_(const struct inlay_buf *buf, uint8_t state)
{
	if (state == INLAY_BUF_HELD_)
		inlay_mmap_hold(buf->mmap);
	__atomic_store_n(inlay_buf_state_at_(buf), state, __ATOMIC_RELEASE);
}

/* ---- Counting; by any thread ---- */

/* How many bits are set. The builtin may be a call. */
INLAY_FN uint32_t inlay_ones_(uint64_t x)
{
	x -= x >> 1 & 0x5555555555555555;
	x = (x & 0x3333333333333333) + (x >> 2 & 0x3333333333333333);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f;
	return (uint32_t)(x * 0x0101010101010101u >> 56);
}

typedef uint64_t inlay_states_ __attribute__((may_alias)); /* eight of them */

/* Which descriptors of a block are free, by line. */
INLAY_FN uint64_t inlay_block_free_(const struct inlay_block_ *b)
{
	const uint64_t low = 0x7f7f7f7f7f7f7f7fu;
	uint64_t lines = 0, x;
	uint32_t i;

	for (i = 0; i < 8; i++) {
		x = __atomic_load_n((const inlay_states_ *)(const void *)b->state + i, __ATOMIC_ACQUIRE);
		/* 0x01 in each byte that was 0; the product gathers the ones in the top byte */
		x = ~(((x & low) + low) | x | low) >> 7;
		lines |= (x * 0x0102040810204080u >> 56) << 8 * i;
	}
	return lines;
}

INLAY_FN uint32_t inlay_store_free_(const struct inlay_store_ *s)
{
	const struct inlay_block_ *b = __atomic_load_n(&s->all, __ATOMIC_ACQUIRE);
	uint32_t n = 0;

	for (; b; b = b->after)
		n += inlay_ones_(inlay_block_free_(b));
	return n;
}

/* Live descriptors of the map, except those that hold it themselves. */
INLAY_COLD uint64_t inlay_tie_count_(const struct inlay_holder_ *h)
{
	const struct inlay_store_ *s = ((const struct inlay_tie_ *)(const void *)h)->store;
	const struct inlay_block_ *b = __atomic_load_n(&s->all, __ATOMIC_ACQUIRE);
	const struct inlay_buf *buf;
	uint64_t n = 0;
	uint32_t line;

	for (; b; b = b->after) {
		buf = (const struct inlay_buf *)(const void *)inlay_block_page_(b);
		for (line = 0; line < 64; line++)
			if (__atomic_load_n(&b->state[line], __ATOMIC_ACQUIRE) >= INLAY_BUF_OTHER_)
				n += __atomic_load_n(&buf[line].mmap, __ATOMIC_RELAXED) == h->map;
	}
	return n;
}

/* ---- Set-up ---- */

/* Bytes for an object of `head` bytes, a store and num descriptors; 0 when there cannot be one. */
INLAY_COLD size_t inlay_store_size_(size_t head, uint64_t num)
{
	if (!num || num > INLAY_STORE_MAX_)
		return 0;
	return head + sizeof(struct inlay_store_) + (num + INLAY_BLOCK_BUFS_ - 1) / INLAY_BLOCK_BUFS_ * INLAY_BLOCK_ +
	       INLAY_BLOCK_ - INLAY_CACHE_LINE;
}

INLAY_COLD uint8_t *inlay_store_page_(void *memory)
{
	return (uint8_t *)(uintptr_t)inlay_round_up((uintptr_t)memory, INLAY_BLOCK_);
}

/* Makes num descriptors in linked blocks. Touches all pages, so none faults under the lock. */
INLAY_COLD struct inlay_block_ *inlay_store_make_(struct inlay_store_ *s, void *memory, uint32_t num)
{
	uint8_t *page = inlay_store_page_(memory);
	struct inlay_block_ *first = inlay_buf_block_(page), *b;
	struct inlay_buf *buf;
	uint32_t i;

	for (;; page += INLAY_BLOCK_) {
		__builtin_memset(page, 0, INLAY_BLOCK_);
		b = inlay_buf_block_(page);
		b->store = s;
		__builtin_memset(b->state, INLAY_BUF_NONE_, sizeof(b->state));
		for (i = 0; i < INLAY_BLOCK_BUFS_ && num; i++, num--) {
			buf = inlay_block_buf_(page, i);
			buf->refcount = 1;
			b->state[inlay_buf_line_(buf)] = INLAY_BUF_FREE_;
			b->given |= 1ull << inlay_buf_line_(buf);
		}
		if (!num)
			return first;
		b->next = b->after = inlay_buf_block_(page + INLAY_BLOCK_);
	}
}

/* Adds them to the store. Shared: under the lock. */
INLAY_COLD void inlay_store_adopt_(struct inlay_store_ *s, struct inlay_block_ *first, uint32_t num)
{
	struct inlay_block_ *last = first;

	while (last->after)
		last = last->after;
	last->next = s->blocks;
	last->after = s->all;
	s->blocks = first;
	s->num += num;
	__atomic_store_n(&s->all, first, __ATOMIC_RELEASE);
}

INLAY_COLD int inlay_store_check_(const void *memory, size_t size, size_t need)
{
	if (!memory || (uintptr_t)memory % INLAY_CACHE_LINE || !need)
		return -EINVAL;
	return size < need ? -ENOBUFS : 0;
}

/* An inventory that begins an object of `head` bytes, and a stopped store after the object. */
INLAY_COLD int inlay_store_create_(void *memory, size_t size, size_t head, uint32_t num)
{
	struct inlay_inventory *inv = (struct inlay_inventory *)memory;
	struct inlay_store_ *s;
	int err = inlay_store_check_(memory, size, inlay_store_size_(head, num));

	if (err)
		return err;
	s = (struct inlay_store_ *)(void *)((uint8_t *)memory + head);
	__builtin_memset(memory, 0, head + sizeof(*s));
	inv->store = s;
	s->turn = 1;
	s->state = INLAY_STORE_STOPPED_;
	inlay_store_adopt_(s, inlay_store_make_(s, s + 1, num), num);
	return 0;
}

INLAY_COLD int inlay_store_start_(struct inlay_store_ *s)
{
	if (s->state != INLAY_STORE_STOPPED_)
		return -EBADFD;
	__atomic_store_n(&s->state, INLAY_STORE_STARTED_, __ATOMIC_RELEASE);
	return 0;
}

INLAY_COLD int inlay_store_stop_(struct inlay_store_ *s)
{
	if (s->state != INLAY_STORE_STARTED_)
		return -EBADFD;
	__atomic_store_n(&s->state, INLAY_STORE_STOPPED_, __ATOMIC_RELAXED);
	/* A get that sees the new turn sees the state; any other remembers an old turn. */
	__atomic_fetch_add(&s->turn, 1, __ATOMIC_RELEASE);
	return 0;
}

INLAY_COLD void inlay_store_destroy_(struct inlay_store_ *s)
{
	uint32_t i;

	inlay_store_stop_(s);
	s->state = INLAY_STORE_DESTROYED_;
	for (i = 0; i < INLAY_STORE_TIES_; i++)
		inlay_holder_close_(&s->tie[i].holder);
}

/* Ties the store to the map if a tie is free. Returns its buffers' state: plain, or HELD. */
INLAY_COLD uint8_t inlay_store_tie_to_(struct inlay_store_ *s, struct inlay_mmap *mmap)
{
	uint8_t plain = s->shared ? INLAY_BUF_SHARED_ : INLAY_BUF_PLAIN_, state = INLAY_BUF_HELD_;
	struct inlay_tie_ *spare = NULL;
	struct inlay_mmap *tied;
	uint32_t i;

	if (s->shared)
		inlay_lock(&s->lock);
	for (i = 0; i < INLAY_STORE_TIES_ && state != plain; i++) {
		tied = __atomic_load_n(&s->tie[i].holder.map, __ATOMIC_ACQUIRE);
		if (tied == mmap)
			state = plain;
		else if (!tied)
			spare = &s->tie[i];
	}
	if (state != plain && spare) {
		spare->store = s;
		spare->holder.count = inlay_tie_count_;
		spare->holder.turn = &s->turn;
		inlay_holder_open_(&spare->holder, mmap);
		state = plain;
	}
	if (s->shared)
		inlay_unlock(&s->lock);
	return state;
}

/* The keys of a range for the store's device. Returns 0; -ENOENT without such a device. */
INLAY_FN int inlay_store_keys_(const struct inlay_store_ *s, const struct inlay_mmap *mmap, const struct inlay_range *r,
			       struct inlay_keys *keys)
{
	keys->lkey = r->lkey;
	keys->rkey = r->rkey;
	return s->dev ? inlay_mmap_keys(mmap, r->id, s->dev, keys) : 0;
}

/* ---- Data path ---- */

/* Lists a block that has free descriptors. */
INLAY_ALWAYS void inlay_block_list_(struct inlay_block_ *b)
{
	if (INLAY_UNLIKELY(!b->given)) {
		b->next = b->store->blocks;
		b->store->blocks = b;
		b->given = 1;
	}
}

/* Marks these lines of a block as free. Shared: under the lock. */
INLAY_FN void inlay_block_give_(struct inlay_block_ *b, uint64_t bits)
{
	uint64_t given = b->given;

	INLAY_CHECK(!(given & bits), "no buffer is given back twice");
	inlay_block_list_(b);
	b->given = given | bits;
}

/* Takes the first listed block, with its free descriptors. NULL: there is none. */
INLAY_ALWAYS struct inlay_block_ *inlay_store_pop_(struct inlay_store_ *s)
{
	struct inlay_block_ *b = s->blocks;

	if (b) {
		s->blocks = b->next;
		__builtin_prefetch(b->next, 1);
		__builtin_prefetch((const void *)((uintptr_t)b->next + INLAY_CACHE_LINE), 1);
	}
	return b;
}

INLAY_ALWAYS void inlay_inventory_load_(struct inlay_inventory *inv, struct inlay_block_ *b, uint64_t bits)
{
	inv->page = inlay_block_page_(b);
	inv->states = b->state;
	inv->bits = bits;
}

/* Loads another block, in a store that is not shared. Returns 0 when there is none. */
INLAY_FN int inlay_store_refill_(struct inlay_inventory *inv)
{
	struct inlay_block_ *b = inlay_store_pop_(inv->store);

	if (!b)
		return 0;
	b->given = 0;
	inlay_inventory_load_(inv, b, inlay_block_free_(b));
	return 1;
}

/*
 * The number of the lowest bit set in `lines`, which is not 0. gcc's builtin takes one instruction
 * more. When tuned for old CPUs it becomes a plain bsf, which waits for its register's old value.
 */
INLAY_ALWAYS uint64_t inlay_lowest_(uint64_t lines)
{
#ifdef __x86_64__
	uint64_t i;

	__asm__("rep bsf{ %1, %0| %0, %1}" : "=r"(i) : "r"(lines) : "cc");
	return i;
#else
	return (unsigned)__builtin_ctzll(lines);
#endif
}

/* Takes a free descriptor at hand (there is one), and its line. The caller sets its state. */
INLAY_ALWAYS struct inlay_buf *inlay_inventory_take_(struct inlay_inventory *inv, uint64_t *line)
{
	uint64_t bits = inv->bits, i = inlay_lowest_(bits);
	struct inlay_buf *buf = (struct inlay_buf *)(void *)inv->page + i;

	inv->bits = bits & (bits - 1);
	INLAY_CHECK(inv->states[i] == INLAY_BUF_FREE_ && buf->refcount == 1 && !buf->flags && !buf->next,
		    "nobody writes to a buffer that was given back");
	*line = i;
	return buf;
}

INLAY_ALWAYS int inlay_buf_fits_(const void *head, uint64_t len, const void *data, uint64_t data_len)
{
	uint64_t offset = (uint64_t)((uintptr_t)data - (uintptr_t)head);

	return offset <= len && data_len <= len - offset;
}

INLAY_ALWAYS void inlay_buf_fill_(struct inlay_buf *buf, struct inlay_mmap *mmap, const struct inlay_keys *keys,
				  void *head, uint64_t len, void *data, uint64_t data_len)
{
	buf->data = (uint8_t *)data;
	buf->data_len = (uint32_t)data_len;
	buf->keys = *keys;
	buf->head = (uint8_t *)head;
	/* Keeps compilers from building a vector of both first, which takes longer. */
	__asm__("" : "+r"(len));
	buf->len = len;
	/* inlay_tie_count_ may read it. */
	__atomic_store_n(&buf->mmap, mmap, __ATOMIC_RELAXED);
}

/* Makes a live buffer a free descriptor; the caller gives it back. */
INLAY_FN void inlay_buf_end_(struct inlay_buf *buf)
{
	struct inlay_mmap *mmap = inlay_buf_state_(buf) == INLAY_BUF_HELD_ ? buf->mmap : NULL;

	buf->next = NULL;
	buf->flags = 0;
	__atomic_store_n(&buf->refcount, 1, __ATOMIC_RELAXED);
	inlay_buf_set_state_(buf, INLAY_BUF_FREE_);
	if (mmap)
		inlay_mmap_drop(mmap);
}

/* Gives one descriptor back, whatever it was. */
INLAY_FN void inlay_buf_free_(struct inlay_buf *buf)
{
	struct inlay_block_ *b = inlay_buf_block_(buf);
	struct inlay_store_ *s = b->store;

	if (!s->shared) {
		inlay_buf_end_(buf);
		inlay_block_list_(b);
		return;
	}
	/* Free under the lock only: when a destroy sees it free, no thread is left here. */
	inlay_lock(&s->lock);
	inlay_buf_end_(buf);
	inlay_block_give_(b, 1ull << inlay_buf_line_(buf));
	inlay_unlock(&s->lock);
}

#endif
