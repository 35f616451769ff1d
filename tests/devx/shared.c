/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shared.c: receive queues that many QPs share, made by commands: RMPs, linked and cyclic; limits and other events; answers that come
 * later; queues with tag matching; initiators and targets of dynamic connections. The queues themselves: tests/queue/srq.c, to.c.
 */
#include "rig.h"

#define SLOT 256u
#define USERS 2u

static const struct how by_verbs = {.verbs = true};
static struct side froms[USERS], tos[USERS];

/* ---- A shared queue and its buffers ---- */

static struct {
	struct inlay_srq *srq;
	uint8_t *buf;
	struct ibv_mr *mr;
	uint8_t *left[65]; /* buffers that it has not: one more than it has empty entries */
	uint32_t lefts;
} pool;

static void pool_open(struct inlay_srq *srq)
{
	pool.srq = srq;
	pool.buf = (uint8_t *)pages(ARRAY(pool.left) * SLOT);
	pool.mr = ibv_reg_mr(dev.pd, pool.buf, ARRAY(pool.left) * SLOT, ALL_ACCESS);
	for (pool.lefts = 0; pool.lefts <= inlay_srq_size(srq); pool.lefts++)
		pool.left[pool.lefts] = pool.buf + pool.lefts * SLOT;
	assert_non_null(pool.mr);
}

static void pool_close(void)
{
	must(ibv_dereg_mr(pool.mr));
	free(pool.buf);
}

/* A buffer, here in two pieces */
static int pool_give(void)
{
	const uint32_t half = rnd_below(SLOT);
	const uint64_t at = (uintptr_t)pool.left[pool.lefts - 1];
	struct ibv_sge sge[2] = {{at, half, pool.mr->lkey}, {at + half, SLOT - half, pool.mr->lkey}};

	int err = inlay_post_srq_recv(pool.srq, sge, 2, at);

	pool.lefts -= !err;
	return err;
}

/* The next receive of this QP: these bytes in its buffer, which is posted again, or another one, or none */
static void pool_take(struct inlay_cq *cq, uint32_t qpn, uint32_t len, uint32_t seed)
{
	const struct mlx5_cqe64 *cqe = cqe_wait(cq);
	uint8_t *at = (uint8_t *)(uintptr_t)inlay_srq_user(pool.srq, inlay_cqe_wqe_counter(cqe));
	struct ibv_sge other = {(uintptr_t)pool.left[pool.lefts - 1], SLOT, pool.mr->lkey};

	assert_true(inlay_cqe_opcode(cqe) == MLX5_CQE_RESP_SEND && (!qpn || inlay_cqe_qpn(cqe) == qpn));
	assert_true(inlay_cqe_byte_count(cqe) == len && differs(at, len, seed) == len);
	switch (rnd_below(3)) {
	case 0: must(inlay_srq_recycle(pool.srq, cqe)); break;
	case 1:
		must(inlay_srq_replace(pool.srq, cqe, &other, 1, other.addr));
		pool.left[pool.lefts - 1] = at;
		break;
	default:
		must(inlay_srq_release(pool.srq, cqe));
		pool.left[pool.lefts++] = at;
	}
	assert_int_equal(pool.lefts, inlay_srq_room(pool.srq) + 1);
	inlay_cq_advance(cq, 1);
}

/* Bursts over all users, whose entries come back in the order of the users; the queue is full before each */
static void pool_traffic(uint32_t rounds)
{
	uint32_t round, i, u, n, to[64];

	for (round = 0; round < rounds; round++) {
		while (inlay_srq_room(pool.srq))
			must(pool_give());
		assert_int_equal(pool_give(), -EAGAIN);
		inlay_srq_ring(pool.srq);
		n = 1 + rnd_below(inlay_srq_size(pool.srq) - (pool.srq->cnt != 0)); /* a list holds one back */
		for (i = 0; i < n; i++) {
			struct side *from = &froms[to[i] = rnd_below(USERS)];
			struct ibv_sge sge = piece(from, i * SLOT, 1 + i);

			fill(from->buf + i * SLOT, 1 + i, round * 64 + i);
			must(inlay_post_send(from->sq, &sge, 1, INLAY_SIGNALED | INLAY_RING));
		}
		for (u = 0; u < USERS; u++)
			for (i = 0; i < n; i++)
				if (to[i] == u) {
					pool_take(tos[u].rxcq, tos[u].qpn, 1 + i, round * 64 + i);
					take_sent(&froms[u], inlay_cqe_wqe_counter(cqe_wait(froms[u].cq)), NULL);
				}
	}
}

