/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/path.h: how one end of a connection reaches the other: what is said of oneself, and what the peer says.
 *
 *   struct inlay_devx_path path;                      mine: port, timeouts, what the peer may do
 *   struct inlay_devx_address mine, peer;             what each end tells the other
 *
 *   inlay_devx_path_init(&path);
 *   path.access = IBV_ACCESS_REMOTE_WRITE;
 *   inlay_devx_qp_address(&qp, &path, &mine);         qp.h
 *   ... mine goes to the peer, peer comes from it ...
 *   inlay_devx_qp_connect(&qp, &path, &peer);
 *
 * An address is 40 bytes in the order below, its numbers in the byte order of both machines (inlay knows little-endian ones only), and may
 * be sent as it is.
 *
 * The way on RoCE
 * ---------------
 * The device wants the MAC that frames shall go to, and no command finds it. In one Ethernet segment it is the peer's own, and is in its
 * address. Where routers stand between, it is the next one's: inlay_devx_address_resolve has the kernel look, as it does for an address
 * handle, and puts what it found into the peer's address. It does no harm within one segment either.
 *
 * RoCE v1 and v2 differ in the GID that path.gid_index names, and both ends must take the same. An end of a connection within one port (to
 * itself, or to a QP beside it) is addressed as any other.
 *
 * On InfiniBand the LID is enough within a subnet, and the GID is used only with path.global.
 *
 * Threads: pure data, but for the two functions that ask: these as verbs and device commands.
 * Sources: devx/ifc/qp.h; ibv_query_port(3), ibv_query_gid_ex(3), ibv_create_ah(3); Linux, infiniband/hw/mlx5/qp.c (mlx5_set_path); UCX's
 * rc_mlx5_devx.c (that the MAC comes from an address handle).
 */
#ifndef INLAY_DEVX_PATH_H
#define INLAY_DEVX_PATH_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/devx/call.h>
#include <inlay/devx/ifc/cmd.h>
#include <inlay/devx/ifc/qp.h>
#include <inlay/devx/ifc/query.h>

enum inlay_devx_link {
	INLAY_DEVX_LINK_IB = 0,
	INLAY_DEVX_LINK_ROCE_V1 = 1,
	INLAY_DEVX_LINK_ROCE_V2 = 2
};

/* Where a QP is: what its peer must know. */
struct inlay_devx_address {
	uint8_t gid[16];  /* RoCE, and IB across subnets */
	uint32_t qpn;
	uint32_t psn;     /* of the first packet that it sends, 24 bits */
	uint16_t lid;     /* IB */
	uint8_t mac[6];   /* RoCE: where frames to it go */
	uint8_t link;     /* enum inlay_devx_link */
	uint8_t mtu;      /* enum ibv_mtu, 1 .. 5: the longest packet that its port takes */
	uint8_t reserved[6];
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_devx_address) == 40, "an address on its way");
INLAY_STATIC_ASSERT(offsetof(struct inlay_devx_address, qpn) == 16, "an address on its way");
INLAY_STATIC_ASSERT(offsetof(struct inlay_devx_address, psn) == 20, "an address on its way");
INLAY_STATIC_ASSERT(offsetof(struct inlay_devx_address, lid) == 24, "an address on its way");
INLAY_STATIC_ASSERT(offsetof(struct inlay_devx_address, mac) == 26, "an address on its way");
INLAY_STATIC_ASSERT(offsetof(struct inlay_devx_address, link) == 32, "an address on its way");
INLAY_STATIC_ASSERT(offsetof(struct inlay_devx_address, mtu) == 33, "an address on its way");

