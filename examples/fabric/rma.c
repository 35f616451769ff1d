/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma.c: fi_read, fi_write and their variants: the device's RDMA.
 *
 * Over one device a write of up to RMA_INLINE bytes is inline in its WQE, and a read or write of memory that the
 * application has registered is one WQE. All others are operations, whose pieces arrive.c posts from the caller's
 * memory, or from a bounce buffer with FI_INJECT and if they are short. Data for the peer's CQ follow in a message.
 * For FI_DELIVERY_COMPLETE the last byte is read back: when the answer is here, the peer's CPUs see the bytes.
 */
#include "fabric.h"

#define RMA_INLINE (INLINE_BYTES - INLAY_DS) /* beside a remote address */

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

/* Data for the peer's CQ */
struct written {
	struct wire wire;
	uint64_t data;
} __attribute__((packed));

/* ---- In one WQE, over one device: inline, or in memory that the application has registered. There is room ---- */

static bool is_short(const struct rma *r, size_t len)
{
	return len <= RMA_INLINE && !(len && r->flags & FI_READ);
}

static bool in_one(const struct rma *r, size_t len)
{
	const struct mr *mr = r->iovs == 1 && r->desc ? (const struct mr *)r->desc[0] : NULL;

	return is_short(r, len) || (mr && len <= LARGEST_PIECE && !(r->flags & FI_INJECT) &&
				    (r->flags & FI_WRITE || mr->region.access & IBV_ACCESS_LOCAL_WRITE));
}

/* Fills the next WQE's slot and returns its flags. The last WQE's completion ends the operation. */
static uint32_t mark(struct peer *p, const struct rma *r, uint32_t done, bool last)
{
	*peer_slot(p) = (struct slot){r->context, last ? SLOT_CONTEXT : SLOT_NONE, done};
	return (last ? INLAY_RING : 0) | (last && (int32_t)done > 0 ? INLAY_SIGNALED : peer_signal(p, 4));
}

static void post_one(struct peer *p, const struct rma *r, size_t len, uint32_t done)
{
	const bool data = (r->flags & FI_REMOTE_CQ_DATA) != 0;
	const uint32_t key = (uint32_t)r->key, flags = mark(p, r, done, !data);
	const uint32_t lkey = is_short(r, len) ? 0 : ((const struct mr *)r->desc[0])->region.lkey;
	const struct written w = {{0, WIRE_WRITTEN | FLAG_DATA, 0, len}, r->data};
	struct ibv_sge sge[IOV_LIMIT], message = {(uintptr_t)&w, sizeof(w), 0};
	uint32_t i;

	for (i = 0; i < r->iovs; i++)
		sge[i] = (struct ibv_sge){(uintptr_t)r->iov[i].iov_base, (uint32_t)r->iov[i].iov_len, lkey};
	if (is_short(r, len) && i == 1 && !settings.dc)
		(void)!inlay_post_write_inline(&p->sq, r->remote, key, r->iov->iov_base, (uint32_t)len, flags);
	else if (is_short(r, len))
		peer_post(p, MLX5_OPCODE_RDMA_WRITE, r->remote, key, sge, i, flags | INLAY_INLINE);
	else if (r->flags & FI_READ)
		peer_post(p, MLX5_OPCODE_RDMA_READ, r->remote, key, sge, 1, flags);
	else
		peer_post(p, MLX5_OPCODE_RDMA_WRITE, r->remote, key, sge, 1, flags);
	if (data)
		peer_post(p, MLX5_OPCODE_SEND, 0, 0, &message, 1, mark(p, r, done, true) | INLAY_INLINE);
}

/* ---- Bounced or in place ---- */

/* Begins one of len bytes. Over two devices it may have to wait for both to know that one has died. */
static int begin(struct endpoint *ep, struct peer *p, const struct rma *r, size_t len, bool back, uint32_t done)
{
	const bool bounced = r->flags & FI_INJECT || (settings.rails > 1 && is_short(r, len));
	struct op *op = (bounced || back ? op_with_buf : op_begin)(ep, OP_RMA, p, r->context, done);
	size_t at = 0;

	if (!op)
		return -FI_EAGAIN;
	op->attempt = p->attempt;
	op->writes = !(r->flags & FI_READ);
	op->told = (r->flags & FI_REMOTE_CQ_DATA) != 0;
	op->plain = back;
	op->data = r->data;
	op->want = len;
	op->end = len + (op->told || back ? RMA_STEPS : 0);
	op->segment[0] = (struct segment){r->remote, len, {(uint32_t)r->key, (uint32_t)(r->key >> 32)}};
	op->iovs = 0;
	for (size_t i = 0; i < r->iovs; at += r->iov[i++].iov_len) {
		if (bounced && r->iov[i].iov_len) {
			memcpy(op->bounce->data + at, r->iov[i].iov_base, r->iov[i].iov_len);
		} else if (r->iov[i].iov_len) {
			op->mr[op->iovs] = r->desc ? (struct mr *)r->desc[i] : NULL;
			op->iov[op->iovs++] = r->iov[i];
		}
	}
	if (bounced) {
		op->region[op->regions++] = op->bounce->region;
		op->iov[op->iovs++] = (struct iovec){op->bounce->data, len};
	}
	read_begin(ep, op);
	return 0;
}

