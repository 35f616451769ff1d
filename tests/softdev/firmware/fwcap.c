/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fwcap.c: the answers to QUERY_HCA_CAP. Whatever is claimed here works, but for null_mkey: there is
 * no null key. Everything else is 0.
 */
#include <string.h>
#include "firmware.h"

#define CAPS 0x1000u              /* bytes of the answer after its header */

struct cap {
	uint16_t bit, width;
	uint64_t value;
};

/* ---- type 0 ---- */

static const struct cap general[] = {
	{ 0x20, 1, 1 },           /* hca_cap_2 */
	{ 0x6b, 5, 31 },          /* log_dma_mmo_max_size */
	{ 0x80, 8, 15 },          /* log_max_srq_sz */
	{ 0x88, 8, 15 },          /* log_max_qp_sz */
	{ 0x90, 1, 1 },           /* event_cap */
	{ 0x9b, 5, 16 },          /* log_max_qp */
	{ 0xab, 5, 16 },          /* log_max_srq */
	{ 0xc8, 8, 22 },          /* log_max_cq_sz */
	{ 0xd2, 1, 1 },           /* access_register_user */
	{ 0xdb, 5, 16 },          /* log_max_cq */
	{ 0xe8, 1, 1 },           /* relaxed_ordering_write */
	{ 0xe9, 1, 1 },           /* relaxed_ordering_read */
	{ 0xea, 6, 16 },          /* log_max_mkey */
	{ 0x100, 8, 4 },          /* max_indirection */
	{ 0x108, 1, 1 },          /* fixed_buffer_size: KSM */
	{ 0x109, 7, 63 },         /* log_max_mrw_sz */
	{ 0x118, 2, 3 },          /* umr_extended_translation_offset, null_mkey: paging of all memory, and UCX asks for it by these */
	{ 0x11a, 6, 16 },         /* log_max_klm_list_size */
	{ 0x122, 1, 1 },          /* qpc_extension: copies, streams */
	{ 0x12a, 6, 4 },          /* log_max_ra_req_dc */
	{ 0x13a, 6, 4 },          /* log_max_ra_res_dc */
	{ 0x148, 1, 1 },          /* sig_crc32c */
	{ 0x14a, 6, 4 },          /* log_max_ra_req_qp */
	{ 0x15a, 6, 4 },          /* log_max_ra_res_qp */
	{ 0x170, 16, 1 },         /* gid_table_size: 16 entries */
	{ 0x186, 10, 255 },       /* max_qp_cnt: counter sets */
	{ 0x1a8, 1, 1 },          /* device_memory */
	{ 0x1ab, 5, 16 },         /* local_ca_ack_delay */
	{ 0x1c9, 2, 3 },          /* dp_ordering_ooo_rw_dc, _rc */
	{ 0x1c3, 5, 30 },         /* log_max_msg */
	{ 0x1f0, 1, 1 },          /* sig_block_4048 */
	{ 0x1fc, 4, 1 },          /* cqe_version */
	{ 0x200, 1, 1 },          /* compact_address_vector */
	{ 0x201, 1, 1 },          /* striding_rq */
	{ 0x207, 1, 1 },          /* umr_modify_entity_size_disabled */
	{ 0x215, 1, 1 },          /* sctr_data_cqe */
	{ 0x217, 1, 1 },          /* sho: block signatures */
	{ 0x21a, 1, 1 },          /* dct */
	{ 0x21e, 1, 1 },          /* atomic */
	{ 0x220, 1, 1 },          /* cq_oi */
	{ 0x221, 1, 1 },          /* cq_resize */
	{ 0x222, 1, 1 },          /* cq_moderation */
	{ 0x227, 1, 1 },          /* pg: on-demand paging */
	{ 0x22c, 1, 1 },          /* cd: cross-channel */
	{ 0x23d, 3, 7 },          /* ud, uc, rc */
	{ 0x240, 1, 1 },          /* uar_4k */
	{ 0x252, 1, 1 },          /* umem_uid_0 */
	{ 0x260, 1, 1 },          /* bf */
	{ 0x26b, 5, 9 },          /* log_bf_reg_size */
	{ 0x290, 16, SD_MAX_SQ_DESC }, /* max_wqe_sz_sq */
	{ 0x2b0, 16, SD_MAX_RQ_DESC }, /* max_wqe_sz_rq */
	{ 0x2d0, 16, SD_MAX_SQ_DESC }, /* max_wqe_sz_sq_dc */
	{ 0x323, 5, 12 },         /* log_max_transport_domain */
	{ 0x32b, 5, 16 },         /* log_max_pd */
	{ 0x330, 2, 3 }, { 0x333, 2, 3 }, /* dp_ordering_ooo_all: ud, uc; dc, rc */
	{ 0x33b, 5, 12 },         /* log_max_xrcd */
	{ 0x363, 5, 16 },         /* log_max_rq */
	{ 0x36b, 5, 16 },         /* log_max_sq */
	{ 0x373, 5, 16 },         /* log_max_tir */
	{ 0x37b, 5, 16 },         /* log_max_tis */
	{ 0x383, 5, 16 },         /* log_max_rmp */
	{ 0x38b, 5, 12 },         /* log_max_rqt */
	{ 0x393, 5, 9 },          /* log_max_rqt_size */
	{ 0x3a0, 1, 1 },          /* ext_stride_num_range */
	{ 0x3a3, 5, SD_MAX_LOG_STRIDE }, /* log_max_stride_sz_rq */
	{ 0x3ab, 5, SD_MIN_LOG_STRIDE }, /* log_min_stride_sz_rq */
	{ 0x3db, 5, 15 },         /* log_max_wq_sz */
	{ 0x463, 5, 12 },         /* log_max_uctx */
	{ 0x46b, 5, 16 },         /* log_max_umem */
	{ 0x480, 1, 1 },          /* sigerr_domain_and_sig_type */
	{ 0x4e0, 32, 1000000 },   /* device_frequency_khz: timestamps are in ns */
	{ 0x520, 32, 1 },         /* num_of_uars_per_page */
	{ 0x5b0, 1, 1 },          /* enhanced_cqe_compression */
	{ 0x5b2, 1, 1 },          /* crossing_vhca_mkey */
	{ 0x5bc, 1, 1 },          /* mini_cqe_resp_stride_index */
	{ 0x5bd, 3, 7 },          /* cqe_128_always: padding; cqe_compression_128b, cqe_compression */
	{ 0x5d0, 16, SD_MAX_ZIP }, /* cqe_compression_max_num */
	{ 0x5f0, 2, 3 },          /* tag_matching, rndv_offload_rc */
	{ 0x5f3, 5, SD_LOG_TM_LIST }, /* log_tag_matching_list_sz */
	{ 0x5fb, 5, 16 },         /* log_max_xrq */
	{ 0x68b, 2, 3 },          /* wait_on_data, wait_on_time */
	{ 0x748, 1, 1 },          /* dma_mmo_qp: INIT2INIT allows it */
	{ 0 },
};

