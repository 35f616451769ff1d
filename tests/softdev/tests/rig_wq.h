/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rig_wq.h: for tests of receive queues for packets: a sender, a reader of CQ rings, and writers of
 * receive WQEs.
 */
#ifndef SOFTDEV_TESTS_RIG_WQ_H
#define SOFTDEV_TESTS_RIG_WQ_H

#include "rig.h"
#include "packets.h"

static const uint8_t here[6] = {2, 0, 0, 0, 0, 1}, there[6] = {2, 0, 0, 0, 0, 2};

/* ---- CQs ---- */

struct reader {
	uint8_t *buf;
	uint32_t cnt, ci;
	volatile uint32_t *dbrec;
};

UNUSED static void reader_open(struct reader *r, struct ibv_cq *cq)
{
	struct mlx5dv_cq d = {};

	must(mlx5dv_init_obj(&(struct mlx5dv_obj){ .cq = { cq, &d } }, MLX5DV_OBJ_CQ));
	assert_int_equal(d.cqe_size, 64);
	*r = (struct reader){ .buf = d.buf, .cnt = d.cqe_cnt, .dbrec = (volatile uint32_t *)d.dbrec };
}

/* Is there one? Then it is taken */
UNUSED static bool cqe_poll(struct reader *r, struct mlx5_cqe64 *c)
{
	struct mlx5_cqe64 *at = (struct mlx5_cqe64 *)(void *)(r->buf + 64 * (size_t)(r->ci & (r->cnt - 1)));
	uint8_t op_own = __atomic_load_n(&at->op_own, __ATOMIC_ACQUIRE);

	if (op_own >> 4 == MLX5_CQE_INVALID || (op_own & 1) != !!(r->ci & r->cnt))
		return false;
	*c = *at;
	r->dbrec[0] = htobe32(++r->ci & 0xffffff);
	return true;
}

UNUSED static struct mlx5_cqe64 cqe_next(struct reader *r)
{
	struct mlx5_cqe64 c;

	until(cqe_poll(r, &c));
	return c;
}

/* What was sent has arrived or is lost when its sender is told, so there is nothing to wait for */
UNUSED static void no_cqe(struct reader *r)
{
	struct mlx5_cqe64 c;

	assert_false(cqe_poll(r, &c));
}

static uint8_t op_of(const struct mlx5_cqe64 *c)
{
	return c->op_own >> 4;
}

UNUSED static uint8_t syndrome_of(const struct mlx5_cqe64 *c)
{
	assert_int_equal(op_of(c), MLX5_CQE_RESP_ERR);
	return ((const struct mlx5_err_cqe *)(const void *)c)->syndrome;
}

UNUSED static uint32_t hash_of(const struct mlx5_cqe64 *c)
{
	uint32_t h;

	memcpy(&h, (const uint8_t *)c + 12, 4);
	return be32toh(h);
}

/* ---- the sender ---- */

struct sender {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;
};

static struct packet p;

UNUSED static void sender_open(struct sender *s)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET, .cap = { .max_send_wr = 64, .max_send_sge = 1 } };

	s->cq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	s->buf = calloc(1, PACKET_MAX);
	s->mr = ibv_reg_mr(pd, s->buf, PACKET_MAX, ALL_ACCESS);
	init.send_cq = init.recv_cq = s->cq;
	s->qp = ibv_create_qp(pd, &init);
	assert_true(s->cq && s->mr && s->qp);
	bring_up(s->qp, 0, &usual);
}

UNUSED static void sender_close(struct sender *s)
{
	must(ibv_destroy_qp(s->qp) || ibv_dereg_mr(s->mr) || ibv_destroy_cq(s->cq));
	free(s->buf);
}

/* p, which has arrived, or is lost, when this returns */
UNUSED static void send_packet(struct sender *s)
{
	struct ibv_sge sg = { (uintptr_t)s->buf, p.len, s->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 4, .sg_list = &sg, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM };
	struct ibv_send_wr *bad;

	memcpy(s->buf, p.at, p.len);
	must(ibv_post_send(s->qp, &wr, &bad));
	expect_op(s->cq, 4, IBV_WC_SEND);
}

/* A packet of that many bytes in all, of no protocol that is known */
UNUSED static void plain_packet(unsigned len)
{
	struct shape shape = { .payload = len - 14 };

	packet_make(&p, &shape, here, there);
	assert_int_equal(p.len, len);
}

/* ---- receive WQEs ---- */

struct ring {
	uint8_t *buf;
	uint32_t cnt, size, pi;
	volatile uint32_t *dbrec;
	uint32_t link;            /* bytes before the pointer */
};

/* One buffer in the next WQE */
UNUSED static void post_buffer(struct ring *r, uint64_t addr, uint32_t len, uint32_t lkey)
{
	uint8_t *wqe = r->buf + (size_t)(r->pi % r->cnt) * r->size;
	struct mlx5_wqe_data_seg d = { .byte_count = htobe32(len), .lkey = htobe32(lkey), .addr = htobe64(addr) }, end;

	memset(wqe, 0, r->size);
	if (r->link)
		((struct mlx5_wqe_srq_next_seg *)(void *)wqe)->next_wqe_index = htobe16((uint16_t)((r->pi + 1) % r->cnt));
	memcpy(wqe + r->link, &d, sizeof(d));
	if (r->link + 32 <= r->size) {
		end = (struct mlx5_wqe_data_seg){ .lkey = htobe32(0x100) };
		memcpy(wqe + r->link + 16, &end, sizeof(end));
	}
	__atomic_store_n(r->dbrec, htobe32(++r->pi & 0xffff), __ATOMIC_RELEASE);
}

#endif
