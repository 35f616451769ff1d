/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap/cache.h: a registration cache, for transports that are handed arbitrary buffers. A get
 * finds a registered region that holds the buffer, or registers one; a put ends the use.
 *
 *   struct inlay_cache_attr attr = {4096, 256, 1ull << 30, 4096, sizeof(struct my_keys)};
 *   struct inlay_cache_ops ops = {inlay_cache_reg_mr, inlay_cache_dereg_mr, NULL, inlay_cache_yield, pd};
 *   inlay_cache_init(&cache, memory, inlay_cache_size(&attr), &attr, &ops);
 *
 *   if (inlay_cache_get(&cache, (uintptr_t)buf, len, IBV_ACCESS_LOCAL_WRITE, &region) == 0)
 *           sge.lkey = region->lkey;
 *   inlay_cache_put(&cache, region);                               the transfer is complete
 *   inlay_cache_post(&cache, (uintptr_t)buf, len);                 any thread, before munmap
 *
 * Invalidate all memory that is unmapped, by inlay_cache_post (below, "a post"). After munmap and a
 * new mmap at the same address, a stale region sends, and lets peers write, pages that the program
 * no longer sees: silent corruption. free(), mremap, madvise(MADV_DONTNEED), brk and dlclose()
 * unmap, too. Invalidate from the program's allocator, or let the kernel report (mmap/monitor.h).
 *
 * No kernel report covers memory of accelerators. cudaFree, cudaFreeAsync, cuMemUnmap, hipFree and
 * hipFreeAsync end allocations inside the driver, and the runtime gives their addresses out again.
 * Invalidate the whole allocation (cuMemGetAddressRange, hipMemGetAddressRange) before each of
 * these, and do not cache memory whose release the program cannot see.
 *
 * Invariants:
 *   - A region covers whole pages (attr.page). A get is a hit if one region contains its range and
 *     grants its access bits.
 *   - Regions that can be found never overlap. A miss that overlaps some replaces them by one union
 *     with all their access, which may open pages to peers that no get asked to open; ops.merge may
 *     refuse. If the union cannot be registered, or exceeds max_bytes, the miss registers its own
 *     pages with its own access.
 *   - A region in use (more gets than puts) is never deregistered. A post or a union takes it out:
 *     no get finds it, its keys stay valid, and its last put deregisters it.
 *   - The limits include regions taken out. To make room, overlapped regions go first, then idle
 *     ones in turn, except that a put saves a region from the next eviction that meets it (CLOCK).
 *   - When registration fails for lack of resources (-ENOMEM, -EAGAIN, -ENOSPC), 1, 2, 4, ... idle
 *     regions are evicted before each retry. Other errors are returned at once.
 *   - Once a post has returned, no get finds an older region that overlaps it; the next get
 *     deregisters it. When more than attr.posts wait, that get takes out all regions.
 *   - A hit calls nothing, counts nothing and relinks nothing. A miss takes O(log n) expected steps
 *     in any order of addresses, as many for each region that it takes out, and those of the CLOCK.
 *
 * Threads: one owner at a time. Any thread may post, but no signal handler. Callbacks may post, and
 * call nothing else of the cache. The cache must not move.
 *
 * Sources: ibv_reg_mr(3); UCX's ucs/memory/rcache.h; Seidel and Aragon, "Randomized search trees".
 */
#ifndef INLAY_MMAP_CACHE_H
#define INLAY_MMAP_CACHE_H /* a trial: names may change */

#include <sched.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/mmap/lookup.h>

#define INLAY_CACHE_MAX (1u << 24) /* regions, and posts that can wait */

/* A registration. The caller's bytes (attr.bytes) follow at r + 1, zeroed before ops.reg. */
struct inlay_cache_region {
	uint64_t start, len;      /* what is registered: whole pages */
	uint32_t lkey, rkey;      /* set by ops.reg */
	uint32_t access;
	uint32_t uses;            /* gets less puts; the owner may add to it while it is not 0 */
	void *handle;             /* for ops: the ibv_mr */
	struct inlay_cache_region *child_[2]; /* unused: the next unused one, if any */
	uint16_t found;           /* 1: gets can find it; 0: it was taken out */
	uint16_t put_;            /* since an eviction met it */
	uint32_t weight_;         /* random; no child is heavier than its parent */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_cache_region) == INLAY_CACHE_LINE, "a search reads one line");

