/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * task.c: command tasks, host and worker in one process on one device: every way that a payload and a response can take, every way that a
 * task can end, each once. Time is the test's own. The long random runs, and those with faults, are elsewhere.
 */
#include "common.h"
#include <inlay/task.h>
#include "../../examples/plugins/handles.h"

#define ECHO 7u          /* answers at once with the payload */
#define KEEP 8u          /* keeps commands until it is told */
#define FAIL 9u          /* answers with the errno in the payload's first byte */
#define BACK 10u         /* answers with the payload by a buffer, however long */
#define STALLS 11u       /* not now, so many times; then as ECHO */
#define LARGE (100u << 10)

struct bench {
	struct inlay_task_worker_params wp;
	struct inlay_task_host_params hp;
	struct inlay_task_worker worker;
	struct inlay_task_conn conn;
	struct inlay_task_host host;
	void *wmem, *cmem, *hmem;
	/* payloads by key at the worker */
	uint8_t *pulled;
	struct ibv_mr *pulled_mr;
	struct inlay_mmap pulled_map;
	void *pulled_map_mem, *pool_mem;
	struct inlay_pool *pool;
	/* and at the host: 4 buffers of LARGE bytes */
	uint8_t *large;
	struct ibv_mr *large_mr;
	struct inlay_mmap large_map;
	void *large_map_mem, *inv_mem;
	struct inlay_inventory *inv;
	uint64_t time;
};

/* What the plugins have seen */
static struct inlay_task_cmd *kept[256];
static uint32_t num_kept, ups, downs, stalls, closed, opened;

