/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/wqe/umr.h: segments of user-mode registration (UMR), which changes a memory key from a send
 * queue, and of block signatures (T10-DIF, CRC).
 *
 *   struct inlay_umr umr;
 *
 *   memset(&umr, 0, sizeof(umr));
 *   umr.mask = INLAY_UMR_MASK_FILL | INLAY_UMR_MASK_ACCESS;     what changes, and then the values:
 *   umr.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
 *   umr.list = sge;                                             pieces of other keys
 *   umr.entries = n;
 *   umr.len = total;
 *   at = inlay_seg_umr(at, &umr);                               queue/umr.h posts it
 *
 * The WQE, in 16-byte units; its control segment names the key (imm):
 *
 *   +16   flags | octowords of translation | offset or octowords of BSF | mask      UMR control
 *   +64   free | access | QPN << 8 | tag | flags, PD | start | length | page        context
 *   +128  length | key | address                                  a list: one per entry
 *         round's bytes | 0x400 | rounds | entries                interleaved: this, then
 *         stride | length | key | address                         one per entry
 *         length | lkey | address                                 or, alone, where such lists lie
 *   +..   64 bytes                                                a signature (BSF)
 *
 * Lists are padded to 64 bytes with zeros. Each part begins on a WQEBB, so none wraps inside.
 *
 * The target is a key of mlx5dv_create_mkey or inlay_devx_mkey_create_umr. Fields that the mask
 * does not name keep their values. A key with room for signatures expects them: to use it without,
 * name MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE in the mask and give no BSF.
 *
 * Threads: pure functions of their arguments. Sources: mlx5dv.h (layouts); Linux's mlx5/device.h
 * (masks), mlx5/qp.h (BSF, PSV), infiniband/hw/mlx5/wr.c and umr.c; libmlx5's wqe.h and umr_*,
 * mlx5_umr_* functions (qp.c); SPDK's mlx5_umr.c (transactions).
 */
#ifndef INLAY_WQE_UMR_H
#define INLAY_WQE_UMR_H /* a trial: names may change */

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/wqe/segment.h>

INLAY_STATIC_ASSERT(sizeof(struct mlx5_wqe_umr_ctrl_seg) == 48 && INLAY_AT_(mlx5_wqe_umr_ctrl_seg, klm_octowords, 4) &&
		    INLAY_AT_(mlx5_wqe_umr_ctrl_seg, bsf_octowords, 6) &&
		    INLAY_AT_(mlx5_wqe_umr_ctrl_seg, mkey_mask, 8), "UMR control");
INLAY_STATIC_ASSERT(sizeof(struct mlx5_wqe_mkey_context_seg) == 64 &&
		    INLAY_AT_(mlx5_wqe_mkey_context_seg, access_flags, 2) &&
		    INLAY_AT_(mlx5_wqe_mkey_context_seg, qpn_mkey, 4) &&
		    INLAY_AT_(mlx5_wqe_mkey_context_seg, flags_pd, 12) &&
		    INLAY_AT_(mlx5_wqe_mkey_context_seg, start_addr, 16) &&
		    INLAY_AT_(mlx5_wqe_mkey_context_seg, len, 24) &&
		    INLAY_AT_(mlx5_wqe_mkey_context_seg, log_page_size, 59), "memory key context");
INLAY_STATIC_ASSERT(sizeof(struct mlx5_wqe_umr_klm_seg) == 16, "KLM");
INLAY_STATIC_ASSERT(sizeof(struct mlx5_wqe_umr_repeat_block_seg) == 16 &&
		    INLAY_AT_(mlx5_wqe_umr_repeat_block_seg, op, 4) &&
		    INLAY_AT_(mlx5_wqe_umr_repeat_block_seg, repeat_count, 8) &&
		    INLAY_AT_(mlx5_wqe_umr_repeat_block_seg, num_ent, 14), "interleaved");
