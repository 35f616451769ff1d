/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * recv.c: receives are posted, cancelled, and fail with the peer that they name; peek, claim and discard.
 */
#include "message.h"

/* ---- Posting ---- */

/* A receive, not yet posted, of one buffer; NULL: no memory. kind: FI_TAGGED or FI_MSG */
INLAY_ALWAYS struct op *new_recv(struct endpoint *ep, void *buf, size_t len, void *context, uint64_t kind, bool told)
{
	struct op *op = op_take(ep, OP_RECV);

	if (INLAY_UNLIKELY(!op))
		return NULL;
	op->iovs = 1;
	op->told = told;
	op->multi = false;
	op->flags = FI_RECV | kind;
	op->context = context;
	op->buf = (uint8_t *)buf;
	op->len = len;
	return op;
}

void recv_end_early(struct endpoint *ep, struct op *op, int err)
{
	struct fi_cq_err_entry e;

	memset(&e, 0, sizeof(e));
	e.op_context = op->context;
	e.flags = op->flags;
	e.buf = op->buf;
	e.err = err;
	cq_add_error(ep->rx_cq, &e);
	op->told = false;
	if (op->multi && op->refs)
		op->kind = OP_SPENT;
	else
		op_give(ep, op);
}

/* A receive was posted that only a peer that has failed could match. */
static APART void vain(struct endpoint *ep, struct op *op, int err)
{
	struct inlay_match_found found;

	inlay_match_remove(&ep->match, op->match, &found);
	recv_end_early(ep, op, err);
}

/* What a receive is matched by. from: the sender that it names, or NULL. 0 or a negative errno. */
static int key_of(struct endpoint *ep, fi_addr_t source, uint64_t tag, uint64_t ignore, uint64_t *key, uint64_t *mask,
		  const struct peer **from)
{
	*from = NULL;
	*key = tag & ep->tag_bits;
	*mask = ~ignore & ep->tag_bits;
	if (ep->ignored & ~ignore && match_ignore_less(ep, ignore))
		return -FI_EAGAIN;
	if (!ep->directed || source == FI_ADDR_UNSPEC)
		return 0;
	*from = peer_of(ep, source);
	if (!*from)
		return -FI_EADDRNOTAVAIL;
	*key |= (*from)->source;
	*mask |= ~ep->tag_bits;
	return 0;
}

/* Posts any receive, or gives it the message that is there. */
static CALLED ssize_t post_tagged(struct endpoint *ep, struct op *op, fi_addr_t source, uint64_t tag, uint64_t ignore)
{
	struct inlay_match_found found;
	const struct peer *from;
	uint64_t key, mask;
	int r = key_of(ep, source, tag, ignore, &key, &mask, &from);

	memset(&found, 0, sizeof(found));
	if (!r)
		r = cq_room(ep->rx_cq, 2);
	if (!r) {
		r = inlay_match_post(&ep->match, key, mask, (uintptr_t)op, &found);
		if (r == -EAGAIN && !match_grow(ep))
			r = inlay_match_post(&ep->match, key, mask, (uintptr_t)op, &found);
	}
	if (r < 0) {
		op_give(ep, op);
		return r;
	}
	op->match = found.handle;
	if (r)
		arrive_meet_kept(ep, (struct buf *)(uintptr_t)found.cookie, op);
	else if (from && from->state >= PEER_FAILING)
		vain(ep, op, from->err);
	return 0;
}

/*
 * fi_trecv. The short way is that of a receive that ignores what all ignore, and names its sender where
 * senders are matched: the table then finds its message by one look-up.
 */
INLAY_ALWAYS ssize_t recv_one(struct endpoint *ep, void *buf, size_t len, fi_addr_t source, uint64_t tag,
			      uint64_t ignore, void *context)
{
	struct op *op = new_recv(ep, buf, len, context, FI_TAGGED, ep->rx_told);
	const struct peer *from = &ep->anybody;
	struct inlay_match_found found;
	int r;

	if (INLAY_UNLIKELY(!op))
		return -FI_EAGAIN;
	if (INLAY_LIKELY(ep->directed))
		from = INLAY_LIKELY(source < ep->addrs) ? ep->by_addr[source] : NULL;
	if (INLAY_UNLIKELY(!from) || INLAY_UNLIKELY(ignore != ep->ignored) || INLAY_UNLIKELY(cq_room(ep->rx_cq, 2)))
		return post_tagged(ep, op, source, tag, ignore);
	r = inlay_match_post(&ep->match, (tag & ep->tag_bits) | from->source, INLAY_MATCH_EXACT, (uintptr_t)op, &found);
	if (INLAY_UNLIKELY(r < 0))
		return post_tagged(ep, op, source, tag, ignore);
	op->match = found.handle;
	if (r)
		arrive_meet_kept(ep, (struct buf *)(uintptr_t)found.cookie, op);
	else if (INLAY_UNLIKELY(from->state >= PEER_FAILING))
		vain(ep, op, from->err);
	return 0;
}

ssize_t recv_tagged(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t source, uint64_t tag,
		    uint64_t ignore, void *context)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid);

	(void)desc;
	enter(ep);
	return leave(ep, recv_one(ep, buf, len, source, tag, ignore, context));
}

/* ---- Peek, claim, discard ---- */

static void no_message(struct endpoint *ep, void *context, uint64_t tag)
{
	struct fi_cq_err_entry e;

	memset(&e, 0, sizeof(e));
	e.op_context = context;
	e.flags = FI_RECV | FI_TAGGED;
	e.tag = tag;
	e.err = FI_ENOMSG;
	cq_add_error(ep->rx_cq, &e);
}

