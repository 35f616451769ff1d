/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf/store.h: internal: descriptors, the stacks of free ones, and the maps of their buffers.
 *
 * A get pops a descriptor from a cache; a release pushes it there. An empty or full cache moves 64
 * descriptors from or to the pieces, under the lock.
 *
 *   piece:  header | stack: a pointer per descriptor | group: header, 16383 descriptors | group ...
 *
 * Gets and releases count nothing. A store is a holder of up to eight maps; such a map counts the
 * store's live descriptors when asked. A buffer of any further map holds its map itself.
 */
#ifndef INLAY_BUF_STORE_H
#define INLAY_BUF_STORE_H /* a trial: names may change */

#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/mmap/map.h>

#define INLAY_STORE_MAPS_ 8u
#define INLAY_STORE_MAX_ (1u << 30)      /* descriptors */
#define INLAY_CACHED_ 128u               /* descriptors that a cache holds */
#define INLAY_GROUP_ 16384u              /* lines of a group: what buf->state can express */

struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_buf {
	uint8_t *data;           /* the data: [data, data + data_len) */
	uint32_t data_len;
	struct inlay_keys keys;
	uint32_t state;          /* INLAY_BUF_*_ */
	uint8_t *head;           /* the buffer: [head, head + len) */
	uint64_t len;
	struct inlay_mmap *mmap; /* the buffer lies in one of its ranges */
	struct inlay_buf *next;  /* in its list, or NULL */
	struct inlay_buf *last;  /* of a head that has a next */
};

#define INLAY_BUF_REFS_ 0xffffu        /* the reference count */
#define INLAY_BUF_ELEMENT_ (1u << 16)  /* in a list, and not its head */
#define INLAY_BUF_HELD_ (1u << 17)     /* holds its map itself */
#define INLAY_BUF_USE_ 0x3ffffu        /* all of these: 0 in a free descriptor */
#define INLAY_BUF_LINE_ (1u << 18)     /* the rest: lines since its group's header */

INLAY_STATIC_ASSERT(sizeof(struct inlay_buf) == INLAY_CACHE_LINE, "a descriptor is one line");
INLAY_STATIC_ASSERT(offsetof(struct inlay_buf, data_len) == offsetof(struct ibv_sge, length) &&
		    offsetof(struct inlay_buf, keys.lkey) == offsetof(struct ibv_sge, lkey), "it begins as an SGE");

/* Free descriptors of one thread */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_cache_ {
	struct inlay_store_ *store;
	uint32_t num;
	struct inlay_buf *buf[INLAY_CACHED_];
};

struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_group_ {
	struct inlay_cache_ *home; /* where its buffers go back; always full if shared */
	struct inlay_store_ *store;
};

struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_piece_ {
	struct inlay_piece_ *next;
	struct inlay_buf **stack;
	struct inlay_buf *first;   /* the first group's header lies before it */
	uint32_t num, free;        /* descriptors, and how many are on the stack */
};

enum inlay_store_state_ { INLAY_STORE_STARTED_, INLAY_STORE_STOPPED_, INLAY_STORE_DESTROYED_ };

struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_store_ {
	uint64_t turn;             /* first; 1 more after each stop of the store or a map */
	struct ibv_pd *pd;
	uint32_t state;            /* enum inlay_store_state_ */
	uint32_t shared;
	/* Written under the lock */
	struct inlay_piece_ *pieces __attribute__((aligned(INLAY_CACHE_LINE)));
	uint32_t lock;
	uint32_t num;              /* descriptors */
	uint32_t attached;         /* inventories */
	struct inlay_holder_ holders[INLAY_STORE_MAPS_];
};

/* ---- Where things are ---- */

INLAY_ALWAYS const struct inlay_buf *inlay_buf_(const struct inlay_buf *buf)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	return buf;
}

INLAY_ALWAYS uint32_t inlay_buf_state_(const struct inlay_buf *buf)
{
	return __atomic_load_n(&inlay_buf_(buf)->state, __ATOMIC_RELAXED);
}

