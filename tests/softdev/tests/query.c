/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * query.c: what modify verbs take and refuse, and whether query verbs give back what was set; on
 * RoCE and on InfiniBand
 */
#include "rig.h"

static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

/*
 * ---- the state machine: what the InfiniBand architecture has, written down from ibv_modify_qp(3)
 * and chapter 11.2.5.3 ----
 */

#define RC(...) .rc = { __VA_ARGS__ }
#define UC(...) .uc = { __VA_ARGS__ }
#define UD(...) .ud = { __VA_ARGS__ }
#define SAME(...) RC(__VA_ARGS__), UC(__VA_ARGS__), UD(__VA_ARGS__)
#define CONNECTED_RTS (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE)

struct attrs {
	bool legal;
	int required, optional;
};

static const struct {
	enum ibv_qp_state from, to;
	struct attrs rc, uc, ud;
} legal[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, RC(true, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0),
	  UC(true, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0),
	  UD(true, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0) },
	{ IBV_QPS_INIT, IBV_QPS_INIT, RC(true, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	  UC(true, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	  UD(true, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) },
	{ IBV_QPS_INIT, IBV_QPS_RTR, RC(true, RTR_MASK & ~IBV_QP_STATE, IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX),
	  UC(true, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX),
	  UD(true, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY) },
	{ IBV_QPS_RTR, IBV_QPS_RTS, RC(true, RTS_MASK & ~IBV_QP_STATE, CONNECTED_RTS | IBV_QP_MIN_RNR_TIMER),
	  UC(true, IBV_QP_SQ_PSN, CONNECTED_RTS),
	  UD(true, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY) },
	{ IBV_QPS_RTS, IBV_QPS_RTS,
	  RC(true, 0, CONNECTED_RTS | IBV_QP_MIN_RNR_TIMER), UC(true, 0, CONNECTED_RTS), UD(true, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY) },
	{ IBV_QPS_RTS, IBV_QPS_SQD, SAME(true, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY) },
	{ IBV_QPS_SQD, IBV_QPS_RTS,
	  RC(true, 0, CONNECTED_RTS | IBV_QP_MIN_RNR_TIMER), UC(true, 0, CONNECTED_RTS), UD(true, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY) },
	{ IBV_QPS_SQD, IBV_QPS_SQD,
	  RC(true, 0, IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
	     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE),
	  UC(true, 0, IBV_QP_AV | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PATH_MIG_STATE),
	  UD(true, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY) },
	/* Only where a send that fails leaves the receive queue alone */
	{ IBV_QPS_SQE, IBV_QPS_RTS, UC(true, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS), UD(true, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY) },
};

/* A send without a good key, in RTS */
static void fail_a_send(struct ibv_qp *qp)
{
	struct ibv_sge sg = { .addr = 4096, .length = 8, .lkey = 0x1234 };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sg, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_ah *ah = own_ah();

	address(&wr, ah, qp->qp_num);
	must(ibv_post_send(qp, &wr, &bad));
	expect(qp->send_cq, 1, IBV_WC_LOC_PROT_ERR);
	must(ibv_destroy_ah(ah));
}

static void bring_to(struct ibv_qp *qp, enum ibv_qp_state state)
{
	static const enum ibv_qp_state way[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD };
	struct how how = how_of_type(qp->qp_type);

	for (unsigned i = 0; i < ARRAY(way); i++) {
		must(move(qp, way[i], qp->qp_num, &how));
		if (way[i] == state || (state > IBV_QPS_SQD && way[i] == IBV_QPS_RTS))
			break;
	}
	if (state == IBV_QPS_ERR)
		must(move(qp, state, 0, &how));
	else if (state == IBV_QPS_SQE)
		fail_a_send(qp);
	assert_int_equal(state_of(qp), state);
}

static void try(struct ibv_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to, int mask, int want)
{
	struct how how = how_of_type(qp->qp_type);
	struct ibv_qp_attr a = attr_for(to, qp->qp_num, &how);
	int err;

	if (state_of(qp) != from)
		bring_to(qp, from);
	a.cur_qp_state = from;
	err = ibv_modify_qp(qp, &a, mask | IBV_QP_STATE);
	if (err != want)
		fail_msg("type %d from %u to %u with mask 0x%x: %d", qp->qp_type, from, to, mask, err);
	assert_int_equal(state_of(qp), err ? from : to);
}

static struct ibv_qp *a_qp(enum ibv_qp_type type)
{
	struct ibv_cq *cq = made(ibv_create_cq(ctx, 10, NULL, NULL, 0));
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .cap = usual.cap, .qp_type = type, .sq_sig_all = 1 };

	return made(ibv_create_qp(pd, &init));
}

static void free_qp(struct ibv_qp *qp)
{
	struct ibv_cq *cq = qp->send_cq;

	must(ibv_destroy_qp(qp) || ibv_destroy_cq(cq));
}

