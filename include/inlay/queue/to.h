/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/to.h: posts that name their destination: a DC target for a DCI, an SRQ for an XRC QP,
 * a QP for UD.
 *
 *   inlay_av_from_ah(&to, ah, dctn, 0);                            once per peer (verbs.h, wqe/av.h)
 *   inlay_av_to_dct(&to, dctn, key);
 *   inlay_post_to_send(&dci, &to, &sge, 1, INLAY_SIGNALED);
 *
 *   struct inlay_remote there = {raddr, rkey};
 *   inlay_post_to_write(&dci, &to, &there, &sge, 1, INLAY_SIGNALED | INLAY_STREAM(7));
 *   inlay_sq_ring(&dci);
 *
 *   inlay_av_init_xrc(&to, srqn);                                  XRC: ibv_get_srq_num, of the peer
 *   inlay_post_to_send(&xrc, &to, &sge, 1, INLAY_SIGNALED);
 *
 * The WQE of inlay_post_* (post.h) with a destination between control segment and remote address:
 *
 *   +0   ctrl     opcode, index, QPN, DS, stream, flags, immediate
 *   +16  av       destination: 16 or 48 bytes, as it says itself
 *   +..  raddr    remote address, rkey                         RDMA and atomics
 *   +..  atomic   operands                                     atomics
 *   +..  data     pointers to local memory, or the payload     wraps at the ring's end
 *
 * to       it is copied now. Made in the same function (inlay_av_join, inlay_av_init_xrc), it folds
 *          into the WQE
 * remote   memory of the peer
 * flags    as in post.h. A DCI that was made with streams takes INLAY_STREAM(id) too: WQEs of
 *          different streams need not wait for each other, and an error stops its own stream only
 *
 * An errored stream. The WQE's CQE says why. Everything posted to the same stream is flushed, before
 * and after; the other streams go on. If ibv_query_qp says RTS, only the stream failed. If it says
 * ERR, 2^log_num_errored streams have failed, and the QP recovers as any other (recovery.md).
 * Once the stream's last WQE is flushed, mlx5dv_dci_stream_id_reset (or inlay_devx_qp_reset_stream)
 * makes it usable again. A CQE does not name its stream: keep it with the WQE's context.
 *
 * All else, and what they return, as inlay_post_*. Same bytes as libmlx5's ibv_wr_* with
 * mlx5dv_wr_set_dc_addr, mlx5dv_wr_set_dc_addr_stream, ibv_wr_set_xrc_srqn or ibv_wr_set_ud_addr, and
 * as ibv_post_send of an XRC QP; bytes that libmlx5 leaves unwritten are 0. libmlx5 never writes
 * compact address vectors; UCX does.
 *
 * To build a WQE by hand (extended atomics of 16 bytes or more), append inlay_seg_av or
 * inlay_seg_av_compact after inlay_sq_begin, and pass INLAY_STREAM at the commit.
 *
 * Bringing up a DCI and a DCT (examples/dc.c). Both are mlx5dv_create_qp(ctx, &a, &dv) with
 * a.qp_type IBV_QPT_DRIVER, a.send_cq, a.recv_cq, a.comp_mask IBV_QP_INIT_ATTR_PD and dv.comp_mask
 * MLX5DV_QP_INIT_ATTR_MASK_DC:
 *
 *   DCI   a.pd = uar.pd; a.cap; dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI
 *   DCT   a.pd any; a.srq; dc_type = MLX5DV_DCTYPE_DCT; dct_access_key
 *
 * inlay_connect_dc (connect.h) moves either to its last state. The dctn is the DCT's qp_num then;
 * before, it is 0. inlay_sq_from_qp takes the DCI.
 *
 * Threads: one owner of the queue at a time. Sources: libmlx5's mlx5_send_wr_* (qp.c); UCX's
 * dc_mlx5_ep.c; mlx5dv_wr_set_dc_addr(3).
 */
