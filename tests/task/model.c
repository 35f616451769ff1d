/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model.c: the life of command tasks: random commands of four hosts to two workers, each host with a
 * connection to either, beside a model that knows of each command what must become of it: mixed sizes
 * by every way, answers at once and later in any order, errors, plugins that there are not,
 * cancels, callbacks that submit, release, cancel and stop, connections that end. Each command that was
 * submitted is completed once, with its own user data and response.
 *
 * TASK_OPS: commands of the random run, 20000; a tenth of it, but no fewer than 20000, in the runs on
 * other devices; of that, a quarter on the trapping one
 */
#include "common.h"
#include "rig.h"

#define HOSTS 4u
#define WORKERS 2u
#define LINES (HOSTS * WORKERS)
#define TASKS 16u
#define IN_FLIGHT 8u
#define RECORDS 1024u
#define PIECE 600u
#define PROMPT 0xfeedfacecafef00dull
#define LATER 3u
#define UNKNOWN 4u

enum payload { OWN, LIST, KEYED };
enum response { IN_ANSWER, GRANTED };

/* A command: kept for as long as the worker may still come back to it */
struct record {
	uint32_t seq;
	uint32_t len;
	uint32_t response_len;
	int status;
	uint32_t stalls;
	uint64_t plugin;
	bool taken, prompt;
};

struct model {
	struct inlay_task *task;
	struct record *record;          /* NULL: not submitted */
	uint64_t user_data;
	bool cancelled;
	enum payload payload;
	enum response response;
	struct inlay_buf *whole, *list, *large;
	uint8_t *memory;
};

struct road {
	struct line line;
	struct model models[TASKS];
	struct record records[RECORDS];
	struct region region;
	struct inlay_inventory *inv;
	void *inv_memory;
	uint32_t index;
	uint32_t seq;                   /* of the next command */
	uint32_t last_taken;            /* by a handler */
	uint32_t last_prompt;           /* completed, of those whose answers come in order */
	uint32_t in_order;              /* since then, one was not of that kind */
	uint64_t submitted, completed;
	bool stopping;
};

static struct road *roads[LINES];
static struct desk *desks[WORKERS];
static struct {
	struct inlay_task_cmd *cmd;
	struct record *record;
	struct road *road;
} later[LINES * 2 * IN_FLIGHT];
static uint32_t num_later;
static uint64_t left, total_completed, ends, cancels, written, refusals;

static uint32_t seed_of(const struct road *r, const struct record *rec)
{
	return rec->seq * LINES + r->index;
}

/* Room that a task's response has in an answer */
static uint32_t room_of(const struct road *r)
{
	return r->line.conn.response_max;
}

/* ---- its plugins ---- */

/* false: no buffer just now */
static bool give(struct road *r, struct record *rec, struct inlay_task_cmd *cmd)
{
	uint32_t seed = ~seed_of(r, rec), len = rec->response_len;
	struct desk *d = r->line.desk;
	struct inlay_buf *buf;
	bool broken = r->line.conn.broken;
	static uint8_t bytes[LARGE];
	int err;

	if (len > cmd->response_max || (len > 100 && rnd_below(4) == 0)) {
		if (inlay_pool_alloc(d->pool, &buf))
			return false;
		inlay_buf_set_data(buf, inlay_buf_head(buf), len);
		fill(inlay_buf_data(buf), len, seed);
		assert_true(len <= cmd->conn->answer_max || len <= cmd->response_key.bytes);
		err = inlay_task_cmd_answer_buf(cmd, rec->status, buf);
		must(inlay_buf_dec_refcount(buf, NULL));
	} else if (rnd_below(2)) {
		fill(bytes, len, seed);
		err = inlay_task_cmd_answer(cmd, rec->status, bytes, len);
	} else {
		fill(cmd->response, len, seed);
		cmd->response_len = len;
		err = respond(cmd, rec->status);
	}
	assert_int_equal(err, broken ? -ENOTCONN : 0);
	return true;
}

/* The command that it is, given once, in order, with the payload that it had */
static struct record *take(struct inlay_task_cmd *cmd, struct road **road)
{
	uint32_t seq = (uint32_t)cmd->ids.destination;
	struct record *rec;
	struct road *r;

