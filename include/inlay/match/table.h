/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/match/table.h: the hash table under inlay/match.h. Receives and messages are entries of one
 * array; the table finds both by class and key.
 *
 *   bucket -> first entry of a key -- child[0] -> first entry of another key in this bucket
 *               |  ^           \----- child[1] -> ...
 *               v  |
 *             next entry of the same key, oldest first, in a ring
 *
 * The keys of one bucket form a digital search tree: the next bit of the hash says left or right.
 * The hash is the key times an odd number, so different keys have different hashes and no path is
 * longer than 65 nodes; most have one or two.
 *
 * A key is (tag & mask of its class). Class 0 is the exact one and has buckets of its own. The
 * other classes (match/masks.h) share a second array; a message that they have entered has a node
 * for each of them in an array apart. All other nodes are in the entries, so that matching touches
 * one cache line per entry.
 *
 * Invariants:
 *   - Under one key there are only receives or only messages.
 *   - A receive is in one class or in the list of receives. A message is in class 0, in the list of
 *     messages, and in each class that has entered it.
 *
 * Sources: Knuth, TAOCP 3, 6.3 (digital trees).
 */
#ifndef INLAY_MATCH_TABLE_H
#define INLAY_MATCH_TABLE_H /* a trial: names may change */

#include <inlay/base.h>

#define INLAY_MATCH_MIN 64u
#define INLAY_MATCH_MAX 1048576u
#define INLAY_MATCH_CLASSES 8u             /* without the exact one */
#define INLAY_MATCH_EXACT (~(uint64_t)0)

enum inlay_match_kind {
	INLAY_MATCH_FREE,
	INLAY_MATCH_POSTED,       /* a receive */
	INLAY_MATCH_UNEXPECTED,   /* a message */
};

/* What was found, posted or kept. */
struct inlay_match_found {
	uint64_t cookie;
	uint64_t tag;             /* of a message: as it arrived; of a receive: the bits that count */
	uint64_t mask;            /* of a receive: the bits that count; of a message: INLAY_MATCH_EXACT */
	uint64_t handle;          /* rises with each post and arrival; repeats after 2^43 of them */
	uint32_t kind;            /* INLAY_MATCH_POSTED or INLAY_MATCH_UNEXPECTED */
	uint32_t in_hw;           /* 1: the receive is in a hardware list too, */
	uint32_t hw;              /* under this number */
};

/*
 * An entry's place in a class. Entries are named by 16 times their number in the array; 0 is none.
 * A reference to a node is the entry's name plus twice the class modulo 8, plus INLAY_MATCH_OWN_
 * for a masked receive, whose node is in its entry. The other nodes of masked classes lie in an
 * array of their own, at eight times the reference in bytes.
 */
struct inlay_match_node_ {
	uint32_t child[2];        /* [0] INLAY_MATCH_MEMBER_: not the first of its key, so not in the tree */
	uint32_t next;            /* in the ring, oldest first; the newest's is the oldest */
	uint32_t prev;
};

#define INLAY_MATCH_MEMBER_ (~(uint32_t)0)
#define INLAY_MATCH_OWN_ 1u
#define INLAY_MATCH_LISTED_ 9u             /* pseudo-class of the list of receives */
#define INLAY_MATCH_LIST_ 16u              /* the entry that heads that list; 0 heads the list of messages */
#define INLAY_MATCH_FIRST_ 32u             /* the first entry for receives and messages */

struct inlay_match_entry_ {
	uint64_t tag;             /* of a receive: & mask */
	uint64_t seq;
	struct inlay_match_node_ node; /* receive: in its class; message: in class 0; free: next is free, too */
	uint64_t cookie;
	uint64_t mask;
	uint32_t older;           /* in a list; of its head: the newest */
	uint32_t newer;           /* in a list, whose newest has the head; of the head: the oldest */
	uint32_t hw;
	uint8_t kind;             /* enum inlay_match_kind; of heads FREE */
	uint8_t in_hw;
	uint16_t in;              /* bit c: it is in class c */
};

struct inlay_match_class_ {
	uint32_t posted;          /* receives; not counted for the exact class */
	uint32_t hw;              /* those of them in hardware too */
	uint32_t last;            /* the newest message entered: all older ones are, too; 0: none is */
	uint32_t used;            /* low bits of the sequence number of the last use */
};

