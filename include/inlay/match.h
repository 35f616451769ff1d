/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/match.h: tag matching in software. It decides which receive gets which message, in MPI's
 * order, in expected constant time at any depth.
 *
 *   size = inlay_match_size(4096);
 *   inlay_match_init(&m, aligned_alloc(64, size), size, 4096, 0, seed);
 *
 *   switch (inlay_match_post(&m, tag, mask, (uintptr_t)req, &found)) {       MPI_Irecv
 *   case 1: deliver(message(found.cookie), req); break;                      it was there
 *   case 0: req->handle = found.handle; break;                               posted
 *   }
 *   switch (inlay_match_arrive(&m, tag, 0, &found)) {                        a message arrives
 *   case 1: deliver(msg, request(found.cookie)); break;
 *   case 0: inlay_match_set_cookie(&m, found.handle, (uintptr_t)keep(msg));
 *   }
 *
 * Invariants:
 *   - A receive has a tag and a mask, a message has a tag. They match when
 *     ((message ^ receive) & mask & ~ignored) == 0. `ignored` is the same for a whole table.
 *   - A message goes to the oldest receive that matches it; a receive gets the oldest message that
 *     matches it. So no receive in the table matches a message in the table.
 *   - The cookie is the caller's name for a receive or message, the handle the table's.
 *
 * Threads: one owner at a time, or the caller's lock around every call.
 *
 * Cost, with n entries, c masks with receives (at most 8), and r receives of further masks:
 *
 *   operation            expected                      worst case
 *   arrive               O(1 + c) + a walk of r        65 nodes for each mask, + the walk
 *   post, exact          O(1)                          65 nodes, and 65 for each mask in use
 *   post, masked         O(1) once messages are known  n * 65 nodes
 *   probe, masked        O(1) in a class, else n       n
 *   remove               O(1)                          65 nodes, and 65 for each mask in use
 *
 * MPI needs three masks: any source, any tag, both. A message that differs from all masked receives
 * in a bit on which they agree, as its communicator, pays nothing for them. The first receive with a
 * mask may pass all kept messages: 20 us for 4,096, 1 to 2 ms for 65,536.
 *
 *   match/table.h  the hash table: entries, exact matching
 *   match/masks.h  masked receives
 *   match/mpi.h    MPI's envelope in 64 bits
 *
 * Sources: MPI 4.0, 3.5 (order) and 3.8 (probe, cancel).
 */
#ifndef INLAY_MATCH_H
#define INLAY_MATCH_H /* a trial: names may change */

#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/match/masks.h>
#include <inlay/match/mpi.h>
#include <inlay/match/table.h>

/* ---- Set-up ---- */

/*
 * Bytes of memory for a table of so many entries, 208 to 224 for each; 0 when out of range. An
 * entry uses 64 of them, a message that a masked receive has passed 64 to 128 more.
 */
INLAY_COLD size_t inlay_match_size(uint32_t entries)
{
	if (entries < INLAY_MATCH_MIN || entries > INLAY_MATCH_MAX)
		return 0;
	/* Two arrays of buckets, each twice the entries or more. Those of a class begin up to 8 after the first. */
	return (((size_t)4 << (32 - __builtin_clz(entries - 1))) + 16) * sizeof(uint32_t) +
	       ((size_t)entries + INLAY_MATCH_FIRST_ / 16) *
		       (sizeof(struct inlay_match_entry_) + 8 * sizeof(struct inlay_match_node_));
}

/*
 * Moves a table to larger memory; the old memory is no longer used. Handles, cookies and order
 * stay. Copies every entry: 65,536 take 4 ms. Arguments and errors as inlay_match_init; -EINVAL
 * also for fewer entries than the table has. After an error nothing has changed.
 */
