/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma.c: fi_read, fi_write and their kin: the device's RDMA, one WQE for each piece of local memory.
 *
 *   inline      the bytes to write lie in the WQE               up to RMA_INLINE
 *   bounced     they are copied to a registered buffer           with FI_INJECT
 *   in place    the device reads or writes the caller's memory   with its descriptor, or a registration of ours
 *
 * The last WQE says when it is done: a connection keeps the order. Data for the peer's CQ follow as a
 * message, which comes after the bytes. What was written has arrived when the peer's device says so: that is
 * all that FI_DELIVERY_COMPLETE asks for.
 */
#include "fabric.h"

#define RMA_INLINE (INLINE_BYTES - INLAY_DS) /* beside a remote address */
#define LARGEST_PIECE (1u << 30)
#define MAX_RMA (16ull * LARGEST_PIECE)

/* An operation, in any of its forms. */
struct rma {
	const struct iovec *iov;
	void **desc;              /* NULL, or one of each piece, NULL or an mr */
	size_t iovs;
	fi_addr_t addr;
	uint64_t remote, key, data;
	void *context;
	uint64_t flags;           /* FI_READ or FI_WRITE, FI_REMOTE_CQ_DATA, FI_INJECT, FI_COMPLETION, SILENT */
};

/* ---- Posting: there is room ---- */

static void post_piece(struct peer *p, const struct rma *r, uint64_t remote, const struct ibv_sge *sge, uint32_t flags)
{
	if (r->flags & FI_READ)
		inlay_post_read(&p->sq, remote, (uint32_t)r->key, sge, 1, flags);
	else
		inlay_post_write(&p->sq, remote, (uint32_t)r->key, sge, 1, flags);
}

/* The message that follows a write. */
static void post_data(struct peer *p, const struct rma *r, size_t len, uint32_t flags)
{
	uint8_t message[sizeof(struct wire) + 8];
	struct wire *wire = (struct wire *)(void *)message;

	wire->kind = WIRE_WRITTEN;
	wire->flags = FLAG_DATA;
	wire->segments = 0;
	wire->tag = len;
	inlay_put64(message + sizeof(*wire), r->data);
	inlay_post_send_inline(&p->sq, message, sizeof(message), flags);
}

/* WQEs for a piece of this length. */
static size_t wqes(size_t len)
{
	return len ? (len + LARGEST_PIECE - 1) / LARGEST_PIECE : 1;
}

/* The flags of a WQE; the last one's slot says what its completion means. */
static uint32_t post_flags(struct peer *p, bool last, uint32_t kind, void *what, uint32_t done)
{
	struct slot *slot = peer_slot(p);

	slot->kind = last ? kind : SLOT_NONE;
	slot->what = what;
	slot->flags = done;
	return last && (kind != SLOT_CONTEXT || (int32_t)done > 0) ? INLAY_SIGNALED : peer_signal(p, 4);
}

static void post_all(struct peer *p, const struct rma *r, const struct iovec *iov, const uint32_t *lkey, size_t n,
		     uint32_t flags, uint32_t kind, void *what, uint32_t done)
{
	const bool data = (r->flags & FI_REMOTE_CQ_DATA) != 0;
	uint64_t remote = r->remote;
	struct ibv_sge sge;
	size_t i, k, last, left;

	for (i = 0; i < n; i++) {
		left = iov[i].iov_len;
		last = wqes(left) - 1;
		sge.addr = (uintptr_t)iov[i].iov_base;
		sge.lkey = lkey ? lkey[i] : 0;
		for (k = 0; k <= last; k++) {
			sge.length = left < LARGEST_PIECE ? (uint32_t)left : LARGEST_PIECE;
			post_piece(p, r, remote, &sge, flags | post_flags(p, k == last && i + 1 == n && !data, kind, what, done));
			left -= sge.length;
			sge.addr += sge.length;
			remote += sge.length;
		}
	}
	if (data)
		post_data(p, r, (size_t)(remote - r->remote), post_flags(p, true, kind, what, done));
	inlay_sq_ring(&p->sq);
}

/* ---- What is posted ---- */

