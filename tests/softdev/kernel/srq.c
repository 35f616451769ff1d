/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * srq.c: shared receive queues: objects and commands.
 *
 * libmlx5 makes the ring larger than its caller asked for, and passes the size of the whole ring:
 * max_wr + 1 entries, rounded up to a power of two, each of one link and max_sge pointers. A
 * tag-matching SRQ also has a CQ and a list; the list holds as many tags as the next larger power
 * of two, less one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "kernel.h"

#define LINK 16u                  /* bytes of an entry before its first pointer */

static uint32_t round_up(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

/* The kernel's: with one more entry than tags, log2 of the list */
static unsigned log_of(uint64_t tags)
{
	return 64 - __builtin_clzll(tags);
}

int sd_cmd_srq_create(struct sd_cmd *c)
{
	uint64_t type = sd_in_u64(c, UVERBS_ATTR_CREATE_SRQ_TYPE, 0), max_wr = sd_in_u64(c, UVERBS_ATTR_CREATE_SRQ_MAX_WR, 0),
		 max_sge = sd_in_u64(c, UVERBS_ATTR_CREATE_SRQ_MAX_SGE, 0);
	uint64_t tags = sd_in_u64(c, UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS, 0);
	struct sd_pd *pd = sd_in_obj(c, UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, SD_PD);
	struct sd_cq *cq = sd_in_obj(c, UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, SD_CQ);
	struct sd_domain *xrcd = sd_in_obj(c, UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, SD_XRCD);
	struct mlx5_ib_create_srq_resp resp = { .srqn = 0 };
	struct mlx5_ib_create_srq drv;
	struct sd_channel *async;
	uint32_t handle, wr, stride;
	struct host_srq *hs;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_UHW_IN), &drv, sizeof(drv));

	if (!err)
		err = sd_event_fd(c, UVERBS_ATTR_CREATE_SRQ_EVENT_FD, &async);
	if (err)
		return err;
	if (type != IB_UVERBS_SRQT_BASIC && type != IB_UVERBS_SRQT_TM && type != IB_UVERBS_SRQT_XRC) {
		sd_once(0xffff0300 + (type & 0xff), "shared receive queues of type %u are not supported", (unsigned)type);
		return EOPNOTSUPP;
	}
	if (!pd || max_wr >= SD_MAX_RQ_WR || max_sge >= SD_MAX_RQ_DESC / 16)
		return EINVAL;
	/* Signatures are a capability that this device does not claim */
	if (drv.flags || drv.reserved0 || drv.reserved1)
		return EINVAL;
	wr = round_up(max_wr + 1);
	stride = round_up(LINK + 16 * max_sge);
	stride = stride < 32 ? 32 : stride;
	if (drv.buf_addr % 64 || drv.db_addr % 8)
		return EINVAL;
	if (!sd_mem_ok(drv.buf_addr, (uint64_t)wr * stride, true) || !sd_mem_ok(drv.db_addr, 8, false))
		return EFAULT;
	if (type == IB_UVERBS_SRQT_TM && (!cq || !tags || log_of(tags) > SD_LOG_TM_LIST || drv.uidx >= 0xffffff))
		return EINVAL;
	if (type == IB_UVERBS_SRQT_XRC && (!cq || !xrcd || drv.uidx > 0xffffff))
		return EINVAL;
	hs = calloc(1, sizeof(*hs));
	err = hs ? sd_handle_new(c->ctx, SD_SRQ, hs, &handle) : ENOMEM;
	if (err)
		goto free;
	/* A QP's completions carry the QP's user index, not that of a basic SRQ */
	hs->s = (struct sd_srq){ .uidx = 0xffffff, .ctx = c->ctx, .pd = pd, .buf = (uint8_t *)(uintptr_t)drv.buf_addr,
				 .wqe_cnt = wr, .wqe_shift = __builtin_ctz(stride),
				 .dbrec = (volatile uint32_t *)(uintptr_t)drv.db_addr, .max_wr = wr - 1, .max_sge = max_sge };
	if (type == IB_UVERBS_SRQT_TM) {
		hs->s.uidx = drv.uidx;
		err = sd_tm_new(&hs->s, log_of(tags), cq, true);
		if (err)
			goto free_handle;
	}
	hs->user_handle = sd_in_u64(c, UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, 0);
	err = sd_srq_add(&hs->s);
	if (err)
		goto free_handle;
	if (type == IB_UVERBS_SRQT_XRC) {
		hs->s.uidx = drv.uidx;
		hs->s.xrcd = xrcd;
		hs->s.cq = cq;
		xrcd->refs++;
		cq->refs++;
	}
	hs->async = sd_channel_hold(async);
	pd->refs++;
	sd_engine_srq_changed(&hs->s);

	resp.srqn = hs->s.srqn;
	if (SD_OUT(c, UVERBS_ATTR_UHW_OUT, resp) || SD_OUT(c, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, hs->s.max_wr) ||
	    SD_OUT(c, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, hs->s.max_sge) ||
	    (hs->s.xrcd && SD_OUT(c, UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, hs->s.srqn)))
		return sd_undo(c, SD_SRQ, handle);
	sd_out_obj(c, UVERBS_ATTR_CREATE_SRQ_HANDLE, handle);
	return 0;
