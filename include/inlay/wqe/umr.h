/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/wqe/umr.h: segments of user-mode registration (UMR), which changes a memory key from a
 * send queue.
 *
 * Threads: pure functions of their arguments. Sources: mlx5dv.h (layouts); libmlx5's set_umr_*
 * functions (qp.c).
 */
#ifndef INLAY_WQE_UMR_H
#define INLAY_WQE_UMR_H

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
#include <inlay/wqe/segment.h>

INLAY_STATIC_ASSERT(sizeof(struct mlx5_wqe_umr_ctrl_seg) == 48 && INLAY_AT_(mlx5_wqe_umr_ctrl_seg, klm_octowords, 4) &&
		    INLAY_AT_(mlx5_wqe_umr_ctrl_seg, mkey_mask, 8), "UMR control");
INLAY_STATIC_ASSERT(sizeof(struct mlx5_wqe_mkey_context_seg) == 64 &&
		    INLAY_AT_(mlx5_wqe_mkey_context_seg, access_flags, 2) &&
		    INLAY_AT_(mlx5_wqe_mkey_context_seg, qpn_mkey, 4) &&
		    INLAY_AT_(mlx5_wqe_mkey_context_seg, start_addr, 16) &&
		    INLAY_AT_(mlx5_wqe_mkey_context_seg, len, 24), "memory key context");
INLAY_STATIC_ASSERT(sizeof(struct mlx5_wqe_umr_klm_seg) == 16, "KLM");

/*
 * Appends the segments that change a memory window's key: UMR control, memory key context and, to
 * bind, the memory. Same bytes as libmlx5's IBV_WR_BIND_MW and IBV_WR_LOCAL_INV; bytes that libmlx5
 * leaves unwritten are 0.
 *
 *   +16   flags | klm_octowords | mkey_mask                          which parts of the key change
 *   +64   free | access | QPN << 8 | low byte | start | length       what they change to
 *   +128  length | lkey | address | 48 bytes of 0                    the memory
 *
 * qpn     the window's QP for type 2, 0 for type 1
 * rkey    the window's new key; only its low byte is written
 * memory  addr, length (1 .. 2^31 bytes) and lkey of the memory; NULL frees (invalidates) the
 *         window
 * access  IBV_ACCESS_*; with IBV_ACCESS_ZERO_BASED the window's addresses start at 0
 */
INLAY_FN struct inlay_cursor inlay_seg_umr(struct inlay_cursor c, uint32_t qpn, uint32_t rkey,
					   const struct ibv_sge *memory, uint32_t access)
{
	uint64_t mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY;
	uint8_t *umr, *mkey, *klm, flags = MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET | MLX5_WQE_UMR_CTRL_FLAG_INLINE;

	c = inlay_seg_zero_(c, 3, &umr);
	c = inlay_seg_zero_(c, 4, &mkey);
	if (qpn)
		mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN;
	if (memory) {
		mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR |
			MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |
			MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
			MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC;
		flags |= qpn ? MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE : 0;
		umr[5] = 4; /* the KLM's block, in 16-byte units */
		mkey[2] = access & IBV_ACCESS_LOCAL_WRITE ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE : 0;
		mkey[2] |= access & IBV_ACCESS_REMOTE_WRITE ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE : 0;
		mkey[2] |= access & IBV_ACCESS_REMOTE_READ ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ : 0;
		mkey[2] |= access & IBV_ACCESS_REMOTE_ATOMIC ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC : 0;
		inlay_put64(mkey + 16, access & IBV_ACCESS_ZERO_BASED ? 0 : inlay_to_be64(memory->addr));
		inlay_put64(mkey + 24, inlay_to_be64(memory->length));
		c = inlay_seg_zero_(c, 4, &klm);
		inlay_put32(klm, inlay_to_be32(memory->length));
		inlay_put32(klm + 4, inlay_to_be32(memory->lkey));
		inlay_put64(klm + 8, inlay_to_be64(memory->addr));
	} else {
		flags |= qpn ? MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN : 0;
		mkey[0] = MLX5_WQE_MKEY_CONTEXT_FREE;
	}
	umr[0] = flags;
	inlay_put64(umr + 8, inlay_to_be64(mask));
	inlay_put32(mkey + 4, inlay_to_be32((rkey & 0xff) | (qpn && memory ? qpn : 0xffffff) << 8));
	return c;
}

#endif
