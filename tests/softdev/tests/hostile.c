/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hostile.c: commands that libmlx5 never sends are refused: frames by hand, and each that it does
 * send with one field changed. fuzz/device.c: any commands, WQEs with any bytes, a stepped device.
 */
#include "rig_raw.h"
#include <dlfcn.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

/* ---- what libmlx5 sends, changed ---- */

#define BAD 0x100000              /* in a number or a handle: there are not so many */
#define FAR (1ull << 62)          /* in an address */

/* Bits to flip in a field (size 0: in the attribute's value). Expects EINVAL unless err is set */
static struct wrong {
	uint16_t object, method, attr, at, size;
	uint32_t command;         /* of INVOKE_WRITE */
	uint64_t flip;
	int err;
	bool met;
} wrongs[] = {
#define FIELD(type, field) .at = offsetof(struct type, field), .size = sizeof(((struct type *)0)->field)
#define WRITE(cmd, attribute, ...) { .object = UVERBS_OBJECT_DEVICE, .method = UVERBS_METHOD_INVOKE_WRITE, .command = cmd, \
	.attr = attribute, __VA_ARGS__ }
#define OLD(name, type, field, ...) WRITE(IB_USER_VERBS_CMD_##name, UVERBS_ATTR_CORE_IN, FIELD(ib_uverbs_##type, field), .flip = __VA_ARGS__)
#define NEW(name, type, field, ...) WRITE(IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_##name, UVERBS_ATTR_CORE_IN, \
	FIELD(ib_uverbs_##type, field), .flip = __VA_ARGS__)
#define CALL(o, m, a, ...) { .object = o, .method = m, .attr = a, .flip = __VA_ARGS__ }
	OLD(REG_MR, reg_mr, pd_handle, BAD), OLD(REREG_MR, rereg_mr, mr_handle, BAD), OLD(REREG_MR, rereg_mr, pd_handle, BAD),
	OLD(REREG_MR, rereg_mr, flags, 8), OLD(REREG_MR, rereg_mr, flags, IBV_REREG_MR_CHANGE_PD), OLD(ALLOC_MW, alloc_mw, pd_handle, BAD),
	OLD(ALLOC_MW, alloc_mw, mw_type, 2), OLD(CREATE_AH, create_ah, pd_handle, BAD), OLD(CREATE_AH, create_ah, attr.port_num, 1),
	OLD(CREATE_AH, create_ah, attr.port_num, 3), OLD(CREATE_AH, create_ah, attr.is_global, 1),
	OLD(CREATE_AH, create_ah, attr.grh.sgid_index, 8, ENODATA), OLD(CREATE_AH, create_ah, attr.grh.sgid_index, 255),
	OLD(QUERY_QP, query_qp, qp_handle, BAD), OLD(MODIFY_QP, modify_qp, qp_handle, BAD), OLD(ATTACH_MCAST, attach_mcast, qp_handle, BAD),
	OLD(MODIFY_SRQ, modify_srq, srq_handle, BAD), OLD(QUERY_SRQ, query_srq, srq_handle, BAD),
	OLD(OPEN_XRCD, open_xrcd, fd, 0x1000, EBADF), OLD(RESIZE_CQ, resize_cq, cq_handle, BAD), OLD(RESIZE_CQ, resize_cq, cqe, 1 << 23),
#define RESIZE(field, ...) WRITE(IB_USER_VERBS_CMD_RESIZE_CQ, UVERBS_ATTR_UHW_IN, FIELD(mlx5_ib_resize_cq, field), .flip = __VA_ARGS__)
	RESIZE(reserved0, 1), RESIZE(reserved1, 1), RESIZE(cqe_size, 32), RESIZE(buf_addr, 32), RESIZE(buf_addr, FAR, EFAULT),
	NEW(MODIFY_CQ, ex_modify_cq, cq_handle, BAD), NEW(MODIFY_CQ, ex_modify_cq, reserved, 1), NEW(MODIFY_CQ, ex_modify_cq, attr_mask, 1),
	NEW(MODIFY_CQ, ex_modify_cq, attr_mask, 2, EOPNOTSUPP), NEW(MODIFY_CQ, ex_modify_cq, attr.cq_period, 0x1000),
	NEW(MODIFY_WQ, ex_modify_wq, wq_handle, BAD), NEW(MODIFY_WQ, ex_modify_wq, attr_mask, 1), NEW(MODIFY_WQ, ex_modify_wq, attr_mask, 8),
	NEW(MODIFY_WQ, ex_modify_wq, wq_state, 4), NEW(CREATE_RWQ_IND_TBL, ex_create_rwq_ind_table, comp_mask, 1, EOPNOTSUPP),
	NEW(CREATE_RWQ_IND_TBL, ex_create_rwq_ind_table, log_ind_tbl_size, 16),
	NEW(CREATE_RWQ_IND_TBL, ex_create_rwq_ind_table, log_ind_tbl_size, 32),
	NEW(CREATE_RWQ_IND_TBL, ex_create_rwq_ind_table, log_ind_tbl_size, 2),
	NEW(CREATE_RWQ_IND_TBL, ex_create_rwq_ind_table, wq_handles[0], BAD),
#define RULE(field, ...) NEW(CREATE_FLOW, create_flow, field, __VA_ARGS__)
	RULE(comp_mask, 1), RULE(qp_handle, BAD), RULE(flow_attr.type, 4), RULE(flow_attr.size, 8), RULE(flow_attr.port, 2),
	RULE(flow_attr.priority, 16, ENOMEM), RULE(flow_attr.flags, IBV_FLOW_ATTR_FLAGS_EGRESS, EOPNOTSUPP), RULE(flow_attr.num_of_specs, 1),
	RULE(flow_attr.num_of_specs, 2), RULE(flow_attr.num_of_specs, 64), RULE(flow_attr.flow_specs[0].type, 0x100, EOPNOTSUPP),
	RULE(flow_attr.flow_specs[0].size, 8), RULE(flow_attr.flow_specs[0].size, 64), RULE(flow_attr.flow_specs[0].reserved, 1),
	RULE(flow_attr.flow_specs[6].type, 1 << 24), /* the tag */
#define OWN(object, method, attr, ...) CALL(UVERBS_OBJECT_##object, UVERBS_METHOD_##method, UVERBS_ATTR_##attr, __VA_ARGS__)
#define MLX5(object, method, attr, ...) CALL(MLX5_IB_OBJECT_##object, MLX5_IB_METHOD_##method, MLX5_IB_ATTR_##attr, __VA_ARGS__)
#define CQ(attr, ...) OWN(CQ, CQ_CREATE, CREATE_CQ_##attr, __VA_ARGS__)
	CQ(CQE, 15), CQ(CQE, 1), CQ(CQE, 1 << 22), CQ(COMP_VECTOR, 256), CQ(FLAGS, 16, EOPNOTSUPP), CQ(COMP_CHANNEL, 0x1000, EBADF),
	CQ(EVENT_FD, 0x1000, EBADF),
#define QP(attr, ...) OWN(QP, QP_CREATE, CREATE_QP_##attr, __VA_ARGS__)
	QP(PD_HANDLE, BAD), QP(SEND_CQ_HANDLE, BAD), QP(RECV_CQ_HANDLE, BAD), QP(TYPE, 16, EOPNOTSUPP), QP(TYPE, 256), QP(FLAGS, 1 << 20),
	QP(FLAGS, IB_UVERBS_QP_CREATE_SCATTER_FCS, EOPNOTSUPP), QP(EVENT_FD, 0x1000, EBADF),
#define CAP(field, bits) CALL(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, UVERBS_ATTR_CREATE_QP_CAP, bits, FIELD(ib_uverbs_qp_cap, field))
	CAP(max_send_wr, 1 << 16), CAP(max_recv_wr, 1 << 16), CAP(max_send_sge, 32), CAP(max_recv_sge, 64), CAP(max_inline_data, 1 << 10),
#define SRQ(attr, ...) OWN(SRQ, SRQ_CREATE, CREATE_SRQ_##attr, __VA_ARGS__)
	SRQ(PD_HANDLE, BAD), SRQ(MAX_WR, 1 << 20), SRQ(MAX_SGE, 1 << 10), SRQ(TYPE, 8, EOPNOTSUPP), SRQ(XRCD_HANDLE, BAD),
	SRQ(CQ_HANDLE, BAD), SRQ(EVENT_FD, 0x1000, EBADF),
#define WQ(attr, ...) OWN(WQ, WQ_CREATE, CREATE_WQ_##attr, __VA_ARGS__)
	WQ(PD_HANDLE, BAD), WQ(CQ_HANDLE, BAD), WQ(TYPE, 1), WQ(MAX_WR, 1 << 20), WQ(MAX_SGE, 1 << 10),
	OWN(DM, DM_ALLOC, ALLOC_DM_LENGTH, 1 << 30), OWN(DM, DM_ALLOC, ALLOC_DM_ALIGNMENT, 16),
#define DM(attr, ...) OWN(MR, DM_MR_REG, REG_DM_MR_##attr, __VA_ARGS__)
	DM(DM_HANDLE, BAD), DM(PD_HANDLE, BAD), DM(OFFSET, 1 << 30), DM(LENGTH, 1 << 30), DM(ACCESS_FLAGS, IBV_ACCESS_ZERO_BASED),
	DM(ACCESS_FLAGS, IBV_ACCESS_HUGETLB), OWN(MR, QUERY_MR, QUERY_MR_HANDLE, BAD),
	CALL(UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_QUERY, MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE, BAD),
	OWN(DEVICE, QUERY_GID_TABLE, QUERY_GID_TABLE_ENTRY_SIZE, 1 << 20), OWN(DEVICE, QUERY_GID_TABLE, QUERY_GID_TABLE_FLAGS, 1),
	MLX5(UAR, UAR_OBJ_ALLOC, UAR_OBJ_ALLOC_TYPE, 4, EOPNOTSUPP), MLX5(DEVX, DEVX_QUERY_EQN, DEVX_QUERY_EQN_USER_VEC, 256, ENOENT),
	MLX5(DEVX, DEVX_SUBSCRIBE_EVENT, DEVX_SUBSCRIBE_EVENT_FD_HANDLE, 0x1000, EBADF),
	MLX5(DEVX, DEVX_SUBSCRIBE_EVENT, DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, BAD, ENOENT),
	MLX5(DEVX_ASYNC_EVENT_FD, DEVX_ASYNC_EVENT_FD_ALLOC, DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, 2),
	MLX5(DEVX_OBJ, DEVX_OBJ_ASYNC_QUERY, DEVX_OBJ_QUERY_ASYNC_HANDLE, BAD),
	MLX5(DEVX_OBJ, DEVX_OBJ_ASYNC_QUERY, DEVX_OBJ_QUERY_ASYNC_FD, 0x1000, EBADF),
	MLX5(DEVX_OBJ, DEVX_OBJ_ASYNC_QUERY, DEVX_OBJ_QUERY_ASYNC_OUT_LEN, 1 << 20),
#define MATCH(attr, ...) MLX5(FLOW_MATCHER, FLOW_MATCHER_CREATE, FLOW_MATCHER_MATCH_##attr, __VA_ARGS__)
	MATCH(CRITERIA, 2, EOPNOTSUPP), MATCH(CRITERIA, 1), MATCH(CRITERIA, 0x80), MATCH(MASK, 0xff, EOPNOTSUPP, .at = 0x18, .size = 1),
	MATCH(MASK, 0xff, EOPNOTSUPP, .at = 70, .size = 1), /* other headers; what is no field */
	CALL(UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW, MLX5_IB_ATTR_CREATE_FLOW_MATCHER, BAD),
	CALL(UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW, MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, BAD),
#define DRIVER(object, type, field, ...) CALL(UVERBS_OBJECT_##object, UVERBS_METHOD_##object##_CREATE, UVERBS_ATTR_UHW_IN, __VA_ARGS__, \
	FIELD(mlx5_ib_create_##type, field))
#define BUFFERS(object, type) DRIVER(object, type, buf_addr, 1), DRIVER(object, type, buf_addr, FAR, EFAULT), DRIVER(object, type, \
	db_addr, 4), DRIVER(object, type, db_addr, FAR, EFAULT)
	BUFFERS(CQ, cq), BUFFERS(QP, qp), BUFFERS(SRQ, srq), BUFFERS(WQ, wq), DRIVER(CQ, cq, cqe_size, 64), DRIVER(CQ, cq, cqe_size, 32),
	DRIVER(CQ, cq, cqe_comp_en, 1), DRIVER(CQ, cq, uar_page_index, 0x1000),
	DRIVER(CQ, cq, flags, MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX),
	DRIVER(CQ, cq, flags, MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD, EOPNOTSUPP), DRIVER(CQ, cq, flags, 1 << 10, EOPNOTSUPP),
	DRIVER(QP, qp, sq_wqe_count, 3), DRIVER(QP, qp, sq_wqe_count, 1u << 31), DRIVER(QP, qp, rq_wqe_count, 3),
	DRIVER(QP, qp, rq_wqe_count, 1u << 31), DRIVER(QP, qp, rq_wqe_shift, 7), DRIVER(QP, qp, rq_wqe_shift, 60),
	DRIVER(QP, qp, uidx, 1 << 24), DRIVER(QP, qp, bfreg_index, 0x1000), DRIVER(QP, qp, flags, MLX5_QP_FLAG_UAR_PAGE_INDEX),
	DRIVER(QP, qp, flags, MLX5_QP_FLAG_SIGNATURE), DRIVER(SRQ, srq, flags, 1), DRIVER(SRQ, srq, reserved0, 1),
	DRIVER(SRQ, srq, reserved1, 1), DRIVER(WQ, wq, rq_wqe_count, 3), DRIVER(WQ, wq, rq_wqe_count, 1u << 31),
	DRIVER(WQ, wq, rq_wqe_shift, 7), DRIVER(WQ, wq, rq_wqe_shift, 32), DRIVER(WQ, wq, user_index, 1 << 24), DRIVER(WQ, wq, flags, 1),
	DRIVER(WQ, wq, comp_mask, 2, EOPNOTSUPP),
};