static void users_make(const struct how *first, const struct how *second)
{
	sides_make(&froms[0], &by_verbs, &tos[0], first);
	sides_make(&froms[1], &plain, &tos[1], second);
}

static void users_free(void)
{
	for (uint32_t u = 0; u < USERS; u++)
		sides_free(&froms[u], &tos[u]);
}

devx_test(rmps)
{
	static const struct {
		uint32_t flags, entries, rounds;
	} rows[] = {{0, 64, 12}, {0, 2, 12}, {INLAY_DEVX_SRQ_CYCLIC, 64, 12}, {INLAY_DEVX_SRQ_CYCLIC, 2, 12}};
	struct inlay_query_rmp_out out;
	struct inlay_devx_srq rmp;
	struct how how;

	for (size_t i = 0; i < ARRAY(rows); i++) {
		rig_empty(NULL);
		srq_open(&rmp, rows[i].entries, rows[i].flags);
		assert_int_equal(!rmp.srq.cnt, rows[i].flags == INLAY_DEVX_SRQ_CYCLIC);
		how = plain;
		how.srqn = rmp.srqn;
		pool_open(&rmp.srq);
		users_make(&how, &how);
		assert_true(inlay_devx_srq_destroy(&rmp) == -EBUSY && rmp.obj);
		pool_traffic(rows[i].rounds);
		users_free();
		must(inlay_devx_srq_destroy(&rmp));
		must(inlay_devx_srq_destroy(&rmp));
		assert_int_equal(context(&rmp, RMP, srqn, &out), -EINVAL);
		assert_int_equal(inlay_devx_srq_arm(&rmp, 1), -EINVAL);
		pool_close();
	}
}

/* ---- Limits ---- */

static struct mlx5dv_devx_event_channel *listen_to(struct mlx5dv_devx_obj *obj, uint16_t type, uint64_t cookie)
{
	struct mlx5dv_devx_event_channel *channel = channel_open(false);

	must(inlay_devx_subscribe(channel, obj, &type, 1, cookie));
	return channel;
}

static void event_of(struct mlx5dv_devx_event_channel *channel, uint8_t type, uint32_t number, uint64_t cookie)
{
	struct inlay_devx_event event;
	int err;

	await((err = inlay_devx_event_get(channel, &event)) != -EAGAIN);
	must(err);
	assert_true(event.type == type && event.number == number && event.cookie == cookie && event.bytes == 64);
}

static void no_event(struct mlx5dv_devx_event_channel *channel)
{
	struct inlay_devx_event event;

	settle();
	assert_int_equal(inlay_devx_event_get(channel, &event), -EAGAIN);
}

static uint32_t armed_at(struct inlay_devx_srq *rmp)
{
	struct inlay_query_rmp_out out;

	must(context(rmp, RMP, srqn, &out));
	return (uint32_t)inlay_wqc_get(&out.rmpc.wq, INLAY_WQC_LWM);
}

devx_test(limit)
{
	const uint64_t cookie = 0xfeedfacecafe;
	struct mlx5dv_devx_event_channel *channel;
	struct inlay_devx_srq rmp;
	struct how how = plain;

	srq_open(&rmp, 32, INLAY_DEVX_SRQ_CYCLIC);
	how.srqn = rmp.srqn;
	pool_open(&rmp.srq);
	sides_make(&froms[0], &plain, &tos[0], &how);
	channel = listen_to(rmp.obj, INLAY_EVENT_SRQ_RQ_LIMIT, cookie);
	for (uint32_t i = 0; i < 20; i++)
		must(pool_give());
	inlay_srq_ring(&rmp.srq);
	assert_true(inlay_devx_srq_arm(&rmp, 32) == -EINVAL && inlay_devx_srq_arm(&rmp, 65536) == -EINVAL);
	must(inlay_devx_srq_arm(&rmp, 31));
	event_of(channel, INLAY_EVENT_SRQ_RQ_LIMIT, rmp.srqn, cookie); /* at once where it is so already */
	must(inlay_devx_srq_arm(&rmp, 15));
	assert_int_equal(armed_at(&rmp), 15);
	/* 19, 18, ... 14 are left: the sixth message makes it fewer than 15 */
	for (uint32_t i = 0; i < 6; i++) {
		no_event(channel);
		fill(froms[0].buf, 1 + i, i);
		must(inlay_post_send_inline(froms[0].sq, froms[0].buf, 1 + i, INLAY_SIGNALED | INLAY_RING));
		take_sent(&froms[0], i, NULL);
		pool_take(tos[0].rxcq, tos[0].qpn, 1 + i, i);
	}
	event_of(channel, INLAY_EVENT_SRQ_RQ_LIMIT, rmp.srqn, cookie);
	assert_int_equal(armed_at(&rmp), 0);
	must(inlay_devx_srq_arm(&rmp, 5));
	must(inlay_devx_srq_arm(&rmp, 0));
	no_event(channel);
	mlx5dv_devx_destroy_event_channel(channel);
	sides_free(&froms[0], &tos[0]);
	must(inlay_devx_srq_destroy(&rmp));
	pool_close();
}

