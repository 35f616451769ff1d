/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scene.h: what tests of command tasks share: a worker with plugins that echo, keep and give back; up to LINES hosts; memory
 * outside of them. A test sets hp and wp, if plain() does not suit it, and calls scene_make.
 */
#ifndef TESTS_TASK_SCENE_H
#define TESTS_TASK_SCENE_H

#include "common.h"
#include "rig.h"

#define ECHO 0x11u      /* answers with the payload; ids are more than a bit apart */
#define KEEP 0x22u      /* answers when it is told to */
#define BACK 0x44u      /* answers with what it was sent by a key */
#define TASKS 8u
#define LINES 3u

static struct desk *desk;
static struct line *lines[LINES], *line;
static struct region outside;           /* 4 times LARGE; `out` is the first of them, `in` the second */
static struct inlay_inventory *inv;
static void *inv_memory;
static struct inlay_buf *out, *in;
static struct inlay_task_cmd *kept[LINES * TASKS];
static uint32_t num_kept, completed;
static bool retries;                    /* the device tries again at each turn */
static struct inlay_task_host_params hp;
static struct inlay_task_worker_params wp;
static void (*seen)(const struct inlay_task_cmd *cmd); /* what each handler calls first; or NULL */

/* ---- plugins ---- */

static int echo(UNUSED void *plugin, struct inlay_task_cmd *cmd)
{
	if (seen)
		seen(cmd);
	if (cmd->payload_len > cmd->response_max)
		return -EMSGSIZE;
	memcpy(cmd->response, cmd->payload, cmd->payload_len);
	cmd->response_len = cmd->payload_len;
	return 0;
}

static int keep(UNUSED void *plugin, struct inlay_task_cmd *cmd)
{
	if (seen)
		seen(cmd);
	assert_true(num_kept < ARRAY(kept));
	kept[num_kept++] = cmd;
	return INLAY_TASK_LATER;
}

static int back(UNUSED void *plugin, struct inlay_task_cmd *cmd)
{
	if (seen)
		seen(cmd);
	assert_non_null(cmd->pulled);
	must(inlay_task_cmd_answer_buf(cmd, 0, cmd->pulled));
	return INLAY_TASK_LATER;
}

#define PLUGIN(name, handler) {INLAY_TASK_VERSION, name, NULL, NULL, NULL, NULL, handler, NULL}

static const struct inlay_task_plugin plugin_echo = PLUGIN("echo", echo), plugin_keep = PLUGIN("keep", keep),
				      plugin_back = PLUGIN("back", back);
static const struct inlay_task_entry usual_plugins[] = {
	{ECHO, &plugin_echo, NULL}, {KEEP, &plugin_keep, NULL}, {BACK, &plugin_back, NULL}};

/* ---- the scene ---- */

UNUSED static void done(struct inlay_task *task, UNUSED uint64_t user_data, UNUSED uint64_t host_user_data)
{
	assert_int_not_equal(inlay_task_status(task), -EINPROGRESS);
	completed++;
}

/* Parameters as most tests have them */
UNUSED static void plain(void)
{
	hp = inlay_task_host_default();
	wp = inlay_task_worker_default();
	hp.tasks = hp.in_flight = TASKS;
	hp.windows = 1;
	wp.credits = wp.spare = TASKS;
}

/* elements: of the worker's pools. Hosts' user_data is the number of their line. */
UNUSED static void scene_make(uint32_t num_lines, uint32_t elements, const struct inlay_task_entry *plugins, uint32_t num_plugins)
{
	wp.connections = num_lines;
	num_kept = completed = 0;
	desk = desk_make(&wp, plugins, num_plugins, elements);
	for (uint32_t i = 0; i < num_lines; i++) {
		lines[i] = (struct line *)pages(sizeof(*lines[i]));
		hp.user_data = i;
		line_make(lines[i], desk, &hp);
	}
	line = lines[0];
	region_make(&outside, 4 * LARGE, 1);
	inv_memory = pages(inlay_inventory_size(32));
	must(inlay_inventory_create(inv_memory, inlay_inventory_size(32), 32, &inv));
	must(inlay_inventory_start(inv));
	must(inlay_inventory_get_by_data(inv, &outside.map, outside.at, LARGE, &out));
	must(inlay_inventory_get_by_addr(inv, &outside.map, outside.at + LARGE, LARGE, &in));
}

/* Hosts and connections that are destroyed already are so twice */
static void scene_free(void)
{
	for (uint32_t i = 0; i < LINES; i++)
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

/* With the plugins above */
UNUSED static void usual_scene(uint32_t num_lines, uint32_t elements)
{
	scene_make(num_lines, elements, usual_plugins, ARRAY(usual_plugins));
}

static void hosts_turn(void)
{
	step();
	for (uint32_t i = 0; i < LINES && lines[i]; i++)
		inlay_task_host_progress(&lines[i]->host, 16);
}

static void turn(void)
{
	step();
	inlay_task_worker_progress(&desk->worker, 16);
	hosts_turn();
	if (retries && softdev_present())
		softdev_run();
}

UNUSED static void turns(uint32_t n)
{
	while (n--)
		turn();
}

#define until(condition) await_by(turn(), condition)

/* ---- tasks ---- */

UNUSED static struct inlay_task *task_of(struct line *l, uint64_t plugin, uint64_t destination)
{
	struct inlay_task *t = NULL;

	must(inlay_task_alloc(&l->host, plugin, done, &t));
	t->ids.destination = destination;
	return t;
}

UNUSED static struct inlay_task *task(uint64_t plugin)
{
	return task_of(line, plugin, 0);
}

UNUSED static void payload(struct inlay_task *t, uint32_t len, uint32_t seed)
{
	struct inlay_buf *buf = inlay_task_payload(t);

	inlay_buf_set_data(buf, inlay_buf_head(buf), len);
	fill(inlay_buf_data(buf), len, seed);
}

UNUSED static void until_done(const struct inlay_task *t)
{
	until(inlay_task_status(t) != -EINPROGRESS);
}

/* Its handler has answered with these bytes */
UNUSED static void good(const struct inlay_task *t, uint32_t len, uint32_t seed)
{
	const struct inlay_buf *buf = inlay_task_response(t);

	assert_int_equal(inlay_task_status(t), 0);
	assert_int_equal(inlay_buf_data_len(buf), len);
	assert_int_equal(differs(inlay_buf_data(buf), len, seed), len);
}

/* Submits, and it is answered with these bytes */
UNUSED static void answered(struct inlay_task *t, uint32_t len, uint32_t seed)
{
	must(inlay_task_submit(t, INLAY_RING));
	until_done(t);
	good(t, len, seed);
}

#endif
