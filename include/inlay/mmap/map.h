/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap/map.h: the memory map: ranges of memory, the devices that may reach them, their keys, and who may do what.
 *
 *   inlay_mmap_create(&map, memory, inlay_mmap_size(1, 4), 1, 4);    room for one device and four ranges
 *   inlay_mmap_add_dev(&map, pd);                                    a device is an ibv_pd
 *   inlay_mmap_set_memrange(&map, buffer, bytes);
 *   inlay_mmap_set_permissions(&map, INLAY_LOCAL_READ_WRITE | INLAY_RDMA_WRITE);
 *   inlay_mmap_start(&map);                                          registers every range with every device
 *   ...
 *   r = inlay_mmap_find(&map, addr, len);                            r->lkey, r->rkey; NULL: not in one range
 *   ...
 *   inlay_mmap_stop(&map);  inlay_mmap_destroy(&map);
 *
 * A map of another process's memory is made from the blob that it exports: blob.h.
 *
 * States
 * ------
 *   create --> CONFIG --start--> STARTED --stop--> CONFIG ... --destroy--> gone
 *   create_from_export --> imported, usable at once --destroy--> gone
 *
 * Four flags stay for ever: exported (by the first export), imported (from birth), range set (by the first set_...memrange), started once.
 * What a function answers in each state; 0: it does what it says, when its arguments allow:
 *
 *                                fresh     started   started,   stopped   stopped,   imported
 *                                                    exported             exported
 *   add_dev, rm_dev              0         -EPERM    -EPERM     0         -EPERM     -EPERM
 *   set_memrange and sisters     0         -EBADFD   -EBADFD    -EPERM    -EPERM     -EPERM     once in a lifetime
 *   add_memrange and sisters,    0         -EBADFD   -EBADFD    0         -EPERM     -EPERM
 *     rm_memrange, limit_memrange
 *   set_permissions, _free_cb,   0         -EBADFD   -EBADFD    0         0          -EPERM
 *     _user_data, _mac
 *   set_max_num_devices          0         -EPERM    -EPERM     -EPERM    -EPERM     -EPERM     until the first start
 *   enable_thread_safety         0         -EPERM    -EPERM     0         0          0          while no buf lives
 *   start                        0         -EPERM    -EPERM     0         -EPERM     -EPERM
 *   stop                         -EPERM    0         0          -EPERM    -EPERM     -EPERM     while no buf lives
 *   export_rdma, export_pci      -EPERM    0         0          -EPERM    -EPERM     -EPERM     with such a permission
 *   dpa_handle                   -EPERM    0         0          -EPERM    -EPERM     0
 *   get_memrange                 -EBADFD   0         0          0         0          0
 *   other get_...                0         0         0          0         0          0
 *   destroy                      0         0         0          0         0          0          while no buf lives
 *
 * The state is looked at before the arguments.
 *
 * These are DOCA's rules. Where its texts contradict each other or leave a hole, this is what holds here:
 *   - start and stop in the wrong state: -EPERM, the only one of their documented codes that fits.
 *   - stop of an exported map: one text forbids it, another says what it does (frees the descriptors, invalidates what was imported). It
 *     may. "Exported" stays, so that it is not started again: its blobs name keys that will never come back.
 *   - An imported map is never started or stopped. It counts as started where it is used, and for dpa_handle, whose list does not name it.
 *     All set_... are closed to it ("not possible on the result"), with the code of the lists, NOT_PERMITTED. Its user data come with its
 *     creation.
 *   - A started map that a set_... closed to exported ones is called on: BAD_STATE, as for any started map.
 *   - export_rdma of an imported map: forbidden by two of three versions of the text, and here.
 *   - The free callback that counts is the one in place at destroy, and it is called when the map has ever been started.
 *   - The number of devices is at most 1 until set_max_num_devices says more; DOCA tells no default.
 *   - A range is mandatory, a device is not: a map of memory that no device reaches gives bufs without keys.
 *   - Permissions are INLAY_LOCAL_READ_ONLY until they are set.
 *
 * Beyond DOCA
 *   - Several ranges: inlay_mmap_add_memrange and inlay_mmap_rm_memrange, as long as the map is not started, with set_memrange or without.
 *     inlay_mmap_limit_memrange takes permissions away from one of them.
 *   - Thread-safe mode goes on counting bufs.
 *   - Memory for state is the caller's, and its amount is known: inlay_mmap_size.
 *   - start either registers all or leaves the map as it was, with nothing registered.
 *
 * Should a deregistration fail, because the kernel finds the region in use, stop and destroy answer -EPERM, and a start that cannot undo
 * itself the error that came first. What could not be deregistered is kept, the map finds nothing any more and is otherwise as a started
 * one; stop or destroy may be called again and goes on.
 *
 * Addresses. A range is found by the address at which the network knows it: of host memory and dmabuf the virtual address that the caller
 * says; of device memory 0 on, as dm.h has it; of ranges with the caller's keys, what these keys say.
 *
 * Threads: the set-up functions are for one thread, while no other uses the map. inlay_mmap_find and the other lookups may be called by any
 * number of threads on a started or imported map. inlay_mmap_hold and inlay_mmap_drop: by one thread at a time, whatever it holds for (an
 * inventory, an operation of a memory domain), or in thread-safe mode by all at once. INLAY_CHECKED=1 notices two that meet there in a map
 * that is not thread-safe.
 * Sources: DOCA's documentation of doca_mmap; ibv_reg_mr(3), ibv_reg_dm_mr(3) with ibv_alloc_dm(3).
 */
#ifndef INLAY_MMAP_MAP_H
#define INLAY_MMAP_MAP_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/mmap/ledger.h>
#include <inlay/mmap/lookup.h>

/*
 * Permissions. Where verbs has a bit for it, the value is that of IBV_ACCESS_*, so that either name may be passed; a bit of IBV_ACCESS_* that
 * is not here is refused. A local device may always read. PCI's bits are none of verbs'.
 */