	assert_true(cmd->ids.destination >> 32 < LINES);
	r = *road = roads[cmd->ids.destination >> 32];
	rec = &r->records[seq % RECORDS];
	assert_ptr_equal(cmd->conn, &r->line.conn);
	assert_int_equal(rec->seq, seq);
	assert_true(rec->plugin == cmd->ids.plugin);
	assert_int_equal(cmd->payload_len, rec->len);
	if (rec->stalls)
		return rec;
	assert_false(rec->taken);
	rec->taken = true;
	if ((int32_t)(seq - r->last_taken) <= 0)
		fail_msg("command %u came after %u", seq, r->last_taken);
	r->last_taken = seq;
	assert_int_equal(differs(cmd->payload, rec->len, seed_of(r, rec)), rec->len);
	return rec;
}

static int put_off(struct road *r, struct record *rec, struct inlay_task_cmd *cmd)
{
	assert_true(num_later < ARRAY(later));
	later[num_later].cmd = cmd;
	later[num_later].record = rec;
	later[num_later++].road = r;
	return INLAY_TASK_LATER;
}

static int prompt(void *plugin, struct inlay_task_cmd *cmd)
{
	struct road *r;
	struct record *rec = take(cmd, &r);

	assert_ptr_equal(plugin, &desks);
	if (rec->stalls) {
		rec->stalls--;
		return INLAY_TASK_STALL;
	}
	if (rec->response_len <= cmd->response_max && rnd_below(2)) {
		fill(cmd->response, rec->response_len, ~seed_of(r, rec));
		cmd->response_len = rec->response_len;
		return rec->status;
	}
	if (give(r, rec, cmd))
		return INLAY_TASK_LATER;
	rec->prompt = false;
	return put_off(r, rec, cmd);
}

static int sometime(void *plugin, struct inlay_task_cmd *cmd)
{
	struct road *r;
	struct record *rec = take(cmd, &r);

	assert_null(plugin);
	if (rec->stalls) {
		rec->stalls--;
		return INLAY_TASK_STALL;
	}
	return put_off(r, rec, cmd);
}

/* From a plugin's progress, and from outside */
static uint32_t answer_some(uint32_t most)
{
	uint32_t i, n;

	for (n = 0; n < most && num_later; n++) {
		i = rnd_below(num_later);
		if (!give(later[i].road, later[i].record, later[i].cmd))
			break;
		later[i] = later[--num_later];
	}
	return n;
}

static uint32_t sometime_progress(void *plugin)
{
	assert_null(plugin);
	return answer_some(rnd_below(3));
}

static const struct inlay_task_plugin plugin_prompt = {INLAY_TASK_VERSION, "prompt",
						       NULL, NULL, NULL, NULL, prompt, NULL};
static const struct inlay_task_plugin plugin_later = {INLAY_TASK_VERSION, "later",
						      NULL, NULL, NULL, NULL, sometime, sometime_progress};
static const struct inlay_task_entry model_plugins[] = {{PROMPT, &plugin_prompt, &desks}, {LATER, &plugin_later, NULL}};

/* ---- its hosts ---- */

static struct model *model_of(const struct road *r, const struct inlay_task *t)
{
	struct model *m = (struct model *)&r->models[(uint32_t)t->ids.context];

	assert_ptr_equal(m->task, t);
	return m;
}

/* How much of a list each of its pieces has */
static void list_lengths(struct inlay_buf *list, uint32_t len)
{
	uint32_t n, last = 2;

	for (struct inlay_buf *buf = list; buf; buf = inlay_buf_next(buf), last--) {
		n = last ? rnd_below((len < PIECE ? len : PIECE) + 1) : len;
		if (len - n > last * PIECE)
			n = len - last * PIECE;
		inlay_buf_set_data(buf, inlay_buf_head(buf), n);
		len -= n;
	}
	assert_int_equal(len, 0);
}

static void fill_list(struct inlay_buf *list, uint32_t len, uint32_t seed)
{
	static uint8_t bytes[3 * PIECE];
	const uint8_t *at = bytes;

	fill(bytes, len, seed);
	for (; list; list = inlay_buf_next(list)) {
		memcpy(inlay_buf_data(list), at, inlay_buf_data_len(list));
		at += inlay_buf_data_len(list);
	}
}

