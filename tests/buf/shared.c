/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shared.c: an inventory for many threads: its rules and errors, and threads at work, each of which frees what others got: producers and
 * consumers, references in several hands, lists, growth and stop meanwhile. Made to be built with -fsanitize=thread too. Takes no device.
 */
#include "rig.h"
#include "interleave.h"
#include <pthread.h>
#include <signal.h>

#define THREADS 4
#define BYTES (1u << 20)

#if defined(__SANITIZE_THREAD__)
#define ROUNDS 100000
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ROUNDS 100000
#endif
#endif
#ifndef ROUNDS
#define ROUNDS 1000000
#endif

static struct inlay_mmap map, second;
static uint8_t *mem;
static struct inlay_inventory *shared;
static struct inlay_inventory attached[THREADS];
static uint32_t bad; /* what went wrong in the threads, where cmocka cannot fail */

#define expect(cond) ((cond) ? (void)0 : (void)__atomic_store_n(&bad, __LINE__, __ATOMIC_RELAXED))

static void map_open(struct inlay_mmap *m)
{
	must(inlay_mmap_create(m, given(inlay_mmap_size(1, 2)), inlay_mmap_size(1, 2), 1, 2));
	must(inlay_mmap_add(m, inlay_source_host(mem, BYTES / 2)));
	must(inlay_mmap_add(m, inlay_source_host(mem + BYTES / 2, BYTES / 2)));
	must(inlay_mmap_start(m));
}

static void map_close(struct inlay_mmap *m)
{
	void *state = (uint8_t *)m->table_ - inlay_table_index_bytes_(2);

	must(inlay_mmap_destroy(m));
	given_free(state);
}

static int setup(UNUSED void **state)
{
	rnd_seed();
	mem = (uint8_t *)pages(BYTES);
	map_open(&map);
	map_open(&second);
	return 0;
}

static int teardown(UNUSED void **state)
{
	map_close(&map);
	map_close(&second);
	free(mem);
	return 0;
}

static void shared_make(uint32_t num)
{
	must(inlay_inventory_create(given(inlay_inventory_size(num)), inlay_inventory_size(num), num, &shared));
	shared->shared = 1;
	must(inlay_inventory_start(shared));
	bad = 0;
}

/* Everything is back: no descriptor and no count is missing */
static void shared_free(uint32_t num)
{
	if (bad)
		fail_msg("line %u", bad);
	assert_int_equal(inlay_inventory_num_elements(shared), num);
	assert_int_equal(inlay_inventory_num_free(shared), num);
	assert_int_equal(inlay_mmap_num_bufs(&map), 0);
	assert_int_equal(inlay_mmap_num_bufs(&second), 0);
	must(inlay_inventory_destroy(shared));
	given_free(shared);
}

static void run(void *(*fn)(void *))
{
	pthread_t t[THREADS];
	uintptr_t i;

	for (i = 0; i < THREADS; i++)
		must(pthread_create(&t[i], NULL, fn, (void *)i));
	for (i = 0; i < THREADS; i++)
		must(pthread_join(t[i], NULL));
}

/* Random numbers of a thread's own */
static uint32_t below(uint64_t *seed, uint32_t n)
{
	*seed = *seed * 6364136223846793005 + 1442695040888963407;
	return (uint32_t)((*seed >> 32) * n >> 32);
}

/* By an attached inventory: how many were taken */
static uint32_t give_all(struct inlay_inventory *inv, struct inlay_buf *const *b, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && !inlay_inventory_dec_refcount(inv, b[i], NULL); i++)
		;
	return i;
}

/* ---- by one thread ---- */

