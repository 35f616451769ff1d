/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fwcq.c: completion queues by command. To the engine such a CQ is like any other. It has an EQ
 * instead of a channel, so its events go to those who subscribed.
 *
 *   in   0x80  cqc, 0x40 bytes     0x280  offset in the umem, id 0x2c0
 *   out  0x48  cqn; a query's cqc 0x80
 */
#include <stdlib.h>
#include <string.h>
#include "fwqueue.h"

#define CONTEXT 0x10u             /* byte of either box */
#define CQC 0x40u                 /* bytes */

/*
 * What this device does not offer: initiator of a source DCT, another clock, an accelerator's EQ
 */
static const struct sd_field absent[] = {
	{ 0x4, 1 }, { 0x5, 1 }, { 0x5e, 2 },
	{ 0 },
};
/* What a query tells as it was given; the rest lives */
static const struct sd_field given[] = {
	{ 0x6, 1 }, { 0x8, 3 }, { 0xb, 1 }, { 0xd, 1 }, { 0xe, 1 }, { 0xf, 2 }, { 0x11, 1 }, { 0x12, 2 }, { 0x19, 7 },
	{ 0x20, 32 }, { 0x54, 6 }, { 0x5c, 2 }, { 0x63, 5 }, { 0x68, 24 },
	{ 0x84, 12 }, { 0x90, 16 }, { 0xa0, 32 }, { 0xc3, 5 }, { 0x1c0, 64 },
	{ 0 },
};

static uint8_t destroy(void *obj)
{
	struct host_cq *hc = obj;
	struct sd_umem *u[2] = { hc->umem[0], hc->umem[1] };

	if (hc->c.refs)
		return SD_ST_BUSY;
	sd_cq_remove(hc);
	sd_umem_put(u[0]);
	sd_umem_put(u[1]);
	return SD_ST_OK;
}

bool sd_devx_eqn(uint32_t eqn)
{
	return eqn - SD_FIRST_EQN < SD_COMP_VECTORS;
}

static uint8_t create(struct sd_devx_cmd *c)
{
	const uint8_t *cqc = c->in + CONTEXT;
	uint32_t log = sd_get(cqc, 0x63, 5), size = sd_get(cqc, 0x8, 3), shift = 6 + !!size;
	uint64_t offset = sd_get(c->in, 0x280, 64) + (sd_get(cqc, 0x54, 6) << 6), record = sd_get(cqc, 0x1c0, 64);
	uint8_t *buf = NULL, *dbrec = NULL, st;
	uint32_t compression = sd_get(cqc, 0x11, 1) ? 1 + sd_get(cqc, 0x19, 7) : SD_PLAIN, format = sd_get(cqc, 0x12, 2);
	struct host_cq *hc;

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (sd_get(cqc, 0x5c, 2) == 1 && !format)
		format = SD_MINI_L34H_STRIDX;
	/* No flow tags. A collapsed CQ has no room for a block */
	if (sd_get(cqc, 0x19, 7) > 1 || format == 2 || (compression && (sd_get(cqc, 0xb, 1) || log < 1)))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (log > 22)
		return SD_FAIL(c, SD_ST_LIMIT);
	if (!sd_fields_clear(cqc, absent) || size > 2 || offset % 64 || record % 8)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (!sd_devx_eqn(sd_get(cqc, 0xa0, 32)))
		return SD_FAIL(c, SD_ST_BAD_RES);
	hc = calloc(1, sizeof(*hc));
	if (!hc)
		return SD_FAIL(c, SD_ST_NO_RES);
	st = sd_umem_get(c, sd_get(c->in, 0x2c0, 32), offset, 1ull << (log + shift), true, &hc->umem[0], &buf);
	if (!st)
		st = sd_umem_get(c, sd_get(cqc, 0x20, 32), record, 8, false, &hc->umem[1], &dbrec);
	if (st)
		goto put;
	hc->c = (struct sd_cq){ .ctx = c->ctx, .subscribed = true, .collapsed = sd_get(cqc, 0xb, 1), .buf = buf, .cqe_cnt = 1u << log,
				.compression = compression, .mini_format = format,
				.cqe_size = 1u << shift, .padded = size == 2, .dbrec = (volatile uint32_t *)(void *)dbrec,
				.uar = sd_uar_get(c->ctx, sd_get(cqc, 0x68, 24)), .ignore_overrun = sd_get(cqc, 0xe, 1) };
	if (!hc->c.uar) {
		st = SD_FAIL(c, SD_ST_BAD_RES);
		goto put;
	}
	/*
	 * The first arm at consumer index 0 writes 0 and must be told from "never armed". Where the
	 * record cannot be written the register alone tells, which another CQ's arm may cover
	 */
	if (hc->umem[1]->access & IBV_ACCESS_LOCAL_WRITE)
		hc->c.dbrec[1] = 0xffffffff;
	hc->c.arm_seen = be32toh(hc->c.dbrec[1]);
	sd_fields_copy(hc->cqc, cqc, given);
	if (sd_cq_add(&hc->c)) {
		st = SD_FAIL(c, SD_ST_NO_RES);
		goto put_uar;
	}
	sd_set(c->out, 0x48, 24, hc->c.cqn);
	st = sd_devx_made(c, hc->c.cqn, hc, destroy);
	if (st) {
		destroy(hc);
		return st;
	}
	hc->devx = c->made;
	sd_trap_page(hc->c.uar);
	return SD_ST_OK;
put_uar:
	sd_uar_put(hc->c.uar);
put:
	sd_umem_put(hc->umem[0]);
	sd_umem_put(hc->umem[1]);
	free(hc);
	return st;
}

