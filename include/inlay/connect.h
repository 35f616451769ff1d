/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/connect.h: the record that two sides exchange, and moving a queue pair from RESET to RTS.
 * RC, UC, UD and DC; InfiniBand, RoCE v1 and RoCE v2.
 *
 *   struct inlay_connect_record here, there;
 *   uint8_t mine[INLAY_CONNECT_SIZE], theirs[INLAY_CONNECT_SIZE];
 *   const char *why;
 *
 *   inlay_connect_local(&here, qp, NULL, &why);                     RESET to INIT
 *   ... post receives ...
 *   inlay_connect_pack(&here, mine);
 *   ... send mine to the peer, receive theirs from it, by any means ...
 *   inlay_connect_unpack(&there, theirs, sizeof(theirs), &why);
 *   inlay_connect_rts(qp, &here, &there, NULL, &why);               INIT to RTS
 *
 * Both sides may do this at the same time. Or one side first receives the other's record, calls
 * inlay_connect_rts, and packs and sends its own record last: that record then says which ECE
 * options its device accepted.
 *
 * NULL stands for the defaults. To choose a port, a GID index, timers and so on:
 *
 *   struct inlay_connect_attr attr = inlay_connect_defaults();
 *   attr.gid_index = 5;                                             and &attr in place of NULL
 *
 * inlay_connect_pair(qp, other, NULL, &why) connects two queue pairs of one process. A UD queue
 * pair has no peer: pass NULL for there; inlay_connect_av turns a received record into the address
 * vector for datagrams. It does the same with the record of a DC target, which has type UD;
 * inlay_av_to_dct then adds the target's key (examples/dc.c).
 *
 * Invariants:
 *   - *why always points to a static sentence.
 *   - If inlay_connect_local fails, the queue pair is as it was. If inlay_connect_rts fails, it is
 *     as it was, or in RESET if it had reached RTR.
 *   - Only inlay_connect_unpack reads the peer's bytes, and any bytes are safe. It refuses a LID,
 *     GID or MAC that no port can have.
 *   - A record is not authenticated: exchange it over a channel that the application trusts.
 *
 * The record on the wire: 40 bytes, little-endian
 *
 *   +0   1  version: 1
 *   +1   1  bits 0-3 enum ibv_qp_type, 4-5 enum inlay_connect_link, 6 INLAY_CONNECT_GLOBAL, 7 zero
 *   +2   1  bits 0-3 enum ibv_mtu, 4-7 service level
 *   +3   1  traffic class
 *   +4   1  inbound reads and atomics that the sender allows at a time (max_dest_rd_atomic); 0
 *           unless RC
 *   +5   3  QPN
 *   +8   3  PSN of the first packet
 *   +11 16  GID; zeros if none
 *   +27  6  RoCE: MAC, zeros if not known; InfiniBand: LID in 2 bytes, 4 zeros
 *   +33  3  ECE vendor; 0 if none, and for UD
 *   +36  4  ECE options; for UD the Q_Key
 *
 * The GID on RoCE. A port has one for each pair of interface address and RoCE version. Both
 * sides must use the same version and address family, and only RoCE v2 is routed. Indices differ
 * between hosts and over time, so by default the record names the first GID of the best kind. From
 * best to worst: RoCE v2 with an IPv4 address, with a routable IPv6 address, with a link-local one;
 * RoCE v1.
 *
 * Service level and traffic class select the lossless class. Replies in another class than the
 * requests may be dropped under load, so a side that leaves them 0 uses the peer's: configuring one
 * side is enough. If both are set, each side sends with its own.
 *
 * ECE (enhanced connection establishment): vendor options, such as selective repeat, that both
 * devices must enable, or neither. Each side offers what its device supports. If both records name
 * the same vendor and neither offer is empty, inlay_connect_rts gives the peer's offer to the
 * device, which reduces it to what both support; here->ece_options then holds what it took.
 *
 * Threads: during these calls a queue pair belongs to one thread; all else is plain data. Sources:
 * ibv_modify_qp(3), ibv_query_gid_ex(3), ibv_set_ece(3), ibv_query_ece(3), rdma_get_remote_ece(3);
 * the InfiniBand specification, volume 1, chapters 9 and 11, and annex A17 (RoCE v2).
 */
