/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * uc.c: unreliable connections: sends, writes and immediates of every length, messages that are lost, what stops the sender; and payload
 * that the device leaves in the CQE, on every type of QP.
 */
#include "rig.h"
#include <endian.h>

static struct opt unreliable(void)
{
	struct opt opt = opt_of(IBV_QPT_UC, 1 << 19);

	opt.qp_access = IBV_ACCESS_REMOTE_WRITE;
	return opt;
}

/* Index of the oldest receive */
static uint32_t oldest(const struct end *e)
{
	return e->rq.pi - inlay_rq_pending(&e->rq);
}

enum op { SEND, SEND_IMM, WRITE, WRITE_IMM, OPS };

/* One message of len bytes in num pieces to `there`; whether it is received tells its CQE, and else the bytes */
static void one(struct pair *p, enum op op, uint32_t len, uint32_t num, uint32_t flags)
{
	static const uint8_t cqes[OPS] = {MLX5_CQE_RESP_SEND, MLX5_CQE_RESP_SEND_IMM, 0, MLX5_CQE_RESP_WR_IMM};
	static const uint8_t opcodes[OPS] = {MLX5_OPCODE_SEND, MLX5_OPCODE_SEND_IMM, MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE_IMM};
	const uint64_t raddr = raddr_of(&p->b, 0x20003);
	uint32_t imm = (uint32_t)rnd(), i, at, index = p->a.sq.pi;
	uint8_t *there = p->b.buf + 0x20003;
	const struct mlx5_cqe64 *cqe;
	struct ibv_sge sge[8];
	int ret;

	fill(p->a.buf + 0x1001, len, imm);
	for (i = at = 0; i < num; i++) {
		uint32_t part = i + 1 == num ? len - at : rnd_below(len - at + 1);

		sge[i] = sge_of(&p->a, 0x1001 + at, part);
		at += part;
	}
	memset(there - 16, 0x22, len + 32);
	if (op != WRITE)
		post_recv(&p->b, 0x20003, op == WRITE_IMM ? 0 : len);
	ret = op == SEND ? inlay_post_send(&p->a.sq, sge, num, flags) :
	      op == SEND_IMM ? inlay_post_send_imm(&p->a.sq, htobe32(imm), sge, num, flags) :
	      op == WRITE ? inlay_post_write(&p->a.sq, raddr, p->b.mr->rkey, sge, num, flags) :
			    inlay_post_write_imm(&p->a.sq, raddr, p->b.mr->rkey, htobe32(imm), sge, num, flags);
	must(ret);
	inlay_sq_ring(&p->a.sq);
	cqe = cqe_wait(&p->a.cq);
	assert_int_equal(inlay_cqe_send_opcode(cqe), opcodes[op]);
	assert_int_equal(inlay_cqe_wqe_counter(cqe), index & 0xffff);
	sent(&p->a);
	assert_int_equal(inlay_sq_pending(&p->a.sq), 0);
	if (op != WRITE) {
		cqe = cqe_wait(&p->b.rxcq);
		if (op != SEND)
			assert_int_equal(inlay_cqe_imm_be(cqe), htobe32(imm));
		assert_int_equal(!!(cqe->op_own & INLAY_CQE_SOLICITED), !!(flags & INLAY_SOLICITED));
		received(&p->b, cqes[op], len, oldest(&p->b));
	} else {
		/* Done here does not mean arrived there: the last byte tells */
		const volatile uint8_t *last = there + len - 1;
		double end = now() + DEADLINE;

		if (len && p->a.buf[0x1001 + len - 1] == 0x22)
			settle();
		else
			while (len && *last == 0x22 && now() < end)
				step();
		inlay_fence_polled();
	}
	assert_int_equal(differs(there, len, imm), len);
	assert_true(all_bytes(there - 16, 16, 0x22) && all_bytes(there + len, 16, 0x22));
}

static void transfers(void **state)
{
	struct opt opt = unreliable();
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct pair p;
	uint32_t op, len;

	(void)state;
	for (opt.cqe_size = 64; opt.cqe_size <= 128; opt.cqe_size += 64) {
		pair_make(&p, &opt);
		must(ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init));
		for (op = 0; op < OPS; op++) {
			uint32_t solicited = op == WRITE ? 0 : INLAY_SOLICITED;

			for (len = 0; len <= init.cap.max_inline_data; len += len < 70 ? 1 : 13)
				one(&p, (enum op)op, len, 1 + rnd_below(4), INLAY_SIGNALED | INLAY_INLINE | (rnd_below(2) ? solicited : 0));
			for (len = 0; len <= 100000; len += 1 + len / 3)
				one(&p, (enum op)op, len, 1 + rnd_below(4), INLAY_SIGNALED | (rnd_below(2) ? solicited : 0));
		}
		if (!INLAY_CHECKED) /* which would abort */
			assert_int_equal(inlay_post_fetch_add(&p.a.sq, 0, 0, 1, NULL, 0), -ENOTSUP);
		pair_free(&p);
	}
}

