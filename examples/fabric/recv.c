/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * recv.c: posting and ending receives; peek, claim and discard.
 *
 * 64 bits of a tagged receive are matched. With FI_DIRECTED_RECV the upper ep->source_bits of them
 * are the sender's number, and those of the tag (ep->tag_bits) are below; else all are the tag's.
 *
 * The table is told which bits all receives ignore, so that a receive that ignores no others is
 * exact. The first receive sets them; one that ignores fewer rebuilds the table.
 */
#include "message.h"

#ifndef MATCH_ENTRIES /* fewer in the fuzzer */
#define MATCH_ENTRIES 4096u
#endif

int match_init(struct endpoint *ep)
{
	const size_t size = inlay_match_size(MATCH_ENTRIES);

	ep->ignored = UINT64_MAX;
	ep->match_entries = MATCH_ENTRIES;
	ep->match_memory = aligned_alloc(64, size);
	if (!ep->match_memory)
		return -FI_ENOMEM;
	return inlay_match_init(&ep->match, ep->match_memory, size, MATCH_ENTRIES, 0, ep->seed);
}

APART int match_grow(struct endpoint *ep)
{
	uint32_t entries = 2 * ep->match_entries;
	size_t size = inlay_match_size(entries);
	void *memory = size ? aligned_alloc(64, size) : NULL;

	if (!memory || inlay_match_grow(&ep->match, memory, size, entries)) {
		free(memory);
		return -FI_EAGAIN;
	}
	free(ep->match_memory);
	ep->match_memory = memory;
	ep->match_entries = entries;
	return 0;
}

static int by_age(const void *a, const void *b)
{
	const struct inlay_match_found *x = (const struct inlay_match_found *)a;
	const struct inlay_match_found *y = (const struct inlay_match_found *)b;

	return x->handle < y->handle ? -1 : 1;
}

/* Bits that all receives ignore: no more than before, and than this. 0 or -FI_EAGAIN. */
static APART int match_ignore_less(struct endpoint *ep, uint64_t ignore)
{
	struct inlay_match_found *all = (struct inlay_match_found *)malloc((ep->match_entries + 1) * sizeof(*all));
	const size_t size = inlay_match_size(ep->match_entries);
	void *memory = aligned_alloc(64, size);
	struct inlay_match_found found;
	uint32_t at = 0, n = 0, i;

	if (!all || !memory) {
		free(all);
		free(memory);
		return -FI_EAGAIN;
	}
	while (inlay_match_next(&ep->match, &at, &all[n]))
		n++;
	qsort(all, n, sizeof(*all), by_age);
	ep->ignored &= ignore & ep->tag_bits;
	inlay_match_init(&ep->match, memory, size, ep->match_entries, ep->ignored, ep->seed);
	free(ep->match_memory);
	ep->match_memory = memory;
	for (i = 0; i < n; i++)
		if (all[i].kind == INLAY_MATCH_UNEXPECTED)
			inlay_match_arrive(&ep->match, all[i].tag, all[i].cookie, &found);
		else
			inlay_match_post(&ep->match, all[i].tag, all[i].mask, all[i].cookie, &found);
	free(all);
	return 0;
}

/* ---- Posting ---- */

void recv_end_early(struct endpoint *ep, struct op *op, int err)
{
	cq_fail(ep->rx_cq, op->context, op->flags, err, 0)->buf = op->buf;
	op_let_go(ep, op);
	op->told = false;
	if (op->kind == OP_MULTI && op->refs)
		op->kind = OP_SPENT;
	else
		op_give(ep, op);
}

/* Ends a posted receive before a message came. */
static void end_one(struct endpoint *ep, struct inlay_match_found *found, int err)
{
	if (ep->offload) {
		offload_end(ep, found->handle, err);
		return;
	}
	inlay_match_remove(&ep->match, found->handle, found);
	recv_end_early(ep, (struct op *)(uintptr_t)found->cookie, err);
}

