/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * qp.c: queue pairs as the commands see them: creation, state machine, query.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "kernel.h"

static bool power_of_2(uint32_t n)
{
	return n && !(n & (n - 1));
}

static void sd_qp_hold(struct sd_qp *qp)
{
	qp->pd->refs++;
	qp->send_cq->refs++;
	qp->recv_cq->refs++;
	if (qp->srq)
		qp->srq->refs++;
}

int sd_qp_create(struct sd_ctx *ctx, struct sd_qp_args *a, uint32_t *handle, uint32_t *qpn)
{
	const uint32_t scatter = MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE;
	const struct mlx5_ib_create_qp *drv = a->drv;
	const uint32_t dci = a->type == SD_QPT_DCI ? MLX5_QP_FLAG_TYPE_DCI | MLX5_QP_FLAG_DCI_STREAM : 0;
	const bool raw = a->type == IBV_QPT_RAW_PACKET;
	uint64_t rq_bytes = 0, sq_bytes = (uint64_t)drv->sq_wqe_count << 6, sq_at;
	struct host_qp *hq;
	struct sd_uar *uar;
	struct sd_qp *qp;
	int err;

	/* Signatures, packet-based credits and the rest are capabilities that this device does not claim */
	if (!(drv->flags & MLX5_QP_FLAG_UAR_PAGE_INDEX) || drv->flags & ~(scatter | dci | MLX5_QP_FLAG_UAR_PAGE_INDEX))
		return EINVAL;
	if (a->cap.max_send_wr > SD_MAX_SQ_WQEBB || a->cap.max_recv_wr > SD_MAX_RQ_WR || a->cap.max_send_sge > SD_MAX_SGE ||
	    a->cap.max_recv_sge > SD_MAX_SGE + 2 || a->cap.max_inline_data > SD_MAX_SQ_DESC)
		return EINVAL;
	if (drv->sq_wqe_count > SD_MAX_SQ_WQEBB || (drv->sq_wqe_count && !power_of_2(drv->sq_wqe_count)))
		return EINVAL;
	if (!drv->sq_wqe_count != !a->cap.max_send_wr)
		return EINVAL;
	if (a->srq && ((a->srq->tm && a->type != IBV_QPT_RC) || a->srq->xrcd))
		return EINVAL;
	if ((a->type == SD_QPT_DCI || a->type == IBV_QPT_XRC_SEND) && (a->cap.max_recv_wr || a->cap.max_recv_sge))
		return EINVAL;
	if (drv->flags & MLX5_QP_FLAG_DCI_STREAM && (drv->dci_streams.log_num_concurent > SD_LOG_STREAMS ||
						     drv->dci_streams.log_num_errored > SD_LOG_STREAMS))
		return EINVAL;
	/* A QP with a shared receive queue has none of its own, even if the program asks for one */
	if (a->cap.max_recv_wr && !a->srq) {
		if (!power_of_2(drv->rq_wqe_count) || drv->rq_wqe_count > SD_MAX_RQ_WR || drv->rq_wqe_shift < 4 ||
		    drv->rq_wqe_shift > 9)
			return EINVAL;
		rq_bytes = (uint64_t)drv->rq_wqe_count << drv->rq_wqe_shift;
		if (rq_bytes % 64)
			return EINVAL;
	}
	/* A QP that only receives into a list of tags has no ring at all */
	if ((!(sq_bytes + rq_bytes) && !(a->srq && a->srq->tm)) || drv->buf_addr % 64 || drv->db_addr % 8)
		return EINVAL;
	if (drv->uidx > 0xffffff)
		return EINVAL;
	/* Of a raw packet QP the two rings lie apart */
	sq_at = raw ? drv->sq_buf_addr : drv->buf_addr + rq_bytes;
	if (raw && (sq_at % 64 || a->srq))
		return EINVAL;
	if ((rq_bytes && !sd_mem_ok(drv->buf_addr, rq_bytes, false)) || (sq_bytes && !sd_mem_ok(sq_at, sq_bytes, false)) ||
	    !sd_mem_ok(drv->db_addr, 8, false))
		return EFAULT;

	uar = sd_uar_get(ctx, drv->bfreg_index);
	if (!uar)
		return EINVAL;
	hq = calloc(1, sizeof(*hq));
	err = hq ? sd_handle_new(ctx, SD_QP, hq, handle) : ENOMEM;
	if (err)
		goto put_uar;
	qp = &hq->q;
	*qp = (struct sd_qp){ .dev = sd_port_of(ctx, 1), .srq = a->srq, .uidx = drv->uidx, .type = a->type, .state = IBV_QPS_RESET, .ctx = ctx,
			      .pd = a->pd, .send_cq = a->send_cq, .recv_cq = a->recv_cq, .uar = uar, .sig_all = a->sig_all,
			      .wqebb_cnt = drv->sq_wqe_count, .max_atomic = SD_MAX_ATOMIC, .strip_vlan = a->strip_vlan,
			      .no_self = a->no_self };
	qp->dbrec = (volatile uint32_t *)(uintptr_t)drv->db_addr;
	qp->sq = (uint8_t *)(uintptr_t)sq_at;
	if (rq_bytes) {
		qp->rq = (uint8_t *)(uintptr_t)drv->buf_addr;
		qp->rq_cnt = drv->rq_wqe_count;
		qp->rq_shift = drv->rq_wqe_shift;
		qp->max_recv_sge = 1u << (drv->rq_wqe_shift - 4);
	}
	/*
	 * As the kernel's driver: a datagram, with its GRH, never; the requester's side only where
	 * there are answers, and every WQE is signaled or it is asked for by name
	 */
	if (drv->flags & MLX5_QP_FLAG_DCI_STREAM)
		qp->streams = 1u << drv->dci_streams.log_num_errored;
	if (drv->flags & MLX5_QP_FLAG_SCATTER_CQE && (a->type == IBV_QPT_RC || a->type == IBV_QPT_UC))
		qp->scatter_rsp = a->recv_cq->cqe_size == 128 ? 64 : 32;
	/* With a 128-byte CQE libmlx5 44 looks for a requester's data in the wrong place: there, memory it is */
	if (qp->scatter_rsp && a->type == IBV_QPT_RC && (a->sig_all || drv->flags & MLX5_QP_FLAG_ALLOW_SCATTER_CQE) &&
	    a->send_cq->cqe_size == 64)
		qp->scatter_req = 32;
	qp->attr.qp_state = IBV_QPS_RESET;
	hq->user_handle = a->user_handle;
	err = sd_qp_add(&hq->q);
	if (err)
		goto free_handle;
	hq->async = sd_channel_hold(a->async);
	sd_qp_hold(qp);
	sd_engine_qp_created(qp);
	sd_trap_page(uar);
	*qpn = qp->qpn;
	return 0;
free_handle:
	sd_handle_free(*handle);
put_uar:
	free(hq);
	sd_uar_put(uar);
	return err;
}

