/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap/cache.h: registration cache, for transports that are handed arbitrary buffers.
 *
 * The cache cannot see memory go away: WHO UNMAPS MEMORY MUST SAY SO (inlay_cache_invalidate) before the same addresses are mapped anew and
 * used. A registration holds the physical pages that were there when it was made. After munmap and mmap at the same address, a stale
 * entry sends, and lets others write, pages that the program no longer sees: silent corruption, no error. free() unmaps too, and so do
 * mremap, madvise(MADV_DONTNEED), brk and a library that is unloaded. Ways to know: the program's own allocator calls invalidate; malloc is
 * told to keep its memory (mallopt M_TRIM_THRESHOLD -1, M_MMAP_MAX 0); munmap and the like are wrapped; the kernel reports it through
 * userfaultfd (examples/regcache.c). Memory registered on demand (ODP) needs none of this, and no cache.
 *
 *   inlay_cache_pd(&ops, pd);                                                      or callbacks of your own
 *   inlay_cache_init(&cache, memory, inlay_cache_size(4096), 4096, 1ull << 30, 4096, &ops);
 *   ...
 *   if (inlay_cache_get(&cache, (uintptr_t)buf, len, IBV_ACCESS_LOCAL_WRITE, &entry) == 0)     found, or registered now
 *           sge.lkey = entry->lkey;
 *   ...
 *   inlay_cache_put(&cache, entry);                                                the transfer is complete
 *
 * Rules
 * -----
 * - An entry covers whole pages (page: 4096, or that of the huge pages underneath), so that small neighbours share one.
 * - A get is a hit when one entry holds all of it and grants all of its access bits. Else it is a miss, and something is registered.
 * - Entries that can be found never overlap. A miss that overlaps some registers the union of all, with the union of their access; when
 *   that would open pages to others, fails or exceeds the limits, its own pages with its own access. Once that is registered, those that it
 *   overlaps are taken out, as by invalidate: of overlapping ones, the one that was asked for last is found. Entries that only touch stay
 *   apart.
 * - No page comes to grant what nobody asked of it, but for bits that concern this process alone (ops.local): a get of local memory beside
 *   64 bytes that may be written from outside registers its own pages without that. Who uses both in turn, on one page, has each get
 *   register anew: keep such memory on pages of its own.
 * - An entry in use (more gets than puts) is never evicted nor deregistered. Taken out by invalidate, flush or a union, it becomes a
 *   zombie: its keys stay good for whoever has it, it is found no more, and its last put deregisters it. A get of its range registers anew.
 * - Entries and bytes, zombies included, never exceed the limits, not even while something is being registered. To make room, those that
 *   the new one overlaps are taken out before it is registered, and if need be the least recently used idle entries evicted; what counts is
 *   the last get; one found in use when an eviction looks for a victim counts as used then. Overlapping buffers that are used in turn, and
 *   together exceed max_bytes, are registered anew each time.
 * - When registering fails for want of resources (-ENOMEM, -EAGAIN, -ENOSPC), idle entries are evicted, 1, 2, 4, ... at a time, and it is
 *   tried again, until none is idle. Another error (-EFAULT: not mapped) is reported at once.
 * - A get that fails so leaves all entries as they were, if the limits had room for it beside them. Else what went to make room is gone;
 *   and so is all that was idle after one for want of room or resources.
 *
 * Found are the entries by inlay/mmap/lookup.h's table, whose index is made anew once there have been enough lookups since the last
 * change to pay for it; until then they are searched by halves. The entry that was used last is looked at first.
 *
 * Threads: one owner at a time. The cache may not be copied or moved. Callbacks may not call the cache.
 * Sources: ibv_reg_mr(3); UCX's ucs/memory/rcache.c and libfabric's ofi_mr_cache for what transports ask of one.
 */
#ifndef INLAY_MMAP_CACHE_H
#define INLAY_MMAP_CACHE_H

#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/mmap/lookup.h>

enum inlay_cache_state {
	INLAY_CACHE_FREE,
	INLAY_CACHE_LIVE,
	INLAY_CACHE_ZOMBIE,
};

/* A registration. The user reads lkey and rkey; the callbacks also use handle. */
struct inlay_cache_entry {
	uint64_t start, len;      /* what is registered: whole pages */
	uint32_t lkey, rkey;
	uint32_t access;
	uint32_t uses;            /* gets without their put */
	void *handle;             /* the callbacks': the ibv_mr */
	struct inlay_cache_entry *newer, *older;
	uint32_t state;           /* enum inlay_cache_state */
	uint32_t reserved;
};

