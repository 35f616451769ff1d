/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/packets.h: Ethernet packets into queues made by device commands: receive queues (RQ),
 * RSS over several of them, and flow rules, as steer.h has them for queues made by verbs. Not part
 * of devx.h.
 *
 *   memset(&attr, 0, sizeof(attr));
 *   attr.cq = &cq.cq;
 *   attr.pdn = pdn;
 *   attr.ring.umem = attr.record.umem = &umem;
 *   attr.record.offset = 16 * 32;
 *   attr.wqes = 16;  attr.stride = 32;                   bytes of a WQE
 *   attr.flags = INLAY_DEVX_RQ_STRIDING;
 *   attr.strides.log_number = 9;  attr.strides.log_size = 8;
 *   inlay_devx_rq_create(&rq, ctx, &attr);
 *   inlay_devx_rss_create(&rss, ctx, &rq.rqn, 1, 0);
 *   match.type = ETHERTYPE_IP;                           a zeroed struct inlay_flow_match: steer.h
 *   inlay_devx_flow_create(&flow, ctx, &rss, &match, &why);
 *   ... inlay_striding_post(&rq.striding, ...);  inlay_striding_ring(&rq.striding);
 *   inlay_devx_flow_destroy(&flow);  inlay_devx_rss_destroy(&rss);  inlay_devx_rq_destroy(&rq);
 *
 * An RQ has a queue of its own, rq.rq (queue/rq.h) or rq.striding (queue/striding.h); or, with
 * INLAY_DEVX_RQ_SHARED and attr.rmpn = srq.srqn, takes entries of an RMP (devx/srq.h) that several
 * RQs share. Rules need CAP_NET_RAW.
 *
 * Threads: for the queue, as its own header says; for the rest, as device commands.
 * Sources: Linux, infiniband/hw/mlx5/qp.c (create_raw_packet_qp_rq, create_rss_raw_qp_tir) and
 * ethernet/mellanox/mlx5/core/en_main.c; DPDK's mlx5_devx.c; mlx5dv_create_flow(3).
 */
#ifndef INLAY_DEVX_PACKETS_H
#define INLAY_DEVX_PACKETS_H /* a trial: names may change */

#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/devx/call.h>
#include <inlay/devx/ifc.h>
#include <inlay/devx/srq.h>
#include <inlay/queue/rq.h>
#include <inlay/steer.h>

/*
 * ---- Layouts ----
 *
 * MODIFY_RQ has the number and the present state in front, the new state in rqc. After an rqtc
 * comes a dword for each RQ, its number in the low 24 bits. A TIR leads packets to one RQ, or
 * chooses one of an RQT's by a hash of headers. A flow rule names it by its object.
 */
INLAY_LAYOUT(rqc, 0xf0, uint32_t dword[12]; struct inlay_wqc wq,
	INLAY_RQC_VSD = INLAY_BITS(0x03, 1),                     /* VLAN tags stay in the packet */
	INLAY_RQC_MEM_RQ_TYPE = INLAY_BITS(0x04, 4),             /* 1: entries are an RMP's */
	INLAY_RQC_STATE = INLAY_BITS(0x08, 4),
	INLAY_RQC_FLUSH_IN_ERROR_EN = INLAY_BITS(0x0d, 1),       /* a flush CQE for each WQE left when it stops */
	INLAY_RQC_USER_INDEX = INLAY_BITS(0x28, 24), INLAY_RQC_CQN = INLAY_BITS(0x48, 24),
	INLAY_RQC_RMPN = INLAY_BITS(0x88, 24));
INLAY_LAYOUT_AT(rqc, wq, 0x180);
INLAY_LAYOUT(create_rq_in, 0x110, struct inlay_cmd_in cmd; uint32_t dword[4]; struct inlay_rqc rqc,
	INLAY_CREATE_RQ_IN_RQ_STATE = INLAY_BITS(0x40, 4));      /* MODIFY_RQ: the present one */
INLAY_LAYOUT_AT(create_rq_in, rqc, 0x100);
INLAY_BOX(query_rq_out, 0x110, rqc, 0x100, struct inlay_cmd_out cmd; uint32_t dword[4]; struct inlay_rqc rqc);

INLAY_LAYOUT(rqtc, 0xf0, uint32_t dword[60],
	INLAY_RQTC_RQT_MAX_SIZE = INLAY_BITS(0xb0, 16), INLAY_RQTC_RQT_ACTUAL_SIZE = INLAY_BITS(0xd0, 16));
INLAY_BOX(create_rqt_in, 0x110, rqtc, 0x100, struct inlay_cmd_in cmd; uint32_t dword[4]; struct inlay_rqtc rqtc);

