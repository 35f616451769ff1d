/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fwqp.c: queue pairs by command: RC, UC, UD and DCI, no matter what made them.
 *
 *   in   0x80  opt_param_mask     0xc0  qpc, 0xe8 bytes     0x800  offset in the umem, id 0x840
 *   out  0x48  qpn
 *
 * host_qp.qpc keeps the context as bits. After each change, the engine's fields are derived from
 * it. The context of a QP that verbs made or modified is brought up to date first. Each transition
 * takes some fields as they are and others only where the mask has their bit; it ignores the rest
 * of the inbox.
 */
#include <stdlib.h>
#include <string.h>
#include "fwqueue.h"

#define CONTEXT 0x18u             /* byte of either box */
#define QPC SD_QPC
#define PATH 0xc0u                /* bits of the context */

enum { ST_RC, ST_UC, ST_UD, ST_XRC, ST_DCI = 5 };

bool sd_fw_mtu_ok(uint32_t mtu)
{
	return mtu >= 1 && mtu <= 5;
}

/* Modes 1 and 2 are those of 8 bytes that InfiniBand has; from 3 on, 1 << mode bytes are the most */
uint32_t sd_fw_max_atomic(unsigned mode)
{
	return mode < 3 ? 0 : 1u << mode < SD_MAX_ATOMIC ? 1u << mode : SD_MAX_ATOMIC;
}

/* ---- the context and what it stands for ---- */

static unsigned st_of(const struct sd_qp *qp)
{
	return qp->type == IBV_QPT_RC ? ST_RC : qp->type == IBV_QPT_UC ? ST_UC : qp->type == IBV_QPT_UD ? ST_UD :
	       qp->type == SD_QPT_DCI ? ST_DCI : ST_XRC;
}

/* A DCT is no QP to the firmware; XRC QPs are those of verbs alone */
static bool st_ok(const struct sd_qp *qp)
{
	return qp->type != SD_QPT_DCT && st_of(qp) != ST_XRC;
}

static unsigned state_of(const struct sd_qp *qp)
{
	static const uint8_t state[] = { [IBV_QPS_RESET] = 0, [IBV_QPS_INIT] = 1, [IBV_QPS_RTR] = 2, [IBV_QPS_RTS] = 3, [IBV_QPS_SQD] = 7,
					 [IBV_QPS_SQE] = 4, [IBV_QPS_ERR] = 6 };

	return state[qp->state];
}

static unsigned log2_of(uint32_t n)
{
	return n > 1 ? 31 - __builtin_clz(n) : 0;
}

/* 3: both, which is nothing */
static unsigned ordering_of(const uint8_t *qpc)
{
	return sd_get(qpc, 0x26, 1) * SD_OOO_RW + sd_get(qpc, 0x49c, 1) * SD_OOO_ALL;
}

static void path_to_bits(const struct sd_qp *qp, uint8_t *qpc)
{
	const struct ibv_ah_attr *ah = &qp->attr.ah_attr;
	uint8_t mac[6] = { 0 };

	sd_set(qpc, PATH + 0x10, 16, qp->attr.pkey_index);
	sd_set(qpc, PATH + 0x128, 8, qp->attr.port_num);
	sd_set(qpc, PATH + 0x110, 16, qp->udp_sport);
	sd_set(qpc, PATH + 0x48, 8, ah->grh.sgid_index);
	sd_set(qpc, PATH + 0x54, 4, ah->static_rate);
	sd_set(qpc, PATH + 0x58, 8, ah->grh.hop_limit);
	sd_set(qpc, PATH + 0x64, 8, ah->grh.traffic_class);
	sd_set(qpc, PATH + 0x6c, 20, ah->grh.flow_label);
	for (unsigned i = 0; i < 16; i++)
		sd_set(qpc, PATH + 0x80 + 8 * i, 8, ah->grh.dgid.raw[i]);
	if (sd_link_ib()) {
		sd_set(qpc, PATH + 0x28, 1, ah->is_global);
		sd_set(qpc, PATH + 0x29, 7, ah->src_path_bits);
		sd_set(qpc, PATH + 0x30, 16, ah->dlid);
		sd_set(qpc, PATH + 0x124, 4, ah->sl);
		return;
	}
	sd_set(qpc, PATH + 0x121, 3, ah->sl);
	sd_set(qpc, PATH + 0x10a, 6, ah->grh.traffic_class >> 2);
	if (ah->is_global && !sd_resolve(ah->grh.dgid.raw, mac))
		for (unsigned i = 0; i < 6; i++)
			sd_set(qpc, PATH + 0x130 + 8 * i, 8, mac[i]);
}

