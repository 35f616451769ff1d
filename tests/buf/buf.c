/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * buf.c: buffers, lists, inventories, pools and arrays. Every rule and error, table by table; then all of them at random beside a plain model, that
 * knows at every step what each function must answer and what each buffer must hold; and a list that is posted and comes back with its completion.
 *
 * INLAY_TEST_STEPS  of the random run
 */
#include "common.h"
#include "rig.h"
#include "given.h"

#define RANGES 3
#define RANGE_BYTES 65536u

/* ---- maps ---- */

/* An mmap of RANGES ranges, apart from each other, with up to two devices */
struct map {
	struct inlay_mmap m;
	void *state;
	uint8_t *mem;
	struct ibv_pd *pd2;
};

static void map_make(struct map *t, int devices)
{
	uint32_t i;

	memset(t, 0, sizeof(*t));
	t->state = given(inlay_mmap_size(2, RANGES));
	t->mem = (uint8_t *)pages(RANGES * 2 * RANGE_BYTES);
	must(inlay_mmap_create(&t->m, t->state, inlay_mmap_size(2, RANGES), 2, RANGES));
	if (devices > 0)
		must(inlay_mmap_add_dev(&t->m, dev.pd));
	if (devices > 1) {
		t->pd2 = ibv_alloc_pd(dev.ctx);
		assert_non_null(t->pd2);
		must(inlay_mmap_add_dev(&t->m, t->pd2));
	}
	for (i = 0; i < RANGES; i++)
		must(inlay_mmap_add(&t->m, inlay_source_host(t->mem + 2 * i * RANGE_BYTES, RANGE_BYTES)));
	must(inlay_mmap_set_permissions(&t->m, INLAY_LOCAL_READ_WRITE | INLAY_RDMA_READ | INLAY_RDMA_WRITE));
	must(inlay_mmap_start(&t->m));
}

static void map_free(struct map *t)
{
	must(inlay_mmap_destroy(&t->m));
	if (t->pd2)
		must(ibv_dealloc_pd(t->pd2));
	given_free(t->state);
	free(t->mem);
}

static struct inlay_inventory *inventory_make(uint32_t num)
{
	struct inlay_inventory *inv = NULL;

	must(inlay_inventory_create(given(inlay_inventory_size(num)), inlay_inventory_size(num), num, &inv));
	return inv;
}

static struct inlay_inventory *inventory_started(uint32_t num)
{
	struct inlay_inventory *inv = inventory_make(num);

	must(inlay_inventory_start(inv));
	return inv;
}

static void inventory_free(struct inlay_inventory *inv)
{
	must(inlay_inventory_destroy(inv));
	given_free(inv);
}

/* All or none */
static int pool_alloc_many(struct inlay_pool *pool, uint32_t n, struct inlay_buf **b)
{
	uint32_t i;
	int err;

	for (i = 0; i < n; i++) {
		err = inlay_pool_alloc(pool, &b[i]);
		if (err) {
			assert_int_equal(put_all(b, i), i);
			return err;
		}
	}
	return 0;
}

/* ---- one buffer ---- */

static void windows(void **state)
{
	static const struct {
		int64_t offset;
		uint64_t len;
		int result;
	} tries[] = {
		{0, 0, 0}, {0, 1, 0}, {0, 256, 0}, {255, 1, 0}, {256, 0, 0}, {100, 156, 0},
		{0, 257, -EINVAL}, {256, 1, -EINVAL}, {257, 0, -EINVAL}, {-1, 0, -EINVAL}, {-1, 1, -EINVAL}, {-256, 512, -EINVAL},
		{1, 256, -EINVAL}, {1, UINT64_MAX, -EINVAL}, {0, 1ull << 31, -EINVAL}, {0, 1ull << 32, -EINVAL}, {255, UINT64_MAX - 254, -EINVAL},
	};
	struct inlay_inventory *inv = inventory_started(2);
	struct inlay_buf *b = NULL;
	struct map t;
	uint8_t *head;
	size_t i;

	(void)state;
	map_make(&t, 1);
	head = t.mem + 1000;
	must(inlay_inventory_get_by_args(inv, &t.m, head, 256, head + 10, 20, &b));
	assert_ptr_equal(inlay_buf_head(b), head);
	assert_int_equal(inlay_buf_len(b), 256);
	assert_ptr_equal(inlay_buf_data(b), head + 10);
	assert_int_equal(inlay_buf_data_len(b), 20);
	for (i = 0; i < ARRAY(tries); i++) {
		uint8_t *data = head + tries[i].offset;

		inlay_buf_set_data(b, head + 7, 9);
		assert_int_equal(inlay_buf_set_data(b, data, tries[i].len), tries[i].result);
		assert_ptr_equal(inlay_buf_data(b), tries[i].result ? head + 7 : data);
		assert_int_equal(inlay_buf_data_len(b), tries[i].result ? 9 : tries[i].len);
		if (!tries[i].result) {
			inlay_buf_set_data(b, head, 0);
			inlay_buf_set_data(b, data, tries[i].len);
			assert_ptr_equal(inlay_buf_data(b), data);
			assert_int_equal(inlay_buf_data_len(b), tries[i].len);
		}
	}
	inlay_buf_set_data(b, head + 200, 3);
	assert_int_equal(inlay_buf_set_data_len(b, 57), -EINVAL);
	assert_int_equal(inlay_buf_data_len(b), 3);
	must(inlay_buf_set_data_len(b, 56));
	inlay_buf_set_data_len(b, 55);
	assert_int_equal(inlay_buf_data_len(b), 55);
	inlay_buf_set_data_len(b, 0);
	assert_int_equal(inlay_buf_data_len(b), 0);
	assert_ptr_equal(inlay_buf_data(b), head + 200);
	assert_ptr_equal(inlay_buf_head(b), head);
	assert_int_equal(inlay_buf_len(b), 256);
	must(inlay_buf_dec_refcount(b, NULL));
	inventory_free(inv);
	map_free(&t);
}

static void references(void **state)
{
	struct inlay_inventory *inv = inventory_started(4);
	struct inlay_buf *b = NULL, *e = NULL;
	uint16_t prev = 7;
	struct map t;
	uint32_t i;

	(void)state;
	map_make(&t, 1);
	must(inlay_inventory_get_by_data(inv, &t.m, t.mem, 64, &b));
	must(inlay_inventory_get_by_data(inv, &t.m, t.mem, 64, &e));
	assert_int_equal(inlay_buf_refcount(b), 1);
	for (i = 1; i < UINT16_MAX; i++) {
		must(inlay_buf_inc_refcount(b, &prev));
		assert_int_equal(prev, i);
	}
	assert_int_equal(inlay_buf_refcount(b), UINT16_MAX);
	prev = 7;
	assert_int_equal(inlay_buf_inc_refcount(b, &prev), -ENOSPC);
	assert_int_equal(prev, 7);
	assert_int_equal(inlay_buf_refcount(b), UINT16_MAX);
	for (i = UINT16_MAX; i > 1; i--) {
		must(inlay_buf_dec_refcount(b, &prev));
		assert_int_equal(prev, i);
		assert_int_equal(inlay_mmap_num_bufs(&t.m), 2);
	}
	must(inlay_buf_inc_refcount(b, NULL));
	must(inlay_buf_dec_refcount(b, NULL));
	/* An element is not counted */
	must(inlay_buf_chain_list(b, e));
	prev = 7;
	assert_int_equal(inlay_buf_inc_refcount(e, &prev), -EINVAL);
	assert_int_equal(inlay_buf_dec_refcount(e, &prev), -EINVAL);
	assert_int_equal(inlay_inventory_dec_refcount(inv, e, &prev), -EINVAL);
	assert_int_equal(prev, 7);
	assert_int_equal(inlay_buf_refcount(e), 1);
	/* The head is; with its last reference both go */
	must(inlay_buf_inc_refcount(b, NULL));
	must(inlay_inventory_dec_refcount(inv, b, &prev));
	assert_int_equal(prev, 2);
	assert_int_equal(inlay_inventory_num_free(inv), 2);
	must(inlay_buf_dec_refcount(b, &prev));
	assert_int_equal(prev, 1);
	assert_int_equal(inlay_inventory_num_free(inv), 4);
	assert_int_equal(inlay_mmap_num_bufs(&t.m), 0);
	prev = 7;
	assert_int_equal(inlay_buf_dec_refcount(b, &prev), -EBADFD);
	assert_int_equal(inlay_buf_dec_refcount(e, &prev), -EBADFD);
	assert_int_equal(inlay_inventory_dec_refcount(inv, e, &prev), -EBADFD);
	assert_int_equal(inlay_buf_inc_refcount(b, &prev), -EBADFD);
	assert_int_equal(prev, 7);
	assert_int_equal(inlay_buf_refcount(b), 0);
	assert_int_equal(inlay_inventory_num_free(inv), 4);
	inventory_free(inv);
	map_free(&t);
}

