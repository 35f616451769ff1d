/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc/qp.h: queue pairs: CREATE_QP, the transitions, QUERY_QP; address paths; the GID
 * table of a RoCE port: QUERY_ROCE_ADDRESS.
 *
 *   create_qp_in   cmd | opt_param_mask | qpc | umem of the work queues. The transitions RST2INIT,
 *                  INIT2RTR, RTR2RTS, RTS2RTS, SQERR2RTS, INIT2INIT: qpn in cmd, and no umem
 *   query_qp_out   cmd | opt_param_mask | qpc | ...
 *
 * 2ERR_QP and 2RST_QP are a struct inlay_cmd_in with the qpn, from any state.
 *
 * In the umem the receive queue comes first and the send queue follows without a gap. The doorbell
 * record is 8 bytes at dbr_addr of dbr_umem_id: dword 0 the receive counter, dword 1 the send
 * counter. A QP without queues still names some valid umem.
 *
 * A transition takes the fields that it requires. It ignores a field that an earlier step takes
 * unless its bit is set in opt_param_mask: rre, rwe and rae in INIT2RTR, for example.
 *
 *   step       required                                             with a bit of the mask
 *   RST2INIT   pm_state MIGRATED, vhca_port_num, pkey_index (IB),   -
 *              counter_set_id; RC: rre rwe rae atomic_mode;
 *              UD: q_key
 *   INIT2RTR   mtu, log_msg_max; RC: remote_qpn next_rcv_psn        RRE RAE RWE PKEY_INDEX
 *              log_rra_max min_rnr_nak, primary path;               UD: PKEY_INDEX Q_KEY
 *              DCI: sl (IB) or eth_prio of the path                 DCI: RAE
 *   RTR2RTS    next_send_psn; RC, DCI: retry_count rnr_retry        RRE RAE RWE PM_STATE
 *              log_sra_max log_ack_req_freq, ack_timeout            RNR_TIMEOUT
 *   RTS2RTS, SQERR2RTS                                              as RTR2RTS; UD: Q_KEY
 *   INIT2INIT                                                       RC: RRE RAE RWE PKEY_INDEX
 *                                                                   PRI_PORT
 *
 * The table is from Linux, infiniband/hw/mlx5/qp.c.
 */
#ifndef INLAY_DEVX_IFC_QP_H
#define INLAY_DEVX_IFC_QP_H

#include <inlay/devx/ifc/cmd.h>

/* Address path. On RoCE grh, mlid and rlid stay 0: a GRH is implied. */
struct inlay_ads {
	uint32_t dword[4];
	uint8_t rgid_rip[16]; /* destination GID, as on the wire */
	uint32_t more[3];
};

enum inlay_ads_field {
	INLAY_ADS_PKEY_INDEX = INLAY_BITS(0x10, 16),    /* IB */
	INLAY_ADS_GRH = INLAY_BITS(0x28, 1),            /* IB */
	INLAY_ADS_MLID = INLAY_BITS(0x29, 7),           /* IB: source path bits */
	INLAY_ADS_RLID = INLAY_BITS(0x30, 16),          /* IB: destination LID */
	INLAY_ADS_ACK_TIMEOUT = INLAY_BITS(0x40, 5),    /* 4.096 us << ack_timeout; 0: no timeout. Taken in RTR2RTS */
	INLAY_ADS_SRC_ADDR_INDEX = INLAY_BITS(0x48, 8), /* GID index */
	INLAY_ADS_HOP_LIMIT = INLAY_BITS(0x58, 8),
	INLAY_ADS_TCLASS = INLAY_BITS(0x64, 8),
	INLAY_ADS_FLOW_LABEL = INLAY_BITS(0x6c, 20),
	INLAY_ADS_DSCP = INLAY_BITS(0x10a, 6),          /* RoCE v2: tclass >> 2 */
	INLAY_ADS_UDP_SPORT = INLAY_BITS(0x110, 16),    /* RoCE v2: 0xc000 .. 0xffff; v1: 0 */
	INLAY_ADS_ETH_PRIO = INLAY_BITS(0x121, 3),      /* RoCE */
	INLAY_ADS_SL = INLAY_BITS(0x124, 4),            /* IB */
	INLAY_ADS_VHCA_PORT_NUM = INLAY_BITS(0x128, 8), /* from 1 */
	INLAY_ADS_RMAC_47_32 = INLAY_BITS(0x130, 16),   /* RoCE: destination MAC */
	INLAY_ADS_RMAC_31_0 = INLAY_BITS(0x140, 32)
};

