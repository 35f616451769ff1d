/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/info.h: what a data path chooses by, out of the device's capabilities: limits, formats and abilities in host order.
 *
 *   struct inlay_devx_info info;
 *   struct inlay_devx_error error;
 *
 *   if (inlay_devx_info_query(ctx, &info, &error) == 0) {
 *           compress = info.cqe_compression;
 *           depth = 1u << info.log_max_cq_sz;
 *           if (info.have & INLAY_INFO_ATOMIC)
 *                   sizes = info.atomic_size_qp;
 *   }
 *
 * The general capabilities say which other types there are; each that answers has its bit in `have`, and what it would have said is 0 when
 * it does not. A device older than a field answers 0 there: every 0 means no, none, or not known.
 *
 * One answer that came another way, of whatever length, is taken in by inlay_devx_info_read.
 *
 * Threads: a query is a command (devx/call.h); the structure is the caller's.
 * Sources: devx/ifc/hca.h.
 */
#ifndef INLAY_DEVX_INFO_H
#define INLAY_DEVX_INFO_H

#include <string.h>
#include <inlay/base.h>
#include <inlay/devx/call.h>
#include <inlay/devx/ifc/bits.h>
#include <inlay/devx/ifc/cmd.h>
#include <inlay/devx/ifc/hca.h>

/* Bits of `have`: the types of capabilities that answered */
enum inlay_info_have {
	INLAY_INFO_GENERAL = 1 << 0,
	INLAY_INFO_GENERAL_2 = 1 << 1,
	INLAY_INFO_ATOMIC = 1 << 2,
	INLAY_INFO_ROCE = 1 << 3,
	INLAY_INFO_ODP = 1 << 4,
	INLAY_INFO_ETHERNET = 1 << 5,
	INLAY_INFO_DEVICE_MEMORY = 1 << 6,
	INLAY_INFO_EVENT = 1 << 7
};

/* Bits of odp_rc and its sisters: what may hit memory that is not there yet */
enum inlay_info_odp {
	INLAY_INFO_ODP_SEND = 1 << 0,
	INLAY_INFO_ODP_RECEIVE = 1 << 1,
	INLAY_INFO_ODP_WRITE = 1 << 2,
	INLAY_INFO_ODP_READ = 1 << 3,
	INLAY_INFO_ODP_ATOMIC = 1 << 4,
	INLAY_INFO_ODP_SRQ_RECEIVE = 1 << 5
};

/* Numbers as they are; log_ is a power of two's exponent; where nothing is said, 1 is yes and 0 no. */
struct inlay_devx_info {
	uint32_t have;                    /* enum inlay_info_have */

	/* The function and its ports */
	uint32_t vhca_id;
	uint32_t port_type;               /* enum inlay_port_type */
	uint32_t num_ports;
	uint32_t roce;
	uint32_t gid_table_size;          /* entries of a port */
	uint32_t log_max_msg;             /* bytes */
	uint32_t cqe_version;             /* 1: CQEs have user_index */
	uint32_t uctx_cap;                /* what a user context may be allowed: bit 0 RAW_TX, bit 1 INTERNAL_DEV_RES */
	uint32_t device_frequency_khz;    /* of timestamps */
	uint32_t sq_ts_format;            /* enum inlay_ts_cap */
	uint32_t rq_ts_format;
	uint32_t qp_ts_format;            /* RoCE */

	/* Transports */
	uint32_t rc;
	uint32_t uc;
	uint32_t ud;
	uint32_t xrc;
	uint32_t dc;
	uint32_t set_deth_sqpn;           /* UD as another QPN */
	uint32_t compact_address_vector;

	/* Doorbells */
	uint32_t bf;                      /* BlueFlame */
	uint32_t bf_size;                 /* bytes of one half of a register, which are what one copy may have */
	uint32_t uar_page_size;           /* bytes */
	uint32_t send_dbr_mode_no_dbr_int; /* send queue without a doorbell record, INLAY_SEND_DBR_NONE_INT */
	uint32_t send_dbr_mode_no_dbr_ext; /* INLAY_SEND_DBR_NONE_EXT */

