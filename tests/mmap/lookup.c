/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lookup.c: the address lookup against a list that is searched from its beginning, in all forms that a table takes; the ends of the address
 * space; 65,536 ranges; memory between pages that nobody may touch; readers beside a writer. Takes no device.
 */
#include "common.h"
#include <inttypes.h>
#include <pthread.h>
#include <sys/mman.h>
#include <inlay/mmap/lookup.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SLOW 4
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SLOW 4
#endif
#endif
#ifndef SLOW
#define SLOW 1
#endif

/* ---- the model ---- */

#define MOST 300u

/* A table that changes as a whole; each change is made in the other one of two, and so leaves it as it was when it is refused */
struct inlay_lookup {
	struct inlay_table *table[2];
	struct inlay_table *current;
	uint32_t max_ranges;
};

static size_t inlay_lookup_size(uint32_t max)
{
	return 2 * (size_t)inlay_table_bytes_(max);
}

static void inlay_lookup_init(struct inlay_lookup *l, void *memory, size_t size, uint32_t max)
{
	assert_int_equal(size, inlay_lookup_size(max));
	l->table[0] = inlay_table_init_(memory, max);
	l->table[1] = inlay_table_init_((uint8_t *)memory + inlay_table_bytes_(max), max);
	l->current = l->table[0];
	l->max_ranges = max;
}

static int inlay_lookup_build(struct inlay_lookup *l, const struct inlay_range *ranges, uint32_t n)
{
	struct inlay_table *t = l->table[l->current == l->table[0]];
	int err;

	if (n > l->max_ranges)
		return -ENOSPC;
	if (n)
		memmove(inlay_table_ranges_(t), ranges, n * sizeof(*ranges));
	err = inlay_table_build_(t, n);
	if (!err)
		l->current = t;
	return err;
}

static int inlay_lookup_add(struct inlay_lookup *l, const struct inlay_range *r)
{
	struct inlay_table *t = l->table[l->current == l->table[0]];

	if (l->current->num == l->max_ranges)
		return -ENOSPC;
	memcpy(inlay_table_ranges_(t), inlay_table_ranges_(l->current), l->current->num * sizeof(*r));
	inlay_table_ranges_(t)[l->current->num] = *r;
	return inlay_lookup_build(l, inlay_table_ranges_(t), l->current->num + 1);
}

static int inlay_lookup_remove(struct inlay_lookup *l, uint64_t start, uint64_t len)
{
	struct inlay_range *from = inlay_table_ranges_(l->current), *to = inlay_table_ranges_(l->table[l->current == l->table[0]]);
	uint32_t at = inlay_table_rank_(l->current, start), n = l->current->num;

	if (!at || from[at - 1].start != start || from[at - 1].len != len)
		return -ENOENT;
	memcpy(to, from, (at - 1) * sizeof(*to));
	memcpy(to + at - 1, from + at, (n - at) * sizeof(*to));
	return inlay_lookup_build(l, to, n - 1);
}

static const struct inlay_range *inlay_lookup_find(const struct inlay_lookup *l, uint64_t addr, uint64_t len)
{
	return inlay_table_find_(l->current, addr, len);
}

static const struct inlay_range *inlay_lookup_hit(const struct inlay_lookup *l, struct inlay_hit *h, uint64_t addr, uint64_t len)
{
	return inlay_table_hit_(l->current, h, addr, len);
}

static uint32_t inlay_lookup_count(const struct inlay_lookup *l)
{
	return l->current->num;
}

static const struct inlay_range *inlay_lookup_at(const struct inlay_lookup *l, uint32_t i)
{
	return i < l->current->num ? inlay_table_ranges_(l->current) + i : NULL;
}

static struct inlay_range model[MOST];
static uint32_t models;

static bool model_holds(const struct inlay_range *r, uint64_t addr, uint64_t len)
{
	/* In 128 bits nothing wraps */
	const unsigned __int128 a = addr, end = a + (len ? len : 1);

	return a >= r->start && end <= (unsigned __int128)r->start + r->len;
}

