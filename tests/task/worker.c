/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * worker.c: the worker: plugins that call it back, contradict themselves or would destroy its connections; connections that
 * share its pool and its CQ.
 */
#include "scene.h"
#include <dlfcn.h>

#define RELEASES 0x99u  /* answers what is kept, and then its own */
#define BOTH 0xccu      /* answers, and then says not now */
#define NESTED 0xaau    /* calls its worker's progress */
#define DESTROYS 0x77u  /* tries to destroy connections */

static uint32_t nested_calls, nested_commands, nested_downs;

/* What DESTROYS was told: of how many calls, by which of its functions */
static struct {
	uint32_t calls, refused, up, down, command, progress;
} destroys;

static int both(void *plugin, struct inlay_task_cmd *cmd)
{
	(void)plugin;
	must(inlay_task_cmd_answer(cmd, 0, cmd->payload, cmd->payload_len));
	return INLAY_TASK_STALL;
}

/* From inside of a worker's progress, and of what it calls: nothing is done */
static void call_again(void)
{
	uint32_t ci = desk->worker.cq.ci;

	nested_calls++;
	assert_int_equal(inlay_task_worker_progress(&desk->worker, 16), 0);
	assert_int_equal(desk->worker.cq.ci, ci);
}

static void nested_connection(void *plugin, struct inlay_task_conn *conn, void **state, enum inlay_task_change up)
{
	(void)plugin;
	(void)conn;
	(void)state;
	nested_downs += !up;
	call_again();
}

static int nested_command(void *plugin, struct inlay_task_cmd *cmd)
{
	nested_commands++;
	call_again();
	return echo(plugin, cmd);
}

static uint32_t nested_progress(void *plugin)
{
	(void)plugin;
	call_again();
	return 0;
}

static int releasing(void *plugin, struct inlay_task_cmd *cmd)
{
	while (num_kept)
		must(respond(kept[--num_kept], 0));
	return echo(plugin, cmd);
}

static void try_to_destroy(void)
{
	uint32_t i;

	for (i = 0; i < 2; i++)
		if (lines[i] && lines[i]->conn.worker) {
			uint8_t broken = lines[i]->conn.broken;

			destroys.calls++;
			destroys.refused += inlay_task_conn_destroy(&lines[i]->conn) == -EBUSY && lines[i]->conn.broken == broken;
		}
}

static void destroys_connection(void *plugin, struct inlay_task_conn *conn, void **state, enum inlay_task_change up)
{
	(void)plugin;
	(void)conn;
	(void)state;
	destroys.up += up;
	destroys.down += !up;
	try_to_destroy();
}

static int destroys_command(void *plugin, struct inlay_task_cmd *cmd)
{
	destroys.command++;
	try_to_destroy();
	return echo(plugin, cmd);
}

static uint32_t destroys_progress(void *plugin)
{
	(void)plugin;
	destroys.progress++;
	try_to_destroy();
	return 0;
}

static const struct inlay_task_plugin plugin_releases = PLUGIN("releases", releasing),
				      plugin_both = PLUGIN("both", both);
static const struct inlay_task_plugin plugin_nested = {INLAY_TASK_VERSION, "nested", NULL, NULL, NULL,
						       nested_connection, nested_command, nested_progress};
static const struct inlay_task_plugin plugin_destroys = {INLAY_TASK_VERSION, "destroys", NULL, NULL, NULL,
							 destroys_connection, destroys_command, destroys_progress};
static const struct inlay_task_entry all[] = {{ECHO, &plugin_echo, NULL}, {KEEP, &plugin_keep, NULL}, {BACK, &plugin_back, NULL},
					      {STALLS, &plugin_stalls, NULL}, 
					      {RELEASES, &plugin_releases, NULL}, {BOTH, &plugin_both, NULL}};
static const struct inlay_task_entry nested[] = {{ECHO, &plugin_echo, NULL}, {KEEP, &plugin_keep, NULL}, {NESTED, &plugin_nested, NULL}};
static const struct inlay_task_entry destroying[] = {{ECHO, &plugin_echo, NULL}, {KEEP, &plugin_keep, NULL},
						     {DESTROYS, &plugin_destroys, NULL}};

