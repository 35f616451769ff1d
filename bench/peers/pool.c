/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pool.c: what it costs to get a buffer and to give it back, by inlay's inventory and by others; beside others.
 *
 *   one       one is got and given back
 *   burst     32 are got one by one, then given back one by one
 *   bulk      32 are got, then given back, by one call each
 *   shuffled  131072 objects of 64 bytes, 8 MB, are got, then given back in a random order
 *   pair      as one, by two threads at once, from one pool; time is that of a thread
 *   pass      a thread gets, another gives back; 32 at a time are passed by a ring
 *
 * An operation is a get and a release. inlay's get looks up the range of the buffer, and writes a
 * descriptor with its keys, window and count; the others give an object that nobody has written to.
 * Contenders:
 *
 *   inlay        inlay_inventory_get_by_args and inlay_inventory_dec_refcount; with threads, by an inventory for each
 *   inlay's pool inlay_pool_alloc and inlay_buf_dec_refcount: descriptors that keep their slice of a map
 *   ucs_mpool    UCX's library; with threads under a spin lock, as it has none
 *   rte_mempool  DPDK, a cache of 512 an lcore
 *   malloc       glibc
 *   free list    written here: intrusive, inlined: what ucs_mpool_get_inline and ucs_mpool_put_inline do
 *   NAME, filled and the object is filled with what a descriptor holds, without a lookup
 *   stores alone written here: what inlay's get and release store; nothing is looked for, checked
 *                or kept, the object is known
 */
#include <pthread.h>
#include <rte_config.h>
#undef RTE_USE_LIBBSD /* its headers need not be there */
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mempool.h>
#include <inlay/buf.h>
#include <ucs/datastruct/mpool.h>
#include "../bench.h"

#define OBJECTS 131072u
#define BURST 32u
#define STRIDE 2048u
#define SPAN ((uint64_t)BURST * STRIDE * 64)

/* What a user of a plain pool keeps in an object */
struct object {
	void *data;
	uint32_t data_len, lkey;
	void *head;
	uint64_t len;
	void *owner;
	uint32_t rkey, id;
	uint64_t count;
	uint64_t user;
};

static struct inlay_mmap map;
static struct inlay_inventory *inv;
static struct inlay_inventory *shared;
static struct inlay_pool *pool;
static ucs_mpool_t ucs, ucs_locked;
static struct rte_mempool *rte;
static uint8_t *memory;
static struct inlay_keys keys = {0x1100, 0x1101};
struct list_pool;
static struct inlay_buf *floor_objects;
static uint64_t floor_last = 63;         /* it goes round after so many: as the other cases, in the level-1 cache */

/* What a loop has in registers, as a user's would */
struct own {
	struct inlay_inventory *inv;
	struct inlay_pool *pool;
	struct inlay_mmap *map;
	struct rte_mempool *rte;
	ucs_mpool_t *ucs;
	struct list_pool *list;
	uint8_t *memory;
	struct inlay_inventory *mine;
	uint64_t *sum;
	uint32_t lkey, rkey;
	const struct inlay_keys *keys;
	struct inlay_buf *objects;
	uint64_t last;
};

static void *page_alloc(size_t size)
{
	void *p = aligned_alloc(4096, (size + 4095) / 4096 * 4096);

	NEED(p, "aligned_alloc");
	memset(p, 0, size);
	return p;
}

/* ---- A free list as ucs_mpool's, inlined ---- */

struct element {
	union {
		struct element *next;
		struct list_pool *pool;
	} u;
};

struct list_pool {
	struct element *free;
};

static struct list_pool list_pool;

static __attribute__((noinline)) void *list_grow(struct list_pool *p)
{
	(void)p;
	die("the free list is empty");
}

static inline __attribute__((always_inline)) void *list_get(struct list_pool *p)
{
	struct element *e = p->free;

	if (__builtin_expect(!e, 0))
		return list_grow(p);
	p->free = e->u.next;
	e->u.pool = p;
	return e + 1;
}

