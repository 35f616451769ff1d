/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pool.c: memory for bounce buffers and operations. Both come in chunks, are linked when they are free,
 * and stay until the endpoint closes.
 */
#include "fabric.h"
#include <sys/mman.h>

#define CHUNK_BYTES (1u << 20)
#define CHUNK_OPS 64u

struct chunk {
	struct chunk *next;
	struct ibv_mr *mr;
	size_t bytes;
	uint8_t data[] __attribute__((aligned(64)));
};

int pool_init(struct pool *p, size_t size, struct domain *registered)
{
	p->free = NULL;
	p->chunks = NULL;
	p->size = inlay_round_up(size, 64);
	p->domain = registered;
	return pool_grow(p);
}

void pool_fini(struct pool *p)
{
	struct chunk *c;

	while ((c = p->chunks)) {
		p->chunks = c->next;
		if (c->mr)
			ibv_dereg_mr(c->mr);
		munmap(c, c->bytes);
	}
}

APART int pool_grow(struct pool *p)
{
	const size_t stride = sizeof(struct buf) + p->size;
	void *memory = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct chunk *c = (struct chunk *)memory;
	uint8_t *at;

	if (memory == MAP_FAILED)
		return -FI_ENOMEM;
	c->bytes = CHUNK_BYTES;
	if (p->domain) {
		c->mr = ibv_reg_mr(p->domain->pd, c, CHUNK_BYTES, IBV_ACCESS_LOCAL_WRITE);
		if (!c->mr) {
			munmap(c, CHUNK_BYTES);
			return -FI_ENOMEM;
		}
	}
	c->next = p->chunks;
	p->chunks = c;
	for (at = c->data; at + stride <= (uint8_t *)c + CHUNK_BYTES; at += stride) {
		struct buf *b = (struct buf *)(void *)at;

		b->lkey = c->mr ? c->mr->lkey : 0;
		b->size = (uint32_t)p->size;
		buf_give(p, b);
	}
	return 0;
}

/* ---- Operations ---- */

APART int ops_grow(struct endpoint *ep)
{
	struct op **chunks = (struct op **)realloc(ep->chunks, (ep->chunk_count + 1) * sizeof(*chunks)), *op;
	uint32_t i;

	if (!chunks)
		return -FI_ENOMEM;
	ep->chunks = chunks;
	op = (struct op *)calloc(CHUNK_OPS, sizeof(*op));
	if (!op)
		return -FI_ENOMEM;
	chunks[ep->chunk_count++] = op;
	for (i = CHUNK_OPS; i--;) {
		op[i].index = (ep->chunk_count - 1) * CHUNK_OPS + i;
		op[i].next = ep->free_ops;
		ep->free_ops = &op[i];
	}
	return 0;
}

struct op *op_at(const struct endpoint *ep, uint32_t n)
{
	return n < ep->chunk_count * CHUNK_OPS ? &ep->chunks[n / CHUNK_OPS][n % CHUNK_OPS] : NULL;
}

void op_let_go(struct endpoint *ep, struct op *op)
{
	while (op->regions)
		inlay_cache_put(&ep->domain->cache, op->region[--op->regions]);
}

void ops_fini(struct endpoint *ep)
{
	struct op *op;
	uint32_t n;

	/* What is not over holds its registrations until now. */
	for (n = 0; (op = op_at(ep, n)); n++)
		op_let_go(ep, op);
	while (ep->chunk_count)
		free(ep->chunks[--ep->chunk_count]);
	free(ep->chunks);
}

struct op *op_of(const struct endpoint *ep, uint64_t handle)
{
	struct op *op = op_at(ep, (uint32_t)handle);

	return op && op->kind != OP_FREE && op->generation == handle >> 32 ? op : NULL;
}
