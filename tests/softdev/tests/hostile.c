/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hostile.c: programs that write into rings what libmlx5 never would, and send commands that it
 * never would. The device and its other queue pairs survive.
 *
 * Environment
 *   DEVICE_ROUNDS     how often all of it, 1
 *   INLAY_TEST_SEED   where the random numbers begin, 1
 */
#include "rig.h"
#include <sys/ioctl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

/* ---- hostile programs ---- */

/*
 * WQEs written by hand: control segments that look right and are not, and plain noise. The device
 * and its other queue pairs survive.
 */
static void hostile_wqes(UNUSED void **state)
{
	struct side good[2];

	open_pair(good, &usual);
	for (int round = 0; round < 150; round++) {
		struct mlx5dv_qp dq = { .comp_mask = 0 };
		struct mlx5dv_obj obj;
		unsigned n = 1 + rnd() % 8;
		uint32_t *w;

		open_pair(s, &usual);
		obj.qp.in = s[0].qp;
		obj.qp.out = &dq;
		assert_int_equal(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), 0);
		for (unsigned i = 0; i < dq.sq.wqe_cnt * 16; i++)
			((uint32_t *)dq.sq.buf)[i] = rnd() & (round & 8 ? 0x0f00ff0f : ~0u);
		for (unsigned i = 0; i < n; i++) {
			static const uint8_t ops[] = { 0x00, 0x05, 0x08, 0x09, 0x0a, 0x0b, 0x0d, 0x0e, 0x10, 0x11, 0x12, 0x13, 0x1f, 0x20,
						       0x22, 0x25, 0x29, 0x2d };

			w = (uint32_t *)((uint8_t *)dq.sq.buf + 64 * i);
			if (round % 4 == 0)
				continue;
			/* The right index and number; opcode, size and segments at random, near the right ones */
			w[0] = htobe32((round % 4 == 3 ? rnd() & 0xff000000 : 0) | i << 8 | ops[rnd() % ARRAY(ops)]);
			w[1] = htobe32(s[0].qp->qp_num << 8 | (rnd() & (round & 16 ? 0x3f : 7)));
			w[2] = htobe32(rnd() & 0xe0);
			if (rnd() & 1) {
				w[6] = htobe32(s[1].mr->rkey);
				*(uint64_t *)(w + 4) = htobe64((uintptr_t)s[1].buf + rnd() % SIZE);
				w[8] = htobe32(rnd() & 1 ? 0x80000000 | (rnd() & 0xfff) : rnd() & 0x7fffffff);
				w[9] = htobe32(s[0].mr->lkey);
			}
		}
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		/* The record: some too far, some far too far */
		dq.dbrec[MLX5_SND_DBR] = htobe32(round % 5 == 4 ? rnd() : n);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		*(volatile uint64_t *)dq.bf.reg = *(uint64_t *)dq.sq.buf;
		for (int i = 0; i < 50 && ibv_poll_cq(s[0].scq, 1, &wc) == 0; i++)
			usleep(20);
		while (ibv_poll_cq(s[0].scq, 1, &wc) > 0)
			;
		/* Receive WQEs of noise, and more of them than fit */
		for (unsigned i = 0; i < dq.rq.wqe_cnt * dq.rq.stride / 4; i++)
			((uint32_t *)dq.rq.buf)[i] = rnd();
		dq.dbrec[MLX5_RCV_DBR] = htobe32(round % 3 ? rnd() & 0xffff : 3);
		{
			struct ibv_sge sg = sge(&s[1], 0, 100);
			struct ibv_send_wr wr = request(IBV_WR_SEND, 1, &sg, 1, &s[0], 0);

			post(&s[1], &wr);
			usleep(100);
		}
		close_pair(s);
	}
	writes(good, 5000, true);
	sends(good, 5000, true);
	reads(good, 5000);
	close_pair(good);
}

/* ---- WQEs of libmlx5's with a few bytes that are wrong ---- */

static struct ibv_mw *mw;
static struct ibv_ah *ah;

