/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * offload.c: tagged receives that the device matches (FI_INLAY_TAG_OFFLOAD; ConnectX-5 to -7).
 *
 * Connections receive through an SRQ that matches tags. A receive of one buffer that can hold any
 * eager message also goes on the device's list, by tag/recv.h, if order allows. Tagged messages:
 *
 *   eager     TMH: tag, 30 bits of data | payload    the device fills the receive's buffer
 *   others    the message in its usual form;         rendezvous, FIN asked for, more data
 *             then TMH: tag, STAND_IN                an empty message, matched in its place
 *
 * The first byte tells the kinds apart: if it is 0, as in struct wire, the device leaves the
 * message alone. A peer's hello says whether its device matches, and which bits name the sender.
 */
#include "message.h"
#include <inlay/tag.h>

#define STAND_IN (1u << 31) /* in TMH.app_ctx */
#define WITH_DATA (1u << 30)

struct offload {
	struct inlay_sq commands __attribute__((aligned(64)));
	struct inlay_srq srq;
	struct inlay_tag_list list;
	struct inlay_tag_rx rx;
	struct ibv_qp *qp;
	uint32_t tags;
	void *memory;
};

/* ---- Set-up ---- */

/* WQEBBs of the command queue: a power of two */
static uint32_t command_ring(const struct offload *o)
{
	return 1u << inlay_log2_ceil(2 * o->tags + 2);
}

uint32_t offload_cqes(struct endpoint *ep)
{
	const uint32_t tags = (uint32_t)settings.tag_offload;
	struct ibv_device_attr_ex attr = {0};
	struct offload *o;

	if (!tags || settings.dc)
		return 0;
	if (ibv_query_device_ex(ep->domain->context, NULL, &attr) || !(attr.tm_caps.flags & IBV_TM_CAP_RC)) {
		WARN(FI_LOG_EP_CTRL, "FI_INLAY_TAG_OFFLOAD: the device matches no tags\n");
		return 0;
	}
	o = (struct offload *)aligned_alloc(64, sizeof(*o));
	if (!o)
		return 0;
	*o = (struct offload){.tags = tags < attr.tm_caps.max_num_tags ? tags : attr.tm_caps.max_num_tags};
	ep->offload = o;
	return inlay_srq_cqes((uint32_t)settings.receives) + command_ring(o) + 2 * o->tags;
}

int offload_open(struct endpoint *ep, const char **why)
{
	struct offload *o = ep->offload;
	struct ibv_srq_init_attr_ex init = {
		.attr = {(uint32_t)settings.receives, 1, 0}, .srq_type = IBV_SRQT_TM, .pd = ep->domain->uar.pd, .cq = ep->ibcq,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.tm_cap = {o->tags, 1}, /* 1: of libmlx5's command queue, which stays idle */
	};
	struct ibv_srq *srq = ibv_create_srq_ex(ep->domain->context, &init);
	struct inlay_connect_record here;
	size_t size;
	int err;

	if (!srq)
		return inlay_refuse_(-errno, why, "no receive queue that matches tags: lower FI_INLAY_TAG_OFFLOAD");
	ep->rc_srq = srq;
	ep->ignored = 0; /* the table is not made anew: the list names places in it */
	err = inlay_srq_from_srq(&o->srq, srq, &ep->cq, why);
	err = err ? err : pair_make(ep, IBV_QPT_RC, command_ring(o) / 4, 0, &o->qp, &o->commands, &here, why);
	err = err ? err : inlay_connect_rts(o->qp, &here, &here, &ep->attr, why);
	err = err ? err : inlay_cq_reserve(&ep->cq, 2 * o->tags, why);
	if (err)
		return err;
	size = inlay_tag_list_size(o->tags, inlay_sq_size(&o->commands));
	o->memory = aligned_alloc(64, inlay_round_up(size, 64));
	if (!o->memory)
		return -FI_ENOMEM;
	err = inlay_tag_list_init(&o->list, o->memory, size, o->tags, &o->commands, 0);
	err = err ? err : inlay_tag_rx_init(&o->rx, &ep->match, &o->list, (uint32_t)settings.eager);
	return err ? inlay_refuse_(err, why, "no command queue of that size") : progress_feed(ep, &o->srq);
}