static const struct inlay_range *model_find(uint64_t addr, uint64_t len)
{
	uint32_t i;

	for (i = 0; i < models; i++)
		if (model_holds(&model[i], addr, len))
			return &model[i];
	return NULL;
}

/* What adding should answer */
static int model_error(const struct inlay_range *r, uint32_t max)
{
	const unsigned __int128 start = r->start, end = start + r->len;
	uint32_t i;

	if (!r->len || end > (unsigned __int128)1 << 64)
		return -EINVAL;
	for (i = 0; i < models; i++)
		if (start < (unsigned __int128)model[i].start + model[i].len && model[i].start < end)
			return -EEXIST;
	return models == max ? -ENOSPC : 0;
}

static void *lookup_make(struct inlay_lookup *l, uint32_t max)
{
	void *memory = aligned_alloc(64, inlay_lookup_size(max));

	assert_non_null(memory);
	memset(memory, 0xa5, inlay_lookup_size(max));
	inlay_lookup_init(l, memory, inlay_lookup_size(max), max);
	return memory;
}

static bool same_range(const struct inlay_range *a, const struct inlay_range *b)
{
	return a && b ? !memcmp(a, b, sizeof(*a)) : a == b;
}

static struct inlay_hit hit;
static uint32_t forms[6]; /* tables seen: empty, plain, wide, 1 cut, up to 3, more */

static void look(const struct inlay_lookup *l, uint64_t addr, uint64_t len)
{
	const struct inlay_range *expected = model_find(addr, len), *found = inlay_lookup_find(l, addr, len);

	if (!same_range(found, expected))
		fail_msg("0x%" PRIx64 " + 0x%" PRIx64 ": found %d, not %d, of %u", addr, len, found ? (int)found->id : -1,
			 expected ? (int)expected->id : -1, models);
	found = inlay_lookup_hit(l, &hit, addr, len);
	if (!same_range(found, expected))
		fail_msg("0x%" PRIx64 " + 0x%" PRIx64 ": the last hit says %d, not %d, of %u", addr, len, found ? (int)found->id : -1,
			 expected ? (int)expected->id : -1, models);
}

static void count_form(const struct inlay_lookup *l)
{
	const struct inlay_table *t = l->current;

	if (!t->num)
		forms[0]++;
	else if (t->floor != UINT64_MAX)
		forms[1]++;
	else
		forms[!t->cuts ? 2 : t->cuts == 1 ? 3 : t->cuts <= 3 ? 4 : 5]++;
	assert_int_equal(t->num, models);
	assert_int_equal(inlay_lookup_count(l), models);
}

/* ---- random addresses of many kinds ---- */

/* A length from 1 to 2^bits, each size as likely as any other */
static uint64_t rnd_len(uint32_t bits)
{
	uint32_t b = rnd_below(bits + 1);

	return 1 + (b ? rnd() >> (64 - b) : 0);
}

enum kind { BYTES, PAGES, LOW, HIGH, ALL, TWO, CLUSTERS, DENSE_AND_FAR, KINDS };

static uint64_t cluster[24]; /* where they lie, new with each table */

static void rnd_clusters(void)
{
	uint32_t i;

	for (i = 0; i < ARRAY(cluster); i++)
		cluster[i] = rnd() >> rnd_below(20) & ~(uint64_t)0xfff;
}

static struct inlay_range rnd_range(enum kind kind)
{
	struct inlay_range r;

