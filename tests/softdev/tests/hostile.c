/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hostile.c: how each command that libmlx5 never sends is refused. fuzz/device.c goes further: any commands, and WQEs with any bytes, on
 * a device that is stepped.
 */
#include "rig_raw.h"
#include <rdma/mlx5_user_ioctl_cmds.h>

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

static uint32_t raw_uar(int fd)
{
	uint32_t length = 0, page_id = 0;
	uint64_t offset = 0;

	must(raw_call(fd, MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, ATTR(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, 0, 0),
		      ATTR(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, 8, 0), PTR(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &offset),
		      PTR(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &length), PTR(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &page_id)));
	assert_int_equal(length, 4096);
	return page_id;
}

static int raw_cq(int fd, uint32_t cqe, const struct mlx5_ib_create_cq *drv, uint32_t *handle)
{
	struct mlx5_ib_create_cq_resp resp;
	uint32_t got = 0;
	int err = raw_call(fd, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, ATTR(UVERBS_ATTR_CREATE_CQ_HANDLE, 0, 0),
			   ATTR(UVERBS_ATTR_CREATE_CQ_CQE, 4, cqe), ATTR(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 8, 1),
			   ATTR(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 4, 0), PTR(UVERBS_ATTR_CREATE_CQ_RESP_CQE, &got),
			   PTR(UVERBS_ATTR_UHW_IN, drv), PTR(UVERBS_ATTR_UHW_OUT, &resp));

	assert_true(err || got == cqe);
	*handle = raw.hdr.attrs[0].data;
	return err;
}

static int raw_qp(int fd, uint32_t p, uint32_t cq, const struct mlx5_ib_create_qp *drv)
{
	struct ib_uverbs_qp_cap cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 };
	struct mlx5_ib_create_qp_resp resp;
	uint32_t qpn;

	return raw_call(fd, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, ATTR(UVERBS_ATTR_CREATE_QP_HANDLE, 0, 0),
			ATTR(UVERBS_ATTR_CREATE_QP_PD_HANDLE, 0, p), ATTR(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, 0, cq),
			ATTR(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, 0, cq), ATTR(UVERBS_ATTR_CREATE_QP_TYPE, 8, IB_UVERBS_QPT_RC),
			ATTR(UVERBS_ATTR_CREATE_QP_USER_HANDLE, 8, 2), PTR(UVERBS_ATTR_CREATE_QP_CAP, &cap),
			PTR(UVERBS_ATTR_CREATE_QP_RESP_CAP, &cap), PTR(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &qpn),
			PTR(UVERBS_ATTR_UHW_IN, drv), PTR(UVERBS_ATTR_UHW_OUT, &resp));
}

/* One field of a command that is good else, and the answer */
struct wrong {
	size_t field, size;
	uint64_t value;
	int err;
};

#define FIELD(type, field, value, err) { offsetof(struct type, field), sizeof(((struct type *)0)->field), value, err }
#define CQ(field, value, err) FIELD(mlx5_ib_create_cq, field, value, err)
#define QP(field, value, err) FIELD(mlx5_ib_create_qp, field, value, err)

static void put_wrong(void *command, const struct wrong *w)
{
	memcpy((uint8_t *)command + w->field, &w->value, w->size); /* x86-64 and aarch64 are little-endian */
}

