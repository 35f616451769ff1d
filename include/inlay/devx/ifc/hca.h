/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc/hca.h: capabilities: QUERY_HCA_CAP, with one answer for each type.
 *
 *   struct inlay_query_hca_cap_out out;
 *
 *   inlay_devx_query_cap(ctx, INLAY_CAP_GENERAL, &out, &error);           devx/call.h
 *   if (inlay_hca_cap_get(&out.cap.general, INLAY_HCA_CAP_TAG_MATCHING))
 *           ...
 *
 * The general capabilities say which other types the device has; a query for any other fails. 0
 * means no, none, or a field newer than the firmware. LOG_ is the exponent of a power of two.
 */
#ifndef INLAY_DEVX_IFC_HCA_H
#define INLAY_DEVX_IFC_HCA_H

#include <inlay/devx/ifc/cmd.h>

enum inlay_cap_type {
	INLAY_CAP_GENERAL = 0x00,
	INLAY_CAP_ATOMIC = 0x03,   /* when atomic */
	INLAY_CAP_ROCE = 0x04,     /* when roce */
	INLAY_CAP_EVENT = 0x14,    /* when event_cap */
	INLAY_CAP_GENERAL_2 = 0x20 /* when hca_cap_2 */
};

/* General */
struct inlay_hca_cap {
	uint32_t dword[64];
};

