/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device.c: opening the device; its attributes, its port, its GIDs.
 */
#include <errno.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include "kernel.h"

/* What a context is told; driver: where it wants the driver's part */
static int tell_context(struct sd_cmd *c, unsigned driver, unsigned num_comp_vectors, unsigned core_support)
{
	const struct mlx5_ib_alloc_ucontext_resp resp = {
		.qp_tab_size = SD_MAX_QP,
		.bf_reg_size = 512,
		.tot_bfregs = 0, /* doorbell pages come one by one, as objects */
		.cache_line_size = 64,
		.max_sq_desc_sz = SD_MAX_SQ_DESC,
		.max_rq_desc_sz = SD_MAX_RQ_DESC,
		.max_send_wqebb = SD_MAX_SQ_WQEBB,
		.max_recv_wr = SD_MAX_RQ_WR,
		.max_srq_recv_wr = SD_MAX_RQ_WR - 1,
		.num_ports = sd_ports(),
		.response_length = sizeof(resp),
		.comp_mask = MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_MKEY_UPDATE_TAG,
		.cqe_version = 1,
		.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH,
		.eth_min_inline = sd_min_inline() ? MLX5_USER_INLINE_MODE_L2 : MLX5_USER_INLINE_MODE_NONE,
		.clock_info_versions = 1 << MLX5_IB_CLOCK_INFO_V1,
		.log_uar_size = 12,
		.num_uars_per_page = 1,
	};
	const uint32_t vectors = SD_COMP_VECTORS;
	const uint64_t core = IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS;
	int err = SD_OUT(c, driver, resp);

	if (!err)
		err = SD_OUT(c, num_comp_vectors, vectors);
	return err ? err : SD_OUT(c, core_support, core);
}

int sd_cmd_get_context(struct sd_cmd *c)
{
	struct mlx5_ib_alloc_ucontext_req_v2 req;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_UHW_IN), &req, sizeof(req));

	if (err)
		return err;
	if (c->ctx->ready)
		return EINVAL;
	if (req.max_cqe_version < 1 || !(req.lib_caps & MLX5_LIB_CAP_DYN_UAR))
		return EINVAL;
	/* A kernel whose firmware has no user contexts says EINVAL to DEVX; libmlx5 comes again without */
	if (req.flags & MLX5_IB_ALLOC_UCTX_DEVX) {
		err = sd_devx_on() ? sd_uid_new(c->ctx) : EINVAL;
		if (err)
			return err;
	}
	err = tell_context(c, UVERBS_ATTR_UHW_OUT, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT);
	if (err)
		sd_uid_free(c->ctx);
	c->ctx->ready = !err;
	return err;
}

/* Of a program that has a context's file from somewhere: ibv_import_device() */
int sd_cmd_query_context(struct sd_cmd *c)
{
	return tell_context(c, MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS,
			    UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT);
}

static void fill_port(unsigned dev, struct ib_uverbs_query_port_resp *p)
{
	*p = (struct ib_uverbs_query_port_resp){
		.port_cap_flags = IB_UVERBS_PCF_CM_SUP | (sd_link_ib() ? IB_UVERBS_PCF_SYS_IMAGE_GUID_SUP : IB_UVERBS_PCF_IP_BASED_GIDS),
		.max_msg_sz = SD_MAX_MSG,
		.gid_tbl_len = SD_GIDS,
		.pkey_tbl_len = sd_pkeys(),
		.lid = sd_lid(dev),
		.sm_lid = sd_lid(0),
		.state = sd_port_down(dev) ? IBV_PORT_DOWN : IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.max_vl_num = sd_link_ib() ? 4 : 0,
		.subnet_timeout = sd_link_ib() ? 18 : 0,
		.active_width = 2, /* 4X */
		.active_speed = 32, /* EDR */
		.phys_state = sd_port_down(dev) ? 3 : 5, /* Disabled, LinkUp */
		.link_layer = sd_link_ib() ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET,
	};
}

int sd_cmd_query_port(struct sd_cmd *c)
{
	struct ib_uverbs_query_port_resp_ex resp = { .port_cap_flags2 = 0 };

	uint64_t port = sd_in_u64(c, UVERBS_ATTR_QUERY_PORT_PORT_NUM, 0);

	if (!sd_port_ok(port))
		return EINVAL;
	fill_port(sd_port_of(c->ctx, port), &resp.legacy_resp);
	return SD_OUT(c, UVERBS_ATTR_QUERY_PORT_RESP, resp);
}

/* In 100 Mb/s: four lanes of EDR */
int sd_cmd_query_port_speed(struct sd_cmd *c)
{
	const uint64_t speed = 1000;

	return sd_port_ok(sd_in_u64(c, SD_ATTR_QUERY_PORT_SPEED_PORT_NUM, 0)) ? SD_OUT(c, SD_ATTR_QUERY_PORT_SPEED_RESP, speed) : EINVAL;
}

