/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * regcache.c: a registration cache that the kernel tells what goes away.
 *
 * A transport is handed buffers of anybody's. It gets each from the cache, which registers what it
 * has not seen; what it registers is watched; and what the program then unmaps, gives back or moves
 * is registered anew when it comes again. Each region also counts its transfers, in bytes of the
 * caller's.
 *
 * Exits with 77 if the kernel does not permit it here.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <sys/mman.h>
#include <infiniband/verbs.h>
#include <inlay/mmap/cache.h>
#include <inlay/mmap/monitor.h>
#include "common/program.h"

static const size_t bytes = 16 * 4096;

/* The caller's bytes in each region */
struct mine {
	uint32_t transfers;
};

struct transport {
	struct ibv_pd *pd;
	struct inlay_cache cache;
	struct inlay_cache *caches[1];
	struct inlay_monitor monitor;
	pthread_t thread;
};

/* Watches first, so that nothing goes unseen, then registers. */
static int watched_reg(void *context, struct inlay_cache_region *r)
{
	struct transport *t = (struct transport *)context;
	int err = inlay_monitor_watch(&t->monitor, r->start, r->len);

	return err ? err : inlay_cache_reg_mr(t->pd, r);
}

/* A union of regions has carried what all of them have. */
static int add_up(void *context, const struct inlay_cache_region *old, struct inlay_cache_region *r)
{
	(void)context;
	((struct mine *)(r + 1))->transfers += ((const struct mine *)(old + 1))->transfers;
	return 0;
}

/* The monitor's thread: it does nothing else, and above all neither allocates nor frees. */
static void *watching(void *arg)
{
	while (inlay_monitor_step((struct inlay_monitor *)arg, -1) >= 0)
		;
	return NULL;
}

static void transport_open(struct transport *t, struct ibv_pd *pd, void *memory, size_t size,
			   const struct inlay_cache_attr *attr)
{
	struct inlay_cache_ops ops = {watched_reg, inlay_cache_dereg_mr, add_up, inlay_cache_yield, t};
	const char *why;
	int err;

	t->pd = pd;
	t->caches[0] = &t->cache;
	must(!inlay_cache_init(&t->cache, memory, size, attr, &ops), "inlay_cache_init");
	err = inlay_monitor_init(&t->monitor, t->caches, 1, &why);
	if (err) {
		fprintf(stderr, "skipped: %s: %s\n", why, strerror(-err));
		exit(77);
	}
	must(!pthread_create(&t->thread, NULL, watching, &t->monitor), "pthread_create");
}

static void transport_close(struct transport *t)
{
	inlay_monitor_stop(&t->monitor);
	must(!pthread_join(t->thread, NULL), "pthread_join");
	inlay_monitor_fini(&t->monitor);
	must(!inlay_cache_fini(&t->cache), "inlay_cache_fini");
}

/* A transfer of the buffer, and what the cache says of it. Returns the key that it went with. */
static uint32_t transfer(struct transport *t, const uint8_t *buf, size_t len, const char *what)
{
	struct inlay_cache_region *r;
	uint32_t key;
	int err;

	err = inlay_cache_get(&t->cache, (uintptr_t)buf, len, IBV_ACCESS_LOCAL_WRITE, &r);
	if (err) {
		fprintf(stderr, "regcache: registering: %s\n", strerror(-err));
		exit(1);
	}
	key = r->lkey; /* ... a post with this key, and its completion ... */
	printf("%-28s key 0x%x, %u before\n", what, key, ((struct mine *)(r + 1))->transfers++);
	inlay_cache_put(&t->cache, r);
	return key;
}

static uint8_t *map(void *at)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);
	uint8_t *buf = (uint8_t *)mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);

	must(buf != (uint8_t *)MAP_FAILED, "mmap");
	memset(buf, 1, bytes);
	return buf;
}

int main(int argc, char **argv)
{
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct inlay_cache_attr attr = {64, 256, 1u << 30, 4096, sizeof(struct mine)};
	size_t size = inlay_cache_size(&attr);
	void *room = memory(size);
	struct inlay_cache_counts *counts;
	static struct transport t;
	uint8_t *buf, *moved;
	uint32_t key;

	arguments(argc, argv, "A registration cache that the kernel tells what goes away. Exits with 77 if it may not.", "", NULL);
	ctx = open_device(NULL);
	pd = ibv_alloc_pd(ctx);
	must(pd != NULL, "ibv_alloc_pd");
	transport_open(&t, pd, room, size, &attr);
	counts = &t.cache.counts;

	buf = map(NULL);
	key = transfer(&t, buf, bytes / 2, "half of a buffer");
	must(transfer(&t, buf, 100, "a part of it") == key && counts->misses == 1, "finding it again");
	transfer(&t, buf + bytes / 4, bytes / 2, "across its end: a union");
	must(counts->merged == 1 && counts->regions == 1, "merging");

	must(!munmap(buf, bytes), "munmap");
	map(buf);
	transfer(&t, buf, bytes, "unmapped, and mapped anew");
	must(counts->misses == 3 && counts->invalidated == 1, "noticing munmap");

	must(!madvise(buf, bytes, MADV_DONTNEED), "madvise");
	transfer(&t, buf, bytes, "its pages given back");
	must(counts->misses == 4 && counts->invalidated == 2, "noticing madvise");

	moved = (uint8_t *)mremap(buf, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, map(NULL));
	must(moved != (uint8_t *)MAP_FAILED, "mremap");
	map(buf);
	transfer(&t, buf, bytes, "moved, and mapped anew");
	must(counts->misses == 5 && counts->invalidated == 3, "noticing mremap");

	printf("%d misses, %d reported by the kernel\n", (int)counts->misses, (int)counts->invalidated);
	transport_close(&t);
	munmap(moved, bytes);
	munmap(buf, bytes);
	free(room);
	must(!ibv_dealloc_pd(pd) && !ibv_close_device(ctx), "closing the device");
	return 0;
}