	/* Queues */
	uint32_t max_wqe_sq;              /* bytes */
	uint32_t max_wqe_rq;
	uint32_t max_wqe_sq_dc;
	uint32_t log_max_qp;              /* how many, and how large */
	uint32_t log_max_qp_sz;
	uint32_t log_max_cq;
	uint32_t log_max_cq_sz;
	uint32_t log_max_srq;
	uint32_t log_max_srq_sz;
	uint32_t log_max_rmp;             /* 0: none */
	uint32_t log_max_xrq;
	uint32_t log_max_wq_sz;           /* of SQ, RQ, RMP, XRQ */
	uint32_t log_max_pd;
	uint32_t log_max_mkey;
	uint32_t log_max_umem;
	uint32_t log_max_uctx;            /* 0: no DEVX */
	uint32_t log_max_ra_req_qp;       /* reads and atomics that an RC QP begins, that it answers; the same of DC */
	uint32_t log_max_ra_res_qp;
	uint32_t log_max_ra_req_dc;
	uint32_t log_max_ra_res_dc;
	uint32_t cross_domain;            /* WAIT, SEND_EN, RECV_EN */
	uint32_t basic_cyclic_rcv_wqe;    /* cyclic RMP whose entries have no next segment */

	/* CQEs */
	uint32_t cq_oi;                   /* ignore overrun */
	uint32_t cq_resize;
	uint32_t cq_moderation;
	uint32_t sctr_data_cqe;           /* small payloads in CQEs: responder, RC requester */
	uint32_t dc_req_scat_data_cqe;    /* DC requester */
	uint32_t cqe_128_always;
	uint32_t cqe_compression;         /* of 64-byte CQEs */
	uint32_t cqe_compression_128;
	uint32_t mini_cqe_resp_stride_index; /* format 3 */
	uint32_t enhanced_cqe_compression;
	uint32_t cqe_compression_timeout; /* microseconds */
	uint32_t cqe_compression_max_num;

	/* Striding receives */
	uint32_t striding_rq;             /* Ethernet */
	uint32_t ib_striding_wq;          /* InfiniBand: RMP, XRQ */
	uint32_t ext_stride_num_range;    /* fewer than 512 strides */
	uint32_t log_min_stride_sz_rq;    /* bytes */
	uint32_t log_max_stride_sz_rq;

	/* Tag matching */
	uint32_t tag_matching;
	uint32_t log_tag_matching_list_sz;
	uint32_t rndv_offload_rc;
	uint32_t rndv_offload_dc;

	/* Memory keys */
	uint32_t ksm;                     /* fixed_buffer_size */
	uint32_t log_max_klm_list_size;   /* entries of a KLM or KSM key */
	uint32_t log_min_mkey_entity_size; /* bytes that a KSM entry covers at least */
	uint32_t max_indirection;
	uint32_t null_mkey;
	uint32_t umr_fence;               /* 0 strong, 1 small, 2 none */
	uint32_t umr_extended_translation_offset;
	uint32_t umr_modify_entity_size_disabled;
	uint32_t umr_modify_atomic_disabled;
	uint32_t umr_indirect_mkey_disabled;
	uint32_t relaxed_ordering_write;
	uint32_t relaxed_ordering_read;   /* 1: when PCI's is on; 2: in any case */
	uint32_t relaxed_ordering_write_umr;
	uint32_t relaxed_ordering_read_umr;

	/* Atomics */
	uint32_t atomic_operations;       /* enum inlay_atomic_op */
	uint32_t atomic_size_qp;          /* bit n: 2^n bytes */
	uint32_t atomic_size_dc;
	uint32_t atomic_8b_host_order;    /* 8-byte answers: 1 the host's order, 0 big-endian */

