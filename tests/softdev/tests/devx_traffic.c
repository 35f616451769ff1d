/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * devx_traffic.c: what queues by device commands carry: to and from QPs of verbs, in one process
 * and between two, from shared receive queues of both kinds, over DC; doorbells of the wrong page,
 * CQs of all shapes, and what is told when something happens to them. All WQEs are written and all
 * CQEs are read by hand.
 */
#include "rig_devx.h"

static struct dcq scq, rcq;

static bool trapping(void)
{
	const char *env = getenv("SOFTDEV_TRAP");

	return env && *env == '1';
}

static void open_cqs(unsigned log, unsigned size)
{
	empty_arena();
	open_cq(&scq, log, size);
	open_cq(&rcq, log, size);
}

static void close_cqs(void)
{
	must(destroy(scq.obj));
	must(destroy(rcq.obj));
}

/* ---- to verbs and back ---- */

/* A QP of verbs whose peer is one by command; each in its own way */
static void connect_side(struct side *s, struct dqp *q)
{
	walk(q, s->qp->qp_num);
	bring_up(s->qp, q->qpn, &usual);
}

static void all_kinds(struct dqp *q, struct side *s)
{
	uint8_t *mine = arena.p + part(8192), *back = arena.p + part(8192);
	const uint32_t lkey = arena.mr->lkey;
	uint64_t *word = (uint64_t *)(void *)s->buf, *old = (uint64_t *)(void *)(arena.p + part(64));
	struct mlx5_cqe64 *c;
	uint16_t at;

	/* A write, and a read of it */
	fill(mine, 8192, 7);
	memset(s->buf, 0, 16384);
	at = do_write(q, mine, lkey, 8000, (uintptr_t)s->buf + 100, s->mr->rkey);
	sent(&scq, q->qpn, at);
	assert_memory_equal(s->buf + 100, mine, 8000);
	at = do_read(q, back, lkey, 8000, (uintptr_t)s->buf + 100, s->mr->rkey);
	c = sent(&scq, q->qpn, at);
	assert_int_equal(be32toh(c->byte_cnt), 8000);
	assert_memory_equal(back, mine, 8000);
	/* Sends either way */
	recv_at(s, 21, 4096, 5000);
	at = do_send(q, mine, lkey, 4500);
	sent(&scq, q->qpn, at);
	assert_int_equal(expect_op(s->rcq, 21, IBV_WC_RECV).byte_len, 4500);
	assert_memory_equal(s->buf + 4096, mine, 4500);
	do_recv(q, back, lkey, 5000);
	{
		struct ibv_sge sg = sge(s, 64, 3000);
		struct ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, 5, &sg, 1, s, 0);

		fill(s->buf, 8192, 99);
		wr.imm_data = htobe32(0xfeedbeef);
		post_done(s, &wr);
	}
	c = poll_wait(&rcq);
	assert_int_equal(cqe_op(c), MLX5_CQE_RESP_SEND_IMM);
	assert_int_equal(be32toh(c->byte_cnt), 3000);
	assert_int_equal(be32toh(c->imm_inval_pkey), 0xfeedbeef);
	assert_int_equal(be32toh(c->srqn_uidx) & 0xffffff, 0xabcde);
	assert_int_equal(be16toh(c->wqe_counter), (uint16_t)(q->rq_pi - 1));
	assert_memory_equal(back, s->buf + 64, 3000);
	/* Atomics: there, and from there */
	*word = 1000;
	at = do_add(q, old, lkey, 7, (uintptr_t)word, s->mr->rkey);
	sent(&scq, q->qpn, at);
	assert_int_equal(*old, 1000);
	assert_int_equal(*word, 1007);
	{
		struct ibv_sge sg = sge(s, 128, 8);
		struct ibv_send_wr wr = request(IBV_WR_ATOMIC_CMP_AND_SWP, 6, &sg, 1, s, 0);

		*old = 55;
		wr.wr.atomic.remote_addr = (uintptr_t)old;
		wr.wr.atomic.rkey = arena.mr->rkey;
		wr.wr.atomic.compare_add = 55;
		wr.wr.atomic.swap = 66;
		post_done(s, &wr);
		assert_int_equal(*(uint64_t *)(void *)(s->buf + 128), 55);
		assert_int_equal(*old, 66);
	}
}

static void with_verbs(UNUSED void **state)
{
	struct side s;
	struct dqp q;
	struct cmd c;

	open_cqs(6, 64);
	open_side(&s, &usual);
	open_qp(&q, RC, &scq, &rcq, 0);
	connect_side(&s, &q);
	for (int i = 0; i < 40; i++) {
		arena.used = 65536; /* the queues are before that */
		all_kinds(&q, &s);
	}
	c = qp_query(&q);
	assert_int_equal(OUT(QPC + 0x5a0, 16), q.pi & 0xffff);
	assert_int_equal(OUT(QPC + 0x5b0, 16), q.pi & 0xffff);
	assert_int_equal(OUT(QPC + 0x5c0, 32), q.rq_pi);
	assert_int_equal(OUT(QPC + 0x5e0, 32), q.rq_pi);
	assert_int_equal(OUT(QPC + 0x3c8, 24), 0x123456 + 4 * 40);
	must(destroy(q.obj));
	close_side(&s);
	close_cqs();
}

/*
 * A CQ of verbs under a QP by command: libmlx5 does not know the QP, so that it is read by hand as
 * well
 */
static void on_verbs_cq(UNUSED void **state)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 15, NULL, NULL, 0);
	struct mlx5dv_cq dv = { 0 };
	struct mlx5dv_obj obj = { .cq = { cq, &dv } };
	struct dcq view;
	struct dqp q;
	struct cmd c;
	uint8_t *a, *b;

	empty_arena();
	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ));
	view = (struct dcq){ .cqn = dv.cqn, .log = 4, .cqe_size = dv.cqe_size, .buf = dv.buf, .dbrec = (volatile uint32_t *)dv.dbrec };
	c = qp_command(&q, RC, 4, 0, dv.cqn, dv.cqn, 0);
	q.obj = must_create(&c, &q.qpn);
	assert_int_equal(ibv_destroy_cq(cq), EBUSY);
	/* Its own peer, by its port's address */
	walk(&q, q.qpn);
	a = arena.p + part(4096);
	b = arena.p + part(4096);
	for (unsigned i = 0; i < 50; i++) {
		fill(a, 4096, i);
		sent(&view, q.qpn, do_write(&q, a, arena.mr->lkey, 4096, (uintptr_t)b, arena.mr->rkey));
		assert_memory_equal(a, b, 4096);
	}
	must(destroy(q.obj));
	must(ibv_destroy_cq(cq));
}