INLAY_LAYOUT(tirc, 0xf0, uint32_t dword[10]; uint8_t rx_hash_toeplitz_key[40]; uint32_t more[40],
	INLAY_TIRC_DISP_TYPE = INLAY_BITS(0x20, 4),              /* 0: to inline_rqn, 1: by indirect_table */
	INLAY_TIRC_INLINE_RQN = INLAY_BITS(0xe8, 24), INLAY_TIRC_INDIRECT_TABLE = INLAY_BITS(0x108, 24),
	INLAY_TIRC_RX_HASH_FN = INLAY_BITS(0x120, 4),            /* 2: Toeplitz */
	INLAY_TIRC_TRANSPORT_DOMAIN = INLAY_BITS(0x128, 24),
	INLAY_TIRC_L3_PROT_TYPE = INLAY_BITS(0x280, 1),          /* of the hash: 0 IPv4, 1 IPv6 */
	INLAY_TIRC_L4_PROT_TYPE = INLAY_BITS(0x281, 1),          /* 0 TCP, 1 UDP */
	INLAY_TIRC_SELECTED_FIELDS = INLAY_BITS(0x282, 30));     /* 1, 2: addresses, source first; 4, 8: ports */
INLAY_LAYOUT_AT(tirc, rx_hash_toeplitz_key, 0x140);
INLAY_BOX(create_tir_in, 0x110, tirc, 0x100, struct inlay_cmd_in cmd; uint32_t dword[4]; struct inlay_tirc tirc);

/*
 * What a rule matches: mask and value. The destination MAC is bytes 8 .. 13; an IPv4 address is in
 * the last 4 bytes.
 */
INLAY_LAYOUT(fte_match_set_lyr_2_4, 0x40, uint32_t dword[8]; uint8_t src[16]; uint8_t dst[16],
	INLAY_FTE_MATCH_SET_LYR_2_4_ETHERTYPE = INLAY_BITS(0x30, 16),
	INLAY_FTE_MATCH_SET_LYR_2_4_FIRST_VID = INLAY_BITS(0x74, 12),
	INLAY_FTE_MATCH_SET_LYR_2_4_IP_PROTOCOL = INLAY_BITS(0x80, 8),
	INLAY_FTE_MATCH_SET_LYR_2_4_CVLAN_TAG = INLAY_BITS(0x90, 1),
	INLAY_FTE_MATCH_SET_LYR_2_4_TCP_SPORT = INLAY_BITS(0xa0, 16),
	INLAY_FTE_MATCH_SET_LYR_2_4_TCP_DPORT = INLAY_BITS(0xb0, 16),
	INLAY_FTE_MATCH_SET_LYR_2_4_UDP_SPORT = INLAY_BITS(0xe0, 16),
	INLAY_FTE_MATCH_SET_LYR_2_4_UDP_DPORT = INLAY_BITS(0xf0, 16));
INLAY_LAYOUT_AT(fte_match_set_lyr_2_4, src, 0x100);
INLAY_LAYOUT_AT(fte_match_set_lyr_2_4, dst, 0x180);

/* ---- Receive queues ---- */

enum inlay_devx_rq_flags {
	INLAY_DEVX_RQ_STRIDING = 1,   /* each WQE takes many packets: queue/striding.h */
	INLAY_DEVX_RQ_SHARED = 2,     /* no queue of its own: entries of attr.rmpn */
	INLAY_DEVX_RQ_STRIP_VLAN = 4  /* the outermost VLAN tag goes from the packet into the CQE (inlay_cqe_vlan) */
};

/* What to create. Zero it first. */
struct inlay_devx_rq_attr {
	struct inlay_cq *cq;            /* required. Reserves a CQE per WQE or stride, unless on an RMP */
	struct inlay_devx_place ring;   /* wqes * stride bytes */
	struct inlay_devx_place record; /* 8 bytes */
	uint32_t pdn;                   /* 24 bits */
	uint32_t wqes;                  /* a power of two, 1 .. 32768 */
	uint32_t stride;                /* bytes of a WQE, a power of two, 16 .. 1024; striding: 32 .. 1024 */
	uint32_t rmpn;                  /* with INLAY_DEVX_RQ_SHARED; then ring .. stride are not read */
	uint32_t user_index;            /* in the CQEs of this queue (inlay_cqe_user_index), 24 bits */
	uint32_t flags;                 /* enum inlay_devx_rq_flags */
	struct inlay_strides strides;   /* of a striding queue; log_number 3 .. 16 */
};

