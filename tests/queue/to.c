/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * to.c: DCIs and XRC send QPs of verbs, taken over: messages to DC targets and XRC receive QPs whose shared receive queue is inlay's too,
 * by posts that storm.c does not make; what the queues are. On InfiniBand also with compact address vectors.
 */
#include "rig.h"
#include <inlay/connect.h>

#define KEY 0x1122334455667788
#define PEERS 3
#define ENTRIES 63

struct peer {
	struct ibv_qp *qp;            /* DCT; XRC: receive QP, which is connected */
	struct ibv_srq *ibsrq;
	struct ibv_cq *ibcq;
	struct inlay_srq srq;
	struct inlay_cq cq;
	uint32_t number;              /* DCTN, SRQN */
	struct inlay_av av;
};

static struct net {
	bool dc;
	struct ibv_xrcd *xrcd;
	struct peer peer[PEERS];
	struct end e;                 /* the sender: qp, scq, buf, mr, uar, sq, cq */
} net;

static struct ibv_qp_init_attr_ex sender_attr(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr_ex a = {
		.send_cq = cq, .recv_cq = net.dc ? cq : NULL,
		.cap = {.max_send_wr = 32, .max_send_sge = 3, .max_inline_data = 200},
		.qp_type = net.dc ? IBV_QPT_DRIVER : IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = dev.pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};

	return a;
}

static struct ibv_qp *sender_make(struct ibv_qp_init_attr_ex *a)
{
	struct mlx5dv_qp_init_attr dv = {.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC, .dc_init_attr = {.dc_type = MLX5DV_DCTYPE_DCI}};

	return net.dc ? mlx5dv_create_qp(dev.ctx, a, &dv) : ibv_create_qp_ex(dev.ctx, a);
}

/* A DC queue pair */
static void bring_up(struct ibv_qp *qp, int target)
{
	struct inlay_connect_attr attr = inlay_connect_defaults();
	const char *why = "";

	attr.access |= IBV_ACCESS_REMOTE_ATOMIC;
	if (inlay_connect_dc(NULL, qp, target, &attr, &why))
		fail_msg("%s", why);
}

static void peer_open(struct peer *p, unsigned i)
{
	struct ibv_ah_attr path = own_path();
	struct ibv_ah *ah;

	memset(p, 0, sizeof(*p));
	p->ibcq = cq_make(&usual);
	must(inlay_cq_from_cq(&p->cq, p->ibcq, NULL));
	p->ibsrq = srq_plain_or_xrc(ENTRIES, net.xrcd, p->ibcq);
	must(inlay_srq_from_srq(&p->srq, p->ibsrq, &p->cq, NULL));
	if (!net.dc) {
		must(inlay_srqn_from_srq(&p->number, p->ibsrq));
		inlay_av_init_xrc(&p->av, p->number);
		return;
	}
	p->qp = dc_make(dev.pd, p->ibcq, p->ibsrq, KEY + i, NULL);
	bring_up(p->qp, 1);
	p->number = p->qp->qp_num;
	ah = made(ibv_create_ah(dev.pd, &path));
	must(inlay_av_from_ah(&p->av, ah, p->number, 0));
	inlay_av_to_dct(&p->av, p->number, KEY + i);
	must(ibv_destroy_ah(ah));
}

static void net_open(bool dc)
{
	struct ibv_qp_init_attr_ex a;

	memset(&net, 0, sizeof(net));
	net.dc = dc;
	net.xrcd = dc ? NULL : xrcd_open();
	for (unsigned i = 0; i < PEERS; i++)
		peer_open(&net.peer[i], i);
	must(inlay_uar_create(&net.e.uar, dev.pd, INLAY_UAR_SERIAL, NULL));
	net.e.scq = cq_make(&usual);
	must(inlay_cq_from_cq(&net.e.cq, net.e.scq, NULL));
	a = sender_attr(net.e.scq);
	a.pd = net.e.uar.pd;
	net.e.qp = made(sender_make(&a));
	must(inlay_sq_from_qp(&net.e.sq, net.e.qp, &net.e.uar, &net.e.cq, NULL));
	if (!dc) {
		net.peer[0].qp = xrc_make(net.xrcd, NULL, NULL, NULL);
		xrc_connect(net.peer[0].qp, net.e.qp->qp_num, 0);
		net.peer[1].qp = net.peer[2].qp = net.peer[0].qp;
		xrc_connect(net.e.qp, net.peer[0].qp->qp_num, 0);
	} else {
		bring_up(net.e.qp, 0);
	}
	net.e.buf = (uint8_t *)pages(65536);
	net.e.mr = made(ibv_reg_mr(dev.pd, net.e.buf, 65536, ALL_ACCESS));
}

