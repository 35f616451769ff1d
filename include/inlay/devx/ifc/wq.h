/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc/wq.h: work queues of their own: receive memory pools (RMP), send queues (SQ), receive queues (RQ).
 *
 *   create_rmp_in, create_sq_in, create_rq_in    cmd | ... | context: its own fields | wq
 *   modify_...                                   cmd: present state, number | mask | ... | context: new state | wq
 *   query_..._out                                cmd | ... | context
 *
 * All three contexts, and the XRQ's of srq.h, hold the same work queue: 2^log_wq_sz entries of 2^log_wq_stride bytes at wq_umem_offset of
 * wq_umem_id, and an 8-byte doorbell record at dbr_addr of dbr_umem_id (dword 0 receive counter, dword 1 send counter).
 *
 * An RMP is what a verbs SRQ is made of: QPs name it by number (rq_type SHARED) and bring their CQs. It is created in state RDY; setting
 * lwm by MODIFY_RMP arms its limit event. SQ and RQ are created in RST and moved by MODIFY_SQ and MODIFY_RQ.
 *
 * Sources: Linux's mlx5_ifc.h; what it lacks, as tests/ifc.t says.
 */
#ifndef INLAY_DEVX_IFC_WQ_H
#define INLAY_DEVX_IFC_WQ_H

#include <inlay/base.h>
#include <inlay/devx/ifc/bits.h>
#include <inlay/devx/ifc/cmd.h>

/* Work queue, a part of contexts */
struct inlay_wqc {
	uint32_t dword[48];
};

enum inlay_wqc_field {
	INLAY_WQC_WQ_TYPE = INLAY_BITS(0x00, 4),                 /* enum inlay_wq_type */
	INLAY_WQC_WQ_SIGNATURE = INLAY_BITS(0x04, 1),
	INLAY_WQC_END_PADDING_MODE = INLAY_BITS(0x05, 2),        /* 0 as it is, 1 pad to the cache line */
	INLAY_WQC_CD_SLAVE = INLAY_BITS(0x07, 1),
	INLAY_WQC_PAGE_OFFSET = INLAY_BITS(0x2b, 5),             /* 0 with a umem */
	INLAY_WQC_LWM = INLAY_BITS(0x30, 16),                    /* limit: an event when fewer entries are left */
	INLAY_WQC_PD = INLAY_BITS(0x48, 24),
	INLAY_WQC_UAR_PAGE = INLAY_BITS(0x68, 24),               /* SQ */
	INLAY_WQC_DBR_ADDR = INLAY_BITS(0x80, 64),               /* bytes in the umem, a multiple of 8 */
	INLAY_WQC_HW_COUNTER = INLAY_BITS(0xc0, 32),             /* query */
	INLAY_WQC_SW_COUNTER = INLAY_BITS(0xe0, 32),             /* query */
	INLAY_WQC_LOG_WQ_STRIDE = INLAY_BITS(0x10c, 4),          /* log2 of an entry's bytes (a QP context has 4 less) */
	INLAY_WQC_LOG_WQ_PG_SZ = INLAY_BITS(0x113, 5),           /* 0 with a umem */
	INLAY_WQC_LOG_WQ_SZ = INLAY_BITS(0x11b, 5),              /* log2 of the entries; SQ: of the WQEBBs */
	INLAY_WQC_DBR_UMEM_VALID = INLAY_BITS(0x120, 1),         /* the kernel sets it */
	INLAY_WQC_WQ_UMEM_VALID = INLAY_BITS(0x121, 1),          /* the kernel sets it */
	INLAY_WQC_LOG_HAIRPIN_NUM_PACKETS = INLAY_BITS(0x123, 5),
	INLAY_WQC_LOG_HAIRPIN_DATA_SZ = INLAY_BITS(0x12b, 5),
	INLAY_WQC_LOG_WQE_NUM_OF_STRIDES = INLAY_BITS(0x134, 4), /* signed: log2 of the strides minus 9; < 0 needs ext_stride_num_range */
	INLAY_WQC_TWO_BYTE_SHIFT_EN = INLAY_BITS(0x138, 1),      /* Ethernet: 2 bytes before the frame */
	INLAY_WQC_LOG_WQE_STRIDE_SIZE = INLAY_BITS(0x13d, 3),    /* log2 of a stride's bytes, minus 6 */
	INLAY_WQC_DBR_UMEM_ID = INLAY_BITS(0x140, 32),
	INLAY_WQC_WQ_UMEM_ID = INLAY_BITS(0x160, 32),
	INLAY_WQC_WQ_UMEM_OFFSET = INLAY_BITS(0x180, 64)         /* bytes */
};

INLAY_LAYOUT(wqc, 0xc0);

