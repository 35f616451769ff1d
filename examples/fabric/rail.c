/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rail.c: messages in bounce buffers, messages that wait for their connection, and two devices (FI_INLAY_RAILS=2).
 *
 * A message to a peer whose connection is still being made, or that has two, gets a number. Such messages wait in the
 * order of their numbers until they can be posted.
 *
 * With two devices an endpoint has a second one on the other device, which the application does not see, and so a
 * peer has a second struct peer there, its `other`, with a connection of its own.
 *
 *   messages       go over the first connection that is open; a WIRE_RAIL in front of each says its number
 *   reads, writes  go over both, a piece here, a piece there
 *   atomics        are messages, since two devices are not atomic to each other
 *
 * A hello names the sender's endpoint on the other device. One to a second endpoint also says which connection over
 * the first device it is for. It counts only while that one is open, and only if the hello there named its sender.
 *
 * If a connection dies while the other is open, the application is not told. When all of its completions are in, what
 * failed is repeated over the other: messages in order and with their numbers, by which the receiver drops those that
 * it has had, and sets aside those that come too early; reads and writes from their beginning. A write is repeated
 * once the peer has ended its side of the dead connection, too: what the network still holds of the first try can then
 * overwrite nothing.
 */
#include "message.h"

/* ---- Messages out ---- */

struct peer *rail_of(struct peer *p)
{
	return p->state == PEER_READY ? p :
	       p->state == PEER_FAILED && p->other && p->other->state == PEER_READY ? p->other : NULL;
}

struct peer *rail_next(const struct op *op)
{
	struct peer *p = peer_in_rts(op->peer) ? op->peer : rail_of(op->peer), *other = op->peer->other;

	return p && other && other->state == PEER_READY && op->asked / settings.piece % 2 ? other : p;
}

static struct wire *wire_of(const struct buf *b)
{
	return (struct wire *)(uintptr_t)b->data;
}

/* A device that matches tags wants a stand-in after a tagged message. */
static int post(struct peer *rail, struct op *op)
{
	const struct ibv_sge sge = {(uintptr_t)op->bounce->data, op->bounce->len, rail_lkey(rail, op->bounce->region)};
	struct wire *wire = wire_of(op->bounce);
	const bool ahead = rail->by_nic && wire->flags & FLAG_TAGGED;

	wire->flags |= ahead ? FLAG_AHEAD : 0;
	if (peer_begin(rail) || (ahead && inlay_sq_room(&rail->sq) < OFFLOAD_ROOM) ||
	    op_post(rail, op, MLX5_OPCODE_SEND, op->segment, 0, &sge))
		return -FI_EAGAIN;
	if (ahead)
		offload_stand_in(rail, wire->tag);
	return 0;
}

INLAY_ALWAYS void fill(struct buf *b, uint8_t *to, const void *head, size_t len, const struct iovec *iov, size_t iovs)
{
	to = (uint8_t *)mempcpy(to, head, len);
	for (size_t i = 0; i < iovs; i++)
		if (iov[i].iov_len) /* else the base may be NULL */
			to = (uint8_t *)mempcpy(to, iov[i].iov_base, iov[i].iov_len);
	b->len = (uint32_t)(to - b->data);
}

static APART int numbered_send(struct peer *p, const void *head, size_t len, const struct iovec *iov, size_t iovs,
			       void *context, uint32_t done)
{
	const struct wire wire = {0, WIRE_RAIL, (uint16_t)p->attempt, p->sent};
	struct op *op = op_with_buf(p->ep, OP_BOUNCED, p, context, done);
	uint8_t *to = op ? op->bounce->data : NULL;

	if (!op)
		return -FI_EAGAIN;
	op->attempt = p->attempt;
	op->remote_handle = p->sent++;
	if (settings.rails > 1)
		to = (uint8_t *)mempcpy(to, &wire, sizeof(wire));
	fill(op->bounce, to, head, len, iov, iovs);
	if (p->state != PEER_CONNECTING && op->remote_handle == p->resend) {
		rail_retry(op);
		return 0;
	}
	op->next = NULL;
	*(p->queued ? &p->last_queued->next : &p->queued) = op;
	p->last_queued = op;
	return 0;
}

