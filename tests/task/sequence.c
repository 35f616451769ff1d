/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sequence.c: what comes before what in command tasks, and numbers that tell: counters beyond 2^31 and 2^32, generations, answers
 * that come before their command's send is done, the receive that an answer is the credit for.
 */
#include "scene.h"
#include <sys/mman.h>

/* An answer to this command, good in every way, which the worker's handlers know nothing of */
static void forge(const struct inlay_task *t)
{
	uint8_t msg[INLAY_TASK_HEAD];
	struct inlay_task_message a;

	memset(&a, 0, sizeof(a));
	a.kind = INLAY_TASK_ANSWER;
	a.ids.context = t->ids.context;
	a.ids.plugin = t->ids.plugin;
	a.ids.destination = t->ids.destination;
	message_write(msg, &a);
	must(inlay_post_send_inline(&line->conn.link.sq, msg, sizeof(msg), INLAY_SIGNALED));
	inlay_sq_ring(&line->conn.link.sq);
}

/* As if that many WQEBBs had been posted and done; the device sees 16 bits of the count */
static void age(struct inlay_sq *sq, uint32_t wqebbs)
{
	assert_int_equal(wqebbs & 0xffff, 0);
	sq->pi += wqebbs;
}

/* Round trips, until both sides have had completions of sends */
static void lap(struct inlay_task *t)
{
	uint32_t n = line->host.link.sq.mask > line->conn.link.sq.mask ? line->host.link.sq.mask : line->conn.link.sq.mask, i;

	must(inlay_task_set_plugin(t, ECHO));
	for (i = 0; i <= n / 2; i++) {
		payload(t, 8, i);
		must(inlay_task_submit(t, INLAY_RING));
		until_done(t);
		good(t, 8, i);
	}
}

/* NOPs until the low half of a queue's counter is as that of `to` */
static void post_nops(struct inlay_sq *sq, uint32_t to)
{
	while ((sq->pi ^ to) & 0xffff)
		if (inlay_post(sq, MLX5_OPCODE_NOP, NULL, sq->pi % 16 == 15 ? INLAY_SIGNALED : 0)) {
			inlay_sq_ring(sq);
			turn();
		}
	inlay_sq_ring(sq);
	until(inlay_sq_room(sq) > sq->mask / 2);
}

/* Brings a queue's counter to `to`, in steps that are not too long */
static void bring_to(struct inlay_sq *sq, uint32_t to, struct inlay_task *driver)
{
	post_nops(sq, to);
	while (to - sq->pi > 1u << 30) {
		age(sq, 1u << 30);
		lap(driver);
		post_nops(sq, to);
	}
	age(sq, to - sq->pi);
}