enum inlay_hca_cap_field {
	INLAY_HCA_CAP_HCA_CAP_2 = INLAY_BITS(0x20, 1),        /* type GENERAL_2 answers */
	INLAY_HCA_CAP_VHCA_ID = INLAY_BITS(0x30, 16),         /* this function's number, for cross-VHCA access */
	INLAY_HCA_CAP_LOG_DMA_MMO_MAX_SIZE = INLAY_BITS(0x6b, 5), /* of the bytes of a copy; 0: 31 */
	INLAY_HCA_CAP_LOG_MAX_SRQ_SZ = INLAY_BITS(0x80, 8),   /* of entries */
	INLAY_HCA_CAP_LOG_MAX_QP_SZ = INLAY_BITS(0x88, 8),    /* of WQEs or WQEBBs */
	INLAY_HCA_CAP_EVENT_CAP = INLAY_BITS(0x90, 1),        /* type EVENT says which events a user may subscribe to */
	INLAY_HCA_CAP_LOG_MAX_QP = INLAY_BITS(0x9b, 5),
	INLAY_HCA_CAP_LOG_MAX_SRQ = INLAY_BITS(0xab, 5),
	INLAY_HCA_CAP_LOG_MAX_CQ_SZ = INLAY_BITS(0xc8, 8),    /* of CQEs */
	INLAY_HCA_CAP_RELAXED_ORDERING_WRITE_UMR = INLAY_BITS(0xd0, 1), /* by UMR */
	INLAY_HCA_CAP_RELAXED_ORDERING_READ_UMR = INLAY_BITS(0xd1, 1), /* by UMR */
	INLAY_HCA_CAP_LOG_MAX_CQ = INLAY_BITS(0xdb, 5),
	INLAY_HCA_CAP_RELAXED_ORDERING_WRITE = INLAY_BITS(0xe8, 1), /* in CREATE_MKEY */
	INLAY_HCA_CAP_RELAXED_ORDERING_READ = INLAY_BITS(0xe9, 1), /* while PCI has it on; 6.12: ..._pci_enabled */
	INLAY_HCA_CAP_LOG_MAX_MKEY = INLAY_BITS(0xea, 6),
	INLAY_HCA_CAP_MAX_INDIRECTION = INLAY_BITS(0x100, 8),
	INLAY_HCA_CAP_FIXED_BUFFER_SIZE = INLAY_BITS(0x108, 1), /* KSM */
	INLAY_HCA_CAP_UMR_EXTENDED_TRANSLATION_OFFSET = INLAY_BITS(0x118, 1),
	INLAY_HCA_CAP_NULL_MKEY = INLAY_BITS(0x119, 1),
	INLAY_HCA_CAP_LOG_MAX_KLM_LIST_SIZE = INLAY_BITS(0x11a, 6), /* of the entries of a KLM or KSM key */
	INLAY_HCA_CAP_LOG_MAX_RA_REQ_DC = INLAY_BITS(0x12a, 6), /* of reads and atomics, as requester */
	INLAY_HCA_CAP_LOG_MAX_RA_RES_DC = INLAY_BITS(0x13a, 6), /* as responder */
	INLAY_HCA_CAP_LOG_MAX_RA_REQ_QP = INLAY_BITS(0x14a, 6), /* as requester */
	INLAY_HCA_CAP_LOG_MAX_RA_RES_QP = INLAY_BITS(0x15a, 6), /* as responder */
	INLAY_HCA_CAP_GID_TABLE_SIZE = INLAY_BITS(0x170, 16), /* n: 8 << n entries, up to n = 4 */
	INLAY_HCA_CAP_PORT_TYPE = INLAY_BITS(0x1b6, 2),       /* 0 InfiniBand, 1 Ethernet */
	INLAY_HCA_CAP_NUM_PORTS = INLAY_BITS(0x1b8, 8),
	INLAY_HCA_CAP_LOG_MAX_MSG = INLAY_BITS(0x1c3, 5),     /* of the bytes of a message: 30 */
	INLAY_HCA_CAP_CQE_VERSION = INLAY_BITS(0x1fc, 4),     /* 1: CQEs say user_index */
	INLAY_HCA_CAP_COMPACT_ADDRESS_VECTOR = INLAY_BITS(0x200, 1), /* WQEs may have the short form */
	INLAY_HCA_CAP_UMR_MODIFY_ENTITY_SIZE_DISABLED = INLAY_BITS(0x207, 1),
	INLAY_HCA_CAP_UMR_MODIFY_ATOMIC_DISABLED = INLAY_BITS(0x208, 1),
	INLAY_HCA_CAP_UMR_INDIRECT_MKEY_DISABLED = INLAY_BITS(0x209, 1),
	INLAY_HCA_CAP_UMR_FENCE = INLAY_BITS(0x20a, 2),       /* 0 strong, 1 small, 2 none: what a UMR needs */
	INLAY_HCA_CAP_DC_REQ_SCAT_DATA_CQE = INLAY_BITS(0x20c, 1),
	INLAY_HCA_CAP_SCTR_DATA_CQE = INLAY_BITS(0x215, 1),   /* may scatter small payloads to CQEs */
	INLAY_HCA_CAP_DCT = INLAY_BITS(0x21a, 1),             /* DC transport */
	INLAY_HCA_CAP_ROCE = INLAY_BITS(0x21d, 1),            /* type ROCE answers */
	INLAY_HCA_CAP_ATOMIC = INLAY_BITS(0x21e, 1),          /* type ATOMIC answers */
	INLAY_HCA_CAP_CQ_OI = INLAY_BITS(0x220, 1),           /* ignore overrun */
	INLAY_HCA_CAP_CQ_MODERATION = INLAY_BITS(0x222, 1),
	INLAY_HCA_CAP_CD = INLAY_BITS(0x22c, 1),              /* cross-channel: cd_master, cd_slave_send */
	INLAY_HCA_CAP_UD = INLAY_BITS(0x23d, 1),
	INLAY_HCA_CAP_UC = INLAY_BITS(0x23e, 1),
	INLAY_HCA_CAP_RC = INLAY_BITS(0x23f, 1),
	INLAY_HCA_CAP_BF = INLAY_BITS(0x260, 1),              /* BlueFlame */
	INLAY_HCA_CAP_LOG_BF_REG_SIZE = INLAY_BITS(0x26b, 5), /* of the bytes of both halves of a register */
	INLAY_HCA_CAP_MAX_WQE_SZ_SQ = INLAY_BITS(0x290, 16),  /* bytes */
	INLAY_HCA_CAP_MAX_WQE_SZ_RQ = INLAY_BITS(0x2b0, 16),  /* bytes */
	INLAY_HCA_CAP_MAX_WQE_SZ_SQ_DC = INLAY_BITS(0x2d0, 16), /* bytes */
	INLAY_HCA_CAP_PCI_RELAXED_ORDERED_READ = INLAY_BITS(0x32a, 1), /* always; 6.12: relaxed_ordering_read */
	INLAY_HCA_CAP_LOG_MAX_PD = INLAY_BITS(0x32b, 5),
	INLAY_HCA_CAP_DP_ORDERING_OOO_ALL_UD = INLAY_BITS(0x330, 1), /* QPs may be out of order */
	INLAY_HCA_CAP_DP_ORDERING_OOO_ALL_UC = INLAY_BITS(0x331, 1),
	INLAY_HCA_CAP_DP_ORDERING_OOO_ALL_DC = INLAY_BITS(0x333, 1),
	INLAY_HCA_CAP_DP_ORDERING_OOO_ALL_RC = INLAY_BITS(0x334, 1),
	INLAY_HCA_CAP_LOG_MAX_RMP = INLAY_BITS(0x383, 5),     /* 0: no RMP */
	INLAY_HCA_CAP_LOG_MAX_WQ_SZ = INLAY_BITS(0x3db, 5),
	INLAY_HCA_CAP_GENERAL_OBJ_TYPES = INLAY_BITS(0x400, 64), /* bit n: type n can be created */
	INLAY_HCA_CAP_SQ_TS_FORMAT = INLAY_BITS(0x440, 2),    /* 0 free-running, 1 real-time, 2 both */
	INLAY_HCA_CAP_RQ_TS_FORMAT = INLAY_BITS(0x442, 2),    /* 0 free-running, 1 real-time, 2 both */
	INLAY_HCA_CAP_LOG_MAX_UCTX = INLAY_BITS(0x463, 5),    /* 0: no DEVX */
	INLAY_HCA_CAP_LOG_MAX_UMEM = INLAY_BITS(0x46b, 5),
	INLAY_HCA_CAP_LOG_UAR_PAGE_SZ = INLAY_BITS(0x490, 16), /* of the bytes, minus 12 */
	INLAY_HCA_CAP_DEVICE_FREQUENCY_KHZ = INLAY_BITS(0x4e0, 32), /* of timestamps */
	INLAY_HCA_CAP_ENHANCED_CQE_COMPRESSION = INLAY_BITS(0x5b0, 1), /* cqe_compression_layout 1 */
	INLAY_HCA_CAP_MINI_CQE_RESP_STRIDE_INDEX = INLAY_BITS(0x5bc, 1), /* mini CQE format 3 */
	INLAY_HCA_CAP_CQE_128_ALWAYS = INLAY_BITS(0x5bd, 1),  /* cqe_sz 2 */
	INLAY_HCA_CAP_CQE_COMPRESSION_128 = INLAY_BITS(0x5be, 1),
	INLAY_HCA_CAP_CQE_COMPRESSION = INLAY_BITS(0x5bf, 1),
	INLAY_HCA_CAP_CQE_COMPRESSION_TIMEOUT = INLAY_BITS(0x5c0, 16),
	INLAY_HCA_CAP_CQE_COMPRESSION_MAX_NUM = INLAY_BITS(0x5d0, 16),
	INLAY_HCA_CAP_TAG_MATCHING = INLAY_BITS(0x5f0, 1),    /* XRQ with tags */
	INLAY_HCA_CAP_RNDV_OFFLOAD_RC = INLAY_BITS(0x5f1, 1),
	INLAY_HCA_CAP_RNDV_OFFLOAD_DC = INLAY_BITS(0x5f2, 1),
	INLAY_HCA_CAP_LOG_TAG_MATCHING_LIST_SZ = INLAY_BITS(0x5f3, 5),
	INLAY_HCA_CAP_LOG_MAX_XRQ = INLAY_BITS(0x5fb, 5),
	INLAY_HCA_CAP_WAIT_ON_DATA = INLAY_BITS(0x68b, 1),    /* WAIT with opmod 1 */
	INLAY_HCA_CAP_WAIT_ON_TIME = INLAY_BITS(0x68c, 1),    /* WAIT with opmod 2 */
	INLAY_HCA_CAP_DMA_MMO_QP = INLAY_BITS(0x748, 1)       /* QPs copy memory, once INIT2INIT allows it */
};

