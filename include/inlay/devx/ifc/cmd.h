/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc/cmd.h: what all commands share: the two headers, opcodes, status codes, event types.
 *
 *   inbox  0x00  opcode:16 uid:16 | tunnel:16 op_mod:16 | 8 number:24, or an argument | argument     16 bytes, then what the command has
 *   outbox 0x00  status:8         | syndrome            | 8 number:24, or a result   | result       16 bytes, then what the command has
 *
 * Commands whose boxes are no more than the headers have no struct of their own: every query by number, every create's outbox, 2ERR_QP and
 * 2RST_QP. Their one argument is INLAY_CMD_IN_NUMBER (cqn, qpn, mkey_index, ...), their one result INLAY_CMD_OUT_NUMBER.
 *
 *   command                       inbox               bytes   outbox              bytes   in
 *   CREATE_CQ                     create_cq_in        0x110   cmd_out             0x10    cq.h
 *   MODIFY_CQ                     modify_cq_in        0x110   cmd_out             0x10
 *   QUERY_CQ                      cmd_in              0x10    query_cq_out        0x110
 *   CREATE_QP                     create_qp_in        0x110   cmd_out             0x10    qp.h
 *   RST2INIT_QP ... INIT2INIT_QP  modify_qp_in        0x110   cmd_out             0x10
 *   2ERR_QP, 2RST_QP              cmd_in              0x10    cmd_out             0x10
 *   QUERY_QP                      cmd_in              0x10    query_qp_out        0x110
 *   CREATE_MKEY                   create_mkey_in      0x110   cmd_out             0x10    mkey.h
 *   QUERY_MKEY                    cmd_in              0x10    query_mkey_out      0x130
 *   CREATE_, MODIFY_RMP           create_, modify_    0x110   cmd_out             0x10    wq.h
 *   CREATE_, MODIFY_SQ, _RQ       create_, modify_    0x110   cmd_out             0x10
 *   QUERY_RMP, _SQ, _RQ           cmd_in              0x10    query_..._out       0x110
 *   CREATE_, MODIFY_XRQ           create_, modify_    0x150   cmd_out             0x10    srq.h
 *   QUERY_XRQ                     cmd_in              0x10    query_xrq_out       0x150
 *   SET_XRQ_DC_PARAMS_ENTRY       set_xrq_dc_..._in   0x30    cmd_out             0x10
 *   CREATE_XRC_SRQ                create_xrc_srq_in   0x110   cmd_out             0x10
 *   QUERY_XRC_SRQ                 cmd_in              0x10    query_xrc_srq_out   0x110
 *   CREATE_DCT                    create_dct_in       0x80    cmd_out             0x10
 *   QUERY_DCT                     cmd_in              0x10    query_dct_out       0x80
 *   ARM_XRQ, ARM_XRC_SRQ, ARM_RQ  cmd_in (LWM)        0x10    cmd_out             0x10
 *   ALLOC_PD, _TRANSPORT_DOMAIN, _XRCD, _Q_COUNTER   cmd_in 0x10   cmd_out        0x10
 *   CREATE_PSV                    cmd_in              0x10    create_psv_out      0x20
 *   CREATE_, MODIFY_TIS           create_, modify_    0xc0    cmd_out             0x10    tir.h
 *   CREATE_, MODIFY_TIR, _RQT     create_, modify_    0x110   cmd_out             0x10
 *   QUERY_TIS, _TIR, _RQT         cmd_in              0x10    query_..._out       0xb0, 0x110, 0x110
 *   QUERY_HCA_CAP                 cmd_in              0x10    query_hca_cap_out   0x1010  hca.h
 *   queries of device and ports   query.h has a table of its own
 *   general objects, aliases, ALLOW_OTHER_VHCA_ACCESS, ACCESS_REGISTER_USER                 object.h
 *
 * Bytes 2 and 3 of every inbox are the kernel's: it writes the number of the user context (uid) over them. The bits that make umems valid
 * are written by the kernel as well (in CREATE and MODIFY, not in the transitions). mlx5dv_devx_obj_destroy sends an inbox that the kernel
 * built at creation.
 */
#ifndef INLAY_DEVX_IFC_CMD_H
#define INLAY_DEVX_IFC_CMD_H