INLAY_STATIC_ASSERT(sizeof(struct mlx5_wqe_umr_repeat_ent_seg) == 16 &&
		    INLAY_AT_(mlx5_wqe_umr_repeat_ent_seg, byte_count, 2) &&
		    INLAY_AT_(mlx5_wqe_umr_repeat_ent_seg, memkey, 4) &&
		    INLAY_AT_(mlx5_wqe_umr_repeat_ent_seg, va, 8), "interleaved entry");

/* ---- Changes of a key ---- */

/* Bits of struct inlay_umr's mask that mlx5dv.h lacks (MLX5_WQE_UMR_CTRL_MKEY_MASK_*), and sums. */
#define INLAY_UMR_MASK_LOG_ENTITY (UINT64_C(1) << 1)
#define INLAY_UMR_MASK_PD (UINT64_C(1) << 7)
#define INLAY_UMR_MASK_REMOTE_INVALIDATE (UINT64_C(1) << 8)
#define INLAY_UMR_MASK_LOCAL_READ (UINT64_C(1) << 17)
#define INLAY_UMR_MASK_RELAXED_WRITE (UINT64_C(1) << 25)
#define INLAY_UMR_MASK_RELAXED_READ (UINT64_C(1) << 47)
#define INLAY_UMR_MASK_ACCESS                                                                                          \
	((uint64_t)(MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |  \
		    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC))
/* What each new list needs: in use or free, low byte, length. */
#define INLAY_UMR_MASK_FILL                                                                                            \
	((uint64_t)(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY |                              \
		    MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN))

/*
 * Bits of struct inlay_umr's flags, with MLX5_WQE_UMR_CTRL_FLAG_*. INLINE follows from the rest.
 * CHECK_FREE fails if the key is not free; Linux names the two checks the other way round.
 */
enum inlay_umr_flags {
	INLAY_UMR_CHECK_NOT_FREE = 2 << 5,    /* fail if the key is free */
	INLAY_UMR_FREE = 1 << 8,              /* value, as all below: the key becomes invalid */
	INLAY_UMR_REMOTE_INVALIDATE = 1 << 9, /* the peer may invalidate it */
	INLAY_UMR_LEN64 = 1 << 10,            /* with mask LEN: all addresses from start; len is ignored */
	INLAY_UMR_SIG_ERR = 1 << 11           /* lowest bit of (signature errors seen + 1) */
};

/* An mkey update. Zero it first. Host order. */
struct inlay_umr {
	uint64_t mask;      /* what changes: MLX5_WQE_UMR_CTRL_MKEY_MASK_*, INLAY_UMR_MASK_* */
	uint64_t start;     /* START_ADDR: the address of the first byte, for posts and peers */
	uint64_t len;       /* LEN: bytes */
	uint32_t access;    /* ACCESS_*, RELAXED_*: IBV_ACCESS_* */
	uint32_t flags;     /* enum inlay_umr_flags */
	uint32_t qpn;       /* QPN: the only QP that may use the key, 24 bits; 0: any */
	uint32_t pdn;       /* PD: 24 bits */
	uint8_t tag;        /* MKEY: the key's new low byte */
	uint8_t log_entity; /* LOG_ENTITY: of a KSM or MTT key, 0 .. 31 */
	uint16_t entries;   /* of list or interleaved */
	uint32_t rounds;    /* of interleaved: how often all its entries repeat */
	/* What the key covers: one of list, interleaved and table. */
	const struct ibv_sge *list; /* pieces of other keys in a row */
	const struct mlx5dv_mr_interleaved *interleaved;
	struct ibv_sge table; /* a translation in memory, read when the UMR executes; a multiple of 64 bytes */
	uint64_t offset;      /* with MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET: the first unit that is replaced */
	const void *bsf;      /* struct inlay_bsf, or another BSF that the device knows; NULL: none */
	uint32_t bsf_ds;      /* its 16-byte units, a multiple of 4; 0: 4 */
	uint32_t reserved;
};

