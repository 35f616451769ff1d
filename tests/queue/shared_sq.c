/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shared_sq.c: several threads post to one send queue, on plain memory, made for -fsanitize=thread too: every WQE is whole and in its place
 * when it is published, each thread's in their order, and no ring is lost. Needs no device.
 */
#include "rig.h"
#include <endian.h>
#include <pthread.h>

#define THREADS 3
#define BBS 64
#define REG 256

static struct {
	struct inlay_shared_sq shared;
	uint8_t ring[BBS * 64] __attribute__((aligned(64)));
	uint8_t reg[2 * REG] __attribute__((aligned(2 * REG)));
	uint32_t dbrec[2];
	struct inlay_uar uar;
} raw;

static void raw_open(uint32_t bbs, uint32_t pi)
{
	struct inlay_sq sq;

	memset(&raw, 0, sizeof(raw));
	must(inlay_uar_init(&raw.uar, raw.reg, REG, INLAY_UAR_SERIAL));
	must(inlay_sq_init(&sq, raw.ring, bbs, raw.dbrec, 0x1234, 63, &raw.uar));
	sq.pi = pi;
	inlay_shared_sq_init(&raw.shared, &sq);
}

static int released(uint32_t counter)
{
	struct mlx5_cqe64 cqe;

	memset(&cqe, 0, sizeof(cqe));
	cqe.wqe_counter = htobe16((uint16_t)counter);
	cqe.sop_drop_qpn = htobe32(0x1234);
	cqe.op_own = MLX5_CQE_REQ << 4;
	return inlay_shared_sq_release(&raw.shared, &cqe);
}

/* One thread, by hand: order, filling up, limits, indices that come round */
static void by_hand(void **state)
{
	static const uint8_t payload[256] = {1};
	const uint32_t starts[] = {0, 65530, 0xfffffffa};
	struct inlay_sq a, b, c;
	unsigned i;

	(void)state;
	for (i = 0; i < ARRAY(starts); i++) {
		uint32_t at = starts[i];
		const uint8_t *last;
		uint8_t *ds, was;

		raw_open(8, at);
		assert_int_equal(inlay_shared_sq_reserve(&raw.shared, 9, &a), -E2BIG);
		must(inlay_shared_sq_reserve(&raw.shared, 2, &a));
		must(inlay_shared_sq_reserve(&raw.shared, 5, &b));
		assert_int_equal(inlay_shared_sq_reserve(&raw.shared, 2, &c), -EAGAIN);
		must(inlay_shared_sq_reserve(&raw.shared, 1, &c));
		assert_int_equal(inlay_shared_sq_pending(&raw.shared), 8);
		/* Filled in any order; a part has room for what was reserved, and no more */
		must(inlay_post(&c, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED));
		assert_int_equal(inlay_post(&c, MLX5_OPCODE_NOP, NULL, 0), -EAGAIN);
		must(inlay_post_send_inline(&b, payload, 200, 0)); /* four WQEBBs */
		assert_int_equal(inlay_sq_room(&b), 1);
		must(inlay_post(&a, MLX5_OPCODE_NOP, NULL, 0));
		inlay_shared_sq_ring(&raw.shared);
		assert_int_equal(raw.dbrec[MLX5_SND_DBR], 0);
		assert_int_equal(released(at), -EPROTO);
		inlay_shared_sq_publish(&raw.shared, &a);
		inlay_shared_sq_publish(&raw.shared, &b);
		inlay_shared_sq_ring(&raw.shared);
		assert_int_equal(be32toh(raw.dbrec[MLX5_SND_DBR]), (at + 7) & 0xffff);
		/* b's last WQEBB is a NOP: it is the doorbell */
		last = inlay_sq_wqe(&raw.shared.sq, at + 6);
		assert_true(last[3] == MLX5_OPCODE_NOP && last[7] == 1);
		assert_memory_equal(raw.reg, last, 8);
		inlay_shared_sq_publish(&raw.shared, &c);
		inlay_shared_sq_ring(&raw.shared);
		inlay_shared_sq_ring(&raw.shared);
		assert_memory_equal(raw.reg + REG, inlay_sq_wqe(&raw.shared.sq, at + 7), 8);
		assert_int_equal(be32toh(raw.dbrec[MLX5_SND_DBR]), (at + 8) & 0xffff);
		/* What is not outstanding, or the middle of a WQE, is refused */
		assert_int_equal(released(at + 8), -EPROTO);
		assert_int_equal(released(at - 1), -EPROTO);
		assert_int_equal(released(at + 3), -EPROTO);
		/* So is a WQE that somebody has overwritten: its length is 0 */
		ds = inlay_sq_wqe(&raw.shared.sq, at) + 7;
		was = *ds;
		*ds = 0;
		assert_int_equal(released(at + 2), -EPROTO);
		*ds = was;
		assert_int_equal(released(at + 2), 6);
		assert_int_equal(released(at + 2), -EPROTO);
		must(inlay_shared_sq_reserve(&raw.shared, 6, &a));
		assert_int_equal(released(at + 7), 2);
		inlay_shared_sq_publish(&raw.shared, &a);
		assert_int_equal(released(at + 13), 6);
		assert_int_equal(inlay_shared_sq_pending(&raw.shared), 0);
		inlay_sq_fini(&raw.shared.sq);
		assert_int_equal(raw.uar.queues, 0);
	}
}

