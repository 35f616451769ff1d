/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/link.h: one end of a connection between host and worker: a queue pair, its queues, its address. host.h and worker.h build on
 * it; who uses tasks fills a struct inlay_task_path and reads no further.
 *
 *   inlay_task_link_create(&link, &caps, &path);      a QP in INIT: receives may be posted
 *   inlay_task_address_write(blob, &link.self);       76 bytes for the other side, passed by the caller
 *   inlay_task_link_connect(&link, &peer);            its address, read by inlay_task_address_read: RTS
 *   inlay_task_link_break(&link);                     to the error state: what is outstanding is flushed
 *   inlay_task_link_destroy(&link);
 *
 * How long until a dead peer is noticed. A send, a read, a write or the zero-byte write of a probe that nobody acknowledges is tried again
 * after the QP's timeout, `retries` times; then it fails, and the QP with it. The time of one try is between one and four times 4.096 us *
 * 2^timeout (InfiniBand's specification; a device may round up). So a peer that has gone is noticed within
 *
 *   4 * (retries + 1) * 4.096 us * 2^timeout      = inlay_task_path_bound(&path)
 *
 * after something was sent to it, by whoever polls then; with the defaults 4 * 5 * 67 ms, 1.4 s.
 *
 * Threads: one thread at a time.
 * Sources: ibv_modify_qp(3), ibv_query_gid_ex(3); the InfiniBand specification, "Ack timeout" in volume 1, chapter 9.
 */
#ifndef INLAY_TASK_LINK_H
#define INLAY_TASK_LINK_H

#include <time.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/queue.h>
#include <inlay/verbs.h>
#include <inlay/task/wire.h>

/* The way to the other side. Start from inlay_task_path_default. */
struct inlay_task_path {
	int gid_index;                  /* -1: the best of the port's: RoCE v2 over IPv4, RoCE v2, what there is. Where GIDs are used */
	uint8_t port;                   /* of the device, from 1 on */
	uint8_t sl;                     /* service level */
	uint8_t timeout;                /* of a try: 4.096 us * 2^timeout; 1 .. 31 */
	uint8_t retries;                /* 0 .. 7 */
};

/* What a link is made of */
struct inlay_task_caps {
	struct ibv_pd *pd;
	struct ibv_cq *ibcq;            /* of both directions */
	struct inlay_cq *cq;            /* made from ibcq: CQEs are reserved in it for all that the QP can complete */
	struct inlay_uar *uar;          /* made by inlay_uar_create, for a QP in uar->pd; NULL: the link makes one, or uses the QP's own */
	uint32_t wqebbs;                /* of the send queue, at least */
	uint32_t receives;              /* a power of two */
	uint32_t max_inline;            /* bytes */
	uint32_t max_gather;            /* pieces of a message beside what is inline */
	int access;                     /* IBV_ACCESS_REMOTE_...: what the other side may do through the QP at all */
};

struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_task_link {
	struct inlay_sq sq;
	struct inlay_rq rq __attribute__((aligned(INLAY_CACHE_LINE)));
	struct inlay_uar own __attribute__((aligned(INLAY_CACHE_LINE)));
	struct ibv_qp *qp;              /* NULL: no verbs object stands behind the queues */
	struct inlay_task_path path;
	struct inlay_task_address self;
	struct inlay_task_address peer; /* once connected */
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_task_link, sq) == 0, "a short post touches one line of its queue");

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up
 */

/* Port 1, the best GID, service level 0, a dead peer noticed within 1.4 s. */
INLAY_COLD struct inlay_task_path inlay_task_path_default(void)
{
	struct inlay_task_path p = {-1, 1, 0, 14, 4};

	return p;
}

/* Nanoseconds within which a peer that has gone is noticed, from something sent to it on: see the manual above. */
INLAY_COLD uint64_t inlay_task_path_bound(const struct inlay_task_path *p)
{
	return 4ull * (p->retries + 1u) * (4096ull << (p->timeout & 31));
}

/* The GID that the path asks for. Returns its index, or a negative errno. */
INLAY_COLD int inlay_task_path_gid(const struct inlay_task_path *p, struct ibv_context *ctx, const struct ibv_port_attr *port,
				   union ibv_gid *gid)
{
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
	struct ibv_gid_entry e;
	int i, rank, best = -1, found = -ENOENT;

