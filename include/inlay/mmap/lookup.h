/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap/lookup.h: from an address and a length to the range that holds them, and its keys.
 *
 *   inlay_lookup_init(&lookup, memory, inlay_lookup_size(1024), 1024);
 *   inlay_lookup_build(&lookup, ranges, n);
 *   ...
 *   const struct inlay_range *r = inlay_lookup_hit(&lookup, &my_hit, addr, len);      each thread has a struct inlay_hit of its own
 *   if (r)
 *           sge.lkey = r->lkey;
 *
 * Ranges do not overlap. Neighbours stay apart: what lies in two of them is in no single one, and so is not found, as its halves have
 * different keys. An address with a length of 0 is found where that byte is.
 *
 * A table
 * -------
 * The address space from the first range to the last is cut into buckets of one power-of-two size. A bucket's word says which range
 * begins last at or before the bucket's first byte: that one, or one that begins inside the bucket, is the only one to hold the address.
 *
 *      bucket         0        1        2        3        4
 *   index word    r0       r0       r1       r1       r3
 *                 |r0-----------||r1--------------||r2||r3---------...
 *
 * A lookup is three dependent loads, the table, the word, the range, and no branch on where the address lies. There are up to 64 words a
 * range (8, when there are many), as fine as it takes for one range at most to begin in a bucket. Where it cannot be that fine, three
 * beginnings are compared; beyond, the bucket is searched. When gaps between the ranges are so large that most of the buckets would lie in
 * them, up to seven are cut out: what lies behind a cut is moved down by as much before the bucket is chosen.
 *
 *   word | ... | word | word | head                       | range 0 | range 1 | ... | end marks
 *   bucket      1      0     ^ struct inlay_lookup_table
 *
 * The words grow down from the head and the ranges up, so that the head's address is all that a lookup has to know.
 *
 * Readers and the writer
 * ----------------------
 * Any number of threads may look up beside one writer (several take turns by a lock of theirs). Readers take no lock and write nothing
 * shared: there are two tables, and one load tells which is the current one. inlay_lookup_build, _add and _remove write the other one and
 * make it current. Then the old one may still be in somebody's hands, and the ranges that were found in it too. So the next change answers
 * -EBUSY until the writer has said inlay_lookup_quiet: every reader has, since the change, been at a point where it holds no range. How to
 * know that is the caller's choice:
 *
 *   - One thread: say it at once.
 *   - Threads that meet anyway (a barrier, the end of a parallel loop): say it after the meeting.
 *   - Polling threads: each counts its rounds in a word of its own, and holds no range from one round to the next.
 *
 *       a reader, between two rounds                                      the writer, after a change
 *       __atomic_store_n(&me->round, me->round + 1, __ATOMIC_RELEASE);    __atomic_thread_fence(__ATOMIC_SEQ_CST);
 *       __atomic_thread_fence(__ATOMIC_SEQ_CST);                          for each reader r: seen[r] = r->round;
 *                                                                         for each reader r: wait while r->round == seen[r];
 *                                                                         inlay_lookup_quiet(&lookup);
 *
 *     (loads of a round: __ATOMIC_ACQUIRE). The reader's fence keeps the next round's lookups behind the count, so that whoever has counted
 *     on after the change looks at the new table.
 *   - RCU (liburcu, DPDK's rte_rcu): lookups inside a read-side section; synchronize_rcu(), then quiet.
 *
 * Removing a range whose memory then goes away is the same: its keys may be in use until readers are quiet.
 *
 * The last hit, struct inlay_hit, is a thread's own, zeroed at first. It remembers the place of a range, and whether the range there, in
 * the table that is current now, holds what is asked for is looked at each time: so it may be kept through any change, and through the end
 * of a lookup for the next one; at worst it is no help. It is best kept for one lookup.
 *
 * Threads: as above. A lookup object that nobody changes may be read by all.
 * Sources: liburcu's and DPDK's rte_rcu's documentation (quiescent states); the index is after no other.
 */
#ifndef INLAY_MMAP_LOOKUP_H
#define INLAY_MMAP_LOOKUP_H

#include <inlay/base.h>

#define INLAY_LOOKUP_MAX (1u << 24)   /* ranges of one lookup */
#define INLAY_LOOKUP_CUTS 7u

/* A range and what it gives. Its memory is [start, start + len); start + len may be 2^64. */
struct inlay_range {
	uint64_t start;
	uint64_t len;
	uint32_t lkey;            /* of the first device */
	uint32_t rkey;
	uint32_t access;
	uint32_t id;              /* the caller's */
};

/* A large gap between ranges, cut out of the buckets */
struct inlay_lookup_cut {
	uint64_t last;            /* addresses above this one are moved */
	uint64_t gap;             /* down by so much */
};

/* What table it is, when it is not a plain one */
enum inlay_lookup_kind {
	INLAY_LOOKUP_ANY,         /* with several cuts, or a cut and three beginnings; a plain one; an empty one */
	INLAY_LOOKUP_CUT,         /* one cut, one beginning a bucket */
	INLAY_LOOKUP_WIDE,        /* no cut, three beginnings */
};

/* The head of a table: words before it, ranges behind it. A table without cuts, with one beginning a bucket, is plain. */
struct inlay_lookup_table {
	uint64_t below;           /* the first range's start - 1 */
	uint64_t floor;           /* ~limit; all ones in a table that is not plain */
	uint64_t lowest;          /* ~limit, the limit being the offset of the last byte behind all cuts */
	uint32_t shift;           /* log2 of a bucket's bytes */
	uint16_t kind;            /* enum inlay_lookup_kind */
	uint8_t window;           /* beginnings that are compared: 1 or 3 */
	uint8_t cuts;
	uint32_t num;             /* ranges */
	uint32_t bytes;           /* of all ranges */
	uint64_t reserved1;
	struct inlay_lookup_cut cut[INLAY_LOOKUP_CUTS];
	uint64_t reserved[4];
};

struct inlay_lookup {
	const struct inlay_lookup_table *current; /* the only word that readers and the writer share */
	/* The writer's */
	struct inlay_lookup_table *table[2];
	uint32_t max_ranges;
	uint32_t busy;            /* the table that is not current may be in use */
	uint64_t reserved[4];
};

/* A thread's last hit. Zeroed, it remembers nothing. */
struct inlay_hit {
	uint32_t at;              /* bytes from the first range to this one */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_range) == 32, "two ranges a line");
