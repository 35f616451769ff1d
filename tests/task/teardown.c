/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * teardown.c: the end of a connection, completion by completion: what the device may still use is given back when it has given back all
 * that was posted, and not before: buffers and windows of a host's tasks, the worker's elements that payloads are read to and that answers
 * are sent from. And queue pairs and regions that cannot be destroyed at once. Most of it takes a stepped device.
 */
#include "scene.h"
#include "holds.h"

#define ELEMENTS 4u     /* of each of the worker's pools */

static struct inlay_buf *piece;
static uint32_t downs;

/* What has become of the first line's tasks */
static struct {
	uint32_t times;
	int status;
} ends[TASKS];

/* ---- the rig ---- */

static void count_downs(UNUSED void *plugin, struct inlay_task_conn *conn, UNUSED void **state, int up)
{
	downs += !up && lines[0] && conn == &lines[0]->conn;
}

static const struct inlay_task_plugin plugin_counts = {INLAY_TASK_VERSION, "echo", NULL, NULL, NULL, count_downs,
						       echo, NULL};
static const struct inlay_task_entry entries[] = {{ECHO, &plugin_counts, NULL}, {KEEP, &plugin_keep, NULL}};

static void note_end(struct inlay_task *task, uint64_t user_data, uint64_t host_user_data)
{
	assert_int_equal(host_user_data, 0);
	ends[user_data].times++;
	ends[user_data].status = inlay_task_status(task);
}

static uint32_t all_ended(void)
{
	uint32_t i, n = 0;

	for (i = 0; i < TASKS; i++)
		n += ends[i].times;
	return n;
}

static void teardown_scene(uint32_t num_lines)
{
	plain();
	hp.path.timeout = wp.path.timeout = 8;
	hp.path.retry_count = wp.path.retry_count = 1;
	retries = true;
	downs = 0;
	memset(ends, 0, sizeof(ends));
	scene_make(num_lines, ELEMENTS, entries, ARRAY(entries));
	must(inlay_inventory_get_by_data(inv, &outside.map, outside.at + 2 * LARGE, 500, &piece));
}

static void teardown_free(void)
{
	while (num_kept)
		respond(kept[--num_kept], 0);
	must(inlay_buf_dec_refcount(piece, NULL));
	scene_free();
}

static struct inlay_task *numbered_task(uint64_t plugin, uint32_t number)
{
	struct inlay_task *t = NULL;

	must(inlay_task_alloc(&line->host, plugin, note_end, &t));
	t->user_data = number;
	return t;
}

/*
 * Three tasks, kept when they get there: the first by keys with both windows open, the second gathered from the caller's memory, and the
 * third copied into the WQE, unsignaled.
 */
static void submit_three(struct inlay_task **t)
{
	for (uint32_t i = 0; i < 3; i++)
		t[i] = numbered_task(KEEP, i);
	must(inlay_task_set_payload(t[0], out));
	must(inlay_task_set_response(t[0], in));
	must(inlay_task_set_payload(t[1], piece));
	for (uint32_t i = 0; i < 3; i++)
		must(inlay_task_submit(t[i], INLAY_RING));
}

static uint32_t number_of(struct ibv_cq *cq)
{
	struct mlx5dv_obj obj = {};
	struct mlx5dv_cq dv = {};

	obj.cq.in = cq;
	obj.cq.out = &dv;
	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ));
	return dv.cqn;
}

static uint32_t windows(void)
{
	uint32_t i, n = 4;

	for (i = 0; i < line->host.num; i++)
		n -= (line->host.tasks[i].held & 1u) + (line->host.tasks[i].held >> 1 & 1u);
	return n;
}

/* The QP does all that it has to do, and one completion is there, if any. Returns whether; *send: of a send */
static bool one_completion(struct inlay_task_link *l, struct ibv_cq *ibcq, const struct inlay_cq *cq, bool *send)
{
	const struct mlx5_cqe64 *cqe;

	while (softdev_execute(l->qp->qp_num, 100) > 0)
		;
	if (!softdev_complete(number_of(ibcq), 1))
		return false;
	cqe = made(inlay_cq_peek(cq));
	*send = cqe->op_own >> 4 == MLX5_CQE_REQ || cqe->op_own >> 4 == MLX5_CQE_REQ_ERR;
	return true;
}

