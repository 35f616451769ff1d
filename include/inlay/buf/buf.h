/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf/buf.h: the buffer: a descriptor of memory in a map, with keys, the part that holds
 * data, a reference count, and links to other buffers.
 *
 *   head                data             data + data_len            head + len
 *   |                   |                |                          |
 *   ---------------------================----------------------------       the data is posted
 *
 * Invariants:
 *   - Buffers come from an inventory (inventory.h) or a pool (pool.h), and go back there.
 *   - The data lies inside the buffer and is at most INLAY_SGE_MAX bytes long.
 *   - Only a list's head is counted; another element's count stays 1. When the head's is 0, each
 *     buffer of the list goes back to where it came from.
 *
 * Threads: a buffer and its list have one owner at a time; the owner of its inventory gives it
 * back. Buffers of a shared inventory may be handed from thread to thread by anything that orders
 * memory (a lock, a queue). Their reference counts are atomic; lists and data are not.
 */
#ifndef INLAY_BUF_BUF_H
#define INLAY_BUF_BUF_H /* a trial: names may change */

#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/mmap/map.h>
#include <inlay/buf/store.h>

/* The buffer: [head, head + len). The data: [data, data + data_len). */
INLAY_FN void *inlay_buf_head(const struct inlay_buf *buf)
{
	return inlay_buf_(buf)->head;
}

INLAY_FN size_t inlay_buf_len(const struct inlay_buf *buf)
{
	return (size_t)inlay_buf_(buf)->len;
}

INLAY_FN void *inlay_buf_data(const struct inlay_buf *buf)
{
	return inlay_buf_(buf)->data;
}

INLAY_FN size_t inlay_buf_data_len(const struct inlay_buf *buf)
{
	return inlay_buf_(buf)->data_len;
}

/* The data as an SGE. */
INLAY_ALWAYS struct ibv_sge inlay_buf_sge(const struct inlay_buf *buf)
{
	struct ibv_sge sge = {(uintptr_t)inlay_buf_(buf)->data, buf->data_len, buf->keys.lkey};

	return sge;
}

/* The buffer's map, and its range's keys on the device of its inventory or pool. */
INLAY_FN struct inlay_mmap *inlay_buf_mmap(const struct inlay_buf *buf)
{
	return inlay_buf_(buf)->mmap;
}

INLAY_FN struct inlay_keys inlay_buf_keys(const struct inlay_buf *buf)
{
	return inlay_buf_(buf)->keys;
}

/* Sets the data. Returns 0, or -EINVAL (nothing changes) for data too long or not in the buffer. */
INLAY_ALWAYS int inlay_buf_set_data(struct inlay_buf *buf, void *data, size_t data_len)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	if (INLAY_UNLIKELY(data_len > INLAY_SGE_MAX || !inlay_buf_fits_(buf->head, buf->len, data, data_len)))
		return -EINVAL;
	buf->data = (uint8_t *)data;
	buf->data_len = (uint32_t)data_len;
	return 0;
}

/* As above, with the same start. */
INLAY_ALWAYS int inlay_buf_set_data_len(struct inlay_buf *buf, size_t data_len)
{
	return inlay_buf_set_data(buf, inlay_buf_(buf)->data, data_len);
}

/* The next buffer of the list, or NULL. */
INLAY_ALWAYS struct inlay_buf *inlay_buf_next(const struct inlay_buf *buf)
{
	return inlay_buf_(buf)->next;
}

/* Whether it is a head, or in no list. */
INLAY_FN int inlay_buf_is_first(const struct inlay_buf *buf)
{
	return !(inlay_buf_state_(buf) & INLAY_BUF_ELEMENT_);
}

/* The last buffer of the list. Constant time for a head; another element walks the rest. */
INLAY_FN struct inlay_buf *inlay_buf_last(const struct inlay_buf *buf)
{
	if (inlay_buf_is_first(buf) && buf->next)
		return buf->last;
	while (buf->next)
		buf = buf->next;
	return (struct inlay_buf *)(uintptr_t)buf;
}

