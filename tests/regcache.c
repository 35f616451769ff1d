/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * regcache.c: the registration cache against a list that obeys the rules of its manual, with callbacks that count, refuse and remember; then
 * with memory regions of a device, and what they still transfer; and beside a kernel that reports unmapped memory.
 */
#include "common.h"
#include <inttypes.h>
#include <sys/mman.h>
#include <inlay/mmap/cache.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define STEPS 200000
#else
#define STEPS 3000000
#endif

#define PAGE 4096u
#define PAGES 200u            /* of the pretended address space */
#define BASE 0x7000000000ull
#define MOST 24u
#define LOCAL 1u              /* the access bit that opens nothing to others */

/* ---- callbacks that register nothing, and know what is registered ---- */

static struct {
	uint32_t calls;           /* of reg, successful or not */
	uint32_t now;             /* registrations */
	uint64_t bytes, max_bytes_seen;
	uint32_t key;
	int refuse;               /* the errno of those that are refused */
	uint32_t good_after;      /* with so many registrations left, it works again */
	uint64_t forbidden_page;  /* pages that cannot be registered, as -EFAULT: this one */
	uint32_t forbidden_access;
	bool dereg_fails;
} fake;

static int fake_reg(void *context, struct inlay_cache_entry *e)
{
	assert_ptr_equal(context, &fake);
	assert_int_equal(e->start % PAGE, 0);
	assert_int_equal(e->len % PAGE, 0);
	fake.calls++;
	if (fake.refuse && fake.now > fake.good_after)
		return -fake.refuse;
	if (fake.forbidden_page != UINT64_MAX && fake.forbidden_page - e->start < e->len &&
	    (!fake.forbidden_access || e->access & fake.forbidden_access))
		return -EFAULT;
	fake.now++;
	fake.bytes += e->len;
	fake.max_bytes_seen = fake.bytes > fake.max_bytes_seen ? fake.bytes : fake.max_bytes_seen;
	e->lkey = ++fake.key;
	e->rkey = ~fake.key;
	e->handle = (void *)(uintptr_t)(e->start ^ fake.key);
	return 0;
}

static int fake_dereg(void *context, struct inlay_cache_entry *e)
{
	assert_ptr_equal(context, &fake);
	assert_int_equal(e->uses, 0); /* never what is in use */
	assert_ptr_equal(e->handle, (void *)(uintptr_t)(e->start ^ e->lkey));
	assert_int_equal(e->rkey, ~e->lkey);
	e->handle = NULL; /* not twice */
	fake.now--;
	fake.bytes -= e->len;
	return fake.dereg_fails ? -EBUSY : 0;
}

static struct inlay_cache cache;

static void *fake_cache(uint32_t max, uint64_t max_bytes)
{
	struct inlay_cache_ops ops;
	void *memory = aligned_alloc(64, inlay_cache_size(max));

	assert_non_null(memory);
	memset(&fake, 0, sizeof(fake));
	memset(memory, 0x5a, inlay_cache_size(max));
	ops.reg = fake_reg;
	ops.dereg = fake_dereg;
	ops.context = &fake;
	ops.local = LOCAL;
	fake.forbidden_page = UINT64_MAX;
	must(inlay_cache_init(&cache, memory, inlay_cache_size(max), max, max_bytes, PAGE, &ops));
	return memory;
}

/* ---- the model: entries in the order of their last use, the oldest first ---- */

struct known {
	uint64_t first, last; /* pages */
	uint32_t access, uses, key;
	bool zombie;
	struct inlay_cache_entry *e;
};

static struct known known[4 * MOST];
static uint32_t knowns;
static struct inlay_cache_counts expect;
static uint32_t model_key;

static uint64_t known_bytes(const struct known *k)
{
	return (k->last - k->first + 1) * PAGE;
}

static uint32_t model_idle(void)
{
	uint32_t i, n = 0;

	for (i = 0; i < knowns; i++)
		n += !known[i].uses;
	return n;
}

static uint64_t model_bytes(void)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < knowns; i++)
		sum += known_bytes(&known[i]);
	return sum;
}

static void model_forget(uint32_t i)
{
	memmove(&known[i], &known[i + 1], (--knowns - i) * sizeof(*known));
}

static void model_newest(uint32_t i)
{
	struct known k = known[i];

	memmove(&known[i], &known[i + 1], (knowns - 1 - i) * sizeof(*known));
	known[knowns - 1] = k;
}

/* Those that overlap are out: how many */
static uint32_t model_out(uint64_t first, uint64_t last)
{
	uint32_t i = 0, n = 0;

	while (i < knowns) {
		if (known[i].zombie || known[i].first > last || known[i].last < first) {
			i++;
			continue;
		}
		n++;
		if (known[i].uses)
			known[i++].zombie = true;
		else
			model_forget(i);
	}
	return n;
}

static bool model_evict(void)
{
	if (!model_idle())
		return false;
	for (;;) {
		uint32_t i = 0;

		while (known[i].zombie)
			i++;
		if (!known[i].uses) {
			model_forget(i);
			expect.evicted++;
			return true;
		}
		model_newest(i);
	}
}

