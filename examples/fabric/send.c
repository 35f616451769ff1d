/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * send.c: protocols of a send.
 *
 *   inline      header and payload in the WQE                            up to INLINE_BYTES with the header
 *   eager       both copied to a bounce buffer of the sender's           up to FI_INLAY_EAGER
 *   rendezvous  the buffer is registered; its address and key go out,    any
 *               the receiver reads and says FIN
 *
 * A send completes when the peer's device has acknowledged it (FI_TRANSMIT_COMPLETE), or at once when the
 * caller wants no more than its buffer back (FI_INJECT_COMPLETE). For FI_DELIVERY_COMPLETE an eager message
 * asks for FIN, too; for FI_MATCH_COMPLETE all messages take the rendezvous.
 */
#include "fabric.h"

/* A send, in any of its forms. */
struct send {
	const struct iovec *iov;
	size_t iovs;
	fi_addr_t dest;
	uint64_t tag, data;
	void *context;
	uint64_t flags;
};

#define LEVELS (FI_INJECT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)

/* What is written to the tx CQ, or that only a failure is. */
static uint32_t done_flags(const struct endpoint *ep, uint64_t flags)
{
	return (uint32_t)(flags & (FI_MSG | FI_TAGGED)) |
	       (ep->tx_selective && !(flags & FI_COMPLETION) ? DONE_ERROR : (uint32_t)FI_SEND);
}

void send_defaults(struct endpoint *ep)
{
	ep->tx_done = done_flags(ep, ep->tx_flags);
	ep->short_addrs = ep->tx_flags & LEVELS ? 0 : ep->addrs;
}

/* Header and what belongs to it. Returns its bytes. */
static uint32_t put_header(uint8_t *at, uint8_t kind, uint8_t flags, uint64_t tag, uint64_t data, uint64_t handle)
{
	struct wire *wire = (struct wire *)(void *)at;

	wire->kind = kind;
	wire->flags = flags;
	wire->segments = 0;
	wire->tag = tag;
	at += sizeof(*wire);
	if (flags & FLAG_DATA) {
		inlay_put64(at, data);
		at += 8;
	}
	if (flags & FLAG_HANDLE) {
		inlay_put64(at, handle);
		at += 8;
	}
	return (uint32_t)(at - (uint8_t *)wire);
}

static uint8_t wire_flags(const struct send *s)
{
	return (uint8_t)((s->flags & FI_TAGGED ? FLAG_TAGGED : 0) | (s->flags & FI_REMOTE_CQ_DATA ? FLAG_DATA : 0));
}

/* The first piece of a list is the header; all of it goes into the WQE. */
static int post_inline(struct peer *p, const struct ibv_sge *sge, uint32_t n, void *context, uint32_t done)
{
	struct slot *slot = peer_slot(p);

	if (inlay_post_send(&p->sq, sge, n, INLAY_INLINE | ((int32_t)done > 0 ? INLAY_SIGNALED : peer_signal(p, 4))))
		return -FI_EAGAIN;
	slot->kind = SLOT_CONTEXT;
	slot->what = context;
	slot->flags = done;
	return inlay_sq_ring(&p->sq);
}

static int send_inline(struct peer *p, const struct send *s, uint8_t *header, uint32_t bytes, uint32_t done)
{
	struct ibv_sge sge[1 + IOV_LIMIT];
	uint32_t i;

	sge[0].addr = (uintptr_t)header;
	sge[0].length = bytes;
	for (i = 0; i < s->iovs; i++) {
		sge[1 + i].addr = (uintptr_t)s->iov[i].iov_base;
		sge[1 + i].length = (uint32_t)s->iov[i].iov_len;
	}
	return post_inline(p, sge, 1 + (uint32_t)s->iovs, s->context, done);
}