/* How many buffers the list has, or -EINVAL when buf is not its head. 1 for a buffer in no list. */
INLAY_FN int inlay_buf_list_len(const struct inlay_buf *buf)
{
	int n = 1;

	if (!inlay_buf_is_first(buf))
		return -EINVAL;
	while ((buf = inlay_buf_next(buf)))
		n++;
	return n;
}

/* Bytes of all data, from buf to the end of its list. */
INLAY_FN uint64_t inlay_buf_list_bytes(const struct inlay_buf *buf)
{
	uint64_t sum = 0;

	for (; buf; buf = inlay_buf_next(buf))
		sum += buf->data_len;
	return sum;
}

/*
 * The data from buf to the end of its list, as SGEs; empty ones are left out. sge: NULL to count
 * them only. Returns how many there are, or -ENOBUFS when there are more than max; sge[] is then
 * undefined.
 */
INLAY_FN int inlay_buf_sges(const struct inlay_buf *buf, struct ibv_sge *sge, uint32_t max)
{
	uint32_t n = 0;

	for (; buf; buf = inlay_buf_next(buf)) {
		if (INLAY_UNLIKELY(!buf->data_len))
			continue;
		if (INLAY_UNLIKELY(n == max))
			return -ENOBUFS;
		if (sge)
			sge[n] = inlay_buf_sge(buf);
		n++;
	}
	return (int)n;
}

/* Its references; 0 when it was given back; 1 for an element that is not a head. */
INLAY_FN uint16_t inlay_buf_refcount(const struct inlay_buf *buf)
{
	return (uint16_t)(inlay_buf_state_(buf) & INLAY_BUF_REFS_);
}

/*
 * Appends list2 to list1, both heads. list1 remains a head; list2 becomes an element, and its only
 * reference passes to list1.
 *
 * Returns 0; -EINVAL when one is not a head, or both are the same; -EBADFD when one was given back;
 * -EBUSY when list2 has several references.
 */
INLAY_ALWAYS int inlay_buf_chain_list(struct inlay_buf *list1, struct inlay_buf *list2)
{
	uint32_t state1 = inlay_buf_state_(list1), state2 = inlay_buf_state_(list2);

	if (INLAY_UNLIKELY((state1 | state2) & INLAY_BUF_ELEMENT_) || INLAY_UNLIKELY(list1 == list2))
		return -EINVAL;
	if (INLAY_UNLIKELY(!(state1 & INLAY_BUF_REFS_)) || INLAY_UNLIKELY(!(state2 & INLAY_BUF_REFS_)))
		return -EBADFD;
	if (INLAY_UNLIKELY((state2 & INLAY_BUF_REFS_) != 1))
		return -EBUSY;
	inlay_buf_last(list1)->next = list2;
	list1->last = inlay_buf_last(list2);
	__atomic_store_n(&list2->state, state2 | INLAY_BUF_ELEMENT_, __ATOMIC_RELAXED);
	return 0;
}

/*
 * Cuts list1 in two: its element list2 becomes a head with a count of 1. Walks the list. Returns 0;
 * -EINVAL when list1 is not a head, or list2 is not one of its later elements.
 */
INLAY_FN int inlay_buf_unchain_list(struct inlay_buf *list1, struct inlay_buf *list2)
{
	struct inlay_buf *before = list1;

	if (!inlay_buf_is_first(list1))
		return -EINVAL;
	while (before->next && before->next != list2)
		before = before->next;
	if (!before->next)
		return -EINVAL;
	list2->last = list1->last;
	list1->last = before;
	before->next = NULL;
	__atomic_store_n(&list2->state, list2->state & ~INLAY_BUF_ELEMENT_, __ATOMIC_RELAXED);
	return 0;
}