/* A part is the queue, but for its place in the ring: nothing in it depends on what was there before */
static void whole(void **state)
{
	struct inlay_sq part, want;

	(void)state;
	raw_open(8, 6);
	memset(&part, 0xee, sizeof(part));
	must(inlay_shared_sq_reserve(&raw.shared, 3, &part));
	want = raw.shared.sq;
	want.pending = 5;
	want.reserved = 6;
	/* Not the padding after type and at the end, which may be copied or not */
	assert_memory_equal(&part, &want, offsetof(struct inlay_sq, type) + sizeof(want.type));
	assert_memory_equal(&part.cq, &want.cq, offsetof(struct inlay_sq, multi_packet) + 1 - offsetof(struct inlay_sq, cq));
}

static struct inlay_sq later;
static uint32_t publishing;

static void *publisher(void *arg)
{
	__atomic_store_n(&publishing, 1, __ATOMIC_RELEASE);
	inlay_shared_sq_publish(&raw.shared, &later);
	inlay_shared_sq_ring(&raw.shared);
	return arg;
}

/* A part that is filled first waits for those before it */
static void in_order(void **state)
{
	struct inlay_sq first;
	pthread_t thread;
	uint32_t i;

	(void)state;
	raw_open(BBS, 0);
	publishing = 0;
	must(inlay_shared_sq_reserve(&raw.shared, 1, &first));
	must(inlay_shared_sq_reserve(&raw.shared, 2, &later));
	must(inlay_post(&later, MLX5_OPCODE_NOP, NULL, 0));
	assert_int_equal(pthread_create(&thread, NULL, publisher, NULL), 0);
	while (!__atomic_load_n(&publishing, __ATOMIC_ACQUIRE))
		sched_yield();
	for (i = 0; i < 1000; i++) {
		assert_int_equal(__atomic_load_n(&raw.shared.published, __ATOMIC_ACQUIRE), 0);
		sched_yield();
	}
	inlay_shared_sq_publish(&raw.shared, &first);
	pthread_join(thread, NULL);
	assert_int_equal(__atomic_load_n(&raw.shared.rung, __ATOMIC_ACQUIRE), 3);
}

#define PARTS 5u                                        /* of a thread between two pauses */
#define ROUNDS 4000u

static uint32_t go, arrived, bad;
static uint32_t seen[THREADS];  /* of each thread's WQEs, in order */

