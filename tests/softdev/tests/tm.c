/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tm.c: tag matching as libmlx5 drives it: what messages do with the list, rendezvous; any order of these against a plain list, in 2000
 * steps times DEVICE_ROUNDS (3); errors, faults, and the device step by step. The list itself: tm_raw.c, tag/list.c.
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
			/* A tag with bits that its mask has not never matches */
			m.e[m.n].tag = rnd() % 32 ? tag & m.e[m.n].mask : tag;
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

/* ---- errors ---- */

/*
 * A message that its tagged buffer cannot hold, and one whose buffer's key is not good. libmlx5:
 * the error is charged to the SRQ's WQE that the CQE's counter would name; the tag is lost
 */
static void bad_tagged_buffer(UNUSED void **state)
{
	static const uint32_t sizes[] = { 65, 1000, 5000 };

	for (unsigned i = 0; i < 2 * ARRAY(sizes) + 1; i++) {
		bool key = i >= ARRAY(sizes), rndv = i == 2 * ARRAY(sizes);
		uint32_t len = rndv ? 4096 : sizes[i % ARRAY(sizes)];
		struct ibv_tmh h = tmh_of(IBV_TMH_EAGER, 5, 1);
		struct ibv_ops_wr wr;
		struct match t;
		struct done d;

		open_tm(&t, 16, 8, 64);
		sg = sge(&t.rx, 0, key ? 8192 : 64);
		sg.lkey ^= key ? 0x5500 : 0;
		wr = add_wr(1, &sg, 5, ALL, IBV_OPS_SIGNALED);
		post_ops(&t, &wr);
		expect_done(t.cq, 1, IBV_WC_TM_ADD, 0);
		untagged(&t, 42, HALF, 64);
		if (rndv) {
			struct request q = rndv_of(&t, 5, 0, len, 0);

			memcpy(t.tx.buf + HALF + HALF / 2, &q, TMH + RVH);
			send_raw(&t.tx, NULL, 0, HALF + HALF / 2, TMH + RVH);
		} else {
			send_raw(&t.tx, &h, TMH, 0, len);
		}
		failed_send(&t, key ? IBV_WC_REM_OP_ERR : IBV_WC_REM_INV_REQ_ERR);
		/* What has come of it before the key was looked at is nothing */
		d = next_done(t.cq);
		assert_int_equal(d.status, key ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_LEN_ERR);
		assert_int_equal(d.wr_id, 42);
		assert_int_equal(state_of(t.rx.qp), IBV_QPS_ERR);
		close_failed(&t);
	}
}

/* The same of an SRQ buffer, and that an unexpected message which fails is not counted */
static void bad_untagged_buffer(UNUSED void **state)
{
	for (int key = 0; key < 2; key++) {
		struct ibv_recv_wr wr = { .wr_id = 3, .sg_list = &sg, .num_sge = 1 }, *bad;
		struct ibv_tmh h = tmh_of(IBV_TMH_EAGER, 5, 1);
		struct match t;
		struct done d;

		open_tm(&t, 16, 8, 64);
		sg = sge(&t.rx, 0, key ? 8192 : 64);
		sg.lkey ^= key ? 0x5500 : 0;
		must(ibv_post_srq_recv(t.srq, &wr, &bad));
		send_raw(&t.tx, &h, TMH, 0, 64);
		failed_send(&t, key ? IBV_WC_REM_OP_ERR : IBV_WC_REM_INV_REQ_ERR);
		d = next_done(t.cq);
		assert_int_equal(d.status, key ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_LEN_ERR);
		assert_int_equal(d.wr_id, 3);
		add(&t, 4, 0, 64, 5, ALL);
		close_failed(&t);
	}
	/* In the middle, when it had been counted */
	{
		struct ibv_sge sg[2];
		struct ibv_recv_wr wr = { .wr_id = 3, .sg_list = sg, .num_sge = 2 }, *bad;
		struct ibv_tmh h = tmh_of(IBV_TMH_EAGER, 5, 1);
		struct match t;

		open_tm(&t, 16, 8, 64);
		sg[0] = sge(&t.rx, 0, 300000);
		sg[1] = sge(&t.rx, HALF, 300000);
		sg[1].lkey ^= 0x5500;
		must(ibv_post_srq_recv(t.srq, &wr, &bad));
		send_raw(&t.tx, &h, TMH, 0, 500000);
		failed_send(&t, IBV_WC_REM_OP_ERR);
		assert_int_equal(next_done(t.cq).status, IBV_WC_LOC_PROT_ERR);
		add(&t, 4, 0, 64, 5, ALL);
		close_failed(&t);
	}
}

/*
 * The device reads what it may not, or gets no answer: the match stands and the data do not come.
 * libmlx5: this is IBV_WC_RECV
 */
