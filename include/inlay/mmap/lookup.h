/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap/lookup.h: the table of a memory map: from an address to its range and keys. Internal:
 * callers use inlay_mmap_find (map.h).
 *
 * The address space from the first range to the last is divided into buckets of one size, a power
 * of two. A bucket's index word names the last range that begins at or before the bucket's first
 * byte. Only that range, or one that begins inside the bucket, can hold an address in the bucket.
 *
 *      bucket         0        1        2        3        4
 *   index word    r0       r0       r1       r1       r3
 *                 |r0-----------||r1--------------||r2||r3---------...
 *
 * A lookup is two dependent loads: index word, range. A table is plain when at most one range
 * begins in a bucket (with few exceptions). Otherwise two comparisons choose among four ranges; if
 * more begin in the bucket, all are searched. Large gaps are cut out: addresses above a cut move
 * down. Ranges never overlap, and a lookup that spans two finds neither.
 *
 *   word | ... | word | word | head                | range 0 | range 1 | ... | end marks
 *   bucket      1      0     ^ struct inlay_table
 *
 * Threads: any number may look up while no thread builds the table.
 */
#ifndef INLAY_MMAP_LOOKUP_H
#define INLAY_MMAP_LOOKUP_H /* a trial: names may change */

#include <stdlib.h>
#include <inlay/base.h>

#define INLAY_LOOKUP_MAX (1u << 24) /* ranges of one map */
#define INLAY_TABLE_CUTS_ 7u

/* A range and its keys. Its memory is [start, start + len); start + len may be 2^64. */
struct inlay_range {
	uint64_t start;
	uint64_t len;
	uint32_t lkey;          /* host order, as are all keys here */
	uint32_t rkey;
	uint32_t access;        /* the caller's, like id */
	uint32_t id;
};

/* A gap that was cut out: addresses above `last` move down by `gap` */
struct inlay_table_cut {
	uint64_t last;
	uint64_t gap;
};

struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_table {
	uint64_t below;         /* start of the first range - 1 */
	uint64_t floor;         /* ~limit of a plain table; all ones otherwise */
	uint64_t lowest;        /* ~limit; limit: the offset of the last byte, without cuts */
	uint32_t shift;         /* log2 of a bucket's bytes */
	uint32_t cuts;
	uint32_t num;           /* ranges */
	struct inlay_table_cut cut[INLAY_TABLE_CUTS_];
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_range) == 32, "two ranges a line");
INLAY_STATIC_ASSERT(offsetof(struct inlay_table, cut[1]) <= INLAY_CACHE_LINE, "one cut is in the first line");

/* ---- Set-up ---- */

/* Index words for so many ranges: 64 each if that fits in a level-2 cache, at least 8 each. */
INLAY_COLD uint64_t inlay_table_words_(uint64_t ranges)
{
	return ranges > 16384 ? 8 * ranges : ranges > 2048 ? 131072 : 64 * ranges;
}

INLAY_COLD uint64_t inlay_table_index_bytes_(uint32_t max_ranges)
{
	return inlay_round_up(4 * inlay_table_words_(max_ranges), INLAY_CACHE_LINE);
}

/* Bytes of a table, with four end marks: a lookup reads up to three ranges past the last. */
INLAY_COLD uint64_t inlay_table_bytes_(uint32_t max_ranges)
{
	return inlay_table_index_bytes_(max_ranges) + sizeof(struct inlay_table) +
	       inlay_round_up(((uint64_t)max_ranges + 4) * sizeof(struct inlay_range), INLAY_CACHE_LINE);
}

INLAY_FN struct inlay_range *inlay_table_ranges_(const struct inlay_table *t)
{
	return (struct inlay_range *)(uintptr_t)(t + 1);
}

INLAY_FN uint64_t inlay_range_last_(const struct inlay_range *r)
{
	return r->start + (r->len - 1);
}

/* The bits that x needs: 0 .. 64. */
INLAY_COLD uint32_t inlay_table_bits_(uint64_t x)
{
	return x ? 64 - (uint32_t)__builtin_clzll(x) : 0;
}

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
 * The largest bucket size at which no more ranges share a bucket with the range `apart` places
 * before than at the smallest size, that of at most `words` buckets; if apart is not 1, one range
 * in 64 more may. Returns its log2; *shared: how many ranges do.
 */
