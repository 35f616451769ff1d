/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cache.c: the registration cache against a brute-force model of its manual, with callbacks that count, refuse and remember; posts
 * that meet a step; the height of its tree; memory regions of a device and what they still transfer. Posts by other threads: monitor.c.
 *
 * Environment: CACHE_STEPS, of the random run.
 */
#include "common.h"
#include "interleave.h"
#include <inttypes.h>
#include <pthread.h>
#include <sys/mman.h>
#include <inlay/mmap/cache.h>

#define PAGE 4096u
#define PAGES 200u            /* of the pretended address space */
#define BASE 0x7000000000ull
#define MOST 24u
#define POSTS 4u
#define BYTES 40u             /* the caller's, in each region */

/* ---- callbacks that register nothing, and know what is registered ---- */

static struct inlay_cache cache;

static struct {
	uint32_t calls;           /* of reg, successful or not */
	uint32_t now;             /* registrations */
	uint64_t bytes, max_bytes_seen;
	uint32_t key;
	int refuse;               /* the errno of those that are refused */
	uint32_t good_after;      /* with so many registrations left, it works again */
	uint64_t forbidden_page;  /* pages that cannot be registered, as -EFAULT: this one */
	uint32_t forbidden_access;
	uint32_t dereg_fails, leaked; /* one of so many fails; those that did */
	bool apart;               /* merges only what has the same access above 1 */
	uint64_t post_start, post_len; /* posted by the next dereg, as a munmap inside it would */
} fake;

static int fake_reg(void *context, struct inlay_cache_region *r)
{
	uint32_t *mine = (uint32_t *)(r + 1), i;

	assert_true(context == &fake && r->start % PAGE == 0 && r->len % PAGE == 0 && (uintptr_t)mine % 16 == 0);
	fake.calls++;
	if (fake.refuse && fake.now > fake.good_after)
		return -fake.refuse;
	if (fake.forbidden_page != UINT64_MAX && fake.forbidden_page - r->start < r->len &&
	    (!fake.forbidden_access || r->access & fake.forbidden_access))
		return -EFAULT;
	fake.now++;
	fake.bytes += r->len;
	fake.max_bytes_seen = fake.bytes > fake.max_bytes_seen ? fake.bytes : fake.max_bytes_seen;
	r->lkey = ++fake.key;
	r->rkey = ~fake.key;
	r->handle = (void *)(uintptr_t)(r->start ^ fake.key);
	/* The caller's bytes: zero at first, but for what merge put there; then all of them are written */
	for (i = 1; i < BYTES / 4; i++) {
		assert_int_equal(mine[i], 0);
		mine[i] = fake.key + i;
	}
	return 0;
}

static int fake_dereg(void *context, struct inlay_cache_region *r)
{
	const uint32_t *mine = (const uint32_t *)(r + 1);

	assert_ptr_equal(context, &fake);
	assert_int_equal(r->uses, 0); /* never what is in use */
	assert_true(r->handle == (void *)(uintptr_t)(r->start ^ r->lkey) && r->rkey == ~r->lkey);
	for (uint32_t i = 1; i < BYTES / 4; i++)
		assert_int_equal(mine[i], r->lkey + i);
	r->handle = NULL; /* not twice */
	fake.now--;
	fake.bytes -= r->len;
	if (fake.post_len) {
		inlay_cache_post(&cache, fake.post_start, fake.post_len);
		fake.post_len = 0;
	}
	if (!fake.dereg_fails || rnd_below(fake.dereg_fails))
		return 0;
	fake.leaked++;
	return -EBUSY;
}

/* The first word of a region's bytes counts the regions that have become part of it */
static int fake_merge(void *context, const struct inlay_cache_region *old, struct inlay_cache_region *r)
{
	assert_true(context == &fake && old->found);
	if (fake.apart && (old->access ^ r->access) & ~1u)
		return -EACCES;
	*(uint32_t *)(r + 1) += 1 + *(const uint32_t *)(old + 1);
	return 0;
}

