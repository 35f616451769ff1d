/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/memdomain/rdma.h: a domain over a memory map: its memory has keys, and data come from other hosts and go there by RDMA.
 *
 *   inlay_memdomain_rdma_create(&r, &reg, &map, pd, "mlx5_0");        map: this process's memory, started, with the device pd
 *   inlay_memdomain_rdma_attach(&r, &sq, ops, 64);                    a queue, and memory for as many operations under way
 *
 *   inlay_memdomain_rdma_translate(&r, addr, len, &keys);             a lookup, inline; or, for who knows only the domain:
 *   inlay_memdomain_translate(&r.domain, NULL, dst, NULL, addr, len, &result);
 *
 *   inlay_memdomain_pull(&r.domain, &peer, theirs, 2, ours, 3, done, request);      RDMA reads, rung
 *
 *   while ((cqe = inlay_cq_peek(&cq))) {                              the queue's owner polls, as ever
 *           inlay_sq_release(&sq, cqe);                               credit first, so that done may start the next operation
 *           inlay_memdomain_rdma_completed(&r, cqe);                  calls done; -ENOENT: a post of somebody else's
 *           inlay_cq_advance(&cq, 1);
 *   }
 *
 * Pull and push. One side of each is the peer's memory, addressed as the peer's keys have it; which keys, struct inlay_memdomain_peer says,
 * given as the operation's context. The other side is this process's, and lies in the map, in any of its ranges: the local keys are looked
 * up. A pull writes there, and needs INLAY_LOCAL_READ_WRITE. The pieces of both sides may be split as they like:
 *
 *   theirs   |---------------|--------|         one read or write for each piece of theirs (or each 2^30 bytes),
 *   ours     |---|-----|-------|------|         a gather entry for each piece of ours; many make one more read or write
 *
 * The last one is signaled, and its completion ends the operation: done(arg, 0); or done(arg, -EIO) when one of them failed, once the
 * device no longer touches the memory. Of an operation that is not accepted nothing is posted. One of no bytes is done when it returns. The
 * map counts operations under way as bufs, and cannot be stopped meanwhile: see Threads.
 *
 * Transfer to the domain is a push from this process's memory, or from what a translation to the domain describes, by that one's key. There
 * is no memzero: RDMA has none.
 *
 * After an error the queue is in the error state, and every operation ends with -EIO as its completions are flushed. Who resets the QP
 * without polling to the end calls inlay_memdomain_rdma_abort.
 *
 * A QP that scatters what it reads to CQEs (cqe.h) is not for pull: an operation whose data are in a CQE ends with -EIO.
 *
 * Threads: translations by any number; all else by the queue's owner. An operation holds the map, and its end lets go of it, as bufs do
 * (inlay_mmap_hold). The owners of queues of several domains over one map may be different threads.
 * Sources: SPDK's lib/rdma_utils and module/accel/mlx5 (what users of such a domain expect); rdma-core's mlx5 (gather entries of a read).
 */
#ifndef INLAY_MEMDOMAIN_RDMA_H
#define INLAY_MEMDOMAIN_RDMA_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/cqe.h>
#include <inlay/mmap/lookup.h>
#include <inlay/mmap/map.h>
#include <inlay/queue/post.h>
#include <inlay/queue/sq.h>
#include <inlay/memdomain/domain.h>

#define INLAY_MEMDOMAIN_SGES 30u          /* gather entries of one WQE, at most: what the devices take in a read */
#define INLAY_MEMDOMAIN_MESSAGE (1u << 30) /* bytes of one WQE, at most: the largest message */
#define INLAY_MEMDOMAIN_ID 48u            /* bytes of the domain's id, its end included */

enum inlay_memdomain_peer_flags {
	INLAY_MEMDOMAIN_NO_RING = 1,      /* the caller rings, for several operations at once */
};

/* The context of pull and push: by which keys the peer's memory is reached. */
struct inlay_memdomain_peer {
	size_t size;                      /* bytes of this struct */
	const uint32_t *rkeys;            /* of the peer's pieces */
	uint32_t num_rkeys;               /* 1: all have the first; else there are as many as pieces; 0: they are looked up in map */
	uint32_t flags;
	const struct inlay_mmap *map;     /* imported from the peer; its permissions are looked at too */
};

