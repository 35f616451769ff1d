/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/match/table.h: tag matching in software: which receive takes which message, in MPI's order.
 *
 *   mem = aligned_alloc(64, inlay_match_size(4096));
 *   inlay_match_init(&m, mem, inlay_match_size(4096), 4096, seed);
 *
 *   MPI_Irecv                                                            a message is there
 *   switch (inlay_match_post(&m, tag, mask, (uintptr_t)req, &found)) {   switch (inlay_match_arrive(&m, tag, (uintptr_t)msg, &found)) {
 *   case 1:                                                              case 1:
 *           deliver(message(found.cookie), req);                                 deliver(msg, request(found.cookie));
 *           break;                                                               break;
 *   case 0:                                                              case 0:
 *           req->handle = found.handle; // to cancel it                          keep(msg);
 *           break;                                                               break;
 *   default:                                                             default:
 *           ... -ENOSPC                                                          ... -ENOSPC: no room to keep it in
 *   }                                                                    }
 *
 * A receive has a tag and a mask, a message a tag. They match when ((message ^ receive) & mask) == 0, so a mask of all ones is an exact
 * receive, and 0 takes everything. The order is MPI's: a message goes to the receive posted first of all that match it, a receive takes the
 * message that arrived first of all that match it. What one of them is to the caller is its cookie, a number or a pointer.
 *
 * The table
 * ---------
 * Posted receives and unexpected messages are entries of one array, a cache line each, and one hash table holds both:
 * a message is kept only if no receive matches it, and a receive only if no message does, so that under one key there are never both, and
 * one search answers "is the other side there" and "where do I go" at once.
 *
 *   bucket word -> first entry of a key -- child[0] -> first entry of another key in the same bucket
 *                    |  ^           \----- child[1] -> ...
 *                    v  |
 *                  next entry of the same key, in order, in a ring
 *
 * Entries of the same key stand in a ring behind the first, so that a thousand receives of one tag are one step for the search of
 * another. Keys that share a bucket form a digital search tree: at each node, the hash's next bit says left or right. The hash is the key
 * times an odd number, which maps no two keys to one hash, so a path ends after 65 nodes at the latest, whatever the tags are. Usually it
 * is one node or two: there are twice as many buckets as entries.
 *
 * The seed chooses the odd number. With one that nobody else knows (getrandom(2)), nobody can choose tags that share a bucket, and the
 * expected cost is the same for all sets of tags. With one that is known the cost of a search is still bounded by those 65 nodes. A fixed
 * seed makes runs repeat, which is good for tests.
 *
 * Masks
 * -----
 * The first 8 masks in use, besides the exact one, each are a class. A receive of a class is hashed by (tag & mask), in the
 * same table. An arriving message is looked for once in each class that has receives, and the oldest receive found takes it: by a 64-bit
 * sequence number, which does not come round. MPI needs three classes: any source, any tag, both. A class that is not used any more makes
 * room for another mask.
 *
 * Receives of a ninth mask and further ones are in a list, in packed arrays, which an arriving message scans: with AVX-512 or AVX2 when the
 * compiler may use them (-mavx2), else word by word.
 *
 * Messages are found by masked receives in the same way. The first masked receive of a class that comes when there are messages enters
 * them into the table by (tag & mask), oldest first, until one matches; the next goes on where it ended. So whoever posts no masked
 * receive pays nothing, and a message is entered at most once for each class. Receives of a ninth mask enter messages into a packed log,
 * and scan that.
 *
 * What it costs
 * -------------
 * n entries; c classes with receives, at most 8; l receives in the list.
 *
 *   operation                     expected                        worst case
 *   arrive                        O(1 + c) + a scan of l          65 nodes, for each class too, + the scan
 *   post, exact                   O(1)                            65 nodes, for each class too that its message was entered in
 *   post, probe, mprobe, masked   O(1), and once for each         every message once: n * 65 nodes
 *                                 message and class O(1)
 *   ... of a ninth mask           a scan of the log               n
 *   cancel                        O(1)                            65 nodes
 *
 * List and log are squeezed when more than half of them is dead: a move or two for each removal on average, n for the one that has to do
 * it. Memory: see inlay_match_size. What is not used is not touched: without masked receives, 64 bytes an entry in use, and 8 for its
 * buckets.
 *
 * Together with a hardware list (tag.h)
 * -------------------------------------
 * Receives that were given to the NIC as well are in the table too, marked by inlay_match_set_hw, so that order is decided in one place:
 *
 *   blocked = inlay_match_older_software(&m, tag, mask);
 *   if (inlay_match_post(&m, tag, mask, cookie, &found) == 0 && !blocked)
 *           ... append it to the list of the NIC: inlay_match_set_hw(&m, found.handle, its index there);
 *
 * The NIC consumed it: inlay_match_cancel takes it out. The NIC says that a message is unexpected: inlay_match_arrive; a receive that it
 * finds may still be in the NIC's list (found.hw), from which it is to be removed.
 *
 * Threads: one owner, or a lock of the caller's around every call, probes too: looking for a message may enter some.
 * Sources: MPI 4.0, 3.5 (order), 3.8 (probe, matched probe, cancel). Digital search trees: Knuth, The Art of Computer Programming 3, 6.3.
 */
#ifndef INLAY_MATCH_TABLE_H
#define INLAY_MATCH_TABLE_H

#include <inlay/base.h>
#include <inlay/match/scan.h>

#define INLAY_MATCH_MIN 64u
#define INLAY_MATCH_MAX 1048576u
#define INLAY_MATCH_CLASSES 8u
#define INLAY_MATCH_EXACT (~(uint64_t)0)

