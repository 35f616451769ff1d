/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap/cache.h: registration cache, for transports that are handed arbitrary buffers.
 *
 * A get finds a registered region that holds the buffer, or registers one; a put ends the use. Any
 * thread may post that memory goes away; the owner's next get drops what was registered there.
 *
 *   struct inlay_cache_attr attr = {4096, 256, 1ull << 30, 4096, sizeof(struct my_keys)};
 *   inlay_cache_ops_verbs(&ops, pd);                               or callbacks of your own
 *   inlay_cache_init(&cache, memory, inlay_cache_size(&attr), &attr, &ops);
 *   ...
 *   if (inlay_cache_get(&cache, (uintptr_t)buf, len, IBV_ACCESS_LOCAL_WRITE, &region) == 0)
 *           sge.lkey = region->lkey;
 *   ...
 *   inlay_cache_put(&cache, region);                               the transfer is complete
 *   inlay_cache_post(&cache, (uintptr_t)buf, len);                 any thread, before munmap
 *
 * The cache must be told. A registration holds the physical pages that were there when it was made.
 * After munmap and a new mmap at the same address, a stale region would send, and let peers write,
 * pages that the program no longer sees: silent corruption. free() unmaps too, and so do mremap,
 * madvise(MADV_DONTNEED), brk and dlclose(). Post from the program's allocator or from wrappers of
 * these calls, or let the kernel report them (mmap/monitor.h). Memory registered on demand (ODP)
 * needs none of this, and no cache.
 *
 * Invariants
 * ----------
 * - A region covers whole pages (attr.page). A get is a hit if one region holds all of its range
 *   and grants all of its access bits.
 * - Regions that can be found never overlap. A miss that overlaps some registers one region in
 *   their place: the union of the ranges, with the union of the access. So a get that asks for more
 *   access than a region has widens it. If the union cannot be registered or exceeds max_bytes, the
 *   get's own pages are registered with its own access. Regions that merely touch stay apart.
 * - A union may let peers access pages that nobody asked to open. Callers that mind set ops.merge
 *   to inlay_cache_merge_same, which merges only what has the same remote access. Buffers on one
 *   page that are used in turn with different remote access then register anew each time.
 * - A region in use (more gets than puts) is never evicted nor deregistered. Once invalidated or
 *   replaced by a union it is a zombie: its keys stay good for its users, no get finds it, and its
 *   last put deregisters it.
 * - Regions and their bytes, zombies included, never exceed the limits, not even during a
 *   registration. To make room, overlapped regions go first, then idle ones, least recently put
 *   first. Eviction does not look at regions in use.
 * - When registration fails for want of resources (-ENOMEM, -EAGAIN, -ENOSPC), idle regions are
 *   evicted, 1, 2, 4, ... at a time, and it is tried again. Other errors are returned at once, and
 *   leave all regions as they were if the limits leave room for them.
 * - Once a post has returned, no get finds a region that overlaps it and was registered before it.
 *   Posts are never lost: if more than attr.posts are waiting, the next get drops all regions.
 * - A hit calls nothing. A miss takes O(log n) steps (expected, in any order of addresses), and as
 *   many for each region that it drops.
 *
 * Threads: one owner at a time; inlay_cache_post, _expect and _settle may be called by any thread.
 * The cache may not be copied or moved. Callbacks may post, and call nothing else of the cache.
 *
 * A get looks at the region that was got last, then at a table from page to region (a hint, which
 * is checked), then searches a treap.
 *
 * Sources: ibv_reg_mr(3); UCX's ucs/memory/rcache.h and libfabric's ofi_mr_cache for what
 * transports ask of one; R. Seidel and C. Aragon, "Randomized search trees" (1996).
 */
#ifndef INLAY_MMAP_CACHE_H
#define INLAY_MMAP_CACHE_H

#include <sched.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>

#define INLAY_CACHE_MAX (1u << 24) /* regions, and posts that can wait */

enum inlay_cache_state {
	INLAY_CACHE_FREE,
	INLAY_CACHE_LIVE,
	INLAY_CACHE_ZOMBIE,
};