/* Posts any receive, or delivers a kept message to it. */
static ssize_t post_any(struct endpoint *ep, struct op *op, uint64_t key, uint64_t mask, const struct peer *from)
{
	struct inlay_match_found found = {0};
	int r;

	do
		r = ep->offload ? offload_post(ep, op, key, mask, &found) :
				  inlay_match_post(&ep->match, key, mask, (uintptr_t)op, &found);
	while (r == -EAGAIN && !match_grow(ep));
	if (r < 0) {
		op_give(ep, op);
		return r;
	}
	if (r)
		arrive_meet_kept(ep, (struct buf *)(uintptr_t)found.cookie, op);
	else if (from && peer_lost(from)) /* which no other sender can match */
		end_one(ep, &found, from->err);
	return 0;
}

/* ---- The short path ---- */

/* Takes the next free op, which there must be, for a plain receive. */
INLAY_ALWAYS struct op *op_plain(struct endpoint *ep, void *buf, size_t len, void *desc, void *context)
{
	struct op *op = ep->free_ops;

	ep->free_ops = op->next;
	op->kind = OP_RECV;
	op->iovs = 1;
	op->told = true;
	op->flags = FI_RECV | FI_TAGGED;
	op->context = context;
	op->buf = (uint8_t *)buf;
	op->len = len;
	op->mr[0] = (struct mr *)desc;
	op->plain = true;
	return op;
}

/* Posts a plain receive that no kept message matches. There is a free op. */
static CALLED ssize_t post_plain(struct endpoint *ep, void *buf, size_t len, void *desc, void *context, uint64_t key)
{
	struct op *op = op_plain(ep, buf, len, desc, context);
	struct inlay_match_found found;

	if (INLAY_LIKELY(!inlay_match_add(&ep->match, key, (uintptr_t)op, &found)))
		return 0;
	return post_any(ep, op, key, INLAY_MATCH_EXACT, NULL);
}

/* Posts a plain receive while messages are kept. */
static CALLED ssize_t post_kept(struct endpoint *ep, void *buf, size_t len, void *desc, void *context, uint64_t key)
{
	struct cq *cq = ep->rx_cq;
	struct inlay_match_found found;
	struct cq_entry *entry;
	struct buf *kept;

	if (INLAY_UNLIKELY(cq_room(cq, 2)))
		return -FI_EAGAIN;
	if (!inlay_match_take(&ep->match, key, INLAY_MATCH_UNEXPECTED, &found))
		return post_plain(ep, buf, len, desc, context, key);
	kept = (struct buf *)(uintptr_t)found.cookie;
	entry = (struct cq_entry *)(void *)cq->last; /* of our array: no read is under way */
	if (message_usual(kept->data) &&
	    INLAY_LIKELY(message_put(entry, kept->data, kept->data[1], kept->len, UINT32_MAX, buf, len, context))) {
		entry->source = kept->peer->addr;
		cq->last = (uint8_t *)(entry + 1);
		cq->drained = false;
		unkeep(ep, kept);
	} else {
		arrive_meet_kept(ep, kept, op_plain(ep, buf, len, desc, context));
	}
	return 0;
}

/* Posts a plain receive after the front receive. */
static CALLED ssize_t post_second(struct endpoint *ep, void *buf, size_t len, void *desc, void *context, uint64_t key)
{
	recv_settle(ep->rx_cq);
	return post_plain(ep, buf, len, desc, context, key);
}

APART void recv_settle(struct cq *cq)
{
	struct endpoint *ep = cq->front;
	struct inlay_match_found found;

	if (ep) /* there is room: the table is empty */
		inlay_match_add(&ep->match, ep->front_key, (uintptr_t)ep->front, &found);
	cq->front = NULL;
}

static CALLED ssize_t recv_any(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t source, uint64_t tag,
			       uint64_t ignore, void *context)
{
	struct iovec iov = {buf, len};

	return recv_iov(fid, &iov, &desc, 1, source, tag, ignore, context, OF_ENDPOINT | FI_TAGGED);
}

