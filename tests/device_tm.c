/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_tm.c: tag matching as libmlx5 drives it: the list, its phase, what messages do with it, rendezvous, errors. The same runs on a
 * device with an engine, on a stepped one and on a trapping one. Where libmlx5 makes something else of a completion than its manual says,
 * the test names it "libmlx5:".
 */
#include "device.h"
#include <infiniband/tm_types.h>

#define TMH 16
#define RVH 16
#define MTU 1024                  /* device.h's path */
#define ALL 0xffffffffffffffffull

/* What an extended CQ tells of one completion */
struct done {
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	unsigned flags;
	uint64_t wr_id;
	uint32_t len, qpn;
	struct ibv_wc_tm_info tm;
};

struct match {
	struct ibv_cq_ex *cq;
	struct ibv_srq *srq;
	struct side rx, tx;       /* rx has the SRQ; what comes back to tx lands in a receive queue of its own */
	struct how how;
	uint32_t unexpected;      /* as the program counts */
};

/* On a device that does not go by itself: what there is to do */
static void go(void)
{
	if (softdev_present())
		softdev_run();
}

static bool done_within(struct ibv_cq_ex *cq, struct done *d, double seconds)
{
	struct ibv_poll_cq_attr at = { .comp_mask = 0 };
	double end = now() + seconds;
	int err;

	memset(d, 0, sizeof(*d));
	do {
		go();
		err = ibv_start_poll(cq, &at);
		if (err != ENOENT)
			break;
		usleep(20);
	} while (now() < end);
	if (err == ENOENT)
		return false;
	must(err);
	d->status = cq->status;
	d->wr_id = cq->wr_id;
	d->opcode = ibv_wc_read_opcode(cq);
	/* Data of up to 32 bytes lie in the CQE where the flag of a GRH would: libmlx5 reads it all the same */
	d->flags = ibv_wc_read_wc_flags(cq) & ~(unsigned)IBV_WC_GRH;
	d->len = ibv_wc_read_byte_len(cq);
	d->qpn = ibv_wc_read_qp_num(cq);
	ibv_wc_read_tm_info(cq, &d->tm);
	ibv_end_poll(cq);
	return true;
}

static struct done next_done(struct ibv_cq_ex *cq)
{
	struct done d;

	assert_true(done_within(cq, &d, 5));
	return d;
}

static void nothing_done(struct ibv_cq_ex *cq)
{
	struct done d;

	assert_false(done_within(cq, &d, 0.005));
}

static struct done expect_done(struct ibv_cq_ex *cq, uint64_t wr_id, enum ibv_wc_opcode opcode, unsigned flags)
{
	struct done d = next_done(cq);

	if (d.status || d.wr_id != wr_id || d.opcode != opcode || d.flags != flags)
		print_error("wr %d: %s, opcode %d, flags 0x%x; not wr %d, opcode %d, flags 0x%x\n", (int)d.wr_id,
			    ibv_wc_status_str(d.status), d.opcode, d.flags, (int)wr_id, opcode, flags);
	assert_int_equal(d.status, IBV_WC_SUCCESS);
	assert_int_equal(d.wr_id, wr_id);
	assert_int_equal(d.opcode, opcode);
	assert_int_equal(d.flags, flags);
	return d;
}

static struct ibv_cq_ex *a_cq(int cqe, int size)
{
	struct ibv_cq_init_attr_ex init = { .cqe = cqe, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO };
	struct mlx5dv_cq_init_attr dv = { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, .cqe_size = size };
	struct ibv_cq_ex *cq = size == 64 ? ibv_create_cq_ex(ctx, &init) : mlx5dv_create_cq(ctx, &init, &dv);

	assert_non_null(cq);
	return cq;
}

static struct ibv_srq *try_srq(struct ibv_cq *cq, uint32_t wr, uint32_t tags, uint32_t ops)
{
	struct ibv_srq_init_attr_ex init = { .attr = { .max_wr = wr, .max_sge = 1 }, .srq_type = IBV_SRQT_TM, .pd = pd, .cq = cq,
					     .tm_cap = { tags, ops },
					     .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TM |
							  (cq ? IBV_SRQ_INIT_ATTR_CQ : 0) };

	return ibv_create_srq_ex(ctx, &init);
}

