/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/wqe/decode.h: reads a send WQE: as the request that it was posted from, or as segments.
 *
 *   const void *ring = inlay_sq_wqe(&dead, 0);
 *
 *   for (left = inlay_sq_pending(&dead); left; left -= bbs) {
 *           at = inlay_sq_index(&dead) - left;
 *           bbs = inlay_wqe_decode(ring, inlay_sq_size(&dead), at, inlay_sq_type(&dead), &d);
 *           if (bbs < 0 || !d.is_request)
 *                   ...                              d.opcode says what else it is
 *           d.wr.rkey = other_rkey(d.wr.rkey);
 *           for (i = 0; i < d.wr.num_sge; i++)
 *                   d.sge[i].lkey = other_lkey(d.sge[i].lkey);
 *           err = inlay_post(&other, d.opcode, &d.wr, d.flags);
 *   }
 *
 * Invariants:
 *   - A request, posted to a queue of the same type, number and index, writes the same bytes again.
 *     The padding after inline data keeps what the ring holds.
 *   - struct inlay_decoded points into itself and, if INLAY_INLINE, into the ring: it is not copied,
 *     and the ring stays as it is until the request is posted.
 *   - Any bytes may be decoded. Nothing outside the ring is read.
 *
 * Threads: reads the ring; the caller keeps it from changing. Sources: wqe.h.
 */
#ifndef INLAY_WQE_DECODE_H
#define INLAY_WQE_DECODE_H /* names are stable until 1.0 */

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/wqe/av.h>
#include <inlay/wqe/eth.h>
#include <inlay/wqe/segment.h>
#include <inlay/wqe/sync.h>

enum inlay_segment_kind {
	INLAY_SEGMENT_AV = 1,    /* a destination: wqe/av.h */
	INLAY_SEGMENT_XRC,
	INLAY_SEGMENT_ETH,       /* with its inline header: wqe/eth.h */
	INLAY_SEGMENT_RADDR,
	INLAY_SEGMENT_ATOMIC,    /* operands: wqe/atomic.h */
	INLAY_SEGMENT_MASKED,
	INLAY_SEGMENT_QUEUE,     /* wqe/sync.h */
	INLAY_SEGMENT_CONDITION,
	INLAY_SEGMENT_SCRATCH,
	INLAY_SEGMENT_UMR,       /* wqe/umr.h */
	INLAY_SEGMENT_MKEY,
	INLAY_SEGMENT_KLM,       /* a translation, all of it */
	INLAY_SEGMENT_BSF,
	INLAY_SEGMENT_PSV,
	INLAY_SEGMENT_DATA,
	INLAY_SEGMENT_INLINE     /* with its payload */
};

/* `units` 16-byte units from unit `at` of the WQE on; unit 0 is the control segment. */
struct inlay_segment {
	uint8_t kind; /* enum inlay_segment_kind */
	uint8_t at;
	uint8_t units;
	uint8_t reserved;
};

/* A WQE as read, in host order. */
struct inlay_decoded {
	uint32_t opcode;       /* MLX5_OPCODE_*, INLAY_OPCODE_* */
	uint32_t opmod;
	uint32_t index;        /* 16 bits */
	uint32_t qpn;
	uint32_t ds;           /* 16-byte units, the control segment included */
	uint32_t flags;        /* of a post */
	uint32_t is_request;   /* 1: inlay_post(sq, opcode, &wr, flags) writes this WQE */
	uint32_t num_segments; /* after the control segment */
	struct inlay_wr wr;    /* of another WQE: its remote address, destination and data pointers, if it has them */
	struct inlay_av to;
	struct ibv_sge sge[INLAY_MAX_DS];
	struct inlay_segment segment[INLAY_MAX_DS];
};

/* The words of a 16-byte unit of a WQE, which wraps. */
INLAY_COLD void inlay_wqe_words_(const void *ring, uint32_t wqebbs, uint32_t index, uint32_t unit, uint32_t w[4])
{
	uint64_t at = ((uint64_t)index * INLAY_WQEBB + unit * INLAY_DS) % ((uint64_t)wqebbs * INLAY_WQEBB);
	int i;

	__builtin_memcpy(w, (const uint8_t *)ring + at, INLAY_DS);
	for (i = 0; i < 4; i++)
		w[i] = inlay_from_be32(w[i]);
}

/* Adds a segment, cut where the WQE ends. *at: its first unit, then the next one's. Returns whether it is whole. */
INLAY_COLD int inlay_decoded_add_(struct inlay_decoded *d, uint32_t *at, enum inlay_segment_kind kind, uint64_t units)
{
	uint32_t left = d->ds - *at, n = units < left ? (uint32_t)units : left;
	struct inlay_segment segment = {(uint8_t)kind, (uint8_t)*at, (uint8_t)n, 0};

	if (n)
		d->segment[d->num_segments++] = segment;
	*at += n;
	return n == units;
}