TEST(rules)
{
	struct inlay_inventory *a = &attached[0], *b = &attached[1];
	struct inlay_buf *x = NULL, *y = NULL, *z = NULL, *all[600];
	struct inlay_inventory *plain = NULL, *other = NULL;
	struct inlay_mmap single;
	size_t size = inlay_inventory_size(600);
	void *memory = given(size), *more;
	uint16_t prev = 7;
	uint32_t i;

	map_open(&single);
	assert_int_equal(inlay_inventory_create(NULL, size, 600, &shared), -EINVAL);
	assert_int_equal(inlay_inventory_create(memory, size - 1, 600, &shared), -ENOBUFS);
	assert_int_equal(inlay_inventory_create((uint8_t *)memory + 4, size, 600, &shared), -EINVAL);
	assert_int_equal(inlay_inventory_create(memory, size, 0, &shared), -EINVAL);
	must(inlay_inventory_create(memory, size, 600, &shared));
	assert_int_equal(inlay_inventory_attach(a, shared), -EINVAL);
	shared->shared = 1;
	assert_int_equal(inlay_inventory_attach((struct inlay_inventory *)((uintptr_t)a + 8), shared), -EINVAL);
	must(inlay_inventory_attach(a, shared));
	must(inlay_inventory_attach(b, shared));
	assert_int_equal(inlay_inventory_get_by_data(a, &map, mem, 64, &x), -EBADFD);
	assert_int_equal(inlay_inventory_stop(shared), -EBADFD);
	more = given(inlay_inventory_size(10));
	assert_int_equal(inlay_inventory_expand(shared, more, inlay_inventory_size(10), 10), -EBADFD);
	given_free(more);
	must(inlay_inventory_start(shared));
	assert_int_equal(inlay_inventory_start(shared), -EBADFD);
	assert_int_equal(inlay_inventory_get_by_data(shared, &map, mem, 64, &x), -EINVAL);
	assert_int_equal(inlay_inventory_get_by_data(a, &map, mem - 1, 64, &x), -EINVAL);
	assert_int_equal(inlay_inventory_get_by_data(a, &map, mem + BYTES / 2 - 1, 2, &x), -EINVAL);
	assert_int_equal(inlay_inventory_get_by_data(a, &map, mem, 1ull << 31, &x), -EINVAL);
	must(inlay_mmap_stop(&single));
	assert_int_equal(inlay_inventory_get_by_data(a, &single, mem, 64, &x), -EBADFD);
	assert_int_equal(inlay_inventory_num_free(shared), 600);
	/* Windows and references, given back by another thread's inventory, by none */
	must(inlay_inventory_get_by_args(a, &map, mem + 100, 64, mem + 110, 5, &x));
	assert_ptr_equal(inlay_buf_head(x), mem + 100);
	assert_ptr_equal(inlay_buf_data(x), mem + 110);
	assert_int_equal(inlay_buf_len(x), 64);
	assert_int_equal(inlay_buf_data_len(x), 5);
	must(inlay_inventory_get_by_addr(a, &map, mem + 200, 64, &y));
	assert_int_equal(inlay_buf_data_len(y), 0);
	assert_int_equal(inlay_inventory_num_free(shared), 598);
	assert_int_equal(inlay_inventory_destroy(shared), -EBUSY);
	must(inlay_buf_inc_refcount(x, &prev));
	assert_int_equal(prev, 1);
	must(inlay_inventory_dec_refcount(b, x, &prev));
	assert_int_equal(prev, 2);
	must(inlay_inventory_dec_refcount(b, x, &prev));
	assert_int_equal(prev, 1);
	prev = 7;
	assert_int_equal(inlay_inventory_dec_refcount(a, x, &prev), -EBADFD);
	assert_int_equal(inlay_buf_dec_refcount(x, &prev), -EBADFD);
	assert_int_equal(inlay_buf_inc_refcount(x, &prev), -EBADFD);
	assert_int_equal(prev, 7);
	must(inlay_buf_inc_refcount(y, NULL));
	must(inlay_buf_dec_refcount(y, &prev));
	assert_int_equal(prev, 2);
	must(inlay_buf_dec_refcount(y, &prev));
	assert_int_equal(inlay_inventory_num_free(shared), 600);
	for (i = 1, must(inlay_inventory_get_by_data(a, &map, mem, 64, &x)); i < UINT16_MAX; i++)
		must(inlay_buf_inc_refcount(x, NULL));
	assert_int_equal(inlay_buf_inc_refcount(x, NULL), -ENOSPC);
	while (i--)
		must(i % 2 ? inlay_buf_dec_refcount(x, NULL) : inlay_inventory_dec_refcount(a, x, NULL));
	assert_int_equal(inlay_inventory_num_free(shared), 600);
	/* The count of an mmap is exact, whatever attached hold */
	must(inlay_inventory_get_by_data(a, &map, mem, 64, &x));
	assert_int_equal(inlay_mmap_num_bufs(&map), 1);
	assert_int_equal(inlay_mmap_stop(&map), -EBUSY);
	must(inlay_inventory_dec_refcount(b, x, NULL));
	assert_int_equal(inlay_mmap_num_bufs(&map), 0);
	must(inlay_mmap_stop(&map));
	assert_int_equal(inlay_inventory_get_by_data(a, &map, mem, 64, &x), -EBADFD);
	must(inlay_mmap_start(&map));
	/* Lists of several inventories */
	must(inlay_inventory_create(given(inlay_inventory_size(4)), inlay_inventory_size(4), 4, &plain));
	must(inlay_inventory_start(plain));
	for (i = 0; i < 4; i++) {
		must(inlay_inventory_get_by_data(a, &map, mem, 64, &x));
		must(inlay_inventory_get_by_data(plain, &second, mem, 64, &y));
		must(inlay_inventory_get_by_data(a, &second, mem, 64, &z));
		must(inlay_buf_chain_list(x, y));
		must(inlay_buf_chain_list(x, z));
		assert_int_equal(inlay_inventory_dec_refcount(a, y, NULL), -EINVAL);
		assert_int_equal(inlay_inventory_dec_refcount(a, z, NULL), -EINVAL);
		assert_int_equal(inlay_inventory_dup(a, y, &z), -EINVAL);
		assert_int_equal(inlay_inventory_dup(shared, x, &z), -EINVAL);
		must(inlay_inventory_dup(b, x, &z));
		assert_int_equal(inlay_buf_list_len(z), 3);
		assert_int_equal(inlay_inventory_num_free(shared), 595);
		must(i % 2 ? inlay_inventory_dec_refcount(b, x, NULL) : inlay_buf_dec_refcount(x, NULL));
		must(i < 2 ? inlay_inventory_dec_refcount(a, z, NULL) : inlay_buf_dec_refcount(z, NULL));
		assert_int_equal(inlay_inventory_dup(a, x, &z), -EBADFD);
		assert_int_equal(inlay_inventory_num_free(plain), 4);
		assert_int_equal(inlay_inventory_num_free(shared), 600);
	}
	must(inlay_inventory_destroy(plain));
	given_free(plain);
	/* And of two shared ones, which the first one's attached inventory gives back to both */
	must(inlay_inventory_create(given(inlay_inventory_size(4)), inlay_inventory_size(4), 4, &other));
	other->shared = 1;
	must(inlay_inventory_start(other));
	must(inlay_inventory_attach(&attached[2], other));
	must(inlay_inventory_get_by_data(a, &map, mem, 64, &x));
	must(inlay_inventory_get_by_data(&attached[2], &map, mem, 64, &y));
	must(inlay_buf_chain_list(x, y));
	must(inlay_inventory_dec_refcount(a, x, NULL));
	must(inlay_inventory_get_by_data(&attached[2], &map, mem, 64, &y));
	must(inlay_inventory_dec_refcount(a, y, NULL));
	assert_int_equal(inlay_inventory_num_free(shared), 600);
	assert_int_equal(inlay_inventory_num_free(other), 4);
	inlay_inventory_detach(&attached[2]);
	must(inlay_inventory_destroy(other));
	given_free(other);
	/* All of them, by both; then none; all different */
	for (i = 0; i < 600; i++)
		if (inlay_inventory_get_by_data(i % 16 < 8 ? a : b, &map, mem, 64, &all[i]))
			must(inlay_inventory_get_by_data(i % 16 < 8 ? b : a, &map, mem, 64, &all[i]));
	assert_int_equal(inlay_inventory_get_by_data(a, &map, mem, 64, &x), -EAGAIN);
	assert_int_equal(inlay_inventory_get_by_data(b, &map, mem, 64, &x), -EAGAIN);
	assert_int_equal(inlay_inventory_dup(b, all[0], &x), -EAGAIN);
	assert_int_equal(inlay_inventory_num_free(shared), 0);
	for (i = 0; i < 600; i++) {
		inlay_buf_set_data_len(all[i], 0);
		assert_int_equal(inlay_buf_refcount(all[i]), 1);
	}
	assert_int_equal(give_all(b, all, 5), 5);
	assert_int_equal(inlay_inventory_num_free(shared), 5);
	for (i = 0; i < 5; i++)
		must(inlay_inventory_get_by_data(b, &map, mem, 64, &all[i]));
	assert_int_equal(give_all(a, all, 600), 600);
	assert_int_equal(give_all(a, all, 600), 0);
	assert_int_equal(inlay_inventory_num_free(shared), 600);
	assert_int_equal(inlay_inventory_destroy(shared), -EBUSY);
	inlay_inventory_detach(a);
	inlay_inventory_detach(b);
	must(inlay_inventory_stop(shared));
	shared_free(600);
	map_close(&single);
}

