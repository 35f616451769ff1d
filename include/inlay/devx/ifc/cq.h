/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc/cq.h: completion queues: CREATE_CQ, MODIFY_CQ, QUERY_CQ.
 *
 *   create_cq_in   cmd | cqc | ... | umem of the CQEs. MODIFY_CQ: cqn and field_select in cmd
 *   query_cq_out   cmd | cqc | ...
 *
 * The ring is 2^log_cq_size CQEs at cq_umem_offset of the umem cq_umem_id, which the device may
 * write. The doorbell record is 8 bytes at dbr_addr, an offset, of the umem dbr_umem_id: dword 0
 * the consumer index, dword 1 the arm word. Before CREATE_CQ, set the last byte of each 64-byte
 * unit of the ring to 0xf1 (opcode invalid, hardware's owner bit) and the record to 0. The EQN
 * comes from mlx5dv_devx_query_eqn, the UAR number from mlx5dv_devx_alloc_uar.
 */
#ifndef INLAY_DEVX_IFC_CQ_H
#define INLAY_DEVX_IFC_CQ_H

#include <inlay/devx/ifc/cmd.h>

/* CQ context */
struct inlay_cqc {
	uint32_t dword[16];
};

enum inlay_cqc_field {
	INLAY_CQC_STATUS = INLAY_BITS(0x00, 4),                /* enum inlay_cq_status */
	INLAY_CQC_DBR_UMEM_VALID = INLAY_BITS(0x06, 1),        /* the kernel sets it */
	INLAY_CQC_CQE_SZ = INLAY_BITS(0x08, 3),                /* enum inlay_cqe_sz */
	INLAY_CQC_CC = INLAY_BITS(0x0b, 1),                    /* collapsed: every CQE is written to slot 0; needs oi */
	INLAY_CQC_OI = INLAY_BITS(0x0e, 1),                    /* ignore overrun: the consumer index is not read */
	INLAY_CQC_CQE_COMP_EN = INLAY_BITS(0x11, 1),           /* compressed CQEs */
	INLAY_CQC_MINI_CQE_RES_FORMAT = INLAY_BITS(0x12, 2),   /* 0 hash, 1 checksum, 3 checksum and stride index */
	INLAY_CQC_ST = INLAY_BITS(0x14, 4),                    /* 6 armed for solicited, 9 armed, 10 fired */
	INLAY_CQC_CQE_COMPRESSION_LAYOUT = INLAY_BITS(0x1e, 2), /* 0 basic, 1 enhanced */
	INLAY_CQC_DBR_UMEM_ID = INLAY_BITS(0x20, 32),
	INLAY_CQC_MINI_CQE_RES_FORMAT_EXT = INLAY_BITS(0x5c, 2), /* 1: types of the L3 and L4 headers, stride index */
	INLAY_CQC_LOG_CQ_SIZE = INLAY_BITS(0x63, 5),           /* log2 of the CQEs */
	INLAY_CQC_UAR_PAGE = INLAY_BITS(0x68, 24),             /* where it is armed */
	INLAY_CQC_CQ_PERIOD = INLAY_BITS(0x84, 12),            /* moderation, microseconds; 0 none */
	INLAY_CQC_CQ_MAX_COUNT = INLAY_BITS(0x90, 16),         /* moderation, CQEs; 0 none */
	INLAY_CQC_C_EQN_OR_APU_ELEMENT = INLAY_BITS(0xa0, 32), /* the EQN, 8 bits */
	INLAY_CQC_CONSUMER_COUNTER = INLAY_BITS(0x148, 24),    /* query, and the next */
	INLAY_CQC_PRODUCER_COUNTER = INLAY_BITS(0x168, 24),
	INLAY_CQC_DBR_ADDR = INLAY_BITS(0x1c0, 64)             /* bytes in the umem, a multiple of 8 */
};

INLAY_LAYOUT(cqc, 0x40);

enum inlay_cqe_sz {
	INLAY_CQE_SZ_64 = 0,
	INLAY_CQE_SZ_128 = 1,       /* what is at +64 of the slot is the CQE; +0 is for scattered data */
	INLAY_CQE_SZ_128_PADDED = 2 /* needs cqe_128_always */
};

enum inlay_cq_status {
	INLAY_CQ_STATUS_OK = 0x0, INLAY_CQ_STATUS_OVERFLOW = 0x9, INLAY_CQ_STATUS_WRITE_FAIL = 0xa
};

/* The clock of a queue's timestamps; the capability sq_ts_format and its siblings list them. */
enum inlay_ts_format {
	INLAY_TS_FREE_RUNNING = 0, INLAY_TS_DEFAULT = 1, INLAY_TS_REAL_TIME = 2
};

struct inlay_create_cq_in {
	struct inlay_cmd_in cmd;
	struct inlay_cqc cqc;
	uint32_t dword[48];
};

enum inlay_create_cq_in_field {
	INLAY_CREATE_CQ_IN_CQ_UMEM_OFFSET = INLAY_BITS(0x280, 64), /* bytes */
	INLAY_CREATE_CQ_IN_CQ_UMEM_ID = INLAY_BITS(0x2c0, 32),
	INLAY_CREATE_CQ_IN_CQ_UMEM_VALID = INLAY_BITS(0x2e0, 1)    /* the kernel sets it */
};

INLAY_LAYOUT(create_cq_in, 0x110);
INLAY_LAYOUT_AT(create_cq_in, cqc, 0x80);

/* What a MODIFY_CQ of op_mod 0 changes. */
enum inlay_modify_cq_select {
	INLAY_MODIFY_CQ_PERIOD = 1 << 0, INLAY_MODIFY_CQ_COUNT = 1 << 1, INLAY_MODIFY_CQ_OI = 1 << 2
};

struct inlay_query_cq_out {
	struct inlay_cmd_out cmd;
	struct inlay_cqc cqc;
	uint32_t dword[48];
};

INLAY_LAYOUT_SIZE(query_cq_out, 0x110);
INLAY_LAYOUT_AT(query_cq_out, cqc, 0x80);

#endif
