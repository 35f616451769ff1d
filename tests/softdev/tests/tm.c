/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tm.c: tag matching as libmlx5 drives it: the list, its phase, what messages do with it,
 * rendezvous; any order of these against a plain list, in 2000 steps times DEVICE_ROUNDS (3); two
 * processes.
 */
#include "rig_tm.h"

/* ---- creation ---- */

static void capabilities(UNUSED void **state)
{
	struct ibv_device_attr_ex a;

	need_lists();
	must(ibv_query_device_ex(ctx, NULL, &a));
	assert_true(a.tm_caps.max_num_tags >= 127);
	assert_int_equal(a.tm_caps.max_num_tags & (a.tm_caps.max_num_tags + 1), 0);
	assert_true(a.tm_caps.max_ops > 0);
	assert_int_equal(a.tm_caps.max_sge, 1);
	assert_int_equal(a.tm_caps.max_rndv_hdr_size, 64);
	assert_int_equal(a.tm_caps.flags, IBV_TM_CAP_RC);
}

static void creation(UNUSED void **state)
{
	struct ibv_cq *plain = ibv_create_cq(ctx, 16, NULL, NULL, 0), *cq;
	struct ibv_cq_ex *ex = a_cq(64, 64);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UC, .cap = usual.cap };
	struct ibv_device_attr_ex a;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	uint32_t max;

	need_lists();
	must(ibv_query_device_ex(ctx, NULL, &a));
	max = a.tm_caps.max_num_tags;
	assert_non_null(plain);
	cq = ibv_cq_ex_to_cq(ex);
	assert_null(try_srq(NULL, 16, 8, 8));
	assert_int_equal(errno, EINVAL);
	assert_null(try_srq(plain, 16, 8, 8));
	assert_int_equal(errno, EINVAL);
	assert_null(try_srq(cq, 16, 0, 8));
	assert_null(try_srq(cq, 16, max + 1, 8));
	assert_int_equal(errno, EINVAL);
	assert_null(try_srq(cq, 1u << 20, 8, 8));
	srq = try_srq(cq, 16, max, 8);
	assert_non_null(srq);
	/* It holds its CQ, and its QPs hold it */
	assert_int_equal(ibv_destroy_cq(cq), EBUSY);
	init.send_cq = init.recv_cq = cq;
	init.srq = srq;
	assert_null(ibv_create_qp(pd, &init));
	init.qp_type = IBV_QPT_UD;
	assert_null(ibv_create_qp(pd, &init));
	init.qp_type = IBV_QPT_RC;
	qp = ibv_create_qp(pd, &init);
	assert_non_null(qp);
	must(ibv_destroy_qp(qp));
	must(ibv_destroy_srq(srq));
	for (uint32_t tags = 1; tags < 10; tags++) {
		srq = try_srq(cq, 16, tags, 8);
		assert_non_null(srq);
		must(ibv_destroy_srq(srq));
	}
	must(ibv_destroy_cq(cq));
	must(ibv_destroy_cq(plain));
}

/* ---- the list ---- */

