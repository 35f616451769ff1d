/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/match.h: tag matching in software. It decides which receive takes which message, in MPI's
 * order, in expected constant time at any depth (first receive of a mask: see Cost).
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
 *   - A message goes to the oldest receive that matches it; a receive takes the oldest message that
 *     matches it. So no receive in the table matches a message in the table.
 *   - A cookie is the caller's name for a receive or a message. A handle is the table's; 2^43 posts
 *     and arrivals pass before one is used again.
 *
 * Threads: one owner at a time, or the caller's lock around every call.
 *
 * Cost, with n entries, c masks that have receives (at most 8), and r receives of further masks:
 *
 *   operation            expected                      worst case
 *   arrive               O(1 + c) + a walk of r        65 nodes for each mask, + the walk
 *   post, exact          O(1)                          65 nodes, and 65 for each mask in use
 *   post, masked         O(1) once messages are known  n * 65 nodes
 *   probe, masked        O(1) in a class, else n       n
 *   remove               O(1)                          65 nodes, and 65 for each mask in use
 *
 * A table without masked receives pays nothing for masks. Nor does a message that differs from all
 * masked receives in a bit on which they agree, such as one to a communicator without wildcards. A
 * masked receive goes through the kept messages, oldest first, until one matches, and enters those
 * that it passes in the class of its mask; the next receive with that mask continues there. So the
 * first one may pass all kept messages: 20 us for 4,096, 1 to 2 ms for 65,536.
 *
 * How it works: receives and messages are entries of one array, one cache line each. One hash table
 * finds both by key. Under one key there are only receives or only messages.
 *
 *   bucket -> first entry of a key -- child[0] -> first entry of another key in this bucket
 *               |  ^           \----- child[1] -> ...
 *               v  |
 *             next entry of the same key, oldest first, in a ring
 *
 * Keys in one bucket form a digital search tree: at each node the next bit of the hash says left or
 * right. The hash is the key times an odd number, so different keys have different hashes and no
 * path is longer than 65 nodes; most have one or two. The seed chooses the odd number: with a
 * secret seed (getrandom(2)), a peer cannot choose tags that share a bucket.
 *
 * Receives are grouped into classes by their mask: one for exact receives, and up to 8 for other
 * masks. A receive's key is its class and (tag & mask). An arriving message is looked up in each
 * class that has receives, and the oldest receive wins. When all 8 are taken, a new mask gets the
 * least recently used class without receives; if all have some, its receives go to a plain list.
 * MPI needs three classes: any source, any tag, both.
 *
 * Sources: MPI 4.0, 3.5 (order) and 3.8 (probe, cancel); Knuth, TAOCP 3, 6.3 (digital trees).
 */
#ifndef INLAY_MATCH_H
#define INLAY_MATCH_H

#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/match/mpi.h>

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
	uint64_t handle;          /* larger than those of earlier entries, for 2^43 posts and arrivals */
	uint32_t kind;            /* INLAY_MATCH_POSTED or INLAY_MATCH_UNEXPECTED */
	uint32_t in_hw;           /* the receive is in a hardware list too, */
	uint32_t hw;              /* under this number; if in_hw is 0, of no meaning */
};

/*
 * Place of an entry under one key. The first entry of a key is in the tree. The others are in its
 * ring only, with child[0] MEMBER. A reference to a node is entry << 5 | side << 4 | class.
 */
struct inlay_match_node_ {
	uint32_t child[2];
	uint32_t next;            /* of the ring, oldest first; the newest's is the oldest */
	uint32_t prev;
};

#define INLAY_MATCH_MEMBER_ (~(uint32_t)0)
#define INLAY_MATCH_SIDE_ 16u
#define INLAY_MATCH_LISTED_ 9u             /* the class number of receives that have no class */
#define INLAY_MATCH_FEW_ 4u                /* classes, with the exact one, whose buckets are looked into at once */
#define INLAY_MATCH_LIST_ 1u               /* entry 1 heads their list, entry 0 that of messages */
#define INLAY_MATCH_FIRST_ 2u              /* the first entry for receives and messages */

struct inlay_match_entry_ {
	uint64_t tag;             /* of a receive: & mask */
	uint64_t seq;
	struct inlay_match_node_ node; /* receive: in its class; message: under its tag; free: next */
	uint64_t cookie;
	uint64_t mask;
	uint32_t older;           /* message, or receive without a class; of a head: the newest */
	uint32_t newer;           /* the newest's is the head; of a head: the oldest */
	uint32_t hw;
	uint8_t kind;             /* enum inlay_match_kind */
	uint8_t cls;              /* of a receive; of a message 0 */
	uint8_t in_hw;            /* of a receive */
	uint8_t entered;          /* of a message: bit c - 1: class c has it */
};

/* Places of a message under the classes that have it. */
struct inlay_match_side_ {
	struct inlay_match_node_ node[INLAY_MATCH_CLASSES];
};

