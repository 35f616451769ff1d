/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ud.c: datagrams.
 *
 * The address vector says which port is meant: by LID, and by GID where there is a GRH, on
 * InfiniBand; by MAC and GID on RoCE. All processes of a fabric are the same port, so the QPN names
 * the process. The process that has the QP checks that the address is that of the QP's device. A
 * datagram without a receiver, or for a QP that is not ready, is lost.
 *
 * The first 40 bytes of a receive buffer are for the GRH. Over IPv4 the last 20 of them hold the IP
 * header. Without a GRH they stay as they are. A message longer than its receive WQE completes that
 * WQE with a length error and stops the receiver, as on the adapter.
 *
 * A message to a group goes to every QP attached to it, in all processes, the sender included.
 */
#include <errno.h>
#include <string.h>
#include "eng.h"

#define COMPACT_AV 16u
#define SGID_INDEX(grh_gid_fl) ((grh_gid_fl) >> 20 & 0xff)
#define L3_IN_DATA (1u << 28)   /* of a CQE's flags_rqpn: there is a GRH or an IP header in the buffer */
#define OWN_QKEY (1u << 31)
#define IBA_NEXT_HEADER 0x1b

static bool gid_is_ipv4(const uint8_t *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid, mapped, sizeof mapped) == 0;
}

/* ff0e::ffff:a.b.c.d is how RoCE v2 writes an IPv4 group */
static bool gid_is_ipv4_group(const uint8_t *gid)
{
	static const uint8_t mapped[10] = { [8] = 0xff, [9] = 0xff };

	return gid[0] == 0xff && memcmp(gid + 2, mapped, sizeof mapped) == 0;
}

uint8_t ud_decode(struct rcq *q, const uint8_t **at, const uint8_t *end)
{
	struct ud_path *p = &q->body.path;
	struct sd_qp *qp = q->qp;
	struct mlx5_wqe_av av;
	union ibv_gid gid;
	uint32_t dqp, flow;
	unsigned type = 0;
	size_t size;

	_Static_assert(sizeof av == 48 && offsetof(struct mlx5_wqe_av, reserved0) == COMPACT_AV, "an address vector");
	memset(&av, 0, sizeof av);
	if (end - *at < (ptrdiff_t)COMPACT_AV)
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	memcpy(&av, *at, COMPACT_AV);
	dqp = be32toh(av.dqp_dct);
	size = dqp & MLX5_EXTENDED_UD_AV ? sizeof av : COMPACT_AV;
	if (end - *at < (ptrdiff_t)size)
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	memcpy(&av, *at, size);
	*at += size;

	*p = (struct ud_path){ .ib = sd_lid(qp->dev) != 0 };
	q->body.dqpn = dqp & 0xffffff;
	p->mcast = q->body.dqpn == UD_MCAST;
	p->qkey = be32toh(av.key.qkey.qkey);
	q->body.dc_key = be64toh(av.key.dc_key);
	if (p->qkey & OWN_QKEY)
		p->qkey = qp->attr.qkey;
	flow = be32toh(av.grh_gid_fl);
	p->flow = flow & 0xfffff;
	p->tclass = av.tclass;
	p->hops = av.hop_limit;
	memcpy(p->dgid, av.rgid, 16);
	memcpy(p->dmac, av.rmac, 6);
	if (p->ib) {
		p->dlid = be16toh(av.rlid);
		p->slid = sd_lid(qp->dev) | (av.fl_mlid & 0x7f);
		p->sl = av.stat_rate_sl & 0xf;
		p->l3 = flow >> 30 & 1 ? UD_IS_GRH : UD_PLAIN;
	} else if (size == COMPACT_AV) {
		/* There is no MAC in it */
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	}
	if (p->l3 || !p->ib) {
		if (sd_gid(qp->dev, SGID_INDEX(flow), &gid, &type) != 0)
			return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
		memcpy(p->sgid, gid.raw, 16);
	}
	if (!p->ib)
		p->l3 = type != IBV_GID_TYPE_ROCE_V2 ? UD_IS_GRH :
			gid_is_ipv4(p->dgid) || gid_is_ipv4_group(p->dgid) ? UD_IS_IPV4 : UD_IS_IPV6;
	return 0;
}

/* ---- the receiver ---- */

static void put16(uint8_t *at, uint32_t v)
{
	at[0] = v >> 8;
	at[1] = v;
}

static void put32(uint8_t *at, uint32_t v)
{
	put16(at, v >> 16);
	put16(at + 2, v);
}

