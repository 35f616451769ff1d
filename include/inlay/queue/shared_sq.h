/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/shared_sq.h: one send queue for several threads. A thread reserves a part of the ring,
 * fills it with any posts, and publishes it; one of them rings for all.
 *
 *   struct inlay_shared_sq shared;
 *   struct inlay_sq part;
 *
 *   inlay_shared_sq_init(&shared, &sq);                        sq is shared.sq from now on
 *   ...
 *   if (!inlay_shared_sq_reserve(&shared, 3, &part)) {         3 WQEBBs of its own
 *           inlay_post_write(&part, raddr, rkey, &sge, 1, 0);
 *           inlay_post_send_inline(&part, data, 8, INLAY_SIGNALED);
 *           inlay_shared_sq_publish(&shared, &part);           the third becomes a NOP
 *           inlay_shared_sq_ring(&shared);
 *   }
 *   ...
 *   inlay_shared_sq_release(&shared, cqe);                     by the owner of the CQ
 *
 *        done              published          reserved
 *   -----|-----------------|------------------|--------------
 *        the device's       being filled       free
 *
 * Invariants:
 *   - The device never sees a WQE before all WQEs in front of it are filled: parts are published in
 *     the order of their reservation, and only what is published is rung for.
 *   - A part lives in the caller's registers or stack, like a burst (sq.h). It is neither rung nor
 *     released, and every part that was reserved is published.
 *   - Threads that reserved later wait in publish for a slow one.
 *   - What is left of a part becomes NOPs. With moderated signaling, the part's last post counts for
 *     them: inlay_sq_signal(&part, inlay_sq_room(&part), every).
 *   - Rings are 8-byte doorbells. Queues of several threads on one register still need
 *     INLAY_UAR_LOCKED; a register with this queue alone may be INLAY_UAR_SERIAL.
 *
 * Threads: reserve, publish and ring from any thread at any time; release from one at a time.
 * Sources: as sq.h; the doorbells of NVSHMEM's IBGDA have this order too.
 */
#ifndef INLAY_QUEUE_SHARED_SQ_H
#define INLAY_QUEUE_SHARED_SQ_H

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
#include <inlay/queue/post.h>
#include <inlay/queue/sq.h>

/* A shared send queue, aligned to a cache line. Indices count WQEBBs and are never masked. */
struct inlay_shared_sq {
	struct inlay_sq sq;                                            /* does not change */
	uint32_t reserved __attribute__((aligned(INLAY_CACHE_LINE)));
	uint64_t published __attribute__((aligned(INLAY_CACHE_LINE))); /* and, in the lower half, the last WQE's index */
	uint32_t lock;                                                 /* of ringing */
	uint32_t rung;
	uint32_t done __attribute__((aligned(INLAY_CACHE_LINE)));
};

/*
 * Takes over a queue that has nothing pending. From now on shared->sq is the queue, also for
 * inlay_sq_fini. After ibv_modify_qp to RESET: inlay_sq_reset(&shared->sq), then this function again
 * with &shared->sq.
 */
INLAY_COLD void inlay_shared_sq_init(struct inlay_shared_sq *shared, const struct inlay_sq *sq)
{
	struct inlay_sq taken;

	INLAY_CHECK(shared && sq, "queues are not NULL");
	INLAY_CHECK(!sq->pending && !sq->unrung, "nothing is pending");
	taken = *sq;
	__builtin_memset(shared, 0, sizeof(*shared));
	shared->sq = taken;
	shared->reserved = shared->done = shared->rung = taken.pi;
	shared->published = (uint64_t)taken.pi << 32;
}

/* A queue, field by field: of an assignment some compilers make a call. */
INLAY_ALWAYS void inlay_shared_sq_copy_(struct inlay_sq *to, const struct inlay_sq *from)
{
	to->buf = from->buf;
	to->end = from->end;
	to->last = from->last;
	to->dbrec = from->dbrec;
	to->next = from->next;
	to->qpn8 = from->qpn8;
	to->mask = from->mask;
	to->pi = from->pi;
	to->copy_max = from->copy_max;
	to->pending = from->pending;
	to->last_ds = from->last_ds;
	to->unrung = from->unrung;
	to->uar = from->uar;
	to->reg_size = from->reg_size;
	to->short_from = from->short_from;
	to->max_ds = from->max_ds;
	to->atomics = from->atomics;
	to->type = from->type;
	to->cq = from->cq;
	to->verbs = from->verbs;
	to->reserved = from->reserved;
	to->min_inline = from->min_inline;
	to->multi_packet = from->multi_packet;
}

INLAY_STATIC_ASSERT(sizeof(struct inlay_sq) == 128, "inlay_shared_sq_copy_ knows every field");

/*
 * Reserves `bbs` WQEBBs of the ring, and makes *part a queue with room for exactly them. Publish
 * it soon. From any thread; no two parts overlap.
 *
 * Returns 0; -EAGAIN when the ring has no room for them now, -E2BIG when it never will.
 */
