/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * devx_traffic.c: what queues by device commands carry, where a bit of a command or the wrong doorbell page makes the difference: WQEs are
 * written and CQEs are read by hand. Traffic of all kinds, flushes, limits and error events: tests/devx.
 */
#include "rig_devx.h"

static struct dcq scq, rcq;

static void open_cqs(unsigned log, unsigned size)
{
	empty_arena();
	open_cq(&scq, log, size);
	open_cq(&rcq, log, size);
}

static void close_cqs(void)
{
	must(destroy(scq.obj) || destroy(rcq.obj));
}

/* 8 bytes from the arena to the arena: the index of the WQE */
static uint16_t small_write(struct dqp *q)
{
	return do_write(q, arena.p, arena.mr->lkey, 8, (uintptr_t)arena.p + 64, arena.mr->rkey);
}

/* A QP whose peer is itself needs no address; one that is forced to loop back needs none either */
TEST(without_address)
{
	struct dqp q[2];

	open_cqs(4, 64);
	for (unsigned forced = 0; forced < 2; forced++) {
		for (unsigned i = 0; i < 2; i++)
			open_qp(&q[i], RC, &scq, &rcq, 0);
		for (unsigned i = 0; i < 2; i++)
			for (unsigned op = RST2INIT; op <= RTR2RTS; op++) {
				struct cmd c = step_of(&q[i], op, q[forced ? !i : i].qpn);

				/* Nothing of the way, but for the port */
				if (op == INIT2RTR) {
					memset(c.in + PATH / 8, 0, 0x160 / 8);
					SET(&c, { PATH + 0x128, 8, 1 }, { PATH, 1, forced });
				}
				assert_int_equal(modify(q[i].obj, &c), OK);
			}
		sent(&scq, q[0].qpn, small_write(&q[0]));
		for (unsigned i = 0; i < 2; i++)
			must(destroy(q[i].obj));
	}
	close_cqs();
}

/* ---- CQs ---- */

TEST(overrun)
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
			small_write(&q);
		if (ignore)
			expect_no_devx(ch);
		else
			expect_devx(ch, 13, 4, tiny.cqn);
		c = query_of(0x402, tiny.obj, tiny.cqn, 0x110);
		EXPECT(&c, { CQC, 4, ignore ? 0 : 9 });
		assert_int_equal(qp_state(&q), ignore ? RTS : ERR);
		must(destroy(q.obj) || destroy(tiny.obj));
	}
	close_cqs();
	mlx5dv_devx_destroy_event_channel(ch);
}

/* ---- doorbells ---- */

/* A doorbell page that is not the queue's: neither work nor events */
TEST(wrong_page)
{
	struct mlx5dv_devx_event_channel *ch = a_channel(true);
	struct dqp q;
	uint16_t at;

	open_cqs(4, 64);
	open_qp(&q, RC, &scq, &rcq, 0);
	walk(&q, q.qpn);
	subscribe(ch, scq.obj, 0, 42);
	at = commit(&q, MLX5_OPCODE_RDMA_WRITE,
		seg_data(seg_raddr(wqe(&q) + 16, (uintptr_t)arena.p + 64, arena.mr->rkey), arena.p, 8, arena.mr->lkey), 0);
	arm(&scq, 0, uar2);
	ring(&q, at, uar2);
	poll_nothing(&scq);
	ring(&q, at, uar);
	sent(&scq, q.qpn, at);
	expect_no_devx(ch);
	arm(&scq, 0, uar);
	sent(&scq, q.qpn, small_write(&q));
	expect_devx(ch, 42, 0, scq.cqn);
	must(destroy(q.obj));
	close_cqs();
	mlx5dv_devx_destroy_event_channel(ch);
}

/* Receives alone, without a send queue, a doorbell page or a doorbell */
TEST(no_send_queue)
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
	must(destroy(rx.obj) || destroy(tx.obj));
	close_cqs();
}

/* ---- DC ---- */

#define KEY 0x0102030405060708

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

