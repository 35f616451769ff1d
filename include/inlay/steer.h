/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/steer.h: leads Ethernet packets to receive queues: RSS and flow rules. Set-up only.
 *
 *   struct inlay_packet_queue q;  struct inlay_rss rss;  struct inlay_flow_match match;
 *   struct ibv_flow *flow;  const char *why;
 *
 *   inlay_packet_queue_create(&q, pd, 4, &strides, 0, &why);   a 4-buffer striding queue and its CQ
 *   for (i = 0; i < 4; i++)
 *           inlay_striding_post(&q.rq, (uintptr_t)buf[i], lkey);
 *   inlay_striding_ring(&q.rq);
 *   inlay_rss_create(&rss, pd, &q.wq, 1, 0, &why);             or several, and fields to hash
 *   memset(&match, 0, sizeof(match));                          matches all until a field is set
 *   match.type = ETHERTYPE_IP;                                 0x0800, from net/ethernet.h
 *   match.proto = IPPROTO_UDP;                                 17, from netinet/in.h
 *   match.dport = 4791;
 *   match.tag = 7;                                             inlay_cqe_flow_tag of these packets
 *   inlay_flow_create(&flow, rss.qp, &match, &why);
 *   ... receive: inlay_cq_peek(&q.cq), inlay_striding_take(&q.rq, ...): queue/striding.h ...
 *   ibv_destroy_flow(flow);  inlay_rss_destroy(&rss, &why);  inlay_packet_queue_destroy(&q, &why);
 *
 * For other queues, create WQs (ibv_create_wq, mlx5dv_create_wq), take each over (verbs.h), move it
 * to RDY, and post. A rule can also lead to a raw packet QP with a receive queue of its own,
 * without RSS.
 *
 * One inlay_rss hashes either IPv4 or IPv6, and ports of either TCP or UDP; the device refuses all
 * else. To spread several of these, make an inlay_rss for each over the same WQs, with a rule for
 * what it hashes, and one without ports for the rest.
 *
 * Packets that no rule takes go to the kernel. Rules need CAP_NET_RAW, as raw packet QPs do.
 *
 * Threads: as verbs. Sources: ibv_create_rwq_ind_table(3), ibv_create_qp_ex(3), ibv_create_flow(3);
 * Linux's mlx5 qp.c (create_rss_raw_qp_tir: what can be hashed), fs.c (what can be matched).
 */
#ifndef INLAY_STEER_H
#define INLAY_STEER_H /* a trial: names may change */

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/queue/striding.h>
#include <inlay/verbs.h>

#define INLAY_RSS_KEY 40u     /* bytes of a Toeplitz key */
#define INLAY_RSS_QUEUES 128u /* at most */

/*
 * As inlay_rq_from_wq, for a striding WQ: mlx5dv_create_wq with
 * MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ. Reserves a CQE for each stride of the ring.
 *
 * attr  what it was created with; the WQ does not tell
 *
 * Returns as inlay_rq_from_wq; -EINVAL also for an attr out of its range.
 */
INLAY_COLD INLAY_RESULT int inlay_striding_from_wq(struct inlay_striding *rq, struct ibv_wq *wq,
						   const struct mlx5dv_striding_rq_init_attr *attr, struct inlay_cq *cq,
						   const char **why)
{
	struct inlay_strides shape;
	struct mlx5dv_rwq dv;
	int err;

	INLAY_CHECK(rq && wq && attr, "only cq and why may be NULL");
	if (attr->single_wqe_log_num_of_strides > 16)
		return inlay_refuse_(-EINVAL, why, "a WQE has too many strides");
	err = inlay_dv_wq_(wq, &dv, 1u << attr->single_wqe_log_num_of_strides, cq, why);
	if (err)
		return err;
	shape.log_number = attr->single_wqe_log_num_of_strides;
	shape.log_size = attr->single_stride_log_num_of_bytes;
	shape.shift = attr->two_byte_shift_en ? 2 : 0;
	err = inlay_striding_init(rq, dv.buf, dv.wqe_cnt, dv.stride, (volatile uint32_t *)dv.dbrec, &shape);
	if (err)
		return inlay_refuse_(err, why, "the striding ring has an impossible size or alignment");
	return cq ? inlay_striding_reserve_(rq, cq, why) : 0;
}

/* A striding queue, and the CQ of its packets. */
struct inlay_packet_queue {
	struct inlay_striding rq;
	struct inlay_cq cq;
	struct ibv_wq *wq;   /* for inlay_rss_create */
	struct ibv_cq *ibcq;
};