/* One good request of a kind that the type has */
static void good_request(struct side s[2], enum ibv_qp_type type, struct ibv_sge sg[2])
{
	static const enum ibv_wr_opcode rc[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_INV,
						 IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW };
	static const enum ibv_wr_opcode uc[] = { IBV_WR_RDMA_WRITE, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND, IBV_WR_BIND_MW };
	static const enum ibv_wr_opcode ud[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM };
	enum ibv_wr_opcode op = type == IBV_QPT_RC ? rc[rnd() % ARRAY(rc)] : type == IBV_QPT_UC ? uc[rnd() % ARRAY(uc)] :
				ud[rnd() % ARRAY(ud)];
	struct ibv_send_wr wr;

	sg[0] = sge(&s[0], rnd() % 1000, op == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : 1 + rnd() % 60);
	sg[1] = sge(&s[0], 2000, 1 + rnd() % 1000);
	wr = request(op, 1, sg, op == IBV_WR_ATOMIC_FETCH_AND_ADD ? 1 : 1 + rnd() % 2, &s[1], 4096);
	if (wr.num_sge == 1 && op != IBV_WR_ATOMIC_FETCH_AND_ADD && op != IBV_WR_RDMA_READ && rnd() % 2)
		wr.send_flags |= IBV_SEND_INLINE;
	if (type == IBV_QPT_UD) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = s[1].qp->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	} else if (op == IBV_WR_BIND_MW) {
		wr.num_sge = 0;
		wr.send_flags = IBV_SEND_SIGNALED;
		wr.bind_mw.mw = mw;
		wr.bind_mw.rkey = mw->rkey;
		wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ .mr = s[0].mr, .addr = (uintptr_t)s[0].buf, .length = 4096,
								  .mw_access_flags = IBV_ACCESS_REMOTE_WRITE };
	}
	post(&s[0], &wr);
	next_wc(s[0].scq);
}

static void nearly_right(UNUSED void **state)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	struct ibv_qp_attr a = attr_for(IBV_QPS_RTR, 0, &usual);
	struct side good[2];

	ah = ibv_create_ah(pd, &a.ah_attr);
	assert_non_null(ah);
	open_pair(good, &usual);
	for (int round = 0; round < 600; round++) {
		struct mlx5dv_qp dq = { .comp_mask = 0 };
		struct how how = usual;
		struct mlx5dv_obj obj;
		struct ibv_sge sg[2];
		uint8_t wqe[256];
		unsigned bbs, idx, tries;
		uint32_t *w;

		how.type = types[round % 3];
		how.access |= IBV_ACCESS_MW_BIND;
		if (how.type == IBV_QPT_UC)
			how.qp_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
		how.retry_cnt = 1;
		how.rnr_retry = 1;
		open_pair(s, &how);
		mw = ibv_alloc_mw(pd, round & 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
		assert_non_null(mw);
		for (int i = 0; i < 6; i++)
			recv_at(&s[1], i, HALF, 4096);
		obj.qp.in = s[0].qp;
		obj.qp.out = &dq;
		must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP));
		good_request(s, how.type, sg);
		idx = be32toh(dq.dbrec[MLX5_SND_DBR]) & 0xffff;
		/* Its copies follow it, each with other bytes wrong */
		for (tries = 0; tries < 4; tries++) {
			memcpy(wqe, dq.sq.buf, sizeof(wqe));
			w = (uint32_t *)wqe;
			bbs = ((be32toh(w[1]) & 0x3f) * 16 + 63) / 64;
			assert_true(bbs >= 1 && bbs <= 4);
			w[0] = (w[0] & htobe32(0xff0000ff)) | htobe32(idx << 8);
			for (unsigned n = 1 + rnd() % 4; n; n--) {
				unsigned at = rnd() % 8 ? 8 + rnd() % (64 * bbs - 8) : rnd() % 8;

				wqe[at] = rnd() % 2 ? wqe[at] ^ 1u << rnd() % 8 : rnd();
			}
			for (unsigned i = 0; i < bbs; i++)
				memcpy((uint8_t *)dq.sq.buf + ((idx + i) & (dq.sq.wqe_cnt - 1)) * 64, wqe + 64 * i, 64);
			idx += bbs;
			__atomic_thread_fence(__ATOMIC_SEQ_CST);
			dq.dbrec[MLX5_SND_DBR] = htobe32(idx & 0xffff);
			__atomic_thread_fence(__ATOMIC_SEQ_CST);
			*(volatile uint64_t *)dq.bf.reg = *(uint64_t *)wqe;
		}
		usleep(100);
		while (ibv_poll_cq(s[0].scq, 1, &wc) > 0 || ibv_poll_cq(s[1].rcq, 1, &wc) > 0)
			;
		must(ibv_dealloc_mw(mw));
		close_pair(s);
	}
	writes(good, 5000, true);
	sends(good, 5000, true);
	reads(good, 5000);
	close_pair(good);
	must(ibv_destroy_ah(ah));
}

