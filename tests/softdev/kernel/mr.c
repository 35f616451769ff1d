/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mr.c: memory regions, memory windows and device memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "kernel.h"

#define PAGE 4096ull
#define WRITES (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)

static int access_check(uint32_t access)
{
	if (access & ~(WRITES | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE |
		       IBV_ACCESS_ON_DEMAND))
		return EINVAL;
	return access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) && !(access & IBV_ACCESS_LOCAL_WRITE) ? EINVAL : 0;
}

/*
 * On demand, only the moment of an access counts: nothing need be mapped before. All of memory is
 * such a region too, from 0 to the last address
 */
static int mr_check(uint64_t start, uint64_t length, uint64_t iova, uint32_t access)
{
	int err = access_check(access);

	if (err)
		return err;
	if (!length || start + length < start || iova + length < iova || (start ^ iova) % PAGE)
		return EINVAL;
	return access & IBV_ACCESS_ON_DEMAND || sd_mem_ok(start, length, access & WRITES) ? 0 : EFAULT;
}

/* A key, a handle and a reference to the PD for what is to be one of the three */
static int add(struct sd_ctx *ctx, enum sd_kind kind, const struct sd_mr *as, uint32_t *handle, struct host_mr **made)
{
	struct host_mr *hm = calloc(1, sizeof(*hm));
	int err = hm ? sd_handle_new(ctx, kind, hm, handle) : ENOMEM;

	if (err) {
		free(hm);
		return err;
	}
	hm->m = *as;
	err = sd_mr_add(&hm->m, -1);
	if (err) {
		sd_handle_free(*handle);
		free(hm);
		return err;
	}
	*made = hm;
	return 0;
}

/*
 * As the kernel's driver: other rights or another PD are written into the key that is there; all
 * else makes a new one. Programs that know the key go on with it
 */
#define KEPT (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | \
	      IBV_ACCESS_RELAXED_ORDERING)

static int mr_change(struct sd_mr *mr, uint32_t flags, struct sd_pd *pd, uint64_t start, uint64_t length, uint64_t iova, uint32_t access)
{
	int err;

	if (!flags || flags & ~(IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS))
		return EINVAL;
	if (mr->windows)
		return EBUSY;
	if (sd_container(mr, struct host_mr, m)->dm)
		return EOPNOTSUPP;
	if (!(flags & IBV_REREG_MR_CHANGE_TRANSLATION)) {
		start = (uintptr_t)mr->addr;
		length = mr->length;
		iova = mr->iova;
	}
	if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
		access = mr->access;
	err = mr_check(start, length, iova, access);
	if (err)
		return err;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION || (mr->access ^ access) & ~(uint32_t)KEPT)
		sd_mr_new_key(mr, mr->key >> 16, false);
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		mr->pd->refs--;
		pd->refs++;
		mr->pd = pd;
	}
	mr->addr = (uint8_t *)(uintptr_t)start;
	mr->length = length;
	mr->iova = iova;
	mr->access = access;
	return 0;
}

int sd_cmd_mr_query(struct sd_cmd *c)
{
	struct sd_mr *mr = sd_in_obj(c, UVERBS_ATTR_QUERY_MR_HANDLE, SD_MR);

	if (!mr)
		return EINVAL;
	if (SD_OUT(c, UVERBS_ATTR_QUERY_MR_RESP_LKEY, mr->lkey) || SD_OUT(c, UVERBS_ATTR_QUERY_MR_RESP_RKEY, mr->key) ||
	    SD_OUT(c, UVERBS_ATTR_QUERY_MR_RESP_LENGTH, mr->length))
		return EFAULT;
	return SD_OUT(c, UVERBS_ATTR_QUERY_MR_RESP_IOVA, mr->iova);
}

/* A prefetch: the pages come into memory now. Only who waits for it hears that there are none */
static int prefetch(struct sd_cmd *c, const struct ibv_sge *sg, uint32_t advice, bool wait)
{
	const struct sd_mr *mr = sd_mr_find(sg->lkey, false);
	bool write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	uint64_t off;

	if (!mr || !(mr->access & IBV_ACCESS_ON_DEMAND))
		return ENOENT;
	if (mr->pd != sd_in_obj(c, UVERBS_ATTR_ADVISE_MR_PD_HANDLE, SD_PD) || (write && !(mr->access & WRITES)))
		return EPERM;
	off = sg->addr - mr->iova;
	if (sg->addr < mr->iova || off > mr->length || sg->length > mr->length - off)
		return wait ? EFAULT : 0;
	if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT || !sg->length)
		return 0;
	if (!sd_mem_ok((uintptr_t)mr->addr + off, sg->length, write))
		return wait ? EFAULT : 0;
