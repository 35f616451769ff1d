/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shared.c: queues by device commands that many share: RMPs, linked and cyclic, under QPs of
 * several CQs, in random order; limits; an SRQ of verbs under QPs of both kinds; queues with tag
 * matching; datagrams; initiators and targets of dynamic connections.
 */
#include "common.h"
#include "rig.h"

#define SLOT 256u
#define USERS 3

static struct how by_commands; /* all 0 */
static const struct how by_verbs = {.verbs = true};

static struct how on_srqn(uint32_t srqn)
{
	struct how how = by_commands;

	how.srqn = srqn;
	return how;
}

/* ---- A shared queue and its buffers ---- */

static struct {
	struct inlay_srq *srq;
	uint8_t *buf;
	struct ibv_mr *mr;
	uint32_t posted, taken;
} pool;

static void pool_open(struct inlay_srq *srq)
{
	pool.srq = srq;
	pool.buf = (uint8_t *)pages((size_t)srq->wqe_cnt * SLOT);
	pool.mr = ibv_reg_mr(dev.pd, pool.buf, (size_t)srq->wqe_cnt * SLOT, ALL_ACCESS);
	assert_non_null(pool.mr);
	pool.posted = pool.taken = 0;
}

static void pool_close(void)
{
	must(ibv_dereg_mr(pool.mr));
	free(pool.buf);
}

/* An entry's buffer is the one of its number */
static int pool_give(void)
{
	uint32_t index = inlay_srq_index(pool.srq), half;
	struct ibv_sge sge[2];
	int err;

	half = rnd_below(SLOT);
	sge[0].addr = (uintptr_t)pool.buf + index * SLOT;
	sge[0].length = half;
	sge[1].addr = sge[0].addr + half;
	sge[1].length = SLOT - half;
	sge[0].lkey = sge[1].lkey = pool.mr->lkey;
	err = inlay_post_srq_recv(pool.srq, sge, 2);
	pool.posted += !err;
	return err;
}

static void pool_back(const struct mlx5_cqe64 *cqe)
{
	assert_true(inlay_srq_release(pool.srq, cqe) >= 0);
}

/*
 * Takes up to n completions of a user's receives, all of them numbered from *next on, and gives
 * their entries back in any order
 */
static uint32_t pool_take(struct side *s, uint32_t user, uint32_t *next, uint32_t n)
{
	const struct mlx5_cqe64 *cqes[8];
	uint32_t got, i, j, len;

	got = inlay_cq_peek_many(s->rxcq, cqes, n);
	for (i = 0; i < got; i++) {
		assert_int_equal(inlay_cqe_opcode(cqes[i]), MLX5_CQE_RESP_SEND);
		assert_int_equal(inlay_cqe_qpn(cqes[i]), s->qpn);
		len = inlay_cqe_byte_count(cqes[i]);
		assert_int_equal(len, 1 + *next % SLOT);
		assert_true(inlay_srq_entry(pool.srq, cqes[i]) < pool.srq->wqe_cnt);
		assert_int_equal(differs(pool.buf + inlay_srq_entry(pool.srq, cqes[i]) * SLOT, len, *next * USERS + user),
				 len);
		++*next;
	}
	for (i = got; i > 0; i--) {
		j = rnd_below(i);
		pool_back(cqes[j]);
		cqes[j] = cqes[i - 1];
	}
	if (got)
		inlay_cq_advance(s->rxcq, got);
	pool.taken += got;
	return got;
}

/*
 * Random giving, sending and taking, through all users; no more is sent than has been given. At the
 * end all has come
 */
