/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * send.c: sends, by the protocols of the README.
 *
 * A send completes when the peer's device has acknowledged it (FI_TRANSMIT_COMPLETE), or at once if the caller
 * only wants its buffer back (FI_INJECT_COMPLETE). For FI_DELIVERY_COMPLETE an eager message asks for FIN
 * too; for FI_MATCH_COMPLETE all messages use rendezvous.
 */
#include "fabric.h"

#define LEVELS (FI_INJECT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)

void send_defaults(struct endpoint *ep)
{
	ep->tx_done = done_flags(ep, FI_SEND, ep->tx_flags);
	if (!ep->lock && !ep->offload) { /* else recv_tagged, which takes no lock, reads what does not change */
		ep->rx_plain = !ep->counters[COUNT_RECV] && (!ep->rx_selective || ep->rx_flags & FI_COMPLETION);
		ep->recv_addrs = ep->rx_plain ? ep->addrs : 0;
	}
	ep->inject_addrs = ep->counters[COUNT_SEND] ? 0 : ep->addrs;
	ep->short_addrs = ep->tx_flags & LEVELS ? 0 : ep->addrs;
}

/* What precedes the payload: a struct wire, and the extras that its flags name. */
struct header {
	struct wire wire;
	uint64_t data, handle;
} __attribute__((packed));

static uint8_t wire_flags(const struct peer *p, const struct send *s)
{
	return (uint8_t)((s->flags & FI_TAGGED ? FLAG_TAGGED | (p->by_nic ? FLAG_AHEAD : 0) : 0) |
			 (s->flags & FI_REMOTE_CQ_DATA ? FLAG_DATA : 0));
}

/*
 * A message in the WQE: header, extras and payload in one segment.
 *
 *   +0   ctrl    SEND
 *   +16  inline  byte count | struct wire | (data) | (handle) | payload      wraps at the end of the ring
 *
 * With dc, an address vector precedes it, and the immediate names the sender.
 *
 * h    its flags say which extras are there
 * len  bytes of all pieces of the payload
 *
 * 0 or -FI_EAGAIN.
 */
INLAY_ALWAYS int post_inline(struct peer *p, const struct header *h, const struct iovec *iov, size_t iovs, size_t len,
			     void *context, uint32_t done, bool dc)
{
	const uint32_t bytes = (uint32_t)len + header_bytes(h->wire.flags);
	const uint32_t ds = 1 + inlay_seg_inline_ds(bytes) + (dc ? inlay_av_ds(&p->target) : 0);
	const uint32_t signal = (int32_t)done > 0 || dc ? INLAY_SIGNALED : peer_signal(p, (ds + 3) / 4);
	struct slot *slot = peer_slot(p);
	struct inlay_cursor at;
	uint8_t *to;

	if (INLAY_UNLIKELY(inlay_sq_begin_ds(&p->sq, ds, &at)))
		return -FI_EAGAIN;
	*slot = (struct slot){context, SLOT_CONTEXT, done};
	if (dc)
		at = inlay_seg_av(at, &p->target, inlay_av_ds(&p->target));
	at = inlay_seg_inline_open(at, bytes, sizeof(h->wire), &to);
	memcpy(to, &h->wire, sizeof(h->wire));
	if (h->wire.flags & FLAG_DATA)
		at = inlay_seg_inline_append(at, &h->data, 8);
	if (h->wire.flags & FLAG_HANDLE)
		at = inlay_seg_inline_append(at, &h->handle, 8);
	for (size_t i = 0; i < iovs; i++)
		at = inlay_seg_inline_append(at, iov[i].iov_base, (uint32_t)iov[i].iov_len);
	if (dc)
		inlay_sq_commit(&p->sq, at, MLX5_OPCODE_SEND_IMM, 0, signal | INLAY_RING, p->number_be);
	else
		inlay_sq_commit(&p->sq, at, MLX5_OPCODE_SEND, 0, signal | INLAY_RING, 0);
	return 0;
}

INLAY_ALWAYS int post_any(struct peer *p, struct header *h, const struct iovec *iov, size_t iovs, size_t len, void *context,
		    uint32_t done)
{
	if (header_bytes(h->wire.flags) + len > INLINE_BYTES || rail_numbers(p)) {
		if (!(h->wire.flags & FLAG_DATA))
			h->data = h->handle;
		return bounced_send(p, h, header_bytes(h->wire.flags), iov, iovs, context, done);
	}
	if (peer_begin(p))
		return -FI_EAGAIN;
	return post_inline(p, h, iov, iovs, len, context, done, settings.dc);
}

CALLED ssize_t send_medium(struct peer *p, uint8_t flags, uint64_t tag, uint64_t data, const void *buf, size_t len,
			   void *context, uint32_t done)
{
	struct header h = {{0, flags, 0, tag}, data, 0};
	struct iovec iov = {(void *)(uintptr_t)buf, len};

	if (len > INLINE_BYTES - WIRE_MAX)
		return bounced_send(p, &h, header_bytes(flags), &iov, 1, context, done);
	return post_inline(p, &h, &iov, 1, len, context, done, false);
}

/* ---- With an operation that waits for FIN ---- */

void send_finished(struct endpoint *ep, const struct peer *p, uint64_t handle)
{
	struct op *op = op_of(ep, handle);

	if (op && op->kind == OP_SEND && op->peer == p)
		op_end(ep, op, 0);
	else
		WARN(FI_LOG_EP_DATA, "FIN of a message that nobody waits for\n");
}