/* How this end sends, and what it lets its peer do. inlay_devx_path_init first. */
struct inlay_devx_path {
	uint32_t access;        /* of the peer: IBV_ACCESS_REMOTE_WRITE, _REMOTE_READ, _REMOTE_ATOMIC, any of them or 0 */
	uint32_t psn;           /* of the first packet, 24 bits */
	uint32_t qkey;          /* UD */
	uint32_t flow_label;    /* GRH, 20 bits */
	uint16_t pkey_index;    /* IB */
	uint16_t udp_sport;     /* RoCE v2: 0xc000 .. 0xffff; 0: one that depends on both QPs */
	uint8_t port;           /* from 1 */
	uint8_t gid_index;
	uint8_t mtu;            /* enum ibv_mtu, 1 .. 5: no longer packets than these; 0: as both ports take */
	uint8_t global;         /* IB: send with a GRH */
	uint8_t hop_limit;      /* GRH */
	uint8_t tclass;         /* GRH */
	uint8_t sl;             /* IB: service level; RoCE: priority, 0 .. 7 */
	uint8_t src_path_bits;  /* IB */
	uint8_t timeout;        /* of an ack: 4.096 us << timeout, 1 .. 31; 0: for ever */
	uint8_t retry_count;    /* 0 .. 7 */
	uint8_t rnr_retry;      /* 0 .. 6; 7: for ever */
	uint8_t min_rnr_timer;  /* what the peer waits after an RNR NAK: 0 .. 31, IBTA's table */
	uint8_t rd_atomic;      /* reads and atomics that this end has under way, 1 .. 128, rounded up to a power of two; 0: as 1 */
	uint8_t dest_rd_atomic; /* the same of the peer */
	uint8_t atomic_mode;    /* enum inlay_atomic_mode, with IBV_ACCESS_REMOTE_ATOMIC */
	uint8_t counter_set;    /* of ALLOC_Q_COUNTER; 0: the device's */
};

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up: all of it
 */

/*
 * What is usual: port 1, GID 0, both ports' MTU, hop limit 64, a timeout of 67 ms, 7 retries, for ever when the peer has no receive, 0.64
 * ms between these, 16 reads and atomics each way, atomics as InfiniBand has them, PSN 0; and no access.
 */
INLAY_COLD void inlay_devx_path_init(struct inlay_devx_path *path)
{
	INLAY_CHECK(path, "no argument is NULL");
	__builtin_memset(path, 0, sizeof(*path));
	path->port = 1;
	path->hop_limit = 64;
	path->timeout = 14;
	path->retry_count = 7;
	path->rnr_retry = 7;
	path->min_rnr_timer = 12;
	path->rd_atomic = 16;
	path->dest_rd_atomic = 16;
	path->atomic_mode = INLAY_ATOMIC_MODE_IB;
}

/*
 * Whether a path's fields are what struct inlay_devx_path says that they may be: what does not fit a field of the device must not become
 * another number in it. psn is not looked at: its upper bits are cut off, for both ends alike.
 *
 * ethernet  of the port: a service level is a priority there
 *
 * Returns 1 or 0.
 */
INLAY_COLD int inlay_devx_path_ok(const struct inlay_devx_path *path, int ethernet)
{
	INLAY_CHECK(path, "no argument is NULL");
	return path->mtu <= IBV_MTU_4096 && path->sl < (ethernet ? 8 : 16) && path->src_path_bits < 128 && path->timeout < 32 &&
	       path->retry_count < 8 && path->rnr_retry < 8 && path->min_rnr_timer < 32 && path->rd_atomic <= 128 &&
	       path->dest_rd_atomic <= 128 && path->atomic_mode < 16 && !(path->flow_label >> 20) &&
	       (!path->udp_sport || path->udp_sport >= 0xc000);
}

/* log2 of n, rounded up. */
INLAY_COLD uint32_t inlay_devx_log2_up(uint32_t n)
{
	return n < 2 ? 0 : 32 - (uint32_t)__builtin_clz(n - 1);
}

/*
 * The MAC of a port's GID: QUERY_ROCE_ADDRESS. mac: 6 bytes. Returns 0, or a negative errno as inlay_devx_command does.
 */
