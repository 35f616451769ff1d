/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * monitor.c: what the kernel reports of memory that goes, for each call that takes it away;
 * the end; and owners that get while others map anew. Nothing is registered: a registration reads
 * what is mapped, which is a page of a file that holds its own number. So a stale one shows.
 *
 * MONITOR_ROUNDS: how often each page is mapped anew, 300
 */
#include "common.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <inlay/mmap/monitor.h>

#define PAGE 4096u
#define CACHES 2
#define RW (PROT_READ | PROT_WRITE)

static struct inlay_monitor monitor;
static struct inlay_cache caches[CACHES];
static struct inlay_cache *const all[CACHES] = {&caches[0], &caches[1]};
static void *memory[CACHES];
static pthread_t thread;
static bool watching = true;

/* The first words of up to 4 pages, as they are now: -EFAULT when they are not there, as ibv_reg_mr says */
static int page_reg(UNUSED void *context, struct inlay_cache_region *r)
{
	uint64_t *mine = (uint64_t *)(r + 1), i;
	int err = watching ? inlay_monitor_watch(&monitor, r->start, r->len) : 0;

	for (i = 0; i < r->len / PAGE && i < 4 && !err; i++) {
		struct iovec to = {&mine[i], 8}, from = {(void *)(uintptr_t)(r->start + i * PAGE), 8};

		err = process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 8 ? 0 : -EFAULT;
	}
	return err;
}

static int page_dereg(UNUSED void *context, UNUSED struct inlay_cache_region *r)
{
	return 0;
}

static void *watch(UNUSED void *arg)
{
	int got = 0;

	while (got >= 0)
		got = inlay_monitor_step(&monitor, -1);
	return (void *)(intptr_t)got;
}

static void monitor_open(void)
{
	struct inlay_cache_attr attr = {64, 16, UINT64_MAX, PAGE, 32};
	struct inlay_cache_ops ops = {page_reg, page_dereg, NULL, inlay_cache_yield, NULL};
	const char *why = NULL;
	int err = inlay_monitor_init(&monitor, all, CACHES, &why);

	if (err == -EPERM || err == -ENOSYS || err == -ENOTSUP) {
		print_message("# skipped: %s (%s)\n", why, strerror(-err));
		skip();
	}
	must(err);
	for (uint32_t i = 0; i < CACHES; i++) {
		memory[i] = aligned_alloc(64, (inlay_cache_size(&attr) + 63) / 64 * 64);
		must(inlay_cache_init(&caches[i], memory[i], inlay_cache_size(&attr), &attr, &ops));
	}
	watching = true;
}

static void monitor_end(void)
{
	int fds[2];
	void *got;

	inlay_monitor_stop(&monitor);
	must(pthread_join(thread, &got));
	assert_int_equal((intptr_t)got, -ECANCELED);
	fds[0] = monitor.fd;
	fds[1] = monitor.end;
	inlay_monitor_fini(&monitor);
	for (uint32_t i = 0; i < ARRAY(fds); i++)
		assert_true(fcntl(fds[i], F_GETFD) < 0 && errno == EBADF);
	for (uint32_t i = 0; i < CACHES; i++) {
		must(inlay_cache_fini(&caches[i]));
		free(memory[i]);
	}
}

static int file(uint32_t n)
{
	int fd = memfd_create("pages", 0);

	assert_true(fd >= 0);
	for (uint64_t i = 0; i < n; i++)
		assert_int_equal(pwrite(fd, &i, 8, (off_t)(i * PAGE)), 8);
	must(ftruncate(fd, (off_t)n * PAGE));
	return fd;
}

/* Whether a get of these bytes is a hit, with each cache */
static bool hits(const uint8_t *at, uint64_t len)
{
	uint64_t before = caches[0].counts.misses + caches[1].counts.misses, now;

	for (uint32_t i = 0; i < CACHES; i++) {
		struct inlay_cache_region *r;

		must(inlay_cache_get(&caches[i], (uintptr_t)at, len, 1, &r));
		inlay_cache_put(&caches[i], r);
	}
	now = caches[0].counts.misses + caches[1].counts.misses;
	assert_true(now == before || now == before + CACHES);
	return now == before;
}

