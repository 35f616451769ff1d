/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/umem.h: memory that device commands may name: rings, doorbell records, what a memory key is to open.
 *
 *   struct inlay_devx_umem umem;
 *
 *   inlay_devx_umem_reg(&umem, ctx, buffer, bytes, IBV_ACCESS_LOCAL_WRITE);
 *   ...                                                               objects whose rings and records lie in it
 *   inlay_devx_umem_dereg(&umem);                                     when they are gone
 *
 * One umem may hold rings and records of many objects: each is told by struct inlay_devx_place, a umem and an offset into it.
 *
 *   record   any multiple of 8
 *   ring     on a page of 4096 bytes, at 0; elsewhere at a multiple of umem.page, which only inlay_devx_umem_reg_pages sets: the device
 *            walks a ring by pages, and the kernel makes them as large as it is allowed to. With INLAY_DEVX_PAGE they have 4096 bytes
 *
 * access says what the device may do. Without IBV_ACCESS_LOCAL_WRITE it only reads: enough for the rings of send and receive queues and for
 * their records, not for those of CQs. What a memory key grants is in the key; its umem must grant as much.
 *
 * Threads: as device commands. A umem is not changed by the objects in it.
 * Sources: mlx5dv_devx_umem_reg(3); Linux, infiniband/hw/mlx5/devx.c (page sizes, what an offset asks for).
 */
#ifndef INLAY_DEVX_UMEM_H
#define INLAY_DEVX_UMEM_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>

#define INLAY_DEVX_PAGE 4096u /* the smallest page of the device, and of inlay_devx_umem_reg_pages */

/* Memory known to the device. In caller memory; lives as long as an object uses it. */
struct inlay_devx_umem {
	struct mlx5dv_devx_umem *umem;
	uint8_t *addr;   /* where the CPU finds it; NULL: nowhere */
	uint64_t len;
	uint64_t page;   /* rings may begin at its multiples; 0: at the beginning only */
	uint32_t id;     /* by which commands name it */
	uint32_t access; /* IBV_ACCESS_* */
};

/* Somewhere in a umem. */
struct inlay_devx_place {
	const struct inlay_devx_umem *umem;
	uint64_t offset; /* bytes */
};

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up: all of it
 */

/* What the two below share. in: what the kernel is told, size to pgsz_bitmap; at: where the CPU finds it. Returns as they do. */
INLAY_COLD int inlay_devx_umem_make(struct inlay_devx_umem *umem, struct ibv_context *ctx, struct mlx5dv_devx_umem_in *in, void *at)
{
	INLAY_CHECK(umem && ctx, "no argument is NULL");
	__builtin_memset(umem, 0, sizeof(*umem));
	if (!in->pgsz_bitmap || in->pgsz_bitmap & (INLAY_DEVX_PAGE - 1))
		return -EINVAL;
	errno = 0;
	umem->umem = mlx5dv_devx_umem_reg_ex(ctx, in);
	if (!umem->umem)
		return errno ? -errno : -ENOMEM;
	umem->id = umem->umem->umem_id;
	umem->addr = (uint8_t *)at;
	umem->len = in->size;
	umem->page = 1ULL << (63 - __builtin_clzll(in->pgsz_bitmap));
	umem->access = in->access;
	return 0;
}

/*
 * Registers memory in which at most one ring begins, at its very beginning; records may be anywhere.
 *
 * ctx        from inlay_devx_open
 * addr, len  the memory, of any alignment; a ring wants a page's
 * access     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING, any of them or 0;
 *            REMOTE_WRITE needs LOCAL_WRITE
 *
 * Returns 0, or the negative errno of mlx5dv_devx_umem_reg: -EINVAL for an access that cannot be, -EFAULT for memory that is not there,
 * -ENOMEM, -EOPNOTSUPP or -EINVAL when the context is not open for commands. On failure umem->umem is NULL.
 */
INLAY_COLD int inlay_devx_umem_reg(struct inlay_devx_umem *umem, struct ibv_context *ctx, void *addr, size_t len, uint32_t access)
{
	INLAY_CHECK(umem && ctx, "no argument is NULL");
	__builtin_memset(umem, 0, sizeof(*umem));
	errno = 0;
	umem->umem = mlx5dv_devx_umem_reg(ctx, addr, len, access);
	if (!umem->umem)
		return errno ? -errno : -ENOMEM;
	umem->id = umem->umem->umem_id;
	umem->addr = (uint8_t *)addr;
	umem->len = len;
	umem->access = access;
	return 0;
}

