/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * recv.c: posted receives, messages that came before them, and how they find each other.
 *
 * Tagged ones meet in inlay's match table. What is matched are 64 bits:
 *
 *    63        48 47                                  0
 *   +------------+-------------------------------------+
 *   |   sender   |                 tag                 |   endpoints with FI_DIRECTED_RECV
 *   +------------+-------------------------------------+
 *   |                       tag                        |   others
 *   +--------------------------------------------------+
 *
 * The table is told which bits all receives ignore, so that those that ignore no others are exact. The
 * first receive shows them; one that ignores fewer makes the table anew.
 *
 * Untagged ones stand in two lists, in order: the first receive takes the first message, unless it names
 * another sender.
 *
 * A message that nobody has asked for is kept as it came: in its bounce buffer, in whose place the queue
 * gets another, or copied, if it is short.
 */
#include "fabric.h"

#define MATCH_ENTRIES 4096u

/* ---- Messages ---- */

/* Checks a message against the bytes that came. 0, or -FI_EINVAL: not one of ours. */
INLAY_ALWAYS int parse(const void *at, uint32_t bytes, struct message *m)
{
	const struct wire *wire = (const struct wire *)at;
	const uint8_t *next = (const uint8_t *)at + sizeof(*wire);
	struct segment segment;
	uint32_t i;

	if (INLAY_UNLIKELY(bytes < sizeof(*wire)))
		return -FI_EINVAL;
	bytes -= (uint32_t)sizeof(*wire);
	m->kind = wire->kind;
	m->flags = wire->flags;
	m->tag = wire->tag;
	m->data = 0;
	if (m->flags & (FLAG_DATA | FLAG_HANDLE)) {
		if (bytes < (m->flags & FLAG_DATA ? 8u : 0) + (m->flags & FLAG_HANDLE ? 8u : 0))
			return -FI_EINVAL;
		if (m->flags & FLAG_DATA) {
			memcpy(&m->data, next, 8);
			next += 8;
			bytes -= 8;
		}
		if (m->flags & FLAG_HANDLE) {
			memcpy(&m->handle, next, 8);
			next += 8;
			bytes -= 8;
		}
	}
	m->payload = next;
	m->len = bytes;
	if (INLAY_LIKELY(m->kind == WIRE_EAGER))
		return 0;
	m->segments = wire->segments;
	if (m->kind != WIRE_RENDEZVOUS)
		return 0;
	if (m->segments > IOV_LIMIT || bytes != m->segments * sizeof(segment) || !(m->flags & FLAG_HANDLE))
		return -FI_EINVAL;
	for (i = 0, m->len = 0; i < m->segments; i++, m->len += segment.len) {
		memcpy(&segment, next + i * sizeof(segment), sizeof(segment));
		if (segment.len > MAX_MESSAGE)
			return -FI_EINVAL;
	}
	return 0;
}

/* Keeps a message: returns what it is kept in, or NULL. */
static struct buf *keep(struct endpoint *ep, struct peer *p, const void *at, uint32_t bytes, struct buf *b)
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

static void unkeep(struct endpoint *ep, struct buf *kept)
{
	buf_give(kept->size == SMALL_MESSAGE ? &ep->small : &ep->bounce, kept);
}

/* What is kept has passed parse once. */
static void kept_message(const struct buf *kept, struct message *m)
{
	memset(m, 0, sizeof(*m));
	parse(kept->data, kept->len, m);
}

/* ---- A receive and its message ---- */

static fi_addr_t source_of(const struct peer *p)
{
	return p->addr;
}

/* len bytes into the receive's buffers, from the first on. */
INLAY_ALWAYS void scatter(const struct op *op, const uint8_t *from, size_t len)
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

/* More came than there was room for, or it did not come at all. */
static APART void told_failure(struct endpoint *ep, const struct op *op, const struct peer *p, const struct message *m,
			       size_t there, int err)
{
	struct fi_cq_err_entry e;

	memset(&e, 0, sizeof(e));
	e.op_context = op->context;
	e.flags = op->flags | (m->flags & FLAG_DATA ? FI_REMOTE_CQ_DATA : 0);
	e.len = there;
	e.buf = op->buf;
	e.data = m->data;
	e.tag = m->tag;
	e.olen = m->len - there;
	e.err = err;
	e.prov_errno = err == FI_ETRUNC ? 0 : p->syndrome;
	cq_add_error(ep->rx_cq, &e);
}