struct inlay_match_class_ {
	uint32_t posted;          /* receives */
	uint32_t hw;              /* of them in hardware too */
	uint32_t last;            /* this message and all older ones are entered; 0: none is */
	uint32_t used;            /* low bits of the sequence number of the last use */
};

struct inlay_match {
	uint32_t *bucket;
	struct inlay_match_entry_ *entry;
	uint64_t multiplier;
	uint64_t seq;             /* the next one */
	uint16_t live;            /* bit c: class c > 0 has receives; bit LISTED: the list has */
	uint8_t shift;            /* 64 - log2 of the buckets */
	uint8_t classes;          /* masks in use, with the exact one */
	uint32_t free;            /* the first entry that is free again; 0: none */
	uint32_t fresh;           /* entries from here on were never used */
	uint32_t entries;
	uint32_t unexpected;
	uint32_t reserved;
	uint64_t mask[INLAY_MATCH_CLASSES + 1]; /* of each class; [0]: all bits but the ignored ones */

	struct inlay_match_class_ cls[INLAY_MATCH_LISTED_ + 1];
	struct inlay_match_side_ *side;
	uint64_t same;            /* bits in which all masked receives since live was 0 agree, */
	uint64_t shared;          /* and a tag with these bits */
	uint8_t *masked;          /* by hash: masked receives, of any class; 255: that many or more, for good */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_match_entry_) == INLAY_CACHE_LINE, "an entry is one line");
INLAY_STATIC_ASSERT(sizeof(struct inlay_match_side_) == 2 * INLAY_CACHE_LINE, "a message's classes are two lines");
INLAY_STATIC_ASSERT(offsetof(struct inlay_match, mask) + 8 == INLAY_CACHE_LINE, "exact lookups need the first line");
INLAY_STATIC_ASSERT(offsetof(struct inlay_match, cls) == 2 * INLAY_CACHE_LINE, "the other masks are one line");
INLAY_STATIC_ASSERT(sizeof(struct inlay_match) % INLAY_CACHE_LINE == 0, "whole lines");

/* ---- Set-up ---- */

/* Buckets: a power of two, at least twice the entries. */
INLAY_COLD uint32_t inlay_match_buckets_(uint32_t entries)
{
	return 2u << (32 - __builtin_clz(entries - 1));
}

/*
 * Bytes of memory for a table of so many entries, some 200 for each; 0 when out of range. An entry
 * in use touches 64 of them, and a message that a masked receive has passed 128 more.
 */
INLAY_COLD size_t inlay_match_size(uint32_t entries)
{
	if (entries < INLAY_MATCH_MIN || entries > INLAY_MATCH_MAX)
		return 0;
	return (size_t)inlay_match_buckets_(entries) * (sizeof(uint32_t) + sizeof(uint8_t)) +
	       ((size_t)entries + INLAY_MATCH_FIRST_) *
		       (sizeof(struct inlay_match_entry_) + sizeof(struct inlay_match_side_));
}

INLAY_COLD int inlay_match_place_(struct inlay_match *m, void *memory, size_t size, uint32_t entries)
{
	uint32_t buckets;

	if (!inlay_match_size(entries) || !memory || (uintptr_t)memory % INLAY_CACHE_LINE)
		return -EINVAL;
	if (size < inlay_match_size(entries))
		return -ENOBUFS;
	buckets = inlay_match_buckets_(entries);
	m->entries = entries;
	m->entry = (struct inlay_match_entry_ *)memory;
	m->side = (struct inlay_match_side_ *)(void *)(m->entry + entries + INLAY_MATCH_FIRST_);
	m->bucket = (uint32_t *)(void *)(m->side + entries + INLAY_MATCH_FIRST_);
	m->masked = (uint8_t *)(m->bucket + buckets);
	m->shift = (uint8_t)(64 - __builtin_ctz(buckets));
	__builtin_memset(m->bucket, 0, buckets * (sizeof(*m->bucket) + sizeof(*m->masked)));
	return 0;
}

/*
 * Makes an empty table.
 *
 * memory   aligned to 64; in use until inlay_match_grow
 * size     bytes of memory, at least inlay_match_size(entries)
 * entries  receives and messages together, INLAY_MATCH_MIN .. INLAY_MATCH_MAX
 * ignored  tag bits that never count, whatever a mask says; usually 0
 * seed     any number
 *
 * Returns 0; -EINVAL for entries out of range or memory that is not aligned; -ENOBUFS when size is
 * too small.
 */