/* a -> b -> c and d -> e, and s alone */
static void lists(void **state)
{
	struct inlay_inventory *inv = inventory_started(8);
	struct inlay_buf *b[6], *dead = NULL;
	struct ibv_sge sge[8];
	struct map t;
	uint32_t i;
	enum { A, B, C, D, E, S };

	(void)state;
	map_make(&t, 1);
	for (i = 0; i < 6; i++) {
		must(inlay_inventory_get_by_args(inv, &t.m, t.mem + 64 * i, 64, t.mem + 64 * i + i, i == B ? 0 : 10 + i, &b[i]));
		assert_true(inlay_buf_is_first(b[i]) && !inlay_buf_next(b[i]));
		assert_int_equal(inlay_buf_list_len(b[i]), 1);
		assert_ptr_equal(inlay_buf_last(b[i]), b[i]);
		assert_null(inlay_buf_next(b[i]));
	}
	must(inlay_buf_chain_list(b[A], b[B]));
	must(inlay_buf_chain_list(b[A], b[C]));
	must(inlay_buf_chain_list(b[D], b[E]));
	/* What may not be chained, and changes nothing */
	assert_int_equal(inlay_buf_chain_list(b[B], b[S]), -EINVAL);
	assert_int_equal(inlay_buf_chain_list(b[S], b[E]), -EINVAL);
	assert_int_equal(inlay_buf_chain_list(b[A], b[C]), -EINVAL);
	assert_int_equal(inlay_buf_chain_list(b[S], b[S]), -EINVAL);
	assert_int_equal(inlay_buf_chain_list(b[A], b[A]), -EINVAL);
	must(inlay_buf_inc_refcount(b[D], NULL));
	assert_int_equal(inlay_buf_chain_list(b[A], b[D]), -EBUSY);
	must(inlay_buf_dec_refcount(b[D], NULL));
	must(inlay_inventory_get_by_data(inv, &t.m, t.mem, 64, &dead));
	must(inlay_buf_dec_refcount(dead, NULL));
	assert_int_equal(inlay_buf_chain_list(b[A], dead), -EBADFD);
	assert_int_equal(inlay_buf_chain_list(dead, b[S]), -EBADFD);
	assert_int_equal(inlay_buf_unchain_list(b[A], b[A]), -EINVAL);
	assert_int_equal(inlay_buf_unchain_list(b[A], b[E]), -EINVAL);
	assert_int_equal(inlay_buf_unchain_list(b[A], b[S]), -EINVAL);
	assert_int_equal(inlay_buf_unchain_list(b[S], b[S]), -EINVAL);
	assert_int_equal(inlay_buf_unchain_list(b[B], b[C]), -EINVAL);
	assert_int_equal(inlay_buf_list_len(b[A]), 3);
	assert_int_equal(inlay_buf_list_len(b[D]), 2);
	assert_int_equal(inlay_buf_list_len(b[B]), -EINVAL);
	/* Lists of lists keep their order; the head may have many references */
	must(inlay_buf_inc_refcount(b[A], NULL));
	must(inlay_buf_chain_list(b[A], b[D]));
	must(inlay_buf_dec_refcount(b[A], NULL));
	assert_int_equal(inlay_buf_list_len(b[A]), 5);
	for (i = A; i <= E; i++) {
		assert_ptr_equal(inlay_buf_next(b[i]), i < E ? b[i + 1] : NULL);
		assert_ptr_equal(inlay_buf_last(b[i]), b[E]);
		assert_int_equal(inlay_buf_is_first(b[i]), i == A);
		assert_int_equal(!inlay_buf_next(b[i]), i == E);
		assert_int_equal(inlay_buf_refcount(b[i]), 1);
	}
	/* The gather list: in order, without the empty one */
	assert_int_equal(inlay_buf_sges(b[A], sge, 8), 4);
	assert_int_equal(inlay_buf_sges(b[A], sge, 4), 4);
	assert_int_equal(inlay_buf_sges(b[A], sge, 3), -ENOBUFS);
	assert_int_equal(inlay_buf_segs(b[A]), 4);
	assert_int_equal(inlay_buf_list_bytes(b[A]), 10 + 12 + 13 + 14);
	assert_int_equal(inlay_buf_sges(b[A], sge, 8), 4);
	for (i = 0; i < 4; i++) {
		uint32_t k = i ? i + 1 : 0;

		assert_int_equal(sge[i].addr, (uintptr_t)t.mem + 64 * k + k);
		assert_int_equal(sge[i].length, 10 + k);
		assert_int_equal(sge[i].lkey, inlay_buf_lkey(b[k]));
	}
	assert_int_equal(inlay_buf_sges(b[B], sge, 0), -ENOBUFS);
	/* Cut at c, at b, and put together otherwise */
	must(inlay_buf_unchain_list(b[A], b[C]));
	assert_int_equal(inlay_buf_list_len(b[A]), 2);
	assert_int_equal(inlay_buf_list_len(b[C]), 3);
	assert_ptr_equal(inlay_buf_last(b[A]), b[B]);
	assert_ptr_equal(inlay_buf_last(b[C]), b[E]);
	must(inlay_buf_unchain_list(b[A], b[B]));
	assert_true(inlay_buf_is_first(b[B]) && !inlay_buf_next(b[A]) && !inlay_buf_next(b[B]));
	assert_ptr_equal(inlay_buf_last(b[A]), b[A]);
	must(inlay_buf_unchain_list(b[C], b[E]));
	must(inlay_buf_chain_list(b[E], b[C]));
	assert_ptr_equal(inlay_buf_next(b[E]), b[C]);
	assert_ptr_equal(inlay_buf_last(b[E]), b[D]);
	must(inlay_buf_inc_refcount(b[B], NULL));
	assert_int_equal(inlay_buf_refcount(b[B]), 2);
	must(inlay_buf_dec_refcount(b[B], NULL));
	must(inlay_buf_dec_refcount(b[A], NULL));
	must(inlay_buf_dec_refcount(b[B], NULL));
	assert_int_equal(inlay_inventory_num_free(inv), 4);
	must(inlay_buf_dec_refcount(b[E], NULL));
	must(inlay_buf_dec_refcount(b[S], NULL));
	assert_int_equal(inlay_inventory_num_free(inv), 8);
	assert_int_equal(inlay_mmap_num_bufs(&t.m), 0);
	inventory_free(inv);
	map_free(&t);
}

/* Lists whose descriptors are so far apart that a part of them cannot be a list of its own */
static void far_lists(void **state)
{
	static const uint64_t place[] = {100, 0, 100, 200}; /* GiB */
	struct inlay_inventory *inv[ARRAY(place)];
	struct inlay_buf *b[ARRAY(place)], *x = NULL;
	size_t size = inlay_inventory_size(4), all = 201ull << 30;
	uint8_t *space = (uint8_t *)mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), *at;
	struct map t;
	uint32_t i;
	enum { H, A, B, T };

	(void)state;
	assert_true(space != MAP_FAILED);
	map_make(&t, 1);
	for (i = 0; i < ARRAY(place); i++) {
		at = space + (place[i] << 30) + i * 65536;
		must(mprotect(at, (size + 4095) / 4096 * 4096, PROT_READ | PROT_WRITE));
		must(inlay_inventory_create(at, size, 4, &inv[i]));
		must(inlay_inventory_start(inv[i]));
		must(inlay_inventory_get_by_data(inv[i], &t.m, t.mem, 64, &b[i]));
	}
	assert_int_equal(inlay_buf_chain_list(b[A], b[T]), -ERANGE);
	assert_true(inlay_buf_is_first(b[T]) && !inlay_buf_next(b[A]));
	/* What would be cut off is too long: a .. t */
	must(inlay_buf_chain_list(b[H], b[A]));
	must(inlay_buf_chain_list(b[H], b[B]));
	must(inlay_buf_chain_list(b[H], b[T]));
	assert_int_equal(inlay_buf_unchain_list(b[H], b[A]), -ERANGE);
	assert_int_equal(inlay_buf_list_len(b[H]), 4);
	assert_ptr_equal(inlay_buf_last(b[H]), b[T]);
	assert_false(inlay_buf_is_first(b[A]));
	must(inlay_buf_unchain_list(b[H], b[B]));
	assert_int_equal(inlay_buf_list_len(b[H]), 2);
	assert_ptr_equal(inlay_buf_last(b[H]), b[A]);
	assert_ptr_equal(inlay_buf_last(b[B]), b[T]);
	must(inlay_buf_unchain_list(b[H], b[A]));
	must(inlay_buf_unchain_list(b[B], b[T]));
	/* What would be left is too long: a, h, t; then b */
	must(inlay_buf_chain_list(b[H], b[T]));
	must(inlay_buf_chain_list(b[H], b[B]));
	must(inlay_buf_chain_list(b[A], b[H]));
	assert_int_equal(inlay_buf_unchain_list(b[A], b[B]), -ERANGE);
	assert_int_equal(inlay_buf_list_len(b[A]), 4);
	assert_ptr_equal(inlay_buf_last(b[A]), b[B]);
	assert_ptr_equal(inlay_buf_next(b[T]), b[B]);
	must(inlay_inventory_get_by_data(inv[A], &t.m, t.mem, 64, &x));
	must(inlay_buf_chain_list(b[A], x));
	must(inlay_buf_dec_refcount(b[A], NULL));
	for (i = 0; i < ARRAY(place); i++) {
		assert_int_equal(inlay_inventory_num_free(inv[i]), 4);
		must(inlay_inventory_destroy(inv[i]));
	}
	must(munmap(space, all));
	map_free(&t);
}