enum inlay_mmap_access {
	INLAY_LOCAL_READ_ONLY = 0,
	INLAY_LOCAL_READ_WRITE = IBV_ACCESS_LOCAL_WRITE,
	INLAY_RDMA_WRITE = IBV_ACCESS_REMOTE_WRITE,
	INLAY_RDMA_READ = IBV_ACCESS_REMOTE_READ,
	INLAY_RDMA_ATOMIC = IBV_ACCESS_REMOTE_ATOMIC,
	INLAY_MW_BIND = IBV_ACCESS_MW_BIND,      /* memory windows may be bound to the memory */
	INLAY_RELAXED_ORDERING = IBV_ACCESS_RELAXED_ORDERING,
	INLAY_PCI_READ_WRITE = 1 << 29,          /* not together with INLAY_PCI_READ_ONLY */
	INLAY_PCI_READ_ONLY = 1 << 30
};

#define INLAY_RDMA_ANY ((uint32_t)(INLAY_RDMA_READ | INLAY_RDMA_WRITE | INLAY_RDMA_ATOMIC))
#define INLAY_PCI_ANY ((uint32_t)(INLAY_PCI_READ_ONLY | INLAY_PCI_READ_WRITE))
#define INLAY_MMAP_ACCESS_ALL (INLAY_LOCAL_READ_WRITE | INLAY_RDMA_ANY | INLAY_PCI_ANY | INLAY_MW_BIND | INLAY_RELAXED_ORDERING)
#define INLAY_MMAP_DEVICES 256u         /* at most */
#define INLAY_NO_KEY 0x100u             /* a key that no memory has: MLX5_INVALID_LKEY */

enum inlay_mmap_state {
	INLAY_MMAP_CONFIG = 0,
	INLAY_MMAP_STARTED = 1,
	INLAY_MMAP_IMPORTED = 2,
	INLAY_MMAP_ENDING = 3           /* not all could be deregistered */
};

/* What stays for ever */
#define INLAY_MMAP_EXPORTED 1u
#define INLAY_MMAP_FROM_EXPORT 2u
#define INLAY_MMAP_RANGE_SET 4u
#define INLAY_MMAP_STARTED_ONCE 8u

/* Of one range with one device, host order. INLAY_NO_KEY: none. */
struct inlay_keys {
	uint32_t lkey;
	uint32_t rkey;
};

/* Where a range's memory comes from */
enum inlay_mmap_kind {
	INLAY_MMAP_HOST,
	INLAY_MMAP_DMABUF,
	INLAY_MMAP_DM,
	INLAY_MMAP_KEYS                 /* the caller brings the keys */
};

struct inlay_mmap_source {
	uint32_t kind;
	uint32_t limit;                 /* permissions beyond these are not granted */
	uint64_t offset;                /* within dmabuf or device memory */
	union {
		struct ibv_dm *dm;
		struct inlay_keys keys;
		int fd;
	} of;
};

/* A message authentication code: blob.h */
struct inlay_mac {
	int (*make)(void *context, const void *data, size_t len, uint8_t *code); /* writes `bytes` bytes to code; 0 or a negative errno */
	void *context;                  /* the key, in whatever form make wants it */
	uint32_t bytes;                 /* 16 .. 64, a multiple of 4 */
};

typedef void (*inlay_mmap_free_cb)(void *addr, size_t len, void *cookie);

struct inlay_mmap_pci; /* pci.h */

struct inlay_mmap {
	/* Read by who looks up */
	struct inlay_lookup lookup;     /* empty unless started or imported */
	/* Written by start and stop */
	uint32_t state;                 /* enum inlay_mmap_state */
	uint32_t flags;
	uint32_t num_ranges;
	uint32_t num_devs;
	struct inlay_keys *keys;        /* of range r with device d: [r * stride + d] */
	struct inlay_range *ranges;     /* in the order of adding; id is the place here */
	struct ibv_mr **mrs;            /* as keys; NULL: not registered */
	struct inlay_mmap_source *sources;
	struct ibv_pd **devs;
	uint32_t stride;                /* devices there is memory for */
	uint32_t permissions;
	/* Set-up */
	uint32_t max_ranges;
	uint32_t max_devs;
	uint64_t low, high;             /* all ranges lie in [low, high] */
	uint64_t user_data;
	inlay_mmap_free_cb free_cb;
	void *cookie;
	const struct inlay_mac *mac;
	uint32_t keyed;                 /* ranges with the caller's keys: the device is theirs */
	uint32_t reserved;
	/* Written by who holds bufs */
	uint64_t bufs;
	uint32_t thread_safe;
	uint32_t counting;              /* checked builds: somebody is at bufs, in a map that is not thread-safe */
	struct inlay_accounts accounts; /* of those who keep account of bufs themselves */
	/* Set-up: the device's objects of exports and imports over PCI, and how they go */
	struct inlay_mmap_pci *pci;
	int (*pci_release)(struct inlay_mmap *m);
	uint32_t reserved2[4];
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_mmap, state) == INLAY_CACHE_LINE, "what lookups read is a line of its own");
INLAY_STATIC_ASSERT(offsetof(struct inlay_mmap, max_ranges) == 2 * INLAY_CACHE_LINE, "keys are found in one line");
INLAY_STATIC_ASSERT(offsetof(struct inlay_mmap, bufs) == 3 * INLAY_CACHE_LINE, "what holding writes is a line of its own");
INLAY_STATIC_ASSERT(sizeof(struct inlay_mmap) == 4 * INLAY_CACHE_LINE, "four lines");
INLAY_STATIC_ASSERT(INLAY_NO_KEY == MLX5_INVALID_LKEY, "no memory has it");
INLAY_STATIC_ASSERT(sizeof(struct inlay_mmap_source) == 24, "no holes");

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up
 */

/* Bytes rounded up to whole lines. */
INLAY_COLD uint64_t inlay_mmap_lines(uint64_t bytes)
{
	return (bytes + INLAY_CACHE_LINE - 1) / INLAY_CACHE_LINE * INLAY_CACHE_LINE;
}

