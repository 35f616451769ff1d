/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/match/masks.h: masked receives in the table of inlay/match.h.
 *
 * Receives are grouped into classes by their mask: the exact one, and up to 8 for other masks. An
 * arriving message is looked up in each class that has receives, and the oldest receive wins. When
 * all 8 are taken, a new mask gets the least recently used class without receives; if all have
 * some, its receives go to a list that is walked.
 *
 * A masked receive goes through the kept messages, oldest first, and enters in its class those that
 * it passes. The next receive of that mask finds them by key and continues after them.
 */
#ifndef INLAY_MATCH_MASKS_H
#define INLAY_MATCH_MASKS_H /* a trial: names may change */

#include <inlay/base.h>
#include <inlay/match/table.h>

/* ---- Removal ---- */

/* Takes an entry out of these classes, of which the list is one. */
INLAY_APART void inlay_match_unlink_(struct inlay_match *m, uint32_t e, uint32_t classes)
{
	struct inlay_match_entry_ *entry = inlay_match_at_(m, e);
	const struct inlay_match_node_ *node;
	uint32_t c, ref;

	for (entry->in &= (uint16_t)~classes; classes; classes &= classes - 1) {
		c = (uint32_t)__builtin_ctz(classes);
		ref = inlay_match_ref_(c, e, entry->kind == INLAY_MATCH_POSTED);
		node = inlay_match_node_at_(m, c, ref);
		if (c == INLAY_MATCH_LISTED_) {
			inlay_match_unlist_(m, entry);
		} else if (node->child[0] == INLAY_MATCH_MEMBER_) {
			inlay_match_node_at_(m, c, node->prev)->next = node->next;
			inlay_match_node_at_(m, c, node->next)->prev = node->prev;
		} else {
			inlay_match_unlink_first_(m, inlay_match_slot_(m, c, entry->tag), c);
		}
		if (m->cls[c].last == e)
			m->cls[c].last = entry->older;
	}
}

/* Forgets a message that is out of class 0. */
INLAY_ALWAYS void inlay_match_forget_(struct inlay_match *m, struct inlay_match_entry_ *entry, uint32_t e)
{
	if (INLAY_UNLIKELY(entry->in & ~1u))
		inlay_match_unlink_(m, e, entry->in & ~1u);
	inlay_match_unlist_(m, entry);
	m->unexpected--;
	inlay_match_free_(m, entry, e);
}

/* Forgets a receive that is out of its class or list, that of the one bit of `in`. */
INLAY_ALWAYS void inlay_match_leave_(struct inlay_match *m, struct inlay_match_entry_ *entry, uint32_t e, uint16_t in)
{
	struct inlay_match_class_ *cls = &m->cls[__builtin_ctz(in)];

	m->posted--;
	cls->hw -= entry->in_hw;
	if (in != 1 && !--cls->posted)
		m->live &= (uint16_t)~in;
	inlay_match_free_(m, entry, e);
}

/* Takes out any entry. */
INLAY_APART void inlay_match_take_(struct inlay_match *m, uint32_t e)
{
	struct inlay_match_entry_ *entry = inlay_match_at_(m, e);
	const uint16_t in = entry->in;

	inlay_match_unlink_(m, e, in);
	if (entry->kind == INLAY_MATCH_UNEXPECTED)
		inlay_match_forget_(m, entry, e);
	else
		inlay_match_leave_(m, entry, e, in);
}

/* ---- Classes ---- */

INLAY_FN uint32_t inlay_match_class_of_(const struct inlay_match *m, uint64_t mask)
{
	uint32_t c;

	for (c = 1; c < m->classes; c++)
		if (m->mask[c] == mask)
			return c;
	return 0;
}

/* Gives a class to a mask that has none. Returns 0 when eight others have receives. */
INLAY_APART uint32_t inlay_match_claim_(struct inlay_match *m, uint64_t mask)
{
	const uint32_t now = (uint32_t)m->seq;
	uint32_t c, best = 0;

	if (m->classes <= INLAY_MATCH_CLASSES) {
		best = m->classes++;
	} else {
		for (c = 1; c <= INLAY_MATCH_CLASSES; c++)
			if (!m->cls[c].posted && (!best || now - m->cls[c].used > now - m->cls[best].used))
				best = c;
		if (!best)
			return 0;
		while (m->cls[best].last)
			inlay_match_unlink_(m, m->cls[best].last, 1u << best);
	}
	m->mask[best] = mask;
	return best;
}

/* ---- Messages for a masked receive ---- */

