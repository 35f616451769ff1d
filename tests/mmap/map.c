/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * map.c: the memory map: permissions, sources that are refused, device memory, imported maps; and a long random run of every function
 * in every state beside a plain model, in which registrations fail and deregistrations are refused.
 *
 * Environment: MMAP_STEPS, of the random run.
 */
#include "rig.h"

#define MAX_DEVS 3
#define MAX_RANGES 8

static struct ibv_pd *pds[MAX_DEVS + 1]; /* one more than the model's map takes */
static uint8_t *area;                   /* memory to be mapped */
#define AREA (64 * PAGE)

/* Deregistrations to go until one fails; 0: none does. The program's own function is found before libibverbs' */
static uint32_t dereg_fails;

int ibv_dereg_mr(struct ibv_mr *mr)
{
	if (dereg_fails && !--dereg_fails)
		return EBUSY;
	registered--;
	return NEXT(ibv_dereg_mr)(mr);
}

/* A library, a kernel and a device that know one dmabuf: memory of this process at the range's address */
#define DMABUF 77
#define DMABUF_OFFSET 0x3000

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	assert_true(fd == DMABUF && offset == iova - (uintptr_t)area + DMABUF_OFFSET);
	return ibv_reg_mr(pd, (void *)(uintptr_t)iova, length, access);
}

static struct inlay_source source_dmabuf(uint64_t start, size_t len)
{
	return inlay_source_dmabuf(DMABUF, (void *)(uintptr_t)start, start - (uintptr_t)area + DMABUF_OFFSET, len);
}

/* The device has no region left on any of the PDs: they can go */
static void nothing_registered(void)
{
	for (uint32_t i = 0; i < ARRAY(pds); i++) {
		must(ibv_dealloc_pd(pds[i]));
		pds[i] = made(ibv_alloc_pd(dev.ctx));
	}
}

static int open_all(void **state)
{
	if (dev_open(state))
		return -1;
	for (uint32_t i = 0; i < ARRAY(pds); i++)
		pds[i] = ibv_alloc_pd(dev.ctx);
	area = (uint8_t *)pages(AREA);
	rkeys_apart = true;
	return 0;
}

static int close_all(void **state)
{
	for (uint32_t i = 0; i < ARRAY(pds); i++)
		if (ibv_dealloc_pd(pds[i]))
			return -1;
	free(area);
	return dev_close(state);
}

static const struct inlay_keys some_keys = {7, 8};
static struct ibv_dm *const some_dm = (struct ibv_dm *)(void *)&pds; /* not looked into before start */

enum call { ADD_DEV, RM_DEV, ADD, RM, SET_PERMISSIONS, START, STOP, EXPORT_RDMA, EXPORT_PCI, DPA_HANDLE, DESTROY, CALLS };

static int call(struct inlay_mmap *m, enum call what)
{
	static uint8_t keys[4096] __attribute__((aligned(64)));
	uint8_t blob[256];
	size_t len = sizeof(blob);
	uint32_t handle;

	switch (what) {
	case ADD_DEV: return inlay_mmap_add_dev(m, pds[1]);
	case RM_DEV: return inlay_mmap_rm_dev(m, pds[0]);
	case ADD: return inlay_mmap_add(m, inlay_source_host(area + PAGE, PAGE));
	case RM: return inlay_mmap_rm(m, (uintptr_t)area, PAGE);
	case SET_PERMISSIONS: return inlay_mmap_set_permissions(m, INLAY_RDMA_READ);
	case START: return inlay_mmap_start(m);
	case STOP: return inlay_mmap_stop(m);
	case EXPORT_RDMA: return inlay_mmap_export_rdma(m, pds[0], blob, &len);
	case EXPORT_PCI: return inlay_mmap_export_pci(m, pds[0], keys, sizeof(keys), blob, &len);
	case DPA_HANDLE: return inlay_mmap_dpa_handle(m, pds[0], &handle);
	default: return inlay_mmap_destroy(m);
	}
}

#define B (-EBADFD)