static void operations(UNUSED void **state)
{
	struct ibv_ops_wr wr[3], *bad;
	uint32_t h[4];
	struct match t;

	open_tm(&t, 16, 8, 64);
	/* Each opcode with and without each flag */
	h[0] = add(&t, 1, 0, 64, 0x11, ALL);
	h[1] = add(&t, 2, 0, 0, 0x22, ALL);
	assert_int_not_equal(h[0], h[1]);
	wr[0] = add_wr(3, NULL, 0x33, ALL, IBV_OPS_SIGNALED);
	post_ops(&t, wr);
	expect_done(t.cq, 3, IBV_WC_TM_ADD, 0);
	h[2] = wr[0].tm.handle;
	wr[0] = add_wr(4, NULL, 0x44, ALL, 0);
	post_ops(&t, wr);
	h[3] = wr[0].tm.handle;
	nothing_done(t.cq);
	assert_int_equal(del(&t, 5, h[0], 0).status, IBV_WC_SUCCESS);
	assert_int_equal(del(&t, 6, h[1], IBV_OPS_TM_SYNC).status, IBV_WC_SUCCESS);
	memset(wr, 0, sizeof(wr));
	wr[0].opcode = IBV_WR_TAG_DEL;
	wr[0].tm.handle = h[2];
	post_ops(&t, wr);
	wr[0].opcode = IBV_WR_TAG_SYNC;
	post_ops(&t, wr);
	wr[0].flags = IBV_OPS_TM_SYNC;
	post_ops(&t, wr);
	nothing_done(t.cq);
	wr[0].flags = IBV_OPS_SIGNALED;
	wr[0].wr_id = 7;
	post_ops(&t, wr);
	expect_done(t.cq, 7, IBV_WC_TM_SYNC, 0);
	sync_now(&t, 8);
	assert_int_equal(del(&t, 9, h[3], 0).status, IBV_WC_SUCCESS);
	/* What is not in the list cannot be removed */
	h[0] = add(&t, 10, 0, 64, 0x11, ALL);
	wr[0] = add_wr(11, NULL, 0x55, ALL, 0);
	post_ops(&t, wr);
	eager(&t.tx, 0x11, 1, 0, 32);
	expect_done(t.cq, 1010, IBV_WC_TM_RECV, MATCHED);
	assert_int_equal(del(&t, 12, wr[0].tm.handle, 0).status, IBV_WC_SUCCESS);
	/* A list of operations, with one doorbell */
	sg = sge(&t.rx, 0, 64);
	wr[0] = add_wr(20, &sg, 0x66, ALL, IBV_OPS_SIGNALED);
	wr[1] = add_wr(21, &sg, 0x77, ALL, 0);
	wr[2] = add_wr(22, &sg, 0x88, ALL, IBV_OPS_SIGNALED);
	wr[0].next = &wr[1];
	wr[1].next = &wr[2];
	must(ibv_post_srq_ops(t.srq, wr, &bad));
	expect_done(t.cq, 20, IBV_WC_TM_ADD, 0);
	expect_done(t.cq, 22, IBV_WC_TM_ADD, 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(del(&t, 30 + i, wr[i].tm.handle, 0).status, IBV_WC_SUCCESS);
	/* A basic SRQ has no list */
	{
		struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
		struct ibv_srq *basic = ibv_create_srq(pd, &init);

		wr[0].next = NULL;
		assert_int_equal(ibv_post_srq_ops(basic, wr, &bad), EINVAL);
		assert_ptr_equal(bad, wr);
		must(ibv_destroy_srq(basic));
	}
	close_tm(&t);
}

/*
 * As many tags as were asked for, and the places of those that were matched or removed are good
 * again; many times round
 */
static void full(UNUSED void **state)
{
	static const uint32_t sizes[] = { 1, 2, 7, 8, 100 };

	for (unsigned s = 0; s < ARRAY(sizes); s++) {
		uint32_t n = sizes[s], *h = calloc(n, sizeof(*h));
		struct ibv_ops_wr wr, *bad;
		struct match t;

		open_tm(&t, 16, n, 64);
		for (unsigned round = 0; round < 5; round++) {
			for (uint32_t i = 0; i < n; i++)
				h[i] = add(&t, i, 128 * i, 128, 100 + i, ALL);
			wr = add_wr(99, NULL, 1, ALL, IBV_OPS_SIGNALED);
			assert_int_equal(ibv_post_srq_ops(t.srq, &wr, &bad), ENOMEM);
			assert_ptr_equal(bad, &wr);
			for (uint32_t k = 0; k < n; k++) {
				uint32_t i = (k * 7 + round) % n;

				if (n % 7 == 0)
					i = k;
				if ((i + round) & 1) {
					assert_int_equal(del(&t, 500, h[i], 0).status, IBV_WC_SUCCESS);
					continue;
				}
				eager(&t.tx, 100 + i, i, i, 64);
				expect_done(t.cq, 1000 + i, IBV_WC_TM_RECV, MATCHED);
				assert_memory_equal(t.rx.buf + 128 * i, t.tx.buf + i, 64);
			}
		}
		close_tm(&t);
		free(h);
	}
}

/* ---- eager ---- */

/*
 * Up to one packet: match and data in one. More: one after the other, and libmlx5: the second
 * without the header
 */
static void eager_sizes(UNUSED void **state)
{
	static const uint32_t sizes[] = { 0, 1, 15, 16, 17, 32, 48, 64, 65, 500, MTU - TMH, MTU - TMH + 1, 4096, 65536, 300000, 700000 };

	for (int cqe = 64; cqe <= 128; cqe += 64) {
		struct match t;

		open_tm(&t, 16, 8, cqe);
		for (unsigned i = 0; i < ARRAY(sizes); i++) {
			uint64_t tag = 0x123456789abcdef0ull + i;
			uint32_t len = sizes[i];
			struct done d;

			memset(t.rx.buf, 0xaa, SIZE);
			add(&t, i, 64, len + 1, tag, ALL);
			eager(&t.tx, tag, 0xc0ffee00 + i, 3, len);
			if (len <= MTU - TMH) {
				d = expect_done(t.cq, 1000 + i, IBV_WC_TM_RECV, MATCHED);
			} else {
				d = expect_done(t.cq, 1000 + i, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);
				assert_int_equal(d.tm.tag, tag);
				d = expect_done(t.cq, 1000 + i, IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID);
				d.tm = (struct ibv_wc_tm_info){ tag, 0xc0ffee00 + i };
			}
			assert_int_equal(d.tm.tag, tag);
			assert_int_equal(d.tm.priv, 0xc0ffee00 + i);
			assert_int_equal(d.len, len);
			assert_int_equal(d.qpn, t.rx.qp->qp_num);
			assert_memory_equal(t.rx.buf + 64, t.tx.buf + 3, len);
			assert_true(all_bytes(t.rx.buf, 64, 0xaa) && all_bytes(t.rx.buf + 64 + len, 4096, 0xaa));
		}
		close_tm(&t);
	}
}

/* The first match in the list, even if later entries match too */
static void order_and_masks(UNUSED void **state)
{
	static const struct {
		uint64_t tag, mask;
	} entries[] = { { 0x10, ALL }, { 0x10, ALL }, { 0x20, 0xf0 }, { 0x2a, ALL }, { 0, 0 }, { 0x10, ALL }, { 1ull << 63, 1ull << 63 },
			{ 0x13, 0x10 } /* never: bits of the tag that the mask has not */ };
	static const struct {
		uint64_t tag;
		unsigned hit;
	} messages[] = { { 0x10, 0 }, { 0x2a, 2 }, { 0x10, 1 }, { 0x2a, 3 }, { 0x77, 4 }, { 0x10, 5 }, { 0xffffffffffffffffull, 6 } };
	uint32_t never = 0;
	struct match t;

	open_tm(&t, 16, 16, 64);
	for (unsigned i = 0; i < ARRAY(entries); i++)
		never = add(&t, i, 128 * i, 128, entries[i].tag, entries[i].mask);
	for (unsigned i = 0; i < ARRAY(messages); i++) {
		struct done d;

		eager(&t.tx, messages[i].tag, i, i, 100);
		d = expect_done(t.cq, 1000 + messages[i].hit, IBV_WC_TM_RECV, MATCHED);
		assert_int_equal(d.tm.tag, messages[i].tag);
		assert_memory_equal(t.rx.buf + 128 * messages[i].hit, t.tx.buf + i, 100);
	}
	untagged(&t, 50, HALF, 4096);
	eager(&t.tx, 0x13, 1, 0, 10);
	expect_done(t.cq, 50, IBV_WC_TM_RECV, 0);
	t.unexpected++;
	assert_int_equal(del(&t, 60, never, IBV_OPS_TM_SYNC).status, IBV_WC_SUCCESS);
	close_tm(&t);
}

/* ---- unexpected messages, and the phase ---- */

/* One that finds no tag: whole in the SRQ's buffer. The program has not counted it yet */
static void unexpected(struct match *t, uint64_t tag)
{
	struct ibv_tmh h = tmh_of(IBV_TMH_EAGER, tag, 0x1234);
	struct done d;

	untagged(t, 900, HALF, 1024);
	eager(&t->tx, tag, 0x1234, 5, 100);
	d = expect_done(t->cq, 900, IBV_WC_TM_RECV, 0);
	assert_int_equal(d.len, TMH + 100);
	assert_int_equal(d.qpn, t->rx.qp->qp_num);
	assert_memory_equal(t->rx.buf + HALF, &h, TMH);
	assert_memory_equal(t->rx.buf + HALF + TMH, t->tx.buf + 5, 100);
}

/*
 * A tag that is added before the device knows that the program has seen all unexpected messages
 * matches nothing until then
 */
static void phase(UNUSED void **state)
{
	struct ibv_ops_wr wr;
	uint32_t h[4];
	struct match t;

	open_tm(&t, 64, 16, 64);
	add(&t, 1, 0, 128, 1, ALL);
	unexpected(&t, 2);
	/* Not counted yet: the tag before it matches, the one after it does not */
	wr = add_wr(2, NULL, 2, ALL, IBV_OPS_SIGNALED);
	post_ops(&t, &wr);
	h[0] = wr.tm.handle;
	/* libmlx5 compares with the count that the program gave last, as the device does not tell it of this message */
	expect_done(t.cq, 2, IBV_WC_TM_ADD, IBV_WC_TM_SYNC_REQ);
	expected(&t, 1, 1001);
	unexpected(&t, 2);
	assert_int_equal(del(&t, 3, h[0], 0).status, IBV_WC_SUCCESS);
	/* A count that is too low changes nothing */
	t.unexpected = 1;
	{
		struct ibv_sge sg = sge(&t.rx, 256, 128);

		wr = add_wr(4, &sg, 2, ALL, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC);
		post_ops(&t, &wr);
		expect_done(t.cq, 4, IBV_WC_TM_ADD, IBV_WC_TM_SYNC_REQ);
	}
	unexpected(&t, 2);
	t.unexpected = 3;
	sync_now(&t, 5);
	expected(&t, 2, 1004);
	/* An ADD brings the count as well, for itself and for those before it; so does a DEL */
	unexpected(&t, 3);
	for (int i = 0; i < 3; i++) {
		struct ibv_sge sg = sge(&t.rx, 128 * i, 128);

		wr = add_wr(10 + i, &sg, 3, ALL, 0);
		if (i == 2) {
			t.unexpected++;
			wr.flags = IBV_OPS_TM_SYNC;
		}
		post_ops(&t, &wr);
		h[i] = wr.tm.handle;
	}
	for (int i = 0; i < 3; i++)
		expected(&t, 3, 1010 + i);
	unexpected(&t, 4);
	for (int i = 0; i < 2; i++) {
		struct ibv_sge sg = sge(&t.rx, 128 * i, 128);

		wr = add_wr(20 + i, &sg, 4, ALL, 0);
		post_ops(&t, &wr);
		h[i] = wr.tm.handle;
	}
	t.unexpected++;
	assert_int_equal(del(&t, 30, h[0], IBV_OPS_TM_SYNC).status, IBV_WC_SUCCESS);
	expected(&t, 4, 1021);
	close_tm(&t);
}

/*
 * Without an SRQ buffer an unexpected message waits at its sender, uncounted, and takes the tag
 * that has come meanwhile
 */
static void not_ready(UNUSED void **state)
{
	struct match t;
	struct ibv_tmh h = tmh_of(IBV_TMH_EAGER, 5, 6);

	open_tm(&t, 16, 16, 64);
	send_raw(&t.tx, &h, TMH, 0, 64);
	nothing_done(t.cq);
	add(&t, 1, 0, 64, 5, ALL);
	sent(&t.tx);
	expect_done(t.cq, 1001, IBV_WC_TM_RECV, MATCHED);
	send_raw(&t.tx, &h, TMH, 0, 64);
	nothing_done(t.cq);
	untagged(&t, 2, 0, 1024);
	sent(&t.tx);
	expect_done(t.cq, 2, IBV_WC_TM_RECV, 0);
	close_tm(&t);
}

/*
 * A message with no header, part of one, or one of another kind goes to the program and is not
 * counted
 */
static void without_tag(UNUSED void **state)
{
	static const struct {
		uint8_t op;
		uint32_t len;
	} messages[] = { { IBV_TMH_NO_TAG, 1 }, { IBV_TMH_NO_TAG, 16 }, { IBV_TMH_NO_TAG, 4000 }, { IBV_TMH_FIN, 32 }, { IBV_TMH_FIN, 3 },
			 { IBV_TMH_EAGER, 1 }, { IBV_TMH_EAGER, 15 }, { IBV_TMH_RNDV, 16 }, { IBV_TMH_RNDV, 31 }, { 4, 100 }, { 255, 16 },
			 { IBV_TMH_NO_TAG, 0 } };

	for (int cqe = 64; cqe <= 128; cqe += 64) {
		struct match t;

		open_tm(&t, 64, 16, cqe);
		add(&t, 1, 0, 4096, 0, 0);
		for (unsigned i = 0; i < ARRAY(messages); i++) {
			uint32_t len = messages[i].len, head = len < 64 ? len : 64;
			uint8_t bytes[64];
			struct done d;

			fill(bytes, sizeof(bytes), i);
			bytes[0] = messages[i].op;
			memset(t.rx.buf, 0xaa, SIZE);
			untagged(&t, i, HALF, 8192);
			send_raw(&t.tx, bytes, head, 9, len - head);
			sent(&t.tx);
			d = expect_done(t.cq, i, IBV_WC_TM_NO_TAG, 0);
			assert_int_equal(d.len, len);
			assert_memory_equal(t.rx.buf + HALF, bytes, head);
			assert_memory_equal(t.rx.buf + HALF + head, t.tx.buf + 9, len - head);
			assert_true(all_bytes(t.rx.buf + HALF + len, 100, 0xaa));
		}
		/* Still in step */
		add(&t, 2, 0, 4096, 1, ALL);
		expected(&t, 1, 1001);
		expected(&t, 1, 1002);
		close_tm(&t);
	}
}

/* An immediate comes with the last completion of its message */
static void immediate(UNUSED void **state)
{
	struct ibv_tmh h = tmh_of(IBV_TMH_EAGER, 5, 6);
	struct match t;

	open_tm(&t, 16, 16, 64);
	for (int i = 0; i < 3; i++) {
		uint32_t len = i == 1 ? 5000 : 50;
		struct ibv_sge sg[2] = { sge(&t.tx, HEAD, TMH), sge(&t.tx, 0, len) };
		struct ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, 77, sg, 2, &t.tx, 0);
		struct done d;

		memcpy(t.tx.buf + HEAD, &h, TMH);
		wr.imm_data = htobe32(0xabcd0000 + i);
		if (i < 2)
			add(&t, i, 0, 8192, 5, ALL);
		else
			untagged(&t, 1000 + i, 0, 8192);
		post(&t.tx, &wr);
		sent(&t.tx);
		if (i == 1)
			expect_done(t.cq, 1001, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);
		d = expect_done(t.cq, 1000 + i, IBV_WC_TM_RECV,
				IBV_WC_WITH_IMM | (i == 0 ? MATCHED : i == 1 ? IBV_WC_TM_DATA_VALID : 0));
		assert_int_equal(d.imm, 0xabcd0000 + i);
	}
	close_tm(&t);
}

