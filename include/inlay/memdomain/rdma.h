/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/memdomain/rdma.h: a memory domain over a memory map. It translates addresses to keys, and
 * copies between this process and a peer by RDMA reads and writes.
 *
 *   inlay_memdomain_rdma_create(&r, &reg, &map, pd, "mlx5_0");     map: this process's memory
 *   inlay_memdomain_rdma_attach(&r, &sq, ops, 64);                 64 operations at a time
 *
 *   copy.src_ctx = &peer;                                          the peer's keys
 *   inlay_memdomain_pull(&r.domain, &copy);                        RDMA reads, rung
 *   while ((cqe = inlay_cq_peek(&cq))) {
 *           inlay_sq_release(&sq, cqe);                            first: done may post
 *           inlay_memdomain_rdma_complete(&r, cqe);                calls done
 *           inlay_cq_advance(&cq, 1);
 *   }
 *
 * One side of a copy is the peer's memory, and that side's context a struct inlay_memdomain_peer.
 * The other side lies in the map. Each piece of the peer's is a WQE, or more if it is longer than
 * 2^30 bytes or needs too many SGEs. A transfer writes from this process's memory to the peer's;
 * or, with a translation to this domain, from its pieces with its lkey. There is no memzero.
 *
 * An operation that fails has posted nothing. The last WQE of an operation is signaled: its
 * completion calls done, with -EIO if any of its WQEs failed or its data is in the CQE (cqe.h). The
 * device no longer uses the memory then. During an operation, the map cannot be stopped.
 *
 * Threads: any may translate; one owner at a time for all else. Domains may share a map.
 */
#ifndef INLAY_MEMDOMAIN_RDMA_H
#define INLAY_MEMDOMAIN_RDMA_H /* a trial: names may change */

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/cqe.h>
#include <inlay/mmap/lookup.h>
#include <inlay/mmap/map.h>
#include <inlay/queue/post.h>
#include <inlay/queue/sq.h>
#include <inlay/memdomain/domain.h>

#define INLAY_MEMDOMAIN_SGES 30u          /* in one WQE: devices take no more in a read */
#define INLAY_MEMDOMAIN_MESSAGE (1u << 30) /* bytes of the longest message */
#define INLAY_MEMDOMAIN_ID 48u            /* bytes of the longest id, with its NUL */
#define INLAY_MEMDOMAIN_NO_RING 1u        /* a peer's flag: the caller rings */

/* The context of the peer's side of a copy. */
struct inlay_memdomain_peer {
	size_t size;                      /* bytes of this struct */
	const uint32_t *rkeys;            /* of the peer's pieces */
	uint32_t num_rkeys;               /* one for each piece; 1: one for all; 0: look them up in map */
	uint32_t flags;                   /* INLAY_MEMDOMAIN_NO_RING or 0 */
	const struct inlay_mmap *map;     /* imported from the peer; its permissions are checked */
};

/* An operation in progress. */
struct inlay_memdomain_rdma_op {
	inlay_memdomain_done done;
	void *arg;
	uint16_t first, last;             /* WQE indices */
	uint32_t failed;
};

struct inlay_memdomain_rdma {
	struct inlay_memdomain domain;
	struct inlay_memdomain_rdma_ctx ctx; /* with id, the copies that follow a domain */
	char id[INLAY_MEMDOMAIN_ID];
	struct inlay_mmap *map;
	struct ibv_pd *pd;                /* NULL: the map's first device */
	struct inlay_sq *sq;              /* NULL: none attached */
	struct inlay_memdomain_rdma_op *ops;
	uint32_t mask;                    /* number of ops - 1 */
	uint32_t begun, ended;            /* operations so far */
	uint32_t sges;                    /* in one WQE */
} __attribute__((aligned(INLAY_CACHE_LINE)));

INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_rdma, ctx) == sizeof(struct inlay_memdomain), "copies follow");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_rdma, map) == 3 * INLAY_CACHE_LINE, "an operation uses this line");

/* ---- Data path ---- */

