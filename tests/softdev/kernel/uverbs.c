/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * uverbs.c: the commands: decode, check, answer.
 *
 * All come through one ioctl: an object, a method, and attributes. The id of an attribute is its
 * place in one of two name spaces, the core's and the driver's (from 0x1000 on). Input of 8 bytes
 * or less is in the attribute itself; output is a pointer. The method INVOKE_WRITE wraps the older
 * write() commands: a core structure and driver data, each in and out.
 *
 * Pointers belong to the program. Everything they point to is copied in a way that answers EFAULT
 * and never raises SIGSEGV.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include "kernel.h"

#define DRIVER(id) (SD_ATTRS + ((id) & 0xfff)) /* place of a driver attribute */

/* ---- attributes ---- */

static unsigned place(unsigned id)
{
	return id & UVERBS_UDATA_DRIVER_DATA_FLAG ? DRIVER(id) : id;
}

struct ib_uverbs_attr *sd_attr(const struct sd_cmd *c, unsigned id)
{
	return c->at[place(id)];
}

/* 0 or EFAULT. Where a sandbox forbids the call there is only trust */
int sd_copy(void *here, uint64_t there, size_t len, bool out)
{
	struct iovec h = { here, len }, t = { (void *)(uintptr_t)there, len };
	ssize_t n;

	if (!len)
		return 0;
	n = out ? process_vm_writev(sd_self, &h, 1, &t, 1, 0) : process_vm_readv(sd_self, &h, 1, &t, 1, 0);
	if (n < 0 && (errno == EPERM || errno == ENOSYS)) {
		if (!there)
			return EFAULT;
		memcpy(out ? t.iov_base : here, out ? here : t.iov_base, len);
		return 0;
	}
	return n == (ssize_t)len ? 0 : EFAULT;
}

uint64_t sd_in_u64(const struct sd_cmd *c, unsigned id, uint64_t otherwise)
{
	const struct ib_uverbs_attr *a = sd_attr(c, id);

	if (!a)
		return otherwise;
	return a->len == 4 ? (uint32_t)a->data : a->data;
}

/* An input structure: a shorter one is filled up with zeros; what we do not know must be zero */
int sd_in(const struct ib_uverbs_attr *a, void *to, size_t size)
{
	uint8_t more[256];
	size_t len = a ? a->len : 0, known = len < size ? len : size;
	int err;

	memset(to, 0, size);
	if (len <= sizeof(a->data)) {
		if (len > size)
			return EOPNOTSUPP;
		if (len)
			memcpy(to, &a->data, len);
		return 0;
	}
	err = sd_copy(to, a->data, known, false);
	if (err || len == known)
		return err;
	if (len - known > sizeof(more))
		return EOPNOTSUPP;
	err = sd_copy(more, a->data + known, len - known, false);
	for (size_t i = 0; !err && i < len - known; i++)
		if (more[i])
			return EOPNOTSUPP;
	return err;
}

int sd_out(struct ib_uverbs_attr *a, const void *from, size_t size)
{
	static const uint8_t zeros[256];
	size_t len = a ? a->len : 0, known = len < size ? len : size;
	int err = sd_copy((void *)(uintptr_t)from, len ? a->data : 0, known, true);

	for (size_t at = known; !err && at < len; at += sizeof(zeros))
		err = sd_copy((void *)(uintptr_t)zeros, a->data + at, len - at < sizeof(zeros) ? len - at : sizeof(zeros), true);
	if (!err && len)
		a->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
	return err;
}

void *sd_in_obj(const struct sd_cmd *c, unsigned id, enum sd_kind kind)
{
	const struct ib_uverbs_attr *a = sd_attr(c, id);

	return a && a->data <= UINT32_MAX ? sd_handle_get(c->ctx, kind, a->data) : NULL;
}

void sd_out_obj(const struct sd_cmd *c, unsigned id, uint32_t handle)
{
	sd_attr(c, id)->data = handle;
	sd_attr(c, id)->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
}

/* An object whose maker cannot be told of it: as if it had never been */
int sd_undo(const struct sd_cmd *c, enum sd_kind kind, uint32_t handle)
{
	uint32_t a, b;

	sd_destroy(c->ctx, kind, handle, &a, &b);
	return EFAULT;
}

/* ---- events ---- */

static int async_event_alloc(struct sd_cmd *c)
{
	struct ib_uverbs_attr *a = sd_attr(c, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE);
	struct sd_channel *ch;
	int err;

	ch = sd_channel_new(sizeof(struct ib_uverbs_async_event_desc), &err);
	if (!ch)
		return err;
	if (!c->ctx->async)
		c->ctx->async = sd_channel_hold(ch);
	a->data_s64 = ch->fd;
	a->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
	return 0;
}

/* The channel that a create command names for asynchronous events, or the context's own */
int sd_event_fd(struct sd_cmd *c, unsigned id, struct sd_channel **ch)
{
	const struct ib_uverbs_attr *a = sd_attr(c, id);

	*ch = c->ctx->async;
	if (!a)
		return 0;
	*ch = a->data <= INT32_MAX ? sd_channel_get(a->data, sizeof(struct ib_uverbs_async_event_desc)) : NULL;
	return *ch ? 0 : EBADF;
}

/* ---- doorbell pages ---- */

