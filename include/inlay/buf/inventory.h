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
 *   - A dup is a copy of the descriptor: the same memory and the same window at first, but a window and a
 *     reference count of its own. No payload is copied. Of a
 *     head, which stands for its list, the whole list is copied: this is why DOCA takes heads and no other elements.
 *   - Not started: -EBADFD for every get (DOCA names the code for dup and expand only).
 *
 * Growing. All memory of an inventory lies within 128 GiB of it, or expand answers -ERANGE and changes nothing: a link of a list is a
 * distance. Two blocks of malloc are often further apart: glibc takes small ones from behind the program and large ones by mmap, terabytes
 * away. Cut the pieces from one reservation, which costs addresses, and memory only as it is used. Sizes are whole lines; up to one page of
 * each piece is lost to blocks (buf.h), which begin on one.
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
 * The counts of an mmap. Every buffer counts in its mmap, which cannot be stopped before the last one is back. For 8 mmaps at a time this
 * costs nothing (mmap/ledger.h); more than these count each buffer, and are looked up for each. How many are out is found by looking at the
 * states of all, 62 on a line: some microseconds for many thousands.
 *
 * An inventory and its mmaps know each other as long as both are there: memory of either is not taken away before it is destroyed.
 *
 * Threads: one owner at a time, who gives back its buffers too. For more, buf/shared.h.
 * Sources: DOCA's documentation of doca_buf_inventory.
 */
#ifndef INLAY_BUF_INVENTORY_H
#define INLAY_BUF_INVENTORY_H

#include <inlay/base.h>
#include <inlay/mmap/ledger.h>
#include <inlay/mmap/lookup.h>
#include <inlay/mmap/map.h>
#include <inlay/buf/buf.h>

struct inlay_inventory {
	struct inlay_store store;
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
	INLAY_CHECK(inv, "an inventory is not NULL");
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
	int err = inlay_store_create(memory, size, sizeof(**inv), num, 0);

	if (!err)
		*inv = (struct inlay_inventory *)memory;
	return err;
}

/* The keys shall be those of this device, by the order of adding to the mmap. Returns 0, or -EBADFD after the first start. */
INLAY_COLD int inlay_inventory_set_dev(struct inlay_inventory *inv, uint32_t dev)
{
	INLAY_CHECK(inv, "an inventory is not NULL");
	return inlay_store_set_dev(&inv->store, dev);
}

/* Returns 0, or -EBADFD after the first start. 0 before it is set. */
INLAY_COLD int inlay_inventory_set_user_data(struct inlay_inventory *inv, uint64_t data)
{
	INLAY_CHECK(inv, "an inventory is not NULL");
	return inlay_store_set_user_data(&inv->store, data);
}

INLAY_COLD uint64_t inlay_inventory_get_user_data(const struct inlay_inventory *inv)
{
	INLAY_CHECK(inv, "an inventory is not NULL");
	return inv->store.user_data;
}

/* Returns 0, or -EBADFD when it is started. */
INLAY_COLD int inlay_inventory_start(struct inlay_inventory *inv)
{
	INLAY_CHECK(inv, "an inventory is not NULL");
	return inlay_store_start(&inv->store);
}

/* From now on no buffer is got; those that are out come back as ever. Returns 0, or -EBADFD when it is not started. */
INLAY_COLD int inlay_inventory_stop(struct inlay_inventory *inv)
{
	INLAY_CHECK(inv, "an inventory is not NULL");
	return inlay_store_stop(&inv->store);
}

/* Descriptors, and those of them that are not out. The latter looks at all: a line for each 62. */
INLAY_FN uint32_t inlay_inventory_num_elements(const struct inlay_inventory *inv)
{
	INLAY_CHECK(inv, "an inventory is not NULL");
	return inv->store.num;
}

INLAY_FN uint32_t inlay_inventory_num_free(const struct inlay_inventory *inv)
{
	INLAY_CHECK(inv, "an inventory is not NULL");
	return (uint32_t)inlay_ledger_free(&inv->store.ledger);
}

/* Stops it if need be; its memory is the caller's again. Returns 0, or -EBUSY while a buffer is out: then it is as it was. */
INLAY_COLD int inlay_inventory_destroy(struct inlay_inventory *inv)
{
	INLAY_CHECK(inv, "an inventory is not NULL");
	if (inlay_inventory_num_free(inv) != inv->store.num)
		return -EBUSY;
	inlay_store_stop(&inv->store);
	inlay_ledger_close(&inv->store.ledger);
	inv->store.floor = 2;
	return 0;
}