/* A registration. The caller's bytes (attr.bytes) follow it: inlay_cache_bytes(). */
struct inlay_cache_region {
	uint64_t start, len;      /* what is registered: whole pages */
	uint32_t lkey, rkey;      /* set by ops.reg */
	uint32_t access;
	uint32_t uses;            /* gets without their put */
	void *handle;             /* for ops: the ibv_mr */
	struct inlay_cache_region *child_[2];
	uint32_t state;           /* enum inlay_cache_state */
	uint32_t weight_;         /* random; no child is heavier than its parent */
	struct inlay_cache_region *newer_, *older_; /* idle ones in the order of puts; free ones by older_ */
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_cache_region, newer_) == INLAY_CACHE_LINE, "a search reads one line");
INLAY_STATIC_ASSERT(sizeof(struct inlay_cache_region) % 16 == 0, "the caller's bytes are aligned");

/* How to register. Callbacks return 0 or a negative errno. */
struct inlay_cache_ops {
	/* Registers r's start, len and access. Sets lkey, rkey, handle and the caller's bytes. */
	int (*reg)(void *context, struct inlay_cache_region *r);
	/* Undoes it. An error is counted (counts.leaked), and the region forgotten. */
	int (*dereg)(void *context, struct inlay_cache_region *r);
	/*
	 * May `old` become part of r, which is about to be registered? 0: r grows to hold both.
	 * Else it does not. Either way old is dropped once r is registered. May copy old's bytes
	 * to r's. NULL: yes.
	 */
	int (*merge)(void *context, const struct inlay_cache_region *old, struct inlay_cache_region *r);
	/* Called again and again while a get waits for a post to complete. NULL: the CPU only pauses. */
	void (*wait)(void *context);
	void *context;
};

struct inlay_cache_attr {
	uint32_t max_regions;     /* at a time, zombies included; 1 .. INLAY_CACHE_MAX */
	uint32_t posts;           /* that can wait; a power of two, 1 .. INLAY_CACHE_MAX */
	uint64_t max_bytes;       /* registered at a time; UINT64_MAX: no limit */
	uint64_t page;            /* 64 or more, a power of two: 4096, or the size of huge pages underneath */
	uint32_t bytes;           /* the caller's, in each region; 0 .. 8192 */
};

struct inlay_cache_counts {
	uint64_t hits, misses;
	uint64_t registered;      /* successfully */
	uint64_t merged;          /* of these, unions */
	uint64_t evicted;         /* for the limits, or after a failure */
	uint64_t invalidated;     /* by posts, invalidate and fini */
	uint64_t overflows;       /* times that too many posts were waiting, and all was dropped */
	uint64_t failed;          /* gets that returned an error */
	uint64_t leaked;          /* regions whose deregistration failed */
	uint64_t bytes;           /* registered now, zombies included */
	uint32_t regions;         /* that can be found */
	uint32_t zombies;
};

struct inlay_cache_post_ {
	uint64_t start, len;
	uint32_t ready;           /* ticket + 1, once the range is there */
	uint32_t reserved;
};

struct inlay_cache {
	uint64_t seen_;           /* of posted_; written by the owner */
	struct inlay_cache_region *last_; /* got last, or &none_ */
	uint32_t *hints_;         /* from a page's hash to a line of regions_ */
	uint8_t *regions_;
	uint32_t hint_shift_, page_shift_;
	struct inlay_cache_region *root_, *unused_;
	struct inlay_cache_post_ *posts_;
	struct inlay_cache_counts counts;
	struct inlay_cache_region none_; /* ring of the idle ones: its older_ is the newest, its newer_ the oldest */
	struct inlay_cache_attr attr;
	struct inlay_cache_ops ops;
	uint32_t taken_;          /* tickets that were taken */
	/* Written by posts. Low half: tickets, that is places in posts_. High half: expects. */
	uint64_t posted_ __attribute__((aligned(INLAY_CACHE_LINE)));
	uint32_t settled_;        /* expects that have ended */
	uint32_t all_;            /* a post found no place */
};

/* For tests: counts the regions that are visited in the tree. */
#ifndef INLAY_CACHE_VISIT_
#define INLAY_CACHE_VISIT_ ((void)0)
#endif

/* ------------------------------------------------------------------------
 * Set-up
 */

/* The caller's bytes in a region: attr.bytes of them, aligned to 16. Zero before ops.reg. */
INLAY_FN void *inlay_cache_bytes(const struct inlay_cache_region *r)
{
	return (void *)(uintptr_t)(r + 1);
}

INLAY_COLD size_t inlay_cache_stride_(const struct inlay_cache_attr *a)
{
	const size_t line = INLAY_CACHE_LINE;

	return (sizeof(struct inlay_cache_region) + a->bytes + line - 1) / line * line;
}

