/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fwsrq.c: shared receive queues by command: RMP (to the firmware a plain SRQ of verbs is one), XRQ
 * (an SRQ with tag matching is one), and XRC SRQ. They share one number space, because a QP names
 * its shared queue by the number alone.
 *
 *   RMP       in 0x100 rmpc: state, wq at 0x180 of it     out 0x48 rmpn
 *   XRQ       in 0x80 xrqc: the list at 0x100 of it, wq at 0x400     out 0x48 xrqn; see tm.c
 *   XRC SRQ   in 0x80 xrc_srqc     0x280 offset in the umem, id 0x2c0     out 0x48 xrc_srqn. No source
 *             says where the context has the umem of its record: 0x60/32 is free.
 */
#include <stdlib.h>
#include <string.h>
#include "fwqueue.h"

#define RMPC 0x20u                /* byte of either box */
#define WQ (RMPC + 0x30u)
#define XRC 0x10u
#define XRQC 0x10u
#define XRQ_WQ (XRQC + 0x80u)
#define XRQ_TAGS 0x20u            /* bytes from the context's begin */
#define XRC_CONTEXT 0x40u         /* bytes */
#define LINK 16u                  /* bytes of an entry before its first pointer */

enum { RDY = 1, ERR = 3 };

/* What is said of a wq once and for all */
static const struct sd_field wq_made[] = {
	{ 0x0, 4 }, { 0x5, 2 }, { 0x2b, 5 }, { 0x48, 24 }, { 0x68, 24 }, { 0x80, 64 }, { 0x10c, 4 },
	{ 0x113, 5 }, { 0x11b, 5 }, { 0x120, 2 }, { 0x134, 5 }, { 0x13d, 3 }, { 0x140, 32 }, { 0x160, 32 }, { 0x180, 64 }, { 0 },
};

/* As the context has them: log2 of the strides as a signed number from 9 on, of their bytes from 6 on */
void sd_fw_strides(uint8_t *wq, const struct sd_strides *s)
{
	sd_set(wq, 0x134, 4, (s->log_count - 9) & 0xf);
	sd_set(wq, 0x138, 1, s->shift != 0);
	sd_set(wq, 0x13d, 3, s->log_size - 6);
}

uint8_t sd_fw_wq(struct sd_devx_cmd *c, const uint8_t *wq, unsigned types, unsigned min_stride, unsigned max_stride, struct sd_fw_wq *q)
{
	uint64_t offset = sd_get(wq, 0x180, 64) + (sd_get(wq, 0x2b, 5) << 6), record = sd_get(wq, 0x80, 64);
	const unsigned count = (sd_get(wq, 0x134, 4) ^ 8) + 1;
	uint8_t *dbrec, st;

	*q = (struct sd_fw_wq){ .type = sd_get(wq, 0x0, 4), .log_stride = sd_get(wq, 0x10c, 4), .log_size = sd_get(wq, 0x11b, 5) };
	/* Signatures and the slave's side of cross-domain are not offered */
	if (!(types >> q->type & 1) || !sd_clear(wq, 0x4, 1) || !sd_clear(wq, 0x7, 1) || offset % 64 || record % 8)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (q->type >= SD_WQ_LINKED_STRIDING) {
		if (count < SD_MIN_LOG_STRIDES)
			return SD_FAIL(c, SD_ST_BAD_PARAM);
		q->strides = (struct sd_strides){ 6 + sd_get(wq, 0x13d, 3), count, sd_get(wq, 0x138, 1) ? 2 : 0 };
	}
	/* All but a plain cyclic one have a link before the first pointer */
	if (q->log_stride < (q->type == SD_WQ_CYCLIC ? min_stride : 5) || q->log_stride > max_stride)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (q->log_size > 15)
		return SD_FAIL(c, SD_ST_LIMIT);
	st = sd_umem_get(c, sd_get(wq, 0x160, 32), offset, 1ull << (q->log_size + q->log_stride), false, &q->umem[0], &q->buf);
	if (!st)
		st = sd_umem_get(c, sd_get(wq, 0x140, 32), record, 8, false, &q->umem[1], &dbrec);
	if (st)
		sd_fw_wq_put(q);
	else
		q->dbrec = (volatile uint32_t *)(void *)dbrec;
	return st;
}

