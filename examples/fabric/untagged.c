/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * untagged.c: two lists hold untagged receives and messages, in order. The first receive takes the
 * first message, unless it names another sender. A multi-receive is first until its buffer is full.
 */
#include "message.h"

void untagged_part_end(struct endpoint *ep, struct op *op)
{
	if (--op->refs || op->kind != OP_SPENT)
		return;
	if (op->told && !cq_room(ep->rx_cq, 1)) /* FI_RECV would mean that a message has come */
		cq_add(ep->rx_cq, op->context, FI_MULTI_RECV, 0, NULL, 0, 0, FI_ADDR_NOTAVAIL);
	op_give(ep, op);
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

/* Delivers a message to the next part of a multi-receive, with an operation of its own. */
static void multi_meet(struct endpoint *ep, struct peer *p, const struct message *m, struct op **at)
{
	struct op *op = *at, *part = op_take(ep, OP_RECV);

	if (!part) {
		cq_fail(ep->rx_cq, op->context, op->flags, FI_ENOMEM, 0);
		if (m->kind == WIRE_RENDEZVOUS)
			fin_later(ep, p, m);
		return;
	}
	part->iovs = 1;
	part->told = op->told;
	part->plain = false;
	part->flags = op->flags;
	part->mr[0] = op->mr[0];
	part->context = op->context;
	part->buf = op->buf;
	part->len = m->len < op->len ? m->len : op->len;
	part->parent = op;
	op->refs++;
	op->buf += part->len;
	op->len -= part->len;
	if (op->len < op->min)
		unlist(ep, at)->kind = OP_SPENT;
	arrive_meet(ep, p, m, part);
}

static void meet_untagged(struct endpoint *ep, struct peer *p, const struct message *m, struct op **at)
{
	if ((*at)->kind == OP_MULTI)
		multi_meet(ep, p, m, at);
	else
		arrive_meet(ep, p, m, unlist(ep, at));
}

int untagged_arrived(struct endpoint *ep, struct peer *p, const struct message *m, const void *bytes, uint32_t len,
			    struct buf *b)
{
	struct op **at;
	struct buf *kept;
	int r;

	for (at = &ep->recv_head; *at; at = &(*at)->next)
		if (!(*at)->peer || (*at)->peer == p) {
			meet_untagged(ep, p, m, at);
			return 0;
		}
	kept = keep_place(ep, len, b);
	if (!kept)
		return -FI_EAGAIN;
	r = keep(ep, p, bytes, len, b, kept);
	kept->next = NULL;
	*ep->kept_tail = kept;
	ep->kept_tail = &kept->next;
	return r;
}

/* Posts an untagged receive, and delivers kept messages to it. */
ssize_t untagged_post(struct endpoint *ep, struct op *op)
{
	struct buf **at = &ep->kept_head, *kept;
	struct op **place = ep->recv_tail;
	struct message m;

	*place = op;
	op->next = NULL;
	ep->recv_tail = &op->next;
	while ((kept = *at) && *place == op && !cq_room(ep->rx_cq, 2)) {
		if (op->peer && op->peer != kept->peer) {
			at = &kept->next;
			continue;
		}
		*at = kept->next;
		if (!*at)
			ep->kept_tail = at;
		message_parse(kept->data, kept->len, kept->attempt, &m);
		meet_untagged(ep, kept->peer, &m, place);
		unkeep(ep, kept);
	}
	if (*place == op && op->peer && peer_lost(op->peer))
		recv_end_early(ep, unlist(ep, place), op->peer->err);
	return 0;
}

int untagged_end(struct endpoint *ep, const struct peer *p, const void *context, int err)
{
	struct op **place = &ep->recv_head;
	int none = -FI_ENOENT;

	while (*place && (p || none)) {
		if (p ? (*place)->peer != p : (*place)->context != context) {
			place = &(*place)->next;
			continue;
		}
		recv_end_early(ep, unlist(ep, place), err);
		none = 0;
	}
	return none;
}
