/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inventory.c: an inventory's states and arguments, maps that change under it, devices, copies, growth;
 * and inventories, shared ones and pools of every size in memory wherever it begins.
 */
#include "rig.h"

enum state { FRESH, STARTED, STOPPED, STATES };

static struct inlay_inventory *inventory_in(enum state s)
{
	struct inlay_inventory *inv = inventory_make(4);

	if (s != FRESH)
		must(inlay_inventory_start(inv));
	if (s == STOPPED)
		must(inlay_inventory_stop(inv));
	return inv;
}

/* Every function in every state */
TEST(inventory_states)
{
	static const int results[][STATES] = {
		{0, -EBADFD, 0},             /* start */
		{-EBADFD, 0, -EBADFD},       /* stop */
		{-EBADFD, 0, -EBADFD},       /* get_by_args */
		{-EBADFD, 0, -EBADFD},       /* get_by_addr */
		{-EBADFD, 0, -EBADFD},       /* get_by_data */
		{-EBADFD, 0, -EBADFD},       /* dup */
		{-EBADFD, 0, -EBADFD},       /* expand */
		{0, 0, 0},                   /* destroy */
	};
	struct inlay_inventory *inv, *other = inventory_started(2);
	struct inlay_buf *src = NULL, *b = NULL;
	void *more;
	struct map t, stopped;
	int got;

	map_make(&t, 1);
	map_make(&stopped, 1);
	must(inlay_mmap_stop(&stopped.m));
	must(inlay_inventory_get_by_data(other, &t.m, t.mem, 64, &src));
	for (uint32_t f = 0; f < ARRAY(results); f++) {
		for (uint32_t s = 0; s < STATES; s++) {
			inv = inventory_in((enum state)s);
			more = given(inlay_inventory_size(3));
			b = NULL;
			got = f == 0 ? inlay_inventory_start(inv) : f == 1 ? inlay_inventory_stop(inv) :
			      f == 2 ? inlay_inventory_get_by_args(inv, &t.m, t.mem, 64, t.mem, 64, &b) :
			      f == 3 ? inlay_inventory_get_by_addr(inv, &t.m, t.mem, 64, &b) :
			      f == 4 ? inlay_inventory_get_by_data(inv, &t.m, t.mem, 64, &b) :
			      f == 5 ? inlay_inventory_dup(inv, src, &b) :
			      f == 6 ? inlay_inventory_expand(inv, more, inlay_inventory_size(3), 3) : inlay_inventory_destroy(inv);
			if (got != results[f][s])
				fail_msg("function %u in state %u: %d", f, s, got);
			assert_int_equal(inlay_inventory_num_elements(inv), f == 6 && !got ? 7 : 4);
			assert_int_equal(inlay_inventory_num_free(inv), f == 6 && !got ? 7 : b ? 3 : 4);
			/* A stopped one takes its buffers back, and is not destroyed before */
			if (b) {
				assert_int_equal(inlay_inventory_destroy(inv), -EBUSY);
				assert_int_equal(inlay_buf_data_len(b), f == 3 ? 0 : 64);
				assert_ptr_equal(inlay_buf_data(b), t.mem);
				must(inlay_inventory_stop(inv));
				assert_int_equal(inlay_inventory_get_by_addr(inv, &t.m, t.mem, 64, &b), -EBADFD);
				must(inlay_buf_dec_refcount(b, NULL));
			}
			inventory_free(inv);
			given_free(more);
		}
	}
	/* The mmap's state */
	inv = inventory_in(STARTED);
	assert_int_equal(inlay_inventory_get_by_data(inv, &stopped.m, stopped.mem, 64, &b), -EBADFD);
	must(inlay_buf_dec_refcount(src, NULL));
	assert_int_equal(inlay_inventory_dup(inv, src, &b), -EBADFD);
	inventory_free(inv);
	inventory_free(other);
	map_free(&t);
	map_free(&stopped);
}