/*
 * fi_trecv. The short path is for a receive that ignores what all ignore, and names its sender
 * where senders are matched. If the table is empty it becomes the front receive, which
 * progress_front serves. Whatever else needs the table puts it there first, before later ones.
 */
ssize_t recv_tagged(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t source, uint64_t tag,
		    uint64_t ignore, void *context)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid);
	const struct peer *from;

	from = INLAY_LIKELY(source < ep->recv_addrs) ? ep->by_addr[source] :
	       ep->rx_plain && !ep->directed ? &ep->anybody : NULL;
	if (INLAY_UNLIKELY(!from) || INLAY_UNLIKELY(!ep->free_ops) || INLAY_UNLIKELY(ignore != ep->ignored) ||
	    INLAY_UNLIKELY(from->state >= PEER_FAILING))
		return recv_any(fid, buf, len, desc, source, tag, ignore, context);
	tag = (tag & ep->tag_bits) | from->source;
	if (inlay_match_count(&ep->match, INLAY_MATCH_UNEXPECTED))
		return post_kept(ep, buf, len, desc, context, tag);
	if (!inlay_match_is_empty(&ep->match))
		return post_plain(ep, buf, len, desc, context, tag);
	if (INLAY_UNLIKELY(ep->rx_cq->front != NULL))
		return post_second(ep, buf, len, desc, context, tag);
	ep->front_key = tag;
	ep->front = op_plain(ep, buf, len, desc, context);
	ep->rx_cq->front = ep;
	return 0;
}

/* ---- Peek, claim, discard ---- */

static ssize_t peek(struct endpoint *ep, uint64_t key, uint64_t mask, uint64_t tag, void *context, uint64_t flags)
{
	struct inlay_match_found found;
	struct message m;
	struct buf *kept;

	if (!inlay_match_probe(&ep->match, key, mask, &found)) {
		cq_fail(ep->rx_cq, context, FI_RECV | FI_TAGGED, FI_ENOMSG, 0)->tag = tag;
		return 0;
	}
	kept = (struct buf *)(uintptr_t)found.cookie;
	message_parse(kept->data, kept->len, kept->attempt, &m);
	cq_add(ep->rx_cq, context, FI_RECV | FI_TAGGED | (m.flags & FLAG_DATA ? FI_REMOTE_CQ_DATA : 0), m.len, NULL, m.data,
	       m.tag & ep->tag_bits, kept->peer->addr);
	if (flags & (FI_CLAIM | FI_DISCARD))
		inlay_match_remove(&ep->match, found.handle, &found);
	if (flags & FI_DISCARD)
		arrive_discard(ep, kept);
	else if (flags & FI_CLAIM)
		((struct fi_context *)context)->internal[0] = kept;
	return 0;
}

/* The message that a peek has claimed with the same context. */
static ssize_t claim(struct endpoint *ep, struct op *op, uint64_t flags)
{
	struct buf *kept = (struct buf *)((struct fi_context *)op->context)->internal[0];

	if (!(flags & FI_DISCARD)) {
		arrive_meet_kept(ep, kept, op);
		return 0;
	}
	arrive_discard(ep, kept);
	if (op->told)
		cq_add(ep->rx_cq, op->context, op->flags, 0, NULL, 0, 0, FI_ADDR_NOTAVAIL);
	op_give(ep, op);
	return 0;
}

/* ---- Any receive ---- */

