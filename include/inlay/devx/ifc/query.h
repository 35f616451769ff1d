/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc/query.h: a RoCE port's GID table: QUERY_ROCE_ADDRESS.
 *
 * Threads: pure functions of the caller's memory.
 * Source: Linux's mlx5_ifc.h.
 */
#ifndef INLAY_DEVX_IFC_QUERY_H
#define INLAY_DEVX_IFC_QUERY_H

#include <inlay/devx/ifc/cmd.h>

/* An entry of a RoCE port's GID table. */
struct inlay_query_roce_address_in {
	struct inlay_cmd_in cmd;
};

enum inlay_query_roce_address_in_field {
	INLAY_QUERY_ROCE_ADDRESS_IN_ROCE_ADDRESS_INDEX = INLAY_BITS(0x40, 16),
	INLAY_QUERY_ROCE_ADDRESS_IN_VHCA_PORT_NUM = INLAY_BITS(0x5c, 4)
};

INLAY_LAYOUT(query_roce_address_in, 0x10);

struct inlay_roce_addr {
	uint8_t source_l3_address[16]; /* GID, as on the wire */
	uint32_t dword[4];
};

enum inlay_roce_addr_field {
	INLAY_ROCE_ADDR_SOURCE_MAC_47_32 = INLAY_BITS(0x90, 16),
	INLAY_ROCE_ADDR_SOURCE_MAC_31_0 = INLAY_BITS(0xa0, 32),
	INLAY_ROCE_ADDR_ROCE_L3_TYPE = INLAY_BITS(0xd4, 4), /* 0 IPv4, 1 IPv6 */
	INLAY_ROCE_ADDR_ROCE_VERSION = INLAY_BITS(0xd8, 8)  /* 0 v1, 2 v2 */
};

INLAY_LAYOUT(roce_addr, 0x20);
INLAY_LAYOUT_AT(roce_addr, source_l3_address, 0);

struct inlay_query_roce_address_out {
	struct inlay_cmd_out cmd;
	struct inlay_roce_addr addr;
};

INLAY_LAYOUT_SIZE(query_roce_address_out, 0x30);
INLAY_LAYOUT_AT(query_roce_address_out, addr, 0x80);

#endif