#include <inlay/base.h>
#include <inlay/devx/ifc/bits.h>

/* The header of every inbox. */
struct inlay_cmd_in {
	uint32_t dword[4];
};

enum inlay_cmd_in_field {
	INLAY_CMD_IN_OPCODE = INLAY_BITS(0x00, 16),
	INLAY_CMD_IN_UID = INLAY_BITS(0x10, 16),            /* the kernel's */
	INLAY_CMD_IN_VHCA_TUNNEL_ID = INLAY_BITS(0x20, 16), /* 0 */
	INLAY_CMD_IN_OP_MOD = INLAY_BITS(0x30, 16),
	INLAY_CMD_IN_NUMBER = INLAY_BITS(0x48, 24),         /* which object, where the command has one; of CREATE_PSV the PD */
	INLAY_CMD_IN_LWM = INLAY_BITS(0x70, 16),            /* ARM_XRQ, ARM_XRC_SRQ, ARM_RQ: the limit */
	INLAY_CMD_IN_NUM_PSV = INLAY_BITS(0x40, 4)          /* CREATE_PSV: 1 */
};

INLAY_LAYOUT(cmd_in, 0x10);

/* The header of every outbox. */
struct inlay_cmd_out {
	uint32_t dword[4];
};

enum inlay_cmd_out_field {
	INLAY_CMD_OUT_STATUS = INLAY_BITS(0x00, 8),          /* enum inlay_cmd_status */
	INLAY_CMD_OUT_SYNDROME = INLAY_BITS(0x20, 32),       /* the firmware's own number for the error */
	INLAY_CMD_OUT_NUMBER = INLAY_BITS(0x48, 24),         /* of a create: cqn, qpn, mkey_index, rmpn, ... */
	INLAY_CMD_OUT_COUNTER_SET_ID = INLAY_BITS(0x58, 8),  /* ALLOC_Q_COUNTER */
	INLAY_CMD_OUT_ECE = INLAY_BITS(0x60, 32)             /* CREATE_QP, transitions, CREATE_DCT */
};

INLAY_LAYOUT(cmd_out, 0x10);

