/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * regcache.c: a registration cache that is told by the kernel what goes away. The callback that registers memory puts it under a
 * userfaultfd as well, and a thread reads what the kernel reports of it: munmap, madvise(MADV_DONTNEED), mremap. Whoever does one of these
 * waits in the system call until the thread has read the report; so it is filed before the address can be mapped anew, and the
 * cache's owner looks at what was filed before each get.
 *
 * Not seen: another thread that maps the very address anew while munmap has not yet returned, and uses it at once; memory that a
 * userfaultfd does not take (files). A transport that cannot live with that wraps munmap and its kin instead.
 *
 * Exits with 77 when the kernel does not allow it here.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <infiniband/verbs.h>
#include <inlay/mmap/cache.h>
#include "common/program.h"

#define ENTRIES 64
#define LIMIT (1u << 30)
#define FILED 256

static const size_t bytes = 16 * 4096;

struct monitor {
	struct inlay_cache_ops verbs; /* what really registers */
	int fd;
	int stop[2];
	pthread_t thread;
	pthread_mutex_t lock;         /* around each read and the filing of what it gave */
	struct {
		uint64_t start, len;
	} filed[FILED];
	uint32_t num;                 /* filed; more than FILED: too many, anything may have gone */
};

static void unavailable(const char *what)
{
	fprintf(stderr, "skipped: %s: %s\n", what, strerror(errno));
	exit(77);
}

/* ---- the kernel's reports ---- */

static void file(struct monitor *m, uint64_t start, uint64_t end)
{
	if (m->num < FILED) {
		m->filed[m->num].start = start;
		m->filed[m->num].len = end - start;
	}
	m->num += m->num <= FILED;
}

static void *reading(void *arg)
{
	struct monitor *m = (struct monitor *)arg;
	struct pollfd p[2] = {{m->fd, POLLIN, 0}, {m->stop[0], POLLIN, 0}};
	struct uffd_msg msg;

	while (poll(p, 2, -1) >= 0 && !p[1].revents) {
		/* Reading lets the other one's munmap return: the lock keeps the owner from looking before it is filed. */
		pthread_mutex_lock(&m->lock);
		if (read(m->fd, &msg, sizeof(msg)) == (ssize_t)sizeof(msg)) {
			if (msg.event == UFFD_EVENT_UNMAP || msg.event == UFFD_EVENT_REMOVE)
				file(m, msg.arg.remove.start, msg.arg.remove.end);
			else if (msg.event == UFFD_EVENT_REMAP)
				file(m, msg.arg.remap.from, msg.arg.remap.from + msg.arg.remap.len);
		}
		pthread_mutex_unlock(&m->lock);
	}
	return NULL;
}

/* Registers, and asks for reports first: from then on nothing goes unseen. Reports of what is no longer registered do no harm. */
static int watched_reg(void *context, struct inlay_cache_entry *e)
{
	struct monitor *m = (struct monitor *)context;
	struct uffdio_register watch;

	memset(&watch, 0, sizeof(watch));
	watch.range.start = e->start;
	watch.range.len = e->len;
	watch.mode = UFFDIO_REGISTER_MODE_WP; /* nothing is ever protected: no fault, only reports */
	if (ioctl(m->fd, UFFDIO_REGISTER, &watch))
		return -errno;
	return m->verbs.reg(m->verbs.context, e);
}

static int watched_dereg(void *context, struct inlay_cache_entry *e)
{
	struct monitor *m = (struct monitor *)context;

	return m->verbs.dereg(m->verbs.context, e);
}

static void monitor_start(struct monitor *m, struct ibv_pd *pd)
{
	struct uffdio_api api;

	memset(m, 0, sizeof(*m));
	inlay_cache_pd(&m->verbs, pd);
	m->fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (m->fd < 0)
		unavailable("userfaultfd");
	memset(&api, 0, sizeof(api));
	api.api = UFFD_API;
	api.features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_PAGEFAULT_FLAG_WP;
	if (ioctl(m->fd, UFFDIO_API, &api))
		unavailable("userfaultfd's reports of unmapped memory");
	must(!pipe(m->stop) && !pthread_mutex_init(&m->lock, NULL) && !pthread_create(&m->thread, NULL, reading, m), "starting a thread");
}

