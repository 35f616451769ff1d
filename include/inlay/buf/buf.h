/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf/buf.h: the buffer: a descriptor of memory in a map, with keys, the part that holds
 * data, a reference count, and links to other buffers.
 *
 *   head                data             data + data_len            head + len
 *   |                   |                |                          |
 *   ---------------------================----------------------------       the data is posted
 *
 *   inlay_buf_set_data(header, inlay_buf_head(header), 16);
 *   inlay_buf_chain_list(header, payload);                      header is the head of a list of two
 *   index = inlay_sq_index(&sq);
 *   inlay_post_write_bufs(&sq, raddr, rkey, header, INLAY_SIGNALED);               buf/post.h
 *   inflight[index & mask] = header;
 *   ...
 *   inlay_buf_dec_refcount(inflight[inlay_cqe_wqe_counter(cqe) & mask], NULL);     both are back
 *
 * Invariants:
 *   - Buffers come from an inventory (inventory.h) or a pool (pool.h), and go back there.
 *   - The data lies inside the buffer and is at most INLAY_SGE_MAX bytes long.
 *   - A list is named by its head, and only the head's references are counted; any other element's
 *     count stays 1. At 0, each descriptor of the list goes back to where it came from.
 *
 * Threads: a buffer and its list have one owner at a time; the owner of its inventory gives it
 * back. Buffers of a shared inventory may be handed from thread to thread by anything that orders
 * memory (a lock, a queue). Their reference counts are atomic; lists and data are not.
 */
#ifndef INLAY_BUF_BUF_H
#define INLAY_BUF_BUF_H

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

/* The buffer's map, and the keys of its range on the device that its inventory was made for. */
INLAY_FN struct inlay_mmap *inlay_buf_mmap(const struct inlay_buf *buf)
{
	return inlay_buf_(buf)->mmap;
}

INLAY_FN uint32_t inlay_buf_lkey(const struct inlay_buf *buf)
{
	return inlay_buf_(buf)->keys.lkey;
}

INLAY_FN uint32_t inlay_buf_rkey(const struct inlay_buf *buf)
{
	return inlay_buf_(buf)->keys.rkey;
}

