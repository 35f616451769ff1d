/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf/store.h: the store under inventories and pools: where descriptors lie, which are free,
 * and the maps of their buffers. Everything here is internal.
 *
 * Free descriptors lie on stacks: first the cache of an inventory, then the stack of each piece of
 * memory. A get pops one from its cache, a release pushes it. An empty or full cache moves half its
 * size from or to the pieces, under the lock if threads share the store.
 *
 *   piece:  header | stack: one pointer per descriptor | group: header, 16383 descriptors | group ...
 *
 * Counting. Gets and releases count nothing. A store has ties to up to eight maps; such a map counts
 * the live descriptors of the store when it is asked. A buffer of a further map holds its map.
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
#define INLAY_STORE_MAX_ (1u << 30)      /* descriptors */
#define INLAY_CACHED_ 128u               /* descriptors that a cache holds */
#define INLAY_GROUP_ 16384u              /* lines of a group: what buf->place can express */

/* A free descriptor has a refcount of 0, no flags and no next. */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_buf {
	uint8_t *data;           /* the data: [data, data + data_len) */
	uint32_t data_len;
	struct inlay_keys keys;
	uint16_t refcount;
	uint16_t place;          /* flags, and 4 times the lines since its group's header */
	uint8_t *head;           /* the buffer: [head, head + len) */
	uint64_t len;
	struct inlay_mmap *mmap; /* it lies in a range of this map */
	struct inlay_buf *next;  /* of its list, or NULL */
	struct inlay_buf *last;  /* of a head that has a next */
};

#define INLAY_BUF_ELEMENT_ 1u /* flags: in a list, and not its head */
#define INLAY_BUF_HELD_ 2u    /* holds its map itself */

INLAY_STATIC_ASSERT(sizeof(struct inlay_buf) == INLAY_CACHE_LINE, "a descriptor is one line");
INLAY_STATIC_ASSERT(offsetof(struct inlay_buf, data_len) == offsetof(struct ibv_sge, length) &&
		    offsetof(struct inlay_buf, keys.lkey) == offsetof(struct ibv_sge, lkey), "it begins as an entry");

struct inlay_store_;

struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_group_ {
	struct inlay_store_ *store;
};

struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_piece_ {
	struct inlay_piece_ *next;
	struct inlay_buf **stack;
	struct inlay_buf *first;  /* the header of the first group lies before it */
	uint32_t num, free;       /* descriptors, and how many are on the stack */
};

struct inlay_tie_ {
	struct inlay_holder_ holder;
	struct inlay_store_ *store;
};

enum inlay_store_state_ { INLAY_STORE_STARTED_, INLAY_STORE_STOPPED_, INLAY_STORE_DESTROYED_ };

/*
 * Descriptors for one thread. Set the fields below the line before the first start, if at all; they
 * are not read in an inventory of inlay_inventory_attach.
 */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_inventory {
	/* The range of the last get */
	struct inlay_mmap *mmap_;
	uint64_t turn_;           /* store->turn at that get; 0: no range is remembered */
	uint64_t start_, len_;
	struct inlay_keys keys_;
	uint16_t flags_;          /* of its buffers: 0 or HELD */
	uint16_t limit_;          /* of cached_; 0: threads share it, so gets and releases go elsewhere */
	uint32_t cached_;
	struct inlay_store_ *store_;
	/* ---- The caller's ---- */
	uint64_t user_data;
	struct ibv_pd *pd;        /* the device whose keys buffers get; NULL: each map's first */
	uint32_t shared;          /* not 0: for many threads, each with an inlay_inventory_attach */
	/* ---- */
	struct inlay_buf *cache_[INLAY_CACHED_] __attribute__((aligned(INLAY_CACHE_LINE)));
};

struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_store_ {
	uint64_t turn;                /* 1 until it is first stopped */
	struct inlay_inventory *home; /* where releases go that name no inventory; NULL: shared */
	struct ibv_pd *pd;
	uint32_t state;               /* enum inlay_store_state_ */
	/* Shared: written under the lock */
	struct inlay_piece_ *pieces __attribute__((aligned(INLAY_CACHE_LINE)));
	uint32_t lock;
	uint32_t num;                 /* descriptors */
	uint32_t attached;            /* inventories */
	struct inlay_tie_ tie[INLAY_STORE_TIES_];
};

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

INLAY_ALWAYS struct inlay_store_ *inlay_buf_store_(const struct inlay_buf *buf)
{
	uintptr_t back = (uintptr_t)(buf->place >> 2) * INLAY_CACHE_LINE;

	return ((const struct inlay_group_ *)((uintptr_t)buf - back))->store;
}

/* Descriptor i of a piece, after the headers before it. */
INLAY_ALWAYS struct inlay_buf *inlay_piece_buf_(const struct inlay_piece_ *p, uint32_t i)
{
	return p->first + i + i / (INLAY_GROUP_ - 1);
}