/* How to register. Callbacks return 0 or a negative errno. */
struct inlay_cache_ops {
	/* Registers r's start, len and access. Sets lkey, rkey, handle and the caller's bytes. */
	int (*reg)(void *context, struct inlay_cache_region *r);
	/* Deregisters it. An error is counted (counts.leaked), and the region forgotten. */
	int (*dereg)(void *context, struct inlay_cache_region *r);
	/*
	 * Returns 0 if r, not yet registered, may grow to include `old`; may copy old's bytes to r's.
	 * Either way old is taken out once r is registered. NULL: always 0.
	 */
	int (*merge)(void *context, const struct inlay_cache_region *old, struct inlay_cache_region *r);
	/* Called repeatedly while waiting for another thread's post. NULL: spins. */
	void (*wait)(void *context);
	void *context;
};

struct inlay_cache_attr {
	uint32_t max_regions;     /* at a time; 1 .. INLAY_CACHE_MAX */
	uint32_t posts;           /* that may wait; 1 .. INLAY_CACHE_MAX */
	uint64_t max_bytes;       /* registered at a time; UINT64_MAX: no limit */
	uint64_t page;            /* a power of two, at least 64: 4096, or the size of huge pages */
	uint32_t bytes;           /* the caller's, in each region; 0 .. 8192 */
};

struct inlay_cache_counts {
	uint64_t misses;
	uint64_t registered;      /* successfully; other misses failed */
	uint64_t merged;          /* unions among these */
	uint64_t evicted;         /* for the limits, or after a failure */
	uint64_t invalidated;     /* by posts and fini */
	uint64_t overflows;       /* times that too many posts waited, and all regions were taken out */
	uint64_t leaked;          /* regions whose deregistration failed */
	uint64_t bytes;           /* registered now */
	uint32_t regions;         /* that can be found */
	uint32_t zombies;         /* taken out, but in use */
};

struct inlay_cache_post_ {
	uint64_t start, last;
};

struct inlay_cache {
	struct inlay_cache_attr attr;
	struct inlay_cache_region **hints_; /* by a page's hash; they may be wrong */
	uint32_t hint_shift_;
	struct inlay_cache_region *root_;
	struct inlay_cache_region *unused_; /* never empty: one more than the limit */
	uint8_t *slots_;          /* the regions */
	uint32_t slots_used_;     /* ever */
	uint32_t hand_;           /* the slot that the next eviction meets */
	struct inlay_cache_post_ *posts_;
	struct inlay_cache_counts counts;
	struct inlay_cache_ops ops;
	/* Written by posts, read by each get */
	uint32_t waiting_ __attribute__((aligned(INLAY_CACHE_LINE))); /* posts; above attr.posts: too many */
	uint32_t lock_;           /* of waiting_ and posts_ */
};

/* ---- Set-up ---- */

INLAY_COLD size_t inlay_cache_stride_(const struct inlay_cache_attr *a)
{
	return (size_t)inlay_round_up(sizeof(struct inlay_cache_region) + a->bytes, INLAY_CACHE_LINE);
}

INLAY_COLD struct inlay_cache_region *inlay_cache_slot_(const struct inlay_cache *c, uint32_t i)
{
	return (struct inlay_cache_region *)(void *)(c->slots_ + i * inlay_cache_stride_(&c->attr));
}

/* log2 of the number of hints: 4 to 8 for each region */
INLAY_COLD uint32_t inlay_cache_log_hints_(const struct inlay_cache_attr *a)
{
	return 34 - (uint32_t)__builtin_clz(a->max_regions);
}

/* Bytes of memory that inlay_cache_init needs; 0 if an attribute is out of range. */
INLAY_COLD size_t inlay_cache_size(const struct inlay_cache_attr *a)
{
	if (!a->max_regions || a->max_regions > INLAY_CACHE_MAX || !a->posts || a->posts > INLAY_CACHE_MAX ||
	    !a->max_bytes || a->page < 64 || !inlay_is_pow2(a->page) || a->bytes > 8192)
		return 0;
	return (a->max_regions + (size_t)1) * inlay_cache_stride_(a) + a->posts * sizeof(struct inlay_cache_post_) +
	       (sizeof(struct inlay_cache_region *) << inlay_cache_log_hints_(a));
}

/*
 * Makes an empty cache in memory of inlay_cache_size(attr) bytes, aligned to a cache line, which it
 * owns until inlay_cache_fini. Returns 0; -EINVAL for an argument out of range; -ENOBUFS.
 */
