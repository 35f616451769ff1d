/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dc.c: dynamically connected transport (FI_INLAY_TRANSPORT=dc). An endpoint has one target, to
 * which all peers send, and a few initiators, whatever the number of peers.
 *
 *   peer.c, connect.c    a hello carries target, key and a number: a peer is an address vector
 *   peer_borrow          a send takes an initiator from a peer that has nothing in flight
 *   dc_source            each message's immediate is the number that the receiver gave its sender
 *
 * A peer keeps its initiator until everything posted to it has completed; hence every WQE is
 * signaled. The README says what follows from that.
 */
#include "fabric.h"

#define INDEX_BITS 20u /* of a number: which peer; the others: of which attempt */

/* In place of an inlay_connect_record in hellos */
struct dc_record {
	uint64_t key;
	uint32_t dctn;
	uint32_t number;
};

INLAY_STATIC_ASSERT(sizeof(struct dc_record) <= INLAY_CONNECT_SIZE, "fits a hello");

/* ---- Queues ---- */

static struct ibv_qp *make(struct endpoint *ep, enum mlx5dv_dc_type type)
{
	const bool target = type == MLX5DV_DCTYPE_DCT;
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_DRIVER, .send_cq = ep->ibcq, .recv_cq = ep->ibcq, .srq = target ? ep->ibsrq : NULL,
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = ep->domain->uar.pd,
	};
	struct mlx5dv_qp_init_attr dv = {.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC, .dc_init_attr = {.dc_type = type}};

	if (target)
		dv.dc_init_attr.dct_access_key = ep->name.incarnation;
	else
		init.cap = (struct ibv_qp_cap){PEER_RING / 8, 0, 1, 0, INLINE_BYTES};
	return mlx5dv_create_qp(ep->domain->context, &init, &dv);
}

int dc_target(struct endpoint *ep, const char **why)
{
	ep->dct = make(ep, MLX5DV_DCTYPE_DCT);
	return ep->dct ? inlay_connect_dc(NULL, ep->dct, 1, &ep->attr, why) :
			 inlay_refuse_(-errno, why, "no DC target: does the device have DC?");
}

int dc_initiator(struct endpoint *ep, struct ibv_qp **qp, struct inlay_sq *sq, const char **why)
{
	int err;

	*qp = make(ep, MLX5DV_DCTYPE_DCI);
	if (!*qp)
		return inlay_refuse_(-errno, why, "no DC initiator");
	err = inlay_sq_from_qp(sq, *qp, &ep->domain->uar, &ep->cq, why);
	return err ? err : inlay_connect_dc(NULL, *qp, 0, &ep->attr, why);
}

void dc_take(struct peer *p, struct peer *from)
{
	struct inlay_qpn_table *table = &p->ep->qpns;

	p->qp = from->qp;
	p->sq = from->sq;
	p->fence = inlay_sq_index(&p->sq) - 1;
	from->qp = NULL;
	memset(&from->sq, 0, sizeof(from->sq));
	inlay_qpn_table_remove(table, p->qp->qp_num);
	(void)!inlay_qpn_table_add(table, p->qp->qp_num, p); /* in the place that it had */
}

/* ---- Numbers that name the sender ---- */

static uint32_t number(const struct peer *p)
{
	return p->index | p->attempt << INDEX_BITS;
}

int dc_register(struct peer *p)
{
	struct endpoint *ep = p->ep;
	struct peer **all;

	if (p->index < ep->peer_count && ep->by_index[p->index] == p)
		return 0;
	if (ep->peer_count >> INDEX_BITS)
		return -FI_ENOSPC;
	all = (struct peer **)realloc(ep->by_index, (ep->peer_count + 1) * sizeof(*all));
	if (!all)
		return -FI_ENOMEM;
	ep->by_index = all;
	p->index = ep->peer_count++;
	ep->by_index[p->index] = p;
	return 0;
}

struct peer *dc_source(struct endpoint *ep, const struct mlx5_cqe64 *cqe)
{
	const uint32_t n = inlay_from_be32(inlay_cqe_imm_be(cqe)), index = n & ((1u << INDEX_BITS) - 1);
	struct peer *p;

	if (inlay_cqe_opcode(cqe) != MLX5_CQE_RESP_SEND_IMM || inlay_cqe_qpn(cqe) != ep->dct->qp_num || index >= ep->peer_count)
		return NULL;
	p = ep->by_index[index];
	return n == number(p) && (p->state == PEER_CONNECTING || p->state == PEER_READY) ? p : NULL;
}

void dc_tell(const struct peer *p, uint8_t *record)
{
	const struct dc_record r = {p->ep->name.incarnation, p->ep->dct->qp_num, number(p)};

	memcpy(record, &r, sizeof(r));
}

void dc_told(struct peer *p, const uint8_t *record)
{
	struct dc_record r;

	memcpy(&r, record, sizeof(r));
	p->target = p->av; /* the same path */
	inlay_av_to_dct(&p->target, r.dctn & 0xffffff, r.key);
	p->number_be = inlay_to_be32(r.number);
}
