/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap/source.h: a source: memory of one kind, and what it may grant. A source is a plain
 * value; inlay_mmap_add copies it into a map.
 *
 *   inlay_mmap_add(&map, inlay_source_dmabuf(fd, gpu_addr, 0, bytes));
 *   secret = inlay_source_host(page, 4096);
 *   secret.limit = INLAY_LOCAL_READ_WRITE;                   even if the map grants more
 *   inlay_mmap_add(&map, secret);
 *
 * Addresses are those of keys: virtual ones for host memory and dmabufs, offsets for device memory.
 *
 * Threads: pure functions.
 * Sources: ibv_reg_mr(3), ibv_alloc_dm(3), ibv_reg_dmabuf_mr(3).
 */
#ifndef INLAY_MMAP_SOURCE_H
#define INLAY_MMAP_SOURCE_H /* a trial: names may change */

#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/mmap/lookup.h>

/*
 * Permissions. Where verbs has the bit, both names may be passed; other bits of IBV_ACCESS_* are
 * refused with -EINVAL. Local devices may always read.
 */
enum inlay_access {
	INLAY_LOCAL_READ_ONLY = 0,
	INLAY_LOCAL_READ_WRITE = IBV_ACCESS_LOCAL_WRITE,
	INLAY_RDMA_WRITE = IBV_ACCESS_REMOTE_WRITE,
	INLAY_RDMA_READ = IBV_ACCESS_REMOTE_READ,
	INLAY_RDMA_ATOMIC = IBV_ACCESS_REMOTE_ATOMIC,
	INLAY_MW_BIND = IBV_ACCESS_MW_BIND,      /* memory windows may be bound to the memory */
	INLAY_RELAXED_ORDERING = IBV_ACCESS_RELAXED_ORDERING,
	INLAY_PCI_READ_WRITE = 1 << 29,          /* by a device across PCIe (mmap/pci.h) */
	INLAY_PCI_READ_ONLY = 1 << 30            /* likewise; excludes INLAY_PCI_READ_WRITE */
};

#define INLAY_RDMA_ANY ((uint32_t)(INLAY_RDMA_READ | INLAY_RDMA_WRITE | INLAY_RDMA_ATOMIC))
#define INLAY_PCI_ANY ((uint32_t)(INLAY_PCI_READ_ONLY | INLAY_PCI_READ_WRITE))
#define INLAY_ACCESS_ALL \
	(INLAY_LOCAL_READ_WRITE | INLAY_RDMA_ANY | INLAY_PCI_ANY | INLAY_MW_BIND | INLAY_RELAXED_ORDERING)

#define INLAY_NO_KEY 0x100u /* a key of no memory: MLX5_INVALID_LKEY */

/* The keys of a range on one device, host order */
struct inlay_keys {
	uint32_t lkey;
	uint32_t rkey;
};

enum inlay_source_kind { INLAY_SOURCE_HOST, INLAY_SOURCE_DMABUF, INLAY_SOURCE_DM, INLAY_SOURCE_KEYS };

struct inlay_source {
	uint32_t kind;          /* enum inlay_source_kind */
	uint32_t limit;         /* restricts the map's permissions; the caller may lower it */
	uint64_t start, len;
	uint64_t offset;        /* within the dmabuf or the device memory */
	union {
		struct ibv_dm *dm;
		struct inlay_keys keys;
		int fd;
	} of;
};

INLAY_COLD struct inlay_source inlay_source_(enum inlay_source_kind kind, uint64_t start, uint64_t len, uint64_t offset)
{
	struct inlay_source s;

	__builtin_memset(&s, 0, sizeof(s));
	s.kind = kind;
	s.limit = INLAY_ACCESS_ALL;
	s.start = start;
	s.len = len;
	s.offset = offset;
	return s;
}

/* len bytes of this process at addr. */
INLAY_COLD struct inlay_source inlay_source_host(void *addr, size_t len)
{
	return inlay_source_(INLAY_SOURCE_HOST, (uintptr_t)addr, len, 0);
}

