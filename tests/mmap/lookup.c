/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lookup.c: tables of ranges against a list that is searched from its beginning: random ones of
 * every form, between pages that nobody may touch, at the ends of the address space too, and what
 * is refused; 65,536 ranges. Takes no device.
 */
#include "common.h"
#include <inttypes.h>
#include <sys/mman.h>
#include <inlay/mmap/lookup.h>

#define MOST 300u

/* ---- the model ---- */

static struct inlay_range model[MOST];
static uint32_t models;

/* In 128 bits nothing wraps. */
static bool model_holds(const struct inlay_range *r, uint64_t addr, uint64_t len)
{
	const unsigned __int128 a = addr, end = a + (len ? len : 1);

	return a >= r->start && end <= (unsigned __int128)r->start + r->len;
}

static const struct inlay_range *model_find(uint64_t addr, uint64_t len)
{
	for (uint32_t i = 0; i < models; i++)
		if (model_holds(&model[i], addr, len))
			return &model[i];
	return NULL;
}

/* What a table of the model's ranges and this one should answer */
static int model_error(const struct inlay_range *r)
{
	const unsigned __int128 start = r->start, end = start + r->len;

	for (uint32_t i = 0; i < models; i++)
		if (start < (unsigned __int128)model[i].start + model[i].len && model[i].start < end)
			return -EEXIST;
	return 0;
}

/* ---- the table ---- */

/* A table in memory that ends at, or begins after, a page that nobody may touch */
static struct inlay_table *table_make(uint32_t max, bool at_end)
{
	const size_t bytes = inlay_table_bytes_(max), all = (bytes + 4095) / 4096 * 4096;
	uint8_t *area = (uint8_t *)mmap(NULL, all + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(area != MAP_FAILED && bytes % 64 == 0);
	must(mprotect(area + 4096, all, PROT_READ | PROT_WRITE));
	memset(area + 4096, 0xa5, all);
	return inlay_table_init_(area + 4096 + (at_end ? all - bytes : 0), max);
}

static void table_free(struct inlay_table *t, uint32_t max)
{
	const uintptr_t memory = (uintptr_t)t - inlay_table_index_bytes_(max);

	must(munmap((void *)((memory & ~(uintptr_t)4095) - 4096), (inlay_table_bytes_(max) + 4095) / 4096 * 4096 + 8192));
}

static int build(struct inlay_table *t, const struct inlay_range *ranges, uint32_t n)
{
	if (n)
		memcpy(inlay_table_ranges_(t), ranges, n * sizeof(*ranges));
	return inlay_table_build_(t, n);
}

static uint32_t forms[6]; /* tables seen: empty, plain, wide, 1 cut, up to 3, more */

static void count_form(const struct inlay_table *t)
{
	forms[!t->num ? 0 : t->floor != UINT64_MAX ? 1 : !t->cuts ? 2 : t->cuts == 1 ? 3 : t->cuts <= 3 ? 4 : 5]++;
}

/* ---- random addresses of many kinds ---- */

/* A length from 1 to 2^bits, each size as likely as any other */
static uint64_t rnd_len(uint32_t bits)
{
	uint32_t b = rnd_below(bits + 1);

	return 1 + (b ? rnd() >> (64 - b) : 0);
}

/* Where ranges lie: at one of so many places, spread over 2^bits bytes behind it or, where they end, before it; how long they are */
enum { AT_ZERO = 0, ANYWHERE = 255 };
static const struct kind {
	uint8_t places, spread, longest;
	bool pages;
} kinds[] = {
	{1, 12, 6, false}, {1, 34, 28, true}, {AT_ZERO, 8, 6, false}, {AT_ZERO, 1, 64, false}, {ANYWHERE, 0, 48, false}, {ANYWHERE, 0, 64, false},
	{2, 20, 14, false}, {24, 20, 16, false}, {1, 10, 3, false},
};

static uint64_t place[24]; /* new with each table */

static void rnd_places(void)
{
	for (uint32_t i = 0; i < ARRAY(place); i++)
		place[i] = rnd() >> rnd_below(20) & ~(uint64_t)0xfff;
}

static struct inlay_range rnd_range(const struct kind *kind)
{
	const uint64_t at = kind->spread ? rnd() >> (64 - kind->spread) : 0;
	struct inlay_range r = {};