TEST(inventory_arguments)
{
	size_t size = inlay_inventory_size(4);
	uint8_t *memory = (uint8_t *)given(size + 64);
	struct inlay_inventory *inv = NULL;
	struct inlay_buf *b[4];
	struct map t;

	map_make(&t, 1);
	assert_int_equal(inlay_inventory_size(0), 0);
	assert_int_equal(inlay_inventory_size((1u << 30) + 1), 0);
	assert_int_equal(inlay_inventory_create(NULL, size, 4, &inv), -EINVAL);
	assert_int_equal(inlay_inventory_create(memory, size, 0, &inv), -EINVAL);
	assert_int_equal(inlay_inventory_create(memory, size - 1, 4, &inv), -ENOBUFS);
	assert_int_equal(inlay_inventory_create(memory + 32, size, 4, &inv), -EINVAL);
	assert_null(inv);
	must(inlay_inventory_create(memory + 64, size, 4, &inv));
	assert_true(!inv->user_data && !inv->pd && !inv->shared);
	must(inlay_inventory_start(inv));
	{
		/* Where a buffer may be */
		struct {
			uint8_t *addr;
			size_t len;
			uint8_t *data;
			size_t data_len;
			int result;
		} tries[] = {
			{t.mem, RANGE_BYTES, t.mem, RANGE_BYTES, 0},
			{t.mem, RANGE_BYTES + 1, t.mem, 0, -EINVAL},
			{t.mem - 1, 2, t.mem, 0, -EINVAL},
			{t.mem + RANGE_BYTES - 1, 1, t.mem + RANGE_BYTES, 0, 0},
			{t.mem + RANGE_BYTES - 1, 2, t.mem + RANGE_BYTES, 0, -EINVAL},
			{t.mem + RANGE_BYTES, 1, t.mem + RANGE_BYTES, 0, -EINVAL},
			{t.mem + 2 * RANGE_BYTES, 100, t.mem + 2 * RANGE_BYTES, 100, 0},
			{t.mem + 4 * RANGE_BYTES + 8, 100, t.mem + 4 * RANGE_BYTES + 8, 100, 0},
			{t.mem, 3 * RANGE_BYTES, t.mem, 0, -EINVAL},
			{t.mem, SIZE_MAX, t.mem, 0, -EINVAL},
			{t.mem + 8, SIZE_MAX - 4, t.mem + 8, 0, -EINVAL},
			{t.mem + 8, 0, t.mem + 8, 0, 0},
			{NULL, 0, NULL, 0, -EINVAL},
			{t.mem, SIZE_MAX, t.mem, SIZE_MAX, -EINVAL},
			{t.mem, 64, t.mem, 1ull << 31, -EINVAL},
			{t.mem, 64, t.mem + 60, 5, -EINVAL}, /* data outside the buffer */
			{t.mem + 64, 64, t.mem + 63, 1, -EINVAL},
		};
		const struct inlay_range *r;
		struct inlay_buf *x = NULL;

		for (uint32_t i = 0; i < 3 * ARRAY(tries); i++) {
			size_t k = i < ARRAY(tries) ? i : rnd_below(ARRAY(tries));

			if (inlay_inventory_get_by_args(inv, &t.m, tries[k].addr, tries[k].len, tries[k].data, tries[k].data_len, &x) !=
			    tries[k].result)
				fail_msg("buffer %zu", k);
			if (tries[k].result)
				continue;
			r = made(inlay_mmap_find(&t.m, tries[k].addr, tries[k].len));
			assert_int_equal(inlay_buf_keys(x).lkey, r->lkey);
			assert_int_equal(inlay_buf_keys(x).rkey, r->rkey);
			assert_ptr_equal(inlay_buf_mmap(x), &t.m);
			assert_int_equal(inlay_mmap_num_bufs(&t.m), 1);
			assert_int_equal(inlay_mmap_stop(&t.m), -EBUSY);
			must(inlay_buf_dec_refcount(x, NULL));
		}
	}
	/* All four, and no fifth; each one a line of its own */
	for (uint32_t i = 0; i < 4; i++) {
		must(inlay_inventory_get_by_data(inv, &t.m, t.mem + 64 * i, 64, &b[i]));
		assert_int_equal((uintptr_t)b[i] % 64, 0);
		assert_true((uint8_t *)b[i] >= memory + 64 && (uint8_t *)(b[i] + 1) <= memory + 64 + size);
		assert_true(!i || b[i] != b[i - 1]);
	}
	assert_int_equal(inlay_inventory_get_by_data(inv, &t.m, t.mem, 64, &b[0]), -EAGAIN);
	assert_int_equal(inlay_inventory_dup(inv, b[0], &b[0]), -EAGAIN);
	assert_int_equal(inlay_inventory_get_by_data(inv, &t.m, t.mem - 1, 64, &b[0]), -EINVAL);
	assert_int_equal(inlay_inventory_destroy(inv), -EBUSY);
	assert_int_equal(put_all(b, 4), 4);
	assert_int_equal(put_all(b, 4), 0);
	/* What was given back goes out again */
	for (uint32_t i = 0; i < 4; i++) {
		struct inlay_buf *x = NULL;

		must(inlay_inventory_get_by_data(inv, &t.m, t.mem, 64, &x));
		assert_true(x == b[0] || x == b[1] || x == b[2] || x == b[3]);
		must(inlay_buf_dec_refcount(x, NULL));
	}
	must(inlay_inventory_destroy(inv));
	given_free(memory);
	map_free(&t);
}

