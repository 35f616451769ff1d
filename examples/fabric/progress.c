/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * progress.c: what the device has completed.
 */
#include "message.h"

#define BUDGET 64u        /* completions at a time */
#define CQ_ROOM (4 * BUDGET) /* entries that they may write */

/* ---- The shared receive queue ---- */

static struct ibv_sge sge_of(const struct buf *b)
{
	struct ibv_sge sge = {(uintptr_t)b->data, b->size, b->lkey};

	return sge;
}

int progress_feed(struct endpoint *ep)
{
	struct ibv_sge sge;
	struct buf *b;
	uint32_t i;

	for (i = 0; i <= inlay_srq_size(&ep->srq); i++) {
		b = buf_take(&ep->bounce);
		if (!b)
			return -FI_ENOMEM;
		sge = sge_of(b);
		inlay_srq_set_user(&ep->srq, i, (uintptr_t)b);
		inlay_srq_prepare(&ep->srq, i, &sge, 1);
	}
	while (!inlay_srq_repost(&ep->srq))
		;
	inlay_srq_ring(&ep->srq);
	return 0;
}

/* Entry `index` is free and takes the spare buffer in place of the one that was kept. */
static APART void replace(struct endpoint *ep, uint32_t index)
{
	struct ibv_sge sge = sge_of(ep->spare);

	inlay_srq_set_user(&ep->srq, index, (uintptr_t)ep->spare);
	inlay_srq_prepare(&ep->srq, index, &sge, 1);
	ep->spare = NULL;
}

/* ---- Good completions ---- */

INLAY_ALWAYS void sent(struct endpoint *ep, const struct mlx5_cqe64 *cqe)
{
	struct peer *p = (struct peer *)inlay_qpn_table_find(&ep->qpns, inlay_cqe_qpn(cqe));
	struct slot *slot;

	if (INLAY_UNLIKELY(!p)) {
		if (inlay_cqe_qpn(cqe) == ep->ud_qp->qp_num)
			inlay_sq_release(&ep->ud, cqe);
		inlay_cq_advance(&ep->cq, 1);
		return;
	}
	slot = &p->slots[inlay_cqe_wqe_counter(cqe) & p->mask];
	if (INLAY_UNLIKELY(inlay_sq_release(&p->sq, cqe) < 0))
		slot = NULL;
	inlay_cq_advance(&ep->cq, 1);
	if (INLAY_LIKELY(slot != NULL))
		slot_done(p, slot, 0);
	if (INLAY_UNLIKELY(p->state == PEER_FAILING))
		peer_flushed(p);
}

/* A datagram: copied, since what it tells may move other completions. */
static APART void datagram(struct endpoint *ep, const struct mlx5_cqe64 *cqe, const struct buf *b)
{
	uint32_t bytes = inlay_cqe_byte_count(cqe);
	uint8_t data[HELLO_SIZE];
	bool ours = !inlay_cqe_is_scattered(cqe) && bytes == INLAY_GRH + sizeof(data) &&
		    inlay_cqe_qpn(cqe) == ep->ud_qp->qp_num;

	if (ours)
		memcpy(data, b->data + INLAY_GRH, sizeof(data));
	if (inlay_srq_release(&ep->srq, cqe) > 0)
		inlay_srq_repost(&ep->srq);
	inlay_srq_ring(&ep->srq);
	inlay_cq_advance(&ep->cq, 1);
	if (ours)
		connect_arrived(ep, data, sizeof(data));
}

/*
 * A message. The usual ones that find their receive go straight into its buffer, all others to arrive.c.
 * Returns as arrive_any.
 */
INLAY_ALWAYS int message(struct endpoint *ep, struct peer *p, const void *at, uint32_t bytes, struct buf *b)
{
	struct inlay_match_found found;
	struct op *op;
	int r;

	if (INLAY_UNLIKELY(!message_usual(at, bytes)))
		return arrive_any(ep, p, at, bytes, b);
	r = inlay_match_arrive(&ep->match, (((const struct wire *)at)->tag & ep->tag_bits) | p->source, 0, &found);
	if (INLAY_UNLIKELY(r < 0))
		return arrive_any(ep, p, at, bytes, b);
	if (!r)
		return arrive_kept(ep, p, at, bytes, b, found.handle);
	op = (struct op *)(uintptr_t)found.cookie;
	if (INLAY_UNLIKELY(!message_deliver(ep, p, at, bytes, op)))
		arrive_matched(ep, p, at, bytes, op);
	return 0;
}