#ifdef MADV_POPULATE_WRITE
	{
		uint64_t at = ((uintptr_t)mr->addr + off) & -(uint64_t)sysconf(_SC_PAGESIZE);

		madvise((void *)(uintptr_t)at, (uintptr_t)mr->addr + off + sg->length - at, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
	}
#endif
	return 0;
}

int sd_cmd_mr_advise(struct sd_cmd *c)
{
	uint64_t advice = sd_in_u64(c, UVERBS_ATTR_ADVISE_MR_ADVICE, 0), flags = sd_in_u64(c, UVERBS_ATTR_ADVISE_MR_FLAGS, 0);
	const struct ib_uverbs_attr *list = sd_attr(c, UVERBS_ATTR_ADVISE_MR_SGE_LIST);
	struct ibv_sge sg;
	int err = 0;

	if (flags & ~(uint64_t)IBV_ADVISE_MR_FLAG_FLUSH || !list->len || list->len % sizeof(sg))
		return EINVAL;
	if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return EOPNOTSUPP;
	for (unsigned at = 0; !err && at < list->len; at += sizeof(sg)) {
		err = sd_copy(&sg, list->data + at, sizeof(sg), false);
		err = err ? err : prefetch(c, &sg, advice, flags);
	}
	return err;
}

static int mr_reg(struct sd_ctx *ctx, const struct sd_mr *as, uint32_t *handle, struct host_mr **hm)
{
	int err = as->pd ? mr_check((uintptr_t)as->addr, as->length, as->iova, as->access) : EINVAL;

	return err ? err : add(ctx, SD_MR, as, handle, hm);
}

int sd_cmd_mr_reg(struct sd_cmd *c)
{
	struct sd_mr as = { .pd = sd_in_obj(c, SD_ATTR_REG_MR_PD_HANDLE, SD_PD),
			    .iova = sd_in_u64(c, SD_ATTR_REG_MR_IOVA, 0), .length = sd_in_u64(c, SD_ATTR_REG_MR_LENGTH, 0),
			    .addr = (uint8_t *)(uintptr_t)sd_in_u64(c, SD_ATTR_REG_MR_ADDR, 0),
			    .access = sd_in_u64(c, SD_ATTR_REG_MR_ACCESS_FLAGS, 0) };
	struct host_mr *hm;
	uint32_t handle;
	int err = mr_reg(c->ctx, &as, &handle, &hm);

	if (err)
		return err;
	if (SD_OUT(c, SD_ATTR_REG_MR_RESP_LKEY, hm->m.lkey) || SD_OUT(c, SD_ATTR_REG_MR_RESP_RKEY, hm->m.key))
		return sd_undo(c, SD_MR, handle);
	sd_out_obj(c, SD_ATTR_REG_MR_HANDLE, handle);
	return 0;
}

int sd_cmd_mr_reg_legacy(struct sd_cmd *c)
{
	struct ib_uverbs_reg_mr_resp resp = { .mr_handle = 0 };
	struct ib_uverbs_reg_mr req;
	struct host_mr *hm;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_CORE_IN), &req, sizeof(req));

	if (!err)
		err = mr_reg(c->ctx, &(struct sd_mr){ .pd = sd_handle_get(c->ctx, SD_PD, req.pd_handle), .iova = req.hca_va,
						      .length = req.length, .access = req.access_flags,
						      .addr = (uint8_t *)(uintptr_t)req.start }, &resp.mr_handle, &hm);
	if (err)
		return err;
	resp.lkey = hm->m.lkey;
	resp.rkey = hm->m.key;
	return SD_OUT(c, UVERBS_ATTR_CORE_OUT, resp) ? sd_undo(c, SD_MR, resp.mr_handle) : 0;
}

