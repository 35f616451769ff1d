/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/iov.h: posting a list of struct iovec.
 *
 *   struct inlay_iov from = {iov, 3, mr->lkey, NULL};
 *   struct inlay_remote there = {raddr, rkey};
 *
 *   inlay_post_iov(&sq, MLX5_OPCODE_RDMA_WRITE, NULL, &there, &from, 0, INLAY_SIGNALED);
 *   inlay_post_iov(&sq, MLX5_OPCODE_SEND, NULL, NULL, &from, 0, INLAY_SIGNALED);
 *
 * Threads: one owner of the queue at a time. Sources: as post.h.
 */
#ifndef INLAY_QUEUE_IOV_H
#define INLAY_QUEUE_IOV_H

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
#include <inlay/wqe.h>
#include <inlay/queue/post.h>
#include <inlay/queue/sq.h>

INLAY_APART int inlay_post_iov_(struct inlay_sq *sq, uint32_t opcode, const struct inlay_av *to,
				const struct inlay_remote *remote, const struct inlay_iov *from, uint32_t imm_be,
				uint32_t flags)
{
	uint32_t av_ds = to ? inlay_av_ds(to) : 0, ds = 1 + av_ds + (remote ? 1 : 0), limit, i;
	struct inlay_cursor at;
	uint64_t total = 0;
	int err;

	INLAY_CHECK(sq && from && (from->iov || !from->num), "queue and list are not NULL");
	INLAY_CHECK(inlay_post_fits_(sq, (uint8_t)opcode, to != NULL), "the QP's type has the operation");
	INLAY_CHECK(remote ? opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM ||
			     opcode == MLX5_OPCODE_RDMA_READ :
			     opcode == MLX5_OPCODE_SEND || opcode == MLX5_OPCODE_SEND_IMM || opcode == MLX5_OPCODE_SEND_INVAL,
		    "a send has no remote address, writes and reads have one");
	INLAY_CHECK(opcode != MLX5_OPCODE_RDMA_READ || !(flags & INLAY_INLINE), "a read has no payload to inline");
	limit = flags & INLAY_INLINE ? INLAY_MAX_DS * INLAY_DS : INLAY_SGE_MAX;
	if (INLAY_UNLIKELY(from->num > INLAY_MAX_DS && !(flags & INLAY_INLINE)))
		return -EINVAL;
	for (i = 0; i < from->num; i++) {
		if (INLAY_UNLIKELY(from->iov[i].iov_len > limit))
			return -EINVAL;
		total += from->iov[i].iov_len;
		ds += !(flags & INLAY_INLINE) && from->iov[i].iov_len;
	}
	if (flags & INLAY_INLINE) {
		if (INLAY_UNLIKELY(total > limit))
			return -EINVAL;
		ds += inlay_seg_inline_ds(total);
	}
	err = inlay_sq_begin_ds(sq, ds, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	if (to)
		at = inlay_seg_av_(at, to, av_ds);
	if (remote)
		at = inlay_seg_raddr(at, remote->addr, remote->rkey);
	if (flags & INLAY_INLINE)
		at = inlay_seg_inline_iov(at, from, (uint32_t)total);
	else
		at = inlay_seg_iov(at, from);
	return inlay_sq_commit(sq, at, opcode, 0, flags, imm_be);
}

/*
 * Posts the entries of a list; empty ones are left out, and all may be empty.
 *
 * opcode  MLX5_OPCODE_SEND, _SEND_IMM, _SEND_INVAL, _RDMA_WRITE, _RDMA_WRITE_IMM or _RDMA_READ
 * to      UD, DCI, XRC: the destination, as in to.h; else NULL
 * remote  remote address and rkey; NULL for a send
 * imm_be  immediate as it will arrive, the big-endian rkey to invalidate, or 0
 * flags   as inlay_post_*. With INLAY_INLINE, keys are ignored
 *
 * Returns as inlay_post_*; also -EINVAL for an entry of more than 2^31 - 1 bytes. Same bytes as the
 * inlay_post_* or inlay_post_to_* of that opcode with the same SGEs.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_iov(struct inlay_sq *sq, uint32_t opcode, const struct inlay_av *to,
				const struct inlay_remote *remote, const struct inlay_iov *from, uint32_t imm_be,
				uint32_t flags)
{
	inlay_flags_check_(flags);
	return inlay_post_iov_(sq, opcode, to, remote, from, imm_be, flags);
}

#endif
