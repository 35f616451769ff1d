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
 *   +48  refcount, flags, next     zero: free. One 8-byte word says "a live buffer, one reference, in no list"
 *   +56  last, index
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
#include <inlay/mmap/lookup.h>
#include <inlay/mmap/map.h>

#define INLAY_BUF_WINDOW 0x7fffffffu /* bytes of the largest window */

enum inlay_buf_flags {
	INLAY_BUF_ELEMENT = 1,       /* in a list, and not its head */
	INLAY_BUF_SHARED = 2,        /* of a shared inventory */
};

struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_buf {
	uint8_t *data;
	uint32_t data_len;
	uint32_t lkey;
	uint8_t *head;
	uint64_t len;
	struct inlay_mmap *mmap;
	uint32_t rkey;
	uint32_t range;          /* id of the range in its mmap */
	uint16_t refcount;
	uint16_t flags;
	int32_t next;            /* descriptors from this one to the next of its list; 0: none */
	int32_t last;            /* of a head that has a next: to the last */
	int32_t index;           /* descriptors from its owner to this one; never changes */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_buf) == INLAY_CACHE_LINE, "a descriptor is one line");
INLAY_STATIC_ASSERT(offsetof(struct inlay_buf, data_len) == offsetof(struct ibv_sge, length), "a descriptor begins with its entry");
INLAY_STATIC_ASSERT(offsetof(struct inlay_buf, lkey) == offsetof(struct ibv_sge, lkey), "a descriptor begins with its entry");
INLAY_STATIC_ASSERT(offsetof(struct inlay_buf, refcount) == 48 && offsetof(struct inlay_buf, flags) == 50, "the word of state");
INLAY_STATIC_ASSERT(offsetof(struct inlay_buf, next) == 52, "the word of state");

/* refcount, flags and next in one load or store */
typedef uint64_t inlay_buf_word __attribute__((may_alias));

/*
 * What inventories, pools and shared inventories have in common: the first line of their memory. Free descriptors are on a stack beside them,
 * by number, and never linked: a list would cost a cache miss for each cold one before the next can be known.
 *
 *   | store | descriptor | descriptor | ...            | numbers of the free ones ->         |
 *
 * A descriptor's number is its distance from the store, in lines. Descriptors added later lie in memory of their own, and are numbered
 * the same way, so that nothing on the way of a get or a release knows of pieces.
 */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_store {
	int32_t *stack;
	uint32_t free;           /* descriptors on the stack */
	uint32_t floor;          /* started: 0; else all ones: more than that must be free for a get */
	uint32_t hint;           /* which range of an mmap was found last */
	uint32_t dev;            /* keys are those of this device of the mmap */
	uint32_t num;            /* descriptors */
	uint32_t frozen;         /* was started once */
	uint64_t user_data;
	uint32_t lock;           /* shared: of the stack */
	uint32_t reserved;
	void *magazines;         /* shared: all that are attached */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_store) == INLAY_CACHE_LINE, "numbers count lines from the store");

#define INLAY_STORE_STOPPED 0xffffffffu