INLAY_ALWAYS struct inlay_group_ *inlay_buf_group_(const struct inlay_buf *buf, uint32_t state)
{
	return (struct inlay_group_ *)((uintptr_t)buf - (uintptr_t)(state / INLAY_BUF_LINE_) * INLAY_CACHE_LINE);
}

INLAY_ALWAYS struct inlay_buf *inlay_piece_buf_(const struct inlay_piece_ *p, uint32_t i)
{
	return p->first + i + i / (INLAY_GROUP_ - 1);
}

/* ---- Counting; by any thread ---- */

/* Live descriptors: all, or those of a map that do not hold it themselves. */
INLAY_COLD uint32_t inlay_store_count_(const struct inlay_store_ *s, const struct inlay_mmap *map)
{
	const struct inlay_piece_ *p = __atomic_load_n(&s->pieces, __ATOMIC_ACQUIRE);
	const struct inlay_buf *b;
	uint32_t n = 0, i, state;

	for (; p; p = p->next) {
		for (i = 0; i < p->num; i++) {
			b = inlay_piece_buf_(p, i);
			state = __atomic_load_n(&b->state, __ATOMIC_ACQUIRE);
			if (state & INLAY_BUF_REFS_)
				n += !map || (!(state & INLAY_BUF_HELD_) && __atomic_load_n(&b->mmap, __ATOMIC_RELAXED) == map);
		}
	}
	return n;
}

