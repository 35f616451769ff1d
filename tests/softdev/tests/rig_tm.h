/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rig_tm.h: what the tests of tag matching share: an SRQ with a list of tags, a QP on it and its
 * peer, list operations, messages. Every function here fails the running test by itself. The tests
 * run on a device with an engine, on a stepped one and on a trapping one. Where libmlx5 makes
 * something else of a completion than its manual says, they name it "libmlx5:".
 */
#ifndef SOFTDEV_TESTS_RIG_TM_H
#define SOFTDEV_TESTS_RIG_TM_H

#include "rig.h"
#include <infiniband/tm_types.h>

#define TMH 16
#define RVH 16
#define MTU 1024                  /* rig.h's path */
#define ALL 0xffffffffffffffffull
#define MATCHED (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID)

/* What an extended CQ tells of one completion */
struct done {
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	unsigned flags;
	uint64_t wr_id;
	uint32_t len, qpn, imm;
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
static bool by_hand;
static uint32_t imm;              /* of what send_raw() sends; 0: none */

UNUSED static void go(void)
{
	if (softdev_present() && !by_hand)
		softdev_run();
}

UNUSED static bool is_done(struct ibv_cq_ex *cq, struct done *d)
{
	struct ibv_poll_cq_attr at = { .comp_mask = 0 };
	int err;

	go();
	err = ibv_start_poll(cq, &at);
	if (err == ENOENT)
		return false;
	must(err);
	memset(d, 0, sizeof(*d));
	d->status = cq->status;
	d->wr_id = cq->wr_id;
	d->opcode = ibv_wc_read_opcode(cq);
	/* Data of up to 32 bytes lie in the CQE where the flag of a GRH would: libmlx5 reads it all the same */
	d->flags = ibv_wc_read_wc_flags(cq) & ~(unsigned)IBV_WC_GRH;
	d->len = ibv_wc_read_byte_len(cq);
	d->qpn = ibv_wc_read_qp_num(cq);
	d->imm = be32toh(ibv_wc_read_imm_data(cq));
	ibv_wc_read_tm_info(cq, &d->tm);
	ibv_end_poll(cq);
	return true;
}

UNUSED static struct done next_done(struct ibv_cq_ex *cq)
{
	struct done d;

	until(is_done(cq, &d));
	return d;
}

UNUSED static void nothing_done(struct ibv_cq_ex *cq)
{
	struct done d;

	go();
	usleep(5000);
	assert_false(is_done(cq, &d));
}

UNUSED static struct ibv_wc plain_wc(struct ibv_cq *cq)
{
	struct ibv_wc wc = {};
	int n;

	until((go(), n = ibv_poll_cq(cq, 1, &wc)));
	assert_int_equal(n, 1);
	return wc;
}

UNUSED static struct done expect_done(struct ibv_cq_ex *cq, uint64_t wr_id, enum ibv_wc_opcode opcode, unsigned flags)
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

UNUSED static void need_lists(void)
{
	struct ibv_device_attr_ex a;

	must(ibv_query_device_ex(ctx, NULL, &a));
	skip_if(!(a.tm_caps.flags & IBV_TM_CAP_RC), "this device does no tag matching");
}

UNUSED static struct ibv_cq_ex *a_cq(int cqe, int size)
{
	struct ibv_cq_init_attr_ex init = { .cqe = cqe, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO };
	struct mlx5dv_cq_init_attr dv = { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, .cqe_size = size };
	struct ibv_cq_ex *cq = size == 64 ? ibv_create_cq_ex(ctx, &init) : mlx5dv_create_cq(ctx, &init, &dv);

	assert_non_null(cq);
	return cq;
}

UNUSED static struct ibv_srq *try_srq(struct ibv_cq *cq, uint32_t wr, uint32_t tags, uint32_t ops)
{
	struct ibv_srq_init_attr_ex init = { .attr = { .max_wr = wr, .max_sge = 2 }, .srq_type = IBV_SRQT_TM, .pd = pd, .cq = cq,
					     .tm_cap = { tags, ops },
					     .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TM |
							  (cq ? IBV_SRQ_INIT_ATTR_CQ : 0) };

	return ibv_create_srq_ex(ctx, &init);
}

UNUSED static void connect_to(struct match *t, struct side *rx, struct side *tx)
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

UNUSED static void open_tm(struct match *t, uint32_t wr, uint32_t tags, int cqe_size)
{
	need_lists();
	memset(t, 0, sizeof(*t));
	t->how = usual;
	t->cq = a_cq(1024, cqe_size);
	t->srq = made(try_srq(ibv_cq_ex_to_cq(t->cq), wr, tags, 256));
	connect_to(t, &t->rx, &t->tx);
}

UNUSED static void close_tm(struct match *t)
{
	nothing_done(t->cq);
	close_side(&t->tx);
	close_side_but_cqs(&t->rx);
	must(ibv_destroy_srq(t->srq) || ibv_destroy_cq(ibv_cq_ex_to_cq(t->cq)));
}

/* ---- list operations: recv_wr_id is 1000 more than wr_id ---- */

UNUSED static struct ibv_ops_wr add_wr(uint64_t id, struct ibv_sge *sg, uint64_t tag, uint64_t mask, int flags)
{
	struct ibv_ops_wr wr = { .wr_id = id, .opcode = IBV_WR_TAG_ADD, .flags = flags };

	wr.tm.add.recv_wr_id = id + 1000;
	wr.tm.add.sg_list = sg;
	wr.tm.add.num_sge = sg ? 1 : 0;
	wr.tm.add.tag = tag;
	wr.tm.add.mask = mask;
	return wr;
}

UNUSED static void post_ops(struct match *t, struct ibv_ops_wr *wr)
{
	struct ibv_ops_wr *bad;

	wr->tm.unexpected_cnt = t->unexpected;
	must(ibv_post_srq_ops(t->srq, wr, &bad));
}

/* Signaled, and in step; the completion is taken */
UNUSED static uint32_t add(struct match *t, uint64_t id, size_t off, uint32_t len, uint64_t tag, uint64_t mask)
{
	struct ibv_sge sg = sge(&t->rx, off, len);
	struct ibv_ops_wr wr = add_wr(id, len ? &sg : NULL, tag, mask, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC);

	post_ops(t, &wr);
	expect_done(t->cq, id, IBV_WC_TM_ADD, 0);
	return wr.tm.handle;
}

/* ---- messages: a header, and bytes of tx's buffer from off on ---- */

UNUSED static void untagged(struct match *t, uint64_t id, size_t off, uint32_t len)
{
	struct ibv_sge sg = sge(&t->rx, off, len);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sg, .num_sge = 1 }, *bad;