/* The mmap comes back with other keys: none of the old ones is ever seen */
TEST(restarted)
{
	struct inlay_inventory *inv = inventory_started(4);
	struct inlay_buf *b = NULL;
	struct map t;
	uint32_t old = 0, i;

	map_make(&t, 1);
	for (i = 0; i < 4; i++) {
		must(inlay_inventory_get_by_data(inv, &t.m, t.mem + 4 * RANGE_BYTES, 64, &b));
		assert_int_equal(inlay_buf_keys(b).lkey, inlay_mmap_find(&t.m, t.mem + 4 * RANGE_BYTES, 64)->lkey);
		assert_true(inlay_buf_keys(b).lkey != old);
		old = inlay_buf_keys(b).lkey;
		must(inlay_buf_dec_refcount(b, NULL));
		must(inlay_mmap_stop(&t.m));
		assert_int_equal(inlay_inventory_get_by_data(inv, &t.m, t.mem + 4 * RANGE_BYTES, 64, &b), -EBADFD);
		if (i == 1) {
			/* The third range is the second one now */
			must(inlay_mmap_rm(&t.m, (uintptr_t)(t.mem + 2 * RANGE_BYTES), RANGE_BYTES));
		}
		must(inlay_mmap_start(&t.m));
	}
	assert_int_equal(inlay_inventory_get_by_data(inv, &t.m, t.mem + 2 * RANGE_BYTES, 64, &b), -EINVAL);
	inventory_free(inv);
	map_free(&t);
}