/* The queue and its object. */
struct inlay_devx_rq {
	union {
		struct inlay_rq rq;             /* unless INLAY_DEVX_RQ_SHARED */
		struct inlay_striding striding; /* with INLAY_DEVX_RQ_STRIDING */
	};
	struct mlx5dv_devx_obj *obj;   /* NULL if not created */
	uint32_t rqn;
	uint32_t flags;                /* enum inlay_devx_rq_flags */
	struct inlay_devx_error error; /* of the last call on it */
};

/* Fills the zeroed work queue of an RQ, and initialises its queue. */
INLAY_COLD int inlay_devx_rq_own_(struct inlay_wqc *wq, struct inlay_devx_rq *rq, const struct inlay_devx_rq_attr *attr)
{
	uint32_t striding = attr->flags & INLAY_DEVX_RQ_STRIDING;
	size_t bytes = inlay_devx_ring_(attr->wqes, 1, 32768, attr->stride, INLAY_DS, 1024);
	const char **why = &rq->error.why;
	uint32_t *record;
	uint8_t *ring;
	int err;

	*why = inlay_devx_places_(attr->ring, bytes, attr->record, &ring, &record);
	if (!bytes || attr->pdn >> 24 || (striding && (attr->strides.log_number < 3 || attr->stride < 2 * INLAY_DS ||
						       !inlay_strides_ok_(&attr->strides))))
		*why = "an impossible number or size of WQEs or strides, or PD number";
	if (*why)
		return -EINVAL;
	record[1] = 0;
	err = striding ? inlay_striding_init(&rq->striding, ring, attr->wqes, attr->stride, record, &attr->strides) :
			 inlay_rq_init(&rq->rq, ring, attr->wqes, attr->stride, record);
	if (!err)
		err = striding ? inlay_striding_reserve_(&rq->striding, attr->cq, why) :
				 inlay_rq_reserve_(&rq->rq, attr->cq, why);
	inlay_devx_wqc_(wq, INLAY_WQ_CYCLIC, attr->ring, attr->record, attr->pdn, attr->wqes, attr->stride,
			striding ? &attr->strides : NULL);
	return err;
}

/* Moves an RQ from one state to another. */
INLAY_COLD int inlay_devx_rq_move_(struct inlay_devx_rq *rq, uint32_t from, uint32_t to)
{
	struct inlay_create_rq_in in;

	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_MODIFY_RQ, rq->rqn);
	inlay_create_rq_in_set(&in, INLAY_CREATE_RQ_IN_RQ_STATE, from);
	inlay_rqc_set(&in.rqc, INLAY_RQC_STATE, to);
	return inlay_devx_change_(rq->obj, &in, sizeof(in), &rq->error);
}

/* Destroys the RQ. Returns 0, or a negative errno: -EBUSY while packets are led to it. */
INLAY_COLD int inlay_devx_rq_destroy(struct inlay_devx_rq *rq)
{
	int err;

	INLAY_CHECK(rq, "no argument is NULL");
	err = inlay_devx_drop_(&rq->obj);
	if (!err && !(rq->flags & INLAY_DEVX_RQ_SHARED))
		inlay_rq_fini(&rq->rq);
	return err;
}

/*
 * Creates an RQ that is ready to receive, and initialises ring and record. Returns 0; -EINVAL for
 * an impossible attribute, ring or record (devx/umem.h); -ENOSPC when the CQ has too few CQEs left;
 * else the negative errno of CREATE_RQ or MODIFY_RQ. On failure rq->obj is NULL.
 */