void sd_fw_wq_put(struct sd_fw_wq *q)
{
	sd_umem_put(q->umem[0]);
	sd_umem_put(q->umem[1]);
}

void sd_fw_wq_keep(uint8_t *kept, const uint8_t *wq)
{
	sd_fields_copy(kept, wq, wq_made);
}

static uint8_t destroy(void *obj)
{
	struct host_srq *hs = obj;
	struct sd_umem *u[2] = { hs->umem[0], hs->umem[1] };

	if (hs->s.refs)
		return SD_ST_BUSY;
	if (hs->s.cq)
		hs->s.cq->refs--;
	if (hs->s.xrcd)
		hs->s.xrcd->refs--;
	sd_engine_srq_destroyed(&hs->s);
	sd_srq_remove(hs);
	sd_umem_put(u[0]);
	sd_umem_put(u[1]);
	return SD_ST_OK;
}

/* Of an XRQ */
struct tags {
	unsigned log_list;
	struct sd_cq *cq;
	bool rndv;
	uint32_t uidx;
};

/* The end of a creation: takes over what q holds, also when it fails */
static uint8_t finish(struct sd_devx_cmd *c, struct sd_pd *pd, struct sd_cq *cq, struct sd_domain *xrcd, const struct sd_fw_wq *q,
		      uint32_t limit, const uint8_t *kept, const struct tags *tags)
{
	struct host_srq *hs = calloc(1, sizeof(*hs));
	uint8_t st;

	if (!hs)
		goto put;
	hs->s = (struct sd_srq){ .cyclic = q->type & 1, .strides = q->strides, .uidx = 0xffffff, .ctx = c->ctx, .pd = pd, .buf = q->buf, .limit = limit,
				 .wqe_cnt = 1u << q->log_size, .wqe_shift = q->log_stride, .dbrec = q->dbrec,
				 .max_wr = (1u << q->log_size) - 1, .max_sge = ((1u << q->log_stride) - LINK) / 16 };
	if (tags && sd_tm_new(&hs->s, tags->log_list, tags->cq, tags->rndv))
		goto put;
	if (tags)
		hs->s.uidx = tags->uidx;
	memcpy(hs->umem, q->umem, sizeof(hs->umem));
	memcpy(hs->wqc, kept, sizeof(hs->wqc));
	hs->creator = c->opcode;
	if (sd_srq_add(&hs->s))
		goto put;
	pd->refs++;
	hs->s.cq = cq;
	hs->s.xrcd = xrcd;
	if (cq)
		cq->refs++;
	if (xrcd)
		xrcd->refs++;
	sd_set(c->out, 0x48, 24, hs->s.srqn);
	st = sd_devx_made(c, hs->s.srqn, hs, destroy);
	if (st)
		destroy(hs);
	else
		hs->devx = c->made;
	return st;
put:
	if (hs)
		sd_tm_free(&hs->s);
	free(hs);
	sd_umem_put(q->umem[0]);
	sd_umem_put(q->umem[1]);
	return SD_FAIL(c, SD_ST_NO_RES);
}

enum kind { RMP, XRQ, XRC_SRQ };

static struct host_srq *named(struct sd_devx_cmd *c, enum kind kind)
{
	struct sd_srq *srq = sd_devx_srq(c, sd_get(c->in, 0x48, 24));
	struct host_srq *hs = srq ? sd_container(srq, struct host_srq, s) : NULL;

	return hs && kind == (hs->s.xrcd ? XRC_SRQ : hs->s.tm ? XRQ : RMP) ? hs : NULL;
}

