/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rig_wq.h: for tests of receive queues for packets: a sender, a reader of CQ rings that takes
 * compressed blocks apart, and writers of receive WQEs.
 */
#ifndef SOFTDEV_TESTS_RIG_WQ_H
#define SOFTDEV_TESTS_RIG_WQ_H

#include "rig.h"
#include "packets.h"

#define TITLE 3u                  /* format of a title, or of an enhanced block */
#define MAX_BLOCK 64u
#define FILLER 0x80000000u

static const uint8_t here[6] = {2, 0, 0, 0, 0, 1}, there[6] = {2, 0, 0, 0, 0, 2};

/* ---- CQs ---- */

enum { MINI_HASH, MINI_CSUM, MINI_CSUM_STRIDX = 3, MINI_L34H_STRIDX };

struct reader {
	uint8_t *buf;
	uint32_t cnt, ci;
	volatile uint32_t *dbrec;
	unsigned format;          /* of mini CQEs */
	bool enhanced, strides;
	struct mlx5_cqe64 block[MAX_BLOCK], title;
	uint32_t n, at;           /* CQEs of the block, read of it */
	unsigned blocks, longest; /* what was seen */
};

UNUSED static void reader_open(struct reader *r, struct ibv_cq *cq, unsigned format, bool strides)
{
	struct mlx5dv_cq d;
	struct mlx5dv_obj obj;

	memset(r, 0, sizeof(*r));
	memset(&d, 0, sizeof(d));
	obj.cq.in = cq;
	obj.cq.out = &d;
	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ));
	assert_int_equal(d.cqe_size, 64);
	r->buf = d.buf;
	r->cnt = d.cqe_cnt;
	r->dbrec = (volatile uint32_t *)d.dbrec;
	r->format = format;
	r->strides = strides;
}

static struct mlx5_cqe64 *slot(struct reader *r, uint32_t i)
{
	return (struct mlx5_cqe64 *)(void *)(r->buf + 64 * (size_t)(i & (r->cnt - 1)));
}

static bool is_mine(struct reader *r)
{
	struct mlx5_cqe64 *c = slot(r, r->ci);
	uint8_t op_own = __atomic_load_n(&c->op_own, __ATOMIC_ACQUIRE);

	if (r->enhanced)
		return __atomic_load_n(&c->signature, __ATOMIC_ACQUIRE) == (uint8_t)(r->ci / r->cnt) && op_own >> 4 != MLX5_CQE_INVALID;
	return op_own >> 4 != MLX5_CQE_INVALID && (op_own & 1) == !!(r->ci & r->cnt);
}

static void put16(uint8_t *to, const uint8_t *from)
{
	memcpy(to, from, 2);
}

/* The title with what a mini CQE says */
static struct mlx5_cqe64 unpacked(struct reader *r, const uint8_t *mini, const struct mlx5_cqe64 *before, bool first)
{
	struct mlx5_cqe64 c = r->title;
	uint8_t *raw = (uint8_t *)&c;
	uint32_t step = r->strides ? be32toh(before->byte_cnt) >> 16 & 0x3fff : 1;

	c.op_own &= 0xf2;
	memcpy(raw + 44, mini + 4, 4);
	if (r->format == MINI_HASH)
		memcpy(raw + 12, mini, 4);
	else if (r->format == MINI_L34H_STRIDX)
		raw[29] = mini[0];
	else
		put16(raw + 20, mini);
	if (r->format >= MINI_CSUM_STRIDX)
		put16(raw + 60, mini + 2);
	else if (!first)
		c.wqe_counter = htobe16((uint16_t)(be16toh(before->wqe_counter) + step));
	return c;
}

static void block_read(struct reader *r, uint32_t n, bool basic)
{
	assert_in_range(n, 1, MAX_BLOCK);
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *mini = (uint8_t *)slot(r, r->ci + (basic ? i < 8 ? 1 : i & ~7u : 0)) + 8 * (i & 7);
		const struct mlx5_cqe64 *before = i ? &r->block[i - 1] : &r->title;

		r->block[i] = unpacked(r, mini, before, basic && !i);
	}
	/* The device wrote few of a basic block's slots: what lies in the others, and the minis, must not look like CQEs of the next lap */
	for (uint32_t i = 0; basic && i < n; i++)
		slot(r, r->ci + i)->op_own = MLX5_CQE_INVALID << 4;
	r->n = n;
	r->at = 0;
	r->ci += n;
	r->blocks++;
	if (n > r->longest)
		r->longest = n;
}