/* An operation under way. */
struct inlay_memdomain_rdma_op {
	inlay_memdomain_done done;
	void *arg;
	uint16_t first;                   /* index of its first WQE */
	uint16_t last;                    /* and of its last one, whose completion ends it */
	uint32_t failed;
	uint64_t reserved;
};

struct inlay_memdomain_rdma {
	struct inlay_memdomain domain;
	struct inlay_memdomain_rdma_ctx ctx; /* the domain's copies: of its context, */
	char id[INLAY_MEMDOMAIN_ID];      /* and its id */
	struct inlay_mmap *map;
	struct ibv_pd *pd;
	uint32_t dev;                     /* pd's place in the map */
	uint32_t sges;                    /* gather entries of one WQE */
	struct inlay_sq *sq;              /* NULL: none attached */
	struct inlay_memdomain_rdma_op *ops;
	uint32_t mask;                    /* operations that may be under way, less 1 */
	uint32_t begun;
	uint32_t ended;
	uint32_t reserved[3];
	struct inlay_hit hit;             /* the queue's owner's */
	uint32_t reserved2[15];
} __attribute__((aligned(INLAY_CACHE_LINE)));

INLAY_STATIC_ASSERT(sizeof(struct inlay_memdomain_rdma_op) == 32, "two operations a line");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_rdma, ctx) == sizeof(struct inlay_memdomain), "what is copied follows the domain");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_rdma, map) == 3 * INLAY_CACHE_LINE, "an operation touches this line");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_rdma, hit) == 4 * INLAY_CACHE_LINE, "an operation touches that line");

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path
 */

/*
 * The keys by which the domain's device reaches len bytes at addr: what the callback of inlay_memdomain_translate finds, without a call.
 *
 * Returns 0; -ENOENT when no single range of the map holds them, or the map is not started. Threads: any number.
 */
INLAY_ALWAYS int inlay_memdomain_rdma_translate(const struct inlay_memdomain_rdma *r, const void *addr, size_t len, struct inlay_keys *keys)
{
	const struct inlay_range *range = inlay_mmap_find(r->map, addr, len);

	if (INLAY_UNLIKELY(!range))
		return -ENOENT;
	if (INLAY_UNLIKELY(r->dev))
		return inlay_mmap_keys(r->map, range->id, r->dev, keys);
	keys->lkey = range->lkey;
	keys->rkey = range->rkey;
	return 0;
}

/* Whether both are the same protection domain, or one is a parent domain (inlay_uar_create) over the other. */
INLAY_FN int inlay_memdomain_same_pd(const struct ibv_pd *a, const struct ibv_pd *b)
{
	return a == b || (a && b && a->context == b->context && a->handle == b->handle);
}

/*
 * The device that a translation is for: that of the QP in the context, if it names one; else that of a destination of type RDMA, as its
 * user context says; else the domain's. -ENODEV: not one of the map's.
 */
INLAY_FN int inlay_memdomain_rdma_dev(const struct inlay_memdomain_rdma *r, struct inlay_memdomain *dst,
				      const struct inlay_memdomain_translation_ctx *dst_ctx, uint32_t *dev)
{
	const struct inlay_memdomain_rdma_ctx *theirs;
	const struct ibv_pd *pd = NULL;
	size_t size;

	theirs = (const struct inlay_memdomain_rdma_ctx *)inlay_memdomain_user_context(dst, &size);
	if (dst_ctx && dst_ctx->size >= sizeof(*dst_ctx) && dst_ctx->rdma.ibv_qp)
		pd = ((const struct ibv_qp *)dst_ctx->rdma.ibv_qp)->pd;
	else if (size >= sizeof(*theirs) && theirs->size >= sizeof(*theirs))
		pd = (const struct ibv_pd *)theirs->ibv_pd;
	*dev = r->dev;
	if (!pd || inlay_memdomain_same_pd(pd, r->pd))
		return 0;
	for (*dev = 0; *dev < r->map->num_devs; ++*dev)
		if (inlay_memdomain_same_pd(pd, r->map->devs[*dev]))
			return 0;
	return -ENODEV;
}

/*
 * The domain's translate: to a domain of type RDMA, address and keys for its device; to a system domain, the address, where it is one of
 * this process.
 *
 * Returns 0; -ENOENT when no single range of the map holds [addr, addr + len); -ENODEV when the map has not the destination's device;
 * -ENOTSUP for a destination of another type, and for memory that is no host memory to a system domain.
 */
