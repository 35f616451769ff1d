/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * buf.c: one buffer and its data, references, lists; a list that is posted and comes back with its
 * completion; and preconditions.
 */
#include "rig.h"

TEST(windows)
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

	map_make(&t, 1);
	head = t.mem + 1000;
	must(inlay_inventory_get_by_args(inv, &t.m, head, 256, head + 10, 20, &b));
	assert_ptr_equal(inlay_buf_head(b), head);
	assert_int_equal(inlay_buf_len(b), 256);
	assert_ptr_equal(inlay_buf_data(b), head + 10);
	assert_int_equal(inlay_buf_data_len(b), 20);
	for (size_t i = 0; i < ARRAY(tries); i++) {
		uint8_t *data = head + tries[i].offset;

		inlay_buf_set_data(b, head + 7, 9);
		assert_int_equal(inlay_buf_set_data(b, data, tries[i].len), tries[i].result);
		assert_ptr_equal(inlay_buf_data(b), tries[i].result ? head + 7 : data);
		assert_int_equal(inlay_buf_data_len(b), tries[i].result ? 9 : tries[i].len);
	}
	inlay_buf_set_data(b, head + 200, 3);
	assert_int_equal(inlay_buf_set_data_len(b, 57), -EINVAL);
	assert_int_equal(inlay_buf_data_len(b), 3);
	must(inlay_buf_set_data_len(b, 56));
	assert_int_equal(inlay_buf_data_len(b), 56);
	must(inlay_buf_set_data_len(b, 0));
	assert_ptr_equal(inlay_buf_data(b), head + 200);
	assert_ptr_equal(inlay_buf_head(b), head);
	assert_int_equal(inlay_buf_len(b), 256);
	must(inlay_buf_dec_refcount(b, NULL));
	inventory_free(inv);
	map_free(&t);
}