/* Another key than the target's: no answer, a count, and an event if armed. Then no target at all. More of DC: tests/devx/shared.c */
TEST(dc)
{
	struct mlx5dv_devx_event_channel *ch = a_channel(true);
	struct mlx5dv_devx_obj *dct;
	struct drmp rmp;
	uint32_t dctn;
	struct dqp dci;
	struct cmd c;

	open_cqs(6, 64);
	open_rmp(&rmp, 0, 4);
	c = command(0x710, 0x80, 0x10);
	SET(&c, { DCTC + 0x48, 24, rcq.cqn }, { DCTC + 0x68, 4, 1 }, { DCTC + 0x6c, 3, 7 }, { DCTC + 0x93, 5, 1 },
	    { DCTC + 0xa8, 24, rmp.rmpn }, { DCTC + 0xc8, 24, pdn }, { DCTC + 0x100, 64, KEY }, { DCTC + 0x145, 3, 5 },
	    { DCTC + 0x148, 8, 1 }, { DCTC + 0x168, 8, sgid });
	dct = must_create(&c, &dctn);
	subscribe(ch, dct, 0x1d, 8);
	c = command_of(0x714, 0x10, 0x10, dctn);
	assert_int_equal(modify(dct, &c), OK);
	for (unsigned i = 0; i < 2; i++) {
		if (i)
			must(destroy(dct));
		open_qp(&dci, DCI, &scq, &rcq, rmp.rmpn);
		walk(&dci, 0);
		post_one(&dci, MLX5_OPCODE_SEND, seg_data(seg_dct(wqe(&dci) + 16, dctn, KEY + !i), arena.p, 512, arena.mr->lkey), 0);
		for (unsigned k = 0; getenv("SOFTDEV_TRAP") && k < 8; k++)
			softdev_run(); /* nothing else lets it try again */
		failed(&scq, false, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
		assert_int_equal(qp_state(&dci), ERR);
		if (!i) {
			expect_devx(ch, 8, 0x1d, dctn);
			expect_no_devx(ch);
			c = query_of(0x713, dct, dctn, 0x80);
			assert_true(OUT(DCTC + 0x180, 32) >= 1);
		}
		must(destroy(dci.obj));
	}
	must(destroy(rmp.obj));
	close_cqs();
	mlx5dv_devx_destroy_event_channel(ch);
}

/* ---- XRQ ---- */

enum { XRQC = 0x80, XWQ = XRQC + 0x400 };

/* What a command may make, and which QPs. Its list: tm*.c, tests/devx/shared.c */
TEST(xrq)
{
	struct cmd c = command(0x717, 0x150, 0x10);
	struct mlx5dv_devx_obj *x;
	struct dqp q;
	uint32_t n;

	open_cqs(6, 64);
	SET(&c, { XRQC + 0x14, 4, 1 }, { XRQC + 0x1c, 4, 1 }, { XRQC + 0x28, 24, 0x123 }, { XRQC + 0x48, 24, rcq.cqn },
	    { XRQC + 0x100, 4, 5 });
	set_wq(&c, XWQ, 0, 4, part(8), part(64 << 4));
	REFUSE(&c, { "topology", XRQC + 0x14, 4, 2, BAD_PARAM }, { "offload", XRQC + 0x1c, 4, 2, BAD_PARAM },
	       { "list", XRQC + 0x100, 4, 0, BAD_PARAM }, { "list too long", XRQC + 0x100, 4, 15, LIMIT },
	       { "cqn", XRQC + 0x48, 24, 0xffff00, BAD_RES }, { "pd", XWQ + 0x48, 24, 0xfff0, BAD_RES },
	       { "type", XWQ, 4, 4, BAD_PARAM }, { "umem", XWQ + 0x160, 32, 0, BAD_RES });
	x = must_create(&c, &n);
	/* Its limit; how DC's rendezvous would go is for one that was made for DC */
	c = command_of(0x71a, 0x10, 0x10, n);
	MODIFY(x, 0x70, 16, 16, BAD_PARAM);
	MODIFY(x, 0x70, 16, 15, OK);
	c = query_of(0x719, x, n, 0x150);
	EXPECT(&c, { XRQC, 4, 0 }, { XRQC + 0x14, 4, 1 }, { XRQC + 0x1c, 4, 1 }, { XRQC + 0x28, 24, 0x123 }, { XRQC + 0x48, 24, rcq.cqn },
	       { XRQC + 0x100, 4, 5 }, { XRQC + 0x110, 48, 0 }, { XWQ + 0x30, 16, 0 }, { XWQ + 0x48, 24, pdn }, { XWQ + 0x11b, 5, 4 });
	c = command_of(0x726, 0x30, 0x10, n);
	MODIFY(x, 0x8d, 3, 3, BAD_PARAM);
	/* Its QPs: of UD none; for rendezvous one without a send queue */
	c = qp_command(&q, UD, 3, 0, rcq.cqn, rcq.cqn, n);
	REFUSE(&c, { "UD", QPC + 0x88, 24, 0, BAD_PARAM });
	c = qp_command(&q, RC, 0, 0, rcq.cqn, rcq.cqn, n);
	SET(&c, { QPC + 0x50, 1, 1 }, { QPC + 0x18, 4, 1 });
	REFUSE(&c, { "rendezvous that sends", QPC + 0x50, 1, 0, BAD_PARAM });
	q.obj = must_create(&c, &q.qpn);
	must(destroy(q.obj) || destroy(x));
	close_cqs();
}

int main(void)
{
	return devx_main(true);
}