static void pool_traffic(struct side *from, struct side *to, uint32_t messages)
{
	uint32_t sent_by[USERS] = {0, 0, 0}, got_by[USERS] = {0, 0, 0}, done_by[USERS] = {0, 0, 0};
	uint32_t sends = 0, got = 0, n, u, burst;
	double end = now() + DEADLINE;
	struct ibv_sge sge;

	while (got < messages) {
		for (n = rnd_below(12); n && inlay_srq_room(pool.srq); n--)
			must(pool_give());
		inlay_srq_ring(pool.srq);
		u = rnd_below(USERS);
		for (burst = rnd_below(8); burst && sends < messages && pool.posted > sends; burst--) {
			if (inlay_sq_pending(from[u].sq) > 32)
				break;
			fill(from[u].buf + sent_by[u] % 64 * SLOT, 1 + sent_by[u] % SLOT, sent_by[u] * USERS + u);
			sge = piece(&from[u], sent_by[u] % 64 * SLOT, 1 + sent_by[u] % SLOT);
			must(inlay_post_send(from[u].sq, &sge, 1, INLAY_SIGNALED));
			sent_by[u]++;
			sends++;
			inlay_sq_ring(from[u].sq);
		}
		step();
		u = rnd_below(USERS);
		got += pool_take(&to[u], u, &got_by[u], 1 + rnd_below(8));
		while (inlay_cq_peek(from[u].cq)) {
			take_sent(&from[u], inlay_cqe_wqe_counter(inlay_cq_peek(from[u].cq)), NULL);
			done_by[u]++;
		}
		if (now() > end)
			fail_msg("%u of %u messages within %d s", got, messages, (int)DEADLINE);
	}
	for (u = 0; u < USERS; u++) {
		for (; done_by[u] < sent_by[u]; done_by[u]++)
			take_sent(&from[u], inlay_cqe_wqe_counter(cqe_wait(from[u].cq)), NULL);
		assert_int_equal(got_by[u], sent_by[u]);
		assert_null(inlay_cq_peek(to[u].rxcq));
	}
	assert_int_equal(inlay_srq_pending(pool.srq), pool.posted - pool.taken);
}

static struct side froms[USERS], tos[USERS];

static void rmp_of_kind(uint32_t flags, uint32_t entries, uint32_t messages)
{
	struct inlay_query_rmp_out out;
	struct inlay_devx_rmp rmp;
	struct how how;
	uint32_t u, i;

	rig_empty(NULL);
	rmp_open(&rmp, entries, flags);
	assert_int_equal(!rmp.srq.cnt, flags == INLAY_DEVX_RMP_CYCLIC);
	how = on_srqn(rmp.rmpn);
	pool_open(&rmp.srq);
	/* One peer is of verbs */
	for (u = 0; u < USERS; u++)
		sides_make(&froms[u], u ? &by_commands : &by_verbs, &tos[u], &how);
	assert_int_equal(inlay_devx_rmp_destroy(&rmp), -EBUSY);
	assert_non_null(rmp.obj);
	pool_traffic(froms, tos, messages);
	/* Full: one entry is never posted */
	for (i = inlay_srq_pending(&rmp.srq); i < entries - 1; i++)
		must(pool_give());
	assert_int_equal(pool_give(), -EAGAIN);
	assert_int_equal(inlay_srq_room(&rmp.srq), 0);
	inlay_srq_ring(&rmp.srq);
	pool_traffic(froms, tos, entries - 1);
	must(context(&rmp, RMP, rmpn, &out));
	assert_int_equal(inlay_rmpc_get(&out.rmpc, INLAY_RMPC_STATE), INLAY_WQ_STATE_RDY);
	assert_int_equal(inlay_wqc_get(&out.rmpc.wq, INLAY_WQC_WQ_TYPE),
			 flags ? INLAY_WQ_CYCLIC : INLAY_WQ_LINKED_LIST);
	assert_int_equal(inlay_wqc_get(&out.rmpc.wq, INLAY_WQC_PD), rig.pdn);
	assert_int_equal(1u << inlay_wqc_get(&out.rmpc.wq, INLAY_WQC_LOG_WQ_SZ), entries);
	assert_int_equal(inlay_wqc_get(&out.rmpc.wq, INLAY_WQC_LOG_WQ_STRIDE), 6);
	assert_int_equal(inlay_wqc_get(&out.rmpc.wq, INLAY_WQC_WQ_UMEM_ID), rig.umem.id);
	for (u = 0; u < USERS; u++)
		sides_free(&froms[u], &tos[u]);
	must(inlay_devx_rmp_destroy(&rmp));
	must(inlay_devx_rmp_destroy(&rmp));
	assert_int_equal(context(&rmp, RMP, rmpn, &out), -EINVAL);
	assert_int_equal(inlay_devx_rmp_arm(&rmp, 1), -EINVAL);
	pool_close();
}

