/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * recover.c: a queue pair in error and back, many times on the same objects: every way into the error, what is owed against a list of what
 * was posted, polled to the end or cleaned away, reset without a new take-over, traffic again. RC, UC and UD; and with a shared receive
 * queue, whose entries stay for the others.
 */
#include "rig.h"
#include <endian.h>

struct talk {
	struct end a, b;
	struct inlay_av av;         /* UD: to b */
	struct {
		uint32_t index;
		bool signaled;
	} list[1024];               /* what a has posted and not got back */
	uint32_t head, count, last; /* last: WQEBBs behind the newest */
};

static enum ibv_qp_type type_of(const struct talk *p)
{
	return p->a.qp->qp_type;
}

static void talk_make(struct talk *p, enum ibv_qp_type type, uint32_t mode)
{
	struct opt opt = opt_of(type, 1 << 16);

	memset(p, 0, sizeof(*p));
	opt.cqe = 1023;
	ends_make(&p->a, &p->b, &opt);
	end_take(&p->a, mode);
	end_take(&p->b, INLAY_UAR_DOORBELL);
	p->av = av_to(&p->b);
}

/* Posts one WQE of some length, and files it. broken: one that must fail */
static void post(struct talk *p, bool broken, bool signaled)
{
	uint32_t flags = signaled ? INLAY_SIGNALED : 0, num = 1 + rnd_below(4), i;
	uint64_t raddr = raddr_of(&p->b, 0x8000);
	uint32_t rkey = p->b.mr->rkey;
	struct ibv_sge sge[4];

	for (i = 0; i < 4; i++)
		sge[i] = sge_of(&p->a, 64 * i, 16);
	if (broken) {
		if (type_of(p) == IBV_QPT_RC && rnd_below(2))
			rkey ^= 0x55aa00;
		else
			sge[0].lkey ^= 0x55aa00;
	}
	i = (p->head + p->count) % ARRAY(p->list);
	p->list[i].index = inlay_sq_index(&p->a.sq);
	p->list[i].signaled = signaled;
	p->count++;
	if (type_of(p) == IBV_QPT_UD)
		must(inlay_post_ud_send(&p->a.sq, &p->av, sge, num, flags));
	else
		must(inlay_post_write(&p->a.sq, raddr, rkey, sge, num, flags));
}

/* A send completion gives back its WQE and all before it, of which none was signaled unless an error went before */
static void back(struct talk *p, bool good)
{
	const struct mlx5_cqe64 *cqe = cqe_wait(&p->a.cq);

	assert_true(inlay_cqe_is_send(cqe));
	assert_int_equal(inlay_cqe_is_error(cqe), !good);
	for (;;) {
		uint32_t at = p->head;

		assert_true(p->count > 0);
		p->head = (p->head + 1) % ARRAY(p->list);
		p->count--;
		if (p->list[at].index == inlay_cqe_wqe_counter(cqe))
			break;
		assert_false(p->list[at].signaled);
	}
	assert_true(0 < inlay_sq_release(&p->a.sq, cqe));
	inlay_cq_advance(&p->a.cq, 1);
	assert_int_equal(inlay_sq_pending(&p->a.sq) == 0, p->count == 0);
}

/* Both directions carry messages, and nothing else comes */
static void works(struct talk *p)
{
	struct end *from = &p->a, *to = &p->b;
	uint32_t i, n;

	for (i = 0; i < 6; i++) {
		const struct mlx5_cqe64 *cqe;
		uint32_t tag = (uint32_t)rnd();

		if (type_of(p) == IBV_QPT_UD) {
			post_recv(to, 0x2000, 512);
			must(inlay_post_ud_send_inline(&from->sq, &p->av, &tag, sizeof(tag), INLAY_SIGNALED));
			n = INLAY_GRH;
		} else {
			from = i % 2 ? &p->b : &p->a;
			to = i % 2 ? &p->a : &p->b;
			post_recv(to, 0x2000, 512);
			must(inlay_post_send_inline(&from->sq, &tag, sizeof(tag), INLAY_SIGNALED));
			n = 0;
		}
		inlay_sq_ring(&from->sq);
		cqe = cqe_wait(&to->rxcq);
		assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_RESP_SEND);
		assert_int_equal(inlay_cqe_qpn(cqe), to->qp->qp_num);
		assert_memory_equal(to->buf + 0x2000 + n, &tag, sizeof(tag));
		assert_true(0 < inlay_rq_release(&to->rq, cqe));
		inlay_cq_advance(&to->rxcq, 1);
		sent(from);
		assert_int_equal(inlay_sq_pending(&from->sq), 0);
		assert_int_equal(inlay_rq_pending(&to->rq), 0);
	}
	assert_null(inlay_cq_peek(&p->a.cq));
	assert_null(inlay_cq_peek(&p->a.rxcq));
	assert_null(inlay_cq_peek(&p->b.cq));
	assert_null(inlay_cq_peek(&p->b.rxcq));
}

