/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/wqe/eth.h: the Ethernet segment of raw packets: checksums, VLAN tag, segmentation,
 * inline headers.
 *
 *   struct inlay_eth eth = inlay_eth_csum(INLAY_CSUM_L3 | INLAY_CSUM_L4);   what the device does to a packet
 *   eth = inlay_eth_vlan(eth, tci, 0);                                      and a tag that it inserts
 *   at = inlay_seg_eth(at, eth, NULL, 0);                                   the first segment of each WQE
 *   at = inlay_seg_data(at, addr, len, lkey);                               the packet, from its MAC addresses on
 *
 *        0          2         4        5         6     8        10       12          14
 *   +16  | outer L4 L3 inner L4 L3 | checks | parsed | mss | metadata    | header size | header
 *        |                                                               | or VLAN type| or tag
 *   +32  | rest of the inline header, padded to 16 bytes ...                            wraps at the ring's end
 *
 * A multi-packet WQE (INLAY_OPCODE_MULTI_PACKET) carries many packets, one data or inline segment
 * each, after one Ethernet segment without header or tag; inlay_post_packets_multi builds it.
 *
 * An inline header and an inserted VLAN tag share a field: a WQE has one or the other.
 *
 * Threads: pure functions of their arguments. Sources: mlx5dv.h; Linux include/linux/mlx5/qp.h for
 * what mlx5dv.h does not name; libmlx5's set_tso_eth_seg, DPDK's mlx5_prm.h.
 */
#ifndef INLAY_WQE_ETH_H
#define INLAY_WQE_ETH_H /* names are stable until 1.0 */

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/wqe/segment.h>

/*
 * Checksums that the device computes, whatever the packet holds in their place. IBV_SEND_IP_CSUM is
 * L3 and L4. The inner ones are for tunnels that the device knows.
 */
#define INLAY_CSUM_INNER_L3 (1u << 4)
#define INLAY_CSUM_INNER_L4 (1u << 5)
#define INLAY_CSUM_L3 (1u << 6)  /* IPv4 header */
#define INLAY_CSUM_L4 (1u << 7)  /* TCP, UDP */

#define INLAY_OPCODE_MULTI_PACKET 0x29u /* enhanced multi-packet send */
#define INLAY_MULTI_PACKET_DS 60u       /* its longest WQE, in 16-byte units, as other drivers build it */
#define INLAY_L2_INLINE 18u             /* bytes: an Ethernet header with a VLAN tag */

#define INLAY_ETH_VLAN_ (1u << 15)
#define INLAY_ETH_SVLAN_ 1u

INLAY_STATIC_ASSERT(sizeof(struct mlx5_wqe_eth_seg) == 32 && INLAY_AT_(mlx5_wqe_eth_seg, cs_flags, 4) &&
		    INLAY_AT_(mlx5_wqe_eth_seg, mss, 6) && INLAY_AT_(mlx5_wqe_eth_seg, inline_hdr_sz, 12) &&
		    INLAY_AT_(mlx5_wqe_eth_seg, inline_hdr_start, 14) && INLAY_AT_(mlx5_wqe_eth_seg, inline_hdr, 16) &&
		    INLAY_CSUM_L3 == MLX5_ETH_WQE_L3_CSUM && INLAY_CSUM_L4 == MLX5_ETH_WQE_L4_CSUM, "Ethernet segment");

/*
 * The 16 bytes of an Ethernet segment, as two big-endian words, passed by value. One serves all
 * packets that are treated alike.
 */
struct inlay_eth {
	uint64_t first;
	uint64_t second;
};

/* A segment with checksums: INLAY_CSUM_*, or 0. The functions below set a field each. */
INLAY_ALWAYS struct inlay_eth inlay_eth_csum(uint32_t csum)
{
	struct inlay_eth eth = {inlay_to_be64((uint64_t)csum << 24), 0};

	INLAY_CHECK(!(csum & ~0xf0u), "checksum flags are INLAY_CSUM_*");
	return eth;
}