INLAY_STATIC_ASSERT(offsetof(struct inlay_lookup_table, cut) == 48, "a plain table's head is one line, and that of a table with one cut");
INLAY_STATIC_ASSERT(sizeof(struct inlay_lookup_table) % INLAY_CACHE_LINE == 0, "ranges begin on a line");
INLAY_STATIC_ASSERT(sizeof(struct inlay_lookup) == INLAY_CACHE_LINE, "one line");

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up, and the writer's side
 */

/* In a loop: it does not become a call of memset or memmove. Other headers make an index in the middle of their data path. */
#define INLAY_LOOKUP_NO_CALL __asm__("" ::: "memory")

/* Words of the index for that many ranges: 64 each as long as they fit into a level-2 cache, then at least 8. */
INLAY_COLD uint64_t inlay_lookup_words(uint64_t ranges)
{
	uint64_t few = 64 * ranges, many = 8 * ranges;

	if (many < 131072)
		many = 131072;
	return few < many ? few : many;
}

/* Bytes of one table's words; two more of them end the index, and keep the head on a line. */
INLAY_COLD uint64_t inlay_lookup_index_bytes(uint32_t max_ranges)
{
	return (4 * (inlay_lookup_words(max_ranges) + 2) + INLAY_CACHE_LINE - 1) / INLAY_CACHE_LINE * INLAY_CACHE_LINE;
}

/* Bytes of one table. Four end marks: a lookup compares up to three ranges beyond the one it begins with. */
INLAY_COLD uint64_t inlay_lookup_table_bytes(uint32_t max_ranges)
{
	uint64_t ranges = ((uint64_t)max_ranges + 4) * sizeof(struct inlay_range);

	return inlay_lookup_index_bytes(max_ranges) + sizeof(struct inlay_lookup_table) +
	       (ranges + INLAY_CACHE_LINE - 1) / INLAY_CACHE_LINE * INLAY_CACHE_LINE;
}

