/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/batch.h: the lengths and counters of many receives at once, for the CQ of a single
 * receive queue.
 *
 *   n = inlay_cq_decode(&cq, counters, lengths, 64);
 *   ... n receives: counters[i] says which one, lengths[i] how long it is. With n == 0,
 *   inlay_cq_peek then returns NULL or an error ...
 *   inlay_cq_update(&cq);
 *
 * Slots are tested four or eight at a time (scan.h). Compressed blocks are decoded without writing
 * them out. A loop over inlay_cq_peek and inlay_cq_advance_quiet, with one inlay_cq_update at its
 * end, serves all other CQs.
 *
 * Threads: as cq.h.
 */
#ifndef INLAY_QUEUE_BATCH_H
#define INLAY_QUEUE_BATCH_H /* a trial: names may change */

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/cqe.h>
#include <inlay/queue/cq.h>
#include <inlay/queue/scan.h>

/* Slots from the oldest completion to the end of the ring. */
INLAY_ALWAYS uint32_t inlay_cq_to_end_(const struct inlay_cq *cq)
{
	return cq->mask + 1 - (cq->ci & cq->mask);
}

/* How many completions there are, up to max, before one that is special (inlay_cqe_is_special). */
INLAY_ALWAYS uint32_t inlay_cq_count_(const struct inlay_cq *cq, uint32_t max)
{
	uint32_t n, to_end;

	INLAY_CHECK(cq, "the queue is not NULL");
	to_end = inlay_cq_to_end_(cq);
	if (max > cq->mask + 1)
		max = cq->mask + 1;
	n = inlay_scan_(cq->next, cq->stride, max < to_end ? max : to_end, cq->lap, cq->own);
	if (INLAY_UNLIKELY(n == to_end && n < max))
		n += inlay_scan_(cq->begin, cq->stride, max - n, inlay_cq_next_lap_(cq, cq->lap), cq->own);
	/* As in inlay_cq_peek. */
	inlay_fence_polled();
	return n;
}

/* Whether nothing follows the oldest completion. */
INLAY_ALWAYS int inlay_cq_alone_(const struct inlay_cq *cq)
{
	return !inlay_cq_valid_(cq, cq->ci + 1, inlay_cq_slot_(cq, cq->ci + 1));
}

INLAY_ALWAYS void inlay_cq_decode_run_(const uint8_t *slot, uint32_t stride, uint16_t *counters, uint32_t *lengths,
				       uint32_t n)
{
	uint32_t i;

	INLAY_UNROLL_(4)
	for (i = 0; i < n; i++, slot += stride) {
		const struct mlx5_cqe64 *cqe = (const struct mlx5_cqe64 *)(const void *)slot;

		counters[i] = inlay_cqe_wqe_counter(cqe);
		lengths[i] = inlay_cqe_byte_count(cqe);
	}
}

/*
 * Stores the lengths and counters of up to 8 receives. index: the mini CQEs hold the counters, as
 * stride indices; else each adds `step` and the strides under `mask`. Returns the next counter.
 */
INLAY_ALWAYS uint32_t inlay_cq_decode_minis_(const uint8_t *minis, uint32_t n, int index, uint32_t counter,
					     uint32_t step, uint32_t mask, uint16_t *counters, uint32_t *lengths)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		uint64_t mini;

		__builtin_memcpy(&mini, minis + 8 * i, sizeof(mini));
		mini = inlay_from_be64(mini);
		lengths[i] = (uint32_t)mini;
		counters[i] = (uint16_t)(index ? mini >> 32 : counter);
		counter += step + (lengths[i] >> 16 & mask);
	}
	return counter;
}

#ifndef __CUDA_ARCH__
/*
 * As above, eight at a time, with a step of 1. Also makes their slots, which are adjacent, the
 * caller's. The first eight mini CQEs lie at `minis`, the others in the slots of their own CQEs.
 * stride is a constant.
 */
INLAY_ALWAYS void inlay_cq_decode_arrays_(const uint8_t *minis, uint8_t *slots, uint32_t stride, uint8_t op_own,
					  uint32_t n, int index, uint32_t counter, uint16_t *counters,
					  uint32_t *lengths)
{
	typedef uint16_t words __attribute__((vector_size(16)));
	const words first = {0, 1, 2, 3, 4, 5, 6, 7};
	words all = first + (uint16_t)counter;
	uint32_t i, k;

	for (i = 0; i + INLAY_MINI_CQES <= n; i += INLAY_MINI_CQES) {
		inlay_scan4_ v[4];

		INLAY_UNROLL_(4)
		for (k = 0; k < 4; k++)
			__builtin_memcpy(&v[k], minis + 16 * k, sizeof(v[k]));
		INLAY_UNROLL_(2)
		for (k = 0; k < 2; k++) {
			words len = (words)__builtin_shufflevector(v[2 * k], v[2 * k + 1], 1, 3, 5, 7);

			len = __builtin_shufflevector(len, len, 1, 0, 3, 2, 5, 4, 7, 6);
			len = len << 8 | len >> 8;
			__builtin_memcpy(lengths + i + 4 * k, &len, sizeof(len));
		}
		if (index) {
			words low = (words)__builtin_shufflevector(v[0], v[1], 0, 2, 4, 6);
			words high = (words)__builtin_shufflevector(v[2], v[3], 0, 2, 4, 6);

			all = __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15);
			all = all << 8 | all >> 8;
		}
		/* The last byte of one of the slots is a mini CQE's, which has been read. */
		INLAY_UNROLL_(8)
		for (k = 0; k < INLAY_MINI_CQES; k++)
			slots[k * stride + 63] = op_own;
		__builtin_memcpy(counters + i, &all, sizeof(all));
		all += 8;
		slots += INLAY_MINI_CQES * stride;
		minis = slots;
	}
}
#endif