	must(ibv_post_srq_recv(t->srq, &wr, &bad));
}

#define HEAD (SIZE - 4096)        /* where tx builds its headers; they are in use until the send is done */

UNUSED static void send_raw(struct side *tx, const void *head, uint32_t head_len, size_t off, uint32_t len)
{
	struct ibv_sge sg[2] = { sge(tx, HEAD, head_len), sge(tx, off, len) };
	struct ibv_send_wr wr = request(imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, 77, head_len ? sg : sg + 1, !!head_len + !!len, tx, 0);

	wr.imm_data = htobe32(imm);
	if (head_len)
		memcpy(tx->buf + HEAD, head, head_len);
	post(tx, &wr);
}

UNUSED static void sent(struct side *tx)
{
	struct ibv_wc wc = plain_wc(tx->scq);

	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 77);
}

UNUSED static struct ibv_tmh tmh_of(enum ibv_tmh_op op, uint64_t tag, uint32_t ctx_)
{
	return (struct ibv_tmh){ .opcode = op, .app_ctx = htobe32(ctx_), .tag = htobe64(tag) };
}

UNUSED static void eager(struct side *tx, uint64_t tag, uint32_t ctx_, size_t off, uint32_t len)
{
	struct ibv_tmh h = tmh_of(IBV_TMH_EAGER, tag, ctx_);

	send_raw(tx, &h, TMH, off, len);
	sent(tx);
}