INLAY_COLD int inlay_match_grow(struct inlay_match *m, void *memory, size_t size, uint32_t entries)
{
	const struct inlay_match_entry_ *from = m->entry;
	const struct inlay_match_node_ *side = m->side;
	struct inlay_match_entry_ *entry;
	struct inlay_match_node_ *node;
	uint32_t e, c, ref, left;
	size_t buckets;

	if (entries < m->entries || !inlay_match_size(entries) || !memory || (uintptr_t)memory % INLAY_CACHE_LINE)
		return -EINVAL;
	if (size < inlay_match_size(entries))
		return -ENOBUFS;
	m->entries = entries;
	m->shift = (uint8_t)(31 + __builtin_clz(entries - 1));
	buckets = (size_t)1 << (64 - m->shift);
	m->entry = (struct inlay_match_entry_ *)memory;
	m->side = (struct inlay_match_node_ *)(void *)(m->entry + entries + INLAY_MATCH_FIRST_ / 16);
	m->bucket = (uint32_t *)(void *)(m->side + 8 * ((size_t)entries + INLAY_MATCH_FIRST_ / 16));
	m->wild = m->bucket + buckets;
	__builtin_memset(m->bucket, 0, (2 * buckets + 16) * sizeof(*m->bucket));
	for (e = 0; e < m->fresh; e += 16) {
		entry = inlay_match_at_(m, e);
		*entry = from[e / 16];
		for (left = entry->kind ? entry->in & ~(1u << INLAY_MATCH_LISTED_) : 0; left; left &= left - 1) {
			c = (uint32_t)__builtin_ctz(left);
			ref = inlay_match_ref_(c, e, entry->kind == INLAY_MATCH_POSTED);
			node = inlay_match_node_at_(m, c, ref);
			if (node != &entry->node)
				*node = side[ref / 2];
			/* Rings stay. Trees do not: their shape depends on the number of buckets. */
			if (node->child[0] == INLAY_MATCH_MEMBER_)
				continue;
			*inlay_match_slot_(m, c, entry->tag) = ref;
			node->child[0] = node->child[1] = 0;
		}
	}
	return 0;
}

/*
 * Makes an empty table.
 *
 * memory   aligned to 64; in use until inlay_match_grow
 * size     bytes of memory, at least inlay_match_size(entries)
 * entries  receives and messages together, INLAY_MATCH_MIN .. INLAY_MATCH_MAX
 * ignored  tag bits that never count, whatever a mask says; usually 0
 * seed     a number; if it is secret (getrandom(2)), no peer can choose tags that share a bucket
 *
 * Returns 0; -EINVAL for entries out of range or memory that is not aligned; -ENOBUFS when size is
 * too small.
 */
INLAY_COLD int inlay_match_init(struct inlay_match *m, void *memory, size_t size, uint32_t entries, uint64_t ignored,
				uint64_t seed)
{
	int err;

	__builtin_memset(m, 0, sizeof(*m));
	err = inlay_match_grow(m, memory, size, entries);
	if (err)
		return err;
	__builtin_memset(m->entry, 0, INLAY_MATCH_FIRST_ / 16 * sizeof(*m->entry));
	inlay_match_at_(m, INLAY_MATCH_LIST_)->older = inlay_match_at_(m, INLAY_MATCH_LIST_)->newer = INLAY_MATCH_LIST_;
	inlay_match_at_(m, INLAY_MATCH_LIST_)->seq = ~(uint64_t)0;
	/* splitmix64's last steps: seeds that differ in one bit give unrelated numbers */
	seed += 0x9e3779b97f4a7c15u;
	seed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9u;
	seed = (seed ^ seed >> 27) * 0x94d049bb133111ebu;
	m->multiplier = (seed ^ seed >> 31) | 1;
	__builtin_memset(m->mask, 0xff, sizeof(m->mask)); /* of no class: any tag's own hash */
	m->mask[0] = ~ignored;
	m->seq = 1;
	m->fresh = INLAY_MATCH_FIRST_;
	m->classes = 1;
	return 0;
}