INLAY_FN int inlay_memdomain_rdma_translate_cb(struct inlay_memdomain *src, void *src_ctx, struct inlay_memdomain *dst,
					       struct inlay_memdomain_translation_ctx *dst_ctx, void *addr, size_t len,
					       struct inlay_memdomain_result *result)
{
	const struct inlay_memdomain_rdma *r = (const struct inlay_memdomain_rdma *)(const void *)src;
	const struct inlay_range *range = inlay_mmap_find(r->map, addr, len);
	struct inlay_keys keys;
	uint32_t dev;
	int err;

	(void)src_ctx;
	if (INLAY_UNLIKELY(!range))
		return -ENOENT;
	keys.lkey = keys.rkey = 0;
	if (dst->type == INLAY_MEMDOMAIN_RDMA) {
		err = inlay_memdomain_rdma_dev(r, dst, dst_ctx, &dev);
		if (!err)
			err = inlay_mmap_keys(r->map, range->id, dev, &keys);
		if (INLAY_UNLIKELY(err))
			return err;
	} else if (!__atomic_load_n(&dst->host, __ATOMIC_RELAXED) || inlay_mmap_source(r->map, range->id)->kind != INLAY_SOURCE_HOST) {
		return -ENOTSUP;
	}
	result->size = sizeof(*result);
	result->iov_count = 1;
	result->iov.iov_base = addr;
	result->iov.iov_len = len;
	result->iovs = NULL;
	result->dst_domain = dst;
	result->rdma.lkey = keys.lkey;
	result->rdma.rkey = keys.rkey;
	return 0;
}

/* The bytes of a vector, which may begin at address 0. Returns 0, or -EINVAL for a sum that does not fit. */
INLAY_FN int inlay_memdomain_sum(const struct iovec *iov, uint32_t iovcnt, size_t *total)
{
	size_t sum = 0;
	uint32_t i;

	for (i = 0; i < iovcnt; i++)
		if (INLAY_UNLIKELY(__builtin_add_overflow(sum, iov[i].iov_len, &sum)))
			return -EINVAL;
	*total = sum;
	return 0;
}

/* The key of the local memory at addr, and in *len, which asks for so many bytes, how many of them have it. */
INLAY_FN int inlay_memdomain_rdma_near(struct inlay_memdomain_rdma *r, uint64_t addr, uint64_t *len, uint32_t write, uint32_t *lkey)
{
	const struct inlay_range *range = inlay_mmap_hit(r->map, &r->hit, (const void *)(uintptr_t)addr, 1);
	struct inlay_keys keys;

	if (INLAY_UNLIKELY(!range))
		return -ENOENT;
	if (INLAY_UNLIKELY(!write && !(range->access & INLAY_LOCAL_READ_WRITE)))
		return -EPERM;
	if (range->len - (addr - range->start) < *len)
		*len = range->len - (addr - range->start);
	*lkey = range->lkey;
	if (INLAY_UNLIKELY(r->dev)) {
		if (inlay_mmap_keys(r->map, range->id, r->dev, &keys))
			return -ENOENT;
		*lkey = keys.lkey;
	}
	return 0;
}

/* The same for the peer's memory, piece i of it. */
INLAY_FN int inlay_memdomain_rdma_far(const struct inlay_memdomain_peer *peer, uint32_t i, uint64_t addr, uint64_t *len, uint32_t write,
				      uint32_t *rkey)
{
	const struct inlay_range *range;

	if (INLAY_LIKELY(peer->num_rkeys)) {
		*rkey = peer->rkeys[peer->num_rkeys == 1 ? 0 : i];
		return 0;
	}
	range = inlay_mmap_find(peer->map, (const void *)(uintptr_t)addr, 1);
	if (INLAY_UNLIKELY(!range))
		return -ENOENT;
	if (INLAY_UNLIKELY(!(range->access & (write ? (uint32_t)INLAY_RDMA_WRITE : (uint32_t)INLAY_RDMA_READ))))
		return -EPERM;
	if (range->len - (addr - range->start) < *len)
		*len = range->len - (addr - range->start);
	*rkey = range->rkey;
	return 0;
}

/* Where a walk through a vector is. */
struct inlay_memdomain_place {
	const struct iovec *iov;
	uint32_t i;
	size_t at;
};