/* The oldest message that matches, if the class has it, or the first to walk from. 0: none. */
INLAY_ALWAYS uint32_t inlay_match_start_(const struct inlay_match *m, uint32_t c, uint64_t tag)
{
	uint32_t e = inlay_match_at_(m, 0)->newer;

	if (!c || !e)
		return e;
	e = *inlay_match_slot_(m, c, tag) & ~15u;
	if (!e)
		return inlay_match_at_(m, m->cls[c].last)->newer;
	return inlay_match_at_(m, e)->kind == INLAY_MATCH_UNEXPECTED ? e : 0;
}

/*
 * Posts a receive whose mask has no ignored bit, or takes out the oldest message that matches.
 * Returns the entry of either, or 0 when the table is full.
 */
INLAY_APART uint32_t inlay_match_post_masked_(struct inlay_match *m, uint64_t tag, uint64_t mask, uint64_t cookie)
{
	uint32_t c = inlay_match_class_of_(m, mask), e, *slot;

	if (!c)
		c = inlay_match_claim_(m, mask);
	m->cls[c].used = (uint32_t)m->seq;
	e = inlay_match_start_(m, c, tag);
	for (; e && (inlay_match_at_(m, e)->tag ^ tag) & mask; e = inlay_match_at_(m, e)->newer) {
		if (!c)
			continue;
		slot = inlay_match_slot_(m, c, inlay_match_at_(m, e)->tag);
		inlay_match_link_(m, slot, *slot, c, inlay_match_ref_(c, e, 0));
		inlay_match_at_(m, e)->in |= (uint16_t)(1u << c);
		m->cls[c].last = e;
	}
	if (e) {
		inlay_match_take_(m, e);
		return e;
	}
	if (!c)
		c = INLAY_MATCH_LISTED_;
	e = inlay_match_new_(m, INLAY_MATCH_POSTED, tag & mask, mask, c, cookie);
	if (INLAY_UNLIKELY(!e))
		return 0;
	if (c == INLAY_MATCH_LISTED_) {
		inlay_match_append_(m, INLAY_MATCH_LIST_, e);
	} else {
		slot = inlay_match_slot_(m, c, tag);
		inlay_match_link_(m, slot, *slot, c, inlay_match_ref_(c, e, 1));
	}
	m->same = m->live ? m->same & mask & ~(tag ^ m->shared) : mask;
	m->shared = tag;
	m->posted++;
	m->cls[c].posted++;
	m->live |= (uint16_t)(1u << c);
	return e;
}

/* ---- Masked receives for a message ---- */

/* Takes out the oldest masked receive that matches, unless `exact` is a receive and older. Or 0. */
INLAY_APART uint32_t inlay_match_search_(struct inlay_match *m, uint64_t tag, const struct inlay_match_entry_ *exact)
{
	uint64_t than = exact->kind == INLAY_MATCH_POSTED ? exact->seq : ~(uint64_t)0;
	const struct inlay_match_entry_ *entry;
	uint32_t *at, *slot = NULL, c, e;

	for (c = 1; c < m->classes; c++) {
		at = inlay_match_slot_(m, c, tag);
		if (INLAY_LIKELY(!*at))
			continue;
		entry = inlay_match_at_(m, *at & ~15u);
		if (entry->kind == INLAY_MATCH_POSTED && entry->seq < than) {
			than = entry->seq;
			slot = at;
		}
	}
	for (e = inlay_match_at_(m, INLAY_MATCH_LIST_)->newer; inlay_match_at_(m, e)->seq < than; e = entry->newer) {
		entry = inlay_match_at_(m, e);
		if (!((entry->tag ^ tag) & entry->mask)) {
			inlay_match_take_(m, e);
			return e;
		}
	}
	if (!slot)
		return 0;
	e = *slot & ~15u;
	inlay_match_unlink_first_(m, slot, 1);
	inlay_match_leave_(m, inlay_match_at_(m, e), e, inlay_match_at_(m, e)->in);
	return e;
}

/* The same; with many masks, first looks whether any bucket is in use, in a third of the time. */
INLAY_APART uint32_t inlay_match_take_masked_(struct inlay_match *m, uint64_t tag,
					      const struct inlay_match_entry_ *exact)
{
	uint32_t c, any = m->classes <= 4 || m->live >> INLAY_MATCH_LISTED_;

	if (!any) {
		INLAY_UNROLL_(8)
		for (c = 1; c <= INLAY_MATCH_CLASSES; c++)
			any |= m->wild[c + ((tag & m->mask[c]) * m->multiplier >> m->shift)];
	}
	return any ? inlay_match_search_(m, tag, exact) : 0;
}

#endif