static inline __attribute__((always_inline)) void list_put(void *object)
{
	struct element *e = (struct element *)object - 1;
	struct list_pool *p = e->u.pool;

	e->u.next = p->free;
	p->free = e;
}

/* Objects on cache lines, each behind its header: as ucs_mpool lays them out */
static void list_make(struct list_pool *p, uint32_t n)
{
	uint8_t *at = page_alloc((size_t)(n + 1) * 128);
	uint32_t i;

	for (i = n; i--;) {
		struct element *e = (struct element *)(void *)(at + 64 + (size_t)i * 128) - 1;

		e->u.next = p->free;
		p->free = e;
	}
}

static struct inlay_inventory attached[2];
static struct {
	uint64_t sum __attribute__((aligned(128)));
} reads[2];

static inline __attribute__((always_inline)) struct own own(unsigned me)
{
	struct own x = {inv, pool, &map, rte, &ucs, &list_pool, memory, &attached[me], &reads[me].sum, keys.lkey,
		keys.rkey, &keys, floor_objects, floor_last};

	return x;
}

static inline __attribute__((always_inline)) struct own own_shared(unsigned me)
{
	struct own x = own(me);

	x.ucs = &ucs_locked;
	return x;
}

/* ---- One by one ---- */

static inline __attribute__((always_inline)) void fill(struct own x, void *object, uint64_t i)
{
	struct object *o = object;
	void *at = x.memory + i % (SPAN / STRIDE) * STRIDE;

	o->data = at;
	o->data_len = STRIDE;
	o->lkey = x.lkey;
	o->head = at;
	o->len = STRIDE;
	o->owner = x.map;
	o->rkey = x.rkey;
	o->id = 0;
	o->count = 1;
}

static inline __attribute__((always_inline)) void *get_inlay(struct own x, uint64_t i)
{
	void *at = x.memory + i % (SPAN / STRIDE) * STRIDE;
	struct inlay_buf *buf;

	if (__builtin_expect(inlay_inventory_get_by_args(x.inv, x.map, at, STRIDE, at, STRIDE, &buf), 0))
		die("inlay_inventory_get_by_args failed");
	return buf;
}

static inline __attribute__((always_inline)) void put_inlay(struct own x, void *object)
{
	if (__builtin_expect(inlay_inventory_dec_refcount(x.inv, object, NULL), 0))
		die("inlay_inventory_dec_refcount failed");
}

static inline __attribute__((always_inline)) void *get_inlay_pool(struct own x, uint64_t i)
{
	struct inlay_buf *buf;

	(void)i;
	if (__builtin_expect(inlay_pool_alloc(x.pool, &buf), 0))
		die("inlay_pool_alloc failed");
	return buf;
}

static inline __attribute__((always_inline)) void put_inlay_pool(struct own x, void *object)
{
	(void)x;
	if (__builtin_expect(inlay_buf_dec_refcount(object, NULL), 0))
		die("inlay_buf_dec_refcount failed");
}

static inline __attribute__((always_inline)) void *get_ucs_mpool(struct own x, uint64_t i)
{
	(void)i;
	return ucs_mpool_get(x.ucs);
}

static inline __attribute__((always_inline)) void put_ucs_mpool(struct own x, void *object)
{
	ucs_mpool_put(object);
}

static inline __attribute__((always_inline)) void *get_rte_mempool(struct own x, uint64_t i)
{
	void *object;

	(void)i;
	if (__builtin_expect(rte_mempool_get(x.rte, &object), 0))
		die("rte_mempool_get failed");
	return object;
}

static inline __attribute__((always_inline)) void put_rte_mempool(struct own x, void *object)
{
	rte_mempool_put(x.rte, object);
}

static inline __attribute__((always_inline)) void *get_malloc(struct own x, uint64_t i)
{
	(void)i;
	return malloc(sizeof(struct object));
}

static inline __attribute__((always_inline)) void put_malloc(struct own x, void *object)
{
	free(object);
}

static inline __attribute__((always_inline)) void *get_mpool_inline(struct own x, uint64_t i)
{
	(void)i;
	return list_get(x.list);
}