INLAY_COLD uint64_t inlay_store_count_held_(const struct inlay_holder_ *h)
{
	return inlay_store_count_((const struct inlay_store_ *)(const void *)h->turn, h->map);
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

/* Adds num free descriptors. Writes to all pages, so none faults under the lock. */
INLAY_COLD void inlay_store_grow_(struct inlay_cache_ *home, void *memory, uint32_t num)
{
	struct inlay_piece_ *p = (struct inlay_piece_ *)memory;
	struct inlay_store_ *s = home->store;
	struct inlay_group_ *group;
	struct inlay_buf *buf;
	uint32_t i;

	p->stack = (struct inlay_buf **)(void *)(p + 1);
	p->first = (struct inlay_buf *)(void *)((uint8_t *)memory + inlay_piece_stack_(num)) + 1;
	p->num = p->free = num;
	for (i = 0; i < num; i++) {
		buf = inlay_piece_buf_(p, i);
		__builtin_memset(buf, 0, sizeof(*buf));
		buf->state = (i % (INLAY_GROUP_ - 1) + 1) * INLAY_BUF_LINE_;
		group = inlay_buf_group_(buf, buf->state);
		group->home = home;
		group->store = s;
		p->stack[num - 1 - i] = buf;
	}
	inlay_lock(&s->lock);
	p->next = s->pieces;
	__atomic_store_n(&s->num, s->num + num, __ATOMIC_RELAXED);
	__atomic_store_n(&s->pieces, p, __ATOMIC_RELEASE);
	inlay_unlock(&s->lock);
}

INLAY_COLD int inlay_store_check_(const void *memory, size_t size, size_t need)
{
	if (!memory || (uintptr_t)memory % INLAY_CACHE_LINE || !need)
		return -EINVAL;
	return size < need ? -ENOBUFS : 0;
}

/* Zeroes an object of `head` bytes, which begins with a cache; makes a stopped store after it. */
INLAY_COLD int inlay_store_create_(void *memory, size_t size, size_t head, uint32_t num)
{
	struct inlay_cache_ *home = (struct inlay_cache_ *)memory;
	struct inlay_store_ *s;
	int err = inlay_store_check_(memory, size, inlay_store_size_(head, num));

	if (err)
		return err;
	s = (struct inlay_store_ *)(void *)((uint8_t *)memory + head);
	__builtin_memset(memory, 0, head + sizeof(*s));
	home->store = s;
	s->turn = 1;
	s->state = INLAY_STORE_STOPPED_;
	inlay_store_grow_(home, s + 1, num);
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
	for (i = 0; i < INLAY_STORE_MAPS_; i++)
		inlay_holder_close_(&s->holders[i]);
}

/* Makes the store a holder of the map if it can. Returns the flags of its buffers: 0, or HELD. */
INLAY_COLD uint32_t inlay_store_hold_(struct inlay_store_ *s, struct inlay_mmap *mmap)
{
	struct inlay_holder_ *h = NULL;
	struct inlay_mmap *held = NULL;
	uint32_t i;

	inlay_lock(&s->lock);
	for (i = 0; i < INLAY_STORE_MAPS_ && held != mmap; i++) {
		held = __atomic_load_n(&s->holders[i].map, __ATOMIC_ACQUIRE);
		h = !held || held == mmap ? &s->holders[i] : h;
	}
	if (h && held != mmap) {
		h->count = inlay_store_count_held_;
		h->turn = &s->turn;
		inlay_holder_open_(h, mmap);
	}
	inlay_unlock(&s->lock);
	return h ? 0 : INLAY_BUF_HELD_;
}

/* ---- Between a cache and the pieces ---- */

/* Puts n free descriptors on the pieces' stacks, which have room for all. Under the lock. */
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
INLAY_COLD uint32_t inlay_cache_refill_(struct inlay_cache_ *c)
{
	struct inlay_piece_ *p;
	uint32_t k;

	inlay_lock(&c->store->lock);
	for (p = c->store->pieces; p && c->num < INLAY_CACHED_ / 2; p = p->next) {
		k = INLAY_CACHED_ / 2 - c->num;
		k = p->free < k ? p->free : k;
		p->free -= k;
		inlay_copy(c->buf + c->num, p->stack + p->free, k * sizeof(*p->stack));
		c->num += k;
	}
	inlay_unlock(&c->store->lock);
	return c->num;
}

/* Gives back n descriptors, half the cache or all: those that came first. */
INLAY_COLD void inlay_cache_flush_(struct inlay_cache_ *c, uint32_t n)
{
	inlay_lock(&c->store->lock);
	inlay_store_give_(c->store, c->buf, n);
	inlay_unlock(&c->store->lock);
	c->num -= n;
	inlay_copy(c->buf, c->buf + n, c->num * sizeof(*c->buf));
}

/* ---- Data path ---- */

/* Pops a descriptor of a cache that has one. The caller fills it. */
INLAY_ALWAYS struct inlay_buf *inlay_cache_pop_(struct inlay_cache_ *c)
{
	struct inlay_buf *buf = c->buf[--c->num];

	INLAY_CHECK(!(buf->state & INLAY_BUF_USE_) && !buf->next, "nobody writes to a buffer that was given back");
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

/* A filled buffer is live from now on. flags: 0 or HELD. */
INLAY_ALWAYS void inlay_buf_live_(struct inlay_buf *buf, uint32_t flags)
{
	__atomic_store_n(&buf->state, (buf->state | flags) + 1, __ATOMIC_RELEASE);
}

/* Gives one buffer back: to c if that is a cache of its store, else to its home. */
INLAY_COLD void inlay_buf_end_(struct inlay_cache_ *c, struct inlay_buf *buf)
{
	const struct inlay_group_ *group = inlay_buf_group_(buf, buf->state);
	struct inlay_store_ *s = group->store;
	struct inlay_mmap *held = buf->state & INLAY_BUF_HELD_ ? buf->mmap : NULL;

	if (!c || c->store != s)
		c = group->home;
	if (s->shared && c == group->home)
		c = NULL;
	if (c && c->num == INLAY_CACHED_)
		inlay_cache_flush_(c, INLAY_CACHED_ / 2);
	/* Free under the lock only: when a destroy sees it free, no thread is left here. */
	if (!c)
		inlay_lock(&s->lock);
	buf->next = NULL;
	__atomic_store_n(&buf->state, buf->state & ~INLAY_BUF_USE_, __ATOMIC_RELEASE);
	if (c) {
		c->buf[c->num++] = buf;
	} else {
		inlay_store_give_(s, &buf, 1);
		inlay_unlock(&s->lock);
	}
	if (held)
		inlay_mmap_drop(held);
}

#endif