/* The completion of a receive, but for the end of the operation. */
INLAY_ALWAYS void told(struct endpoint *ep, const struct op *op, const struct peer *p, const struct message *m,
		       uint64_t flags)
{
	if (INLAY_LIKELY(op->told))
		cq_add(ep->rx_cq, op->context, op->flags | flags | (m->flags & FLAG_DATA ? FI_REMOTE_CQ_DATA : 0), m->len,
		       op->buf, m->data, m->tag, source_of(p));
}

/* A message has found its receive. */
INLAY_ALWAYS void meet(struct endpoint *ep, struct peer *p, const struct message *m, struct op *op)
{
	if (INLAY_UNLIKELY(m->kind == WIRE_RENDEZVOUS)) {
		read_start(ep, p, m, op);
		return;
	}
	if (INLAY_LIKELY(m->len <= op->len)) {
		scatter(op, m->payload, m->len);
		told(ep, op, p, m, 0);
	} else {
		scatter(op, m->payload, op->len);
		told_failure(ep, op, p, m, op->len, FI_ETRUNC);
	}
	op_give(ep, op);
}

/* The buffer of a multi-receive is the application's again. */
static void multi_end(struct endpoint *ep, struct op *op)
{
	if (op->told)
		cq_add(ep->rx_cq, op->context, op->flags | FI_MULTI_RECV, 0, NULL, 0, 0, FI_ADDR_NOTAVAIL);
	op_give(ep, op);
}

void recv_end(struct endpoint *ep, struct op *op, int err)
{
	struct op *parent = op->parent;
	struct message m;

	memset(&m, 0, sizeof(m));
	m.flags = op->flags & FI_REMOTE_CQ_DATA ? FLAG_DATA : 0;
	m.tag = op->tag;
	m.data = op->data;
	m.len = op->total;
	if (!err && op->total > op->want)
		err = FI_ETRUNC;
	if (err)
		told_failure(ep, op, op->peer, &m, err == FI_ETRUNC ? op->want : 0, err);
	else
		told(ep, op, op->peer, &m, 0);
	if (parent && !--parent->refs && parent->kind == OP_SPENT)
		multi_end(ep, parent);
}

/* ---- Tagged: the match table ---- */

static APART int match_grow(struct endpoint *ep)
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
	const struct inlay_match_found *x = (const struct inlay_match_found *)a, *y = (const struct inlay_match_found *)b;

	return x->handle < y->handle ? -1 : 1;
}

/* A receive that does not ignore all that the table does: the table anew, with what is common to all. */
static APART int ignore_less(struct endpoint *ep, uint64_t ignore)
{
	const uint32_t n = inlay_match_posted(&ep->match) + inlay_match_unexpected(&ep->match);
	struct inlay_match_found *all = (struct inlay_match_found *)malloc((n + 1) * sizeof(*all)), found;
	const size_t size = inlay_match_size(ep->match_entries);
	void *memory = aligned_alloc(64, size);
	uint32_t at = 0, i;

	if (!all || !memory) {
		free(all);
		free(memory);
		return -FI_EAGAIN;
	}
	for (i = 0; inlay_match_next(&ep->match, &at, &all[i]); i++)
		;
	qsort(all, n, sizeof(*all), by_age);
	ep->ignored &= ignore & ep->tag_bits;
	inlay_match_init(&ep->match, memory, size, ep->match_entries, ep->ignored, ep->name.incarnation);
	free(ep->match_memory);
	ep->match_memory = memory;
	for (i = 0; i < n; i++) {
		if (all[i].kind == INLAY_MATCH_UNEXPECTED) {
			inlay_match_arrive(&ep->match, all[i].tag, all[i].cookie, &found);
		} else {
			inlay_match_post(&ep->match, all[i].tag, all[i].mask, all[i].cookie, &found);
			((struct op *)(uintptr_t)all[i].cookie)->match = found.handle;
		}
	}
	free(all);
	return 0;
}

/*
 * What a receive is matched by, and *from, the sender that it names, or NULL. 0, or a negative errno: there
 * is no such sender, or no memory.
 */