/* ---- Receives and messages ---- */

/* Removes the first entry of a tag, if it is of this kind. Returns 1: it is *found. 0: it is not. */
INLAY_ALWAYS int inlay_match_take_first_(struct inlay_match *m, uint32_t *slot, enum inlay_match_kind kind,
					 struct inlay_match_found *found)
{
	const uint32_t first = *slot;
	struct inlay_match_entry_ *entry = inlay_match_at_(m, first);

	if (entry->kind != kind)
		return 0;
	inlay_match_tell_(m, first, found, 1);
	inlay_match_unlink_first_(m, slot, 0);
	if (kind == INLAY_MATCH_POSTED)
		inlay_match_leave_(m, entry, first, 1);
	else
		inlay_match_forget_(m, entry, first);
	return 1;
}

/*
 * Takes the oldest entry of this kind and exactly this tag: first part of inlay_match_arrive
 * (INLAY_MATCH_POSTED), or of inlay_match_post with INLAY_MATCH_EXACT (INLAY_MATCH_UNEXPECTED).
 * Returns 1: *found was removed. 0: nothing has changed. Then make the full call, which looks at
 * masked receives too and adds an entry.
 */
INLAY_ALWAYS int inlay_match_take(struct inlay_match *m, uint64_t tag, enum inlay_match_kind kind,
				  struct inlay_match_found *found)
{
	if (kind == INLAY_MATCH_POSTED && INLAY_UNLIKELY(m->live) && !((tag ^ m->shared) & m->same))
		return 0;
	return inlay_match_take_first_(m, inlay_match_slot_(m, 0, tag), kind, found);
}

/* Posts an exact receive, whose tag has this slot. */
INLAY_ALWAYS int inlay_match_add_(struct inlay_match *m, uint32_t *slot, uint64_t tag, uint64_t cookie,
				  struct inlay_match_found *found)
{
	uint32_t e = inlay_match_new_(m, INLAY_MATCH_POSTED, tag & m->mask[0], m->mask[0], 0, cookie);

	if (INLAY_UNLIKELY(!e))
		return inlay_match_tell_(m, 0, found, -EAGAIN);
	m->posted++;
	inlay_match_link_(m, slot, *slot, 0, e);
	return inlay_match_tell_(m, e, found, 0);
}

/*
 * Posts a receive with INLAY_MATCH_EXACT that no message matches: the rest of inlay_match_post, when
 * inlay_match_take has returned 0 or no message is kept. Returns 0 or -EAGAIN, as inlay_match_post.
 */
INLAY_ALWAYS int inlay_match_add(struct inlay_match *m, uint64_t tag, uint64_t cookie, struct inlay_match_found *found)
{
	uint32_t *slot = inlay_match_slot_(m, 0, tag);

	INLAY_CHECK(inlay_match_at_(m, *slot)->kind != INLAY_MATCH_UNEXPECTED, "no message matches the receive");
	return inlay_match_add_(m, slot, tag, cookie, found);
}

/*
 * Posts a receive, or removes the oldest message that matches it.
 *
 * mask    the bits of tag that count; INLAY_MATCH_EXACT: all that the table does not ignore
 *
 * Returns 1: *found is the message. 0: the receive is posted; found->handle names it. -EAGAIN: no
 * message matches and the table is full; grow it, or wait for an entry to leave.
 */
INLAY_ALWAYS int inlay_match_post(struct inlay_match *m, uint64_t tag, uint64_t mask, uint64_t cookie,
				  struct inlay_match_found *found)
{
	uint32_t *slot, e;

