/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc/mkey.h: memory keys: CREATE_MKEY of a umem or of other keys (KLM, KSM),
 * QUERY_MKEY; CREATE_PSV.
 *
 *   create_mkey_in   cmd | mkc | ... umem | for KLM and KSM: one struct inlay_klm per entry
 *
 *   struct {
 *           struct inlay_create_mkey_in in;
 *           struct inlay_klm klm[4];
 *   } cmd;
 *
 * The key, as lkey or rkey, is mkey_index << 8 | mkey_7_0. The caller chooses the low byte; choose
 * another one when an index is used again.
 *
 * KLM entries follow each other, each with its own length. A KSM entry covers 2^log_page_size bytes
 * (byte_count is ignored). The offset from start_addr selects the entry. translations_octword_size
 * counts the octwords (16 bytes) that the key can hold, translations_octword_actual_size those in
 * the command: one per KLM or KSM entry, one per two pages of MTT.
 */
#ifndef INLAY_DEVX_IFC_MKEY_H
#define INLAY_DEVX_IFC_MKEY_H

#include <inlay/devx/ifc/cmd.h>

/* Memory key context */
struct inlay_mkc {
	uint32_t dword[16];
};

enum inlay_mkc_field {
	INLAY_MKC_FREE = INLAY_BITS(0x01, 1),            /* not usable before a UMR */
	INLAY_MKC_ACCESS_MODE_4_2 = INLAY_BITS(0x03, 3), /* enum inlay_mkey_mode >> 2 */
	INLAY_MKC_RELAXED_ORDERING_WRITE = INLAY_BITS(0x0d, 1), /* needs the capability */
	INLAY_MKC_UMR_EN = INLAY_BITS(0x10, 1),
	INLAY_MKC_A = INLAY_BITS(0x11, 1),               /* remote atomics */
	INLAY_MKC_RW = INLAY_BITS(0x12, 1),
	INLAY_MKC_RR = INLAY_BITS(0x13, 1),
	INLAY_MKC_LW = INLAY_BITS(0x14, 1),
	INLAY_MKC_LR = INLAY_BITS(0x15, 1),
	INLAY_MKC_ACCESS_MODE_1_0 = INLAY_BITS(0x16, 2), /* enum inlay_mkey_mode & 3 */
	INLAY_MKC_QPN = INLAY_BITS(0x20, 24),            /* 0xffffff: any QP */
	INLAY_MKC_MKEY_7_0 = INLAY_BITS(0x38, 8),        /* low byte of the key */
	INLAY_MKC_LENGTH64 = INLAY_BITS(0x60, 1),        /* all addresses from start_addr; len is ignored */
	INLAY_MKC_BSF_EN = INLAY_BITS(0x61, 1),          /* signatures; they take BSF_OCTWORD_SIZE */
	INLAY_MKC_EN_RINVAL = INLAY_BITS(0x67, 1),       /* the peer may invalidate the key */
	INLAY_MKC_PD = INLAY_BITS(0x68, 24),
	INLAY_MKC_START_ADDR = INLAY_BITS(0x80, 64),
	INLAY_MKC_LEN = INLAY_BITS(0xc0, 64),
	INLAY_MKC_BSF_OCTWORD_SIZE = INLAY_BITS(0x100, 32),
	INLAY_MKC_TRANSLATIONS_OCTWORD_SIZE = INLAY_BITS(0x1a0, 32),
	INLAY_MKC_RELAXED_ORDERING_READ = INLAY_BITS(0x1d9, 1), /* needs the capability */
	INLAY_MKC_LOG_PAGE_SIZE = INLAY_BITS(0x1db, 5)   /* MTT: log2 of the page; KSM: of what an entry covers */
};

INLAY_LAYOUT(mkc, 0x40);

enum inlay_mkey_mode {
	INLAY_MKEY_PA = 0, INLAY_MKEY_MTT = 1, INLAY_MKEY_KLM = 2, INLAY_MKEY_KSM = 3, INLAY_MKEY_MEMIC = 5,
	INLAY_MKEY_CROSSING_VHCA = 6
};

/* KLM or KSM entry */
struct inlay_klm {
	uint32_t dword[4];
};

enum inlay_klm_field {
	INLAY_KLM_BYTE_COUNT = INLAY_BITS(0x00, 32), /* KSM: 0 */
	INLAY_KLM_MKEY = INLAY_BITS(0x20, 32),
	INLAY_KLM_ADDRESS = INLAY_BITS(0x40, 64)
};

INLAY_LAYOUT(klm, 0x10);

struct inlay_create_mkey_in {
	struct inlay_cmd_in cmd;
	struct inlay_mkc mkc;
	uint32_t dword[48];
};

enum inlay_create_mkey_in_field {
	INLAY_CREATE_MKEY_IN_MKEY_UMEM_VALID = INLAY_BITS(0x61, 1), /* the kernel sets it, but for KLM and KSM */
	INLAY_CREATE_MKEY_IN_TRANSLATIONS_OCTWORD_ACTUAL_SIZE = INLAY_BITS(0x300, 32),
	INLAY_CREATE_MKEY_IN_MKEY_UMEM_ID = INLAY_BITS(0x320, 32),
	INLAY_CREATE_MKEY_IN_MKEY_UMEM_OFFSET = INLAY_BITS(0x340, 64)
};

INLAY_LAYOUT(create_mkey_in, 0x110);
INLAY_LAYOUT_AT(create_mkey_in, mkc, 0x80);

struct inlay_query_mkey_out {
	struct inlay_cmd_out cmd;
	struct inlay_mkc mkc;
	uint32_t dword[48];
	struct inlay_klm klm[2]; /* the first two octwords of the translation */
};

INLAY_LAYOUT_SIZE(query_mkey_out, 0x130);
INLAY_LAYOUT_AT(query_mkey_out, mkc, 0x80);
INLAY_LAYOUT_AT(query_mkey_out, klm, 0x880);

struct inlay_create_psv_out {
	struct inlay_cmd_out cmd;
	uint32_t dword[4];
};

enum inlay_create_psv_out_field {
	INLAY_CREATE_PSV_OUT_PSV0_INDEX = INLAY_BITS(0x88, 24)
};

INLAY_LAYOUT(create_psv_out, 0x20);

#endif