	memset(&r, 0, sizeof(r));
	switch (kind) {
	case BYTES:
		r.start = cluster[0] + rnd_below(4096);
		r.len = rnd_len(6);
		break;
	case PAGES:
		r.start = cluster[0] + (rnd() >> 30 & ~(uint64_t)0xfff);
		r.len = (rnd_len(28) + 0xfff) & ~(uint64_t)0xfff;
		break;
	case LOW:
		r.start = rnd_below(300);
		r.len = rnd_len(6);
		break;
	case HIGH:
		r.start = (uint64_t)0 - 1 - rnd_below(300);
		r.len = rnd_len(6);
		break;
	case ALL:
		r.start = rnd();
		r.len = rnd_len(rnd_below(4) ? 48 : 64);
		break;
	case TWO:
		r.start = cluster[rnd_below(2)] + rnd_below(1 << 20);
		r.len = rnd_len(14);
		break;
	case CLUSTERS:
		r.start = cluster[rnd_below(ARRAY(cluster))] + rnd_below(1 << 20);
		r.len = rnd_len(16);
		break;
	default:
		r.start = rnd_below(10) ? cluster[0] + rnd_below(1000) : rnd();
		r.len = rnd_len(3);
		break;
	}
	r.lkey = (uint32_t)rnd();
	r.rkey = (uint32_t)rnd();
	r.access = (uint32_t)rnd();
	return r;
}

/* An address at or near an edge of one of the ranges, or anywhere */
static uint64_t rnd_addr(enum kind kind)
{
	const struct inlay_range *r = models ? &model[rnd_below(models)] : NULL;

	switch (r ? rnd_below(8) : 7) {
	case 0:
		return r->start;
	case 1:
		return r->start - 1;
	case 2:
		return r->start + r->len;
	case 3:
		return r->start + r->len - 1;
	case 4:
	case 5:
		return r->start + rnd() % r->len;
	case 6:
		return rnd_range(kind).start;
	default:
		return rnd() >> rnd_below(64);
	}
}

/* A length that reaches just to the end of what is there, or just beyond, or any */
static uint64_t rnd_reach(uint64_t addr)
{
	const struct inlay_range *r = model_find(addr, 1);

	switch (rnd_below(6)) {
	case 0:
		return 0;
	case 1:
		return 1;
	case 2:
		return r ? r->start + r->len - addr : 1;
	case 3:
		return r ? r->start + r->len - addr + 1 : UINT64_MAX;
	case 4:
		return rnd_len(12);
	default:
		return rnd() >> rnd_below(64);
	}
}

/* ---- tests ---- */

/* Tables that grow, shrink and are replaced, with lookups after each step */
static void any(void **state)
{
	uint32_t rounds = 2400 / SLOW, round, i, k, max, steps;
	struct inlay_range some[MOST];
	struct inlay_lookup l;
	uint64_t lookups = 0;
	void *memory;

	(void)state;
	memset(forms, 0, sizeof(forms));
	for (round = 0; round < rounds; round++) {
		enum kind kind = (enum kind)(round % KINDS);

		max = 1 + (rnd_below(3) ? rnd_below(20) : rnd_below(MOST));
		memory = lookup_make(&l, max);
		memset(&hit, 0, sizeof(hit));
		models = 0;
		rnd_clusters();
		steps = 1 + rnd_below(60);
		for (i = 0; i < steps; i++) {
			struct inlay_range r = rnd_range(kind);
			int err = 0;

			r.id = round << 8 | i;
			switch (rnd_below(8)) {
			case 0: /* all anew, in any order */
				models = 0;
				steps = steps < 4 ? steps : steps - 3;
				for (k = rnd_below(max + 1); k; k--) {
					r = rnd_range(kind);
					r.id = k;
					if (!model_error(&r, max))
						model[models++] = r;
				}
				memcpy(some, model, models * sizeof(*some));
				must(inlay_lookup_build(&l, some, models));
				break;
			case 1:
			case 2: /* takes one away */
				k = models ? rnd_below(models) : 0;
				if (models && rnd_below(4)) {
					must(inlay_lookup_remove(&l, model[k].start, model[k].len));
					model[k] = model[--models];
					break;
				}
				/* or none: the start or the length is another's */
				r = models ? model[k] : r;
				r.len ^= (uint64_t)1 << rnd_below(64);
				assert_int_equal(inlay_lookup_remove(&l, r.start, r.len), -ENOENT);
				break;
			default:
				if (!rnd_below(16))
					r.len = rnd_below(2) ? 0 : (uint64_t)0 - r.start + 1;
				err = model_error(&r, max);
				k = (uint32_t)-inlay_lookup_add(&l, &r);
				/* Where two errors apply, either may come first */
				if (!(err && k == ENOSPC && models == max))
					assert_int_equal(k, -err);
				if (!err)
					model[models++] = r;
			}
			count_form(&l);
			for (k = 0; k < 40; k++, lookups++) {
				uint64_t addr = rnd_addr(kind);

				look(&l, addr, rnd_reach(addr));
			}
		}
		free(memory);
	}
	/* Every form of a table has been there */
	for (i = 0; i < ARRAY(forms); i++)
		assert_true(forms[i] > 50 / SLOW);
	print_message("# %" PRIu64 " lookups; tables: %u empty, %u plain, %u wide, %u with a cut, %u with 2 or 3, %u with more\n", lookups, forms[0],
		      forms[1], forms[2], forms[3], forms[4], forms[5]);
}