#ifndef INLAY_CONNECT_H
#define INLAY_CONNECT_H /* names are stable until 1.0 */

#include <time.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/verbs.h>

/* Bytes of a record on the wire. */
#define INLAY_CONNECT_SIZE 40
#define INLAY_CONNECT_VERSION 1

enum inlay_connect_link {
	INLAY_CONNECT_IB = 0, INLAY_CONNECT_ROCE_V1 = 1, INLAY_CONNECT_ROCE_V2 = 2
};

enum inlay_connect_flags {
	INLAY_CONNECT_GLOBAL = 1 << 0, /* InfiniBand: send with a GRH. Implied where the port or the peer demands it */
	INLAY_CONNECT_NO_ECE = 1 << 1  /* offer no ECE, and accept none */
};

/* What a side sends to its peer. */
struct inlay_connect_record {
	uint8_t gid[16];
	uint32_t qpn;            /* 24 bits */
	uint32_t psn;            /* 24 bits, from the clock; may be replaced before the record is sent */
	uint32_t qkey;           /* UD */
	uint32_t ece_vendor;     /* 24 bits; RC and UC */
	uint32_t ece_options;
	uint16_t lid;            /* InfiniBand */
	uint8_t mac[6];          /* RoCE; zeros if not known; only devx.h needs it */
	uint8_t type;            /* enum ibv_qp_type: RC, UC or UD; DC has UD */
	uint8_t link;            /* enum inlay_connect_link */
	uint8_t mtu;             /* enum ibv_mtu: the longest packet accepted */
	uint8_t sl;              /* service level, on RoCE the priority; 0: as the peer */
	uint8_t traffic_class;   /* 0: as the peer */
	uint8_t rd_atomic;       /* RC: inbound reads and atomics at a time, max_dest_rd_atomic */
	uint8_t flags;           /* INLAY_CONNECT_GLOBAL */
	/* Not sent: */
	uint8_t port;
	uint8_t gid_index;
};

/* How to connect, with the default in brackets. Start from inlay_connect_defaults(). */
struct inlay_connect_attr {
	int gid_index;         /* -1: the best one, as above; on InfiniBand 0 [-1] */
	uint32_t flags;        /* enum inlay_connect_flags [0] */
	uint32_t access;       /* IBV_ACCESS_REMOTE_*, where a memory region allows it too [write, read] */
	uint32_t qkey;         /* UD: Q_Key of this queue pair [0x11111111] */
	uint32_t flow_label;   /* 20 bits; RoCE v2 derives the UDP source port from it, or for 0 from the QPNs [0] */
	uint16_t pkey_index;   /* entry of the P_Key table [0] */
	uint8_t port;          /* of the device, from 1 [1] */
	uint8_t mtu;           /* enum ibv_mtu, 0: the port's; the smaller of both sides' is used [0] */
	uint8_t sl;            /* 0 .. 15, on RoCE 0 .. 7; 0: as the peer [0] */
	uint8_t traffic_class; /* RoCE v2: DSCP << 2 | ECN; 0: as the peer [0] */
	uint8_t hop_limit;     /* routers that a packet may pass, with a GRH [64] */
	uint8_t rd_atomic;     /* RC: reads and atomics outstanding each way; lowered to what both devices can [16] */
	uint8_t timeout;       /* RC: 4.096 us << timeout for an ack, 1 .. 31; 0: no timeout [14: 67 ms] */
	uint8_t retry_count;   /* RC: transport retries, 0 .. 7 [7] */
	uint8_t rnr_retry;     /* RC: RNR retries (the peer has no receive), 0 .. 6; 7: no limit [7] */
	uint8_t min_rnr_timer; /* RC: RNR timer, the peer's wait before a retry, ibv_modify_qp(3) [12: 0.64 ms] */
};

/* ---- Set-up: all of it ---- */

/* The defaults in brackets above. */
INLAY_COLD struct inlay_connect_attr inlay_connect_defaults(void)
{
	struct inlay_connect_attr attr;

	__builtin_memset(&attr, 0, sizeof(attr));
	attr.gid_index = -1;
	attr.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	attr.qkey = 0x11111111;
	attr.port = 1;
	attr.hop_limit = 64;
	attr.rd_atomic = 16;
	attr.timeout = 14;
	attr.retry_count = 7;
	attr.rnr_retry = 7;
	attr.min_rnr_timer = 12;
	return attr;
}