/* Of the embedded switch, which is not in use: nothing is known */
int sd_cmd_query_vport(struct sd_cmd *c)
{
	const struct mlx5_ib_uapi_query_port none = { .flags = 0 };

	return sd_port_ok(sd_in_u64(c, MLX5_IB_ATTR_QUERY_PORT_PORT_NUM, 0)) ? SD_OUT(c, MLX5_IB_ATTR_QUERY_PORT, none) : EINVAL;
}

static int fill_gid(unsigned dev, unsigned index, struct ib_uverbs_gid_entry *e)
{
	union ibv_gid gid;
	unsigned type;
	int err = sd_gid(dev, index, &gid, &type);

	if (err)
		return err;
	memset(e, 0, sizeof(*e));
	memcpy(e->gid, gid.raw, sizeof(e->gid));
	e->gid_index = index;
	e->port_num = dev % sd_ports() + 1;
	e->gid_type = type;
	e->netdev_ifindex = sd_link_ib() ? 0 : if_nametoindex("lo");
	return 0;
}

int sd_cmd_query_gid_entry(struct sd_cmd *c)
{
	uint64_t index = sd_in_u64(c, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, 0);
	uint64_t port = sd_in_u64(c, UVERBS_ATTR_QUERY_GID_ENTRY_PORT, 0);
	struct ib_uverbs_gid_entry e;
	int err;

	if (!sd_port_ok(port) || index >= SD_GIDS ||
		sd_in_u64(c, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0))
		return EINVAL;
	err = fill_gid(sd_port_of(c->ctx, port), index, &e);
	return err ? err : SD_OUT(c, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, e);
}

int sd_cmd_query_gid_table(struct sd_cmd *c)
{
	struct ib_uverbs_attr *a = sd_attr(c, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES);
	uint64_t size = sd_in_u64(c, UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, 0), n = 0;
	struct ib_uverbs_gid_entry e;
	int err;

	if (!size || size > 4096 || sd_in_u64(c, UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, 0))
		return EINVAL;
	for (unsigned i = 0; i < sd_ports() * SD_GIDS; i++) {
		if (fill_gid(sd_port_of(c->ctx, i / SD_GIDS + 1), i % SD_GIDS, &e))
			continue;
		if ((n + 1) * size > a->len)
			return EINVAL;
		err = sd_copy(&e, a->data + n * size, size < sizeof(e) ? size : sizeof(e), true);
		if (err)
			return err;
		n++;
	}
	a->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
	return SD_OUT(c, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, n);
}

static void fill_device(unsigned dev, struct ib_uverbs_query_device_resp *d)
{
	*d = (struct ib_uverbs_query_device_resp){
		.fw_ver = SD_FW_VER,
		.max_mr_size = ~0ull,
		.page_size_cap = 0xfffffffffffff000,
		.vendor_id = 0x02c9, /* an OUI; 0x15b3 is the PCI vendor */
		.vendor_part_id = SD_PART_ID,
		.max_qp = SD_MAX_QP - 0x40,
		.max_qp_wr = SD_MAX_SQ_WQEBB,
		.device_cap_flags = IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR | IBV_DEVICE_PORT_ACTIVE_EVENT |
				    IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_MEM_WINDOW |
				    IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_XRC,
		.max_sge = SD_MAX_SGE,
		.max_sge_rd = SD_MAX_SGE,
		.max_cq = SD_MAX_CQ - 0x40,
		.max_cqe = SD_MAX_CQE - 1,
		.max_mr = SD_MAX_MR - 1,
		.max_mw = SD_MAX_MR - 1,
		.max_pd = SD_MAX_PD - 1,
		.max_qp_rd_atom = SD_MAX_RD_ATOMIC,
		.max_res_rd_atom = SD_MAX_RD_ATOMIC * (SD_MAX_QP - 0x40),
		.max_qp_init_rd_atom = SD_MAX_RD_ATOMIC,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_mcast_grp = 1 << 21,
		.max_mcast_qp_attach = 240,
		.max_total_mcast_qp_attach = 240u << 21,
		.max_ah = 0x7fffffff,
		.max_srq = SD_MAX_SRQ - 0x40,
		.max_srq_wr = SD_MAX_RQ_WR - 1,
		.max_srq_sge = SD_MAX_RQ_DESC / 16 - 1,
		.max_pkeys = sd_pkeys(),
		.local_ca_ack_delay = 16,
		.phys_port_cnt = sd_ports(),
	};
	if (!sd_link_ib()) {
		d->device_cap_flags |= IBV_DEVICE_RAW_IP_CSUM | IBV_DEVICE_MANAGED_FLOW_STEERING;
		d->max_raw_ethy_qp = SD_MAX_QP - 0x40;
	}
	sd_node_guid(dev * sd_ports(), (uint8_t *)&d->node_guid);
	sd_sys_image_guid((uint8_t *)&d->sys_image_guid);
}

