/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/umem.h: memory for device commands: rings, doorbell records, what a memory key covers.
 * One umem may hold the rings and records of many objects.
 *
 *   struct inlay_devx_umem umem;
 *   struct inlay_devx_place ring = {&umem, 0}, record = {&umem, 4096};
 *
 *   inlay_devx_umem_reg(&umem, ctx, buffer, bytes, IBV_ACCESS_LOCAL_WRITE, INLAY_DEVX_PAGE);
 *   ... objects with rings and records in it ...
 *   inlay_devx_umem_dereg(&umem);                                     after they are destroyed
 *
 * Invariants:
 *   - A record may begin at any multiple of 8 bytes.
 *   - A ring begins on a 4096-byte page, at offset 0 or at a multiple of umem.page. The device
 *     walks a ring by pages, which the kernel makes as large as `pages` allows.
 *   - Without IBV_ACCESS_LOCAL_WRITE the device only reads: enough for send and receive rings and
 *     for records, but not for a CQ's ring or a memory key that grants writing.
 *
 * Threads: as device commands (devx/call.h). Objects only read their umem.
 * Sources: mlx5dv_devx_umem_reg(3); Linux, infiniband/hw/mlx5/devx.c (page sizes and offsets).
 */
#ifndef INLAY_DEVX_UMEM_H
#define INLAY_DEVX_UMEM_H /* a trial: names may change */

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>

#define INLAY_DEVX_PAGE 4096u /* the device's smallest page */

struct inlay_devx_umem {
	struct mlx5dv_devx_umem *umem; /* NULL: not registered */
	uint8_t *addr;                 /* for the CPU; NULL: not mapped. The caller of _reg_dmabuf may set it */
	uint64_t len;
	uint64_t page;                 /* rings may begin at its multiples; 0: only at offset 0 */
	uint32_t id;                   /* in commands */
	uint32_t access;               /* IBV_ACCESS_* */
};

/* A place in a umem. */
struct inlay_devx_place {
	const struct inlay_devx_umem *umem;
	uint64_t offset; /* bytes */
};

/* Registers what `in` says, with these page sizes. */
INLAY_COLD int inlay_devx_umem_reg_(struct inlay_devx_umem *umem, struct ibv_context *ctx,
				    struct mlx5dv_devx_umem_in *in, uint64_t pages)
{
	__builtin_memset(umem, 0, sizeof(*umem));
	if (pages & (INLAY_DEVX_PAGE - 1))
		return -EINVAL;
	in->pgsz_bitmap = pages;
	errno = 0;
	umem->umem = pages ? mlx5dv_devx_umem_reg_ex(ctx, in) :
			     mlx5dv_devx_umem_reg(ctx, in->addr, in->size, in->access);
	if (!umem->umem)
		return errno ? -errno : -ENOMEM;
	umem->id = umem->umem->umem_id;
	umem->addr = in->comp_mask ? NULL : (uint8_t *)in->addr;
	umem->len = in->size;
	umem->page = pages ? 1ULL << (63 - __builtin_clzll(pages)) : 0;
	umem->access = in->access;
	return 0;
}

/*
 * Registers memory of any alignment; a ring needs a page's.
 *
 * access  IBV_ACCESS_LOCAL_WRITE, _REMOTE_WRITE (needs LOCAL_WRITE), _REMOTE_READ,
 *         _RELAXED_ORDERING; or 0
 * pages   the page sizes that the kernel may choose, one bit each, such as INLAY_DEVX_PAGE | 8192.
 *         umem->page becomes the largest. 0: any size; rings begin at offset 0 only
 *
 * Returns 0, or the negative errno of mlx5dv_devx_umem_reg: -EINVAL for an impossible access or
 * page size, -EFAULT, -ENOMEM; -EOPNOTSUPP or -EINVAL for a context that is not open for commands.
 * On failure umem->umem is NULL.
 */
