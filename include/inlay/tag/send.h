/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/tag/send.h: tagged messages, as a NIC that matches tags wants them. Any RC queue pair sends them; the peer receives through an
 * XRQ, or in software, which sees the same bytes.
 *
 *   eager        SEND  TMH | payload
 *   rendezvous   SEND  TMH | RVH | up to 32 bytes of the software's own     the receiver reads the payload, and answers
 *   its end      SEND  TMH | RVH                                            opcode FIN: the sender's buffer is free
 *
 * Where the peer's NIC ends rendezvous (IBV_TM_CAP_RC), the FIN comes from there for an expected message; for an unexpected one the
 * software reads (inlay_post_read with the RVH's address, key and length) and then sends it with inlay_tag_send_fin. The read and the FIN
 * go in one queue: the FIN with INLAY_FENCE_STRONG, or after the read's completion.
 *
 * Threads: one owner of the queue at a time.
 * Sources: rdma-core's Documentation/tag_matching.md.
 */
#ifndef INLAY_TAG_SEND_H
#define INLAY_TAG_SEND_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/wqe.h>
#include <inlay/queue/post.h>
#include <inlay/queue/sq.h>
#include <inlay/tag/wire.h>

/*
 * What all inlay_tag_send_* functions share.
 *
 *   +0   ctrl     SEND
 *   +16  inline   TMH, 16 bytes, or TMH | RVH | header | payload
 *   +48  data     pointers to the payload                      wraps at the ring's end
 *
 * app_ctx  the software's own, shown to the receiver
 * tag      in host order
 * flags    INLAY_SIGNALED | INLAY_SOLICITED | one INLAY_FENCE_*
 *
 * Return 0; -EAGAIN when the ring has no room (nothing was written); -E2BIG when the WQE is larger than the ring; -EINVAL when it is
 * longer than the QP's longest. Not visible to the device before inlay_sq_ring().
 */

/* An eager message of payload from memory: num_sge SGEs, host order, empty ones are left out. */
INLAY_ALWAYS int inlay_tag_send_eager(struct inlay_sq *sq, uint32_t app_ctx, uint64_t tag, const struct ibv_sge *sge, uint32_t num_sge,
				      uint32_t flags)
{
	uint8_t tmh[INLAY_TMH_BYTES];
	struct inlay_cursor at;
	uint32_t ds = 3, i;
	int err;

	if (num_sge > INLAY_MAX_DS)
		return -EINVAL;
	for (i = 0; i < num_sge; i++)
		ds += sge[i].length != 0;
	err = inlay_sq_begin_ds(sq, ds, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	inlay_tmh_put(tmh, IBV_TMH_EAGER, app_ctx, tag);
	at = inlay_seg_inline(at, tmh, (uint32_t)sizeof(tmh));
	at = inlay_seg_sges(at, sge, num_sge);
	return inlay_post_commit_(sq, at, MLX5_OPCODE_SEND, flags, 0);
}

/* One inline segment: a header of head_len bytes, at most INLAY_RNDV_MAX, and len bytes of data behind it. */
INLAY_ALWAYS int inlay_tag_send_two(struct inlay_sq *sq, const void *head, uint32_t head_len, const void *data, uint32_t len,
				    uint32_t flags)
{
	struct inlay_cursor at;
	uint8_t *p;
	int err;

	if (len > INLAY_MAX_DS * INLAY_DS)
		return -EINVAL;
	err = inlay_sq_begin_ds(sq, 1 + (head_len + len + 4 + INLAY_DS - 1) / INLAY_DS, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	at = inlay_seg_inline_open(at, head_len + len, 0, &p);
	at = inlay_seg_inline_append(at, head, head_len);
	at = inlay_seg_inline_append(at, data, len);
	return inlay_post_commit_(sq, at, MLX5_OPCODE_SEND, flags, 0);
}

/* An eager message of len bytes, which are copied now. */
INLAY_ALWAYS int inlay_tag_send_eager_inline(struct inlay_sq *sq, uint32_t app_ctx, uint64_t tag, const void *data, uint32_t len,
					     uint32_t flags)
{
	uint8_t tmh[INLAY_TMH_BYTES];

	inlay_tmh_put(tmh, IBV_TMH_EAGER, app_ctx, tag);
	return inlay_tag_send_two(sq, tmh, sizeof(tmh), data, len, flags);
}

/*
 * A message whose payload the receiver reads from rvh->va with rvh->rkey, which must allow it until the FIN comes. header: bytes of the
 * software's own for a receiver that matches in software, header_len of them, 0 .. 32; -EINVAL beyond.
 */
INLAY_ALWAYS int inlay_tag_send_rndv(struct inlay_sq *sq, uint32_t app_ctx, uint64_t tag, const struct inlay_rvh *rvh, const void *header,
				     uint32_t header_len, uint32_t flags)
{
	uint8_t head[INLAY_TMH_BYTES + INLAY_RVH_BYTES];

	if (header_len > INLAY_RNDV_MAX - sizeof(head))
		return -EINVAL;
	inlay_tmh_put(head, IBV_TMH_RNDV, app_ctx, tag);
	inlay_rvh_put(head + INLAY_TMH_BYTES, rvh);
	return inlay_tag_send_two(sq, head, sizeof(head), header, header_len, flags);
}

/* Back to the sender of a rendezvous, with the app_ctx, tag and RVH that came: its payload has been read. */
INLAY_ALWAYS int inlay_tag_send_fin(struct inlay_sq *sq, uint32_t app_ctx, uint64_t tag, const struct inlay_rvh *rvh, uint32_t flags)
{
	uint8_t head[INLAY_TMH_BYTES + INLAY_RVH_BYTES];

	inlay_tmh_put(head, IBV_TMH_FIN, app_ctx, tag);
	inlay_rvh_put(head + INLAY_TMH_BYTES, rvh);
	return inlay_tag_send_two(sq, head, sizeof(head), NULL, 0, flags);
}

#endif