INLAY_COLD int inlay_devx_roce_mac(uint8_t *mac, struct ibv_context *ctx, uint8_t port, uint8_t gid_index)
{
	struct inlay_query_roce_address_out out;
	struct inlay_query_roce_address_in in;
	uint32_t high, low;
	int err;

	INLAY_CHECK(mac && ctx, "no argument is NULL");
	__builtin_memset(&in, 0, sizeof(in));
	inlay_cmd_in_set(&in.cmd, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_QUERY_ROCE_ADDRESS);
	inlay_query_roce_address_in_set(&in, INLAY_QUERY_ROCE_ADDRESS_IN_ROCE_ADDRESS_INDEX, gid_index);
	/* Only a function of several ports counts them there. */
	inlay_query_roce_address_in_set(&in, INLAY_QUERY_ROCE_ADDRESS_IN_VHCA_PORT_NUM, port > 1 ? port & 15 : 0);
	err = inlay_devx_command(ctx, &in, sizeof(in), &out, sizeof(out), NULL);
	if (err)
		return err;
	high = inlay_to_be32((uint32_t)inlay_roce_addr_get(&out.addr, INLAY_ROCE_ADDR_SOURCE_MAC_47_32) << 16);
	low = inlay_to_be32((uint32_t)inlay_roce_addr_get(&out.addr, INLAY_ROCE_ADDR_SOURCE_MAC_31_0));
	__builtin_memcpy(mac, &high, 2);
	__builtin_memcpy(mac + 2, &low, 4);
	return 0;
}

/*
 * All of a port's address: an address but for qpn and psn, which are left alone.
 *
 * ctx        from inlay_devx_open
 * port       from 1; gid_index of it
 *
 * Returns 0; -ENETDOWN when the port is not up; -ENOENT for a GID index without a GID, on RoCE; else the negative errno of ibv_query_port,
 * ibv_query_gid_ex, or on RoCE of QUERY_ROCE_ADDRESS.
 */
INLAY_COLD int inlay_devx_port_address(struct inlay_devx_address *address, struct ibv_context *ctx, uint8_t port, uint8_t gid_index)
{
	struct ibv_gid_entry gid;
	struct ibv_port_attr attr;
	int err;

	INLAY_CHECK(address && ctx, "no argument is NULL");
	__builtin_memset(&attr, 0, sizeof(attr));
	__builtin_memset(&gid, 0, sizeof(gid));
	err = ibv_query_port(ctx, port, &attr);
	if (err)
		return -err;
	if (attr.state != IBV_PORT_ACTIVE)
		return -ENETDOWN;
	__builtin_memset(address->gid, 0, sizeof(address->gid));
	__builtin_memset(address->mac, 0, sizeof(address->mac));
	__builtin_memset(address->reserved, 0, sizeof(address->reserved));
	address->lid = attr.lid;
	address->mtu = (uint8_t)attr.active_mtu;
	address->link = INLAY_DEVX_LINK_IB;
	err = ibv_query_gid_ex(ctx, port, gid_index, &gid, 0);
	if (attr.link_layer != IBV_LINK_LAYER_ETHERNET) {
		if (!err) /* IB does without */
			__builtin_memcpy(address->gid, gid.gid.raw, sizeof(address->gid));
		return 0;
	}
	if (err)
		return err == ENODATA ? -ENOENT : -err;
	__builtin_memcpy(address->gid, gid.gid.raw, sizeof(address->gid));
	address->link = gid.gid_type == IBV_GID_TYPE_ROCE_V2 ? INLAY_DEVX_LINK_ROCE_V2 : INLAY_DEVX_LINK_ROCE_V1;
	return inlay_devx_roce_mac(address->mac, ctx, port, gid_index);
}

/*
 * Has the kernel look up the MAC by which the peer's GID is reached from this port, and puts it into the peer's address: on RoCE, where a
 * router may stand between. Nothing to do on InfiniBand.
 *
 * peer  as it came
 * pd    any of the context; an address handle is made in it, and destroyed
 * path  of this end: port, GID
 *
 * Returns 0, or the negative errno of ibv_create_ah or mlx5dv_init_obj: -EHOSTUNREACH, -ENETUNREACH or -ETIMEDOUT where there is no way.
 */