enum inlay_packet_queue_flags {
	INLAY_PACKETS_STRIP_VLAN = 1, /* moves the outermost VLAN tag from the packet into the CQE: inlay_cqe_vlan */
	INLAY_PACKETS_COMPRESSED = 2  /* compressed CQEs, INLAY_MINI_CSUM_STRIDX: inlay_cq_unzip */
};

/* Spreads packets over WQs. */
struct inlay_rss {
	struct ibv_qp *qp; /* for rules; it has no queues of its own */
	struct ibv_rwq_ind_table *table;
};

/* What a rule takes. Zero it first: a zero field takes all. Host order, except the addresses. */
struct inlay_flow_match {
	uint8_t mac[6];    /* destination */
	uint16_t vlan;     /* VLAN id */
	uint16_t type;     /* 0x0800 for IPv4, 0x86dd for IPv6, or any other type */
	uint8_t proto;     /* 6 for TCP, 17 for UDP; it and all that follows need IPv4 or IPv6 */
	uint8_t src[16];   /* addresses; IPv4: the first four bytes */
	uint8_t dst[16];
	uint16_t sport;    /* need TCP or UDP */
	uint16_t dport;
	uint16_t priority; /* lower ones first */
	uint32_t tag;      /* for inlay_cqe_flow_tag, 1 .. 2^24 - 1 */
	uint8_t port;      /* of the device; 0: its first */
};

/*
 * Undoes inlay_packet_queue_create, after inlay_rss_destroy. A second call does nothing. Returns 0
 * or a negative errno.
 */
INLAY_COLD int inlay_packet_queue_destroy(struct inlay_packet_queue *q, const char **why)
{
	int err = q->wq ? ibv_destroy_wq(q->wq) : 0;

	if (err)
		return inlay_refuse_(-err, why, "ibv_destroy_wq failed");
	q->wq = NULL;
	inlay_rq_fini(&q->rq.rq);
	err = q->ibcq ? ibv_destroy_cq(q->ibcq) : 0;
	if (err)
		return inlay_refuse_(-err, why, "ibv_destroy_cq failed");
	q->ibcq = NULL;
	return 0;
}

/* inlay_packet_queue_create, without the clean-up after a failure. */
INLAY_COLD int inlay_packet_queue_make_(struct inlay_packet_queue *q, struct ibv_pd *pd, uint32_t buffers,
					const struct inlay_strides *strides, uint32_t flags, const char **why)
{
	struct mlx5dv_striding_rq_init_attr shape;
	struct mlx5dv_wq_init_attr striding;
	struct mlx5dv_cq_init_attr zip;
	struct ibv_cq_init_attr_ex cqes;
	struct ibv_wq_init_attr init;
	struct ibv_wq_attr ready;
	struct ibv_cq_ex *cq;
	int err;

	__builtin_memset(&cqes, 0, sizeof(cqes));
	__builtin_memset(&zip, 0, sizeof(zip));
	__builtin_memset(&shape, 0, sizeof(shape));
	__builtin_memset(&striding, 0, sizeof(striding));
	__builtin_memset(&init, 0, sizeof(init));
	__builtin_memset(&ready, 0, sizeof(ready));
	cqes.cqe = (1u << (inlay_log2_ceil(buffers) + strides->log_number)) - 1; /* libmlx5 adds 1 */
	zip.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE;
	zip.cqe_comp_res_format = MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX;
	errno = 0;
	cq = mlx5dv_create_cq(pd->context, &cqes, flags & INLAY_PACKETS_COMPRESSED ? &zip : NULL);
	if (!cq)
		return inlay_refuse_(errno ? -errno : -ENOMEM, why, "mlx5dv_create_cq failed");
	q->ibcq = ibv_cq_ex_to_cq(cq);
	err = inlay_cq_from_cq(&q->cq, q->ibcq, why);
	if (!err && flags & INLAY_PACKETS_COMPRESSED)
		err = inlay_cq_set_compression(&q->cq, INLAY_MINI_CSUM_STRIDX, 0);
	if (err)
		return err;
	shape.single_stride_log_num_of_bytes = strides->log_size;
	shape.single_wqe_log_num_of_strides = strides->log_number;
	shape.two_byte_shift_en = !!strides->shift;
	striding.comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ;
	striding.striding_rq_attrs = shape;
	init.wq_type = IBV_WQT_RQ;
	init.max_wr = buffers;
	init.max_sge = 1;
	init.pd = pd;
	init.cq = q->ibcq;
	init.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
	init.create_flags = flags & INLAY_PACKETS_STRIP_VLAN ? IBV_WQ_FLAGS_CVLAN_STRIPPING : 0;
	errno = 0;
	q->wq = mlx5dv_create_wq(pd->context, &init, &striding);
	if (!q->wq)
		return inlay_refuse_(errno ? -errno : -ENOMEM, why, "mlx5dv_create_wq failed");
	err = inlay_striding_from_wq(&q->rq, q->wq, &shape, &q->cq, why);
	if (err)
		return err;
	ready.attr_mask = IBV_WQ_ATTR_STATE;
	ready.wq_state = IBV_WQS_RDY;
	err = ibv_modify_wq(q->wq, &ready);
	return err ? inlay_refuse_(-err, why, "ibv_modify_wq failed") : 0;
}

