/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/umr.h: posts that change a memory key: memory windows, invalidation.
 *
 *   inlay_post_bind_mw(&sq, mw, ibv_inc_rkey(mw->rkey), &bind, INLAY_SIGNALED);
 *
 * Flags and results are those of inlay_post_* (post.h).
 *
 * Threads: one owner of the queue at a time. Sources: libmlx5's qp.c.
 */
#ifndef INLAY_QUEUE_UMR_H
#define INLAY_QUEUE_UMR_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/wqe.h>
#include <inlay/queue/post.h>
#include <inlay/queue/sq.h>

/*
 * Changes a memory window's key, which is `key` now; qpn, rkey, memory and access as in
 * inlay_seg_umr. Returns as inlay_sq_begin.
 */
INLAY_FN int inlay_post_umr(struct inlay_sq *sq, uint32_t key, uint32_t qpn, uint32_t rkey,
			    const struct ibv_sge *memory, uint32_t access, uint32_t flags)
{
	struct inlay_cursor at;
	int err;

	INLAY_CHECK(sq, "the queue is not NULL");
	INLAY_CHECK(inlay_post_fits_(sq, MLX5_OPCODE_UMR, 0), "the QP's type has the operation");
	err = inlay_sq_begin(sq, memory ? 3 : 2, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	at = inlay_seg_umr(at, qpn, rkey, memory, access);
	return inlay_post_commit_(sq, at, MLX5_OPCODE_UMR, flags, inlay_to_be32(key));
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
 *
 * The next post that uses the window needs INLAY_FENCE_INITIATOR_SMALL, which libmlx5 adds itself.
 */
INLAY_FN int inlay_post_bind_mw(struct inlay_sq *sq, const struct ibv_mw *mw, uint32_t rkey,
				const struct ibv_mw_bind_info *bind, uint32_t flags)
{
	struct ibv_sge memory;
	uint32_t qpn;

	INLAY_CHECK(sq && mw && bind, "no argument is NULL");
	qpn = mw->type == IBV_MW_TYPE_2 ? inlay_sq_qpn(sq) : 0;
	if (!bind->length)
		return inlay_post_umr(sq, mw->rkey, qpn, rkey, NULL, 0, flags);
	if (bind->length > 1u << 31)
		return -ENOTSUP;
	memory.addr = bind->addr;
	memory.length = (uint32_t)bind->length;
	memory.lkey = bind->mr->lkey;
	return inlay_post_umr(sq, mw->rkey, qpn, rkey, &memory, bind->mw_access_flags, flags);
}

/*
 * Invalidates rkey (host order), a memory window of type 2 that is bound to this QP. Same bytes as
 * IBV_WR_LOCAL_INV. Fence what follows as after inlay_post_bind_mw.
 */
INLAY_FN int inlay_post_local_inv(struct inlay_sq *sq, uint32_t rkey, uint32_t flags)
{
	INLAY_CHECK(sq, "the queue is not NULL");
	return inlay_post_umr(sq, rkey, inlay_sq_qpn(sq), 0, NULL, 0, flags);
}

#endif