/* To RESET and back, nothing taken over anew. Returns what was left in the CQs */
static uint32_t again(struct talk *p)
{
	struct end *ends[2] = {&p->a, &p->b};
	uint32_t left = 0, i;

	for (i = 0; i < 2; i++) {
		struct end *e = ends[i];

		qp_to(e->qp, IBV_QPS_RESET);
		left += inlay_cq_clean(&e->cq, e->qp->qp_num, NULL, NULL);
		left += inlay_cq_clean(&e->rxcq, e->qp->qp_num, NULL, NULL);
		inlay_sq_reset(&e->sq);
		inlay_rq_reset(&e->rq);
		assert_int_equal(inlay_sq_pending(&e->sq), 0);
		assert_int_equal(inlay_rq_pending(&e->rq), 0);
		assert_null(inlay_cq_peek(&e->cq));
		assert_null(inlay_cq_peek(&e->rxcq));
	}
	p->head = p->count = 0;
	ends_connect(&p->a, &p->b);
	return left;
}

enum { BREAKS, STOPPED, WAYS };

/* a's queue pair goes into error with work of all kinds outstanding: some of it done, some of it not, receives posted */
static void into_error(struct talk *p, int way)
{
	uint32_t before = rnd_below(6), behind = rnd_below(20), recvs = rnd_below(5), i;

	for (i = 0; i < recvs; i++)
		post_recv(&p->a, 0x4000, 64);
	for (i = 0; i < before; i++)
		post(p, false, rnd_below(2));
	if (way == BREAKS)
		post(p, true, rnd_below(2));
	for (i = 0; i < behind; i++)
		post(p, false, rnd_below(3) == 0);
	inlay_sq_ring(&p->a.sq);
	if (way == STOPPED || type_of(p) != IBV_QPT_RC) {
		if (rnd_below(4) == 0)
			settle();
		qp_to(p->a.qp, IBV_QPS_ERR);
	}
}

/* Polled until nothing is owed: errors from some point on, good ones before it; those that were done unsignaled never come */
static void drain(struct talk *p)
{
	uint32_t recvs = inlay_rq_pending(&p->a.rq);
	bool good = true;
	/* A last one, after which nothing can be outstanding: unsignaled ones that were done before the error leave none behind */
	post(p, false, false);
	inlay_sq_ring(&p->a.sq);
	while (inlay_sq_pending(&p->a.sq)) {
		good &= !inlay_cqe_is_error(cqe_wait(&p->a.cq));
		back(p, good);
	}
	assert_false(good);
	assert_int_equal(p->count, 0);
	for (; inlay_rq_pending(&p->a.rq); recvs--) {
		const struct mlx5_cqe64 *cqe = cqe_wait(&p->a.rxcq);

		assert_int_equal(inlay_rq_pending(&p->a.rq), recvs);
		assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_RESP_ERR);
		assert_int_equal(inlay_cqe_status(cqe), IBV_WC_WR_FLUSH_ERR);
		assert_true(0 < inlay_rq_release(&p->a.rq, cqe));
		inlay_cq_advance(&p->a.rxcq, 1);
	}
	assert_int_equal(recvs, 0);
	expect_nothing(&p->a.cq);
	assert_null(inlay_cq_peek(&p->a.rxcq));
}

static void rounds(enum ibv_qp_type type, uint32_t mode)
{
	uint32_t round, left = 0;
	struct talk p;

	talk_make(&p, type, mode);
	for (round = 0; round < 30; round++) {
		uint32_t n;

		works(&p);
		into_error(&p, (int)rnd_below(WAYS));
		if (rnd_below(3)) {
			/* UC and UD lose what the peer has no receive for */
			drain(&p);
			assert_int_equal(again(&p), 0);
		} else {
			if (rnd_below(2))
				settle();
			n = again(&p);
			left += n;
		}
	}
	assert_true(left > 0);
	works(&p);
	end_free(&p.a);
	end_free(&p.b);
}

static void rc(void **state)
{
	(void)state;
	rounds(IBV_QPT_RC, INLAY_UAR_DOORBELL);
	rounds(IBV_QPT_RC, INLAY_UAR_SERIAL);
}