/*
 * A write with an immediate takes an SRQ's buffer and is told of on the SRQ's CQ; no list is asked,
 * nothing is counted
 */
static void written(UNUSED void **state)
{
	struct match t;
	struct done d;

	open_tm(&t, 16, 16, 64);
	add(&t, 1, 0, 64, 0, 0);
	untagged(&t, 2, 4096, 64);
	sg = sge(&t.tx, 3, 1000);
	wr = request(IBV_WR_RDMA_WRITE_WITH_IMM, 77, &sg, 1, &t.rx, HALF);
	wr.imm_data = htobe32(99);
	post(&t.tx, &wr);
	sent(&t.tx);
	d = expect_done(t.cq, 2, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM);
	assert_int_equal(d.imm, 99);
	assert_int_equal(d.len, 1000);
	assert_memory_equal(t.rx.buf + HALF, t.tx.buf + 3, 1000);
	add(&t, 3, 0, 64, 0, 0);
	close_tm(&t);
}

/* All completions make events on the SRQ's CQ, when it is armed */
static void events(UNUSED void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct ibv_cq_init_attr_ex init = { .cqe = 64, .channel = ch, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO };
	struct match t = { .how = usual };
	struct ibv_ops_wr wr;
	struct ibv_cq *which;
	void *about;

	need_lists();
	assert_non_null(ch);
	t.cq = ibv_create_cq_ex(ctx, &init);
	assert_non_null(t.cq);
	t.srq = try_srq(ibv_cq_ex_to_cq(t.cq), 16, 8, 16);
	assert_non_null(t.srq);
	connect_to(&t, &t.rx, &t.tx);
	for (int i = 0; i < 3; i++) {
		must(ibv_req_notify_cq(ibv_cq_ex_to_cq(t.cq), 0));
		go();
		assert_false(readable(ch->fd, 5));
		if (i == 0) {
			sg = sge(&t.rx, 0, 128);
			wr = add_wr(1, &sg, 5, ALL, IBV_OPS_SIGNALED);
			post_ops(&t, &wr);
			go();
		} else {
			untagged(&t, 2, 4096, 1024);
			eager(&t.tx, 5, 1, 0, 100);
		}
		assert_true(readable(ch->fd, PATIENCE * 1000));
		must(ibv_get_cq_event(ch, &which, &about));
		assert_ptr_equal(which, ibv_cq_ex_to_cq(t.cq));
		ibv_ack_cq_events(which, 1);
		assert_int_equal(next_done(t.cq).wr_id, i == 0 ? 1 : i == 1 ? 1001 : 2);
	}
	close_tm(&t);
	must(ibv_destroy_comp_channel(ch));
}