INLAY_LAYOUT(ads, 0x2c);
INLAY_LAYOUT_AT(ads, rgid_rip, 0x80);

/* QP context */
struct inlay_qpc {
	uint32_t dword[6];
	struct inlay_ads primary; /* primary_address_path */
	uint32_t more[41];
};

enum inlay_qpc_field {
	INLAY_QPC_STATE = INLAY_BITS(0x00, 4),                 /* enum inlay_qp_state; query */
	INLAY_QPC_ST = INLAY_BITS(0x08, 8),                    /* enum inlay_qp_st */
	INLAY_QPC_PM_STATE = INLAY_BITS(0x13, 2),              /* INLAY_QP_PM_MIGRATED, in CREATE_QP and RST2INIT */
	INLAY_QPC_OFFLOAD_TYPE = INLAY_BITS(0x18, 4),          /* 1: rendezvous QP of a tag-matching XRQ, with no_sq */
	INLAY_QPC_PD = INLAY_BITS(0x28, 24),
	INLAY_QPC_MTU = INLAY_BITS(0x40, 3),                   /* 1 .. 5: 256 .. 4096 bytes */
	INLAY_QPC_LOG_MSG_MAX = INLAY_BITS(0x43, 5),           /* log2 of the longest message: 30; UD: of the MTU */
	INLAY_QPC_LOG_RQ_SIZE = INLAY_BITS(0x49, 4),           /* log2 of the WQEs */
	INLAY_QPC_LOG_RQ_STRIDE = INLAY_BITS(0x4d, 3),         /* log2 of a WQE's bytes, minus 4 */
	INLAY_QPC_NO_SQ = INLAY_BITS(0x50, 1),
	INLAY_QPC_LOG_SQ_SIZE = INLAY_BITS(0x51, 4),           /* log2 of the WQEBBs, 64 bytes each */
	INLAY_QPC_TS_FORMAT = INLAY_BITS(0x58, 2),             /* enum inlay_ts_format */
	INLAY_QPC_COUNTER_SET_ID = INLAY_BITS(0x60, 8),
	INLAY_QPC_UAR_PAGE = INLAY_BITS(0x68, 24),             /* doorbells from another UAR are dropped */
	INLAY_QPC_USER_INDEX = INLAY_BITS(0x88, 24),           /* in CQEs when cqe_version is 1; 0xffffff none */
	INLAY_QPC_REMOTE_QPN = INLAY_BITS(0xa8, 24),
	INLAY_QPC_LOG_ACK_REQ_FREQ = INLAY_BITS(0x380, 4),     /* log2 of packets between ack requests; usually 8 */
	INLAY_QPC_LOG_SRA_MAX = INLAY_BITS(0x388, 3),          /* log2 of reads and atomics that we begin */
	INLAY_QPC_RETRY_COUNT = INLAY_BITS(0x38d, 3),          /* 7 at most */
	INLAY_QPC_RNR_RETRY = INLAY_BITS(0x390, 3),            /* 7: no limit */
	INLAY_QPC_NEXT_SEND_PSN = INLAY_BITS(0x3c8, 24),
	INLAY_QPC_LOG_NUM_DCI_STREAM_CHANNELS = INLAY_BITS(0x3e3, 5), /* DCI: log2 of its streams */
	INLAY_QPC_CQN_SND = INLAY_BITS(0x3e8, 24),             /* valid even without a send queue */
	INLAY_QPC_LOG_NUM_DCI_ERRORED_STREAMS = INLAY_BITS(0x403, 5), /* log2 of those that may fail */
	INLAY_QPC_LOG_RRA_MAX = INLAY_BITS(0x488, 3),          /* log2 of reads and atomics that the peer may begin */
	INLAY_QPC_ATOMIC_MODE = INLAY_BITS(0x48c, 4),          /* enum inlay_atomic_mode */
	INLAY_QPC_RRE = INLAY_BITS(0x490, 1),
	INLAY_QPC_RWE = INLAY_BITS(0x491, 1),
	INLAY_QPC_RAE = INLAY_BITS(0x492, 1),                  /* what the peer may do */
	INLAY_QPC_DP_ORDERING_1 = INLAY_BITS(0x49c, 1),        /* messages in any order; INIT2RTR */
	INLAY_QPC_CD_SLAVE_SEND = INLAY_BITS(0x49e, 1),        /* sends only when SEND_EN says so; needs cd */
	INLAY_QPC_CD_MASTER = INLAY_BITS(0x49f, 1),            /* may WAIT for CQs and SEND_EN; needs cd */
	INLAY_QPC_MIN_RNR_NAK = INLAY_BITS(0x4a3, 5),          /* timer code, as in IBTA's table */
	INLAY_QPC_NEXT_RCV_PSN = INLAY_BITS(0x4a8, 24),
	INLAY_QPC_CQN_RCV = INLAY_BITS(0x4e8, 24),             /* valid even without a receive queue */
	INLAY_QPC_DBR_ADDR = INLAY_BITS(0x500, 64),            /* bytes in the umem, a multiple of 8 */
	INLAY_QPC_Q_KEY = INLAY_BITS(0x540, 32),               /* UD */
	INLAY_QPC_RQ_TYPE = INLAY_BITS(0x565, 3),              /* enum inlay_rq_type */
	INLAY_QPC_SRQN_RMPN_XRQN = INLAY_BITS(0x568, 24),
	INLAY_QPC_HW_SQ_WQEBB_COUNTER = INLAY_BITS(0x5a0, 16), /* query, and the next three */
	INLAY_QPC_SW_SQ_WQEBB_COUNTER = INLAY_BITS(0x5b0, 16),
	INLAY_QPC_HW_RQ_COUNTER = INLAY_BITS(0x5c0, 32),
	INLAY_QPC_SW_RQ_COUNTER = INLAY_BITS(0x5e0, 32),
	INLAY_QPC_CS_REQ = INLAY_BITS(0x630, 8),               /* requester scatters to the CQE: enum inlay_cs_req */
	INLAY_QPC_CS_RES = INLAY_BITS(0x638, 8),               /* responder: enum inlay_cs_res */
	INLAY_QPC_DC_ACCESS_KEY = INLAY_BITS(0x640, 64),       /* DCI: default; the address vector's counts */
	INLAY_QPC_DBR_UMEM_VALID = INLAY_BITS(0x683, 1),       /* the kernel sets it */
	INLAY_QPC_DBR_UMEM_ID = INLAY_BITS(0x720, 32)
};