enum inlay_match_kind {
	INLAY_MATCH_FREE,
	INLAY_MATCH_POSTED,       /* a receive */
	INLAY_MATCH_UNEXPECTED,   /* a message */
};

/*
 * Place of an entry under one key. A reference to a node is entry << 5 | side << 4 | class; 0: none. The first entry of a key is in the
 * tree; the others are in its ring only, and have MEMBER for a child.
 */
struct inlay_match_node {
	uint32_t child[2];
	uint32_t next;            /* round the ring, oldest first: from the last to the first */
	uint32_t prev;
};

#define INLAY_MATCH_MEMBER (~(uint32_t)0)
#define INLAY_MATCH_SIDE 16u

struct inlay_match_entry {
	uint64_t tag;             /* of a receive: & mask */
	uint64_t seq;
	struct inlay_match_node node; /* of a receive: under its class; of a message: under its whole tag; next of a free one: another */
	uint64_t cookie;
	union {
		uint64_t mask;    /* of a receive */
		struct {
			uint32_t older; /* message, 0: none */
			uint32_t newer;
		} by;
	} u;
	uint32_t pos;             /* in the list or the log */
	uint32_t hw;
	uint8_t kind;             /* enum inlay_match_kind */
	uint8_t cls;              /* of a receive; LISTED: in the list */
	uint8_t in_hw;            /* of a receive */
	uint8_t logged;           /* of a message */
	uint8_t entered;          /* of a message: bit c - 1: entered in class c */
	uint8_t reserved[3];
};

#define INLAY_MATCH_LISTED 15u

/* Places of a message under the classes that it is entered in */
struct inlay_match_side {
	struct inlay_match_node node[INLAY_MATCH_CLASSES];
};

/* Packed arrays in order, with holes */
struct inlay_match_packed {
	uint64_t *tag;
	uint64_t *mask;           /* NULL in the log */
	uint32_t *of;             /* entry, 0: a hole */
	uint32_t low;             /* nothing before this one */
	uint32_t end;
	uint32_t live;
	uint32_t slots;
	uint32_t hw;              /* how many of the list are in hardware too */
	uint32_t last;            /* the newest message in the log */
	uint64_t reserved;
};

struct inlay_match_class {
	uint32_t posted;          /* receives */
	uint32_t hw;              /* of which in hardware too */
	uint32_t entered;         /* messages */
	uint32_t last;            /* the newest message that was entered, 0: none */
};

struct inlay_match {
	uint32_t *bucket;
	struct inlay_match_entry *entry; /* [0] is not used */
	uint64_t multiplier;
	uint64_t seq;             /* the next one */
	uint32_t live;            /* bit c: class c has receives; bit 0 is not used */
	uint32_t shift;           /* 64 - log2 of the buckets */
	uint32_t free;            /* the first free entry, 0: none but those never used */
	uint32_t fresh;           /* entries from here on were never used */
	uint32_t entries;
	uint32_t posted;
	uint32_t unexpected;
	uint32_t classes;         /* masks in use, with the exact one */

	uint64_t mask[INLAY_MATCH_CLASSES]; /* of class 1, 2, ... */

	struct inlay_match_class cls[INLAY_MATCH_CLASSES + 1];
	uint32_t oldest;          /* message, 0: none */
	uint32_t newest;
	struct inlay_match_side *side;
	uint64_t reserved1[4];

	struct inlay_match_packed list;
	struct inlay_match_packed log;
	uint64_t reserved[2];
};

/* What was found, or posted, or kept */
struct inlay_match_found {
	uint64_t cookie;
	uint64_t tag;             /* of the receive (& mask), or of the message */
	uint64_t mask;            /* of the receive; of a message INLAY_MATCH_EXACT */
	uint64_t handle;          /* those of later receives, and of later messages, are larger, for 2^43 of them */
	uint32_t kind;            /* INLAY_MATCH_POSTED, INLAY_MATCH_UNEXPECTED */
	uint32_t in_hw;           /* the receive is in hardware as well ... */
	uint32_t hw;              /* ... under this number */
	uint32_t reserved;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_match_entry) == INLAY_CACHE_LINE, "an entry is one line");
INLAY_STATIC_ASSERT(sizeof(struct inlay_match_side) == 2 * INLAY_CACHE_LINE, "the classes of a message are two lines");
INLAY_STATIC_ASSERT(offsetof(struct inlay_match, mask) == INLAY_CACHE_LINE, "exact tags need the first line");
INLAY_STATIC_ASSERT(offsetof(struct inlay_match, cls) == 2 * INLAY_CACHE_LINE, "the masks are one line");
INLAY_STATIC_ASSERT(offsetof(struct inlay_match, list) % INLAY_CACHE_LINE == 0, "the list begins on a line");
INLAY_STATIC_ASSERT(sizeof(struct inlay_match) % INLAY_CACHE_LINE == 0, "whole lines");

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up
 */

/* Buckets: a power of two, at least twice the entries. */
INLAY_COLD uint32_t inlay_match_buckets(uint32_t entries)
{
	uint32_t n = 2 * INLAY_MATCH_MIN;

	while (n < 2 * entries)
		n *= 2;
	return n;
}

/* Slots of the list and of the log: half as many again as can live, so that squeezing pays. */
INLAY_COLD uint32_t inlay_match_slots(uint32_t entries)
{
	return (entries + entries / 2 + 64 + 15) & ~15u;
}

/*
 * Bytes of memory for so many entries, posted receives and unexpected messages together; whole cache lines. 0: entries is not
 * INLAY_MATCH_MIN .. INLAY_MATCH_MAX. Some 250 to 260 bytes an entry, of which 128 are touched when masked receives meet messages, 48
 * when there are more than 8 masks.
 */