static int uar_alloc(struct sd_cmd *c)
{
	uint64_t type = sd_in_u64(c, MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, 0), offset;
	const uint32_t length = 4096;
	uint32_t handle, page_id;
	int err;

	if (type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF && type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
		return EOPNOTSUPP;
	err = sd_uar_create(c->ctx, &handle, &page_id);
	if (err)
		return err;
	offset = (SD_UAR_FIRST_PAGE + page_id) * 4096ull;
	if (SD_OUT(c, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, offset) || SD_OUT(c, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, length) ||
	    SD_OUT(c, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, page_id))
		return sd_undo(c, SD_UAR, handle);
	sd_out_obj(c, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, handle);
	return 0;
}

/* ---- CQ, QP ---- */

static int cq_create(struct sd_cmd *c)
{
	uint64_t cqe = sd_in_u64(c, UVERBS_ATTR_CREATE_CQ_CQE, 0), flags = sd_in_u64(c, UVERBS_ATTR_CREATE_CQ_FLAGS, 0);
	const struct ib_uverbs_attr *fd = sd_attr(c, UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL);
	struct mlx5_ib_create_cq_resp resp = { .cqn = 0 };
	struct mlx5_ib_create_cq drv;
	struct sd_cq_args a = { .user_handle = sd_in_u64(c, UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 0) };
	uint32_t handle, answer = cqe;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_UHW_IN), &drv, sizeof(drv));

	if (!err)
		err = sd_event_fd(c, UVERBS_ATTR_CREATE_CQ_EVENT_FD, &a.async);
	if (err)
		return err;
	if (sd_in_u64(c, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0) >= SD_COMP_VECTORS || cqe < 1 || cqe >= SD_MAX_CQE)
		return EINVAL;
	if (flags & ~(uint64_t)(IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION | IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN))
		return EOPNOTSUPP;
	a.padded = drv.flags & MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD;
	if (drv.flags & ~(MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX | MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD) || (a.padded && drv.cqe_size != 128))
		return EOPNOTSUPP;
	if (drv.cqe_comp_en) {
		switch (drv.cqe_comp_res_format) {
		case MLX5_IB_CQE_RES_FORMAT_HASH: a.mini_format = SD_MINI_HASH; break;
		case MLX5_IB_CQE_RES_FORMAT_CSUM: a.mini_format = SD_MINI_CSUM; break;
		case MLX5_IB_CQE_RES_FORMAT_CSUM_STRIDX: a.mini_format = SD_MINI_CSUM_STRIDX; break;
		default: return EINVAL;
		}
		a.compression = SD_BASIC;
	}
	if (!(drv.flags & MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX))
		return EINVAL;
	if (fd) {
		a.channel = fd->data <= INT32_MAX ? sd_channel_get(fd->data, sizeof(struct ib_uverbs_comp_event_desc)) : NULL;
		if (!a.channel)
			return EBADF;
	}
	a.buf = drv.buf_addr;
	a.db = drv.db_addr;
	a.entries = cqe + 1;
	a.cqe_size = drv.cqe_size;
	a.page_id = drv.uar_page_index;
	a.ignore_overrun = flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
	a.timestamp = flags & IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION;
	err = sd_cq_create(c->ctx, &a, &handle, &resp.cqn);
	if (err)
		return err;
	if (SD_OUT(c, UVERBS_ATTR_UHW_OUT, resp) || SD_OUT(c, UVERBS_ATTR_CREATE_CQ_RESP_CQE, answer))
		return sd_undo(c, SD_CQ, handle);
	sd_out_obj(c, UVERBS_ATTR_CREATE_CQ_HANDLE, handle);
	return 0;
}

static int cq_destroy(struct sd_cmd *c)
{
	struct ib_uverbs_destroy_cq_resp resp;
	int err = sd_destroy(c->ctx, SD_CQ, sd_attr(c, UVERBS_ATTR_DESTROY_CQ_HANDLE)->data, &resp.comp_events_reported,
			     &resp.async_events_reported);

	return err ? err : SD_OUT(c, UVERBS_ATTR_DESTROY_CQ_RESP, resp);
}

/* 0: not here */
static enum ibv_qp_type type_of(uint64_t type, uint32_t flags)
{
	switch (type) {
	case IB_UVERBS_QPT_RC: return IBV_QPT_RC;
	case IB_UVERBS_QPT_UC: return IBV_QPT_UC;
	case IB_UVERBS_QPT_UD: return IBV_QPT_UD;
	case IB_UVERBS_QPT_RAW_PACKET: return sd_link_ib() ? (enum ibv_qp_type)0 : IBV_QPT_RAW_PACKET;
	case IB_UVERBS_QPT_XRC_INI: return IBV_QPT_XRC_SEND;
	case IB_UVERBS_QPT_XRC_TGT: return IBV_QPT_XRC_RECV;
	case IB_UVERBS_QPT_DRIVER:
		return flags & MLX5_QP_FLAG_TYPE_DCI ? SD_QPT_DCI : flags & MLX5_QP_FLAG_TYPE_DCT ? SD_QPT_DCT : (enum ibv_qp_type)0;
	}
	return (enum ibv_qp_type)0;
}

/* A table of WQs, and what of a packet chooses one of them: nothing else can be asked for */
static int rss_create(struct sd_cmd *c, struct sd_qp_args *a)
{
	struct host_ind_tbl *table = sd_in_obj(c, UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, SD_IND_TBL);
	struct mlx5_ib_create_qp_resp resp = { .bfreg_index = 1u << 31 };
	const struct ib_uverbs_qp_cap none = { 0 };
	struct mlx5_ib_create_qp_rss rss;
	uint8_t tirc[SD_TIRC];
	uint32_t handle;
	struct sd_tir *tir;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_UHW_IN), &rss, sizeof(rss));

	if (err)
		return err;
	if (a->type != IBV_QPT_RAW_PACKET)
		return EOPNOTSUPP;
	if (!table || !a->pd || a->send_cq || a->recv_cq || a->srq || a->xrcd || a->cap.max_send_wr || a->cap.max_recv_wr ||
	    a->cap.max_recv_sge || a->strip_vlan)
		return EINVAL;
	err = sd_tir_of_verbs(&rss, table->cnt, tirc);
	if (err)
		return err;
	tir = sd_tir_new(c->ctx, tirc, NULL, table);
	if (!tir)
		return ENOMEM;
	err = sd_qp_create_rss(c->ctx, a, tir, &handle);
	if (err) {
		sd_tir_free(tir);
		return err;
	}
	if (c->ctx->uid) {
		resp.comp_mask = MLX5_IB_CREATE_QP_RESP_MASK_TIRN;
		resp.tirn = tir->number;
	}
	if (SD_OUT(c, UVERBS_ATTR_UHW_OUT, resp) || SD_OUT(c, UVERBS_ATTR_CREATE_QP_RESP_CAP, none) ||
	    SD_OUT(c, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, none.max_send_wr))
		return sd_undo(c, SD_QP, handle);
	sd_out_obj(c, UVERBS_ATTR_CREATE_QP_HANDLE, handle);
	return 0;
}