/* Bytes of memory that inlay_cache_init needs; 0 if an attribute is out of its range. */
INLAY_COLD size_t inlay_cache_size(const struct inlay_cache_attr *a)
{
	if (!a->max_regions || a->max_regions > INLAY_CACHE_MAX || !a->posts || a->posts > INLAY_CACHE_MAX ||
	    a->posts & (a->posts - 1) || !a->max_bytes || a->page < 64 || a->page & (a->page - 1) || a->bytes > 8192)
		return 0;
	/* One region above the limit, the one that is about to be registered; and 4 to 8 hints a region */
	return (a->max_regions + (size_t)1) * inlay_cache_stride_(a) +
	       a->posts * sizeof(struct inlay_cache_post_) +
	       ((size_t)8 << (31 - __builtin_clz(a->max_regions))) * sizeof(uint32_t);
}

/*
 * An empty cache.
 *
 * memory   aligned to a cache line; the cache's until inlay_cache_fini
 * size     its bytes, at least inlay_cache_size(attr)
 * attr     copied, as is ops
 *
 * Returns 0; -EINVAL for an argument out of its range; -ENOBUFS if size is too small.
 */
INLAY_COLD int inlay_cache_init(struct inlay_cache *c, void *memory, size_t size,
				const struct inlay_cache_attr *attr, const struct inlay_cache_ops *ops)
{
	const size_t need = inlay_cache_size(attr);
	uint8_t *at = (uint8_t *)memory;
	size_t i;

	if (!memory || (uintptr_t)memory % INLAY_CACHE_LINE || !need || !ops->reg || !ops->dereg)
		return -EINVAL;
	if (size < need)
		return -ENOBUFS;
	__builtin_memset(memory, 0, need);
	__builtin_memset(c, 0, sizeof(*c));
	c->regions_ = at;
	c->attr = *attr;
	c->ops = *ops;
	c->none_.newer_ = c->none_.older_ = c->last_ = &c->none_;
	c->page_shift_ = (uint32_t)__builtin_ctzll(attr->page);
	c->hint_shift_ = 30 + (uint32_t)__builtin_clz(attr->max_regions);
	for (i = 0; i <= attr->max_regions; i++, at += inlay_cache_stride_(attr)) {
		struct inlay_cache_region *r = (struct inlay_cache_region *)(void *)at;

		r->older_ = c->unused_;
		c->unused_ = r;
	}
	c->posts_ = (struct inlay_cache_post_ *)(void *)at;
	c->hints_ = (uint32_t *)(void *)(c->posts_ + attr->posts);
	return 0;
}

/* The callbacks of inlay_cache_ops_verbs. The context is the ibv_pd, access is IBV_ACCESS_... */
INLAY_COLD int inlay_cache_reg_mr(void *context, struct inlay_cache_region *r)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_mr((struct ibv_pd *)context, (void *)(uintptr_t)r->start, (size_t)r->len, r->access);
	if (!mr)
		return errno ? -errno : -EIO;
	r->lkey = mr->lkey;
	r->rkey = mr->rkey;
	r->handle = mr;
	return 0;
}

/* Its counterpart: deregisters r's memory. Returns 0 or the negative errno of ibv_dereg_mr. */
INLAY_COLD int inlay_cache_dereg_mr(void *context, struct inlay_cache_region *r)
{
	(void)context;
	return -ibv_dereg_mr((struct ibv_mr *)r->handle);
}

/* Waits for another thread by giving up the CPU (sched_yield). */
INLAY_COLD void inlay_cache_yield(void *context)
{
	(void)context;
	sched_yield();
}

/* For ops.merge. Returns 0 if both grant peers the same, else -EACCES. */
INLAY_COLD int inlay_cache_merge_same(void *context, const struct inlay_cache_region *old,
				      struct inlay_cache_region *r)
{
	(void)context;
	return (old->access ^ r->access) & ~(uint32_t)IBV_ACCESS_LOCAL_WRITE ? -EACCES : 0;
}

/* Registers with ibv_reg_mr in a protection domain; merges always. */
INLAY_COLD void inlay_cache_ops_verbs(struct inlay_cache_ops *ops, struct ibv_pd *pd)
{
	ops->reg = inlay_cache_reg_mr;
	ops->dereg = inlay_cache_dereg_mr;
	ops->merge = NULL;
	ops->wait = inlay_cache_yield;
	ops->context = pd;
}