static void wq_live(struct host_srq *hs, uint8_t *wq, bool *broken)
{
	uint32_t hw, sw;

	sd_engine_srq_look(&hs->s, &hw, &sw, broken);
	memcpy(wq, hs->wqc, SD_WQ_CONTEXT);
	if (!hs->creator) {
		sd_set(wq, 0x48, 24, hs->s.pd->pdn);
		sd_set(wq, 0x10c, 4, hs->s.wqe_shift);
		sd_set(wq, 0x11b, 5, __builtin_ctz(hs->s.wqe_cnt));
	}
	sd_set(wq, 0x30, 16, hs->s.limit);
	sd_set(wq, 0xc0, 32, hw);
	sd_set(wq, 0xe0, 32, sw);
}

/* ---- RMP ---- */

static uint8_t rmp_create(struct sd_devx_cmd *c)
{
	const uint8_t *rmpc = c->in + RMPC, *wq = c->in + WQ;
	const bool bare = sd_get(rmpc, 0x20, 1);
	struct sd_pd *pd = sd_devx_pd(c, sd_get(wq, 0x48, 24));
	uint8_t kept[SD_WQ_CONTEXT] = { 0 }, st;
	struct sd_fw_wq q;

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	/* Without a link nothing but the order of the ring can follow */
	if (sd_get(rmpc, 0x8, 4) != RDY || (bare && sd_get(wq, 0x0, 4) != SD_WQ_CYCLIC))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (!pd)
		return SD_FAIL(c, SD_ST_BAD_RES);
	st = sd_fw_wq(c, wq, sd_link_ib() ? 0x3 : 0xf, bare ? 4 : 5, 9, &q);
	if (st)
		return st;
	if (sd_get(wq, 0x30, 16) >= 1u << q.log_size && sd_get(wq, 0x30, 16)) {
		sd_fw_wq_put(&q);
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	}
	sd_fw_wq_keep(kept, wq);
	st = finish(c, pd, NULL, NULL, &q, sd_get(wq, 0x30, 16), kept, NULL);
	if (!st && bare) {
		struct sd_srq *srq = &((struct host_srq *)c->made->obj)->s;

		srq->bare = true;
		srq->max_sge++;
	}
	return st;
}

static uint8_t rmp_query(struct sd_devx_cmd *c)
{
	struct host_srq *hs = named(c, RMP);
	uint8_t rmpc[0x30 + SD_WQ_CONTEXT] = { 0 };
	bool broken;

	if (!hs)
		return SD_FAIL(c, SD_ST_BAD_RES);
	wq_live(hs, rmpc + 0x30, &broken);
	sd_set(rmpc, 0x8, 4, broken ? ERR : RDY);
	sd_set(rmpc, 0x20, 1, hs->s.bare);
	sd_devx_answer(c, RMPC, rmpc, sizeof(rmpc));
	return SD_ST_OK;
}

/* It stays ready; what can be set is the limit, once more after each event */
static uint8_t rmp_modify(struct sd_devx_cmd *c)
{
	struct host_srq *hs = named(c, RMP);
	uint32_t hw, sw, limit = sd_get(c->in + WQ, 0x30, 16);
	uint64_t mask = sd_get(c->in, 0x80, 64);
	bool broken;

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!hs)
		return SD_FAIL(c, SD_ST_BAD_RES);
	sd_engine_srq_look(&hs->s, &hw, &sw, &broken);
	if (sd_get(c->in, 0x40, 4) != (broken ? ERR : RDY))
		return SD_FAIL(c, SD_ST_BAD_RES_STATE);
	if (mask & ~1ull || sd_get(c->in + RMPC, 0x8, 4) != RDY)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (broken)
		return SD_FAIL(c, SD_ST_BAD_RES_STATE);
	if (!mask)
		return SD_ST_OK;
	if (limit >= hs->s.wqe_cnt)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	hs->s.limit = limit;
	sd_engine_srq_changed(&hs->s);
	return SD_ST_OK;
}

/* ---- XRQ ---- */