INLAY_COLD size_t inlay_match_size(uint32_t entries)
{
	if (entries < INLAY_MATCH_MIN || entries > INLAY_MATCH_MAX)
		return 0;
	return inlay_match_buckets(entries) * sizeof(uint32_t) + ((size_t)entries + 1) * sizeof(struct inlay_match_entry) +
	       ((size_t)entries + 1) * sizeof(struct inlay_match_side) + (size_t)inlay_match_slots(entries) * (3 * 8 + 2 * 4);
}

INLAY_COLD void inlay_match_packed_init(struct inlay_match_packed *p, uint64_t *tag, uint64_t *mask, uint32_t *of, uint32_t slots)
{
	p->tag = tag;
	p->mask = mask;
	p->of = of;
	p->slots = slots;
}

/*
 * An empty table.
 *
 * memory   at a multiple of 64; need not be zeroed; stays the table's until nobody uses that any more: there is nothing to undo
 * size     its bytes, inlay_match_size(entries) or more
 * entries  how many receives and messages it holds, INLAY_MATCH_MIN .. INLAY_MATCH_MAX
 * seed     any number; see the manual above
 *
 * Returns 0; -EINVAL for entries out of bounds, or memory that is not aligned; -ENOBUFS for too little memory. Touches 8 to 16 bytes an
 * entry.
 */
