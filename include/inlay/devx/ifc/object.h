/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc/object.h: general objects, their cross-VHCA aliases, ALLOW_OTHER_VHCA_ACCESS, ACCESS_REGISTER_USER.
 *
 *   create, modify, query    general_in | the object's own body, by type
 *   answers                  general_out | body
 *
 * An alias makes an object of one function (VHCA) usable by another:
 *
 *   owner        ALLOW_OTHER_VHCA_ACCESS   type, number of the object (of an mkey the index), 32 bytes of access key
 *   other side   CREATE_GENERAL_OBJECT     alias_object 1, obj_type INLAY_OBJ_MKEY; body: the owner's vhca_id, number, access key;
 *                                          for an mkey a PD of one's own. Good when status of the answer's body is 0.
 *                                          The local key is obj_id << 8 | a low byte of one's choice
 *
 * Sources: Linux's mlx5_ifc.h; what it lacks, as tests/ifc.t says.
 */
#ifndef INLAY_DEVX_IFC_OBJECT_H
#define INLAY_DEVX_IFC_OBJECT_H

#include <inlay/base.h>
#include <inlay/devx/ifc/bits.h>
#include <inlay/devx/ifc/cmd.h>

/* The header of commands on general objects, in place of struct inlay_cmd_in. */
struct inlay_general_in {
	uint32_t dword[4];
};

enum inlay_general_in_field {
	INLAY_GENERAL_IN_OPCODE = INLAY_BITS(0x00, 16),
	INLAY_GENERAL_IN_UID = INLAY_BITS(0x10, 16),          /* the kernel's */
	INLAY_GENERAL_IN_VHCA_TUNNEL_ID = INLAY_BITS(0x20, 16), /* 0 */
	INLAY_GENERAL_IN_OBJ_TYPE = INLAY_BITS(0x30, 16),
	INLAY_GENERAL_IN_OBJ_ID = INLAY_BITS(0x40, 32),       /* modify, query */
	INLAY_GENERAL_IN_ALIAS_OBJECT = INLAY_BITS(0x60, 1),  /* create */
	INLAY_GENERAL_IN_LOG_OBJ_RANGE = INLAY_BITS(0x63, 5)  /* create */
};

INLAY_LAYOUT(general_in, 0x10);

struct inlay_general_out {
	uint32_t dword[4];
};

enum inlay_general_out_field {
	INLAY_GENERAL_OUT_STATUS = INLAY_BITS(0x00, 8),       /* enum inlay_cmd_status */
	INLAY_GENERAL_OUT_SYNDROME = INLAY_BITS(0x20, 32),
	INLAY_GENERAL_OUT_OBJ_ID = INLAY_BITS(0x40, 32)
};

INLAY_LAYOUT(general_out, 0x10);

/* Types of objects, of their events, and of what an alias may stand for. */
enum inlay_obj_type {
	INLAY_OBJ_MKEY = 0xff01,
	INLAY_OBJ_QP = 0xff02,
	INLAY_OBJ_PSV = 0xff03,
	INLAY_OBJ_RMP = 0xff04,
	INLAY_OBJ_XRC_SRQ = 0xff05,
	INLAY_OBJ_RQ = 0xff06,
	INLAY_OBJ_SQ = 0xff07,
	INLAY_OBJ_TIR = 0xff08,
	INLAY_OBJ_TIS = 0xff09,
	INLAY_OBJ_DCT = 0xff0a,
	INLAY_OBJ_XRQ = 0xff0b,
	INLAY_OBJ_RQT = 0xff0e,
	INLAY_OBJ_CQ = 0xff10
};

/* ------------------------------------------------------------------------------------------------------------------------
 * Cross-VHCA access
 */
struct inlay_alias {
	uint32_t dword[4];
	uint8_t access_key[32]; /* as the owner allowed it */
	uint32_t more[4];       /* metadata */
};

enum inlay_alias_field {
	INLAY_ALIAS_VHCA_ID_TO_BE_ACCESSED = INLAY_BITS(0x00, 16), /* vhca_id of the owner's capabilities */
	INLAY_ALIAS_STATUS = INLAY_BITS(0x1d, 3),                  /* answer: 0 good */
	INLAY_ALIAS_OBJECT_ID_TO_BE_ACCESSED = INLAY_BITS(0x20, 32),
	INLAY_ALIAS_METADATA_PD = INLAY_BITS(0x180, 32)            /* first dword of metadata, of an mkey: the PD */
};

INLAY_LAYOUT(alias, 0x40);
INLAY_LAYOUT_AT(alias, access_key, 0x80);

struct inlay_create_alias_in {
	struct inlay_general_in cmd;
	struct inlay_alias alias;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_create_alias_in) == 0x50, "the size of struct inlay_create_alias_in");
INLAY_LAYOUT_AT(create_alias_in, alias, 0x80);

struct inlay_create_alias_out {
	struct inlay_general_out cmd;
	struct inlay_alias alias;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_create_alias_out) == 0x50, "the size of struct inlay_create_alias_out");
INLAY_LAYOUT_AT(create_alias_out, alias, 0x80);

struct inlay_allow_other_vhca_access_in {
	struct inlay_cmd_in cmd;
	uint32_t dword[4];
	uint8_t access_key[32]; /* any bytes */
};

enum inlay_allow_other_vhca_access_in_field {
	INLAY_ALLOW_OTHER_VHCA_ACCESS_IN_OBJECT_TYPE_TO_BE_ACCESSED = INLAY_BITS(0x90, 16), /* enum inlay_obj_type */
	INLAY_ALLOW_OTHER_VHCA_ACCESS_IN_OBJECT_ID_TO_BE_ACCESSED = INLAY_BITS(0xa0, 32)
};

INLAY_LAYOUT(allow_other_vhca_access_in, 0x40);
INLAY_LAYOUT_AT(allow_other_vhca_access_in, access_key, 0x100);

/* ------------------------------------------------------------------------------------------------------------------------
 * Registers. OP_MOD 0 writes, 1 reads; the register's data follow the headers of inbox and outbox.
 */
struct inlay_access_register_user_in {
	struct inlay_cmd_in cmd;
};

enum inlay_access_register_user_in_field {
	INLAY_ACCESS_REGISTER_USER_IN_REGISTER_ID = INLAY_BITS(0x50, 16),
	INLAY_ACCESS_REGISTER_USER_IN_ARGUMENT = INLAY_BITS(0x60, 32)
};

INLAY_LAYOUT(access_register_user_in, 0x10);

#endif
