/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fault.c: what verbs show of each fault that the device can be asked for (softdev.h), and that
 * nothing else is hurt
 */
#include "rig.h"

static int no_fault(UNUSED void **state)
{
	return softdev_fault(NULL);
}

#define test(name) TEST_WITH(name, NULL, no_fault)

static struct how how_of(enum ibv_qp_type type)
{
	struct how how = how_of_type(type);

	how.timeout = 8; /* a millisecond */
	return how;
}

static struct ibv_send_wr message(uint64_t id, size_t off, uint32_t len)
{
	struct ibv_send_wr wr = first_to_second(IBV_WR_SEND, id, off, len, 0);

	if (s[0].qp->qp_type == IBV_QPT_UD)
		address(&wr, ah, s[1].qp->qp_num);
	return wr;
}

static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

/* ---- specifications ---- */

test(grammar)
{
	static const char *const good[] = {
		"drop@1", "drop@*", "delay=5@1-3", "delay=5us@1-", "delay=2ms@/4", "delay=1s@900", "dup@3-/4", "corrupt@1-9/3",
		"corrupt=5@*", "syndrome=19@5", "syndrome=0x13@5", "die@1000000", "silent@1000000", "setup@1000000", "setup=EPERM@1000000",
		"setup=12@1000000", "drop@5,dup@6,setup=ENOMEM@1000", "down=7@1000000"
	};
	static const char *const bad[] = {
		"", "drop", "drop@", "drop@0", "drop@-1", "drop@3-2", "drop@x", "drop@1,", ",drop@1", "drop=1@1", "delay@1",
		"delay=@1", "delay=5h@1", "syndrome=0@1", "syndrome=256@1", "syndrome@1", "setup=@1", "setup=EWHAT@1",
		"setup=0@1", "corrupt=@1", "corrupt=2000000000@1", "break@1", "drop@1 ", "drop@1/0", "drop@/0", "drop@1;dup@2", "down@1", "down=8@1"
	};

	for (unsigned i = 0; i < ARRAY(good); i++)
		if (softdev_fault(good[i]))
			fail_msg("'%s' refused", good[i]);
	for (unsigned i = 0; i < ARRAY(bad); i++)
		if (softdev_fault(bad[i]) != -EINVAL)
			fail_msg("'%s' taken", bad[i]);
	must(softdev_fault(NULL));
}

/* A bad one leaves the good one before it in force; a new one begins to count again */
test(replaced)
{
	struct how how = how_of(IBV_QPT_UC);

	open_pair(s, &how);
	must(softdev_fault("drop@3"));
	assert_int_equal(softdev_fault("nonsense"), -EINVAL);
	for (int i = 1; i <= 10; i++) {
		recv_at(&s[1], i, 0, 64);
		wr = message(i, 0, 8);
		post_done(&s[0], &wr);
		if (i == 4)
			must(softdev_fault("drop@3"));
	}
	/* The third and the seventh were lost, so the last two receives are left */
	for (int i = 1; i <= 8; i++)
		expect_op(s[1].rcq, i, IBV_WC_RECV);
	expect_nothing(s[1].rcq);
	close_pair(s);
}

/* ---- messages ---- */

static unsigned wrong_bits(const uint8_t *a, const uint8_t *b, size_t n)
{
	unsigned bits = 0;

	for (size_t i = 0; i < n; i++)
		bits += __builtin_popcount(a[i] ^ b[i]);
	return bits;
}

/*
 * What a fault does to 12 messages of each type: a connection repeats what is lost and takes once what
 * comes twice; a wrong bit is nobody's error
 */
test(messages)
{
	static const struct {
		const char *spec;
		unsigned every;         /* the messages that it hits */
		unsigned copies[3];     /* of each of these, by type; what is not hit comes once */
		unsigned bits;          /* wrong in each */
	} rows[] = {
		{ "drop@3-/3", 3, { 1, 0, 0 }, 0 }, { "dup@*", 1, { 1, 1, 2 }, 0 }, { "corrupt@3-/3", 3, { 1, 1, 1 }, 1 },
		{ "corrupt=20@3-/3", 3, { 1, 1, 1 }, 1 }, { "corrupt=120@*", 1, { 1, 1, 1 }, 0 },
	};

	for (unsigned r = 0; r < ARRAY(rows); r++)
		for (unsigned t = 0; t < ARRAY(types); t++) {
			struct how how = how_of(types[t]);
			const int header = types[t] == IBV_QPT_UD ? GRH_BYTES : 0;
			unsigned next = 0;

			open_pair(s, &how);
			fill(s[0].buf, 4096, 8);
			for (unsigned i = 0; i < 24; i++)
				recv_at(&s[1], i, 256 * i, 256);
			must(softdev_fault(rows[r].spec));
			for (unsigned i = 1; i <= 12; i++) {
				const bool hit = i % rows[r].every == 0;

				wr = message(i, i, 100);
				post_done(&s[0], &wr);
				for (unsigned copy = 0; copy < (hit ? rows[r].copies[t] : 1); copy++, next++) {
					expect_op(s[1].rcq, next, IBV_WC_RECV);
					assert_int_equal(wrong_bits(s[1].buf + 256 * next + header, s[0].buf + i, 100),
							 hit ? rows[r].bits : 0);
				}
			}
			expect_nothing(s[1].rcq);
			expect_nothing(s[0].scq);
			close_pair(s);
			must(softdev_fault(NULL));
		}
}

