/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/wqe/av.h: destinations, which follow the control segment: address vectors of UD QPs and
 * DCIs, and the shared receive queue that an XRC QP sends to.
 *
 *   inlay_av_init(&av, &ah_av, qpn, qkey);          once per peer
 *   at = inlay_seg_av(at, &av, inlay_av_ds(&av));   the first segment of each WQE to it
 *
 * A struct inlay_av has one of three forms:
 *
 *        0              8               12        14
 *   +0   | key          | ext, QPN/DCTN | sl, bits | LID |     compact: 16 bytes
 *   +16  | 4 bytes, MAC, GRH: class, hops, flow, GID     |     with a GRH: 48 bytes, ext is 1
 *
 *   +0   | SRQN, 12 bytes of 0                           |     XRC: 16 bytes
 *
 * A compact vector is for InfiniBand without a GRH, on devices with compact_address_vector
 * (devx/ifc.h). RoCE needs the MAC, hence 48 bytes.
 *
 * Threads: pure functions of their arguments. Sources: mlx5dv.h; libmlx5's set_datagram_seg,
 * mlx5_send_wr_set_dc_addr and wqe.h (XRC); UCX's uct_ib_mlx5_base_av_t; the PRM's "Address
 * Vector".
 */
#ifndef INLAY_WQE_AV_H
#define INLAY_WQE_AV_H /* names are stable until 1.0 */

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/wqe/segment.h>

INLAY_STATIC_ASSERT(sizeof(struct mlx5_wqe_av) == 48 && INLAY_AT_(mlx5_wqe_av, dqp_dct, 8) &&
		    INLAY_AT_(mlx5_wqe_av, stat_rate_sl, 12) && INLAY_AT_(mlx5_wqe_av, rlid, 14) &&
		    INLAY_AT_(mlx5_wqe_av, rmac, 20) && INLAY_AT_(mlx5_wqe_av, grh_gid_fl, 28) &&
		    INLAY_AT_(mlx5_wqe_av, rgid, 32), "address vector");

/*
 * A destination. Make one per peer, by a function below or, from an address handle, by
 * inlay_av_from_ah (verbs.h).
 */
struct inlay_av {
	struct mlx5_wqe_av av;
};

/*
 * Fills an address vector of 48 bytes (MLX5_EXTENDED_UD_AV), the same bytes as libmlx5's.
 *
 * from  path, MAC and GID: of an address handle (mlx5dv_ah.av), or the caller's own
 * qpn   the peer's QP, 24 bits; 0xffffff for a multicast group
 * qkey  the peer's; with bit 31 set the device sends the QP's own instead
 */
INLAY_FN void inlay_av_init(struct inlay_av *av, const struct mlx5_wqe_av *from, uint32_t qpn, uint32_t qkey)
{
	INLAY_CHECK(!(qpn >> 24), "a QPN has 24 bits");
	av->av = *from;
	av->av.dqp_dct = inlay_to_be32(qpn | MLX5_EXTENDED_UD_AV);
	av->av.key.qkey.qkey = inlay_to_be32(qkey);
}

/*
 * Turns an address vector, of inlay_av_from_ah (verbs.h) or inlay_av_init, into that of a DCT.
 * dctn: 24 bits; key: the DCT's access key, host order.
 */
INLAY_FN void inlay_av_to_dct(struct inlay_av *av, uint32_t dctn, uint64_t key)
{
	INLAY_CHECK(av, "no argument is NULL");
	INLAY_CHECK(!(dctn >> 24), "a DCTN has 24 bits");
	av->av.dqp_dct = inlay_to_be32(dctn | MLX5_EXTENDED_UD_AV);
	av->av.key.dc_key = inlay_to_be64(key);
}

/*
 * Fills the destination of an XRC QP, 16 bytes: the number of a shared receive queue
 * (ibv_get_srq_num).
 */
INLAY_ALWAYS void inlay_av_init_xrc(struct inlay_av *av, uint32_t srqn)
{
	INLAY_CHECK(av, "no argument is NULL");
	INLAY_CHECK(!(srqn >> 24), "an SRQN has 24 bits");
	inlay_put64(av, inlay_to_be32(srqn));
	inlay_put64((uint8_t *)av + 8, 0);
}

/* A destination's length in 16-byte units: 1 or 3. */
INLAY_ALWAYS uint32_t inlay_av_ds(const struct inlay_av *av)
{
	return ((const uint8_t *)av)[8] & MLX5_EXTENDED_UD_AV >> 24 ? 3 : 1;
}

/* Returns av, and promises the compiler a vector of 48 bytes: UD, and DC on RoCE. */
INLAY_ALWAYS const struct inlay_av *inlay_av_long(const struct inlay_av *av)
{
	INLAY_CHECK(av && inlay_av_ds(av) == 3, "the destination has 48 bytes");
	if (!av || inlay_av_ds(av) != 3)
		__builtin_unreachable();
	return av;
}

/*
 * Appends a destination, the first segment of its WQE. units: inlay_av_ds(av), or 1 or 3 where the
 * caller knows it; constants fold.
 */
INLAY_ALWAYS struct inlay_cursor inlay_seg_av(struct inlay_cursor c, const struct inlay_av *av, uint32_t units)
{
	uint64_t half[2];

	INLAY_CHECK(c.ds == 1, "an address vector follows the control segment");
	INLAY_CHECK(units == inlay_av_ds(av), "the destination has as many units");
	if (units == 1) {
		/* Word by word, so that a vector just made stays in registers. */
		__builtin_memcpy(&half[0], av, 8);
		__builtin_memcpy(&half[1], (const uint8_t *)av + 8, 8);
		inlay_put64(c.at, half[0]);
		inlay_put64(c.at + 8, half[1]);
	} else {
		__builtin_memcpy(c.at, av, sizeof(*av));
	}
	c.at += units * INLAY_DS;
	c.ds += units;
	return c;
}

INLAY_CASTS_END_
#endif
