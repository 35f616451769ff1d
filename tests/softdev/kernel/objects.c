/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * objects.c: contexts, handles, PDs, address handles, doorbell pages, CQs; events; the end of any object.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "kernel.h"

#define PAGE 4096ull

static SD_OWN struct handle {
	enum sd_kind kind;
	struct sd_ctx *ctx;
	void *obj;
} *handles;
static SD_OWN uint32_t handle_cnt, handle_hint;

static SD_OWN struct sd_numbers uids = { .max = SD_MAX_UCTX, .first = 1 };

/* ---- handles ---- */

int sd_handle_new(struct sd_ctx *ctx, enum sd_kind kind, void *obj, uint32_t *handle)
{
	uint32_t i;

	for (i = handle_hint; i < handle_cnt; i++)
		if (handles[i].kind == SD_NONE)
			break;
	if (i == handle_cnt) {
		uint32_t cnt = handle_cnt ? 2 * handle_cnt : 256;
		struct handle *h = cnt <= 1u << 22 ? realloc(handles, cnt * sizeof(*h)) : NULL;

		if (!h)
			return ENOMEM;
		memset(h + handle_cnt, 0, (cnt - handle_cnt) * sizeof(*h));
		handles = h;
		handle_cnt = cnt;
	}
	handles[i] = (struct handle){ kind, ctx, obj };
	handle_hint = i + 1;
	*handle = i;
	return 0;
}

void *sd_handle_get(struct sd_ctx *ctx, enum sd_kind kind, uint32_t handle)
{
	if (handle >= handle_cnt || handles[handle].kind != kind || handles[handle].ctx != ctx)
		return NULL;
	return handles[handle].obj;
}

void *sd_handle_any(struct sd_ctx *ctx, uint32_t handle, enum sd_kind *kind)
{
	if (handle >= handle_cnt || handles[handle].kind == SD_NONE || handles[handle].ctx != ctx)
		return NULL;
	*kind = handles[handle].kind;
	return handles[handle].obj;
}

void sd_handle_free(uint32_t handle)
{
	handles[handle] = (struct handle){ .kind = SD_NONE };
	if (handle < handle_hint)
		handle_hint = handle;
}

/* ---- contexts ---- */

static bool destroy_all(struct sd_ctx *ctx, enum sd_kind kind)
{
	bool any = false;
	uint32_t a, b;

	for (uint32_t i = 0; i < handle_cnt; i++)
		if (handles[i].kind == kind && handles[i].ctx == ctx)
			any |= !sd_destroy(ctx, kind, i, &a, &b);
	return any;
}

void sd_ctx_free(struct sd_ctx *ctx)
{
	ctx->closing = true;
	sd_devx_files_orphan(ctx);
	/* Of what commands made, one thing may be in use by another */
	while (destroy_all(ctx, SD_DEVX))
		;
	for (enum sd_kind kind = SD_NONE + 1; kind < SD_KINDS; kind++)
		destroy_all(ctx, kind);
	sd_uid_free(ctx);
	if (ctx->async)
		sd_channel_put(ctx->async);
	close(ctx->fd);
	free(ctx);
}

/*
 * The page from which libmlx5 turns a CQE's timestamp into wall-clock time: the device's clock is
 * CLOCK_MONOTONIC in ns
 */
static void write_clock_info(int fd)
{
	struct mlx5_ib_clock_info ci = { .mult = 1, .mask = ~0ull, .overflow_period = ~0ull >> 2 };
	struct timespec mono, real;

	clock_gettime(CLOCK_MONOTONIC, &mono);
	clock_gettime(CLOCK_REALTIME, &real);
	ci.cycles = mono.tv_sec * 1000000000ull + mono.tv_nsec;
	ci.nsec = real.tv_sec * 1000000000ull + real.tv_nsec;
	if (pwrite(fd, &ci, sizeof(ci), (off_t)(MLX5_IB_MMAP_CLOCK_INFO << 8) * PAGE) != sizeof(ci))
		sd_once(0xffff0001, "no clock information: %m");
}

int sd_ctx_open(unsigned dev, bool cloexec)
{
	struct sd_ctx *ctx;
	int fd, own, err;
	struct stat st;
	char name[16];

	snprintf(name, sizeof(name), "uverbs%u", dev);
	fd = memfd_create(name, cloexec ? MFD_CLOEXEC : 0);
	if (fd < 0)
		return -errno;
	ctx = calloc(1, sizeof(*ctx));
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (!ctx || own < 0 || fd >= SD_MAX_FD || fstat(fd, &st) || ftruncate(fd, SD_CMD_FD_SIZE)) {
		err = !ctx ? -ENOMEM : fd >= SD_MAX_FD ? -EMFILE : -errno;
		free(ctx);
		if (own >= 0)
			close(own);
		close(fd);
		return err;
	}
	*ctx = (struct sd_ctx){ .fd = own, .fds = 1, .st_dev = st.st_dev, .st_ino = st.st_ino, .dev = dev, .dm = sd_dm_map(dev) };
	write_clock_info(fd);
	pthread_mutex_lock(&sd_lock);
	sd_fd_set(fd, SD_FD_CMD, ctx);
	pthread_mutex_unlock(&sd_lock);
	return fd;
}

