/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/umr.h: posts that change a memory key: memory windows, invalidation, lists of pieces,
 * any field of the key, signatures.
 *
 *   inlay_post_bind_mw(&sq, mw, ibv_inc_rkey(mw->rkey), &bind, INLAY_SIGNALED);
 *   inlay_post_umr_list(&sq, key, IBV_ACCESS_LOCAL_WRITE, sge, n, 0);
 *   inlay_post_send(&sq, &through_key, 1, INLAY_SIGNALED | INLAY_FENCE_INITIATOR_SMALL);
 *
 * The next post that uses the key needs INLAY_FENCE_INITIATOR_SMALL, which libmlx5 adds itself. A
 * key that earlier posts still use is changed after their completions.
 *
 * Flags and results are those of inlay_post_* (post.h), without INLAY_INLINE.
 *
 * Threads: one owner of the queue at a time. Sources: libmlx5's qp.c; Linux,
 * infiniband/hw/mlx5/wr.c; SPDK's mlx5_umr.c.
 */
#ifndef INLAY_QUEUE_UMR_H
#define INLAY_QUEUE_UMR_H /* a trial: names may change */

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/cqe/signature.h>
#include <inlay/wqe.h>
#include <inlay/wqe/umr.h>
#include <inlay/queue/post.h>
#include <inlay/queue/sq.h>

/*
 * Changes a memory key, which is `key` now: wqe/umr.h has the WQE and what there is to change.
 * Returns as inlay_sq_begin, and -EINVAL for a change that fits no WQE (inlay_umr_ds).
 */