/* Its range's permissions (enum inlay_access); 0 when the map is not started. */
INLAY_FN uint32_t inlay_buf_access(const struct inlay_buf *buf)
{
	const struct inlay_range *r;

	INLAY_CHECK(buf, "a buffer is not NULL");
	r = inlay_mmap_find(buf->mmap, buf->head, (size_t)buf->len);
	return r ? r->access : 0;
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
	return !(inlay_buf_(buf)->place & INLAY_BUF_ELEMENT_);
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

/* Its references; 0 when it was given back; 1 for an element that is not a head. */
INLAY_FN uint16_t inlay_buf_refcount(const struct inlay_buf *buf)
{
	return __atomic_load_n(&inlay_buf_(buf)->refcount, __ATOMIC_RELAXED);
}

/*
 * Appends list2 to list1, both heads. list1 stays one; list2's only reference is given up.
 *
 * Returns 0; -EINVAL when one is not a head, or both are the same; -EBADFD when one was given back;
 * -EBUSY when list2 has several references.
 */
INLAY_ALWAYS int inlay_buf_chain_list(struct inlay_buf *list1, struct inlay_buf *list2)
{
	INLAY_CHECK(list1 && list2, "a buffer is not NULL");
	if (INLAY_UNLIKELY((list1->place | list2->place) & INLAY_BUF_ELEMENT_) || INLAY_UNLIKELY(list1 == list2))
		return -EINVAL;
	if (INLAY_UNLIKELY(!inlay_buf_refcount(list1)) || INLAY_UNLIKELY(inlay_buf_refcount(list2) != 1))
		return inlay_buf_refcount(list1) && inlay_buf_refcount(list2) ? -EBUSY : -EBADFD;
	inlay_buf_last(list1)->next = list2;
	list1->last = inlay_buf_last(list2);
	inlay_buf_flags_(list2, 0, INLAY_BUF_ELEMENT_);
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
	inlay_buf_flags_(list2, INLAY_BUF_ELEMENT_, 0);
	return 0;
}

/*
 * The data from buf to the end of its list, as SGEs; empty ones are left out. Returns how many
 * there are, or -ENOBUFS when there are more than max; sge[] is then undefined.
 */
INLAY_FN int inlay_buf_sges(const struct inlay_buf *buf, struct ibv_sge *sge, uint32_t max)
{
	uint32_t n = 0;

	for (; buf; buf = inlay_buf_next(buf)) {
		if (INLAY_UNLIKELY(!buf->data_len))
			continue;
		if (INLAY_UNLIKELY(n == max))
			return -ENOBUFS;
		sge[n++] = inlay_buf_sge(buf);
	}
	return (int)n;
}

/*
 * Takes one more reference. prev: how many there were, or NULL. Returns 0; -EINVAL for an element
 * that is not a head; -ENOSPC at 65535; -EBADFD when it was given back.
 */
INLAY_FN int inlay_buf_inc_refcount(struct inlay_buf *buf, uint16_t *prev)
{
	uint16_t count = inlay_buf_refcount(buf);

	if (INLAY_UNLIKELY(buf->place & INLAY_BUF_ELEMENT_))
		return -EINVAL;
	if (INLAY_UNLIKELY(!count))
		return -EBADFD;
	do {
		if (INLAY_UNLIKELY(count == UINT16_MAX))
			return -ENOSPC;
		/* Not shared: another thread may still count. */
		if (inlay_buf_store_(buf)->home) {
			__atomic_store_n(&buf->refcount, (uint16_t)(count + 1), __ATOMIC_RELAXED);
			break;
		}
	} while (!__atomic_compare_exchange_n(&buf->refcount, &count, (uint16_t)(count + 1), 0, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	if (prev)
		*prev = count;
	return 0;
}

/* Drops a reference of a buffer that is shared, held or in a list, or with a cache that is full. */
INLAY_COLD int inlay_buf_dec_other_(struct inlay_inventory *inv, struct inlay_buf *buf, uint16_t *prev)
{
	uint16_t count = __atomic_load_n(&buf->refcount, __ATOMIC_ACQUIRE);
	struct inlay_buf *next;

	if (!count)
		return -EBADFD;
	if (buf->place & INLAY_BUF_ELEMENT_)
		return -EINVAL;
	/* With a count of 1, no other thread has a reference. */
	if (count > 1 && !inlay_buf_store_(buf)->home)
		count = __atomic_fetch_sub(&buf->refcount, 1, __ATOMIC_ACQ_REL);
	else if (count > 1)
		__atomic_store_n(&buf->refcount, (uint16_t)(count - 1), __ATOMIC_RELAXED);
	if (prev)
		*prev = count;
	for (; buf && count == 1; buf = next) {
		next = buf->next;
		inlay_buf_end_(inv, buf);
	}
	return 0;
}

/* inv: the store's home, or attached to it; NULL: the store's home, if it has one */
INLAY_ALWAYS int inlay_buf_dec_(struct inlay_inventory *inv, struct inlay_buf *buf, uint16_t *prev)
{
	INLAY_CHECK(buf, "a buffer is not NULL");
	if (!inv)
		inv = inlay_buf_store_(buf)->home;
	/* Orders this after the accesses of those who dropped the other references. */
	if (INLAY_UNLIKELY(__atomic_load_n(&buf->refcount, __ATOMIC_ACQUIRE) != 1) ||
	    INLAY_UNLIKELY(buf->place & 3) || INLAY_UNLIKELY(buf->next) || INLAY_UNLIKELY(!inv) ||
	    INLAY_UNLIKELY(inv->store_ != inlay_buf_store_(buf)) || INLAY_UNLIKELY(inv->cached_ >= inv->limit_))
		return inlay_buf_dec_other_(inv, buf, prev);
	__atomic_store_n(&buf->refcount, 0, __ATOMIC_RELEASE);
	inv->cache_[inv->cached_++] = buf;
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

/*
 * As above, into the calling thread's inventory without a lock, whichever thread got the buffer.
 * Buffers of other inventories go back there.
 */
INLAY_ALWAYS int inlay_inventory_dec_refcount(struct inlay_inventory *inv, struct inlay_buf *buf, uint16_t *prev)
{
	return inlay_buf_dec_((struct inlay_inventory *)(uintptr_t)inlay_inventory_(inv), buf, prev);
}

/*
 * As inlay_inventory_dec_refcount for each of n buffers. inv: NULL for inlay_buf_dec_refcount.
 * Returns how many succeeded, up to the first that did not.
 */
INLAY_FN uint32_t inlay_buf_dec_refcounts(struct inlay_inventory *inv, struct inlay_buf *const *bufs, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && INLAY_LIKELY(!inlay_buf_dec_(inv, bufs[i], NULL)); i++)
		;
	return i;
}

#endif