/* Keys of the second device */
TEST(devices)
{
	struct inlay_inventory *first = inventory_started(4), *second = inventory_make(4), *third = inventory_make(4);
	struct inlay_buf *a = NULL, *b = NULL, *c = NULL, *all[3];
	struct inlay_keys keys, keys0;
	struct inlay_pool *pool = NULL;
	struct ibv_pd *pd3 = ibv_alloc_pd(dev.ctx);
	struct map t, lone;

	map_make(&t, 2);
	map_make(&lone, 1);
	second->pd = t.pd2;
	must(inlay_inventory_start(second));
	third->pd = pd3;
	must(inlay_inventory_start(third));
	must(inlay_inventory_get_by_data(first, &t.m, t.mem + 2 * RANGE_BYTES, 64, &a));
	must(inlay_inventory_get_by_data(second, &t.m, t.mem + 2 * RANGE_BYTES, 64, &b));
	must(inlay_mmap_keys(&t.m, 1, dev.pd, &keys0));
	must(inlay_mmap_keys(&t.m, 1, t.pd2, &keys));
	assert_true(keys.lkey != keys0.lkey);
	assert_int_equal(inlay_buf_keys(a).lkey, keys0.lkey);
	assert_int_equal(inlay_buf_keys(a).rkey, keys0.rkey);
	assert_int_equal(inlay_buf_keys(b).lkey, keys.lkey);
	assert_int_equal(inlay_buf_keys(b).rkey, keys.rkey);
	assert_int_equal(inlay_inventory_get_by_data(third, &t.m, t.mem, 64, &c), -ENOENT);
	assert_int_equal(inlay_inventory_dup(third, a, &c), -ENOENT);
	assert_int_equal(inlay_inventory_get_by_data(second, &lone.m, lone.mem, 64, &c), -ENOENT);
	assert_int_equal(inlay_inventory_num_free(second), 3);
	/* Copies have the keys for where they go */
	must(inlay_inventory_dup(second, a, &c));
	assert_int_equal(inlay_buf_keys(c).lkey, keys.lkey);
	must(inlay_buf_dec_refcount(c, NULL));
	must(inlay_inventory_dup(first, b, &c));
	assert_int_equal(inlay_buf_keys(c).rkey, keys0.rkey);
	all[0] = a;
	all[1] = b;
	all[2] = c;
	assert_int_equal(put_all(all, 3), 3);
	/* Pools */
	must(inlay_pool_create(given(inlay_pool_size(4)), inlay_pool_size(4), 4, 64, &t.m, &pool));
	pool->pd = pd3;
	assert_int_equal(inlay_pool_start(pool), -ENOENT);
	pool->pd = t.pd2;
	must(inlay_pool_start(pool));
	must(inlay_pool_alloc(pool, &a));
	must(inlay_mmap_keys(&t.m, 0, t.pd2, &keys));
	assert_int_equal(inlay_buf_keys(a).lkey, keys.lkey);
	must(inlay_buf_dec_refcount(a, NULL));
	must(inlay_pool_destroy(pool));
	given_free(pool);
	must(ibv_dealloc_pd(pd3));
	inventory_free(first);
	inventory_free(second);
	inventory_free(third);
	map_free(&t);
	map_free(&lone);
}

TEST(copies)
{
	struct inlay_inventory *inv = inventory_started(8), *other = inventory_started(3);
	struct inlay_buf *b[3], *copy = NULL, *at = NULL;
	struct map t;

	map_make(&t, 1);
	for (uint32_t i = 0; i < 3; i++) {
		must(inlay_inventory_get_by_args(inv, &t.m, t.mem + 2 * i * RANGE_BYTES, 64, t.mem + 2 * i * RANGE_BYTES + i, 5 + i, &b[i]));
		t.mem[2 * i * RANGE_BYTES] = (uint8_t)(i + 1);
	}
	must(inlay_buf_chain_list(b[0], b[1]));
	must(inlay_buf_chain_list(b[0], b[2]));
	must(inlay_buf_inc_refcount(b[0], NULL));
	assert_int_equal(inlay_inventory_dup(inv, b[1], &copy), -EINVAL);
	/* Into the same inventory and into another, just large enough: other descriptors, the same memory, one reference */
	for (uint32_t i = 0; i < 2; i++) {
		must(inlay_inventory_dup(i ? inv : other, b[0], &copy));
		assert_int_equal(inlay_buf_list_len(copy), 3);
		assert_int_equal(inlay_buf_refcount(copy), 1);
		assert_int_equal(inlay_mmap_num_bufs(&t.m), 6);
		for (at = copy; at; at = inlay_buf_next(at)) {
			struct inlay_buf *src = at == copy ? b[0] : at == inlay_buf_last(copy) ? b[2] : b[1];

			assert_ptr_not_equal(at, src);
			assert_ptr_equal(inlay_buf_head(at), inlay_buf_head(src));
			assert_int_equal(inlay_buf_len(at), inlay_buf_len(src));
			assert_ptr_equal(inlay_buf_data(at), inlay_buf_data(src));
			assert_int_equal(inlay_buf_data_len(at), inlay_buf_data_len(src));
			assert_int_equal(inlay_buf_keys(at).lkey, inlay_buf_keys(src).lkey);
			assert_int_equal(inlay_buf_keys(at).rkey, inlay_buf_keys(src).rkey);
		}
		/* Windows are its own, the payload is not */
		inlay_buf_set_data_len(copy, 0);
		assert_int_equal(inlay_buf_data_len(b[0]), 5);
		t.mem[0] = 99;
		assert_int_equal(*(uint8_t *)inlay_buf_head(copy), 99);
		if (!i)
			assert_int_equal(inlay_inventory_num_free(other), 0);
		must(inlay_buf_dec_refcount(copy, NULL));
		assert_int_equal(inlay_inventory_num_free(other), 3);
		assert_int_equal(inlay_inventory_num_free(inv), 5);
	}
	/* One descriptor too few: none is taken */
	must(inlay_inventory_get_by_data(other, &t.m, t.mem, 64, &at));
	assert_int_equal(inlay_inventory_dup(other, b[0], &copy), -EAGAIN);
	assert_int_equal(inlay_inventory_num_free(other), 2);
	assert_int_equal(inlay_mmap_num_bufs(&t.m), 4);
	must(inlay_buf_dec_refcount(at, NULL));
	must(inlay_buf_dec_refcount(b[0], NULL));
	must(inlay_buf_dec_refcount(b[0], NULL));
	inventory_free(inv);
	inventory_free(other);
	map_free(&t);
}