/* One that matches, and its only completion */
UNUSED static void expected(struct match *t, uint64_t tag, uint64_t recv_id)
{
	eager(&t->tx, tag, 1, 5, 100);
	expect_done(t->cq, recv_id, IBV_WC_TM_RECV, MATCHED);
}

/* ---- rendezvous ---- */

struct request {
	struct ibv_tmh h;
	struct ibv_rvh r;
	uint8_t extra[4096];
};

UNUSED static struct request rndv_of(struct match *t, uint64_t tag, size_t off, uint32_t len, size_t extra)
{
	struct request q = { .h = tmh_of(IBV_TMH_RNDV, tag, 0x77770000 + (uint32_t)tag) };

	q.r = (struct ibv_rvh){ htobe64((uintptr_t)t->tx.buf + off), htobe32(t->tx.mr->rkey), htobe32(len) };
	fill(q.extra, extra, 3);
	return q;
}

UNUSED static void start_offer(struct match *t, const struct request *q, size_t extra)
{
	/* Too long for where headers usually are */
	memcpy(t->tx.buf + HALF + HALF / 2, q, TMH + RVH + extra);
	send_raw(&t->tx, NULL, 0, HALF + HALF / 2, TMH + RVH + extra);
}

UNUSED static void offer(struct match *t, const struct request *q, size_t extra)
{
	start_offer(t, q, extra);
	sent(&t->tx);
}

#define FIN_AT (HALF + 4096)      /* in tx's buffer */

UNUSED static void fin_room(struct match *t, uint64_t id)
{
	memset(t->tx.buf + FIN_AT, 0, 64);
	recv_at(&t->tx, id, FIN_AT, 64);
}

UNUSED static void fin_comes(struct match *t, uint64_t id, const struct request *q)
{
	struct ibv_wc wc = plain_wc(t->tx.rcq);

	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.byte_len, TMH + RVH);
	/* libmlx5 reads flags where the rkey lies when the CQE holds the FIN: keys are small numbers, as on an adapter */
	assert_int_equal(wc.wc_flags, 0);
	assert_int_equal(t->tx.buf[FIN_AT], IBV_TMH_FIN);
	assert_memory_equal(t->tx.buf + FIN_AT + 1, (const uint8_t *)q + 1, TMH + RVH - 1);
}

UNUSED static void match_and_data(struct match *t, uint64_t recv_id, const struct request *q)
{
	struct done d = expect_done(t->cq, recv_id, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);

	assert_int_equal(d.tm.tag, be64toh(q->h.tag));
	assert_int_equal(d.tm.priv, be32toh(q->h.app_ctx));
	assert_int_equal(d.qpn, t->rx.qp->qp_num);
	d = expect_done(t->cq, recv_id, IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID);
	assert_int_equal(d.len, be32toh(q->r.len));
	assert_int_equal(d.qpn, t->rx.qp->qp_num);
	/* libmlx5: what was matched is not in this one */
	assert_int_equal(d.tm.tag, 0);
}

/* ---- errors ---- */

UNUSED static void failed_send(struct match *t, enum ibv_wc_status status)
{
	struct ibv_wc wc = plain_wc(t->tx.scq);

	assert_int_equal(wc.wr_id, 77);
	assert_int_equal(wc.status, status);
	assert_int_equal(state_of(t->tx.qp), IBV_QPS_ERR);
}

/* After an error: no more than this is left of either */
UNUSED static void close_failed(struct match *t)
{
	struct done d;

	usleep(5000);
	while (is_done(t->cq, &d))
		assert_int_equal(d.status, IBV_WC_WR_FLUSH_ERR);
	close_tm(t);
}

/* On each kind of device in turn, in processes of their own but for the first */
#define RUN() run_each(run_all(setup, teardown))

UNUSED static int run_each(int failed)
{
	if (getenv("SOFTDEV_MANUAL") || getenv("SOFTDEV_TRAP"))
		return failed;
	failed += again_with("SOFTDEV_MANUAL", "1");
	return failed + (NO_TRAPS ? 0 : again_with("SOFTDEV_TRAP", "1"));
}

#endif