/* Bytes of memory for a map of that many devices and ranges; 0 when there cannot be one (INLAY_MMAP_DEVICES, INLAY_LOOKUP_MAX). */
INLAY_COLD size_t inlay_mmap_size(uint32_t max_devices, uint32_t max_ranges)
{
	uint64_t ranges = max_ranges, devs = max_devices;

	if (!max_devices || max_devices > INLAY_MMAP_DEVICES || !inlay_lookup_size(max_ranges))
		return 0;
	return (size_t)(inlay_mmap_lines(inlay_lookup_size(max_ranges)) + inlay_mmap_lines(ranges * sizeof(struct inlay_range)) +
			inlay_mmap_lines(ranges * devs * sizeof(struct inlay_keys)) +
			inlay_mmap_lines(ranges * devs * sizeof(struct ibv_mr *)) +
			inlay_mmap_lines(ranges * sizeof(struct inlay_mmap_source)) + inlay_mmap_lines(devs * sizeof(struct ibv_pd *)));
}

/*
 * An empty map.
 *
 * memory       for ranges, keys and tables, on a cache line; the caller's, and the map's until it is destroyed
 * size         its bytes, at least inlay_mmap_size(max_devices, max_ranges)
 * max_devices  that there is memory for. How many may be added is said by inlay_mmap_set_max_num_devices, and is 1 before
 * max_ranges   at most
 *
 * Returns 0; -EINVAL for an argument out of its range; -ENOMEM when size is too small. On failure *m is as it was.
 */
INLAY_COLD int inlay_mmap_create(struct inlay_mmap *m, void *memory, size_t size, uint32_t max_devices, uint32_t max_ranges)
{
	uint8_t *at = (uint8_t *)memory;
	uint64_t ranges = max_ranges, devs = max_devices;

	if (!m || !memory || (uintptr_t)memory % INLAY_CACHE_LINE || !inlay_mmap_size(max_devices, max_ranges))
		return -EINVAL;
	if (size < inlay_mmap_size(max_devices, max_ranges))
		return -ENOMEM;
	__builtin_memset(m, 0, sizeof(*m));
	inlay_lookup_init(&m->lookup, at, inlay_lookup_size(max_ranges), max_ranges);
	at += inlay_mmap_lines(inlay_lookup_size(max_ranges));
	m->ranges = (struct inlay_range *)(void *)at;
	at += inlay_mmap_lines(ranges * sizeof(struct inlay_range));
	m->keys = (struct inlay_keys *)(void *)at;
	at += inlay_mmap_lines(ranges * devs * sizeof(struct inlay_keys));
	m->mrs = (struct ibv_mr **)(void *)at;
	__builtin_memset(at, 0, (size_t)(ranges * devs * sizeof(struct ibv_mr *)));
	at += inlay_mmap_lines(ranges * devs * sizeof(struct ibv_mr *));
	m->sources = (struct inlay_mmap_source *)(void *)at;
	at += inlay_mmap_lines(ranges * sizeof(struct inlay_mmap_source));
	m->devs = (struct ibv_pd **)(void *)at;
	m->stride = max_devices;
	m->max_ranges = max_ranges;
	m->max_devs = 1;
	m->low = UINT64_MAX;
	return 0;
}

/* ---- Devices ---- */

/* Neither started nor closed for ever: what most of the configuration asks for. In a started one the answer is `started`. */
INLAY_COLD int inlay_mmap_open(const struct inlay_mmap *m, int started)
{
	if (m->state == INLAY_MMAP_STARTED || m->state == INLAY_MMAP_ENDING)
		return started;
	return m->flags & (INLAY_MMAP_EXPORTED | INLAY_MMAP_FROM_EXPORT) ? -EPERM : 0;
}

/* The same for setters that exporting does not close. */
INLAY_COLD int inlay_mmap_settable(const struct inlay_mmap *m)
{
	if (m->state == INLAY_MMAP_STARTED || m->state == INLAY_MMAP_ENDING)
		return -EBADFD;
	return m->flags & INLAY_MMAP_FROM_EXPORT ? -EPERM : 0;
}

/* The device's place in the order of adding, which inlay_mmap_keys asks for; -ENOENT: not one of the map's. */
INLAY_COLD int inlay_mmap_dev_index(const struct inlay_mmap *m, const struct ibv_pd *pd)
{
	INLAY_CHECK(m, "a map is not NULL");
	uint32_t d;

	for (d = 0; d < m->num_devs; d++)
		if (m->devs[d] == pd)
			return (int)d;
	return -ENOENT;
}

/*
 * Adds a device, which must outlive the map's next stop.
 *
 * Returns 0; -EPERM by state, or when a range came with keys of its own; -EINVAL; -EEXIST when it is there; -ENOMEM when there are as many
 * as inlay_mmap_set_max_num_devices allows.
 */
INLAY_COLD int inlay_mmap_add_dev(struct inlay_mmap *m, struct ibv_pd *pd)
{
	INLAY_CHECK(m, "a map is not NULL");
	int err = inlay_mmap_open(m, -EPERM);

	if (err || m->keyed)
		return -EPERM;
	if (!pd)
		return -EINVAL;
	if (inlay_mmap_dev_index(m, pd) >= 0)
		return -EEXIST;
	if (m->num_devs == m->max_devs)
		return -ENOMEM;
	m->devs[m->num_devs++] = pd;
	return 0;
}

/* Takes a device away; those behind it move up by one. Returns 0; -EPERM as inlay_mmap_add_dev; -EINVAL; -ENOENT. */
INLAY_COLD int inlay_mmap_rm_dev(struct inlay_mmap *m, const struct ibv_pd *pd)
{
	INLAY_CHECK(m, "a map is not NULL");
	int err = inlay_mmap_open(m, -EPERM), d;

	if (err || m->keyed)
		return -EPERM;
	if (!pd)
		return -EINVAL;
	d = inlay_mmap_dev_index(m, pd);
	if (d < 0)
		return -ENOENT;
	m->num_devs--;
	for (; (uint32_t)d < m->num_devs; d++)
		m->devs[d] = m->devs[d + 1];
	return 0;
}

/*
 * How many devices may be added. 1 before it is called.
 *
 * Returns 0; -EPERM by state; -EINVAL for 0 and for fewer than there are; -ENOMEM for more than there is memory for.
 */
