/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lookup.c: from an address and a length to a key, by inlay and by others.
 *
 *   random-N     random hits over N ranges, the next one not waiting for the last
 *   chain-N      the same, each address known only when the last key is
 *   same-N       all in one of N ranges
 *   far-N        as random-N, the ranges in two clusters 64 TiB apart
 *   huge-N       as random-N, the ranges of 2 MiB pages
 *
 * Ranges are of 4 KiB to 1 GiB, with gaps of 4 KiB to 64 MiB (huge-N: from 2 MiB), sizes equally
 * likely by their logarithm. Every contender gives the key, and only when all of the length is in
 * the range. Contenders:
 *
 *   inlay        inlay_mmap_find: the table of a map
 *   ucs_pgtable  UCX's library
 *   spdk         written here: what SPDK's mem_map does in inlined code. A top table by GiB, below
 *                it one by 2 MiB, and by 4 KiB where a range covers part of one; the entry points
 *                to the range
 *   spdk2        the same as it was with two levels, for ranges of 2 MiB pages
 *   sorted       written here: binary search in the sorted ranges, without branches
 *   tree         written here: what libfabric's MR cache does to look up. A binary tree with
 *                comparator and keys behind pointers; balanced, which a red-black one is at best;
 *                without its mutex
 *   tree_mutex   the same under a mutex, as there
 */
#include <pthread.h>
#include <sys/mman.h>
#include <inlay/mmap/lookup.h>
#include <ucs/datastruct/pgtable.h>
#include "../bench.h"

#define MAX_RANGES 65536u
#define QUERIES 65536u

struct query {
	uint64_t addr, len;
};

/* What the others point to: as in an MR */
struct region {
	ucs_pgt_region_t pgt;            /* [start, end) */
	uint32_t lkey, rkey;
};

static struct inlay_range ranges[MAX_RANGES];
static struct region regions[MAX_RANGES];
static struct query query[QUERIES];
static uint32_t num;
static uint64_t expect;                  /* sum of the keys of all queries */

static struct inlay_table *lookup;
static ucs_pgtable_t pgtable;

/* Memory that lives as long as the case does */
static uint8_t *arena, *arena_at;
#define ARENA (3ull << 30)

static void *take(size_t size)
{
	void *p = arena_at;

	arena_at += (size + 63) / 64 * 64;
	if (arena_at > arena + ARENA)
		die("out of memory");
	return p;
}

/* ---- SPDK's way ---- */

struct spdk_4k {
	const struct region *of[512];
};

struct spdk_2m {
	uintptr_t of[512];               /* a region, or with bit 0 a table by 4 KiB */
};

static struct spdk_2m **spdk;

static void spdk_set(uint64_t start, uint64_t end, const struct region *r)
{
	struct spdk_4k *fine;
	uintptr_t *e;

	while (start < end) {
		struct spdk_2m **m = &spdk[start >> 30];

		if (!*m)
			*m = take(sizeof(**m));
		e = &(*m)->of[start >> 21 & 511];
		if (!(start & 0x1fffff) && end - start >= 0x200000) {
			*e = (uintptr_t)r;
			start += 0x200000;
			continue;
		}
		if (!*e)
			*e = (uintptr_t)take(sizeof(*fine)) | 1;
		fine = (struct spdk_4k *)(*e & ~(uintptr_t)1);
		fine->of[start >> 12 & 511] = r;
		start += 4096;
	}
}

static inline __attribute__((always_inline)) const struct region *spdk_find(uint64_t addr, uint64_t len)
{
	const struct spdk_2m *m;
	const struct region *r;
	uintptr_t e;

	if (__builtin_expect(addr >> 48, 0))
		return NULL;
	m = spdk[addr >> 30];
	if (__builtin_expect(!m, 0))
		return NULL;
	e = m->of[addr >> 21 & 511];
	if (e & 1)
		e = (uintptr_t)((const struct spdk_4k *)(e & ~(uintptr_t)1))->of[addr >> 12 & 511];
	r = (const struct region *)e;
	if (__builtin_expect(!r, 0) || __builtin_expect(r->pgt.end - addr < len, 0))
		return NULL;
	return r;
}