enum inlay_wq_type {
	INLAY_WQ_LINKED_LIST = 0,
	INLAY_WQ_CYCLIC = 1,
	INLAY_WQ_LINKED_LIST_STRIDING = 2,
	INLAY_WQ_CYCLIC_STRIDING = 3
};

/* The state of an RMP, an RQ, an SQ. */
enum inlay_wq_state {
	INLAY_WQ_STATE_RST = 0,
	INLAY_WQ_STATE_RDY = 1,
	INLAY_WQ_STATE_ERR = 3
};

/* ------------------------------------------------------------------------------------------------------------------------
 * RMP
 */
struct inlay_rmpc {
	uint32_t dword[12];
	struct inlay_wqc wq;
};

enum inlay_rmpc_field {
	INLAY_RMPC_STATE = INLAY_BITS(0x08, 4),                  /* enum inlay_wq_state; create: RDY */
	INLAY_RMPC_BASIC_CYCLIC_RCV_WQE = INLAY_BITS(0x20, 1)    /* cyclic: entries without a next segment; needs the capability */
};

INLAY_LAYOUT(rmpc, 0xf0);
INLAY_LAYOUT_AT(rmpc, wq, 0x180);

struct inlay_create_rmp_in {
	struct inlay_cmd_in cmd;
	uint32_t dword[4];
	struct inlay_rmpc rmpc;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_create_rmp_in) == 0x110, "the size of struct inlay_create_rmp_in");
INLAY_LAYOUT_AT(create_rmp_in, rmpc, 0x100);

struct inlay_modify_rmp_in {
	struct inlay_cmd_in cmd; /* NUMBER: rmpn */
	uint32_t dword[4];
	struct inlay_rmpc rmpc;
};

enum inlay_modify_rmp_in_field {
	INLAY_MODIFY_RMP_IN_RMP_STATE = INLAY_BITS(0x40, 4),     /* the present one */
	INLAY_MODIFY_RMP_IN_BITMASK_LWM = INLAY_BITS(0xbf, 1)    /* take lwm, which arms the limit */
};

INLAY_LAYOUT(modify_rmp_in, 0x110);
INLAY_LAYOUT_AT(modify_rmp_in, rmpc, 0x100);

struct inlay_query_rmp_out {
	struct inlay_cmd_out cmd;
	uint32_t dword[4];
	struct inlay_rmpc rmpc;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_query_rmp_out) == 0x110, "the size of struct inlay_query_rmp_out");
INLAY_LAYOUT_AT(query_rmp_out, rmpc, 0x100);

/* ------------------------------------------------------------------------------------------------------------------------
 * SQ
 */
struct inlay_sqc {
	uint32_t dword[12];
	struct inlay_wqc wq; /* cyclic, log_wq_stride 6 */
};

enum inlay_sqc_field {
	INLAY_SQC_RLKY = INLAY_BITS(0x00, 1),
	INLAY_SQC_CD_MASTER = INLAY_BITS(0x01, 1),
	INLAY_SQC_FRE = INLAY_BITS(0x02, 1),
	INLAY_SQC_FLUSH_IN_ERROR_EN = INLAY_BITS(0x03, 1),
	INLAY_SQC_ALLOW_MULTI_PKT_SEND_WQE = INLAY_BITS(0x04, 1),
	INLAY_SQC_MIN_WQE_INLINE_MODE = INLAY_BITS(0x05, 3),
	INLAY_SQC_STATE = INLAY_BITS(0x08, 4),                   /* enum inlay_wq_state */
	INLAY_SQC_REG_UMR = INLAY_BITS(0x0c, 1),
	INLAY_SQC_ALLOW_SWP = INLAY_BITS(0x0d, 1),
	INLAY_SQC_HAIRPIN = INLAY_BITS(0x0e, 1),
	INLAY_SQC_TS_FORMAT = INLAY_BITS(0x1a, 2),               /* enum inlay_ts_format */
	INLAY_SQC_USER_INDEX = INLAY_BITS(0x28, 24),
	INLAY_SQC_CQN = INLAY_BITS(0x48, 24),
	INLAY_SQC_HAIRPIN_PEER_RQ = INLAY_BITS(0x68, 24),
	INLAY_SQC_HAIRPIN_PEER_VHCA = INLAY_BITS(0x90, 16),
	INLAY_SQC_TS_CQE_TO_DEST_CQN = INLAY_BITS(0xc8, 24),
	INLAY_SQC_PACKET_PACING_RATE_LIMIT_INDEX = INLAY_BITS(0xf0, 16),
	INLAY_SQC_TIS_LST_SZ = INLAY_BITS(0x100, 16),            /* 1 */
	INLAY_SQC_QOS_QUEUE_GROUP_ID = INLAY_BITS(0x110, 16),
	INLAY_SQC_TIS_NUM_0 = INLAY_BITS(0x168, 24)
};

INLAY_LAYOUT(sqc, 0xf0);
INLAY_LAYOUT_AT(sqc, wq, 0x180);