static int qp_create(struct sd_cmd *c)
{
	const uint64_t known = IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK | IB_UVERBS_QP_CREATE_SCATTER_FCS |
			       IB_UVERBS_QP_CREATE_CVLAN_STRIPPING | IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING |
			       IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
	uint64_t type = sd_in_u64(c, UVERBS_ATTR_CREATE_QP_TYPE, 0), flags = sd_in_u64(c, UVERBS_ATTR_CREATE_QP_FLAGS, 0);
	struct mlx5_ib_create_qp_resp resp = { .bfreg_index = 1u << 31 }; /* none: the page was named */
	struct mlx5_ib_create_qp drv;
	struct ib_uverbs_qp_cap cap;
	struct sd_qp_args a = { .drv = &drv, .user_handle = sd_in_u64(c, UVERBS_ATTR_CREATE_QP_USER_HANDLE, 0) };
	uint32_t handle, qpn;
	int drv_err = sd_in(sd_attr(c, UVERBS_ATTR_UHW_IN), &drv, sizeof(drv)), err;

	if (type > IB_UVERBS_QPT_DRIVER)
		return EINVAL;
	a.type = type_of(type, drv_err ? 0 : drv.flags);
	if (!a.type) {
		/* libmlx5 tries the driver's own types only to see whether they exist */
		if (type != IB_UVERBS_QPT_DRIVER)
			sd_once(0xffff0100 + type, "queue pairs of type %u are not supported", (unsigned)type);
		return EOPNOTSUPP;
	}
	err = sd_in(sd_attr(c, UVERBS_ATTR_CREATE_QP_CAP), &cap, sizeof(cap));
	if (!err)
		err = sd_event_fd(c, UVERBS_ATTR_CREATE_QP_EVENT_FD, &a.async);
	if (err)
		return err;
	if (flags & ~known)
		return EINVAL;
	if (flags & ~(uint64_t)(IB_UVERBS_QP_CREATE_SQ_SIG_ALL | (type == IB_UVERBS_QPT_RAW_PACKET ? IB_UVERBS_QP_CREATE_CVLAN_STRIPPING : 0) |
				(type == IB_UVERBS_QPT_RAW_PACKET || type == IB_UVERBS_QPT_UD ? IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK : 0)))
		return EOPNOTSUPP;
	a.no_self = flags & IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK;
	a.strip_vlan = flags & IB_UVERBS_QP_CREATE_CVLAN_STRIPPING;
	a.pd = sd_in_obj(c, UVERBS_ATTR_CREATE_QP_PD_HANDLE, SD_PD);
	a.send_cq = sd_in_obj(c, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, SD_CQ);
	a.recv_cq = sd_in_obj(c, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, SD_CQ);
	a.srq = sd_in_obj(c, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, SD_SRQ);
	a.xrcd = sd_in_obj(c, UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, SD_XRCD);
	a.cap = (struct ibv_qp_cap){ cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge, cap.max_recv_sge, cap.max_inline_data };
	if (sd_attr(c, UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE))
		return rss_create(c, &a);
	if (drv_err)
		return drv_err;
	if (!a.xrcd != (a.type != IBV_QPT_XRC_RECV) || (a.type == IBV_QPT_XRC_SEND && a.recv_cq))
		return EINVAL;
	if (a.type == IBV_QPT_XRC_SEND)
		a.recv_cq = a.send_cq;
	if (a.xrcd ? a.pd || a.send_cq || a.recv_cq || a.srq : !a.pd || !a.send_cq || !a.recv_cq)
		return EINVAL;
	if (!a.srq != !sd_attr(c, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE) || (a.srq && a.type == IBV_QPT_XRC_SEND))
		return EINVAL;
	if (sd_attr(c, UVERBS_ATTR_CREATE_QP_SOURCE_QPN))
		return EINVAL;
	a.sig_all = flags & IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
	err = (a.xrcd || a.type == SD_QPT_DCT ? sd_qp_create_target : sd_qp_create)(c->ctx, &a, &handle, &qpn);
	if (err)
		return err;
	if (a.srq || !cap.max_recv_wr)
		cap.max_recv_wr = cap.max_recv_sge = 0;
	if (SD_OUT(c, UVERBS_ATTR_UHW_OUT, resp) || SD_OUT(c, UVERBS_ATTR_CREATE_QP_RESP_CAP, cap) ||
	    SD_OUT(c, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, qpn))
		return sd_undo(c, SD_QP, handle);
	sd_out_obj(c, UVERBS_ATTR_CREATE_QP_HANDLE, handle);
	return 0;
}

static int qp_destroy(struct sd_cmd *c)
{
	struct ib_uverbs_destroy_qp_resp resp;
	uint32_t none;
	int err = sd_destroy(c->ctx, SD_QP, sd_attr(c, UVERBS_ATTR_DESTROY_QP_HANDLE)->data, &none, &resp.events_reported);

	return err ? err : SD_OUT(c, UVERBS_ATTR_DESTROY_QP_RESP, resp);
}

/*
 * PD, AH, MR, doorbell page: the handle is the first attribute of its name space, and there is no
 * answer
 */
int sd_cmd_destroy(struct sd_cmd *c, enum sd_kind kind, unsigned id)
{
	uint32_t events, async;

	return sd_destroy(c->ctx, kind, sd_attr(c, id)->data, &events, &async);
}

static int pd_destroy(struct sd_cmd *c)
{
	return sd_cmd_destroy(c, SD_PD, UVERBS_ATTR_DESTROY_PD_HANDLE);
}

static int pd_query(struct sd_cmd *c)
{
	struct sd_pd *pd = sd_in_obj(c, MLX5_IB_ATTR_QUERY_PD_HANDLE, SD_PD);

	return pd ? SD_OUT(c, MLX5_IB_ATTR_QUERY_PD_RESP_PDN, pd->pdn) : EINVAL;
}

