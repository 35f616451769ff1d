/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * progress.c: handles the device's completions.
 */
#include "message.h"

/* ---- The shared receive queue ---- */

static struct ibv_sge sge_of(const struct buf *b)
{
	struct ibv_sge sge = {(uintptr_t)b->data, b->size, b->lkey};

	return sge;
}

int progress_feed(struct endpoint *ep, struct inlay_srq *srq)
{
	while (inlay_srq_room(srq)) {
		struct buf *b = buf_take(&ep->bounce);
		struct ibv_sge sge;

		if (!b)
			return -FI_ENOMEM;
		sge = sge_of(b);
		if (inlay_post_srq_recv(srq, &sge, 1, (uintptr_t)b))
			return -FI_EIO;
	}
	inlay_srq_ring(srq);
	return 0;
}

/* The message of this completion is kept in its buffer. The entry goes back with the spare one. */
APART void progress_replace(struct endpoint *ep, struct inlay_srq *srq, const struct mlx5_cqe64 *cqe)
{
	struct ibv_sge sge = sge_of(ep->spare);

	if (!inlay_srq_replace(srq, cqe, &sge, 1, (uintptr_t)ep->spare))
		ep->spare = NULL;
}

/* ---- Messages ---- */

/* A datagram. It is copied, since handling it may move other completions. */
static APART void datagram(struct endpoint *ep, const struct mlx5_cqe64 *cqe, const struct buf *b)
{
	uint32_t bytes = inlay_cqe_byte_count(cqe);
	struct inlay_sender from = inlay_cqe_sender(cqe);
	uint8_t data[INLAY_GRH + HELLO_SIZE];
	bool ours = !inlay_cqe_is_scattered(cqe) && bytes == sizeof(data) && inlay_cqe_qpn(cqe) == ep->ud_qp->qp_num;

	if (ours)
		memcpy(data, b->data, sizeof(data));
	inlay_srq_recycle(&ep->srq, cqe);
	inlay_cq_advance_quiet(&ep->cq, 1);
	if (ours)
		connect_arrived(ep, data, from);
}

/* What is matched of a usual message. */
INLAY_ALWAYS uint64_t key_of(const struct endpoint *ep, const struct peer *p, const void *at)
{
	return (((const struct wire *)at)->tag & ep->tag_bits) | p->source;
}

/* A usual message that no plain receive waits for is kept, most often. Returns as arrive_any. */
static CALLED int unexpected(struct endpoint *ep, struct peer *p, const void *at, uint32_t bytes, struct buf *b)
{
	struct buf *place = keep_place(ep, bytes, b);
	struct inlay_match_found found;
	int r;

	r = place ? inlay_match_arrive(&ep->match, key_of(ep, p, at), (uintptr_t)place, &found) : -EAGAIN;
	if (INLAY_UNLIKELY(r < 0))
		return arrive_any(ep, p, at, bytes, b);
	if (!r)
		return keep(ep, p, at, bytes, b, place);
	arrive_matched(ep, p, at, bytes, (struct op *)(uintptr_t)found.cookie);
	return 0;
}

/* Delivers a usual message, of at least its header, straight to its receive's buffer. Returns as arrive_any. */
INLAY_ALWAYS int usual(struct endpoint *ep, struct peer *p, const void *at, uint8_t flags, uint32_t bytes, struct buf *b)
{
	struct inlay_match_found found;
	struct cq *cq = ep->rx_cq;
	void *last = cq->last;
	struct op *op;

	if (!inlay_match_take(&ep->match, key_of(ep, p, at), INLAY_MATCH_POSTED, &found))
		return unexpected(ep, p, at, bytes, b);
	op = (struct op *)(uintptr_t)found.cookie;
	if (INLAY_LIKELY(op->plain) && INLAY_LIKELY(message_put(last, at, flags, bytes, UINT32_MAX, op->buf, op->len, op->context))) {
		cq_added(cq, last, p->addr);
		op->next = ep->free_ops; /* no handle has named it */
		ep->free_ops = op;
	} else {
		arrive_matched(ep, p, at, bytes, op);
	}
	return 0;
}

