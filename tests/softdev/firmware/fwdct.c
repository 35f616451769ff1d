/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fwdct.c: DCTs. One command makes a DCT ready. It has no transitions, no ring and no doorbell. It
 * receives from its shared queue. To the engine it is a QP of its own type. host_qp.qpc holds its
 * context.
 *
 *   in   0x80  dctc, 0x40 bytes      out  0x48  dctn; a query's dctc 0x80
 */
#include <stdlib.h>
#include <string.h>
#include "fwqueue.h"

#define CONTEXT 0x10u
#define DCTC 0x40u

#define EVENT_DRAINED 0x1c

static const struct sd_field given[] = {
	{ 0x18, 4 }, { 0x27, 25 }, { 0x48, 24 }, { 0x60, 8 }, { 0x68, 4 }, { 0x6c, 3 }, { 0x70, 1 }, { 0x72, 3 },
	{ 0x88, 8 }, { 0x93, 5 }, { 0xa8, 24 }, { 0xc8, 24 }, { 0xe0, 8 }, { 0xec, 20 }, { 0x100, 64 }, { 0x145, 3 },
	{ 0x148, 8 }, { 0x150, 16 }, { 0x168, 8 }, { 0x178, 8 }, { 0x1b5, 3 }, { 0x1ba, 6 }, { 0 },
};

/* The kernel drains it, waits for the event, and destroys it */
static uint8_t destroy(void *obj)
{
	struct host_qp *hq = obj;

	sd_up.devx_event(hq->q.devx, EVENT_DRAINED, 0);
	sd_engine_qp_destroyed(&hq->q);
	sd_qp_remove(hq);
	return SD_ST_OK;
}

static uint8_t create(struct sd_devx_cmd *c)
{
	const uint8_t *dctc = c->in + CONTEXT;
	const unsigned res = sd_get(dctc, 0x88, 8);
	struct sd_pd *pd = sd_devx_pd(c, sd_get(dctc, 0xc8, 24));
	struct sd_cq *cq = sd_devx_cq(c, sd_get(dctc, 0x48, 24));
	struct sd_srq *srq = sd_devx_srq(c, sd_get(dctc, 0xa8, 24));
	const bool atomics = sd_get(dctc, 0x6e, 1) && sd_get(dctc, 0x68, 4);
	struct host_qp *hq;
	struct sd_qp *qp;
	uint8_t st;

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!pd || !cq || !srq || srq->xrcd || (srq->strides.log_size && !srq->tm))
		return SD_FAIL(c, SD_ST_BAD_RES);
	/* The tag-matching offload wants an XRQ that was made for DC; privileged keys are not offered */
	if (sd_get(dctc, 0x18, 4) > 1 ||
	    (sd_get(dctc, 0x18, 4) && !sd_get(sd_container(srq, struct host_srq, s)->xrqc, 0x7f, 1)) ||
	    !sd_clear(dctc, 0x71, 1) || sd_get(dctc, 0x73, 2) == 3 || (res != 0 && (res != 2 || cq->cqe_size != 128)))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (!sd_port_ok(sd_get(dctc, 0x148, 8)) || !sd_fw_mtu_ok(sd_get(dctc, 0x145, 3)) || sd_get(dctc, 0x150, 16) >= sd_pkeys() ||
	    sd_gid(sd_port_of(c->ctx, 1), sd_get(dctc, 0x168, 8), NULL, NULL))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	hq = calloc(1, sizeof(*hq));
	if (!hq)
		return SD_FAIL(c, SD_ST_NO_RES);
	qp = &hq->q;
	*qp = (struct sd_qp){ .dev = sd_port_of(c->ctx, sd_get(dctc, 0x148, 8)), .srq = srq, .uidx = sd_get(dctc, 0x28, 24), .type = SD_QPT_DCT, .state = IBV_QPS_RTR,
			      .ctx = c->ctx, .pd = pd, .send_cq = cq, .recv_cq = cq, .scatter_rsp = res * 32,
			      .dc_key = sd_get(dctc, 0x100, 64),
			      .ordering = sd_get(dctc, 0x73, 1) ? SD_OOO_RW : sd_get(dctc, 0x74, 1) ? SD_OOO_ALL : SD_IN_ORDER };
	qp->attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | (sd_get(dctc, 0x6c, 1) ? IBV_ACCESS_REMOTE_READ : 0) |
				   (sd_get(dctc, 0x6d, 1) ? IBV_ACCESS_REMOTE_WRITE : 0) | (atomics ? IBV_ACCESS_REMOTE_ATOMIC : 0);
	qp->max_atomic = sd_fw_max_atomic(sd_get(dctc, 0x68, 4));
	qp->counter_set = sd_get(dctc, 0x60, 8);
	qp->attr.path_mtu = (enum ibv_mtu)sd_get(dctc, 0x145, 3);
	qp->attr.min_rnr_timer = sd_get(dctc, 0x93, 5);
	qp->attr.max_dest_rd_atomic = SD_MAX_RD_ATOMIC;
	sd_fields_copy(hq->qpc, dctc, given);
	if (sd_qp_add(&hq->q)) {
		free(hq);
		return SD_FAIL(c, SD_ST_NO_RES);
	}
	pd->refs++;
	cq->refs += 2;
	srq->refs++;
	sd_engine_qp_created(qp);
	sd_set(c->out, 0x48, 24, qp->qpn);
	st = sd_devx_made(c, qp->qpn, hq, destroy);
	if (st)
		destroy(hq);
	else
		qp->devx = c->made;
	return st;
}

static struct sd_qp *named(struct sd_devx_cmd *c)
{
	struct sd_qp *qp = sd_devx_qp(c, sd_get(c->in, 0x48, 24));

	return qp && qp->type == SD_QPT_DCT ? qp : NULL;
}

static uint8_t query(struct sd_devx_cmd *c)
{
	struct sd_qp *qp = named(c);
	uint8_t dctc[DCTC];

	if (!qp)
		return SD_FAIL(c, SD_ST_BAD_RES);
	memcpy(dctc, sd_container(qp, struct host_qp, q)->qpc, sizeof(dctc));
	/* That of verbs is described here only */
	sd_set(dctc, 0x28, 24, qp->uidx);
	sd_set(dctc, 0x48, 24, qp->recv_cq->cqn);
	sd_set(dctc, 0xa8, 24, qp->srq->srqn);
	sd_set(dctc, 0xc8, 24, qp->pd->pdn);
	sd_set(dctc, 0x180, 32, qp->dc_violations);
	sd_devx_answer(c, CONTEXT, dctc, sizeof(dctc));
	return SD_ST_OK;
}

/* One event each time that it is armed */
static uint8_t arm(struct sd_devx_cmd *c)
{
	struct sd_qp *qp = named(c);

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!qp)
		return SD_FAIL(c, SD_ST_BAD_RES);
	qp->violation_armed = true;
	return SD_ST_OK;
}

const struct sd_devx_op sd_fw_dct_ops[] = {
	{ 0x710, 0x80, 0x10, create },
	{ 0x713, 0x10, CONTEXT + DCTC, query },
	{ 0x714, 0x10, 0x10, arm },
	{ 0 },
};