static int ah_destroy(struct sd_cmd *c)
{
	return sd_cmd_destroy(c, SD_AH, UVERBS_ATTR_DESTROY_AH_HANDLE);
}

static int uar_destroy(struct sd_cmd *c)
{
	return sd_cmd_destroy(c, SD_UAR, MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE);
}

/* ---- the write() commands ---- */

static int w_alloc_pd(struct sd_cmd *c)
{
	struct ib_uverbs_alloc_pd_resp resp = { .pd_handle = 0 };
	struct mlx5_ib_alloc_pd_resp drv;
	int err = sd_pd_create(c->ctx, &resp.pd_handle, &drv.pdn);

	if (err)
		return err;
	return SD_OUT(c, UVERBS_ATTR_UHW_OUT, drv) || SD_OUT(c, UVERBS_ATTR_CORE_OUT, resp) ? sd_undo(c, SD_PD, resp.pd_handle) : 0;
}

static int w_create_ah(struct sd_cmd *c)
{
	struct mlx5_ib_create_ah_resp drv = { .response_length = sizeof(drv) };
	struct ib_uverbs_create_ah_resp resp = { .ah_handle = 0 };
	struct ib_uverbs_create_ah req;
	struct sd_pd *pd;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_CORE_IN), &req, sizeof(req));

	if (err)
		return err;
	pd = sd_handle_get(c->ctx, SD_PD, req.pd_handle);
	if (!pd)
		return EINVAL;
	err = sd_ah_create(c->ctx, pd, &req.attr, &resp.ah_handle, drv.dmac);
	if (err)
		return err;
	return SD_OUT(c, UVERBS_ATTR_UHW_OUT, drv) || SD_OUT(c, UVERBS_ATTR_CORE_OUT, resp) ? sd_undo(c, SD_AH, resp.ah_handle) : 0;
}

static int w_create_comp_channel(struct sd_cmd *c)
{
	struct ib_uverbs_create_comp_channel_resp resp;
	struct sd_channel *ch;
	int err;

	ch = sd_channel_new(sizeof(struct ib_uverbs_comp_event_desc), &err);
	if (!ch)
		return err;
	resp.fd = ch->fd;
	err = SD_OUT(c, UVERBS_ATTR_CORE_OUT, resp);
	if (err)
		sd_channel_close(ch);
	return err;
}

static int w_query_qp(struct sd_cmd *c)
{
	struct ib_uverbs_query_qp_resp resp;
	struct ib_uverbs_query_qp req;
	struct sd_qp *qp;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_CORE_IN), &req, sizeof(req));

	if (err)
		return err;
	qp = sd_handle_get(c->ctx, SD_QP, req.qp_handle);
	/* The kernel tells of a DCT's path once it is ready, and nothing else */
	if (!qp || (qp->type == SD_QPT_DCT && (qp->state != IBV_QPS_RTR || req.attr_mask & IBV_QP_CAP)))
		return EINVAL;
	if (sd_container(qp, struct host_qp, q)->tir)
		return ENOSYS;
	sd_qp_query(qp, &resp);
	return SD_OUT(c, UVERBS_ATTR_CORE_OUT, resp);
}

static int w_modify_qp(struct sd_cmd *c)
{
	struct ib_uverbs_modify_qp req;
	struct sd_qp *qp;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_CORE_IN), &req, sizeof(req));

	if (err)
		return err;
	qp = sd_handle_get(c->ctx, SD_QP, req.qp_handle);
	return qp ? sd_qp_modify(qp, &req) : EINVAL;
}

static int w_resize_cq(struct sd_cmd *c)
{
	struct ib_uverbs_resize_cq_resp resp = { .cqe = 0 };
	struct mlx5_ib_resize_cq drv;
	struct ib_uverbs_resize_cq req;
	struct sd_cq *cq;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_CORE_IN), &req, sizeof(req));

	if (!err)
		err = sd_in(sd_attr(c, UVERBS_ATTR_UHW_IN), &drv, sizeof(drv));
	if (err)
		return err;
	cq = sd_handle_get(c->ctx, SD_CQ, req.cq_handle);
	if (!cq || drv.reserved0 || drv.reserved1)
		return EINVAL;
	err = sd_cq_resize(cq, req.cqe, drv.buf_addr, drv.cqe_size);
	if (err)
		return err;
	resp.cqe = cq->cqe_cnt - 1;
	return SD_OUT(c, UVERBS_ATTR_CORE_OUT, resp);
}

/* Moderation may hold events back; this device never finds a reason to */
static int w_ex_modify_cq(struct sd_cmd *c)
{
	struct ib_uverbs_ex_modify_cq req;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_CORE_IN), &req, sizeof(req));

	if (err)
		return err;
	if (!req.attr_mask || req.reserved)
		return EINVAL;
	if (req.attr_mask > IBV_CQ_ATTR_MODERATE)
		return EOPNOTSUPP;
	if (!sd_handle_get(c->ctx, SD_CQ, req.cq_handle) || req.attr.cq_period > SD_MAX_CQ_PERIOD)
		return EINVAL;
	return 0;
}

static int mcast(struct sd_cmd *c, bool attach)
{
	struct ib_uverbs_attach_mcast req;
	struct sd_qp *qp;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_CORE_IN), &req, sizeof(req));

	if (err)
		return err;
	qp = sd_handle_get(c->ctx, SD_QP, req.qp_handle);
	return qp ? sd_qp_mcast(qp, req.gid, req.mlid, attach) : EINVAL;
}

static int w_attach_mcast(struct sd_cmd *c)
{
	return mcast(c, true);
}

static int w_detach_mcast(struct sd_cmd *c)
{
	return mcast(c, false);
}

