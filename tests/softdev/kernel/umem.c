/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * umem.c: memory that a program registers so that its commands can name it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "kernel.h"

#define PAGE 4096ull

/* EBADF: no fd; EINVAL: no dma-buf */
static int map_dmabuf(struct sd_umem *u, int fd, uint64_t offset)
{
	char path[32], is[64] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, is, sizeof(is) - 1) < 0)
		return EBADF;
	if (strncmp(is, "/dmabuf:", 8) != 0)
		return EINVAL;
	u->mapped = mmap(NULL, offset % PAGE + u->length, u->access & IBV_ACCESS_LOCAL_WRITE ? PROT_READ | PROT_WRITE : PROT_READ,
			 MAP_SHARED, fd, (off_t)(offset - offset % PAGE));
	if (u->mapped == MAP_FAILED)
		return errno;
	u->addr = (uint8_t *)u->mapped + offset % PAGE;
	return 0;
}

int sd_cmd_umem_reg(struct sd_cmd *c)
{
	const uint32_t known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			       IBV_ACCESS_RELAXED_ORDERING;
	const struct ib_uverbs_attr *dmabuf = sd_attr(c, MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD);
	uint64_t addr = sd_in_u64(c, MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, 0), length = sd_in_u64(c, MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, 0);
	uint64_t access = sd_in_u64(c, MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, 0);
	uint64_t sizes = sd_in_u64(c, MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, ~(PAGE - 1));
	struct sd_umem *u;
	uint32_t handle;
	int err;

	if (!c->ctx->uid || access & ~(uint64_t)known || (access & IBV_ACCESS_REMOTE_WRITE && !(access & IBV_ACCESS_LOCAL_WRITE)))
		return EINVAL;
	if (!length || addr + length < addr)
		return EINVAL;
	if (!dmabuf && !sd_mem_ok(addr, length, access & IBV_ACCESS_LOCAL_WRITE))
		return EFAULT;
	/* The kernel takes the largest of these sizes that fits the pages. One page always fits */
	if (!(sizes & PAGE))
		return EINVAL;
	u = calloc(1, sizeof(*u));
	if (!u)
		return ENOMEM;
	*u = (struct sd_umem){ .ctx = c->ctx, .addr = (uint8_t *)(uintptr_t)addr, .length = length, .access = access };
	err = dmabuf ? map_dmabuf(u, (int)dmabuf->data, addr) : 0;
	if (err)
		free(u);
	else
		err = sd_umem_add(u);
	if (err)
		return err;
	err = sd_handle_new(c->ctx, SD_UMEM, u, &handle);
	if (err) {
		sd_umem_free(u);
		return err;
	}
	if (SD_OUT(c, MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, u->id))
		return sd_undo(c, SD_UMEM, handle);
	sd_out_obj(c, MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, handle);
	return 0;
}

int sd_cmd_umem_dereg(struct sd_cmd *c)
{
	return sd_cmd_destroy(c, SD_UMEM, MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE);
}