/* Decodes a compressed block of n receives. All its slots become the caller's. */
INLAY_APART void inlay_cq_decode_block_(struct inlay_cq *cq, struct mlx5_cqe64 *title, uint16_t *counters,
					uint32_t *lengths, uint32_t n)
{
	const uint8_t *array = (const uint8_t *)inlay_cq_slot_(cq, inlay_cq_minis_(cq, cq->ci));
	uint32_t i, k, m, to_end = inlay_cq_to_end_(cq), counter = inlay_cq_counter_(cq, title);
	uint32_t sum = cq->mini & INLAY_MINI_STRIDES ? INLAY_CQE_STRIDES_ : 0, step = !sum;
	int index = cq->mini > INLAY_MINI_CSUM && !sum;
	uint8_t *slot;

	inlay_cq_own_(cq, cq->ci, title);
	/* Whole arrays before the ring's end. The enhanced layout has none. */
#ifdef __CUDA_ARCH__
	m = 0;
#else
	m = sum ? 0 : (n < to_end ? n : to_end) & ~(INLAY_MINI_CQES - 1);
	if (cq->stride == 64)
		inlay_cq_decode_arrays_(array, cq->next, 64, title->op_own, m, index, counter, counters, lengths);
	else
		inlay_cq_decode_arrays_(array, cq->next, 128, title->op_own, m, index, counter, counters, lengths);
#endif
	counter += m;
	slot = cq->next + (size_t)m * cq->stride;
	for (i = m; i < n; i += m) {
		m = n - i < INLAY_MINI_CQES ? n - i : INLAY_MINI_CQES;
		if (i)
			array = (const uint8_t *)inlay_cq_slot_(cq, cq->ci + i);
		if (index)
			inlay_cq_decode_minis_(array, m, 1, 0, 0, 0, counters + i, lengths + i);
		else
			counter = inlay_cq_decode_minis_(array, m, 0, counter, step, sum, counters + i, lengths + i);
		for (k = 0; k < m; k++) {
			if (INLAY_UNLIKELY(slot == cq->end)) {
				slot = cq->begin;
				inlay_cq_own_(cq, cq->ci + i + k, title);
			}
			inlay_copy(slot + offsetof(struct mlx5_cqe64, signature), &title->signature, 2);
			slot += cq->stride;
		}
	}
	/* What the last slot holds may be the title of the next block. */
	title->wqe_counter = inlay_to_be16(counters[n - 1]);
	title->byte_cnt = inlay_to_be32(lengths[n - 1]);
	inlay_copy((void *)(uintptr_t)inlay_cq_slot_(cq, cq->ci + n - 1), title, sizeof(*title));
	/* The slots must be written before a record frees them. */
	inlay_fence_wqe_record();
}

/*
 * Takes up to max completions off a CQ that serves a single receive queue, and frees them without
 * telling the device: call inlay_cq_update afterwards. No payload may be scattered to its CQEs:
 * for raw packets, and QPs made with MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE.
 *
 * counters  inlay_cqe_wqe_counter of each
 * lengths   inlay_cqe_byte_count of each
 *
 * Returns how many. 0: there is none, or the next (inlay_cq_peek) is an error CQE, or a compressed
 * block that no device writes.
 */
INLAY_FN uint32_t inlay_cq_decode(struct inlay_cq *cq, uint16_t *counters, uint32_t *lengths, uint32_t max)
{
	uint32_t done, n, to_end;
	struct mlx5_cqe64 title;

	INLAY_CHECK(cq && ((counters && lengths) || !max), "no argument is NULL");
	for (done = 0; done < max; done += n) {
		const struct mlx5_cqe64 *cqe = inlay_cq_peek(cq);

		if (!cqe)
			break;
		if (!inlay_cqe_is_special(cqe) && (max - done == 1 || inlay_cq_alone_(cq))) {
			counters[done] = inlay_cqe_wqe_counter(cqe);
			lengths[done] = inlay_cqe_byte_count(cqe);
			inlay_cq_advance_quiet(cq, 1);
			return done + 1;
		}
		if (!inlay_cqe_is_special(cqe)) {
			n = inlay_cq_count_(cq, max - done);
			to_end = inlay_cq_to_end_(cq);
			to_end = n < to_end ? n : to_end;
			inlay_cq_decode_run_(cq->next, cq->stride, counters + done, lengths + done, to_end);
			inlay_cq_decode_run_(cq->begin, cq->stride, counters + done + to_end, lengths + done + to_end, n - to_end);
		} else {
			n = inlay_cqe_is_compressed(cqe) ? inlay_cq_block_(cq, cq->ci, &title) : 0;
			if (!n)
				break;
			if (n > max - done || cq->mini == INLAY_MINI_FTAG_STRIDX || title.op_own >> 4 == MLX5_CQE_REQ) {
				inlay_cq_unzip(cq);
				n = 0;
				continue;
			}
			inlay_cq_decode_block_(cq, &title, counters + done, lengths + done, n);
		}
		inlay_cq_advance_quiet(cq, n);
	}
	return done;
}

INLAY_CASTS_END_
#endif