/* 0, or -FI_EAGAIN: the completion stays where it is until there is memory. */
INLAY_ALWAYS int received(struct endpoint *ep, const struct mlx5_cqe64 *cqe)
{
	const uint32_t index = inlay_cqe_wqe_counter(cqe);
	struct peer *p = (struct peer *)inlay_qpn_table_find(&ep->qpns, inlay_cqe_qpn(cqe));
	const uint64_t user = index <= inlay_srq_size(&ep->srq) ? inlay_srq_user(&ep->srq, index) : 0;
	struct buf *b = (struct buf *)(uintptr_t)user;
	const uint32_t bytes = inlay_cqe_byte_count(cqe);
	const void *data;
	bool scattered;
	int r = 0;

	if (INLAY_UNLIKELY(!b)) {
		WARN(FI_LOG_EP_DATA, "a completion names no receive\n");
		inlay_cq_advance(&ep->cq, 1);
		return 0;
	}
	if (INLAY_UNLIKELY(!p)) {
		datagram(ep, cqe, b);
		return 0;
	}
	scattered = inlay_cqe_is_scattered(cqe);
	data = scattered ? inlay_cqe_payload(cqe, inlay_cq_cqe_size(&ep->cq)) : b->data;
	if (INLAY_LIKELY(data != NULL) && INLAY_LIKELY(bytes <= b->size))
		r = message(ep, p, data, bytes, scattered ? NULL : b);
	if (INLAY_UNLIKELY(r < 0))
		return r;
	if (INLAY_LIKELY(inlay_srq_release(&ep->srq, cqe) > 0)) {
		if (INLAY_UNLIKELY(r))
			replace(ep, index);
		inlay_srq_repost(&ep->srq);
		inlay_srq_ring(&ep->srq);
	}
	inlay_cq_advance(&ep->cq, 1);
	return 0;
}

/* ---- Bad ones ---- */

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

static APART void failed(struct endpoint *ep, const struct mlx5_cqe64 *cqe)
{
	struct peer *p = (struct peer *)inlay_qpn_table_find(&ep->qpns, inlay_cqe_qpn(cqe));
	uint8_t syndrome = inlay_cqe_syndrome(cqe);
	struct slot slot = {NULL, SLOT_NONE, 0};

	if (inlay_cqe_is_send(cqe)) {
		if (p && inlay_sq_release(&p->sq, cqe) > 0) {
			struct slot *at = &p->slots[inlay_cqe_wqe_counter(cqe) & p->mask];

			slot = *at;
			at->kind = SLOT_NONE;
		} else if (!p && inlay_cqe_qpn(cqe) == ep->ud_qp->qp_num) {
			inlay_sq_release(&ep->ud, cqe);
		}
	} else if (inlay_srq_release(&ep->srq, cqe) > 0) {
		inlay_srq_repost(&ep->srq);
		inlay_srq_ring(&ep->srq);
	}
	inlay_cq_advance(&ep->cq, 1);
	if (!p)
		return;
	peer_fail(p, errno_of(syndrome), syndrome);
	slot_done(p, &slot, p->err);
	if (p->state == PEER_FAILING)
		peer_flushed(p);
}

/* ---- All of it ---- */

/* Time is looked at now and then: more often while somebody is awaited. */
static APART void look_around(struct endpoint *ep)
{
	connect_step(ep);
	ep->pause = ep->unsettled ? 15 : 1023;
}

void progress(struct endpoint *ep)
{
	const struct mlx5_cqe64 *cqe;
	uint32_t n;

	for (n = 0; n < BUDGET && (cqe = inlay_cq_peek(&ep->cq)); n++) {
		if (!n && (INLAY_UNLIKELY(cq_room(ep->rx_cq, CQ_ROOM)) || INLAY_UNLIKELY(cq_room(ep->tx_cq, CQ_ROOM))))
			break;
		if (inlay_cqe_is_error(cqe))
			failed(ep, cqe);
		else if (inlay_cqe_opcode(cqe) == MLX5_CQE_REQ)
			sent(ep, cqe);
		else if (received(ep, cqe))
			break;
	}
	if (INLAY_UNLIKELY(ep->waiting_head != NULL))
		read_waiting(ep);
	if (INLAY_UNLIKELY(!(++ep->polls & ep->pause)))
		look_around(ep);
}
