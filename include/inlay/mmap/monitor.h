/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap/monitor.h: the kernel's reports of unmapped memory, for registration caches, which it
 * makes invalidate that memory. A userfaultfd watches what the caches register; one of the caller's
 * threads reads the reports.
 *
 *   inlay_monitor_init(&monitor, caches, 1, &why);       caches: an array of struct inlay_cache *
 *
 *   int my_reg(void *pd, struct inlay_cache_region *r)   ops.reg of each cache
 *   {
 *           int err = inlay_monitor_watch(&monitor, r->start, r->len);
 *           return err ? err : inlay_cache_reg_mr(pd, r);
 *   }
 *
 *   while (inlay_monitor_step(&monitor, -1) >= 0)        the thread, which does nothing else
 *           ;
 *
 *   inlay_monitor_stop(&monitor);                        the end; then join the thread
 *   inlay_monitor_fini(&monitor);
 *
 * Invariants:
 *   - A get that begins after an unmapping call has returned finds no stale region: such calls wait
 *     until the thread reads their report, and gets wait until the caches have it.
 *   - Only one userfaultfd can watch a mapping, so one monitor serves all caches of a process.
 *   - No page is protected and no fault reported: memory works at full speed.
 *
 * Reported:
 *   munmap, mmap over it, brk          after the pages are gone, before the call returns
 *   mremap that moves or shrinks       likewise; the new place is watched, too
 *   madvise DONTNEED, FREE, REMOVE     before the pages go
 *
 * Not reported:
 *   - shmdt; fallocate(PUNCH_HOLE) and truncate of a mapped file; memory of accelerators. Call
 *     inlay_cache_post for these.
 *   - A new mapping at the address, made and used by another thread before munmap has returned; a
 *     get during another thread's madvise of the same memory.
 *   - fork (before Linux 5.12, call ibv_fork_init), and what the child unmaps.
 *   - Files, before Linux 6.7; all but private anonymous memory, before 5.19; shared mappings of
 *     files that the process may not write. Gets of these fail as inlay_monitor_watch does.
 *
 * Costs:
 *   - munmap waits for the thread, which must not unmap, allocate or free memory, or wait for a lock
 *     that is held during such calls: deadlock.
 *   - Memory stays watched until it is unmapped. Each end of a watched range splits a mapping
 *     (vm.max_map_count); no huge pages form there later. An mremap that grows or moves a split one
 *     fails with EFAULT, since Linux 6.17 with some pieces moved; realloc then copies.
 *   - A forked child inherits the userfaultfd. If it neither closes it, execs nor exits, munmap in
 *     the parent waits for ever once the thread has ended. So children call inlay_monitor_fini: by
 *     pthread_atfork, or themselves after clone and _Fork, which run no handler.
 *   - It needs Linux 5.11, and no privilege. A container's seccomp filter may forbid it.
 *
 * Threads: any may call inlay_monitor_watch and inlay_monitor_stop; one calls inlay_monitor_step.
 *
 * Sources: userfaultfd(2), ioctl_userfaultfd(2); Linux's fs/userfaultfd.c and mm; observed on 6.18.
 */
#ifndef INLAY_MMAP_MONITOR_H
#define INLAY_MMAP_MONITOR_H /* a trial: names may change */

#include <poll.h>
#include <unistd.h>
#include <linux/userfaultfd.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <inlay/base.h>
#include <inlay/mmap/cache.h>

#if !defined(_DEFAULT_SOURCE) && !defined(__cplusplus)
long syscall(long number, ...); /* <unistd.h> hides it from strict C and from strict POSIX */
#endif

struct inlay_monitor {
	int fd;                   /* the userfaultfd */
	int end;                  /* an eventfd: readable once stopped */
	uint32_t num;
	struct inlay_cache *const *caches;
};

/* Newer than some <linux/userfaultfd.h> */
#define INLAY_MONITOR_USER_MODE_ONLY_ 1      /* UFFD_USER_MODE_ONLY */
#define INLAY_MONITOR_SHMEM_ (1ull << 12)    /* UFFD_FEATURE_WP_HUGETLBFS_SHMEM, Linux 5.19 */
#define INLAY_MONITOR_ANY_ (1ull << 15)      /* UFFD_FEATURE_WP_ASYNC, Linux 6.7: any mapping */

/*
 * Opens a userfaultfd, whose reports go to num caches. The array stays until inlay_monitor_fini.
 * Returns 0; -EPERM if the process may not; -ENOSYS if the kernel has no userfaultfd; -ENOTSUP if
 * it is older than Linux 5.11 (aarch64: 6.10); else the negative errno of ioctl or eventfd.
 */
