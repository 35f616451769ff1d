/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/tag/message.h: the headers of tagged messages, and sending such messages on an RC QP. The
 * receiver is an XRQ or software; both read the same bytes.
 *
 *   inlay_tag_send_eager(&sq, app_ctx, tag, &sge, 1, INLAY_SIGNALED | INLAY_RING);
 *   if (inlay_tmh_get(at, len, &tmh) == 0 && tmh.opcode == IBV_TMH_RNDV)      at the receiver
 *           err = inlay_rvh_get(at, len, &rvh);
 *
 *   EAGER   TMH | payload
 *   RNDV    TMH | RVH | up to 32 bytes of the sender's    the receiver reads the payload
 *   FIN     TMH | RVH of the RNDV                         back to the sender: the payload was read
 *   NO_TAG  TMH | payload                                 never matched, left to software
 *
 *   TMH, 16 bytes                       RVH, 16 bytes
 *   +0  opcode | 0 | 0 | 0              +0   virtual address of the sender's buffer
 *   +4  app_ctx                         +8   its rkey
 *   +8  tag                             +12  its length
 *
 * Invariants:
 *   - The wire is big-endian; the structs here are in host order.
 *   - A payload in SGEs belongs to the NIC until its WQE completes. The buffer of a rendezvous
 *     belongs to the receiver until the FIN.
 *   - A receiving NIC with IBV_TM_CAP_RC reads the payload of a matched rendezvous and sends the
 *     FIN. In all other cases the receiver's software does: inlay_post_read with the RVH, then
 *     inlay_tag_send_fin with INLAY_FENCE_STRONG in the same queue, or after the read completes.
 *
 * Threads: one owner of the queue at a time; the rest are pure functions.
 * Sources: rdma-core's tm_types.h and Documentation/tag_matching.md.
 */
#ifndef INLAY_TAG_MESSAGE_H
#define INLAY_TAG_MESSAGE_H /* a trial: names may change */

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
#define INLAY_RNDV_MAX 64u /* longest rendezvous message, bytes (ibv_tm_caps.max_rndv_hdr_size) */

INLAY_STATIC_ASSERT(sizeof(struct ibv_tmh) == INLAY_TMH_BYTES && offsetof(struct ibv_tmh, tag) == 8, "TMH");
INLAY_STATIC_ASSERT(sizeof(struct ibv_rvh) == INLAY_RVH_BYTES && offsetof(struct ibv_rvh, rkey) == 8, "RVH");

struct inlay_tmh {
	uint64_t tag;
	uint32_t app_ctx; /* a number from the sender to the receiver */
	uint8_t opcode;   /* IBV_TMH_* */
};

struct inlay_rvh {
	uint64_t va;
	uint32_t rkey;
	uint32_t len; /* bytes */
};

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

/* Reads the RVH that follows the TMH. Returns 0, or -EPROTO when len is too short. */
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

/* The headers, then the payload: in data segments, or in the headers' segment with INLAY_INLINE. */
INLAY_ALWAYS int inlay_tag_send_(struct inlay_sq *sq, uint8_t opcode, uint32_t app_ctx, uint64_t tag,
				 const struct inlay_rvh *rvh, const struct ibv_sge *sge, uint32_t num, uint32_t flags)
{
	const uint32_t head_len = INLAY_TMH_BYTES + (opcode == IBV_TMH_EAGER ? 0 : INLAY_RVH_BYTES);
	const int inlined = (flags & INLAY_INLINE) != 0;
	uint64_t total = 0;
	uint32_t ds = inlay_post_ds_(1 + inlay_seg_inline_ds(head_len), sge, NULL, num, inlined, &total), i;
	uint8_t tmh[INLAY_TMH_BYTES], rvh_be[INLAY_RVH_BYTES], *p;
	struct inlay_cursor at;
	int err;

	inlay_put64(tmh, (uint64_t)inlay_to_be32(app_ctx) << 32 | opcode);
	inlay_put64(tmh + 8, inlay_to_be64(tag));
	if (inlined && INLAY_LIKELY(ds <= INLAY_MAX_DS))
		ds = 1 + inlay_seg_inline_ds(head_len + total);
	err = inlay_sq_begin_ds(sq, ds, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	at = inlay_seg_inline_open(at, head_len + (uint32_t)total, 0, &p);
	at = inlay_seg_inline_append(at, tmh, sizeof(tmh));
	if (opcode != IBV_TMH_EAGER) {
		inlay_put64(rvh_be, inlay_to_be64(rvh->va));
		inlay_put64(rvh_be + 8, (uint64_t)inlay_to_be32(rvh->len) << 32 | inlay_to_be32(rvh->rkey));
		at = inlay_seg_inline_append(at, rvh_be, sizeof(rvh_be));
	}
	for (i = 0; inlined && i < num; i++)
		at = inlay_seg_inline_append(at, (const void *)(uintptr_t)sge[i].addr, sge[i].length);
	if (!inlined)
		at = inlay_seg_sges(at, sge, num);
	return inlay_sq_finish_(sq, at, MLX5_OPCODE_SEND, 0, flags, 0);
}

/*
 * An eager message. The payload is num_sge SGEs, host order; empty ones are left out. INLAY_INLINE
 * copies it into the WQE and ignores the local keys. Flags and returns are those of inlay_post
 * (queue/post.h), in what follows too; a message too long for a WQE is -EINVAL.
 */
INLAY_ALWAYS int inlay_tag_send_eager(struct inlay_sq *sq, uint32_t app_ctx, uint64_t tag, const struct ibv_sge *sge,
				      uint32_t num_sge, uint32_t flags)
{
	return inlay_tag_send_(sq, IBV_TMH_EAGER, app_ctx, tag, NULL, sge, num_sge, flags);
}

/*
 * A rendezvous: the receiver may read rvh->len bytes at rvh->va with rvh->rkey until it sends the
 * FIN. header: 0 .. 32 bytes, else -EINVAL, that a receiver matching in software sees.
 */
INLAY_ALWAYS int inlay_tag_send_rndv(struct inlay_sq *sq, uint32_t app_ctx, uint64_t tag, const struct inlay_rvh *rvh,
				     const void *header, uint32_t header_len, uint32_t flags)
{
	const struct ibv_sge sge = {(uintptr_t)header, header_len, 0};

	if (header_len > INLAY_RNDV_MAX - INLAY_TMH_BYTES - INLAY_RVH_BYTES)
		return -EINVAL;
	return inlay_tag_send_(sq, IBV_TMH_RNDV, app_ctx, tag, rvh, &sge, 1, flags | INLAY_INLINE);
}

/* The FIN of a rendezvous, to its sender: app_ctx, tag and RVH as they came. */
INLAY_ALWAYS int inlay_tag_send_fin(struct inlay_sq *sq, uint32_t app_ctx, uint64_t tag, const struct inlay_rvh *rvh,
				    uint32_t flags)
{
	return inlay_tag_send_(sq, IBV_TMH_FIN, app_ctx, tag, rvh, NULL, 0, flags);
}

#endif
