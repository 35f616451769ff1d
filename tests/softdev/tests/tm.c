/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tm.c: tag matching as libmlx5 drives it: messages and the list, rendezvous, errors, faults, the device step by step. Completions byte
 * by byte: tm_raw.c; the list, what is without a tag or the software's to read: tag/list.c; any order of anything: tag/recv_model.c.
 */
#include "rig_tm.h"

/* ---- creation ---- */

TEST(creation)
{
	struct ibv_cq *plain = ibv_create_cq(ctx, 16, NULL, NULL, 0), *cq;
	struct ibv_cq_ex *ex = a_cq(64, 64);
	struct ibv_qp_init_attr init = { .cap = usual.cap };
	struct ibv_device_attr_ex a;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	uint32_t max;

	need_lists();
	must(ibv_query_device_ex(ctx, NULL, &a));
	max = a.tm_caps.max_num_tags;
	assert_true(max >= 127 && a.tm_caps.max_ops > 0 && a.tm_caps.max_sge == 1 && a.tm_caps.max_rndv_hdr_size == 64);
	cq = ibv_cq_ex_to_cq(ex);
	const struct {
		struct ibv_cq *cq;
		uint32_t wr, tags;
	} bad[] = { { NULL, 16, 8 }, { plain, 16, 8 }, { cq, 16, 0 }, { cq, 16, max + 1 }, { cq, 1u << 20, 8 } };
	for (unsigned i = 0; i < ARRAY(bad); i++)
		if (try_srq(bad[i].cq, bad[i].wr, bad[i].tags, 8) || errno != EINVAL)
			fail_msg("row %u: errno %d", i, errno);
	srq = made(try_srq(cq, 16, max, 8));
	/* It holds its CQ, and its QPs hold it */
	assert_int_equal(ibv_destroy_cq(cq), EBUSY);
	init.send_cq = init.recv_cq = cq;
	init.srq = srq;
	for (init.qp_type = IBV_QPT_UD; init.qp_type >= IBV_QPT_RC; init.qp_type--) {
		qp = ibv_create_qp(pd, &init);
		assert_int_equal(qp != NULL, init.qp_type == IBV_QPT_RC);
	}
	assert_int_equal(ibv_destroy_srq(srq), EBUSY);
	must(ibv_destroy_qp(qp) || ibv_destroy_srq(srq) || ibv_destroy_cq(cq) || ibv_destroy_cq(plain));
}

/* ---- eager ---- */

/*
 * Up to one packet: match and data in one. More: one after the other, and libmlx5: the second without the header. An immediate comes
 * with the last
 */
TEST(eager_sizes)
{
	static const uint32_t sizes[] = { 0, 1, 32, 33, 64, 65, 500, MTU - TMH, MTU - TMH + 1, 65536, 700000 };

	for (int cqe = 64; cqe <= 128; cqe += 64) {
		struct match t;

		open_tm(&t, 16, 8, cqe);
		for (unsigned i = 0; i < ARRAY(sizes); i++) {
			const unsigned with = i & 1 ? IBV_WC_WITH_IMM : 0;
			uint64_t tag = 0x123456789abcdef0ull + i;
			uint32_t len = sizes[i];
			struct done d;

			memset(t.rx.buf, 0xaa, SIZE);
			add(&t, i, 64, len + 1, tag, ALL);
			imm = with ? 0xabcd0000 + i : 0;
			eager(&t.tx, tag, 0xc0ffee00 + i, 3, len);
			d = expect_done(t.cq, 1000 + i, IBV_WC_TM_RECV, len <= MTU - TMH ? MATCHED | with : IBV_WC_TM_MATCH);
			assert_int_equal(d.tm.tag, tag);
			assert_int_equal(d.tm.priv, 0xc0ffee00 + i);
			if (len > MTU - TMH)
				d = expect_done(t.cq, 1000 + i, IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID | with);
			assert_int_equal(d.len, len);
			assert_int_equal(d.qpn, t.rx.qp->qp_num);
			assert_true(!with || d.imm == imm);
			assert_memory_equal(t.rx.buf + 64, t.tx.buf + 3, len);
			assert_true(all_bytes(t.rx.buf, 64, 0xaa) && all_bytes(t.rx.buf + 64 + len, 4096, 0xaa));
		}
		imm = 0;
		close_tm(&t);
	}
}

/*
 * Without an SRQ buffer an unexpected message waits at its sender, uncounted, and takes the tag
 * that has come meanwhile
 */
TEST(not_ready)
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
 * A write with an immediate takes an SRQ's buffer and is told of on the SRQ's CQ; no list is asked,
 * nothing is counted
 */
TEST(written)
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

/* ---- rendezvous ---- */

