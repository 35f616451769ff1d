/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rxraw.c: raw packets as they come: where they are put, and their CQEs.
 *
 * A packet for which there is no receive WQE is lost. One that is longer than its receive WQE
 * completes that with a length error and stops the receiver.
 *
 * A WQE of a striding queue takes packets until its strides are used up. Each takes as many
 * consecutive strides as it needs. If too few are left for the next packet, a filler, which has a
 * CQE of its own, uses up the rest; it says of headers what that packet's would. The WQEs of a shared queue
 * are used that way by all its receivers together.
 *
 *   CQE        +12 hash   +16 of what   +20 sum of all behind the Ethernet header   +44 bytes   +60 WQE:
 *              its index in a linked list, else counted
 *   strides    +2 WQE   +44 filler << 31 | strides << 16 | bytes   +60 the first of them
 */
#include <string.h>
#include "eng.h"

#define VLAN_HLEN 4u
#define FILLER 0x80000000u

static unsigned get16(const uint8_t *at)
{
	return (unsigned)at[0] << 8 | at[1];
}

/* What is known of the packet, wherever it goes */
static struct mlx5_cqe64 describe(const struct sd_qp *qp, const struct raw_packet *in, const struct raw_hit *hit, bool cut)
{
	const struct raw_headers *h = &in->h;
	struct mlx5_cqe64 c;
	uint8_t *raw = (uint8_t *)&c;
	const uint32_t hash = htobe32(hit->hash);
	const uint16_t sum = htobe16(in->sum);

	memset(&c, 0, sizeof c);
	memcpy(raw + 12, &hash, 4);
	raw[16] = hit->hash_type;
	memcpy(raw + 20, &sum, 2);
	if (h->version)
		c.hds_ip_ext = 1 << 0;
	if (in->l3_ok)
		c.hds_ip_ext |= MLX5_CQE_L3_OK;
	if (in->l4_ok)
		c.hds_ip_ext |= MLX5_CQE_L4_OK;
	c.l4_hdr_type_etc = (h->proto == 6 ? 1 : h->proto == 17 ? 2 : 0) << 4 |
			    (h->version == 4 ? MLX5_CQE_L3_HDR_TYPE_IPV4 : h->version == 6 ? MLX5_CQE_L3_HDR_TYPE_IPV6 : 0) << 2 | cut;
	if (cut)
		c.vlan_info = htobe16(h->tci);
	c.srqn_uidx = htobe32(qp->uidx);
	c.sop_drop_qpn = htobe32(hit->tag & 0xffffff);
	c.op_own = MLX5_CQE_RESP_SEND << 4;
	return c;
}

static void put(struct rcq *q, struct mlx5_cqe64 *c, uint32_t byte_cnt, uint16_t counter)
{
	c->byte_cnt = htobe32(byte_cnt);
	c->wqe_counter = htobe16(counter);
	c->timestamp = htobe64(eng_now());
	cqe_put(q->qp->recv_cq, q, c, NULL, false);
}

static void fail(struct rcq *q, uint8_t synd, uint8_t vendor)
{
	rx_error(q, synd, vendor);
	if (q->qp->srq)
		srq_put_strides(q);
	rx_fail(q, NULL);
}

/* A WQE with so many free strides, all if there are not so many: 0, or as rx_take() */
static int take(struct rcq *q, const struct sd_strides *s, uint32_t need, struct mlx5_cqe64 *c)
{
	const uint32_t all = 1u << s->log_count;
	int r;

	for (;;) {
		r = q->qp->srq && s->log_size ? srq_take_strides(q) : rx_take(q);
		c->wqe_id = s->log_size ? htobe16(q->wqe_idx) : 0;
		if (r || !s->log_size || need > all || need <= all - q->stride)
			return r;
		put(q, c, FILLER | (all - q->stride) << 16, q->stride);
		q->stride = all;
		q->wqe_held = false;
		if (q->qp->srq)
			srq_put_strides(q);
	}
}

void rxraw_receive(struct sd_qp *qp, const struct raw_hit *hit, const void *packet)
{
	const struct sd_strides *s = qp->srq ? &qp->srq->strides : &qp->strides;
	const enum ibv_event_type fatal = IBV_EVENT_QP_FATAL;
	const struct raw_packet *in = packet;
	const bool cut = qp->strip_vlan && in->h.tags && get16(in->data + 12) == 0x8100;
	const uint32_t len = in->len - (cut ? VLAN_HLEN : 0), size = 1u << s->log_size, need = (len + s->shift + size - 1) / size;
	struct iovec dst[ENG_IOVS], src[2];
	struct rcq *q = qp->eng;
	struct mlx5_cqe64 c;
	uint64_t off;
	unsigned n;

	if (!q || q->err || qp->type != IBV_QPT_RAW_PACKET || qp->state < IBV_QPS_RTR || qp->state > IBV_QPS_SQE || fault_deaf(qp->dev))
		return;
	if (qp->recv_cq->overrun || qp->send_cq->overrun || (qp->no_self && q == eng_self && in->data[0] & 1))
		return;
	c = describe(qp, in, hit, cut);
	switch (take(q, s, need, &c)) {
	case RX_NONE:
		return;
	case RX_BAD:
		rx_fail(q, &fatal);
		return;
	}
	off = s->log_size ? ((uint64_t)q->stride << s->log_size) + s->shift : 0;
	if (off + len > q->rx.total || (s->log_size && need > 1u << s->log_count)) {
		fail(q, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, 0x6b);
		return;
	}
	src[0] = (struct iovec){ (void *)in->data, 12 };
	src[1] = (struct iovec){ (void *)(in->data + in->len - len + 12), len - 12 };
	if (!mem_vec(qp, &q->rx, off, len, IBV_ACCESS_LOCAL_WRITE, dst, &n) || mem_copy(dst, n, src, 2, len) != MEM_OK) {
		fail(q, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x51);
		return;
	}
	if (!s->log_size) {
		q->wqe_held = false;
		put(q, &c, len, q->wqe_idx);
		return;
	}
	put(q, &c, need << 16 | len, q->stride);
	q->stride += need;
	q->wqe_held = q->stride < 1u << s->log_count;
	if (qp->srq)
		srq_put_strides(q);
}