/* All that a connection may send is lost: it gives up after its retries, and later requests flush */
test(drop_all)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct how how = how_of(IBV_QPT_RC);

	how.retry_cnt = 2;
	for (unsigned i = 0; i < ARRAY(ops); i++) {
		open_pair(s, &how);
		memset(s[1].buf, 0xaa, 4096);
		recv_at(&s[1], 1, 0, 64);
		must(softdev_fault("drop@*"));
		wr = first_to_second(ops[i], 1, 0, 8, 0);
		post(&s[0], &wr);
		wr = first_to_second(IBV_WR_RDMA_WRITE, 2, 0, 8, 0);
		post(&s[0], &wr);
		expect(s[0].scq, 1, IBV_WC_RETRY_EXC_ERR);
		expect(s[0].scq, 2, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(state_of(s[0].qp), IBV_QPS_ERR);
		expect_nothing(s[1].rcq);
		assert_true(all_bytes(s[1].buf, 4096, 0xaa));
		assert_int_equal(state_of(s[1].qp), IBV_QPS_RTS);
		close_pair(s);
		must(softdev_fault(NULL));
	}
}

test(delay)
{
	for (unsigned t = 0; t < ARRAY(types); t++) {
		struct how how = how_of(types[t]);

		how.timeout = 18; /* a second */
		open_pair(s, &how);
		must(softdev_fault("delay=30ms@2"));
		for (int i = 0; i < 3; i++) {
			const double start = now();

			recv_at(&s[1], i, 0, 256);
			wr = message(i, 0, 100);
			post(&s[0], &wr);
			expect_op(s[1].rcq, i, IBV_WC_RECV);
			assert_true(i != 1 || now() - start >= 0.029);
			expect_op(s[0].scq, i, IBV_WC_SEND);
		}
		close_pair(s);
		must(softdev_fault(NULL));
	}
}

/* What else comes twice is done once: an atomic, and both get the same answer; a READ whose bytes come in several pieces. A bit of each */
test(others)
{
	struct how how = how_of(IBV_QPT_RC);

	open_pair(s, &how);
	must(softdev_fault("dup@*"));
	for (unsigned i = 0; i < 10; i++) {
		wr = first_to_second(IBV_WR_ATOMIC_FETCH_AND_ADD, i, 0, 8, 0);
		wr.wr.atomic.compare_add = 3;
		post_done(&s[0], &wr);
		assert_int_equal(*(volatile uint64_t *)s[0].buf, 3 * i);
		assert_int_equal(*(volatile uint64_t *)s[1].buf, 3 * (i + 1));
	}
	fill(s[1].buf, SIZE, 9);
	wr = first_to_second(IBV_WR_RDMA_READ, 10, 0, SIZE, 0);
	post_done(&s[0], &wr);
	assert_memory_equal(s[0].buf, s[1].buf, SIZE);
	expect_nothing(s[0].scq);
	must(softdev_fault("corrupt@1,corrupt@2"));
	for (unsigned i = 0; i < 2; i++) {
		wr = first_to_second(i ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, i, i * HALF, 4000, 64);
		post_done(&s[0], &wr);
		assert_int_equal(wrong_bits(s[0].buf + i * HALF, s[1].buf + 64, 4000), 1);
	}
	close_pair(s);
}

