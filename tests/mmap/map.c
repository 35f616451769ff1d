/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * map.c: the memory map: what each function answers in each state, permissions, ranges, devices and
 * their keys, where memory comes from, the free callback, holds, registrations that fail at every
 * step; and a long random run beside a plain model.
 */
#include "rig.h"
#include <pthread.h>

#define MAX_DEVS 3
#define MAX_RANGES 8

static struct ibv_pd *pds[MAX_DEVS];
static uint8_t *area;                   /* memory to be mapped */
#define AREA (64 * PAGE)

/*
 * Deregistrations to go until one fails; 0: none does. The program's own function is found before
 * libibverbs'
 */
static uint32_t dereg_fails;

int ibv_dereg_mr(struct ibv_mr *mr)
{
	static int (*real)(struct ibv_mr *mr);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "ibv_dereg_mr");
	if (dereg_fails && !--dereg_fails)
		return EBUSY;
	return real(mr);
}

/*
 * A library, a kernel and a device that know one dmabuf: memory of this process at the range's
 * address. Without it, the real one is asked.
 */
static struct {
	int good_fd;                    /* 0: the real one */
	uint32_t calls;                 /* successful */
	struct ibv_pd *pd[MAX_DEVS];
	uint64_t offset[MAX_DEVS], iova[MAX_DEVS];
	size_t length[MAX_DEVS];
	int fd[MAX_DEVS], access[MAX_DEVS];
	struct ibv_mr *mr[MAX_DEVS];
} dmabuf;

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	static struct ibv_mr *(*real)(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access);
	uint32_t n = dmabuf.calls;

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "ibv_reg_dmabuf_mr");
	if (!dmabuf.good_fd)
		return real(pd, offset, length, iova, fd, access);
	if (fd != dmabuf.good_fd || n == MAX_DEVS) {
		errno = EBADF;
		return NULL;
	}
	dmabuf.calls++;
	dmabuf.pd[n] = pd;
	dmabuf.offset[n] = offset;
	dmabuf.length[n] = length;
	dmabuf.iova[n] = iova;
	dmabuf.fd[n] = fd;
	dmabuf.access[n] = access;
	return dmabuf.mr[n] = ibv_reg_mr(pd, (void *)(uintptr_t)iova, length, access);
}

/* The device has no region left on any of the PDs: they can go */
static void nothing_registered(void)
{
	int i;

	for (i = 0; i < MAX_DEVS; i++) {
		must(ibv_dealloc_pd(pds[i]));
		pds[i] = ibv_alloc_pd(dev.ctx);
		assert_non_null(pds[i]);
	}
}

static int open_all(void **state)
{
	int i;

	if (dev_open(state))
		return -1;
	for (i = 0; i < MAX_DEVS; i++)
		pds[i] = ibv_alloc_pd(dev.ctx);
	area = (uint8_t *)pages(AREA);
	rkeys_apart = true;
	return 0;
}

static int close_all(void **state)
{
	int i;

	for (i = 0; i < MAX_DEVS; i++)
		if (ibv_dealloc_pd(pds[i]))
			return -1;
	free(area);
	return dev_close(state);
}

/* ---- every function in every state ---- */

enum state { BARE, SET, STARTED, EXPORTED, STOPPED, CLOSED, IMPORTED, STATES };

static const char *const state_names[] = {
	"bare", "set up", "started", "started and exported", "stopped", "stopped, exported", "imported"
};

static void bring_to(struct map *x, enum state state)
{
	static uint8_t blob[1024];
	size_t len = sizeof(blob);
	struct map from;

	if (state == IMPORTED) {
		bring_to(&from, STARTED);
		must(inlay_mmap_export_rdma(&from.m, pds[0], blob, &len));
		map_free(&from);
		map_import(x, pds[0], blob, len, NULL);
		return;
	}
	map_make(x, 2, 4);
	if (state == BARE)
		return;
	must(inlay_mmap_add_dev(&x->m, pds[0]));
	must(inlay_mmap_add(&x->m, inlay_source_host(area, PAGE)));
	must(inlay_mmap_set_permissions(&x->m, INLAY_LOCAL_READ_WRITE | REMOTE | INLAY_PCI_READ_ONLY));
	if (state == SET)
		return;
	must(inlay_mmap_start(&x->m));
	if (state == EXPORTED || state == CLOSED)
		must(inlay_mmap_export_rdma(&x->m, pds[0], blob, &len));
	if (state == STOPPED || state == CLOSED)
		must(inlay_mmap_stop(&x->m));
}

static const struct inlay_keys some_keys = {7, 8};
static struct ibv_dm *const some_dm = (struct ibv_dm *)(void *)&pds; /* not looked into before start */

enum call { ADD_DEV, RM_DEV, ADD, ADD_DMABUF, ADD_DM, ADD_KEYS, RM, SET_PERMISSIONS, START, STOP, EXPORT_RDMA,
	    EXPORT_PCI, DPA_HANDLE, DESTROY, CALLS };

static int call(struct inlay_mmap *m, enum call what)
{
	static uint8_t keys[4096] __attribute__((aligned(64)));
	uint8_t blob[256];
	size_t len = sizeof(blob);
	uint32_t handle;

	switch (what) {
	case ADD_DEV:
		return inlay_mmap_add_dev(m, pds[1]);
	case RM_DEV:
		return inlay_mmap_rm_dev(m, pds[0]);
	case ADD:
		return inlay_mmap_add(m, inlay_source_host(area + PAGE, PAGE));
	case ADD_DMABUF:
		return inlay_mmap_add(m, inlay_source_dmabuf(0, area + PAGE, 0, PAGE));
	case ADD_DM:
		return inlay_mmap_add(m, inlay_source_dm(some_dm, 0, PAGE));
	case ADD_KEYS:
		return inlay_mmap_add(m, inlay_source_keys(PAGE, PAGE, some_keys));
	case RM:
		return inlay_mmap_rm(m, (uintptr_t)area, PAGE);
	case SET_PERMISSIONS:
		return inlay_mmap_set_permissions(m, INLAY_RDMA_READ);
	case START:
		return inlay_mmap_start(m);
	case STOP:
		return inlay_mmap_stop(m);
	case EXPORT_RDMA:
		return inlay_mmap_export_rdma(m, pds[0], blob, &len);
	case EXPORT_PCI:
		return inlay_mmap_export_pci(m, pds[0], keys, sizeof(keys), blob, &len);
	case DPA_HANDLE:
		return inlay_mmap_dpa_handle(m, pds[0], &handle);
	default:
		return inlay_mmap_destroy(m);
	}
}

