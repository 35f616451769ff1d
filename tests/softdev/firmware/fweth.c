/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fweth.c: the objects for raw packets: TIS, SQ, RQ, RQT, TIR; what they name, and their states. No
 * SQ ever sends. An RQ, RQT or TIR is the same object that wq.c or tir.c makes for verbs.
 *
 *   TIS, TIR, RQT, SQ, RQ     in 0x100 context     out 0x48 number; a query's 0x100, a TIS's 0x80
 */
#include <stdlib.h>
#include <string.h>
#include "fwqueue.h"

#define CONTEXT 0x20u             /* byte of either box */
#define WQ (CONTEXT + 0x30u)
#define SQC 0xf0u                 /* bytes; an RQ's as well */
#define TISC 0xa0u
#define RQTC 0xf0u                /* before the list */
#define NUMBERS 65536u

enum { ST_RST, ST_RDY, ST_ERR = 3 };

static unsigned bits_of(enum ibv_wq_state state)
{
	return state == IBV_WQS_RESET ? ST_RST : state == IBV_WQS_RDY ? ST_RDY : ST_ERR;
}

/* Whether it may go from here to there; mask: what else may be modified */
static uint8_t step(struct sd_devx_cmd *c, enum ibv_wq_state *state, uint64_t mask)
{
	const unsigned is = sd_get(c->in, 0x40, 4), to = sd_get(c->in + CONTEXT, 0x8, 4);
	enum ibv_wq_state next = to == ST_RST ? IBV_WQS_RESET : to == ST_RDY ? IBV_WQS_RDY : IBV_WQS_ERR;

	if (is != bits_of(*state))
		return SD_FAIL(c, SD_ST_BAD_RES_STATE);
	/* Rates, lwm, scatter of FCS are not offered */
	if (sd_get(c->in, 0x80, 64) & ~mask || to == 2 || to > ST_ERR)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (!sd_wq_may(*state, next))
		return SD_FAIL(c, SD_ST_BAD_RES_STATE);
	*state = next;
	return SD_ST_OK;
}

/* ---- TIS ---- */

struct tis {
	uint32_t number;
	struct sd_ctx *ctx;
	struct sd_domain *td;
	struct sd_pd *pd;         /* or NULL */
	int refs;                 /* SQs */
	uint8_t tisc[TISC];
};

static SD_OWN struct sd_numbers tises = { .max = NUMBERS, .first = 1 }, sqs = { .max = NUMBERS, .first = 0x40 };

static struct tis *tis_named(const struct sd_devx_cmd *c, uint32_t n)
{
	struct tis *t = sd_number_get(&tises, n);

	return t && t->ctx == c->ctx ? t : NULL;
}

static uint8_t tis_destroy(void *obj)
{
	struct tis *t = obj;

	if (t->refs)
		return SD_ST_BUSY;
	t->td->refs--;
	if (t->pd)
		t->pd->refs--;
	tises.at[t->number] = NULL;
	free(t);
	return SD_ST_OK;
}

static uint8_t tis_create(struct sd_devx_cmd *c)
{
	static const struct sd_field given[] = { { 0xc, 4 }, { 0x128, 24 }, { 0x148, 24 }, { 0x168, 24 }, { 0 } };
	static const struct sd_field absent[] = { { 0x0, 8 }, { 0x148, 24 }, { 0 } };
	const uint8_t *tisc = c->in + CONTEXT;
	struct sd_domain *td = sd_devx_domain(c, SD_TRANSPORT_DOMAIN, sd_get(tisc, 0x128, 24));
	uint32_t pdn = sd_get(tisc, 0x168, 24);
	struct sd_pd *pd = pdn ? sd_devx_pd(c, pdn) : NULL;
	struct tis *t;
	uint8_t st;

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	/* LAG, TLS and IPoIB's underlay are not offered */
	if (!sd_fields_clear(tisc, absent))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (!td || (pdn && !pd))
		return SD_FAIL(c, SD_ST_BAD_RES);
	t = calloc(1, sizeof(*t));
	if (!t || sd_number_new(&tises, t, &t->number)) {
		free(t);
		return SD_FAIL(c, SD_ST_LIMIT);
	}
	t->ctx = c->ctx;
	t->td = td;
	t->pd = pd;
	td->refs++;
	if (pd)
		pd->refs++;
	sd_fields_copy(t->tisc, tisc, given);
	sd_set(c->out, 0x48, 24, t->number);
	st = sd_devx_made(c, t->number, t, tis_destroy);
	if (st)
		tis_destroy(t);
	return st;
}