/* What lies in front of the message; returns how many of the 40 bytes, at their end, are written */
static unsigned header(const struct ud_path *p, const struct frame *f, uint8_t h[UD_GRH])
{
	/* BTH, DETH, the immediate, the payload in whole words, ICRC */
	unsigned len = 12 + 8 + (f->opcode == MLX5_OPCODE_SEND_IMM ? 4 : 0) + ((f->total + 3) & ~3u) + 4, i, sum;
	uint8_t *ip = h + 20;

	memset(h, 0, UD_GRH);
	switch (p->l3) {
	case UD_IS_GRH:
	case UD_IS_IPV6:
		put32(h, 6u << 28 | (uint32_t)p->tclass << 20 | p->flow);
		put16(h + 4, p->l3 == UD_IS_GRH ? len : len + 8);
		h[6] = p->l3 == UD_IS_GRH ? IBA_NEXT_HEADER : 17;
		h[7] = p->hops;
		memcpy(h + 8, p->sgid, 16);
		memcpy(h + 24, p->dgid, 16);
		return UD_GRH;
	case UD_IS_IPV4:
		ip[0] = 0x45;
		ip[1] = p->tclass;
		put16(ip + 2, 20 + 8 + len);
		ip[6] = 0x40;
		ip[8] = p->hops;
		ip[9] = 17;
		memcpy(ip + 12, p->sgid + 12, 4);
		memcpy(ip + 16, p->dgid + 12, 4);
		for (i = sum = 0; i < 20; i += 2)
			sum += ip[i] << 8 | ip[i + 1];
		sum = (sum & 0xffff) + (sum >> 16);
		put16(ip + 10, ~((sum & 0xffff) + (sum >> 16)));
		return 20;
	}
	return 0;
}

/* Does this QP take what is sent to this group? lid counts on InfiniBand without GRH */
static bool attached(const struct sd_qp *qp, const uint8_t gid[16], uint16_t lid)
{
	const struct sd_mcast *m = qp->groups;

	while (m && (gid ? memcmp(m->gid, gid, 16) != 0 : m->lid != lid))
		m = m->next;
	return m;
}

static bool addressed(struct sd_qp *qp, const struct ud_path *p)
{
	uint8_t mac[6];

	if (p->mcast)
		return attached(qp, p->l3 ? p->dgid : NULL, p->dlid);
	if (p->ib)
		return sd_port_is(qp->dev, p->l3 ? p->dgid : NULL, p->dlid);
	sd_port_mac(qp->dev, mac);
	return memcmp(mac, p->dmac, 6) == 0 && sd_port_is(qp->dev, p->dgid, 0);
}

static void recv_cqe(struct rcq *q, const struct frame *f, const struct ud_path *p)
{
	static const uint8_t l3_type[] = { [UD_IS_GRH] = 0, [UD_IS_IPV6] = 1, [UD_IS_IPV4] = 2 };
	struct sd_qp *qp = q->qp;
	struct mlx5_cqe64 c;
	uint32_t flags = p->l3 ? L3_IN_DATA : 0;

	/* What is the service level on InfiniBand tells on RoCE which header it is */
	flags |= (p->ib ? p->sl : l3_type[p->l3]) << 24;
	memset(&c, 0, sizeof c);
	c.slid = htobe16(p->slid);
	c.flags_rqpn = htobe32(flags | f->src);
	c.srqn_uidx = htobe32(qp->uidx);
	c.imm_inval_pkey = f->opcode == MLX5_OPCODE_SEND_IMM ? f->imm : htobe32(qp->attr.pkey_index);
	c.byte_cnt = htobe32(UD_GRH + f->total);
	c.timestamp = htobe64(eng_now());
	c.sop_drop_qpn = htobe32(qp->qpn);
	c.wqe_counter = htobe16(q->wqe_idx);
	c.op_own = (f->opcode == MLX5_OPCODE_SEND_IMM ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND) << 4 | (f->solicited ? 2 : 0);
	q->wqe_held = false;
	cqe_put(qp->recv_cq, q, &c, NULL, f->solicited);
}

