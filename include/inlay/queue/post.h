/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/post.h: posting to a send queue, one function per operation.
 *
 *   inlay_post_write(&sq, raddr, rkey, &sge, 1, INLAY_SIGNALED);     fills the ring; the device does not look yet
 *   inlay_post_send_inline(&sq, data, 8, 0);
 *   inlay_sq_ring(&sq);                                              one doorbell for both
 *
 *   inlay_post_send_inline(&sq, data, 8, INLAY_SIGNALED | INLAY_RING);   posts and rings
 *
 * Which QP has which operation:
 *
 *              send  send_inv  write  write_imm  read, atomics  bind_mw, local_inv  ud_send  to_*
 *   RC         yes   yes       yes    yes        yes            yes
 *   UC         yes             yes    yes                       yes
 *   UD                                                                              yes      sends
 *   DCI, XRC                                                    yes                          yes
 *
 * to_* are the operations of the columns before, to the destination of each post: queue/to.h.
 *
 * A raw packet QP has the posts of queue/packet.h.
 *
 * Any QP takes a NOP. Other operations end in an error completion; INLAY_CHECKED aborts first.
 *
 * Code size. A post with a constant number of SGEs or a constant inline length is compiled in line:
 * about 150 to 620 bytes. Any other post calls a function, which each object holds once.
 *
 * Threads: one owner of the queue at a time. Sources: libmlx5's _mlx5_post_send and mlx5_send_wr_*
 * (qp.c); the PRM's "Send Work Queue Entry" chapter.
 */
#ifndef INLAY_QUEUE_POST_H
#define INLAY_QUEUE_POST_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/wqe.h>
#include <inlay/queue/sq.h>

/* Memory of the peer: its address there, and its key as the peer gave it, in host order. */
struct inlay_remote {
	uint64_t addr;
	uint32_t rkey;
};

/* Whether the QP's type has the operation, to a destination or not; true if the type is not known. */
INLAY_FN int inlay_post_fits_(const struct inlay_sq *sq, uint8_t opcode, int to)
{
	int rdma =
		opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM || opcode == MLX5_OPCODE_UMR;
	int send = opcode == MLX5_OPCODE_SEND || opcode == MLX5_OPCODE_SEND_IMM;

	return !sq->type || (sq->type == IBV_QPT_RC && !to) || (sq->type == IBV_QPT_UC && !to && (rdma || send)) ||
	       (sq->type == IBV_QPT_UD && to && send) ||
	       ((sq->type == IBV_QPT_DRIVER || sq->type == IBV_QPT_XRC_SEND) && to == (opcode != MLX5_OPCODE_UMR));
}

/*
 * A post of SGEs, in line. remote NULL: no remote address segment; av of av_ds units, a constant:
 * none without an address vector.
 */
INLAY_ALWAYS int inlay_post_build_(struct inlay_sq *sq, uint8_t opcode, uint32_t imm_be,
				   const struct inlay_remote *remote, const struct inlay_av *av, uint32_t av_ds,
				   const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	uint32_t fixed = 1 + av_ds + (remote ? 1 : 0), ds = fixed, i;
	struct inlay_cursor at;
	uint64_t total = 0;
	int err;

	if (flags & INLAY_INLINE) {
		for (i = 0; i < num_sge; i++)
			total += sge[i].length;
		if (total > INLAY_MAX_DS * INLAY_DS)
			return -EINVAL;
		ds += inlay_seg_inline_ds(total);
	} else if (__builtin_constant_p(num_sge) && (fixed + num_sge + 3) / 4 == (fixed + 3) / 4) {
		ds += num_sge; /* as many WQEBBs, whichever of them are empty */
	} else {
		if (num_sge > INLAY_MAX_DS)
			return -EINVAL;
		for (i = 0; i < num_sge; i++)
			if (INLAY_LIKELY(sge[i].length))
				ds++;
			else
				__asm__ volatile(""); /* else clang adds the comparison's result, and ds never folds */
	}
	err = inlay_sq_begin_ds(sq, ds, &at);
	if (err)
		return err;
	if (av_ds == 3)
		at = inlay_seg_av_(at, av, 3);
	else if (av_ds)
		at = inlay_seg_av_(at, av, 1);
	if (remote)
		at = inlay_seg_raddr(at, remote->addr, remote->rkey);
	if (flags & INLAY_INLINE) {
		if (__builtin_constant_p(num_sge) && num_sge == 1)
			at = inlay_seg_inline(at, (const void *)(uintptr_t)sge->addr, sge->length);
		else
			at = inlay_seg_inlinev(at, sge, num_sge, (uint32_t)total);
	} else if (__builtin_constant_p(num_sge) && num_sge == 1) {
		if (INLAY_UNLIKELY(!sge->length)) {
			/*
			 * The asm statements keep the compiler from merging this end with the one
			 * below: DS would become a variable, and every post longer.
			 */
			__asm__ volatile("" : "+r"(sq), "+r"(opcode), "+r"(at.ds) : : "memory");
			inlay_sq_commit(sq, at, opcode, 0, flags, imm_be);
			__asm__ volatile("" ::: "memory");
			return 0;
		}
		at = inlay_seg_data(at, sge->addr, sge->length, sge->lkey);
	} else {
		at = inlay_seg_sges(at, sge, num_sge);
	}
	return inlay_sq_commit(sq, at, opcode, 0, flags, imm_be);
}

