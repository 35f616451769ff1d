/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc.h: the layouts of device commands: inboxes, outboxes, and the contexts in them. A
 * layout is a C struct of big-endian dwords, and constants that name the first bit and the width of
 * each field.
 *
 *   struct inlay_create_cq_in in;
 *
 *   memset(&in, 0, sizeof(in));
 *   inlay_cmd_in_set(&in.cmd, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_CREATE_CQ);
 *   inlay_cqc_set(&in.cqc, INLAY_CQC_LOG_CQ_SIZE, 8);
 *   inlay_cqc_set(&in.cqc, INLAY_CQC_UAR_PAGE, page);
 *   inlay_bits_set(&in.cqc, INLAY_BITS(0x63, 5), 8);       any field, by its place in the reference
 *
 * Bits are counted as the device's reference counts them: bit 0 is the most significant of byte 0.
 *
 *   bit     0         8         16        24        31 | 32
 *   dword   |  byte 0 |  byte 1 |  byte 2 |  byte 3  | |  byte 4 ...
 *
 * A field of 1 .. 32 bits lies in one dword; one of 64 bits in two, the high one first. Longer ones
 * (addresses, keys, lists) are members. Each struct has its own enum of fields, so the compiler
 * warns about another struct's field. With constant fields and the memset in sight, all sets
 * together become one store per dword; a get is one load.
 *
 * The fields are those that inlay and its examples use; INLAY_BITS reaches the others. LOG_ is the
 * exponent of a power of two. An UMEM_OFFSET and a DBR_ADDR count bytes in their umem.
 *
 * A command has an inbox create_NAME_in, or the header inlay_cmd_in alone; its outbox is the header
 * inlay_cmd_out alone, unless there is a layout NAME_out. A QP's transitions have create_qp_in;
 * MODIFY_CQ, _RMP and _RQ have the inbox of the create. The kernel fills in the uid and, in CREATE
 * and MODIFY (not in a QP's transitions, nor for KLM and KSM keys), the UMEM_VALID bits. It builds
 * the inbox that destroys an object when the object is created.
 *
 * Threads: pure functions of the caller's memory.
 * Sources: Linux's mlx5_ifc.h, whose notation rdma-core's DEVX_SET shares; for what it lacks,
 * tests/devx/ifc.t names the second source.
 */
#ifndef INLAY_DEVX_IFC_H
#define INLAY_DEVX_IFC_H /* a trial: names may change */

#include <inlay/base.h>

typedef uint32_t inlay_dword __attribute__((may_alias)); /* big-endian */
typedef uint64_t inlay_two_dwords __attribute__((may_alias, aligned(4)));

/* A field: its first bit and its width, 1 .. 32 or 64. */
#define INLAY_BITS(offset, width) ((width) << 24 | (offset))

/* Returns a field, in host order. at: the structure, aligned to 4 bytes. field: an INLAY_BITS. */
INLAY_ALWAYS uint64_t inlay_bits_get(const void *at, uint32_t field)
{
	uint32_t offset = field & 0xffffff, width = field >> 24;
	const inlay_dword *dword = (const inlay_dword *)at + offset / 32;

	if (width == 64)
		return inlay_from_be64(*(const inlay_two_dwords *)dword);
	return inlay_from_be32(dword[0]) >> (32 - width - offset % 32) & 0xffffffffu >> (32 - width);
}

/*
 * Writes a field and leaves its neighbours alone. value is in host order and must fit the width:
 * checked mode aborts, unchecked mode drops the upper bits.
 */
INLAY_ALWAYS void inlay_bits_set(void *at, uint32_t field, uint64_t value)
{
	uint32_t offset = field & 0xffffff, width = field >> 24, shift, mask;
	inlay_dword *dword = (inlay_dword *)at + offset / 32;

	if (width == 64) {
		*(inlay_two_dwords *)dword = inlay_to_be64(value);
		return;
	}
	INLAY_CHECK(value >> width == 0, "a value fits the width of its field");
	shift = 32 - width - offset % 32;
	mask = 0xffffffffu >> (32 - width) << shift;
	dword[0] = (dword[0] & ~inlay_to_be32(mask)) | inlay_to_be32((uint32_t)value << shift & mask);
}

/* Asserts the bit at which a member begins, such as a context inside a command. */
#define INLAY_LAYOUT_AT(name, member, bit) \
	INLAY_STATIC_ASSERT(offsetof(struct inlay_##name, member) * 8 == (bit), "the place of " #member " in " #name)

/*
 * Defines struct inlay_NAME, which has no fields beyond its members', and asserts its size in
 * bytes.
 */
#define INLAY_BOX(name, size, member, bit, members) \
	struct inlay_##name { members; }; \
	INLAY_STATIC_ASSERT(sizeof(struct inlay_##name) == (size) && (size) % 4 == 0, "the size of struct inlay_" #name); \
	INLAY_LAYOUT_AT(name, member, bit)

/*
 * The same, with the fields of enum inlay_NAME_field, and their accessors:
 *
 *   uint64_t inlay_NAME_get(const struct inlay_NAME *at, enum inlay_NAME_field field);
 *   void inlay_NAME_set(struct inlay_NAME *at, enum inlay_NAME_field field, uint64_t value);
 */
#define INLAY_LAYOUT(name, size, members, ...) \
	struct inlay_##name { members; }; \
	enum inlay_##name##_field { __VA_ARGS__ }; \
	INLAY_ALWAYS uint64_t inlay_##name##_get(const struct inlay_##name *at, enum inlay_##name##_field field) \
	{ return inlay_bits_get(at, (uint32_t)field); } \
	INLAY_ALWAYS void inlay_##name##_set(struct inlay_##name *at, enum inlay_##name##_field field, uint64_t value) \
	{ inlay_bits_set(at, (uint32_t)field, value); } \
	INLAY_STATIC_ASSERT(sizeof(struct inlay_##name) == (size) && (size) % 4 == 0, "the size of struct inlay_" #name)

/* ---- All commands ---- */

INLAY_LAYOUT(cmd_in, 0x10, uint32_t dword[4],
	INLAY_CMD_IN_OPCODE = INLAY_BITS(0x00, 16),
	INLAY_CMD_IN_OP_MOD = INLAY_BITS(0x30, 16),              /* of a general object its type, enum inlay_obj_type */
	INLAY_CMD_IN_NUMBER = INLAY_BITS(0x48, 24), INLAY_CMD_IN_ALIAS_OBJECT = INLAY_BITS(0x60, 1),
	INLAY_CMD_IN_NUM_PSV = INLAY_BITS(0x40, 4), INLAY_CMD_IN_LWM = INLAY_BITS(0x70, 16),
	INLAY_CMD_IN_ROCE_ADDRESS_INDEX = INLAY_BITS(0x40, 16),  /* QUERY_ROCE_ADDRESS: index of the GID */
	INLAY_CMD_IN_VHCA_PORT_NUM = INLAY_BITS(0x5c, 4));

INLAY_LAYOUT(cmd_out, 0x10, uint32_t dword[4],
	INLAY_CMD_OUT_STATUS = INLAY_BITS(0x00, 8), INLAY_CMD_OUT_SYNDROME = INLAY_BITS(0x20, 32),
	INLAY_CMD_OUT_NUMBER = INLAY_BITS(0x48, 24),             /* of a create: cqn, qpn, mkey_index, rmpn, ... */
	INLAY_CMD_OUT_OBJ_ID = INLAY_BITS(0x40, 32));

/*
 * Opcodes, INLAY_CMD_OP_..., by the call that the kernel lets them through. It refuses a command by
 * the wrong call, every command that destroys, and those that make event queues, UARs, user
 * contexts and umems. Opcodes 0xb00 .. 0xcff are all general.
 */
#define INLAY_CMD_OPS_(op) \
	/* inlay_devx_command */ \
	op(QUERY_HCA_CAP, 0x100) op(QUERY_ROCE_ADDRESS, 0x760) op(ALLOW_OTHER_VHCA_ACCESS, 0xb16) \
	/* inlay_devx_create */ \
	op(CREATE_MKEY, 0x200) op(CREATE_CQ, 0x400) op(CREATE_QP, 0x500) op(CREATE_PSV, 0x600) op(CREATE_DCT, 0x710) \
	op(CREATE_XRQ, 0x717) op(ALLOC_Q_COUNTER, 0x771) op(ALLOC_PD, 0x800) op(ALLOC_TRANSPORT_DOMAIN, 0x816) \
	op(CREATE_TIR, 0x900) op(CREATE_RQ, 0x908) op(CREATE_RMP, 0x90c) op(CREATE_RQT, 0x916) \
	op(CREATE_GENERAL_OBJECT, 0xa00) \
	/* inlay_devx_modify */ \
	op(MODIFY_CQ, 0x403) op(RST2INIT_QP, 0x502) op(INIT2RTR_QP, 0x503) op(RTR2RTS_QP, 0x504) op(RTS2RTS_QP, 0x505) \
	op(SQERR2RTS_QP, 0x506) op(2ERR_QP, 0x507) op(2RST_QP, 0x50a) op(INIT2INIT_QP, 0x50e) op(ARM_XRQ, 0x71a) \
	op(MODIFY_RQ, 0x909) op(MODIFY_RMP, 0x90d) op(MODIFY_GENERAL_OBJECT, 0xa01) \
	/* inlay_devx_query */ \
	op(QUERY_MKEY, 0x201) op(QUERY_CQ, 0x402) op(QUERY_QP, 0x50b) op(QUERY_DCT, 0x713) op(QUERY_XRQ, 0x719) \
	op(QUERY_RQ, 0x90b) op(QUERY_RMP, 0x90f) op(QUERY_GENERAL_OBJECT, 0xa02) \
	/* of verbs objects: queue/user_index.h */ \
	op(QUERY_XRC_SRQ, 0x707) op(QUERY_SQ, 0x907)

/* Status codes, INLAY_CMD_STATUS_..., with their errno and text. */
#define INLAY_CMD_STATUSES_(status) \
	status(OK, 0x00, 0, "OK") \
	status(INTERNAL_ERR, 0x01, EIO, "internal error") \
	status(BAD_OP, 0x02, EINVAL, "bad or unsupported opcode or op_mod") \
	status(BAD_PARAM, 0x03, EINVAL, "bad parameter, or a reserved bit set") \
	status(BAD_SYS_STATE, 0x04, EIO, "bad system state") \
	status(BAD_RES, 0x05, EINVAL, "bad resource: missing, or another context's") \
	status(RES_BUSY, 0x06, EBUSY, "resource busy") \
	status(LIM, 0x08, ENOMEM, "limit exceeded") \
	status(BAD_RES_STATE, 0x09, EINVAL, "bad resource state") \
	status(IX, 0x0a, EINVAL, "bad index") \
	status(NO_RES, 0x0f, EAGAIN, "no resources") \
	status(BAD_QP_STATE, 0x10, EINVAL, "bad QP state for this command") \
	status(BAD_PKT, 0x30, EINVAL, "bad management packet") \
	status(BAD_SIZE_OUTS_CQES, 0x40, EINVAL, "more outstanding CQEs than the new size") \
	status(BAD_INP_LEN, 0x50, EIO, "bad input length") \
	status(BAD_OUTP_LEN, 0x51, EIO, "bad output length")

#define INLAY_CMD_OP_(name, value) INLAY_CMD_OP_##name = value,
#define INLAY_CMD_STATUS_(name, value, err, text) INLAY_CMD_STATUS_##name = value,
enum inlay_cmd_op { INLAY_CMD_OPS_(INLAY_CMD_OP_) };
enum inlay_cmd_status { INLAY_CMD_STATUSES_(INLAY_CMD_STATUS_) };
#undef INLAY_CMD_OP_
#undef INLAY_CMD_STATUS_

/* ---- Events ---- */

enum inlay_event_type {
	INLAY_EVENT_COMP = 0x00,               /* CQ: completion, when armed */
	INLAY_EVENT_CQ_ERROR = 0x04,           /* CQ: overrun or access */
	INLAY_EVENT_PATH_MIG = 0x01, INLAY_EVENT_PATH_MIG_FAILED = 0x07, /* QP, as the next four lines */
	INLAY_EVENT_COMM_EST = 0x02,           /* a message arrived before RTS */
	INLAY_EVENT_SQ_DRAINED = 0x03, INLAY_EVENT_WQ_CATAS_ERROR = 0x05,
	INLAY_EVENT_WQ_INVAL_REQ_ERROR = 0x10, INLAY_EVENT_WQ_ACCESS_ERROR = 0x11,
	INLAY_EVENT_SRQ_LAST_WQE = 0x13,       /* on a shared queue: it takes no more entries */
	INLAY_EVENT_SRQ_CATAS_ERROR = 0x12,    /* SRQ, RMP, XRQ */
	INLAY_EVENT_SRQ_RQ_LIMIT = 0x14,       /* SRQ, RMP, XRQ: fewer entries than the armed limit */
	INLAY_EVENT_XRQ_ERROR = 0x18,
	INLAY_EVENT_DCT_DRAINED = 0x1c, INLAY_EVENT_DCT_KEY_VIOLATION = 0x1d,
	INLAY_EVENT_INTERNAL_ERROR = 0x08, INLAY_EVENT_PORT_CHANGE = 0x09 /* device */
};

/* An entry of the event queue; an event channel without OMIT_DATA delivers it after the cookie. */
INLAY_LAYOUT(eqe, 0x40, uint32_t dword[16],
	INLAY_EQE_EVENT_TYPE = INLAY_BITS(0x08, 8), INLAY_EQE_EVENT_SUB_TYPE = INLAY_BITS(0x18, 8),
	INLAY_EQE_CQ_ERROR_CQN = INLAY_BITS(0x108, 24),
	INLAY_EQE_CQ_ERROR_SYNDROME = INLAY_BITS(0x158, 8),      /* CQ_ERROR: 1 overrun, 2 access */
	INLAY_EQE_OBJ_TYPE = INLAY_BITS(0x110, 16),              /* events of general objects, and newer ones */
	INLAY_EQE_OBJ_ID = INLAY_BITS(0x120, 32), INLAY_EQE_XRQ_ERROR_XRQN = INLAY_BITS(0x1a8, 24),
	INLAY_EQE_QP_TYPE = INLAY_BITS(0x1a0, 8),                /* QP and SRQ events: 0 QP or SRQ, 1 RQ, 2 SQ, 6 DCT */
	INLAY_EQE_NUMBER = INLAY_BITS(0x1c8, 24));               /* QP, SRQ, DCT, completion events: qpn, srqn, dctn, cqn */

/*
 * ---- Capabilities: QUERY_HCA_CAP, one answer for each type ----
 *
 * The general capabilities say which other types the device has; a query for any other fails. 0
 * means no, none, or a field newer than the firmware. INLAY_CAP_EVENT lists the events to subscribe
 * to, with an object from bit 0 on, without from 0x100 on: type n is bit n % 64 of the big-endian
 * 64-bit word n / 64.
 */
enum inlay_cap_type {
	INLAY_CAP_GENERAL = 0x00, INLAY_CAP_ATOMIC = 0x03, INLAY_CAP_ROCE = 0x04,
	INLAY_CAP_EVENT = 0x14 /* when event_cap */, INLAY_CAP_GENERAL_2 = 0x20 /* when hca_cap_2 */
};

INLAY_LAYOUT(hca_cap, 0x100, uint32_t dword[64],
	INLAY_HCA_CAP_HCA_CAP_2 = INLAY_BITS(0x20, 1),
	INLAY_HCA_CAP_VHCA_ID = INLAY_BITS(0x30, 16),            /* this function's number, for cross-VHCA access */
	INLAY_HCA_CAP_LOG_DMA_MMO_MAX_SIZE = INLAY_BITS(0x6b, 5), /* of the bytes of a copy; 0: 31 */
	INLAY_HCA_CAP_LOG_MAX_SRQ_SZ = INLAY_BITS(0x80, 8), INLAY_HCA_CAP_LOG_MAX_QP_SZ = INLAY_BITS(0x88, 8),
	INLAY_HCA_CAP_EVENT_CAP = INLAY_BITS(0x90, 1), INLAY_HCA_CAP_LOG_MAX_QP = INLAY_BITS(0x9b, 5),
	INLAY_HCA_CAP_LOG_MAX_SRQ = INLAY_BITS(0xab, 5), INLAY_HCA_CAP_LOG_MAX_CQ_SZ = INLAY_BITS(0xc8, 8),
	INLAY_HCA_CAP_RELAXED_ORDERING_WRITE_UMR = INLAY_BITS(0xd0, 1),
	INLAY_HCA_CAP_RELAXED_ORDERING_READ_UMR = INLAY_BITS(0xd1, 1), INLAY_HCA_CAP_LOG_MAX_CQ = INLAY_BITS(0xdb, 5),
	INLAY_HCA_CAP_RELAXED_ORDERING_WRITE = INLAY_BITS(0xe8, 1),
	INLAY_HCA_CAP_RELAXED_ORDERING_READ = INLAY_BITS(0xe9, 1), /* while PCI has it on; 6.12: ..._pci_enabled */
	INLAY_HCA_CAP_LOG_MAX_MKEY = INLAY_BITS(0xea, 6), INLAY_HCA_CAP_MAX_INDIRECTION = INLAY_BITS(0x100, 8),
	INLAY_HCA_CAP_FIXED_BUFFER_SIZE = INLAY_BITS(0x108, 1),
	INLAY_HCA_CAP_UMR_EXTENDED_TRANSLATION_OFFSET = INLAY_BITS(0x118, 1),
	INLAY_HCA_CAP_NULL_MKEY = INLAY_BITS(0x119, 1), INLAY_HCA_CAP_LOG_MAX_KLM_LIST_SIZE = INLAY_BITS(0x11a, 6),
	INLAY_HCA_CAP_LOG_MAX_RA_REQ_DC = INLAY_BITS(0x12a, 6), INLAY_HCA_CAP_LOG_MAX_RA_RES_DC = INLAY_BITS(0x13a, 6),
	INLAY_HCA_CAP_LOG_MAX_RA_REQ_QP = INLAY_BITS(0x14a, 6), INLAY_HCA_CAP_LOG_MAX_RA_RES_QP = INLAY_BITS(0x15a, 6),
	INLAY_HCA_CAP_GID_TABLE_SIZE = INLAY_BITS(0x170, 16),    /* n: 8 << n entries, up to n = 4 */
	INLAY_HCA_CAP_PORT_TYPE = INLAY_BITS(0x1b6, 2), INLAY_HCA_CAP_NUM_PORTS = INLAY_BITS(0x1b8, 8),
	INLAY_HCA_CAP_LOG_MAX_MSG = INLAY_BITS(0x1c3, 5),
	INLAY_HCA_CAP_CQE_VERSION = INLAY_BITS(0x1fc, 4),        /* 1: CQEs say user_index */
	INLAY_HCA_CAP_COMPACT_ADDRESS_VECTOR = INLAY_BITS(0x200, 1),
	INLAY_HCA_CAP_UMR_MODIFY_ENTITY_SIZE_DISABLED = INLAY_BITS(0x207, 1),
	INLAY_HCA_CAP_UMR_MODIFY_ATOMIC_DISABLED = INLAY_BITS(0x208, 1),
	INLAY_HCA_CAP_UMR_INDIRECT_MKEY_DISABLED = INLAY_BITS(0x209, 1),
	INLAY_HCA_CAP_UMR_FENCE = INLAY_BITS(0x20a, 2),          /* 0 strong, 1 small, 2 none: what a UMR needs */
	INLAY_HCA_CAP_DC_REQ_SCAT_DATA_CQE = INLAY_BITS(0x20c, 1), INLAY_HCA_CAP_SCTR_DATA_CQE = INLAY_BITS(0x215, 1),
	INLAY_HCA_CAP_DCT = INLAY_BITS(0x21a, 1), INLAY_HCA_CAP_ROCE = INLAY_BITS(0x21d, 1),
	INLAY_HCA_CAP_ATOMIC = INLAY_BITS(0x21e, 1), INLAY_HCA_CAP_CQ_OI = INLAY_BITS(0x220, 1),
	INLAY_HCA_CAP_CQ_MODERATION = INLAY_BITS(0x222, 1), INLAY_HCA_CAP_CD = INLAY_BITS(0x22c, 1),
	INLAY_HCA_CAP_UD = INLAY_BITS(0x23d, 1), INLAY_HCA_CAP_UC = INLAY_BITS(0x23e, 1),
	INLAY_HCA_CAP_RC = INLAY_BITS(0x23f, 1), INLAY_HCA_CAP_BF = INLAY_BITS(0x260, 1),
	INLAY_HCA_CAP_LOG_BF_REG_SIZE = INLAY_BITS(0x26b, 5),    /* of the bytes of both halves of a register */
	INLAY_HCA_CAP_MAX_WQE_SZ_SQ = INLAY_BITS(0x290, 16), INLAY_HCA_CAP_MAX_WQE_SZ_RQ = INLAY_BITS(0x2b0, 16),
	INLAY_HCA_CAP_MAX_WQE_SZ_SQ_DC = INLAY_BITS(0x2d0, 16),
	INLAY_HCA_CAP_PCI_RELAXED_ORDERED_READ = INLAY_BITS(0x32a, 1), /* always; 6.12: relaxed_ordering_read */
	INLAY_HCA_CAP_LOG_MAX_PD = INLAY_BITS(0x32b, 5), INLAY_HCA_CAP_DP_ORDERING_OOO_ALL_UD = INLAY_BITS(0x330, 1),
	INLAY_HCA_CAP_DP_ORDERING_OOO_ALL_UC = INLAY_BITS(0x331, 1),
	INLAY_HCA_CAP_DP_ORDERING_OOO_ALL_DC = INLAY_BITS(0x333, 1),
	INLAY_HCA_CAP_DP_ORDERING_OOO_ALL_RC = INLAY_BITS(0x334, 1), INLAY_HCA_CAP_LOG_MAX_RMP = INLAY_BITS(0x383, 5),
	INLAY_HCA_CAP_LOG_MAX_WQ_SZ = INLAY_BITS(0x3db, 5), INLAY_HCA_CAP_GENERAL_OBJ_TYPES = INLAY_BITS(0x400, 64),
	INLAY_HCA_CAP_SQ_TS_FORMAT = INLAY_BITS(0x440, 2),       /* 0 free-running, 1 real-time, 2 both */
	INLAY_HCA_CAP_RQ_TS_FORMAT = INLAY_BITS(0x442, 2), INLAY_HCA_CAP_LOG_MAX_UCTX = INLAY_BITS(0x463, 5),
	INLAY_HCA_CAP_LOG_MAX_UMEM = INLAY_BITS(0x46b, 5),
	INLAY_HCA_CAP_LOG_UAR_PAGE_SZ = INLAY_BITS(0x490, 16),   /* of the bytes, minus 12 */
	INLAY_HCA_CAP_DEVICE_FREQUENCY_KHZ = INLAY_BITS(0x4e0, 32),
	INLAY_HCA_CAP_ENHANCED_CQE_COMPRESSION = INLAY_BITS(0x5b0, 1),
	INLAY_HCA_CAP_MINI_CQE_RESP_STRIDE_INDEX = INLAY_BITS(0x5bc, 1),
	INLAY_HCA_CAP_CQE_128_ALWAYS = INLAY_BITS(0x5bd, 1), INLAY_HCA_CAP_CQE_COMPRESSION_128 = INLAY_BITS(0x5be, 1),
	INLAY_HCA_CAP_CQE_COMPRESSION = INLAY_BITS(0x5bf, 1),
	INLAY_HCA_CAP_CQE_COMPRESSION_TIMEOUT = INLAY_BITS(0x5c0, 16),
	INLAY_HCA_CAP_CQE_COMPRESSION_MAX_NUM = INLAY_BITS(0x5d0, 16),
	INLAY_HCA_CAP_TAG_MATCHING = INLAY_BITS(0x5f0, 1), INLAY_HCA_CAP_RNDV_OFFLOAD_RC = INLAY_BITS(0x5f1, 1),
	INLAY_HCA_CAP_RNDV_OFFLOAD_DC = INLAY_BITS(0x5f2, 1),
	INLAY_HCA_CAP_LOG_TAG_MATCHING_LIST_SZ = INLAY_BITS(0x5f3, 5), INLAY_HCA_CAP_LOG_MAX_XRQ = INLAY_BITS(0x5fb, 5),
	INLAY_HCA_CAP_WAIT_ON_DATA = INLAY_BITS(0x68b, 1), INLAY_HCA_CAP_WAIT_ON_TIME = INLAY_BITS(0x68c, 1),
	INLAY_HCA_CAP_DMA_MMO_QP = INLAY_BITS(0x748, 1),         /* QPs copy memory, once INIT2INIT allows it */
	/* INLAY_CAP_GENERAL_2 */
	INLAY_HCA_CAP_2_CROSS_VHCA_OBJECT_TO_OBJECT_SUPPORTED = INLAY_BITS(0xe0, 32), /* bit 8: of an mkey */
	INLAY_HCA_CAP_2_ALLOWED_OBJECT_FOR_OTHER_VHCA_ACCESS = INLAY_BITS(0x100, 64), /* bit 2: mkeys */
	INLAY_HCA_CAP_2_LOG_MIN_MKEY_ENTITY_SIZE = INLAY_BITS(0x1ab, 5),
	/* INLAY_CAP_ATOMIC */
	INLAY_ATOMIC_CAP_ATOMIC_REQ_8B_ENDIANNESS_MODE = INLAY_BITS(0x40, 2), /* 8 bytes: 0 big-endian, 1 host order */
	INLAY_ATOMIC_CAP_ATOMIC_OPERATIONS = INLAY_BITS(0x90, 16), /* bit 0 CS, 1 FA, 2 masked CS, 3 masked FA */
	INLAY_ATOMIC_CAP_ATOMIC_SIZE_QP = INLAY_BITS(0xb0, 16),
	INLAY_ATOMIC_CAP_ATOMIC_SIZE_DC = INLAY_BITS(0xd0, 16), /* bit n: 2^n bytes */
	/* INLAY_CAP_ROCE */
	INLAY_ROCE_CAP_FL_RC_QP_WHEN_ROCE_DISABLED = INLAY_BITS(0x05, 1),
	INLAY_ROCE_CAP_FL_RC_QP_WHEN_ROCE_ENABLED = INLAY_BITS(0x06, 1),
	INLAY_ROCE_CAP_QP_TS_FORMAT = INLAY_BITS(0x1e, 2), INLAY_ROCE_CAP_ROCE_VERSION = INLAY_BITS(0x98, 8),
	INLAY_ROCE_CAP_R_ROCE_MAX_SRC_UDP_PORT = INLAY_BITS(0xc0, 16),
	INLAY_ROCE_CAP_R_ROCE_MIN_SRC_UDP_PORT = INLAY_BITS(0xd0, 16));

INLAY_BOX(query_hca_cap_out, 0x1010, cap, 0x80, struct inlay_cmd_out cmd; struct inlay_hca_cap cap; uint32_t dword[960]);

/*
 * ---- Completion queues ----
 *
 * The ring is 2^log_cq_size CQEs in a umem that the device may write. The doorbell record is 8
 * bytes: dword 0 the consumer index, dword 1 the arm word. Before CREATE_CQ, set the last byte of
 * each 64-byte unit of the ring to 0xf1 (opcode invalid, hardware's owner bit) and the record to 0.
 * The EQN comes from mlx5dv_devx_query_eqn, the UAR number from mlx5dv_devx_alloc_uar.
 */
enum inlay_cqe_sz { INLAY_CQE_SZ_64 = 0, INLAY_CQE_SZ_128 = 1 }; /* 128: the CQE is at +64; +0 is for scattered data */
enum inlay_cq_status { INLAY_CQ_STATUS_OK = 0x0, INLAY_CQ_STATUS_OVERFLOW = 0x9, INLAY_CQ_STATUS_WRITE_FAIL = 0xa };
/* The clock of a queue's timestamps; the capability sq_ts_format and its siblings list them. */
enum inlay_ts_format { INLAY_TS_FREE_RUNNING = 0, INLAY_TS_DEFAULT = 1, INLAY_TS_REAL_TIME = 2 };

INLAY_LAYOUT(cqc, 0x40, uint32_t dword[16],
	INLAY_CQC_STATUS = INLAY_BITS(0x00, 4), INLAY_CQC_DBR_UMEM_VALID = INLAY_BITS(0x06, 1),
	INLAY_CQC_CQE_SZ = INLAY_BITS(0x08, 3),
	INLAY_CQC_CC = INLAY_BITS(0x0b, 1),                      /* collapsed: every CQE is written to slot 0; needs oi */
	INLAY_CQC_OI = INLAY_BITS(0x0e, 1),                      /* ignore overrun: the consumer index is not read */
	INLAY_CQC_CQE_COMP_EN = INLAY_BITS(0x11, 1),
	INLAY_CQC_MINI_CQE_RES_FORMAT = INLAY_BITS(0x12, 2),     /* 0 hash, 1 checksum, 3 checksum and stride index */
	INLAY_CQC_CQE_COMPRESSION_LAYOUT = INLAY_BITS(0x1e, 2),  /* 0 basic, 1 enhanced */
	INLAY_CQC_DBR_UMEM_ID = INLAY_BITS(0x20, 32),
	INLAY_CQC_MINI_CQE_RES_FORMAT_EXT = INLAY_BITS(0x5c, 2), /* 1: types of the L3 and L4 headers, stride index */
	INLAY_CQC_LOG_CQ_SIZE = INLAY_BITS(0x63, 5), INLAY_CQC_UAR_PAGE = INLAY_BITS(0x68, 24),
	INLAY_CQC_CQ_PERIOD = INLAY_BITS(0x84, 12),              /* moderation, microseconds; 0 none */
	INLAY_CQC_CQ_MAX_COUNT = INLAY_BITS(0x90, 16), INLAY_CQC_C_EQN_OR_APU_ELEMENT = INLAY_BITS(0xa0, 32),
	INLAY_CQC_CONSUMER_COUNTER = INLAY_BITS(0x148, 24), INLAY_CQC_PRODUCER_COUNTER = INLAY_BITS(0x168, 24),
	INLAY_CQC_DBR_ADDR = INLAY_BITS(0x1c0, 64));

INLAY_LAYOUT(create_cq_in, 0x110, struct inlay_cmd_in cmd; struct inlay_cqc cqc; uint32_t dword[48],
	INLAY_CREATE_CQ_IN_CQ_UMEM_OFFSET = INLAY_BITS(0x280, 64),
	INLAY_CREATE_CQ_IN_CQ_UMEM_ID = INLAY_BITS(0x2c0, 32), INLAY_CREATE_CQ_IN_CQ_UMEM_VALID = INLAY_BITS(0x2e0, 1));
INLAY_LAYOUT_AT(create_cq_in, cqc, 0x80);
INLAY_BOX(query_cq_out, 0x110, cqc, 0x80, struct inlay_cmd_out cmd; struct inlay_cqc cqc; uint32_t dword[48]);

/*
 * ---- Queue pairs and their address paths ----
 *
 * In the umem the receive queue comes first and the send queue follows without a gap. The doorbell
 * record is 8 bytes: dword 0 the receive counter, dword 1 the send counter. A QP without queues
 * still names some valid umem. 2ERR_QP and 2RST_QP are a header with the qpn, from any state.
 *
 * A transition takes the fields that it requires. It ignores a field that an earlier step takes
 * unless its bit is set in opt_param_mask: rre, rwe and rae in INIT2RTR, for example. The table is
 * from Linux, infiniband/hw/mlx5/qp.c.
 *
 *   step       required                                             with a bit of the mask
 *   RST2INIT   pm_state MIGRATED, vhca_port_num, pkey_index (IB),   -
 *              counter_set_id; RC: rre rwe rae atomic_mode; UD: q_key
 *   INIT2RTR   mtu, log_msg_max; RC: remote_qpn next_rcv_psn        RRE RAE RWE PKEY_INDEX
 *              log_rra_max min_rnr_nak, primary path;               UD: PKEY_INDEX Q_KEY
 *              DCI: sl (IB) or eth_prio of the path                 DCI: RAE
 *   RTR2RTS    next_send_psn; RC, DCI: retry_count rnr_retry        RRE RAE RWE PM_STATE
 *              log_sra_max log_ack_req_freq, ack_timeout            RNR_TIMEOUT
 *   RTS2RTS, SQERR2RTS                                              as RTR2RTS; UD: Q_KEY
 *   INIT2INIT                                                       RC: as INIT2RTR, and PRI_PORT
 */
enum inlay_qp_st {
	INLAY_QP_ST_RC = 0x0, INLAY_QP_ST_UC = 0x1, INLAY_QP_ST_UD = 0x2, INLAY_QP_ST_DCI = 0x5,
	INLAY_QP_ST_DCT = 0x6, INLAY_QP_ST_RAW = 0x9 /* never in CREATE_QP here */
};
enum inlay_qp_state {
	INLAY_QP_STATE_RST = 0x0, INLAY_QP_STATE_INIT = 0x1, INLAY_QP_STATE_RTR = 0x2, INLAY_QP_STATE_RTS = 0x3,
	INLAY_QP_STATE_SQER = 0x4, INLAY_QP_STATE_ERR = 0x6, INLAY_QP_STATE_SQD = 0x7
};
enum inlay_qp_pm { INLAY_QP_PM_MIGRATED = 3 };
enum inlay_rq_type { INLAY_RQ_TYPE_OWN = 0, INLAY_RQ_TYPE_SHARED = 1, INLAY_RQ_TYPE_NONE = 3 };
enum inlay_atomic_mode { INLAY_ATOMIC_MODE_IB = 1, INLAY_ATOMIC_MODE_UP_TO_8 = 3 };
/* Scattering to the CQE, by requester and responder; up to 64 bytes needs CQEs of 128 bytes. */
enum inlay_cs_req { INLAY_CS_REQ_OFF = 0x00, INLAY_CS_REQ_UP_TO_32 = 0x11, INLAY_CS_REQ_UP_TO_64 = 0x22 };
enum inlay_cs_res { INLAY_CS_RES_OFF = 0, INLAY_CS_RES_UP_TO_32 = 1, INLAY_CS_RES_UP_TO_64 = 2 };
enum inlay_qp_opt { INLAY_QP_OPT_RAE = 1 << 2 }; /* of opt_param_mask */
#define INLAY_QP_OPT_95_32_MMO 8u                /* of opt_param_mask_95_32, INIT2INIT */
#define INLAY_QP_OPT_95_32_STREAM 1u             /* RTS2RTS */

/*
 * Address path. On RoCE grh, mlid and rlid stay 0: a GRH is implied. rgid_rip: the destination's
 * GID.
 */
INLAY_LAYOUT(ads, 0x2c, uint32_t dword[4]; uint8_t rgid_rip[16]; uint8_t more[6]; uint8_t rmac[6],
	INLAY_ADS_PKEY_INDEX = INLAY_BITS(0x10, 16), INLAY_ADS_GRH = INLAY_BITS(0x28, 1),
	INLAY_ADS_MLID = INLAY_BITS(0x29, 7),                    /* IB: source path bits */
	INLAY_ADS_RLID = INLAY_BITS(0x30, 16),
	INLAY_ADS_ACK_TIMEOUT = INLAY_BITS(0x40, 5),             /* 4.096 us << ack_timeout; 0: no timeout. Taken in RTR2RTS */
	INLAY_ADS_SRC_ADDR_INDEX = INLAY_BITS(0x48, 8), INLAY_ADS_HOP_LIMIT = INLAY_BITS(0x58, 8),
	INLAY_ADS_TCLASS = INLAY_BITS(0x64, 8), INLAY_ADS_FLOW_LABEL = INLAY_BITS(0x6c, 20),
	INLAY_ADS_DSCP = INLAY_BITS(0x10a, 6),                   /* RoCE v2: tclass >> 2 */
	INLAY_ADS_UDP_SPORT = INLAY_BITS(0x110, 16),             /* RoCE v2: 0xc000 .. 0xffff; v1: 0 */
	INLAY_ADS_ETH_PRIO = INLAY_BITS(0x121, 3), INLAY_ADS_SL = INLAY_BITS(0x124, 4),
	INLAY_ADS_VHCA_PORT_NUM = INLAY_BITS(0x128, 8));
INLAY_LAYOUT_AT(ads, rgid_rip, 0x80);
INLAY_LAYOUT_AT(ads, rmac, 0x130);

/* QP context */
INLAY_LAYOUT(qpc, 0xe8, uint32_t dword[6]; struct inlay_ads primary; uint32_t more[41],
	INLAY_QPC_STATE = INLAY_BITS(0x00, 4), INLAY_QPC_ST = INLAY_BITS(0x08, 8),
	INLAY_QPC_PM_STATE = INLAY_BITS(0x13, 2),
	INLAY_QPC_OFFLOAD_TYPE = INLAY_BITS(0x18, 4),            /* 1: rendezvous QP of a tag-matching XRQ, with no_sq */
	INLAY_QPC_PD = INLAY_BITS(0x28, 24), INLAY_QPC_MTU = INLAY_BITS(0x40, 3), /* 1 .. 5: 256 .. 4096 bytes */
	INLAY_QPC_LOG_MSG_MAX = INLAY_BITS(0x43, 5),             /* log2 of the longest message: 30; UD: of the MTU */
	INLAY_QPC_LOG_RQ_SIZE = INLAY_BITS(0x49, 4),
	INLAY_QPC_LOG_RQ_STRIDE = INLAY_BITS(0x4d, 3),           /* log2 of a WQE's bytes, minus 4 */
	INLAY_QPC_NO_SQ = INLAY_BITS(0x50, 1), INLAY_QPC_LOG_SQ_SIZE = INLAY_BITS(0x51, 4),
	INLAY_QPC_TS_FORMAT = INLAY_BITS(0x58, 2), INLAY_QPC_COUNTER_SET_ID = INLAY_BITS(0x60, 8),
	INLAY_QPC_UAR_PAGE = INLAY_BITS(0x68, 24),               /* doorbells from another UAR are dropped */
	INLAY_QPC_USER_INDEX = INLAY_BITS(0x88, 24),             /* in CQEs when cqe_version is 1; 0xffffff none */
	INLAY_QPC_REMOTE_QPN = INLAY_BITS(0xa8, 24),
	INLAY_QPC_LOG_ACK_REQ_FREQ = INLAY_BITS(0x380, 4),       /* log2 of packets between ack requests; usually 8 */
	INLAY_QPC_LOG_SRA_MAX = INLAY_BITS(0x388, 3),            /* log2 of reads and atomics that we begin */
	INLAY_QPC_RETRY_COUNT = INLAY_BITS(0x38d, 3), INLAY_QPC_RNR_RETRY = INLAY_BITS(0x390, 3),
	INLAY_QPC_NEXT_SEND_PSN = INLAY_BITS(0x3c8, 24), INLAY_QPC_LOG_NUM_DCI_STREAM_CHANNELS = INLAY_BITS(0x3e3, 5),
	INLAY_QPC_CQN_SND = INLAY_BITS(0x3e8, 24), INLAY_QPC_LOG_NUM_DCI_ERRORED_STREAMS = INLAY_BITS(0x403, 5),
	INLAY_QPC_LOG_RRA_MAX = INLAY_BITS(0x488, 3), INLAY_QPC_ATOMIC_MODE = INLAY_BITS(0x48c, 4),
	INLAY_QPC_RRE = INLAY_BITS(0x490, 1), INLAY_QPC_RWE = INLAY_BITS(0x491, 1),
	INLAY_QPC_RAE = INLAY_BITS(0x492, 1),
	INLAY_QPC_DP_ORDERING_1 = INLAY_BITS(0x49c, 1),          /* messages in any order; INIT2RTR */
	INLAY_QPC_CD_SLAVE_SEND = INLAY_BITS(0x49e, 1), INLAY_QPC_CD_MASTER = INLAY_BITS(0x49f, 1),
	INLAY_QPC_MIN_RNR_NAK = INLAY_BITS(0x4a3, 5), INLAY_QPC_NEXT_RCV_PSN = INLAY_BITS(0x4a8, 24),
	INLAY_QPC_CQN_RCV = INLAY_BITS(0x4e8, 24), INLAY_QPC_DBR_ADDR = INLAY_BITS(0x500, 64),
	INLAY_QPC_Q_KEY = INLAY_BITS(0x540, 32), INLAY_QPC_RQ_TYPE = INLAY_BITS(0x565, 3),
	INLAY_QPC_SRQN_RMPN_XRQN = INLAY_BITS(0x568, 24),
	INLAY_QPC_CS_REQ = INLAY_BITS(0x630, 8),                 /* requester scatters to the CQE: enum inlay_cs_req */
	INLAY_QPC_CS_RES = INLAY_BITS(0x638, 8), INLAY_QPC_DC_ACCESS_KEY = INLAY_BITS(0x640, 64),
	INLAY_QPC_DBR_UMEM_VALID = INLAY_BITS(0x683, 1), INLAY_QPC_DBR_UMEM_ID = INLAY_BITS(0x720, 32));
INLAY_LAYOUT_AT(qpc, primary, 0xc0);

INLAY_LAYOUT(create_qp_in, 0x110,
	struct inlay_cmd_in cmd; uint32_t dword[2]; struct inlay_qpc qpc; uint32_t more[4],
	INLAY_CREATE_QP_IN_OPT_PARAM_MASK = INLAY_BITS(0x80, 32),
	INLAY_CREATE_QP_IN_WQ_UMEM_OFFSET = INLAY_BITS(0x800, 64),
	INLAY_CREATE_QP_IN_WQ_UMEM_ID = INLAY_BITS(0x840, 32), INLAY_CREATE_QP_IN_WQ_UMEM_VALID = INLAY_BITS(0x860, 1));
INLAY_LAYOUT_AT(create_qp_in, qpc, 0xc0);

/* INIT2INIT_QP and RTS2RTS_QP with qpc_data_ext: a longer box than create_qp_in. */
INLAY_LAYOUT(qp_ext_in, 0x1d0,
	struct inlay_cmd_in cmd; uint32_t dword[2]; struct inlay_qpc qpc; uint32_t more[4]; uint32_t qpc_data_ext[48],
	INLAY_QP_EXT_IN_QPC_EXT = INLAY_BITS(0x40, 1), INLAY_QP_EXT_IN_OPT_PARAM_MASK_95_32 = INLAY_BITS(0x840, 64),
	INLAY_QP_EXT_IN_MMO = INLAY_BITS(0x882, 1), INLAY_QP_EXT_IN_DCI_STREAM = INLAY_BITS(0x890, 16));
INLAY_LAYOUT_AT(qp_ext_in, qpc, 0xc0);
INLAY_LAYOUT_AT(qp_ext_in, qpc_data_ext, 0x880);
INLAY_BOX(query_qp_out, 0x110, qpc, 0xc0,
	  struct inlay_cmd_out cmd; uint32_t dword[2]; struct inlay_qpc qpc; uint32_t more[4]);

/* An entry of a RoCE port's GID table. */
INLAY_BOX(query_roce_address_out, 0x30, source_mac, 0x110,
	  struct inlay_cmd_out cmd; uint8_t source_l3_address[16]; uint8_t more[2]; uint8_t source_mac[6]; uint32_t dword[2]);

/*
 * ---- Memory keys ----
 *
 * The key, as lkey or rkey, is mkey_index << 8 | mkey_7_0. In a key of other keys, an entry
 * (inlay_wqe_klm) for each of them follows the inbox. KLM entries follow each other, each with its
 * own length. A KSM entry covers 2^log_page_size bytes. The offset from start_addr selects the entry.
 * translations_octword_size counts the octwords (16 bytes) that the key can hold,
 * translations_octword_actual_size those in the command: one per entry, one per two pages of MTT.
 */
enum inlay_mkey_mode { INLAY_MKEY_MTT = 1, INLAY_MKEY_KLM = 2, INLAY_MKEY_KSM = 3 };

INLAY_LAYOUT(mkc, 0x40, uint32_t dword[16],
	INLAY_MKC_FREE = INLAY_BITS(0x01, 1), INLAY_MKC_RELAXED_ORDERING_WRITE = INLAY_BITS(0x0d, 1),
	INLAY_MKC_UMR_EN = INLAY_BITS(0x10, 1), INLAY_MKC_A = INLAY_BITS(0x11, 1), INLAY_MKC_RW = INLAY_BITS(0x12, 1),
	INLAY_MKC_RR = INLAY_BITS(0x13, 1), INLAY_MKC_LW = INLAY_BITS(0x14, 1), INLAY_MKC_LR = INLAY_BITS(0x15, 1),
	INLAY_MKC_ACCESS_MODE_1_0 = INLAY_BITS(0x16, 2), INLAY_MKC_QPN = INLAY_BITS(0x20, 24), /* 0xffffff: any QP */
	INLAY_MKC_MKEY_7_0 = INLAY_BITS(0x38, 8),
	INLAY_MKC_BSF_EN = INLAY_BITS(0x61, 1),                  /* signatures; they take BSF_OCTWORD_SIZE */
	INLAY_MKC_PD = INLAY_BITS(0x68, 24), INLAY_MKC_START_ADDR = INLAY_BITS(0x80, 64),
	INLAY_MKC_LEN = INLAY_BITS(0xc0, 64), INLAY_MKC_BSF_OCTWORD_SIZE = INLAY_BITS(0x100, 32),
	INLAY_MKC_TRANSLATIONS_OCTWORD_SIZE = INLAY_BITS(0x1a0, 32),
	INLAY_MKC_RELAXED_ORDERING_READ = INLAY_BITS(0x1d9, 1),
	INLAY_MKC_LOG_PAGE_SIZE = INLAY_BITS(0x1db, 5));         /* MTT: log2 of the page; KSM: of what an entry covers */

INLAY_LAYOUT(create_mkey_in, 0x110, struct inlay_cmd_in cmd; struct inlay_mkc mkc; uint32_t dword[48],
	INLAY_CREATE_MKEY_IN_MKEY_UMEM_VALID = INLAY_BITS(0x61, 1),
	INLAY_CREATE_MKEY_IN_TRANSLATIONS_OCTWORD_ACTUAL_SIZE = INLAY_BITS(0x300, 32),
	INLAY_CREATE_MKEY_IN_MKEY_UMEM_ID = INLAY_BITS(0x320, 32),
	INLAY_CREATE_MKEY_IN_MKEY_UMEM_OFFSET = INLAY_BITS(0x340, 64));
INLAY_LAYOUT_AT(create_mkey_in, mkc, 0x80);
INLAY_BOX(query_mkey_out, 0x130, klm, 0x880,
	  struct inlay_cmd_out cmd; struct inlay_mkc mkc; uint32_t dword[48]; uint8_t klm[2][16]);

INLAY_LAYOUT(create_psv_out, 0x20, struct inlay_cmd_out cmd; uint32_t dword[4],
	INLAY_CREATE_PSV_OUT_PSV0_INDEX = INLAY_BITS(0x88, 24));

/*
 * ---- Shared receive queues: RMP, XRQ ----
 *
 * A work queue is 2^log_wq_sz entries of 2^log_wq_stride bytes, and an 8-byte doorbell record:
 * dword 0 the receive counter, dword 1 the send counter. A verbs SRQ is an RMP: QPs name it by
 * number (rq_type SHARED); receives complete to their CQs. Setting lwm by MODIFY_RMP, with the
 * number and the present state, arms its limit event. An XRQ matches tags; its wq takes the
 * messages that match none, and cqn is the CQ of these messages and of list operations.
 */
enum inlay_wq_type { INLAY_WQ_LINKED_LIST = 0, INLAY_WQ_CYCLIC = 1, INLAY_WQ_STRIDING = 2 /* or'ed to either */ };
enum inlay_wq_state { INLAY_WQ_STATE_RST = 0, INLAY_WQ_STATE_RDY = 1, INLAY_WQ_STATE_ERR = 3 };
enum inlay_xrq_topology { INLAY_XRQ_TOPOLOGY_TAG_MATCHING = 1 };
enum inlay_xrq_offload { INLAY_XRQ_OFFLOAD_NONE = 0, INLAY_XRQ_OFFLOAD_RNDV = 1 };

/* Work queue, a part of contexts */
INLAY_LAYOUT(wqc, 0xc0, uint32_t dword[48],
	INLAY_WQC_WQ_TYPE = INLAY_BITS(0x00, 4),
	INLAY_WQC_LWM = INLAY_BITS(0x30, 16),                    /* limit: an event when fewer entries are left */
	INLAY_WQC_PD = INLAY_BITS(0x48, 24), INLAY_WQC_DBR_ADDR = INLAY_BITS(0x80, 64),
	INLAY_WQC_LOG_WQ_STRIDE = INLAY_BITS(0x10c, 4),          /* log2 of an entry's bytes (a QP context has 4 less) */
	INLAY_WQC_LOG_WQ_SZ = INLAY_BITS(0x11b, 5), INLAY_WQC_DBR_UMEM_VALID = INLAY_BITS(0x120, 1),
	INLAY_WQC_WQ_UMEM_VALID = INLAY_BITS(0x121, 1),
	INLAY_WQC_LOG_WQE_NUM_OF_STRIDES = INLAY_BITS(0x134, 4), /* log2 of a striding WQE's strides, minus 9, signed */
	INLAY_WQC_TWO_BYTE_SHIFT_EN = INLAY_BITS(0x138, 1),      /* each packet begins 2 bytes into its stride */
	INLAY_WQC_LOG_WQE_STRIDE_SIZE = INLAY_BITS(0x13d, 3),    /* log2 of a stride's bytes, minus 6 */
	INLAY_WQC_DBR_UMEM_ID = INLAY_BITS(0x140, 32), INLAY_WQC_WQ_UMEM_ID = INLAY_BITS(0x160, 32),
	INLAY_WQC_WQ_UMEM_OFFSET = INLAY_BITS(0x180, 64));

INLAY_LAYOUT(rmpc, 0xf0, uint32_t dword[12]; struct inlay_wqc wq,
	INLAY_RMPC_STATE = INLAY_BITS(0x08, 4));
INLAY_LAYOUT_AT(rmpc, wq, 0x180);

INLAY_LAYOUT(create_rmp_in, 0x110, struct inlay_cmd_in cmd; uint32_t dword[4]; struct inlay_rmpc rmpc,
	INLAY_CREATE_RMP_IN_RMP_STATE = INLAY_BITS(0x40, 4),
	INLAY_CREATE_RMP_IN_BITMASK_LWM = INLAY_BITS(0xbf, 1));  /* take lwm, which arms the limit */
INLAY_LAYOUT_AT(create_rmp_in, rmpc, 0x100);
INLAY_BOX(query_rmp_out, 0x110, rmpc, 0x100, struct inlay_cmd_out cmd; uint32_t dword[4]; struct inlay_rmpc rmpc);

INLAY_LAYOUT(xrqc, 0x140, uint32_t dword[32]; struct inlay_wqc wq,
	INLAY_XRQC_STATE = INLAY_BITS(0x00, 4), INLAY_XRQC_TOPOLOGY = INLAY_BITS(0x14, 4),
	INLAY_XRQC_OFFLOAD = INLAY_BITS(0x1c, 4), INLAY_XRQC_USER_INDEX = INLAY_BITS(0x28, 24),
	INLAY_XRQC_CQN = INLAY_BITS(0x48, 24), INLAY_XRQC_DC = INLAY_BITS(0x7f, 1),
	INLAY_XRQC_LOG_MATCHING_LIST_SZ = INLAY_BITS(0x100, 4)); /* log2 of the list, which has twice as many entries as tags */
INLAY_LAYOUT_AT(xrqc, wq, 0x400);
INLAY_BOX(create_xrq_in, 0x150, xrqc, 0x80, struct inlay_cmd_in cmd; struct inlay_xrqc xrqc);
INLAY_BOX(query_xrq_out, 0x150, xrqc, 0x80, struct inlay_cmd_out cmd; struct inlay_xrqc xrqc);

/*
 * ---- Dynamically connected targets ----
 *
 * One command makes a target ready: no transitions, no umem, no UAR. When it is destroyed, the
 * kernel waits for its drained event.
 */
INLAY_LAYOUT(dctc, 0x40, uint32_t dword[16],
	INLAY_DCTC_OFFLOAD_TYPE = INLAY_BITS(0x18, 4), INLAY_DCTC_USER_INDEX = INLAY_BITS(0x28, 24),
	INLAY_DCTC_CQN = INLAY_BITS(0x48, 24), INLAY_DCTC_COUNTER_SET_ID = INLAY_BITS(0x60, 8),
	INLAY_DCTC_ATOMIC_MODE = INLAY_BITS(0x68, 4), INLAY_DCTC_RRE = INLAY_BITS(0x6c, 1),
	INLAY_DCTC_RWE = INLAY_BITS(0x6d, 1), INLAY_DCTC_RAE = INLAY_BITS(0x6e, 1),
	INLAY_DCTC_DP_ORDERING_1 = INLAY_BITS(0x74, 1),
	INLAY_DCTC_CS_RES = INLAY_BITS(0x88, 8),                 /* enum inlay_cs_res, without UP_TO_32 */
	INLAY_DCTC_MIN_RNR_NAK = INLAY_BITS(0x93, 5), INLAY_DCTC_SRQN_XRQN = INLAY_BITS(0xa8, 24),
	INLAY_DCTC_PD = INLAY_BITS(0xc8, 24), INLAY_DCTC_TCLASS = INLAY_BITS(0xe0, 8),
	INLAY_DCTC_FLOW_LABEL = INLAY_BITS(0xec, 20), INLAY_DCTC_DC_ACCESS_KEY = INLAY_BITS(0x100, 64),
	INLAY_DCTC_MTU = INLAY_BITS(0x145, 3), INLAY_DCTC_PORT = INLAY_BITS(0x148, 8),
	INLAY_DCTC_PKEY_INDEX = INLAY_BITS(0x150, 16), INLAY_DCTC_MY_ADDR_INDEX = INLAY_BITS(0x168, 8),
	INLAY_DCTC_HOP_LIMIT = INLAY_BITS(0x178, 8), INLAY_DCTC_ETH_PRIO = INLAY_BITS(0x1b5, 3),
	INLAY_DCTC_DSCP = INLAY_BITS(0x1ba, 6));
INLAY_BOX(create_dct_in, 0x80, dctc, 0x80, struct inlay_cmd_in cmd; struct inlay_dctc dctc; uint32_t dword[12]);
INLAY_BOX(query_dct_out, 0x80, dctc, 0x80, struct inlay_cmd_out cmd; struct inlay_dctc dctc; uint32_t dword[12]);

/*
 * ---- General objects, and aliases of another function's (VHCA's) objects ----
 *
 * The owner sends ALLOW_OTHER_VHCA_ACCESS: type and number of the object (for an mkey the index)
 * and 32 bytes of access key. The other function sends CREATE_GENERAL_OBJECT with alias_object 1
 * and the type; the body has the owner's vhca_id, the number, the access key, and for an mkey its
 * own PD. The alias is good if status in the answer's body is 0. The local key of an mkey is obj_id
 * << 8 | a low byte of the caller's choice.
 */
enum inlay_obj_type { INLAY_OBJ_MKEY = 0xff01 };

INLAY_LAYOUT(alias, 0x40, uint32_t dword[4]; uint8_t access_key[32]; uint32_t more[4],
	INLAY_ALIAS_VHCA_ID_TO_BE_ACCESSED = INLAY_BITS(0x00, 16), /* vhca_id of the owner's capabilities */
	INLAY_ALIAS_STATUS = INLAY_BITS(0x1d, 3),                /* answer: 0 good */
	INLAY_ALIAS_OBJECT_ID_TO_BE_ACCESSED = INLAY_BITS(0x20, 32),
	INLAY_ALIAS_METADATA_PD = INLAY_BITS(0x180, 32));        /* first dword of metadata, of an mkey: the PD */
INLAY_LAYOUT_AT(alias, access_key, 0x80);
INLAY_BOX(create_alias_in, 0x50, alias, 0x80, struct inlay_cmd_in cmd; struct inlay_alias alias);
INLAY_BOX(create_alias_out, 0x50, alias, 0x80, struct inlay_cmd_out cmd; struct inlay_alias alias);

INLAY_LAYOUT(allow_other_vhca_access_in, 0x40,
	struct inlay_cmd_in cmd; uint32_t dword[4]; uint8_t access_key[32],
	INLAY_ALLOW_OTHER_VHCA_ACCESS_IN_OBJECT_TYPE_TO_BE_ACCESSED = INLAY_BITS(0x90, 16),
	INLAY_ALLOW_OTHER_VHCA_ACCESS_IN_OBJECT_ID_TO_BE_ACCESSED = INLAY_BITS(0xa0, 32));
INLAY_LAYOUT_AT(allow_other_vhca_access_in, access_key, 0x100);

#endif