/* Millions of lookups, in tables of every form that are at rest */
static void many(void **state)
{
	uint32_t round, i, want;
	struct inlay_lookup l;
	void *memory;

	(void)state;
	memset(&hit, 0, sizeof(hit));
	for (round = 0; round < 3 * KINDS; round++) {
		enum kind kind = (enum kind)(round % KINDS);

		memory = lookup_make(&l, MOST);
		memset(&hit, 0, sizeof(hit));
		rnd_clusters();
		want = 1 + rnd_below(40) * rnd_below(8);
		for (models = i = 0; i < 4 * want && models < want; i++) {
			struct inlay_range r = rnd_range(kind);

			r.id = i;
			if (!model_error(&r, MOST))
				model[models++] = r;
		}
		must(inlay_lookup_build(&l, model, models));
		for (i = 0; i < 120000 / SLOW; i++) {
			uint64_t addr = rnd_addr(kind);

			look(&l, addr, rnd_reach(addr));
		}
		free(memory);
	}
}

static struct inlay_range a_range(uint64_t start, uint64_t len, uint32_t id)
{
	struct inlay_range r;

	memset(&r, 0, sizeof(r));
	r.start = start;
	r.len = len;
	r.lkey = id * 3;
	r.rkey = id * 5;
	r.id = id;
	return r;
}

/* The id of what is found, or -1; by both ways */
static int found(const struct inlay_lookup *l, uint64_t addr, uint64_t len)
{
	const struct inlay_range *r = inlay_lookup_find(l, addr, len), *h = inlay_lookup_hit(l, &hit, addr, len);

	assert_true(same_range(r, h));
	return r ? (int)r->id : -1;
}