	/* RoCE */
	uint32_t roce_version;            /* bit 0 v1, bit 2 v2 */
	uint32_t roce_udp_sport_min;
	uint32_t roce_udp_sport_max;
	uint32_t fl_rc_qp_when_roce_disabled; /* RC QP in forced loopback, without addresses */
	uint32_t fl_rc_qp_when_roce_enabled;

	/* Link aggregation */
	uint32_t num_lag_ports;
	uint32_t lag_tx_port_affinity;
	uint32_t init2_lag_tx_port_affinity;
	uint32_t lag_dct;

	/* On-demand paging: enum inlay_info_odp */
	uint32_t odp_rc;
	uint32_t odp_ud;
	uint32_t odp_xrc;
	uint32_t odp_dc;

	/* Device memory */
	uint32_t memic;
	uint32_t max_memic_size;          /* bytes */
	uint32_t log_min_memic_alloc_size;
	uint32_t memic_operations;

	/* DMA by WQE (MMO), registers, access by other functions */
	uint32_t dma_mmo_qp;
	uint32_t log_dma_mmo_max_size;    /* bytes */
	uint32_t access_register_user;
	uint32_t cross_vhca_object_to_object; /* bit 8: a local mkey for a remote one */
	uint64_t allowed_object_for_other_vhca; /* bit 2: mkeys */

	/* Ethernet */
	uint32_t max_lso_cap;
	uint32_t wqe_inline_mode;         /* 0 L2, 1 what the port says, 2 not required */
	uint32_t multi_pkt_send_wqe;
	uint32_t swp;
	uint32_t scatter_fcs;

	uint64_t general_obj_types;       /* bit n: type n */
	uint32_t event_cap;               /* the next two say what may be subscribed to; 0: what older kernels allow */
	uint64_t affiliated_events[4];    /* with an object: type n is bit n % 64 of word n / 64 */
	uint64_t unaffiliated_events[4];
};

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up: all of it
 */

/* ---- Out of an answer ---- */