int sd_qp_create_target(struct sd_ctx *ctx, struct sd_qp_args *a, uint32_t *handle, uint32_t *qpn)
{
	const struct mlx5_ib_create_qp *drv = a->drv;
	struct host_qp *hq;
	struct sd_qp *qp;
	int err;

	if (a->type == SD_QPT_DCT && (drv->flags & ~(uint32_t)MLX5_QP_FLAG_TYPE_DCT || !a->srq || a->srq->xrcd || drv->uidx > 0xffffff))
		return EINVAL;
	hq = calloc(1, sizeof(*hq));
	err = hq ? sd_handle_new(ctx, SD_QP, hq, handle) : ENOMEM;
	if (err)
		goto free;
	qp = &hq->q;
	*qp = (struct sd_qp){ .dev = sd_port_of(ctx, 1), .type = a->type, .state = IBV_QPS_RESET, .ctx = ctx, .uidx = 0xffffff, .xrcd = a->xrcd,
			      .send_cq = &sd_no_cq, .recv_cq = &sd_no_cq, .max_atomic = SD_MAX_ATOMIC };
	if (a->type == SD_QPT_DCT) {
		qp->pd = a->pd;
		qp->send_cq = qp->recv_cq = a->recv_cq;
		qp->srq = a->srq;
		qp->uidx = drv->uidx;
		qp->dc_key = drv->access_key;
	}
	hq->user_handle = a->user_handle;
	err = sd_qp_add(&hq->q);
	if (err)
		goto free_handle;
	hq->async = sd_channel_hold(a->async);
	if (qp->xrcd)
		qp->xrcd->refs++;
	else
		sd_qp_hold(qp);
	sd_engine_qp_created(qp);
	*qpn = qp->xrcd ? qp->qpn : 0;
	return 0;
free_handle:
	sd_handle_free(*handle);
free:
	free(hq);
	return err;
}