INLAY_COLD int inlay_match_init(struct inlay_match *m, void *memory, size_t size, uint32_t entries, uint64_t ignored,
				uint64_t seed)
{
	int err;

	__builtin_memset(m, 0, sizeof(*m));
	err = inlay_match_place_(m, memory, size, entries);
	if (err)
		return err;
	__builtin_memset(m->entry, 0, INLAY_MATCH_FIRST_ * sizeof(*m->entry));
	m->entry[INLAY_MATCH_LIST_].older = m->entry[INLAY_MATCH_LIST_].newer = INLAY_MATCH_LIST_;
	m->entry[INLAY_MATCH_LIST_].seq = ~(uint64_t)0;
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

/* ---- Internal: nodes, entries, masks ---- */

/* The entry of a reference to one of its nodes; entry number e is that of e << 5. */
INLAY_ALWAYS struct inlay_match_entry_ *inlay_match_at_(const struct inlay_match *m, uint32_t ref)
{
	return (struct inlay_match_entry_ *)(void *)((uint8_t *)m->entry + (size_t)(ref & ~31u) * 2);
}

INLAY_ALWAYS struct inlay_match_node_ *inlay_match_node_at_(const struct inlay_match *m, uint32_t ref)
{
	if (ref & INLAY_MATCH_SIDE_)
		return &m->side[ref >> 5].node[(ref & 15) - 1];
	return &inlay_match_at_(m, ref)->node;
}

/* The same, of a reference that is in class cls: those of the exact class are all in entries. */
INLAY_ALWAYS struct inlay_match_node_ *inlay_match_node_of_(const struct inlay_match *m, uint32_t cls, uint32_t ref)
{
	return cls ? inlay_match_node_at_(m, ref) : &inlay_match_at_(m, ref)->node;
}

/* Each class starts elsewhere, so that one hash in one bucket is one class and key. */
INLAY_ALWAYS uint32_t *inlay_match_bucket_(const struct inlay_match *m, uint32_t cls, uint64_t hash)
{
	return &m->bucket[(hash ^ (uint64_t)cls << 60) >> m->shift];
}

/* Where the reference to the first entry of this class and tag is, or would be. */
INLAY_ALWAYS uint32_t *inlay_match_slot_(const struct inlay_match *m, uint32_t cls, uint64_t tag)
{
	const uint64_t mask = m->mask[cls], key = tag & mask, hash = key * m->multiplier;
	uint32_t *slot = inlay_match_bucket_(m, cls, hash);
	uint32_t ref = *slot;
	uint64_t path;

	if (!ref || INLAY_LIKELY((ref & 15) == cls && (inlay_match_at_(m, ref)->tag & mask) == key))
		return slot;
	path = hash << (64 - m->shift) | hash >> m->shift;
	do {
		slot = &inlay_match_node_at_(m, ref)->child[path >> 63];
		path = path << 1 | path >> 63;
		ref = *slot;
	} while (ref && !((ref & 15) == cls && (inlay_match_at_(m, ref)->tag & mask) == key));
	return slot;
}

/* As above, not inlined. */
INLAY_APART uint32_t *inlay_match_slot_of_(const struct inlay_match *m, uint32_t cls, uint64_t tag)
{
	return inlay_match_slot_(m, cls, tag);
}

/*
 * Puts the node of ref in at inlay_match_slot_'s slot, which has first: as first of its key, or
 * last of the ring.
 */
INLAY_ALWAYS void inlay_match_link_(struct inlay_match *m, uint32_t *slot, uint32_t first, uint32_t cls, uint32_t ref,
				    struct inlay_match_node_ *node)
{
	struct inlay_match_node_ *head;
	uint32_t last;

	if (!first) {
		node->child[0] = node->child[1] = 0;
		node->next = node->prev = ref;
		*slot = ref;
		return;
	}
	head = inlay_match_node_of_(m, cls, first);
	last = head->prev;
	node->child[0] = INLAY_MATCH_MEMBER_;
	node->next = first;
	inlay_match_node_of_(m, cls, last)->next = ref;
	node->prev = last;
	head->prev = ref;
}

/* Takes out the only one of a key, which has keys below it: a leaf there replaces it. */
INLAY_APART void inlay_match_replace_(struct inlay_match *m, uint32_t *slot)
{
	struct inlay_match_node_ *node = inlay_match_node_at_(m, *slot), *heir;
	uint32_t *leaf = &node->child[!node->child[0]];

	while (heir = inlay_match_node_at_(m, *leaf), heir->child[0] | heir->child[1])
		leaf = &heir->child[!heir->child[0]];
	*slot = *leaf;
	*leaf = 0; /* before node's children are read: node may be its parent */
	heir->child[0] = node->child[0];
	heir->child[1] = node->child[1];
}

/* Takes out the first of a key. The second of its ring replaces it, if there is one. */
INLAY_ALWAYS void inlay_match_unlink_first_(struct inlay_match *m, uint32_t *slot, uint32_t cls)
{
	const struct inlay_match_node_ *node = inlay_match_node_of_(m, cls, *slot);
	const uint32_t next = node->next, last = node->prev;
	struct inlay_match_node_ *heir;

	if (next != *slot) {
		heir = inlay_match_node_of_(m, cls, next);
		heir->prev = last;
		inlay_match_node_of_(m, cls, last)->next = next;
		*slot = next;
		__builtin_memcpy(heir->child, node->child, sizeof(heir->child));
	} else if (INLAY_LIKELY(!(node->child[0] | node->child[1]))) {
		*slot = 0;
	} else {
		inlay_match_replace_(m, slot);
	}
}

/* Takes out any node: of an entry under its class or tag, or of a message under another class. */
INLAY_FN void inlay_match_unlink_(struct inlay_match *m, uint32_t ref)
{
	struct inlay_match_node_ *node = inlay_match_node_at_(m, ref);

	if (node->child[0] == INLAY_MATCH_MEMBER_) {
		inlay_match_node_at_(m, node->prev)->next = node->next;
		inlay_match_node_at_(m, node->next)->prev = node->prev;
	} else {
		inlay_match_unlink_first_(m, inlay_match_slot_of_(m, ref & 15, inlay_match_at_(m, ref)->tag), 1);
	}
}

/* A new entry, counted nowhere yet. 0: the table is full. */
INLAY_ALWAYS uint32_t inlay_match_new_(struct inlay_match *m, enum inlay_match_kind kind, uint64_t tag, uint64_t mask,
				       uint32_t cls, uint64_t cookie)
{
	uint32_t e = m->free;
	struct inlay_match_entry_ *entry;

	if (e)
		m->free = m->entry[e].node.next;
	else if (INLAY_LIKELY(m->fresh < m->entries + INLAY_MATCH_FIRST_))
		e = m->fresh++;
	else
		return 0;
	entry = &m->entry[e];
	entry->tag = tag;
	entry->cookie = cookie;
	entry->seq = m->seq++;
	entry->mask = mask;
	entry->kind = (uint8_t)kind;
	entry->cls = (uint8_t)cls;
	entry->in_hw = entry->entered = 0;
	return e;
}

INLAY_ALWAYS void inlay_match_free_(struct inlay_match *m, struct inlay_match_entry_ *entry, uint32_t e)
{
	entry->kind = INLAY_MATCH_FREE;
	entry->node.next = m->free;
	m->free = e;
}

INLAY_ALWAYS uint64_t inlay_match_handle_(const struct inlay_match *m, uint32_t e)
{
	return m->entry[e].seq << 21 | e;
}

/* The entry that a handle names, or 0 when it has left. */
INLAY_ALWAYS uint32_t inlay_match_of_(const struct inlay_match *m, uint64_t handle)
{
	const uint32_t e = (uint32_t)handle & 0x1fffff;

	if (INLAY_UNLIKELY(e >= m->fresh || m->entry[e].kind == INLAY_MATCH_FREE ||
			   inlay_match_handle_(m, e) != handle))
		return 0;
	return e;
}

INLAY_ALWAYS void inlay_match_tell_(const struct inlay_match_entry_ *entry, uint32_t e, struct inlay_match_found *found)
{
	found->cookie = entry->cookie;
	found->tag = entry->tag;
	found->mask = entry->mask;
	found->handle = entry->seq << 21 | e;
	found->kind = entry->kind;
	found->in_hw = entry->in_hw;
	found->hw = entry->hw;
}

/* Puts an entry at the end of a list, INLAY_MATCH_LIST_ or that of messages, 0. */
INLAY_ALWAYS void inlay_match_append_(struct inlay_match *m, uint32_t list, uint32_t e)
{
	const uint32_t newest = m->entry[list].older;

	m->entry[e].older = newest;
	m->entry[e].newer = list;
	m->entry[newest].newer = e;
	m->entry[list].older = e;
}

INLAY_ALWAYS void inlay_match_unlist_(struct inlay_match *m, const struct inlay_match_entry_ *entry)
{
	const uint32_t older = entry->older, newer = entry->newer;

	m->entry[older].newer = newer;
	m->entry[newer].older = older;
}

/* Counts a masked receive in (1) or out (-1), once there are so many masks that somebody asks. */
INLAY_FN void inlay_match_count_masked_(struct inlay_match *m, uint64_t tag, int by)
{
	uint8_t *at;

	if (INLAY_LIKELY(m->classes <= INLAY_MATCH_FEW_))
		return;
	at = &m->masked[tag * m->multiplier >> m->shift];
	if (*at != 255)
		*at = (uint8_t)(*at + by);
}

/* Counts all masked receives. */
INLAY_APART void inlay_match_recount_(struct inlay_match *m)
{
	uint32_t e;

	for (e = INLAY_MATCH_FIRST_; e < m->fresh; e++)
		if (m->entry[e].kind == INLAY_MATCH_POSTED && m->entry[e].cls)
			inlay_match_count_masked_(m, m->entry[e].tag, 1);
}

INLAY_ALWAYS void inlay_match_leave_(struct inlay_match *m, uint32_t e)
{
	struct inlay_match_entry_ *entry = &m->entry[e];
	struct inlay_match_class_ *cls = &m->cls[entry->cls];

	cls->hw -= entry->in_hw;
	if (entry->cls)
		inlay_match_count_masked_(m, entry->tag, -1);
	if (!--cls->posted)
		m->live &= (uint16_t)~(1u << entry->cls);
	inlay_match_free_(m, entry, e);
}

INLAY_APART void inlay_match_unenter_(struct inlay_match *m, uint32_t e)
{
	const struct inlay_match_entry_ *entry = &m->entry[e];
	uint32_t left, c;

	for (left = entry->entered; left; left &= left - 1) {
		c = (uint32_t)__builtin_ctz(left) + 1;
		inlay_match_unlink_(m, e << 5 | INLAY_MATCH_SIDE_ | c);
		if (m->cls[c].last == e)
			m->cls[c].last = entry->older;
	}
}

/* Forgets a message that is not under its own tag any more. */
INLAY_ALWAYS void inlay_match_forget_(struct inlay_match *m, struct inlay_match_entry_ *entry, uint32_t e)
{
	if (INLAY_UNLIKELY(entry->entered))
		inlay_match_unenter_(m, e);
	inlay_match_unlist_(m, entry);
	m->unexpected--;
	inlay_match_free_(m, entry, e);
}

INLAY_APART void inlay_match_take_(struct inlay_match *m, uint32_t e)
{
	const struct inlay_match_entry_ *entry = &m->entry[e];

	if (entry->cls == INLAY_MATCH_LISTED_)
		inlay_match_unlist_(m, &m->entry[e]);
	else
		inlay_match_unlink_(m, e << 5 | entry->cls);
	if (entry->kind == INLAY_MATCH_POSTED)
		inlay_match_leave_(m, e);
	else
		inlay_match_forget_(m, &m->entry[e], e);
}

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
	uint32_t c, e, best = m->classes;

	if (best <= INLAY_MATCH_CLASSES) {
		if (m->classes++ == INLAY_MATCH_FEW_)
			inlay_match_recount_(m);
	} else {
		for (best = 0, c = 1; c <= INLAY_MATCH_CLASSES; c++)
			if (!m->cls[c].posted && (!best || now - m->cls[c].used > now - m->cls[best].used))
				best = c;
		if (!best)
			return 0;
		for (e = m->cls[best].last; e; e = m->entry[e].older) {
			inlay_match_unlink_(m, e << 5 | INLAY_MATCH_SIDE_ | best);
			m->entry[e].entered &= (uint8_t)~(1u << (best - 1));
		}
		m->cls[best].last = 0;
	}
	m->mask[best] = mask;
	return best;
}