/* Whether this is a message that lies in its CQE. */
INLAY_ALWAYS bool is_short(const struct endpoint *ep, const struct mlx5_cqe64 *cqe)
{
	return INLAY_LIKELY(!((cqe->op_own ^ ep->short_cqe) & ~3));
}

/* The sender of such a one, if it is of the usual kind with these flags; or NULL. */
INLAY_ALWAYS struct peer *sender_short(const struct endpoint *ep, const struct mlx5_cqe64 *cqe, uint8_t flags, uint32_t *bytes)
{
	uint32_t first;

	memcpy(&first, cqe, sizeof(first));
	*bytes = inlay_cqe_byte_count(cqe);
	if (first != (WIRE_EAGER | ((uint32_t)FLAG_TAGGED | flags) << 8) ||
	    INLAY_UNLIKELY(*bytes - header_bytes(flags) > 32 - header_bytes(flags)))
		return NULL;
	return (struct peer *)inlay_qpn_table_find(&ep->qpns, inlay_cqe_qpn(cqe));
}

/* A short message. False: it is not of the usual kind with these flags. */
INLAY_ALWAYS bool received_short(struct endpoint *ep, const struct mlx5_cqe64 *cqe, uint8_t flags)
{
	uint32_t bytes;
	struct peer *p = sender_short(ep, cqe, flags, &bytes);

	if (INLAY_UNLIKELY(!p) || INLAY_UNLIKELY(usual(ep, p, cqe, flags, bytes, NULL) < 0))
		return false;
	inlay_srq_recycle(&ep->srq, cqe);
	inlay_cq_advance_quiet(&ep->cq, 1);
	return true;
}

static void wait_late(struct endpoint *ep)
{
	if (!ep->late.told)
		wait_for_room(ep, &ep->late);
	ep->late.told = true;
}

/* The completions behind its own can be taken, but later messages join it. */
APART void progress_set_aside(struct endpoint *ep, struct buf *b)
{
	b->next = NULL;
	*ep->late_tail = b;
	ep->late_tail = &b->next;
	ep->short_cqe = 0xff; /* short messages do not overtake it */
	wait_late(ep);
}

/* A message that finds no memory stays in the buffer of its entry. The senders wait once there are no entries. */
static APART void set_aside(struct endpoint *ep, struct peer *p, const void *data, uint32_t bytes, struct buf *b,
			    uint32_t entry)
{
	memmove(b->data, data, bytes);
	b->peer = p;
	b->attempt = p->attempt;
	b->len = bytes;
	b->entry = entry;
	progress_set_aside(ep, b);
}

/* Those of a connection that is over are dropped. */
APART void progress_late(struct endpoint *ep)
{
	struct mlx5_cqe64 cqe = {0};
	struct buf *b;
	int r;

	recv_settle(ep->rx_cq);
	ep->late.told = false;
	cqe.op_own = MLX5_CQE_RESP_SEND << 4;
	while ((b = ep->late_head)) {
		ep->late_head = b->next; /* first, since b may be kept, and others join the list */
		if (!b->next)
			ep->late_tail = &ep->late_head;
		r = cq_room(ep->rx_cq, 2) || cq_room(ep->tx_cq, 2) ? -FI_EAGAIN :
		    b->attempt != b->peer->attempt && b->entry != NO_ENTRY ? 0 : arrive_any(ep, b->peer, b->data, b->len, b);
		if (r < 0) {
			ep->late_head = b;
			if (!b->next)
				ep->late_tail = &b->next;
			wait_late(ep);
			return;
		}
		cqe.wqe_counter = inlay_to_be16((uint16_t)b->entry);
		if (b->entry == NO_ENTRY)
			buf_give(&ep->bounce, b);
		else if (r)
			progress_replace(ep, &ep->srq, &cqe);
		else
			inlay_srq_recycle(&ep->srq, &cqe);
		inlay_srq_ring(&ep->srq);
	}
	ep->short_cqe = ep->offload ? 0xff : MLX5_CQE_RESP_SEND << 4 | INLAY_CQE_SCATTER_32;
}