static unsigned accepted;

static struct ib_uverbs_attr *attr_of(struct ib_uverbs_ioctl_hdr *hdr, unsigned id)
{
	for (unsigned i = 0; i < hdr->num_attrs; i++)
		if (hdr->attrs[i].attr_id == id)
			return &hdr->attrs[i];
	return NULL;
}

/* Each command of libibverbs goes by here. Where the device is linked in, its own function counts, and there is nothing to see */
__attribute__((weak)) int ioctl(int fd, unsigned long request, ...)
{
	int (*const next)(int, unsigned long, void *) = (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
	struct ib_uverbs_ioctl_hdr *hdr;
	va_list ap;

	va_start(ap, request);
	hdr = va_arg(ap, void *);
	va_end(ap);
	for (struct wrong *w = wrongs; ctx && fd == ctx->cmd_fd && request == RDMA_VERBS_IOCTL && w < wrongs + ARRAY(wrongs); w++) {
		struct ib_uverbs_attr *a = hdr->object_id == w->object && hdr->method_id == w->method ? attr_of(hdr, w->attr) : NULL;
		uint8_t copy[4096];

		if (!a || a->len < w->at + w->size || (w->command && attr_of(hdr, UVERBS_ATTR_WRITE_CMD)->data != w->command))
			continue;
		memcpy(&raw, hdr, hdr->length);
		a = attr_of(&raw.hdr, w->attr);
		if (a->len > 8) {
			memcpy(copy, (void *)(uintptr_t)a->data, a->len);
			a->data = (uintptr_t)copy;
		}
		for (unsigned i = 0; i < (w->size ? w->size : 8); i++)
			(a->len > 8 ? copy : (uint8_t *)&a->data)[w->at + i] ^= (uint8_t)(w->flip >> 8 * i);
		if (!next(fd, request, &raw) || errno != (w->err ? w->err : EINVAL)) {
			print_error("row %u: %s\n", (unsigned)(w - wrongs), strerror(errno));
			accepted++;
		}
		w->met = true;
	}
	return next(fd, request, hdr);
}

/* One of each kind of object, and what is asked of it */
TEST(changed)
{
	struct ibv_cq_init_attr_ex ca = { .cqe = 15, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN };
	struct ibv_modify_cq_attr moderate = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { 1, 1 } };
	struct ibv_qp_init_attr qa = { .cap = { 16, 16, 1, 1, 0 }, .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
	struct ibv_srq_init_attr_ex sa = { .attr = { 16, 1, 0 }, .srq_type = IBV_SRQT_XRC };
	struct ibv_wq_init_attr wa = { .wq_type = IBV_WQT_RQ, .max_wr = 16, .max_sge = 1, .pd = pd };
	struct ibv_wq_attr ready = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
	struct ibv_rwq_ind_table_init_attr ta = { .log_ind_tbl_size = 1 };
	struct ibv_xrcd_init_attr xa = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .oflags = O_CREAT };
	struct ibv_alloc_dm_attr da = { .length = 64 };
	struct { struct ibv_flow_attr attr; struct ibv_flow_spec_eth eth; struct ibv_flow_spec_action_tag tag; } rule = {
		{ .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(rule), .num_of_specs = 2, .port = 1 },
		{ .type = IBV_FLOW_SPEC_ETH, .size = sizeof(rule.eth) },
		{ .type = IBV_FLOW_SPEC_ACTION_TAG, .size = sizeof(rule.tag), .tag_id = 5 } };
	struct { size_t size; uint8_t bytes[128]; } mask = { 128, { [8] = 0xff } };
	struct mlx5dv_flow_matcher_attr ma = { .type = IBV_FLOW_ATTR_NORMAL, .match_criteria_enable = 1, .match_mask = (void *)&mask };
	struct mlx5dv_flow_action_attr dest = { .type = MLX5DV_FLOW_ACTION_DEST_IBV_QP };
	struct mlx5dv_flow_matcher *m = mlx5dv_create_flow_matcher(ctx, &ma);
	uint8_t in[16] = { 0x07, 0x71 }, out[16], query[32] = { 0x07, 0x73 }, *mem = (uint8_t *)aligned_alloc(4096, 8192);
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct mlx5dv_devx_cmd_comp *answers = mlx5dv_devx_create_cmd_comp(ctx);
	struct mlx5dv_devx_event_channel *events = mlx5dv_devx_create_event_channel(ctx, 0);
	struct mlx5dv_devx_uar *page = mlx5dv_devx_alloc_uar(ctx, MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC);
	struct mlx5dv_devx_obj *counters = mlx5dv_devx_obj_create(ctx, in, sizeof(in), out, sizeof(out));
	struct ibv_ah_attr to = attr_for(IBV_QPS_RTR, 0, &usual).ah_attr;
	union ibv_gid group = { .raw = { 0xff, 0x12 } };
	struct how ud = how_of_type(IBV_QPT_UD);
	struct ibv_gid_entry gids[32];
	struct ibv_srq_attr limit = { .srq_limit = 1 };
	struct ibv_wq *wq[2];
	struct ibv_rwq_ind_table *table;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	struct ibv_dm *dm;
	struct ibv_qp *qp[3];
	uint16_t event = 0x13;
	uint32_t eqn;

	ca.channel = ch;
	wa.cq = qa.send_cq = qa.recv_cq = sa.cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(ctx, &ca));
	must(ibv_resize_cq(wa.cq, 31) || ibv_modify_cq(wa.cq, &moderate));
	qp[0] = ibv_create_qp(pd, &qa);
	must(move(qp[0], IBV_QPS_INIT, 0, &usual));
	assert_int_equal(state_of(qp[0]), IBV_QPS_INIT);
	qa.qp_type = IBV_QPT_UD;
	qp[1] = ibv_create_qp(pd, &qa);
	bring_up(qp[1], 0, &ud);
	must(ibv_attach_mcast(qp[1], &group, 0xc000) || ibv_detach_mcast(qp[1], &group, 0xc000));
	must(ibv_destroy_ah(ibv_create_ah(pd, &to)));
	xa.fd = memfd_create("domain", 0);
	sa.pd = pd;
	sa.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	sa.xrcd = ibv_open_xrcd(ctx, &xa);
	srq = ibv_create_srq_ex(ctx, &sa);
	must(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) || ibv_query_srq(srq, &limit));
	for (unsigned i = 0; i < 2; i++) {
		wq[i] = ibv_create_wq(ctx, &wa);
		must(ibv_modify_wq(wq[i], &ready));
	}
	ta.ind_tbl = wq;
	table = ibv_create_rwq_ind_table(ctx, &ta);
	qa.qp_type = IBV_QPT_RAW_PACKET;
	qp[2] = ibv_create_qp(pd, &qa);
	dest.qp = qp[2];
	must(ibv_destroy_flow(ibv_create_flow(qp[2], &rule.attr)) || ibv_destroy_flow(mlx5dv_create_flow(m, (void *)&mask, 1, &dest)));
	must(mlx5dv_destroy_flow_matcher(m));
	mr = ibv_reg_mr(pd, mem, 8192, ALL_ACCESS);
	must(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0) || ibv_dealloc_mw(ibv_alloc_mw(pd, IBV_MW_TYPE_1)));
	dm = ibv_alloc_dm(ctx, &da);
	must(ibv_dereg_mr(ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED)));
	ibv_unimport_mr(ibv_import_mr(pd, mr->handle));
	ibv_unimport_dm(ibv_import_dm(ctx, dm->handle));
	assert_true(ibv_query_gid_table(ctx, gids, ARRAY(gids), 0) > 0);
	must(mlx5dv_devx_query_eqn(ctx, 0, &eqn) || mlx5dv_devx_subscribe_devx_event(events, counters, sizeof(event), &event, 1));
	query[0x1f] = out[0xb];
	must(mlx5dv_devx_obj_query_async(counters, query, sizeof(query), 0x100, 1, answers));

	assert_int_equal(accepted, 0);
	mlx5dv_devx_destroy_cmd_comp(answers);
	mlx5dv_devx_destroy_event_channel(events);
	mlx5dv_devx_free_uar(page);
	must(mlx5dv_devx_obj_destroy(counters) || ibv_free_dm(dm) || ibv_dereg_mr(mr) || ibv_destroy_rwq_ind_table(table));
	must(ibv_destroy_qp(qp[0]) || ibv_destroy_qp(qp[1]) || ibv_destroy_qp(qp[2]));
	must(ibv_destroy_wq(wq[0]) || ibv_destroy_wq(wq[1]) || ibv_destroy_srq(srq) || ibv_close_xrcd(sa.xrcd) || ibv_destroy_cq(wa.cq) ||
	     ibv_destroy_comp_channel(ch));
	close(xa.fd);
	free(mem);
	skip_if(getenv("SOFTDEV_LINKED") && *getenv("SOFTDEV_LINKED"), "the device is linked in, so that its own ioctl() counts");
	/* Later libraries register by another command */
	for (unsigned i = 0; i < ARRAY(wrongs); i++)
		if (!wrongs[i].met && (wrongs[i].command != IB_USER_VERBS_CMD_REG_MR || !getenv("RDMA_CORE")))
			fail_msg("row %u: no such command", i);
}