/* ---- a host ---- */

TEST(host_gets_all_back)
{
	struct inlay_task *t[3];
	uint32_t sent, n, i, all;
	bool send;

	if (!stepped())
		return; /* completions do not come one by one */
	for (sent = 0; sent < 2; sent++) {
		teardown_scene(1);
		submit_three(t);
		all = 2 + 3; /* binds and sends */
		if (sent) {
			until(num_kept == 3);
			turn();
			/* The last one is done, and nobody says so */
			assert_int_equal(inlay_sq_pending(&line->host.link.sq), 1);
			all = 0;
		}
		must(inlay_task_cancel(t[1], 0));
		must(inlay_task_link_break(&line->host.link));
		all += TASKS + 1; /* receives, and the WQE that tells of those that are unsignaled */
		for (n = 1; one_completion(&line->host.link, line->host.ibcq, &line->host.cq, &send); n++) {
			assert_int_equal(all_ended(), 0);
			assert_int_equal(windows(), 2);
			for (i = 0; i < 3; i++) {
				assert_int_equal(inlay_task_release(t[i]), -EPERM);
				assert_int_equal(inlay_task_submit(t[i], INLAY_RING), -EBUSY);
			}
			assert_int_equal(inlay_task_host_destroy(&line->host), -EBUSY);
			inlay_task_host_progress(&line->host, 16);
			assert_int_equal(line->host.limit, 0);
		}
		assert_int_equal(n - 1, all);
		assert_int_equal(windows(), 4);
		for (i = 0; i < 3; i++) {
			assert_int_equal(ends[i].times, 1);
			assert_int_equal(ends[i].status, i == 1 ? -ECANCELED : -ECONNABORTED);
			assert_int_equal(inlay_task_submit(t[i], INLAY_RING), -ENOTCONN);
			must(inlay_task_release(t[i]));
		}
		teardown_free();
	}
}

/* ---- a worker ---- */

/* A command of the first line's, taken by the worker, whose own WQEs the device does not touch */
static void bring(struct inlay_task *t)
{
	must(inlay_task_submit(t, INLAY_RING));
	for (uint32_t i = 0; i < 3; i++) {
		while (softdev_execute(line->host.link.qp->qp_num, 100) > 0)
			;
		softdev_complete(0, 100);
		inlay_task_worker_progress(&desk->worker, 16);
		inlay_task_host_progress(&line->host, 16);
	}
}

/* The connection is broken: the pool is whole again with the whole-th completion of a send, of so many, and not before */
static void whole_with(struct inlay_pool *pool, uint32_t whole, uint32_t sends, uint32_t receives)
{
	struct inlay_task_conn *c = &line->conn;
	uint32_t s = 0, r = 0;
	bool send;

	assert_int_equal(inlay_pool_num_free(pool), ELEMENTS - 1);
	while (one_completion(&c->link, desk->worker.ibcq, &desk->worker.cq, &send)) {
		inlay_task_worker_progress(&desk->worker, 16);
		s += send;
		r += !send;
		if (inlay_pool_num_free(pool) != (s < whole ? ELEMENTS - 1 : ELEMENTS))
			fail_msg("after %u completions of sends and %u of receives %u elements are free; all were due with %u", s, r,
				 inlay_pool_num_free(pool), whole);
	}
	assert_int_equal(s, sends);
	assert_int_equal(r, receives);
	assert_int_equal(inlay_pool_num_free(pool), ELEMENTS);
	assert_true(c->broken);
	assert_int_equal(inlay_sq_pending(&c->link.sq), 0);
}