#define B (-EBADFD)
#define NO (-ENOTSUP)

/* Function by function, as the states of map.h have it */
static const int answers[CALLS][STATES] = {
	/* bare  set started exported stopped closed imported */
	{0,       0, B, B, 0, 0, B},    /* add_dev */
	{-ENOENT, 0, B, B, 0, 0, B},    /* rm_dev */
	{0,       0, B, B, 0, 0, B},    /* add of host memory, of a dmabuf, of device memory, of keys */
	{0,       0, B, B, 0, 0, B},
	{0,       0, B, B, 0, 0, B},
	{0,       0, B, B, 0, 0, B},
	{-ENOENT, 0, B, B, 0, 0, B},    /* rm */
	{0,       0, B, B, 0, 0, B},    /* set_permissions */
	{-EINVAL, 0, B, B, 0, B, B},    /* start */
	{B,       B, 0, 0, B, B, B},    /* stop */
	{B,       B, 0, 0, B, B, B},    /* export_rdma */
	{B,       B, 0, 0, B, B, B},    /* export_pci */
	{B,       B, NO, NO, B, B, NO}, /* dpa_handle */
	{0,       0, 0, 0, 0, 0, 0},    /* destroy */
};

/* While something holds the map, too, in states where that can be */
static void every_function_in_every_state(void **unused)
{
	struct inlay_mmap was;
	uint32_t i, s, held;
	struct map x;
	int got, want;

	(void)unused;
	for (i = 0; i < CALLS; i++)
		for (s = 0; s < STATES; s++) {
			const bool found = s == STARTED || s == EXPORTED || s == IMPORTED;

			for (held = 0; held <= found; held++) {
				bring_to(&x, (enum state)s);
				assert_int_equal(inlay_mmap_started(&x.m), found);
				assert_int_equal(x.m.exported, s == EXPORTED || s == CLOSED);
				assert_int_equal(inlay_mmap_imported(&x.m), s == IMPORTED);
				assert_int_equal(inlay_mmap_num_bufs(&x.m), 0);
				assert_int_equal(!!inlay_mmap_find(&x.m, area, PAGE), found);
				if (held)
					inlay_mmap_hold(&x.m);
				was = x.m;
				want = answers[i][s];
				if (held && (i == STOP || i == DESTROY) && !want)
					want = -EBUSY;
				if (i == EXPORT_PCI && !want && !inlay_mmap_cap_pci(dev.ctx))
					want = NO;
				got = call(&x.m, (enum call)i);
				if (got != want)
					fail_msg("call %u of a map that is %s%s: %d, not %d", i, state_names[s],
						 held ? " and held" : "", got, want);
				if (got)
					assert_memory_equal(&was, &x.m, sizeof(was));
				assert_int_equal(inlay_mmap_num_bufs(&x.m), held);
				if (held)
					inlay_mmap_drop(&x.m);
				map_free(&x); /* a map that was destroyed may be destroyed again */
				nothing_registered();
			}
		}
}

/* ---- arguments ---- */

static void create_arguments(void **unused)
{
	const size_t size = inlay_mmap_size(2, 3);
	uint8_t *memory = (uint8_t *)given(size);
	struct inlay_mmap m, was;

	(void)unused;
	memset(&m, 0x77, sizeof(m));
	was = m;
	assert_int_equal(inlay_mmap_size(0, 1), 0);
	assert_int_equal(inlay_mmap_size(1, 0), 0);
	assert_int_equal(inlay_mmap_size(INLAY_MMAP_DEVICES + 1, 1), 0);
	assert_int_equal(inlay_mmap_size(1, INLAY_LOOKUP_MAX + 1), 0);
	assert_true(inlay_mmap_size(INLAY_MMAP_DEVICES, INLAY_LOOKUP_MAX) > (size_t)1 << 35);
	assert_int_equal(inlay_mmap_create(NULL, memory, size, 2, 3), -EINVAL);
	assert_int_equal(inlay_mmap_create(&m, NULL, size, 2, 3), -EINVAL);
	assert_int_equal(inlay_mmap_create(&m, memory + 32, size, 2, 3), -EINVAL);
	assert_int_equal(inlay_mmap_create(&m, memory, size, 0, 3), -EINVAL);
	assert_int_equal(inlay_mmap_create(&m, memory, size, 2, 0), -EINVAL);
	assert_int_equal(inlay_mmap_create(&m, memory, size - 1, 2, 3), -ENOBUFS);
	assert_memory_equal(&m, &was, sizeof(m));
	given_free(memory);
}

static void permissions(void **unused)
{
	static const struct {
		uint32_t bit;
		unsigned verbs;
	} bits[] = {
		{INLAY_LOCAL_READ_WRITE, IBV_ACCESS_LOCAL_WRITE},
		{INLAY_RDMA_READ, IBV_ACCESS_REMOTE_READ},
		{INLAY_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE},
		{INLAY_RDMA_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE},
		{INLAY_MW_BIND, IBV_ACCESS_MW_BIND | IBV_ACCESS_LOCAL_WRITE},
		{INLAY_RELAXED_ORDERING, IBV_ACCESS_RELAXED_ORDERING},
		{INLAY_PCI_READ_ONLY, 0},
		{INLAY_PCI_READ_WRITE, IBV_ACCESS_LOCAL_WRITE},
	};
	struct map x;
	uint32_t mask, i, k;

	(void)unused;
	/*
	 * Each name alone, and each bit of 32: a bit of verbs' means what it means there, or is
	 * refused
	 */
	map_make(&x, 1, 32);
	assert_int_equal(x.m.permissions, INLAY_LOCAL_READ_ONLY);
	for (i = 0; i < 32; i++) {
		const uint32_t verbs = ALL_ACCESS | IBV_ACCESS_MW_BIND | IBV_ACCESS_RELAXED_ORDERING, bit = 1u << i;
		const int err = bit & (verbs | INLAY_PCI_ANY) ? 0 : -EINVAL;

		assert_int_equal(inlay_mmap_set_permissions(&x.m, bit), err);
		assert_int_equal(inlay_mmap_add(&x.m, limited(inlay_source_host(area + i * PAGE, 1), bit)), err);
		if (bit & verbs)
			assert_int_equal(inlay_access_verbs_(bit) | IBV_ACCESS_LOCAL_WRITE, bit | IBV_ACCESS_LOCAL_WRITE);
	}
	map_free(&x);
	/* What is registered is what was asked for, and not a bit more */
	for (i = 0; i < 1u << ARRAY(bits); i++) {
		unsigned access = 0;

		for (k = 0, mask = 0; k < ARRAY(bits); k++) {
			mask |= i >> k & 1 ? bits[k].bit : 0;
			access |= i >> k & 1 ? bits[k].verbs : 0;
		}
		map_make(&x, 1, 1);
		must(inlay_mmap_add_dev(&x.m, pds[0]));
		must(inlay_mmap_add(&x.m, inlay_source_host(area, PAGE)));
		if ((mask & INLAY_PCI_READ_ONLY) && (mask & INLAY_PCI_READ_WRITE)) {
			assert_int_equal(inlay_mmap_set_permissions(&x.m, mask), -EINVAL);
			assert_int_equal(x.m.permissions, 0);
			map_free(&x);
			continue;
		}
		must(inlay_mmap_set_permissions(&x.m, mask));
		assert_int_equal(x.m.permissions, mask);
		must(inlay_mmap_start(&x.m));
		assert_int_equal(reg_access, access);
		assert_int_equal(inlay_mmap_find(&x.m, area, 1)->access, mask);
		map_free(&x);
	}
	nothing_registered();
}

