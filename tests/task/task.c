/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * task.c: command tasks, host and worker in one process on one device: every way that a payload and a response can take,
 * and sleeping. The random run is model.c, those with faults are faults.c.
 */
#include "scene.h"
#include "interleave.h"

/* What the echoing plugin has seen */
static uint32_t ups, downs, closed, opened;

static int back_or_echo(void *plugin, struct inlay_task_cmd *cmd)
{
	return cmd->pulled ? back(plugin, cmd) : echo(plugin, cmd);
}

static int open_it(void *argument, UNUSED struct inlay_task_worker *worker, void **plugin)
{
	opened++;
	*plugin = argument;
	return 0;
}

static void close_it(UNUSED void *plugin)
{
	closed++;
}

static void connection(UNUSED void *plugin, UNUSED struct inlay_task_conn *conn, UNUSED void **state, int up)
{
	ups += up != 0;
	downs += up == 0;
}

static const struct inlay_task_plugin plugin_counts = {INLAY_TASK_VERSION, "echo",
						       open_it, close_it, NULL, connection, echo, NULL};
static const struct inlay_task_plugin plugin_any = PLUGIN("any", back_or_echo);
static const struct inlay_task_entry entries[] = {{ECHO, &plugin_counts, NULL}, {KEEP, &plugin_keep, NULL},
						  {BACK, &plugin_any, NULL}};

static void params(void)
{
	plain();
	hp.tasks = 24;
	hp.path.timeout = 10;
}

static void begin(void)
{
	ups = downs = opened = closed = 0;
	scene_make(1, 2, entries, ARRAY(entries));
	assert_int_equal(opened, 1);
	assert_int_equal(ups, 1);
}

static void end_all(void)
{
	scene_free();
	assert_int_equal(closed, 1);
	assert_int_equal(downs, 1);
}

/* ---- what is sent and what comes back ---- */

/* Every length that a message can have, inline and gathered */
TEST(lengths)
{
	struct inlay_task *t = NULL, *more[64];
	uint32_t len, n;

	params();
	begin();
	completed = 0;
	assert_true(hp.tasks <= ARRAY(more));
	for (n = 0; n < hp.tasks; n++)
		must(inlay_task_alloc(&line->host, ECHO, NULL, &more[n]));
	assert_int_equal(inlay_task_alloc(&line->host, ECHO, NULL, &t), -EAGAIN);
	while (n)
		must(inlay_task_release(more[--n]));
	for (len = 0; len < ARRAY(entries); len++)
		assert_null(line->conn.states[len]);
	must(inlay_task_alloc(&line->host, ECHO, done, &t));
	for (len = 0; len <= 4064; len += len < 200 ? 1 : 61) {
		payload(t, len, len);
		t->ids.destination = len;
		must(inlay_task_submit(t, INLAY_RING));
		assert_int_equal(inlay_task_submit(t, INLAY_RING), -EBUSY);
		assert_int_equal(inlay_task_set_cb(t, done), -EBUSY);
		assert_int_equal(inlay_task_release(t), -EPERM);
		until_done(t);
		good(t, len, len);
	}
	assert_int_equal(completed, 200 + (4064 - 200) / 61 + 1);
	assert_int_equal(line->host.outstanding, 0);
	must(inlay_task_release(t));
	assert_int_equal(inlay_task_release(t), -EBADFD);
	assert_int_equal(line->host.strays + line->conn.strays + desk->worker.strays, 0);
	end_all();
}