INLAY_COLD int inlay_monitor_init(struct inlay_monitor *m, struct inlay_cache *const *caches, uint32_t num,
				  const char **why)
{
	const uint64_t extra[3] = {INLAY_MONITOR_SHMEM_ | INLAY_MONITOR_ANY_, INLAY_MONITOR_SHMEM_, 0};
	const int flags = EFD_CLOEXEC | EFD_NONBLOCK; /* O_CLOEXEC, which strict C hides, and O_NONBLOCK */
	struct uffdio_api api;
	int err, i;

	m->caches = caches;
	m->num = num;
	m->end = -1;
	m->fd = (int)syscall(SYS_userfaultfd, flags | INLAY_MONITOR_USER_MODE_ONLY_);
	if (m->fd < 0)
		return inlay_refuse_(errno == EINVAL ? -ENOTSUP : -errno, why,
				     errno == EPERM ? "userfaultfd is not permitted" : "there is no userfaultfd");
	for (i = 0, err = -1; i < 3 && err; i++) {
		__builtin_memset(&api, 0, sizeof(api));
		api.api = UFFD_API;
		api.features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_REMAP |
			       UFFD_FEATURE_PAGEFAULT_FLAG_WP | extra[i];
		err = ioctl(m->fd, UFFDIO_API, &api);
	}
	m->end = err ? -1 : eventfd(0, flags);
	if (m->end >= 0)
		return 0;
	err = err && errno == EINVAL ? -ENOTSUP : -errno;
	close(m->fd);
	m->fd = -1;
	return inlay_refuse_(err, why, err == -ENOTSUP ? "the kernel does not report unmapped memory" :
			     "no userfaultfd, or no eventfd");
}

/*
 * Watches [addr, addr + len): whole pages, of the mapping's page size. Call it before the memory is
 * registered, so that no report is missed. Memory may be watched twice.
 * Returns 0; -EINVAL for memory that is not mapped, or that this kernel cannot watch; -EPERM for a
 * shared mapping of a file that the process may not write; -EBUSY if another userfaultfd watches
 * it; -EBADFD after the last inlay_monitor_step; else the negative errno of UFFDIO_REGISTER.
 */
INLAY_COLD int inlay_monitor_watch(struct inlay_monitor *m, uint64_t addr, uint64_t len)
{
	struct uffdio_register watch;

	__builtin_memset(&watch, 0, sizeof(watch));
	watch.range.start = addr;
	watch.range.len = len;
	watch.mode = UFFDIO_REGISTER_MODE_WP; /* reports no faults, as nothing is protected */
	if (!ioctl(m->fd, UFFDIO_REGISTER, &watch))
		return 0;
	return errno == ENOTTY ? -EBADFD : -errno;
}

/*
 * Waits up to timeout milliseconds (-1: no limit) for a report, and posts it. Returns 1 for a
 * report; 0 for none; -ECANCELED after inlay_monitor_stop: nothing is watched any more, no thread
 * waits, and the caches take out all regions; or the negative errno of poll.
 */
INLAY_COLD int inlay_monitor_step(struct inlay_monitor *m, int timeout)
{
	struct pollfd p[2];
	struct uffd_msg msg;
	uint64_t addr = 0, len = 0;
	uint32_t i;
	int end;

	p[0].fd = m->fd;
	p[1].fd = m->end;
	p[0].events = p[1].events = POLLIN;
	if (poll(p, 2, timeout) < 0)
		return errno == EINTR ? 0 : -errno;
	end = p[1].revents != 0;
	if (!end && !p[0].revents)
		return 0;
	/* The read lets the other thread's munmap return, so gets must wait until the report is posted. */
	for (i = 0; i < m->num; i++)
		inlay_cache_expect_(m->caches[i]);
	if (end) {
		/* Closes it, which wakes waiting threads; inlay_monitor_watch gets -ENOTTY. Strict C hides dup3. */
		syscall(SYS_dup3, m->end, m->fd, EFD_CLOEXEC);
		len = UINT64_MAX;
	} else if (read(m->fd, &msg, sizeof(msg)) == (ssize_t)sizeof(msg)) {
		if (msg.event == UFFD_EVENT_UNMAP || msg.event == UFFD_EVENT_REMOVE) {
			addr = msg.arg.remove.start;
			len = msg.arg.remove.end - addr;
		} else if (msg.event == UFFD_EVENT_REMAP) {
			addr = msg.arg.remap.from;
			len = msg.arg.remap.len;
		}
	}
	for (i = 0; i < m->num; i++)
		inlay_cache_settle_(m->caches[i], addr, len);
	return end ? -ECANCELED : len != 0;
}

/* Makes this and all later calls of inlay_monitor_step return. Safe in signal handlers. */
INLAY_COLD void inlay_monitor_stop(struct inlay_monitor *m)
{
	const uint64_t one = 1;

	(void)!write(m->end, &one, sizeof(one));
}

/*
 * Closes the monitor, once inlay_monitor_step has returned -ECANCELED. A forked child may call it
 * at any time, and then uses neither the monitor nor the caches.
 */
INLAY_COLD void inlay_monitor_fini(struct inlay_monitor *m)
{
	close(m->fd);
	close(m->end);
	m->fd = m->end = -1;
}

#endif