/* An answer, and a payload that is being read behind it. destroyed: it ends before that, and only with its queue pair */
static void read_in_mid_air(bool destroyed)
{
	struct inlay_task *t[2];
	bool send;

	teardown_scene(1);
	t[0] = numbered_task(KEEP, 0);
	t[1] = numbered_task(KEEP, 1);
	bring(t[0]);
	assert_int_equal(num_kept, 1);
	must(respond(kept[--num_kept], 0));
	must(inlay_task_set_payload(t[1], out));
	bring(t[1]);
	assert_int_equal(num_kept, 0);
	assert_int_equal(line->conn.pulls, 1);
	must(inlay_task_link_break(&line->conn.link));
	if (!destroyed) {
		/* The answer, the read, and the WQE behind them */
		whole_with(desk->pull, 3, 3, TASKS - 1);
	} else {
		assert_true(one_completion(&line->conn.link, desk->worker.ibcq, &desk->worker.cq, &send));
		inlay_task_worker_progress(&desk->worker, 16);
		assert_true(line->conn.broken);
		assert_int_equal(inlay_pool_num_free(desk->pull), ELEMENTS - 1);
		hold_qp = 1;
		assert_int_equal(inlay_task_conn_destroy(&line->conn), -EBUSY);
		assert_int_equal(hold_qp, 0);
		assert_int_equal(inlay_pool_num_free(desk->pull), ELEMENTS - 1);
		inlay_task_worker_progress(&desk->worker, 16);
		assert_int_equal(inlay_pool_num_free(desk->pull), ELEMENTS - 1);
		must(inlay_task_conn_destroy(&line->conn));
		assert_int_equal(inlay_pool_num_free(desk->pull), ELEMENTS);
	}
	assert_int_equal(line->conn.pulls, 0);
	must(inlay_task_link_break(&line->host.link));
	until(all_ended() == 2 && t[1]->state == INLAY_TASK_IDLE);
	teardown_free();
}

TEST(payload_being_read)
{
	if (!stepped())
		return;
	read_in_mid_air(false);
	read_in_mid_air(true);
}

/* An answer from an element, with short ones before and behind. sent: the device has done all of it, and the last one is unsignaled */
static void answer_in_mid_air(bool sent)
{
	struct inlay_task *t[3];
	struct inlay_buf *buf = NULL;

	teardown_scene(1);
	for (uint32_t i = 0; i < 3; i++) {
		t[i] = numbered_task(KEEP, i);
		bring(t[i]);
		assert_int_equal(num_kept, i + 1);
	}
	must(respond(kept[0], 0));
	must(inlay_pool_alloc(desk->pool, &buf));
	inlay_buf_set_data(buf, inlay_buf_head(buf), 3000);
	must(inlay_task_cmd_answer_buf(kept[1], 0, buf));
	must(inlay_buf_dec_refcount(buf, NULL));
	must(respond(kept[2], 0));
	num_kept = 0;
	inlay_task_worker_flush_(&desk->worker);
	if (sent)
		while (softdev_execute(line->conn.link.qp->qp_num, 100) > 0)
			;
	must(inlay_task_link_break(&line->conn.link));
	/* As a fourth, the WQE behind them; or two: the one that was signaled, which comes as it was sent, and that */
	whole_with(desk->pool, sent ? 1 : 4, sent ? 2 : 4, TASKS);
	must(inlay_task_link_break(&line->host.link));
	until(all_ended() == 3);
	teardown_free();
}

TEST(answer_being_sent)
{
	if (!stepped())
		return;
	answer_in_mid_air(false);
	answer_in_mid_air(true);
}

/* ---- what cannot be destroyed at once ---- */

static void served(struct line *l)
{
	struct inlay_task *t = NULL;

	must(inlay_task_alloc(&l->host, ECHO, NULL, &t));
	for (uint32_t i = 0; i < 2 * TASKS; i++) {
		struct inlay_buf *buf = inlay_task_payload(t);

		inlay_buf_set_data(buf, inlay_buf_head(buf), 100 * i);
		fill(inlay_buf_data(buf), 100 * i, i);
		must(inlay_task_submit(t, INLAY_RING));
		until(inlay_task_status(t) != -EINPROGRESS);
		must(inlay_task_status(t));
		buf = inlay_task_response(t);
		assert_int_equal(inlay_buf_data_len(buf), 100 * i);
		assert_int_equal(differs(inlay_buf_data(buf), 100 * i, i), 100 * i);
	}
	must(inlay_task_release(t));
}