INLAY_ALWAYS int key_of(struct endpoint *ep, fi_addr_t source, uint64_t tag, uint64_t ignore, uint64_t *key,
			uint64_t *mask, const struct peer **from)
{
	const struct peer *p;

	*from = NULL;
	if (INLAY_UNLIKELY(ep->ignored & ~ignore) && ignore_less(ep, ignore))
		return -FI_EAGAIN;
	*key = tag & ep->tag_bits;
	*mask = ~ignore & ep->tag_bits;
	if (!ep->directed || source == FI_ADDR_UNSPEC)
		return 0;
	p = INLAY_LIKELY(source < ep->addrs) ? ep->by_addr[source] : NULL;
	if (INLAY_UNLIKELY(!p)) {
		p = peer_of(ep, source);
		if (!p)
			return -FI_EADDRNOTAVAIL;
	}
	*from = p;
	*key |= p->source;
	*mask |= ~ep->tag_bits;
	return 0;
}

/* A receive of one or more buffers, not yet posted. */
INLAY_ALWAYS struct op *new_recv(struct endpoint *ep, uint8_t *buf, size_t len, void *context, uint64_t flags)
{
	struct op *op = op_take(ep, OP_RECV);

	if (INLAY_UNLIKELY(!op))
		return NULL;
	op->iovs = 1;
	op->told = !ep->rx_selective || flags & FI_COMPLETION;
	op->multi = false;
	op->flags = FI_RECV | (flags & (FI_TAGGED | FI_MSG));
	op->context = context;
	op->buf = buf;
	op->len = len;
	op->parent = NULL;
	return op;
}

/* A receive ends before a message came. */
static void end_early(struct endpoint *ep, struct op *op, int err)
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
static APART void vain(struct endpoint *ep, struct op *op, uint64_t handle, int err)
{
	struct inlay_match_found found;

	inlay_match_remove(&ep->match, handle, &found);
	end_early(ep, op, err);
}

static APART void meet_kept(struct endpoint *ep, struct buf *kept, struct op *op)
{
	struct message m;

	kept_message(kept, &m);
	meet(ep, kept->peer, &m, op);
	unkeep(ep, kept);
}

/* Posts a receive, or gives it the message that is there. */
INLAY_ALWAYS ssize_t post_tagged(struct endpoint *ep, struct op *op, fi_addr_t source, uint64_t tag, uint64_t ignore)
{
	struct inlay_match_found found;
	const struct peer *from;
	uint64_t key, mask;
	int err = key_of(ep, source, tag, ignore, &key, &mask, &from);

	if (INLAY_UNLIKELY(err))
		goto refused;
	err = cq_room(ep->rx_cq, 2);
	if (INLAY_UNLIKELY(err))
		goto refused;
	err = inlay_match_post(&ep->match, key, mask, (uintptr_t)op, &found);
	if (INLAY_UNLIKELY(err == -EAGAIN)) {
		err = match_grow(ep);
		if (err)
			goto refused;
		err = inlay_match_post(&ep->match, key, mask, (uintptr_t)op, &found);
	}
	if (err)
		meet_kept(ep, (struct buf *)(uintptr_t)found.cookie, op);
	else if (INLAY_UNLIKELY(from && from->state >= PEER_FAILING))
		vain(ep, op, found.handle, from->err);
	else
		op->match = found.handle;
	return 0;
refused:
	op_give(ep, op);
	return err;
}

ssize_t recv_tagged(struct endpoint *ep, void *buf, size_t len, fi_addr_t source, uint64_t tag, uint64_t ignore,
		    void *context)
{
	struct op *op = new_recv(ep, (uint8_t *)buf, len, context, ep->rx_flags | FI_TAGGED);

	return INLAY_LIKELY(op != NULL) ? post_tagged(ep, op, source, tag, ignore) : -FI_EAGAIN;
}

/* ---- Untagged: two lists ---- */

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
		told_failure(ep, op, p, m, 0, FI_ENOMEM);
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
			told_failure(ep, op, p, m, len, FI_ETRUNC);
		} else if (last && !op->refs) {
			told(ep, op, p, m, FI_MULTI_RECV);
			op_give(ep, op);
			return;
		} else {
			told(ep, op, p, m, 0);
		}
	}
	op->buf += len;
	op->len -= len;
	if (last && op->refs)
		op->kind = OP_SPENT;
	else if (last)
		multi_end(ep, op);
}

static APART void meet_untagged(struct endpoint *ep, struct peer *p, const struct message *m, struct op **at)
{
	if ((*at)->multi)
		multi_meet(ep, p, m, at);
	else
		meet(ep, p, m, unlist(ep, at));
}