/* Without a number nothing is posted again, and the buffer is all that a message needs. */
int bounced_send(struct peer *p, const void *head, size_t len, const struct iovec *iov, size_t iovs, void *context,
		 uint32_t done)
{
	struct slot *slot;
	struct ibv_sge sge;
	struct buf *b;

	if (INLAY_UNLIKELY(rail_numbers(p)))
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
	*slot = (struct slot){b, SLOT_BUF, 0};
	return 0;
}

void rail_again(struct op *op)
{
	struct peer *p = op->peer;

	if (op->attempt == p->attempt && op->remote_handle < p->resend)
		p->resend = op->remote_handle;
	wait_for_room(p->ep, op);
}

/* The queued message whose turn it is, no longer queued; or NULL */
static struct op *turn(struct peer *p)
{
	struct op *op = p->queued;

	if (!op || op->remote_handle != p->resend)
		return NULL;
	p->queued = op->next;
	return op;
}

void rail_retry(struct op *op)
{
	struct peer *p = op->peer, *rail;

	for (; op; op = turn(p)) {
		if (op->attempt != p->attempt || p->state == PEER_IDLE || peer_lost(p)) {
			op_end(p->ep, op, peer_why(p));
			return;
		}
		rail = op->remote_handle == p->resend ? rail_of(p) : NULL;
		if (!rail || post(rail, op)) {
			wait_for_room(p->ep, op);
			return;
		}
		p->resend++;
	}
	if (p->resend == p->sent)
		peer_sendable(p);
}

void rail_ready(struct peer *p)
{
	struct op *op = turn(p);

	if (op)
		wait_for_room(p->ep, op);
}

/* ---- Peers ---- */

/* NULL: no such peer, no device, or no memory */
static struct peer *named(struct endpoint *ep, const struct name *name)
{
	struct inlay_connect_record place;

	return ep && name->incarnation && !inlay_connect_unpack(&place, name->record, sizeof(name->record), NULL) &&
	       place.type == IBV_QPT_UD ? peer_of_name(ep, name, av_find(ep->av, name)) : NULL;
}

void rail_claim(struct peer *first, const struct name *beyond)
{
	struct peer *p;

	if (!first->beyond.incarnation)
		first->beyond = *beyond; /* the first one holds, so that a stranger costs no more than one connection here */
	p = first->other ? first->other : named(first->ep->second, &first->beyond);
	if (p && (!p->claimed_by || first->listed) &&
	    (!p->seen || p->state == PEER_IDLE || (p->state >= PEER_FAILING && p->err != FI_EAGAIN)))
		p->claimed_by = first; /* p is connected now, or again if both connections had failed */
}

uint64_t rail_tie(const struct peer *p)
{
	const struct peer *first = p->other ? p->other : p->claimed_by;

	return first ? (uint64_t)first->attempt << 32 | first->their_attempt : 0;
}

bool rail_link(struct peer *p, const struct name *beyond, uint64_t tie)
{
	struct peer *first = named(p->ep->first, beyond);

	if (!first || !peer_in_rts(first) || memcmp(&first->beyond, &p->name, sizeof(p->name)) ||
	    tie != ((uint64_t)first->their_attempt << 32 | first->attempt) || (p->other && p->other != first))
		return false;
	p->claimed_by = NULL;
	p->other = first;
	first->other = p;
	if (first->listed)
		peer_welcome(p);
	return true;
}

void rail_forget(struct peer *p)
{
	struct op *op;
	struct buf *b;

	p->sent = p->resend = p->received = 0;
	while ((op = p->queued)) { /* they end when progress comes to them */
		p->queued = op->next;
		wait_for_room(p->ep, op);
	}
	while ((b = p->early)) {
		p->early = b->next;
		buf_give(&p->ep->bounce, b);
	}
}

/* ---- The end of one connection ---- */

