/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/post.h: posting to a send queue.
 *
 *   err = inlay_post_write_inline(&sq, raddr, rkey, &value, 8, INLAY_SIGNALED | INLAY_RING);
 *
 *   struct inlay_wr wr = {0};                          C++: {}
 *   wr.raddr = raddr, wr.rkey = rkey;                  the peer's memory
 *   wr.data = p, wr.len = len, wr.lkey = lkey;         the caller's
 *   wr.imm_be = imm;
 *   err = inlay_post(&sq, MLX5_OPCODE_RDMA_WRITE_IMM, &wr, INLAY_SIGNALED);
 *   inlay_sq_ring(&sq);                                one doorbell for all that was posted
 *
 * inlay_post posts any send, write or read. The short forms at the end are the same with fewer
 * fields. queue/atomic.h has the atomics, queue/packet.h what a raw packet QP posts.
 *
 * Which QP has which operation:
 *
 *              NOP   SEND, SEND_IMM  SEND_INVAL  RDMA_WRITE, _IMM  RDMA_READ, atomics   destination
 *   RC         yes   yes             yes         yes               yes
 *   UC         yes   yes                         yes
 *   UD         yes   yes                                                                wr.to
 *   DCI, XRC   yes   yes             yes         yes               yes                  wr.to
 *
 * Other combinations end in an error completion. INLAY_CHECKED aborts first.
 *
 * Code size. With a constant opcode and constant flags, a post of one buffer, of a constant number
 * of SGEs or of a constant inline length is compiled in line: 139 to 620 bytes. Any other post is a
 * call of a function that each object file holds once: 15 to 50 bytes for the call, 80 to 180 with
 * a list.
 *
 * Threads: one owner of the queue at a time. Sources: libmlx5's _mlx5_post_send and mlx5_send_wr_*
 * (qp.c); the PRM's "Send Work Queue Entry" chapter.
 */
#ifndef INLAY_QUEUE_POST_H
#define INLAY_QUEUE_POST_H /* names are stable until 1.0 */

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/wqe.h>
#include <inlay/queue/sq.h>

/* The control segment's last word. */
INLAY_ALWAYS uint32_t inlay_post_imm_(uint32_t opcode, const struct inlay_wr *wr)
{
	if (opcode == MLX5_OPCODE_SEND_INVAL)
		return inlay_to_be32(wr->rkey);
	return opcode == MLX5_OPCODE_SEND_IMM || opcode == MLX5_OPCODE_RDMA_WRITE_IMM ? wr->imm_be : 0;
}

/* ---- Out of line: all arguments in registers ---- */

/*
 * what    the second half of the control segment, whose lowest byte is 0 there. Here it has the
 *         opcode (no send has a bit above 0x1f) and flags: ring, inline, and whether the list is of
 *         iovecs
 * remote  rkey; in the upper half the number of pieces or bytes
 * to      NULL: no destination
 */
#define INLAY_WHAT_RING_ 0x80u
#define INLAY_WHAT_INLINE_ 0x40u
#define INLAY_WHAT_IOV_ 0x20u
#define INLAY_WHAT_OPCODE_ 0x1fu

INLAY_ALWAYS uint64_t inlay_post_what_(uint32_t opcode, uint32_t flags, uint32_t imm_be)
{
	return (uint64_t)imm_be << 32 | (flags & 0xff000000u) | (flags & 0xffff) << 8 |
	       (flags & INLAY_RING ? INLAY_WHAT_RING_ : 0) | (flags & INLAY_INLINE ? INLAY_WHAT_INLINE_ : 0) | opcode;
}

INLAY_ALWAYS int inlay_post_end_(struct inlay_sq *sq, struct inlay_cursor at, uint32_t bbs, uint64_t what, int ring)
{
	uint32_t low = (uint32_t)(uint16_t)at.index << 8 | (uint32_t)(what & INLAY_WHAT_OPCODE_);

	INLAY_HIDE_(low);
	inlay_put64(at.wqe, inlay_to_be64((uint64_t)low << 32 | sq->qpn8 | at.ds));
	inlay_put64(at.wqe + 8, what & ~(uint64_t)0xff);
	INLAY_PROBE_(post, (uint32_t)(sq->qpn8 >> 8), at.index, (uint32_t)(what & INLAY_WHAT_OPCODE_));
	return inlay_sq_end_(sq, at, bbs, ring);
}