static uint8_t xrq_create(struct sd_devx_cmd *c)
{
	/* Privileged keys */
	static const struct sd_field absent[] = { { 0x4, 1 }, { 0 } };
	const uint8_t *x = c->in + XRQC, *wq = c->in + XRQ_WQ;
	struct sd_pd *pd = sd_devx_pd(c, sd_get(wq, 0x48, 24));
	struct tags tags = { .log_list = sd_get(x + XRQ_TAGS, 0, 4), .cq = sd_devx_cq(c, sd_get(x, 0x48, 24)), .rndv = sd_get(x, 0x1c, 4),
			     .uidx = sd_get(x, 0x28, 24) };
	uint8_t kept[SD_WQ_CONTEXT] = { 0 }, st;
	struct sd_fw_wq q;

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	/* Tag matching, with or without rendezvous, is all that an XRQ does here */
	if (!sd_fields_clear(x, absent) || sd_get(x, 0x14, 4) != 1 || sd_get(x, 0x1c, 4) > 1 || !tags.log_list)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (tags.log_list > SD_LOG_TM_LIST)
		return SD_FAIL(c, SD_ST_LIMIT);
	if (!pd || !tags.cq)
		return SD_FAIL(c, SD_ST_BAD_RES);
	st = sd_fw_wq(c, wq, 0xf, 5, 9, &q);
	if (st)
		return st;
	if (sd_get(wq, 0x30, 16) >= 1u << q.log_size && sd_get(wq, 0x30, 16)) {
		sd_fw_wq_put(&q);
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	}
	sd_fw_wq_keep(kept, wq);
	st = finish(c, pd, NULL, NULL, &q, sd_get(wq, 0x30, 16), kept, &tags);
	if (!st) {
		struct host_srq *hs = c->made->obj;

		memcpy(hs->xrqc, x, sizeof(hs->xrqc));
	}
	return st;
}

static uint8_t xrq_query(struct sd_devx_cmd *c)
{
	static const struct sd_field given[] = { { 0x14, 4 }, { 0x1c, 4 }, { 0x28, 24 }, { 0x48, 24 }, { 0x7f, 1 }, { 0x100, 4 }, { 0 } };
	uint8_t x[0x80 + SD_WQ_CONTEXT] = { 0 };
	struct host_srq *hs = named(c, XRQ);
	uint16_t append, sw, hw;
	bool broken;

	if (!hs)
		return SD_FAIL(c, SD_ST_BAD_RES);
	sd_fields_copy(x, hs->xrqc, given);
	wq_live(hs, x + 0x80, &broken);
	sd_tm_query(&hs->s, &append, &sw, &hw);
	sd_set(x, 0x0, 4, broken);
	sd_set(x, 0x14, 4, 1);
	sd_set(x, 0x28, 24, hs->s.uidx);
	sd_set(x + XRQ_TAGS, 0x10, 16, append);
	sd_set(x + XRQ_TAGS, 0x20, 16, sw);
	sd_set(x + XRQ_TAGS, 0x30, 16, hw);
	sd_devx_answer(c, XRQC, x, sizeof(x));
	return SD_ST_OK;
}

static uint8_t arm(struct sd_devx_cmd *c, struct host_srq *hs)
{
	uint32_t limit = sd_get(c->in, 0x70, 16);

	if (!hs)
		return SD_FAIL(c, SD_ST_BAD_RES);
	if (limit >= hs->s.wqe_cnt)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	hs->s.limit = limit;
	sd_engine_srq_changed(&hs->s);
	return SD_ST_OK;
}

static uint8_t xrq_arm(struct sd_devx_cmd *c)
{
	return c->op_mod ? SD_FAIL(c, SD_ST_BAD_OP) : arm(c, named(c, XRQ));
}

/*
 * How a rendezvous of DC would be answered. The device leaves those to software: it keeps nothing
 * of it
 */
static uint8_t xrq_dc_params(struct sd_devx_cmd *c)
{
	struct host_srq *hs = named(c, XRQ);

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!hs)
		return SD_FAIL(c, SD_ST_BAD_RES);
	if (!sd_get(hs->xrqc, 0x7f, 1) || !sd_fw_mtu_ok(sd_get(c->in, 0x8d, 3)) || sd_get(c->in, 0x90, 16) >= sd_pkeys())
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	return SD_ST_OK;
}

/* ---- XRC SRQ ---- */