/* The kind of address in a GID, from worst to best. */
enum inlay_connect_gid_ { INLAY_CONNECT_NO_HOST_, INLAY_CONNECT_LINK_LOCAL_, INLAY_CONNECT_IPV6_, INLAY_CONNECT_IPV4_ };

INLAY_COLD enum inlay_connect_gid_ inlay_connect_kind_(const uint8_t *gid)
{
	static const uint8_t zero[16] = {0}, mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	if (!__builtin_memcmp(gid, mapped, sizeof(mapped)))
		return gid[12] && gid[12] < 224 ? INLAY_CONNECT_IPV4_ : INLAY_CONNECT_NO_HOST_;
	if (gid[0] == 0xff || !__builtin_memcmp(gid, zero, sizeof(zero)))
		return INLAY_CONNECT_NO_HOST_;
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80 ? INLAY_CONNECT_LINK_LOCAL_ : INLAY_CONNECT_IPV6_;
}

/*
 * Fills a record's fields about a port: gid, lid, link, mtu, flags, port and gid_index.
 *
 * port       from 1
 * gid_index  -1 for the best GID, else its index
 *
 * Returns 0; -ENETDOWN when the port is not up; -ENOENT when it has no such GID; else the negative
 * errno of the verb that failed.
 */
INLAY_COLD INLAY_RESULT int inlay_connect_port(struct inlay_connect_record *r, struct ibv_context *ctx, uint8_t port,
					       int gid_index, const char **why)
{
	int err, i, n, rank, best = 0, ethernet;
	struct ibv_gid_entry gid, e;
	struct ibv_port_attr attr;

	__builtin_memset(&attr, 0, sizeof(attr));
	__builtin_memset(&gid, 0, sizeof(gid));
	err = ibv_query_port(ctx, port, &attr);
	if (err)
		return inlay_refuse_(-err, why, "the device has no such port");
	if (attr.state != IBV_PORT_ACTIVE)
		return inlay_refuse_(-ENETDOWN, why, "the port is not active");
	ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
	n = attr.gid_tbl_len > 256 ? 256 : attr.gid_tbl_len;
	if (gid_index >= n)
		return inlay_refuse_(-ENOENT, why, "the port has no GID of this index");
	if (gid_index < 0 && !ethernet)
		gid_index = 0;
	for (i = gid_index < 0 ? 0 : gid_index; i < (gid_index < 0 ? n : gid_index + 1); i++) {
		__builtin_memset(&e, 0, sizeof(e));
		err = ibv_query_gid_ex(ctx, port, (uint32_t)i, &e, 0);
		rank = err ? 0 : (int)inlay_connect_kind_(e.gid.raw);
		if (rank)
			rank = e.gid_type == IBV_GID_TYPE_ROCE_V2 ? rank + 1 : 1;
		if (!err && (rank > best || gid_index >= 0)) {
			best = rank;
			gid = e;
		}
	}
	if (ethernet && gid_index < 0 && !best)
		return inlay_refuse_(-ENOENT, why, "the RoCE port has no GID: its interface has no address");
	if (ethernet && gid_index >= 0 && err)
		return inlay_refuse_(err == ENODATA ? -ENOENT : -err, why, "the port has no GID of this index");
	__builtin_memcpy(r->gid, gid.gid.raw, sizeof(r->gid)); /* zeros where InfiniBand has none */
	r->gid_index = (uint8_t)gid.gid_index;
	r->link = !ethernet ? INLAY_CONNECT_IB :
		  gid.gid_type == IBV_GID_TYPE_ROCE_V2 ? INLAY_CONNECT_ROCE_V2 : INLAY_CONNECT_ROCE_V1;
	r->lid = ethernet ? 0 : attr.lid;
	r->mtu = (uint8_t)attr.active_mtu;
	/* On RoCE every packet has a GRH. */
	r->flags = !ethernet && attr.flags & IBV_QPF_GRH_REQUIRED ? INLAY_CONNECT_GLOBAL : 0;
	r->port = port;
	return 0;
}

