/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * memory.c: memory of three kinds. Registrations of buffers are kept in inlay's cache, which the
 * kernel tells of unmapped memory; what it does not watch is registered for one transfer at a time.
 * Memory that the application registers for its peers. Bounce buffers and operations come in
 * chunks, are linked when free, and stay until the endpoint closes.
 */
#include "fabric.h"
#include <signal.h>
#include <sys/mman.h>

/* ---- Registrations ---- */

/* The monitor's thread. It does nothing else; above all it neither allocates nor frees. */
static void *watching(void *arg)
{
	while (inlay_monitor_step((struct inlay_monitor *)arg, -1) >= 0)
		;
	return NULL;
}

/* Domains with an open monitor. Forked children close their copies, or munmap here may wait. */
static struct domain *watched;
static pthread_mutex_t watched_lock = PTHREAD_MUTEX_INITIALIZER;

static void fork_begin(void)
{
	pthread_mutex_lock(&watched_lock);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&watched_lock);
}

static void fork_child(void)
{
	for (; watched; watched = watched->next_watched) {
		watched->watch = WATCH_OFF;
		inlay_monitor_fini(&watched->monitor);
	}
	pthread_mutex_unlock(&watched_lock);
}

static __attribute__((constructor)) void fork_handlers(void)
{
	pthread_atfork(fork_begin, fork_parent, fork_child);
}

static void watch_start(struct domain *d)
{
	const char *why = "no thread";
	sigset_t all, was;
	int err;

	pthread_mutex_lock(&watched_lock);
	err = inlay_monitor_init(&d->monitor, d->caches, 1, &why);
	d->watch = WATCH_OFF;
	if (!err) {
		sigfillset(&all); /* the application's handlers may allocate */
		pthread_sigmask(SIG_SETMASK, &all, &was);
		err = pthread_create(&d->watcher, NULL, watching, &d->monitor);
		pthread_sigmask(SIG_SETMASK, &was, NULL);
		if (err) {
			inlay_monitor_fini(&d->monitor);
		} else {
			d->watch = WATCH_ON;
			d->next_watched = watched;
			watched = d;
		}
	}
	pthread_mutex_unlock(&watched_lock);
	if (err)
		FI_INFO(&provider, FI_LOG_MR, "registrations are not kept: %s\n", why);
}

enum use {
	USE_KEPT,
	USE_ONCE,                 /* not to be reused: the kernel does not watch it */
	USE_BEYOND,               /* not the cache's, which had no room */
	USE_GIVEN                 /* nor ours: the application's */
};

/* Registers memory for all devices of a domain. 0 or a negative errno. */
static int memory_reg(struct domain *d, struct inlay_cache_region *r)
{
	struct region_more *more = region_more(r);
	int err = inlay_cache_reg_mr(d->pd, r);

	if (err || !d->second)
		return err;
	more->mr = ibv_reg_mr(d->second->pd, (void *)(uintptr_t)r->start, r->len, (int)r->access);
	if (!more->mr) {
		err = -errno;
		inlay_cache_dereg_mr(NULL, r);
		return err;
	}
	more->lkey = more->mr->lkey;
	more->rkey = more->mr->rkey;
	return 0;
}

static int memory_dereg(void *unused, struct inlay_cache_region *r)
{
	if (region_more(r)->mr)
		ibv_dereg_mr(region_more(r)->mr);
	region_more(r)->mr = NULL;
	return inlay_cache_dereg_mr(NULL, r);
}

/* The same for a region that is not the cache's. */
static int region_make(struct domain *d, struct inlay_cache_region *r, const void *addr, size_t len, uint32_t access,
		       enum use use)
{
	*r = (struct inlay_cache_region){.start = (uintptr_t)addr, .len = len, .access = access};
	*region_more(r) = (struct region_more){.use = use};
	return memory_reg(d, r);
}

static int region_reg(void *context, struct inlay_cache_region *r)
{
	struct domain *d = (struct domain *)context;

	if (d->watch == WATCH_UNTRIED)
		watch_start(d);
	region_more(r)->use = d->watch == WATCH_OFF || inlay_monitor_watch(&d->monitor, r->start, r->len) ? USE_ONCE : USE_KEPT;
	return memory_reg(d, r);
}

/* The cache is full of regions in use, perhaps of sends to a peer that waits for us to read. */
static APART int region_beyond(struct domain *d, const void *addr, size_t len, uint32_t access, struct inlay_cache_region **out)
{
	struct inlay_cache_region *r = (struct inlay_cache_region *)malloc(sizeof(*r) + sizeof(struct region_more));
	int err = r ? region_make(d, r, addr, len + !len, access, USE_BEYOND) : -FI_ENOMEM;

	if (err)
		free(r);
	else
		*out = r;
	return err;
}