/* What the model below does not ask: of imported maps, held or not, and of handles of the DPA */
TEST(imported)
{
	struct inlay_mmap was;
	struct map from, x;
	uint8_t blob[256];
	size_t len = sizeof(blob);

	map_make(&from, 1, 1);
	assert_true(call(&from.m, DPA_HANDLE) == B && call(&from.m, EXPORT_PCI) == B);
	must(inlay_mmap_add_dev(&from.m, pds[0]));
	must(inlay_mmap_add(&from.m, inlay_source_host(area, PAGE)));
	must(inlay_mmap_set_permissions(&from.m, REMOTE));
	must(inlay_mmap_start(&from.m));
	assert_true(call(&from.m, DPA_HANDLE) == -ENOTSUP && !from.m.imported);
	must(inlay_mmap_export_rdma(&from.m, pds[0], blob, &len));
	map_import(&x, pds[0], blob, len, NULL);
	map_free(&from);
	assert_true(x.m.imported && inlay_mmap_find(&x.m, area, PAGE));
	inlay_mmap_hold(&x.m);
	was = x.m;
	for (uint32_t i = 0; i < CALLS; i++) {
		assert_int_equal(call(&x.m, (enum call)i), i == DPA_HANDLE ? -ENOTSUP : i == DESTROY ? -EBUSY : B);
		assert_memory_equal(&was, &x.m, sizeof(was));
	}
	inlay_mmap_drop(&x.m);
	must(inlay_mmap_destroy(&x.m));
	map_free(&x); /* a map that was destroyed may be destroyed again */
}

/* ---- arguments ---- */

TEST(create_arguments)
{
	const size_t size = inlay_mmap_size(2, 3);
	uint8_t *memory = (uint8_t *)given(size);
	struct inlay_mmap m, was;

	memset(&m, 0x77, sizeof(m));
	was = m;
	assert_true(!inlay_mmap_size(0, 1) && !inlay_mmap_size(1, 0));
	assert_true(!inlay_mmap_size(INLAY_MMAP_DEVICES + 1, 1) && !inlay_mmap_size(1, INLAY_LOOKUP_MAX + 1));
	assert_true(inlay_mmap_size(INLAY_MMAP_DEVICES, INLAY_LOOKUP_MAX) > (size_t)1 << 35);
	assert_int_equal(inlay_mmap_create(NULL, memory, size, 2, 3), -EINVAL);
	assert_int_equal(inlay_mmap_create(&m, NULL, size, 2, 3), -EINVAL);
	assert_int_equal(inlay_mmap_create(&m, memory + 32, size, 2, 3), -EINVAL);
	assert_int_equal(inlay_mmap_create(&m, memory, size, 0, 3), -EINVAL);
	assert_int_equal(inlay_mmap_create(&m, memory, size, 2, 0), -EINVAL);
	assert_true(inlay_mmap_create(&m, memory, size - 1, 2, 3) == -ENOBUFS && !memcmp(&m, &was, sizeof(m)));
	given_free(memory);
}