/* What verbs said to a QP of its own */
static void verbs_to_bits(const struct sd_qp *qp, uint8_t *qpc)
{
	const struct ibv_qp_attr *at = &qp->attr;

	memset(qpc, 0, QPC);
	sd_set(qpc, 0x28, 24, qp->pd->pdn);
	sd_set(qpc, 0x27, 1, qp->ordering == SD_OOO_ALL);
	sd_set(qpc, 0x49c, 1, qp->ordering == SD_OOO_ALL);
	sd_set(qpc, 0x49, 4, log2_of(qp->rq_cnt));
	sd_set(qpc, 0x4d, 3, qp->rq_cnt ? qp->rq_shift - 4 : 0);
	sd_set(qpc, 0x50, 1, !qp->wqebb_cnt);
	sd_set(qpc, 0x51, 4, log2_of(qp->wqebb_cnt));
	sd_set(qpc, 0x68, 24, qp->uar ? qp->uar->page_id : 0);
	sd_set(qpc, 0x88, 24, qp->uidx);
	sd_set(qpc, 0x3e8, 24, qp->send_cq->cqn);
	sd_set(qpc, 0x4e8, 24, qp->recv_cq->cqn);
	sd_set(qpc, 0x565, 3, qp->srq ? 1 : qp->rq_cnt ? 0 : 3);
	sd_set(qpc, 0x568, 24, qp->srq ? qp->srq->srqn : 0);
	sd_set(qpc, 0x630, 8, qp->scatter_req == 64 ? 0x22 : qp->scatter_req ? 0x11 : 0);
	sd_set(qpc, 0x638, 8, qp->scatter_rsp / 32);
	sd_set(qpc, 0x40, 3, at->path_mtu);
	sd_set(qpc, 0x43, 5, qp->type == IBV_QPT_UD ? 12 : 30);
	sd_set(qpc, 0xa8, 24, at->dest_qp_num);
	sd_set(qpc, 0x380, 4, 8);
	sd_set(qpc, 0x388, 3, log2_of(at->max_rd_atomic));
	sd_set(qpc, 0x38d, 3, at->retry_cnt);
	sd_set(qpc, 0x390, 3, at->rnr_retry);
	sd_set(qpc, 0x488, 3, log2_of(at->max_dest_rd_atomic));
	sd_set(qpc, 0x48c, 4, log2_of(SD_MAX_ATOMIC));
	sd_set(qpc, 0x490, 1, !!(at->qp_access_flags & IBV_ACCESS_REMOTE_READ));
	sd_set(qpc, 0x491, 1, !!(at->qp_access_flags & IBV_ACCESS_REMOTE_WRITE));
	sd_set(qpc, 0x492, 1, !!(at->qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC));
	sd_set(qpc, 0x3c8, 24, at->sq_psn);
	sd_set(qpc, 0x4a8, 24, at->rq_psn);
	sd_set(qpc, 0x4a3, 5, at->min_rnr_timer);
	sd_set(qpc, 0x540, 32, at->qkey);
	sd_set(qpc, PATH + 0x40, 5, at->timeout);
	path_to_bits(qp, qpc);
}

static uint8_t *bits(struct host_qp *hq)
{
	if (!hq->q.devx)
		verbs_to_bits(&hq->q, hq->qpc);
	return hq->qpc;
}