/*
 * Length of a WQE, in units, that has `fixed` of them before its list: SGEs, or iovecs if from is
 * not NULL. More than 63 if no WQE holds it. *total: bytes of the payload, if inlined.
 */
INLAY_ALWAYS uint32_t inlay_post_ds_(uint32_t fixed, const struct ibv_sge *sge, const struct inlay_iov *from,
				     uint32_t num, int inlined, uint64_t *total)
{
	const uint64_t most = inlined ? INLAY_MAX_DS * INLAY_DS : INLAY_SGE_MAX;
	uint32_t ds = fixed, i;

	if (num > INLAY_MAX_DS && !inlined)
		return INLAY_MAX_DS + 1;
	/* One WQEBB, whichever of them are empty. */
	if (!inlined && INLAY_KNOWN_(fixed + num <= 4) && fixed + num <= 4)
		return fixed + num;
	for (i = 0; !inlined && i < num; i++)
		if (INLAY_LIKELY(from ? from->iov[i].iov_len : sge[i].length))
			ds++;
		else
			__asm__ volatile(""); /* else clang adds the comparison's result, and ds never folds */
	if (!inlined && !from)
		return ds;
	for (i = 0, *total = 0; i < num; i++) {
		uint64_t len = from ? from->iov[i].iov_len : sge[i].length;

		if (INLAY_UNLIKELY(len > most))
			return INLAY_MAX_DS + 1;
		*total += len;
	}
	return !inlined ? ds : *total > most ? INLAY_MAX_DS + 1 : fixed + inlay_seg_inline_ds(*total);
}