/* ---- events ---- */

void sd_cq_event(struct sd_cq *cq)
{
	struct host_cq *hc = sd_container(cq, struct host_cq, c);
	struct ib_uverbs_comp_event_desc ev = { .cq_handle = hc->user_handle };

	if (hc->devx)
		sd_devx_event(hc->devx, 0, 0);
	else if (sd_channel_send(cq->channel, &ev))
		hc->comp_events++;
}

void sd_async_cq(struct sd_cq *cq, enum ibv_event_type type)
{
	struct host_cq *hc = sd_container(cq, struct host_cq, c);
	struct ib_uverbs_async_event_desc ev = { .element = hc->user_handle, .event_type = type };

	if (hc->devx)
		sd_devx_event(hc->devx, sd_devx_event_type(type), 1);
	else if (sd_channel_send(hc->async, &ev))
		hc->async_events++;
}

void sd_async_qp(struct sd_qp *qp, enum ibv_event_type type)
{
	struct host_qp *hq = sd_container(qp, struct host_qp, q);
	struct ib_uverbs_async_event_desc ev = { .element = hq->user_handle, .event_type = type };

	if (qp->wq) {
		sd_async_wq(sd_container(qp, struct host_wq, q));
		return;
	}
	if (hq->q.devx)
		sd_devx_event(hq->q.devx, sd_devx_event_type(type), 0);
	else if (sd_channel_send(hq->async, &ev))
		hq->async_events++;
}

/* A context may have several files, and hears of it once */
void sd_async_port_down(unsigned dev)
{
	const struct ib_uverbs_async_event_desc ev = { .element = dev % sd_ports() + 1, .event_type = IBV_EVENT_PORT_ERR };

	for (int fd = 0; fd < 2 * SD_MAX_FD; fd++) {
		void *ptr = NULL;
		struct sd_ctx *ctx = sd_fd_get(fd % SD_MAX_FD, &ptr) == SD_FD_CMD ? ptr : NULL;

		if (!ctx || ctx->dev != dev / sd_ports())
			continue;
		if (fd >= SD_MAX_FD && !ctx->told)
			sd_channel_send(ctx->async, &ev);
		ctx->told = fd >= SD_MAX_FD;
	}
}

/* ---- PDs, address handles ---- */

int sd_pd_create(struct sd_ctx *ctx, uint32_t *handle, uint32_t *pdn)
{
	struct sd_pd *pd;
	int err = sd_pd_new(ctx, &pd);

	if (err)
		return err;
	err = sd_handle_new(ctx, SD_PD, pd, handle);
	if (err)
		sd_pd_free(pd);
	else
		*pdn = pd->pdn;
	return err;
}

int sd_uid_new(struct sd_ctx *ctx)
{
	return sd_number_new(&uids, ctx, &ctx->uid);
}

void sd_uid_free(struct sd_ctx *ctx)
{
	if (ctx->uid)
		uids.at[ctx->uid] = NULL;
	ctx->uid = 0;
}

/* RoCE has no LIDs: its address is the GID, and the answer the MAC address that it stands for */
int sd_ah_create(struct sd_ctx *ctx, struct sd_pd *pd, const struct ib_uverbs_ah_attr *at, uint32_t *handle, uint8_t dmac[6])
{
	int err = !sd_port_ok(at->port_num) || (!sd_link_ib() && !at->is_global) ? EINVAL : 0;

	memset(dmac, 0, 6);
	if (!err && at->is_global)
		err = sd_gid(sd_port_of(ctx, at->port_num), at->grh.sgid_index, NULL, NULL);
	if (!err && !sd_link_ib())
		err = sd_resolve(at->grh.dgid, dmac);
	if (!err)
		err = sd_handle_new(ctx, SD_AH, pd, handle);
	if (!err)
		pd->refs++;
	return err;
}

/* ---- doorbell pages ---- */

int sd_uar_create(struct sd_ctx *ctx, uint32_t *handle, uint32_t *page_id)
{
	struct sd_uar *uar;
	int err = sd_uar_new(ctx, &uar);

	if (err)
		return err;
	err = sd_handle_new(ctx, SD_UAR, uar, handle);
	if (err)
		sd_uar_put(uar);
	else
		*page_id = uar->page_id;
	return err;
}

/* ---- CQs ---- */

