/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/path.h: how a QP made by device commands reaches its peer. The peers exchange the
 * record of connect.h, so either may be a verbs QP.
 *
 *   struct inlay_devx_path path = inlay_devx_path_defaults();
 *   struct inlay_connect_record mine, peer;
 *
 *   path.access = IBV_ACCESS_REMOTE_WRITE;
 *   inlay_devx_qp_address(&qp, &path, &mine);                       qp.h
 *   ... send mine (inlay_connect_pack), receive peer (inlay_connect_unpack) ...
 *   inlay_devx_address_resolve(&peer, pd, &path);
 *   inlay_devx_qp_connect(&qp, &path, &peer);
 *
 * path.gid_index selects the GID and thus the RoCE version, which must be the peer's;
 * inlay_connect_port finds the best index. On RoCE the device needs the destination MAC. A record
 * from inlay_devx_qp_address has its sender's, which is right within one Ethernet segment.
 * inlay_devx_address_resolve is always right: across routers, and for the record of a verbs QP,
 * which has no MAC. On InfiniBand the GID is used with path.global, or if the peer's record demands
 * it. ECE is not negotiated.
 *
 * Threads: functions that take a context or a PD are as thread-safe as verbs; the others are pure.
 * Sources: devx/ifc.h; ibv_create_ah(3); Linux, infiniband/hw/mlx5/qp.c (mlx5_set_path); UCX's
 * rc_mlx5_devx.c (the MAC from an address handle).
 */
#ifndef INLAY_DEVX_PATH_H
#define INLAY_DEVX_PATH_H /* a trial: names may change */

#include <inlay/connect.h>
#include <inlay/devx/call.h>
#include <inlay/devx/ifc.h>

/* How this end sends, and what its peer may do, with the default in brackets. */
struct inlay_devx_path {
	uint32_t access;        /* of the peer: IBV_ACCESS_REMOTE_WRITE, _REMOTE_READ, _REMOTE_ATOMIC [0] */
	uint32_t psn;           /* of the first packet, 24 bits [0] */
	uint32_t qkey;          /* UD [0] */
	uint32_t flow_label;    /* GRH, 20 bits [0] */
	uint16_t pkey_index;    /* IB [0] */
	uint16_t udp_sport;     /* RoCE v2: 0xc000 .. 0xffff; 0: from both QPNs [0] */
	uint8_t port;           /* from 1 [1] */
	uint8_t gid_index;      /* [0] */
	uint8_t mtu;            /* enum ibv_mtu; 0: the smaller of both ports' [0] */
	uint8_t global;         /* IB: send with a GRH [0] */
	uint8_t hop_limit;      /* GRH [64] */
	uint8_t traffic_class;  /* GRH; 0: as the peer [0] */
	uint8_t sl;             /* IB: service level, 0 .. 15; RoCE: priority, 0 .. 7; 0: as the peer [0] */
	uint8_t src_path_bits;  /* IB, 0 .. 127 [0] */
	uint8_t timeout;        /* of an ack: 4.096 us << timeout, 1 .. 31; 0: no timeout [14: 67 ms] */
	uint8_t retry_count;    /* 0 .. 7 [7] */
	uint8_t rnr_retry;      /* 0 .. 6; 7: no limit [7] */
	uint8_t min_rnr_timer;  /* the peer's pause after an RNR NAK, 0 .. 31: ibv_modify_qp(3) [12: 0.64 ms] */
	uint8_t rd_atomic;      /* reads and atomics outstanding, 0 .. 128, at most the peer's; 2^n [16] */
	uint8_t dest_rd_atomic; /* and from the peer, 0 .. 128; rounded up to 2^n [16] */
	uint8_t atomic_mode;    /* enum inlay_atomic_mode, with IBV_ACCESS_REMOTE_ATOMIC [INLAY_ATOMIC_MODE_IB] */
	uint8_t counter_set;    /* from ALLOC_Q_COUNTER; 0: the device's [0] */
};