/* Sources that are none; and ranges without a device, which have no keys */
static void ranges(void **unused)
{
	const size_t beyond = SIZE_MAX - (uintptr_t)area + 2;
	struct inlay_source odd = inlay_source_host(area, PAGE);
	struct map x;
	uint32_t i;

	(void)unused;
	odd.kind = INLAY_SOURCE_KEYS + 1;
	const struct inlay_source bad[] = {
		inlay_source_host(NULL, PAGE),
		inlay_source_host(area, 0),
		inlay_source_host(area, beyond),
		inlay_source_dmabuf(-1, area, 0, PAGE),
		inlay_source_dmabuf(0, area, UINT64_MAX, 2),
		inlay_source_dm(NULL, 0, PAGE),
		inlay_source_dm(some_dm, UINT64_MAX, 2),
		inlay_source_keys(UINT64_MAX, 2, some_keys),
		limited(inlay_source_host(area, PAGE), 1u << 10),
		odd,
	};

	map_make(&x, 1, 3);
	for (i = 0; i < ARRAY(bad); i++)
		assert_int_equal(inlay_mmap_add(&x.m, bad[i]), -EINVAL);
	assert_int_equal(x.m.num_ranges, 0);
	assert_int_equal(inlay_mmap_start(&x.m), -EINVAL);
	must(inlay_mmap_add(&x.m, inlay_source_host(area + 2 * PAGE, 62 * PAGE)));
	must(inlay_mmap_add(&x.m, inlay_source_host(area + PAGE, PAGE)));
	must(inlay_mmap_add(&x.m, inlay_source_host(area, 10)));
	must(inlay_mmap_start(&x.m));
	for (i = 0; i < 3; i++) {
		const struct inlay_range *r = range_of(&x.m, i);

		assert_int_equal(r->id, i);
		assert_int_equal(r->lkey, INLAY_NO_KEY);
		assert_ptr_equal(inlay_mmap_find(&x.m, (void *)(uintptr_t)r->start, r->len), r);
		assert_null(inlay_mmap_find(&x.m, (void *)(uintptr_t)r->start, r->len + 1)); /* neighbours, too */
	}
	assert_null(inlay_mmap_source(&x.m, 3));
	map_free(&x);
}

/* What a peer may do in two ranges, the second of which grants less; in one without a device there is no key */
static void limits(void **unused)
{
	static const struct {
		uint32_t range, at, len, access;
		int err;
	} rows[] = {
		{0, 0, PAGE, INLAY_RDMA_READ | INLAY_RDMA_WRITE, 0}, {1, 0, PAGE, INLAY_RDMA_READ, 0},
		{1, 0, 8, INLAY_RDMA_WRITE, -EPERM}, {1, 0, 8, INLAY_RDMA_READ | INLAY_RDMA_WRITE, -EPERM},
		{0, 0, 8, INLAY_RDMA_ATOMIC, -EPERM}, {0, PAGE - 1, 2, INLAY_RDMA_READ, -ENOENT},
		{1, PAGE, 1, 0, -ENOENT}, {0, 0, 8, INLAY_LOCAL_READ_WRITE, -EPERM}, /* is no access of a peer's */
		{2, 0, 8, INLAY_RDMA_READ, -EPERM}, {2, 0, 8, INLAY_PCI_READ_ONLY, -EPERM},
	};
	const uint32_t both = INLAY_RDMA_READ | INLAY_RDMA_ATOMIC;
	struct map x, y;
	uint32_t i;

	(void)unused;
	map_make(&x, 1, 2);
	must(inlay_mmap_add_dev(&x.m, pds[0]));
	must(inlay_mmap_add(&x.m, inlay_source_host(area, PAGE)));
	must(inlay_mmap_add(&x.m, limited(inlay_source_host(area + PAGE, PAGE), both)));
	assert_int_equal(inlay_mmap_source(&x.m, 1)->limit, both);
	must(inlay_mmap_set_permissions(&x.m, INLAY_LOCAL_READ_WRITE | INLAY_RDMA_READ | INLAY_RDMA_WRITE));
	must(inlay_mmap_start(&x.m));
	assert_int_equal(range_of(&x.m, 0)->access, x.m.permissions);
	assert_int_equal(range_of(&x.m, 1)->access, INLAY_RDMA_READ);
	map_make(&y, 1, 1);
	must(inlay_mmap_add(&y.m, inlay_source_host(area + 2 * PAGE, PAGE)));
	must(inlay_mmap_set_permissions(&y.m, INLAY_RDMA_READ | INLAY_PCI_READ_ONLY));
	must(inlay_mmap_start(&y.m));
	for (i = 0; i < ARRAY(rows); i++) {
		const uint64_t addr = (uintptr_t)area + rows[i].range * PAGE + rows[i].at;
		const struct inlay_mmap *m = rows[i].range == 2 ? &y.m : &x.m;
		uint32_t rkey = 1;

		assert_int_equal(inlay_mmap_remote(m, addr, rows[i].len, rows[i].access, &rkey), rows[i].err);
		assert_int_equal(rkey, rows[i].err ? 1 : x.m.mrs[rows[i].range]->rkey);
	}
	map_free(&x);
	map_free(&y);
}

