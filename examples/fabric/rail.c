/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rail.c: two devices (FI_INLAY_RAILS=2). An endpoint has a second one on the other device, which the application
 * does not see, and so a peer has a second struct peer there, its `other`, with a connection of its own.
 *
 *   messages       are numbered, and go over the first connection that is open
 *   reads, writes  go over both, a piece here, a piece there
 *   atomics        are messages, since two devices are not atomic to each other
 *
 * A hello names the sender's endpoint on the other device. If a connection dies while the other is open, nobody is
 * told. When all of its completions are in, what failed is repeated over the other: messages in order and with their
 * numbers, by which the receiver drops those that it has had, and sets aside those that come too early; reads and
 * writes from their beginning.
 */
#include "message.h"

/* ---- Messages out ---- */

struct peer *rail_of(struct peer *p)
{
	if (p->state < PEER_FAILING)
		return peer_open_to(p) ? p : NULL;
	return p->state == PEER_FAILED && p->other && p->other->state == PEER_READY ? p->other : NULL;
}

struct peer *rail_next(const struct op *op)
{
	struct peer *p = rail_of(op->peer), *other = op->peer->other;

	return p && other && other->state == PEER_READY && op->asked / settings.piece % 2 ? other : p;
}

static int post(struct peer *rail, struct op *op)
{
	const struct ibv_sge sge = {(uintptr_t)op->bounce->data, op->bounce->len, rail_lkey(rail, op->bounce->region)};

	return op_post(rail, op, MLX5_OPCODE_SEND, op->segment, 0, &sge);
}

INLAY_ALWAYS void fill(struct buf *b, uint8_t *to, const void *head, size_t len, const struct iovec *iov, size_t iovs)
{
	to = (uint8_t *)mempcpy(to, head, len);
	for (size_t i = 0; i < iovs; i++)
		to = (uint8_t *)mempcpy(to, iov[i].iov_base, iov[i].iov_len);
	b->len = (uint32_t)(to - b->data);
}

static APART int numbered_send(struct peer *p, const void *head, size_t len, const struct iovec *iov, size_t iovs,
			       void *context, uint32_t done)
{
	const struct wire wire = {0, WIRE_RAIL, 0, p->sent};
	struct peer *rail = p->resend == p->sent ? rail_of(p) : NULL;
	struct op *op = rail ? op_with_buf(p->ep, OP_BOUNCED, p, context, done) : NULL;

	if (!op)
		return -FI_EAGAIN;
	op->attempt = p->attempt;
	fill(op->bounce, (uint8_t *)mempcpy(op->bounce->data, &wire, sizeof(wire)), head, len, iov, iovs);
	if (post(rail, op)) {
		op_drop(p->ep, op);
		return -FI_EAGAIN;
	}
	p->resend = ++p->sent;
	return 0;
}

/* Over one device nothing is posted again, and the buffer is all that a message needs. */
int bounced_send(struct peer *p, const void *head, size_t len, const struct iovec *iov, size_t iovs, void *context,
		 uint32_t done)
{
	struct slot *slot;
	struct ibv_sge sge;
	struct buf *b;

	if (INLAY_UNLIKELY(settings.rails > 1))
		return numbered_send(p, head, len, iov, iovs, context, done);
	if (peer_begin(p) || !(b = buf_take(&p->ep->bounce)))
		return -FI_EAGAIN;
	fill(b, b->data, head, len, iov, iovs);
	sge = (struct ibv_sge){(uintptr_t)b->data, b->len, b->lkey};
	slot = peer_slot(p);
	if (peer_post(p, MLX5_OPCODE_SEND, 0, 0, &sge, 1, INLAY_SIGNALED | INLAY_RING)) {
		buf_give(&p->ep->bounce, b);
		return -FI_EAGAIN;
	}
	b->context = context;
	b->flags = done;
	slot->kind = SLOT_BUF;
	slot->what = b;
	return 0;
}

/* The number of a message in its bounce buffer */
static uint64_t number_of(const struct op *op)
{
	return ((const struct wire *)(const void *)op->bounce->data)->tag;
}

void rail_again(struct op *op)
{
	if (number_of(op) < op->peer->resend)
		op->peer->resend = number_of(op);
	wait_for_room(op->peer->ep, op);
}

void rail_retry(struct op *op)
{
	struct peer *p = op->peer, *rail = number_of(op) == p->resend ? rail_of(p) : NULL;

	if (op->attempt != p->attempt || peer_lost(p))
		op_end(p->ep, op, p->err ? p->err : FI_ECONNRESET);
	else if (!rail || post(rail, op))
		wait_for_room(p->ep, op);
	else
		p->resend++;
}

/* ---- Peers and messages in ---- */

void rail_link(struct peer *p, const struct name *name)
{
	struct endpoint *first = p->ep->first, *ep = p->ep == first ? first->second : first;
	struct inlay_connect_record place;
	struct peer *other = p->other;

	if (!other && !inlay_connect_unpack(&place, name->record, sizeof(name->record), NULL) && place.type == IBV_QPT_UD)
		other = peer_of_name(ep, name, av_find(ep->av, name));
	if (!other || (other->other && other->other != p))
		return;
	p->other = other;
	other->other = p;
	if (ep != first && other->state == PEER_FAILED && other->err != FI_EAGAIN)
		other->state = PEER_IDLE; /* p's last connection took it down, too */
}

int rail_arrived(struct peer *from, const struct message *m)
{
	struct peer *p = rail_first(from);
	const uint32_t len = (uint32_t)m->len;
	struct buf *b = NULL;
	int r;

	if (settings.rails < 2 || (p && m->tag < p->received))
		return 0;
	if (!p || m->tag - p->received > (uint64_t)settings.receives + PEER_RING || (len > 1 && m->payload[1] >= WIRE_RAIL)) {
		peer_fail(from, FI_ECONNRESET, 0); /* it has told nobody of itself, or cannot have come so far */
		return 0;
	}
	if (m->tag > p->received || (len > SMALL_MESSAGE && !(b = buf_take(&p->ep->bounce))))
		return -FI_EAGAIN;
	r = arrive_any(p->ep, p, b ? memcpy(b->data, m->payload, len) : m->payload, len, b);
	if (b && r != 1)
		buf_give(&p->ep->bounce, b);
	p->received += r >= 0;
	return r < 0 ? r : 0;
}