static void with_all(uint32_t num_lines, uint32_t elements)
{
	scene_make(num_lines, elements, all, ARRAY(all));
}

/*
 * A connection is broken by its worker when handlers keep all that it has receives for and nothing is being sent, so that the device has
 * nothing to give back: it is found broken all the same. The commands can be answered to nobody, and the host is stopped.
 */
static void broken_with_nothing_to_flush(void **state)
{
	struct inlay_task *t[TASKS];
	uint32_t i;

	(void)state;
	plain();
	with_all(1, 4);
	for (i = 0; i < TASKS; i++) {
		t[i] = task(KEEP);
		payload(t[i], 8, i);
		must(inlay_task_submit(t[i], INLAY_RING));
	}
	until(num_kept == TASKS);
	assert_int_equal(line->conn.kept, TASKS);
	must(inlay_task_conn_break_(&line->conn));
	until(line->conn.broken);
	for (i = 0; i < TASKS; i++)
		assert_int_equal(respond(kept[i], 0), -ENOTCONN);
	assert_int_equal(line->conn.kept, 0);
	inlay_task_host_stop(&line->host);
	until(completed == TASKS);
	for (i = 0; i < TASKS; i++) {
		assert_int_equal(inlay_task_status(t[i]), -ECONNABORTED);
		must(inlay_task_release(t[i]));
	}
	scene_free();
}

static void plugins_call_their_worker(void **state)
{
	struct inlay_task *t[3];
	uint32_t i;

	(void)state;
	plain();
	scene_make(2, 4, nested, ARRAY(nested));
	assert_int_equal(nested_calls, 2);
	for (i = 0; i < 3; i++) {
		t[i] = task_of(lines[1], NESTED, 0);
		payload(t[i], 20 + i, i);
	}
	/* One connection's end, and behind it another one's commands */
	must(inlay_task_conn_break_(&lines[0]->conn));
	settle();
	for (i = 0; i < 3; i++)
		must(inlay_task_submit(t[i], INLAY_RING));
	settle();
	until(completed == 3);
	assert_int_equal(nested_commands, 3);
	assert_int_equal(nested_downs, 1);
	assert_true(nested_calls > 6);
	for (i = 0; i < 3; i++) {
		must(inlay_task_status(t[i]));
		assert_int_equal(differs(inlay_buf_data(inlay_task_response(t[i])), 20 + i, i), 20 + i);
		answered(t[i], 20 + i, i);
		must(inlay_task_release(t[i]));
	}
	assert_int_equal(desk->worker.strays + lines[1]->conn.strays, 0);
	scene_free();
}

static void plugins_cannot_destroy_connections(void **state)
{
	struct inlay_task *t;
	uint32_t i;

	(void)state;
	plain();
	scene_make(2, 4, destroying, ARRAY(destroying));
	assert_int_equal(destroys.up, 2);
	assert_true(destroys.calls >= 2);
	t = task(DESTROYS);
	for (i = 0; i < 3; i++) {
		payload(t, 50, i);
		must(inlay_task_submit(t, INLAY_RING));
		until_done(t);
		good(t, 50, i);
	}
	assert_int_equal(destroys.command, 3);
	assert_true(destroys.progress >= 3);
	assert_false(lines[0]->conn.broken || lines[1]->conn.broken);
	assert_int_equal(desk->worker.num_conns, 2);
	/* As a connection breaks, and as it is destroyed */
	must(inlay_task_conn_break_(&lines[1]->conn));
	until(lines[1]->conn.broken);
	assert_int_equal(destroys.down, 1);
	assert_int_equal(desk->worker.num_conns, 2);
	must(inlay_task_conn_destroy(&lines[0]->conn));
	assert_int_equal(destroys.down, 2);
	assert_int_equal(desk->worker.num_conns, 1);
	assert_int_equal(destroys.refused, destroys.calls);
	must(inlay_task_host_stop(&lines[0]->host));
	must(inlay_task_release(t));
	memset(&lines[0]->conn, 0, sizeof(lines[0]->conn));
	/* The place can be taken anew */
	must(inlay_task_conn_create(&lines[0]->conn, lines[0]->conn_memory, inlay_task_conn_size(&desk->params), &desk->worker, NULL));
	assert_int_equal(destroys.refused, destroys.calls);
	scene_free();
}

