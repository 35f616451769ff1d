/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * task_edges.c: command tasks where counts wrap and room ends: WQEBB counters beyond 2^31 and 2^32, answers that come before their
 * command's send is done, the worker's pool and its CQ when they are shared out, response buffers that get nothing, sleeping with something
 * left to do, plugins that would destroy connections. Time is the test's own.
 */
#include "common.h"
#include "task_rig.h"
#include <dlfcn.h>

#define ECHO 0x11u
#define KEEP 0x22u      /* answers when it is told to */
#define BACK 0x44u      /* answers with what it was sent by a key */
#define STALLS 0x88u    /* not now, as long as it is told so; then as ECHO */
#define RELEASES 0x99u  /* answers what is kept, and then its own */
#define DESTROYS 0x77u  /* tries to destroy connections */
#define TASKS 8u

static struct desk *desk;
static struct line *lines[2], *line;
static struct region outside;
static struct inlay_inventory *inv;
static void *inv_memory;
static struct inlay_buf *out, *in;
static struct inlay_task_cmd *kept[2 * TASKS];
static uint64_t clock_now;
static uint32_t num_kept, completed, reused, stalled, stall;
static struct inlay_task_host_params hp;
static struct inlay_task_worker_params wp;

/* What DESTROYS was told: of how many calls, by which of its functions */
static struct {
	uint32_t calls, refused, up, down, command, progress;
} destroys;

