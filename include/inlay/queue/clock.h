/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/clock.h: completion times in nanoseconds.
 *
 *   struct inlay_clock clock;  const char *why;
 *
 *   inlay_clock_map(&clock, ctx, &why);                        once: maps the kernel's page
 *   ns = inlay_clock_ns(&clock, inlay_cqe_timestamp(cqe));     of the clock that the kernel keeps
 *   inlay_clock_unmap(&clock);
 *
 * The device counts cycles. The kernel keeps a page that maps a cycle count to a time in nanoseconds
 * and holds the length of a cycle. It updates the page at least once in max_clock_info_update_nsec
 * (mlx5dv_query_device), and when the clock is set. inlay_clock_ns reads the page again when it has
 * changed; otherwise it costs one load more than mlx5dv_ts_to_ns, and returns the same. A time may be
 * older than the page, by up to half the counter's range.
 *
 * Queues with INLAY_TS_REAL_TIME need no page: inlay_cqe_real_time. The builders
 * in devx/ create no such queue. The caller's own CREATE_QP can (INLAY_QPC_TS_FORMAT), if the
 * device's capability INLAY_ROCE_CAP_QP_TS_FORMAT allows it.
 *
 * Threads: an inlay_clock has one owner; any number may share a page. Sources: mlx5dv_ts_to_ns(3),
 * libmlx5's mlx5dv_get_clock_info, Linux's mlx5-abi.h and mlx5_update_clock_info_page.
 */
#ifndef INLAY_QUEUE_CLOCK_H
#define INLAY_QUEUE_CLOCK_H

#include <sys/mman.h>
#include <unistd.h>
#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
#include <inlay/cqe.h>

/* The kernel's page, struct mlx5_ib_clock_info. */
struct inlay_clock_page {
	uint32_t sign;            /* grows by 2 with each update; odd during one */
	uint32_t reserved;
	uint64_t nsec;
	uint64_t cycles;
	uint64_t frac;
	uint32_t mult;
	uint32_t shift;
	uint64_t mask;
	uint64_t overflow_period;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_clock_page) == 56 && offsetof(struct inlay_clock_page, cycles) == 16 &&
		    offsetof(struct inlay_clock_page, mult) == 32 && offsetof(struct inlay_clock_page, mask) == 40, "page");

/* A page, and what it said last. */
struct inlay_clock {
	const struct inlay_clock_page *page;
	uint32_t sign;                 /* of info */
	struct mlx5dv_clock_info info;
};

/* Reads the page. Returns 0, or -EBUSY if it changes all the time: then info is what it was. */
INLAY_APART int inlay_clock_read_(struct inlay_clock *clock)
{
	const struct inlay_clock_page *page = clock->page;
	struct mlx5dv_clock_info info;
	uint32_t sign, tries;

	for (tries = 0; tries < 1000; tries++) {
		sign = __atomic_load_n(&page->sign, __ATOMIC_ACQUIRE);
		if (sign & 1)
			continue;
		/* Acquiring loads all: none may pass the second load of the sign. */
		info.nsec = __atomic_load_n(&page->nsec, __ATOMIC_ACQUIRE);
		info.last_cycles = __atomic_load_n(&page->cycles, __ATOMIC_ACQUIRE);
		info.frac = __atomic_load_n(&page->frac, __ATOMIC_ACQUIRE);
		info.mult = __atomic_load_n(&page->mult, __ATOMIC_ACQUIRE);
		info.shift = __atomic_load_n(&page->shift, __ATOMIC_ACQUIRE);
		info.mask = __atomic_load_n(&page->mask, __ATOMIC_ACQUIRE);
		if (__atomic_load_n(&page->sign, __ATOMIC_RELAXED) == sign) {
			clock->info = info;
			clock->sign = sign;
			return 0;
		}
	}
	return -EBUSY;
}

/* ---- Set-up ---- */

/* A clock that reads this page. Returns 0, or -EBUSY when the page was being written all the time. */
INLAY_COLD int inlay_clock_init(struct inlay_clock *clock, const struct inlay_clock_page *page)
{
	INLAY_CHECK(clock && page, "the clock and its page are not NULL");
	__builtin_memset(clock, 0, sizeof(*clock));
	clock->page = page;
	return inlay_clock_read_(clock);
}

/*
 * Maps the page of a device's clock. Returns 0; -ENOTSUP when the device is not
 * mlx5; -EBUSY as for inlay_clock_init; or the negative errno of mmap, when the kernel shares no
 * clock.
 */
INLAY_COLD int inlay_clock_map(struct inlay_clock *clock, struct ibv_context *context, const char **why)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	void *page;

	INLAY_CHECK(clock && context, "only why may be NULL");
	if (!mlx5dv_is_supported(context->device))
		return inlay_refuse_(-ENOTSUP, why, "the object is not of an mlx5 device");
	/* MLX5_IB_MMAP_CLOCK_INFO, version 1 of the page */
	page = mmap(NULL, size, PROT_READ, MAP_SHARED, context->cmd_fd, (off_t)((7u << 8) * size));
	if (page == MAP_FAILED)
		return inlay_refuse_(-errno, why, "the kernel shares no clock of this device");
	if (!inlay_clock_init(clock, (const struct inlay_clock_page *)page))
		return 0;
	munmap(page, size);
	return inlay_refuse_(-EBUSY, why, "the clock's page is being written all the time");
}

/* Undoes inlay_clock_map. Returns 0 or a negative errno. */
INLAY_COLD int inlay_clock_unmap(struct inlay_clock *clock)
{
	return munmap((void *)(uintptr_t)clock->page, (size_t)sysconf(_SC_PAGESIZE)) ? -errno : 0;
}

/* ---- Data path ---- */

/*
 * Converts a time in device cycles (inlay_cqe_timestamp) to nanoseconds. If the page cannot be read
 * consistently, the last good copy is used.
 */
INLAY_FN uint64_t inlay_clock_ns(struct inlay_clock *clock, uint64_t cycles)
{
	if (INLAY_UNLIKELY(__atomic_load_n(&clock->page->sign, __ATOMIC_ACQUIRE) != clock->sign))
		(void)inlay_clock_read_(clock);
	return mlx5dv_ts_to_ns(&clock->info, cycles);
}

/* The device's clock at completion, in ticks (ibv_wc_read_completion_ts). Not in an error CQE. */
INLAY_FN uint64_t inlay_cqe_timestamp(const struct mlx5_cqe64 *cqe)
{
	return inlay_from_be64(cqe->timestamp);
}

/*
 * As above, but in nanoseconds since 1970, of a queue whose clock is INLAY_TS_REAL_TIME
 * (devx/ifc/cq.h): the CQE then holds seconds << 32 | nanoseconds. For other clocks, and for how to
 * get this one, see above.
 */
INLAY_FN uint64_t inlay_cqe_real_time(const struct mlx5_cqe64 *cqe)
{
	uint64_t at = inlay_from_be64(cqe->timestamp);

	return (at >> 32) * 1000000000 + (uint32_t)at;
}

#endif