INLAY_LAYOUT(qpc, 0xe8);
INLAY_LAYOUT_AT(qpc, primary, 0xc0);

enum inlay_qp_st {
	INLAY_QP_ST_RC = 0x0, INLAY_QP_ST_UC = 0x1, INLAY_QP_ST_UD = 0x2, INLAY_QP_ST_DCI = 0x5,
	INLAY_QP_ST_DCT = 0x6, INLAY_QP_ST_RAW = 0x9 /* never in CREATE_QP here */
};

enum inlay_qp_state {
	INLAY_QP_STATE_RST = 0x0, INLAY_QP_STATE_INIT = 0x1, INLAY_QP_STATE_RTR = 0x2, INLAY_QP_STATE_RTS = 0x3,
	INLAY_QP_STATE_SQER = 0x4, INLAY_QP_STATE_ERR = 0x6, INLAY_QP_STATE_SQD = 0x7
};

enum inlay_qp_pm {
	INLAY_QP_PM_MIGRATED = 3
};

enum inlay_rq_type {
	INLAY_RQ_TYPE_OWN = 0,    /* own receive queue */
	INLAY_RQ_TYPE_SHARED = 1, /* SRQ, RMP or XRQ by number */
	INLAY_RQ_TYPE_NONE = 3
};

enum inlay_atomic_mode {
	INLAY_ATOMIC_MODE_IB = 1, /* 8 bytes, as the IB specification has them */
	INLAY_ATOMIC_MODE_UP_TO_8 = 3, INLAY_ATOMIC_MODE_UP_TO_16 = 4, INLAY_ATOMIC_MODE_UP_TO_32 = 5,
	INLAY_ATOMIC_MODE_UP_TO_64 = 6
};

/* Scattering to the CQE; up to 64 bytes needs CQEs of 128 bytes. */
enum inlay_cs_req {
	INLAY_CS_REQ_OFF = 0x00, INLAY_CS_REQ_UP_TO_32 = 0x11, INLAY_CS_REQ_UP_TO_64 = 0x22
};