static void net_close(void)
{
	expect_nothing(&net.e.cq);
	must(ibv_destroy_qp(net.e.qp));
	inlay_sq_fini(&net.e.sq);
	must(inlay_uar_destroy(&net.e.uar, NULL));
	must(ibv_destroy_cq(net.e.scq));
	if (!net.dc)
		must(ibv_destroy_qp(net.peer[0].qp));
	for (unsigned i = 0; i < PEERS; i++) {
		struct peer *p = &net.peer[i];

		expect_nothing(&p->cq);
		if (net.dc)
			must(ibv_destroy_qp(p->qp));
		inlay_srq_fini(&p->srq);
		must(ibv_destroy_srq(p->ibsrq));
		must(ibv_destroy_cq(p->ibcq));
	}
	if (net.xrcd)
		must(ibv_close_xrcd(net.xrcd));
	must(ibv_dereg_mr(net.e.mr));
	free(net.e.buf);
}

/* A receive of peer i: its entry at place 32768 + 1024 * i of the buffer */
static void give(unsigned i)
{
	struct ibv_sge sge = sge_of(&net.e, 32768 + 1024 * i, 1024);

	must(inlay_post_srq_recv(&net.peer[i].srq, &sge, 1, i));
	inlay_srq_ring(&net.peer[i].srq);
}

static void got(unsigned i, uint8_t opcode, uint32_t len, uint32_t imm)
{
	struct peer *p = &net.peer[i];
	const struct mlx5_cqe64 *cqe = cqe_wait(&p->cq);
	uint32_t index;

	/* Whose it is: of XRC, the SRQ's */
	must(net.dc ? inlay_qp_user_index(p->qp, &index, NULL) : inlay_srq_user_index(p->ibsrq, &index, NULL));
	assert_int_equal(inlay_cqe_user_index(cqe), index);
	assert_int_equal(inlay_cqe_opcode(cqe), opcode);
	assert_int_equal(inlay_cqe_byte_count(cqe), len);
	assert_int_equal(inlay_cqe_qpn(cqe), p->qp->qp_num);
	if (imm)
		assert_int_equal(inlay_cqe_imm_be(cqe), imm);
	assert_int_equal(inlay_srq_user(&p->srq, inlay_cqe_wqe_counter(cqe)), i);
	must(inlay_srq_release(&p->srq, cqe));
	inlay_cq_advance(&p->cq, 1);
}

/* One that is not polled, but taken away by what it is known by: its buffer goes back */
static void cleaned(unsigned i)
{
	struct peer *p = &net.peer[i];
	uint32_t index = inlay_cqe_user_index(cqe_wait(&p->cq)), pi = p->srq.pi;

	assert_int_equal(inlay_cq_clean_index(&p->cq, index ^ 1, inlay_srq_gone, &p->srq), 0);
	assert_int_equal(inlay_cq_clean_index(&p->cq, index, inlay_srq_gone, &p->srq), 1);
	assert_null(inlay_cq_peek(&p->cq));
	assert_int_equal(p->srq.pi, pi + 1);
}

/* To each peer; what arrives is what was sent. Operations of all kinds: storm.c */
static void messages(void)
{
	const uint32_t sig = INLAY_SIGNALED | INLAY_RING;
	struct remote there = {raddr_of(&net.e, 16384), net.e.mr->rkey};
	const struct inlay_av *to;
	const uint8_t *came;
	struct ibv_sge sge;
	uint32_t i, n;

	for (n = 0; n < 4 * PEERS; n++) {
		i = n % PEERS;
		to = &net.peer[i].av;
		came = net.e.buf + 32768 + 1024 * i;
		fill(net.e.buf, 1024, n);
		sge = sge_of(&net.e, 0, 100 + n);
		give(i);
		must(wr_post(&net.e.sq, MLX5_OPCODE_SEND, wr_to(wr_sge(&sge, 1), to), sig));
		sent(&net.e);
		if (n % 2)
			got(i, MLX5_CQE_RESP_SEND, 100 + n, 0);
		else
			cleaned(i);
		assert_memory_equal(came, net.e.buf, 100 + n);
		give(i);
		must(wr_post(&net.e.sq, MLX5_OPCODE_SEND, wr_to(wr_buf(net.e.buf + 7, 8, 0), to), sig | INLAY_INLINE));
		sent(&net.e);
		got(i, MLX5_CQE_RESP_SEND, 8, 0);
		assert_memory_equal(came, net.e.buf + 7, 8);
		must(wr_post(&net.e.sq, MLX5_OPCODE_RDMA_WRITE, wr_there(wr_to(wr_buf(net.e.buf + 9, 120 + n, 0), to), &there),
			     INLAY_INLINE));
		give(i);
		must(wr_post(&net.e.sq, MLX5_OPCODE_RDMA_WRITE_IMM, wr_imm(wr_there(wr_to(wr_sge(&sge, 0), to), &there), htobe32(n + 1)),
			     sig));
		sent(&net.e);
		got(i, MLX5_CQE_RESP_WR_IMM, 0, htobe32(n + 1));
		assert_memory_equal(net.e.buf + 16384, net.e.buf + 9, 120 + n);
	}
	assert_int_equal(inlay_sq_pending(&net.e.sq), 0);
}