void offload_close(struct endpoint *ep)
{
	struct offload *o = ep->offload;

	if (o->qp)
		ibv_destroy_qp(o->qp);
	inlay_sq_fini(&o->commands);
	if (ep->rc_srq != ep->ibsrq)
		ibv_destroy_srq(ep->rc_srq);
	free(o->memory);
	free(o);
	ep->offload = NULL;
}

/* ---- Sends ---- */

bool offload_takes(const struct send *s)
{
	return (s->flags & (FI_DELIVERY_COMPLETE | SILENT)) != FI_DELIVERY_COMPLETE &&
	       (!(s->flags & FI_REMOTE_CQ_DATA) || s->data < WITH_DATA);
}

int offload_send(struct endpoint *ep, struct peer *p, const struct send *s, size_t len, uint32_t done)
{
	const uint32_t app = s->flags & FI_REMOTE_CQ_DATA ? WITH_DATA | (uint32_t)s->data : 0;
	const uint64_t tag = (s->tag & p->tag_bits) | p->tag_source;
	const uint32_t signal = (int32_t)done > 0 ? INLAY_SIGNALED : peer_signal(p, 4);
	const bool bounced = len > INLINE_BYTES - INLAY_TMH_BYTES;
	struct op *op = bounced ? op_with_buf(ep, OP_BOUNCED, p, s->context, done) : NULL;
	struct slot *slot = peer_slot(p), next = {bounced ? op : s->context, bounced ? SLOT_OP : SLOT_CONTEXT, done};
	uint8_t small[INLINE_BYTES], *to = op ? op->bounce->data : small;
	struct ibv_sge sge;

	if (bounced && !op)
		return -FI_EAGAIN;
	for (size_t i = 0; i < s->iovs; i++)
		to = (uint8_t *)mempcpy(to, s->iov[i].iov_base, s->iov[i].iov_len);
	*slot = next;
	sge = (struct ibv_sge){(uintptr_t)(bounced ? op->bounce->data : small), (uint32_t)len, bounced ? op->bounce->lkey : 0};
	/* There is room: OFFLOAD_ROOM. */
	return inlay_tag_send_eager(&p->sq, app, tag, &sge, 1, (bounced ? INLAY_SIGNALED : signal | INLAY_INLINE) | INLAY_RING);
}

void offload_stand_in(struct peer *p, uint64_t tag)
{
	struct slot none = {NULL, SLOT_NONE, 0};

	*peer_slot(p) = none;
	inlay_tag_send_eager(&p->sq, STAND_IN, (tag & p->tag_bits) | p->tag_source, NULL, 0, peer_signal(p, 1) | INLAY_RING);
}

/* ---- Receives ---- */

int offload_post(struct endpoint *ep, struct op *op, uint64_t key, uint64_t mask, struct inlay_match_found *found)
{
	struct offload *o = ep->offload;
	struct ibv_sge sge;
	int r;

	/* A message longer than its receive would break the connection, so there must be none. */
	if (op->iovs == 1 && op->len >= settings.eager && op->len <= INT32_MAX && o->list.room &&
	    !region_get(ep->domain, op->mr[0], op->buf, op->len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, op->region)) {
		op->regions = 1;
		sge = (struct ibv_sge){(uintptr_t)op->buf, (uint32_t)op->len, op->region[0]->lkey};
	}
	r = inlay_tag_rx_post(&o->rx, key, mask, op->regions ? &sge : NULL, (uintptr_t)op, found);
	if (r || !found->in_hw)
		op_let_go(ep, op);
	inlay_sq_ring(&o->commands);
	return r;
}

static struct op *op_in(const struct inlay_match_found *found)
{
	return (struct op *)(uintptr_t)found->cookie;
}

