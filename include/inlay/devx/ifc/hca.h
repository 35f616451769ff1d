/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc/hca.h: what a device can do: QUERY_HCA_CAP, by type of capability.
 *
 *   struct inlay_cmd_in in;              OPCODE QUERY_HCA_CAP, OP_MOD type << 1 | INLAY_CAP_MAX or INLAY_CAP_CURRENT
 *   struct inlay_query_hca_cap_out out;  0x1010 bytes, of which the kernel copies as many as the caller has
 *
 *   inlay_hca_cap_get(&out.cap.general, INLAY_HCA_CAP_VHCA_ID)
 *
 * A type that the device has not answers with an error: the general capabilities say for each of them whether it is there. A field newer
 * than the firmware reads 0.
 *
 * Sources: Linux's mlx5_ifc.h; what it lacks, as tests/ifc.t says.
 */
#ifndef INLAY_DEVX_IFC_HCA_H
#define INLAY_DEVX_IFC_HCA_H

#include <inlay/base.h>
#include <inlay/devx/ifc/bits.h>
#include <inlay/devx/ifc/cmd.h>

enum inlay_cap_type {
	INLAY_CAP_GENERAL = 0x00,
	INLAY_CAP_ETHERNET = 0x01,      /* when eth_net_offloads */
	INLAY_CAP_ODP = 0x02,           /* when pg */
	INLAY_CAP_ATOMIC = 0x03,        /* when atomic */
	INLAY_CAP_ROCE = 0x04,          /* when roce */
	INLAY_CAP_DEVICE_MEMORY = 0x0f, /* when device_memory */
	INLAY_CAP_EVENT = 0x14,         /* when event_cap */
	INLAY_CAP_GENERAL_2 = 0x20      /* when hca_cap_2 */
};

enum inlay_cap_mode {
	INLAY_CAP_MAX = 0,
	INLAY_CAP_CURRENT = 1
};

/* General */
struct inlay_hca_cap {
	uint32_t dword[64];
};