/* The oldest matching message of those entered in a class, or 0. *rest: the first not entered. */
INLAY_ALWAYS uint32_t inlay_match_find_entered_(const struct inlay_match *m, uint32_t c, uint64_t tag, uint32_t *rest)
{
	uint32_t ref;

	*rest = m->entry[0].newer;
	if (!c || !*rest)
		return 0;
	ref = *inlay_match_slot_(m, c, tag);
	*rest = ref ? 0 : m->entry[m->cls[c].last].newer;
	return ref & INLAY_MATCH_SIDE_ ? ref >> 5 : 0;
}

/* The oldest message from this one on that matches, or 0. */
INLAY_APART uint32_t inlay_match_walk_(const struct inlay_match *m, uint32_t e, uint64_t tag, uint64_t mask)
{
	while (e && (m->entry[e].tag ^ tag) & mask)
		e = m->entry[e].newer;
	return e;
}

/* As above, and enters the messages that it passes in the class. */
INLAY_APART uint32_t inlay_match_enter_(struct inlay_match *m, uint32_t c, uint32_t e, uint64_t tag)
{
	uint32_t ref, *slot;

	for (; e && (m->entry[e].tag ^ tag) & m->mask[c]; e = m->entry[e].newer) {
		ref = e << 5 | INLAY_MATCH_SIDE_ | c;
		slot = inlay_match_slot_(m, c, m->entry[e].tag);
		inlay_match_link_(m, slot, *slot, c, ref, inlay_match_node_at_(m, ref));
		m->entry[e].entered |= (uint8_t)(1u << (c - 1));
		m->cls[c].last = e;
	}
	return e;
}