/* A KLM of a translation in memory: len bytes (1 .. 2^31) at addr of key, host order. */
INLAY_ALWAYS void inlay_wqe_klm(void *seg, uint64_t addr, uint32_t len, uint32_t key)
{
	inlay_put32(seg, inlay_to_be32(len));
	inlay_put32((uint8_t *)seg + 4, inlay_to_be32(key));
	inlay_put64((uint8_t *)seg + 8, inlay_to_be64(addr));
}

/*
 * The first unit of an interleaved translation, before `entries` of inlay_wqe_interleaved_.
 * round_bytes is the sum of their bytes_count.
 */
INLAY_ALWAYS void inlay_wqe_rounds_(void *seg, uint32_t round_bytes, uint32_t rounds, uint16_t entries)
{
	inlay_put64(seg, inlay_to_be64((uint64_t)round_bytes << 32 | 0x400));
	inlay_put64((uint8_t *)seg + 8, inlay_to_be64((uint64_t)rounds << 32 | entries));
}

/* An entry of an interleaved translation. bytes_count and its sum with bytes_skip have 16 bits. */
INLAY_ALWAYS void inlay_wqe_interleaved_(void *seg, const struct mlx5dv_mr_interleaved *entry)
{
	uint32_t stride = entry->bytes_count + entry->bytes_skip;

	INLAY_CHECK(entry->bytes_count < 65536 && entry->bytes_skip < 65536 && stride < 65536,
		    "an interleaved entry's stride has 16 bits");
	inlay_put32(seg, inlay_to_be32(stride << 16 | (entry->bytes_count & 0xffff)));
	inlay_put32((uint8_t *)seg + 4, inlay_to_be32(entry->lkey));
	inlay_put64((uint8_t *)seg + 8, inlay_to_be64(entry->addr));
}

/* Units of the translation, which follows the context. */
INLAY_FN uint32_t inlay_umr_list_ds_(const struct inlay_umr *umr)
{
	return umr->table.length ? 1u : (umr->entries + (umr->interleaved ? 1u : 0u) + 3u) & ~3u;
}

/* Length of a UMR's WQE in 16-byte units, control segment included. At most 63 can be posted. */
INLAY_FN uint32_t inlay_umr_ds(const struct inlay_umr *umr)
{
	return 8 + inlay_umr_list_ds_(umr) + (!umr->bsf ? 0 : umr->bsf_ds ? umr->bsf_ds : 4);
}

/* Access bits of a key's context. */
INLAY_FN uint8_t inlay_umr_access_(uint32_t access)
{
	return (uint8_t)((access & IBV_ACCESS_LOCAL_WRITE ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE : 0) |
			 (access & IBV_ACCESS_REMOTE_WRITE ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE : 0) |
			 (access & IBV_ACCESS_REMOTE_READ ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ : 0) |
			 (access & IBV_ACCESS_REMOTE_ATOMIC ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC : 0));
}

/*
 * Appends the segments of a UMR after the control segment, up to inlay_umr_ds units in all.
 *
 * A list and a BSF lie in the WQE (inline); a table is read from memory. A BSF excludes table and
 * offset. Same bytes as libmlx5's for what mlx5dv_wr_mkey_configure and its setters, ibv_wr_bind_mw
 * and ibv_wr_local_inv can ask for; bytes that libmlx5 leaves unwritten are 0.
 */