INLAY_COLD int inlay_cache_init(struct inlay_cache *c, void *memory, size_t size,
				const struct inlay_cache_attr *attr, const struct inlay_cache_ops *ops)
{
	const size_t need = inlay_cache_size(attr);
	size_t i;

	if (!memory || (uintptr_t)memory % INLAY_CACHE_LINE || !need || !ops->reg || !ops->dereg)
		return -EINVAL;
	if (size < need)
		return -ENOBUFS;
	__builtin_memset(memory, 0, need);
	__builtin_memset(c, 0, sizeof(*c));
	c->attr = *attr;
	c->ops = *ops;
	c->hint_shift_ = 64 - inlay_cache_log_hints_(attr);
	c->slots_ = (uint8_t *)memory;
	c->unused_ = inlay_cache_slot_(c, c->slots_used_++);
	c->posts_ = (struct inlay_cache_post_ *)(void *)inlay_cache_slot_(c, attr->max_regions + 1);
	c->hints_ = (struct inlay_cache_region **)(void *)(c->posts_ + attr->posts);
	for (i = 0; i >> inlay_cache_log_hints_(attr) == 0; i++)
		c->hints_[i] = c->unused_;
	return 0;
}

/* An ops.reg that calls ibv_reg_mr. context: the ibv_pd; access: IBV_ACCESS_*. */
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

/* The ops.dereg that goes with inlay_cache_reg_mr. */
INLAY_COLD int inlay_cache_dereg_mr(void *context, struct inlay_cache_region *r)
{
	(void)context;
	return -ibv_dereg_mr((struct ibv_mr *)r->handle);
}

/* An ops.wait that yields the CPU. Use it with a monitor: its thread may be preempted in a post. */
INLAY_COLD void inlay_cache_yield(void *context)
{
	(void)context;
	sched_yield();
}

/* ---- The tree, by start: a treap ---- */

INLAY_COLD void inlay_cache_insert_(struct inlay_cache *c, struct inlay_cache_region *r)
{
	struct inlay_cache_region **at = &c->root_, *t, **side[2] = {&r->child_[0], &r->child_[1]};
	uint64_t z = c->counts.registered * 0x9e3779b97f4a7c15;
	int low;

	/* splitmix64 of the number of insertions: weights that no order of addresses follows */
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	r->weight_ = (uint32_t)(z ^ z >> 31);
	while (*at && (*at)->weight_ >= r->weight_)
		at = &(*at)->child_[r->start > (*at)->start];
	/* Splits the subtree that was there. */
	for (t = *at, *at = r; t; t = *side[!low]) {
		low = t->start < r->start;
		*side[!low] = t;
		side[!low] = &t->child_[low];
	}
	*side[0] = *side[1] = NULL;
}

INLAY_COLD void inlay_cache_remove_(struct inlay_cache *c, const struct inlay_cache_region *r)
{
	struct inlay_cache_region **at = &c->root_, *side[2] = {r->child_[0], r->child_[1]};
	int high;

	while (*at != r)
		at = &(*at)->child_[r->start > (*at)->start];
	/* Joins its two subtrees. */
	while (side[0] && side[1]) {
		high = side[0]->weight_ <= side[1]->weight_;
		*at = side[high];
		at = &side[high]->child_[!high];
		side[high] = *at;
	}
	*at = side[!side[0]];
}

/* The first region that overlaps [start, last], or NULL. */
INLAY_COLD struct inlay_cache_region *inlay_cache_overlap_(const struct inlay_cache *c, uint64_t start, uint64_t last)
{
	struct inlay_cache_region *t = c->root_, *found = NULL;

	while (t) {
		const int before = t->start + (t->len - 1) < start;

		found = before ? found : t;
		t = t->child_[before];
	}
	return found && found->start <= last ? found : NULL;
}

INLAY_COLD void inlay_cache_dereg_(struct inlay_cache *c, struct inlay_cache_region *r)
{
	c->counts.leaked += !!c->ops.dereg(c->ops.context, r);
	c->counts.bytes -= r->len;
	r->child_[0] = c->unused_->child_[0];
	c->unused_->child_[0] = r;
}

INLAY_COLD void inlay_cache_take_out_(struct inlay_cache *c, struct inlay_cache_region *r)
{
	inlay_cache_remove_(c, r);
	c->counts.regions--;
	r->found = 0;
	if (r->uses)
		c->counts.zombies++;
	else
		inlay_cache_dereg_(c, r);
}

/* Takes out all regions that overlap [start, last]. Returns how many. */
INLAY_COLD uint32_t inlay_cache_take_out_all_(struct inlay_cache *c, uint64_t start, uint64_t last)
{
	struct inlay_cache_region *r;
	uint32_t n = 0;

	for (; (r = inlay_cache_overlap_(c, start, last)); n++)
		inlay_cache_take_out_(c, r);
	return n;
}

