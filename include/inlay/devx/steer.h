/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/steer.h: leads Ethernet packets to the RQs of devx/rq.h, as steer.h does to queues
 * made by verbs: RSS over several RQs, and flow rules.
 *
 *   struct inlay_devx_rss rss;  struct inlay_devx_flow flow;  struct inlay_flow_match match;
 *
 *   inlay_devx_rss_create(&rss, ctx, rqns, 4, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4);
 *   memset(&match, 0, sizeof(match));                    as in steer.h
 *   match.type = ETHERTYPE_IP;
 *   inlay_devx_flow_create(&flow, ctx, &rss, &match, &why);
 *   ... receive ...
 *   inlay_devx_flow_destroy(&flow);  inlay_devx_rss_destroy(&rss);  inlay_devx_rq_destroy(&rqs[i])
 *
 * Rules need CAP_NET_RAW.
 *
 * Threads: as device commands. Sources: devx/ifc/rq.h; Linux's mlx5 qp.c (create_rss_raw_qp_tir);
 * mlx5dv_create_flow_matcher(3), mlx5dv_create_flow(3).
 */
#ifndef INLAY_DEVX_STEER_H
#define INLAY_DEVX_STEER_H

#include <inlay/devx/call.h>
#include <inlay/devx/ifc/rq.h>
#include <inlay/steer.h>

/* Spreads packets over RQs. */
struct inlay_devx_rss {
	struct mlx5dv_devx_obj *obj;   /* the TIR, for rules; NULL: there is none */
	struct mlx5dv_devx_obj *table; /* of several RQs */
	struct mlx5dv_devx_obj *domain;
	struct inlay_devx_error error; /* of the last call on it */
};

/* A rule. */
struct inlay_devx_flow {
	struct mlx5dv_flow_matcher *matcher;
	struct ibv_flow *flow;
};

/*
 * Undoes inlay_devx_rss_create. Destroy its rules first. Returns 0, or a negative errno: -EBUSY
 * while a rule uses it.
 */
INLAY_COLD int inlay_devx_rss_destroy(struct inlay_devx_rss *rss)
{
	int err;

	INLAY_CHECK(rss, "no argument is NULL");
	err = inlay_devx_drop_(&rss->obj);
	if (!err)
		err = inlay_devx_drop_(&rss->table);
	return err ? err : inlay_devx_drop_(&rss->domain);
}

/* Makes a table of n RQs. */
INLAY_COLD int inlay_devx_rss_table_(struct inlay_devx_rss *rss, struct ibv_context *ctx, const uint32_t *rqns,
				     uint32_t n, uint32_t *number)
{
	uint32_t i, size = inlay_is_pow2(n) ? n : INLAY_RSS_QUEUES;
	struct {
		struct inlay_create_rqt_in head;
		uint32_t rqn_be[INLAY_RSS_QUEUES];
	} in;
	size_t len = sizeof(in.head) + size * sizeof(in.rqn_be[0]);

	inlay_devx_inbox_(&in, len, INLAY_CMD_OP_CREATE_RQT, 0);
	inlay_rqtc_set(&in.head.rqtc, INLAY_RQTC_RQT_MAX_SIZE, size);
	inlay_rqtc_set(&in.head.rqtc, INLAY_RQTC_RQT_ACTUAL_SIZE, size);
	for (i = 0; i < size; i++)
		in.rqn_be[i] = inlay_to_be32(rqns[i % n]);
	return inlay_devx_make_(ctx, &in, len, &rss->table, number, &rss->error);
}

/*
 * Spreads packets over n RQs by the Toeplitz hash of some of their fields, as inlay_rss_create.
 *
 * rqns    1 .. INLAY_RSS_QUEUES. Unless n is a power of two, the table has 128 places, and some RQs
 *         get a little more than others
 * fields  enum ibv_rx_hash_fields, or'ed, without those for tunnels and IPsec; 0 for a single RQ,
 *         without a hash
 *
 * Returns 0; -EINVAL for an impossible number of RQs, an RQ's number of more than 24 bits, several
 * RQs without fields, or fields of both IPv4 and IPv6, or of both TCP and UDP; else the negative
 * errno of ALLOC_TRANSPORT_DOMAIN, CREATE_RQT or CREATE_TIR. On failure nothing is left behind.
 */