enum inlay_hca_cap_field {
	INLAY_HCA_CAP_HCA_CAP_2 = INLAY_BITS(0x20, 1),                   /* type GENERAL_2 answers */
	INLAY_HCA_CAP_VHCA_ID = INLAY_BITS(0x30, 16),                    /* this function's number, for cross-VHCA access */
	INLAY_HCA_CAP_LOG_DMA_MMO_MAX_SIZE = INLAY_BITS(0x6b, 5),        /* log2 of the bytes of a DMA WQE */
	INLAY_HCA_CAP_LOG_MAX_SRQ_SZ = INLAY_BITS(0x80, 8),              /* log2 of entries */
	INLAY_HCA_CAP_LOG_MAX_QP_SZ = INLAY_BITS(0x88, 8),               /* log2 of WQEs or WQEBBs */
	INLAY_HCA_CAP_EVENT_CAP = INLAY_BITS(0x90, 1),                   /* type EVENT says which events a user may subscribe to */
	INLAY_HCA_CAP_LOG_MAX_QP = INLAY_BITS(0x9b, 5),                  /* log2 */
	INLAY_HCA_CAP_ECE_SUPPORT = INLAY_BITS(0xa3, 1),
	INLAY_HCA_CAP_LOG_MAX_SRQ = INLAY_BITS(0xab, 5),                 /* log2 */
	INLAY_HCA_CAP_TS_CQE_TO_DEST_CQN = INLAY_BITS(0xb2, 1),
	INLAY_HCA_CAP_SHAMPO = INLAY_BITS(0xba, 1),
	INLAY_HCA_CAP_MAX_SGL_FOR_OPTIMIZED_PERFORMANCE = INLAY_BITS(0xc0, 8),
	INLAY_HCA_CAP_LOG_MAX_CQ_SZ = INLAY_BITS(0xc8, 8),               /* log2 of CQEs */
	INLAY_HCA_CAP_RELAXED_ORDERING_WRITE_UMR = INLAY_BITS(0xd0, 1),  /* by UMR */
	INLAY_HCA_CAP_RELAXED_ORDERING_READ_UMR = INLAY_BITS(0xd1, 1),   /* by UMR */
	INLAY_HCA_CAP_ACCESS_REGISTER_USER = INLAY_BITS(0xd2, 1),        /* ACCESS_REGISTER_USER */
	INLAY_HCA_CAP_LOG_MAX_CQ = INLAY_BITS(0xdb, 5),                  /* log2 */
	INLAY_HCA_CAP_RELAXED_ORDERING_WRITE = INLAY_BITS(0xe8, 1),      /* in CREATE_MKEY */
	INLAY_HCA_CAP_RELAXED_ORDERING_READ = INLAY_BITS(0xe9, 1),       /* where PCI has it on; Linux 6.12: ..._pci_enabled */
	INLAY_HCA_CAP_LOG_MAX_MKEY = INLAY_BITS(0xea, 6),                /* log2 */
	INLAY_HCA_CAP_MAX_INDIRECTION = INLAY_BITS(0x100, 8),
	INLAY_HCA_CAP_FIXED_BUFFER_SIZE = INLAY_BITS(0x108, 1),          /* KSM */
	INLAY_HCA_CAP_LOG_MAX_MRW_SZ = INLAY_BITS(0x109, 7),             /* log2 */
	INLAY_HCA_CAP_LOG_MAX_BSF_LIST_SIZE = INLAY_BITS(0x112, 6),      /* log2 */
	INLAY_HCA_CAP_UMR_EXTENDED_TRANSLATION_OFFSET = INLAY_BITS(0x118, 1),
	INLAY_HCA_CAP_NULL_MKEY = INLAY_BITS(0x119, 1),
	INLAY_HCA_CAP_LOG_MAX_KLM_LIST_SIZE = INLAY_BITS(0x11a, 6),      /* log2 of the entries of a KLM or KSM key */
	INLAY_HCA_CAP_LOG_MAX_RA_REQ_DC = INLAY_BITS(0x12a, 6),          /* log2 of reads and atomics, as requester */
	INLAY_HCA_CAP_LOG_MAX_RA_RES_DC = INLAY_BITS(0x13a, 6),          /* log2, as responder */
	INLAY_HCA_CAP_LOG_MAX_RA_REQ_QP = INLAY_BITS(0x14a, 6),          /* log2, as requester */
	INLAY_HCA_CAP_LOG_MAX_RA_RES_QP = INLAY_BITS(0x15a, 6),          /* log2, as responder */
	INLAY_HCA_CAP_END_PAD = INLAY_BITS(0x160, 1),
	INLAY_HCA_CAP_START_PAD = INLAY_BITS(0x163, 1),
	INLAY_HCA_CAP_CACHE_LINE_128BYTE = INLAY_BITS(0x164, 1),         /* the device's idea of a cache line; else 64 */
	INLAY_HCA_CAP_RTS2RTS_QP_COUNTERS_SET_ID = INLAY_BITS(0x169, 1),
	INLAY_HCA_CAP_GID_TABLE_SIZE = INLAY_BITS(0x170, 16),             /* n: 8 << n entries, up to n = 4 */
	INLAY_HCA_CAP_OUT_OF_SEQ_CNT = INLAY_BITS(0x180, 1),
	INLAY_HCA_CAP_VPORT_COUNTERS = INLAY_BITS(0x181, 1),
	INLAY_HCA_CAP_RETRANSMISSION_Q_COUNTERS = INLAY_BITS(0x182, 1),
	INLAY_HCA_CAP_MODIFY_RQ_COUNTER_SET_ID = INLAY_BITS(0x184, 1),
	INLAY_HCA_CAP_RQ_DELAY_DROP = INLAY_BITS(0x185, 1),
	INLAY_HCA_CAP_MAX_QP_CNT = INLAY_BITS(0x186, 10),
	INLAY_HCA_CAP_PKEY_TABLE_SIZE = INLAY_BITS(0x190, 16),            /* n: 128 << n entries */
	INLAY_HCA_CAP_DEVICE_MEMORY = INLAY_BITS(0x1a8, 1),              /* type DEVICE_MEMORY answers */
	INLAY_HCA_CAP_LOCAL_CA_ACK_DELAY = INLAY_BITS(0x1ab, 5),
	INLAY_HCA_CAP_ENHANCED_ERROR_Q_COUNTERS = INLAY_BITS(0x1b1, 1),
	INLAY_HCA_CAP_PORT_TYPE = INLAY_BITS(0x1b6, 2),                  /* enum inlay_port_type */
	INLAY_HCA_CAP_NUM_PORTS = INLAY_BITS(0x1b8, 8),
	INLAY_HCA_CAP_LOG_MAX_MSG = INLAY_BITS(0x1c3, 5),                /* log2 of the bytes of a message: 30 */
	INLAY_HCA_CAP_INIT2_LAG_TX_PORT_AFFINITY = INLAY_BITS(0x1f8, 1), /* INIT2RTR takes it */
	INLAY_HCA_CAP_CQE_VERSION = INLAY_BITS(0x1fc, 4),                /* 1: CQEs say user_index */
	INLAY_HCA_CAP_COMPACT_ADDRESS_VECTOR = INLAY_BITS(0x200, 1),     /* WQEs may have the short form */
	INLAY_HCA_CAP_STRIDING_RQ = INLAY_BITS(0x201, 1),                /* Ethernet */
	INLAY_HCA_CAP_IB_STRIDING_WQ = INLAY_BITS(0x205, 1),             /* InfiniBand: striding RMP and XRQ */
	INLAY_HCA_CAP_REPEATED_BLOCK_DISABLED = INLAY_BITS(0x206, 1),
	INLAY_HCA_CAP_UMR_MODIFY_ENTITY_SIZE_DISABLED = INLAY_BITS(0x207, 1),
	INLAY_HCA_CAP_UMR_MODIFY_ATOMIC_DISABLED = INLAY_BITS(0x208, 1),
	INLAY_HCA_CAP_UMR_INDIRECT_MKEY_DISABLED = INLAY_BITS(0x209, 1),
	INLAY_HCA_CAP_UMR_FENCE = INLAY_BITS(0x20a, 2),                  /* 0 strong, 1 small, 2 none: what a UMR needs */
	INLAY_HCA_CAP_DC_REQ_SCAT_DATA_CQE = INLAY_BITS(0x20c, 1),
	INLAY_HCA_CAP_DRAIN_SIGERR = INLAY_BITS(0x20f, 1),
	INLAY_HCA_CAP_SIGERR_CQE = INLAY_BITS(0x212, 1),
	INLAY_HCA_CAP_WQ_SIGNATURE = INLAY_BITS(0x214, 1),
	INLAY_HCA_CAP_SCTR_DATA_CQE = INLAY_BITS(0x215, 1),              /* may scatter small payloads to CQEs */
	INLAY_HCA_CAP_DCT = INLAY_BITS(0x21a, 1),                        /* DC transport */
	INLAY_HCA_CAP_ETH_NET_OFFLOADS = INLAY_BITS(0x21c, 1),           /* type ETHERNET answers */
	INLAY_HCA_CAP_ROCE = INLAY_BITS(0x21d, 1),                       /* type ROCE answers */
	INLAY_HCA_CAP_ATOMIC = INLAY_BITS(0x21e, 1),                     /* type ATOMIC answers */
	INLAY_HCA_CAP_CQ_OI = INLAY_BITS(0x220, 1),                      /* ignore overrun */
	INLAY_HCA_CAP_CQ_RESIZE = INLAY_BITS(0x221, 1),
	INLAY_HCA_CAP_CQ_MODERATION = INLAY_BITS(0x222, 1),
	INLAY_HCA_CAP_PG = INLAY_BITS(0x227, 1),                         /* on-demand paging: type ODP answers */
	INLAY_HCA_CAP_BLOCK_LB_MC = INLAY_BITS(0x228, 1),
	INLAY_HCA_CAP_SCQE_BREAK_MODERATION = INLAY_BITS(0x22a, 1),
	INLAY_HCA_CAP_CQ_PERIOD_START_FROM_CQE = INLAY_BITS(0x22b, 1),
	INLAY_HCA_CAP_CD = INLAY_BITS(0x22c, 1),                         /* cross-domain: WAIT, SEND_EN, RECV_EN */
	INLAY_HCA_CAP_UMR_PTR_RLKY = INLAY_BITS(0x230, 1),
	INLAY_HCA_CAP_QP_PACKET_BASED = INLAY_BITS(0x232, 1),
	INLAY_HCA_CAP_SET_DETH_SQPN = INLAY_BITS(0x238, 1),              /* UD QP sends as another */
	INLAY_HCA_CAP_XRC = INLAY_BITS(0x23c, 1),
	INLAY_HCA_CAP_UD = INLAY_BITS(0x23d, 1),
	INLAY_HCA_CAP_UC = INLAY_BITS(0x23e, 1),
	INLAY_HCA_CAP_RC = INLAY_BITS(0x23f, 1),
	INLAY_HCA_CAP_UAR_4K = INLAY_BITS(0x240, 1),
	INLAY_HCA_CAP_FL_RC_QP_WHEN_ROCE_DISABLED = INLAY_BITS(0x248, 1),
	INLAY_HCA_CAP_UAR_SZ = INLAY_BITS(0x24a, 6),
	INLAY_HCA_CAP_UMEM_UID_0 = INLAY_BITS(0x252, 1),
	INLAY_HCA_CAP_BF = INLAY_BITS(0x260, 1),                         /* BlueFlame */
	INLAY_HCA_CAP_MKEY_BY_NAME = INLAY_BITS(0x266, 1),
	INLAY_HCA_CAP_LOG_BF_REG_SIZE = INLAY_BITS(0x26b, 5),            /* log2 of the bytes of both halves of a register */
	INLAY_HCA_CAP_LAG_DCT = INLAY_BITS(0x276, 2),
	INLAY_HCA_CAP_LAG_TX_PORT_AFFINITY = INLAY_BITS(0x278, 1),
	INLAY_HCA_CAP_NUM_LAG_PORTS = INLAY_BITS(0x27c, 4),
	INLAY_HCA_CAP_MAX_WQE_SZ_SQ = INLAY_BITS(0x290, 16),             /* bytes */
	INLAY_HCA_CAP_MAX_WQE_SZ_RQ = INLAY_BITS(0x2b0, 16),             /* bytes */
	INLAY_HCA_CAP_MAX_WQE_SZ_SQ_DC = INLAY_BITS(0x2d0, 16),          /* bytes */
	INLAY_HCA_CAP_LOG_MAX_TRANSPORT_DOMAIN = INLAY_BITS(0x323, 5),   /* log2 */
	INLAY_HCA_CAP_PCI_RELAXED_ORDERED_READ = INLAY_BITS(0x32a, 1),   /* in any case; Linux 6.12: relaxed_ordering_read */
	INLAY_HCA_CAP_LOG_MAX_PD = INLAY_BITS(0x32b, 5),                 /* log2 */
	INLAY_HCA_CAP_LOG_MAX_XRCD = INLAY_BITS(0x33b, 5),               /* log2 */
	INLAY_HCA_CAP_LOG_MAX_RQ = INLAY_BITS(0x363, 5),                 /* log2 */
	INLAY_HCA_CAP_LOG_MAX_SQ = INLAY_BITS(0x36b, 5),                 /* log2 */
	INLAY_HCA_CAP_LOG_MAX_TIR = INLAY_BITS(0x373, 5),                /* log2 */
	INLAY_HCA_CAP_LOG_MAX_TIS = INLAY_BITS(0x37b, 5),                /* log2 */
	INLAY_HCA_CAP_BASIC_CYCLIC_RCV_WQE = INLAY_BITS(0x380, 1),
	INLAY_HCA_CAP_LOG_MAX_RMP = INLAY_BITS(0x383, 5),                /* 0: no RMP */
	INLAY_HCA_CAP_LOG_MAX_RQT = INLAY_BITS(0x38b, 5),                /* log2 */
	INLAY_HCA_CAP_LOG_MAX_RQT_SIZE = INLAY_BITS(0x393, 5),           /* log2 */
	INLAY_HCA_CAP_LOG_MAX_TIS_PER_SQ = INLAY_BITS(0x39b, 5),         /* log2 */
	INLAY_HCA_CAP_EXT_STRIDE_NUM_RANGE = INLAY_BITS(0x3a0, 1),       /* fewer than 512 strides */
	INLAY_HCA_CAP_ROCE_RW_SUPPORTED = INLAY_BITS(0x3a1, 1),
	INLAY_HCA_CAP_LOG_MAX_STRIDE_SZ_RQ = INLAY_BITS(0x3a3, 5),       /* log2 */
	INLAY_HCA_CAP_LOG_MIN_STRIDE_SZ_RQ = INLAY_BITS(0x3ab, 5),       /* log2 */
	INLAY_HCA_CAP_LOG_MAX_STRIDE_SZ_SQ = INLAY_BITS(0x3b3, 5),       /* log2 */
	INLAY_HCA_CAP_LOG_MIN_STRIDE_SZ_SQ = INLAY_BITS(0x3bb, 5),       /* log2 */
	INLAY_HCA_CAP_HAIRPIN = INLAY_BITS(0x3c0, 1),
	INLAY_HCA_CAP_LOG_MAX_HAIRPIN_QUEUES = INLAY_BITS(0x3c3, 5),     /* log2 */
	INLAY_HCA_CAP_LOG_MAX_HAIRPIN_WQ_DATA_SZ = INLAY_BITS(0x3cb, 5), /* log2 */
	INLAY_HCA_CAP_LOG_MAX_HAIRPIN_NUM_PACKETS = INLAY_BITS(0x3d3, 5), /* log2 */
	INLAY_HCA_CAP_LOG_MAX_WQ_SZ = INLAY_BITS(0x3db, 5),              /* log2 */
	INLAY_HCA_CAP_DISABLE_LOCAL_LB_UC = INLAY_BITS(0x3e1, 1),
	INLAY_HCA_CAP_DISABLE_LOCAL_LB_MC = INLAY_BITS(0x3e2, 1),
	INLAY_HCA_CAP_LOG_MIN_HAIRPIN_WQ_DATA_SZ = INLAY_BITS(0x3e3, 5), /* log2 */
	INLAY_HCA_CAP_GENERAL_OBJ_TYPES = INLAY_BITS(0x400, 64),         /* bit n: type n can be created */
	INLAY_HCA_CAP_SQ_TS_FORMAT = INLAY_BITS(0x440, 2),               /* enum inlay_ts_cap */
	INLAY_HCA_CAP_RQ_TS_FORMAT = INLAY_BITS(0x442, 2),               /* enum inlay_ts_cap */
	INLAY_HCA_CAP_ATS = INLAY_BITS(0x461, 1),
	INLAY_HCA_CAP_LOG_MAX_UCTX = INLAY_BITS(0x463, 5),               /* 0: no DEVX */
	INLAY_HCA_CAP_LOG_MAX_UMEM = INLAY_BITS(0x46b, 5),               /* log2 */
	INLAY_HCA_CAP_LOG_UAR_PAGE_SZ = INLAY_BITS(0x490, 16),           /* log2 of the bytes, minus 12 */
	INLAY_HCA_CAP_DEVICE_FREQUENCY_MHZ = INLAY_BITS(0x4c0, 32),
	INLAY_HCA_CAP_DEVICE_FREQUENCY_KHZ = INLAY_BITS(0x4e0, 32),      /* of timestamps */
	INLAY_HCA_CAP_NUM_OF_UARS_PER_PAGE = INLAY_BITS(0x520, 32),
	INLAY_HCA_CAP_LOG_MAX_DCI_STREAM_CHANNELS = INLAY_BITS(0x58b, 5), /* log2 */
	INLAY_HCA_CAP_LOG_MAX_DCI_ERRORED_STREAMS = INLAY_BITS(0x593, 5), /* log2 */
	INLAY_HCA_CAP_ENHANCED_CQE_COMPRESSION = INLAY_BITS(0x5b0, 1),   /* cqe_compression_layout 1 */
	INLAY_HCA_CAP_MINI_CQE_RESP_STRIDE_INDEX = INLAY_BITS(0x5bc, 1), /* mini CQE format 3 */
	INLAY_HCA_CAP_CQE_128_ALWAYS = INLAY_BITS(0x5bd, 1),             /* cqe_sz 2 */
	INLAY_HCA_CAP_CQE_COMPRESSION_128 = INLAY_BITS(0x5be, 1),
	INLAY_HCA_CAP_CQE_COMPRESSION = INLAY_BITS(0x5bf, 1),
	INLAY_HCA_CAP_CQE_COMPRESSION_TIMEOUT = INLAY_BITS(0x5c0, 16),
	INLAY_HCA_CAP_CQE_COMPRESSION_MAX_NUM = INLAY_BITS(0x5d0, 16),
	INLAY_HCA_CAP_TAG_MATCHING = INLAY_BITS(0x5f0, 1),               /* XRQ with tags */
	INLAY_HCA_CAP_RNDV_OFFLOAD_RC = INLAY_BITS(0x5f1, 1),
	INLAY_HCA_CAP_RNDV_OFFLOAD_DC = INLAY_BITS(0x5f2, 1),
	INLAY_HCA_CAP_LOG_TAG_MATCHING_LIST_SZ = INLAY_BITS(0x5f3, 5),
	INLAY_HCA_CAP_LOG_MAX_XRQ = INLAY_BITS(0x5fb, 5),                /* log2 */
	INLAY_HCA_CAP_NATIVE_PORT_NUM = INLAY_BITS(0x608, 8),
	INLAY_HCA_CAP_APU = INLAY_BITS(0x688, 1),
	INLAY_HCA_CAP_UCTX_CAP = INLAY_BITS(0x6a0, 32),                  /* bit 0 RAW_TX, bit 1 INTERNAL_DEV_RES */
	INLAY_HCA_CAP_DMA_MMO_QP = INLAY_BITS(0x748, 1),                 /* DMA WQEs on a QP */
	INLAY_HCA_CAP_VHCA_TUNNEL_COMMANDS = INLAY_BITS(0x780, 64)
};

