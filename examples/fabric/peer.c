/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peer.c: the other endpoints. A peer is known by its address, whether or not the address vector has it, because
 * messages may come before the application learns the address. It has one connection at a time. (With dc.c it
 * is only an address vector, and borrows a queue pair for sends.)
 *
 *   IDLE --connect_start, a hello--> CONNECTING --both in RTS--> READY
 *     ^                                   |                        |  an error, a new incarnation, BYE
 *     |                                   +-----------+------------+
 *     |                                               v
 *     +--address removed---- FAILED <--all flushed-- FAILING
 *
 * A queue pair that fails may hold an entry of the shared receive queue, for a message that has arrived in
 * part. The device returns the entry, then reports that it holds no more (IBV_EVENT_QP_LAST_WQE_REACHED). Only
 * then is a last WQE posted, and its completion awaited.
 *
 * A failed peer stays failed, and every operation to it ends with its error, until its address is removed from
 * the address vector or it sends a new hello.
 */
#include "message.h"

/* ---- Names ---- */

struct peer **peer_bucket(struct endpoint *ep, const struct inlay_connect_record *place)
{
	const uint64_t m = ep->seed | 1;
	uint64_t gid[2];

	memcpy(gid, place->gid, sizeof(gid));
	return &ep->buckets[(((gid[0] * m ^ gid[1]) * m ^ place->qpn ^ (uint64_t)place->lid << 24) * m >> 32) % BUCKETS];
}

/*
 * Forgets strangers without a connection that nothing names. Those that have come since are known, so that a late
 * hello of one of these is still known to be late.
 */
static void sweep(struct endpoint *ep)
{
	struct peer **at = &ep->peers, **beside, *p;

	memory_mark(ep);
	while ((p = *at)) {
		if (p->listed || p->named || (p->state != PEER_IDLE && p->state != PEER_FAILED) || peer_open_to(p)) {
			p->named = false;
			at = &p->next;
			continue;
		}
		for (beside = peer_bucket(ep, &p->place); *beside != p; beside = &(*beside)->beside)
			;
		*beside = p->beside;
		if (p->other)
			p->other = p->other->other = NULL;
		*at = p->next;
		p->next = ep->unused;
		ep->unused = p;
	}
	ep->looking = NULL;
	ep->until_sweep = (uint32_t)settings.peers;
}

static struct peer *peer_known(struct peer *bucket, const struct name *name)
{
	while (bucket && memcmp(&bucket->name, name, sizeof(*name)))
		bucket = bucket->beside;
	return bucket;
}

struct peer *peer_of_name(struct endpoint *ep, const struct name *name, fi_addr_t addr)
{
	struct inlay_connect_record place;
	struct peer **bucket, *p, was = {0};

	(void)!inlay_connect_unpack(&place, name->record, sizeof(name->record), NULL); /* checked before */
	bucket = peer_bucket(ep, &place);
	p = peer_known(*bucket, name);
	if (p)
		return p;
	if (addr == FI_ADDR_NOTAVAIL && !ep->unused && !ep->until_sweep--)
		sweep(ep);
	p = ep->unused;
	if (p) {
		ep->unused = p->next;
		was = *p;
	} else if (ep->directed && ep->next_source >> (ep->source_bits - (addr == FI_ADDR_NOTAVAIL))) {
		WARN(FI_LOG_AV, "more peers than fit %u bits of tag\n", ep->source_bits);
		return NULL;
	} else {
		p = (struct peer *)aligned_alloc(64, sizeof(*p));
		if (!p)
			return NULL;
		was.source = ep->directed ? ep->next_source++ << (64 - ep->source_bits) : 0;
	}
	*p = (struct peer){
		.ep = ep, .name = *name, .place = place, .addr = addr, .listed = addr != FI_ADDR_NOTAVAIL, .source = was.source,
		.attempt = was.attempt, .index = was.index, /* the number of dc.c */
		.next = ep->peers, .beside = *bucket};
	return ep->peers = *bucket = p;
}

/* Room for all addresses in the arrays that they index. */
static int addrs_grow(struct endpoint *ep)
{
	const size_t n = ep->av->room;
	struct peer **all = (struct peer **)calloc(2 * n, sizeof(*all));

	if (!all)
		return -FI_ENOMEM;
	if (ep->addrs) {
		memcpy(all, ep->ready, ep->addrs * sizeof(*all));
		memcpy(all + n, ep->by_addr, ep->addrs * sizeof(*all));
	}
	free(ep->ready);
	ep->ready = all;
	ep->by_addr = all + n;
	ep->addrs = n;
	send_defaults(ep);
	return 0;
}