static int arrived_untagged(struct endpoint *ep, struct peer *p, const struct message *m, const void *bytes, uint32_t len,
			    struct buf *b)
{
	struct op **at;
	struct buf *kept;

	for (at = &ep->recv_head; *at; at = &(*at)->next)
		if (is_from(*at, p)) {
			meet_untagged(ep, p, m, at);
			return 0;
		}
	kept = keep(ep, p, bytes, len, b);
	if (!kept)
		return -FI_EAGAIN;
	kept->next = NULL;
	*ep->kept_tail = kept;
	ep->kept_tail = &kept->next;
	return kept == b;
}

/* Posts an untagged receive, and gives it what has been kept for it. */
static ssize_t post_untagged(struct endpoint *ep, struct op *op)
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
		kept_message(kept, &m);
		meet_untagged(ep, kept->peer, &m, place);
		unkeep(ep, kept);
	}
	if (*place == op && op->peer && op->peer->state >= PEER_FAILING)
		end_early(ep, unlist(ep, place), op->peer->err);
	return 0;
}

/* ---- What came ---- */

int recv_arrived(struct endpoint *ep, struct peer *p, const void *at, uint32_t bytes, struct buf *b)
{
	struct inlay_match_found found;
	struct message m;
	struct buf *kept;
	int r;

	if (INLAY_UNLIKELY(parse(at, bytes, &m))) {
		WARN(FI_LOG_EP_DATA, "a message of %u bytes is not one of this provider's\n", bytes);
		return 0;
	}
	if (INLAY_UNLIKELY(m.kind != WIRE_EAGER && m.kind != WIRE_RENDEZVOUS)) {
		if (m.kind == WIRE_FIN)
			send_finished(ep, p, m.tag);
		else if (m.kind == WIRE_WRITTEN)
			return rma_arrived(ep, p, &m);
		else if (m.kind == WIRE_ATOMIC || m.kind == WIRE_ANSWER)
			return atomic_arrived(ep, p, &m);
		return 0;
	}
	if (INLAY_UNLIKELY(!(m.flags & FLAG_TAGGED))) {
		r = arrived_untagged(ep, p, &m, at, bytes, b);
	} else {
		r = inlay_match_arrive(&ep->match, (m.tag & ep->tag_bits) | p->source, 0, &found);
		if (INLAY_UNLIKELY(r == -EAGAIN) && !match_grow(ep))
			r = inlay_match_arrive(&ep->match, (m.tag & ep->tag_bits) | p->source, 0, &found);
		if (r == 1) {
			meet(ep, p, &m, (struct op *)(uintptr_t)found.cookie);
			r = 0;
		} else if (!r) {
			kept = keep(ep, p, at, bytes, b);
			if (INLAY_LIKELY(kept != NULL))
				inlay_match_set_cookie(&ep->match, found.handle, (uintptr_t)kept);
			else
				inlay_match_remove(&ep->match, found.handle, &found);
			r = kept ? kept == b : -FI_EAGAIN;
		}
	}
	if (INLAY_UNLIKELY(m.flags & FLAG_HANDLE) && m.kind == WIRE_EAGER && r >= 0)
		fin_later(ep, p, m.handle);
	return r;
}

/* ---- Peek, claim, discard ---- */

/* The message is not wanted. */
static void discard(struct endpoint *ep, struct buf *kept)
{
	struct message m;

	kept_message(kept, &m);
	if (m.kind == WIRE_RENDEZVOUS)
		fin_later(ep, kept->peer, m.handle);
	unkeep(ep, kept);
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
		struct fi_cq_err_entry e;

		memset(&e, 0, sizeof(e));
		e.op_context = context;
		e.flags = FI_RECV | FI_TAGGED;
		e.tag = tag;
		e.err = FI_ENOMSG;
		cq_add_error(ep->rx_cq, &e);
		return 0;
	}
	kept = (struct buf *)(uintptr_t)found.cookie;
	kept_message(kept, &m);
	cq_add(ep->rx_cq, context, FI_RECV | FI_TAGGED | (m.flags & FLAG_DATA ? FI_REMOTE_CQ_DATA : 0), m.len, NULL, m.data,
	       m.tag, source_of(kept->peer));
	if (flags & (FI_CLAIM | FI_DISCARD))
		inlay_match_remove(&ep->match, found.handle, &found);
	if (flags & FI_DISCARD)
		discard(ep, kept);
	else if (flags & FI_CLAIM)
		((struct fi_context *)context)->internal[0] = kept;
	return 0;
}