INLAY_FN struct inlay_cursor inlay_seg_umr(struct inlay_cursor c, const struct inlay_umr *umr)
{
	uint32_t ds = inlay_umr_list_ds_(umr), bsf = inlay_umr_ds(umr) - 8 - ds, i, qpn, flags_pd;
	uint32_t octowords = umr->table.length ? umr->table.length / INLAY_DS : ds;
	uint64_t mask = umr->mask, round = 0;
	uint8_t *at;

	INLAY_CHECK(!umr->list + !umr->interleaved + !umr->table.length >= 2, "a UMR has one translation");
	INLAY_CHECK(!umr->entries || umr->list || umr->interleaved, "the entries are not NULL");
	INLAY_CHECK(umr->table.length % 64 == 0 && octowords < 65536, "a table is a multiple of 64 bytes, below 1 MiB");
	INLAY_CHECK(!umr->bsf || (!umr->table.length && !umr->offset), "with a BSF there is no table and no offset");
	INLAY_CHECK(umr->bsf_ds % 4 == 0, "a BSF is a multiple of 64 bytes");
	INLAY_CHECK(!((umr->qpn | umr->pdn) >> 24), "QP and PD numbers have 24 bits");
	c = inlay_seg_zero_(c, 3, &at);
	at[0] = (uint8_t)((umr->flags & 0xff) | (umr->table.length ? 0 : MLX5_WQE_UMR_CTRL_FLAG_INLINE));
	inlay_put32(at + 4, inlay_to_be32(octowords << 16 | (bsf ? bsf : (uint32_t)umr->offset & 0xffff)));
	inlay_put64(at + 8, inlay_to_be64(mask));
	inlay_put32(at + 16, inlay_to_be32((uint32_t)(umr->offset >> 16)));

	c = inlay_seg_zero_(c, 4, &at);
	qpn = umr->qpn ? umr->qpn : 0xffffff;
	flags_pd = umr->pdn | (umr->flags & INLAY_UMR_REMOTE_INVALIDATE ? 1u << 24 : 0) |
		   (umr->flags & INLAY_UMR_SIG_ERR ? 1u << 26 : 0) |
		   (umr->bsf && mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE ? 1u << 30 : 0) |
		   (umr->flags & INLAY_UMR_LEN64 ? 1u << 31 : 0);
	at[0] = umr->flags & INLAY_UMR_FREE ? MLX5_WQE_MKEY_CONTEXT_FREE : 0;
	at[1] = mask & INLAY_UMR_MASK_RELAXED_WRITE && umr->access & IBV_ACCESS_RELAXED_ORDERING ? 4 : 0;
	at[2] = inlay_umr_access_(umr->access);
	at[2] |= mask & INLAY_UMR_MASK_LOCAL_READ ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ : 0;
	inlay_put32(at + 4, inlay_to_be32(qpn << 8 | umr->tag));
	inlay_put32(at + 12, inlay_to_be32(flags_pd));
	inlay_put64(at + 16, inlay_to_be64(umr->start));
	inlay_put64(at + 24, inlay_to_be64(umr->len));
	at[59] = (umr->log_entity & 0x1f) |
		 (mask & INLAY_UMR_MASK_RELAXED_READ && umr->access & IBV_ACCESS_RELAXED_ORDERING ? 0x40 : 0);

	if (umr->table.length)
		return inlay_seg_data(c, umr->table.addr, umr->table.length, umr->table.lkey);
	for (i = 0; umr->interleaved && i < umr->entries; i++)
		round += umr->interleaved[i].bytes_count;
	for (i = 0; i < ds; i++) {
		at = inlay_seg_at(c);
		if (umr->interleaved && !i)
			inlay_wqe_rounds_(at, (uint32_t)round, umr->rounds, umr->entries);
		else if (umr->interleaved && i <= umr->entries)
			inlay_wqe_interleaved_(at, &umr->interleaved[i - 1]);
		else if (umr->list && i < umr->entries)
			inlay_wqe_klm(at, umr->list[i].addr, umr->list[i].length, umr->list[i].lkey);
		else
			__builtin_memset(at, 0, INLAY_DS);
		c = inlay_seg_done(c, at);
	}
	for (i = 0; i < bsf; i++) {
		at = inlay_seg_at(c);
		inlay_copy(at, (const uint8_t *)umr->bsf + (size_t)i * INLAY_DS, INLAY_DS);
		c = inlay_seg_done(c, at);
	}
	return c;
}

