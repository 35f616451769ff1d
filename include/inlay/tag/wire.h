/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/tag/wire.h: the headers in front of a tagged message. The NIC reads them, and so does a
 * receiver that matches in software.
 *
 *   TMH, 16 bytes                       RVH, 16 bytes, after the TMH of a rendezvous and of its FIN
 *   +0  opcode | 0 | 0 | 0              +0   virtual address of the sender's buffer
 *   +4  app_ctx                         +8   its rkey
 *   +8  tag                             +12  its length
 *
 *   NO_TAG  not matched: a message for the software alone
 *   EAGER   the payload follows
 *   RNDV    an RVH follows, and up to 32 bytes of the sender's own: the receiver reads the payload
 *   FIN     TMH and RVH of a rendezvous, back to its sender: the payload has been read
 *
 *   if (inlay_tmh_get(at, len, &tmh) == 0 && tmh.opcode == IBV_TMH_RNDV)
 *           err = inlay_rvh_get(at, len, &rvh);
 *
 * On the wire all is big-endian, in the structs here all is in host order.
 *
 * Threads: pure functions.
 * Sources: rdma-core's tm_types.h and Documentation/tag_matching.md.
 */
#ifndef INLAY_TAG_WIRE_H
#define INLAY_TAG_WIRE_H

#include <infiniband/tm_types.h>
#include <inlay/base.h>
#include <inlay/wqe.h>

#define INLAY_TMH_BYTES 16u
#define INLAY_RVH_BYTES 16u
#define INLAY_RNDV_MAX 64u /* bytes of a rendezvous message in all (ibv_tm_caps.max_rndv_hdr_size) */

INLAY_STATIC_ASSERT(sizeof(struct ibv_tmh) == INLAY_TMH_BYTES && offsetof(struct ibv_tmh, tag) == 8, "TMH");
INLAY_STATIC_ASSERT(sizeof(struct ibv_rvh) == INLAY_RVH_BYTES && offsetof(struct ibv_rvh, rkey) == 8, "RVH");

struct inlay_tmh {
	uint64_t tag;
	uint32_t app_ctx; /* the sender's own, carried along */
	uint8_t opcode;   /* IBV_TMH_* */
};

struct inlay_rvh {
	uint64_t va;
	uint32_t rkey;
	uint32_t len; /* bytes */
};

/* Writes a TMH to INLAY_TMH_BYTES at `to`, of any alignment. opcode: IBV_TMH_*. */
INLAY_FN void inlay_tmh_put(void *to, uint8_t opcode, uint32_t app_ctx, uint64_t tag)
{
	inlay_put64(to, (uint64_t)inlay_to_be32(app_ctx) << 32 | opcode);
	inlay_put64((uint8_t *)to + 8, inlay_to_be64(tag));
}

/*
 * Reads the TMH of a received message of len bytes.
 *
 * Returns 0, or -EPROTO when the message is shorter or the opcode unknown; *tmh is then as it was.
 */
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

/* Writes an RVH to INLAY_RVH_BYTES at `to`, of any alignment. */
INLAY_FN void inlay_rvh_put(void *to, const struct inlay_rvh *rvh)
{
	inlay_put64(to, inlay_to_be64(rvh->va));
	inlay_put32((uint8_t *)to + 8, inlay_to_be32(rvh->rkey));
	inlay_put32((uint8_t *)to + 12, inlay_to_be32(rvh->len));
}

/* Reads the RVH of a received message of len bytes, after its TMH. Returns 0, or -EPROTO as inlay_tmh_get. */
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

#endif
