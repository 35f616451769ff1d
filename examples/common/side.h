/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * side.h: one end of an RC connection: a queue pair with a doorbell register and a CQ of its own,
 * taken over from libibverbs. Every function ends the program if something fails.
 */
#ifndef COMMON_SIDE_H
#define COMMON_SIDE_H

#include "program.h"
#include <inlay/inlay.h>

struct side {
	struct inlay_uar uar;
	struct inlay_cq cq;             /* of both queues */
	struct inlay_sq sq;
	struct inlay_rq rq;             /* if there are receives */
	struct ibv_pd *pd;
	struct ibv_cq *ibcq;
	struct ibv_qp *qp;
	struct inlay_connect_attr attr; /* the caller's, from inlay_connect_defaults() */
	struct inlay_connect_record here;
	uint8_t record[INLAY_CONNECT_SIZE]; /* for the other side */
};

static inline void side_open(struct side *s, const char *device, struct ibv_qp_cap cap)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = cap};
	int err;

	s->pd = open_pd(device);
	/*
	 * A register for this thread's queues: they are created in its PD. Where none can be had (some
	 * virtual machines), the QP's own register does, with doorbells only.
	 */
	err = inlay_uar_create(&s->uar, s->pd, INLAY_UAR_SERIAL, &why);
	if (err != -ENOTSUP)
		need(err, "a doorbell register");
	s->ibcq = ibv_create_cq(s->pd->context, (int)(inlay_send_cqes(&init) + inlay_recv_cqes(&init)), NULL, NULL, 0);
	init.send_cq = init.recv_cq = s->ibcq;
	s->qp = s->ibcq ? ibv_create_qp(err ? s->pd : s->uar.pd, &init) : NULL;
	if (!s->qp)
		die("no queue pair: %s", strerror(errno));
	if (err)
		need(inlay_uar_from_qp(&s->uar, s->qp, &why), "the QP's register");
	need(inlay_cq_from_cq(&s->cq, s->ibcq, &why), "taking over the completion queue");
	need(inlay_sq_from_qp(&s->sq, s->qp, &s->uar, &s->cq, &why), "taking over the send queue");
	if (cap.max_recv_wr)
		need(inlay_rq_from_qp(&s->rq, s->qp, &s->cq, &why), "taking over the receive queue");
	need(inlay_connect_local(&s->here, s->qp, &s->attr, &why), ibv_get_device_name(s->pd->context->device));
	inlay_connect_pack(&s->here, s->record);
}

/* record: the other side's */
static inline void side_connect(struct side *s, const uint8_t *record)
{
	struct inlay_connect_record there;

	need(inlay_connect_unpack(&there, record, INLAY_CONNECT_SIZE, &why), "the other side's record");
	need(inlay_connect_rts(s->qp, &s->here, &there, &s->attr, &why), "connecting");
}

/* The QP goes, and its queues leave the register and the CQ, before these go. */
static inline void side_close(struct side *s)
{
	struct ibv_context *ctx = s->pd->context;

	must(!ibv_destroy_qp(s->qp), "destroying the queue pair");
	inlay_sq_fini(&s->sq);
	inlay_rq_fini(&s->rq);
	must(!ibv_destroy_cq(s->ibcq) && (!s->uar.td || !inlay_uar_destroy(&s->uar, &why)) && !ibv_dealloc_pd(s->pd) &&
		     !ibv_close_device(ctx), "closing down");
}

#endif