/* Bytes of memory that inlay_lookup_init needs, for both tables; 0 when max_ranges is 0 or above INLAY_LOOKUP_MAX. */
INLAY_COLD size_t inlay_lookup_size(uint32_t max_ranges)
{
	return max_ranges && max_ranges <= INLAY_LOOKUP_MAX ? (size_t)(2 * inlay_lookup_table_bytes(max_ranges)) : 0;
}

INLAY_FN const struct inlay_range *inlay_lookup_first(const struct inlay_lookup_table *t)
{
	return (const struct inlay_range *)(const void *)(t + 1);
}

/* The same for the writer. */
INLAY_COLD struct inlay_range *inlay_lookup_entries(struct inlay_lookup_table *t)
{
	return (struct inlay_range *)(void *)(t + 1);
}

/* Bits of x: 0 for 0, 64 for the largest. */
INLAY_COLD uint32_t inlay_lookup_bits(uint64_t x)
{
	return x ? 64 - (uint32_t)__builtin_clzll(x) : 0;
}

/* Where addr comes when the cuts are out, counted from the first range. */
INLAY_FN uint64_t inlay_lookup_offset(const struct inlay_lookup_table *t, uint64_t addr)
{
	uint64_t offset = addr - t->below - 1;
	uint32_t k;

	for (k = 0; k < t->cuts; k++)
		offset -= addr > t->cut[k].last ? t->cut[k].gap : 0;
	return offset;
}

/*
 * The bucket size of n ranges, in at most `words` buckets: as large as it can be without more ranges that share a bucket with the one
 * `apart` places before (but for one in 64, unless apart is 1). Returns its log2; *shared: how many do.
 */
INLAY_COLD uint32_t inlay_lookup_fit(const struct inlay_lookup_table *t, uint32_t n, uint32_t apart, uint64_t words, uint32_t *shared)
{
	const struct inlay_range *e = inlay_lookup_first(t);
	uint64_t limit = inlay_lookup_offset(t, e[n - 1].start + (e[n - 1].len - 1));
	uint32_t together[65], shift = 0, sum = 0, most, i;

	for (i = 0; i < 65; i++) {
		together[i] = 0;
		INLAY_LOOKUP_NO_CALL;
	}
	/* Two offsets share a bucket of 2^s bytes when no bit from s on tells them apart. */
	for (i = 0; i + apart < n; i++)
		together[inlay_lookup_bits(inlay_lookup_offset(t, e[i].start) ^ inlay_lookup_offset(t, e[i + apart].start))]++;
	while (shift < 63 && limit >> shift >= words)
		shift++;
	for (i = 0; i <= shift; i++)
		sum += together[i];
	most = sum + (apart > 1 ? n / 64 : 0);
	while (shift < 63 && limit >> shift && sum + together[shift + 1] <= most)
		sum += together[++shift];
	*shared = sum;
	return shift;
}

/*
 * Cuts the largest gaps out, when that makes what is left of the address space four times denser; as few as bring most of it. What remains
 * of a gap is less than the ranges' mean distance, so that what was aligned to a bucket stays so.
 */
INLAY_COLD void inlay_lookup_cut_gaps(struct inlay_lookup_table *t, uint32_t n)
{
	const struct inlay_range *e = inlay_lookup_first(t);
	uint64_t gap[INLAY_LOOKUP_CUTS], span = e[n - 1].start - e[0].start + (e[n - 1].len - 1), rest = span, all = span, g, unit;
	uint32_t at[INLAY_LOOKUP_CUTS], found = 0, i, k;

	/* The largest ones, in falling order */
	for (i = 1; i < n; i++) {
		g = e[i].start - (e[i - 1].start + (e[i - 1].len - 1)) - 1;
		if (found == INLAY_LOOKUP_CUTS && g <= gap[found - 1])
			continue;
		k = found < INLAY_LOOKUP_CUTS ? found++ : found - 1;
		for (; k && gap[k - 1] < g; k--) {
			gap[k] = gap[k - 1];
			at[k] = at[k - 1];
		}
		gap[k] = g;
		at[k] = i;
	}
	for (k = 0; k < found; k++)
		all -= gap[k];
	if (all > span / 4)
		return;
	unit = (uint64_t)1 << (inlay_lookup_bits(all / n | 1) - 1);
	for (k = 0; k < found && rest / 2 > all; k++) {
		rest -= gap[k];
		t->cut[k].last = e[at[k]].start - gap[k] - 1;
		t->cut[k].gap = gap[k] & ~(unit - 1);
		t->cuts++;
	}
}