/* A QP whose peer is itself needs no address; one that is forced to loop back needs none either */
static void without_address(UNUSED void **state)
{
	struct dqp q[2];
	uint8_t *a, *b;

	open_cqs(4, 64);
	a = arena.p + part(4096);
	b = arena.p + part(4096);
	for (unsigned forced = 0; forced < 2; forced++) {
		for (unsigned i = 0; i < 2; i++)
			open_qp(&q[i], RC, &scq, &rcq, 0);
		for (unsigned i = 0; i < 2; i++) {
			struct cmd c = to_init(q[i].qpn, RC);

			assert_int_equal(modify(q[i].obj, &c), OK);
			c = to_rtr(q[i].qpn, RC, q[forced ? !i : i].qpn);
			/* Nothing of the way, but for the port */
			for (unsigned bit = 0; bit < 0x160; bit++)
				put(c.in, PATH + bit, 1, 0);
			IN(PATH + 0x128, 8, 1);
			MODIFY(q[i].obj, PATH, 1, forced, OK);
			c = to_rts(q[i].qpn, RC);
			assert_int_equal(modify(q[i].obj, &c), OK);
		}
		fill(a, 4096, forced);
		sent(&scq, q[0].qpn, do_write(&q[0], a, arena.mr->lkey, 4096, (uintptr_t)b, arena.mr->rkey));
		assert_memory_equal(a, b, 4096);
		for (unsigned i = 0; i < 2; i++)
			must(destroy(q[i].obj));
	}
	close_cqs();
}

static void unreliable(UNUSED void **state)
{
	struct dqp q[2];
	uint8_t *a, *b;
	struct mlx5_cqe64 *c;

	open_cqs(6, 64);
	a = arena.p + part(4096);
	b = arena.p + part(4096);
	for (unsigned st = UC; st <= UD; st++) {
		for (unsigned i = 0; i < 2; i++)
			open_qp(&q[i], st, &scq, &rcq, 0);
		walk(&q[0], q[1].qpn);
		walk(&q[1], q[0].qpn);
		fill(a, 4096, st);
		memset(b, 0, 4096);
		do_recv(&q[1], b, arena.mr->lkey, 2048);
		if (st == UC) {
			do_send(&q[0], a, arena.mr->lkey, 1000);
		} else {
			/* The address vector as libmlx5 has it of the same port */
			struct ibv_ah_attr attr = { .is_global = is_roce(), .grh = { .dgid = gid, .sgid_index = sgid, .hop_limit = 64 },
						    .dlid = port.lid, .port_num = 1 };
			struct ibv_ah *ah = ibv_create_ah(pd, &attr);
			struct mlx5dv_ah dv = { 0 };
			struct mlx5dv_obj obj = { .ah = { ah, &dv } };
			struct mlx5_wqe_av av;
			uint8_t *at = wqe(&q[0]) + 16;

			must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH));
			memcpy(&av, dv.av, sizeof(av));
			av.dqp_dct = htobe32(q[1].qpn | MLX5_EXTENDED_UD_AV);
			av.key.qkey.qkey = htobe32(QKEY);
			memcpy(at, &av, sizeof(av));
			post_one(&q[0], MLX5_OPCODE_SEND, seg_data(at + sizeof(av), a, 1000, arena.mr->lkey), 0);
			must(ibv_destroy_ah(ah));
		}
		sent(&scq, q[0].qpn, 0);
		c = poll_wait(&rcq);
		assert_int_equal(be32toh(c->byte_cnt), st == UD ? 1040 : 1000);
		assert_memory_equal(b + (st == UD ? 40 : 0), a, 1000);
		for (unsigned i = 0; i < 2; i++)
			must(destroy(q[i].obj));
	}
	close_cqs();
}

/* A message longer than the bound of the QP, which only the program sets */
static void longest_message(UNUSED void **state)
{
	struct dqp q;
	struct cmd c;

	open_cqs(4, 64);
	open_qp(&q, RC, &scq, &rcq, 0);
	c = to_init(q.qpn, RC);
	assert_int_equal(modify(q.obj, &c), OK);
	c = to_rtr(q.qpn, RC, q.qpn);
	MODIFY(q.obj, QPC + 0x43, 5, 10, OK);
	c = to_rts(q.qpn, RC);
	assert_int_equal(modify(q.obj, &c), OK);
	sent(&scq, q.qpn, do_write(&q, arena.p, arena.mr->lkey, 1024, (uintptr_t)arena.p + ARENA / 2, arena.mr->rkey));
	do_write(&q, arena.p, arena.mr->lkey, 1025, (uintptr_t)arena.p + ARENA / 2, arena.mr->rkey);
	failed(&scq, false, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
	assert_int_equal(qp_state(&q), ERR);
	must(destroy(q.obj));
	close_cqs();
}

/* ---- two processes ---- */

/* Writes what the other then reads back; both at once, one of them through verbs */
static void one_of_two(const struct peer *other, bool verbs)
{
	struct card mine, theirs;
	struct side s;
	struct dqp q;
	uint8_t *buf, *got;

	open_cqs(6, 64);
	buf = arena.p + part(65536);
	got = arena.p + part(65536);
	if (verbs) {
		open_side(&s, &usual);
		mine = card_of(&s);
	} else {
		open_qp(&q, RC, &scq, &rcq, 0);
		mine = (struct card){ q.qpn, arena.mr->rkey, (uintptr_t)buf };
	}
	theirs = exchange(other, mine);
	if (verbs)
		bring_up(s.qp, theirs.qpn, &usual);
	else
		walk(&q, theirs.qpn);
	theirs = exchange(other, mine);
	for (unsigned i = 0; i < 20; i++) {
		if (verbs) {
			struct side there = { .buf = (uint8_t *)(uintptr_t)theirs.addr, .mr = &(struct ibv_mr){ .rkey = theirs.rkey } };
			struct ibv_sge sg = sge(&s, HALF, 30000);
			struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, i, &sg, 1, &there, 100);

			fill(s.buf + HALF, 30000, i);
			post_done(&s, &wr);
			wr = request(IBV_WR_RDMA_READ, i, &(struct ibv_sge){(uintptr_t)s.buf + HALF + 32768, 30000, s.mr->lkey},
				     1, &there, 100);
			post_done(&s, &wr);
			assert_memory_equal(s.buf + HALF, s.buf + HALF + 32768, 30000);
		} else {
			fill(buf + 32768, 30000, i);
			sent(&scq, q.qpn, do_write(&q, buf + 32768, arena.mr->lkey, 30000, theirs.addr + 100, theirs.rkey));
			sent(&scq, q.qpn, do_read(&q, got, arena.mr->lkey, 30000, theirs.addr + 100, theirs.rkey));
			assert_memory_equal(got, buf + 32768, 30000);
		}
	}
	theirs = exchange(other, mine);
	if (verbs)
		close_side(&s);
	else
		must(destroy(q.obj));
	close_cqs();
}