static void *fake_cache(uint32_t max, uint64_t max_bytes)
{
	struct inlay_cache_attr attr = {max, POSTS, max_bytes, PAGE, BYTES};
	struct inlay_cache_ops ops = {fake_reg, fake_dereg, fake_merge, NULL, &fake};
	void *memory = aligned_alloc(64, (inlay_cache_size(&attr) + 63) / 64 * 64);

	assert_non_null(memory);
	memset(&fake, 0, sizeof(fake));
	memset(memory, 0x5a, inlay_cache_size(&attr));
	fake.forbidden_page = UINT64_MAX;
	must(inlay_cache_init(&cache, memory, inlay_cache_size(&attr), &attr, &ops));
	return memory;
}

static void fake_end(void *memory)
{
	must(inlay_cache_fini(&cache));
	assert_int_equal(fake.now, 0);
	free(memory);
}

/* A post, applied. Returns how many regions it took out. */
static uint32_t invalidate(uint64_t addr, uint64_t len)
{
	const uint64_t before = cache.counts.invalidated;

	inlay_cache_post(&cache, addr, len);
	inlay_cache_step_(&cache);
	return (uint32_t)(cache.counts.invalidated - before);
}

static uint32_t merges(const struct inlay_cache_region *r)
{
	return *(const uint32_t *)(r + 1);
}

/* The tree is sorted, no child is heavier than its parent, and it has all that can be found; its height */
static uint32_t tree_check(const struct inlay_cache_region *t, uint64_t low, uint64_t high, uint32_t weight, uint32_t *count)
{
	uint32_t l, r;

	if (!t)
		return 0;
	++*count;
	assert_true(t->start >= low && t->start + (t->len - 1) <= high && t->weight_ <= weight && t->found);
	l = t->start ? tree_check(t->child_[0], low, t->start - 1, t->weight_, count) : 0;
	r = t->start + (t->len - 1) < high ? tree_check(t->child_[1], t->start + t->len, high, t->weight_, count) : 0;
	return 1 + (l > r ? l : r);
}

static uint32_t tree_height(void)
{
	uint32_t count = 0, height = tree_check(cache.root_, 0, UINT64_MAX, UINT32_MAX, &count);

	assert_int_equal(count, cache.counts.regions);
	return height;
}

/* ---- the model ---- */

struct known {
	uint64_t first, last; /* pages */
	uint32_t access, uses, key, merges;
	bool zombie, put;
	struct inlay_cache_region *r;
};

static struct known known[4 * MOST];
static uint32_t knowns;
static struct inlay_cache_counts expect;
static uint64_t failed;
static uint32_t model_key, model_hand; /* the place that the next eviction meets */

static uint64_t known_bytes(const struct known *k)
{
	return (k->last - k->first + 1) * PAGE;
}

static uint64_t model_bytes(void)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < knowns; i++)
		sum += known_bytes(&known[i]);
	return sum;
}