static inline __attribute__((always_inline)) const struct region *spdk2_find(uint64_t addr, uint64_t len)
{
	const struct spdk_2m *m;
	const struct region *r;

	if (__builtin_expect(addr >> 48, 0))
		return NULL;
	m = spdk[addr >> 30];
	if (__builtin_expect(!m, 0))
		return NULL;
	r = (const struct region *)m->of[addr >> 21 & 511];
	if (__builtin_expect(!r, 0) || __builtin_expect(r->pgt.end - addr < len, 0))
		return NULL;
	return r;
}

/* ---- libfabric's way ---- */

struct node {
	struct node *left, *right;
	const struct region *data;
};

struct tree {
	struct node *root;
	int (*compare)(const struct query *key, const struct region *data);
};

static struct tree tree;
static pthread_mutex_t tree_lock = PTHREAD_MUTEX_INITIALIZER;

/* Outside of it: before or behind. */
static __attribute__((noinline)) int tree_compare(const struct query *key, const struct region *data)
{
	if (data->pgt.end < key->addr + key->len)
		return 1;
	if (data->pgt.start > key->addr)
		return -1;
	return 0;
}

/* Nodes lie where they were allocated: in no order. */
static struct node *tree_make(struct node *nodes, const uint32_t *where, uint32_t low, uint32_t high)
{
	uint32_t mid = low + (high - low) / 2;
	struct node *n;

	if (low == high)
		return NULL;
	n = &nodes[where[mid]];
	n->data = &regions[mid];
	n->left = tree_make(nodes, where, low, mid);
	n->right = tree_make(nodes, where, mid + 1, high);
	return n;
}

static __attribute__((noinline)) const struct region *tree_find(const struct tree *t, const struct query *key)
{
	const struct node *n = t->root;
	int c;

	while (n) {
		c = t->compare(key, n->data);
		if (!c)
			return n->data;
		n = c < 0 ? n->left : n->right;
	}
	return NULL;
}

static __attribute__((noinline)) const struct region *tree_find_locked(const struct tree *t, const struct query *key)
{
	const struct region *r;

	pthread_mutex_lock(&tree_lock);
	r = tree_find(t, key);
	pthread_mutex_unlock(&tree_lock);
	return r;
}

/* ---- The loops ---- */

static inline __attribute__((always_inline)) uint64_t one_inlay(const struct query *q)
{
	const struct inlay_range *r = inlay_table_find_(lookup, q->addr, q->len);

	return r ? r->lkey : 0;
}

static inline __attribute__((always_inline)) uint64_t one_ucs_pgtable(const struct query *q)
{
	const struct region *r = (const struct region *)ucs_pgtable_lookup(&pgtable, q->addr);

	return r && r->pgt.end - q->addr >= q->len ? r->lkey : 0;
}

static inline __attribute__((always_inline)) uint64_t one_spdk(const struct query *q)
{
	const struct region *r = spdk_find(q->addr, q->len);

	return r ? r->lkey : 0;
}

static inline __attribute__((always_inline)) uint64_t one_spdk2(const struct query *q)
{
	const struct region *r = spdk2_find(q->addr, q->len);

	return r ? r->lkey : 0;
}

static inline __attribute__((always_inline)) uint64_t one_sorted(const struct query *q)
{
	const struct inlay_range *r = ranges;
	uint32_t n, half;

	for (n = num; n > 1; n -= half) {
		half = n / 2;
		r = r[half].start <= q->addr ? r + half : r;
	}
	return inlay_range_holds_(r->start, r->len, q->addr, q->len) ? r->lkey : 0;
}

static inline __attribute__((always_inline)) uint64_t one_tree(const struct query *q)
{
	const struct region *r = tree_find(&tree, q);

	return r ? r->lkey : 0;
}

static inline __attribute__((always_inline)) uint64_t one_tree_mutex(const struct query *q)
{
	const struct region *r = tree_find_locked(&tree, q);

	return r ? r->lkey : 0;
}