struct inlay_match {
	uint32_t *bucket;         /* of class 0 */
	struct inlay_match_entry_ *entry;
	uint64_t multiplier;
	uint64_t seq;             /* the next one */
	uint16_t live;            /* bit c: class c > 0 has receives */
	uint8_t shift;            /* 64 - log2 of the buckets */
	uint8_t classes;          /* masks in use, with the exact one */
	uint32_t free;            /* an entry that is free again; 0: none */
	uint32_t fresh;           /* entries from here on were never used */
	uint32_t entries;
	uint32_t unexpected;      /* messages */
	uint32_t posted;          /* receives of all classes */
	uint64_t mask[INLAY_MATCH_CLASSES + 1]; /* of each class; [0]: all bits but the ignored ones */

	struct inlay_match_class_ cls[INLAY_MATCH_LISTED_ + 1];
	struct inlay_match_node_ *side; /* of messages in the other classes: 8 for each entry */
	uint32_t *wild;           /* buckets of the other classes */
	uint64_t same;            /* bits in which all masked receives since live was 0 agree, */
	uint64_t shared;          /* and a tag with these bits */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_match_entry_) == INLAY_CACHE_LINE, "an entry is one line");
INLAY_STATIC_ASSERT(offsetof(struct inlay_match, mask) + 8 == INLAY_CACHE_LINE, "exact lookups need the first line");
INLAY_STATIC_ASSERT(offsetof(struct inlay_match, cls) == 2 * INLAY_CACHE_LINE, "the other masks are one line");
INLAY_STATIC_ASSERT(sizeof(struct inlay_match) % INLAY_CACHE_LINE == 0, "whole lines");

/* ---- Nodes: of class 0, a constant where speed counts, or of any other class ---- */

INLAY_ALWAYS uint32_t inlay_match_ref_(uint32_t cls, uint32_t e, int own)
{
	return e | (cls & 7) << 1 | (cls && own ? INLAY_MATCH_OWN_ : 0);
}

INLAY_ALWAYS struct inlay_match_entry_ *inlay_match_at_(const struct inlay_match *m, uint32_t e)
{
	return (struct inlay_match_entry_ *)(void *)((uint8_t *)m->entry + (size_t)e * 4);
}

INLAY_ALWAYS struct inlay_match_node_ *inlay_match_node_at_(const struct inlay_match *m, uint32_t cls, uint32_t ref)
{
	if (cls && !(ref & INLAY_MATCH_OWN_))
		return (struct inlay_match_node_ *)(void *)((uint8_t *)m->side + (size_t)ref * 8);
	return &inlay_match_at_(m, cls ? ref & ~15u : ref)->node;
}

INLAY_ALWAYS int inlay_match_is_(const struct inlay_match *m, uint32_t cls, uint32_t ref, uint64_t key, uint64_t mask)
{
	return (!cls || (ref & 14) == inlay_match_ref_(cls, 0, 0)) &&
	       (inlay_match_at_(m, cls ? ref & ~15u : ref)->tag & mask) == key;
}

/*
 * Where the reference to the first entry of this class and tag is, or would be. Each class starts
 * one bucket further, so that one hash in one bucket is one class and key.
 */
INLAY_ALWAYS uint32_t *inlay_match_slot_(const struct inlay_match *m, uint32_t cls, uint64_t tag)
{
	const uint64_t mask = m->mask[cls], key = tag & mask, hash = key * m->multiplier;
	uint32_t *slot = &(cls ? m->wild : m->bucket)[cls + (hash >> m->shift)], ref = *slot;
	uint64_t path;

	if (!ref || INLAY_LIKELY(inlay_match_is_(m, cls, ref, key, mask)))
		return slot;
	path = hash << (64 - m->shift) | hash >> m->shift;
	do {
		slot = &inlay_match_node_at_(m, cls, ref)->child[path >> 63];
		path = path << 1 | path >> 63;
		ref = *slot;
	} while (ref && !inlay_match_is_(m, cls, ref, key, mask));
	return slot;
}

/* Puts a reference in at its slot, which has first: as the first of its key, or last of the ring. */
INLAY_ALWAYS void inlay_match_link_(struct inlay_match *m, uint32_t *slot, uint32_t first, uint32_t cls, uint32_t ref)
{
	struct inlay_match_node_ *node = inlay_match_node_at_(m, cls, ref), *head;
	uint32_t last;

	if (!first) {
		node->child[0] = node->child[1] = 0;
		node->next = node->prev = ref;
		*slot = ref;
		return;
	}
	head = inlay_match_node_at_(m, cls, first);
	last = head->prev;
	node->child[0] = INLAY_MATCH_MEMBER_;
	node->next = first;
	inlay_match_node_at_(m, cls, last)->next = ref;
	node->prev = last;
	head->prev = ref;
}