_Static_assert(SD_MAX_PD == 1u << 16 && SD_MAX_UMEM == 1u << 16 && SD_MAX_UCTX == 1u << 12 && SD_MAX_QP == 1u << 16 &&
	       SD_MAX_CQ == 1u << 16 && SD_MAX_SRQ == 1u << 16 && SD_MAX_MR == 1u << 16 && SD_MAX_CQE == 1u << 22 &&
	       SD_MAX_SQ_WQEBB == 1u << 15 && SD_MAX_RQ_WR == 1u << 15 && SD_MAX_RD_ATOMIC == 1 << 4 && SD_MAX_MSG == 1u << 30 &&
	       SD_GIDS == 16,
	       "as the table has it");

/* ---- the others ---- */

static const struct cap general_2[] = {
	{ 0x88, 1, 1 },           /* dp_ordering_force */
	{ 0xe0, 32, 0x100 },      /* cross_vhca_object_to_object_supported: an alias of another function's key */
	{ 0x100, 64, 4 },         /* allowed_object_for_other_vhca_access: keys */
	{ 0x1ab, 5, 12 },         /* log_min_mkey_entity_size */
	{ 0 },
};

/*
 * CS and FA, plain and masked. Those of 8 bytes answer in the host's byte order: without that the
 * kernel would report no atomics to verbs. Other sizes answer in big-endian order. None is atomic
 * towards the program's own instructions, as far as a NIC without PCI atomics promises.
 */
#define ATOMIC_SIZES (2 * SD_MAX_ATOMIC - 4) /* each bit stands for its own value in bytes: 4 .. SD_MAX_ATOMIC */

static const struct cap atomic[] = {
	{ 0x40, 2, 1 }, { 0x90, 16, 0xf }, { 0xb0, 16, ATOMIC_SIZES }, { 0xd0, 16, ATOMIC_SIZES }, { 0 },
};