static void monitor_stop(struct monitor *m)
{
	must(write(m->stop[1], "", 1) == 1 && !pthread_join(m->thread, NULL), "ending the thread");
	close(m->fd);
	close(m->stop[0]);
	close(m->stop[1]);
}

/* ---- the transport ---- */

/* Takes what was filed. Not under the lock: deregistering may itself free memory, and then waits for the thread. */
static void catch_up(struct inlay_cache *c, struct monitor *m)
{
	struct monitor copy;
	uint32_t i;

	pthread_mutex_lock(&m->lock);
	copy.num = m->num;
	memcpy(copy.filed, m->filed, sizeof(copy.filed));
	m->num = 0;
	pthread_mutex_unlock(&m->lock);
	if (copy.num > FILED) {
		inlay_cache_flush(c);
		return;
	}
	for (i = 0; i < copy.num; i++)
		inlay_cache_invalidate(c, copy.filed[i].start, copy.filed[i].len);
}

/* A transfer of the buffer; the key that it went with */
static uint32_t transfer(struct inlay_cache *c, struct monitor *m, const uint8_t *buf)
{
	struct inlay_cache_entry *e;
	uint32_t key;
	int err;

	catch_up(c, m);
	err = inlay_cache_get(c, (uintptr_t)buf, bytes, IBV_ACCESS_LOCAL_WRITE, &e);
	if (err) {
		fprintf(stderr, "regcache: registering: %s\n", strerror(-err));
		exit(1);
	}
	key = e->lkey; /* ... a post with this key, and its completion ... */
	inlay_cache_put(c, e);
	return key;
}

static uint8_t *map(void *at)
{
	uint8_t *buf = (uint8_t *)mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	must(buf != (uint8_t *)MAP_FAILED, "mmap");
	memset(buf, 1, bytes);
	return buf;
}

int main(int argc, char **argv)
{
	static const struct option_of none = {NULL, NULL, NULL, NULL, NULL, 0, 0, NULL};
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct inlay_cache_ops ops = {watched_reg, watched_dereg, NULL, IBV_ACCESS_LOCAL_WRITE, 0};
	void *room = memory(inlay_cache_size(ENTRIES));
	static struct monitor m;
	struct inlay_cache c;
	uint32_t first, now;
	uint8_t *buf, *moved;

	if (arguments(argc, argv, "A registration cache that the kernel tells what goes away. Exits with 77 if it may not.", "",
		      &none))
		wrong("no arguments are wanted (try --help)");
	ctx = open_device(NULL);
	pd = ibv_alloc_pd(ctx);
	must(pd != NULL, "ibv_alloc_pd");
	monitor_start(&m, pd);
	ops.context = &m;
	must(!inlay_cache_init(&c, room, inlay_cache_size(ENTRIES), ENTRIES, LIMIT, 4096, &ops), "inlay_cache_init");

	buf = map(NULL);
	first = transfer(&c, &m, buf);
	now = transfer(&c, &m, buf);
	printf("again:                     key 0x%x, then 0x%x\n", first, now);
	must(now == first && c.counts.hits == 1, "finding it again");

	must(!munmap(buf, bytes), "munmap");
	map(buf);
	now = transfer(&c, &m, buf);
	printf("unmapped, and mapped anew: key 0x%x\n", now);
	must(c.counts.misses == 2 && c.counts.invalidated == 1, "noticing munmap");

	must(!madvise(buf, bytes, MADV_DONTNEED), "madvise");
	now = transfer(&c, &m, buf);
	printf("its pages given back:      key 0x%x\n", now);
	must(c.counts.misses == 3 && c.counts.invalidated == 2, "noticing madvise");

	moved = (uint8_t *)mremap(buf, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, map(NULL));
	must(moved != (uint8_t *)MAP_FAILED, "mremap");
	map(buf);
	now = transfer(&c, &m, buf);
	printf("moved, and mapped anew:    key 0x%x\n", now);
	must(c.counts.misses == 4 && c.counts.invalidated == 3, "noticing mremap");

	printf("%d hits, %d misses, %d reported by the kernel\n", (int)c.counts.hits, (int)c.counts.misses, (int)c.counts.invalidated);
	must(!inlay_cache_fini(&c), "inlay_cache_fini");
	monitor_stop(&m);
	munmap(moved, bytes);
	munmap(buf, bytes);
	free(room);
	must(!ibv_dealloc_pd(pd) && !ibv_close_device(ctx), "closing the device");
	return 0;
}