/* Over p, which is open, about the other connection. 0 or -FI_EAGAIN */
static int tell(struct peer *p, uint8_t flag, uint16_t attempt)
{
	const struct wire wire = {0, WIRE_RAIL | flag, attempt, 0};
	const struct ibv_sge sge = {(uintptr_t)&wire, sizeof(wire), 0};

	if (peer_begin(p))
		return -FI_EAGAIN;
	peer_slot(p)->kind = SLOT_NONE;
	return peer_post(p, MLX5_OPCODE_SEND, 0, 0, &sge, 1, INLAY_INLINE | INLAY_SIGNALED | INLAY_RING) ? -FI_EAGAIN : 0;
}

bool rail_ended(struct peer *p)
{
	struct peer *dead = p->state < PEER_FAILING ? p->other : p;

	if (!dead || !dead->other)
		return true; /* forgotten since */
	if (dead->state == PEER_FAILED && !dead->ending && dead->other->state == PEER_READY)
		dead->ending = !tell(dead->other, FLAG_END, (uint16_t)dead->attempt);
	return dead->ended || dead->state < PEER_FAILING || peer_lost(p);
}

static int end_arrived(struct peer *from, const struct message *m)
{
	struct peer *dead = from->other;

	if (!dead || from->state >= PEER_FAILING)
		return 0;
	if (m->flags & FLAG_END && dead->seen && m->segments == (uint16_t)dead->their_attempt)
		peer_fail(dead, FI_EHOSTUNREACH, 0);
	if (m->flags & FLAG_ENDED && m->segments == (uint16_t)dead->attempt)
		dead->ended = dead->ending;
	return m->flags & FLAG_END ? tell(from, FLAG_ENDED, m->segments) : 0;
}

/* ---- Messages in ---- */

/* Keeps a message whose turn has not come. */
static int set_early(struct peer *p, struct peer *from, const struct message *m)
{
	struct buf *b, **at = &p->early;

	while (*at && wire_of(*at)->tag < m->tag)
		at = &(*at)->next;
	if (*at && wire_of(*at)->tag == m->tag)
		return 0; /* had before */
	b = p->ep->bounce.count < (uint32_t)settings.buffers ? buf_take(&p->ep->bounce) : NULL; /* the rest are for sends */
	if (!b)
		return -FI_EAGAIN;
	b->peer = from;
	b->attempt = from->attempt;
	b->entry = NO_ENTRY;
	b->len = (uint32_t)(m->len + sizeof(struct wire));
	memcpy(b->data, m->payload - sizeof(struct wire), b->len);
	b->next = *at;
	*at = b;
	return 0;
}

int rail_arrived(struct peer *from, const struct message *m)
{
	struct peer *p = rail_first(from);
	const uint32_t len = (uint32_t)m->len;
	struct buf *b = NULL;
	bool far;
	int r;

	if (m->flags & (FLAG_END | FLAG_ENDED))
		return end_arrived(from, m);
	if (settings.rails < 2 || (p && (!p->seen || m->segments != (uint16_t)p->their_attempt || m->tag < p->received)))
		return 0; /* of an earlier connection, or had before */
	far = p && m->tag - p->received > (uint64_t)settings.receives + PEER_RING;
	if (!p || m->flags != WIRE_RAIL || (len > 1 && m->payload[1] >= WIRE_RAIL) || (far && !p->ep->late_head)) {
		peer_fail(from, FI_ECONNRESET, 0); /* it has told nobody of itself, or cannot have come so far */
		return 0;
	}
	if (m->tag > p->received)
		return far ? -FI_EAGAIN : set_early(p, from, m);
	if (len > SMALL_MESSAGE && !(b = buf_take(&p->ep->bounce)))
		return -FI_EAGAIN;
	r = arrive_any(p->ep, p, b ? memcpy(b->data, m->payload, len) : m->payload, len, b);
	if (b && r != 1)
		buf_give(&p->ep->bounce, b);
	if (r < 0)
		return r;
	p->received++;
	b = p->early;
	if (b && wire_of(b)->tag <= p->received) {
		p->early = b->next;
		progress_set_aside(p->ep, b);
	}
	return 0;
}