/* Runs of unsignaled ones, rings that fill: credit is the same as on any other queue */
static void credit(void **state)
{
	struct opt opt = unreliable();
	struct pair p;
	uint32_t run, i, room;

	(void)state;
	pair_make(&p, &opt);
	room = inlay_sq_room(&p.a.sq);
	for (run = 1; run <= room; run += 1 + run / 4) {
		uint64_t word = 0;

		for (i = 0; i < run; i++) {
			word = (uint64_t)run << 32 | i;
			must(inlay_post_write_inline(&p.a.sq, raddr_of(&p.b, 8 * i), p.b.mr->rkey, &word, 8,
						     i + 1 == run ? INLAY_SIGNALED : 0));
		}
		if (run == room)
			assert_int_equal(inlay_post_nop(&p.a.sq, 0), -EAGAIN);
		inlay_sq_ring(&p.a.sq);
		sent(&p.a);
		assert_int_equal(inlay_sq_room(&p.a.sq), room);
		settle();
		for (i = 0; i < run; i++) {
			memcpy(&word, p.b.buf + 8 * i, 8);
			assert_true(word == ((uint64_t)run << 32 | i));
		}
	}
	pair_free(&p);
}

/* ---- what is lost ---- */

/* Without a receive a message is lost, and with a fault on its way too: the sender's CQE is good, and what comes next arrives whole */
static void lost(void **state)
{
	struct opt opt = unreliable();
	struct pair p;
	uint32_t i;

	(void)state;
	pair_make(&p, &opt);
	for (i = 0; i < 40; i++) {
		must(inlay_post_send_inline(&p.a.sq, "nobody waits", 12, INLAY_SIGNALED));
		inlay_sq_ring(&p.a.sq);
		sent(&p.a);
		settle();
		one(&p, i % 2 ? SEND : SEND_IMM, 100 + i, 1, INLAY_SIGNALED);
	}
	if (softdev_present())
		for (i = 0; i < 20; i++) {
			uint64_t word = rnd();

			/* The second message from now on */
			post_recv(&p.b, 0, 64);
			post_recv(&p.b, 64, 64);
			memset(p.b.buf, 0x22, 128);
			must(softdev_fault("drop@2"));
			must(inlay_post_send_inline(&p.a.sq, &word, 8, 0));
			must(inlay_post_send_inline(&p.a.sq, "lost", 4, 0));
			must(inlay_post_send_inline(&p.a.sq, &i, 4, INLAY_SIGNALED));
			inlay_sq_ring(&p.a.sq);
			sent(&p.a);
			received(&p.b, MLX5_CQE_RESP_SEND, 8, oldest(&p.b));
			received(&p.b, MLX5_CQE_RESP_SEND, 4, oldest(&p.b));
			assert_memory_equal(p.b.buf, &word, 8);
			assert_memory_equal(p.b.buf + 64, &i, 4);
			must(softdev_fault(NULL));
			one(&p, WRITE_IMM, 5000, 1, INLAY_SIGNALED);
		}
	pair_free(&p);
}

/* A write to a key that the peer does not know is lost there as well: this end does not hear of it */
static void refused_there(void **state)
{
	struct opt opt = unreliable();
	struct pair p;
	uint32_t i;

	(void)state;
	for (i = 0; i < 10; i++) {
		pair_make(&p, &opt);
		must(inlay_post_write_inline(&p.a.sq, raddr_of(&p.b, 0), p.b.mr->rkey ^ 0x55aa00, "lost", 4, INLAY_SIGNALED));
		inlay_sq_ring(&p.a.sq);
		sent(&p.a);
		settle();
		assert_true(all_bytes(p.b.buf, 64, 0));
		pair_free(&p);
	}
}