/* An address without a port is valid: no answer ever comes */
static void path_from_bits(struct sd_qp *qp, const uint8_t *qpc)
{
	struct ibv_ah_attr *ah = &qp->attr.ah_attr;
	uint8_t mac[6], is[6];
	unsigned dev;

	memset(ah, 0, sizeof(*ah));
	ah->port_num = sd_get(qpc, PATH + 0x128, 8);
	for (unsigned i = 0; i < 16; i++)
		ah->grh.dgid.raw[i] = sd_get(qpc, PATH + 0x80 + 8 * i, 8);
	ah->grh.sgid_index = sd_get(qpc, PATH + 0x48, 8);
	ah->grh.hop_limit = sd_get(qpc, PATH + 0x58, 8);
	ah->grh.traffic_class = sd_get(qpc, PATH + 0x64, 8);
	ah->grh.flow_label = sd_get(qpc, PATH + 0x6c, 20);
	ah->static_rate = sd_get(qpc, PATH + 0x54, 4);
	if (sd_link_ib()) {
		ah->is_global = sd_get(qpc, PATH + 0x28, 1);
		ah->src_path_bits = sd_get(qpc, PATH + 0x29, 7);
		ah->dlid = sd_get(qpc, PATH + 0x30, 16);
		ah->sl = sd_get(qpc, PATH + 0x124, 4);
		return;
	}
	ah->sl = sd_get(qpc, PATH + 0x121, 3);
	dev = sd_port_at(ah->grh.dgid.raw, 0);
	if (dev == SD_NO_DEV)
		return;
	for (unsigned i = 0; i < 6; i++)
		mac[i] = sd_get(qpc, PATH + 0x130 + 8 * i, 8);
	sd_port_mac(dev, is);
	ah->is_global = !memcmp(mac, is, 6);
}

static void from_bits(struct sd_qp *qp, const uint8_t *qpc)
{
	const bool atomics = sd_get(qpc, 0x492, 1) && sd_get(qpc, 0x48c, 4);
	struct ibv_qp_attr *at = &qp->attr;

	at->pkey_index = sd_get(qpc, PATH + 0x10, 16);
	at->port_num = sd_get(qpc, PATH + 0x128, 8);
	if (sd_port_ok(at->port_num))
		qp->dev = sd_port_of(qp->ctx, at->port_num);
	at->qkey = sd_get(qpc, 0x540, 32);
	at->qp_access_flags = IBV_ACCESS_LOCAL_WRITE | (sd_get(qpc, 0x490, 1) ? IBV_ACCESS_REMOTE_READ : 0) |
			      (sd_get(qpc, 0x491, 1) ? IBV_ACCESS_REMOTE_WRITE : 0) | (atomics ? IBV_ACCESS_REMOTE_ATOMIC : 0);
	qp->max_atomic = sd_fw_max_atomic(sd_get(qpc, 0x48c, 4));
	qp->ordering = ordering_of(qpc);
	at->path_mtu = (enum ibv_mtu)sd_get(qpc, 0x40, 3);
	at->dest_qp_num = sd_get(qpc, 0xa8, 24);
	at->rq_psn = sd_get(qpc, 0x4a8, 24);
	at->max_dest_rd_atomic = 1u << sd_get(qpc, 0x488, 3);
	at->min_rnr_timer = sd_get(qpc, 0x4a3, 5);
	at->sq_psn = sd_get(qpc, 0x3c8, 24);
	at->max_rd_atomic = 1u << sd_get(qpc, 0x388, 3);
	at->timeout = sd_get(qpc, PATH + 0x40, 5);
	at->retry_cnt = sd_get(qpc, 0x38d, 3);
	at->rnr_retry = sd_get(qpc, 0x390, 3);
	qp->counter_set = sd_get(qpc, 0x60, 8);
	qp->max_msg = 1u << sd_get(qpc, 0x43, 5);
	qp->udp_sport = sd_get(qpc, PATH + 0x110, 16);
	/* Its own peer needs no address */
	qp->loopback = sd_get(qpc, PATH, 1) || (qp->type != SD_QPT_DCI && qp->type != IBV_QPT_UD && at->dest_qp_num == qp->qpn);
	path_from_bits(qp, qpc);
}

/* ---- create ---- */

/*
 * What this device does not offer: path migration, alternate state, signatures, offloads of a raw
 * QP, a slave that receives, cross-domain, privileged keys, another clock, another sender's number, LAG.
 * (0x60 is a counter set, 0x83 a DCI's handshake.)
 */
static const struct sd_field absent[] = {
	{ 0x4, 4 }, { 0x15, 1 }, { 0x20, 1 }, { 0x5b, 1 }, { 0x408, 24 }, { 0x49d, 1 },
	{ 0 },
};
/* What the creator says once and for all; the path comes with the transitions */
static const struct sd_field made[] = {
	{ 0x18, 4 }, { 0x1c, 2 }, { 0x21, 1 }, { 0x28, 24 }, { 0x49, 4 }, { 0x4d, 3 }, { 0x50, 1 }, { 0x51, 4 },
	{ 0x56, 2 }, { 0x58, 2 }, { 0x5a, 1 }, { 0x68, 24 }, { 0x80, 2 }, { 0x83, 1 }, { 0x88, 24 }, { 0xa3, 5 },
	{ 0x494, 6 }, { 0x49e, 2 }, { 0x3e8, 24 }, { 0x4e8, 24 }, { 0x4c8, 24 }, { 0x500, 64 }, { 0x565, 3 }, { 0x568, 24 }, { 0x630, 8 },
	{ 0x638, 8 }, { 0x640, 64 }, { 0x683, 1 }, { 0x720, 32 }, { 0x3e3, 5 }, { 0x403, 5 }, { 0 },
};