/* Of all ways to send, and to end, while the counters of both sides come round */
TEST(counters_wrap)
{
	static const uint32_t points[] = {0x80000000u - 0x100, 0u - 0x100};
	struct inlay_task *t[TASKS];
	uint32_t p, i, round, seed = 0;

	plain();
	usual_scene(1, 4);
	for (i = 0; i < TASKS; i++)
		t[i] = task(ECHO);
	must(inlay_task_set_payload(t[4], out));
	must(inlay_task_set_response(t[4], in));
	for (p = 0; p < ARRAY(points); p++) {
		bring_to(&line->host.link.sq, points[p], t[0]);
		bring_to(&line->conn.link.sq, points[p], t[0]);
		/* The one that was brought first has gone on a little */
		assert_true(points[p] - line->host.link.sq.pi < 0x100 || line->host.link.sq.pi - points[p] < 0x8000);
		must(inlay_task_set_plugin(t[4], BACK));
		for (round = 0; round < 60; round++) {
			static const uint32_t lengths[TASKS] = {8, 60, 96, 2000, LARGE, 30, 8, 3};

			completed = num_kept = 0;
			must(inlay_task_set_plugin(t[6], KEEP));
			must(inlay_task_set_plugin(t[7], KEEP));
			for (i = 0; i < TASKS; i++, seed++) {
				if (i == 4)
					fill(outside.at, LARGE, round);
				else
					payload(t[i], lengths[i], round + i);
				must(inlay_task_submit(t[i], 0));
				if (i == 5 && round % 3)
					must(inlay_task_cancel(t[i], 0));
				if (i % 3 == 2)
					inlay_sq_ring(&line->host.link.sq);
			}
			inlay_sq_ring(&line->host.link.sq);
			until(num_kept == 2);
			must(inlay_task_cancel(t[6], 0));
			until_done(t[6]);
			assert_int_equal(inlay_task_status(t[6]), -ECANCELED);
			while (num_kept) {
				num_kept--;
				must(inlay_task_cmd_answer(kept[num_kept], 0, kept[num_kept]->payload, kept[num_kept]->payload_len));
			}
			until(completed == TASKS && !line->host.outstanding);
			for (i = 0; i < TASKS; i++) {
				if (i == 4)
					good(t[i], LARGE, round);
				else if (i == 5 && round % 3)
					assert_int_equal(inlay_task_status(t[i]), -ECANCELED);
				else if (i != 6)
					good(t[i], lengths[i], round + i);
				until(t[i]->state == INLAY_TASK_IDLE);
			}
		}
		assert_true(line->host.link.sq.pi - points[p] < 0x10000 && line->host.link.sq.pi - points[p] > 0x100);
	}
	assert_int_equal(line->host.strays, 0);
	assert_int_equal(line->conn.strays + desk->worker.strays, 0);
	scene_free();
}

/* No two generations of a task that are near each other differ by one bit, also where they wrap */
TEST(generations_far_apart)
{
	uint32_t last[64], n, i;
	struct inlay_task *t;

	plain();
	usual_scene(1, 4);
	t = task(ECHO);
	for (n = 0; n < 400; n++) {
		uint32_t generation = (uint32_t)(t->ids.context >> 32);

		assert_int_equal((uint32_t)(t->ids.context), (uint32_t)t->ids.context);
		for (i = 0; i < 64 && i < n; i++)
			if (__builtin_popcount(generation ^ last[(n - 1 - i) % 64]) < 2)
				fail_msg("after %u commands the generation is %08x; %u before it was %08x", n, generation, i + 1,
					 last[(n - 1 - i) % 64]);
		last[n % 64] = generation;
		answered(t, 0, 0);
	}
	must(inlay_task_release(t));
	scene_free();
}

/* Before the command is sent at all: the caller's memory is not given back before the device has done with it */
TEST(answer_before_the_send_is_done)
{
	struct inlay_inventory *near = NULL;
	struct inlay_buf *piece = NULL;
	struct inlay_task *t;

	if (!stepped())
		return; /* who is first cannot be chosen */
	for (uint32_t way = 0; way < 4; way++) {
		plain();
		usual_scene(1, 4);
		t = task(ECHO);
		must(inlay_inventory_create(line->near_memory, inlay_inventory_size(NEAR), NEAR, &near));
		must(inlay_inventory_start(near));
		must(inlay_inventory_get_by_data(near, &outside.map, outside.at + 2 * LARGE, 500, &piece));
		fill(outside.at + 2 * LARGE, 500, way);
		switch (way) {
		case 0: must(inlay_task_set_payload(t, piece)); break;     /* the caller's */
		case 1: payload(t, 100, 1); break;                         /* its own, and the caller's behind it */
		case 2: payload(t, 0, 1); break;                           /* the same with nothing of its own */
		default: /* and with a response buffer */
			payload(t, 1, 1);
			must(inlay_task_set_response(t, in));
		}
		if (way)
			must(inlay_buf_chain_list(inlay_task_payload(t), piece));
		must(inlay_task_submit(t, INLAY_RING));
		forge(t);
		assert_int_equal(softdev_execute(line->conn.link.qp->qp_num, 1), 1);
		softdev_complete(0, 100);
		inlay_task_host_progress(&line->host, 16);
		inlay_task_host_progress(&line->host, 16);
		assert_int_equal(line->host.strays, 0);
		if (completed)
			fail_msg("way %u: its send is not done, and it is completed with status %d", way, inlay_task_status(t));
		assert_int_equal(inlay_task_status(t), -EINPROGRESS);
		assert_int_equal(t->state, INLAY_TASK_ENDING);
		until(completed == 1);
		assert_int_equal(inlay_task_status(t), 0);
		assert_int_equal(t->response_len, 0);
		/* The worker has the command, as it was; its own answer is nobody's */
		until(line->host.strays == 1);
		assert_int_equal(line->conn.taken, 1);
		if (way)
			must(inlay_buf_unchain_list(inlay_task_payload(t), piece));
		must(inlay_task_set_payload(t, NULL));
		must(inlay_task_release(t));
		must(inlay_buf_dec_refcount(piece, NULL));
		must(inlay_inventory_destroy(near));
		scene_free();
	}
}