INLAY_LAYOUT(hca_cap, 0x100);

enum inlay_port_type {
	INLAY_PORT_IB = 0,
	INLAY_PORT_ETH = 1
};

/* Which timestamps a queue's CQEs can have. */
enum inlay_ts_cap {
	INLAY_TS_CAP_FREE_RUNNING = 0,
	INLAY_TS_CAP_REAL_TIME = 1,
	INLAY_TS_CAP_BOTH = 2
};

/* General 2 */
struct inlay_hca_cap_2 {
	uint32_t dword[64];
};

enum inlay_hca_cap_2_field {
	INLAY_HCA_CAP_2_CROSS_VHCA_OBJECT_TO_OBJECT_SUPPORTED = INLAY_BITS(0xe0, 32), /* bit 8: local mkey to remote mkey */
	INLAY_HCA_CAP_2_ALLOWED_OBJECT_FOR_OTHER_VHCA_ACCESS = INLAY_BITS(0x100, 64), /* bit 2: mkeys */
	INLAY_HCA_CAP_2_LOG_MIN_MKEY_ENTITY_SIZE = INLAY_BITS(0x1ab, 5),
	INLAY_HCA_CAP_2_SW_VHCA_ID_VALID = INLAY_BITS(0x221, 1),
	INLAY_HCA_CAP_2_SW_VHCA_ID = INLAY_BITS(0x222, 14),
	INLAY_HCA_CAP_2_TS_CQE_METADATA_SIZE2WQE_COUNTER = INLAY_BITS(0x24b, 5),
	INLAY_HCA_CAP_2_SEND_DBR_MODE_NO_DBR_INT = INLAY_BITS(0x2e0, 1),              /* send_dbr_mode 2 */
	INLAY_HCA_CAP_2_SEND_DBR_MODE_NO_DBR_EXT = INLAY_BITS(0x2e1, 1)               /* send_dbr_mode 1 */
};