INLAY_COLD int inlay_devx_rss_create(struct inlay_devx_rss *rss, struct ibv_context *ctx, const uint32_t *rqns,
				     uint32_t n, uint64_t fields)
{
	uint32_t v4 = fields & 3, v6 = fields >> 2 & 3, tcp = fields >> 4 & 3, udp = fields >> 6 & 3, domain, number, i;
	struct inlay_create_tir_in in;
	struct inlay_devx_error error;
	struct inlay_cmd_in alloc;
	int err;

	INLAY_CHECK(rss && ctx && rqns, "no argument is NULL");
	__builtin_memset(rss, 0, sizeof(*rss));
	if (!n || n > INLAY_RSS_QUEUES || (n > 1 && !fields))
		return inlay_devx_refuse_(&rss->error, -EINVAL, "1 .. 128 queues, and several only with fields to hash");
	for (i = 0; i < n; i++)
		if (rqns[i] >> 24)
			return inlay_devx_refuse_(&rss->error, -EINVAL, "the number of an RQ has 24 bits");
	if (fields >> 8 || (v4 && v6) || (tcp && udp))
		return inlay_devx_refuse_(&rss->error, -EINVAL, "these fields are not hashed together");
	inlay_devx_inbox_(&alloc, sizeof(alloc), INLAY_CMD_OP_ALLOC_TRANSPORT_DOMAIN, 0);
	err = inlay_devx_make_(ctx, &alloc, sizeof(alloc), &rss->domain, &domain, &rss->error);
	if (err)
		return err;
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_CREATE_TIR, 0);
	inlay_tirc_set(&in.tirc, INLAY_TIRC_TRANSPORT_DOMAIN, domain);
	if (fields) {
		err = inlay_devx_rss_table_(rss, ctx, rqns, n, &number);
		inlay_tirc_set(&in.tirc, INLAY_TIRC_DISP_TYPE, 1);
		inlay_tirc_set(&in.tirc, INLAY_TIRC_INDIRECT_TABLE, number);
		inlay_tirc_set(&in.tirc, INLAY_TIRC_RX_HASH_FN, 2);
		__builtin_memcpy(in.tirc.rx_hash_toeplitz_key, inlay_rss_key_(), INLAY_RSS_KEY);
		inlay_rx_hash_field_select_set(&in.tirc.outer, INLAY_RX_HASH_FIELD_SELECT_L3_PROT_TYPE, !!v6);
		inlay_rx_hash_field_select_set(&in.tirc.outer, INLAY_RX_HASH_FIELD_SELECT_L4_PROT_TYPE, !!udp);
		inlay_rx_hash_field_select_set(&in.tirc.outer, INLAY_RX_HASH_FIELD_SELECT_SELECTED_FIELDS,
					       v4 | v6 | (tcp | udp) << 2);
	} else {
		inlay_tirc_set(&in.tirc, INLAY_TIRC_INLINE_RQN, rqns[0]);
	}
	if (!err)
		err = inlay_devx_make_(ctx, &in, sizeof(in), &rss->obj, &number, &rss->error);
	if (err) {
		error = rss->error;
		inlay_devx_rss_destroy(rss);
		rss->error = error;
	}
	return err;
}

/* Undoes inlay_devx_flow_create; a second call does nothing. Returns 0 or a negative errno. */
INLAY_COLD int inlay_devx_flow_destroy(struct inlay_devx_flow *flow)
{
	int err;

	INLAY_CHECK(flow, "no argument is NULL");
	err = flow->flow ? ibv_destroy_flow(flow->flow) : 0;
	if (!err) {
		flow->flow = NULL;
		err = flow->matcher ? mlx5dv_destroy_flow_matcher(flow->matcher) : 0;
	}
	if (!err)
		flow->matcher = NULL;
	return -err;
}

/* The mask or the value of a rule, with its length, as mlx5dv takes it. */
struct inlay_devx_flow_side_ {
	size_t size;
	struct inlay_fte_match_set_lyr_2_4 outer;
};

/* Sets a field of the value, and all bits of it in the mask. */
INLAY_COLD void inlay_devx_flow_set_(struct inlay_devx_flow_side_ *side, enum inlay_fte_match_set_lyr_2_4_field field,
				     uint64_t value)
{
	uint32_t width = (uint32_t)field >> 24;

	if (value) {
		inlay_fte_match_set_lyr_2_4_set(&side[0].outer, field, 0xffffffffu >> (32 - width));
		inlay_fte_match_set_lyr_2_4_set(&side[1].outer, field, value);
	}
}