/* The PD of a translation: of the QP in dst_ctx, else of dst, else of the domain. */
INLAY_FN const struct ibv_pd *inlay_memdomain_rdma_pd_(const struct inlay_memdomain_rdma *r, struct inlay_memdomain *dst,
						       const struct inlay_memdomain_translation_ctx *dst_ctx)
{
	const struct inlay_memdomain_rdma_ctx *ctx;
	size_t size;

	ctx = (const struct inlay_memdomain_rdma_ctx *)inlay_memdomain_user_context(dst, &size);
	if (dst_ctx && dst_ctx->size >= sizeof(*dst_ctx) && dst_ctx->ibv_qp)
		return ((const struct ibv_qp *)dst_ctx->ibv_qp)->pd;
	if (size >= sizeof(*ctx) && ctx->size >= sizeof(*ctx) && ctx->ibv_pd)
		return (const struct ibv_pd *)ctx->ibv_pd;
	return (const struct ibv_pd *)r->ctx.ibv_pd;
}

/*
 * Translates to a domain of type RDMA, with keys; host memory also to this process's. Returns 0;
 * -ENOENT when no one range of the map holds the bytes, or the map lacks the device; else -ENOTSUP.
 */
INLAY_FN int inlay_memdomain_rdma_translate_(struct inlay_memdomain *src, void *src_ctx, struct inlay_memdomain *dst,
					     struct inlay_memdomain_translation_ctx *dst_ctx, void *addr, size_t len,
					     struct inlay_memdomain_result *result)
{
	const struct inlay_memdomain_rdma *r = (const struct inlay_memdomain_rdma *)(const void *)src;
	const struct inlay_range *range = inlay_mmap_find(r->map, addr, len);
	struct inlay_memdomain_result found = {sizeof(found), 1, {addr, len}, NULL, dst, 0, 0};
	uint32_t host = __atomic_load_n(&dst->host, __ATOMIC_RELAXED);
	struct inlay_keys keys = {0, 0};

	(void)src_ctx;
	if (INLAY_UNLIKELY(!range))
		return -ENOENT;
	if (dst->type == INLAY_MEMDOMAIN_RDMA) {
		if (INLAY_UNLIKELY(inlay_mmap_keys(r->map, range->id, inlay_memdomain_rdma_pd_(r, dst, dst_ctx), &keys)))
			return -ENOENT;
	} else if (!host || r->map->sources[range->id].kind != INLAY_SOURCE_HOST) {
		return -ENOTSUP;
	}
	found.lkey = keys.lkey;
	found.rkey = keys.rkey;
	*result = found;
	return 0;
}

/* The keys at addr. *len shrinks to the rest of its range. Returns 0, -ENOENT or -EPERM. */
INLAY_FN int inlay_memdomain_keys_at_(const struct inlay_mmap *map, const struct ibv_pd *pd, uint64_t addr,
				      uint32_t access, uint64_t *len, struct inlay_keys *keys)
{
	const struct inlay_range *range = inlay_mmap_find(map, (const void *)(uintptr_t)addr, 1);

	if (INLAY_UNLIKELY(!range))
		return -ENOENT;
	if (INLAY_UNLIKELY(access & ~range->access))
		return -EPERM;
	if (range->len - (addr - range->start) < *len)
		*len = range->len - (addr - range->start);
	keys->lkey = range->lkey;
	keys->rkey = range->rkey;
	return INLAY_UNLIKELY(pd) ? inlay_mmap_keys(map, range->id, pd, keys) : 0;
}

