/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf/inventory.h: an inventory: a stock of descriptors, for buffers anywhere in any mmap.
 *
 *   inlay_inventory_create(memory, inlay_inventory_size(4096), 4096, &inv);
 *   inlay_inventory_start(inv);
 *   ...
 *   if (inlay_inventory_get_by_data(inv, &mmap, packet, len, &buf) == 0) {      a window over all of it
 *           inlay_post_send_bufs(&sq, buf, INLAY_SIGNALED);
 *           ... its completion: inlay_buf_dec_refcount(buf, NULL);
 *   }
 *
 *   create --> stopped --start--> started --stop--> stopped ... --destroy--> gone
 *
 *                        fresh     started   stopped after a start
 *   start                0         -EBADFD   0
 *   stop                 -EBADFD   0         -EBADFD
 *   get_*, dup           -EBADFD   0         -EBADFD                  likewise when the mmap is not started
 *   expand               -EBADFD   0         -EBADFD
 *   set_user_data        0         -EBADFD   -EBADFD
 *   destroy              0         0         0                        -EBUSY while a buffer is out
 *   counts, dec_refcount 0         0         0
 *
 * DOCA's rules; and where its text says two things or nothing:
 *   - User data: "only while started" in one sentence, "frozen from the first start on" in another. The second is what its users rely on.
 *   - Stop does not look for buffers that are out: they are returned to a stopped inventory as well.
 *   - A dup is a copy of the descriptor: the same memory, another window, a reference count of its own. No payload is copied. Of a
 *     head, which stands for its list, the whole list is copied: this is why DOCA takes heads and no other elements.
 *   - Not started: -EBADFD for every get (DOCA names the code for dup and expand only).
 *
 * Growing. All memory of an inventory lies within 128 GiB of it, or expand answers -ERANGE and changes nothing: a number is a distance, and
 * a get knows of no pieces. Two blocks of malloc are often further apart: glibc takes small ones from behind the program and large ones by
 * mmap, terabytes away. Cut the pieces from one reservation, which costs addresses, and memory only as it is used. Sizes are whole lines.
 *
 *   space = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
 *   used = inlay_inventory_size(256);
 *   inlay_inventory_create(space, used, 256, &inv);
 *   ...
 *   need = inlay_inventory_expand_size(inv, 4096);
 *   if (used + need <= bytes && inlay_inventory_expand(inv, space + used, need, 4096) == 0)
 *           used += need;
 *
 * Or let mmap give every piece, the first one too: mappings lie side by side as a rule. Or create it with the final number at once.
 *
 * The counts of an mmap. Every buffer counts in its mmap, which cannot be stopped before the last one is back.
 *
 * Threads: one owner at a time, who gives back its buffers too. For more, buf/shared.h.
 * Sources: DOCA's documentation of doca_buf_inventory.
 */
#ifndef INLAY_BUF_INVENTORY_H
#define INLAY_BUF_INVENTORY_H

#include <inlay/base.h>
#include <inlay/mmap/lookup.h>
#include <inlay/mmap/map.h>
#include <inlay/buf/buf.h>

struct inlay_inventory {
	struct inlay_store store;
};

/* A buffer to be: what inlay_inventory_get_by_args takes. */
struct inlay_buf_args {
	void *addr;
	size_t len;
	void *data;
	size_t data_len;
};

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up
 */

/* Bytes of memory that an inventory of num descriptors needs; 0 when num is 0 or above 2^30. */
INLAY_COLD size_t inlay_inventory_size(uint32_t num)
{
	size_t bytes = inlay_store_bytes(num, num);

	return bytes ? sizeof(struct inlay_inventory) + bytes : 0;
}

/* Bytes of memory that inlay_inventory_expand needs for num more; 0 when there cannot be as many. */
INLAY_COLD size_t inlay_inventory_expand_size(const struct inlay_inventory *inv, uint32_t num)
{
	return inlay_store_bytes(num, (uint64_t)inv->store.num + num);
}