int sd_qp_create_rss(struct sd_ctx *ctx, struct sd_qp_args *a, struct sd_tir *tir, uint32_t *handle)
{
	struct host_qp *hq = calloc(1, sizeof(*hq));
	int err = hq ? sd_handle_new(ctx, SD_QP, hq, handle) : ENOMEM;

	if (err)
		goto free;
	hq->q = (struct sd_qp){ .dev = sd_port_of(ctx, 1), .type = a->type, .state = IBV_QPS_RESET, .ctx = ctx, .uidx = 0xffffff, .pd = a->pd,
				.send_cq = &sd_no_cq, .recv_cq = &sd_no_cq };
	hq->user_handle = a->user_handle;
	err = sd_qp_add(&hq->q);
	if (err)
		goto free_handle;
	hq->async = sd_channel_hold(a->async);
	hq->tir = tir;
	sd_qp_hold(&hq->q);
	return 0;
free_handle:
	sd_handle_free(*handle);
free:
	free(hq);
	return err;
}

/* ---- the state machine: ib_modify_qp_is_ok()'s table ---- */

#define STATES (IBV_QPS_ERR + 1)

enum { RC, UC, UD, RAW, INI, TGT, TYPES }; /* the last two: XRC */

/* What any connected QP, or both kinds of it, may say in the same breath */
#define FIRST (IBV_QP_PKEY_INDEX | IBV_QP_PORT)
#define PATH (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define ALT (IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS)
#define MIG (ALT | IBV_QP_PATH_MIG_STATE)

