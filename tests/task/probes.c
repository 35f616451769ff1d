/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * probes.c: when hosts and workers ask whether the other side is there, to the unit of time. Time is the test's own.
 */
#include "scene.h"

#define PERIOD 100u

/* What was posted by one progress of the host at that time, in WQEBBs */
static uint32_t host_posts(uint64_t time)
{
	uint32_t pi = line->host.link.sq.pi;

	clock_now = time;
	inlay_task_host_progress(&line->host, time, 16);
	return line->host.link.sq.pi - pi;
}

/* A probe has been posted, and the device has not returned it */
static bool host_asks(void)
{
	return !inlay_task_link_done_(&line->host.link, line->host.probe_end);
}

static void host_asks_in_time(void **state)
{
	const uint64_t begin = 7 * PERIOD + 3;
	struct inlay_task *t, *over;
	const uint8_t *wqe;
	uint64_t i;

	(void)state;
	plain();
	hp.period = wp.period = PERIOD;
	usual_scene(1, 4);
	t = task(KEEP);
	/* Nothing is outstanding: nobody is asked, however much time passes */
	for (i = 1; i <= begin; i += i == 1 ? 1 : 50)
		assert_int_equal(host_posts(i), 0);
	assert_int_equal(host_posts(begin), 0);
	assert_int_equal(host_posts(begin + PERIOD), 0);
	assert_int_equal(line->host.due, begin + 2 * PERIOD);
	/* Something is: not before the period has passed, and then once; not either when there is something else to do meanwhile */
	over = task(KEEP);
	over->deadline = begin + PERIOD + 50;
	must(inlay_task_submit(t));
	must(inlay_task_submit(over));
	while (num_kept != 2) {
		step();
		inlay_task_worker_progress(&desk->worker, 1, 16);
	}
	assert_int_equal(line->host.outstanding, 2);
	for (i = begin + PERIOD; i < begin + 2 * PERIOD; i++) {
		step();
		/* What is over time asks for a completion after its send */
		assert_int_equal(host_posts(i), i == begin + PERIOD + 50);
		assert_int_equal(completed, i >= begin + PERIOD + 50);
	}
	assert_int_equal(inlay_task_status(over), -ETIMEDOUT);
	assert_int_equal(host_posts(begin + 2 * PERIOD), 1);
	wqe = inlay_sq_wqe(&line->host.link.sq, line->host.link.sq.pi - 1);
	assert_int_equal(wqe[3], MLX5_OPCODE_RDMA_WRITE);
	assert_int_equal(wqe[7] & 0x3f, 2);
	assert_true(wqe[11] & MLX5_WQE_CTRL_CQ_UPDATE);
	assert_int_equal(inlay_sq_rung(&line->host.link.sq), line->host.link.sq.pi);
	if (stepped())
		/* It is not acknowledged: no second one */
		for (i = begin + 2 * PERIOD; i < begin + 6 * PERIOD; i += 20)
			assert_int_equal(host_posts(i), 0);
	else
		i = begin + 6 * PERIOD;
	until(!host_asks());
	assert_false(host_asks());
	/* It is, and the next period begins where the last one ended */
	assert_int_equal(host_posts(begin + 20 * PERIOD), 1);
	until(!host_asks());
	for (i = begin + 20 * PERIOD; i < begin + 21 * PERIOD; i++)
		assert_int_equal(host_posts(i), 0);
	assert_int_equal(host_posts(i), 1);
	until(!host_asks());
	/* And nothing is */
	must(inlay_task_cmd_answer(kept[0], 0));
	must(inlay_task_cmd_answer(kept[1], 0));
	inlay_task_worker_flush_(&desk->worker);
	until(completed == 2 && !line->host.outstanding);
	assert_int_equal(line->host.outstanding, 0);
	for (i = begin + 21 * PERIOD; i < begin + 25 * PERIOD; i += 10)
		assert_int_equal(host_posts(i), 0);
	must(inlay_task_release(t));
	must(inlay_task_release(over));
	scene_free();
}

/* What was posted by one progress of the worker at that time, in WQEBBs: the same for each connection that is connected */
static uint32_t worker_posts(uint64_t time)
{
	uint32_t pi[LINES], i;

	for (i = 0; i < LINES; i++)
		pi[i] = lines[i]->conn.link.sq.pi;
	inlay_task_worker_progress(&desk->worker, time, 16);
	for (i = 0; i < LINES; i++)
		pi[i] = lines[i]->conn.link.sq.pi - pi[i];
	assert_int_equal(pi[0], pi[1]);
	assert_int_equal(pi[2], 0);
	return pi[0];
}

/* The device has done what the worker has asked, and the worker knows; no time passes */
static void acknowledged(uint64_t time)
{
	double end = now() + DEADLINE;

	while (!inlay_task_link_done_(&lines[0]->conn.link, lines[0]->conn.probe_end) ||
	       !inlay_task_link_done_(&lines[1]->conn.link, lines[1]->conn.probe_end)) {
		step();
		inlay_task_worker_progress(&desk->worker, time, 16);
		assert_true(now() < end);
	}
}

static void worker_asks_in_time(void **state)
{
	uint64_t i, begin = 5 * PERIOD + 1;
	struct inlay_task *t;

	(void)state;
	plain();
	hp.period = wp.period = PERIOD;
	usual_scene(LINES, 4);
	/* The third one is broken: nobody is asked there, whatever becomes of the WQE that its end takes */
	must(inlay_task_conn_break_(&lines[2]->conn));
	clock_now = 1;
	while (!lines[2]->conn.broken || inlay_sq_pending(&lines[2]->conn.link.sq)) {
		step();
		inlay_task_worker_progress(&desk->worker, 1, 16);
	}
	acknowledged(1);
	assert_int_equal(worker_posts(begin), 1);
	assert_int_equal(desk->worker.due, begin + PERIOD);
	acknowledged(begin);
	/* It has something to do all the time: one command stalls */
	t = task(STALLS);
	stall = 1;
	must(inlay_task_submit(t));
	while (desk->worker.due) {
		step();
		inlay_task_worker_progress(&desk->worker, begin, 16);
	}
	for (i = begin; i < begin + PERIOD; i++) {
		step();
		assert_int_equal(worker_posts(i), 0);
	}
	assert_int_equal(worker_posts(begin + PERIOD), 1);
	assert_int_equal(inlay_sq_rung(&lines[0]->conn.link.sq), lines[0]->conn.link.sq.pi);
	if (stepped())
		for (i = begin + PERIOD; i < begin + 5 * PERIOD; i += 20)
			assert_int_equal(worker_posts(i), 0);
	acknowledged(begin + 5 * PERIOD);
	assert_int_equal(worker_posts(begin + 9 * PERIOD), 1);
	acknowledged(begin + 9 * PERIOD);
	assert_int_equal(worker_posts(begin + 10 * PERIOD - 1), 0);
	assert_int_equal(worker_posts(begin + 10 * PERIOD), 1);
	acknowledged(begin + 10 * PERIOD);
	stall = 0;
	clock_now = begin + 10 * PERIOD;
	until(completed == 1);
	must(inlay_task_status(t));
	must(inlay_task_release(t));
	scene_free();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(host_asks_in_time),
		cmocka_unit_test(worker_asks_in_time),
	};

	return cmocka_run_group_tests_name("task_probes", tests, dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") ||
	       again_trapped();
}
