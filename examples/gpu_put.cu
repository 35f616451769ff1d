/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_put: a kernel writes a million words through one send queue, 8 bytes at a time, by RDMA to the same host.
 *
 *   nvcc -std=c++17 -arch=sm_90 -Iinclude examples/gpu_put.cu -libverbs -lmlx5 -o gpu_put
 *   gpu_put [THREADS [WORDS]]              tests/softdev/run gpu_put: without a NIC
 *
 * Ring, record, CQE and data lie in pinned memory of the host; the doorbell register is mapped into the GPU.
 */
#include <cuda_runtime.h>
#include <inlay/devx.h>
#include <inlay/gpu.h>
#include "common/program.h"

#define MUST(call) must(!(call), #call)

enum { BBS = 1024, RECORDS = 0, CQE = 4096, RING = 8192, BYTES = RING + BBS * 64 };

/* Thread t of n writes the words t, t + n, t + 2n ... Returns early when the queue has failed. done: words that arrived */
__global__ void put(inlay_gpu_sq *sq, uint64_t *from, uint32_t lkey, uint64_t to, uint32_t rkey, uint32_t words, uint32_t *done)
{
	uint32_t threads = gridDim.x * blockDim.x, i, posted = 0, ticket = 0;
	inlay_sq part;
	int err;

	for (i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += threads) {
		inlay_wr wr = {};

		wr.raddr = to + 8ull * i, wr.rkey = rkey;
		wr.data = from + i, wr.len = 8, wr.lkey = lkey;
		while ((err = inlay_gpu_begin(sq, 1, &part)) == -EAGAIN)
			if (inlay_gpu_poll(sq) < 0)
				return;
		if (err)
			return;
		err = inlay_post(&part, MLX5_OPCODE_RDMA_WRITE, &wr, INLAY_SIGNALED);
		ticket = inlay_gpu_end(sq, &part); /* after a post that fails too: others wait for it */
		if (err)
			return;
		posted++;
	}
	if (!inlay_gpu_wait(sq, ticket))
		atomicAdd(done, posted);
}

/* Where the GPU sees memory of the host. */
static char *seen(void *host)
{
	void *at;

	MUST(cudaHostGetDevicePointer(&at, host, 0));
	return (char *)at;
}

int main(int argc, char **argv)
{
	uint32_t threads = argc > 1 ? (uint32_t)atoi(argv[1]) : 1024, words = argc > 2 ? (uint32_t)atoi(argv[2]) : 1000000, i, wrong = 0;
	int gpus = 0, devices = 0;

	threads = threads < 256 ? threads : (threads + 255) / 256 * 256; /* whole blocks */
	if (cudaGetDeviceCount(&gpus) != cudaSuccess || !gpus)
		die("there is no GPU");
	ibv_device **list = ibv_get_device_list(&devices);
	ibv_context *ctx;
	if (!devices || inlay_devx_open(list[0], &ctx))
		die("there is no mlx5 device that takes commands");
	ibv_pd *pd = ibv_alloc_pd(ctx);
	uint32_t pdn;
	MUST(inlay_pdn_from_pd(&pdn, pd));

	/* Memory of the queues, and a page of doorbell registers */
	char *mem;
	MUST(cudaHostAlloc((void **)&mem, BYTES, cudaHostAllocMapped));
	memset(mem, 0, BYTES);
	inlay_devx_umem umem;
	MUST(inlay_devx_umem_reg(&umem, ctx, mem, BYTES, IBV_ACCESS_LOCAL_WRITE, INLAY_DEVX_PAGE));
	inlay_devx_uar uar;
	MUST(inlay_devx_uar_alloc(&uar, ctx, MLX5DV_UAR_ALLOC_TYPE_NC, INLAY_UAR_DOORBELL));

	/* A CQ of one entry, and a QP that is connected to itself */
	inlay_devx_cq_attr ca = {};
	inlay_devx_cq cq;
	ca.ring.umem = ca.record.umem = &umem, ca.ring.offset = CQE, ca.record.offset = RECORDS;
	ca.uar = &uar, ca.cqes = 1, ca.flags = INLAY_DEVX_CQ_COLLAPSED;
	MUST(inlay_devx_cq_create(&cq, ctx, &ca));
	inlay_devx_qp_attr qa = {};
	inlay_devx_qp qp;
	qa.ring.umem = qa.record.umem = &umem, qa.ring.offset = RING, qa.record.offset = RECORDS + 64;
	qa.uar = &uar, qa.pdn = pdn, qa.send_cqn = qa.recv_cqn = inlay_cq_cqn(&cq.cq), qa.sq_bbs = BBS;
	MUST(inlay_devx_qp_create(&qp, ctx, &qa));
	inlay_devx_path path = inlay_devx_path_defaults();
	inlay_connect_record self;
	path.access = IBV_ACCESS_REMOTE_WRITE;
	MUST(inlay_devx_qp_address(&qp, &path, &self));
	MUST(inlay_devx_qp_connect(&qp, &path, &self));

	/* The data: what is sent, and where it goes */
	uint64_t *data;
	MUST(cudaHostAlloc((void **)&data, 16ull * words, cudaHostAllocMapped));
	for (i = 0; i < words; i++)
		data[i] = ~(uint64_t)i, data[words + i] = 0;
	ibv_mr *mr = ibv_reg_mr(pd, data, 16ull * words, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!mr)
		MUST(errno);

	/* The queue as the GPU sees it. IoMemory fails on a software device's page, which is plain memory: try without */
	if (cudaHostRegister(uar.page, 4096, cudaHostRegisterIoMemory | cudaHostRegisterMapped) != cudaSuccess && cudaGetLastError())
		MUST(cudaHostRegister(uar.page, 4096, cudaHostRegisterMapped));
	inlay_gpu_map map = {seen(mem) + RING, seen(mem) + RECORDS + 64, seen(uar.page) + ((char *)uar.uar.reg - (char *)uar.page),
			     seen(mem) + CQE};
	inlay_gpu_sq flat, *sq;
	MUST(inlay_gpu_sq_init(&flat, &qp.sq, &map));
	MUST(cudaMalloc((void **)&sq, sizeof(flat)));
	MUST(cudaMemcpy(sq, &flat, sizeof(flat), cudaMemcpyHostToDevice));

	uint32_t *count, done, index;
	MUST(cudaMalloc((void **)&count, sizeof(done)));
	MUST(cudaMemset(count, 0, sizeof(done)));
	cudaEvent_t begin, end;
	float ms;
	MUST(cudaEventCreate(&begin));
	MUST(cudaEventCreate(&end));
	MUST(cudaEventRecord(begin));
	put<<<(threads + 255) / 256, threads < 256 ? threads : 256>>>(sq, (uint64_t *)seen(data), mr->lkey, (uintptr_t)(data + words), mr->rkey,
								     words, count);
	MUST(cudaGetLastError());
	MUST(cudaEventRecord(end));
	MUST(cudaDeviceSynchronize());
	MUST(cudaEventElapsedTime(&ms, begin, end));
	MUST(cudaMemcpy(&flat, sq, sizeof(flat), cudaMemcpyDeviceToHost));
	MUST(cudaMemcpy(&done, count, sizeof(done), cudaMemcpyDeviceToHost));
	for (i = 0; i < words; i++)
		wrong += data[words + i] != data[i];
	printf("%u threads, %u writes in %.1f ms, %u wrong, syndrome %u\n", threads, done, (double)ms, wrong,
	       inlay_gpu_error(&flat, &index));
	return wrong || done != words;
}