/* A cache goes to the store once for 64 descriptors, and holds 128 at most. */
TEST(seldom)
{
	struct inlay_inventory *a = &attached[0], *b = &attached[1];
	uint32_t taken = 0, given_back = 0, before, i, k;
	struct inlay_buf *all[1000];

	shared_make(1000);
	must(inlay_inventory_attach(a, shared));
	must(inlay_inventory_attach(b, shared));
	for (i = 0; i < 1000; i++) {
		before = a->cache_.num;
		must(inlay_inventory_get_by_data(a, &map, mem, 64, &all[i]));
		taken += a->cache_.num > before;
	}
	for (; i; i--) {
		k = rnd_below(i);
		before = b->cache_.num;
		must(inlay_inventory_dec_refcount(b, all[k], NULL));
		all[k] = all[i - 1];
		given_back += b->cache_.num < before;
		assert_true(b->cache_.num <= 128);
	}
	assert_int_equal(taken, (1000 + 63) / 64);
	assert_int_equal(given_back, (1000 - 128 + 63) / 64);
	/* What was cached at detach can be had again */
	inlay_inventory_detach(a);
	inlay_inventory_detach(b);
	must(inlay_inventory_attach(a, shared));
	for (i = 0; i < 1000; i++)
		must(inlay_inventory_get_by_data(a, &map, mem, 64, &all[i]));
	assert_int_equal(give_all(a, all, 1000), 1000);
	inlay_inventory_detach(a);
	shared_free(1000);
}

