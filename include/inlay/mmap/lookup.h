/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap/lookup.h: the table by which a memory map finds the range that holds an address and a
 * length, and with it the keys. Callers use it through inlay_mmap_find and inlay_mmap_hit (map.h).
 *
 * The address space from the first range to the last is cut into buckets of one power of two. The
 * index word of a bucket names the range that begins last at or before the bucket's first byte.
 * Only that range, or one that begins inside the bucket, can hold an address in the bucket.
 *
 *      bucket         0        1        2        3        4
 *   index word    r0       r0       r1       r1       r3
 *                 |r0-----------||r1--------------||r2||r3---------...
 *
 * A lookup is two dependent loads: index word, range. Buckets are as small as needed for one range
 * at most to begin in each. Where they cannot be (there are 8 to 64 words for each range), three
 * beginnings are compared, and then the table is searched. Large gaps between ranges would waste
 * buckets, so up to seven are cut out: addresses above a cut move down by its size.
 *
 *   word | ... | word | word | head                | range 0 | range 1 | ... | end marks
 *   bucket      1      0     ^ struct inlay_table
 *
 * Words grow down from the head and ranges up, so that a lookup needs the head's address alone.
 *
 * Invariants: ranges never overlap. Adjacent ranges stay apart, because their keys differ: what
 * lies in two of them is found in neither. A length of 0 asks for the range of that one address.
 *
 * Threads: any number may look up while nobody builds the table.
 */
#ifndef INLAY_MMAP_LOOKUP_H
#define INLAY_MMAP_LOOKUP_H

#include <inlay/base.h>

#define INLAY_LOOKUP_MAX (1u << 24) /* ranges of one map */
#define INLAY_TABLE_CUTS_ 7u

/* A range and its keys. Its memory is [start, start + len); start + len may be 2^64. */
struct inlay_range {
	uint64_t start;
	uint64_t len;
	uint32_t lkey;          /* host order, as are all keys here */
	uint32_t rkey;
	uint32_t access;        /* the caller's, as is id */
	uint32_t id;
};

/* A thread's last hit. Zeroed, it remembers nothing. It may outlive any change, and the map. */
struct inlay_hit {
	uint32_t at;            /* bytes from the first range */
};

/* A gap that was cut out: addresses above `last` move down by `gap` */
struct inlay_table_cut {
	uint64_t last;
	uint64_t gap;
};

/* The head of a table, which is plain without cuts and with one beginning at most in a bucket. */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_table {
	uint64_t below;         /* start of the first range - 1 */
	uint64_t floor;         /* ~limit; all ones when the table is not plain */
	uint64_t lowest;        /* ~limit: the offset of the last byte, without cuts */
	uint32_t shift;         /* log2 of a bucket's bytes */
	uint16_t one_cut;       /* one cut, and one beginning at most in a bucket: the second fast form */
	uint8_t probes;         /* beginnings to compare: 1 or 3 */
	uint8_t cuts;
	uint32_t num;           /* ranges */
	uint32_t bytes;         /* of the ranges */
	struct inlay_table_cut cut[INLAY_TABLE_CUTS_];
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_range) == 32, "two ranges a line");
INLAY_STATIC_ASSERT(offsetof(struct inlay_table, cut[1]) <= INLAY_CACHE_LINE, "one cut is in the first line");

/* ------------------------------------------------------------------------------------------------
 * Set-up
 */

/* Index words for so many ranges: 64 each while they fit in a level-2 cache, at least 8. */
INLAY_COLD uint64_t inlay_table_words_(uint64_t ranges)
{
	uint64_t many = ranges > 16384 ? 8 * ranges : 131072;

	return 64 * ranges < many ? 64 * ranges : many;
}

/* Bytes of the words. Two more end the index. */
INLAY_COLD uint64_t inlay_table_index_bytes_(uint32_t max_ranges)
{
	return inlay_round_up(4 * (inlay_table_words_(max_ranges) + 2), INLAY_CACHE_LINE);
}

/* Bytes of a table, with four end marks: a lookup reads up to three ranges too many. */
INLAY_COLD uint64_t inlay_table_bytes_(uint32_t max_ranges)
{
	return inlay_table_index_bytes_(max_ranges) + sizeof(struct inlay_table) +
	       inlay_round_up(((uint64_t)max_ranges + 4) * sizeof(struct inlay_range), INLAY_CACHE_LINE);
}

INLAY_FN struct inlay_range *inlay_table_ranges_(const struct inlay_table *t)
{
	return (struct inlay_range *)(uintptr_t)(t + 1);
}

/* Bits of x: 0 for 0, 64 for the largest. */
INLAY_COLD uint32_t inlay_table_bits_(uint64_t x) { return x ? 64 - (uint32_t)__builtin_clzll(x) : 0; }

/* The offset of addr from the first range, without cuts. */
INLAY_FN uint64_t inlay_table_offset_(const struct inlay_table *t, uint64_t addr)
{
	uint64_t offset = addr - t->below - 1;
	uint32_t k;

	for (k = 0; k < t->cuts; k++)
		offset -= addr > t->cut[k].last ? t->cut[k].gap : 0;
	return offset;
}

