/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz.h: what the fuzzers' functions share: their input, queues in plain memory with a device behind them that does what it is told, one
 * step at a time. There are no threads, no clock and no verbs objects: the same input does the same.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <inlay/inlay.h>
#include <inlay/task.h>
#include "../task/messages.h"

#define FUZZ_CQES 2048u           /* at most */
#define FUZZ_BBS 512u
#define FUZZ_RECEIVES 32u
#define FUZZ_UNUSED __attribute__((unused))

#define sure(condition)                                                                 \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);  \
			abort();                                                        \
		}                                                                       \
	} while (0)

/* ---- Input: bytes, and zeros behind them ---- */

struct fuzz_in {
	const uint8_t *at, *end;
};

FUZZ_UNUSED static uint32_t fuzz_8(struct fuzz_in *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

FUZZ_UNUSED static uint32_t fuzz_16(struct fuzz_in *in)
{
	uint32_t low = fuzz_8(in);

	return low | fuzz_8(in) << 8;
}

FUZZ_UNUSED static void fuzz_bytes(struct fuzz_in *in, uint8_t *to, size_t n)
{
	size_t have = (size_t)(in->end - in->at) < n ? (size_t)(in->end - in->at) : n;

	memcpy(to, in->at, have);
	memset(to + have, 0, n - have);
	in->at += have;
}

/* One of n bytes becomes another one. */
FUZZ_UNUSED static void fuzz_spoil(struct fuzz_in *in, uint8_t *at, uint32_t n)
{
	uint32_t i = fuzz_8(in) % n;

	at[i] ^= (uint8_t)fuzz_8(in);
}

FUZZ_UNUSED static uint32_t fuzz_be32(const uint8_t *at)
{
	uint32_t be;

	memcpy(&be, at, 4);
	return inlay_from_be32(be);
}

FUZZ_UNUSED static uint64_t fuzz_be64(const uint8_t *at)
{
	uint64_t be;

	memcpy(&be, at, 8);
	return inlay_from_be64(be);
}

FUZZ_UNUSED static uint64_t fuzz_le(const uint8_t *at, uint32_t bytes)
{
	uint64_t v = 0;

	memcpy(&v, at, bytes);
	return v;
}

/* The i-th byte of pattern `what`. */
FUZZ_UNUSED static uint8_t fuzz_pattern(uint32_t what, uint32_t i)
{
	return (uint8_t)((what * 2654435761u) >> 13 ^ i * 37);
}

FUZZ_UNUSED static void fuzz_fill(uint8_t *at, uint32_t n, uint32_t what)
{
	for (uint32_t i = 0; i < n; i++)
		at[i] = fuzz_pattern(what, i);
}

FUZZ_UNUSED static void fuzz_same(const uint8_t *at, uint32_t n, uint32_t what)
{
	for (uint32_t i = 0; i < n; i++)
		sure(at[i] == fuzz_pattern(what, i));
}

/* ---- What nobody may touch: with the address sanitizer only ---- */

#if defined(__SANITIZE_ADDRESS__)
#define FUZZ_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FUZZ_ASAN 1
#endif
#endif
#ifdef FUZZ_ASAN
#include <sanitizer/asan_interface.h>
#ifndef FUZZ_REPLAY
/* What is freed comes back soon: fresh pages would cost more than all else. */
const char *__asan_default_options(void)
{
	return "quarantine_size_mb=8";
}
#endif
#define fuzz_forbid(at, n) __asan_poison_memory_region(at, n)
#define fuzz_allow(at, n) __asan_unpoison_memory_region(at, n)
#else
#define fuzz_forbid(at, n) ((void)(at), (void)(n))
#define fuzz_allow(at, n) ((void)(at), (void)(n))
#endif

/* ---- Queues ---- */

struct fuzz_cq {
	struct mlx5_cqe64 cqes[FUZZ_CQES] __attribute__((aligned(4096)));
	uint64_t page[64];
	uint32_t record[2];
	uint32_t count, produced;
	struct inlay_cq *cq;
};

struct fuzz_qp {
	uint8_t ring[FUZZ_BBS * 64] __attribute__((aligned(4096)));
	uint8_t receives[FUZZ_RECEIVES * 16] __attribute__((aligned(64)));
	uint64_t page[512] __attribute__((aligned(4096)));
	struct inlay_uar uar;
	uint32_t record[2];
	uint32_t qpn;
	uint32_t done;                  /* WQEBBs that the device has done */
	uint32_t taken;                 /* receives that it has */
	struct inlay_task_link *link;
	struct fuzz_cq *cq;
};

/* A WQE in one piece */
struct fuzz_wqe {
	uint32_t opcode, index, ds, flags, imm;
	uint8_t at[1024];
};

FUZZ_UNUSED static void fuzz_cq_clear(struct fuzz_cq *c, uint32_t count)
{
	sure(count <= FUZZ_CQES);
	for (uint32_t i = 0; i < count; i++)
		c->cqes[i].op_own = MLX5_CQE_INVALID << 4; /* as the provider leaves it */
	c->count = count;
	c->produced = c->record[0] = c->record[1] = 0;
}

FUZZ_UNUSED static void fuzz_cq_make(struct fuzz_cq *c, struct inlay_cq *cq)
{
	fuzz_cq_clear(c, 512);
	c->cq = cq;
	sure(!inlay_cq_init(cq, c->cqes, c->count, 64, c->record, c->page, 1));
}

/* The queues of a link. wqebbs: at most FUZZ_BBS; receives: at most FUZZ_RECEIVES. */
FUZZ_UNUSED static void fuzz_qp_make(struct fuzz_qp *q, struct inlay_task_link *l, struct fuzz_cq *c, uint32_t qpn, uint32_t wqebbs,
				     uint32_t receives)
{
	memset(&q->uar, 0, sizeof(q->uar));
	q->qpn = qpn;
	q->done = q->taken = 0;
	q->link = l;
	q->cq = c;
	sure(!inlay_uar_init(&q->uar, q->page, 256, INLAY_UAR_DOORBELL));
	sure(!inlay_sq_init(&l->sq, q->ring, wqebbs, q->record, qpn, 63, &q->uar));
	sure(!inlay_rq_init(&l->rq, q->receives, receives, 16, q->record));
}

/* Completions that fit. */
FUZZ_UNUSED static uint32_t fuzz_cq_room(const struct fuzz_cq *c)
{
	return c->count - (c->produced - c->cq->ci);
}

FUZZ_UNUSED static struct mlx5_cqe64 *fuzz_cqe(struct fuzz_cq *c, uint32_t qpn, uint32_t opcode, uint32_t bytes, uint32_t counter)
{
	struct mlx5_cqe64 *cqe = &c->cqes[c->produced & (c->count - 1)];

	sure(fuzz_cq_room(c));
	memset(cqe, 0, sizeof(*cqe));
	cqe->byte_cnt = inlay_to_be32(bytes);
	cqe->sop_drop_qpn = inlay_to_be32(qpn);
	cqe->wqe_counter = inlay_to_be16((uint16_t)counter);
	cqe->op_own = (uint8_t)(opcode << 4 | (c->produced / c->count & 1));
	c->produced++;
	return cqe;
}

FUZZ_UNUSED static void fuzz_cqe_error(struct fuzz_cq *c, uint32_t qpn, uint32_t opcode, uint32_t syndrome, uint32_t counter)
{
	((uint8_t *)fuzz_cqe(c, qpn, opcode, 0, counter))[offsetof(struct mlx5_err_cqe, syndrome)] = (uint8_t)syndrome;
}

/* Where the next message comes to; NULL when no receive has been shown to the device. */
FUZZ_UNUSED static uint8_t *fuzz_receive(const struct fuzz_qp *q)
{
	const struct inlay_rq *rq = &q->link->rq;
	uint64_t addr;

	if ((uint16_t)q->taken == inlay_from_be16(*rq->dbrec))
		return NULL;
	memcpy(&addr, rq->buf + (size_t)(q->taken & rq->mask) * rq->stride + 8, 8);
	return (uint8_t *)(uintptr_t)inlay_from_be64(addr);
}

/* Bytes that the receive has room for. */
FUZZ_UNUSED static uint32_t fuzz_receive_room(const struct fuzz_qp *q)
{
	const struct inlay_rq *rq = &q->link->rq;
	uint32_t len;

	memcpy(&len, rq->buf + (size_t)(q->taken & rq->mask) * rq->stride, 4);
	return inlay_from_be32(len);
}

/* A message has come: n bytes, by the completion; as many as the receive has room for are written. */
FUZZ_UNUSED static void fuzz_arrive(struct fuzz_qp *q, uint32_t opcode, const uint8_t *msg, uint32_t n)
{
	uint8_t *to = fuzz_receive(q);
	uint32_t room = fuzz_receive_room(q);

	sure(to);
	fuzz_allow(to, room);
	memcpy(to, msg, n < room ? n : room);
	q->taken++;
	fuzz_cqe(q->cq, q->qpn, opcode, n, 0);
}

/* The WQE at an index of a ring. What it must be in any case is looked at. Returns its WQEBBs. */
FUZZ_UNUSED static uint32_t fuzz_wqe_at(const uint8_t *ring, uint32_t mask, uint32_t at, uint32_t qpn, struct fuzz_wqe *w)
{
	uint32_t i = 0;

	do {
		memcpy(w->at + 64 * i, ring + 64 * (size_t)((at + i) & mask), 64);
		w->ds = fuzz_be32(w->at + 4) & 0x3f;
	} while (++i < (w->ds + 3) / 4);
	w->opcode = fuzz_be32(w->at) & 0xff;
	w->index = fuzz_be32(w->at) >> 8 & 0xffff;
	w->flags = w->at[11];
	w->imm = fuzz_be32(w->at + 12);
	sure(w->index == (uint16_t)at && fuzz_be32(w->at + 4) >> 8 == qpn && w->ds);
	return i;
}

/* The next WQE that the device was shown, taken; 0: there is none. */
FUZZ_UNUSED static int fuzz_next(struct fuzz_qp *q, struct fuzz_wqe *w)
{
	struct inlay_sq *sq = &q->link->sq;

	if (q->done == inlay_sq_rung(sq))
		return 0;
	sure((uint16_t)inlay_sq_rung(sq) == inlay_from_be16(*sq->dbrec));
	q->done += fuzz_wqe_at(q->ring, sq->mask, q->done, q->qpn, w);
	sure((int32_t)(inlay_sq_rung(sq) - q->done) >= 0);
	return 1;
}

/* A receive comes back from a queue that is dead. Returns 0 when there is none. */
FUZZ_UNUSED static int fuzz_flush_receive(struct fuzz_qp *q)
{
	if (!fuzz_receive(q))
		return 0;
	q->taken++;
	fuzz_cqe_error(q->cq, q->qpn, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0);
	return 1;
}

/* Up to `most` of what was posted comes back from a queue that is dead. */
FUZZ_UNUSED static void fuzz_flush(struct fuzz_qp *q, uint32_t most, int receives_first)
{
	struct fuzz_wqe w;

	while (most-- && fuzz_cq_room(q->cq) > 2)
		if (receives_first && fuzz_flush_receive(q))
			;
		else if (fuzz_next(q, &w))
			fuzz_cqe_error(q->cq, q->qpn, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, w.index);
		else if (!fuzz_flush_receive(q))
			return;
}

/* It is done: its completion, if it asks for one. */
FUZZ_UNUSED static void fuzz_done(struct fuzz_qp *q, const struct fuzz_wqe *w)
{
	if (w->flags & MLX5_WQE_CTRL_CQ_UPDATE)
		fuzz_cqe(q->cq, q->qpn, MLX5_CQE_REQ, 0, w->index);
}

/* A piece of a message: memory, or what lies in the WQE (key 0, in_wqe 1). */
struct fuzz_piece {
	const uint8_t *at;
	uint32_t bytes, lkey, in_wqe;
};

/* The pieces from unit `from` of the WQE on. Returns how many. */
FUZZ_UNUSED static uint32_t fuzz_pieces(const struct fuzz_wqe *w, uint32_t from, struct fuzz_piece *p)
{
	uint32_t n = 0, count;

	while (from < w->ds) {
		const uint8_t *seg = w->at + 16 * from;

		count = fuzz_be32(seg);
		sure(n < 20);
		p[n].in_wqe = count >> 31;
		p[n].bytes = count & 0x7fffffff;
		p[n].lkey = p[n].in_wqe ? 0 : fuzz_be32(seg + 4);
		p[n].at = p[n].in_wqe ? seg + 4 : (const uint8_t *)(uintptr_t)fuzz_be64(seg + 8);
		sure(p[n].bytes); /* the device takes 0 for 2^31 */
		from += p[n].in_wqe ? (4 + p[n].bytes + 15) / 16 : 1;
		n++;
	}
	sure(from == w->ds);
	return n;
}

/* All pieces in a row. Returns the bytes. */
FUZZ_UNUSED static uint32_t fuzz_gather(const struct fuzz_piece *p, uint32_t n, uint8_t *to, uint32_t room)
{
	uint32_t i, len = 0;

	for (i = 0; i < n; i++) {
		sure(p[i].bytes <= room - len);
		memcpy(to + len, p[i].at, p[i].bytes);
		len += p[i].bytes;
	}
	return len;
}

/* ---- A map of one piece of memory, and a pool of it ---- */

struct fuzz_pool {
	uint8_t map_memory[8192] __attribute__((aligned(4096)));
	uint8_t pool_memory[16384] __attribute__((aligned(4096)));
	struct inlay_mmap map;
	struct inlay_pool *pool;
};

FUZZ_UNUSED static void fuzz_map(struct inlay_mmap *m, uint8_t memory[8192], struct ibv_pd *pd, uint8_t *at, size_t bytes, uint32_t lkey,
				 uint32_t permissions)
{
	struct inlay_keys keys = {lkey, INLAY_NO_KEY};

	sure(inlay_mmap_size(1, 1) <= 8192 && !inlay_mmap_create(m, memory, inlay_mmap_size(1, 1), 1, 1) && !inlay_mmap_add_dev(m, pd));
	sure(!inlay_mmap_add(m, inlay_source_keys((uintptr_t)at, bytes, keys)));
	sure(!inlay_mmap_set_permissions(m, permissions) && !inlay_mmap_start(m));
}

FUZZ_UNUSED static void fuzz_pool_make(struct fuzz_pool *p, struct ibv_pd *pd, uint8_t *at, uint32_t num, uint32_t bytes, uint32_t lkey)
{
	fuzz_allow(at, num * (size_t)bytes);
	fuzz_map(&p->map, p->map_memory, pd, at, num * (size_t)bytes, lkey, INLAY_LOCAL_READ_WRITE);
	sure(inlay_pool_size(num) <= sizeof(p->pool_memory));
	sure(!inlay_pool_create(p->pool_memory, inlay_pool_size(num), num, bytes, &p->map, &p->pool) && !inlay_pool_start(p->pool));
}

/* Nothing of it is out. */
FUZZ_UNUSED static void fuzz_pool_end(struct fuzz_pool *p, uint32_t num)
{
	sure(inlay_pool_num_free(p->pool) == num);
	sure(!inlay_pool_stop(p->pool) && !inlay_pool_destroy(p->pool));
	inlay_mmap_destroy(&p->map);
}

/* ---- A worker of two connections, whose queues lie in memory ---- */

#define FUZZ_CONNS 2u
#define FUZZ_CONN_QPN 16u       /* and the following */
#define FUZZ_LKEY 7u            /* of the first connection's memory; the second's is 9 */
#define FUZZ_POOL_LKEY 8u

struct fuzz_worker {
	struct fuzz_cq cq __attribute__((aligned(4096)));
	struct fuzz_qp qps[FUZZ_CONNS];
	struct inlay_task_worker w;
	struct inlay_task_conn conns[FUZZ_CONNS];
	uint8_t conn_memory[FUZZ_CONNS][32768] __attribute__((aligned(4096)));
	size_t conn_size;
	struct fuzz_pool pool;
	uint32_t dead[FUZZ_CONNS];      /* the device does no more of what is posted there */
};

/* pull: NULL for none. wqebbs: of each connection's ring. message, receives: as its peer has them */
FUZZ_UNUSED static void fuzz_worker_make(struct fuzz_worker *f, struct ibv_pd *pd, struct inlay_task_worker_params *p,
					 struct inlay_pool *pull, uint32_t wqebbs, uint32_t message, uint32_t receives)
{
	struct inlay_task_address peer = {};

	p->connections = FUZZ_CONNS;
	p->pool = pull;
	fuzz_allow(f->conn_memory, sizeof(f->conn_memory));
	peer.message = message;
	peer.receives = receives;
	f->conn_size = inlay_task_conn_size(p);
	sure(f->conn_size && f->conn_size <= sizeof(f->conn_memory[0]));
	memset(&f->w, 0, sizeof(f->w));
	memset(f->conns, 0, sizeof(f->conns));
	f->w.pd = pd;
	fuzz_cq_make(&f->cq, &f->w.cq);
	sure(!inlay_task_worker_init_(&f->w, p, NULL));
	for (uint32_t i = 0; i < FUZZ_CONNS; i++) {
		f->dead[i] = 0;
		fuzz_qp_make(&f->qps[i], &f->conns[i].link, &f->cq, FUZZ_CONN_QPN + i, wqebbs, p->credits);
		f->conns[i].link.peer = peer;
		inlay_task_conn_init_(&f->conns[i], f->conn_memory[i], &f->w, FUZZ_LKEY + 2 * i);
	}
}

/* ---- A file's function, which tests/task/fuzz.c calls as well ---- */

#ifdef FUZZ_REPLAY
#define FUZZ_TARGET(name)
#else
#define FUZZ_TARGET(name)                                            \
	int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) \
	{                                                            \
		name(data, size);                                    \
		return 0;                                            \
	}
#endif

#endif