static uint8_t destroy(void *obj)
{
	struct host_qp *hq = obj;
	struct sd_umem *u[2] = { hq->umem[0], hq->umem[1] };

	sd_engine_qp_destroyed(&hq->q);
	sd_qp_remove(hq);
	sd_umem_put(u[0]);
	sd_umem_put(u[1]);
	return SD_ST_OK;
}

/* The type of a transport, 0: not here */
static enum ibv_qp_type type_of(unsigned st)
{
	switch (st) {
	case ST_RC: return IBV_QPT_RC;
	case ST_UC: return IBV_QPT_UC;
	case ST_UD: return IBV_QPT_UD;
	case ST_DCI: return SD_QPT_DCI;
	}
	return (enum ibv_qp_type)0;
}

/* The queues: fills sizes, and where they lie */
static uint8_t queues(struct sd_devx_cmd *c, const uint8_t *qpc, struct host_qp *hq)
{
	struct sd_qp *qp = &hq->q;
	uint64_t offset = sd_get(c->in, 0x800, 64) + (sd_get(qpc, 0x494, 6) << 6), record = sd_get(qpc, 0x500, 64), rq_bytes = 0;
	uint8_t *at, *dbrec, st;

	if (!sd_get(qpc, 0x50, 1))
		qp->wqebb_cnt = 1u << sd_get(qpc, 0x51, 4);
	if (!sd_get(qpc, 0x565, 3)) {
		qp->rq_cnt = 1u << sd_get(qpc, 0x49, 4);
		qp->rq_shift = 4 + sd_get(qpc, 0x4d, 3);
		rq_bytes = (uint64_t)qp->rq_cnt << qp->rq_shift;
		if (qp->rq_shift > 9 || rq_bytes % 64)
			return SD_FAIL(c, SD_ST_BAD_PARAM);
		qp->max_recv_sge = 1u << (qp->rq_shift - 4);
	}
	if (offset % 64 || record % 8)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	st = sd_umem_get(c, sd_get(c->in, 0x840, 32), offset, rq_bytes + ((uint64_t)qp->wqebb_cnt << 6), false, &hq->umem[0], &at);
	if (!st)
		st = sd_umem_get(c, sd_get(qpc, 0x720, 32), record, 8, false, &hq->umem[1], &dbrec);
	if (st)
		return st;
	qp->dbrec = (volatile uint32_t *)(void *)dbrec;
	qp->rq = rq_bytes ? at : NULL;
	qp->sq = qp->wqebb_cnt ? at + rq_bytes : NULL;
	return SD_ST_OK;
}

/* Scatter to CQE: how much, and whether the CQ has room for it */
static uint8_t scatter(struct sd_devx_cmd *c, const uint8_t *qpc, struct sd_qp *qp)
{
	unsigned req = sd_get(qpc, 0x630, 8), res = sd_get(qpc, 0x638, 8);

	if ((req && req != 0x11 && req != 0x22) || res > 2)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if ((req == 0x22 && qp->send_cq->cqe_size != 128) || (res == 2 && qp->recv_cq->cqe_size != 128))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if ((req || res) && qp->type == IBV_QPT_UD)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	qp->scatter_req = (req & 0xf) * 32;
	qp->scatter_rsp = res * 32;
	return SD_ST_OK;
}