/* 0, or -EINVAL for an attribute that no device accepts. */
INLAY_COLD int inlay_connect_check_(const struct inlay_connect_attr *attr, const struct inlay_connect_record *here,
				    const char **why)
{
	if (attr->sl > (here->link == INLAY_CONNECT_IB ? 15 : 7))
		return inlay_refuse_(-EINVAL, why, "a service level is at most 15, and 7 on RoCE");
	if (attr->flags & ~(uint32_t)(INLAY_CONNECT_GLOBAL | INLAY_CONNECT_NO_ECE))
		return inlay_refuse_(-EINVAL, why, "unknown bits in flags");
	if (attr->access & ~(uint32_t)(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC))
		return inlay_refuse_(-EINVAL, why, "access has bits other than remote write, read and atomic");
	if (attr->flow_label >> 20 || attr->timeout > 31 || attr->retry_count > 7 || attr->rnr_retry > 7 ||
	    attr->min_rnr_timer > 31)
		return inlay_refuse_(-EINVAL, why, "a flow label, timer or count is out of its range");
	return 0;
}

/* Fills a record of a queue pair in RESET or INIT, all but ECE and Q_Key. */
INLAY_COLD int inlay_connect_here_(struct inlay_connect_record *here, struct ibv_qp *qp,
				   const struct inlay_connect_attr *attr, const char **why)
{
	struct ibv_device_attr device;
	struct timespec t;
	int err, mtu, most;

	if (qp->state != IBV_QPS_RESET && qp->state != IBV_QPS_INIT)
		return inlay_refuse_(-EBADFD, why, "the queue pair is neither in RESET nor in INIT");
	__builtin_memset(here, 0, sizeof(*here));
	err = inlay_connect_port(here, qp->context, attr->port, attr->gid_index, why);
	if (!err)
		err = inlay_connect_check_(attr, here, why);
	if (err)
		return err;
	mtu = attr->mtu ? attr->mtu : here->mtu;
	if (mtu > here->mtu || mtu > IBV_MTU_4096)
		return inlay_refuse_(-EINVAL, why, "the MTU is larger than the port's");
	timespec_get(&t, TIME_UTC);
	here->mtu = (uint8_t)mtu;
	here->type = (uint8_t)qp->qp_type;
	here->qpn = qp->qp_num;
	here->psn = ((uint32_t)t.tv_nsec ^ qp->qp_num * 2654435761u) & 0xffffff;
	here->sl = attr->sl;
	here->traffic_class = attr->traffic_class;
	if (here->link == INLAY_CONNECT_IB)
		here->flags |= attr->flags & INLAY_CONNECT_GLOBAL;
	if (qp->qp_type == IBV_QPT_UC || qp->qp_type == IBV_QPT_UD)
		return 0;
	err = ibv_query_device(qp->context, &device);
	if (err)
		return inlay_refuse_(-err, why, "ibv_query_device failed");
	most = device.max_qp_rd_atom;
	most = device.max_qp_init_rd_atom < most ? device.max_qp_init_rd_atom : most;
	here->rd_atomic = attr->rd_atomic > most ? (uint8_t)most : attr->rd_atomic;
	return 0;
}

/*
 * Makes a queue pair's record and moves it from RESET (or INIT) to INIT. Post receives next, before
 * the peer can send.
 *
 * qp    RC, UC or UD
 * attr  NULL: inlay_connect_defaults()
 *
 * Returns 0; -ENOTSUP for another type of queue pair; -EBADFD in another state; -EINVAL for an
 * attribute out of its range; -ENETDOWN and -ENOENT as inlay_connect_port; else the negative errno
 * of the verb that failed.
 */