/* The ends of the address space, in tables of one range, of two, and with everything between */
static void extremes(void **state)
{
	const uint64_t top = UINT64_MAX;
	struct inlay_range r[4];
	struct inlay_lookup l;
	void *memory = lookup_make(&l, 4);

	(void)state;
	memset(&hit, 0, sizeof(hit));
	assert_int_equal(found(&l, 0, 0), -1); /* empty */
	assert_int_equal(found(&l, 0, top), -1);
	assert_int_equal(found(&l, top, 1), -1);

	/* The last byte alone */
	r[0] = a_range(top, 1, 7);
	must(inlay_lookup_build(&l, r, 1));
	assert_int_equal(found(&l, top, 1), 7);
	assert_int_equal(found(&l, top, 0), 7);
	assert_int_equal(found(&l, top, 2), -1);
	assert_int_equal(found(&l, top, top), -1);
	assert_int_equal(found(&l, top - 1, 1), -1);
	assert_int_equal(found(&l, 0, 1), -1);

	/* The first and the last */
	r[1] = a_range(0, 1, 8);
	must(inlay_lookup_build(&l, r, 2));
	assert_int_equal(found(&l, top, 1), 7);
	assert_int_equal(found(&l, top, 2), -1); /* does not go round */
	assert_int_equal(found(&l, 0, 1), 8);
	assert_int_equal(found(&l, 0, 0), 8);
	assert_int_equal(found(&l, 1, 0), -1);
	assert_int_equal(found(&l, 1, 1), -1);
	assert_int_equal(found(&l, top / 2, 1), -1);
	assert_int_equal(found(&l, top - 1, 1), -1);

	/* All but the last byte; then that one too */
	r[0] = a_range(0, top, 1);
	must(inlay_lookup_build(&l, r, 1));
	assert_int_equal(found(&l, 0, top), 1);
	assert_int_equal(found(&l, 1, top), -1);
	assert_int_equal(found(&l, 1, top - 1), 1);
	assert_int_equal(found(&l, top, 1), -1);
	assert_int_equal(found(&l, (uint64_t)1 << 63, (uint64_t)1 << 62), 1);
	r[1] = a_range(top, 1, 2);
	must(inlay_lookup_add(&l, &r[1]));
	assert_int_equal(found(&l, 0, top), 1);
	assert_int_equal(found(&l, top, 1), 2);
	assert_int_equal(found(&l, top - 1, 2), -1); /* two neighbours */

	/* Neighbours stay apart */
	r[0] = a_range(0x1000, 0x1000, 1);
	r[1] = a_range(0x2000, 0x1000, 2);
	r[2] = a_range(0x3000, 1, 3);
	must(inlay_lookup_build(&l, r, 3));
	assert_int_equal(found(&l, 0x1fff, 1), 1);
	assert_int_equal(found(&l, 0x1fff, 2), -1);
	assert_int_equal(found(&l, 0x2000, 0x1000), 2);
	assert_int_equal(found(&l, 0x2000, 0x1001), -1);
	assert_int_equal(found(&l, 0x2000, 0), 2);
	assert_int_equal(found(&l, 0x1000, 0x2000), -1);
	assert_int_equal(found(&l, 0x3000, 0), 3);
	assert_int_equal(found(&l, 0x3001, 0), -1);
	free(memory);
}

