/* SPDX-License-Identifier: BSD-3-Clause */
/* wq.c: receive work queues that belong to no QP, tables of them, and what mlx5dv tells of them */
#include "rig.h"

static struct ibv_cq *cq;

static int wq_setup(void **state)
{
	if (setup(state))
		return -1;
	cq = ibv_create_cq(ctx, 255, NULL, NULL, 0);
	return !cq;
}

static int wq_teardown(void **state)
{
	return ibv_destroy_cq(cq) || teardown(state);
}

static struct ibv_wq *a_wq(uint32_t wr, uint32_t sge)
{
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = wr, .max_sge = sge, .pd = pd, .cq = cq };
	struct ibv_wq *wq = ibv_create_wq(ctx, &init);

	assert_non_null(wq);
	assert_true(init.max_wr >= wr && init.max_sge >= sge);
	return wq;
}

static int to_state(struct ibv_wq *wq, enum ibv_wq_state state)
{
	struct ibv_wq_attr a = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = state };

	return ibv_modify_wq(wq, &a);
}

static struct mlx5dv_rwq dv_of(struct ibv_wq *wq)
{
	struct mlx5dv_rwq d;
	struct mlx5dv_obj obj;

	memset(&d, 0, sizeof(d));
	obj.rwq.in = wq;
	obj.rwq.out = &d;
	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_RWQ));
	return d;
}

static void made_and_moved(UNUSED void **state)
{
	struct ibv_wq_attr a = { .attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE, .curr_wq_state = IBV_WQS_ERR,
				 .wq_state = IBV_WQS_RESET };
	struct ibv_wq *wq = a_wq(64, 4), *other = a_wq(10, 1);

	assert_int_equal(wq->wq_type, IBV_WQT_RQ);
	assert_int_not_equal(wq->wq_num, other->wq_num);
	assert_int_equal(wq->state, IBV_WQS_RESET);
	must(to_state(wq, IBV_WQS_RDY));
	assert_int_equal(wq->state, IBV_WQS_RDY);
	assert_int_equal(other->state, IBV_WQS_RESET);
	/* It is not where it is said to be */
	assert_int_not_equal(ibv_modify_wq(wq, &a), 0);
	assert_int_equal(wq->state, IBV_WQS_RDY);
	must(to_state(wq, IBV_WQS_ERR));
	must(to_state(wq, IBV_WQS_RESET));
	must(to_state(wq, IBV_WQS_RDY));
	/* In use: the CQ and the domain */
	assert_int_equal(ibv_destroy_cq(cq), EBUSY);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	must(ibv_destroy_wq(wq));
	must(ibv_destroy_wq(other));
}

/* What is posted is where mlx5dv says that it is */
static void posted(UNUSED void **state)
{
	struct ibv_wq *wq = a_wq(16, 2);
	struct mlx5dv_rwq d = dv_of(wq);
	static uint8_t buf[4096];
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, sizeof(buf), ALL_ACCESS);
	struct ibv_sge sg[3];
	struct ibv_recv_wr wr = { .sg_list = sg, .num_sge = 2 }, *bad;
	unsigned n = 0;

	assert_non_null(mr);
	assert_int_equal(d.wqe_cnt, 16);
	assert_int_equal(d.stride, 32);
	assert_int_equal(be32toh(d.dbrec[0]), 0);
	must(to_state(wq, IBV_WQS_RDY));
	for (unsigned i = 0; i < 3; i++)
		sg[i] = (struct ibv_sge){ .addr = (uintptr_t)buf + 100 * i, .length = 10 + i, .lkey = mr->lkey };
	while (n < 100 && !ibv_post_wq_recv(wq, &wr, &bad))
		n++;
	assert_int_equal(n, 16);
	assert_int_equal(be32toh(d.dbrec[0]), 16);
	for (unsigned i = 0; i < 16; i++) {
		struct mlx5_wqe_data_seg *s = (struct mlx5_wqe_data_seg *)((uint8_t *)d.buf + d.stride * i);

		for (unsigned j = 0; j < 2; j++) {
			assert_int_equal(be32toh(s[j].byte_count), 10 + j);
			assert_int_equal(be32toh(s[j].lkey), mr->lkey);
			assert_int_equal(be64toh(s[j].addr), (uintptr_t)buf + 100 * j);
		}
	}
	/* RESET and RDY empty it */
	must(to_state(wq, IBV_WQS_RESET));
	must(to_state(wq, IBV_WQS_RDY));
	assert_int_equal(be32toh(d.dbrec[0]), 0);
	wr.num_sge = 3;
	assert_int_equal(ibv_post_wq_recv(wq, &wr, &bad), EINVAL);
	wr.num_sge = 1;
	must(ibv_post_wq_recv(wq, &wr, &bad));
	assert_int_equal(be32toh(d.dbrec[0]), 1);
	must(ibv_destroy_wq(wq));
	must(ibv_dereg_mr(mr));
}

