/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * objects.c: what verbs and commands both make: how it leaves the tables and the engine, with all that
 * it holds; receive WQs, and tables of them.
 */
#include <errno.h>
#include <stdlib.h>
#include "firmware.h"

static SD_OWN struct sd_numbers wqs = { .max = SD_MAX_WQ, .first = 0x40 }, tables = { .max = SD_MAX_IND_TBL, .first = 1 };

void sd_cq_remove(struct host_cq *hc)
{
	sd_engine_cq_destroyed(&hc->c);
	sd_cq_drop(&hc->c);
	sd_uar_put(hc->c.uar);
	sd_channel_put(hc->c.channel);
	sd_channel_put(hc->async);
	free(hc);
}

void sd_qp_remove(struct host_qp *hq)
{
	sd_qp_drop(&hq->q);
	if (hq->tir)
		sd_tir_free(hq->tir);
	if (hq->q.xrcd) {
		hq->q.xrcd->refs--;
	} else {
		hq->q.pd->refs--;
		hq->q.send_cq->refs--;
		hq->q.recv_cq->refs--;
		if (hq->q.srq)
			hq->q.srq->refs--;
	}
	for (struct sd_mcast *m; (m = hq->q.groups);) {
		hq->q.groups = m->next;
		free(m);
	}
	if (hq->q.uar)
		sd_uar_put(hq->q.uar);
	sd_channel_put(hq->async);
	free(hq);
}

void sd_srq_remove(struct host_srq *hs)
{
	sd_srq_drop(&hs->s);
	hs->s.pd->refs--;
	sd_channel_put(hs->async);
	free(hs);
}

/* A region stays while a window is bound to it; a window may go in any state */
int sd_mr_free(struct host_mr *hm)
{
	struct sd_mr *mr = &hm->m;

	if (mr->windows)
		return EBUSY;
	if (mr->mw)
		window_free(mr);
	if (mr->under) {
		mr->under->windows--;
		mr->under = NULL;
	}
	if (hm->dm)
		hm->dm->refs--;
	sd_mr_drop(mr);
	sd_umem_put(hm->umem);
	free(mr->list);
	free(hm);
	return 0;
}

/* ---- receive WQs ---- */

int sd_wq_add(struct host_wq *wq)
{
	int err = sd_number_new(&wqs, wq, &wq->wqn);

	if (err)
		return err;
	wq->q.wq = true;
	wq->q.type = IBV_QPT_RAW_PACKET;
	wq->q.state = IBV_QPS_RESET;
	wq->q.qpn = wq->wqn;
	wq->q.send_cq = wq->q.recv_cq;
	wq->q.recv_cq->strides |= wq->q.strides.log_size || (wq->q.srq && wq->q.srq->strides.log_size);
	wq->q.pd->refs++;
	wq->q.recv_cq->refs++;
	if (wq->q.srq)
		wq->q.srq->refs++;
	sd_engine_qp_created(&wq->q);
	return 0;
}

struct host_wq *sd_wq_find(uint32_t wqn)
{
	return sd_number_get(&wqs, wqn);
}

int sd_wq_free(struct host_wq *wq)
{
	if (wq->refs)
		return EBUSY;
	sd_engine_qp_destroyed(&wq->q);
	wqs.at[wq->wqn] = NULL;
	wq->q.pd->refs--;
	wq->q.recv_cq->refs--;
	if (wq->q.srq)
		wq->q.srq->refs--;
	sd_channel_put(wq->async);
	free(wq);
	return 0;
}

/* Out of an error leads only a reset, and into one only what works */
bool sd_wq_may(enum ibv_wq_state from, enum ibv_wq_state to)
{
	return !(from == IBV_WQS_ERR && to == IBV_WQS_RDY) && !(from == IBV_WQS_RESET && to == IBV_WQS_ERR);
}

void sd_wq_move(struct host_wq *wq, enum ibv_wq_state state)
{
	const enum ibv_qp_state from = wq->q.state;

	wq->state = state;
	wq->q.state = state == IBV_WQS_RESET ? IBV_QPS_RESET : state == IBV_WQS_RDY ? IBV_QPS_RTR : IBV_QPS_ERR;
	if (wq->q.state != from)
		sd_engine_qp_modified(&wq->q, from, IBV_QP_STATE);
}

enum ibv_wq_state sd_wq_state(const struct host_wq *wq)
{
	return wq->q.state == IBV_QPS_ERR ? IBV_WQS_ERR : wq->state;
}

int sd_ind_tbl_add(struct host_ind_tbl *t)
{
	int err = sd_number_new(&tables, t, &t->number);

	for (uint32_t i = 0; !err && i < t->cnt; i++)
		t->wq[i]->refs++;
	return err;
}

struct host_ind_tbl *sd_ind_tbl_find(uint32_t number)
{
	return sd_number_get(&tables, number);
}

void sd_ind_tbl_free(struct host_ind_tbl *t)
{
	for (uint32_t i = 0; i < t->cnt; i++)
		t->wq[i]->refs--;
	tables.at[t->number] = NULL;
	free(t);
}