/* Its address, and in *len at most so many bytes of the piece that it is in. There are more bytes to come. */
INLAY_FN uint64_t inlay_memdomain_here(struct inlay_memdomain_place *p, uint64_t *len)
{
	while (p->at == p->iov[p->i].iov_len) {
		p->i++;
		p->at = 0;
	}
	if (p->iov[p->i].iov_len - p->at < *len)
		*len = p->iov[p->i].iov_len - p->at;
	return (uintptr_t)p->iov[p->i].iov_base + p->at;
}

/* Fills sge with up to `want` bytes from `near` on. Returns the number of entries or an error; *want is then what they hold. */
INLAY_FN int inlay_memdomain_rdma_gather(struct inlay_memdomain_rdma *r, struct inlay_memdomain_place *near, uint64_t *want, uint32_t write,
					 const uint32_t *lkey, struct ibv_sge *sge)
{
	uint64_t got = 0, len;
	uint32_t n = 0;
	int err;

	while (got < *want && n < r->sges) {
		len = *want - got;
		sge[n].addr = inlay_memdomain_here(near, &len);
		if (lkey) {
			sge[n].lkey = *lkey;
		} else {
			err = inlay_memdomain_rdma_near(r, sge[n].addr, &len, write, &sge[n].lkey);
			if (INLAY_UNLIKELY(err))
				return err;
		}
		sge[n++].length = (uint32_t)len;
		near->at += len;
		got += len;
	}
	*want = got;
	return (int)n;
}

/* What pull, push and transfer share: all or nothing of total bytes is posted. */
INLAY_FN int inlay_memdomain_rdma_post(struct inlay_memdomain_rdma *r, uint32_t write, const struct inlay_memdomain_peer *peer,
				       const struct iovec *far_iov, const struct iovec *near_iov, size_t total, const uint32_t *lkey,
				       inlay_memdomain_done done, void *arg)
{
	struct inlay_memdomain_place far, near;
	struct ibv_sge sge[INLAY_MEMDOMAIN_SGES];
	struct inlay_memdomain_rdma_op *op;
	struct inlay_sq *sq = r->sq;
	uint32_t pi = inlay_sq_index(sq);
	uint8_t opcode = write ? MLX5_OPCODE_RDMA_WRITE : MLX5_OPCODE_RDMA_READ;
	uint16_t end = 0;
	int err;

	if (INLAY_UNLIKELY(!total)) {
		if (done)
			done(arg, 0);
		return 0;
	}
	if (INLAY_UNLIKELY(r->begun - r->ended > r->mask))
		return -EAGAIN;
	far.iov = far_iov;
	near.iov = near_iov;
	far.i = near.i = 0;
	far.at = near.at = 0;
	while (total) {
		uint64_t len = total < INLAY_MEMDOMAIN_MESSAGE ? total : INLAY_MEMDOMAIN_MESSAGE;
		struct inlay_remote remote;

		remote.addr = inlay_memdomain_here(&far, &len);
		err = inlay_memdomain_rdma_far(peer, far.i, remote.addr, &len, write, &remote.rkey);
		if (INLAY_UNLIKELY(err))
			goto undo;
		err = inlay_memdomain_rdma_gather(r, &near, &len, write, lkey, sge);
		if (INLAY_UNLIKELY(err < 0))
			goto undo;
		far.at += len;
		total -= len;
		end = (uint16_t)inlay_sq_index(sq);
		err = inlay_post_gather(sq, opcode, 0, &remote, NULL, sge, (uint32_t)err, total ? 0 : INLAY_SIGNALED);
		if (INLAY_UNLIKELY(err))
			goto undo;
	}
	op = &r->ops[r->begun++ & r->mask];
	op->done = done;
	op->arg = arg;
	op->first = (uint16_t)pi;
	op->last = end;
	op->failed = 0;
	inlay_mmap_hold(r->map);
	if (INLAY_LIKELY(!(peer->flags & INLAY_MEMDOMAIN_NO_RING)))
		inlay_sq_ring(sq);
	return 0;
undo:
	inlay_sq_undo(sq, pi);
	return err == -EAGAIN && !inlay_sq_pending(sq) ? -E2BIG : err;
}

