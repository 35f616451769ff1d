/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels that tests/gpu runs. Built for PTX alone: nothing here needs CUDA's runtime. */
#ifndef __CUDACC__ /* clang without a toolkit */
#define __global__ __attribute__((global))
#endif
#include <inlay/inlay.h>
#include <inlay/gpu.h>
#include <inlay/queue/masked.h>
#include "kernels.h"

/* A part of bbs WQEBBs with one post. out: what begin, post and end said. */
#define POST(name, call)                                                                                                         \
	extern "C" __global__ void name(struct inlay_gpu_sq *sq, const struct request *r, uint32_t bbs, struct answer *out)      \
	{                                                                                                                        \
		struct inlay_sq part;                                                                                            \
		int err = inlay_gpu_begin(sq, bbs, &part);                                                                       \
                                                                                                                                 \
		out->begin = err;                                                                                                \
		if (err)                                                                                                         \
			return;                                                                                                  \
		out->post = call;                                                                                                \
		out->ticket = inlay_gpu_end(sq, &part);                                                                          \
	}
#define KERNEL(name, type, post) POST(name, post)
#ifndef COUNTS_ONLY /* what example.t counts compiles faster without them */
KERNELS(KERNEL)
#endif

extern "C" __global__ void receives(struct receiver *me, const struct ibv_sge *sge, uint32_t num)
{
	receive(me, sge, num);
}

/* Each of the lanes writes 8 bytes of its own. */
extern "C" __global__ void warp_writes(struct inlay_gpu_sq *sq, uint32_t lanes, uint32_t bbs, struct answer *out, uint64_t raddr)
{
	struct inlay_sq part;

	out += inlay_lane_();
	raddr += inlay_lane_();
	out->begin = inlay_gpu_begin_warp(sq, lanes, bbs, &part);
	if (out->begin)
		return;
	out->post = inlay_post_write_inline(&part, raddr, 7, &raddr, 8, INLAY_SIGNALED);
	out->ticket = inlay_gpu_end_warp(sq, lanes, &part);
}

/* Whether one of the lanes says so */
__attribute__((device)) static inline int any(uint32_t lanes, int says)
{
	int is;

	asm volatile("{\n\t.reg .pred says;\n\tsetp.ne.b32 says, %1, 0;\n\tvote.sync.any.pred says, says, %2;\n\t"
		     "selp.b32 %0, 1, 0, says;\n\t}" : "=r"(is) : "r"(says), "r"(lanes));
	return is;
}

/* Looks at what the reads of n times 8 bytes brought. */
__attribute__((device)) static inline void brought(struct reader *me, uint32_t n, uint64_t raddr)
{
	for (uint32_t k = 0; k < n; k++)
		me->wrong += me->slot[k] != READ_ANSWER(raddr + 8 * k);
	me->done++;
}

/* Reads n times 8 bytes into slots from k on, by as many SGEs. */
__attribute__((device)) static inline int read_some(struct inlay_sq *part, struct reader *me, uint32_t k, uint64_t raddr, uint32_t n)
{
	struct ibv_sge sge[READ_SLOTS];

	for (uint32_t i = 0; i < READ_SLOTS; i++)
		sge[i].addr = (uintptr_t)&me->slot[(k + i) % READ_SLOTS], sge[i].length = 8, sge[i].lkey = READ_LKEY;
	return inlay_post_read(part, raddr, READ_RKEY(raddr), sge, n, INLAY_SIGNALED);
}

