/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma.c: fi_read, fi_write and their variants: the device's RDMA, one WQE for each piece of local memory.
 *
 *   inline      the bytes to write lie in the WQE               up to RMA_INLINE
 *   bounced     they are copied to a registered buffer           with FI_INJECT
 *   in place    the device reads or writes the caller's memory   with its descriptor, or a registration of ours
 *
 * The last WQE's completion ends the operation, since a connection keeps the order. Data for the peer's CQ
 * follow in a message, which arrives after the bytes. For FI_DELIVERY_COMPLETE the last written byte is read back:
 * the peer's memory answers, and what the peer's CPUs see is not older.
 */
#include "fabric.h"

#define RMA_INLINE (INLINE_BYTES - INLAY_DS) /* beside a remote address */
#define LARGEST_PIECE (1u << 30)

/* An operation, in any of its forms. */
struct rma {
	const struct iovec *iov;
	void **desc;              /* one of each piece, NULL or an mr; or NULL */
	size_t iovs;
	fi_addr_t addr;
	uint64_t remote, key, data;
	void *context;
	uint64_t flags;           /* FI_READ or FI_WRITE, FI_REMOTE_CQ_DATA, FI_INJECT, FI_COMPLETION, FI_DELIVERY_COMPLETE, SILENT */
};

/* How much of it is posted, and what its last completion means. */
struct work {
	const struct iovec *iov;
	size_t iovs;
	const uint32_t *lkey;     /* NULL: inline */
	struct slot last;
	struct buf *back;         /* where the last byte is read to; or NULL */
	uint32_t wqes;            /* still to be posted */
};

/* ---- Posting: there is room ---- */

/* The flags of the next WQE. */
static uint32_t next_flags(struct peer *p, struct work *w)
{
	struct slot *slot = peer_slot(p);

	*slot = w->last;
	if (!--w->wqes && (slot->kind != SLOT_CONTEXT || (int32_t)slot->flags > 0))
		return INLAY_SIGNALED;
	if (w->wqes)
		slot->kind = SLOT_NONE;
	return peer_signal(p, 4);
}

static void post_all(struct peer *p, const struct rma *r, struct work *w)
{
	struct { struct wire wire; uint64_t data; } __attribute__((packed)) written = {
		{0, WIRE_WRITTEN | FLAG_DATA, 0, 0}, r->data
	};
	const uint32_t flags = w->lkey ? 0 : INLAY_INLINE;
	const uint32_t opcode = r->flags & FI_READ ? MLX5_OPCODE_RDMA_READ : MLX5_OPCODE_RDMA_WRITE;
	uint64_t remote = r->remote;
	struct ibv_sge sge;
	size_t i, left;

	for (i = 0; i < w->iovs; i++)
		for (left = w->iov[i].iov_len; left; left -= sge.length, remote += sge.length) {
			sge.addr = (uintptr_t)w->iov[i].iov_base + w->iov[i].iov_len - left;
			sge.length = left < LARGEST_PIECE ? (uint32_t)left : LARGEST_PIECE;
			sge.lkey = w->lkey ? w->lkey[i] : 0;
			peer_post(p, opcode, remote, (uint32_t)r->key, &sge, flags | next_flags(p, w));
		}
	written.wire.tag = remote - r->remote;
	sge.addr = (uintptr_t)&written;
	sge.length = sizeof(written);
	if (r->flags & FI_REMOTE_CQ_DATA)
		peer_post(p, MLX5_OPCODE_SEND, 0, 0, &sge, INLAY_INLINE | next_flags(p, w));
	else if (remote == r->remote)
		peer_post(p, MLX5_OPCODE_RDMA_WRITE, 0, 0, NULL, next_flags(p, w)); /* no bytes at all */
	if (w->back) {
		sge.addr = (uintptr_t)w->back->data;
		sge.length = 1;
		sge.lkey = w->back->lkey;
		peer_post(p, MLX5_OPCODE_RDMA_READ, remote - 1, (uint32_t)r->key, &sge, next_flags(p, w));
	}
	inlay_sq_ring(&p->sq);
}

static int post_bounced(struct endpoint *ep, struct peer *p, const struct rma *r, struct work *w)
{
	struct buf *b = w->back ? w->back : buf_take(&ep->bounce);
	struct iovec all;
	uint8_t *to;
	size_t i;

	if (!b)
		return -FI_EAGAIN;
	for (to = b->data, i = 0; i < r->iovs; i++)
		to = (uint8_t *)mempcpy(to, r->iov[i].iov_base, r->iov[i].iov_len);
	all.iov_base = b->data;
	all.iov_len = (size_t)(to - b->data);
	b->context = r->context;
	b->flags = w->last.flags;
	w->iov = &all;
	w->iovs = 1;
	w->lkey = &b->lkey;
	w->last.kind = SLOT_BUF;
	w->last.what = b;
	post_all(p, r, w);
	return 0;
}

static int post_in_place(struct endpoint *ep, struct peer *p, const struct rma *r, struct work *w)
{
	const uint32_t access = r->flags & FI_READ ? IBV_ACCESS_LOCAL_WRITE : 0;
	struct op *op = NULL;
	uint32_t lkey[IOV_LIMIT];
	size_t i;
	int err;

	for (i = 0; i < r->iovs; i++) {
		if (r->desc && r->desc[i]) {
			lkey[i] = ((struct mr *)r->desc[i])->region.lkey;
		} else if (r->iov[i].iov_len) {
			if (!op)
				op = op_begin(ep, OP_RMA, p, r->context, w->last.flags);
			err = op ? region_get(ep->domain, NULL, r->iov[i].iov_base, r->iov[i].iov_len, access,
					      &op->region[op->regions]) : -FI_EAGAIN;
			if (err) {
				if (op)
					op_drop(ep, op);
				return err;
			}
			lkey[i] = op->region[op->regions++]->lkey;
		}
	}
	w->lkey = lkey;
	if (op) {
		w->last.kind = SLOT_OP;
		w->last.what = op;
		op->bounce = w->back;
	}
	post_all(p, r, w);
	return 0;
}

