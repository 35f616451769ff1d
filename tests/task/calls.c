/* SPDX-License-Identifier: BSD-3-Clause */
/* calls.c: every call of a command task in every state that a task and its host can be in, by a table. */
#include "scene.h"

static void count(struct inlay_task *task, uint64_t user_data, uint64_t host_user_data)
{
	(void)task;
	(void)host_user_data;
	assert_int_equal(user_data, 4711);
	completed++;
}

enum at { FREED, FRESH, IDLE, UNSENT, SENT, WITH_WORKER, CLOSING, RIPE, QUARANTINED, RELEASED_AGAIN, FULL, STOPPED, BROKEN, STATES };

enum call {
	SUBMIT, QUIET, TRY, RELEASE, SET_PLUGIN, SET_CB, SET_PAYLOAD, SET_RESPONSE, CANCEL, REVOKE, STATUS,
	STATE, DESTROY, CALLS
};

static const char *const at_names[STATES] = {"freed", "fresh", "idle", "unsent", "sent", "with the worker", "closing", "ripe",
					     "quarantined", "released, allocated again", "full", "stopped", "broken"};
static const char *const call_names[CALLS] = {"submit", "submit_quiet", "try_submit", "release", "set_plugin", "set_cb",
					      "set_payload", "set_response", "cancel", "revoke", "status", "state",
					      "host_destroy"};

#define ANY 1 /* no answer: not to be called, or too much is changed by it */

static const int answers[STATES][CALLS] = {
	/* FREED */ {-EBUSY, -EBUSY, -EBUSY, -EBADFD, -EBUSY, -EBUSY, -EBUSY, -EBUSY, -EBADFD, -EBADFD, ANY, INLAY_TASK_FREE, ANY},
	/* FRESH */ {0, 0, 0, 0, 0, 0, 0, 0, -EBADFD, -EBADFD, 0, INLAY_TASK_IDLE, ANY},
	/* IDLE */ {0, 0, 0, 0, 0, 0, 0, 0, -EBADFD, -EBADFD, -EMSGSIZE, INLAY_TASK_IDLE, ANY},
	/* UNSENT */ {-EBUSY, -EBUSY, -EBUSY, -EPERM, -EBUSY, -EBUSY, -EBUSY, -EBUSY, 0, -EBADFD, -EINPROGRESS, INLAY_TASK_SUBMITTED,
		-EBUSY},
	/* SENT */ {-EBUSY, -EBUSY, -EBUSY, -EPERM, -EBUSY, -EBUSY, -EBUSY, -EBUSY, 0, -EBADFD, -EINPROGRESS, INLAY_TASK_SUBMITTED,
		-EBUSY},
	/* WITH_WORKER */ {-EBUSY, -EBUSY, -EBUSY, -EPERM, -EBUSY, -EBUSY, -EBUSY, -EBUSY, 0, -EBADFD, -EINPROGRESS,
		INLAY_TASK_SUBMITTED, -EBUSY},
	/* CLOSING */ {-EBUSY, -EBUSY, -EBUSY, -EPERM, -EBUSY, -EBUSY, -EBUSY, -EBUSY, -EBUSY, -EBADFD, -EINPROGRESS,
		INLAY_TASK_CLOSING, -EBUSY},
	/* RIPE */ {-EBUSY, -EBUSY, -EBUSY, -EPERM, -EBUSY, -EBUSY, -EBUSY, -EBUSY, -EBUSY, -EBADFD, -EINPROGRESS, INLAY_TASK_DUE,
		-EBUSY},
	/* QUARANTINED */ {-EBUSY, -EBUSY, -EBUSY, -EBUSY, -EBUSY, -EBUSY, -EBUSY, -EBUSY, -EBADFD, 0, -ETIMEDOUT,
		INLAY_TASK_QUARANTINE, -EBUSY},
	/* RELEASED_AGAIN */ {0, 0, 0, 0, 0, 0, 0, 0, -EBADFD, -EBADFD, 0, INLAY_TASK_IDLE, ANY},
	/* FULL */ {-EAGAIN, -EAGAIN, -EAGAIN, 0, 0, 0, 0, 0, -EBADFD, -EBADFD, 0, INLAY_TASK_IDLE, -EBUSY},
	/* STOPPED */ {-ENOTCONN, -ENOTCONN, -ENOTCONN, 0, 0, 0, 0, 0, -EBADFD, -EBADFD, 0, INLAY_TASK_IDLE, ANY},
	/* BROKEN */ {-ENOTCONN, -ENOTCONN, -ENOTCONN, 0, 0, 0, 0, 0, -EBADFD, -EBADFD, -ECONNABORTED, INLAY_TASK_IDLE, ANY},
};