/* Lists across inventories, and descriptors added while buffers are out */
TEST(expanded)
{
	struct inlay_inventory *inv = inventory_started(2), *other = inventory_started(2);
	struct inlay_buf *b[12], *x = NULL;
	uint8_t *piece[3];
	struct map t;
	size_t size;

	map_make(&t, 1);
	must(inlay_inventory_get_by_data(inv, &t.m, t.mem, 64, &b[0]));
	for (uint32_t k = 0; k < 3; k++) {
		size = inlay_inventory_size(3);
		piece[k] = (uint8_t *)given(size + 64);
		assert_int_equal(inlay_inventory_expand(inv, NULL, size, 3), -EINVAL);
		assert_int_equal(inlay_inventory_expand(inv, piece[k], size - 64, 3), -ENOBUFS);
		assert_int_equal(inlay_inventory_expand(inv, piece[k] + 8, size, 3), -EINVAL);
		assert_int_equal(inlay_inventory_expand(inv, piece[k], size, 0), -EINVAL);
		assert_int_equal(inlay_inventory_num_elements(inv), 2 + 3 * k);
		must(inlay_inventory_expand(inv, piece[k], size, 3));
		assert_int_equal(inlay_inventory_num_elements(inv), 5 + 3 * k);
		assert_int_equal(inlay_inventory_num_free(inv), 4 + 3 * k);
	}
	assert_int_equal(inlay_inventory_expand(inv, piece[0], SIZE_MAX, 1u << 30), -EINVAL);
	for (uint32_t i = 1; i < 11; i++)
		must(inlay_inventory_get_by_data(inv, &t.m, t.mem + 64 * i, 64, &b[i]));
	assert_int_equal(inlay_inventory_get_by_data(inv, &t.m, t.mem, 64, &x), -EAGAIN);
	for (uint32_t i = 0; i < 11; i++)
		for (uint32_t k = 0; k < i; k++)
			assert_ptr_not_equal(b[i], b[k]);
	must(inlay_inventory_get_by_data(other, &t.m, t.mem, 64, &x));
	must(inlay_buf_chain_list(x, b[0]));
	for (uint32_t i = 1; i < 11; i++)
		must(inlay_buf_chain_list(x, b[i]));
	assert_int_equal(inlay_buf_list_len(x), 12);
	must(inlay_buf_dec_refcount(x, NULL));
	assert_int_equal(inlay_inventory_num_free(inv), 11);
	assert_int_equal(inlay_inventory_num_free(other), 2);
	assert_int_equal(inlay_mmap_num_bufs(&t.m), 0);
	inventory_free(inv);
	inventory_free(other);
	for (uint32_t k = 0; k < 3; k++)
		given_free(piece[k]);
	map_free(&t);
}