static ssize_t peek(struct endpoint *ep, fi_addr_t source, uint64_t tag, uint64_t ignore, void *context, uint64_t flags)
{
	struct inlay_match_found found;
	const struct peer *from;
	uint64_t key, mask;
	struct message m;
	struct buf *kept;
	int err = key_of(ep, source, tag, ignore, &key, &mask, &from);

	if (!err)
		err = cq_room(ep->rx_cq, 1);
	if (err)
		return err;
	if (!inlay_match_probe(&ep->match, key, mask, &found)) {
		no_message(ep, context, tag);
		return 0;
	}
	kept = (struct buf *)(uintptr_t)found.cookie;
	message_parse(kept->data, kept->len, &m);
	cq_add(ep->rx_cq, context, FI_RECV | FI_TAGGED | message_cq_flags(m.flags), m.len, NULL, m.data, m.tag,
	       kept->peer->addr);
	if (flags & (FI_CLAIM | FI_DISCARD))
		inlay_match_remove(&ep->match, found.handle, &found);
	if (flags & FI_DISCARD)
		arrive_discard(ep, kept);
	else if (flags & FI_CLAIM)
		((struct fi_context *)context)->internal[0] = kept;
	return 0;
}

/* What a peek has claimed, under the same context. */
static ssize_t claim(struct endpoint *ep, struct op *op, uint64_t flags)
{
	struct buf *kept = (struct buf *)((struct fi_context *)op->context)->internal[0];
	int err = cq_room(ep->rx_cq, 2);

	if (!err && !(flags & FI_DISCARD)) {
		arrive_meet_kept(ep, kept, op);
		return 0;
	}
	if (!err) {
		arrive_discard(ep, kept);
		if (op->told)
			cq_add(ep->rx_cq, op->context, op->flags, 0, NULL, 0, 0, FI_ADDR_NOTAVAIL);
	}
	op_give(ep, op);
	return err;
}

/* ---- Any receive ---- */

ssize_t recv_iov(struct endpoint *ep, const struct iovec *iov, size_t iovs, fi_addr_t source, uint64_t tag,
		 uint64_t ignore, void *context, uint64_t flags)
{
	struct peer *from = NULL;
	struct op *op;
	size_t len = 0, i;

	if (flags & FI_PEEK)
		return flags & FI_TAGGED ? peek(ep, source, tag, ignore, context, flags) : -FI_EOPNOTSUPP;
	if (iovs > IOV_LIMIT || (flags & FI_MULTI_RECV && (iovs != 1 || flags & FI_TAGGED)))
		return -FI_EINVAL;
	if (flags & FI_MSG && ep->directed && source != FI_ADDR_UNSPEC) {
		from = peer_of(ep, source);
		if (!from)
			return -FI_EADDRNOTAVAIL;
	}
	for (i = 0; i < iovs; i++)
		len += iov[i].iov_len;
	op = new_recv(ep, iovs ? iov[0].iov_base : NULL, len, context, flags & (FI_TAGGED | FI_MSG),
		      !ep->rx_selective || flags & FI_COMPLETION);
	if (!op)
		return -FI_EAGAIN;
	if (iovs > 1) {
		op->iovs = (uint8_t)iovs;
		memcpy(op->iov, iov, iovs * sizeof(*iov));
	}
	if (flags & FI_CLAIM)
		return claim(ep, op, flags);
	if (flags & FI_TAGGED)
		return post_tagged(ep, op, source, tag, ignore);
	op->peer = from;
	op->multi = (flags & FI_MULTI_RECV) != 0;
	op->min = ep->min_multi_recv;
	op->refs = 0;
	return untagged_post(ep, op);
}

/* ---- The end ---- */

void recv_end(struct endpoint *ep, struct op *op, int err)
{
	struct message m;

	memset(&m, 0, sizeof(m));
	m.tag = op->tag;
	m.data = op->data;
	m.len = op->total;
	if (!err && op->total > op->want)
		err = FI_ETRUNC;
	if (err)
		message_failed(ep, op, op->peer, &m, err == FI_ETRUNC ? op->want : 0, err);
	else
		message_told(ep, op, op->peer, 0, m.len, m.data, m.tag);
	if (op->parent) {
		untagged_part_end(ep, op->parent);
		op->parent = NULL;
	}
}

int recv_cancel(struct endpoint *ep, const void *context)
{
	struct inlay_match_found found;
	uint32_t at = 0;

	if (!untagged_cancel(ep, context))
		return 0;
	while (inlay_match_next(&ep->match, &at, &found)) {
		struct op *op = (struct op *)(uintptr_t)found.cookie;

		if (found.kind == INLAY_MATCH_POSTED && op->context == context) {
			inlay_match_remove(&ep->match, found.handle, &found);
			recv_end_early(ep, op, FI_ECANCELED);
			return 0;
		}
	}
	return -FI_ENOENT;
}

void recv_fail(struct peer *p, int err)
{
	struct endpoint *ep = p->ep;
	struct inlay_match_found found;
	uint32_t at = 0;

	untagged_fail(p, err);
	while (ep->directed && inlay_match_next(&ep->match, &at, &found)) {
		if (found.kind != INLAY_MATCH_POSTED || !(found.mask & ~ep->tag_bits) ||
		    (found.tag & ~ep->tag_bits) != p->source)
			continue;
		inlay_match_remove(&ep->match, found.handle, &found);
		recv_end_early(ep, (struct op *)(uintptr_t)found.cookie, err);
	}
}