/* A shared receive queue whose list leads anywhere, and whose count is anything */
static void hostile_srqs(UNUSED void **state)
{
	struct side good[2];

	open_pair(good, &usual);
	for (int round = 0; round < 60; round++) {
		struct ibv_srq_init_attr init = { .attr = { .max_wr = 15, .max_sge = 2 } };
		struct ibv_srq *srq = ibv_create_srq(pd, &init);
		struct mlx5dv_srq d = { .comp_mask = 0 };
		struct how how = usual;
		struct mlx5dv_obj obj;

		assert_non_null(srq);
		obj.srq.in = srq;
		obj.srq.out = &d;
		must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ));
		how.rnr_retry = how.retry_cnt = 1;
		open_side(&s[0], &how);
		how.srq = srq;
		open_side(&s[1], &how);
		bring_up(s[0].qp, s[1].qp->qp_num, &how);
		bring_up(s[1].qp, s[0].qp->qp_num, &how);
		for (unsigned i = 0; i <= init.attr.max_wr; i++) {
			struct mlx5_wqe_data_seg *seg = (struct mlx5_wqe_data_seg *)((uint8_t *)d.buf + i * d.stride + 16);
			struct mlx5_wqe_srq_next_seg *next = (struct mlx5_wqe_srq_next_seg *)((uint8_t *)d.buf + i * d.stride);

			next->next_wqe_index = round & 1 ? htobe16(rnd() % 16) : htobe16(rnd());
			seg->byte_count = round & 2 ? htobe32(64) : htobe32(rnd());
			seg->lkey = round & 4 ? htobe32(s[1].mr->lkey) : htobe32(rnd());
			seg->addr = round & 8 ? htobe64((uintptr_t)s[1].buf + HALF) : htobe64(rnd());
		}
		*d.dbrec = round & 16 ? htobe32(10) : htobe32(rnd());
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		for (int i = 0; i < 12; i++) {
			struct ibv_sge sg = sge(&s[0], 0, 32);
			struct ibv_send_wr wr = request(IBV_WR_SEND, i, &sg, 1, &s[1], 0);

			post(&s[0], &wr);
		}
		next_wc(s[0].scq);
		while (ibv_poll_cq(s[0].scq, 1, &wc) > 0)
			;
		close_pair(s);
		must(ibv_destroy_srq(srq));
	}
	while (readable(ctx->async_fd, 0)) {
		struct ibv_async_event ev;

		must(ibv_get_async_event(ctx, &ev));
		fail_msg("an event of what is gone: %s", ibv_event_type_str(ev.event_type));
	}
	writes(good, 5000, true);
	sends(good, 5000, true);
	close_pair(good);
}

/* ---- commands that libmlx5 would not send ---- */

static union {
	struct ib_uverbs_ioctl_hdr hdr;
	uint8_t room[sizeof(struct ib_uverbs_ioctl_hdr) + 32 * sizeof(struct ib_uverbs_attr)];
} raw;

static void raw_start(unsigned object, unsigned method)
{
	memset(&raw, 0, sizeof(raw));
	raw.hdr.object_id = object;
	raw.hdr.method_id = method;
	raw.hdr.driver_id = RDMA_DRIVER_MLX5;
}

static struct ib_uverbs_attr *raw_attr(unsigned id, unsigned len, uint64_t data)
{
	struct ib_uverbs_attr *a = &raw.hdr.attrs[raw.hdr.num_attrs++];

	*a = (struct ib_uverbs_attr){ .attr_id = id, .len = len, .flags = UVERBS_ATTR_F_MANDATORY, .data = data };
	return a;
}

static int raw_run(int fd)
{
	raw.hdr.length = sizeof(raw.hdr) + raw.hdr.num_attrs * sizeof(raw.hdr.attrs[0]);
	return ioctl(fd, RDMA_VERBS_IOCTL, &raw) ? errno : 0;
}