INLAY_COLD int inlay_mmap_set_max_num_devices(struct inlay_mmap *m, uint32_t max)
{
	INLAY_CHECK(m, "a map is not NULL");
	if (m->state != INLAY_MMAP_CONFIG || m->flags & (INLAY_MMAP_STARTED_ONCE | INLAY_MMAP_EXPORTED))
		return -EPERM;
	if (!max || max < m->num_devs)
		return -EINVAL;
	if (max > m->stride)
		return -ENOMEM;
	m->max_devs = max;
	return 0;
}

INLAY_COLD uint32_t inlay_mmap_get_max_num_devices(const struct inlay_mmap *m)
{
	INLAY_CHECK(m, "a map is not NULL");
	return m->max_devs;
}

INLAY_COLD uint32_t inlay_mmap_get_num_devices(const struct inlay_mmap *m)
{
	INLAY_CHECK(m, "a map is not NULL");
	return m->num_devs;
}

/* The device at this place in the order of adding, or NULL. */
INLAY_COLD struct ibv_pd *inlay_mmap_get_dev(const struct inlay_mmap *m, uint32_t i)
{
	INLAY_CHECK(m, "a map is not NULL");
	return i < m->num_devs ? m->devs[i] : NULL;
}

/* ---- Ranges ---- */

/* May a range be added now? `set`: as the one of set_...memrange. */
INLAY_COLD int inlay_mmap_takes(const struct inlay_mmap *m, int set)
{
	int err = inlay_mmap_open(m, -EBADFD);

	return !err && set && m->flags & INLAY_MMAP_RANGE_SET ? -EPERM : err;
}

/*
 * Puts a range behind the others, where the state allows. In rising or falling order of addresses it takes no longer with many ranges than
 * with few; in any other order all are looked at: some 65,536 of them come in seconds, not milliseconds. Who has so many sorts them first.
 *
 * Returns 0; -EBADFD and -EPERM by state; -EINVAL when it is empty, or goes beyond the end of the address space; -EEXIST when it overlaps
 * another; -ENOMEM when there are max_ranges.
 */
INLAY_COLD int inlay_mmap_put_range(struct inlay_mmap *m, uint64_t start, uint64_t len, const struct inlay_mmap_source *from, int set)
{
	struct inlay_range range;
	uint32_t i;

	__builtin_memset(&range, 0, sizeof(range));
	range.start = start;
	range.len = len;
	range.lkey = range.rkey = INLAY_NO_KEY;
	range.id = m->num_ranges;
	if (inlay_range_check(&range))
		return -EINVAL;
	/* In rising or falling order, nothing has to be searched. */
	if (m->num_ranges && start <= m->high && start + (len - 1) >= m->low)
		for (i = 0; i < m->num_ranges; i++)
			if (m->ranges[i].start - start < len || start - m->ranges[i].start < m->ranges[i].len)
				return -EEXIST;
	if (m->num_ranges == m->max_ranges)
		return -ENOMEM;
	if (start < m->low)
		m->low = start;
	if (start + (len - 1) > m->high)
		m->high = start + (len - 1);
	m->ranges[m->num_ranges] = range;
	m->sources[m->num_ranges] = *from;
	m->sources[m->num_ranges].limit = INLAY_MMAP_ACCESS_ALL;
	m->num_ranges++;
	if (set)
		m->flags |= INLAY_MMAP_RANGE_SET;
	return 0;
}

INLAY_COLD int inlay_mmap_put_host(struct inlay_mmap *m, void *addr, size_t len, int set)
{
	struct inlay_mmap_source from;
	int err = inlay_mmap_takes(m, set);

	if (err)
		return err;
	if (!addr)
		return -EINVAL;
	__builtin_memset(&from, 0, sizeof(from));
	from.kind = INLAY_MMAP_HOST;
	return inlay_mmap_put_range(m, (uintptr_t)addr, len, &from, set);
}

INLAY_COLD int inlay_mmap_put_dmabuf(struct inlay_mmap *m, int fd, void *addr, uint64_t offset, size_t len, int set)
{
	struct inlay_mmap_source from;
	int err = inlay_mmap_takes(m, set);

	if (err)
		return err;
	if (fd < 0 || offset + len < offset)
		return -EINVAL;
	__builtin_memset(&from, 0, sizeof(from));
	from.kind = INLAY_MMAP_DMABUF;
	from.offset = offset;
	from.of.fd = fd;
	return inlay_mmap_put_range(m, (uintptr_t)addr, len, &from, set);
}

INLAY_COLD int inlay_mmap_put_dm(struct inlay_mmap *m, struct ibv_dm *dm, uint64_t offset, size_t len, int set)
{
	struct inlay_mmap_source from;
	int err = inlay_mmap_takes(m, set);

	if (err)
		return err;
	if (!dm || offset + len < offset)
		return -EINVAL;
	__builtin_memset(&from, 0, sizeof(from));
	from.kind = INLAY_MMAP_DM;
	from.offset = offset;
	from.of.dm = dm;
	return inlay_mmap_put_range(m, 0, len, &from, set);
}

INLAY_COLD int inlay_mmap_put_keys(struct inlay_mmap *m, struct ibv_pd *pd, uint64_t addr, size_t len, struct inlay_keys keys, int set)
{
	struct inlay_mmap_source from;
	int err = inlay_mmap_takes(m, set);

	if (!err && m->num_devs && !m->keyed)
		err = -EPERM;
	if (err)
		return err;
	if (!pd || (m->keyed && m->devs[0] != pd))
		return -EINVAL;
	__builtin_memset(&from, 0, sizeof(from));
	from.kind = INLAY_MMAP_KEYS;
	from.of.keys = keys;
	err = inlay_mmap_put_range(m, addr, len, &from, set);
	if (err)
		return err;
	m->devs[0] = pd;
	m->num_devs = 1;
	m->keyed++;
	return 0;
}

/* The map's memory: len bytes of the process at addr. Once. Returns as inlay_mmap_put_range. */
INLAY_COLD int inlay_mmap_set_memrange(struct inlay_mmap *m, void *addr, size_t len)
{
	INLAY_CHECK(m, "a map is not NULL");
	return inlay_mmap_put_host(m, addr, len, 1);
}

