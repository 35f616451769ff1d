/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/cqe/signature.h: what a CQE of opcode MLX5_CQE_SIG_ERR says: a wrong block signature in a
 * transfer through a key of inlay_post_umr_sig.
 *
 * Threads: pure functions of their arguments. Sources: libmlx5's cq.c (get_sig_err_info).
 */
#ifndef INLAY_CQE_SIGNATURE_H
#define INLAY_CQE_SIGNATURE_H /* a trial: names may change */

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/cqe.h>

/* Values are left-aligned. */
struct inlay_sig_error {
	uint32_t key;      /* through which the data went */
	uint32_t qpn;
	uint32_t kind;     /* enum mlx5dv_mkey_err_type: guard (or CRC), reference tag, application tag */
	uint32_t memory;   /* 1: in memory, 0: on the wire */
	uint64_t found;    /* T10-DIF: guard << 48 | application tag << 32 | reference tag; CRC-32: << 32 */
	uint64_t computed; /* from the data, or what the key was told */
	uint64_t offset;   /* of the block, in bytes of the transfer with signatures */
};

/*
 * Decodes a signature error. The transfer itself goes on and has a completion of its own, which
 * comes later; this CQE returns no credit. Returns 1, or 0 for any other CQE and leaves *error alone.
 */
INLAY_COLD int inlay_cqe_sig_error(const struct mlx5_cqe64 *cqe, struct inlay_sig_error *error)
{
	uint32_t w[16];

	if (cqe->op_own >> 4 != MLX5_CQE_SIG_ERR)
		return 0;
	__builtin_memcpy(w, cqe, sizeof(w));
	error->found = (uint64_t)inlay_from_be32(w[4]) << 32 | inlay_from_be32(w[6]);
	error->computed = (uint64_t)inlay_from_be32(w[5]) << 32 | inlay_from_be32(w[7]);
	error->kind = inlay_from_be32(w[8]) & 1u << 27 ? MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG :
		      inlay_from_be32(w[8]) & 1u << 28 ? MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG :
							 MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD;
	error->memory = inlay_from_be32(w[8]) & 7;
	error->key = inlay_from_be32(w[9]);
	error->offset = (uint64_t)inlay_from_be32(w[10]) << 32 | inlay_from_be32(w[11]);
	error->qpn = inlay_from_be32(w[14]) & 0xffffff;
	return 1;
}

INLAY_CASTS_END_
#endif