/* Many QPs on one SRQ match in one list */
static void several(UNUSED void **state)
{
	struct side rx[5], tx[5];
	struct match t;

	open_tm(&t, 64, 64, 64);
	for (int i = 0; i < 5; i++)
		connect_to(&t, &rx[i], &tx[i]);
	for (int i = 0; i < 40; i++)
		add(&t, i, 128 * i, 128, i & 1 ? 7 : 8, ALL);
	for (int i = 0; i < 40; i++) {
		int who = (i * 3 + i / 7) % 5, hit = i < 20 ? 2 * i + 1 : 2 * (i - 20);
		struct done d;

		eager(&tx[who], i < 20 ? 7 : 8, i, i, 100);
		d = expect_done(t.cq, 1000 + hit, IBV_WC_TM_RECV, MATCHED);
		assert_int_equal(d.qpn, rx[who].qp->qp_num);
		assert_memory_equal(t.rx.buf + 128 * hit, tx[who].buf + i, 100);
	}
	for (int i = 0; i < 5; i++) {
		close_side(&tx[i]);
		close_side_but_cqs(&rx[i]);
	}
	close_tm(&t);
}

/* The counts are 16 bits wide */
static void many_unexpected(UNUSED void **state)
{
	const uint32_t n = 70000;
	struct ibv_send_wr wr[32];
	struct ibv_sge sg[32];
	struct match t;
	uint32_t i, k;

	open_tm(&t, 64, 16, 64);
	for (i = 0; i < n; i += 32) {
		for (k = 0; k < 32; k++)
			untagged(&t, k, 64 * k, 64);
		for (k = 0; k < 32; k++) {
			struct ibv_tmh h = tmh_of(IBV_TMH_EAGER, i + k, 0);

			memcpy(t.tx.buf + HEAD + TMH * k, &h, TMH);
			sg[k] = sge(&t.tx, HEAD + TMH * k, TMH);
			wr[k] = request(IBV_WR_SEND, 77, &sg[k], 1, &t.tx, 0);
			wr[k].send_flags = k == 31 ? IBV_SEND_SIGNALED : 0;
			wr[k].next = k == 31 ? NULL : &wr[k + 1];
		}
		post(&t.tx, wr);
		sent(&t.tx);
		for (k = 0; k < 32; k++) {
			struct done d = next_done(t.cq);

			assert_int_equal(d.status, IBV_WC_SUCCESS);
			assert_int_equal(d.wr_id, k);
			/* Is what the program has not acknowledged too much? */
			assert_int_equal(!!(d.flags & IBV_WC_TM_SYNC_REQ), i + k + 1 - t.unexpected > 0x3fff);
			assert_int_equal(be64toh(((struct ibv_tmh *)(void *)(t.rx.buf + 64 * k))->tag), i + k);
		}
		if (i == 1600 || i == 32000 || i == 65504) {
			struct ibv_ops_wr one = add_wr(i, NULL, i, ALL, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC);
			struct done d;

			t.unexpected = i + 32;
			post_ops(&t, &one);
			d = next_done(t.cq);
			/* libmlx5: the device's count has 16 bits, and the program's is compared as it is */
			assert_int_equal(d.flags, i == 65504 ? IBV_WC_TM_SYNC_REQ : 0);
			send_raw(&t.tx, &(struct ibv_tmh){ .opcode = IBV_TMH_EAGER, .tag = htobe64(i) }, TMH, 0, 0);
			sent(&t.tx);
			expect_done(t.cq, 1000 + i, IBV_WC_TM_RECV, MATCHED);
		}
	}
	close_tm(&t);
}