/* More mmaps than a shared inventory has accounts for */
TEST(many_maps)
{
	enum { MAPS = 12 };
	static struct inlay_mmap maps[MAPS];
	struct inlay_buf *bufs[400], *x = NULL;
	uint32_t of[400], live[MAPS], i, k, n = 0;

	shared_make(1000);
	memset(live, 0, sizeof(live));
	for (i = 0; i < MAPS; i++)
		map_open(&maps[i]);
	must(inlay_inventory_attach(&attached[0], shared));
	must(inlay_inventory_attach(&attached[1], shared));
	for (i = 0; i < 200000; i++) {
		if (n == 400 || (n && rnd_below(2))) {
			k = rnd_below(n);
			live[of[k]]--;
			must(inlay_inventory_dec_refcount(&attached[rnd_below(2)], bufs[k], NULL));
			bufs[k] = bufs[--n];
			of[k] = of[n];
		} else {
			of[n] = rnd_below(rnd_below(2) ? 2 : MAPS);
			live[of[n]]++;
			must(inlay_inventory_get_by_data(&attached[rnd_below(2)], &maps[of[n]], mem, 64, &bufs[n]));
			n++;
		}
		k = rnd_below(MAPS);
		assert_int_equal(inlay_mmap_num_bufs(&maps[k]), live[k]);
		if (i % 5000 == 0) {
			assert_int_equal(inlay_inventory_num_free(shared), 1000 - n);
			/* One that has no buffers goes, and comes back, with an account or without */
			if (!live[k]) {
				must(inlay_mmap_stop(&maps[k]));
				assert_int_equal(inlay_inventory_get_by_data(&attached[0], &maps[k], mem, 64, &x), -EBADFD);
				must(inlay_mmap_start(&maps[k]));
			}
		}
	}
	while (n--)
		must(inlay_buf_dec_refcount(bufs[n], NULL));
	inlay_inventory_detach(&attached[1]);
	inlay_inventory_detach(&attached[0]);
	for (k = 0; k < MAPS; k++) {
		assert_int_equal(inlay_mmap_num_bufs(&maps[k]), 0);
		map_close(&maps[k]);
	}
	shared_free(1000);
}

/* Gets and releases of eight maps write nothing to these; those of a ninth one do, until one of the others goes. */
TEST(ties)
{
	static struct inlay_mmap maps[9], before[9];
	struct inlay_inventory *mag = &attached[0];
	struct inlay_buf *b[9] = {NULL}, *copy = NULL;

	shared_make(1000);
	for (uint32_t k = 0; k < 9; k++)
		map_open(&maps[k]);
	must(inlay_inventory_attach(mag, shared));
	for (uint32_t i = 0; i < 3; i++) {
		for (uint32_t k = 0; k < 9; k++)
			must(inlay_inventory_get_by_data(mag, &maps[k], mem, 64, &b[k]));
		for (uint32_t k = 0; k < 9; k++) {
			if (i) {
				assert_int_equal(maps[k].holds_, k == 8);
				assert_memory_equal(&maps[k], &before[k], offsetof(struct inlay_mmap, holds_));
			}
			assert_int_equal(inlay_mmap_num_bufs(&maps[k]), 1);
			must(inlay_inventory_dup(mag, b[k], &copy));
			assert_int_equal(inlay_mmap_num_bufs(&maps[k]), 2);
			must(inlay_buf_dec_refcount(copy, NULL));
		}
		for (uint32_t k = 0; k < 9; k++)
			must(k % 2 ? inlay_inventory_dec_refcount(mag, b[k], NULL) : inlay_buf_dec_refcount(b[k], NULL));
		for (uint32_t k = 0; k < 9; k++)
			assert_int_equal(inlay_mmap_num_bufs(&maps[k]), 0);
		memcpy(before, maps, sizeof(maps));
	}
	must(inlay_mmap_stop(&maps[3]));
	must(inlay_mmap_start(&maps[3]));
	for (uint32_t k = 9; k--;)
		must(inlay_inventory_get_by_data(mag, &maps[k], mem, 64, &b[k]));
	for (uint32_t k = 0; k < 9; k++) {
		assert_int_equal(maps[k].holds_, k == 3);
		assert_int_equal(inlay_mmap_num_bufs(&maps[k]), 1);
		must(inlay_inventory_dec_refcount(mag, b[k], NULL));
	}
	inlay_inventory_detach(mag);
	for (uint32_t k = 0; k < 9; k++)
		map_close(&maps[k]);
	shared_free(1000);
}

/* A shared inventory that was stopped gives nothing, whatever its attached remember and look for meanwhile */
static uint32_t phase; /* odd: stopped */

static void *get_until(void *arg)
{
	struct inlay_inventory *mag = &attached[(uintptr_t)arg];
	struct inlay_buf *b = NULL;
	uint32_t i, before;
	int err;

	expect(!inlay_inventory_attach(mag, shared));
	for (i = 0; (before = __atomic_load_n(&phase, __ATOMIC_ACQUIRE)) != UINT32_MAX; i++) {
		/* The map changes every third get, so that some gets search for the range and others remember it */
		err = inlay_inventory_get_by_data(mag, i / 3 % 2 ? &map : &second, mem, 64, &b);
		if (!err)
			expect(!inlay_inventory_dec_refcount(mag, b, NULL));
		if (before == __atomic_load_n(&phase, __ATOMIC_ACQUIRE) && before % 2)
			expect(err == -EBADFD);
		else
			expect(!err || err == -EBADFD);
	}
	inlay_inventory_detach(mag);
	return NULL;
}

TEST(stopped_is_stopped)
{
	pthread_t t[2];

	shared_make(1000);
	phase = 0;
	for (uint32_t i = 0; i < 2; i++)
		must(pthread_create(&t[i], NULL, get_until, (void *)(uintptr_t)i));
	for (uint32_t i = 0; i < 2 * (ROUNDS / 50); i++) {
		must(i % 2 ? inlay_inventory_start(shared) : inlay_inventory_stop(shared));
		__atomic_store_n(&phase, i + 1, __ATOMIC_RELEASE);
		for (uint32_t k = 0; k < 100 + i % 64; k++)
			inlay_relax();
		/* It may be started before this is seen, but not before it is said */
		if (i % 2 == 0)
			__atomic_store_n(&phase, i + 2, __ATOMIC_SEQ_CST);
	}
	__atomic_store_n(&phase, UINT32_MAX, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < 2; i++)
		must(pthread_join(t[i], NULL));
	shared_free(1000);
}

