/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rail.c: two devices (FI_INLAY_RAILS=2). An endpoint has a second one on the other device, which the application
 * does not see, and so a peer has a second struct peer there, its `other`, with a connection of its own.
 *
 *   messages       are numbered, and go over the first connection that is open
 *   reads, writes  go over both, a piece here, a piece there
 *   atomics        are messages, since two devices are not atomic to each other
 *
 * NAME tells the peer which our second endpoint is. If a connection dies while the other is open, nobody is told.
 * Each side waits until nothing is under way at its own end of the dead one, which is in ERR, and says DOWN on the
 * other. Once the peer's DOWN is there, too, nothing of the dead one can arrive any more, and what failed is done
 * again: messages in order and with their numbers, by which the receiver knows those that it has had; reads and
 * writes from their beginning.
 */
#include "message.h"

enum { RAIL_MESSAGE, RAIL_NAME, RAIL_DOWN }; /* in the place of segments; the tag is a message's number */

/* ---- Which connection ---- */

/* Dead, and one side is not done with it yet. */
static bool dying(const struct peer *p)
{
	return p->state >= PEER_FAILING && p->err == FI_EAGAIN && !(p->state == PEER_FAILED && p->down);
}

struct peer *rail_of(struct peer *p)
{
	struct peer *other = p->other;

	if (!other)
		return peer_open_to(p) ? p : NULL;
	if (dying(p) || dying(other))
		return NULL;
	return p->state == PEER_READY ? p : other->state == PEER_READY ? other : NULL;
}

struct peer *rail_next(const struct op *op)
{
	struct peer *p = rail_of(op->peer), *other = op->peer->other;

	return p && other && other->state == PEER_READY && op->asked / settings.piece % 2 ? other : p;
}

/* ---- Messages out ---- */

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
	struct op *op = op_with_buf(p->ep, OP_RAIL, p, context, done);

	if (op) {
		op->attempt = p->attempt;
		op->bounce->len = 0;
		add(op->bounce, &wire, sizeof(wire));
		add(op->bounce, data, len);
	}
	return op;
}

int rail_send(struct peer *p, const void *head, size_t len, const struct iovec *iov, size_t iovs, void *context,
	      uint32_t done)
{
	struct peer *rail = p->resend == p->sent ? rail_of(p) : NULL;
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
	wait_for_room(op->peer->ep, op);
}

void rail_retry(struct op *op)
{
	struct peer *p = op->peer, *rail;
	const struct wire *wire = wire_of(op);

	rail = wire->segments == RAIL_MESSAGE ? wire->tag == p->resend ? rail_of(p) : NULL :
	       p->state == PEER_READY ? p : p->other;
	if (op->attempt != p->attempt || peer_lost(p) || (wire->segments == RAIL_NAME && p->state != PEER_READY))
		op_end(p->ep, op, p->err ? p->err : FI_ECONNRESET);
	else if (!rail || post(rail, op))
		wait_for_room(p->ep, op);
	else
		p->resend += wire->segments == RAIL_MESSAGE;
}

/* Says one of the others, whenever there is room. p: the first of the two. */
static void say(struct peer *p, uint16_t what, const struct name *name)
{
	struct op *op = begin(p, what, name, sizeof(*name), NULL, 0);

	if (!op)
		peer_fail(p, FI_ENOMEM, 0);
	else if (what == RAIL_DOWN || post(p, op))
		wait_for_room(p->ep, op);
}

void rail_name(struct peer *p)
{
	say(p, RAIL_NAME, &p->ep->second->name);
}

void rail_down(struct peer *p)
{
	say(rail_first(p), RAIL_DOWN, &p->ep->name);
}

/* ---- Messages in ---- */

/* The peer of this name on the other device; NULL: no such name, or no memory. */
static struct peer *known(struct peer *p, const struct message *m)
{
	struct endpoint *first = p->ep->first, *ep = p->ep == first ? first->second : first;
	struct inlay_connect_record place;
	struct peer *other;
	struct name name;

	if (m->len != sizeof(name))
		return NULL;
	memcpy(&name, m->payload, sizeof(name));
	if (inlay_connect_unpack(&place, name.record, sizeof(name.record), NULL) || place.type != IBV_QPT_UD)
		return NULL;
	other = peer_of_name(ep, &name, av_find(ep->av, &name));
	if (other && (!p->other || p->other == other)) {
		p->other = other;
		other->other = p;
	}
	return p->other;
}

static int named(struct peer *p, const struct message *m)
{
	struct peer *other = p->ep == p->ep->first ? known(p, m) : NULL;

	if (other && other->state == PEER_FAILED)
		other->state = PEER_IDLE;
	return other && other->state == PEER_IDLE && connect_start(other) == -FI_EAGAIN ? -FI_EAGAIN : 0;
}

static int numbered(struct peer *p, const struct message *m)
{
	struct endpoint *ep = p->ep;
	const uint32_t len = (uint32_t)m->len;
	struct buf *b = NULL;
	int r;

	if (m->tag != p->received) {
		if (m->tag > p->received)
			peer_fail(p, FI_EIO, 0); /* one was acknowledged, and did not come */
		return 0;
	}
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
	struct peer *other = p->other;

	if (settings.rails < 2)
		return 0;
	if (m->segments == RAIL_NAME)
		return named(p, m);
	if (m->segments == RAIL_MESSAGE)
		return rail_first(p) ? numbered(rail_first(p), m) : 0;
	if (!other)
		other = known(p, m);
	if (!other)
		return 0;
	other->down = true;
	if (other->state != PEER_IDLE)
		peer_fail(other, FI_EHOSTUNREACH, 0);
	return 0;
}