/* The same out of line. what: opcode, flags and, in the upper half, the immediate. */
INLAY_APART int inlay_post_inlinev_(struct inlay_sq *sq, uint64_t what, const struct inlay_remote *remote,
				    const struct inlay_av *av, const struct ibv_sge *sge, uint32_t num_sge)
{
	return inlay_post_build_(sq, (uint8_t)what, (uint32_t)(what >> 32), remote, av, av ? 3 : 0, sge, num_sge,
				 ((uint32_t)what & INLAY_POST_FLAGS_) | INLAY_INLINE);
}

INLAY_APART int inlay_post_inline_(struct inlay_sq *sq, uint64_t what, uint64_t data, uint32_t len)
{
	struct ibv_sge sge = {data, len, 0};

	return inlay_post_build_(sq, (uint8_t)what, (uint32_t)(what >> 32), NULL, NULL, 0, &sge, 1,
				 ((uint32_t)what & INLAY_POST_FLAGS_) | INLAY_INLINE);
}

INLAY_APART int inlay_post_inline_raddr_(struct inlay_sq *sq, uint64_t what, uint64_t raddr, uint32_t rkey,
					 uint64_t data, uint32_t len)
{
	struct inlay_remote remote = {raddr, rkey};
	struct ibv_sge sge = {data, len, 0};

	return inlay_post_build_(sq, (uint8_t)what, (uint32_t)(what >> 32), &remote, NULL, 0, &sge, 1,
				 ((uint32_t)what & INLAY_POST_FLAGS_) | INLAY_INLINE);
}

INLAY_APART int inlay_post_inline_av_(struct inlay_sq *sq, uint64_t what, const struct inlay_av *av, uint64_t data,
				      uint32_t len)
{
	struct ibv_sge sge = {data, len, 0};

	if (!av)
		__builtin_unreachable();
	return inlay_post_build_(sq, (uint8_t)what, (uint32_t)(what >> 32), NULL, av, 3, &sge, 1,
				 ((uint32_t)what & INLAY_POST_FLAGS_) | INLAY_INLINE);
}

INLAY_APART int inlay_post_sges_(struct inlay_sq *sq, uint64_t what, const struct ibv_sge *sge, uint32_t num_sge)
{
	return inlay_post_build_(sq, (uint8_t)what, (uint32_t)(what >> 32), NULL, NULL, 0, sge, num_sge,
				 (uint32_t)what & INLAY_POST_FLAGS_ & ~INLAY_INLINE);
}

INLAY_APART int inlay_post_sges_raddr_(struct inlay_sq *sq, uint64_t what, uint64_t raddr, uint32_t rkey,
				       const struct ibv_sge *sge, uint32_t num_sge)
{
	struct inlay_remote remote = {raddr, rkey};

	return inlay_post_build_(sq, (uint8_t)what, (uint32_t)(what >> 32), &remote, NULL, 0, sge, num_sge,
				 (uint32_t)what & INLAY_POST_FLAGS_ & ~INLAY_INLINE);
}

INLAY_APART int inlay_post_sges_av_(struct inlay_sq *sq, uint64_t what, const struct inlay_av *av,
				    const struct ibv_sge *sge, uint32_t num_sge)
{
	if (!av)
		__builtin_unreachable();
	return inlay_post_build_(sq, (uint8_t)what, (uint32_t)(what >> 32), NULL, av, 3, sge, num_sge,
				 (uint32_t)what & INLAY_POST_FLAGS_ & ~INLAY_INLINE);
}

