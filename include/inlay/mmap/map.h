/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap/map.h: a memory map: ranges of memory, the devices that may access them, and each
 * range's keys and permissions.
 *
 *   inlay_mmap_create(&map, memory, inlay_mmap_size(1, 4), 1, 4);   one device, four ranges
 *   inlay_mmap_add_dev(&map, pd);                                   a device is an ibv_pd
 *   inlay_mmap_add(&map, inlay_source_host(buffer, bytes));
 *   inlay_mmap_set_permissions(&map, INLAY_LOCAL_READ_WRITE | INLAY_RDMA_WRITE);
 *   inlay_mmap_start(&map);                                         registers with each device
 *   r = inlay_mmap_find(&map, addr, len);                           r->lkey, r->rkey; NULL: none
 *   inlay_mmap_destroy(&map);
 *
 * States:
 *
 *   create --> configured --start--> started --stop--> configured ... --destroy--> gone
 *   create_from_export (blob.h) --> started, without a stop ... --destroy--> gone
 *
 * Invariants:
 *   - A map is changed only while it is configured: add*, rm* and set_* return -EBADFD otherwise.
 *   - A started map must not move: buffers, pools and inventories point to it.
 *   - A map that was exported is not started again: its blobs hold the old keys.
 *   - While a map is held or has buffers, stop and destroy return -EBUSY and change nothing.
 *   - When the kernel refuses to deregister a region, stop and destroy return -EBUSY, and lookups
 *     find nothing: call again. A failed start may leave a map in this state.
 *
 * Threads: a set-up function needs the map to itself: no other thread uses it, or destroys an
 * inventory or pool with buffers of it. Lookups, hold and drop: any thread.
 * Sources: DOCA's documentation of doca_mmap (porting-doca.md has the differences); ibv_reg_mr(3).
 */
#ifndef INLAY_MMAP_MAP_H
#define INLAY_MMAP_MAP_H /* a trial: names may change */

#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/mmap/lookup.h>
#include <inlay/mmap/source.h>

#define INLAY_MMAP_DEVICES 256u         /* devices of one map, at most */

enum inlay_mmap_state_ {
	INLAY_MMAP_CONFIGURED_,
	INLAY_MMAP_STARTED_,
	INLAY_MMAP_STUCK_               /* not everything could be deregistered */
};

struct inlay_mac;
struct inlay_mmap;
struct inlay_mmap_pci;

/* An owner of buffers of the map, which counts them itself: see buf/store.h */
struct inlay_holder_ {
	struct inlay_mmap *map;         /* NULL: none */
	struct inlay_holder_ *next;
	uint64_t (*count)(const struct inlay_holder_ *h);
	uint64_t *turn;                 /* incremented when the map is stopped */
};

/* Callers may read the fields without an underscore, and set those under "The caller's". */
struct inlay_mmap {
	/* Read by lookups */
	struct inlay_table *table_;     /* empty unless started; an id is an index in sources */
	struct inlay_source *sources;   /* num_ranges, in the order of adding; read only */
	struct ibv_mr **mrs;            /* [r * max_devs + d]: range r on device d; NULL: the source has the keys */
	struct ibv_pd **devs;           /* in the order of adding */
	uint32_t state_;                /* enum inlay_mmap_state_ */
	uint32_t num_ranges;
	uint32_t num_devs;
	uint32_t max_devs;
	uint32_t permissions;           /* INLAY_LOCAL_READ_ONLY before they are set */
	uint32_t max_ranges;
	uint8_t exported;               /* now or earlier */
	uint8_t imported;
	uint8_t started_once_;
	uint16_t abi;                   /* INLAY_ABI */
	/* Written by holders */
	uint64_t holds_;
	struct inlay_holder_ *holders_;
	uint32_t lock_;                 /* of holders_ */
	/* The caller's: zero at first, read when needed */
	uint64_t user_data;
	/* Called by destroy for each range of host memory or a dmabuf, if the map was ever started */
	void (*free_cb)(void *addr, size_t len, void *cookie);
	void *cookie;
	const struct inlay_mac *mac;    /* the MAC that exported blobs carry (blob.h); NULL: none */
	/* Device objects of exports and imports over PCI, and their destructor */
	struct inlay_mmap_pci *pci_;
	int (*pci_release_)(struct inlay_mmap *m);
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_mmap, holds_) == INLAY_CACHE_LINE, "lookups read one line");

