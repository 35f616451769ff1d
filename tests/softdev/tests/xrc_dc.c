/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xrc_dc.c: XRC domains, QPs and SRQs, DCIs and DCTs as libibverbs and libmlx5 make them: what is
 * refused, the states, what a domain is shared by, whose keys count, and failed streams
 */
#include "rig.h"

static struct ibv_cq *cq;

static struct ibv_xrcd *open_domain(struct ibv_context *c, int fd, int oflags)
{
	struct ibv_xrcd_init_attr init = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = oflags };

	return ibv_open_xrcd(c, &init);
}

static struct ibv_srq *xrc_srq(struct ibv_xrcd *xrcd, struct ibv_pd *of)
{
	struct ibv_srq_init_attr_ex init = { .attr = { .max_wr = 16, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC, .pd = of, .xrcd = xrcd, .cq = cq,
					     .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
							  IBV_SRQ_INIT_ATTR_CQ };

	return ibv_create_srq_ex(of->context, &init);
}

static struct ibv_qp *xrc_recv(struct ibv_xrcd *xrcd)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd };

	return ibv_create_qp_ex(xrcd->context, &init);
}

static struct ibv_qp *dc_qp(enum mlx5dv_dc_type type, struct ibv_srq *srq, unsigned log_streams, unsigned recv_wr)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_DRIVER, .send_cq = cq, .recv_cq = cq, .srq = srq,
					    .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd };
	struct mlx5dv_qp_init_attr dv = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC, .dc_init_attr = { .dc_type = type } };

	if (type == MLX5DV_DCTYPE_DCT) {
		dv.dc_init_attr.dct_access_key = 7;
	} else {
		init.cap = (struct ibv_qp_cap){ 16, recv_wr, 2, recv_wr, 64 };
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		init.send_ops_flags = IBV_QP_EX_WITH_SEND;
	}
	if (log_streams) {
		dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
		dv.dc_init_attr.dci_streams.log_num_concurent = dv.dc_init_attr.dci_streams.log_num_errored = log_streams;
	}
	return mlx5dv_create_qp(ctx, &init, &dv);
}

static void open_cq(void)
{
	cq = made(ibv_create_cq(ctx, 63, NULL, NULL, 0));
}

/* A domain that has a file is the same to all that open it with that file, and goes with the last of them */
TEST(domains)
{
	struct ibv_context *other = ibv_open_device(ctx->device);
	struct ibv_pd *other_pd = ibv_alloc_pd(other);
	struct ibv_xrcd *a, *b, *c;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	FILE *file = tmpfile();

	open_cq();
	assert_non_null(file);
	must_refuse(open_domain(ctx, fileno(file), 0), EAGAIN);
	must_refuse(open_domain(ctx, 1000000, O_CREAT), EBADF);
	a = open_domain(ctx, fileno(file), O_CREAT);
	b = open_domain(other, fileno(file), 0);
	c = open_domain(ctx, -1, O_CREAT);
	assert_true(a && b && c);
	must_refuse(open_domain(other, fileno(file), O_CREAT | O_EXCL), EINVAL);
	srq = xrc_srq(a, pd);
	qp = xrc_recv(b);
	assert_true(srq && qp);
	must(ibv_close_xrcd(c));
	/* Its other user keeps it for the one; for the other it is the last */
	must(ibv_close_xrcd(a));
	assert_int_equal(ibv_close_xrcd(b), EBUSY);
	must(ibv_destroy_srq(srq));
	assert_int_equal(ibv_close_xrcd(b), EBUSY);
	must(ibv_destroy_qp(qp) || ibv_close_xrcd(b) || ibv_dealloc_pd(other_pd) || ibv_close_device(other));
	must(ibv_destroy_cq(cq));
	fclose(file);
}