static void rmps(void **state)
{
	uint32_t flags;

	(void)state;
	for (flags = 0; flags <= INLAY_DEVX_RMP_CYCLIC; flags++) {
		rmp_of_kind(flags, 64, 600);
		rmp_of_kind(flags, 2, 60);
	}
}

/* ---- Limits ---- */

static struct mlx5dv_devx_event_channel *listen_to(struct mlx5dv_devx_obj *obj, uint16_t type, uint64_t cookie)
{
	struct mlx5dv_devx_event_channel *channel;

	channel = channel_open(false);
	must(inlay_devx_subscribe(channel, obj, &type, 1, cookie));
	return channel;
}

static void event_of(struct mlx5dv_devx_event_channel *channel, uint8_t type, uint32_t number, uint64_t cookie)
{
	struct inlay_devx_event event;
	double end = now() + DEADLINE;
	int err;

	while ((err = inlay_devx_event_get(channel, &event)) == -EAGAIN) {
		if (now() > end)
			fail_msg("no event within %d s", (int)DEADLINE);
		step();
	}
	must(err);
	assert_int_equal(event.type, type);
	assert_int_equal(event.number, number);
	assert_true(event.cookie == cookie);
	assert_int_equal(event.bytes, 64);
}

static void no_event(struct mlx5dv_devx_event_channel *channel)
{
	struct inlay_devx_event event;

	settle();
	assert_int_equal(inlay_devx_event_get(channel, &event), -EAGAIN);
}

static uint32_t armed_at(struct inlay_devx_rmp *rmp)
{
	struct inlay_query_rmp_out out;

	must(context(rmp, RMP, rmpn, &out));
	return (uint32_t)inlay_wqc_get(&out.rmpc.wq, INLAY_WQC_LWM);
}

static void limit(void **state)
{
	const uint64_t cookie = 0xfeedfacecafe;
	struct mlx5dv_devx_event_channel *channel;
	struct inlay_devx_rmp rmp;
	uint32_t i, next = 0;
	struct how how;

	(void)state;
	rmp_open(&rmp, 32, INLAY_DEVX_RMP_CYCLIC);
	how = on_srqn(rmp.rmpn);
	pool_open(&rmp.srq);
	sides_make(&froms[0], &by_commands, &tos[0], &how);
	channel = listen_to(rmp.obj, INLAY_EVENT_SRQ_RQ_LIMIT, cookie);
	for (i = 0; i < 20; i++)
		must(pool_give());
	inlay_srq_ring(&rmp.srq);
	assert_int_equal(inlay_devx_rmp_arm(&rmp, 32), -EINVAL);
	assert_int_equal(inlay_devx_rmp_arm(&rmp, 65536), -EINVAL);
	must(inlay_devx_rmp_arm(&rmp, 31));
	event_of(channel, INLAY_EVENT_SRQ_RQ_LIMIT, rmp.rmpn, cookie); /* at once where it is so already */
	must(inlay_devx_rmp_arm(&rmp, 15));
	assert_int_equal(armed_at(&rmp), 15);
	/* 19, 18, ... 14 are left: the sixth message makes it fewer than 15 */
	for (i = 0; i < 6; i++) {
		no_event(channel);
		fill(froms[0].buf, 1 + i, i * USERS);
		must(inlay_post_send_inline(froms[0].sq, froms[0].buf, 1 + i, INLAY_SIGNALED | INLAY_RING));
		take_sent(&froms[0], i, NULL);
		(void)cqe_wait(tos[0].rxcq);
		assert_int_equal(pool_take(&tos[0], 0, &next, 1), 1);
	}
	event_of(channel, INLAY_EVENT_SRQ_RQ_LIMIT, rmp.rmpn, cookie);
	assert_int_equal(armed_at(&rmp), 0);
	must(inlay_devx_rmp_arm(&rmp, 5));
	must(inlay_devx_rmp_arm(&rmp, 0));
	no_event(channel);
	mlx5dv_devx_destroy_event_channel(channel);
	sides_free(&froms[0], &tos[0]);
	must(inlay_devx_rmp_destroy(&rmp));
	pool_close();
}

