/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 64 threads of a kernel share a send queue, interpreted in random order, with memory that is as weak as a GPU's may be: a store
 * stays with its thread until a fence, or until chance lets it out, in any order; a load may see an old value. A device reads record
 * and ring when its register is written. Every read brings the answer to its address, once; the ring fills up and wraps; a device
 * that fails ends every thread. Then each fence is removed; some schedule must show it.
 */
#include "../common.h"
#include <inlay/gpu.h>
#include "kernels.h"
#include "ptx.h"

enum { VERSIONS = 4, PENDING = 24, MOST_BBS = 64, QPN = 0x123456 };

/* Of a WQE that fails, by its index: no two neighbours have the same. */
#define SYNDROME(index) (1 + ((index) & 0x7f))

static struct ptx ptx;
static char path[4096];

/* ---- What threads and device share ---- */

static struct world {
	struct inlay_gpu_sq sq;
	uint8_t ring[MOST_BBS * INLAY_WQEBB] __attribute__((aligned(64)));
	uint8_t cqe[64] __attribute__((aligned(64)));
	uint64_t reg;
	uint32_t record[2];
	struct reader reader[READ_THREADS];
} world;

/* Every byte's latest values, and since when */
static struct {
	uint32_t since[VERSIONS];
	uint8_t value[VERSIONS], newest;
} bytes[sizeof(world)];
static uint32_t tick;

/* What a thread knows: nothing older than `floor`, nor than what it has read of a byte */
static struct view {
	struct { uint32_t at, size; uint64_t value; } pending[PENDING];
	uint32_t n, floor, read, wrote;
	uint32_t seen[sizeof(world)];
} views[READ_THREADS];

static struct {
	uint32_t size, ci, pi, fails_at, executed;
	int failed, torn, stale;
} device;

static uint64_t latest(uint32_t at, uint32_t size)
{
	uint64_t v = 0;

	while (size--)
		v = v << 8 | bytes[at + size].value[bytes[at + size].newest];
	return v;
}

static void put(uint32_t at, uint32_t size, uint64_t value)
{
	uint32_t i, told;

	for (tick++, i = 0; i < size; i++) {
		uint8_t slot = (uint8_t)((bytes[at + i].newest + 1) % VERSIONS);

		bytes[at + i].since[slot] = tick;
		bytes[at + i].value[slot] = (uint8_t)(value >> 8 * i);
		bytes[at + i].newest = slot;
	}
	if (at == offsetof(struct world, reg)) {
		/* A doorbell is the head of the last WQE that the record tells of, and tells of more than that before. */
		told = inlay_from_be32((uint32_t)latest(offsetof(struct world, record) + 4, 4));
		value = inlay_from_be64(value);
		device.stale |= (uint16_t)((value >> 40) + ((value & 0x3f) + 3) / 4) != (uint16_t)told ||
				(uint16_t)(told - device.pi - 1) >= device.size;
		device.pi += (uint16_t)(told - device.pi);
	}
}

/* ---- The memory of one thread ---- */

/* Lets the pending store k out. */
static void let_out(struct view *v, uint32_t k)
{
	put(v->pending[k].at, v->pending[k].size, v->pending[k].value);
	for (uint32_t i = 0; i < v->pending[k].size; i++)
		v->seen[v->pending[k].at + i] = tick;
	v->wrote = tick;
	memmove(v->pending + k, v->pending + k + 1, (--v->n - k) * sizeof(v->pending[0]));
}

static int overlap(const struct view *v, uint32_t k, uint32_t at, uint32_t size)
{
	return v->pending[k].at < at + size && at < v->pending[k].at + v->pending[k].size;
}

/* Lets out one store by chance, but those to the same bytes in order. */
static void let_one_out(struct view *v)
{
	uint32_t k = (uint32_t)rnd() % v->n, i;

	for (i = 0; i < k; i++)
		if (overlap(v, i, v->pending[k].at, v->pending[k].size))
			k = i, i = (uint32_t)-1;
	let_out(v, k);
}

static int outside(uint64_t at)
{
	return at - (uintptr_t)&world >= sizeof(world);
}

static void weak_fence(struct ptx_thread *t)
{
	struct view *v = (struct view *)t->own;

	while (v->n)
		let_one_out(v);
	if (v->floor < v->read)
		v->floor = v->read;
}

