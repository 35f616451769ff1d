/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * message.h: delivers a message to its receive, for the files that match the two: progress.c (a
 * message arrives), recv.c (a receive is posted) and untagged.c.
 */
#ifndef FABRIC_MESSAGE_H_
#define FABRIC_MESSAGE_H_

#include "fabric.h"

/* Checks a message against the bytes received. 0, or -FI_EINVAL: not one of ours. */
static inline int message_parse(const void *at, uint32_t bytes, uint32_t attempt, struct message *m)
{
	const struct wire *wire = (const struct wire *)at;
	struct segment segment;
	uint32_t head, i;

	*m = (struct message){.attempt = attempt};
	if (bytes < sizeof(*wire))
		return -FI_EINVAL;
	if (wire->op)
		return offload_parse(at, bytes, m);
	m->kind = wire->flags & WIRE_KINDS;
	m->flags = wire->flags;
	m->segments = wire->segments;
	m->tag = wire->tag;
	head = header_bytes(m->flags);
	if (bytes < head)
		return -FI_EINVAL;
	m->payload = (const uint8_t *)at + head;
	m->len = bytes - head;
	if (m->flags & FLAG_DATA)
		memcpy(&m->data, at + sizeof(*wire), 8);
	if (m->flags & FLAG_HANDLE)
		memcpy(&m->handle, m->payload - 8, 8);
	if (m->kind != WIRE_RENDEZVOUS)
		return 0;
	if (m->segments > IOV_LIMIT || m->len != m->segments * sizeof(segment) || !(m->flags & FLAG_HANDLE))
		return -FI_EINVAL;
	for (i = 0, m->len = 0; i < m->segments; i++, m->len += segment.len) {
		memcpy(&segment, m->payload + i * sizeof(segment), sizeof(segment));
		if (segment.len > MAX_MESSAGE)
			return -FI_EINVAL;
	}
	return 0;
}

/* Copies len bytes to the start of an operation's buffers. */
static inline void message_scatter(const struct op *op, const uint8_t *from, size_t len)
{
	size_t n;

	if (op->iovs == 1 && len) { /* without bytes the buffer may be NULL */
		memcpy(op->buf, from, len);
		return;
	}
	for (uint32_t i = 0; i < op->iovs && len; i++, from += n, len -= n) {
		n = op->iov[i].iov_len < len ? op->iov[i].iov_len : len;
		memcpy(op->iov[i].iov_base, from, n);
	}
}

/* ---- The short path ---- */

/* Whether a message is of the usual kind: tagged, with its payload, and no FIN wanted. */
INLAY_ALWAYS bool message_usual(const void *at)
{
	uint32_t head;

	memcpy(&head, at, sizeof(head));
	return INLAY_LIKELY((head & ~((uint32_t)FLAG_DATA << 8)) == (WIRE_EAGER | FLAG_TAGGED << 8));
}

/* Fills a plain receive, and its completion, with at most `most` bytes. False: above `room`. */
INLAY_ALWAYS bool message_put(void *entry, const void *at, uint8_t flags, uint32_t bytes, uint32_t most, void *to,
			      size_t room, void *context)
{
	struct fi_cq_tagged_entry *e = (struct fi_cq_tagged_entry *)entry;
	const struct wire *wire = (const struct wire *)at;
	const uint8_t *payload = (const uint8_t *)(wire + 1);
	uint64_t data = 0, told = FI_RECV | FI_TAGGED;
	size_t len = bytes - sizeof(*wire);

	if (INLAY_LIKELY(flags & FLAG_DATA)) {
		memcpy(&data, payload, 8);
		told |= FI_REMOTE_CQ_DATA;
		payload += 8;
		len -= 8;
	}
	if (len > most)
		__builtin_unreachable();
	if (INLAY_UNLIKELY(len > room))
		return false;
	e->op_context = context; /* one by one: as one initialiser they take more instructions */
	e->flags = told;
	e->len = len;
	e->buf = to;
	e->data = data;
	e->tag = wire->tag;
	if (INLAY_LIKELY(len <= 64))
		inlay_copy(to, payload, len);
	else
		memcpy(to, payload, len);
	return true;
}

/* ---- Unexpected messages ---- */

/* The buffer for keeping a message: b or another; NULL: no memory. */
INLAY_ALWAYS struct buf *keep_place(struct endpoint *ep, uint32_t bytes, struct buf *b)
{
	if (b && bytes > SMALL_MESSAGE) {
		if (!ep->spare && ep->bounce.count < (uint32_t)settings.buffers) /* rest: sends */
			ep->spare = buf_take(&ep->bounce);
		return ep->spare ? b : NULL;
	}
	return INLAY_UNLIKELY(!ep->small.free) && pool_grow(&ep->small) ? NULL : ep->small.free;
}

/* Keeps a message in `place`. Returns whether that is b. */
INLAY_ALWAYS int keep(struct endpoint *ep, struct peer *p, const void *at, uint32_t bytes, struct buf *b,
		      struct buf *place)
{
	place->peer = p;
	place->attempt = p->attempt;
	place->len = bytes;
	if (place == b)
		return 1;
	ep->small.free = place->next;
	inlay_copy(place->data, at, bytes);
	return 0;
}

/* A receive has asked for it. */
INLAY_ALWAYS void unkeep(struct endpoint *ep, struct buf *kept)
{
	buf_give(INLAY_LIKELY(kept->size == SMALL_MESSAGE) ? &ep->small : &ep->bounce, kept);
}

#endif
