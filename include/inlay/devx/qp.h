/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/qp.h: a QP (RC, UC, UD, DCI) made by device commands. qp.sq and qp.rq are of queue.h.
 *
 *   struct inlay_devx_qp_attr attr;
 *   struct inlay_devx_qp qp;
 *
 *   memset(&attr, 0, sizeof(attr));                   RC
 *   attr.pdn = pdn;                                   inlay_pdn_from_pd
 *   attr.send_cq = attr.recv_cq = &cq.cq;
 *   attr.ring.umem = attr.record.umem = &umem;
 *   attr.record.offset = 64 * 64 + 64 * 64;           the ring at 0, the record after it
 *   attr.uar = &uar;
 *   attr.sq_bbs = attr.rq_wqes = attr.rq_stride = 64;
 *   inlay_devx_qp_create(&qp, ctx, &attr);
 *   ... inlay_devx_qp_connect, path.h ...
 *   inlay_post_recv(&qp.rq, ...);  inlay_post_write(&qp.sq, ...);  inlay_sq_ring(&qp.sq);
 *   inlay_devx_qp_destroy(&qp);                       before its CQs, its shared queue and its PD
 *
 * The ring's memory holds the receive queue, rq_wqes * rq_stride bytes, then the send queue, sq_bbs
 * * 64 bytes, without a gap.
 *
 *   create -> RST --> INIT --> RTR --> RTS       inlay_devx_qp_modify, or all by inlay_devx_qp_connect
 *             ERR and RST from every state; there is no SQD
 *
 * Invariants:
 *   - qp.state is the state after the last transition. When something fails, the device moves a QP
 *     to ERR itself: QUERY_QP (inlay_devx_query_context) shows it.
 *   - Receives may be posted from INIT on. An atomic's result is in host order in memory, but
 *     big-endian in a CQE (attr.scatter_req).
 *   - In RST again, remove the QP's old completions with inlay_cq_clean before connecting it. See
 *     queue.h, "A QP in error".
 *   - In ERR, a QP on a shared queue raises INLAY_EVENT_SRQ_LAST_WQE when it takes no more entries.
 *     Wait for it before destroying or resetting the QP.
 *   - A DCI needs a shared queue and takes nothing from it. It posts with queue/post.h.
 *
 * Threads: the queues as queue.h; all else as device commands. Sources: Linux,
 * infiniband/hw/mlx5/qp.c (fields of each step); libmlx5's verbs.c (the ring); UCX's rc_ep.c
 * (atomics in a CQE).
 */
#ifndef INLAY_DEVX_QP_H
#define INLAY_DEVX_QP_H /* a trial: names may change */

#include <inlay/devx/ifc.h>
#include <inlay/devx/path.h>
#include <inlay/devx/uar.h>
#include <inlay/devx/umem.h>
#include <inlay/queue/cq.h>
#include <inlay/queue/ooo.h>
#include <inlay/queue/rq.h>
#include <inlay/queue/sq.h>

enum inlay_devx_qp_flags {
	INLAY_DEVX_QP_USER_INDEX = 1,     /* CQEs carry attr.user_index; without it, 0xffffff */
	INLAY_DEVX_QP_RNDV = 4,           /* no send queue: for the rendezvous reads of a tag-matching XRQ */
	INLAY_DEVX_QP_CD_MASTER = 8,      /* may wait for CQs and enable slaves (queue/sync.h) */
	INLAY_DEVX_QP_CD_SLAVE = 16,      /* sends only what a master has enabled */
	INLAY_DEVX_QP_MMO = 32,           /* RC, DCI: may copy memory (queue/sync.h) */
	/* Messages may overtake each other; on both sides. inlay_rq_release_ooo (queue/ooo.h) */
	INLAY_DEVX_QP_OOO = 64
};