/* The short ways lead to it by the first of its addresses. */
void peer_sendable(struct peer *p)
{
	struct endpoint *ep = p->ep;

	if (p->slots && !rail_numbers(p) && !settings.dc && !p->by_nic && p->addr < ep->addrs && ep->by_addr[p->addr] == p)
		ep->ready[p->addr] = p;
}

void peer_welcome(struct peer *p)
{
	p->ep->guests -= p->guest;
	p->guest = false;
}

struct peer *peer_of(struct endpoint *ep, fi_addr_t addr)
{
	struct peer *p;

	if (addr < ep->addrs && ep->by_addr[addr])
		return ep->by_addr[addr];
	if (addr >= ep->av->count || !ep->av->entries[addr].name.incarnation || (addr >= ep->addrs && addrs_grow(ep)))
		return NULL;
	p = peer_of_name(ep, &ep->av->entries[addr].name, addr);
	if (!p)
		return NULL;
	ep->by_addr[addr] = p;
	peer_sendable(p);
	return p;
}

void peer_named(struct endpoint *ep, fi_addr_t addr, const struct inlay_connect_record *place)
{
	struct peer *p = peer_known(*peer_bucket(ep, place), &ep->av->entries[addr].name);

	if (!p || p->addr != FI_ADDR_NOTAVAIL)
		return;
	p->addr = addr;
	p->listed = true;
	peer_welcome(p);
	if (p->other)
		peer_welcome(p->other);
	peer_of(ep, addr);
}

void peer_forget(struct endpoint *ep, fi_addr_t addr)
{
	struct peer *p = addr < ep->addrs ? ep->by_addr[addr] : NULL;

	if (!p)
		return;
	ep->by_addr[addr] = NULL;
	ep->ready[addr] = NULL;
	if (p->addr != addr)
		return;
	p->addr = FI_ADDR_NOTAVAIL;
	p->forgotten = p->state == PEER_FAILING && peer_lost(p);
	if (p->state == PEER_FAILED && peer_lost(p))
		p->state = PEER_IDLE;
}

/* Posts at most one probe, so that all that was posted will be known to be over. */
static void settle(struct peer *p)
{
	if (!inlay_sq_pending(&p->sq) || p->fence == inlay_sq_index(&p->sq))
		return;
	connect_probe(p);
	p->fence = inlay_sq_index(&p->sq);
}

/* Whether an operation to a peer is unfinished, or not known to be finished. */
static bool busy(struct peer *p)
{
	struct op *op;

	settle(p);
	for (uint32_t n = 0; (op = op_at(p->ep, n)); n++)
		if (op->kind >= OP_SEND && op->peer == p)
			return true;
	return inlay_sq_pending(&p->sq) != 0;
}

struct peer *peer_for(struct endpoint *ep, fi_addr_t addr, void *context, uint32_t done, uint64_t flags, int *result)
{
	struct peer *p = peer_of(ep, addr);

	*result = p ? 0 : -FI_EADDRNOTAVAIL;
	if (p && p->state == PEER_IDLE)
		*result = connect_start(p);
	if (*result)
		goto out;
	if ((p->state == PEER_READY || (p->state >= PEER_FAILING && peer_open_to(p)) ||
	     (p->state == PEER_CONNECTING && flags & (FI_MSG | FI_TAGGED))) &&
	    p->sent - p->resend < QUEUED && !(flags & FI_FENCE && busy(p)))
		return p;
	*result = p->state >= PEER_FAILING && !p->forgotten ? -p->err : -FI_EAGAIN;
out:
	if (p && *result != -FI_EAGAIN && !(flags & SILENT)) {
		tx_done(ep, context, done, -*result, p->syndrome);
		*result = 0;
	}
	return NULL;
}

/*
 * Only FI_INLAY_PEERS peers, over DC INITIATORS, can be posted to at a time. One more takes its place from a peer that
 * has nothing in flight, in turn.
 */
APART int peer_borrow(struct peer *p)
{
	struct endpoint *ep = p->ep;
	const uint32_t n = settings.dc ? INITIATORS : (uint32_t)settings.peers;
	struct peer **at, *from;

	for (uint32_t i = 0; i < n; i++) {
		at = &ep->holders[ep->turn++ % n];
		from = *at;
		if (from && (inlay_sq_pending(&from->sq) || from->state == PEER_FAILING))
			continue;
		if (!from) {
			p->slots = (struct slot *)calloc(PEER_RING, sizeof(*p->slots));
			if (!p->slots || (settings.dc && peer_pair(p)))
				continue;
		} else {
			p->slots = from->slots;
			from->slots = NULL;
			from->holder = NULL;
			if (from->addr < ep->addrs)
				ep->ready[from->addr] = NULL;
			if (settings.dc)
				dc_take(p, from);
		}
		*at = p;
		p->holder = at;
		peer_sendable(p);
		return 0;
	}
	from = ep->holders[ep->turn++ % n];
	if (from && !settings.dc)
		settle(from);
	return -FI_EAGAIN;
}

