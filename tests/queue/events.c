/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * events.c: sleeping on a completion queue. Messages come from another thread while the receiver looks, arms, looks again and sleeps, with
 * the second look and without it; solicited completions only; and on the stepped device every place at which a
 * completion can come between two looks. Whoever sleeps for ever fails: the sleep has an end.
 */
#include "common.h"
#include <endian.h>
#include <pthread.h>

#define SLEEP_MS 60000
#define SLOTS 64u

static struct ibv_comp_channel *channel_make(void)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(dev.ctx);

	assert_non_null(ch);
	return ch;
}

/* An event is taken, or there is none within that time: NULL */
static struct ibv_cq *take(struct ibv_comp_channel *ch, int ms)
{
	struct pollfd fd = {ch->fd, POLLIN, 0};
	double end = now() + ms * 1e-3;
	struct ibv_cq *cq;
	void *context;

	while (poll(&fd, 1, stepped() ? 0 : ms) != 1) {
		if (now() > end)
			return NULL;
		step();
	}
	must(ibv_get_cq_event(ch, &cq, &context));
	ibv_ack_cq_events(cq, 1);
	return cq;
}

/* What may still come of armings that nobody slept on */
static uint32_t drain(struct ibv_comp_channel *ch, struct inlay_cq *cq)
{
	uint32_t n = 0;

	settle();
	for (; take(ch, 0); n++)
		inlay_cq_event(cq);
	return n;
}

static bool moderating; /* the receiver's events */

static void pair_make(struct end *a, struct end *b, struct ibv_comp_channel *ch)
{
	struct opt opt = usual;
	uint32_t i;

	opt.bytes = 1 << 16;
	opt.cqe = 1023; /* more than can be outstanding, all signaled */
	end_make(a, &opt);
	opt.channel = ch;
	end_make(b, &opt);
	if (moderating) {
		struct ibv_modify_cq_attr moderate;

		memset(&moderate, 0, sizeof(moderate));
		moderate.attr_mask = IBV_CQ_ATTR_MODERATE;
		moderate.moderate.cq_count = 8;
		moderate.moderate.cq_period = 50;
		must(ibv_modify_cq(b->rcq, &moderate));
	}
	ends_connect(a, b);
	end_take(a, INLAY_UAR_DOORBELL);
	end_take(b, INLAY_UAR_DOORBELL);
	for (i = 0; i < SLOTS; i++) {
		struct ibv_sge sge = sge_of(b, 64 * i, 64);

		must(inlay_post_recv(&b->rq, &sge, 1));
	}
	inlay_rq_ring(&b->rq);
}

/* A message that the CQ shows: its number must be the next one */
static void consume(struct end *b, uint32_t n)
{
	const struct mlx5_cqe64 *cqe = inlay_cq_peek(&b->rxcq);
	struct ibv_sge sge = sge_of(b, 64 * (n % SLOTS), 64);
	uint32_t word;

	assert_non_null(cqe);
	assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_RESP_SEND);
	assert_int_equal(inlay_cqe_wqe_counter(cqe), n & 0xffff);
	memcpy(&word, b->buf + 64 * (n % SLOTS), sizeof(word));
	assert_int_equal(word, n);
	assert_true(0 < inlay_rq_release(&b->rq, cqe));
	inlay_cq_advance(&b->rxcq, 1);
	must(inlay_post_recv(&b->rq, &sge, 1));
	inlay_rq_ring(&b->rq);
}

static void send_word(struct end *a, uint32_t n, uint32_t flags)
{
	must(inlay_post_send_inline(&a->sq, &n, sizeof(n), flags));
	inlay_sq_ring(&a->sq);
}

/* ---- another thread sends ---- */

struct sender {
	struct end *a;
	uint32_t count, seed;
	uint32_t burst;         /* the last of so many is solicited; 0: none is */
	uint32_t got;           /* what the receiver has consumed, as far as the sender may know */
	int failed;
};

