/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * message.h: what a receive and its message do when they have met, for the files that bring them together:
 * progress.c (a message comes), recv.c (a receive is posted), untagged.c.
 */
#ifndef FABRIC_MESSAGE_H_
#define FABRIC_MESSAGE_H_

#include "fabric.h"

/* Checks a message against the bytes that came. 0, or -FI_EINVAL: not one of ours. */
static inline int message_parse(const void *at, uint32_t bytes, struct message *m)
{
	const struct wire *wire = (const struct wire *)at;
	struct segment segment;
	uint32_t head, i;

	memset(m, 0, sizeof(*m));
	if (bytes < sizeof(*wire))
		return -FI_EINVAL;
	m->kind = wire->kind;
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

/* len bytes into a receive's buffers, from the first on. */
INLAY_ALWAYS void message_scatter(const struct op *op, const uint8_t *from, size_t len)
{
	size_t n;
	uint32_t i;

	if (INLAY_LIKELY(op->iovs == 1)) {
		if (INLAY_LIKELY(len <= 64))
			inlay_copy(op->buf, from, len);
		else
			memcpy(op->buf, from, len);
		return;
	}
	for (i = 0; i < op->iovs && len; i++, from += n, len -= n) {
		n = op->iov[i].iov_len < len ? op->iov[i].iov_len : len;
		memcpy(op->iov[i].iov_base, from, n);
	}
}

/* The completion of a receive, but for the end of its operation. */
INLAY_ALWAYS void message_told(struct endpoint *ep, const struct op *op, const struct peer *p, uint64_t flags,
			       size_t len, uint64_t data, uint64_t tag)
{
	if (INLAY_LIKELY(op->told))
		cq_add(ep->rx_cq, op->context, op->flags | flags, len, op->buf, data, tag, p->addr);
	if (INLAY_UNLIKELY(ep->counters[COUNT_RECV] != NULL))
		counter_rx(ep, 0);
}

INLAY_ALWAYS uint64_t message_cq_flags(uint8_t flags)
{
	return flags & FLAG_DATA ? FI_REMOTE_CQ_DATA : 0;
}

/* The completion of a receive of which only `there` bytes came, or none. */
static inline void message_failed(struct endpoint *ep, const struct op *op, const struct peer *p,
				  const struct message *m, size_t there, int err)
{
	struct fi_cq_err_entry e;

	memset(&e, 0, sizeof(e));
	e.op_context = op->context;
	e.flags = op->flags | message_cq_flags(m->flags);
	e.len = there;
	e.buf = op->buf;
	e.data = m->data;
	e.tag = m->tag;
	e.olen = m->len - there;
	e.err = err;
	e.prov_errno = err == FI_ETRUNC ? 0 : p->syndrome;
	if (ep->counters[COUNT_RECV])
		counter_rx(ep, err);
	cq_add_error(ep->rx_cq, &e);
}

/* Whether a message is of the usual kind: tagged, its payload here, 8 bytes or more, nobody waiting for FIN. */
INLAY_ALWAYS bool message_usual(const void *at, uint32_t bytes)
{
	const struct wire *wire = (const struct wire *)at;

	return INLAY_LIKELY(bytes >= sizeof(*wire) + 8) && INLAY_LIKELY(wire->kind == WIRE_EAGER) &&
	       INLAY_LIKELY((wire->flags & ~FLAG_DATA) == FLAG_TAGGED);
}

/* A usual message goes into its receive. False: it does not fit. */
INLAY_ALWAYS bool message_deliver(struct endpoint *ep, const struct peer *p, const void *at, uint32_t bytes,
				  struct op *op)
{
	const struct wire *wire = (const struct wire *)at;
	const uint8_t *payload = (const uint8_t *)(wire + 1);
	const uint64_t tag = wire->tag;
	uint64_t data = 0, flags = 0;
	size_t len = bytes - sizeof(*wire);

	if (wire->flags & FLAG_DATA) {
		memcpy(&data, payload, 8);
		flags = FI_REMOTE_CQ_DATA;
		payload += 8;
		len -= 8;
	}
	if (INLAY_UNLIKELY(len > op->len))
		return false;
	message_scatter(op, payload, len);
	message_told(ep, op, p, flags, len, data, tag);
	op_give(ep, op);
	return true;
}

#endif
