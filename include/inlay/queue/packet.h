/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/packet.h: posting Ethernet packets to the send queue of a raw packet QP
 * (IBV_QPT_RAW_PACKET), or to an SQ that the caller made by device commands (inlay_sq_init).
 *
 *   struct inlay_eth eth = inlay_eth_csum(INLAY_CSUM_L3 | INLAY_CSUM_L4);
 *
 *   inlay_post_packet(&sq, eth, &sge, 1, flags);                         one packet, in any pieces
 *   inlay_post_tso(&sq, inlay_eth_mss(eth, 1460), hdr, 54, &sge, 1, 0);  one that the device segments
 *   n = inlay_post_packets(&sq, eth, sges, 32, flags);                   a burst, one piece each
 *   n = inlay_post_packets_multi(&sq, eth, sges, 32, flags);             the same in one WQE
 *
 * A packet begins with its MAC addresses and ends without its FCS. What the device does to it is in
 * `eth` (wqe/eth.h). INLAY_RING, INLAY_INLINE and INLAY_SIGNALED are as in post.h; a raw packet has
 * no peer, so the other flags mean nothing.
 *
 * Inline header. A device may need the first 18 bytes of each packet inline. The posts then copy them
 * from the SGEs, which must be readable. inlay_sq_from_qp queries the device.
 *
 * Threads: one owner of the queue at a time. Sources: libmlx5's _mlx5_post_send, mlx5_send_wr_send_eth
 * and mlx5_send_wr_send_tso; DPDK's mlx5_tx.h for multi-packet WQEs.
 */
#ifndef INLAY_QUEUE_PACKET_H
#define INLAY_QUEUE_PACKET_H /* a trial: names may change */

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/wqe.h>
#include <inlay/wqe/eth.h>
#include <inlay/queue/post.h>
#include <inlay/queue/sq.h>

/* Bytes of each packet that the device needs inline, 0 or 18. inlay_post_packet copies them. */
INLAY_FN uint32_t inlay_sq_min_inline(const struct inlay_sq *sq)
{
	return sq->min_inline;
}

INLAY_ALWAYS void inlay_packet_check_(const struct inlay_sq *sq, const struct ibv_sge *sge, uint32_t num_sge)
{
	INLAY_CHECK(sq, "the queue is not NULL");
	INLAY_CHECK(sge || !num_sge, "sge is not NULL unless num_sge is 0");
	INLAY_CHECK(inlay_post_fits_(sq->type, MLX5_OPCODE_TSO, 0), "the QP's type has the operation");
}

/*
 * A packet of any form. what: flags and opcode. hdr: its first hdr_len bytes, which hold `skip` bytes
 * of its SGEs.
 */
INLAY_ALWAYS int inlay_packet_build_(struct inlay_sq *sq, struct inlay_eth eth, const void *hdr, uint32_t hdr_len,
				     uint32_t skip, const struct ibv_sge *sge, uint32_t num_sge, uint32_t what)
{
	uint32_t ds = 1 + inlay_seg_eth_ds_(hdr_len), flags = what & INLAY_POST_FLAGS_, first = 0, i;
	struct inlay_cursor at;
	uint64_t total = 0;
	int err;

	if (num_sge > INLAY_MAX_DS)
		return -EINVAL;
	while (first < num_sge && skip >= sge[first].length)
		skip -= sge[first++].length;
	for (i = first; i < num_sge; i++) {
		total += sge[i].length;
		ds += !(flags & INLAY_INLINE) && sge[i].length;
	}
	total -= skip;
	if (INLAY_UNLIKELY(total > INLAY_MAX_DS * INLAY_DS && flags & INLAY_INLINE))
		return -EINVAL;
	/* Nothing is left only of a packet that is all header. */
	if (INLAY_UNLIKELY(!total && (!hdr_len || (uint8_t)what == MLX5_OPCODE_TSO)))
		return -EINVAL;
	if (flags & INLAY_INLINE)
		ds += inlay_seg_inline_ds(total);
	err = inlay_sq_begin_ds(sq, ds, &at);
	if (err)
		return err;
	at = inlay_seg_eth(at, eth, hdr, hdr_len);
	if (flags & INLAY_INLINE && total) {
		uint8_t *p;

		at = inlay_seg_inline_open(at, (uint32_t)total, 0, &p);
		for (i = first; i < num_sge; i++, skip = 0)
			at = inlay_seg_inline_append(at, (const uint8_t *)(uintptr_t)sge[i].addr + skip,
						     sge[i].length - skip);
	} else if (first < num_sge && total) {
		at = inlay_seg_data(at, sge[first].addr + skip, sge[first].length - skip, sge[first].lkey);
		at = inlay_seg_sges(at, sge + first + 1, num_sge - first - 1);
	}
	return inlay_sq_finish_(sq, at, (uint8_t)what, 0, flags, 0);
}