INLAY_COLD int inlay_devx_rq_create(struct inlay_devx_rq *rq, struct ibv_context *ctx,
				    const struct inlay_devx_rq_attr *attr)
{
	uint32_t shared, all = INLAY_DEVX_RQ_STRIDING | INLAY_DEVX_RQ_SHARED | INLAY_DEVX_RQ_STRIP_VLAN;
	struct inlay_create_rq_in in;
	int err;

	INLAY_CHECK(rq && ctx && attr, "no argument is NULL");
	__builtin_memset(rq, 0, sizeof(*rq));
	shared = attr->flags & INLAY_DEVX_RQ_SHARED;
	if (!attr->cq || (attr->rmpn | attr->user_index) >> 24 || attr->flags & ~all ||
	    (shared && attr->flags & INLAY_DEVX_RQ_STRIDING))
		return inlay_devx_refuse_(&rq->error, -EINVAL, "no CQ, a number of more than 24 bits, or impossible flags");
	rq->flags = attr->flags;
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_CREATE_RQ, 0);
	inlay_rqc_set(&in.rqc, INLAY_RQC_VSD, !(attr->flags & INLAY_DEVX_RQ_STRIP_VLAN));
	inlay_rqc_set(&in.rqc, INLAY_RQC_FLUSH_IN_ERROR_EN, 1);
	inlay_rqc_set(&in.rqc, INLAY_RQC_USER_INDEX, attr->user_index);
	inlay_rqc_set(&in.rqc, INLAY_RQC_CQN, inlay_cq_cqn(attr->cq));
	inlay_rqc_set(&in.rqc, INLAY_RQC_MEM_RQ_TYPE, !!shared);
	inlay_rqc_set(&in.rqc, INLAY_RQC_RMPN, shared ? attr->rmpn : 0);
	err = shared ? 0 : inlay_devx_rq_own_(&in.rqc.wq, rq, attr);
	if (err)
		return inlay_devx_refuse_(&rq->error, err, rq->error.why);
	err = inlay_devx_make_(ctx, &in, sizeof(in), &rq->obj, &rq->rqn, &rq->error);
	if (!err)
		err = inlay_devx_rq_move_(rq, INLAY_WQ_STATE_RST, INLAY_WQ_STATE_RDY);
	if (err)
		inlay_devx_rq_destroy(rq); /* leaves rq->error alone */
	return err;
}

/*
 * Empties the RQ, whatever its state, and makes it ready again. Its posted buffers are the
 * caller's; those of an RMP stay posted. Then remove its completions: inlay_cq_clean_index with its
 * user index. Returns 0, -EINVAL without an object, or the negative errno of QUERY_RQ or MODIFY_RQ.
 */
INLAY_COLD int inlay_devx_rq_reset(struct inlay_devx_rq *rq)
{
	struct inlay_query_rq_out out;
	uint32_t state;
	int err;

	INLAY_CHECK(rq, "no argument is NULL");
	/* Ask the device for the state, since an earlier call may have failed halfway. */
	err = inlay_devx_query_context(rq->obj, INLAY_CMD_OP_QUERY_RQ, rq->rqn, &out, sizeof(out), &rq->error);
	state = err ? 0 : (uint32_t)inlay_rqc_get(&out.rqc, INLAY_RQC_STATE);
	if (!err && state != INLAY_WQ_STATE_RST)
		err = inlay_devx_rq_move_(rq, state, INLAY_WQ_STATE_RST);
	if (err)
		return err;
	/* The record must be 0 when the RQ starts. */
	if (rq->flags & INLAY_DEVX_RQ_STRIDING)
		inlay_striding_reset(&rq->striding);
	else if (!(rq->flags & INLAY_DEVX_RQ_SHARED))
		inlay_rq_reset(&rq->rq);
	return inlay_devx_rq_move_(rq, INLAY_WQ_STATE_RST, INLAY_WQ_STATE_RDY);
}

/* ---- RSS ---- */

/* Spreads packets over RQs. */
struct inlay_devx_rss {
	struct mlx5dv_devx_obj *obj;   /* the TIR, for rules; NULL: there is none */
	struct mlx5dv_devx_obj *table; /* of several RQs */
	struct mlx5dv_devx_obj *domain;
	struct inlay_devx_error error; /* of the last call on it */
};

/* Undoes inlay_devx_rss_create. Returns 0, or a negative errno: -EBUSY while a rule uses it. */
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
 * Spreads packets over n RQs, 1 .. INLAY_RSS_QUEUES, by the Toeplitz hash of some of their fields,
 * as inlay_rss_create. Unless n is a power of two, the table has 128 places, and some RQs get a
 * little more than others. fields is enum ibv_rx_hash_fields, or'ed, without those for tunnels and
 * IPsec; 0 for a single RQ, without a hash.
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
		inlay_tirc_set(&in.tirc, INLAY_TIRC_L3_PROT_TYPE, !!v6);
		inlay_tirc_set(&in.tirc, INLAY_TIRC_L4_PROT_TYPE, !!udp);
		inlay_tirc_set(&in.tirc, INLAY_TIRC_SELECTED_FIELDS, v4 | v6 | (tcp | udp) << 2);
	} else {
		inlay_tirc_set(&in.tirc, INLAY_TIRC_INLINE_RQN, rqns[0]);
	}
	if (!err)
		err = inlay_devx_make_(ctx, &in, sizeof(in), &rss->obj, &number, &rss->error);
	if (err)
		inlay_devx_rss_destroy(rss); /* leaves rss->error alone */
	return err;
}

/* ---- Rules ---- */

/* A rule. */
struct inlay_devx_flow {
	struct mlx5dv_flow_matcher *matcher;
	struct ibv_flow *flow;
};

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

INLAY_CASTS_END_
#endif