/* Every WQE says whose it is, and which */
static void *producer(void *arg)
{
	uint32_t id = (uint32_t)(uintptr_t)arg, number = 0, round, i, k, n;
	struct inlay_sq part;

	for (round = 1;; round++) {
		while (__atomic_load_n(&go, __ATOMIC_ACQUIRE) < round)
			sched_yield();
		if (__atomic_load_n(&go, __ATOMIC_ACQUIRE) == ~0u)
			return NULL;
		for (i = 0; i < PARTS; i++) {
			n = 1 + (i + id) % 5;
			while (inlay_shared_sq_reserve(&raw.shared, n, &part))
				sched_yield();
			for (k = 0; k < n; number++) {
				uint8_t text[60];
				uint32_t len = number % 3 ? 8 : 60, bbs = number % 3 ? 1 : 2;

				if (k + bbs > n)
					break;
				memset(text, (int)number, sizeof(text));
				memcpy(text, &id, 4);
				memcpy(text + 4, &number, 4);
				if (inlay_post_send_inline(&part, text, len, 0))
					__atomic_store_n(&bad, 1, __ATOMIC_RELAXED);
				k += bbs;
			}
			inlay_shared_sq_publish(&raw.shared, &part);
			inlay_shared_sq_ring(&raw.shared);
		}
		__atomic_fetch_add(&arrived, 1, __ATOMIC_ACQ_REL);
	}
}

/* Looks at a WQE that was rung for, in the device's place */
static uint32_t look(uint32_t index)
{
	uint32_t head[2], id, number, at, len;
	uint8_t wqe[128];

	memcpy(wqe, raw.ring + index % BBS * 64, 64);
	memcpy(head, wqe, sizeof(head));
	if ((be32toh(head[0]) >> 8 & 0xffff) != (index & 0xffff) || be32toh(head[1]) >> 8 != 0x1234)
		bad = 2;
	if ((be32toh(head[0]) & 0xff) == MLX5_OPCODE_NOP)
		return 1;
	memcpy(&id, wqe + 20, 4);
	memcpy(&number, wqe + 24, 4);
	memcpy(&len, wqe + 16, 4);
	len = be32toh(len) & 0x7fffffff;
	if (id >= THREADS || number != seen[id] || len != (number % 3 ? 8 : 60)) {
		bad = 3;
		return 1;
	}
	seen[id]++;
	/* Only now: what follows a short WQE may be another's, and not published */
	if (len > 44)
		memcpy(wqe + 64, raw.ring + (index + 1) % BBS * 64, 64);
	for (at = 28; at < 20 + len; at++)
		if (wqe[at] != (uint8_t)number)
			bad = 4;
	return number % 3 ? 1 : 2;
}

static void threads(void **state)
{
	uint32_t i, round, at = 0, rounds = ROUNDS;
	pthread_t thread[THREADS];

	(void)state;
	raw_open(BBS, 0);
	memset(seen, 0, sizeof(seen));
	go = arrived = bad = 0;
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, producer, (void *)(uintptr_t)i), 0);
	for (round = 1; round <= rounds; round++) {
		__atomic_store_n(&go, round, __ATOMIC_RELEASE);
		while (!bad && (__atomic_load_n(&arrived, __ATOMIC_ACQUIRE) < THREADS * round || inlay_shared_sq_pending(&raw.shared))) {
			bool all = __atomic_load_n(&arrived, __ATOMIC_ACQUIRE) == THREADS * round;
			uint32_t rung = __atomic_load_n(&raw.shared.rung, __ATOMIC_ACQUIRE), last = at;

			if (at == rung) {
				/* All have rung, and something was not rung for */
				if (all && inlay_shared_sq_pending(&raw.shared))
					bad = 7;
				sched_yield();
				continue;
			}
			while ((int32_t)(rung - at) > 0) {
				last = at;
				at += look(at);
			}
			if (at != rung || released(last) <= 0)
				bad = 5;
		}
		/* All stand still: each published WQE was rung for, by whomever */
		if (bad || be32toh(raw.dbrec[MLX5_SND_DBR]) != (at & 0xffff) || raw.shared.reserved != at)
			break;
	}
	__atomic_store_n(&go, ~0u, __ATOMIC_RELEASE);
	for (i = 0; i < THREADS && !bad; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(bad, 0);
	assert_int_equal(round, rounds + 1);
	for (i = 0; i < THREADS; i++)
		assert_true(seen[i] > rounds * PARTS);
	print_message("# %u WQEBBs\n", at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_hand),
		cmocka_unit_test(whole),
		cmocka_unit_test(in_order),
		cmocka_unit_test(threads),
	};

	return cmocka_run_group_tests_name("shared send queue", tests, NULL, NULL);
}