	if (INLAY_UNLIKELY(~mask & m->mask[0])) {
		e = inlay_match_post_masked_(m, tag, mask & m->mask[0], cookie);
		if (INLAY_UNLIKELY(!e))
			return inlay_match_tell_(m, 0, found, -EAGAIN);
		inlay_match_tell_(m, e, found, 0);
		if (found->kind == INLAY_MATCH_POSTED)
			return 0;
		found->kind = INLAY_MATCH_UNEXPECTED; /* it has left */
		return 1;
	}
	slot = inlay_match_slot_(m, 0, tag);
	if (inlay_match_take_first_(m, slot, INLAY_MATCH_UNEXPECTED, found))
		return 1;
	return inlay_match_add_(m, slot, tag, cookie, found);
}

/* Removes the oldest receive that matches a message of this tag and slot. Returns 1: it is *found. 0: none. */
INLAY_ALWAYS int inlay_match_meet_(struct inlay_match *m, uint32_t *slot, uint64_t tag, struct inlay_match_found *found)
{
	uint32_t masked;

	if (INLAY_UNLIKELY(m->live) && !((tag ^ m->shared) & m->same)) {
		masked = inlay_match_take_masked_(m, tag, inlay_match_at_(m, *slot));
		if (masked) {
			inlay_match_tell_(m, masked, found, 1);
			found->kind = INLAY_MATCH_POSTED; /* it has left */
			return 1;
		}
	}
	return inlay_match_take_first_(m, slot, INLAY_MATCH_POSTED, found);
}

/* inlay_match_arrive for a message that cannot be kept. Returns 1; or 0: nothing has changed. */
INLAY_FN int inlay_match_meet(struct inlay_match *m, uint64_t tag, struct inlay_match_found *found)
{
	return inlay_match_meet_(m, inlay_match_slot_(m, 0, tag), tag, found);
}

/*
 * Removes the oldest receive that matches a message, or else keeps the message.
 *
 * Returns 1: *found is the receive, which hardware may have too (found->in_hw). 0: the message is
 * kept; found->handle names it. -EAGAIN: no receive matches and the table is full.
 */
INLAY_ALWAYS int inlay_match_arrive(struct inlay_match *m, uint64_t tag, uint64_t cookie,
				    struct inlay_match_found *found)
{
	uint32_t *slot = inlay_match_slot_(m, 0, tag), e;

	if (inlay_match_meet_(m, slot, tag, found))
		return 1;
	e = inlay_match_new_(m, INLAY_MATCH_UNEXPECTED, tag, INLAY_MATCH_EXACT, 0, cookie);
	if (INLAY_UNLIKELY(!e))
		return inlay_match_tell_(m, 0, found, -EAGAIN);
	inlay_match_append_(m, 0, e);
	m->unexpected++;
	inlay_match_link_(m, slot, *slot, 0, e);
	return inlay_match_tell_(m, e, found, 0);
}

/* Looks for the oldest message that a receive would take. Returns 1: it is *found. 0: none. */
INLAY_FN int inlay_match_probe(const struct inlay_match *m, uint64_t tag, uint64_t mask,
			       struct inlay_match_found *found)
{
	uint32_t e;

	mask &= m->mask[0];
	if (mask == m->mask[0])
		e = *inlay_match_slot_(m, 0, tag);
	else
		e = inlay_match_start_(m, inlay_match_class_of_(m, mask), tag);
	while (e && (inlay_match_at_(m, e)->tag ^ tag) & mask)
		e = inlay_match_at_(m, e)->newer;
	if (inlay_match_at_(m, e)->kind != INLAY_MATCH_UNEXPECTED)
		return 0;
	return inlay_match_tell_(m, e, found, 1);
}

/*
 * Removes a receive (cancelled, or consumed by hardware) or a message (its sender has died, or a
 * probe has chosen it). Returns 0: *found is what was removed. -ENOENT: it had left.
 */
INLAY_FN int inlay_match_remove(struct inlay_match *m, uint64_t handle, struct inlay_match_found *found)
{
	const uint32_t e = inlay_match_of_(m, handle);

	if (!e)
		return -ENOENT;
	inlay_match_tell_(m, e, found, 0);
	inlay_match_take_(m, e);
	return 0;
}

