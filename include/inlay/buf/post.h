/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf/post.h: posts buffers and lists of buffers. Their data, in order, is the gather list:
 * no array is built and nothing is looked up.
 *
 *   index = inlay_sq_index(&sq);
 *   if (inlay_post_write_bufs(&sq, raddr, rkey, head, INLAY_SIGNALED) == 0)
 *           inflight[index & mask] = head;             mask: the ring's WQEBBs - 1
 *   inlay_sq_ring(&sq);
 *   ...
 *   cqe = inlay_cq_peek(&cq);
 *   inlay_buf_dec_refcount(inflight[inlay_cqe_wqe_counter(cqe) & mask], NULL);
 *
 * Keep a reference until the completion: the device uses the memory until then. For receives,
 * inlay_buf_sges fills the array that inlay_post_recv takes.
 *
 * Threads: as queue/post.h.
 */
#ifndef INLAY_BUF_POST_H
#define INLAY_BUF_POST_H

#include <inlay/base.h>
#include <inlay/wqe.h>
#include <inlay/queue/sq.h>
#include <inlay/queue/post.h>
#include <inlay/buf/buf.h>

/* Data segments from buf to the end of its list: one for each buffer that has data. */
INLAY_FN uint32_t inlay_buf_segs(const struct inlay_buf *buf)
{
	uint32_t n = 0;

	for (; buf; buf = inlay_buf_next(buf))
		n += buf->data_len != 0;
	return n;
}

/* Appends these data segments to a WQE. */
INLAY_ALWAYS struct inlay_cursor inlay_seg_bufs(struct inlay_cursor c, const struct inlay_buf *buf)
{
	for (; buf; buf = inlay_buf_next(buf))
		if (INLAY_LIKELY(buf->data_len))
			c = inlay_seg_data(c, (uintptr_t)buf->data, buf->data_len, buf->keys.lkey);
	return c;
}

/*
 * Any post of buffers.
 *
 * opcode  as inlay_post
 * wr      raddr, rkey, imm_be as inlay_post; the other fields are not used
 * bufs    a single buffer, or where in a list to begin
 *
 * Returns 0; -EAGAIN when the ring has no room; -E2BIG when the WQE is larger than the ring;
 * -EINVAL when the list has more data segments than the QP's longest WQE holds.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_bufs(struct inlay_sq *sq, uint32_t opcode, const struct inlay_wr *wr,
					      const struct inlay_buf *bufs, uint32_t flags)
{
	uint32_t remote = inlay_post_raddr_(opcode), ds = 1 + remote + inlay_buf_segs(bufs);
	struct inlay_cursor at;
	int err;

	INLAY_CHECK(inlay_post_fits_(sq, opcode, 0), "the QP's type knows the operation");
	INLAY_CHECK(!(flags & INLAY_INLINE), "buffers are posted by their keys");
	err = inlay_sq_begin_ds(sq, ds, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	if (remote)
		at = inlay_seg_raddr(at, wr->raddr, wr->rkey);
	at = inlay_seg_bufs(at, bufs);
	return inlay_sq_finish_(sq, at, opcode, 0, flags, inlay_post_imm_(opcode, wr));
}

/* Send, RDMA write, RDMA read into the buffers' data. Return as inlay_post_bufs. */
INLAY_ALWAYS INLAY_RESULT int inlay_post_send_bufs(struct inlay_sq *sq, const struct inlay_buf *bufs, uint32_t flags)
{
	struct inlay_wr wr = inlay_wr_sges_(0, 0, NULL, 0);

	return inlay_post_bufs(sq, MLX5_OPCODE_SEND, &wr, bufs, flags);
}

INLAY_ALWAYS INLAY_RESULT int inlay_post_write_bufs(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, const struct inlay_buf *bufs,
				       uint32_t flags)
{
	struct inlay_wr wr = inlay_wr_sges_(raddr, rkey, NULL, 0);

	return inlay_post_bufs(sq, MLX5_OPCODE_RDMA_WRITE, &wr, bufs, flags);
}

INLAY_ALWAYS INLAY_RESULT int inlay_post_read_bufs(struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, const struct inlay_buf *bufs,
				      uint32_t flags)
{
	struct inlay_wr wr = inlay_wr_sges_(raddr, rkey, NULL, 0);

	return inlay_post_bufs(sq, MLX5_OPCODE_RDMA_READ, &wr, bufs, flags);
}

#endif