static void state_machine(enum ibv_qp_type type)
{
	struct ibv_qp *qp = a_qp(type);

	for (unsigned from = IBV_QPS_RESET; from <= IBV_QPS_ERR; from++)
		for (unsigned to = IBV_QPS_RESET; to <= IBV_QPS_ERR; to++) {
			/* Back to the start from anywhere, to the error state from anywhere else */
			struct attrs a = { .legal = to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET) };

			if (type == IBV_QPT_RC && from == IBV_QPS_SQE)
				continue;
			for (unsigned i = 0; i < ARRAY(legal); i++)
				if (legal[i].from == from && legal[i].to == to)
					a = type == IBV_QPT_RC ? legal[i].rc : type == IBV_QPT_UC ? legal[i].uc : legal[i].ud;
			if (!a.legal) {
				try(qp, from, to, 0, EINVAL);
				try(qp, from, to, mask_for(type, to == IBV_QPS_INIT || to == IBV_QPS_RTR ? to : IBV_QPS_RTS), EINVAL);
				continue;
			}
			try(qp, from, to, a.required, 0);
			try(qp, from, to, a.required | a.optional, 0);
			for (int bit = 1 << 1; bit < IBV_QP_RATE_LIMIT; bit <<= 1)
				if (bit == IBV_QP_ALT_PATH)
					continue; /* some ports have alternative paths, others not */
				else if (a.required & bit)
					try(qp, from, to, a.required & ~bit, EINVAL);
				else
					try(qp, from, to, a.required | bit, a.optional & bit ? 0 : EINVAL);
		}
	free_qp(qp);
}

TEST(states)
{
	for (unsigned t = 0; t < ARRAY(types); t++)
		state_machine(types[t]);
}

/* ---- values ---- */

/* One value that is not good, in the step from a state to the next; nothing of the modify is done then */
TEST(bad_values)
{
	enum { ALL = 7, C = 3, R = 1 }; /* types: all, connected ones, RC */
#define FIELD(name) offsetof(struct ibv_qp_attr, name), sizeof(((struct ibv_qp_attr *)0)->name)
#define ROW(from, types, field, value) { from, types, FIELD(field), value, EINVAL }
	static const struct {
		enum ibv_qp_state from;
		unsigned types;
		size_t at, size;
		uint32_t value;
		int err;
	} rows[] = {
		ROW(IBV_QPS_RESET, ALL, port_num, 0), ROW(IBV_QPS_RESET, ALL, port_num, 2), ROW(IBV_QPS_RESET, ALL, pkey_index, 200),
		ROW(IBV_QPS_RESET, ALL, qp_state, 7), ROW(IBV_QPS_RESET, C, qp_access_flags, 1 << 12), ROW(IBV_QPS_INIT, C, path_mtu, 0),
		ROW(IBV_QPS_INIT, C, path_mtu, 6), ROW(IBV_QPS_INIT, C, dest_qp_num, 1 << 24), ROW(IBV_QPS_INIT, C, ah_attr.port_num, 2),
		ROW(IBV_QPS_INIT, R, max_dest_rd_atomic, 17), ROW(IBV_QPS_INIT, R, min_rnr_timer, 32),
		ROW(IBV_QPS_RTR, R, max_rd_atomic, 17), ROW(IBV_QPS_RTR, R, timeout, 32), ROW(IBV_QPS_RTR, R, retry_cnt, 8),
		ROW(IBV_QPS_RTR, R, rnr_retry, 8),
		ROW(IBV_QPS_RTS, ALL, cur_qp_state, IBV_QPS_SQD), ROW(IBV_QPS_RTS, R, min_rnr_timer, 32),
		/* RoCE alone; the last is an empty entry of the table */
		ROW(IBV_QPS_INIT, C | 8, ah_attr.is_global, 0), ROW(IBV_QPS_INIT, C | 8, ah_attr.grh.sgid_index, 200),
		{ IBV_QPS_INIT, C | 8, FIELD(ah_attr.grh.sgid_index), 9, ENODATA },
	};

	for (unsigned t = 0; t < ARRAY(types); t++) {
		struct ibv_qp *qp = a_qp(types[t]);

		for (unsigned i = 0; i < ARRAY(rows); i++) {
			const enum ibv_qp_state to = rows[i].from == IBV_QPS_RTS ? IBV_QPS_RTS : rows[i].from + 1;
			struct how how = how_of_type(types[t]);
			struct ibv_qp_attr a = attr_for(to, qp->qp_num, &how), before, after;
			struct ibv_qp_init_attr init;
			int err, mask = mask_for(types[t], to);

			if (!(rows[i].types >> t & 1) || (rows[i].types & 8 && !is_roce()))
				continue;
			bring_to(qp, rows[i].from);
			if (to == rows[i].from) {
				mask = IBV_QP_STATE | IBV_QP_CUR_STATE | (t < 2 ? IBV_QP_ACCESS_FLAGS : 0) | (t ? 0 : IBV_QP_MIN_RNR_TIMER);
				a.qp_access_flags = 0;
			}
			memset(&before, 0, sizeof(before));
			memset(&after, 0, sizeof(after));
			memcpy((uint8_t *)&a + rows[i].at, &rows[i].value, rows[i].size); /* little-endian */
			must(ibv_query_qp(qp, &before, IBV_QP_STATE, &init));
			err = ibv_modify_qp(qp, &a, mask);
			if (err != rows[i].err)
				fail_msg("type %u, row %u: %d", t, i, err);
			must(ibv_query_qp(qp, &after, IBV_QP_STATE, &init));
			assert_memory_equal(&before, &after, sizeof(after));
		}
		free_qp(qp);
	}
}