static uint8_t tis_query(struct sd_devx_cmd *c)
{
	struct tis *t = tis_named(c, sd_get(c->in, 0x48, 24));

	if (!t)
		return SD_FAIL(c, SD_ST_BAD_RES);
	sd_devx_answer(c, 0x10, t->tisc, TISC);
	return SD_ST_OK;
}

/* The priority; LAG's two bits are not offered */
static uint8_t tis_modify(struct sd_devx_cmd *c)
{
	struct tis *t = tis_named(c, sd_get(c->in, 0x48, 24));
	uint64_t mask = sd_get(c->in, 0x80, 64);

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!t)
		return SD_FAIL(c, SD_ST_BAD_RES);
	if (mask & ~1ull)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (mask)
		sd_set(t->tisc, 0xc, 4, sd_get(c->in + CONTEXT, 0xc, 4));
	return SD_ST_OK;
}

/* ---- SQ ---- */

struct sq {
	uint32_t number;
	struct sd_ctx *ctx;
	struct sd_pd *pd;
	struct sd_cq *cq;
	struct sd_uar *uar;
	struct tis *tis;          /* or NULL */
	enum ibv_wq_state state;
	struct sd_fw_wq q;
	uint8_t sqc[SQC];
};

static struct sq *sq_named(const struct sd_devx_cmd *c)
{
	struct sq *s = sd_number_get(&sqs, sd_get(c->in, 0x48, 24));

	return s && s->ctx == c->ctx ? s : NULL;
}

static uint8_t sq_destroy(void *obj)
{
	struct sq *s = obj;

	s->pd->refs--;
	s->cq->refs--;
	if (s->tis)
		s->tis->refs--;
	sd_uar_put(s->uar);
	sd_fw_wq_put(&s->q);
	sqs.at[s->number] = NULL;
	free(s);
	return SD_ST_OK;
}

static uint8_t sq_create(struct sd_devx_cmd *c)
{
	static const struct sd_field given[] = {
		{ 0x2, 6 }, { 0xc, 2 }, { 0x1a, 2 }, { 0x28, 24 }, { 0x48, 24 }, { 0x100, 16 }, { 0x168, 24 }, { 0 },
	};
	/* Privileged keys, cross-domain, hairpin, another clock, pacing */
	static const struct sd_field absent[] = { { 0x0, 2 }, { 0xe, 1 }, { 0x1a, 1 }, { 0x68, 24 }, { 0xf0, 16 }, { 0 } };
	const uint8_t *sqc = c->in + CONTEXT, *wq = c->in + WQ;
	const uint32_t lists = sd_get(sqc, 0x100, 16);
	struct tis *tis = lists ? tis_named(c, sd_get(sqc, 0x168, 24)) : NULL;
	struct sd_pd *pd = sd_devx_pd(c, sd_get(wq, 0x48, 24));
	struct sd_cq *cq = sd_devx_cq(c, sd_get(sqc, 0x48, 24));
	struct sd_uar *uar;
	struct sd_fw_wq q;
	struct sq *s;
	uint8_t st;

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!sd_fields_clear(sqc, absent) || lists > 1 || sd_get(sqc, 0x8, 4) != ST_RST)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (!pd || !cq || (lists && !tis))
		return SD_FAIL(c, SD_ST_BAD_RES);
	st = sd_fw_wq(c, wq, 1 << SD_WQ_CYCLIC, 6, 6, &q);
	if (st)
		return st;
	uar = sd_uar_get(c->ctx, sd_get(wq, 0x68, 24));
	if (!uar) {
		sd_fw_wq_put(&q);
		return SD_FAIL(c, SD_ST_BAD_RES);
	}
	s = calloc(1, sizeof(*s));
	if (!s || sd_number_new(&sqs, s, &s->number)) {
		free(s);
		sd_uar_put(uar);
		sd_fw_wq_put(&q);
		return SD_FAIL(c, SD_ST_LIMIT);
	}
	s->ctx = c->ctx;
	s->pd = pd;
	s->cq = cq;
	s->uar = uar;
	s->tis = tis;
	s->q = q;
	pd->refs++;
	cq->refs++;
	if (tis)
		tis->refs++;
	sd_fields_copy(s->sqc, sqc, given);
	sd_fw_wq_keep(s->sqc + 0x30, wq);
	sd_set(c->out, 0x48, 24, s->number);
	st = sd_devx_made(c, s->number, s, sq_destroy);
	if (st)
		sq_destroy(s);
	return st;
}