static void connect_to(struct match *t, struct side *rx, struct side *tx)
{
	struct how how = t->how;

	open_side(tx, &how);
	how.srq = t->srq;
	how.cq = ibv_cq_ex_to_cq(t->cq);
	open_side(rx, &how);
	bring_up(tx->qp, rx->qp->qp_num, &how);
	bring_up(rx->qp, tx->qp->qp_num, &how);
	fill(tx->buf, SIZE, 1);
	memset(rx->buf, 0xaa, SIZE);
}

static void open_tm(struct match *t, uint32_t wr, uint32_t tags, int cqe_size)
{
	memset(t, 0, sizeof(*t));
	t->how = usual;
	t->cq = a_cq(1024, cqe_size);
	t->srq = try_srq(ibv_cq_ex_to_cq(t->cq), wr, tags, 256);
	assert_non_null(t->srq);
	connect_to(t, &t->rx, &t->tx);
}

static void close_tm(struct match *t)
{
	nothing_done(t->cq);
	close_side(&t->tx);
	close_side_but_cqs(&t->rx);
	must(ibv_destroy_srq(t->srq));
	must(ibv_destroy_cq(ibv_cq_ex_to_cq(t->cq)));
}

/* ---- list operations: recv_wr_id is 1000 more than wr_id ---- */

static struct ibv_ops_wr add_wr(uint64_t id, struct ibv_sge *sg, uint64_t tag, uint64_t mask, int flags)
{
	struct ibv_ops_wr wr = { .wr_id = id, .opcode = IBV_WR_TAG_ADD, .flags = flags };

	wr.tm.add.recv_wr_id = id + 1000;
	wr.tm.add.sg_list = sg;
	wr.tm.add.num_sge = sg ? 1 : 0;
	wr.tm.add.tag = tag;
	wr.tm.add.mask = mask;
	return wr;
}

static void post_ops(struct match *t, struct ibv_ops_wr *wr)
{
	struct ibv_ops_wr *bad;

	wr->tm.unexpected_cnt = t->unexpected;
	must(ibv_post_srq_ops(t->srq, wr, &bad));
}

/* Signaled, and in step; the completion is taken */
static uint32_t add(struct match *t, uint64_t id, size_t off, uint32_t len, uint64_t tag, uint64_t mask)
{
	struct ibv_sge sg = sge(&t->rx, off, len);
	struct ibv_ops_wr wr = add_wr(id, len ? &sg : NULL, tag, mask, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC);

	post_ops(t, &wr);
	expect_done(t->cq, id, IBV_WC_TM_ADD, 0);
	return wr.tm.handle;
}

static struct done del(struct match *t, uint64_t id, uint32_t handle, int flags)
{
	struct ibv_ops_wr wr = { .wr_id = id, .opcode = IBV_WR_TAG_DEL, .flags = flags | IBV_OPS_SIGNALED };
	struct done d;

	wr.tm.handle = handle;
	post_ops(t, &wr);
	d = next_done(t->cq);
	assert_int_equal(d.wr_id, id);
	assert_int_equal(d.opcode, IBV_WC_TM_DEL);
	return d;
}

static void sync_now(struct match *t, uint64_t id)
{
	struct ibv_ops_wr wr = { .wr_id = id, .opcode = IBV_WR_TAG_SYNC, .flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC };

	post_ops(t, &wr);
	expect_done(t->cq, id, IBV_WC_TM_SYNC, 0);
}

/* ---- messages: a header, and bytes of tx's buffer from off on ---- */

static void untagged(struct match *t, uint64_t id, size_t off, uint32_t len)
{
	struct ibv_sge sg = sge(&t->rx, off, len);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sg, .num_sge = 1 }, *bad;

	must(ibv_post_srq_recv(t->srq, &wr, &bad));
}

#define HEAD (SIZE - 4096)        /* where tx builds its headers; they are in use until the send is done */

static void send_raw(struct side *tx, const void *head, uint32_t head_len, size_t off, uint32_t len)
{
	struct ibv_sge sg[2] = { sge(tx, HEAD, head_len), sge(tx, off, len) };
	struct ibv_send_wr wr = request(IBV_WR_SEND, 77, sg, len ? 2 : 1, tx, 0);

	if (!head_len) {
		wr.sg_list = sg + 1;
		wr.num_sge = len > 0;
	}
	memcpy(tx->buf + HEAD, head, head_len);
	post(tx, &wr);
}