/* What the callbacks check of their arguments. */
INLAY_FN int inlay_memdomain_rdma_check(const struct inlay_memdomain_peer *peer, uint32_t far_iovcnt)
{
	if (INLAY_UNLIKELY(!peer || peer->size < sizeof(*peer)))
		return -EINVAL;
	if (INLAY_UNLIKELY(peer->num_rkeys ? !peer->rkeys || (peer->num_rkeys != 1 && peer->num_rkeys != far_iovcnt) : !peer->map))
		return -EINVAL;
	return 0;
}

/*
 * The domain's pull: RDMA reads. src_ctx is a struct inlay_memdomain_peer.
 *
 * Returns 0; -EINVAL for a context without keys, or a destination shorter than the source; -ENOENT for memory that is not in its map;
 * -EPERM where that map does not permit it; -EAGAIN when the queue has no room now, or as many operations are under way as may be; -E2BIG
 * when not even the empty queue has room. Only after 0 is anything posted.
 */
INLAY_FN int inlay_memdomain_rdma_pull_cb(struct inlay_memdomain *src, void *src_ctx, const struct iovec *src_iov, uint32_t src_iovcnt,
					  const struct iovec *dst_iov, uint32_t dst_iovcnt, inlay_memdomain_done done, void *arg)
{
	const struct inlay_memdomain_peer *peer = (const struct inlay_memdomain_peer *)src_ctx;
	size_t total, room;

	if (INLAY_UNLIKELY(inlay_memdomain_rdma_check(peer, src_iovcnt) || inlay_memdomain_sum(src_iov, src_iovcnt, &total) ||
			   inlay_memdomain_sum(dst_iov, dst_iovcnt, &room) || total > room))
		return -EINVAL;
	return inlay_memdomain_rdma_post((struct inlay_memdomain_rdma *)(void *)src, 0, peer, src_iov, dst_iov, total, NULL, done, arg);
}

/* The domain's push: RDMA writes. dst_ctx is a struct inlay_memdomain_peer. Returns what the pull does. */
INLAY_FN int inlay_memdomain_rdma_push_cb(struct inlay_memdomain *dst, void *dst_ctx, const struct iovec *dst_iov, uint32_t dst_iovcnt,
					  const struct iovec *src_iov, uint32_t src_iovcnt, inlay_memdomain_done done, void *arg)
{
	const struct inlay_memdomain_peer *peer = (const struct inlay_memdomain_peer *)dst_ctx;
	size_t total, room;

	if (INLAY_UNLIKELY(inlay_memdomain_rdma_check(peer, dst_iovcnt) || inlay_memdomain_sum(src_iov, src_iovcnt, &total) ||
			   inlay_memdomain_sum(dst_iov, dst_iovcnt, &room) || total > room))
		return -EINVAL;
	return inlay_memdomain_rdma_post((struct inlay_memdomain_rdma *)(void *)dst, 1, peer, dst_iov, src_iov, total, NULL, done, arg);
}

/*
 * The domain's transfer: a push from this process's memory (src NULL or a system domain), or from the pieces of a translation to this
 * domain, by its local key. Returns what the pull does; -ENOTSUP for another source without a translation; -EINVAL for a translation to
 * another domain.
 */
INLAY_FN int inlay_memdomain_rdma_transfer_cb(struct inlay_memdomain *dst, void *dst_ctx, const struct iovec *dst_iov, uint32_t dst_iovcnt,
					      struct inlay_memdomain *src, void *src_ctx, const struct iovec *src_iov, uint32_t src_iovcnt,
					      struct inlay_memdomain_result *translation, inlay_memdomain_done done, void *arg)
{
	const struct inlay_memdomain_peer *peer = (const struct inlay_memdomain_peer *)dst_ctx;
	size_t total, room;

	(void)src_ctx;
	if (!translation) {
		if (src && !__atomic_load_n(&src->host, __ATOMIC_RELAXED))
			return -ENOTSUP;
		return inlay_memdomain_rdma_push_cb(dst, dst_ctx, dst_iov, dst_iovcnt, src_iov, src_iovcnt, done, arg);
	}
	src_iov = inlay_memdomain_pieces(translation, &src_iovcnt);
	if (INLAY_UNLIKELY(translation->dst_domain != dst || src_iovcnt != translation->iov_count ||
			   inlay_memdomain_rdma_check(peer, dst_iovcnt) || inlay_memdomain_sum(src_iov, src_iovcnt, &total) ||
			   inlay_memdomain_sum(dst_iov, dst_iovcnt, &room) || total > room))
		return -EINVAL;
	return inlay_memdomain_rdma_post((struct inlay_memdomain_rdma *)(void *)dst, 1, peer, dst_iov, src_iov, total,
					 &translation->rdma.lkey, done, arg);
}