/* A list of the caller's, gathered; by a key; a response into the caller's buffer, copied and written */
TEST(by_key)
{
	struct inlay_buf *from = NULL, *to = NULL, *piece = NULL;
	struct inlay_task *t = NULL;
	uint32_t i, len, n;

	params();
	begin();
	must(inlay_task_alloc(&line->host, ECHO, NULL, &t));
	/* 300 bytes in three pieces */
	must(inlay_inventory_get_by_data(inv, &outside.map, outside.at, 100, &from));
	for (i = 1; i < 3; i++) {
		must(inlay_inventory_get_by_data(inv, &outside.map, outside.at + 100 * i, 100, &piece));
		must(inlay_buf_chain_list(from, piece));
	}
	fill(outside.at, 300, 77);
	must(inlay_task_set_payload(t, from));
	must(inlay_task_submit(t, INLAY_RING));
	until_done(t);
	good(t, 300, 77);
	must(inlay_task_set_plugin(t, BACK));
	must(inlay_buf_dec_refcount(from, NULL));

	must(inlay_inventory_get_by_addr(inv, &outside.map, outside.at, LARGE, &from));
	must(inlay_inventory_get_by_addr(inv, &outside.map, outside.at + LARGE, LARGE, &to));
	for (i = 0; i < 40; i++) {
		len = i < 20 ? 4000 + 10 * i : 1 + rnd_below(LARGE);
		fill(outside.at, len, i);
		memset(outside.at + LARGE, 0x55, LARGE);
		inlay_buf_set_data(from, outside.at, len);
		inlay_buf_set_data(to, outside.at + LARGE, 0);
		must(inlay_task_set_payload(t, from));
		must(inlay_task_set_response(t, to));
		must(inlay_task_submit(t, INLAY_RING));
		until_done(t);
		good(t, len, i);
		/* A response that fits an answer is there */
		n = len > 4064 ? len : 0;
		assert_ptr_equal(inlay_task_response(t), n ? to : t->own_response);
		assert_true(all_bytes(outside.at + LARGE + n, LARGE - n, 0x55));
		assert_int_equal(inlay_pool_num_free(desk->pull), 2);
	}
	/* Too long for what the handler may answer */
	must(inlay_task_set_response(t, NULL));
	must(inlay_task_set_plugin(t, ECHO));
	inlay_buf_set_data(from, outside.at, 10000);
	must(inlay_task_submit(t, INLAY_RING));
	until_done(t);
	assert_int_equal(inlay_task_status(t), -EMSGSIZE);
	/* More than the worker reads */
	line->host.link.peer.largest = 9999;
	assert_int_equal(inlay_task_submit(t, INLAY_RING), -E2BIG);
	line->host.link.peer.largest = LARGE + 1;
	must(inlay_task_set_payload(t, NULL));
	must(inlay_buf_dec_refcount(from, NULL));
	/* An answer of as many pieces as may be, in the message and written; one more is too many */
	must(inlay_task_set_plugin(t, KEEP));
	must(inlay_task_set_response(t, to));
	for (len = 5; len <= 300; len += 295) {
		fill(outside.at, INLAY_TASK_GATHER * len, len);
		for (i = 0; i <= INLAY_TASK_GATHER; i++) {
			must(inlay_inventory_get_by_data(inv, &outside.map, outside.at + len * i, len, i ? &piece : &from));
			if (i)
				must(inlay_buf_chain_list(from, piece));
		}
		num_kept = 0;
		must(inlay_task_submit(t, INLAY_RING));
		until(num_kept);
		assert_int_equal(inlay_task_cmd_answer_buf(kept[0], 0, from), -E2BIG);
		must(inlay_buf_unchain_list(from, piece));
		must(inlay_buf_dec_refcount(piece, NULL));
		must(inlay_task_cmd_answer_buf(kept[0], 0, from));
		until_done(t);
		good(t, INLAY_TASK_GATHER * len, len);
		must(inlay_buf_dec_refcount(from, NULL));
	}
	must(inlay_task_release(t));
	must(inlay_buf_dec_refcount(to, NULL));
	end_all();
}

/* A command by keys, with one bit of its head or keys flipped: answered, and by whom */
TEST(flipped_bits)
{
	static const struct {
		uint32_t from, to;
		int status;
	} bits[] = {
		{8, 64, -EBADMSG},    /* kind, flags, length */
		{128, 192, -ENOENT},  /* plugin */
		{192, 256, 0},        /* destination */
		{288, 384, -EBADMSG}, /* the payload's key: zero, bytes */
		{416, 448, -EBADMSG}, /* the response's key: zero */
	};
	struct inlay_task *t;
	uint32_t i, bit, at;

	plain();
	usual_scene(1, 2);
	t = task(BACK);
	must(inlay_task_set_payload(t, out));
	must(inlay_task_set_response(t, in));
	for (i = 0; i < ARRAY(bits); i++)
		for (bit = bits[i].from; bit < bits[i].to; bit++) {
			must(inlay_task_submit(t, 0));
			at = INLAY_DS + 4 + bit / 8;
			((uint8_t *)inlay_sq_wqe(&line->host.link.sq, t->end - 2 + at / 64))[at % 64] ^= (uint8_t)(1u << bit % 8);
			inlay_sq_ring(&line->host.link.sq);
			until_done(t);
			if (inlay_task_status(t) != bits[i].status)
				fail_msg("bit %u: status %d", bit, inlay_task_status(t));
		}
	assert_int_equal(line->host.strays + line->conn.strays, 0);
	must(inlay_task_release(t));
	scene_free();
}