/* A masked receive, as inlay_match_post. The mask has no ignored bit. */
INLAY_APART int inlay_match_post_masked_(struct inlay_match *m, uint64_t tag, uint64_t mask, uint64_t cookie,
					 struct inlay_match_found *found)
{
	uint32_t c = inlay_match_class_of_(m, mask), e, rest, *slot;

	if (!c)
		c = inlay_match_claim_(m, mask);
	m->cls[c].used = (uint32_t)m->seq;
	e = inlay_match_find_entered_(m, c, tag, &rest);
	if (rest)
		e = c ? inlay_match_enter_(m, c, rest, tag) : inlay_match_walk_(m, rest, tag, mask);
	if (e) {
		inlay_match_tell_(&m->entry[e], e, found);
		inlay_match_take_(m, e);
		return 1;
	}
	if (!c)
		c = INLAY_MATCH_LISTED_;
	e = inlay_match_new_(m, INLAY_MATCH_POSTED, tag & mask, mask, c, cookie);
	if (INLAY_UNLIKELY(!e))
		return -EAGAIN;
	if (c == INLAY_MATCH_LISTED_) {
		inlay_match_append_(m, INLAY_MATCH_LIST_, e);
	} else {
		slot = inlay_match_slot_(m, c, tag);
		inlay_match_link_(m, slot, *slot, c, e << 5 | c, &m->entry[e].node);
	}
	m->same = m->live ? m->same & mask & ~(tag ^ m->shared) : mask;
	m->shared = tag;
	m->cls[c].posted++;
	m->live |= (uint16_t)(1u << c);
	inlay_match_count_masked_(m, tag & mask, 1);
	inlay_match_tell_(&m->entry[e], e, found);
	return 0;
}