enum inlay_cs_res {
	INLAY_CS_RES_OFF = 0, INLAY_CS_RES_UP_TO_32 = 1, INLAY_CS_RES_UP_TO_64 = 2
};

/* opt_param_mask */
enum inlay_qp_opt {
	INLAY_QP_OPT_RRE = 1 << 1, INLAY_QP_OPT_RAE = 1 << 2, INLAY_QP_OPT_RWE = 1 << 3,
	INLAY_QP_OPT_PKEY_INDEX = 1 << 4, INLAY_QP_OPT_Q_KEY = 1 << 5, INLAY_QP_OPT_RNR_TIMEOUT = 1 << 6,
	INLAY_QP_OPT_PM_STATE = 1 << 10, INLAY_QP_OPT_PRI_PORT = 1 << 16, INLAY_QP_OPT_COUNTER_SET_ID = 1 << 25
};

struct inlay_create_qp_in {
	struct inlay_cmd_in cmd;
	uint32_t dword[2];
	struct inlay_qpc qpc;
	uint32_t more[4];
};

enum inlay_create_qp_in_field {
	INLAY_CREATE_QP_IN_OPT_PARAM_MASK = INLAY_BITS(0x80, 32),  /* enum inlay_qp_opt; create: 0 */
	INLAY_CREATE_QP_IN_WQ_UMEM_OFFSET = INLAY_BITS(0x800, 64), /* bytes */
	INLAY_CREATE_QP_IN_WQ_UMEM_ID = INLAY_BITS(0x840, 32),
	INLAY_CREATE_QP_IN_WQ_UMEM_VALID = INLAY_BITS(0x860, 1)    /* the kernel sets it */
};

INLAY_LAYOUT(create_qp_in, 0x110);
INLAY_LAYOUT_AT(create_qp_in, qpc, 0xc0);

/* INIT2INIT_QP and RTS2RTS_QP with the rest of the context: a longer box than create_qp_in. */
struct inlay_qp_ext_in {
	struct inlay_cmd_in cmd;
	uint32_t dword[2];
	struct inlay_qpc qpc;
	uint32_t more[4];
	uint32_t qpc_data_ext[48];
};

enum inlay_qp_ext_in_field {
	INLAY_QP_EXT_IN_QPC_EXT = INLAY_BITS(0x40, 1),               /* the box has qpc_data_ext */
	INLAY_QP_EXT_IN_OPT_PARAM_MASK_95_32 = INLAY_BITS(0x840, 64), /* INLAY_QP_OPT_95_32_* */
	INLAY_QP_EXT_IN_MMO = INLAY_BITS(0x882, 1),                  /* the QP may copy memory */
	INLAY_QP_EXT_IN_DCI_STREAM = INLAY_BITS(0x890, 16)             /* which stream is reset */
};

#define INLAY_QP_OPT_95_32_MMO 8u    /* INIT2INIT */
#define INLAY_QP_OPT_95_32_STREAM 1u /* RTS2RTS */

INLAY_LAYOUT(qp_ext_in, 0x1d0);
INLAY_LAYOUT_AT(qp_ext_in, qpc, 0xc0);
INLAY_LAYOUT_AT(qp_ext_in, qpc_data_ext, 0x880);

struct inlay_query_qp_out {
	struct inlay_cmd_out cmd;
	uint32_t dword[2];
	struct inlay_qpc qpc;
	uint32_t more[4];
};

INLAY_LAYOUT_SIZE(query_qp_out, 0x110);
INLAY_LAYOUT_AT(query_qp_out, qpc, 0xc0);

/* An entry of a RoCE port's GID table. */
struct inlay_query_roce_address_out {
	struct inlay_cmd_out cmd;
	uint8_t source_l3_address[16]; /* GID, as on the wire */
	uint32_t dword[4];
};

enum inlay_query_roce_address_out_field {
	INLAY_QUERY_ROCE_ADDRESS_OUT_SOURCE_MAC_47_32 = INLAY_BITS(0x110, 16),
	INLAY_QUERY_ROCE_ADDRESS_OUT_SOURCE_MAC_31_0 = INLAY_BITS(0x120, 32)
};

INLAY_LAYOUT(query_roce_address_out, 0x30);
INLAY_LAYOUT_AT(query_roce_address_out, source_l3_address, 0x80);

#endif