static uint8_t create(struct sd_devx_cmd *c)
{
	const uint8_t *qpc = c->in + CONTEXT;
	const unsigned rq_type = sd_get(qpc, 0x565, 3), streams = sd_get(qpc, 0x3e3, 5), errored = sd_get(qpc, 0x403, 5);
	const enum ibv_qp_type type = type_of(sd_get(qpc, 0x8, 8));
	const uint32_t page = sd_get(qpc, 0x68, 24);
	struct host_qp *hq;
	struct sd_qp *qp;
	uint8_t st;

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!type || !sd_fields_clear(qpc, absent) || sd_get(c->in, 0x40, 1) || sd_get(c->in, 0x80, 32))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (sd_get(qpc, 0x13, 2) != 3 || sd_get(qpc, 0x58, 2) > 1 || rq_type == 2 || rq_type > 3)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if ((streams | errored) > (type == SD_QPT_DCI ? SD_LOG_STREAMS : 0))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if ((type == SD_QPT_DCI && rq_type != 1) || (type != SD_QPT_DCI && sd_get(qpc, 0x83, 1)))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	/* There is no mode without a send record */
	if (sd_get(qpc, 0x80, 2))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	hq = calloc(1, sizeof(*hq));
	if (!hq)
		return SD_FAIL(c, SD_ST_NO_RES);
	qp = &hq->q;
	*qp = (struct sd_qp){ .dev = sd_port_of(c->ctx, 1), .uidx = sd_get(qpc, 0x88, 24), .type = type, .state = IBV_QPS_RESET, .ctx = c->ctx,
			      .pd = sd_devx_pd(c, sd_get(qpc, 0x28, 24)), .send_cq = sd_devx_cq(c, sd_get(qpc, 0x3e8, 24)),
			      .recv_cq = sd_devx_cq(c, sd_get(qpc, 0x4e8, 24)), .cqe_atomic_be = true };
	qp->srq = rq_type == 1 ? sd_devx_srq(c, sd_get(qpc, 0x568, 24)) : NULL;
	/* An XRC SRQ is for XRC QPs, a striding RMP for RQs */
	if (qp->srq && (qp->srq->xrcd || (qp->srq->strides.log_size && !qp->srq->tm)))
		qp->srq = NULL;
	if (streams | errored)
		qp->streams = 1u << errored;
	qp->attr.qp_state = IBV_QPS_RESET;
	if (!qp->pd || !qp->send_cq || !qp->recv_cq || (rq_type == 1 && !qp->srq)) {
		st = SD_FAIL(c, SD_ST_BAD_RES);
		goto put;
	}
	/* As QPs of verbs: matching wants answers. A rendezvous QP is one that a matching queue has, and sends nothing itself */
	if ((qp->srq && qp->srq->tm && type != IBV_QPT_RC && type != SD_QPT_DCI) || sd_get(qpc, 0x18, 4) > 1 ||
	    (sd_get(qpc, 0x18, 4) && (!qp->srq || !qp->srq->tm || type != IBV_QPT_RC || !sd_get(qpc, 0x50, 1)))) {
		st = SD_FAIL(c, SD_ST_BAD_PARAM);
		goto put;
	}
	st = scatter(c, qpc, qp);
	if (!st)
		st = queues(c, qpc, hq);
	if (st)
		goto put;
	/* Where there is nothing to ring no page need be named */
	if (page || qp->wqebb_cnt) {
		qp->uar = sd_uar_get(c->ctx, page);
		if (!qp->uar) {
			st = SD_FAIL(c, SD_ST_BAD_RES);
			goto put;
		}
	}
	qp->cd_slave_send = sd_get(qpc, 0x49e, 1);
	qp->cd_master = sd_get(qpc, 0x49f, 1);
	sd_fields_copy(hq->qpc, qpc, made);
	if (sd_qp_add(&hq->q)) {
		st = SD_FAIL(c, SD_ST_NO_RES);
		goto put_uar;
	}
	qp->pd->refs++;
	qp->send_cq->refs++;
	qp->recv_cq->refs++;
	if (qp->srq)
		qp->srq->refs++;
	sd_engine_qp_created(qp);
	sd_set(c->out, 0x48, 24, qp->qpn);
	st = sd_devx_made(c, qp->qpn, hq, destroy);
	if (st) {
		destroy(hq);
		return st;
	}
	hq->q.devx = c->made;
	if (qp->uar)
		sd_trap_page(qp->uar);
	return SD_ST_OK;
put_uar:
	if (qp->uar)
		sd_uar_put(qp->uar);
put:
	sd_umem_put(hq->umem[0]);
	sd_umem_put(hq->umem[1]);
	free(hq);
	return st;
}

/* ---- transitions ---- */

enum { RRE = 1 << 1, RAE = 1 << 2, RWE = 1 << 3, PKEY_INDEX = 1 << 4, Q_KEY = 1 << 5, RNR_TIMEOUT = 1 << 6, PM_STATE = 1 << 10,
       PRI_PORT = 1 << 16, SRQN = 1 << 18, CQN_RCV = 1 << 19 };