INLAY_COLD int inlay_devx_umem_reg(struct inlay_devx_umem *umem, struct ibv_context *ctx, void *addr, size_t len,
				   uint32_t access, uint64_t pages)
{
	struct mlx5dv_devx_umem_in in;

	INLAY_CHECK(umem && ctx, "no argument is NULL");
	__builtin_memset(&in, 0, sizeof(in));
	in.addr = addr;
	in.size = len;
	in.access = access;
	return inlay_devx_umem_reg_(umem, ctx, &in, pages);
}

/*
 * Registers len bytes of a dmabuf that can be pinned, such as another device's memory; pages is not
 * 0. fd may be closed afterwards. Rings and doorbell records in this umem are refused until the
 * caller maps the dmabuf and stores its address in umem->addr.
 *
 * Returns as inlay_devx_umem_reg; -EBADF for a bad fd; -ENOTSUP when kernel or library do not know
 * dmabufs.
 */
INLAY_COLD int inlay_devx_umem_reg_dmabuf(struct inlay_devx_umem *umem, struct ibv_context *ctx, int fd,
					  uint64_t offset, size_t len, uint32_t access, uint64_t pages)
{
	struct mlx5dv_devx_umem_in in;

	INLAY_CHECK(umem && ctx, "no argument is NULL");
	__builtin_memset(&in, 0, sizeof(in));
	in.addr = (void *)(uintptr_t)offset;
	in.size = len;
	in.access = access;
	in.comp_mask = MLX5DV_UMEM_MASK_DMABUF;
	in.dmabuf_fd = fd;
	return inlay_devx_umem_reg_(umem, ctx, &in, pages ? pages : 1 /* refused */);
}

/* Deregisters, if registered. Returns 0, or a negative errno: -EBUSY while an object uses it. */
INLAY_COLD int inlay_devx_umem_dereg(struct inlay_devx_umem *umem)
{
	int err;

	INLAY_CHECK(umem, "no argument is NULL");
	err = umem->umem ? mlx5dv_devx_umem_dereg(umem->umem) : 0;
	if (!err)
		__builtin_memset(umem, 0, sizeof(*umem));
	return -err;
}

/* Bytes of a ring of n elements, or 0: both numbers are powers of two within these bounds. */
INLAY_COLD size_t inlay_devx_ring_(uint32_t n, uint32_t least, uint32_t most, uint32_t size, uint32_t smallest,
				   uint32_t largest)
{
	return inlay_is_pow2(n) && n >= least && n <= most && inlay_is_pow2(size) && size >= smallest && size <= largest ?
		       (size_t)n * size : 0;
}

/*
 * The CPU's address of len bytes at a place. NULL: outside of the umem, not mapped, or address or
 * offset not a multiple of `align`.
 */
INLAY_COLD uint8_t *inlay_devx_at_(struct inlay_devx_place place, uint64_t len, uint64_t align)
{
	const struct inlay_devx_umem *umem = place.umem;

	if (!umem || !umem->umem || !umem->addr || place.offset > umem->len || len > umem->len - place.offset ||
	    place.offset % align || (uintptr_t)(umem->addr + place.offset) % align)
		return NULL;
	return umem->addr + place.offset;
}

/* Finds a ring of len bytes (0: none) and its record. Returns NULL, or what is wrong. */
INLAY_COLD const char *inlay_devx_places_(struct inlay_devx_place ring_at, uint64_t len,
					  struct inlay_devx_place record_at, uint8_t **ring, uint32_t **record)
{
	*ring = len ? inlay_devx_at_(ring_at, len, INLAY_DEVX_PAGE) : NULL;
	*record = (uint32_t *)(void *)inlay_devx_at_(record_at, 8, 8);
	if (len && (!*ring || (ring_at.offset && (!ring_at.umem->page || ring_at.offset % ring_at.umem->page))))
		return "the ring does not lie in its umem, or not on a page";
	return *record ? NULL : "the record does not lie in its umem, or not at a multiple of 8 bytes";
}

#endif
