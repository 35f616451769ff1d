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
 * Free descriptors lie on one stack, the depot, under a lock. A thread's magazine holds up to 256 of them, so that getting and giving back touch
 * nothing that is shared. An empty magazine takes half its size from the depot, a full one brings half: a producer and a consumer take the lock
 * once for 128 buffers each.
 *
 * The lock is held for as long as it takes to copy 128 numbers (expand: all that are free, 4 bytes each), and a thread that finds it taken
 * spins: nothing here calls the system, so that a data path can be bound to anything. With more busy threads than CPUs, the holder may lose its
 * CPU, and who waits then spends its own time slice: some milliseconds, once in a great many refills. Threads on CPUs of their own never see it.
 *
 *   depot  | .................... |  lock
 *             ^ 128       | 128
 *          magazine    magazine
 *          producer    consumer
 *
 * What lies in magazines is out of others' reach: while there are n of them, a get may answer -ENOMEM with up to 256 (n - 1) descriptors free.
 *
 * The count of an mmap would be shared by all of them too. So magazines also hold credit in it, for several mmaps: buffers that count as live and
 * are not got yet. A fifth mmap takes the place of one that was not used lately; when there is none, its count is changed for each buffer.
 * inlay_mmap_get_num_bufs is then too high, never too low; before an mmap is stopped, every thread flushes or
 * detaches its magazine (-EPERM from inlay_mmap_stop says that one did not). The mmap must be in thread-safe mode.
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
#include <inlay/mmap/lookup.h>
#include <inlay/mmap/map.h>
#include <inlay/buf/buf.h>
#include <inlay/buf/inventory.h>

#define INLAY_MAGAZINE 256u              /* descriptors that a magazine holds at most */
#define INLAY_MAGAZINE_CREDITS 4u        /* mmaps it holds credit in */

struct inlay_shared {
	struct inlay_store store;
};

/* Live buffers that an mmap has been told of, and that are not */
struct inlay_credit {
	struct inlay_mmap *mmap;
	uint64_t word;                   /* how many; from bit 32 on, how often that was changed since the hand was here */
};

#define INLAY_CREDIT_USED (1ull << 32)

INLAY_ALWAYS uint32_t inlay_credit_num(const struct inlay_credit *c)
{
	return (uint32_t)c->word;
}

/* A thread's own. In the caller's memory, on a cache line; attach makes it. */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_magazine {
	struct inlay_store *store;
	uint32_t free;                   /* read by who counts */
	uint32_t hint;
	struct inlay_magazine *next;     /* of the attached ones */
	uint64_t refills;                /* how often the depot was asked, and brought to */
	uint64_t flushes;
	uint32_t hand;                   /* which credit is next to be asked whether it is idle */
	uint32_t reserved[5];
	struct inlay_credit credit[INLAY_MAGAZINE_CREDITS];
	int32_t stack[INLAY_MAGAZINE];
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_magazine, stack) == 2 * INLAY_CACHE_LINE, "two lines, and the numbers");

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
	struct inlay_shared *s = (struct inlay_shared *)memory;

	if (inlay_store_check(memory, size, inlay_shared_size(num)))
		return -EINVAL;
	__builtin_memset(s, 0, sizeof(*s));
	s->store.floor = INLAY_STORE_STOPPED;
	inlay_store_add(&s->store, (struct inlay_buf *)(void *)(s + 1), num, INLAY_BUF_SHARED);
	*shared = s;
	return 0;
}

/* As inlay_inventory_set_dev, _set_user_data, _get_user_data: while no other thread uses it. */
INLAY_COLD int inlay_shared_set_dev(struct inlay_shared *shared, uint32_t dev)
{
	if (shared->store.frozen)
		return -EBADFD;
	shared->store.dev = dev;
	return 0;
}

INLAY_COLD int inlay_shared_set_user_data(struct inlay_shared *shared, uint64_t data)
{
	if (shared->store.frozen)
		return -EBADFD;
	shared->store.user_data = data;
	return 0;
}

INLAY_COLD uint64_t inlay_shared_get_user_data(const struct inlay_shared *shared)
{
	return shared->store.user_data;
}

/* Start and stop, by one thread, whatever others do. Return 0, or -EBADFD when it is so already. */
INLAY_COLD int inlay_shared_start(struct inlay_shared *shared)
{
	return inlay_store_start(&shared->store);
}

INLAY_COLD int inlay_shared_stop(struct inlay_shared *shared)
{
	return inlay_store_stop(&shared->store);
}