/* ---- removal ---- */

static void removal(UNUSED void **state)
{
	struct ibv_ops_wr wr;
	struct match t;
	uint32_t h[3];

	open_tm(&t, 16, 3, 64);
	for (unsigned i = 0; i < 3; i++)
		h[i] = add(&t, i, 128 * i, 128, 9, ALL);
	/* From the middle; it matches no more, the others still do, and in their order */
	assert_int_equal(del(&t, 10, h[1], 0).status, IBV_WC_SUCCESS);
	expected(&t, 9, 1000);
	expected(&t, 9, 1002);
	/* Too late: the message was there before. Both completions come, in their order */
	h[0] = add(&t, 3, 0, 128, 9, ALL);
	{
		struct ibv_tmh hd = tmh_of(IBV_TMH_EAGER, 9, 1);

		send_raw(&t.tx, &hd, TMH, 5, 100);
		sent(&t.tx);
	}
	wr = (struct ibv_ops_wr){ .wr_id = 11, .opcode = IBV_WR_TAG_DEL, .flags = IBV_OPS_SIGNALED };
	wr.tm.handle = h[0];
	post_ops(&t, &wr);
	expect_done(t.cq, 1003, IBV_WC_TM_RECV, MATCHED);
	{
		struct done d = next_done(t.cq);

		assert_int_equal(d.status, IBV_WC_TM_ERR);
		assert_int_equal(d.wr_id, 11);
		assert_int_equal(d.opcode, IBV_WC_TM_DEL);
	}
	/* All places are free again */
	for (unsigned i = 0; i < 3; i++)
		h[i] = add(&t, 20 + i, 128 * i, 128, 9, ALL);
	for (unsigned i = 0; i < 3; i++)
		expected(&t, 9, 1020 + i);
	close_tm(&t);
}

/* ---- rendezvous ---- */

/*
 * Match, data read by the device, and FIN, with or without a send queue for the device to share
 * with the program
 */