static int raw_open(void)
{
	struct mlx5_ib_alloc_ucontext_req_v2 req = { .max_cqe_version = 1, .lib_caps = MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR };
	struct mlx5_ib_alloc_ucontext_resp resp = { .tot_bfregs = 1 };
	int fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	/* Nothing works before there is a context */
	raw_start(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC);
	raw_attr(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0, 0);
	assert_int_equal(raw_run(fd), EINVAL);
	raw_start(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
	raw_attr(UVERBS_ATTR_UHW_IN, sizeof(req), (uintptr_t)&req);
	raw_attr(UVERBS_ATTR_UHW_OUT, sizeof(resp), (uintptr_t)&resp);
	assert_int_equal(raw_run(fd), 0);
	assert_int_equal(resp.tot_bfregs, 0);
	assert_int_equal(resp.cqe_version, 1);
	assert_int_equal(raw_run(fd), EINVAL); /* once is enough */
	return fd;
}

static int raw_write(int fd, uint32_t command, const void *in, unsigned in_len, void *out, unsigned out_len)
{
	uint64_t small = 0;

	raw_start(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
	raw_attr(UVERBS_ATTR_WRITE_CMD, 8, command);
	if (in_len && in_len <= 8)
		memcpy(&small, in, in_len);
	if (in_len)
		raw_attr(UVERBS_ATTR_CORE_IN, in_len, in_len <= 8 ? small : (uintptr_t)in);
	if (out_len)
		raw_attr(UVERBS_ATTR_CORE_OUT, out_len, (uintptr_t)out);
	return raw_run(fd);
}

static uint32_t raw_uar(int fd)
{
	uint32_t length = 0, page_id = 0;
	uint64_t offset = 0;

	raw_start(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC);
	raw_attr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, 0, 0);
	raw_attr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, 8, 0);
	raw_attr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, 8, (uintptr_t)&offset);
	raw_attr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, 4, (uintptr_t)&length);
	raw_attr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, 4, (uintptr_t)&page_id);
	assert_int_equal(raw_run(fd), 0);
	assert_int_equal(length, 4096);
	return page_id;
}

