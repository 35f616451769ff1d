/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/template.h: a post of one SGE that is prepared once. After that only addresses,
 * length, immediate and flags change.
 *
 *   struct inlay_template put;
 *
 *   inlay_template_init(&put, &sq, MLX5_OPCODE_RDMA_WRITE, rkey, lkey);
 *   ...
 *   inlay_post_template(&sq, &put, raddr, addr, len, 0, INLAY_SIGNALED | INLAY_RING);
 *
 * A template holds what a post would otherwise compute or byte-swap each time. It is worth having
 * where keys come from memory. In a loop whose keys do not change, an ordinary post costs the same:
 * the compiler moves that work out of the loop.
 *
 * Threads: a template is only read by posts. Sources: as post.h.
 */
#ifndef INLAY_QUEUE_TEMPLATE_H
#define INLAY_QUEUE_TEMPLATE_H

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
#include <inlay/wqe.h>
#include <inlay/queue/post.h>
#include <inlay/queue/sq.h>

/* A WQE of one queue: control segment, remote address unless it is a send, one data segment. */
struct inlay_template {
	uint64_t fixed;   /* opcode, QPN and DS, as inlay_wqe_ctrl_ takes them */
	uint64_t rkey_be;
	uint64_t lkey_be; /* in the upper half */
};

/*
 * Prepares a post of this queue. rkey and lkey in host order; a send ignores rkey.
 *
 * opcode  MLX5_OPCODE_SEND, _SEND_IMM, _SEND_INVAL, _RDMA_WRITE, _RDMA_WRITE_IMM or _RDMA_READ
 *
 * Returns 0, or -EINVAL for another opcode.
 */
INLAY_COLD int inlay_template_init(struct inlay_template *t, const struct inlay_sq *sq, uint32_t opcode, uint32_t rkey,
				   uint32_t lkey)
{
	int remote = opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM ||
		     opcode == MLX5_OPCODE_RDMA_READ;

	INLAY_CHECK(t && sq, "template and queue are not NULL");
	if (!remote && opcode != MLX5_OPCODE_SEND && opcode != MLX5_OPCODE_SEND_IMM && opcode != MLX5_OPCODE_SEND_INVAL)
		return -EINVAL;
	INLAY_CHECK(inlay_post_fits_(sq, (uint8_t)opcode, 0), "the QP's type has the operation");
	t->fixed = (uint64_t)opcode << 32 | sq->qpn8 | (remote ? 3 : 2);
	t->rkey_be = inlay_to_be32(rkey);
	t->lkey_be = (uint64_t)inlay_to_be32(lkey) << 32;
	return 0;
}

INLAY_ALWAYS int inlay_post_template_(struct inlay_sq *sq, const struct inlay_template *t, const uint64_t *raddr,
				      uint64_t addr, uint32_t len, uint32_t imm_be, uint32_t flags)
{
	struct inlay_cursor at;
	int err;

	INLAY_CHECK(sq && t, "queue and template are not NULL");
	INLAY_CHECK((t->fixed & 0xffffff00) == sq->qpn8, "a template is of one queue");
	INLAY_CHECK((t->fixed & 0x3f) == (raddr ? 3 : 2), "a send has no remote address, other posts have one");
	INLAY_CHECK(len && !(len & MLX5_INLINE_SEG), "a data segment holds 1 to 2^31 - 1 bytes");
	INLAY_CHECK(!(flags & INLAY_INLINE), "a template has a pointer to its payload");
	INLAY_CHECK(!(flags & INLAY_STREAM_), "only inlay_post_to_* take a stream");
	inlay_flags_check_(flags);
	err = inlay_sq_begin(sq, 1, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	if (raddr) {
		inlay_put64(at.at, inlay_to_be64(*raddr));
		inlay_put64(at.at + 8, t->rkey_be);
		at = inlay_seg_done(at, at.at);
	}
	inlay_put64(at.at, inlay_wide_be32_(len) | t->lkey_be);
	inlay_put64(at.at + 8, inlay_to_be64(addr));
	at = inlay_seg_done(at, at.at);
	inlay_wqe_ctrl_(at.wqe, at.index, t->fixed, flags, imm_be);
	INLAY_PROBE_(post, (uint32_t)(sq->qpn8 >> 8), at.index, (uint32_t)at.wqe[3]);
	inlay_sq_take_(sq, at, 1);
	return flags & INLAY_RING ? inlay_sq_posted_ring_(sq, at, 1) : inlay_sq_posted_(sq, at, 1);
}

/*
 * Posts a template of an RDMA operation.
 *
 *   +0   ctrl   prepared; index, flags and immediate are added
 *   +16  raddr  remote address, prepared rkey
 *   +32  data   length, prepared lkey, local address
 *
 * raddr   remote virtual address
 * addr    local virtual address; len bytes, 1 .. 2^31 - 1: the device reads 0 as 2^31
 * imm_be  immediate as it will arrive, or 0
 * flags   as inlay_post_*, without INLAY_INLINE
 *
 * Returns 0, or -EAGAIN when the ring has no room (nothing was written). Same bytes as the
 * inlay_post_* of its opcode.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_template(struct inlay_sq *sq, const struct inlay_template *t, uint64_t raddr, uint64_t addr,
				     uint32_t len, uint32_t imm_be, uint32_t flags)
{
	return inlay_post_template_(sq, t, &raddr, addr, len, imm_be, flags);
}

/*
 * As inlay_post_template, for a template of a send: the data segment is at +16. imm_be may also be
 * the big-endian rkey to invalidate.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_template_send(struct inlay_sq *sq, const struct inlay_template *t, uint64_t addr,
					  uint32_t len, uint32_t imm_be, uint32_t flags)
{
	return inlay_post_template_(sq, t, NULL, addr, len, imm_be, flags);
}

#endif
