/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * window.c: UMR WQEs: memory windows; umr.c has keys that a command made to be filled. A bind or an
 * invalidate:
 *
 *   +0    ctrl       imm: the window's key; its low byte does not count when the key gets a new one
 *   +16   umr ctrl   flags (inline, check free, check qpn), KLM octowords, mask of fields to change
 *   +64   mkey       free, rights, qpn << 8 | new low byte, start address, length
 *   +128  KLM        of a bind: length, the MR's lkey, address; 64 bytes
 *
 * A window without QPN in its mask is of type 1: every QP of its PD may use it, and it may be bound
 * again at any time. A window of type 2 belongs to the QP that bound it. It must be free to be
 * bound, and may be invalidated by LOCAL_INV (a UMR that frees it) or by a SEND of the peer. A bind
 * of length 0 frees a window of either type. A refusal is a memory management error of the WQE. A
 * UMR cannot change the key of an MR on this device.
 */
#include <string.h>
#include "eng.h"

#define REFUSED MLX5_CQE_SYNDROME_MW_BIND_ERR
#define MALFORMED MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR

void window_free(struct sd_mr *mw)
{
	if (!mw->mw) {
		mw->kind = SD_KEY_FREE;
		return;
	}
	if (mw->under)
		mw->under->windows--;
	mw->under = NULL;
	mw->qpn = 0;
	mw->access = 0;
	mw->length = 0;
}

bool window_invalid(struct sd_qp *qp, uint32_t key)
{
	struct sd_mr *mw = sd_mr_find(key, true);

	if (mw && !mw->mw)
		return umr_invalid(qp, key);
	return !mw || mw->mw != 2 || mw->pd != qp->pd || !mw->under || mw->qpn != qp->qpn;
}

static uint32_t rights(uint8_t flags)
{
	return (flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0) |
	       (flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0) |
	       (flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : 0);
}

static uint8_t bind(struct sd_qp *qp, struct sd_mr *mw, const struct mlx5_wqe_mkey_context_seg *m, const struct mlx5_wqe_umr_klm_seg *k)
{
	uint32_t access = rights(m->access_flags), length = be32toh(k->byte_count);
	uint64_t addr = be64toh(k->address), start = be64toh(m->start_addr);
	struct sd_mr *mr = sd_mr_find(be32toh(k->mkey), false);

	if (!mr || mr->mw || mr->pd != qp->pd || !(mr->access & IBV_ACCESS_MW_BIND))
		return REFUSED;
	if (!length || length > 1u << 31 || be64toh(m->len) != length || (start && start != addr))
		return REFUSED;
	if (addr < mr->iova || addr - mr->iova > mr->length || length > mr->length - (addr - mr->iova))
		return REFUSED;
	/* A window has no right that the MR has not */
	if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) && !(mr->access & IBV_ACCESS_LOCAL_WRITE))
		return REFUSED;
	window_free(mw);
	mw->under = mr;
	mr->windows++;
	mw->iova = start;
	mw->addr = mr->addr + (addr - mr->iova);
	mw->length = length;
	mw->access = access;
	mw->qpn = mw->mw == 2 ? qp->qpn : 0;
	return 0;
}

uint8_t window_umr(struct rcq *q, const struct mlx5_wqe_ctrl_seg *c, const uint8_t *at, const uint8_t *end)
{
	const uint64_t always = MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY;
	const uint64_t bound = MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR |
			       MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
			       MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC;
	const uint8_t known = MLX5_WQE_UMR_CTRL_FLAG_INLINE | MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE |
			      MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET | MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN;
	struct sd_mr *mw = sd_mr_index(be32toh(c->imm));
	struct mlx5_wqe_mkey_context_seg m;
	struct mlx5_wqe_umr_ctrl_seg u;
	struct mlx5_wqe_umr_klm_seg k;
	uint32_t who;
	uint64_t mask;
	bool frees, two;
	uint8_t synd;

	if (mw && !mw->mw && mw->room && mw->pd == q->qp->pd && !((mw->key ^ be32toh(c->imm)) >> 8))
		return umr_fill(q, mw, at, end);
	_Static_assert(sizeof u == 48 && sizeof m == 64 && sizeof k == 16, "a UMR WQE");
	if (end - at < (ptrdiff_t)(sizeof u + sizeof m))
		return MALFORMED;
	memcpy(&u, at, sizeof u);
	memcpy(&m, at + sizeof u, sizeof m);
	at += sizeof u + sizeof m;
	mask = be64toh(u.mkey_mask);
	two = mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN;
	frees = m.free & MLX5_WQE_MKEY_CONTEXT_FREE;
	who = be32toh(m.qpn_mkey);
	if (!(u.flags & MLX5_WQE_UMR_CTRL_FLAG_INLINE) || u.flags & ~known || u.translation_offset)
		return MALFORMED;
	mask &= ~(uint64_t)MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN;
	if (mask != (frees ? always : always | bound))
		return MALFORMED;
	if (who >> 8 != (two && !frees ? q->qp->qpn : 0xffffff))
		return MALFORMED;
	/* KLMs come in whole 64 bytes */
	if (frees ? u.klm_octowords != 0 : be16toh(u.klm_octowords) != 4 || end - at < 64)
		return MALFORMED;
	if (!mw || !mw->mw || mw->pd != q->qp->pd || (mw->mw == 2) != two)
		return REFUSED;
	if (frees) {
		/* The key that is given up is named whole */
		if (two && (u.flags & MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN || mw->under) && window_invalid(q->qp, mw->key))
			return REFUSED;
		if (two && mw->key != be32toh(c->imm))
			return REFUSED;
		window_free(mw);
	} else {
		if (two && mw->under)
			return REFUSED;
		memcpy(&k, at, sizeof k);
		synd = bind(q->qp, mw, &m, &k);
		if (synd)
			return synd;
	}
	mw->key = (mw->key & ~0xffu) | (who & 0xff);
	return 0;
}
