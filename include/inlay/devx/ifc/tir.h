/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc/tir.h: what stands between raw queues and the wire: transport interfaces, send (TIS) and receive (TIR), and tables of
 * receive queues (RQT).
 *
 *   SQ -> TIS -> wire        wire -> TIR -> RQ, or -> RQT -> one RQ of a list, by a hash
 *
 *   create_tis_in   cmd | tisc      0xc0          create_tir_in   cmd | tirc   0x110
 *   create_rqt_in   cmd | rqtc      0x110         then rqt_actual_size entries of struct inlay_rq_num
 *
 * All belong to a transport domain (ALLOC_TRANSPORT_DOMAIN).
 *
 * Source: Linux's mlx5_ifc.h.
 */
#ifndef INLAY_DEVX_IFC_TIR_H
#define INLAY_DEVX_IFC_TIR_H

#include <inlay/base.h>
#include <inlay/devx/ifc/bits.h>
#include <inlay/devx/ifc/cmd.h>

/* ------------------------------------------------------------------------------------------------------------------------
 * TIS
 */
struct inlay_tisc {
	uint32_t dword[40];
};

enum inlay_tisc_field {
	INLAY_TISC_STRICT_LAG_TX_PORT_AFFINITY = INLAY_BITS(0x00, 1),
	INLAY_TISC_TLS_EN = INLAY_BITS(0x01, 1),
	INLAY_TISC_LAG_TX_PORT_AFFINITY = INLAY_BITS(0x04, 4),
	INLAY_TISC_PRIO = INLAY_BITS(0x0c, 4),
	INLAY_TISC_TRANSPORT_DOMAIN = INLAY_BITS(0x128, 24),
	INLAY_TISC_UNDERLAY_QPN = INLAY_BITS(0x148, 24), /* IPoIB */
	INLAY_TISC_PD = INLAY_BITS(0x168, 24)
};

INLAY_LAYOUT(tisc, 0xa0);

struct inlay_create_tis_in {
	struct inlay_cmd_in cmd;
	uint32_t dword[4];
	struct inlay_tisc tisc;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_create_tis_in) == 0xc0, "the size of struct inlay_create_tis_in");
INLAY_LAYOUT_AT(create_tis_in, tisc, 0x100);

struct inlay_modify_tis_in {
	struct inlay_cmd_in cmd; /* NUMBER: tisn */
	uint32_t dword[4];
	struct inlay_tisc tisc;
};

enum inlay_modify_tis_in_field {
	INLAY_MODIFY_TIS_IN_BITMASK_LAG_TX_PORT_AFFINITY = INLAY_BITS(0xbd, 1),
	INLAY_MODIFY_TIS_IN_BITMASK_STRICT_LAG_TX_PORT_AFFINITY = INLAY_BITS(0xbe, 1),
	INLAY_MODIFY_TIS_IN_BITMASK_PRIO = INLAY_BITS(0xbf, 1)
};

INLAY_LAYOUT(modify_tis_in, 0xc0);
INLAY_LAYOUT_AT(modify_tis_in, tisc, 0x100);

/* Its context is 16 bytes nearer to the beginning than in the inboxes. */
struct inlay_query_tis_out {
	struct inlay_cmd_out cmd;
	struct inlay_tisc tisc;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_query_tis_out) == 0xb0, "the size of struct inlay_query_tis_out");
INLAY_LAYOUT_AT(query_tis_out, tisc, 0x80);

/* ------------------------------------------------------------------------------------------------------------------------
 * TIR
 */

/* What of a packet goes into the hash */
struct inlay_rx_hash {
	uint32_t dword[1];
};

enum inlay_rx_hash_field {
	INLAY_RX_HASH_L3_PROT_TYPE = INLAY_BITS(0x00, 1),   /* 0 IPv4, 1 IPv6 */
	INLAY_RX_HASH_L4_PROT_TYPE = INLAY_BITS(0x01, 1),   /* 0 TCP, 1 UDP */
	INLAY_RX_HASH_SELECTED_FIELDS = INLAY_BITS(0x02, 30) /* enum inlay_rx_hash_select */
};

INLAY_LAYOUT(rx_hash, 0x04);

enum inlay_rx_hash_select {
	INLAY_RX_HASH_SRC_IP = 1 << 0,
	INLAY_RX_HASH_DST_IP = 1 << 1,
	INLAY_RX_HASH_L4_SPORT = 1 << 2,
	INLAY_RX_HASH_L4_DPORT = 1 << 3,
	INLAY_RX_HASH_IPSEC_SPI = 1 << 4
};

struct inlay_tirc {
	uint32_t dword[10];
	uint8_t rx_hash_toeplitz_key[40];
	struct inlay_rx_hash outer; /* rx_hash_field_selector_outer */
	struct inlay_rx_hash inner; /* rx_hash_field_selector_inner */
	uint32_t more[38];
};