/*
 * The map's memory: len bytes of a dmabuf, from offset on. Once.
 *
 * fd    of the dmabuf; open while the map is being started, each time
 * addr  the address by which the range is to be known, where the process has it mapped, for instance; it and offset are equally far from a
 *       page
 *
 * Returns as inlay_mmap_put_range. That the device, its driver or the kernel cannot do it is seen at start: -ENOTSUP, or what
 * ibv_reg_dmabuf_mr says. The software device of the tests has no dmabuf.
 */
INLAY_COLD int inlay_mmap_set_dmabuf_memrange(struct inlay_mmap *m, int fd, void *addr, uint64_t offset, size_t len)
{
	INLAY_CHECK(m, "a map is not NULL");
	return inlay_mmap_put_dmabuf(m, fd, addr, offset, len, 1);
}

/*
 * The map's memory: len bytes of device memory, from offset on. Once. It is known by addresses from 0 on, so there can be one such range.
 * All of the map's devices must be on dm's context: start answers -EINVAL otherwise. Each start uses dm:
 * it is not freed (ibv_free_dm) before the range has been taken away or the map destroyed.
 *
 * Returns as inlay_mmap_put_range.
 */
INLAY_COLD int inlay_mmap_set_dm_memrange(struct inlay_mmap *m, struct ibv_dm *dm, uint64_t offset, size_t len)
{
	INLAY_CHECK(m, "a map is not NULL");
	return inlay_mmap_put_dm(m, dm, offset, len, 1);
}

/*
 * The map's memory: a range that somebody else has registered, a DPA heap for instance. Once. pd becomes the map's only device: none may
 * have been added, nor be added afterwards. Other ranges may be added, and are registered with pd. What the keys allow is what they were
 * made with; the map's permissions should say no more. They must be good until the map has been stopped.
 *
 * Returns as inlay_mmap_put_range, and -EPERM when devices have been added.
 */
INLAY_COLD int inlay_mmap_set_keys_memrange(struct inlay_mmap *m, struct ibv_pd *pd, uint64_t addr, size_t len, struct inlay_keys keys)
{
	INLAY_CHECK(m, "a map is not NULL");
	return inlay_mmap_put_keys(m, pd, addr, len, keys, 1);
}

/*
 * One range more, of any of the four kinds: before set_memrange or after or without it. Arguments as the set_... function of that kind has
 * them.
 *
 * All four return as inlay_mmap_put_range; inlay_mmap_add_keys_memrange also -EPERM when devices have been added, and -EINVAL for another
 * pd than that of the ranges with keys that are there.
 */
INLAY_COLD int inlay_mmap_add_memrange(struct inlay_mmap *m, void *addr, size_t len)
{
	INLAY_CHECK(m, "a map is not NULL");
	return inlay_mmap_put_host(m, addr, len, 0);
}

INLAY_COLD int inlay_mmap_add_dmabuf_memrange(struct inlay_mmap *m, int fd, void *addr, uint64_t offset, size_t len)
{
	INLAY_CHECK(m, "a map is not NULL");
	return inlay_mmap_put_dmabuf(m, fd, addr, offset, len, 0);
}

INLAY_COLD int inlay_mmap_add_dm_memrange(struct inlay_mmap *m, struct ibv_dm *dm, uint64_t offset, size_t len)
{
	INLAY_CHECK(m, "a map is not NULL");
	return inlay_mmap_put_dm(m, dm, offset, len, 0);
}

INLAY_COLD int inlay_mmap_add_keys_memrange(struct inlay_mmap *m, struct ibv_pd *pd, uint64_t addr, size_t len, struct inlay_keys keys)
{
	INLAY_CHECK(m, "a map is not NULL");
	return inlay_mmap_put_keys(m, pd, addr, len, keys, 0);
}

/* The place of the range that is exactly [addr, addr + len), or -ENOENT. Looks at all in turn. */
INLAY_COLD int64_t inlay_mmap_range_index(const struct inlay_mmap *m, const void *addr, size_t len)
{
	uint32_t i;

	for (i = 0; i < m->num_ranges; i++)
		if (m->ranges[i].start == (uintptr_t)addr && m->ranges[i].len == len)
			return i;
	return -ENOENT;
}

/*
 * Takes away the range that is exactly [addr, addr + len), however it came. Those behind it move up by one, and all are looked at: time
 * grows with their number. The one of set_memrange cannot be set again: add another. After the last range with keys of its own, their device
 * is one like any other: it stays, for the other ranges, until inlay_mmap_rm_dev. Returns 0; -EBADFD and -EPERM by state; -ENOENT.
 */
INLAY_COLD int inlay_mmap_rm_memrange(struct inlay_mmap *m, const void *addr, size_t len)
{
	INLAY_CHECK(m, "a map is not NULL");
	int err = inlay_mmap_open(m, -EBADFD);
	int64_t at;
	uint32_t i;

	if (err)
		return err;
	at = inlay_mmap_range_index(m, addr, len);
	if (at < 0)
		return -ENOENT;
	m->keyed -= m->sources[at].kind == INLAY_MMAP_KEYS;
	m->num_ranges--;
	for (i = (uint32_t)at; i < m->num_ranges; i++) {
		m->ranges[i] = m->ranges[i + 1];
		m->ranges[i].id = i;
		m->sources[i] = m->sources[i + 1];
	}
	if (!m->num_ranges) {
		m->low = UINT64_MAX;
		m->high = 0;
	}
	return 0;
}

/*
 * Grants no more than mask on the range that is exactly [addr, addr + len): of the map's permissions those that are in mask too. Nothing
 * granted to RDMA: the range is in no blob. The range is looked for among all: time grows with their number.
 *
 * Returns 0; -EBADFD and -EPERM by state; -EINVAL for an unknown bit; -ENOENT.
 */
INLAY_COLD int inlay_mmap_limit_memrange(struct inlay_mmap *m, const void *addr, size_t len, uint32_t mask)
{
	INLAY_CHECK(m, "a map is not NULL");
	int err = inlay_mmap_open(m, -EBADFD);
	int64_t at;

	if (err)
		return err;
	if (mask & ~INLAY_MMAP_ACCESS_ALL)
		return -EINVAL;
	at = inlay_mmap_range_index(m, addr, len);
	if (at < 0)
		return -ENOENT;
	m->sources[at].limit = mask;
	return 0;
}