/* All posts of SGEs: in line if the number of SGEs or the inline length is a constant. */
INLAY_ALWAYS int inlay_post_gather_(struct inlay_sq *sq, uint8_t opcode, uint32_t imm_be,
				   const struct inlay_remote *remote, const struct inlay_av *av,
				   const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	uint64_t what = (uint64_t)imm_be << 32 | (flags & INLAY_POST_FLAGS_) | opcode;
	int one = __builtin_constant_p(num_sge) && num_sge == 1;

	INLAY_CHECK(sq, "the queue is not NULL");
	INLAY_CHECK(sge || !num_sge, "sge is not NULL unless num_sge is 0");
	INLAY_CHECK(opcode == MLX5_OPCODE_NOP || inlay_post_fits_(sq, opcode, av != NULL),
		    "the QP's type has the operation");
	inlay_flags_check_(flags);
	INLAY_CHECK(!(flags & INLAY_STREAM_), "only inlay_post_to_* take a stream");
	flags &= INLAY_POST_FLAGS_;
	if (flags & INLAY_INLINE) {
		if (!one)
			return inlay_post_inlinev_(sq, what, remote, av, sge, num_sge);
		if (__builtin_constant_p(sge->length))
			return inlay_post_build_(sq, opcode, imm_be, remote, av, av ? 3 : 0, sge, 1, flags | INLAY_INLINE);
		if (remote)
			return inlay_post_inline_raddr_(sq, what, remote->addr, remote->rkey, sge->addr, sge->length);
		if (av)
			return inlay_post_inline_av_(sq, what, av, sge->addr, sge->length);
		return inlay_post_inline_(sq, what, sge->addr, sge->length);
	}
	if (__builtin_constant_p(num_sge))
		return inlay_post_build_(sq, opcode, imm_be, remote, av, av ? 3 : 0, sge, num_sge, flags & ~INLAY_INLINE);
	if (remote)
		return inlay_post_sges_raddr_(sq, what, remote->addr, remote->rkey, sge, num_sge);
	if (av)
		return inlay_post_sges_av_(sq, what, av, sge, num_sge);
	return inlay_post_sges_(sq, what, sge, num_sge);
}

/*
 * Common to all inlay_post_* functions.
 *
 *   +0   ctrl     opcode, index, QPN, DS, flags, immediate
 *   +16  raddr    remote address, rkey                         RDMA and atomics
 *   +16  av       address vector                               UD
 *   +32  atomic   operands                                     atomics
 *   +..  data     pointers to local memory, or the payload     wraps at the ring's end
 *
 * raddr    remote virtual address; rkey as the peer gave it, host order
 * av       UD: the peer's address vector; it is copied now
 * sge      num_sge pieces of local memory, host order; empty ones are left out, and all may be
 *          empty
 * imm_be   immediate, as it will arrive in the peer's CQE (ibv_send_wr.imm_data)
 * flags    INLAY_SIGNALED | INLAY_SOLICITED | one INLAY_FENCE_* | INLAY_INLINE | INLAY_RING. With
 *          INLAY_INLINE the payload is copied now and lkey ignored; not for reads and atomics.
 *          INLAY_RING rings for this WQE and all posted before it
 *
 * They return 0; -EAGAIN when the ring has no room; -E2BIG when the WQE is larger than the ring;
 * -EINVAL when it is longer than the QP's longest (too many SGEs, too much inline data). The device
 * sees nothing before inlay_sq_ring() or INLAY_RING.
 *
 * A refused post writes nothing and rings for nothing. After -EAGAIN, ring for what was posted
 * before, poll, release, and post again.
 *
 * Same bytes as ibv_post_send with the IBV_WR_* opcode of the same name and the IBV_SEND_* flags
 * given in wqe.h. Verbs has no NOP.
 */