/* ---- Completions, and answers that come later ---- */

devx_test(completions)
{
	uint16_t comp = INLAY_EVENT_COMP;
	struct mlx5dv_devx_event_channel *full, *bare;
	struct inlay_devx_event event;
	static struct side a, b;

	sides_make(&a, &plain, &b, &plain);
	full = listen_to(a.scq.obj, INLAY_EVENT_COMP, 0x1111);
	bare = channel_open(true);
	must(inlay_devx_subscribe(bare, a.scq.obj, &comp, 1, 0x2222));
	/* Nothing is told of a CQ that is not armed */
	for (uint32_t i = 0; i < 6; i++) {
		if (i % 2)
			must(inlay_cq_arm(a.cq, 0));
		no_event(full);
		must(inlay_post_write_inline(a.sq, at_peer(&b, 0), b.mr->rkey, "word", 4, INLAY_SIGNALED | INLAY_RING));
		if (i % 2) {
			event_of(full, INLAY_EVENT_COMP, a.cq->cqn, 0x1111);
			inlay_cq_event(a.cq);
		}
		take_sent(&a, i, NULL);
		no_event(full);
	}
	/* The other channel keeps one until it is read, and says no more than the cookie */
	must(inlay_devx_event_get(bare, &event));
	assert_true(event.cookie == 0x2222 && event.bytes == 0 && event.number == 0);
	no_event(bare);
	mlx5dv_devx_destroy_event_channel(full);
	sides_free(&a, &b);
	no_event(bare);
	mlx5dv_devx_destroy_event_channel(bare);
}

/* A query answered later: it takes a buffer that holds the answer, and comes once */
devx_test(answered_later)
{
	struct mlx5dv_devx_cmd_comp *answers = mlx5dv_devx_create_cmd_comp(dev.ctx);
	static uint16_t many[17]; /* completions */
	struct mlx5dv_devx_event_channel *channel;
	const struct inlay_query_cq_out *out;
	struct inlay_devx_error error;
	struct inlay_devx_cq cq;
	struct inlay_cmd_in in;
	uint64_t wr_id, buf[64];

	assert_non_null(answers);
	must(fcntl(answers->fd, F_SETFL, fcntl(answers->fd, F_GETFL) | O_NONBLOCK));
	cq_open(&cq, 32, 128);
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_QUERY_CQ, cq.cq.cqn);
	for (size_t len = 0; len < 16; len += 5) {
		assert_int_equal(inlay_devx_query_async(cq.obj, &in, len, 0x110, 1, answers), -EINVAL);
		assert_int_equal(inlay_devx_query_async(cq.obj, &in, sizeof(in), len, 1, answers), -EINVAL);
	}
	assert_int_equal(inlay_devx_query_async(cq.obj, NULL, 16, 0x110, 1, answers), -EINVAL);
	channel = channel_open(false);
	assert_int_equal(inlay_devx_subscribe(channel, cq.obj, many, 0, 1), -EINVAL);
	assert_int_equal(inlay_devx_subscribe(channel, cq.obj, many, 17, 1), -EINVAL);
	must(inlay_devx_subscribe(channel, cq.obj, many, 16, 1));
	mlx5dv_devx_destroy_event_channel(channel);
	must(inlay_devx_query_async(cq.obj, &in, sizeof(in), 0x110, 77, answers));
	memset(&in, 0xff, sizeof(in)); /* not needed any more */
	await(inlay_devx_answer(answers, buf, INLAY_DEVX_ANSWER + 0x108, &wr_id, &error) == -ENOBUFS);
	assert_true(wr_id == UINT64_MAX && error.status == 0);
	must(inlay_devx_answer(answers, buf, INLAY_DEVX_ANSWER + 0x110, &wr_id, &error));
	assert_true(wr_id == 77 && error.err == 0);
	out = (const struct inlay_query_cq_out *)(const void *)(buf + 1);
	assert_int_equal(inlay_cqc_get(&out->cqc, INLAY_CQC_LOG_CQ_SIZE), 5);
	assert_int_equal(inlay_cqc_get(&out->cqc, INLAY_CQC_CQE_SZ), 1);
	assert_int_equal(inlay_devx_answer(answers, buf, sizeof(buf), &wr_id, &error), -EAGAIN);
	assert_true(wr_id == UINT64_MAX && error.status == 0 && error.err == -EAGAIN);
	/* Closed with one unread */
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_QUERY_CQ, cq.cq.cqn);
	must(inlay_devx_query_async(cq.obj, &in, sizeof(in), 0x110, 78, answers));
	mlx5dv_devx_destroy_cmd_comp(answers);
	must(inlay_devx_cq_destroy(&cq));
}