/*
 * The same with a word in the size of the device's pages, for several rings in one umem.
 *
 * pages  the sizes allowed, one bit each: INLAY_DEVX_PAGE | 2 * INLAY_DEVX_PAGE | ...; nothing below INLAY_DEVX_PAGE. umem->page becomes
 *        the largest: multiples of it hold whatever the kernel picks
 *
 * Returns as inlay_devx_umem_reg does, and -EINVAL for no size, for one below 4096, and when the memory has none of them.
 */
INLAY_COLD int inlay_devx_umem_reg_pages(struct inlay_devx_umem *umem, struct ibv_context *ctx, void *addr, size_t len, uint32_t access,
					 uint64_t pages)
{
	struct mlx5dv_devx_umem_in in;

	__builtin_memset(&in, 0, sizeof(in));
	in.addr = addr;
	in.size = len;
	in.access = access;
	in.pgsz_bitmap = pages;
	return inlay_devx_umem_make(umem, ctx, &in, addr);
}

/*
 * The same for a dmabuf, of another device's memory for instance. The dmabuf must be one that can be pinned.
 *
 * fd      the dmabuf; it may be closed afterwards
 * offset  where in it the memory begins; len bytes
 * at      where the CPU finds it; NULL: nowhere, and then nothing that inlay writes to at set-up, a ring or a record, may lie there
 * pages   as above
 *
 * Returns as inlay_devx_umem_reg_pages does, and -EBADF for a bad fd; -ENOTSUP (which is EOPNOTSUPP) when kernel or library know no dmabuf.
 */
INLAY_COLD int inlay_devx_umem_reg_dmabuf(struct inlay_devx_umem *umem, struct ibv_context *ctx, int fd, uint64_t offset, size_t len,
					  uint32_t access, uint64_t pages, void *at)
{
	struct mlx5dv_devx_umem_in in;

	__builtin_memset(&in, 0, sizeof(in));
	in.addr = (void *)(uintptr_t)offset;
	in.size = len;
	in.access = access;
	in.pgsz_bitmap = pages;
	in.comp_mask = MLX5DV_UMEM_MASK_DMABUF;
	in.dmabuf_fd = fd;
	return inlay_devx_umem_make(umem, ctx, &in, at);
}

/*
 * Deregisters. Nothing happens to a umem that is zeroed, was never registered successfully or is gone already.
 *
 * Returns 0, or a negative errno: -EBUSY when an object still uses it; then it is as it was.
 */
INLAY_COLD int inlay_devx_umem_dereg(struct inlay_devx_umem *umem)
{
	int err;

	INLAY_CHECK(umem, "no argument is NULL");
	if (!umem->umem)
		return 0;
	err = mlx5dv_devx_umem_dereg(umem->umem);
	if (!err)
		__builtin_memset(umem, 0, sizeof(*umem));
	return -err;
}

/* log2 of a power of two. */
INLAY_COLD uint32_t inlay_devx_log2(uint64_t n)
{
	return n ? 63 - (uint32_t)__builtin_clzll(n) : 0;
}

/* Where the CPU finds len bytes at a place; NULL: outside of the umem, or in one that the CPU cannot reach. */
INLAY_COLD uint8_t *inlay_devx_at(struct inlay_devx_place place, uint64_t len)
{
	const struct inlay_devx_umem *umem = place.umem;

	if (!umem || !umem->umem || !umem->addr || place.offset > umem->len || len > umem->len - place.offset)
		return NULL;
	return umem->addr + place.offset;
}

/* A ring's memory, len bytes that begin on a page of 4096; NULL also where a ring cannot begin: see the top. */
INLAY_COLD uint8_t *inlay_devx_ring_at(struct inlay_devx_place place, uint64_t len)
{
	uint8_t *at = inlay_devx_at(place, len);

	if (!at || (uintptr_t)at % INLAY_DEVX_PAGE || (place.offset && (!place.umem->page || place.offset % place.umem->page)))
		return NULL;
	return at;
}

/* A doorbell record's memory, 8 bytes aligned to 8; NULL otherwise. */
INLAY_COLD uint32_t *inlay_devx_record_at(struct inlay_devx_place place)
{
	uint8_t *at = inlay_devx_at(place, 8);

	return !at || place.offset % 8 || (uintptr_t)at % 8 ? NULL : (uint32_t *)(void *)at;
}

#endif