/* NOP: nothing but a completion, if signaled. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_nop(struct inlay_sq *sq, uint32_t flags)
{
	return inlay_post_gather_(sq, MLX5_OPCODE_NOP, 0, NULL, NULL, NULL, 0, flags & ~(uint32_t)INLAY_INLINE);
}

/* Send. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_send(struct inlay_sq *sq, const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	return inlay_post_gather_(sq, MLX5_OPCODE_SEND, 0, NULL, NULL, sge, num_sge, flags);
}

/* Send with immediate. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_send_imm(struct inlay_sq *sq, uint32_t imm_be, const struct ibv_sge *sge, uint32_t num_sge,
				     uint32_t flags)
{
	return inlay_post_gather_(sq, MLX5_OPCODE_SEND_IMM, imm_be, NULL, NULL, sge, num_sge, flags);
}

/* Send, and invalidate rkey (host order) at the peer. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_send_inv(struct inlay_sq *sq, uint32_t rkey, const struct ibv_sge *sge, uint32_t num_sge,
				     uint32_t flags)
{
	return inlay_post_gather_(sq, MLX5_OPCODE_SEND_INVAL, inlay_to_be32(rkey), NULL, NULL, sge, num_sge, flags);
}

/* RDMA write. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_write(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, const struct ibv_sge *sge,
				  uint32_t num_sge, uint32_t flags)
{
	struct inlay_remote remote = {raddr, rkey};

	return inlay_post_gather_(sq, MLX5_OPCODE_RDMA_WRITE, 0, &remote, NULL, sge, num_sge, flags);
}

/* RDMA write with immediate. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_write_imm(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, uint32_t imm_be,
				      const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	struct inlay_remote remote = {raddr, rkey};

	return inlay_post_gather_(sq, MLX5_OPCODE_RDMA_WRITE_IMM, imm_be, &remote, NULL, sge, num_sge, flags);
}

/* RDMA read into the SGEs. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_read(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, const struct ibv_sge *sge,
				 uint32_t num_sge, uint32_t flags)
{
	struct inlay_remote remote = {raddr, rkey};

	INLAY_CHECK(!(flags & INLAY_INLINE), "a read has no payload to inline");
	return inlay_post_gather_(sq, MLX5_OPCODE_RDMA_READ, 0, &remote, NULL, sge, num_sge,
				 flags & ~(uint32_t)INLAY_INLINE);
}

/* inlay_post_send of one buffer, copied into the WQE. len in bytes. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_send_inline(struct inlay_sq *sq, const void *data, uint32_t len, uint32_t flags)
{
	struct ibv_sge sge = {(uintptr_t)data, len, 0};

	return inlay_post_send(sq, &sge, 1, flags | INLAY_INLINE);
}

/* inlay_post_write of one buffer, copied into the WQE. len in bytes. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_write_inline(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, const void *data,
					 uint32_t len, uint32_t flags)
{
	struct ibv_sge sge = {(uintptr_t)data, len, 0};

	return inlay_post_write(sq, raddr, rkey, &sge, 1, flags | INLAY_INLINE);
}

/* All datagrams. Tells the compiler that there is an address vector, so that no test is left. */
INLAY_ALWAYS int inlay_post_datagram_(struct inlay_sq *sq, uint8_t opcode, uint32_t imm_be, const struct inlay_av *av,
				     const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	INLAY_CHECK(av != NULL, "the address vector is not NULL");
	INLAY_CHECK(inlay_av_ds(av) == 3, "the destination has 48 bytes");
	if (!av)
		__builtin_unreachable();
	return inlay_post_gather_(sq, opcode, imm_be, NULL, av, sge, num_sge, flags);
}

/* Datagram: a send of a UD QP to the peer that av names, at most the port's MTU long. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_ud_send(struct inlay_sq *sq, const struct inlay_av *av, const struct ibv_sge *sge,
				    uint32_t num_sge, uint32_t flags)
{
	return inlay_post_datagram_(sq, MLX5_OPCODE_SEND, 0, av, sge, num_sge, flags);
}

/* Datagram with immediate. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_ud_send_imm(struct inlay_sq *sq, const struct inlay_av *av, uint32_t imm_be,
					const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	return inlay_post_datagram_(sq, MLX5_OPCODE_SEND_IMM, imm_be, av, sge, num_sge, flags);
}

/* inlay_post_ud_send of one buffer, copied into the WQE. len in bytes. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_ud_send_inline(struct inlay_sq *sq, const struct inlay_av *av, const void *data,
					   uint32_t len, uint32_t flags)
{
	struct ibv_sge sge = {(uintptr_t)data, len, 0};

	return inlay_post_ud_send(sq, av, &sge, 1, flags | INLAY_INLINE);
}

#endif
