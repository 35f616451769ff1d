/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trap.c: the trapping device, on which nothing but a store to a doorbell register starts work, at
 * once and in the thread that stores. WQEs are written here by hand, so that each step of a post
 * can be left out or come at the wrong time.
 */
#include "rig.h"
#include <dirent.h>
#include <sys/time.h>
#ifdef __x86_64__
#include <emmintrin.h>
#endif

static struct how how;
static struct ibv_wc wc;

static int trap_setup(void **state)
{
	how = usual;
	return setup(state);
}

/* ---- a send queue by hand ---- */

struct ring {
	struct mlx5dv_qp q;
	uint32_t qpn;
	uint16_t pi;
	unsigned bf;              /* which half of the BlueFlame register is next */
};

static void take_over(struct ring *r, struct side *s)
{
	struct mlx5dv_obj obj;

	memset(r, 0, sizeof(*r));
	obj.qp.in = s->qp;
	obj.qp.out = &r->q;
	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP));
	r->qpn = s->qp->qp_num;
	assert_true(r->q.bf.size > 0);
	assert_int_equal(be32toh(r->q.dbrec[MLX5_SND_DBR]), 0);
}

/*
 * An RDMA write of one segment into the ring; not more than that. Its first 8 bytes are what the
 * doorbell wants
 */
static uint64_t *put(struct ring *r, struct side *from, size_t off, uint32_t len, struct side *to, size_t roff)
{
	uint64_t *w = (uint64_t *)((uint8_t *)r->q.sq.buf + (r->pi & (r->q.sq.wqe_cnt - 1)) * 64);

	memset(w, 0, 64);
	w[0] = htobe64((uint64_t)(uint32_t)(r->pi << 8 | 0x08) << 32 | (r->qpn << 8 | 3));
	w[1] = htobe64((uint64_t)0x08 << 32);
	w[2] = htobe64((uintptr_t)to->buf + roff);
	w[3] = htobe64((uint64_t)to->mr->rkey << 32);
	w[4] = htobe64((uint64_t)len << 32 | from->mr->lkey);
	w[5] = htobe64((uintptr_t)from->buf + off);
	r->pi++;
	return w;
}