/* What is refused, and that nothing has changed then */
static void refused(void **state)
{
	const struct inlay_range *before;
	struct inlay_range r[5];
	struct inlay_lookup l;
	size_t size = inlay_lookup_size(4);
	uint8_t *memory = (uint8_t *)aligned_alloc(64, size + 64);

	(void)state;
	memset(&hit, 0, sizeof(hit));
	inlay_lookup_init(&l, memory, size, 4);

	r[0] = a_range(0x5000, 0x1000, 0);
	r[1] = a_range(0x1000, 0x1000, 1);
	r[2] = a_range(0x3000, 0x1000, 2);
	r[3] = a_range(0x7000, 0x1000, 3);
	r[4] = a_range(0x9000, 0x1000, 4);
	assert_int_equal(inlay_lookup_build(&l, r, 5), -ENOSPC);
	must(inlay_lookup_build(&l, r, 3));
	before = inlay_lookup_at(&l, 0);

	r[3].len = 0;
	assert_int_equal(inlay_lookup_build(&l, r, 4), -EINVAL);
	assert_int_equal(inlay_lookup_add(&l, &r[3]), -EINVAL);
	r[3].len = (uint64_t)0 - 0x6fff;
	assert_int_equal(inlay_lookup_build(&l, r, 4), -EINVAL);
	assert_int_equal(inlay_lookup_add(&l, &r[3]), -EINVAL);
	/* Overlaps: by one byte before, after, inside, around, the same */
	r[3] = a_range(0x2fff, 2, 3);
	assert_int_equal(inlay_lookup_add(&l, &r[3]), -EEXIST);
	r[3] = a_range(0x3fff, 1, 3);
	assert_int_equal(inlay_lookup_add(&l, &r[3]), -EEXIST);
	r[3] = a_range(0x3800, 1, 3);
	assert_int_equal(inlay_lookup_add(&l, &r[3]), -EEXIST);
	r[3] = a_range(0, 0xffff, 3);
	assert_int_equal(inlay_lookup_add(&l, &r[3]), -EEXIST);
	r[3] = r[2];
	assert_int_equal(inlay_lookup_add(&l, &r[3]), -EEXIST);
	assert_int_equal(inlay_lookup_build(&l, r, 4), -EEXIST);
	r[3] = a_range(0x2fff, 2, 3);
	assert_int_equal(inlay_lookup_build(&l, r, 4), -EEXIST);
	assert_int_equal(inlay_lookup_remove(&l, 0x3000, 0xfff), -ENOENT);
	assert_int_equal(inlay_lookup_remove(&l, 0x3001, 0xfff), -ENOENT);
	assert_int_equal(inlay_lookup_remove(&l, 0, 0), -ENOENT);
	/* All that left the current table as it was, not even made it another one */
	assert_ptr_equal(inlay_lookup_at(&l, 0), before);
	assert_int_equal(inlay_lookup_count(&l), 3);
	assert_int_equal(inlay_lookup_at(&l, 0)->id, 1);
	assert_int_equal(inlay_lookup_at(&l, 1)->id, 2);
	assert_int_equal(inlay_lookup_at(&l, 2)->id, 0);
	assert_null(inlay_lookup_at(&l, 3));

	r[3] = a_range(0x7000, 0x1000, 3);
	must(inlay_lookup_add(&l, &r[3]));
	assert_int_equal(inlay_lookup_add(&l, &r[4]), -ENOSPC);
	must(inlay_lookup_remove(&l, 0x1000, 0x1000));
	must(inlay_lookup_add(&l, &r[4]));
	assert_int_equal(found(&l, 0x9000, 0x1000), 4);
	assert_int_equal(found(&l, 0x1000, 1), -1);
	must(inlay_lookup_build(&l, NULL, 0));
	assert_int_equal(found(&l, 0x9000, 1), -1);
	free(memory);
}

/* ---- 65,536 ranges ---- */

