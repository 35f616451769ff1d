/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/scan.h: how many completions lie side by side in a ring, none of them special.
 * cq.h's batches are built on it.
 *
 * One scalar form is the reference; vector forms test 4 or 8 slots at once. All give the same
 * answers (tests/queue/compressed.c). They read the last four bytes of each slot:
 *
 *   +60  be16 WQE counter
 *   +62  lap number of the enhanced layout
 *   +63  opcode << 4 | format, owner bit
 *
 * Threads: pure reads. The device may write the slots meanwhile: each is looked at once, and only
 * slots that were the caller's are counted. Fence before the CQEs are read.
 */
#ifndef INLAY_QUEUE_SCAN_H
#define INLAY_QUEUE_SCAN_H /* a trial: names may change */

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/cqe.h>

typedef uint32_t inlay_tail_ __attribute__((may_alias));

/* The last four bytes of slot i. */
INLAY_ALWAYS uint32_t inlay_scan_tail_(const uint8_t *slots, uint32_t stride, uint32_t i)
{
	return *(const volatile inlay_tail_ *)(const void *)(slots + (size_t)i * stride +
							    offsetof(struct mlx5_cqe64, wqe_counter));
}

/*
 * A slot is good if nothing is left of its tail by
 *
 *   ((tail ^ lap << 16) & (own << 16 | special)) + scatter 32) & (own << 16 | error | scatter 64 << 1)
 *
 * The sum carries out of the two format bits only if both are set.
 */
#define INLAY_SCAN_SPECIAL_ ((uint32_t)(INLAY_CQE_ERROR | INLAY_CQE_COMPRESSED) << 24)
#define INLAY_SCAN_ONE_ ((uint32_t)INLAY_CQE_SCATTER_32 << 24)
#define INLAY_SCAN_BAD_ ((uint32_t)(INLAY_CQE_ERROR | INLAY_CQE_SCATTER_64 << 1) << 24)
#define INLAY_SCAN_LEFT_(tail, lap, own) \
	(((((tail) ^ (lap) << 16) & ((own) << 16 | INLAY_SCAN_SPECIAL_)) + INLAY_SCAN_ONE_) & ((own) << 16 | INLAY_SCAN_BAD_))

/* Slots from `slots` on, at most n, that are the caller's and not special. lap, own: of inlay_cq. */
INLAY_ALWAYS uint32_t inlay_scan_by_1_(const uint8_t *slots, uint32_t stride, uint32_t n, uint32_t lap, uint32_t own)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		uint32_t tail = inlay_scan_tail_(slots, stride, i);

		if (INLAY_SCAN_LEFT_(tail, lap, own))
			break;
	}
	return i;
}

#ifndef __CUDA_ARCH__
/*
 * The vector forms, in the compilers' own vector language: what the caller builds for (SSE2,
 * SSE4.2, AVX2, AVX-512, NEON) decides the instructions.
 */
typedef uint32_t inlay_scan4_ __attribute__((vector_size(16)));
typedef uint32_t inlay_scan8_ __attribute__((vector_size(32)));

INLAY_ALWAYS uint32_t inlay_scan_by_4_(const uint8_t *slots, uint32_t stride, uint32_t n, uint32_t lap, uint32_t own)
{
	uint32_t i;

	for (i = 0; i + 4 <= n; i += 4) {
		const uint8_t *at = slots + (size_t)i * stride;
		inlay_scan4_ tails = {inlay_scan_tail_(at, stride, 0), inlay_scan_tail_(at, stride, 1),
				      inlay_scan_tail_(at, stride, 2), inlay_scan_tail_(at, stride, 3)};
		inlay_scan4_ good = (inlay_scan4_)(INLAY_SCAN_LEFT_(tails, lap, own) == 0);
#if defined(__x86_64__)
		typedef float floats __attribute__((vector_size(16)));
		uint32_t bad = (uint32_t)__builtin_ia32_movmskps((floats)good) ^ 0xf;

		if (bad)
			return i + (uint32_t)__builtin_ctz(bad);
#else
		typedef uint16_t narrow __attribute__((vector_size(8)));
		narrow short_good = __builtin_convertvector(good, narrow);
		uint64_t mask;

		__builtin_memcpy(&mask, &short_good, sizeof(mask));
		if (~mask)
			return i + (uint32_t)__builtin_ctzll(~mask) / 16;
#endif
	}
	return i + inlay_scan_by_1_(slots + (size_t)i * stride, stride, n - i, lap, own);
}

/* Eight at once, as long as all are good. */
INLAY_ALWAYS uint32_t inlay_scan_by_8_(const uint8_t *slots, uint32_t stride, uint32_t n, uint32_t lap, uint32_t own)
{
	uint64_t all[4];
	uint32_t i;

	for (i = 0; i + 8 <= n; i += 8) {
		const uint8_t *at = slots + (size_t)i * stride;
		inlay_scan8_ tails = {inlay_scan_tail_(at, stride, 0), inlay_scan_tail_(at, stride, 1),
				      inlay_scan_tail_(at, stride, 2), inlay_scan_tail_(at, stride, 3),
				      inlay_scan_tail_(at, stride, 4), inlay_scan_tail_(at, stride, 5),
				      inlay_scan_tail_(at, stride, 6), inlay_scan_tail_(at, stride, 7)};
		inlay_scan8_ left = INLAY_SCAN_LEFT_(tails, lap, own);

		__builtin_memcpy(all, &left, sizeof(all));
		if (all[0] | all[1] | all[2] | all[3])
			break;
	}
	return i + inlay_scan_by_4_(slots + (size_t)i * stride, stride, n - i, lap, own);
}
#endif

INLAY_ALWAYS uint32_t inlay_scan_stride_(const uint8_t *slots, uint32_t stride, uint32_t n, uint32_t lap, uint32_t own)
{
#if defined(__CUDA_ARCH__)
	return inlay_scan_by_1_(slots, stride, n, lap, own);
#elif defined(__AVX2__)
	return inlay_scan_by_8_(slots, stride, n, lap, own);
#else
	return inlay_scan_by_4_(slots, stride, n, lap, own);
#endif
}

/* The form to use; the two strides apart, so that addresses are constants. */
INLAY_APART uint32_t inlay_scan_(const uint8_t *slots, uint32_t stride, uint32_t n, uint32_t lap, uint32_t own)
{
	return stride == 64 ? inlay_scan_stride_(slots, 64, n, lap, own) : inlay_scan_stride_(slots, 128, n, lap, own);
}

INLAY_CASTS_END_
#endif
