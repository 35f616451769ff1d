/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/dm.h: device memory (MEMIC): a few hundred kilobytes inside the NIC, which RDMA reaches without crossing PCIe, and which the CPU
 * reaches through a mapping. For counters, flags and small records that the network hits often and the CPU seldom.
 *
 *   attr.length = 4096;
 *   ibdm = ibv_alloc_dm(context, &attr);
 *   mr = ibv_reg_dm_mr(pd, ibdm, 0, 4096, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
 *   inlay_dm_from_dm(&dm, ibdm);
 *   inlay_dm_write(&dm, 64, &value, 8);                          the CPU's way; RDMA's: address 64 with mr's key
 *
 * The device takes accesses of 4 aligned bytes: neither offset nor length may be otherwise, and what is longer than 4 bytes may be
 * seen half written by the network. The mapping is write-combining: writes linger, merge and change places on their way, and nothing is
 * certain to have arrived before inlay_fence_reg() (base.h), which belongs between data and the flag that announces it, and behind the
 * flag. Reading costs a round trip over PCIe for every 4 bytes.
 *
 * Threads: the caller orders accesses to the same bytes.
 * Sources: ibv_alloc_dm(3), mlx5dv_init_obj(3), libmlx5's mlx5_access_dm (verbs.c).
 */
#ifndef INLAY_DM_H
#define INLAY_DM_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>

typedef uint32_t inlay_dm_word __attribute__((may_alias));

struct inlay_dm {
	volatile inlay_dm_word *buf;
	uint64_t length; /* bytes */
};

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up
 */

/*
 * Takes over device memory. ibv_memcpy_to_dm and ibv_memcpy_from_dm may be used beside it.
 *
 * Returns 0; -ENOTSUP when it is not of an mlx5 device, or has no mapping; else the negative errno of mlx5dv_init_obj.
 */
INLAY_COLD int inlay_dm_from_dm(struct inlay_dm *dm, struct ibv_dm *ibdm)
{
	struct mlx5dv_dm dv;
	struct mlx5dv_obj obj;
	int err;

	if (!mlx5dv_is_supported(ibdm->context->device))
		return -ENOTSUP;
	__builtin_memset(&obj, 0, sizeof(obj));
	__builtin_memset(&dv, 0, sizeof(dv));
	obj.dm.in = ibdm;
	obj.dm.out = &dv;
	err = mlx5dv_init_obj(&obj, MLX5DV_OBJ_DM);
	if (err)
		return -err;
	if (!dv.buf)
		return -ENOTSUP;
	dm->buf = (volatile inlay_dm_word *)dv.buf;
	dm->length = dv.length;
	return 0;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path
 */

/* 0 when [offset, offset + len) lies inside and on words; -EINVAL off words, -EFAULT beyond the end. */
INLAY_FN int inlay_dm_check(const struct inlay_dm *dm, uint64_t offset, uint64_t len)
{
	if (INLAY_UNLIKELY((offset | len) & 3))
		return -EINVAL;
	return INLAY_UNLIKELY(offset > dm->length || len > dm->length - offset) ? -EFAULT : 0;
}

/*
 * Writes len bytes at offset, both multiples of 4, from memory of any alignment. Returns 0; -EINVAL for another offset or length; -EFAULT
 * beyond the end. As ibv_memcpy_to_dm: where it has arrived only inlay_fence_reg_full() tells.
 */
INLAY_FN int inlay_dm_write(const struct inlay_dm *dm, uint64_t offset, const void *from, uint64_t len)
{
	int err = inlay_dm_check(dm, offset, len);
	uint64_t i;

	for (i = 0; !err && i < len / 4; i++) {
		uint32_t word;

		__builtin_memcpy(&word, (const uint8_t *)from + 4 * i, 4);
		dm->buf[offset / 4 + i] = word;
	}
	return err;
}

/* Reads, likewise. As ibv_memcpy_from_dm. */
INLAY_FN int inlay_dm_read(const struct inlay_dm *dm, uint64_t offset, void *to, uint64_t len)
{
	int err = inlay_dm_check(dm, offset, len);
	uint64_t i;

	for (i = 0; !err && i < len / 4; i++) {
		uint32_t word = dm->buf[offset / 4 + i];

		__builtin_memcpy((uint8_t *)to + 4 * i, &word, 4);
	}
	return err;
}

#endif
