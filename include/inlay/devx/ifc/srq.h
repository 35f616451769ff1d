/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc/srq.h: shared receive queues with tag matching (XRQ), dynamically connected
 * targets (DCT).
 *
 *   create_xrq_in   cmd | xrqc: its own fields, tag-matching context, wq
 *   create_dct_in   cmd | dctc | ...
 *
 * XRQ. Its wq is an ordinary shared receive queue, for messages that match no tag; cqn is the CQ of
 * these messages and of list operations. See devx/xrq.h.
 *
 * DCT. One command makes it ready: no transitions, no umem, no UAR. When it is destroyed, the
 * kernel waits for its drained event.
 */
#ifndef INLAY_DEVX_IFC_SRQ_H
#define INLAY_DEVX_IFC_SRQ_H

#include <inlay/devx/ifc/wq.h>

/* ---- XRQ ---- */

struct inlay_xrqc {
	uint32_t dword[32];
	struct inlay_wqc wq;
};

enum inlay_xrqc_field {
	INLAY_XRQC_STATE = INLAY_BITS(0x00, 4),    /* 0 good, 1 error */
	INLAY_XRQC_TOPOLOGY = INLAY_BITS(0x14, 4), /* enum inlay_xrq_topology */
	INLAY_XRQC_OFFLOAD = INLAY_BITS(0x1c, 4),  /* enum inlay_xrq_offload */
	INLAY_XRQC_USER_INDEX = INLAY_BITS(0x28, 24),
	INLAY_XRQC_CQN = INLAY_BITS(0x48, 24),
	INLAY_XRQC_DC = INLAY_BITS(0x7f, 1),       /* serves DCTs */
	INLAY_XRQC_LOG_MATCHING_LIST_SZ = INLAY_BITS(0x100, 4) /* log2 of the list; twice the tags that are wanted */
};

INLAY_LAYOUT(xrqc, 0x140);
INLAY_LAYOUT_AT(xrqc, wq, 0x400);

enum inlay_xrq_topology {
	INLAY_XRQ_TOPOLOGY_TAG_MATCHING = 1
};

enum inlay_xrq_offload {
	INLAY_XRQ_OFFLOAD_NONE = 0, INLAY_XRQ_OFFLOAD_RNDV = 1
};

struct inlay_create_xrq_in {
	struct inlay_cmd_in cmd;
	struct inlay_xrqc xrqc;
};

INLAY_LAYOUT_SIZE(create_xrq_in, 0x150);
INLAY_LAYOUT_AT(create_xrq_in, xrqc, 0x80);

struct inlay_query_xrq_out {
	struct inlay_cmd_out cmd;
	struct inlay_xrqc xrqc;
};

INLAY_LAYOUT_SIZE(query_xrq_out, 0x150);
INLAY_LAYOUT_AT(query_xrq_out, xrqc, 0x80);

/* ---- DCT ---- */

struct inlay_dctc {
	uint32_t dword[16];
};

enum inlay_dctc_field {
	INLAY_DCTC_STATE = INLAY_BITS(0x04, 4),          /* query: 0 active, 1 draining, 2 drained */
	INLAY_DCTC_OFFLOAD_TYPE = INLAY_BITS(0x18, 4),   /* 1: on a tag-matching XRQ */
	INLAY_DCTC_USER_INDEX = INLAY_BITS(0x28, 24),
	INLAY_DCTC_CQN = INLAY_BITS(0x48, 24),
	INLAY_DCTC_COUNTER_SET_ID = INLAY_BITS(0x60, 8),
	INLAY_DCTC_ATOMIC_MODE = INLAY_BITS(0x68, 4),    /* enum inlay_atomic_mode */
	INLAY_DCTC_RRE = INLAY_BITS(0x6c, 1),
	INLAY_DCTC_RWE = INLAY_BITS(0x6d, 1),
	INLAY_DCTC_RAE = INLAY_BITS(0x6e, 1),
	INLAY_DCTC_DP_ORDERING_1 = INLAY_BITS(0x74, 1),  /* messages in any order */
	INLAY_DCTC_CS_RES = INLAY_BITS(0x88, 8),         /* enum inlay_cs_res, without UP_TO_32 */
	INLAY_DCTC_MIN_RNR_NAK = INLAY_BITS(0x93, 5),
	INLAY_DCTC_SRQN_XRQN = INLAY_BITS(0xa8, 24),     /* required */
	INLAY_DCTC_PD = INLAY_BITS(0xc8, 24),
	INLAY_DCTC_TCLASS = INLAY_BITS(0xe0, 8),
	INLAY_DCTC_FLOW_LABEL = INLAY_BITS(0xec, 20),
	INLAY_DCTC_DC_ACCESS_KEY = INLAY_BITS(0x100, 64),
	INLAY_DCTC_MTU = INLAY_BITS(0x145, 3),
	INLAY_DCTC_PORT = INLAY_BITS(0x148, 8),
	INLAY_DCTC_PKEY_INDEX = INLAY_BITS(0x150, 16),
	INLAY_DCTC_MY_ADDR_INDEX = INLAY_BITS(0x168, 8), /* GID index */
	INLAY_DCTC_HOP_LIMIT = INLAY_BITS(0x178, 8),
	INLAY_DCTC_ETH_PRIO = INLAY_BITS(0x1b5, 3),
	INLAY_DCTC_DSCP = INLAY_BITS(0x1ba, 6)
};

INLAY_LAYOUT(dctc, 0x40);

struct inlay_create_dct_in {
	struct inlay_cmd_in cmd;
	struct inlay_dctc dctc;
	uint32_t dword[12];
};

INLAY_LAYOUT_SIZE(create_dct_in, 0x80);
INLAY_LAYOUT_AT(create_dct_in, dctc, 0x80);

struct inlay_query_dct_out {
	struct inlay_cmd_out cmd;
	struct inlay_dctc dctc;
	uint32_t dword[12];
};

INLAY_LAYOUT_SIZE(query_dct_out, 0x80);
INLAY_LAYOUT_AT(query_dct_out, dctc, 0x80);

#endif