TEST(refusals)
{
	enum { STATE = IBV_QP_STATE, UP = STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT };
	static const struct {
		enum mlx5dv_dc_type type;
		enum ibv_qp_state to;
		int mask, err;
	} steps[] = {
		/* INIT, RTR with all of it, and then nothing */
		{ MLX5DV_DCTYPE_DCT, IBV_QPS_INIT, UP, EINVAL }, { MLX5DV_DCTYPE_DCT, IBV_QPS_INIT, INIT_MASK, 0 },
		{ MLX5DV_DCTYPE_DCT, IBV_QPS_RTR, RTR_MASK, EINVAL },
		{ MLX5DV_DCTYPE_DCT, IBV_QPS_RTR, STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER, 0 },
		{ MLX5DV_DCTYPE_DCT, IBV_QPS_ERR, STATE, EINVAL },
		/* No peer, and says no rights */
		{ MLX5DV_DCTYPE_DCI, IBV_QPS_INIT, INIT_MASK, EINVAL }, { MLX5DV_DCTYPE_DCI, IBV_QPS_INIT, UP, 0 },
		{ MLX5DV_DCTYPE_DCI, IBV_QPS_RTR, STATE | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN, EINVAL },
		{ MLX5DV_DCTYPE_DCI, IBV_QPS_RTR, STATE, EINVAL }, { MLX5DV_DCTYPE_DCI, IBV_QPS_RTR, STATE | IBV_QP_PATH_MTU, 0 },
	};
	struct ibv_srq_init_attr basic = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_xrcd *xrcd = open_domain(ctx, -1, O_CREAT);
	struct ibv_srq *srq, *plain = ibv_create_srq(pd, &basic);
	struct ibv_qp_init_attr rc = { .qp_type = IBV_QPT_RC, .cap = { 4, 0, 1, 0, 0 } }, init;
	struct mlx5dv_context caps = { .comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS };
	struct ibv_qp_attr attr;
	struct ibv_qp *qp[2];

	open_cq();
	srq = xrc_srq(xrcd, pd);
	assert_true(plain && srq);
	/* An XRC SRQ is for XRC alone, and a DCT has an SRQ */
	rc.send_cq = rc.recv_cq = cq;
	rc.srq = srq;
	assert_null(ibv_create_qp(pd, &rc));
	assert_null(dc_qp(MLX5DV_DCTYPE_DCT, srq, 0, 0));
	must_refuse(dc_qp(MLX5DV_DCTYPE_DCT, NULL, 0, 0), EINVAL);
	must_refuse(dc_qp(MLX5DV_DCTYPE_DCI, NULL, 0, 4), EINVAL);
	must(mlx5dv_query_device(ctx, &caps));
	assert_true(caps.dci_streams_caps.max_log_num_concurent > 1 && caps.dci_streams_caps.max_log_num_errored > 1);
	assert_null(dc_qp(MLX5DV_DCTYPE_DCI, NULL, caps.dci_streams_caps.max_log_num_errored + 1u, 0));
	qp[0] = dc_qp(MLX5DV_DCTYPE_DCT, plain, 0, 0);
	qp[1] = dc_qp(MLX5DV_DCTYPE_DCI, NULL, caps.dci_streams_caps.max_log_num_errored, 0);
	assert_true(qp[0] && qp[1]);
	assert_int_equal(ibv_query_qp(qp[0], &attr, IBV_QP_STATE, &init), EINVAL);
	for (unsigned i = 0; i < ARRAY(steps); i++) {
		attr = attr_for(steps[i].to, 0, &usual);
		assert_int_equal(ibv_modify_qp(qp[steps[i].type == MLX5DV_DCTYPE_DCI], &attr, steps[i].mask), steps[i].err);
	}
	/* In RTR a DCT has its number, and no room */
	assert_int_not_equal(qp[0]->qp_num, 0);
	must(ibv_query_qp(qp[0], &attr, IBV_QP_STATE, &init));
	assert_int_equal(attr.qp_state, IBV_QPS_RTR);
	assert_int_equal(ibv_query_qp(qp[0], &attr, IBV_QP_CAP, &init), EINVAL);
	must(ibv_destroy_qp(qp[0]) || ibv_destroy_qp(qp[1]) || ibv_destroy_srq(plain) || ibv_destroy_srq(srq));
	must(ibv_close_xrcd(xrcd) || ibv_destroy_cq(cq));
}

static struct ibv_qp *from, *to;
static uint8_t *buf;