/* Registers when it can be: 0, or what is reported */
static int model_enter(uint64_t first, uint64_t last, uint32_t access, uint32_t max, uint64_t max_bytes)
{
	const uint64_t bad = (fake.forbidden_page - BASE) / PAGE;
	struct known *k;

	if (knowns >= max || model_bytes() + (last - first + 1) * PAGE > max_bytes)
		model_out(first, last);
	while (knowns >= max || model_bytes() + (last - first + 1) * PAGE > max_bytes)
		if (!model_evict())
			return -ENOSPC;
	if (fake.refuse && knowns > fake.good_after)
		return -fake.refuse;
	if (bad >= first && bad <= last && (!fake.forbidden_access || access & fake.forbidden_access))
		return -EFAULT;
	model_out(first, last);
	k = &known[knowns++];
	memset(k, 0, sizeof(*k));
	k->first = first;
	k->last = last;
	k->access = access;
	k->uses = 1;
	k->key = ++model_key;
	expect.registered++;
	return 0;
}

/* Page by page: would one grant others what neither its entry nor the get does? */
static bool model_opens(uint64_t all_first, uint64_t all_last, uint64_t first, uint64_t last, uint32_t access, uint32_t all_access)
{
	uint64_t page;
	uint32_t i;

	for (page = all_first; page <= all_last; page++) {
		uint32_t grants = page >= first && page <= last ? access : 0;

		for (i = 0; i < knowns; i++)
			if (!known[i].zombie && known[i].first <= page && known[i].last >= page)
				grants |= known[i].access;
		if (all_access & ~grants & ~LOCAL)
			return true;
	}
	return false;
}

/* What a get should do; the place of what it should give is the last one */
static int model_get(uint64_t first, uint64_t last, uint32_t access, uint32_t max, uint64_t max_bytes)
{
	uint64_t all_first = first, all_last = last;
	uint32_t all_access = access, i, batch, n;
	int err = -ENOSPC;

	for (i = 0; i < knowns; i++)
		if (!known[i].zombie && known[i].first <= first && known[i].last >= last && !(access & ~known[i].access)) {
			known[i].uses++;
			model_newest(i);
			expect.hits++;
			return 0;
		}
	expect.misses++;
	if ((last - first + 1) * PAGE > max_bytes) {
		expect.failed++;
		return -E2BIG;
	}
	for (i = 0; i < knowns; i++)
		if (!known[i].zombie && known[i].first <= last && known[i].last >= first) {
			all_first = known[i].first < all_first ? known[i].first : all_first;
			all_last = known[i].last > all_last ? known[i].last : all_last;
			all_access |= known[i].access;
		}
	if ((all_first != first || all_last != last || all_access != access) && (all_last - all_first + 1) * PAGE <= max_bytes &&
	    !model_opens(all_first, all_last, first, last, access, all_access)) {
		err = model_enter(all_first, all_last, all_access, max, max_bytes);
		expect.merged += !err;
	}
	for (batch = 1; err; batch *= 2) {
		err = model_enter(first, last, access, max, max_bytes);
		if (err != -ENOMEM && err != -EAGAIN && err != -ENOSPC)
			break;
		for (n = 0; n < batch && model_evict(); n++)
			;
		if (!n)
			break;
	}
	expect.failed += !!err;
	return err;
}

static void same_counts(uint64_t max_bytes)
{
	const struct inlay_cache_counts *c = &cache.counts;
	uint32_t i, zombies = 0;

	for (i = 0; i < knowns; i++)
		zombies += known[i].zombie;
	assert_int_equal(c->hits, expect.hits);
	assert_int_equal(c->misses, expect.misses);
	assert_int_equal(c->registered, expect.registered);
	assert_int_equal(c->merged, expect.merged);
	assert_int_equal(c->evicted, expect.evicted);
	assert_int_equal(c->invalidated, expect.invalidated);
	assert_int_equal(c->failed, expect.failed);
	assert_int_equal(c->zombies, zombies);
	assert_int_equal(c->entries, knowns - zombies);
	assert_int_equal(c->idle, model_idle());
	assert_int_equal(c->bytes, model_bytes());
	assert_int_equal(fake.bytes, model_bytes());
	assert_int_equal(fake.now, knowns);
	assert_true(fake.max_bytes_seen <= max_bytes);
}

/* Everything that a user still holds is as it was when it was got */
static void held_is_good(void)
{
	uint32_t i;

	for (i = 0; i < knowns; i++)
		if (known[i].uses) {
			const struct inlay_cache_entry *e = known[i].e;

			assert_int_equal(e->uses, known[i].uses);
			assert_int_equal(e->lkey, known[i].key);
			assert_int_equal(e->rkey, ~known[i].key);
			assert_int_equal(e->start, BASE + known[i].first * PAGE);
			assert_int_equal(e->len, known_bytes(&known[i]));
			assert_int_equal(e->access, known[i].access);
		}
}