static inline __attribute__((always_inline)) void put_mpool_inline(struct own x, void *object)
{
	list_put(object);
}

#define FILLED(name) \
	static inline __attribute__((always_inline)) void *get_##name##_fill(struct own x, uint64_t i) \
	{ \
		void *object = get_##name(x, i); \
		fill(x, object, i); \
		return object; \
	} \
	static inline __attribute__((always_inline)) void put_##name##_fill(struct own x, void *object) \
	{ \
		if (--((struct object *)object)->count) \
			die("the count is wrong"); \
		put_##name(x, object); \
	}
FILLED(ucs_mpool)
FILLED(rte_mempool)
FILLED(malloc)
FILLED(mpool_inline)

/* The stores alone */
static inline __attribute__((always_inline)) void *get_floor(struct own x, uint64_t i)
{
	void *at = x.memory + i % (SPAN / STRIDE) * STRIDE;
	uint64_t n = i & x.last;

	inlay_buf_fill_(&x.objects[n], x.map, x.keys, at, STRIDE, at, STRIDE);
	inlay_buf_live_(&x.objects[n], 0);
	return &x.objects[n];
}

static inline __attribute__((always_inline)) void put_floor(struct own x, void *object)
{
	(void)x;
	__atomic_store_n(&((struct inlay_buf *)object)->state, 0, __ATOMIC_RELEASE);
}

/* The loop alone */
static inline __attribute__((always_inline)) void *get_none(struct own x, uint64_t i)
{
	return x.memory + i % (SPAN / STRIDE) * STRIDE;
}

static inline __attribute__((always_inline)) void put_none(struct own x, void *object)
{
	(void)x;
	(void)object;
}

static void *all[OBJECTS], *mixed[OBJECTS];
static uint32_t order[OBJECTS];

/* What the compiler cannot see through: an object that is in use, by somebody */
#define USED(object) __asm__ volatile("" : "+r"(object) : : "memory")

#define LOOPS(name) \
	COUNTED void count_one_##name##_(uint64_t ops) \
	{ \
		const struct own x = own(0); \
		for (uint64_t i = 0; i < ops; i++) { \
			void *object = get_##name(x, i); \
			USED(object); \
			put_##name(x, object); \
		} \
	} \
	COUNTED void count_burst_##name##_(uint64_t ops) \
	{ \
		const struct own x = own(0); \
		void *objects[BURST]; \
		for (uint64_t i = 0; i < ops; i += BURST) { \
			for (uint64_t k = 0; k < BURST; k++) { \
				objects[k] = get_##name(x, i + k); \
				USED(objects[k]); \
			} \
			for (uint64_t k = 0; k < BURST; k++) \
				put_##name(x, objects[k]); \
		} \
	} \
	static __attribute__((noinline)) void run_shuffled_get_##name(void) \
	{ \
		const struct own x = own(0); \
		for (uint64_t i = 0; i < OBJECTS; i++) \
			all[i] = get_##name(x, i); \
	} \
	static __attribute__((noinline)) void run_shuffled_put_##name(void) \
	{ \
		const struct own x = own(0); \
		for (uint64_t i = 0; i < OBJECTS; i++) \
			put_##name(x, mixed[i]); \
	} \
	static double time_one_##name(void *arg, uint64_t ops) \
	{ \
		(void)arg; \
		double t = now(); \
		count_one_##name##_(ops); \
		return now() - t; \
	} \
	static double time_burst_##name(void *arg, uint64_t ops) \
	{ \
		(void)arg; \
		double t = now(); \
		count_burst_##name##_(ops); \
		return now() - t; \
	} \
	/* Mixing is not timed; the first time, it mixes a pool that is in order. */ \
	static double time_shuffled_##name(void *arg, uint64_t ops) \
	{ \
		(void)arg; \
		double sum = 0, t; \
		for (uint64_t k = 0; k < ops; k += OBJECTS) { \
			t = now(); \
			run_shuffled_get_##name(); \
			sum += now() - t; \
			for (uint32_t i = 0; i < OBJECTS; i++) \
				mixed[i] = all[order[i]]; \
			t = now(); \
			run_shuffled_put_##name(); \
			sum += now() - t; \
		} \
		return sum; \
	}