/* What to create. Zero it first. */
struct inlay_devx_qp_attr {
	struct inlay_devx_place ring;   /* rq_wqes * rq_stride + sq_bbs * 64 bytes. Without queues: any umem */
	struct inlay_devx_place record; /* 8 bytes: receive word, send word */
	struct inlay_devx_uar *uar;     /* the send queue's register; may be NULL without a send queue */
	uint32_t type;                  /* enum inlay_qp_st: RC (0), UC, UD, DCI */
	uint32_t pdn;                   /* 24 bits, as the CQNs and srqn */
	struct inlay_cq *send_cq;       /* required, even without a send queue; reserves sq_bbs CQEs */
	struct inlay_cq *recv_cq;       /* required, even without a receive queue; reserves rq_wqes CQEs */
	uint32_t send_cqn, recv_cqn;    /* where the above are NULL; the caller reserves the CQEs */
	uint32_t sq_bbs;                /* WQEBBs of the send queue, a power of two, 1 .. 32768; 0: no send queue */
	uint32_t max_ds;                /* longest WQE in 16-byte units, 1 .. 63, at most max_wqe_sz_sq; 0: 63 */
	uint32_t rq_wqes;               /* a power of two, 1 .. 32768; 0: no own receive queue */
	uint32_t rq_stride;             /* bytes, a power of two, 16 .. 1024; times rq_wqes at least 64 */
	uint32_t rq_type;               /* INLAY_RQ_TYPE_SHARED: receives through srqn, and rq_wqes is 0; else 0 */
	uint32_t srqn;                  /* of an SRQ, RMP or XRQ */
	uint32_t scatter_req;           /* read and atomic results in the CQE: up to 32, 64 (CQEs of 128); 0: none */
	uint32_t scatter_res;           /* received data likewise; a DCI receives nothing */
	uint32_t user_index;            /* with INLAY_DEVX_QP_USER_INDEX, 24 bits */
	uint32_t flags;                 /* enum inlay_devx_qp_flags */
	uint64_t dc_key;                /* DCI: the default access key */
	uint32_t log_streams;           /* DCI: log2 of its streams (queue/post.h), and of those that may fail before */
	uint32_t log_errored_streams;   /* it stops; 0 both: none */
};

/* The queues and their object. Align it to a cache line: a post touches only the first of sq. */
struct inlay_devx_qp {
	struct inlay_sq sq;            /* unless attr.sq_bbs was 0 */
	struct inlay_rq rq;            /* unless attr.rq_wqes was 0 */
	struct mlx5dv_devx_obj *obj;   /* NULL if not created */
	struct ibv_context *ctx;
	uint32_t qpn;
	uint32_t type;                 /* enum inlay_qp_st */
	uint32_t state;                /* enum inlay_qp_state */
	uint8_t ethernet;              /* from INIT on: the port's link layer, and enum ibv_mtu */
	uint8_t mtu;
	uint8_t has_sq, has_rq;
	uint8_t mmo;                   /* to be allowed at INIT */
	uint8_t ooo;                   /* at RTR */
	uint8_t peer_rd_atomic;        /* RC, from RTR on: as in the peer's record */
	struct inlay_devx_error error; /* of the last call on it */
};

/* The ring's bytes, a multiple of 64; 0 without a queue, or for an impossible one. */
INLAY_COLD size_t inlay_devx_qp_bytes_(uint32_t sq_bbs, uint32_t rq_wqes, uint32_t rq_stride)
{
	size_t sq = inlay_devx_ring_(sq_bbs, 1, 32768, INLAY_WQEBB, INLAY_WQEBB, INLAY_WQEBB);
	size_t rq = inlay_devx_ring_(rq_wqes, 1, 32768, rq_stride, INLAY_DS, 1024);

	/* The send queue follows, aligned to a WQEBB. */
	return (sq_bbs && !sq) || (rq_wqes && !rq) || rq % INLAY_WQEBB ? 0 : rq + sq;
}

/* Returns NULL, or what is wrong with the attributes. */
INLAY_COLD const char *inlay_devx_qp_attr_(const struct inlay_devx_qp_attr *attr)
{
	uint32_t sync = INLAY_DEVX_QP_CD_MASTER | INLAY_DEVX_QP_CD_SLAVE | INLAY_DEVX_QP_MMO;
	uint32_t all = INLAY_DEVX_QP_USER_INDEX | INLAY_DEVX_QP_RNDV | sync | INLAY_DEVX_QP_OOO;
	int shared = attr->rq_type == INLAY_RQ_TYPE_SHARED, dci = attr->type == INLAY_QP_ST_DCI;

	if (attr->type != INLAY_QP_ST_RC && attr->type != INLAY_QP_ST_UC && attr->type != INLAY_QP_ST_UD && !dci)
		return "the type is not RC, UC, UD or DCI";
	if (attr->flags & ~all || attr->max_ds > INLAY_MAX_DS ||
	    (attr->user_index | attr->pdn | attr->send_cqn | attr->recv_cqn | attr->srqn) >> 24)
		return "an unknown flag, a WQE of more than 63 units, or a number of more than 24 bits";
	if ((attr->sq_bbs || attr->rq_wqes) && !inlay_devx_qp_bytes_(attr->sq_bbs, attr->rq_wqes, attr->rq_stride))
		return "an impossible ring: not powers of two, or its receive queue no multiple of 64 bytes";
	if (attr->sq_bbs ? !attr->uar || !attr->uar->devx || attr->flags & INLAY_DEVX_QP_RNDV : dci)
		return "a send queue without a register or with INLAY_DEVX_QP_RNDV, or a DCI without one";
	if ((attr->flags & sync && !attr->sq_bbs) ||
	    (attr->flags & INLAY_DEVX_QP_MMO && attr->type != INLAY_QP_ST_RC && !dci))
		return "waits and copies need a send queue, copies an RC QP or a DCI";
	if (attr->flags & INLAY_DEVX_QP_OOO && attr->rq_wqes == 1)
		return "receives out of order need two WQEs";
	if ((attr->rq_type && !shared) || (shared ? attr->rq_wqes != 0 : dci))
		return "the receive side is not one of own, shared and none; a DCI's is shared";
	if ((attr->log_streams | attr->log_errored_streams) > (dci ? 15u : 0u))
		return "only a DCI has streams, and at most 2^15";
	if ((attr->scatter_req && attr->scatter_req != 32 && attr->scatter_req != 64) ||
	    (attr->scatter_res && attr->scatter_res != 32 && attr->scatter_res != 64))
		return "scattering to the CQE is 0, 32 or 64";
	return !attr->ring.umem || !attr->ring.umem->umem ? "the ring has no umem" : NULL;
}

