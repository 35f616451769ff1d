/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xrc.c: extended reliable connections: whom a request to a receive QP is for.
 *
 * An XRC SRQ belongs to a domain, and has a CQ and a PD. A receive QP belongs to a domain and has
 * nothing else. Each request names an SRQ, and the receive QP takes on its CQ, PD and user index:
 * those keys count that are of the SRQ's PD. SRQ and receive QP must be of one process.
 */
#include "eng.h"

struct sd_cq sd_no_cq;

static void forget(struct sd_qp *qp)
{
	qp->srq = NULL;
	qp->pd = NULL;
	qp->recv_cq = &sd_no_cq;
}

bool xrc_aim(struct rcq *q, uint32_t srqn)
{
	struct sd_srq *srq = sd_srq_find(srqn);
	struct sd_qp *qp = q->qp;

	if (!srq || !srq->xrcd || srq->xrcd != qp->xrcd)
		return false;
	qp->srq = srq;
	qp->pd = srq->pd;
	qp->recv_cq = srq->cq;
	qp->uidx = srq->uidx;
	return true;
}

void xrc_srq_destroyed(const struct sd_srq *srq)
{
	struct rcq *q;

	for (q = eng_all; srq->xrcd && q; q = q->next)
		if (q->qp->type == IBV_QPT_XRC_RECV && q->qp->srq == srq) {
			cqe_purge(q->qp->recv_cq, q);
			forget(q->qp);
			q->wqe_held = q->in_msg = false;
		}
}

/* It has written to the CQs of all SRQs that it ever was sent to */
void xrc_forgotten(struct rcq *q)
{
	struct sd_cq *cq;

	for (cq = sd_cq_next(NULL); cq; cq = sd_cq_next(cq))
		cqe_purge(cq, q);
	forget(q->qp);
}