/* How to register. Each returns 0 or a negative errno. */
struct inlay_cache_ops {
	/* Registers e's start, len and access; sets its lkey, rkey and handle. */
	int (*reg)(void *context, struct inlay_cache_entry *e);
	/* Undoes it. When it fails, the cache counts that and forgets the entry. */
	int (*dereg)(void *context, struct inlay_cache_entry *e);
	void *context;
	uint32_t local;           /* access bits that open nothing to others: any entry may have them in addition. 0: there is none */
	uint32_t reserved;
};

struct inlay_cache_counts {
	uint64_t hits, misses;
	uint64_t registered;      /* successfully */
	uint64_t merged;          /* of these, unions with what was there */
	uint64_t evicted;         /* for the limits, or after a failure */
	uint64_t invalidated;     /* by invalidate and flush */
	uint64_t failed;          /* gets that reported an error */
	uint64_t leaked;          /* entries whose deregistration failed */
	uint64_t bytes;           /* registered now, zombies included */
	uint32_t entries;         /* that can be found */
	uint32_t zombies;
	uint32_t idle;            /* entries that nobody uses */
};

struct inlay_cache {
	/* Ring of the entries that can be found: older of this one is the newest, newer the oldest. It holds nothing itself. */
	struct inlay_cache_entry list;
	struct inlay_table *table; /* ids are places in entries[] */
	struct inlay_cache_entry *entries;
	struct inlay_cache_entry *unused; /* linked by older */
	uint64_t stale;           /* 0: the index is good; else 1 + lookups since it is not */
	uint64_t page;
	uint64_t max_bytes;
	struct inlay_cache_ops ops;
	struct inlay_cache_counts counts;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_cache_entry) == INLAY_CACHE_LINE, "an entry is one line");

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up
 */

/* Bytes of memory that inlay_cache_init needs; 0 when max_entries is 0 or above INLAY_LOOKUP_MAX. */
INLAY_COLD size_t inlay_cache_size(uint32_t max_entries)
{
	if (!max_entries || max_entries > INLAY_LOOKUP_MAX)
		return 0;
	return (size_t)inlay_table_bytes_(max_entries) + (size_t)max_entries * sizeof(struct inlay_cache_entry);
}

/*
 * An empty cache.
 *
 * memory       on a cache line; the caller's until inlay_cache_fini
 * size         its bytes, at least inlay_cache_size(max_entries)
 * max_entries  registrations at a time, zombies included
 * max_bytes    registered at a time; UINT64_MAX: as many as can be
 * page         bytes to which registrations grow, a power of two
 * ops          copied
 *
 * Returns 0, or -EINVAL for an argument out of its range.
 */
INLAY_COLD int inlay_cache_init(struct inlay_cache *c, void *memory, size_t size, uint32_t max_entries, uint64_t max_bytes, uint64_t page,
				const struct inlay_cache_ops *ops)
{
	uint8_t *at = (uint8_t *)memory;
	uint32_t i;

	if (!memory || (uintptr_t)memory % INLAY_CACHE_LINE || !inlay_cache_size(max_entries) || size < inlay_cache_size(max_entries))
		return -EINVAL;
	if (!page || page & (page - 1) || !max_bytes || !ops->reg || !ops->dereg)
		return -EINVAL;
	__builtin_memset(c, 0, sizeof(*c));
	c->list.newer = c->list.older = &c->list;
	c->table = (struct inlay_table *)(void *)(at + inlay_table_index_bytes_(max_entries));
	c->entries = (struct inlay_cache_entry *)(void *)(at + inlay_table_bytes_(max_entries));
	c->page = page;
	c->max_bytes = max_bytes;
	c->ops = *ops;
	inlay_table_index_(c->table, 0);
	for (i = max_entries; i--;) {
		__builtin_memset(&c->entries[i], 0, sizeof(c->entries[i]));
		c->entries[i].older = c->unused;
		c->unused = &c->entries[i];
	}
	return 0;
}