/* A message or a write, of 8 bytes, to an SRQ */
static enum ibv_wc_status to_srq(enum ibv_wr_opcode op, uint32_t srqn, uint32_t lkey, uint32_t rkey)
{
	struct ibv_sge one = { (uintptr_t)buf, 8, lkey };
	struct ibv_send_wr w = { .wr_id = 5, .sg_list = &one, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = { (uintptr_t)buf + 64, rkey }, .qp_type.xrc.remote_srqn = srqn }, *bad;

	must(ibv_post_send(from, &w, &bad));
	return next_wc(cq).status;
}

/* All attributes of an RC QP may be given to either end */
static void connect_xrc(struct ibv_xrcd *xrcd)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_SEND, .send_cq = cq, .cap = { 16, 0, 2, 0, 64 },
					    .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd };

	from = ibv_create_qp_ex(ctx, &init);
	to = xrc_recv(xrcd);
	assert_true(from && to);
	bring_up(to, from->qp_num, &usual);
	bring_up(from, to->qp_num, &usual);
}

/* The PD that counts is that of the SRQ which a request names */
TEST(keys)
{
	struct ibv_xrcd *xrcd = open_domain(ctx, -1, O_CREAT), *apart = open_domain(ctx, -1, O_CREAT);
	struct ibv_pd *pds[2] = { pd, ibv_alloc_pd(ctx) };
	struct ibv_srq *srq[2], *far;
	struct ibv_mr *mr[2];
	uint32_t n[2], nfar;
	uint8_t mem[4096] __attribute__((aligned(64)));
	int i, j, k;

	open_cq();
	far = xrc_srq(apart, pd);
	must(ibv_get_srq_num(far, &nfar));
	buf = mem;
	for (i = 0; i < 2; i++) {
		srq[i] = xrc_srq(xrcd, pds[i]);
		mr[i] = ibv_reg_mr(pds[i], mem, sizeof(mem), ALL_ACCESS);
		assert_true(srq[i] && mr[i]);
		must(ibv_get_srq_num(srq[i], &n[i]));
	}
	for (i = 0; i < 2; i++)
		for (j = 0; j < 2; j++) {
			struct ibv_sge one = { (uintptr_t)mem + 512, 64, mr[i]->lkey };
			struct ibv_recv_wr r = { .wr_id = 9, .sg_list = &one, .num_sge = 1 }, *bad;
			struct ibv_send_wr w = { .wr_id = 5, .opcode = IBV_WR_SEND, .send_flags = 0, .qp_type.xrc.remote_srqn = n[i] }, *bad_send;

			k = j ? i : !i;
			connect_xrc(xrcd);
			assert_int_equal(to_srq(IBV_WR_RDMA_WRITE, n[i], mr[0]->lkey, mr[k]->rkey), i == k ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
			if (i == k) {
				must(ibv_post_srq_recv(srq[i], &r, &bad));
				must(ibv_post_send(from, &w, &bad_send));
				wc = next_wc(cq);
				assert_true(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.wr_id == 9 && wc.qp_num == to->qp_num);
				assert_int_equal(to_srq(IBV_WR_RDMA_READ, n[i], mr[0]->lkey, mr[i]->rkey), IBV_WC_SUCCESS);
				/* One that is gone, while the QP has it still; one of another domain */
				must(ibv_destroy_srq(srq[i]));
				assert_int_equal(to_srq(IBV_WR_SEND, i ? nfar : n[i], mr[0]->lkey, 0), IBV_WC_REM_INV_REQ_ERR);
			}
			must(ibv_destroy_qp(from) || ibv_destroy_qp(to));
		}
	for (i = 0; i < 2; i++)
		must(ibv_dereg_mr(mr[i]));
	must(ibv_destroy_srq(far) || ibv_close_xrcd(apart));
	must(ibv_dealloc_pd(pds[1]) || ibv_close_xrcd(xrcd) || ibv_destroy_cq(cq));
}

static struct ibv_qp_ex *dci_up(struct ibv_qp *qp, struct ibv_ah **ah)
{
	struct ibv_qp_attr attr = attr_for(IBV_QPS_INIT, 0, &usual);

	*ah = ibv_create_ah(pd, &attr.ah_attr);
	assert_true(*ah && qp);
	must(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT));
	attr.qp_state = IBV_QPS_RTR;
	must(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU));
	attr.qp_state = IBV_QPS_RTS;
	must(ibv_modify_qp(qp, &attr, RTS_MASK));
	return ibv_qp_to_qp_ex(qp);
}

