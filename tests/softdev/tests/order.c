/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * order.c: QPs that may take what comes out of order. By commands; and the one bit of verbs by an
 * ioctl of its own, since libmlx5 asks for it only from rdma-core 54 on.
 */
#include "rig_devx.h"
#include "rig_raw.h"

#define RECVS 64u                 /* entries of the receive ring */
#define ROOM 256u
#define KEEP_ORDER 0u
#define ORDER_RW 1u
#define ORDER_ALL 2u

static struct dcq scq, rcq;
static struct dqp qp[2];
static uint8_t *mem;
static struct ibv_mr *mr;

/* As the context has them; force beside them where a device asks for it */
static void put_order(struct cmd *c, unsigned order)
{
	put(c->in, QPC + 0x26, 1, order & 1);
	put(c->in, QPC + 0x49c, 1, order >> 1);
}

/* Two QPs of a type, connected; step: which transition says so, 0 RESET to INIT, 1 INIT to RTR */
static void open_two(unsigned st, unsigned order, unsigned step)
{
	empty_arena();
	mem = arena.p + ARENA - (RECVS + 1) * ROOM;
	mr = arena.mr;
	open_cq(&scq, 8, 64);
	open_cq(&rcq, 8, 64);
	for (unsigned i = 0; i < 2; i++)
		open_qp(&qp[i], st, &scq, &rcq, 0);
	for (unsigned i = 0; i < 2; i++) {
		struct cmd c = to_init(qp[i].qpn, st);

		put_order(&c, step ? KEEP_ORDER : order);
		assert_int_equal(modify(qp[i].obj, &c), OK);
		c = to_rtr(qp[i].qpn, st, qp[!i].qpn);
		put_order(&c, step ? order : KEEP_ORDER);
		assert_int_equal(modify(qp[i].obj, &c), OK);
		c = to_rts(qp[i].qpn, st);
		assert_int_equal(modify(qp[i].obj, &c), OK);
		c = qp_query(&qp[i]);
		assert_int_equal(OUT(QPC + 0x26, 1), order & 1);
		assert_int_equal(OUT(QPC + 0x49c, 1), order >> 1);
	}
}

static void close_two(void)
{
	for (unsigned i = 0; i < 2; i++)
		must(destroy(qp[i].obj));
	must(destroy(scq.obj) || destroy(rcq.obj));
}

/* Sends message n: its number, twice as many bytes as its last three bits say, and more */
static uint32_t message(unsigned st, uint32_t n)
{
	const uint32_t len = 8 + 2 * (n & 7);
	uint8_t *from = mem + RECVS * ROOM, *at = wqe(&qp[0]) + 16;

	memset(from, (int)n, ROOM);
	memcpy(from, &n, 4);
	if (st == UD) {
		struct mlx5dv_ah dv = { 0 };
		struct mlx5dv_obj obj = { .ah = { ah, &dv } };
		struct mlx5_wqe_av av;

		must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH));
		av = *dv.av;
		av.key.qkey.qkey = htobe32(QKEY);
		av.dqp_dct = htobe32(qp[1].qpn | MLX5_EXTENDED_UD_AV);
		memcpy(at, &av, sizeof(av));
		at += sizeof(av);
	}
	sent(&scq, qp[0].qpn, post_one(&qp[0], MLX5_OPCODE_SEND, seg_data(at, from, len, mr->lkey), 0));
	return len;
}