/* From a to b, in lines. A shift: compilers divide when they save space. */
INLAY_ALWAYS int64_t inlay_store_lines(const void *a, const void *b)
{
	return ((intptr_t)b - (intptr_t)a) >> 6;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up: what owners of descriptors do
 */

/* Bytes of num descriptors and a stack of depth numbers; 0 when there are none or too many. */
INLAY_COLD size_t inlay_store_bytes(uint64_t num, uint64_t depth)
{
	if (!num || depth > (1u << 30))
		return 0;
	return (size_t)(num * sizeof(struct inlay_buf) + (depth * sizeof(int32_t) + INLAY_CACHE_LINE - 1) / INLAY_CACHE_LINE * INLAY_CACHE_LINE);
}

/*
 * Makes num descriptors at `bufs` and puts their numbers at the bottom of the stack behind them, the first one on top. The stack is of `size` bytes
 * with the descriptors, all written to, so that who puts numbers on it under a lock does not wait for its pages. Changes nothing of the store.
 */
INLAY_COLD void inlay_store_make(const struct inlay_store *s, struct inlay_buf *bufs, size_t size, uint32_t num, uint16_t flags)
{
	int32_t *stack = (int32_t *)(void *)(bufs + num), at = (int32_t)inlay_store_lines(s, bufs);
	uint32_t i;

	__builtin_memset(bufs, 0, size);
	for (i = 0; i < num; i++) {
		bufs[i].flags = flags;
		bufs[i].index = at + (int32_t)i;
		stack[num - 1 - i] = at + (int32_t)i;
	}
}

/* They are the store's: their stack takes the place of the one it has, below whose numbers theirs are. */
INLAY_COLD void inlay_store_adopt(struct inlay_store *s, struct inlay_buf *bufs, uint32_t num)
{
	int32_t *stack = (int32_t *)(void *)(bufs + num);

	if (s->free)
		__builtin_memcpy(stack + num, s->stack, s->free * sizeof(*stack));
	s->stack = stack;
	s->free += num;
	s->num += num;
}

/* The first ones */
INLAY_COLD void inlay_store_add(struct inlay_store *s, struct inlay_buf *bufs, uint32_t num, uint16_t flags)
{
	inlay_store_make(s, bufs, inlay_store_bytes(num, num), num, flags);
	inlay_store_adopt(s, bufs, num);
}

/* The check of every create: memory on a line, large enough. */
INLAY_COLD int inlay_store_check(const void *memory, size_t size, size_t need)
{
	return !memory || (uintptr_t)memory % INLAY_CACHE_LINE || !need || size < need ? -EINVAL : 0;
}

/* May there be more descriptors in memory of their own? See inlay_inventory_expand. */
INLAY_COLD int inlay_store_expandable(const struct inlay_store *s, const void *memory, size_t size, uint32_t num)
{
	int64_t at = inlay_store_lines(s, memory);

	if (__atomic_load_n(&s->floor, __ATOMIC_RELAXED))
		return -EBADFD;
	if (inlay_store_check(memory, size, inlay_store_bytes(num, (uint64_t)s->num + num)))
		return -EINVAL;
	if (at < -(1ll << 31) || at + num >= 1ll << 31)
		return -ERANGE;
	return 0;
}

INLAY_COLD int inlay_store_start(struct inlay_store *s)
{
	if (!s->floor)
		return -EBADFD;
	s->frozen = 1;
	__atomic_store_n(&s->floor, 0, __ATOMIC_RELEASE);
	return 0;
}

INLAY_COLD int inlay_store_stop(struct inlay_store *s)
{
	if (s->floor)
		return -EBADFD;
	__atomic_store_n(&s->floor, INLAY_STORE_STOPPED, __ATOMIC_RELEASE);
	return 0;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: what owners of descriptors do
 */

/* Others may change the count of a shared one meanwhile. */
INLAY_ALWAYS uint64_t inlay_buf_state(const struct inlay_buf *buf)
{
	return __atomic_load_n((const inlay_buf_word *)(const void *)((const uint8_t *)buf + offsetof(struct inlay_buf, refcount)), __ATOMIC_RELAXED);
}

INLAY_ALWAYS void inlay_buf_set_state(struct inlay_buf *buf, uint64_t state)
{
	*(inlay_buf_word *)(void *)((uint8_t *)buf + offsetof(struct inlay_buf, refcount)) = state;
}

#define INLAY_BUF_STATE(refcount, flags) ((uint64_t)(refcount) | (uint64_t)(flags) << 16)

/* Whom it belongs to. */
INLAY_ALWAYS struct inlay_store *inlay_buf_store(const struct inlay_buf *buf)
{
	return (struct inlay_store *)((uintptr_t)buf - (uintptr_t)((intptr_t)buf->index * (intptr_t)sizeof(*buf)));
}

INLAY_ALWAYS struct inlay_buf *inlay_store_buf(const struct inlay_store *s, int32_t index)
{
	return (struct inlay_buf *)((uintptr_t)s + (uintptr_t)((intptr_t)index * (intptr_t)sizeof(struct inlay_buf)));
}

/* A number less than `free` from the stack's top; the caller has seen that it is there. */
INLAY_ALWAYS struct inlay_buf *inlay_store_take(struct inlay_store *s)
{
	struct inlay_buf *buf = inlay_store_buf(s, s->stack[--s->free]);

	INLAY_CHECK(!(inlay_buf_state(buf) & 0xffff) && !buf->next, "nobody writes to a buffer that was given back");
	return buf;
}

INLAY_ALWAYS void inlay_store_put(struct inlay_store *s, int32_t index)
{
	INLAY_CHECK(s->free < s->num, "no buffer is given back twice");
	s->stack[s->free++] = index;
}

/* The range of an mmap that holds all of [addr, addr + len), when it is not the one found last. */
INLAY_FN const struct inlay_range *inlay_store_search(const struct inlay_lookup_table *t, uint32_t *hint, uint64_t addr,
										uint64_t len)
{
	const struct inlay_range *r = inlay_lookup_in(t, addr, len);

	if (r)
		*hint = (uint32_t)(r - inlay_lookup_first(t));
	return r;
}

/*
 * The range of an mmap that holds all of [addr, addr + len). Looks first at the one found last, by its place in the table: the table tells
 * whether it fits, so that no change of the mmap, nor another mmap in its place, can make that a wrong one.
 */
INLAY_ALWAYS const struct inlay_range *inlay_store_range(uint32_t *hint, const struct inlay_mmap *mmap, uint64_t addr, uint64_t len)
{
	const struct inlay_lookup_table *t = __atomic_load_n(&mmap->lookup.current, __ATOMIC_ACQUIRE);
	const struct inlay_range *r = inlay_lookup_first(t) + *hint;

	if (INLAY_LIKELY(*hint < t->num) && INLAY_LIKELY(inlay_lookup_holds(r->start, r->len, addr, len)))
		return r;
	return inlay_store_search(t, hint, addr, len);
}

/* The lock of a shared inventory's stack */
INLAY_ALWAYS void inlay_store_lock(struct inlay_store *s)
{
	while (__atomic_exchange_n(&s->lock, 1, __ATOMIC_ACQUIRE))
		while (__atomic_load_n(&s->lock, __ATOMIC_RELAXED))
			inlay_relax();
}

INLAY_ALWAYS void inlay_store_unlock(struct inlay_store *s)
{
	__atomic_store_n(&s->lock, 0, __ATOMIC_RELEASE);
}

/* Gives one descriptor back, whatever it was: it is alone then, and free. */
INLAY_FN void inlay_buf_free(struct inlay_buf *buf)
{
	struct inlay_store *s = inlay_buf_store(buf);
	uint16_t flags = buf->flags & INLAY_BUF_SHARED;

	inlay_buf_set_state(buf, INLAY_BUF_STATE(0, flags));
	inlay_mmap_drop(buf->mmap);
	if (flags) {
		inlay_store_lock(s);
		inlay_store_put(s, buf->index);
		inlay_store_unlock(s);
		return;
	}
	inlay_store_put(s, buf->index);
}

/* Whether [data, data + data_len) lies in [head, head + len). */
INLAY_ALWAYS int inlay_buf_fits(const void *head, uint64_t len, const void *data, uint64_t data_len)
{
	uint64_t offset = (uint64_t)((uintptr_t)data - (uintptr_t)head);

	return offset <= len && data_len <= len - offset;
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

/* A descriptor that was taken becomes a buffer with one reference. */
INLAY_ALWAYS void inlay_buf_fill(struct inlay_buf *buf, uint16_t flags, struct inlay_mmap *mmap, uint32_t range, const struct inlay_keys *keys,
				 void *head, uint64_t len, void *data, uint32_t data_len)
{
	INLAY_CHECK(inlay_buf_fits(head, len, data, data_len), "a window lies in its buffer");
	buf->data = (uint8_t *)data;
	buf->data_len = data_len;
	buf->lkey = keys->lkey;
	buf->head = (uint8_t *)head;
	buf->len = len;
	buf->mmap = mmap;
	buf->rkey = keys->rkey;
	/* Nothing: it keeps compilers from gathering both into a vector first, which takes longer. */
	__asm__("" : "+r"(range));
	buf->range = range;
	inlay_buf_set_state(buf, INLAY_BUF_STATE(1, flags));
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: the buffer
 */

/* The buffer's start and size. */
INLAY_FN void *inlay_buf_head(const struct inlay_buf *buf)
{
	return buf->head;
}

INLAY_FN size_t inlay_buf_len(const struct inlay_buf *buf)
{
	return (size_t)buf->len;
}

/* The window. */
INLAY_FN void *inlay_buf_data(const struct inlay_buf *buf)
{
	return buf->data;
}

INLAY_FN size_t inlay_buf_data_len(const struct inlay_buf *buf)
{
	return buf->data_len;
}

/* The window as a gather or scatter entry. */
INLAY_ALWAYS struct ibv_sge inlay_buf_sge(const struct inlay_buf *buf)
{
	struct ibv_sge sge = {(uintptr_t)buf->data, buf->data_len, buf->lkey};

	return sge;
}

/* The mmap it lies in, and the keys of its range for the device that its owner was made for. */
INLAY_FN struct inlay_mmap *inlay_buf_mmap(const struct inlay_buf *buf)
{
	return buf->mmap;
}

INLAY_FN uint32_t inlay_buf_lkey(const struct inlay_buf *buf)
{
	return buf->lkey;
}

INLAY_FN uint32_t inlay_buf_rkey(const struct inlay_buf *buf)
{
	return buf->rkey;
}

/* Its keys for any device of its mmap, by the order of adding. Returns as inlay_mmap_keys does. */
INLAY_FN int inlay_buf_keys(const struct inlay_buf *buf, uint32_t dev, struct inlay_keys *keys)
{
	return inlay_mmap_keys(buf->mmap, buf->range, dev, keys);
}

/* Sets the window, which must lie in the buffer: [data, data + data_len) in [head, head + len). */
INLAY_ALWAYS void inlay_buf_set_data(struct inlay_buf *buf, void *data, size_t data_len)
{
	INLAY_CHECK(data_len <= INLAY_BUF_WINDOW, "a window is at most 2^31 - 1 bytes");
	INLAY_CHECK(inlay_buf_fits(buf->head, buf->len, data, data_len), "a window lies in its buffer");
	buf->data = (uint8_t *)data;
	buf->data_len = (uint32_t)data_len;
}

/* Sets the window's size, likewise; it begins where it did. */
INLAY_ALWAYS void inlay_buf_set_data_len(struct inlay_buf *buf, size_t data_len)
{
	inlay_buf_set_data(buf, buf->data, data_len);
}

/* Empties the window; it begins where it did. */
INLAY_ALWAYS void inlay_buf_reset_data_len(struct inlay_buf *buf)
{
	buf->data_len = 0;
}

/* Both setters for windows that come from outside. Return 0, or -EINVAL for one that does not lie in the buffer or is too large. */
INLAY_ALWAYS int inlay_buf_try_set_data(struct inlay_buf *buf, void *data, size_t data_len)
{
	if (INLAY_UNLIKELY(data_len > INLAY_BUF_WINDOW || !inlay_buf_fits(buf->head, buf->len, data, data_len)))
		return -EINVAL;
	inlay_buf_set_data(buf, data, data_len);
	return 0;
}

INLAY_ALWAYS int inlay_buf_try_set_data_len(struct inlay_buf *buf, size_t data_len)
{
	return inlay_buf_try_set_data(buf, buf->data, data_len);
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: lists
 */

/* The next buffer of the list, or NULL. */
INLAY_ALWAYS struct inlay_buf *inlay_buf_next(const struct inlay_buf *buf)
{
	return buf->next ? (struct inlay_buf *)((uintptr_t)buf + (uintptr_t)((intptr_t)buf->next * (intptr_t)sizeof(*buf))) : NULL;
}

/* A lone buffer is first and last, and in no list. */
INLAY_FN int inlay_buf_is_first(const struct inlay_buf *buf)
{
	return !(buf->flags & INLAY_BUF_ELEMENT);
}

INLAY_FN int inlay_buf_is_last(const struct inlay_buf *buf)
{
	return !buf->next;
}

INLAY_FN int inlay_buf_in_list(const struct inlay_buf *buf)
{
	return buf->next || buf->flags & INLAY_BUF_ELEMENT;
}

/* The last of the list that buf is in; buf itself when it is in none. Of a head, at once; of an element, by going there. */
INLAY_FN struct inlay_buf *inlay_buf_last(const struct inlay_buf *buf)
{
	if (!(buf->flags & INLAY_BUF_ELEMENT) && buf->next)
		return (struct inlay_buf *)((uintptr_t)buf + (uintptr_t)((intptr_t)buf->last * (intptr_t)sizeof(*buf)));
	while (buf->next)
		buf = inlay_buf_next(buf);
	return (struct inlay_buf *)(uintptr_t)buf;
}

/* The buffers of a list; 1 for a lone one. -EPERM when buf is not a head. */
INLAY_FN int inlay_buf_list_len(const struct inlay_buf *buf)
{
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

/*
 * Appends list2 to list1: both are heads (or lone buffers), and then list1 alone is. list2 loses its count, which is 1.
 *
 * Returns 0; -EPERM when one is not a head, or list2 has another count than 1; -EINVAL when both are the same, or list1 was given back; -ERANGE when
 * they are more than 128 GiB apart.
 */
INLAY_ALWAYS int inlay_buf_chain_list(struct inlay_buf *list1, struct inlay_buf *list2)
{
	struct inlay_buf *tail1, *tail2;
	int32_t link, last;

	if (INLAY_UNLIKELY((list1->flags | list2->flags) & INLAY_BUF_ELEMENT) || INLAY_UNLIKELY(list2->refcount != 1))
		return -EPERM;
	if (INLAY_UNLIKELY(list1 == list2) || INLAY_UNLIKELY(!list1->refcount))
		return -EINVAL;
	tail1 = inlay_buf_last(list1);
	tail2 = inlay_buf_last(list2);
	link = inlay_buf_distance(tail1, list2);
	last = inlay_buf_distance(list1, tail2);
	if (INLAY_UNLIKELY(!link) || INLAY_UNLIKELY(!last))
		return -ERANGE;
	tail1->next = link;
	list1->last = last;
	list2->flags |= INLAY_BUF_ELEMENT;
	return 0;
}

/* The same for who has kept the tail of list1, as DOCA wants it. -EPERM also when it is another. */
INLAY_ALWAYS int inlay_buf_chain_list_tail(struct inlay_buf *list1, const struct inlay_buf *tail, struct inlay_buf *list2)
{
	if (INLAY_UNLIKELY(list1->flags & INLAY_BUF_ELEMENT) || INLAY_UNLIKELY(inlay_buf_last(list1) != tail))
		return -EPERM;
	return inlay_buf_chain_list(list1, list2);
}

/*
 * Cuts a list in two: list2, an element of it, becomes the head of what follows, with a count of 1. Takes as long as it is far from
 * list1 to there.
 *
 * Returns 0; -EPERM when list1 is not a head; -EINVAL when list2 is not behind it; -ERANGE when one of both would have its first and its last more
 * than 128 GiB apart. Nothing is changed then.
 */
INLAY_FN int inlay_buf_unchain_list(struct inlay_buf *list1, struct inlay_buf *list2)
{
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
 * The windows from buf to the end of its list as gather entries; empty ones are left out, which post nothing. Returns how many there are, or
 * -ENOSPC when there are more than max; then sge[] is undefined.
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

/* References; 0: it was given back. 1 for an element of a list. */
INLAY_FN uint16_t inlay_buf_refcount(const struct inlay_buf *buf)
{
	return __atomic_load_n(&buf->refcount, __ATOMIC_RELAXED);
}

/*
 * One reference more. prev: how many there were, or NULL.
 *
 * Returns 0; -EPERM for an element of a list; -E2BIG at 65535; -EBADFD when it was given back.
 */
INLAY_FN int inlay_buf_inc_refcount(struct inlay_buf *buf, uint16_t *prev)
{
	uint16_t count = __atomic_load_n(&buf->refcount, __ATOMIC_RELAXED);

	if (INLAY_UNLIKELY(buf->flags & INLAY_BUF_ELEMENT))
		return -EPERM;
	do {
		if (INLAY_UNLIKELY(!count))
			return -EBADFD;
		if (INLAY_UNLIKELY(count == UINT16_MAX))
			return -E2BIG;
		if (!(buf->flags & INLAY_BUF_SHARED)) {
			buf->refcount = (uint16_t)(count + 1);
			break;
		}
	} while (!__atomic_compare_exchange_n(&buf->refcount, &count, (uint16_t)(count + 1), 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	if (prev)
		*prev = count;
	return 0;
}

/*
 * Takes away a reference of a buffer of any kind, in any state. Returns how many there were (1: the buffer is now the caller's alone, to be given
 * back), or the error of inlay_buf_dec_refcount.
 */
INLAY_FN int inlay_buf_unref(struct inlay_buf *buf)
{
	uint16_t count = __atomic_load_n(&buf->refcount, __ATOMIC_ACQUIRE);

	if (!count)
		return -EBADFD;
	if (buf->flags & INLAY_BUF_ELEMENT)
		return -EPERM;
	if (count == 1)
		return 1; /* nobody else has one */
	if (buf->flags & INLAY_BUF_SHARED)
		return __atomic_fetch_sub(&buf->refcount, 1, __ATOMIC_ACQ_REL);
	buf->refcount = (uint16_t)(count - 1);
	return count;
}

/* inlay_buf_dec_refcount of what is not a lone buffer with one reference. */
INLAY_FN int inlay_buf_dec_other(struct inlay_buf *buf, uint16_t *prev)
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
	if (INLAY_UNLIKELY(inlay_buf_state(buf) != INLAY_BUF_STATE(1, 0)))
		return inlay_buf_dec_other(buf, prev);
	inlay_buf_set_state(buf, INLAY_BUF_STATE(0, 0));
	inlay_store_put(inlay_buf_store(buf), buf->index);
	inlay_mmap_drop(buf->mmap);
	if (prev)
		*prev = 1;
	return 0;
}

/*
 * The same when the owner is known: nothing waits for the descriptor to say whose it is. The mmap is known to pools.
 */
INLAY_ALWAYS int inlay_store_dec_refcount(struct inlay_store *s, struct inlay_mmap *mmap, struct inlay_buf *buf, uint16_t *prev)
{
	INLAY_CHECK(inlay_buf_store(buf) == s, "a buffer goes back to where it is from");
	if (INLAY_UNLIKELY(inlay_buf_state(buf) != INLAY_BUF_STATE(1, 0)))
		return inlay_buf_dec_other(buf, prev);
	inlay_buf_set_state(buf, INLAY_BUF_STATE(0, 0));
	inlay_store_put(s, (int32_t)inlay_store_lines(s, buf));
	inlay_mmap_drop(mmap ? mmap : buf->mmap);
	if (prev)
		*prev = 1;
	return 0;
}

/*
 * Gives back many: inlay_buf_dec_refcount of each. Returns how many it was done for: n, or fewer when bufs[returned] was refused.
 */
INLAY_FN uint32_t inlay_buf_put(struct inlay_buf *const *bufs, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (INLAY_UNLIKELY(inlay_buf_dec_refcount(bufs[i], NULL)))
			break;
	return i;
}

#endif