/* ---- An SRQ of verbs ---- */

static void srq_of_verbs(void **state)
{
	struct ibv_srq_init_attr attr;
	struct how devx, verbs;
	struct inlay_srq srq;
	struct ibv_srq *ib;
	uint32_t srqn = 0, u;

	(void)state;
	memset(&attr, 0, sizeof(attr));
	attr.attr.max_wr = 63;
	attr.attr.max_sge = 3;
	ib = ibv_create_srq(dev.pd, &attr);
	assert_non_null(ib);
	must(inlay_srq_from_srq(&srq, ib, NULL, NULL));
	must(inlay_srqn_from_srq(&srqn, ib));
	pool_open(&srq);
	devx = on_srqn(srqn);
	verbs = by_verbs;
	verbs.srq = ib;
	for (u = 0; u < USERS; u++)
		sides_make(&froms[u], u ? &by_verbs : &by_commands, &tos[u], u == 1 ? &verbs : &devx);
	pool_traffic(froms, tos, 300);
	assert_int_equal(ibv_destroy_srq(ib), EBUSY);
	for (u = 0; u < USERS; u++)
		sides_free(&froms[u], &tos[u]);
	must(ibv_destroy_srq(ib));
	pool_close();
}

/* ---- Tag matching ---- */

static void xrq(void **state)
{
	struct mlx5dv_devx_event_channel *channel;
	struct inlay_query_hca_cap_out cap;
	struct inlay_devx_xrq_attr attr;
	struct inlay_query_xrq_out out;
	struct inlay_devx_qp_attr want;
	struct inlay_devx_path path = path_usual();
	struct inlay_devx_qp command;
	struct inlay_devx_xrq x;
	struct inlay_devx_cq cq;
	uint32_t tags, rndv;

	(void)state;
	must(inlay_devx_query_cap(dev.ctx, INLAY_CAP_GENERAL, &cap, NULL));
	rndv = (uint32_t)inlay_hca_cap_get(&cap.cap.general, INLAY_HCA_CAP_RNDV_OFFLOAD_RC);
	if (!inlay_hca_cap_get(&cap.cap.general, INLAY_HCA_CAP_TAG_MATCHING)) {
		print_message("# skipped: the device has no tag matching\n");
		skip();
	}
	cq_open(&cq, 256, 64);
	memset(&attr, 0, sizeof(attr));
	attr.shared = rmp_want(64, 64, 0);
	attr.cqn = cq.cq.cqn;
	for (tags = 1; tags <= 64; tags += 21) {
		rig.rings -= 4096;
		rig.records -= 64;
		attr.shared = rmp_want(64, 64, 0);
		attr.tags = tags;
		attr.user_index = 0x123456;
		attr.flags = (rndv && tags & 1 ? INLAY_DEVX_XRQ_RNDV : 0) | (tags & 2 ? INLAY_DEVX_XRQ_DC : 0);
		must(inlay_devx_xrq_create(&x, dev.ctx, &attr));
		assert_true(1u << x.log_list >= 2 * tags);
		must(context(&x, XRQ, xrqn, &out));
		assert_int_equal(inlay_xrqc_get(&out.xrqc, INLAY_XRQC_STATE), 0);
		assert_int_equal(inlay_xrqc_get(&out.xrqc, INLAY_XRQC_TOPOLOGY), INLAY_XRQ_TOPOLOGY_TAG_MATCHING);
		assert_int_equal(inlay_xrqc_get(&out.xrqc, INLAY_XRQC_CQN), cq.cq.cqn);
		assert_int_equal(inlay_xrqc_get(&out.xrqc, INLAY_XRQC_USER_INDEX), 0x123456);
		assert_int_equal(inlay_xrqc_get(&out.xrqc, INLAY_XRQC_OFFLOAD), rndv && tags & 1);
		assert_int_equal(inlay_xrqc_get(&out.xrqc, INLAY_XRQC_DC), tags >> 1 & 1);
		assert_int_equal(inlay_xrqc_get(&out.xrqc, INLAY_XRQC_LOG_MATCHING_LIST_SZ), x.log_list);
		assert_int_equal(inlay_devx_cq_destroy(&cq), -EBUSY);
		channel = listen_to(x.obj, INLAY_EVENT_SRQ_RQ_LIMIT, tags);
		assert_int_equal(inlay_devx_xrq_arm(&x, 64), -EINVAL);
		/* Nothing is posted: at once */
		must(inlay_devx_xrq_arm(&x, 5));
		event_of(channel, INLAY_EVENT_SRQ_RQ_LIMIT, x.xrqn, tags);
		mlx5dv_devx_destroy_event_channel(channel);
		want = qp_want(cq.cq.cqn, cq.cq.cqn, 64, 0);
		want.rq_type = INLAY_RQ_TYPE_SHARED;
		want.srqn = x.xrqn;
		must(inlay_devx_qp_create(&command, dev.ctx, &want));
		must(inlay_devx_qp_connect_self(&command, &path));
		assert_int_equal(inlay_devx_xrq_destroy(&x), -EBUSY);
		must(inlay_devx_qp_destroy(&command));
		must(inlay_devx_xrq_destroy(&x));
		must(inlay_devx_xrq_destroy(&x));
		assert_int_equal(context(&x, XRQ, xrqn, &out), -EINVAL);
		assert_int_equal(inlay_devx_xrq_arm(&x, 1), -EINVAL);
	}
	must(inlay_devx_cq_destroy(&cq));
}