/* An error CQE of any kind there is, on one message of many */
test(syndrome)
{
	static const struct {
		unsigned syndrome;
		enum ibv_wc_status status;
	} errors[] = {
		{ 0x01, IBV_WC_LOC_LEN_ERR }, { 0x02, IBV_WC_LOC_QP_OP_ERR }, { 0x04, IBV_WC_LOC_PROT_ERR }, { 0x05, IBV_WC_WR_FLUSH_ERR },
		{ 0x06, IBV_WC_MW_BIND_ERR }, { 0x10, IBV_WC_BAD_RESP_ERR }, { 0x11, IBV_WC_LOC_ACCESS_ERR },
		{ 0x12, IBV_WC_REM_INV_REQ_ERR }, { 0x13, IBV_WC_REM_ACCESS_ERR }, { 0x14, IBV_WC_REM_OP_ERR },
		{ 0x15, IBV_WC_RETRY_EXC_ERR }, { 0x16, IBV_WC_RNR_RETRY_EXC_ERR }, { 0x22, IBV_WC_REM_ABORT_ERR },
		{ 0x77, IBV_WC_GENERAL_ERR },
	};
	struct how how = how_of(IBV_QPT_RC);

	for (unsigned e = 0; e < ARRAY(errors); e++) {
		char spec[40];

		snprintf(spec, sizeof(spec), e & 1 ? "syndrome=%u@3" : "syndrome=0x%x@3", errors[e].syndrome);
		open_pair(s, &how);
		fill(s[0].buf, 64, 1);
		must(softdev_fault(spec));
		for (int i = 1; i <= 4; i++) {
			wr = first_to_second(IBV_WR_RDMA_WRITE, i, 0, 64, 256 * i);
			wr.send_flags = i == 2 ? IBV_SEND_SIGNALED : 0; /* errors need no asking */
			post(&s[0], &wr);
		}
		expect(s[0].scq, 2, IBV_WC_SUCCESS);
		expect(s[0].scq, 3, errors[e].status);
		expect(s[0].scq, 4, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(state_of(s[0].qp), IBV_QPS_ERR);
		assert_memory_equal(s[1].buf + 512, s[0].buf, 64);
		close_pair(s);
		must(softdev_fault(NULL));
	}
}

/* ---- set-up ---- */

/* The k-th call fails with what was asked for */
test(setup_calls)
{
	struct ibv_qp_init_attr init = { .cap = usual.cap, .qp_type = IBV_QPT_RC };
	static uint8_t buf[4096];
	struct ibv_pd *p[2];
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	must(softdev_fault("setup=EDQUOT@2,setup=122@4,setup@6,setup=EIO@8-9"));
	p[0] = ibv_alloc_pd(ctx);
	p[1] = ibv_alloc_pd(ctx);
	assert_true(p[0] && !p[1] && errno == EDQUOT);
	mr = ibv_reg_mr(p[0], buf, sizeof(buf), ALL_ACCESS);
	assert_true(mr && !ibv_reg_mr(p[0], buf, sizeof(buf), ALL_ACCESS) && errno == 122);
	cq = ibv_create_cq(ctx, 15, NULL, NULL, 0);
	assert_true(cq && !ibv_create_cq(ctx, 15, NULL, NULL, 0) && errno == ENOMEM);
	init.send_cq = init.recv_cq = cq;
	qp = ibv_create_qp(p[0], &init);
	assert_true(qp && !ibv_create_qp(p[0], &init) && errno == EIO);
	assert_int_equal(move(qp, IBV_QPS_INIT, 0, &usual), EIO);
	must(move(qp, IBV_QPS_INIT, 0, &usual));
	/* What was made goes away as usual */
	must(ibv_destroy_qp(qp) || ibv_destroy_cq(cq) || ibv_dereg_mr(mr) || ibv_dealloc_pd(p[0]));
}

/* ---- two processes ---- */

/* A write of 8 bytes to the other process, at an offset of its buffer */
static struct ibv_send_wr write_to(const struct card *theirs, const struct side *from, uint64_t id, size_t off)
{
	struct ibv_send_wr wr;

	sg = sge(from, 0, 8);
	wr = request(IBV_WR_RDMA_WRITE, id, &sg, 1, from, 0);
	aim(&wr, theirs->addr + off, theirs->rkey);
	return wr;
}

/* The other process: writes to us three times, with the fault that it was told */
static int peer(const char *spec)
{
	struct how how = how_of(IBV_QPT_RC);
	struct card theirs;

	if (setup(NULL))
		return 1;
	how.retry_cnt = 1;
	theirs = open_remote(&first_process, &s[0], &how);
	tell(&first_process);
	hear(&first_process);
	must(softdev_fault(spec));
	memset(s[0].buf, 0x77, 4096);
	for (int i = 1; i <= 3; i++) {
		wr = write_to(&theirs, &s[0], i, 64 * i);
		post(&s[0], &wr);
		next_wc(s[0].scq);
	}
	/* Silent and not dead: stays until it is told to go */
	tell(&first_process);
	hear(&first_process);
	return 0;
}

test(two_processes)
{
	static const struct {
		const char *spec;
		bool dies, silent;
	} specs[] = { { "die@3", true, true }, { "silent@3", false, true }, { "dup@*,delay=5ms@*", false, false },
		      { "drop@2", false, false } };

	for (unsigned i = 0; i < ARRAY(specs); i++) {
		struct peer other = start_peer("peer", specs[i].spec);
		struct how how = how_of(IBV_QPT_RC);
		struct card theirs;
		struct side s;
		int status;

		how.retry_cnt = 2;
		theirs = open_remote(&other, &s, &how);
		memset(s.buf, 0xaa, 4096);
		hear(&other);
		/* It is there: we reach it */
		wr = write_to(&theirs, &s, 1, 4096);
		post_done(&s, &wr);
		tell(&other);
		if (specs[i].dies) {
			status = end_peer(&other);
			assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		} else {
			hear(&other);
		}
		/* Two writes came. The third did not if the peer is silent since, and then it does not answer us */
		assert_true(all_bytes(s.buf + 64, 8, 0x77) && all_bytes(s.buf + 128, 8, 0x77));
		assert_true(all_bytes(s.buf + 192, 8, specs[i].silent ? 0xaa : 0x77));
		post(&s, &wr);
		expect(s.scq, 1, specs[i].silent ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
		if (!specs[i].dies) {
			tell(&other);
			must(end_peer(&other));
		}
		close_side(&s);
	}
}

int main(int argc, char **argv)
{
	if (argc == 3)
		return peer(argv[2]);
	skip_all_if(!softdev_present(), "faults on demand need the software device");
	return run_all(setup_ah, teardown_ah);
}