/* NOPs that no doorbell shows to the device, until so many WQEBBs are left; the last one returns them all */
static void fill_ring(struct inlay_sq *sq, uint32_t room)
{
	while (inlay_sq_room(sq) > room)
		must(inlay_post(sq, MLX5_OPCODE_NOP, NULL, inlay_sq_room(sq) == room + 1 ? INLAY_SIGNALED : 0));
}

/* Submits that find the ring full are tried again; windows are closed when there is room */
TEST(no_room)
{
	static const struct {
		uint32_t len, room;
		bool lent;
	} rows[] = {{8, 0, false}, {2000, 0, false}, {500, 1, true}, {LARGE, 7, true}};
	struct inlay_task *t;
	struct inlay_sq *sq;

	plain();
	usual_scene(1, 4);
	sq = &line->host.link.sq;
	t = task(ECHO);
	for (uint32_t i = 0; i < ARRAY(rows); i++) {
		if (rows[i].lent) {
			fill(outside.at, rows[i].len, i);
			must(inlay_buf_set_data(out, outside.at, rows[i].len));
			must(inlay_task_set_payload(t, out));
		} else {
			payload(t, rows[i].len, i);
		}
		if (rows[i].len == LARGE) {
			must(inlay_task_set_plugin(t, BACK));
			must(inlay_task_set_response(t, in));
		}
		fill_ring(sq, rows[i].room);
		assert_int_equal(inlay_task_submit(t, INLAY_RING), -EAGAIN);
		assert_int_equal(inlay_sq_room(sq), rows[i].room);
		inlay_sq_ring(sq);
		until(inlay_sq_room(sq) > sq->mask / 2);
		answered(t, rows[i].len, i);
	}
	must(inlay_task_set_plugin(t, KEEP));
	must(inlay_task_submit(t, INLAY_RING));
	until(num_kept && !inlay_sq_pending(sq));
	fill_ring(sq, 3);
	must(respond(kept[0], 0));
	until(t->state == INLAY_TASK_ENDING);
	turns(3);
	assert_int_equal(t->held & INLAY_TASK_HELD_KEYS, 3);
	assert_int_equal(inlay_task_status(t), -EINPROGRESS);
	inlay_sq_ring(sq);
	until_done(t);
	good(t, 0, 0);
	must(inlay_task_release(t));
	scene_free();
}

/* What fits neither a message nor a key, and memory that no window may be bound to */
TEST(never_fits)
{
	struct inlay_buf *list = NULL, *piece = NULL;
	struct inlay_task *t;
	uint32_t i, rkey;

	plain();
	usual_scene(1, 4);
	t = task(ECHO);
	for (i = 0; i <= hp.max_gather; i++) {
		must(inlay_inventory_get_by_data(inv, &outside.map, outside.at + 2 * LARGE + 10 * i, 10, &piece));
		if (i)
			must(inlay_buf_chain_list(list, piece));
		else
			list = piece;
	}
	must(inlay_task_set_payload(t, list));
	assert_int_equal(inlay_task_submit(t, INLAY_RING), -E2BIG);
	must(inlay_task_set_payload(t, out));
	rkey = t->rkey[0];
	t->rkey[0] = 0;
	assert_int_equal(inlay_task_submit(t, INLAY_RING), -E2BIG);
	t->rkey[0] = rkey;
	must(inlay_pool_alloc(desk->pool, &piece));
	must(inlay_buf_set_data(piece, inlay_buf_head(piece), LARGE));
	must(inlay_task_set_payload(t, piece));
	assert_int_equal(inlay_task_submit(t, INLAY_RING), -EPERM);
	must(inlay_task_set_payload(t, NULL));
	must(inlay_task_set_response(t, piece));
	assert_int_equal(inlay_task_submit(t, INLAY_RING), -EPERM);
	must(inlay_task_set_response(t, NULL));
	payload(t, 100, 1);
	answered(t, 100, 1);
	must(inlay_task_release(t));
	must(inlay_buf_dec_refcount(list, NULL));
	must(inlay_buf_dec_refcount(piece, NULL));
	scene_free();
}