/* Any other. */
static CALLED void received(struct endpoint *ep, const struct mlx5_cqe64 *cqe)
{
	const uint32_t index = inlay_cqe_wqe_counter(cqe), bytes = inlay_cqe_byte_count(cqe);
	struct peer *p = (struct peer *)inlay_qpn_table_find(&ep->qpns, inlay_cqe_qpn(cqe));
	struct buf *b = (struct buf *)(uintptr_t)inlay_srq_user(&ep->srq, index);
	const bool scattered = inlay_cqe_is_scattered(cqe);
	const void *data = scattered ? inlay_cqe_data(cqe, inlay_cq_cqe_size(&ep->cq), NULL) : b ? b->data : NULL;
	int r = 0;

	if (INLAY_UNLIKELY(!p) && settings.dc)
		p = dc_source(ep, cqe);
	if (INLAY_UNLIKELY(!b)) {
		WARN(FI_LOG_EP_DATA, "a completion names no receive\n");
		inlay_cq_advance_quiet(&ep->cq, 1);
		return;
	}
	if (INLAY_UNLIKELY(!p)) {
		datagram(ep, cqe, b);
		return;
	}
	if (INLAY_LIKELY(data != NULL) && INLAY_LIKELY(bytes <= b->size)) {
		if (INLAY_UNLIKELY(ep->late_head != NULL))
			r = -FI_EAGAIN;
		else if (INLAY_LIKELY(bytes >= sizeof(struct wire) + 8) && message_usual(data))
			r = usual(ep, p, data, ((const uint8_t *)data)[1], bytes, scattered ? NULL : b);
		else
			r = arrive_any(ep, p, data, bytes, scattered ? NULL : b);
	}
	if (INLAY_UNLIKELY(r < 0))
		set_aside(ep, p, data, bytes, b, index);
	else if (INLAY_UNLIKELY(r))
		progress_replace(ep, &ep->srq, cqe);
	else
		inlay_srq_recycle(&ep->srq, cqe);
	inlay_cq_advance_quiet(&ep->cq, 1);
}

/* ---- Sends, and everything that failed ---- */

static int errno_of(uint8_t syndrome)
{
	switch (syndrome) {
	case MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR:
	case MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR: return FI_EHOSTUNREACH;
	case MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR:
	case MLX5_CQE_SYNDROME_LOCAL_PROT_ERR: return FI_EACCES;
	case MLX5_CQE_SYNDROME_WR_FLUSH_ERR: return FI_ECONNRESET;
	default: return FI_EIO;
	}
}

static void ended(struct endpoint *ep, const struct mlx5_cqe64 *cqe)
{
	struct peer *p = (struct peer *)inlay_qpn_table_find(&ep->qpns, inlay_cqe_qpn(cqe));
	struct slot none = {NULL, SLOT_NONE, 0}, slot = none, *at;
	const uint8_t syndrome = inlay_cqe_is_error(cqe) ? inlay_cqe_syndrome(cqe) : 0;

	if (!inlay_cqe_is_send(cqe)) {
		if (p && ep->offload)
			offload_listed(ep, p, cqe);
		else
			inlay_srq_recycle(&ep->srq, cqe);
	} else if (INLAY_UNLIKELY(!p)) {
		if (inlay_cqe_qpn(cqe) == ep->ud_qp->qp_num)
			inlay_sq_release(&ep->ud, cqe);
		else if (ep->offload)
			offload_listed(ep, NULL, cqe);
	} else if (INLAY_LIKELY(inlay_sq_release(&p->sq, cqe) >= 0)) {
		at = &p->slots[inlay_cqe_wqe_counter(cqe) % PEER_RING];
		slot = *at;
		*at = none;
	}
	inlay_cq_advance_quiet(&ep->cq, 1);
	if (INLAY_UNLIKELY(!p))
		return;
	if (syndrome)
		peer_fail(p, errno_of(syndrome), syndrome);
	slot_done(p, &slot, syndrome ? p->err : 0);
	if (INLAY_UNLIKELY(p->state == PEER_FAILING))
		peer_flushed(p);
}

/* ---- All of it ---- */

/* The clock is read now and then, more often while a peer is awaited. */
static APART void look_around(struct endpoint *ep)
{
	connect_step(ep);
	ep->pause = ep->unsettled ? 15 : 1023;
}