void offload_end(struct endpoint *ep, uint64_t handle, int err)
{
	struct inlay_match_found found;
	int r = inlay_tag_rx_cancel(&ep->offload->rx, handle, &found);

	if (r < 0)
		return;
	if (r)
		recv_end_early(ep, op_in(&found), err);
	else
		op_in(&found)->err = err; /* for when the device has let go of it */
	inlay_sq_ring(&ep->offload->commands);
}

/* ---- Messages ---- */

int offload_parse(const void *at, uint32_t bytes, struct message *m)
{
	struct inlay_tmh tmh;

	if (inlay_tmh_get(at, bytes, &tmh) || tmh.opcode != IBV_TMH_EAGER)
		return -FI_EINVAL;
	*m = (struct message){
		.kind = tmh.app_ctx & STAND_IN ? WIRE_STAND_IN : WIRE_EAGER, .tag = tmh.tag, .attempt = m->attempt,
		.flags = FLAG_TAGGED | (tmh.app_ctx & WITH_DATA ? FLAG_DATA : 0), .data = tmh.app_ctx & (WITH_DATA - 1),
		.payload = (const uint8_t *)at + INLAY_TMH_BYTES, .len = bytes - INLAY_TMH_BYTES,
	};
	return 0;
}

/* A receive on the device's list has its message. */
static void landed(struct endpoint *ep, struct peer *p, struct op *op, const struct inlay_tag_wc *wc)
{
	struct buf *content = p && wc->app_ctx & STAND_IN ? p->content : NULL;

	op_let_go(ep, op);
	if (content) {
		p->content = NULL;
		arrive_meet_kept(ep, content, op);
		return;
	}
	if (!p || wc->app_ctx & STAND_IN) {
		recv_end_early(ep, op, FI_EIO);
		return;
	}
	if (wc->payload)
		memcpy(op->buf, wc->payload, wc->byte_len);
	op->peer = p;
	op->tag = wc->tag & ep->tag_bits;
	op->flags |= wc->app_ctx & WITH_DATA ? FI_REMOTE_CQ_DATA : 0;
	op->data = wc->app_ctx & (WITH_DATA - 1);
	op->total = op->want = wc->byte_len;
	recv_end(ep, op, 0);
	op_give(ep, op);
}

/* A message that the device could not match. The table has room. Returns as arrive_any. */
static int unmatched(struct endpoint *ep, struct peer *p, const void *at, uint32_t bytes, struct buf *b, struct buf *place)
{
	struct buf *content = NULL;
	struct inlay_match_found found = {0};
	struct message m = {0};
	int r;

	if (offload_parse(at, bytes, &m)) {
		WARN(FI_LOG_EP_DATA, "a tagged message of %u bytes is not one of this provider's\n", bytes);
		return 0;
	}
	if (m.kind == WIRE_STAND_IN) {
		content = p->content;
		p->content = NULL;
	}
	r = inlay_tag_rx_arrive(&ep->offload->rx, m.tag, (uintptr_t)(content ? content : place), 1, &found);
	if (!r)
		return content ? 0 : keep(ep, p, at, bytes, b, place);
	INLAY_CHECK(r == 1, "the table has room, and the command queue for a DEL of each tag");
	op_let_go(ep, op_in(&found));
	if (content)
		arrive_meet_kept(ep, content, op_in(&found));
	else
		arrive_meet(ep, p, &m, op_in(&found));
	return 0;
}

static bool is_message(const struct mlx5_cqe64 *cqe)
{
	return cqe->app_op == INLAY_TAG_UNEXPECTED || cqe->app_op == INLAY_TAG_NO_TAG;
}