/* Makes the index of a table whose ranges are there, in order. */
INLAY_COLD void inlay_lookup_index(struct inlay_lookup_table *t, uint32_t n)
{
	struct inlay_range *e = inlay_lookup_entries(t);
	uint32_t *word = (uint32_t *)(void *)t - 1;
	uint64_t words = inlay_lookup_words(n), limit, b;
	uint32_t shared, i, k;

	/* The end marks begin behind any address but the last, and hold nothing. */
	for (i = 0; i < 4; i++) {
		e[n + i].start = UINT64_MAX;
		e[n + i].len = 0;
	}
	for (k = 0; k < INLAY_LOOKUP_CUTS; k++) {
		t->cut[k].last = UINT64_MAX;
		t->cut[k].gap = 0;
		INLAY_LOOKUP_NO_CALL;
	}
	t->num = n;
	t->bytes = n * (uint32_t)sizeof(*e);
	t->window = 1;
	t->cuts = 0;
	t->kind = INLAY_LOOKUP_ANY;
	t->shift = 63;
	/*
	 * As a plain table, one that is not refuses all addresses but one: that at which the first range starts, which is rightly found in
	 * the first bucket. In an empty one it is address 0.
	 */
	t->floor = t->lowest = UINT64_MAX;
	t->below = n ? e[0].start - 1 : UINT64_MAX;
	word[0] = word[-1] = (uint32_t)sizeof(*t);
	if (!n)
		return;
	t->shift = inlay_lookup_fit(t, n, 1, words, &shared);
	if (shared > n / 64) {
		inlay_lookup_cut_gaps(t, n);
		if (t->cuts)
			t->shift = inlay_lookup_fit(t, n, 1, words, &shared);
	}
	if (shared > n / 64) {
		t->window = 3;
		t->shift = inlay_lookup_fit(t, n, 3, words, &shared);
	}
	limit = inlay_lookup_offset(t, e[n - 1].start + (e[n - 1].len - 1));
	t->lowest = ~limit;
	for (b = i = 0; b <= limit >> t->shift; b++) {
		while (i + 1 < n && inlay_lookup_offset(t, e[i + 1].start) <= b << t->shift)
			i++;
		*word-- = (uint32_t)(sizeof(*t) + i * sizeof(*e));
	}
	*word = (uint32_t)(sizeof(*t) + (n - 1) * sizeof(*e));
	/* With its highest bit set, an offset would not shift down as a negative number does. */
	if (limit >> 63)
		return;
	if (!t->cuts && t->window == 1)
		t->floor = ~limit;
	else if (!t->cuts)
		t->kind = INLAY_LOOKUP_WIDE;
	else if (t->cuts == 1 && t->window == 1)
		t->kind = INLAY_LOOKUP_CUT;
}

/* The table that is not current. */
INLAY_COLD struct inlay_lookup_table *inlay_lookup_other(const struct inlay_lookup *l)
{
	return l->table[l->current == l->table[0]];
}

/* Makes a table of n ordered ranges current. */
INLAY_COLD void inlay_lookup_publish(struct inlay_lookup *l, struct inlay_lookup_table *t, uint32_t n)
{
	inlay_lookup_index(t, n);
	l->busy = 1;
	/* Whoever sees the pointer sees the table. */
	__atomic_store_n(&l->current, t, __ATOMIC_RELEASE);
}

/*
 * An empty lookup.
 *
 * memory      for the tables, on a cache line; the caller's until nobody uses the lookup any more
 * size        its bytes, at least inlay_lookup_size(max_ranges)
 *
 * Returns 0, or -EINVAL for an argument out of its range.
 */