TEST(references)
{
	struct inlay_inventory *inv = inventory_started(4);
	struct inlay_buf *b = NULL, *e = NULL;
	uint16_t prev = 7;
	struct map t;

	map_make(&t, 1);
	must(inlay_inventory_get_by_data(inv, &t.m, t.mem, 64, &b));
	must(inlay_inventory_get_by_data(inv, &t.m, t.mem, 64, &e));
	assert_int_equal(inlay_buf_refcount(b), 1);
	for (uint32_t i = 1; i < UINT16_MAX; i++) {
		must(inlay_buf_inc_refcount(b, &prev));
		assert_int_equal(prev, i);
	}
	assert_int_equal(inlay_buf_refcount(b), UINT16_MAX);
	prev = 7;
	assert_int_equal(inlay_buf_inc_refcount(b, &prev), -ENOSPC);
	assert_int_equal(prev, 7);
	assert_int_equal(inlay_buf_refcount(b), UINT16_MAX);
	for (uint32_t i = UINT16_MAX; i > 1; i--) {
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
TEST(lists)
{
	struct inlay_inventory *inv = inventory_started(8);
	struct inlay_buf *b[6], *dead = NULL;
	struct ibv_sge sge[8];
	struct map t;
	enum { A, B, C, D, E, S };

	map_make(&t, 1);
	for (uint32_t i = 0; i < 6; i++) {
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
	for (uint32_t i = A; i <= E; i++) {
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
	assert_int_equal(inlay_buf_sges(b[A], NULL, 3), -ENOBUFS);
	assert_int_equal(inlay_buf_sges(b[A], NULL, 4), 4);
	assert_int_equal(inlay_buf_list_bytes(b[A]), 10 + 12 + 13 + 14);
	assert_int_equal(inlay_buf_sges(b[A], sge, 8), 4);
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t k = i ? i + 1 : 0;

		assert_int_equal(sge[i].addr, (uintptr_t)t.mem + 64 * k + k);
		assert_int_equal(sge[i].length, 10 + k);
		assert_int_equal(sge[i].lkey, inlay_buf_keys(b[k]).lkey);
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

/* ---- posts ---- */

#define LIST 10

/* Lists of ten windows, one of them empty, written by one post each, at every place of the ring, and given back by their completions */
TEST(posted)
{
	struct inlay_inventory *inv = inventory_started(4 * LIST);
	struct inlay_buf *inflight[256], *b = NULL, *head = NULL;
	struct inlay_wr wr;
	const struct mlx5_cqe64 *cqe;
	struct opt opt = usual;
	struct end a, z;
	struct ibv_sge sge[LIST];
	uint32_t round, i, len, index, pi;
	uint16_t prev;
	struct map t;

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
		const uint32_t segs = LIST - (round % 13 < LIST);
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
		if (round % 4 == 2)
			must(inlay_buf_inc_refcount(head, NULL));
		index = inlay_sq_index(&a.sq);
		pi = a.sq.pi;
		wr = wr_at(wr_imm(wr_sge(NULL, 0), inlay_to_be32(round)), raddr_of(&z, 0), z.mr->rkey);
		switch (round % 3) {
		case 0:
			must(inlay_post_bufs(&a.sq, MLX5_OPCODE_RDMA_WRITE, &wr, head, INLAY_SIGNALED));
			break;
		case 1:
			/* The same by an array: the same number of WQEBBs */
			must(inlay_post_write(&a.sq, raddr_of(&z, 0), z.mr->rkey, sge, (uint32_t)inlay_buf_sges(head, sge, LIST), INLAY_SIGNALED));
			break;
		default: {
			struct ibv_sge in = sge_of(&z, 0, 8192);

			must(inlay_post_recv(&z.rq, &in, 1));
			inlay_rq_ring(&z.rq);
			must(inlay_post_bufs(&a.sq, MLX5_OPCODE_SEND_IMM, &wr, head, INLAY_SIGNALED));
		}
		}
		assert_int_equal(a.sq.pi - pi, ((round % 3 == 2 ? 1 : 2) + segs + 3) / 4);
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
		if (round % 4 == 2) {
			assert_int_equal(prev, 2);
			assert_int_equal(inlay_inventory_num_free(inv), 3 * LIST);
			must(inlay_buf_dec_refcount(b, NULL));
		}
		assert_int_equal(inlay_inventory_num_free(inv), 4 * LIST);
		assert_int_equal(inlay_mmap_num_bufs(&t.m), 0);
		if (round % 3 == 2) {
			cqe = cqe_wait(&z.rxcq);
			assert_int_equal(inlay_cqe_imm_be(cqe), inlay_to_be32(round));
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
	wr = wr_at(wr_sge(NULL, 0), raddr_of(&z, 0), z.mr->rkey);
	must(inlay_post_bufs(&a.sq, MLX5_OPCODE_RDMA_READ, &wr, head, INLAY_SIGNALED));
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
	assert_int_equal(inlay_post_bufs(&a.sq, MLX5_OPCODE_RDMA_WRITE, &wr, head, 0), -EINVAL);
	must(inlay_buf_dec_refcount(head, NULL));
	must(inlay_inventory_get_by_data(inv, &t.m, t.mem, 16, &b));
	for (i = 0; i <= a.sq.mask; i++)
		must(inlay_post_bufs(&a.sq, MLX5_OPCODE_RDMA_WRITE, &wr, b, i == a.sq.mask ? INLAY_SIGNALED : 0));
	assert_int_equal(inlay_post_bufs(&a.sq, MLX5_OPCODE_SEND_IMM, &wr, b, 0), -EAGAIN);
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
	struct bare x = {};

	x.mem = (uint8_t *)pages(4096);
	must(inlay_mmap_create(&x.m, given(inlay_mmap_size(1, 1)), inlay_mmap_size(1, 1), 1, 1));
	must(inlay_mmap_add(&x.m, inlay_source_host(x.mem, 4096)));
	must(inlay_mmap_start(&x.m));
	x.inv = inventory_started(2);
	return x;
}

static void written(void)
{
	struct bare x = bare_make();

	must(inlay_inventory_get_by_data(x.inv, &x.m, x.mem, 64, &x.buf));
	must(inlay_buf_dec_refcount(x.buf, NULL));
	x.buf->state += 2;
	inlay_inventory_get_by_data(x.inv, &x.m, x.mem, 64, &x.buf);
}

static void element(void)
{
	struct bare x = bare_make();
	struct inlay_pool *pool = NULL;

	must(inlay_pool_create(given(inlay_pool_size(4)), inlay_pool_size(4), 4, 64, &x.m, &pool));
	must(inlay_pool_start(pool));
	inlay_pool_sge(pool, 4);
}
#endif

TEST(preconditions)
{
#if INLAY_CHECKED
	struct inlay_buf *b = NULL;

	assert_aborts("an inventory is not NULL", inlay_inventory_start(NULL));
	assert_aborts("an inventory is not NULL", inlay_inventory_get_by_data(NULL, NULL, NULL, 1, &b));
	assert_aborts("an inventory is not NULL", inlay_inventory_attach(NULL, NULL));
	assert_aborts("an inventory is not NULL", inlay_inventory_destroy(NULL));
	assert_aborts("a pool is not NULL", inlay_pool_start(NULL));
	assert_aborts("a pool is not NULL", inlay_pool_alloc(NULL, &b));
	assert_aborts("a pool is not NULL", inlay_pool_num_free(NULL));
	assert_aborts("a buffer is not NULL", inlay_buf_dec_refcount(NULL, NULL));
	assert_aborts("a buffer is not NULL", inlay_buf_set_data(NULL, NULL, 0));
	assert_aborts("a buffer is not NULL", inlay_buf_chain_list(NULL, NULL));
	assert_aborts("nobody writes to a buffer that was given back", written());
	assert_aborts("an element of a started pool", element());
#else
	print_message("# skipped: preconditions cost nothing here\n");
	skip();
#endif
}

int main(void)
{
	return run_all(dev_open, dev_close);
}