/* word with the bits of mask taken from value; mask and value in host order. */
INLAY_ALWAYS uint64_t inlay_eth_set_(uint64_t word, uint64_t mask, uint64_t value)
{
	return (word & ~inlay_to_be64(mask)) | inlay_to_be64(value);
}

/*
 * Has the device insert a VLAN tag after the MAC addresses. Not in multi-packet WQEs, nor in TSO.
 *
 * tci      priority and VLAN, 16 bits
 * service  1: the tag's type is 0x88a8, else 0x8100
 */
INLAY_ALWAYS struct inlay_eth inlay_eth_vlan(struct inlay_eth eth, uint32_t tci, uint32_t service)
{
	INLAY_CHECK(!(tci >> 16) && service < 2, "a tag has 16 bits, and one of two types");
	eth.second = inlay_eth_set_(eth.second, 0xffffffff, (INLAY_ETH_VLAN_ | (service ? INLAY_ETH_SVLAN_ : 0)) << 16 | tci);
	return eth;
}

INLAY_ALWAYS int inlay_eth_has_vlan_(struct inlay_eth eth)
{
	return (eth.second & inlay_to_be64(0xffffffff)) != 0;
}

/*
 * Has the device cut the payload into segments of mss bytes, 1 .. 16383, each after a copy of the
 * WQE's inline header with its own lengths, IPv4 id, TCP sequence number and flags. For
 * inlay_post_tso. Ask for checksums too: the caller cannot compute those of each segment.
 */
INLAY_ALWAYS struct inlay_eth inlay_eth_mss(struct inlay_eth eth, uint32_t mss)
{
	INLAY_CHECK(mss && mss < 16384, "a segment has 1 to 16383 bytes");
	eth.first = inlay_eth_set_(eth.first, 0xffff, mss);
	return eth;
}

/* 16-byte units of an Ethernet segment with an inline header of len bytes. */
INLAY_ALWAYS uint32_t inlay_seg_eth_ds_(uint32_t len)
{
	return 1 + (len > 2 ? (len - 2 + INLAY_DS - 1) / INLAY_DS : 0);
}

/*
 * Appends an Ethernet segment, the first of a raw packet's WQE.
 *
 * hdr  the packet's first len bytes, which the segments that follow do not repeat; NULL for len 0.
 *      A device may need 18 (INLAY_L2_INLINE): see inlay_sq_min_inline. Segmentation needs all
 *      headers
 * len  0, or 14 .. 255
 */
INLAY_ALWAYS struct inlay_cursor inlay_seg_eth(struct inlay_cursor c, struct inlay_eth eth, const void *hdr,
					       uint32_t len)
{
	uint32_t units = inlay_seg_eth_ds_(len);
	uint8_t *seg = c.at;

	INLAY_CHECK(c.ds == 1, "an Ethernet segment follows the control segment");
	INLAY_CHECK(!len || (hdr && len >= 14 && len < 256), "an inline header has 14 to 255 bytes, or none");
	INLAY_CHECK(!len || !inlay_eth_has_vlan_(eth), "an inline header or an inserted tag");
	INLAY_CHECK(c.ds + units <= 4 * (size_t)c.bbs, "a WQE has no more WQEBBs than it was begun with");
	inlay_put64(seg, eth.first);
	inlay_put64(seg + 8, eth.second | (len ? inlay_to_be64((uint64_t)len << 16) : 0));
	if (len) {
		/* libmlx5 clears the header's first 18 bytes, whatever its length. */
		inlay_put64(seg + 16, 0);
		inlay_put64(seg + 24, 0);
		if (INLAY_KNOWN_(len) && len <= INLAY_L2_INLINE)
			inlay_copy(seg + 14, hdr, len);
		else
			inlay_copy_wrap_(c, seg + 14, hdr, len);
	}
	c.at = seg + units * INLAY_DS;
	if (units > 3 && INLAY_UNLIKELY(c.at > c.end))
		c.at -= c.end - c.begin;
	c.ds += units;
	return c;
}

INLAY_CASTS_END_
#endif