INLAY_COLD INLAY_RESULT int inlay_connect_local(struct inlay_connect_record *here, struct ibv_qp *qp,
						const struct inlay_connect_attr *attr, const char **why)
{
	struct inlay_connect_attr defaults = inlay_connect_defaults();
	struct ibv_qp_attr a;
	struct ibv_ece ece;
	int err;

	if (!attr)
		attr = &defaults;
	if (qp->qp_type != IBV_QPT_RC && qp->qp_type != IBV_QPT_UC && qp->qp_type != IBV_QPT_UD)
		return inlay_refuse_(-ENOTSUP, why, "only RC, UC and UD queue pairs are connected here");
	err = inlay_connect_here_(here, qp, attr, why);
	if (err)
		return err;
	__builtin_memset(&a, 0, sizeof(a));
	a.qp_state = IBV_QPS_INIT;
	a.port_num = attr->port;
	a.pkey_index = attr->pkey_index;
	a.qkey = attr->qkey;
	a.qp_access_flags = qp->qp_type == IBV_QPT_RC ? attr->access : attr->access & IBV_ACCESS_REMOTE_WRITE;
	err = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			    (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	if (err)
		return inlay_refuse_(-err, why, "the device refused the P_Key index or the access");
	__builtin_memset(&ece, 0, sizeof(ece));
	if (qp->qp_type == IBV_QPT_UD)
		here->qkey = attr->qkey;
	else if (!(attr->flags & INLAY_CONNECT_NO_ECE) && !ibv_query_ece(qp, &ece) && !ece.comp_mask &&
		 !(ece.vendor_id >> 24)) {
		here->ece_vendor = ece.vendor_id;
		here->ece_options = ece.options;
	}
	return 0;
}

/* Writes a record as INLAY_CONNECT_SIZE bytes. */
INLAY_COLD void inlay_connect_pack(const struct inlay_connect_record *r, uint8_t *blob)
{
	__builtin_memset(blob, 0, INLAY_CONNECT_SIZE);
	blob[0] = INLAY_CONNECT_VERSION;
	blob[1] = (uint8_t)((r->type & 15) | (r->link & 3) << 4 | (r->flags & INLAY_CONNECT_GLOBAL ? 1 << 6 : 0));
	blob[2] = (uint8_t)((r->mtu & 15) | r->sl << 4);
	blob[3] = r->traffic_class;
	blob[4] = r->rd_atomic;
	__builtin_memcpy(blob + 5, &r->qpn, 3);
	__builtin_memcpy(blob + 8, &r->psn, 3);
	__builtin_memcpy(blob + 11, r->gid, 16);
	if (r->link == INLAY_CONNECT_IB)
		__builtin_memcpy(blob + 27, &r->lid, 2);
	else
		__builtin_memcpy(blob + 27, r->mac, 6);
	__builtin_memcpy(blob + 33, &r->ece_vendor, 3);
	__builtin_memcpy(blob + 36, r->type == IBV_QPT_UD ? &r->qkey : &r->ece_options, 4);
}

/*
 * Reads a record that a peer sent. Returns 0, or -EPROTO if the bytes are no record of this
 * version; then *r is unchanged.
 */
INLAY_COLD INLAY_RESULT int inlay_connect_unpack(struct inlay_connect_record *r, const void *blob, size_t len,
						 const char **why)
{
	const uint8_t *at = (const uint8_t *)blob;
	struct inlay_connect_record in;

	if (len != INLAY_CONNECT_SIZE || at[0] != INLAY_CONNECT_VERSION)
		return inlay_refuse_(-EPROTO, why, "not a connection record of version 1, which has 40 bytes");
	__builtin_memset(&in, 0, sizeof(in));
	in.type = at[1] & 15;
	in.link = at[1] >> 4 & 3;
	in.flags = at[1] >> 6 & 1 ? INLAY_CONNECT_GLOBAL : 0;
	in.mtu = at[2] & 15;
	in.sl = at[2] >> 4;
	in.traffic_class = at[3];
	in.rd_atomic = at[4];
	__builtin_memcpy(&in.qpn, at + 5, 3);
	__builtin_memcpy(&in.psn, at + 8, 3);
	__builtin_memcpy(in.gid, at + 11, 16);
	__builtin_memcpy(&in.ece_vendor, at + 33, 3);
	__builtin_memcpy(in.type == IBV_QPT_UD ? &in.qkey : &in.ece_options, at + 36, 4);
	if (in.type != IBV_QPT_RC && in.type != IBV_QPT_UC && in.type != IBV_QPT_UD)
		return inlay_refuse_(-EPROTO, why, "the peer's queue pair is neither RC nor UC nor UD");
	if (in.link > INLAY_CONNECT_ROCE_V2 || at[1] >> 7 || (in.flags && in.link != INLAY_CONNECT_IB))
		return inlay_refuse_(-EPROTO, why, "the peer's link is neither InfiniBand nor RoCE");
	if (!in.qpn || in.mtu < IBV_MTU_256 || in.mtu > IBV_MTU_4096)
		return inlay_refuse_(-EPROTO, why, "the peer names queue pair 0, or an MTU that does not exist");
	if ((in.type != IBV_QPT_RC && in.rd_atomic) || (in.type == IBV_QPT_UD && in.ece_vendor))
		return inlay_refuse_(-EPROTO, why, "the peer's queue pair cannot have what its record says");
	if (in.link == INLAY_CONNECT_IB) {
		__builtin_memcpy(&in.lid, at + 27, 2);
		if (at[29] | at[30] | at[31] | at[32] || in.lid >= 0xc000)
			return inlay_refuse_(-EPROTO, why, "the peer's LID is not that of a port");
		if (in.flags ? !inlay_connect_kind_(in.gid) : !in.lid)
			return inlay_refuse_(-EPROTO, why, "the peer has no address on InfiniBand");
	} else {
		__builtin_memcpy(in.mac, at + 27, 6);
		if (in.sl > 7 || !inlay_connect_kind_(in.gid) || in.mac[0] & 1)
			return inlay_refuse_(-EPROTO, why, "the peer's GID or MAC is not a host's, or its sl above 7");
	}
	*r = in;
	return 0;
}

/* Fills the path to a peer; -ENOTSUP when link layer, RoCE version or address family differ. */
INLAY_COLD int inlay_connect_path_(struct ibv_ah_attr *ah, const struct inlay_connect_record *here,
				   const struct inlay_connect_record *there, const struct inlay_connect_attr *attr,
				   const char **why)
{
	__builtin_memset(ah, 0, sizeof(*ah));
	if (here->link != there->link)
		return inlay_refuse_(-ENOTSUP, why, here->link && there->link ?
				     "one side's GID is of RoCE v1, the other's of RoCE v2" :
				     "one side is on InfiniBand, the other on RoCE");
	if (here->link == INLAY_CONNECT_ROCE_V2 && (inlay_connect_kind_(here->gid) == INLAY_CONNECT_IPV4_) !=
							   (inlay_connect_kind_(there->gid) == INLAY_CONNECT_IPV4_))
		return inlay_refuse_(-ENOTSUP, why, "one side's GID is an IPv4 address, the other's IPv6");
	ah->port_num = here->port;
	ah->dlid = there->lid;
	ah->sl = here->sl ? here->sl : there->sl;
	ah->is_global = here->link != INLAY_CONNECT_IB || (here->flags | there->flags) & INLAY_CONNECT_GLOBAL;
	if (!ah->is_global)
		return 0;
	if (!inlay_connect_kind_(there->gid))
		return inlay_refuse_(-ENOTSUP, why, "a GRH is needed, and the peer's record has no GID");
	__builtin_memcpy(ah->grh.dgid.raw, there->gid, sizeof(there->gid));
	ah->grh.flow_label = attr->flow_label;
	ah->grh.sgid_index = here->gid_index;
	ah->grh.hop_limit = attr->hop_limit;
	ah->grh.traffic_class = here->traffic_class ? here->traffic_class : there->traffic_class;
	return 0;
}

/*
 * Moves a queue pair from INIT to RTS. The peer does the same with this side's record. Each may
 * send at once: an RC queue pair whose peer is not ready tries again, retry_count times at most.
 *
 * here   from inlay_connect_local. ece_options becomes what the device took, for a record packed
 *        after this call
 * there  the peer's; NULL for UD
 * attr   the same as for inlay_connect_local
 *
 * Returns 0; -EINVAL when a peer is missing, or given for UD; -EBADFD when the queue pair is not
 * in INIT, or here is another queue pair's; -ENOTSUP when the two sides cannot reach each other,
 * or differ in type; else the negative errno of ibv_set_ece or ibv_modify_qp. On failure the queue
 * pair keeps its state and its receives, unless the step to RTS failed: then it is in RESET
 * without them, and *why says so.
 */
INLAY_COLD INLAY_RESULT int inlay_connect_rts(struct ibv_qp *qp, struct inlay_connect_record *here,
					      const struct inlay_connect_record *there,
					      const struct inlay_connect_attr *attr, const char **why)
{
	struct inlay_connect_attr defaults = inlay_connect_defaults();
	int rc = qp->qp_type == IBV_QPT_RC, to_rtr = IBV_QP_STATE, err;
	struct ibv_qp_attr a;
	struct ibv_ece ece;

	if (!attr)
		attr = &defaults;
	__builtin_memset(&ece, 0, sizeof(ece));
	__builtin_memset(&a, 0, sizeof(a));
	if (qp->state != IBV_QPS_INIT || here->qpn != qp->qp_num || here->type != qp->qp_type)
		return inlay_refuse_(-EBADFD, why, "not in INIT, or the record is another queue pair's");
	if (there && qp->qp_type == IBV_QPT_UD)
		return inlay_refuse_(-EINVAL, why, "a UD queue pair has no peer");
	if (!there && qp->qp_type != IBV_QPT_UD)
		return inlay_refuse_(-EINVAL, why, "the peer's record is missing");
	err = inlay_connect_check_(attr, here, why);
	if (err)
		return err;
	if (there) {
		if (there->type != here->type)
			return inlay_refuse_(-ENOTSUP, why, "the peer's queue pair is of another type");
		err = inlay_connect_path_(&a.ah_attr, here, there, attr, why);
		if (err)
			return err;
		if (here->ece_vendor && here->ece_vendor == there->ece_vendor && here->ece_options &&
		    there->ece_options) {
			ece.vendor_id = there->ece_vendor;
			ece.options = there->ece_options;
			err = ibv_set_ece(qp, &ece);
			if (err)
				return inlay_refuse_(-err, why, "the device refused the peer's ECE options");
		}
		a.path_mtu = (enum ibv_mtu)(there->mtu < here->mtu ? there->mtu : here->mtu);
		a.dest_qp_num = there->qpn;
		a.rq_psn = there->psn;
		a.max_rd_atomic = there->rd_atomic < here->rd_atomic ? there->rd_atomic : here->rd_atomic;
		to_rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	}
	a.qp_state = IBV_QPS_RTR;
	a.max_dest_rd_atomic = here->rd_atomic;
	a.min_rnr_timer = attr->min_rnr_timer;
	err = ibv_modify_qp(qp, &a, to_rtr | (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
	if (err)
		return inlay_refuse_(-err, why,
				     err == EHOSTUNREACH || err == ENETUNREACH || err == ETIMEDOUT
					     ? "the peer's GID cannot be reached from the local one"
					     : "the device refused the step to RTR");
	a.qp_state = IBV_QPS_RTS;
	a.sq_psn = here->psn;
	a.timeout = attr->timeout;
	a.retry_cnt = attr->retry_count;
	a.rnr_retry = attr->rnr_retry;
	err = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN |
			    (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0));
	if (err) {
		__builtin_memset(&a, 0, sizeof(a));
		a.qp_state = IBV_QPS_RESET;
		ibv_modify_qp(qp, &a, IBV_QP_STATE);
		return inlay_refuse_(-err, why, "the step to RTS failed; the queue pair is in RESET");
	}
	here->ece_options = ece.vendor_id && !ibv_query_ece(qp, &ece) ? ece.options : 0;
	return 0;
}

/*
 * Moves two queue pairs of one process from RESET to RTS and, unless they are UD, connects them. a
 * and b may be the same.
 *
 * Returns as inlay_connect_local and inlay_connect_rts. On failure each is in RESET, INIT or RTS.
 */
INLAY_COLD INLAY_RESULT int inlay_connect_pair(struct ibv_qp *a, struct ibv_qp *b,
					       const struct inlay_connect_attr *attr, const char **why)
{
	struct inlay_connect_record at_a, at_b;
	int err = inlay_connect_local(&at_a, a, attr, why), ud = a->qp_type == IBV_QPT_UD;

	if (err)
		return err;
	if (a == b)
		return inlay_connect_rts(a, &at_a, ud ? NULL : &at_a, attr, why);
	err = inlay_connect_local(&at_b, b, attr, why);
	if (!err)
		err = inlay_connect_rts(b, &at_b, ud ? NULL : &at_a, attr, why);
	if (!err)
		err = inlay_connect_rts(a, &at_a, ud ? NULL : &at_b, attr, why);
	return err;
}

/*
 * Moves a DC target from RESET to RTR, its last state, or a DC initiator from RESET to RTS. Neither
 * has a peer: each WQE names its target (wr.to: queue/post.h).
 *
 * here    becomes the record, of type UD; a target's record names it to senders. May be NULL
 * qp      of mlx5dv_create_qp
 * target  1: of MLX5DV_DCTYPE_DCT; qp_num is the dctn from now on. 0: of MLX5DV_DCTYPE_DCI
 * attr    NULL: inlay_connect_defaults(); access is the target's
 *
 * Returns 0; -EBADFD in another state; -EINVAL, -ENETDOWN and -ENOENT as inlay_connect_local; else
 * the negative errno of the verb that failed. On failure destroy the queue pair.
 */
INLAY_COLD INLAY_RESULT int inlay_connect_dc(struct inlay_connect_record *here, struct ibv_qp *qp, int target,
					     const struct inlay_connect_attr *attr, const char **why)
{
	struct inlay_connect_attr defaults = inlay_connect_defaults();
	struct inlay_connect_record unwanted;
	struct ibv_qp_attr a;
	int err;

	if (!attr)
		attr = &defaults;
	if (!here)
		here = &unwanted;
	err = inlay_connect_here_(here, qp, attr, why);
	if (err)
		return err;
	__builtin_memset(&a, 0, sizeof(a));
	a.qp_state = IBV_QPS_INIT;
	a.port_num = attr->port;
	a.pkey_index = attr->pkey_index;
	a.qp_access_flags = attr->access;
	err = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (target ? IBV_QP_ACCESS_FLAGS : 0));
	if (err)
		return inlay_refuse_(-err, why, "the device refused the P_Key index or the access");
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = (enum ibv_mtu)here->mtu;
	a.min_rnr_timer = attr->min_rnr_timer;
	a.ah_attr.port_num = attr->port;
	a.ah_attr.sl = attr->sl;
	a.ah_attr.is_global = here->link != INLAY_CONNECT_IB || here->flags & INLAY_CONNECT_GLOBAL;
	a.ah_attr.grh.sgid_index = here->gid_index;
	a.ah_attr.grh.hop_limit = attr->hop_limit;
	a.ah_attr.grh.traffic_class = attr->traffic_class;
	err = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV | (target ? IBV_QP_MIN_RNR_TIMER : 0));
	if (err)
		return inlay_refuse_(-err, why, "the device refused the step to RTR");
	a.qp_state = IBV_QPS_RTS;
	a.timeout = attr->timeout;
	a.retry_cnt = attr->retry_count;
	a.rnr_retry = attr->rnr_retry;
	a.max_rd_atomic = here->rd_atomic;
	here->type = IBV_QPT_UD; /* to a sender, a target is like a datagram's receiver */
	here->qpn = qp->qp_num;
	here->rd_atomic = 0;
	err = target ? 0 : ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	return err ? inlay_refuse_(-err, why, "the device refused the step to RTS") : 0;
}