/* ---- Set-up ---- */

/* Bytes for a map of so many devices and ranges; 0 if either number is out of range. */
INLAY_COLD size_t inlay_mmap_size(uint32_t max_devs, uint32_t max_ranges)
{
	const size_t of_range = sizeof(struct inlay_source) + max_devs * sizeof(struct ibv_mr *);

	if (!max_devs || max_devs > INLAY_MMAP_DEVICES || !max_ranges || max_ranges > INLAY_LOOKUP_MAX)
		return 0;
	return (size_t)inlay_round_up(inlay_table_bytes_(max_ranges) + max_ranges * of_range +
				      max_devs * sizeof(struct ibv_pd *), INLAY_CACHE_LINE);
}

/*
 * Makes an empty map in memory of inlay_mmap_size() bytes, aligned to a cache line; the map owns it
 * until destroy. Returns 0; -EINVAL for a bad argument; -ENOBUFS.
 */
INLAY_COLD int inlay_mmap_create(struct inlay_mmap *m, void *memory, size_t size, uint32_t max_devs,
				 uint32_t max_ranges)
{
	uint8_t *at = (uint8_t *)memory;

	if (!m || !memory || (uintptr_t)memory % INLAY_CACHE_LINE || !inlay_mmap_size(max_devs, max_ranges))
		return -EINVAL;
	if (size < inlay_mmap_size(max_devs, max_ranges))
		return -ENOBUFS;
	__builtin_memset(m, 0, sizeof(*m));
	m->table_ = inlay_table_init_(at, max_ranges);
	at += inlay_table_bytes_(max_ranges);
	m->sources = (struct inlay_source *)(void *)at;
	at += max_ranges * sizeof(struct inlay_source);
	m->mrs = (struct ibv_mr **)(void *)at;
	__builtin_memset(at, 0, (size_t)max_ranges * max_devs * sizeof(*m->mrs));
	m->devs = (struct ibv_pd **)(void *)(m->mrs + (size_t)max_ranges * max_devs);
	m->max_devs = max_devs;
	m->max_ranges = max_ranges;
	m->abi = INLAY_ABI;
	return 0;
}

INLAY_ALWAYS const struct inlay_mmap *inlay_mmap_(const struct inlay_mmap *m)
{
	INLAY_CHECK(m, "a map is not NULL");
	return m;
}

INLAY_COLD int inlay_mmap_configured_(const struct inlay_mmap *m)
{
	return inlay_mmap_(m)->state_ == INLAY_MMAP_CONFIGURED_;
}

/* The index of a device, or -ENOENT. A parent domain (inlay_uar_create) is its PD here. */
INLAY_FN int inlay_mmap_dev_(const struct inlay_mmap *m, const struct ibv_pd *pd)
{
	uint32_t d;

	for (d = 0; pd && d < inlay_mmap_(m)->num_devs; d++)
		if (m->devs[d] == pd || (m->devs[d]->context == pd->context && m->devs[d]->handle == pd->handle))
			return (int)d;
	return -ENOENT;
}

/* Adds a device. Returns 0; -EBADFD by state; -EINVAL; -EEXIST; -ENOSPC beyond max_devs. */
INLAY_COLD int inlay_mmap_add_dev(struct inlay_mmap *m, struct ibv_pd *pd)
{
	if (!inlay_mmap_configured_(m))
		return -EBADFD;
	if (!pd)
		return -EINVAL;
	if (inlay_mmap_dev_(m, pd) >= 0)
		return -EEXIST;
	if (m->num_devs == m->max_devs)
		return -ENOSPC;
	m->devs[m->num_devs++] = pd;
	return 0;
}

/* Removes a device; the later ones move down by one. Returns 0; -EBADFD by state; -ENOENT. */
INLAY_COLD int inlay_mmap_rm_dev(struct inlay_mmap *m, const struct ibv_pd *pd)
{
	int d = inlay_mmap_dev_(m, pd);

	if (!inlay_mmap_configured_(m))
		return -EBADFD;
	if (d < 0)
		return d;
	for (m->num_devs--; (uint32_t)d < m->num_devs; d++)
		m->devs[d] = m->devs[d + 1];
	return 0;
}