#ifndef INLAY_QUEUE_TO_H
#define INLAY_QUEUE_TO_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/wqe.h>
#include <inlay/queue/atomic.h>
#include <inlay/queue/post.h>
#include <inlay/queue/sq.h>

/* With a destination of either length; a post in line has one of them twice. */
INLAY_ALWAYS int inlay_post_to_build_(struct inlay_sq *sq, uint8_t opcode, uint32_t imm_be,
				      const struct inlay_remote *remote, const struct inlay_av *to,
				      const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	if (inlay_av_ds(to) == 1)
		return inlay_post_build_(sq, opcode, imm_be, remote, to, 1, sge, num_sge, flags);
	return inlay_post_build_(sq, opcode, imm_be, remote, to, 3, sge, num_sge, flags);
}

/* The same out of line. what: flags and, in the upper half, the immediate. */
INLAY_APART int inlay_post_to_apart_(struct inlay_sq *sq, uint64_t what, uint8_t opcode,
				     const struct inlay_remote *remote, const struct inlay_av *to,
				     const struct ibv_sge *sge, uint32_t num_sge)
{
	uint32_t flags = (uint32_t)what, imm_be = (uint32_t)(what >> 32);

	if (flags & INLAY_INLINE)
		return inlay_post_build_(sq, opcode, imm_be, remote, to, inlay_av_ds(to), sge, num_sge,
					 flags | INLAY_INLINE);
	return inlay_post_build_(sq, opcode, imm_be, remote, to, inlay_av_ds(to), sge, num_sge,
				 flags & ~INLAY_INLINE);
}

/* All posts of SGEs: in line if the number of SGEs or the inline length is a constant. */
INLAY_ALWAYS int inlay_post_to_(struct inlay_sq *sq, uint8_t opcode, uint32_t imm_be,
				const struct inlay_remote *remote, const struct inlay_av *to,
				const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	int one = __builtin_constant_p(num_sge) && num_sge == 1;

	INLAY_CHECK(sq && to, "queue and destination are not NULL");
	INLAY_CHECK(sge || !num_sge, "sge is not NULL unless num_sge is 0");
	INLAY_CHECK(inlay_post_fits_(sq, opcode, 1), "the QP's type has the operation");
	INLAY_CHECK(remote || opcode == MLX5_OPCODE_SEND || opcode == MLX5_OPCODE_SEND_IMM ||
		    opcode == MLX5_OPCODE_SEND_INVAL, "writes and reads have a remote address");
	inlay_flags_check_(flags);
	if (!to)
		__builtin_unreachable();
	if (flags & INLAY_INLINE ? one && __builtin_constant_p(sge->length) : __builtin_constant_p(num_sge))
		return inlay_post_to_build_(sq, opcode, imm_be, remote, to, sge, num_sge, flags);
	return inlay_post_to_apart_(sq, (uint64_t)imm_be << 32 | flags, opcode, remote, to, sge, num_sge);
}