/* Returns 0 if the device has what the flags ask for; -ENOTSUP; or the errno of a query. */
INLAY_COLD int inlay_devx_can_(struct ibv_context *ctx, uint32_t type, uint32_t flags, struct inlay_devx_error *error)
{
	const struct {
		uint32_t flags;
		enum inlay_hca_cap_field field;
		const char *why;
	} needs[] = {
		{INLAY_DEVX_QP_CD_MASTER | INLAY_DEVX_QP_CD_SLAVE, INLAY_HCA_CAP_CD, "the device has no cross-channel QPs"},
		{INLAY_DEVX_QP_OOO, type == INLAY_QP_ST_RC ? INLAY_HCA_CAP_DP_ORDERING_OOO_ALL_RC :
				    type == INLAY_QP_ST_UC ? INLAY_HCA_CAP_DP_ORDERING_OOO_ALL_UC :
				    type == INLAY_QP_ST_UD ? INLAY_HCA_CAP_DP_ORDERING_OOO_ALL_UD :
							     INLAY_HCA_CAP_DP_ORDERING_OOO_ALL_DC,
		 "the device's QPs of this type keep the order"},
		{INLAY_DEVX_QP_MMO, INLAY_HCA_CAP_DMA_MMO_QP, "the device's QPs do not copy memory"}};
	struct inlay_query_hca_cap_out cap;
	uint32_t i;
	int err = 0;

	for (i = 0; !err && i < 3; i++) {
		if (!(flags & needs[i].flags))
			continue;
		err = inlay_devx_query_cap(ctx, INLAY_CAP_GENERAL, &cap, error);
		if (!err && !inlay_hca_cap_get(&cap.cap, needs[i].field))
			err = inlay_devx_refuse_(error, -ENOTSUP, needs[i].why);
	}
	return err;
}

/*
 * Destroys the QP, in any state. Returns 0, or a negative errno. Then remove its completions with
 * inlay_cq_clean.
 */
INLAY_COLD int inlay_devx_qp_destroy(struct inlay_devx_qp *qp)
{
	int err;

	INLAY_CHECK(qp, "no argument is NULL");
	err = inlay_devx_drop_(&qp->obj);
	if (err)
		return err;
	if (qp->has_sq)
		inlay_sq_fini(&qp->sq);
	if (qp->has_rq)
		inlay_rq_fini(&qp->rq);
	qp->has_sq = qp->has_rq = 0;
	return 0;
}

/*
 * Creates a QP in state RST. Zeroes the record; the ring's contents do not matter.
 *
 * Returns 0; -EINVAL for an impossible attribute, ring or record; -ENOSPC when a CQ has too few
 * CQEs left; -ENOTSUP for a flag that the device does not support; else the negative errno of
 * ibv_query_device, QUERY_HCA_CAP or CREATE_QP. On failure qp->obj is NULL.
 */