static const struct sd_field f_rre[] = { { 0x490, 1 }, { 0 } }, f_rwe[] = { { 0x491, 1 }, { 0 } },
	f_rae[] = { { 0x492, 1 }, { 0x48c, 4 }, { 0 } }, f_pkey[] = { { PATH + 0x10, 16 }, { 0 } }, f_qkey[] = { { 0x540, 32 }, { 0 } },
	f_rnr[] = { { 0x4a3, 5 }, { 0 } }, f_port[] = { { PATH + 0x128, 8 }, { 0 } }, f_none[] = { { 0 } },
	f_order[] = { { 0x26, 2 }, { 0x49c, 1 }, { 0 } }, f_init[] = { { 0x26, 2 }, { 0x49c, 1 }, { 0x60, 8 }, { 0x490, 3 }, { 0x48c, 4 }, { PATH + 0x10, 16 }, { PATH + 0x128, 8 }, { 0 } },
	f_path[] = { { PATH, 2 }, { PATH + 0x28, 24 }, { PATH + 0x48, 8 }, { PATH + 0x54, 12 }, { PATH + 0x64, 28 }, { PATH + 0x80, 64 },
		     { PATH + 0xc0, 64 }, { PATH + 0x108, 24 }, { PATH + 0x121, 7 }, { PATH + 0x130, 48 }, { 0 } },
	f_sl[] = { { PATH, 2 }, { PATH + 0x10a, 6 }, { PATH + 0x121, 7 }, { 0 } },
	f_sport[] = { { PATH + 0x110, 16 }, { 0 } }, f_msg[] = { { 0x40, 8 }, { 0 } },
	f_rtr[] = { { 0xa8, 24 }, { 0x4a8, 24 }, { 0 } }, f_rtr_rc[] = { { 0x488, 3 }, { 0x4a3, 5 }, { 0 } },
	f_psn[] = { { 0x3c8, 24 }, { 0 } },
	f_rts_rc[] = { { 0x380, 4 }, { 0x388, 3 }, { 0x38d, 3 }, { 0x390, 3 }, { PATH + 0x40, 5 }, { PATH + 0x50, 4 }, { 0 } };

/* What a bit of the mask stands for; a shared queue and a receive CQ are set at creation here */
static const struct {
	uint32_t bit;
	const struct sd_field *f;
} optional[] = {
	{ RRE, f_rre }, { RAE, f_rae }, { RWE, f_rwe }, { PKEY_INDEX, f_pkey },
	{ Q_KEY, f_qkey }, { RNR_TIMEOUT, f_rnr }, { PRI_PORT, f_port }, { PM_STATE, f_none },
};

enum { RC, UC, UD, DCI, TYPES };

static const struct step {
	uint16_t opcode;
	enum ibv_qp_state from, to;
	uint32_t mask[TYPES];
	const struct sd_field *taken[TYPES][4];
} steps[] = {
	{ 0x502, IBV_QPS_RESET, IBV_QPS_INIT, { 0 }, { { f_init }, { f_init }, { f_init, f_qkey }, { f_init } } },
	{ 0x50e, IBV_QPS_INIT, IBV_QPS_INIT,
	  { RRE | RAE | RWE | PKEY_INDEX | PRI_PORT, RWE | PKEY_INDEX | PRI_PORT, PKEY_INDEX | Q_KEY | PRI_PORT, PKEY_INDEX | PRI_PORT },
	  { { NULL } } },
	{ 0x503, IBV_QPS_INIT, IBV_QPS_RTR,
	  { RRE | RAE | RWE | PKEY_INDEX, RWE | PKEY_INDEX, PKEY_INDEX | Q_KEY, RAE | PKEY_INDEX },
	  { { f_msg, f_path, f_rtr, f_rtr_rc }, { f_msg, f_path, f_rtr }, { f_msg }, { f_msg, f_sl } } },
	{ 0x504, IBV_QPS_RTR, IBV_QPS_RTS,
	  { RRE | RAE | RWE | PM_STATE | RNR_TIMEOUT, RWE | PM_STATE, Q_KEY, RRE | RAE | RWE | PM_STATE | RNR_TIMEOUT },
	  { { f_psn, f_rts_rc }, { f_psn }, { f_psn }, { f_psn, f_rts_rc } } },
	{ 0x505, IBV_QPS_RTS, IBV_QPS_RTS,
	  { RRE | RAE | RWE | PM_STATE | RNR_TIMEOUT, RWE | PM_STATE, Q_KEY, RRE | RAE | RWE | PM_STATE | RNR_TIMEOUT }, { { NULL } } },
	{ 0x506, IBV_QPS_SQE, IBV_QPS_RTS, { RRE | RAE | RWE | RNR_TIMEOUT, RWE, Q_KEY, 0 }, { { NULL } } },
};