/* No assertion here: cmocka's belong to the main thread */
static void *sends(void *arg)
{
	struct sender *s = (struct sender *)arg;
	struct end *a = s->a;
	uint64_t x = s->seed;
	uint32_t i;
	double end;

	for (i = 0; i < s->count && !s->failed; i++) {
		uint32_t flags = INLAY_SIGNALED;
		volatile uint32_t spin;

		end = now() + DEADLINE;
		x = x * 6364136223846793005u + 1442695040888963407u;
		if (s->burst && (i + 1) % s->burst == 0)
			flags |= INLAY_SOLICITED;
		for (;;) {
			const struct mlx5_cqe64 *cqe = inlay_cq_peek(&a->cq);

			if (cqe) {
				s->failed |= inlay_cqe_is_error(cqe) || inlay_sq_release(&a->sq, cqe) < 0;
				inlay_cq_advance(&a->cq, 1);
				continue;
			}
			if (!inlay_post_send_inline(&a->sq, &i, sizeof(i), flags))
				break;
			s->failed |= now() > end;
			if (s->failed)
				return NULL;
			step();
		}
		inlay_sq_ring(&a->sq);
		step();
		/* Mostly wait until it is consumed, so that the receiver is about to sleep when the next one comes */
		if (!s->burst && (x >> 40) % 8)
			while (__atomic_load_n(&s->got, __ATOMIC_ACQUIRE) + 1 < i && now() < end &&
				!__atomic_load_n(&s->failed, __ATOMIC_RELAXED))
				step();
		for (spin = (uint32_t)(x >> 44) % ((x >> 60) ? 600 : 30000); spin;)
			spin = spin - 1;
	}
	return NULL;
}

enum { LOOK_TWICE, LOOK_ONCE };

/*
 * The manual's loop. Without the second look it stands on what mlx5 does and verbs does not promise: that a completion which came before
 * the device saw the arm raises its event at once.
 */
static void loop(uint32_t count, int look, uint32_t burst)
{
	struct ibv_comp_channel *ch = channel_make();
	struct sender s;
	struct end a, b;
	uint32_t got = 0, slept = 0, spared = 0;
	pthread_t thread;

	pair_make(&a, &b, ch);
	memset(&s, 0, sizeof(s));
	s.a = &a;
	s.count = count;
	s.burst = burst;
	s.seed = (uint32_t)rnd();
	must(pthread_create(&thread, NULL, sends, &s));
	while (got < count) {
		struct ibv_cq *of;

		while (inlay_cq_peek(&b.rxcq)) {
			consume(&b, got);
			__atomic_store_n(&s.got, ++got, __ATOMIC_RELEASE);
		}
		if (got == count)
			break;
		must(inlay_cq_arm(&b.rxcq, burst != 0));
		if (look == LOOK_TWICE && inlay_cq_peek(&b.rxcq)) {
			spared++;
			continue;
		}
		of = take(ch, SLEEP_MS);
		if (!of) {
			s.failed = 1;
			pthread_join(thread, NULL);
			fail_msg("asleep for ever behind message %u, %s", got,
				 inlay_cq_peek(&b.rxcq) ? "which is there" : "which is not there");
		}
		assert_ptr_equal(of, b.rcq);
		inlay_cq_event(&b.rxcq);
		slept++;
	}
	must(pthread_join(thread, NULL));
	assert_int_equal(s.failed, 0);
	assert_true(slept > 0);
	drain(ch, &b.rxcq);
	/* Each event that was taken has been counted: the next arming is a new one */
	must(inlay_cq_arm(&b.rxcq, 0));
	assert_null(take(ch, 2));
	while (inlay_cq_peek(&a.cq))
		sent(&a);
	send_word(&a, got, INLAY_SIGNALED);
	assert_ptr_equal(take(ch, SLEEP_MS), b.rcq);
	consume(&b, got);
	print_message("# %u messages, %u times asleep, %u times spared by the second look\n", count, slept, spared);
	while (inlay_sq_pending(&a.sq))
		sent(&a);
	end_free(&a);
	end_free(&b);
	must(ibv_destroy_comp_channel(ch));
}