/* General capabilities into info. Nothing can be wrong with them: any bytes have a meaning. */
INLAY_COLD void inlay_devx_info_general(struct inlay_devx_info *info, const struct inlay_hca_cap *cap)
{
#define INLAY_INFO_TAKE(field, from) info->field = (uint32_t)inlay_hca_cap_get(cap, INLAY_HCA_CAP_##from)
	uint32_t gids, register_size;

	INLAY_INFO_TAKE(vhca_id, VHCA_ID);
	INLAY_INFO_TAKE(port_type, PORT_TYPE);
	INLAY_INFO_TAKE(num_ports, NUM_PORTS);
	INLAY_INFO_TAKE(roce, ROCE);
	gids = (uint32_t)inlay_hca_cap_get(cap, INLAY_HCA_CAP_GID_TABLE_SIZE);
	info->gid_table_size = gids > 4 ? 0 : 8u << gids;
	INLAY_INFO_TAKE(log_max_msg, LOG_MAX_MSG);
	INLAY_INFO_TAKE(cqe_version, CQE_VERSION);
	INLAY_INFO_TAKE(uctx_cap, UCTX_CAP);
	INLAY_INFO_TAKE(device_frequency_khz, DEVICE_FREQUENCY_KHZ);
	INLAY_INFO_TAKE(sq_ts_format, SQ_TS_FORMAT);
	INLAY_INFO_TAKE(rq_ts_format, RQ_TS_FORMAT);

	INLAY_INFO_TAKE(rc, RC);
	INLAY_INFO_TAKE(uc, UC);
	INLAY_INFO_TAKE(ud, UD);
	INLAY_INFO_TAKE(xrc, XRC);
	INLAY_INFO_TAKE(dc, DCT);
	INLAY_INFO_TAKE(set_deth_sqpn, SET_DETH_SQPN);
	INLAY_INFO_TAKE(compact_address_vector, COMPACT_ADDRESS_VECTOR);

	INLAY_INFO_TAKE(bf, BF);
	register_size = (uint32_t)inlay_hca_cap_get(cap, INLAY_HCA_CAP_LOG_BF_REG_SIZE);
	info->bf_size = info->bf && register_size ? 1u << (register_size - 1) : 0;
	/* 16 bits are more than a shift can have: what is no page size is not known */
	register_size = (uint32_t)inlay_hca_cap_get(cap, INLAY_HCA_CAP_LOG_UAR_PAGE_SZ);
	info->uar_page_size = register_size < 20 ? 4096u << register_size : 0;

	INLAY_INFO_TAKE(max_wqe_sq, MAX_WQE_SZ_SQ);
	INLAY_INFO_TAKE(max_wqe_rq, MAX_WQE_SZ_RQ);
	INLAY_INFO_TAKE(max_wqe_sq_dc, MAX_WQE_SZ_SQ_DC);
	INLAY_INFO_TAKE(log_max_qp, LOG_MAX_QP);
	INLAY_INFO_TAKE(log_max_qp_sz, LOG_MAX_QP_SZ);
	INLAY_INFO_TAKE(log_max_cq, LOG_MAX_CQ);
	INLAY_INFO_TAKE(log_max_cq_sz, LOG_MAX_CQ_SZ);
	INLAY_INFO_TAKE(log_max_srq, LOG_MAX_SRQ);
	INLAY_INFO_TAKE(log_max_srq_sz, LOG_MAX_SRQ_SZ);
	INLAY_INFO_TAKE(log_max_rmp, LOG_MAX_RMP);
	INLAY_INFO_TAKE(log_max_xrq, LOG_MAX_XRQ);
	INLAY_INFO_TAKE(log_max_wq_sz, LOG_MAX_WQ_SZ);
	INLAY_INFO_TAKE(log_max_pd, LOG_MAX_PD);
	INLAY_INFO_TAKE(log_max_mkey, LOG_MAX_MKEY);
	INLAY_INFO_TAKE(log_max_umem, LOG_MAX_UMEM);
	INLAY_INFO_TAKE(log_max_uctx, LOG_MAX_UCTX);
	INLAY_INFO_TAKE(log_max_ra_req_qp, LOG_MAX_RA_REQ_QP);
	INLAY_INFO_TAKE(log_max_ra_res_qp, LOG_MAX_RA_RES_QP);
	INLAY_INFO_TAKE(log_max_ra_req_dc, LOG_MAX_RA_REQ_DC);
	INLAY_INFO_TAKE(log_max_ra_res_dc, LOG_MAX_RA_RES_DC);
	INLAY_INFO_TAKE(cross_domain, CD);
	INLAY_INFO_TAKE(basic_cyclic_rcv_wqe, BASIC_CYCLIC_RCV_WQE);

	INLAY_INFO_TAKE(cq_oi, CQ_OI);
	INLAY_INFO_TAKE(cq_resize, CQ_RESIZE);
	INLAY_INFO_TAKE(cq_moderation, CQ_MODERATION);
	INLAY_INFO_TAKE(sctr_data_cqe, SCTR_DATA_CQE);
	INLAY_INFO_TAKE(dc_req_scat_data_cqe, DC_REQ_SCAT_DATA_CQE);
	INLAY_INFO_TAKE(cqe_128_always, CQE_128_ALWAYS);
	INLAY_INFO_TAKE(cqe_compression, CQE_COMPRESSION);
	INLAY_INFO_TAKE(cqe_compression_128, CQE_COMPRESSION_128);
	INLAY_INFO_TAKE(mini_cqe_resp_stride_index, MINI_CQE_RESP_STRIDE_INDEX);
	INLAY_INFO_TAKE(enhanced_cqe_compression, ENHANCED_CQE_COMPRESSION);
	INLAY_INFO_TAKE(cqe_compression_timeout, CQE_COMPRESSION_TIMEOUT);
	INLAY_INFO_TAKE(cqe_compression_max_num, CQE_COMPRESSION_MAX_NUM);

	INLAY_INFO_TAKE(striding_rq, STRIDING_RQ);
	INLAY_INFO_TAKE(ib_striding_wq, IB_STRIDING_WQ);
	INLAY_INFO_TAKE(ext_stride_num_range, EXT_STRIDE_NUM_RANGE);
	INLAY_INFO_TAKE(log_min_stride_sz_rq, LOG_MIN_STRIDE_SZ_RQ);
	INLAY_INFO_TAKE(log_max_stride_sz_rq, LOG_MAX_STRIDE_SZ_RQ);

	INLAY_INFO_TAKE(tag_matching, TAG_MATCHING);
	INLAY_INFO_TAKE(log_tag_matching_list_sz, LOG_TAG_MATCHING_LIST_SZ);
	INLAY_INFO_TAKE(rndv_offload_rc, RNDV_OFFLOAD_RC);
	INLAY_INFO_TAKE(rndv_offload_dc, RNDV_OFFLOAD_DC);

	INLAY_INFO_TAKE(ksm, FIXED_BUFFER_SIZE);
	INLAY_INFO_TAKE(log_max_klm_list_size, LOG_MAX_KLM_LIST_SIZE);
	INLAY_INFO_TAKE(max_indirection, MAX_INDIRECTION);
	INLAY_INFO_TAKE(null_mkey, NULL_MKEY);
	INLAY_INFO_TAKE(umr_fence, UMR_FENCE);
	INLAY_INFO_TAKE(umr_extended_translation_offset, UMR_EXTENDED_TRANSLATION_OFFSET);
	INLAY_INFO_TAKE(umr_modify_entity_size_disabled, UMR_MODIFY_ENTITY_SIZE_DISABLED);
	INLAY_INFO_TAKE(umr_modify_atomic_disabled, UMR_MODIFY_ATOMIC_DISABLED);
	INLAY_INFO_TAKE(umr_indirect_mkey_disabled, UMR_INDIRECT_MKEY_DISABLED);
	INLAY_INFO_TAKE(relaxed_ordering_write, RELAXED_ORDERING_WRITE);
	INLAY_INFO_TAKE(relaxed_ordering_read, RELAXED_ORDERING_READ);
	if (inlay_hca_cap_get(cap, INLAY_HCA_CAP_PCI_RELAXED_ORDERED_READ))
		info->relaxed_ordering_read = 2;
	INLAY_INFO_TAKE(relaxed_ordering_write_umr, RELAXED_ORDERING_WRITE_UMR);
	INLAY_INFO_TAKE(relaxed_ordering_read_umr, RELAXED_ORDERING_READ_UMR);

	INLAY_INFO_TAKE(num_lag_ports, NUM_LAG_PORTS);
	INLAY_INFO_TAKE(lag_tx_port_affinity, LAG_TX_PORT_AFFINITY);
	INLAY_INFO_TAKE(init2_lag_tx_port_affinity, INIT2_LAG_TX_PORT_AFFINITY);
	INLAY_INFO_TAKE(lag_dct, LAG_DCT);
	INLAY_INFO_TAKE(dma_mmo_qp, DMA_MMO_QP);
	INLAY_INFO_TAKE(log_dma_mmo_max_size, LOG_DMA_MMO_MAX_SIZE);
	INLAY_INFO_TAKE(access_register_user, ACCESS_REGISTER_USER);
	INLAY_INFO_TAKE(event_cap, EVENT_CAP);
	info->general_obj_types = inlay_hca_cap_get(cap, INLAY_HCA_CAP_GENERAL_OBJ_TYPES);
#undef INLAY_INFO_TAKE
}