/* What a peek has claimed, under the same context. */
static ssize_t claim(struct endpoint *ep, struct op *op, uint64_t flags)
{
	struct buf *kept = (struct buf *)((struct fi_context *)op->context)->internal[0];
	int err = cq_room(ep->rx_cq, 2);

	if (err) {
		op_give(ep, op);
		return err;
	}
	if (!(flags & FI_DISCARD)) {
		meet_kept(ep, kept, op);
		return 0;
	}
	discard(ep, kept);
	if (op->told)
		cq_add(ep->rx_cq, op->context, op->flags, 0, NULL, 0, 0, FI_ADDR_NOTAVAIL);
	op_give(ep, op);
	return 0;
}

/* ---- Any receive ---- */

ssize_t recv_iov(struct endpoint *ep, const struct iovec *iov, size_t iovs, fi_addr_t source, uint64_t tag,
		 uint64_t ignore, void *context, uint64_t flags)
{
	struct peer *p = NULL;
	struct op *op;
	size_t len = 0, i;

	if (flags & FI_PEEK)
		return flags & FI_TAGGED ? peek(ep, source, tag, ignore, context, flags) : -FI_EOPNOTSUPP;
	if (iovs > IOV_LIMIT || (flags & FI_MULTI_RECV && (iovs != 1 || flags & FI_TAGGED)))
		return -FI_EINVAL;
	if (flags & FI_MSG && ep->directed && source != FI_ADDR_UNSPEC) {
		p = peer_of(ep, source);
		if (!p)
			return -FI_EADDRNOTAVAIL;
	}
	for (i = 0; i < iovs; i++)
		len += iov[i].iov_len;
	op = new_recv(ep, iovs ? (uint8_t *)iov[0].iov_base : NULL, len, context, flags);
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
	op->peer = p;
	op->multi = (flags & FI_MULTI_RECV) != 0;
	op->min = ep->min_multi_recv;
	op->refs = 0;
	return post_untagged(ep, op);
}

/* ---- Ends before a message came ---- */

int recv_cancel(struct endpoint *ep, void *context)
{
	struct inlay_match_found found;
	uint32_t at = 0;
	struct op **place;

	for (place = &ep->recv_head; *place; place = &(*place)->next)
		if ((*place)->context == context) {
			end_early(ep, unlist(ep, place), FI_ECANCELED);
			return 0;
		}
	while (inlay_match_next(&ep->match, &at, &found)) {
		struct op *op = (struct op *)(uintptr_t)found.cookie;

		if (found.kind == INLAY_MATCH_POSTED && op->context == context) {
			inlay_match_remove(&ep->match, found.handle, &found);
			end_early(ep, op, FI_ECANCELED);
			return 0;
		}
	}
	return -FI_ENOENT;
}

void recv_fail(struct peer *p, int err)
{
	struct endpoint *ep = p->ep;
	struct inlay_match_found found;
	struct op **place = &ep->recv_head;
	uint32_t at = 0;

	while (*place)
		if ((*place)->peer == p)
			end_early(ep, unlist(ep, place), err);
		else
			place = &(*place)->next;
	while (ep->directed && inlay_match_next(&ep->match, &at, &found)) {
		if (found.kind != INLAY_MATCH_POSTED || !(found.mask & ~ep->tag_bits) || (found.tag & ~ep->tag_bits) != p->source)
			continue;
		inlay_match_remove(&ep->match, found.handle, &found);
		end_early(ep, (struct op *)(uintptr_t)found.cookie, err);
	}
}

/* ---- Set-up ---- */

int recv_init(struct endpoint *ep)
{
	const size_t size = inlay_match_size(MATCH_ENTRIES);

	ep->recv_tail = &ep->recv_head;
	ep->kept_tail = &ep->kept_head;
	ep->ignored = UINT64_MAX;
	ep->match_entries = MATCH_ENTRIES;
	ep->match_memory = aligned_alloc(64, size);
	return ep->match_memory ? inlay_match_init(&ep->match, ep->match_memory, size, MATCH_ENTRIES, 0, milliseconds()) :
				  -FI_ENOMEM;
}

void recv_fini(struct endpoint *ep)
{
	free(ep->match_memory);
}