static void record(struct ring *r)
{
	__atomic_thread_fence(__ATOMIC_RELEASE);
	*(volatile uint32_t *)(r->q.dbrec + MLX5_SND_DBR) = htobe32(r->pi);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void *reg_of(struct ring *r)
{
	void *reg = (uint8_t *)r->q.bf.reg + (r->bf & 1) * r->q.bf.size;

	r->bf++;
	return reg;
}

static void ring(struct ring *r, const uint64_t *wqe)
{
	*(volatile uint64_t *)reg_of(r) = *wqe;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void arrived(struct side *s, size_t roff, struct side *from, size_t off, uint32_t len)
{
	assert_memory_equal(s->buf + roff, from->buf + off, len);
	assert_int_equal(ibv_poll_cq(from->scq, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
}

static void nothing_yet(struct side *s, size_t roff, uint32_t len, struct side *from)
{
	usleep(3000);
	assert_true(all_bytes(s->buf + roff, len, 0xaa));
	assert_int_equal(ibv_poll_cq(from->scq, 1, &wc), 0);
}

static void fresh_pair(struct side s[2], struct ring *r)
{
	open_pair(s, &how);
	take_over(r, &s[0]);
	fill(s[0].buf, 65536, 17);
	memset(s[1].buf, 0xaa, 65536);
}

/* ---- tests ---- */

static unsigned own_threads(void)
{
	DIR *d = opendir("/proc/self/task");
	const struct dirent *e;
	unsigned n = 0;

	assert_non_null(d);
	while ((e = readdir(d)))
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

/* With a device open and at work this thread is the only one: nobody else could complete what the doorbell starts */
static void no_thread(UNUSED void **state)
{
	struct ring r;

	assert_int_equal(own_threads(), 1);
	fresh_pair(s, &r);
	for (unsigned i = 0; i < 50; i++) {
		const uint64_t *w = put(&r, &s[0], i, 4096, &s[1], 0);

		record(&r);
		ring(&r, w);
		arrived(&s[1], 0, &s[0], i, 4096);
		assert_int_equal(ibv_poll_cq(s[0].scq, 1, &wc), 0);
	}
	assert_int_equal(own_threads(), 1);
	close_pair(s);
}

/* What is done when, of posts whose steps are left out or come at the wrong time. p: a WQE, c: the record, r: the register */
static void steps(UNUSED void **state)
{
	static const struct {
		const char *steps;
		int done[6];              /* WQEs, after each step */
	} rows[] = {
		{ "pcr", { 0, 0, 1 } },
		{ "pcpcr", { 0, 0, 0, 0, 2 } },  /* the ring covers both */
		{ "prcr", { 0, 0, 0, 1 } },      /* rung before the record says so: nothing, until it is rung again */
		{ "pcprcr", { 0, 0, 0, 1, 1, 2 } }, /* the record one too low */
	};
	struct ring r;

	for (unsigned i = 0; i < ARRAY(rows); i++) {
		unsigned put_in = 0, done = 0;
		uint64_t *w = NULL;

		fresh_pair(s, &r);
		for (unsigned at = 0; rows[i].steps[at]; at++) {
			switch (rows[i].steps[at]) {
			case 'p':
				w = put(&r, &s[0], 200 * put_in, 100, &s[1], 200 * put_in);
				put_in++;
				break;
			case 'c':
				record(&r);
				break;
			case 'r':
				ring(&r, w);
				break;
			}
			for (; done < (unsigned)rows[i].done[at]; done++)
				arrived(&s[1], 200 * done, &s[0], 200 * done, 100);
			nothing_yet(&s[1], 200 * done, 400, &s[0]);
		}
		close_pair(s);
	}
}

/* Another QP's doorbell is another QP's */
static void whose_doorbell(UNUSED void **state)
{
	struct side t[2];
	struct ring r, q;
	uint64_t *w;

	fresh_pair(s, &r);
	fresh_pair(t, &q);
	put(&r, &s[0], 0, 64, &s[1], 0);
	record(&r);
	w = put(&q, &t[0], 64, 64, &t[1], 64);
	record(&q);
	ring(&q, w);
	arrived(&t[1], 64, &t[0], 64, 64);
	if (r.q.bf.reg != q.q.bf.reg)
		nothing_yet(&s[1], 0, 64, &s[0]);
	close_pair(s);
	close_pair(t);
}

/* The ways in which programs store to a register */
static void stores(UNUSED void **state)
{
	struct ring r;

	fresh_pair(s, &r);
	for (unsigned i = 0; i < 100; i++) {
		uint64_t *w = put(&r, &s[0], i, 100, &s[1], 128 * (i % 64));
		volatile uint64_t *reg;

		record(&r);
		reg = reg_of(&r);
		switch (i % 5) {
		case 0: /* the doorbell as two halves */
			((volatile uint32_t *)reg)[0] = (uint32_t)*w;
			((volatile uint32_t *)reg)[1] = (uint32_t)(*w >> 32);
			break;
		case 1: /* BlueFlame, by words */
			for (int j = 0; j < 8; j++)
				reg[j] = w[j];
			break;
		case 2: /* as libc copies */
			memcpy((void *)(uintptr_t)reg, w, 64);
			break;
		case 3:
#ifdef __x86_64__
			for (int j = 0; j < 4; j++)
				_mm_stream_si128((__m128i *)(uintptr_t)reg + j, _mm_load_si128((__m128i *)w + j));
			_mm_sfence();
			break;
#endif
		case 4:
			__atomic_store_n(reg, *w, __ATOMIC_SEQ_CST);
			break;
		}
		arrived(&s[1], 128 * (i % 64), &s[0], i, 100);
	}
	close_pair(s);
}

/* Asking for an event takes the record and the register, too */
static void arming(UNUSED void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct mlx5dv_cq c = { .comp_mask = 0 };
	struct ibv_send_wr wr, *bad;
	struct mlx5dv_obj obj;
	struct how h = how;
	uint64_t v;

	h.channel = ch;
	open_pair(s, &h);
	obj.cq.in = s[0].scq;
	obj.cq.out = &c;
	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ));
	wr = first_to_second(IBV_WR_RDMA_WRITE, 1, 0, 8, 0);
	c.dbrec[1] = htobe32(0);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	must(ibv_post_send(s[0].qp, &wr, &bad));
	assert_false(readable(ch->fd, 5));
	v = htobe64((uint64_t)0 << 32 | c.cqn);
	*(volatile uint64_t *)((uint8_t *)c.cq_uar + 0x20) = v;
	assert_true(readable(ch->fd, 0));
	expect_cq_event(ch, s[0].scq);
	assert_int_equal(ibv_poll_cq(s[0].scq, 1, &wc), 1);
	/* And as libmlx5 does it: there when the post returns */
	must(ibv_req_notify_cq(s[1].rcq, 0));
	recv_at(&s[1], 2, 0, 64);
	wr = request(IBV_WR_SEND, 1, &sg, 1, &s[1], 0);
	must(ibv_post_send(s[0].qp, &wr, &bad));
	assert_true(readable(ch->fd, 0));
	expect_cq_event(ch, s[1].rcq);
	close_pair(s);
	must(ibv_destroy_comp_channel(ch));
}

/* What a trap must not disturb: the program's own handlers */
static volatile sig_atomic_t signals;

static void count(int sig)
{
	(void)sig;
	signals = signals + 1;
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	signals = signals + 1;
	mprotect((void *)((uintptr_t)info->si_addr & ~4095ul), 4096, PROT_READ | PROT_WRITE);
}

static struct side *handlers_side;
static struct ring *handlers_ring;

static void post_in_handler(int sig)
{
	uint64_t *w = put(handlers_ring, &handlers_side[0], 300, 100, &handlers_side[1], 300);

	(void)sig;
	record(handlers_ring);
	ring(handlers_ring, w);
}

static void other_signals(UNUSED void **state)
{
	struct sigaction act, was_alarm, was_fault;
	uint8_t *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct itimerval every = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };
	struct ring r;

	fresh_pair(s, &r);
	/* A timer that goes off between any two instructions */
	memset(&act, 0, sizeof(act));
	act.sa_handler = count;
	must(sigaction(SIGVTALRM, &act, &was_alarm));
	signals = 0;
	must(setitimer(ITIMER_VIRTUAL, &every, NULL));
	for (unsigned i = 0; i < 20000 && signals < 20; i++) {
		uint64_t *w = put(&r, &s[0], i % 1000, 100, &s[1], 128 * (i % 64));

		record(&r);
		ring(&r, w);
		arrived(&s[1], 128 * (i % 64), &s[0], i % 1000, 100);
	}
	must(setitimer(ITIMER_VIRTUAL, &never, NULL));
	assert_true(signals > 0);
	must(sigaction(SIGVTALRM, &was_alarm, NULL));
	/* Rung where all signals are blocked: by the thread, and in a handler */
	{
		sigset_t all, before;
		uint64_t *w;

		memset(s[1].buf, 0xaa, 1024);
		sigfillset(&all);
		must(pthread_sigmask(SIG_BLOCK, &all, &before));
		w = put(&r, &s[0], 0, 100, &s[1], 0);
		record(&r);
		ring(&r, w);
		must(pthread_sigmask(SIG_SETMASK, &before, NULL));
		arrived(&s[1], 0, &s[0], 0, 100);
		handlers_side = s;
		handlers_ring = &r;
		act.sa_handler = post_in_handler;
		act.sa_mask = all;
		must(sigaction(SIGUSR1, &act, NULL));
		must(raise(SIGUSR1));
		arrived(&s[1], 300, &s[0], 300, 100);
		act.sa_handler = SIG_DFL;
		must(sigaction(SIGUSR1, &act, NULL));
		sigemptyset(&act.sa_mask);
	}
	/* A fault that is the program's is the program's */
	act.sa_handler = NULL;
	act.sa_sigaction = on_fault;
	act.sa_flags = SA_SIGINFO;
	must(sigaction(SIGSEGV, &act, &was_fault));
	signals = 0;
	*(volatile uint8_t *)page = 5;
	assert_int_equal(signals, 1);
	assert_int_equal(page[0], 5);
	{
		uint64_t *w = put(&r, &s[0], 0, 100, &s[1], 0);

		record(&r);
		ring(&r, w);
		arrived(&s[1], 0, &s[0], 0, 100);
	}
	assert_int_equal(signals, 1);
	must(sigaction(SIGSEGV, &was_fault, NULL));
	munmap(page, 4096);
	close_pair(s);
}

/* ---- threads ---- */

struct worker {
	pthread_t thread;
	struct side s[2];
	unsigned bad;
	bool by_hand;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct ibv_wc c;
	struct ring r;

	if (w->by_hand)
		take_over(&r, &w->s[0]);
	for (unsigned i = 0; i < 1500; i++) {
		size_t off = i % 1000, roff = HALF + 128 * (i % 64);
		uint32_t len = 1 + i % 100;

		if (w->by_hand) {
			uint64_t *wqe = put(&r, &w->s[0], off, len, &w->s[1], roff);

			record(&r);
			ring(&r, wqe);
		} else {
			struct ibv_sge sg = sge(&w->s[0], off, len);
			struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, i, &sg, 1, &w->s[1], roff), *bad;

			w->bad += ibv_post_send(w->s[0].qp, &wr, &bad) != 0;
		}
		w->bad += memcmp(w->s[1].buf + roff, w->s[0].buf + off, len) != 0;
		w->bad += ibv_poll_cq(w->s[0].scq, 1, &c) != 1 || c.status != IBV_WC_SUCCESS;
	}
	return NULL;
}

/*
 * Each with a QP of its own, all at once: every store is seen, every answer is there when the store
 * is done
 */
static void threads(UNUSED void **state)
{
	struct worker w[4];

	for (int hand = 0; hand < 2; hand++) {
		for (unsigned i = 0; i < ARRAY(w); i++) {
			w[i] = (struct worker){ .by_hand = hand };
			open_pair(w[i].s, &how);
			fill(w[i].s[0].buf, HALF, i);
		}
		for (unsigned i = 0; i < ARRAY(w); i++)
			must(pthread_create(&w[i].thread, NULL, work, &w[i]));
		for (unsigned i = 0; i < ARRAY(w); i++) {
			must(pthread_join(w[i].thread, NULL));
			assert_int_equal(w[i].bad, 0);
			close_pair(w[i].s);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(no_thread), TEST(steps), TEST(whose_doorbell), TEST(stores), TEST(arming), TEST(other_signals), TEST(threads),
	};

	if (!softdev_present() || NO_TRAPS) {
		print_message("# skipped: traps need the software device, x86-64 and no sanitizer\n1..0\n");
		return 0;
	}
	setenv("SOFTDEV_TRAP", "1", 1); /* read when a device is first asked for */
	return cmocka_run_group_tests(tests, trap_setup, teardown);
}
