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
KERNELS(KERNEL)

extern "C" __global__ void test(struct inlay_gpu_sq *sq, uint32_t ticket, int *is)
{
	*is = inlay_gpu_test(sq, ticket);
}

extern "C" __global__ void poll(struct inlay_gpu_sq *sq, int *is)
{
	*is = inlay_gpu_poll(sq);
}