/* Into one QP, or nowhere; false: the QP has failed by it */
static bool receive(struct rcq *q, const struct frame *f, const struct ud_path *p, const uint8_t *data)
{
	const enum ibv_event_type fatal = IBV_EVENT_QP_FATAL;
	struct sd_qp *qp = q->qp;
	struct iovec dst[ENG_IOVS], src;
	uint8_t h[UD_GRH];
	unsigned n, hlen;

	if (q->err || qp->type != IBV_QPT_UD || qp->state < IBV_QPS_RTR || qp->state > IBV_QPS_SQE || fault_deaf(qp->dev))
		return true;
	if (qp->recv_cq->overrun || qp->send_cq->overrun || p->qkey != qp->attr.qkey || !addressed(qp, p))
		return true;
	switch (rx_take(q)) {
	case RX_NONE:
		return true;
	case RX_BAD:
		rx_fail(q, &fatal);
		return false;
	}
	if (UD_GRH + f->total > q->rx.total) {
		rx_error(q, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, 0x6b);
		rx_fail(q, NULL);
		return false;
	}
	hlen = header(p, f, h);
	src = (struct iovec){ h + UD_GRH - hlen, hlen };
	if (!mem_vec(qp, &q->rx, UD_GRH - hlen, hlen, IBV_ACCESS_LOCAL_WRITE, dst, &n) || mem_copy(dst, n, &src, 1, hlen) != MEM_OK)
		goto fault;
	src = (struct iovec){ (void *)data, f->total };
	if (!mem_vec(qp, &q->rx, UD_GRH, f->total, IBV_ACCESS_LOCAL_WRITE, dst, &n) || mem_copy(dst, n, &src, 1, f->total) != MEM_OK)
		goto fault;
	recv_cqe(q, f, p);
	return true;
fault:
	rx_error(q, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x51);
	rx_fail(q, NULL);
	return false;
}

/*
 * To the QPs of this process that it is for; false: the sender was one of them, and has failed by
 * it
 */
static bool deliver(struct rcq *sender, const struct frame *f, const struct ud_path *p, const uint8_t *data)
{
	bool good = true;
	struct sd_qp *qp;

	eng_self = sender;
	for (qp = p->mcast ? sd_qp_next(NULL) : sd_qp_find(f->dst); qp; qp = p->mcast ? sd_qp_next(qp) : NULL)
		if (qp->eng && !(p->mcast && qp->no_self && qp->eng == sender) && !receive(qp->eng, f, p, data) && qp->eng == sender)
			good = false;
	eng_self = NULL;
	return good;
}

/* From another process: the way, then the message */
void ud_frame(const struct frame *f, const uint8_t *payload)
{
	struct ud_path p;
	struct frame g = *f;

	if (f->len < sizeof p || f->len - sizeof p > UD_MTU || (f->opcode != MLX5_OPCODE_SEND && f->opcode != MLX5_OPCODE_SEND_IMM))
		return;
	memcpy(&p, payload, sizeof p);
	if (p.l3 > UD_IS_IPV4 || p.sl > 15 || p.mcast != (f->dst == UD_MCAST))
		return;
	g.total = f->len - sizeof p;
	deliver(NULL, &g, &p, payload + sizeof p);
}

/* ---- the sender ---- */

/* False: no room. Whether somebody is there makes no difference */
static bool to_wire(unsigned slot, struct frame *f, const struct iovec *v)
{
	uint64_t inst = wire_peer(slot);

	return !inst || wire_send(slot, inst, f, v, 2) != -EAGAIN;
}

bool ud_send(struct rcq *q, struct op *op, uint8_t *synd, bool *stop)
{
	unsigned slot = q->body.dqpn >> 16, n, i, copies = op->dup ? 2 : 1;
	bool here = eng_is_stepped || slot == sd_slot || q->body.path.mcast;
	struct iovec src[ENG_IOVS], v[2];
	static uint8_t data[UD_MTU];
	uint8_t slots[SD_MAX_SLOTS];
	struct frame f;

	if (!here && !wire_room(slot) && slot < SD_MAX_SLOTS)
		return false;
	v[0] = (struct iovec){ &q->body.path, sizeof q->body.path };
	v[1] = (struct iovec){ data, op->total };
	if (!mem_vec(q->qp, &q->body.segs, 0, op->total, 0, src, &n) || mem_copy(&v[1], 1, src, n, op->total) != MEM_OK) {
		*synd = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
		return true;
	}
	if (op->corrupt && op->total)
		data[op->total / 2] ^= 0x10;
	f = (struct frame){
		.len = sizeof q->body.path + op->total, .kind = FR_UD, .opcode = op->opcode, .solicited = q->body.se, .dst = q->body.dqpn,
		.src = q->qp->qpn, .psn = op->psn, .imm = q->body.imm, .total = op->total,
	};
	while (copies--) {
		if (here && !*stop)
			*stop = !deliver(q, &f, &q->body.path, data);
		if (eng_is_stepped || (here && !q->body.path.mcast))
			continue;
		if (!q->body.path.mcast) {
			/* A second copy that finds no room is one that was lost */
			if (!to_wire(slot, &f, v) && !(op->dup && !copies))
				return false;
			continue;
		}
		for (i = 0, n = wire_others(slots); i < n; i++)
			to_wire(slots[i], &f, v);
	}
	return true;
}