/* It is answered, once, and is nobody's */
static void answered_and_stalled(void **state)
{
	struct inlay_task *t, *after;
	uint32_t i;

	(void)state;
	plain();
	with_all(1, 4);
	t = task(BOTH);
	after = task(ECHO);
	for (i = 0; i < 3 * TASKS; i++) {
		payload(t, i, i);
		answered(t, i, i);
		assert_int_equal(line->conn.kept, 0);
		assert_null(line->conn.waiting.first);
		payload(after, 2 * i, i);
		answered(after, 2 * i, i);
	}
	assert_int_equal(completed, 6 * TASKS);
	assert_int_equal(line->host.strays, 0);
	must(inlay_task_release(t));
	must(inlay_task_release(after));
	scene_free();
}

/* Which of the kept commands was for this destination; UINT32_MAX: none */
static uint32_t kept_of(uint64_t destination)
{
	uint32_t i;

	for (i = 0; i < num_kept; i++)
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
static void share_of_the_pool(void **state)
{
	struct inlay_task *t[6], *plain_one, *other;
	uint32_t elements, share, i;

	(void)state;
	for (elements = 2; elements <= 5; elements++) {
		share = elements / 2;
		plain();
		with_all(2, elements);
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
		assert_int_equal(inlay_inventory_num_free(&desk->pull->inventory), elements - share);
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
		assert_int_equal(inlay_inventory_num_free(&desk->pull->inventory), elements);
		assert_int_equal(line->conn.strays + lines[1]->conn.strays, 0);
		scene_free();
	}
}

/*
 * A payload waits for its share, which becomes free just before the next one comes: the later one does not take it, which nobody would give
 * back as long as the earlier one waits.
 */
static void share_goes_to_the_first(void **state)
{
	struct inlay_task *t[3], *release;
	uint32_t round, i;

	(void)state;
	plain();
	with_all(2, 2);
	for (i = 0; i < 3; i++) {
		t[i] = task(KEEP);
		must(inlay_task_set_payload(t[i], out));
	}
	release = task_of(lines[1], RELEASES, 0);
	for (round = 0; round < 10; round++) {
		double end = now() + DEADLINE;

		must(inlay_task_set_plugin(t[1], ECHO));
		must(inlay_task_set_plugin(t[2], ECHO));
		must(inlay_task_submit(t[0], INLAY_RING));
		until(num_kept == 1);
		must(inlay_task_submit(t[1], INLAY_RING));
		turns(5);
		/* Both are in the CQ when the worker looks: what gives the share back, and another payload */
		must(inlay_task_submit(release, INLAY_RING));
		while (!inlay_cq_peek(&desk->worker.cq) && now() < end)
			step();
		must(inlay_task_submit(t[2], INLAY_RING));
		settle();
		completed = 0;
		until(completed == 4);
		for (i = 0; i < 3; i++)
			assert_int_equal(inlay_task_status(t[i]), i ? -EMSGSIZE : 0);
		good(release, 0, 0);
	}
	scene_free();
}

/* A connection that breaks with payloads in use has its share again only when they are given back; one that takes its place has it whole */
static void share_of_a_lost_connection(void **state)
{
	struct inlay_task *t;
	uint32_t round, i;

	(void)state;
	plain();
	with_all(2, 2);
	for (round = 0; round < 4; round++) {
		for (i = 0; i < 2; i++) {
			t = task_of(line, KEEP, i);
			must(inlay_task_set_payload(t, out));
			must(inlay_task_submit(t, INLAY_RING));
		}
		until(num_kept == 1);
		must(inlay_task_host_stop(&line->host));
		must(inlay_task_conn_break_(&line->conn));
		until(line->conn.broken && completed == 2 * (round + 1));
		assert_int_equal(respond(kept[0], 0), -ENOTCONN);
		num_kept = 0;
		assert_int_equal(inlay_inventory_num_free(&desk->pull->inventory), 2);
		line_free(line);
		memset(line, 0, sizeof(*line));
		line_make(line, desk, &hp);
	}
	t = task_of(line, BACK, 0);
	fill(outside.at, LARGE, 9);
	must(inlay_task_set_payload(t, out));
	must(inlay_task_set_response(t, in));
	must(inlay_task_submit(t, INLAY_RING));
	until_done(t);
	good(t, LARGE, 9);
	scene_free();
}

/* What the device says of its CQs, if not 0, in the place of what it is */
static int said_max_cqe;

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	int (*real)(struct ibv_context *, struct ibv_device_attr *) = NULL;
	void *symbol = dlsym(RTLD_NEXT, "ibv_query_device");
	int err;

	memcpy(&real, &symbol, sizeof(real));
	err = real(context, attr);
	if (!err && said_max_cqe)
		attr->max_cqe = said_max_cqe;
	return err;
}