/* The numbers of commands. Each comment says by which call the kernel lets it through; "no": by none. */
enum inlay_cmd_op {
	INLAY_CMD_OP_QUERY_HCA_CAP = 0x100,               /* general */
	INLAY_CMD_OP_QUERY_ADAPTER = 0x101,               /* general */
	INLAY_CMD_OP_QUERY_ISSI = 0x10a,                  /* general */
	INLAY_CMD_OP_CREATE_MKEY = 0x200,                 /* create */
	INLAY_CMD_OP_QUERY_MKEY = 0x201,                  /* query */
	INLAY_CMD_OP_DESTROY_MKEY = 0x202,                /* no */
	INLAY_CMD_OP_QUERY_SPECIAL_CONTEXTS = 0x203,      /* no */
	INLAY_CMD_OP_ALLOC_MEMIC = 0x205,                 /* no */
	INLAY_CMD_OP_CREATE_EQ = 0x301,                   /* no */
	INLAY_CMD_OP_CREATE_CQ = 0x400,                   /* create */
	INLAY_CMD_OP_DESTROY_CQ = 0x401,                  /* no */
	INLAY_CMD_OP_QUERY_CQ = 0x402,                    /* query */
	INLAY_CMD_OP_MODIFY_CQ = 0x403,                   /* modify */
	INLAY_CMD_OP_CREATE_QP = 0x500,                   /* create */
	INLAY_CMD_OP_DESTROY_QP = 0x501,                  /* no */
	INLAY_CMD_OP_RST2INIT_QP = 0x502,                 /* modify, and the transitions that follow */
	INLAY_CMD_OP_INIT2RTR_QP = 0x503,
	INLAY_CMD_OP_RTR2RTS_QP = 0x504,
	INLAY_CMD_OP_RTS2RTS_QP = 0x505,
	INLAY_CMD_OP_SQERR2RTS_QP = 0x506,
	INLAY_CMD_OP_2ERR_QP = 0x507,
	INLAY_CMD_OP_2RST_QP = 0x50a,
	INLAY_CMD_OP_QUERY_QP = 0x50b,                    /* query */
	INLAY_CMD_OP_SQD_RTS_QP = 0x50c,                  /* no */
	INLAY_CMD_OP_MAD_IFC = 0x50d,                     /* no */
	INLAY_CMD_OP_INIT2INIT_QP = 0x50e,                /* modify */
	INLAY_CMD_OP_CREATE_PSV = 0x600,                  /* create, one at a time */
	INLAY_CMD_OP_DESTROY_PSV = 0x601,                 /* no */
	INLAY_CMD_OP_CREATE_SRQ = 0x700,                  /* create */
	INLAY_CMD_OP_DESTROY_SRQ = 0x701,                 /* no */
	INLAY_CMD_OP_QUERY_SRQ = 0x702,                   /* query */
	INLAY_CMD_OP_ARM_RQ = 0x703,                      /* modify */
	INLAY_CMD_OP_CREATE_XRC_SRQ = 0x705,              /* create */
	INLAY_CMD_OP_DESTROY_XRC_SRQ = 0x706,             /* no */
	INLAY_CMD_OP_QUERY_XRC_SRQ = 0x707,               /* query */
	INLAY_CMD_OP_ARM_XRC_SRQ = 0x708,                 /* modify */
	INLAY_CMD_OP_CREATE_DCT = 0x710,                  /* create */
	INLAY_CMD_OP_DESTROY_DCT = 0x711,                 /* no */
	INLAY_CMD_OP_DRAIN_DCT = 0x712,                   /* no */
	INLAY_CMD_OP_QUERY_DCT = 0x713,                   /* query */
	INLAY_CMD_OP_ARM_DCT_FOR_KEY_VIOLATION = 0x714,   /* modify */
	INLAY_CMD_OP_CREATE_XRQ = 0x717,                  /* create */
	INLAY_CMD_OP_DESTROY_XRQ = 0x718,                 /* no */
	INLAY_CMD_OP_QUERY_XRQ = 0x719,                   /* query */
	INLAY_CMD_OP_ARM_XRQ = 0x71a,                     /* modify */
	INLAY_CMD_OP_QUERY_XRQ_DC_PARAMS_ENTRY = 0x725,   /* query */
	INLAY_CMD_OP_SET_XRQ_DC_PARAMS_ENTRY = 0x726,     /* modify */
	INLAY_CMD_OP_QUERY_XRQ_ERROR_PARAMS = 0x727,      /* query */
	INLAY_CMD_OP_RELEASE_XRQ_ERROR = 0x729,           /* modify */
	INLAY_CMD_OP_MODIFY_XRQ = 0x72a,                  /* modify */
	INLAY_CMD_OP_QUERY_ESW_FUNCTIONS = 0x740,         /* general, and those that follow */
	INLAY_CMD_OP_QUERY_VPORT_STATE = 0x750,
	INLAY_CMD_OP_QUERY_ESW_VPORT_CONTEXT = 0x752,
	INLAY_CMD_OP_QUERY_NIC_VPORT_CONTEXT = 0x754,
	INLAY_CMD_OP_QUERY_ROCE_ADDRESS = 0x760,
	INLAY_CMD_OP_SET_ROCE_ADDRESS = 0x761,            /* no */
	INLAY_CMD_OP_QUERY_HCA_VPORT_CONTEXT = 0x762,     /* general */
	INLAY_CMD_OP_QUERY_HCA_VPORT_GID = 0x764,         /* no */
	INLAY_CMD_OP_QUERY_HCA_VPORT_PKEY = 0x765,        /* no */
	INLAY_CMD_OP_QUERY_VNIC_ENV = 0x76f,              /* general */
	INLAY_CMD_OP_QUERY_VPORT_COUNTER = 0x770,         /* general */
	INLAY_CMD_OP_ALLOC_Q_COUNTER = 0x771,             /* create */
	INLAY_CMD_OP_DEALLOC_Q_COUNTER = 0x772,           /* no */
	INLAY_CMD_OP_QUERY_Q_COUNTER = 0x773,             /* query */
	INLAY_CMD_OP_CREATE_SCHEDULING_ELEMENT = 0x782,   /* create */
	INLAY_CMD_OP_QUERY_SCHEDULING_ELEMENT = 0x784,    /* query */
	INLAY_CMD_OP_MODIFY_SCHEDULING_ELEMENT = 0x785,   /* modify */
	INLAY_CMD_OP_ALLOC_PD = 0x800,                    /* create */
	INLAY_CMD_OP_DEALLOC_PD = 0x801,                  /* no */
	INLAY_CMD_OP_ALLOC_UAR = 0x802,                   /* no */
	INLAY_CMD_OP_ACCESS_REG = 0x805,                  /* no */
	INLAY_CMD_OP_ATTACH_TO_MCG = 0x806,               /* create */
	INLAY_CMD_OP_GET_DROPPED_PACKET_LOG = 0x80a,      /* general */
	INLAY_CMD_OP_NOP = 0x80d,                         /* general */
	INLAY_CMD_OP_ALLOC_XRCD = 0x80e,                  /* create */
	INLAY_CMD_OP_DEALLOC_XRCD = 0x80f,                /* no */
	INLAY_CMD_OP_ALLOC_TRANSPORT_DOMAIN = 0x816,      /* create */
	INLAY_CMD_OP_DEALLOC_TRANSPORT_DOMAIN = 0x817,    /* no */
	INLAY_CMD_OP_QUERY_CONG_STATUS = 0x822,           /* general */
	INLAY_CMD_OP_QUERY_CONG_PARAMS = 0x824,           /* general */
	INLAY_CMD_OP_QUERY_CONG_STATISTICS = 0x826,       /* general */
	INLAY_CMD_OP_ADD_VXLAN_UDP_DPORT = 0x827,         /* create, modify */
	INLAY_CMD_OP_SET_L2_TABLE_ENTRY = 0x829,          /* create, modify */
	INLAY_CMD_OP_QUERY_L2_TABLE_ENTRY = 0x82a,        /* query */
	INLAY_CMD_OP_QUERY_LAG = 0x842,                   /* general */
	INLAY_CMD_OP_CREATE_TIR = 0x900,                  /* create */
	INLAY_CMD_OP_MODIFY_TIR = 0x901,                  /* modify */
	INLAY_CMD_OP_DESTROY_TIR = 0x902,                 /* no */
	INLAY_CMD_OP_QUERY_TIR = 0x903,                   /* query */
	INLAY_CMD_OP_CREATE_SQ = 0x904,                   /* create */
	INLAY_CMD_OP_MODIFY_SQ = 0x905,                   /* modify */
	INLAY_CMD_OP_DESTROY_SQ = 0x906,                  /* no */
	INLAY_CMD_OP_QUERY_SQ = 0x907,                    /* query */
	INLAY_CMD_OP_CREATE_RQ = 0x908,                   /* create */
	INLAY_CMD_OP_MODIFY_RQ = 0x909,                   /* modify */
	INLAY_CMD_OP_DESTROY_RQ = 0x90a,                  /* no */
	INLAY_CMD_OP_QUERY_RQ = 0x90b,                    /* query */
	INLAY_CMD_OP_CREATE_RMP = 0x90c,                  /* create */
	INLAY_CMD_OP_MODIFY_RMP = 0x90d,                  /* modify */
	INLAY_CMD_OP_DESTROY_RMP = 0x90e,                 /* no */
	INLAY_CMD_OP_QUERY_RMP = 0x90f,                   /* query */
	INLAY_CMD_OP_CREATE_TIS = 0x912,                  /* create */
	INLAY_CMD_OP_MODIFY_TIS = 0x913,                  /* modify */
	INLAY_CMD_OP_DESTROY_TIS = 0x914,                 /* no */
	INLAY_CMD_OP_QUERY_TIS = 0x915,                   /* query */
	INLAY_CMD_OP_CREATE_RQT = 0x916,                  /* create */
	INLAY_CMD_OP_MODIFY_RQT = 0x917,                  /* modify */
	INLAY_CMD_OP_DESTROY_RQT = 0x918,                 /* no */
	INLAY_CMD_OP_QUERY_RQT = 0x919,                   /* query */
	INLAY_CMD_OP_CREATE_FLOW_TABLE = 0x930,           /* create; flow steering is not laid out here */
	INLAY_CMD_OP_QUERY_FLOW_TABLE = 0x932,            /* query */
	INLAY_CMD_OP_CREATE_FLOW_GROUP = 0x933,           /* create */
	INLAY_CMD_OP_QUERY_FLOW_GROUP = 0x935,            /* query */
	INLAY_CMD_OP_SET_FLOW_TABLE_ENTRY = 0x936,        /* create with op_mod 0, modify with 1 */
	INLAY_CMD_OP_QUERY_FLOW_TABLE_ENTRY = 0x937,      /* query */
	INLAY_CMD_OP_ALLOC_FLOW_COUNTER = 0x939,          /* create */
	INLAY_CMD_OP_QUERY_FLOW_COUNTER = 0x93b,          /* query */
	INLAY_CMD_OP_MODIFY_FLOW_TABLE = 0x93c,           /* modify */
	INLAY_CMD_OP_ALLOC_PACKET_REFORMAT_CONTEXT = 0x93d, /* create */
	INLAY_CMD_OP_QUERY_PACKET_REFORMAT_CONTEXT = 0x93f, /* query */
	INLAY_CMD_OP_ALLOC_MODIFY_HEADER_CONTEXT = 0x940, /* create */
	INLAY_CMD_OP_QUERY_MODIFY_HEADER_CONTEXT = 0x942, /* query */
	INLAY_CMD_OP_CREATE_GENERAL_OBJECT = 0xa00,       /* create */
	INLAY_CMD_OP_MODIFY_GENERAL_OBJECT = 0xa01,       /* modify */
	INLAY_CMD_OP_QUERY_GENERAL_OBJECT = 0xa02,        /* query */
	INLAY_CMD_OP_DESTROY_GENERAL_OBJECT = 0xa03,      /* no */
	INLAY_CMD_OP_CREATE_UCTX = 0xa04,                 /* no */
	INLAY_CMD_OP_DESTROY_UCTX = 0xa06,                /* no */
	INLAY_CMD_OP_CREATE_UMEM = 0xa08,                 /* no */
	INLAY_CMD_OP_DESTROY_UMEM = 0xa0a,                /* no */
	INLAY_CMD_OP_GENERAL_START = 0xb00,               /* all from here ... */
	INLAY_CMD_OP_ACCESS_REGISTER_USER = 0xb0c,        /* general */
	INLAY_CMD_OP_ALLOW_OTHER_VHCA_ACCESS = 0xb16,     /* general */
	INLAY_CMD_OP_GENERAL_END = 0xd00                  /* ... to before here are general */
};

