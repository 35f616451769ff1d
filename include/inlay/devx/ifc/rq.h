/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc/rq.h: receive queues of packets and the objects that lead packets to them:
 * CREATE_RQ, MODIFY_RQ, QUERY_RQ, CREATE_RQT, CREATE_TIR; and the fields that a flow rule matches.
 *
 *   create_rq_in     cmd | ... | rqc: its own fields, wq. MODIFY_RQ: rqn and the present state in
 *                    cmd; the new state in rqc
 *   query_rq_out     cmd | ... | rqc
 *   create_rqt_in    cmd | ... | rqtc | a dword for each RQ, its number in the low 24 bits
 *   create_tir_in    cmd | ... | tirc
 *
 * An RQ has a work queue of its own or takes entries of an RMP (wq.h). A TIR leads packets to one
 * RQ, or chooses one of an RQT's by a hash of headers. It needs a transport domain
 * (ALLOC_TRANSPORT_DOMAIN). A flow rule names it by its object: MLX5DV_FLOW_ACTION_DEST_DEVX.
 */
#ifndef INLAY_DEVX_IFC_RQ_H
#define INLAY_DEVX_IFC_RQ_H

#include <inlay/devx/ifc/wq.h>

/* ---- RQ ---- */

struct inlay_rqc {
	uint32_t dword[12];
	struct inlay_wqc wq;
};

enum inlay_rqc_field {
	INLAY_RQC_VSD = INLAY_BITS(0x03, 1),               /* VLAN tags stay in the packet */
	INLAY_RQC_MEM_RQ_TYPE = INLAY_BITS(0x04, 4),       /* 1: entries are an RMP's */
	INLAY_RQC_STATE = INLAY_BITS(0x08, 4),             /* enum inlay_wq_state; create: RST */
	INLAY_RQC_FLUSH_IN_ERROR_EN = INLAY_BITS(0x0d, 1), /* a flush CQE for each WQE left when it stops */
	INLAY_RQC_USER_INDEX = INLAY_BITS(0x28, 24),
	INLAY_RQC_CQN = INLAY_BITS(0x48, 24),
	INLAY_RQC_RMPN = INLAY_BITS(0x88, 24)
};

INLAY_LAYOUT(rqc, 0xf0);
INLAY_LAYOUT_AT(rqc, wq, 0x180);

struct inlay_create_rq_in {
	struct inlay_cmd_in cmd;
	uint32_t dword[4];
	struct inlay_rqc rqc;
};

enum inlay_create_rq_in_field {
	INLAY_CREATE_RQ_IN_RQ_STATE = INLAY_BITS(0x40, 4) /* MODIFY_RQ: the present one */
};

INLAY_LAYOUT(create_rq_in, 0x110);
INLAY_LAYOUT_AT(create_rq_in, rqc, 0x100);

struct inlay_query_rq_out {
	struct inlay_cmd_out cmd;
	uint32_t dword[4];
	struct inlay_rqc rqc;
};

INLAY_LAYOUT_SIZE(query_rq_out, 0x110);
INLAY_LAYOUT_AT(query_rq_out, rqc, 0x100);

/* ---- RQT ---- */

struct inlay_rqtc {
	uint32_t dword[60];
};

enum inlay_rqtc_field {
	INLAY_RQTC_RQT_MAX_SIZE = INLAY_BITS(0xb0, 16),   /* RQs, a power of two */
	INLAY_RQTC_RQT_ACTUAL_SIZE = INLAY_BITS(0xd0, 16)
};

INLAY_LAYOUT(rqtc, 0xf0);

struct inlay_create_rqt_in {
	struct inlay_cmd_in cmd;
	uint32_t dword[4];
	struct inlay_rqtc rqtc;
};

INLAY_LAYOUT_SIZE(create_rqt_in, 0x110);
INLAY_LAYOUT_AT(create_rqt_in, rqtc, 0x100);

/* ---- TIR ---- */