/* One transport of on-demand paging, as bits of enum inlay_info_odp. */
INLAY_COLD uint32_t inlay_devx_info_odp(const struct inlay_odp_ops *ops)
{
	return (uint32_t)(inlay_odp_ops_get(ops, INLAY_ODP_OPS_SEND) * INLAY_INFO_ODP_SEND |
			  inlay_odp_ops_get(ops, INLAY_ODP_OPS_RECEIVE) * INLAY_INFO_ODP_RECEIVE |
			  inlay_odp_ops_get(ops, INLAY_ODP_OPS_WRITE) * INLAY_INFO_ODP_WRITE |
			  inlay_odp_ops_get(ops, INLAY_ODP_OPS_READ) * INLAY_INFO_ODP_READ |
			  inlay_odp_ops_get(ops, INLAY_ODP_OPS_ATOMIC) * INLAY_INFO_ODP_ATOMIC |
			  inlay_odp_ops_get(ops, INLAY_ODP_OPS_SRQ_RECEIVE) * INLAY_INFO_ODP_SRQ_RECEIVE);
}

/*
 * Takes one answer of QUERY_HCA_CAP into what is known already.
 *
 * type  which capabilities were asked for
 * out   the outbox, from its first byte; any alignment
 * len   its bytes: what lies beyond reads 0
 *
 * Returns 0; -EINVAL for a type that is not of enum inlay_cap_type, -ENODATA for less than a header, -EIO for an answer whose status is
 * not 0; then nothing is taken.
 */