static int send_bounced(struct endpoint *ep, struct peer *p, const struct send *s, const uint8_t *header, uint32_t bytes,
			uint32_t done)
{
	struct slot *slot = peer_slot(p);
	struct ibv_sge sge;
	struct buf *b;
	size_t i;

	if (!inlay_sq_room(&p->sq))
		return -FI_EAGAIN;
	b = buf_take(&ep->bounce);
	if (!b)
		return -FI_EAGAIN;
	memcpy(b->data, header, bytes);
	for (i = 0; i < s->iovs; i++) {
		memcpy(b->data + bytes, s->iov[i].iov_base, s->iov[i].iov_len);
		bytes += (uint32_t)s->iov[i].iov_len;
	}
	b->context = s->context;
	b->flags = done;
	sge.addr = (uintptr_t)b->data;
	sge.length = bytes;
	sge.lkey = b->lkey;
	slot->kind = SLOT_BUF;
	slot->what = b;
	return inlay_post_send(&p->sq, &sge, 1, INLAY_SIGNALED | INLAY_RING); /* there is room */
}

/* ---- With an operation that waits for FIN ---- */

static struct op *waiting_op(struct endpoint *ep, struct peer *p, const struct send *s, uint32_t done)
{
	struct op *op = op_take(ep, OP_SEND);

	if (!op)
		return NULL;
	op->peer = p;
	op->context = s->context;
	op->flags = done;
	op->regions = 0;
	return op;
}

static void let_go(struct endpoint *ep, struct op *op)
{
	while (op->regions)
		region_put(ep->domain, op->region[--op->regions]);
	op_give(ep, op);
}

void send_end(struct endpoint *ep, struct op *op, int err)
{
	tx_done(ep, op->context, (uint32_t)op->flags, err, op->peer->syndrome);
	let_go(ep, op);
}

void send_finished(struct endpoint *ep, const struct peer *p, uint64_t handle)
{
	struct op *op = op_of(ep, handle);

	if (op && op->kind == OP_SEND && op->peer == p)
		send_end(ep, op, 0);
	else
		WARN(FI_LOG_EP_DATA, "FIN of a message that nobody waits for\n");
}

/* Registers what is sent, and writes where it is after the header. 0 or a negative errno. */
static int put_segments(struct endpoint *ep, struct op *op, const struct send *s, uint8_t *at, uint16_t *segments)
{
	struct segment segment;
	size_t i;
	int err;

	for (i = 0; i < s->iovs; i++) {
		if (!s->iov[i].iov_len)
			continue;
		err = region_get(ep->domain, s->iov[i].iov_base, s->iov[i].iov_len, IBV_ACCESS_REMOTE_READ,
				 &op->region[op->regions]);
		if (err)
			return err;
		segment.addr = (uintptr_t)s->iov[i].iov_base;
		segment.len = s->iov[i].iov_len;
		segment.rkey = op->region[op->regions++]->rkey;
		memcpy(at, &segment, sizeof(segment));
		at += sizeof(segment);
		++*segments;
	}
	return 0;
}

static int send_rendezvous(struct endpoint *ep, struct peer *p, const struct send *s, uint32_t done)
{
	uint8_t message[WIRE_MAX + IOV_LIMIT * sizeof(struct segment)];
	struct op *op = waiting_op(ep, p, s, done);
	struct ibv_sge sge;
	uint16_t segments = 0;
	int err;

	if (!op)
		return -FI_EAGAIN;
	sge.addr = (uintptr_t)message;
	sge.length = put_header(message, WIRE_RENDEZVOUS, wire_flags(s) | FLAG_HANDLE, s->tag, s->data, op_handle(op));
	err = put_segments(ep, op, s, message + sge.length, &segments);
	((struct wire *)(void *)message)->segments = segments;
	sge.length += segments * (uint32_t)sizeof(struct segment);
	if (!err)
		err = post_inline(p, &sge, 1, NULL, 0);
	if (err)
		let_go(ep, op);
	return err;
}

/* ---- All of them ---- */

