/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * arrive.c: messages that have come: any of them, whichever way they take; and messages that are kept until
 * somebody asks for them.
 *
 * A message that nobody has asked for is kept as it came: in its bounce buffer, in whose place the shared
 * receive queue gets another, or copied, if it is short.
 */
#include "message.h"

/* Returns what a message is kept in, or NULL: no memory. */
struct buf *arrive_keep(struct endpoint *ep, struct peer *p, const void *at, uint32_t bytes, struct buf *b)
{
	struct buf *kept;

	if (b && bytes > SMALL_MESSAGE) {
		if (!ep->spare)
			ep->spare = buf_take(&ep->bounce);
		kept = ep->spare ? b : NULL;
	} else {
		kept = buf_take(&ep->small);
		if (kept)
			inlay_copy(kept->data, at, bytes);
	}
	if (!kept)
		return NULL;
	kept->peer = p;
	kept->len = bytes;
	return kept;
}

/* It was asked for. */
void arrive_unkeep(struct endpoint *ep, struct buf *kept)
{
	buf_give(kept->size == SMALL_MESSAGE ? &ep->small : &ep->bounce, kept);
}

/* A message meets its receive. */
CALLED void arrive_meet(struct endpoint *ep, struct peer *p, const struct message *m, struct op *op)
{
	if (m->kind == WIRE_RENDEZVOUS) {
		read_start(ep, p, m, op);
		return;
	}
	if (m->len <= op->len) {
		message_scatter(op, m->payload, m->len);
		message_told(ep, op, p, message_cq_flags(m->flags), m->len, m->data, m->tag);
	} else {
		message_scatter(op, m->payload, op->len);
		message_failed(ep, op, p, m, op->len, FI_ETRUNC);
	}
	op_give(ep, op);
}

void arrive_matched(struct endpoint *ep, struct peer *p, const void *at, uint32_t bytes, struct op *op)
{
	struct message m;

	message_parse(at, bytes, &m);
	arrive_meet(ep, p, &m, op);
}

/* A kept one does. */
CALLED void arrive_meet_kept(struct endpoint *ep, struct buf *kept, struct op *op)
{
	if (!message_usual(kept->data, kept->len) || !message_deliver(ep, kept->peer, kept->data, kept->len, op))
		arrive_matched(ep, kept->peer, kept->data, kept->len, op);
	arrive_unkeep(ep, kept);
}

/* Nobody wants it. */
void arrive_discard(struct endpoint *ep, struct buf *kept)
{
	struct message m;

	message_parse(kept->data, kept->len, &m);
	if (m.kind == WIRE_RENDEZVOUS)
		fin_later(ep, kept->peer, m.handle);
	arrive_unkeep(ep, kept);
}

CALLED int arrive_kept(struct endpoint *ep, struct peer *p, const void *at, uint32_t bytes, struct buf *b,
		       uint64_t handle)
{
	struct buf *kept = arrive_keep(ep, p, at, bytes, b);
	struct inlay_match_found found;

	if (INLAY_UNLIKELY(!kept)) {
		inlay_match_remove(&ep->match, handle, &found);
		return -FI_EAGAIN;
	}
	inlay_match_set_cookie(&ep->match, handle, (uintptr_t)kept);
	return kept == b;
}

static int tagged(struct endpoint *ep, struct peer *p, const struct message *m, const void *at, uint32_t bytes,
		  struct buf *b)
{
	const uint64_t key = (m->tag & ep->tag_bits) | p->source;
	struct inlay_match_found found;
	int r = inlay_match_arrive(&ep->match, key, 0, &found);

	if (r == -EAGAIN && !match_grow(ep))
		r = inlay_match_arrive(&ep->match, key, 0, &found);
	if (r == 1)
		arrive_meet(ep, p, m, (struct op *)(uintptr_t)found.cookie);
	return r == 1 ? 0 : r ? -FI_EAGAIN : arrive_kept(ep, p, at, bytes, b, found.handle);
}

CALLED int arrive_any(struct endpoint *ep, struct peer *p, const void *at, uint32_t bytes, struct buf *b)
{
	struct message m;
	int r;

	if (message_parse(at, bytes, &m)) {
		WARN(FI_LOG_EP_DATA, "a message of %u bytes is not one of this provider's\n", bytes);
		return 0;
	}
	switch (m.kind) {
	case WIRE_EAGER:
	case WIRE_RENDEZVOUS:
		r = m.flags & FLAG_TAGGED ? tagged(ep, p, &m, at, bytes, b) : untagged_arrived(ep, p, &m, at, bytes, b);
		if (m.flags & FLAG_HANDLE && m.kind == WIRE_EAGER && r >= 0)
			fin_later(ep, p, m.handle);
		return r;
	case WIRE_FIN:
		send_finished(ep, p, m.tag);
		return 0;
	case WIRE_WRITTEN:
		return rma_arrived(ep, p, &m);
	case WIRE_ATOMIC:
	case WIRE_ANSWER:
		return atomic_arrived(ep, p, &m);
	default:
		WARN(FI_LOG_EP_DATA, "a message of unknown kind %u\n", m.kind);
		return 0;
	}
}