/*
 * Makes the address vector of datagrams to a peer from its record. On RoCE the kernel looks up the
 * peer's MAC. The vector needs no clean-up.
 *
 * pd           any of the device's protection domains
 * here, there  the sender's and the peer's record, both of UD or DC
 *
 * Returns 0; -ENOTSUP when the two cannot reach each other, or one is not UD; else the negative
 * errno of ibv_create_ah (-EHOSTUNREACH, -ENETUNREACH, -ETIMEDOUT) or inlay_av_from_ah.
 */
INLAY_COLD INLAY_RESULT int inlay_connect_av(struct inlay_av *av, struct ibv_pd *pd,
					     const struct inlay_connect_record *here,
					     const struct inlay_connect_record *there,
					     const struct inlay_connect_attr *attr, const char **why)
{
	struct inlay_connect_attr defaults = inlay_connect_defaults();
	struct ibv_ah_attr attr_ah;
	struct ibv_ah *ah;
	int err;

	if (here->type != IBV_QPT_UD || there->type != IBV_QPT_UD)
		return inlay_refuse_(-ENOTSUP, why, "an address is for UD and DC queue pairs");
	err = inlay_connect_path_(&attr_ah, here, there, attr ? attr : &defaults, why);
	if (err)
		return err;
	errno = 0;
	ah = ibv_create_ah(pd, &attr_ah);
	if (!ah)
		return inlay_refuse_(errno ? -errno : -ENOMEM, why,
				     "the peer's GID cannot be reached from the local one");
	err = inlay_av_from_ah(av, ah, there->qpn, there->qkey);
	ibv_destroy_ah(ah);
	return err ? inlay_refuse_(err, why, "the address handle is not an mlx5 device's") : 0;
}

INLAY_CASTS_END_
#endif
