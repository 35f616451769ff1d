/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf/post.h: posts buffers and lists of buffers. Their data, in order, is the gather list:
 * no array is built and nothing is looked up.
 *
 *   wr.raddr = raddr, wr.rkey = rkey;
 *   inflight[inlay_sq_index(&sq) & mask] = head;       mask: the ring's WQEBBs - 1
 *   inlay_post_bufs(&sq, MLX5_OPCODE_RDMA_WRITE, &wr, head, INLAY_SIGNALED | INLAY_RING);
 *   ...
 *   inlay_buf_dec_refcount(inflight[inlay_cqe_wqe_counter(cqe) & mask], NULL);
 *
 * Keep a reference until the completion: the device uses the memory until then. For receives,
 * inlay_buf_sges fills the array that inlay_post_recv takes.
 *
 * Threads: as queue/post.h.
 */
#ifndef INLAY_BUF_POST_H
#define INLAY_BUF_POST_H /* a trial: names may change */

#include <inlay/base.h>
#include <inlay/wqe.h>
#include <inlay/queue/sq.h>
#include <inlay/queue/post.h>
#include <inlay/buf/buf.h>

/*
 * Posts the data from bufs to the end of its list. A read places its result there.
 *
 * opcode  as inlay_post
 * wr      raddr, rkey, imm_be as inlay_post; the other fields are not used
 *
 * Returns 0; -EAGAIN when the ring has no room; -E2BIG when the WQE is larger than the ring;
 * -EINVAL when the list has more data segments than the QP's longest WQE holds.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_bufs(struct inlay_sq *sq, uint32_t opcode, const struct inlay_wr *wr,
					      const struct inlay_buf *bufs, uint32_t flags)
{
	uint32_t remote = inlay_post_raddr_(opcode);
	uint32_t ds = 1 + remote + (uint32_t)inlay_buf_sges(bufs, NULL, UINT32_MAX);
	struct inlay_cursor at;
	int err;

	INLAY_CHECK(inlay_post_fits_(sq->type, opcode, 0), "the QP's type knows the operation");
	INLAY_CHECK(!(flags & INLAY_INLINE), "buffers are posted by their keys");
	err = inlay_sq_begin_ds(sq, ds, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	if (remote)
		at = inlay_seg_raddr(at, wr->raddr, wr->rkey);
	for (; bufs; bufs = inlay_buf_next(bufs))
		if (INLAY_LIKELY(bufs->data_len))
			at = inlay_seg_data(at, (uintptr_t)bufs->data, bufs->data_len, bufs->keys.lkey);
	return inlay_sq_finish_(sq, at, opcode, 0, flags, inlay_post_imm_(opcode, wr));
}

#endif