/* ---- every interleaving ---- */

static struct inlay_inventory *pair[2];
static struct inlay_buf *got;
static int get_error;

static void get_one(void)
{
	get_error = inlay_inventory_get_by_data(&attached[0], &map, mem, 64, &got);
}

static void stop_shared(void)
{
	expect(!inlay_inventory_stop(shared));
}

static void open_first(void)
{
	inlay_holder_open_(&pair[0]->cache_.store->holders[INLAY_STORE_MAPS_ - 1], &map);
}

static void close_first(void)
{
	inlay_holder_close_(&pair[0]->cache_.store->holders[INLAY_STORE_MAPS_ - 1]);
}

static void destroy_second(void)
{
	expect(!inlay_inventory_destroy(pair[1]));
}

/* After any instruction of a get another thread stops the inventory, and the other way round: the next get is refused */
TEST(stop_meets_get)
{
	struct inlay_inventory *inv = &attached[0];
	uint32_t way, i;
	int within = 1;

	interleave_possible();
	interleave_begin(NULL);
	shared_make(100);
	must(inlay_inventory_attach(&attached[0], shared));
	for (way = 0; way < 4; way++) {
		for (i = 1, within = 1; within; i += 1 + i / 64) { /* the state is read early */
			/* It remembers the map that it will get from, or another one */
			must(inlay_inventory_get_by_data(inv, way & 1 ? &map : &second, mem, 64, &got));
			must(inlay_inventory_dec_refcount(inv, got, NULL));
			within = way & 2 ? interleave(get_one, stop_shared, i) : interleave(stop_shared, get_one, i);
			assert_true(!get_error || get_error == -EBADFD);
			if (!get_error)
				must(inlay_inventory_dec_refcount(inv, got, NULL));
			get_one();
			assert_int_equal(get_error, -EBADFD);
			assert_int_equal(inlay_inventory_get_by_data(inv, &second, mem, 64, &got), -EBADFD);
			must(inlay_inventory_start(shared));
		}
		assert_true(i > 5);
	}
	inlay_inventory_detach(&attached[0]);
	shared_free(100);
	interleave_end();
}

static void *more;

static void detach_first(void)
{
	inlay_inventory_detach(&attached[0]);
}

static void give_one(void)
{
	expect(!inlay_buf_dec_refcount(got, NULL));
}

/* After any instruction with which an attached inventory gives its descriptors back, another thread gives one of the same block back */
TEST(gives_meet)
{
	struct inlay_buf *all[100];
	uint32_t i, k;
	int within;

	interleave_possible();
	shared_make(100);
	interleave_begin(&shared->cache_.store->lock);
	for (i = 1, within = 1; within; i++) {
		must(inlay_inventory_attach(&attached[0], shared));
		for (k = 0; k < 100; k++)
			must(inlay_inventory_get_by_data(&attached[0], &map, mem, 64, &all[k]));
		/* Each is there once */
		assert_int_equal(inlay_inventory_num_free(shared), 0);
		got = all[0];
		assert_int_equal(give_all(&attached[0], all + 1, 99), 99);
		within = interleave(detach_first, give_one, i);
	}
	assert_true(i > 5);
	interleave_end();
	shared_free(100);
}

static void count_second(void)
{
	expect(!inlay_mmap_num_bufs(&second));
}

/* After any instruction of a get, another thread counts the buffers of the map that the descriptor was for before */
TEST(count_meets_get)
{
	struct inlay_inventory *inv = &attached[0];
	struct inlay_buf *two[2];
	uint32_t i, k;
	int within;

	interleave_possible();
	interleave_begin(NULL);
	shared_make(2);
	must(inlay_inventory_attach(&attached[0], shared));
	for (i = 1, within = 1; within; i++) {
		for (k = 0; k < 2; k++)
			must(inlay_inventory_get_by_data(inv, &second, mem, 64, &two[k]));
		for (k = 0; k < 2; k++)
			must(inlay_inventory_dec_refcount(inv, two[k], NULL));
		must(inlay_inventory_get_by_data(inv, &map, mem, 64, &two[0]));
		within = interleave(get_one, count_second, i);
		must(get_error);
		must(inlay_inventory_dec_refcount(inv, got, NULL));
		must(inlay_inventory_dec_refcount(inv, two[0], NULL));
	}
	assert_true(i > 5);
	inlay_inventory_detach(&attached[0]);
	shared_free(2);
	interleave_end();
}

static void expand_one(void)
{
	expect(!inlay_inventory_expand(shared, more, inlay_inventory_size(1), 1));
}