/* The keys of each range on each device, which are counted in the order of adding */
static void devices(void **unused)
{
	struct inlay_keys keys;
	struct map x;
	uint32_t r, d;

	(void)unused;
	map_make(&x, MAX_DEVS, 2);
	assert_int_equal(x.m.max_devs, MAX_DEVS);
	assert_int_equal(inlay_mmap_add_dev(&x.m, NULL), -EINVAL);
	for (d = 0; d < MAX_DEVS; d++)
		must(inlay_mmap_add_dev(&x.m, pds[d]));
	assert_int_equal(inlay_mmap_add_dev(&x.m, dev.pd), -ENOSPC);
	assert_int_equal(inlay_mmap_rm_dev(&x.m, NULL), -ENOENT);
	must(inlay_mmap_rm_dev(&x.m, pds[0]));
	must(inlay_mmap_add_dev(&x.m, pds[0]));
	for (d = 0; d < MAX_DEVS; d++)
		assert_int_equal(inlay_mmap_dev_index(&x.m, pds[(d + 1) % MAX_DEVS]), d);
	must(inlay_mmap_add(&x.m, inlay_source_host(area, PAGE)));
	must(inlay_mmap_add(&x.m, inlay_source_host(area + 3 * PAGE, PAGE)));
	assert_int_equal(inlay_mmap_keys(&x.m, 0, 0, &keys), -ENOENT);
	must(inlay_mmap_start(&x.m));
	for (r = 0; r < 2; r++)
		for (d = 0; d < MAX_DEVS; d++) {
			const struct ibv_mr *mr = x.m.mrs[r * MAX_DEVS + d];

			assert_ptr_equal(mr->pd, x.m.devs[d]);
			assert_ptr_equal(mr->addr, area + 3 * PAGE * r);
			assert_int_equal(mr->length, PAGE);
			must(inlay_mmap_keys(&x.m, r, d, &keys));
			assert_int_equal(keys.lkey, mr->lkey);
			assert_int_equal(keys.rkey, mr->rkey);
		}
	assert_int_equal(inlay_mmap_keys(&x.m, 2, 0, &keys), -ENOENT);
	assert_int_equal(inlay_mmap_keys(&x.m, 0, MAX_DEVS, &keys), -ENOENT);
	assert_int_equal(inlay_mmap_dpa_handle(&x.m, dev.pd, &r), -ENOENT);
	map_free(&x);
	nothing_registered();
}

/* Whether a file that is no dmabuf is refused for what it is */
static bool knows_dmabuf(struct ibv_pd *pd)
{
	errno = 0;
	assert_null(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE));
	return errno == EBADF;
}

/* ---- where memory comes from ---- */

static void kinds(void **unused)
{
	struct ibv_alloc_dm_attr attr;
	struct inlay_keys keys;
	struct ibv_context *other;
	struct ibv_pd *foreign;
	struct ibv_dm *dm;
	struct map x;
	int err;

	(void)unused;
	/* Keys that the caller brings: with one device, or none */
	map_make(&x, 2, 3);
	must(inlay_mmap_add_dev(&x.m, pds[1]));
	must(inlay_mmap_add(&x.m, inlay_source_keys(0x1000, PAGE, some_keys)));
	must(inlay_mmap_add(&x.m, inlay_source_keys(UINT64_MAX - 15, 16, (struct inlay_keys){70, 80})));
	must(inlay_mmap_add(&x.m, inlay_source_host(area, PAGE)));
	must(inlay_mmap_start(&x.m));
	assert_int_equal(inlay_mmap_find(&x.m, (void *)0x1800, 8)->lkey, 7);
	assert_int_equal(inlay_mmap_find(&x.m, (void *)0x1800, 8)->rkey, 8);
	assert_int_equal(inlay_mmap_find(&x.m, (void *)(UINTPTR_MAX - 7), 8)->rkey, 80);
	must(inlay_mmap_keys(&x.m, 1, 0, &keys));
	assert_int_equal(keys.lkey, 70);
	assert_ptr_equal(x.m.mrs[2 * 2]->pd, pds[1]);
	must(inlay_mmap_stop(&x.m));
	/* Two devices have not the same keys */
	must(inlay_mmap_add_dev(&x.m, pds[0]));
	assert_int_equal(inlay_mmap_start(&x.m), -EINVAL);
	must(inlay_mmap_rm_dev(&x.m, pds[0]));
	nothing_registered();
	must(inlay_mmap_rm_dev(&x.m, x.m.devs[0]));
	must(inlay_mmap_start(&x.m));
	assert_int_equal(inlay_mmap_find(&x.m, (void *)0x1800, 8)->lkey, 7);
	assert_int_equal(inlay_mmap_find(&x.m, area, 8)->lkey, INLAY_NO_KEY);
	must(inlay_mmap_stop(&x.m));
	must(inlay_mmap_add_dev(&x.m, pds[1]));
	must(inlay_mmap_rm(&x.m, 0x1000, PAGE));
	/* Without the last of them, their device is still that of the other range */
	must(inlay_mmap_rm(&x.m, UINTPTR_MAX - 15, 16));
	assert_int_equal(x.m.num_devs, 1);
	must(inlay_mmap_start(&x.m));
	assert_ptr_equal(x.m.mrs[0]->pd, pds[1]);
	assert_int_equal(inlay_mmap_find(&x.m, area, PAGE)->lkey, x.m.mrs[0]->lkey);
	must(inlay_mmap_stop(&x.m));
	must(inlay_mmap_add_dev(&x.m, pds[0]));
	must(inlay_mmap_rm_dev(&x.m, pds[1]));
	map_free(&x);

	/* Device memory: known from 0 on */
	memset(&attr, 0, sizeof(attr));
	attr.length = PAGE;
	dm = ibv_alloc_dm(dev.ctx, &attr);
	if (dm) {
		map_make(&x, 1, 2);
		must(inlay_mmap_add_dev(&x.m, pds[0]));
		must(inlay_mmap_add(&x.m, inlay_source_dm(dm, 64, 1024)));
		must(inlay_mmap_add(&x.m, inlay_source_dm(dm, 2048, 64)));
		assert_int_equal(inlay_mmap_start(&x.m), -EEXIST);
		must(inlay_mmap_rm(&x.m, 0, 64));
		must(inlay_mmap_set_permissions(&x.m, INLAY_LOCAL_READ_WRITE | REMOTE));
		must(inlay_mmap_start(&x.m));
		assert_int_equal(inlay_mmap_find(&x.m, NULL, 1024)->lkey, x.m.mrs[0]->lkey);
		assert_null(inlay_mmap_find(&x.m, NULL, 1025));
		assert_int_equal(ibv_free_dm(dm), EBUSY);
		map_free(&x);
		/* Beyond its end the device refuses; on another context it is another's */
		map_make(&x, 1, 1);
		must(inlay_mmap_add_dev(&x.m, pds[0]));
		must(inlay_mmap_add(&x.m, inlay_source_dm(dm, PAGE, PAGE)));
		assert_true(inlay_mmap_start(&x.m) < 0);
		map_free(&x);
		/* On another context the same number may be another memory: it is not even tried */
		other = dev_context();
		assert_non_null(other);
		foreign = ibv_alloc_pd(other);
		map_make(&x, 1, 1);
		must(inlay_mmap_add_dev(&x.m, foreign));
		must(inlay_mmap_add(&x.m, inlay_source_dm(dm, 0, PAGE)));
		if (softdev_present())
			must(softdev_fault("setup=ENOSPC@1"));
		assert_int_equal(inlay_mmap_start(&x.m), -EINVAL);
		if (softdev_present())
			must(softdev_fault(NULL));
		map_free(&x);
		must(ibv_dealloc_pd(foreign));
		must(ibv_close_device(other));
		must(ibv_free_dm(dm));
	} else {
		assert_false(softdev_present());
	}

	/*
	 * A file that is no dmabuf: whoever knows dmabufs says so, others that they do not; host
	 * memory before it is taken back
	 */
	map_make(&x, 1, 2);
	must(inlay_mmap_add_dev(&x.m, pds[0]));
	must(inlay_mmap_add(&x.m, inlay_source_host(area, PAGE)));
	must(inlay_mmap_add(&x.m, inlay_source_dmabuf(0, area + PAGE, 0, PAGE)));
	err = inlay_mmap_start(&x.m);
	assert_true(err < 0);
	if (!knows_dmabuf(pds[0]))
		assert_int_equal(err, -ENOTSUP);
	assert_int_equal(inlay_mmap_started(&x.m), 0);
	nothing_registered();
	map_free(&x);
}

