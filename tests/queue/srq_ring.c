/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * srq_ring.c: a shared receive queue in plain memory against a model of both sides. The device takes what the record shows, by the links
 * or in a circle, and completes it in any order; the caller posts, recycles, replaces and releases at random. Each buffer that the device
 * finds is one that the queue was given and has not given back: never a stale one.
 */
#include "common.h"

#define MOST 300u
#define STRIDE 64u

static uint8_t ring[MOST * STRIDE] __attribute__((aligned(64)));
static uint32_t record;
static struct inlay_srq srq;
static bool cyclic;
static uint32_t entries;

/* Buffers are numbered from 1. What the queue holds, and what of that the device has taken */
static bool held[1u << 16], taken[1u << 16];
static uint32_t number, holds;

/* The device */
static uint32_t at, shown, seen, out[MOST], buffer[MOST], num_out;

static uint64_t word(uint32_t entry, uint32_t offset)
{
	uint64_t value;

	memcpy(&value, ring + entry * STRIDE + offset, sizeof(value));
	return value;
}

static void device_takes(void)
{
	uint32_t b = (uint32_t)word(at, 8);

	assert_int_equal(inlay_from_be64(word(at, 24)), b); /* the address is the buffer's, too */
	assert_true(held[b] && !taken[b]);
	taken[b] = true;
	out[num_out] = at;
	buffer[num_out++] = b;
	seen++;
	at = cyclic ? (at + 1) % entries : inlay_from_be16(*(uint16_t *)(void *)(ring + at * STRIDE + 2));
}

static struct ibv_sge next_buffer(void)
{
	struct ibv_sge sge = {++number, 1, 2};

	return sge;
}

static void gains(uint32_t b)
{
	held[b] = true;
	taken[b] = false;
	holds++;
}

static void loses(uint32_t b)
{
	held[b] = false;
	holds--;
}

/* One of those that the device has completes */
static void completes(void)
{
	uint32_t i = rnd_below(3) ? 0 : rnd_below(num_out), entry = out[i], b = buffer[i];
	struct mlx5_cqe64 cqe = {};
	struct ibv_sge sge;

	num_out--;
	memmove(out + i, out + i + 1, (num_out - i) * sizeof(out[0]));
	memmove(buffer + i, buffer + i + 1, (num_out - i) * sizeof(buffer[0]));
	cqe.op_own = (uint8_t)((rnd_below(2) ? MLX5_CQE_RESP_SEND : MLX5_CQE_RESP_ERR) << 4);
	cqe.wqe_counter = inlay_to_be16((uint16_t)(cyclic ? entry + entries * rnd_below(65536 / entries) : entry));
	assert_int_equal(inlay_srq_user(&srq, inlay_cqe_wqe_counter(&cqe)), b);
	switch (rnd_below(4)) {
	case 0:
		assert_int_equal(inlay_srq_release(&srq, &cqe), 0);
		loses(b);
		assert_int_equal(inlay_srq_release(&srq, &cqe), -EPROTO);
		assert_int_equal(inlay_srq_recycle(&srq, &cqe), -EPROTO);
		break;
	case 1:
		sge = next_buffer();
		assert_int_equal(inlay_srq_replace(&srq, &cqe, &sge, 4, 0), -EINVAL);
		assert_int_equal(inlay_srq_replace(&srq, &cqe, &sge, 1, number), 0);
		loses(b);
		gains(number);
		break;
	default:
		assert_int_equal(inlay_srq_recycle(&srq, &cqe), 0);
		taken[b] = false;
	}
}

static void posts(void)
{
	volatile uint32_t one = 1;
	struct ibv_sge sge = next_buffer();
	int err = rnd_below(2) ? inlay_post_srq_recv(&srq, &sge, 1, number) : inlay_post_srq_recv(&srq, &sge, one, number);

	if (!err)
		gains(number);
	else
		assert_true(err == -EAGAIN && (cyclic || holds == entries));
}

static void at_random(uint32_t steps)
{
	while (steps--) {
		if (rnd_below(3) && (uint16_t)(shown - seen))
			device_takes();
		else if (num_out && rnd_below(3))
			completes();
		else
			posts();
		assert_int_equal(holds + inlay_srq_room(&srq), entries);
		inlay_srq_ring(&srq);
		shown = inlay_from_be16((uint16_t)(record >> 16));
		/* All that a list holds is shown, but for one when it is full */
		if (!cyclic)
			assert_int_equal((uint16_t)(shown - seen) + num_out, holds == entries ? holds - 1 : holds);
		assert_true((uint16_t)(shown - seen) + num_out <= holds);
		/* A buffer waits for its predecessors only */
		assert_true(!cyclic || ring[shown % entries * STRIDE + INLAY_SRQ_STATE_] != INLAY_SRQ_FULL_);
	}
}

static void begin(bool circle, uint32_t n)
{
	memset(held, 0, sizeof(held));
	memset(taken, 0, sizeof(taken));
	number = holds = at = shown = seen = num_out = 0;
	cyclic = circle;
	entries = n;
	must(circle ? inlay_srq_init_cyclic(&srq, ring, n, STRIDE, &record) : inlay_srq_init(&srq, ring, n, STRIDE, &record));
}

TEST(list_and_circle)
{
	for (uint32_t i = 0; i < 120; i++) {
		begin(i >= 60, i >= 60 ? 2u << i % 8 : i < 20 ? 2 + i : 2 + rnd_below(MOST - 1));
		at_random(2000);
	}
}

/* What no device writes */
TEST(refused)
{
	struct mlx5_cqe64 cqe = {};
	struct ibv_sge sge = {1, 1, 1};
	uint32_t i;

	begin(false, 8);
	for (i = 0; i < 8; i++)
		must(inlay_post_srq_recv(&srq, &sge, 1, i));
	assert_int_equal(inlay_post_srq_recv(&srq, &sge, 1, i), -EAGAIN);
	cqe.op_own = MLX5_CQE_RESP_SEND << 4;
	cqe.wqe_counter = inlay_to_be16(7); /* held: the device does not know it */
	assert_int_equal(inlay_srq_recycle(&srq, &cqe), -EPROTO);
	cqe.wqe_counter = inlay_to_be16(8);
	assert_int_equal(inlay_srq_recycle(&srq, &cqe), -EPROTO);
	assert_int_equal(inlay_srq_release(&srq, &cqe), -EPROTO);
	assert_int_equal(inlay_srq_replace(&srq, &cqe, &sge, 1, 0), -EPROTO);
	assert_int_equal(inlay_srq_user(&srq, 8), 0);
	cqe.wqe_counter = inlay_to_be16(3);
	cqe.op_own = MLX5_CQE_REQ << 4;
	assert_int_equal(inlay_srq_recycle(&srq, &cqe), -EPROTO);
	assert_int_equal(inlay_srq_replace(&srq, &cqe, &sge, 1, 0), -EPROTO);
	assert_int_equal(inlay_srq_release(&srq, &cqe), -EPROTO);
	assert_int_equal(inlay_srq_room(&srq), 0);
	assert_int_equal(inlay_srq_init_cyclic(&srq, ring, 12, STRIDE, &record), -EINVAL);
}

int main(void)
{
	return run_all(NULL, NULL);
}