INLAY_APART int inlay_packet_sges_(struct inlay_sq *sq, struct inlay_eth eth, const struct ibv_sge *sge,
				   uint32_t num_sge, uint32_t flags)
{
	uint32_t what = (flags & INLAY_POST_FLAGS_) | MLX5_OPCODE_SEND, have = 0, n, i;
	uint8_t hdr[INLAY_L2_INLINE];

	if (!sq->min_inline)
		return inlay_packet_build_(sq, eth, NULL, 0, 0, sge, num_sge, what);
	for (i = 0; i < num_sge; i++)
		for (n = 0; n < sge[i].length && have < INLAY_L2_INLINE; n++) {
			hdr[have++] = ((const uint8_t *)(uintptr_t)sge[i].addr)[n];
			__asm__ volatile("" ::: "memory"); /* else clang calls memcpy */
		}
	/* The tag that the device would insert has no place beside an inline header. */
	if (have < INLAY_L2_INLINE || inlay_eth_has_vlan_(eth))
		return -EINVAL;
	return inlay_packet_build_(sq, eth, hdr, INLAY_L2_INLINE, INLAY_L2_INLINE, sge, num_sge, what);
}

/*
 * Sends a packet.
 *
 *   +0   ctrl    opcode 0x0a
 *   +16  eth     checksums, VLAN tag, metadata; the first 18 bytes if the device wants them
 *   +32  data    one per SGE that is not empty, or the packet itself
 *
 * eth    what the device does to it
 * sge    num_sge pieces of the packet, host order; empty ones are left out
 * flags  INLAY_SIGNALED | INLAY_INLINE | INLAY_RING
 *
 * Returns 0; -EAGAIN when the ring has no room; -E2BIG when the WQE is larger than the ring; -EINVAL
 * when it is longer than the QP's longest, for an empty packet, and on a device that wants a header
 * inline for one of less than 18 bytes or with a VLAN tag to insert. Same bytes as IBV_WR_SEND of a
 * raw packet QP; IBV_SEND_IP_CSUM is INLAY_CSUM_L3 | INLAY_CSUM_L4.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_packet(struct inlay_sq *sq, struct inlay_eth eth, const struct ibv_sge *sge,
				   uint32_t num_sge, uint32_t flags)
{
	struct inlay_cursor at;
	int err;

	inlay_packet_check_(sq, sge, num_sge);
	inlay_flags_check_(flags);
	if (!(INLAY_KNOWN_(num_sge) && num_sge == 1) || flags & INLAY_INLINE ||
	    INLAY_UNLIKELY(sq->min_inline || !sge->length))
		return inlay_packet_sges_(sq, eth, sge, num_sge, flags);
	err = inlay_sq_begin(sq, 1, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	at = inlay_seg_eth(at, eth, NULL, 0);
	at = inlay_seg_data(at, sge->addr, sge->length, sge->lkey);
	return inlay_sq_finish_(sq, at, MLX5_OPCODE_SEND, 0, flags, 0);
}

/*
 * Sends a TCP packet that the device cuts into segments.
 *
 *   +0   ctrl    opcode 0x0e
 *   +16  eth     checksums, mss | the headers ...
 *   +..  data    one per SGE that is not empty, or the payload itself
 *
 * eth      with inlay_eth_mss and checksums, without a tag to insert: put it into hdr
 * hdr      Ethernet, IP and TCP headers, hdr_len bytes, 14 .. 255: the first segment's headers; the
 *          IPv4 length is ignored
 * sge      num_sge pieces of the payload; not all empty
 * flags    INLAY_SIGNALED | INLAY_INLINE | INLAY_RING
 *
 * Returns as inlay_post_packet, and -EINVAL for a header of another length or a tag to insert. Same
 * bytes as IBV_WR_TSO; verbs limits the header to max_tso_header, inlay to the QP's longest WQE.
 */