/* A message in an entry of the SRQ, tagged or not. */
static int queued(struct endpoint *ep, struct peer *p, const struct mlx5_cqe64 *cqe)
{
	struct offload *o = ep->offload;
	const uint32_t bytes = inlay_cqe_byte_count(cqe);
	struct buf *b = (struct buf *)(uintptr_t)inlay_srq_user(&o->srq, inlay_cqe_wqe_counter(cqe));
	const bool scattered = inlay_cqe_is_scattered(cqe);
	const void *data = scattered ? inlay_cqe_data(cqe, inlay_cq_cqe_size(&ep->cq), NULL) : b ? b->data : NULL;
	struct buf *place = keep_place(ep, bytes, scattered ? NULL : b);
	struct inlay_tag_wc wc;
	int r = 0;

	/* Once the list has counted it, there must be room. */
	if (!place || (inlay_match_count(&ep->match, INLAY_MATCH_POSTED) +
		       inlay_match_count(&ep->match, INLAY_MATCH_UNEXPECTED) >= ep->match_entries && match_grow(ep)))
		return -FI_EAGAIN;
	if (!b || !p || !data || bytes > b->size)
		WARN(FI_LOG_EP_DATA, "a completion names no receive\n");
	else if (cqe->app_op == INLAY_TAG_NO_TAG)
		r = arrive_any(ep, p, data, bytes, scattered ? NULL : b);
	else if (inlay_tag_rx_complete(&o->rx, cqe, inlay_cq_cqe_size(&ep->cq), &wc) == INLAY_TAG_RX_MESSAGE)
		r = unmatched(ep, p, data, bytes, scattered ? NULL : b, place);
	if (r > 0)
		progress_replace(ep, &o->srq, cqe);
	else if (!r)
		inlay_srq_recycle(&o->srq, cqe);
	return r;
}

/* The command queue is lost, and with it the device's list. */
static void broken(struct endpoint *ep)
{
	struct inlay_match_found found;
	uint32_t at = 0;

	WARN(FI_LOG_EP_DATA, "the device's list of tags has failed\n");
	while (inlay_match_next(&ep->match, &at, &found))
		if (found.kind == INLAY_MATCH_POSTED && found.in_hw) {
			inlay_match_remove(&ep->match, found.handle, &found);
			recv_end_early(ep, op_in(&found), FI_EIO);
		}
	ep->offload->list.room = 0;
}

/* A completion of a receive on the list, or of a command. */
void offload_listed(struct endpoint *ep, struct peer *p, const struct mlx5_cqe64 *cqe)
{
	struct inlay_tag_wc wc = {0};
	const int kind = inlay_tag_rx_complete(&ep->offload->rx, cqe, inlay_cq_cqe_size(&ep->cq), &wc);
	struct op *op = (struct op *)(uintptr_t)wc.wr_id;

	if (kind == INLAY_TAG_RX_DONE)
		landed(ep, p, op, &wc);
	else if (kind == INLAY_TAG_RX_FAILED || kind == INLAY_TAG_RX_RNDV) /* we send no RNDV */
		recv_end_early(ep, op, p && p->err ? p->err : FI_EIO);
	else if (kind == INLAY_TAG_RX_CANCELED)
		recv_end_early(ep, op, op->err);
	else if (kind == INLAY_TAG_RX_BROKEN)
		broken(ep);
	else if (kind == INLAY_TAG_RX_PLAIN) /* an entry without a message */
		inlay_srq_recycle(&ep->offload->srq, cqe);
}

int offload_received(struct endpoint *ep, const struct mlx5_cqe64 *cqe)
{
	struct peer *p = (struct peer *)inlay_qpn_table_find(&ep->qpns, inlay_cqe_qpn(cqe));

	if (!is_message(cqe))
		offload_listed(ep, p, cqe);
	else if (queued(ep, p, cqe) < 0)
		return -FI_EAGAIN;
	inlay_cq_advance_quiet(&ep->cq, 1);
	return 0;
}

void offload_gone(const struct mlx5_cqe64 *cqe, void *arg)
{
	if (is_message(cqe))
		inlay_srq_gone(cqe, &((struct endpoint *)arg)->offload->srq);
}

void offload_flush(struct endpoint *ep)
{
	inlay_srq_ring(&ep->offload->srq);
	inlay_tag_rx_flush(&ep->offload->rx);
}