/* The step's own conditions on what the QP has now, of which some came before */
static bool acceptable(const struct sd_qp *qp, const struct step *s, const uint8_t *in, const uint8_t *qpc)
{
	const bool connected = qp->type == IBV_QPT_RC || qp->type == IBV_QPT_UC;
	const bool reliable = qp->type == IBV_QPT_RC || qp->type == SD_QPT_DCI;
	const unsigned own = sd_get(in, PATH, 1) || (connected && sd_get(qpc, 0xa8, 24) == qp->qpn);

	if (!sd_port_ok(sd_get(qpc, PATH + 0x128, 8)) || sd_get(qpc, PATH + 0x10, 16) >= sd_pkeys())
		return false;
	/* Reads and writes alone only where there are such that are answered; not both */
	if (ordering_of(qpc) > SD_OOO_ALL || (ordering_of(qpc) == SD_OOO_RW && !reliable))
		return false;
	if (s->opcode == 0x502)
		return sd_get(in, 0x13, 2) == 3;
	if (s->opcode == 0x503) {
		if (!sd_fw_mtu_ok(sd_get(qpc, 0x40, 3)) || sd_get(qpc, 0x43, 5) > 30 || 1u << sd_get(qpc, 0x488, 3) > SD_MAX_RD_ATOMIC)
			return false;
		if (!connected)
			return true;
		/* The primary path's port is the port */
		if (!sd_port_ok(sd_get(in, PATH + 0x128, 8)))
			return false;
		return own || (sd_link_ib() && !sd_get(qpc, PATH + 0x28, 1)) || !sd_gid(qp->dev, sd_get(qpc, PATH + 0x48, 8), NULL, NULL);
	}
	return s->opcode != 0x504 || 1u << sd_get(qpc, 0x388, 3) <= SD_MAX_RD_ATOMIC;
}

static uint8_t move(struct sd_devx_cmd *c)
{
	struct sd_qp *qp = sd_devx_qp(c, sd_get(c->in, 0x48, 24));
	const uint8_t *in = c->in + CONTEXT;
	const uint32_t mask = sd_get(c->in, 0x80, 32);
	const uint64_t more = sd_get(c->in, 0x840, 64);
	const struct step *s = steps;
	struct host_qp *hq;
	uint8_t next[QPC];
	enum ibv_qp_state from;
	unsigned t;

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!qp || !st_ok(qp))
		return SD_FAIL(c, SD_ST_BAD_RES);
	while (s->opcode != c->opcode)
		s++;
	from = qp->state;
	if (from != s->from)
		return SD_FAIL(c, SD_ST_BAD_QP_STATE);
	hq = sd_container(qp, struct host_qp, q);
	t = qp->type == IBV_QPT_RC ? RC : qp->type == IBV_QPT_UC ? UC : qp->type == IBV_QPT_UD ? UD : DCI;
	if (mask & ~s->mask[t])
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	memcpy(next, bits(hq), QPC);
	for (unsigned i = 0; i < 4 && s->taken[t][i]; i++)
		sd_fields_copy(next, in, s->taken[t][i]);
	/* It may be said at either of the first two steps */
	if (s->opcode == 0x503 && ordering_of(in))
		sd_fields_copy(next, in, f_order);
	for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++)
		if (mask & optional[i].bit)
			sd_fields_copy(next, in, optional[i].f);
	/* The source port, which is asked for without the longer inbox */
	if (more & 4) {
		if (s->opcode != 0x505 || t > UC || sd_link_ib() || sd_get(in, PATH + 0x110, 16) < 0xc000)
			return SD_FAIL(c, SD_ST_BAD_PARAM);
		sd_fields_copy(next, in, f_sport);
	}
	if (!acceptable(qp, s, in, next))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	/* A longer inbox has more of the mask and the rest of the context: what allows copies, a failed stream to reset */
	if (sd_get(c->in, 0x40, 1)) {
		const uint64_t known = s->opcode == 0x50e && (t == RC || t == DCI) ? 8 : s->opcode == 0x505 && qp->streams ? 1 : 0;

		if (!known)
			return SD_FAIL(c, SD_ST_BAD_PARAM);
		if (c->inlen < 0x1d0)
			return SD_FAIL(c, SD_ST_BAD_INLEN);
		if (more & ~known || (more & 1 && !sd_engine_stream_reset(qp, sd_get(c->in, 0x890, 16))))
			return SD_FAIL(c, SD_ST_BAD_PARAM);
		if (more & 8)
			qp->mmo = sd_get(c->in, 0x880 + 2, 1);
	}
	memcpy(hq->qpc, next, QPC);
	from_bits(qp, next);
	qp->state = qp->attr.qp_state = s->to;
	sd_engine_qp_modified(qp, from, s->opcode == 0x503 ? IBV_QP_AV : 0);
	return SD_ST_OK;
}