/* ---- Datagrams ---- */

static struct inlay_av to_qpn(uint32_t qpn)
{
	struct ibv_ah_attr way = own_path();
	struct ibv_ah *ah = ibv_create_ah(dev.pd, &way);
	struct inlay_av av;

	assert_non_null(ah);
	must(inlay_av_from_ah(&av, ah, qpn, QKEY));
	must(ibv_destroy_ah(ah));
	return av;
}

static void datagram(struct side *a, struct side *b, uint32_t len, uint32_t seed)
{
	const bool imm = seed & 1, in_wqe = len <= 100 && seed & 2;
	struct inlay_av av = to_qpn(b->qpn);
	const struct mlx5_cqe64 *cqe;
	uint32_t n, index = inlay_sq_index(a->sq);
	struct ibv_sge sge[3];

	memset(b->buf, 0, INLAY_GRH + len + 1);
	n = cut(b, 0, INLAY_GRH + len, sge);
	must(inlay_post_recv(b->rq, sge, n));
	inlay_rq_ring(b->rq);
	fill(a->buf + QUARTER, len, seed);
	n = cut(a, QUARTER, len, sge);
	if (in_wqe)
		must(inlay_post_ud_send_inline(a->sq, &av, a->buf + QUARTER, len, INLAY_SIGNALED));
	else if (imm)
		must(inlay_post_ud_send_imm(a->sq, &av, seed, sge, n, INLAY_SIGNALED));
	else
		must(inlay_post_ud_send(a->sq, &av, sge, n, INLAY_SIGNALED));
	inlay_sq_ring(a->sq);
	take_sent(a, index, NULL);
	cqe = cqe_wait(b->rxcq);
	assert_int_equal(inlay_cqe_opcode(cqe), imm && !in_wqe ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND);
	assert_int_equal(inlay_cqe_byte_count(cqe), INLAY_GRH + len);
	assert_int_equal(inlay_cqe_src_qpn(cqe), a->qpn);
	if (imm && !in_wqe)
		assert_int_equal(inlay_cqe_imm_be(cqe), seed);
	assert_int_equal(differs(b->buf + INLAY_GRH, len, seed), len);
	assert_int_equal(b->buf[INLAY_GRH + len], 0);
	assert_true(0 < inlay_rq_release(b->rq, cqe));
	inlay_cq_advance(b->rxcq, 1);
}