/* Send. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_to_send(struct inlay_sq *sq, const struct inlay_av *to, const struct ibv_sge *sge,
				    uint32_t num_sge, uint32_t flags)
{
	return inlay_post_to_(sq, MLX5_OPCODE_SEND, 0, NULL, to, sge, num_sge, flags);
}

/* Send with immediate. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_to_send_imm(struct inlay_sq *sq, const struct inlay_av *to, uint32_t imm_be,
					const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	return inlay_post_to_(sq, MLX5_OPCODE_SEND_IMM, imm_be, NULL, to, sge, num_sge, flags);
}

/* Send, and invalidate rkey (host order) at the peer. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_to_send_inv(struct inlay_sq *sq, const struct inlay_av *to, uint32_t rkey,
					const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	return inlay_post_to_(sq, MLX5_OPCODE_SEND_INVAL, inlay_to_be32(rkey), NULL, to, sge, num_sge, flags);
}

/* RDMA write. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_to_write(struct inlay_sq *sq, const struct inlay_av *to, const struct inlay_remote *remote,
				     const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	return inlay_post_to_(sq, MLX5_OPCODE_RDMA_WRITE, 0, remote, to, sge, num_sge, flags);
}

/* RDMA write with immediate. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_to_write_imm(struct inlay_sq *sq, const struct inlay_av *to,
					 const struct inlay_remote *remote, uint32_t imm_be, const struct ibv_sge *sge,
					 uint32_t num_sge, uint32_t flags)
{
	return inlay_post_to_(sq, MLX5_OPCODE_RDMA_WRITE_IMM, imm_be, remote, to, sge, num_sge, flags);
}

/* RDMA read into the SGEs. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_to_read(struct inlay_sq *sq, const struct inlay_av *to, const struct inlay_remote *remote,
				    const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	INLAY_CHECK(!(flags & INLAY_INLINE), "a read has no payload to inline");
	return inlay_post_to_(sq, MLX5_OPCODE_RDMA_READ, 0, remote, to, sge, num_sge, flags & ~(uint32_t)INLAY_INLINE);
}

/* inlay_post_to_send of one buffer, copied into the WQE. len in bytes. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_to_send_inline(struct inlay_sq *sq, const struct inlay_av *to, const void *data,
					   uint32_t len, uint32_t flags)
{
	struct ibv_sge sge = {(uintptr_t)data, len, 0};

	return inlay_post_to_send(sq, to, &sge, 1, flags | INLAY_INLINE);
}

/* inlay_post_to_write of one buffer, copied into the WQE. len in bytes. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_to_write_inline(struct inlay_sq *sq, const struct inlay_av *to,
					    const struct inlay_remote *remote, const void *data, uint32_t len,
					    uint32_t flags)
{
	struct ibv_sge sge = {(uintptr_t)data, len, 0};

	return inlay_post_to_write(sq, to, remote, &sge, 1, flags | INLAY_INLINE);
}

/* Atomic fetch-and-add, as inlay_post_fetch_add. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_to_fetch_add(struct inlay_sq *sq, const struct inlay_av *to,
					 const struct inlay_remote *remote, uint64_t add, const struct ibv_sge *sge,
					 uint32_t flags)
{
	INLAY_CHECK(sq && to, "queue and destination are not NULL");
	if (inlay_av_ds(to) == 1)
		return inlay_post_atomic_(sq, MLX5_OPCODE_ATOMIC_FA, remote, to, 1, add, 0, sge, flags);
	return inlay_post_atomic_(sq, MLX5_OPCODE_ATOMIC_FA, remote, to, 3, add, 0, sge, flags);
}

/* Atomic compare-and-swap, as inlay_post_cmp_swap. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_to_cmp_swap(struct inlay_sq *sq, const struct inlay_av *to,
					const struct inlay_remote *remote, uint64_t compare, uint64_t swap,
					const struct ibv_sge *sge, uint32_t flags)
{
	INLAY_CHECK(sq && to, "queue and destination are not NULL");
	if (inlay_av_ds(to) == 1)
		return inlay_post_atomic_(sq, MLX5_OPCODE_ATOMIC_CS, remote, to, 1, swap, compare, sge, flags);
	return inlay_post_atomic_(sq, MLX5_OPCODE_ATOMIC_CS, remote, to, 3, swap, compare, sge, flags);
}

/* A masked atomic of 4 or 8 bytes, as inlay_post_masked. */
INLAY_FN INLAY_RESULT int inlay_post_to_masked(struct inlay_sq *sq, const struct inlay_av *to, const struct inlay_remote *remote,
				  struct inlay_masked op, const struct ibv_sge *sge, uint32_t flags)
{
	INLAY_CHECK(sq && to && remote && sge, "no argument is NULL");
	return inlay_post_masked_any_(sq, remote, to, &op, sge, flags);
}

#endif