INLAY_COLD uint32_t inlay_mmap_get_num_ranges(const struct inlay_mmap *m)
{
	INLAY_CHECK(m, "a map is not NULL");
	return m->num_ranges;
}

/* Range i in the order of adding, or NULL. Its keys and access are there while the map is started or imported. */
INLAY_COLD const struct inlay_range *inlay_mmap_get_range(const struct inlay_mmap *m, uint32_t i)
{
	INLAY_CHECK(m, "a map is not NULL");
	return i < m->num_ranges ? &m->ranges[i] : NULL;
}

/* The first range. Returns 0, or -EBADFD when there is none. */
INLAY_COLD int inlay_mmap_get_memrange(const struct inlay_mmap *m, void **addr, size_t *len)
{
	INLAY_CHECK(m, "a map is not NULL");
	if (!m->num_ranges)
		return -EBADFD;
	*addr = (void *)(uintptr_t)m->ranges[0].start;
	*len = (size_t)m->ranges[0].len;
	return 0;
}

/* ---- Properties ---- */

/* Known bits, and not both of PCI's? */
INLAY_COLD int inlay_mmap_access_check(uint32_t mask)
{
	return mask & ~INLAY_MMAP_ACCESS_ALL || (mask & INLAY_PCI_ANY) == INLAY_PCI_ANY ? -EINVAL : 0;
}

/*
 * Permissions as IBV_ACCESS_... bits. What may be written to from outside is written to by the local device, and verbs want to be told, as
 * for windows. Reading over PCI has no such bit.
 */
INLAY_COLD unsigned inlay_mmap_verbs_access(uint32_t mask)
{
	if (mask & (INLAY_RDMA_WRITE | INLAY_RDMA_ATOMIC | INLAY_PCI_READ_WRITE | INLAY_MW_BIND))
		mask |= IBV_ACCESS_LOCAL_WRITE;
	return mask & ~INLAY_PCI_ANY;
}

/* Returns 0; -EBADFD and -EPERM by state; -EINVAL for an unknown bit, and for PCI's two together. */
INLAY_COLD int inlay_mmap_set_permissions(struct inlay_mmap *m, uint32_t mask)
{
	INLAY_CHECK(m, "a map is not NULL");
	int err = inlay_mmap_settable(m);

	if (err)
		return err;
	err = inlay_mmap_access_check(mask);
	if (!err)
		m->permissions = mask;
	return err;
}

INLAY_COLD uint32_t inlay_mmap_get_permissions(const struct inlay_mmap *m)
{
	INLAY_CHECK(m, "a map is not NULL");
	return m->permissions;
}

/*
 * What is called for each range when the map is destroyed, after deregistration and in the order of adding, if it has been started at least
 * once. NULL: nothing. It must not free the map's own memory. Returns 0; -EBADFD and -EPERM by state.
 */
INLAY_COLD int inlay_mmap_set_free_cb(struct inlay_mmap *m, inlay_mmap_free_cb cb, void *cookie)
{
	INLAY_CHECK(m, "a map is not NULL");
	int err = inlay_mmap_settable(m);

	if (err)
		return err;
	m->free_cb = cb;
	m->cookie = cookie;
	return 0;
}

/* Returns 0; -EBADFD and -EPERM by state. 0 before it is set. */
INLAY_COLD int inlay_mmap_set_user_data(struct inlay_mmap *m, uint64_t data)
{
	INLAY_CHECK(m, "a map is not NULL");
	int err = inlay_mmap_settable(m);

	if (!err)
		m->user_data = data;
	return err;
}

INLAY_COLD uint64_t inlay_mmap_get_user_data(const struct inlay_mmap *m)
{
	INLAY_CHECK(m, "a map is not NULL");
	return m->user_data;
}

/*
 * Blobs of this map shall be authenticated: see blob.h. *mac stays the caller's, and in use until the map is destroyed; NULL: no longer.
 * Returns 0; -EBADFD and -EPERM by state; -EINVAL for one without function, or with a length that cannot be.
 */
INLAY_COLD int inlay_mmap_set_mac(struct inlay_mmap *m, const struct inlay_mac *mac)
{
	INLAY_CHECK(m, "a map is not NULL");
	int err = inlay_mmap_settable(m);

	if (err)
		return err;
	if (mac && (!mac->make || mac->bytes < 16 || mac->bytes > 64 || mac->bytes % 4))
		return -EINVAL;
	m->mac = mac;
	return 0;
}

/*
 * Live bufs. While others come and go in other threads, all that stay are counted. Looks at all inventories and pools that make bufs of the
 * map.
 */
INLAY_COLD uint64_t inlay_mmap_get_num_bufs(const struct inlay_mmap *m)
{
	INLAY_CHECK(m, "a map is not NULL");
	struct inlay_accounts *accounts = (struct inlay_accounts *)(uintptr_t)&m->accounts;

	return __atomic_load_n(&m->bufs, __ATOMIC_ACQUIRE) + inlay_accounts_live(accounts);
}

/*
 * From now on several threads may hold and drop bufs of this map: counting becomes atomic. For good. Returns 0; -EPERM by state, and while
 * a buf lives.
 */
INLAY_COLD int inlay_mmap_enable_thread_safety(struct inlay_mmap *m)
{
	INLAY_CHECK(m, "a map is not NULL");
	if (m->state == INLAY_MMAP_STARTED || m->state == INLAY_MMAP_ENDING || inlay_mmap_get_num_bufs(m))
		return -EPERM;
	m->thread_safe = 1;
	return 0;
}

/* Whether it has ever been exported; whether it was made from an export. */
INLAY_COLD int inlay_mmap_get_exported(const struct inlay_mmap *m)
{
	INLAY_CHECK(m, "a map is not NULL");
	return !!(m->flags & INLAY_MMAP_EXPORTED);
}

INLAY_COLD int inlay_mmap_get_from_export(const struct inlay_mmap *m)
{
	INLAY_CHECK(m, "a map is not NULL");
	return !!(m->flags & INLAY_MMAP_FROM_EXPORT);
}


/* ---- What a device can do ---- */

