/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc/query.h: queries of the device and its ports: QUERY_ADAPTER, QUERY_HCA_VPORT_CONTEXT, QUERY_ROCE_ADDRESS, QUERY_LAG,
 * QUERY_Q_COUNTER.
 *
 *   QUERY_ADAPTER             cmd_in                            0x10    query_adapter_out            0x110
 *   QUERY_HCA_VPORT_CONTEXT   query_hca_vport_context_in        0x10    query_hca_vport_context_out  0x210    InfiniBand only
 *   QUERY_ROCE_ADDRESS        query_roce_address_in             0x10    query_roce_address_out       0x30     RoCE only
 *   QUERY_LAG                 cmd_in                            0x10    query_lag_out                0x10
 *   QUERY_Q_COUNTER           query_q_counter_in                0x20    query_q_counter_out          0x100    of an object
 *
 * Source: Linux's mlx5_ifc.h.
 */
#ifndef INLAY_DEVX_IFC_QUERY_H
#define INLAY_DEVX_IFC_QUERY_H

#include <inlay/base.h>
#include <inlay/devx/ifc/bits.h>
#include <inlay/devx/ifc/cmd.h>

/* The board. */
struct inlay_query_adapter_out {
	struct inlay_cmd_out cmd;
	uint32_t dword[8];
	uint8_t vsd[208]; /* vendor specific data */
	uint8_t psid[16]; /* vsd_contd_psid: parameter set, text */
};

enum inlay_query_adapter_out_field {
	INLAY_QUERY_ADAPTER_OUT_IEEE_VENDOR_ID = INLAY_BITS(0x148, 24),
	INLAY_QUERY_ADAPTER_OUT_VSD_VENDOR_ID = INLAY_BITS(0x170, 16)
};

INLAY_LAYOUT(query_adapter_out, 0x110);
INLAY_LAYOUT_AT(query_adapter_out, vsd, 0x180);
INLAY_LAYOUT_AT(query_adapter_out, psid, 0x800);

/* An InfiniBand port. */
struct inlay_query_hca_vport_context_in {
	struct inlay_cmd_in cmd;
};

enum inlay_query_hca_vport_context_in_field {
	INLAY_QUERY_HCA_VPORT_CONTEXT_IN_OTHER_VPORT = INLAY_BITS(0x40, 1), /* 0: one's own */
	INLAY_QUERY_HCA_VPORT_CONTEXT_IN_PORT_NUM = INLAY_BITS(0x4c, 4),    /* from 1, when the device has more than one */
	INLAY_QUERY_HCA_VPORT_CONTEXT_IN_VPORT_NUMBER = INLAY_BITS(0x50, 16)
};

INLAY_LAYOUT(query_hca_vport_context_in, 0x10);

struct inlay_hca_vport_context {
	uint32_t dword[128];
};

enum inlay_hca_vport_context_field {
	INLAY_HCA_VPORT_CONTEXT_FIELD_SELECT = INLAY_BITS(0x00, 32),
	INLAY_HCA_VPORT_CONTEXT_SM_VIRT_AWARE = INLAY_BITS(0x100, 1),
	INLAY_HCA_VPORT_CONTEXT_HAS_SMI = INLAY_BITS(0x101, 1),
	INLAY_HCA_VPORT_CONTEXT_HAS_RAW = INLAY_BITS(0x102, 1),
	INLAY_HCA_VPORT_CONTEXT_GRH_REQUIRED = INLAY_BITS(0x103, 1),
	INLAY_HCA_VPORT_CONTEXT_PORT_PHYSICAL_STATE = INLAY_BITS(0x110, 4),
	INLAY_HCA_VPORT_CONTEXT_VPORT_STATE_POLICY = INLAY_BITS(0x114, 4),
	INLAY_HCA_VPORT_CONTEXT_PORT_STATE = INLAY_BITS(0x118, 4),
	INLAY_HCA_VPORT_CONTEXT_VPORT_STATE = INLAY_BITS(0x11c, 4),
	INLAY_HCA_VPORT_CONTEXT_SYSTEM_IMAGE_GUID = INLAY_BITS(0x140, 64),
	INLAY_HCA_VPORT_CONTEXT_PORT_GUID = INLAY_BITS(0x180, 64),
	INLAY_HCA_VPORT_CONTEXT_NODE_GUID = INLAY_BITS(0x1c0, 64),
	INLAY_HCA_VPORT_CONTEXT_CAP_MASK1 = INLAY_BITS(0x200, 32),
	INLAY_HCA_VPORT_CONTEXT_CAP_MASK1_FIELD_SELECT = INLAY_BITS(0x220, 32),
	INLAY_HCA_VPORT_CONTEXT_CAP_MASK2 = INLAY_BITS(0x240, 32),
	INLAY_HCA_VPORT_CONTEXT_CAP_MASK2_FIELD_SELECT = INLAY_BITS(0x260, 32),
	INLAY_HCA_VPORT_CONTEXT_LID = INLAY_BITS(0x300, 16),
	INLAY_HCA_VPORT_CONTEXT_INIT_TYPE_REPLY = INLAY_BITS(0x314, 4),
	INLAY_HCA_VPORT_CONTEXT_LMC = INLAY_BITS(0x318, 3),
	INLAY_HCA_VPORT_CONTEXT_SUBNET_TIMEOUT = INLAY_BITS(0x31b, 5),
	INLAY_HCA_VPORT_CONTEXT_SM_LID = INLAY_BITS(0x320, 16),
	INLAY_HCA_VPORT_CONTEXT_SM_SL = INLAY_BITS(0x330, 4),
	INLAY_HCA_VPORT_CONTEXT_QKEY_VIOLATION_COUNTER = INLAY_BITS(0x340, 16),
	INLAY_HCA_VPORT_CONTEXT_PKEY_VIOLATION_COUNTER = INLAY_BITS(0x350, 16)
};