INLAY_COLD int inlay_match_init(struct inlay_match *m, void *memory, size_t size, uint32_t entries, uint64_t seed)
{
	const uint32_t slots = inlay_match_slots(entries);
	uint8_t *at = (uint8_t *)memory;
	uint64_t *words;
	uint32_t i;

	if (!inlay_match_size(entries) || !memory || (uintptr_t)memory % INLAY_CACHE_LINE)
		return -EINVAL;
	if (size < inlay_match_size(entries))
		return -ENOBUFS;
	__builtin_memset(m, 0, sizeof(*m));
	m->entry = (struct inlay_match_entry *)(void *)at;
	at += ((size_t)entries + 1) * sizeof(struct inlay_match_entry);
	m->side = (struct inlay_match_side *)(void *)at;
	at += ((size_t)entries + 1) * sizeof(struct inlay_match_side);
	m->bucket = (uint32_t *)(void *)at;
	at += inlay_match_buckets(entries) * sizeof(uint32_t);
	words = (uint64_t *)(void *)at;
	at += (size_t)slots * 3 * 8;
	inlay_match_packed_init(&m->list, words, words + slots, (uint32_t *)(void *)at, slots);
	inlay_match_packed_init(&m->log, words + 2 * (size_t)slots, NULL, (uint32_t *)(void *)at + slots, slots);
	__builtin_memset(m->bucket, 0, inlay_match_buckets(entries) * sizeof(uint32_t));
	for (i = inlay_match_buckets(entries), m->shift = 64; i > 1; i /= 2)
		m->shift--;
	/* splitmix64's last steps: seeds that differ in a bit give unrelated numbers */
	seed += 0x9e3779b97f4a7c15u;
	seed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9u;
	seed = (seed ^ seed >> 27) * 0x94d049bb133111ebu;
	m->multiplier = (seed ^ seed >> 31) | 1;
	m->seq = 1;
	m->fresh = 1;
	m->entries = entries;
	m->classes = 1;
	return 0;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: the table
 */

/* The entry of a reference to one of its nodes; entry number e is that of e << 5. */
INLAY_ALWAYS struct inlay_match_entry *inlay_match_at(const struct inlay_match *m, uint32_t ref)
{
	return (struct inlay_match_entry *)(void *)((uint8_t *)m->entry + (size_t)(ref & ~31u) * (sizeof(struct inlay_match_entry) / 32));
}

INLAY_ALWAYS struct inlay_match_node *inlay_match_node_of(const struct inlay_match *m, uint32_t ref)
{
	if (ref & INLAY_MATCH_SIDE)
		return &m->side[ref >> 5].node[(ref & 15) - 1];
	return &inlay_match_at(m, ref)->node;
}

/* Classes begin in different places, so that one hash in one bucket is one class and key. */
INLAY_ALWAYS uint32_t *inlay_match_bucket(const struct inlay_match *m, uint32_t cls, uint64_t hash)
{
	return &m->bucket[(hash >> m->shift) ^ (uint64_t)cls << (60 - m->shift)];
}

/* Where the reference to the first entry of a class and key is; where it would go: the word there is 0. */
INLAY_ALWAYS uint32_t *inlay_match_slot(const struct inlay_match *m, uint32_t cls, uint64_t key, uint64_t mask)
{
	const uint64_t hash = key * m->multiplier;
	uint32_t *slot = inlay_match_bucket(m, cls, hash);
	uint32_t ref = *slot;
	uint64_t path;

	if (!ref)
		return slot;
	path = hash << (64 - m->shift) | hash >> m->shift;
	while (ref && !((ref & 15) == cls && (inlay_match_at(m, ref)->tag & mask) == key)) {
		slot = &inlay_match_node_of(m, ref)->child[path >> 63];
		path = path << 1 | path >> 63;
		ref = *slot;
	}
	return slot;
}

/* The same, of any class but the list's. */
INLAY_APART uint32_t *inlay_match_class_slot(const struct inlay_match *m, uint32_t cls, uint64_t tag)
{
	const uint64_t mask = cls ? m->mask[cls - 1] : INLAY_MATCH_EXACT;

	return inlay_match_slot(m, cls, tag & mask, mask);
}

/* Puts a node in where inlay_match_slot says: as the first of its key, or as the last in the ring. */
INLAY_ALWAYS void inlay_match_link(struct inlay_match *m, uint32_t *slot, uint32_t ref)
{
	struct inlay_match_node *node = inlay_match_node_of(m, ref), *head;
	const uint32_t first = *slot;

	if (!first) {
		node->child[0] = node->child[1] = 0;
		node->next = node->prev = ref;
		*slot = ref;
		return;
	}
	head = inlay_match_node_of(m, first);
	node->child[0] = INLAY_MATCH_MEMBER;
	node->next = first;
	node->prev = head->prev;
	inlay_match_node_of(m, head->prev)->next = ref;
	head->prev = ref;
}

/* Takes the first of a key out that is not alone: the second, if there is one, takes its place, else some leaf below. */
INLAY_APART void inlay_match_replace_first(struct inlay_match *m, uint32_t *slot)
{
	const uint32_t ref = *slot;
	struct inlay_match_node *node = inlay_match_node_of(m, ref), *heir;
	uint32_t *leaf;

	if (node->next != ref) {
		heir = inlay_match_node_of(m, node->next);
		heir->child[0] = node->child[0];
		heir->child[1] = node->child[1];
		heir->prev = node->prev;
		inlay_match_node_of(m, node->prev)->next = node->next;
		*slot = node->next;
		return;
	}
	leaf = &node->child[!node->child[0]];
	for (heir = inlay_match_node_of(m, *leaf); heir->child[0] | heir->child[1]; heir = inlay_match_node_of(m, *leaf))
		leaf = &heir->child[!heir->child[0]];
	*slot = *leaf;
	*leaf = 0; /* before its parent's children are read: the parent may be node */
	heir->child[0] = node->child[0];
	heir->child[1] = node->child[1];
}

/* Takes the first of a key out. */
INLAY_ALWAYS void inlay_match_unlink_first(struct inlay_match *m, uint32_t *slot)
{
	const struct inlay_match_node *node = inlay_match_node_of(m, *slot);

	if (INLAY_LIKELY(!(node->child[0] | node->child[1] | (node->next ^ *slot))))
		*slot = 0;
	else
		inlay_match_replace_first(m, slot);
}

/* Takes any node out. cls and tag are those of its entry. */
INLAY_FN void inlay_match_unlink(struct inlay_match *m, uint32_t ref, uint32_t cls, uint64_t tag)
{
	struct inlay_match_node *node = inlay_match_node_of(m, ref);

	if (node->child[0] == INLAY_MATCH_MEMBER) {
		inlay_match_node_of(m, node->prev)->next = node->next;
		inlay_match_node_of(m, node->next)->prev = node->prev;
	} else {
		inlay_match_unlink_first(m, inlay_match_class_slot(m, cls, tag));
	}
}

/* A free entry, or 0. */
INLAY_ALWAYS uint32_t inlay_match_new(struct inlay_match *m)
{
	const uint32_t e = m->free;

	if (e) {
		m->free = m->entry[e].node.next;
		return e;
	}
	return INLAY_LIKELY(m->fresh <= m->entries) ? m->fresh++ : 0;
}

INLAY_ALWAYS void inlay_match_free(struct inlay_match *m, uint32_t e)
{
	m->entry[e].kind = INLAY_MATCH_FREE;
	m->entry[e].node.next = m->free;
	m->free = e;
}

/* 43 bits of the sequence number, and the entry */
INLAY_ALWAYS uint64_t inlay_match_handle(const struct inlay_match *m, uint32_t e)
{
	return m->entry[e].seq << 21 | e;
}

INLAY_ALWAYS void inlay_match_tell_receive(const struct inlay_match *m, uint32_t e, struct inlay_match_found *found)
{
	const struct inlay_match_entry *entry = &m->entry[e];

	found->cookie = entry->cookie;
	found->tag = entry->tag;
	found->mask = entry->u.mask;
	found->handle = inlay_match_handle(m, e);
	found->kind = INLAY_MATCH_POSTED;
	found->in_hw = entry->in_hw;
	found->hw = entry->hw;
	found->reserved = 0;
}

INLAY_ALWAYS void inlay_match_tell_message(const struct inlay_match *m, uint32_t e, struct inlay_match_found *found)
{
	const struct inlay_match_entry *entry = &m->entry[e];

	found->cookie = entry->cookie;
	found->tag = entry->tag;
	found->mask = INLAY_MATCH_EXACT;
	found->handle = inlay_match_handle(m, e);
	found->kind = INLAY_MATCH_UNEXPECTED;
	found->in_hw = 0;
	found->hw = 0;
	found->reserved = 0;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: packed arrays
 */

/* Closes the holes. */
INLAY_APART void inlay_match_squeeze(struct inlay_match *m, struct inlay_match_packed *p)
{
	uint32_t from, to = 0;

	for (from = p->low; from < p->end; from++) {
		if (!p->of[from])
			continue;
		m->entry[p->of[from]].pos = to;
		p->tag[to] = p->tag[from];
		if (p->mask)
			p->mask[to] = p->mask[from];
		p->of[to++] = p->of[from];
	}
	p->low = 0;
	p->end = to;
}

/* There is always room: half as many slots again as entries, and squeezing before the last is used. */
INLAY_FN void inlay_match_append(struct inlay_match *m, struct inlay_match_packed *p, uint64_t tag, uint64_t mask, uint32_t e)
{
	if (p->end == p->slots)
		inlay_match_squeeze(m, p);
	m->entry[e].pos = p->end;
	p->tag[p->end] = tag;
	if (p->mask)
		p->mask[p->end] = mask;
	p->of[p->end++] = e;
	p->live++;
}

INLAY_FN void inlay_match_remove(struct inlay_match *m, struct inlay_match_packed *p, uint32_t e)
{
	const uint32_t pos = m->entry[e].pos;

	p->of[pos] = 0;
	if (p->mask) {
		p->tag[pos] = 1;
		p->mask[pos] = 0;
	} else {
		p->tag[pos] = ~p->tag[pos]; /* so that whoever looks for the same again passes by */
	}
	p->live--;
	while (p->low < p->end && !p->of[p->low])
		p->low++;
	if (p->low == p->end)
		p->low = p->end = 0;
	else if (p->end - p->low > 2 * p->live + 64)
		inlay_match_squeeze(m, p);
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: masks
 */

/* The class of a mask that is not exact, a new one if need be; 0: eight others are in use. */
INLAY_FN uint32_t inlay_match_class_of(struct inlay_match *m, uint64_t mask)
{
	uint32_t c;

	for (c = 1; c < m->classes; c++)
		if (m->mask[c - 1] == mask)
			return c;
	if (c > INLAY_MATCH_CLASSES) {
		for (c = 1; c <= INLAY_MATCH_CLASSES; c++)
			if (!(m->cls[c].posted | m->cls[c].entered))
				break;
		if (c > INLAY_MATCH_CLASSES)
			return 0;
	} else {
		m->classes++;
	}
	m->mask[c - 1] = mask;
	return c;
}

/* Loads what entering a message will touch. Returns the next message. */
INLAY_ALWAYS uint32_t inlay_match_foresee(const struct inlay_match *m, uint32_t e, uint32_t c, uint64_t mask)
{
	const struct inlay_match_entry *entry = &m->entry[e];
	const uint64_t hash = (entry->tag & mask) * m->multiplier;

	__builtin_prefetch(inlay_match_bucket(m, c, hash), 1);
	__builtin_prefetch(&m->side[e].node[c - 1], 1);
	return entry->u.by.newer;
}

/* Enters messages in a class, oldest first, up to the first of this key: that one, which is not entered, or 0. */
INLAY_APART uint32_t inlay_match_enter(struct inlay_match *m, uint32_t c, uint64_t key)
{
	const uint64_t mask = m->mask[c - 1];
	struct inlay_match_class *cls = &m->cls[c];
	struct inlay_match_entry *entry;
	uint32_t e = cls->last ? m->entry[cls->last].u.by.newer : m->oldest, ahead = 0, steps;

	for (steps = 0; e; e = entry->u.by.newer, steps++) {
		entry = &m->entry[e];
		if ((entry->tag & mask) == key)
			break;
		/* It becomes a long way: from here on, look ahead, soon by 16 messages */
		if (steps == 4)
			ahead = e;
		if (ahead)
			ahead = inlay_match_foresee(m, ahead, c, mask);
		if (ahead && steps < 20)
			ahead = inlay_match_foresee(m, ahead, c, mask);
		inlay_match_link(m, inlay_match_slot(m, c, entry->tag & mask, mask), e << 5 | INLAY_MATCH_SIDE | c);
		entry->entered |= (uint8_t)(1u << (c - 1));
		cls->entered++;
		cls->last = e;
	}
	return e;
}

/* The oldest message for a receive whose mask has no class, or 0. */
INLAY_APART uint32_t inlay_match_find_logged(struct inlay_match *m, uint64_t tag, uint64_t mask)
{
	struct inlay_match_packed *log = &m->log;
	struct inlay_match_entry *entry;
	uint32_t at = log->low, e;

	for (;; at++) {
		at = inlay_match_search(log->tag, at, log->end, tag, mask);
		if (at == log->end)
			break;
		if (log->of[at])
			return log->of[at];
	}
	for (e = log->last ? m->entry[log->last].u.by.newer : m->oldest; e; e = entry->u.by.newer) {
		entry = &m->entry[e];
		if (!((entry->tag ^ tag) & mask))
			break;
		inlay_match_append(m, log, entry->tag, 0, e);
		entry->logged = 1;
		log->last = e;
	}
	return e;
}

/* The oldest message for a masked receive of class c (0: none), or 0. */
INLAY_FN uint32_t inlay_match_find_masked(struct inlay_match *m, uint32_t c, uint64_t tag, uint64_t mask)
{
	uint32_t ref;

	if (!m->unexpected)
		return 0;
	if (!c)
		return inlay_match_find_logged(m, tag, mask);
	ref = *inlay_match_slot(m, c, tag & mask, mask);
	if (ref)
		return ref & INLAY_MATCH_SIDE ? ref >> 5 : 0;
	return inlay_match_enter(m, c, tag & mask);
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: entries out
 */

/* Takes a message out of the classes and the log. */
INLAY_APART void inlay_match_unenter(struct inlay_match *m, uint32_t e)
{
	const struct inlay_match_entry *entry = &m->entry[e];
	uint32_t bits, c;

	for (bits = entry->entered; bits; bits &= bits - 1) {
		c = (uint32_t)__builtin_ctz(bits) + 1;
		inlay_match_unlink(m, e << 5 | INLAY_MATCH_SIDE | c, c, entry->tag);
		m->cls[c].entered--;
		if (m->cls[c].last == e)
			m->cls[c].last = entry->u.by.older;
	}
	if (entry->logged) {
		inlay_match_remove(m, &m->log, e);
		if (m->log.last == e)
			m->log.last = entry->u.by.older;
	}
}

/* Forgets a message that is not under its whole tag any more. */
INLAY_ALWAYS void inlay_match_forget(struct inlay_match *m, uint32_t e)
{
	const struct inlay_match_entry *entry = &m->entry[e];
	const uint32_t older = entry->u.by.older, newer = entry->u.by.newer;

	if (INLAY_UNLIKELY(entry->entered | entry->logged))
		inlay_match_unenter(m, e);
	*(older ? &m->entry[older].u.by.newer : &m->oldest) = newer;
	*(newer ? &m->entry[newer].u.by.older : &m->newest) = older;
	m->unexpected--;
	inlay_match_free(m, e);
}

/* The same of one that is in the table wherever a message can be. */
INLAY_APART void inlay_match_forget_all(struct inlay_match *m, uint32_t e)
{
	inlay_match_unlink(m, e << 5, 0, m->entry[e].tag);
	inlay_match_forget(m, e);
}

/* Counts a receive out that is not under any key any more. */
INLAY_ALWAYS void inlay_match_leave(struct inlay_match *m, uint32_t e)
{
	const struct inlay_match_entry *entry = &m->entry[e];
	struct inlay_match_class *cls;

	if (entry->cls == INLAY_MATCH_LISTED) {
		m->list.hw -= entry->in_hw;
	} else {
		cls = &m->cls[entry->cls];
		if (entry->cls && !--cls->posted)
			m->live &= ~(1u << entry->cls);
		if (entry->in_hw)
			cls->hw--;
	}
	m->posted--;
	inlay_match_free(m, e);
}

/* The entry of a handle, or 0 when it is not there any more. */
INLAY_ALWAYS uint32_t inlay_match_of(const struct inlay_match *m, uint64_t handle, uint32_t kind)
{
	const uint32_t e = (uint32_t)handle & 0x1fffff;

	if (INLAY_UNLIKELY(!e || e >= m->fresh || m->entry[e].kind != kind || inlay_match_handle(m, e) != handle))
		return 0;
	return e;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: receives and messages
 */

/* A new receive, counted but in no class and not in the list yet. 0: full. */
INLAY_ALWAYS uint32_t inlay_match_receive(struct inlay_match *m, uint64_t tag, uint64_t mask, uint32_t cls, uint64_t cookie)
{
	const uint32_t e = inlay_match_new(m);
	struct inlay_match_entry *entry = &m->entry[e];

	if (INLAY_UNLIKELY(!e))
		return 0;
	entry->tag = tag;
	entry->seq = m->seq++;
	entry->cookie = cookie;
	entry->u.mask = mask;
	entry->pos = entry->hw = 0;
	entry->kind = INLAY_MATCH_POSTED;
	entry->cls = (uint8_t)cls;
	entry->in_hw = entry->logged = entry->entered = 0;
	entry->reserved[0] = entry->reserved[1] = entry->reserved[2] = 0; /* one store with the others */
	m->posted++;
	return e;
}

/* A masked receive, as inlay_match_post. */
INLAY_APART int inlay_match_post_masked(struct inlay_match *m, uint64_t tag, uint64_t mask, uint64_t cookie,
					struct inlay_match_found *found)
{
	const uint32_t c = inlay_match_class_of(m, mask);
	uint32_t e = inlay_match_find_masked(m, c, tag, mask);

	if (e) {
		inlay_match_tell_message(m, e, found);
		inlay_match_forget_all(m, e);
		return 1;
	}
	e = inlay_match_receive(m, tag & mask, mask, c ? c : INLAY_MATCH_LISTED, cookie);
	if (INLAY_UNLIKELY(!e))
		return -ENOSPC;
	if (c) {
		inlay_match_link(m, inlay_match_slot(m, c, tag & mask, mask), e << 5 | c);
		m->cls[c].posted++;
		m->live |= 1u << c;
	} else {
		inlay_match_append(m, &m->list, tag & mask, mask, e);
	}
	inlay_match_tell_receive(m, e, found);
	return 0;
}

/* The oldest masked receive for a message, if it is older than `than`; 0: there is none. *slot is where it is; NULL: in the list. */
INLAY_APART uint32_t inlay_match_find_receive(const struct inlay_match *m, uint64_t tag, uint64_t than, uint32_t **slot)
{
	uint32_t *at, c, i, e = 0;

	*slot = NULL;
	for (c = 1; c < m->classes; c++) {
		if (INLAY_LIKELY(!*inlay_match_bucket(m, c, (tag & m->mask[c - 1]) * m->multiplier)))
			continue;
		at = inlay_match_class_slot(m, c, tag);
		if (*at && !(*at & INLAY_MATCH_SIDE) && inlay_match_at(m, *at)->seq < than) {
			than = inlay_match_at(m, *at)->seq;
			*slot = at;
			e = *at >> 5;
		}
	}
	if (m->list.live) {
		i = inlay_match_scan(m->list.tag, m->list.mask, m->list.low, m->list.end, tag);
		if (i < m->list.end && m->entry[m->list.of[i]].seq < than) {
			*slot = NULL;
			e = m->list.of[i];
		}
	}
	return e;
}

/* Takes what was found so. */
INLAY_APART void inlay_match_take_receive(struct inlay_match *m, uint32_t e, uint32_t *slot)
{
	if (slot)
		inlay_match_unlink_first(m, slot);
	else
		inlay_match_remove(m, &m->list, e);
	inlay_match_leave(m, e);
}

/*
 * A receive: takes the oldest message that matches, else is posted.
 *
 * tag     what is to be equal; its bits outside of the mask do not count
 * mask    which bits count; INLAY_MATCH_EXACT: all
 * cookie  the caller's
 *
 * Returns 1: *found is the message, which is not in the table any more. 0: posted; *found is the receive, and found->handle what cancels
 * it. -ENOSPC: there is no such message, and the table is full; nothing has changed, but that messages may have been entered under the
 * mask.
 */
INLAY_ALWAYS int inlay_match_post(struct inlay_match *m, uint64_t tag, uint64_t mask, uint64_t cookie, struct inlay_match_found *found)
{
	uint32_t *slot, e;

	if (INLAY_UNLIKELY(mask != INLAY_MATCH_EXACT))
		return inlay_match_post_masked(m, tag, mask, cookie, found);
	slot = inlay_match_slot(m, 0, tag, INLAY_MATCH_EXACT);
	if (*slot && inlay_match_at(m, *slot)->kind == INLAY_MATCH_UNEXPECTED) {
		e = *slot >> 5;
		inlay_match_tell_message(m, e, found);
		inlay_match_unlink_first(m, slot);
		inlay_match_forget(m, e);
		return 1;
	}
	e = inlay_match_receive(m, tag, INLAY_MATCH_EXACT, 0, cookie);
	if (INLAY_UNLIKELY(!e))
		return -ENOSPC;
	inlay_match_link(m, slot, e << 5);
	inlay_match_tell_receive(m, e, found);
	return 0;
}

/*
 * A message arrives: the oldest receive that matches takes it, else it is kept as an unexpected one.
 *
 * Returns 1: *found is the receive, which is not posted any more; found->in_hw says that hardware has it as well. 0: kept; *found is the
 * message. -ENOSPC: no receive matches, and the table is full; nothing has changed.
 */
INLAY_ALWAYS int inlay_match_arrive(struct inlay_match *m, uint64_t tag, uint64_t cookie, struct inlay_match_found *found)
{
	uint32_t *slot = inlay_match_slot(m, 0, tag, INLAY_MATCH_EXACT), *wild, e = *slot >> 5, masked;
	struct inlay_match_entry *entry = inlay_match_at(m, *slot);
	const int exact = e && entry->kind == INLAY_MATCH_POSTED;

	if (INLAY_UNLIKELY(m->live | m->list.live)) {
		masked = inlay_match_find_receive(m, tag, exact ? entry->seq : ~(uint64_t)0, &wild);
		if (masked) {
			inlay_match_tell_receive(m, masked, found);
			inlay_match_take_receive(m, masked, wild);
			return 1;
		}
	}
	if (exact) {
		inlay_match_tell_receive(m, e, found);
		inlay_match_unlink_first(m, slot);
		m->cls[0].hw -= entry->in_hw;
		m->posted--;
		inlay_match_free(m, e);
		return 1;
	}
	e = inlay_match_new(m);
	if (INLAY_UNLIKELY(!e))
		return -ENOSPC;
	entry = &m->entry[e];
	entry->tag = tag;
	entry->seq = m->seq++;
	entry->cookie = cookie;
	entry->u.by.older = m->newest;
	entry->u.by.newer = 0;
	entry->pos = entry->hw = 0;
	entry->kind = INLAY_MATCH_UNEXPECTED;
	entry->cls = entry->in_hw = entry->logged = entry->entered = 0;
	entry->reserved[0] = entry->reserved[1] = entry->reserved[2] = 0;
	*(m->newest ? &m->entry[m->newest].u.by.newer : &m->oldest) = e;
	m->newest = e;
	m->unexpected++;
	inlay_match_link(m, slot, e << 5);
	inlay_match_tell_message(m, e, found);
	return 0;
}

/*
 * Is there a message for such a receive? The oldest one stays where it is (MPI_Iprobe).
 *
 * Returns 0, *found being the message, or -ENOENT.
 */
INLAY_FN int inlay_match_probe(struct inlay_match *m, uint64_t tag, uint64_t mask, struct inlay_match_found *found)
{
	uint32_t e;

	if (mask == INLAY_MATCH_EXACT)
		e = *inlay_match_slot(m, 0, tag, INLAY_MATCH_EXACT) >> 5;
	else
		e = inlay_match_find_masked(m, inlay_match_class_of(m, mask), tag, mask);
	if (!e || m->entry[e].kind != INLAY_MATCH_UNEXPECTED)
		return -ENOENT;
	inlay_match_tell_message(m, e, found);
	return 0;
}

/*
 * The same, and takes the message out, so that no receive and no other probe gets it (MPI_Improbe).
 *
 * Returns 0, *found being the message, or -ENOENT.
 */
INLAY_FN int inlay_match_mprobe(struct inlay_match *m, uint64_t tag, uint64_t mask, struct inlay_match_found *found)
{
	int err = inlay_match_probe(m, tag, mask, found);

	if (!err)
		inlay_match_forget_all(m, (uint32_t)found->handle & 0x1fffff);
	return err;
}

/*
 * Takes a receive out: it was cancelled, or hardware has consumed it.
 *
 * handle  as inlay_match_post gave it. It is good until the receive is out; one kept longer is told from those of later entries (over
 *         2^43 posts and arrivals)
 *
 * Returns 0, *found being the receive; -ENOENT when it is out already. One of cancel and match comes first, and only that one succeeds.
 */
INLAY_FN int inlay_match_cancel(struct inlay_match *m, uint64_t handle, struct inlay_match_found *found)
{
	const uint32_t e = inlay_match_of(m, handle, INLAY_MATCH_POSTED);

	if (!e)
		return -ENOENT;
	inlay_match_tell_receive(m, e, found);
	if (m->entry[e].cls == INLAY_MATCH_LISTED)
		inlay_match_remove(m, &m->list, e);
	else
		inlay_match_unlink(m, e << 5 | m->entry[e].cls, m->entry[e].cls, m->entry[e].tag);
	inlay_match_leave(m, e);
	return 0;
}

/*
 * Takes a message out by its handle: its sender has died, or it was looked at and chosen.
 *
 * Returns 0, *found being the message; -ENOENT when it is out already.
 */
INLAY_FN int inlay_match_drop(struct inlay_match *m, uint64_t handle, struct inlay_match_found *found)
{
	const uint32_t e = inlay_match_of(m, handle, INLAY_MATCH_UNEXPECTED);

	if (!e)
		return -ENOENT;
	inlay_match_tell_message(m, e, found);
	inlay_match_forget_all(m, e);
	return 0;
}

/* How many receives are posted, how many messages are kept, and how many more of either fit. */
INLAY_FN uint32_t inlay_match_posted(const struct inlay_match *m)
{
	return m->posted;
}

INLAY_FN uint32_t inlay_match_unexpected(const struct inlay_match *m)
{
	return m->unexpected;
}

INLAY_FN uint32_t inlay_match_room(const struct inlay_match *m)
{
	return m->entries - m->posted - m->unexpected;
}

/*
 * The next entry, receive or message, in no particular order (their handles tell each kind's): to cancel all, or to print them. *at is 0 at
 * first. What was found may be taken out before the next call; what is added in between may be missed.
 *
 * Returns 1, or 0: there is no further one.
 */
INLAY_FN int inlay_match_next(const struct inlay_match *m, uint32_t *at, struct inlay_match_found *found)
{
	uint32_t e;

	for (e = *at + 1; e < m->fresh; e++)
		if (m->entry[e].kind != INLAY_MATCH_FREE) {
			if (m->entry[e].kind == INLAY_MATCH_POSTED)
				inlay_match_tell_receive(m, e, found);
			else
				inlay_match_tell_message(m, e, found);
			*at = e;
			return 1;
		}
	return 0;
}

/* Loads the bucket of a message that is about to arrive, or of an exact receive about to be posted. Worth it with other work in between. */
INLAY_FN void inlay_match_prefetch(const struct inlay_match *m, uint64_t tag)
{
	__builtin_prefetch(inlay_match_bucket(m, 0, tag * m->multiplier), 1);
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: together with hardware
 */

/*
 * A posted receive is in hardware's list as well.
 *
 * hw  the caller's name for it there; any number
 *
 * Of the receives with one tag and mask, those in hardware are the older ones: inlay_match_older_software, asked before each, sees to it.
 *
 * Returns 0, or -ENOENT when the receive is out already.
 */
INLAY_FN int inlay_match_set_hw(struct inlay_match *m, uint64_t handle, uint32_t hw)
{
	const uint32_t e = inlay_match_of(m, handle, INLAY_MATCH_POSTED);
	struct inlay_match_entry *entry = &m->entry[e];

	if (!e)
		return -ENOENT;
	INLAY_CHECK(entry->cls == INLAY_MATCH_LISTED || entry->node.child[0] != INLAY_MATCH_MEMBER || m->entry[entry->node.prev >> 5].in_hw,
		    "no receive in hardware is behind one of the same tag that is not");
	entry->hw = hw;
	if (!entry->in_hw) {
		entry->in_hw = 1;
		(*(entry->cls == INLAY_MATCH_LISTED ? &m->list.hw : &m->cls[entry->cls].hw))++;
	}
	return 0;
}

/*
 * A posted receive is not in hardware's list any more, and stays posted in software. When several of one tag and mask are taken back, the
 * newest is the first.
 *
 * Returns 0, or -ENOENT when the receive is out already.
 */
INLAY_FN int inlay_match_clear_hw(struct inlay_match *m, uint64_t handle)
{
	const uint32_t e = inlay_match_of(m, handle, INLAY_MATCH_POSTED);
	struct inlay_match_entry *entry = &m->entry[e];
	uint32_t next;

	if (!e)
		return -ENOENT;
	next = entry->node.next >> 5;
	INLAY_CHECK(entry->cls == INLAY_MATCH_LISTED || m->entry[next].node.child[0] != INLAY_MATCH_MEMBER || !m->entry[next].in_hw,
		    "no receive in hardware is behind one of the same tag that is not");
	(void)next;
	entry->hw = 0;
	if (entry->in_hw) {
		entry->in_hw = 0;
		(*(entry->cls == INLAY_MATCH_LISTED ? &m->list.hw : &m->cls[entry->cls].hw))--;
	}
	return 0;
}

/*
 * May a receive, not yet posted, be given to hardware? Not when a posted one that hardware does not have could match the same message: it
 * is the older one, and hardware would give the message to the younger.
 *
 * For an exact receive the answer is exact. For a masked one it is whenever a class's mask has no bit outside of this mask; of other
 * classes, any receive that hardware does not have counts, whatever its tag. The list is gone through.
 *
 * Returns 0: give it. 1: there is such a receive, or may be.
 */
INLAY_FN int inlay_match_older_software(const struct inlay_match *m, uint64_t tag, uint64_t mask)
{
	uint32_t software = m->posted - m->list.live, c, ref, i;
	uint64_t of;

	for (c = 1; c < m->classes; c++)
		software -= m->cls[c].posted;
	for (c = 0; c < m->classes; c++) {
		if (c)
			software = m->cls[c].posted;
		if (software == m->cls[c].hw)
			continue;
		of = c ? m->mask[c - 1] : INLAY_MATCH_EXACT;
		if (of & ~mask)
			return 1;
		ref = *inlay_match_class_slot(m, c, tag);
		if (!ref || ref & INLAY_MATCH_SIDE || m->entry[ref >> 5].kind != INLAY_MATCH_POSTED)
			continue;
		if (!m->entry[m->entry[ref >> 5].node.prev >> 5].in_hw)
			return 1;
	}
	if (m->list.live == m->list.hw)
		return 0;
	for (i = m->list.low; i < m->list.end; i++)
		if (m->list.of[i] && !m->entry[m->list.of[i]].in_hw && !((m->list.tag[i] ^ tag) & m->list.mask[i] & mask))
			return 1;
	return 0;
}

#endif