/*
 * Takes one more reference. prev: how many there were, or NULL. Returns 0; -EINVAL for an element
 * that is not a head; -ENOSPC at 65535; -EBADFD when it was given back.
 */
INLAY_FN int inlay_buf_inc_refcount(struct inlay_buf *buf, uint16_t *prev)
{
	uint32_t state = inlay_buf_state_(buf);

	if (INLAY_UNLIKELY(state & INLAY_BUF_ELEMENT_))
		return -EINVAL;
	if (INLAY_UNLIKELY(!(state & INLAY_BUF_REFS_)))
		return -EBADFD;
	do {
		if (INLAY_UNLIKELY((state & INLAY_BUF_REFS_) == INLAY_BUF_REFS_))
			return -ENOSPC;
		/* Shared: another thread may count meanwhile. */
		if (!inlay_buf_group_(buf, state)->store->shared) {
			__atomic_store_n(&buf->state, state + 1, __ATOMIC_RELAXED);
			break;
		}
	} while (!__atomic_compare_exchange_n(&buf->state, &state, state + 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	if (prev)
		*prev = (uint16_t)(state & INLAY_BUF_REFS_);
	return 0;
}

/* Slow path of a release: errors, further references, lists, held maps, a full cache. */
INLAY_COLD int inlay_buf_dec_other_(struct inlay_cache_ *c, struct inlay_buf *buf, uint16_t *prev)
{
	uint32_t state = __atomic_load_n(&buf->state, __ATOMIC_ACQUIRE), refs = state & INLAY_BUF_REFS_;
	struct inlay_buf *next;

	if (!refs)
		return -EBADFD;
	if (state & INLAY_BUF_ELEMENT_)
		return -EINVAL;
	if (refs > 1 && !inlay_buf_group_(buf, state)->store->shared)
		__atomic_store_n(&buf->state, state - 1, __ATOMIC_RELAXED);
	else
		/* The last reference is given up under the store's lock, in inlay_buf_end_. */
		while (refs > 1 && !__atomic_compare_exchange_n(&buf->state, &state, state - 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			refs = state & INLAY_BUF_REFS_;
	if (prev)
		*prev = (uint16_t)refs;
	for (; buf && refs == 1; buf = next) {
		next = buf->next;
		inlay_buf_end_(c, buf);
	}
	return 0;
}

/* c: the calling thread's cache; NULL: the buffer's home */
INLAY_ALWAYS int inlay_buf_dec_(struct inlay_cache_ *c, struct inlay_buf *buf, uint16_t *prev)
{
	const struct inlay_group_ *group;
	uint32_t state, free, num;

	INLAY_CHECK(buf, "a buffer is not NULL");
	/* Orders this after the accesses of those who dropped the other references. */
	state = __atomic_load_n(&buf->state, __ATOMIC_ACQUIRE);
	group = inlay_buf_group_(buf, state);
	if (!c)
		c = group->home;
	else if (INLAY_UNLIKELY(c->store != group->store))
		return inlay_buf_dec_other_(c, buf, prev);
	free = state - 1;
	num = c->num;
	if (INLAY_UNLIKELY(free & INLAY_BUF_USE_) || INLAY_UNLIKELY(buf->next) || INLAY_UNLIKELY(num == INLAY_CACHED_))
		return inlay_buf_dec_other_(c, buf, prev);
	__atomic_store_n(&buf->state, free, __ATOMIC_RELEASE);
	c->buf[num] = buf;
	c->num = num + 1;
	if (prev)
		*prev = 1;
	return 0;
}

/*
 * Drops one reference. The last one gives the buffer, or a head's whole list, back to where it came
 * from; a shared inventory's lock is taken. prev: how many there were, or NULL.
 *
 * Returns 0; -EINVAL for an element that is not a head; -EBADFD when it was given back.
 */
INLAY_ALWAYS int inlay_buf_dec_refcount(struct inlay_buf *buf, uint16_t *prev)
{
	return inlay_buf_dec_(NULL, buf, prev);
}

#endif