free_handle:
	sd_tm_free(&hs->s);
	sd_handle_free(handle);
free:
	free(hs);
	return err;
}

int sd_cmd_srq_destroy(struct sd_cmd *c)
{
	struct ib_uverbs_destroy_srq_resp resp;
	uint32_t none;
	int err = sd_destroy(c->ctx, SD_SRQ, sd_attr(c, UVERBS_ATTR_DESTROY_SRQ_HANDLE)->data, &none, &resp.events_reported);

	return err ? err : SD_OUT(c, UVERBS_ATTR_DESTROY_SRQ_RESP, resp);
}

/* An SRQ cannot be resized; a limit stays armed until it is reached, once */
int sd_cmd_srq_modify(struct sd_cmd *c)
{
	struct ib_uverbs_modify_srq req;
	struct sd_srq *srq;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_CORE_IN), &req, sizeof(req));

	if (err)
		return err;
	srq = sd_handle_get(c->ctx, SD_SRQ, req.srq_handle);
	if (!srq || req.attr_mask & IBV_SRQ_MAX_WR)
		return EINVAL;
	if (!(req.attr_mask & IBV_SRQ_LIMIT))
		return 0;
	if (req.srq_limit >= srq->wqe_cnt)
		return EINVAL;
	srq->limit = req.srq_limit;
	sd_engine_srq_changed(srq);
	return 0;
}

int sd_cmd_srq_query(struct sd_cmd *c)
{
	struct ib_uverbs_query_srq_resp resp;
	struct ib_uverbs_query_srq req;
	struct sd_srq *srq;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_CORE_IN), &req, sizeof(req));

	if (err)
		return err;
	srq = sd_handle_get(c->ctx, SD_SRQ, req.srq_handle);
	if (!srq)
		return EINVAL;
	resp = (struct ib_uverbs_query_srq_resp){ .max_wr = srq->max_wr, .max_sge = srq->max_sge, .srq_limit = srq->limit };
	return SD_OUT(c, UVERBS_ATTR_CORE_OUT, resp);
}

void sd_async_srq(struct sd_srq *srq, enum ibv_event_type type)
{
	struct host_srq *hs = sd_container(srq, struct host_srq, s);
	struct ib_uverbs_async_event_desc ev = { .element = hs->user_handle, .event_type = type };

	if (hs->devx)
		sd_devx_event(hs->devx, sd_devx_event_type(type), 0);
	else if (sd_channel_send(hs->async, &ev))
		hs->async_events++;
}