static void cancelled(UNUSED void **state)
{
	for (int how = 0; how < 4; how++) {
		struct request q;
		struct match t;
		struct done d;

		open_tm(&t, 16, 8, 64);
		q = rndv_of(&t, 5, 0, 4096, 0);
		if (how == 0)
			q.r.rkey ^= htobe32(0x5500);
		/* In SQD the QP receives, but does not ask */
		if (how > 1)
			must(move(t.rx.qp, IBV_QPS_SQD, 0, &t.how));
		add(&t, 1, 0, 8192, 5, ALL);
		if (how == 1) {
			/* No right to read here */
			struct ibv_qp_attr a = attr_for(IBV_QPS_RTS, 0, &t.how);

			a.qp_access_flags = IBV_ACCESS_LOCAL_WRITE;
			must(ibv_modify_qp(t.tx.qp, &a, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS));
		}
		offer(&t, &q, 0);
		d = expect_done(t.cq, 1001, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);
		assert_int_equal(d.tm.tag, 5);
		if (how > 1) {
			nothing_done(t.cq);
			must(move(t.rx.qp, how == 2 ? IBV_QPS_ERR : IBV_QPS_RESET, 0, &t.how));
		}
		d = next_done(t.cq);
		assert_int_equal(d.status, IBV_WC_TM_RNDV_INCOMPLETE);
		assert_int_equal(d.wr_id, 1001);
		assert_int_equal(d.opcode, IBV_WC_RECV);
		assert_int_equal(d.flags, MATCHED);
		assert_int_equal(state_of(t.rx.qp), how == 3 ? IBV_QPS_RESET : IBV_QPS_ERR);
		/* The list is as good as before */
		assert_int_equal(del(&t, 3, add(&t, 2, 0, 64, 5, ALL), 0).status, IBV_WC_SUCCESS);
		close_failed(&t);
	}
}

/*
 * The peer fails in the middle of a message, and connects again: what it began does not come, and
 * what it sends then is another message
 */
static void given_up(UNUSED void **state)
{
	for (int late = 0; late < 2; late++) {
		struct ibv_tmh h = tmh_of(IBV_TMH_EAGER, 5, 1);
		struct match t;
		struct done d;

		open_tm(&t, 16, 8, 64);
		if (late)
			untagged(&t, 42, 0, SIZE);
		else
			add(&t, 1, 0, SIZE, 5, ALL);
		add(&t, 2, 0, 100, 6, ALL);
		/* A page of the message goes, which its key does not tell */
		munmap(t.tx.buf + HALF, 4096);
		send_raw(&t.tx, &h, TMH, 0, HALF + 10);
		failed_send(&t, IBV_WC_LOC_PROT_ERR);
		if (!late)
			expect_done(t.cq, 1001, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);
		nothing_done(t.cq);
		must(move(t.tx.qp, IBV_QPS_RESET, 0, &t.how));
		bring_up(t.tx.qp, t.rx.qp->qp_num, &t.how);
		eager(&t.tx, 6, 1, 5, 100);
		if (!late) {
			d = next_done(t.cq);
			assert_int_equal(d.status, IBV_WC_TM_RNDV_INCOMPLETE);
			assert_int_equal(d.wr_id, 1001);
		}
		expect_done(t.cq, 1002, IBV_WC_TM_RECV, MATCHED);
		/* The SRQ's buffer was not used, and nothing counted */
		if (late) {
			eager(&t.tx, 5, 1, 5, 100);
			expect_done(t.cq, 42, IBV_WC_TM_RECV, 0);
			t.unexpected++;
		}
		add(&t, 3, 0, 64, 5, ALL);
		close_tm(&t);
	}
}

/* An overrun CQ takes along the QPs of its SRQ, though their own CQs are well */
static void overrun(UNUSED void **state)
{
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_SYNC, .flags = IBV_OPS_SIGNALED };
	struct ibv_async_event ev;
	bool seen = false;
	struct match t;

	need_lists();
	memset(&t, 0, sizeof(t));
	t.how = usual;
	t.cq = a_cq(15, 64);
	t.srq = try_srq(ibv_cq_ex_to_cq(t.cq), 16, 8, 64);
	assert_non_null(t.srq);
	open_side(&t.tx, &t.how);
	t.how.srq = t.srq;
	open_side(&t.rx, &t.how);
	bring_up(t.rx.qp, t.tx.qp->qp_num, &t.how);
	for (int i = 0; i < 40; i++)
		post_ops(&t, &wr);
	for (double end = now() + PATIENCE; state_of(t.rx.qp) != IBV_QPS_ERR && now() < end;)
		go();
	assert_int_equal(state_of(t.rx.qp), IBV_QPS_ERR);
	while (readable(ctx->async_fd, 50)) {
		must(ibv_get_async_event(ctx, &ev));
		seen |= ev.event_type == IBV_EVENT_CQ_ERR && ev.element.cq == ibv_cq_ex_to_cq(t.cq);
		ibv_ack_async_event(&ev);
	}
	assert_true(seen);
	close_side(&t.tx);
	close_side(&t.rx);
	must(ibv_destroy_srq(t.srq));
	must(ibv_destroy_cq(ibv_cq_ex_to_cq(t.cq)));
}

/* ---- faults: what the device asks of the peer is sent as any message ---- */