static uint8_t *map(void *at, uint64_t len, int flags, int fd)
{
	uint8_t *p = (uint8_t *)mmap(at, len, RW, flags | (at ? MAP_FIXED : 0), fd, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

/*
 * The thread handles an event before the tests leave holes for a moment: a sanitizer gives a new thread
 * memory when it first needs it, and that must not be in such a hole
 */
static void monitor_start(void)
{
	uint8_t *p;

	monitor_open();
	must(pthread_create(&thread, NULL, watch, NULL));
	p = map(NULL, PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	must(inlay_monitor_watch(&monitor, (uintptr_t)p, PAGE));
	must(munmap(p, PAGE));
}

/* Every call that takes memory away, of every kind: the next get registers anew. Other calls change nothing */
TEST(calls)
{
	static const char *const kinds[] = {"private", "shared", "shared file", "private file"};
	static const struct {
		int kind, advice; /* -1: all kinds */
	} advice[] = {{-1, MADV_DONTNEED}, {0, MADV_FREE}, {2, MADV_REMOVE}};
	const uint64_t len = 16 * PAGE;
	struct inlay_monitor other;
	uint8_t *p, *q;
	int fd = file(32);

	monitor_start();
	for (int kind = 0; kind < (int)ARRAY(kinds); kind++) {
		const int flags = (kind % 3 ? MAP_SHARED : MAP_PRIVATE) | (kind < 2 ? MAP_ANONYMOUS : 0);
		const int f = kind < 2 ? -1 : fd;
		int err;

		p = map(NULL, len, flags, f);
		err = inlay_monitor_watch(&monitor, (uintptr_t)p, len);
		if (err) {
			assert_int_equal(err, -EINVAL);
			print_message("# this kernel does not watch %s memory\n", kinds[kind]);
			must(munmap(p, len));
			continue;
		}
		memset(p, 1, len);
		assert_true(!hits(p, len) && hits(p, len));

		/* These take nothing away */
		memset(p, 2, len);
		must(mprotect(p, len, PROT_READ));
		must(mprotect(p, len, RW));
		must(madvise(p, len, MADV_WILLNEED));
		must(madvise(p, len, MADV_DONTFORK));
		must(madvise(p, len, MADV_DOFORK));
		q = map(NULL, len, flags, f);
		must(munmap(q, len));
		assert_true(hits(p, len));

		/* All of it, a page in its midst, one at its end: unmapped, and mapped over; its pages given back */
		for (uint32_t i = 0; i < 5; i++) {
			static const struct {
				uint64_t page, pages;
				bool unmaps;
			} parts[] = {{0, 16, true}, {5, 1, true}, {15, 1, false}, {3, 2, false}, {0, 16, false}};

			if (parts[i].unmaps)
				must(munmap(p + parts[i].page * PAGE, parts[i].pages * PAGE));
			map(p + parts[i].page * PAGE, parts[i].pages * PAGE, flags, f);
			assert_true(!hits(p, len) && hits(p, len));
		}
		for (uint32_t i = 0; i < ARRAY(advice); i++)
			if (advice[i].kind == kind || advice[i].kind < 0) {
				must(madvise(p + PAGE, PAGE, advice[i].advice));
				assert_false(hits(p, len));
			}

		/* Moved: here it is another; what was there has been unmapped */
		q = map(NULL, len, MAP_PRIVATE | MAP_ANONYMOUS, -1);
		assert_false(hits(q, len));
		assert_ptr_equal(mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, q), q);
		map(p, len, flags, f);
		assert_true(!hits(p, len) && !hits(q, len));
		must(munmap(q, len));
		assert_true(hits(p, len));
		/* There it is watched without having been asked for; less of it */
		assert_ptr_equal(mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, q), q);
		watching = false;
		assert_false(hits(q, len));
		watching = true;
		map(p, len, flags, f);
		assert_false(hits(p, len));
		/* Its pages moved, the mapping stays */
		if (mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, q) == (void *)q)
			assert_false(hits(p, len));
		else
			print_message("# this kernel does not leave %s memory mapped when it moves\n", kinds[kind]);
		map(q, len, flags, f);
		assert_false(hits(q, len));
		assert_ptr_equal(mremap(q, len, len / 2, 0), q);
		map(q + len / 2, len / 2, flags, f);
		assert_false(hits(q, len));
		must(munmap(q, len));
		must(munmap(p, len));
	}

	/* mremap of a partly watched mapping: what the manual says */
	p = map(NULL, len, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	must(inlay_monitor_watch(&monitor, (uintptr_t)p + PAGE, PAGE));
	/* What one monitor watches, another may not */
	must(inlay_monitor_init(&other, all, 1, NULL));
	assert_int_equal(inlay_monitor_watch(&other, (uintptr_t)p + PAGE, PAGE), -EBUSY);
	inlay_monitor_fini(&other);
	assert_true(mremap(p, len, 2 * len, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
	must(munmap(p, len));
	/* What is not there */
	assert_int_equal(inlay_monitor_watch(&monitor, (uintptr_t)p, len), -EINVAL);
	monitor_end();
	close(fd);
}

static void child(void)
{
	inlay_monitor_fini(&monitor);
}

static void *unmapper(void *p)
{
	return (void *)(intptr_t)munmap(p, PAGE);
}

/* A report that is read ends a wait. The end frees who waits, drops all regions, and refuses what comes later */
TEST(ends)
{
	struct inlay_cache_region *r;
	struct pollfd ready;
	pthread_t t;
	uint8_t *p, *q;
	void *got;

	monitor_open(); /* no thread yet */
	p = map(NULL, PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	q = map(NULL, PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	assert_int_equal(inlay_monitor_step(&monitor, 0), 0);
	must(inlay_cache_get(&caches[0], (uintptr_t)p, 1, 1, &r));
	inlay_cache_put(&caches[0], r);
	must(pthread_create(&t, NULL, unmapper, p));
	assert_int_equal(inlay_monitor_step(&monitor, -1), 1);
	must(pthread_join(t, &got));
	assert_null(got);
	inlay_cache_step_(&caches[0]);
	assert_int_equal(caches[0].counts.invalidated, 1);

	/* Somebody waits, and nobody reads: the end is enough */
	must(inlay_cache_get(&caches[0], (uintptr_t)q, 1, 1, &r));
	inlay_cache_put(&caches[0], r);
	must(pthread_create(&t, NULL, unmapper, q));
	ready.fd = monitor.fd;
	ready.events = POLLIN;
	assert_int_equal(poll(&ready, 1, -1), 1);
	inlay_monitor_stop(&monitor);
	assert_true(inlay_monitor_step(&monitor, -1) == -ECANCELED && inlay_monitor_step(&monitor, -1) == -ECANCELED);
	assert_int_equal(fcntl(monitor.fd, F_GETFD), FD_CLOEXEC); /* dup2 dropped it */
	must(pthread_join(t, &got));
	assert_null(got);
	inlay_cache_step_(&caches[0]);
	assert_int_equal(caches[0].counts.regions, 0);
	p = map(NULL, PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	assert_int_equal(inlay_monitor_watch(&monitor, (uintptr_t)p, PAGE), -EBADFD);
	assert_int_equal(inlay_cache_get(&caches[0], (uintptr_t)p, 1, 1, &r), -EBADFD);
	must(munmap(p, PAGE));
	inlay_monitor_fini(&monitor);
	free(memory[0]);
	free(memory[1]);
}

/* ---- owners that get while others map anew ---- */

#define MAPPERS 2
#define SLOTS 4               /* pages of each mapper */

static struct {
	uint8_t *base;
	int fd;
	uint64_t known[MAPPERS * SLOTS]; /* the file's page that is mapped there, once that call has returned */
	uint32_t gets[CACHES];
	uint32_t started;         /* threads */
	uint32_t mappers;         /* that have not ended */
	uint32_t rounds;
	int failed;
} world;

/* Another page of the file, by one of the ways there are. Page numbers only grow */
static int map_anew(uint32_t slot, uint64_t page, uint32_t way)
{
	uint8_t *at = world.base + slot * PAGE, *far = world.base + (MAPPERS * SLOTS + slot) * PAGE;
	const off_t offset = (off_t)(page * PAGE);

	switch (way) {
	case 0: /* unmapped, then mapped */
		if (munmap(at, PAGE))
			return -1;
		break;
	case 1: /* moved away, then mapped */
		if (mremap(at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, far) != far)
			return -1;
		break;
	case 2: /* another one moved here */
		return mmap(far, PAGE, RW, MAP_SHARED | MAP_FIXED, world.fd, offset) == far &&
		       mremap(far, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at ? 0 : -1;
	case 3:
		if (madvise(at, PAGE, MADV_DONTNEED)) /* which changes nothing in a shared file */
			return -1;
		break;
	default: /* mapped over */
		break;
	}
	return mmap(at, PAGE, RW, MAP_SHARED | MAP_FIXED, world.fd, offset) == at ? 0 : -1;
}

static void *mapper(void *arg)
{
	const uint32_t me = (uint32_t)(uintptr_t)arg;
	uint64_t page, z = me + 1;

	/* No holes yet: what a sanitizer maps for a new thread must not be in one */
	__atomic_fetch_add(&world.started, 1, __ATOMIC_RELAXED);
	while (__atomic_load_n(&world.started, __ATOMIC_RELAXED) < MAPPERS + CACHES)
		sched_yield();
	for (page = 1; page <= world.rounds && !__atomic_load_n(&world.failed, __ATOMIC_RELAXED); page++) {
		const uint32_t slot = me * SLOTS + (uint32_t)(z >> 33) % SLOTS, owner = (uint32_t)(z >> 40) % CACHES;
		const uint32_t gets = __atomic_load_n(&world.gets[owner], __ATOMIC_RELAXED);

		z = z * 6364136223846793005 + 1442695040888963407;
		if (map_anew(slot, page, (uint32_t)(z >> 50) % 5)) {
			__atomic_store_n(&world.failed, errno, __ATOMIC_RELAXED);
			break;
		}
		__atomic_store_n(&world.known[slot], page, __ATOMIC_RELEASE);
		/* Now and then an owner has to have looked */
		while (page % 4 == 0 && __atomic_load_n(&world.gets[owner], __ATOMIC_RELAXED) - gets < 2 &&
		       !__atomic_load_n(&world.failed, __ATOMIC_RELAXED))
			sched_yield();
	}
	__atomic_fetch_sub(&world.mappers, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void *owner(void *arg)
{
	struct inlay_cache *c = (struct inlay_cache *)arg;
	uint64_t z = 99;

	__atomic_fetch_add(&world.started, 1, __ATOMIC_RELAXED);
	while (__atomic_load_n(&world.mappers, __ATOMIC_ACQUIRE) && !__atomic_load_n(&world.failed, __ATOMIC_RELAXED)) {
		const uint32_t slot = (uint32_t)(z >> 33) % (MAPPERS * SLOTS);
		const uint64_t at = (uintptr_t)world.base + slot * PAGE;
		const uint64_t known = __atomic_load_n(&world.known[slot], __ATOMIC_ACQUIRE);
		struct inlay_cache_region *r;
		int err = inlay_cache_get(c, at, PAGE, 1, &r);

		z = z * 6364136223846793005 + 1442695040888963407;
		if (!err) {
			const uint64_t *mine = (const uint64_t *)(r + 1);

			if (mine[(at - r->start) / PAGE] < known)
				__atomic_store_n(&world.failed, -ESTALE, __ATOMIC_RELAXED);
			inlay_cache_put(c, r);
		} else if (err != -EFAULT && err != -EINVAL) { /* just now not there */
			__atomic_store_n(&world.failed, err, __ATOMIC_RELAXED);
		}
		__atomic_fetch_add(&world.gets[c - caches], 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

TEST(readers)
{
	const char *env = getenv("MONITOR_ROUNDS");
	pthread_t t[MAPPERS + CACHES];
	int status;
	pid_t pid;

	monitor_start();
	memset(&world, 0, sizeof(world));
	world.rounds = env ? (uint32_t)atoi(env) : 300;
	world.fd = file(world.rounds + 1);
	world.base = map(NULL, 2 * MAPPERS * SLOTS * PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	world.mappers = MAPPERS;
	for (uint32_t i = 0; i < MAPPERS * SLOTS; i++)
		must(map_anew(i, 0, 4));
	if (inlay_monitor_watch(&monitor, (uintptr_t)world.base, PAGE)) {
		print_message("# skipped: this kernel does not watch shared memory\n");
		monitor_end();
		skip();
	}
	for (uint32_t i = 0; i < CACHES; i++)
		must(pthread_create(&t[MAPPERS + i], NULL, owner, &caches[i]));
	for (uint32_t i = 0; i < MAPPERS; i++)
		must(pthread_create(&t[i], NULL, mapper, (void *)(uintptr_t)i));
	/* Children come and go meanwhile */
	for (uint32_t i = 0; i < 20 && __atomic_load_n(&world.mappers, __ATOMIC_ACQUIRE); i++) {
		pid = fork();
		assert_true(pid >= 0);
		if (!pid)
			_exit(munmap(world.base, 2 * MAPPERS * SLOTS * PAGE) != 0);
		assert_true(waitpid(pid, &status, 0) == pid && !status);
	}
	for (uint32_t i = 0; i < MAPPERS + CACHES; i++)
		must(pthread_join(t[i], NULL));
	assert_int_equal(world.failed, 0);
	must(munmap(world.base, 2 * MAPPERS * SLOTS * PAGE));
	monitor_end();
	close(world.fd);
}

int main(void)
{
	must(pthread_atfork(NULL, NULL, child));
	return run_all(NULL, NULL);
}
