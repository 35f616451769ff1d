/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tm_raw.c: a command queue and a CQ without libmlx5: any list operation, and every byte of what
 * comes of it
 */
#include "rig_tm.h"

enum { NOP = 0, APPEND = 1, REMOVE = 2 };
enum { SW_CNT = 0x40, CQE_REQ = 0x80 };
enum { CONSUMED = 1, EXPECTED, UNEXPECTED, NO_TAG, APPENDED, REMOVED, NOOP, CONSUMED_SW_RNDV = 9, CONSUMED_MSG, CONSUMED_MSG_SW_RNDV,
       CANCELED };

/* Its CQ is not libmlx5's to poll any more */
struct raw {
	struct match m;
	struct side cmd;
	struct mlx5dv_qp qp;
	struct mlx5dv_cq cq;
	uint32_t uidx;            /* the SRQ's, from the first completion on */
	uint16_t pi;
	uint32_t ci;
};

static void open_raw(struct raw *r, uint32_t tags)
{
	struct mlx5dv_obj obj;
	struct how how;

	/* No manual tells how adapters do all this */
	skip_if(!softdev_present(), "what is not in any manual is looked at on the software device alone");
	memset(r, 0, sizeof(*r));
	open_tm(&r->m, 64, tags, 64);
	how = r->m.how;
	how.srq = r->m.srq;
	how.cq = ibv_cq_ex_to_cq(r->m.cq);
	open_side(&r->cmd, &how);
	bring_up(r->cmd.qp, r->cmd.qp->qp_num, &how);
	obj.qp.in = r->cmd.qp;
	obj.qp.out = &r->qp;
	obj.cq.in = how.cq;
	obj.cq.out = &r->cq;
	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ));
}

/*
 * Destroying the QPs takes their completions out of the CQ: libmlx5 must know how far it was read
 */
static void close_raw(struct raw *r)
{
	close_side(&r->m.tx);
	close_side_but_cqs(&r->m.rx);
	close_side_but_cqs(&r->cmd);
	must(ibv_destroy_srq(r->m.srq) || ibv_destroy_cq(ibv_cq_ex_to_cq(r->m.cq)));
}

static struct mlx5_cqe64 raw_cqe(struct raw *r)
{
	const struct mlx5_cqe64 *at = (const struct mlx5_cqe64 *)r->cq.buf + (r->ci & (r->cq.cqe_cnt - 1));
	struct mlx5_cqe64 c;
	uint8_t own;

	until((go(), own = __atomic_load_n(&at->op_own, __ATOMIC_ACQUIRE), own >> 4 != MLX5_CQE_INVALID && (own & 1) == !!(r->ci & r->cq.cqe_cnt)));
	c = *at;
	r->ci++;
	__atomic_store_n(&r->cq.dbrec[0], htobe32(r->ci & 0xffffff), __ATOMIC_RELEASE);
	return c;
}

/* The error CQE that is next */
static struct mlx5_err_cqe raw_error(struct raw *r, uint8_t opcode, uint8_t syndrome, struct mlx5_cqe64 *c)
{
	struct mlx5_err_cqe e;

	*c = raw_cqe(r);
	memcpy(&e, c, sizeof(e));
	assert_int_equal(e.op_own >> 4, opcode);
	assert_int_equal(e.syndrome, syndrome);
	return e;
}