static int w_ex_modify_qp(struct sd_cmd *c)
{
	struct ib_uverbs_ex_modify_qp_resp resp = { .response_length = sizeof(resp) };
	struct mlx5_ib_modify_qp_resp drv = { .response_length = sizeof(drv) };
	struct ib_uverbs_ex_modify_qp req;
	enum { OOO_DP = 1 }; /* of later headers, as MLX5_IB_MODIFY_QP_OOO_DP */
	struct mlx5_ib_modify_qp in;
	struct sd_qp *qp;
	int err = sd_in(sd_attr(c, UVERBS_ATTR_CORE_IN), &req, sizeof(req));

	if (!err)
		err = sd_in(sd_attr(c, UVERBS_ATTR_UHW_IN), &in, sizeof(in));
	if (err)
		return err;
	if (in.comp_mask & ~OOO_DP || in.burst_info.max_burst_sz || in.burst_info.typical_pkt_sz || in.ece_options)
		return EOPNOTSUPP;
	qp = sd_handle_get(c->ctx, SD_QP, req.base.qp_handle);
	if (!qp)
		return EINVAL;
	/* Where an XRC receive QP's SRQ is found, or there is only Ethernet, it makes no difference and is not offered */
	if (in.comp_mask && (qp->type == IBV_QPT_XRC_RECV || qp->type == IBV_QPT_XRC_SEND || qp->type == IBV_QPT_RAW_PACKET))
		return EOPNOTSUPP;
	if (in.comp_mask && (qp->state != IBV_QPS_RESET || !(req.base.attr_mask & IBV_QP_STATE) || req.base.qp_state != IBV_QPS_INIT))
		return EINVAL;
	err = sd_qp_modify(qp, &req.base);
	if (err)
		return err;
	if (in.comp_mask)
		qp->ordering = SD_OOO_ALL;
	if (qp->type == SD_QPT_DCT && qp->state == IBV_QPS_RTR)
		drv.dctn = qp->qpn;
	err = SD_OUT(c, UVERBS_ATTR_UHW_OUT, drv);
	return err ? err : SD_OUT(c, UVERBS_ATTR_CORE_OUT, resp);
}

#define EX(cmd) (IB_USER_VERBS_CMD_FLAG_EXTENDED | (cmd))

/* SETUP makes or changes something, ASK is about the device itself, OTHER asks an object or destroys it */
enum effect { OTHER, SETUP, ASK };

static const struct write {
	uint32_t command;
	uint16_t in, out;         /* bytes of core data that there must be */
	int (*run)(struct sd_cmd *);
	enum effect effect;
} writes[] = {
	{ IB_USER_VERBS_CMD_QUERY_DEVICE, 0, sizeof(struct ib_uverbs_query_device_resp), sd_cmd_query_device, ASK },
	{ EX(IB_USER_VERBS_EX_CMD_QUERY_DEVICE), 8, offsetof(struct ib_uverbs_ex_query_device_resp, odp_caps), sd_cmd_query_device_ex,
	  ASK },
	{ IB_USER_VERBS_CMD_QUERY_PORT, 16, sizeof(struct ib_uverbs_query_port_resp), sd_cmd_query_port_legacy, ASK },
	{ IB_USER_VERBS_CMD_ALLOC_PD, 0, sizeof(struct ib_uverbs_alloc_pd_resp), w_alloc_pd, SETUP },
	{ IB_USER_VERBS_CMD_CREATE_AH, sizeof(struct ib_uverbs_create_ah), 4, w_create_ah, SETUP },
	{ IB_USER_VERBS_CMD_REG_MR, sizeof(struct ib_uverbs_reg_mr), sizeof(struct ib_uverbs_reg_mr_resp), sd_cmd_mr_reg_legacy, SETUP },
	{ IB_USER_VERBS_CMD_REREG_MR, sizeof(struct ib_uverbs_rereg_mr), sizeof(struct ib_uverbs_rereg_mr_resp), sd_cmd_mr_rereg, SETUP },
	{ IB_USER_VERBS_CMD_ALLOC_MW, offsetof(struct ib_uverbs_alloc_mw, driver_data), sizeof(struct ib_uverbs_alloc_mw_resp),
	  sd_cmd_mw_alloc, SETUP },
	{ IB_USER_VERBS_CMD_RESIZE_CQ, offsetof(struct ib_uverbs_resize_cq, driver_data), 4, w_resize_cq, SETUP },
	{ EX(IB_USER_VERBS_EX_CMD_MODIFY_CQ), sizeof(struct ib_uverbs_ex_modify_cq), 0, w_ex_modify_cq, SETUP },
	{ EX(IB_USER_VERBS_EX_CMD_MODIFY_WQ), sizeof(struct ib_uverbs_ex_modify_wq), 0, sd_cmd_wq_modify, SETUP },
	{ EX(IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL), 12, sizeof(struct ib_uverbs_ex_create_rwq_ind_table_resp), sd_cmd_ind_tbl_create,
	  SETUP },
	{ IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, 0, sizeof(struct ib_uverbs_create_comp_channel_resp), w_create_comp_channel, SETUP },
	{ IB_USER_VERBS_CMD_QUERY_QP, sizeof(struct ib_uverbs_query_qp), 0, w_query_qp, OTHER },
	{ IB_USER_VERBS_CMD_MODIFY_QP, offsetof(struct ib_uverbs_modify_qp, driver_data), 0, w_modify_qp, SETUP },
	{ IB_USER_VERBS_CMD_ATTACH_MCAST, offsetof(struct ib_uverbs_attach_mcast, driver_data), 0, w_attach_mcast, SETUP },
	{ IB_USER_VERBS_CMD_DETACH_MCAST, offsetof(struct ib_uverbs_detach_mcast, driver_data), 0, w_detach_mcast, OTHER },
	{ IB_USER_VERBS_CMD_MODIFY_SRQ, sizeof(struct ib_uverbs_modify_srq), 0, sd_cmd_srq_modify, SETUP },
	{ IB_USER_VERBS_CMD_QUERY_SRQ, offsetof(struct ib_uverbs_query_srq, driver_data), sizeof(struct ib_uverbs_query_srq_resp),
	  sd_cmd_srq_query, OTHER },
	{ IB_USER_VERBS_CMD_OPEN_XRCD, offsetof(struct ib_uverbs_open_xrcd, driver_data), sizeof(struct ib_uverbs_open_xrcd_resp),
	  sd_cmd_xrcd_open, SETUP },
	{ EX(IB_USER_VERBS_EX_CMD_CREATE_FLOW), sizeof(struct ib_uverbs_create_flow), sizeof(struct ib_uverbs_create_flow_resp),
	  sd_cmd_flow_create, SETUP },
	{ EX(IB_USER_VERBS_EX_CMD_MODIFY_QP), offsetof(struct ib_uverbs_modify_qp, driver_data), 0, w_ex_modify_qp, SETUP },
};