static void weak_meet(struct ptx_thread *a, struct ptx_thread *b)
{
	struct view *v = (struct view *)a->own, *w = (struct view *)b->own;
	uint32_t known = v->floor;

	known = v->wrote > known ? v->wrote : known;
	known = w->floor > known ? w->floor : known;
	known = w->wrote > known ? w->wrote : known;
	v->floor = w->floor = known;
}

static uint64_t weak_load(struct ptx_thread *t, uint64_t address, uint32_t size, enum ptx_order order)
{
	struct view *v = (struct view *)t->own;
	uint32_t at = (uint32_t)(address - (uintptr_t)&world), i, k, when = tick, since = v->floor, newest = 0;
	uint64_t value = 0;

	if (outside(address))
		return ptx_plain_load(t, address, size, order);
	for (i = 0; i < size; i++)
		since = v->seen[at + i] > since ? v->seen[at + i] : since;
	if (order == PTX_ATOMIC) /* an atomic's: the latest */
		for (k = 0; k < v->n;)
			if (overlap(v, k, at, size))
				let_out(v, k);
			else
				k++;
	else if (rnd() & 1)
		when = since + (uint32_t)(rnd() % (tick - since + 1));
	for (i = 0; i < size; i++) {
		uint8_t slot = bytes[at + i].newest;

		for (k = 1; k < VERSIONS && bytes[at + i].since[slot] > when; k++)
			slot = (uint8_t)((slot + VERSIONS - 1) % VERSIONS);
		value |= (uint64_t)bytes[at + i].value[slot] << 8 * i;
		v->seen[at + i] = bytes[at + i].since[slot];
		newest = v->seen[at + i] > newest ? v->seen[at + i] : newest;
		for (k = 0; k < v->n; k++) /* its own stores */
			if (overlap(v, k, at + i, 1)) {
				value &= ~(0xffull << 8 * i);
				value |= (v->pending[k].value >> 8 * (at + i - v->pending[k].at) & 0xff) << 8 * i;
			}
	}
	v->read = newest > v->read ? newest : v->read;
	if (order == PTX_ACQUIRE && v->floor < newest)
		v->floor = newest;
	return value;
}

static void weak_store(struct ptx_thread *t, uint64_t address, uint32_t size, uint64_t value, enum ptx_order order)
{
	struct view *v = (struct view *)t->own;
	uint32_t at = (uint32_t)(address - (uintptr_t)&world), i;

	if (outside(address)) {
		ptx_plain_store(t, address, size, value, order);
		return;
	}
	if (order == PTX_ATOMIC) {
		put(at, size, value);
		v->wrote = tick;
		for (i = 0; i < size; i++)
			v->seen[at + i] = tick;
		return;
	}
	if (v->n == PENDING)
		let_one_out(v);
	v->pending[v->n].at = at, v->pending[v->n].size = size, v->pending[v->n++].value = value;
}

/* ---- The device ---- */

static uint32_t ring_byte(uint32_t i)
{
	return (uint32_t)offsetof(struct world, ring) + (device.ci * INLAY_WQEBB + i) % (device.size * INLAY_WQEBB);
}

/* A big-endian word or two of the WQE. */
static uint64_t field(uint32_t i, uint32_t size)
{
	return size == 4 ? inlay_from_be32((uint32_t)latest(ring_byte(i), 4)) : inlay_from_be64(latest(ring_byte(i), 8));
}