static int echo(void *plugin, struct inlay_task_cmd *cmd)
{
	(void)plugin;
	if (cmd->payload_len > cmd->response_max)
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

static int fail_as_told(void *plugin, struct inlay_task_cmd *cmd)
{
	(void)plugin;
	return cmd->payload_len ? -(int)cmd->payload[0] : 0;
}

static int back(void *plugin, struct inlay_task_cmd *cmd)
{
	(void)plugin;
	if (!cmd->pulled)
		return echo(plugin, cmd);
	assert_int_equal(inlay_task_cmd_answer_buf(cmd, 0, cmd->pulled), 0);
	return INLAY_TASK_LATER;
}

static int stalling(void *plugin, struct inlay_task_cmd *cmd)
{
	if (stalls) {
		stalls--;
		return INLAY_TASK_STALL;
	}
	return echo(plugin, cmd);
}

static int open_it(void *argument, struct inlay_task_worker *worker, void **plugin)
{
	(void)worker;
	opened++;
	*plugin = argument;
	return 0;
}

static void close_it(void *plugin)
{
	(void)plugin;
	closed++;
}

static void connection(void *plugin, struct inlay_task_conn *conn, enum inlay_task_change up)
{
	(void)plugin;
	(void)conn;
	ups += up != 0;
	downs += up == 0;
}

#define PLUGIN(name, handler) {INLAY_PLUGIN_VERSION, INLAY_PLUGIN_LAYOUT, name, NULL, NULL, NULL, NULL, handler, NULL, NULL}

static const struct inlay_task_plugin plugin_echo = {INLAY_PLUGIN_VERSION, INLAY_PLUGIN_LAYOUT, "echo",
						     open_it, close_it, NULL, connection, echo, NULL, NULL};
static const struct inlay_task_plugin plugin_keep = PLUGIN("keep", keep);
static const struct inlay_task_plugin plugin_fail = PLUGIN("fail", fail_as_told);
static const struct inlay_task_plugin plugin_back = PLUGIN("back", back);
static const struct inlay_task_plugin plugin_stall = PLUGIN("stall", stalling);
static const struct inlay_task_entry entries[] = {
	{ECHO, &plugin_echo, NULL},
	{KEEP, &plugin_keep, NULL},
	{FAIL, &plugin_fail, NULL},
	{BACK, &plugin_back, NULL},
	{STALLS, &plugin_stall, NULL},
};

static void map_make(struct inlay_mmap *map, void **mem, uint8_t *at, size_t len, struct ibv_mr **mr, int windows)
{
	struct inlay_keys keys;

	*mem = pages(inlay_mmap_size(1, 1));
	must(inlay_mmap_create(map, *mem, inlay_mmap_size(1, 1), 1, 1));
	if (windows) {
		*mr = ibv_reg_mr(dev.pd, at, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
		must(inlay_mmap_set_permissions(map, INLAY_LOCAL_READ_WRITE | INLAY_MW_BIND));
	} else {
		*mr = ibv_reg_mr(dev.pd, at, len, IBV_ACCESS_LOCAL_WRITE);
	}
	assert_non_null(*mr);
	keys.lkey = (*mr)->lkey;
	keys.rkey = INLAY_NO_KEY;
	must(inlay_mmap_add_dev(map, dev.pd));
	must(inlay_mmap_add(map, inlay_source_keys((uintptr_t)at, len, keys)));
	must(inlay_mmap_start(map));
}

static struct bench *bench_make(const struct inlay_task_host_params *hp, const struct inlay_task_worker_params *wp)
{
	struct bench *b = (struct bench *)pages(sizeof(*b));
	uint8_t mine[INLAY_TASK_ADDRESS], theirs[INLAY_TASK_ADDRESS];

	num_kept = ups = downs = stalls = opened = closed = 0;
	b->hp = *hp;
	b->wp = *wp;
	b->time = 1;
	b->large = (uint8_t *)pages(4 * LARGE);
	map_make(&b->large_map, &b->large_map_mem, b->large, 4 * LARGE, &b->large_mr, 1);
	b->inv_mem = pages(inlay_inventory_size(16));
	must(inlay_inventory_create(b->inv_mem, inlay_inventory_size(16), 16, &b->inv));
	must(inlay_inventory_start(b->inv));
	b->pulled = (uint8_t *)pages(2 * LARGE);
	map_make(&b->pulled_map, &b->pulled_map_mem, b->pulled, 2 * LARGE, &b->pulled_mr, 0);
	b->pool_mem = pages(inlay_pool_size(2));
	must(inlay_pool_create(b->pool_mem, inlay_pool_size(2), 2, LARGE, &b->pulled_map, &b->pool));
	must(inlay_pool_start(b->pool));
	b->wp.pull = b->pool;
	b->wmem = pages(inlay_task_worker_size(&b->wp));
	b->cmem = pages(inlay_task_conn_size(&b->wp));
	b->hmem = pages(inlay_task_host_size(&b->hp));
	must(inlay_task_worker_create(&b->worker, b->wmem, inlay_task_worker_size(&b->wp), dev.pd, &b->wp, entries, ARRAY(entries)));
	must(inlay_task_conn_create(&b->conn, b->cmem, inlay_task_conn_size(&b->wp), &b->worker));
	must(inlay_task_host_create(&b->host, b->hmem, inlay_task_host_size(&b->hp), dev.pd, &b->hp));
	inlay_task_host_address(&b->host, mine);
	inlay_task_conn_address(&b->conn, theirs);
	must(inlay_task_conn_connect(&b->conn, mine, sizeof(mine)));
	must(inlay_task_host_connect(&b->host, theirs, sizeof(theirs)));
	assert_int_equal(inlay_task_host_connect(&b->host, theirs, sizeof(theirs)), -EBADFD);
	assert_int_equal(opened, 1);
	assert_int_equal(ups, 1);
	return b;
}

static void bench_free(struct bench *b)
{
	must(inlay_task_host_destroy(&b->host));
	must(inlay_task_conn_destroy(&b->conn));
	must(inlay_task_worker_destroy(&b->worker));
	assert_int_equal(closed, 1);
	assert_int_equal(downs, 1);
	must(inlay_inventory_destroy(b->inv));
	must(inlay_mmap_destroy(&b->large_map));
	must(ibv_dereg_mr(b->large_mr));
	must(inlay_pool_destroy(b->pool));
	must(inlay_mmap_destroy(&b->pulled_map));
	must(ibv_dereg_mr(b->pulled_mr));
	free(b->large);
	free(b->large_map_mem);
	free(b->inv_mem);
	free(b->pulled);
	free(b->pulled_map_mem);
	free(b->pool_mem);
	free(b->wmem);
	free(b->cmem);
	free(b->hmem);
	free(b);
}

static uint32_t both(struct bench *b)
{
	uint32_t n;

	step();
	inlay_task_worker_progress(&b->worker, b->time, 16);
	step();
	n = inlay_task_host_progress(&b->host, b->time, 16);
	return n;
}

static void until_done(struct bench *b, const struct inlay_task *t)
{
	double end = now() + DEADLINE;

	while (inlay_task_status(t) == -EINPROGRESS) {
		both(b);
		if (now() > end)
			fail_msg("a task was not completed: state %u, held %u", inlay_task_state(t), t->held);
	}
}

static void until_kept(struct bench *b, uint32_t n)
{
	double end = now() + DEADLINE;

	while (num_kept < n) {
		both(b);
		if (now() > end)
			fail_msg("%u commands came, and no more", num_kept);
	}
}

static void write_payload(struct inlay_task *t, uint32_t len, uint32_t seed)
{
	struct inlay_buf *buf = inlay_task_get_payload(t);

	must(inlay_buf_set_data(buf, inlay_buf_head(buf), len));
	fill(inlay_buf_data(buf), len, seed);
}

static void check_response(const struct inlay_task *t, uint32_t len, uint32_t seed)
{
	struct inlay_buf *buf = inlay_task_get_response(t);

	assert_int_equal(inlay_task_status(t), 0);
	assert_int_equal(inlay_task_by(t), INLAY_TASK_BY_HANDLER);
	assert_int_equal(inlay_buf_data_len(buf), len);
	assert_int_equal(differs(inlay_buf_data(buf), len, seed), len);
}

static struct inlay_task_host_params host_params(void)
{
	struct inlay_task_host_params p = inlay_task_host_default();

	p.tasks = 24;
	p.in_flight = 8;
	p.windows = 4;
	p.period = 0;
	p.path.timeout = 10;
	return p;
}

static struct inlay_task_worker_params worker_params(void)
{
	struct inlay_task_worker_params p = inlay_task_worker_default();

	p.connections = 2;
	p.credits = 8;
	p.spare = 4;
	p.period = 0;
	return p;
}

static uint32_t called;
static struct inlay_task *called_last;

static void done(struct inlay_task *task, uint64_t user_data, uint64_t host_user_data)
{
	(void)user_data;
	(void)host_user_data;
	called++;
	called_last = task;
	assert_int_not_equal(inlay_task_status(task), -EINPROGRESS);
}

/* ---- what is sent and what comes back ---- */

/* Every length that a message can have, inline and gathered */
static void lengths(void **state)
{
	struct inlay_task_host_params hp = host_params();
	struct inlay_task_worker_params wp = worker_params();
	struct bench *b = bench_make(&hp, &wp);
	struct inlay_task *t;
	uint32_t len;

	(void)state;
	called = 0;
	must(inlay_task_alloc(&b->host, ECHO, done, &t));
	for (len = 0; len <= 4064; len += len < 200 ? 1 : 61) {
		write_payload(t, len, len);
		must(inlay_task_set_destination(t, len));
		must(inlay_task_try_submit(t));
		assert_int_equal(inlay_task_submit(t), -EBUSY);
		assert_int_equal(inlay_task_release(t), -EPERM);
		until_done(b, t);
		check_response(t, len, len);
	}
	assert_int_equal(called, 200 + (4064 - 200) / 61 + 1);
	assert_int_equal(inlay_task_host_outstanding(&b->host), 0);
	must(inlay_task_release(t));
	assert_int_equal(inlay_task_release(t), -EBADFD);
	assert_int_equal(b->host.strays + b->conn.strays + b->worker.strays, 0);
	bench_free(b);
}

/* A list of the caller's, gathered; by a key; a response into the caller's buffer, copied and written */
static void by_key(void **state)
{
	struct inlay_task_host_params hp = host_params();
	struct inlay_task_worker_params wp = worker_params();
	struct bench *b = bench_make(&hp, &wp);
	struct inlay_buf *out = NULL, *in = NULL, *piece = NULL;
	struct inlay_task *t;
	uint32_t i, len;

	(void)state;
	must(inlay_task_alloc(&b->host, BACK, NULL, &t));
	/* 300 bytes in three pieces */
	must(inlay_inventory_get_by_data(b->inv, &b->large_map, b->large, 100, &out));
	for (i = 1; i < 3; i++) {
		must(inlay_inventory_get_by_data(b->inv, &b->large_map, b->large + 100 * i, 100, &piece));
		must(inlay_buf_chain_list(out, piece));
	}
	fill(b->large, 300, 77);
	must(inlay_task_set_payload(t, out));
	must(inlay_task_try_submit(t));
	until_done(b, t);
	check_response(t, 300, 77);
	must(inlay_buf_dec_refcount(out, NULL));

	must(inlay_inventory_get_by_addr(b->inv, &b->large_map, b->large, LARGE, &out));
	must(inlay_inventory_get_by_addr(b->inv, &b->large_map, b->large + LARGE, LARGE, &in));
	for (i = 0; i < 40; i++) {
		len = i < 20 ? 4000 + 10 * i : 1 + rnd_below(LARGE);
		fill(b->large, len, i);
		memset(b->large + LARGE, 0x55, LARGE);
		inlay_buf_set_data(out, b->large, len);
		inlay_buf_set_data(in, b->large + LARGE, 0);
		must(inlay_task_set_payload(t, out));
		must(inlay_task_set_response(t, in));
		must(inlay_task_try_submit(t));
		until_done(b, t);
		check_response(t, len, i);
		assert_true(all_bytes(b->large + LARGE + len, LARGE - len, 0x55));
		assert_int_equal(inlay_inventory_num_free(&b->pool->inventory), 2);
	}
	/* All windows are closed and free again */
	for (i = 0, len = b->host.free_window; len != INLAY_TASK_NONE; len = b->host.windows[len].next)
		i++;
	assert_int_equal(i, 4);
	/* Too long for what the handler may answer */
	must(inlay_task_set_response(t, NULL));
	must(inlay_task_set_plugin(t, ECHO));
	inlay_buf_set_data(out, b->large, 10000);
	must(inlay_task_submit(t));
	until_done(b, t);
	assert_int_equal(inlay_task_status(t), -EMSGSIZE);
	assert_int_equal(inlay_task_by(t), INLAY_TASK_BY_HANDLER);
	/* More than the worker reads */
	b->host.link.peer.largest = 9999;
	assert_int_equal(inlay_task_submit(t), -E2BIG);
	b->host.link.peer.largest = LARGE + 1;
	must(inlay_task_set_payload(t, NULL));
	must(inlay_task_release(t));
	must(inlay_buf_dec_refcount(out, NULL));
	must(inlay_buf_dec_refcount(in, NULL));
	bench_free(b);
}

/* ---- how a task ends ---- */

static void errors(void **state)
{
	struct inlay_task_host_params hp = host_params();
	struct inlay_task_worker_params wp = worker_params();
	struct bench *b = bench_make(&hp, &wp);
	struct inlay_task *t;
	uint8_t wrong[100];
	uint32_t i;

	(void)state;
	must(inlay_task_alloc(&b->host, FAIL, done, &t));
	write_payload(t, 1, 0);
	*(uint8_t *)inlay_buf_data(inlay_task_get_payload(t)) = EPERM;
	must(inlay_task_submit(t));
	until_done(b, t);
	assert_int_equal(inlay_task_status(t), -EPERM);
	assert_int_equal(inlay_task_by(t), INLAY_TASK_BY_HANDLER);
	/* No such plugin */
	must(inlay_task_set_plugin(t, 12345));
	must(inlay_task_submit(t));
	until_done(b, t);
	assert_int_equal(inlay_task_status(t), -ENOENT);
	assert_int_equal(inlay_task_by(t), INLAY_TASK_BY_WORKER);
	/* Malformed: what the host has put in the ring is changed before it rings; the context stays */
	for (i = 0; i < 4; i++) {
		static const uint8_t places[] = {1, 2, 3, 5};

		must(inlay_task_submit_quiet(t));
		inlay_sq_wqe(&b->host.link.sq, t->end - 1)[20 + places[i]] ^= 0x40;
		inlay_task_host_flush(&b->host);
		until_done(b, t);
		assert_int_equal(inlay_task_status(t), -EBADMSG);
		assert_int_equal(inlay_task_by(t), INLAY_TASK_BY_WORKER);
	}
	/* What has no head at all is answered too, though no task waits for it */
	memset(wrong, 0xee, sizeof(wrong));
	must(inlay_post_send_inline(&b->host.link.sq, wrong, 20, 0));
	inlay_sq_ring(&b->host.link.sq);
	for (i = 0; i < 2000 && !inlay_task_host_strays(&b->host); i++)
		both(b);
	assert_int_equal(inlay_task_host_strays(&b->host), 1);
	must(inlay_task_set_plugin(t, ECHO));
	must(inlay_task_submit(t));
	until_done(b, t);
	assert_int_equal(inlay_task_status(t), 0);
	/* Stalled: offered again, those behind it wait */
	stalls = 3;
	must(inlay_task_set_plugin(t, STALLS));
	must(inlay_task_submit(t));
	until_done(b, t);
	assert_int_equal(inlay_task_status(t), 0);
	assert_int_equal(stalls, 0);
	must(inlay_task_release(t));
	bench_free(b);
}

/* As many as may be, and one more; answered later, in another order; cancelled; over time */
static void limits(void **state)
{
	struct inlay_task_host_params hp = host_params();
	struct inlay_task_worker_params wp = worker_params();
	struct bench *b = bench_make(&hp, &wp);
	struct inlay_task *t[24], *none;
	uint32_t i, round;

	(void)state;
	for (i = 0; i < 24; i++)
		must(inlay_task_alloc(&b->host, KEEP, done, &t[i]));
	assert_int_equal(inlay_task_alloc(&b->host, 0, NULL, &none), -EAGAIN);
	for (round = 0; round < 20; round++) {
		num_kept = called = 0;
		for (i = 0; i < 8; i++) {
			write_payload(t[i], 8 + 300 * (i & 1), i);
			must(inlay_task_submit_quiet(t[i]));
		}
		assert_int_equal(inlay_task_submit(t[8]), -EAGAIN);
		assert_int_equal(inlay_task_host_outstanding(&b->host), 8);
		/* One is taken back before it was sent, and another takes its place */
		must(inlay_task_cancel(t[round % 8]));
		assert_int_equal(inlay_task_status(t[round % 8]), -EINPROGRESS);
		assert_int_equal(inlay_task_host_progress(&b->host, b->time, 16), 1);
		assert_int_equal(inlay_task_status(t[round % 8]), -ECANCELED);
		must(inlay_task_submit_quiet(t[8]));
		assert_int_equal(inlay_task_submit(t[9]), -EAGAIN);
		inlay_task_host_flush(&b->host);
		assert_int_equal(inlay_task_cancel(t[8]), -EBUSY);
		until_kept(b, 8);
		assert_int_equal(inlay_task_conn_kept(&b->conn), 8);
		settle();
		assert_int_equal(both(b), 0);
		for (i = 8; i--;)
			must(inlay_task_cmd_answer_data(kept[i], 0, kept[i]->payload, kept[i]->payload_len));
		for (i = 0; i < 9; i++)
			until_done(b, t[i]);
		assert_int_equal(called, 9);
		for (i = 0; i < 8; i++)
			if (i != round % 8)
				check_response(t[i], 8 + 300 * (i & 1), i);
		assert_int_equal(inlay_task_host_outstanding(&b->host), 0);
	}
	/* Over time: completed at once, dropped when the answer comes, and counted until then */
	num_kept = called = 0;
	for (i = 0; i < 4; i++) {
		must(inlay_task_set_deadline(t[i], b->time + 10 + i));
		must(inlay_task_submit(t[i]));
	}
	assert_int_equal(inlay_task_host_due(&b->host), b->time + 10);
	until_kept(b, 4);
	b->time += 11;
	assert_int_equal(both(b), 2);
	assert_int_equal(inlay_task_status(t[0]), -ETIMEDOUT);
	assert_int_equal(inlay_task_by(t[1]), INLAY_TASK_BY_HOST);
	assert_int_equal(inlay_task_status(t[2]), -EINPROGRESS);
	assert_int_equal(inlay_task_state(t[0]), INLAY_TASK_IDLE);
	assert_int_equal(inlay_task_host_outstanding(&b->host), 4);
	must(inlay_task_set_plugin(t[0], ECHO));
	must(inlay_task_submit(t[0]));
	for (i = 0; i < 4; i++)
		must(inlay_task_cmd_answer_data(kept[i], 0, "late", 4));
	until_done(b, t[0]);
	check_response(t[0], 8, 0);
	until_done(b, t[2]);
	assert_int_equal(inlay_task_response_len(t[2]), 4);
	until_done(b, t[3]);
	assert_int_equal(inlay_task_host_outstanding(&b->host), 0);
	assert_int_equal(inlay_task_host_strays(&b->host), 0);
	for (i = 0; i < 24; i++)
		must(inlay_task_release(t[i]));
	bench_free(b);
}

static uint32_t reused;

static void reusable(struct inlay_task *task, uint64_t user_data, uint64_t host_user_data)
{
	(void)user_data;
	(void)host_user_data;
	reused++;
	assert_int_equal(inlay_task_state(task), INLAY_TASK_IDLE);
}

/* Completed early with windows open: not to be used until the late answer, or until they are closed */
static void quarantine(void **state)
{
	struct inlay_task_host_params hp = host_params();
	struct inlay_task_worker_params wp = worker_params();
	struct inlay_buf *out = NULL, *in = NULL;
	struct inlay_task *t;
	struct bench *b;
	uint32_t i, way;

	(void)state;
	hp.reusable = reusable;
	for (way = 0; way < 3; way++) {
		b = bench_make(&hp, &wp);
		reused = called = 0;
		must(inlay_task_alloc(&b->host, KEEP, done, &t));
		must(inlay_inventory_get_by_data(b->inv, &b->large_map, b->large, 50000, &out));
		must(inlay_inventory_get_by_addr(b->inv, &b->large_map, b->large + LARGE, LARGE, &in));
		must(inlay_task_set_payload(t, out));
		must(inlay_task_set_response(t, in));
		must(inlay_task_set_deadline(t, 100));
		must(inlay_task_submit(t));
		until_kept(b, 1);
		b->time = 100;
		until_done(b, t);
		assert_int_equal(called, 1);
		assert_int_equal(inlay_task_status(t), -ETIMEDOUT);
		assert_int_equal(inlay_task_state(t), INLAY_TASK_QUARANTINE);
		assert_int_equal(inlay_task_submit(t), -EBUSY);
		assert_int_equal(inlay_task_release(t), -EBUSY);
		assert_int_equal(inlay_task_host_destroy(&b->host), -EBUSY);
		for (i = 0; i < 10; i++)
			both(b);
		assert_int_equal(reused, 0);
		if (way == 0)
			must(inlay_task_cmd_answer_buf(kept[0], 0, kept[0]->pulled));
		else if (way == 1)
			must(inlay_task_revoke(t));
		else
			must(inlay_task_host_stop(&b->host));
		for (i = 0; i < 5000 && !reused; i++)
			both(b);
		assert_int_equal(reused, 1);
		assert_int_equal(called, 1);
		if (way == 1) {
			/* A late access finds the door closed, and breaks the connection; the memory is as it was */
			memset(b->large + LARGE, 0x5a, LARGE);
			assert_int_equal(inlay_task_host_outstanding(&b->host), 1);
			must(inlay_task_cmd_answer_buf(kept[0], 0, kept[0]->pulled));
			for (i = 0; i < 5000 && !inlay_task_worker_gone(&b->worker); i++)
				both(b);
			assert_true(inlay_task_conn_is_broken(&b->conn));
			assert_true(all_bytes(b->large + LARGE, LARGE, 0x5a));
		} else if (way == 2) {
			assert_int_equal(inlay_task_host_broken(&b->host), -ECONNABORTED);
			assert_int_equal(inlay_task_submit(t), -ENOTCONN);
			inlay_task_cmd_answer(kept[0], 0);
		} else {
			must(inlay_task_set_plugin(t, BACK));
			must(inlay_task_submit(t));
			until_done(b, t);
			assert_int_equal(inlay_task_response_len(t), 50000);
			assert_memory_equal(b->large, b->large + LARGE, 50000);
		}
		must(inlay_task_release(t));
		must(inlay_buf_dec_refcount(out, NULL));
		must(inlay_buf_dec_refcount(in, NULL));
		bench_free(b);
	}
}

/* The worker's end goes while it has commands, all acknowledged: a probe finds out */
static void dead_worker(void **state)
{
	struct inlay_task_host_params hp = host_params();
	struct inlay_task_worker_params wp = worker_params();
	double end = now() + DEADLINE;
	struct inlay_task *t[5];
	struct bench *b;
	uint32_t i;

	(void)state;
	hp.period = 1000;
	hp.path.retry_count = 1;
	b = bench_make(&hp, &wp);
	called = 0;
	for (i = 0; i < 5; i++) {
		must(inlay_task_alloc(&b->host, KEEP, done, &t[i]));
		must(inlay_task_submit(t[i]));
	}
	until_kept(b, 5);
	/* Until nothing is on the wire: the first probe is acknowledged, and with it all before it */
	while (inlay_sq_pending(&b->host.link.sq)) {
		both(b);
		if (now() > end)
			fail_msg("the probe was not acknowledged");
	}
	assert_int_equal(called, 0);
	assert_int_equal(inlay_task_conn_destroy(&b->conn), -EBUSY);
	for (i = 0; i < 5; i++)
		assert_int_equal(inlay_task_cmd_answer(kept[i], 0), -ENOTCONN);
	must(inlay_task_conn_destroy(&b->conn));
	while (called < 5) {
		b->time += 100;
		step();
		if (softdev_present())
			softdev_run(); /* where no time passes, it is this that tries again */
		inlay_task_host_progress(&b->host, b->time, 16);
		if (now() > end)
			fail_msg("%u of 5 were completed", called);
	}
	for (i = 0; i < 5; i++) {
		assert_int_equal(inlay_task_status(t[i]), -ECONNRESET);
		assert_int_equal(inlay_task_by(t[i]), INLAY_TASK_BY_CONNECTION);
		must(inlay_task_release(t[i]));
	}
	for (i = 0; i < 50; i++) {
		step();
		assert_int_equal(inlay_task_host_progress(&b->host, b->time, 16), 0);
	}
	bench_free(b);
}

static uint32_t left;

static void again(struct inlay_task *task, uint64_t user_data, uint64_t host_user_data)
{
	assert_int_equal(host_user_data, 99);
	check_response(task, 8 + (uint32_t)user_data, (uint32_t)user_data);
	if (!left) {
		must(inlay_task_release(task));
		return;
	}
	left--;
	inlay_task_set_user_data(task, left % 400);
	write_payload(task, 8 + left % 400, left % 400);
	must(inlay_task_submit(task));
}

/* Submitted again by their callbacks, many times round every ring */
static void resubmit(void **state)
{
	struct inlay_task_host_params hp = host_params();
	struct inlay_task_worker_params wp = worker_params();
	double end = now() + 6 * DEADLINE;
	struct inlay_task *t;
	struct bench *b;
	uint32_t i;

	(void)state;
	hp.user_data = 99;
	b = bench_make(&hp, &wp);
	left = 5000;
	for (i = 0; i < 8; i++) {
		must(inlay_task_alloc(&b->host, ECHO, again, &t));
		inlay_task_set_user_data(t, i);
		write_payload(t, 8 + i, i);
		must(inlay_task_submit(t));
	}
	while (inlay_task_host_outstanding(&b->host)) {
		both(b);
		if (now() > end)
			fail_msg("%u are left", left);
	}
	assert_int_equal(left, 0);
	assert_int_equal(b->conn.commands, 5008);
	assert_int_equal(b->conn.answers, 5008);
	bench_free(b);
}

/* Sleeping on descriptors */
static void events(void **state)
{
	struct inlay_task_host_params hp = host_params();
	struct inlay_task_worker_params wp = worker_params();
	struct pollfd fd[2];
	struct inlay_task *t;
	struct bench *b;
	uint32_t i;

	(void)state;
	if (stepped())
		return;
	hp.events = wp.events = 1;
	b = bench_make(&hp, &wp);
	must(inlay_task_alloc(&b->host, ECHO, done, &t));
	memset(fd, 0, sizeof(fd));
	fd[0].fd = inlay_task_host_fd(&b->host);
	fd[1].fd = inlay_task_worker_fd(&b->worker);
	fd[0].events = fd[1].events = POLLIN;
	for (i = 0; i < 20; i++) {
		write_payload(t, i, i);
		must(inlay_task_submit(t));
		while (inlay_task_status(t) == -EINPROGRESS) {
			uint32_t n = inlay_task_worker_progress(&b->worker, 0, 16) + inlay_task_host_progress(&b->host, 0, 16);

			step();
			if (n || inlay_task_host_arm(&b->host) || inlay_task_worker_arm(&b->worker))
				continue;
			assert_true(poll(fd, 2, 10000) > 0);
			if (fd[0].revents)
				must(inlay_task_host_event(&b->host));
			if (fd[1].revents)
				must(inlay_task_worker_event(&b->worker));
		}
		check_response(t, i, i);
	}
	must(inlay_task_release(t));
	bench_free(b);
}

/* ---- worker groups: five members, whose allgather is a loop ---- */

#define MEMBERS 5u
#define STRIDE 512u

static uint8_t gathered[MEMBERS * STRIDE];
static uint32_t gathering;

static int gather(const void *from, void *to, size_t bytes, void *context, void **request)
{
	assert_int_equal(bytes, STRIDE);
	memcpy(gathered + *(uint32_t *)context * STRIDE, from, bytes);
	gathering++;
	*request = to;
	return 0;
}

static int gather_test(void *request)
{
	if (gathering < MEMBERS)
		return -EINPROGRESS;
	memcpy(request, gathered, sizeof(gathered));
	return 0;
}

static void group(void **state)
{
	struct inlay_worker_group g[MEMBERS];
	struct inlay_worker_segment s;
	uint32_t number[MEMBERS], i, k, len;
	struct inlay_worker_oob oob;
	const void *address;
	uint64_t id;

	(void)state;
	memset(&oob, 0, sizeof(oob));
	oob.allgather = gather;
	oob.test = gather_test;
	oob.members = MEMBERS;
	gathering = 0;
	for (i = 0; i < MEMBERS; i++) {
		const size_t size = inlay_worker_group_size(MEMBERS, STRIDE);
		void *memory = pages(size);

		number[i] = i;
		oob.context = &number[i];
		oob.index = i;
		assert_int_equal(inlay_worker_group_create(&g[i], memory, size - 1, STRIDE, &oob), -ENOBUFS);
		must(inlay_worker_group_create(&g[i], memory, size, STRIDE, &oob));
		/* Member i has i workers, and two segments */
		for (k = 0; k < i; k++)
			must(inlay_worker_group_add_worker(&g[i], 100 * i + k, "worker's address", 1 + k));
		struct inlay_worker_segment two[] = {{0x1000 * (i + 1), 0x1000, "memh", "mkey!", 4, 5}, {0x100000, 1, NULL, "key", 0, 3}};

		assert_int_equal(inlay_worker_group_add_buffer(&g[i], &two[0]), -EBADFD);
		must(inlay_worker_group_set_buffers_count(&g[i], 2));
		two[0].bytes = 0;
		assert_int_equal(inlay_worker_group_add_buffer(&g[i], &two[0]), -EINVAL);
		two[0].bytes = 0x1000;
		must(inlay_worker_group_add_buffer(&g[i], &two[0]));
		must(inlay_worker_group_add_buffer(&g[i], &two[1]));
		assert_int_equal(inlay_worker_group_add_buffer(&g[i], &two[1]), -ENOSPC);
		assert_int_equal(inlay_worker_group_add_worker(&g[i], 1, gathered, STRIDE), -ENOSPC);
		must(inlay_worker_group_start(&g[i]));
		assert_int_equal(inlay_worker_group_start(&g[i]), -EBADFD);
		assert_int_equal(inlay_worker_group_address(&g[i], 0, &address, &len), -EINVAL);
		if (i + 1 < MEMBERS)
			assert_int_equal(inlay_worker_group_progress(&g[i]), -EINPROGRESS);
	}
	/* One hears nonsense */
	gathered[3 * STRIDE + 50] ^= 1;
	assert_int_equal(inlay_worker_group_progress(&g[4]), -EBADMSG);
	assert_int_equal(inlay_worker_group_progress(&g[4]), -EBADMSG);
	gathered[3 * STRIDE + 50] ^= 1;
	for (i = 0; i + 1 < MEMBERS; i++) {
		uint32_t domain = 0, member;

		must(inlay_worker_group_progress(&g[i]));
		assert_int_equal(inlay_worker_group_workers(&g[i]), 10);
		for (member = 0; member < MEMBERS; member++) {
			for (k = 0; k < member; k++, domain++) {
				must(inlay_worker_group_address(&g[i], domain, &address, &len));
				assert_int_equal(len, 1 + k);
				assert_memory_equal(address, "worker's address", len);
				must(inlay_worker_group_id(&g[i], domain, &id));
				assert_int_equal(id, 100 * member + k);
				must(inlay_worker_group_segment(&g[i], domain, 0x1000 * (member + 1) + 0xfff, &s));
				assert_int_equal(s.memh_len, 4);
				assert_memory_equal(s.mkey, "mkey!", 5);
				assert_int_equal(inlay_worker_group_segment(&g[i], domain, 0x1000 * (member + 2), &s), -ENOENT);
				must(inlay_worker_group_segment(&g[i], domain, 0x100000, &s));
				assert_int_equal(s.mkey_len, 3);
			}
		}
		assert_int_equal(inlay_worker_group_address(&g[i], domain, &address, &len), -ENOENT);
	}
	for (i = 0; i < MEMBERS; i++)
		free(g[i].members);
}

/* ---- numbered objects ---- */

static void numbered_objects(void **state)
{
	struct handle memory[3];
	struct handles t;
	uint64_t h[4], old;
	int x[4];

	(void)state;
	handles_init(&t, memory, 3);
	assert_null(handles_find(&t, 0));
	h[0] = handles_add(&t, &x[0]);
	h[1] = handles_add(&t, &x[1]);
	h[2] = handles_add(&t, &x[2]);
	assert_true(h[0] && h[1] && h[2]);
	assert_int_equal(handles_add(&t, &x[3]), 0);
	assert_ptr_equal(handles_find(&t, h[1]), &x[1]);
	assert_null(handles_find(&t, h[1] + 5));
	old = h[1];
	assert_ptr_equal(handles_remove(&t, old), &x[1]);
	assert_null(handles_remove(&t, old));
	h[3] = handles_add(&t, &x[3]);
	assert_true(h[3] && h[3] != old);
	assert_null(handles_find(&t, old));
	assert_ptr_equal(handles_find(&t, h[3]), &x[3]);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(lengths),
		cmocka_unit_test(by_key),
		cmocka_unit_test(errors),
		cmocka_unit_test(limits),
		cmocka_unit_test(quarantine),
		cmocka_unit_test(dead_worker),
		cmocka_unit_test(resubmit),
		cmocka_unit_test(events),
		cmocka_unit_test(group),
		cmocka_unit_test(numbered_objects),
	};

	return cmocka_run_group_tests_name("task", tests, dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