static const struct write *find_write(const struct sd_cmd *c)
{
	uint64_t command = sd_in_u64(c, UVERBS_ATTR_WRITE_CMD, ~0ull);

	for (size_t i = 0; i < sizeof(writes) / sizeof(writes[0]); i++)
		if (writes[i].command == command)
			return &writes[i];
	return NULL;
}

/*
 * libibverbs finds out with a command that is too short whether this method exists: ENOSPC says so
 */
static bool too_short(const struct sd_cmd *c, const struct write *w)
{
	const struct ib_uverbs_attr *in = sd_attr(c, UVERBS_ATTR_CORE_IN), *out = sd_attr(c, UVERBS_ATTR_CORE_OUT);

	return (in ? in->len : 0) < w->in || (out ? out->len : 0) < w->out;
}

static int invoke_write(struct sd_cmd *c)
{
	uint64_t command = sd_in_u64(c, UVERBS_ATTR_WRITE_CMD, ~0ull);
	const struct write *w = find_write(c);

	if (!w) {
		sd_once(0x80000000 | (command & 0xff) | (command >> 23 & 0x100), "write command %u%s is not supported",
			(unsigned)(command & 0xff), command & IB_USER_VERBS_CMD_FLAG_EXTENDED ? " (extended)" : "");
		return EOPNOTSUPP;
	}
	if (too_short(c, w))
		return ENOSPC;
	return c->ctx->ready ? w->run(c) : EINVAL;
}

/* ---- dispatch ---- */

#define BIT(id) (1ull << ((id) & UVERBS_UDATA_DRIVER_DATA_FLAG ? DRIVER(id) : (id)))
#define UHW (BIT(UVERBS_ATTR_UHW_IN) | BIT(UVERBS_ATTR_UHW_OUT))

