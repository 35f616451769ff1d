/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * events.c: sleeping on a completion queue: on any device, and on the stepped one every place at which a completion can come between
 * looking, arming, looking again and sleeping. Whoever sleeps for ever fails: the sleep has an end.
 */
#include "common.h"
#include <endian.h>

#define SLEEP_MS 60000
#define SLOTS 64u

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

static void pair_make(struct end *a, struct end *b, struct ibv_comp_channel *ch, bool moderated)
{
	struct opt opt = usual;

	opt.bytes = 1 << 16;
	opt.cqe = 1023; /* more than can be outstanding, all signaled */
	end_make(a, &opt);
	opt.channel = ch;
	end_make(b, &opt);
	if (moderated) {
		struct ibv_modify_cq_attr moderate = {IBV_CQ_ATTR_MODERATE, {8, 50}};

		must(ibv_modify_cq(b->rcq, &moderate));
	}
	ends_connect(a, b);
	end_take(a, INLAY_UAR_DOORBELL);
	end_take(b, INLAY_UAR_DOORBELL);
	for (uint32_t i = 0; i < SLOTS; i++) {
		struct ibv_sge sge = sge_of(b, 64 * i, 64);

		must(inlay_post_recv(&b->rq, &sge, 1));
	}
	inlay_rq_ring(&b->rq);
}

/* A message that the CQ shows: its number must be the next one */
static void consume(struct end *b, uint32_t n)
{
	const struct mlx5_cqe64 *cqe = made(inlay_cq_peek(&b->rxcq));
	struct ibv_sge sge = sge_of(b, 64 * (n % SLOTS), 64);
	uint32_t word;

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

/*
 * A message that comes before the arming, or after it, wakes the receiver; armed for solicited ones, one that is not does not. Moderated,
 * events may come late, but they come. Each event that was taken has been counted: the next arming is a new one
 */
static void sleeps(UNUSED void **state)
{
	uint32_t n, got, turn;

	for (turn = 0; turn < 2; turn++) {
		struct ibv_comp_channel *ch = made(ibv_create_comp_channel(dev.ctx));
		struct end a, b;

		pair_make(&a, &b, ch, turn);
		for (n = got = 0; n < 300; n++) {
			const bool before = n & 1, solicited = n & 2;

			if (!before)
				must(inlay_cq_arm(&b.rxcq, solicited));
			if (!before && solicited)
				send_word(&a, n++, INLAY_SIGNALED);
			send_word(&a, n, INLAY_SIGNALED | INLAY_SOLICITED);
			if (before) {
				cqe_wait(&b.rxcq);
				must(inlay_cq_arm(&b.rxcq, solicited));
			}
			assert_ptr_equal(take(ch, SLEEP_MS), b.rcq);
			inlay_cq_event(&b.rxcq);
			for (; got <= n; got++) {
				cqe_wait(&b.rxcq);
				consume(&b, got);
			}
			while (inlay_sq_pending(&a.sq))
				sent(&a);
			assert_null(take(ch, 0));
		}
		end_free(&a);
		end_free(&b);
		must(ibv_destroy_comp_channel(ch));
	}
}

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

/* Up to two completions at each place, solicited or not, in all combinations: no event but where one is due, and then one */
static void places(UNUSED void **state)
{
	struct end a, b;
	uint32_t mix, n = 0, got = 0, races = 0;
	struct ibv_comp_channel *ch = made(ibv_create_comp_channel(dev.ctx));

	pair_make(&a, &b, ch, false);
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
	const struct CMUnitTest stepping[] = {cmocka_unit_test(places)}, free_running[] = {cmocka_unit_test(sleeps)};

	if (softdev_present() && getenv("SOFTDEV_MANUAL"))
		return cmocka_run_group_tests(stepping, dev_open, dev_close);
	return cmocka_run_group_tests(free_running, dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1");
}