/*
 * Adds a range; start finds overlaps. Returns 0; -EBADFD by state; -EINVAL for a source that is
 * empty, wraps around, or names no memory; -ENOSPC beyond max_ranges.
 */
INLAY_COLD int inlay_mmap_add(struct inlay_mmap *m, struct inlay_source source)
{
	if (!inlay_mmap_configured_(m))
		return -EBADFD;
	if (inlay_source_check_(&source))
		return -EINVAL;
	if (m->num_ranges == m->max_ranges)
		return -ENOSPC;
	m->sources[m->num_ranges++] = source;
	return 0;
}

/* Removes the range that is exactly [addr, addr + len). Returns 0; -EBADFD by state; -ENOENT. */
INLAY_COLD int inlay_mmap_rm(struct inlay_mmap *m, uint64_t addr, uint64_t len)
{
	uint32_t i;

	if (!inlay_mmap_configured_(m))
		return -EBADFD;
	for (i = 0; i < m->num_ranges && (m->sources[i].start != addr || m->sources[i].len != len); i++)
		;
	if (i == m->num_ranges)
		return -ENOENT;
	for (m->num_ranges--; i < m->num_ranges; i++)
		m->sources[i] = m->sources[i + 1];
	return 0;
}

/* The permissions in mask that range i grants. */
INLAY_COLD uint32_t inlay_mmap_granted_(const struct inlay_mmap *m, uint32_t i, uint32_t mask)
{
	return m->permissions & m->sources[i].limit & mask;
}

/*
 * Sets what all ranges grant within their source's limit. Returns 0; -EBADFD by state; -EINVAL for
 * an unknown bit, or both INLAY_PCI_* bits.
 */
INLAY_COLD int inlay_mmap_set_permissions(struct inlay_mmap *m, uint32_t permissions)
{
	if (!inlay_mmap_configured_(m))
		return -EBADFD;
	if (inlay_access_check_(permissions))
		return -EINVAL;
	m->permissions = permissions;
	return 0;
}

INLAY_FN int inlay_mmap_started_(const struct inlay_mmap *m)
{
	return __atomic_load_n(&inlay_mmap_(m)->state_, __ATOMIC_ACQUIRE) == INLAY_MMAP_STARTED_;
}

INLAY_COLD void inlay_holder_open_(struct inlay_holder_ *h, struct inlay_mmap *m)
{
	inlay_lock(&m->lock_);
	h->next = m->holders_;
	m->holders_ = h;
	__atomic_store_n(&h->map, m, __ATOMIC_RELAXED);
	inlay_unlock(&m->lock_);
}

INLAY_COLD void inlay_holder_close_(struct inlay_holder_ *h)
{
	struct inlay_mmap *m = h->map;
	struct inlay_holder_ **at;

	if (!m)
		return;
	inlay_lock(&m->lock_);
	for (at = &m->holders_; *at != h; at = &(*at)->next)
		;
	*at = h->next;
	__atomic_store_n(&h->map, NULL, __ATOMIC_RELAXED);
	inlay_unlock(&m->lock_);
}

/*
 * Counts what keeps the map from being stopped, if it lasts through the call: buffers, and holds (a
 * started pool and each operation of a memory domain hold once). Scans the descriptors of all
 * inventories and pools that have buffers of the map.
 */
INLAY_COLD uint64_t inlay_mmap_num_bufs(const struct inlay_mmap *map)
{
	struct inlay_mmap *m = (struct inlay_mmap *)(uintptr_t)map;
	const struct inlay_holder_ *h;
	uint64_t n;

	n = __atomic_load_n(&inlay_mmap_(m)->holds_, __ATOMIC_ACQUIRE);
	inlay_lock(&m->lock_);
	for (h = m->holders_; h; h = h->next)
		n += h->count(h);
	inlay_unlock(&m->lock_);
	return n;
}

/* The keys of range r on device d, or those of the source. */
INLAY_FN struct inlay_keys inlay_mmap_keys_(const struct inlay_mmap *m, uint32_t r, uint32_t d)
{
	const struct ibv_mr *mr = m->mrs[(uint64_t)r * m->max_devs + d];
	struct inlay_keys keys = {INLAY_NO_KEY, INLAY_NO_KEY};

	if (mr) {
		keys.lkey = mr->lkey;
		keys.rkey = mr->rkey;
	} else if (m->sources[r].kind == INLAY_SOURCE_KEYS) {
		keys = m->sources[r].of.keys;
	}
	return keys;
}