static void datagrams(void **state)
{
	struct how devx = by_commands, verbs = by_verbs;
	static struct side a, b, c;
	struct side *all[3] = {&a, &b, &c};
	struct inlay_query_qp_out q;
	uint32_t i, from;

	(void)state;
	devx.type = verbs.type = INLAY_QP_ST_UD;
	side_make(&a, &devx);
	side_make(&b, &verbs);
	devx.blueflame = true;
	side_make(&c, &devx);
	/* A UD QP has no peer */
	for (i = 0; i < 3; i++)
		side_connect(all[i], &a);
	must(context(&a.qp, QP, qpn, &q));
	assert_int_equal(inlay_qpc_get(&q.qpc, INLAY_QPC_STATE), INLAY_QP_STATE_RTS);
	assert_int_equal(inlay_qpc_get(&q.qpc, INLAY_QPC_ST), INLAY_QP_ST_UD);
	assert_int_equal(inlay_qpc_get(&q.qpc, INLAY_QPC_Q_KEY), QKEY);
	for (i = 0; i < 100; i++) {
		from = rnd_below(3);
		datagram(all[from], all[(from + 1 + rnd_below(2)) % 3],
			 rnd_below(2) ? rnd_below(128) : rnd_below(1025), i + 1);
	}
	sides_free(&a, &b);
	side_free(&c);
}

/* ---- Dynamic connections ---- */

#define TARGETS 2
#define INITIATORS 3