/* Bytes of a WQE: 48, and 16 more where there is a data segment */
static void raw_wqe(struct raw *r, uint8_t op, uint8_t flags, uint16_t index, uint16_t sw, uint64_t tag, uint64_t mask,
		    const struct ibv_sge *sg, unsigned bytes)
{
	struct mlx5_wqe_ctrl_seg c = { 0 };
	struct mlx5_wqe_tm_seg s = { .opcode = op << 4, .flags = flags, .index = htobe16(index), .sw_cnt = htobe16(sw),
				     .append_tag = htobe64(tag), .append_mask = htobe64(mask) };
	struct mlx5_wqe_data_seg d = { 0, htobe32(MLX5_INVALID_LKEY), 0 };
	uint8_t *wqe = (uint8_t *)r->qp.sq.buf + (size_t)(r->pi & (r->qp.sq.wqe_cnt - 1)) * r->qp.sq.stride;

	if (sg)
		d = (struct mlx5_wqe_data_seg){ htobe32(sg->length), htobe32(sg->lkey), htobe64(sg->addr) };
	c.opmod_idx_opcode = htobe32((uint32_t)r->pi << 8 | MLX5_OPCODE_TAG_MATCHING);
	c.qpn_ds = htobe32(r->cmd.qp->qp_num << 8 | bytes / 16);
	memset(wqe, 0, 64);
	memcpy(wqe, &c, sizeof(c));
	memcpy(wqe + 16, &s, sizeof(s));
	memcpy(wqe + 48, &d, sizeof(d));
	r->pi++;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(&r->qp.dbrec[1], htobe32(r->pi), __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n((uint64_t *)r->qp.bf.reg, *(uint64_t *)(void *)wqe, __ATOMIC_RELAXED);
}

/* A completion of a list operation: all of it */
static void list_cqe(struct raw *r, uint8_t app_op, uint16_t entry, bool success, uint16_t hw)
{
	const struct mlx5_cqe64 c = raw_cqe(r);

	assert_int_equal(c.op_own >> 4, MLX5_CQE_NO_PACKET);
	assert_int_equal(c.op_own >> 1 & 7, 0);
	assert_int_equal(c.app, 1);
	assert_int_equal(c.app_op, app_op);
	assert_int_equal(be16toh(c.app_info), entry);
	assert_int_equal(be32toh(c.tm_cqe.success), success ? 1u << 31 : 0);
	assert_int_equal(be16toh(c.tm_cqe.hw_phase_cnt), hw);
	assert_int_equal(be32toh(c.sop_drop_qpn), (uint32_t)MLX5_OPCODE_TAG_MATCHING << 24 | r->cmd.qp->qp_num);
	assert_int_equal(be16toh(c.wqe_counter), (uint16_t)(r->pi - 1));
	if (!r->uidx)
		r->uidx = be32toh(c.srqn_uidx);
	assert_int_equal(be32toh(c.srqn_uidx), r->uidx);
}

/* An entry of the whole list: its data at 4096 * entry */
static void raw_append(struct raw *r, uint16_t entry, uint16_t next, uint16_t sw, uint16_t hw, uint64_t tag)
{
	struct ibv_sge sg = sge(&r->m.rx, 4096 * (size_t)entry, 4096);

	raw_wqe(r, APPEND, SW_CNT | CQE_REQ, next, sw, tag, ALL, &sg, 64);
	list_cqe(r, APPENDED, entry, true, hw);
}

static void message_cqe(struct raw *r, uint8_t opcode, uint8_t app_op, uint16_t about, uint32_t len, const struct ibv_tmh *tmh)
{
	const bool srq = app_op == UNEXPECTED || app_op == NO_TAG;
	const struct mlx5_cqe64 c = raw_cqe(r);

	assert_int_equal(c.app, 1);
	assert_int_equal(c.app_op, app_op);
	assert_int_equal(c.op_own >> 4, opcode);
	assert_int_equal(be16toh(srq ? c.wqe_counter : c.app_info), about);
	assert_int_equal(be32toh(c.byte_cnt), len);
	assert_int_equal(be32toh(c.sop_drop_qpn), r->m.rx.qp->qp_num);
	assert_int_equal(be32toh(c.srqn_uidx), r->uidx);
	if (tmh)
		assert_memory_equal(&c, tmh, TMH);
	else if (!(c.op_own & 0xc))
		assert_true(all_bytes((uint8_t *)&c, TMH, 0));
}

/* One of each kind */
TEST(completions)
{
	struct ibv_tmh h = tmh_of(IBV_TMH_EAGER, 5, 0xfeed);
	struct ibv_qp_attr a;
	struct request q;
	struct raw r;

	open_raw(&r, 15);
	raw_wqe(&r, NOP, CQE_REQ, 99, 0, 0, 0, NULL, 48);
	list_cqe(&r, NOOP, 0, true, 0);
	/* The first append fills entry 0; each names what the next one fills */
	raw_append(&r, 0, 7, 0, 0, 5);
	raw_append(&r, 7, 3, 0, 0, 5);
	raw_append(&r, 3, 15, 0, 0, 5);
	raw_wqe(&r, REMOVE, CQE_REQ, 7, 0, 0, 0, NULL, 48);
	list_cqe(&r, REMOVED, 7, true, 0);
	raw_wqe(&r, REMOVE, CQE_REQ, 7, 0, 0, 0, NULL, 48);
	list_cqe(&r, REMOVED, 7, false, 0);
	/* The dummy is not in the list; neither is what never was */
	raw_wqe(&r, REMOVE, CQE_REQ, 15, 0, 0, 0, NULL, 48);
	list_cqe(&r, REMOVED, 15, false, 0);
	raw_wqe(&r, REMOVE, CQE_REQ, 1, 0, 0, 0, NULL, 48);
	list_cqe(&r, REMOVED, 1, false, 0);

	eager(&r.m.tx, 5, 0xfeed, 0, 100);
	message_cqe(&r, MLX5_CQE_RESP_SEND, CONSUMED_MSG, 0, 100, &h);
	eager(&r.m.tx, 5, 0xfeed, 0, 2000);
	message_cqe(&r, MLX5_CQE_NO_PACKET, CONSUMED, 3, 0, &h);
	message_cqe(&r, MLX5_CQE_RESP_SEND, EXPECTED, 3, 2000, NULL);
	untagged(&r.m, 1, HALF, 1024);
	untagged(&r.m, 2, HALF, 1024);
	eager(&r.m.tx, 5, 0xfeed, 0, 100);
	message_cqe(&r, MLX5_CQE_RESP_SEND, UNEXPECTED, 0, 116, NULL);
	h.opcode = IBV_TMH_NO_TAG;
	send_raw(&r.m.tx, &h, TMH, 0, 200);
	sent(&r.m.tx);
	message_cqe(&r, MLX5_CQE_RESP_SEND, NO_TAG, 1, 216, NULL);

	/* A count that is one too low, then the right one; what was matched while data come is not there to be removed */
	raw_append(&r, 15, 0, 0, 1, 5);
	raw_wqe(&r, NOP, CQE_REQ | SW_CNT, 0, 1, 0, 0, NULL, 48);
	list_cqe(&r, NOOP, 0, true, 1);
	must(move(r.m.rx.qp, IBV_QPS_SQD, 0, &r.m.how));
	q = rndv_of(&r.m, 5, 0, 3000, 0);
	fin_room(&r.m, 1);
	offer(&r.m, &q, 0);
	message_cqe(&r, MLX5_CQE_NO_PACKET, CONSUMED, 15, 0, &q.h);
	raw_wqe(&r, REMOVE, CQE_REQ, 15, 0, 0, 0, NULL, 48);
	list_cqe(&r, REMOVED, 15, false, 1);
	a = attr_for(IBV_QPS_RTS, 0, &r.m.how);
	must(ibv_modify_qp(r.m.rx.qp, &a, IBV_QP_STATE));
	message_cqe(&r, MLX5_CQE_RESP_SEND, EXPECTED, 15, 3000, NULL);
	fin_comes(&r.m, 1, &q);
	raw_append(&r, 0, 1, 1, 1, 5);
	raw_append(&r, 1, 2, 1, 1, 5);
	raw_append(&r, 2, 3, 1, 1, 5);
	q = rndv_of(&r.m, 5, 0, 5000, 20);
	offer(&r.m, &q, 20);
	message_cqe(&r, MLX5_CQE_RESP_SEND, CONSUMED_MSG_SW_RNDV, 0, 52, &q.h);
	/* No device reads what it cannot keep in one packet */
	q = rndv_of(&r.m, 5, 0, 100, 2000);
	offer(&r.m, &q, 2000);
	message_cqe(&r, MLX5_CQE_NO_PACKET, CONSUMED_SW_RNDV, 1, 0, &q.h);
	message_cqe(&r, MLX5_CQE_RESP_SEND, EXPECTED, 1, 2032, NULL);
	assert_memory_equal(r.m.rx.buf + 4096, &q, 2032);
	q = rndv_of(&r.m, 5, 0, 100, 0);
	q.r.rkey ^= htobe32(0x5500);
	offer(&r.m, &q, 0);
	message_cqe(&r, MLX5_CQE_NO_PACKET, CONSUMED, 2, 0, &q.h);
	message_cqe(&r, MLX5_CQE_RESP_SEND, CANCELED, 2, 0, NULL);
	raw_append(&r, 3, 2, 1, 1, 5);
	close_raw(&r);
}

/*
 * What a command queue must not say: an error CQE, the queue stops, and the list goes on as it was
 */
TEST(bad_operations)
{
	static const struct {
		uint8_t op;
		uint16_t index;
		unsigned bytes;
		bool other;
	} cases[] = {
		{ APPEND, 8, 64, false },       /* beyond the list */
		{ APPEND, 0xffff, 64, false },
		{ APPEND, 2, 64, false },       /* the dummy itself */
		{ APPEND, 0, 64, false },       /* in the list: it is full, were this the last */
		{ APPEND, 1, 64, false },       /* matched, its data not there yet */
		{ APPEND, 3, 48, false },       /* no buffer */
		{ REMOVE, 8, 48, false }, { REMOVE, 0, 32, false }, { 3, 0, 48, false }, { 15, 0, 48, false },
		{ NOP, 0, 48, true },           /* on a QP that is connected to somebody else */
	};

	for (unsigned i = 0; i < ARRAY(cases); i++) {
		struct mlx5_err_cqe e;
		struct mlx5_cqe64 c;
		struct request q;
		struct raw r;

		open_raw(&r, 7);
		raw_append(&r, 0, 1, 0, 0, 5);
		raw_append(&r, 1, 2, 0, 0, 6);
		must(move(r.m.rx.qp, IBV_QPS_SQD, 0, &r.m.how));
		q = rndv_of(&r.m, 6, 0, 3000, 0);
		fin_room(&r.m, 1);
		offer(&r.m, &q, 0);
		message_cqe(&r, MLX5_CQE_NO_PACKET, CONSUMED, 1, 0, &q.h);
		if (cases[i].other) {
			must(move(r.cmd.qp, IBV_QPS_RESET, 0, &r.m.how));
			bring_up(r.cmd.qp, r.m.tx.qp->qp_num, &r.m.how);
			r.pi = 0;
			r.qp.dbrec[1] = 0;
		}
		raw_wqe(&r, cases[i].op, CQE_REQ, cases[i].index, 0, 7, ALL, NULL, cases[i].bytes);
		e = raw_error(&r, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, &c);
		assert_int_equal(be32toh(e.s_wqe_opcode_qpn), (uint32_t)MLX5_OPCODE_TAG_MATCHING << 24 | r.cmd.qp->qp_num);
		assert_int_equal(be16toh(e.wqe_counter), (uint16_t)(r.pi - 1));
		assert_int_equal(state_of(r.cmd.qp), IBV_QPS_ERR);
		eager(&r.m.tx, 5, 0, 0, 10);
		c = raw_cqe(&r);
		assert_int_equal(c.app_op, CONSUMED_MSG);
		close_raw(&r);
	}
}

/* An error CQE of a tagged buffer says which: too small, or of a bad key, in one packet or two, or in the packet of a rendezvous */
TEST(raw_errors)
{
	for (int i = 0; i < 5; i++) {
		bool two = i & 1, key = i >= 2, rndv = i == 4;
		struct ibv_tmh h = tmh_of(IBV_TMH_EAGER, 5, 1);
		struct side other_rx, other_tx;
		struct mlx5_err_cqe e;
		struct mlx5_cqe64 c;
		struct request q;
		struct raw r;

		open_raw(&r, 7);
		sg = sge(&r.m.rx, 0, key ? SIZE : 64);
		sg.lkey ^= key ? 0x5500 : 0;
		raw_wqe(&r, APPEND, CQE_REQ, 3, 0, 9, ALL, NULL, 64);
		list_cqe(&r, APPENDED, 0, true, 0);
		raw_wqe(&r, APPEND, CQE_REQ, 1, 0, 5, ALL, &sg, 64);
		list_cqe(&r, APPENDED, 3, true, 0);
		q = rndv_of(&r.m, 5, 0, 4096, 0);
		if (rndv)
			start_offer(&r.m, &q, 0);
		else
			send_raw(&r.m.tx, &h, TMH, 0, two ? 5000 : 65);
		failed_send(&r.m, key ? IBV_WC_REM_OP_ERR : IBV_WC_REM_INV_REQ_ERR);
		e = raw_error(&r, MLX5_CQE_RESP_ERR, key ? MLX5_CQE_SYNDROME_LOCAL_PROT_ERR : MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, &c);
		assert_int_equal(be32toh(e.s_wqe_opcode_qpn) & 0xffffff, r.m.rx.qp->qp_num);
		assert_int_equal(be32toh(c.srqn_uidx), r.uidx);
		assert_true(c.app == 1 && be16toh(c.app_info) == 3);
		assert_true(rndv || c.app_op == CONSUMED_MSG);
		/* It is out of the list, and its place is free; later entries are found */
		raw_wqe(&r, REMOVE, CQE_REQ, 3, 0, 0, 0, NULL, 48);
		list_cqe(&r, REMOVED, 3, false, 0);
		raw_wqe(&r, APPEND, CQE_REQ, 3, 0, 0, ALL, NULL, 64);
		list_cqe(&r, APPENDED, 1, true, 0);
		connect_to(&r.m, &other_rx, &other_tx);
		for (uint16_t tag = 0; tag <= 9; tag += 9) {
			eager(&other_tx, tag, 0, 0, 0);
			c = raw_cqe(&r);
			assert_int_equal(c.app_op, CONSUMED_MSG);
			assert_int_equal(be16toh(c.app_info), tag ? 0 : 1);
		}
		close_side(&other_tx);
		close_side_but_cqs(&other_rx);
		close_raw(&r);
	}
}

int main(void)
{
	return RUN();
}