/*
 * Sets *umr to a memory window's change, for inlay_post_umr: a bind, or with NULL memory an
 * invalidation, as libmlx5 writes them. *umr points to *memory.
 *
 * qpn     the window's QP for type 2, 0 for type 1
 * rkey    the window's new key; only its low byte is written
 * memory  addr, length (1 .. 2^31 bytes) and lkey of the memory
 * access  IBV_ACCESS_*; with IBV_ACCESS_ZERO_BASED the window's addresses start at 0
 */
INLAY_FN void inlay_umr_window(uint32_t qpn, uint32_t rkey, const struct ibv_sge *memory, uint32_t access,
			       struct inlay_umr *umr)
{
	__builtin_memset(umr, 0, sizeof(*umr));
	umr->mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY |
		    (qpn ? MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN : 0);
	umr->flags = MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET;
	umr->tag = (uint8_t)rkey;
	if (!memory) {
		umr->flags |= INLAY_UMR_FREE | (qpn ? MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN : 0);
		return;
	}
	umr->mask |= INLAY_UMR_MASK_FILL | INLAY_UMR_MASK_ACCESS | MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR;
	umr->flags |= qpn ? MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE : 0;
	umr->access = access;
	umr->qpn = qpn;
	umr->start = access & IBV_ACCESS_ZERO_BASED ? 0 : memory->addr;
	umr->len = memory->length;
	umr->list = memory;
	umr->entries = 1;
}

/* ---- Signatures ---- */

/*
 * A BSF: the signatures of the data in memory and on the wire, as the device reads them.
 *
 * size_same          INLAY_BSF_*
 * check_mask         bytes of the incoming signature to check, MLX5DV_SIG_MASK_*
 * wire_copy_block    with INLAY_BSF_SAME the bytes to copy; else the wire's block size
 * memory_block       block size: 1 is 512 bytes, 2 520, 3 4096, 4 4160, 6 4048
 * raw_be             bytes without signatures; ~0: as many as come
 * wire_be, memory_be a CRC's format << 24 | PSV; a T10-DIF's format is 0 and its fields follow
 * ..._transaction_be the same for one signature over all data; with INLAY_BSF_WIRE_* and
 *                    INLAY_BSF_MEMORY_* in init_check_be
 */
struct inlay_bsf_dif {
	uint16_t valid_be;      /* 0xc000: valid, and restarts with each transfer */
	uint16_t app_tag_be;
	uint32_t ref_tag_be;
	uint8_t guard;          /* 1: CRC-16, 2: IP checksum */
	uint8_t repeat_seed;    /* 0x80: each block; 0x08: the guard starts from ~0 */
	uint8_t reserved[3];
	uint8_t escape;         /* 0x40: count ref tags up; 1: no check of app tag 0xffff, 2: with ref tag ~0 */
	uint16_t app_mask_be;
};

struct inlay_bsf {
	uint8_t size_same;
	uint8_t check_mask;
	uint8_t wire_copy_block;
	uint8_t memory_block;
	uint32_t raw_be;
	uint32_t wire_be;
	uint32_t memory_be;
	uint32_t init_check_be;
	uint32_t reserved_be;
	uint32_t wire_transaction_be;
	uint32_t memory_transaction_be;
	struct inlay_bsf_dif wire;
	struct inlay_bsf_dif memory;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_bsf) == 64 && INLAY_AT_(inlay_bsf, raw_be, 4) &&
		    INLAY_AT_(inlay_bsf, memory_be, 12) && INLAY_AT_(inlay_bsf, memory_transaction_be, 28) &&
		    INLAY_AT_(inlay_bsf, wire, 32) && INLAY_AT_(inlay_bsf, memory, 48) &&
		    INLAY_AT_(inlay_bsf_dif, guard, 8) && INLAY_AT_(inlay_bsf_dif, escape, 13), "BSF");

