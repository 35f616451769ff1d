/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rig.h: what the programs of this room share: a pair of connected ends, receives, datagrams' addresses, how a program starts.
 */
#ifndef TESTS_QUEUE_RIG_H
#define TESTS_QUEUE_RIG_H

#include "common.h"

/* The usual ends, but of another type and with so many bytes of memory */
UNUSED static struct opt opt_of(enum ibv_qp_type type, size_t bytes)
{
	struct opt opt = usual;

	opt.type = type;
	opt.bytes = bytes;
	return opt;
}

struct pair { struct end a, b; };

UNUSED static void pair_make(struct pair *p, const struct opt *opt)
{
	ends_make(&p->a, &p->b, opt);
	end_take(&p->a, INLAY_UAR_DOORBELL);
	end_take(&p->b, INLAY_UAR_DOORBELL);
}

UNUSED static struct inlay_cq *rx_cq(struct end *e)
{
	return e->opt.one_cq ? &e->cq : &e->rxcq;
}

/* Nothing has come that nobody has looked at */
UNUSED static void pair_free(struct pair *p)
{
	expect_nothing(&p->a.cq);
	expect_nothing(rx_cq(&p->a));
	expect_nothing(&p->b.cq);
	expect_nothing(rx_cq(&p->b));
	end_free(&p->a);
	end_free(&p->b);
}

/* A queue that has stopped flushes what it is given */
UNUSED static void stopped_nop(struct end *e)
{
	const struct mlx5_cqe64 *cqe;

	must(inlay_post(&e->sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED | INLAY_RING));
	cqe = cqe_wait(&e->cq);
	assert_int_equal(inlay_cqe_status(cqe), IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(inlay_sq_release(&e->sq, cqe), 1);
	inlay_cq_advance(&e->cq, 1);
	assert_int_equal(inlay_sq_pending(&e->sq), 0);
}

UNUSED static void post_recv(struct end *e, size_t offset, size_t len)
{
	struct ibv_sge sge = sge_of(e, offset, len);

	must(inlay_post_recv(&e->rq, &sge, 1));
	inlay_rq_ring(&e->rq);
}

/* A good receive; its slot and WQE go back */
UNUSED static void received(struct end *e, uint8_t opcode, uint32_t len, uint32_t counter)
{
	const struct mlx5_cqe64 *cqe = cqe_wait(rx_cq(e));

	if (inlay_cqe_opcode(cqe) != opcode)
		inlay_cqe_print(stderr, cqe);
	assert_int_equal(inlay_cqe_opcode(cqe), opcode);
	assert_int_equal(inlay_cqe_byte_count(cqe), len);
	assert_int_equal(inlay_cqe_qpn(cqe), e->qp->qp_num);
	assert_int_equal(inlay_cqe_wqe_counter(cqe), counter & 0xffff);
	assert_int_equal(inlay_cqe_status(cqe), IBV_WC_SUCCESS);
	assert_false(inlay_cqe_is_send(cqe));
	assert_true(0 < inlay_rq_release(&e->rq, cqe));
	inlay_cq_advance(rx_cq(e), 1);
}

/* The vector outlives its handle */
UNUSED static struct inlay_av av_of(struct ibv_ah_attr *attr, uint32_t qpn, uint32_t qkey)
{
	struct ibv_ah *ah = made(ibv_create_ah(dev.pd, attr));
	struct inlay_av av;

	memset(&av, 0xee, sizeof(av));
	must(inlay_av_from_ah(&av, ah, qpn, qkey));
	must(ibv_destroy_ah(ah));
	return av;
}

UNUSED static struct inlay_av av_to(const struct end *e)
{
	struct ibv_ah_attr attr = own_path();

	return av_of(&attr, e->qp->qp_num, QKEY);
}

/* An XRC sender or its receiver, from RESET to RTS. psn: of both directions */
UNUSED static void xrc_connect(struct ibv_qp *qp, uint32_t dest, uint32_t psn)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .path_mtu = IBV_MTU_1024, .rq_psn = psn, .sq_psn = psn, .dest_qp_num = dest,
		.qp_access_flags = ALL_ACCESS, .ah_attr = own_path(), .max_rd_atomic = 8, .max_dest_rd_atomic = 8, .min_rnr_timer = 1,
		.port_num = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
	};

	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a.qp_state = IBV_QPS_RTR;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a.qp_state = IBV_QPS_RTS;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			   IBV_QP_MAX_QP_RD_ATOMIC));
}

UNUSED static struct ibv_xrcd *xrcd_open(void)
{
	struct ibv_xrcd_init_attr a = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT,
	};

	return made(ibv_open_xrcd(dev.ctx, &a));
}

/* A plain one, or of an XRC domain */
UNUSED static struct ibv_srq *srq_plain_or_xrc(uint32_t wr, struct ibv_xrcd *xrcd, struct ibv_cq *cq)
{
	struct ibv_srq_init_attr_ex a = {
		.attr = {.max_wr = wr, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | (xrcd ? IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ : 0u),
		.srq_type = xrcd ? IBV_SRQT_XRC : IBV_SRQT_BASIC, .pd = dev.pd, .xrcd = xrcd, .cq = cq,
	};

	return made(ibv_create_srq_ex(dev.ctx, &a));
}

/* A target with that SRQ and key, or without an SRQ an initiator */
UNUSED static struct ibv_qp *dc_make(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_srq *srq, uint64_t key, const struct ibv_qp_cap *cap)
{
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC, .dc_init_attr = {.dc_type = srq ? MLX5DV_DCTYPE_DCT : MLX5DV_DCTYPE_DCI},
	};
	struct ibv_qp_init_attr_ex a = {
		.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd,
	};

	if (srq)
		dv.dc_init_attr.dct_access_key = key;
	else
		a.cap = *cap;
	return made(mlx5dv_create_qp(dev.ctx, &a, &dv));
}

/* The receiver of a domain, or without a domain a sender */
UNUSED static struct ibv_qp *xrc_make(struct ibv_xrcd *xrcd, struct ibv_pd *pd, struct ibv_cq *cq, const struct ibv_qp_cap *cap)
{
	struct ibv_qp_init_attr_ex a = {
		.send_cq = cq, .qp_type = xrcd ? IBV_QPT_XRC_RECV : IBV_QPT_XRC_SEND,
		.comp_mask = xrcd ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD, .pd = pd, .xrcd = xrcd,
	};

	if (cap)
		a.cap = *cap;
	return made(ibv_create_qp_ex(dev.ctx, &a));
}

/* Group set-ups: the device, stepped if it is the software one; and no device at all */
UNUSED static int open_stepped(void **state)
{
	if (softdev_present() && softdev_manual(1))
		return -1;
	return dev_open(state);
}

UNUSED static int open_nothing(UNUSED void **state)
{
	rnd_seed();
	return 0;
}

#endif