/* With a target its completions go, and its SRQ has room for as many again */
TEST(gone_target)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 3, .max_sge = 1 } };
	struct ibv_qp_attr attr = attr_for(IBV_QPS_INIT, 0, &usual);
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	volatile uint64_t mem[8] = { 0 };
	struct ibv_mr *mr = ibv_reg_mr(pd, (void *)mem, sizeof(mem), ALL_ACCESS);
	struct ibv_sge one = { (uintptr_t)mem, 8, 0 };
	struct ibv_recv_wr r = { .wr_id = 9, .sg_list = &one, .num_sge = 1 }, *bad;
	struct ibv_qp *dct, *dci;
	struct ibv_qp_ex *ex;
	struct ibv_ah *ah;

	open_cq();
	assert_true(srq && mr);
	dct = dc_qp(MLX5DV_DCTYPE_DCT, srq, 0, 0);
	dci = dc_qp(MLX5DV_DCTYPE_DCI, NULL, 0, 0);
	one.lkey = mr->lkey;
	must(ibv_modify_qp(dct, &attr, INIT_MASK));
	attr.qp_state = IBV_QPS_RTR;
	must(ibv_modify_qp(dct, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER));
	ex = dci_up(dci, &ah);
	while (!ibv_post_srq_recv(srq, &r, &bad))
		;
	for (uint64_t text = 1; text < 3; text++) {
		ibv_wr_start(ex);
		ex->wr_flags = 0;
		ibv_wr_send(ex);
		mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(ex), ah, dct->qp_num, 7);
		ibv_wr_set_inline_data(ex, &text, 8);
		must(ibv_wr_complete(ex));
		until(mem[0] == text);
	}
	must(ibv_destroy_qp(dct));
	expect_nothing(cq);
	must(ibv_post_srq_recv(srq, &r, &bad) || ibv_post_srq_recv(srq, &r, &bad));
	assert_int_not_equal(ibv_post_srq_recv(srq, &r, &bad), 0);
	must(ibv_destroy_qp(dci) || ibv_destroy_ah(ah) || ibv_destroy_srq(srq) || ibv_destroy_cq(cq) || ibv_dereg_mr(mr));
}

/* A failed stream is flushed until it is reset, and others work; the fourth of four stops the DCI */
TEST(failed_streams)
{
	static const struct {
		uint16_t reset, stream;
		enum ibv_wc_status status;
	} t[] = { { 0, 5, IBV_WC_LOC_PROT_ERR }, { 0, 5, IBV_WC_WR_FLUSH_ERR }, { 0, 6, IBV_WC_LOC_PROT_ERR }, { 5, 5, IBV_WC_LOC_PROT_ERR },
		  { 0, 6, IBV_WC_WR_FLUSH_ERR }, { 0, 8, IBV_WC_LOC_PROT_ERR }, { 0, 9, IBV_WC_LOC_PROT_ERR } };
	struct ibv_ah *ah;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;

	open_cq();
	qp = dc_qp(MLX5DV_DCTYPE_DCI, NULL, 2, 0);
	ex = dci_up(qp, &ah);
	for (size_t i = 0; i < ARRAY(t); i++) {
		if (t[i].reset)
			must(mlx5dv_dci_stream_id_reset(qp, t[i].reset));
		/* Only what has failed may be reset */
		assert_true(mlx5dv_dci_stream_id_reset(qp, 7));
		assert_int_equal(state_of(qp), IBV_QPS_RTS);
		ibv_wr_start(ex);
		ex->wr_id = i;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send(ex);
		mlx5dv_wr_set_dc_addr_stream(mlx5dv_qp_ex_from_ibv_qp_ex(ex), ah, 1, 7, t[i].stream);
		ibv_wr_set_sge(ex, 1, (uintptr_t)buf, 8);
		must(ibv_wr_complete(ex));
		expect(cq, i, t[i].status);
	}
	assert_int_equal(state_of(qp), IBV_QPS_ERR);
	must(ibv_destroy_qp(qp) || ibv_destroy_ah(ah) || ibv_destroy_cq(cq));
}

int main(void)
{
	return run_all(setup, teardown);
}