/* What cannot be sent stops the send side; the ring goes on where it is when the QP is back in RTS */
static void stopped(void **state)
{
	struct opt opt = unreliable();
	struct ibv_qp_attr attr;
	struct pair p;
	uint32_t i, round;

	(void)state;
	pair_make(&p, &opt);
	for (round = 0; round < 20; round++) {
		struct ibv_sge bad = sge_of(&p.a, 0, 64);
		const struct mlx5_cqe64 *cqe;
		uint32_t owed, behind = rnd_below(9);

		bad.lkey ^= 0x55aa00;
		must(inlay_post_write(&p.a.sq, raddr_of(&p.b, 0), p.b.mr->rkey, &bad, 1, 0));
		for (i = 0; i < behind; i++)
			must(inlay_post_nop(&p.a.sq, rnd_below(2) ? INLAY_SIGNALED : 0));
		inlay_sq_ring(&p.a.sq);
		cqe = cqe_wait(&p.a.cq);
		assert_int_equal(inlay_cqe_status(cqe), IBV_WC_LOC_PROT_ERR);
		assert_true(0 < inlay_sq_release(&p.a.sq, cqe));
		inlay_cq_advance(&p.a.cq, 1);
		for (owed = behind; owed; owed--) {
			cqe = cqe_wait(&p.a.cq);
			assert_int_equal(inlay_cqe_status(cqe), IBV_WC_WR_FLUSH_ERR);
			assert_true(0 < inlay_sq_release(&p.a.sq, cqe));
			inlay_cq_advance(&p.a.cq, 1);
		}
		assert_int_equal(inlay_sq_pending(&p.a.sq), 0);
		stopped_nop(&p.a);
		memset(&attr, 0, sizeof(attr));
		attr.qp_state = IBV_QPS_RTS;
		attr.cur_qp_state = IBV_QPS_SQE;
		must(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE));
		one(&p, (enum op)(round % OPS), 777, 2, INLAY_SIGNALED);
	}
	pair_free(&p);
}

/* ---- payload in the CQE ---- */

/* What lies in the CQE and what in memory is told by inlay_cqe_payload; a datagram's never is, since the CQE has no room for both */
static void in_cqe(void **state)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	uint32_t t, n, at_cqe[3] = {0};
	int size;

	(void)state;
	for (t = 0; t < 3; t++)
		for (size = 64; size <= 128; size += 64) {
			const uint32_t head = types[t] == IBV_QPT_UD ? INLAY_GRH : 0;
			struct ibv_ah_attr path = own_path();
			struct ibv_ah *ah = ibv_create_ah(dev.pd, &path);
			struct opt opt = usual;
			struct inlay_av av;
			struct pair p;

			opt.type = types[t];
			opt.cqe_size = size;
			opt.scatter = true;
			opt.bytes = 4096;
			pair_make(&p, &opt);
			assert_non_null(ah);
			must(inlay_av_from_ah(&av, ah, p.b.qp->qp_num, QKEY));
			must(ibv_destroy_ah(ah));
			for (n = 0; n <= 80; n++) {
				const struct mlx5_cqe64 *cqe;
				const void *payload;

				memset(p.b.buf, 0x22, 512);
				post_recv(&p.b, 0, 200);
				fill(p.a.buf, n, n);
				if (types[t] == IBV_QPT_UD)
					must(inlay_post_ud_send_inline(&p.a.sq, &av, p.a.buf, n, INLAY_SIGNALED));
				else
					must(inlay_post_send_inline(&p.a.sq, p.a.buf, n, INLAY_SIGNALED));
				inlay_sq_ring(&p.a.sq);
				cqe = cqe_wait(&p.b.rxcq);
				payload = inlay_cqe_payload(cqe, p.b.rxcq.stride);
				assert_int_equal(differs(payload ? payload : p.b.buf + head, n, n), n);
				assert_true(all_bytes(p.b.buf + (payload ? 0 : head + n), 80, 0x22));
				/* In place, in this slot of the ring, until the slot is given back */
				if (payload)
					assert_in_range((const uint8_t *)cqe + 64 - (const uint8_t *)payload, 64, (uint32_t)size);
				at_cqe[t] += payload != NULL;
				received(&p.b, MLX5_CQE_RESP_SEND, head + n, oldest(&p.b));
				sent(&p.a);
			}
			pair_free(&p);
		}
	assert_int_equal(at_cqe[2], 0);
	if (softdev_present()) {
		assert_int_equal(at_cqe[0], 32 + 64);
		assert_int_equal(at_cqe[1], 32 + 64);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(transfers),
		cmocka_unit_test(credit),
		cmocka_unit_test(lost),
		cmocka_unit_test(refused_there),
		cmocka_unit_test(stopped),
		cmocka_unit_test(in_cqe),
	};

	return cmocka_run_group_tests_name("uc", tests, dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