/* Sleeping on descriptors */
TEST(events)
{
	struct pollfd fd[2] = {};
	struct inlay_task *t = NULL;
	struct ibv_cq *cq;
	void *context;

	params();
	if (stepped())
		return;
	hp.channel = ibv_create_comp_channel(dev.ctx);
	wp.channel = ibv_create_comp_channel(dev.ctx);
	assert_true(hp.channel && wp.channel);
	begin();
	must(inlay_task_alloc(&line->host, ECHO, done, &t));
	fd[0].fd = hp.channel->fd;
	fd[1].fd = wp.channel->fd;
	fd[0].events = fd[1].events = POLLIN;
	for (uint32_t i = 0; i < 20; i++) {
		payload(t, i, i);
		must(inlay_task_submit(t, INLAY_RING));
		while (inlay_task_status(t) == -EINPROGRESS) {
			uint32_t n = inlay_task_worker_progress(&desk->worker, 16) + inlay_task_host_progress(&line->host, 16);

			step();
			if (n || desk->worker.dirty)
				continue;
			must(inlay_cq_arm(&line->host.cq, 0));
			must(inlay_cq_arm(&desk->worker.cq, 0));
			if (inlay_cq_peek(&line->host.cq) || inlay_cq_peek(&desk->worker.cq))
				continue;
			assert_true(poll(fd, 2, (int)(1000 * DEADLINE)) > 0);
			for (uint32_t k = 0; k < 2; k++)
				if (fd[k].revents) {
					must(ibv_get_cq_event(k ? wp.channel : hp.channel, &cq, &context));
					inlay_cq_event(k ? &desk->worker.cq : &line->host.cq);
					ibv_ack_cq_events(cq, 1);
				}
		}
		good(t, i, i);
	}
	must(inlay_task_release(t));
	end_all();
	must(ibv_destroy_comp_channel(hp.channel));
	must(ibv_destroy_comp_channel(wp.channel));
}

static uint8_t *slot, was_there[64];

static void overwrite_slot(void)
{
	memcpy(was_there, slot, sizeof(was_there));
	memset(slot, 0x5a, sizeof(was_there));
}

static void one_of_the_host(void)
{
	inlay_task_host_progress(&line->host, 1);
}

static void one_of_the_worker(void)
{
	inlay_task_worker_progress(&desk->worker, 1);
}

/* Returns whether one was freed */
static uint32_t one_completion(struct inlay_cq *cq, void (*progress)(void))
{
	uint32_t freed;

	slot = (uint8_t *)(uintptr_t)inlay_cq_peek(cq);
	if (!slot) {
		progress();
		return 0;
	}
	freed = (uint32_t)interleave_behind(progress, overwrite_slot, cq->dbrec);
	memcpy(slot, was_there, sizeof(was_there)); /* with its owner bit */
	return freed;
}

/* The device may overwrite a completion as soon as the record says that it is free */
TEST(freed_completions)
{
	uint32_t len, commands = 0, answers = 0;
	struct inlay_task *t;

	interleave_possible();
	plain();
	usual_scene(1, 4);
	t = task(ECHO);
	interleave_begin(NULL);
	for (len = 0; len < 200; len += 11) {
		payload(t, len, len);
		must(inlay_task_submit(t, INLAY_RING));
		for (double end = now() + DEADLINE; inlay_task_status(t) == -EINPROGRESS;) {
			assert_true(now() < end);
			step();
			commands += one_completion(&desk->worker.cq, one_of_the_worker);
			answers += one_completion(&line->host.cq, one_of_the_host);
		}
		good(t, len, len);
	}
	interleave_end();
	assert_true(commands && answers); /* nearly all; one may come after the look at the CQ */
	assert_int_equal(line->host.strays + line->conn.strays + desk->worker.strays, 0);
	must(inlay_task_release(t));
	scene_free();
}

int main(void)
{
	return run_all(dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