static void uc(void **state)
{
	(void)state;
	rounds(IBV_QPT_UC, INLAY_UAR_LOCKED);
}

static void ud(void **state)
{
	(void)state;
	rounds(IBV_QPT_UD, INLAY_UAR_SERIAL);
}

/* ---- with a shared receive queue ---- */

struct shared {
	struct ibv_srq *ib;
	struct inlay_srq srq;
	uint8_t *buf;
	struct ibv_mr *mr;
	uint32_t out; /* entries posted and not given back, as the test counts */
};

static void give(struct shared *s)
{
	struct ibv_sge sge;

	sge.addr = (uintptr_t)s->buf + 64 * inlay_srq_index(&s->srq);
	sge.length = 64;
	sge.lkey = s->mr->lkey;
	must(inlay_post_srq_recv(&s->srq, &sge, 1));
	inlay_srq_ring(&s->srq);
	s->out++;
	assert_int_equal(inlay_srq_pending(&s->srq), s->out);
}

static void last_wqe(const struct end *e)
{
	double end = now() + DEADLINE;
	bool found = false;

	while (!found && now() < end) {
		struct pollfd fd = {dev.ctx->async_fd, POLLIN, 0};
		struct ibv_async_event event;

		step();
		if (poll(&fd, 1, 1) != 1)
			continue;
		must(ibv_get_async_event(dev.ctx, &event));
		found = event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == e->qp;
		ibv_ack_async_event(&event);
	}
	assert_true(found);
}

/* A message from a[i] to b[i] takes one entry, whichever; its completion is left in the CQ */
static void send_to(struct end *a, uint32_t tag, uint32_t len)
{
	fill(a->buf, len, tag);
	must(inlay_post_send_inline(&a->sq, a->buf, len, INLAY_SIGNALED));
	inlay_sq_ring(&a->sq);
}

static void take(struct shared *s, struct inlay_cq *cq, const struct end *b, uint32_t tag, uint32_t len)
{
	const struct mlx5_cqe64 *cqe = cqe_wait(cq);

	assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_RESP_SEND);
	assert_int_equal(inlay_cqe_qpn(cqe), b->qp->qp_num);
	assert_int_equal(differs(s->buf + 64 * inlay_cqe_wqe_counter(cqe), len, tag), len);
	assert_true(0 < inlay_srq_release(&s->srq, cqe));
	inlay_cq_advance(cq, 1);
	s->out--;
	assert_int_equal(inlay_srq_pending(&s->srq), s->out);
}

/*
 * Two receivers share a queue and a CQ. One fails, by a message that is too long or by hand, with completions of both in the CQ: what it
 * had taken comes back, what it had not stays for the other, which never notices. Back again it receives as before.
 */