/* ---- tests ---- */

/* Random gets, puts, invalidations and failures, with each answer, key and count compared */
static void any(void **state)
{
	static const int errors[] = {ENOMEM, EAGAIN, ENOSPC, EFAULT, EPERM};
	uint64_t tries[3] = {0, 0, 0}, max_bytes = 0;
	uint32_t step, max = 0, i, n;
	void *memory = NULL;

	(void)state;
	for (step = 0; step < STEPS; step++) {
		uint64_t first, last, addr, len;
		struct inlay_cache_entry *e = NULL;
		uint32_t access;
		int err;

		if (step % 2000 == 0) {
			if (memory) {
				for (i = 0; i < knowns; i++)
					while (known[i].uses) {
						inlay_cache_put(&cache, known[i].e);
						known[i].uses--;
					}
				must(inlay_cache_fini(&cache));
				assert_int_equal(fake.now, 0);
				free(memory);
			}
			max = 1 + rnd_below(MOST);
			max_bytes = rnd_below(2) ? UINT64_MAX : (8 + rnd_below(300)) * (uint64_t)PAGE;
			memory = fake_cache(max, max_bytes);
			memset(&expect, 0, sizeof(expect));
			knowns = model_key = 0;
		}
		if (step % 100 == 0) {
			fake.refuse = rnd_below(3) ? 0 : errors[rnd_below(ARRAY(errors))];
			fake.good_after = rnd_below(max);
			fake.forbidden_page = rnd_below(3) ? UINT64_MAX : BASE + rnd_below(PAGES) * PAGE;
			fake.forbidden_access = rnd_below(2) ? 0 : 8;
		}
		switch (rnd_below(16)) {
		case 0: /* takes a part out */
			addr = BASE + rnd_below(PAGES * PAGE);
			len = rnd_below(3) ? rnd_below(3 * PAGE) : rnd_below(PAGES * PAGE / 4);
			n = len ? model_out((addr - BASE) / PAGE, (addr + len - 1 - BASE) / PAGE) : 0;
			expect.invalidated += n;
			assert_int_equal(inlay_cache_invalidate(&cache, addr, len), n);
			break;
		case 1:
			if (rnd_below(40))
				break;
			n = model_out(0, UINT64_MAX);
			expect.invalidated += n;
			for (i = n = 0; i < knowns; i++)
				n += known[i].zombie;
			assert_int_equal(inlay_cache_flush(&cache), n);
			break;
		case 2:
		case 3:
		case 4:
		case 5:
		case 6:
		case 7:
			i = knowns ? rnd_below(knowns) : 0;
			if (!knowns || !known[i].uses)
				break;
			inlay_cache_put(&cache, known[i].e);
			if (!--known[i].uses && known[i].zombie)
				model_forget(i);
			break;
		default:
			addr = BASE + rnd_below(PAGES * PAGE);
			len = rnd_below(2) ? rnd_below(2 * PAGE) : rnd_below(10) ? rnd_below(12 * PAGE) : rnd_below(PAGES * PAGE);
			access = rnd_below(4) ? rnd_below(8) ? 7 : 6 : rnd_below(16);
			/* Now and then the same again: the way of the one that was used last */
			i = knowns ? knowns - 1 : 0;
			if (knowns && rnd_below(2)) {
				addr = BASE + known[i].first * PAGE + rnd() % known_bytes(&known[i]);
				len = rnd() % (known_bytes(&known[i]) + PAGE);
			}
			first = (addr - BASE) / PAGE;
			last = (addr + (len ? len - 1 : 0) - BASE) / PAGE;
			err = model_get(first, last, access, max, max_bytes);
			assert_int_equal(inlay_cache_get(&cache, addr, len, access, &e), err);
			tries[err == 0 ? 0 : err == -ENOSPC ? 1 : 2]++;
			if (err) {
				assert_null(e);
				break;
			}
			if (!known[knowns - 1].e)
				known[knowns - 1].e = e;
			assert_ptr_equal(e, known[knowns - 1].e);
			assert_true(e->start <= addr && e->start + e->len >= addr + len && !(access & ~e->access));
		}
		held_is_good();
		same_counts(max_bytes);
	}
	for (i = 0; i < knowns; i++)
		while (known[i].uses) {
			inlay_cache_put(&cache, known[i].e);
			known[i].uses--;
		}
	must(inlay_cache_fini(&cache));
	free(memory);
	print_message("# gets: %" PRIu64 " good, %" PRIu64 " without room, %" PRIu64 " refused\n", tries[0], tries[1], tries[2]);
	assert_true(tries[0] > STEPS / 10 && tries[1] > STEPS / 1000 && tries[2] > STEPS / 1000);
}

static struct inlay_cache_entry *got(uint64_t addr, uint64_t len, uint32_t access)
{
	struct inlay_cache_entry *e = NULL;

	must(inlay_cache_get(&cache, addr, len, access, &e));
	return e;
}