/* ---- Tag matching ---- */

devx_test(xrq)
{
	struct mlx5dv_devx_event_channel *channel;
	struct inlay_query_hca_cap_out cap;
	struct inlay_devx_srq_attr attr;
	struct inlay_query_xrq_out out;
	struct inlay_devx_qp_attr want;
	struct inlay_devx_path path = path_usual();
	struct inlay_devx_qp command;
	struct inlay_devx_srq x;
	struct inlay_devx_cq cq;
	uint32_t tags, rndv, i;

	must(inlay_devx_query_cap(dev.ctx, INLAY_CAP_GENERAL, &cap, NULL));
	rndv = (uint32_t)inlay_hca_cap_get(&cap.cap, INLAY_HCA_CAP_RNDV_OFFLOAD_RC);
	if (!inlay_hca_cap_get(&cap.cap, INLAY_HCA_CAP_TAG_MATCHING)) {
		print_message("# skipped: the device has no tag matching\n");
		skip();
	}
	cq_open(&cq, 256, 64);
	for (tags = 1; tags <= 64; tags += 21) {
		attr = srq_want(64, 64, 0);
		attr.cqn = cq.cq.cqn;
		attr.tags = tags;
		attr.user_index = 0x123456;
		attr.flags = (rndv && tags & 1 ? INLAY_DEVX_SRQ_RNDV : 0) | (tags & 2 ? INLAY_DEVX_SRQ_DC : 0);
		must(inlay_devx_srq_create(&x, dev.ctx, &attr));
		assert_true(1u << x.log_list >= 2 * tags);
		must(context(&x, XRQ, srqn, &out));
		const struct { enum inlay_xrqc_field field; uint64_t value; } said[] = {
			{INLAY_XRQC_STATE, 0}, {INLAY_XRQC_TOPOLOGY, INLAY_XRQ_TOPOLOGY_TAG_MATCHING}, {INLAY_XRQC_CQN, cq.cq.cqn},
			{INLAY_XRQC_USER_INDEX, 0x123456}, {INLAY_XRQC_OFFLOAD, rndv && tags & 1}, {INLAY_XRQC_DC, tags >> 1 & 1},
			{INLAY_XRQC_LOG_MATCHING_LIST_SZ, x.log_list},
		};
		for (i = 0; i < ARRAY(said); i++)
			if (inlay_xrqc_get(&out.xrqc, said[i].field) != said[i].value)
				fail_msg("%u tags: field 0x%x", tags, said[i].field);
		assert_int_equal(inlay_devx_cq_destroy(&cq), -EBUSY);
		channel = listen_to(x.obj, INLAY_EVENT_SRQ_RQ_LIMIT, tags);
		assert_int_equal(inlay_devx_srq_arm(&x, 64), -EINVAL);
		/* Nothing is posted: at once */
		must(inlay_devx_srq_arm(&x, 5));
		event_of(channel, INLAY_EVENT_SRQ_RQ_LIMIT, x.srqn, tags);
		mlx5dv_devx_destroy_event_channel(channel);
		want = qp_on(INLAY_QP_ST_RC, cq.cq.cqn, 64, x.srqn);
		must(inlay_devx_qp_create(&command, dev.ctx, &want));
		must(qp_to_itself(&command, &path));
		assert_int_equal(inlay_devx_srq_destroy(&x), -EBUSY);
		must(inlay_devx_qp_destroy(&command));
		must(inlay_devx_srq_destroy(&x));
		must(inlay_devx_srq_destroy(&x));
		assert_int_equal(context(&x, XRQ, srqn, &out), -EINVAL);
		assert_int_equal(inlay_devx_srq_arm(&x, 1), -EINVAL);
	}
	must(inlay_devx_cq_destroy(&cq));
}

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