static const struct method {
	uint16_t object, method;
	uint64_t required, known; /* attributes; known beside the required ones */
	int (*run)(struct sd_cmd *);
	enum effect effect;
} methods[] = {
	{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, BIT(UVERBS_ATTR_WRITE_CMD),
	  BIT(UVERBS_ATTR_CORE_IN) | BIT(UVERBS_ATTR_CORE_OUT) | UHW, invoke_write, OTHER },
	{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, UHW,
	  BIT(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS) | BIT(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT), sd_cmd_get_context, SETUP },
	{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT, 0,
	  BIT(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS) | BIT(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT) |
	  BIT(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX), sd_cmd_query_context, ASK },
	{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, BIT(UVERBS_ATTR_QUERY_PORT_PORT_NUM) | BIT(UVERBS_ATTR_QUERY_PORT_RESP), 0,
	  sd_cmd_query_port, ASK },
	{ UVERBS_OBJECT_DEVICE, SD_METHOD_QUERY_PORT_SPEED, BIT(SD_ATTR_QUERY_PORT_SPEED_PORT_NUM) | BIT(SD_ATTR_QUERY_PORT_SPEED_RESP), 0,
	  sd_cmd_query_port_speed, ASK },
	{ UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_QUERY_PORT, BIT(MLX5_IB_ATTR_QUERY_PORT_PORT_NUM) | BIT(MLX5_IB_ATTR_QUERY_PORT), 0,
	  sd_cmd_query_vport, ASK },
	{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY,
	  BIT(UVERBS_ATTR_QUERY_GID_ENTRY_PORT) | BIT(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX) | BIT(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY),
	  BIT(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS), sd_cmd_query_gid_entry, ASK },
	{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE,
	  BIT(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE) | BIT(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES),
	  BIT(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS) | BIT(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES), sd_cmd_query_gid_table, ASK },
	{ UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, BIT(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE), 0, async_event_alloc,
	  SETUP },
	{ UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, BIT(UVERBS_ATTR_DESTROY_PD_HANDLE), 0, pd_destroy, OTHER },
	{ UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY, BIT(MLX5_IB_ATTR_QUERY_PD_HANDLE) | BIT(MLX5_IB_ATTR_QUERY_PD_RESP_PDN), 0, pd_query,
	  OTHER },
	{ UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, BIT(UVERBS_ATTR_DESTROY_AH_HANDLE), 0, ah_destroy, OTHER },
	{ UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY, BIT(UVERBS_ATTR_DESTROY_XRCD_HANDLE), 0, sd_cmd_xrcd_destroy, OTHER },
	{ UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, BIT(UVERBS_ATTR_DESTROY_MR_HANDLE), 0, sd_cmd_mr_destroy, OTHER },
	{ UVERBS_OBJECT_MR, SD_METHOD_REG_MR,
	  BIT(SD_ATTR_REG_MR_HANDLE) | BIT(SD_ATTR_REG_MR_PD_HANDLE) | BIT(SD_ATTR_REG_MR_IOVA) | BIT(SD_ATTR_REG_MR_LENGTH) |
	  BIT(SD_ATTR_REG_MR_ACCESS_FLAGS) | BIT(SD_ATTR_REG_MR_RESP_LKEY) | BIT(SD_ATTR_REG_MR_RESP_RKEY), BIT(SD_ATTR_REG_MR_ADDR),
	  sd_cmd_mr_reg, SETUP },
	{ UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR, BIT(UVERBS_ATTR_QUERY_MR_HANDLE),
	  BIT(UVERBS_ATTR_QUERY_MR_RESP_LKEY) | BIT(UVERBS_ATTR_QUERY_MR_RESP_RKEY) | BIT(UVERBS_ATTR_QUERY_MR_RESP_LENGTH) |
	  BIT(UVERBS_ATTR_QUERY_MR_RESP_IOVA), sd_cmd_mr_query, OTHER },
	{ UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR,
	  BIT(UVERBS_ATTR_ADVISE_MR_PD_HANDLE) | BIT(UVERBS_ATTR_ADVISE_MR_ADVICE) | BIT(UVERBS_ATTR_ADVISE_MR_FLAGS) |
	  BIT(UVERBS_ATTR_ADVISE_MR_SGE_LIST), 0, sd_cmd_mr_advise, OTHER },
	{ UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG,
	  BIT(UVERBS_ATTR_REG_DM_MR_HANDLE) | BIT(UVERBS_ATTR_REG_DM_MR_OFFSET) | BIT(UVERBS_ATTR_REG_DM_MR_LENGTH) |
	  BIT(UVERBS_ATTR_REG_DM_MR_PD_HANDLE) | BIT(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS) | BIT(UVERBS_ATTR_REG_DM_MR_DM_HANDLE) |
	  BIT(UVERBS_ATTR_REG_DM_MR_RESP_LKEY) | BIT(UVERBS_ATTR_REG_DM_MR_RESP_RKEY), 0, sd_cmd_dm_reg, SETUP },
	{ UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY, BIT(UVERBS_ATTR_DESTROY_MW_HANDLE), 0, sd_cmd_mw_destroy, OTHER },
	{ UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC,
	  BIT(UVERBS_ATTR_ALLOC_DM_HANDLE) | BIT(UVERBS_ATTR_ALLOC_DM_LENGTH) | BIT(UVERBS_ATTR_ALLOC_DM_ALIGNMENT) |
	  BIT(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET) | BIT(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX),
	  BIT(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE), sd_cmd_dm_alloc, SETUP },
	{ UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE, BIT(UVERBS_ATTR_FREE_DM_HANDLE), 0, sd_cmd_dm_free, OTHER },
	{ UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_QUERY,
	  BIT(MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE) | BIT(MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET) |
	  BIT(MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX) | BIT(MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH), 0, sd_cmd_dm_query, OTHER },
	{ UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE,
	  BIT(UVERBS_ATTR_CREATE_CQ_HANDLE) | BIT(UVERBS_ATTR_CREATE_CQ_CQE) | BIT(UVERBS_ATTR_CREATE_CQ_USER_HANDLE) |
	  BIT(UVERBS_ATTR_UHW_IN),
	  BIT(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL) | BIT(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR) | BIT(UVERBS_ATTR_CREATE_CQ_FLAGS) |
	  BIT(UVERBS_ATTR_CREATE_CQ_RESP_CQE) | BIT(UVERBS_ATTR_CREATE_CQ_EVENT_FD) | UHW, cq_create, SETUP },
	{ UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, BIT(UVERBS_ATTR_DESTROY_CQ_HANDLE), BIT(UVERBS_ATTR_DESTROY_CQ_RESP), cq_destroy,
	  OTHER },
	{ UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE,
	  BIT(UVERBS_ATTR_CREATE_QP_HANDLE) | BIT(UVERBS_ATTR_CREATE_QP_USER_HANDLE) | BIT(UVERBS_ATTR_CREATE_QP_CAP) |
	  BIT(UVERBS_ATTR_CREATE_QP_TYPE) | BIT(UVERBS_ATTR_UHW_IN),
	  (BIT(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM + 1) - 1) | UHW, qp_create, SETUP },
	{ UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, BIT(UVERBS_ATTR_DESTROY_QP_HANDLE), BIT(UVERBS_ATTR_DESTROY_QP_RESP), qp_destroy,
	  OTHER },
	{ UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE,
	  BIT(UVERBS_ATTR_CREATE_SRQ_HANDLE) | BIT(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE) | BIT(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE) |
	  BIT(UVERBS_ATTR_CREATE_SRQ_MAX_WR) | BIT(UVERBS_ATTR_CREATE_SRQ_MAX_SGE) | BIT(UVERBS_ATTR_CREATE_SRQ_TYPE) |
	  BIT(UVERBS_ATTR_UHW_IN),
	  (BIT(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM + 1) - 1) | UHW, sd_cmd_srq_create, SETUP },
	{ UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, BIT(UVERBS_ATTR_DESTROY_SRQ_HANDLE), BIT(UVERBS_ATTR_DESTROY_SRQ_RESP),
	  sd_cmd_srq_destroy, OTHER },
	{ UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_CREATE,
	  BIT(UVERBS_ATTR_CREATE_WQ_HANDLE) | BIT(UVERBS_ATTR_CREATE_WQ_PD_HANDLE) | BIT(UVERBS_ATTR_CREATE_WQ_CQ_HANDLE) |
	  BIT(UVERBS_ATTR_CREATE_WQ_USER_HANDLE) | BIT(UVERBS_ATTR_CREATE_WQ_TYPE) | BIT(UVERBS_ATTR_CREATE_WQ_MAX_WR) |
	  BIT(UVERBS_ATTR_CREATE_WQ_MAX_SGE) | BIT(UVERBS_ATTR_UHW_IN),
	  (BIT(UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM + 1) - 1) | UHW, sd_cmd_wq_create, SETUP },
	{ UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_DESTROY, BIT(UVERBS_ATTR_DESTROY_WQ_HANDLE), BIT(UVERBS_ATTR_DESTROY_WQ_RESP),
	  sd_cmd_wq_destroy, OTHER },
	{ UVERBS_OBJECT_RWQ_IND_TBL, UVERBS_METHOD_RWQ_IND_TBL_DESTROY, BIT(UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE), 0,
	  sd_cmd_ind_tbl_destroy, OTHER },
	{ UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY, BIT(UVERBS_ATTR_DESTROY_FLOW_HANDLE), 0, sd_cmd_flow_destroy, OTHER },
	{ UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW,
	  BIT(MLX5_IB_ATTR_CREATE_FLOW_HANDLE) | BIT(MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE) | BIT(MLX5_IB_ATTR_CREATE_FLOW_MATCHER),
	  BIT(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP) | BIT(MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX) | BIT(MLX5_IB_ATTR_CREATE_FLOW_TAG) |
	  BIT(MLX5_IB_ATTR_CREATE_FLOW_FLAGS), sd_cmd_flow_match, SETUP },
	{ MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_CREATE,
	  BIT(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE) | BIT(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK) |
	  BIT(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE) | BIT(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA),
	  BIT(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS) | BIT(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE), sd_cmd_matcher_create, SETUP },
	{ MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_DESTROY, BIT(MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE), 0,
	  sd_cmd_matcher_destroy, OTHER },
	{ MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC,
	  BIT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE) | BIT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE) | BIT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET) |
	  BIT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH) | BIT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID), 0, uar_alloc, SETUP },
	{ MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, BIT(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE), 0, uar_destroy, OTHER },
	{ MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, 0,
	  BIT(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN) | BIT(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT), sd_cmd_devx_other, OTHER },
	{ MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_UAR,
	  BIT(MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX) | BIT(MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX), 0, sd_cmd_devx_query_uar, OTHER },
	{ MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN,
	  BIT(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC) | BIT(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN), 0, sd_cmd_devx_query_eqn, OTHER },
	{ MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT,
	  BIT(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE) | BIT(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST),
	  BIT(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE) | BIT(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM) |
	  BIT(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE), sd_cmd_devx_subscribe, SETUP },
	{ MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE,
	  BIT(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE) | BIT(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN) |
	  BIT(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT), 0, sd_cmd_devx_create, SETUP },
	{ MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, BIT(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE), 0, sd_cmd_devx_destroy,
	  OTHER },
	{ MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY,
	  BIT(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE) | BIT(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN) |
	  BIT(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT), 0, sd_cmd_devx_modify, SETUP },
	{ MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY,
	  BIT(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE) | BIT(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN) | BIT(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT),
	  0, sd_cmd_devx_query, OTHER },
	{ MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY,
	  BIT(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE) | BIT(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN) |
	  BIT(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD) | BIT(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID) |
	  BIT(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN), 0, sd_cmd_devx_query_async, OTHER },
	{ MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG,
	  BIT(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE) | BIT(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR) | BIT(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN) |
	  BIT(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID),
	  BIT(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS) | BIT(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP) |
	  BIT(MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD), sd_cmd_umem_reg, SETUP },
	{ MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG, BIT(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE), 0, sd_cmd_umem_dereg, OTHER },
	{ MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC, BIT(MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE), 0,
	  sd_cmd_devx_async_cmd_fd, SETUP },
	{ MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC,
	  BIT(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE), BIT(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS),
	  sd_cmd_devx_async_event_fd, SETUP },
};