/* The callbacks of inlay_cache_pd: access bits are verbs' (IBV_ACCESS_...). */
INLAY_COLD int inlay_cache_reg_mr(void *context, struct inlay_cache_entry *e)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_mr((struct ibv_pd *)context, (void *)(uintptr_t)e->start, (size_t)e->len, e->access);
	if (!mr)
		return errno ? -errno : -EIO;
	e->lkey = mr->lkey;
	e->rkey = mr->rkey;
	e->handle = mr;
	return 0;
}

INLAY_COLD int inlay_cache_dereg_mr(void *context, struct inlay_cache_entry *e)
{
	(void)context;
	return -ibv_dereg_mr((struct ibv_mr *)e->handle);
}

/* Registers with ibv_reg_mr in a protection domain. */
INLAY_COLD void inlay_cache_pd(struct inlay_cache_ops *ops, struct ibv_pd *pd)
{
	ops->reg = inlay_cache_reg_mr;
	ops->dereg = inlay_cache_dereg_mr;
	ops->context = pd;
	ops->local = IBV_ACCESS_LOCAL_WRITE;
	ops->reserved = 0;
}

/* ---- what a miss is made of ---- */

INLAY_FN void inlay_cache_unlink(struct inlay_cache_entry *e)
{
	e->newer->older = e->older;
	e->older->newer = e->newer;
}

/* Makes it the most recently used one. */
INLAY_FN void inlay_cache_link(struct inlay_cache *c, struct inlay_cache_entry *e)
{
	e->older = c->list.older;
	e->newer = &c->list;
	e->older->newer = e;
	c->list.older = e;
}

/* Deregisters, and gives the entry back. */
INLAY_COLD void inlay_cache_drop(struct inlay_cache *c, struct inlay_cache_entry *e)
{
	if (c->ops.dereg(c->ops.context, e))
		c->counts.leaked++;
	c->counts.bytes -= e->len;
	e->state = INLAY_CACHE_FREE;
	e->older = c->unused;
	c->unused = e;
}

/* Takes entries `from` to `to` - 1, in the order of addresses, out of the table: the idle ones are no more, the others zombies. */
INLAY_COLD void inlay_cache_take_out(struct inlay_cache *c, uint32_t from, uint32_t to)
{
	struct inlay_range *r = inlay_table_ranges_(c->table);
	uint32_t i;

	if (from == to)
		return;
	for (i = from; i < to; i++) {
		struct inlay_cache_entry *e = &c->entries[r[i].id];

		inlay_cache_unlink(e);
		if (e->uses) {
			e->state = INLAY_CACHE_ZOMBIE;
			c->counts.zombies++;
		} else {
			c->counts.idle--;
			inlay_cache_drop(c, e);
		}
	}
	for (i = to; i < c->table->num; i++) {
		r[i - (to - from)] = r[i];
		__asm__("" ::: "memory");
	}
	c->table->num -= to - from;
	c->counts.entries = c->table->num;
	c->stale = 1;
}

/* Evicts up to n idle entries, the least recently used ones. Returns how many. */
INLAY_COLD uint32_t inlay_cache_evict(struct inlay_cache *c, uint32_t n)
{
	uint32_t done = 0, at;

	while (done < n && c->counts.idle) {
		struct inlay_cache_entry *e = c->list.newer;

		if (e->uses) {
			inlay_cache_unlink(e);
			inlay_cache_link(c, e);
			continue;
		}
		at = inlay_table_rank_(c->table, e->start);
		inlay_cache_take_out(c, at - 1, at);
		c->counts.evicted++;
		done++;
	}
	return done;
}

/* Makes room for one more registration, of len bytes. Returns 0; -ENOSPC: the rest is in use. */
INLAY_COLD int inlay_cache_make_room(struct inlay_cache *c, uint64_t len)
{
	while (!c->unused || c->counts.bytes > c->max_bytes - len)
		if (!inlay_cache_evict(c, 1))
			return -ENOSPC;
	return 0;
}

/* The entries that overlap [start, last]: *from up to *to - 1. */
INLAY_COLD void inlay_cache_overlap(const struct inlay_cache *c, uint64_t start, uint64_t last, uint32_t *from, uint32_t *to)
{
	const struct inlay_range *r = inlay_table_ranges_(c->table);

	*from = inlay_table_rank_(c->table, start);
	if (*from && start - r[*from - 1].start < r[*from - 1].len)
		--*from;
	*to = inlay_table_rank_(c->table, last);
}

/*
 * Registers it, and enters it in place of what it overlaps: the newest, with one use. Where the limits have room for it beside them, these
 * are there until it is registered, and stay when it is not.
 */