INLAY_LAYOUT(hca_cap_2, 0x100);

/* Atomic operations */
struct inlay_atomic_cap {
	uint32_t dword[64];
};

enum inlay_atomic_cap_field {
	INLAY_ATOMIC_CAP_ATOMIC_REQ_8B_ENDIANNESS_MODE = INLAY_BITS(0x40, 2),   /* 8-byte answers: 0 big-endian, 1 the host's order */
	INLAY_ATOMIC_CAP_SUPPORTED_ATOMIC_REQ_8B_ENDIANNESS_MODE_1 = INLAY_BITS(0x46, 1),
	INLAY_ATOMIC_CAP_ATOMIC_OPERATIONS = INLAY_BITS(0x90, 16),              /* enum inlay_atomic_op */
	INLAY_ATOMIC_CAP_ATOMIC_SIZE_QP = INLAY_BITS(0xb0, 16),                 /* bit n: 2^n bytes */
	INLAY_ATOMIC_CAP_ATOMIC_SIZE_DC = INLAY_BITS(0xd0, 16)                  /* bit n: 2^n bytes */
};

INLAY_LAYOUT(atomic_cap, 0x100);

enum inlay_atomic_op {
	INLAY_ATOMIC_OP_CMP_SWAP = 1 << 0,
	INLAY_ATOMIC_OP_FETCH_ADD = 1 << 1,
	INLAY_ATOMIC_OP_MASKED_CMP_SWAP = 1 << 2,
	INLAY_ATOMIC_OP_MASKED_FETCH_ADD = 1 << 3
};