/*
 * Would a dmabuf be registered? Device, library and kernel must know how; a file that is none is refused for itself only by those who do.
 */
INLAY_COLD int inlay_mmap_cap_dmabuf(struct ibv_pd *pd)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE);
	if (mr)
		ibv_dereg_mr(mr);
	return mr || errno == EBADF;
}

/* ---- Start and stop ---- */

/* Registers range r with device d. Returns 0 or a negative errno. */
INLAY_COLD int inlay_mmap_register(struct inlay_mmap *m, uint32_t r, uint32_t d)
{
	const struct inlay_mmap_source *from = &m->sources[r];
	const struct inlay_range *range = &m->ranges[r];
	uint64_t at = (uint64_t)r * m->stride + d;
	struct ibv_pd *pd = m->devs[d];
	unsigned access = inlay_mmap_verbs_access(m->permissions & from->limit);
	struct ibv_mr *mr;

	if (from->kind == INLAY_MMAP_KEYS) {
		m->keys[at] = from->of.keys;
		return 0;
	}
	if (from->kind == INLAY_MMAP_DM && from->of.dm->context != pd->context)
		return -EINVAL;
	errno = 0;
	if (from->kind == INLAY_MMAP_DM)
		mr = ibv_reg_dm_mr(pd, from->of.dm, from->offset, (size_t)range->len, access | IBV_ACCESS_ZERO_BASED);
	else if (from->kind == INLAY_MMAP_DMABUF)
		mr = ibv_reg_dmabuf_mr(pd, from->offset, (size_t)range->len, range->start, from->of.fd, (int)access);
	else
		mr = ibv_reg_mr(pd, (void *)(uintptr_t)range->start, (size_t)range->len, access);
	if (!mr)
		return errno ? -errno : -ENOMEM;
	m->mrs[at] = mr;
	m->keys[at].lkey = mr->lkey;
	m->keys[at].rkey = mr->rkey;
	return 0;
}

/* Makes the map find what is in ranges, or nothing. Nobody looks up meanwhile. */
INLAY_COLD int inlay_mmap_publish(struct inlay_mmap *m, uint32_t num_ranges)
{
	int err;

	inlay_lookup_quiet(&m->lookup);
	err = inlay_lookup_build(&m->lookup, m->ranges, num_ranges);
	inlay_lookup_quiet(&m->lookup);
	return err;
}

/* Deregisters all that is registered. Returns the state to be in. */
INLAY_COLD uint32_t inlay_mmap_release(struct inlay_mmap *m)
{
	uint32_t r, d, state = INLAY_MMAP_CONFIG;
	uint64_t at;

	inlay_accounts_close(&m->accounts);
	inlay_mmap_publish(m, 0);
	/* What stands on the regions goes before them. */
	if (m->pci && m->pci_release(m))
		return INLAY_MMAP_ENDING;
	for (r = 0; r < m->num_ranges; r++) {
		for (d = 0; d < m->num_devs; d++) {
			at = (uint64_t)r * m->stride + d;
			if (!m->mrs[at])
				continue;
			if (ibv_dereg_mr(m->mrs[at]))
				state = INLAY_MMAP_ENDING;
			else
				m->mrs[at] = NULL;
		}
		m->ranges[r].lkey = m->ranges[r].rkey = INLAY_NO_KEY;
		m->ranges[r].access = 0;
	}
	return state;
}

/*
 * Registers every range with every device; from then on they are found.
 *
 * Returns 0; -EPERM by state; -EINVAL when there is no range, or device memory of another context; else the negative errno of the
 * registration that failed, and the map is as it was, with nothing registered.
 */
INLAY_COLD int inlay_mmap_start(struct inlay_mmap *m)
{
	INLAY_CHECK(m, "a map is not NULL");
	uint32_t r, d;
	int err = 0;

	if (m->state != INLAY_MMAP_CONFIG || inlay_mmap_open(m, -EPERM))
		return -EPERM;
	if (!m->num_ranges)
		return -EINVAL;
	for (r = 0; r < m->num_ranges && !err; r++) {
		for (d = 0; d < m->num_devs && !err; d++)
			err = inlay_mmap_register(m, r, d);
		m->ranges[r].access = m->permissions & m->sources[r].limit;
		if (!err && m->num_devs) {
			m->ranges[r].lkey = m->keys[(uint64_t)r * m->stride].lkey;
			m->ranges[r].rkey = m->keys[(uint64_t)r * m->stride].rkey;
		}
	}
	if (!err)
		err = inlay_mmap_publish(m, m->num_ranges);
	if (err) {
		m->state = inlay_mmap_release(m);
		return err;
	}
	m->flags |= INLAY_MMAP_STARTED_ONCE;
	__atomic_store_n(&m->state, INLAY_MMAP_STARTED, __ATOMIC_RELEASE);
	return 0;
}

/*
 * Deregisters everything: all keys are void, and so are blobs. Returns 0; -EPERM by state, while a buf lives, or when a region cannot go.
 */
INLAY_COLD int inlay_mmap_stop(struct inlay_mmap *m)
{
	INLAY_CHECK(m, "a map is not NULL");
	if ((m->state != INLAY_MMAP_STARTED && m->state != INLAY_MMAP_ENDING) || inlay_mmap_get_num_bufs(m))
		return -EPERM;
	m->state = inlay_mmap_release(m);
	return m->state == INLAY_MMAP_CONFIG ? 0 : -EPERM;
}

/*
 * Stops the map if need be, has the caller free its ranges (inlay_mmap_set_free_cb), and gives `memory` back. Returns 0; -EPERM while a buf
 * lives, or when a region cannot go: it may be called again.
 */
INLAY_COLD int inlay_mmap_destroy(struct inlay_mmap *m)
{
	INLAY_CHECK(m, "a map is not NULL");
	uint32_t r;

	if (inlay_mmap_get_num_bufs(m))
		return -EPERM;
	if (m->state == INLAY_MMAP_STARTED || m->state == INLAY_MMAP_ENDING)
		if (inlay_mmap_stop(m))
			return -EPERM;
	inlay_accounts_close(&m->accounts);
	if (m->pci && m->pci_release(m))
		return -EPERM;
	if (m->free_cb && m->flags & INLAY_MMAP_STARTED_ONCE)
		for (r = 0; r < m->num_ranges; r++)
			m->free_cb((void *)(uintptr_t)m->ranges[r].start, (size_t)m->ranges[r].len, m->cookie);
	__builtin_memset(m, 0, sizeof(*m));
	return 0;
}

