/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wq.c: receive work queues that are objects of their own, and tables of them. Packets come to them
 * through tir.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "kernel.h"

int sd_cmd_wq_create(struct sd_cmd *c)
{
	uint32_t max_wr = sd_in_u64(c, UVERBS_ATTR_CREATE_WQ_MAX_WR, 0), max_sge = sd_in_u64(c, UVERBS_ATTR_CREATE_WQ_MAX_SGE, 0);
	uint32_t handle;
	struct mlx5_ib_create_wq_resp resp = { .response_length = sizeof(resp) };
	struct sd_pd *pd = sd_in_obj(c, UVERBS_ATTR_CREATE_WQ_PD_HANDLE, SD_PD);
	struct sd_cq *cq = sd_in_obj(c, UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, SD_CQ);
	struct mlx5_ib_create_wq drv;
	struct sd_channel *async;
	struct host_wq *wq;
	const uint64_t flags = sd_in_u64(c, UVERBS_ATTR_CREATE_WQ_FLAGS, 0);
	bool striding;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_UHW_IN), &drv, sizeof(drv));

	if (!err)
		err = sd_event_fd(c, UVERBS_ATTR_CREATE_WQ_EVENT_FD, &async);
	if (err)
		return err;
	if (!pd || !cq || sd_in_u64(c, UVERBS_ATTR_CREATE_WQ_TYPE, 0) != IBV_WQT_RQ)
		return EINVAL;
	striding = drv.comp_mask & MLX5_IB_CREATE_WQ_STRIDING_RQ && !sd_link_ib();
	/* Signatures, scatter of FCS and the rest are capabilities that this device does not claim */
	if (drv.comp_mask & ~(uint32_t)(striding ? MLX5_IB_CREATE_WQ_STRIDING_RQ : 0) || flags & ~(uint64_t)IBV_WQ_FLAGS_CVLAN_STRIPPING)
		return EOPNOTSUPP;
	if (striding && (drv.single_stride_log_num_of_bytes < SD_MIN_LOG_STRIDE || drv.single_stride_log_num_of_bytes > SD_MAX_LOG_STRIDE ||
			 drv.single_wqe_log_num_of_strides < SD_MIN_LOG_STRIDES || drv.single_wqe_log_num_of_strides > SD_MAX_LOG_STRIDES ||
			 drv.rq_wqe_shift < 5))
		return EINVAL;
	if (drv.flags || drv.user_index > 0xffffff || max_wr > SD_MAX_RQ_WR || max_sge > SD_MAX_RQ_DESC / 16)
		return EINVAL;
	if (!drv.rq_wqe_count || drv.rq_wqe_count & (drv.rq_wqe_count - 1) || drv.rq_wqe_count > SD_MAX_RQ_WR || drv.rq_wqe_shift < 4 ||
	    drv.rq_wqe_shift > 9 || drv.buf_addr % 64 || drv.db_addr % 8)
		return EINVAL;
	if (!sd_mem_ok(drv.buf_addr, (uint64_t)drv.rq_wqe_count << drv.rq_wqe_shift, false) || !sd_mem_ok(drv.db_addr, 8, false))
		return EFAULT;
	wq = calloc(1, sizeof(*wq));
	err = wq ? sd_handle_new(c->ctx, SD_WQ, wq, &handle) : ENOMEM;
	if (err)
		goto free;
	wq->state = IBV_WQS_RESET;
	wq->user_handle = sd_in_u64(c, UVERBS_ATTR_CREATE_WQ_USER_HANDLE, 0);
	wq->q = (struct sd_qp){ .dev = sd_port_of(c->ctx, 1), .ctx = c->ctx, .pd = pd, .recv_cq = cq, .uidx = drv.user_index,
				.rq = (uint8_t *)(uintptr_t)drv.buf_addr, .rq_cnt = drv.rq_wqe_count, .rq_shift = drv.rq_wqe_shift,
				.dbrec = (volatile uint32_t *)(uintptr_t)drv.db_addr, .strip_vlan = flags };
	if (striding)
		wq->q.strides = (struct sd_strides){ drv.single_stride_log_num_of_bytes, drv.single_wqe_log_num_of_strides,
						     drv.two_byte_shift_en ? 2 : 0 };
	err = sd_wq_add(wq);
	if (err) {
		sd_handle_free(handle);
		goto free;
	}
	wq->async = sd_channel_hold(async);
	if (SD_OUT(c, UVERBS_ATTR_UHW_OUT, resp) || SD_OUT(c, UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, max_wr) ||
	    SD_OUT(c, UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, max_sge) || SD_OUT(c, UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, wq->wqn))
		return sd_undo(c, SD_WQ, handle);
	sd_out_obj(c, UVERBS_ATTR_CREATE_WQ_HANDLE, handle);
	return 0;