/* RoCE */
struct inlay_roce_cap {
	uint32_t dword[64];
};

enum inlay_roce_cap_field {
	INLAY_ROCE_CAP_ROCE_APM = INLAY_BITS(0x00, 1),
	INLAY_ROCE_CAP_SW_R_ROCE_SRC_UDP_PORT = INLAY_BITS(0x04, 1),
	INLAY_ROCE_CAP_FL_RC_QP_WHEN_ROCE_DISABLED = INLAY_BITS(0x05, 1), /* force loopback of an RC QP */
	INLAY_ROCE_CAP_FL_RC_QP_WHEN_ROCE_ENABLED = INLAY_BITS(0x06, 1),
	INLAY_ROCE_CAP_QP_TS_FORMAT = INLAY_BITS(0x1e, 2),                /* enum inlay_ts_cap */
	INLAY_ROCE_CAP_L3_TYPE = INLAY_BITS(0x8c, 4),
	INLAY_ROCE_CAP_ROCE_VERSION = INLAY_BITS(0x98, 8),
	INLAY_ROCE_CAP_R_ROCE_DEST_UDP_PORT = INLAY_BITS(0xb0, 16),
	INLAY_ROCE_CAP_R_ROCE_MAX_SRC_UDP_PORT = INLAY_BITS(0xc0, 16),
	INLAY_ROCE_CAP_R_ROCE_MIN_SRC_UDP_PORT = INLAY_BITS(0xd0, 16),
	INLAY_ROCE_CAP_ROCE_ADDRESS_TABLE_SIZE = INLAY_BITS(0xf0, 16)
};

