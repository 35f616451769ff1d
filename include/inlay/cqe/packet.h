/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/cqe/packet.h: what the completion of an Ethernet packet says of it.
 *
 *   if (inlay_cqe_checks(cqe) & MLX5_CQE_L4_OK) ...          the device has checked the checksum
 *   if ((tag = inlay_cqe_vlan(cqe)) >= 0)
 *           vid = tag & 0xfff;
 *   flow = inlay_cqe_rss_hash(cqe);
 *
 * What a compressed CQE does not carry itself is that of the block's title: see enum
 * inlay_mini_format.
 *
 * Threads: pure functions of their arguments. Sources: as cqe.h.
 */
#ifndef INLAY_CQE_PACKET_H
#define INLAY_CQE_PACKET_H /* a trial: names may change */

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/cqe.h>

/* The type of the L4 header: inlay_cqe_l4_type. */
enum inlay_l4_type {
	INLAY_L4_NONE,     /* none that the device knows */
	INLAY_L4_TCP,      /* without ACK */
	INLAY_L4_UDP,
	INLAY_L4_TCP_ACK,  /* without data */
	INLAY_L4_TCP_DATA, /* with ACK and data */
};

/* What an RSS hash is of: inlay_cqe_rss_type. An IP part, or'ed to an L4 part. */
enum inlay_rss_type {
	INLAY_RSS_IPV4 = 1 << 2,
	INLAY_RSS_IPV6 = 2 << 2,
	INLAY_RSS_TCP = 1 << 6,
	INLAY_RSS_UDP = 2 << 6,
	INLAY_RSS_SPI = 3 << 6, /* of IPsec */
};

/*
 * The tag of the flow rule that the packet matched (ibv_wc_read_flow_tag).
 */
INLAY_FN uint32_t inlay_cqe_flow_tag(const struct mlx5_cqe64 *cqe)
{
	return inlay_from_be32(cqe->sop_drop_qpn) & 0xffffff;
}

/*
 * The checks that the packet passed: MLX5_CQE_L2_OK | MLX5_CQE_L3_OK (IPv4 header) | MLX5_CQE_L4_OK
 * (TCP, UDP). A missing one failed, or the device does not know the header. IBV_WC_IP_CSUM_OK is L3
 * and L4 of an IPv4 packet.
 */
INLAY_FN uint8_t inlay_cqe_checks(const struct mlx5_cqe64 *cqe)
{
	return cqe->hds_ip_ext & (MLX5_CQE_L2_OK | MLX5_CQE_L3_OK | MLX5_CQE_L4_OK);
}

/* The ones' complement sum of everything after the Ethernet header and its tags, not inverted. */
INLAY_FN uint16_t inlay_cqe_checksum(const struct mlx5_cqe64 *cqe)
{
	uint16_t sum;

	__builtin_memcpy(&sum, (const uint8_t *)cqe + INLAY_CQE_CSUM_, sizeof(sum));
	return inlay_from_be16(sum);
}

/*
 * The VLAN tag that a queue with CVLAN stripping took out: priority << 13 | DEI << 12 | VLAN id
 * (ibv_wc_read_cvlan). -ENOENT: the packet had none.
 */
INLAY_FN int inlay_cqe_vlan(const struct mlx5_cqe64 *cqe)
{
	return cqe->l4_hdr_type_etc & 1 ? inlay_from_be16(cqe->vlan_info) : -ENOENT;
}

/* The L3 header: MLX5_CQE_L3_HDR_TYPE_*. Of a tunneled packet the inner one, as for L4. */
INLAY_FN uint8_t inlay_cqe_l3_type(const struct mlx5_cqe64 *cqe)
{
	return cqe->l4_hdr_type_etc >> 2 & 3;
}

/* The L4 header: enum inlay_l4_type. */
INLAY_FN uint8_t inlay_cqe_l4_type(const struct mlx5_cqe64 *cqe)
{
	return cqe->l4_hdr_type_etc >> 4 & 7;
}

/* The hash by which RSS chose the queue; see inlay_cqe_rss_type. */
INLAY_FN uint32_t inlay_cqe_rss_hash(const struct mlx5_cqe64 *cqe)
{
	uint32_t hash;

	__builtin_memcpy(&hash, (const uint8_t *)cqe + INLAY_CQE_HASH_, sizeof(hash));
	return inlay_from_be32(hash);
}

/* The headers that were hashed: enum inlay_rss_type; 0 if there is no hash. */
INLAY_FN uint8_t inlay_cqe_rss_type(const struct mlx5_cqe64 *cqe)
{
	return ((const uint8_t *)cqe)[INLAY_CQE_HASH_TYPE_] & (INLAY_RSS_IPV4 | INLAY_RSS_IPV6 | INLAY_RSS_SPI);
}

INLAY_CASTS_END_
#endif