/* After any of the last instructions of an expand, another thread gives the first descriptor of a block back: neither block is lost */
TEST(expand_meets_give)
{
	struct inlay_inventory *inv = &attached[0];
	struct inlay_buf *all[101];
	uint32_t round, k, first = 0;
	int within = 1;

	interleave_possible();
	more = given(inlay_inventory_size(1));
	for (round = 0; within; round++) {
		shared_make(100);
		must(inlay_inventory_attach(&attached[0], shared));
		for (k = 0; k < 100; k++)
			must(inlay_inventory_get_by_data(inv, &map, mem, 64, &all[k]));
		got = all[0];
		interleave_begin(&shared->cache_.store->lock);
		within = interleave(expand_one, give_one, round ? first + round : UINT32_MAX);
		interleave_end();
		if (!round) {
			assert_false(within);
			within = 1;
			first = interleave_counted() - 64; /* what comes before makes the descriptors */
		}
		for (k = 0; k < 2; k++)
			must(inlay_inventory_get_by_data(inv, &map, mem, 64, &all[k ? 0 : 100]));
		for (k = 0; k <= 100; k++)
			must(inlay_inventory_dec_refcount(inv, all[k], NULL));
		inlay_inventory_detach(&attached[0]);
		shared_free(101);
	}
	assert_true(round > 5);
	given_free(more);
}

/* After any instruction with which an inventory ties itself to a map or leaves it, another one of the map is destroyed: the map forgets both */
TEST(ends_meet)
{
	size_t size = inlay_inventory_size(1);
	void *memory[2];
	uint32_t way, i, k;
	int within;

	interleave_possible();
	memory[0] = given(size);
	memory[1] = given(size);
	interleave_begin(&map.lock_);
	bad = 0;
	for (way = 0; way < 2; way++) {
		for (i = 1, within = 1; within; i++) {
			for (k = 0; k < 2; k++) {
				must(inlay_inventory_create(memory[k], size, 1, &pair[k]));
				must(inlay_inventory_start(pair[k]));
				must(inlay_inventory_get_by_data(pair[k], &map, mem, 64, &got));
				must(inlay_buf_dec_refcount(got, NULL));
			}
			if (way)
				close_first();
			within = interleave(way ? open_first : close_first, destroy_second, i);
			assert_ptr_equal(map.holders_, way ? &pair[0]->cache_.store->holders[INLAY_STORE_MAPS_ - 1] : NULL);
			must(inlay_inventory_destroy(pair[0]));
			assert_null(map.holders_);
			assert_int_equal(bad, 0);
		}
		assert_true(i > 5);
	}
	for (k = 0; k < 2; k++)
		given_free(memory[k]);
	interleave_end();
}

/* ---- growth ---- */

static uint8_t *untouched;
static size_t untouched_bytes;
static uint32_t touched, touched_locked;

static void touch(int sig, siginfo_t *info, UNUSED void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr;

	if (at - (uintptr_t)untouched >= untouched_bytes ||
	    mprotect((void *)(at & ~(uintptr_t)4095), 4096, PROT_READ | PROT_WRITE)) {
		signal(sig, SIG_DFL); /* and comes again */
		return;
	}
	touched++;
	touched_locked += __atomic_load_n(&shared->cache_.store->lock, __ATOMIC_RELAXED);
}

/* No page of new memory is touched for the first time while others wait for the lock */
TEST(outside)
{
	struct sigaction action = {}, before;
	struct inlay_buf *b[600], *last = NULL;
	size_t size;

	shared_make(600);
	must(inlay_inventory_attach(&attached[0], shared));
	for (uint32_t i = 0; i < 600; i++)
		must(inlay_inventory_get_by_data(&attached[0], &map, mem, 64, &b[i]));
	assert_int_equal(give_all(&attached[0], b, 300), 300);
	size = inlay_inventory_size(3000);
	untouched_bytes = (size + 4095) / 4096 * 4096;
	untouched = (uint8_t *)mmap(NULL, untouched_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(untouched != MAP_FAILED);
	action.sa_sigaction = touch;
	action.sa_flags = SA_SIGINFO;
	touched = touched_locked = 0;
	must(sigaction(SIGSEGV, &action, &before));
	must(inlay_inventory_expand(shared, untouched, size, 3000));
	must(sigaction(SIGSEGV, &before, NULL));
	assert_true(touched >= 3000 / 64);
	assert_int_equal(touched_locked, 0);
	assert_int_equal(inlay_inventory_num_free(shared), 3300);
	for (uint32_t i = 0; i < 3300; i++) {
		struct inlay_buf *x = NULL;

		must(inlay_inventory_get_by_data(&attached[0], &map, mem, 64, &x));
		if (last)
			must(inlay_buf_chain_list(last, x));
		else
			last = x;
	}
	must(inlay_inventory_dec_refcount(&attached[0], last, NULL));
	assert_int_equal(give_all(&attached[0], b + 300, 300), 300);
	inlay_inventory_detach(&attached[0]);
	shared_free(3600);
	must(munmap(untouched, untouched_bytes));
}

/* ---- producer to consumer ---- */

#define RING 512

/* One producer, one consumer; plain memory of the buffers is handed over by the tail's release */
struct ring {
	struct inlay_buf *slot[RING];
	uint32_t head __attribute__((aligned(64)));
	uint32_t tail __attribute__((aligned(64)));
};

static struct ring rings[THREADS];

static void ring_put(struct ring *r, struct inlay_buf *b)
{
	while (r->tail - __atomic_load_n(&r->head, __ATOMIC_ACQUIRE) == RING)
		sched_yield();
	r->slot[r->tail % RING] = b;
	__atomic_store_n(&r->tail, r->tail + 1, __ATOMIC_RELEASE);
}

static struct inlay_buf *ring_get(struct ring *r)
{
	struct inlay_buf *b;

	while (r->head == __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE))
		sched_yield();
	b = r->slot[r->head % RING];
	__atomic_store_n(&r->head, r->head + 1, __ATOMIC_RELEASE);
	return b;
}