/*
 * The handle by which a DPA names the map. It is made by device commands, which no header here gives.
 *
 * Returns -EPERM by state; -ENOENT when pd is not one of the map's devices; -ENOTSUP.
 */
INLAY_COLD int inlay_mmap_dpa_handle(const struct inlay_mmap *m, const struct ibv_pd *pd, uint32_t *handle)
{
	INLAY_CHECK(m, "a map is not NULL");
	(void)handle;
	if (m->state != INLAY_MMAP_STARTED && m->state != INLAY_MMAP_IMPORTED)
		return -EPERM;
	return inlay_mmap_dev_index(m, pd) < 0 ? -ENOENT : -ENOTSUP;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path
 */

/* Whether it may be looked up in: started or imported. */
INLAY_FN int inlay_mmap_started(const struct inlay_mmap *m)
{
	INLAY_CHECK(m, "a map is not NULL");
	uint32_t state = __atomic_load_n(&m->state, __ATOMIC_ACQUIRE);

	return state == INLAY_MMAP_STARTED || state == INLAY_MMAP_IMPORTED;
}

/*
 * The range that holds all of [addr, addr + len), or NULL: no single one does, or the map is neither started nor imported. Good until the
 * map is stopped.
 */
INLAY_ALWAYS const struct inlay_range *inlay_mmap_find(const struct inlay_mmap *m, const void *addr, size_t len)
{
	INLAY_CHECK(m, "a map is not NULL");
	return inlay_lookup_find(&m->lookup, (uintptr_t)addr, len);
}

/* The same, looking first at what this thread found last. */
INLAY_ALWAYS const struct inlay_range *inlay_mmap_hit(const struct inlay_mmap *m, struct inlay_hit *hit, const void *addr, size_t len)
{
	INLAY_CHECK(m, "a map is not NULL");
	return inlay_lookup_hit(&m->lookup, hit, (uintptr_t)addr, len);
}

/*
 * The keys of a range with a device.
 *
 * range_id  the range's id, as found
 * dev       the device's place in the order of adding
 *
 * Returns 0, or -ENOENT when there is no such range or device, or the map is neither started nor imported.
 */
INLAY_FN int inlay_mmap_keys(const struct inlay_mmap *m, uint32_t range_id, uint32_t dev, struct inlay_keys *keys)
{
	INLAY_CHECK(m, "a map is not NULL");
	if (INLAY_UNLIKELY(range_id >= m->num_ranges || dev >= m->num_devs || !inlay_mmap_started(m)))
		return -ENOENT;
	*keys = m->keys[(uint64_t)range_id * m->stride + dev];
	return 0;
}

/*
 * What a post to remote memory needs, checked here before the peer's device would refuse it with an error completion.
 *
 * m       an imported map
 * access  what is to be done there: INLAY_RDMA_READ, INLAY_RDMA_WRITE, INLAY_RDMA_ATOMIC, or several of them
 *
 * Returns 0 and the key in *rkey; -ENOENT when [addr, addr + len) is not in one range; -EPERM when that is not granted there, or there is no
 * such key, as for memory that was imported over PCI.
 */
INLAY_FN int inlay_mmap_remote(const struct inlay_mmap *m, uint64_t addr, uint64_t len, uint32_t access, uint32_t *rkey)
{
	INLAY_CHECK(m, "a map is not NULL");
	const struct inlay_range *r = inlay_lookup_find(&m->lookup, addr, len);

	if (INLAY_UNLIKELY(!r))
		return -ENOENT;
	if (INLAY_UNLIKELY(access & ~(r->access & INLAY_RDMA_ANY)) || INLAY_UNLIKELY(r->rkey == INLAY_NO_KEY))
		return -EPERM;
	*rkey = r->rkey;
	return 0;
}

/* Adds to the live bufs, where one thread may. Two that meet would lose some. */
INLAY_ALWAYS void inlay_mmap_count(struct inlay_mmap *m, uint64_t n)
{
	INLAY_CHECK(!__atomic_exchange_n(&m->counting, 1, __ATOMIC_RELAXED), "a map whose bufs several threads hold is thread-safe");
	m->bufs += n;
#if INLAY_CHECKED
	__atomic_store_n(&m->counting, 0, __ATOMIC_RELAXED);
#endif
}

/* Several live bufs more. */
INLAY_ALWAYS void inlay_mmap_hold_many(struct inlay_mmap *m, uint64_t n)
{
	INLAY_CHECK(m, "a map is not NULL");
	INLAY_CHECK(inlay_mmap_started(m), "bufs are made of a map that is started or imported");
	if (m->thread_safe)
		__atomic_fetch_add(&m->bufs, n, __ATOMIC_RELAXED);
	else
		inlay_mmap_count(m, n);
}

/* Several less. */
INLAY_ALWAYS void inlay_mmap_drop_many(struct inlay_mmap *m, uint64_t n)
{
	INLAY_CHECK(m, "a map is not NULL");
	INLAY_CHECK(__atomic_load_n(&m->bufs, __ATOMIC_RELAXED) >= n, "a buf is dropped once");
	/* Whoever finds that none is left, and stops, comes after all that was done with them. */
	if (m->thread_safe)
		__atomic_fetch_sub(&m->bufs, n, __ATOMIC_RELEASE);
	else
		inlay_mmap_count(m, (uint64_t)0 - n);
}

/* One more. */
INLAY_ALWAYS void inlay_mmap_hold(struct inlay_mmap *m)
{
	INLAY_CHECK(m, "a map is not NULL");
	inlay_mmap_hold_many(m, 1);
}

/* One less. */
INLAY_ALWAYS void inlay_mmap_drop(struct inlay_mmap *m)
{
	INLAY_CHECK(m, "a map is not NULL");
	inlay_mmap_drop_many(m, 1);
}

#endif