/* Thousands of entries, so that the index is made and made anew, against what each must be */
static void large(void **state)
{
	const uint32_t max = 6000, n = 4000;
	struct inlay_cache_entry **e = (struct inlay_cache_entry **)calloc(n, sizeof(struct inlay_cache_entry *));
	uint32_t i, k, indexed = 0;
	void *memory = fake_cache(max, UINT64_MAX);

	(void)state;
	assert_non_null(e);
	for (i = 0; i < n; i++)
		e[i] = got(BASE + (uint64_t)(i * 7919 % n) * 3 * PAGE, 2 * PAGE, 1);
	assert_int_equal(fake.now, n);
	for (i = 0; i < 200000; i++) {
		k = rnd_below(n);
		assert_ptr_equal(got(BASE + (uint64_t)(k * 7919 % n) * 3 * PAGE + rnd_below(PAGE), 1 + rnd_below(PAGE), 1), e[k]);
		inlay_cache_put(&cache, e[k]);
		indexed += !cache.stale;
	}
	assert_int_equal(fake.now, n);
	assert_int_equal(cache.counts.misses, n);
	assert_true(indexed > 100000); /* it was worth it */
	/* One more, and it is found, as are the others */
	inlay_cache_put(&cache, got(BASE - 10 * PAGE, 1, 1));
	for (i = 0; i < 3 * n; i++) {
		k = rnd_below(n);
		assert_ptr_equal(got(BASE + (uint64_t)(k * 7919 % n) * 3 * PAGE, 2 * PAGE, 1), e[k]);
		inlay_cache_put(&cache, e[k]);
	}
	assert_int_equal(cache.counts.misses, n + 1);
	/* Every third is taken out of a cache whose index is good: by its last byte */
	for (i = 0; i < 3 * n && cache.stale; i++)
		inlay_cache_put(&cache, got(BASE + (uint64_t)(rnd_below(n) * 7919 % n) * 3 * PAGE, 1, 1));
	assert_int_equal(cache.stale, 0);
	for (k = 0; k < n; k += 3)
		assert_int_equal(inlay_cache_invalidate(&cache, e[k]->start + 2 * PAGE - 1, 1), 1);
	for (k = 0; k < n; k++)
		if (k % 3) {
			assert_ptr_equal(got(e[k]->start, 2 * PAGE, 1), e[k]);
			inlay_cache_put(&cache, e[k]);
		}
	assert_int_equal(cache.counts.misses, n + 1);
	for (k = 0; k < n; k += 3)
		assert_ptr_not_equal(got(e[k]->start, 2 * PAGE, 1), e[k]);
	assert_int_equal(cache.counts.misses, n + 1 + (n + 2) / 3);
	for (k = 0; k < n; k += 3)
		inlay_cache_put(&cache, got(e[k]->start, 1, 1));
	assert_int_equal(inlay_cache_flush(&cache), n + (n + 2) / 3);
	for (i = 0; i < n; i++)
		inlay_cache_put(&cache, e[i]);
	assert_int_equal(fake.now, (n + 2) / 3); /* the second ones of every third */
	assert_int_equal(inlay_cache_fini(&cache), -EBUSY);
	free(e);
	free(memory);
}

/* The least recently used one goes, not the oldest; what is in use stays, and when nothing else is left, the get fails */
static void lru(void **state)
{
	struct inlay_cache_entry *a, *b, *c, *none = NULL;
	void *memory = fake_cache(3, UINT64_MAX);

	(void)state;
	inlay_cache_put(&cache, a = got(BASE, 1, 1));
	inlay_cache_put(&cache, b = got(BASE + 10 * PAGE, 1, 1));
	inlay_cache_put(&cache, c = got(BASE + 20 * PAGE, 1, 1));
	inlay_cache_put(&cache, got(BASE, 1, 1)); /* a again: b is the one that was not used for longest */
	inlay_cache_put(&cache, got(BASE + 30 * PAGE, 1, 1));
	assert_int_equal(cache.counts.evicted, 1);
	assert_ptr_equal(got(BASE, 1, 1), a);
	assert_ptr_equal(got(BASE + 20 * PAGE, 1, 1), c);
	assert_int_equal(cache.counts.misses, 4);
	b = got(BASE + 10 * PAGE, 1, 1); /* for the one at 30, though a and c are older: they are in use */
	assert_int_equal(cache.counts.misses, 5);
	assert_int_equal(cache.counts.evicted, 2);
	assert_int_equal(inlay_cache_get(&cache, BASE + 40 * PAGE, 1, 1, &none), -ENOSPC);
	assert_null(none);
	assert_int_equal(cache.counts.entries, 3);
	inlay_cache_put(&cache, a);
	inlay_cache_put(&cache, got(BASE + 40 * PAGE, 1, 1));
	assert_int_equal(cache.counts.evicted, 3);
	inlay_cache_put(&cache, b);
	inlay_cache_put(&cache, c);
	must(inlay_cache_fini(&cache));
	free(memory);
}