static uint8_t xrc_create(struct sd_devx_cmd *c)
{
	const uint8_t *x = c->in + XRC;
	struct sd_pd *pd = sd_devx_pd(c, sd_get(x, 0xc8, 24));
	struct sd_domain *xrcd = sd_devx_domain(c, SD_XRC_DOMAIN, sd_get(x, 0x28, 24));
	struct sd_cq *cq = sd_devx_cq(c, sd_get(x, 0x48, 24));
	uint8_t wq[SD_WQ_CONTEXT] = { 0 }, kept[SD_WQ_CONTEXT] = { 0 }, st;
	struct sd_fw_wq q;

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!sd_clear(x, 0x20, 1) || !sd_clear(x, 0x24, 1))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (!pd || !xrcd || !cq)
		return SD_FAIL(c, SD_ST_BAD_RES);
	sd_set(wq, 0x10c, 4, 4 + sd_get(x, 0x25, 3));
	sd_set(wq, 0x11b, 5, sd_get(x, 0x4, 4));
	sd_set(wq, 0x80, 64, sd_get(x, 0x140, 64) & ~3ull);
	sd_set(wq, 0x140, 32, sd_get(x, 0x60, 32));
	sd_set(wq, 0x160, 32, sd_get(c->in, 0x2c0, 32));
	sd_set(wq, 0x180, 64, sd_get(c->in, 0x280, 64));
	st = sd_fw_wq(c, wq, 0x3, 5, 9, &q);
	if (st)
		return st;
	if (sd_get(x, 0xe0, 16) >= 1u << q.log_size && sd_get(x, 0xe0, 16)) {
		sd_fw_wq_put(&q);
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	}
	/* The context as it was given, for a query: it is the shorter of the two */
	memcpy(kept, x, XRC_CONTEXT);
	st = finish(c, pd, cq, xrcd, &q, sd_get(x, 0xe0, 16), kept, NULL);
	if (!st)
		((struct host_srq *)c->made->obj)->s.uidx = sd_get(x, 0x88, 24);
	return st;
}

static uint8_t xrc_query(struct sd_devx_cmd *c)
{
	struct host_srq *hs = named(c, XRC_SRQ);
	uint8_t x[XRC_CONTEXT];
	uint32_t hw, sw;
	bool broken;

	if (!hs)
		return SD_FAIL(c, SD_ST_BAD_RES);
	sd_engine_srq_look(&hs->s, &hw, &sw, &broken);
	memcpy(x, hs->wqc, sizeof(x));
	sd_set(x, 0x0, 4, broken);
	sd_set(x, 0x48, 24, hs->s.cq->cqn);
	sd_set(x, 0x88, 24, hs->s.uidx);
	sd_set(x, 0xc8, 24, hs->s.pd->pdn);
	sd_set(x, 0xe0, 16, hs->s.limit);
	sd_set(x, 0xf0, 16, (sw - hw) & 0xffff);
	sd_devx_answer(c, XRC, x, sizeof(x));
	return SD_ST_OK;
}

/* op_mod 1 arms an XRC SRQ */
static uint8_t xrc_arm(struct sd_devx_cmd *c)
{
	return c->op_mod > 1 ? SD_FAIL(c, SD_ST_BAD_OP) : arm(c, named(c, XRC_SRQ));
}

const struct sd_devx_op sd_fw_srq_ops[] = {
	{ 0x90c, 0x110, 0x10, rmp_create },
	{ 0x90d, 0x110, 0x10, rmp_modify },
	{ 0x90f, 0x10, WQ + SD_WQ_CONTEXT, rmp_query },
	{ 0x717, 0x150, 0x10, xrq_create },
	{ 0x719, 0x10, XRQ_WQ + SD_WQ_CONTEXT, xrq_query },
	{ 0x71a, 0x10, 0x10, xrq_arm },
	{ 0x726, 0x30, 0x10, xrq_dc_params },
	{ 0x705, 0x110, 0x10, xrc_create },
	{ 0x707, 0x10, XRC + XRC_CONTEXT, xrc_query },
	{ 0x708, 0x10, 0x10, xrc_arm },
	{ 0 },
};
