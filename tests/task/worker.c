/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * worker.c: the worker: a connection that breaks with nothing to flush; connections that share its pool and its CQ.
 */
#include "scene.h"

/*
 * Handlers keep all that a connection has receives for and nothing is being sent when it breaks, so that the device has nothing to give
 * back: a probe finds it. The commands can be answered to nobody, and the host is stopped.
 */
TEST(broken_with_nothing_to_flush)
{
	struct inlay_task *t[TASKS];

	plain();
	usual_scene(1, 4);
	for (uint32_t i = 0; i < TASKS; i++) {
		t[i] = task(KEEP);
		payload(t[i], 8, i);
		must(inlay_task_submit(t[i], INLAY_RING));
	}
	until(num_kept == TASKS);
	assert_int_equal(line->conn.kept, TASKS);
	must(inlay_task_link_break(&line->conn.link));
	must(message_probe(&line->conn.link));
	until(line->conn.broken);
	for (uint32_t i = 0; i < TASKS; i++)
		assert_int_equal(respond(kept[i], 0), -ENOTCONN);
	assert_int_equal(line->conn.kept, 0);
	inlay_task_link_break(&line->host.link);
	until(completed == TASKS);
	for (uint32_t i = 0; i < TASKS; i++) {
		assert_int_equal(inlay_task_status(t[i]), -ECONNABORTED);
		must(inlay_task_release(t[i]));
	}
	scene_free();
}

/* Which of the kept commands was for this destination; UINT32_MAX: none */
static uint32_t kept_of(uint64_t destination)
{
	for (uint32_t i = 0; i < num_kept; i++)
		if (kept[i]->ids.destination == destination)
			return i;
	return UINT32_MAX;
}

static void answer_of(uint64_t destination)
{
	uint32_t i = kept_of(destination);

	assert_true(i < num_kept);
	must(respond(kept[i], 0));
	kept[i] = kept[--num_kept];
}

/* One host's payloads are all kept: it waits for itself, and another is served */
TEST(share_of_the_pool)
{
	struct inlay_task *t[6], *plain_one, *other;
	uint32_t elements, share, i;

	for (elements = 2; elements <= 5; elements++) {
		share = elements / 2;
		plain();
		usual_scene(2, elements);
		fill(outside.at, LARGE, elements);
		/* Twice its share, and something that needs none of it behind */
		for (i = 0; i < 2 * share; i++) {
			t[i] = task_of(line, KEEP, i);
			must(inlay_task_set_payload(t[i], out));
			must(inlay_task_submit(t[i], INLAY_RING));
		}
		plain_one = task_of(line, KEEP, 99);
		must(inlay_task_submit(plain_one, INLAY_RING));
		until(num_kept == share);
		turns(20);
		assert_int_equal(num_kept, share);
		for (i = 0; i < share; i++)
			assert_true(kept_of(i) < num_kept);
		assert_int_equal(inlay_pool_num_free(desk->pull), elements - share);
		/* The other host has as much */
		other = task_of(lines[1], BACK, 50);
		must(inlay_task_set_payload(other, out));
		must(inlay_task_set_response(other, in));
		for (i = 0; i < 10; i++) {
			memset(outside.at + LARGE, 0, LARGE);
			must(inlay_task_submit(other, INLAY_RING));
			until_done(other);
			good(other, LARGE, elements);
		}
		assert_int_equal(num_kept, share);
		/* One of the first host's goes, one comes, in their order */
		for (i = 0; i < share; i++) {
			answer_of(i);
			until(kept_of(share + i) < num_kept);
			assert_int_equal(differs(kept[kept_of(share + i)]->payload, LARGE, elements), LARGE);
			if (i + 1 < share)
				assert_true(kept_of(99) == UINT32_MAX);
		}
		until(kept_of(99) < num_kept);
		for (i = share; i < 2 * share; i++)
			answer_of(i);
		answer_of(99);
		until(!line->host.outstanding);
		for (i = 0; i < 2 * share; i++) {
			until_done(t[i]);
			good(t[i], 0, 0);
		}
		until_done(plain_one);
		good(plain_one, 0, 0);
		assert_int_equal(inlay_pool_num_free(desk->pull), elements);
		assert_int_equal(line->conn.strays + lines[1]->conn.strays, 0);
		scene_free();
	}
}

int main(void)
{
	return run_all(dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