/* What is taken out in use: its keys stay, its range is registered anew, its last put ends it */
static void zombies(void **state)
{
	struct inlay_cache_entry *a, *b;
	void *memory = fake_cache(4, UINT64_MAX);
	uint32_t key;

	(void)state;
	a = got(BASE + 100, 100, 1);
	assert_ptr_equal(got(BASE + PAGE - 1, 1, 1), a);
	key = a->lkey;
	assert_int_equal(inlay_cache_invalidate(&cache, BASE + PAGE, 1), 0); /* the next page */
	assert_int_equal(inlay_cache_invalidate(&cache, BASE - 1, 1), 0);
	assert_int_equal(inlay_cache_invalidate(&cache, BASE + 50, 0), 0);
	assert_int_equal(inlay_cache_invalidate(&cache, BASE - 1, UINT64_MAX), 1); /* to the end of the address space */
	assert_int_equal(fake.now, 1);
	assert_int_equal(cache.counts.zombies, 1);
	b = got(BASE + 100, 100, 1);
	assert_ptr_not_equal(a, b);
	assert_int_equal(a->lkey, key);
	assert_int_not_equal(b->lkey, key);
	inlay_cache_put(&cache, a);
	assert_int_equal(fake.now, 2);
	assert_int_equal(inlay_cache_fini(&cache), -EBUSY);
	assert_int_equal(cache.counts.zombies, 2);
	inlay_cache_put(&cache, a);
	assert_int_equal(fake.now, 1);
	inlay_cache_put(&cache, b);
	assert_int_equal(fake.now, 0);
	must(inlay_cache_fini(&cache));

	/* Deregistering may fail: that is counted, and the entry is free again */
	fake.dereg_fails = true;
	inlay_cache_put(&cache, got(BASE, 1, 1));
	inlay_cache_flush(&cache);
	assert_int_equal(cache.counts.leaked, 1);
	assert_int_equal(cache.counts.bytes, 0);
	fake.dereg_fails = false;
	for (key = 0; key < 4; key++)
		got(BASE + key * 10 * PAGE, 1, 1);
	assert_int_equal(cache.counts.entries, 4);
	free(memory);
}

/* What others may do to a page is what was asked for it: a get beside does not widen it, nor does it widen that one */
static void permissions(void **state)
{
	struct inlay_cache_entry *remote, *a, *b;
	void *memory = fake_cache(8, UINT64_MAX);

	(void)state;
	/* 64 bytes that others may write, and a megabyte beside them that they may not */
	remote = got(BASE, 64, 7);
	a = got(BASE + 64, 0x100000, LOCAL);
	assert_int_equal(a->access, LOCAL);
	assert_int_equal(a->start, BASE);
	assert_int_equal(a->len, 0x101000);
	assert_int_equal(remote->len, PAGE); /* in use: as it was */
	assert_int_equal(cache.counts.zombies, 1);
	assert_int_equal(cache.counts.entries, 1);
	assert_ptr_equal(got(BASE, 64, LOCAL), a);
	inlay_cache_put(&cache, a);
	inlay_cache_put(&cache, a);
	inlay_cache_put(&cache, remote);
	/* The other way round: the new one is opened, what was there is not */
	b = got(BASE, 64, 7);
	assert_int_equal(b->len, PAGE);
	assert_int_equal(b->access, 7);
	assert_int_equal(cache.counts.entries, 1);
	assert_int_equal(cache.counts.merged, 0);
	inlay_cache_put(&cache, b);
	/* The same for others, more for this process: a union */
	a = got(BASE, 2 * PAGE, 6);
	assert_int_equal(a->access, 7);
	assert_int_equal(a->len, 2 * PAGE);
	inlay_cache_put(&cache, a);
	a = got(BASE + PAGE, 2 * PAGE, 6);
	assert_int_equal(a->access, 7);
	assert_int_equal(a->len, 3 * PAGE);
	assert_int_equal(cache.counts.merged, 2);
	inlay_cache_put(&cache, a);
	/* Around all of it, with more for others: all pages were asked for with all */
	a = got(BASE, 3 * PAGE, 8);
	assert_int_equal(a->access, 15);
	inlay_cache_put(&cache, a);
	/* But one more page was not */
	a = got(BASE, 4 * PAGE, 8);
	assert_int_equal(a->access, 8);
	assert_int_equal(a->len, 4 * PAGE);
	inlay_cache_put(&cache, a);
	must(inlay_cache_fini(&cache));
	free(memory);
}