/* Submits a task that is idle, by any way. false: there was no room */
static bool send_one(struct road *r, struct model *m)
{
	struct record *rec = &r->records[r->seq % RECORDS], old = *rec;
	struct inlay_task_host *h = &r->line.host;
	struct inlay_task *t = m->task;
	uint32_t way = rnd_below(100), room = room_of(r), pi = h->link.sq.pi, i;
	struct inlay_buf *buf;
	int err;

	assert_null(m->record);
	rec->seq = r->seq;
	rec->taken = false;
	rec->stalls = rnd_below(40) ? 0 : 1 + rnd_below(2);
	rec->status = rnd_below(8) ? 0 : -1 - (int)rnd_below(INLAY_TASK_STATUS_MAX);
	rec->plugin = way < 60 ? PROMPT : way < 97 ? LATER : UNKNOWN;
	rec->prompt = rec->plugin == PROMPT;
	way = rnd_below(100);
	m->response = way < 80 ? IN_ANSWER : GRANTED;
	way = rnd_below(100);
	rec->response_len = way < 40 ? rnd_below(29) : way < 80 ? rnd_below(200) : rnd_below(room + 1);
	if (m->response == GRANTED && rnd_below(2))
		rec->response_len = rnd_below(LARGE + 1);
	way = rnd_below(100);
	m->payload = way < 80 ? OWN : way < 90 ? LIST : KEYED;
	if (m->payload == OWN)
		rec->len = way < 30 ? rnd_below(13) : way < 60 ? rnd_below(97) : rnd_below(4000);
	else
		rec->len = m->payload == LIST ? rnd_below(3 * PIECE) : 4065 + rnd_below(LARGE - 4064);
	must(inlay_task_set_payload(t, m->payload == OWN ? NULL : m->payload == LIST ? m->list : m->whole));
	buf = inlay_task_payload(t);
	if (m->payload == LIST) {
		list_lengths(buf, rec->len);
		fill_list(buf, rec->len, seed_of(r, rec));
	} else {
		inlay_buf_set_data(buf, inlay_buf_head(buf), rec->len);
		fill(inlay_buf_data(buf), rec->len, seed_of(r, rec));
	}
	must(inlay_task_set_response(t, m->response == IN_ANSWER ? NULL : m->large));
	inlay_buf_set_data(m->large, inlay_buf_head(m->large), 0);
	memset(inlay_buf_head(m->large), 0x5c, 64);
	must(inlay_task_set_plugin(t, rec->plugin));
	t->ids.destination = (uint64_t)r->index << 32 | r->seq;
	m->user_data = rnd();
	t->user_data = m->user_data;
	for (i = 0; i < INLAY_TASK_USER; i += 8)
		memcpy((uint8_t *)t->user + i, &m->user_data, 8);
	way = rnd_below(10);
	err = way < 5 ? inlay_task_submit(t, 0) : way < 9 ? inlay_task_submit(t, INLAY_RING) : inlay_task_submit(t, INLAY_RING);
	if (!err) {
		m->record = rec;
		m->cancelled = false;
		r->seq++;
		r->submitted++;
		if (left)
			left--;
		return true;
	}
	*rec = old;
	assert_int_equal(t->state, INLAY_TASK_IDLE);
	if (!h->limit) {
		assert_true(r->stopping);
		assert_int_equal(err, -ENOTCONN);
	} else {
		assert_int_equal(err, -EAGAIN);
		/* For one of two reasons */
		assert_true(h->outstanding == h->limit || inlay_sq_room(&h->link.sq) < 16);
	}
	assert_int_equal(h->link.sq.pi, pi);
	return false;
}

static void cancel_one(UNUSED struct road *r, struct model *m)
{
	uint32_t state = m->task->state;
	int err = inlay_task_cancel(m->task, 0);

	if (state <= INLAY_TASK_IDLE) {
		assert_int_equal(err, -EBADFD);
	} else if (err) {
		assert_int_equal(err, -EBUSY);
	} else {
		assert_int_equal(state, INLAY_TASK_SUBMITTED);
		assert_non_null(m->record);
		m->cancelled = true;
		cancels++;
	}
}