int region_get(struct domain *d, struct mr *given, const void *addr, size_t len, uint32_t access, struct inlay_cache_region **r)
{
	int err;

	if (given && !(access & ~given->region.access)) {
		*r = &given->region;
		return 0;
	}
	err = inlay_cache_get(&d->cache, (uintptr_t)addr, len, access, r);
	if (INLAY_UNLIKELY(err == -EAGAIN))
		return region_beyond(d, addr, len, access, r);
	if (!err && INLAY_UNLIKELY(region_more(*r)->use == USE_ONCE))
		inlay_cache_post(&d->cache, (*r)->start, (*r)->len); /* it stays until the put */
	return err;
}

int regions_init(struct domain *d)
{
	struct inlay_cache_attr attr = {(uint32_t)settings.cache_regions, 1024, UINT64_MAX, 4096, sizeof(struct region_more)};
	struct inlay_cache_ops ops = {region_reg, memory_dereg, NULL, inlay_cache_yield, d};
	size_t size = inlay_cache_size(&attr);

	d->caches[0] = &d->cache;
	d->cache_memory = aligned_alloc(64, inlay_round_up(size, 64));
	return d->cache_memory ? inlay_cache_init(&d->cache, d->cache_memory, size, &attr, &ops) : -FI_ENOMEM;
}

void regions_fini(struct domain *d)
{
	struct domain **at;

	if (d->watch == WATCH_ON) {
		inlay_monitor_stop(&d->monitor);
		pthread_join(d->watcher, NULL);
		pthread_mutex_lock(&watched_lock);
		for (at = &watched; *at != d; at = &(*at)->next_watched)
			;
		*at = d->next_watched;
		inlay_monitor_fini(&d->monitor);
		pthread_mutex_unlock(&watched_lock);
	}
	if (d->cache_memory)
		inlay_cache_fini(&d->cache);
	free(d->cache_memory);
}

/* ---- Memory that the application registers; its key is the device's ---- */

static struct mr **bucket(struct domain *d, uint64_t key)
{
	return &d->mrs[key >> 8 & (MR_BUCKETS - 1)];
}

struct mr *mr_find(struct domain *d, uint64_t key, uint64_t addr, size_t len, uint64_t access)
{
	struct mr *m = *bucket(d, key);
	uint64_t offset;

	while (m && (uint32_t)m->fid.key != (uint32_t)key)
		m = m->next;
	if (!m || (m->access & access) != access)
		return NULL;
	offset = addr - m->region.start;
	return offset <= m->region.len && len <= m->region.len - offset ? m : NULL;
}

static int mr_close(struct fid *fid)
{
	struct mr *m = container_of(fid, struct mr, fid.fid), **at;
	struct domain *d = m->domain;
	int err;

	enter(d);
	err = memory_dereg(NULL, &m->region);
	if (!err) {
		for (at = bucket(d, m->fid.key); *at != m; at = &(*at)->next)
			;
		*at = m->next;
		d->users--;
		free(m);
	}
	return (int)leave(d, err);
}

static struct fi_ops fid_ops = FID_OPS(mr_close, no_bind, no_control);

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **out)
{
	struct domain *d = container_of(fid, struct domain, fid.fid);
	const struct iovec *v = attr->mr_iov;
	uint32_t access = IBV_ACCESS_LOCAL_WRITE;
	struct mr *m, **at;
	int err;

	if (attr->iov_count != 1 || !v->iov_len || attr->offset || attr->auth_key_size)
		return -FI_EINVAL;
	if (flags & ~(uint64_t)FI_RMA_PMEM)
		return -FI_EBADFLAGS;
	if (attr->access & (FI_SEND | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE))
		access |= IBV_ACCESS_REMOTE_READ; /* large messages, and delivery, are reads */
	if (attr->access & FI_REMOTE_WRITE)
		access |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	m = (struct mr *)calloc(1, sizeof(*m));
	if (!m)
		return -FI_ENOMEM;
	err = region_make(d, &m->region, v->iov_base, v->iov_len, access, USE_GIVEN);
	if (err && !(access & IBV_ACCESS_REMOTE_WRITE)) /* perhaps read-only memory */
		err = region_make(d, &m->region, v->iov_base, v->iov_len, access & ~(uint32_t)IBV_ACCESS_LOCAL_WRITE, USE_GIVEN);
	if (err) {
		WARN(FI_LOG_MR, "%zu bytes cannot be registered: %s\n", v->iov_len, strerror(-err));
		free(m);
		return err;
	}
	m->domain = d;
	m->access = attr->access;
	m->fid = (struct fid_mr){
		{FI_CLASS_MR, attr->context, &fid_ops}, m, m->region.rkey | (uint64_t)m->more.rkey << 32};
	*out = &m->fid;
	enter(d);
	at = bucket(d, m->fid.key);
	m->next = *at;
	*at = m;
	d->users++;
	return (int)leave(d, 0);
}

static int mr_regv(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access, uint64_t offset,
		   uint64_t key, uint64_t flags, struct fid_mr **out, void *context)
{
	const struct fi_mr_attr attr = {.mr_iov = iov, .iov_count = count, .access = access, .offset = offset, .context = context};

	return mr_regattr(fid, &attr, flags, out);
}