/*
 * More descriptors, as inlay_inventory_expand; by any thread, at any time. The others wait only for a copy of the numbers that are free. Of two that
 * expand at the same time one may see -EINVAL, because there are more numbers than it has asked the size for: then it asks again. What the
 * memory holds after an error is undefined.
 */
INLAY_COLD size_t inlay_shared_expand_size(struct inlay_shared *shared, uint32_t num)
{
	size_t bytes;

	inlay_store_lock(&shared->store);
	bytes = inlay_store_bytes(num, (uint64_t)shared->store.num + num);
	inlay_store_unlock(&shared->store);
	return bytes;
}

INLAY_COLD int inlay_shared_expand(struct inlay_shared *shared, void *memory, size_t size, uint32_t num)
{
	struct inlay_store *s = &shared->store;
	size_t bytes;
	int err;

	inlay_store_lock(s);
	err = inlay_store_expandable(s, memory, size, num);
	bytes = inlay_store_bytes(num, (uint64_t)s->num + num);
	inlay_store_unlock(s);
	if (err)
		return err;
	inlay_store_make(s, (struct inlay_buf *)memory, bytes, num, INLAY_BUF_SHARED);
	inlay_store_lock(s);
	err = inlay_store_expandable(s, memory, size, num);
	if (!err)
		inlay_store_adopt(s, (struct inlay_buf *)memory, num);
	inlay_store_unlock(s);
	return err;
}

/* Stops it if need be; its memory is the caller's again. Returns 0, or -EBUSY while a buffer is out or a magazine attached. */
INLAY_COLD int inlay_shared_destroy(struct inlay_shared *shared)
{
	struct inlay_store *s = &shared->store;
	int err;

	inlay_store_lock(s);
	err = s->magazines || s->free != s->num ? -EBUSY : 0;
	inlay_store_unlock(s);
	if (!err)
		__atomic_store_n(&s->floor, INLAY_STORE_STOPPED, __ATOMIC_RELEASE);
	return err;
}

/* An empty magazine, for the calling thread or another. Returns 0, or -EINVAL when it is not on a cache line. */
INLAY_COLD int inlay_magazine_attach(struct inlay_magazine *mag, struct inlay_shared *shared)
{
	struct inlay_store *s = &shared->store;

	if ((uintptr_t)mag % INLAY_CACHE_LINE)
		return -EINVAL;
	__builtin_memset(mag, 0, sizeof(*mag));
	mag->store = s;
	inlay_store_lock(s);
	mag->next = (struct inlay_magazine *)s->magazines;
	s->magazines = mag;
	inlay_store_unlock(s);
	return 0;
}

/* Brings what the magazine holds to the depot, and its credit back to the mmaps. By its owner. */
INLAY_COLD void inlay_magazine_flush(struct inlay_magazine *mag)
{
	struct inlay_store *s = mag->store;
	uint32_t i, n = mag->free;

	for (i = 0; i < INLAY_MAGAZINE_CREDITS; i++) {
		if (inlay_credit_num(&mag->credit[i]))
			inlay_mmap_drop_many(mag->credit[i].mmap, inlay_credit_num(&mag->credit[i]));
		mag->credit[i].word = 0;
		mag->credit[i].mmap = NULL;
	}
	inlay_store_lock(s);
	for (i = 0; i < n; i++)
		inlay_store_put(s, mag->stack[i]);
	__atomic_store_n(&mag->free, 0, __ATOMIC_RELAXED);
	inlay_store_unlock(s);
}