enum inlay_tirc_field {
	INLAY_TIRC_DISP_TYPE = INLAY_BITS(0x20, 4),          /* 0 inline_rqn, 1 indirect_table */
	INLAY_TIRC_TLS_EN = INLAY_BITS(0x24, 1),
	INLAY_TIRC_LRO_TIMEOUT_PERIOD_USECS = INLAY_BITS(0x84, 16),
	INLAY_TIRC_PACKET_MERGE_MASK = INLAY_BITS(0x94, 4),  /* bit 0 IPv4 LRO, bit 1 IPv6 LRO */
	INLAY_TIRC_LRO_MAX_IP_PAYLOAD_SIZE = INLAY_BITS(0x98, 8),
	INLAY_TIRC_INLINE_RQN = INLAY_BITS(0xe8, 24),
	INLAY_TIRC_RX_HASH_SYMMETRIC = INLAY_BITS(0x100, 1),
	INLAY_TIRC_TUNNELED_OFFLOAD_EN = INLAY_BITS(0x102, 1),
	INLAY_TIRC_INDIRECT_TABLE = INLAY_BITS(0x108, 24),   /* an RQT's number */
	INLAY_TIRC_RX_HASH_FN = INLAY_BITS(0x120, 4),        /* 0 none, 1 inverted XOR, 2 Toeplitz */
	INLAY_TIRC_SELF_LB_BLOCK = INLAY_BITS(0x126, 2),     /* bit 0 unicast, bit 1 multicast */
	INLAY_TIRC_TRANSPORT_DOMAIN = INLAY_BITS(0x128, 24)
};

INLAY_LAYOUT(tirc, 0xf0);
INLAY_LAYOUT_AT(tirc, rx_hash_toeplitz_key, 0x140);
INLAY_LAYOUT_AT(tirc, outer, 0x280);
INLAY_LAYOUT_AT(tirc, inner, 0x2a0);

struct inlay_create_tir_in {
	struct inlay_cmd_in cmd;
	uint32_t dword[4];
	struct inlay_tirc tirc;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_create_tir_in) == 0x110, "the size of struct inlay_create_tir_in");
INLAY_LAYOUT_AT(create_tir_in, tirc, 0x100);

struct inlay_modify_tir_in {
	struct inlay_cmd_in cmd; /* NUMBER: tirn */
	uint32_t dword[4];
	struct inlay_tirc tirc;
};

enum inlay_modify_tir_in_field {
	INLAY_MODIFY_TIR_IN_BITMASK_SELF_LB_EN = INLAY_BITS(0xbb, 1),
	INLAY_MODIFY_TIR_IN_BITMASK_HASH = INLAY_BITS(0xbd, 1),
	INLAY_MODIFY_TIR_IN_BITMASK_PACKET_MERGE = INLAY_BITS(0xbf, 1)
};

INLAY_LAYOUT(modify_tir_in, 0x110);
INLAY_LAYOUT_AT(modify_tir_in, tirc, 0x100);

struct inlay_query_tir_out {
	struct inlay_cmd_out cmd;
	uint32_t dword[4];
	struct inlay_tirc tirc;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_query_tir_out) == 0x110, "the size of struct inlay_query_tir_out");
INLAY_LAYOUT_AT(query_tir_out, tirc, 0x100);

/* ------------------------------------------------------------------------------------------------------------------------
 * RQT
 */

/* An entry of the list */
struct inlay_rq_num {
	uint32_t dword[1];
};

enum inlay_rq_num_field {
	INLAY_RQ_NUM_RQ_NUM = INLAY_BITS(0x08, 24)
};

INLAY_LAYOUT(rq_num, 0x04);

struct inlay_rqtc {
	uint32_t dword[60];
};

enum inlay_rqtc_field {
	INLAY_RQTC_LIST_Q_TYPE = INLAY_BITS(0xa5, 3),
	INLAY_RQTC_RQT_MAX_SIZE = INLAY_BITS(0xb0, 16),
	INLAY_RQTC_RQ_VHCA_ID_FORMAT = INLAY_BITS(0xc0, 1),
	INLAY_RQTC_RQT_ACTUAL_SIZE = INLAY_BITS(0xd0, 16)
};

INLAY_LAYOUT(rqtc, 0xf0);

struct inlay_create_rqt_in {
	struct inlay_cmd_in cmd;
	uint32_t dword[4];
	struct inlay_rqtc rqtc; /* the list follows */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_create_rqt_in) == 0x110, "the size of struct inlay_create_rqt_in");
INLAY_LAYOUT_AT(create_rqt_in, rqtc, 0x100);

struct inlay_modify_rqt_in {
	struct inlay_cmd_in cmd; /* NUMBER: rqtn */
	uint32_t dword[4];
	struct inlay_rqtc rqtc;  /* the list follows */
};

enum inlay_modify_rqt_in_field {
	INLAY_MODIFY_RQT_IN_BITMASK_RQN_LIST = INLAY_BITS(0xbf, 1)
};

INLAY_LAYOUT(modify_rqt_in, 0x110);
INLAY_LAYOUT_AT(modify_rqt_in, rqtc, 0x100);

struct inlay_query_rqt_out {
	struct inlay_cmd_out cmd;
	uint32_t dword[4];
	struct inlay_rqtc rqtc; /* the list follows */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_query_rqt_out) == 0x110, "the size of struct inlay_query_rqt_out");
INLAY_LAYOUT_AT(query_rqt_out, rqtc, 0x100);

#endif