static const struct {
	bool valid;
	int required[TYPES], optional[TYPES];
} transitions[STATES][STATES] = {
	[IBV_QPS_RESET] = {
		[IBV_QPS_RESET] = { .valid = true },
		[IBV_QPS_INIT] = { .valid = true,
				   .required = { [RC] = FIRST | IBV_QP_ACCESS_FLAGS, [UC] = FIRST | IBV_QP_ACCESS_FLAGS,
						 [UD] = FIRST | IBV_QP_QKEY, [RAW] = IBV_QP_PORT, [INI] = FIRST | IBV_QP_ACCESS_FLAGS,
						 [TGT] = FIRST | IBV_QP_ACCESS_FLAGS } },
	},
	[IBV_QPS_INIT] = {
		[IBV_QPS_RESET] = { .valid = true },
		[IBV_QPS_ERR] = { .valid = true },
		[IBV_QPS_INIT] = { .valid = true,
				   .optional = { [RC] = FIRST | IBV_QP_ACCESS_FLAGS, [UC] = FIRST | IBV_QP_ACCESS_FLAGS,
						 [UD] = FIRST | IBV_QP_QKEY, [INI] = FIRST | IBV_QP_ACCESS_FLAGS,
						 [TGT] = FIRST | IBV_QP_ACCESS_FLAGS } },
		[IBV_QPS_RTR] = { .valid = true,
				  .required = { [RC] = PATH | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, [UC] = PATH,
						[INI] = PATH, [TGT] = PATH | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER },
				  .optional = { [RC] = ALT | IBV_QP_PKEY_INDEX, [UC] = ALT | IBV_QP_PKEY_INDEX,
						[UD] = IBV_QP_PKEY_INDEX | IBV_QP_QKEY, [INI] = ALT | IBV_QP_PKEY_INDEX,
						[TGT] = ALT | IBV_QP_PKEY_INDEX } },
	},
	[IBV_QPS_RTR] = {
		[IBV_QPS_RESET] = { .valid = true },
		[IBV_QPS_ERR] = { .valid = true },
		[IBV_QPS_RTS] = { .valid = true,
				  .required = { [RC] = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
						       IBV_QP_MAX_QP_RD_ATOMIC,
						[UC] = IBV_QP_SQ_PSN, [UD] = IBV_QP_SQ_PSN,
						[INI] = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
							IBV_QP_MAX_QP_RD_ATOMIC,
						[TGT] = IBV_QP_TIMEOUT | IBV_QP_SQ_PSN },
				  .optional = { [RC] = IBV_QP_CUR_STATE | MIG | IBV_QP_MIN_RNR_TIMER, [UC] = IBV_QP_CUR_STATE | MIG,
						[UD] = IBV_QP_CUR_STATE | IBV_QP_QKEY, [INI] = IBV_QP_CUR_STATE | MIG,
						[TGT] = IBV_QP_CUR_STATE | MIG | IBV_QP_MIN_RNR_TIMER } },
	},
	[IBV_QPS_RTS] = {
		[IBV_QPS_RESET] = { .valid = true },
		[IBV_QPS_ERR] = { .valid = true },
		[IBV_QPS_RTS] = { .valid = true,
				  .optional = { [RC] = IBV_QP_CUR_STATE | MIG | IBV_QP_MIN_RNR_TIMER, [UC] = IBV_QP_CUR_STATE | MIG,
						[UD] = IBV_QP_CUR_STATE | IBV_QP_QKEY, [INI] = IBV_QP_CUR_STATE | MIG,
						[TGT] = IBV_QP_CUR_STATE | MIG | IBV_QP_MIN_RNR_TIMER } },
		[IBV_QPS_SQD] = { .valid = true,
				  .optional = { [RC] = IBV_QP_EN_SQD_ASYNC_NOTIFY, [UC] = IBV_QP_EN_SQD_ASYNC_NOTIFY,
						[UD] = IBV_QP_EN_SQD_ASYNC_NOTIFY, [INI] = IBV_QP_EN_SQD_ASYNC_NOTIFY,
						[TGT] = IBV_QP_EN_SQD_ASYNC_NOTIFY } },
	},
	[IBV_QPS_SQD] = {
		[IBV_QPS_RESET] = { .valid = true },
		[IBV_QPS_ERR] = { .valid = true },
		[IBV_QPS_RTS] = { .valid = true,
				  .optional = { [RC] = IBV_QP_CUR_STATE | MIG | IBV_QP_MIN_RNR_TIMER, [UC] = IBV_QP_CUR_STATE | MIG,
						[UD] = IBV_QP_CUR_STATE | IBV_QP_QKEY, [INI] = IBV_QP_CUR_STATE | MIG,
						[TGT] = IBV_QP_CUR_STATE | MIG | IBV_QP_MIN_RNR_TIMER } },
		[IBV_QPS_SQD] = { .valid = true,
				  .optional = { [RC] = IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						       IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | MIG | IBV_QP_PKEY_INDEX |
						       IBV_QP_MIN_RNR_TIMER,
						[UC] = IBV_QP_AV | MIG | IBV_QP_PKEY_INDEX, [UD] = IBV_QP_PKEY_INDEX | IBV_QP_QKEY,
						[INI] = IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
							IBV_QP_MAX_QP_RD_ATOMIC | MIG | IBV_QP_PKEY_INDEX,
						[TGT] = IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_MAX_DEST_RD_ATOMIC | MIG |
							IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER } },
	},
	/* Where a send error leaves a QP of an unreliable type; of an RC QP it is the error state */
	[IBV_QPS_SQE] = {
		[IBV_QPS_RESET] = { .valid = true },
		[IBV_QPS_ERR] = { .valid = true },
		[IBV_QPS_RTS] = { .valid = true,
				  .optional = { [UC] = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS, [UD] = IBV_QP_CUR_STATE | IBV_QP_QKEY } },
	},
	[IBV_QPS_ERR] = {
		[IBV_QPS_RESET] = { .valid = true },
		[IBV_QPS_ERR] = { .valid = true },
	},
};