/*
 * Creates a striding WQ, ready to receive, and a CQ with room for a completion of each stride;
 * takes both over.
 *
 * buffers  that may be posted at a time: 2 .. 32768, rounded up to a power of two
 * strides  their shape; log_number 9 .. 16 unless the device allows less (mlx5dv_striding_rq_caps)
 * flags    enum inlay_packet_queue_flags, or'ed
 *
 * Returns 0; -EINVAL for an impossible number, shape or flag, or more than 2^22 strides; -ENOTSUP
 * when the device is not mlx5; else the negative errno of the call that failed. On failure nothing
 * is left behind.
 */
INLAY_COLD INLAY_RESULT int inlay_packet_queue_create(struct inlay_packet_queue *q, struct ibv_pd *pd, uint32_t buffers,
						      const struct inlay_strides *strides, uint32_t flags,
						      const char **why)
{
	int err;

	INLAY_CHECK(q && pd && strides, "only why may be NULL");
	__builtin_memset(q, 0, sizeof(*q));
	if (buffers < 2 || buffers > 32768 || !inlay_strides_ok_(strides) ||
	    flags & ~(uint32_t)(INLAY_PACKETS_STRIP_VLAN | INLAY_PACKETS_COMPRESSED) ||
	    inlay_log2_ceil(buffers) + strides->log_number > 22)
		return inlay_refuse_(-EINVAL, why, "an impossible number of buffers or strides, or an unknown flag");
	if (!mlx5dv_is_supported(pd->context->device))
		return inlay_refuse_(-ENOTSUP, why, "the PD's device is not an mlx5 device");
	err = inlay_packet_queue_make_(q, pd, buffers, strides, flags, why);
	if (err)
		inlay_packet_queue_destroy(q, NULL);
	return err;
}