INLAY_COLD int inlay_devx_info_read(struct inlay_devx_info *info, enum inlay_cap_type type, const void *out, size_t len)
{
	struct inlay_query_hca_cap_out whole;
	enum inlay_info_have have;
	int i;

	if (len < sizeof(whole.cmd))
		return -ENODATA;
	__builtin_memset(&whole, 0, sizeof(whole));
	__builtin_memcpy(&whole, out, len < sizeof(whole) ? len : sizeof(whole));
	if (inlay_cmd_out_get(&whole.cmd, INLAY_CMD_OUT_STATUS))
		return -EIO;
	switch (type) {
	case INLAY_CAP_GENERAL:
		inlay_devx_info_general(info, &whole.cap.general);
		have = INLAY_INFO_GENERAL;
		break;
	case INLAY_CAP_GENERAL_2: {
		const struct inlay_hca_cap_2 *cap = &whole.cap.general_2;

		info->log_min_mkey_entity_size = (uint32_t)inlay_hca_cap_2_get(cap, INLAY_HCA_CAP_2_LOG_MIN_MKEY_ENTITY_SIZE);
		info->send_dbr_mode_no_dbr_int = (uint32_t)inlay_hca_cap_2_get(cap, INLAY_HCA_CAP_2_SEND_DBR_MODE_NO_DBR_INT);
		info->send_dbr_mode_no_dbr_ext = (uint32_t)inlay_hca_cap_2_get(cap, INLAY_HCA_CAP_2_SEND_DBR_MODE_NO_DBR_EXT);
		info->cross_vhca_object_to_object =
			(uint32_t)inlay_hca_cap_2_get(cap, INLAY_HCA_CAP_2_CROSS_VHCA_OBJECT_TO_OBJECT_SUPPORTED);
		info->allowed_object_for_other_vhca = inlay_hca_cap_2_get(cap, INLAY_HCA_CAP_2_ALLOWED_OBJECT_FOR_OTHER_VHCA_ACCESS);
		have = INLAY_INFO_GENERAL_2;
		break;
	}
	case INLAY_CAP_ATOMIC: {
		const struct inlay_atomic_cap *cap = &whole.cap.atomic;

		info->atomic_operations = (uint32_t)inlay_atomic_cap_get(cap, INLAY_ATOMIC_CAP_ATOMIC_OPERATIONS);
		info->atomic_size_qp = (uint32_t)inlay_atomic_cap_get(cap, INLAY_ATOMIC_CAP_ATOMIC_SIZE_QP);
		info->atomic_size_dc = (uint32_t)inlay_atomic_cap_get(cap, INLAY_ATOMIC_CAP_ATOMIC_SIZE_DC);
		info->atomic_8b_host_order =
			inlay_atomic_cap_get(cap, INLAY_ATOMIC_CAP_ATOMIC_REQ_8B_ENDIANNESS_MODE) == 1;
		have = INLAY_INFO_ATOMIC;
		break;
	}
	case INLAY_CAP_ROCE: {
		const struct inlay_roce_cap *cap = &whole.cap.roce;

		info->roce_version = (uint32_t)inlay_roce_cap_get(cap, INLAY_ROCE_CAP_ROCE_VERSION);
		info->roce_udp_sport_min = (uint32_t)inlay_roce_cap_get(cap, INLAY_ROCE_CAP_R_ROCE_MIN_SRC_UDP_PORT);
		info->roce_udp_sport_max = (uint32_t)inlay_roce_cap_get(cap, INLAY_ROCE_CAP_R_ROCE_MAX_SRC_UDP_PORT);
		info->fl_rc_qp_when_roce_disabled = (uint32_t)inlay_roce_cap_get(cap, INLAY_ROCE_CAP_FL_RC_QP_WHEN_ROCE_DISABLED);
		info->fl_rc_qp_when_roce_enabled = (uint32_t)inlay_roce_cap_get(cap, INLAY_ROCE_CAP_FL_RC_QP_WHEN_ROCE_ENABLED);
		info->qp_ts_format = (uint32_t)inlay_roce_cap_get(cap, INLAY_ROCE_CAP_QP_TS_FORMAT);
		have = INLAY_INFO_ROCE;
		break;
	}
	case INLAY_CAP_ODP:
		info->odp_rc = inlay_devx_info_odp(&whole.cap.odp.rc);
		info->odp_ud = inlay_devx_info_odp(&whole.cap.odp.ud);
		info->odp_xrc = inlay_devx_info_odp(&whole.cap.odp.xrc);
		info->odp_dc = inlay_devx_info_odp(&whole.cap.odp.dc);
		have = INLAY_INFO_ODP;
		break;
	case INLAY_CAP_ETHERNET: {
		const struct inlay_eth_cap *cap = &whole.cap.eth;

		info->max_lso_cap = (uint32_t)inlay_eth_cap_get(cap, INLAY_ETH_CAP_MAX_LSO_CAP);
		info->wqe_inline_mode = (uint32_t)inlay_eth_cap_get(cap, INLAY_ETH_CAP_WQE_INLINE_MODE);
		info->multi_pkt_send_wqe = (uint32_t)inlay_eth_cap_get(cap, INLAY_ETH_CAP_MULTI_PKT_SEND_WQE);
		info->swp = (uint32_t)inlay_eth_cap_get(cap, INLAY_ETH_CAP_SWP);
		info->scatter_fcs = (uint32_t)inlay_eth_cap_get(cap, INLAY_ETH_CAP_SCATTER_FCS);
		have = INLAY_INFO_ETHERNET;
		break;
	}
	case INLAY_CAP_DEVICE_MEMORY: {
		const struct inlay_device_mem_cap *cap = &whole.cap.device_mem;

		info->memic = (uint32_t)inlay_device_mem_cap_get(cap, INLAY_DEVICE_MEM_CAP_MEMIC);
		info->max_memic_size = (uint32_t)inlay_device_mem_cap_get(cap, INLAY_DEVICE_MEM_CAP_MAX_MEMIC_SIZE);
		info->log_min_memic_alloc_size = (uint32_t)inlay_device_mem_cap_get(cap, INLAY_DEVICE_MEM_CAP_LOG_MIN_MEMIC_ALLOC_SIZE);
		info->memic_operations = (uint32_t)inlay_device_mem_cap_get(cap, INLAY_DEVICE_MEM_CAP_MEMIC_OPERATIONS);
		have = INLAY_INFO_DEVICE_MEMORY;
		break;
	}
	case INLAY_CAP_EVENT:
		for (i = 0; i < 4; i++) {
			info->affiliated_events[i] = inlay_from_be64(whole.cap.event.user_affiliated_events[i]);
			info->unaffiliated_events[i] = inlay_from_be64(whole.cap.event.user_unaffiliated_events[i]);
		}
		have = INLAY_INFO_EVENT;
		break;
	default:
		return -EINVAL;
	}
	info->have |= (uint32_t)have;
	return 0;
}