/* To a command that the device was not even shown: it is answered, and what the worker says of it later is nobody's */
TEST(answer_before_the_doorbell)
{
	struct inlay_task *t;

	plain();
	usual_scene(1, 4);
	t = task(ECHO);
	for (uint32_t way = 0; way < 4; way++) {
		payload(t, way % 2 ? 2000 : 20, way);
		must(inlay_task_submit(t, 0));
		forge(t);
		until_done(t);
		good(t, 0, 0);
		inlay_sq_ring(&line->host.link.sq);
		until(line->host.strays == way + 1);
		assert_int_equal(completed, 2 * way + 1);
		payload(t, way % 2 ? 2000 : 20, way);
		answered(t, way % 2 ? 2000 : 20, way);
		assert_int_equal(line->host.outstanding, 0);
	}
	must(inlay_task_release(t));
	scene_free();
}

static uint8_t *watched_page;
static volatile uint16_t *watched_record;
static volatile uint32_t watched_stores, watched_value;

static void watch_store(UNUSED int sig)
{
	watched_value = *watched_record;
	watched_stores = watched_stores + 1;
	if (mprotect(watched_page, 4096, PROT_READ | PROT_WRITE))
		abort();
}

/* An answer is the credit for one more command: when the register is told of it, the receive for that command is in the record already */
TEST(receive_before_the_answer)
{
	struct sigaction act = {}, old;
	struct inlay_rq *rq;
	struct inlay_task *t;

	if (!stepped())
		return;
	plain();
	usual_scene(1, 4);
	rq = &line->conn.link.rq;
	watched_page = (uint8_t *)((uintptr_t)line->conn.link.sq.uar->reg & ~(uintptr_t)4095);
	watched_record = rq->dbrec;
	act.sa_handler = watch_store;
	must(sigaction(SIGSEGV, &act, &old));
	/* Inline of one WQEBB, of more, gathered */
	for (uint32_t len = 4; len < 4000; len *= 31) {
		t = task(ECHO);
		payload(t, len, len);
		must(inlay_task_submit(t, INLAY_RING));
		step();
		watched_stores = 0;
		must(mprotect(watched_page, 4096, PROT_READ));
		assert_int_equal(inlay_task_worker_progress(&desk->worker, 16), 1);
		must(mprotect(watched_page, 4096, PROT_READ | PROT_WRITE));
		assert_int_equal(watched_stores, 1);
		assert_int_equal(inlay_from_be16((uint16_t)watched_value), (uint16_t)inlay_rq_index(rq));
		until(inlay_task_status(t) != -EINPROGRESS);
		must(inlay_task_status(t));
		must(inlay_task_release(t));
	}
	must(sigaction(SIGSEGV, &old, NULL));
	scene_free();
}

int main(void)
{
	return run_all(dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