/*
 * len bytes of a dmabuf, from offset on; fd must be open whenever the map starts. addr names the
 * range, for example where the process has mapped it; it equals offset modulo the page.
 */
INLAY_COLD struct inlay_source inlay_source_dmabuf(int fd, void *addr, uint64_t offset, size_t len)
{
	struct inlay_source s = inlay_source_(INLAY_SOURCE_DMABUF, (uintptr_t)addr, len, offset);

	s.of.fd = fd;
	return s;
}

/* len bytes of device memory, from offset on, with addresses from 0. Start registers dm. */
INLAY_COLD struct inlay_source inlay_source_dm(struct ibv_dm *dm, uint64_t offset, size_t len)
{
	struct inlay_source s = inlay_source_(INLAY_SOURCE_DM, 0, len, offset);

	s.of.dm = dm;
	return s;
}

/*
 * Registered memory, for example a DPA heap, in a map of at most one device. The keys stay valid
 * until the map is stopped, and should allow all that it grants.
 */
INLAY_COLD struct inlay_source inlay_source_keys(uint64_t addr, size_t len, struct inlay_keys keys)
{
	struct inlay_source s = inlay_source_(INLAY_SOURCE_KEYS, addr, len, 0);

	s.of.keys = keys;
	return s;
}

/* -EINVAL for unknown permissions, or both bits of PCI. */
INLAY_COLD int inlay_access_check_(uint32_t access)
{
	return access & ~INLAY_ACCESS_ALL || (access & INLAY_PCI_ANY) == INLAY_PCI_ANY ? -EINVAL : 0;
}

/* As IBV_ACCESS_*. Verbs requires LOCAL_WRITE for remote writes, and for windows. */
INLAY_COLD unsigned inlay_access_verbs_(uint32_t access)
{
	if (access & (INLAY_RDMA_WRITE | INLAY_RDMA_ATOMIC | INLAY_PCI_READ_WRITE | INLAY_MW_BIND))
		access |= IBV_ACCESS_LOCAL_WRITE;
	return access & ~INLAY_PCI_ANY;
}

/* -EINVAL for a source that no device can register. */
INLAY_COLD int inlay_source_check_(const struct inlay_source *s)
{
	if (inlay_range_bad_(s->start, s->len) || s->offset + s->len < s->offset || s->limit & ~INLAY_ACCESS_ALL)
		return -EINVAL;
	switch (s->kind) {
	case INLAY_SOURCE_HOST: return s->start ? 0 : -EINVAL;
	case INLAY_SOURCE_DMABUF: return s->of.fd >= 0 ? 0 : -EINVAL;
	case INLAY_SOURCE_DM: return s->of.dm ? 0 : -EINVAL;
	default: return s->kind == INLAY_SOURCE_KEYS ? 0 : -EINVAL;
	}
}

/* Registers a source with a device, unless it has keys. Returns 0 or a negative errno. */
INLAY_COLD int inlay_source_register_(const struct inlay_source *s, struct ibv_pd *pd, uint32_t permissions,
				      struct ibv_mr **mr)
{
	unsigned access = inlay_access_verbs_(permissions & s->limit);
	size_t len = (size_t)s->len;

	*mr = NULL;
	errno = 0;
	switch (s->kind) {
	case INLAY_SOURCE_KEYS:
		return 0;
	case INLAY_SOURCE_DM:
		if (s->of.dm->context != pd->context)
			return -EINVAL;
		*mr = ibv_reg_dm_mr(pd, s->of.dm, s->offset, len, access | IBV_ACCESS_ZERO_BASED);
		break;
	case INLAY_SOURCE_DMABUF:
		*mr = ibv_reg_dmabuf_mr(pd, s->offset, len, s->start, s->of.fd, (int)access);
		break;
	default:
		*mr = ibv_reg_mr(pd, (void *)(uintptr_t)s->start, len, access);
	}
	return *mr ? 0 : errno ? -errno : -ENOMEM;
}

#endif