INLAY_COLD int inlay_devx_qp_create(struct inlay_devx_qp *qp, struct ibv_context *ctx,
				    const struct inlay_devx_qp_attr *attr)
{
	uint32_t *record = NULL, shared;
	struct inlay_create_qp_in in;
	struct ibv_device_attr device;
	uint8_t *ring = NULL;
	size_t bytes;
	int err;

	INLAY_CHECK(qp && ctx && attr, "no argument is NULL");
	__builtin_memset(qp, 0, sizeof(*qp));
	shared = attr->rq_type == INLAY_RQ_TYPE_SHARED;
	qp->error.why = inlay_devx_qp_attr_(attr);
	bytes = inlay_devx_qp_bytes_(attr->sq_bbs, attr->rq_wqes, attr->rq_stride);
	if (!qp->error.why)
		qp->error.why = inlay_devx_places_(attr->ring, bytes, attr->record, &ring, &record);
	if (qp->error.why)
		return inlay_devx_refuse_(&qp->error, -EINVAL, qp->error.why);
	err = inlay_devx_can_(ctx, attr->type, attr->flags, &qp->error);
	if (err)
		return err;
	err = ibv_query_device(ctx, &device);
	if (err)
		return inlay_devx_refuse_(&qp->error, -err, "ibv_query_device failed");

	record[0] = record[1] = 0;
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_CREATE_QP, 0);
	inlay_create_qp_in_set(&in, INLAY_CREATE_QP_IN_WQ_UMEM_ID, attr->ring.umem->id);
	inlay_create_qp_in_set(&in, INLAY_CREATE_QP_IN_WQ_UMEM_OFFSET, bytes ? attr->ring.offset : 0);
	inlay_create_qp_in_set(&in, INLAY_CREATE_QP_IN_WQ_UMEM_VALID, 1);
	inlay_qpc_set(&in.qpc, INLAY_QPC_DBR_UMEM_VALID, 1);
	inlay_qpc_set(&in.qpc, INLAY_QPC_DBR_UMEM_ID, attr->record.umem->id);
	inlay_qpc_set(&in.qpc, INLAY_QPC_DBR_ADDR, attr->record.offset);
	inlay_qpc_set(&in.qpc, INLAY_QPC_ST, attr->type);
	inlay_qpc_set(&in.qpc, INLAY_QPC_PM_STATE, INLAY_QP_PM_MIGRATED);
	inlay_qpc_set(&in.qpc, INLAY_QPC_PD, attr->pdn);
	inlay_qpc_set(&in.qpc, INLAY_QPC_CQN_SND, attr->send_cq ? inlay_cq_cqn(attr->send_cq) : attr->send_cqn);
	inlay_qpc_set(&in.qpc, INLAY_QPC_CQN_RCV, attr->recv_cq ? inlay_cq_cqn(attr->recv_cq) : attr->recv_cqn);
	inlay_qpc_set(&in.qpc, INLAY_QPC_TS_FORMAT, INLAY_TS_DEFAULT);
	inlay_qpc_set(&in.qpc, INLAY_QPC_USER_INDEX,
		      attr->flags & INLAY_DEVX_QP_USER_INDEX ? attr->user_index : 0xffffff);
	if (attr->sq_bbs) {
		inlay_qpc_set(&in.qpc, INLAY_QPC_LOG_SQ_SIZE, inlay_log2_ceil(attr->sq_bbs));
	} else {
		inlay_qpc_set(&in.qpc, INLAY_QPC_NO_SQ, 1);
		inlay_qpc_set(&in.qpc, INLAY_QPC_OFFLOAD_TYPE, !!(attr->flags & INLAY_DEVX_QP_RNDV));
	}
	if (attr->uar)
		inlay_qpc_set(&in.qpc, INLAY_QPC_UAR_PAGE, attr->uar->page_id);
	inlay_qpc_set(&in.qpc, INLAY_QPC_CD_MASTER, !!(attr->flags & INLAY_DEVX_QP_CD_MASTER));
	inlay_qpc_set(&in.qpc, INLAY_QPC_CD_SLAVE_SEND, !!(attr->flags & INLAY_DEVX_QP_CD_SLAVE));
	inlay_qpc_set(&in.qpc, INLAY_QPC_RQ_TYPE,
		      shared ? INLAY_RQ_TYPE_SHARED : attr->rq_wqes ? INLAY_RQ_TYPE_OWN : INLAY_RQ_TYPE_NONE);
	inlay_qpc_set(&in.qpc, INLAY_QPC_SRQN_RMPN_XRQN, shared ? attr->srqn : 0);
	if (attr->rq_wqes) {
		inlay_qpc_set(&in.qpc, INLAY_QPC_LOG_RQ_SIZE, inlay_log2_ceil(attr->rq_wqes));
		inlay_qpc_set(&in.qpc, INLAY_QPC_LOG_RQ_STRIDE, inlay_log2_ceil(attr->rq_stride) - 4);
	}
	inlay_qpc_set(&in.qpc, INLAY_QPC_CS_REQ, attr->scatter_req == 64 ? INLAY_CS_REQ_UP_TO_64 :
		      attr->scatter_req ? INLAY_CS_REQ_UP_TO_32 : INLAY_CS_REQ_OFF);
	inlay_qpc_set(&in.qpc, INLAY_QPC_CS_RES, attr->scatter_res == 64 ? INLAY_CS_RES_UP_TO_64 :
		      attr->scatter_res ? INLAY_CS_RES_UP_TO_32 : INLAY_CS_RES_OFF);
	inlay_qpc_set(&in.qpc, INLAY_QPC_DC_ACCESS_KEY, attr->type == INLAY_QP_ST_DCI ? attr->dc_key : 0);
	inlay_qpc_set(&in.qpc, INLAY_QPC_LOG_NUM_DCI_STREAM_CHANNELS, attr->log_streams);
	inlay_qpc_set(&in.qpc, INLAY_QPC_LOG_NUM_DCI_ERRORED_STREAMS, attr->log_errored_streams);
	err = inlay_devx_make_(ctx, &in, sizeof(in), &qp->obj, &qp->qpn, &qp->error);
	qp->ctx = ctx;
	qp->type = attr->type;
	qp->state = INLAY_QP_STATE_RST;
	qp->mmo = !!(attr->flags & INLAY_DEVX_QP_MMO);
	qp->ooo = !!(attr->flags & INLAY_DEVX_QP_OOO);
	if (err)
		return err;
	if (attr->rq_wqes)
		err = inlay_rq_init(&qp->rq, ring, attr->rq_wqes, attr->rq_stride, record);
	qp->has_rq = !err && attr->rq_wqes;
	if (qp->has_rq)
		inlay_rq_set_qpn_(&qp->rq, qp->qpn);
	if (qp->has_rq && qp->ooo)
		inlay_rq_set_ooo(&qp->rq);
	if (qp->has_rq && attr->recv_cq)
		err = inlay_rq_reserve_(&qp->rq, attr->recv_cq, &qp->error.why);
	if (!err && attr->sq_bbs)
		err = inlay_sq_init(&qp->sq, ring + (size_t)attr->rq_wqes * attr->rq_stride, attr->sq_bbs,
				    record, qp->qpn, attr->max_ds ? attr->max_ds : INLAY_MAX_DS, &attr->uar->uar);
	qp->has_sq = !err && attr->sq_bbs;
	if (qp->has_sq && attr->send_cq)
		err = inlay_sq_reserve_(&qp->sq, attr->send_cq, &qp->error.why);
	if (err) {
		inlay_devx_qp_destroy(qp);
		return inlay_devx_refuse_(&qp->error, err, qp->error.why);
	}
	if (qp->has_sq)
		inlay_sq_set_type(&qp->sq, attr->type == INLAY_QP_ST_DCI ? (uint32_t)IBV_QPT_DRIVER :
				  inlay_devx_connect_type_(attr->type),
				  device.atomic_cap != IBV_ATOMIC_NONE &&
					  (attr->type == INLAY_QP_ST_RC || attr->type == INLAY_QP_ST_DCI));
	return 0;
}