/* From wherever it is */
static uint8_t stop(struct sd_devx_cmd *c)
{
	struct sd_qp *qp = sd_devx_qp(c, sd_get(c->in, 0x48, 24));
	const enum ibv_qp_state to = c->opcode == 0x507 ? IBV_QPS_ERR : IBV_QPS_RESET;
	enum ibv_qp_state from;
	struct host_qp *hq;
	uint8_t next[QPC] = { 0 };

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!qp || !st_ok(qp))
		return SD_FAIL(c, SD_ST_BAD_RES);
	hq = sd_container(qp, struct host_qp, q);
	from = qp->state;
	if (to == IBV_QPS_RESET) {
		sd_fields_copy(next, bits(hq), made);
		memcpy(hq->qpc, next, QPC);
		memset(&qp->attr, 0, sizeof(qp->attr));
		qp->loopback = qp->mmo = false;
		qp->max_msg = qp->udp_sport = 0;
		qp->ordering = SD_IN_ORDER;
	}
	qp->state = qp->attr.qp_state = to;
	if (from != IBV_QPS_RESET || to != IBV_QPS_RESET)
		sd_engine_qp_modified(qp, from, IBV_QP_STATE);
	return SD_ST_OK;
}

/* ---- query ---- */

static uint8_t query(struct sd_devx_cmd *c)
{
	struct sd_qp *qp = sd_devx_qp(c, sd_get(c->in, 0x48, 24));
	uint8_t qpc[QPC];
	struct sd_qp_look l;

	if (!qp || (!st_ok(qp) && qp->type != IBV_QPT_XRC_SEND))
		return SD_FAIL(c, SD_ST_BAD_RES);
	memcpy(qpc, bits(sd_container(qp, struct host_qp, q)), QPC);
	sd_engine_qp_look(qp, &l);
	sd_set(qpc, 0x0, 4, state_of(qp));
	sd_set(qpc, 0x8, 8, st_of(qp));
	sd_set(qpc, 0x13, 2, 3);
	sd_set(qpc, 0x448, 24, l.last_acked_psn);
	sd_set(qpc, 0x468, 24, l.ssn);
	sd_set(qpc, 0x5a0, 16, l.sq_hw);
	sd_set(qpc, 0x5b0, 16, l.sq_sw);
	sd_set(qpc, 0x5c0, 32, l.rq_hw);
	sd_set(qpc, 0x5e0, 32, l.rq_sw);
	if (qp->state >= IBV_QPS_RTR && qp->state != IBV_QPS_ERR)
		sd_set(qpc, 0x4a8, 24, l.next_rcv_psn);
	if (qp->state >= IBV_QPS_RTS && qp->state != IBV_QPS_ERR)
		sd_set(qpc, 0x3c8, 24, l.next_send_psn);
	sd_devx_answer(c, CONTEXT, qpc, QPC);
	return SD_ST_OK;
}

const struct sd_devx_op sd_fw_qp_ops[] = {
	{ 0x500, 0x110, 0x10, create },
	{ 0x502, 0x110, 0x10, move },
	{ 0x503, 0x110, 0x10, move },
	{ 0x504, 0x110, 0x10, move },
	{ 0x505, 0x110, 0x10, move },
	{ 0x506, 0x110, 0x10, move },
	{ 0x50e, 0x110, 0x10, move },
	{ 0x507, 0x10, 0x10, stop },
	{ 0x50a, 0x10, 0x10, stop },
	{ 0x50b, 0x10, CONTEXT + QPC, query },
	{ 0 },
};