/* A list of SGEs, or of iovecs with INLAY_WHAT_IOV_. */
INLAY_APART int inlay_post_list_(struct inlay_sq *sq, uint64_t raddr, uint64_t remote, const void *list, uint64_t what,
				 const struct inlay_av *to)
{
	const struct inlay_iov *from = what & INLAY_WHAT_IOV_ ? (const struct inlay_iov *)list : NULL;
	const struct ibv_sge *sge = (const struct ibv_sge *)list;
	uint32_t num = from ? from->num : (uint32_t)(remote >> 32), inlined = what & INLAY_WHAT_INLINE_, ds;
	uint32_t is_remote = inlay_post_raddr_(what & INLAY_WHAT_OPCODE_), av_ds = to ? inlay_av_ds(to) : 0;
	struct inlay_cursor at;
	uint64_t total = 0;
	int err;

	ds = inlay_post_ds_(1 + av_ds + is_remote, sge, from, num, inlined != 0, &total);
	err = inlay_sq_begin_ds(sq, ds, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	if (to)
		at = inlay_seg_av(at, to, av_ds);
	if (is_remote)
		at = inlay_seg_raddr(at, raddr, (uint32_t)remote);
	if (inlined)
		at = from ? inlay_seg_gather_(at, NULL, from, num, (uint32_t)total) :
			    inlay_seg_inlinev(at, sge, num, (uint32_t)total);
	else
		at = from ? inlay_seg_iov_(at, from) : inlay_seg_sges(at, sge, num);
	return inlay_post_end_(sq, at, (uint32_t)(at.ds + 3) / 4, what, (what & INLAY_WHAT_RING_) != 0);
}

/* One piece inline, where the WQE wraps. */
INLAY_APART int inlay_post_inline_wrap_(struct inlay_sq *sq, uint64_t raddr, uint64_t remote, const void *data,
					uint64_t what, const struct inlay_av *to)
{
	struct ibv_sge sge = {(uintptr_t)data, (uint32_t)(remote >> 32), 0};

	return inlay_post_list_(sq, raddr, (uint64_t)1 << 32 | (uint32_t)remote, &sge, what, to);
}

/* One piece inline, of any length. */
INLAY_ALWAYS int inlay_post_inline_any_(struct inlay_sq *sq, uint32_t is_remote, uint64_t raddr, uint32_t rkey,
					const void *data, uint32_t len, uint64_t what, const struct inlay_av *to)
{
	uint32_t av_ds = to ? inlay_av_ds(to) : 0, ds, bbs;
	struct inlay_cursor at;
	int err;

	ds = 1 + av_ds + is_remote + inlay_seg_inline_ds(len);
	if (INLAY_UNLIKELY(ds > sq->max_ds) && ds > 4)
		return -EINVAL;
	bbs = (ds + 3) / 4;
	err = inlay_sq_begin(sq, bbs, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	if (INLAY_UNLIKELY((size_t)(at.end - at.wqe) < bbs * INLAY_WQEBB))
		return inlay_post_inline_wrap_(sq, raddr, (uint64_t)len << 32 | rkey, data, what, to);
	if (to) {
		__builtin_memcpy(at.at, to, 16);
		if (av_ds == 3)
			__builtin_memcpy(at.at + 16, (const uint8_t *)to + 16, 32);
		at.at += av_ds * INLAY_DS;
	}
	if (is_remote) {
		inlay_wqe_raddr(at.at, raddr, rkey);
		at.at += INLAY_DS;
	}
	if (len) {
		inlay_put32(at.at, inlay_to_be32(len + (uint32_t)MLX5_INLINE_SEG));
		inlay_copy(at.at + 4, data, len);
	}
	at.ds = ds;
	if (bbs < 1 || ds < 1)
		__builtin_unreachable();
	return inlay_post_end_(sq, at, bbs, what, (what & INLAY_WHAT_RING_) != 0);
}

INLAY_APART int inlay_post_inline_(struct inlay_sq *sq, uint64_t raddr, uint64_t remote, const void *data,
				   uint64_t what, const struct inlay_av *to)
{
	return inlay_post_inline_any_(sq, inlay_post_raddr_(what & INLAY_WHAT_OPCODE_), raddr, (uint32_t)remote, data,
				      (uint32_t)(remote >> 32), what, to);
}

INLAY_APART int inlay_post_inline_send_(struct inlay_sq *sq, const void *data, size_t len, uint64_t what)
{
	return inlay_post_inline_any_(sq, 0, 0, 0, data, (uint32_t)len, what, NULL);
}

INLAY_APART int inlay_post_inline_raddr_(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, const void *data,
					 size_t len, uint64_t what)
{
	return inlay_post_inline_any_(sq, 1, raddr, rkey, data, (uint32_t)len, what, NULL);
}

/*
 * 8 bytes and more that fit into one WQEBB: 28 after a remote address, else 44. remote and ring are
 * constants.
 */
INLAY_ALWAYS int inlay_post_inline_short_(struct inlay_sq *sq, int remote, uint64_t raddr, uint32_t rkey,
					  const void *data, size_t len, uint64_t what, int ring)
{
	const uint8_t *from = (const uint8_t *)data;
	struct inlay_cursor at;
	uint8_t *p;
	int err;

	err = inlay_sq_begin(sq, 1, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	if (remote)
		at = inlay_seg_raddr(at, raddr, rkey);
	p = at.at + 4;
	inlay_put32(at.at, inlay_to_be32((uint32_t)len + (uint32_t)MLX5_INLINE_SEG));
	if (INLAY_LIKELY(len <= 16)) {
		__builtin_memcpy(p, from, 8);
		__builtin_memcpy(p + len - 8, from + len - 8, 8);
	} else {
		INLAY_HIDE_(p); /* keeps this branch's sum out of the other */
		__builtin_memcpy(p, from, 16);
		if (!remote && len > 32)
			__builtin_memcpy(p + 16, from + 16, 16);
		__builtin_memcpy(p + len - 16, from + len - 16, 16);
	}
	at.ds = (uint32_t)((uint32_t)len + 4 + INLAY_DS - 1 + (remote ? 2 : 1) * INLAY_DS) / INLAY_DS;
	if (at.ds < 2 || at.ds > 4)
		__builtin_unreachable();
	return inlay_post_end_(sq, at, 1, what, ring);
}

#define INLAY_POST_INLINE_SHORT_(name, ring)                                                                           \
	INLAY_APART int inlay_post_inline_##name##_(struct inlay_sq *sq, const void *data, size_t len, uint64_t what)  \
	{                                                                                                              \
		if (INLAY_UNLIKELY((uint32_t)len - 8 > 44 - 8))                                                        \
			return inlay_post_inline_send_(sq, data, len, what);                                           \
		return inlay_post_inline_short_(sq, 0, 0, 0, data, len, what, ring);                                   \
	}                                                                                                              \
	INLAY_APART int inlay_post_inline_raddr_##name##_(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey,          \
							  const void *data, size_t len, uint64_t what)                 \
	{                                                                                                              \
		if (INLAY_UNLIKELY((uint32_t)len - 8 > 28 - 8))                                                        \
			return inlay_post_inline_raddr_(sq, raddr, rkey, data, len, what);                             \
		return inlay_post_inline_short_(sq, 1, raddr, rkey, data, len, what, ring);                            \
	}

INLAY_POST_INLINE_SHORT_(only, 0)
INLAY_POST_INLINE_SHORT_(ring, 1)

/* ---- In line ---- */

/* av_ds, and num_sge or the length of an inline payload, are constants. */
INLAY_ALWAYS int inlay_post_build_(struct inlay_sq *sq, uint32_t opcode, const struct inlay_wr *wr, uint32_t av_ds,
				   uint32_t flags)
{
	uint32_t ds = 1 + av_ds + inlay_post_raddr_(opcode);
	struct inlay_cursor at;
	uint64_t total;
	int err;

	if (opcode == MLX5_OPCODE_NOP)
		; /* no payload */
	else if (flags & INLAY_INLINE)
		ds += inlay_seg_inline_ds(wr->len);
	else if (!wr->num_sge)
		ds++;
	else
		ds = inlay_post_ds_(ds, wr->sge, NULL, wr->num_sge, 0, &total);
	err = inlay_sq_begin_ds(sq, ds, &at);
	if (err)
		return err;
	if (av_ds)
		at = inlay_seg_av(at, wr->to, av_ds);
	if (inlay_post_raddr_(opcode))
		at = inlay_seg_raddr(at, wr->raddr, wr->rkey);
	if (opcode == MLX5_OPCODE_NOP)
		; /* no payload */
	else if (flags & INLAY_INLINE)
		at = inlay_seg_inline(at, wr->data, wr->len);
	else if (wr->num_sge)
		at = inlay_seg_sges(at, wr->sge, wr->num_sge);
	else
		at = inlay_seg_data(at, (uintptr_t)wr->data, wr->len, wr->lkey);
	return inlay_sq_finish_(sq, at, opcode, 0, flags, inlay_post_imm_(opcode, wr));
}

/* One buffer, which a NOP has empty, or a list, out of line. */
INLAY_ALWAYS int inlay_post_call_list_(struct inlay_sq *sq, const struct inlay_wr *wr, uint64_t what,
				       const struct inlay_av *to)
{
	struct ibv_sge one = {(uintptr_t)wr->data, wr->len, wr->lkey};

	if (wr->num_sge)
		return inlay_post_list_(sq, wr->raddr, (uint64_t)wr->num_sge << 32 | wr->rkey, wr->sge, what, to);
	return inlay_post_list_(sq, wr->raddr, (uint64_t)1 << 32 | wr->rkey, &one, what, to);
}

/* ---- Posts ---- */

/*
 * flags: INLAY_SIGNALED | INLAY_SOLICITED | one INLAY_FENCE_* | INLAY_INLINE | INLAY_RING, and
 * INLAY_STREAM(id) for a DCI with streams. INLAY_INLINE is not for reads. INLAY_RING rings for this
 * WQE and all posted before it; else the device sees nothing before inlay_sq_ring.
 *
 * Returns 0; -EAGAIN when the ring has no room: ring the doorbell for what is posted, poll,
 * release, and post again; -E2BIG when the WQE is larger than the ring; -EINVAL when it is longer
 * than the QP's longest (too many SGEs, too much inline data) or an iovec has more than 2^31 - 1
 * bytes. A refused post writes nothing and rings for nothing.
 *
 * The buffers of a post are the caller's again when its WQE has completed; with INLAY_INLINE, at
 * once.
 *
 * The bytes are those of ibv_post_send with the IBV_WR_* opcode of the same name and the IBV_SEND_*
 * flags given in wqe/segment.h, and of libmlx5's ibv_wr_* with mlx5dv_wr_set_dc_addr(_stream),
 * ibv_wr_set_xrc_srqn or ibv_wr_set_ud_addr. Verbs has no NOP.
 */

/*
 * Posts a send, a write, a read or a NOP.
 *
 *   +0   ctrl     opcode, index, QPN, DS, flags, immediate
 *   +16  av       destination: 16 or 48 bytes, as it says itself   if wr->to
 *   +..  raddr    remote address, rkey                             writes and reads
 *   +..  data     pointers to local memory, or the payload         wraps at the ring's end
 *
 * opcode  MLX5_OPCODE_SEND, _SEND_IMM, _SEND_INVAL, _RDMA_WRITE, _RDMA_WRITE_IMM, _RDMA_READ, _NOP
 * wr      not kept. NULL for a NOP
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post(struct inlay_sq *sq, uint32_t opcode, const struct inlay_wr *wr, uint32_t flags)
{
	int known = INLAY_KNOWN_(opcode) && INLAY_KNOWN_(flags & INLAY_INLINE);
	struct inlay_wr r = {0, 0, 0, NULL, NULL, 0, 0, NULL, 0, 0, NULL};
	uint64_t what;

	INLAY_CHECK(sq, "the queue is not NULL");
	INLAY_CHECK(wr || opcode == MLX5_OPCODE_NOP, "only a NOP has no request");
	if (opcode == MLX5_OPCODE_NOP)
		flags &= ~(uint32_t)INLAY_INLINE;
	else
		r = *wr;
	INLAY_CHECK(r.sge || !r.num_sge, "sge is not NULL unless num_sge is 0");
	/* One SGE is as good as its contents: what is constant of them folds. */
	if (INLAY_KNOWN_(r.num_sge) && r.num_sge == 1) {
		r.data = (const void *)(uintptr_t)r.sge->addr;
		r.len = r.sge->length;
		r.lkey = r.sge->lkey;
		r.num_sge = 0;
	}
	wr = &r;
	INLAY_CHECK(opcode == MLX5_OPCODE_NOP || inlay_post_fits_(sq->type, opcode, wr->to != NULL),
		    "the QP's type has the operation");
	INLAY_CHECK(opcode != MLX5_OPCODE_RDMA_READ || !(flags & INLAY_INLINE), "a read has no payload to inline");
	inlay_flags_check_(flags);
	INLAY_CHECK(!(flags & INLAY_STREAM_) || !sq->type || sq->type == IBV_QPT_DRIVER, "only a DCI has streams");
	what = inlay_post_what_(opcode, flags, inlay_post_imm_(opcode, wr));
	if (wr->iov)
		return inlay_post_list_(sq, wr->raddr, wr->rkey, wr->iov, what | INLAY_WHAT_IOV_, wr->to);
	if (flags & INLAY_INLINE) {
		if (wr->num_sge)
			return inlay_post_list_(sq, wr->raddr, (uint64_t)wr->num_sge << 32 | wr->rkey, wr->sge, what, wr->to);
		if (!known || !INLAY_KNOWN_(wr->len)) {
			if (wr->to || !known)
				return inlay_post_inline_(sq, wr->raddr, (uint64_t)wr->len << 32 | wr->rkey, wr->data,
							  what, wr->to);
			if (inlay_post_raddr_(opcode))
				return flags & INLAY_RING ?
					inlay_post_inline_raddr_ring_(sq, wr->raddr, wr->rkey, wr->data, wr->len, what) :
					inlay_post_inline_raddr_only_(sq, wr->raddr, wr->rkey, wr->data, wr->len, what);
			return flags & INLAY_RING ? inlay_post_inline_ring_(sq, wr->data, wr->len, what) :
						    inlay_post_inline_only_(sq, wr->data, wr->len, what);
		}
		if (!INLAY_KNOWN_(!wr->to) && INLAY_UNLIKELY(!wr->to))
			return inlay_post_inline_(sq, wr->raddr, (uint64_t)wr->len << 32 | wr->rkey, wr->data, what, NULL);
	} else {
		if (!known || !INLAY_KNOWN_(wr->num_sge))
			return inlay_post_call_list_(sq, wr, what, wr->to);
		if (!wr->num_sge && INLAY_UNLIKELY(!wr->len) && opcode != MLX5_OPCODE_NOP)
			return inlay_post_list_(sq, wr->raddr, wr->rkey, NULL, what, wr->to);
		if (!INLAY_KNOWN_(!wr->to) && INLAY_UNLIKELY(!wr->to))
			return inlay_post_call_list_(sq, wr, what, NULL);
	}
	if (INLAY_KNOWN_(!wr->to) && !wr->to)
		return inlay_post_build_(sq, opcode, wr, 0, flags);
	if (inlay_av_ds(wr->to) == 1)
		return inlay_post_build_(sq, opcode, wr, 1, flags);
	return inlay_post_build_(sq, opcode, wr, 3, flags);
}

INLAY_ALWAYS struct inlay_wr inlay_wr_sges_(uint64_t raddr, uint32_t rkey, const struct ibv_sge *sge, uint32_t num_sge)
{
	struct inlay_wr wr = {raddr, rkey, 0, NULL, NULL, 0, 0, sge, num_sge, 0, NULL};

	return wr;
}

/* Send. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_send(struct inlay_sq *sq, const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	struct inlay_wr wr = inlay_wr_sges_(0, 0, sge, num_sge);

	return inlay_post(sq, MLX5_OPCODE_SEND, &wr, flags);
}

/* RDMA write. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_write(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, const struct ibv_sge *sge,
					       uint32_t num_sge, uint32_t flags)
{
	struct inlay_wr wr = inlay_wr_sges_(raddr, rkey, sge, num_sge);

	return inlay_post(sq, MLX5_OPCODE_RDMA_WRITE, &wr, flags);
}

/* RDMA read into the SGEs. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_read(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, const struct ibv_sge *sge,
					      uint32_t num_sge, uint32_t flags)
{
	struct inlay_wr wr = inlay_wr_sges_(raddr, rkey, sge, num_sge);

	return inlay_post(sq, MLX5_OPCODE_RDMA_READ, &wr, flags);
}

/* Send of one buffer, copied into the WQE. len in bytes. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_send_inline(struct inlay_sq *sq, const void *data, uint32_t len, uint32_t flags)
{
	struct inlay_wr wr = {0, 0, 0, NULL, data, len, 0, NULL, 0, 0, NULL};

	return inlay_post(sq, MLX5_OPCODE_SEND, &wr, flags | INLAY_INLINE);
}

/* RDMA write of one buffer, copied into the WQE. len in bytes. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_write_inline(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, const void *data,
						      uint32_t len, uint32_t flags)
{
	struct inlay_wr wr = {raddr, rkey, 0, NULL, data, len, 0, NULL, 0, 0, NULL};

	return inlay_post(sq, MLX5_OPCODE_RDMA_WRITE, &wr, flags | INLAY_INLINE);
}

INLAY_CASTS_END_
#endif
