/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rail.c: two devices (FI_INLAY_RAILS=2). An endpoint has a second one on the other device, which the application
 * does not see, and so a peer has a second struct peer there, its `other`, with a connection of its own.
 *
 *   messages       are numbered, and go over the first connection that is open
 *   reads, writes  go over both, a piece here, a piece there
 *   atomics        are messages, since two devices are not atomic to each other
 *
 * The first message on a connection names the sender's endpoint on the other device. If a connection dies while the
 * other is open, nobody is told. What failed is done again when nothing is under way here any more: messages in order
 * and with their numbers, by which the receiver drops those that it has had, and sets aside those that come too early;
 * reads and writes from their beginning.
 */
#include "message.h"

enum { RAIL_MESSAGE, RAIL_NAME }; /* in the place of segments; the tag is a message's number */

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

static struct wire *wire_of(const struct op *op)
{
	return (struct wire *)(void *)op->bounce->data;
}

static int post(struct peer *rail, struct op *op)
{
	struct ibv_sge sge = {(uintptr_t)op->bounce->data, op->bounce->len, rail_lkey(rail, op->bounce->region)};
	struct slot *slot;
	int err;

	if (peer_begin(rail))
		return -FI_EAGAIN;
	slot = peer_slot(rail);
	err = peer_post(rail, MLX5_OPCODE_SEND, 0, 0, &sge, 1, INLAY_SIGNALED | INLAY_RING);
	if (!err)
		*slot = (struct slot){op, SLOT_OP, 0};
	return err;
}

static void add(struct buf *b, const void *data, size_t len)
{
	memcpy(b->data + b->len, data, len);
	b->len += (uint32_t)len;
}

/* An operation with the beginning of a message; NULL: no memory. */
static struct op *begin(struct peer *p, uint16_t what, const void *data, size_t len, void *context, uint32_t done)
{
	const struct wire wire = {0, WIRE_RAIL, what, p->sent};
	struct op *op = op_with_buf(p->ep->first, OP_BOUNCED, p, context, done);

	if (op) {
		op->attempt = p->attempt;
		op->bounce->len = 0;
		add(op->bounce, &wire, settings.rails > 1 ? sizeof(wire) : 0);
		add(op->bounce, data, len);
	}
	return op;
}

int bounced_send(struct peer *p, const void *head, size_t len, const struct iovec *iov, size_t iovs, void *context,
		 uint32_t done)
{
	struct peer *rail = settings.rails < 2 ? p : p->resend == p->sent ? rail_of(p) : NULL;
	struct op *op = rail ? begin(p, RAIL_MESSAGE, head, len, context, done) : NULL;
	size_t i;

	for (i = 0; op && i < iovs; i++)
		add(op->bounce, iov[i].iov_base, iov[i].iov_len);
	if (op && !post(rail, op)) {
		p->resend = ++p->sent;
		return 0;
	}
	if (op)
		op_drop(p->ep, op);
	return -FI_EAGAIN;
}

void rail_again(struct op *op)
{
	if (wire_of(op)->segments == RAIL_MESSAGE && wire_of(op)->tag < op->peer->resend)
		op->peer->resend = wire_of(op)->tag;
	wait_for_room(op->peer->ep->first, op);
}

void rail_retry(struct op *op)
{
	const bool number = wire_of(op)->segments == RAIL_MESSAGE;
	struct peer *p = op->peer, *rail = !number ? p : wire_of(op)->tag == p->resend ? rail_of(p) : NULL;

	if (op->attempt != p->attempt || peer_lost(p) || (!number && p->state != PEER_READY))
		op_end(p->ep->first, op, p->err ? p->err : FI_ECONNRESET);
	else if (!rail || post(rail, op))
		wait_for_room(p->ep->first, op);
	else
		p->resend += number;
}

void rail_name(struct peer *p)
{
	const struct endpoint *beyond = p->ep == p->ep->first ? p->ep->second : p->ep->first;
	struct op *op = begin(p, RAIL_NAME, &beyond->name, sizeof(beyond->name), NULL, 0);

	if (!op)
		peer_fail(p, FI_ENOMEM, 0);
	else if (post(p, op))
		wait_for_room(p->ep->first, op);
}

/* ---- Messages in ---- */

/* The other connection of this peer is known now. */
static int named(struct peer *p, const struct message *m)
{
	struct endpoint *first = p->ep->first, *ep = p->ep == first ? first->second : first;
	struct inlay_connect_record place;
	struct peer *other;
	struct name name;

	if (m->len != sizeof(name) || inlay_connect_unpack(&place, m->payload, sizeof(name.record), NULL) ||
	    place.type != IBV_QPT_UD)
		return 0;
	memcpy(&name, m->payload, sizeof(name));
	other = peer_of_name(ep, &name, av_find(ep->av, &name));
	if (!other || (p->other && p->other != other) || (other->other && other->other != p))
		return 0;
	p->other = other;
	other->other = p;
	if (other->state == PEER_FAILED && ep != first)
		other->state = PEER_IDLE;
	return other->state == PEER_IDLE && ep != first && connect_start(other) == -FI_EAGAIN ? -FI_EAGAIN : 0;
}

static int numbered(struct peer *p, const struct message *m)
{
	struct endpoint *ep = p->ep;
	const uint32_t len = (uint32_t)m->len;
	struct buf *b = NULL;
	int r;

	if (m->tag != p->received)
		return m->tag < p->received ? 0 : -FI_EAGAIN;
	recv_settle(ep);
	if (len > SMALL_MESSAGE && !(b = buf_take(&ep->bounce)))
		return -FI_EAGAIN;
	r = arrive_any(ep, p, b ? memcpy(b->data, m->payload, len) : m->payload, len, b);
	if (b && r != 1)
		buf_give(&ep->bounce, b);
	p->received += r >= 0;
	return r < 0 ? r : 0;
}

int rail_arrived(struct peer *p, const struct message *m)
{
	return settings.rails < 2 ? 0 : m->segments == RAIL_NAME ? named(p, m) :
	       rail_first(p) ? numbered(rail_first(p), m) : -FI_EAGAIN;
}
