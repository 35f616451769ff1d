/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * umem.c: memory that a program registers so that its commands can name it.
 *
 * The device does not pin it: the program must keep it mapped, as it keeps an MR.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "firmware.h"

#define PAGE 4096ull
#define RELAXED IBV_ACCESS_RELAXED_ORDERING

static struct sd_numbers umems = { .max = SD_MAX_UMEM, .first = 1 };

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

static void unmap(struct sd_umem *u)
{
	if (u->mapped)
		munmap(u->mapped, (size_t)(u->addr - (uint8_t *)u->mapped) + u->length);
}

int sd_cmd_umem_reg(struct sd_cmd *c)
{
	const uint32_t known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | RELAXED;
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
		u->mapped = NULL;
	else
		err = sd_number_new(&umems, u, &u->id);
	if (err)
		goto free;
	err = sd_handle_new(c->ctx, SD_UMEM, u, &handle);
	if (err) {
		umems.at[u->id] = NULL;
		goto free;
	}
	if (SD_OUT(c, MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, u->id))
		return sd_undo(c, SD_UMEM, handle);
	sd_out_obj(c, MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, handle);
	return 0;
free:
	unmap(u);
	free(u);
	return err;
}

int sd_cmd_umem_dereg(struct sd_cmd *c)
{
	return sd_cmd_destroy(c, SD_UMEM, MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE);
}

int sd_umem_free(struct sd_umem *u)
{
	if (u->refs)
		return EBUSY;
	umems.at[u->id] = NULL;
	unmap(u);
	free(u);
	return 0;
}

uint8_t sd_umem_get(struct sd_devx_cmd *c, uint32_t id, uint64_t offset, uint64_t length, bool write, struct sd_umem **u, uint8_t **at)
{
	struct sd_umem *m = sd_number_get(&umems, id);

	*u = NULL;
	*at = NULL;
	if (!m || m->ctx != c->ctx)
		return SD_FAIL(c, SD_ST_BAD_RES);
	if (length && (offset > m->length || length > m->length - offset))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (length && write && !(m->access & IBV_ACCESS_LOCAL_WRITE))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	m->refs++;
	*u = m;
	*at = offset <= m->length ? m->addr + offset : NULL;
	return SD_ST_OK;
}

void sd_umem_put(struct sd_umem *u)
{
	if (u)
		u->refs--;
}