static void sent(struct side *tx)
{
	double end = now() + 5;
	struct ibv_wc wc;
	int n;

	do {
		go();
		n = ibv_poll_cq(tx->scq, 1, &wc);
	} while (!n && now() < end && usleep(20) == 0);
	assert_int_equal(n, 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 77);
}

static struct ibv_tmh tmh_of(enum ibv_tmh_op op, uint64_t tag, uint32_t ctx_)
{
	return (struct ibv_tmh){ .opcode = op, .app_ctx = htobe32(ctx_), .tag = htobe64(tag) };
}

static void eager(struct side *tx, uint64_t tag, uint32_t ctx_, size_t off, uint32_t len)
{
	struct ibv_tmh h = tmh_of(IBV_TMH_EAGER, tag, ctx_);

	send_raw(tx, &h, TMH, off, len);
	sent(tx);
}

/* ---- creation ---- */

static void capabilities(void **state)
{
	struct ibv_device_attr_ex a;

	(void)state;
	must(ibv_query_device_ex(ctx, NULL, &a));
	assert_true(a.tm_caps.max_num_tags >= 127);
	assert_int_equal(a.tm_caps.max_num_tags & (a.tm_caps.max_num_tags + 1), 0);
	assert_true(a.tm_caps.max_ops > 0);
	assert_int_equal(a.tm_caps.max_sge, 1);
	assert_int_equal(a.tm_caps.max_rndv_hdr_size, 64);
	assert_int_equal(a.tm_caps.flags, IBV_TM_CAP_RC);
}

static void creation(void **state)
{
	struct ibv_cq *plain = ibv_create_cq(ctx, 16, NULL, NULL, 0), *cq;
	struct ibv_cq_ex *ex = a_cq(64, 64);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UC, .cap = usual.cap };
	struct ibv_device_attr_ex a;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	uint32_t max;

	(void)state;
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
	assert_null(try_srq(cq, 16, 8, 0));
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

static void operations(void **state)
{
	struct ibv_ops_wr wr[3], *bad;
	struct ibv_sge sg;
	uint32_t h[4];
	struct match t;

	(void)state;
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
	expect_done(t.cq, 1010, IBV_WC_TM_RECV, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
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

/* As many tags as were asked for, and the places of those that were matched or removed are good again; many times round */
static void full(void **state)
{
	static const uint32_t sizes[] = { 1, 2, 7, 8, 100 };

	(void)state;
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
				expect_done(t.cq, 1000 + i, IBV_WC_TM_RECV, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
				assert_memory_equal(t.rx.buf + 128 * i, t.tx.buf + i, 64);
			}
		}
		close_tm(&t);
		free(h);
	}
}

/* ---- eager ---- */

/* Up to one packet: match and data in one. More: one after the other, and libmlx5: the second without the header */
static void eager_sizes(void **state)
{
	static const uint32_t sizes[] = { 0, 1, 15, 16, 17, 32, 48, 64, 65, 500, MTU - TMH, MTU - TMH + 1, 4096, 65536, 300000, 700000 };

	(void)state;
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
				d = expect_done(t.cq, 1000 + i, IBV_WC_TM_RECV, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
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

/* The first in the list that the mask lets through, whatever else would match */
static void order_and_masks(void **state)
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

	(void)state;
	open_tm(&t, 16, 16, 64);
	for (unsigned i = 0; i < ARRAY(entries); i++)
		never = add(&t, i, 128 * i, 128, entries[i].tag, entries[i].mask);
	for (unsigned i = 0; i < ARRAY(messages); i++) {
		struct done d;

		eager(&t.tx, messages[i].tag, i, i, 100);
		d = expect_done(t.cq, 1000 + messages[i].hit, IBV_WC_TM_RECV, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
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

#define test(name) cmocka_unit_test(name)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		test(capabilities),
		test(creation),
		test(operations),
		test(full),
		test(eager_sizes),
		test(order_and_masks),
	};
	int failed;

	(void)argc;
	(void)argv;
	cmocka_set_message_output(CM_OUTPUT_TAP);
	failed = cmocka_run_group_tests(tests, setup, teardown);
	failed += again_with("SOFTDEV_MANUAL", "1");
	return failed;
}