/* ---- Calls of the application ---- */

static ssize_t rma_any(struct endpoint *ep, const struct rma *r)
{
	const uint32_t done = done_flags(ep, FI_RMA | (r->flags & (FI_READ | FI_WRITE)), r->flags);
	struct work w = {r->iov, r->iovs, NULL, {r->context, SLOT_CONTEXT, done}, NULL, r->flags & FI_REMOTE_CQ_DATA ? 1 : 0};
	const bool back = (r->flags & (FI_WRITE | FI_DELIVERY_COMPLETE | SILENT)) == (FI_WRITE | FI_DELIVERY_COMPLETE);
	size_t len = 0, i;
	struct peer *p;
	int err;

	if (r->iovs > IOV_LIMIT)
		return -FI_EINVAL;
	for (i = 0; i < r->iovs; i++) {
		len += r->iov[i].iov_len;
		w.wqes += (uint32_t)((r->iov[i].iov_len + LARGEST_PIECE - 1) / LARGEST_PIECE);
	}
	if (len > (r->flags & FI_INJECT ? settings.eager : MAX_MESSAGE))
		return -FI_EMSGSIZE;
	w.wqes += w.wqes ? back && len : 1;
	p = peer_for(ep, r->addr, r->context, done, r->flags, &err);
	if (!p)
		return err;
	if (peer_begin(p) || inlay_sq_room(&p->sq) < 4 * w.wqes)
		return -FI_EAGAIN;
	if (back && len) {
		if (!(w.back = buf_take(&ep->bounce)))
			return -FI_EAGAIN;
		w.back->context = r->context;
		w.back->flags = done;
		w.last.kind = SLOT_BUF;
		w.last.what = w.back;
	}
	if (!(r->flags & FI_READ) && len <= RMA_INLINE)
		post_all(p, r, &w);
	else
		err = r->flags & FI_INJECT ? post_bounced(ep, p, r, &w) : post_in_place(ep, p, r, &w);
	if (err && w.back)
		buf_give(&ep->bounce, w.back);
	return err;
}

#define TARGET fi_addr_t addr, uint64_t remote, uint64_t key

static ssize_t rma(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t iovs, TARGET, uint64_t data,
		   void *context, uint64_t flags)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid);
	const uint64_t of_writes = flags & FI_READ ? FI_REMOTE_CQ_DATA | FI_INJECT : 0;
	struct rma r = {iov, desc, iovs, addr, remote, key, data, context, flags & ~of_writes};

	enter(ep);
	r.flags |= flags & OF_ENDPOINT ? ep->tx_flags & ~of_writes : 0;
	return leave_post(ep, rma_any(ep, &r));
}

static ssize_t rma_msg(struct fid_ep *fid, const struct fi_msg_rma *m, uint64_t flags)
{
	return m->rma_iov_count != 1 ? -FI_EINVAL :
	       rma(fid, m->msg_iov, m->desc, m->iov_count, m->addr, m->rma_iov->addr, m->rma_iov->key, m->data,
		   m->context, flags);
}

#define MSG struct fid_ep *fid, const struct fi_msg_rma *m, uint64_t flags
#define IOV struct fid_ep *fid, const struct iovec *iov, void **desc, size_t n
#define BUF struct fid_ep *fid, const void *buf, size_t len
#define READ (FI_READ | OF_ENDPOINT)
#define WRITE (FI_WRITE | OF_ENDPOINT)
#define INJECT (FI_WRITE | FI_INJECT | SILENT)

/* Of one buffer. */
static ssize_t rma_one(BUF, void *desc, TARGET, uint64_t data, void *context, uint64_t flags)
{
	struct iovec iov = {(void *)(uintptr_t)buf, len};

	return rma(fid, &iov, &desc, 1, addr, remote, key, data, context, flags);
}

CALL(rma_read, (struct fid_ep *fid, void *buf, size_t len, void *desc, TARGET, void *context),
     rma_one(fid, buf, len, desc, addr, remote, key, 0, context, READ))
CALL(rma_readv, (IOV, TARGET, void *context), rma(fid, iov, desc, n, addr, remote, key, 0, context, READ))
CALL(rma_readmsg, (MSG), rma_msg(fid, m, FI_READ | flags))
CALL(rma_write, (BUF, void *desc, TARGET, void *context), rma_one(fid, buf, len, desc, addr, remote, key, 0, context, WRITE))
CALL(rma_writev, (IOV, TARGET, void *context), rma(fid, iov, desc, n, addr, remote, key, 0, context, WRITE))
CALL(rma_writemsg, (MSG), rma_msg(fid, m, FI_WRITE | flags))
CALL(rma_inject, (BUF, TARGET), rma_one(fid, buf, len, NULL, addr, remote, key, 0, NULL, INJECT))
CALL(rma_writedata, (BUF, void *desc, uint64_t data, TARGET, void *context),
     rma_one(fid, buf, len, desc, addr, remote, key, data, context, WRITE | FI_REMOTE_CQ_DATA))
CALL(rma_injectdata, (BUF, uint64_t data, TARGET),
     rma_one(fid, buf, len, NULL, addr, remote, key, data, NULL, INJECT | FI_REMOTE_CQ_DATA))

struct fi_ops_rma rma_ops = {
	sizeof(struct fi_ops_rma), rma_read, rma_readv, rma_readmsg, rma_write, rma_writev, rma_writemsg, rma_inject,
	rma_writedata, rma_injectdata,
};