/* Executes the next WQE that it was told of: a read whose every field fits, or a NOP. */
static void device_step(void)
{
	uint32_t ctrl, ds, k, laddr;
	uint64_t raddr;

	if (device.ci == device.pi)
		return;
	ctrl = (uint32_t)field(0, 4);
	ds = (uint32_t)field(4, 4) & 0xff;
	raddr = field(16, 8);
	device.torn |= ctrl >> 8 != (uint16_t)device.ci || (uint32_t)field(4, 4) >> 8 != QPN;
	if ((ctrl & 0xff) == MLX5_OPCODE_RDMA_READ)
		device.torn |= (ds != 3 && ds != 5) || field(24, 4) != READ_RKEY(raddr);
	else
		device.torn |= (ctrl & 0xff) != MLX5_OPCODE_NOP || ds != 1;
	if (device.executed == device.fails_at)
		device.failed = 1;
	for (k = 2; k < ds && !device.torn; k++) {
		laddr = (uint32_t)(field(16 * k + 8, 8) - (uintptr_t)&world);
		device.torn |= field(16 * k, 4) != 8 || field(16 * k + 4, 4) != READ_LKEY || laddr > sizeof(world) - 8;
		if (!device.torn && !device.failed)
			put(laddr, 8, READ_ANSWER(raddr + 8 * (k - 2)));
	}
	if (device.torn)
		return;
	if (device.failed)
		put(offsetof(struct world, cqe) + 55, 1, SYNDROME(device.ci));
	tick -= device.failed != 0; /* a CQE is written whole */
	if (device.failed || latest(ring_byte(11), 1) & 8)
		put(offsetof(struct world, cqe) + 60, 4,
		    inlay_to_be16((uint16_t)device.ci) | (uint32_t)(device.failed ? MLX5_CQE_REQ_ERR : MLX5_CQE_REQ) << 28);
	device.ci += (ds + 3) / 4;
	device.executed++;
}

/* ---- One schedule ---- */

/* Runs a kernel in `threads` threads; a ring of bbs. Returns NULL, or what is wrong. */
static const char *run(const char *kernel, uint32_t threads, uint32_t bbs, uint32_t parts, uint32_t fails_at)
{
	static struct ptx_thread thread[READ_THREADS];
	static struct ptx_memory memory = {weak_load, weak_store, weak_fence, weak_meet};
	struct inlay_gpu_map map = {world.ring, world.record, &world.reg, world.cqe};
	uint32_t i, k, running = threads, steps = 0, failed = 0;
	const char *wrong = NULL;
	struct inlay_uar uar;
	struct inlay_sq sq;

	memset(&world, 0, sizeof(world));
	must(inlay_uar_init(&uar, &world.reg, 0, INLAY_UAR_DOORBELL));
	must(inlay_sq_init(&sq, world.ring, bbs, world.record, QPN, INLAY_MAX_DS, &uar));
	must(inlay_gpu_sq_init(&world.sq, &sq, &map));
	inlay_gpu_reset(&world.sq);
	memset(&device, 0, sizeof(device));
	device.size = bbs, device.fails_at = fails_at;
	device.ci = device.pi = world.sq.reserved = world.sq.published = world.sq.done = (uint32_t)rnd();
	memset(views, 0, sizeof(views));
	memset(thread, 0, sizeof(thread));
	for (i = 0; i < threads; i++) {
		const uint64_t args[] = {(uintptr_t)&world.sq, (uintptr_t)&world.reader[i], i, threads == 64 ? 0xffffffff : (1ull << threads) - 1};

		world.reader[i].parts = parts;
		thread[i].lane = i % 32, thread[i].memory = &memory, thread[i].own = &views[i];
		ptx_start(&thread[i], &ptx, kernel, args);
	}
	tick = 1;
	for (i = 0; i < sizeof(world); i++) {
		memset(&bytes[i], 0, sizeof(bytes[i]));
		bytes[i].value[0] = ((const uint8_t *)&world)[i];
	}
	for (; running && !device.torn && !device.stale; steps++) {
		uint32_t n = 1 + (uint32_t)rnd() % 16;

		if (steps == 400000) {
			wrong = "a thread waits for ever";
			break;
		}
		if (rnd() % 4 == 0)
			device_step();
		i = (uint32_t)rnd() % threads;
		if (!thread[i].depth)
			continue;
		while (n-- && thread[i].depth)
			if (!ptx_step(&thread[i])) {
				weak_fence(&thread[i]);
				running--;
			}
		if (views[i].n && rnd() % 4 == 0)
			let_one_out(&views[i]);
		if (thread[i].waits)
			ptx_meet(thread + i / 32 * 32);
	}
	for (i = 0; i < threads; i++)
		while (thread[i].depth)
			ptx_leave(&thread[i]);
	if (device.torn || device.stale || wrong)
		return device.torn ? "the device read a WQE that was not whole" : device.stale ? "a stale doorbell" : wrong;
	for (i = 0; i < threads; i++) {
		uint32_t at = (uint32_t)offsetof(struct world, reader) + i * (uint32_t)sizeof(struct reader);

		k = (uint32_t)latest(at + offsetof(struct reader, done), 4);
		if (latest(at + offsetof(struct reader, wrong), 4))
			return "an answer is wrong";
		failed += (uint32_t)latest(at + offsetof(struct reader, failed), 4);
		if (k != parts && !latest(at + offsetof(struct reader, failed), 4))
			return "a part is missing";
	}
	k = (uint32_t)latest(offsetof(struct world, sq.error), 4);
	if (device.failed && failed && (k & 0xff) != SYNDROME(k >> 16))
		return "the syndrome is another WQE's";
	if (!failed != !device.failed)
		return failed ? "a thread failed for nothing" : NULL; /* all may have been done before */
	if (!failed && device.ci != (uint32_t)latest(offsetof(struct world, sq.reserved), 4))
		return "the device was not told of all";
	return NULL;
}