/* The mlx5 driver's own: a DCI has no peer, and a DCT is made by its last step */
static bool dc_transition_ok(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	static const struct {
		enum ibv_qp_type type;
		enum ibv_qp_state from, to;
		int required, optional;
	} steps[] = {
		{ SD_QPT_DCI, IBV_QPS_RESET, IBV_QPS_INIT, FIRST, 0 },
		{ SD_QPT_DCI, IBV_QPS_INIT, IBV_QPS_INIT, 0, FIRST },
		{ SD_QPT_DCI, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX | IBV_QP_AV },
		{ SD_QPT_DCI, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
		  IBV_QP_SQ_PSN, IBV_QP_MIN_RNR_TIMER },
		{ SD_QPT_DCI, IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_MIN_RNR_TIMER },
		{ SD_QPT_DCT, IBV_QPS_RESET, IBV_QPS_INIT, FIRST | IBV_QP_ACCESS_FLAGS, 0 },
		{ SD_QPT_DCT, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU, 0 },
	};

	if (!(mask & IBV_QP_STATE))
		return false;
	mask &= ~IBV_QP_STATE;
	if (type == SD_QPT_DCI && (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET)))
		return !mask;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (steps[i].type == type && steps[i].from == from && steps[i].to == to)
			return (mask & steps[i].required) == steps[i].required && !(mask & ~(steps[i].required | steps[i].optional));
	return false;
}

static bool transition_ok(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	const int t = type == IBV_QPT_RAW_PACKET ? RAW : type == IBV_QPT_UD ? UD : type == IBV_QPT_UC ? UC : type == IBV_QPT_XRC_SEND ? INI :
		      type == IBV_QPT_XRC_RECV ? TGT : RC, required = transitions[from][to].required[t];

	if (type == SD_QPT_DCI || type == SD_QPT_DCT)
		return dc_transition_ok(type, from, to, mask);
	if (mask & IBV_QP_CUR_STATE && (from < IBV_QPS_RTR || from > IBV_QPS_SQE))
		return false;
	/* The mlx5 driver has no such step for its two queues */
	if (t == RAW && from == IBV_QPS_SQE && to == IBV_QPS_RTS)
		return false;
	return transitions[from][to].valid && (mask & required) == required &&
	       !(mask & ~(required | transitions[from][to].optional[t] | IBV_QP_STATE));
}

/*
 * RoCE has no LIDs: without a GRH there is no address. A GRH names one of our own GIDs, and one
 * that somebody has. It begins at the port of the QP
 */
static int path_check(unsigned dev, uint32_t port_num, const struct ib_uverbs_qp_dest *d)
{
	uint8_t mac[6];
	int err = 0;

	if (d->port_num != port_num || d->sl > 15 || (!sd_link_ib() && !d->is_global))
		return EINVAL;
	if (d->is_global)
		err = sd_gid(dev, d->sgid_index, NULL, NULL);
	return err || sd_link_ib() ? err : sd_resolve(d->dgid, mac);
}

/* Accepted and ignored; the last are IBV_ACCESS_FLUSH_* of later headers */
#define NOT_OF_QPS (IBV_ACCESS_ON_DEMAND | 3 << 8)

static bool values_ok(const struct ib_uverbs_modify_qp *c, int mask)
{
	const uint32_t access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
				IBV_ACCESS_MW_BIND | NOT_OF_QPS;

	if (mask & IBV_QP_PORT && !sd_port_ok(c->port_num))
		return false;
	if (mask & IBV_QP_PKEY_INDEX && c->pkey_index >= sd_pkeys())
		return false;
	if (mask & IBV_QP_ACCESS_FLAGS && c->qp_access_flags & ~access)
		return false;
	if (mask & IBV_QP_ALT_PATH) /* path migration is a capability that this device does not claim */
		return false;
	if (mask & IBV_QP_PATH_MIG_STATE && c->path_mig_state != IBV_MIG_MIGRATED)
		return false;
	if (mask & IBV_QP_PATH_MTU && (c->path_mtu < IBV_MTU_256 || c->path_mtu > IBV_MTU_4096))
		return false;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC && c->max_rd_atomic > SD_MAX_RD_ATOMIC)
		return false;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC && c->max_dest_rd_atomic > SD_MAX_RD_ATOMIC)
		return false;
	if (mask & IBV_QP_DEST_QPN && c->dest_qp_num > 0xffffff)
		return false;
	if (mask & IBV_QP_MIN_RNR_TIMER && c->min_rnr_timer > 31)
		return false;
	if (mask & IBV_QP_TIMEOUT && c->timeout > 31)
		return false;
	if (mask & IBV_QP_RETRY_CNT && c->retry_cnt > 7)
		return false;
	return !(mask & IBV_QP_RNR_RETRY && c->rnr_retry > 7);
}

