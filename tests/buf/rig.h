/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rig.h: what the tests of buffers share: maps of several ranges, inventories in memory of their own.
 */
#ifndef TESTS_BUF_RIG_H
#define TESTS_BUF_RIG_H

#include "common.h"
#include "given.h"

#define RANGES 3
#define RANGE_BYTES 65536u

/* An mmap of RANGES ranges, apart from each other, with up to two devices */
struct map {
	struct inlay_mmap m;
	void *state;
	uint8_t *mem;
	struct ibv_pd *pd2;
};

UNUSED static void map_make(struct map *t, int devices)
{
	memset(t, 0, sizeof(*t));
	t->state = given(inlay_mmap_size(2, RANGES));
	t->mem = (uint8_t *)pages(RANGES * 2 * RANGE_BYTES);
	must(inlay_mmap_create(&t->m, t->state, inlay_mmap_size(2, RANGES), 2, RANGES));
	if (devices > 0)
		must(inlay_mmap_add_dev(&t->m, dev.pd));
	if (devices > 1) {
		t->pd2 = made(ibv_alloc_pd(dev.ctx));
		must(inlay_mmap_add_dev(&t->m, t->pd2));
	}
	for (uint32_t i = 0; i < RANGES; i++)
		must(inlay_mmap_add(&t->m, inlay_source_host(t->mem + 2 * i * RANGE_BYTES, RANGE_BYTES)));
	must(inlay_mmap_set_permissions(&t->m, INLAY_LOCAL_READ_WRITE | INLAY_RDMA_READ | INLAY_RDMA_WRITE));
	must(inlay_mmap_start(&t->m));
}

UNUSED static void map_free(struct map *t)
{
	must(inlay_mmap_destroy(&t->m));
	if (t->pd2)
		must(ibv_dealloc_pd(t->pd2));
	given_free(t->state);
	free(t->mem);
}

UNUSED static struct inlay_inventory *inventory_make(uint32_t num)
{
	struct inlay_inventory *inv = NULL;

	must(inlay_inventory_create(given(inlay_inventory_size(num)), inlay_inventory_size(num), num, &inv));
	return inv;
}

UNUSED static struct inlay_inventory *inventory_started(uint32_t num)
{
	struct inlay_inventory *inv = inventory_make(num);

	must(inlay_inventory_start(inv));
	return inv;
}

UNUSED static void inventory_free(struct inlay_inventory *inv)
{
	must(inlay_inventory_destroy(inv));
	given_free(inv);
}

/* How many could be given back, up to the first that could not */
UNUSED static uint32_t put_all(struct inlay_buf *const *b, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && !inlay_buf_dec_refcount(b[i], NULL); i++)
		;
	return i;
}

UNUSED static void take_all(struct inlay_pool *pool, uint32_t n, struct inlay_buf **b)
{
	while (n--)
		must(inlay_pool_alloc(pool, b++));
}

#endif