TEST(hostile_commands)
{
	uint8_t *mem = mmap(NULL, 65536 + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ib_uverbs_alloc_pd_resp p = { .pd_handle = 0 };
	struct ib_uverbs_query_device_resp dev;
	int fd = raw_open();
	uint32_t handle, page = raw_uar(fd);
	struct mlx5_ib_create_cq cq = { .buf_addr = (uintptr_t)mem, .db_addr = (uintptr_t)mem + 8192, .cqe_size = 64,
					.flags = MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX, .uar_page_index = page };
	struct mlx5_ib_create_qp qp = { .buf_addr = (uintptr_t)mem + 16384, .db_addr = (uintptr_t)mem + 8256, .sq_wqe_count = 16,
					.rq_wqe_count = 16, .rq_wqe_shift = 4, .flags = MLX5_QP_FLAG_UAR_PAGE_INDEX, .bfreg_index = page };
	const struct wrong cqs[] = {
		CQ(cqe_size, 0, EINVAL), CQ(cqe_size, 96, EINVAL), CQ(buf_addr, 0, EFAULT), CQ(buf_addr, ~0ull << 12, EFAULT),
		CQ(buf_addr, (uintptr_t)mem + 1, EINVAL), CQ(db_addr, (uintptr_t)mem + 4, EINVAL), CQ(db_addr, 0, EFAULT),
		CQ(db_addr, 4096, EFAULT), CQ(cqe_comp_en, 1, EINVAL), CQ(uar_page_index, page + 1, EINVAL), CQ(flags, 0, EINVAL),
		CQ(flags, MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX | MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD, EOPNOTSUPP),
		CQ(cqe_size, 64, 0),
	};
	const struct wrong qps[] = {
		QP(sq_wqe_count, 0, EINVAL), QP(sq_wqe_count, 15, EINVAL), QP(sq_wqe_count, 1u << 31, EINVAL),
		QP(rq_wqe_count, 0, EINVAL), QP(rq_wqe_count, 5, EINVAL), QP(rq_wqe_count, 1u << 31, EINVAL), QP(rq_wqe_shift, 3, EINVAL),
		QP(rq_wqe_shift, 60, EINVAL), QP(buf_addr, 0, EFAULT), QP(buf_addr, (uintptr_t)mem + 65536 - 64, EFAULT),
		QP(buf_addr, (uintptr_t)mem + 2, EINVAL), QP(db_addr, (uintptr_t)mem + 2, EINVAL), QP(db_addr, 0, EFAULT),
		QP(bfreg_index, page + 1, EINVAL), QP(flags, 0, EINVAL),
		QP(flags, MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_SIGNATURE, EINVAL),
	};

	must(mprotect(mem + 65536, 4096, PROT_NONE));
	/* The frame */
	assert_int_equal(ioctl(fd, RDMA_VERBS_IOCTL, NULL), -1);
	assert_int_equal(errno, EFAULT);
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
	assert_int_equal(ioctl(fd, RDMA_VERBS_IOCTL, &raw), -1);
	assert_int_equal(errno, EINVAL);
	/* Pointers, lengths */
	assert_int_equal(raw_write(fd, IB_USER_VERBS_CMD_QUERY_DEVICE, NULL, 0, NULL, 0), ENOSPC);
	assert_int_equal(raw_write(fd, IB_USER_VERBS_CMD_QUERY_DEVICE, NULL, 0, &dev, sizeof(dev)), 0);
	assert_int_equal(raw_write(fd, IB_USER_VERBS_CMD_QUERY_DEVICE, NULL, 0, (void *)8, sizeof(dev)), EFAULT);
	assert_int_equal(raw_write(fd, IB_USER_VERBS_CMD_REG_MR, (void *)8, sizeof(struct ib_uverbs_reg_mr), &dev, 12), EFAULT);
	assert_int_equal(raw_write(fd, 200, NULL, 0, NULL, 0), EOPNOTSUPP);
	assert_int_equal(raw_write(fd, IB_USER_VERBS_CMD_ALLOC_PD, NULL, 8, &p, 4), 0); /* 8 bytes are in the attribute itself */
	assert_int_equal(raw_cq(fd, 0, &cq, &handle), EINVAL);
	assert_int_equal(raw_cq(fd, 14, &cq, &handle), EINVAL);
	assert_int_equal(raw_cq(fd, 0xffffffff, &cq, &handle), EINVAL);
	assert_int_equal(raw_cq(fd, (1 << 20) - 1, &cq, &handle), EFAULT);
	for (unsigned i = 0; i < ARRAY(cqs); i++) {
		struct mlx5_ib_create_cq c = cq;

		put_wrong(&c, &cqs[i]);
		assert_int_equal(raw_cq(fd, 15, &c, &handle), cqs[i].err);
	}
	for (unsigned i = 0; i < ARRAY(qps); i++) {
		struct mlx5_ib_create_qp q = qp;

		put_wrong(&q, &qps[i]);
		assert_int_equal(raw_qp(fd, p.pd_handle, handle, &q), qps[i].err);
	}
	assert_int_equal(raw_qp(fd, p.pd_handle + 1000, handle, &qp), EINVAL);
	assert_int_equal(raw_qp(fd, handle, handle, &qp), EINVAL);
	must(raw_qp(fd, p.pd_handle, handle, &qp));
	/* Handles of another context are refused */
	assert_int_equal(raw_call(ctx->cmd_fd, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY,
				  ATTR(UVERBS_ATTR_DESTROY_CQ_HANDLE, 0, handle)), ENOENT);
	assert_int_equal(raw_again(fd), EBUSY);
	must(close(fd));
	munmap(mem, 65536 + 4096);
}

int main(void)
{
	return run_all(setup, teardown);
}