TEST(query_gives_what_was_set)
{
	for (unsigned i = 0; i < ARRAY(types); i++) {
		const bool ud = types[i] == IBV_QPT_UD, rc = types[i] == IBV_QPT_RC;
		struct ibv_qp *qp = a_qp(types[i]);
		struct how how = how_of_type(types[i]);
		struct ibv_qp_init_attr got;
		struct ibv_qp_attr want, a;

		for (unsigned s = IBV_QPS_INIT; s <= IBV_QPS_RTS; s++) {
			want = attr_for(s, 0x345, &how);
			want.rq_psn = 0xabcdef;
			want.sq_psn = 0xfedcba;
			want.qkey = 0x01020304;
			want.path_mtu = IBV_MTU_2048;
			want.max_dest_rd_atomic = 4;
			want.max_rd_atomic = 8;
			want.min_rnr_timer = 17;
			want.timeout = 13;
			want.retry_cnt = 5;
			want.rnr_retry = 4;
			must(ibv_modify_qp(qp, &want, mask_for(types[i], s)));
			memset(&a, 0, sizeof(a));
			memset(&got, 0, sizeof(got));
			must(ibv_query_qp(qp, &a, IBV_QP_STATE | IBV_QP_CAP, &got));
			assert_true(a.qp_state == s && a.cur_qp_state == s && a.port_num == 1 && a.pkey_index == 0);
			assert_true(got.send_cq == qp->send_cq && got.recv_cq == qp->recv_cq && !got.srq);
			assert_true(got.qp_type == types[i] && got.sq_sig_all == 1);
			assert_memory_equal(&a.cap, &got.cap, sizeof(a.cap));
			assert_true(ud ? a.qkey == 0x01020304 : (int)a.qp_access_flags == how.qp_access);
			if (s >= IBV_QPS_RTR && !ud) {
				assert_true(a.dest_qp_num == 0x345 && a.rq_psn == 0xabcdef && a.path_mtu == IBV_MTU_2048);
				assert_true(a.ah_attr.port_num == 1 && a.ah_attr.is_global == is_roce());
				assert_true(is_roce() || a.ah_attr.dlid == port.lid);
				assert_true(!is_roce() || (a.ah_attr.grh.hop_limit == 64 && a.ah_attr.grh.sgid_index == sgid));
				assert_true(!is_roce() || !memcmp(&a.ah_attr.grh.dgid, &gid, 16));
			}
			if (s >= IBV_QPS_RTR && rc)
				assert_true(a.max_dest_rd_atomic == 4 && a.min_rnr_timer == 17);
			if (s >= IBV_QPS_RTS)
				assert_int_equal(a.sq_psn, 0xfedcba);
			if (s >= IBV_QPS_RTS && rc)
				assert_true(a.timeout == 13 && a.retry_cnt == 5 && a.rnr_retry == 4 && a.max_rd_atomic == 8);
		}
		/* What RTS allows to change */
		want.qp_access_flags = IBV_ACCESS_LOCAL_WRITE;
		want.qkey = 0x0a0b0c0d;
		must(ibv_modify_qp(qp, &want, IBV_QP_STATE | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
		must(ibv_query_qp(qp, &a, IBV_QP_STATE, &got));
		assert_true(ud ? a.qkey == 0x0a0b0c0d : !(a.qp_access_flags & (ALL_ACCESS & ~IBV_ACCESS_LOCAL_WRITE)));
		free_qp(qp);
	}
}

/* Of the embedded switch: not in use */
TEST(vport)
{
	struct mlx5dv_port info;

	memset(&info, 0xff, sizeof(info));
	must(mlx5dv_query_port(ctx, 1, &info));
	assert_true(!info.flags && !info.vport);
	assert_int_equal(mlx5dv_query_port(ctx, 2, &info), EINVAL);
}

int main(void)
{
	return run_all(setup, teardown) + again_with("SOFTDEV_LINK", "ib");
}