INLAY_COLD uint32_t inlay_table_fit_(const struct inlay_table *t, uint32_t n, uint32_t apart, uint64_t words,
				     uint32_t *shared)
{
	const struct inlay_range *e = inlay_table_ranges_(t);
	uint64_t limit = inlay_table_offset_(t, inlay_range_last_(&e[n - 1]));
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
 * Cuts out gaps, the largest first, while one is an eighth of the rest, if that makes the table
 * four times denser. Cuts are multiples of a power of two, so aligned ranges stay aligned.
 */
INLAY_COLD void inlay_table_cut_gaps_(struct inlay_table *t, uint32_t n)
{
	const struct inlay_range *e = inlay_table_ranges_(t);
	const uint64_t span = inlay_range_last_(&e[n - 1]) - e[0].start;
	uint64_t rest = span, gap, g, last = 0, unit;
	uint32_t i;

	while (t->cuts < INLAY_TABLE_CUTS_) {
		for (gap = 0, i = 1; i < n; i++) {
			const uint64_t before = inlay_range_last_(&e[i - 1]);

			g = inlay_table_offset_(t, e[i].start) - inlay_table_offset_(t, before) - 1;
			last = g > gap ? before : last;
			gap = g > gap ? g : gap;
		}
		unit = (uint64_t)1 << (inlay_table_bits_((rest - gap) / n | 1) - 1);
		gap &= ~(unit - 1);
		if (!gap || gap < rest / 8)
			break;
		rest -= gap;
		t->cut[t->cuts].last = last;
		t->cut[t->cuts++].gap = gap;
	}
	if (rest > span / 4)
		t->cuts = 0;
}

/* Makes the index of the first n ranges, which are in order; with 0, an empty table. */
INLAY_COLD void inlay_table_index_(struct inlay_table *t, uint32_t n)
{
	struct inlay_range *e = inlay_table_ranges_(t);
	uint32_t *word = (uint32_t *)(void *)t - 1;
	uint64_t words = inlay_table_words_(n), limit, b;
	uint32_t shared, i;
	int plain;

	__builtin_memset(t, 0, sizeof(*t));
	/* The end marks start at the last address, and hold nothing. */
	for (i = 0; i < 4; i++) {
		e[n + i].start = UINT64_MAX;
		e[n + i].len = 0;
	}
	t->num = n;
	t->shift = 63;
	/*
	 * In a table that is not plain, the plain form takes only the start of the first range, which
	 * the first bucket finds; in an empty one, only address 0.
	 */
	t->floor = t->lowest = UINT64_MAX;
	t->below = n ? e[0].start - 1 : UINT64_MAX;
	word[0] = (uint32_t)sizeof(*t);
	if (!n)
		return;
	t->shift = inlay_table_fit_(t, n, 1, words, &shared);
	plain = shared <= n / 64;
	if (!plain) {
		inlay_table_cut_gaps_(t, n);
		t->shift = inlay_table_fit_(t, n, 3, words, &shared);
	}
	limit = inlay_table_offset_(t, inlay_range_last_(&e[n - 1]));
	t->lowest = ~limit;
	for (b = i = 0; b <= limit >> t->shift; b++) {
		while (i + 1 < n && inlay_table_offset_(t, e[i + 1].start) <= b << t->shift)
			i++;
		*word-- = (uint32_t)(sizeof(*t) + i * sizeof(*e));
	}
	/* The plain form shifts a negative number, which an offset with the highest bit set is not. */
	if (plain && !(limit >> 63))
		t->floor = ~limit;
}

/* An empty table in memory of inlay_table_bytes_(max_ranges). */
INLAY_COLD struct inlay_table *inlay_table_init_(void *memory, uint32_t max_ranges)
{
	struct inlay_table *t = (struct inlay_table *)(void *)((uint8_t *)memory +
							       inlay_table_index_bytes_(max_ranges));

	inlay_table_index_(t, 0);
	return t;
}

/* Whether a range is empty or wraps around. */
INLAY_COLD int inlay_range_bad_(uint64_t start, uint64_t len)
{
	return !len || start + (len - 1) < start;
}

INLAY_COLD int inlay_range_compare_(const void *a, const void *b)
{
	const uint64_t x = ((const struct inlay_range *)a)->start, y = ((const struct inlay_range *)b)->start;

	return x < y ? -1 : x > y;
}

/* Sorts n ranges, none of them bad, and makes the index. Returns 0; -EEXIST: an overlap. */
INLAY_COLD int inlay_table_build_(struct inlay_table *t, uint32_t n)
{
	struct inlay_range *e = inlay_table_ranges_(t);
	uint32_t i;

	qsort(e, n, sizeof(*e), inlay_range_compare_);
	for (i = 1; i < n; i++)
		if (e[i].start - e[i - 1].start < e[i - 1].len)
			return -EEXIST;
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

/* ---- Data path ---- */

/* Whether [start, start + bytes) holds [addr, addr + len). */
INLAY_ALWAYS int inlay_range_holds_(uint64_t start, uint64_t bytes, uint64_t addr, uint64_t len)
{
	uint64_t offset = addr - start;

	/* Hides the offset's origin: compilers that see it subtract a second time to compare. */
	INLAY_HIDE_(offset);
	return INLAY_LIKELY(offset < bytes) && INLAY_LIKELY(bytes - offset >= len);
}

/* The range that a bucket's index word names. */
INLAY_ALWAYS const struct inlay_range *inlay_table_bucket_(const struct inlay_table *t, int64_t word)
{
	return (const struct inlay_range *)(const void *)((const uint8_t *)t +
							  ((const uint32_t *)(const void *)t)[word]);
}

INLAY_ALWAYS const struct inlay_range *inlay_table_find_(const struct inlay_table *t, uint64_t addr, uint64_t len)
{
	/* -offset - 1; shifted down, -bucket - 1. No range holds an address inside a cut. */
	uint64_t down = t->below - addr;
	const struct inlay_range *e;
	uint32_t k;

	if (INLAY_LIKELY(down >= t->floor)) {
		e = inlay_table_bucket_(t, (int64_t)down >> (t->shift & 63));
	} else {
		for (k = 0; k < t->cuts; k++)
			down += t->cut[k].gap & (0 - (uint64_t)(addr > t->cut[k].last));
		if (INLAY_UNLIKELY(down < t->lowest))
			return NULL;
		e = inlay_table_bucket_(t, -1 - (int64_t)(~down >> (t->shift & 63)));
		e += 2 * (e[2].start <= addr);
	}
	e += e[1].start <= addr;
	if (inlay_range_holds_(e->start, e->len, addr, len))
		return e;
	if (e[1].start > addr)
		return NULL;
	e = inlay_table_ranges_(t) + inlay_table_rank_(t, addr) - 1;
	return inlay_range_holds_(e->start, e->len, addr, len) ? e : NULL;
}

#endif