int sd_cmd_query_device(struct sd_cmd *c)
{
	struct ib_uverbs_query_device_resp resp;

	fill_device(c->ctx->dev, &resp);
	return SD_OUT(c, UVERBS_ATTR_CORE_OUT, resp);
}

/* Of on-demand paging: every operation that there is */
#define ODP_UD (IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV)
#define ODP_UC (IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE)
#define ODP_RC (ODP_UD | ODP_UC | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC)

int sd_cmd_query_device_ex(struct sd_cmd *c)
{
	struct mlx5_ib_query_device_resp drv = {
		.response_length = sizeof(drv),
		.flags = MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP | MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD |
			 1 << 4, /* MLX5_IB_QUERY_DEV_RESP_FLAGS_OOO_DP of later headers */
		.dci_streams_caps = { SD_LOG_STREAMS, SD_LOG_STREAMS },
		.cqe_comp_caps = { SD_MAX_ZIP, MLX5_IB_CQE_RES_FORMAT_HASH | MLX5_IB_CQE_RES_FORMAT_CSUM | MLX5_IB_CQE_RES_FORMAT_CSUM_STRIDX },
	};
	struct ib_uverbs_ex_query_device_resp resp = {
		.response_length = sizeof(resp),
		.odp_caps = { .general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT, .per_transport_caps = { ODP_RC, ODP_UC, ODP_UD } },
		.xrc_odp_caps = ODP_RC & ~IBV_ODP_SUPPORT_RECV,
		.timestamp_mask = ~0ull,
		.hca_core_clock = 1000000, /* kHz: CQE timestamps are in ns */
		.cq_moderation_caps = { SD_MAX_CQ_COUNT, SD_MAX_CQ_PERIOD, 0 },
		.max_dm_size = SD_MAX_DM,
		.tm_caps = { .max_rndv_hdr_size = SD_MAX_RNDV_HDR, .max_num_tags = (1u << SD_LOG_TM_LIST) - 1, .flags = IBV_TM_CAP_RC,
			     .max_ops = SD_MAX_SQ_WQEBB, .max_sge = 1 },
	};
	struct ib_uverbs_ex_query_device req;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_CORE_IN), &req, sizeof(req));

	if (err || req.comp_mask || req.reserved)
		return err ? err : EINVAL;
	fill_device(c->ctx->dev, &resp.base);
	resp.device_cap_flags_ex = resp.base.device_cap_flags;
	if (!sd_link_ib()) {
		resp.raw_packet_caps = IBV_RAW_PACKET_CAP_CVLAN_STRIPPING | IBV_RAW_PACKET_CAP_IP_CSUM;
		drv.tso_caps.max_tso = SD_MAX_TSO;
		drv.tso_caps.supported_qpts = 1 << IBV_QPT_RAW_PACKET;
		drv.mlx5_ib_support_multi_pkt_send_wqes = MLX5_IB_SUPPORT_EMPW;
		drv.sw_parsing_caps.sw_parsing_offloads = MLX5_IB_SW_PARSING | MLX5_IB_SW_PARSING_CSUM | MLX5_IB_SW_PARSING_LSO;
		drv.sw_parsing_caps.supported_qpts = 1 << IBV_QPT_RAW_PACKET;
		resp.rss_caps.supported_qpts = 1 << IBV_QPT_RAW_PACKET;
		drv.rss_caps.rx_hash_function = MLX5_RX_HASH_FUNC_TOEPLITZ;
		drv.rss_caps.rx_hash_fields_mask = 0xff;
		resp.rss_caps.max_rwq_indirection_tables = SD_MAX_IND_TBL - 1;
		resp.rss_caps.max_rwq_indirection_table_size = SD_MAX_IND_TBL_SIZE;
		resp.max_wq_type_rq = SD_MAX_WQ - 0x40;
		drv.striding_rq_caps = (struct mlx5_ib_striding_rq_caps){ SD_MIN_LOG_STRIDE, SD_MAX_LOG_STRIDE, SD_MIN_LOG_STRIDES,
									  SD_MAX_LOG_STRIDES, 1 << IBV_QPT_RAW_PACKET, 0 };
	}
	if (sd_attr(c, UVERBS_ATTR_CORE_OUT)->len < sizeof(resp))
		resp.response_length = sd_attr(c, UVERBS_ATTR_CORE_OUT)->len;
	err = SD_OUT(c, UVERBS_ATTR_CORE_OUT, resp);
	return err ? err : SD_OUT(c, UVERBS_ATTR_UHW_OUT, drv);
}

int sd_cmd_query_port_legacy(struct sd_cmd *c)
{
	struct ib_uverbs_query_port req;
	struct ib_uverbs_query_port_resp resp;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_CORE_IN), &req, sizeof(req));

	if (err || !sd_port_ok(req.port_num))
		return err ? err : EINVAL;
	fill_port(sd_port_of(c->ctx, req.port_num), &resp);
	return SD_OUT(c, UVERBS_ATTR_CORE_OUT, resp);
}