/*
 * Makes an inventory in the caller's memory, not started, for the keys of its mmaps' first device.
 *
 * memory  on a cache line; of the inventory until it is destroyed
 * size    its bytes, at least inlay_inventory_size(num)
 *
 * Returns 0, or -EINVAL for an argument out of its range.
 */
INLAY_COLD int inlay_inventory_create(void *memory, size_t size, uint32_t num, struct inlay_inventory **inv)
{
	struct inlay_inventory *i = (struct inlay_inventory *)memory;

	if (inlay_store_check(memory, size, inlay_inventory_size(num)))
		return -EINVAL;
	__builtin_memset(i, 0, sizeof(*i));
	i->store.floor = INLAY_STORE_STOPPED;
	inlay_store_add(&i->store, (struct inlay_buf *)(void *)(i + 1), num, 0);
	*inv = i;
	return 0;
}

/* The keys shall be those of this device, by the order of adding to the mmap. Returns 0, or -EBADFD after the first start. */
INLAY_COLD int inlay_inventory_set_dev(struct inlay_inventory *inv, uint32_t dev)
{
	if (inv->store.frozen)
		return -EBADFD;
	inv->store.dev = dev;
	return 0;
}

/* Returns 0, or -EBADFD after the first start. 0 before it is set. */
INLAY_COLD int inlay_inventory_set_user_data(struct inlay_inventory *inv, uint64_t data)
{
	if (inv->store.frozen)
		return -EBADFD;
	inv->store.user_data = data;
	return 0;
}

INLAY_COLD uint64_t inlay_inventory_get_user_data(const struct inlay_inventory *inv)
{
	return inv->store.user_data;
}

/* Returns 0, or -EBADFD when it is started. */
INLAY_COLD int inlay_inventory_start(struct inlay_inventory *inv)
{
	return inlay_store_start(&inv->store);
}

/* From now on no buffer is got; those that are out come back as ever. Returns 0, or -EBADFD when it is not started. */
INLAY_COLD int inlay_inventory_stop(struct inlay_inventory *inv)
{
	return inlay_store_stop(&inv->store);
}

/* Stops it if need be; its memory is the caller's again. Returns 0, or -EBUSY while a buffer is out: then it is as it was. */
INLAY_COLD int inlay_inventory_destroy(struct inlay_inventory *inv)
{
	if (inv->store.free != inv->store.num)
		return -EBUSY;
	inv->store.floor = INLAY_STORE_STOPPED;
	return 0;
}

/*
 * Adds num descriptors to a started inventory. A get finds them no slower than the first ones: they are numbered by their distance from the
 * inventory, and a stack for all numbers, old and new, comes with them.
 *
 * memory  on a cache line; of the inventory until it is destroyed
 * size    its bytes, at least inlay_inventory_expand_size(inv, num)
 *
 * Returns 0; -EBADFD when it is not started; -EINVAL for an argument out of its range; -ERANGE for memory more than 128 GiB from the
 * inventory's ("Growing" says where to take it from): nothing is changed, and memory elsewhere may do.
 */
INLAY_COLD int inlay_inventory_expand(struct inlay_inventory *inv, void *memory, size_t size, uint32_t num)
{
	struct inlay_store *s = &inv->store;
	int err = inlay_store_expandable(s, memory, size, num);

	if (err)
		return err;
	inlay_store_make(s, (struct inlay_buf *)memory, inlay_store_bytes(num, (uint64_t)s->num + num), num, 0);
	inlay_store_adopt(s, (struct inlay_buf *)memory, num);
	return 0;
}

/* Which error a get has come upon. */
INLAY_COLD int inlay_store_error(const struct inlay_store *s, const struct inlay_mmap *mmap, const void *addr, size_t len, size_t data_len)
{
	const struct inlay_range *r = inlay_mmap_find(mmap, addr, len);
	struct inlay_keys keys;

	if (__atomic_load_n(&s->floor, __ATOMIC_RELAXED) || !inlay_mmap_started(mmap))
		return -EBADFD;
	if (data_len > INLAY_BUF_WINDOW || !r)
		return -EINVAL;
	return inlay_store_keys(s->dev, mmap, r, &keys) ? -ENOENT : -ENOMEM;
}