LOOPS(none)
LOOPS(floor)
LOOPS(inlay)
LOOPS(inlay_pool)
LOOPS(ucs_mpool)
LOOPS(rte_mempool)
LOOPS(malloc)
LOOPS(mpool_inline)
LOOPS(ucs_mpool_fill)
LOOPS(rte_mempool_fill)
LOOPS(malloc_fill)
LOOPS(mpool_inline_fill)

/* ---- In bulk ---- */

COUNTED void count_bulk_inlay_(uint64_t ops)
{
	const struct own x = own(0);
	struct inlay_buf *bufs[BURST];

	for (uint64_t i = 0; i < ops; i += BURST) {
		if (inlay_inventory_get_bulk(x.inv, x.map, x.memory + i % (SPAN / STRIDE) * STRIDE, STRIDE, bufs, BURST))
			die("inlay_inventory_get_bulk failed");
		__asm__ volatile("" : : "r"(bufs) : "memory");
		if (inlay_buf_dec_refcounts(x.inv, bufs, BURST) != BURST)
			die("inlay_buf_dec_refcounts failed");
	}
}

COUNTED void count_bulk_inlay_pool_(uint64_t ops)
{
	const struct own x = own(0);
	struct inlay_buf *bufs[BURST];

	for (uint64_t i = 0; i < ops; i += BURST) {
		if (inlay_pool_alloc_bulk(x.pool, bufs, BURST))
			die("inlay_pool_alloc_bulk failed");
		__asm__ volatile("" : : "r"(bufs) : "memory");
		if (inlay_buf_dec_refcounts(NULL, bufs, BURST) != BURST)
			die("inlay_buf_dec_refcounts failed");
	}
}

static inline __attribute__((always_inline)) void bulk_rte(uint64_t ops, int filled)
{
	const struct own x = own(0);
	void *objects[BURST];

	for (uint64_t i = 0; i < ops; i += BURST) {
		if (rte_mempool_get_bulk(x.rte, objects, BURST))
			die("rte_mempool_get_bulk failed");
		for (uint64_t k = 0; filled && k < BURST; k++)
			fill(x, objects[k], i + k);
		__asm__ volatile("" : : "r"(objects) : "memory");
		for (uint64_t k = 0; filled && k < BURST; k++)
			if (--((struct object *)objects[k])->count)
				die("the count is wrong");
		rte_mempool_put_bulk(x.rte, objects, BURST);
	}
}

COUNTED void count_bulk_rte_mempool_(uint64_t ops)
{
	bulk_rte(ops, 0);
}

COUNTED void count_bulk_rte_mempool_fill_(uint64_t ops)
{
	bulk_rte(ops, 1);
}

#define TIME_BULK(name) \
	static double time_bulk_##name(void *arg, uint64_t ops) \
	{ \
		(void)arg; \
		double t = now(); \
		count_bulk_##name##_(ops); \
		return now() - t; \
	}
TIME_BULK(inlay)
TIME_BULK(inlay_pool)
TIME_BULK(rte_mempool)
TIME_BULK(rte_mempool_fill)

/* ---- Two threads ---- */

static pthread_spinlock_t ucs_lock;

static inline __attribute__((always_inline)) void *share_get_inlay(struct own x, uint64_t i)
{
	void *at = x.memory + i % (SPAN / STRIDE) * STRIDE;
	struct inlay_buf *buf;

	if (__builtin_expect(inlay_inventory_get_by_args(x.mine, x.map, at, STRIDE, at, STRIDE, &buf), 0))
		die("inlay_inventory_get_by_args failed");
	return buf;
}

static inline __attribute__((always_inline)) void share_put_inlay(struct own x, void *object)
{
	if (__builtin_expect(inlay_inventory_dec_refcount(x.mine, object, NULL), 0))
		die("inlay_inventory_dec_refcount failed");
}