/* Flushes it; its memory is the caller's again. By its owner, or when that one has ended. */
INLAY_COLD void inlay_magazine_detach(struct inlay_magazine *mag)
{
	struct inlay_store *s = mag->store;
	struct inlay_magazine *m;

	inlay_magazine_flush(mag);
	inlay_store_lock(s);
	m = (struct inlay_magazine *)s->magazines;
	if (m == mag) {
		s->magazines = mag->next;
	} else {
		while (m->next != mag)
			m = m->next;
		m->next = mag->next;
	}
	inlay_store_unlock(s);
	mag->store = NULL;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path
 */

/* Descriptors; by any thread. */
INLAY_FN uint32_t inlay_shared_num_elements(struct inlay_shared *shared)
{
	uint32_t num;

	inlay_store_lock(&shared->store);
	num = shared->store.num;
	inlay_store_unlock(&shared->store);
	return num;
}

/* Those that are not out, in the depot and in all magazines; by any thread. While others get and give back, about that many. */
INLAY_FN uint32_t inlay_shared_num_free(struct inlay_shared *shared)
{
	struct inlay_store *s = &shared->store;
	const struct inlay_magazine *m;
	uint32_t free;

	inlay_store_lock(s);
	free = s->free;
	for (m = (const struct inlay_magazine *)s->magazines; m; m = m->next)
		free += __atomic_load_n(&m->free, __ATOMIC_RELAXED);
	/* One that moves from magazine to magazine meanwhile may be counted twice. */
	free = free < s->num ? free : s->num;
	inlay_store_unlock(s);
	return free;
}

/* Half a magazine from the depot, into an empty one, by its owner. Returns how many there were to be had. */
INLAY_FN uint32_t inlay_magazine_refill(struct inlay_magazine *mag)
{
	struct inlay_store *s = mag->store;
	uint32_t n, i;

	inlay_store_lock(s);
	n = s->free < INLAY_MAGAZINE / 2 ? s->free : INLAY_MAGAZINE / 2;
	s->free -= n;
	for (i = 0; i < n; i++)
		mag->stack[i] = s->stack[s->free + i];
	/* Inside the lock, so that who counts misses none. */
	__atomic_store_n(&mag->free, n, __ATOMIC_RELAXED);
	inlay_store_unlock(s);
	mag->refills++;
	return n;
}

/* Half of a full magazine to the depot, by its owner. */
INLAY_FN void inlay_magazine_half(struct inlay_magazine *mag)
{
	struct inlay_store *s = mag->store;
	uint32_t i;

	inlay_store_lock(s);
	for (i = INLAY_MAGAZINE / 2; i < INLAY_MAGAZINE; i++)
		inlay_store_put(s, mag->stack[i]);
	__atomic_store_n(&mag->free, INLAY_MAGAZINE / 2, __ATOMIC_RELAXED);
	inlay_store_unlock(s);
	mag->flushes++;
}

/* Where credit in an mmap is looked for first */
INLAY_ALWAYS struct inlay_credit *inlay_magazine_home(struct inlay_magazine *mag, const struct inlay_mmap *mmap)
{
	return &mag->credit[((uint32_t)((uintptr_t)mmap / INLAY_CACHE_LINE) * 2654435761u) >> 30];
}

/* And then. NULL: there is none. */
INLAY_FN struct inlay_credit *inlay_magazine_search(struct inlay_magazine *mag, const struct inlay_mmap *mmap)
{
	uint32_t i;

	for (i = 0; i < INLAY_MAGAZINE_CREDITS; i++)
		if (mag->credit[i].mmap == mmap)
			return &mag->credit[i];
	return NULL;
}

INLAY_ALWAYS struct inlay_credit *inlay_magazine_credit(struct inlay_magazine *mag, const struct inlay_mmap *mmap)
{
	struct inlay_credit *c = inlay_magazine_home(mag, mmap);

	return INLAY_LIKELY(c->mmap == mmap) ? c : inlay_magazine_search(mag, mmap);
}

/*
 * A place for credit in an mmap that has none: its home or another that nobody has, else what the hand points at, when that was not used since the
 * hand was there last. NULL: it was; the hand goes on.
 */
INLAY_FN struct inlay_credit *inlay_magazine_place(struct inlay_magazine *mag, struct inlay_mmap *mmap)
{
	struct inlay_credit *c = inlay_magazine_home(mag, mmap);

	if (c->mmap)
		c = inlay_magazine_search(mag, NULL);
	if (!c) {
		c = &mag->credit[mag->hand];
		mag->hand = (mag->hand + 1) % INLAY_MAGAZINE_CREDITS;
		if (c->word >= INLAY_CREDIT_USED) {
			c->word = inlay_credit_num(c);
			return NULL;
		}
		if (c->word)
			inlay_mmap_drop_many(c->mmap, c->word);
	}
	c->mmap = mmap;
	c->word = INLAY_CREDIT_USED;
	return c;
}

/* One buffer more in an mmap in which there is no credit. -EPERM when the mmap is for one thread. */
INLAY_FN int inlay_magazine_borrow(struct inlay_magazine *mag, struct inlay_credit *c, struct inlay_mmap *mmap)
{
	if (!mmap->thread_safe)
		return -EPERM;
	if (!c)
		c = inlay_magazine_place(mag, mmap);
	if (!c) {
		inlay_mmap_hold(mmap);
		return 0;
	}
	inlay_mmap_hold_many(mmap, INLAY_MAGAZINE / 2);
	c->word = INLAY_CREDIT_USED + INLAY_MAGAZINE / 2 - 1;
	return 0;
}

/* One buffer less in an mmap in which there is no credit, or too much. */
INLAY_FN void inlay_magazine_repay(struct inlay_magazine *mag, struct inlay_credit *c, struct inlay_mmap *mmap)
{
	if (c) {
		inlay_mmap_drop_many(mmap, INLAY_MAGAZINE);
		c->word -= INLAY_MAGAZINE - 1;
		return;
	}
	c = inlay_magazine_place(mag, mmap);
	if (c)
		c->word++;
	else
		inlay_mmap_drop(mmap);
}

INLAY_ALWAYS void inlay_magazine_drop(struct inlay_magazine *mag, struct inlay_mmap *mmap)
{
	struct inlay_credit *c = inlay_magazine_credit(mag, mmap);

	if (INLAY_LIKELY(c != NULL) && INLAY_LIKELY(inlay_credit_num(c) < 2 * INLAY_MAGAZINE))
		c->word += INLAY_CREDIT_USED + 1;
	else
		inlay_magazine_repay(mag, c, mmap);
}

INLAY_ALWAYS void inlay_magazine_push(struct inlay_magazine *mag, int32_t index)
{
	if (INLAY_UNLIKELY(mag->free == INLAY_MAGAZINE))
		inlay_magazine_half(mag);
	mag->stack[mag->free] = index;
	__atomic_store_n(&mag->free, mag->free + 1, __ATOMIC_RELAXED);
}

/* A descriptor, and the mmap's count of it. Returns 0, -ENOMEM, or -EPERM. */
INLAY_ALWAYS int inlay_magazine_take(struct inlay_magazine *mag, struct inlay_mmap *mmap, struct inlay_buf **buf)
{
	struct inlay_credit *c = inlay_magazine_credit(mag, mmap);
	uint32_t free;

	if (INLAY_UNLIKELY(!mag->free) && !inlay_magazine_refill(mag))
		return -ENOMEM;
	if (INLAY_UNLIKELY(!c) || INLAY_UNLIKELY(!inlay_credit_num(c))) {
		int err = inlay_magazine_borrow(mag, c, mmap);

		if (err)
			return err;
	} else {
		c->word += INLAY_CREDIT_USED - 1;
	}
	free = mag->free - 1;
	__atomic_store_n(&mag->free, free, __ATOMIC_RELAXED);
	*buf = inlay_store_buf(mag->store, mag->stack[free]);
	INLAY_CHECK(!(inlay_buf_state(*buf) & 0xffff) && !(*buf)->next, "nobody writes to a buffer that was given back");
	return 0;
}

/*
 * As inlay_inventory_get_by_args; and -EPERM when the mmap is not in thread-safe mode. -ENOMEM: neither the magazine nor the depot has one.
 */
INLAY_ALWAYS int inlay_magazine_get_by_args(struct inlay_magazine *mag, struct inlay_mmap *mmap, void *addr, size_t len, void *data, size_t data_len,
					    struct inlay_buf **buf)
{
	const struct inlay_range *r = inlay_store_range(&mag->hint, mmap, (uintptr_t)addr, len);
	struct inlay_store *s = mag->store;
	struct inlay_keys keys;
	int err;

	if (INLAY_UNLIKELY(!r) || INLAY_UNLIKELY(__atomic_load_n(&s->floor, __ATOMIC_RELAXED)) || INLAY_UNLIKELY(data_len > INLAY_BUF_WINDOW) ||
	    INLAY_UNLIKELY(inlay_store_keys(s->dev, mmap, r, &keys)))
		return inlay_store_refuse(s, mmap, addr, len, data_len);
	err = inlay_magazine_take(mag, mmap, buf);
	if (INLAY_UNLIKELY(err))
		return err;
	inlay_buf_fill(*buf, INLAY_BUF_SHARED, mmap, r->id, &keys, addr, len, data, (uint32_t)data_len);
	return 0;
}

/* The same with an empty window at its start. */
INLAY_ALWAYS int inlay_magazine_get_by_addr(struct inlay_magazine *mag, struct inlay_mmap *mmap, void *addr, size_t len, struct inlay_buf **buf)
{
	return inlay_magazine_get_by_args(mag, mmap, addr, len, addr, 0, buf);
}

/* The same with a window over all of it. */
INLAY_ALWAYS int inlay_magazine_get_by_data(struct inlay_magazine *mag, struct inlay_mmap *mmap, void *data, size_t data_len, struct inlay_buf **buf)
{
	return inlay_magazine_get_by_args(mag, mmap, data, data_len, data, data_len, buf);
}

/* One descriptor into the magazine. */
INLAY_ALWAYS void inlay_magazine_free(struct inlay_magazine *mag, struct inlay_buf *buf)
{
	inlay_buf_set_state(buf, INLAY_BUF_STATE(0, INLAY_BUF_SHARED));
	inlay_magazine_drop(mag, buf->mmap);
	inlay_magazine_push(mag, buf->index);
}

/* inlay_magazine_dec_refcount of what is not a lone buffer with one reference. */
INLAY_FN int inlay_magazine_dec_other(struct inlay_magazine *mag, struct inlay_buf *buf, uint16_t *prev)
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
			if (buf->flags & INLAY_BUF_SHARED && inlay_buf_store(buf) == mag->store)
				inlay_magazine_free(mag, buf);
			else
				inlay_buf_free(buf);
		}
	}
	return 0;
}