static void check_bytes(struct road *r, struct model *m, const struct record *rec)
{
	struct inlay_buf *buf = inlay_task_response(m->task);

	assert_int_equal(m->task->response_len, rec->response_len);
	assert_int_equal(inlay_buf_data_len(buf), rec->response_len);
	if (differs(inlay_buf_data(buf), rec->response_len, ~seed_of(r, rec)) != rec->response_len)
		fail_msg("command %u of %u bytes: its response of %u bytes is another one", rec->seq, rec->len, rec->response_len);
	if (rec->response_len <= r->line.conn.answer_max)
		assert_true(all_bytes((const uint8_t *)inlay_buf_head(m->large), 64, 0x5c));
	written += rec->response_len > r->line.conn.answer_max;
}

static void model_done(struct inlay_task *t, uint64_t user_data, uint64_t host_user_data)
{
	struct road *r = roads[host_user_data];
	struct model *m = model_of(r, t);
	const struct record *rec = m->record;
	int status = inlay_task_status(t);
	struct inlay_task *same;

	if (!rec)
		fail_msg("a task was completed that was not submitted");
	m->record = NULL;
	r->completed++;
	total_completed++;
	assert_true(user_data == m->user_data && t->user_data == user_data);
	for (uint32_t i = 0; i < INLAY_TASK_USER; i += 8)
		assert_memory_equal((uint8_t *)t->user + i, &m->user_data, 8);
	assert_int_equal(t->state, INLAY_TASK_IDLE);
	if (m->cancelled) {
		assert_int_equal(status, -ECANCELED);
		assert_int_equal(t->response_len, 0);
	} else if (status && status == r->line.host.broken) {
		assert_true(r->stopping);
	} else if (rec->plugin == UNKNOWN) {
		assert_int_equal(status, -ENOENT);
		assert_int_equal(t->response_len, 0);
		refusals++;
	} else {
		assert_true(rec->taken);
		assert_int_equal(status, rec->status);
		check_bytes(r, m, rec);
		/* Those that a handler answers at once, in the answer, without anything to wait for, come in order */
		if (rec->prompt && m->response == IN_ANSWER && m->payload == OWN) {
			if ((int32_t)(rec->seq - r->last_prompt) <= 0)
				fail_msg("the answer to %u came after that to %u", rec->seq, r->last_prompt);
			r->last_prompt = rec->seq;
			r->in_order++;
		}
	}
	/* What a callback may do */
	switch (rnd_below(8)) {
	case 0:
		must(inlay_task_release(t));
		must(inlay_task_alloc(&r->line.host, 0, NULL, &same));
		assert_ptr_equal(same, t);
		must(inlay_task_set_cb(t, model_done));
		break;
	case 1: cancel_one(r, &r->models[rnd_below(TASKS)]); break;
	case 2: inlay_sq_ring(&roads[rnd_below(LINES)]->line.host.link.sq); break;
	case 3:
		if (rnd_below(500) == 0 && !r->stopping) {
			r->stopping = true;
			must(inlay_task_link_break(&r->line.host.link));
		}
		break;
	default:
		if (left)
			send_one(r, m);
		break;
	}
}

static void road_line(struct road *r)
{
	struct inlay_task_host_params p = inlay_task_host_default();
	struct inlay_task *t = NULL;

	p.tasks = TASKS;
	p.windows = 1;
	p.in_flight = IN_FLIGHT;
	p.user_data = r->index;
	p.max_inline = r->index % 3 == 0 ? 0 : r->index % 3 == 1 ? 96 : 300;
	line_make(&r->line, desks[r->index % WORKERS], &p);
	r->stopping = false;
	for (uint32_t i = 0; i < TASKS; i++) {
		must(inlay_task_alloc(&r->line.host, 0, model_done, &t));
		r->models[(uint32_t)t->ids.context].task = t;
	}
}

static struct road *road_make(uint32_t index)
{
	const size_t each = 2 * LARGE + 2048;
	struct road *r = (struct road *)pages(sizeof(*r));
	struct inlay_buf *piece;