TEST(permissions)
{
	static const struct { uint32_t bit; unsigned verbs; } bits[] = {
		{INLAY_LOCAL_READ_WRITE, IBV_ACCESS_LOCAL_WRITE}, {INLAY_RDMA_READ, IBV_ACCESS_REMOTE_READ},
		{INLAY_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE},
		{INLAY_RDMA_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE},
		{INLAY_MW_BIND, IBV_ACCESS_MW_BIND | IBV_ACCESS_LOCAL_WRITE},
		{INLAY_RELAXED_ORDERING, IBV_ACCESS_RELAXED_ORDERING}, {INLAY_PCI_READ_ONLY, 0},
		{INLAY_PCI_READ_WRITE, IBV_ACCESS_LOCAL_WRITE},
	};
	struct map x;
	uint32_t mask, i, k;

	/* Each name alone, and each bit of 32: a bit of verbs' means what it means there, or is refused */
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
		must(inlay_mmap_add(&x.m, i & 1 ? inlay_source_host(area, PAGE) : source_dmabuf((uintptr_t)area, PAGE)));
		if ((mask & INLAY_PCI_READ_ONLY) && (mask & INLAY_PCI_READ_WRITE)) {
			assert_true(inlay_mmap_set_permissions(&x.m, mask) == -EINVAL && !x.m.permissions);
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

/* Sources that are none */
TEST(sources)
{
	const size_t beyond = SIZE_MAX - (uintptr_t)area + 2;
	struct inlay_source odd = inlay_source_host(area, PAGE);
	uint32_t i, handle;
	struct map x;

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

	map_make(&x, 1, 1);
	for (i = 0; i < ARRAY(bad); i++)
		assert_int_equal(inlay_mmap_add(&x.m, bad[i]), -EINVAL);
	assert_int_equal(x.m.num_ranges, 0);
	assert_int_equal(inlay_mmap_add_dev(&x.m, NULL), -EINVAL);
	assert_int_equal(inlay_mmap_rm_dev(&x.m, NULL), -ENOENT);
	/* The last byte there is */
	must(inlay_mmap_add(&x.m, inlay_source_keys(UINT64_MAX, 1, some_keys)));
	must(inlay_mmap_start(&x.m));
	assert_int_equal(inlay_mmap_find(&x.m, (void *)UINTPTR_MAX, 1)->rkey, some_keys.rkey);
	assert_int_equal(inlay_mmap_dpa_handle(&x.m, pds[0], &handle), -ENOENT);
	map_free(&x);
}

/* What a peer may do in two ranges, the second of which grants less; in one without a device there is no key */
TEST(limits)
{
	static const struct { uint32_t range, at, len, access; int err; } rows[] = {
		{0, 0, PAGE, INLAY_RDMA_READ | INLAY_RDMA_WRITE, 0}, {1, 0, PAGE, INLAY_RDMA_READ, 0},
		{1, 0, 8, INLAY_RDMA_WRITE, -EPERM}, {1, 0, 8, INLAY_RDMA_READ | INLAY_RDMA_WRITE, -EPERM},
		{0, 0, 8, INLAY_RDMA_ATOMIC, -EPERM}, {0, PAGE - 1, 2, INLAY_RDMA_READ, -ENOENT},
		{1, PAGE, 1, 0, -ENOENT}, {0, 0, 8, INLAY_LOCAL_READ_WRITE, -EPERM}, /* is no access of a peer's */
		{2, 0, 8, INLAY_RDMA_READ, -EPERM}, {2, 0, 8, INLAY_PCI_READ_ONLY, -EPERM},
	};
	const uint32_t both = INLAY_RDMA_READ | INLAY_RDMA_ATOMIC;
	struct map x, y;

	map_make(&x, 1, 2);
	must(inlay_mmap_add_dev(&x.m, pds[0]));
	must(inlay_mmap_add(&x.m, inlay_source_host(area, PAGE)));
	must(inlay_mmap_add(&x.m, limited(inlay_source_host(area + PAGE, PAGE), both)));
	assert_int_equal(x.m.sources[1].limit, both);
	must(inlay_mmap_set_permissions(&x.m, INLAY_LOCAL_READ_WRITE | INLAY_RDMA_READ | INLAY_RDMA_WRITE));
	must(inlay_mmap_start(&x.m));
	assert_int_equal(reg_access, IBV_ACCESS_REMOTE_READ); /* the second's */
	assert_true(range_of(&x.m, 0)->access == x.m.permissions && range_of(&x.m, 1)->access == INLAY_RDMA_READ);
	map_make(&y, 1, 1);
	must(inlay_mmap_add(&y.m, inlay_source_host(area + 2 * PAGE, PAGE)));
	must(inlay_mmap_set_permissions(&y.m, INLAY_RDMA_READ | INLAY_PCI_READ_ONLY));
	must(inlay_mmap_start(&y.m));
	for (uint32_t i = 0; i < ARRAY(rows); i++) {
		const uint64_t addr = (uintptr_t)area + rows[i].range * PAGE + rows[i].at;
		const struct inlay_mmap *m = rows[i].range == 2 ? &y.m : &x.m;
		uint32_t rkey = 1;

		assert_int_equal(inlay_mmap_remote(m, addr, rows[i].len, rows[i].access, &rkey), rows[i].err);
		assert_int_equal(rkey, rows[i].err ? 1 : x.m.mrs[rows[i].range]->rkey);
	}
	map_free(&x);
	map_free(&y);
}

/* Device memory: known from 0 on, to its own context only */
TEST(device_memory)
{
	struct opt opt = usual;
	struct ibv_context *other;
	struct ibv_pd *foreign;
	static struct inlay_dm mapped;
	struct ibv_dm *dm;
	uint64_t word = 0;
	struct end a, b;
	struct map x;
	struct ibv_alloc_dm_attr attr = {.length = PAGE};

	dm = ibv_alloc_dm(dev.ctx, &attr);
	if (!dm) {
		assert_false(softdev_present());
		skip();
	}
	other = made(dev_context());
	foreign = ibv_alloc_pd(other);
	map_make(&x, 1, 2);
	must(inlay_mmap_add_dev(&x.m, dev.pd));
	must(inlay_mmap_add(&x.m, inlay_source_dm(dm, 64, 1024)));
	must(inlay_mmap_add(&x.m, inlay_source_dm(dm, 2048, 64)));
	assert_int_equal(inlay_mmap_start(&x.m), -EEXIST);
	must(inlay_mmap_rm(&x.m, 0, 64));
	must(inlay_mmap_set_permissions(&x.m, INLAY_LOCAL_READ_WRITE | REMOTE));
	rkeys_apart = false;
	must(inlay_mmap_start(&x.m));
	rkeys_apart = true;
	assert_true(inlay_mmap_find(&x.m, NULL, 1024)->lkey == x.m.mrs[0]->lkey && !inlay_mmap_find(&x.m, NULL, 1025));
	assert_int_equal(ibv_free_dm(dm), EBUSY);
	/* A peer writes to the first range's byte 16, which is the memory's 80 */
	must(inlay_dm_from_dm(&mapped, dm, NULL));
	ends_make(&a, &b, &opt);
	end_take(&a, INLAY_UAR_DOORBELL);
	must(inlay_post_write_inline(&a.sq, 16, inlay_mmap_find(&x.m, NULL, 1)->rkey, "written!", 8, INLAY_SIGNALED | INLAY_RING));
	sent(&a);
	must(inlay_dm_read(&mapped, 64 + 16, &word, 8));
	assert_memory_equal(&word, "written!", 8);
	end_free(&a);
	end_free(&b);
	map_free(&x);
	/* Beyond its end the device refuses. On another context the number may name other memory: it is not even tried */
	for (uint32_t i = 0; i < 2; i++) {
		map_make(&x, 1, 1);
		must(inlay_mmap_add_dev(&x.m, i ? foreign : pds[0]));
		must(inlay_mmap_add(&x.m, inlay_source_dm(dm, i ? 0 : PAGE, PAGE)));
		if (i && softdev_present())
			must(softdev_fault("setup=ENOSPC@1"));
		assert_true(i ? inlay_mmap_start(&x.m) == -EINVAL : inlay_mmap_start(&x.m) < 0);
		if (softdev_present())
			must(softdev_fault(NULL));
		map_free(&x);
	}
	must(ibv_dealloc_pd(foreign));
	must(ibv_close_device(other));
	must(ibv_free_dm(dm));
}

#if INLAY_CHECKED
TEST(rules)
{
	struct map x;

	for (uint32_t i = 0; i < CALLS; i++)
		assert_aborts("a map is not NULL", call(NULL, (enum call)i));
	map_make(&x, 1, 1);
	assert_aborts("a map that is held is started", inlay_mmap_hold(&x.m));
	assert_aborts("a hold is dropped once", inlay_mmap_drop(&x.m));
	map_free(&x);
}
#endif

/* ---- beside a model ---- */

enum { CONFIGURED, RUNNING, STUCK }; /* of the model */

struct model {
	uint32_t state;
	bool started_once, exported, frees;
	uint32_t permissions, ndevs, nranges, bufs;
	uint32_t mrs;                   /* regions */
	uint64_t user;
	struct ibv_pd *devs[MAX_DEVS];
	struct { uint64_t start, len; uint32_t kind; } ranges[MAX_RANGES];
};

#define SLOT 512
#define SLOTS 24

static bool overlapping(const struct model *o)
{
	for (uint32_t i = 0; i < o->nranges; i++)
		for (uint32_t j = 0; j < i; j++)
			if (o->ranges[i].start < o->ranges[j].start + o->ranges[j].len &&
			    o->ranges[j].start < o->ranges[i].start + o->ranges[i].len)
				return true;
	return false;
}

static int model_put(struct model *o, uint64_t start, uint64_t len, uint32_t kind)
{
	if (o->state)
		return B;
	if (!len)
		return -EINVAL;
	if (o->nranges == MAX_RANGES)
		return -ENOSPC;
	o->ranges[o->nranges].start = start;
	o->ranges[o->nranges].len = len;
	o->ranges[o->nranges++].kind = kind;
	return 0;
}

static int model_rm(struct model *o, uint64_t start, uint64_t len)
{
	uint32_t i;

	if (o->state)
		return B;
	for (i = 0; i < o->nranges; i++)
		if (o->ranges[i].start == start && o->ranges[i].len == len)
			break;
	if (i == o->nranges)
		return -ENOENT;
	memmove(&o->ranges[i], &o->ranges[i + 1], (--o->nranges - i) * sizeof(*o->ranges));
	return 0;
}

static uint32_t model_index(const struct model *o, const struct ibv_pd *pd)
{
	uint32_t i;

	for (i = 0; i < o->ndevs && o->devs[i] != pd; i++)
		;
	return i;
}

static int model_dev(struct model *o, struct ibv_pd *pd, bool add)
{
	uint32_t i = model_index(o, pd);

	if (o->state)
		return B;
	if (add) {
		if (i < o->ndevs)
			return -EEXIST;
		if (o->ndevs == MAX_DEVS)
			return -ENOSPC;
		o->devs[o->ndevs++] = pd;
		return 0;
	}
	if (i == o->ndevs)
		return -ENOENT;
	memmove(&o->devs[i], &o->devs[i + 1], (--o->ndevs - i) * sizeof(*o->devs));
	return 0;
}

/* Deregisters all, but for the one that may be refused */
static int model_release(struct model *o)
{
	const bool refused = dereg_fails && dereg_fails <= o->mrs;

	o->state = refused ? STUCK : CONFIGURED;
	o->mrs = refused;
	return refused ? -EBUSY : 0;
}

/* How a start ends, when its registration number fail cannot be */
static int model_start(struct model *o, uint32_t fail)
{
	int err = 0;

	if (o->state || o->exported)
		return B;
	if (!o->nranges || overlapping(o))
		return o->nranges ? -EEXIST : -EINVAL;
	for (uint32_t r = 0; r < o->nranges && !err; r++) {
		if (o->ranges[r].kind == INLAY_SOURCE_KEYS) {
			err = o->ndevs > 1 ? -EINVAL : 0;
			continue;
		}
		o->mrs += o->ndevs;
		if (fail && o->mrs >= fail) {
			o->mrs = fail - 1;
			err = -ENOSPC;
		}
	}
	if (err)
		model_release(o);
	else
		o->state = RUNNING;
	o->started_once |= !err;
	return err;
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
	if (o->state == RUNNING && i < o->nranges) {
		assert_true(found && found->id == i && found->start == o->ranges[i].start);
		assert_true(found->len == o->ranges[i].len && found->access == o->permissions);
		for (d = 0; d < o->ndevs; d++) {
			const struct ibv_mr *mr = m->mrs[i * MAX_DEVS + d];

			must(inlay_mmap_keys(m, i, o->devs[d], &keys));
			if (mr) {
				assert_true(mr->pd == o->devs[d] && mr->addr == (void *)(uintptr_t)found->start);
				assert_int_equal(mr->length, found->len);
			}
			assert_int_equal(!mr, o->ranges[i].kind == INLAY_SOURCE_KEYS);
			assert_int_equal(keys.lkey, mr ? mr->lkey : 1);
			assert_int_equal(keys.rkey, mr ? mr->rkey : (uint32_t)found->start);
			if (!d) {
				assert_true(found->lkey == keys.lkey && found->rkey == keys.rkey);
			}
		}
		if (!o->ndevs)
			assert_int_equal(found->lkey, o->ranges[i].kind == INLAY_SOURCE_KEYS ? 1 : INLAY_NO_KEY);
	} else {
		assert_null(found);
		assert_int_equal(inlay_mmap_keys(m, i, o->devs[0], &keys), -ENOENT);
	}
	assert_int_equal(inlay_mmap_keys(m, 0, NULL, &keys), -ENOENT);
	d = rnd_below(ARRAY(pds));
	i = model_index(o, pds[d]);
	assert_int_equal(inlay_mmap_dev_(m, pds[d]), i < o->ndevs ? (int)i : -ENOENT);
	assert_true(inlay_mmap_started_(m) == (o->state == RUNNING) && m->exported == o->exported);
	assert_true(inlay_mmap_num_bufs(m) == o->bufs && m->num_ranges == o->nranges && m->num_devs == o->ndevs);
	assert_true(m->permissions == o->permissions && m->user_data == o->user && registered == o->mrs);
}

/* The free callback: called for memory that the caller gave as its own, in order, with no region left */
static struct {
	const struct model *o;
	uint32_t at, calls;
} freed;

static void free_cb(void *addr, size_t len, void *cookie)
{
	assert_true(cookie == &freed && !registered);
	while (freed.at < freed.o->nranges && freed.o->ranges[freed.at].kind == INLAY_SOURCE_KEYS)
		freed.at++; /* free() of it would crash */
	assert_true(freed.at < freed.o->nranges && addr == (void *)(uintptr_t)freed.o->ranges[freed.at].start);
	assert_int_equal(len, freed.o->ranges[freed.at++].len);
	freed.calls++;
}

static uint32_t to_free(const struct model *o)
{
	uint32_t i, n = 0;

	for (i = 0; i < o->nranges; i++)
		n += o->ranges[i].kind != INLAY_SOURCE_KEYS;
	return o->frees && o->started_once ? n : 0;
}

TEST(beside_a_model)
{
	const char *env = getenv("MMAP_STEPS");
	uint32_t steps = env && *env ? (uint32_t)strtoul(env, NULL, 0) : 20000, step_no;
	uint32_t starts = 0, failed = 0, lives = 0, exports = 0, stuck = 0, frees = 0;
	struct model o = {};
	struct map x;

	registered = 0;
	map_make(&x, MAX_DEVS, MAX_RANGES);
	for (step_no = 0; step_no < steps; step_no++) {
		uint32_t n = rnd_below(3) ? SLOT : rnd_below(3 * SLOT), what = rnd_below(100), at = rnd_below(SLOTS), v, k;
		uint64_t start = (uintptr_t)area + at * SLOT + (rnd_below(4) ? 0 : rnd_below(SLOT));
		struct ibv_pd *pd = pds[rnd_below(ARRAY(pds))];
		int got, want;
		size_t len;
		uint8_t blob[1024];
		char spec[32];

		struct inlay_mmap was = x.m;

		got = want = 0;
		dereg_fails = rnd_below(4) ? 0 : 1 + rnd_below(2 * MAX_DEVS);
		if (what < 10) {
			got = inlay_mmap_add_dev(&x.m, pd);
			want = model_dev(&o, pd, true);
		} else if (what < 15) {
			got = inlay_mmap_rm_dev(&x.m, pd);
			want = model_dev(&o, pd, false);
		} else if (what < 36) {
			struct inlay_keys keys = {1, (uint32_t)start};
			struct inlay_source s = inlay_source_host((void *)(uintptr_t)start, n);

			if (what > 30)
				s = what > 32 ? inlay_source_keys(start, n, keys) : source_dmabuf(start, n);
			got = inlay_mmap_add(&x.m, s);
			want = model_put(&o, start, n, s.kind);
		} else if (what < 45) {
			v = rnd_below(MAX_RANGES);
			if (v < o.nranges && rnd_below(4)) {
				start = o.ranges[v].start;
				n = (uint32_t)o.ranges[v].len;
			}
			got = inlay_mmap_rm(&x.m, start, n);
			want = model_rm(&o, start, n);
		} else if (what < 50) {
			v = (rnd_below(4) ? rnd_below(64) : 0) | rnd_below(4) << 29;
			got = inlay_mmap_set_permissions(&x.m, v);
			want = o.state ? B : v & 32 || v >> 29 == 3 ? -EINVAL : 0;
			if (!want)
				o.permissions = v;
		} else if (what < 53) {
			x.m.user_data = o.user = step_no;
			o.frees = rnd_below(2);
			x.m.free_cb = o.frees ? free_cb : NULL;
			x.m.cookie = &freed;
		} else if (what < 65) {
			while (!o.state && overlapping(&o) && rnd_below(8)) {
				v = rnd_below(o.nranges);
				start = o.ranges[v].start;
				must(inlay_mmap_rm(&x.m, start, o.ranges[v].len));
				must(model_rm(&o, start, o.ranges[v].len));
			}
			/* At which registration it fails */
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
			starts += !want;
			stuck += o.state == STUCK;
		} else if (what < 75) {
			want = !o.state ? B : o.bufs ? -EBUSY : model_release(&o);
			got = inlay_mmap_stop(&x.m);
			stuck += o.state == STUCK;
		} else if (what < 77) {
			len = sizeof(blob);
			pd = o.ndevs && rnd_below(4) ? o.devs[rnd_below(o.ndevs)] : pd;
			got = inlay_mmap_export_rdma(&x.m, pd, blob, &len);
			want = o.state != RUNNING ? B : !(o.permissions & REMOTE) ? -EPERM :
			       model_index(&o, pd) == o.ndevs ? -ENOENT : 0;
			for (k = 0; !want && k < o.nranges; k++) { /* its own key of each range */
				struct inlay_blob_range r;
				struct inlay_keys keys;

				must(inlay_mmap_keys(&x.m, k, pd, &keys));
				memcpy(&r, blob + inlay_blob_at_(k), sizeof(r));
				assert_int_equal(r.rkey, keys.rkey);
			}
			o.exported |= !want;
			exports += !want;
		} else if (what < 87) {
			if (o.state == RUNNING) {
				inlay_mmap_hold(&x.m);
				o.bufs++;
			}
		} else if (what < 98) {
			if (o.bufs) {
				for (v = 1 + rnd_below(o.bufs); v; v--, o.bufs--)
					inlay_mmap_drop(&x.m);
			}
		} else if (what < 99 || o.exported) {
			want = o.bufs ? -EBUSY : o.state ? model_release(&o) : 0;
			memset(&freed, 0, sizeof(freed));
			freed.o = &o;
			got = inlay_mmap_destroy(&x.m);
			assert_int_equal(freed.calls, want ? 0 : to_free(&o));
			frees += freed.calls;
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
		if (got == B && (what < 53 || what >= 65))
			assert_memory_equal(&was, &x.m, sizeof(was));
		like_the_model(&x.m, &o);
	}
	dereg_fails = 0;
	while (o.bufs--)
		inlay_mmap_drop(&x.m);
	x.m.free_cb = NULL;
	map_free(&x);
	nothing_registered();
	/* It came to what it was for */
	assert_true(starts > steps / 1000 && lives > steps / 1000 && exports > steps / 2000 && stuck > steps / 2000 &&
		    frees > steps / 2000);
	if (softdev_present())
		assert_true(failed > steps / 2000);
}

int main(void)
{
	return run_all(open_all, close_all);
}