/* No map at all, one that was destroyed, and an inventory that was: told, whatever was got before */
TEST(nothing_there)
{
	struct inlay_inventory *inv = inventory_make(2);
	struct inlay_pool *pool = NULL;
	struct inlay_buf *b = NULL;
	struct map t, gone;

	map_make(&t, 1);
	map_make(&gone, 1);
	for (int round_no = 0; round_no < 3; round_no++) {
		must(inlay_inventory_start(inv));
		/* Before the first get, after one, and after a stop and a start */
		assert_int_equal(inlay_inventory_get_by_data(inv, NULL, t.mem, 64, &b), -EINVAL);
		assert_null(b);
		must(inlay_inventory_get_by_data(inv, &t.m, t.mem, 64, &b));
		must(inlay_buf_dec_refcount(b, NULL));
		b = NULL;
		must(inlay_mmap_stop(&t.m));
		assert_int_equal(inlay_inventory_get_by_data(inv, NULL, t.mem, 64, &b), -EINVAL);
		assert_int_equal(inlay_inventory_get_by_data(inv, &t.m, t.mem, 64, &b), -EBADFD);
		must(inlay_mmap_start(&t.m));
		assert_int_equal(inlay_inventory_get_by_data(inv, NULL, t.mem, 64, &b), -EINVAL);
		must(inlay_inventory_stop(inv));
	}
	must(inlay_inventory_start(inv));
	must(inlay_inventory_get_by_data(inv, &gone.m, gone.mem, 64, &b));
	must(inlay_buf_dec_refcount(b, NULL));
	must(inlay_mmap_destroy(&gone.m));
	assert_int_equal(inlay_inventory_get_by_data(inv, &gone.m, gone.mem, 64, &b), -EBADFD);
	given_free(gone.state);
	free(gone.mem);
	must(inlay_inventory_destroy(inv));
	assert_int_equal(inlay_inventory_start(inv), -EBADFD);
	assert_int_equal(inlay_inventory_stop(inv), -EBADFD);
	assert_int_equal(inlay_inventory_get_by_data(inv, &t.m, t.mem, 64, &b), -EBADFD);
	given_free(inv);
	must(inlay_pool_create(given(inlay_pool_size(2)), inlay_pool_size(2), 2, 4096, &t.m, &pool));
	must(inlay_pool_destroy(pool));
	assert_int_equal(inlay_pool_start(pool), -EBADFD);
	assert_int_equal(inlay_pool_alloc(pool, &b), -EBADFD);
	assert_int_equal(inlay_mmap_num_bufs(&t.m), 0);
	given_free(pool);
	map_free(&t);
}

/* ---- sizes ---- */

enum { INVENTORY, POOL, SHARED, KINDS };

/* What has as many descriptors as it was asked for, and what they are got from */
struct stock {
	uint32_t kind;
	struct inlay_inventory *inv, *from, mine;
	struct inlay_pool *pool;
};

static size_t stock_size(uint32_t kind, uint32_t num)
{
	return kind == POOL ? inlay_pool_size(num) : inlay_inventory_size(num);
}

static void stock_make(struct stock *x, uint32_t kind, void *memory, uint32_t num, struct map *t)
{
	x->kind = kind;
	if (kind == POOL) {
		must(inlay_pool_create(memory, stock_size(kind, num), num, 64, &t->m, &x->pool));
		must(inlay_pool_start(x->pool));
		return;
	}
	must(inlay_inventory_create(memory, stock_size(kind, num), num, &x->inv));
	x->inv->shared = kind == SHARED;
	x->from = kind == SHARED ? &x->mine : x->inv;
	if (kind == SHARED)
		must(inlay_inventory_attach(&x->mine, x->inv));
	must(inlay_inventory_start(x->inv));
}

static uint32_t stock_free(struct stock *x)
{
	return x->kind == POOL ? inlay_pool_num_free(x->pool) : inlay_inventory_num_free(x->inv);
}

static int stock_put(struct stock *x, struct inlay_buf *b)
{
	return x->kind == POOL ? inlay_buf_dec_refcount(b, NULL) : inlay_inventory_dec_refcount(x->from, b, NULL);
}

