/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/dct.h: a dynamically connected target made by device commands: what DCIs send to. One for any number of them.
 *
 *   struct inlay_devx_dct_attr attr;
 *   struct inlay_devx_dct dct;
 *
 *   memset(&attr, 0, sizeof(attr));
 *   attr.pdn = pdn;
 *   attr.cqn = cq.cq.cqn;
 *   attr.srqn = rmp.rmpn;                              it has no receive queue of its own
 *   attr.key = 0x1ee7a330;                             what an initiator's address vector must bring
 *   inlay_devx_dct_create(&dct, ctx, &attr, &path);    ready at once: no transitions, no ring, no register
 *   ...
 *   inlay_devx_dct_destroy(&dct);                      before CQ and shared queue
 *
 * An initiator, a DCI (qp.h), posts with an address vector before all else:
 *
 *   inlay_av_from_ah(&av, ah, dctn, 0);  inlay_av_to_dct(&av, dctn, key);
 *   inlay_post_ud_send(&dci.sq, &av, &sge, 1, INLAY_SIGNALED);          a send looks as a datagram's does
 *   inlay_sq_begin(&dci.sq, 2, &at);                                    an RDMA write, by hand
 *   at = inlay_seg_av(at, &av);  at = inlay_seg_raddr(at, raddr, rkey);  at = inlay_seg_data(at, addr, len, lkey);
 *   inlay_sq_commit(&dci.sq, at, MLX5_OPCODE_RDMA_WRITE, 0, INLAY_SIGNALED, 0);
 *
 * Threads: as device commands.
 * Sources: devx/ifc/srq.h; Linux, infiniband/hw/mlx5/qpc.c (create, drain, destroy).
 */
#ifndef INLAY_DEVX_DCT_H
#define INLAY_DEVX_DCT_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/devx/call.h>
#include <inlay/devx/ifc/cmd.h>
#include <inlay/devx/ifc/srq.h>
#include <inlay/devx/path.h>
#include <inlay/wqe.h>

enum inlay_devx_dct_flags {
	INLAY_DEVX_DCT_TAG_MATCHING = 1,  /* srqn is an XRQ */
	INLAY_DEVX_DCT_USER_INDEX = 2     /* CQEs carry attr.user_index; without it, 0xffffff */
};

/* What is wanted. Zero it first. */
struct inlay_devx_dct_attr {
	uint64_t key;           /* access key, host order */
	uint32_t pdn;           /* it and the next two: 24 bits */
	uint32_t cqn;
	uint32_t srqn;          /* of an SRQ, RMP or XRQ */
	uint32_t scatter_res;   /* what is received goes into the CQE when it is at most 64 bytes, with 128-byte CQEs: 64; 0: never */
	uint32_t user_index;    /* with INLAY_DEVX_DCT_USER_INDEX, 24 bits */
	uint32_t flags;         /* enum inlay_devx_dct_flags */
};

/* The target's object. */
struct inlay_devx_dct {
	struct mlx5dv_devx_obj *obj;   /* NULL: there is none */
	uint32_t dctn;
	uint32_t reserved;
	struct inlay_devx_error error; /* of the last command on it */
};

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up
 */

/*
 * Creates a DCT.
 *
 * ctx   from inlay_devx_open
 * path  port, gid_index, access, atomic_mode, mtu, min_rnr_timer, hop_limit, tclass, flow_label, sl, pkey_index, counter_set
 *
 * Returns 0; -EINVAL for an attribute or a path that cannot be; else the negative errno of ibv_query_port or CREATE_DCT, of which
 * dct->error has more. On failure there is no object: dct->obj is NULL.
 */