/*
 * Adds num descriptors to a started inventory, to be got when the others are out. A get finds them no slower than the first ones.
 *
 * memory  on a cache line; of the inventory until it is destroyed
 * size    its bytes, at least inlay_inventory_expand_size(inv, num)
 *
 * Returns 0; -EBADFD when it is not started; -EINVAL for an argument out of its range; -ERANGE for memory more than 128 GiB from the
 * inventory's ("Growing" says where to take it from): nothing is changed, and memory elsewhere may do.
 */
INLAY_COLD int inlay_inventory_expand(struct inlay_inventory *inv, void *memory, size_t size, uint32_t num)
{
	INLAY_CHECK(inv, "an inventory is not NULL");
	struct inlay_store *s = &inv->store;
	int err = inlay_store_expandable(s, memory, size, num);

	if (err)
		return err;
	inlay_store_adopt(s, inlay_store_make(s, memory, inlay_store_bytes(num, (uint64_t)s->num + num), num), num);
	return 0;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path
 */

/* inlay_inventory_get_by_args when something has to be looked for: a range, or a block with free descriptors. */
INLAY_COLD int inlay_inventory_get_new(struct inlay_inventory *inv, struct inlay_mmap *mmap, void *addr, size_t len,
				       void *data, size_t data_len, struct inlay_buf **buf)
{
	struct inlay_front *f = &inv->store.front;
	int err = inlay_front_turn(f, mmap, addr, len, data_len);

	if (err)
		return err;
	if (!f->bits && !inlay_store_refill(&inv->store))
		return -ENOMEM;
	*buf = inlay_front_get_any(f, addr, len, data, data_len);
	return 0;
}

/*
 * A buffer over [addr, addr + len), which must lie in one range of the mmap, with the window [data, data + data_len), which must lie in the
 * buffer. It has one reference and is in no list.
 *
 * Returns 0; -EINVAL for no mmap, when no single range holds it, or for a window above 2^31 - 1 bytes; -ENOMEM when no descriptor is free; -EBADFD when
 * inventory or mmap is not started; -ENOENT when the mmap has no such device as the inventory is for.
 */
INLAY_ALWAYS int inlay_inventory_get_by_args(struct inlay_inventory *inv, struct inlay_mmap *mmap, void *addr, size_t len, void *data,
					     size_t data_len, struct inlay_buf **buf)
{
	INLAY_CHECK(inv, "an inventory is not NULL");
	struct inlay_front *f = &inv->store.front;

	if (INLAY_UNLIKELY(!inlay_front_ready(f, mmap, addr, len, data_len)))
		return inlay_inventory_get_new(inv, mmap, addr, len, data, data_len, buf);
	*buf = inlay_front_get(f, addr, len, data, data_len);
	return 0;
}

/* The same with an empty window at its start. */
INLAY_ALWAYS int inlay_inventory_get_by_addr(struct inlay_inventory *inv, struct inlay_mmap *mmap, void *addr, size_t len,
					     struct inlay_buf **buf)
{
	INLAY_CHECK(inv, "an inventory is not NULL");
	return inlay_inventory_get_by_args(inv, mmap, addr, len, addr, 0, buf);
}

/* The same with a window over all of it. */
INLAY_ALWAYS int inlay_inventory_get_by_data(struct inlay_inventory *inv, struct inlay_mmap *mmap, void *data, size_t data_len,
					     struct inlay_buf **buf)
{
	INLAY_CHECK(inv, "an inventory is not NULL");
	return inlay_inventory_get_by_args(inv, mmap, data, data_len, data, data_len, buf);
}

/* inlay_buf_dec_refcount of a buffer of this inventory, which is not faster; INLAY_CHECKED=1 notices one of another. */
INLAY_ALWAYS int inlay_inventory_dec_refcount(struct inlay_inventory *inv, struct inlay_buf *buf, uint16_t *prev)
{
	INLAY_CHECK(inv, "an inventory is not NULL");
	(void)inv;
	INLAY_CHECK(inlay_buf_store(buf) == &inv->store, "a buffer goes back to where it is from");
	return inlay_buf_dec_refcount(buf, prev);
}

/*
 * n buffers of one mmap: inlay_inventory_get_by_args for each of args[]. All or none: returns 0, or the error of the first that cannot be
 * had, with nothing taken and bufs[] undefined.
 */
INLAY_ALWAYS int inlay_inventory_get(struct inlay_inventory *inv, struct inlay_mmap *mmap, const struct inlay_buf_args *args, uint32_t n,
				     struct inlay_buf **bufs)
{
	INLAY_CHECK(inv, "an inventory is not NULL");
	struct inlay_front *f = &inv->store.front;
	uint32_t i = 0;
	int err;

	while (i < n) {
		if (INLAY_UNLIKELY(!inlay_front_ready(f, mmap, args[i].addr, args[i].len, args[i].data_len))) {
			err = inlay_inventory_get_new(inv, mmap, args[i].addr, args[i].len, args[i].data, args[i].data_len, &bufs[i]);
			if (INLAY_UNLIKELY(err)) {
				inlay_buf_put(bufs, i);
				return err;
			}
			i++;
			continue;
		}
		i += inlay_front_get_many(f, &args[i], n - i, &bufs[i]);
	}
	return 0;
}

/* May src be copied into descriptors for keys of device dev? Returns 0, or the error. */
INLAY_FN int inlay_store_copyable(const struct inlay_buf *src, uint32_t dev)
{
	const struct inlay_buf *b;
	struct inlay_keys keys;

	if (!inlay_buf_refcount(src))
		return -EINVAL;
	if (src->flags & INLAY_BUF_ELEMENT)
		return -EPERM;
	for (b = src; b; b = inlay_buf_next(b)) {
		if (!inlay_mmap_started(b->from.mmap))
			return -EBADFD;
		if (inlay_buf_keys(b, dev, &keys) && dev)
			return -ENOENT;
	}
	return 0;
}

/* A copy of one descriptor, which inlay_store_copyable has looked at, from a front that has one. */
INLAY_FN struct inlay_buf *inlay_front_copy(struct inlay_front *f, const struct inlay_buf *src)
{
	struct inlay_store *s = f->store;
	struct inlay_keys keys = {src->lkey, src->from.rkey};
	struct inlay_origin from = src->from;
	struct inlay_buf *buf;
	uint64_t line;

	if (INLAY_UNLIKELY(s->dev != inlay_buf_store(src)->dev))
		inlay_buf_keys(src, s->dev, &keys);
	from.rkey = keys.rkey;
	buf = inlay_front_take(f, &line);
	inlay_buf_fill(buf, &from, (uint64_t)keys.lkey << 32, src->head, src->len, src->data, src->data_len);
	inlay_buf_begin(buf, inlay_store_new_state(s, from.mmap));
	return buf;
}

/*
 * A copy of a buffer, or of a whole list when src is its head: other descriptors of the same memory, with the same windows, one reference,
 * and keys for this inventory's device. The payload is not copied. src may be of any owner.
 *
 * Returns 0; -EPERM when src is an element that is not a head; -EINVAL when it was given back; -EBADFD when inventory or mmap is not
 * started; -ENOMEM when there are fewer free descriptors than it takes (none is taken); -ENOENT as inlay_inventory_get_by_args; -ERANGE
 * when pieces of the inventory are too far apart for a list.
 */
INLAY_FN int inlay_inventory_dup(struct inlay_inventory *inv, const struct inlay_buf *src, struct inlay_buf **dst)
{
	INLAY_CHECK(inv, "an inventory is not NULL");
	struct inlay_store *s = &inv->store;
	struct inlay_buf *head = NULL, *buf;
	int err;

	if (s->floor)
		return -EBADFD;
	err = inlay_store_copyable(src, s->dev);
	for (; src && !err; src = inlay_buf_next(src)) {
		if (!s->front.bits && !inlay_store_refill(s)) {
			err = -ENOMEM;
			break;
		}
		buf = inlay_front_copy(&s->front, src);
		if (!head) {
			head = buf;
			continue;
		}
		err = inlay_buf_chain_list(head, buf);
		if (err)
			inlay_buf_free(buf);
	}
	if (err) {
		if (head)
			inlay_buf_dec_refcount(head, NULL);
		return err;
	}
	*dst = head;
	return 0;
}

#endif