INLAY_APART INLAY_RESULT int inlay_post_tso(struct inlay_sq *sq, struct inlay_eth eth, const void *hdr, uint32_t hdr_len,
			       const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	inlay_packet_check_(sq, sge, num_sge);
	INLAY_CHECK(inlay_flags_ok_(flags), "flags are INLAY_*, not IBV_SEND_*, with one fence at most");
	INLAY_CHECK(eth.first & inlay_to_be64(0xffff), "the segments' size is given by inlay_eth_mss");
	if (hdr_len < 14 || hdr_len > 255 || inlay_eth_has_vlan_(eth))
		return -EINVAL;
	return inlay_packet_build_(sq, eth, hdr, hdr_len, 0, sge, num_sge, (flags & INLAY_POST_FLAGS_) | MLX5_OPCODE_TSO);
}

/* The end of a burst: its last WQE is signaled if asked for, and everything is rung for. */
INLAY_ALWAYS void inlay_packets_end_(struct inlay_sq *sq, uint32_t flags)
{
	sq->last[11] = (uint8_t)((flags & INLAY_SIGNALED) >> 24);
	if (flags & INLAY_RING)
		inlay_sq_ring_doorbell(sq);
}

INLAY_APART int inlay_packets_l2_(struct inlay_sq *sq, struct inlay_eth eth, const struct ibv_sge *sge, uint32_t n,
				  uint32_t flags)
{
	uint32_t i;
	int err = 0;

	for (i = 0; i < n && !err; i += !err)
		err = inlay_packet_sges_(sq, eth, sge + i, 1, flags & INLAY_INLINE);
	if (!i)
		return err;
	inlay_packets_end_(sq, flags);
	return (int)i;
}

/*
 * Sends a burst of packets of one SGE each, a WQE each, with the queue's state in registers and one
 * 8-byte doorbell.
 *
 * sge    n packets, none of them empty
 * flags  INLAY_SIGNALED: the burst's last WQE. INLAY_RING: rings once, for these and all before them
 *
 * Returns how many were posted, from the first on: fewer than n when the ring has no room for more,
 * -EAGAIN when it has none at all; with n 0, 0. With fewer than n the last one posted is signaled.
 * Otherwise as inlay_post_packet, whose bytes these are.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_packets(struct inlay_sq *sq, struct inlay_eth eth, const struct ibv_sge *sge, uint32_t n,
				    uint32_t flags)
{
	uint32_t room, i, index, mask;
	uint8_t *wqe = NULL, *buf;
	uint64_t qpn8;

	inlay_packet_check_(sq, sge, n);
	inlay_flags_check_(flags);
	if (flags & INLAY_INLINE || INLAY_UNLIKELY(sq->min_inline))
		return inlay_packets_l2_(sq, eth, sge, n, flags);
	room = inlay_sq_room(sq);
	INLAY_CHECK(sq->uar, "the queue is attached to a register");
	INLAY_PROBE_IF_(room < n, full, (uint32_t)(sq->qpn8 >> 8), sq->pending, n);
	if (INLAY_UNLIKELY(!room || !n))
		return n ? -EAGAIN : 0;
	n = n < room ? n : room;
	/* Variables of their own: for all that the compiler knows, stores to the ring change the queue. */
	index = sq->pi;
	mask = sq->mask;
	buf = sq->buf;
	qpn8 = sq->qpn8;
	for (i = 0; i < n; i++, index++) {
		INLAY_CHECK(sge[i].length, "a packet is not empty");
		wqe = buf + (size_t)(index & mask) * INLAY_WQEBB;
		inlay_wqe_ctrl(wqe, index, MLX5_OPCODE_SEND, qpn8, 3, 0, 0);
		inlay_put64(wqe + 16, eth.first);
		inlay_put64(wqe + 24, eth.second);
		inlay_wqe_data(wqe + 32, sge[i].addr, sge[i].length, sge[i].lkey);
		INLAY_PROBE_(post, (uint32_t)(qpn8 >> 8), index, (uint32_t)MLX5_OPCODE_SEND);
	}
	sq->pi = index;
	sq->pending += n;
	sq->unrung += n;
	sq->copy_max = 0;
	sq->last = wqe;
	sq->last_ds = 3;
	inlay_packets_end_(sq, flags);
	return (int)n;
}

