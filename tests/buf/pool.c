/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pool.c: a pool's states and arguments, and its slices.
 */
#include "rig.h"

enum state { FRESH, STARTED, STOPPED, STATES };

TEST(pool_states)
{
	static const int results[][STATES] = {
		{0, -EBADFD, 0},             /* start */
		{-EBADFD, 0, -EBADFD},       /* stop */
		{-EBADFD, 0, -EBADFD},       /* alloc */
		{0, 0, 0},                   /* destroy */
	};
	size_t size = inlay_pool_size(3);
	void *memory = given(size);
	struct inlay_pool *pool = NULL;
	struct inlay_buf *b = NULL;
	struct map t;
	int got;

	map_make(&t, 1);
	assert_int_equal(inlay_pool_size(0), 0);
	assert_int_equal(inlay_pool_create(memory, size, 0, 64, &t.m, &pool), -EINVAL);
	assert_int_equal(inlay_pool_create(memory, size, 3, 0, &t.m, &pool), -EINVAL);
	assert_int_equal(inlay_pool_create(memory, size, 3, 64, NULL, &pool), -EINVAL);
	assert_int_equal(inlay_pool_create(memory, size - 1, 3, 64, &t.m, &pool), -ENOBUFS);
	assert_int_equal(inlay_pool_create(NULL, size, 3, 64, &t.m, &pool), -EINVAL);
	assert_int_equal(inlay_pool_create((uint8_t *)memory + 8, size, 3, 64, &t.m, &pool), -EINVAL);
	t.m.abi++;
	assert_int_equal(inlay_pool_create(memory, size, 3, 64, &t.m, &pool), -EPROTO);
	t.m.abi--;
	assert_null(pool);
	for (uint32_t f = 0; f < ARRAY(results); f++) {
		for (uint32_t s = 0; s < STATES; s++) {
			must(inlay_pool_create(memory, size, 3, 64, &t.m, &pool));
			if (s != FRESH)
				must(inlay_pool_start(pool));
			if (s == STOPPED)
				must(inlay_pool_stop(pool));
			b = NULL;
			got = f == 0 ? inlay_pool_start(pool) : f == 1 ? inlay_pool_stop(pool) : f == 2 ? inlay_pool_alloc(pool, &b) :
			      inlay_pool_destroy(pool);
			if (got != results[f][s])
				fail_msg("function %u in state %u: %d", f, s, got);
			assert_true(!pool->user_data && !pool->pd && pool->alignment == 1);
			assert_int_equal(pool->element_size, 64);
			assert_int_equal(pool->num, 3);
			assert_int_equal(inlay_pool_num_free(pool), b ? 2 : 3);
			if (b) {
				assert_int_equal(inlay_pool_stop(pool), -EBUSY);
				assert_int_equal(inlay_pool_destroy(pool), -EBUSY);
				must(inlay_buf_dec_refcount(b, NULL));
			}
			must(inlay_pool_destroy(pool));
			assert_int_equal(inlay_mmap_num_bufs(&t.m), 0);
		}
	}
	/* The distance of two elements has more than 64 bits */
	must(inlay_pool_create(memory, size, 3, UINT64_MAX, &t.m, &pool));
	pool->alignment = 16;
	assert_int_equal(inlay_pool_start(pool), -ENOSPC);
	must(inlay_pool_destroy(pool));
	/* The mmap's state: a started pool holds it */
	must(inlay_pool_create(memory, size, 3, 64, &t.m, &pool));
	pool->alignment = 0;
	assert_int_equal(inlay_pool_start(pool), -EINVAL);
	pool->alignment = 24;
	assert_int_equal(inlay_pool_start(pool), -EINVAL);
	pool->alignment = 1;
	must(inlay_mmap_stop(&t.m));
	assert_int_equal(inlay_pool_start(pool), -EBADFD);
	must(inlay_mmap_start(&t.m));
	must(inlay_pool_start(pool));
	assert_int_equal(inlay_mmap_stop(&t.m), -EBUSY);
	must(inlay_pool_stop(pool));
	must(inlay_mmap_stop(&t.m));
	must(inlay_mmap_start(&t.m));
	must(inlay_pool_start(pool));
	must(inlay_pool_alloc(pool, &b));
	assert_int_equal(inlay_buf_keys(b).lkey, inlay_mmap_find(&t.m, inlay_buf_head(b), 64)->lkey);
	must(inlay_buf_dec_refcount(b, NULL));
	must(inlay_pool_destroy(pool));
	given_free(memory);
	map_free(&t);
}