INLAY_LAYOUT(hca_cap, 0x100);

/* General 2 */
struct inlay_hca_cap_2 {
	uint32_t dword[64];
};

enum inlay_hca_cap_2_field {
	INLAY_HCA_CAP_2_CROSS_VHCA_OBJECT_TO_OBJECT_SUPPORTED = INLAY_BITS(0xe0, 32), /* bit 8: of an mkey */
	INLAY_HCA_CAP_2_ALLOWED_OBJECT_FOR_OTHER_VHCA_ACCESS = INLAY_BITS(0x100, 64), /* bit 2: mkeys */
	INLAY_HCA_CAP_2_LOG_MIN_MKEY_ENTITY_SIZE = INLAY_BITS(0x1ab, 5)
};

INLAY_LAYOUT(hca_cap_2, 0x100);

/* Atomic operations */
struct inlay_atomic_cap {
	uint32_t dword[64];
};

enum inlay_atomic_cap_field {
	INLAY_ATOMIC_CAP_ATOMIC_REQ_8B_ENDIANNESS_MODE = INLAY_BITS(0x40, 2), /* 8 bytes: 0 big-endian, 1 host order */
	INLAY_ATOMIC_CAP_ATOMIC_OPERATIONS = INLAY_BITS(0x90, 16), /* bit 0 CS, 1 FA, 2 masked CS, 3 masked FA */
	INLAY_ATOMIC_CAP_ATOMIC_SIZE_QP = INLAY_BITS(0xb0, 16),    /* bit n: 2^n bytes */
	INLAY_ATOMIC_CAP_ATOMIC_SIZE_DC = INLAY_BITS(0xd0, 16)     /* bit n: 2^n bytes */
};