/* What the producer's buffer number n is: both sides know */
static void shape(uint32_t who, uint32_t n, uint32_t *at, uint32_t *len, uint32_t *count)
{
	uint64_t seed = (uint64_t)who << 32 | n;

	below(&seed, 2);
	*at = below(&seed, BYTES / 2 - 4096) + (n % 2 ? BYTES / 2 : 0);
	*len = 1 + below(&seed, 4000);
	*count = n % 16 ? 1 : 1 + below(&seed, 5);
}

/* Threads 0 and 1 produce for 2 and 3. Every sixteenth is a list. */
static void *produce(void *arg)
{
	uint32_t who = (uint32_t)(uintptr_t)arg, pair = who % 2, n, i, k, at, len, count;
	struct inlay_inventory *mag = &attached[who];
	struct inlay_buf *b = NULL, *head, *e;

	expect(!inlay_inventory_attach(mag, shared));
	for (n = 0; n < ROUNDS && !__atomic_load_n(&bad, __ATOMIC_RELAXED); n++) {
		shape(pair, n, &at, &len, &count);
		if (who < 2) {
			head = NULL;
			for (i = 0; i < count; i++) {
				while (inlay_inventory_get_by_args(mag, n % 3 ? &map : &second, mem + at, len + 64, mem + at + i, len, &b))
					sched_yield();
				if (head)
					expect(!inlay_buf_chain_list(head, b));
				else
					head = b;
			}
			ring_put(&rings[pair], head);
		} else {
			b = ring_get(&rings[pair]);
			expect(inlay_buf_list_len(b) == (int)count);
			for (e = b, k = 0; e; e = inlay_buf_next(e), k++)
				expect(inlay_buf_head(e) == mem + at && inlay_buf_data(e) == mem + at + k && inlay_buf_data_len(e) == len &&
				       inlay_buf_len(e) == len + 64 && inlay_buf_mmap(e) == (n % 3 ? &map : &second));
			expect(!inlay_inventory_dec_refcount(mag, b, NULL));
		}
	}
	inlay_inventory_detach(mag);
	return NULL;
}

TEST(producer_consumer)
{
	memset(rings, 0, sizeof(rings));
	shared_make(4096);
	run(produce);
	shared_free(4096);
}

/* ---- anybody's ---- */

#define SLOTS 64

static struct inlay_buf *market[SLOTS];
static uint8_t owned[8192]; /* by a descriptor's number: in somebody's hands */
static uint32_t got_total;
static bool by_number;    /* descriptors lie so near that their numbers differ */

static uint32_t number(const struct inlay_buf *b)
{
	return (uint32_t)((uintptr_t)b / sizeof(*b)) & 8191;
}

/* Gets, and swaps with whatever lies in a slot of the market, and gives that back */
static void *swap(void *arg)
{
	uint32_t who = (uint32_t)(uintptr_t)arg, i, slot;
	struct inlay_inventory *mag = &attached[who];
	struct inlay_buf *b = NULL, *x;
	uint64_t seed = who + 1;
	int err;

	expect(!inlay_inventory_attach(mag, shared));
	for (i = 0; i < ROUNDS; i++) {
		err = inlay_inventory_get_by_data(mag, &map, mem + below(&seed, 8192) * 64, 64, &b);
		if (!err) {
			/* A descriptor that two have got would be seen here */
			expect(!by_number || !__atomic_exchange_n(&owned[number(b)], 1, __ATOMIC_RELAXED));
			__atomic_fetch_add(&got_total, 1, __ATOMIC_RELAXED);
			inlay_buf_set_data_len(b, who + 1);
		} else {
			expect(err == -EAGAIN || err == -EBADFD);
			b = NULL;
		}
		slot = below(&seed, SLOTS);
		x = __atomic_exchange_n(&market[slot], b, __ATOMIC_ACQ_REL);
		if (x) {
			expect(inlay_buf_data_len(x) >= 1 && inlay_buf_data_len(x) <= THREADS);
			expect(!by_number || __atomic_exchange_n(&owned[number(x)], 0, __ATOMIC_RELAXED));
			expect(!(below(&seed, 8) ? inlay_inventory_dec_refcount(mag, x, NULL) : inlay_buf_dec_refcount(x, NULL)));
		}
		if (below(&seed, 20000) == 0) {
			inlay_inventory_detach(mag);
			expect(!inlay_inventory_attach(mag, shared));
		}
	}
	inlay_inventory_detach(mag);
	return NULL;
}

static void market_clear(void)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		if (market[i])
			must(inlay_buf_dec_refcount(market[i], NULL));
		market[i] = NULL;
	}
}