/* Another thread may count meanwhile. */
INLAY_ALWAYS void inlay_buf_flags_(struct inlay_buf *buf, uint32_t clear, uint32_t set)
{
	__atomic_store_n(&buf->place, (uint16_t)((buf->place & ~clear) | set), __ATOMIC_RELAXED);
}

/* ---- Counting; by any thread ---- */

/* Live descriptors: all, or those of a map that do not hold it themselves. */
INLAY_COLD uint32_t inlay_store_count_(const struct inlay_store_ *s, const struct inlay_mmap *map)
{
	const struct inlay_piece_ *p = __atomic_load_n(&s->pieces, __ATOMIC_ACQUIRE);
	const struct inlay_buf *b;
	uint32_t n = 0, i;

	for (; p; p = p->next) {
		for (i = 0; i < p->num; i++) {
			b = inlay_piece_buf_(p, i);
			if (__atomic_load_n(&b->refcount, __ATOMIC_ACQUIRE))
				n += !map || (__atomic_load_n(&b->mmap, __ATOMIC_RELAXED) == map &&
					      !(__atomic_load_n(&b->place, __ATOMIC_RELAXED) & INLAY_BUF_HELD_));
		}
	}
	return n;
}

INLAY_COLD uint64_t inlay_tie_count_(const struct inlay_holder_ *h)
{
	return inlay_store_count_(((const struct inlay_tie_ *)(const void *)h)->store, h->map);
}

/* ---- Set-up ---- */

INLAY_COLD size_t inlay_piece_stack_(uint64_t num)
{
	return sizeof(struct inlay_piece_) + (size_t)inlay_round_up(num * sizeof(struct inlay_buf *), INLAY_CACHE_LINE);
}

/* Bytes for an object of `head` bytes, a store and num descriptors; 0 when there cannot be one. */
INLAY_COLD size_t inlay_store_size_(size_t head, uint64_t num)
{
	if (!num || num > INLAY_STORE_MAX_)
		return 0;
	return head + sizeof(struct inlay_store_) + inlay_piece_stack_(num) +
	       (num + (num + INLAY_GROUP_ - 2) / (INLAY_GROUP_ - 1)) * sizeof(struct inlay_buf);
}

/* Makes num free descriptors. Writes to all pages, so none faults under the lock. */
INLAY_COLD struct inlay_piece_ *inlay_piece_make_(struct inlay_store_ *s, void *memory, uint32_t num)
{
	struct inlay_piece_ *p = (struct inlay_piece_ *)memory;
	struct inlay_buf *buf;
	uint32_t i, place;

	p->stack = (struct inlay_buf **)(void *)(p + 1);
	p->first = (struct inlay_buf *)(void *)((uint8_t *)memory + inlay_piece_stack_(num)) + 1;
	p->num = p->free = num;
	for (i = 0; i < num; i++) {
		buf = inlay_piece_buf_(p, i);
		place = i % (INLAY_GROUP_ - 1) + 1;
		__builtin_memset(buf, 0, sizeof(*buf));
		buf->place = (uint16_t)(4 * place);
		((struct inlay_group_ *)(void *)(buf - place))->store = s;
		p->stack[num - 1 - i] = buf;
	}
	return p;
}