/* what: the one kernel to run, or NULL */
static const char *one(uint64_t seed, const char *what)
{
	uint32_t fails_at = (uint32_t)-1;

	rnd_state = seed;
	if (rnd() % 4 == 0)
		fails_at = (uint32_t)rnd() % 200;
	if (what ? !strcmp(what, "warp_reads") : rnd() % 4 == 0)
		return run("warp_reads", rnd() % 2 ? 64 : 1 + (uint32_t)rnd() % 31, 64, 2, fails_at);
	if (rnd() % 3 == 0)
		return run("reads", 4 + (uint32_t)rnd() % 8, 4, 6, fails_at);
	return run("reads", 64, 8u << rnd() % 4, 2, fails_at);
}

TEST(test_schedules)
{
	const char *count = getenv("GPU_SCHEDULES"), *wrong;
	uint64_t seed, n = count ? strtoull(count, NULL, 0) : 200;

	for (seed = 1; seed <= n; seed++) {
		wrong = one(seed, NULL);
		if (wrong)
			fail_msg("schedule %llu: %s", (unsigned long long)seed, wrong);
	}
}

/*
 * Removes each fence of `reads`, the order of each of its releasing stores, and of its acquiring loads but the first: that is of
 * inlay_gpu_begin, and only stores follow it, which this memory never makes visible before a load that precedes them. PTX does not
 * say so. From `warp_reads` it removes only the barriers, but the first, of inlay_gpu_begin_warp; its fences are those of `reads`.
 */
static void removed_from(const char *kernel, int warp)
{
	struct ptx_function *f = (struct ptx_function *)(uintptr_t)ptx_find(&ptx, kernel);
	uint32_t i, fences = 0, loads = 0, stores = 0;
	const char *wrong;
	uint64_t seed;

	for (i = 0; i < f->ops; i++) {
		struct ptx_op was = f->code[i];

		if (was.what == (warp ? PTX_bar : PTX_fence) && (!warp || loads++))
			f->code[i].what = PTX_nop, fences++;
		else if (!warp && was.what == PTX_ld && was.order == PTX_ACQUIRE && loads++)
			f->code[i].order = PTX_RELAXED;
		else if (!warp && was.what == PTX_st && was.order == PTX_RELEASE)
			f->code[i].order = PTX_RELAXED, stores++;
		else
			continue;
		for (wrong = NULL, seed = 1; seed <= 1000 && !wrong; seed++)
			wrong = one(seed, kernel);
		print_message("# %s without %s %u: %s, schedule %u\n", kernel, was.name, i, wrong ? wrong : "nothing", (uint32_t)seed - 1);
		assert_non_null(wrong);
		f->code[i] = was;
	}
	assert_true(warp ? fences >= 1 : fences >= 4 && loads >= 2 && stores >= 1);
}

TEST(test_fences)
{
	removed_from("reads", 0);
	removed_from("warp_reads", 1);
}

static int read_kernels(UNUSED void **state)
{
	ptx_read(&ptx, path);
	return 0;
}

int main(void)
{
	static const char *const compilers[] = {"clang", "nvcc"};
	int failed = 0;

	for (uint32_t i = 0; i < ARRAY(compilers); i++)
		if (ptx_find_file(compilers[i], path, sizeof(path))) {
			print_message("# kernels by %s\n", compilers[i]);
			failed += run_all(read_kernels, NULL);
		} else {
			print_message("# skipped: no kernels by %s\n", compilers[i]);
		}
	return failed;
}