/* Takes completions, from this one on. */
INLAY_ALWAYS void take(struct endpoint *ep, const struct mlx5_cqe64 *cqe)
{
	if (ep->rx_cq->front)
		recv_settle(ep->rx_cq);
	for (uint32_t n = 0; n < BATCH && cqe; n++, cqe = inlay_cq_peek(&ep->cq)) {
		if (is_short(ep, cqe) && (received_short(ep, cqe, FLAG_DATA) || received_short(ep, cqe, 0)))
			continue;
		if (inlay_cqe_is_error(cqe) || inlay_cqe_opcode(cqe) == MLX5_CQE_REQ)
			ended(ep, cqe);
		else if (!cqe->app || !ep->offload)
			received(ep, cqe);
		else if (offload_received(ep, cqe))
			break;
	}
	if (INLAY_UNLIKELY(ep->offload != NULL))
		offload_flush(ep);
	inlay_cq_update(&ep->cq); /* before the ring, so that new messages find room in the CQ */
	inlay_srq_ring(&ep->srq);
}

/* The front receive's message, if it comes next and is a short one with these flags. Returns 1, or 0: it does not. */
INLAY_ALWAYS ssize_t front(struct cq *cq, void *buf, size_t count, fi_addr_t *source, uint8_t flags)
{
	struct endpoint *ep = cq->front;
	const struct mlx5_cqe64 *cqe = inlay_cq_peek(&ep->cq);
	struct op *op = ep->front;
	struct peer *p;
	uint32_t bytes;

	if (!cqe || !is_short(ep, cqe) || INLAY_UNLIKELY(!(p = sender_short(ep, cqe, flags, &bytes))) ||
	    INLAY_UNLIKELY((key_of(ep, p, cqe) ^ ep->front_key) & ~ep->ignored) ||
	    INLAY_UNLIKELY(bytes - header_bytes(flags) > op->len))
		return 0;
	if (source)
		*source = p->addr;
	cq->drained = count > 1;
	cq->front = NULL;
	op->next = ep->free_ops;
	ep->free_ops = op;
	ep->polls++;
	message_put(buf, cqe, flags, bytes, 32, op->buf, op->len, op->context);
	inlay_srq_recycle(&ep->srq, cqe);
	inlay_cq_advance(&ep->cq, 1);
	inlay_srq_ring(&ep->srq);
	return 1;
}

/* What else there may be to do; apart, so that progress_front saves no registers. */
static CALLED ssize_t front_looks(struct cq *cq, void *buf, size_t count, fi_addr_t *source)
{
	struct endpoint *ep = cq->front;

	if (ep && count && cq->endpoints.count == 1 && !ep->waiting_head && (ep->polls + 1) & ep->pause &&
	    !inlay_cq_holds(&ep->cq, inlay_srq_size(&ep->srq) / 4) &&
	    (front(cq, buf, count, source, 0) || front(cq, buf, count, source, FLAG_DATA)))
		return 1;
	return cq_drive(cq, buf, count, source);
}

/*
 * The message of the front receive, if it comes next and is short, goes straight into the application's array. Those
 * behind it stay on the CQ, where the next receive finds them without a copy, unless they hold a quarter of the
 * shared receive queue.
 */
ssize_t progress_front(struct cq *cq, void *buf, size_t count, fi_addr_t *source)
{
	if (INLAY_UNLIKELY(!cq->front) || INLAY_UNLIKELY(!count) || INLAY_UNLIKELY(!((cq->front->polls + 1) & 15)) ||
	    !front(cq, buf, count, source, FLAG_DATA))
		return front_looks(cq, buf, count, source);
	return 1;
}

void progress(struct endpoint *ep)
{
	const struct mlx5_cqe64 *cqe = inlay_cq_peek(&ep->cq);

	if (cqe && INLAY_LIKELY(!cq_room(ep->rx_cq, BATCH_ENTRIES)) && INLAY_LIKELY(!cq_room(ep->tx_cq, BATCH_ENTRIES)))
		take(ep, cqe);
	if (INLAY_UNLIKELY(ep->waiting_head != NULL))
		read_waiting(ep);
	if (INLAY_UNLIKELY(!(++ep->polls & ep->pause)))
		look_around(ep);
}