/* The oldest masked receive for a message, older than `than`, or 0. *slot NULL: in the list. */
INLAY_APART uint32_t inlay_match_search_(const struct inlay_match *m, uint64_t tag, uint64_t than,
					       uint32_t **slot)
{
	uint32_t *at, c, e, first = 0;

	*slot = NULL;
	for (c = 1; c < m->classes; c++) {
		if (INLAY_LIKELY(!*inlay_match_bucket_(m, c, (tag & m->mask[c]) * m->multiplier)))
			continue;
		at = inlay_match_slot_(m, c, tag);
		if (*at && !(*at & INLAY_MATCH_SIDE_) && inlay_match_at_(m, *at)->seq < than) {
			than = inlay_match_at_(m, *at)->seq;
			first = *at >> 5;
			*slot = at;
		}
	}
	for (e = m->entry[INLAY_MATCH_LIST_].newer; m->entry[e].seq < than; e = m->entry[e].newer)
		if (!((m->entry[e].tag ^ tag) & m->entry[e].mask)) {
			*slot = NULL;
			return e;
		}
	return first;
}

/*
 * The same. With many masks, looks first whether any receive may match: 5 instructions for each,
 * not 20.
 */
INLAY_APART uint32_t inlay_match_find_receive_(const struct inlay_match *m, uint64_t tag, uint64_t than,
					       uint32_t **slot)
{
	uint32_t c, any = 0;

	if (m->classes <= INLAY_MATCH_FEW_ || m->live >> INLAY_MATCH_LISTED_)
		return inlay_match_search_(m, tag, than, slot);
	INLAY_UNROLL_(8)
	for (c = 1; c <= INLAY_MATCH_CLASSES; c++)
		any |= m->masked[(tag & m->mask[c]) * m->multiplier >> m->shift];
	return any ? inlay_match_search_(m, tag, than, slot) : 0;
}

INLAY_APART void inlay_match_take_receive_(struct inlay_match *m, uint32_t e, uint32_t *slot)
{
	if (slot)
		inlay_match_unlink_first_(m, slot, 1);
	else
		inlay_match_unlist_(m, &m->entry[e]);
	inlay_match_leave_(m, e);
}

/* ---- Receives and messages ---- */

/*
 * Posts a receive, unless a message matches: then takes out the oldest such message.
 *
 * mask    the bits of tag that count; INLAY_MATCH_EXACT: all that the table does not ignore
 *
 * Returns 1: *found is the message. 0: the receive is posted; found->handle names it. -EAGAIN: no
 * message matches and the table is full; grow it, or wait for an entry to leave.
 */
INLAY_ALWAYS int inlay_match_post(struct inlay_match *m, uint64_t tag, uint64_t mask, uint64_t cookie,
				  struct inlay_match_found *found)
{
	struct inlay_match_entry_ *entry;
	uint32_t *slot, first, e;

	if (INLAY_UNLIKELY(~mask & m->mask[0]))
		return inlay_match_post_masked_(m, tag, mask & m->mask[0], cookie, found);
	slot = inlay_match_slot_(m, 0, tag);
	first = *slot;
	entry = inlay_match_at_(m, first);
	if (entry->kind == INLAY_MATCH_UNEXPECTED) {
		e = first >> 5;
		inlay_match_tell_(entry, e, found);
		inlay_match_unlink_first_(m, slot, 0);
		inlay_match_forget_(m, entry, e);
		return 1;
	}
	e = inlay_match_new_(m, INLAY_MATCH_POSTED, tag & m->mask[0], m->mask[0], 0, cookie);
	if (INLAY_UNLIKELY(!e))
		return -EAGAIN;
	inlay_match_link_(m, slot, first, 0, e << 5, &m->entry[e].node);
	m->cls[0].posted++;
	inlay_match_tell_(&m->entry[e], e, found);
	return 0;
}