/* Of a raw packet QP of verbs: what an SQ's and an RQ's context have in common */
static uint8_t raw_query(struct sd_devx_cmd *c, bool sq)
{
	struct sd_qp *qp = sd_devx_qp(c, sd_get(c->in, 0x48, 24));
	uint8_t context[SQC] = { 0 };

	if (!qp || qp->type != IBV_QPT_RAW_PACKET)
		return SD_FAIL(c, SD_ST_BAD_RES);
	sd_set(context, 0x8, 4, qp->state == IBV_QPS_RESET ? ST_RST : qp->state == IBV_QPS_ERR ? ST_ERR : ST_RDY);
	sd_set(context, 0x28, 24, qp->uidx);
	sd_set(context, 0x48, 24, sq ? qp->send_cq->cqn : qp->recv_cq->cqn);
	sd_devx_answer(c, CONTEXT, context, SQC);
	return SD_ST_OK;
}

static uint8_t sq_query(struct sd_devx_cmd *c)
{
	struct sq *s = sq_named(c);
	uint8_t sqc[SQC];

	if (!s)
		return raw_query(c, true);
	memcpy(sqc, s->sqc, SQC);
	sd_set(sqc, 0x8, 4, bits_of(s->state));
	sd_set(sqc + 0x30, 0xe0, 32, be32toh(__atomic_load_n(&s->q.dbrec[1], __ATOMIC_ACQUIRE)));
	sd_devx_answer(c, CONTEXT, sqc, SQC);
	return SD_ST_OK;
}

static uint8_t sq_modify(struct sd_devx_cmd *c)
{
	struct sq *s = sq_named(c);

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!s)
		return SD_FAIL(c, SD_ST_BAD_RES);
	return step(c, &s->state, 0);
}

/* ---- RQ ---- */

static struct host_wq *rq_named(const struct sd_devx_cmd *c, uint32_t n)
{
	struct host_wq *wq = sd_wq_find(n);

	return wq && wq->q.ctx == c->ctx ? wq : NULL;
}

static uint8_t rq_destroy(void *obj)
{
	struct host_wq *wq = obj;
	struct sd_umem *u[2] = { wq->umem[0], wq->umem[1] };

	if (wq->refs || sd_wq_free(wq))
		return SD_ST_BUSY;
	sd_umem_put(u[0]);
	sd_umem_put(u[1]);
	return SD_ST_OK;
}

static uint8_t rq_create(struct sd_devx_cmd *c)
{
	static const struct sd_field given[] = {
		{ 0x4, 4 }, { 0xd, 1 }, { 0x1a, 2 }, { 0x28, 24 }, { 0x48, 24 }, { 0x60, 8 }, { 0x88, 24 }, { 0 },
	};
	/* Privileged keys, delayed drop, scatter of FCS, hairpin, another clock */
	static const struct sd_field absent[] = { { 0x0, 3 }, { 0xe, 1 }, { 0x1a, 1 }, { 0xa8, 24 }, { 0x126, 2 }, { 0x12e, 18 }, { 0 } };
	const uint8_t *rqc = c->in + CONTEXT, *wq = c->in + WQ;
	const bool on_rmp = sd_get(rqc, 0x4, 4) == 1;
	struct sd_cq *cq = sd_devx_cq(c, sd_get(rqc, 0x48, 24));
	struct sd_srq *rmp = on_rmp ? sd_devx_srq(c, sd_get(rqc, 0x88, 24)) : NULL;
	struct sd_pd *pd = on_rmp ? rmp ? rmp->pd : NULL : sd_devx_pd(c, sd_get(wq, 0x48, 24));
	struct sd_fw_wq q = { .type = 0 };
	struct host_wq *w;
	uint8_t st;

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!sd_fields_clear(rqc, absent) || sd_get(rqc, 0x4, 4) > 1 || sd_get(rqc, 0x8, 4) != ST_RST)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (!cq || !pd)
		return SD_FAIL(c, SD_ST_BAD_RES);
	/* What is shared by transports that answer */
	if (on_rmp && (rmp->tm || rmp->xrcd))
		return SD_FAIL(c, SD_ST_BAD_RES);
	st = on_rmp ? SD_ST_OK : sd_fw_wq(c, wq, 0xf, 4, 9, &q);
	if (st)
		return st;
	w = calloc(1, sizeof(*w));
	if (!w)
		goto put;
	*w = (struct host_wq){ .state = IBV_WQS_RESET, .umem = { q.umem[0], q.umem[1] } };
	w->q = (struct sd_qp){ .dev = sd_port_of(c->ctx, 1), .ctx = c->ctx, .pd = pd, .recv_cq = cq, .srq = rmp, .uidx = sd_get(rqc, 0x28, 24),
			       .rq = q.buf, .rq_cnt = on_rmp ? 0 : 1u << q.log_size, .rq_shift = q.log_stride, .dbrec = q.dbrec,
			       .linked = !(q.type & 1) && !on_rmp, .strides = q.strides, .no_flush = !sd_get(rqc, 0xd, 1),
			       .strip_vlan = !sd_get(rqc, 0x3, 1) };
	sd_fields_copy(w->rqc, rqc, given);
	if (!on_rmp)
		sd_fw_wq_keep(w->rqc + 0x30, wq);
	if (sd_wq_add(w))
		goto put;
	sd_set(c->out, 0x48, 24, w->wqn);
	st = sd_devx_made(c, w->wqn, w, rq_destroy);
	if (st)
		rq_destroy(w);
	else
		w->q.devx = c->made;
	return st;