/* `most` receives at a time: the completions come in the messages' order, and say each which WQE it was */
static unsigned run(unsigned st, unsigned most, unsigned messages)
{
	const unsigned head = st == UD ? GRH_BYTES : 0;
	bool out[RECVS] = { false };
	unsigned oldest = 0, crossed = 0;

	while (qp[1].rq_pi < most)
		do_recv(&qp[1], mem + qp[1].rq_pi % RECVS * ROOM, mr->lkey, ROOM);
	for (unsigned i = 0; i < messages; i++) {
		uint32_t len = message(st, i), n;
		struct mlx5_cqe64 *c = poll_wait(&rcq);
		uint16_t index;

		assert_int_equal(cqe_op(c), MLX5_CQE_RESP_SEND);
		assert_int_equal(be32toh(c->byte_cnt), len + head);
		index = be16toh(c->wqe_counter);
		assert_true((uint16_t)(index - oldest) < (uint16_t)(qp[1].rq_pi - oldest));
		assert_false(out[index % RECVS]);
		crossed += index != (uint16_t)oldest;
		memcpy(&n, mem + index % RECVS * ROOM + head, 4);
		assert_int_equal(n, i);
		out[index % RECVS] = true;
		for (; out[oldest % RECVS]; oldest++)
			out[oldest % RECVS] = false;
		/* Nothing that is not back is written again */
		assert_true(qp[1].rq_pi - oldest < RECVS);
		do_recv(&qp[1], mem + qp[1].rq_pi % RECVS * ROOM, mr->lkey, ROOM);
	}
	return crossed;
}

TEST(receives)
{
	static const unsigned types[] = { RC, UC, UD };
	static const struct {
		unsigned order, most, messages;
		bool crosses;
	} rows[] = {
		{ ORDER_ALL, RECVS / 2, 500, true }, /* half of the ring is all that can be posted at a time; one of it leaves no choice */
		{ ORDER_ALL, 1, 100, false }, { KEEP_ORDER, RECVS - 1, 200, false },
		{ ORDER_RW, RECVS - 1, 200, false }, /* for reads and writes alone */
	};

	ah = own_ah();
	for (unsigned i = 0; i < 2 * ARRAY(types); i++)
		for (unsigned r = 0; r < ARRAY(rows); r++) {
			const unsigned st = types[i / 2];

			if (rows[r].order == ORDER_RW && st != RC)
				continue;
			open_two(st, rows[r].order, i % 2);
			if (rows[r].crosses)
				assert_true(run(st, rows[r].most, rows[r].messages) > rows[r].messages / 4);
			else
				assert_int_equal(run(st, rows[r].most, rows[r].messages), 0);
			close_two();
		}
	must(ibv_destroy_ah(ah));
}