/* Returns how many idle regions were evicted, up to n. */
INLAY_COLD uint32_t inlay_cache_evict_(struct inlay_cache *c, uint32_t n)
{
	struct inlay_cache_region *r;
	uint32_t done = 0, left;

	/* Two rounds meet each region without its chance. */
	for (left = 2 * c->slots_used_; done < n && left; left--) {
		r = inlay_cache_slot_(c, c->hand_);
		c->hand_ = (c->hand_ + 1) % c->slots_used_;
		if (r->found && !r->uses && !r->put_) {
			inlay_cache_take_out_(c, r);
			done++;
			left = 2 * c->slots_used_ + 1;
		}
		r->put_ = 0;
	}
	c->counts.evicted += done;
	return done;
}

/* Takes out all regions. Returns 0; -EBUSY while one is in use: call again after its last put. */
INLAY_COLD int inlay_cache_fini(struct inlay_cache *c)
{
	c->counts.invalidated += inlay_cache_take_out_all_(c, 0, UINT64_MAX);
	return c->counts.zombies ? -EBUSY : 0;
}

/* ---- Posts: from any thread to the owner ---- */

INLAY_COLD void inlay_cache_lock_(struct inlay_cache *c)
{
	while (!inlay_lock_try(&c->lock_)) {
		inlay_relax();
		if (c->ops.wait)
			c->ops.wait(c->ops.context);
	}
}

/* Begins a post. Gets wait until inlay_cache_settle_; the monitor reads the range in between. */
INLAY_COLD void inlay_cache_expect_(struct inlay_cache *c)
{
	inlay_cache_lock_(c);
	__atomic_store_n(&c->waiting_, c->waiting_ + (c->waiting_ <= c->attr.posts), __ATOMIC_SEQ_CST);
}

INLAY_COLD void inlay_cache_settle_(struct inlay_cache *c, uint64_t addr, uint64_t len)
{
	struct inlay_cache_post_ *p = &c->posts_[(c->waiting_ - 1) % c->attr.posts];

	p->start = len ? addr : UINT64_MAX;
	p->last = len > UINT64_MAX - addr ? UINT64_MAX : len ? addr + (len - 1) : 0;
	inlay_unlock(&c->lock_);
}

/*
 * Invalidates memory: no later get finds a region that overlaps [addr, addr + len) now. Call it
 * before the memory can be mapped anew, even before it is unmapped. Any thread; never fails.
 */
INLAY_COLD void inlay_cache_post(struct inlay_cache *c, uint64_t addr, uint64_t len)
{
	inlay_cache_expect_(c);
	inlay_cache_settle_(c, addr, len);
}

/* Applies the posts that wait. */
INLAY_COLD void inlay_cache_step_(struct inlay_cache *c)
{
	struct inlay_cache_post_ post;
	uint32_t n;

	inlay_cache_lock_(c);
	while ((n = c->waiting_)) {
		post = c->posts_[(n - 1) % c->attr.posts];
		if (n > c->attr.posts) {
			n = 1;
			post.start = 0;
			post.last = UINT64_MAX;
			c->counts.overflows++;
		}
		__atomic_store_n(&c->waiting_, n - 1, __ATOMIC_RELAXED);
		inlay_unlock(&c->lock_); /* callbacks may post */
		c->counts.invalidated += inlay_cache_take_out_all_(c, post.start, post.last);
		inlay_cache_lock_(c);
	}
	inlay_unlock(&c->lock_);
}

/* ---- Data path: a hit calls nothing, a miss calls the callbacks ---- */

