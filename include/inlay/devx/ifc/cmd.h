/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc/cmd.h: what all commands share: the headers of inbox and outbox, opcodes, status
 * codes, event types.
 *
 *   inbox   +0  opcode 16, uid 16        outbox  +0  status 8
 *           +4  op_mod 16 (low half)             +4  syndrome 32
 *           +8  number 24                        +8  number 24
 *           +12 argument                         +12 result
 *
 * A command whose box is no more than this header has no struct of its own: every query by number,
 * every outbox of a create, 2ERR_QP, 2RST_QP.
 *
 *   command                       inbox               bytes   outbox             bytes   in
 *   CREATE_CQ, MODIFY_CQ          create_, modify_    0x110   cmd_out            0x10    cq.h
 *   QUERY_CQ                      cmd_in              0x10    query_cq_out       0x110
 *   CREATE_QP                     create_qp_in        0x110   cmd_out            0x10    qp.h
 *   RST2INIT_QP .. INIT2INIT_QP   modify_qp_in        0x110   cmd_out            0x10
 *   2ERR_QP, 2RST_QP              cmd_in              0x10    cmd_out            0x10
 *   QUERY_QP                      cmd_in              0x10    query_qp_out       0x110
 *   CREATE_MKEY                   create_mkey_in      0x110   cmd_out            0x10    mkey.h
 *   QUERY_MKEY                    cmd_in              0x10    query_mkey_out     0x130
 *   CREATE_RMP, MODIFY_RMP        create_, modify_    0x110   cmd_out            0x10    wq.h
 *   QUERY_RMP                     cmd_in              0x10    query_rmp_out      0x110
 *   CREATE_XRQ                    create_xrq_in       0x150   cmd_out            0x10    srq.h
 *   QUERY_XRQ                     cmd_in              0x10    query_xrq_out      0x150
 *   CREATE_DCT                    create_dct_in       0x80    cmd_out            0x10
 *   QUERY_DCT                     cmd_in              0x10    query_dct_out      0x80
 *   ARM_XRQ, ARM_RQ               cmd_in (LWM)        0x10    cmd_out            0x10
 *   ALLOC_PD, _TRANSPORT_DOMAIN,
 *      _XRCD, _Q_COUNTER          cmd_in              0x10    cmd_out            0x10
 *   QUERY_HCA_CAP                 cmd_in              0x10    query_hca_cap_out  0x1010  hca.h
 *   QUERY_ROCE_ADDRESS            ..._in              0x10    ..._out            0x30    qp.h
 *   general objects, aliases, ALLOW_OTHER_VHCA_ACCESS                                    object.h
 *
 * The kernel writes the uid of the user context, and in CREATE and MODIFY the bits that make umems
 * valid (not in the QP's transitions). It builds the inbox that destroys an object when the object
 * is created.
 * What gets through: Linux, infiniband/hw/mlx5/devx.c.
 */
#ifndef INLAY_DEVX_IFC_CMD_H
#define INLAY_DEVX_IFC_CMD_H

#include <inlay/devx/ifc/bits.h>

/* The header of every inbox. */
struct inlay_cmd_in {
	uint32_t dword[4];
};

enum inlay_cmd_in_field {
	INLAY_CMD_IN_OPCODE = INLAY_BITS(0x00, 16),
	INLAY_CMD_IN_UID = INLAY_BITS(0x10, 16),    /* written by the kernel */
	INLAY_CMD_IN_OP_MOD = INLAY_BITS(0x30, 16),
	INLAY_CMD_IN_NUMBER = INLAY_BITS(0x48, 24), /* the object, where the command has one */
	INLAY_CMD_IN_LWM = INLAY_BITS(0x70, 16)     /* ARM_XRQ, ARM_RQ: the limit */
};

INLAY_LAYOUT(cmd_in, 0x10);

/* The header of every outbox. */
struct inlay_cmd_out {
	uint32_t dword[4];
};

enum inlay_cmd_out_field {
	INLAY_CMD_OUT_STATUS = INLAY_BITS(0x00, 8),         /* enum inlay_cmd_status */
	INLAY_CMD_OUT_SYNDROME = INLAY_BITS(0x20, 32),      /* the firmware's own number for the error */
	INLAY_CMD_OUT_NUMBER = INLAY_BITS(0x48, 24),        /* of a create: cqn, qpn, mkey_index, rmpn, ... */
	INLAY_CMD_OUT_COUNTER_SET_ID = INLAY_BITS(0x58, 8), /* ALLOC_Q_COUNTER */
	INLAY_CMD_OUT_ECE = INLAY_BITS(0x60, 32)            /* CREATE_QP, transitions, CREATE_DCT */
};

INLAY_LAYOUT(cmd_out, 0x10);

/*
 * Opcodes, by the call that the kernel lets them through. It refuses a command by the wrong call,
 * every command that destroys, and those that make event queues, UARs, user contexts and umems.
 * Opcodes 0xb00 .. 0xcff are all general.
 */
enum inlay_cmd_op {
	/* inlay_devx_command */
	INLAY_CMD_OP_QUERY_HCA_CAP = 0x100, INLAY_CMD_OP_QUERY_ROCE_ADDRESS = 0x760, INLAY_CMD_OP_NOP = 0x80d,
	INLAY_CMD_OP_ALLOW_OTHER_VHCA_ACCESS = 0xb16,
	/* inlay_devx_create */
	INLAY_CMD_OP_CREATE_MKEY = 0x200, INLAY_CMD_OP_CREATE_CQ = 0x400, INLAY_CMD_OP_CREATE_QP = 0x500,
	INLAY_CMD_OP_CREATE_DCT = 0x710, INLAY_CMD_OP_CREATE_XRQ = 0x717, INLAY_CMD_OP_ALLOC_Q_COUNTER = 0x771,
	INLAY_CMD_OP_ALLOC_PD = 0x800, INLAY_CMD_OP_ALLOC_XRCD = 0x80e, INLAY_CMD_OP_ALLOC_TRANSPORT_DOMAIN = 0x816,
	INLAY_CMD_OP_CREATE_RMP = 0x90c, INLAY_CMD_OP_CREATE_GENERAL_OBJECT = 0xa00,
	/* inlay_devx_modify */
	INLAY_CMD_OP_MODIFY_CQ = 0x403, INLAY_CMD_OP_RST2INIT_QP = 0x502, INLAY_CMD_OP_INIT2RTR_QP = 0x503,
	INLAY_CMD_OP_RTR2RTS_QP = 0x504, INLAY_CMD_OP_RTS2RTS_QP = 0x505, INLAY_CMD_OP_SQERR2RTS_QP = 0x506,
	INLAY_CMD_OP_2ERR_QP = 0x507, INLAY_CMD_OP_2RST_QP = 0x50a, INLAY_CMD_OP_INIT2INIT_QP = 0x50e,
	INLAY_CMD_OP_ARM_RQ = 0x703, INLAY_CMD_OP_ARM_XRQ = 0x71a, INLAY_CMD_OP_MODIFY_RMP = 0x90d,
	INLAY_CMD_OP_MODIFY_GENERAL_OBJECT = 0xa01,
	/* inlay_devx_query */
	INLAY_CMD_OP_QUERY_MKEY = 0x201, INLAY_CMD_OP_QUERY_CQ = 0x402, INLAY_CMD_OP_QUERY_QP = 0x50b,
	INLAY_CMD_OP_QUERY_DCT = 0x713, INLAY_CMD_OP_QUERY_XRQ = 0x719, INLAY_CMD_OP_QUERY_RQ = 0x90b,
	INLAY_CMD_OP_QUERY_RMP = 0x90f, INLAY_CMD_OP_QUERY_RQT = 0x919, INLAY_CMD_OP_QUERY_GENERAL_OBJECT = 0xa02
};

/* Status codes, and their errno. */
enum inlay_cmd_status {
	INLAY_CMD_STATUS_OK = 0x00,
	INLAY_CMD_STATUS_INTERNAL_ERR = 0x01,       /* EIO */
	INLAY_CMD_STATUS_BAD_OP = 0x02,             /* EINVAL: unknown opcode or op_mod */
	INLAY_CMD_STATUS_BAD_PARAM = 0x03,          /* EINVAL: a bad parameter, or a reserved bit set */
	INLAY_CMD_STATUS_BAD_SYS_STATE = 0x04,      /* EIO */
	INLAY_CMD_STATUS_BAD_RES = 0x05,            /* EINVAL: no such object, or another context's */
	INLAY_CMD_STATUS_RES_BUSY = 0x06,           /* EBUSY */
	INLAY_CMD_STATUS_LIM = 0x08,                /* ENOMEM: a limit is reached */
	INLAY_CMD_STATUS_BAD_RES_STATE = 0x09,      /* EINVAL */
	INLAY_CMD_STATUS_IX = 0x0a,                 /* EINVAL: index */
	INLAY_CMD_STATUS_NO_RES = 0x0f,             /* EAGAIN: no resources left */
	INLAY_CMD_STATUS_BAD_QP_STATE = 0x10,       /* EINVAL: not a transition from this state */
	INLAY_CMD_STATUS_BAD_PKT = 0x30,            /* EINVAL: management packet */
	INLAY_CMD_STATUS_BAD_SIZE_OUTS_CQES = 0x40, /* EINVAL: the CQ holds more CQEs than its new size */
	INLAY_CMD_STATUS_BAD_INP_LEN = 0x50,        /* EIO */
	INLAY_CMD_STATUS_BAD_OUTP_LEN = 0x51        /* EIO */
};

/* Event types. */
enum inlay_event_type {
	INLAY_EVENT_COMP = 0x00,               /* CQ: completion, when armed */
	INLAY_EVENT_PATH_MIG = 0x01,           /* QP: path migrated */
	INLAY_EVENT_COMM_EST = 0x02,           /* QP: a message arrived before RTS */
	INLAY_EVENT_SQ_DRAINED = 0x03,         /* QP */
	INLAY_EVENT_CQ_ERROR = 0x04,           /* CQ: overrun or access */
	INLAY_EVENT_WQ_CATAS_ERROR = 0x05,     /* QP */
	INLAY_EVENT_PATH_MIG_FAILED = 0x07,    /* QP */
	INLAY_EVENT_INTERNAL_ERROR = 0x08,     /* device */
	INLAY_EVENT_PORT_CHANGE = 0x09,        /* device */
	INLAY_EVENT_WQ_INVAL_REQ_ERROR = 0x10, /* QP */
	INLAY_EVENT_WQ_ACCESS_ERROR = 0x11,    /* QP */
	INLAY_EVENT_SRQ_CATAS_ERROR = 0x12,    /* SRQ, RMP, XRQ */
	INLAY_EVENT_SRQ_LAST_WQE = 0x13,       /* QP on a shared queue: it takes no more entries */
	INLAY_EVENT_SRQ_RQ_LIMIT = 0x14,       /* SRQ, RMP, XRQ: fewer entries than the armed limit */
	INLAY_EVENT_XRQ_ERROR = 0x18,          /* XRQ */
	INLAY_EVENT_DCT_DRAINED = 0x1c,        /* DCT */
	INLAY_EVENT_DCT_KEY_VIOLATION = 0x1d   /* DCT */
};

/* An entry of the event queue; an event channel without OMIT_DATA delivers it after the cookie. */
struct inlay_eqe {
	uint32_t dword[16];
};

enum inlay_eqe_field {
	INLAY_EQE_EVENT_TYPE = INLAY_BITS(0x08, 8),
	INLAY_EQE_EVENT_SUB_TYPE = INLAY_BITS(0x18, 8),
	INLAY_EQE_CQ_ERROR_CQN = INLAY_BITS(0x108, 24),     /* CQ_ERROR */
	INLAY_EQE_CQ_ERROR_SYNDROME = INLAY_BITS(0x158, 8), /* CQ_ERROR: 1 overrun, 2 access */
	INLAY_EQE_OBJ_TYPE = INLAY_BITS(0x110, 16),         /* events of general objects, and newer ones */
	INLAY_EQE_OBJ_ID = INLAY_BITS(0x120, 32),
	INLAY_EQE_XRQ_ERROR_XRQN = INLAY_BITS(0x1a8, 24),   /* XRQ_ERROR */
	INLAY_EQE_QP_TYPE = INLAY_BITS(0x1a0, 8),           /* QP and SRQ events: 0 QP or SRQ, 1 RQ, 2 SQ, 6 DCT */
	INLAY_EQE_NUMBER = INLAY_BITS(0x1c8, 24)            /* QP, SRQ, DCT, completion events: qpn, srqn, dctn, cqn */
};

INLAY_LAYOUT(eqe, 0x40);

#endif