/* A range that ends before its first aligned address has no slice, and the next one has */
TEST(pool_pads)
{
	struct inlay_mmap m;
	struct inlay_pool *pool = NULL;
	struct inlay_buf *b[3];
	void *memory = given(inlay_mmap_size(1, 2));

	for (uint64_t at = 0x11001; at < 0x12000; at += 97) {
		for (uint64_t end = at + 1; end < 0x13800; end += 731) {
			uint32_t fits = end > 0x12000 ? (uint32_t)(end - 0x12000) / 512 : 0, n = fits + 1;

			must(inlay_mmap_create(&m, memory, inlay_mmap_size(1, 2), 1, 2));
			must(inlay_mmap_add_dev(&m, dev.pd));
			must(inlay_mmap_add(&m, inlay_source_keys(at, end - at, (struct inlay_keys){1, 2})));
			must(inlay_mmap_add(&m, inlay_source_keys(0x20000, 512, (struct inlay_keys){3, 4})));
			must(inlay_mmap_start(&m));
			n = n > 3 ? 3 : n;
			must(inlay_pool_create(given(inlay_pool_size(n)), inlay_pool_size(n), n, 512, &m, &pool));
			pool->alignment = fits > 1 ? 512 : 4096;
			must(inlay_pool_start(pool));
			take_all(pool, n, b);
			if (fits < 2) /* else there are slices of 512 before 0x12000, too */
				assert_ptr_equal(inlay_buf_head(b[n - 1]), (void *)0x20000);
			if (fits == 1)
				assert_ptr_equal(inlay_buf_head(b[0]), (void *)0x12000);
			assert_int_equal(put_all(b, n), n);
			must(inlay_pool_destroy(pool));
			given_free(pool);
			must(inlay_mmap_destroy(&m));
		}
	}
	given_free(memory);
}

/* Slices: how many there are room for, each inside one range, aligned, none overlapping */
TEST(pool_slices)
{
	static const struct {
		size_t element, alignment;
	} shapes[] = {{1, 1}, {100, 1}, {100, 8}, {64, 64}, {65, 64}, {2048, 4096}, {4096, 4096}, {4097, 4096}, {RANGE_BYTES, 1}, {RANGE_BYTES, 4096},
		      {RANGE_BYTES / 2 + 1, 1}, {3, 2}};
	uint8_t *hit = (uint8_t *)calloc(1, RANGES * 2 * RANGE_BYTES);
	struct map t;
	uint32_t i, k, r, num;

	for (int odd = 0; odd < 2; odd++) {
		map_make(&t, 1);
		if (odd) {
			/* Ranges that begin and end anywhere */
			must(inlay_mmap_stop(&t.m));
			for (i = 0; i < RANGES; i++) {
				must(inlay_mmap_rm(&t.m, (uintptr_t)(t.mem + 2 * i * RANGE_BYTES), RANGE_BYTES));
				must(inlay_mmap_add(&t.m, inlay_source_host(t.mem + 2 * i * RANGE_BYTES + 1001 * i + 1, RANGE_BYTES - 77 * i)));
			}
			must(inlay_mmap_start(&t.m));
		}
		for (k = 0; k < ARRAY(shapes); k++) {
			size_t stride = (shapes[k].element + shapes[k].alignment - 1) / shapes[k].alignment * shapes[k].alignment, n;
			struct inlay_pool *pool;
			struct inlay_buf **b;

			/* Count them the slow way */
			for (r = 0, n = 0; r < RANGES; r++) {
				const struct inlay_range *range = range_of(&t.m, r);
				uint64_t at = (range->start + shapes[k].alignment - 1) / shapes[k].alignment * shapes[k].alignment;

				for (; at + shapes[k].element <= range->start + range->len; at += stride)
					n++;
			}
			for (num = (uint32_t)n; num <= n + 1; num++) {
				if (!num)
					continue;
				must(inlay_pool_create(given(inlay_pool_size(num)), inlay_pool_size(num), num, shapes[k].element, &t.m, &pool));
				pool->alignment = shapes[k].alignment;
				if (num > n) {
					assert_int_equal(inlay_pool_start(pool), -ENOSPC);
					assert_int_equal(inlay_mmap_num_bufs(&t.m), 0);
					must(inlay_pool_destroy(pool));
					given_free(pool);
					continue;
				}
				must(inlay_pool_start(pool));
				b = (struct inlay_buf **)calloc(num, sizeof(*b));
				memset(hit, 0, RANGES * 2 * RANGE_BYTES);
				for (i = 0; i < num; i++) {
					size_t at;

					must(inlay_pool_alloc(pool, &b[i]));
					at = (size_t)((uint8_t *)inlay_buf_head(b[i]) - t.mem);
					assert_int_equal(inlay_buf_len(b[i]), shapes[k].element);
					assert_ptr_equal(inlay_buf_data(b[i]), inlay_buf_head(b[i]));
					assert_int_equal(inlay_buf_data_len(b[i]), 0);
					assert_int_equal((uintptr_t)inlay_buf_head(b[i]) % shapes[k].alignment, 0);
					assert_non_null(inlay_mmap_find(&t.m, inlay_buf_head(b[i]), shapes[k].element));
					assert_int_equal(inlay_buf_keys(b[i]).rkey, inlay_mmap_find(&t.m, inlay_buf_head(b[i]), 1)->rkey);
					assert_true(all_bytes(hit + at, shapes[k].element, 0));
					memset(hit + at, 1, shapes[k].element);
				}
				assert_int_equal(inlay_pool_alloc(pool, &b[0]), -EAGAIN);
				assert_int_equal(inlay_mmap_num_bufs(&t.m), num + 1);
				assert_int_equal(put_all(b, num), num);
				assert_int_equal(inlay_mmap_num_bufs(&t.m), 1);
				/* A window that was moved is at the start again */
				must(inlay_pool_alloc(pool, &b[0]));
				inlay_buf_set_data(b[0], (uint8_t *)inlay_buf_head(b[0]) + 1, shapes[k].element - 1);
				must(inlay_buf_dec_refcount(b[0], NULL));
				take_all(pool, num, b);
				for (i = 0; i < num; i++) {
					assert_ptr_equal(inlay_buf_data(b[i]), inlay_buf_head(b[i]));
					assert_int_equal(inlay_buf_data_len(b[i]), 0);
				}
				assert_int_equal(inlay_mmap_num_bufs(&t.m), num + 1);
				assert_int_equal(put_all(b, num), num);
				must(inlay_pool_destroy(pool));
				given_free(pool);
				free(b);
			}
		}
		map_free(&t);
	}
	free(hit);
}