INLAY_LAYOUT(hca_vport_context, 0x200);

struct inlay_query_hca_vport_context_out {
	struct inlay_cmd_out cmd;
	struct inlay_hca_vport_context ctx;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_query_hca_vport_context_out) == 0x210, "the size of struct inlay_query_hca_vport_context_out");
INLAY_LAYOUT_AT(query_hca_vport_context_out, ctx, 0x80);

/* An entry of a RoCE port's GID table. */
struct inlay_query_roce_address_in {
	struct inlay_cmd_in cmd;
};

enum inlay_query_roce_address_in_field {
	INLAY_QUERY_ROCE_ADDRESS_IN_ROCE_ADDRESS_INDEX = INLAY_BITS(0x40, 16),
	INLAY_QUERY_ROCE_ADDRESS_IN_VHCA_PORT_NUM = INLAY_BITS(0x5c, 4)
};

INLAY_LAYOUT(query_roce_address_in, 0x10);

struct inlay_roce_addr {
	uint8_t source_l3_address[16]; /* GID, as on the wire */
	uint32_t dword[4];
};

enum inlay_roce_addr_field {
	INLAY_ROCE_ADDR_VLAN_VALID = INLAY_BITS(0x83, 1),
	INLAY_ROCE_ADDR_VLAN_ID = INLAY_BITS(0x84, 12),
	INLAY_ROCE_ADDR_SOURCE_MAC_47_32 = INLAY_BITS(0x90, 16),
	INLAY_ROCE_ADDR_SOURCE_MAC_31_0 = INLAY_BITS(0xa0, 32),
	INLAY_ROCE_ADDR_ROCE_L3_TYPE = INLAY_BITS(0xd4, 4), /* 0 IPv4, 1 IPv6 */
	INLAY_ROCE_ADDR_ROCE_VERSION = INLAY_BITS(0xd8, 8)  /* 0 v1, 2 v2 */
};

INLAY_LAYOUT(roce_addr, 0x20);
INLAY_LAYOUT_AT(roce_addr, source_l3_address, 0);

struct inlay_query_roce_address_out {
	struct inlay_cmd_out cmd;
	struct inlay_roce_addr addr;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_query_roce_address_out) == 0x30, "the size of struct inlay_query_roce_address_out");
INLAY_LAYOUT_AT(query_roce_address_out, addr, 0x80);

/* Link aggregation: two ports as one. */
struct inlay_query_lag_out {
	struct inlay_cmd_out cmd;
};

enum inlay_query_lag_out_field {
	INLAY_QUERY_LAG_OUT_FDB_SELECTION_MODE = INLAY_BITS(0x40, 1),
	INLAY_QUERY_LAG_OUT_PORT_SELECT_MODE = INLAY_BITS(0x55, 3),
	INLAY_QUERY_LAG_OUT_LAG_STATE = INLAY_BITS(0x5d, 3), /* 0 off */
	INLAY_QUERY_LAG_OUT_ACTIVE_PORT = INLAY_BITS(0x6c, 4),
	INLAY_QUERY_LAG_OUT_TX_REMAP_AFFINITY_2 = INLAY_BITS(0x74, 4),
	INLAY_QUERY_LAG_OUT_TX_REMAP_AFFINITY_1 = INLAY_BITS(0x7c, 4)
};

INLAY_LAYOUT(query_lag_out, 0x10);

/* Counters of a set of QPs. */
struct inlay_query_q_counter_in {
	struct inlay_cmd_in cmd;
	uint32_t dword[4];
};

enum inlay_query_q_counter_in_field {
	INLAY_QUERY_Q_COUNTER_IN_CLEAR = INLAY_BITS(0xc0, 1),
	INLAY_QUERY_Q_COUNTER_IN_COUNTER_SET_ID = INLAY_BITS(0xf8, 8)
};

INLAY_LAYOUT(query_q_counter_in, 0x20);

struct inlay_query_q_counter_out {
	struct inlay_cmd_out cmd;
	uint32_t dword[60];
};