/* Range i of a started map in the order of addresses, or NULL. */
INLAY_COLD const struct inlay_range *inlay_mmap_range_(const struct inlay_mmap *m, uint32_t i)
{
	return i < m->table_->num ? inlay_table_ranges_(m->table_) + i : NULL;
}

/* Makes the table of all sources. Returns 0, or -EEXIST for an overlap. */
INLAY_COLD int inlay_mmap_publish_(struct inlay_mmap *m)
{
	struct inlay_range *e = inlay_table_ranges_(m->table_);
	struct inlay_keys keys;
	uint32_t i;

	for (i = 0; i < m->num_ranges; i++) {
		keys = inlay_mmap_keys_(m, i, 0);
		e[i].start = m->sources[i].start;
		e[i].len = m->sources[i].len;
		e[i].lkey = keys.lkey;
		e[i].rkey = keys.rkey;
		e[i].access = inlay_mmap_granted_(m, i, INLAY_ACCESS_ALL);
		e[i].id = i;
	}
	return inlay_table_build_(m->table_, m->num_ranges);
}

/* Empties the table, deregisters everything and sets the state. Returns 0 or -EBUSY. */
INLAY_COLD int inlay_mmap_release_(struct inlay_mmap *m)
{
	uint64_t i, n = (uint64_t)m->num_ranges * m->max_devs;
	struct inlay_holder_ *h, *next;
	int err = 0;

	m->state_ = INLAY_MMAP_STUCK_;
	inlay_table_index_(m->table_, 0);
	for (h = m->holders_; h; h = next) {
		next = h->next;
		__atomic_fetch_add(h->turn, 1, __ATOMIC_RELEASE);
		/* From here on its owner may open it for another map. */
		__atomic_store_n(&h->map, NULL, __ATOMIC_RELEASE);
	}
	m->holders_ = NULL;
	/* Keys for devices across PCIe refer to the regions, so they go first. */
	if (m->pci_ && m->pci_release_(m))
		return -EBUSY;
	for (i = 0; i < n; i++)
		if (m->mrs[i] && ibv_dereg_mr(m->mrs[i]))
			err = -EBUSY;
		else
			m->mrs[i] = NULL;
	if (!err)
		m->state_ = INLAY_MMAP_CONFIGURED_;
	return err;
}

/*
 * Registers each range with each device, or nothing; lookups then find it.
 *
 * Returns 0; -EBADFD when the map is started, or was exported or imported; -EINVAL without ranges,
 * for device memory of another context, and for keys in a map of several devices; -EEXIST for
 * overlapping ranges; else the negative errno of the registration that failed.
 */
INLAY_COLD int inlay_mmap_start(struct inlay_mmap *m)
{
	uint32_t r, d;
	int err;

	if (!inlay_mmap_configured_(m) || m->exported || m->imported)
		return -EBADFD;
	err = m->num_ranges ? inlay_mmap_publish_(m) : -EINVAL;
	for (r = 0; r < m->num_ranges && !err; r++) {
		if (m->sources[r].kind == INLAY_SOURCE_KEYS && m->num_devs > 1)
			err = -EINVAL;
		for (d = 0; d < m->num_devs && !err; d++)
			err = inlay_source_register_(&m->sources[r], m->devs[d], m->permissions,
						     &m->mrs[(uint64_t)r * m->max_devs + d]);
	}
	err = err ? err : inlay_mmap_publish_(m);
	if (err) {
		inlay_mmap_release_(m);
		return err;
	}
	m->started_once_ = 1;
	__atomic_store_n(&m->state_, INLAY_MMAP_STARTED_, __ATOMIC_RELEASE);
	return 0;
}

/* Deregisters everything: keys and blobs become invalid. Returns 0; -EBADFD by state; -EBUSY. */
INLAY_COLD int inlay_mmap_stop(struct inlay_mmap *m)
{
	if (inlay_mmap_configured_(m) || (m->imported && m->state_ == INLAY_MMAP_STARTED_))
		return -EBADFD;
	return inlay_mmap_num_bufs(m) ? -EBUSY : inlay_mmap_release_(m);
}