INLAY_ALWAYS int inlay_shared_sq_reserve(struct inlay_shared_sq *shared, uint32_t bbs, struct inlay_sq *part)
{
	uint32_t at, size;

	INLAY_CHECK(shared && part, "queue and part are not NULL");
	INLAY_CHECK(bbs, "a part has a WQEBB at least");
	inlay_shared_sq_copy_(part, &shared->sq); /* before any return, or callers are warned that it is not set */
	size = shared->sq.mask + 1;
	if (INLAY_UNLIKELY(bbs > size))
		return -E2BIG;
	at = __atomic_load_n(&shared->reserved, __ATOMIC_RELAXED);
	do {
		/* Whoever released these WQEBBs has read them for the last time. */
		while (INLAY_UNLIKELY(at + bbs - __atomic_load_n(&shared->done, __ATOMIC_ACQUIRE) > size)) {
			uint32_t before = at;

			/* If others have reserved meanwhile, done may be ahead of `at`. */
			at = __atomic_load_n(&shared->reserved, __ATOMIC_RELAXED);
			if (at == before) {
				INLAY_PROBE_(full, (uint32_t)(shared->sq.qpn8 >> 8), at - shared->done, bbs);
				return -EAGAIN;
			}
		}
	} while (INLAY_UNLIKELY(!__atomic_compare_exchange_n(&shared->reserved, &at, at + bbs, 1, __ATOMIC_RELAXED,
							     __ATOMIC_RELAXED)));
	part->pi = at;
	part->pending = size - bbs;
	part->unrung = 0;
	part->reserved = at; /* where it begins */
	return 0;
}

/*
 * Publishes a part. From the thread that has it; waits until all parts reserved before it are
 * published. What is left of it is filled with NOPs.
 */
INLAY_ALWAYS void inlay_shared_sq_publish(struct inlay_shared_sq *shared, struct inlay_sq *part)
{
	INLAY_CHECK(shared && part, "queue and part are not NULL");
	INLAY_CHECK(part->buf == shared->sq.buf, "the part is of this queue");
	INLAY_CHECK(part->pi - part->unrung == part->reserved, "a part is not rung");
	while (inlay_sq_room(part))
		inlay_had_room_(inlay_post(part, MLX5_OPCODE_NOP, NULL, 0));
	/* Every thread's WQEs, and not only those of the thread that rings, come before the record. */
	inlay_fence_wqe_record();
	while ((uint32_t)(__atomic_load_n(&shared->published, __ATOMIC_ACQUIRE) >> 32) != part->reserved)
		inlay_relax();
	__atomic_store_n(&shared->published, (uint64_t)part->pi << 32 | (part->pi - (part->last_ds + 3) / 4),
			 __ATOMIC_SEQ_CST);
}

/*
 * Rings for everything published. From any thread. If another thread is ringing, it rings for this
 * one's parts too, and this returns at once. Returns 0.
 */
INLAY_FN int inlay_shared_sq_ring(struct inlay_shared_sq *shared)
{
	uint8_t doorbell[8];
	uint64_t published;
	uint32_t end;

	INLAY_CHECK(shared, "the queue is not NULL");
	/*
	 * Sequentially consistent throughout: either the exchange below fails and the thread that
	 * has the lock still looks at what is published, or that thread has seen it already.
	 */
	while (!__atomic_exchange_n(&shared->lock, 1, __ATOMIC_SEQ_CST)) {
		published = __atomic_load_n(&shared->published, __ATOMIC_SEQ_CST);
		end = (uint32_t)(published >> 32);
		if (end != shared->rung) {
			/* Read before the record: once the device knows of the WQE, it may be overwritten. */
			__builtin_memcpy(doorbell, inlay_sq_wqe(&shared->sq, (uint32_t)published), sizeof(doorbell));
			inlay_sq_record_(&shared->sq, end);
			inlay_sq_doorbell_(&shared->sq, doorbell, 0);
			__atomic_store_n(&shared->rung, end, __ATOMIC_RELEASE);
		}
		__atomic_exchange_n(&shared->lock, 0, __ATOMIC_SEQ_CST);
		if ((uint32_t)(__atomic_load_n(&shared->published, __ATOMIC_SEQ_CST) >> 32) == end)
			break;
	}
	return 0;
}

/* WQEBBs reserved and not yet given back. */
INLAY_FN uint32_t inlay_shared_sq_pending(const struct inlay_shared_sq *shared)
{
	uint32_t done = __atomic_load_n(&shared->done, __ATOMIC_RELAXED);

	return __atomic_load_n(&shared->reserved, __ATOMIC_RELAXED) - done;
}

/*
 * Gives back the credit of the WQE that a send completion names, and of all before it, by one thread
 * at a time. Returns as inlay_sq_release.
 *
 * Other threads may post with the credit at once, while the CQE named still has its slot. So either
 * free the CQE first (inlay_cq_advance) and pass a copy, or reserve one more in the CQ for each that
 * is freed after its release (inlay_cq_reserve): else a full CQ can overrun.
 */
INLAY_FN int inlay_shared_sq_release(struct inlay_shared_sq *shared, const struct mlx5_cqe64 *cqe)
{
	uint32_t begin, named, there, freed = 0, bbs;

	INLAY_CHECK(shared && cqe, "queue and CQE are not NULL");
	if (INLAY_UNLIKELY(!inlay_cqe_is_send(cqe)))
		return -EPROTO;
	if (INLAY_CHECKED && inlay_cqe_qpn(cqe) != inlay_sq_qpn(&shared->sq))
		return -EPROTO;
	begin = __atomic_load_n(&shared->done, __ATOMIC_RELAXED);
	there = (uint32_t)(__atomic_load_n(&shared->published, __ATOMIC_ACQUIRE) >> 32) - begin;
	named = (uint16_t)(inlay_cqe_wqe_counter(cqe) - begin);
	do {
		if (INLAY_UNLIKELY(freed > named || freed >= there))
			return -EPROTO;
		bbs = inlay_sq_bbs_(&shared->sq, begin + freed);
		if (INLAY_UNLIKELY(!bbs))
			return -EPROTO;
		freed += bbs;
	} while (freed - bbs != named);
	if (INLAY_UNLIKELY(freed > there))
		return -EPROTO;
	__atomic_store_n(&shared->done, begin + freed, __ATOMIC_RELEASE);
	return (int)freed;
}

#endif
