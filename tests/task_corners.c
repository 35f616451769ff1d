/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * task_corners.c: command tasks where callers, plugins and time do what is seldom done: lists whose only bytes lie behind an empty head,
 * buffers without keys, responses and lists that outlive what they were for, plugins that call their worker, handlers that contradict
 * themselves, connections that compete; and when either side asks whether the other one is there. Time is the test's own.
 */
#include "common.h"
#include "task_rig.h"
#include <sys/mman.h>

#define ECHO 0x11u
#define KEEP 0x22u      /* answers when it is told to */
#define BACK 0x44u      /* answers with what it was sent by a key */
#define STALLS 0x88u    /* not now, as long as it is told so */
#define BOTH 0x99u      /* answers, and then says not now */
#define NESTED 0xaau    /* calls its worker's progress */
#define TASKS 8u
#define LINES 3u
#define PERIOD 100u

static struct desk *desk;
static struct line *lines[LINES], *line;
static struct region outside;
static struct inlay_inventory *inv;
static void *inv_memory;
static struct inlay_buf *in;
static struct inlay_task_cmd *kept[LINES * TASKS];
static uint64_t clock_now;
static uint32_t num_kept, completed, stall, nested_calls, nested_commands, nested_downs;
static struct inlay_task_conn *order[LINES * TASKS];    /* of the commands that STALLS has taken, from whom */
static uint32_t num_order;
static struct inlay_task_host_params hp;
static struct inlay_task_worker_params wp;

static int echo(void *plugin, struct inlay_task_cmd *cmd)
{
	(void)plugin;
	memcpy(cmd->response, cmd->payload, cmd->payload_len);
	cmd->response_len = cmd->payload_len;
	return 0;
}

static int keep(void *plugin, struct inlay_task_cmd *cmd)
{
	(void)plugin;
	assert_true(num_kept < ARRAY(kept));
	kept[num_kept++] = cmd;
	return INLAY_TASK_LATER;
}

static int back(void *plugin, struct inlay_task_cmd *cmd)
{
	(void)plugin;
	assert_non_null(cmd->pulled);
	must(inlay_task_cmd_answer_buf(cmd, 0, cmd->pulled));
	return INLAY_TASK_LATER;
}

static int stalls(void *plugin, struct inlay_task_cmd *cmd)
{
	(void)plugin;
	if (stall)
		return INLAY_TASK_STALL;
	assert_true(num_order < ARRAY(order));
	order[num_order++] = cmd->conn;
	return 0;
}

static int both(void *plugin, struct inlay_task_cmd *cmd)
{
	(void)plugin;
	must(inlay_task_cmd_answer_data(cmd, 0, cmd->payload, cmd->payload_len));
	return INLAY_TASK_STALL;
}

/* From inside of a worker's progress, and of what it calls: nothing is done */
static void call_again(void)
{
	uint32_t ci = desk->worker.cq.ci;

	nested_calls++;
	assert_int_equal(inlay_task_worker_progress(&desk->worker, clock_now, 16), 0);
	assert_int_equal(desk->worker.cq.ci, ci);
}