/* what: 0 the queue pair, 1 the region */
static void busy_connection(uint32_t what)
{
	struct inlay_task *t[3];

	teardown_scene(2);
	submit_three(t);
	until(num_kept == 3);
	/* Answered, and not rung for: something is to be done for it */
	while (num_kept)
		must(respond(kept[--num_kept], 0));
	assert_ptr_equal(desk->worker.dirty, &line->conn);
	for (uint32_t i = 0; i < 2; i++) {
		*(what ? &hold_mr : &hold_qp) = 1;
		assert_int_equal(inlay_task_conn_destroy(&line->conn), -EBUSY);
		assert_int_equal(hold_qp + hold_mr, 0);
		assert_true(line->conn.broken);
		assert_int_equal(downs, 1);
		assert_int_equal(desk->worker.num_conns, 2 - what);
		/* The worker goes on, with the other one and with what this one's queue pair still says */
		served(lines[1]);
		inlay_task_worker_flush_(&desk->worker);
	}
	must(inlay_task_conn_destroy(&line->conn));
	assert_int_equal(desk->worker.num_conns, 1);
	assert_int_equal(downs, 1);
	assert_int_equal(inlay_pool_num_free(desk->pull), ELEMENTS);
	served(lines[1]);
	/* Its place is free */
	must(inlay_task_conn_create(&line->conn, line->conn_memory, inlay_task_conn_size(&desk->params), &desk->worker,
				    &line->host.link.self, INLAY_TASK_ADDRESS, NULL));
	served(lines[1]);
	/* Its host finds out, or is told */
	must(inlay_task_link_break(&line->host.link));
	until(all_ended() == 3);
	for (uint32_t i = 0; i < 3; i++) {
		until(t[i]->state == INLAY_TASK_IDLE);
		assert_int_equal(ends[i].times, 1);
		assert_int_equal(ends[i].status, -ECONNABORTED);
	}
	assert_int_equal(desk->worker.strays, 0);
	teardown_free();
}

TEST(connection_not_destroyed)
{
	busy_connection(0);
	busy_connection(1);
}

/* At first while it is connected, with a list behind a task's own buffer: that is the caller's again */
TEST(host_not_destroyed)
{
	struct inlay_inventory *near = NULL;
	struct inlay_buf *last = NULL;
	struct inlay_task *t[3];
	uint32_t *const held[] = {&hold_qp, &hold_mr, &hold_qp, &hold_cq};

	for (uint32_t what = 0; what < ARRAY(held); what++) {
		teardown_scene(1);
		if (what) {
			submit_three(t);
			until(num_kept == 3);
			must(inlay_task_link_break(&line->host.link));
			until(all_ended() == 3);
			for (uint32_t i = 0; i < 3; i++)
				until(t[i]->state == INLAY_TASK_IDLE);
		} else {
			t[0] = numbered_task(ECHO, 0);
			must(inlay_inventory_create(line->near_memory, inlay_inventory_size(NEAR), NEAR, &near));
			must(inlay_inventory_start(near));
			must(inlay_inventory_get_by_data(near, &outside.map, outside.at, 500, &last));
			must(inlay_buf_chain_list(inlay_task_payload(t[0]), last));
		}
		*held[what] = 1;
		assert_int_equal(inlay_task_host_destroy(&line->host), -EBUSY);
		assert_int_equal(*held[what], 0);
		if (held[what] == &hold_qp) {
			/* It is there, and is told that it is no longer connected */
			for (uint32_t i = 0; i < 4; i++)
				turn();
			assert_int_equal(line->host.limit, 0);
			assert_int_equal(inlay_task_submit(t[0], INLAY_RING), -ENOTCONN);
		}
		must(inlay_task_host_destroy(&line->host));
		if (!what) {
			assert_int_equal(inlay_buf_refcount(last), 1);
			assert_true(inlay_buf_is_first(last) && !inlay_buf_next(last));
			must(inlay_buf_dec_refcount(last, NULL));
			must(inlay_inventory_destroy(near));
		}
		desk->params.connections = 0; /* no turn for a host that is not there */
		teardown_free();
	}
}

int main(void)
{
	return run_all(dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