static int by_start(const void *a, const void *b)
{
	const struct inlay_range *x = (const struct inlay_range *)a, *y = (const struct inlay_range *)b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/* The number of the range that holds addr, by halves; n when none does */
static uint32_t by_halves(const struct inlay_range *r, uint32_t n, uint64_t addr)
{
	uint32_t low = 0, high = n;

	while (low < high) {
		uint32_t mid = (low + high) / 2;

		if (r[mid].start + (r[mid].len - 1) < addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low < n && r[low].start <= addr ? low : n;
}

/* Sizes from a byte to a gigabyte; or all alike; or so crowded in one place that no bucket can be fine enough; or in a few places far apart */
static void large(void **state)
{
	const uint32_t n = 65536;
	struct inlay_range *r = (struct inlay_range *)calloc(n, sizeof(*r)), last;
	uint32_t shape, i, k, at;
	struct inlay_lookup l;
	void *memory;

	(void)state;
	assert_non_null(r);
	for (shape = 0; shape < 4; shape++) {
		uint64_t addr = 0x10000;

		for (i = 0; i < n; i++) {
			addr += rnd_below(2) ? 0 : shape == 1 ? 4096 : rnd_len(shape == 2 ? 3 : 24);
			if (shape == 2 && i == n - 1)
				addr = UINT64_MAX / 2;
			if (shape == 3 && i % 10000 == 0)
				addr += (uint64_t)1 << 60;
			r[i] = a_range(addr, shape == 1 ? 65536 : rnd_len(shape == 2 ? 3 : 30), i);
			addr += r[i].len;
		}
		for (i = n - 1; i; i--) { /* in any order */
			k = rnd_below(i + 1);
			last = r[i];
			r[i] = r[k];
			r[k] = last;
		}
		memory = lookup_make(&l, n);
		memset(&hit, 0, sizeof(hit));
		must(inlay_lookup_build(&l, r, n));
		qsort(r, n, sizeof(*r), by_start);
		for (i = 0; i < n; i++) {
			assert_int_equal(found(&l, r[i].start, r[i].len), r[i].id);
			assert_int_equal(found(&l, r[i].start + r[i].len - 1, 1), r[i].id);
			assert_int_equal(found(&l, r[i].start, r[i].len + 1), -1);
			assert_int_equal(found(&l, r[i].start - 1, 2), -1);
			assert_true(same_range(inlay_lookup_at(&l, i), &r[i]));
		}
		for (i = 0; i < 200000 / SLOW; i++) {
			addr = r[0].start - 1000 + rnd() % (r[n - 1].start - r[0].start + 2000);
			k = rnd_below(n);
			if (rnd_below(2))
				addr = r[k].start + rnd() % (r[k].len + 2);
			at = by_halves(r, n, addr);
			assert_int_equal(found(&l, addr, 1), at < n ? (int)r[at].id : -1);
		}
		/* One by one at the top, in the middle, at the bottom */
		for (k = 0; k < 3; k++) {
			i = k == 0 ? n - 1 : k == 1 ? n / 2 : 0;
			assert_int_equal(inlay_lookup_add(&l, &r[i]), -ENOSPC);
			must(inlay_lookup_remove(&l, r[i].start, r[i].len));
			assert_int_equal(found(&l, r[i].start, 1), -1);
			must(inlay_lookup_add(&l, &r[i]));
			assert_int_equal(found(&l, r[i].start, r[i].len), r[i].id);
			assert_int_equal(inlay_lookup_count(&l), n);
		}
		last = a_range(1, 1, 0);
		assert_int_equal(inlay_lookup_add(&l, &last), -ENOSPC);
		free(memory);
	}
	free(r);
}

/* ---- no load outside ---- */

/* Tables of every form in memory that ends, or begins, at a page that nobody may touch; whatever is asked, there is no fault */
static void inside(void **state)
{
	const long page = sysconf(_SC_PAGESIZE);
	uint32_t round, i, max, side;
	struct inlay_lookup l;

	(void)state;
	memset(&hit, 0, sizeof(hit));
	for (round = 0; round < 60; round++) {
		enum kind kind = (enum kind)(round % KINDS);
		size_t size, room;
		uint8_t *area;

		max = 1 + rnd_below(round % 3 ? 8 : 100);
		size = inlay_lookup_size(max);
		assert_int_equal(size % 64, 0);
		room = (size + (size_t)page - 1) & ~((size_t)page - 1);
		area = (uint8_t *)mmap(NULL, room + 2 * (size_t)page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert_ptr_not_equal(area, MAP_FAILED);
		must(mprotect(area + page, room, PROT_READ | PROT_WRITE));
		for (side = 0; side < 2; side++) {
			inlay_lookup_init(&l, area + page + (side ? room - size : 0), size, max);
			memset(&hit, 0, sizeof(hit));
			rnd_clusters();
			for (models = i = 0; i < 4 * max; i++) {
				struct inlay_range r = rnd_range(kind);

				if (!model_error(&r, max))
					model[models++] = r;
			}
			for (i = 0; i < 3; i++) {
				must(inlay_lookup_build(&l, model, models));
			}
			for (i = 0; i < 10000 / SLOW; i++) {
				uint64_t addr = rnd_addr(kind);

				look(&l, addr, rnd_reach(addr));
			}
		}
		must(munmap(area, room + 2 * (size_t)page));
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(any),      cmocka_unit_test(many),  cmocka_unit_test(extremes), cmocka_unit_test(refused),
		cmocka_unit_test(large), cmocka_unit_test(inside),
	};

	rnd_seed();
	alarm(240);
	return cmocka_run_group_tests_name("lookup", tests, NULL, NULL);
}
