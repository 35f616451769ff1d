/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * untagged.c: untagged receives and messages stand in two lists, in order: the first receive takes the first
 * message, unless it names another sender. A multi-receive stays the first until its buffer is used up.
 */
#include "message.h"

/* The buffer of a multi-receive is the application's again. FI_RECV would say that a message has come. */
static void multi_end(struct endpoint *ep, struct op *op)
{
	if (op->told)
		cq_add(ep->rx_cq, op->context, FI_MULTI_RECV, 0, NULL, 0, 0, FI_ADDR_NOTAVAIL);
	op_give(ep, op);
}

void untagged_part_end(struct endpoint *ep, struct op *op)
{
	if (!--op->refs && op->kind == OP_SPENT)
		multi_end(ep, op);
}

static bool is_from(const struct op *op, const struct peer *p)
{
	return !op->peer || op->peer == p;
}

/* Takes *at out of the list of receives. */
static struct op *unlist(struct endpoint *ep, struct op **at)
{
	struct op *op = *at;

	*at = op->next;
	if (!*at)
		ep->recv_tail = at;
	return op;
}

/* A part of a multi-receive's buffer, for one large message. */
static void read_part(struct endpoint *ep, struct peer *p, const struct message *m, struct op *op, size_t len)
{
	struct op *part = op_take(ep, OP_RECV);

	if (!part) {
		message_failed(ep, op, p, m, 0, FI_ENOMEM);
		fin_later(ep, p, m->handle);
		return;
	}
	part->iovs = 1;
	part->told = op->told;
	part->multi = false;
	part->flags = op->flags;
	part->context = op->context;
	part->buf = op->buf;
	part->len = len;
	part->parent = op;
	op->refs++;
	read_start(ep, p, m, part);
}

/*
 * A message goes into what is left of a multi-receive. When that is the end of it, the message's completion
 * says so, or one of its own that waits for all that is still being read.
 */
static void multi_meet(struct endpoint *ep, struct peer *p, const struct message *m, struct op **at)
{
	struct op *op = *at;
	const size_t len = m->len < op->len ? m->len : op->len;
	const bool last = op->len - len < op->min;

	if (last)
		unlist(ep, at);
	if (m->kind == WIRE_RENDEZVOUS) {
		read_part(ep, p, m, op, len);
	} else {
		memcpy(op->buf, m->payload, len);
		if (m->len > len) {
			message_failed(ep, op, p, m, len, FI_ETRUNC);
		} else if (last && !op->refs) {
			message_told(ep, op, p, FI_MULTI_RECV | message_cq_flags(m->flags), m->len, m->data, m->tag);
			op_give(ep, op);
			return;
		} else {
			message_told(ep, op, p, message_cq_flags(m->flags), m->len, m->data, m->tag);
		}
	}
	op->buf += len;
	op->len -= len;
	if (last && op->refs)
		op->kind = OP_SPENT;
	else if (last)
		multi_end(ep, op);
}

static void meet_untagged(struct endpoint *ep, struct peer *p, const struct message *m, struct op **at)
{
	if ((*at)->multi)
		multi_meet(ep, p, m, at);
	else
		arrive_meet(ep, p, m, unlist(ep, at));
}

int untagged_arrived(struct endpoint *ep, struct peer *p, const struct message *m, const void *bytes, uint32_t len,
			    struct buf *b)
{
	struct op **at;
	struct buf *kept;

	for (at = &ep->recv_head; *at; at = &(*at)->next)
		if (is_from(*at, p)) {
			meet_untagged(ep, p, m, at);
			return 0;
		}
	kept = arrive_keep(ep, p, bytes, len, b);
	if (!kept)
		return -FI_EAGAIN;
	kept->next = NULL;
	*ep->kept_tail = kept;
	ep->kept_tail = &kept->next;
	return kept == b;
}

/* Posts an untagged receive, and gives it what has been kept for it. */
ssize_t untagged_post(struct endpoint *ep, struct op *op)
{
	struct buf **at = &ep->kept_head, *kept;
	struct op **place = ep->recv_tail;
	struct message m;

	*place = op;
	op->next = NULL;
	ep->recv_tail = &op->next;
	while ((kept = *at) && *place == op && !cq_room(ep->rx_cq, 2)) {
		if (!is_from(op, kept->peer)) {
			at = &kept->next;
			continue;
		}
		*at = kept->next;
		if (!*at)
			ep->kept_tail = at;
		message_parse(kept->data, kept->len, &m);
		meet_untagged(ep, kept->peer, &m, place);
		arrive_unkeep(ep, kept);
	}
	if (*place == op && op->peer && op->peer->state >= PEER_FAILING)
		recv_end_early(ep, unlist(ep, place), op->peer->err);
	return 0;
}

int untagged_cancel(struct endpoint *ep, const void *context)
{
	struct op **place;

	for (place = &ep->recv_head; *place; place = &(*place)->next)
		if ((*place)->context == context) {
			recv_end_early(ep, unlist(ep, place), FI_ECANCELED);
			return 0;
		}
	return -FI_ENOENT;
}

void untagged_fail(struct peer *p, int err)
{
	struct op **place = &p->ep->recv_head;

	while (*place)
		if ((*place)->peer == p)
			recv_end_early(p->ep, unlist(p->ep, place), err);
		else
			place = &(*place)->next;
}