static void path_set(struct ibv_ah_attr *ah, const struct ib_uverbs_qp_dest *d)
{
	memcpy(ah->grh.dgid.raw, d->dgid, 16);
	ah->grh.flow_label = d->flow_label & 0xfffff;
	ah->grh.sgid_index = d->sgid_index;
	ah->grh.hop_limit = d->hop_limit;
	ah->grh.traffic_class = d->traffic_class;
	ah->dlid = d->dlid;
	ah->sl = d->sl;
	ah->src_path_bits = d->src_path_bits;
	ah->static_rate = d->static_rate;
	ah->is_global = d->is_global;
	ah->port_num = d->port_num;
}

int sd_qp_modify(struct sd_qp *qp, const struct ib_uverbs_modify_qp *c)
{
	struct ibv_qp_attr *at = &qp->attr;
	enum ibv_qp_state from = qp->state, to;
	int mask = c->attr_mask, err = 0;

	/* What has only a table of WQs has no state */
	if (sd_container(qp, struct host_qp, q)->tir)
		return ENOSYS;
	/* As the kernel: half of an RC QP's attributes are left out, so that programs can give all of them */
	if (qp->type == IBV_QPT_XRC_SEND)
		mask &= ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	else if (qp->type == IBV_QPT_XRC_RECV)
		mask &= ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
	if ((mask & IBV_QP_STATE && c->qp_state > IBV_QPS_ERR) || (mask & IBV_QP_CUR_STATE && c->cur_qp_state > IBV_QPS_ERR))
		return EINVAL;
	/* The caller's idea of the current state; ours is the truth when they differ */
	if (mask & IBV_QP_CUR_STATE && c->cur_qp_state != from)
		return EINVAL;
	to = mask & IBV_QP_STATE ? (enum ibv_qp_state)c->qp_state : from;
	if (!transition_ok(qp->type, from, to, mask) || !values_ok(c, mask))
		return EINVAL;
	/* What stays with tag matching's command QP needs no way on a network, and libmlx5 gives it none */
	if (mask & IBV_QP_AV && qp->type != SD_QPT_DCI && qp->type != SD_QPT_DCT &&
	    !(qp->srq && qp->srq->tm && c->dest_qp_num == qp->qpn))
		err = path_check(qp->dev, mask & IBV_QP_PORT ? c->port_num : at->port_num, &c->dest);
	if (err)
		return err;

	if (mask & IBV_QP_ACCESS_FLAGS)
		at->qp_access_flags = c->qp_access_flags & ~(uint32_t)NOT_OF_QPS;
	if (mask & IBV_QP_PKEY_INDEX)
		at->pkey_index = c->pkey_index;
	if (mask & IBV_QP_PORT) {
		at->port_num = c->port_num;
		qp->dev = sd_port_of(qp->ctx, c->port_num);
	}
	if (mask & IBV_QP_QKEY)
		at->qkey = c->qkey;
	if (mask & IBV_QP_AV)
		path_set(&at->ah_attr, &c->dest);
	if (mask & IBV_QP_PATH_MTU)
		at->path_mtu = c->path_mtu;
	if (mask & IBV_QP_TIMEOUT)
		at->timeout = c->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		at->retry_cnt = c->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		at->rnr_retry = c->rnr_retry;
	if (mask & IBV_QP_RQ_PSN)
		at->rq_psn = c->rq_psn & 0xffffff;
	if (mask & IBV_QP_SQ_PSN)
		at->sq_psn = c->sq_psn & 0xffffff;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		at->max_rd_atomic = c->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		at->max_dest_rd_atomic = c->max_dest_rd_atomic;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		at->min_rnr_timer = c->min_rnr_timer;
	if (mask & IBV_QP_DEST_QPN)
		at->dest_qp_num = c->dest_qp_num;
	if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY)
		at->en_sqd_async_notify = c->en_sqd_async_notify;
	if (qp->type == SD_QPT_DCT)
		at->max_dest_rd_atomic = SD_MAX_RD_ATOMIC;
	if (to == IBV_QPS_RESET) {
		memset(at, 0, sizeof(*at));
		/* Commands may have set these */
		qp->loopback = qp->mmo = false;
		qp->max_msg = qp->udp_sport = 0;
		qp->ordering = SD_IN_ORDER;
	}
	qp->state = at->qp_state = to;
	if (from != IBV_QPS_RESET || to != IBV_QPS_RESET)
		sd_engine_qp_modified(qp, from, mask);
	return 0;
}

