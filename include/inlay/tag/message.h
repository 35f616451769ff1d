/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/tag/message.h: tagged messages: their headers, and sending them on any RC QP. The peer
 * receives them through an XRQ, or in software, which sees the same bytes.
 *
 *   inlay_tag_send_eager(&sq, app_ctx, tag, &sge, 1, INLAY_SIGNALED);
 *   inlay_sq_ring(&sq);
 *   ...
 *   if (inlay_tmh_get(at, len, &tmh) == 0 && tmh.opcode == IBV_TMH_RNDV)      at the receiver
 *           err = inlay_rvh_get(at, len, &rvh);
 *
 *   EAGER   TMH | payload
 *   RNDV    TMH | RVH | up to 32 bytes of the sender's         the receiver reads the payload
 *   FIN     TMH | RVH, as they came                            back to the sender: it has been read
 *   NO_TAG  TMH | payload                                      for the software, never matched
 *
 *   TMH, 16 bytes                       RVH, 16 bytes
 *   +0  opcode | 0 | 0 | 0              +0   virtual address of the sender's buffer
 *   +4  app_ctx                         +8   its rkey
 *   +8  tag                             +12  its length
 *
 * Invariants:
 *   - The wire is big-endian; the structs here are in host order.
 *   - Leave payload that is not inline alone until its WQE's completion, and the buffer of a
 *     rendezvous until the FIN.
 *   - A peer's NIC that ends rendezvous (IBV_TM_CAP_RC) sends the FIN of an expected message. For
 *     any other, the receiver's software reads (inlay_post_read with the RVH) and then sends the
 *     FIN: in the same queue with INLAY_FENCE_STRONG, or after the completion of the read.
 *
 * Threads: one owner of the queue at a time; the rest are pure functions.
 * Sources: rdma-core's tm_types.h and Documentation/tag_matching.md.
 */
#ifndef INLAY_TAG_MESSAGE_H
#define INLAY_TAG_MESSAGE_H

#include <infiniband/mlx5dv.h>
#include <infiniband/tm_types.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/wqe.h>
#include <inlay/queue/post.h>
#include <inlay/queue/sq.h>

/* ---- Headers ---- */

#define INLAY_TMH_BYTES 16u
#define INLAY_RVH_BYTES 16u
#define INLAY_RNDV_MAX 64u /* bytes of a rendezvous message in all (ibv_tm_caps.max_rndv_hdr_size) */

INLAY_STATIC_ASSERT(sizeof(struct ibv_tmh) == INLAY_TMH_BYTES && offsetof(struct ibv_tmh, tag) == 8, "TMH");
INLAY_STATIC_ASSERT(sizeof(struct ibv_rvh) == INLAY_RVH_BYTES && offsetof(struct ibv_rvh, rkey) == 8, "RVH");

struct inlay_tmh {
	uint64_t tag;
	uint32_t app_ctx; /* the sender's, shown to the receiver */
	uint8_t opcode;   /* IBV_TMH_* */
};

struct inlay_rvh {
	uint64_t va;
	uint32_t rkey;
	uint32_t len; /* bytes */
};

/* Writes a TMH, to any alignment. opcode: IBV_TMH_*. */
INLAY_FN void inlay_tmh_put_(void *to, uint8_t opcode, uint32_t app_ctx, uint64_t tag)
{
	inlay_put64(to, (uint64_t)inlay_to_be32(app_ctx) << 32 | opcode);
	inlay_put64((uint8_t *)to + 8, inlay_to_be64(tag));
}

/* Reads the TMH of a message of len bytes. Returns 0; -EPROTO: too short, or an unknown opcode. */
INLAY_FN int inlay_tmh_get(const void *from, size_t len, struct inlay_tmh *tmh)
{
	struct ibv_tmh be;

	if (len < INLAY_TMH_BYTES || *(const uint8_t *)from > IBV_TMH_EAGER)
		return -EPROTO;
	__builtin_memcpy(&be, from, sizeof(be));
	tmh->opcode = be.opcode;
	tmh->app_ctx = inlay_from_be32(be.app_ctx);
	tmh->tag = inlay_from_be64(be.tag);
	return 0;
}

INLAY_FN void inlay_rvh_put_(void *to, const struct inlay_rvh *rvh)
{
	inlay_put64(to, inlay_to_be64(rvh->va));
	inlay_put32((uint8_t *)to + 8, inlay_to_be32(rvh->rkey));
	inlay_put32((uint8_t *)to + 12, inlay_to_be32(rvh->len));
}