/* ---- Dynamic connections ---- */

#define DC_KEY 0x1234567890abcdef
#define TARGETS 2
#define INITIATORS 2

static struct inlay_devx_qp dci[INITIATORS];
static struct inlay_devx_cq scq;

static void dci_done(uint32_t d, uint8_t syndrome)
{
	const struct mlx5_cqe64 *cqe = cqe_wait(&scq.cq);
	const uint8_t got = inlay_cqe_is_error(cqe) ? inlay_cqe_syndrome(cqe) : 0;

	if (got != syndrome)
		fail_msg("DCI %u: syndrome 0x%x, not 0x%x", d, got, syndrome);
	assert_int_equal(inlay_cqe_qpn(cqe), dci[d].qpn);
	assert_true(0 < inlay_sq_release(&dci[d].sq, cqe));
	inlay_cq_advance(&scq.cq, 1);
}

devx_test(dynamic)
{
	struct inlay_devx_dct dct[TARGETS];
	struct inlay_devx_cq rcq[TARGETS];
	struct inlay_devx_path path = path_usual();
	struct inlay_devx_dct_attr attr;
	struct inlay_devx_qp_attr want;
	struct inlay_query_hca_cap_out cap;
	struct inlay_devx_srq rmp;
	struct remote place;
	struct inlay_av av;
	struct ibv_sge sge;
	/* A stream that fails is flushed until it is reset, and another goes on meanwhile. reset: the stream; bad: the key */
	static const struct { uint32_t reset, stream, bad; uint8_t syndrome; } streams[] = {
		{0, 1, 1, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR}, {0, 1, 0, MLX5_CQE_SYNDROME_WR_FLUSH_ERR}, {0, 2, 0, 0}, {1, 1, 0, 0},
		{0, 1, 1, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR}, {0, 2, 0, 0}, {1, 1, 0, 0},
	};
	static uint8_t buf[3 * 4096] __attribute__((aligned(4096)));
	struct ibv_mr *mr;
	uint32_t i, d, t, len;
	bool ooo; /* some of them */

	must(inlay_devx_query_cap(dev.ctx, INLAY_CAP_GENERAL, &cap, NULL));
	ooo = inlay_hca_cap_get(&cap.cap, INLAY_HCA_CAP_DP_ORDERING_OOO_ALL_DC);
	cq_open(&scq, 64, 64);
	srq_open(&rmp, 64, 0);
	pool_open(&rmp.srq);
	mr = made(ibv_reg_mr(dev.pd, buf, sizeof(buf), ALL_ACCESS));
	attr = (struct inlay_devx_dct_attr){.pdn = rig.pdn, .srqn = rmp.srqn};
	for (t = 0; t < TARGETS; t++) {
		cq_open(&rcq[t], 64, t ? 128 : 64);
		attr.cqn = rcq[t].cq.cqn;
		attr.dc_key = DC_KEY + t;
		attr.flags = INLAY_DEVX_DCT_USER_INDEX | (t && ooo ? INLAY_DEVX_DCT_OOO : 0);
		attr.user_index = 0xabc0 + t;
		must(inlay_devx_dct_create(&dct[t], dev.ctx, &attr, &path));
	}
	for (d = 0; d < INITIATORS; d++) {
		want = qp_on(INLAY_QP_ST_DCI, scq.cq.cqn, 64, rmp.srqn);
		want.flags = d && ooo ? INLAY_DEVX_QP_OOO : 0;
		want.log_streams = d ? 2 : 0;
		want.log_errored_streams = d ? 1 : 0;
		must(inlay_devx_qp_create(&dci[d], dev.ctx, &want));
		must(inlay_devx_qp_connect(&dci[d], &path, NULL));
	}
	assert_int_equal(inlay_devx_srq_destroy(&rmp), -EBUSY);
	assert_int_equal(inlay_devx_cq_destroy(&rcq[0]), -EBUSY);
	sge.addr = (uintptr_t)buf;
	sge.lkey = mr->lkey;
	place.addr = (uintptr_t)buf + 4096;
	place.rkey = mr->rkey;
	for (i = 0; i < 24; i++) {
		d = i & 1;
		t = i >> 1 & 1;
		sge.length = len = 1 + rnd_below(SLOT);
		av = to_qpn(dct[t].dctn);
		inlay_av_to_dct(&av, dct[t].dctn, DC_KEY + t);
		fill(buf, len, i + 1);
		if (i % 3) {
			must(pool_give());
			inlay_srq_ring(&rmp.srq);
			must(wr_post(&dci[d].sq, MLX5_OPCODE_SEND, wr_to(wr_sge(&sge, 1), &av),
				     INLAY_SIGNALED | INLAY_RING | (d ? INLAY_STREAM(i & 3) : 0)));
			dci_done(d, 0);
			assert_int_equal(inlay_from_be32(cqe_wait(&rcq[t].cq)->srqn_uidx) & 0xffffff, 0xabc0 + t);
			pool_take(&rcq[t].cq, 0, len, i + 1);
		} else {
			must(wr_post(&dci[d].sq, MLX5_OPCODE_RDMA_WRITE, wr_there(wr_to(wr_sge(&sge, 1), &av), &place),
				     INLAY_SIGNALED | INLAY_RING));
			dci_done(d, 0);
			assert_int_equal(differs(buf + 4096, len, i + 1), len);
		}
		assert_true(!inlay_cq_peek(&rcq[0].cq) && !inlay_cq_peek(&rcq[1].cq));
	}
	av = to_qpn(dct[0].dctn);
	inlay_av_to_dct(&av, dct[0].dctn, DC_KEY);
	for (i = 0; i < ARRAY(streams); i++) {
		if (streams[i].reset)
			must(inlay_devx_qp_reset_stream(&dci[1], (uint16_t)streams[i].reset));
		if (softdev_present())
			assert_int_equal(inlay_devx_qp_reset_stream(&dci[1], 3), -EINVAL); /* has not failed */
		if (!streams[i].syndrome)
			must(pool_give());
		inlay_srq_ring(&rmp.srq);
		sge.lkey = mr->lkey ^ (streams[i].bad << 8);
		must(wr_post(&dci[1].sq, MLX5_OPCODE_SEND, wr_to(wr_sge(&sge, 1), &av),
			     INLAY_SIGNALED | INLAY_RING | INLAY_STREAM(streams[i].stream)));
		dci_done(1, streams[i].syndrome);
		if (!streams[i].syndrome)
			pool_take(&rcq[0].cq, 0, len, 24);
	}
	sge.lkey = mr->lkey;
	assert_int_equal(dci[1].state, INLAY_QP_STATE_RTS);
	/* The wrong key: nobody answers, the initiator is in error, and gets up again */
	inlay_av_to_dct(&av, dct[0].dctn, 1);
	must(wr_post(&dci[0].sq, MLX5_OPCODE_SEND, wr_to(wr_sge(&sge, 1), &av), INLAY_SIGNALED | INLAY_RING));
	while (trapping() && !inlay_cq_peek(&scq.cq))
		softdev_run();
	dci_done(0, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
	must(inlay_devx_qp_modify(&dci[0], INLAY_QP_STATE_RST, NULL, NULL));
	must(inlay_devx_qp_connect(&dci[0], &path, NULL));
	must(pool_give());
	inlay_srq_ring(&rmp.srq);
	inlay_av_to_dct(&av, dct[0].dctn, DC_KEY);
	must(wr_post(&dci[0].sq, MLX5_OPCODE_SEND, wr_to(wr_sge(&sge, 1), &av), INLAY_SIGNALED | INLAY_RING));
	dci_done(0, 0);
	pool_take(&rcq[0].cq, 0, len, 24);
	for (d = 0; d < INITIATORS; d++)
		must(inlay_devx_qp_destroy(&dci[d]));
	for (t = 0; t < TARGETS; t++) {
		must(inlay_devx_dct_destroy(&dct[t]));
		must(inlay_devx_dct_destroy(&dct[t]));
		must(inlay_devx_cq_destroy(&rcq[t]));
	}
	must(inlay_devx_srq_destroy(&rmp));
	must(inlay_devx_cq_destroy(&scq));
	must(ibv_dereg_mr(mr));
	pool_close();
}

int main(void)
{
	return rig_here() && (run_all(rig_open, rig_close) || again_with("SOFTDEV_LINK", "ib") ||
			      again_with("SOFTDEV_MANUAL", "1") || again_trapped());
}
