/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trap.c: the trapping device, on which nothing but a store to a doorbell register starts work, at once and in the thread that stores.
 * WQEs are written here by hand, so that each step of a post can be left out or come at the wrong time.
 */
#include "rig.h"
#include <sys/time.h>
#ifdef __x86_64__
#include <emmintrin.h>
#endif

/* ---- a send queue by hand ---- */

struct ring {
	struct mlx5dv_qp q;
	struct side *s;           /* the queue's, and its peer's */
	uint16_t pi;
	unsigned bf;              /* which half of the BlueFlame register is next */
};

/* An RDMA write of one segment into the ring, and no more. Its first 8 bytes are what the doorbell wants */
static uint64_t *put(struct ring *r, size_t off, uint32_t len, size_t roff)
{
	uint64_t *w = (uint64_t *)((uint8_t *)r->q.sq.buf + (r->pi & (r->q.sq.wqe_cnt - 1)) * 64);

	memset(w, 0, 64);
	w[0] = htobe64((uint64_t)(uint32_t)(r->pi << 8 | 0x08) << 32 | (r->s->qp->qp_num << 8 | 3));
	w[1] = htobe64((uint64_t)0x08 << 32);
	w[2] = htobe64((uintptr_t)r->s[1].buf + roff);
	w[3] = htobe64((uint64_t)r->s[1].mr->rkey << 32);
	w[4] = htobe64((uint64_t)len << 32 | r->s->mr->lkey);
	w[5] = htobe64((uintptr_t)r->s->buf + off);
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
	return (uint8_t *)r->q.bf.reg + (r->bf++ & 1) * r->q.bf.size;
}

static void ring(struct ring *r, const uint64_t *wqe)
{
	*(volatile uint64_t *)reg_of(r) = *wqe;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void put_and_ring(struct ring *r, size_t off, uint32_t len, size_t roff)
{
	uint64_t *w = put(r, off, len, roff);

	record(r);
	ring(r, w);
}

/* It is done by now, and has completed */
static bool has_arrived(const struct ring *r, size_t off, uint32_t len, size_t roff)
{
	struct ibv_wc wc;

	return !memcmp(r->s[1].buf + roff, r->s->buf + off, len) && ibv_poll_cq(r->s->scq, 1, &wc) == 1 && !wc.status &&
	       wc.opcode == IBV_WC_RDMA_WRITE;
}

static void fresh_pair(struct side of[2], struct ring *r)
{
	open_pair(of, &usual);
	memset(r, 0, sizeof(*r));
	must(mlx5dv_init_obj(&(struct mlx5dv_obj){ .qp = { of->qp, &r->q } }, MLX5DV_OBJ_QP));
	r->s = of;
	assert_true(r->q.bf.size > 0 && !r->q.dbrec[MLX5_SND_DBR]);
	fill(of[0].buf, 65536, 17);
	memset(of[1].buf, 0xaa, 65536);
}

/* ---- tests ---- */

/*
 * What is done when, of posts whose steps are left out or come at the wrong time. p: a WQE, c: the record, r: the register, o: of
 * another QP, whose doorbell is its own
 */
TEST(steps)
{
	static const struct {
		const char *steps;
		int done[6];              /* WQEs, after each step */
	} rows[] = {
		{ "pcr", { 0, 0, 1 } },
		{ "pcpcr", { 0, 0, 0, 0, 2 } },  /* the ring covers both */
		{ "prcr", { 0, 0, 0, 1 } },      /* rung before the record says so: nothing, until it is rung again */
		{ "pcprcr", { 0, 0, 0, 1, 1, 2 } }, /* the record one too low */
		{ "pcor", { 0, 0, 0, 1 } },
	};
	struct ring r, other;
	struct side t[2];

	for (unsigned i = 0; i < ARRAY(rows); i++) {
		unsigned put_in = 0, done = 0;
		uint64_t *w = NULL;

		fresh_pair(s, &r);
		fresh_pair(t, &other);
		for (unsigned at = 0; rows[i].steps[at]; at++) {
			if (rows[i].steps[at] == 'o' && r.q.bf.reg == other.q.bf.reg) {
				continue;
			} else if (rows[i].steps[at] == 'o') {
				put_and_ring(&other, 64, 64, 64);
				assert_true(has_arrived(&other, 64, 64, 64));
			} else if (rows[i].steps[at] == 'p') {
				w = put(&r, 200 * put_in, 100, 200 * put_in);
				put_in++;
			} else if (rows[i].steps[at] == 'c') {
				record(&r);
			} else {
				ring(&r, w);
			}
			for (; done < (unsigned)rows[i].done[at]; done++)
				assert_true(has_arrived(&r, 200 * done, 100, 200 * done));
			usleep(3000);
			assert_true(all_bytes(s[1].buf + 200 * done, 400, 0xaa) && !ibv_poll_cq(s->scq, 1, &wc));
		}
		close_pair(s);
		close_pair(t);
	}
}

/* The ways in which programs store to a register */
TEST(stores)
{
	struct ring r;

	fresh_pair(s, &r);
	for (unsigned i = 0; i < 100; i++) {
		uint64_t *w = put(&r, i, 100, 128 * (i % 64));
		volatile uint64_t *reg = reg_of(&r);

		record(&r);
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
		assert_true(has_arrived(&r, i, 100, 128 * (i % 64)));
	}
	close_pair(s);
}

/* Asking for an event takes the record and the register, too; threads.c has libmlx5 ask */
TEST(arming)
{
	struct mlx5dv_cq c = { .comp_mask = 0 };
	struct mlx5dv_obj obj = { .cq = { .out = &c } };
	struct how how = usual;

	how.channel = ibv_create_comp_channel(ctx);
	open_request(&how, IBV_WR_RDMA_WRITE, 1, 8, 0);
	obj.cq.in = s[0].scq;
	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ));
	c.dbrec[1] = htobe32(0);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	post(&s[0], &wr);
	assert_false(readable(how.channel->fd, 5));
	*(volatile uint64_t *)((uint8_t *)c.cq_uar + 0x20) = htobe64(c.cqn);
	assert_true(readable(how.channel->fd, 0));
	expect_cq_event(how.channel, s[0].scq);
	assert_int_equal(ibv_poll_cq(s[0].scq, 1, &wc), 1);
	close_pair(s);
	must(ibv_destroy_comp_channel(how.channel));
}