/* A task in that state. Commands that were submitted so far: *submitted */
static struct inlay_task *bring_to(enum at at, uint32_t *submitted)
{
	struct inlay_task *t = NULL, *other;
	uint32_t i;

	num_kept = completed = reused = *submitted = 0;
	must(inlay_task_alloc(&line->host, KEEP, count, &t));
	t->user_data = 4711;
	switch (at) {
	case FREED: must(inlay_task_release(t)); break;
	case FRESH: break;
	case IDLE:
		must(inlay_task_set_plugin(t, ECHO));
		must(inlay_task_set_payload(t, out));
		must(inlay_task_submit(t));
		*submitted = 1;
		until(completed);
		must(inlay_task_set_payload(t, NULL));
		must(inlay_task_set_plugin(t, KEEP));
		break;
	case UNSENT: must(inlay_task_submit_quiet(t)); *submitted = 1; break;
	case SENT: must(inlay_task_submit(t)); *submitted = 1; break;
	case WITH_WORKER:
		must(inlay_task_submit(t));
		*submitted = 1;
		until(num_kept == 1);
		break;
	case CLOSING:
		must(inlay_task_set_payload(t, out));
		must(inlay_task_submit(t));
		*submitted = 1;
		until(num_kept == 1);
		must(inlay_task_cmd_answer(kept[0], 0));
		num_kept = 0;
		until(t->state != INLAY_TASK_SUBMITTED);
		break;
	case RIPE:
		must(inlay_task_submit_quiet(t));
		*submitted = 1;
		must(inlay_task_cancel(t));
		break;
	case QUARANTINED:
		must(inlay_task_set_response(t, in));
		t->deadline = clock_now + 5;
		must(inlay_task_submit(t));
		*submitted = 1;
		until(num_kept == 1);
		clock_now += 5;
		until(completed);
		break;
	case RELEASED_AGAIN:
		must(inlay_task_set_plugin(t, ECHO));
		must(inlay_task_submit(t));
		*submitted = 1;
		until(completed);
		must(inlay_task_release(t));
		must(inlay_task_alloc(&line->host, KEEP, count, &other));
		assert_ptr_equal(other, t);
		t->user_data = 4711;
		break;
	case FULL:
		for (i = 0; i < 4; i++) {
			must(inlay_task_alloc(&line->host, ECHO, count, &other));
			other->user_data = 4711;
			must(inlay_task_submit(other));
		}
		*submitted = 4;
		break;
	case STOPPED: must(inlay_task_host_stop(&line->host)); break;
	default:
		must(inlay_task_submit(t));
		*submitted = 1;
		until(num_kept == 1);
		must(inlay_task_conn_break_(&line->conn));
		must(inlay_task_host_stop(&line->host));
		until(completed == 1);
		assert_int_equal(inlay_task_by(t), INLAY_TASK_BY_CONNECTION);
		break;
	}
	return t;
}

static int do_call(struct inlay_task *t, enum call call)
{
	switch (call) {
	case SUBMIT: return inlay_task_submit(t);
	case QUIET: return inlay_task_submit_quiet(t);
	case TRY: return inlay_task_try_submit(t);
	case RELEASE: return inlay_task_release(t);
	case SET_PLUGIN: return inlay_task_set_plugin(t, KEEP);
	case SET_CB: return inlay_task_set_cb(t, count);
	case SET_PAYLOAD: return inlay_task_set_payload(t, NULL);
	case SET_RESPONSE: return inlay_task_set_response(t, NULL);
	case CANCEL: return inlay_task_cancel(t);
	case REVOKE: return inlay_task_revoke(t);
	case STATUS: return inlay_task_status(t);
	case STATE: return (int)t->state;
	default: return inlay_task_host_destroy(&line->host);
	}
}