/* Operations under way. */
INLAY_FN uint32_t inlay_memdomain_rdma_pending(const struct inlay_memdomain_rdma *r)
{
	return r->begun - r->ended;
}

/* Ends the oldest operation. Its place is free before the word is said, so that the next may be begun there. */
INLAY_FN void inlay_memdomain_rdma_end(struct inlay_memdomain_rdma *r, int rc)
{
	struct inlay_memdomain_rdma_op op = r->ops[r->ended++ & r->mask];

	inlay_mmap_drop(r->map);
	if (op.done)
		op.done(op.arg, rc);
}

/*
 * Takes a completion, of any kind, from the CQ of the domain's queue, before or after its credit is given back and before its slot is.
 *
 * Returns 1: it has ended an operation, whose done was called; 0: it is an error of an operation that has more completions to come;
 * -ENOENT: it is not of this domain's operations; -EPROTO: it is of one that cannot complete now (a device gone mad), and nothing has
 * changed.
 */
INLAY_FN int inlay_memdomain_rdma_completed(struct inlay_memdomain_rdma *r, const struct mlx5_cqe64 *cqe)
{
	uint16_t counter = inlay_cqe_wqe_counter(cqe);
	struct inlay_memdomain_rdma_op *op;
	uint32_t i;

	if (!r->sq || !inlay_cqe_is_send(cqe) || inlay_cqe_qpn(cqe) != inlay_sq_qpn(r->sq) || r->begun == r->ended)
		return -ENOENT;
	op = &r->ops[r->ended & r->mask];
	if (INLAY_UNLIKELY((uint16_t)(counter - op->first) > (uint16_t)(op->last - op->first))) {
		/* Not the oldest. The queue's owner posts for himself too, but operations complete in their order. */
		for (i = r->ended + 1; i != r->begun; i++) {
			op = &r->ops[i & r->mask];
			if ((uint16_t)(counter - op->first) <= (uint16_t)(op->last - op->first))
				return -EPROTO;
		}
		return -ENOENT;
	}
	if (INLAY_UNLIKELY(inlay_cqe_is_error(cqe)))
		op->failed = 1;
	else if (INLAY_UNLIKELY(counter != op->last))
		return -EPROTO;
	else if (INLAY_UNLIKELY(cqe->op_own & (INLAY_CQE_SCATTER_32 | INLAY_CQE_SCATTER_64)))
		op->failed = 1;
	if (counter != op->last)
		return 0;
	inlay_memdomain_rdma_end(r, op->failed ? -EIO : 0);
	return 1;
}

/*
 * Ends all operations under way with -ECANCELED: for a QP that was reset or destroyed, when no completion will come any more. Returns how
 * many.
 */