/* ---- The tree, by start: a treap ---- */

INLAY_COLD void inlay_cache_insert_(struct inlay_cache *c, struct inlay_cache_region *r)
{
	struct inlay_cache_region **at = &c->root_, *t, **low = &r->child_[0], **high = &r->child_[1];
	uint64_t z = c->counts.registered * 0x9e3779b97f4a7c15;

	/* splitmix64 of the number of insertions: weights that no order of addresses follows */
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	r->weight_ = (uint32_t)(z ^ z >> 31);
	while (*at && (*at)->weight_ >= r->weight_) {
		at = &(*at)->child_[r->start > (*at)->start];
		INLAY_CACHE_VISIT_;
	}
	/* What was there is split in two. */
	for (t = *at, *at = r; t;) {
		INLAY_CACHE_VISIT_;
		if (t->start < r->start) {
			*low = t;
			low = &t->child_[1];
			t = *low;
		} else {
			*high = t;
			high = &t->child_[0];
			t = *high;
		}
	}
	*low = *high = NULL;
}

INLAY_COLD void inlay_cache_remove_(struct inlay_cache *c, const struct inlay_cache_region *r)
{
	struct inlay_cache_region **at = &c->root_, *low = r->child_[0], *high = r->child_[1];

	while (*at != r) {
		at = &(*at)->child_[r->start > (*at)->start];
		INLAY_CACHE_VISIT_;
	}
	/* What was below it is joined. */
	while (low && high) {
		INLAY_CACHE_VISIT_;
		if (low->weight_ > high->weight_) {
			*at = low;
			at = &low->child_[1];
			low = *at;
		} else {
			*at = high;
			at = &high->child_[0];
			high = *at;
		}
	}
	*at = low ? low : high;
}

/* The first region that overlaps [start, last], or NULL. */
INLAY_COLD struct inlay_cache_region *inlay_cache_overlap_(const struct inlay_cache *c, uint64_t start, uint64_t last)
{
	struct inlay_cache_region *t = c->root_, *found = NULL;

	while (t) {
		const int before = t->start + (t->len - 1) < start;

		INLAY_CACHE_VISIT_;
		found = before ? found : t;
		t = t->child_[before];
	}
	return found && found->start <= last ? found : NULL;
}

/* ---- What goes ---- */

INLAY_FN void inlay_cache_unlink_(struct inlay_cache_region *r)
{
	r->newer_->older_ = r->older_;
	r->older_->newer_ = r->newer_;
}

/* Makes it the newest of the idle ones. */
INLAY_FN void inlay_cache_link_(struct inlay_cache *c, struct inlay_cache_region *r)
{
	r->older_ = c->none_.older_;
	r->newer_ = &c->none_;
	r->older_->newer_ = r;
	c->none_.older_ = r;
}

INLAY_COLD void inlay_cache_recycle_(struct inlay_cache *c, struct inlay_cache_region *r)
{
	r->state = INLAY_CACHE_FREE;
	r->older_ = c->unused_;
	c->unused_ = r;
}

INLAY_COLD void inlay_cache_drop_(struct inlay_cache *c, struct inlay_cache_region *r)
{
	if (c->ops.dereg(c->ops.context, r))
		c->counts.leaked++;
	c->counts.bytes -= r->len;
	inlay_cache_recycle_(c, r);
}

/* No get finds it from now on. */
INLAY_COLD void inlay_cache_take_out_(struct inlay_cache *c, struct inlay_cache_region *r)
{
	inlay_cache_remove_(c, r);
	c->counts.regions--;
	c->last_ = c->last_ == r ? &c->none_ : c->last_;
	r->state = INLAY_CACHE_ZOMBIE;
	if (r->uses) {
		c->counts.zombies++;
	} else {
		inlay_cache_unlink_(r);
		inlay_cache_drop_(c, r);
	}
}

INLAY_COLD uint32_t inlay_cache_take_out_all_(struct inlay_cache *c, uint64_t start, uint64_t last)
{
	struct inlay_cache_region *r;
	uint32_t n = 0;

	for (; (r = inlay_cache_overlap_(c, start, last)); n++)
		inlay_cache_take_out_(c, r);
	return n;
}