/* A CQ made by verbs has no umems; the rest of its context is the same */
static void context(struct sd_cq *cq, uint8_t cqc[CQC])
{
	const struct host_cq *hc = sd_container(cq, struct host_cq, c);
	struct sd_cq_look l;

	sd_engine_cq_look(cq, &l);
	memcpy(cqc, hc->cqc, CQC);
	sd_set(cqc, 0x0, 4, cq->overrun ? 9 : 0);
	sd_set(cqc, 0x8, 3, cq->padded ? 2 : cq->cqe_size == 128);
	sd_set(cqc, 0xe, 1, cq->ignore_overrun);
	sd_set(cqc, 0x14, 4, !l.armed ? 0xa : l.solicited ? 6 : 9);
	sd_set(cqc, 0x63, 5, __builtin_ctz(cq->cqe_cnt));
	sd_set(cqc, 0x68, 24, cq->uar->page_id);
	if (!hc->devx)
		sd_set(cqc, 0xa0, 32, SD_FIRST_EQN);
	sd_set(cqc, 0x108, 24, l.notified);
	sd_set(cqc, 0x128, 24, l.solicit);
	sd_set(cqc, 0x148, 24, l.consumer);
	sd_set(cqc, 0x168, 24, l.producer);
}

static uint8_t query(struct sd_devx_cmd *c)
{
	struct sd_cq *cq = sd_devx_cq(c, sd_get(c->in, 0x48, 24));
	uint8_t cqc[CQC];

	if (!cq)
		return SD_FAIL(c, SD_ST_BAD_RES);
	context(cq, cqc);
	sd_devx_answer(c, CONTEXT, cqc, sizeof(cqc));
	return SD_ST_OK;
}

/*
 * Moderation, which never holds anything back here, and whether overrun is looked for. Another
 * buffer is for verbs
 */
static uint8_t modify(struct sd_devx_cmd *c)
{
	static const struct sd_field by_bit[][2] = { { { 0x84, 12 } }, { { 0x90, 16 } }, { { 0xe, 1 } } };
	struct sd_cq *cq = sd_devx_cq(c, sd_get(c->in, 0x48, 24));
	uint32_t select = sd_get(c->in, 0x60, 32);

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!cq)
		return SD_FAIL(c, SD_ST_BAD_RES);
	if (!select || select >> 3)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	for (unsigned i = 0; i < 3; i++)
		if (select >> i & 1)
			sd_fields_copy(sd_container(cq, struct host_cq, c)->cqc, c->in + CONTEXT, by_bit[i]);
	if (select & 4)
		cq->ignore_overrun = sd_get(c->in + CONTEXT, 0xe, 1);
	return SD_ST_OK;
}

const struct sd_devx_op sd_fw_cq_ops[] = {
	{ 0x400, 0x110, 0x10, create },
	{ 0x402, 0x10, CONTEXT + CQC, query },
	{ 0x403, CONTEXT + CQC, 0x10, modify },
	{ 0 },
};