/* As inlay_tmh_get, but reads the RVH after the TMH. */
INLAY_FN int inlay_rvh_get(const void *from, size_t len, struct inlay_rvh *rvh)
{
	struct ibv_rvh be;

	if (len < INLAY_TMH_BYTES + INLAY_RVH_BYTES)
		return -EPROTO;
	__builtin_memcpy(&be, (const uint8_t *)from + INLAY_TMH_BYTES, sizeof(be));
	rvh->va = inlay_from_be64(be.va);
	rvh->rkey = inlay_from_be32(be.rkey);
	rvh->len = inlay_from_be32(be.len);
	return 0;
}

/* ---- Sending ---- */

/*
 * All inlay_tag_send_* write the headers as an inline segment, with the payload in it or in data
 * segments. Flags and returns are those of inlay_post_* (queue/post.h), without INLAY_INLINE;
 * -EINVAL also for a header that is too long.
 */

/* An eager message with num_sge SGEs of payload, host order; empty ones are left out. */
INLAY_ALWAYS int inlay_tag_send_eager(struct inlay_sq *sq, uint32_t app_ctx, uint64_t tag, const struct ibv_sge *sge,
				      uint32_t num_sge, uint32_t flags)
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
	inlay_tmh_put_(tmh, IBV_TMH_EAGER, app_ctx, tag);
	at = inlay_seg_inline(at, tmh, (uint32_t)sizeof(tmh));
	at = inlay_seg_sges(at, sge, num_sge);
	return inlay_sq_finish_(sq, at, MLX5_OPCODE_SEND, 0, flags, 0);
}

/* Sends a header and a payload, both copied into the WQE. */
INLAY_ALWAYS int inlay_tag_send_two_(struct inlay_sq *sq, const void *head, uint32_t head_len, const void *data,
				     uint32_t len, uint32_t flags)
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
	return inlay_sq_finish_(sq, at, MLX5_OPCODE_SEND, 0, flags, 0);
}

/* An eager message of len bytes, copied into the WQE. */
INLAY_ALWAYS int inlay_tag_send_eager_inline(struct inlay_sq *sq, uint32_t app_ctx, uint64_t tag, const void *data,
					     uint32_t len, uint32_t flags)
{
	uint8_t tmh[INLAY_TMH_BYTES];

	inlay_tmh_put_(tmh, IBV_TMH_EAGER, app_ctx, tag);
	return inlay_tag_send_two_(sq, tmh, sizeof(tmh), data, len, flags);
}

INLAY_ALWAYS int inlay_tag_send_rvh_(struct inlay_sq *sq, uint8_t opcode, uint32_t app_ctx, uint64_t tag,
				     const struct inlay_rvh *rvh, const void *header, uint32_t header_len, uint32_t flags)
{
	uint8_t head[INLAY_TMH_BYTES + INLAY_RVH_BYTES];

	inlay_tmh_put_(head, opcode, app_ctx, tag);
	inlay_rvh_put_(head + INLAY_TMH_BYTES, rvh);
	return inlay_tag_send_two_(sq, head, sizeof(head), header, header_len, flags);
}

/*
 * A rendezvous: the receiver reads the payload from rvh->va with rvh->rkey until it sends the FIN.
 * header: header_len bytes of the sender's, 0 .. 32, for a receiver that matches in software.
 */
INLAY_ALWAYS int inlay_tag_send_rndv(struct inlay_sq *sq, uint32_t app_ctx, uint64_t tag, const struct inlay_rvh *rvh,
				     const void *header, uint32_t header_len, uint32_t flags)
{
	if (header_len > INLAY_RNDV_MAX - INLAY_TMH_BYTES - INLAY_RVH_BYTES)
		return -EINVAL;
	return inlay_tag_send_rvh_(sq, IBV_TMH_RNDV, app_ctx, tag, rvh, header, header_len, flags);
}

/* Ends a rendezvous, back to its sender: app_ctx, tag and RVH as they came. */
INLAY_ALWAYS int inlay_tag_send_fin(struct inlay_sq *sq, uint32_t app_ctx, uint64_t tag, const struct inlay_rvh *rvh,
				    uint32_t flags)
{
	return inlay_tag_send_rvh_(sq, IBV_TMH_FIN, app_ctx, tag, rvh, NULL, 0, flags);
}

#endif