static void tables(UNUSED void **state)
{
	struct ibv_wq *wq[8], *twice[8];
	struct ibv_rwq_ind_table_init_attr init = { .log_ind_tbl_size = 3, .ind_tbl = wq };
	struct ibv_rwq_ind_table *t, *u;

	for (unsigned i = 0; i < ARRAY(wq); i++) {
		wq[i] = a_wq(8, 1);
		must(to_state(wq[i], IBV_WQS_RDY));
		twice[i] = wq[i & 1];
	}
	t = ibv_create_rwq_ind_table(ctx, &init);
	assert_non_null(t);
	init.ind_tbl = twice;
	u = ibv_create_rwq_ind_table(ctx, &init);
	assert_non_null(u);
	assert_int_not_equal(t->ind_tbl_num, u->ind_tbl_num);
	/* A WQ in a table cannot be destroyed */
	assert_int_equal(ibv_destroy_wq(wq[5]), EBUSY);
	must(ibv_destroy_rwq_ind_table(t));
	must(ibv_destroy_wq(wq[5]));
	assert_int_equal(ibv_destroy_wq(wq[1]), EBUSY);
	must(ibv_destroy_rwq_ind_table(u));
	for (unsigned i = 0; i < ARRAY(wq); i++)
		if (i != 5)
			must(ibv_destroy_wq(wq[i]));
}

static void refusals(UNUSED void **state)
{
	struct ibv_wq_init_attr good = { .wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = pd, .cq = cq }, a;
	struct ibv_device_attr_ex ex;

	must(ibv_query_device_ex(ctx, NULL, &ex));
	assert_true(ex.max_wq_type_rq > 0);
	a = good;
	a.max_wr = 1u << 20;
	assert_null(ibv_create_wq(ctx, &a));
	a = good;
	a.max_sge = 100;
	assert_null(ibv_create_wq(ctx, &a));
	a = good;
	a.wq_type = IBV_WQT_RQ + 1;
	assert_null(ibv_create_wq(ctx, &a));
}

/* Striding WQs: what the device says it takes is what it takes */
static void striding(UNUSED void **state)
{
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = pd, .cq = cq };
	struct mlx5dv_context caps = { .comp_mask = MLX5DV_CONTEXT_MASK_STRIDING_RQ };
	struct mlx5dv_striding_rq_caps *can = &caps.striding_rq_caps;
	struct mlx5dv_wq_init_attr dv = { .comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ };
	uint32_t size, strides;
	struct ibv_wq *wq;

	must(mlx5dv_query_device(ctx, &caps));
	if (!can->supported_qpts) {
		dv.striding_rq_attrs = (struct mlx5dv_striding_rq_init_attr){ 11, 9, 0 };
		assert_null(mlx5dv_create_wq(ctx, &init, &dv));
		return;
	}
	assert_int_equal(can->supported_qpts, 1 << IBV_QPT_RAW_PACKET);
	assert_true(can->min_single_stride_log_num_of_bytes < can->max_single_stride_log_num_of_bytes);
	assert_true(can->min_single_wqe_log_num_of_strides < can->max_single_wqe_log_num_of_strides);
	for (size = can->min_single_stride_log_num_of_bytes - 1; size <= can->max_single_stride_log_num_of_bytes + 1; size++)
		for (strides = can->min_single_wqe_log_num_of_strides - 1; strides <= can->max_single_wqe_log_num_of_strides + 1; strides++) {
			bool good = size >= can->min_single_stride_log_num_of_bytes && size <= can->max_single_stride_log_num_of_bytes &&
				    strides >= can->min_single_wqe_log_num_of_strides && strides <= can->max_single_wqe_log_num_of_strides;

			dv.striding_rq_attrs = (struct mlx5dv_striding_rq_init_attr){ size, strides, size & 1 };
			wq = mlx5dv_create_wq(ctx, &init, &dv);
			assert_int_equal(wq != NULL, good);
			if (!wq)
				continue;
			/* One data segment, and the next segment before it */
			assert_int_equal(dv_of(wq).stride, 32);
			must(to_state(wq, IBV_WQS_RDY));
			must(ibv_destroy_wq(wq));
		}
}

/* A context that is closed with everything still there */
static void abandoned(UNUSED void **state)
{
	struct ibv_context *c = ibv_open_device(list[0]);
	struct ibv_rwq_ind_table_init_attr ti = { .log_ind_tbl_size = 0 };
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1 };
	struct ibv_wq *wq;

	assert_non_null(c);
	init.pd = ibv_alloc_pd(c);
	init.cq = ibv_create_cq(c, 10, NULL, NULL, 0);
	wq = ibv_create_wq(c, &init);
	assert_non_null(wq);
	ti.ind_tbl = &wq;
	assert_non_null(ibv_create_rwq_ind_table(c, &ti));
	must(ibv_close_device(c));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(made_and_moved), TEST(posted), TEST(tables), TEST(refusals), TEST(striding), TEST(abandoned),
	};

	return cmocka_run_group_tests(tests, wq_setup, wq_teardown);
}