INLAY_LAYOUT(roce_cap, 0x100);

/* On-demand paging: for each transport, what may hit memory that is not there yet */
struct inlay_odp_ops {
	uint32_t dword[1];
};

enum inlay_odp_ops_field {
	INLAY_ODP_OPS_SEND = INLAY_BITS(0x00, 1),
	INLAY_ODP_OPS_RECEIVE = INLAY_BITS(0x01, 1),
	INLAY_ODP_OPS_WRITE = INLAY_BITS(0x02, 1),
	INLAY_ODP_OPS_READ = INLAY_BITS(0x03, 1),
	INLAY_ODP_OPS_ATOMIC = INLAY_BITS(0x04, 1),
	INLAY_ODP_OPS_SRQ_RECEIVE = INLAY_BITS(0x05, 1)
};

INLAY_LAYOUT(odp_ops, 0x04);

struct inlay_odp_cap {
	uint32_t dword[4];
	struct inlay_odp_ops rc;
	struct inlay_odp_ops uc;
	struct inlay_odp_ops ud;
	struct inlay_odp_ops xrc;
	struct inlay_odp_ops dc;
	uint32_t more[55];
};

enum inlay_odp_cap_field {
	INLAY_ODP_CAP_SIG = INLAY_BITS(0x40, 1)
};