/* The same; the compiler is told that it is one. */
INLAY_ALWAYS int inlay_store_refuse(const struct inlay_store *s, const struct inlay_mmap *mmap, const void *addr, size_t len, size_t data_len)
{
	int err = inlay_store_error(s, mmap, addr, len, data_len);

	if (!err)
		__builtin_unreachable();
	return err;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path
 */

/* Descriptors, and those of them that are not out. */
INLAY_FN uint32_t inlay_inventory_num_elements(const struct inlay_inventory *inv)
{
	return inv->store.num;
}

INLAY_FN uint32_t inlay_inventory_num_free(const struct inlay_inventory *inv)
{
	return inv->store.free;
}

/*
 * A buffer over [addr, addr + len), which must lie in one range of the mmap, with the window [data, data + data_len), which must lie in the
 * buffer. It has one reference and is in no list.
 *
 * Returns 0; -EINVAL when no single range holds it, or for a window above 2^31 - 1 bytes; -ENOMEM when no descriptor is free; -EBADFD when
 * inventory or mmap is not started; -ENOENT when the mmap has no such device as the inventory is for.
 */
INLAY_ALWAYS int inlay_inventory_get_by_args(struct inlay_inventory *inv, struct inlay_mmap *mmap, void *addr, size_t len, void *data,
					     size_t data_len, struct inlay_buf **buf)
{
	struct inlay_store *s = &inv->store;
	const struct inlay_range *r = inlay_store_range(&s->hint, mmap, (uintptr_t)addr, len);
	struct inlay_keys keys;

	if (INLAY_UNLIKELY(!r) || INLAY_UNLIKELY(s->free <= s->floor) || INLAY_UNLIKELY(data_len > INLAY_BUF_WINDOW) ||
	    INLAY_UNLIKELY(inlay_store_keys(s->dev, mmap, r, &keys)))
		return inlay_store_refuse(s, mmap, addr, len, data_len);
	*buf = inlay_store_take(s);
	inlay_buf_fill(*buf, 0, mmap, r->id, &keys, addr, len, data, (uint32_t)data_len);
	inlay_mmap_hold(mmap);
	return 0;
}

/* The same with an empty window at its start. */
INLAY_ALWAYS int inlay_inventory_get_by_addr(struct inlay_inventory *inv, struct inlay_mmap *mmap, void *addr, size_t len, struct inlay_buf **buf)
{
	return inlay_inventory_get_by_args(inv, mmap, addr, len, addr, 0, buf);
}

/* The same with a window over all of it. */
INLAY_ALWAYS int inlay_inventory_get_by_data(struct inlay_inventory *inv, struct inlay_mmap *mmap, void *data, size_t data_len,
					     struct inlay_buf **buf)
{
	return inlay_inventory_get_by_args(inv, mmap, data, data_len, data, data_len, buf);
}

/* inlay_buf_dec_refcount of a buffer of this inventory; a little faster, where the next get follows at once. */
INLAY_ALWAYS int inlay_inventory_dec_refcount(struct inlay_inventory *inv, struct inlay_buf *buf, uint16_t *prev)
{
	return inlay_store_dec_refcount(&inv->store, NULL, buf, prev);
}

/*
 * n buffers of one mmap: inlay_inventory_get_by_args for each of args[]. All or none: returns 0, or the error of the first that cannot be
 * had, with nothing taken and bufs[] undefined.
 */
INLAY_ALWAYS int inlay_inventory_get(struct inlay_inventory *inv, struct inlay_mmap *mmap, const struct inlay_buf_args *args, uint32_t n,
				     struct inlay_buf **bufs)
{
	struct inlay_store *s = &inv->store;
	const struct inlay_range *r;
	struct inlay_keys keys;
	uint32_t i, dev = s->dev, hint = s->hint, free = s->free;
	const int32_t *stack = s->stack;

	if (INLAY_UNLIKELY(!n))
		return 0;
	if (INLAY_UNLIKELY(s->floor) || INLAY_UNLIKELY(free < n))
		return s->floor || !inlay_mmap_started(mmap) ? -EBADFD : -ENOMEM;
	for (i = 0; i < n; i++) {
		r = inlay_store_range(&hint, mmap, (uintptr_t)args[i].addr, args[i].len);
		if (INLAY_UNLIKELY(!r) || INLAY_UNLIKELY(args[i].data_len > INLAY_BUF_WINDOW) ||
		    INLAY_UNLIKELY(inlay_store_keys(dev, mmap, r, &keys)))
			goto refused;
		bufs[i] = inlay_store_buf(s, stack[--free]);
		inlay_buf_fill(bufs[i], 0, mmap, r->id, &keys, args[i].addr, args[i].len, args[i].data, (uint32_t)args[i].data_len);
	}
	s->free = free;
	s->hint = hint;
	inlay_mmap_hold_many(mmap, n);
	return 0;
refused:
	/* The numbers are still on the stack. */
	for (n = i; i--;)
		inlay_buf_set_state(bufs[i], 0);
	return inlay_store_refuse(s, mmap, args[n].addr, args[n].len, args[n].data_len);
}

/* A copy of one descriptor, which is there to be taken. */
INLAY_ALWAYS void inlay_store_copy(struct inlay_buf *to, const struct inlay_buf *from, uint16_t flags, const struct inlay_keys *keys)
{
	inlay_buf_fill(to, flags, from->mmap, from->range, keys, from->head, from->len, from->data, from->data_len);
	inlay_mmap_hold(from->mmap);
}

/* May src be copied into descriptors for keys of device dev? Returns how many they are, or the error. */
INLAY_FN int inlay_store_copyable(const struct inlay_buf *src, uint32_t dev)
{
	const struct inlay_buf *b;
	struct inlay_keys keys;
	int n = 0;

	if (!inlay_buf_refcount(src))
		return -EINVAL;
	if (src->flags & INLAY_BUF_ELEMENT)
		return -EPERM;
	for (b = src; b; b = inlay_buf_next(b), n++) {
		if (!inlay_mmap_started(b->mmap))
			return -EBADFD;
		if (inlay_buf_keys(b, dev, &keys) && dev)
			return -ENOENT;
	}
	return n;
}

/* The keys for device dev of a buffer that inlay_store_copyable has looked at. */
INLAY_ALWAYS struct inlay_keys inlay_store_copy_keys(const struct inlay_buf *src, uint32_t dev)
{
	struct inlay_keys keys = {src->lkey, src->rkey};

	if (INLAY_UNLIKELY(dev != inlay_buf_store(src)->dev))
		inlay_buf_keys(src, dev, &keys);
	return keys;
}

/*
 * A copy of a buffer, or of a whole list when src is its head: other descriptors of the same memory, with the same windows, one reference, and
 * keys for this inventory's device. The payload is not copied. src may be of any owner.
 *
 * Returns 0; -EPERM when src is an element that is not a head; -EINVAL when it was given back; -EBADFD when inventory or mmap is not started;
 * -ENOMEM when there are fewer free descriptors than it takes (none is taken); -ENOENT as inlay_inventory_get_by_args; -ERANGE when
 * pieces of the inventory are too far apart for a list.
 */
INLAY_FN int inlay_inventory_dup(struct inlay_inventory *inv, const struct inlay_buf *src, struct inlay_buf **dst)
{
	struct inlay_store *s = &inv->store;
	struct inlay_buf *head = NULL, *buf;
	struct inlay_keys keys;
	int n, err = 0;

	if (s->floor)
		return -EBADFD;
	n = inlay_store_copyable(src, s->dev);
	if (n < 0)
		return n;
	if ((uint32_t)n > s->free)
		return -ENOMEM;
	for (; src && !err; src = inlay_buf_next(src)) {
		keys = inlay_store_copy_keys(src, s->dev);
		buf = inlay_store_take(s);
		inlay_store_copy(buf, src, 0, &keys);
		if (!head) {
			head = buf;
			continue;
		}
		err = inlay_buf_chain_list(head, buf);
		if (err)
			inlay_buf_free(buf);
	}
	if (err) {
		inlay_buf_dec_refcount(head, NULL);
		return err;
	}
	*dst = head;
	return 0;
}

#endif