	r->index = index;
	r->seq = rnd_below(2) ? 0xffffff00u : 1; /* round zero, too */
	r->last_taken = r->last_prompt = r->seq - 1;
	region_make(&r->region, TASKS * each, 1);
	r->inv_memory = pages(inlay_inventory_size(TASKS * 6));
	must(inlay_inventory_create(r->inv_memory, inlay_inventory_size(TASKS * 6), TASKS * 6, &r->inv));
	must(inlay_inventory_start(r->inv));
	for (uint32_t i = 0; i < TASKS; i++) {
		struct model *m = &r->models[i];
		uint8_t *at = r->region.at + i * each;

		must(inlay_inventory_get_by_addr(r->inv, &r->region.map, at, LARGE, &m->whole));
		must(inlay_inventory_get_by_addr(r->inv, &r->region.map, at + LARGE, LARGE, &m->large));
		at += 2 * LARGE;
		must(inlay_inventory_get_by_addr(r->inv, &r->region.map, at, PIECE, &m->list));
		for (uint32_t k = 1; k < 3; k++) {
			must(inlay_inventory_get_by_addr(r->inv, &r->region.map, at + k * PIECE, PIECE, &piece));
			must(inlay_buf_chain_list(m->list, piece));
		}
	}
	return r;
}

static void road_free(struct road *r)
{
	line_free(&r->line);
	for (uint32_t i = 0; i < TASKS; i++) {
		must(inlay_buf_dec_refcount(r->models[i].whole, NULL));
		must(inlay_buf_dec_refcount(r->models[i].large, NULL));
		must(inlay_buf_dec_refcount(r->models[i].list, NULL));
	}
	must(inlay_inventory_destroy(r->inv));
	region_free(&r->region);
	free(r->inv_memory);
	free(r);
}

/* A round of everything; few completions at a time now and then */
static void round_of_all(void)
{
	step();
	for (uint32_t i = 0; i < LINES; i++)
		if (rnd_below(200) == 0) {
			if (!roads[i]->line.host.broken)
				message_probe(&roads[i]->line.host.link);
			if (!roads[i]->line.conn.broken)
				message_probe(&roads[i]->line.conn.link);
		}
	for (uint32_t i = 0; i < WORKERS; i++)
		inlay_task_worker_progress(&desks[i]->worker, rnd_below(6) ? 32 : 1 + rnd_below(3));
	if (rnd_below(3) == 0)
		answer_some(rnd_below(12));
	step();
	for (uint32_t i = 0; i < LINES; i++) {
		uint32_t most = rnd_below(6) ? 32 : 1 + rnd_below(3);
		uint64_t before = roads[i]->completed;
		uint32_t n = inlay_task_host_progress(&roads[i]->line.host, most);

		/* Its result is what it says: tasks completed, of whichever */
		assert_int_equal(n, roads[i]->completed - before);
	}
}

static bool road_busy(const struct road *r)
{
	for (uint32_t i = 0; i < TASKS; i++)
		if (r->models[i].record)
			return true;
	return false;
}

/* A connection that is stopped or broken: to its end, and another in its place */
static void road_again(struct road *r)
{
	double end = now() + DEADLINE;

	ends++;
	while (road_busy(r) || !r->line.host.broken || !r->line.conn.broken) {
		round_of_all();
		if (now() > end)
			fail_msg("a connection did not come to its end: host %d, connection %d", r->line.host.broken,
				 r->line.conn.broken);
		/* The worker's end notices by its own probe, or is told */
		if (r->line.host.broken && !r->line.conn.broken && rnd_below(20) == 0)
			must(inlay_task_link_break(&r->line.conn.link));
	}
	for (uint32_t i = 0; i < num_later;) {
		if (later[i].road == r) {
			assert_int_equal(respond(later[i].cmd, 0), -ENOTCONN);
			later[i] = later[--num_later];
		} else {
			i++;
		}
	}
	assert_int_equal(r->line.conn.kept, 0);
	assert_int_equal(r->completed, r->submitted);
	assert_int_equal(r->line.host.strays, 0);
	for (uint32_t i = 0; i < TASKS; i++)
		must(inlay_task_release(r->models[i].task));
	line_free(&r->line);
	r->last_taken = r->last_prompt = r->seq - 1;
	road_line(r);
}