INLAY_LAYOUT(odp_cap, 0x100);
INLAY_LAYOUT_AT(odp_cap, rc, 0x80);
INLAY_LAYOUT_AT(odp_cap, uc, 0xa0);
INLAY_LAYOUT_AT(odp_cap, ud, 0xc0);
INLAY_LAYOUT_AT(odp_cap, xrc, 0xe0);
INLAY_LAYOUT_AT(odp_cap, dc, 0x100);

/* Ethernet offloads */
struct inlay_eth_cap {
	uint32_t dword[64];
};

enum inlay_eth_cap_field {
	INLAY_ETH_CAP_CSUM_CAP = INLAY_BITS(0x00, 1),
	INLAY_ETH_CAP_VLAN_CAP = INLAY_BITS(0x01, 1),
	INLAY_ETH_CAP_LRO_CAP = INLAY_BITS(0x02, 1),
	INLAY_ETH_CAP_LRO_PSH_FLAG = INLAY_BITS(0x03, 1),
	INLAY_ETH_CAP_LRO_TIME_STAMP = INLAY_BITS(0x04, 1),
	INLAY_ETH_CAP_WQE_VLAN_INSERT = INLAY_BITS(0x07, 1),
	INLAY_ETH_CAP_SELF_LB_EN_MODIFIABLE = INLAY_BITS(0x08, 1),
	INLAY_ETH_CAP_MAX_LSO_CAP = INLAY_BITS(0x0b, 5),
	INLAY_ETH_CAP_MULTI_PKT_SEND_WQE = INLAY_BITS(0x10, 2),
	INLAY_ETH_CAP_WQE_INLINE_MODE = INLAY_BITS(0x12, 2),
	INLAY_ETH_CAP_RSS_IND_TBL_CAP = INLAY_BITS(0x14, 4),
	INLAY_ETH_CAP_REG_UMR_SQ = INLAY_BITS(0x18, 1),
	INLAY_ETH_CAP_SCATTER_FCS = INLAY_BITS(0x19, 1),
	INLAY_ETH_CAP_ENHANCED_MULTI_PKT_SEND_WQE = INLAY_BITS(0x1a, 1),
	INLAY_ETH_CAP_TUNNEL_LSO_CONST_OUT_IP_ID = INLAY_BITS(0x1b, 1),
	INLAY_ETH_CAP_TUNNEL_LRO_GRE = INLAY_BITS(0x1c, 1),
	INLAY_ETH_CAP_TUNNEL_LRO_VXLAN = INLAY_BITS(0x1d, 1),
	INLAY_ETH_CAP_TUNNEL_STATELESS_GRE = INLAY_BITS(0x1e, 1),
	INLAY_ETH_CAP_TUNNEL_STATELESS_VXLAN = INLAY_BITS(0x1f, 1),
	INLAY_ETH_CAP_SWP = INLAY_BITS(0x20, 1),
	INLAY_ETH_CAP_SWP_CSUM = INLAY_BITS(0x21, 1),
	INLAY_ETH_CAP_SWP_LSO = INLAY_BITS(0x22, 1),
	INLAY_ETH_CAP_CQE_CHECKSUM_FULL = INLAY_BITS(0x23, 1),
	INLAY_ETH_CAP_TUNNEL_STATELESS_GENEVE_TX = INLAY_BITS(0x24, 1),
	INLAY_ETH_CAP_TUNNEL_STATELESS_MPLS_OVER_UDP = INLAY_BITS(0x25, 1),
	INLAY_ETH_CAP_TUNNEL_STATELESS_MPLS_OVER_GRE = INLAY_BITS(0x26, 1),
	INLAY_ETH_CAP_TUNNEL_STATELESS_VXLAN_GPE = INLAY_BITS(0x27, 1),
	INLAY_ETH_CAP_TUNNEL_STATELESS_IPV4_OVER_VXLAN = INLAY_BITS(0x28, 1),
	INLAY_ETH_CAP_TUNNEL_STATELESS_IP_OVER_IP = INLAY_BITS(0x29, 1),
	INLAY_ETH_CAP_INSERT_TRAILER = INLAY_BITS(0x2a, 1),
	INLAY_ETH_CAP_TUNNEL_STATELESS_IP_OVER_IP_RX = INLAY_BITS(0x2c, 1),
	INLAY_ETH_CAP_TUNNEL_STATELESS_IP_OVER_IP_TX = INLAY_BITS(0x2d, 1),
	INLAY_ETH_CAP_MAX_VXLAN_UDP_PORTS = INLAY_BITS(0x30, 8),
	INLAY_ETH_CAP_MAX_GENEVE_OPT_LEN = INLAY_BITS(0x3e, 1),
	INLAY_ETH_CAP_TUNNEL_STATELESS_GENEVE_RX = INLAY_BITS(0x3f, 1),
	INLAY_ETH_CAP_LRO_MIN_MSS_SIZE = INLAY_BITS(0x50, 16)
};