INLAY_COLD int inlay_devx_dct_create(struct inlay_devx_dct *dct, struct ibv_context *ctx, const struct inlay_devx_dct_attr *attr,
				     const struct inlay_devx_path *path)
{
	struct inlay_create_dct_in in;
	struct inlay_cmd_out out;
	struct ibv_port_attr port;
	uint32_t mtu;
	int err;

	INLAY_CHECK(dct && ctx && attr && path, "no argument is NULL");
	__builtin_memset(dct, 0, sizeof(*dct));
	if (!attr->srqn || (attr->pdn | attr->cqn | attr->srqn) >> 24 || attr->user_index >> 24 ||
	    (attr->scatter_res != 0 && attr->scatter_res != 64) || attr->flags & ~(uint32_t)(INLAY_DEVX_DCT_TAG_MATCHING | INLAY_DEVX_DCT_USER_INDEX))
		return -EINVAL;
	__builtin_memset(&port, 0, sizeof(port));
	err = ibv_query_port(ctx, path->port, &port);
	if (err)
		return -err;
	mtu = path->mtu ? path->mtu : (uint32_t)port.active_mtu;
	if (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096 || !inlay_devx_path_ok(path, port.link_layer == IBV_LINK_LAYER_ETHERNET))
		return -EINVAL;
	__builtin_memset(&in, 0, sizeof(in));
	inlay_cmd_in_set(&in.cmd, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_CREATE_DCT);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_OFFLOAD_TYPE, !!(attr->flags & INLAY_DEVX_DCT_TAG_MATCHING));
	inlay_dctc_set(&in.dctc, INLAY_DCTC_USER_INDEX, attr->flags & INLAY_DEVX_DCT_USER_INDEX ? attr->user_index : 0xffffff);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_CQN, attr->cqn);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_COUNTER_SET_ID, path->counter_set);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_RRE, !!(path->access & IBV_ACCESS_REMOTE_READ));
	inlay_dctc_set(&in.dctc, INLAY_DCTC_RWE, !!(path->access & IBV_ACCESS_REMOTE_WRITE));
	if (path->access & IBV_ACCESS_REMOTE_ATOMIC) {
		inlay_dctc_set(&in.dctc, INLAY_DCTC_RAE, 1);
		inlay_dctc_set(&in.dctc, INLAY_DCTC_ATOMIC_MODE, path->atomic_mode);
	}
	inlay_dctc_set(&in.dctc, INLAY_DCTC_CS_RES, attr->scatter_res ? INLAY_CS_RES_UP_TO_64 : INLAY_CS_RES_OFF);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_MIN_RNR_NAK, path->min_rnr_timer);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_SRQN_XRQN, attr->srqn);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_PD, attr->pdn);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_TCLASS, path->tclass);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_FLOW_LABEL, path->flow_label);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_DC_ACCESS_KEY, attr->key);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_MTU, mtu);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_PORT, path->port);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_MY_ADDR_INDEX, path->gid_index);
	inlay_dctc_set(&in.dctc, INLAY_DCTC_HOP_LIMIT, path->hop_limit);
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		inlay_dctc_set(&in.dctc, INLAY_DCTC_ETH_PRIO, path->sl);
		inlay_dctc_set(&in.dctc, INLAY_DCTC_DSCP, path->tclass >> 2);
	} else {
		inlay_dctc_set(&in.dctc, INLAY_DCTC_PKEY_INDEX, path->pkey_index);
	}
	err = inlay_devx_create(ctx, &in, sizeof(in), &out, sizeof(out), &dct->obj, &dct->error);
	if (!err)
		dct->dctn = (uint32_t)inlay_cmd_out_get(&out, INLAY_CMD_OUT_NUMBER);
	return err;
}

/* Asks the device how the DCT stands. Returns 0, -EINVAL when there is no object, or the negative errno of QUERY_DCT. */
INLAY_COLD int inlay_devx_dct_query(struct inlay_devx_dct *dct, struct inlay_query_dct_out *out)
{
	struct inlay_cmd_in in;

	INLAY_CHECK(dct && out, "no argument is NULL");
	if (!dct->obj)
		return -EINVAL;
	__builtin_memset(&in, 0, sizeof(in));
	inlay_cmd_in_set(&in, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_QUERY_DCT);
	inlay_cmd_in_set(&in, INLAY_CMD_IN_NUMBER, dct->dctn);
	return inlay_devx_query(dct->obj, &in, sizeof(in), out, sizeof(*out), &dct->error);
}

/*
 * Destroys the DCT. The kernel first has the device drain it, and waits for that. Nothing happens where there is no object. Returns 0, or a
 * negative errno; then it is as it was.
 */
INLAY_COLD int inlay_devx_dct_destroy(struct inlay_devx_dct *dct)
{
	int err;

	INLAY_CHECK(dct, "no argument is NULL");
	err = dct->obj ? inlay_devx_destroy(dct->obj) : 0;
	if (!err)
		dct->obj = NULL;
	return err;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path
 */

/*
 * Turns an address vector to a DCT: what a DCI posts begins with it. The way is that of inlay_av_from_ah (verbs.h) or inlay_av_init.
 *
 * dctn  of the target, 24 bits
 * key   its access key, host order
 */
INLAY_FN void inlay_av_to_dct(struct inlay_av *av, uint32_t dctn, uint64_t key)
{
	INLAY_CHECK(av, "no argument is NULL");
	INLAY_CHECK(!(dctn >> 24), "a DCTN has 24 bits");
	av->av.dqp_dct = inlay_to_be32(dctn | MLX5_EXTENDED_UD_AV);
	av->av.key.dc_key = inlay_to_be64(key);
}

#endif