/*
 * Takes in a message: takes out the oldest receive that matches, or else keeps the message.
 *
 * Returns 1: *found is the receive, which hardware may have too (found->in_hw). 0: the message is
 * kept; found->handle names it. -EAGAIN: no receive matches and the table is full.
 */
INLAY_ALWAYS int inlay_match_arrive(struct inlay_match *m, uint64_t tag, uint64_t cookie,
				    struct inlay_match_found *found)
{
	uint32_t *slot = inlay_match_slot_(m, 0, tag), first = *slot, e = first >> 5, *wild, masked;
	struct inlay_match_entry_ *entry = inlay_match_at_(m, first);
	const int exact = entry->kind == INLAY_MATCH_POSTED;

	if (INLAY_UNLIKELY(m->live) && !((tag ^ m->shared) & m->same)) {
		masked = inlay_match_find_receive_(m, tag, exact ? entry->seq : ~(uint64_t)0, &wild);
		if (masked) {
			inlay_match_tell_(&m->entry[masked], masked, found);
			inlay_match_take_receive_(m, masked, wild);
			return 1;
		}
	}
	if (exact) {
		inlay_match_tell_(entry, e, found);
		inlay_match_unlink_first_(m, slot, 0);
		m->cls[0].hw -= entry->in_hw;
		m->cls[0].posted--;
		inlay_match_free_(m, entry, e);
		return 1;
	}
	e = inlay_match_new_(m, INLAY_MATCH_UNEXPECTED, tag, INLAY_MATCH_EXACT, 0, cookie);
	if (INLAY_UNLIKELY(!e))
		return -EAGAIN;
	inlay_match_append_(m, 0, e);
	m->unexpected++;
	inlay_match_link_(m, slot, first, 0, e << 5, &m->entry[e].node);
	inlay_match_tell_(&m->entry[e], e, found);
	return 0;
}

/* Looks for the oldest message that a receive would take. Returns 1: it is *found. 0: none. */
INLAY_FN int inlay_match_probe(const struct inlay_match *m, uint64_t tag, uint64_t mask,
			       struct inlay_match_found *found)
{
	uint32_t e, rest = 0;

	mask &= m->mask[0];
	if (mask == m->mask[0])
		e = *inlay_match_slot_(m, 0, tag) >> 5;
	else
		e = inlay_match_find_entered_(m, inlay_match_class_of_(m, mask), tag, &rest);
	if (rest)
		e = inlay_match_walk_(m, rest, tag, mask);
	if (!e || m->entry[e].kind != INLAY_MATCH_UNEXPECTED)
		return 0;
	inlay_match_tell_(&m->entry[e], e, found);
	return 1;
}

/*
 * Takes out a receive (cancelled, or consumed by hardware) or a message (its sender has died, or a
 * probe has chosen it). Returns 0: *found is what was removed. -ENOENT: it had left.
 */
INLAY_FN int inlay_match_remove(struct inlay_match *m, uint64_t handle, struct inlay_match_found *found)
{
	const uint32_t e = inlay_match_of_(m, handle);

	if (!e)
		return -ENOENT;
	inlay_match_tell_(&m->entry[e], e, found);
	inlay_match_take_(m, e);
	return 0;
}

/* Gives a receive or a message another cookie. Returns 0, or -ENOENT when it has left. */
INLAY_FN int inlay_match_set_cookie(struct inlay_match *m, uint64_t handle, uint64_t cookie)
{
	const uint32_t e = inlay_match_of_(m, handle);

	if (!e)
		return -ENOENT;
	m->entry[e].cookie = cookie;
	return 0;
}

/* How many receives are posted (INLAY_MATCH_POSTED), or messages kept (INLAY_MATCH_UNEXPECTED). */
INLAY_FN uint32_t inlay_match_count(const struct inlay_match *m, enum inlay_match_kind kind)
{
	uint32_t n = 0, c;

	if (kind == INLAY_MATCH_UNEXPECTED)
		return m->unexpected;
	for (c = 0; c <= INLAY_MATCH_LISTED_; c++)
		n += m->cls[c].posted;
	return n;
}

/*
 * Visits all receives and messages, in no order. Set *at to 0 first. What was found may be removed
 * before the next call; what is added may be missed. Returns 1, or 0 after the last.
 */
INLAY_FN int inlay_match_next(const struct inlay_match *m, uint32_t *at, struct inlay_match_found *found)
{
	while (++*at < m->fresh)
		if (m->entry[*at].kind != INLAY_MATCH_FREE) {
			inlay_match_tell_(&m->entry[*at], *at, found);
			return 1;
		}
	return 0;
}