/* Extends r to the union with what it overlaps. Returns 1 if r has grown, within the limit. */
INLAY_COLD int inlay_cache_unite_(struct inlay_cache *c, struct inlay_cache_region *r)
{
	const uint64_t start = r->start, last = start + (r->len - 1), access = r->access;
	struct inlay_cache_region *o = inlay_cache_overlap_(c, start, last);

	while (o) {
		const uint64_t o_last = o->start + (o->len - 1), r_last = r->start + (r->len - 1);

		if (!c->ops.merge || !c->ops.merge(c->ops.context, o, r)) {
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

/* Registers r and enters it as idle, in place of what it overlaps. */
INLAY_COLD int inlay_cache_enter_(struct inlay_cache *c, struct inlay_cache_region *r)
{
	const uint64_t last = r->start + (r->len - 1);
	int err;

	while (c->counts.regions + c->counts.zombies == c->attr.max_regions ||
	       c->counts.bytes > c->attr.max_bytes - r->len)
		if (!inlay_cache_take_out_all_(c, r->start, last) && !inlay_cache_evict_(c, 1))
			return -EAGAIN;
	err = c->ops.reg(c->ops.context, r);
	if (err)
		return err;
	inlay_cache_take_out_all_(c, r->start, last);
	c->unused_ = r->child_[0] ? r->child_[0] : inlay_cache_slot_(c, c->slots_used_++);
	c->counts.registered++;
	c->counts.regions++;
	c->counts.bytes += r->len;
	inlay_cache_insert_(c, r);
	r->found = 1;
	return 0;
}

/* Registers a region for a get: the union first, then the get's own pages. */
INLAY_COLD int inlay_cache_miss_(struct inlay_cache *c, uint64_t addr, uint64_t len, uint32_t access,
				 struct inlay_cache_region **out)
{
	const uint64_t end = addr + (len - !!len), page = c->attr.page;
	const uint64_t start = addr & (0 - page), last = end | (page - 1);
	struct inlay_cache_region *r = c->unused_, *next;
	uint64_t *word = (uint64_t *)(void *)r;
	uint32_t batch = 0;
	int err = -EAGAIN;
	size_t i;

	c->counts.misses++;
	if (end < addr || last - start == UINT64_MAX)
		return -EINVAL;
	if (last - start >= c->attr.max_bytes)
		return -E2BIG;
	for (;; batch = batch ? 2 * batch : 1) {
		next = r->child_[0];
		for (i = 0; i < inlay_cache_stride_(&c->attr) / sizeof(*word); i++) {
			word[i] = 0;
			__asm__("" ::: "memory"); /* compilers would call memset */
		}
		r->child_[0] = next;
		r->start = start;
		r->len = last - start + 1;
		r->access = access;
		if (batch || inlay_cache_unite_(c, r))
			err = inlay_cache_enter_(c, r);
		if (!err || (batch && ((err != -ENOMEM && err != -EAGAIN && err != -ENOSPC) ||
				       !inlay_cache_evict_(c, batch))))
			break;
	}
	if (err)
		return err;
	c->counts.merged += !batch;
	*out = r;
	return 0;
}

INLAY_ALWAYS int inlay_cache_holds_(const struct inlay_cache_region *r, uint64_t addr, uint64_t len, uint32_t access)
{
	return inlay_range_holds_(r->start, r->len, addr, len) && INLAY_LIKELY(!(access & ~r->access));
}

/* Without a hint: by the tree, or by registration. */
INLAY_APART int inlay_cache_search_(struct inlay_cache *c, uint64_t addr, uint64_t len, uint32_t access,
				    struct inlay_cache_region **out)
{
	struct inlay_cache_region *r = c->root_;

	while (r && !inlay_cache_holds_(r, addr, len, access))
		r = r->child_[addr > r->start];
	if (!r)
		return inlay_cache_miss_(c, addr, len, access, out);
	*out = r;
	return 0;
}

INLAY_CALLS_COLD_
/*
 * Finds or registers a region for [addr, addr + len); it is in use until its put. A len of 0 counts
 * as 1. access: bits that the region must grant, whose meaning is up to ops.
 *
 * Returns 0. Else *out is not written: -EINVAL for a range that wraps around; -E2BIG if its pages
 * exceed max_bytes; -EAGAIN if regions in use leave no room; or the error of ops.reg.
 */
INLAY_ALWAYS int inlay_cache_get(struct inlay_cache *c, uint64_t addr, uint64_t len, uint32_t access,
				 struct inlay_cache_region **out)
{
	const uint64_t page = addr & (0 - c->attr.page);
	struct inlay_cache_region **hint = &c->hints_[page * 0x9e3779b97f4a7c15ull >> c->hint_shift_], *r;
	int err;

	if (INLAY_UNLIKELY(__atomic_load_n(&c->waiting_, __ATOMIC_ACQUIRE)))
		inlay_cache_step_(c);
	r = *hint;
	if (INLAY_UNLIKELY(!inlay_cache_holds_(r, addr, len, access) || !r->found)) {
		err = inlay_cache_search_(c, addr, len, access, out);
		if (err)
			return err;
		*hint = r = *out;
	}
	r->uses++;
	*out = r;
	return 0;
}

/* Ends a use: its transfers are complete. */
INLAY_ALWAYS void inlay_cache_put(struct inlay_cache *c, struct inlay_cache_region *r)
{
	INLAY_CHECK(r->uses, "one put for each get");
	r->put_ = 1;
	if (INLAY_LIKELY(--r->uses || r->found))
		return;
	c->counts.zombies--;
	inlay_cache_dereg_(c, r);
}

#endif