/*
 * As inlay_post_packets, in as few multi-packet WQEs as possible: a packet takes 16 bytes of the
 * ring, and the device fetches four with one read.
 *
 *   +0   ctrl    opcode 0x29
 *   +16  eth     checksums, metadata: the same for all
 *   +32  data    one per packet; or with INLAY_INLINE the packets themselves, each padded to 16 bytes
 *
 * Returns as inlay_post_packets; -ENOTSUP when the device has no such WQE, for a VLAN tag to insert,
 * and without INLAY_INLINE on a device that wants a header inline; with INLAY_INLINE -EINVAL when
 * the first packet is longer than 924 bytes. There is no verbs opcode for it.
 */
INLAY_APART INLAY_RESULT int inlay_post_packets_multi(struct inlay_sq *sq, struct inlay_eth eth, const struct ibv_sge *sge,
					 uint32_t n, uint32_t flags)
{
	uint32_t done, k, i, ds, max, units, room = 0;
	struct inlay_cursor at;

	inlay_packet_check_(sq, sge, n);
	INLAY_CHECK(inlay_flags_ok_(flags), "flags are INLAY_*, not IBV_SEND_*, with one fence at most");
	for (k = 0; k < n; k++)
		INLAY_CHECK(sge[k].length, "a packet is not empty");
	if (INLAY_UNLIKELY(!sq->multi_packet || inlay_eth_has_vlan_(eth) || (sq->min_inline && !(flags & INLAY_INLINE))))
		return -ENOTSUP;
	for (done = 0; done < n; done += k) {
		room = inlay_sq_room(sq);
		max = room < INLAY_MULTI_PACKET_DS / 4 ? 4 * room : INLAY_MULTI_PACKET_DS;
		INLAY_PROBE_IF_(!room, full, (uint32_t)(sq->qpn8 >> 8), sq->pending, n - done);
		if (!room)
			break;
		ds = 2;
		if (flags & INLAY_INLINE) {
			for (k = 0; k < n - done; k++, ds += units) {
				units = inlay_seg_inline_ds(sge[done + k].length);
				if (units > max - ds)
					break;
			}
			if (!k)
				break;
		} else {
			k = n - done < max - 2 ? n - done : max - 2;
			ds += k;
		}
		at = inlay_sq_begin_counted(sq, (ds + 3) / 4);
		at = inlay_seg_eth(at, eth, NULL, 0);
		if (flags & INLAY_INLINE) {
			for (i = 0; i < k; i++)
				at = inlay_seg_inline(at, (const void *)(uintptr_t)sge[done + i].addr,
						      sge[done + i].length);
		} else {
			at = inlay_seg_sges(at, sge + done, k);
		}
		inlay_sq_commit(sq, at, INLAY_OPCODE_MULTI_PACKET, 0, 0, 0);
	}
	if (done)
		inlay_packets_end_(sq, flags);
	if (done || !n)
		return (int)done;
	ds = flags & INLAY_INLINE ? 2 + inlay_seg_inline_ds(sge[0].length) : 3;
	if (ds > INLAY_MULTI_PACKET_DS)
		return -EINVAL;
	return ds > 4 * inlay_sq_size(sq) ? -E2BIG : -EAGAIN;
}

INLAY_CASTS_END_
#endif