static int rma_bounced(struct endpoint *ep, struct peer *p, const struct rma *r, uint32_t done)
{
	struct buf *b = buf_take(&ep->bounce);
	struct iovec all;
	size_t i;

	if (!b)
		return -FI_EAGAIN;
	all.iov_base = b->data;
	all.iov_len = 0;
	for (i = 0; i < r->iovs; i++) {
		memcpy(b->data + all.iov_len, r->iov[i].iov_base, r->iov[i].iov_len);
		all.iov_len += r->iov[i].iov_len;
	}
	b->context = r->context;
	b->flags = done;
	post_all(p, r, &all, &b->lkey, 1, 0, SLOT_BUF, b, done);
	return 0;
}

static void let_go(struct endpoint *ep, struct op *op)
{
	op_let_go(ep, op);
	op_give(ep, op);
}

void rma_end(struct endpoint *ep, struct op *op, int err)
{
	if (op->kind == OP_NATIVE) {
		atomic_step(ep, op, err);
		return;
	}
	tx_done(ep, op->context, (uint32_t)op->flags, err, op->peer->syndrome);
	let_go(ep, op);
}

static int rma_in_place(struct endpoint *ep, struct peer *p, const struct rma *r, uint32_t done)
{
	const uint32_t access = r->flags & FI_READ ? IBV_ACCESS_LOCAL_WRITE : 0;
	struct op *op = NULL;
	uint32_t lkey[IOV_LIMIT];
	size_t i;
	int err;

	for (i = 0; i < r->iovs; i++) {
		lkey[i] = 0;
		if (r->desc && r->desc[i])
			lkey[i] = ((struct mr *)r->desc[i])->verbs->lkey;
		else if (r->iov[i].iov_len) {
			if (!op) {
				op = op_take(ep, OP_RMA);
				if (!op)
					return -FI_EAGAIN;
				op->regions = 0;
				op->peer = p;
				op->context = r->context;
				op->flags = done;
			}
			err = region_get(ep->domain, r->iov[i].iov_base, r->iov[i].iov_len, access, &op->region[op->regions]);
			if (err) {
				let_go(ep, op);
				return err;
			}
			lkey[i] = op->region[op->regions++]->lkey;
		}
	}
	post_all(p, r, r->iov, lkey, r->iovs, 0, op ? SLOT_RMA : SLOT_CONTEXT, op ? (void *)op : r->context, done);
	return 0;
}

static ssize_t rma_any(struct endpoint *ep, const struct rma *r)
{
	static const struct iovec nothing;
	const uint32_t done = done_flags(ep, FI_RMA | (r->flags & (FI_READ | FI_WRITE)), r->flags);
	size_t len = 0, n = 0, i;
	struct rma none = *r;
	struct peer *p;
	int err;

	if (r->iovs > IOV_LIMIT)
		return -FI_EINVAL;
	for (i = 0; i < r->iovs; i++) {
		len += r->iov[i].iov_len;
		n += 4 * wqes(r->iov[i].iov_len);
	}
	n += r->flags & FI_REMOTE_CQ_DATA ? 4 : 0;
	if (len > MAX_RMA || (r->flags & FI_INJECT && len > settings.eager))
		return -FI_EMSGSIZE;
	if (!r->iovs) {
		none.iov = &nothing;
		none.iovs = 1;
		r = &none;
	}
	p = peer_of(ep, r->addr);
	if (!p)
		return -FI_EADDRNOTAVAIL;
	err = peer_need(ep, p);
	if (err && err != -FI_EAGAIN && !(r->flags & SILENT)) {
		tx_done(ep, r->context, done, -err, p->syndrome);
		return 0;
	}
	if (err)
		return err;
	if (inlay_sq_room(&p->sq) < n)
		return -FI_EAGAIN;
	if (r->flags & FI_WRITE && len <= RMA_INLINE)
		post_all(p, r, r->iov, NULL, r->iovs, INLAY_INLINE, SLOT_CONTEXT, r->context, done);
	else if (r->flags & FI_INJECT)
		return rma_bounced(ep, p, r, done);
	else
		return rma_in_place(ep, p, r, done);
	return 0;
}

/* ---- At the peer ---- */