INLAY_LAYOUT(eth_cap, 0x100);

/* Device memory */
struct inlay_device_mem_cap {
	uint32_t dword[64];
};

enum inlay_device_mem_cap_field {
	INLAY_DEVICE_MEM_CAP_MEMIC = INLAY_BITS(0x00, 1),
	INLAY_DEVICE_MEM_CAP_LOG_MIN_MEMIC_ALLOC_SIZE = INLAY_BITS(0x2b, 5),
	INLAY_DEVICE_MEM_CAP_LOG_MAX_MEMIC_ADDR_ALIGNMENT = INLAY_BITS(0x38, 8),
	INLAY_DEVICE_MEM_CAP_MEMIC_BAR_START_ADDR = INLAY_BITS(0x40, 64),
	INLAY_DEVICE_MEM_CAP_MEMIC_BAR_SIZE = INLAY_BITS(0x80, 32),
	INLAY_DEVICE_MEM_CAP_MAX_MEMIC_SIZE = INLAY_BITS(0xa0, 32),
	INLAY_DEVICE_MEM_CAP_LOG_SW_ICM_ALLOC_GRANULARITY = INLAY_BITS(0x112, 6),
	INLAY_DEVICE_MEM_CAP_MEMIC_OPERATIONS = INLAY_BITS(0x200, 32)
};

INLAY_LAYOUT(device_mem_cap, 0x100);

/* Events that a user may subscribe to: type n is bit n % 64 of the big-endian word n / 64 */
struct inlay_event_cap {
	uint64_t user_affiliated_events[4];   /* with an object */
	uint64_t user_unaffiliated_events[4]; /* without */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_event_cap) == 0x40, "the size of struct inlay_event_cap");

/* What QUERY_HCA_CAP answers. */
struct inlay_query_hca_cap_out {
	struct inlay_cmd_out cmd;
	union {
		struct inlay_hca_cap general;
		struct inlay_hca_cap_2 general_2;
		struct inlay_atomic_cap atomic;
		struct inlay_roce_cap roce;
		struct inlay_odp_cap odp;
		struct inlay_eth_cap eth;
		struct inlay_device_mem_cap device_mem;
		struct inlay_event_cap event;
		uint32_t dword[1024];
	} cap;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_query_hca_cap_out) == 0x1010, "the size of struct inlay_query_hca_cap_out");
INLAY_LAYOUT_AT(query_hca_cap_out, cap, 0x80);

#endif