static void nested_connection(void *plugin, struct inlay_task_conn *conn, int up)
{
	(void)plugin;
	(void)conn;
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

#define PLUGIN(name, handler) {INLAY_PLUGIN_VERSION, INLAY_PLUGIN_LAYOUT, name, NULL, NULL, NULL, NULL, handler, NULL, NULL}

static const struct inlay_task_plugin plugin_echo = PLUGIN("echo", echo), plugin_keep = PLUGIN("keep", keep),
				      plugin_back = PLUGIN("back", back), plugin_stalls = PLUGIN("stalls", stalls),
				      plugin_both = PLUGIN("both", both);
static const struct inlay_task_plugin plugin_nested = {INLAY_PLUGIN_VERSION, INLAY_PLUGIN_LAYOUT, "nested", NULL, NULL, NULL,
						       nested_connection, nested_command, nested_progress, NULL};
static const struct inlay_task_entry entries[] = {
	{ECHO, &plugin_echo, NULL},
	{KEEP, &plugin_keep, NULL},
	{BACK, &plugin_back, NULL},
	{STALLS, &plugin_stalls, NULL},
	{BOTH, &plugin_both, NULL},
	{NESTED, &plugin_nested, NULL},
};

static void done(struct inlay_task *task, uint64_t user_data, uint64_t host_user_data)
{
	(void)user_data;
	(void)host_user_data;
	assert_int_not_equal(inlay_task_status(task), -EINPROGRESS);
	completed++;
}

/* nested: with the plugin that calls its worker. period: of both sides' probes */
static void rig_make(uint32_t num_lines, bool nested, uint64_t period)
{
	uint32_t i;

	hp = inlay_task_host_default();
	wp = inlay_task_worker_default();
	hp.tasks = hp.in_flight = TASKS;
	hp.windows = 4;
	hp.period = wp.period = period;
	wp.credits = wp.spare = TASKS;
	wp.connections = num_lines;
	clock_now = 1;
	num_kept = completed = stall = nested_calls = nested_commands = nested_downs = num_order = 0;
	desk = desk_make(&wp, entries, nested ? ARRAY(entries) : ARRAY(entries) - 1, 4);
	for (i = 0; i < num_lines; i++) {
		lines[i] = (struct line *)pages(sizeof(*lines[i]));
		line_make(lines[i], desk, &hp);
	}
	line = lines[0];
	region_make(&outside, 4 * LARGE, 1);
	inv_memory = pages(inlay_inventory_size(16));
	must(inlay_inventory_create(inv_memory, inlay_inventory_size(16), 16, &inv));
	must(inlay_inventory_start(inv));
	must(inlay_inventory_get_by_addr(inv, &outside.map, outside.at + LARGE, LARGE, &in));
}

static void rig_free(void)
{
	uint32_t i;

	for (i = 0; i < LINES; i++)
		if (lines[i]) {
			line_free(lines[i]);
			free(lines[i]);
			lines[i] = NULL;
		}
	desk_free(desk);
	must(inlay_buf_dec_refcount(in, NULL));
	must(inlay_inventory_destroy(inv));
	region_free(&outside);
	free(inv_memory);
}

static void hosts_turn(void)
{
	uint32_t i;

	step();
	for (i = 0; i < LINES && lines[i]; i++)
		inlay_task_host_progress(&lines[i]->host, clock_now, 16);
}

static void turn(void)
{
	step();
	inlay_task_worker_progress(&desk->worker, clock_now, 16);
	hosts_turn();
}

#define until(condition)                                                                            \
	do {                                                                                        \
		double end_ = now() + DEADLINE;                                                     \
		while (!(condition)) {                                                              \
			turn();                                                                     \
			if (now() > end_)                                                           \
				fail_msg("%s: not within %d s", #condition, (int)DEADLINE);         \
		}                                                                                   \
	} while (0)

static struct inlay_task *task_of(struct line *l, uint64_t plugin)
{
	struct inlay_task *t = NULL;

	must(inlay_task_alloc_init(&l->host, plugin, done, &t));
	return t;
}

static struct inlay_task *task(uint64_t plugin)
{
	return task_of(line, plugin);
}

static void payload(struct inlay_task *t, uint32_t len, uint32_t seed)
{
	struct inlay_buf *buf = inlay_task_get_payload(t);

	inlay_buf_set_data(buf, inlay_buf_head(buf), len);
	fill(inlay_buf_data(buf), len, seed);
}

/* Submits, and it is answered with those bytes */
static void answered(struct inlay_task *t, uint32_t len, uint32_t seed)
{
	const struct inlay_buf *r;

	must(inlay_task_try_submit(t));
	until(inlay_task_status(t) != -EINPROGRESS);
	must(inlay_task_status(t));
	assert_int_equal(inlay_task_by(t), INLAY_TASK_BY_HANDLER);
	r = inlay_task_get_response(t);
	assert_int_equal(inlay_buf_data_len(r), len);
	assert_int_equal(differs(inlay_buf_data(r), len, seed), len);
}

/* ---- lists ---- */

/* What goes by a key lies behind an empty head, of another region: the device is told the key of where it lies */
static void payload_behind_an_empty_head(void **state)
{
	struct inlay_inventory *near = NULL;
	struct inlay_buf *head = NULL, *all = NULL, *last = NULL;
	struct region other;
	struct inlay_task *t;
	uint32_t way;

	(void)state;
	for (way = 0; way < 4; way++) {
		rig_make(1, false, 0);
		region_make(&other, LARGE, 1);
		assert_true(other.mr->lkey != outside.mr->lkey && line->host.lkey != outside.mr->lkey);
		t = task(BACK);
		must(inlay_inventory_create(line->near_memory, inlay_inventory_size(NEAR), NEAR, &near));
		must(inlay_inventory_start(near));
		must(inlay_inventory_get_by_addr(near, &other.map, other.at, 64, &head));
		must(inlay_inventory_get_by_data(near, &outside.map, outside.at, 9000, &all));
		must(inlay_inventory_get_by_addr(near, &other.map, other.at + 64, 64, &last));
		fill(outside.at, 9000, way);
		/* The caller's empty one, the task's own, and either with one more at the end */
		if (way & 1)
			must(inlay_buf_chain_list(inlay_task_get_payload(t), all));
		else
			must(inlay_buf_chain_list(head, all));
		if (way & 2)
			must(inlay_buf_chain_list(way & 1 ? inlay_task_get_payload(t) : head, last));
		if (!(way & 1))
			must(inlay_task_set_payload(t, head));
		must(inlay_task_set_response(t, in));
		answered(t, 9000, way);
		assert_int_equal(inlay_task_host_broken(&line->host), 0);
		must(inlay_task_set_payload(t, NULL));
		must(inlay_task_release(t));
		/* A list that was behind the task's own is one again */
		must(inlay_buf_dec_refcount(head, NULL));
		if (way & 1)
			must(inlay_buf_dec_refcount(all, NULL));
		if (!(way & 2))
			must(inlay_buf_dec_refcount(last, NULL));
		must(inlay_inventory_destroy(near));
		rig_free();
		region_free(&other);
	}
}

/* A task is released with a list behind its own buffer: who gets it next has none of it, and the list is the caller's */
static void list_left_behind(void **state)
{
	struct inlay_inventory *near = NULL;
	struct inlay_buf *first = NULL, *second = NULL;
	struct inlay_task *t, *u;

	(void)state;
	rig_make(1, false, 0);
	t = task(ECHO);
	must(inlay_inventory_create(line->near_memory, inlay_inventory_size(NEAR), NEAR, &near));
	must(inlay_inventory_start(near));
	must(inlay_inventory_get_by_data(near, &outside.map, outside.at, 100, &first));
	must(inlay_inventory_get_by_data(near, &outside.map, outside.at + 100, 50, &second));
	fill(outside.at, 150, 3);
	must(inlay_buf_chain_list(inlay_task_get_payload(t), first));
	must(inlay_buf_chain_list(inlay_task_get_payload(t), second));
	answered(t, 150, 3);
	must(inlay_task_release(t));
	u = task(ECHO);
	assert_ptr_equal(u, t);
	assert_int_equal(inlay_buf_list_bytes(inlay_task_get_payload(u)), 0);
	assert_null(inlay_buf_next(inlay_task_get_payload(u)));
	payload(u, 30, 4);
	answered(u, 30, 4);
	assert_true(inlay_buf_is_first(first) && inlay_buf_next(first) == second && !inlay_buf_next(second));
	assert_int_equal(inlay_buf_refcount(first), 1);
	assert_int_equal(inlay_buf_list_bytes(first), 150);
	must(inlay_task_set_payload(u, first));
	answered(u, 150, 3);
	must(inlay_task_release(u));
	must(inlay_buf_dec_refcount(first, NULL));
	must(inlay_inventory_destroy(near));
	rig_free();
}

/* ---- responses ---- */

/* Written to the caller's buffer, which is then taken away: there is none of it in the answer */
static void response_elsewhere(void **state)
{
	struct inlay_buf *all = NULL, *r;
	struct inlay_task *t;

	(void)state;
	rig_make(1, false, 0);
	must(inlay_inventory_get_by_data(inv, &outside.map, outside.at, 9000, &all));
	fill(outside.at, 9000, 5);
	t = task(BACK);
	must(inlay_task_set_payload(t, all));
	must(inlay_task_set_response(t, in));
	answered(t, 9000, 5);
	must(inlay_task_set_response(t, NULL));
	r = inlay_task_get_response(t);
	assert_int_equal(inlay_buf_data_len(r), 0);
	assert_true(inlay_buf_fits(r->head, r->len, r->data, r->data_len));
	/* One that is in the answer is there, as before */
	must(inlay_task_set_payload(t, NULL));
	must(inlay_task_set_plugin(t, ECHO));
	payload(t, 70, 6);
	answered(t, 70, 6);
	must(inlay_task_release(t));
	must(inlay_buf_dec_refcount(all, NULL));
	rig_free();
}

/* A buffer that no device can be told of: for what is copied to it only */
static void response_without_key(void **state)
{
	const struct inlay_keys none = {INLAY_NO_KEY, INLAY_NO_KEY};
	uint8_t *at = (uint8_t *)pages(LARGE);
	void *memory = pages(inlay_mmap_size(1, 1));
	struct inlay_buf *small = NULL, *large = NULL;
	struct inlay_mmap map;
	struct inlay_task *t;
	uint32_t room, pi;

	(void)state;
	rig_make(1, false, 0);
	room = inlay_task_room(line->host.message);
	must(inlay_mmap_create(&map, memory, inlay_mmap_size(1, 1), 1, 1));
	must(inlay_mmap_add_dev(&map, dev.pd));
	must(inlay_mmap_add(&map, inlay_source_keys((uintptr_t)at, LARGE, none)));
	must(inlay_mmap_start(&map));
	must(inlay_inventory_get_by_addr(inv, &map, at, room, &small));
	must(inlay_inventory_get_by_addr(inv, &map, at, room + 1, &large));
	t = task(ECHO);
	payload(t, 500, 7);
	must(inlay_task_set_response(t, large));
	pi = line->host.link.sq.pi;
	assert_int_equal(inlay_task_try_submit(t), -EINVAL);
	assert_int_equal(inlay_task_state(t), INLAY_TASK_IDLE);
	assert_int_equal(line->host.link.sq.pi, pi);
	/* Also when its window still has the response before */
	must(inlay_task_set_response(t, small));
	answered(t, 500, 7);
	answered(t, 500, 7);
	assert_int_equal(differs(at, 500, 7), 500);
	/* A window that leaves no more room than that */
	inlay_buf_set_data(large, at + 1, 0);
	must(inlay_task_set_response(t, large));
	answered(t, 500, 7);
	assert_int_equal(differs(at + 1, 500, 7), 500);
	must(inlay_task_release(t));
	must(inlay_buf_dec_refcount(small, NULL));
	must(inlay_buf_dec_refcount(large, NULL));
	rig_free();
	must(inlay_mmap_destroy(&map));
	free(memory);
	free(at);
}

/* ---- memory that no window may be opened over ---- */

/*
 * A map that does not permit windows: what would go by a key is refused, payload and response, and nothing is posted; the connection lives.
 * One that permits them is all that it takes.
 */
static void memory_without_windows(void **state)
{
	uint8_t *at = (uint8_t *)pages(2 * LARGE);
	void *memory = pages(inlay_mmap_size(1, 1));
	struct inlay_buf *large = NULL, *small = NULL, *response = NULL;
	struct inlay_mmap map;
	struct inlay_task *t;
	uint32_t pi, way;

	(void)state;
	rig_make(1, false, 0);
	for (way = 0; way < 2; way++) {
		must(inlay_mmap_create(&map, memory, inlay_mmap_size(1, 1), 1, 1));
		must(inlay_mmap_add_dev(&map, dev.pd));
		must(inlay_mmap_add(&map, inlay_source_host(at, 2 * LARGE)));
		must(inlay_mmap_set_permissions(&map, INLAY_LOCAL_READ_WRITE | (way ? INLAY_MW_BIND : 0)));
		must(inlay_mmap_start(&map));
		must(inlay_inventory_get_by_data(inv, &map, at, 9000, &large));
		must(inlay_inventory_get_by_data(inv, &map, at, 900, &small));
		must(inlay_inventory_get_by_addr(inv, &map, at + LARGE, LARGE, &response));
		fill(at, 9000, way);
		t = task(BACK);
		pi = inlay_sq_index(&line->host.link.sq);
		must(inlay_task_set_payload(t, large));
		if (!way) {
			assert_int_equal(inlay_task_try_submit(t), -EPERM);
			assert_int_equal(inlay_task_submit(t), -EPERM);
			must(inlay_task_set_payload(t, NULL));
			payload(t, 8, 1);
		}
		must(inlay_task_set_response(t, response));
		if (!way) {
			assert_int_equal(inlay_task_try_submit(t), -EPERM);
			assert_int_equal(inlay_task_submit_quiet(t), -EPERM);
			assert_int_equal(inlay_task_state(t), INLAY_TASK_IDLE);
			assert_int_equal(inlay_sq_index(&line->host.link.sq), pi);
			/* What is gathered or copied needs none */
			must(inlay_task_set_response(t, NULL));
			must(inlay_task_set_plugin(t, ECHO));
			must(inlay_task_set_payload(t, small));
			answered(t, 900, way);
		} else {
			answered(t, 9000, way);
		}
		must(inlay_task_release(t));
		assert_int_equal(inlay_task_host_broken(&line->host), 0);
		must(inlay_buf_dec_refcount(large, NULL));
		must(inlay_buf_dec_refcount(small, NULL));
		must(inlay_buf_dec_refcount(response, NULL));
		must(inlay_mmap_destroy(&map));
	}
	rig_free();
	free(memory);
	free(at);
}

/* The command says nothing of a window before the window is open: its WQE waits for the binds that stand before it */
static void command_waits_for_its_windows(void **state)
{
	struct inlay_buf *all = NULL;
	struct inlay_sq *sq;
	struct inlay_task *t;
	uint32_t first, windows;
	const uint8_t *wqe;

	(void)state;
	rig_make(1, false, 0);
	sq = &line->host.link.sq;
	must(inlay_inventory_get_by_data(inv, &outside.map, outside.at, 9000, &all));
	fill(outside.at, 9000, 5);
	t = task(ECHO);
	payload(t, 8, 1);
	must(inlay_task_set_response(t, in));
	for (windows = 1; windows <= 2; windows++) {
		if (windows == 2) {
			must(inlay_task_set_plugin(t, BACK));
			must(inlay_task_set_payload(t, all));
		}
		first = inlay_sq_index(sq);
		must(inlay_task_submit_quiet(t));
		assert_int_equal(inlay_sq_wqe(sq, first)[3], MLX5_OPCODE_UMR);
		wqe = inlay_sq_wqe(sq, first + 3 * windows);
		assert_int_equal(wqe[3], MLX5_OPCODE_SEND);
		assert_int_equal(wqe[11] & 0xe0, MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE);
		inlay_task_host_flush(&line->host);
		until(inlay_task_status(t) != -EINPROGRESS);
		must(inlay_task_status(t));
	}
	must(inlay_task_release(t));
	must(inlay_buf_dec_refcount(all, NULL));
	rig_free();
}

/* A task's own payload was given back as if it were the caller's: the task takes no harm that lasts */
static void own_payload_given_back(void **state)
{
	struct inlay_task *t, *u;

	(void)state;
	rig_make(1, false, 0);
	t = task(ECHO);
	payload(t, 30, 1);
	must(inlay_buf_dec_refcount(inlay_task_get_payload(t), NULL));
	assert_int_equal(inlay_task_try_submit(t), -EINVAL);
	must(inlay_task_set_payload(t, NULL));
	payload(t, 30, 2);
	answered(t, 30, 2);
	must(inlay_buf_dec_refcount(inlay_task_get_payload(t), NULL));
	must(inlay_task_release(t));
	u = task(ECHO);
	assert_ptr_equal(u, t);
	assert_int_equal(inlay_buf_data_len(inlay_task_get_payload(u)), 0);
	assert_int_equal(inlay_buf_len(inlay_task_get_payload(u)), hp.payload);
	payload(u, 4000, 3);
	answered(u, 4000, 3);
	must(inlay_buf_dec_refcount(inlay_task_get_payload(u), NULL));
	must(inlay_task_release(u));
	rig_free();
}

/* ---- the worker's doorbells ---- */

static uint8_t *watched_page;
static volatile uint16_t *watched_record;
static volatile uint32_t watched_stores, watched_value;

static void watch_store(int sig)
{
	(void)sig;
	watched_value = *watched_record;
	watched_stores++;
	if (mprotect(watched_page, 4096, PROT_READ | PROT_WRITE))
		abort();
}

/* An answer is the credit for one more command: when the register is told of it, the receive for that command is in the record already */
static void receive_before_the_answer(void **state)
{
	struct sigaction act, old;
	struct inlay_rq *rq;
	struct inlay_task *t;
	uint32_t len;

	(void)state;
	if (!stepped())
		return;
	rig_make(1, false, 0);
	rq = &line->conn.link.rq;
	watched_page = (uint8_t *)((uintptr_t)line->conn.link.sq.uar->reg & ~(uintptr_t)4095);
	watched_record = rq->dbrec;
	memset(&act, 0, sizeof(act));
	act.sa_handler = watch_store;
	must(sigaction(SIGSEGV, &act, &old));
	/* Inline of one WQEBB, of more, gathered */
	for (len = 4; len < 4000; len *= 31) {
		t = task(ECHO);
		payload(t, len, len);
		must(inlay_task_submit(t));
		step();
		watched_stores = 0;
		must(mprotect(watched_page, 4096, PROT_READ));
		assert_int_equal(inlay_task_worker_progress(&desk->worker, clock_now, 16), 1);
		must(mprotect(watched_page, 4096, PROT_READ | PROT_WRITE));
		assert_int_equal(watched_stores, 1);
		assert_int_equal(inlay_from_be16((uint16_t)watched_value), (uint16_t)inlay_rq_index(rq));
		until(inlay_task_status(t) != -EINPROGRESS);
		must(inlay_task_status(t));
		must(inlay_task_release(t));
	}
	must(sigaction(SIGSEGV, &old, NULL));
	rig_free();
}

/* ---- ends ---- */

/*
 * A connection is broken by its worker when handlers keep all that it has receives for and nothing is being sent, so that the device has
 * nothing to give back: it is found broken all the same. The commands can be answered to nobody, and the host is stopped.
 */
static void broken_with_nothing_to_flush(void **state)
{
	struct inlay_task *t[TASKS];
	uint32_t i;

	(void)state;
	rig_make(1, false, 0);
	for (i = 0; i < TASKS; i++) {
		t[i] = task(KEEP);
		payload(t[i], 8, i);
		must(inlay_task_submit(t[i]));
	}
	until(num_kept == TASKS);
	assert_int_equal(inlay_task_conn_kept(&line->conn), TASKS);
	must(inlay_task_conn_break(&line->conn));
	until(inlay_task_conn_is_broken(&line->conn));
	assert_ptr_equal(inlay_task_worker_gone(&desk->worker), &line->conn);
	assert_null(inlay_task_worker_gone(&desk->worker));
	for (i = 0; i < TASKS; i++)
		assert_int_equal(inlay_task_cmd_answer(kept[i], 0), -ENOTCONN);
	assert_int_equal(inlay_task_conn_kept(&line->conn), 0);
	inlay_task_host_stop(&line->host);
	until(completed == TASKS);
	for (i = 0; i < TASKS; i++) {
		assert_int_equal(inlay_task_status(t[i]), -ECONNABORTED);
		must(inlay_task_release(t[i]));
	}
	rig_free();
}

/* ---- generations ---- */

/* No two generations of a task that are near each other differ by one bit, also where they wrap */
static void generations_far_apart(void **state)
{
	uint32_t last[64], n, i;
	struct inlay_task *t;

	(void)state;
	rig_make(1, false, 0);
	t = task(ECHO);
	for (n = 0; n < 400; n++) {
		uint32_t generation = (uint32_t)(t->context >> 32);

		assert_int_equal(inlay_task_context_index(t->context), inlay_task_index(t));
		for (i = 0; i < 64 && i < n; i++)
			if (__builtin_popcount(generation ^ last[(n - 1 - i) % 64]) < 2)
				fail_msg("after %u commands the generation is %08x; %u before it was %08x", n, generation, i + 1,
					 last[(n - 1 - i) % 64]);
		last[n % 64] = generation;
		answered(t, 0, 0);
	}
	must(inlay_task_release(t));
	rig_free();
}

/* ---- plugins ---- */

static void plugins_call_their_worker(void **state)
{
	struct inlay_task *t[3];
	uint32_t i;

	(void)state;
	rig_make(2, true, 0);
	assert_int_equal(nested_calls, 2);
	for (i = 0; i < 3; i++) {
		t[i] = task_of(lines[1], NESTED);
		payload(t[i], 20 + i, i);
	}
	/* One connection's end, and behind it another one's commands */
	must(inlay_task_conn_break(&lines[0]->conn));
	settle();
	for (i = 0; i < 3; i++)
		must(inlay_task_submit(t[i]));
	settle();
	until(completed == 3);
	assert_int_equal(nested_commands, 3);
	assert_int_equal(nested_downs, 1);
	assert_true(nested_calls > 6);
	for (i = 0; i < 3; i++) {
		must(inlay_task_status(t[i]));
		assert_int_equal(differs(inlay_buf_data(inlay_task_get_response(t[i])), 20 + i, i), 20 + i);
		answered(t[i], 20 + i, i);
		must(inlay_task_release(t[i]));
	}
	assert_int_equal(desk->worker.strays + lines[1]->conn.strays, 0);
	rig_free();
}

/* It is answered, once, and is nobody's */
static void answered_and_stalled(void **state)
{
	struct inlay_task *t, *after;
	uint32_t i;

	(void)state;
	rig_make(1, false, 0);
	t = task(BOTH);
	after = task(ECHO);
	for (i = 0; i < 3 * TASKS; i++) {
		payload(t, i, i);
		answered(t, i, i);
		assert_int_equal(inlay_task_conn_kept(&line->conn), 0);
		assert_int_equal(line->conn.waiting.first, INLAY_TASK_NOBODY);
		assert_int_equal(line->conn.commands, line->conn.answers);
		payload(after, 2 * i, i);
		answered(after, 2 * i, i);
	}
	assert_int_equal(completed, 6 * TASKS);
	assert_int_equal(inlay_task_host_strays(&line->host), 0);
	must(inlay_task_release(t));
	must(inlay_task_release(after));
	rig_free();
}

/* One command in each progress, and each connection always has one more: they take turns */
static void connections_take_turns(void **state)
{
	struct inlay_task *t[LINES][TASKS];
	uint32_t i, k;
	double end;

	(void)state;
	rig_make(LINES, false, 0);
	stall = 1;
	for (i = 0; i < LINES; i++)
		for (k = 0; k < TASKS; k++) {
			t[i][k] = task_of(lines[i], STALLS);
			must(inlay_task_submit(t[i][k]));
		}
	until(lines[0]->conn.commands + lines[1]->conn.commands + lines[2]->conn.commands == LINES * TASKS);
	stall = 0;
	end = now() + DEADLINE;
	while (num_order < LINES * TASKS) {
		uint32_t before = num_order;

		assert_true(inlay_task_worker_progress(&desk->worker, clock_now, 1) <= 1);
		assert_true(num_order - before <= 1);
		assert_true(now() < end);
		/* Completions of sends are polled, too */
		if (num_order == before)
			step();
	}
	for (i = 0; i < LINES * TASKS; i += LINES)
		if (order[i] == order[i + 1] || order[i] == order[i + 2] || order[i + 1] == order[i + 2])
			fail_msg("in turns %u to %u one of three had two", i, i + 2);
	until(completed == LINES * TASKS);
	for (i = 0; i < LINES; i++)
		for (k = 0; k < TASKS; k++) {
			must(inlay_task_status(t[i][k]));
			must(inlay_task_release(t[i][k]));
		}
	rig_free();
}

/* ---- probes ---- */

/* What was posted by one progress of the host at that time, in WQEBBs */
static uint32_t host_posts(uint64_t time)
{
	uint32_t pi = line->host.link.sq.pi;

	clock_now = time;
	inlay_task_host_progress(&line->host, time, 16);
	return line->host.link.sq.pi - pi;
}

static void host_asks_in_time(void **state)
{
	const uint64_t begin = 7 * PERIOD + 3;
	struct inlay_task *t, *over;
	const uint8_t *wqe;
	uint64_t i;

	(void)state;
	rig_make(1, false, PERIOD);
	t = task(KEEP);
	/* Nothing is outstanding: nobody is asked, however much time passes */
	for (i = 1; i <= begin; i += i == 1 ? 1 : 50)
		assert_int_equal(host_posts(i), 0);
	assert_int_equal(host_posts(begin), 0);
	assert_int_equal(host_posts(begin + PERIOD), 0);
	assert_int_equal(inlay_task_host_due(&line->host), begin + 2 * PERIOD);
	/* Something is: not before the period has passed, and then once; not either when there is something else to do meanwhile */
	over = task(KEEP);
	must(inlay_task_set_deadline(over, begin + PERIOD + 50));
	must(inlay_task_submit(t));
	must(inlay_task_submit(over));
	while (num_kept != 2) {
		step();
		inlay_task_worker_progress(&desk->worker, 1, 16);
	}
	assert_int_equal(inlay_task_host_outstanding(&line->host), 2);
	for (i = begin + PERIOD; i < begin + 2 * PERIOD; i++) {
		step();
		assert_int_equal(host_posts(i), 0);
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
	until(!inlay_sq_pending(&line->host.link.sq) || line->host.probing == 0);
	assert_int_equal(line->host.probing, 0);
	/* It is, and the next period begins where the last one ended */
	assert_int_equal(host_posts(begin + 20 * PERIOD), 1);
	until(!line->host.probing);
	for (i = begin + 20 * PERIOD; i < begin + 21 * PERIOD; i++)
		assert_int_equal(host_posts(i), 0);
	assert_int_equal(host_posts(i), 1);
	until(!line->host.probing);
	/* And nothing is */
	must(inlay_task_cmd_answer(kept[0], 0));
	must(inlay_task_cmd_answer(kept[1], 0));
	inlay_task_worker_flush(&desk->worker);
	until(completed == 2 && !inlay_task_host_outstanding(&line->host));
	assert_int_equal(inlay_task_host_outstanding(&line->host), 0);
	for (i = begin + 21 * PERIOD; i < begin + 25 * PERIOD; i += 10)
		assert_int_equal(host_posts(i), 0);
	must(inlay_task_release(t));
	must(inlay_task_release(over));
	rig_free();
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

	while (lines[0]->conn.probing || lines[1]->conn.probing) {
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
	rig_make(LINES, false, PERIOD);
	/* The third one is broken: nobody is asked there, whatever becomes of the WQE that its end takes */
	must(inlay_task_conn_break(&lines[2]->conn));
	clock_now = 1;
	while (!inlay_task_conn_is_broken(&lines[2]->conn) || inlay_sq_pending(&lines[2]->conn.link.sq)) {
		step();
		inlay_task_worker_progress(&desk->worker, 1, 16);
	}
	acknowledged(1);
	assert_int_equal(worker_posts(begin), 1);
	assert_int_equal(inlay_task_worker_due(&desk->worker), begin + PERIOD);
	acknowledged(begin);
	/* It has something to do all the time: one command stalls */
	t = task(STALLS);
	stall = 1;
	must(inlay_task_submit(t));
	while (inlay_task_worker_due(&desk->worker)) {
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
	assert_int_equal(num_order, 1);
	must(inlay_task_release(t));
	rig_free();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(payload_behind_an_empty_head),
		cmocka_unit_test(list_left_behind),
		cmocka_unit_test(response_elsewhere),
		cmocka_unit_test(response_without_key),
		cmocka_unit_test(memory_without_windows),
		cmocka_unit_test(command_waits_for_its_windows),
		cmocka_unit_test(own_payload_given_back),
		cmocka_unit_test(receive_before_the_answer),
		cmocka_unit_test(broken_with_nothing_to_flush),
		cmocka_unit_test(generations_far_apart),
		cmocka_unit_test(plugins_call_their_worker),
		cmocka_unit_test(answered_and_stalled),
		cmocka_unit_test(connections_take_turns),
		cmocka_unit_test(host_asks_in_time),
		cmocka_unit_test(worker_asks_in_time),
	};

	return cmocka_run_group_tests_name("task_corners", tests, dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") ||
	       again_trapped();
}