/* ---- Transitions ---- */

/* Sends a transition, and records the new state. */
INLAY_COLD int inlay_devx_qp_move_(struct inlay_devx_qp *qp, const void *in, size_t inlen, uint32_t state)
{
	int err = inlay_devx_change_(qp->obj, in, inlen, &qp->error);

	if (!err)
		qp->state = state;
	return err;
}

/* Sets one field of the context's extension, in this state. */
INLAY_COLD int inlay_devx_qp_extend_(struct inlay_devx_qp *qp, uint32_t opcode, uint32_t option,
				     enum inlay_qp_ext_in_field field, uint32_t value, uint32_t state)
{
	struct inlay_qp_ext_in in;

	inlay_devx_inbox_(&in, sizeof(in), opcode, qp->qpn);
	inlay_qp_ext_in_set(&in, INLAY_QP_EXT_IN_QPC_EXT, 1);
	inlay_qp_ext_in_set(&in, INLAY_QP_EXT_IN_OPT_PARAM_MASK_95_32, option);
	inlay_qp_ext_in_set(&in, field, value);
	return inlay_devx_qp_move_(qp, &in, sizeof(in), state);
}

/*
 * Makes an errored stream of a DCI usable again, after all its WQEs have been flushed; in RTS.
 * Returns 0; -EINVAL without an object; or the negative errno of RTS2RTS_QP. For a verbs QP use
 * mlx5dv_dci_stream_id_reset(3), the source of this.
 */