INLAY_COLD int inlay_cache_enter(struct inlay_cache *c, uint64_t start, uint64_t len, uint32_t access, struct inlay_cache_entry **out)
{
	struct inlay_range *r = inlay_table_ranges_(c->table);
	struct inlay_cache_entry *e;
	uint32_t from, to, at, i;
	int err;

	if (!c->unused || c->counts.bytes > c->max_bytes - len) {
		inlay_cache_overlap(c, start, start + (len - 1), &from, &to);
		inlay_cache_take_out(c, from, to);
		err = inlay_cache_make_room(c, len);
		if (err)
			return err;
	}
	e = c->unused;
	e->start = start;
	e->len = len;
	e->access = access;
	e->lkey = e->rkey = 0;
	e->handle = NULL;
	err = c->ops.reg(c->ops.context, e);
	if (err)
		return err;
	c->unused = e->older;
	e->uses = 1;
	e->state = INLAY_CACHE_LIVE;
	inlay_cache_overlap(c, start, start + (len - 1), &from, &to);
	inlay_cache_take_out(c, from, to);
	inlay_cache_link(c, e);
	at = inlay_table_rank_(c->table, start);
	for (i = c->table->num; i > at; i--) {
		r[i] = r[i - 1];
		__asm__("" ::: "memory");
	}
	r[at].start = start;
	r[at].len = len;
	r[at].lkey = e->lkey;
	r[at].rkey = e->rkey;
	r[at].access = access;
	r[at].id = (uint32_t)(e - c->entries);
	c->counts.entries = ++c->table->num;
	c->counts.bytes += len;
	c->counts.registered++;
	c->stale = 1;
	*out = e;
	return 0;
}

/*
 * Would a union of entries `from` to `to` - 1 and [start, last], with access `all`, open a page to others in a way that neither its entry
 * nor this get does?
 */
INLAY_COLD int inlay_cache_opens(const struct inlay_cache *c, uint32_t from, uint32_t to, uint64_t start, uint64_t last, uint32_t access,
				 uint32_t all)
{
	const struct inlay_range *r = inlay_table_ranges_(c->table);
	uint64_t alone = last - start + 1; /* bytes that are in no entry */
	uint32_t i;

	for (i = from; i < to; i++) {
		uint64_t end = r[i].start + (r[i].len - 1), low = r[i].start > start ? r[i].start : start, high = end < last ? end : last;
		int inside = r[i].start >= start && end <= last;

		if (all & ~(r[i].access | (inside ? access : 0) | c->ops.local))
			return 1;
		alone -= high - low + 1;
	}
	return alone && all & ~(access | c->ops.local);
}

/* A get that found nothing. */
INLAY_COLD int inlay_cache_miss(struct inlay_cache *c, uint64_t addr, uint64_t len, uint32_t access, struct inlay_cache_entry **out)
{
	const struct inlay_range *r = inlay_table_ranges_(c->table);
	uint64_t start = addr & ~(c->page - 1), last = addr + (len - !!len), all_start, all_last, all_len;
	uint32_t from, to, i, all_access = access, batch;
	int err = -ENOSPC;

	c->counts.misses++;
	if (last < addr || (last | (c->page - 1)) - start == UINT64_MAX) {
		c->counts.failed++;
		return -EINVAL;
	}
	last |= c->page - 1;
	len = last - start + 1;
	if (len > c->max_bytes) {
		c->counts.failed++;
		return -E2BIG;
	}
	all_start = start;
	all_last = last;
	inlay_cache_overlap(c, start, last, &from, &to);
	for (i = from; i < to; i++) {
		uint64_t end = r[i].start + (r[i].len - 1);

		all_start = r[i].start < all_start ? r[i].start : all_start;
		all_last = end > all_last ? end : all_last;
		all_access |= r[i].access;
	}
	all_len = all_last - all_start + 1; /* 0: all of the address space */
	if ((all_len != len || all_access != access) && all_len && all_len <= c->max_bytes &&
	    !inlay_cache_opens(c, from, to, start, last, access, all_access)) {
		err = inlay_cache_enter(c, all_start, all_len, all_access, out);
		c->counts.merged += !err;
	}
	for (batch = 1; err; batch *= 2) {
		err = inlay_cache_enter(c, start, len, access, out);
		if (err != -ENOMEM && err != -EAGAIN && err != -ENOSPC)
			break;
		if (!inlay_cache_evict(c, batch))
			break;
	}
	c->counts.failed += !!err;
	return err;
}