put:
	free(w);
	sd_fw_wq_put(&q);
	return SD_FAIL(c, SD_ST_LIMIT);
}

static uint8_t rq_query(struct sd_devx_cmd *c)
{
	struct host_wq *w = rq_named(c, sd_get(c->in, 0x48, 24));
	uint8_t rqc[SQC], *wq = rqc + 0x30;

	if (!w)
		return raw_query(c, false);
	memcpy(rqc, w->rqc, SQC);
	sd_set(rqc, 0x3, 1, !w->q.strip_vlan);
	sd_set(rqc, 0x8, 4, bits_of(sd_wq_state(w)));
	sd_set(rqc, 0xd, 1, !w->q.no_flush);
	sd_set(rqc, 0x28, 24, w->q.uidx);
	sd_set(rqc, 0x48, 24, w->q.recv_cq->cqn);
	if (!w->q.srq) {
		const struct sd_strides *s = &w->q.strides;
		struct sd_qp_look l;

		sd_engine_qp_look(&w->q, &l);
		sd_set(wq, 0x0, 4, (s->log_size ? 2 : 0) + !w->q.linked);
		sd_set(wq, 0x48, 24, w->q.pd->pdn);
		sd_set(wq, 0x10c, 4, w->q.rq_shift);
		sd_set(wq, 0x11b, 5, __builtin_ctz(w->q.rq_cnt));
		sd_set(wq, 0xc0, 32, l.rq_hw);
		sd_set(wq, 0xe0, 32, l.rq_sw & 0xffff);
		if (s->log_size)
			sd_fw_strides(wq, s);
	}
	sd_devx_answer(c, CONTEXT, rqc, SQC);
	return SD_ST_OK;
}

static uint8_t rq_modify(struct sd_devx_cmd *c)
{
	enum { VSD = 2 };
	struct host_wq *w = rq_named(c, sd_get(c->in, 0x48, 24));
	enum ibv_wq_state state;
	uint8_t st;

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!w)
		return SD_FAIL(c, SD_ST_BAD_RES);
	state = sd_wq_state(w);
	st = step(c, &state, VSD);
	if (st)
		return st;
	if (sd_get(c->in, 0x80, 64) & VSD)
		w->q.strip_vlan = !sd_get(c->in + CONTEXT, 0x3, 1);
	sd_wq_move(w, state);
	return SD_ST_OK;
}

/* ---- RQT ---- */

static struct host_ind_tbl *rqt_named(const struct sd_devx_cmd *c, uint32_t n)
{
	struct host_ind_tbl *t = sd_ind_tbl_find(n);

	return t && t->ctx == c->ctx ? t : NULL;
}

static uint8_t rqt_destroy(void *obj)
{
	struct host_ind_tbl *t = obj;

	if (t->refs)
		return SD_ST_BUSY;
	sd_ind_tbl_free(t);
	return SD_ST_OK;
}