/* Takes out the only entry of a key that has children: a leaf below takes its place. */
INLAY_APART void inlay_match_replace_(struct inlay_match *m, uint32_t *slot, uint32_t cls)
{
	struct inlay_match_node_ *node = inlay_match_node_at_(m, cls, *slot), *heir;
	uint32_t *leaf = &node->child[!node->child[0]];

	while (heir = inlay_match_node_at_(m, cls, *leaf), heir->child[0] | heir->child[1])
		leaf = &heir->child[!heir->child[0]];
	*slot = *leaf;
	*leaf = 0; /* before node's children are read: node may be its parent */
	heir->child[0] = node->child[0];
	heir->child[1] = node->child[1];
}

/* Takes out the first entry of a key. The next of its ring, if any, becomes the first. */
INLAY_ALWAYS void inlay_match_unlink_first_(struct inlay_match *m, uint32_t *slot, uint32_t cls)
{
	const struct inlay_match_node_ *node = inlay_match_node_at_(m, cls, *slot);
	const uint32_t next = node->next, last = node->prev;
	struct inlay_match_node_ *heir;

	if (next != *slot) {
		heir = inlay_match_node_at_(m, cls, next);
		heir->prev = last;
		inlay_match_node_at_(m, cls, last)->next = next;
		*slot = next;
		__builtin_memcpy(heir->child, node->child, sizeof(heir->child));
	} else if (INLAY_LIKELY(!(node->child[0] | node->child[1]))) {
		*slot = 0;
	} else {
		inlay_match_replace_(m, slot, cls);
	}
}

/* ---- Entries ---- */

/* A new entry, not counted yet. 0: the table is full. */
INLAY_ALWAYS uint32_t inlay_match_new_(struct inlay_match *m, enum inlay_match_kind kind, uint64_t tag, uint64_t mask,
				       uint32_t cls, uint64_t cookie)
{
	uint32_t e = m->free;
	struct inlay_match_entry_ *entry;

	if (e)
		m->free = inlay_match_at_(m, e)->node.next;
	else if (INLAY_LIKELY(m->fresh < m->entries * 16 + INLAY_MATCH_FIRST_))
		e = (m->fresh += 16) - 16;
	else
		return 0;
	entry = inlay_match_at_(m, e);
	entry->tag = tag;
	entry->cookie = cookie;
	entry->seq = m->seq++;
	entry->mask = mask;
	entry->kind = (uint8_t)kind;
	entry->in_hw = 0;
	entry->in = (uint16_t)(1u << cls);
	return e;
}

INLAY_ALWAYS void inlay_match_free_(struct inlay_match *m, struct inlay_match_entry_ *entry, uint32_t e)
{
	entry->kind = INLAY_MATCH_FREE;
	entry->node.next = m->free;
	m->free = e;
}

/* The entry that a handle names, or 0 when it has left. */
INLAY_ALWAYS uint32_t inlay_match_of_(const struct inlay_match *m, uint64_t handle)
{
	const uint32_t e = ((uint32_t)handle & 0x1fffff) << 4;

	if (INLAY_UNLIKELY(e >= m->fresh || inlay_match_at_(m, e)->kind == INLAY_MATCH_FREE ||
			   (inlay_match_at_(m, e)->seq << 21 | e >> 4) != handle))
		return 0;
	return e;
}

/* Says what an entry is, and returns a status. Of entry 0: zeros. */
INLAY_ALWAYS int inlay_match_tell_(const struct inlay_match *m, uint32_t e, struct inlay_match_found *found, int status)
{
	const struct inlay_match_entry_ *entry = inlay_match_at_(m, e);

	found->cookie = entry->cookie;
	found->tag = entry->tag;
	found->mask = entry->mask;
	found->handle = entry->seq << 21 | e >> 4;
	found->kind = entry->kind;
	found->in_hw = entry->in_hw;
	found->hw = entry->hw;
	return status;
}

/* Puts an entry at the end of a list: INLAY_MATCH_LIST_, or 0, that of messages. */
INLAY_ALWAYS void inlay_match_append_(struct inlay_match *m, uint32_t list, uint32_t e)
{
	const uint32_t newest = inlay_match_at_(m, list)->older;

	inlay_match_at_(m, e)->older = newest;
	inlay_match_at_(m, e)->newer = list;
	inlay_match_at_(m, newest)->newer = e;
	inlay_match_at_(m, list)->older = e;
}

INLAY_ALWAYS void inlay_match_unlist_(struct inlay_match *m, const struct inlay_match_entry_ *entry)
{
	const uint32_t older = entry->older, newer = entry->newer;

	inlay_match_at_(m, older)->newer = newer;
	inlay_match_at_(m, newer)->older = older;
}

#endif