static bool all_idle(void)
{
	uint32_t i;

	for (i = 0; i < line->host.num; i++)
		if (line->host.tasks[i].state != INLAY_TASK_FREE && line->host.tasks[i].state != INLAY_TASK_IDLE)
			return false;
	return true;
}

/* All to the end, whatever was begun: each command was completed once; every task can be had again */
static void wind_up(uint32_t submitted)
{
	bool broken = !line->host.limit;
	struct inlay_task *t[6], *none;
	double end = now() + DEADLINE;
	uint32_t i;

	inlay_task_host_flush(&line->host);
	while (completed < submitted || !all_idle() || (!broken && line->host.outstanding)) {
		turn();
		while (num_kept)
			inlay_task_cmd_answer(kept[--num_kept], 0);
		if (now() > end)
			fail_msg("%u of %u were completed", completed, submitted);
	}
	while (num_kept)
		inlay_task_cmd_answer(kept[--num_kept], 0);
	for (i = 0; i < 5; i++)
		turn();
	assert_int_equal(completed, submitted);
	assert_int_equal(line->host.strays, 0);
	for (i = 0; i < line->host.num; i++)
		if (line->host.tasks[i].state == INLAY_TASK_IDLE)
			must(inlay_task_release(&line->host.tasks[i]));
	for (i = 0; i < 6; i++)
		must(inlay_task_alloc(&line->host, 0, NULL, &t[i]));
	assert_int_equal(inlay_task_alloc(&line->host, 0, NULL, &none), -EAGAIN);
	for (i = 6; i--;)
		must(inlay_task_release(t[i]));
	assert_int_equal(line->host.outstanding, 0);
}

static void every_call(void **state)
{
	uint32_t at, call, submitted, pi;
	struct inlay_task *t;
	int got, want;

	(void)state;
	plain();
	hp.tasks = 6;
	hp.in_flight = 4;
	usual_scene(1, 2);
	for (at = 0; at < STATES; at++)
		for (call = 0; call < CALLS; call++) {
			want = answers[at][call];
			if (want == ANY)
				continue;
			t = bring_to((enum at)at, &submitted);
			if (at == CLOSING && t->state != INLAY_TASK_CLOSING)
				fail_msg("its windows were closed before they were seen to be");
			pi = line->host.link.sq.pi;
			got = do_call(t, (enum call)call);
			if (got != want)
				fail_msg("%s: %s gave %d instead of %d", at_names[at], call_names[call], got, want);
			if (call <= TRY) {
				submitted += !got;
				if (got && line->host.link.sq.pi != pi)
					fail_msg("%s: %s posted what it refused", at_names[at], call_names[call]);
			}
			if (call == REVOKE && !got) {
				until(reused);
				assert_int_equal(reused, 1);
			}
			/* Any time: */
			t->user_data = 4711;
			memset(t->user, 0x77, INLAY_TASK_USER);
			wind_up(submitted);
			if (at >= STOPPED) {
				line_free(line);
				line_make(line, desk, &hp);
			}
		}
	scene_free();
}

/* Before it is connected, and what destruction wants */
static void not_connected(void **state)
{
	struct inlay_task_host_params p = inlay_task_host_default();
	struct inlay_task_host *h = (struct inlay_task_host *)pages(sizeof(*h));
	void *memory = pages(inlay_task_host_size(&p));
	struct inlay_task *t;

	(void)state;
	must(inlay_task_host_create(h, memory, inlay_task_host_size(&p), dev.pd, &p, NULL));
	must(inlay_task_alloc(h, 0, NULL, &t));
	assert_int_equal(inlay_task_submit(t), -ENOTCONN);
	assert_int_equal(inlay_task_submit_quiet(t), -ENOTCONN);
	assert_int_equal(inlay_task_try_submit(t), -ENOTCONN);
	assert_int_equal(inlay_task_cancel(t), -EBADFD);
	assert_int_equal(inlay_task_status(t), 0);
	assert_int_equal(inlay_task_host_progress(h, 5, 4), 0);
	must(inlay_task_release(t));
	must(inlay_task_host_stop(h));
	assert_int_equal(inlay_task_host_progress(h, 6, 4), 0);
	must(inlay_task_host_destroy(h));
	free(memory);
	free(h);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(not_connected),
		cmocka_unit_test(every_call),
	};

	return cmocka_run_group_tests_name("task_calls", tests, dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") ||
	       again_trapped();
}