static const struct cap roce[] = {
	{ 0x5, 2, 3 },            /* fl_rc_qp_when_roce_disabled, _enabled */
	{ 0x98, 8, 5 },           /* roce_version: v1 and v2 */
	{ 0xb0, 16, 4791 }, { 0xc0, 16, 0xffff }, { 0xd0, 16, 0xc000 }, { 0xf0, 16, SD_GIDS }, { 0 },
};

static const struct cap device_memory[] = {
	{ 0x0, 1, 1 },            /* memic */
	{ 0x2b, 5, 12 }, { 0x38, 8, 12 }, { 0x80, 32, SD_MAX_DM / 4096 }, { 0xa0, 32, SD_MAX_DM }, { 0 },
};

/* Type 1. wqe_inline_mode is in the answer */
static const struct cap ethernet[] = {
	{ 0x0, 1, 1 },            /* csum_cap */
	{ 0x1, 1, 1 },            /* vlan_cap */
	{ 0x7, 1, 1 },            /* wqe_vlan_insert */
	{ 0xb, 5, 18 },           /* max_lso_cap: 256 KiB */
	{ 0x1a, 1, 1 },           /* enhanced_multi_pkt_send_wqe */
	{ 0x20, 3, 7 },           /* swp, swp_csum, swp_lso */
	{ 0 },
};

/* Each bit, from the first: send, receive, write, read, atomic, receive from an SRQ */
static const struct cap odp[] = {
	{ 0x80, 6, 0x3f },        /* RC */
	{ 0xa0, 6, 0x38 },        /* UC */
	{ 0xc0, 6, 0x31 },        /* UD */
	{ 0xe0, 6, 0x2f },        /* XRC */
	{ 0x100, 6, 0x2f },       /* DC */
	{ 0 },
};

static const struct cap none[] = { { 0 } };

/* The events that may be subscribed to: type n is bit n % 64 of the big-endian word n / 64 */
#define AFFILIATED (1ull << 0x01 | 1ull << 0x02 | 1ull << 0x03 | 1ull << 0x04 | 1ull << 0x05 | 1ull << 0x07 | 1ull << 0x10 | \
		    1ull << 0x11 | 1ull << 0x12 | 1ull << 0x13 | 1ull << 0x14 | 1ull << 0x18 | 1ull << 0x1c | 1ull << 0x1d)
#define UNAFFILIATED (1ull << 0x09)

static const struct cap events[] = { { 0x0, 64, AFFILIATED }, { 0x100, 64, UNAFFILIATED }, { 0 } };

bool sd_fw_event_ok(uint16_t type, const struct sd_devx_obj *o)
{
	if (type > 63)
		return false;
	return (o && !type) || (o ? AFFILIATED : UNAFFILIATED) >> type & 1;
}

static const struct cap *caps_of(unsigned type)
{
	switch (type) {
	case 0x00:
		return general;
	case 0x01:
		return sd_link_ib() ? NULL : ethernet;
	case 0x02:
		return odp;
	case 0x03:
		return atomic;
	case 0x04:
		return sd_link_ib() ? NULL : roce;
	case 0x07:
		return none;      /* NIC flow tables: commands make none */
	case 0x0f:
		return device_memory;
	case 0x14:
		return events;
	case 0x20:
		return general_2;
	default:
		return NULL;
	}
}

/* The maximum is what is current: there is nothing that the kernel would have set otherwise */
uint8_t sd_fw_query_hca_cap(struct sd_devx_cmd *c)
{
	const struct cap *cap = caps_of(c->op_mod >> 1);
	uint8_t v[CAPS] = { 0 };

	if (!cap)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	for (; cap->width; cap++)
		sd_set(v, cap->bit, cap->width, cap->value);
	if (c->op_mod >> 1 == 0) {
		sd_set(v, 0x30, 16, c->ctx->dev);      /* vhca_id */
		sd_set(v, 0x151, 1, !sd_link_ib());    /* rts2rts_qp_udp_sport */
		sd_set(v, 0x1b6, 2, !sd_link_ib());    /* port_type */
		sd_set(v, 0x1b8, 8, sd_ports());       /* num_ports */
		sd_set(v, 0x21d, 1, !sd_link_ib());    /* roce */
		sd_set(v, 0x21c, 1, !sd_link_ib());    /* eth_net_offloads */
	}
	if (c->op_mod >> 1 == 1)
		sd_set(v, 0x12, 2, sd_min_inline() ? 0 : 2); /* wqe_inline_mode: L2 headers, or none */
	sd_devx_answer(c, 16, v, sizeof(v));
	return SD_ST_OK;
}