TEST(anybody)
{
	uint32_t sizes[] = {4000, 900, 40, 3}, i;

	for (i = 0; i < ARRAY(sizes); i++) {
		memset(owned, 0, sizeof(owned));
		by_number = true;
		got_total = 0;
		shared_make(sizes[i]);
		run(swap);
		assert_true(got_total > (i ? 1000 : ROUNDS));
		assert_true(inlay_inventory_num_free(shared) < sizes[i] || sizes[i] == 3);
		market_clear();
		shared_free(sizes[i]);
	}
}

/* Growth, starts and stops while others work */
static void *disturb(void *arg)
{
	void **pieces = (void **)arg;
	size_t size;

	for (uint32_t i = 0; i < 20; i++) {
		size = inlay_inventory_size(50);
		pieces[i] = given(size);
		expect(!inlay_inventory_expand(shared, pieces[i], size, 50));
		expect(inlay_inventory_num_elements(shared) == 100 + 50 * (i + 1));
		expect(inlay_inventory_num_free(shared) <= 100 + 50 * (i + 1));
		expect(!inlay_inventory_stop(shared));
		sched_yield();
		expect(!inlay_inventory_start(shared));
		sched_yield();
		usleep(100);
	}
	return NULL;
}

TEST(disturbed)
{
	void *pieces[20];
	pthread_t t;

	by_number = false;
	shared_make(100);
	must(pthread_create(&t, NULL, disturb, pieces));
	run(swap);
	must(pthread_join(t, NULL));
	market_clear();
	shared_free(1100);
	for (uint32_t i = 0; i < 20; i++)
		given_free(pieces[i]);
}

/* ---- references in several hands ---- */

static struct inlay_buf *common[2];
static uint32_t last_ones;

/* Thread 0 gets a buffer with a reference for each; all give theirs back at about the same time, in either way */
static void *together(void *arg)
{
	static uint32_t arrived;
	uint32_t who = (uint32_t)(uintptr_t)arg, i, k;
	struct inlay_inventory *mag = &attached[who];
	struct inlay_buf *b = NULL;
	uint16_t prev = 0;

	expect(!inlay_inventory_attach(mag, shared));
	for (i = 1; i <= ROUNDS / 30; i++) {
		if (!who) {
			expect(!inlay_inventory_get_by_data(mag, &map, mem, 64, &b));
			for (k = 1; k < THREADS; k++)
				expect(!inlay_buf_inc_refcount(b, NULL));
			if (i % 2) {
				struct inlay_buf *e = NULL;

				expect(!inlay_inventory_get_by_data(mag, &map, mem, 64, &e));
				expect(!inlay_buf_chain_list(b, e));
			}
			common[i % 2] = b;
		}
		/* All meet */
		__atomic_fetch_add(&arrived, 1, __ATOMIC_ACQ_REL);
		while (__atomic_load_n(&arrived, __ATOMIC_ACQUIRE) < i * THREADS)
			sched_yield();
		b = common[i % 2];
		if (i % 3 == 0) {
			expect(!inlay_buf_inc_refcount(b, NULL));
			expect(!inlay_buf_dec_refcount(b, &prev) && prev > 1);
		}
		expect(!(i % 5 ? inlay_inventory_dec_refcount(mag, b, &prev) : inlay_buf_dec_refcount(b, &prev)));
		if (prev == 1)
			__atomic_fetch_add(&last_ones, 1, __ATOMIC_RELAXED);
	}
	inlay_inventory_detach(mag);
	return NULL;
}

TEST(references)
{
	last_ones = 0;
	shared_make(2048);
	run(together);
	assert_int_equal(last_ones, ROUNDS / 30);
	shared_free(2048);
}

/* ---- back last ---- */

static uint32_t turn; /* 1: the other thread is about to give it back */

static void *give_last(void *arg)
{
	__atomic_store_n(&turn, 1, __ATOMIC_RELEASE);
	expect(!inlay_buf_dec_refcount((struct inlay_buf *)arg, NULL));
	return NULL;
}

/* A buffer is out for destroy as long as who gives it back to the depot still needs the inventory: here, its lock */
TEST(back_last)
{
	struct inlay_inventory *mag = &attached[0];
	struct inlay_buf *b[2] = {NULL, NULL};
	pthread_t t;

	for (uint32_t k = 0; k < 2; k++) {
		shared_make(100);
		must(inlay_inventory_attach(mag, shared));
		for (uint32_t i = 0; i < 2; i++)
			must(inlay_inventory_get_by_data(mag, &map, mem, 64, &b[i]));
		if (k)
			must(inlay_buf_chain_list(b[0], b[1]));
		else
			must(inlay_inventory_dec_refcount(mag, b[1], NULL));
		inlay_inventory_detach(mag);
		turn = 0;
		inlay_lock(&shared->cache_.store->lock);
		must(pthread_create(&t, NULL, give_last, b[0]));
		while (!__atomic_load_n(&turn, __ATOMIC_ACQUIRE))
			sched_yield();
		for (uint32_t i = 0; i < 300; i++) {
			expect(inlay_inventory_num_free(shared) == 99 - k);
			sched_yield();
		}
		inlay_unlock(&shared->cache_.store->lock);
		must(pthread_join(t, NULL));
		shared_free(100);
	}
}

int main(void)
{
	return run_all(setup, teardown);
}