static void faults(UNUSED void **state)
{
	/* Message 1 is the offer, 2 the READ, 3 the FIN; a retry is one more */
	static const struct {
		const char *spec;
		bool spoilt, fails, no_fin;
	} cases[] = { { "drop@2", false, false, false }, { "drop@3", false, false, false }, { "drop@2-4", false, false, false },
		      { "dup@*", false, false, false }, { "delay=2ms@2-3", false, false, false }, { "corrupt@2", true, false, false },
		      { "syndrome=0x13@2", false, true, true }, { "syndrome=0x13@3", false, false, true } };

	if (!softdev_present()) {
		print_message("skipped: faults are the software device's\n");
		skip();
	}
	for (unsigned i = 0; i < ARRAY(cases); i++) {
		struct request q;
		struct match t;
		struct done d;

		open_tm(&t, 16, 8, 64);
		q = rndv_of(&t, 5, 0, 4096, 0);
		fin_room(&t, 9);
		add(&t, 1, 0, 8192, 5, ALL);
		must(softdev_fault(cases[i].spec));
		offer(&t, &q, 0);
		expect_done(t.cq, 1001, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);
		d = next_done(t.cq);
		assert_int_equal(d.wr_id, 1001);
		assert_int_equal(d.status, cases[i].fails ? IBV_WC_TM_RNDV_INCOMPLETE : IBV_WC_SUCCESS);
		if (!cases[i].fails)
			assert_int_equal(!!memcmp(t.rx.buf, t.tx.buf, 4096), cases[i].spoilt);
		if (!cases[i].no_fin)
			fin_comes(&t, 9, &q);
		else
			go();
		must(softdev_fault(NULL));
		if (cases[i].no_fin) {
			for (double end = now() + PATIENCE; state_of(t.rx.qp) != IBV_QPS_ERR && now() < end;)
				go();
			assert_int_equal(state_of(t.rx.qp), IBV_QPS_ERR);
			assert_int_equal(ibv_poll_cq(t.tx.rcq, 1, &(struct ibv_wc){ .wr_id = 0 }), 0);
		}
		close_tm(&t);
	}
}

/* ---- the stepped device: what it does by itself is no WQE, and has its turn like one ---- */

static void steps(UNUSED void **state)
{
	struct ibv_ops_wr wr;
	struct request q;
	struct match t;

	if (!softdev_present() || softdev_execute(0, 0) == -EPERM) {
		print_message("skipped: this device is not stepped\n");
		skip();
	}
	open_tm(&t, 16, 8, 64);
	sg = sge(&t.rx, 0, 8192);
	wr = add_wr(1, &sg, 5, ALL, IBV_OPS_SIGNALED);
	post_ops(&t, &wr);
	q = rndv_of(&t, 5, 0, 4096, 0);
	fin_room(&t, 9);
	memcpy(t.tx.buf + HALF + HALF / 2, &q, TMH + RVH);
	send_raw(&t.tx, NULL, 0, HALF + HALF / 2, TMH + RVH);
	/* No tag yet, and no buffer: the message waits, once more where it has its turn before the operation */
	assert_int_equal(softdev_execute(t.tx.qp->qp_num, 1), 0);
	assert_int_equal(softdev_run(), 1);
	assert_int_equal(softdev_run(), 1);
	assert_memory_equal(t.rx.buf, t.tx.buf, 4096);
	expect_done(t.cq, 1, IBV_WC_TM_ADD, 0);
	sent(&t.tx);
	match_and_data(&t, 1001, &q);
	fin_comes(&t, 9, &q);
	/* The match and what follows, one by one */
	add(&t, 2, 0, 8192, 5, ALL);
	memset(t.rx.buf, 0, 4096);
	fin_room(&t, 10);
	send_raw(&t.tx, NULL, 0, HALF + HALF / 2, TMH + RVH);
	by_hand = true;
	assert_int_equal(softdev_execute(t.tx.qp->qp_num, 1), 1);
	nothing_done(t.cq);
	assert_int_equal(softdev_complete(0, 2), 2);
	sent(&t.tx);
	expect_done(t.cq, 1002, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);
	assert_true(all_bytes(t.rx.buf, 4096, 0));
	assert_int_equal(softdev_execute(t.tx.qp->qp_num, 5), 0);
	assert_int_equal(softdev_complete(0, 5), 0);
	assert_int_equal(softdev_execute(t.rx.qp->qp_num, 1), 0);
	assert_memory_equal(t.rx.buf, t.tx.buf, 4096);
	nothing_done(t.cq);
	assert_int_equal(softdev_complete(0, 5), 2);
	expect_done(t.cq, 1002, IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID);
	fin_comes(&t, 10, &q);
	by_hand = false;
	close_tm(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(capabilities), TEST(creation), TEST(eager_sizes), TEST(not_ready), TEST(without_tag), TEST(immediate), TEST(written),
		TEST(many_unexpected), TEST(rendezvous), TEST(rendezvous_queue), TEST(rendezvous_by_software), TEST(at_random),
		TEST(bad_tagged_buffer), TEST(bad_untagged_buffer), TEST(cancelled), TEST(given_up), TEST(overrun), TEST(faults), TEST(steps),
	};

	return RUN(tests);
}