/* Evicts up to n idle regions. Returns how many. */
INLAY_COLD uint32_t inlay_cache_evict(struct inlay_cache *c, uint32_t n)
{
	uint32_t done;

	for (done = 0; done < n && c->none_.newer_ != &c->none_; done++)
		inlay_cache_take_out_(c, c->none_.newer_);
	c->counts.evicted += done;
	return done;
}

/*
 * Drops every region that overlaps [addr, addr + len): idle ones are deregistered now, others by
 * their last put. Returns how many there were. Other threads use inlay_cache_post.
 */
INLAY_COLD uint32_t inlay_cache_invalidate(struct inlay_cache *c, uint64_t addr, uint64_t len)
{
	const uint64_t last = len > UINT64_MAX - addr ? UINT64_MAX : addr + (len - 1);
	const uint32_t n = len ? inlay_cache_take_out_all_(c, addr, last) : 0;

	c->counts.invalidated += n;
	return n;
}

/* The end: drops all. Returns 0; -EBUSY if a region is in use: call again after its last put. */
INLAY_COLD int inlay_cache_fini(struct inlay_cache *c)
{
	inlay_cache_invalidate(c, 0, UINT64_MAX);
	return c->counts.zombies ? -EBUSY : 0;
}

/* ------------------------------------------------------------------------
 * Posts: from any thread to the owner
 *
 * A post takes a ticket, writes its range to the ticket's place, and marks the place ready. A get
 * that sees new tickets takes the ranges in order, and waits for a place that is not ready yet.
 */

/*
 * Gets that begin from now on wait for inlay_cache_settle. For a thread that learns of a range by a
 * call that also lets it be mapped anew, as a read of a userfaultfd does: expect, call, settle.
 * Any thread.
 */
INLAY_FN void inlay_cache_expect(struct inlay_cache *c)
{
	__atomic_fetch_add(&c->posted_, 1ull << 32, __ATOMIC_SEQ_CST);
}

/*
 * Invalidates [addr, addr + len). Post before the memory can be mapped anew; it may still be there.
 * Any thread; takes no lock, calls nothing, never fails.
 */