static void model_forget(uint32_t i)
{
	memmove(&known[i], &known[i + 1], (--knowns - i) * sizeof(*known));
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

static void model_put(uint32_t i)
{
	inlay_cache_put(&cache, known[i].r);
	known[i].put = true;
	if (!--known[i].uses && known[i].zombie)
		model_forget(i);
}

/* Puts all. */
static void model_end(void)
{
	inlay_cache_step_(&cache);
	while (knowns)
		if (known[0].uses)
			model_put(0);
		else
			model_forget(0);
}

/* Two rounds over all places that regions have had */
static bool model_evict(void)
{
	const uint32_t places = cache.slots_used_;
	uint32_t i, left;

	for (left = 2 * places; left; left--) {
		for (i = 0; i < knowns && known[i].r != inlay_cache_slot_(&cache, model_hand); i++)
			;
		model_hand = (model_hand + 1) % places;
		if (i < knowns && !known[i].zombie && !known[i].uses && !known[i].put) {
			model_forget(i);
			expect.evicted++;
			return true;
		}
		if (i < knowns)
			known[i].put = false;
	}
	return false;
}

/* Registers when it can be: 0, or what is reported */
static int model_enter(uint64_t first, uint64_t last, uint32_t access, uint32_t merged, uint32_t max, uint64_t max_bytes)
{
	const uint64_t bad = (fake.forbidden_page - BASE) / PAGE;
	struct known *k;

	if (knowns >= max || model_bytes() + (last - first + 1) * PAGE > max_bytes)
		model_out(first, last);
	while (knowns >= max || model_bytes() + (last - first + 1) * PAGE > max_bytes)
		if (!model_evict())
			return -EAGAIN;
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
	k->merges = merged;
	expect.registered++;
	return 0;
}

/* What overlaps, the lowest first: -1 when there is no more */
static int model_next(uint64_t first, uint64_t last)
{
	int found = -1;

	for (uint32_t i = 0; i < knowns; i++)
		if (!known[i].zombie && known[i].first <= last && known[i].last >= first &&
		    (found < 0 || known[i].first < known[found].first))
			found = (int)i;
	return found;
}

static uint64_t posted[MOST][2];
static uint32_t posts;

static void model_post(uint64_t addr, uint64_t len)
{
	inlay_cache_post(&cache, addr, len);
	posted[posts][0] = addr;
	posted[posts++][1] = len;
}

/* What was posted is out: all is, where there were more posts than places */
static void model_step(void)
{
	if (posts > POSTS) {
		expect.overflows++;
		expect.invalidated += model_out(0, UINT64_MAX);
	}
	for (; posts; posts--) {
		const uint64_t addr = posted[posts - 1][0], len = posted[posts - 1][1];

		if (len)
			expect.invalidated += model_out((addr - BASE) / PAGE, (addr + len - 1 - BASE) / PAGE);
	}
}

/* What a get should do; *at is the place of what it should give */
static int model_get(uint64_t first, uint64_t last, uint32_t access, uint32_t max, uint64_t max_bytes, uint32_t *at)
{
	uint64_t all_first = first, all_last = last;
	uint32_t all_access = access, i, batch, n, merged = 0;
	int err = -EAGAIN, k, large = 0;

	for (i = 0; i < knowns; i++)
		if (!known[i].zombie && known[i].first <= first && known[i].last >= last && !(access & ~known[i].access)) {
			known[i].uses++;
			*at = i;
			return 0;
		}
	expect.misses++;
	if ((last - first + 1) * PAGE > max_bytes) {
		failed++;
		return -E2BIG;
	}
	for (k = model_next(first, last); k >= 0 && !large; k = model_next(known[k].last + 1, last))
		if (!fake.apart || !((known[k].access ^ all_access) & ~1u)) {
			all_first = known[k].first < all_first ? known[k].first : all_first;
			all_last = known[k].last > all_last ? known[k].last : all_last;
			all_access |= known[k].access;
			merged += 1 + known[k].merges;
			large = (all_last - all_first + 1) * PAGE > max_bytes;
		}
	if (!large && (all_first != first || all_last != last || all_access != access)) {
		err = model_enter(all_first, all_last, all_access, merged, max, max_bytes);
		expect.merged += !err;
	}
	for (batch = 1; err; batch *= 2) {
		err = model_enter(first, last, access, 0, max, max_bytes);
		if (err != -ENOMEM && err != -EAGAIN && err != -ENOSPC)
			break;
		for (n = 0; n < batch && model_evict(); n++)
			;
		if (!n)
			break;
	}
	failed += !!err;
	*at = knowns - 1;
	return err;
}

static void same_counts(uint64_t max_bytes)
{
	const struct inlay_cache_counts *c = &cache.counts;
	uint32_t i, zombies = 0;

	for (i = 0; i < knowns; i++)
		zombies += known[i].zombie;
	assert_true(c->misses == expect.misses && c->registered == expect.registered && c->merged == expect.merged);
	assert_true(c->evicted == expect.evicted && c->invalidated == expect.invalidated);
	assert_true(c->overflows == expect.overflows && c->leaked == fake.leaked);
	assert_true(c->misses - c->registered == failed && c->zombies == zombies && c->regions == knowns - zombies);
	assert_true(c->bytes == model_bytes() && fake.bytes == model_bytes());
	assert_true(fake.now == knowns && fake.max_bytes_seen <= max_bytes);
}

/* Everything that a user still holds is as it was when it was got */
static void held_is_good(void)
{
	for (uint32_t i = 0; i < knowns; i++)
		if (known[i].uses) {
			const struct inlay_cache_region *r = known[i].r;

			assert_true(merges(r) == known[i].merges && r->uses == known[i].uses);
			assert_true(r->lkey == known[i].key && r->rkey == ~known[i].key);
			assert_int_equal(r->start, BASE + known[i].first * PAGE);
			assert_true(r->len == known_bytes(&known[i]) && r->access == known[i].access);
		}
}

/* ---- tests ---- */

/* Random gets, puts, posts, invalidations and failures, with each answer, key and count compared */
TEST(random_steps)
{
	static const int errors[] = {ENOMEM, EAGAIN, ENOSPC, EFAULT, EPERM};
	const char *env = getenv("CACHE_STEPS");
	const uint32_t steps = env && *env ? (uint32_t)strtoul(env, NULL, 0) : 150000;
	uint64_t tries[3] = {0, 0, 0}, max_bytes = 0;
	uint32_t step, max = 0, i, n, at = 0;
	void *memory = NULL;

	for (step = 0; step < steps; step++) {
		uint64_t first, last, addr, len;
		struct inlay_cache_region *r = NULL;
		uint32_t access;
		int err;

		if (step % 2000 == 0) {
			if (memory) {
				model_end();
				fake_end(memory);
			}
			max = 1 + rnd_below(MOST);
			max_bytes = rnd_below(2) ? UINT64_MAX : (rnd_below(2) ? 2 + rnd_below(8) : 8 + rnd_below(300)) * (uint64_t)PAGE - rnd_below(2);
			memory = fake_cache(max, max_bytes);
			fake.dereg_fails = rnd_below(2) ? 8 : 0;
			memset(&expect, 0, sizeof(expect));
			failed = 0;
			knowns = model_key = model_hand = posts = 0;
		}
		if (step % 100 == 0) {
			fake.refuse = rnd_below(3) ? 0 : errors[rnd_below(ARRAY(errors))];
			fake.good_after = rnd_below(max);
			fake.forbidden_page = rnd_below(3) ? UINT64_MAX : BASE + rnd_below(PAGES) * PAGE;
			fake.forbidden_access = rnd_below(2) ? 0 : 8;
			fake.apart = rnd_below(2);
		}
		switch (rnd_below(16)) {
		case 0: /* a part goes: at once, or by a post that the next get applies */
		case 1:
			addr = BASE + rnd_below(PAGES * PAGE);
			len = rnd_below(3) ? rnd_below(3 * PAGE) : rnd_below(PAGES * PAGE / 4);
			model_post(addr, len);
			if (posts == MOST || rnd_below(2)) {
				inlay_cache_step_(&cache);
				model_step();
			}
			break;
		case 2:
			n = 1 + rnd_below(3);
			if (rnd_below(20))
				break;
			for (i = 0; i < n && model_evict(); i++)
				;
			assert_int_equal(inlay_cache_evict_(&cache, n), i);
			break;
		case 3:
			i = knowns ? rnd_below(knowns) : 0;
			if (!knowns || !known[i].uses)
				break;
			known[i].r->uses++;
			known[i].uses++;
			break;
		case 4 ... 8:
			i = knowns ? rnd_below(knowns) : 0;
			if (knowns && known[i].uses)
				model_put(i);
			break;
		default:
			addr = BASE + rnd_below(PAGES * PAGE);
			len = rnd_below(rnd_below(2) ? 2 * PAGE : rnd_below(10) ? 12 * PAGE : PAGES * PAGE);
			access = rnd_below(4) ? rnd_below(8) ? 7 : 6 : rnd_below(16);
			/* Now and then something that is there */
			if (knowns && rnd_below(2)) {
				i = rnd_below(2) ? at % knowns : rnd_below(knowns);
				addr = BASE + known[i].first * PAGE + rnd() % known_bytes(&known[i]);
				len = rnd() % (known_bytes(&known[i]) + PAGE);
			}
			first = (addr - BASE) / PAGE;
			last = (addr + (len ? len - 1 : 0) - BASE) / PAGE;
			model_step();
			err = model_get(first, last, access, max, max_bytes, &at);
			assert_int_equal(inlay_cache_get(&cache, addr, len, access, &r), err);
			tries[err == 0 ? 0 : err == -EAGAIN ? 1 : 2]++;
			if (err) {
				assert_null(r);
				break;
			}
			if (!known[at].r)
				known[at].r = r;
			assert_ptr_equal(r, known[at].r);
			assert_true(r->start <= addr && r->start + r->len >= addr + len && !(access & ~r->access));
		}
		held_is_good();
		same_counts(max_bytes);
		if (step % 64 == 0)
			tree_height();
	}
	model_end();
	fake_end(memory);
	print_message("# gets: %" PRIu64 " good, %" PRIu64 " without room, %" PRIu64 " refused\n", tries[0], tries[1],
		      tries[2]);
	assert_true(tries[0] > steps / 10 && tries[1] > steps / 1000 && tries[2] > steps / 1000);
}

static struct inlay_cache_region *got(uint64_t addr, uint64_t len, uint32_t access)
{
	struct inlay_cache_region *r = NULL;

	must(inlay_cache_get(&cache, addr, len, access, &r));
	return r;
}

/* The tree is at most 4 log2(n) high with n regions and with half of them: upwards, downwards, from both ends inwards, scattered */
TEST(height)
{
	const uint32_t n = 4000;

	for (uint32_t order = 0; order < 4; order++) {
		void *memory = fake_cache(n, UINT64_MAX);

		for (uint32_t i = 0; i < 2 * n; i++) {
			const uint32_t k = i % n, places[4] = {k, n - 1 - k, k & 1 ? n - 1 - k / 2 : k / 2, k * 7919 % n};
			const uint64_t addr = BASE + places[order] * 3ull * PAGE;

			if (i < n)
				inlay_cache_put(&cache, got(addr, PAGE, 1));
			else
				assert_int_equal(invalidate(addr, PAGE), 1);
			if (i == n - 1 || i == n + n / 2)
				assert_true(tree_height() <= 4 * 12);
		}
		fake_end(memory);
	}
}

/* The ends of the address space, and arguments out of their range */
TEST(extremes)
{
	static const struct inlay_cache_attr bad[] = {
		{0, POSTS, 1, PAGE, BYTES}, {INLAY_CACHE_MAX + 1, POSTS, 1, PAGE, BYTES}, {4, 0, 1, PAGE, BYTES},
		{4, 2 * INLAY_CACHE_MAX, 1, PAGE, BYTES}, {4, POSTS, 0, PAGE, BYTES}, {4, POSTS, 1, 0, BYTES},
		{4, POSTS, 1, 32, BYTES}, {4, POSTS, 1, 4095, BYTES}, {4, POSTS, 1, PAGE, 8193},
	};
	static const uint64_t beyond[][2] = {{UINT64_MAX, 2}, {5, UINT64_MAX}, {0, UINT64_MAX}};
	struct inlay_cache_attr attr = {4, POSTS, 1, PAGE, BYTES}, most = {4, POSTS, 1, PAGE, 8192};
	struct inlay_cache_region *r, *low, *none = NULL;
	size_t size = inlay_cache_size(&attr);
	void *memory = fake_cache(4, UINT64_MAX);
	struct inlay_cache_ops ops = cache.ops;
	struct inlay_cache other;

	r = got(UINT64_MAX, 1, 1);
	assert_true(r->start == UINT64_MAX - PAGE + 1 && r->len == PAGE);
	assert_ptr_equal(got(UINT64_MAX, 0, 1), r); /* 0 counts as 1 */
	assert_ptr_equal(got(UINT64_MAX - 5, 6, 1), r);
	for (uint32_t i = 0; i < ARRAY(beyond); i++) /* the last: all pages there are, of which no length says so */
		assert_int_equal(inlay_cache_get(&cache, beyond[i][0], beyond[i][1], 1, &none), -EINVAL);
	low = got(0, 0, 1);
	assert_int_equal(low->start, 0);
	inlay_cache_post(&cache, UINT64_MAX, 5); /* beyond the end */
	inlay_cache_step_(&cache);
	assert_int_equal(cache.counts.regions, 1);
	assert_true(invalidate(0, 0) == 0 && invalidate(0, UINT64_MAX) == 1);
	/* Zombies count */
	assert_int_equal(inlay_cache_get(&cache, PAGE, UINT64_MAX - PAGE, 1, &none), -EAGAIN);
	for (uint32_t i = 0; i < 3; i++)
		inlay_cache_put(&cache, r);
	inlay_cache_put(&cache, low);
	r = got(PAGE, UINT64_MAX - PAGE, 1);
	assert_int_equal(r->len, UINT64_MAX - PAGE + 1);
	inlay_cache_put(&cache, r);
	/* An overlap that ends at the last byte; a union that would be all of the address space is not tried */
	low = got(0, 2 * PAGE, 1);
	assert_true(low->len == 2 * PAGE && cache.counts.regions == 1);

	must(inlay_cache_init(&other, memory, size, &attr, &ops));
	assert_int_equal(inlay_cache_init(&other, memory, size - 1, &attr, &ops), -ENOBUFS);
	assert_int_equal(inlay_cache_init(&other, NULL, size, &attr, &ops), -EINVAL);
	assert_int_equal(inlay_cache_init(&other, (uint8_t *)memory + 8, size, &attr, &ops), -EINVAL);
	assert_true(inlay_cache_size(&most) > 4 * 8192);
	for (uint32_t i = 0; i < ARRAY(bad); i++) {
		assert_int_equal(inlay_cache_size(&bad[i]), 0);
		assert_int_equal(inlay_cache_init(&other, memory, SIZE_MAX, &bad[i], &ops), -EINVAL);
	}
	ops.reg = NULL;
	assert_int_equal(inlay_cache_init(&other, memory, size, &attr, &ops), -EINVAL);
	free(memory);
}

/* ---- posts ---- */

/* What the model does not post: in a callback, applied by the same step; expected, and nothing came */
TEST(posting)
{
	struct inlay_cache_region *a;
	void *memory = fake_cache(16, UINT64_MAX);
	uint32_t regions;

	a = got(BASE + 4 * PAGE, 1, 1);
	inlay_cache_put(&cache, got(BASE, 1, 1));
	fake.post_start = BASE + 4 * PAGE;
	fake.post_len = 1;
	assert_int_equal(invalidate(BASE, 1), 2);
	assert_ptr_not_equal(got(BASE + 4 * PAGE, 1, 1), a);
	inlay_cache_expect_(&cache);
	inlay_cache_settle_(&cache, 5, 0);
	regions = cache.counts.regions;
	inlay_cache_step_(&cache);
	assert_int_equal(cache.counts.regions, regions);
	free(memory);
}

/* A thread posts what the owner gets, without a function to wait by: whatever has been posted is gone after a step */
static void *poster(void *unused)
{
	for (uint32_t i = 0; i < 20000; i++)
		inlay_cache_post(&cache, BASE + i % 16 * PAGE, 1);
	return unused;
}

TEST(posts_meet)
{
	void *memory = fake_cache(16, UINT64_MAX);
	pthread_t t;

	must(pthread_create(&t, NULL, poster, NULL));
	for (uint32_t i = 0; i < 20000; i++)
		inlay_cache_put(&cache, got(BASE + i % 16 * PAGE, 1, 1));
	must(pthread_join(t, NULL));
	invalidate(BASE, 16 * PAGE);
	assert_int_equal(cache.counts.regions, 0);
	fake_end(memory);
}

#if INLAY_CHECKED
TEST(checked)
{
	void *memory = fake_cache(4, UINT64_MAX);
	struct inlay_cache_region *e = got(BASE, 1, 1);

	assert_aborts("one put for each get", inlay_cache_put(&cache, e); inlay_cache_put(&cache, e));
	free(memory);
}
#endif

/* ---- memory regions ---- */

/* Regions of a device: what they reach by their keys, while they are there; memory that is not there is refused by the kernel */
TEST(device)
{
	const struct inlay_cache_ops ops = {inlay_cache_reg_mr, inlay_cache_dereg_mr, NULL, NULL, dev.pd};
	const struct inlay_cache_attr attr = {8, POSTS, 32 * PAGE, PAGE, 0};
	const int rw = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	void *memory = pages(inlay_cache_size(&attr));
	uint8_t *buf = (uint8_t *)pages(64 * PAGE), *bad;
	struct inlay_cache_region *src, *dst, *r = NULL;
	struct opt opt = usual;
	struct end a, b;
	uint32_t i;

	ends_make(&a, &b, &opt);
	end_take(&a, INLAY_UAR_SERIAL);
	must(inlay_cache_init(&cache, memory, inlay_cache_size(&attr), &attr, &ops));
	for (i = 0; i < 30; i++) { /* more than the cache holds */
		uint8_t *from = buf + rnd_below(20 * PAGE), *to = buf + 30 * PAGE + rnd_below(20 * PAGE);
		uint32_t len = 1 + rnd_below(3 * PAGE);
		struct ibv_sge sge = {(uintptr_t)from, len, 0};

		fill(from, len, i);
		must(inlay_cache_get(&cache, (uintptr_t)from, len, 0, &src));
		must(inlay_cache_get(&cache, (uintptr_t)to, len, rw, &dst));
		sge.lkey = src->lkey;
		must(inlay_post_write(&a.sq, (uintptr_t)to, dst->rkey, &sge, 1, INLAY_SIGNALED | INLAY_RING));
		sent(&a);
		assert_int_equal(differs(to, len, i), len);
		inlay_cache_put(&cache, src);
		inlay_cache_put(&cache, dst);
	}
	bad = (uint8_t *)mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(munmap(bad, PAGE));
	assert_true(inlay_cache_get(&cache, (uintptr_t)bad, PAGE, 0, &r) == -EFAULT && !r);
	must(inlay_cache_get(&cache, (uintptr_t)buf, 8, rw, &dst));
	i = dst->rkey;
	assert_int_equal(inlay_cache_fini(&cache), -EBUSY);
	inlay_cache_put(&cache, dst);
	must(inlay_cache_fini(&cache));
	must(inlay_post_write_inline(&a.sq, (uintptr_t)buf, i, &i, 4, INLAY_SIGNALED | INLAY_RING));
	assert_int_equal(inlay_cqe_status(cqe_wait(&a.cq)), IBV_WC_REM_ACCESS_ERR);
	end_free(&a);
	end_free(&b);
	free(memory);
	free(buf);
}

static int plain_call(UNUSED void *context, UNUSED struct inlay_cache_region *r)
{
	return 0;
}

static void step_once(void)
{
	inlay_cache_step_(&cache);
}

static void post_third(void)
{
	inlay_cache_post(&cache, BASE + 8 * PAGE, 1);
}

/* After any instruction of a step another thread posts, and the other way round: no post is lost */
TEST(post_meets_step)
{
	struct inlay_cache_attr attr = {4, POSTS, UINT64_MAX, PAGE, 0};
	struct inlay_cache_ops ops = {plain_call, plain_call, NULL, NULL, NULL};
	uint32_t way, i, k;
	void *memory;
	int within;

	interleave_possible();
	memory = pages(inlay_cache_size(&attr));
	must(inlay_cache_init(&cache, memory, inlay_cache_size(&attr), &attr, &ops));
	interleave_begin(&cache.lock_);
	for (way = 0; way < 2; way++) {
		for (i = 1, within = 1; within; i++) {
			for (k = 0; k < 3; k++)
				inlay_cache_put(&cache, got(BASE + k * 4 * PAGE, 1, 1));
			for (k = 0; k < 2; k++)
				inlay_cache_post(&cache, BASE + k * 4 * PAGE, 1);
			within = way ? interleave(post_third, step_once, i) : interleave(step_once, post_third, i);
			inlay_cache_step_(&cache);
			assert_int_equal(cache.counts.regions, 0);
		}
		assert_true(i > 5);
	}
	interleave_end();
	must(inlay_cache_fini(&cache));
	free(memory);
}

int main(void)
{
	return run_all(dev_open, dev_close);
}