INLAY_FN INLAY_RESULT int inlay_post_umr(struct inlay_sq *sq, uint32_t key, const struct inlay_umr *umr, uint32_t flags)
{
	struct inlay_cursor at;
	uint32_t ds;
	int err;

	INLAY_CHECK(sq && umr, "no argument is NULL");
	INLAY_CHECK(inlay_post_fits_(sq->type, MLX5_OPCODE_UMR, 0), "the QP's type has the operation");
	ds = inlay_umr_ds(umr);
	if (ds > INLAY_MAX_DS)
		return -EINVAL;
	err = inlay_sq_begin(sq, (ds + 3) / 4, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	at = inlay_seg_umr(at, umr);
	INLAY_CHECK(!(flags & INLAY_INLINE), "a UMR has no payload to inline");
	return inlay_sq_finish_(sq, at, MLX5_OPCODE_UMR, 0, flags, inlay_to_be32(key));
}

/*
 * Makes a key cover pieces of other keys, one after the other, as one range that starts at the
 * key's start address (0 unless it was made with another).
 *
 *   +128  length | lkey | address      one per piece, padded to 64 bytes
 *
 * key     made by mlx5dv_create_mkey or inlay_devx_mkey_create_umr, with room for the pieces; its
 *         low byte becomes the new one
 * access  IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_*
 * sge, n  the pieces, of keys of the same PD; n at most 52
 *
 * Returns as inlay_post_umr. Same bytes as mlx5dv_wr_mr_list.
 */
INLAY_FN INLAY_RESULT int inlay_post_umr_list(struct inlay_sq *sq, uint32_t key, uint32_t access, const struct ibv_sge *sge,
				 uint32_t n, uint32_t flags)
{
	struct inlay_umr umr;
	uint32_t i;

	INLAY_CHECK(sge || !n, "the pieces are not NULL");
	__builtin_memset(&umr, 0, sizeof(umr));
	umr.mask = INLAY_UMR_MASK_FILL | INLAY_UMR_MASK_ACCESS;
	umr.access = access;
	umr.tag = (uint8_t)key;
	umr.entries = (uint16_t)(n < INLAY_MAX_DS ? n : INLAY_MAX_DS); /* which no WQE holds */
	umr.list = sge;
	for (i = 0; i < n; i++)
		umr.len += sge[i].length;
	return inlay_post_umr(sq, key, &umr, flags);
}

/*
 * Sets a PSV, the running state of a signature. Returns as inlay_sq_begin. libmlx5 posts it with
 * INLAY_FENCE_INITIATOR_SMALL after a UMR.
 *
 * psv    its number, 24 bits
 * value  what the signature begins with (inlay_psv_value)
 */
INLAY_FN INLAY_RESULT int inlay_post_set_psv(struct inlay_sq *sq, uint32_t psv, uint64_t value, uint32_t flags)
{
	struct inlay_cursor at;
	int err;

	INLAY_CHECK(sq, "the queue is not NULL");
	INLAY_CHECK(inlay_post_fits_(sq->type, MLX5_OPCODE_SET_PSV, 0), "the QP's type has the operation");
	err = inlay_sq_begin(sq, 1, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	at = inlay_seg_psv_(at, psv, value);
	INLAY_CHECK(!(flags & INLAY_INLINE), "a PSV has no payload to inline");
	return inlay_sq_finish_(sq, at, MLX5_OPCODE_SET_PSV, 0, flags, 0);
}

/*
 * Changes a key as inlay_post_umr, and gives it block signatures: a UMR with a BSF, then a SET_PSV
 * for each domain. From then on the device checks, generates or strips signatures in transfers
 * through the key. A wrong one adds a CQE of opcode MLX5_CQE_SIG_ERR, once until the key is changed
 * again, to the CQ of the queue that moves the data: reserve it (inlay_cq_reserve), one for each key.
 *
 * umr   the change without a BSF, which this post adds. After an error that a CQE of opcode
 *       MLX5_CQE_SIG_ERR told of, and the first time, mask MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR,
 *       and INLAY_UMR_SIG_ERR in flags if an even number of errors was seen
 * attr  domains and masks, in mlx5dv's form
 * psv   the PSVs of memory and wire, as in inlay_bsf_block (inlay_devx_psv_create)
 *
 * Returns as inlay_post_umr, with room for all or nothing posted; also -EINVAL as inlay_bsf_block.
 * Same bytes as mlx5dv_wr_set_mkey_sig_block: INLAY_SIGNALED applies to the last WQE, and each
 * SET_PSV has the small fence unless flags have another.
 */
INLAY_FN INLAY_RESULT int inlay_post_umr_sig(struct inlay_sq *sq, uint32_t key, const struct inlay_umr *umr,
				const struct mlx5dv_sig_block_attr *attr, const uint32_t psv[2], uint32_t flags)
{
	uint32_t quiet = flags & ~(uint32_t)(INLAY_SIGNALED | INLAY_RING), bbs;
	uint32_t fence = flags >> 29 ? 0 : INLAY_FENCE_INITIATOR_SMALL;
	struct inlay_umr with;
	struct inlay_bsf bsf;
	int err;

	INLAY_CHECK(sq && umr && attr && psv, "no argument is NULL");
	err = inlay_bsf_block(attr, psv, &bsf);
	if (err)
		return err;
	inlay_copy(&with, umr, sizeof(with));
	with.mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE;
	with.bsf = &bsf;
	with.bsf_ds = 4;
	bbs = inlay_umr_ds(&with);
	if (bbs > INLAY_MAX_DS)
		return -EINVAL;
	bbs = (bbs + 3) / 4 + !!attr->mem + !!attr->wire;
	if (bbs > inlay_sq_room(sq))
		return bbs > inlay_sq_size(sq) ? -E2BIG : -EAGAIN;
	err = inlay_post_umr(sq, key, &with, quiet);
	if (err)
		return err;
	if (attr->mem)
		inlay_had_room_(inlay_post_set_psv(sq, psv[0], inlay_psv_value(attr->mem), (attr->wire ? quiet : flags) | fence));
	if (attr->wire)
		inlay_had_room_(inlay_post_set_psv(sq, psv[1], inlay_psv_value(attr->wire), flags | fence));
	return 0;
}

/*
 * Binds a memory window, or with bind->length 0 unbinds it.
 *
 * mw    from ibv_alloc_mw; only mw->rkey and mw->type are read, nothing is written
 * rkey  the window's new key: mw->rkey with another low byte (ibv_inc_rkey). Store it in mw->rkey
 *       after the post
 * bind  memory, at most 2^31 bytes, of an MR that has IBV_ACCESS_MW_BIND; access as IBV_ACCESS_*
 *
 * Returns as inlay_post_*, and -ENOTSUP for more than 2^31 bytes. Same bytes as IBV_WR_BIND_MW
 * (ibv_bind_mw for a window of type 1).
 */
INLAY_FN INLAY_RESULT int inlay_post_bind_mw(struct inlay_sq *sq, const struct ibv_mw *mw, uint32_t rkey,
				const struct ibv_mw_bind_info *bind, uint32_t flags)
{
	struct ibv_sge memory;
	struct inlay_umr umr;
	uint32_t qpn;

	INLAY_CHECK(sq && mw && bind, "no argument is NULL");
	qpn = mw->type == IBV_MW_TYPE_2 ? inlay_sq_qpn(sq) : 0;
	if (bind->length > 1u << 31)
		return -ENOTSUP;
	memory.addr = bind->addr;
	memory.length = (uint32_t)bind->length;
	memory.lkey = bind->length ? bind->mr->lkey : 0;
	inlay_umr_window(qpn, rkey, bind->length ? &memory : NULL, bind->mw_access_flags, &umr);
	return inlay_post_umr(sq, mw->rkey, &umr, flags);
}

/*
 * Invalidates rkey (host order), a memory window of type 2 that is bound to this QP, or a key of
 * inlay_post_umr_list. Same bytes as IBV_WR_LOCAL_INV.
 */
INLAY_FN INLAY_RESULT int inlay_post_local_inv(struct inlay_sq *sq, uint32_t rkey, uint32_t flags)
{
	struct inlay_umr umr;

	INLAY_CHECK(sq, "the queue is not NULL");
	inlay_umr_window(inlay_sq_qpn(sq), 0, NULL, 0, &umr);
	return inlay_post_umr(sq, rkey, &umr, flags);
}

INLAY_CASTS_END_
#endif