static int echo(void *plugin, struct inlay_task_cmd *cmd)
{
	(void)plugin;
	if (cmd->payload_len > cmd->response_room)
		return -EMSGSIZE;
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

static int stalling(void *plugin, struct inlay_task_cmd *cmd)
{
	if (stall) {
		stalled++;
		return INLAY_TASK_STALL;
	}
	return echo(plugin, cmd);
}

static int releasing(void *plugin, struct inlay_task_cmd *cmd)
{
	while (num_kept)
		must(inlay_task_cmd_answer(kept[--num_kept], 0));
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

static void destroys_connection(void *plugin, struct inlay_task_conn *conn, int up)
{
	(void)plugin;
	(void)conn;
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

#define PLUGIN(name, handler) {INLAY_PLUGIN_VERSION, INLAY_PLUGIN_LAYOUT, name, NULL, NULL, NULL, NULL, handler, NULL, NULL}

static const struct inlay_task_plugin plugin_echo = PLUGIN("echo", echo), plugin_keep = PLUGIN("keep", keep),
				      plugin_back = PLUGIN("back", back), plugin_stalls = PLUGIN("stalls", stalling),
				      plugin_releases = PLUGIN("releases", releasing);
static const struct inlay_task_plugin plugin_destroys = {INLAY_PLUGIN_VERSION, INLAY_PLUGIN_LAYOUT, "destroys", NULL, NULL, NULL,
							 destroys_connection, destroys_command, destroys_progress, NULL};
static const struct inlay_task_entry entries[] = {
	{ECHO, &plugin_echo, NULL},
	{KEEP, &plugin_keep, NULL},
	{BACK, &plugin_back, NULL},
	{STALLS, &plugin_stalls, NULL},
	{RELEASES, &plugin_releases, NULL},
	{DESTROYS, &plugin_destroys, NULL},
};

static void done(struct inlay_task *task, uint64_t user_data, uint64_t host_user_data)
{
	(void)user_data;
	(void)host_user_data;
	assert_int_not_equal(inlay_task_status(task), -EINPROGRESS);
	completed++;
}

static void count_reused(struct inlay_task *task, uint64_t user_data, uint64_t host_user_data)
{
	(void)user_data;
	(void)host_user_data;
	assert_int_equal(inlay_task_state(task), INLAY_TASK_IDLE);
	reused++;
}

/* Parameters as most tests have them */
static void plain(void)
{
	hp = inlay_task_host_default();
	wp = inlay_task_worker_default();
	hp.tasks = hp.in_flight = TASKS;
	hp.windows = 4;
	hp.period = wp.period = 0;
	hp.reusable = count_reused;
	wp.credits = wp.spare = TASKS;
}

/* num: elements of the worker's pools */
static void rig_make(uint32_t num_lines, uint32_t num, const struct inlay_task_entry *plugins, uint32_t num_plugins)
{
	uint32_t i;

	wp.connections = num_lines;
	clock_now = 1;
	num_kept = completed = reused = stalled = stall = 0;
	memset(&destroys, 0, sizeof(destroys));
	desk = desk_make(&wp, plugins, num_plugins, num);
	for (i = 0; i < num_lines; i++) {
		lines[i] = (struct line *)pages(sizeof(*lines[i]));
		line_make(lines[i], desk, &hp);
	}
	line = lines[0];
	region_make(&outside, 4 * LARGE, 1);
	inv_memory = pages(inlay_inventory_size(16));
	must(inlay_inventory_create(inv_memory, inlay_inventory_size(16), 16, &inv));
	must(inlay_inventory_start(inv));
	must(inlay_inventory_get_by_data(inv, &outside.map, outside.at, LARGE, &out));
	must(inlay_inventory_get_by_addr(inv, &outside.map, outside.at + LARGE, LARGE, &in));
}

static void rig_free(void)
{
	uint32_t i;

	for (i = 0; i < 2; i++)
		if (lines[i]) {
			line_free(lines[i]);
			free(lines[i]);
			lines[i] = NULL;
		}
	desk_free(desk);
	must(inlay_buf_dec_refcount(out, NULL));
	must(inlay_buf_dec_refcount(in, NULL));
	must(inlay_inventory_destroy(inv));
	region_free(&outside);
	free(inv_memory);
}

static void usual_rig(uint32_t num_lines, uint32_t num)
{
	rig_make(num_lines, num, entries, ARRAY(entries) - 1);
}

static void turn(void)
{
	uint32_t i;

	step();
	inlay_task_worker_progress(&desk->worker, clock_now, 16);
	step();
	for (i = 0; i < desk->params.connections; i++)
		inlay_task_host_progress(&lines[i]->host, clock_now, 16);
}

static void turns(uint32_t n)
{
	while (n--)
		turn();
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

static struct inlay_task *task_of(struct line *l, uint64_t plugin, uint64_t destination)
{
	struct inlay_task *t = NULL;

	must(inlay_task_alloc_init(&l->host, plugin, done, &t));
	must(inlay_task_set_destination(t, destination));
	return t;
}

static struct inlay_task *task(uint64_t plugin)
{
	return task_of(line, plugin, 0);
}

static void payload(struct inlay_task *t, uint32_t len, uint32_t seed)
{
	struct inlay_buf *buf = inlay_task_get_payload(t);

	inlay_buf_set_data(buf, inlay_buf_head(buf), len);
	fill(inlay_buf_data(buf), len, seed);
}

static void until_done(const struct inlay_task *t)
{
	until(inlay_task_status(t) != -EINPROGRESS);
}

static void good(const struct inlay_task *t, uint32_t len, uint32_t seed)
{
	const struct inlay_buf *buf = inlay_task_get_response(t);

	assert_int_equal(inlay_task_status(t), 0);
	assert_int_equal(inlay_task_by(t), INLAY_TASK_BY_HANDLER);
	assert_int_equal(inlay_buf_data_len(buf), len);
	assert_int_equal(differs(inlay_buf_data(buf), len, seed), len);
}

/* An answer to this command, good in every way, which the worker's handlers know nothing of */
static void forge(const struct inlay_task *t)
{
	uint8_t msg[INLAY_TASK_HEAD];
	struct inlay_task_answer a;

	memset(&a, 0, sizeof(a));
	a.kind = INLAY_TASK_ANSWER;
	a.context = t->context;
	a.plugin = t->plugin;
	a.destination = t->destination;
	inlay_task_answer_write(msg, &a);
	must(inlay_post_send_inline(&line->conn.link.sq, msg, sizeof(msg), INLAY_SIGNALED));
	inlay_sq_ring(&line->conn.link.sq);
}

/* ---- counters ---- */

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
		must(inlay_task_submit(t));
		until_done(t);
		good(t, 8, i);
	}
}

/* Commands that fly while 2^33 WQEBBs are posted: not taken for unsent, not erased, and answered at last */
static void old_commands(void **state)
{
	struct inlay_task *old, *windowed, *dead, *quarantined, *driver, *quiet;
	uint32_t round, i;

	(void)state;
	plain();
	usual_rig(1, 4);
	fill(outside.at, LARGE, 3);
	old = task(KEEP);
	payload(old, 100, 7);
	windowed = task(KEEP);
	must(inlay_task_set_payload(windowed, out));
	dead = task(KEEP);
	quarantined = task(KEEP);
	must(inlay_task_set_response(quarantined, in));
	driver = task(ECHO);
	quiet = task(ECHO);
	must(inlay_task_set_deadline(dead, 100));
	must(inlay_task_set_deadline(quarantined, 200));
	must(inlay_task_submit(old));
	must(inlay_task_submit(windowed));
	must(inlay_task_submit(dead));
	must(inlay_task_submit(quarantined));
	until(num_kept == 4);
	for (round = 0; round < 8; round++) {
		age(&line->host.link.sq, 1u << 30);
		age(&line->conn.link.sq, 1u << 30);
		lap(driver);
		assert_int_equal(inlay_task_cancel(old), -EBUSY);
		assert_int_equal(inlay_task_cancel(windowed), -EBUSY);
		payload(quiet, 40, round);
		must(inlay_task_submit_quiet(quiet));
		if (round == 2 || round == 4) {
			/* The deadline passes of one that was sent, while there is one that was not */
			struct inlay_task *t = round == 2 ? dead : quarantined;

			clock_now = round == 2 ? 100 : 200;
			assert_int_equal(inlay_task_cancel(t), -EBUSY);
			assert_int_equal(inlay_task_host_outstanding(&line->host), 5);
			assert_int_equal(inlay_task_host_progress(&line->host, clock_now, 16), 1);
			assert_int_equal(inlay_task_status(t), -ETIMEDOUT);
			assert_int_equal(inlay_task_by(t), INLAY_TASK_BY_HOST);
			assert_int_equal(inlay_task_state(t), round == 2 ? INLAY_TASK_IDLE : INLAY_TASK_QUARANTINE);
			assert_int_equal(inlay_task_host_outstanding(&line->host), 5);
		}
		if (round == 6) {
			must(inlay_task_cancel(quiet));
			until_done(quiet);
			assert_int_equal(inlay_task_status(quiet), -ECANCELED);
		} else {
			inlay_task_host_flush(&line->host);
			until_done(quiet);
			good(quiet, 40, round);
		}
		assert_int_equal(inlay_task_host_outstanding(&line->host), 4);
		assert_int_equal(inlay_task_status(old), -EINPROGRESS);
		assert_int_equal(inlay_task_status(windowed), -EINPROGRESS);
	}
	for (i = 0; i < 4; i++)
		if (kept[i]->pulled)
			must(inlay_task_cmd_answer(kept[i], -EDOM));
		else
			must(inlay_task_cmd_answer_data(kept[i], 0, kept[i]->payload, kept[i]->payload_len));
	until_done(old);
	good(old, 100, 7);
	until_done(windowed);
	assert_int_equal(inlay_task_status(windowed), -EDOM);
	until(reused == 1);
	assert_int_equal(inlay_task_state(quarantined), INLAY_TASK_IDLE);
	assert_int_equal(inlay_task_host_outstanding(&line->host), 0);
	assert_int_equal(inlay_task_host_strays(&line->host), 0);
	assert_int_equal(line->conn.strays + desk->worker.strays, 0);
	lap(driver);
	rig_free();
}

/* NOPs until the low half of a queue's counter is as that of `to` */
static void post_nops(struct inlay_sq *sq, uint32_t to)
{
	while ((sq->pi ^ to) & 0xffff)
		if (inlay_post_nop(sq, sq->pi % 16 == 15 ? INLAY_SIGNALED : 0)) {
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
static void counters_wrap(void **state)
{
	static const uint32_t points[] = {0x80000000u - 0x100, 0u - 0x100};
	struct inlay_task *t[TASKS];
	uint32_t p, i, round, seed = 0;

	(void)state;
	plain();
	usual_rig(1, 4);
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
			must(inlay_task_set_deadline(t[6], clock_now + 10));
			must(inlay_task_set_plugin(t[7], KEEP));
			for (i = 0; i < TASKS; i++, seed++) {
				if (i == 4)
					fill(outside.at, LARGE, round);
				else
					payload(t[i], lengths[i], round + i);
				must(inlay_task_submit_quiet(t[i]));
				if (i == 5 && round % 3)
					must(inlay_task_cancel(t[i]));
				if (i % 3 == 2)
					inlay_task_host_flush(&line->host);
			}
			inlay_task_host_flush(&line->host);
			assert_int_equal(inlay_task_cancel(t[7]), -EBUSY);
			until(num_kept == 2);
			clock_now += 10;
			until_done(t[6]);
			assert_int_equal(inlay_task_status(t[6]), -ETIMEDOUT);
			assert_int_equal(inlay_task_cancel(t[7]), -EBUSY);
			while (num_kept) {
				num_kept--;
				must(inlay_task_cmd_answer_data(kept[num_kept], 0, kept[num_kept]->payload, kept[num_kept]->payload_len));
			}
			until(completed == TASKS && !inlay_task_host_outstanding(&line->host));
			for (i = 0; i < TASKS; i++) {
				if (i == 4)
					good(t[i], LARGE, round);
				else if (i == 5 && round % 3)
					assert_int_equal(inlay_task_status(t[i]), -ECANCELED);
				else if (i != 6)
					good(t[i], lengths[i], round + i);
				assert_int_equal(inlay_task_state(t[i]), INLAY_TASK_IDLE);
			}
		}
		assert_true(line->host.link.sq.pi - points[p] < 0x10000 && line->host.link.sq.pi - points[p] > 0x100);
	}
	assert_int_equal(inlay_task_host_strays(&line->host), 0);
	assert_int_equal(line->conn.strays + desk->worker.strays, 0);
	rig_free();
}

/* Either side asks again after its queue's counter has gone far past the probe before */
static void probes_come_again(void **state)
{
	struct inlay_task *t, *driver;
	uint32_t host_pi, conn_pi, round;

	(void)state;
	plain();
	hp.period = wp.period = 100;
	usual_rig(1, 4);
	t = task(KEEP);
	driver = task(ECHO);
	must(inlay_task_submit(t));
	until(num_kept == 1);
	for (round = 0; round < 6; round++) {
		until(!inlay_sq_pending(&line->host.link.sq) && !inlay_sq_pending(&line->conn.link.sq));
		host_pi = line->host.link.sq.pi;
		conn_pi = line->conn.link.sq.pi;
		inlay_task_host_progress(&line->host, clock_now, 16);
		inlay_task_worker_progress(&desk->worker, clock_now, 16);
		assert_int_equal(line->host.link.sq.pi, host_pi);
		assert_int_equal(line->conn.link.sq.pi, conn_pi);
		clock_now += 100;
		inlay_task_host_progress(&line->host, clock_now, 16);
		inlay_task_worker_progress(&desk->worker, clock_now, 16);
		if (line->host.link.sq.pi - host_pi != 1 || line->conn.link.sq.pi - conn_pi != 1)
			fail_msg("round %u: %u WQEBBs of the host, %u of the worker, where each was to probe", round,
				 line->host.link.sq.pi - host_pi, line->conn.link.sq.pi - conn_pi);
		/* Their completions are taken in the laps, when no time passes */
		age(&line->host.link.sq, 1u << 30);
		age(&line->conn.link.sq, 1u << 30);
		until(!inlay_sq_pending(&line->host.link.sq) && !inlay_sq_pending(&line->conn.link.sq));
		lap(driver);
		if (round % 2) {
			age(&line->host.link.sq, 1u << 30);
			age(&line->conn.link.sq, 1u << 30);
			lap(driver);
			age(&line->host.link.sq, 1u << 30);
			age(&line->conn.link.sq, 1u << 30);
			lap(driver);
		}
		/* Whatever was unsignaled */
		must(inlay_post_nop(&line->host.link.sq, INLAY_SIGNALED));
		inlay_sq_ring(&line->host.link.sq);
		must(inlay_post_nop(&line->conn.link.sq, INLAY_SIGNALED));
		inlay_sq_ring(&line->conn.link.sq);
	}
	must(inlay_task_cmd_answer(kept[0], 0));
	until_done(t);
	good(t, 0, 0);
	rig_free();
}

/* ---- answers that come early ---- */

/* Before the command is sent at all: the caller's memory is not given back before the device has done with it */
static void answer_before_the_send_is_done(void **state)
{
	struct inlay_inventory *near = NULL;
	struct inlay_buf *piece = NULL;
	struct inlay_task *t;
	uint32_t way;

	(void)state;
	if (!stepped())
		return; /* who is first cannot be chosen */
	for (way = 0; way < 4; way++) {
		plain();
		usual_rig(1, 4);
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
			must(inlay_buf_chain_list(inlay_task_get_payload(t), piece));
		must(inlay_task_try_submit(t));
		forge(t);
		assert_int_equal(softdev_execute(line->conn.link.qp->qp_num, 1), 1);
		softdev_complete(0, 100);
		inlay_task_host_progress(&line->host, clock_now, 16);
		inlay_task_host_progress(&line->host, clock_now, 16);
		assert_int_equal(inlay_task_host_strays(&line->host), 0);
		if (completed)
			fail_msg("way %u: its send is not done, and it is completed with status %d", way, inlay_task_status(t));
		assert_int_equal(inlay_task_status(t), -EINPROGRESS);
		assert_int_equal(inlay_task_state(t), INLAY_TASK_CLOSING);
		until(completed == 1);
		assert_int_equal(inlay_task_status(t), 0);
		assert_int_equal(inlay_task_response_len(t), 0);
		/* The worker has the command, as it was; its own answer is nobody's */
		until(inlay_task_host_strays(&line->host) == 1);
		assert_int_equal(line->conn.commands, 1);
		if (way)
			must(inlay_buf_unchain_list(inlay_task_get_payload(t), piece));
		must(inlay_task_set_payload(t, NULL));
		must(inlay_task_release(t));
		must(inlay_buf_dec_refcount(piece, NULL));
		must(inlay_inventory_destroy(near));
		rig_free();
	}
}

/* To a command that the device was not even shown: it is nobody's, and the command goes its way */
static void answer_before_the_doorbell(void **state)
{
	struct inlay_task *t;
	uint32_t way;

	(void)state;
	plain();
	usual_rig(1, 4);
	t = task(ECHO);
	for (way = 0; way < 4; way++) {
		payload(t, way % 2 ? 2000 : 20, way);
		must(inlay_task_submit_quiet(t));
		forge(t);
		until(inlay_task_host_strays(&line->host) == way + 1 || completed > way);
		assert_int_equal(completed, way);
		if (way < 2) {
			inlay_task_host_flush(&line->host);
			until(completed == way + 1);
			good(t, way % 2 ? 2000 : 20, way);
		} else {
			must(inlay_task_cancel(t));
			until(completed == way + 1);
			assert_int_equal(inlay_task_status(t), -ECANCELED);
		}
		assert_int_equal(inlay_task_host_outstanding(&line->host), 0);
	}
	rig_free();
}

/* ---- what is shared out ---- */

/* Which of the kept commands was for this destination; UINT32_MAX: none */
static uint32_t kept_of(uint64_t destination)
{
	uint32_t i;

	for (i = 0; i < num_kept; i++)
		if (kept[i]->destination == destination)
			return i;
	return UINT32_MAX;
}

static void answer_of(uint64_t destination)
{
	uint32_t i = kept_of(destination);

	assert_true(i < num_kept);
	must(inlay_task_cmd_answer(kept[i], 0));
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
		hp.windows = 8;
		usual_rig(2, elements);
		fill(outside.at, LARGE, elements);
		/* Twice its share, and something that needs none of it behind */
		for (i = 0; i < 2 * share; i++) {
			t[i] = task_of(line, KEEP, i);
			must(inlay_task_set_payload(t[i], out));
			must(inlay_task_submit(t[i]));
		}
		plain_one = task_of(line, KEEP, 99);
		must(inlay_task_submit(plain_one));
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
			must(inlay_task_submit(other));
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
		until(!inlay_task_host_outstanding(&line->host));
		for (i = 0; i < 2 * share; i++) {
			until_done(t[i]);
			good(t[i], 0, 0);
		}
		until_done(plain_one);
		good(plain_one, 0, 0);
		assert_int_equal(inlay_pool_num_free(desk->pull), elements);
		assert_int_equal(line->conn.strays + lines[1]->conn.strays, 0);
		rig_free();
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
	usual_rig(2, 2);
	for (i = 0; i < 3; i++) {
		t[i] = task(KEEP);
		must(inlay_task_set_payload(t[i], out));
	}
	release = task_of(lines[1], RELEASES, 0);
	for (round = 0; round < 10; round++) {
		double end = now() + DEADLINE;

		must(inlay_task_set_plugin(t[1], ECHO));
		must(inlay_task_set_plugin(t[2], ECHO));
		must(inlay_task_submit(t[0]));
		until(num_kept == 1);
		must(inlay_task_submit(t[1]));
		turns(5);
		/* Both are in the CQ when the worker looks: what gives the share back, and another payload */
		must(inlay_task_submit(release));
		while (!inlay_cq_peek(&desk->worker.cq) && now() < end)
			step();
		must(inlay_task_submit(t[2]));
		settle();
		completed = 0;
		until(completed == 4);
		for (i = 0; i < 3; i++)
			assert_int_equal(inlay_task_status(t[i]), i ? -EMSGSIZE : 0);
		good(release, 0, 0);
	}
	rig_free();
}

/* A connection that breaks with payloads in use has its share again only when they are given back; one that takes its place has it whole */
static void share_of_a_lost_connection(void **state)
{
	struct inlay_task *t;
	uint32_t round, i;

	(void)state;
	plain();
	usual_rig(2, 2);
	for (round = 0; round < 4; round++) {
		for (i = 0; i < 2; i++) {
			t = task_of(line, KEEP, i);
			must(inlay_task_set_payload(t, out));
			must(inlay_task_submit(t));
		}
		until(num_kept == 1);
		must(inlay_task_host_stop(&line->host));
		must(inlay_task_conn_break(&line->conn));
		until(inlay_task_conn_is_broken(&line->conn) && completed == 2 * (round + 1));
		assert_int_equal(inlay_task_cmd_answer(kept[0], 0), -ENOTCONN);
		num_kept = 0;
		assert_int_equal(inlay_pool_num_free(desk->pull), 2);
		while (inlay_task_worker_gone(&desk->worker))
			;
		line_free(line);
		memset(line, 0, sizeof(*line));
		line_make(line, desk, &hp);
	}
	t = task_of(line, BACK, 0);
	fill(outside.at, LARGE, 9);
	must(inlay_task_set_payload(t, out));
	must(inlay_task_set_response(t, in));
	must(inlay_task_submit(t));
	until_done(t);
	good(t, LARGE, 9);
	rig_free();
}

/* Less elements than connections */
static void pool_too_small(void **state)
{
	static struct inlay_task_worker w;
	struct inlay_task_worker_params p;
	void *memory;
	uint32_t n;

	(void)state;
	plain();
	usual_rig(1, 3);
	for (n = 2; n < 6; n++) {
		p = wp;
		p.connections = n;
		p.pull = NULL;
		memory = pages(inlay_task_worker_size(&p));
		p.pull = desk->pull;
		if (n > 3) {
			assert_int_equal(inlay_task_worker_create(&w, memory, 1 << 20, dev.pd, &p, entries, ARRAY(entries) - 1), -EINVAL);
			p.pull = NULL; /* none at all is no fault */
		}
		must(inlay_task_worker_create(&w, memory, inlay_task_worker_size(&p), dev.pd, &p, entries, ARRAY(entries) - 1));
		must(inlay_task_worker_destroy(&w));
		free(memory);
	}
	rig_free();
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
		wp.connections = ARRAY(c);
		wp.message = wp.response = 64;
		wp.max_inline = 32;
		said_max_cqe = (int)sizes;
		memory = pages(inlay_task_worker_size(&wp));
		must(inlay_task_worker_create(&w, memory, inlay_task_worker_size(&wp), dev.pd, &wp, entries, ARRAY(entries) - 1));
		/* A CQ has a power of two of entries */
		assert_true(w.cq.mask < 2 * sizes);
		for (i = 0; i < ARRAY(c); i++)
			more[i] = pages(inlay_task_conn_size(&wp));
		for (n = all = 0; n < ARRAY(c); n++) {
			int err = inlay_task_conn_create(&c[n], more[n], inlay_task_conn_size(&wp), &w);

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
		assert_int_equal(inlay_task_conn_create(&c[n], more[n], inlay_task_conn_size(&wp), &w), -ENOSPC);
		must(inlay_task_conn_destroy(&c[0]));
		must(inlay_task_conn_create(&c[n], more[n], inlay_task_conn_size(&wp), &w));
		for (i = 1; i <= n; i++)
			must(inlay_task_conn_destroy(&c[i]));
		must(inlay_task_worker_destroy(&w));
		for (i = 0; i < ARRAY(c); i++)
			free(more[i]);
		free(memory);
	}
	said_max_cqe = 0;
}

/* ---- a response buffer that gets nothing ---- */

static void empty_response(void **state)
{
	struct inlay_buf *small = NULL, *five[6] = {NULL};
	struct inlay_task *t, *others[TASKS];
	uint32_t way, i;

	(void)state;
	plain();
	hp.tasks = 2 * TASKS;
	hp.max_gather = 4;
	usual_rig(1, 4);
	must(inlay_inventory_get_by_addr(inv, &outside.map, outside.at + 2 * LARGE, 1000, &small));
	t = task(ECHO);
	for (way = 0; way < 7; way++) {
		memset(outside.at + 2 * LARGE, 0x5a, 1000);
		inlay_buf_set_data(small, outside.at + 2 * LARGE + 800, 100);
		must(inlay_task_set_response(t, small));
		completed = num_kept = 0;
		payload(t, 200, 1);
		must(inlay_task_set_plugin(t, way == 0 ? ECHO : way == 1 ? 12345 : KEEP));
		switch (way) {
		case 0: break;
		case 1: must(inlay_task_submit(t)); break; /* no such plugin */
		case 2: /* its deadline passes */
			must(inlay_task_set_deadline(t, clock_now + 5));
			must(inlay_task_submit(t));
			until(num_kept == 1);
			clock_now += 5;
			break;
		case 3: /* cancelled */
			must(inlay_task_submit_quiet(t));
			must(inlay_task_cancel(t));
			break;
		case 4: /* an error without response */
		case 5: /* an answer that cannot be: it says that it was written */
			must(inlay_task_submit(t));
			until(num_kept == 1);
			must(inlay_task_cmd_answer(kept[0], -EDOM));
			if (way == 5) {
				line->conn.link.sq.last[INLAY_DS + 4 + 1] = INLAY_TASK_WRITTEN;
				inlay_task_worker_flush(&desk->worker);
			}
			break;
		default: /* the connection's end */
			must(inlay_task_submit(t));
			until(num_kept == 1);
			must(inlay_task_host_stop(&line->host));
		}
		if (way == 0) {
			/* Not submitted: it is as it was */
			for (i = 0; i < TASKS; i++) {
				others[i] = task(KEEP);
				must(inlay_task_submit(others[i]));
			}
			assert_int_equal(inlay_task_submit(t), -EAGAIN);
			assert_int_equal(inlay_buf_data_len(small), 100);
			until(num_kept == TASKS);
			while (num_kept)
				must(inlay_task_cmd_answer(kept[--num_kept], 0));
			until(completed == TASKS);
			for (i = 0; i < ARRAY(five); i++) {
				must(inlay_inventory_get_by_data(inv, &outside.map, outside.at + i * 10, 10, &five[i]));
				if (i)
					must(inlay_buf_chain_list(five[0], five[i]));
			}
			must(inlay_task_set_payload(t, five[0]));
			assert_int_equal(inlay_task_submit(t), -E2BIG);
			assert_int_equal(inlay_buf_data_len(small), 100);
			must(inlay_task_set_payload(t, NULL));
			must(inlay_buf_dec_refcount(five[0], NULL));
			/* There is room for 200 */
			payload(t, 240, 1);
			must(inlay_task_submit(t));
		}
		assert_int_equal(inlay_buf_data_len(small), 0);
		assert_ptr_equal(inlay_buf_data(small), outside.at + 2 * LARGE + 800);
		until_done(t);
		if (inlay_buf_data_len(small) || inlay_buf_data_len(inlay_task_get_response(t)))
			fail_msg("way %u, status %d: %u bytes of response", way, inlay_task_status(t), (uint32_t)inlay_buf_data_len(small));
		assert_ptr_equal(inlay_buf_data(small), outside.at + 2 * LARGE + 800);
		switch (way) {
		case 0:
			assert_int_equal(inlay_task_status(t), -EMSGSIZE);
			assert_int_equal(inlay_task_response_len(t), 240);
			break;
		case 1: assert_int_equal(inlay_task_status(t), -ENOENT); break;
		case 2:
			assert_int_equal(inlay_task_status(t), -ETIMEDOUT);
			must(inlay_task_cmd_answer_data(kept[0], 0, kept[0]->payload, 200));
			until(!inlay_task_host_outstanding(&line->host));
			assert_int_equal(inlay_buf_data_len(small), 0);
			break;
		case 3: assert_int_equal(inlay_task_status(t), -ECANCELED); break;
		case 4: assert_int_equal(inlay_task_status(t), -EDOM); break;
		case 5: assert_int_equal(inlay_task_status(t), -EBADMSG); break;
		default:
			assert_int_equal(inlay_task_status(t), -ECONNABORTED);
			inlay_buf_set_data(small, outside.at + 2 * LARGE + 800, 100);
			assert_int_equal(inlay_task_submit(t), -ENOTCONN);
			assert_int_equal(inlay_buf_data_len(small), 100);
			inlay_task_cmd_answer(kept[0], 0);
		}
		assert_true(all_bytes(outside.at + 2 * LARGE, 1000, 0x5a));
	}
	must(inlay_task_set_response(t, NULL));
	must(inlay_task_release(t));
	must(inlay_buf_dec_refcount(small, NULL));
	rig_free();
}

/* ---- sleeping ---- */

/* Nothing is left to be done before a worker sleeps */
static void worker_does_not_sleep(void **state)
{
	struct inlay_task *t, *k;

	(void)state;
	plain();
	wp.events = 1;
	usual_rig(1, 4);
	t = task(STALLS);
	k = task(KEEP);
	must(inlay_task_worker_arm(&desk->worker));
	/* A stalled command, when there is nothing in the CQ */
	stall = 1;
	payload(t, 30, 1);
	must(inlay_task_submit(t));
	until(stalled > 3);
	assert_null(inlay_cq_peek(&desk->worker.cq));
	assert_int_equal(inlay_task_worker_arm(&desk->worker), -EAGAIN);
	stall = 0;
	until_done(t);
	good(t, 30, 1);
	until(!inlay_cq_peek(&desk->worker.cq));
	turns(3);
	assert_null(inlay_cq_peek(&desk->worker.cq));
	must(inlay_task_worker_arm(&desk->worker));
	/* An answer that was not flushed; a kept command alone is no reason */
	must(inlay_task_submit(k));
	until(num_kept == 1);
	turns(3);
	assert_null(inlay_cq_peek(&desk->worker.cq));
	must(inlay_task_worker_arm(&desk->worker));
	must(inlay_task_cmd_answer(kept[0], 0));
	assert_null(inlay_cq_peek(&desk->worker.cq));
	assert_int_equal(inlay_task_worker_arm(&desk->worker), -EAGAIN);
	inlay_task_worker_flush(&desk->worker);
	until_done(k);
	turns(3);
	must(inlay_task_worker_arm(&desk->worker));
	rig_free();
}

/* ---- plugins that would destroy connections ---- */

static void plugins_cannot_destroy_connections(void **state)
{
	struct inlay_task *t;
	uint32_t i;

	(void)state;
	plain();
	rig_make(2, 4, entries, ARRAY(entries));
	assert_int_equal(destroys.up, 2);
	assert_true(destroys.calls >= 2);
	t = task(DESTROYS);
	for (i = 0; i < 3; i++) {
		payload(t, 50, i);
		must(inlay_task_submit(t));
		until_done(t);
		good(t, 50, i);
	}
	assert_int_equal(destroys.command, 3);
	assert_true(destroys.progress >= 3);
	assert_false(inlay_task_conn_is_broken(&lines[0]->conn) || inlay_task_conn_is_broken(&lines[1]->conn));
	assert_int_equal(desk->worker.num_conns, 2);
	/* As a connection breaks, and as it is destroyed */
	must(inlay_task_conn_break(&lines[1]->conn));
	until(inlay_task_conn_is_broken(&lines[1]->conn));
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
	must(inlay_task_conn_create(&lines[0]->conn, lines[0]->conn_memory, inlay_task_conn_size(&desk->params), &desk->worker));
	assert_int_equal(destroys.refused, destroys.calls);
	rig_free();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(old_commands),
		cmocka_unit_test(counters_wrap),
		cmocka_unit_test(probes_come_again),
		cmocka_unit_test(answer_before_the_send_is_done),
		cmocka_unit_test(answer_before_the_doorbell),
		cmocka_unit_test(share_of_the_pool),
		cmocka_unit_test(share_goes_to_the_first),
		cmocka_unit_test(share_of_a_lost_connection),
		cmocka_unit_test(pool_too_small),
		cmocka_unit_test(room_in_the_cq),
		cmocka_unit_test(empty_response),
		cmocka_unit_test(worker_does_not_sleep),
		cmocka_unit_test(plugins_cannot_destroy_connections),
	};

	return cmocka_run_group_tests_name("task_edges", tests, dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") ||
	       again_trapped();
}