/*
 * Forgets every entry that overlaps [addr, addr + len): the idle ones are deregistered now, the others by their last put. Call it
 * before the memory can be mapped anew; it makes no difference whether the memory is still there. Returns how many there were.
 */
INLAY_COLD uint32_t inlay_cache_invalidate(struct inlay_cache *c, uint64_t addr, uint64_t len)
{
	uint64_t last = len - 1 > UINT64_MAX - addr ? UINT64_MAX : addr + (len - 1);
	uint32_t from, to;

	if (!len)
		return 0;
	inlay_cache_overlap(c, addr, last, &from, &to);
	inlay_cache_take_out(c, from, to);
	c->counts.invalidated += to - from;
	return to - from;
}

/* Forgets all entries, likewise. Returns how many registrations are left, because they are in use. */
INLAY_COLD uint32_t inlay_cache_flush(struct inlay_cache *c)
{
	c->counts.invalidated += c->table->num;
	inlay_cache_take_out(c, 0, c->table->num);
	return c->counts.zombies;
}

/* The end: nothing is registered any more. Returns 0; -EBUSY when something is in use; then the cache is flushed, and still good. */
INLAY_COLD int inlay_cache_fini(struct inlay_cache *c)
{
	return inlay_cache_flush(c) ? -EBUSY : 0;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: a hit calls nothing, a miss calls the callbacks
 */

/* The entry that holds it with these access bits, now the newest; or NULL. */
INLAY_FN struct inlay_cache_entry *inlay_cache_find(struct inlay_cache *c, uint64_t addr, uint64_t len, uint32_t access)
{
	const struct inlay_range *r;
	struct inlay_cache_entry *e;
	uint32_t at;

	/* An index costs about as much as a few searches of each entry. */
	if (INLAY_UNLIKELY(c->stale) && c->stale++ > 64 + 2 * (uint64_t)c->table->num) {
		inlay_table_index_(c->table, c->table->num);
		c->stale = 0;
	}
	if (INLAY_LIKELY(!c->stale)) {
		r = inlay_table_find_(c->table, addr, len);
	} else {
		at = inlay_table_rank_(c->table, addr);
		r = at ? inlay_table_ranges_(c->table) + at - 1 : NULL;
		r = r && inlay_range_holds_(r->start, r->len, addr, len) ? r : NULL;
	}
	if (INLAY_UNLIKELY(!r || access & ~r->access))
		return NULL;
	e = &c->entries[r->id];
	inlay_cache_unlink(e);
	inlay_cache_link(c, e);
	return e;
}

/*
 * An entry for [addr, addr + len), found or registered; in use until its put.
 *
 * len     0 counts as 1
 * access  bits that the entry must grant; what they mean is the callbacks' affair
 *
 * Returns 0; else *out is not written and: -EINVAL for a range beyond the end of the address space; -E2BIG when its pages are more than
 * max_bytes; -ENOSPC when what is in use leaves no room; or what registering said.
 */
INLAY_ALWAYS int inlay_cache_get(struct inlay_cache *c, uint64_t addr, uint64_t len, uint32_t access, struct inlay_cache_entry **out)
{
	struct inlay_cache_entry *e = c->list.older;

	if (INLAY_UNLIKELY(!inlay_range_holds_(e->start, e->len, addr, len) || access & ~e->access)) {
		e = inlay_cache_find(c, addr, len, access);
		if (INLAY_UNLIKELY(!e))
			return inlay_cache_miss(c, addr, len, access, out);
	}
	c->counts.hits++;
	c->counts.idle -= !e->uses++;
	*out = e;
	return 0;
}

/* Ends a use. Nothing may use the keys for it any more: transfers are complete. */
INLAY_ALWAYS void inlay_cache_put(struct inlay_cache *c, struct inlay_cache_entry *e)
{
	INLAY_CHECK(e->uses && e->state != INLAY_CACHE_FREE, "one put for each get");
	if (--e->uses)
		return;
	if (INLAY_LIKELY(e->state == INLAY_CACHE_LIVE)) {
		c->counts.idle++;
	} else {
		c->counts.zombies--;
		inlay_cache_drop(c, e);
	}
}

#endif