/* In a program of its own: a child of this one has no device */
static int peer(const char *how)
{
	void *state = NULL;
	int err = devx_setup(&state);

	if (!err)
		one_of_two(&first_process, !strcmp(how, "verbs"));
	return err || devx_teardown(&state);
}

static void two_processes(UNUSED void **state)
{
	if (trapping())
		return;
	for (unsigned verbs = 0; verbs < 2; verbs++) {
		struct peer other = start_peer(verbs ? "verbs" : "devx", NULL);

		one_of_two(&other, false);
		must(end_peer(&other));
	}
}

/* ---- shared receive queues ---- */

/* The device follows the links of a linked list, and takes the entries of a cyclic ring in order */
static void shared_queue(UNUSED void **state)
{
	for (unsigned type = 0; type < 2; type++) {
		struct dqp rx[2], tx[2];
		struct drmp r;
		uint8_t *a, *b;
		struct cmd c;
		/* An order that is not that of the places */
		static const unsigned order[] = { 0, 5, 2, 7, 4, 1, 6, 3 };

		open_cqs(6, 64);
		a = arena.p + part(4096);
		b = arena.p + part(8 * 4096);
		open_rmp(&r, type, 3);
		for (unsigned i = 0; i < 2; i++) {
			open_qp(&rx[i], RC, &scq, &rcq, r.rmpn);
			open_qp(&tx[i], RC, &scq, &rcq, 0);
			walk(&rx[i], tx[i].qpn);
			walk(&tx[i], rx[i].qpn);
		}
		for (unsigned i = 0; i < 8; i++)
			rmp_entry(&r, order[i], order[(i + 1) % 8], b + order[i] * 4096, arena.mr->lkey, 4096);
		rmp_post(&r, 8);
		for (unsigned n = 0; n < 100; n++) {
			unsigned want = type ? n % 8 : order[n % 8], who = n / 3 % 2;
			struct mlx5_cqe64 *e;

			fill(a, 2000, n);
			sent(&scq, tx[who].qpn, do_send(&tx[who], a, arena.mr->lkey, 2000));
			e = poll_wait(&rcq);
			assert_int_equal(cqe_op(e), MLX5_CQE_RESP_SEND);
			assert_int_equal(be16toh(e->wqe_counter), type ? n : want);
			assert_int_equal(be32toh(e->sop_drop_qpn) & 0xffffff, rx[who].qpn);
			assert_memory_equal(b + want * 4096, a, 2000);
			rmp_post(&r, 1);
		}
		c = command(0x90f, 0x10, 0x110);
		IN(0x48, 24, r.rmpn);
		assert_int_equal(query(r.obj, &c), OK);
		assert_int_equal(OUT(WQ + 0xc0, 32), 100);
		assert_int_equal(OUT(WQ + 0xe0, 32), 108);
		for (unsigned i = 0; i < 2; i++) {
			must(destroy(rx[i].obj));
			must(destroy(tx[i].obj));
		}
		must(destroy(r.obj));
		close_cqs();
	}
}

/* The limit is told of once; arming it anew is what the program does */
static void limit_event(UNUSED void **state)
{
	struct mlx5dv_devx_event_channel *ch = a_channel(true);
	struct dqp rx, tx;
	struct drmp r;
	struct cmd c;

	open_cqs(6, 64);
	open_rmp(&r, 1, 3);
	open_qp(&rx, RC, &scq, &rcq, r.rmpn);
	open_qp(&tx, RC, &scq, &rcq, 0);
	walk(&rx, tx.qpn);
	walk(&tx, rx.qpn);
	for (unsigned i = 0; i < 8; i++)
		rmp_entry(&r, i, (i + 1) % 8, arena.p + ARENA / 2, arena.mr->lkey, 4096);
	rmp_post(&r, 8);
	subscribe(ch, r.obj, 0x14, 77);
	for (int round = 0; round < 3; round++) {
		c = command(0x90d, 0x110, 0x10);
		IN(0x40, 4, 1);
		IN(0x48, 24, r.rmpn);
		IN(0xbf, 1, 1);
		IN(RMPC + 0x8, 4, 1);
		MODIFY(r.obj, WQ + 0x30, 16, 6, OK);
		for (unsigned i = 0; i < 2; i++) {
			sent(&scq, tx.qpn, do_send(&tx, arena.p, arena.mr->lkey, 64));
			poll_wait(&rcq);
		}
		expect_no_devx(ch);
		for (unsigned i = 0; i < 2; i++) {
			sent(&scq, tx.qpn, do_send(&tx, arena.p, arena.mr->lkey, 64));
			poll_wait(&rcq);
		}
		expect_devx(ch, 77, 0x14, r.rmpn);
		expect_no_devx(ch);
		rmp_post(&r, 4);
	}
	must(destroy(rx.obj));
	must(destroy(tx.obj));
	must(destroy(r.obj));
	close_cqs();
	mlx5dv_devx_destroy_event_channel(ch);
}

/* ---- errors and their events ---- */

static void last_wqe(UNUSED void **state)
{
	struct mlx5dv_devx_event_channel *ch = a_channel(false);
	struct mlx5dv_devx_async_event_hdr hdr;
	struct dqp q[3];
	struct drmp r;

	open_cqs(6, 64);
	open_rmp(&r, 1, 3);
	for (unsigned i = 0; i < 3; i++) {
		open_qp(&q[i], RC, &scq, &rcq, i == 2 ? 0 : r.rmpn);
		subscribe(ch, q[i].obj, 0x13, (uint64_t)q[i].qpn << 16 | 5);
	}
	walk(&q[0], q[0].qpn);
	/* From RTS, from RST; not twice, and not without a shared queue */
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(stop(&q[i], TO_ERR), OK);
		assert_true(readable(ch->fd, PATIENCE * 1000));
		assert_int_equal(mlx5dv_devx_get_event(ch, &hdr, sizeof(hdr)), 8);
		assert_int_equal(hdr.cookie, (uint64_t)q[i].qpn << 16 | 5);
		assert_int_equal(stop(&q[i], TO_ERR), OK);
	}
	assert_int_equal(stop(&q[2], TO_ERR), OK);
	expect_no_devx(ch);
	for (unsigned i = 0; i < 3; i++)
		must(destroy(q[i].obj));
	must(destroy(r.obj));
	close_cqs();
	mlx5dv_devx_destroy_event_channel(ch);
}