INLAY_COLD int inlay_devx_address_resolve(struct inlay_devx_address *peer, struct ibv_pd *pd, const struct inlay_devx_path *path)
{
	struct ibv_ah_attr attr;
	struct mlx5dv_obj obj;
	struct mlx5dv_ah dv;
	struct ibv_ah *ah;
	int err;

	INLAY_CHECK(peer && pd && path, "no argument is NULL");
	if (peer->link == INLAY_DEVX_LINK_IB)
		return 0;
	__builtin_memset(&attr, 0, sizeof(attr));
	attr.is_global = 1;
	attr.port_num = path->port;
	attr.sl = path->sl;
	__builtin_memcpy(attr.grh.dgid.raw, peer->gid, sizeof(peer->gid));
	attr.grh.sgid_index = path->gid_index;
	attr.grh.hop_limit = path->hop_limit;
	attr.grh.traffic_class = path->tclass;
	errno = 0;
	ah = ibv_create_ah(pd, &attr);
	if (!ah)
		return errno ? -errno : -ENOMEM;
	__builtin_memset(&obj, 0, sizeof(obj));
	__builtin_memset(&dv, 0, sizeof(dv));
	obj.ah.in = ah;
	obj.ah.out = &dv;
	err = mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH);
	if (!err)
		__builtin_memcpy(peer->mac, dv.av->rmac, sizeof(peer->mac));
	ibv_destroy_ah(ah);
	return -err;
}

/*
 * Fills an address path.
 *
 * ads   zeroed
 * path  of this end, one that inlay_devx_path_ok accepts
 * peer  the other end's; NULL for a QP that has no peer (UD, DCI): then port, key index and service level are all
 * link  of this end, enum inlay_devx_link
 * qpn   of this end: what the UDP source port is made of
 */
INLAY_COLD void inlay_devx_ads_fill(struct inlay_ads *ads, const struct inlay_devx_path *path, const struct inlay_devx_address *peer,
				    uint32_t link, uint32_t qpn)
{
	uint32_t sport = path->udp_sport;

	inlay_ads_set(ads, INLAY_ADS_VHCA_PORT_NUM, path->port);
	if (link == INLAY_DEVX_LINK_IB) {
		inlay_ads_set(ads, INLAY_ADS_PKEY_INDEX, path->pkey_index);
		inlay_ads_set(ads, INLAY_ADS_SL, path->sl);
	} else {
		inlay_ads_set(ads, INLAY_ADS_ETH_PRIO, path->sl);
		inlay_ads_set(ads, INLAY_ADS_DSCP, link == INLAY_DEVX_LINK_ROCE_V2 ? path->tclass >> 2 : 0);
	}
	if (!peer)
		return;
	if (link == INLAY_DEVX_LINK_IB) {
		inlay_ads_set(ads, INLAY_ADS_RLID, peer->lid);
		inlay_ads_set(ads, INLAY_ADS_MLID, path->src_path_bits);
		inlay_ads_set(ads, INLAY_ADS_GRH, !!path->global);
		if (!path->global)
			return;
	} else {
		inlay_ads_set(ads, INLAY_ADS_RMAC_47_32, (uint32_t)peer->mac[0] << 8 | peer->mac[1]);
		inlay_ads_set(ads, INLAY_ADS_RMAC_31_0, (uint32_t)peer->mac[2] << 24 | (uint32_t)peer->mac[3] << 16 |
							(uint32_t)peer->mac[4] << 8 | peer->mac[5]);
		if (link == INLAY_DEVX_LINK_ROCE_V2)
			inlay_ads_set(ads, INLAY_ADS_UDP_SPORT, sport ? sport : 0xc000 | ((qpn ^ peer->qpn) & 0x3fff));
	}
	inlay_ads_set(ads, INLAY_ADS_SRC_ADDR_INDEX, path->gid_index);
	inlay_ads_set(ads, INLAY_ADS_HOP_LIMIT, path->hop_limit);
	inlay_ads_set(ads, INLAY_ADS_TCLASS, path->tclass);
	inlay_ads_set(ads, INLAY_ADS_FLOW_LABEL, path->flow_label);
	__builtin_memcpy(ads->rgid_rip, peer->gid, sizeof(peer->gid));
}

#endif