static int stock_get(struct stock *x, struct map *t, struct inlay_buf **b)
{
	return x->kind == POOL ? inlay_pool_alloc(x->pool, b) : inlay_inventory_get_by_addr(x->from, &t->m, t->mem, 64, b);
}

static void stock_gone(struct stock *x)
{
	if (x->kind == SHARED)
		inlay_inventory_detach(&x->mine);
	must(x->kind == POOL ? inlay_pool_destroy(x->pool) : inlay_inventory_destroy(x->inv));
}

/* All are got, each once and within the memory, then none; they come back in any order, and again */
static void all_of(struct stock *x, struct map *t, uint32_t num, const uint8_t *memory, size_t size)
{
	static struct inlay_buf *bufs[1000];
	uint32_t live = x->kind == POOL, i, k, round;
	struct inlay_buf *b = NULL;

	for (round = 0; round < 3; round++) {
		for (i = 0; i < num; i++) {
			assert_int_equal(stock_free(x), num - i);
			must(stock_get(x, t, &bufs[i]));
			assert_int_equal((uintptr_t)bufs[i] % 64, 0);
			assert_true((uint8_t *)bufs[i] >= memory && (uint8_t *)(bufs[i] + 1) <= memory + size);
			assert_int_equal(inlay_buf_refcount(bufs[i]), 1);
			bufs[i]->keys.rkey = round * num + i;
		}
		for (i = 0; i < num; i++)
			assert_int_equal(bufs[i]->keys.rkey, round * num + i);
		assert_int_equal(stock_get(x, t, &b), -EAGAIN);
		assert_int_equal(stock_free(x), 0);
		assert_int_equal(inlay_mmap_num_bufs(&t->m), num + live);
		for (i = num; i; i--) {
			k = rnd_below(i);
			must(stock_put(x, bufs[k]));
			assert_int_equal(inlay_buf_refcount(bufs[k]), 0);
			assert_int_equal(stock_put(x, bufs[k]), -EBADFD);
			bufs[k] = bufs[i - 1];
		}
		assert_int_equal(stock_free(x), num);
		assert_int_equal(inlay_mmap_num_bufs(&t->m), live);
	}
}

/* As many as fill lines and caches, one less and one more, in memory wherever it begins, of which nothing else is written to */
TEST(sizes)
{
	static const uint32_t nums[] = {1, 2, 7, 8, 9, 63, 64, 65, 127, 128, 129, 192, 193, 1000};
	static const uint32_t lines[] = {0, 1, 63};
	static struct stock x;
	uint8_t *memory, *at;
	size_t size, all, j;
	struct map t;

	map_make(&t, 0);
	for (uint32_t kind = 0; kind < KINDS; kind++) {
		for (uint32_t i = 0; i < ARRAY(nums); i++) {
			for (uint32_t k = 0; k < ARRAY(lines); k++) {
				size = stock_size(kind, nums[i]);
				all = size + 4096 + 128;
				memory = (uint8_t *)pages(all);
				memset(memory, 0xa5, all);
				at = memory + 64 * lines[k];
				stock_make(&x, kind, at, nums[i], &t);
				all_of(&x, &t, nums[i], at, size);
				stock_gone(&x);
				for (j = 0; j < 64 * lines[k]; j++)
					assert_int_equal(memory[j], 0xa5);
				for (j = 64 * lines[k] + size; j < all; j++)
					assert_int_equal(memory[j], 0xa5);
				free(memory);
			}
		}
	}
	map_free(&t);
}

/* More descriptors than a group has: each knows its store, and comes back to it */
TEST(groups)
{
	enum { MANY = 2 * 16383 + 2 };
	static struct inlay_buf *b[MANY];
	struct inlay_inventory *inv = inventory_started(MANY);
	struct map t;

	map_make(&t, 0);
	for (uint32_t i = 0; i < MANY; i++)
		must(inlay_inventory_get_by_addr(inv, &t.m, t.mem, 64, &b[i]));
	assert_int_equal(inlay_inventory_num_free(inv), 0);
	assert_int_equal(put_all(b, MANY), MANY);
	assert_int_equal(inlay_inventory_num_free(inv), MANY);
	inventory_free(inv);
	map_free(&t);
}