INLAY_COLD int inlay_devx_qp_reset_stream(struct inlay_devx_qp *qp, uint16_t stream)
{
	INLAY_CHECK(qp, "no argument is NULL");
	return inlay_devx_qp_extend_(qp, INLAY_CMD_OP_RTS2RTS_QP, INLAY_QP_OPT_95_32_STREAM,
				     INLAY_QP_EXT_IN_DCI_STREAM, stream, INLAY_QP_STATE_RTS);
}

/* RST to INIT. */
INLAY_COLD int inlay_devx_qp_to_init_(struct inlay_devx_qp *qp, const struct inlay_devx_path *path)
{
	struct inlay_create_qp_in in;
	int err, rc = qp->type == INLAY_QP_ST_RC;

	err = inlay_devx_port_(qp->ctx, path, &qp->ethernet, &qp->mtu, &qp->error);
	if (err)
		return err;
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_RST2INIT_QP, qp->qpn);
	inlay_qpc_set(&in.qpc, INLAY_QPC_PM_STATE, INLAY_QP_PM_MIGRATED);
	inlay_qpc_set(&in.qpc, INLAY_QPC_COUNTER_SET_ID, path->counter_set);
	inlay_ads_set(&in.qpc.primary, INLAY_ADS_VHCA_PORT_NUM, path->port);
	if (!qp->ethernet)
		inlay_ads_set(&in.qpc.primary, INLAY_ADS_PKEY_INDEX, path->pkey_index);
	if (rc || qp->type == INLAY_QP_ST_UC)
		inlay_qpc_set(&in.qpc, INLAY_QPC_RWE, !!(path->access & IBV_ACCESS_REMOTE_WRITE));
	if (rc)
		inlay_qpc_set(&in.qpc, INLAY_QPC_RRE, !!(path->access & IBV_ACCESS_REMOTE_READ));
	if (rc && path->access & IBV_ACCESS_REMOTE_ATOMIC) {
		inlay_qpc_set(&in.qpc, INLAY_QPC_RAE, 1);
		inlay_qpc_set(&in.qpc, INLAY_QPC_ATOMIC_MODE, path->atomic_mode);
	}
	if (qp->type == INLAY_QP_ST_UD)
		inlay_qpc_set(&in.qpc, INLAY_QPC_Q_KEY, path->qkey);
	err = inlay_devx_qp_move_(qp, &in, sizeof(in), INLAY_QP_STATE_INIT);
	return err || !qp->mmo ? err : inlay_devx_qp_extend_(qp, INLAY_CMD_OP_INIT2INIT_QP, INLAY_QP_OPT_95_32_MMO,
							     INLAY_QP_EXT_IN_MMO, 1, INLAY_QP_STATE_INIT);
}

/* INIT to RTR. */
INLAY_COLD int inlay_devx_qp_to_rtr_(struct inlay_devx_qp *qp, const struct inlay_devx_path *path,
				      const struct inlay_connect_record *peer)
{
	static const uint8_t none[6] = {0, 0, 0, 0, 0, 0};
	struct inlay_create_qp_in in;
	const char *why = NULL;
	uint32_t link, mtu;
	int ud = qp->type == INLAY_QP_ST_UD;

	link = qp->ethernet ? INLAY_CONNECT_ROCE_V2 : INLAY_CONNECT_IB;
	link = peer ? peer->link : link;
	mtu = path->mtu ? path->mtu : qp->mtu;
	if (peer && peer->mtu && peer->mtu < mtu)
		mtu = peer->mtu;
	if ((qp->type == INLAY_QP_ST_RC || qp->type == INLAY_QP_ST_UC) != (peer != NULL))
		why = peer ? "a UD QP or DCI has no peer" : "the peer's record is missing";
	else if (!inlay_devx_path_ok_(path, qp->ethernet) || mtu < IBV_MTU_256 || mtu > IBV_MTU_4096)
		why = "a field of the path is out of its range";
	else if (peer && (link > INLAY_CONNECT_ROCE_V2 || (link != INLAY_CONNECT_IB) != qp->ethernet ||
			  peer->type != inlay_devx_connect_type_(qp->type)))
		why = "the peer is on another kind of link, or of another type";
	else if (peer && ((peer->qpn | peer->psn) >> 24 || peer->sl > (qp->ethernet ? 7 : 15)))
		why = "a number in the peer's record is out of its range";
	else if (peer && qp->ethernet && !__builtin_memcmp(peer->mac, none, sizeof(none)))
		why = "the peer's record has no MAC: inlay_devx_address_resolve";
	if (why)
		return inlay_devx_refuse_(&qp->error, -EINVAL, why);
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_INIT2RTR_QP, qp->qpn);
	inlay_qpc_set(&in.qpc, INLAY_QPC_MTU, ud ? 5 : mtu);
	inlay_qpc_set(&in.qpc, INLAY_QPC_LOG_MSG_MAX, ud ? 12 : 30);
	inlay_qpc_set(&in.qpc, INLAY_QPC_DP_ORDERING_1, qp->ooo);
	inlay_devx_ads_fill_(&in.qpc.primary, path, peer, link, qp->qpn);
	if (peer) {
		inlay_qpc_set(&in.qpc, INLAY_QPC_REMOTE_QPN, peer->qpn);
		inlay_qpc_set(&in.qpc, INLAY_QPC_NEXT_RCV_PSN, peer->psn);
	}
	if (qp->type == INLAY_QP_ST_RC) {
		inlay_qpc_set(&in.qpc, INLAY_QPC_LOG_RRA_MAX, inlay_log2_ceil(path->dest_rd_atomic));
		inlay_qpc_set(&in.qpc, INLAY_QPC_MIN_RNR_NAK, path->min_rnr_timer);
		qp->peer_rd_atomic = peer->rd_atomic;
	}
	if (qp->type == INLAY_QP_ST_DCI && path->access & IBV_ACCESS_REMOTE_ATOMIC) {
		/* The atomics that it may post. */
		inlay_create_qp_in_set(&in, INLAY_CREATE_QP_IN_OPT_PARAM_MASK, INLAY_QP_OPT_RAE);
		inlay_qpc_set(&in.qpc, INLAY_QPC_RAE, 1);
		inlay_qpc_set(&in.qpc, INLAY_QPC_ATOMIC_MODE, path->atomic_mode);
	}
	return inlay_devx_qp_move_(qp, &in, sizeof(in), INLAY_QP_STATE_RTR);
}