/*
 * inlay_buf_dec_refcount by the magazine of the calling thread, whoever got the buffer. Buffers of other owners go where they belong.
 */
INLAY_ALWAYS int inlay_magazine_dec_refcount(struct inlay_magazine *mag, struct inlay_buf *buf, uint16_t *prev)
{
	const inlay_buf_word *state = (const inlay_buf_word *)(const void *)((const uint8_t *)buf + offsetof(struct inlay_buf, refcount));

	/* Acquire: a reference that another thread gave back before, and what it did with the buffer. */
	if (INLAY_UNLIKELY(__atomic_load_n(state, __ATOMIC_ACQUIRE) != INLAY_BUF_STATE(1, INLAY_BUF_SHARED)) ||
	    INLAY_UNLIKELY(inlay_buf_store(buf) != mag->store))
		return inlay_magazine_dec_other(mag, buf, prev);
	inlay_magazine_free(mag, buf);
	if (prev)
		*prev = 1;
	return 0;
}

/* Gives back many: inlay_magazine_dec_refcount of each. Returns how many it was done for: n, or fewer when bufs[returned] was refused. */
INLAY_FN uint32_t inlay_magazine_put(struct inlay_magazine *mag, struct inlay_buf *const *bufs, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (INLAY_UNLIKELY(inlay_magazine_dec_refcount(mag, bufs[i], NULL)))
			break;
	return i;
}