struct inlay_rx_hash_field_select {
	uint32_t dword[1];
};

enum inlay_rx_hash_field_select_field {
	INLAY_RX_HASH_FIELD_SELECT_L3_PROT_TYPE = INLAY_BITS(0x00, 1),  /* 0 IPv4, 1 IPv6 */
	INLAY_RX_HASH_FIELD_SELECT_L4_PROT_TYPE = INLAY_BITS(0x01, 1),  /* 0 TCP, 1 UDP */
	INLAY_RX_HASH_FIELD_SELECT_SELECTED_FIELDS = INLAY_BITS(0x02, 30) /* 1, 2: addresses, source first; 4, 8: ports */
};

INLAY_LAYOUT(rx_hash_field_select, 0x04);

struct inlay_tirc {
	uint32_t dword[10];
	uint8_t rx_hash_toeplitz_key[40];
	struct inlay_rx_hash_field_select outer;
	uint32_t more[39];
};

enum inlay_tirc_field {
	INLAY_TIRC_DISP_TYPE = INLAY_BITS(0x20, 4),        /* 0: to inline_rqn, 1: by indirect_table */
	INLAY_TIRC_INLINE_RQN = INLAY_BITS(0xe8, 24),
	INLAY_TIRC_INDIRECT_TABLE = INLAY_BITS(0x108, 24), /* number of the RQT */
	INLAY_TIRC_RX_HASH_FN = INLAY_BITS(0x120, 4),      /* 2: Toeplitz */
	INLAY_TIRC_TRANSPORT_DOMAIN = INLAY_BITS(0x128, 24)
};

INLAY_LAYOUT(tirc, 0xf0);
INLAY_LAYOUT_AT(tirc, rx_hash_toeplitz_key, 0x140);
INLAY_LAYOUT_AT(tirc, outer, 0x280);

struct inlay_create_tir_in {
	struct inlay_cmd_in cmd;
	uint32_t dword[4];
	struct inlay_tirc tirc;
};

INLAY_LAYOUT_SIZE(create_tir_in, 0x110);
INLAY_LAYOUT_AT(create_tir_in, tirc, 0x100);

/* ---- What a rule matches: mask and value of mlx5dv_create_flow_matcher, mlx5dv_create_flow ---- */

struct inlay_fte_match_set_lyr_2_4 {
	uint32_t dword[8]; /* the destination MAC is bytes 8 .. 13 */
	uint8_t src[16];   /* an IPv4 address in the last 4 bytes */
	uint8_t dst[16];
};

enum inlay_fte_match_set_lyr_2_4_field {
	INLAY_FTE_MATCH_SET_LYR_2_4_ETHERTYPE = INLAY_BITS(0x30, 16),
	INLAY_FTE_MATCH_SET_LYR_2_4_FIRST_VID = INLAY_BITS(0x74, 12),
	INLAY_FTE_MATCH_SET_LYR_2_4_IP_PROTOCOL = INLAY_BITS(0x80, 8),
	INLAY_FTE_MATCH_SET_LYR_2_4_CVLAN_TAG = INLAY_BITS(0x90, 1),
	INLAY_FTE_MATCH_SET_LYR_2_4_TCP_SPORT = INLAY_BITS(0xa0, 16),
	INLAY_FTE_MATCH_SET_LYR_2_4_TCP_DPORT = INLAY_BITS(0xb0, 16),
	INLAY_FTE_MATCH_SET_LYR_2_4_UDP_SPORT = INLAY_BITS(0xe0, 16),
	INLAY_FTE_MATCH_SET_LYR_2_4_UDP_DPORT = INLAY_BITS(0xf0, 16)
};

INLAY_LAYOUT(fte_match_set_lyr_2_4, 0x40);
INLAY_LAYOUT_AT(fte_match_set_lyr_2_4, src, 0x100);
INLAY_LAYOUT_AT(fte_match_set_lyr_2_4, dst, 0x180);

#endif