enum inlay_bsf_bits {
	/* size_same: the BSF's length; SAME: wire and memory have the same blocks and signatures */
	INLAY_BSF_BASIC = 0 << 6, INLAY_BSF_TRANSACTION = 1 << 6, INLAY_BSF_BLOCK = 2 << 6,
	INLAY_BSF_AND_CRYPTO = 3 << 6, INLAY_BSF_SAME = 1 << 4,
	/* formats: a CRC per block (REPEAT) or per transaction, from 0 (SEED_0) or ~0 */
	INLAY_BSF_CRC32 = 0x20, INLAY_BSF_CRC32C = 0x40, INLAY_BSF_CRC64_XP10 = 0x50, INLAY_BSF_REPEAT = 0x02,
	INLAY_BSF_SEED_0 = 0x01,
	/* init_check_be: INIT for the transaction's first transfer, CHECK for its last */
	INLAY_BSF_MEMORY_CHECK = 1 << 24, INLAY_BSF_MEMORY_INIT = 1 << 25, INLAY_BSF_WIRE_CHECK = 1 << 28,
	INLAY_BSF_WIRE_INIT = 1 << 29
};

/* Fills the BSF of a T10-DIF domain. */
INLAY_FN void inlay_bsf_dif_(struct inlay_bsf_dif *to, const struct mlx5dv_sig_t10dif *dif)
{
	to->valid_be = inlay_to_be16(0xc000);
	to->app_tag_be = inlay_to_be16(dif->app_tag);
	to->ref_tag_be = inlay_to_be32(dif->ref_tag);
	to->guard = dif->bg_type == MLX5DV_SIG_T10DIF_CRC ? 1 : 2;
	to->repeat_seed = 0x80 | (dif->bg ? 0x08 : 0);
	to->escape = (uint8_t)((dif->flags & MLX5DV_SIG_T10DIF_FLAG_REF_REMAP ? 0x40 : 0) |
			       (dif->flags & MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE ? 2 :
				dif->flags & MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE ? 1 : 0));
	to->app_mask_be = inlay_to_be16(0xffff);
}

/* A domain's format and PSV; 0 when the domain is impossible. */
INLAY_FN int inlay_bsf_domain_(const struct mlx5dv_sig_block_domain *d, uint32_t psv, uint32_t *be,
			       struct inlay_bsf_dif *dif)
{
	static const uint8_t crc[] = {INLAY_BSF_CRC32, INLAY_BSF_CRC32C, INLAY_BSF_CRC64_XP10};
	uint32_t format = 0;

	if (psv >> 24 || (uint32_t)d->block_size > MLX5DV_BLOCK_SIZE_4160 || d->comp_mask)
		return 0;
	if (d->sig_type == MLX5DV_SIG_TYPE_T10DIF) {
		if ((d->sig.dif->bg && d->sig.dif->bg != 0xffff) || (uint32_t)d->sig.dif->bg_type > 1 ||
		    d->sig.dif->flags >> 3)
			return 0;
		inlay_bsf_dif_(dif, d->sig.dif);
	} else if (d->sig_type == MLX5DV_SIG_TYPE_CRC && (uint32_t)d->sig.crc->type <= MLX5DV_SIG_CRC_TYPE_CRC64_XP10) {
		uint64_t ones = d->sig.crc->type == MLX5DV_SIG_CRC_TYPE_CRC64_XP10 ? UINT64_MAX : UINT32_MAX;

		if (d->sig.crc->seed && d->sig.crc->seed != ones)
			return 0;
		format = crc[d->sig.crc->type] | INLAY_BSF_REPEAT | (d->sig.crc->seed ? 0 : INLAY_BSF_SEED_0);
	} else {
		return 0;
	}
	*be = inlay_to_be32(format << 24 | psv);
	return 1;
}

/*
 * Fills a BSF for block signatures, as libmlx5's mlx5dv_wr_set_mkey_sig_block does.
 *
 * attr  the domains and masks, in mlx5dv's form
 * psv   the PSVs of memory and wire, in this order, 24 bits each; ignored for a missing domain
 *
 * Returns 0; -EINVAL for an impossible domain or seed, for no domain at all, or for a copy mask
 * when the domains' blocks or types differ.
 */