/* The defaults in brackets above. */
INLAY_COLD struct inlay_devx_path inlay_devx_path_defaults(void)
{
	struct inlay_devx_path path;

	__builtin_memset(&path, 0, sizeof(path));
	path.port = 1;
	path.hop_limit = 64;
	path.timeout = 14;
	path.retry_count = path.rnr_retry = 7;
	path.min_rnr_timer = 12;
	path.rd_atomic = path.dest_rd_atomic = 16;
	path.atomic_mode = INLAY_ATOMIC_MODE_IB;
	return path;
}

/* Whether each field is in its range. ethernet: whether the port is. */
INLAY_COLD int inlay_devx_path_ok_(const struct inlay_devx_path *path, int ethernet)
{
	return path->mtu <= IBV_MTU_4096 && path->sl < (ethernet ? 8 : 16) && path->src_path_bits < 128 &&
	       path->timeout < 32 && path->retry_count < 8 && path->rnr_retry < 8 && path->min_rnr_timer < 32 &&
	       path->rd_atomic <= 128 && path->dest_rd_atomic <= 128 && path->atomic_mode < 16 &&
	       !(path->flow_label >> 20) && !(path->psn >> 24) && (!path->udp_sport || path->udp_sport >= 0xc000);
}

/* Queries the path's port, and checks the path. ethernet: its link layer; mtu: its enum ibv_mtu. */
INLAY_COLD int inlay_devx_port_(struct ibv_context *ctx, const struct inlay_devx_path *path, uint8_t *ethernet,
				uint8_t *mtu, struct inlay_devx_error *error)
{
	struct ibv_port_attr port;
	int err;

	__builtin_memset(&port, 0, sizeof(port));
	err = ibv_query_port(ctx, path->port, &port);
	if (err)
		return inlay_devx_refuse_(error, -err, "ibv_query_port failed");
	if (!inlay_devx_path_ok_(path, port.link_layer == IBV_LINK_LAYER_ETHERNET))
		return inlay_devx_refuse_(error, -EINVAL, "a field of the path is out of its range");
	*ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
	*mtu = (uint8_t)port.active_mtu;
	return 0;
}

/* The type of a record, enum ibv_qp_type; 0: none. st: enum inlay_qp_st. */
INLAY_COLD uint8_t inlay_devx_connect_type_(uint32_t st)
{
	return st == INLAY_QP_ST_RC ? IBV_QPT_RC : st == INLAY_QP_ST_UC ? IBV_QPT_UC :
	       st == INLAY_QP_ST_UD ? IBV_QPT_UD : 0;
}

/* The MAC of a port's GID, 6 bytes: QUERY_ROCE_ADDRESS. -EINVAL for a port above 15. */
INLAY_COLD int inlay_devx_roce_mac_(struct ibv_context *ctx, uint8_t port, uint8_t gid_index, uint8_t *mac,
				    struct inlay_devx_error *error)
{
	struct inlay_query_roce_address_out out;
	struct inlay_cmd_in in;
	int err;

	if (port >> 4)
		return inlay_devx_refuse_(error, -EINVAL, "QUERY_ROCE_ADDRESS has 4 bits for a port");
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_QUERY_ROCE_ADDRESS, 0);
	inlay_cmd_in_set(&in, INLAY_CMD_IN_ROCE_ADDRESS_INDEX, gid_index);
	/* Only functions with several ports use it. */
	inlay_cmd_in_set(&in, INLAY_CMD_IN_VHCA_PORT_NUM, port > 1 ? port : 0);
	err = inlay_devx_command(ctx, &in, sizeof(in), &out, sizeof(out), error);
	__builtin_memcpy(mac, out.source_mac, sizeof(out.source_mac));
	return err;
}

/*
 * Lets the kernel look up the MAC for the GID in the peer's record, and writes it there; does
 * nothing on InfiniBand. Takes any PD of the context, and of this end's path port, gid_index, sl,
 * traffic_class and hop_limit.
 *
 * Returns 0, or the negative errno of ibv_create_ah or inlay_av_from_ah: -EHOSTUNREACH,
 * -ENETUNREACH or -ETIMEDOUT when there is no route.
 */
