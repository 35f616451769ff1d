/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ops.c: what a QP does by itself. Copies by mlx5dv_wr_memcpy; WQEs written by hand and posted by
 * mlx5dv_wr_raw_wqe, as UCC posts its own: DUMP, WAIT for memory and for the clock.
 */
#include "rig.h"

#define OPCODE_WAIT 0x0f
#define OPCODE_DUMP 0x23

static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct mlx5dv_qp_ex *dv;
static uint8_t *buf;
static struct ibv_mr *mr;

/* An RC QP that is its own peer. ops: of mlx5dv */
static void open_self(uint64_t ops)
{
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					    .pd = pd, .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
					    .cap = { .max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 4, .max_recv_sge = 1,
						     .max_inline_data = 200 } };
	struct mlx5dv_qp_init_attr dv_attr = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS, .send_ops_flags = ops };

	cq = ibv_create_cq(ctx, 63, NULL, NULL, 0);
	assert_non_null(cq);
	attr.send_cq = attr.recv_cq = cq;
	qp = mlx5dv_create_qp(ctx, &attr, &dv_attr);
	assert_non_null(qp);
	dv = mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(qp));
	buf = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(buf, MAP_FAILED);
	mr = ibv_reg_mr(pd, buf, SIZE, ALL_ACCESS);
	assert_non_null(mr);
	bring_up(qp, qp->qp_num, &usual);
}

static void close_self(void)
{
	must(ibv_destroy_qp(qp));
	must(ibv_destroy_cq(cq));
	must(ibv_dereg_mr(mr));
	munmap(buf, SIZE);
}

static void start(uint64_t id)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);

	ibv_wr_start(ex);
	ex->wr_id = id;
	ex->wr_flags = IBV_SEND_SIGNALED;
}

static void done(uint64_t id, enum ibv_wc_status status)
{
	must(ibv_wr_complete(ibv_qp_to_qp_ex(qp)));
	expect(cq, id, status);
}

/* ---- copies ---- */

static void copies(UNUSED void **state)
{
	struct mlx5dv_context caps = { .comp_mask = MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH };

	must(mlx5dv_query_device(ctx, &caps));
	assert_true(caps.max_wr_memcpy_length == 1ull << 31);
	open_self(MLX5DV_QP_EX_WITH_MEMCPY);
	for (uint32_t i = 0, len = 1; len <= HALF; i++, len = 3 * len + 1) {
		fill(buf, len, i);
		memset(buf + HALF, 0, HALF);
		start(i);
		mlx5dv_wr_memcpy(dv, mr->lkey, (uintptr_t)buf + HALF, mr->lkey, (uintptr_t)buf, len);
		done(i, IBV_WC_SUCCESS);
		assert_memory_equal(buf, buf + HALF, len);
		assert_true(len == HALF || buf[HALF + len] == 0);
	}
	/* A key that is none ends it */
	start(99);
	mlx5dv_wr_memcpy(dv, mr->lkey ^ 0x55aa00, (uintptr_t)buf + HALF, mr->lkey, (uintptr_t)buf, 8);
	done(99, IBV_WC_LOC_PROT_ERR);
	close_self();
	/* A destination that may only be read */
	open_self(MLX5DV_QP_EX_WITH_MEMCPY);
	{
		struct ibv_mr *read_only = ibv_reg_mr(pd, buf, 4096, 0);

		assert_non_null(read_only);
		start(1);
		mlx5dv_wr_memcpy(dv, mr->lkey, (uintptr_t)buf + HALF, read_only->lkey, (uintptr_t)buf, 8);
		done(1, IBV_WC_SUCCESS);
		start(2);
		mlx5dv_wr_memcpy(dv, read_only->lkey, (uintptr_t)buf, mr->lkey, (uintptr_t)buf + HALF, 8);
		done(2, IBV_WC_LOC_PROT_ERR);
		must(ibv_dereg_mr(read_only));
	}
	close_self();
}

/* ---- by hand ---- */

static uint8_t wqe[256];

static void *put_be64(void *at, uint64_t v)
{
	v = htobe64(v);
	memcpy(at, &v, 8);
	return (uint8_t *)at + 8;
}

static void *put_be32(void *at, uint32_t v)
{
	v = htobe32(v);
	memcpy(at, &v, 4);
	return (uint8_t *)at + 4;
}

/* end: behind the last segment */
static void raw(uint64_t id, unsigned opcode, unsigned opmod, const void *end)
{
	const size_t ds = ((const uint8_t *)end - wqe) / 16;

	mlx5dv_set_ctrl_seg((struct mlx5_wqe_ctrl_seg *)(void *)wqe, 0, opcode, opmod, qp->qp_num, MLX5_WQE_CTRL_CQ_UPDATE, ds, 0, 0);
	start(id);
	mlx5dv_wr_raw_wqe(dv, wqe);
}

static void *data_seg(void *at, uint64_t addr, uint32_t len)
{
	mlx5dv_set_data_seg((struct mlx5_wqe_data_seg *)at, len, mr->lkey, addr);
	return (uint8_t *)at + 16;
}

static void *condition(uint32_t op, uint64_t addr, uint64_t value, uint64_t mask)
{
	return put_be64(put_be64(put_be64(put_be32(put_be32(wqe + 16, op), addr ? mr->lkey : 0), addr), value), mask);
}

/* UCC waits for equality of 4 of 8 bytes with a value and a mask in the host's order, as they lie in memory */
static void waits(UNUSED void **state)
{
	volatile uint32_t *flag;
	struct ibv_wc none;

	open_self(MLX5DV_QP_EX_WITH_RAW_WQE);
	flag = (volatile uint32_t *)(void *)(buf + 128);
	for (unsigned i = 0; i < 20; i++) {
		raw(1, OPCODE_WAIT, 1, condition(1, (uintptr_t)flag, htobe64(100 + i), htobe64(0xffffffff)));
		must(ibv_wr_complete(ibv_qp_to_qp_ex(qp)));
		expect_nothing(cq);
		flag[1] = i;
		__atomic_store_n(flag, 100 + i, __ATOMIC_RELEASE);
		expect(cq, 1, IBV_WC_SUCCESS);
	}
	/* What holds already holds nothing up; the clock has passed 0 */
	raw(2, OPCODE_WAIT, 1, condition(1 | 0x10, (uintptr_t)flag, 0, ~0ull));
	done(2, IBV_WC_SUCCESS);
	raw(3, OPCODE_WAIT, 2, condition(5, 0, 1, ~0ull));
	done(3, IBV_WC_SUCCESS);
	raw(4, OPCODE_DUMP, 0, data_seg(wqe + 16, (uintptr_t)buf, SIZE));
	done(4, IBV_WC_SUCCESS);
	/* With action 1, not to hold is an error */
	raw(5, OPCODE_WAIT, 1, condition(1, (uintptr_t)flag | 1, 0, ~0ull));
	done(5, IBV_WC_LOC_QP_OP_ERR);
	assert_int_equal(ibv_poll_cq(cq, 1, &none), 0);
	close_self();
	/* A QP that is no master waits for no CQ */
	open_self(MLX5DV_QP_EX_WITH_RAW_WQE);
	raw(1, OPCODE_WAIT, 0, put_be64(put_be64(wqe + 16, 0), 0));
	done(1, IBV_WC_LOC_QP_OP_ERR);
	close_self();
}

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(copies), TEST(waits) };

	return cmocka_run_group_tests(tests, setup, teardown);
}