/* What the firmware says of a command, and the errno that the mlx5 driver makes of it. */
enum inlay_cmd_status {
	INLAY_CMD_STATUS_OK = 0x00,
	INLAY_CMD_STATUS_INTERNAL_ERR = 0x01,            /* EIO */
	INLAY_CMD_STATUS_BAD_OP = 0x02,                  /* EINVAL: opcode or op_mod unknown, or not supported here */
	INLAY_CMD_STATUS_BAD_PARAM = 0x03,               /* EINVAL: a parameter, or a reserved bit that is set */
	INLAY_CMD_STATUS_BAD_SYS_STATE = 0x04,           /* EIO */
	INLAY_CMD_STATUS_BAD_RES = 0x05,                 /* EINVAL: no such object, or somebody else's */
	INLAY_CMD_STATUS_RES_BUSY = 0x06,                /* EBUSY */
	INLAY_CMD_STATUS_LIM = 0x08,                     /* ENOMEM: a limit */
	INLAY_CMD_STATUS_BAD_RES_STATE = 0x09,           /* EINVAL */
	INLAY_CMD_STATUS_IX = 0x0a,                      /* EINVAL: index */
	INLAY_CMD_STATUS_NO_RES = 0x0f,                  /* EAGAIN: no resources left */
	INLAY_CMD_STATUS_BAD_QP_STATE = 0x10,            /* EINVAL: the transition does not begin at the QP's state */
	INLAY_CMD_STATUS_BAD_PKT = 0x30,                 /* EINVAL: management packet */
	INLAY_CMD_STATUS_BAD_SIZE_OUTS_CQES = 0x40,      /* EINVAL: more CQEs in the CQ than its new size holds */
	INLAY_CMD_STATUS_BAD_INP_LEN = 0x50,             /* EIO */
	INLAY_CMD_STATUS_BAD_OUTP_LEN = 0x51             /* EIO */
};