enum inlay_query_q_counter_out_field {
	INLAY_QUERY_Q_COUNTER_OUT_RX_WRITE_REQUESTS = INLAY_BITS(0x80, 32),
	INLAY_QUERY_Q_COUNTER_OUT_RX_READ_REQUESTS = INLAY_BITS(0xc0, 32),
	INLAY_QUERY_Q_COUNTER_OUT_RX_ATOMIC_REQUESTS = INLAY_BITS(0x100, 32),
	INLAY_QUERY_Q_COUNTER_OUT_RX_DCT_CONNECT = INLAY_BITS(0x140, 32),
	INLAY_QUERY_Q_COUNTER_OUT_OUT_OF_BUFFER = INLAY_BITS(0x180, 32),
	INLAY_QUERY_Q_COUNTER_OUT_OUT_OF_SEQUENCE = INLAY_BITS(0x1c0, 32),
	INLAY_QUERY_Q_COUNTER_OUT_DUPLICATE_REQUEST = INLAY_BITS(0x200, 32),
	INLAY_QUERY_Q_COUNTER_OUT_RNR_NAK_RETRY_ERR = INLAY_BITS(0x240, 32),
	INLAY_QUERY_Q_COUNTER_OUT_PACKET_SEQ_ERR = INLAY_BITS(0x280, 32),
	INLAY_QUERY_Q_COUNTER_OUT_IMPLIED_NAK_SEQ_ERR = INLAY_BITS(0x2c0, 32),
	INLAY_QUERY_Q_COUNTER_OUT_LOCAL_ACK_TIMEOUT_ERR = INLAY_BITS(0x300, 32),
	INLAY_QUERY_Q_COUNTER_OUT_RESP_LOCAL_LENGTH_ERROR = INLAY_BITS(0x3c0, 32),
	INLAY_QUERY_Q_COUNTER_OUT_REQ_LOCAL_LENGTH_ERROR = INLAY_BITS(0x3e0, 32),
	INLAY_QUERY_Q_COUNTER_OUT_RESP_LOCAL_QP_ERROR = INLAY_BITS(0x400, 32),
	INLAY_QUERY_Q_COUNTER_OUT_LOCAL_OPERATION_ERROR = INLAY_BITS(0x420, 32),
	INLAY_QUERY_Q_COUNTER_OUT_RESP_LOCAL_PROTECTION = INLAY_BITS(0x440, 32),
	INLAY_QUERY_Q_COUNTER_OUT_REQ_LOCAL_PROTECTION = INLAY_BITS(0x460, 32),
	INLAY_QUERY_Q_COUNTER_OUT_RESP_CQE_ERROR = INLAY_BITS(0x480, 32),
	INLAY_QUERY_Q_COUNTER_OUT_REQ_CQE_ERROR = INLAY_BITS(0x4a0, 32),
	INLAY_QUERY_Q_COUNTER_OUT_REQ_MW_BINDING = INLAY_BITS(0x4c0, 32),
	INLAY_QUERY_Q_COUNTER_OUT_REQ_BAD_RESPONSE = INLAY_BITS(0x4e0, 32),
	INLAY_QUERY_Q_COUNTER_OUT_REQ_REMOTE_INVALID_REQUEST = INLAY_BITS(0x500, 32),
	INLAY_QUERY_Q_COUNTER_OUT_RESP_REMOTE_INVALID_REQUEST = INLAY_BITS(0x520, 32),
	INLAY_QUERY_Q_COUNTER_OUT_REQ_REMOTE_ACCESS_ERRORS = INLAY_BITS(0x540, 32),
	INLAY_QUERY_Q_COUNTER_OUT_RESP_REMOTE_ACCESS_ERRORS = INLAY_BITS(0x560, 32),
	INLAY_QUERY_Q_COUNTER_OUT_REQ_REMOTE_OPERATION_ERRORS = INLAY_BITS(0x580, 32),
	INLAY_QUERY_Q_COUNTER_OUT_REQ_TRANSPORT_RETRIES_EXCEEDED = INLAY_BITS(0x5a0, 32),
	INLAY_QUERY_Q_COUNTER_OUT_CQ_OVERFLOW = INLAY_BITS(0x5c0, 32),
	INLAY_QUERY_Q_COUNTER_OUT_RESP_CQE_FLUSH_ERROR = INLAY_BITS(0x5e0, 32),
	INLAY_QUERY_Q_COUNTER_OUT_REQ_CQE_FLUSH_ERROR = INLAY_BITS(0x600, 32),
	INLAY_QUERY_Q_COUNTER_OUT_ROCE_ADP_RETRANS = INLAY_BITS(0x640, 32),
	INLAY_QUERY_Q_COUNTER_OUT_ROCE_ADP_RETRANS_TO = INLAY_BITS(0x660, 32),
	INLAY_QUERY_Q_COUNTER_OUT_ROCE_SLOW_RESTART = INLAY_BITS(0x680, 32),
	INLAY_QUERY_Q_COUNTER_OUT_ROCE_SLOW_RESTART_CNPS = INLAY_BITS(0x6a0, 32),
	INLAY_QUERY_Q_COUNTER_OUT_ROCE_SLOW_RESTART_TRANS = INLAY_BITS(0x6c0, 32)
};

INLAY_LAYOUT(query_q_counter_out, 0x100);

#endif