/* The target that was reached last, at an address of nobody's */
static void elsewhere(void)
{
	struct inlay_av to = net.peer[PEERS - 1].av;
	const struct mlx5_cqe64 *cqe;

	to.av.rmac[5] ^= 1;
	to.av.rlid ^= 1;
	must(wr_post(&net.e.sq, MLX5_OPCODE_SEND, wr_to(wr_buf(net.e.buf, 8, 0), &to), INLAY_SIGNALED | INLAY_RING | INLAY_INLINE));
	cqe = cqe_wait(&net.e.cq);
	assert_int_equal(inlay_cqe_status(cqe), IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(inlay_sq_release(&net.e.sq, cqe), 2);
	inlay_cq_advance(&net.e.cq, 1);
}

TEST(end_to_end)
{
	for (unsigned dc = 0; dc < 2; dc++) {
		net_open(dc);
		messages();
		if (dc && !getenv("SOFTDEV_TRAP"))
			elsewhere();
		net_close();
	}
}

/* What is no send queue of its own, sizes, and types */
TEST(take_over)
{
	static const struct ibv_qp_cap caps[] = {{.max_send_wr = 1, .max_send_sge = 1, .max_inline_data = 8}, {.max_send_wr = 20, .max_send_sge = 5},
						 {.max_send_wr = 33, .max_send_sge = 2, .max_inline_data = 300}};
	struct remote there = {0x1000, 5};
	struct ibv_sge sge = {0x1000, 8, 5};
	struct ibv_qp_attr attr;
	struct inlay_uar uar;
	struct inlay_sq sq;
	struct inlay_rq rq;
	const char *why;
	unsigned dc, i, in, ds;

	for (dc = 0; dc < 2; dc++) {
		net_open(dc);
		assert_int_equal(inlay_uar_from_qp(&uar, net.peer[0].qp, &why), dc ? -EINVAL : -ENOTSUP);
		assert_int_equal(inlay_rq_from_qp(&rq, net.peer[0].qp, NULL, &why), dc ? -EINVAL : -ENOTSUP);
		assert_int_equal(inlay_rq_from_qp(&rq, net.e.qp, NULL, &why), -EINVAL);
		must(inlay_uar_from_qp(&uar, net.e.qp, NULL));
		assert_int_equal(inlay_sq_type(&net.e.sq), dc ? IBV_QPT_DRIVER : IBV_QPT_XRC_SEND);
		for (i = 0; i < ARRAY(caps); i++) {
			struct ibv_qp_init_attr_ex a = sender_attr(net.e.scq);
			struct ibv_qp_init_attr plain;
			struct ibv_qp *qp;

			a.cap = caps[i];
			if (!dc)
				a.comp_mask = IBV_QP_INIT_ATTR_PD;
			else
				a.send_ops_flags |= IBV_QP_EX_WITH_BIND_MW;
			memcpy(&plain, &a, sizeof(plain));
			plain.cap = caps[i];
			qp = made(sender_make(&a));
			assert_int_equal(inlay_send_cqes(&plain), view_qp(qp).sq.wqe_cnt);
			/* The longest atomic fits, whatever the QP was asked for */
			must(inlay_uar_from_qp(&uar, qp, NULL));
			must(inlay_sq_from_qp(&sq, qp, &uar, NULL, NULL));
			must(ibv_query_qp(qp, &attr, IBV_QP_CAP, &plain));
			in = (plain.cap.max_inline_data + 4 + 15) / 16;
			ds = plain.cap.max_send_sge > 2 ? plain.cap.max_send_sge : 2; /* masks and an SGE */
			assert_int_equal(sq.max_ds, (dc ? 6 : 4) + (in > ds ? in : ds));
			inlay_sq_set_atomics(&sq, 8);
			must(wr_atomic(&sq, inlay_masked_swap(1, 3), wr_there(wr_to(wr_sge(&sge, 1), &net.peer[0].av), &there), 0));
			inlay_sq_fini(&sq);
			must(ibv_destroy_qp(qp));
		}
		net_close();
	}
}

int main(void)
{
	return run_all(dev_open, dev_close) ||
	       again_with("SOFTDEV_MANUAL", "1") || again_with("SOFTDEV_LINK", "ib") || again_trapped();
}