int rma_arrived(struct endpoint *ep, struct peer *p, const struct message *m)
{
	if (cq_room(ep->rx_cq, 1))
		return -FI_EAGAIN;
	cq_add(ep->rx_cq, NULL, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, m->tag, NULL, m->data, 0, p->addr);
	return 0;
}

/* ---- What the application calls ---- */

static ssize_t rma(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t iovs, fi_addr_t addr, uint64_t remote,
		   uint64_t key, uint64_t data, void *context, uint64_t flags)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid);
	struct rma r = {iov, desc, iovs, addr, remote, key, data, context, flags};

	enter(ep);
	return leave(ep, rma_any(ep, &r));
}

/* With one piece of memory, and the endpoint's flags. */
static ssize_t rma_one(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t addr, uint64_t remote,
		       uint64_t key, uint64_t data, void *context, uint64_t flags)
{
	struct iovec iov;

	iov.iov_base = (void *)(uintptr_t)buf;
	iov.iov_len = len;
	return rma(fid, &iov, &desc, 1, addr, remote, key, data, context,
		   flags | container_of(fid, struct endpoint, fid)->tx_flags);
}

static ssize_t rma_read(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t addr, uint64_t remote,
			uint64_t key, void *context)
{
	return rma_one(fid, buf, len, desc, addr, remote, key, 0, context, FI_READ);
}

static ssize_t rma_readv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t addr,
			 uint64_t remote, uint64_t key, void *context)
{
	return rma(fid, iov, desc, count, addr, remote, key, 0, context,
		   FI_READ | container_of(fid, struct endpoint, fid)->tx_flags);
}

static ssize_t rma_msg(struct fid_ep *fid, const struct fi_msg_rma *msg, uint64_t flags)
{
	return msg->rma_iov_count != 1 ? -FI_EINVAL :
	       rma(fid, msg->msg_iov, msg->desc, msg->iov_count, msg->addr, msg->rma_iov->addr, msg->rma_iov->key,
		   msg->data, msg->context, flags);
}

static ssize_t rma_readmsg(struct fid_ep *fid, const struct fi_msg_rma *msg, uint64_t flags)
{
	return rma_msg(fid, msg, (flags & ~(uint64_t)(FI_REMOTE_CQ_DATA | FI_INJECT)) | FI_READ);
}

static ssize_t rma_write(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t addr, uint64_t remote,
			 uint64_t key, void *context)
{
	return rma_one(fid, buf, len, desc, addr, remote, key, 0, context, FI_WRITE);
}

static ssize_t rma_writev(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t addr,
			  uint64_t remote, uint64_t key, void *context)
{
	return rma(fid, iov, desc, count, addr, remote, key, 0, context,
		   FI_WRITE | container_of(fid, struct endpoint, fid)->tx_flags);
}

static ssize_t rma_writemsg(struct fid_ep *fid, const struct fi_msg_rma *msg, uint64_t flags)
{
	return rma_msg(fid, msg, flags | FI_WRITE);
}

static ssize_t rma_writedata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t addr,
			     uint64_t remote, uint64_t key, void *context)
{
	return rma_one(fid, buf, len, desc, addr, remote, key, data, context, FI_WRITE | FI_REMOTE_CQ_DATA);
}

static ssize_t inject(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t addr, uint64_t remote,
		      uint64_t key, uint64_t flags)
{
	struct iovec iov;

	iov.iov_base = (void *)(uintptr_t)buf;
	iov.iov_len = len;
	return rma(fid, &iov, NULL, 1, addr, remote, key, data, NULL, flags | FI_WRITE | FI_INJECT | SILENT);
}

static ssize_t rma_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t addr, uint64_t remote, uint64_t key)
{
	return inject(fid, buf, len, 0, addr, remote, key, 0);
}

static ssize_t rma_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t addr,
			      uint64_t remote, uint64_t key)
{
	return inject(fid, buf, len, data, addr, remote, key, FI_REMOTE_CQ_DATA);
}

struct fi_ops_rma rma_ops = {
	sizeof(struct fi_ops_rma), rma_read, rma_readv, rma_readmsg, rma_write, rma_writev, rma_writemsg, rma_inject,
	rma_writedata, rma_injectdata,
};