/* The list of a box into list: how many, and each an RQ of the caller's */
static uint8_t rqt_list(struct sd_devx_cmd *c, uint32_t cnt, struct host_wq **list)
{
	if (c->inlen < CONTEXT + RQTC + 4ull * cnt)
		return SD_FAIL(c, SD_ST_BAD_INLEN);
	for (uint32_t i = 0; i < cnt; i++) {
		list[i] = rq_named(c, sd_get(c->in + CONTEXT + RQTC + 4 * i, 8, 24));
		if (!list[i])
			return SD_FAIL(c, SD_ST_BAD_RES);
	}
	return SD_ST_OK;
}

static uint8_t rqt_create(struct sd_devx_cmd *c)
{
	const uint8_t *rqtc = c->in + CONTEXT;
	uint32_t max = sd_get(rqtc, 0xb0, 16), cnt = sd_get(rqtc, 0xd0, 16);
	struct host_ind_tbl *t;
	uint8_t st;

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!sd_clear(rqtc, 0xa5, 3) || !sd_clear(rqtc, 0xc0, 1) || !cnt || cnt > max)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (max > SD_MAX_IND_TBL_SIZE)
		return SD_FAIL(c, SD_ST_LIMIT);
	t = calloc(1, sizeof(*t) + max * sizeof(t->wq[0]));
	st = t ? rqt_list(c, cnt, t->wq) : SD_FAIL(c, SD_ST_NO_RES);
	if (st) {
		free(t);
		return st;
	}
	t->ctx = c->ctx;
	t->cnt = cnt;
	t->max = max;
	if (sd_ind_tbl_add(t)) {
		free(t);
		return SD_FAIL(c, SD_ST_LIMIT);
	}
	sd_set(c->out, 0x48, 24, t->number);
	st = sd_devx_made(c, t->number, t, rqt_destroy);
	if (st)
		rqt_destroy(t);
	return st;
}

static uint8_t rqt_query(struct sd_devx_cmd *c)
{
	struct host_ind_tbl *t = rqt_named(c, sd_get(c->in, 0x48, 24));
	uint8_t rqtc[RQTC + 4 * SD_MAX_IND_TBL_SIZE] = { 0 };

	if (!t)
		return SD_FAIL(c, SD_ST_BAD_RES);
	sd_set(rqtc, 0xb0, 16, t->max);
	sd_set(rqtc, 0xd0, 16, t->cnt);
	for (uint32_t i = 0; i < t->cnt; i++)
		sd_set(rqtc + RQTC + 4 * i, 8, 24, t->wq[i]->wqn);
	sd_devx_answer(c, CONTEXT, rqtc, RQTC + 4 * t->cnt);
	return SD_ST_OK;
}

/* Another list, as long as the table was made for */
static uint8_t rqt_modify(struct sd_devx_cmd *c)
{
	struct host_ind_tbl *t = rqt_named(c, sd_get(c->in, 0x48, 24));
	uint32_t cnt = sd_get(c->in + CONTEXT, 0xd0, 16);
	struct host_wq *list[SD_MAX_IND_TBL_SIZE];
	uint8_t st;

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!t)
		return SD_FAIL(c, SD_ST_BAD_RES);
	if (sd_get(c->in, 0x80, 64) & ~1ull || !cnt || cnt > t->max)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (!sd_get(c->in, 0x80, 64))
		return SD_ST_OK;
	st = rqt_list(c, cnt, list);
	if (st)
		return st;
	for (uint32_t i = 0; i < cnt; i++)
		list[i]->refs++;
	for (uint32_t i = 0; i < t->cnt; i++)
		t->wq[i]->refs--;
	memcpy(t->wq, list, cnt * sizeof(list[0]));
	t->cnt = cnt;
	return SD_ST_OK;
}

/* ---- TIR ---- */

static struct sd_tir *tir_named(const struct sd_devx_cmd *c)
{
	struct sd_tir *t = sd_tir_find(sd_get(c->in, 0x48, 24));

	/* A QP of verbs has no transport domain of its own */
	return t && t->ctx == c->ctx && t->td ? t : NULL;
}

static uint8_t tir_destroy(void *obj)
{
	struct sd_domain *td = ((struct sd_tir *)obj)->td;

	if (sd_tir_free(obj))
		return SD_ST_BUSY;
	td->refs--;
	return SD_ST_OK;
}