static void rendezvous(UNUSED void **state)
{
	static const uint32_t sizes[] = { 0, 1, 64, 1000, 65536, 300000 };
	static const size_t extras[] = { 0, 1, 32 };

	for (int kind = 0; kind < 3; kind++) {
		struct match t;

		open_tm(&t, 16, 8, kind == 1 ? 128 : 64);
		if (kind == 2) {
			close_side(&t.tx);
			close_side_but_cqs(&t.rx);
			t.how.cap.max_send_wr = 0;
			{
				struct how how = usual;

				open_side(&t.tx, &how);
				how = t.how;
				how.srq = t.srq;
				how.cq = ibv_cq_ex_to_cq(t.cq);
				open_side(&t.rx, &how);
				bring_up(t.tx.qp, t.rx.qp->qp_num, &how);
				bring_up(t.rx.qp, t.tx.qp->qp_num, &how);
				fill(t.tx.buf, SIZE, 1);
			}
		}
		for (unsigned i = 0; i < ARRAY(sizes) * ARRAY(extras); i++) {
			uint32_t len = sizes[i % ARRAY(sizes)];
			size_t extra = extras[i / ARRAY(sizes)];
			struct request q = rndv_of(&t, 50 + i, 7, len, extra);

			memset(t.rx.buf, 0xaa, SIZE);
			fin_room(&t, i);
			add(&t, i, 64, len, 50 + i, ALL);
			offer(&t, &q, extra);
			match_and_data(&t, 1000 + i, &q);
			fin_comes(&t, i, &q);
			assert_memory_equal(t.rx.buf + 64, t.tx.buf + 7, len);
			assert_true(all_bytes(t.rx.buf, 64, 0xaa) && all_bytes(t.rx.buf + 64 + len, 4096, 0xaa));
		}
		/* None of these counts in the list */
		add(&t, 500, 0, 100, 1, ALL);
		expected(&t, 1, 1500);
		close_tm(&t);
	}
}

/* Several at once; their number goes beyond what may be read at a time */
static void rendezvous_queue(UNUSED void **state)
{
	enum { N = 40, LEN = 9000 };
	struct request q;
	struct match t;

	open_tm(&t, 16, 64, 64);
	for (int i = 0; i < N; i++) {
		recv_at(&t.tx, i, FIN_AT + 64 * i, 64);
		add(&t, i, i * LEN, LEN, i, ALL);
	}
	for (int i = 0; i < N; i++) {
		q = rndv_of(&t, N - 1 - i, i, LEN - i, 0);
		offer(&t, &q, 0);
	}
	{
		bool matched[N] = { false }, read[N] = { false };

		for (int i = 0; i < 2 * N; i++) {
			struct done d = next_done(t.cq);
			int k = d.wr_id - 1000;

			assert_int_equal(d.status, IBV_WC_SUCCESS);
			assert_true(k >= 0 && k < N && !read[k]);
			assert_int_equal(d.flags, matched[k] ? IBV_WC_TM_DATA_VALID : IBV_WC_TM_MATCH);
			read[k] = matched[k];
			matched[k] = true;
			if (read[k])
				assert_memory_equal(t.rx.buf + k * LEN, t.tx.buf + N - 1 - k, LEN - (N - 1 - k));
		}
	}
	for (int i = 0; i < N; i++) {
		struct ibv_wc wc = plain_wc(t.tx.rcq);

		assert_int_equal(wc.wr_id, i);
		assert_int_equal(be64toh(((struct ibv_tmh *)(void *)(t.tx.buf + FIN_AT + 64 * i))->tag), N - 1 - i);
	}
	close_tm(&t);
}

/* No tag: the program finds the request in the SRQ's buffer, and the message counts */
static void rendezvous_unexpected(UNUSED void **state)
{
	struct request q;
	struct match t;
	struct done d;

	open_tm(&t, 16, 16, 64);
	for (unsigned extra = 0; extra <= 1000; extra += 250) {
		q = rndv_of(&t, 5, 0, 1000, extra);
		untagged(&t, 1, HALF, 4096);
		offer(&t, &q, extra);
		d = expect_done(t.cq, 1, IBV_WC_TM_RECV, 0);
		assert_int_equal(d.len, TMH + RVH + extra);
		assert_memory_equal(t.rx.buf + HALF, &q, TMH + RVH + extra);
	}
	{
		struct ibv_ops_wr wr = add_wr(2, NULL, 5, ALL, IBV_OPS_SIGNALED);

		post_ops(&t, &wr);
		expect_done(t.cq, 2, IBV_WC_TM_ADD, IBV_WC_TM_SYNC_REQ);
		t.unexpected = 5;
		assert_int_equal(del(&t, 3, wr.tm.handle, IBV_OPS_TM_SYNC).status, IBV_WC_SUCCESS);
	}
	close_tm(&t);
}

/*
 * The buffer is too small, or the request is not one for the device: it is the program's, and lies
 * in the tagged buffer
 */
static void rendezvous_by_software(UNUSED void **state)
{
	static const struct {
		uint32_t len, room;
		size_t extra;
	} cases[] = { { 1000, 999, 0 }, { 1000, 64, 32 }, { 0xffffffff, 4096, 1 }, { 100, 4096, 33 }, { 100, 4096, 900 } };
	struct match t;

	for (int cqe = 64; cqe <= 128; cqe += 64) {
		open_tm(&t, 16, 8, cqe);
		for (unsigned i = 0; i < ARRAY(cases); i++) {
			struct request q = rndv_of(&t, 5, 0, cases[i].len, cases[i].extra);
			struct done d;

			memset(t.rx.buf, 0xaa, SIZE);
			add(&t, i, 64, cases[i].room, 5, ALL);
			offer(&t, &q, cases[i].extra);
			d = next_done(t.cq);
			assert_int_equal(d.status, IBV_WC_TM_RNDV_INCOMPLETE);
			assert_int_equal(d.wr_id, 1000 + i);
			assert_int_equal(d.opcode, IBV_WC_TM_RECV);
			assert_int_equal(d.flags, MATCHED);
			assert_int_equal(d.len, TMH + RVH + cases[i].extra);
			assert_int_equal(d.tm.tag, 5);
			assert_memory_equal(t.rx.buf + 64, &q, TMH + RVH + cases[i].extra);
			assert_true(all_bytes(t.rx.buf + 64 + TMH + RVH + cases[i].extra, 1000, 0xaa));
		}
		close_tm(&t);
	}
	/* A QP that may not read */
	open_tm(&t, 16, 8, 64);
	{
		struct request q = rndv_of(&t, 5, 0, 100, 0);
		struct ibv_qp_attr a = attr_for(IBV_QPS_RTS, 0, &t.how);
		struct done d;

		must(move(t.rx.qp, IBV_QPS_RESET, 0, &t.how));
		must(move(t.tx.qp, IBV_QPS_RESET, 0, &t.how));
		bring_up(t.tx.qp, t.rx.qp->qp_num, &t.how);
		must(move(t.rx.qp, IBV_QPS_INIT, 0, &t.how));
		must(move(t.rx.qp, IBV_QPS_RTR, t.tx.qp->qp_num, &t.how));
		a.max_rd_atomic = 0;
		must(ibv_modify_qp(t.rx.qp, &a, RTS_MASK));
		add(&t, 1, 0, 4096, 5, ALL);
		offer(&t, &q, 0);
		d = next_done(t.cq);
		assert_int_equal(d.status, IBV_WC_TM_RNDV_INCOMPLETE);
		assert_memory_equal(t.rx.buf, &q, TMH + RVH);
	}
	close_tm(&t);
}