/* ---- inventories ---- */

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
static void inventory_states(void **state)
{
	static const int results[][STATES] = {
		{0, -EBADFD, 0},             /* start */
		{-EBADFD, 0, -EBADFD},       /* stop */
		{-EBADFD, 0, -EBADFD},       /* get_by_args */
		{-EBADFD, 0, -EBADFD},       /* get_by_addr */
		{-EBADFD, 0, -EBADFD},       /* get_by_data */
		{-EBADFD, 0, -EBADFD},       /* get */
		{-EBADFD, 0, -EBADFD},       /* dup */
		{-EBADFD, 0, -EBADFD},       /* expand */
		{0, -EBADFD, -EBADFD},       /* set_user_data */
		{0, -EBADFD, -EBADFD},       /* set_dev */
		{0, 0, 0},                   /* destroy */
	};
	struct inlay_inventory *inv, *other = inventory_started(2);
	struct inlay_buf *src = NULL, *b = NULL;
	struct buf_args args;
	void *more;
	struct map t, stopped;
	uint32_t f, s;
	int got;

	(void)state;
	map_make(&t, 1);
	map_make(&stopped, 1);
	must(inlay_mmap_stop(&stopped.m));
	must(inlay_inventory_get_by_data(other, &t.m, t.mem, 64, &src));
	for (f = 0; f < ARRAY(results); f++) {
		for (s = 0; s < STATES; s++) {
			inv = inventory_in((enum state)s);
			more = given(inlay_inventory_size(3));
			args.addr = args.data = t.mem;
			args.len = args.data_len = 64;
			b = NULL;
			got = f == 0 ? inlay_inventory_start(inv) : f == 1 ? inlay_inventory_stop(inv) :
			      f == 2 ? inlay_inventory_get_by_args(inv, &t.m, t.mem, 64, t.mem, 64, &b) :
			      f == 3 ? inlay_inventory_get_by_addr(inv, &t.m, t.mem, 64, &b) :
			      f == 4 ? inlay_inventory_get_by_data(inv, &t.m, t.mem, 64, &b) :
			      f == 5 ? get_all(inv, &t.m, &args, 1, &b) :
			      f == 6 ? inlay_inventory_dup(inv, src, &b) :
			      f == 7 ? inlay_inventory_expand(inv, more, inlay_inventory_size(3), 3) :
			      f == 8 ? inlay_inventory_set_user_data(inv, 5) :
			      f == 9 ? inlay_inventory_set_dev(inv, 0) : inlay_inventory_destroy(inv);
			if (got != results[f][s])
				fail_msg("function %u in state %u: %d", f, s, got);
			assert_int_equal(inlay_inventory_num_elements(inv), f == 7 && !got ? 7 : 4);
			assert_int_equal(inlay_inventory_num_free(inv), f == 7 && !got ? 7 : b ? 3 : 4);
			assert_int_equal(inlay_inventory_user_data(inv), f == 8 && !got ? 5 : 0);
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
	args.addr = args.data = stopped.mem;
	assert_int_equal(inlay_inventory_get_by_data(inv, &stopped.m, stopped.mem, 64, &b), -EBADFD);
	assert_int_equal(get_all(inv, &stopped.m, &args, 1, &b), -EBADFD);
	must(inlay_buf_dec_refcount(src, NULL));
	assert_int_equal(inlay_inventory_dup(inv, src, &b), -EBADFD);
	inventory_free(inv);
	inventory_free(other);
	map_free(&t);
	map_free(&stopped);
}

static void inventory_arguments(void **state)
{
	size_t size = inlay_inventory_size(4);
	uint8_t *memory = (uint8_t *)given(size + 64);
	struct inlay_inventory *inv = NULL;
	struct inlay_buf *b[4];
	struct map t;
	uint32_t i;

	(void)state;
	map_make(&t, 1);
	assert_int_equal(inlay_inventory_size(0), 0);
	assert_int_equal(inlay_inventory_size((1u << 30) + 1), 0);
	assert_int_equal(inlay_inventory_create(NULL, size, 4, &inv), -EINVAL);
	assert_int_equal(inlay_inventory_create(memory, size, 0, &inv), -EINVAL);
	assert_int_equal(inlay_inventory_create(memory, size - 1, 4, &inv), -ENOBUFS);
	assert_int_equal(inlay_inventory_create(memory + 32, size, 4, &inv), -EINVAL);
	assert_null(inv);
	must(inlay_inventory_create(memory + 64, size, 4, &inv));
	must(inlay_inventory_set_user_data(inv, 77));
	must(inlay_inventory_start(inv));
	assert_int_equal(inlay_inventory_user_data(inv), 77);
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
		};
		const struct inlay_range *r;
		struct inlay_buf *x = NULL;

		for (i = 0; i < 3 * ARRAY(tries); i++) {
			size_t k = i < ARRAY(tries) ? i : rnd_below(ARRAY(tries));

			if (inlay_inventory_get_by_args(inv, &t.m, tries[k].addr, tries[k].len, tries[k].data, tries[k].data_len, &x) !=
			    tries[k].result)
				fail_msg("buffer %zu", k);
			if (tries[k].result)
				continue;
			r = inlay_mmap_find(&t.m, tries[k].addr, tries[k].len);
			assert_non_null(r);
			assert_int_equal(inlay_buf_lkey(x), r->lkey);
			assert_int_equal(inlay_buf_rkey(x), r->rkey);
			assert_ptr_equal(inlay_buf_mmap(x), &t.m);
			assert_int_equal(inlay_mmap_num_bufs(&t.m), 1);
			assert_int_equal(inlay_mmap_stop(&t.m), -EBUSY);
			must(inlay_buf_dec_refcount(x, NULL));
		}
	}
	/* All four, and no fifth; each one a line of its own */
	for (i = 0; i < 4; i++) {
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
	for (i = 0; i < 4; i++) {
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
static void restarted(void **state)
{
	struct inlay_inventory *inv = inventory_started(4);
	struct inlay_buf *b = NULL;
	struct map t;
	uint32_t old = 0, i;

	(void)state;
	map_make(&t, 1);
	for (i = 0; i < 4; i++) {
		must(inlay_inventory_get_by_data(inv, &t.m, t.mem + 4 * RANGE_BYTES, 64, &b));
		assert_int_equal(inlay_buf_lkey(b), inlay_mmap_find(&t.m, t.mem + 4 * RANGE_BYTES, 64)->lkey);
		assert_true(inlay_buf_lkey(b) != old);
		old = inlay_buf_lkey(b);
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

/* The range found last was the last of many, and they have become few: what is left of it in the mmap's memory is not looked at */
static void fewer(void **state)
{
	enum { MANY = 40 };
	struct inlay_inventory *inv = inventory_started(4);
	uint8_t *mem = (uint8_t *)pages(MANY * 512);
	void *memory = given(inlay_mmap_size(1, MANY));
	struct inlay_buf *b = NULL;
	struct inlay_mmap m;
	uint32_t i;

	(void)state;
	must(inlay_mmap_create(&m, memory, inlay_mmap_size(1, MANY), 1, MANY));
	for (i = 0; i < MANY; i++)
		must(inlay_mmap_add(&m, inlay_source_host(mem + 512 * i, 256)));
	must(inlay_mmap_start(&m));
	must(inlay_inventory_get_by_data(inv, &m, mem + 512 * (MANY - 1), 256, &b));
	must(inlay_buf_dec_refcount(b, NULL));
	must(inlay_mmap_stop(&m));
	for (i = 2; i < MANY; i++)
		must(inlay_mmap_rm(&m, (uintptr_t)(mem + 512 * i), 256));
	must(inlay_mmap_start(&m));
	assert_int_equal(inlay_inventory_get_by_data(inv, &m, mem + 512 * (MANY - 1), 256, &b), -EINVAL);
	must(inlay_mmap_destroy(&m));
	inventory_free(inv);
	given_free(memory);
	free(mem);
}

/* Keys of the second device */
static void devices(void **state)
{
	struct inlay_inventory *first = inventory_started(4), *second = inventory_make(4), *third = inventory_make(4);
	struct inlay_buf *a = NULL, *b = NULL, *c = NULL, *all[3];
	struct buf_args args;
	struct inlay_keys keys, keys0;
	struct inlay_pool *pool;
	struct inlay_array array;
	struct map t, lone;

	(void)state;
	map_make(&t, 2);
	map_make(&lone, 1);
	must(inlay_inventory_set_dev(second, 1));
	must(inlay_inventory_start(second));
	must(inlay_inventory_set_dev(third, 2));
	must(inlay_inventory_start(third));
	must(inlay_inventory_get_by_data(first, &t.m, t.mem + 2 * RANGE_BYTES, 64, &a));
	must(inlay_inventory_get_by_data(second, &t.m, t.mem + 2 * RANGE_BYTES, 64, &b));
	must(inlay_mmap_keys(&t.m, 1, 0, &keys0));
	must(inlay_mmap_keys(&t.m, 1, 1, &keys));
	assert_true(keys.lkey != keys0.lkey);
	assert_int_equal(inlay_buf_lkey(a), keys0.lkey);
	assert_int_equal(inlay_buf_rkey(a), keys0.rkey);
	assert_int_equal(inlay_buf_lkey(b), keys.lkey);
	assert_int_equal(inlay_buf_rkey(b), keys.rkey);
	assert_int_equal(inlay_inventory_get_by_data(third, &t.m, t.mem, 64, &c), -ENOENT);
	assert_int_equal(inlay_inventory_dup(third, a, &c), -ENOENT);
	assert_int_equal(inlay_inventory_get_by_data(second, &lone.m, lone.mem, 64, &c), -ENOENT);
	args.addr = args.data = lone.mem;
	args.len = args.data_len = 64;
	assert_int_equal(get_all(second, &lone.m, &args, 1, &c), -ENOENT);
	assert_int_equal(inlay_inventory_num_free(second), 3);
	/* Copies have the keys for where they go */
	must(inlay_inventory_dup(second, a, &c));
	assert_int_equal(inlay_buf_lkey(c), keys.lkey);
	must(inlay_buf_dec_refcount(c, NULL));
	must(inlay_inventory_dup(first, b, &c));
	assert_int_equal(inlay_buf_rkey(c), keys0.rkey);
	all[0] = a;
	all[1] = b;
	all[2] = c;
	assert_int_equal(put_all(all, 3), 3);
	/* Pool and array */
	must(inlay_pool_create(given(inlay_pool_size(4)), inlay_pool_size(4), 4, 64, &t.m, &pool));
	must(inlay_inventory_set_dev(&pool->inventory, 2));
	assert_int_equal(inlay_pool_start(pool), -ENOENT);
	must(inlay_inventory_set_dev(&pool->inventory, 1));
	must(inlay_pool_start(pool));
	assert_int_equal(inlay_inventory_set_dev(&pool->inventory, 0), -EBADFD);
	must(inlay_pool_alloc(pool, &a));
	must(inlay_mmap_keys(&t.m, 0, 1, &keys));
	assert_int_equal(inlay_buf_lkey(a), keys.lkey);
	must(inlay_buf_dec_refcount(a, NULL));
	must(inlay_pool_destroy(pool));
	given_free(pool);
	assert_int_equal(inlay_array_start(&array, &t.m, 4, 64, 0, 2), -ENOENT);
	must(inlay_array_start(&array, &t.m, 4, 64, 0, 1));
	assert_int_equal(inlay_array_sge(&array, 0).lkey, keys.lkey);
	assert_int_equal(array.keys.rkey, keys.rkey);
	must(inlay_array_stop(&array));
	inventory_free(first);
	inventory_free(second);
	inventory_free(third);
	map_free(&t);
	map_free(&lone);
}

/* Batches: all or nothing */
static void batches(void **state)
{
	struct inlay_inventory *inv = inventory_started(8);
	struct inlay_buf *b[9];
	struct buf_args args[9];
	struct map t;
	uint32_t i, n;

	(void)state;
	map_make(&t, 1);
	for (i = 0; i < 9; i++) {
		args[i].addr = t.mem + 2 * (i % RANGES) * RANGE_BYTES + 100 * i;
		args[i].len = 90 + i;
		args[i].data = (uint8_t *)args[i].addr + i;
		args[i].data_len = 2 * i;
	}
	for (n = 0; n <= 8; n++) {
		must(get_all(inv, &t.m, args, n, b));
		assert_int_equal(inlay_inventory_num_free(inv), 8 - n);
		assert_int_equal(inlay_mmap_num_bufs(&t.m), n);
		assert_int_equal(get_all(inv, &t.m, args, 9 - n, b + n), -EAGAIN);
		for (i = 0; i < n; i++) {
			assert_ptr_equal(inlay_buf_head(b[i]), args[i].addr);
			assert_int_equal(inlay_buf_len(b[i]), args[i].len);
			assert_ptr_equal(inlay_buf_data(b[i]), args[i].data);
			assert_int_equal(inlay_buf_data_len(b[i]), args[i].data_len);
			assert_int_equal(inlay_buf_lkey(b[i]), inlay_mmap_find(&t.m, args[i].addr, args[i].len)->lkey);
			assert_int_equal(inlay_buf_refcount(b[i]), 1);
		}
		assert_int_equal(put_all(b, n), n);
	}
	/* One that is nowhere: none is taken, whichever it is */
	for (i = 0; i < 8; i++) {
		void *addr = args[i].addr;

		args[i].addr = args[i].data = t.mem + RANGE_BYTES;
		assert_int_equal(get_all(inv, &t.m, args, 8, b), -EINVAL);
		assert_int_equal(inlay_inventory_num_free(inv), 8);
		assert_int_equal(inlay_mmap_num_bufs(&t.m), 0);
		args[i].addr = args[i].data = addr;
		args[i].data_len = 1ull << 31;
		assert_int_equal(get_all(inv, &t.m, args, 8, b), -EINVAL);
		args[i].data_len = 0;
		must(get_all(inv, &t.m, args, 8, b));
		/* And one that cannot be given back stops the rest */
		must(inlay_buf_dec_refcount(b[i], NULL));
		assert_int_equal(put_all(b, 8), i);
		assert_int_equal(put_all(b + i + 1, 7 - i), 7 - i);
		assert_int_equal(inlay_inventory_num_free(inv), 8);
	}
	inventory_free(inv);
	map_free(&t);
}

static void copies(void **state)
{
	struct inlay_inventory *inv = inventory_started(8), *other = inventory_started(3);
	struct inlay_buf *b[3], *copy = NULL, *at = NULL;
	struct map t;
	uint32_t i;

	(void)state;
	map_make(&t, 1);
	for (i = 0; i < 3; i++) {
		must(inlay_inventory_get_by_args(inv, &t.m, t.mem + 2 * i * RANGE_BYTES, 64, t.mem + 2 * i * RANGE_BYTES + i, 5 + i, &b[i]));
		t.mem[2 * i * RANGE_BYTES] = (uint8_t)(i + 1);
	}
	must(inlay_buf_chain_list(b[0], b[1]));
	must(inlay_buf_chain_list(b[0], b[2]));
	must(inlay_buf_inc_refcount(b[0], NULL));
	assert_int_equal(inlay_inventory_dup(inv, b[1], &copy), -EINVAL);
	/* Into the same inventory and into another, just large enough: other descriptors, the same memory, one reference */
	for (i = 0; i < 2; i++) {
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
			assert_int_equal(inlay_buf_lkey(at), inlay_buf_lkey(src));
			assert_int_equal(inlay_buf_rkey(at), inlay_buf_rkey(src));
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
static void expanded(void **state)
{
	struct inlay_inventory *inv = inventory_started(2), *other = inventory_started(2);
	struct inlay_buf *b[12], *x = NULL;
	uint8_t *piece[3];
	struct map t;
	size_t size;
	uint32_t i, k;

	(void)state;
	map_make(&t, 1);
	must(inlay_inventory_get_by_data(inv, &t.m, t.mem, 64, &b[0]));
	for (k = 0; k < 3; k++) {
		size = inlay_inventory_size(3);
		piece[k] = (uint8_t *)given(size + 64);
		assert_int_equal(inlay_inventory_expand(inv, NULL, size, 3), -EINVAL);
		assert_int_equal(inlay_inventory_expand(inv, piece[k], size - 64, 3), -ENOBUFS);
		assert_int_equal(inlay_inventory_expand(inv, piece[k] + 8, size, 3), -EINVAL);
		assert_int_equal(inlay_inventory_expand(inv, piece[k], size, 0), -EINVAL);
		assert_int_equal(inlay_inventory_expand(inv, (void *)((uintptr_t)inv + (1ull << 37)), size, 3), -ERANGE);
		assert_int_equal(inlay_inventory_expand(inv, (void *)((uintptr_t)inv - (1ull << 37) - 64), size, 3), -ERANGE);
		assert_int_equal(inlay_inventory_num_elements(inv), 2 + 3 * k);
		must(inlay_inventory_expand(inv, piece[k], size, 3));
		assert_int_equal(inlay_inventory_num_elements(inv), 5 + 3 * k);
		assert_int_equal(inlay_inventory_num_free(inv), 4 + 3 * k);
	}
	assert_int_equal(inlay_inventory_expand(inv, piece[0], SIZE_MAX, 1u << 30), -EINVAL);
	for (i = 1; i < 11; i++)
		must(inlay_inventory_get_by_data(inv, &t.m, t.mem + 64 * i, 64, &b[i]));
	assert_int_equal(inlay_inventory_get_by_data(inv, &t.m, t.mem, 64, &x), -EAGAIN);
	for (i = 0; i < 11; i++)
		for (k = 0; k < i; k++)
			assert_ptr_not_equal(b[i], b[k]);
	must(inlay_inventory_get_by_data(other, &t.m, t.mem, 64, &x));
	must(inlay_buf_chain_list(x, b[0]));
	for (i = 1; i < 11; i++)
		must(inlay_buf_chain_list(x, b[i]));
	assert_int_equal(inlay_buf_list_len(x), 12);
	must(inlay_buf_dec_refcount(x, NULL));
	assert_int_equal(inlay_inventory_num_free(inv), 11);
	assert_int_equal(inlay_inventory_num_free(other), 2);
	assert_int_equal(inlay_mmap_num_bufs(&t.m), 0);
	inventory_free(inv);
	inventory_free(other);
	for (k = 0; k < 3; k++)
		given_free(piece[k]);
	map_free(&t);
}

/* All pieces from one reservation, as the manual has it: each begins where the one before ends */
static void reserved(void **state)
{
	size_t bytes = 64ull << 30, used = inlay_inventory_size(5), need;
	uint8_t *space = (uint8_t *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct inlay_inventory *inv = NULL;
	struct inlay_buf *buf = NULL, *head = NULL;
	struct map t;
	uint32_t num = 5, more;

	(void)state;
	assert_true(space != MAP_FAILED);
	map_make(&t, 1);
	must(inlay_inventory_create(space, used, num, &inv));
	must(inlay_inventory_start(inv));
	for (more = 1; more < 5000; more = more * 3 + 1) {
		must(inlay_inventory_get_by_data(inv, &t.m, t.mem, 64, &buf));
		if (head)
			must(inlay_buf_chain_list(head, buf));
		else
			head = buf;
		need = inlay_inventory_size(more);
		must(inlay_inventory_expand(inv, space + used, need, more));
		used += need;
		num += more;
		assert_int_equal(inlay_inventory_num_elements(inv), num);
	}
	/* At the far end too */
	need = inlay_inventory_size(7);
	must(inlay_inventory_expand(inv, space + bytes - need, need, 7));
	num += 7;
	while (!inlay_inventory_get_by_data(inv, &t.m, t.mem, 64, &buf))
		must(inlay_buf_chain_list(head, buf));
	assert_int_equal(inlay_buf_list_len(head), (int)num);
	must(inlay_buf_dec_refcount(head, NULL));
	assert_int_equal(inlay_inventory_num_free(inv), num);
	must(inlay_inventory_destroy(inv));
	must(munmap(space, bytes));
	map_free(&t);
}

/* ---- pools ---- */

static void pool_states(void **state)
{
	static const int results[][STATES] = {
		{0, -EBADFD, 0},             /* start */
		{-EBADFD, 0, -EBADFD},       /* stop */
		{-EBADFD, 0, -EBADFD},       /* alloc */
		{-EBADFD, 0, -EBADFD},       /* alloc_many */
		{0, -EBADFD, -EBADFD},           /* set_user_data */
		{0, -EBADFD, 0},             /* set_element_alignment */
		{0, -EBADFD, -EBADFD},           /* set_dev */
		{0, 0, 0},                   /* destroy */
	};
	size_t size = inlay_pool_size(3);
	void *memory = given(size);
	struct inlay_pool *pool = NULL;
	struct inlay_buf *b = NULL;
	struct map t;
	uint32_t f, s;
	int got;

	(void)state;
	map_make(&t, 1);
	assert_int_equal(inlay_pool_size(0), 0);
	assert_int_equal(inlay_pool_create(memory, size, 0, 64, &t.m, &pool), -EINVAL);
	assert_int_equal(inlay_pool_create(memory, size, 3, 0, &t.m, &pool), -EINVAL);
	assert_int_equal(inlay_pool_create(memory, size, 3, 64, NULL, &pool), -EINVAL);
	assert_int_equal(inlay_pool_create(memory, size - 1, 3, 64, &t.m, &pool), -ENOBUFS);
	assert_int_equal(inlay_pool_create(NULL, size, 3, 64, &t.m, &pool), -EINVAL);
	assert_int_equal(inlay_pool_create((uint8_t *)memory + 8, size, 3, 64, &t.m, &pool), -EINVAL);
	assert_null(pool);
	for (f = 0; f < ARRAY(results); f++) {
		for (s = 0; s < STATES; s++) {
			must(inlay_pool_create(memory, size, 3, 64, &t.m, &pool));
			if (s != FRESH)
				must(inlay_pool_start(pool));
			if (s == STOPPED)
				must(inlay_pool_stop(pool));
			b = NULL;
			got = f == 0 ? inlay_pool_start(pool) : f == 1 ? inlay_pool_stop(pool) : f == 2 ? inlay_pool_alloc(pool, &b) :
			      f == 3 ? pool_alloc_many(pool, 1, &b) : f == 4 ? inlay_inventory_set_user_data(&pool->inventory, 9) :
			      f == 5 ? inlay_pool_set_element_alignment(pool, 16) : f == 6 ? inlay_inventory_set_dev(&pool->inventory, 0) : inlay_pool_destroy(pool);
			if (got != results[f][s])
				fail_msg("function %u in state %u: %d", f, s, got);
			assert_int_equal(inlay_inventory_user_data(&pool->inventory), f == 4 && !got ? 9 : 0);
			assert_int_equal(pool->alignment, f == 5 && !got ? 16 : 1);
			assert_int_equal(pool->element_size, 64);
			assert_int_equal(inlay_inventory_num_elements(&pool->inventory), 3);
			assert_int_equal(inlay_inventory_num_free(&pool->inventory), b ? 2 : 3);
			if (b) {
				assert_int_equal(inlay_pool_stop(pool), -EBUSY);
				assert_int_equal(inlay_pool_destroy(pool), -EBUSY);
				must(f == 2 ? inlay_buf_dec_refcount(b, NULL) : inlay_inventory_dec_refcount(&pool->inventory, b, NULL));
			}
			must(inlay_pool_destroy(pool));
			assert_int_equal(inlay_mmap_num_bufs(&t.m), 0);
		}
	}
	/* The mmap's state: a started pool holds it */
	must(inlay_pool_create(memory, size, 3, 64, &t.m, &pool));
	assert_int_equal(inlay_pool_set_element_alignment(pool, 0), -EINVAL);
	assert_int_equal(inlay_pool_set_element_alignment(pool, 24), -EINVAL);
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
	assert_int_equal(inlay_buf_lkey(b), inlay_mmap_find(&t.m, inlay_buf_head(b), 64)->lkey);
	must(inlay_buf_dec_refcount(b, NULL));
	must(inlay_pool_destroy(pool));
	given_free(memory);
	map_free(&t);
}

/* Slices: how many there are room for, each inside one range, aligned, none overlapping */
/* Keys that differ, so that who swaps them is found out, by every way to a buffer */
static void keys_apart(void **state)
{
	struct inlay_inventory *inv = inventory_started(4);
	struct inlay_keys first = {0x1100, 0x2200}, second = {0x3300, 0x4400};
	struct inlay_buf *b[4];
	struct inlay_pool *pool;
	struct inlay_array array;
	struct inlay_mmap m;
	void *memory = given(inlay_mmap_size(1, 2));
	uint32_t i;

	(void)state;
	must(inlay_mmap_create(&m, memory, inlay_mmap_size(1, 2), 1, 2));
	must(inlay_mmap_add_dev(&m, dev.pd));
	must(inlay_mmap_add(&m, inlay_source_keys(0x10000, 4096, first)));
	must(inlay_mmap_add(&m, inlay_source_keys(0x20000, 4096, second)));
	must(inlay_mmap_start(&m));
	must(inlay_inventory_get_by_data(inv, &m, (void *)0x10000, 64, &b[0]));
	must(inlay_inventory_get_by_addr(inv, &m, (void *)0x10040, 64, &b[1]));
	must(inlay_inventory_dup(inv, b[0], &b[2]));
	for (i = 0; i < 3; i++) {
		assert_int_equal(inlay_buf_lkey(b[i]), first.lkey);
		assert_int_equal(inlay_buf_rkey(b[i]), first.rkey);
		assert_int_equal(inlay_buf_sge(b[i]).lkey, first.lkey);
		assert_int_equal(inlay_buf_lkey(b[i]), first.lkey);
		assert_int_equal(inlay_buf_rkey(b[i]), first.rkey);
	}
	must(inlay_inventory_get_by_data(inv, &m, (void *)0x20000, 64, &b[3]));
	assert_int_equal(inlay_buf_lkey(b[3]), second.lkey);
	assert_int_equal(inlay_buf_rkey(b[3]), second.rkey);
	assert_int_equal(put_all(b, 4), 4);
	inventory_free(inv);
	must(inlay_pool_create(given(inlay_pool_size(2)), inlay_pool_size(2), 2, 4096, &m, &pool));
	must(inlay_pool_start(pool));
	must(pool_alloc_many(pool, 2, b));
	for (i = 0; i < 2; i++) {
		assert_int_equal(inlay_buf_lkey(b[i]), inlay_buf_head(b[i]) == (void *)0x10000 ? first.lkey : second.lkey);
		assert_int_equal(inlay_buf_rkey(b[i]), inlay_buf_head(b[i]) == (void *)0x10000 ? first.rkey : second.rkey);
	}
	assert_int_equal(put_all(b, 2), 2);
	must(inlay_pool_destroy(pool));
	given_free(pool);
	must(inlay_array_start(&array, &m, 2, 8, 0, 0));
	assert_int_equal(inlay_array_sge(&array, 1).lkey, first.lkey);
	assert_int_equal(array.keys.rkey, first.rkey);
	must(inlay_array_stop(&array));
	must(inlay_mmap_destroy(&m));
	given_free(memory);
}

/* No map at all, one that was destroyed, and an inventory that was: told, whatever was got before */
static void nothing_there(void **state)
{
	struct inlay_inventory *inv = inventory_make(2);
	struct inlay_pool *pool;
	struct inlay_buf *b = NULL;
	struct map t, gone;
	int round_no;

	(void)state;
	map_make(&t, 1);
	map_make(&gone, 1);
	for (round_no = 0; round_no < 3; round_no++) {
		must(inlay_inventory_start(inv));
		/* Before the first get, after one, and after a stop and a start */
		assert_int_equal(inlay_inventory_get_by_data(inv, NULL, t.mem, 64, &b), -EINVAL);
		assert_int_equal(get_all(inv, NULL, &(struct buf_args){t.mem, 64, t.mem, 64}, 1, &b), -EINVAL);
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

/* A range that ends before its first aligned address has no slice, and the next one has */
static void pool_pads(void **state)
{
	struct inlay_mmap m;
	struct inlay_pool *pool;
	struct inlay_buf *b[3];
	void *memory = given(inlay_mmap_size(1, 2));
	uint64_t at, end;

	(void)state;
	for (at = 0x11001; at < 0x12000; at += 97) {
		for (end = at + 1; end < 0x13800; end += 731) {
			uint32_t fits = end > 0x12000 ? (uint32_t)(end - 0x12000) / 512 : 0, n = fits + 1;

			must(inlay_mmap_create(&m, memory, inlay_mmap_size(1, 2), 1, 2));
			must(inlay_mmap_add_dev(&m, dev.pd));
			must(inlay_mmap_add(&m, inlay_source_keys(at, end - at, (struct inlay_keys){1, 2})));
			must(inlay_mmap_add(&m, inlay_source_keys(0x20000, 512, (struct inlay_keys){3, 4})));
			must(inlay_mmap_start(&m));
			n = n > 3 ? 3 : n;
			must(inlay_pool_create(given(inlay_pool_size(n)), inlay_pool_size(n), n, 512, &m, &pool));
			must(inlay_pool_set_element_alignment(pool, fits > 1 ? 512 : 4096));
			if (fits > 1) {
				/* Slices of 512 before 0x12000, too */
				must(inlay_pool_start(pool));
				must(pool_alloc_many(pool, n, b));
			} else {
				must(inlay_pool_start(pool));
				must(pool_alloc_many(pool, n, b));
				assert_ptr_equal(inlay_buf_head(b[n - 1]), (void *)0x20000);
				if (n > 1)
					assert_ptr_equal(inlay_buf_head(b[0]), (void *)0x12000);
			}
			assert_int_equal(put_all(b, n), n);
			must(inlay_pool_destroy(pool));
			given_free(pool);
			must(inlay_mmap_destroy(&m));
		}
	}
	given_free(memory);
}

static void pool_slices(void **state)
{
	static const struct {
		size_t element, alignment;
	} shapes[] = {{1, 1}, {100, 1}, {100, 8}, {64, 64}, {65, 64}, {2048, 4096}, {4096, 4096}, {4097, 4096}, {RANGE_BYTES, 1}, {RANGE_BYTES, 4096},
		      {RANGE_BYTES / 2 + 1, 1}, {3, 2}};
	uint8_t *hit = (uint8_t *)calloc(1, RANGES * 2 * RANGE_BYTES);
	struct map t;
	uint32_t i, k, r, num;
	int odd;

	(void)state;
	for (odd = 0; odd < 2; odd++) {
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
				must(inlay_pool_set_element_alignment(pool, shapes[k].alignment));
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
					assert_int_equal(inlay_buf_rkey(b[i]), inlay_mmap_find(&t.m, inlay_buf_head(b[i]), 1)->rkey);
					assert_true(all_bytes(hit + at, shapes[k].element, 0));
					memset(hit + at, 1, shapes[k].element);
				}
				assert_int_equal(inlay_pool_alloc(pool, &b[0]), -EAGAIN);
				assert_int_equal(pool_alloc_many(pool, 1, &b[0]), -EAGAIN);
				assert_int_equal(inlay_mmap_num_bufs(&t.m), num + 1);
				assert_int_equal(put_all(b, num), num);
				assert_int_equal(inlay_mmap_num_bufs(&t.m), 1);
				/* A window that was moved is at the start again */
				must(inlay_pool_alloc(pool, &b[0]));
				inlay_buf_set_data(b[0], (uint8_t *)inlay_buf_head(b[0]) + 1, shapes[k].element - 1);
				must(inlay_inventory_dec_refcount(&pool->inventory, b[0], NULL));
				must(pool_alloc_many(pool, num, b));
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

/* ---- sizes ---- */

enum { INVENTORY, POOL, SHARED, KINDS };

/* What has as many descriptors as it was asked for */
struct stock {
	uint32_t kind;
	struct inlay_inventory *inv;
	struct inlay_pool *pool;
	struct inlay_inventory *shared;
	struct inlay_magazine mag;
};

static size_t stock_size(uint32_t kind, uint32_t num)
{
	return kind == INVENTORY ? inlay_inventory_size(num) : kind == POOL ? inlay_pool_size(num) : inlay_inventory_size(num);
}

static void stock_make(struct stock *x, uint32_t kind, void *memory, uint32_t num, struct map *t)
{
	x->kind = kind;
	if (kind == INVENTORY) {
		must(inlay_inventory_create(memory, stock_size(kind, num), num, &x->inv));
		must(inlay_inventory_start(x->inv));
	} else if (kind == POOL) {
		must(inlay_pool_create(memory, stock_size(kind, num), num, 64, &t->m, &x->pool));
		must(inlay_pool_start(x->pool));
	} else {
		must(inlay_inventory_create(memory, stock_size(kind, num), num, &x->shared));
		must(inlay_inventory_share(x->shared));
		must(inlay_inventory_start(x->shared));
		must(inlay_magazine_attach(&x->mag, x->shared));
	}
}

static int stock_get(struct stock *x, struct map *t, struct inlay_buf **b)
{
	return x->kind == INVENTORY ? inlay_inventory_get_by_addr(x->inv, &t->m, t->mem, 64, b) :
	       x->kind == POOL ? inlay_pool_alloc(x->pool, b) : inlay_inventory_get_by_addr(&x->mag.inventory, &t->m, t->mem, 64, b);
}

static int stock_put(struct stock *x, struct inlay_buf *b)
{
	return x->kind == SHARED ? inlay_inventory_dec_refcount(&x->mag.inventory, b, NULL) : inlay_buf_dec_refcount(b, NULL);
}

static uint32_t stock_free(const struct stock *x)
{
	return x->kind == INVENTORY ? inlay_inventory_num_free(x->inv) :
	       x->kind == POOL ? inlay_inventory_num_free(&x->pool->inventory) : inlay_inventory_num_free(x->shared);
}

static void stock_gone(struct stock *x)
{
	if (x->kind == SHARED)
		inlay_magazine_detach(&x->mag);
	must(x->kind == INVENTORY ? inlay_inventory_destroy(x->inv) :
	     x->kind == POOL ? inlay_pool_destroy(x->pool) : inlay_inventory_destroy(x->shared));
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
			bufs[i]->reserved = round * num + i;
		}
		for (i = 0; i < num; i++)
			assert_int_equal(bufs[i]->reserved, round * num + i);
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

/* As many as fill blocks, one less and one more, in memory wherever it begins, of which nothing else is written to */
static void sizes(void **state)
{
	static const uint32_t nums[] = {1, 2, 61, 62, 63, 64, 65, 123, 124, 125, 126, 127, 310, 1000};
	static const uint32_t lines[] = {0, 1, 2, 31, 32, 62, 63};
	static struct stock x;
	uint32_t i, k, kind;
	uint8_t *memory, *at;
	size_t size, all, j;
	struct map t;

	(void)state;
	map_make(&t, 0);
	for (kind = 0; kind < KINDS; kind++) {
		for (i = 0; i < ARRAY(nums); i++) {
			for (k = 0; k < ARRAY(lines); k++) {
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

/* ---- arrays ---- */

static void arrays(void **state)
{
	struct inlay_array array;
	struct ibv_sge sge;
	struct map t;
	uint32_t i;

	(void)state;
	map_make(&t, 1);
	assert_int_equal(inlay_array_start(NULL, &t.m, 10, 100, 0, 0), -EINVAL);
	assert_int_equal(inlay_array_start(&array, NULL, 10, 100, 0, 0), -EINVAL);
	assert_int_equal(inlay_array_start(&array, &t.m, 0, 100, 0, 0), -EINVAL);
	assert_int_equal(inlay_array_start(&array, &t.m, 10, 0, 0, 0), -EINVAL);
	assert_int_equal(inlay_array_start(&array, &t.m, 10, 1ull << 31, 0, 0), -EINVAL);
	assert_int_equal(inlay_array_start(&array, &t.m, 10, 100, RANGE_BYTES - 999, 0), -ENOSPC);
	assert_int_equal(inlay_array_start(&array, &t.m, 10, 100, UINT64_MAX, 0), -ENOSPC);
	assert_int_equal(inlay_array_start(&array, &t.m, 10, 100, 0, 1), -ENOENT);
	must(inlay_mmap_stop(&t.m));
	assert_int_equal(inlay_array_start(&array, &t.m, 10, 100, 0, 0), -EBADFD);
	must(inlay_mmap_start(&t.m));
	must(inlay_array_start(&array, &t.m, 10, 100, RANGE_BYTES - 1000, 0));
	assert_int_equal(inlay_mmap_num_bufs(&t.m), 1);
	assert_int_equal(inlay_mmap_stop(&t.m), -EBUSY);
	for (i = 0; i < 10; i++) {
		sge = inlay_array_sge(&array, i);
		assert_ptr_equal(inlay_array_at(&array, i), t.mem + RANGE_BYTES - 1000 + 100 * i);
		assert_int_equal(sge.addr, (uintptr_t)t.mem + RANGE_BYTES - 1000 + 100 * i);
		assert_int_equal(sge.length, 100);
		assert_int_equal(sge.lkey, range_of(&t.m, 0)->lkey);
	}
	assert_int_equal(array.keys.rkey, range_of(&t.m, 0)->rkey);
	must(inlay_array_stop(&array));
	assert_int_equal(inlay_array_stop(&array), -EBADFD);
	assert_int_equal(inlay_mmap_num_bufs(&t.m), 0);
	map_free(&t);
}

/* ---- beside a model ---- */

#define MAPS 2
#define OWNERS 3                 /* two inventories, one of them for the second device, and a pool */
#define POOL 2
#define NODES 128

/* What a live buffer must be */
struct node {
	struct inlay_buf *buf;
	uint32_t owner, map, refs;
	uint8_t *head, *data;
	size_t len, data_len;
	struct node *next, *prev;   /* in its list */
};

struct model {
	struct map maps[MAPS];
	struct inlay_inventory *inv[2];
	struct inlay_pool *pool;
	bool started[OWNERS];
	uint32_t num[OWNERS], out[OWNERS], on_map[MAPS];
	void *pieces[4];
	uint32_t num_pieces;
	struct node nodes[NODES];
	struct node *live[NODES];
	uint32_t num_live;
	uint64_t done, refused;
};

static struct model M;

/* A node for a buffer that was got just now, which nobody has */
static struct node *node_add(struct inlay_buf *buf, uint32_t owner, uint32_t map, uint8_t *head, size_t len, uint8_t *data, size_t data_len)
{
	struct node *n = NULL;
	uint32_t i;

	for (i = 0; i < NODES; i++) {
		if (!M.nodes[i].buf && !n)
			n = &M.nodes[i];
		assert_ptr_not_equal(M.nodes[i].buf, buf);
	}
	assert_non_null(n);
	memset(n, 0, sizeof(*n));
	n->buf = buf;
	n->owner = owner;
	n->map = map;
	n->refs = 1;
	n->head = head;
	n->len = len;
	n->data = data;
	n->data_len = data_len;
	M.live[M.num_live++] = n;
	M.out[owner]++;
	M.on_map[map]++;
	return n;
}

static void node_gone(struct node *n)
{
	uint32_t i;

	for (i = 0; M.live[i] != n; i++)
		;
	M.live[i] = M.live[--M.num_live];
	M.out[n->owner]--;
	M.on_map[n->map]--;
	n->buf = NULL;
}

static void node_check(const struct node *n)
{
	const struct inlay_range *r = inlay_mmap_find(&M.maps[n->map].m, n->head, n->len);
	const struct node *last = n;
	struct inlay_keys keys;

	while (last->next)
		last = last->next;
	assert_non_null(r);
	must(inlay_mmap_keys(&M.maps[n->map].m, r->id, n->owner == 1, &keys));
	assert_ptr_equal(inlay_buf_head(n->buf), n->head);
	assert_int_equal(inlay_buf_len(n->buf), n->len);
	assert_ptr_equal(inlay_buf_data(n->buf), n->data);
	assert_int_equal(inlay_buf_data_len(n->buf), n->data_len);
	assert_int_equal(inlay_buf_lkey(n->buf), keys.lkey);
	assert_int_equal(inlay_buf_rkey(n->buf), keys.rkey);
	assert_int_equal(inlay_buf_refcount(n->buf), n->refs);
	assert_ptr_equal(inlay_buf_next(n->buf), n->next ? n->next->buf : NULL);
	assert_ptr_equal(inlay_buf_last(n->buf), last->buf);
	assert_int_equal(inlay_buf_is_first(n->buf), !n->prev);
}

static void model_check(void)
{
	uint32_t i;

	for (i = 0; i < M.num_live; i++)
		node_check(M.live[i]);
	for (i = 0; i < 2; i++) {
		assert_int_equal(inlay_inventory_num_elements(M.inv[i]), M.num[i]);
		assert_int_equal(inlay_inventory_num_free(M.inv[i]), M.num[i] - M.out[i]);
	}
	assert_int_equal(inlay_inventory_num_free(&M.pool->inventory), M.num[POOL] - M.out[POOL]);
	for (i = 0; i < MAPS; i++)
		assert_int_equal(inlay_mmap_num_bufs(&M.maps[i].m), M.on_map[i] + (!i && M.started[POOL]));
}

static struct node *node_any(void)
{
	return M.num_live ? M.live[rnd_below(M.num_live)] : NULL;
}

/* What a call must answer: counted, so that a run that refused everything is seen */
static bool answered(int got, int expected)
{
	if (got != expected)
		fail_msg("%d where %d was due", got, expected);
	M.done += !expected;
	M.refused += expected != 0;
	return !got;
}

/* Memory to ask for: mostly good, sometimes beyond a range's end. Returns whether one range holds it. */
static bool model_memory(uint32_t map, uint8_t **head, size_t *len)
{
	uint32_t at = rnd_below(RANGES * 2 * RANGE_BYTES);

	*len = rnd_below(4) ? 1 + rnd_below(3000) : rnd_below(RANGE_BYTES + 20);
	if (rnd_below(8)) {
		at = at / (2 * RANGE_BYTES) * 2 * RANGE_BYTES + rnd_below(RANGE_BYTES);
		if (at % RANGE_BYTES + *len > RANGE_BYTES && rnd_below(8))
			at -= at % RANGE_BYTES;
	}
	*head = M.maps[map].mem + at;
	return at % (2 * RANGE_BYTES) < RANGE_BYTES && at % (2 * RANGE_BYTES) + *len <= RANGE_BYTES;
}

static void model_get(void)
{
	uint32_t o = rnd_below(2), map = rnd_below(MAPS), how = rnd_below(3);
	struct inlay_buf *b = NULL;
	size_t len, offset, data_len;
	uint8_t *head;
	bool good = model_memory(map, &head, &len);
	int expected = !M.started[o] ? -EBADFD : !good ? -EINVAL : M.out[o] == M.num[o] ? -EAGAIN : 0;

	offset = how ? 0 : rnd_below((uint32_t)len + 1);
	data_len = how == 1 ? 0 : how == 2 ? len : rnd_below((uint32_t)(len - offset) + 1);
	if (answered(how == 0 ? inlay_inventory_get_by_args(M.inv[o], &M.maps[map].m, head, len, head + offset, data_len, &b) :
		     how == 1 ? inlay_inventory_get_by_addr(M.inv[o], &M.maps[map].m, head, len, &b) :
				inlay_inventory_get_by_data(M.inv[o], &M.maps[map].m, head, len, &b), expected))
		node_check(node_add(b, o, map, head, len, head + offset, data_len));
}

static void model_get_many(void)
{
	uint32_t o = rnd_below(2), map = rnd_below(MAPS), n = rnd_below(9), i, good = 0;
	struct buf_args args[8];
	struct inlay_buf *b[8];
	int expected;

	for (i = 0; i < n; i++) {
		uint8_t *head;

		good += model_memory(map, &head, &args[i].len) && good == i;
		args[i].addr = head;
		args[i].data = head + args[i].len / 3;
		args[i].data_len = args[i].len / 2;
	}
	/* The first one that cannot be had says why. */
	expected = !n || (good == n && M.num[o] - M.out[o] >= n && M.started[o]) ? 0 : !M.started[o] ? -EBADFD :
		   M.num[o] - M.out[o] < n && M.num[o] - M.out[o] < good ? -EAGAIN : good < n ? -EINVAL : -EAGAIN;
	if (answered(get_all(M.inv[o], &M.maps[map].m, args, n, b), expected))
		for (i = 0; i < n; i++)
			node_add(b[i], o, map, (uint8_t *)args[i].addr, args[i].len, (uint8_t *)args[i].data, args[i].data_len);
}

static void model_alloc(void)
{
	uint32_t n = rnd_below(4), i;
	struct inlay_buf *b[3];
	int expected = !M.started[POOL] ? -EBADFD : M.num[POOL] - M.out[POOL] < (n ? n : 1) ? -EAGAIN : 0;

	if (answered(n ? pool_alloc_many(M.pool, n, b) : inlay_pool_alloc(M.pool, b), expected)) {
		for (i = 0; i < (n ? n : 1); i++) {
			uint8_t *head = (uint8_t *)inlay_buf_head(b[i]);

			assert_int_equal((uintptr_t)head % 64, 0);
			node_check(node_add(b[i], POOL, 0, head, 1000, head, 0));
		}
	}
}

static void model_dup(struct node *n)
{
	uint32_t o = rnd_below(2), len = 0;
	struct node *at, *copy, *before = NULL;
	struct inlay_buf *b = NULL;
	int expected;

	for (at = n; at; at = at->next)
		len++;
	expected = n->prev ? -EINVAL : !M.started[o] ? -EBADFD : M.num[o] - M.out[o] < len ? -EAGAIN : 0;
	if (!answered(inlay_inventory_dup(M.inv[o], n->buf, &b), expected))
		return;
	for (at = n; at; at = at->next, b = inlay_buf_next(b)) {
		assert_non_null(b);
		copy = node_add(b, o, at->map, at->head, at->len, at->data, at->data_len);
		copy->prev = before;
		if (before)
			before->next = copy;
		before = copy;
	}
	assert_null(b);
}

static void model_release(struct node *n)
{
	int expected = n->prev ? -EINVAL : 0;
	uint16_t prev = 0xaaaa;
	struct node *next;
	uint32_t how = rnd_below(4);

	if (how == 3)
		answered(put_all(&n->buf, 1) ? 0 : -EINVAL, expected);
	else if (how && n->owner == POOL)
		answered(inlay_inventory_dec_refcount(&M.pool->inventory, n->buf, &prev), expected);
	else if (how)
		answered(inlay_inventory_dec_refcount(M.inv[n->owner], n->buf, &prev), expected);
	else
		answered(inlay_buf_dec_refcount(n->buf, &prev), expected);
	if (how != 3)
		assert_int_equal(prev, expected ? 0xaaaa : n->refs);
	if (expected || --n->refs)
		return;
	for (; n; n = next) {
		next = n->next;
		assert_int_equal(inlay_buf_dec_refcount(n->buf, NULL), -EBADFD);
		node_gone(n);
	}
}

static void model_chain(struct node *a, struct node *b)
{
	struct node *tail = a;
	int expected;

	while (tail->next)
		tail = tail->next;
	expected = a->prev || b->prev || a == b ? -EINVAL : b->refs != 1 ? -EBUSY : 0;
	if (!answered(inlay_buf_chain_list(a->buf, b->buf), expected))
		return;
	tail->next = b;
	b->prev = tail;
	node_check(a);
	node_check(b);
}

static void model_unchain(struct node *a, struct node *b)
{
	struct node *at = a->next;
	int expected;

	while (at && at != b)
		at = at->next;
	expected = a->prev || !at ? -EINVAL : 0;
	if (!answered(inlay_buf_unchain_list(a->buf, b->buf), expected))
		return;
	b->prev->next = NULL;
	b->prev = NULL;
	node_check(a);
	node_check(b);
}

static void model_window(struct node *n)
{
	size_t offset = rnd_below((uint32_t)n->len + 20), len = rnd_below((uint32_t)n->len + 20);
	bool good = offset <= n->len && len <= n->len - offset;

	switch (rnd_below(4)) {
	case 0:
		inlay_buf_set_data_len(n->buf, 0);
		n->data_len = 0;
		break;
	case 1:
		good = len <= n->len - (size_t)(n->data - n->head);
		if (answered(inlay_buf_set_data_len(n->buf, len), good ? 0 : -EINVAL))
			n->data_len = len;
		break;
	default:
		if (rnd_below(2) && good)
			inlay_buf_set_data(n->buf, n->head + offset, len);
		else
			answered(inlay_buf_set_data(n->buf, n->head + offset, len), good ? 0 : -EINVAL);
		if (good) {
			n->data = n->head + offset;
			n->data_len = len;
		}
	}
	node_check(n);
}

static void model_list(struct node *n)
{
	uint32_t len = 0, entries = 0, max = rnd_below(40), i = 0;
	struct ibv_sge sge[NODES];
	struct node *at;

	for (at = n; at; at = at->next) {
		len++;
		entries += at->data_len != 0;
	}
	assert_int_equal(inlay_buf_list_len(n->buf), n->prev ? -EINVAL : (int)len);
	assert_int_equal(inlay_buf_segs(n->buf), entries);
	assert_int_equal(inlay_buf_sges(n->buf, sge, max), entries > max ? -ENOBUFS : (int)entries);
	if (entries > max)
		return;
	for (at = n; at; at = at->next) {
		if (!at->data_len)
			continue;
		assert_int_equal(sge[i].addr, (uintptr_t)at->data);
		assert_int_equal(sge[i].length, at->data_len);
		assert_int_equal(sge[i].lkey, inlay_buf_lkey(at->buf));
		i++;
	}
}

static void model_inc(struct node *n)
{
	uint16_t prev = 0xaaaa;

	answered(inlay_buf_inc_refcount(n->buf, &prev), n->prev ? -EINVAL : 0);
	assert_int_equal(prev, n->prev ? 0xaaaa : n->refs);
	n->refs += !n->prev;
}

/* Starts what is stopped, and the other way round */
static void model_toggle(uint32_t o)
{
	if (o == POOL) {
		if (M.started[o] && answered(inlay_pool_stop(M.pool), M.out[o] ? -EBUSY : 0))
			M.started[o] = false;
		else if (!M.started[o] && answered(inlay_pool_start(M.pool), 0))
			M.started[o] = true;
		return;
	}
	answered(M.started[o] ? inlay_inventory_start(M.inv[o]) : inlay_inventory_stop(M.inv[o]), -EBADFD);
	answered(M.started[o] ? inlay_inventory_stop(M.inv[o]) : inlay_inventory_start(M.inv[o]), 0);
	M.started[o] = !M.started[o];
}

/* What happens seldom: starts, stops, growth, and what must not be possible meanwhile */
static void model_seldom(void)
{
	uint32_t o = rnd_below(OWNERS), map = rnd_below(MAPS), n;
	size_t size;

	switch (rnd_below(6)) {
	case 0:
	case 1:
		model_toggle(o);
		break;

	case 2:
		if (o == POOL || M.num_pieces == ARRAY(M.pieces))
			break;
		n = 1 + rnd_below(8);
		size = inlay_inventory_size(n);
		M.pieces[M.num_pieces] = given(size);
		if (answered(inlay_inventory_expand(M.inv[o], M.pieces[M.num_pieces], size, n), M.started[o] ? 0 : -EBADFD)) {
			M.num[o] += n;
			M.num_pieces++;
		} else {
			given_free(M.pieces[M.num_pieces]);
		}
		break;
	case 3:
		if (M.on_map[map] || (!map && M.started[POOL])) {
			answered(inlay_mmap_stop(&M.maps[map].m), -EBUSY);
		} else {
			must(inlay_mmap_stop(&M.maps[map].m));
			must(inlay_mmap_start(&M.maps[map].m));
		}
		break;
	case 4:
		/* A descriptor that came back too early would be given out twice, or be missed here */
		while (M.num_live)
			model_release(node_any());
		break;
	default:
		if (M.out[o])
			answered(o == POOL ? inlay_pool_destroy(M.pool) : inlay_inventory_destroy(M.inv[o]), -EBUSY);
	}
}

static void beside_model(void **state)
{
	const char *env = getenv("INLAY_TEST_STEPS");
	uint64_t steps = env && *env ? strtoull(env, NULL, 0) : 5000000, i;
	struct node *n;
	uint32_t k;

	(void)state;
	memset(&M, 0, sizeof(M));
	for (k = 0; k < MAPS; k++)
		map_make(&M.maps[k], 2);
	M.num[0] = 40;
	M.num[1] = 24;
	M.num[POOL] = 16;
	M.inv[0] = inventory_make(40);
	M.inv[1] = inventory_make(24);
	must(inlay_inventory_set_dev(M.inv[1], 1));
	must(inlay_inventory_start(M.inv[0]));
	must(inlay_inventory_start(M.inv[1]));
	must(inlay_pool_create(given(inlay_pool_size(16)), inlay_pool_size(16), 16, 1000, &M.maps[0].m, &M.pool));
	must(inlay_pool_set_element_alignment(M.pool, 64));
	must(inlay_pool_start(M.pool));
	M.started[0] = M.started[1] = M.started[POOL] = true;
	for (i = 0; i < steps; i++) {
		uint32_t what = rnd_below(100);
		/* Ebb and flow, so that empty and full are both met often */
		bool flow = i / 500 % 2;

		k = rnd_below(100);
		if (k < OWNERS && !M.started[k])
			model_toggle(k);
		if (k == 99 && rnd_below(20) == 0)
			model_seldom();
		n = node_any();
		if (what < (flow ? 40 : 15) || !n) {
			if (what % 5 == 0)
				model_alloc();
			else if (what % 5 == 1)
				model_get_many();
			else
				model_get();
		} else if (what < 60)
			model_release(n);
		else if (what < 70)
			model_chain(n, node_any());
		else if (what < 76)
			model_unchain(n, rnd_below(2) ? node_any() : n->next ? n->next : n);
		else if (what < 80)
			model_inc(n);
		else if (what < 88)
			model_window(n);
		else if (what < 94)
			model_dup(n);
		else if (what < 98)
			model_list(n);
		else
			node_check(n);
		if (i % 64 == 0)
			model_check();
	}
	while (M.num_live)
		model_release(node_any());
	model_check();
	assert_true(M.done > steps / 4 && M.refused > steps / 50);
	must(inlay_pool_destroy(M.pool));
	given_free(M.pool);
	inventory_free(M.inv[0]);
	inventory_free(M.inv[1]);
	for (k = 0; k < M.num_pieces; k++)
		given_free(M.pieces[k]);
	for (k = 0; k < MAPS; k++)
		map_free(&M.maps[k]);
}

/* ---- end to end ---- */

#define LIST 10

/* Lists of ten windows, one of them empty, written by one post each, at every place of the ring, and given back by their completions */
static void posted(void **state)
{
	struct inlay_inventory *inv = inventory_started(4 * LIST);
	struct inlay_buf *inflight[256], *b = NULL, *head = NULL;
	const struct mlx5_cqe64 *cqe;
	struct opt opt = usual;
	struct end a, z;
	struct ibv_sge sge[LIST];
	uint32_t round, i, len, index, pi;
	uint16_t prev;
	struct map t;

	(void)state;
	map_make(&t, 1);
	opt.cap.max_send_sge = LIST;
	opt.cap.max_send_wr = 16;
	opt.bytes = 1 << 16;
	ends_make(&a, &z, &opt);
	end_take(&a, INLAY_UAR_SERIAL);
	end_take(&z, INLAY_UAR_DOORBELL);
	assert_true(a.sq.mask < ARRAY(inflight));
	fill(t.mem, RANGES * 2 * RANGE_BYTES, 5);
	for (round = 0; round < 200; round++) {
		uint8_t expected[LIST * 512];

		memset(z.buf, 0, 8192);
		head = NULL;
		len = 0;
		for (i = 0; i < LIST; i++) {
			uint8_t *addr = t.mem + 2 * (i % RANGES) * RANGE_BYTES + rnd_below(1000) + 1000 * i;
			uint32_t n = i == round % 13 ? 0 : 1 + rnd_below(500);

			must(inlay_inventory_get_by_args(inv, &t.m, addr, 512, addr + 3, n, &b));
			memcpy(expected + len, addr + 3, n);
			len += n;
			if (head)
				must(inlay_buf_chain_list(head, b));
			else
				head = b;
		}
		if (round % 3 == 2)
			must(inlay_buf_inc_refcount(head, NULL));
		index = inlay_sq_index(&a.sq);
		pi = a.sq.pi;
		switch (round % 4) {
		case 0:
			must(inlay_post_write_bufs(&a.sq, raddr_of(&z, 0), z.mr->rkey, head, INLAY_SIGNALED));
			break;
		case 1:
			/* The same by an array: the same number of WQEBBs */
			must(inlay_post_write(&a.sq, raddr_of(&z, 0), z.mr->rkey, sge, (uint32_t)inlay_buf_sges(head, sge, LIST), INLAY_SIGNALED));
			break;
		case 2: {
			struct ibv_sge in = sge_of(&z, 0, 8192);

			must(inlay_post_recv(&z.rq, &in, 1));
			inlay_rq_ring(&z.rq);
			must(inlay_post_send_bufs(&a.sq, head, INLAY_SIGNALED));
			break;
		}
		default: {
			struct inlay_cursor at;

			must(inlay_sq_begin(&a.sq, (2 + inlay_buf_segs(head) + 3) / 4, &at));
			at = inlay_seg_raddr(at, raddr_of(&z, 0), z.mr->rkey);
			at = inlay_seg_bufs(at, head);
			inlay_sq_commit(&a.sq, at, MLX5_OPCODE_RDMA_WRITE, 0, INLAY_SIGNALED, 0);
		}
		}
		assert_int_equal(a.sq.pi - pi, ((round % 4 == 2 ? 1 : 2) + inlay_buf_segs(head) + 3) / 4);
		inflight[index & a.sq.mask] = head;
		inlay_sq_ring(&a.sq);
		cqe = cqe_wait(&a.cq);
		assert_false(inlay_cqe_is_error(cqe));
		b = inflight[inlay_cqe_wqe_counter(cqe) & a.sq.mask];
		assert_ptr_equal(b, head);
		must(inlay_buf_dec_refcount(b, &prev));
		assert_true(0 < inlay_sq_release(&a.sq, cqe));
		inlay_cq_advance(&a.cq, 1);
		assert_memory_equal(z.buf, expected, len);
		assert_true(all_bytes(z.buf + len, 8192 - len, 0));
		if (round % 3 == 2) {
			assert_int_equal(prev, 2);
			assert_int_equal(inlay_inventory_num_free(inv), 3 * LIST);
			must(inlay_buf_dec_refcount(b, NULL));
		}
		assert_int_equal(inlay_inventory_num_free(inv), 4 * LIST);
		assert_int_equal(inlay_mmap_num_bufs(&t.m), 0);
		if (round % 4 == 2) {
			cqe = cqe_wait(&z.rxcq);
			assert_int_equal(inlay_cqe_byte_count(cqe), len);
			assert_true(0 < inlay_rq_release(&z.rq, cqe));
			inlay_cq_advance(&z.rxcq, 1);
		}
	}
	/* A read scatters into the windows */
	fill(z.buf, 4096, 99);
	head = NULL;
	for (i = 0; i < LIST; i++) {
		must(inlay_inventory_get_by_data(inv, &t.m, t.mem + 2 * (i % RANGES) * RANGE_BYTES + 4096 * i, 100 + i, &b));
		if (head)
			must(inlay_buf_chain_list(head, b));
		else
			head = b;
	}
	must(inlay_post_read_bufs(&a.sq, raddr_of(&z, 0), z.mr->rkey, head, INLAY_SIGNALED));
	inlay_sq_ring(&a.sq);
	sent(&a);
	for (b = head, len = 0; b; b = inlay_buf_next(b)) {
		assert_memory_equal(inlay_buf_data(b), z.buf + len, inlay_buf_data_len(b));
		len += (uint32_t)inlay_buf_data_len(b);
	}
	/* More windows than the longest WQE holds; no room */
	for (i = 0; i < 20; i++) {
		must(inlay_inventory_get_by_data(inv, &t.m, t.mem, 16, &b));
		must(inlay_buf_chain_list(head, b));
	}
	assert_int_equal(inlay_post_write_bufs(&a.sq, raddr_of(&z, 0), z.mr->rkey, head, 0), -EINVAL);
	must(inlay_buf_dec_refcount(head, NULL));
	must(inlay_inventory_get_by_data(inv, &t.m, t.mem, 16, &b));
	for (i = 0; i <= a.sq.mask; i++)
		must(inlay_post_write_bufs(&a.sq, raddr_of(&z, 0), z.mr->rkey, b, i == a.sq.mask ? INLAY_SIGNALED : 0));
	assert_int_equal(inlay_post_send_bufs(&a.sq, b, 0), -EAGAIN);
	assert_int_equal(inlay_post_gather_bufs(&a.sq, MLX5_OPCODE_SEND_IMM, 7, NULL, b, 0), -EAGAIN);
	inlay_sq_ring(&a.sq);
	sent(&a);
	must(inlay_buf_dec_refcount(b, NULL));
	inlay_sq_fini(&a.sq);
	inlay_sq_fini(&z.sq);
	end_free(&a);
	end_free(&z);
	inventory_free(inv);
	map_free(&t);
}

/* ---- preconditions ---- */

#if INLAY_CHECKED
/* A buffer over raw memory; a child has no device, and an mmap needs none */
struct bare {
	struct inlay_mmap m;
	struct inlay_inventory *inv;
	struct inlay_buf *buf;
	uint8_t *mem;
};

static struct bare bare_make(void)
{
	struct bare x;

	memset(&x, 0, sizeof(x));
	x.mem = (uint8_t *)pages(4096);
	must(inlay_mmap_create(&x.m, given(inlay_mmap_size(1, 1)), inlay_mmap_size(1, 1), 1, 1));
	must(inlay_mmap_add(&x.m, inlay_source_host(x.mem, 4096)));
	must(inlay_mmap_start(&x.m));
	x.inv = inventory_started(2);
	return x;
}

static void abort_window(void *arg)
{
	struct bare x = bare_make();

	(void)arg;
	inlay_inventory_get_by_args(x.inv, &x.m, x.mem, 64, x.mem + 60, 5, &x.buf);
}

static void abort_null(void *arg)
{
	struct inlay_buf *b = NULL;

	switch (*(const int *)arg) {
	case 0: inlay_inventory_start(NULL); break;
	case 1: inlay_inventory_get_by_data(NULL, NULL, NULL, 1, &b); break;
	case 2: inlay_pool_start(NULL); break;
	case 3: inlay_pool_alloc(NULL, &b); break;
	case 4: inlay_buf_dec_refcount(NULL, NULL); break;
	case 5: inlay_buf_set_data(NULL, NULL, 0); break;
	case 6: inlay_buf_chain_list(NULL, NULL); break;
	case 7: inlay_magazine_attach(NULL, NULL); break;
	case 8: inlay_inventory_share(NULL); break;
	default: inlay_inventory_destroy(NULL);
	}
}

static void abort_written(void *arg)
{
	struct bare x = bare_make();

	(void)arg;
	must(inlay_inventory_get_by_data(x.inv, &x.m, x.mem, 64, &x.buf));
	must(inlay_buf_dec_refcount(x.buf, NULL));
	x.buf->refcount = 2;
	/* One of both finds it. */
	inlay_inventory_get_by_data(x.inv, &x.m, x.mem, 64, &x.buf);
	inlay_inventory_get_by_data(x.inv, &x.m, x.mem, 64, &x.buf);
}

static void abort_twice(void *arg)
{
	struct bare x = bare_make();
	struct inlay_magazine *mag = (struct inlay_magazine *)given(sizeof(*mag));
	struct inlay_inventory *shared = NULL;
	uint8_t state;

	(void)arg;
	must(inlay_inventory_create(given(inlay_inventory_size(4)), inlay_inventory_size(4), 4, &shared));
	must(inlay_inventory_share(shared));
	must(inlay_inventory_start(shared));
	must(inlay_magazine_attach(mag, shared));
	must(inlay_inventory_get_by_data(&mag->inventory, &x.m, x.mem, 64, &x.buf));
	state = inlay_buf_state_(x.buf);
	must(inlay_inventory_dec_refcount(&mag->inventory, x.buf, NULL));
	/* As if the state had been written over: what is free elsewhere tells. */
	inlay_buf_set_state_(x.buf, state);
	inlay_inventory_dec_refcount(&mag->inventory, x.buf, NULL);
}

static void abort_element(void *arg)
{
	struct bare x = bare_make();
	struct inlay_array array;

	(void)arg;
	must(inlay_array_start(&array, &x.m, 4, 64, 0, 0));
	inlay_array_at(&array, 4);
}
#endif

static void preconditions(void **state)
{
	(void)state;
#if INLAY_CHECKED
	{
		static const struct {
			int what;
			const char *rule;
		} nulls[] = {{0, "an inventory is not NULL"}, {1, "an inventory is not NULL"}, {2, "a pool is not NULL"}, {3, "a pool is not NULL"},
			     {4, "a buffer is not NULL"}, {5, "a buffer is not NULL"}, {6, "a buffer is not NULL"}, {7, "a magazine is not NULL"},
			     {8, "an inventory is not NULL"}, {9, "an inventory is not NULL"}};
		int how;

		for (how = 0; how < (int)ARRAY(nulls); how++)
			assert_aborts(abort_null, (void *)(uintptr_t)&nulls[how].what, nulls[how].rule);
	}
	assert_aborts(abort_window, NULL, "the data lies in its buffer");
	assert_aborts(abort_written, NULL, "nobody writes to a buffer that was given back");
	assert_aborts(abort_twice, NULL, "no buffer is given back twice");
	assert_aborts(abort_element, NULL, "an element of a started array");
#else
	print_message("# skipped: preconditions cost nothing here\n");
	skip();
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(windows),
		cmocka_unit_test(references),
		cmocka_unit_test(lists),
		cmocka_unit_test(far_lists),
		cmocka_unit_test(inventory_states),
		cmocka_unit_test(inventory_arguments),
		cmocka_unit_test(restarted),
		cmocka_unit_test(fewer),
		cmocka_unit_test(devices),
		cmocka_unit_test(batches),
		cmocka_unit_test(copies),
		cmocka_unit_test(expanded),
		cmocka_unit_test(reserved),
		cmocka_unit_test(pool_states),
		cmocka_unit_test(keys_apart),
		cmocka_unit_test(nothing_there),
		cmocka_unit_test(pool_pads),
		cmocka_unit_test(pool_slices),
		cmocka_unit_test(sizes),
		cmocka_unit_test(arrays),
		cmocka_unit_test(beside_model),
		cmocka_unit_test(posted),
		cmocka_unit_test(preconditions),
	};

	return cmocka_run_group_tests(tests, dev_open, dev_close);
}
