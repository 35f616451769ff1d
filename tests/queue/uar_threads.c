/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * uar_threads.c: several threads on one register under its lock, on plain memory: made to be built with -fsanitize=thread too, which sees
 * whatever the lock does not cover. Takes no device.
 *
 * Each thread owns a send queue. Now and then they all stop: what the register then holds is, in each half, one whole WQE of one queue.
 */
#include "common.h"
#include <endian.h>
#include <pthread.h>

#define THREADS 3
#define REG 256
#define BBS 64

#define MEETINGS 4000

struct poster { struct inlay_sq sq; uint32_t dbrec[2]; uint8_t *buf; uint32_t id; };

static uint8_t reg[2 * REG] __attribute__((aligned(2 * REG)));
static struct inlay_uar uar;
static struct poster posters[THREADS];
static uint32_t met;  /* arrivals at meetings */
static uint32_t bad;  /* what went wrong in the threads, where cmocka cannot fail */

static void posters_make(uint32_t size)
{
	memset(reg, 0xee, sizeof(reg));
	must(inlay_uar_init(&uar, reg, size, INLAY_UAR_LOCKED));
	for (uint32_t i = 0; i < THREADS; i++) {
		struct poster *p = &posters[i];

		memset(p, 0, sizeof(*p));
		p->id = i;
		p->buf = (uint8_t *)pages(BBS * 64);
		must(inlay_sq_init(&p->sq, p->buf, BBS, p->dbrec, 0x100 + i, 63, &uar));
	}
}

/* Is it, as far as it goes, a WQE of one of the queues, with its own payload and no other's? */
static bool half_is_whole(const uint8_t *half)
{
	uint32_t id = ((uint32_t)half[4] << 16 | half[5] << 8 | half[6]) - 0x100, ds = half[7], len, i;

	len = ((uint32_t)half[32] << 24 | half[33] << 16 | half[34] << 8 | half[35]) & 0x7fffffff;
	if (id >= THREADS || half[3] != MLX5_OPCODE_RDMA_WRITE || half[23] != id || len > 200 || ds != 2 + (len + 4 + 15) / 16)
		return false;
	for (i = 0; i < len; i++)
		if (half[36 + i] != half[36] || half[36 + i] >> 6 != id)
			return false;
	return true;
}

static void good(bool ok)
{
	if (!ok)
		__atomic_fetch_add(&bad, 1, __ATOMIC_RELAXED);
}

/* All wait for all. The waiting is busy, so that they go on at the same time */
static void meet(void)
{
	uint32_t turn = __atomic_load_n(&met, __ATOMIC_ACQUIRE) / THREADS, spin = 0;

	__atomic_fetch_add(&met, 1, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(&met, __ATOMIC_ACQUIRE) / THREADS == turn)
		if (++spin > 2000)
			sched_yield();
}

/* A WQE whose payload tells the queue and the post, and whose remote address tells the queue */
static void post(struct poster *p, uint32_t i, uint32_t len)
{
	uint8_t data[200];

	memset(data, (int)(p->id << 6 | (i & 63)), len);
	good(inlay_post_write_inline(&p->sq, p->id, i, data, len, INLAY_SIGNALED) == 0);
}

/* The completion of its last WQE, which started there */
static void done(struct poster *p, uint32_t last)
{
	struct mlx5_cqe64 cqe = {.sop_drop_qpn = htobe32(0x100 + p->id), .wqe_counter = htobe16((uint16_t)last)};

	good(inlay_sq_release(&p->sq, &cqe) > 0);
}

/* In each meeting posts, doorbells for several, then two copies: the last writes are whole copies in both halves. One looks */
static void *posting(void *arg)
{
	struct poster *p = (struct poster *)arg;
	uint32_t m, i, last = 0;

	for (m = 0; m < MEETINGS; m++) {
		meet();
		for (i = 0; i < m % 8; i++) {
			post(p, i, 1 + (i * 31 + p->id * 7 + m) % 200);
			if ((i + m) % 5 == 0)
				good(inlay_post(&p->sq, MLX5_OPCODE_NOP, NULL, 0) == 0);
			inlay_sq_ring(&p->sq);
		}
		for (i = 0; i < 2; i++) {
			last = p->sq.pi;
			post(p, i + m, 150 + (m + p->id) % 50);
			inlay_sq_ring(&p->sq);
		}
		done(p, last);
		meet();
		if (p->id == m % THREADS && uar.size)
			good(half_is_whole(reg) && half_is_whole(reg + REG));
	}
	return NULL;
}

/* On a page with BlueFlame; on one without: nothing but whole doorbells, under the same lock */
TEST(locked)
{
	uint32_t size, i, id;
	pthread_t t[THREADS];

	for (size = 0; size <= REG; size += REG) {
		posters_make(size);
		met = bad = 0;
		for (i = 0; i < THREADS; i++)
			must(pthread_create(&t[i], NULL, posting, &posters[i]));
		for (i = 0; i < THREADS; i++)
			must(pthread_join(t[i], NULL));
		assert_int_equal(bad, 0);
		id = ((uint32_t)reg[4] << 16 | reg[5] << 8 | reg[6]) - 0x100;
		assert_in_range(id, 0, THREADS - 1);
		/* The last word on the register is the last WQE of the queue that it names */
		assert_true(size || (!memcmp(reg, posters[id].sq.last, 8) && all_bytes(reg + 8, sizeof(reg) - 8, 0xee)));
		for (i = 0; i < THREADS; i++) {
			assert_int_equal(posters[i].dbrec[1], htobe32(posters[i].sq.pi & 0xffff));
			assert_int_equal(inlay_sq_pending(&posters[i].sq), 0);
			inlay_sq_fini(&posters[i].sq);
			free(posters[i].buf);
		}
	}
}

int main(void)
{
	return run_all(NULL, NULL);
}