/* A get that fails leaves what it overlaps, used or not, unless that had to go for room */
static void kept(void **state)
{
	struct inlay_cache_entry *a, *b, *none = NULL;
	void *memory = fake_cache(4, 8 * PAGE);
	uint32_t a_key, i;

	(void)state;
	inlay_cache_put(&cache, a = got(BASE, 2 * PAGE, 1));
	b = got(BASE + 3 * PAGE, PAGE, 1);
	a_key = a->lkey;
	fake.forbidden_page = BASE + 2 * PAGE;
	for (i = 0; i < 5; i++) {
		assert_int_equal(inlay_cache_get(&cache, BASE + PAGE, 3 * PAGE, 1, &none), -EFAULT);
		assert_int_equal(cache.counts.entries, 2);
		assert_int_equal(cache.counts.zombies, 0);
		assert_int_equal(fake.now, 2);
	}
	/* Writing is refused: who reads has not lost anything */
	fake.forbidden_page = BASE;
	fake.forbidden_access = 2;
	assert_int_equal(inlay_cache_get(&cache, BASE, PAGE, 2, &none), -EFAULT);
	assert_ptr_equal(got(BASE, 2 * PAGE, 1), a);
	assert_int_equal(a->lkey, a_key);
	assert_ptr_equal(got(BASE + 3 * PAGE, 1, 1), b);
	assert_int_equal(cache.counts.misses, 2 + 5 + 1);
	for (i = 0; i < 2; i++)
		inlay_cache_put(&cache, b);
	inlay_cache_put(&cache, a);
	/* No room for 6 beside them: they go first */
	fake.forbidden_access = 0;
	fake.forbidden_page = BASE + 5 * PAGE;
	assert_int_equal(inlay_cache_get(&cache, BASE, 6 * PAGE, 1, &none), -EFAULT);
	assert_int_equal(fake.now, 0);
	assert_int_equal(cache.counts.evicted, 0);
	assert_null(none);
	must(inlay_cache_fini(&cache));
	free(memory);
}

/* Overlaps become one, with all access; where that cannot be, what was asked for alone */
static void unions(void **state)
{
	struct inlay_cache_entry *a, *b, *c;
	void *memory = fake_cache(8, 16 * PAGE);

	(void)state;
	inlay_cache_put(&cache, a = got(BASE, 2 * PAGE, 6));
	inlay_cache_put(&cache, got(BASE + 2 * PAGE, PAGE, 7)); /* a neighbour stays one */
	assert_int_equal(cache.counts.entries, 2);
	c = got(BASE + PAGE + 5, PAGE, 6);
	assert_int_equal(cache.counts.entries, 1);
	assert_int_equal(c->start, BASE);
	assert_int_equal(c->len, 3 * PAGE);
	assert_int_equal(c->access, 7);
	assert_ptr_equal(got(BASE, 3 * PAGE, 7), c);
	assert_int_equal(cache.counts.merged, 1);

	/* More access for the same range */
	b = got(BASE, 3 * PAGE, 8);
	assert_ptr_not_equal(b, c);
	assert_int_equal(b->access, 15);
	assert_int_equal(cache.counts.zombies, 1);
	inlay_cache_put(&cache, c);
	inlay_cache_put(&cache, c);
	assert_int_equal(cache.counts.zombies, 0);
	inlay_cache_put(&cache, b);

	/* Page 3 can be read only: the union cannot have what the entry grants */
	fake.forbidden_page = BASE + 3 * PAGE;
	fake.forbidden_access = 8;
	c = got(BASE + 2 * PAGE, 2 * PAGE, 1);
	assert_int_equal(c->start, BASE + 2 * PAGE);
	assert_int_equal(c->len, 2 * PAGE);
	assert_int_equal(c->access, 1);
	assert_int_equal(cache.counts.entries, 1);
	inlay_cache_put(&cache, c);

	/* A union above the limit is not tried; what is alone above it is refused, and leaves all as it was */
	fake.calls = 0;
	c = got(BASE + 3 * PAGE, 16 * PAGE, 1);
	assert_int_equal(c->start, BASE + 3 * PAGE);
	assert_int_equal(fake.calls, 1);
	assert_int_equal(inlay_cache_get(&cache, BASE, 17 * PAGE, 1, &a), -E2BIG);
	assert_int_equal(inlay_cache_get(&cache, BASE, 16 * PAGE + 1, 1, &a), -E2BIG);
	assert_int_equal(cache.counts.entries, 1);
	inlay_cache_put(&cache, c);
	must(inlay_cache_fini(&cache));
	free(memory);
}

/* Failures: those that room may help make room, the others evict nothing */
static void failures(void **state)
{
	struct inlay_cache_entry *e = NULL;
	void *memory = fake_cache(16, UINT64_MAX);
	uint32_t i;

	(void)state;
	for (i = 0; i < 16; i++)
		inlay_cache_put(&cache, got(BASE + i * 10 * PAGE, 1, 1));
	assert_int_equal(inlay_cache_invalidate(&cache, BASE, 1), 1); /* so that there is room for one */
	fake.refuse = EFAULT;
	fake.calls = 0;
	assert_int_equal(inlay_cache_get(&cache, BASE + 5 * PAGE, 1, 1, &e), -EFAULT);
	assert_int_equal(fake.calls, 1);
	assert_int_equal(cache.counts.entries, 15);
	/* 15, 14, 12, 8: tried with each */
	fake.refuse = ENOMEM;
	fake.good_after = 8;
	fake.calls = 0;
	e = got(BASE + 5 * PAGE, 1, 1);
	assert_int_equal(fake.calls, 4);
	assert_int_equal(cache.counts.evicted, 7);
	assert_int_equal(cache.counts.entries, 9);
	/* Never again: evicts what is idle, and reports */
	fake.good_after = 0;
	assert_int_equal(inlay_cache_get(&cache, BASE + 6 * PAGE, 1, 1, &e), -ENOMEM);
	assert_int_equal(cache.counts.entries, 1);
	assert_int_equal(cache.counts.idle, 0);
	inlay_cache_put(&cache, e);
	must(inlay_cache_fini(&cache));
	free(memory);
}