int sd_cq_create(struct sd_ctx *ctx, const struct sd_cq_args *a, uint32_t *handle, uint32_t *cqn)
{
	struct host_cq *hc;
	struct sd_uar *uar;
	int err;

	if (a->entries < 2 || a->entries > SD_MAX_CQE || a->entries & (a->entries - 1) || (a->cqe_size != 64 && a->cqe_size != 128))
		return EINVAL;
	if (a->db % 8 || a->buf % 64)
		return EINVAL;
	if (!sd_mem_ok(a->db, 8, true) || !sd_mem_ok(a->buf, (uint64_t)a->entries * a->cqe_size, true))
		return EFAULT;
	uar = sd_uar_get(ctx, a->page_id);
	if (!uar)
		return EINVAL;
	hc = calloc(1, sizeof(*hc));
	err = hc ? sd_handle_new(ctx, SD_CQ, hc, handle) : ENOMEM;
	if (err)
		goto put_uar;
	hc->c = (struct sd_cq){ .ctx = ctx, .buf = (uint8_t *)(uintptr_t)a->buf, .cqe_cnt = a->entries, .cqe_size = a->cqe_size,
				.padded = a->padded,
				.dbrec = (volatile uint32_t *)(uintptr_t)a->db, .uar = uar, .channel = a->channel,
				.compression = a->compression, .mini_format = a->mini_format,
				.ignore_overrun = a->ignore_overrun, .timestamp = a->timestamp, .arm_seen = 0xffffffff };
	hc->user_handle = a->user_handle;
	err = sd_cq_add(&hc->c);
	if (err)
		goto free_handle;
	sd_channel_hold(a->channel);
	hc->async = sd_channel_hold(a->async);
	/* The first arm at consumer index 0 writes 0 here and must be told from "never armed" */
	hc->c.dbrec[1] = 0xffffffff;
	sd_trap_page(uar);
	*cqn = hc->c.cqn;
	return 0;
free_handle:
	sd_handle_free(*handle);
put_uar:
	free(hc);
	sd_uar_put(uar);
	return err;
}

int sd_cq_resize(struct sd_cq *cq, uint32_t cqe, uint64_t buf, uint32_t cqe_size)
{
	uint32_t entries = 1;

	if (!cqe || cqe > SD_MAX_CQE)
		return EINVAL;
	while (entries < cqe + 1)
		entries <<= 1;
	if (entries > SD_MAX_CQE)
		return EINVAL;
	if (entries == cq->cqe_cnt)
		return 0;
	if ((cqe_size != 64 && cqe_size != 128) || buf % 64)
		return EINVAL;
	if (!sd_mem_ok(buf, (uint64_t)entries * cqe_size, true))
		return EFAULT;
	return sd_engine_cq_resize(cq, (uint8_t *)(uintptr_t)buf, entries, cqe_size);
}

/* ---- the end of any of them ---- */

int sd_destroy(struct sd_ctx *ctx, enum sd_kind kind, uint32_t handle, uint32_t *events, uint32_t *async_events)
{
	void *obj = sd_handle_get(ctx, kind, handle);
	struct host_qp *hq = obj;
	struct host_srq *hs = obj;
	struct host_cq *hc = obj;
	struct host_wq *hw = obj;
	int err;

	*events = *async_events = 0;
	if (!obj)
		return ENOENT;
	switch (kind) {
	case SD_PD:
		err = sd_pd_free(obj);
		if (err)
			return err;
		break;
	case SD_DEVX:
		err = sd_devx_free(obj);
		if (err)
			return err;
		break;
	case SD_UMEM:
		err = sd_umem_free(obj);
		if (err)
			return err;
		break;
	case SD_FLOW:
		sd_flow_free(obj);
		break;
	case SD_MATCHER:
		if (((struct sd_matcher *)obj)->refs)
			return EBUSY;
		free(obj);
		break;
	case SD_AH:
		((struct sd_pd *)obj)->refs--;
		break;
	case SD_IND_TBL:
		if (((struct host_ind_tbl *)obj)->refs)
			return EBUSY;
		sd_ind_tbl_free(obj);
		break;
	case SD_WQ:
		if (hw->refs)
			return EBUSY;
		*async_events = hw->async_events - sd_channel_take_back(hw->async, hw->user_handle);
		sd_wq_free(hw);
		break;
	case SD_MW:
	case SD_MR:
		err = sd_mr_free(obj);
		if (err)
			return err;
		break;
	case SD_DM:
		err = sd_dm_free(obj);
		if (err)
			return err;
		break;
	case SD_XRCD:
		sd_xrcd_put(obj);
		break;
	case SD_UAR:
		sd_uar_put(obj);
		break;
	case SD_CQ:
		if (hc->c.refs)
			return EBUSY;
		*events = hc->comp_events - sd_channel_take_back(hc->c.channel, hc->user_handle);
		*async_events = hc->async_events - sd_channel_take_back(hc->async, hc->user_handle);
		sd_cq_remove(hc);
		break;
	case SD_SRQ:
		if (hs->s.refs)
			return EBUSY;
		sd_engine_srq_destroyed(&hs->s);
		if (hs->s.xrcd) {
			hs->s.xrcd->refs--;
			hs->s.cq->refs--;
		}
		*async_events = hs->async_events - sd_channel_take_back(hs->async, hs->user_handle);
		sd_srq_remove(hs);
		break;
	case SD_QP:
		if ((hq->q.groups || hq->flows) && !ctx->closing)
			return EBUSY;
		sd_engine_qp_destroyed(&hq->q);
		*async_events = hq->async_events - sd_channel_take_back(hq->async, hq->user_handle);
		sd_qp_remove(hq);
		break;
	default:
		return EINVAL;
	}
	sd_handle_free(handle);
	return 0;
}