/* What is posted is flushed; after a reset all begins anew */
static void flushed(UNUSED void **state)
{
	struct dqp q;

	open_cqs(6, 64);
	open_qp(&q, RC, &scq, &rcq, 0);
	walk(&q, q.qpn);
	for (unsigned i = 0; i < 5; i++)
		do_recv(&q, arena.p + ARENA / 2, arena.mr->lkey, 64);
	assert_int_equal(stop(&q, TO_ERR), OK);
	for (unsigned i = 0; i < 5; i++)
		failed(&rcq, true, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	do_send(&q, arena.p, arena.mr->lkey, 64);
	failed(&scq, false, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	assert_int_equal(stop(&q, TO_RST), OK);
	q.pi = q.rq_pi = 0;
	q.dbrec[0] = q.dbrec[1] = 0;
	walk(&q, q.qpn);
	do_recv(&q, arena.p + ARENA / 2, arena.mr->lkey, 64);
	sent(&scq, q.qpn, do_send(&q, arena.p, arena.mr->lkey, 64));
	assert_int_equal(cqe_op(poll_wait(&rcq)), MLX5_CQE_RESP_SEND);
	must(destroy(q.obj));
	close_cqs();
}

static void error_events(UNUSED void **state)
{
	struct mlx5dv_devx_event_channel *ch = a_channel(true);
	struct dqp q[2];

	open_cqs(6, 64);
	for (unsigned i = 0; i < 2; i++)
		open_qp(&q[i], RC, &scq, &rcq, 0);
	walk(&q[0], q[1].qpn);
	walk(&q[1], q[0].qpn);
	subscribe(ch, q[1].obj, 0x11, 1);
	subscribe(ch, q[1].obj, 0x10, 2);
	subscribe(ch, q[0].obj, 0x11, 3);
	/* A key that the responder does not have: it is told, and so is the requester by its CQE */
	do_write(&q[0], arena.p, arena.mr->lkey, 64, (uintptr_t)arena.p, arena.mr->rkey ^ 0xff);
	failed(&scq, false, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
	expect_devx(ch, 1, 0x11, q[1].qpn);
	expect_no_devx(ch);
	assert_int_equal(qp_state(&q[0]), ERR);
	assert_int_equal(qp_state(&q[1]), ERR);
	for (unsigned i = 0; i < 2; i++)
		must(destroy(q[i].obj));
	close_cqs();
	mlx5dv_devx_destroy_event_channel(ch);
}

/* ---- CQs ---- */

static void completion_events(UNUSED void **state)
{
	struct mlx5dv_devx_event_channel *ch = a_channel(true);
	struct dqp q;
	struct cmd c;

	open_cqs(6, 64);
	open_qp(&q, RC, &scq, &rcq, 0);
	walk(&q, q.qpn);
	subscribe(ch, scq.obj, 0, 42);
	/* Nothing without arming, nothing through another page's register */
	sent(&scq, q.qpn, do_write(&q, arena.p, arena.mr->lkey, 8, (uintptr_t)arena.p + 64, arena.mr->rkey));
	expect_no_devx(ch);
	arm(&scq, 0, uar2);
	sent(&scq, q.qpn, do_write(&q, arena.p, arena.mr->lkey, 8, (uintptr_t)arena.p + 64, arena.mr->rkey));
	expect_no_devx(ch);
	for (unsigned sn = 0; sn < 5; sn++) {
		arm(&scq, sn & 3, uar);
		usleep(2000);
		c = command(0x402, 0x10, 0x110);
		IN(0x48, 24, scq.cqn);
		assert_int_equal(query(scq.obj, &c), OK);
		assert_int_equal(OUT(CQC + 0x14, 4), 9);
		sent(&scq, q.qpn, do_write(&q, arena.p, arena.mr->lkey, 8, (uintptr_t)arena.p + 64, arena.mr->rkey));
		expect_devx(ch, 42, 0, scq.cqn);
		assert_int_equal(query(scq.obj, &c), OK);
		assert_int_equal(OUT(CQC + 0x14, 4), 0xa);
		assert_int_equal(OUT(CQC + 0x108, 24), scq.ci);
		assert_int_equal(OUT(CQC + 0x168, 24), scq.ci);
		assert_int_equal(OUT(CQC + 0x148, 24), scq.ci);
		sent(&scq, q.qpn, do_write(&q, arena.p, arena.mr->lkey, 8, (uintptr_t)arena.p + 64, arena.mr->rkey));
		expect_no_devx(ch);
	}
	must(destroy(q.obj));
	close_cqs();
	mlx5dv_devx_destroy_event_channel(ch);
}

/* The first arm of a CQ whose record is in memory that the device may only read */
static void arm_read_only(UNUSED void **state)
{
	struct mlx5dv_devx_event_channel *ch = a_channel(true);
	struct mlx5dv_devx_umem *ro = mlx5dv_devx_umem_reg(ctx, arena.p, ARENA, 0);
	struct dcq one;
	struct dqp q;
	struct cmd c;

	assert_non_null(ro);
	open_cqs(6, 64);
	c = cq_command(&one, 4, 64);
	IN(CQC + 0x20, 32, ro->umem_id);
	one.obj = must_create(&c, &one.cqn);
	assert_int_equal(one.dbrec[1], 0);
	open_qp(&q, RC, &one, &rcq, 0);
	walk(&q, q.qpn);
	subscribe(ch, one.obj, 0, 9);
	arm(&one, 0, uar);
	sent(&one, q.qpn, do_write(&q, arena.p, arena.mr->lkey, 8, (uintptr_t)arena.p + 64, arena.mr->rkey));
	expect_devx(ch, 9, 0, one.cqn);
	must(destroy(q.obj));
	must(destroy(one.obj));
	must(mlx5dv_devx_umem_dereg(ro));
	close_cqs();
	mlx5dv_devx_destroy_event_channel(ch);
}

static void overrun(UNUSED void **state)
{
	struct mlx5dv_devx_event_channel *ch = a_channel(true);
	struct dqp q;
	struct cmd c;

	open_cqs(6, 64);
	for (unsigned ignore = 0; ignore < 2; ignore++) {
		struct dcq tiny;

		c = cq_command(&tiny, 2, 64);
		IN(CQC + 0xe, 1, ignore);
		tiny.obj = must_create(&c, &tiny.cqn);
		subscribe(ch, tiny.obj, 4, 13);
		open_qp(&q, RC, &tiny, &rcq, 0);
		walk(&q, q.qpn);
		for (unsigned i = 0; i < 5; i++)
			do_write(&q, arena.p, arena.mr->lkey, 8, (uintptr_t)arena.p + 64, arena.mr->rkey);
		if (ignore) {
			expect_no_devx(ch);
			assert_int_equal(qp_state(&q), RTS);
		} else {
			expect_devx(ch, 13, 4, tiny.cqn);
			c = command(0x402, 0x10, 0x110);
			IN(0x48, 24, tiny.cqn);
			assert_int_equal(query(tiny.obj, &c), OK);
			assert_int_equal(OUT(CQC, 4), 9);
			assert_int_equal(qp_state(&q), ERR);
		}
		must(destroy(q.obj));
		must(destroy(tiny.obj));
	}
	close_cqs();
	mlx5dv_devx_destroy_event_channel(ch);
}

/* Every CQE in one slot, also of a ring of many: the last tells how far it went */
static void collapsed(UNUSED void **state)
{
	open_cqs(6, 64);
	for (unsigned log = 0; log < 4; log += 3) {
		struct dcq one;
		struct dqp q;
		struct cmd c = cq_command(&one, log, 64);
		uint16_t last = 0;
		double end;

		IN(CQC + 0xb, 1, 1);
		IN(CQC + 0xe, 1, 1);
		one.obj = must_create(&c, &one.cqn);
		open_qp(&q, RC, &one, &rcq, 0);
		walk(&q, q.qpn);
		for (unsigned i = 0; i < 20; i++)
			last = do_write(&q, arena.p, arena.mr->lkey, 8, (uintptr_t)arena.p + 64, arena.mr->rkey);
		end = now() + PATIENCE;
		while (be16toh(((volatile struct mlx5_cqe64 *)(void *)one.buf)->wqe_counter) != last && now() < end)
			usleep(20);
		assert_int_equal(be16toh(((struct mlx5_cqe64 *)(void *)one.buf)->wqe_counter), last);
		assert_int_equal(cqe_op((struct mlx5_cqe64 *)(void *)one.buf), MLX5_CQE_REQ);
		for (unsigned i = 1; i < 1u << log; i++)
			assert_int_equal(one.buf[i * 64 + 63], 0xf0);
		c = command(0x402, 0x10, 0x110);
		IN(0x48, 24, one.cqn);
		assert_int_equal(query(one.obj, &c), OK);
		assert_int_equal(OUT(CQC + 0x168, 24), 20);
		must(destroy(q.obj));
		must(destroy(one.obj));
	}
	close_cqs();
}

/*
 * Small answers and small messages in the CQE itself: 32 bytes of it, or the half in front of one
 * of 128
 */
static void scattered(UNUSED void **state)
{
	static const struct {
		unsigned cqe, req, res, most;
	} ways[] = { { 64, 0x11, 1, 32 }, { 128, 0x11, 1, 32 }, { 128, 0x22, 2, 64 } };

	for (unsigned w = 0; w < ARRAY(ways); w++) {
		struct dqp q;
		uint8_t *a, *b;

		open_cqs(4, ways[w].cqe);
		{
			struct cmd c = qp_command(&q, RC, 6, 6, scq.cqn, rcq.cqn, 0);

			IN(QPC + 0x630, 8, ways[w].req);
			IN(QPC + 0x638, 8, ways[w].res);
			q.obj = must_create(&c, &q.qpn);
		}
		walk(&q, q.qpn);
		a = arena.p + part(4096);
		b = arena.p + part(4096);
		fill(a, 4096, w);
		for (unsigned len = 8; len <= 72; len += 8) {
			bool in = len <= ways[w].most;
			struct mlx5_cqe64 *c;
			const uint8_t *data;

			memset(b, 0x5a, 128);
			c = sent(&scq, q.qpn, do_read(&q, b, arena.mr->lkey, len, (uintptr_t)a, arena.mr->rkey));
			data = (uint8_t *)c - (ways[w].most == 64 ? 64 : 0);
			assert_int_equal(c->op_own & 0xc, !in ? 0 : ways[w].most == 64 ? 8 : 4);
			assert_memory_equal(in ? data : b, a, len);
			assert_true(!in || all_bytes(b, 128, 0x5a));
			assert_int_equal(be32toh(c->byte_cnt), len);
			memset(b, 0x5a, 128);
			do_recv(&q, b, arena.mr->lkey, 128);
			sent(&scq, q.qpn, do_send(&q, a, arena.mr->lkey, len));
			c = poll_wait(&rcq);
			data = (uint8_t *)c - (ways[w].most == 64 ? 64 : 0);
			assert_int_equal(c->op_own & 0xc, !in ? 0 : ways[w].most == 64 ? 8 : 4);
			assert_memory_equal(in ? data : b, a, len);
			assert_true(!in || all_bytes(b, 128, 0x5a));
		}
		/* An atomic's answer comes as it was on the wire */
		{
			uint64_t *word = (uint64_t *)(void *)(arena.p + part(64)), v;
			struct mlx5_cqe64 *c;

			*word = 0x1122334455667788;
			c = sent(&scq, q.qpn, do_add(&q, b, arena.mr->lkey, 1, (uintptr_t)word, arena.mr->rkey));
			memcpy(&v, (uint8_t *)c - (ways[w].most == 64 ? 64 : 0), 8);
			assert_int_equal(be64toh(v), 0x1122334455667788);
			assert_int_equal(*word, 0x1122334455667789);
		}
		must(destroy(q.obj));
		close_cqs();
	}
}

/* ---- doorbells ---- */

static void wrong_page(UNUSED void **state)
{
	struct dqp q;
	uint16_t at;

	open_cqs(4, 64);
	open_qp(&q, RC, &scq, &rcq, 0);
	walk(&q, q.qpn);
	at = commit(&q, MLX5_OPCODE_RDMA_WRITE,
		seg_data(seg_raddr(wqe(&q) + 16, (uintptr_t)arena.p + 64, arena.mr->rkey), arena.p, 8, arena.mr->lkey), 0);
	poll_nothing(&scq);
	ring(&q, at, uar2);
	poll_nothing(&scq);
	ring(&q, at, uar);
	sent(&scq, q.qpn, at);
	must(destroy(q.obj));
	close_cqs();
}

/* Receives alone, without a send queue, a doorbell page or a doorbell */
static void no_send_queue(UNUSED void **state)
{
	struct dqp rx, tx;
	struct cmd c;

	open_cqs(4, 64);
	c = qp_command(&rx, RC, 0, 3, scq.cqn, rcq.cqn, 0);
	IN(QPC + 0x50, 1, 1);
	IN(QPC + 0x68, 24, 0);
	rx.obj = must_create(&c, &rx.qpn);
	open_qp(&tx, RC, &scq, &rcq, 0);
	walk(&rx, tx.qpn);
	walk(&tx, rx.qpn);
	for (unsigned i = 0; i < 20; i++) {
		do_recv(&rx, arena.p + ARENA / 2, arena.mr->lkey, 64);
		sent(&scq, tx.qpn, do_send(&tx, arena.p, arena.mr->lkey, 64));
		assert_int_equal(be32toh(poll_wait(&rcq)->sop_drop_qpn) & 0xffffff, rx.qpn);
	}
	must(destroy(rx.obj));
	must(destroy(tx.obj));
	close_cqs();
}

/* ---- DC ---- */

#define KEY 0x0102030405060708

static struct mlx5dv_devx_obj *open_dct(uint32_t cqn, uint32_t srqn, uint32_t *dctn)
{
	struct cmd c = command(0x710, 0x80, 0x10);

	IN(DCTC + 0x48, 24, cqn);
	IN(DCTC + 0x68, 4, 1);
	IN(DCTC + 0x6c, 3, 7);
	IN(DCTC + 0x93, 5, 1);
	IN(DCTC + 0xa8, 24, srqn);
	IN(DCTC + 0xc8, 24, pdn);
	IN(DCTC + 0x100, 64, KEY);
	IN(DCTC + 0x145, 3, 5);
	IN(DCTC + 0x148, 8, 1);
	IN(DCTC + 0x168, 8, sgid);
	return must_create(&c, dctn);
}

/* The address vector in front of a DCI's work */
static uint8_t *seg_dct(uint8_t *at, uint32_t dctn, uint64_t key)
{
	struct mlx5_wqe_av av = { .key.dc_key = htobe64(key), .dqp_dct = htobe32(dctn | MLX5_EXTENDED_UD_AV), .rlid = htobe16(port.lid) };

	if (is_roce()) {
		av.grh_gid_fl = htobe32(1u << 30 | (uint32_t)sgid << 20);
		av.hop_limit = 64;
		memcpy(av.rmac, port_mac, 6);
		memcpy(av.rgid, gid.raw, 16);
		av.rlid = htobe16(0xc000);
	}
	memcpy(at, &av, sizeof(av));
	return at + sizeof(av);
}

static void dc(UNUSED void **state)
{
	struct mlx5dv_devx_event_channel *ch = a_channel(true);
	struct mlx5dv_devx_obj *dct[3];
	uint32_t dctn[3];
	struct dqp dci[2];
	struct drmp r;
	uint8_t *a, *b, *at;
	uint64_t *word, *old;
	struct cmd c;

	open_cqs(6, 64);
	a = arena.p + part(4096);
	b = arena.p + part(16 * 4096);
	word = (uint64_t *)(void *)(arena.p + part(64));
	old = (uint64_t *)(void *)(arena.p + part(64));
	open_rmp(&r, 0, 4);
	for (unsigned i = 0; i < 16; i++)
		rmp_entry(&r, i, (i + 1) % 16, b + i * 4096, arena.mr->lkey, 4096);
	rmp_post(&r, 16);
	for (unsigned i = 0; i < 3; i++)
		dct[i] = open_dct(rcq.cqn, r.rmpn, &dctn[i]);
	for (unsigned i = 0; i < 2; i++) {
		open_qp(&dci[i], DCI, &scq, &rcq, r.rmpn);
		walk(&dci[i], 0);
	}
	/* To one, to the next, and back: each of the two initiators */
	for (unsigned n = 0; n < 200; n++) {
		struct dqp *q = &dci[n / 7 % 2];
		unsigned to = n / 3 % 3;
		struct mlx5_cqe64 *e;

		fill(a, 4096, n);
		at = seg_dct(wqe(q) + 16, dctn[to], KEY);
		switch (n % 4) {
		case 0:
			sent(&scq, q->qpn, post_one(q, MLX5_OPCODE_SEND, seg_data(at, a, 3000, arena.mr->lkey), 0));
			e = poll_wait(&rcq);
			assert_int_equal(be32toh(e->sop_drop_qpn) & 0xffffff, dctn[to]);
			assert_int_equal(be32toh(e->flags_rqpn) & 0xffffff, q->qpn);
			assert_int_equal(be32toh(e->byte_cnt), 3000);
			assert_memory_equal(b + be16toh(e->wqe_counter) * 4096, a, 3000);
			rmp_post(&r, 1);
			break;
		case 1:
			at = seg_raddr(at, (uintptr_t)arena.p + ARENA / 2, arena.mr->rkey);
			sent(&scq, q->qpn, post_one(q, MLX5_OPCODE_RDMA_WRITE, seg_data(at, a, 4096, arena.mr->lkey), 0));
			assert_memory_equal(arena.p + ARENA / 2, a, 4096);
			break;
		case 2:
			at = seg_raddr(at, (uintptr_t)a, arena.mr->rkey);
			sent(&scq, q->qpn, post_one(q, MLX5_OPCODE_RDMA_READ, seg_data(at, arena.p + ARENA / 2, 4096, arena.mr->lkey), 0));
			assert_memory_equal(arena.p + ARENA / 2, a, 4096);
			break;
		case 3:
			*word = n;
			at = seg_atomic(seg_raddr(at, (uintptr_t)word, arena.mr->rkey), 5, 0);
			sent(&scq, q->qpn, post_one(q, MLX5_OPCODE_ATOMIC_FA, seg_data(at, old, 8, arena.mr->lkey), 0));
			assert_int_equal(*old, n);
			assert_int_equal(*word, n + 5);
			break;
		}
	}
	/* A row without waiting, to one after the other: in order all the same */
	for (unsigned n = 0; n < 12; n++) {
		at = seg_raddr(seg_dct(wqe(&dci[0]) + 16, dctn[n % 3], KEY), (uintptr_t)arena.p + ARENA / 2, arena.mr->rkey);
		post_one(&dci[0], MLX5_OPCODE_RDMA_WRITE, seg_data(at, a, 512, arena.mr->lkey), 0);
	}
	for (unsigned n = 0; n < 12; n++)
		sent(&scq, dci[0].qpn, dci[0].pi - 24 + 2 * n);

	/* What goes wrong stops the initiator alone; the target goes on with the other, and with this one after a reset */
	at = seg_raddr(seg_dct(wqe(&dci[0]) + 16, dctn[0], KEY), (uintptr_t)arena.p, arena.mr->rkey ^ 0xff);
	post_one(&dci[0], MLX5_OPCODE_RDMA_WRITE, seg_data(at, a, 512, arena.mr->lkey), 0);
	failed(&scq, false, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
	assert_int_equal(qp_state(&dci[0]), ERR);
	at = seg_raddr(seg_dct(wqe(&dci[1]) + 16, dctn[0], KEY), (uintptr_t)arena.p + ARENA / 2, arena.mr->rkey);
	sent(&scq, dci[1].qpn, post_one(&dci[1], MLX5_OPCODE_RDMA_WRITE, seg_data(at, a, 512, arena.mr->lkey), 0));
	assert_int_equal(stop(&dci[0], TO_RST), OK);
	dci[0].pi = 0;
	dci[0].dbrec[1] = 0;
	walk(&dci[0], 0);
	at = seg_raddr(seg_dct(wqe(&dci[0]) + 16, dctn[0], KEY), (uintptr_t)arena.p + ARENA / 2, arena.mr->rkey);
	sent(&scq, dci[0].qpn, post_one(&dci[0], MLX5_OPCODE_RDMA_WRITE, seg_data(at, a, 512, arena.mr->lkey), 0));

	/* Another key: no answer, a count, and an event if it was armed */
	subscribe(ch, dct[1], 0x1d, 8);
	c = command(0x714, 0x10, 0x10);
	MODIFY(dct[1], 0x48, 24, dctn[1], OK);
	/* Also of a target that it has talked to just now */
	at = seg_raddr(seg_dct(wqe(&dci[0]) + 16, dctn[1], KEY), (uintptr_t)arena.p + ARENA / 2, arena.mr->rkey);
	sent(&scq, dci[0].qpn, post_one(&dci[0], MLX5_OPCODE_RDMA_WRITE, seg_data(at, a, 512, arena.mr->lkey), 0));
	at = seg_dct(wqe(&dci[0]) + 16, dctn[1], KEY + 1);
	post_one(&dci[0], MLX5_OPCODE_SEND, seg_data(at, a, 512, arena.mr->lkey), 0);
	if (trapping()) {
		/* Nothing else lets it try again */
		for (unsigned i = 0; i < 8; i++)
			softdev_run();
	}
	failed(&scq, false, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
	expect_devx(ch, 8, 0x1d, dctn[1]);
	expect_no_devx(ch);
	c = command(0x713, 0x10, 0x80);
	IN(0x48, 24, dctn[1]);
	assert_int_equal(query(dct[1], &c), OK);
	assert_true(OUT(DCTC + 0x180, 32) >= 1);

	/* A target that goes: its event, and no answers any more */
	for (unsigned i = 0; i < 3; i++)
		must(destroy(dct[i]));
	at = seg_dct(wqe(&dci[1]) + 16, dctn[0], KEY);
	post_one(&dci[1], MLX5_OPCODE_SEND, seg_data(at, a, 512, arena.mr->lkey), 0);
	if (trapping())
		for (unsigned i = 0; i < 8; i++)
			softdev_run();
	failed(&scq, false, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
	for (unsigned i = 0; i < 2; i++)
		must(destroy(dci[i].obj));
	must(destroy(r.obj));
	close_cqs();
	mlx5dv_devx_destroy_event_channel(ch);
}

/* ---- XRQ ---- */

static struct cmd xrq_command(uint32_t cqn, size_t buf, size_t record)
{
	struct cmd c = command(0x717, 0x150, 0x10);

	enum { X = 0x80, XWQ = 0x80 + 0x400 };
	IN(X + 0x14, 4, 1);
	IN(X + 0x1c, 4, 1);
	IN(X + 0x28, 24, 0x123);
	IN(X + 0x48, 24, cqn);
	IN(X + 0x100, 4, 5);
	set_wq(&c, XWQ, 0, 4, record, buf);
	return c;
}

/* The list is tested in tm*.c: here is how a command makes it, and that its command QP works */
static void xrq(UNUSED void **state)
{
	static const struct wrong w[] = {
		{ "topology", 0x80 + 0x14, 4, 2, BAD_PARAM }, { "offload", 0x80 + 0x1c, 4, 2, BAD_PARAM },
		{ "list", 0x80 + 0x100, 4, 0, BAD_PARAM }, { "list too long", 0x80 + 0x100, 4, 15, LIMIT },
		{ "cqn", 0x80 + 0x48, 24, 0xffff00, BAD_RES }, { "pd", 0x480 + 0x48, 24, 0xfff0, BAD_RES },
		{ "type", 0x480, 4, 4, BAD_PARAM }, { "umem", 0x480 + 0x160, 32, 0, BAD_RES },
	};
	struct mlx5dv_devx_obj *x;
	struct mlx5_wqe_tm_seg op = {
		.opcode = 1 << 4, .flags = 0xc0, .index = htobe16(1), .append_tag = htobe64(0x1234), .append_mask = ~0ull};
	struct mlx5_cqe64 *e;
	struct dqp cmd_qp, q, rndv;
	uint8_t *a, *b;
	uint32_t n;
	size_t buf, record;
	struct cmd c;
	unsigned status;

	open_cqs(6, 64);
	buf = part(64 << 4);
	record = part(8);
	c = xrq_command(rcq.cqn, buf, record);
	refuse_all(&c, w, ARRAY(w));
	x = must_create(&c, &n);
	c = command(0x719, 0x10, 0x150);
	IN(0x48, 24, n);
	assert_int_equal(query(x, &c), OK);
	assert_int_equal(OUT(0x80 + 0x14, 4), 1);
	assert_int_equal(OUT(0x80 + 0x1c, 4), 1);
	assert_int_equal(OUT(0x80 + 0x28, 24), 0x123);
	assert_int_equal(OUT(0x80 + 0x48, 24), rcq.cqn);
	assert_int_equal(OUT(0x80 + 0x100, 4), 5);
	assert_int_equal(OUT(0x480 + 0x11b, 5), 4);
	assert_int_equal(OUT(0x480 + 0x180, 64), buf);
	/* Its limit; how DC's rendezvous would go is for one that was made for DC */
	c = command(0x71a, 0x10, 0x10);
	IN(0x48, 24, n);
	MODIFY(x, 0x70, 16, 16, BAD_PARAM);
	MODIFY(x, 0x70, 16, 3, OK);
	c = command(0x726, 0x30, 0x10);
	IN(0x48, 24, n);
	MODIFY(x, 0x8d, 3, 3, BAD_PARAM);
	/* A command QP: its own peer. A rendezvous QP has no send queue, and no other QP may be one */
	open_qp(&cmd_qp, RC, &rcq, &rcq, n);
	walk(&cmd_qp, cmd_qp.qpn);
	c = qp_command(&rndv, RC, 0, 0, rcq.cqn, rcq.cqn, n);
	IN(QPC + 0x18, 4, 1);
	assert_null(create(&c, &status));
	assert_int_equal(status, BAD_PARAM);
	IN(QPC + 0x50, 1, 1);
	rndv.obj = must_create(&c, &rndv.qpn);
	c = qp_command(&q, UD, 3, 0, rcq.cqn, rcq.cqn, n);
	assert_null(create(&c, &status));
	assert_int_equal(status, BAD_PARAM);
	assert_int_equal(destroy(x), EBUSY);
	/* A buffer for tag 0x1234, and a message for it, which comes on the rendezvous QP */
	a = arena.p + part(4096);
	b = arena.p + part(4096);
	memcpy(wqe(&cmd_qp) + 16, &op, sizeof(op));
	post_one(&cmd_qp, MLX5_OPCODE_TAG_MATCHING, seg_data(wqe(&cmd_qp) + 48, b, 4096, arena.mr->lkey), 0);
	e = poll_wait(&rcq);
	assert_int_equal(cqe_op(e), MLX5_CQE_NO_PACKET);
	assert_int_equal(be32toh(e->tm_cqe.success) >> 31, 1);
	assert_int_equal(be32toh(e->srqn_uidx) & 0xffffff, 0x123);
	sent(&rcq, cmd_qp.qpn, 0);
	c = command(0x719, 0x10, 0x150);
	IN(0x48, 24, n);
	assert_int_equal(query(x, &c), OK);
	assert_int_equal(OUT(0x80 + 0x110, 16), 1);
	open_qp(&q, RC, &scq, &scq, 0);
	walk(&q, rndv.qpn);
	walk(&rndv, q.qpn);
	fill(a, 4096, 3);
	{
		struct ibv_tmh h = { .opcode = IBV_TMH_EAGER, .tag = htobe64(0x1234) };

		memcpy(a, &h, sizeof(h));
	}
	sent(&scq, q.qpn, do_send(&q, a, arena.mr->lkey, 500));
	e = poll_wait(&rcq);
	assert_int_equal(be32toh(e->sop_drop_qpn) & 0xffffff, rndv.qpn);
	assert_int_equal(be32toh(e->byte_cnt), 500 - sizeof(struct ibv_tmh));
	assert_memory_equal(b, a + sizeof(struct ibv_tmh), 500 - sizeof(struct ibv_tmh));
	must(destroy(q.obj));
	must(destroy(rndv.obj));
	must(destroy(cmd_qp.obj));
	/* For DC */
	must(destroy(x));
	c = xrq_command(rcq.cqn, buf, record);
	IN(0x80 + 0x7f, 1, 1);
	x = must_create(&c, &n);
	c = command(0x726, 0x30, 0x10);
	IN(0x48, 24, n);
	MODIFY(x, 0x8d, 3, 3, OK);
	must(destroy(x));
	close_cqs();
}

/*
 * A striding XRQ, as UCX makes it: what no tag takes comes packet by packet, of 1024 bytes here, a
 * segment for each stride of a WQE, and waits for as many strides as it needs
 */
static void striding_xrq(UNUSED void **state)
{
	enum { STRIDES = 8, ENTRY = 256, STRIDE = 1024, LONG = 9 * STRIDE + 100, LAST = 1 << 30, ONE = 1 << 16 };
	struct ibv_tmh h = { .opcode = IBV_TMH_EAGER };
	struct mlx5dv_devx_obj *x;
	struct mlx5_cqe64 *e;
	struct dqp to, from;
	uint8_t *a, *b, *at;
	volatile uint32_t *posted;
	size_t ring, record;
	struct cmd c;
	uint32_t n;

	open_cqs(6, 64);
	ring = part(4 * ENTRY);
	record = part(8);
	a = arena.p + part(LONG);
	b = arena.p + part(4 * STRIDES * STRIDE);
	c = xrq_command(rcq.cqn, ring, record);
	set_wq(&c, 0x480, 3, 2, record, ring);
	IN(0x480 + 0x10c, 4, 8);
	IN(0x480 + 0x134, 4, 3 - 9);
	IN(0x480 + 0x13d, 3, 10 - 6);
	x = must_create(&c, &n);
	for (unsigned i = 0; i < 4 * STRIDES; i++) {
		at = arena.p + ring + i / STRIDES * ENTRY + 16 + i % STRIDES * 16;
		seg_data(at, b + i * STRIDE, STRIDE, arena.mr->lkey);
	}
	open_qp(&to, RC, &rcq, &rcq, n);
	open_qp(&from, RC, &scq, &scq, 0);
	walk(&to, from.qpn);
	walk(&from, to.qpn);
	fill(a, LONG, 3);
	memcpy(a, &h, sizeof(h));
	posted = (volatile uint32_t *)(void *)(arena.p + record);
	*posted = htobe32(1);
	do_send(&from, a, arena.mr->lkey, 50);
	do_send(&from, a, arena.mr->lkey, LONG);
	for (unsigned i = 0, len; i < 11; i++) {
		e = poll_wait(&rcq);
		if (i == 0) {
			/* There are seven strides, and it needs ten */
			poll_nothing(&rcq);
			*posted = htobe32(2);
			if (trapping())
				softdev_run();
		}
		len = i == 0 ? 50 : i == 10 ? 100 : STRIDE;
		assert_int_equal(e->app_op, 3);
		assert_int_equal(be32toh(e->byte_cnt), (i == 0 || i == 10 ? LAST : 0) | ONE | len);
		assert_int_equal(be16toh(e->wqe_counter), i / STRIDES);
		assert_int_equal(get((uint8_t *)e, 8 * 20, 16), i % STRIDES);
		assert_memory_equal(b + i * STRIDE, a + (i ? i - 1 : 0) * STRIDE, len);
	}
	sent(&scq, from.qpn, 0);
	sent(&scq, from.qpn, 1);
	must(destroy(to.obj));
	must(destroy(from.obj));
	must(destroy(x));
	close_cqs();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(with_verbs), TEST(on_verbs_cq), TEST(without_address), TEST(unreliable), TEST(longest_message),
		TEST(two_processes), TEST(shared_queue), TEST(limit_event), TEST(last_wqe), TEST(flushed),
		TEST(error_events), TEST(completion_events), TEST(arm_read_only), TEST(overrun), TEST(collapsed),
		TEST(scattered), TEST(wrong_page), TEST(no_send_queue), TEST(dc), TEST(xrq),
		TEST(striding_xrq),
	};

	if (argc == 2)
		return peer(argv[1]);
	return devx_main(tests, ARRAY(tests), true);
}