/* The ends of the address space, and arguments out of their range */
static void extremes(void **state)
{
	struct inlay_cache_entry *e, *low, *none = NULL;
	struct inlay_cache other;
	struct inlay_cache_ops ops;
	size_t size = inlay_cache_size(4);
	void *memory = fake_cache(4, UINT64_MAX);
	uint32_t i;

	(void)state;
	e = got(UINT64_MAX, 1, 1);
	assert_int_equal(e->start, UINT64_MAX - PAGE + 1);
	assert_int_equal(e->len, PAGE);
	assert_ptr_equal(got(UINT64_MAX, 0, 1), e); /* 0 counts as 1 */
	assert_ptr_equal(got(UINT64_MAX - 5, 6, 1), e);
	assert_int_equal(inlay_cache_get(&cache, UINT64_MAX, 2, 1, &none), -EINVAL);
	assert_int_equal(inlay_cache_get(&cache, 5, UINT64_MAX, 1, &none), -EINVAL);
	assert_int_equal(inlay_cache_get(&cache, 0, UINT64_MAX, 1, &none), -EINVAL); /* all pages there are: no length says so */
	low = got(0, 0, 1);
	assert_int_equal(low->start, 0);
	assert_int_equal(inlay_cache_invalidate(&cache, 0, UINT64_MAX), 2);
	assert_int_equal(inlay_cache_get(&cache, PAGE, UINT64_MAX - PAGE, 1, &none), -ENOSPC); /* beside what is still registered */
	for (i = 0; i < 3; i++)
		inlay_cache_put(&cache, e);
	inlay_cache_put(&cache, low);
	assert_int_equal(got(PAGE, UINT64_MAX - PAGE, 1)->len, UINT64_MAX - PAGE + 1);

	assert_int_equal(inlay_cache_size(0), 0);
	assert_int_equal(inlay_cache_size(INLAY_LOOKUP_MAX + 1), 0);
	ops = cache.ops;
	assert_int_equal(inlay_cache_init(&other, NULL, size, 4, 1, PAGE, &ops), -EINVAL);
	assert_int_equal(inlay_cache_init(&other, (uint8_t *)memory + 8, size, 4, 1, PAGE, &ops), -EINVAL);
	assert_int_equal(inlay_cache_init(&other, memory, size - 1, 4, 1, PAGE, &ops), -EINVAL);
	assert_int_equal(inlay_cache_init(&other, memory, size, 0, 1, PAGE, &ops), -EINVAL);
	assert_int_equal(inlay_cache_init(&other, memory, size, 4, 0, PAGE, &ops), -EINVAL);
	assert_int_equal(inlay_cache_init(&other, memory, size, 4, 1, 0, &ops), -EINVAL);
	assert_int_equal(inlay_cache_init(&other, memory, size, 4, 1, 4095, &ops), -EINVAL);
	ops.reg = NULL;
	assert_int_equal(inlay_cache_init(&other, memory, size, 4, 1, PAGE, &ops), -EINVAL);
	free(memory);
}

#if INLAY_CHECKED
static void put_twice(void *e)
{
	inlay_cache_put(&cache, (struct inlay_cache_entry *)e);
	inlay_cache_put(&cache, (struct inlay_cache_entry *)e);
}

static void checked(void **state)
{
	void *memory = fake_cache(4, UINT64_MAX);

	(void)state;
	assert_aborts(put_twice, got(BASE, 1, 1), "one put for each get");
	free(memory);
}
#endif

/* ---- memory regions ---- */

/* One RDMA write from a's memory to b's through the cache: keys that the device accepts, or not */
static void transfer_post(struct end *a, const void *from, uint32_t lkey, const void *to, uint32_t rkey, uint32_t len)
{
	struct ibv_sge sge;

	sge.addr = (uintptr_t)from;
	sge.length = len;
	sge.lkey = lkey;
	must(inlay_post_write(&a->sq, (uintptr_t)to, rkey, &sge, 1, INLAY_SIGNALED));
	inlay_sq_ring(&a->sq);
}

static void transfer(struct end *a, const void *from, uint32_t lkey, const void *to, uint32_t rkey, uint32_t len)
{
	transfer_post(a, from, lkey, to, rkey, len);
	sent(a);
}

