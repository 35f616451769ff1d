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
 * Where a box is only this header, struct inlay_cmd_in or inlay_cmd_out is all of it. Boxes of the
 * same shape share a struct.
 *
 *   command                       inbox               bytes   outbox             bytes   in
 *   CREATE_CQ, MODIFY_CQ          create_cq_in        0x110   cmd_out            0x10    cq.h
 *   QUERY_CQ                      cmd_in              0x10    query_cq_out       0x110
 *   CREATE_QP, its transitions    create_qp_in        0x110   cmd_out            0x10    qp.h
 *   2ERR_QP, 2RST_QP              cmd_in              0x10    cmd_out            0x10
 *   QUERY_QP                      cmd_in              0x10    query_qp_out       0x110
 *   CREATE_MKEY                   create_mkey_in      0x110   cmd_out            0x10    mkey.h
 *   QUERY_MKEY                    cmd_in              0x10    query_mkey_out     0x130
 *   CREATE_PSV                    cmd_in (NUM_PSV)    0x10    create_psv_out     0x20
 *   CREATE_RMP, MODIFY_RMP        create_rmp_in       0x110   cmd_out            0x10    wq.h
 *   QUERY_RMP                     cmd_in              0x10    query_rmp_out      0x110
 *   CREATE_RQ, MODIFY_RQ          create_rq_in        0x110   cmd_out            0x10    rq.h
 *   QUERY_RQ                      cmd_in              0x10    query_rq_out       0x110
 *   CREATE_RQT                    create_rqt_in, RQs  0x110+  cmd_out            0x10
 *   CREATE_TIR                    create_tir_in       0x110   cmd_out            0x10
 *   CREATE_XRQ                    create_xrq_in       0x150   cmd_out            0x10    srq.h
 *   QUERY_XRQ                     cmd_in              0x10    query_xrq_out      0x150
 *   CREATE_DCT                    create_dct_in       0x80    cmd_out            0x10
 *   QUERY_DCT                     cmd_in              0x10    query_dct_out      0x80
 *   ARM_XRQ                       cmd_in (LWM)        0x10    cmd_out            0x10
 *   ALLOC_PD, ALLOC_Q_COUNTER,
 *   ALLOC_TRANSPORT_DOMAIN        cmd_in              0x10    cmd_out            0x10
 *   QUERY_HCA_CAP                 cmd_in              0x10    query_hca_cap_out  0x1010  hca.h
 *   QUERY_ROCE_ADDRESS            cmd_in              0x10    ..._out            0x30    qp.h
 *   general objects, aliases, ALLOW_OTHER_VHCA_ACCESS                                    object.h
 *
 * The kernel fills in the uid, and in CREATE and MODIFY (not in the QP's transitions) the bits that
 * make umems valid. It builds the inbox that destroys an object when the object is created.
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
	INLAY_CMD_IN_OP_MOD = INLAY_BITS(0x30, 16),             /* of a general object its type, enum inlay_obj_type */
	INLAY_CMD_IN_NUMBER = INLAY_BITS(0x48, 24),             /* the object, where the command has one */
	INLAY_CMD_IN_OBJ_ID = INLAY_BITS(0x40, 32),             /* a general object: modify, query */
	INLAY_CMD_IN_ALIAS_OBJECT = INLAY_BITS(0x60, 1),        /* CREATE_GENERAL_OBJECT */
	INLAY_CMD_IN_FIELD_SELECT = INLAY_BITS(0x60, 32),       /* MODIFY_CQ: enum inlay_modify_cq_select */
	INLAY_CMD_IN_NUM_PSV = INLAY_BITS(0x40, 4),             /* CREATE_PSV: how many */
	INLAY_CMD_IN_LWM = INLAY_BITS(0x70, 16),                /* ARM_XRQ: the limit */
	INLAY_CMD_IN_ROCE_ADDRESS_INDEX = INLAY_BITS(0x40, 16), /* QUERY_ROCE_ADDRESS: index of the GID */
	INLAY_CMD_IN_VHCA_PORT_NUM = INLAY_BITS(0x5c, 4)        /* QUERY_ROCE_ADDRESS */
};

INLAY_LAYOUT(cmd_in, 0x10);

/* The header of every outbox. */
struct inlay_cmd_out {
	uint32_t dword[4];
};

enum inlay_cmd_out_field {
	INLAY_CMD_OUT_STATUS = INLAY_BITS(0x00, 8),        /* enum inlay_cmd_status */
	INLAY_CMD_OUT_SYNDROME = INLAY_BITS(0x20, 32),     /* the firmware's own number for the error */
	INLAY_CMD_OUT_NUMBER = INLAY_BITS(0x48, 24),       /* of a create: cqn, qpn, mkey_index, rmpn, ... */
	INLAY_CMD_OUT_OBJ_ID = INLAY_BITS(0x40, 32),       /* CREATE_GENERAL_OBJECT */
	INLAY_CMD_OUT_COUNTER_SET_ID = INLAY_BITS(0x58, 8) /* ALLOC_Q_COUNTER */
};

INLAY_LAYOUT(cmd_out, 0x10);

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
	/* queue/user_index.h, of verbs objects */ \
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

/* Event types, by what they are about. */
enum inlay_event_type {
	INLAY_EVENT_COMP = 0x00,               /* CQ: completion, when armed */
	INLAY_EVENT_CQ_ERROR = 0x04,           /* CQ: overrun or access */
	INLAY_EVENT_PATH_MIG = 0x01,           /* QP: path migrated, and the next: not */
	INLAY_EVENT_PATH_MIG_FAILED = 0x07,
	INLAY_EVENT_COMM_EST = 0x02,           /* QP: a message arrived before RTS */
	INLAY_EVENT_SQ_DRAINED = 0x03,         /* QP, and the next three */
	INLAY_EVENT_WQ_CATAS_ERROR = 0x05,
	INLAY_EVENT_WQ_INVAL_REQ_ERROR = 0x10,
	INLAY_EVENT_WQ_ACCESS_ERROR = 0x11,
	INLAY_EVENT_SRQ_LAST_WQE = 0x13,       /* QP on a shared queue: it takes no more entries */
	INLAY_EVENT_SRQ_CATAS_ERROR = 0x12,    /* SRQ, RMP, XRQ */
	INLAY_EVENT_SRQ_RQ_LIMIT = 0x14,       /* SRQ, RMP, XRQ: fewer entries than the armed limit */
	INLAY_EVENT_XRQ_ERROR = 0x18,          /* XRQ */
	INLAY_EVENT_DCT_DRAINED = 0x1c,        /* DCT, and the next */
	INLAY_EVENT_DCT_KEY_VIOLATION = 0x1d,
	INLAY_EVENT_INTERNAL_ERROR = 0x08,     /* device, and the next */
	INLAY_EVENT_PORT_CHANGE = 0x09
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