static int mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset, uint64_t key,
		  uint64_t flags, struct fid_mr **out, void *context)
{
	return mr_regv(fid, &(struct iovec){(void *)(uintptr_t)buf, len}, 1, access, offset, key, flags, out, context);
}

struct fi_ops_mr mr_ops = {sizeof(struct fi_ops_mr), mr_reg, mr_regv, mr_regattr};

/* ---- Buffers ---- */

#ifndef CHUNK_BYTES /* less in the fuzzer */
#define CHUNK_BYTES (1u << 20)
#endif
#define CHUNK_OPS 64u

struct chunk {
	struct inlay_cache_region region;
	struct region_more more;
	struct chunk *next;
	uint8_t data[] __attribute__((aligned(64)));
};
INLAY_STATIC_ASSERT(offsetof(struct chunk, more) == sizeof(struct inlay_cache_region), "region_more");

int pool_init(struct pool *p, size_t size, struct domain *registered)
{
	*p = (struct pool){.size = inlay_round_up(size, 64), .domain = registered};
	return pool_grow(p);
}

void pool_fini(struct pool *p)
{
	struct chunk *c;

	while ((c = p->chunks)) {
		p->chunks = c->next;
		if (p->domain)
			memory_dereg(NULL, &c->region);
		munmap(c, CHUNK_BYTES);
	}
}

APART int pool_grow(struct pool *p)
{
	const size_t stride = sizeof(struct buf) + p->size;
	void *memory = p->count < (uint32_t)settings.buffers ?
		       mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
	struct chunk *c = (struct chunk *)memory;
	uint8_t *at;

	if (memory == MAP_FAILED)
		return -FI_ENOMEM;
	if (p->domain && region_make(p->domain, &c->region, c, CHUNK_BYTES, IBV_ACCESS_LOCAL_WRITE, USE_GIVEN)) {
		munmap(c, CHUNK_BYTES);
		return -FI_ENOMEM;
	}
	c->next = p->chunks;
	p->chunks = c;
	p->count++;
	for (at = c->data; at + stride <= (uint8_t *)c + CHUNK_BYTES; at += stride) {
		struct buf *b = (struct buf *)(void *)at;

		*b = (struct buf){.lkey = c->region.lkey, .region = &c->region, .size = (uint32_t)p->size};
		buf_give(p, b);
	}
	return 0;
}

/* ---- Operations ---- */

APART int ops_grow(struct endpoint *ep)
{
	struct op **chunks = (struct op **)realloc(ep->chunks, (ep->chunk_count + 1) * sizeof(*chunks)), *op;

	if (!chunks)
		return -FI_ENOMEM;
	ep->chunks = chunks;
	op = (struct op *)calloc(CHUNK_OPS, sizeof(*op));
	if (!op)
		return -FI_ENOMEM;
	chunks[ep->chunk_count++] = op;
	for (uint32_t i = CHUNK_OPS; i--;) {
		op[i].index = (ep->chunk_count - 1) * CHUNK_OPS + i;
		op[i].next = ep->free_ops;
		ep->free_ops = &op[i];
	}
	return 0;
}

struct op *op_at(const struct endpoint *ep, uint32_t n)
{
	return n < ep->chunk_count * CHUNK_OPS ? &ep->chunks[n / CHUNK_OPS][n % CHUNK_OPS] : NULL;
}

void op_let_go(struct endpoint *ep, struct op *op)
{
	struct inlay_cache_region *r;

	while (op->regions) {
		r = op->region[--op->regions];
		if (INLAY_LIKELY(region_more(r)->use < USE_BEYOND)) {
			inlay_cache_put(&ep->domain->cache, r);
		} else if (region_more(r)->use == USE_BEYOND) {
			memory_dereg(NULL, r);
			free(r);
		}
	}
}

void ops_fini(struct endpoint *ep)
{
	struct op *op;

	/* Unfinished operations have held their registrations until now. */
	for (uint32_t n = 0; (op = op_at(ep, n)); n++)
		op_let_go(ep, op);
	while (ep->chunk_count)
		free(ep->chunks[--ep->chunk_count]);
	free(ep->chunks);
}

void memory_mark(const struct endpoint *ep)
{
	const struct pool *const pools[] = {&ep->bounce, &ep->small};
	const uint8_t *at;
	struct chunk *c;
	struct peer *p;
	struct op *op;

	for (uint32_t n = 0; (op = op_at(ep, n)); n++)
		if (op->kind != OP_FREE && op->peer)
			op->peer->named = true;
	for (uint32_t n = 0; n < 2; n++)
		for (c = pools[n]->chunks; c; c = c->next)
			for (at = c->data; at + sizeof(struct buf) + pools[n]->size <= (uint8_t *)c + CHUNK_BYTES;
			     at += sizeof(struct buf) + pools[n]->size)
				if ((p = ((const struct buf *)(const void *)at)->peer))
					p->named = true;
}

struct op *op_of(const struct endpoint *ep, uint64_t handle)
{
	struct op *op = op_at(ep, (uint32_t)handle);

	return op && op->kind != OP_FREE && op->generation == handle >> 32 ? op : NULL;
}