/* Stops the map if needed, calls free_cb, and returns the memory to the caller. Returns 0; -EBUSY. */
INLAY_COLD int inlay_mmap_destroy(struct inlay_mmap *m)
{
	uint32_t r;

	if (inlay_mmap_num_bufs(m))
		return -EBUSY;
	if (m->state_ != INLAY_MMAP_CONFIGURED_ && inlay_mmap_release_(m))
		return -EBUSY;
	for (r = 0; m->free_cb && m->started_once_ && r < m->num_ranges; r++) {
		const struct inlay_source *s = &m->sources[r];

		if (s->kind == INLAY_SOURCE_HOST || s->kind == INLAY_SOURCE_DMABUF)
			m->free_cb((void *)(uintptr_t)s->start, (size_t)s->len, m->cookie);
	}
	__builtin_memset(m, 0, sizeof(*m));
	return 0;
}

/*
 * The DPA's handle for the map: -EBADFD by state; -ENOENT when pd is not one of the map's devices;
 * else -ENOTSUP, because no public document describes the commands.
 */
INLAY_COLD int inlay_mmap_dpa_handle(const struct inlay_mmap *m, const struct ibv_pd *pd, uint32_t *handle)
{
	(void)handle;
	if (!inlay_mmap_started_(m))
		return -EBADFD;
	return inlay_mmap_dev_(m, pd) < 0 ? -ENOENT : -ENOTSUP;
}

/* ---- Data path ---- */

/*
 * The range that contains [addr, addr + len), valid until the map is stopped; NULL when no single
 * range does, or the map is not started.
 */
INLAY_ALWAYS const struct inlay_range *inlay_mmap_find(const struct inlay_mmap *m, const void *addr, size_t len)
{
	return inlay_table_find_(inlay_mmap_(m)->table_, (uintptr_t)addr, len);
}

/*
 * The keys of the range with this id (struct inlay_range) on a device. Returns 0; -ENOENT for no
 * such range or device, or a map that is not started.
 */
INLAY_FN int inlay_mmap_keys(const struct inlay_mmap *m, uint32_t range_id, const struct ibv_pd *pd,
			     struct inlay_keys *keys)
{
	int dev = inlay_mmap_dev_(m, pd);

	if (INLAY_UNLIKELY(range_id >= m->num_ranges || dev < 0 || !inlay_mmap_started_(m)))
		return -ENOENT;
	*keys = inlay_mmap_keys_(m, range_id, (uint32_t)dev);
	return 0;
}

/*
 * The rkey for a post to an imported map's memory. access: one or several of INLAY_RDMA_*. Returns
 * 0; -ENOENT when no range contains [addr, addr + len); -EPERM when it does not grant access, or
 * has no rkey (imported over PCI).
 */
INLAY_FN int inlay_mmap_remote(const struct inlay_mmap *m, uint64_t addr, uint64_t len, uint32_t access, uint32_t *rkey)
{
	const struct inlay_range *r = inlay_table_find_(inlay_mmap_(m)->table_, addr, len);

	if (INLAY_UNLIKELY(!r))
		return -ENOENT;
	if (INLAY_UNLIKELY(access & ~(r->access & INLAY_RDMA_ANY)) || INLAY_UNLIKELY(r->rkey == INLAY_NO_KEY))
		return -EPERM;
	*rkey = r->rkey;
	return 0;
}

/* Holds a started map: it cannot be stopped until inlay_mmap_drop. */
INLAY_ALWAYS void inlay_mmap_hold(struct inlay_mmap *m)
{
	INLAY_CHECK(inlay_mmap_started_(m), "a map that is held is started");
	__atomic_fetch_add(&m->holds_, 1, __ATOMIC_RELAXED);
}

/* Drops a hold. Accesses under it happen before a stop that finds no holds. */
INLAY_ALWAYS void inlay_mmap_drop(struct inlay_mmap *m)
{
	INLAY_CHECK(__atomic_load_n(&m->holds_, __ATOMIC_RELAXED), "a hold is dropped once");
	__atomic_fetch_sub(&m->holds_, 1, __ATOMIC_RELEASE);
}

#endif