/* Is there one? Then it is taken */
UNUSED static bool cqe_poll(struct reader *r, struct mlx5_cqe64 *c)
{
	if (r->at == r->n) {
		if (!is_mine(r))
			return false;
		*c = *slot(r, r->ci);
		if (c->op_own >> 4 <= MLX5_CQE_RESP_SEND_INV && (c->op_own >> 2 & 3) == TITLE && !r->enhanced) {
			r->title = *c;
			block_read(r, be32toh(c->byte_cnt), true);
		} else if (r->enhanced && (c->op_own >> 2 & 3) == TITLE) {
			block_read(r, (c->op_own >> 4) + 1u, false);
		} else {
			r->title = *c;
			r->block[0] = *c;
			r->n = 1;
			r->at = 0;
			r->ci++;
		}
		/* The next slot must not be read before the record says that this one was */
		r->dbrec[0] = htobe32(r->ci & 0xffffff);
	}
	*c = r->block[r->at++];
	r->title = r->enhanced ? *c : r->title;
	return true;
}

UNUSED static struct mlx5_cqe64 cqe_next(struct reader *r)
{
	double end = now() + PATIENCE;
	struct mlx5_cqe64 c;

	while (!cqe_poll(r, &c))
		assert_true(now() < end);
	return c;
}

UNUSED static void no_cqe(struct reader *r)
{
	struct mlx5_cqe64 c;

	usleep(5000);
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
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	s->cq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	s->buf = calloc(1, PACKET_MAX);
	s->mr = ibv_reg_mr(pd, s->buf, PACKET_MAX, ALL_ACCESS);
	init.send_cq = init.recv_cq = s->cq;
	s->qp = ibv_create_qp(pd, &init);
	assert_true(s->cq && s->mr && s->qp);
	must(ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_PORT));
	a.qp_state = IBV_QPS_RTR;
	must(ibv_modify_qp(s->qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	must(ibv_modify_qp(s->qp, &a, IBV_QP_STATE));
}

UNUSED static void sender_close(struct sender *s)
{
	must(ibv_destroy_qp(s->qp));
	must(ibv_dereg_mr(s->mr));
	must(ibv_destroy_cq(s->cq));
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

/*
 * A striding ring of `of` buffers of 1 << log_size << log_count bytes, and packets of random lengths
 * through it: each lies in strides of one buffer, one behind the other; fillers take what is left;
 * buffers are posted again when their last stride is used up. Returns the number of fillers.
 */
UNUSED static unsigned stride_through(struct sender *tx, struct ring *r, struct reader *cq, unsigned log_size,
				      unsigned log_count, unsigned shift,
			       unsigned packets, bool counted, uint8_t *mem, uint32_t lkey)
{
	const uint32_t strides = 1u << log_count, bytes = strides << log_size, burst = 16;
	unsigned wqe = 0, used = 0, fillers = 0;
	static struct packet sent[16];

	while (r->pi < r->cnt)
		post_buffer(r, (uintptr_t)mem + (size_t)r->pi % r->cnt * bytes, bytes, lkey);
	for (unsigned i = 0; i < packets; i += burst) {
		for (unsigned k = 0; k < burst; k++) {
			unsigned most = bytes - shift < 1500 ? bytes - shift : 1500;

			plain_packet(60 + rnd() % (most - 59));
			memcpy(&sent[k], &p, sizeof(p) - sizeof(p.at) + p.len);
			send_packet(tx);
			/* Few buffers: what is sent must have been received */
			for (;;) {
				struct mlx5_cqe64 c = cqe_next(cq);
				const uint32_t byte_cnt = be32toh(c.byte_cnt), n = byte_cnt >> 16 & 0x3fff, len = byte_cnt & 0xffff;
				const uint32_t index = counted ? wqe & 0xffff : wqe % r->cnt;
				const bool filler = byte_cnt & FILLER;

				assert_int_equal(op_of(&c), MLX5_CQE_RESP_SEND);
				assert_int_equal(be16toh(c.wqe_id), index);
				assert_int_equal(be16toh(c.wqe_counter), used);
				if (filler) {
					/* No sooner than must be */
					assert_true(sent[k].len + shift > (strides - used) << log_size);
					assert_int_equal(used + n, strides);
					fillers++;
				} else {
					const uint8_t *at = mem + (size_t)wqe % r->cnt * bytes + (used << log_size) + shift;

					assert_int_equal(len, sent[k].len);
					assert_int_equal(n, (len + shift + (1u << log_size) - 1) >> log_size);
					assert_memory_equal(at, sent[k].at, len);
				}
				used += n;
				assert_true(used <= strides);
				if (used == strides) {
					post_buffer(r, (uintptr_t)mem + (size_t)wqe % r->cnt * bytes, bytes, lkey);
					used = 0;
					wqe++;
				}
				if (!filler)
					break;
			}
		}
	}
	return fillers;
}

#endif