void sd_qp_query(struct sd_qp *qp, struct ib_uverbs_query_qp_resp *r)
{
	const struct ibv_qp_attr *at = &qp->attr;
	const struct ibv_ah_attr *ah = &at->ah_attr;

	memset(r, 0, sizeof(*r));
	memcpy(r->dest.dgid, ah->grh.dgid.raw, 16);
	r->dest.flow_label = ah->grh.flow_label;
	r->dest.dlid = ah->dlid;
	r->dest.sgid_index = ah->grh.sgid_index;
	r->dest.hop_limit = ah->grh.hop_limit;
	r->dest.traffic_class = ah->grh.traffic_class;
	r->dest.sl = ah->sl;
	r->dest.src_path_bits = ah->src_path_bits;
	r->dest.static_rate = ah->static_rate;
	r->dest.is_global = ah->is_global;
	r->dest.port_num = ah->port_num;
	/* As the kernel: the receive queue is what its ring holds; of the send queue libmlx5 alone knows, and says it */
	r->max_recv_wr = qp->rq_cnt;
	r->max_recv_sge = qp->max_recv_sge;
	r->qkey = at->qkey;
	r->rq_psn = at->rq_psn;
	r->sq_psn = at->sq_psn;
	r->dest_qp_num = at->dest_qp_num;
	r->qp_access_flags = at->qp_access_flags;
	r->pkey_index = at->pkey_index;
	r->qp_state = r->cur_qp_state = qp->state;
	r->path_mtu = at->path_mtu;
	r->max_rd_atomic = at->max_rd_atomic;
	r->max_dest_rd_atomic = at->max_dest_rd_atomic;
	r->min_rnr_timer = at->min_rnr_timer;
	r->port_num = at->port_num;
	r->timeout = at->timeout;
	r->retry_cnt = at->retry_cnt;
	r->rnr_retry = at->rnr_retry;
	r->sq_sig_all = qp->sig_all;
}

/* ---- multicast groups ---- */

static bool multicast(const uint8_t gid[16])
{
	static const uint8_t v4[12] = { [10] = 0xff, 0xff };

	return gid[0] == 0xff || (!memcmp(gid, v4, 12) && gid[12] >> 4 == 0xe);
}

/* Attaching twice is as good as once; only what was attached can be detached */
int sd_qp_mcast(struct sd_qp *qp, const uint8_t gid[16], uint16_t lid, bool attach)
{
	struct sd_mcast **at, *m;

	for (at = &qp->groups; (m = *at); at = &m->next)
		if (m->lid == lid && !memcmp(m->gid, gid, 16))
			break;
	if (!attach) {
		if (!m)
			return EINVAL;
		*at = m->next;
		free(m);
		return 0;
	}
	if (m)
		return 0;
	if (!multicast(gid) || qp->type != IBV_QPT_UD || (sd_link_ib() && (lid < 0xc000 || lid == 0xffff)))
		return EINVAL;
	m = calloc(1, sizeof(*m));
	if (!m)
		return ENOMEM;
	memcpy(m->gid, gid, 16);
	m->lid = lid;
	*at = m;
	return 0;
}