INLAY_COLD int inlay_lookup_init(struct inlay_lookup *l, void *memory, size_t size, uint32_t max_ranges)
{
	INLAY_CHECK(l, "a lookup is not NULL");
	uint8_t *at = (uint8_t *)memory;
	uint32_t i;

	if (!memory || (uintptr_t)memory % INLAY_CACHE_LINE || !inlay_lookup_size(max_ranges) || size < inlay_lookup_size(max_ranges))
		return -EINVAL;
	__builtin_memset(l, 0, sizeof(*l));
	l->max_ranges = max_ranges;
	for (i = 0; i < 2; i++) {
		l->table[i] = (struct inlay_lookup_table *)(void *)(at + inlay_lookup_index_bytes(max_ranges));
		at += inlay_lookup_table_bytes(max_ranges);
		inlay_lookup_index(l->table[i], 0);
	}
	l->current = l->table[0];
	return 0;
}

/* Is it a range at all: not empty, and not beyond the end of the address space? */
INLAY_COLD int inlay_range_check(const struct inlay_range *r)
{
	return r->len && r->start + (r->len - 1) >= r->start ? 0 : -EINVAL;
}

/* Sorts by start, in place. */
INLAY_COLD void inlay_lookup_sort(struct inlay_range *e, uint32_t n)
{
	struct inlay_range moved;
	uint32_t heap = n / 2, end = n, at, child;

	for (at = 1; at < n && e[at - 1].start <= e[at].start; at++)
		;
	if (at >= n)
		return;
	while (end > 1) {
		if (heap) {
			moved = e[--heap];
		} else {
			moved = e[--end];
			e[end] = e[0];
		}
		for (at = heap; (child = 2 * at + 1) < end; at = child) {
			if (child + 1 < end && e[child].start < e[child + 1].start)
				child++;
			if (e[child].start <= moved.start)
				break;
			e[at] = e[child];
		}
		e[at] = moved;
	}
}

/*
 * Replaces all ranges. The way to bring in many: adding one costs as much as this.
 *
 * ranges  n of them, in any order; copied
 *
 * Returns 0; -EBUSY before inlay_lookup_quiet; -ENOSPC for more than max_ranges; -EINVAL when one is empty or goes beyond the end of
 * the address space; -EEXIST when two overlap. After an error, what was current still is.
 */
INLAY_COLD int inlay_lookup_build(struct inlay_lookup *l, const struct inlay_range *ranges, uint32_t n)
{
	INLAY_CHECK(l, "a lookup is not NULL");
	struct inlay_lookup_table *t = inlay_lookup_other(l);
	struct inlay_range *e = inlay_lookup_entries(t);
	uint32_t i;

	if (l->busy)
		return -EBUSY;
	if (n > l->max_ranges)
		return -ENOSPC;
	for (i = 0; i < n; i++) {
		if (inlay_range_check(&ranges[i]))
			return -EINVAL;
		e[i] = ranges[i];
	}
	inlay_lookup_sort(e, n);
	for (i = 1; i < n; i++)
		if (e[i].start - e[i - 1].start < e[i - 1].len)
			return -EEXIST;
	inlay_lookup_publish(l, t, n);
	return 0;
}