static inline __attribute__((always_inline)) void *share_get_ucs_mpool(struct own x, uint64_t i)
{
	void *object;

	(void)i;
	pthread_spin_lock(&ucs_lock);
	object = ucs_mpool_get(x.ucs);
	pthread_spin_unlock(&ucs_lock);
	return object;
}

static inline __attribute__((always_inline)) void share_put_ucs_mpool(struct own x, void *object)
{
	(void)x;
	pthread_spin_lock(&ucs_lock);
	ucs_mpool_put(object);
	pthread_spin_unlock(&ucs_lock);
}

#define share_get_rte_mempool get_rte_mempool
#define share_put_rte_mempool put_rte_mempool
#define share_get_malloc get_malloc
#define share_put_malloc put_malloc
#define share_get_none get_none
#define share_put_none put_none
#define share_get_rte_mempool_fill get_rte_mempool_fill
#define share_get_malloc_fill get_malloc_fill
#define share_get_inlay_read share_get_inlay

/* Who gives it back has posted it before, or looked into it. */
static inline __attribute__((always_inline)) void share_put_rte_mempool_fill(struct own x, void *object)
{
	*x.sum += ((struct object *)object)->lkey;
	put_rte_mempool_fill(x, object);
}

static inline __attribute__((always_inline)) void share_put_malloc_fill(struct own x, void *object)
{
	*x.sum += ((struct object *)object)->lkey;
	put_malloc_fill(x, object);
}

static inline __attribute__((always_inline)) void share_put_inlay_read(struct own x, void *object)
{
	*x.sum += inlay_buf_keys(object).lkey;
	share_put_inlay(x, object);
}

/* Handed over 32 at a time, up to 1024 */
#define RING 1024u
static struct {
	void *slot[RING];
	uint64_t head __attribute__((aligned(128)));
	uint64_t tail __attribute__((aligned(128)));
} ring;

static inline void relax(void)
{
#if defined(__x86_64__)
	__asm__ volatile("pause");
#else
	__asm__ volatile("yield" ::: "memory");
#endif
}