static ssize_t receive(struct endpoint *ep, const struct iovec *iov, void **desc, size_t iovs, fi_addr_t source,
		       uint64_t tag, uint64_t ignore, void *context, uint64_t flags)
{
	uint64_t key = tag & ep->tag_bits, mask = ~ignore & ep->tag_bits; /* what is matched */
	struct peer *from = NULL; /* the sender that it names */
	struct op *op;
	size_t len = 0, i;

	if (iovs > IOV_LIMIT || (flags & FI_MULTI_RECV && (iovs != 1 || flags & FI_TAGGED)))
		return -FI_EINVAL;
	recv_settle(ep->rx_cq);
	if (ep->directed && source != FI_ADDR_UNSPEC) {
		from = peer_of(ep, source);
		if (!from)
			return -FI_EADDRNOTAVAIL;
		key |= from->source;
		mask |= ~ep->tag_bits;
	}
	if ((flags & FI_TAGGED && ep->ignored & ~ignore && match_ignore_less(ep, ignore)) || cq_room(ep->rx_cq, 2))
		return -FI_EAGAIN;
	if (flags & FI_PEEK)
		return flags & FI_TAGGED ? peek(ep, key, mask, tag, context, flags) : -FI_EOPNOTSUPP;
	for (i = 0; i < iovs; i++)
		len += iov[i].iov_len;
	op = op_take(ep, flags & FI_MULTI_RECV ? OP_MULTI : OP_RECV);
	if (!op)
		return -FI_EAGAIN;
	op->iovs = iovs ? (uint8_t)iovs : 1;
	op->told = !ep->rx_selective || flags & FI_COMPLETION;
	op->plain = false;
	op->flags = FI_RECV | (flags & (FI_TAGGED | FI_MSG));
	op->context = context;
	op->buf = iovs ? (uint8_t *)iov[0].iov_base : NULL;
	op->len = len;
	memcpy(op->iov, iov, iovs * sizeof(*iov));
	for (i = 0; i < IOV_LIMIT; i++)
		op->mr[i] = desc && i < iovs ? (struct mr *)desc[i] : NULL;
	if (flags & FI_CLAIM)
		return claim(ep, op, flags);
	if (flags & FI_TAGGED)
		return post_any(ep, op, key, mask, from);
	op->peer = from;
	op->min = ep->min_multi_recv;
	op->refs = 0;
	return untagged_post(ep, op);
}

ssize_t recv_iov(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t iovs, fi_addr_t source, uint64_t tag,
		 uint64_t ignore, void *context, uint64_t flags)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid);

	enter(ep);
	flags |= flags & OF_ENDPOINT ? ep->rx_flags : 0;
	return leave(ep, receive(ep, iov, desc, iovs, source, tag, ignore, context, flags));
}

/* ---- Cancelling ---- */

void recv_end(struct endpoint *ep, struct op *op, int err)
{
	struct fi_cq_err_entry *e;

	if (!err && op->total > op->want)
		err = FI_ETRUNC;
	if (err) {
		e = cq_fail(ep->rx_cq, op->context, op->flags, err, err == FI_ETRUNC ? 0 : op->peer->syndrome);
		e->len = err == FI_ETRUNC ? op->want : 0;
		e->olen = op->total - e->len;
		e->buf = op->buf;
		e->data = op->data;
		e->tag = op->tag;
	} else if (op->told) {
		cq_add(ep->rx_cq, op->context, op->flags, op->total, op->buf, op->data, op->tag, op->peer->addr);
	}
	if (ep->counters[COUNT_RECV])
		ep->counters[COUNT_RECV]->values[err != 0]++;
	if (op->parent)
		untagged_part_end(ep, op->parent);
	op->parent = NULL;
}

int recv_stop(struct endpoint *ep, const struct peer *p, const void *context, int err)
{
	const uint64_t source = ~ep->tag_bits;
	struct inlay_match_found found;
	int none = untagged_end(ep, p, context, err);
	uint32_t at = 0;

	recv_settle(ep->rx_cq);
	while ((p || none) && inlay_match_next(&ep->match, &at, &found)) {
		struct op *op = (struct op *)(uintptr_t)found.cookie;

		if (found.kind != INLAY_MATCH_POSTED ||
		    (p ? !(found.mask & source) || (found.tag & source) != p->source : op->context != context))
			continue;
		end_one(ep, &found, err);
		none = 0;
	}
	return none;
}