/* A dmabuf that is taken: what libibverbs is told, and that the region is the range's */
static void dmabuf_registered(void **unused)
{
	const struct inlay_range *r;
	struct inlay_keys keys;
	struct map x;
	uint32_t d;

	(void)unused;
	map_make(&x, 2, 2);
	must(inlay_mmap_add_dev(&x.m, pds[0]));
	must(inlay_mmap_add_dev(&x.m, pds[1]));
	must(inlay_mmap_add(&x.m, inlay_source_host(area, PAGE)));
	must(inlay_mmap_add(&x.m, limited(inlay_source_dmabuf(77, area + 4 * PAGE + 24, 0x3018, 3 * PAGE - 30),
					  INLAY_LOCAL_READ_WRITE | INLAY_RDMA_READ)));
	must(inlay_mmap_set_permissions(&x.m, INLAY_LOCAL_READ_WRITE | INLAY_RDMA_READ | INLAY_RELAXED_ORDERING));
	memset(&dmabuf, 0, sizeof(dmabuf));
	dmabuf.good_fd = 77;
	must(inlay_mmap_start(&x.m));
	assert_int_equal(dmabuf.calls, 2);
	assert_ptr_equal(dmabuf.pd[0], pds[0]);
	assert_ptr_equal(dmabuf.pd[1], pds[1]);
	for (d = 0; d < 2; d++) {
		assert_int_equal(dmabuf.offset[d], 0x3018);
		assert_int_equal(dmabuf.length[d], 3 * PAGE - 30);
		assert_int_equal(dmabuf.iova[d], (uintptr_t)area + 4 * PAGE + 24);
		assert_int_equal(dmabuf.fd[d], 77);
		assert_int_equal(dmabuf.access[d], IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
		must(inlay_mmap_keys(&x.m, 1, d, &keys));
		assert_int_equal(keys.lkey, dmabuf.mr[d]->lkey);
		assert_int_equal(keys.rkey, dmabuf.mr[d]->rkey);
	}
	r = inlay_mmap_find(&x.m, area + 4 * PAGE + 24, 3 * PAGE - 30);
	assert_non_null(r);
	assert_int_equal(r->lkey, dmabuf.mr[0]->lkey);
	assert_null(inlay_mmap_find(&x.m, area + 4 * PAGE + 23, 1));
	must(inlay_mmap_stop(&x.m));
	/* Which makes other PDs: the map must not keep those that go */
	for (d = 0; d < 2; d++)
		must(inlay_mmap_rm_dev(&x.m, pds[d]));
	nothing_registered();
	for (d = 0; d < 2; d++)
		must(inlay_mmap_add_dev(&x.m, pds[d]));
	/* Another file is refused by the same library: nothing stays, by set_ as by add_ */
	dmabuf.good_fd = 78;
	assert_int_equal(inlay_mmap_start(&x.m), -EBADF);
	map_free(&x);
	nothing_registered();
	map_make(&x, 1, 1);
	must(inlay_mmap_add_dev(&x.m, pds[2]));
	must(inlay_mmap_add(&x.m, inlay_source_dmabuf(78, area + PAGE, 0, PAGE)));
	dmabuf.calls = 0;
	must(inlay_mmap_start(&x.m));
	assert_int_equal(dmabuf.calls, 1);
	assert_int_equal(dmabuf.access[0], 0);
	assert_int_equal(dmabuf.iova[0], (uintptr_t)area + PAGE);
	map_free(&x);
	nothing_registered();
	dmabuf.good_fd = 0;
}

/* ---- the free callback ---- */

static struct {
	void *addr[MAX_RANGES + 1];
	size_t len[MAX_RANGES + 1];
	uint32_t n;
	bool registered;
} freed;

/* The first call finds the region gone: the PD can go */
static void free_cb(void *addr, size_t len, void *cookie)
{
	struct ibv_pd **pd = (struct ibv_pd **)cookie;

	if (!freed.n && ibv_dealloc_pd(*pd))
		freed.registered = true;
	freed.addr[freed.n] = addr;
	freed.len[freed.n++] = len;
}

static void other_cb(void *addr, size_t len, void *cookie)
{
	(void)addr;
	(void)len;
	++*(uint32_t *)cookie;
}

static void free_callback(void **unused)
{
	struct ibv_pd *pd;
	uint32_t starts, replaced, others;
	struct map x;

	(void)unused;
	for (starts = 0; starts < 3; starts++) {
		for (replaced = 0; replaced < 3; replaced++) {
			memset(&freed, 0, sizeof(freed));
			others = 0;
			pd = ibv_alloc_pd(dev.ctx);
			map_make(&x, 1, 3);
			must(inlay_mmap_add_dev(&x.m, pd));
			must(inlay_mmap_add(&x.m, inlay_source_host(area + PAGE, 17)));
			must(inlay_mmap_add(&x.m, inlay_source_keys(0, PAGE, some_keys))); /* free() of it crashes */
			must(inlay_mmap_add(&x.m, inlay_source_host(area, 18)));
			x.m.free_cb = free_cb;
			x.m.cookie = &pd;
			if (starts)
				must(inlay_mmap_start(&x.m));
			if (starts == 2)
				must(inlay_mmap_stop(&x.m));
			if (starts != 1 && replaced) {
				x.m.free_cb = replaced == 1 ? other_cb : NULL;
				x.m.cookie = &others;
			}
			if (starts == 1) {
				/* Refused as long as a buf lives, and then nothing is freed */
				inlay_mmap_hold(&x.m);
				assert_int_equal(inlay_mmap_destroy(&x.m), -EBUSY);
				assert_int_equal(freed.n, 0);
				inlay_mmap_drop(&x.m);
			}
			map_free(&x);
			if (starts == 0 || (starts == 2 && replaced)) {
				assert_int_equal(freed.n, 0);
				assert_int_equal(others, starts == 2 && replaced == 1 ? 2 : 0);
				must(ibv_dealloc_pd(pd));
				continue;
			}
			assert_false(freed.registered);
			assert_int_equal(freed.n, 2);
			assert_ptr_equal(freed.addr[0], area + PAGE);
			assert_int_equal(freed.len[0], 17);
			assert_ptr_equal(freed.addr[1], area);
			assert_int_equal(freed.len[1], 18);
		}
	}
}

/* ---- live bufs ---- */

#define THREADS 4
#define HOLDS 200000
#define ROUNDS 10

static pthread_barrier_t begin;

static void *holder(void *arg)
{
	struct inlay_mmap *m = (struct inlay_mmap *)arg;
	uint32_t i;

	/* All at once */
	pthread_barrier_wait(&begin);
	for (i = 0; i < HOLDS; i++) {
		inlay_mmap_hold(m);
		if (i % 3)
			inlay_mmap_drop(m);
	}
	return NULL;
}

static void counting(void **unused)
{
	uint64_t left = (uint64_t)THREADS * ((HOLDS + 2) / 3);
	pthread_t threads[THREADS];
	struct map x;
	int i, round_no;

	(void)unused;
	for (round_no = 0; round_no < ROUNDS; round_no++) {
		bring_to(&x, STARTED);
		must(pthread_barrier_init(&begin, NULL, THREADS));
		for (i = 0; i < THREADS; i++)
			must(pthread_create(&threads[i], NULL, holder, &x.m));
		for (i = 0; i < THREADS; i++)
			must(pthread_join(threads[i], NULL));
		pthread_barrier_destroy(&begin);
		assert_int_equal(inlay_mmap_num_bufs(&x.m), left);
		assert_int_equal(inlay_mmap_stop(&x.m), -EBUSY);
		assert_int_equal(inlay_mmap_destroy(&x.m), -EBUSY);
		assert_int_equal(inlay_mmap_started(&x.m), 1);
		while (inlay_mmap_num_bufs(&x.m) > 1)
			inlay_mmap_drop(&x.m);
		assert_int_equal(inlay_mmap_stop(&x.m), -EBUSY);
		inlay_mmap_drop(&x.m);
		must(inlay_mmap_stop(&x.m));
		map_free(&x);
	}
}

#if INLAY_CHECKED
static void hold_stopped(void *m)
{
	inlay_mmap_hold((struct inlay_mmap *)m);
}

static void drop_twice(void *m)
{
	inlay_mmap_drop((struct inlay_mmap *)m);
}

static void call_with_null(void *i)
{
	call(NULL, (enum call)*(uint32_t *)i);
}

static void rules(void **unused)
{
	struct map x;
	uint32_t i;

	(void)unused;
	for (i = 0; i < CALLS; i++)
		assert_aborts(call_with_null, &i, "a map is not NULL");
	map_make(&x, 1, 1);
	assert_aborts(hold_stopped, &x.m, "a map that is held is started or imported");
	assert_aborts(drop_twice, &x.m, "a hold is dropped once");
	map_free(&x);
}
#endif

/* ---- registrations that fail ---- */

static void failing_start(void **unused)
{
	struct map x;
	struct inlay_mmap was;
	char spec[64];
	uint32_t k, i;

	(void)unused;
	need_softdev("failing set-up");
	for (k = 1; k <= 7; k++) {
		map_make(&x, 2, 3);
		must(inlay_mmap_add_dev(&x.m, pds[0]));
		must(inlay_mmap_add_dev(&x.m, pds[1]));
		for (i = 0; i < 3; i++)
			must(inlay_mmap_add(&x.m, inlay_source_host(area + 2 * i * PAGE, PAGE)));
		was = x.m;
		snprintf(spec, sizeof(spec), "setup=%s@%u", k & 1 ? "ENOMEM" : "EAGAIN", k);
		must(softdev_fault(spec));
		/* Two devices and three ranges: six registrations */
		assert_int_equal(inlay_mmap_start(&x.m), k > 6 ? 0 : k & 1 ? -ENOMEM : -EAGAIN);
		must(softdev_fault(NULL));
		if (k <= 6) {
			/* As it was */
			assert_memory_equal(&was, &x.m, sizeof(was));
			assert_int_equal(x.m.table_->num, 0);
			for (i = 0; i < 3; i++)
				assert_null(inlay_mmap_find(&x.m, area + 2 * i * PAGE, 1));
			/*
			 * Nothing is registered: both PDs could go. It has never been started, and
			 * all may still be changed
			 */
			must(inlay_mmap_rm_dev(&x.m, pds[0]));
			must(inlay_mmap_rm_dev(&x.m, pds[1]));
			nothing_registered();
			must(inlay_mmap_add_dev(&x.m, pds[0]));
			must(inlay_mmap_add_dev(&x.m, pds[1]));
			must(inlay_mmap_start(&x.m));
		}
		for (i = 0; i < 3; i++)
			assert_int_equal(inlay_mmap_find(&x.m, area + 2 * i * PAGE, PAGE)->id, i);
		map_free(&x);
		nothing_registered();
	}
}

static void failing_stop(void **unused)
{
	struct map x;
	uint32_t k, way;

	(void)unused;
	for (way = 0; way < (softdev_present() ? 3u : 2u); way++) {
		for (k = 1; k <= 2; k++) {
			memset(&freed, 0, sizeof(freed));
			map_make(&x, 1, 2);
			must(inlay_mmap_add_dev(&x.m, pds[0]));
			must(inlay_mmap_add(&x.m, inlay_source_host(area, PAGE)));
			must(inlay_mmap_add(&x.m, inlay_source_host(area + PAGE, PAGE)));
			must(inlay_mmap_set_permissions(&x.m, REMOTE));
			if (way == 2) {
				/*
				 * A start whose second registration fails, and the undoing of the
				 * first: one region is left
				 */
				must(softdev_fault("setup=ENOMEM@2"));
				dereg_fails = 1;
				assert_int_equal(inlay_mmap_start(&x.m), -ENOMEM);
				must(softdev_fault(NULL));
			} else {
				must(inlay_mmap_start(&x.m));
				dereg_fails = k;
				assert_int_equal(way ? inlay_mmap_destroy(&x.m) : inlay_mmap_stop(&x.m), -EBUSY);
			}
			assert_int_equal(dereg_fails, 0);
			/* Nothing is found any more, nothing may be changed */
			assert_int_equal(inlay_mmap_started(&x.m), 0);
			assert_null(inlay_mmap_find(&x.m, area, 1));
			assert_null(inlay_mmap_find(&x.m, area + PAGE, 1));
			assert_int_equal(call(&x.m, EXPORT_RDMA), -EBADFD);
			assert_int_equal(inlay_mmap_start(&x.m), -EBADFD);
			assert_int_equal(inlay_mmap_add_dev(&x.m, pds[1]), -EBADFD);
			assert_int_equal(inlay_mmap_add(&x.m, inlay_source_host(area + 5 * PAGE, PAGE)), -EBADFD);
			assert_int_equal(inlay_mmap_set_permissions(&x.m, 0), -EBADFD);
			assert_int_equal(ibv_dealloc_pd(pds[0]), EBUSY);
			/* Another try, and it is as if nothing had happened */
			if (k == 1) {
				must(inlay_mmap_stop(&x.m));
				nothing_registered();
				must(inlay_mmap_rm_dev(&x.m, x.m.devs[0]));
				must(inlay_mmap_add_dev(&x.m, pds[0]));
				must(inlay_mmap_start(&x.m));
				assert_non_null(inlay_mmap_find(&x.m, area + PAGE, PAGE));
			}
			map_free(&x);
			nothing_registered();
		}
	}
}

/* ---- beside a model ---- */

struct model {
	bool started, started_once, exported;
	uint32_t permissions, ndevs, nranges, bufs;
	uint64_t user;
	struct ibv_pd *devs[MAX_DEVS];
	struct { uint64_t start, len; bool keys; } ranges[MAX_RANGES];
};

#define SLOT 512
#define SLOTS 24

static bool overlapping(const struct model *o)
{
	uint32_t i, j;

	for (i = 0; i < o->nranges; i++)
		for (j = 0; j < i; j++)
			if (o->ranges[i].start < o->ranges[j].start + o->ranges[j].len &&
			    o->ranges[j].start < o->ranges[i].start + o->ranges[i].len)
				return true;
	return false;
}

static int model_put(struct model *o, uint64_t start, uint64_t len, bool keys)
{
	if (o->started)
		return B;
	if (!len)
		return -EINVAL;
	if (o->nranges == MAX_RANGES)
		return -ENOSPC;
	o->ranges[o->nranges].start = start;
	o->ranges[o->nranges].len = len;
	o->ranges[o->nranges++].keys = keys;
	return 0;
}

static int model_rm(struct model *o, uint64_t start, uint64_t len)
{
	uint32_t i;

	if (o->started)
		return B;
	for (i = 0; i < o->nranges; i++)
		if (o->ranges[i].start == start && o->ranges[i].len == len)
			break;
	if (i == o->nranges)
		return -ENOENT;
	for (; i + 1 < o->nranges; i++)
		o->ranges[i] = o->ranges[i + 1];
	o->nranges--;
	return 0;
}

static int model_dev(struct model *o, struct ibv_pd *pd, bool add)
{
	uint32_t i;

	if (o->started)
		return B;
	for (i = 0; i < o->ndevs && o->devs[i] != pd; i++)
		;
	if (add) {
		if (i < o->ndevs)
			return -EEXIST;
		o->devs[o->ndevs++] = pd;
		return 0;
	}
	if (i == o->ndevs)
		return -ENOENT;
	for (; i + 1 < o->ndevs; i++)
		o->devs[i] = o->devs[i + 1];
	o->ndevs--;
	return 0;
}

/* How a start ends, when its registration number fail cannot be */
static int model_start(const struct model *o, uint32_t fail)
{
	uint32_t r, n = 0;

	if (o->started || o->exported)
		return B;
	if (!o->nranges)
		return -EINVAL;
	if (overlapping(o))
		return -EEXIST;
	for (r = 0; r < o->nranges; r++) {
		if (o->ranges[r].keys && o->ndevs > 1)
			return -EINVAL;
		n += o->ranges[r].keys ? 0 : o->ndevs;
		if (fail && n >= fail)
			return -ENOSPC;
	}
	return 0;
}

static void like_the_model(const struct inlay_mmap *m, const struct model *o)
{
	uint64_t addr = (uintptr_t)area + rnd_below(SLOT * (SLOTS + 2)), len = rnd_below(4) ? rnd_below(3 * SLOT) : 1;
	const struct inlay_range *found = inlay_mmap_find(m, (void *)(uintptr_t)addr, len);
	struct inlay_keys keys;
	uint32_t i, d;

	for (i = 0; i < o->nranges; i++)
		if (addr >= o->ranges[i].start && addr < o->ranges[i].start + o->ranges[i].len &&
		    addr + len <= o->ranges[i].start + o->ranges[i].len)
			break;
	if (o->started && i < o->nranges) {
		assert_non_null(found);
		assert_int_equal(found->id, i);
		assert_int_equal(found->start, o->ranges[i].start);
		assert_int_equal(found->len, o->ranges[i].len);
		assert_int_equal(found->access, o->permissions);
		for (d = 0; d < o->ndevs; d++) {
			must(inlay_mmap_keys(m, i, d, &keys));
			if (o->ranges[i].keys) {
				assert_int_equal(keys.lkey, 1);
				assert_int_equal(keys.rkey, o->ranges[i].start & 0xffffffff);
			} else {
				assert_ptr_equal(m->mrs[i * MAX_DEVS + d]->pd, o->devs[d]);
				assert_int_equal(keys.lkey, m->mrs[i * MAX_DEVS + d]->lkey);
				assert_int_equal(keys.rkey, m->mrs[i * MAX_DEVS + d]->rkey);
			}
			if (!d) {
				assert_int_equal(found->lkey, keys.lkey);
				assert_int_equal(found->rkey, keys.rkey);
			}
		}
		if (!o->ndevs)
			assert_int_equal(found->lkey, o->ranges[i].keys ? 1 : INLAY_NO_KEY);
	} else {
		assert_null(found);
	}
	assert_int_equal(inlay_mmap_started(m), o->started);
	assert_int_equal(m->exported, o->exported);
	assert_int_equal(inlay_mmap_num_bufs(m), o->bufs);
	assert_int_equal(m->num_ranges, o->nranges);
	assert_int_equal(m->num_devs, o->ndevs);
	assert_int_equal(m->permissions, o->permissions);
	assert_int_equal(m->user_data, o->user);
}

static void beside_a_model(void **unused)
{
	const char *env = getenv("MMAP_STEPS");
	uint32_t steps = env && *env ? (uint32_t)strtoul(env, NULL, 0) : 100000, step_no;
	uint32_t starts = 0, failed = 0, lives = 0, exports = 0;
	struct model o;
	struct map x;

	(void)unused;
	memset(&o, 0, sizeof(o));
	map_make(&x, MAX_DEVS, MAX_RANGES);
	for (step_no = 0; step_no < steps; step_no++) {
		uint32_t n = rnd_below(3) ? SLOT : rnd_below(3 * SLOT), what = rnd_below(100), at = rnd_below(SLOTS), v, k;
		uint64_t start = (uintptr_t)area + at * SLOT + (rnd_below(4) ? 0 : rnd_below(SLOT));
		struct ibv_pd *pd = pds[rnd_below(MAX_DEVS)];
		int got, want;
		size_t len;
		uint8_t blob[1024];
		char spec[32];

		got = want = 0;
		if (what < 10) {
			got = inlay_mmap_add_dev(&x.m, pd);
			want = model_dev(&o, pd, true);
		} else if (what < 15) {
			got = inlay_mmap_rm_dev(&x.m, pd);
			want = model_dev(&o, pd, false);
		} else if (what < 33) {
			got = inlay_mmap_add(&x.m, inlay_source_host((void *)(uintptr_t)start, n));
			want = model_put(&o, start, n, false);
		} else if (what < 36) {
			struct inlay_keys keys = {1, (uint32_t)start};

			got = inlay_mmap_add(&x.m, inlay_source_keys(start, n, keys));
			want = model_put(&o, start, n, true);
		} else if (what < 45) {
			v = rnd_below(MAX_RANGES);
			if (v < o.nranges && rnd_below(4)) {
				start = o.ranges[v].start;
				n = (uint32_t)o.ranges[v].len;
			}
			got = inlay_mmap_rm(&x.m, (uintptr_t)((void *)(uintptr_t)start), n);
			want = model_rm(&o, start, n);
		} else if (what < 50) {
			v = (rnd_below(2) ? rnd_below(64) : 0) | rnd_below(4) << 29;
			got = inlay_mmap_set_permissions(&x.m, v);
			want = o.started ? B : v & 32 || v >> 29 == 3 ? -EINVAL : 0;
			if (!want)
				o.permissions = v;
		} else if (what < 53) {
			x.m.user_data = o.user = step_no;
		} else if (what < 65) {
			/* At which registration it fails */
			while (!o.started && overlapping(&o) && rnd_below(8)) {
				v = rnd_below(o.nranges);
				start = o.ranges[v].start;
				must(inlay_mmap_rm(&x.m, start, o.ranges[v].len));
				must(model_rm(&o, start, o.ranges[v].len));
			}
			k = softdev_present() ? 1 + rnd_below(2 * MAX_DEVS * MAX_RANGES) : 0;
			want = model_start(&o, k);
			failed += want == -ENOSPC;
			if (softdev_present()) {
				snprintf(spec, sizeof(spec), "setup=ENOSPC@%u", k);
				must(softdev_fault(spec));
			}
			got = inlay_mmap_start(&x.m);
			if (softdev_present())
				must(softdev_fault(NULL));
			if (!want) {
				o.started = o.started_once = true;
				starts++;
			}
		} else if (what < 75) {
			got = inlay_mmap_stop(&x.m);
			want = !o.started ? B : o.bufs ? -EBUSY : 0;
			if (!want)
				o.started = false;
		} else if (what < 77) {
			len = sizeof(blob);
			got = inlay_mmap_export_rdma(&x.m, pd, blob, &len);
			for (v = 0; v < o.ndevs && o.devs[v] != pd; v++)
				;
			want = !o.started ? B : !(o.permissions & REMOTE) ? -EPERM : v == o.ndevs ? -ENOENT : 0;
			o.exported |= !want;
			exports += !want;
		} else if (what < 87) {
			if (o.started) {
				inlay_mmap_hold(&x.m);
				o.bufs++;
			}
		} else if (what < 98) {
			if (o.bufs) {
				for (v = 1 + rnd_below(o.bufs); v; v--, o.bufs--)
					inlay_mmap_drop(&x.m);
			}
		} else if (what < 99 || o.exported) {
			got = inlay_mmap_destroy(&x.m);
			want = o.bufs ? -EBUSY : 0;
			if (!want) {
				given_free(x.memory);
				nothing_registered();
				memset(&o, 0, sizeof(o));
				map_make(&x, MAX_DEVS, MAX_RANGES);
				lives++;
			}
		}
		if (got != want)
			fail_msg("step %u, what %u: %d, not %d", step_no, what, got, want);
		like_the_model(&x.m, &o);
	}
	while (o.bufs--)
		inlay_mmap_drop(&x.m);
	map_free(&x);
	nothing_registered();
	/* It came to what it was for */
	assert_true(starts > steps / 1000 && lives > steps / 1000 && exports > steps / 2000);
	if (softdev_present())
		assert_true(failed > steps / 2000);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_function_in_every_state),
		cmocka_unit_test(create_arguments),
		cmocka_unit_test(permissions),
		cmocka_unit_test(ranges),
		cmocka_unit_test(limits),
		cmocka_unit_test(devices),
		cmocka_unit_test(kinds),
		cmocka_unit_test(dmabuf_registered),
		cmocka_unit_test(free_callback),
		cmocka_unit_test(counting),
#if INLAY_CHECKED
		cmocka_unit_test(rules),
#endif
		cmocka_unit_test(failing_start),
		cmocka_unit_test(failing_stop),
		cmocka_unit_test(beside_a_model),
	};

	return cmocka_run_group_tests_name("mmap", tests, open_all, close_all);
}