/* ---- any order of anything, against a list that is searched from its front ---- */

struct model {
	struct {
		uint64_t tag, mask;
		uint32_t handle, id, room;
		bool enabled;
	} e[64];
	unsigned n;
	uint16_t hw, sw;
};

static void model_sync(struct model *m, uint16_t sw)
{
	m->sw = sw;
	for (unsigned i = 0; i < m->n && m->sw == m->hw; i++)
		m->e[i].enabled = true;
}

static void model_remove(struct model *m, unsigned i)
{
	memmove(m->e + i, m->e + i + 1, (--m->n - i) * sizeof(m->e[0]));
}

static unsigned model_match(const struct model *m, uint64_t tag)
{
	unsigned i;

	for (i = 0; i < m->n; i++)
		if (m->e[i].enabled && (tag & m->e[i].mask) == m->e[i].tag)
			break;
	return i;
}

enum { TAGS = 40, ROOM = 4096 };

/* While the counts differ, what is added waits */
static void at_random(UNUSED void **state)
{
	const char *rounds = getenv("DEVICE_ROUNDS");
	unsigned long n = 2000 * (rounds ? strtoul(rounds, NULL, 0) : 3), step;
	static const uint64_t masks[] = { ALL, ALL, ALL, 0xf, 0xf0, 0, 0xff00000000000000ull };
	unsigned count[8] = { 0 };
	struct model m = { .n = 0 };
	struct match t;

	open_tm(&t, 64, TAGS, 64);
	for (step = 0; step < n; step++) {
		uint64_t tag = rnd() % 4 | (rnd() % 3) << 4 | (rnd() % 8 ? 0 : 0xab00000000000000ull);
		int flags = rnd() % 3 ? IBV_OPS_TM_SYNC : 0, what = rnd() % 16;
		struct ibv_ops_wr wr = { .wr_id = step, .flags = flags | IBV_OPS_SIGNALED };
		struct done d;
		unsigned hit;

		/* The program tells of what it has handled, and now and then of less */
		if (flags && rnd() % 4)
			t.unexpected = m.hw;
		if (what < 5 && m.n < TAGS) {
			m.e[m.n].mask = masks[rnd() % ARRAY(masks)];
			m.e[m.n].tag = tag & m.e[m.n].mask;
			m.e[m.n].room = 64 + rnd() % (ROOM - 64);
			m.e[m.n].id = step + 1000;
			wr = add_wr(step, &sg, m.e[m.n].tag, m.e[m.n].mask, flags | IBV_OPS_SIGNALED);
			/* The place in memory goes with the handle, which is known only afterwards: by number of the step */
			sg = sge(&t.rx, step % (2 * TAGS) * ROOM, m.e[m.n].room);
			post_ops(&t, &wr);
			if (flags)
				model_sync(&m, t.unexpected);
			m.e[m.n].handle = wr.tm.handle;
			m.e[m.n].enabled = m.hw == m.sw;
			m.n++;
			d = next_done(t.cq);
			assert_int_equal(d.opcode, IBV_WC_TM_ADD);
			assert_int_equal(d.status, IBV_WC_SUCCESS);
			count[0]++;
		} else if (what < 7 && m.n) {
			unsigned i = rnd() % m.n;

			wr.opcode = IBV_WR_TAG_DEL;
			wr.tm.handle = m.e[i].handle;
			post_ops(&t, &wr);
			model_remove(&m, i);
			if (flags)
				model_sync(&m, t.unexpected);
			d = next_done(t.cq);
			assert_int_equal(d.opcode, IBV_WC_TM_DEL);
			assert_int_equal(d.status, IBV_WC_SUCCESS);
			count[1]++;
		} else if (what == 7) {
			wr.opcode = IBV_WR_TAG_SYNC;
			post_ops(&t, &wr);
			if (flags)
				model_sync(&m, t.unexpected);
			d = next_done(t.cq);
			assert_int_equal(d.opcode, IBV_WC_TM_SYNC);
			count[2]++;
		} else if (what == 8) {
			untagged(&t, step, SIZE - 8192, 4096);
			send_raw(&t.tx, &(struct ibv_tmh){ .tag = htobe64(tag) }, TMH, 0, 0);
			sent(&t.tx);
			expect_done(t.cq, step, IBV_WC_TM_NO_TAG, 0);
			count[3]++;
		} else {
			bool rndv = what > 13;
			uint32_t len = rnd() % (rndv ? ROOM : MTU - TMH), off = rnd() % 4096;
			struct request q = rndv_of(&t, tag, off, len, 0);

			hit = model_match(&m, tag);
			if (hit == m.n)
				untagged(&t, step, SIZE - 8192, 4096);
			else if (!rndv && len > m.e[hit].room)
				len = m.e[hit].room;
			if (rndv && hit < m.n && len <= m.e[hit].room)
				fin_room(&t, step);
			if (rndv)
				offer(&t, &q, 0);
			else
				eager(&t.tx, tag, step, off, len);
			d = next_done(t.cq);
			if (hit == m.n) {
				assert_int_equal(d.wr_id, step);
				assert_int_equal(d.flags & MATCHED, 0);
				assert_int_equal(d.len, rndv ? TMH + RVH : TMH + len);
				m.hw++;
				count[4]++;
				continue;
			}
			assert_int_equal(d.wr_id, m.e[hit].id);
			assert_int_equal(d.tm.tag, tag);
			assert_true(d.flags & IBV_WC_TM_MATCH);
			if (!rndv) {
				assert_int_equal(d.flags, MATCHED);
				assert_int_equal(d.len, len);
			} else if (len <= m.e[hit].room) {
				assert_int_equal(d.flags, IBV_WC_TM_MATCH);
				d = expect_done(t.cq, m.e[hit].id, IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID);
				fin_comes(&t, step, &q);
			} else {
				assert_int_equal(d.status, IBV_WC_TM_RNDV_INCOMPLETE);
				len = 0;
			}
			assert_memory_equal(t.rx.buf + (m.e[hit].id - 1000) % (2 * TAGS) * ROOM, t.tx.buf + off, len);
			model_remove(&m, hit);
			count[rndv ? 6 : 5]++;
		}
	}
	print_message("# %lu steps: %u added, %u removed, %u counts alone, %u without tag, %u unexpected, %u eager, %u rendezvous\n", n,
		      count[0], count[1], count[2], count[3], count[4], count[5], count[6]);
	for (unsigned i = 0; i < 7; i++)
		assert_true(count[i] > n / 100);
	close_tm(&t);
}