/*
 * The largest bucket size, with at most `words` buckets, in which not more ranges share a bucket
 * with the range `apart` places before (but for one in 64, unless apart is 1). Returns its log2;
 * *shared: how many do.
 */
INLAY_COLD uint32_t inlay_table_fit_(const struct inlay_table *t, uint32_t n, uint32_t apart, uint64_t words,
				     uint32_t *shared)
{
	const struct inlay_range *e = inlay_table_ranges_(t);
	uint64_t limit = inlay_table_offset_(t, e[n - 1].start + (e[n - 1].len - 1));
	uint32_t together[65] = {0}, shift = 0, sum = 0, most, i;

	/* Two offsets share a bucket of 2^s bytes when they differ in no bit from s on. */
	for (i = 0; i + apart < n; i++)
		together[inlay_table_bits_(inlay_table_offset_(t, e[i].start) ^
					   inlay_table_offset_(t, e[i + apart].start))]++;
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
 * Cuts out the largest gaps, as few as bring most of the gain, if that makes what is left four
 * times denser. The rest of a gap is shorter than the mean distance of ranges, so what was aligned
 * to a bucket stays aligned.
 */
INLAY_COLD void inlay_table_cut_gaps_(struct inlay_table *t, uint32_t n)
{
	const struct inlay_range *e = inlay_table_ranges_(t);
	uint64_t gap[INLAY_TABLE_CUTS_], span = e[n - 1].start - e[0].start + (e[n - 1].len - 1);
	uint64_t rest = span, all = span, g, unit;
	uint32_t at[INLAY_TABLE_CUTS_], found = 0, i, k;

	/* The largest ones, in falling order */
	for (i = 1; i < n; i++) {
		g = e[i].start - (e[i - 1].start + (e[i - 1].len - 1)) - 1;
		if (found == INLAY_TABLE_CUTS_ && g <= gap[found - 1])
			continue;
		k = found < INLAY_TABLE_CUTS_ ? found++ : found - 1;
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
	unit = (uint64_t)1 << (inlay_table_bits_(all / n | 1) - 1);
	for (k = 0; k < found && rest / 2 > all; k++) {
		rest -= gap[k];
		t->cut[k].last = e[at[k]].start - gap[k] - 1;
		t->cut[k].gap = gap[k] & ~(unit - 1);
		t->cuts++;
	}
}

/* Makes the index of the first n ranges, which are in order. With 0, the table holds nothing. */
INLAY_COLD void inlay_table_index_(struct inlay_table *t, uint32_t n)
{
	struct inlay_range *e = inlay_table_ranges_(t);
	uint32_t *word = (uint32_t *)(void *)t - 1;
	uint64_t words = inlay_table_words_(n), limit, b;
	uint32_t shared, i;

	__builtin_memset(t, 0, sizeof(*t));
	/* The end marks begin after any address but the last, and hold nothing. */
	for (i = 0; i < 4; i++) {
		e[n + i].start = UINT64_MAX;
		e[n + i].len = 0;
	}
	for (i = 0; i < INLAY_TABLE_CUTS_; i++)
		t->cut[i].last = UINT64_MAX;
	t->num = n;
	t->bytes = n * (uint32_t)sizeof(*e);
	t->probes = 1;
	t->shift = 63;
	/*
	 * In a table that is not plain, the plain form refuses all addresses but the first range's
	 * start, which the first bucket finds; in an empty one, address 0.
	 */
	t->floor = t->lowest = UINT64_MAX;
	t->below = n ? e[0].start - 1 : UINT64_MAX;
	word[0] = word[-1] = (uint32_t)sizeof(*t);
	if (!n)
		return;
	t->shift = inlay_table_fit_(t, n, 1, words, &shared);
	if (shared > n / 64) {
		inlay_table_cut_gaps_(t, n);
		if (t->cuts)
			t->shift = inlay_table_fit_(t, n, 1, words, &shared);
	}
	if (shared > n / 64) {
		t->probes = 3;
		t->shift = inlay_table_fit_(t, n, 3, words, &shared);
	}
	limit = inlay_table_offset_(t, e[n - 1].start + (e[n - 1].len - 1));
	t->lowest = ~limit;
	for (b = i = 0; b <= limit >> t->shift; b++) {
		while (i + 1 < n && inlay_table_offset_(t, e[i + 1].start) <= b << t->shift)
			i++;
		*word-- = (uint32_t)(sizeof(*t) + i * sizeof(*e));
	}
	*word = (uint32_t)(sizeof(*t) + (n - 1) * sizeof(*e));
	/* An offset whose highest bit is set does not shift down as a negative number does. */
	if (limit >> 63 || t->probes != 1)
		return;
	if (!t->cuts)
		t->floor = ~limit;
	t->one_cut = t->cuts == 1;
}

/* An empty table in memory of inlay_table_bytes_(max_ranges). */
INLAY_COLD struct inlay_table *inlay_table_init_(void *memory, uint32_t max_ranges)
{
	struct inlay_table *t = (struct inlay_table *)(void *)((uint8_t *)memory +
							       inlay_table_index_bytes_(max_ranges));

	inlay_table_index_(t, 0);
	return t;
}

/* Whether it is empty or goes past the end of the address space: then it is no range. */
INLAY_COLD int inlay_range_bad_(uint64_t start, uint64_t len) { return !len || start + (len - 1) < start; }

/* Sorts n ranges and makes the index. Returns 0; -EINVAL for a bad one, -EEXIST for an overlap. */
INLAY_COLD int inlay_table_build_(struct inlay_table *t, uint32_t n)
{
	struct inlay_range *e = inlay_table_ranges_(t), moved;
	uint32_t heap = n / 2, end = n, at, child;

	for (at = 1; at < n && e[at - 1].start <= e[at].start; at++)
		;
	/* A heap, when they are not in order already */
	while (at < n && end > 1) {
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
		at = 0;
	}
	for (at = 0; at < n; at++) {
		if (inlay_range_bad_(e[at].start, e[at].len))
			return -EINVAL;
		if (at && e[at].start - e[at - 1].start < e[at - 1].len)
			return -EEXIST;
	}
	inlay_table_index_(t, n);
	return 0;
}

/* Ranges that start at or before addr. */
INLAY_COLD uint32_t inlay_table_rank_(const struct inlay_table *t, uint64_t addr)
{
	const struct inlay_range *e = inlay_table_ranges_(t);
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

/* ------------------------------------------------------------------------------------------------
 * Data path
 */

/* Whether [start, start + bytes) holds [addr, addr + len). */
INLAY_ALWAYS int inlay_range_holds_(uint64_t start, uint64_t bytes, uint64_t addr, uint64_t len)
{
	uint64_t offset = addr - start;

	/* Hides the offset's origin: compilers that know it subtract twice, once to compare. */
	__asm__("" : "+r"(offset));
	return INLAY_LIKELY(offset < bytes) && INLAY_LIKELY(bytes - offset >= len);
}

/* The range that a bucket's index word names. */
INLAY_ALWAYS const struct inlay_range *inlay_table_bucket_(const struct inlay_table *t, int64_t word)
{
	return (const struct inlay_range *)(const void *)((const uint8_t *)t +
							  ((const uint32_t *)(const void *)t)[word]);
}

/* What a cut takes off addr. */
INLAY_ALWAYS uint64_t inlay_table_gap_(const struct inlay_table_cut *c, uint64_t addr)
{
	return c->gap & ((uint64_t)0 - (uint64_t)(addr > c->last));
}

INLAY_ALWAYS const struct inlay_range *inlay_table_find_(const struct inlay_table *t, uint64_t addr, uint64_t len)
{
	const struct inlay_table_cut *c = t->cut;
	/* -offset - 1; shifted down, -bucket - 1. Nothing holds an address that is inside a cut. */
	uint64_t down = t->below - addr;
	const struct inlay_range *e;

	if (INLAY_LIKELY(down >= t->floor)) {
		e = inlay_table_bucket_(t, (int64_t)down >> (t->shift & 63));
		e += e[1].start <= addr;
	} else if (t->one_cut) {
		down += inlay_table_gap_(c, addr);
		if (INLAY_UNLIKELY(down < t->lowest))
			return NULL;
		e = inlay_table_bucket_(t, (int64_t)down >> (t->shift & 63));
		e += e[1].start <= addr;
	} else {
		if (t->cuts) {
			down += inlay_table_gap_(&c[0], addr);
			if (t->cuts > 1)
				down += inlay_table_gap_(&c[1], addr) + inlay_table_gap_(&c[2], addr);
			if (t->cuts > 3)
				down += inlay_table_gap_(&c[3], addr) + inlay_table_gap_(&c[4], addr) +
					inlay_table_gap_(&c[5], addr) + inlay_table_gap_(&c[6], addr);
		}
		if (INLAY_UNLIKELY(down < t->lowest))
			return NULL;
		e = inlay_table_bucket_(t, -1 - (int64_t)(~down >> (t->shift & 63)));
		e += (e[1].start <= addr) + (e[2].start <= addr) + (e[3].start <= addr);
	}
	if (INLAY_UNLIKELY(e[1].start <= addr))
		e = inlay_table_ranges_(t) + inlay_table_rank_(t, addr) - 1;
	return inlay_range_holds_(e->start, e->len, addr, len) ? e : NULL;
}

INLAY_ALWAYS const struct inlay_range *inlay_table_hit_(const struct inlay_table *t, struct inlay_hit *hit,
							uint64_t addr, uint64_t len)
{
	const struct inlay_range *e = (const struct inlay_range *)(const void *)((const uint8_t *)(t + 1) + hit->at);

	if (INLAY_LIKELY(hit->at < t->bytes) && inlay_range_holds_(e->start, e->len, addr, len))
		return e;
	e = inlay_table_find_(t, addr, len);
	if (e)
		hit->at = (uint32_t)((const uint8_t *)e - (const uint8_t *)(t + 1));
	return e;
}

#endif