int sd_cmd_mr_rereg(struct sd_cmd *c)
{
	struct ib_uverbs_rereg_mr_resp resp = { .lkey = 0 };
	struct ib_uverbs_rereg_mr req;
	struct sd_pd *pd = NULL;
	struct sd_mr *mr;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_CORE_IN), &req, sizeof(req));

	if (err)
		return err;
	mr = sd_handle_get(c->ctx, SD_MR, req.mr_handle);
	if (req.flags & IBV_REREG_MR_CHANGE_PD)
		pd = sd_handle_get(c->ctx, SD_PD, req.pd_handle);
	if (!mr || (req.flags & IBV_REREG_MR_CHANGE_PD && !pd))
		return EINVAL;
	err = mr_change(mr, req.flags, pd, req.start, req.length, req.hca_va, req.access_flags);
	if (err)
		return err;
	resp.lkey = mr->lkey;
	resp.rkey = mr->key;
	return SD_OUT(c, UVERBS_ATTR_CORE_OUT, resp);
}

int sd_cmd_mr_destroy(struct sd_cmd *c)
{
	return sd_cmd_destroy(c, SD_MR, UVERBS_ATTR_DESTROY_MR_HANDLE);
}

/*
 * ---- memory windows: here they are made and unmade; binding and invalidating are work requests
 * ----
 */

int sd_cmd_mw_alloc(struct sd_cmd *c)
{
	struct ib_uverbs_alloc_mw_resp resp = { .mw_handle = 0 };
	struct ib_uverbs_alloc_mw req;
	struct mlx5_ib_alloc_mw drv;
	struct host_mr *hm;
	struct sd_pd *pd;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_CORE_IN), &req, sizeof(req));

	if (!err)
		err = sd_in(sd_attr(c, UVERBS_ATTR_UHW_IN), &drv, sizeof(drv));
	if (err)
		return err;
	if (drv.comp_mask || drv.reserved1 || drv.reserved2)
		return EOPNOTSUPP;
	pd = sd_handle_get(c->ctx, SD_PD, req.pd_handle);
	if (!pd || (req.mw_type != IBV_MW_TYPE_1 && req.mw_type != IBV_MW_TYPE_2))
		return EINVAL;
	err = add(c->ctx, SD_MW, &(struct sd_mr){ .pd = pd, .mw = req.mw_type }, &resp.mw_handle, &hm);
	if (err)
		return err;
	resp.rkey = hm->m.key;
	return SD_OUT(c, UVERBS_ATTR_CORE_OUT, resp) ? sd_undo(c, SD_MW, resp.mw_handle) : 0;
}

int sd_cmd_mw_destroy(struct sd_cmd *c)
{
	return sd_cmd_destroy(c, SD_MW, UVERBS_ATTR_DESTROY_MW_HANDLE);
}

/* ---- device memory ---- */

/*
 * It lies in the command file, where the program maps it, and is given out in pages; all contexts
 * of a device share its amount, so a page of one is not there for another. A child of fork() shares
 * that of the contexts it inherited: what it takes and does not free is gone until its parent ends.
 * The contexts that it opens have their own.
 */
#define PAGES (SD_MAX_DM / PAGE)

_Static_assert(PAGES <= 64, "one bit each");
static SD_OWN uint64_t *taken; /* of each device; shared with children */