static inline __attribute__((always_inline)) uint64_t one_none(const struct query *q)
{
	return q->addr + q->len;
}

static uint64_t result;

/* run_: independent ones; chain_: the next query is known when the last key is. Keys are below 2^32. */
#define LOOPS(name) \
	COUNTED uint64_t count_##name##_(uint64_t ops) \
	{ \
		uint64_t sum = 0, i, k; \
		for (i = 0; i < ops; i += QUERIES) \
			for (k = 0; k < QUERIES; k++) \
				sum += one_##name(&query[k]); \
		return sum; \
	} \
	static __attribute__((noinline)) uint64_t chain_##name(uint64_t ops) \
	{ \
		uint64_t sum = 0, key = 0, i, k; \
		for (i = 0; i < ops; i += QUERIES) \
			for (k = 0; k < QUERIES; k++) { \
				key = one_##name(&query[k + (key >> 32)]); \
				/* Who knew that it is below 2^32 would not wait for it. */ \
				__asm__("" : "+r"(key)); \
				sum += key; \
			} \
		return sum; \
	} \
	static double time_##name(void *arg, uint64_t ops) \
	{ \
		(void)arg; \
		double t = now(); \
		result = count_##name##_(ops); \
		t = now() - t; \
		if (result != expect * ((ops + QUERIES - 1) / QUERIES)) \
			die(#name ": wrong keys"); \
		return t; \
	} \
	static __attribute__((unused)) double time_chain_##name(void *arg, uint64_t ops) \
	{ \
		(void)arg; \
		double t = now(); \
		result = chain_##name(ops); \
		t = now() - t; \
		if (result != expect * ((ops + QUERIES - 1) / QUERIES)) \
			die(#name ": wrong keys"); \
		return t; \
	}

LOOPS(inlay)
LOOPS(ucs_pgtable)
LOOPS(spdk)
LOOPS(spdk2)
LOOPS(sorted)
LOOPS(tree)
LOOPS(tree_mutex)

/* The loop alone */
COUNTED uint64_t count_none_(uint64_t ops)
{
	uint64_t sum = 0, i, k;

	for (i = 0; i < ops; i += QUERIES)
		for (k = 0; k < QUERIES; k++) {
			sum += one_none(&query[k]);
			__asm__ volatile("" : "+r"(sum));
		}
	return sum;
}

static double time_none(void *arg, uint64_t ops)
{
	(void)arg;
	double t = now();

	result = count_none_(ops);
	return now() - t;
}

/* ---- A case ---- */

static ucs_pgt_dir_t *dir_alloc(const ucs_pgtable_t *t)
{
	(void)t;
	return take(sizeof(ucs_pgt_dir_t));
}

static void dir_release(const ucs_pgtable_t *t, ucs_pgt_dir_t *dir)
{
	(void)t;
	(void)dir;
}

/* Equally likely by its logarithm, in pages of 2^page bytes, up to 4096 << octaves */
static uint64_t size_of(unsigned page, unsigned octaves)
{
	uint64_t top = (uint64_t)1 << (page + rnd() % (12 + octaves - page));

	return (top + rnd() % top) >> page << page;
}

static void make(uint32_t n, int far, int same, unsigned page)
{
	uint64_t at = 0x10000000000u, i, pick, offset;
	struct node *nodes;
	uint32_t *where, k, swap, j;

	num = n;
	seed = 88172645463325252u;
	/* Untouched pages again */
	if (arena)
		munmap(arena, ARENA);
	arena = arena_at = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
				0);
	NEED(arena != MAP_FAILED, "mmap");
	spdk = take(sizeof(*spdk) << 18);
	for (i = 0; i < n; i++) {
		if (far && i == n / 2)
			at += (uint64_t)64 << 40;
		at += size_of(page, 14);
		ranges[i].start = at;
		ranges[i].len = size_of(page, 18);
		ranges[i].lkey = (uint32_t)(i + 1) * 256;
		at += ranges[i].len;
		regions[i].pgt.start = ranges[i].start;
		regions[i].pgt.end = at;
		regions[i].lkey = ranges[i].lkey;
	}
	expect = 0;
	for (i = 0; i < QUERIES; i++) {
		pick = same ? n / 2 : rnd() % n;
		offset = rnd() % ranges[pick].len;
		query[i].addr = ranges[pick].start + offset;
		query[i].len = 1 + rnd() % 4096;
		if (query[i].len > ranges[pick].len - offset)
			query[i].len = ranges[pick].len - offset;
		expect += ranges[pick].lkey;
	}

	lookup = inlay_table_init_(take(inlay_table_bytes_(n)), n);
	memcpy(inlay_table_ranges_(lookup), ranges, n * sizeof(*ranges));
	NEED(!inlay_table_build_(lookup, n), "inlay_table_build_");

	NEED(ucs_pgtable_init(&pgtable, dir_alloc, dir_release) == UCS_OK, "ucs_pgtable_init");
	for (i = 0; i < n; i++)
		NEED(ucs_pgtable_insert(&pgtable, &regions[i].pgt) == UCS_OK, "ucs_pgtable_insert");

	for (i = 0; i < n; i++)
		spdk_set(ranges[i].start, ranges[i].start + ranges[i].len, &regions[i]);

	nodes = take(n * sizeof(*nodes));
	where = malloc(n * sizeof(*where));
	NEED(where, "malloc");
	for (k = 0; k < n; k++) {
		j = (uint32_t)(rnd() % (k + 1));
		where[k] = k;
		swap = where[j];
		where[j] = where[k];
		where[k] = swap;
	}
	tree.root = tree_make(nodes, where, 0, n);
	tree.compare = tree_compare;
	free(where);
}

#define WAYS(prefix) {"inlay", prefix##inlay, NULL, "a table of the map"}, \
	{"ucs_pgtable", prefix##ucs_pgtable, NULL, "UCX's library"}, \
	{"SPDK's table", prefix##spdk, NULL, "written here, three levels"}, \
	{"sorted", prefix##sorted, NULL, "binary search, written here"}, \
	{"tree", prefix##tree, NULL, "libfabric's, written here, no mutex"}

int main(void)
{
	static const struct way apart[] = {WAYS(time_), {"tree, mutex", time_tree_mutex, NULL, "the same, locked"},
		{"loop", time_none, NULL, ""}};
	static const struct way chain[] = {WAYS(time_chain_)};
	static const struct way huge[] = {{"inlay", time_inlay, NULL, ""}, {"ucs_pgtable", time_ucs_pgtable, NULL, ""},
		{"SPDK's table", time_spdk2, NULL, "written here, two levels"},
		{"sorted", time_sorted, NULL, "binary search"}, {"loop", time_none, NULL, ""}};
	static const struct {
		const char *row;
		const struct way *ways;
		unsigned num, page;
		int far, same, more;   /* more: in long runs alone */
	} rows[] = {{"ranges, %u", apart, 7, 12, 0, 0, 0}, {"ranges of 2 MiB pages, %u", huge, 5, 21, 0, 0, 0},
		{"ranges, chained, %u", chain, 5, 12, 0, 0, 1}, {"ranges, one of %u", apart, 7, 12, 0, 1, 1},
		{"ranges, two clusters, %u", apart, 5, 12, 1, 0, 1}};
	static const uint32_t counts[] = {1, 16, 256, 4096, 65536};
	int all = getenv("BENCH_ALL") != NULL;
	char name[64];
	unsigned i, r;

	for (i = 0; i < (bench_counts() ? 4 : 5); i++)
		for (r = 0; r < (bench_counts() ? 2 : 5); r++) {
			snprintf(name, sizeof(name), rows[r].row, counts[i]);
			if ((rows[r].more && (!all || counts[i] == 1)) || !bench_wants_row("lookup", name))
				continue;
			make(counts[i], rows[r].far, rows[r].same, rows[r].page);
			bench_row("lookup", name, rows[r].ways, rows[r].num, QUERIES);
		}
	return 0;
}