/* By turns: a read of one WQEBB, two of them, one of two WQEBBs. Every fourth part has a WQEBB too many. */
extern "C" __global__ void reads(struct inlay_gpu_sq *sq, struct reader *me, uint32_t thread)
{
	for (uint32_t i = 0; i < me->parts; i++) {
		uint32_t turn = (thread + i) % 3, n = 1 + turn, bbs = (turn ? 2 : 1) + (i % 4 == 3);
		uint64_t raddr = (uint64_t)thread << 32 | i << 8;
		struct inlay_sq part;

		while (inlay_gpu_begin(sq, bbs, &part) == -EAGAIN)
			if (inlay_gpu_poll(sq) < 0) {
				me->failed = 1;
				return;
			}
		if (turn == 2) {
			me->wrong += read_some(&part, me, 0, raddr, 3) != 0;
		} else {
			me->wrong += read_some(&part, me, 0, raddr, 1) != 0;
			if (turn)
				me->wrong += read_some(&part, me, 1, raddr + 8, 1) != 0;
		}
		if (inlay_gpu_wait(sq, inlay_gpu_end(sq, &part))) {
			me->failed = 1;
			return;
		}
		brought(me, n, raddr);
	}
}

/* Each of the lanes reads once per reservation; some have a WQEBB too many. They leave together. */
extern "C" __global__ void warp_reads(struct inlay_gpu_sq *sq, struct reader *me, uint32_t thread, uint32_t lanes)
{
	for (uint32_t i = 0; i < me->parts; i++) {
		uint64_t raddr = (uint64_t)thread << 32 | i << 8;
		struct inlay_sq part;
		int err;

		do
			err = inlay_gpu_begin_warp(sq, lanes, 1 + i % 2, &part);
		while (err == -EAGAIN);
		if (!err) {
			me->wrong += read_some(&part, me, 0, raddr, 1) != 0;
			err = inlay_gpu_wait(sq, inlay_gpu_end_warp(sq, lanes, &part));
			if (!err)
				brought(me, 1, raddr);
			err = any(lanes, err);
		}
		if (err) {
			me->failed = 1;
			return;
		}
	}
}

/* What test_counts counts: with the post's arguments in registers, and nothing looked at. */
#define COUNT(name, begin, call, end)                                                                                            \
	extern "C" __global__ void name(struct inlay_gpu_sq *sq, uint64_t raddr, uint32_t rkey, uint64_t value, uint32_t lkey)   \
	{                                                                                                                        \
		struct inlay_wr wr = {};                                                                                         \
		struct inlay_sq part;                                                                                            \
                                                                                                                                 \
		wr.raddr = raddr, wr.rkey = rkey, wr.data = (const void *)(uintptr_t)value, wr.len = 8, wr.lkey = lkey;        \
		if (begin)                                                                                                       \
			return;                                                                                                  \
		(void)!(call);                                                                                                   \
		end;                                                                                                             \
	}
#define COUNT_ONE(name, call) COUNT(name, inlay_gpu_begin(sq, 1, &part), call, inlay_gpu_end(sq, &part))
COUNT_ONE(count_write, inlay_post(&part, MLX5_OPCODE_RDMA_WRITE, &wr, INLAY_SIGNALED))
COUNT_ONE(count_inline, inlay_post_write_inline(&part, wr.raddr, wr.rkey, &value, 8, INLAY_SIGNALED))
COUNT_ONE(count_add, inlay_post_atomic(&part, inlay_atomic_add(7), &wr, INLAY_SIGNALED))
COUNT(count_warp, inlay_gpu_begin_warp(sq, 0xffffffff, 1, &part), inlay_post(&part, MLX5_OPCODE_RDMA_WRITE, &wr, INLAY_SIGNALED),
      inlay_gpu_end_warp(sq, 0xffffffff, &part))

extern "C" __global__ void test(struct inlay_gpu_sq *sq, uint32_t ticket, int *is)
{
	*is = inlay_gpu_test(sq, ticket);
}

extern "C" __global__ void count_poll(struct inlay_gpu_sq *sq)
{
	(void)!inlay_gpu_poll(sq);
}

extern "C" __global__ void poll(struct inlay_gpu_sq *sq, int *is)
{
	uint32_t index;

	is[0] = inlay_gpu_poll(sq);
	is[1] = (int)inlay_gpu_pending(sq);
	is[2] = (int)inlay_gpu_error(sq, &index);
	is[3] = (int)index;
}

extern "C" __global__ void reset(struct inlay_gpu_sq *sq)
{
	inlay_gpu_reset(sq);
}