/* Events that an object or the device raises. */
enum inlay_event_type {
	INLAY_EVENT_COMP = 0x00,                    /* CQ: completion, when armed */
	INLAY_EVENT_PATH_MIG = 0x01,                /* QP: path migrated */
	INLAY_EVENT_COMM_EST = 0x02,                /* QP: a message came in before RTS */
	INLAY_EVENT_SQ_DRAINED = 0x03,              /* QP */
	INLAY_EVENT_CQ_ERROR = 0x04,                /* CQ: overrun or access */
	INLAY_EVENT_WQ_CATAS_ERROR = 0x05,          /* QP */
	INLAY_EVENT_PATH_MIG_FAILED = 0x07,         /* QP */
	INLAY_EVENT_INTERNAL_ERROR = 0x08,          /* device */
	INLAY_EVENT_PORT_CHANGE = 0x09,             /* device */
	INLAY_EVENT_WQ_INVAL_REQ_ERROR = 0x10,      /* QP */
	INLAY_EVENT_WQ_ACCESS_ERROR = 0x11,         /* QP */
	INLAY_EVENT_SRQ_CATAS_ERROR = 0x12,         /* SRQ, RMP, XRQ */
	INLAY_EVENT_SRQ_LAST_WQE = 0x13,            /* QP on a shared queue: takes no more of its entries */
	INLAY_EVENT_SRQ_RQ_LIMIT = 0x14,            /* SRQ, RMP, XRQ: fewer entries than the limit that was armed */
	INLAY_EVENT_XRQ_ERROR = 0x18,               /* XRQ */
	INLAY_EVENT_DCT_DRAINED = 0x1c,             /* DCT */
	INLAY_EVENT_DCT_KEY_VIOLATION = 0x1d        /* DCT */
};