static void device(void **state)
{
	struct inlay_cache_entry *src, *dst, *old, *e = NULL;
	struct inlay_cache_ops ops;
	void *memory = aligned_alloc(64, inlay_cache_size(8));
	uint8_t *buf = (uint8_t *)mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *bad;
	struct opt opt = usual;
	struct end a, b;
	uint32_t i;

	(void)state;
	assert_ptr_not_equal(buf, MAP_FAILED);
	ends_make(&a, &b, &opt);
	end_take(&a, INLAY_UAR_SERIAL);
	inlay_cache_pd(&ops, dev.pd);
	must(inlay_cache_init(&cache, memory, inlay_cache_size(8), 8, 32 * PAGE, PAGE, &ops));

	/* Many places, more than the cache holds; each is transferred with the keys it gives */
	for (i = 0; i < 200; i++) {
		uint8_t *from = buf + rnd_below(20 * PAGE), *to = buf + 30 * PAGE + rnd_below(20 * PAGE);
		uint32_t len = 1 + rnd_below(3 * PAGE);

		fill(from, len, i);
		must(inlay_cache_get(&cache, (uintptr_t)from, len, 0, &src));
		must(inlay_cache_get(&cache, (uintptr_t)to, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &dst));
		transfer(&a, from, src->lkey, to, dst->rkey, len);
		assert_int_equal(differs(to, len, i), len);
		inlay_cache_put(&cache, src);
		inlay_cache_put(&cache, dst);
		if (i % 10 == 9)
			inlay_cache_invalidate(&cache, (uintptr_t)from, 1);
	}
	assert_true(cache.counts.hits > 10 && cache.counts.merged > 10);

	/* New memory at an old address: after invalidate, the new registration reaches it; what is in use still has the old one */
	must(inlay_cache_get(&cache, (uintptr_t)buf, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &old));
	must(inlay_cache_invalidate(&cache, (uintptr_t)buf, 64 * PAGE) == 0);
	assert_ptr_equal(mmap(buf, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), buf);
	must(inlay_cache_get(&cache, (uintptr_t)buf, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &dst));
	must(inlay_cache_get(&cache, (uintptr_t)buf + 20 * PAGE, PAGE, 0, &src));
	assert_int_not_equal(old->rkey, dst->rkey);
	fill(buf + 20 * PAGE, PAGE, 77);
	transfer(&a, buf + 20 * PAGE, src->lkey, buf, dst->rkey, PAGE);
	assert_int_equal(differs(buf, PAGE, 77), PAGE);
	inlay_cache_put(&cache, old);
	inlay_cache_put(&cache, dst);
	inlay_cache_put(&cache, src);

	/* Memory that is not there is refused by the kernel */
	bad = (uint8_t *)mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(munmap(bad, PAGE));
	assert_int_equal(inlay_cache_get(&cache, (uintptr_t)bad, PAGE, 0, &e), -EFAULT);
	assert_null(e);

	/* An evicted key is one no more: the write fails */
	must(inlay_cache_get(&cache, (uintptr_t)buf, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &dst));
	must(inlay_cache_get(&cache, (uintptr_t)buf + 20 * PAGE, PAGE, 0, &src));
	i = dst->rkey;
	inlay_cache_put(&cache, dst);
	assert_int_equal(inlay_cache_flush(&cache), 1);
	transfer_post(&a, buf + 20 * PAGE, src->lkey, buf, i, 8);
	assert_int_equal(inlay_cqe_syndrome(cqe_wait(&a.cq)), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
	inlay_cache_put(&cache, src);
	must(inlay_cache_fini(&cache));
	end_free(&a);
	end_free(&b);
	must(munmap(buf, 64 * PAGE));
	free(memory);
}

/* ---- the example, which wires the cache to the kernel's reports of unmapped memory ---- */

static void example(void **state)
{
	const char *b = getenv("B"), *linked = getenv("SOFTDEV_LINKED");
	char path[4096], said[256] = "";
	int p[2], status;
	ssize_t n;
	pid_t pid;

	(void)state;
	snprintf(path, sizeof(path), "%s/examples/regcache", b && *b ? b : "build");
	if (access(path, X_OK) || (linked && *linked)) {
		print_message("# skipped: %s was not built, or has no device\n", path);
		skip();
	}
	must(pipe(p));
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(30);
		dup2(p[1], STDERR_FILENO);
		close(p[0]);
		close(p[1]);
		execl(path, path, (char *)NULL);
		_exit(127);
	}
	close(p[1]);
	n = read(p[0], said, sizeof(said) - 1);
	close(p[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	said[n > 0 ? n : 0] = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		print_message("# %s", said);
		skip();
	}
	if (status)
		fail_msg("status 0x%x: %s", status, said);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(any),      cmocka_unit_test(large),    cmocka_unit_test(lru),
		cmocka_unit_test(zombies),  cmocka_unit_test(unions),   cmocka_unit_test(permissions),
		cmocka_unit_test(kept),     cmocka_unit_test(failures),
		cmocka_unit_test(extremes), cmocka_unit_test(device),   cmocka_unit_test(example),
#if INLAY_CHECKED
		cmocka_unit_test(checked),
#endif
	};

	return cmocka_run_group_tests_name("regcache", tests, dev_open, dev_close);
}