TEST(random_run)
{
	struct inlay_task_worker_params wp = inlay_task_worker_default();
	const char *env = getenv("TASK_OPS");
	uint64_t ops = env && *env ? strtoull(env, NULL, 0) : 20000, seen = 0, submitted = 0;
	uint32_t i, k, in_order = 0;
	double end;

	if (ops > 20000 && getenv("INLAY_TEST_AGAIN"))
		ops = ops / 10 > 20000 ? ops / 10 : 20000;
	/* Each store to a register is two signals */
	if (getenv("SOFTDEV_TRAP"))
		ops /= 4;
	wp.connections = HOSTS;
	wp.credits = IN_FLIGHT;
	wp.spare = 3;
	num_later = 0;
	ends = cancels = written = refusals = total_completed = 0;
	left = ops;
	for (i = 0; i < WORKERS; i++)
		desks[i] = desk_make(&wp, model_plugins, ARRAY(model_plugins), 4);
	for (i = 0; i < LINES; i++) {
		roads[i] = road_make(i);
		road_line(roads[i]);
	}
	end = now() + DEADLINE;
	while (left) {
		for (i = 0; i < LINES; i++) {
			struct road *r = roads[i];

			for (k = rnd_below(5); k--;) {
				struct model *m = &r->models[rnd_below(TASKS)];

				if (m->task->state == INLAY_TASK_IDLE && !m->record && left)
					send_one(r, m);
				else if (rnd_below(20) == 0)
					cancel_one(r, m);
			}
			if (rnd_below(2))
				inlay_sq_ring(&r->line.host.link.sq);
			if (!r->stopping && rnd_below(6000) == 0) {
				r->stopping = true;
				if (rnd_below(2))
					must(inlay_task_link_break(&r->line.host.link));
				else
					must(inlay_task_link_break(&r->line.conn.link));
			}
			if (r->stopping)
				road_again(r);
		}
		round_of_all();
		if (total_completed != seen) {
			seen = total_completed;
			end = now() + DEADLINE;
		} else if (now() > end) {
			fail_msg("nothing was completed for %d s; %llu are left", (int)DEADLINE, (unsigned long long)left);
		}
	}
	for (i = 0; i < LINES; i++) {
		end = now() + DEADLINE;
		inlay_sq_ring(&roads[i]->line.host.link.sq);
		while (road_busy(roads[i]) || (!roads[i]->stopping && roads[i]->line.host.outstanding)) {
			/* A callback that cancels leaves what it has not rung for */
			inlay_sq_ring(&roads[i]->line.host.link.sq);
			round_of_all();
			answer_some(8);
			if (roads[i]->stopping && roads[i]->line.host.broken)
				must(inlay_task_link_break(&roads[i]->line.conn.link));
			if (now() > end)
				fail_msg("connection %u: %llu of %llu commands were completed", i, (unsigned long long)roads[i]->completed,
					 (unsigned long long)roads[i]->submitted);
		}
	}
	for (i = 0; i < LINES; i++) {
		struct road *r = roads[i];
		if (r->stopping)
			road_again(r);
		submitted += r->submitted;
		in_order += r->in_order;
		assert_int_equal(r->completed, r->submitted);
		assert_int_equal(r->line.host.strays + r->line.conn.strays, 0);
		for (k = 0; k < TASKS; k++) {
			assert_int_equal(r->models[k].task->held, 0);
			must(inlay_task_release(r->models[k].task));
		}
	}
	assert_int_equal(submitted, total_completed);
	assert_true(submitted >= ops);
	assert_int_equal(num_later, 0);
	for (i = 0; i < LINES; i++)
		road_free(roads[i]);
	for (i = 0; i < WORKERS; i++) {
		assert_int_equal(desks[i]->worker.strays, 0);
		assert_int_equal(inlay_pool_num_free(desks[i]->pool), 4);
		assert_int_equal(inlay_pool_num_free(desks[i]->pull), 4);
		desk_free(desks[i]);
	}
	print_message("# %llu commands: %u in order, %llu refused, %llu cancelled, "
		      "%llu written by key, %llu connections ended\n",
		      (unsigned long long)submitted, in_order, (unsigned long long)refusals,
		      (unsigned long long)cancels,
		      (unsigned long long)written, (unsigned long long)ends);
	/* Nothing of it was left out by chance */
	if (ops >= 20000)
		assert_true(in_order && refusals && cancels && written && ends);
}

int main(void)
{
	return run_all(dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