/* ---- what a trap must not disturb: the program's own handlers ---- */

static volatile sig_atomic_t signals;
static struct ring *handlers_ring;

static void handler(int sig, siginfo_t *info, UNUSED void *context)
{
	signals = signals + 1;
	if (sig == SIGSEGV)
		mprotect((void *)((uintptr_t)info->si_addr & ~4095ul), 4096, PROT_READ | PROT_WRITE);
	else if (sig == SIGUSR1)
		put_and_ring(handlers_ring, 300, 100, 300);
}

TEST(other_signals)
{
	uint8_t *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct itimerval every = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };
	static const int numbers[] = { SIGVTALRM, SIGUSR1, SIGSEGV };
	struct sigaction act = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO }, was[3];
	struct ring r;
	sigset_t all, before;

	sigfillset(&all);
	for (unsigned i = 0; i < ARRAY(numbers); i++) {
		act.sa_mask = numbers[i] == SIGUSR1 ? all : act.sa_mask;
		must(sigaction(numbers[i], &act, &was[i]));
		sigemptyset(&act.sa_mask);
	}
	fresh_pair(s, &r);
	/* A timer that goes off between any two instructions */
	must(setitimer(ITIMER_VIRTUAL, &every, NULL));
	for (unsigned i = 0; i < 20000 && signals < 20; i++) {
		put_and_ring(&r, i % 1000, 100, 128 * (i % 64));
		assert_true(has_arrived(&r, i % 1000, 100, 128 * (i % 64)));
	}
	must(setitimer(ITIMER_VIRTUAL, &never, NULL));
	assert_true(signals > 0);
	/* Rung where all signals are blocked: by the thread, and in a handler */
	memset(s[1].buf, 0xaa, 1024);
	must(pthread_sigmask(SIG_BLOCK, &all, &before));
	put_and_ring(&r, 0, 100, 0);
	must(pthread_sigmask(SIG_SETMASK, &before, NULL));
	assert_true(has_arrived(&r, 0, 100, 0));
	handlers_ring = &r;
	must(raise(SIGUSR1));
	assert_true(has_arrived(&r, 300, 100, 300));
	/* A fault that is the program's is the program's, and a trap is not */
	signals = 0;
	*(volatile uint8_t *)page = 5;
	assert_int_equal(signals, 1);
	assert_int_equal(page[0], 5);
	put_and_ring(&r, 1, 100, 0);
	assert_true(has_arrived(&r, 1, 100, 0));
	assert_int_equal(signals, 1);
	for (unsigned i = 0; i < ARRAY(numbers); i++)
		must(sigaction(numbers[i], &was[i], NULL));
	munmap(page, 4096);
	close_pair(s);
}

int main(void)
{
	skip_all_if(!softdev_present() || NO_TRAPS, "traps need the software device, x86-64 and no sanitizer");
	setenv("SOFTDEV_TRAP", "1", 1); /* read when a device is first asked for */
	return run_all(setup, teardown);
}