/* Adds the segments that only this opcode has; data pointers and inline data follow. w: unit 1. */
INLAY_COLD int inlay_decoded_head_(struct inlay_decoded *d, uint32_t *at, const uint32_t w[4])
{
	const uint32_t size = 4u << (d->opmod & 7), header = w[3] >> 16;

	switch (d->opcode) {
	case MLX5_OPCODE_ATOMIC_CS:
	case MLX5_OPCODE_ATOMIC_FA: return inlay_decoded_add_(d, at, INLAY_SEGMENT_ATOMIC, 1);
	case MLX5_OPCODE_ATOMIC_MASKED_CS: return inlay_decoded_add_(d, at, INLAY_SEGMENT_MASKED, size / 4);
	case MLX5_OPCODE_ATOMIC_MASKED_FA: return inlay_decoded_add_(d, at, INLAY_SEGMENT_MASKED, size / 8 + (size == 4));
	case INLAY_OPCODE_WAIT:
		return d->opmod ? inlay_decoded_add_(d, at, INLAY_SEGMENT_CONDITION, 2) :
				  inlay_decoded_add_(d, at, INLAY_SEGMENT_QUEUE, 1);
	case INLAY_OPCODE_SEND_EN: return inlay_decoded_add_(d, at, INLAY_SEGMENT_QUEUE, 1);
	case MLX5_OPCODE_MMO: return inlay_decoded_add_(d, at, INLAY_SEGMENT_SCRATCH, 1);
	case MLX5_OPCODE_SET_PSV: return inlay_decoded_add_(d, at, INLAY_SEGMENT_PSV, 1);
	case MLX5_OPCODE_UMR:
		if (!inlay_decoded_add_(d, at, INLAY_SEGMENT_UMR, 3) || !inlay_decoded_add_(d, at, INLAY_SEGMENT_MKEY, 4))
			return 0;
		if (!(w[0] >> 24 & MLX5_WQE_UMR_CTRL_FLAG_INLINE))
			return 1;
		return inlay_decoded_add_(d, at, INLAY_SEGMENT_KLM, w[1] >> 16) &&
		       inlay_decoded_add_(d, at, INLAY_SEGMENT_BSF, d->ds - *at);
	case MLX5_OPCODE_SEND:
	case MLX5_OPCODE_TSO:
	case INLAY_OPCODE_MULTI_PACKET:
		return inlay_decoded_add_(d, at, INLAY_SEGMENT_ETH, inlay_seg_eth_ds_(header & INLAY_ETH_VLAN_ ? 0 : header));
	default: return 1;
	}
}

/*
 * Reads a send WQE of at most 63 units.
 *
 * ring   its beginning; wqebbs its size, any number of WQEBBs
 * index  the WQE's first WQEBB, taken modulo the ring
 * type   of the QP, enum ibv_qp_type (a DCI: IBV_QPT_DRIVER), for what follows the control segment;
 *        0 if it is not known
 *
 * Returns the WQE's WQEBBs, 1 .. 16; -EINVAL for a ring of no WQEBBs; -EPROTO when these bytes are
 * no WQE: its length is 0 or more than the ring, or a segment ends after it or is missing. Then *d
 * has the control segment's fields and the segments up to there.
 */
INLAY_COLD INLAY_RESULT int inlay_wqe_decode(const void *ring, uint32_t wqebbs, uint32_t index, uint32_t type,
					     struct inlay_decoded *d)
{
	uint32_t w[4], at = 1, imm, send, raddr, atomic, inlined = 0, request, payload, n = 0;
	int whole = 1;

	INLAY_CHECK(d && (ring || !wqebbs), "no argument is NULL");
	__builtin_memset(d, 0, sizeof(*d));
	if (!wqebbs)
		return -EINVAL;
	inlay_wqe_words_(ring, wqebbs, index, 0, w);
	d->opcode = w[0] & 0xff;
	d->opmod = w[0] >> 24;
	d->index = w[0] >> 8 & 0xffff;
	d->qpn = w[1] >> 8;
	d->ds = w[1] & 0x3f;
	/* No post has a fence above 4. */
	d->flags = (w[2] >> 5 & 7) <= 4 ? INLAY_RAW_FLAGS(w[2] & 0xff) : w[2] << 24;
	if (w[2] >> 8 & 0xffff)
		d->flags |= INLAY_STREAM(w[2] >> 8 & 0xffff);
	request = !d->opmod && !(w[1] & 0xc0) && !(w[2] >> 24) && inlay_flags_ok_(d->flags) &&
		  (!(d->flags & INLAY_STREAM_) || !type || type == IBV_QPT_DRIVER);
	imm = w[3];
	if (!d->ds || (d->ds + 3) / 4 > wqebbs)
		return -EPROTO;