/* ---- Connections ---- */

/* Closes a connection, even a half-made one. */
static void peer_close(struct peer *p)
{
	struct peer *first = rail_first(p);
	struct endpoint *ep = p->ep;
	uint32_t qpn;

	if (p->qp) {
		qpn = p->qp->qp_num;
		ibv_destroy_qp(p->qp);
		p->qp = NULL;
		inlay_cq_clean(&ep->cq, qpn, ep->offload ? offload_gone : inlay_srq_gone, ep->offload ? (void *)ep : &ep->srq);
		inlay_sq_fini(&p->sq);
		inlay_qpn_table_remove(&ep->qpns, qpn);
	}
	free(p->slots);
	p->slots = NULL;
	if (p->holder)
		*p->holder = NULL;
	p->holder = NULL;
	if (p->content)
		unkeep(ep, p->content);
	p->content = NULL;
	if (first && peer_lost(first))
		rail_forget(first);
	if (p->state == PEER_FAILING) {
		ep->unsettled--;
		peer_welcome(p);
		p->state = p->forgotten ? PEER_IDLE : PEER_FAILED;
	}
	p->forgotten = false;
}

int peer_pair(struct peer *p)
{
	struct endpoint *ep = p->ep;
	const char *why;
	void *page;
	int err;

	/* PEER_RING / 8 makes a ring of PEER_RING: inlay_send_cqes() */
	err = settings.dc ? dc_initiator(ep, &p->qp, &p->sq, &why) :
	      pair_make(ep, IBV_QPT_RC, PEER_RING / 8, INLINE_BYTES, &p->qp, &p->sq, &p->here, &why);
	if (!err) {
		why = "no memory for a connection";
		inlay_sq_set_atomics(&p->sq, ep->domain->atomics.sizes);
		err = inlay_qpn_table_add(&ep->qpns, p->qp->qp_num, p);
	}
	if (err == -ENOBUFS && (page = malloc(INLAY_QPN_PAGE))) {
		inlay_qpn_table_grow(&ep->qpns, page, INLAY_QPN_PAGE);
		err = inlay_qpn_table_add(&ep->qpns, p->qp->qp_num, p);
	}
	if (err) {
		WARN(FI_LOG_EP_CTRL, "%s: %s\n", why, fi_strerror(-err));
		peer_close(p);
		return err;
	}
	p->qp->qp_context = p; /* for peer_events */
	return 0;
}

int peer_open(struct peer *p)
{
	int err = settings.dc ? dc_register(p) : peer_pair(p);

	if (err)
		return err;
	p->attempt++;
	rail_forget(p);
	p->seen = p->flushed = p->ending = p->ended = false;
	p->drained = settings.dc; /* an initiator receives nothing */
	return 0;
}

void peer_ready(struct peer *p)
{
	p->state = PEER_READY;
	p->probe_at = p->ep->now + (uint64_t)settings.keepalive_ms;
	p->ep->unsettled--;
	connect_called(p);
	peer_sendable(p);
	rail_ready(p);
}

/* ---- Failure ---- */

void peer_fail(struct peer *p, int err, uint8_t syndrome)
{
	const bool dead = err == FI_EHOSTUNREACH || err == FI_ETIMEDOUT || syndrome == MLX5_CQE_SYNDROME_WR_FLUSH_ERR ||
			  (err == FI_ECONNRESET && p->state == PEER_CONNECTING);
	const bool unused = p->ep != p->ep->first && p->state == PEER_CONNECTING; /* nothing of ours went over it */
	const bool survives = dead && p->other && (p->other->state == PEER_READY || (unused && peer_in_rts(p->other)));
	struct peer *first = survives ? NULL : rail_first(p);
	struct endpoint *ep = p->ep;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct op *op;
	uint32_t n;

	if (p->state >= PEER_FAILING)
		return;
	FI_INFO(&provider, FI_LOG_EP_CTRL, "a peer fails: %s (%s)\n", fi_strerror(err),
		syndrome ? inlay_syndrome_text(syndrome) : "no error of the device's");
	ep->unsettled += p->state != PEER_CONNECTING;
	p->state = PEER_FAILING;
	connect_called(p);
	p->err = survives ? FI_EAGAIN : (uint16_t)err; /* to be done again, over the other device */
	p->syndrome = syndrome;
	if (first)
		first->err = (uint16_t)err;
	else
		rail_ready(p); /* over the other device */
	if (p->addr < ep->addrs)
		ep->ready[p->addr] = NULL;
	if (p->qp && p->qp->state > IBV_QPS_INIT) {
		/* Stops both sides: from here on the device neither reads nor writes the application's memory. */
		if (ibv_modify_qp(p->qp, &attr, IBV_QP_STATE))
			p->drained = true; /* nothing will be said */
	}
	for (n = 0; first && (op = op_at(first->ep, n)); n++)
		if ((op->kind == OP_SEND || op->kind == OP_ATOMIC) && op->peer == first)
			op_end(first->ep, op, err);
	if (first)
		recv_stop(first->ep, first, NULL, err);
	if (!survives && p->other) {
		peer_fail(p->other, err, syndrome);
		p->other->err = (uint16_t)err; /* also if it had failed before */
	}
	if (p->qp && p->qp->state > IBV_QPS_INIT)
		peer_flushed(p);
	else
		peer_close(p);
}