int sd_dm_start(void)
{
	void *p = taken ? taken : mmap(NULL, SD_MAX_DEVICES * sizeof(*taken), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	taken = p;
	return 0;
}

uint64_t *sd_dm_map(unsigned dev)
{
	return &taken[dev];
}

/* The first of so many free pages, which are taken now; PAGES: there are none */
static uint16_t dm_take(uint64_t *map, uint64_t pages)
{
	const uint64_t mask = pages == 64 ? ~0ull : (1ull << pages) - 1;
	uint64_t was = __atomic_load_n(map, __ATOMIC_RELAXED);
	uint16_t page;

	do {
		for (page = 0; page + pages <= PAGES && was >> page & mask; page++)
			;
		if (page + pages > PAGES)
			return PAGES;
	} while (!__atomic_compare_exchange_n(map, &was, was | mask << page, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
	return page;
}

int sd_cmd_dm_alloc(struct sd_cmd *c)
{
	uint64_t length = sd_in_u64(c, UVERBS_ATTR_ALLOC_DM_LENGTH, 0), align = sd_in_u64(c, UVERBS_ATTR_ALLOC_DM_ALIGNMENT, 0);
	uint64_t pages, start = 0;
	struct ib_uverbs_attr *type = sd_attr(c, MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE);
	struct host_dm *dm;
	uint32_t handle;
	uint16_t page;
	int err;

	if (type && type->data != MLX5_IB_UAPI_DM_TYPE_MEMIC)
		return EOPNOTSUPP;
	if (!length || length > SD_MAX_DM || align > 12)
		return EINVAL;
	pages = (length + PAGE - 1) / PAGE;
	dm = calloc(1, sizeof(*dm));
	if (!dm)
		return ENOMEM;
	page = dm_take(c->ctx->dm, pages);
	if (page == PAGES) {
		free(dm);
		return ENOMEM;
	}
	*dm = (struct host_dm){ .map = c->ctx->dm, .length = length, .taken = (pages == 64 ? ~0ull : (1ull << pages) - 1) << page };
	dm->addr = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, c->ctx->fd,
			(off_t)(MLX5_IB_MMAP_DEVICE_MEM << 8 | page) * PAGE);
	err = dm->addr == MAP_FAILED ? errno : sd_handle_new(c->ctx, SD_DM, dm, &handle);
	if (err) {
		sd_dm_free(dm);
		return err;
	}
	if (SD_OUT(c, MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, start) || SD_OUT(c, MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, page))
		return sd_undo(c, SD_DM, handle);
	sd_out_obj(c, UVERBS_ATTR_ALLOC_DM_HANDLE, handle);
	return 0;
}

int sd_cmd_dm_free(struct sd_cmd *c)
{
	return sd_cmd_destroy(c, SD_DM, UVERBS_ATTR_FREE_DM_HANDLE);
}

int sd_cmd_dm_query(struct sd_cmd *c)
{
	struct host_dm *dm = sd_in_obj(c, MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE, SD_DM);
	const uint64_t start = 0;
	uint16_t page;

	if (!dm)
		return EINVAL;
	page = __builtin_ctzll(dm->taken);
	if (SD_OUT(c, MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, start) || SD_OUT(c, MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, page))
		return EFAULT;
	return SD_OUT(c, MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, dm->length);
}

int sd_dm_free(struct host_dm *dm)
{
	if (dm->refs)
		return EBUSY;
	if (dm->addr != MAP_FAILED)
		munmap(dm->addr, (dm->length + PAGE - 1) / PAGE * PAGE);
	__atomic_and_fetch(dm->map, ~dm->taken, __ATOMIC_ACQ_REL);
	free(dm);
	return 0;
}

int sd_cmd_dm_reg(struct sd_cmd *c)
{
	const uint32_t allowed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
				 IBV_ACCESS_ZERO_BASED | IBV_ACCESS_OPTIONAL_RANGE;
	uint64_t offset = sd_in_u64(c, UVERBS_ATTR_REG_DM_MR_OFFSET, 0), length = sd_in_u64(c, UVERBS_ATTR_REG_DM_MR_LENGTH, 0);
	uint32_t access = sd_in_u64(c, UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, 0), handle;
	struct host_dm *dm = sd_in_obj(c, UVERBS_ATTR_REG_DM_MR_DM_HANDLE, SD_DM);
	struct sd_pd *pd = sd_in_obj(c, UVERBS_ATTR_REG_DM_MR_PD_HANDLE, SD_PD);
	struct host_mr *hm;
	int err = access_check(access);

	if (err)
		return err;
	if (!dm || !pd || access & ~allowed || !(access & IBV_ACCESS_ZERO_BASED))
		return EINVAL;
	if (offset > dm->length || length > dm->length - offset)
		return EINVAL;
	err = add(c->ctx, SD_MR, &(struct sd_mr){ .pd = pd, .length = length, .addr = dm->addr + offset, .access = access }, &handle, &hm);
	if (err)
		return err;
	hm->dm = dm;
	dm->refs++;
	if (SD_OUT(c, UVERBS_ATTR_REG_DM_MR_RESP_LKEY, hm->m.lkey) || SD_OUT(c, UVERBS_ATTR_REG_DM_MR_RESP_RKEY, hm->m.key))
		return sd_undo(c, SD_MR, handle);
	sd_out_obj(c, UVERBS_ATTR_REG_DM_MR_HANDLE, handle);
	return 0;
}