/* RTR to RTS. */
INLAY_COLD int inlay_devx_qp_to_rts_(struct inlay_devx_qp *qp, const struct inlay_devx_path *path)
{
	struct inlay_create_qp_in in;
	uint32_t sra;

	if (!inlay_devx_path_ok_(path, qp->ethernet))
		return inlay_devx_refuse_(&qp->error, -EINVAL, "a field of the path is out of its range");
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_RTR2RTS_QP, qp->qpn);
	inlay_qpc_set(&in.qpc, INLAY_QPC_NEXT_SEND_PSN, path->psn);
	if (qp->type == INLAY_QP_ST_RC || qp->type == INLAY_QP_ST_DCI) {
		/* No more than the peer answers. 2^0 stands for none too. */
		sra = inlay_log2_ceil(path->rd_atomic);
		while (sra && qp->type == INLAY_QP_ST_RC && 1u << sra > qp->peer_rd_atomic)
			sra--;
		inlay_qpc_set(&in.qpc, INLAY_QPC_LOG_SRA_MAX, sra);
		inlay_qpc_set(&in.qpc, INLAY_QPC_RETRY_COUNT, path->retry_count);
		inlay_qpc_set(&in.qpc, INLAY_QPC_RNR_RETRY, path->rnr_retry);
		inlay_qpc_set(&in.qpc, INLAY_QPC_LOG_ACK_REQ_FREQ, 8);
		inlay_ads_set(&in.qpc.primary, INLAY_ADS_ACK_TIMEOUT, path->timeout);
	}
	return inlay_devx_qp_move_(qp, &in, sizeof(in), INLAY_QP_STATE_RTS);
}

/*
 * Moves the QP to a state (enum inlay_qp_state), as ibv_modify_qp.
 *
 *   to     from   what it reads of the path
 *   INIT   RST    port, access and atomic_mode (RC; UC: write alone), qkey (UD), pkey_index (IB),
 *                 counter_set
 *   RTR    INIT   dest_rd_atomic, min_rnr_timer (RC), and the fields about sending
 *   RTS    RTR    psn; RC and DCI: rd_atomic, timeout, retry_count, rnr_retry
 *   ERR    any    nothing, and may be NULL. Flushes the queues
 *   RST    any    likewise. Empties the queues
 *
 * peer  for RTR the record of an RC's or UC's peer; else NULL
 *
 * Returns 0; -EINVAL without an object, for another state, for an impossible path, and for a peer
 * that is NULL for RC or UC, given for another type, of another type or link, or without a MAC on
 * RoCE; else the negative errno of ibv_query_port or of the command, for INIT also of the
 * INIT2INIT_QP that INLAY_DEVX_QP_MMO adds.
 */
