/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/wqe/av.h: address vectors, which name a datagram's receiver.
 *
 *   inlay_av_init(&av, &ah_av, qpn, qkey);          once per peer
 *   at = inlay_seg_av(at, &av);                     the first segment of each WQE to it
 *
 * Threads: pure functions of their arguments. Sources: mlx5dv.h; libmlx5's set_datagram_seg.
 */
#ifndef INLAY_WQE_AV_H
#define INLAY_WQE_AV_H

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
#include <inlay/wqe/segment.h>

INLAY_STATIC_ASSERT(sizeof(struct mlx5_wqe_av) == 48 && INLAY_AT_(mlx5_wqe_av, dqp_dct, 8) &&
		    INLAY_AT_(mlx5_wqe_av, stat_rate_sl, 12) && INLAY_AT_(mlx5_wqe_av, rlid, 14) &&
		    INLAY_AT_(mlx5_wqe_av, rmac, 20) && INLAY_AT_(mlx5_wqe_av, grh_gid_fl, 28) &&
		    INLAY_AT_(mlx5_wqe_av, rgid, 32), "address vector");

/*
 * A datagram's address vector. Make one per peer, with inlay_av_init or, from an address handle,
 * with inlay_av_from_ah (verbs.h).
 */
struct inlay_av {
	struct mlx5_wqe_av av;
};

/*
 * Fills an address vector. Same bytes as libmlx5's, in the long form (MLX5_EXTENDED_UD_AV).
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

/* Appends an address vector, the first segment of a UD WQE. */
INLAY_ALWAYS struct inlay_cursor inlay_seg_av(struct inlay_cursor c, const struct inlay_av *av)
{
	INLAY_CHECK(c.ds == 1, "an address vector follows the control segment");
	__builtin_memcpy(c.at, av, sizeof(*av));
	c.at += sizeof(*av);
	c.ds += sizeof(*av) / INLAY_DS;
	return c;
}

#endif
