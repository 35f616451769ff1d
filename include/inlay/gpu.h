/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/gpu.h: a send queue that the threads of a CUDA kernel share. They post with the functions of
 * queue/post.h and queue/atomic.h, compiled for the GPU by nvcc or clang.
 *
 *   while ((err = inlay_gpu_begin(sq, 1, &part)) == -EAGAIN)             one WQEBB of the ring
 *           if (inlay_gpu_poll(sq) < 0)
 *                   return;                                          the queue has failed
 *   err = inlay_post(&part, MLX5_OPCODE_RDMA_WRITE, &wr, INLAY_SIGNALED);
 *   ticket = inlay_gpu_end(sq, &part);                               published; rung if it is the last
 *   err = err ? err : inlay_gpu_wait(sq, ticket);
 *
 * A part of the ring is an ordinary struct inlay_sq in registers. A thread reserves it when there is
 * room, fills it, and publishes it in the order of reservation. If nobody has reserved behind it, it
 * rings for all. So between begin and end a thread must not wait, and it must call end even after a
 * post that failed. WQEBBs that it leaves unfilled become NOPs.
 *
 * The CQ is collapsed (INLAY_DEVX_CQ_COLLAPSED): its one CQE names the latest signaled WQE. Signal
 * the last WQE of each part, or wait for later tickets only. An unsignaled part is freed by a later
 * signaled one; a ring full of unsignaled parts stays full.
 *
 * Set-up, on the CPU. Ring, record and CQE lie in memory that device and GPU reach, here the host's.
 * What reads and atomics bring belongs in the same: PCIe orders no write to it with one elsewhere.
 *
 *   cudaHostAlloc(&mem, bytes, cudaHostAllocMapped), cudaHostGetDevicePointer(&gmem, mem, 0);
 *   cudaHostRegister(uar.page, 4096, cudaHostRegisterIoMemory | cudaHostRegisterMapped);
 *   cudaHostGetDevicePointer(&gpage, uar.page, 0);
 *   map.ring = gmem + ring_offset, map.record = gmem + record_offset, map.cqe = gmem + cqe_offset;
 *   map.reg = gpage + (uar.uar.reg - uar.page);
 *   err = inlay_gpu_sq_init(&flat, &qp.sq, &map);
 *   cudaMalloc(&sq, sizeof(flat)), cudaMemcpy(sq, &flat, sizeof(flat), cudaMemcpyHostToDevice);
 *
 * In GPU memory, the data too, with INLAY_GPU_SCOPE defined as "gpu" (cheaper fences):
 *
 *   cudaMalloc(&gmem, bytes);
 *   cuMemGetHandleForAddressRange(&fd, gmem, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
 *   err = inlay_devx_umem_reg_dmabuf(&umem, ctx, fd, 0, bytes, IBV_ACCESS_LOCAL_WRITE, INLAY_DEVX_PAGE);
 *   umem.addr = ...                                            by gdr_map of GDRCopy: set-up writes there
 *
 * A GPU that cannot map the register writes doorbells to a word, which a thread of the CPU forwards
 * (inlay_gpu_forward). What a kernel can post: tuning.md. Other CQs are one thread's (inlay_cq_peek).
 *
 * Threads: any number, of one GPU, or of the CPU. Needs PTX ISA 8.2 (nvcc of CUDA 12.2, or a clang
 * that writes it) and compute capability 7.0. It has not run on a GPU yet: tests/gpu interprets
 * compiled kernels. Sources: PTX ISA, "Memory Consistency Model"; queue/sq.h; base.h's table of fences.
 */
#ifndef INLAY_GPU_H
#define INLAY_GPU_H /* a trial: names may change */

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/cqe.h>
#include <inlay/queue/atomic.h>
#include <inlay/queue/post.h>
#include <inlay/queue/sq.h>

/* Flat: copy it to the GPU. The counters are on lines of their own. */
struct inlay_gpu_sq {
	struct inlay_sq part;   /* what parts begin as; part.buf is the ring */
	uint32_t *record;       /* its send word */
	uint64_t *reg;
	uint8_t *cqe;
	uint32_t reserved __attribute__((aligned(128)));
	uint32_t published __attribute__((aligned(128)));
	uint32_t done __attribute__((aligned(128)));
	uint32_t error;         /* of the first error CQE seen: counter << 16 | 0x100 | syndrome */
};

/* Where the threads that post see each. */
struct inlay_gpu_map {
	void *ring, *record; /* record: two words, receive then send */
	void *reg;           /* the register, or the word of inlay_gpu_forward */
	void *cqe;           /* of the collapsed CQ */
};

/* ---- Set-up ---- */

/*
 * Fills *gpu for a send queue that nothing was posted to since its QP was last reset, and that nothing
 * else posts to from now on. map: ring and CQE 64-byte, reg 8-byte, record 4-byte aligned; not kept.
 * Returns 0, -EINVAL for a pointer that is NULL or misaligned, -EBUSY if something was posted.
 */
INLAY_COLD INLAY_RESULT int inlay_gpu_sq_init(struct inlay_gpu_sq *gpu, const struct inlay_sq *sq,
					      const struct inlay_gpu_map *map)
{
	if (!map->ring || !map->cqe || !map->record || !map->reg || (uintptr_t)map->record % 4 || (uintptr_t)map->reg % 8 ||
	    ((uintptr_t)map->ring | (uintptr_t)map->cqe) % 64)
		return -EINVAL;
	if (inlay_sq_index(sq))
		return -EBUSY;
	__builtin_memset(gpu, 0, sizeof(*gpu));
	gpu->part = *sq; /* INLAY_CHECK tests part.uar; nothing on a GPU follows it */
	gpu->part.buf = gpu->part.last = (uint8_t *)map->ring;
	gpu->part.end = gpu->part.buf + ((size_t)sq->mask + 1) * INLAY_WQEBB;
	gpu->record = (uint32_t *)map->record + MLX5_SND_DBR;
	gpu->reg = (uint64_t *)map->reg;
	gpu->cqe = (uint8_t *)map->cqe;
	return 0;
}

/*
 * Restores the state of inlay_gpu_sq_init between the reset of the QP and its next connection
 * (recovery.md). For one thread of the side that posts, while no other uses the queue or its tickets.
 */
INLAY_FN void inlay_gpu_reset(struct inlay_gpu_sq *gpu)
{
	gpu->reserved = gpu->published = gpu->done = gpu->error = 0;
	*gpu->record = 0;
	gpu->cqe[63] = MLX5_CQE_INVALID << 4;
}

/*
 * Forwards the GPU's latest doorbell, if any; returns whether it did. A thread of the CPU, alone with
 * the register, calls it in a loop. word: map.reg, in the host's memory; 0 at first and when reset.
 */
INLAY_COLD int inlay_gpu_forward(uint64_t *word, struct inlay_uar *uar)
{
	uint64_t doorbell;

	if (!INLAY_LOAD_(word))
		return 0;
	doorbell = __atomic_exchange_n(word, 0, __ATOMIC_RELAXED);
	inlay_fence_polled();
	inlay_fence_record_reg();
	INLAY_STORE_((inlay_doorbell *)(void *)uar->reg, doorbell);
	inlay_fence_reg();
	return 1;
}

/* ---- Data path: completion ---- */

/* Looks at the CQE. Returns 1 when more WQEs are done than before, 0, or -EIO if the queue has failed. */
INLAY_ALWAYS INLAY_RESULT int inlay_gpu_poll(struct inlay_gpu_sq *sq)
{
	const inlay_word_ *latest = (const inlay_word_ *)(const void *)(sq->cqe + 60);
	uint32_t done = inlay_gpu_load_(&sq->done, 0), none = 0, word = INLAY_LOAD_(latest), syndrome, at;

	if (INLAY_UNLIKELY(word >> 24 & INLAY_CQE_ERROR)) {
		if (word >> 28 == MLX5_CQE_INVALID)
			return 0;
		do { /* a later error CQE may overwrite this one meanwhile */
			at = word;
			inlay_fence_polled();
			syndrome = INLAY_LOAD_(&sq->cqe[55]);
			inlay_fence_polled();
			word = INLAY_LOAD_(latest);
		} while (INLAY_UNLIKELY(word != at));
		inlay_gpu_cas_(&sq->error, &none, (uint32_t)inlay_from_be16((uint16_t)word) << 16 | 0x100u | syndrome);
		return -EIO;
	}
	/* The counter is less than a ring (at most 2^15 WQEBBs) ahead of done, or behind it. */
	at = (uint16_t)(inlay_from_be16((uint16_t)word) - done);
	if (at > sq->part.mask)
		return 0;
	inlay_fence_polled();
	at += done;
	at += ((sq->part.buf[(size_t)(at & sq->part.mask) * INLAY_WQEBB + 7] & 0x3fu) + 3) / 4;
	/* Had done moved meanwhile, the WQE might be another by now; then the exchange fails. */
	inlay_gpu_cas_(&sq->done, &done, at);
	return 1;
}

/*
 * Whether everything before a ticket is done. Returns 1; 0; -EIO if the queue has failed (it may have
 * been done); -EINVAL beyond what was reserved or 2^31 WQEBBs ago. Another queue's may look valid.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_gpu_test(struct inlay_gpu_sq *sq, uint32_t ticket)
{
	int moved;

	if ((int32_t)(inlay_gpu_load_(&sq->done, 1) - ticket) >= 0)
		return 1;
	if (INLAY_UNLIKELY((int32_t)(inlay_gpu_load_(&sq->reserved, 0) - ticket) < 0))
		return -EINVAL;
	moved = inlay_gpu_poll(sq);
	return moved <= 0 ? moved : (int32_t)(inlay_gpu_load_(&sq->done, 1) - ticket) >= 0;
}

/* Waits until everything before a ticket is done. Returns 0, or -EIO or -EINVAL as inlay_gpu_test. */
INLAY_ALWAYS INLAY_RESULT int inlay_gpu_wait(struct inlay_gpu_sq *sq, uint32_t ticket)
{
	int done;

	while (!(done = inlay_gpu_test(sq, ticket)))
		inlay_relax();
	return done < 0 ? done : 0;
}

/* WQEBBs reserved and not seen done. */
INLAY_ALWAYS uint32_t inlay_gpu_pending(const struct inlay_gpu_sq *sq)
{
	uint32_t done = inlay_gpu_load_(&sq->done, 1);

	return inlay_gpu_load_(&sq->reserved, 0) - done;
}

/*
 * Why the queue failed. Returns the syndrome of the first error CQE that a thread saw and sets *index
 * to its WQE's, or returns 0. MLX5_CQE_SYNDROME_WR_FLUSH_ERR: a WQE before it failed, unseen.
 */
INLAY_FN uint32_t inlay_gpu_error(const struct inlay_gpu_sq *sq, uint32_t *index)
{
	uint32_t error = inlay_gpu_load_(&sq->error, 0), done = inlay_gpu_load_(&sq->done, 0);

	*index = done + (uint16_t)((error >> 16) - done);
	return error & 0xff;
}

/* ---- Data path: parts of the ring ---- */

/* Reserves bbs WQEBBs from *at on. mask: the ring's. Returns whether there was room. */
INLAY_ALWAYS int inlay_gpu_reserve_(struct inlay_gpu_sq *sq, uint32_t mask, uint32_t bbs, uint32_t *at)
{
	*at = inlay_gpu_load_(&sq->reserved, 0);
	do {
		if (INLAY_UNLIKELY(*at + (bbs - 1) - inlay_gpu_load_(&sq->done, 1) > mask))
			return 0;
	} while (INLAY_UNLIKELY(!inlay_gpu_cas_(&sq->reserved, at, *at + bbs)));
	return 1;
}

INLAY_ALWAYS void inlay_gpu_part_(const struct inlay_gpu_sq *sq, uint32_t mask, uint32_t at, uint32_t bbs, struct inlay_sq *part)
{
	*part = sq->part;
	part->mask = mask; /* stays in a register; the next line folds */
	part->unrung = part->copy_max = part->last_ds = 0;
	part->pi = part->short_from = at;
	part->pending = mask - (bbs - 1);
}

/* Fills `left` WQEBBs with NOPs, the last one signaled. Returns that one's first 8 bytes. */
INLAY_APART uint64_t inlay_gpu_nops_(uint8_t *ring, uint32_t mask, uint64_t qpn8, uint32_t at, uint32_t left)
{
	uint8_t *wqe;

	INLAY_UNROLL_(1)
	do {
		wqe = ring + (size_t)(at & mask) * INLAY_WQEBB;
		inlay_wqe_ctrl(wqe, at++, MLX5_OPCODE_NOP, qpn8, 1, left == 1 ? INLAY_SIGNALED : 0, 0);
	} while (--left);
	return *(const inlay_pair_ *)(const void *)wqe;
}

/* Completes a part. Returns the first 8 bytes of its last WQE. */
INLAY_ALWAYS uint64_t inlay_gpu_fill_(const struct inlay_sq *part)
{
	uint32_t left = inlay_sq_room(part);

	if (INLAY_UNLIKELY(left))
		return inlay_gpu_nops_(part->buf, part->mask, part->qpn8, part->pi, left);
	return *(const inlay_pair_ *)(const void *)part->last;
}

/* Publishes [at, end), and rings if nobody has reserved behind it. */
INLAY_ALWAYS void inlay_gpu_publish_(struct inlay_gpu_sq *sq, uint32_t at, uint32_t end, uint64_t doorbell)
{
	uint32_t *record = sq->record;
	uint64_t *reg = sq->reg;
	int last;

	while (INLAY_UNLIKELY(inlay_gpu_load_(&sq->published, 0) != at))
		inlay_relax();
	/* The WQEs of this part, and of all that were published before it, precede the record. */
	inlay_fence_wqe_record();
	last = inlay_gpu_load_(&sq->reserved, 0) == end;
	if (last) {
		INLAY_STORE_(record, inlay_to_be32(end & 0xffff));
		inlay_fence_record_reg();
		inlay_gpu_doorbell_(reg, doorbell);
	}
	/* Releases, so that this doorbell precedes the next publisher's, to the same location. */
	inlay_gpu_store_(&sq->published, end, last);
}

/*
 * Reserves bbs WQEBBs, 1 to the ring's size, as a send queue of their own. Post to it, then call
 * inlay_gpu_end. A post that does not fit returns -EAGAIN and writes nothing. Never ring it.
 * Returns 0; -EAGAIN without room before a further inlay_gpu_poll; -EINVAL for a bbs that never fits.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_gpu_begin(struct inlay_gpu_sq *sq, uint32_t bbs, struct inlay_sq *part)
{
	uint32_t mask = sq->part.mask, at;

	if (INLAY_UNLIKELY(bbs - 1 > mask))
		return -EINVAL;
	if (INLAY_UNLIKELY(!inlay_gpu_reserve_(sq, mask, bbs, &at)))
		return -EAGAIN;
	inlay_gpu_part_(sq, mask, at, bbs, part);
	return 0;
}

/* Hands a part to the device. Returns the ticket to wait for. */
INLAY_ALWAYS uint32_t inlay_gpu_end(struct inlay_gpu_sq *sq, const struct inlay_sq *part)
{
	uint32_t end = part->pi + inlay_sq_room(part);
	uint64_t doorbell = inlay_gpu_fill_(part);

	inlay_gpu_publish_(sq, inlay_sq_rung(part), end, doorbell);
	return end;
}

/*
 * As inlay_gpu_begin and inlay_gpu_end, with one reservation and one doorbell for several lanes of a
 * warp: each gets a part of bbs WQEBBs. lanes: mask of those that call both, with the same arguments;
 * on a CPU, 1. All get the same result. begin_warp polls by itself: it also returns -EIO when the
 * queue has failed. As posts and inlay_gpu_wait may differ, the lanes leave by a vote:
 *
 *   while ((err = inlay_gpu_begin_warp(sq, lanes, 1, &part)) == -EAGAIN)
 *           ;
 *   if (err)
 *           return;
 *   err = inlay_post(&part, MLX5_OPCODE_RDMA_WRITE, &wr, INLAY_SIGNALED);
 *   if (__any_sync(lanes, inlay_gpu_wait(sq, inlay_gpu_end_warp(sq, lanes, &part)) || err))
 *           return;
 */
INLAY_ALWAYS INLAY_RESULT int inlay_gpu_begin_warp(struct inlay_gpu_sq *sq, uint32_t lanes, uint32_t bbs, struct inlay_sq *part)
{
	uint32_t mask = sq->part.mask, at = 0, lane = inlay_lane_(), n = INLAY_ONES_(lanes);
	int err = 0;

	if (lanes >> lane == 1) { /* the last, which has the last part */
		if (bbs - 1 > mask || n * bbs - 1 > mask)
			err = -EINVAL;
		else if (!inlay_gpu_reserve_(sq, mask, n * bbs, &at))
			err = inlay_gpu_poll(sq) < 0 ? -EIO : -EAGAIN;
	}
	inlay_lanes_meet_(lanes); /* all may write where one saw room */
	err = (int)inlay_of_last_(lanes, (uint32_t)err);
	at = inlay_of_last_(lanes, at);
	if (INLAY_UNLIKELY(err))
		return err;
	inlay_gpu_part_(sq, mask, at + INLAY_ONES_(lanes & ((1u << lane) - 1)) * bbs, bbs, part);
	return 0;
}

/* Hands over the parts of all lanes. Returns the ticket of all. */
INLAY_ALWAYS uint32_t inlay_gpu_end_warp(struct inlay_gpu_sq *sq, uint32_t lanes, const struct inlay_sq *part)
{
	uint32_t end = part->pi + inlay_sq_room(part), bbs = end - inlay_sq_rung(part), lane = inlay_lane_();
	uint64_t doorbell = inlay_gpu_fill_(part);

	inlay_lanes_meet_(lanes);
	if (lanes >> lane == 1)
		inlay_gpu_publish_(sq, end - INLAY_ONES_(lanes) * bbs, end, doorbell);
	return end + INLAY_ONES_(lanes >> lane >> 1) * bbs;
}

INLAY_CASTS_END_
#endif