/* Makes SGEs of up to *want bytes, which it updates. Returns how many. key: NULL: the map's. */
INLAY_FN int inlay_memdomain_rdma_gather_(struct inlay_memdomain_rdma *r, struct inlay_memdomain_place_ *from,
					  uint32_t access, const uint32_t *key, struct ibv_sge *sge, uint64_t *want)
{
	struct inlay_keys keys = {key ? *key : 0, 0};
	uint64_t left = *want, len;
	int n, err = 0;

	for (n = 0; left && (uint32_t)n < r->sges; n++, left -= len) {
		len = left;
		sge[n].addr = inlay_memdomain_here_(from, &len);
		if (!key)
			err = inlay_memdomain_keys_at_(r->map, r->pd, sge[n].addr, access, &len, &keys);
		if (INLAY_UNLIKELY(err))
			return err;
		sge[n].lkey = keys.lkey;
		sge[n].length = (uint32_t)len;
		from->at += len;
	}
	*want -= left;
	return n;
}

/*
 * Returns 0; -EINVAL for a peer without keys, a translation to another domain or a destination that
 * is too short; -ENOENT for memory outside its map; -EPERM where the map does not permit it; -EAGAIN
 * when the queue is full or all ops are in use; -E2BIG when even the empty queue is too short.
 */
INLAY_FN int inlay_memdomain_rdma_copy_(struct inlay_memdomain *d, const struct inlay_memdomain_copy *copy,
					uint8_t opcode)
{
	struct inlay_memdomain_rdma *r = (struct inlay_memdomain_rdma *)(void *)d;
	const int write = opcode == MLX5_OPCODE_RDMA_WRITE;
	const uint32_t near = write ? 0 : INLAY_LOCAL_READ_WRITE, far = write ? INLAY_RDMA_WRITE : INLAY_RDMA_READ;
	const uint32_t *key = copy->translation ? &copy->translation->lkey : NULL;
	const struct inlay_memdomain_peer *peer;
	struct inlay_memdomain_place_ theirs, ours;
	struct ibv_sge sge[INLAY_MEMDOMAIN_SGES];
	struct inlay_memdomain_rdma_op *op;
	const struct iovec *source, *pieces;
	struct inlay_sq *sq = r->sq;
	uint32_t first = inlay_sq_index(sq), last = first;
	struct inlay_keys keys = {0, 0};
	uint64_t raddr, len;
	size_t total;
	int err = 0;

	peer = (const struct inlay_memdomain_peer *)(write ? copy->dst_ctx : copy->src_ctx);
	if (INLAY_UNLIKELY(!peer || peer->size < sizeof(*peer) || (peer->num_rkeys ? !peer->rkeys : !peer->map)) ||
	    INLAY_UNLIKELY(peer->num_rkeys > 1 && peer->num_rkeys != (write ? copy->dst_iovcnt : copy->src_iovcnt)) ||
	    INLAY_UNLIKELY(inlay_memdomain_source_(d, copy, 0, &source, &total)))
		return -EINVAL;
	if (INLAY_UNLIKELY(!total)) {
		if (copy->done)
			copy->done(copy->arg, 0);
		return 0;
	}
	if (INLAY_UNLIKELY(r->begun - r->ended > r->mask))
		return -EAGAIN;
	theirs.iov = pieces = write ? copy->dst_iov : source;
	ours.iov = write ? source : copy->dst_iov;
	for (theirs.at = ours.at = 0; total; theirs.at += len, total -= len) {
		len = total < INLAY_MEMDOMAIN_MESSAGE ? total : INLAY_MEMDOMAIN_MESSAGE;
		raddr = inlay_memdomain_here_(&theirs, &len);
		if (INLAY_LIKELY(peer->num_rkeys))
			keys.rkey = peer->rkeys[peer->num_rkeys == 1 ? 0 : theirs.iov - pieces];
		else
			err = inlay_memdomain_keys_at_(peer->map, NULL, raddr, far, &len, &keys);
		if (INLAY_LIKELY(err >= 0))
			err = inlay_memdomain_rdma_gather_(r, &ours, near, key, sge, &len);
		if (INLAY_UNLIKELY(err < 0))
			goto undo;
		last = inlay_sq_index(sq);
		err = write ? inlay_post_write(sq, raddr, keys.rkey, sge, (uint32_t)err, total > len ? 0 : INLAY_SIGNALED) :
			      inlay_post_read(sq, raddr, keys.rkey, sge, (uint32_t)err, total > len ? 0 : INLAY_SIGNALED);
		if (INLAY_UNLIKELY(err))
			goto undo;
	}
	op = &r->ops[r->begun++ & r->mask];
	op->done = copy->done;
	op->arg = copy->arg;
	op->first = (uint16_t)first;
	op->last = (uint16_t)last;
	op->failed = 0;
	inlay_mmap_hold(r->map);
	if (INLAY_LIKELY(!(peer->flags & INLAY_MEMDOMAIN_NO_RING)))
		inlay_sq_ring(sq);
	return 0;
undo:
	inlay_sq_undo(sq, first);
	return err == -EAGAIN && !inlay_sq_pending(sq) ? -E2BIG : err;
}