/* Copies a node. The first of a key goes to its new place in a tree; members of rings stay. */
INLAY_COLD void inlay_match_rehang_(struct inlay_match *m, const struct inlay_match_node_ *from, uint32_t ref)
{
	struct inlay_match_node_ *node = inlay_match_node_at_(m, ref);

	*node = *from;
	if (node->child[0] == INLAY_MATCH_MEMBER_)
		return;
	*inlay_match_slot_of_(m, ref & 15, inlay_match_at_(m, ref)->tag) = ref;
	node->child[0] = node->child[1] = 0;
}

/*
 * Moves a table to larger memory; the old memory is no longer used. Handles, cookies and order
 * stay. Copies every entry: 65,536 take 4 ms. Arguments and errors as inlay_match_init; -EINVAL
 * also for fewer entries than the table has. After an error nothing has changed.
 */
INLAY_COLD int inlay_match_grow(struct inlay_match *m, void *memory, size_t size, uint32_t entries)
{
	const struct inlay_match_entry_ *from = m->entry;
	const struct inlay_match_side_ *sides = m->side;
	uint32_t e, c;
	int err = entries < m->entries ? -EINVAL : inlay_match_place_(m, memory, size, entries);

	if (err)
		return err;
	for (e = 0; e < m->fresh; e++) {
		m->entry[e] = from[e];
		if (from[e].kind == INLAY_MATCH_FREE)
			continue;
		/* Rings stay. Trees do not: their shape depends on the number of buckets. */
		for (c = 1; c <= INLAY_MATCH_CLASSES; c++)
			if (from[e].entered >> (c - 1) & 1)
				inlay_match_rehang_(m, &sides[e].node[c - 1], e << 5 | INLAY_MATCH_SIDE_ | c);
		if (from[e].cls != INLAY_MATCH_LISTED_)
			inlay_match_rehang_(m, &from[e].node, e << 5 | from[e].cls);
	}
	inlay_match_recount_(m);
	return 0;
}

/*
 * ---- Together with a hardware list: tag.h does it all ----
 *
 * Receives that hardware has are in the table too, so that one place decides order. Ask
 * inlay_match_hw_blocked before a post; if it is 0 and the receive was posted, append it to the
 * NIC's list, and call inlay_match_set_hw. Remove a receive when the NIC has consumed it. Pass the
 * NIC's unexpected messages to inlay_match_arrive; if the receive found is in_hw, take it off the
 * NIC's list.
 */

/*
 * Says that hardware has a posted receive too, under the number hw. Of receives with one tag and
 * mask, give hardware the oldest first. Returns 0, or -ENOENT when the receive has left.
 */
INLAY_FN int inlay_match_set_hw(struct inlay_match *m, uint64_t handle, uint32_t hw)
{
	const uint32_t e = inlay_match_of_(m, handle);
	struct inlay_match_entry_ *entry = &m->entry[e];

	if (!e || entry->kind != INLAY_MATCH_POSTED)
		return -ENOENT;
	INLAY_CHECK(entry->cls == INLAY_MATCH_LISTED_ || entry->node.child[0] != INLAY_MATCH_MEMBER_ ||
		    inlay_match_at_(m, entry->node.prev)->in_hw,
		    "no receive in hardware comes after one of the same tag that is not");
	m->cls[entry->cls].hw += !entry->in_hw;
	entry->in_hw = 1;
	entry->hw = hw;
	return 0;
}

/*
 * Whether a receive, not yet posted, must stay out of hardware, because a posted one that hardware
 * lacks might match the same message. Errs on the safe side for masked receives: a class whose mask
 * has bits outside of this one blocks if hardware lacks any receive of it.
 */
INLAY_FN int inlay_match_hw_blocked(const struct inlay_match *m, uint64_t tag, uint64_t mask)
{
	uint32_t c, ref;

	for (c = 0; c < m->classes; c++) {
		if (m->cls[c].posted == m->cls[c].hw)
			continue;
		if (m->mask[c] & ~mask)
			return 1;
		ref = *inlay_match_slot_of_(m, c, tag);
		if (!ref || ref & INLAY_MATCH_SIDE_ || inlay_match_at_(m, ref)->kind != INLAY_MATCH_POSTED)
			continue;
		if (!inlay_match_at_(m, inlay_match_at_(m, ref)->node.prev)->in_hw)
			return 1;
	}
	for (ref = m->entry[INLAY_MATCH_LIST_].newer; ref != INLAY_MATCH_LIST_; ref = m->entry[ref].newer)
		if (!m->entry[ref].in_hw && !((m->entry[ref].tag ^ tag) & m->entry[ref].mask & mask))
			return 1;
	return 0;
}

INLAY_CASTS_END_
#endif