/* Adds them to the store. Shared: under the lock. */
INLAY_COLD void inlay_store_adopt_(struct inlay_store_ *s, struct inlay_piece_ *p)
{
	p->next = s->pieces;
	__atomic_store_n(&s->num, s->num + p->num, __ATOMIC_RELAXED);
	__atomic_store_n(&s->pieces, p, __ATOMIC_RELEASE);
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
	inv->store_ = s;
	inv->limit_ = INLAY_CACHED_;
	s->turn = 1;
	s->home = inv;
	s->state = INLAY_STORE_STOPPED_;
	inlay_store_adopt_(s, inlay_piece_make_(s, s + 1, num));
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

INLAY_FN void inlay_store_lock_(struct inlay_store_ *s)
{
	if (!s->home)
		inlay_lock(&s->lock);
}

INLAY_FN void inlay_store_unlock_(struct inlay_store_ *s)
{
	if (!s->home)
		inlay_unlock(&s->lock);
}

/* Ties the store to the map if a tie is free. Returns the flags of its buffers: 0, or HELD. */
INLAY_COLD uint16_t inlay_store_tie_to_(struct inlay_store_ *s, struct inlay_mmap *mmap)
{
	struct inlay_tie_ *tie = NULL;
	struct inlay_mmap *tied = NULL;
	uint32_t i;

	inlay_store_lock_(s);
	for (i = 0; i < INLAY_STORE_TIES_ && tied != mmap; i++) {
		tied = __atomic_load_n(&s->tie[i].holder.map, __ATOMIC_ACQUIRE);
		if (!tied || tied == mmap)
			tie = &s->tie[i];
	}
	if (tie && tied != mmap) {
		tie->store = s;
		tie->holder.count = inlay_tie_count_;
		tie->holder.turn = &s->turn;
		inlay_holder_open_(&tie->holder, mmap);
	}
	inlay_store_unlock_(s);
	return tie ? 0 : INLAY_BUF_HELD_;
}

/* The keys of a range on the store's device. Returns 0; -ENOENT when the map lacks it. */
INLAY_FN int inlay_store_keys_(const struct inlay_store_ *s, const struct inlay_mmap *mmap, const struct inlay_range *r,
			       struct inlay_keys *keys)
{
	keys->lkey = r->lkey;
	keys->rkey = r->rkey;
	return s->pd ? inlay_mmap_keys(mmap, r->id, s->pd, keys) : 0;
}

/* ---- Between a cache and the pieces ---- */

/* Puts n free descriptors on the pieces' stacks, which have room for all. Shared: under the lock. */
INLAY_FN void inlay_store_give_(struct inlay_store_ *s, struct inlay_buf *const *bufs, uint32_t n)
{
	struct inlay_piece_ *p;
	uint32_t k;

	for (p = s->pieces; n; p = p->next, bufs += k, n -= k) {
		k = p->num - p->free < n ? p->num - p->free : n;
		inlay_copy(p->stack + p->free, bufs, k * sizeof(*bufs));
		p->free += k;
	}
}

/* Fills half an empty cache. Returns 0 when no descriptor is free. */
INLAY_COLD uint32_t inlay_store_refill_(struct inlay_inventory *inv)
{
	struct inlay_store_ *s = inv->store_;
	struct inlay_piece_ *p;
	uint32_t k;

	inlay_store_lock_(s);
	for (p = s->pieces; p && inv->cached_ < INLAY_CACHED_ / 2; p = p->next) {
		k = INLAY_CACHED_ / 2 - inv->cached_;
		k = p->free < k ? p->free : k;
		p->free -= k;
		inlay_copy(inv->cache_ + inv->cached_, p->stack + p->free, k * sizeof(*p->stack));
		inv->cached_ += k;
	}
	inlay_store_unlock_(s);
	return inv->cached_;
}

/* Gives back n descriptors, half the cache or all: those that were put there first. */
INLAY_COLD void inlay_store_flush_(struct inlay_inventory *inv, uint32_t n)
{
	inlay_store_lock_(inv->store_);
	inlay_store_give_(inv->store_, inv->cache_, n);
	inlay_store_unlock_(inv->store_);
	inv->cached_ -= n;
	inlay_copy(inv->cache_, inv->cache_ + n, inv->cached_ * sizeof(*inv->cache_));
}

/* ---- Data path ---- */

/* Pops a descriptor of the cache, which has one. The caller fills it. */
INLAY_ALWAYS struct inlay_buf *inlay_inventory_pop_(struct inlay_inventory *inv)
{
	struct inlay_buf *buf = inv->cache_[--inv->cached_];

	INLAY_CHECK(!buf->refcount && !(buf->place & 3) && !buf->next, "nobody writes to a buffer that was given back");
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
	INLAY_HIDE_(len);
	buf->len = len;
	/* inlay_store_count_ may read it. */
	__atomic_store_n(&buf->mmap, mmap, __ATOMIC_RELAXED);
}

/* A filled buffer is live from now on. */
INLAY_ALWAYS void inlay_buf_live_(struct inlay_buf *buf)
{
	__atomic_store_n(&buf->refcount, 1, __ATOMIC_RELEASE);
}

/* Gives one buffer back: to inv if that is an inventory of its store, else to the store's home. */
INLAY_COLD void inlay_buf_end_(struct inlay_inventory *inv, struct inlay_buf *buf)
{
	struct inlay_store_ *s = inlay_buf_store_(buf);
	struct inlay_mmap *held = buf->place & INLAY_BUF_HELD_ ? buf->mmap : NULL;

	if (!inv || inv->store_ != s || !inv->limit_)
		inv = s->home;
	if (inv && inv->cached_ == INLAY_CACHED_)
		inlay_store_flush_(inv, INLAY_CACHED_ / 2);
	/* Free under the lock only: when a destroy sees it free, no thread is left here. */
	if (!inv)
		inlay_lock(&s->lock);
	buf->next = NULL;
	inlay_buf_flags_(buf, 3, 0);
	__atomic_store_n(&buf->refcount, 0, __ATOMIC_RELEASE);
	if (inv) {
		inv->cache_[inv->cached_++] = buf;
	} else {
		inlay_store_give_(s, &buf, 1);
		inlay_unlock(&s->lock);
	}
	if (held)
		inlay_mmap_drop(held);
}

#endif