INLAY_COLD int inlay_devx_qp_modify(struct inlay_devx_qp *qp, uint32_t state, const struct inlay_devx_path *path,
				    const struct inlay_connect_record *peer)
{
	struct inlay_cmd_in in;
	int err;

	INLAY_CHECK(qp && (path || state == INLAY_QP_STATE_ERR || state == INLAY_QP_STATE_RST), "no argument is NULL");
	if (!qp->obj)
		return inlay_devx_refuse_(&qp->error, -EINVAL, "there is no object");
	switch (state) {
	case INLAY_QP_STATE_INIT: return inlay_devx_qp_to_init_(qp, path);
	case INLAY_QP_STATE_RTR: return inlay_devx_qp_to_rtr_(qp, path, peer);
	case INLAY_QP_STATE_RTS: return inlay_devx_qp_to_rts_(qp, path);
	case INLAY_QP_STATE_ERR: case INLAY_QP_STATE_RST: break;
	default: return inlay_devx_refuse_(&qp->error, -EINVAL, "no transition leads to this state");
	}
	inlay_devx_inbox_(&in, sizeof(in), state == INLAY_QP_STATE_ERR ? INLAY_CMD_OP_2ERR_QP : INLAY_CMD_OP_2RST_QP,
			  qp->qpn);
	err = inlay_devx_qp_move_(qp, &in, sizeof(in), state);
	if (!err && state == INLAY_QP_STATE_RST && qp->has_sq)
		inlay_sq_reset(&qp->sq);
	if (!err && state == INLAY_QP_STATE_RST && qp->has_rq)
		inlay_rq_reset(&qp->rq);
	return err;
}

/* ---- Connecting ---- */

/*
 * Makes the record that the peer needs. The QP may be in any state. Of the path it reads port,
 * gid_index, psn, mtu, sl, traffic_class, global; RC: dest_rd_atomic; UD: qkey.
 *
 * Returns 0; -EINVAL without an object, or for a PSN of more than 24 bits; -ENETDOWN when the port
 * is not up; -ENOENT when it has no such GID; else the negative errno of ibv_query_port,
 * ibv_query_gid_ex or QUERY_ROCE_ADDRESS.
 */
INLAY_COLD int inlay_devx_qp_address(struct inlay_devx_qp *qp, const struct inlay_devx_path *path,
				     struct inlay_connect_record *mine)
{
	const char *why = NULL;
	int err;

	INLAY_CHECK(qp && path && mine, "no argument is NULL");
	if (!qp->obj || path->psn >> 24)
		return inlay_devx_refuse_(&qp->error, -EINVAL, "there is no object, or a PSN of more than 24 bits");
	__builtin_memset(mine, 0, sizeof(*mine));
	mine->type = inlay_devx_connect_type_(qp->type);
	mine->qpn = qp->qpn;
	mine->psn = path->psn;
	mine->qkey = qp->type == INLAY_QP_ST_UD ? path->qkey : 0;
	mine->sl = path->sl;
	mine->traffic_class = path->traffic_class;
	mine->rd_atomic = qp->type == INLAY_QP_ST_RC ? path->dest_rd_atomic : 0;
	err = inlay_connect_port(mine, qp->ctx, path->port, path->gid_index, &why);
	if (err)
		return inlay_devx_refuse_(&qp->error, err, why);
	if (mine->link != INLAY_CONNECT_IB)
		err = inlay_devx_roce_mac_(qp->ctx, path->port, path->gid_index, mine->mac, &qp->error);
	if (path->mtu && path->mtu < mine->mtu)
		mine->mtu = path->mtu;
	if (path->global && mine->link == INLAY_CONNECT_IB)
		mine->flags |= INLAY_CONNECT_GLOBAL;
	return err;
}

/*
 * Moves the QP from RST or INIT to RTS; the peer does the same with this end's record. Either end
 * may send once both are there; an RC QP that is early tries again, retry_count times at most. peer
 * is as above; a QP that is given its own record is its own peer, as tag matching needs. Returns 0,
 * or what the failing step returned: qp->state says how far it got. RST leads back.
 */
INLAY_COLD int inlay_devx_qp_connect(struct inlay_devx_qp *qp, const struct inlay_devx_path *path,
				    const struct inlay_connect_record *peer)
{
	int err = 0;

	INLAY_CHECK(qp && path, "no argument is NULL");
	if (qp->state == INLAY_QP_STATE_RST)
		err = inlay_devx_qp_modify(qp, INLAY_QP_STATE_INIT, path, NULL);
	if (!err)
		err = inlay_devx_qp_modify(qp, INLAY_QP_STATE_RTR, path, peer);
	if (!err)
		err = inlay_devx_qp_modify(qp, INLAY_QP_STATE_RTS, path, NULL);
	return err;
}

#endif