/* An event as the event queue has it, and as an event channel without OMIT_DATA delivers it behind the cookie. */
struct inlay_eqe {
	uint32_t dword[16];
};

enum inlay_eqe_field {
	INLAY_EQE_EVENT_TYPE = INLAY_BITS(0x08, 8),
	INLAY_EQE_EVENT_SUB_TYPE = INLAY_BITS(0x18, 8),
	INLAY_EQE_CQ_ERROR_CQN = INLAY_BITS(0x108, 24),      /* CQ_ERROR */
	INLAY_EQE_CQ_ERROR_SYNDROME = INLAY_BITS(0x158, 8),  /* CQ_ERROR: 1 overrun, 2 access */
	INLAY_EQE_OBJ_TYPE = INLAY_BITS(0x110, 16),          /* events of general objects, and newer ones */
	INLAY_EQE_OBJ_ID = INLAY_BITS(0x120, 32),
	INLAY_EQE_XRQ_ERROR_XRQN = INLAY_BITS(0x1a8, 24),    /* XRQ_ERROR */
	INLAY_EQE_QP_TYPE = INLAY_BITS(0x1a0, 8),            /* QP and SRQ events: 0 QP or SRQ, 1 RQ, 2 SQ, 6 DCT */
	INLAY_EQE_NUMBER = INLAY_BITS(0x1c8, 24),            /* QP, SRQ, DCT, completion events: qpn, srqn, dctn, cqn */
	INLAY_EQE_SIGNATURE = INLAY_BITS(0x1f0, 8),
	INLAY_EQE_OWNER = INLAY_BITS(0x1ff, 1)
};

INLAY_LAYOUT(eqe, 0x40);

/* Protection signature values. CREATE_PSV gives one, psv0_index. */
struct inlay_create_psv_out {
	struct inlay_cmd_out cmd;
	uint32_t dword[4];
};

enum inlay_create_psv_out_field {
	INLAY_CREATE_PSV_OUT_PSV0_INDEX = INLAY_BITS(0x88, 24),
	INLAY_CREATE_PSV_OUT_PSV1_INDEX = INLAY_BITS(0xa8, 24),
	INLAY_CREATE_PSV_OUT_PSV2_INDEX = INLAY_BITS(0xc8, 24),
	INLAY_CREATE_PSV_OUT_PSV3_INDEX = INLAY_BITS(0xe8, 24)
};

INLAY_LAYOUT(create_psv_out, 0x20);

#endif
