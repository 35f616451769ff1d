/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc/wq.h: work queues, and receive memory pools (RMP): CREATE_RMP, MODIFY_RMP,
 * QUERY_RMP.
 *
 *   create_rmp_in    cmd | ... | rmpc: its own fields | wq. MODIFY_RMP: rmpn and the present state
 *                    in cmd, then a mask; the new state in rmpc
 *   query_rmp_out    cmd | ... | rmpc
 *
 * A work queue is 2^log_wq_sz entries of 2^log_wq_stride bytes at wq_umem_offset of wq_umem_id, and
 * an 8-byte doorbell record at dbr_addr of dbr_umem_id: dword 0 the receive counter, dword 1 the
 * send counter. The XRQ of srq.h has a work queue too.
 *
 * A verbs SRQ is an RMP: QPs name it by number (rq_type SHARED); receives complete to the QPs' CQs.
 * It is created in state RDY. Setting lwm by MODIFY_RMP arms its limit event.
 */
#ifndef INLAY_DEVX_IFC_WQ_H
#define INLAY_DEVX_IFC_WQ_H

#include <inlay/devx/ifc/cmd.h>

/* Work queue, a part of contexts */
struct inlay_wqc {
	uint32_t dword[48];
};

enum inlay_wqc_field {
	INLAY_WQC_WQ_TYPE = INLAY_BITS(0x00, 4),              /* enum inlay_wq_type */
	INLAY_WQC_LWM = INLAY_BITS(0x30, 16),                 /* limit: an event when fewer entries are left */
	INLAY_WQC_PD = INLAY_BITS(0x48, 24),
	INLAY_WQC_DBR_ADDR = INLAY_BITS(0x80, 64),            /* bytes in the umem, a multiple of 8 */
	INLAY_WQC_HW_COUNTER = INLAY_BITS(0xc0, 32),          /* query */
	INLAY_WQC_SW_COUNTER = INLAY_BITS(0xe0, 32),          /* query */
	INLAY_WQC_LOG_WQ_STRIDE = INLAY_BITS(0x10c, 4),       /* log2 of an entry's bytes (a QP context has 4 less) */
	INLAY_WQC_LOG_WQ_SZ = INLAY_BITS(0x11b, 5),           /* log2 of the entries; SQ: of the WQEBBs */
	INLAY_WQC_DBR_UMEM_VALID = INLAY_BITS(0x120, 1),      /* the kernel sets it */
	INLAY_WQC_WQ_UMEM_VALID = INLAY_BITS(0x121, 1),       /* the kernel sets it */
	INLAY_WQC_LOG_WQE_NUM_OF_STRIDES = INLAY_BITS(0x134, 4), /* log2 of a striding WQE's strides, minus 9, signed */
	INLAY_WQC_TWO_BYTE_SHIFT_EN = INLAY_BITS(0x138, 1),   /* each packet begins 2 bytes into its stride */
	INLAY_WQC_LOG_WQE_STRIDE_SIZE = INLAY_BITS(0x13d, 3), /* log2 of a stride's bytes, minus 6 */
	INLAY_WQC_DBR_UMEM_ID = INLAY_BITS(0x140, 32),
	INLAY_WQC_WQ_UMEM_ID = INLAY_BITS(0x160, 32),
	INLAY_WQC_WQ_UMEM_OFFSET = INLAY_BITS(0x180, 64)      /* bytes */
};

INLAY_LAYOUT(wqc, 0xc0);

enum inlay_wq_type {
	INLAY_WQ_LINKED_LIST = 0, INLAY_WQ_CYCLIC = 1, INLAY_WQ_STRIDING = 2 /* or'ed to either */
};

/* The state of an RMP, an RQ, an SQ. */
enum inlay_wq_state {
	INLAY_WQ_STATE_RST = 0, INLAY_WQ_STATE_RDY = 1, INLAY_WQ_STATE_ERR = 3
};

/* ---- RMP ---- */

struct inlay_rmpc {
	uint32_t dword[12];
	struct inlay_wqc wq;
};

enum inlay_rmpc_field {
	INLAY_RMPC_STATE = INLAY_BITS(0x08, 4) /* enum inlay_wq_state; create: RDY */
};

INLAY_LAYOUT(rmpc, 0xf0);
INLAY_LAYOUT_AT(rmpc, wq, 0x180);

struct inlay_create_rmp_in {
	struct inlay_cmd_in cmd;
	uint32_t dword[4];
	struct inlay_rmpc rmpc;
};

enum inlay_create_rmp_in_field { /* both for MODIFY_RMP alone */
	INLAY_CREATE_RMP_IN_RMP_STATE = INLAY_BITS(0x40, 4),  /* the present one */
	INLAY_CREATE_RMP_IN_BITMASK_LWM = INLAY_BITS(0xbf, 1) /* take lwm, which arms the limit */
};

INLAY_LAYOUT(create_rmp_in, 0x110);
INLAY_LAYOUT_AT(create_rmp_in, rmpc, 0x100);

struct inlay_query_rmp_out {
	struct inlay_cmd_out cmd;
	uint32_t dword[4];
	struct inlay_rmpc rmpc;
};

INLAY_LAYOUT_SIZE(query_rmp_out, 0x110);
INLAY_LAYOUT_AT(query_rmp_out, rmpc, 0x100);

#endif