/* Match, data read by the device, and FIN; what is the software's to read: tag/list.c */
TEST(rendezvous)
{
	static const struct {
		uint32_t len;
		size_t extra;
	} rows[] = { { 0, 0 }, { 1, 32 }, { 1000, 1 }, { 65536, 32 }, { 300000, 0 } };
	struct match t;

	open_tm(&t, 16, 8, 128);
	for (unsigned i = 0; i < ARRAY(rows); i++) {
		const uint32_t len = rows[i].len;
		struct request q = rndv_of(&t, 50 + i, 7, len, rows[i].extra);

		memset(t.rx.buf, 0xaa, SIZE);
		fin_room(&t, i);
		add(&t, i, 64, len, 50 + i, ALL);
		offer(&t, &q, rows[i].extra);
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

/* ---- errors ---- */

/* An SRQ buffer that is too small, whose key is bad, or whose key is bad in the middle of a message that was counted: it counts no more */
TEST(bad_untagged_buffer)
{
	static const struct {
		uint32_t len, first;
		uint32_t flip[2];
		enum ibv_wc_status sender, receiver;
	} rows[] = {
		{ 100, 60, { 0, 0 }, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR },
		{ 100, 8192, { 0x5500, 0 }, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR },
		{ 500000, 300000, { 0, 0x5500 }, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR },
	};

	for (unsigned i = 0; i < ARRAY(rows); i++) {
		struct ibv_sge sg[2];
		struct ibv_recv_wr wr = { .wr_id = 3, .sg_list = sg, .num_sge = rows[i].flip[1] ? 2 : 1 }, *bad;
		struct ibv_tmh h = tmh_of(IBV_TMH_EAGER, 5, 1);
		struct match t;
		struct done d;

		open_tm(&t, 16, 8, 64);
		for (int k = 0; k < 2; k++) {
			sg[k] = sge(&t.rx, k * HALF, rows[i].first);
			sg[k].lkey ^= rows[i].flip[k];
		}
		must(ibv_post_srq_recv(t.srq, &wr, &bad));
		send_raw(&t.tx, &h, TMH, 0, rows[i].len);
		failed_send(&t, rows[i].sender);
		d = next_done(t.cq);
		assert_int_equal(d.status, rows[i].receiver);
		assert_int_equal(d.wr_id, 3);
		add(&t, 4, 0, 64, 5, ALL);
		close_failed(&t);
	}
}

/* The device reads what it may not, or gets no answer: the match stands and the data do not come. libmlx5: this is IBV_WC_RECV */
TEST(cancelled)
{
	enum { KEY, TO_ERR, TO_RESET };

	for (int how = KEY; how <= TO_RESET; how++) {
		struct request q;
		struct match t;
		struct done d;

		open_tm(&t, 16, 8, 64);
		q = rndv_of(&t, 5, 0, 4096, 0);
		if (how == KEY)
			q.r.rkey ^= htobe32(0x5500);
		else /* there it receives, but does not ask */
			must(move(t.rx.qp, IBV_QPS_SQD, 0, &t.how));
		add(&t, 1, 0, 8192, 5, ALL);
		offer(&t, &q, 0);
		assert_int_equal(expect_done(t.cq, 1001, IBV_WC_TM_RECV, IBV_WC_TM_MATCH).tm.tag, 5);
		if (how != KEY) {
			nothing_done(t.cq);
			must(move(t.rx.qp, how == TO_ERR ? IBV_QPS_ERR : IBV_QPS_RESET, 0, &t.how));
		}
		d = next_done(t.cq);
		assert_true(d.status == IBV_WC_TM_RNDV_INCOMPLETE && d.wr_id == 1001 && d.opcode == IBV_WC_RECV);
		assert_int_equal(d.flags, MATCHED);
		assert_int_equal(state_of(t.rx.qp), how == TO_RESET ? IBV_QPS_RESET : IBV_QPS_ERR);
		/* The list is as good as before */
		add(&t, 2, 0, 64, 5, ALL);
		close_failed(&t);
	}
}

/* The peer fails in the middle of a message, and connects again: what it began does not come, and what it sends then is another message */
TEST(given_up)
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
		must(move(t.tx.qp, IBV_QPS_RESET, 0, &t.how));
		bring_up(t.tx.qp, t.rx.qp->qp_num, &t.how);
		eager(&t.tx, 6, 1, 5, 100);
		if (!late) {
			d = next_done(t.cq);
			assert_true(d.status == IBV_WC_TM_RNDV_INCOMPLETE && d.wr_id == 1001);
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

/* ---- faults: what the device asks of the peer is sent as any message ---- */

TEST(faults)
{
	/* Message 1 is the offer, 2 the READ, 3 the FIN; a retry is one more */
	static const struct {
		const char *spec;
		bool spoilt, fails, no_fin;
	} cases[] = { { "drop@2-4", false, false, false }, { "dup@*", false, false, false }, { "corrupt@2", true, false, false },
		      { "syndrome=0x13@2", false, true, true }, { "syndrome=0x13@3", false, false, true } };

	skip_if(!softdev_present(), "faults are the software device's");
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
		if (cases[i].no_fin) {
			until((go(), state_of(t.rx.qp) == IBV_QPS_ERR));
			assert_int_equal(ibv_poll_cq(t.tx.rcq, 1, &wc), 0);
		} else {
			fin_comes(&t, 9, &q);
		}
		must(softdev_fault(NULL));
		close_tm(&t);
	}
}

/* ---- the stepped device: what it does by itself is no WQE, and has its turn like one ---- */

TEST(steps)
{
	struct request q;
	struct match t;

	skip_if(!softdev_present() || softdev_execute(0, 0) == -EPERM, "this device is not stepped");
	open_tm(&t, 16, 8, 64);
	q = rndv_of(&t, 5, 0, 4096, 0);
	add(&t, 3, 0, 8192, 5, ALL);
	memset(t.rx.buf, 0, 4096);
	fin_room(&t, 11);
	start_offer(&t, &q, 0);
	by_hand = true;
	assert_int_equal(softdev_execute(t.tx.qp->qp_num, 1), 1);
	nothing_done(t.cq);
	assert_int_equal(softdev_complete(0, 2), 2);
	sent(&t.tx);
	expect_done(t.cq, 1003, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);
	assert_true(all_bytes(t.rx.buf, 4096, 0));
	assert_int_equal(softdev_complete(0, 5), 0);
	assert_int_equal(softdev_execute(t.rx.qp->qp_num, 1), 0);
	assert_memory_equal(t.rx.buf, t.tx.buf, 4096);
	nothing_done(t.cq);
	assert_int_equal(softdev_complete(0, 5), 2);
	expect_done(t.cq, 1003, IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID);
	fin_comes(&t, 11, &q);
	by_hand = false;
	close_tm(&t);
}

int main(void)
{
	return RUN();
}
