/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/dct.h: a dynamically connected target made by device commands. Any number of
 * initiators (DCI, devx/qp.h) send to one target.
 *
 *   struct inlay_devx_dct_attr attr;
 *   struct inlay_devx_dct dct;
 *
 *   memset(&attr, 0, sizeof(attr));
 *   attr.pdn = pdn;
 *   attr.cqn = inlay_cq_cqn(&cq.cq);
 *   attr.srqn = srq.srqn;                              its receive queue
 *   attr.dc_key = 0x1ee7a330;                          as in the initiator's address vector
 *   inlay_devx_dct_create(&dct, ctx, &attr, &path);
 *   inlay_devx_dct_destroy(&dct);                      before CQ and shared queue
 *
 * An initiator names the target at each post: queue/post.h. A target is ready when it is created.
 * It has no transitions, ring or register.
 *
 * Threads: as device commands.
 * Sources: devx/ifc.h; Linux, infiniband/hw/mlx5/qpc.c (create, drain, destroy).
 */
#ifndef INLAY_DEVX_DCT_H
#define INLAY_DEVX_DCT_H /* a trial: names may change */

#include <inlay/devx/ifc.h>
#include <inlay/devx/qp.h>

enum inlay_devx_dct_flags {
	INLAY_DEVX_DCT_TAG_MATCHING = 1, /* srqn is an XRQ */
	INLAY_DEVX_DCT_USER_INDEX = 2,   /* CQEs carry attr.user_index; without it, 0xffffff */
	INLAY_DEVX_DCT_OOO = 4           /* messages may overtake each other on the way: see INLAY_DEVX_QP_OOO */
};

/* What to create. Zero it first. */
struct inlay_devx_dct_attr {
	uint64_t dc_key;      /* access key, host order */
	uint32_t pdn;         /* 24 bits, as cqn and srqn */
	uint32_t cqn;
	uint32_t srqn;        /* of an SRQ, RMP or XRQ */
	uint32_t scatter_res; /* 64: up to 64 received bytes go into the CQE, which has 128; 0: none */
	uint32_t user_index;  /* with INLAY_DEVX_DCT_USER_INDEX, 24 bits */
	uint32_t flags;       /* enum inlay_devx_dct_flags */
};

/* The target's object. */
struct inlay_devx_dct {
	struct mlx5dv_devx_obj *obj;   /* NULL if not created */
	uint32_t dctn;
	uint32_t reserved;
	struct inlay_devx_error error; /* of the last call on it */
};

/*
 * Creates a DCT.
 *
 * path  port, gid_index, access, atomic_mode, mtu, min_rnr_timer, hop_limit, traffic_class,
 *       flow_label, sl, pkey_index, counter_set
 *
 * Returns 0; -EINVAL for an impossible attribute or path; -ENOTSUP for INLAY_DEVX_DCT_OOO on a
 * device whose targets keep messages in order; else the negative errno of QUERY_HCA_CAP,
 * ibv_query_port or CREATE_DCT. On failure dct->obj is NULL.
 */
INLAY_COLD int inlay_devx_dct_create(struct inlay_devx_dct *dct, struct ibv_context *ctx,
				     const struct inlay_devx_dct_attr *attr, const struct inlay_devx_path *path)
{
	struct inlay_create_dct_in in;
	uint8_t ethernet, mtu;
	int err = 0;

	INLAY_CHECK(dct && ctx && attr && path, "no argument is NULL");
	__builtin_memset(dct, 0, sizeof(*dct));
	if (!attr->srqn || (attr->pdn | attr->cqn | attr->srqn | attr->user_index) >> 24 ||
	    (attr->scatter_res != 0 && attr->scatter_res != 64) ||
	    attr->flags & ~(uint32_t)(INLAY_DEVX_DCT_TAG_MATCHING | INLAY_DEVX_DCT_USER_INDEX | INLAY_DEVX_DCT_OOO))
		return inlay_devx_refuse_(&dct->error, -EINVAL, "an impossible number, flag or scattering, or no srqn");
	if (attr->flags & INLAY_DEVX_DCT_OOO)
		err = inlay_devx_can_(ctx, INLAY_QP_ST_DCT, INLAY_DEVX_QP_OOO, &dct->error);
	if (!err)
		err = inlay_devx_port_(ctx, path, &ethernet, &mtu, &dct->error);
	if (err)
		return err;
	mtu = path->mtu ? path->mtu : mtu;
	if (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096)
		return inlay_devx_refuse_(&dct->error, -EINVAL, "a field of the path is out of its range");
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_CREATE_DCT, 0);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_OFFLOAD_TYPE, !!(attr->flags & INLAY_DEVX_DCT_TAG_MATCHING));
	inlay_dctc_set(&in.dctc, INLAY_DCTC_USER_INDEX,
		       attr->flags & INLAY_DEVX_DCT_USER_INDEX ? attr->user_index : 0xffffff);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_CQN, attr->cqn);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_COUNTER_SET_ID, path->counter_set);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_RRE, !!(path->access & IBV_ACCESS_REMOTE_READ));
	inlay_dctc_set(&in.dctc, INLAY_DCTC_RWE, !!(path->access & IBV_ACCESS_REMOTE_WRITE));
	if (path->access & IBV_ACCESS_REMOTE_ATOMIC) {
		inlay_dctc_set(&in.dctc, INLAY_DCTC_RAE, 1);
		inlay_dctc_set(&in.dctc, INLAY_DCTC_ATOMIC_MODE, path->atomic_mode);
	}
	inlay_dctc_set(&in.dctc, INLAY_DCTC_DP_ORDERING_1, !!(attr->flags & INLAY_DEVX_DCT_OOO));
	inlay_dctc_set(&in.dctc, INLAY_DCTC_CS_RES, attr->scatter_res ? INLAY_CS_RES_UP_TO_64 : INLAY_CS_RES_OFF);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_MIN_RNR_NAK, path->min_rnr_timer);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_SRQN_XRQN, attr->srqn);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_PD, attr->pdn);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_TCLASS, path->traffic_class);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_FLOW_LABEL, path->flow_label);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_DC_ACCESS_KEY, attr->dc_key);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_MTU, mtu);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_PORT, path->port);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_MY_ADDR_INDEX, path->gid_index);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_HOP_LIMIT, path->hop_limit);
	if (ethernet) {
		inlay_dctc_set(&in.dctc, INLAY_DCTC_ETH_PRIO, path->sl);
		inlay_dctc_set(&in.dctc, INLAY_DCTC_DSCP, path->traffic_class >> 2);
	} else {
		inlay_dctc_set(&in.dctc, INLAY_DCTC_PKEY_INDEX, path->pkey_index);
	}
	return inlay_devx_make_(ctx, &in, sizeof(in), &dct->obj, &dct->dctn, &dct->error);
}

/* Destroys the DCT; waits until the device has drained it. Returns 0, or a negative errno. */
INLAY_COLD int inlay_devx_dct_destroy(struct inlay_devx_dct *dct)
{
	INLAY_CHECK(dct, "no argument is NULL");
	return inlay_devx_drop_(&dct->obj);
}

#endif