/* The number of ranges that start at or before addr. */
INLAY_COLD uint32_t inlay_lookup_rank(const struct inlay_lookup_table *t, uint64_t addr)
{
	const struct inlay_range *e = inlay_lookup_first(t);
	uint32_t low = 0, high = t->num, mid;

	while (low < high) {
		mid = low + (high - low) / 2;
		if (e[mid].start <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/*
 * Adds a range. Time grows with the number of ranges.
 *
 * Returns 0; -EBUSY before inlay_lookup_quiet; -EINVAL for an empty range or one beyond the end of the address space; -EEXIST when it
 * overlaps one that is there; -ENOSPC when there are max_ranges. After an error nothing has changed.
 */
INLAY_COLD int inlay_lookup_add(struct inlay_lookup *l, const struct inlay_range *r)
{
	INLAY_CHECK(l, "a lookup is not NULL");
	const struct inlay_lookup_table *c = l->current;
	const struct inlay_range *from = inlay_lookup_first(c);
	struct inlay_lookup_table *t = inlay_lookup_other(l);
	struct inlay_range *e = inlay_lookup_entries(t);
	uint32_t n = c->num, at, i;

	if (l->busy)
		return -EBUSY;
	if (inlay_range_check(r))
		return -EINVAL;
	at = inlay_lookup_rank(c, r->start);
	if ((at && r->start - from[at - 1].start < from[at - 1].len) || (at < n && from[at].start - r->start < r->len))
		return -EEXIST;
	if (n == l->max_ranges)
		return -ENOSPC;
	for (i = 0; i < at; i++)
		e[i] = from[i];
	e[at] = *r;
	for (; i < n; i++)
		e[i + 1] = from[i];
	inlay_lookup_publish(l, t, n + 1);
	return 0;
}

/*
 * Removes the range that is exactly [start, start + len).
 *
 * Returns 0; -EBUSY before inlay_lookup_quiet; -ENOENT when there is none.
 */
INLAY_COLD int inlay_lookup_remove(struct inlay_lookup *l, uint64_t start, uint64_t len)
{
	INLAY_CHECK(l, "a lookup is not NULL");
	const struct inlay_lookup_table *c = l->current;
	const struct inlay_range *from = inlay_lookup_first(c);
	struct inlay_lookup_table *t = inlay_lookup_other(l);
	struct inlay_range *e = inlay_lookup_entries(t);
	uint32_t n = c->num, at, i;

	if (l->busy)
		return -EBUSY;
	at = inlay_lookup_rank(c, start);
	if (!at || from[at - 1].start != start || from[at - 1].len != len)
		return -ENOENT;
	for (i = 0; i < n - 1; i++)
		e[i] = from[i < at - 1 ? i : i + 1];
	inlay_lookup_publish(l, t, n - 1);
	return 0;
}

/* The writer's word that no reader is left in the table that was current before the last change, nor holds a range out of it. */
INLAY_COLD void inlay_lookup_quiet(struct inlay_lookup *l)
{
	INLAY_CHECK(l, "a lookup is not NULL");
	l->busy = 0;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path
 */

/* Does [start, start + bytes) hold [addr, addr + len)? */
INLAY_ALWAYS int inlay_lookup_holds(uint64_t start, uint64_t bytes, uint64_t addr, uint64_t len)
{
	uint64_t offset = addr - start;

	/* What is left is one subtraction, which is the comparison as well; compilers that know what the offset is would do two. */
	__asm__("" : "+r"(offset));
	return INLAY_LIKELY(offset < bytes) && INLAY_LIKELY(bytes - offset >= len);
}

/* The last range that starts at or before addr, between first and last: where more begin in a bucket than a lookup compares. */
INLAY_COLD const struct inlay_range *inlay_lookup_search(const struct inlay_lookup_table *t, uint64_t addr)
{
	const uint32_t *bucket = (const uint32_t *)(const void *)t - 1 - (int64_t)(inlay_lookup_offset(t, addr) >> t->shift);
	uint32_t low = bucket[0], high = bucket[-1], mid;

	while (low < high) {
		mid = low + ((high - low) / (uint32_t)sizeof(struct inlay_range) + 1) / 2 * (uint32_t)sizeof(struct inlay_range);
		if (((const struct inlay_range *)(const void *)((const uint8_t *)t + mid))->start <= addr)
			low = mid;
		else
			high = mid - (uint32_t)sizeof(struct inlay_range);
	}
	return (const struct inlay_range *)(const void *)((const uint8_t *)t + low);
}

/* The range that begins a bucket, by the bucket's word. */
INLAY_ALWAYS const struct inlay_range *inlay_lookup_bucket(const struct inlay_lookup_table *t, int64_t word)
{
	return (const struct inlay_range *)(const void *)((const uint8_t *)t + ((const uint32_t *)(const void *)t)[word]);
}

/* All ones when addr is above last, else 0. */
INLAY_ALWAYS uint64_t inlay_lookup_above(uint64_t addr, uint64_t last)
{
	return (uint64_t)0 - (uint64_t)(addr > last);
}

/* In this table. An address in a gap that was cut out comes to any bucket: no range there holds it. */
INLAY_ALWAYS const struct inlay_range *inlay_lookup_in(const struct inlay_lookup_table *t, uint64_t addr, uint64_t len)
{
	const struct inlay_lookup_cut *c = t->cut;
	/* Minus the offset, minus one: minus the bucket, minus one, when shifted down. */
	uint64_t down = t->below - addr;
	const struct inlay_range *e;

	if (INLAY_LIKELY(down >= t->floor)) {
		e = inlay_lookup_bucket(t, (int64_t)down >> (t->shift & 63));
		e += e[1].start <= addr;
	} else if (t->kind == INLAY_LOOKUP_CUT) {
		down += c->gap & inlay_lookup_above(addr, c->last);
		if (INLAY_UNLIKELY(down < t->lowest))
			return NULL;
		e = inlay_lookup_bucket(t, (int64_t)down >> (t->shift & 63));
		e += e[1].start <= addr;
	} else if (t->kind == INLAY_LOOKUP_WIDE) {
		if (INLAY_UNLIKELY(down < t->lowest))
			return NULL;
		e = inlay_lookup_bucket(t, (int64_t)down >> (t->shift & 63));
		e += (e[1].start <= addr) + (e[2].start <= addr) + (e[3].start <= addr);
	} else {
		if (t->cuts) {
			down += c[0].gap & inlay_lookup_above(addr, c[0].last);
			if (t->cuts > 1) {
				down += c[1].gap & inlay_lookup_above(addr, c[1].last);
				down += c[2].gap & inlay_lookup_above(addr, c[2].last);
			}
			if (t->cuts > 3) {
				down += c[3].gap & inlay_lookup_above(addr, c[3].last);
				down += c[4].gap & inlay_lookup_above(addr, c[4].last);
				down += c[5].gap & inlay_lookup_above(addr, c[5].last);
				down += c[6].gap & inlay_lookup_above(addr, c[6].last);
			}
		}
		if (INLAY_UNLIKELY(down < t->lowest))
			return NULL;
		e = inlay_lookup_bucket(t, -1 - (int64_t)(~down >> (t->shift & 63)));
		/* One beginning would do where the window is 1. */
		e += (e[1].start <= addr) + (e[2].start <= addr) + (e[3].start <= addr);
	}
	if (INLAY_UNLIKELY(e[1].start <= addr))
		e = inlay_lookup_search(t, addr);
	return inlay_lookup_holds(e->start, e->len, addr, len) ? e : NULL;
}

/*
 * The range that holds all of [addr, addr + len), or NULL when no single one does. It stays as it is until the caller's next quiet
 * point. Any addr and len may be asked for.
 */
INLAY_ALWAYS const struct inlay_range *inlay_lookup_find(const struct inlay_lookup *l, uint64_t addr, uint64_t len)
{
	INLAY_CHECK(l, "a lookup is not NULL");
	return inlay_lookup_in(__atomic_load_n(&l->current, __ATOMIC_ACQUIRE), addr, len);
}

/* The same, looking first at the range that this thread found last. */
INLAY_ALWAYS const struct inlay_range *inlay_lookup_hit(const struct inlay_lookup *l, struct inlay_hit *hit, uint64_t addr, uint64_t len)
{
	INLAY_CHECK(l, "a lookup is not NULL");
	const struct inlay_lookup_table *t = __atomic_load_n(&l->current, __ATOMIC_ACQUIRE);
	const struct inlay_range *e = (const struct inlay_range *)(const void *)((const uint8_t *)(t + 1) + hit->at);

	if (INLAY_LIKELY(hit->at < t->bytes) && inlay_lookup_holds(e->start, e->len, addr, len))
		return e;
	e = inlay_lookup_in(t, addr, len);
	if (e)
		hit->at = (uint32_t)((const uint8_t *)e - (const uint8_t *)(t + 1));
	return e;
}

/* Number of ranges now. */
INLAY_FN uint32_t inlay_lookup_count(const struct inlay_lookup *l)
{
	INLAY_CHECK(l, "a lookup is not NULL");
	return __atomic_load_n(&l->current, __ATOMIC_ACQUIRE)->num;
}

/* Range number i in the order of addresses, or NULL from the last on. For the writer, who knows that none comes or goes meanwhile. */
INLAY_FN const struct inlay_range *inlay_lookup_at(const struct inlay_lookup *l, uint32_t i)
{
	INLAY_CHECK(l, "a lookup is not NULL");
	const struct inlay_lookup_table *t = __atomic_load_n(&l->current, __ATOMIC_ACQUIRE);

	return i < t->num ? inlay_lookup_first(t) + i : NULL;
}

#endif