#define THREADS(name) \
	static __attribute__((noinline)) void run_pair_##name(unsigned me, uint64_t ops) \
	{ \
		const struct own x = own_shared(me); \
		for (uint64_t i = 0; i < ops; i++) { \
			void *object = share_get_##name(x, i); \
			USED(object); \
			share_put_##name(x, object); \
		} \
	} \
	static __attribute__((noinline)) void run_pass_##name(unsigned me, uint64_t ops) \
	{ \
		const struct own x = own_shared(me); \
		uint64_t at = 0; \
		for (uint64_t i = 0; !me && i < ops; i += BURST) { \
			while (i + BURST - at > RING) { \
				at = __atomic_load_n(&ring.tail, __ATOMIC_ACQUIRE); \
				if (i + BURST - at > RING) \
					relax(); \
			} \
			for (uint64_t k = i; k < i + BURST; k++) { \
				void *object = share_get_##name(x, k); \
				USED(object); \
				ring.slot[k % RING] = object; \
			} \
			__atomic_store_n(&ring.head, i + BURST, __ATOMIC_RELEASE); \
		} \
		for (uint64_t i = 0; me && i < ops; i += BURST) { \
			while (at - i < BURST) { \
				at = __atomic_load_n(&ring.head, __ATOMIC_ACQUIRE); \
				if (at - i < BURST) \
					relax(); \
			} \
			for (uint64_t k = i; k < i + BURST; k++) { \
				void *object = ring.slot[k % RING]; \
				USED(object); \
				share_put_##name(x, object); \
			} \
			__atomic_store_n(&ring.tail, i + BURST, __ATOMIC_RELEASE); \
		} \
	} \
	static __attribute__((unused)) double time_pair_##name(void *arg, uint64_t ops) \
	{ \
		(void)arg; \
		return both(run_pair_##name, ops); \
	} \
	static __attribute__((unused)) double time_pass_##name(void *arg, uint64_t ops) \
	{ \
		(void)arg; \
		ring.head = ring.tail = 0; \
		return both(run_pass_##name, ops); \
	}

struct job {
	void (*run)(unsigned me, uint64_t ops);
	uint64_t ops;
	unsigned ready;
};

static int other(void *arg)
{
	struct job *job = arg;

	__atomic_store_n(&job->ready, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&job->ready, __ATOMIC_ACQUIRE) != 2)
		relax();
	job->run(1, job->ops);
	return 0;
}

/* From when both are there until both are done */
static double both(void (*run)(unsigned me, uint64_t ops), uint64_t ops)
{
	struct job job = {run, ops, 0};
	unsigned lcore = rte_get_next_lcore(-1, 1, 0);
	double t;

	NEED(!rte_eal_remote_launch(other, &job, lcore), "rte_eal_remote_launch");
	while (!__atomic_load_n(&job.ready, __ATOMIC_ACQUIRE))
		relax();
	t = now();
	__atomic_store_n(&job.ready, 2, __ATOMIC_RELEASE);
	run(0, ops);
	NEED(!rte_eal_wait_lcore(lcore), "rte_eal_wait_lcore");
	return now() - t;
}

THREADS(none)
THREADS(inlay)
THREADS(inlay_read)
THREADS(ucs_mpool)
THREADS(rte_mempool)
THREADS(malloc)
THREADS(rte_mempool_fill)
THREADS(malloc_fill)

/* ---- Making them ---- */

static void make_map(struct inlay_mmap *m)
{
	static struct ibv_pd pd; /* keys that are given name a device, and ask nothing of it */
	size_t size = inlay_mmap_size(1, 1);

	NEED(!inlay_mmap_create(m, page_alloc(size), size, 1, 1), "inlay_mmap_create");
	NEED(!inlay_mmap_add_dev(m, &pd), "inlay_mmap_add_dev");
	NEED(!inlay_mmap_add(m, inlay_source_keys((uintptr_t)memory, SPAN, keys)), "inlay_mmap_add");
	NEED(!inlay_mmap_start(m), "inlay_mmap_start");
}

static void make_ucs(ucs_mpool_t *p, uint32_t n)
{
	static ucs_mpool_ops_t ops = {.chunk_alloc = ucs_mpool_chunk_mmap, .chunk_release = ucs_mpool_chunk_munmap};

	void *first;

	NEED(ucs_mpool_init(p, 0, sizeof(struct object), 0, 64, n, n, &ops, "bench") == UCS_OK, "ucs_mpool_init");
	/* All of it is made with the first one. */
	first = ucs_mpool_get(p);
	NEED(first, "ucs_mpool_get");
	ucs_mpool_put(first);
}

static void make(void)
{
	char *eal[] = {"pool", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry", "-m", "256", "--lcores",
		"0@0,1@1", "--log-level", "error", NULL};
	uint32_t i, j, swap;
	const char *only = getenv("BENCH_ONLY");
	size_t size;

	if (!only || strcmp(only, "inlay")) {
		if (rte_eal_init(11, eal) < 0)
			die(rte_strerror(rte_errno));
		rte = rte_mempool_create("bench", OBJECTS + 1024, sizeof(struct object), 512, 0, NULL, NULL, NULL, NULL,
					 SOCKET_ID_ANY, 0);
		NEED(rte, "rte_mempool_create");
		make_ucs(&ucs, OBJECTS);
		make_ucs(&ucs_locked, OBJECTS);
		pthread_spin_init(&ucs_lock, PTHREAD_PROCESS_PRIVATE);
		list_make(&list_pool, OBJECTS);
	}
	memory = page_alloc(SPAN);
	make_map(&map);
	size = inlay_inventory_size(OBJECTS);
	NEED(!inlay_inventory_create(page_alloc(size), size, OBJECTS, &inv), "inlay_inventory_create");
	NEED(!inlay_inventory_start(inv), "inlay_inventory_start");
	NEED(!inlay_inventory_create(page_alloc(size), size, OBJECTS, &shared), "inlay_inventory_create");
	shared->shared = 1;
	NEED(!inlay_inventory_start(shared), "inlay_inventory_start");
	size = inlay_pool_size(OBJECTS);
	NEED(!inlay_pool_create(page_alloc(size), size, OBJECTS, SPAN / OBJECTS, &map, &pool), "inlay_pool_create");
	NEED(!inlay_pool_start(pool), "inlay_pool_start");
	for (i = 0; i < 2; i++)
		NEED(!inlay_inventory_attach(&attached[i], shared), "inlay_inventory_attach");
	floor_objects = page_alloc(OBJECTS * sizeof(*floor_objects));
	for (i = 0; i < OBJECTS; i++) {
		j = (uint32_t)(rnd() % (i + 1));
		order[i] = i;
		swap = order[j];
		order[j] = order[i];
		order[i] = swap;
	}
}

#define ROW(of, name, text, includes) {text, time_##of##_##name, NULL, includes}
#define PLAIN "an object, nothing written"
#define FILLS "an object, written as a descriptor is"
#define ALL(of) {ROW(of, inlay, "inlay", "range found, descriptor, keys, window, state"), \
	ROW(of, inlay_pool, "inlay's pool", "a slice of its own, state"), ROW(of, rte_mempool, "rte_mempool", PLAIN), \
	ROW(of, ucs_mpool, "ucs_mpool", PLAIN), ROW(of, malloc, "malloc", PLAIN), \
	ROW(of, mpool_inline, "free list", PLAIN), ROW(of, rte_mempool_fill, "rte_mempool, filled", FILLS), \
	ROW(of, ucs_mpool_fill, "ucs_mpool, filled", FILLS), ROW(of, malloc_fill, "malloc, filled", FILLS), \
	ROW(of, mpool_inline_fill, "free list, filled", FILLS), \
	ROW(of, floor, "stores alone", "descriptor and state"), ROW(of, none, "loop", "")}