/*
 * Sends QUERY_HCA_CAP for the current capabilities of one type and takes the answer in.
 *
 * ctx    of inlay_devx_open
 * info   what is known so far: zeroed, or with other types in it
 * error  what became of the command; NULL: not wanted
 *
 * Returns 0; -EINVAL for a type that is not of enum inlay_cap_type; else what inlay_devx_command returns.
 */
INLAY_COLD int inlay_devx_info_one(struct ibv_context *ctx, struct inlay_devx_info *info, enum inlay_cap_type type,
				   struct inlay_devx_error *error)
{
	struct inlay_query_hca_cap_out out;
	int err = inlay_devx_query_cap(ctx, (uint32_t)type & 0x7fff, &out, error);

	return err ? err : inlay_devx_info_read(info, type, &out, sizeof(out));
}

/*
 * Asks a device for all that is in struct inlay_devx_info.
 *
 * ctx    of inlay_devx_open
 * info   is written whole
 * error  of the general capabilities when they fail; NULL: not wanted
 *
 * A type beyond the general ones that the device has not, or does not answer, is left out, which `have` shows.
 *
 * Returns 0, or what inlay_devx_command returns for the general capabilities: -EOPNOTSUPP, -EINVAL and others where device, kernel or
 * context know no commands. Threads: as inlay_devx_command.
 */