	for (i = 0; i < port->gid_tbl_len; i++) {
		if ((p->gid_index >= 0 && i != p->gid_index) || ibv_query_gid_ex(ctx, p->port, (uint32_t)i, &e, 0))
			continue;
		rank = e.gid_type != IBV_GID_TYPE_ROCE_V2 ? 0 : __builtin_memcmp(e.gid.raw, mapped, sizeof(mapped)) ? 1 : 2;
		if (rank > best) {
			best = rank;
			found = i;
			*gid = e.gid;
		}
	}
	return found;
}

/*
 * Destroys the QP and the register. Returns 0, or -EBUSY when something of it is in use; it may then be called again.
 */
INLAY_COLD int inlay_task_link_destroy(struct inlay_task_link *l)
{
	if (l->qp && ibv_destroy_qp(l->qp))
		return -EBUSY;
	l->qp = NULL;
	inlay_sq_fini(&l->sq);
	inlay_rq_fini(&l->rq);
	if (l->own.td && inlay_uar_destroy(&l->own, NULL))
		return -EBUSY;
	return 0;
}

/*
 * Creates the QP in l->own's register, or in caps->uar's; a device without such registers has the QP's own. Returns 0 or a negative errno.
 */
INLAY_COLD int inlay_task_link_qp(struct inlay_task_link *l, const struct inlay_task_caps *caps)
{
	struct ibv_qp_init_attr_ex init;
	struct mlx5dv_qp_init_attr dv;
	struct inlay_uar *uar = caps->uar;
	uint32_t ds = 3 + (caps->max_inline + 4 + INLAY_DS - 1) / INLAY_DS, bbs;
	int err;

	if (!uar) {
		uar = &l->own;
		err = inlay_uar_create(uar, caps->pd, INLAY_UAR_SERIAL, NULL);
		if (err && err != -ENOTSUP)
			return err;
	}
	__builtin_memset(&init, 0, sizeof(init));
	__builtin_memset(&dv, 0, sizeof(dv));
	init.qp_type = IBV_QPT_RC;
	init.comp_mask = IBV_QP_INIT_ATTR_PD;
	init.pd = uar->td ? uar->pd : caps->pd;
	init.send_cq = init.recv_cq = caps->ibcq;
	init.cap.max_inline_data = caps->max_inline;
	init.cap.max_send_sge = caps->max_gather + 1;
	init.cap.max_recv_sge = 1;
	init.cap.max_recv_wr = caps->receives;
	if (ds < 3 + init.cap.max_send_sge)
		ds = 3 + init.cap.max_send_sge;
	bbs = (ds + 3) / 4;
	init.cap.max_send_wr = (caps->wqebbs + bbs - 1) / bbs;
	/* A message lies in its buffer, however short: one place to look at. */
	dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
	dv.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
	errno = 0;
	l->qp = mlx5dv_create_qp(caps->pd->context, &init, &dv);
	if (!l->qp)
		return errno ? -errno : -ENOMEM;
	err = uar->td ? 0 : inlay_uar_from_qp(&l->own, l->qp, NULL);
	if (!err)
		err = inlay_sq_from_qp(&l->sq, l->qp, uar->td ? uar : &l->own, caps->cq, NULL);
	if (!err)
		err = inlay_rq_from_qp(&l->rq, l->qp, caps->cq, NULL);
	if (!err && (inlay_sq_size(&l->sq) < caps->wqebbs || inlay_rq_size(&l->rq) < caps->receives))
		err = -ENOMEM;
	return err;
}

/*
 * Makes one end: a QP of its own in INIT, its queues taken over, its address filled in but for role, message, receives, largest and id.
 *
 * l  zeroed
 *
 * Returns 0; -EINVAL for a path that cannot be, and for a port that is not there or not active; -ENOENT when the port has no such GID;
 * -ENOTSUP when the device is not mlx5; -ENOSPC when the CQ has not as many CQEs left; -ENOMEM; else the negative errno of the call that failed. On failure nothing is left behind.
 */