INLAY_LAYOUT(atomic_cap, 0x100);

/* RoCE */
struct inlay_roce_cap {
	uint32_t dword[64];
};

enum inlay_roce_cap_field {
	INLAY_ROCE_CAP_FL_RC_QP_WHEN_ROCE_DISABLED = INLAY_BITS(0x05, 1), /* force loopback of an RC QP */
	INLAY_ROCE_CAP_FL_RC_QP_WHEN_ROCE_ENABLED = INLAY_BITS(0x06, 1),
	INLAY_ROCE_CAP_QP_TS_FORMAT = INLAY_BITS(0x1e, 2),                /* 0 free-running, 1 real-time, 2 both */
	INLAY_ROCE_CAP_ROCE_VERSION = INLAY_BITS(0x98, 8),
	INLAY_ROCE_CAP_R_ROCE_MAX_SRC_UDP_PORT = INLAY_BITS(0xc0, 16),
	INLAY_ROCE_CAP_R_ROCE_MIN_SRC_UDP_PORT = INLAY_BITS(0xd0, 16)
};

INLAY_LAYOUT(roce_cap, 0x100);

/* The events to subscribe to: type n is bit n % 64 of the big-endian word n / 64. */
struct inlay_event_cap {
	uint64_t user_affiliated_events[4];   /* with an object */
	uint64_t user_unaffiliated_events[4]; /* without */
};

INLAY_LAYOUT_SIZE(event_cap, 0x40);

/* What QUERY_HCA_CAP answers. */
struct inlay_query_hca_cap_out {
	struct inlay_cmd_out cmd;
	union {
		struct inlay_hca_cap general;
		struct inlay_hca_cap_2 general_2;
		struct inlay_atomic_cap atomic;
		struct inlay_roce_cap roce;
		struct inlay_event_cap event;
		uint32_t dword[1024];
	} cap;
};

INLAY_LAYOUT_SIZE(query_hca_cap_out, 0x1010);
INLAY_LAYOUT_AT(query_hca_cap_out, cap, 0x80);

#endif