INLAY_FN void inlay_cache_post(struct inlay_cache *c, uint64_t addr, uint64_t len)
{
	uint64_t was = __atomic_load_n(&c->posted_, __ATOMIC_RELAXED);
	struct inlay_cache_post_ *p;

	do {
		if ((uint32_t)was - __atomic_load_n(&c->taken_, __ATOMIC_ACQUIRE) >= c->attr.posts) {
			inlay_cache_expect(c);
			__atomic_store_n(&c->all_, 1, __ATOMIC_RELAXED);
			__atomic_fetch_add(&c->settled_, 1, __ATOMIC_RELEASE);
			return;
		}
	} while (!__atomic_compare_exchange_n(&c->posted_, &was, (was & ~(uint64_t)UINT32_MAX) | (uint32_t)(was + 1), 0,
					      __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
	p = &c->posts_[was & (c->attr.posts - 1)];
	p->start = addr;
	p->len = len;
	__atomic_store_n(&p->ready, (uint32_t)was + 1, __ATOMIC_RELEASE);
}

/* Ends an expect: posts the range, or nothing if len is 0. Any thread. */
INLAY_FN void inlay_cache_settle(struct inlay_cache *c, uint64_t addr, uint64_t len)
{
	if (len)
		inlay_cache_post(c, addr, len);
	__atomic_fetch_add(&c->settled_, 1, __ATOMIC_RELEASE);
}

/* Waits until *word is at least n. */
INLAY_COLD void inlay_cache_await_(const struct inlay_cache *c, const uint32_t *word, uint32_t n)
{
	while ((int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - n) < 0) {
		inlay_relax();
		if (c->ops.wait)
			c->ops.wait(c->ops.context);
	}
}

/* Applies what was posted, as each get does. For owners that do not get soon. */
INLAY_COLD void inlay_cache_step(struct inlay_cache *c)
{
	uint64_t start, len, posted = __atomic_load_n(&c->posted_, __ATOMIC_ACQUIRE);

	/* If one was expected meanwhile, it may be among those that have settled: then one is still awaited. */
	do {
		c->seen_ = posted;
		inlay_cache_await_(c, &c->settled_, (uint32_t)(posted >> 32));
		posted = __atomic_load_n(&c->posted_, __ATOMIC_ACQUIRE);
	} while ((c->seen_ ^ posted) >> 32);
	c->seen_ = posted;
	while (c->taken_ != (uint32_t)c->seen_) {
		const struct inlay_cache_post_ *p = &c->posts_[c->taken_ & (c->attr.posts - 1)];

		inlay_cache_await_(c, &p->ready, c->taken_ + 1);
		start = p->start;
		len = p->len;
		__atomic_store_n(&c->taken_, c->taken_ + 1, __ATOMIC_RELEASE); /* the place is free */
		inlay_cache_invalidate(c, start, len);
	}
	if (__atomic_exchange_n(&c->all_, 0, __ATOMIC_ACQUIRE)) {
		c->counts.overflows++;
		inlay_cache_invalidate(c, 0, UINT64_MAX);
	}
}

/* ------------------------------------------------------------------------
 * Data path: a hit calls nothing, a miss calls the callbacks
 */

/* Makes r what a get asks for. */
INLAY_COLD void inlay_cache_ask_(const struct inlay_cache *c, struct inlay_cache_region *r, uint64_t start,
				 uint64_t last, uint32_t access)
{
	uint64_t *word = (uint64_t *)(void *)r;
	size_t i;

	for (i = 0; i < inlay_cache_stride_(&c->attr) / sizeof(*word); i++) {
		word[i] = 0;
		__asm__("" ::: "memory"); /* or it would be a call of memset */
	}
	r->start = start;
	r->len = last - start + 1;
	r->access = access;
}

/* Makes r the union with what it overlaps. Returns whether that is another, within the limit. */
INLAY_COLD int inlay_cache_unite_(struct inlay_cache *c, struct inlay_cache_region *r)
{
	const uint64_t start = r->start, last = start + (r->len - 1), access = r->access;
	struct inlay_cache_region *o = inlay_cache_overlap_(c, start, last);

	while (o) {
		const uint64_t o_last = o->start + (o->len - 1);

		if (!c->ops.merge || !c->ops.merge(c->ops.context, o, r)) {
			const uint64_t r_last = r->start + (r->len - 1);

			r->start = o->start < r->start ? o->start : r->start;
			r->len = (o_last > r_last ? o_last : r_last) - r->start + 1; /* 0: all of the address space */
			r->access |= o->access;
			if (!r->len || r->len > c->attr.max_bytes)
				return 0;
		}
		o = o_last < last ? inlay_cache_overlap_(c, o_last + 1, last) : NULL;
	}
	return r->len != last - start + 1 || r->access != access;
}

INLAY_COLD int inlay_cache_room_(const struct inlay_cache *c, const struct inlay_cache_region *r)
{
	return c->counts.regions + c->counts.zombies < c->attr.max_regions &&
	       c->counts.bytes <= c->attr.max_bytes - r->len;
}

/* Registers r, and enters it in place of what it overlaps. */
INLAY_COLD int inlay_cache_enter_(struct inlay_cache *c, struct inlay_cache_region *r)
{
	const uint64_t last = r->start + (r->len - 1);
	int err;

	if (!inlay_cache_room_(c, r))
		inlay_cache_take_out_all_(c, r->start, last);
	while (!inlay_cache_room_(c, r))
		if (!inlay_cache_evict(c, 1))
			return -EAGAIN;
	err = c->ops.reg(c->ops.context, r);
	if (err)
		return err;
	inlay_cache_take_out_all_(c, r->start, last);
	c->counts.registered++;
	c->counts.regions++;
	c->counts.bytes += r->len;
	inlay_cache_insert_(c, r);
	r->state = INLAY_CACHE_LIVE;
	r->uses = 1;
	return 0;
}

INLAY_FN uint32_t *inlay_cache_hint_(const struct inlay_cache *c, uint64_t addr)
{
	return &c->hints_[(addr >> c->page_shift_) * 0x9e3779b97f4a7c15ull >> c->hint_shift_];
}

/* A get that found nothing. */
INLAY_COLD int inlay_cache_miss_(struct inlay_cache *c, uint64_t addr, uint64_t len, uint32_t access,
				 struct inlay_cache_region **out)
{
	const uint64_t end = addr + (len - !!len), start = addr & ~(c->attr.page - 1), last = end | (c->attr.page - 1);
	struct inlay_cache_region *r = c->unused_;
	uint32_t batch;
	int err = -EAGAIN;

	c->counts.misses++;
	if (end < addr || last - start >= c->attr.max_bytes) {
		c->counts.failed++;
		return end < addr || last - start == UINT64_MAX ? -EINVAL : -E2BIG;
	}
	c->unused_ = r->older_;
	inlay_cache_ask_(c, r, start, last, access);
	if (inlay_cache_unite_(c, r)) {
		err = inlay_cache_enter_(c, r);
		c->counts.merged += !err;
	}
	for (batch = 1; err; batch *= 2) {
		inlay_cache_ask_(c, r, start, last, access);
		err = inlay_cache_enter_(c, r);
		if ((err != -ENOMEM && err != -EAGAIN && err != -ENOSPC) || !inlay_cache_evict(c, batch))
			break;
	}
	if (err) {
		inlay_cache_recycle_(c, r);
		c->counts.failed++;
		return err;
	}
	*inlay_cache_hint_(c, addr) = (uint32_t)(((uint8_t *)r - c->regions_) / INLAY_CACHE_LINE);
	*out = c->last_ = r;
	return 0;
}

/* Does the region hold the range, and grant the access? */
INLAY_ALWAYS int inlay_cache_holds_(const struct inlay_cache_region *r, uint64_t addr, uint64_t len, uint32_t access)
{
	uint64_t offset = addr - r->start;

	/* What is left is one subtraction, which is the comparison as well. */
	__asm__("" : "+r"(offset));
	return INLAY_LIKELY(offset < r->len) && INLAY_LIKELY(r->len - offset >= len) &&
	       INLAY_LIKELY(!(access & ~r->access));
}

/* The region that holds it with these access bits, now the last one; or NULL. */
INLAY_FN struct inlay_cache_region *inlay_cache_find_(struct inlay_cache *c, uint64_t addr, uint64_t len,
						      uint32_t access)
{
	uint32_t *hint = inlay_cache_hint_(c, addr);
	struct inlay_cache_region *r =
		(struct inlay_cache_region *)(void *)(c->regions_ + (uint64_t)*hint * INLAY_CACHE_LINE);

	if (INLAY_UNLIKELY(!inlay_cache_holds_(r, addr, len, access) || r->state != INLAY_CACHE_LIVE)) {
		for (r = c->root_; r && !inlay_cache_holds_(r, addr, len, access); r = r->child_[addr > r->start])
			INLAY_CACHE_VISIT_;
		if (!r)
			return NULL;
		*hint = (uint32_t)(((uint8_t *)r - c->regions_) / INLAY_CACHE_LINE);
	}
	return c->last_ = r;
}

/*
 * A region for [addr, addr + len), found or registered; in use until its put.
 *
 * len     bytes; 0 counts as 1
 * access  bits that the region must grant; only ops give them a meaning
 *
 * Returns 0. Else *out is not written: -EINVAL for a range beyond the end of the address space;
 * -E2BIG if its pages are more than max_bytes; -EAGAIN if what is in use leaves no room; or what
 * ops.reg returned.
 */
INLAY_ALWAYS int inlay_cache_get(struct inlay_cache *c, uint64_t addr, uint64_t len, uint32_t access,
				 struct inlay_cache_region **out)
{
	struct inlay_cache_region *r;

	if (INLAY_UNLIKELY(__atomic_load_n(&c->posted_, __ATOMIC_ACQUIRE) != c->seen_))
		inlay_cache_step(c);
	r = c->last_;
	if (INLAY_UNLIKELY(!inlay_cache_holds_(r, addr, len, access))) {
		r = inlay_cache_find_(c, addr, len, access);
		if (INLAY_UNLIKELY(!r))
			return inlay_cache_miss_(c, addr, len, access, out);
	}
	c->counts.hits++;
	if (!r->uses++)
		inlay_cache_unlink_(r);
	*out = r;
	return 0;
}

/* Another use of a region in use. It needs a put of its own. */
INLAY_FN void inlay_cache_hold(struct inlay_cache_region *r)
{
	INLAY_CHECK(r->uses, "only a region in use can be held");
	r->uses++;
}

/* Ends a use: its transfers are complete. */
INLAY_ALWAYS void inlay_cache_put(struct inlay_cache *c, struct inlay_cache_region *r)
{
	INLAY_CHECK(r->uses && r->state != INLAY_CACHE_FREE, "one put for each get");
	if (--r->uses)
		return;
	if (INLAY_LIKELY(r->state == INLAY_CACHE_LIVE)) {
		inlay_cache_link_(c, r);
	} else {
		c->counts.zombies--;
		inlay_cache_drop_(c, r);
	}
}

#endif