int main(void)
{
	static const struct way one[] = ALL(one), burst[] = ALL(burst), shuffled[] = ALL(shuffled);
	static const struct way bulk[] = {ROW(bulk, inlay, "inlay", "one call"),
		ROW(bulk, inlay_pool, "inlay's pool", "one call"),
		ROW(bulk, rte_mempool, "rte_mempool", "one call"),
		ROW(bulk, rte_mempool_fill, "rte_mempool, filled", "one call, then written")};
	static const struct way pair[] = {ROW(pair, inlay, "inlay", "a cache each"),
		ROW(pair, rte_mempool, "rte_mempool", "a cache each"),
		ROW(pair, ucs_mpool, "ucs_mpool", "a spin lock, as it has none"), ROW(pair, malloc, "malloc", PLAIN),
		ROW(pair, rte_mempool_fill, "rte_mempool, filled", FILLS),
		ROW(pair, malloc_fill, "malloc, filled", FILLS), ROW(pair, none, "loop", "")};
	static const struct way pass[] = {ROW(pass, inlay_read, "inlay", "a ring; the key is read"),
		ROW(pass, rte_mempool, "rte_mempool", "a ring"),
		ROW(pass, ucs_mpool, "ucs_mpool", "a ring, a spin lock"), ROW(pass, malloc, "malloc", "a ring"),
		ROW(pass, rte_mempool_fill, "rte_mempool, filled", "a ring; the key is read"),
		ROW(pass, malloc_fill, "malloc, filled", "a ring; the key is read"), ROW(pass, none, "loop", "a ring")};

	make();
	/* In order first: the other cases find pools that nobody has shuffled. */
	bench_row("pool", "get, release", one, 12, 64);
	bench_row("pool", "32 gets, 32 releases", burst, 12, BURST);
	bench_row("pool", "32 at once", bulk, 4, BURST);
	if (!bench_counts()) {
		bench_row("pool", "two threads, one by one", pair, 7, 20000);
		bench_row("pool", "one thread to another", pass, 7, 640 * BURST);
		floor_last = OBJECTS - 1;
		bench_row("pool", "131,072 objects, shuffled", shuffled, 12, OBJECTS);
	}
	if (inlay_inventory_num_free(inv) != OBJECTS || inlay_inventory_num_free(shared) != OBJECTS ||
	    inlay_pool_num_free(pool) != OBJECTS)
		die("buffers were lost");
	return 0;
}
