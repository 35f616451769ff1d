/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * arrive.c: messages that have come: any of them, whichever way they take; and messages that are kept until
 * somebody asks for them.
 *
 * A message that nobody has asked for is kept as it came: in its bounce buffer, in whose place the shared
 * receive queue gets another, or copied, if it is short.
 */
#include "message.h"

void arrive_meet(struct endpoint *ep, struct peer *p, const struct message *m, struct op *op)
{
	op->peer = p;
	op->tag = m->tag & ep->tag_bits;
	op->data = m->data;
	op->flags |= message_cq_flags(m->flags);
	op->total = m->len;
	op->want = m->len < op->len ? m->len : op->len;
	if (m->kind == WIRE_RENDEZVOUS) {
		read_start(ep, m, op);
		return;
	}
	if (m->payload)
		message_scatter(op, m->payload, op->want);
	recv_end(ep, op, m->payload ? 0 : FI_EIO);
	op_give(ep, op);
}

void arrive_matched(struct endpoint *ep, struct peer *p, const void *at, uint32_t bytes, struct op *op)
{
	struct message m;

	message_parse(at, bytes, &m);
	arrive_meet(ep, p, &m, op);
}

void arrive_meet_kept(struct endpoint *ep, struct buf *kept, struct op *op)
{
	arrive_matched(ep, kept->peer, kept->data, kept->len, op);
	unkeep(ep, kept);
}

/* Nobody wants it. */
void arrive_discard(struct endpoint *ep, struct buf *kept)
{
	struct message m;

	message_parse(kept->data, kept->len, &m);
	if (m.kind == WIRE_RENDEZVOUS)
		fin_later(ep, kept->peer, m.handle);
	unkeep(ep, kept);
}

static int tagged(struct endpoint *ep, struct peer *p, const struct message *m, const void *at, uint32_t bytes,
		  struct buf *b)
{
	struct buf *place = keep_place(ep, bytes, b);
	struct inlay_match_found found;
	int r;

	if (!place)
		return -FI_EAGAIN;
	if (m->flags & FLAG_AHEAD) { /* its stand-in's place counts */
		r = keep(ep, p, at, bytes, b, place);
		if (p->content)
			unkeep(ep, p->content);
		p->content = place;
		return r;
	}
	do
		r = inlay_match_arrive(&ep->match, (m->tag & ep->tag_bits) | p->source, (uintptr_t)place, &found);
	while (r == -EAGAIN && !match_grow(ep));
	if (r == 1)
		arrive_meet(ep, p, m, (struct op *)(uintptr_t)found.cookie);
	return r == 1 ? 0 : r ? -FI_EAGAIN : keep(ep, p, at, bytes, b, place);
}

int arrive_any(struct endpoint *ep, struct peer *p, const void *at, uint32_t bytes, struct buf *b)
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