/* Finds the method and puts the attributes in their places; answers as sd_ioctl() does */
static int decode(struct sd_cmd *c, uint64_t arg, struct ib_uverbs_ioctl_hdr *hdr, struct ib_uverbs_attr *attrs,
	const struct method **found)
{
	const struct method *m, *end = methods + sizeof(methods) / sizeof(methods[0]);
	uint64_t have = 0;
	int err = sd_copy(hdr, arg, sizeof(*hdr), false);

	if (err)
		return err;
	if (hdr->length != sizeof(*hdr) + hdr->num_attrs * sizeof(attrs[0]) || hdr->num_attrs > 2 * SD_ATTRS || hdr->reserved1 ||
	    hdr->reserved2 || hdr->driver_id != RDMA_DRIVER_MLX5)
		return EINVAL;
	for (m = methods; m < end; m++)
		if (m->object == hdr->object_id && m->method == hdr->method_id)
			break;
	if (m == end) {
		sd_once((uint32_t)hdr->object_id << 16 | hdr->method_id, "object 0x%x method 0x%x is not supported", hdr->object_id,
			hdr->method_id);
		return EPROTONOSUPPORT;
	}
	err = sd_copy(attrs, arg + sizeof(*hdr), hdr->num_attrs * sizeof(attrs[0]), false);
	if (err)
		return err;
	for (unsigned i = 0; i < hdr->num_attrs; i++) {
		unsigned id = attrs[i].attr_id;
		bool known = (id & ~UVERBS_UDATA_DRIVER_DATA_FLAG) < SD_ATTRS && (m->required | m->known) & BIT(id);

		if (!known && attrs[i].flags & UVERBS_ATTR_F_MANDATORY)
			return EPROTONOSUPPORT;
		if (!known)
			continue;
		if (have & BIT(id))
			return EINVAL;
		have |= BIT(id);
		c->at[place(id)] = &attrs[i];
	}
	*found = m;
	return (have & m->required) == m->required ? 0 : EINVAL;
}

/* What a fault specification counts */
static bool is_setup(const struct sd_cmd *c, const struct method *m)
{
	const struct write *w;

	if (m->run != invoke_write)
		return m->effect == SETUP;
	w = find_write(c);
	return w && w->effect == SETUP && !too_short(c, w);
}

/* In a context that fork() inherited */
static bool survives(const struct sd_cmd *c, const struct method *m)
{
	const struct write *w = m->run == invoke_write ? find_write(c) : NULL;

	if (w)
		return w->effect == ASK || too_short(c, w);
	return m->effect == ASK || m->run == invoke_write || m->object == UVERBS_OBJECT_DM;
}

int sd_ioctl(struct sd_ctx *ctx, void *arg, bool inherited)
{
	struct ib_uverbs_attr attrs[2 * SD_ATTRS];
	struct ib_uverbs_ioctl_hdr hdr;
	struct sd_cmd c = { .ctx = ctx };
	const struct method *m;
	int err;

	pthread_mutex_lock(&sd_lock);
	err = decode(&c, (uintptr_t)arg, &hdr, attrs, &m);
	if (!err && inherited && !survives(&c, m))
		err = EIO;
	if (!err && is_setup(&c, m)) {
		pthread_mutex_unlock(&sd_lock);
		err = sd_fault_setup();
		pthread_mutex_lock(&sd_lock);
	}
	if (!err && !ctx->ready && m->run != sd_cmd_get_context && m->run != invoke_write)
		err = EINVAL;
	if (!err)
		err = m->run(&c);
	if (err == ENOENT && inherited)
		err = EIO;
	if (!err)
		err = sd_copy(attrs, (uintptr_t)arg + sizeof(hdr), hdr.num_attrs * sizeof(attrs[0]), true);
	pthread_mutex_unlock(&sd_lock);
	return err;
}