/* ---- frames ---- */

static int raw_open(void)
{
	struct mlx5_ib_alloc_ucontext_req_v2 req = { .max_cqe_version = 1, .lib_caps = MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR };
	struct mlx5_ib_alloc_ucontext_resp resp = { .tot_bfregs = 1 };
	int fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	/* Nothing works before there is a context, and one is enough */
	assert_int_equal(raw_call(fd, UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC,
				  ATTR(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0, 0)), EINVAL);
	must(raw_call(fd, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, PTR(UVERBS_ATTR_UHW_IN, &req),
		      PTR(UVERBS_ATTR_UHW_OUT, &resp)));
	assert_int_equal(resp.tot_bfregs, 0);
	assert_int_equal(resp.cqe_version, 1);
	assert_int_equal(raw_again(fd), EINVAL);
	return fd;
}

static int raw_write(int fd, uint32_t command, const void *in, unsigned in_len, void *out, unsigned out_len)
{
	const struct ib_uverbs_attr attrs[] = { ATTR(UVERBS_ATTR_WRITE_CMD, 8, command), ATTR(UVERBS_ATTR_CORE_OUT, out_len, (uintptr_t)out),
						ATTR(UVERBS_ATTR_CORE_IN, in_len, (uintptr_t)in) };

	return raw_list(fd, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, attrs, 1 + !!out_len + !!in_len);
}

