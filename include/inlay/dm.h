/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/dm.h: device memory (MEMIC), a few hundred kilobytes inside the NIC. RDMA reaches it
 * without crossing PCIe; the CPU reaches it through a mapping. Use it for counters, flags and small
 * records that the network accesses often and the CPU seldom.
 *
 *   attr.length = 4096;
 *   ibdm = ibv_alloc_dm(context, &attr);
 *   mr = ibv_reg_dm_mr(pd, ibdm, 0, 4096, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_ATOMIC | ...);
 *   inlay_dm_from_dm(&dm, ibdm, &why);
 *   inlay_dm_write(&dm, 64, &value, 8);              for RDMA, this is address 64 with mr's key
 *
 * Invariants:
 *   - The CPU accesses 4-byte words, so offset and length are multiples of 4. The network may see a
 *     longer write half done.
 *   - The mapping is write-combining: writes are delayed, merged and reordered. Call
 *     inlay_fence_reg (base.h) between data and the flag that announces it, and after the flag.
 *   - A read costs a PCIe round trip for every 4 bytes.
 *
 * Threads: the caller orders accesses to the same bytes. Sources: ibv_alloc_dm(3),
 * mlx5dv_init_obj(3), libmlx5's mlx5_access_dm (verbs.c).
 */
#ifndef INLAY_DM_H
#define INLAY_DM_H /* a trial: names may change */

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_

typedef uint32_t inlay_dm_word_ __attribute__((may_alias));

struct inlay_dm {
	volatile inlay_dm_word_ *buf;
	uint64_t length; /* bytes */
};

/* ---- Set-up ---- */

/*
 * Takes over device memory. ibv_memcpy_to_dm and ibv_memcpy_from_dm can still be used.
 *
 * Returns 0; -ENOTSUP when the device is not mlx5 or the memory is not mapped; else the negative
 * errno of mlx5dv_init_obj.
 */
INLAY_COLD INLAY_RESULT int inlay_dm_from_dm(struct inlay_dm *dm, struct ibv_dm *ibdm, const char **why)
{
	struct mlx5dv_dm dv;
	struct mlx5dv_obj obj;
	int err;

	if (!mlx5dv_is_supported(ibdm->context->device))
		return inlay_refuse_(-ENOTSUP, why, "the device is not an mlx5 device");
	__builtin_memset(&obj, 0, sizeof(obj));
	__builtin_memset(&dv, 0, sizeof(dv));
	obj.dm.in = ibdm;
	obj.dm.out = &dv;
	err = mlx5dv_init_obj(&obj, MLX5DV_OBJ_DM);
	if (err)
		return inlay_refuse_(-err, why, "mlx5dv_init_obj failed");
	if (!dv.buf)
		return inlay_refuse_(-ENOTSUP, why, "the device memory has no mapping");
	dm->buf = (volatile inlay_dm_word_ *)dv.buf;
	dm->length = dv.length;
	return 0;
}

/* ---- Data path ---- */

/* 0 if [offset, offset + len) is whole words inside the memory, else -EINVAL. */
INLAY_FN int inlay_dm_check_(const struct inlay_dm *dm, uint64_t offset, uint64_t len)
{
	return INLAY_UNLIKELY((offset | len) & 3 || offset > dm->length || len > dm->length - offset) ? -EINVAL : 0;
}

/*
 * Writes len bytes at offset, both multiples of 4, from memory of any alignment, as
 * ibv_memcpy_to_dm. They may still be on their way until inlay_fence_reg_full.
 *
 * Returns 0, or -EINVAL when offset or len is no multiple of 4 or the range exceeds the memory.
 */
INLAY_FN INLAY_RESULT int inlay_dm_write(const struct inlay_dm *dm, uint64_t offset, const void *from, uint64_t len)
{
	int err = inlay_dm_check_(dm, offset, len);
	uint64_t i;

	for (i = 0; !err && i < len / 4; i++) {
		uint32_t word;

		__builtin_memcpy(&word, (const uint8_t *)from + 4 * i, 4);
		dm->buf[offset / 4 + i] = word;
	}
	return err;
}

/* Reads len bytes at offset, as ibv_memcpy_from_dm. Arguments and result as inlay_dm_write. */
INLAY_FN INLAY_RESULT int inlay_dm_read(const struct inlay_dm *dm, uint64_t offset, void *to, uint64_t len)
{
	int err = inlay_dm_check_(dm, offset, len);
	uint64_t i;

	for (i = 0; !err && i < len / 4; i++) {
		uint32_t word = dm->buf[offset / 4 + i];

		__builtin_memcpy((uint8_t *)to + 4 * i, &word, 4);
	}
	return err;
}

INLAY_CASTS_END_
#endif