INLAY_FN INLAY_RESULT int inlay_bsf_block(const struct mlx5dv_sig_block_attr *attr, const uint32_t psv[2],
					  struct inlay_bsf *bsf)
{
	static const uint8_t size[] = {1, 2, 6, 3, 4};
	const struct mlx5dv_sig_block_domain *m = attr->mem, *w = attr->wire;
	uint8_t copy = 0;
	int same;

	__builtin_memset(bsf, 0, sizeof(*bsf));
	if ((!m && !w) || attr->comp_mask || attr->flags & ~(uint32_t)MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK ||
	    (m && !inlay_bsf_domain_(m, psv[0], &bsf->memory_be, &bsf->memory)) ||
	    (w && !inlay_bsf_domain_(w, psv[1], &bsf->wire_be, &bsf->wire)))
		return -EINVAL;
	bsf->size_same = INLAY_BSF_BLOCK;
	bsf->check_mask = attr->check_mask;
	bsf->raw_be = UINT32_MAX;
	if (m)
		bsf->memory_block = size[m->block_size];
	if (!w)
		return 0;
	same = m && m->sig_type == w->sig_type && m->block_size == w->block_size;
	if (same && w->sig_type == MLX5DV_SIG_TYPE_CRC) {
		same = m->sig.crc->type == w->sig.crc->type;
		copy = w->sig.crc->type == MLX5DV_SIG_CRC_TYPE_CRC64_XP10 ? MLX5DV_SIG_MASK_CRC64_XP10 :
									    MLX5DV_SIG_MASK_CRC32;
	} else if (same) {
		copy = (uint8_t)((m->sig.dif->bg_type == w->sig.dif->bg_type && m->sig.dif->bg == w->sig.dif->bg ?
				  MLX5DV_SIG_MASK_T10DIF_GUARD : 0) |
				 (m->sig.dif->app_tag == w->sig.dif->app_tag ? MLX5DV_SIG_MASK_T10DIF_APPTAG : 0) |
				 (m->sig.dif->ref_tag == w->sig.dif->ref_tag ? MLX5DV_SIG_MASK_T10DIF_REFTAG : 0));
	}
	if (attr->flags & MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK) {
		if (!same)
			return -EINVAL;
		copy = attr->copy_mask;
	}
	bsf->size_same |= same ? INLAY_BSF_SAME : 0;
	bsf->wire_copy_block = same ? copy : size[w->block_size];
	return 0;
}

/* The initial PSV value for a domain of inlay_bsf_block. */
INLAY_FN uint64_t inlay_psv_value(const struct mlx5dv_sig_block_domain *domain)
{
	const struct mlx5dv_sig_t10dif *dif = domain->sig.dif;

	if (domain->sig_type == MLX5DV_SIG_TYPE_T10DIF)
		return (uint64_t)dif->bg << 48 | (uint64_t)dif->app_tag << 32 | dif->ref_tag;
	return domain->sig.crc->type == MLX5DV_SIG_CRC_TYPE_CRC64_XP10 ? domain->sig.crc->seed :
									 domain->sig.crc->seed << 32;
}

/*
 * Appends the segment of SET_PSV: a PSV's number and its initial signature. Clears the PSV's error.
 *
 *   +16   PSV | syndrome 0 | signature
 */
INLAY_FN struct inlay_cursor inlay_seg_psv_(struct inlay_cursor c, uint32_t psv, uint64_t value)
{
	uint8_t *at = inlay_seg_at(c);

	INLAY_CHECK(!(psv >> 24), "a PSV's number has 24 bits");
	inlay_put64(at, inlay_to_be32(psv));
	inlay_put64(at + 8, inlay_to_be64(value));
	return inlay_seg_done(c, at);
}

INLAY_CASTS_END_
#endif