/* With the second look and without; moderated, events may come late, but they come; of a burst only the last message wakes the receiver */
UNUSED static void loops(void **state)
{
	const uint32_t count = stepped() ? 300 : 1000;

	(void)state;
	loop(count, LOOK_TWICE, 0);
	loop(count, LOOK_ONCE, 0);
	loop(count, LOOK_TWICE, 5);
	loop(count, LOOK_ONCE, 5);
	moderating = true;
	loop(count / 2, LOOK_TWICE, 0);
	moderating = false;
}

/* ---- every place at which a completion can come ---- */

enum { BEFORE_ARM, BEFORE_LOOK, BEFORE_SLEEP, PLACES };

/* The device completes one message now, whatever it has held back */
static void come(struct end *a, uint32_t rxcqn, uint32_t n, bool solicits)
{
	send_word(a, n, INLAY_SIGNALED | (solicits ? INLAY_SOLICITED : 0));
	assert_int_equal(softdev_execute(a->qp->qp_num, 1), 1);
	assert_int_equal(softdev_complete(rxcqn, 1), 1);
	assert_int_equal(softdev_complete(a->cq.cqn, 1), 1);
	sent(a);
}

/*
 * look, arm, look, sleep: up to two completions at each of the three places between them, solicited or not, in all combinations. Asleep
 * with a message that should have woken is wrong; so is an event where none was due.
 */
static void places(void **state)
{
	struct ibv_comp_channel *ch;
	struct end a, b;
	uint32_t mix, n = 0, got = 0, races = 0;

	(void)state;
	ch = channel_make();
	pair_make(&a, &b, ch);
	/* In base 7: none, one, one solicited, and two of either kind; and which arming */
	for (mix = 0; mix < 2 * 7 * 7 * 7; mix++) {
		static const uint8_t kinds[7][3] = {{0}, {1, 0}, {1, 1}, {2, 0, 0}, {2, 0, 1}, {2, 1, 0}, {2, 1, 1}};
		const bool only_solicited = mix % 2;
		uint32_t place, rest = mix / 2, k;
		bool due = false, event;

		assert_null(inlay_cq_peek(&b.rxcq));
		for (place = 0; place < PLACES; place++, rest /= 7) {
			const uint8_t *kind = kinds[rest % 7];

			if (place == BEFORE_LOOK) {
				must(inlay_cq_arm(&b.rxcq, only_solicited));
				softdev_run(); /* the device sees it */
			}
			for (k = 0; k < kind[0]; k++, n++) {
				come(&a, b.rxcq.cqn, n, kind[1 + k]);
				due |= !only_solicited || kind[1 + k];
			}
			if (place == BEFORE_LOOK)
				races += inlay_cq_peek(&b.rxcq) != NULL;
		}
		softdev_run();
		event = take(ch, 0) != NULL;
		if (event != due)
			fail_msg("mix %u: %s", mix, event ? "an event for nothing" : "asleep for ever");
		if (event)
			inlay_cq_event(&b.rxcq);
		assert_null(take(ch, 0));
		while (inlay_cq_peek(&b.rxcq))
			consume(&b, got++);
		assert_int_equal(got, n);
		if (event)
			continue;
		/* It is still armed: one that should wakes it */
		come(&a, b.rxcq.cqn, n++, only_solicited);
		assert_non_null(take(ch, 0));
		inlay_cq_event(&b.rxcq);
		consume(&b, got++);
	}
	assert_true(races > 100);
	end_free(&a);
	end_free(&b);
	must(ibv_destroy_comp_channel(ch));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(loops),
	}, by_hand[] = {
#ifndef __SANITIZE_THREAD__ /* the device works in both threads there, and writes what the other one polls, as a NIC does */
		cmocka_unit_test(loops),
#endif
		cmocka_unit_test(places),
	};

	if (softdev_present() && getenv("SOFTDEV_MANUAL"))
		return cmocka_run_group_tests_name("events, stepped", by_hand, dev_open, dev_close);
	return cmocka_run_group_tests_name("events", tests, dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1");
}