INLAY_FN int inlay_memdomain_rdma_pull_(struct inlay_memdomain *src, const struct inlay_memdomain_copy *copy)
{
	return inlay_memdomain_rdma_copy_(src, copy, MLX5_OPCODE_RDMA_READ);
}

/* Push and transfer. -ENOTSUP for an untranslated source in another domain. */
INLAY_FN int inlay_memdomain_rdma_push_(struct inlay_memdomain *dst, const struct inlay_memdomain_copy *copy)
{
	if (!copy->translation && copy->src && !__atomic_load_n(&copy->src->host, __ATOMIC_RELAXED))
		return -ENOTSUP;
	return inlay_memdomain_rdma_copy_(dst, copy, MLX5_OPCODE_RDMA_WRITE);
}

/* Ends the oldest operation. done may begin another one, so its slot is free by then. */
INLAY_FN void inlay_memdomain_rdma_end_(struct inlay_memdomain_rdma *r, int rc)
{
	const struct inlay_memdomain_rdma_op op = r->ops[r->ended++ & r->mask];

	inlay_mmap_drop(r->map);
	if (op.done)
		op.done(op.arg, rc);
}

/*
 * Handles any completion from the queue's CQ, before inlay_cq_advance. Returns 1: an operation
 * ended, and done was called; 0: an error within an operation, whose last completion is still to
 * come; -ENOENT: not of this domain's oldest operation; -EPROTO: impossible (a faulty device).
 */
INLAY_FN int inlay_memdomain_rdma_complete(struct inlay_memdomain_rdma *r, const struct mlx5_cqe64 *cqe)
{
	uint16_t index = inlay_cqe_wqe_counter(cqe);
	struct inlay_memdomain_rdma_op *op;

	if (!r->sq || !inlay_cqe_is_send(cqe) || inlay_cqe_qpn(cqe) != inlay_sq_qpn(r->sq) || r->begun == r->ended)
		return -ENOENT;
	op = &r->ops[r->ended & r->mask];
	if (INLAY_UNLIKELY((uint16_t)(index - op->first) > (uint16_t)(op->last - op->first)))
		return -ENOENT;
	if (INLAY_UNLIKELY(inlay_cqe_is_error(cqe)))
		op->failed = 1;
	else if (INLAY_UNLIKELY(index != op->last))
		return -EPROTO;
	else if (INLAY_UNLIKELY(cqe->op_own & (INLAY_CQE_SCATTER_32 | INLAY_CQE_SCATTER_64)))
		op->failed = 1;
	if (index != op->last)
		return 0;
	inlay_memdomain_rdma_end_(r, op->failed ? -EIO : 0);
	return 1;
}

/* Ends all operations with -ECANCELED, after their QP was reset or destroyed. Returns how many. */
INLAY_FN uint32_t inlay_memdomain_rdma_abort(struct inlay_memdomain_rdma *r)
{
	uint32_t n = r->begun - r->ended, i;

	for (i = 0; i < n; i++)
		inlay_memdomain_rdma_end_(r, -ECANCELED);
	return n;
}

/* ---- Set-up ---- */