INLAY_COLD int inlay_devx_info_query(struct ibv_context *ctx, struct inlay_devx_info *info, struct inlay_devx_error *error)
{
	struct inlay_query_hca_cap_out out;
	int err;

	__builtin_memset(info, 0, sizeof(*info));
	err = inlay_devx_query_cap(ctx, INLAY_CAP_GENERAL, &out, error);
	if (err)
		return err;
	inlay_devx_info_read(info, INLAY_CAP_GENERAL, &out, sizeof(out));
	if (inlay_hca_cap_get(&out.cap.general, INLAY_HCA_CAP_HCA_CAP_2))
		inlay_devx_info_one(ctx, info, INLAY_CAP_GENERAL_2, NULL);
	if (inlay_hca_cap_get(&out.cap.general, INLAY_HCA_CAP_ATOMIC))
		inlay_devx_info_one(ctx, info, INLAY_CAP_ATOMIC, NULL);
	if (inlay_hca_cap_get(&out.cap.general, INLAY_HCA_CAP_ROCE))
		inlay_devx_info_one(ctx, info, INLAY_CAP_ROCE, NULL);
	if (inlay_hca_cap_get(&out.cap.general, INLAY_HCA_CAP_PG))
		inlay_devx_info_one(ctx, info, INLAY_CAP_ODP, NULL);
	if (inlay_hca_cap_get(&out.cap.general, INLAY_HCA_CAP_ETH_NET_OFFLOADS))
		inlay_devx_info_one(ctx, info, INLAY_CAP_ETHERNET, NULL);
	if (inlay_hca_cap_get(&out.cap.general, INLAY_HCA_CAP_DEVICE_MEMORY))
		inlay_devx_info_one(ctx, info, INLAY_CAP_DEVICE_MEMORY, NULL);
	if (inlay_hca_cap_get(&out.cap.general, INLAY_HCA_CAP_EVENT_CAP))
		inlay_devx_info_one(ctx, info, INLAY_CAP_EVENT, NULL);
	return 0;
}

/* May a user subscribe to this type of event (enum inlay_event_type), with an object (1) or without (0)? By the device's word: 0 when it
 * gave none, where an older kernel allows the types that it knows. */
INLAY_COLD int inlay_devx_info_event(const struct inlay_devx_info *info, uint32_t type, int affiliated)
{
	const uint64_t *events = affiliated ? info->affiliated_events : info->unaffiliated_events;

	return type < 256 && (events[type / 64] >> type % 64 & 1);
}

#endif
