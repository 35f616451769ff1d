/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc/object.h: general objects, and aliases of another function's (VHCA's) objects.
 *
 *   create, modify, query    cmd_in (OP_MOD: the type; OBJ_ID) | the object's body, by type
 *   answers                  cmd_out (OBJ_ID) | body
 *
 * To use an object of another function:
 *
 *   1. The owner sends ALLOW_OTHER_VHCA_ACCESS: type and number of the object (for an mkey the
 *      index) and 32 bytes of access key.
 *   2. The other function sends CREATE_GENERAL_OBJECT with alias_object 1 and type INLAY_OBJ_MKEY.
 *      The body has the owner's vhca_id, the number, the access key, and for an mkey the other
 *      function's PD.
 *   3. The alias is good if status in the answer's body is 0. For an mkey, the local key is
 *      obj_id << 8 | a low byte of the caller's choice.
 */
#ifndef INLAY_DEVX_IFC_OBJECT_H
#define INLAY_DEVX_IFC_OBJECT_H

#include <inlay/devx/ifc/cmd.h>

/* Types of objects, of their events and of aliases. */
enum inlay_obj_type {
	INLAY_OBJ_MKEY = 0xff01
};

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
	struct inlay_cmd_in cmd;
	struct inlay_alias alias;
};

INLAY_LAYOUT_SIZE(create_alias_in, 0x50);
INLAY_LAYOUT_AT(create_alias_in, alias, 0x80);

struct inlay_create_alias_out {
	struct inlay_cmd_out cmd;
	struct inlay_alias alias;
};

INLAY_LAYOUT_SIZE(create_alias_out, 0x50);
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

#endif