/* A device whose CQs are short: as many connections as one has room for, whatever they complete; others are refused and leave nothing */
static void room_in_the_cq(void **state)
{
	static struct inlay_task_worker w;
	static struct inlay_task_conn c[40];
	uint32_t n, i, all, sizes;
	void *memory, *more[40];

	(void)state;
	for (sizes = 200; sizes < 5000; sizes = sizes * 2 + 1) {
		plain();
		wp.plugins = usual_plugins;
		wp.num_plugins = ARRAY(usual_plugins);
		wp.connections = ARRAY(c);
		wp.message = wp.response = 64;
		wp.max_inline = 32;
		said_max_cqe = (int)sizes;
		memory = pages(inlay_task_worker_size(&wp));
		must(inlay_task_worker_create(&w, memory, inlay_task_worker_size(&wp), dev.pd, &wp, NULL));
		/* A CQ has a power of two of entries */
		assert_true(w.cq.mask < 2 * sizes);
		for (i = 0; i < ARRAY(c); i++)
			more[i] = pages(inlay_task_conn_size(&wp));
		for (n = all = 0; n < ARRAY(c); n++) {
			int err = inlay_task_conn_create(&c[n], more[n], inlay_task_conn_size(&wp), &w, NULL);

			if (err) {
				assert_int_equal(err, -ENOSPC);
				break;
			}
			/* All of its WQEs may be flushed at once, and all of its receives */
			all += c[n].link.sq.mask + 1 + wp.credits;
			assert_true(all <= w.cq.mask + 1);
		}
		assert_true(n && n < ARRAY(c));
		assert_int_equal(w.num_conns, n);
		assert_int_equal(inlay_task_conn_create(&c[n], more[n], inlay_task_conn_size(&wp), &w, NULL), -ENOSPC);
		must(inlay_task_conn_destroy(&c[0]));
		must(inlay_task_conn_create(&c[n], more[n], inlay_task_conn_size(&wp), &w, NULL));
		for (i = 1; i <= n; i++)
			must(inlay_task_conn_destroy(&c[i]));
		must(inlay_task_worker_destroy(&w));
		for (i = 0; i < ARRAY(c); i++)
			free(more[i]);
		free(memory);
	}
	said_max_cqe = 0;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(broken_with_nothing_to_flush),
		cmocka_unit_test(plugins_call_their_worker),
		cmocka_unit_test(plugins_cannot_destroy_connections),
		cmocka_unit_test(answered_and_stalled),
		cmocka_unit_test(share_of_the_pool),
		cmocka_unit_test(share_goes_to_the_first),
		cmocka_unit_test(share_of_a_lost_connection),
		cmocka_unit_test(room_in_the_cq),
	};

	return cmocka_run_group_tests_name("task_worker", tests, dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") ||
	       again_trapped();
}