/* ---- two processes ---- */

enum { MESSAGES = 400, PEER_LEN = 20000 };

static uint32_t peer_len(int i)
{
	return i % 5 == 4 ? PEER_LEN - i : i % 5 == 3 ? 3000 + i : i * 2;
}

/*
 * The sender: a fifth are rendezvous, and it waits for each of their FINs; every third tag is not
 * there when it comes
 */
static int peer(void)
{
	struct match t = { .how = usual };

	if (setup(NULL))
		return 1;
	open_remote(&first_process, &t.tx, &t.how);
	fill(t.tx.buf, SIZE, 1);
	hear(&first_process);
	for (int i = 0; i < MESSAGES; i++) {
		struct request q = rndv_of(&t, i, i, peer_len(i), 0);

		if (i % 5 != 4) {
			eager(&t.tx, i, i, i, peer_len(i));
			continue;
		}
		fin_room(&t, i);
		offer(&t, &q, 0);
		fin_comes(&t, i, &q);
	}
	/* What was taken is on its way until the other side says that it has it all */
	hear(&first_process);
	close_side(&t.tx);
	return teardown(NULL) ? 1 : 0;
}

static void receive(struct match *t, int i, const uint8_t *sent_bytes)
{
	uint32_t len = peer_len(i);
	bool late = i % 3 == 2 && i % 5 != 4;
	size_t at = i % 8 * (size_t)(PEER_LEN + 64);
	struct done d;

	if (late)
		untagged(t, i, at, PEER_LEN);
	else
		add(t, i, at, PEER_LEN, i, ALL);
	assert_true(done_within(t->cq, &d, PATIENCE));
	assert_int_equal(d.status, IBV_WC_SUCCESS);
	assert_int_equal(d.wr_id, late ? i : 1000 + i);
	if (late) {
		t->unexpected++;
		assert_int_equal(d.len, TMH + len);
		assert_memory_equal(t->rx.buf + at + TMH, sent_bytes + i, len);
		return;
	}
	if (d.flags != MATCHED)
		d = expect_done(t->cq, 1000 + i, IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID);
	assert_int_equal(d.len, len);
	assert_memory_equal(t->rx.buf + at, sent_bytes + i, len);
}

static void two_processes(UNUSED void **state)
{
	uint8_t *bytes = malloc(SIZE);
	struct card theirs;
	struct peer other;
	struct match t;

	if (softdev_present() && softdev_run() != -EPERM) {
		print_message("skipped: a device without an engine is alone\n");
		free(bytes);
		skip();
	}
	fill(bytes, SIZE, 1);
	other = start_peer("peer", NULL);
	open_tm(&t, 16, 8, 64);
	must(move(t.rx.qp, IBV_QPS_RESET, 0, &t.how));
	theirs = exchange(&other, card_of(&t.rx));
	bring_up(t.rx.qp, theirs.qpn, &t.how);
	/* Not earlier: there would be no answer */
	tell(&other);
	for (int i = 0; i < MESSAGES; i++)
		receive(&t, i, bytes);
	tell(&other);
	must(end_peer(&other));
	close_tm(&t);
	free(bytes);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(capabilities), TEST(creation), TEST(operations), TEST(full), TEST(eager_sizes),
		TEST(order_and_masks), TEST(phase), TEST(not_ready), TEST(without_tag), TEST(immediate), TEST(written),
		TEST(events), TEST(several), TEST(many_unexpected), TEST(removal), TEST(rendezvous),
		TEST(rendezvous_queue), TEST(rendezvous_unexpected), TEST(rendezvous_by_software), TEST(at_random),
		TEST(two_processes),
	};

	if (argc == 2 && !strcmp(argv[1], "peer"))
		return peer();
	return RUN(tests);
}