/*
 * Leads matching packets to an inlay_devx_rss. A match of all zeros takes every packet that reaches
 * its priority.
 *
 * Returns 0; -EINVAL for a field without the fields that it needs (steer.h), for a port other than
 * the first, and for an rss without an object; else the negative errno of
 * mlx5dv_create_flow_matcher or mlx5dv_create_flow: -EPERM without CAP_NET_RAW.
 */
INLAY_COLD int inlay_devx_flow_create(struct inlay_devx_flow *flow, struct ibv_context *ctx,
				      const struct inlay_devx_rss *rss, const struct inlay_flow_match *match,
				      const char **why)
{
	uint32_t tcp, at;
	struct inlay_devx_flow_side_ side[2]; /* mask, value */
	struct mlx5dv_flow_matcher_attr attr;
	struct mlx5dv_flow_action_attr action[2];
	int err, mac;

	INLAY_CHECK(flow && ctx && rss && match, "only why may be NULL");
	tcp = match->proto == 6;
	at = match->type == 0x0800 ? 12 : 0; /* an IPv4 address goes into the last 4 bytes */
	__builtin_memset(flow, 0, sizeof(*flow));
	if (match->port > 1 || !rss->obj)
		return inlay_refuse_(-EINVAL, why, "a port other than the first, or there is no object");
	err = inlay_flow_ok_(match, why);
	if (err)
		return err;
	__builtin_memset(side, 0, sizeof(side));
	__builtin_memset(&attr, 0, sizeof(attr));
	__builtin_memset(action, 0, sizeof(action));
	side[0].size = side[1].size = sizeof(side[0].outer);
	mac = inlay_flow_want_((uint8_t *)&side[0].outer + 8, (uint8_t *)&side[1].outer + 8, match->mac, 6);
	inlay_flow_want_(side[0].outer.src + at, side[1].outer.src + at, match->src, 16 - at);
	inlay_flow_want_(side[0].outer.dst + at, side[1].outer.dst + at, match->dst, 16 - at);
	inlay_devx_flow_set_(side, INLAY_FTE_MATCH_SET_LYR_2_4_ETHERTYPE, match->type);
	inlay_devx_flow_set_(side, INLAY_FTE_MATCH_SET_LYR_2_4_FIRST_VID, match->vlan);
	inlay_devx_flow_set_(side, INLAY_FTE_MATCH_SET_LYR_2_4_CVLAN_TAG, !!match->vlan);
	inlay_devx_flow_set_(side, INLAY_FTE_MATCH_SET_LYR_2_4_IP_PROTOCOL, match->proto);
	inlay_devx_flow_set_(side, tcp ? INLAY_FTE_MATCH_SET_LYR_2_4_TCP_SPORT : INLAY_FTE_MATCH_SET_LYR_2_4_UDP_SPORT,
			     match->sport);
	inlay_devx_flow_set_(side, tcp ? INLAY_FTE_MATCH_SET_LYR_2_4_TCP_DPORT : INLAY_FTE_MATCH_SET_LYR_2_4_UDP_DPORT,
			     match->dport);
	attr.type = IBV_FLOW_ATTR_NORMAL;
	attr.priority = match->priority;
	attr.match_criteria_enable = mac || match->type || match->vlan; /* all else needs a type */
	attr.match_mask = (struct mlx5dv_flow_match_parameters *)(void *)&side[0];
	errno = 0;
	flow->matcher = mlx5dv_create_flow_matcher(ctx, &attr);
	if (!flow->matcher)
		return inlay_refuse_(errno ? -errno : -ENOMEM, why, "mlx5dv_create_flow_matcher failed");
	action[0].type = MLX5DV_FLOW_ACTION_DEST_DEVX;
	action[0].obj = rss->obj;
	action[1].type = MLX5DV_FLOW_ACTION_TAG;
	action[1].tag_value = match->tag;
	errno = 0;
	flow->flow = mlx5dv_create_flow(flow->matcher, (struct mlx5dv_flow_match_parameters *)(void *)&side[1],
					match->tag ? 2 : 1, action);
	if (flow->flow)
		return 0;
	err = errno ? -errno : -ENOMEM;
	inlay_devx_flow_destroy(flow);
	return inlay_refuse_(err, why, "mlx5dv_create_flow failed");
}

#endif