/*
 * n buffers of one mmap: inlay_magazine_get_by_args for each of args[]. All or none: returns 0, or the error of the first that cannot be had,
 * with nothing taken and bufs[] undefined.
 */
INLAY_FN int inlay_magazine_get(struct inlay_magazine *mag, struct inlay_mmap *mmap, const struct inlay_buf_args *args, uint32_t n,
				struct inlay_buf **bufs)
{
	uint32_t i;
	int err = 0;

	for (i = 0; i < n && !err; i++)
		err = inlay_magazine_get_by_args(mag, mmap, args[i].addr, args[i].len, args[i].data, args[i].data_len, &bufs[i]);
	if (INLAY_UNLIKELY(err))
		inlay_magazine_put(mag, bufs, i - 1);
	return err;
}

/* As inlay_inventory_dup; and -EPERM as inlay_magazine_get_by_args. The caller has src for the time. */
INLAY_FN int inlay_magazine_dup(struct inlay_magazine *mag, const struct inlay_buf *src, struct inlay_buf **dst)
{
	struct inlay_store *s = mag->store;
	struct inlay_buf *head = NULL, *buf;
	struct inlay_keys keys;
	int err;

	if (__atomic_load_n(&s->floor, __ATOMIC_RELAXED))
		return -EBADFD;
	err = inlay_store_copyable(src, s->dev);
	for (err = err < 0 ? err : 0; src && !err; src = inlay_buf_next(src)) {
		err = inlay_magazine_take(mag, src->mmap, &buf);
		if (err)
			break;
		keys = inlay_store_copy_keys(src, s->dev);
		inlay_buf_fill(buf, INLAY_BUF_SHARED, src->mmap, src->range, &keys, src->head, src->len, src->data, src->data_len);
		if (!head) {
			head = buf;
			continue;
		}
		err = inlay_buf_chain_list(head, buf);
		if (err)
			inlay_magazine_free(mag, buf);
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