static void with_srq(void **state)
{
	struct ibv_srq_init_attr attr;
	struct end a[2], b[2];
	struct inlay_cq *cq;
	struct shared s;
	uint32_t round, i, cleaned = 0;

	(void)state;
	memset(&s, 0, sizeof(s));
	memset(&attr, 0, sizeof(attr));
	attr.attr.max_wr = 31;
	attr.attr.max_sge = 1;
	s.ib = ibv_create_srq(dev.pd, &attr);
	assert_non_null(s.ib);
	must(inlay_srq_from_srq(&s.srq, s.ib, NULL, NULL));
	s.buf = (uint8_t *)pages(64 * s.srq.wqe_cnt);
	s.mr = ibv_reg_mr(dev.pd, s.buf, 64 * s.srq.wqe_cnt, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(s.mr);
	for (i = 0; i < 2; i++) {
		struct opt opt = usual;

		opt.bytes = 4096;
		end_make(&a[i], &opt);
		opt.srq = s.ib;
		end_make(&b[i], &opt);
		if (i) {
			/* Both complete into one CQ */
			must(ibv_destroy_qp(b[1].qp));
			b[1].qp = qp_make(&opt, b[1].scq, b[0].rcq);
		}
		ends_connect(&a[i], &b[i]);
		end_take(&a[i], INLAY_UAR_DOORBELL);
		uar_of(&b[i].uar, b[i].qp, INLAY_UAR_DOORBELL);
		must(inlay_sq_from_qp(&b[i].sq, b[i].qp, &b[i].uar, NULL, NULL));
		must(inlay_cq_from_cq(&b[i].cq, b[i].scq, NULL));
	}
	must(inlay_cq_from_cq(&b[0].rxcq, b[0].rcq, NULL));
	cq = &b[0].rxcq;
	for (round = 0; round < 30; round++) {
		const uint32_t bad = rnd_below(2), good = 1 - bad;
		const bool too_long = rnd_below(2), polled = rnd_below(2);
		uint32_t mine = rnd_below(4), others = rnd_below(4), k, n;

		while (inlay_srq_room(&s.srq))
			give(&s);
		/* Both leave completions, in a known order */
		for (k = 0; k < mine; k++) {
			send_to(&a[bad], k, 32);
			sent(&a[bad]);
		}
		for (k = 0; k < others; k++) {
			send_to(&a[good], 100 + k, 48);
			sent(&a[good]);
		}
		if (too_long) {
			struct ibv_sge sge = sge_of(&a[bad], 0, 65);
			const struct mlx5_cqe64 *cqe;

			must(inlay_post_send(&a[bad].sq, &sge, 1, INLAY_SIGNALED));
			inlay_sq_ring(&a[bad].sq);
			cqe = cqe_wait(&a[bad].cq);
			assert_int_equal(inlay_cqe_status(cqe), IBV_WC_REM_INV_REQ_ERR);
			assert_true(0 < inlay_sq_release(&a[bad].sq, cqe));
			inlay_cq_advance(&a[bad].cq, 1);
		} else {
			qp_to(b[bad].qp, IBV_QPS_ERR);
		}
		last_wqe(&b[bad]);
		settle();
		if (polled) {
			for (k = 0; k < mine; k++)
				take(&s, cq, &b[bad], k, 32);
			for (k = 0; k < others; k++)
				take(&s, cq, &b[good], 100 + k, 48);
			if (too_long) {
				const struct mlx5_cqe64 *cqe = cqe_wait(cq);

				assert_int_equal(inlay_cqe_status(cqe), IBV_WC_LOC_LEN_ERR);
				assert_int_equal(inlay_cqe_qpn(cqe), b[bad].qp->qp_num);
				assert_true(0 < inlay_srq_release(&s.srq, cqe));
				inlay_cq_advance(cq, 1);
				s.out--;
			}
			/* The entries that nobody took raise nothing */
			assert_null(inlay_cq_peek(cq));
			assert_int_equal(inlay_srq_pending(&s.srq), s.out);
		}
		qp_to(b[bad].qp, IBV_QPS_RESET);
		n = inlay_cq_clean(cq, b[bad].qp->qp_num, inlay_srq_gone, &s.srq);
		assert_int_equal(n, polled ? 0 : mine + too_long);
		s.out -= n;
		cleaned += n;
		assert_int_equal(inlay_srq_pending(&s.srq), s.out);
		inlay_cq_clean(&b[bad].cq, b[bad].qp->qp_num, NULL, NULL);
		inlay_sq_reset(&b[bad].sq);
		if (!polled)
			for (k = 0; k < others; k++)
				take(&s, cq, &b[good], 100 + k, 48);
		/* The other one goes on meanwhile */
		send_to(&a[good], round, 40);
		sent(&a[good]);
		take(&s, cq, &b[good], round, 40);
		qp_to(a[bad].qp, IBV_QPS_RESET);
		inlay_cq_clean(&a[bad].cq, a[bad].qp->qp_num, NULL, NULL);
		inlay_sq_reset(&a[bad].sq);
		inlay_rq_reset(&a[bad].rq);
		ends_connect(&a[bad], &b[bad]);
		for (k = 0; k < 2; k++) {
			send_to(&a[k], round + 7, 56);
			sent(&a[k]);
			take(&s, cq, &b[k], round + 7, 56);
		}
		assert_null(inlay_cq_peek(cq));
	}
	assert_true(cleaned > 0);
	/* Every entry is still there */
	while (inlay_srq_room(&s.srq))
		give(&s);
	assert_int_equal(s.out, 31);
	for (i = 0; i < 31; i++) {
		send_to(&a[i & 1], i, 64);
		sent(&a[i & 1]);
		take(&s, cq, &b[i & 1], i, 64);
	}
	must(ibv_destroy_qp(b[1].qp));
	b[1].qp = NULL;
	end_free(&b[1]);
	end_free(&b[0]);
	end_free(&a[0]);
	end_free(&a[1]);
	must(ibv_destroy_srq(s.ib));
	must(ibv_dereg_mr(s.mr));
	free(s.buf);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(rc),
		cmocka_unit_test(uc),
		cmocka_unit_test(ud),
		cmocka_unit_test(with_srq),
	};

	return cmocka_run_group_tests_name("recover", tests, dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1");
}