/* What follows the bytes: first the byte that is read back, then the data for the peer's CQ. */
int rma_follow(struct op *op)
{
	const struct written w = {{0, WIRE_WRITTEN | FLAG_DATA, 0, op->want}, op->data};
	const bool back = op->asked == op->want;
	struct peer *p = settings.rails > 1 ? rail_of(op->peer) : op->peer;
	struct ibv_sge sge;
	int err = 0;

	if (back && op->plain) { /* to the buffer's end: what may be written again is at its beginning */
		sge = (struct ibv_sge){(uintptr_t)op->bounce->data + op->bounce->size - 1, 1, p ? rail_lkey(p, op->bounce->region) : 0};
		err = p ? op_post(p, op, MLX5_OPCODE_RDMA_READ, op->segment, op->want - 1, &sge) : -FI_EAGAIN;
	} else if (!back && op->told) {
		err = bounced_send(op->peer, &w, sizeof(w), NULL, 0, op->context, (uint32_t)op->flags);
		if (!err)
			op->flags = 0; /* the message's completion is the operation's */
	}
	op->asked += !err;
	return err;
}

/* ---- Calls of the application ---- */

static ssize_t rma_any(struct endpoint *ep, const struct rma *r)
{
	const uint32_t done = done_flags(ep, FI_RMA | (r->flags & (FI_READ | FI_WRITE)), r->flags);
	const bool back = (r->flags & (FI_WRITE | FI_DELIVERY_COMPLETE | SILENT)) == (FI_WRITE | FI_DELIVERY_COMPLETE);
	size_t len = 0, i;
	struct peer *p;
	int err;

	if (r->iovs > IOV_LIMIT)
		return -FI_EINVAL;
	for (i = 0; i < r->iovs; i++)
		len += r->iov[i].iov_len;
	if (len > (r->flags & FI_INJECT ? settings.eager : MAX_MESSAGE))
		return -FI_EMSGSIZE;
	p = peer_for(ep, r->addr, r->context, done, r->flags, &err);
	if (!p)
		return err;
	/* Without a byte, and over two devices, it is over at once. */
	if (settings.rails > 1 ? !len && cq_room(ep->tx_cq, 1) : peer_begin(p) || inlay_sq_room(&p->sq) < 8)
		return -FI_EAGAIN;
	if (settings.rails > 1 || (len && back) || !in_one(r, len))
		return begin(ep, p, r, len, back && len, done);
	post_one(p, r, len, done);
	return 0;
}

static ssize_t rma(struct fid_ep *fid, struct rma r)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid);

	enter(ep);
	r.flags |= r.flags & OF_ENDPOINT ? ep->tx_flags : 0;
	r.flags &= r.flags & FI_READ ? ~(FI_REMOTE_CQ_DATA | FI_INJECT) : ~0ull;
	return leave_post(ep, rma_any(ep, &r));
}

#define MSG struct fid_ep *fid, const struct fi_msg_rma *m, uint64_t flags
#define IOV struct fid_ep *fid, const struct iovec *iov, void **desc, size_t n
#define BUF struct fid_ep *fid, const void *buf, size_t len
#define TARGET fi_addr_t addr, uint64_t remote, uint64_t key
#define READ (FI_READ | OF_ENDPOINT)
#define WRITE (FI_WRITE | OF_ENDPOINT)
#define INJECT (FI_WRITE | FI_INJECT | SILENT)

CALL(rma_msg, (MSG), m->rma_iov_count != 1 ? -FI_EINVAL :
     rma(fid, (struct rma){m->msg_iov, m->desc, m->iov_count, m->addr, m->rma_iov->addr, m->rma_iov->key, m->data, m->context, flags}))
CALL(rma_one, (BUF, void *desc, TARGET, uint64_t data, void *context, uint64_t flags),
     rma(fid, (struct rma){&(struct iovec){(void *)(uintptr_t)buf, len}, &desc, 1, addr, remote, key, data, context, flags}))
CALL(rma_read, (struct fid_ep *fid, void *buf, size_t len, void *desc, TARGET, void *context),
     rma_one(fid, buf, len, desc, addr, remote, key, 0, context, READ))
CALL(rma_readv, (IOV, TARGET, void *context), rma(fid, (struct rma){iov, desc, n, addr, remote, key, 0, context, READ}))
CALL(rma_readmsg, (MSG), rma_msg(fid, m, FI_READ | flags))
CALL(rma_write, (BUF, void *desc, TARGET, void *context), rma_one(fid, buf, len, desc, addr, remote, key, 0, context, WRITE))
CALL(rma_writev, (IOV, TARGET, void *context), rma(fid, (struct rma){iov, desc, n, addr, remote, key, 0, context, WRITE}))
CALL(rma_writemsg, (MSG), rma_msg(fid, m, FI_WRITE | flags))
CALL(rma_inject, (BUF, TARGET), rma_one(fid, buf, len, NULL, addr, remote, key, 0, NULL, INJECT))
CALL(rma_writedata, (BUF, void *desc, uint64_t data, TARGET, void *context),
     rma_one(fid, buf, len, desc, addr, remote, key, data, context, WRITE | FI_REMOTE_CQ_DATA))
CALL(rma_injectdata, (BUF, uint64_t data, TARGET),
     rma_one(fid, buf, len, NULL, addr, remote, key, data, NULL, INJECT | FI_REMOTE_CQ_DATA))

struct fi_ops_rma rma_ops = {sizeof(struct fi_ops_rma), rma_read, rma_readv, rma_readmsg, rma_write, rma_writev,
	rma_writemsg, rma_inject, rma_writedata, rma_injectdata};