INLAY_FN uint32_t inlay_memdomain_rdma_abort(struct inlay_memdomain_rdma *r)
{
	uint32_t n = inlay_memdomain_rdma_pending(r), i;

	for (i = 0; i < n; i++)
		inlay_memdomain_rdma_end(r, -ECANCELED);
	return n;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up
 */

/*
 * Creates a domain of type RDMA over a map; its user context is a struct inlay_memdomain_rdma_ctx with pd, as SPDK's RDMA domains have.
 *
 * r    of the caller, aligned as a cache line, until inlay_memdomain_rdma_destroy answers 0
 * map  of this process's memory; it outlives the domain, and keeps its devices meanwhile. It may be stopped, and started again
 * pd   one of its devices
 * id   NULL, or a name of less than INLAY_MEMDOMAIN_ID bytes
 *
 * Returns 0; -EINVAL; -ENODEV when the map has not the device; -ENOTSUP for an imported map; -ENOMEM for a longer id. Threads: as
 * inlay_memdomain_create.
 */
INLAY_COLD int inlay_memdomain_rdma_create(struct inlay_memdomain_rdma *r, struct inlay_memdomain_registry *reg, struct inlay_mmap *map,
					   struct ibv_pd *pd, const char *id)
{
	struct inlay_memdomain_rdma_ctx rdma;
	struct inlay_memdomain_ctx ctx;
	struct inlay_memdomain *d;
	uint32_t dev;

	if (!r || !reg || !map || !pd || (uintptr_t)r % INLAY_CACHE_LINE)
		return -EINVAL;
	if (inlay_mmap_imported(map))
		return -ENOTSUP;
	for (dev = 0; dev < map->num_devs && !inlay_memdomain_same_pd(map->devs[dev], pd); dev++)
		;
	if (dev == map->num_devs)
		return -ENODEV;
	if (id && __builtin_strlen(id) >= INLAY_MEMDOMAIN_ID)
		return -ENOMEM;
	__builtin_memset(r, 0, sizeof(*r));
	r->map = map;
	r->pd = pd;
	r->dev = dev;
	rdma.size = sizeof(rdma);
	rdma.ibv_pd = pd;
	ctx.size = sizeof(ctx);
	ctx.user_ctx = &rdma;
	ctx.user_ctx_size = sizeof(rdma);
	/* Whoever walks finds it at once: what its callbacks look at is there, and the callbacks come last. */
	if (inlay_memdomain_create(&d, reg, (void *)r, offsetof(struct inlay_memdomain_rdma, map), INLAY_MEMDOMAIN_RDMA, &ctx, id))
		return -EINVAL;
	return inlay_memdomain_set_translation(d, inlay_memdomain_rdma_translate_cb);
}

/*
 * Gives the domain a queue, and with it pull, push and transfer; of a UC QP push and transfer.
 *
 * sq   of a QP of the domain's protection domain
 * ops  of the caller, num_ops of them, a power of two: as many operations may be under way
 *
 * Returns 0; -EINVAL; -EBUSY while operations are under way on another; -ENOTSUP for a QP that does no RDMA. Other threads that use the
 * map's bufs: see Threads at the top.
 */
INLAY_COLD int inlay_memdomain_rdma_attach(struct inlay_memdomain_rdma *r, struct inlay_sq *sq, struct inlay_memdomain_rdma_op *ops,
					   uint32_t num_ops)
{
	if (!r || !sq || !ops || !inlay_is_pow2(num_ops))
		return -EINVAL;
	if (inlay_memdomain_rdma_pending(r))
		return -EBUSY;
	if (inlay_sq_type(sq) && inlay_sq_type(sq) != IBV_QPT_RC && inlay_sq_type(sq) != IBV_QPT_UC)
		return -ENOTSUP;
	r->sq = sq;
	r->ops = ops;
	r->mask = num_ops - 1;
	/* Control and remote address segments; a WQE of one WQEBB is legal on every QP. */
	r->sges = inlay_sq_max_ds(sq) < 4 ? 2 : inlay_sq_max_ds(sq) - 2;
	if (r->sges > INLAY_MEMDOMAIN_SGES)
		r->sges = INLAY_MEMDOMAIN_SGES;
	inlay_memdomain_set_pull(&r->domain, inlay_sq_type(sq) == IBV_QPT_UC ? NULL : inlay_memdomain_rdma_pull_cb);
	inlay_memdomain_set_push(&r->domain, inlay_memdomain_rdma_push_cb);
	return inlay_memdomain_set_transfer(&r->domain, inlay_memdomain_rdma_transfer_cb);
}

/* Takes the queue away. Returns 0; -EINVAL; -EBUSY while operations are under way. */
INLAY_COLD int inlay_memdomain_rdma_detach(struct inlay_memdomain_rdma *r)
{
	if (!r)
		return -EINVAL;
	if (inlay_memdomain_rdma_pending(r))
		return -EBUSY;
	inlay_memdomain_set_pull(&r->domain, NULL);
	inlay_memdomain_set_push(&r->domain, NULL);
	inlay_memdomain_set_transfer(&r->domain, NULL);
	r->sq = NULL;
	r->ops = NULL;
	return 0;
}

/*
 * Destroys the domain. Returns as inlay_memdomain_destroy, and -EBUSY, with nothing changed, while operations are under way.
 */
INLAY_COLD int inlay_memdomain_rdma_destroy(struct inlay_memdomain_rdma *r)
{
	if (!r)
		return 0;
	return inlay_memdomain_rdma_pending(r) ? -EBUSY : inlay_memdomain_destroy(&r->domain);
}

#endif