static int raw_cq(int fd, uint32_t cqe, const struct mlx5_ib_create_cq *drv, uint32_t *handle)
{
	struct mlx5_ib_create_cq_resp resp;
	struct ib_uverbs_attr *a;
	uint32_t got = 0;
	int err;

	raw_start(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
	a = raw_attr(UVERBS_ATTR_CREATE_CQ_HANDLE, 0, 0);
	raw_attr(UVERBS_ATTR_CREATE_CQ_CQE, 4, cqe);
	raw_attr(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 8, 1);
	raw_attr(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 4, 0);
	raw_attr(UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4, (uintptr_t)&got);
	raw_attr(UVERBS_ATTR_UHW_IN, sizeof(*drv), (uintptr_t)drv);
	raw_attr(UVERBS_ATTR_UHW_OUT, sizeof(resp), (uintptr_t)&resp);
	err = raw_run(fd);
	if (!err)
		assert_int_equal(got, cqe);
	*handle = a->data;
	return err;
}

static int raw_qp(int fd, uint32_t p, uint32_t cq, const struct mlx5_ib_create_qp *drv, struct ib_uverbs_qp_cap cap)
{
	struct mlx5_ib_create_qp_resp resp;
	uint32_t qpn;

	raw_start(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
	raw_attr(UVERBS_ATTR_CREATE_QP_HANDLE, 0, 0);
	raw_attr(UVERBS_ATTR_CREATE_QP_PD_HANDLE, 0, p);
	raw_attr(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, 0, cq);
	raw_attr(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, 0, cq);
	raw_attr(UVERBS_ATTR_CREATE_QP_TYPE, 8, IB_UVERBS_QPT_RC);
	raw_attr(UVERBS_ATTR_CREATE_QP_USER_HANDLE, 8, 2);
	raw_attr(UVERBS_ATTR_CREATE_QP_CAP, sizeof(cap), (uintptr_t)&cap);
	raw_attr(UVERBS_ATTR_CREATE_QP_RESP_CAP, sizeof(cap), (uintptr_t)&cap);
	raw_attr(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, 4, (uintptr_t)&qpn);
	raw_attr(UVERBS_ATTR_UHW_IN, sizeof(*drv), (uintptr_t)drv);
	raw_attr(UVERBS_ATTR_UHW_OUT, sizeof(resp), (uintptr_t)&resp);
	return raw_run(fd);
}

#define RAW_CQ(field, value, want)                                         \
	do {                                                               \
		struct mlx5_ib_create_cq d_ = cq;                          \
		d_.field = value;                                          \
		assert_int_equal(raw_cq(fd, 15, &d_, &handle), want);      \
	} while (0)

#define RAW_QP(field, value, want)                                         \
	do {                                                               \
		struct mlx5_ib_create_qp d_ = qp;                          \
		d_.field = value;                                          \
		assert_int_equal(raw_qp(fd, p.pd_handle, handle, &d_, cap), want); \
	} while (0)

static void hostile_commands(UNUSED void **state)
{
	struct ib_uverbs_qp_cap cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 };
	uint8_t *mem = mmap(NULL, 65536 + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ib_uverbs_alloc_pd_resp p = { .pd_handle = 0 };
	struct ib_uverbs_query_device_resp dev;
	int fd = raw_open();
	uint32_t handle, page = raw_uar(fd);
	struct mlx5_ib_create_cq cq = { .buf_addr = (uintptr_t)mem, .db_addr = (uintptr_t)mem + 8192, .cqe_size = 64,
					.flags = MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX, .uar_page_index = page };
	struct mlx5_ib_create_qp qp = { .buf_addr = (uintptr_t)mem + 16384, .db_addr = (uintptr_t)mem + 8256, .sq_wqe_count = 16,
					.rq_wqe_count = 16, .rq_wqe_shift = 4, .flags = MLX5_QP_FLAG_UAR_PAGE_INDEX, .bfreg_index = page };
	uint64_t zero = 0;

	assert_int_equal(mprotect(mem + 65536, 4096, PROT_NONE), 0);
	/* The frame */
	assert_int_equal(ioctl(fd, RDMA_VERBS_IOCTL, NULL), -1);
	assert_int_equal(errno, EFAULT);
	raw_start(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY);
	assert_int_equal(raw_run(fd), EINVAL);
	raw_attr(UVERBS_ATTR_DESTROY_PD_HANDLE, 0, 12345);
	assert_int_equal(raw_run(fd), ENOENT);
	raw.hdr.driver_id++;
	assert_int_equal(raw_run(fd), EINVAL);
	raw.hdr.driver_id--;
	raw.hdr.attrs[0].attr_id = 9;
	assert_int_equal(raw_run(fd), EPROTONOSUPPORT);
	raw.hdr.attrs[0].flags = 0;
	assert_int_equal(raw_run(fd), EINVAL);
	raw.hdr.method_id = 77;
	assert_int_equal(raw_run(fd), EOPNOTSUPP);
	raw.hdr.length--;
	assert_int_equal(ioctl(fd, RDMA_VERBS_IOCTL, &raw), -1);
	assert_int_equal(errno, EINVAL);
	/* Pointers, lengths */
	assert_int_equal(raw_write(fd, IB_USER_VERBS_CMD_QUERY_DEVICE, NULL, 0, NULL, 0), ENOSPC);
	assert_int_equal(raw_write(fd, IB_USER_VERBS_CMD_QUERY_DEVICE, NULL, 0, &dev, sizeof(dev)), 0);
	assert_int_equal(raw_write(fd, IB_USER_VERBS_CMD_QUERY_DEVICE, NULL, 0, (void *)8, sizeof(dev)), EFAULT);
	assert_int_equal(raw_write(fd, IB_USER_VERBS_CMD_REG_MR, (void *)8, sizeof(struct ib_uverbs_reg_mr), &dev, 12), EFAULT);
	assert_int_equal(raw_write(fd, 200, NULL, 0, NULL, 0), EOPNOTSUPP);
	assert_int_equal(raw_write(fd, IB_USER_VERBS_CMD_ALLOC_PD, &zero, 8, &p, 4), 0);
	/* CQs */
	assert_int_equal(raw_cq(fd, 0, &cq, &handle), EINVAL);
	assert_int_equal(raw_cq(fd, 14, &cq, &handle), EINVAL);
	assert_int_equal(raw_cq(fd, 0xffffffff, &cq, &handle), EINVAL);
	assert_int_equal(raw_cq(fd, (1 << 20) - 1, &cq, &handle), EFAULT);
	RAW_CQ(cqe_size, 0, EINVAL);
	RAW_CQ(cqe_size, 96, EINVAL);
	RAW_CQ(buf_addr, 0, EFAULT);
	RAW_CQ(buf_addr, ~0ull << 12, EFAULT);
	RAW_CQ(buf_addr, (uintptr_t)mem + 1, EINVAL);
	RAW_CQ(db_addr, (uintptr_t)mem + 4, EINVAL);
	RAW_CQ(db_addr, 0, EFAULT);
	RAW_CQ(db_addr, 4096, EFAULT);
	RAW_CQ(cqe_comp_en, 1, EINVAL);
	RAW_CQ(uar_page_index, page + 1, EINVAL);
	RAW_CQ(flags, 0, EINVAL);
	RAW_CQ(cqe_size, 64, 0);
	/* QPs */
	RAW_QP(sq_wqe_count, 0, EINVAL);
	RAW_QP(sq_wqe_count, 15, EINVAL);
	RAW_QP(sq_wqe_count, 1u << 31, EINVAL);
	RAW_QP(rq_wqe_count, 0, EINVAL);
	RAW_QP(rq_wqe_count, 5, EINVAL);
	RAW_QP(rq_wqe_count, 1u << 31, EINVAL);
	RAW_QP(rq_wqe_shift, 3, EINVAL);
	RAW_QP(rq_wqe_shift, 60, EINVAL);
	RAW_QP(buf_addr, 0, EFAULT);
	RAW_QP(buf_addr, (uintptr_t)mem + 65536 - 64, EFAULT);
	RAW_QP(buf_addr, (uintptr_t)mem + 2, EINVAL);
	RAW_QP(db_addr, (uintptr_t)mem + 2, EINVAL);
	RAW_QP(db_addr, 0, EFAULT);
	RAW_QP(bfreg_index, page + 1, EINVAL);
	RAW_QP(flags, 0, EINVAL);
	RAW_QP(flags, MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_SIGNATURE, EINVAL);
	assert_int_equal(raw_qp(fd, p.pd_handle + 1000, handle, &qp, cap), EINVAL);
	assert_int_equal(raw_qp(fd, handle, handle, &qp, cap), EINVAL);
	RAW_QP(rq_wqe_shift, 4, 0);
	/* Handles of another context are refused */
	raw_start(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY);
	raw_attr(UVERBS_ATTR_DESTROY_CQ_HANDLE, 0, handle);
	assert_int_equal(raw_run(ctx->cmd_fd), ENOENT);
	assert_int_equal(raw_run(fd), EBUSY);
	assert_int_equal(close(fd), 0);
	munmap(mem, 65536 + 4096);
}

/* Commands at random, with pointers that are good, bad and odd */
static void random_commands(UNUSED void **state)
{
	static const struct {
		uint16_t object, method, attrs;
	} methods[] = {
		{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, 2 },
		{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, 2 },
		{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, 2 },
		{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, 2 },
		{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, 2 },
		{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, 2 },
		{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, 2 },
		{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE, 4 },
		{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, 4 },
		{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, 2 },
		{ UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, 8 },
		{ UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, 2 },
		{ UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, 15 },
		{ UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, 2 },
		{ UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, 1 },
		{ UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, 1 },
		{ UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR, 5 },
		{ UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, 1 },
		{ MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, 5 },
		{ MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, 1 },
		{ MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, 2 },
		{ UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE, 12 },
		{ UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, 2 },
		{ UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY, 1 },
		{ UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC, 3 },
		{ UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE, 1 },
		{ UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG, 8 },
		{ UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_CREATE, 11 },
		{ UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_DESTROY, 2 },
		{ UVERBS_OBJECT_RWQ_IND_TBL, UVERBS_METHOD_RWQ_IND_TBL_DESTROY, 1 },
		{ UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW, 0 },
		{ UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY, 1 },
		{ MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_CREATE, 6 },
		{ MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_DESTROY, 1 },
	};
	static const uint32_t commands[] = {
		IB_USER_VERBS_CMD_QUERY_DEVICE, IB_USER_VERBS_CMD_QUERY_PORT, IB_USER_VERBS_CMD_ALLOC_PD, IB_USER_VERBS_CMD_CREATE_AH,
		IB_USER_VERBS_CMD_REG_MR, IB_USER_VERBS_CMD_REREG_MR, IB_USER_VERBS_CMD_ALLOC_MW, IB_USER_VERBS_CMD_RESIZE_CQ,
		IB_USER_VERBS_CMD_QUERY_QP, IB_USER_VERBS_CMD_MODIFY_QP, IB_USER_VERBS_CMD_MODIFY_SRQ, IB_USER_VERBS_CMD_QUERY_SRQ,
		IB_USER_VERBS_CMD_ATTACH_MCAST, IB_USER_VERBS_CMD_DETACH_MCAST, 1u << 31 | IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
		1u << 31 | IB_USER_VERBS_EX_CMD_MODIFY_QP, 1u << 31 | IB_USER_VERBS_EX_CMD_MODIFY_WQ,
		1u << 31 | IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL, 1u << 31 | IB_USER_VERBS_EX_CMD_MODIFY_CQ,
		1u << 31 | IB_USER_VERBS_EX_CMD_CREATE_FLOW,
	};
	static const uint16_t lengths[] = { 0, 4, 8, 12, 16, 20, 24, 40, 64, 128, 312, 4096, 65535 };
	/* Twice as much as the addresses span: an answer of 65535 bytes at the end must not land in somebody's memory */
	uint8_t *mem = mmap(NULL, 1 << 17, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = raw_open(), done = 0;

	for (int round = 0; round < 30000; round++) {
		unsigned m = rnd() % ARRAY(methods), n = methods[m].attrs + rnd() % (methods[m].attrs ? 3 : 10), odd = rnd() % 3;
		bool driver = methods[m].object >= 0x1000;

		raw_start(methods[m].object, methods[m].method);
		if (!methods[m].object && methods[m].method == UVERBS_METHOD_INVOKE_WRITE)
			raw_attr(UVERBS_ATTR_WRITE_CMD, 8, commands[rnd() % ARRAY(commands)]);
		/* Words that could be sizes, handles and flags, and here and there an address of this very memory */
		for (unsigned i = 0; i < 64; i++) {
			unsigned at = rnd() % (65536 / 8);

			((uint64_t *)mem)[at] = rnd() % 3 ? rnd() % 64 : rnd() % 2 ? (uintptr_t)mem + (rnd() & 0xffc0) : rnd();
		}
		for (unsigned i = 0; i < n; i++) {
			unsigned id = i < methods[m].attrs ? (driver ? 0x1000 + i : i) : 0x1000 + i - methods[m].attrs;
			uint64_t data;

			if (odd == 0 && rnd() % 4 == 0)
				id = rnd() % 0x40 + (rnd() & 0x1000);
			if (rnd() % 3 == 0)
				data = rnd() % 16;
			else if (rnd() % 16 == 0)
				data = (uint64_t)rnd() << 33 | 1;
			else
				data = (uintptr_t)mem + (rnd() & 0xfff8);
			raw_attr(id, lengths[rnd() % ARRAY(lengths)], data)->flags = rnd() % 8 == 0;
		}
		done += raw_run(fd) == 0;
	}
	if (done < 100)
		print_error("only %d of 30000 did something\n", done);
	assert_true(done >= 100);
	assert_int_equal(close(fd), 0);
	munmap(mem, 1 << 17);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(hostile_wqes), TEST(nearly_right), TEST(hostile_srqs), TEST(hostile_commands),
		TEST(random_commands),
	};

	const char *rounds = getenv("DEVICE_ROUNDS"), *seed = getenv("INLAY_TEST_SEED");
	int bad = 0;

	for (unsigned long n = seed ? strtoul(seed, NULL, 0) % 1000000 : 0; n; n--)
		rnd();
	for (int n = rounds ? atoi(rounds) : 1; n > 0; n--)
		bad += cmocka_run_group_tests(tests, setup, teardown);
	return bad;
}