INLAY_COLD int inlay_task_link_create(struct inlay_task_link *l, const struct inlay_task_caps *caps, const struct inlay_task_path *path)
{
	struct ibv_context *ctx = caps->pd->context;
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct ibv_qp_attr a;
	struct timespec t;
	int err, gid = 0;

	if (!path->port || path->sl > 15 || !path->timeout || path->timeout > 31 || path->retries > 7)
		return -EINVAL;
	if (ibv_query_device(ctx, &device) || path->port > device.phys_port_cnt || ibv_query_port(ctx, path->port, &port) ||
	    port.state != IBV_PORT_ACTIVE)
		return -EINVAL;
	l->path = *path;
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET || path->gid_index >= 0) {
		gid = inlay_task_path_gid(path, ctx, &port, &l->self.gid);
		if (gid < 0)
			return gid;
		l->path.gid_index = gid;
	}
	err = inlay_task_link_qp(l, caps);
	if (!err) {
		__builtin_memset(&a, 0, sizeof(a));
		a.qp_state = IBV_QPS_INIT;
		a.port_num = path->port;
		a.qp_access_flags = (unsigned)caps->access;
		err = -ibv_modify_qp(l->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	}
	if (err) {
		inlay_task_link_destroy(l);
		return err;
	}
	timespec_get(&t, TIME_UTC);
	l->self.link = port.link_layer == IBV_LINK_LAYER_ETHERNET ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
	l->self.lid = port.lid;
	l->self.mtu = (uint8_t)port.active_mtu;
	l->self.reads = (uint8_t)(device.max_qp_rd_atom < 16 ? device.max_qp_rd_atom : 16);
	l->self.qpn = l->qp->qp_num;
	l->self.psn = ((uint32_t)t.tv_nsec ^ l->qp->qp_num * 2654435761u) & 0xffffff;
	return 0;
}

/*
 * Connects the QP to the other side's: RTR and RTS. Receives have been posted before.
 *
 * Returns 0; -EINVAL when the other side's port is of another link layer; else the negative errno of ibv_modify_qp: the QP is then of no
 * use.
 */
INLAY_COLD int inlay_task_link_connect(struct inlay_task_link *l, const struct inlay_task_address *peer)
{
	struct ibv_qp_attr a;
	int err;

	if (peer->link != l->self.link)
		return -EINVAL;
	l->peer = *peer;
	__builtin_memset(&a, 0, sizeof(a));
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = (enum ibv_mtu)(peer->mtu < l->self.mtu ? peer->mtu : l->self.mtu);
	a.dest_qp_num = peer->qpn;
	a.rq_psn = peer->psn;
	a.max_dest_rd_atomic = l->self.reads;
	a.min_rnr_timer = 12;
	a.ah_attr.port_num = l->path.port;
	a.ah_attr.sl = l->path.sl;
	a.ah_attr.dlid = peer->lid;
	if (l->path.gid_index >= 0) {
		a.ah_attr.is_global = 1;
		a.ah_attr.grh.dgid = peer->gid;
		a.ah_attr.grh.sgid_index = (uint8_t)l->path.gid_index;
		a.ah_attr.grh.hop_limit = 64;
	}
	err = ibv_modify_qp(l->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (err)
		return -err;
	a.qp_state = IBV_QPS_RTS;
	a.timeout = l->path.timeout;
	a.retry_cnt = l->path.retries;
	a.rnr_retry = 6; /* credit sees to it that a receive is there: who has none posted is out of order */
	a.sq_psn = l->self.psn;
	a.max_rd_atomic = peer->reads < l->self.reads ? peer->reads : l->self.reads;
	return -ibv_modify_qp(l->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			      IBV_QP_MAX_QP_RD_ATOMIC);
}

/* To the error state: all that is outstanding is flushed, and the other side reaches nothing any more. Returns 0 or a negative errno. */
INLAY_COLD int inlay_task_link_break(struct inlay_task_link *l)
{
	struct ibv_qp_attr a;

	__builtin_memset(&a, 0, sizeof(a));
	a.qp_state = IBV_QPS_ERR;
	return -ibv_modify_qp(l->qp, &a, IBV_QP_STATE);
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path
 */

/*
 * The flags of a send of bbs WQEBBs from WQEBB `from` on: signaled when it reaches the end of a part of the ring, so that credit comes back
 * with each of them. mask: WQEBBs of a part less 1.
 */
INLAY_ALWAYS uint32_t inlay_task_signal(uint32_t from, uint32_t bbs, uint32_t mask)
{
	return (from & mask) + bbs > mask ? INLAY_SIGNALED : 0;
}

/* WQEBBs of a send queue whose work is done, by their number. */
INLAY_ALWAYS uint32_t inlay_task_sent(const struct inlay_sq *sq)
{
	return inlay_sq_index(sq) - inlay_sq_pending(sq);
}

/* A quarter of a send ring, for inlay_task_signal. */
INLAY_FN uint32_t inlay_task_quarter(const struct inlay_sq *sq)
{
	return (inlay_sq_size(sq) - 1) >> 2;
}

#endif