/* Registers the payload and describes where it is. 0 or a negative errno. */
static int make_segments(struct endpoint *ep, struct op *op, const struct send *s, struct segment *segment)
{
	struct inlay_cache_region *r;
	int err;

	for (size_t i = 0; i < s->iovs; i++) {
		if (!s->iov[i].iov_len)
			continue;
		err = region_get(ep->domain, s->desc ? s->desc[i] : NULL, s->iov[i].iov_base, s->iov[i].iov_len, IBV_ACCESS_REMOTE_READ,
				 &op->region[op->regions]);
		if (err)
			return err;
		r = op->region[op->regions];
		segment[op->regions++] = (struct segment){(uintptr_t)s->iov[i].iov_base, s->iov[i].iov_len,
							  {r->rkey, region_more(r)->rkey}};
	}
	return 0;
}

static int send_rendezvous(struct endpoint *ep, struct peer *p, const struct send *s, uint32_t done)
{
	struct header h = {{0, (uint8_t)(WIRE_RENDEZVOUS | wire_flags(p, s) | FLAG_HANDLE), 0, s->tag}, s->data, 0};
	struct op *op = op_begin(ep, OP_SEND, p, s->context, done);
	struct segment segment[IOV_LIMIT];
	struct iovec iov = {segment, 0};
	int err;

	if (!op)
		return -FI_EAGAIN;
	err = make_segments(ep, op, s, segment);
	h.handle = op_handle(op);
	h.wire.segments = op->regions;
	iov.iov_len = op->regions * sizeof(*segment);
	if (!err)
		err = post_any(p, &h, &iov, 1, iov.iov_len, NULL, 0);
	if (err)
		op_drop(ep, op);
	else if (h.wire.flags & FLAG_AHEAD)
		offload_stand_in(p, s->tag);
	return err;
}

/* ---- All of them ---- */

static int send_eager(struct endpoint *ep, struct peer *p, const struct send *s, size_t len, uint32_t done)
{
	struct header h = {{0, wire_flags(p, s), 0, s->tag}, s->data, 0};
	struct op *op = NULL;
	int err;

	if (h.wire.flags & FLAG_AHEAD && offload_takes(s))
		return offload_send(ep, p, s, len, done);
	if ((s->flags & (FI_DELIVERY_COMPLETE | SILENT)) == FI_DELIVERY_COMPLETE) {
		op = op_begin(ep, OP_SEND, p, s->context, done);
		if (!op)
			return -FI_EAGAIN;
		h.wire.flags |= FLAG_HANDLE;
		h.handle = op_handle(op);
		done = 0;
	}
	err = post_any(p, &h, s->iov, s->iovs, len, s->context, done);
	if (err && op)
		op_drop(ep, op);
	if (!err && h.wire.flags & FLAG_AHEAD)
		offload_stand_in(p, s->tag);
	return err;
}

static ssize_t send_any(struct endpoint *ep, const struct send *s)
{
	const uint32_t done = done_flags(ep, FI_SEND | (s->flags & (FI_MSG | FI_TAGGED)), s->flags);
	bool at_once = (s->flags & LEVELS) == FI_INJECT_COMPLETE && (int32_t)done > 0;
	struct peer *p;
	size_t len = 0, i;
	int err;

	if (s->iovs > IOV_LIMIT)
		return -FI_EINVAL;
	for (i = 0; i < s->iovs; i++)
		len += s->iov[i].iov_len;
	if (len > (s->flags & FI_INJECT ? settings.eager : MAX_MESSAGE))
		return -FI_EMSGSIZE;
	p = peer_for(ep, s->dest, s->context, done, s->flags, &err);
	if (!p)
		return err;
	at_once = at_once && p->state != PEER_CONNECTING; /* so that it can still fail */
	if ((at_once && cq_room(ep->tx_cq, 1)) ||
	    (p->by_nic && (rail_numbers(p) || peer_begin(p) || inlay_sq_room(&p->sq) < OFFLOAD_ROOM)))
		return -FI_EAGAIN;
	if (len > settings.eager || (s->flags & (FI_MATCH_COMPLETE | FI_INJECT)) == FI_MATCH_COMPLETE)
		return send_rendezvous(ep, p, s, done);
	err = send_eager(ep, p, s, len, at_once ? 0 : done);
	if (!err && at_once)
		tx_done(ep, s->context, done, 0, 0);
	return err;
}

APART ssize_t send_buf(struct endpoint *ep, const void *buf, size_t len, void *desc, fi_addr_t dest, uint64_t tag,
		       uint64_t data, void *context, uint64_t flags)
{
	struct iovec iov = {(void *)(uintptr_t)buf, len};
	struct send s = {&iov, &desc, 1, dest, tag, data, context, flags};

	return send_any(ep, &s);
}

ssize_t send_iov(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t iovs, fi_addr_t dest, uint64_t tag,
		 uint64_t data, void *context, uint64_t flags)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid);
	struct send s = {iov, desc, iovs, dest, tag, data, context, flags};

	enter(ep);
	s.flags |= flags & OF_ENDPOINT ? ep->tx_flags : 0;
	return leave_post(ep, send_any(ep, &s));
}

int send_fin(struct peer *p, uint64_t handle)
{
	struct header h = {{0, WIRE_FIN, 0, handle}, 0, 0};

	return post_any(p, &h, NULL, 0, 0, NULL, 0);
}