INLAY_COLD int inlay_devx_address_resolve(struct inlay_connect_record *peer, struct ibv_pd *pd,
					  const struct inlay_devx_path *path)
{
	struct ibv_ah_attr attr;
	struct inlay_av av;
	struct ibv_ah *ah;
	int err;

	INLAY_CHECK(peer && pd && path, "no argument is NULL");
	if (peer->link == INLAY_CONNECT_IB)
		return 0;
	__builtin_memset(&attr, 0, sizeof(attr));
	attr.is_global = 1;
	attr.port_num = path->port;
	attr.sl = path->sl;
	__builtin_memcpy(attr.grh.dgid.raw, peer->gid, sizeof(peer->gid));
	attr.grh.sgid_index = path->gid_index;
	attr.grh.hop_limit = path->hop_limit;
	attr.grh.traffic_class = path->traffic_class;
	errno = 0;
	ah = ibv_create_ah(pd, &attr);
	if (!ah)
		return errno ? -errno : -ENOMEM;
	err = inlay_av_from_ah(&av, ah, 0, 0);
	if (!err)
		__builtin_memcpy(peer->mac, av.av.rmac, sizeof(peer->mac));
	ibv_destroy_ah(ah);
	return err;
}

/*
 * Fills a zeroed address path; without a peer (UD, DCI) only port, P_Key index and class. link
 * (enum inlay_connect_link) and qpn: of this end.
 */
INLAY_COLD void inlay_devx_ads_fill_(struct inlay_ads *ads, const struct inlay_devx_path *path,
				     const struct inlay_connect_record *peer, uint32_t link, uint32_t qpn)
{
	uint32_t sport = path->udp_sport, sl = peer && !path->sl ? peer->sl : path->sl;
	uint32_t tclass = peer && !path->traffic_class ? peer->traffic_class : path->traffic_class;

	inlay_ads_set(ads, INLAY_ADS_VHCA_PORT_NUM, path->port);
	if (link == INLAY_CONNECT_IB) {
		inlay_ads_set(ads, INLAY_ADS_PKEY_INDEX, path->pkey_index);
		inlay_ads_set(ads, INLAY_ADS_SL, sl);
	} else {
		inlay_ads_set(ads, INLAY_ADS_ETH_PRIO, sl);
		inlay_ads_set(ads, INLAY_ADS_DSCP, link == INLAY_CONNECT_ROCE_V2 ? tclass >> 2 : 0);
	}
	if (!peer)
		return;
	if (link == INLAY_CONNECT_IB) {
		inlay_ads_set(ads, INLAY_ADS_RLID, peer->lid);
		inlay_ads_set(ads, INLAY_ADS_MLID, path->src_path_bits);
		if (!path->global && !(peer->flags & INLAY_CONNECT_GLOBAL))
			return;
		inlay_ads_set(ads, INLAY_ADS_GRH, 1);
	} else {
		__builtin_memcpy(ads->rmac, peer->mac, sizeof(ads->rmac));
		if (link == INLAY_CONNECT_ROCE_V2)
			inlay_ads_set(ads, INLAY_ADS_UDP_SPORT, sport ? sport : 0xc000 | ((qpn ^ peer->qpn) & 0x3fff));
	}
	inlay_ads_set(ads, INLAY_ADS_SRC_ADDR_INDEX, path->gid_index);
	inlay_ads_set(ads, INLAY_ADS_HOP_LIMIT, path->hop_limit);
	inlay_ads_set(ads, INLAY_ADS_TCLASS, tclass);
	inlay_ads_set(ads, INLAY_ADS_FLOW_LABEL, path->flow_label);
	__builtin_memcpy(ads->rgid_rip, peer->gid, sizeof(peer->gid));
}

#endif