int peer_need(struct endpoint *ep, struct peer *p)
{
	int err;

	if (p->state == PEER_IDLE) {
		err = connect_start(p);
		if (err)
			return err;
	}
	if (p->state == PEER_CONNECTING || p->forgotten)
		progress(ep); /* for callers that try again without a look at their CQ */
	if (p->state >= PEER_FAILING && !p->forgotten)
		return -p->err;
	return p->state == PEER_READY ? 0 : -FI_EAGAIN;
}

static int send_eager(struct endpoint *ep, struct peer *p, const struct send *s, size_t len, uint32_t done)
{
	const bool ack = (s->flags & (FI_DELIVERY_COMPLETE | SILENT)) == FI_DELIVERY_COMPLETE;
	uint8_t header[WIRE_MAX], flags = wire_flags(s);
	struct op *op = NULL;
	uint32_t bytes;
	int err;

	if (ack) {
		op = waiting_op(ep, p, s, done);
		if (!op)
			return -FI_EAGAIN;
		flags |= FLAG_HANDLE;
		done = 0;
	}
	bytes = put_header(header, WIRE_EAGER, flags, s->tag, s->data, op ? op_handle(op) : 0);
	if (bytes + len <= INLINE_BYTES)
		err = send_inline(p, s, header, bytes, done);
	else
		err = send_bounced(ep, p, s, header, bytes, done);
	if (err && op)
		let_go(ep, op);
	return err;
}

static ssize_t send_any(struct endpoint *ep, const struct send *s)
{
	const uint32_t done = s->flags & SILENT ? 0 : done_flags(ep, s->flags);
	const bool at_once = (s->flags & LEVELS) == FI_INJECT_COMPLETE && (int32_t)done > 0;
	struct peer *p;
	size_t len = 0, i;
	int err;

	if (s->iovs > IOV_LIMIT)
		return -FI_EINVAL;
	for (i = 0; i < s->iovs; i++)
		len += s->iov[i].iov_len;
	if (len > (s->flags & FI_INJECT ? settings.eager : MAX_MESSAGE))
		return -FI_EMSGSIZE;
	p = peer_of(ep, s->dest);
	if (!p)
		return -FI_EADDRNOTAVAIL;
	err = peer_need(ep, p);
	if (err && err != -FI_EAGAIN && !(s->flags & SILENT)) {
		tx_done(ep, s->context, done, -err, p->syndrome);
		return 0;
	}
	if (!err && at_once)
		err = cq_room(ep->tx_cq, 1);
	if (err)
		return err;
	if (len > settings.eager || (s->flags & (FI_MATCH_COMPLETE | FI_INJECT)) == FI_MATCH_COMPLETE)
		return send_rendezvous(ep, p, s, done);
	err = send_eager(ep, p, s, len, at_once ? 0 : done);
	if (!err && at_once)
		tx_done(ep, s->context, done, 0, 0);
	return err;
}

APART ssize_t send_buf(struct endpoint *ep, const void *buf, size_t len, fi_addr_t dest, uint64_t tag, uint64_t data,
		       void *context, uint64_t flags)
{
	struct iovec iov;

	iov.iov_base = (void *)(uintptr_t)buf;
	iov.iov_len = len;
	return send_iov(ep, &iov, 1, dest, tag, data, context, flags);
}

ssize_t send_iov(struct endpoint *ep, const struct iovec *iov, size_t iovs, fi_addr_t dest, uint64_t tag, uint64_t data,
		 void *context, uint64_t flags)
{
	struct send s = {iov, iovs, dest, tag, data, context, flags};

	return send_any(ep, &s);
}

int send_fin(struct peer *p, uint64_t handle)
{
	uint8_t message[WIRE_MAX];
	struct ibv_sge sge;

	sge.addr = (uintptr_t)message;
	sge.length = put_header(message, WIRE_FIN, 0, handle, 0, 0);
	return post_inline(p, &sge, 1, NULL, 0);
}