void peer_flushed(struct peer *p)
{
	/* A NOP that can only be flushed, so that its completion is the last. Without room connect_step calls again. */
	if (p->drained && !p->flushed) {
		if (peer_begin(p))
			return;
		peer_slot(p)->kind = SLOT_NONE;
		if (inlay_post(&p->sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED | INLAY_RING))
			return;
		p->flushed = true;
	}
	if (p->flushed && !inlay_sq_pending(&p->sq))
		peer_close(p);
}

void peer_events(struct endpoint *ep)
{
	struct ibv_async_event event;
	struct peer *p;

	while (!ibv_get_async_event(ep->domain->context, &event)) {
		p = NULL; /* also of the queue pair for hellos */
		if (event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
			p = (struct peer *)event.element.qp->qp_context;
		ibv_ack_async_event(&event);
		if (p)
			p->drained = true;
		if (p && p->state == PEER_FAILING)
			peer_flushed(p);
	}
}

void peer_free_all(struct endpoint *ep)
{
	struct peer *p;
	void *page;

	while ((p = ep->peers ? ep->peers : ep->unused)) {
		*(ep->peers ? &ep->peers : &ep->unused) = p->next;
		if (p->other)
			p->other = p->other->other = NULL;
		peer_close(p);
		free(p);
	}
	free(ep->ready);
	free(ep->holders);
	while ((page = inlay_qpn_table_shrink(&ep->qpns)))
		free(page);
	free(ep->by_index);
}

/* ---- Completions ---- */

void tx_done(struct endpoint *ep, void *context, uint32_t flags, int err, uint8_t syndrome)
{
	if (INLAY_LIKELY(!err) && INLAY_LIKELY(flags - 1 < DONE_COUNT - 1))
		cq_add(ep->tx_cq, context, flags, 0, NULL, 0, 0, FI_ADDR_NOTAVAIL);
	else if (flags && (err || !(flags & DONE_ERROR)))
		counter_tx(ep, context, flags, err, syndrome);
}

struct op *op_with_buf(struct endpoint *ep, uint8_t kind, struct peer *p, void *context, uint32_t done)
{
	struct op *op = op_begin(ep, kind, p, context, done);

	if (op && !(op->bounce = buf_take(&ep->bounce))) {
		op_drop(ep, op);
		return NULL;
	}
	return op;
}

struct op *op_begin(struct endpoint *ep, uint8_t kind, struct peer *p, void *context, uint32_t done)
{
	struct op *op = op_take(ep, kind);

	if (op) {
		op->peer = p;
		op->context = context;
		op->flags = done;
	}
	return op;
}

void op_drop(struct endpoint *ep, struct op *op)
{
	op_let_go(ep, op);
	if (op->bounce)
		buf_give(&ep->bounce, op->bounce);
	op->bounce = NULL;
	op_give(ep, op);
}

void op_end(struct endpoint *ep, struct op *op, int err)
{
	tx_done(ep, op->context, (uint32_t)op->flags, err, op->peer->syndrome);
	op_drop(ep, op);
}

static CALLED void op_step_done(struct op *op, int err)
{
	struct endpoint *ep = op->peer->ep->first;

	if (op->kind == OP_READ || op->kind == OP_RMA)
		read_done(ep, op, err);
	else if (op->kind == OP_NATIVE)
		atomic_step(ep, op, err);
	else if (INLAY_UNLIKELY(err == FI_EAGAIN))
		rail_again(op);
	else
		op_end(ep, op, err);
}

void slot_done(struct peer *p, struct slot *slot, int err)
{
	uint32_t kind = slot->kind;
	struct buf *b;

	slot->kind = SLOT_NONE;
	if (INLAY_LIKELY(kind == SLOT_CONTEXT)) {
		tx_done(p->ep, slot->what, slot->flags, err, p->syndrome);
	} else if (kind == SLOT_BUF) {
		b = (struct buf *)slot->what;
		tx_done(p->ep, b->context, b->flags, err, p->syndrome);
		buf_give(&p->ep->bounce, b);
	} else if (kind == SLOT_OP) {
		op_step_done((struct op *)slot->what, err);
	}
}