/*
 * Creates a domain of type RDMA over a map. Its user context is a struct inlay_memdomain_rdma_ctx.
 *
 * r    aligned to a cache line; in use until inlay_memdomain_rdma_destroy returns 0
 * map  of this process's memory. It outlives the domain and keeps its devices
 * pd   one of the map's devices
 * id   NULL, or a name of less than INLAY_MEMDOMAIN_ID bytes
 *
 * Returns 0; -EINVAL for a NULL or wrong alignment; -ENOENT when the map lacks the device; -ENOTSUP
 * for an imported map; -E2BIG for a longer id; -EPROTO for another version's registry.
 */
INLAY_COLD int inlay_memdomain_rdma_create(struct inlay_memdomain_rdma *r, struct inlay_memdomain_registry *reg,
					   struct inlay_mmap *map, struct ibv_pd *pd, const char *id)
{
	struct inlay_memdomain_rdma_ctx rdma = {sizeof(rdma), pd};
	struct inlay_memdomain_ctx ctx = {sizeof(ctx), &rdma, sizeof(rdma)};
	struct inlay_memdomain *d;
	int dev, err;

	if (!r || !reg || !map || !pd || (uintptr_t)r % INLAY_CACHE_LINE)
		return -EINVAL;
	if (map->imported)
		return -ENOTSUP;
	dev = inlay_mmap_dev_(map, pd);
	if (dev < 0)
		return dev;
	if (id && __builtin_strlen(id) >= INLAY_MEMDOMAIN_ID)
		return -E2BIG;
	__builtin_memset(r, 0, sizeof(*r));
	r->map = map;
	r->pd = dev ? pd : NULL;
	/* Walks find it at once: what callbacks read is set before them. */
	err = inlay_memdomain_create(reg, (void *)r, offsetof(struct inlay_memdomain_rdma, map), INLAY_MEMDOMAIN_RDMA,
				     &ctx, id, &d);
	return err ? err : inlay_memdomain_set_translation(d, inlay_memdomain_rdma_translate_);
}

/*
 * Attaches a queue, and sets pull (not UC), push and transfer; with sq NULL, detaches and unsets.
 *
 * sq   of a QP in the domain's PD
 * ops  the caller's memory for num_ops operations in progress, a power of two
 *
 * Returns 0; -EINVAL for an argument out of range; -EBUSY during an operation; -ENOTSUP for a QP
 * type without RDMA.
 */
INLAY_COLD int inlay_memdomain_rdma_attach(struct inlay_memdomain_rdma *r, struct inlay_sq *sq,
					   struct inlay_memdomain_rdma_op *ops, uint32_t num_ops)
{
	uint32_t type = sq ? inlay_sq_type(sq) : 0, ds = sq ? inlay_sq_max_ds(sq) : 0;

	if (!r || (sq && (!ops || !inlay_is_pow2(num_ops))))
		return -EINVAL;
	if (r->begun != r->ended)
		return -EBUSY;
	if (type && type != IBV_QPT_RC && type != IBV_QPT_UC)
		return -ENOTSUP;
	r->sq = sq;
	r->ops = ops;
	r->mask = num_ops - 1;
	/* Without the control and remote address segments. A WQE has at least one WQEBB. */
	r->sges = ds < 4 ? 2 : ds - 2 < INLAY_MEMDOMAIN_SGES ? ds - 2 : INLAY_MEMDOMAIN_SGES;
	inlay_memdomain_set_pull(&r->domain, sq && type != IBV_QPT_UC ? inlay_memdomain_rdma_pull_ : NULL);
	inlay_memdomain_set_push(&r->domain, sq ? inlay_memdomain_rdma_push_ : NULL);
	return inlay_memdomain_set_transfer(&r->domain, sq ? inlay_memdomain_rdma_push_ : NULL);
}

/* As inlay_memdomain_destroy; -EBUSY, with nothing changed, also during an operation. */
INLAY_COLD int inlay_memdomain_rdma_destroy(struct inlay_memdomain_rdma *r)
{
	if (!r)
		return 0;
	return r->begun != r->ended ? -EBUSY : inlay_memdomain_destroy(&r->domain);
}

#endif