/* All or none: adjacent buffers, a pool's, across what a cache holds; the range of the last get, and another */
TEST(bulk)
{
	enum { MANY = 300 };
	static struct inlay_buf *b[MANY];
	struct inlay_inventory *inv = inventory_started(MANY);
	struct inlay_pool *pool = NULL;
	uint32_t i, n, free, step;
	struct map t;

	map_make(&t, 0);
	must(inlay_pool_create(given(inlay_pool_size(MANY)), inlay_pool_size(MANY), MANY, 64, &t.m, &pool));
	must(inlay_pool_start(pool));
	for (step = 0; step < 34; step++) {
		uint8_t *at = t.mem + step / 2 % 3 * 2 * RANGE_BYTES; /* the range of the step before, or another one */

		n = step / 2 < 11 ? step / 2 * 7 : 24 + 46 * (step / 2 - 10);
		assert_true(n <= MANY);
		must(inlay_inventory_get_bulk(inv, &t.m, at, 64, b, n));
		for (i = 0; i < n; i++)
			assert_true(inlay_buf_head(b[i]) == at + 64 * i && inlay_buf_data(b[i]) == at + 64 * i &&
				    inlay_buf_len(b[i]) == 64 && !inlay_buf_data_len(b[i]) && inlay_buf_refcount(b[i]) == 1);
		free = inlay_inventory_num_free(inv);
		assert_int_equal(free, MANY - n);
		assert_int_equal(inlay_inventory_get_bulk(inv, &t.m, at, 8, b + n, MANY - n + 1), -EAGAIN);
		assert_int_equal(inlay_inventory_get_bulk(inv, &t.m, at + RANGE_BYTES - 64, 64, b + n, 2), free ? -EINVAL : -EAGAIN);
		assert_int_equal(inlay_inventory_get_bulk(inv, &t.m, at, SIZE_MAX / 2, b + n, 3), -EINVAL);
		assert_int_equal(inlay_inventory_num_free(inv), free);
		if (n)
			must(inlay_buf_dec_refcount(b[0], NULL));
		assert_int_equal(inlay_buf_dec_refcounts(n % 2 ? inv : NULL, b, n), 0);
		assert_int_equal(inlay_buf_dec_refcounts(n % 2 ? inv : NULL, b + 1, n ? n - 1 : 0), n ? n - 1 : 0);
		must(inlay_pool_alloc_bulk(pool, b, n));
		assert_int_equal(inlay_pool_alloc_bulk(pool, b + n, MANY - n + 1), -EAGAIN);
		assert_int_equal(inlay_pool_num_free(pool), MANY - n);
		assert_int_equal(inlay_buf_dec_refcounts(NULL, b, n), n);
	}
	must(inlay_pool_destroy(pool));
	given_free(pool);
	inventory_free(inv);
	map_free(&t);
}

/* A destroyed inventory is nothing to the maps that its buffers were of: its memory may be anything */
TEST(leaves_its_maps)
{
	struct inlay_inventory *inv = inventory_started(8);
	struct inlay_buf *b;
	struct map t[8]; /* as many as an inventory remembers */

	for (uint32_t i = 0; i < ARRAY(t); i++) {
		map_make(&t[i], 0);
		must(inlay_inventory_get_by_data(inv, &t[i].m, t[i].mem, 64, &b));
		assert_int_equal(inlay_mmap_num_bufs(&t[i].m), 1);
		must(inlay_buf_dec_refcount(b, NULL));
	}
	must(inlay_inventory_destroy(inv));
	memset(inv, 0xa5, inlay_inventory_size(8));
	for (uint32_t i = 0; i < ARRAY(t); i++) {
		assert_int_equal(inlay_mmap_num_bufs(&t[i].m), 0);
		must(inlay_mmap_stop(&t[i].m));
		map_free(&t[i]);
	}
	given_free(inv);
}

int main(void)
{
	return run_all(dev_open, dev_close);
}