	r.start = kind->places == ANYWHERE || (kind->longest == 3 && !rnd_below(10)) ? rnd() :
		  kind->places == AT_ZERO ? (rnd_below(2) ? at : (uint64_t)0 - 1 - at) : place[rnd_below(kind->places)] + at;
	r.len = rnd_len(kind->longest);
	if (kind->longest == 64 && kind->places == AT_ZERO) /* the first or the last byte, all but one of them */
		r.len = rnd_below(2) ? 1 : (uint64_t)0 - 1 - rnd_below(2);
	if (kind->pages) {
		r.start &= ~(uint64_t)0xfff;
		r.len = (r.len + 0xfff) & ~(uint64_t)0xfff;
	}
	r.lkey = (uint32_t)rnd();
	r.rkey = (uint32_t)rnd();
	r.access = (uint32_t)rnd();
	return r;
}

/* At or near an edge of one of the ranges, or anywhere; a length that reaches just to the end of what is there, or beyond, or any */
static void look(const struct inlay_table *t, const struct kind *kind)
{
	static struct inlay_range none; /* zeroes */
	const struct inlay_range *r = models ? &model[rnd_below(models)] : &none, *found, *m;
	const uint64_t end = r->start + r->len, inside = r->start + (r->len ? rnd() % r->len : 0);
	const uint64_t addrs[] = {r->start, r->start - 1, end, end - 1, inside, inside, rnd_range(kind).start, rnd() >> rnd_below(64)};
	const uint64_t addr = addrs[rnd_below(ARRAY(addrs))];
	uint64_t reach, len;

	m = model_find(addr, 1);
	reach = m ? m->start + m->len - addr : 1;
	const uint64_t lens[] = {0, 1, reach, m ? reach + 1 : UINT64_MAX, rnd_len(12), rnd() >> rnd_below(64)};
	len = lens[rnd_below(ARRAY(lens))];
	found = inlay_table_find_(t, addr, len);
	m = model_find(addr, len);
	if (found && m ? memcmp(found, m, sizeof(*m)) != 0 : found || m)
		fail_msg("0x%" PRIx64 " + 0x%" PRIx64 ": found %d, not %d, of %u", addr, len, found ? (int)found->id : -1,
			 m ? (int)m->id : -1, models);
}

/* ---- tests ---- */

/* Tables of all kinds, growing by one range at a time or built at once, each looked at here and there */
TEST(random_tables)
{
	const uint32_t rounds = 100 * ARRAY(kinds);
	uint32_t round, i, k, max, want;
	uint64_t lookups = 0;

	for (round = 0; round < rounds; round++) {
		const struct kind *kind = &kinds[round % ARRAY(kinds)];
		const bool grows = round / ARRAY(kinds) % 2;
		struct inlay_table *t;

		max = 1 + (rnd_below(3) ? rnd_below(20) : rnd_below(MOST));
		t = table_make(max, rnd_below(2));
		rnd_places();
		models = 0;
		look(t, kind);
		count_form(t);
		want = rnd_below(max + 1);
		for (i = 0; i < 4 * want && models < want; i++) {
			struct inlay_range r = rnd_range(kind);
			bool bad;
			int err;

			r.id = i;
			if (!rnd_below(16))
				r.len = rnd_below(2) ? 0 : (uint64_t)0 - r.start + 1;
			bad = !r.len || (unsigned __int128)r.start + r.len > (unsigned __int128)1 << 64;
			assert_int_equal(inlay_range_bad_(r.start, r.len), bad);
			if (bad)
				continue;
			err = model_error(&r);
			if (!err)
				model[models++] = r;
			if (!grows)
				continue;
			/* What is refused leaves no table that may be used: it is made again */
			if (err) {
				memcpy(inlay_table_ranges_(t), model, models * sizeof(r));
				inlay_table_ranges_(t)[models] = r;
				assert_int_equal(inlay_table_build_(t, models + 1), err);
			}
			must(build(t, model, models));
			count_form(t);
			for (k = 0; k < 5; k++, lookups++)
				look(t, kind);
		}
		must(build(t, model, models));
		count_form(t);
		assert_int_equal(t->num, models);
		for (k = 0; k < 300; k++, lookups++)
			look(t, kind);
		table_free(t, max);
	}
	for (i = 0; i < ARRAY(forms); i++)
		assert_true(forms[i] > 20);
	print_message("# %" PRIu64 " lookups; tables: %u empty, %u plain, %u wide, %u with a cut, %u with 2 or 3, %u with more\n",
		      lookups, forms[0], forms[1], forms[2], forms[3], forms[4], forms[5]);
}

/* Two places far apart, each with 64 pages one after the other: the gap is cut out, and buckets are as fine as for one place */
TEST(two_places)
{
	struct inlay_table *t = table_make(128, true);
	struct inlay_range r[128] = {};

	for (uint32_t i = 0; i < 128; i++) {
		r[i].start = (i < 64 ? 0 : 1ull << 40) + (1 + i) * 0x1000ull;
		r[i].len = 0x1000;
	}
	must(build(t, r, 128));
	assert_true(t->cuts == 1 && t->shift <= 14);
	table_free(t, 128);
}

static int by_start(const void *a, const void *b)
{
	const struct inlay_range *x = (const struct inlay_range *)a, *y = (const struct inlay_range *)b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/* Sizes from a byte to a gigabyte; all alike; so crowded in one place that no bucket can be fine enough; in a few places far apart */
TEST(large)
{
	enum { N = 65536 };
	static struct inlay_range r[N], swap;
	uint32_t shape, i, k;

	for (shape = 0; shape < 4; shape++) {
		struct inlay_table *t = table_make(N, true);
		uint64_t addr = 0x10000;

		for (i = 0; i < N; i++, addr += r[i - 1].len) {
			addr += rnd_below(2) ? 0 : shape == 1 ? 4096 : rnd_len(shape == 2 ? 3 : 24);
			addr = shape == 2 && i == N - 1 ? UINT64_MAX / 2 : addr + (shape == 3 && i % 10000 == 0 ? (uint64_t)1 << 60 : 0);
			r[i].start = addr;
			r[i].len = shape == 1 ? 65536 : rnd_len(shape == 2 ? 3 : 30);
			r[i].id = i;
		}
		for (i = N - 1; i; i--) { /* in any order */
			k = rnd_below(i + 1);
			swap = r[i];
			r[i] = r[k];
			r[k] = swap;
		}
		must(build(t, r, N));
		qsort(r, N, sizeof(*r), by_start);
		assert_memory_equal(inlay_table_ranges_(t), r, sizeof(r));
		for (i = 0; i < N; i++) {
			const struct inlay_range *own = inlay_table_ranges_(t) + i;

			assert_ptr_equal(inlay_table_find_(t, r[i].start, r[i].len), own);
			assert_ptr_equal(inlay_table_find_(t, r[i].start + r[i].len - 1, 1), own);
			assert_null(inlay_table_find_(t, r[i].start, r[i].len + 1));
			/* The byte after it is the next one's, or nobody's */
			addr = r[i].start + r[i].len;
			assert_ptr_equal(inlay_table_find_(t, addr, 1), i + 1 < N && r[i + 1].start == addr ? own + 1 : NULL);
		}
		table_free(t, N);
	}
}

int main(void)
{
	rnd_seed();
	return run_all(NULL, NULL);
}