free:
	free(wq);
	return err;
}

void sd_async_wq(struct host_wq *wq)
{
	struct ib_uverbs_async_event_desc ev = { .element = wq->user_handle, .event_type = IBV_EVENT_WQ_FATAL };

	if (wq->q.devx)
		sd_devx_event(wq->q.devx, sd_devx_event_type(IBV_EVENT_QP_FATAL), 0);
	else if (sd_channel_send(wq->async, &ev))
		wq->async_events++;
}

int sd_cmd_wq_destroy(struct sd_cmd *c)
{
	struct ib_uverbs_ex_destroy_wq_resp resp = { .events_reported = 0 };
	uint32_t none;
	int err = sd_destroy(c->ctx, SD_WQ, sd_attr(c, UVERBS_ATTR_DESTROY_WQ_HANDLE)->data, &none, &resp.events_reported);

	return err ? err : SD_OUT(c, UVERBS_ATTR_DESTROY_WQ_RESP, resp.events_reported);
}

int sd_cmd_wq_modify(struct sd_cmd *c)
{
	struct ib_uverbs_ex_modify_wq req;
	struct mlx5_ib_modify_wq drv;
	struct host_wq *wq;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_CORE_IN), &req, sizeof(req));

	if (!err)
		err = sd_in(sd_attr(c, UVERBS_ATTR_UHW_IN), &drv, sizeof(drv));
	if (err)
		return err;
	wq = sd_handle_get(c->ctx, SD_WQ, req.wq_handle);
	if (!wq || !req.attr_mask || req.attr_mask > (IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE | IBV_WQ_ATTR_FLAGS))
		return EINVAL;
	if (drv.comp_mask || drv.reserved ||
	    (req.attr_mask & IBV_WQ_ATTR_FLAGS && req.flags_mask & ~(uint32_t)IBV_WQ_FLAGS_CVLAN_STRIPPING))
		return EOPNOTSUPP;
	if (req.attr_mask & IBV_WQ_ATTR_CURR_STATE && req.curr_wq_state != wq->state)
		return EINVAL;
	if (req.attr_mask & IBV_WQ_ATTR_STATE && (req.wq_state > IBV_WQS_ERR || !sd_wq_may(wq->state, (enum ibv_wq_state)req.wq_state)))
		return EINVAL;
	if (req.attr_mask & IBV_WQ_ATTR_FLAGS && req.flags_mask)
		wq->q.strip_vlan = req.flags;
	if (req.attr_mask & IBV_WQ_ATTR_STATE)
		sd_wq_move(wq, (enum ibv_wq_state)req.wq_state);
	return 0;
}

/* ---- tables ---- */

int sd_cmd_ind_tbl_create(struct sd_cmd *c)
{
	struct ib_uverbs_ex_create_rwq_ind_table_resp resp = { .response_length = sizeof(resp) };
	struct mlx5_ib_create_rwq_ind_tbl_resp drv = { .response_length = sizeof(drv) };
	struct {
		uint32_t comp_mask, log_size, handles[SD_MAX_IND_TBL_SIZE];
	} req;
	struct host_ind_tbl *t;
	uint32_t n;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_CORE_IN), &req, sizeof(req));

	if (err)
		return err;
	if (req.comp_mask)
		return EOPNOTSUPP;
	if (req.log_size >= 32 || 1u << req.log_size > SD_MAX_IND_TBL_SIZE)
		return EINVAL;
	n = 1u << req.log_size;
	if (sd_attr(c, UVERBS_ATTR_CORE_IN)->len < 8 + 4 * n)
		return EINVAL;
	t = calloc(1, sizeof(*t) + n * sizeof(t->wq[0]));
	if (!t)
		return ENOMEM;
	t->ctx = c->ctx;
	t->cnt = t->max = n;
	for (uint32_t i = 0; i < n; i++) {
		t->wq[i] = sd_handle_get(c->ctx, SD_WQ, req.handles[i]);
		if (!t->wq[i]) {
			err = EINVAL;
			goto free;
		}
	}
	err = sd_handle_new(c->ctx, SD_IND_TBL, t, &resp.ind_tbl_handle);
	if (err)
		goto free;
	err = sd_ind_tbl_add(t);
	if (err) {
		sd_handle_free(resp.ind_tbl_handle);
		goto free;
	}
	resp.ind_tbl_num = t->number;
	if (SD_OUT(c, UVERBS_ATTR_UHW_OUT, drv) || SD_OUT(c, UVERBS_ATTR_CORE_OUT, resp))
		return sd_undo(c, SD_IND_TBL, resp.ind_tbl_handle);
	return 0;
free:
	free(t);
	return err;
}

int sd_cmd_ind_tbl_destroy(struct sd_cmd *c)
{
	return sd_cmd_destroy(c, SD_IND_TBL, UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE);
}