/* The Toeplitz key of Microsoft's published test vectors. */
INLAY_COLD const uint8_t *inlay_rss_key_(void)
{
	static const uint8_t key[INLAY_RSS_KEY] = {
		0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
		0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
		0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

	return key;
}

/*
 * Spreads packets over n WQs by the Toeplitz hash of some of their fields.
 *
 * wqs     1 .. INLAY_RSS_QUEUES of pd's context. Unless n is a power of two, some get slightly more
 *         packets: the table has 128 places, or as many as the device allows
 * fields  enum ibv_rx_hash_fields, or'ed; 0 for a single WQ, without a hash
 *
 * Returns 0; -EINVAL for an impossible number of WQs, or fields of 0 for several; -ENOTSUP when the
 * device is not mlx5; else the negative errno of the verb that failed: -EINVAL or -EOPNOTSUPP for
 * fields that cannot be hashed together. On failure nothing is left behind.
 */
INLAY_COLD INLAY_RESULT int inlay_rss_create(struct inlay_rss *rss, struct ibv_pd *pd, struct ibv_wq *const *wqs,
					     uint32_t n, uint64_t fields, const char **why)
{
	struct ibv_rwq_ind_table_init_attr table;
	struct ibv_wq *places[INLAY_RSS_QUEUES];
	uint8_t key[INLAY_RSS_KEY];
	struct ibv_device_attr_ex device;
	struct ibv_qp_init_attr_ex init;
	uint32_t i, size = n;
	int err;

	INLAY_CHECK(rss && pd && wqs, "only why may be NULL");
	__builtin_memset(rss, 0, sizeof(*rss));
	if (!n || n > INLAY_RSS_QUEUES || (n > 1 && !fields))
		return inlay_refuse_(-EINVAL, why, "1 .. 128 queues, and several only with fields to hash");
	if (!mlx5dv_is_supported(pd->context->device))
		return inlay_refuse_(-ENOTSUP, why, "the PD's device is not an mlx5 device");
	if (!inlay_is_pow2(n)) {
		err = ibv_query_device_ex(pd->context, NULL, &device);
		if (err)
			return inlay_refuse_(-err, why, "ibv_query_device_ex failed");
		for (size = INLAY_RSS_QUEUES; size > device.rss_caps.max_rwq_indirection_table_size && size > 1; size /= 2)
			;
		if (size < n)
			return inlay_refuse_(-EINVAL, why, "the device's indirection tables are shorter");
	}
	for (i = 0; i < size; i++)
		places[i] = wqs[i % n];
	__builtin_memset(&table, 0, sizeof(table));
	table.log_ind_tbl_size = inlay_log2_ceil(size);
	table.ind_tbl = places;
	errno = 0;
	rss->table = ibv_create_rwq_ind_table(pd->context, &table);
	if (!rss->table)
		return inlay_refuse_(errno ? -errno : -ENOMEM, why, "ibv_create_rwq_ind_table failed");
	__builtin_memcpy(key, inlay_rss_key_(), sizeof(key));
	__builtin_memset(&init, 0, sizeof(init));
	init.qp_type = IBV_QPT_RAW_PACKET;
	init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
	init.pd = pd;
	init.rwq_ind_tbl = rss->table;
	init.rx_hash_conf.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
	init.rx_hash_conf.rx_hash_key_len = INLAY_RSS_KEY;
	init.rx_hash_conf.rx_hash_key = key;
	init.rx_hash_conf.rx_hash_fields_mask = fields;
	errno = 0;
	rss->qp = ibv_create_qp_ex(pd->context, &init);
	if (rss->qp)
		return 0;
	err = errno ? -errno : -ENOMEM;
	ibv_destroy_rwq_ind_table(rss->table);
	rss->table = NULL;
	return inlay_refuse_(err, why, "ibv_create_qp_ex failed: fields that cannot be hashed together?");
}

/* Undoes inlay_rss_create, after its rules; a second call does nothing. Returns 0 or an errno. */
INLAY_COLD int inlay_rss_destroy(struct inlay_rss *rss, const char **why)
{
	int err = rss->qp ? ibv_destroy_qp(rss->qp) : 0;

	if (err)
		return inlay_refuse_(-err, why, "ibv_destroy_qp failed");
	rss->qp = NULL;
	err = rss->table ? ibv_destroy_rwq_ind_table(rss->table) : 0;
	if (err)
		return inlay_refuse_(-err, why, "ibv_destroy_rwq_ind_table failed");
	rss->table = NULL;
	return 0;
}

/* A rule for verbs: the head, then its specs, without gaps. */
struct inlay_flow_rule_ {
	struct ibv_flow_attr attr;
	uint8_t specs[sizeof(struct ibv_flow_spec_eth) + sizeof(struct ibv_flow_spec_ipv6) +
		      sizeof(struct ibv_flow_spec_tcp_udp) + sizeof(struct ibv_flow_spec_action_tag)];
};

INLAY_COLD void inlay_flow_add_(struct inlay_flow_rule_ *rule, const void *spec, size_t size)
{
	__builtin_memcpy((uint8_t *)rule + rule->attr.size, spec, size);
	rule->attr.size += (uint16_t)size;
	rule->attr.num_of_specs++;
}

/* Sets mask and value if the field of len bytes is nonzero. Returns whether it is. */
INLAY_COLD int inlay_flow_want_(void *mask, void *value, const void *wanted, size_t len)
{
	static const uint8_t none[16] = {0};

	if (!__builtin_memcmp(wanted, none, len))
		return 0;
	__builtin_memset(mask, 0xff, len);
	__builtin_memcpy(value, wanted, len);
	return 1;
}

/* Whether each field is in range and has the other fields that it needs. */
INLAY_COLD int inlay_flow_ok_(const struct inlay_flow_match *match, const char **why)
{
	int ip = match->type == 0x0800 || match->type == 0x86dd, l4 = match->proto == 6 || match->proto == 17;
	static const uint8_t none[16] = {0};

	if ((match->proto && !l4) || ((match->sport || match->dport) && !l4) ||
	    (!ip && (l4 || __builtin_memcmp(match->src, none, 16) || __builtin_memcmp(match->dst, none, 16))))
		return inlay_refuse_(-EINVAL, why, "ports need TCP or UDP; these and addresses need IPv4 or IPv6");
	if (match->vlan > 0xfff || match->tag >> 24)
		return inlay_refuse_(-EINVAL, why, "a VLAN id has 12 bits, a tag 24");
	return 0;
}

/*
 * Leads matching packets to a raw packet QP: an inlay_rss's, or one with a receive queue. A match
 * of all zeros takes every packet that no other rule takes. Undo it with ibv_destroy_flow.
 *
 * Returns 0; -EINVAL for a field that lacks another (see the struct); else the negative errno of
 * ibv_create_flow: -EPERM without CAP_NET_RAW.
 */
INLAY_COLD INLAY_RESULT int inlay_flow_create(struct ibv_flow **flow, struct ibv_qp *qp,
					      const struct inlay_flow_match *match, const char **why)
{
	uint16_t vlan, type, sport, dport;
	struct ibv_flow_spec_action_tag tag;
	struct ibv_flow_spec_tcp_udp ports;
	struct ibv_flow_spec_eth eth;
	struct ibv_flow_spec_ipv4_ext ipv4;
	struct ibv_flow_spec_ipv6 ipv6;
	struct inlay_flow_rule_ rule;
	int v4, v6, ip, err;

	INLAY_CHECK(flow && qp && match, "only why may be NULL");
	*flow = NULL;
	vlan = inlay_to_be16(match->vlan);
	type = inlay_to_be16(match->type);
	sport = inlay_to_be16(match->sport);
	dport = inlay_to_be16(match->dport);
	v4 = match->type == 0x0800;
	v6 = match->type == 0x86dd;
	err = inlay_flow_ok_(match, why);
	if (err)
		return err;
	__builtin_memset(&rule, 0, sizeof(rule));
	__builtin_memset(&eth, 0, sizeof(eth));
	__builtin_memset(&ipv4, 0, sizeof(ipv4));
	__builtin_memset(&ipv6, 0, sizeof(ipv6));
	__builtin_memset(&ports, 0, sizeof(ports));
	rule.attr.size = sizeof(rule.attr);
	rule.attr.priority = match->priority;
	rule.attr.port = match->port ? match->port : 1;

	eth.type = IBV_FLOW_SPEC_ETH;
	eth.size = sizeof(eth);
	if (inlay_flow_want_(eth.mask.dst_mac, eth.val.dst_mac, match->mac, 6) |
	    inlay_flow_want_(&eth.mask.ether_type, &eth.val.ether_type, &type, 2) |
	    inlay_flow_want_(&eth.mask.vlan_tag, &eth.val.vlan_tag, &vlan, 2)) {
		eth.mask.vlan_tag &= inlay_to_be16(0xfff);
		inlay_flow_add_(&rule, &eth, sizeof(eth));
	}

	ipv4.type = IBV_FLOW_SPEC_IPV4_EXT;
	ipv4.size = sizeof(ipv4);
	ipv6.type = IBV_FLOW_SPEC_IPV6;
	ipv6.size = sizeof(ipv6);
	if (v4)
		ip = inlay_flow_want_(&ipv4.mask.src_ip, &ipv4.val.src_ip, match->src, 4) |
		     inlay_flow_want_(&ipv4.mask.dst_ip, &ipv4.val.dst_ip, match->dst, 4);
	else
		ip = inlay_flow_want_(ipv6.mask.src_ip, ipv6.val.src_ip, match->src, 16) |
		     inlay_flow_want_(ipv6.mask.dst_ip, ipv6.val.dst_ip, match->dst, 16);
	ports.type = match->proto == 6 ? IBV_FLOW_SPEC_TCP : IBV_FLOW_SPEC_UDP;
	ports.size = sizeof(ports);
	inlay_flow_want_(&ports.mask.src_port, &ports.val.src_port, &sport, 2);
	inlay_flow_want_(&ports.mask.dst_port, &ports.val.dst_port, &dport, 2);
	if (ip && v4)
		inlay_flow_add_(&rule, &ipv4, sizeof(ipv4));
	if (ip && v6)
		inlay_flow_add_(&rule, &ipv6, sizeof(ipv6));
	if (match->proto)
		inlay_flow_add_(&rule, &ports, sizeof(ports));
	rule.attr.type = rule.attr.num_of_specs ? IBV_FLOW_ATTR_NORMAL : IBV_FLOW_ATTR_ALL_DEFAULT;
	if (match->tag) {
		__builtin_memset(&tag, 0, sizeof(tag));
		tag.type = IBV_FLOW_SPEC_ACTION_TAG;
		tag.size = sizeof(tag);
		tag.tag_id = match->tag;
		inlay_flow_add_(&rule, &tag, sizeof(tag));
	}
	errno = 0;
	*flow = ibv_create_flow(qp, &rule.attr);
	return *flow ? 0 : inlay_refuse_(errno ? -errno : -ENOMEM, why, "ibv_create_flow failed");
}

INLAY_CASTS_END_
#endif