	send = d->opcode == MLX5_OPCODE_SEND || d->opcode == MLX5_OPCODE_SEND_IMM || d->opcode == MLX5_OPCODE_SEND_INVAL;
	atomic = d->opcode == MLX5_OPCODE_ATOMIC_CS || d->opcode == MLX5_OPCODE_ATOMIC_FA ||
		 d->opcode == MLX5_OPCODE_ATOMIC_MASKED_CS || d->opcode == MLX5_OPCODE_ATOMIC_MASKED_FA;
	raddr = atomic || inlay_post_raddr_(d->opcode);
	if (d->opcode == MLX5_OPCODE_SEND_INVAL)
		d->wr.rkey = imm;
	else if (d->opcode == MLX5_OPCODE_SEND_IMM || d->opcode == MLX5_OPCODE_RDMA_WRITE_IMM)
		d->wr.imm_be = inlay_to_be32(imm);
	else
		request &= !imm;

	inlay_wqe_words_(ring, wqebbs, index, 1, w); /* in the first WQEBB */
	if ((send || raddr) && (type == IBV_QPT_UD || type == IBV_QPT_DRIVER || type == IBV_QPT_XRC_SEND)) {
		uint32_t units = type != IBV_QPT_XRC_SEND && w[2] & MLX5_EXTENDED_UD_AV ? 3 : 1;

		whole = inlay_decoded_add_(d, &at, type == IBV_QPT_XRC_SEND ? INLAY_SEGMENT_XRC : INLAY_SEGMENT_AV, units);
		request &= type != IBV_QPT_XRC_SEND || !(w[1] | w[2] | w[3]);
		if (whole) {
			__builtin_memcpy(&d->to, (const uint8_t *)ring + index % wqebbs * (uint64_t)INLAY_WQEBB + INLAY_DS,
					 units * INLAY_DS);
			d->wr.to = &d->to;
		}
	}
	if (raddr && whole) {
		whole = inlay_decoded_add_(d, &at, INLAY_SEGMENT_RADDR, 1);
		if (whole) {
			inlay_wqe_words_(ring, wqebbs, index, at - 1, w);
			d->wr.raddr = (uint64_t)w[0] << 32 | w[1];
			d->wr.rkey = w[2];
			request &= !w[3];
		}
	}
	if (whole && (d->opcode != MLX5_OPCODE_SEND || type == IBV_QPT_RAW_PACKET))
		whole = inlay_decoded_head_(d, &at, w);
	for (payload = at; whole && at < d->ds;) {
		inlay_wqe_words_(ring, wqebbs, index, at, w);
		if (w[0] & MLX5_INLINE_SEG) {
			uint32_t len = w[0] & ~(uint32_t)MLX5_INLINE_SEG;
			uint64_t size = (uint64_t)wqebbs * INLAY_WQEBB;
			uint64_t begin = ((uint64_t)index * INLAY_WQEBB + at * INLAY_DS + 4) % size, room = size - begin;

			inlined = 1;
			request &= at == payload && len && d->opcode != MLX5_OPCODE_RDMA_READ;
			whole = inlay_decoded_add_(d, &at, INLAY_SEGMENT_INLINE, ((uint64_t)len + 4 + INLAY_DS - 1) / INLAY_DS);
			request &= at == d->ds;
			if (request && whole) {
				d->sge[n].addr = (uintptr_t)ring + begin;
				d->sge[n++].length = len < room ? len : (uint32_t)room;
				d->sge[n].addr = (uintptr_t)ring;
				d->sge[n].length = len < room ? 0 : len - (uint32_t)room;
				n += d->sge[n].length != 0;
			}
		} else {
			whole = inlay_decoded_add_(d, &at, INLAY_SEGMENT_DATA, 1);
			request &= w[0] != 0;
			d->sge[n].addr = (uint64_t)w[2] << 32 | w[3];
			d->sge[n].length = w[0];
			d->sge[n++].lkey = w[1];
		}
	}
	d->wr.sge = d->sge;
	d->wr.num_sge = n;
	if (d->opcode == MLX5_OPCODE_NOP)
		request &= d->ds == 1;
	else
		request &= (send || (raddr && !atomic)) && inlay_post_fits_(type, d->opcode, d->wr.to != NULL);
	d->is_request = request && whole;
	if (d->is_request && inlined)
		d->flags |= INLAY_INLINE;
	return whole ? (int)(d->ds + 3) / 4 : -EPROTO;
}

INLAY_CASTS_END_
#endif