/* What was posted and not taken comes back from a QP that stops, each once */
TEST(flushed)
{
	for (unsigned round = 0; round < RECVS / 2; round++) {
		bool back[RECVS] = { false };

		open_two(RC, ORDER_ALL, 0);
		for (unsigned i = 0; i < RECVS / 2; i++)
			do_recv(&qp[1], mem + i * ROOM, mr->lkey, ROOM);
		for (unsigned i = 0; i < round; i++) {
			message(RC, i);
			back[be16toh(poll_wait(&rcq)->wqe_counter)] = true;
		}
		assert_int_equal(stop(&qp[1], TO_ERR), OK);
		for (unsigned i = 0; i < RECVS / 2 - round; i++) {
			struct mlx5_cqe64 *c = poll_wait(&rcq);

			assert_int_equal(cqe_op(c), MLX5_CQE_RESP_ERR);
			assert_int_equal(((struct mlx5_err_cqe *)(void *)c)->syndrome, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
			assert_false(back[be16toh(c->wqe_counter)]);
			back[be16toh(c->wqe_counter)] = true;
		}
		poll_nothing(&rcq);
		for (unsigned i = 0; i < RECVS / 2; i++)
			assert_true(back[i]);
		/* Afresh it begins at the first */
		assert_int_equal(stop(&qp[1], TO_RST), OK);
		close_two();
	}
}

/* A write whose first page has gone: its last byte has landed already, or it has not */
TEST(placed)
{
	const size_t page = 4096;

	for (unsigned order = KEEP_ORDER; order <= ORDER_ALL; order++) {
		uint8_t *to = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct ibv_mr *target = made(ibv_reg_mr(pd, to, 2 * page, ALL_ACCESS));

		open_two(RC, order, 0);
		memset(mem, 0x5a, ROOM);
		sent(&scq, qp[0].qpn, do_write(&qp[0], mem, mr->lkey, ROOM, (uintptr_t)to + page - 16, target->rkey));
		assert_memory_equal(to + page - 16, mem, ROOM);
		memset(to + page, 0, page);
		must(mprotect(to, page, PROT_NONE));
		do_write(&qp[0], mem, mr->lkey, ROOM, (uintptr_t)to + page - 16, target->rkey);
		failed(&scq, false, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
		assert_int_equal(to[page + ROOM - 17], order ? 0x5a : 0);
		close_two();
		must(ibv_dereg_mr(target));
		munmap(to, 2 * page);
	}
}

TEST(refusals)
{
	static const unsigned types[] = { RC, UC, UD, DCI };
	struct cmd c = command(0x100, 0x10, 0x1010 < BOX ? 0x1010 : BOX);
	struct drmp r;

	/* What the device says of itself */
	assert_int_equal(mlx5dv_devx_general_cmd(ctx, c.in, c.inlen, c.out, c.outlen), 0);
	assert_int_equal(OUT(0x80 + 0x1c8, 3), 3);
	assert_int_equal(OUT(0x80 + 0x330, 5), 0x1b);
	empty_arena();
	open_cq(&scq, 4, 64);
	open_rmp(&r, 0, 4);
	for (unsigned t = 0; t < ARRAY(types); t++) {
		struct dqp q;

		open_qp(&q, types[t], &scq, &scq, types[t] == DCI ? r.rmpn : 0);
		c = to_init(q.qpn, types[t]);
		put_order(&c, 3);
		assert_int_equal(modify(q.obj, &c), BAD_PARAM);
		put_order(&c, ORDER_RW);
		assert_int_equal(modify(q.obj, &c), types[t] == RC || types[t] == DCI ? OK : BAD_PARAM);
		must(destroy(q.obj));
	}
	must(destroy(r.obj) || destroy(scq.obj));
}

/* ---- verbs ---- */

static int modify_raw(struct ibv_qp *q, uint32_t state, uint32_t comp_mask)
{
	struct ib_uverbs_ex_modify_qp req = { .base = { .qp_handle = q->handle, .qp_state = (uint8_t)state, .port_num = 1,
						       .qp_access_flags = ALL_ACCESS } };
	struct mlx5_ib_modify_qp drv = { .comp_mask = comp_mask };
	struct ib_uverbs_ex_modify_qp_resp resp;

	req.base.attr_mask = IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS : 0);
	return raw_call(ctx->cmd_fd, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE,
			ATTR(UVERBS_ATTR_WRITE_CMD, 8, 1u << 31 | IB_USER_VERBS_EX_CMD_MODIFY_QP), PTR(UVERBS_ATTR_CORE_IN, &req),
			PTR(UVERBS_ATTR_CORE_OUT, &resp), PTR(UVERBS_ATTR_UHW_IN, &drv));
}

static unsigned order_of(struct ibv_qp *q)
{
	struct cmd c = verbs_qp(q);

	return OUT(QPC + 0x26, 1) | OUT(QPC + 0x49c, 1) << 1;
}

TEST(verbs)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *q = made(ibv_create_qp(pd, &init));

	assert_int_equal(modify_raw(q, IBV_QPS_INIT, 2), EOPNOTSUPP);
	assert_int_equal(modify_raw(q, IBV_QPS_RESET, 1), EINVAL);
	must(modify_raw(q, IBV_QPS_INIT, 1));
	assert_int_equal(order_of(q), ORDER_ALL);
	/* Only then */
	assert_int_equal(modify_raw(q, IBV_QPS_INIT, 1), EINVAL);
	must(modify_raw(q, IBV_QPS_RESET, 0));
	assert_int_equal(order_of(q), KEEP_ORDER);
	must(ibv_destroy_qp(q) || ibv_destroy_cq(cq));
}

int main(void)
{
	return devx_main(false);
}