static uint8_t tir_create(struct sd_devx_cmd *c)
{
	static const struct sd_field given[] = {
		{ 0x20, 4 }, { 0xe8, 24 }, { 0x100, 1 }, { 0x108, 24 }, { 0x120, 4 }, { 0x126, 2 }, { 0x128, 24 },
		{ 0x140, 64 }, { 0x180, 64 }, { 0x1c0, 64 }, { 0x200, 64 }, { 0x240, 64 }, { 0x280, 64 }, { 0 },
	};
	/* TLS, LRO, tunnels */
	static const struct sd_field absent[] = { { 0x24, 1 }, { 0x84, 28 }, { 0x102, 1 }, { 0 } };
	const uint8_t *tirc = c->in + CONTEXT;
	const unsigned disp = sd_get(tirc, 0x20, 4);
	struct sd_domain *td = sd_devx_domain(c, SD_TRANSPORT_DOMAIN, sd_get(tirc, 0x128, 24));
	struct host_wq *rq = disp ? NULL : rq_named(c, sd_get(tirc, 0xe8, 24));
	struct host_ind_tbl *rqt = disp ? rqt_named(c, sd_get(tirc, 0x108, 24)) : NULL;
	uint8_t kept[SD_TIRC] = { 0 }, st;
	struct sd_tir *t;

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!sd_fields_clear(tirc, absent) || disp > 1 || !sd_tir_hash_ok(tirc))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (!td || (disp ? !rqt : !rq))
		return SD_FAIL(c, SD_ST_BAD_RES);
	sd_fields_copy(kept, tirc, given);
	t = sd_tir_new(c->ctx, kept, rq, rqt);
	if (!t)
		return SD_FAIL(c, SD_ST_LIMIT);
	t->td = td;
	td->refs++;
	sd_set(c->out, 0x48, 24, t->number);
	st = sd_devx_made(c, t->number, t, tir_destroy);
	if (st)
		tir_destroy(t);
	return st;
}

static uint8_t tir_query(struct sd_devx_cmd *c)
{
	struct sd_tir *t = tir_named(c);

	if (!t)
		return SD_FAIL(c, SD_ST_BAD_RES);
	sd_devx_answer(c, CONTEXT, t->tirc, SD_TIRC);
	return SD_ST_OK;
}

/* The hash, and what of one's own comes back; LRO is not offered */
static uint8_t tir_modify(struct sd_devx_cmd *c)
{
	static const struct sd_field hash[] = { { 0x100, 1 }, { 0x120, 4 }, { 0x140, 64 }, { 0x180, 64 }, { 0x1c0, 64 },
					       { 0x200, 64 }, { 0x240, 64 }, { 0x280, 64 }, { 0 } };
	const uint8_t *tirc = c->in + CONTEXT;
	struct sd_tir *t = tir_named(c);
	uint64_t mask = sd_get(c->in, 0x80, 64);

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!t)
		return SD_FAIL(c, SD_ST_BAD_RES);
	if (mask & ~0x14ull || (mask & 4 && !sd_tir_hash_ok(tirc)))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (mask & 4)
		sd_fields_copy(t->tirc, tirc, hash);
	if (mask & 0x10)
		sd_set(t->tirc, 0x126, 2, sd_get(tirc, 0x126, 2));
	return SD_ST_OK;
}

const struct sd_devx_op sd_fw_eth_ops[] = {
	{ 0x900, CONTEXT + SD_TIRC, 0x10, tir_create },
	{ 0x901, CONTEXT + SD_TIRC, 0x10, tir_modify },
	{ 0x903, 0x10, CONTEXT + SD_TIRC, tir_query },
	{ 0x904, 0x110, 0x10, sq_create },
	{ 0x905, CONTEXT + SQC, 0x10, sq_modify },
	{ 0x907, 0x10, CONTEXT + SQC, sq_query },
	{ 0x908, 0x110, 0x10, rq_create },
	{ 0x909, CONTEXT + SQC, 0x10, rq_modify },
	{ 0x90b, 0x10, CONTEXT + SQC, rq_query },
	{ 0x912, CONTEXT + TISC, 0x10, tis_create },
	{ 0x913, CONTEXT + TISC, 0x10, tis_modify },
	{ 0x915, 0x10, 0x10 + TISC, tis_query },
	{ 0x916, CONTEXT + RQTC, 0x10, rqt_create },
	{ 0x917, CONTEXT + RQTC, 0x10, rqt_modify },
	{ 0x919, 0x10, CONTEXT + RQTC, rqt_query },
	{ 0 },
};