struct inlay_create_sq_in {
	struct inlay_cmd_in cmd;
	uint32_t dword[4];
	struct inlay_sqc sqc;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_create_sq_in) == 0x110, "the size of struct inlay_create_sq_in");
INLAY_LAYOUT_AT(create_sq_in, sqc, 0x100);

struct inlay_modify_sq_in {
	struct inlay_cmd_in cmd; /* NUMBER: sqn */
	uint32_t dword[4];
	struct inlay_sqc sqc;
};

enum inlay_modify_sq_in_field {
	INLAY_MODIFY_SQ_IN_SQ_STATE = INLAY_BITS(0x40, 4),       /* the present one; the new one is in sqc */
	INLAY_MODIFY_SQ_IN_MODIFY_BITMASK = INLAY_BITS(0x80, 64) /* bit 0: packet_pacing_rate_limit_index */
};

INLAY_LAYOUT(modify_sq_in, 0x110);
INLAY_LAYOUT_AT(modify_sq_in, sqc, 0x100);

struct inlay_query_sq_out {
	struct inlay_cmd_out cmd;
	uint32_t dword[4];
	struct inlay_sqc sqc;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_query_sq_out) == 0x110, "the size of struct inlay_query_sq_out");
INLAY_LAYOUT_AT(query_sq_out, sqc, 0x100);

/* ------------------------------------------------------------------------------------------------------------------------
 * RQ
 */
struct inlay_rqc {
	uint32_t dword[12];
	struct inlay_wqc wq;
};

enum inlay_rqc_field {
	INLAY_RQC_RLKY = INLAY_BITS(0x00, 1),
	INLAY_RQC_DELAY_DROP_EN = INLAY_BITS(0x01, 1),
	INLAY_RQC_SCATTER_FCS = INLAY_BITS(0x02, 1),
	INLAY_RQC_VSD = INLAY_BITS(0x03, 1),                     /* VLAN stripping off */
	INLAY_RQC_MEM_RQ_TYPE = INLAY_BITS(0x04, 4),             /* 0 the wq here, 1 an RMP */
	INLAY_RQC_STATE = INLAY_BITS(0x08, 4),                   /* enum inlay_wq_state */
	INLAY_RQC_FLUSH_IN_ERROR_EN = INLAY_BITS(0x0d, 1),
	INLAY_RQC_HAIRPIN = INLAY_BITS(0x0e, 1),
	INLAY_RQC_TS_FORMAT = INLAY_BITS(0x1a, 2),               /* enum inlay_ts_format */
	INLAY_RQC_USER_INDEX = INLAY_BITS(0x28, 24),
	INLAY_RQC_CQN = INLAY_BITS(0x48, 24),
	INLAY_RQC_COUNTER_SET_ID = INLAY_BITS(0x60, 8),
	INLAY_RQC_RMPN = INLAY_BITS(0x88, 24),
	INLAY_RQC_HAIRPIN_PEER_SQ = INLAY_BITS(0xa8, 24),
	INLAY_RQC_HAIRPIN_PEER_VHCA = INLAY_BITS(0xd0, 16)
};

INLAY_LAYOUT(rqc, 0xf0);
INLAY_LAYOUT_AT(rqc, wq, 0x180);

struct inlay_create_rq_in {
	struct inlay_cmd_in cmd;
	uint32_t dword[4];
	struct inlay_rqc rqc;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_create_rq_in) == 0x110, "the size of struct inlay_create_rq_in");
INLAY_LAYOUT_AT(create_rq_in, rqc, 0x100);

struct inlay_modify_rq_in {
	struct inlay_cmd_in cmd; /* NUMBER: rqn */
	uint32_t dword[4];
	struct inlay_rqc rqc;
};

enum inlay_modify_rq_in_field {
	INLAY_MODIFY_RQ_IN_RQ_STATE = INLAY_BITS(0x40, 4),       /* the present one; the new one is in rqc */
	INLAY_MODIFY_RQ_IN_MODIFY_BITMASK = INLAY_BITS(0x80, 64) /* INLAY_MODIFY_RQ_* */
};

INLAY_LAYOUT(modify_rq_in, 0x110);
INLAY_LAYOUT_AT(modify_rq_in, rqc, 0x100);

enum inlay_modify_rq_select {
	INLAY_MODIFY_RQ_VSD = 1 << 1,
	INLAY_MODIFY_RQ_SCATTER_FCS = 1 << 2,
	INLAY_MODIFY_RQ_COUNTER_SET_ID = 1 << 3
};

struct inlay_query_rq_out {
	struct inlay_cmd_out cmd;
	uint32_t dword[4];
	struct inlay_rqc rqc;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_query_rq_out) == 0x110, "the size of struct inlay_query_rq_out");
INLAY_LAYOUT_AT(query_rq_out, rqc, 0x100);

#endif