/* Keys that differ, so that who swaps them is found out, by every way to a buffer */
TEST(keys_apart)
{
	struct inlay_inventory *inv = inventory_started(4);
	struct inlay_keys first = {0x1100, 0x2200}, second = {0x3300, 0x4400};
	struct inlay_buf *b[4];
	struct inlay_pool *pool = NULL;
	struct inlay_mmap m;
	void *memory = given(inlay_mmap_size(1, 2));

	must(inlay_mmap_create(&m, memory, inlay_mmap_size(1, 2), 1, 2));
	must(inlay_mmap_add_dev(&m, dev.pd));
	must(inlay_mmap_add(&m, inlay_source_keys(0x10000, 4096, first)));
	must(inlay_mmap_add(&m, inlay_source_keys(0x20000, 4096, second)));
	must(inlay_mmap_start(&m));
	must(inlay_inventory_get_by_data(inv, &m, (void *)0x10000, 64, &b[0]));
	must(inlay_inventory_get_by_addr(inv, &m, (void *)0x10040, 64, &b[1]));
	must(inlay_inventory_dup(inv, b[0], &b[2]));
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(inlay_buf_keys(b[i]).lkey, first.lkey);
		assert_int_equal(inlay_buf_keys(b[i]).rkey, first.rkey);
		assert_int_equal(inlay_buf_sge(b[i]).lkey, first.lkey);
	}
	must(inlay_inventory_get_by_data(inv, &m, (void *)0x20000, 64, &b[3]));
	assert_int_equal(inlay_buf_keys(b[3]).lkey, second.lkey);
	assert_int_equal(inlay_buf_keys(b[3]).rkey, second.rkey);
	assert_int_equal(put_all(b, 4), 4);
	inventory_free(inv);
	must(inlay_pool_create(given(inlay_pool_size(2)), inlay_pool_size(2), 2, 4096, &m, &pool));
	must(inlay_pool_start(pool));
	take_all(pool, 2, b);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(inlay_buf_keys(b[i]).lkey, inlay_buf_head(b[i]) == (void *)0x10000 ? first.lkey : second.lkey);
		assert_int_equal(inlay_buf_keys(b[i]).rkey, inlay_buf_head(b[i]) == (void *)0x10000 ? first.rkey : second.rkey);
	}
	for (uint32_t i = 0; i < 2; i++) { /* by number, allocated or not */
		struct ibv_sge sge = inlay_pool_sge(pool, i);

		assert_int_equal(sge.addr, i ? 0x20000 : 0x10000);
		assert_int_equal(sge.length, 4096);
		assert_int_equal(sge.lkey, i ? second.lkey : first.lkey);
		must(inlay_buf_dec_refcount(b[i], NULL));
	}
	must(inlay_pool_destroy(pool));
	given_free(pool);
	must(inlay_mmap_destroy(&m));
	given_free(memory);
}

int main(void)
{
	return run_all(dev_open, dev_close);
}