static void dynamic(void **state)
{
	struct inlay_devx_qp dci[INITIATORS];
	struct inlay_devx_dct dct[TARGETS];
	struct inlay_devx_cq scq, rcq[TARGETS];
	struct inlay_devx_path path = path_usual();
	struct inlay_devx_dct_attr attr;
	struct inlay_devx_qp_attr want;
	struct inlay_query_hca_cap_out cap;
	const struct mlx5_cqe64 *cqe;
	struct inlay_devx_rmp rmp;
	struct inlay_cursor at;
	struct inlay_av av;
	struct ibv_sge sge;
	/* A stream that fails is flushed until it is reset, and another goes on meanwhile */
	static const struct {
		uint32_t reset, stream, bad;
		uint8_t syndrome;
	} streams[] = {
		{0, 1, 1, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR}, {0, 1, 0, MLX5_CQE_SYNDROME_WR_FLUSH_ERR}, {0, 2, 0, 0}, {1, 1, 0, 0},
		{0, 1, 1, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR}, {0, 2, 0, 0}, {1, 1, 0, 0},
	};
	static uint8_t buf[3 * 4096] __attribute__((aligned(4096)));
	struct ibv_mr *mr;
	uint32_t i, d, t, len;
	bool ooo; /* some of them */

	(void)state;
	must(inlay_devx_query_cap(dev.ctx, INLAY_CAP_GENERAL, &cap, NULL));
	ooo = inlay_hca_cap_get(&cap.cap.general, INLAY_HCA_CAP_DP_ORDERING_OOO_ALL_DC);
	cq_open(&scq, 64, 64);
	rmp_open(&rmp, 64, 0);
	pool_open(&rmp.srq);
	mr = ibv_reg_mr(dev.pd, buf, sizeof(buf), ALL_ACCESS);
	assert_non_null(mr);
	memset(&attr, 0, sizeof(attr));
	attr.pdn = rig.pdn;
	attr.srqn = rmp.rmpn;
	for (t = 0; t < TARGETS; t++) {
		cq_open(&rcq[t], 64, t ? 128 : 64);
		attr.cqn = rcq[t].cq.cqn;
		attr.dc_key = 0x1234567890abcdef + t;
		attr.flags = INLAY_DEVX_DCT_USER_INDEX | (t && ooo ? INLAY_DEVX_DCT_OOO : 0);
		attr.user_index = 0xabc0 + t;
		must(inlay_devx_dct_create(&dct[t], dev.ctx, &attr, &path));
	}
	for (d = 0; d < INITIATORS; d++) {
		want = qp_want(scq.cq.cqn, scq.cq.cqn, 64, 0);
		want.type = INLAY_QP_ST_DCI;
		want.rq_type = INLAY_RQ_TYPE_SHARED;
		want.srqn = rmp.rmpn;
		want.flags = d && ooo ? INLAY_DEVX_QP_OOO : 0;
		want.log_streams = d ? 2 : 0;
		want.log_errored_streams = d ? 1 : 0;
		must(inlay_devx_qp_create(&dci[d], dev.ctx, &want));
		must(inlay_devx_qp_connect(&dci[d], &path, NULL));
	}
	assert_int_equal(inlay_devx_rmp_destroy(&rmp), -EBUSY);
	assert_int_equal(inlay_devx_cq_destroy(&rcq[0]), -EBUSY);
	for (i = 0; i < 100; i++) {
		d = rnd_below(INITIATORS);
		t = rnd_below(TARGETS);
		len = 1 + rnd_below(SLOT);
		av = to_qpn(dct[t].dctn);
		inlay_av_to_dct(&av, dct[t].dctn, 0x1234567890abcdef + t);
		fill(buf, len, i + 1);
		sge.addr = (uintptr_t)buf;
		sge.length = len;
		sge.lkey = mr->lkey;
		if (i & 1) {
			must(pool_give());
			inlay_srq_ring(&rmp.srq);
			must(inlay_post_to_send(&dci[d].sq, &av, &sge, 1, INLAY_SIGNALED | (d ? INLAY_STREAM(i & 3) : 0)));
		} else {
			memset(buf + 4096, 0, SLOT + 1);
			must(inlay_sq_begin(&dci[d].sq, 2, &at));
			at = inlay_seg_av(at, &av);
			at = inlay_seg_raddr(at, (uintptr_t)buf + 4096, mr->rkey);
			at = inlay_seg_data(at, sge.addr, sge.length, sge.lkey);
			inlay_sq_commit(&dci[d].sq, at, MLX5_OPCODE_RDMA_WRITE, 0, INLAY_SIGNALED, 0);
		}
		inlay_sq_ring(&dci[d].sq);
		cqe = cqe_wait(&scq.cq);
		assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_REQ);
		assert_int_equal(inlay_cqe_qpn(cqe), dci[d].qpn);
		assert_true(0 < inlay_sq_release(&dci[d].sq, cqe));
		inlay_cq_advance(&scq.cq, 1);
		if (i & 1) {
			cqe = cqe_wait(&rcq[t].cq);
			assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_RESP_SEND);
			assert_int_equal(inlay_cqe_byte_count(cqe), len);
			assert_int_equal(inlay_from_be32(cqe->srqn_uidx) & 0xffffff, 0xabc0 + t);
			assert_int_equal(differs(pool.buf + inlay_srq_entry(pool.srq, cqe) * SLOT, len, i + 1), len);
			pool_back(cqe);
			inlay_cq_advance(&rcq[t].cq, 1);
		} else {
			assert_int_equal(differs(buf + 4096, len, i + 1), len);
			assert_int_equal(buf[4096 + len], 0);
		}
		assert_null(inlay_cq_peek(&rcq[0].cq));
		assert_null(inlay_cq_peek(&rcq[1].cq));
	}
	assert_int_equal(inlay_srq_pending(&rmp.srq), 0);
	av = to_qpn(dct[0].dctn);
	inlay_av_to_dct(&av, dct[0].dctn, 0x1234567890abcdef);
	for (i = 0; i < ARRAY(streams); i++) {
		if (streams[i].reset)
			must(inlay_devx_qp_reset_stream(&dci[1], (uint16_t)streams[i].reset));
		if (softdev_present())
			assert_int_equal(inlay_devx_qp_reset_stream(&dci[1], 3), -EINVAL); /* has not failed */
		if (!streams[i].syndrome)
			must(pool_give());
		inlay_srq_ring(&rmp.srq);
		sge.lkey = mr->lkey ^ (streams[i].bad << 8);
		must(inlay_post_to_send(&dci[1].sq, &av, &sge, 1, INLAY_SIGNALED | INLAY_RING | INLAY_STREAM(streams[i].stream)));
		cqe = cqe_wait(&scq.cq);
		if ((inlay_cqe_is_error(cqe) ? inlay_cqe_syndrome(cqe) : 0) != streams[i].syndrome)
			fail_msg("inlay_devx_qp_reset_stream, post %u: syndrome 0x%x", i, inlay_cqe_syndrome(cqe));
		assert_true(0 < inlay_sq_release(&dci[1].sq, cqe));
		inlay_cq_advance(&scq.cq, 1);
		if (streams[i].syndrome)
			continue;
		pool_back(cqe_wait(&rcq[0].cq));
		inlay_cq_advance(&rcq[0].cq, 1);
	}
	sge.lkey = mr->lkey;
	assert_int_equal(dci[1].state, INLAY_QP_STATE_RTS);
	/* The wrong key: nobody answers, the initiator is in error, and gets up again */
	av = to_qpn(dct[0].dctn);
	inlay_av_to_dct(&av, dct[0].dctn, 1);
	must(inlay_post_ud_send(&dci[0].sq, &av, &sge, 1, INLAY_SIGNALED));
	inlay_sq_ring(&dci[0].sq);
	while (trapping() && !inlay_cq_peek(&scq.cq))
		softdev_run();
	cqe = cqe_wait(&scq.cq);
	assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_REQ_ERR);
	assert_int_equal(inlay_cqe_syndrome(cqe), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
	assert_true(0 < inlay_sq_release(&dci[0].sq, cqe));
	inlay_cq_advance(&scq.cq, 1);
	must(inlay_devx_qp_to_reset(&dci[0]));
	must(inlay_devx_qp_connect(&dci[0], &path, NULL));
	must(pool_give());
	inlay_srq_ring(&rmp.srq);
	inlay_av_to_dct(&av, dct[0].dctn, 0x1234567890abcdef);
	must(inlay_post_ud_send(&dci[0].sq, &av, &sge, 1, INLAY_SIGNALED));
	inlay_sq_ring(&dci[0].sq);
	assert_int_equal(inlay_cqe_opcode(cqe_wait(&scq.cq)), MLX5_CQE_REQ);
	assert_int_equal(inlay_cqe_opcode(cqe_wait(&rcq[0].cq)), MLX5_CQE_RESP_SEND);
	for (d = 0; d < INITIATORS; d++)
		must(inlay_devx_qp_destroy(&dci[d]));
	for (t = 0; t < TARGETS; t++) {
		must(inlay_devx_dct_destroy(&dct[t]));
		must(inlay_devx_dct_destroy(&dct[t]));
		must(inlay_devx_cq_destroy(&rcq[t]));
	}
	must(inlay_devx_rmp_destroy(&rmp));
	must(inlay_devx_cq_destroy(&scq));
	must(ibv_dereg_mr(mr));
	pool_close();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		devx_test(rmps),
		devx_test(limit),
		devx_test(srq_of_verbs),
		devx_test(xrq),
		devx_test(datagrams),
		devx_test(dynamic),
	};

	if (!rig_here())
		return 0;
	return cmocka_run_group_tests_name("devx_shared", tests, rig_open, rig_close) ||
	       again_with("SOFTDEV_LINK", "ib") ||
	       again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