/* Gives a receive or a message another cookie. Returns 0, or -ENOENT when it has left. */
INLAY_FN int inlay_match_set_cookie(struct inlay_match *m, uint64_t handle, uint64_t cookie)
{
	const uint32_t e = inlay_match_of_(m, handle);

	if (!e)
		return -ENOENT;
	inlay_match_at_(m, e)->cookie = cookie;
	return 0;
}

/* How many receives are posted (INLAY_MATCH_POSTED), or messages kept (INLAY_MATCH_UNEXPECTED). */
INLAY_FN uint32_t inlay_match_count(const struct inlay_match *m, enum inlay_match_kind kind)
{
	return kind == INLAY_MATCH_UNEXPECTED ? m->unexpected : m->posted;
}

/* Whether there is neither. */
INLAY_ALWAYS int inlay_match_is_empty(const struct inlay_match *m)
{
	return !m->unexpected && !m->posted;
}

/*
 * Visits all receives and messages, in no order. Set *at to 0 first. What was found may be removed
 * before the next call; what is added may be missed. Returns 1, or 0 after the last.
 */
INLAY_FN int inlay_match_next(const struct inlay_match *m, uint32_t *at, struct inlay_match_found *found)
{
	while ((*at += 16) < m->fresh)
		if (inlay_match_at_(m, *at)->kind != INLAY_MATCH_FREE)
			return inlay_match_tell_(m, *at, found, 1);
	return 0;
}

/* ---- With a hardware list: the receives there are in the table too (tag/recv.h) ---- */

/*
 * Notes that hardware has a posted receive, under the number hw. Of receives with one tag and mask,
 * give hardware the oldest first. Returns 0, or -ENOENT when the receive has left.
 */
INLAY_FN int inlay_match_set_hw(struct inlay_match *m, uint64_t handle, uint32_t hw)
{
	const uint32_t e = inlay_match_of_(m, handle);
	struct inlay_match_entry_ *entry = inlay_match_at_(m, e);
	uint32_t c;

	if (entry->kind != INLAY_MATCH_POSTED)
		return -ENOENT;
	c = (uint32_t)__builtin_ctz(entry->in);
	INLAY_CHECK(c == INLAY_MATCH_LISTED_ || entry->node.child[0] != INLAY_MATCH_MEMBER_ ||
		    inlay_match_at_(m, entry->node.prev & ~15u)->in_hw,
		    "no receive in hardware comes after one of the same tag that is not");
	m->cls[c].hw += !entry->in_hw;
	entry->in_hw = 1;
	entry->hw = hw;
	return 0;
}

/*
 * Whether a receive, not yet posted, must stay out of hardware: a posted one that hardware lacks
 * might match the same message. Errs on the safe side: a posted receive blocks whatever its tag if
 * its mask has bits outside this one, or if it was posted while eight other masks had receives.
 */
INLAY_FN int inlay_match_hw_blocked(const struct inlay_match *m, uint64_t tag, uint64_t mask)
{
	const struct inlay_match_entry_ *entry;
	uint32_t exact = m->posted, c, ref;

	for (c = 1; m->live >> c; c++)
		exact -= m->cls[c].posted;
	for (c = 0; c < m->classes; c++) {
		if ((c ? m->cls[c].posted : exact) == m->cls[c].hw)
			continue;
		if (m->mask[c] & ~mask)
			return 1;
		ref = *inlay_match_slot_(m, c, tag);
		entry = inlay_match_at_(m, ref & ~15u);
		if (entry->kind == INLAY_MATCH_POSTED && !inlay_match_at_(m, entry->node.prev & ~15u)->in_hw)
			return 1;
	}
	return m->cls[INLAY_MATCH_LISTED_].posted != m->cls[INLAY_MATCH_LISTED_].hw;
}

INLAY_CASTS_END_
#endif