TEST(frames)
{
	struct ib_uverbs_alloc_pd_resp p = { .pd_handle = 0 };
	struct ib_uverbs_query_device_resp dev;
	int fd = raw_open();

	assert_true(ioctl(fd, RDMA_VERBS_IOCTL, NULL) == -1 && errno == EFAULT);
	assert_int_equal(raw_list(fd, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, NULL, 0), EINVAL);
	assert_int_equal(raw_call(fd, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, ATTR(UVERBS_ATTR_DESTROY_PD_HANDLE, 0, 12345)), ENOENT);
	raw.hdr.driver_id++;
	assert_int_equal(raw_again(fd), EINVAL);
	raw.hdr.driver_id--;
	raw.hdr.attrs[0].attr_id = 9;
	assert_int_equal(raw_again(fd), EPROTONOSUPPORT);
	raw.hdr.attrs[0].flags = 0;
	assert_int_equal(raw_again(fd), EINVAL);
	raw.hdr.method_id = 77;
	assert_int_equal(raw_again(fd), EPROTONOSUPPORT);
	raw.hdr.length--;
	assert_true(ioctl(fd, RDMA_VERBS_IOCTL, &raw) == -1 && errno == EINVAL);
	/* Pointers, lengths */
	assert_int_equal(raw_write(fd, IB_USER_VERBS_CMD_QUERY_DEVICE, NULL, 0, NULL, 0), ENOSPC);
	assert_int_equal(raw_write(fd, IB_USER_VERBS_CMD_QUERY_DEVICE, NULL, 0, &dev, sizeof(dev)), 0);
	assert_int_equal(raw_write(fd, IB_USER_VERBS_CMD_QUERY_DEVICE, NULL, 0, (void *)8, sizeof(dev)), EFAULT);
	assert_int_equal(raw_write(fd, IB_USER_VERBS_CMD_REG_MR, (void *)8, sizeof(struct ib_uverbs_reg_mr), &dev, 12), EFAULT);
	assert_int_equal(raw_write(fd, 200, NULL, 0, NULL, 0), EOPNOTSUPP);
	assert_int_equal(raw_write(fd, IB_USER_VERBS_CMD_ALLOC_PD, NULL, 8, &p, 4), 0); /* 8 bytes are in the attribute itself */
	/* Handles of another context are refused */
	assert_int_equal(raw_call(ctx->cmd_fd, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY,
				  ATTR(UVERBS_ATTR_DESTROY_PD_HANDLE, 0, p.pd_handle)), ENOENT);
	must(raw_again(fd));
	must(close(fd));
}

int main(void)
{
	return run_all(setup, teardown);
}
