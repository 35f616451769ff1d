/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hostile.c: command tasks whose peer is out of order. Each bit of the head of a command, and of an answer, is wrong once, and it is
 * told of every task in flight whether it is completed, with which status and by whom: nobody but the one that the message was for, and not
 * even that one when it is the context that is hit. And messages of other operations than plain sends, to a host and to a worker, which
 * are counted and believed by nobody. Time is the test's own.
 */
#include "scene.h"

#define PLACE 100u      /* a task's destination, less its number */
#define WRITTEN 5000u   /* bytes of a response that is written by a key */
#define BITS (INLAY_TASK_HEAD * 8)

static struct region spot;              /* for windows of the test's own */
static uint64_t echoed;                 /* destination that a handler was given last */
static uint32_t handled;
static bool away[TASKS];                /* in quarantine */

/* What has become of each task */
static struct {
	uint32_t times, by, len;
	int status;
} ends[TASKS];


static void note(const struct inlay_task_cmd *cmd)
{
	handled++;
	if (cmd->ids.plugin != KEEP)
		echoed = cmd->ids.destination;
}

static void note_end(struct inlay_task *task, uint64_t user_data, uint64_t host_user_data)
{
	assert_int_equal(host_user_data, 0); /* the first line's tasks only are counted */
	ends[user_data].times++;
	ends[user_data].status = inlay_task_status(task);
	ends[user_data].by = inlay_task_by(task);
	ends[user_data].len = task->response_len;
	away[user_data] = task->state == INLAY_TASK_QUARANTINE;
}

static void note_reused(struct inlay_task *task, uint64_t user_data, uint64_t host_user_data)
{
	(void)host_user_data;
	assert_int_equal(task->state, INLAY_TASK_IDLE);
	assert_true(away[user_data]);
	away[user_data] = false;
	reused++;
}

static uint32_t all_ended(void)
{
	uint32_t i, n = 0;

	for (i = 0; i < TASKS; i++)
		n += ends[i].times;
	return n;
}

static void hostile_scene(uint32_t num_lines)
{
	plain();
	hp.reusable = note_reused;
	hp.path.timeout = wp.path.timeout = 8;
	hp.path.retry_count = wp.path.retry_count = 1;
	retries = true;
	seen = note;
	handled = 0;
	memset(ends, 0, sizeof(ends));
	memset(away, 0, sizeof(away));
	region_make(&spot, 4096, 1);
	usual_scene(num_lines, 4);
}

static void hostile_free(void)
{
	scene_free();
	region_free(&spot);
}

static void tasks_make(struct inlay_task **t)
{
	uint32_t i;

	for (i = 0; i < TASKS; i++) {
		must(inlay_task_alloc(&line->host, KEEP, note_end, &t[i]));
		t[i]->user_data = i;
		t[i]->ids.destination = PLACE + i;
	}
}

static void tasks_free(struct inlay_task **t)
{
	uint32_t i;

	for (i = 0; i < TASKS; i++)
		must(inlay_task_release(t[i]));
}

/* Messages that the host has taken: for each it posts a receive */
static uint32_t heard(void)
{
	return line->host.link.rq.pi;
}

static void sized_payload(struct inlay_task *t, uint32_t len)
{
	struct inlay_buf *buf = inlay_task_payload(t);

	inlay_buf_set_data(buf, inlay_buf_head(buf), len);
	fill(inlay_buf_data(buf), len, len);
}

/* Of the commands that are kept, the one of this task; it is no longer kept */
static struct inlay_task_cmd *take_kept(uint32_t task)
{
	struct inlay_task_cmd *cmd;
	uint32_t i;

	for (i = 0; i < num_kept && kept[i]->ids.destination != PLACE + task; i++)
		;
	assert_true(i < num_kept);
	cmd = kept[i];
	kept[i] = kept[--num_kept];
	return cmd;
}

static void answer_kept(void)
{
	while (num_kept)
		must(inlay_task_cmd_answer(kept[--num_kept], 0));
}

/* ---- every bit ---- */

struct expected {
	uint32_t by;                    /* INLAY_TASK_BY_NOBODY: no task is completed by it */
	int status;
};

static struct expected expect(uint32_t by, int status)
{
	struct expected e;

	e.by = by;
	e.status = status;
	return e;
}

/*
 * All but the target are in flight and untouched; then they are answered, and nothing is outstanding: as many as the limit can be submitted
 * again, as the next round does. what, bit: for the message
 */
static void others_go_on(struct inlay_task **t, uint32_t target, const char *what, uint32_t bit)
{
	uint32_t i;

	for (i = 0; i < TASKS; i++)
		if (i != target && (ends[i].times || inlay_task_status(t[i]) != -EINPROGRESS))
			fail_msg("%s, bit %u: task %u was completed, status %d, instead of %u", what, bit, i, ends[i].status, target);
	if (line->host.outstanding != TASKS - 1)
		fail_msg("%s, bit %u: %u are outstanding of %u", what, bit, line->host.outstanding, TASKS - 1);
	answer_kept();
	until(all_ended() == TASKS);
	for (i = 0; i < TASKS; i++) {
		assert_int_equal(ends[i].times, 1);
		assert_int_equal(t[i]->state, INLAY_TASK_IDLE);
		if (i != target) {
			assert_int_equal(ends[i].status, 0);
			assert_int_equal(ends[i].by, INLAY_TASK_BY_HANDLER);
		}
	}
	assert_int_equal(line->host.outstanding, 0);
}

/* The message was nobody's: the task is in flight until its deadline, and what it lends to the worker until that is taken back */
static void over_time(struct inlay_task *t, uint32_t target, const char *what, uint32_t bit)
{
	uint32_t before = reused;

	if (ends[target].times)
		fail_msg("%s, bit %u: its task was completed, status %d", what, bit, ends[target].status);
	assert_int_equal(inlay_task_status(t), -EINPROGRESS);
	assert_int_equal(line->host.outstanding, TASKS - 1);
	clock_now += 10;
	until(ends[target].times);
	assert_int_equal(ends[target].status, -ETIMEDOUT);
	assert_int_equal(ends[target].by, INLAY_TASK_BY_HOST);
	if (t->state == INLAY_TASK_QUARANTINE)
		must(inlay_task_revoke(t));
	until(reused == before + 1);
}

static void as_expected(const struct expected *e, uint32_t target, const char *what, uint32_t bit)
{
	if (ends[target].times != 1 || ends[target].status != e->status || ends[target].by != e->by)
		fail_msg("%s, bit %u: completed %u times, status %d by %u where %d by %u was due", what, bit, ends[target].times,
			 ends[target].status, ends[target].by, e->status, e->by);
}

enum command_shape { ONE, TWO, GATHERED, BY_KEY, COMMAND_SHAPES };

static const char *const command_names[COMMAND_SHAPES] = {"a command of one WQEBB", "a command of two", "a gathered command",
							  "a command by keys"};

/* What becomes of a command one of whose head's bits is wrong */
static struct expected of_command(uint32_t bit)
{
	switch (bit / 8) {
	case 0:                                           /* version: nothing of it is believed */
	case 8: case 9: case 10: case 11:                 /* context */
	case 12: case 13: case 14: case 15: return expect(INLAY_TASK_BY_NOBODY, 0);
	case 1:                                           /* kind */
	case 2: case 3:                                   /* flags */
	case 4: case 5: case 6: case 7: return expect(INLAY_TASK_BY_WORKER, -EBADMSG); /* length */
	case 16: case 17: case 18: case 19:               /* plugin */
	case 20: case 21: case 22: case 23: return expect(INLAY_TASK_BY_WORKER, -ENOENT);
	default: return expect(INLAY_TASK_BY_HANDLER, 0); /* destination */
	}
}

static void spoiled_command(struct inlay_task **t, enum command_shape shape, uint32_t bit)
{
	static const uint32_t lengths[] = {8, 60, 2000, LARGE};
	const uint32_t target = (bit + bit / 8) % TASKS;
	const struct expected e = of_command(bit);
	const char *what = command_names[shape];
	uint32_t taken = heard(), before, i;
	uint8_t *head;

	memset(ends, 0, sizeof(ends));
	for (i = 0; i < TASKS; i++)
		if (i != target)
			must(inlay_task_submit(t[i]));
	until(num_kept == TASKS - 1);
	before = handled;
	echoed = 0;
	must(inlay_task_set_plugin(t[target], shape == BY_KEY ? BACK : ECHO));
	t[target]->deadline = clock_now + 10;
	if (shape == BY_KEY) {
		must(inlay_task_set_payload(t[target], out));
		must(inlay_task_set_response(t[target], in));
	} else {
		sized_payload(t[target], lengths[shape]);
	}
	must(inlay_task_submit_quiet(t[target]));
	/* Behind the WQE's control segment and the inline segment's length, or before the payload */
	head = shape == GATHERED ? (uint8_t *)inlay_buf_data(inlay_task_payload(t[target])) - INLAY_TASK_HEAD :
				   line->host.link.sq.last + INLAY_DS + 4;
	assert_true(head[0] == INLAY_TASK_WIRE && head[1] == INLAY_TASK_COMMAND);
	head[bit / 8] ^= (uint8_t)(1 << bit % 8);
	inlay_task_host_flush(&line->host);
	if (e.by == INLAY_TASK_BY_NOBODY) {
		until(heard() != taken || all_ended());
		turns(2);
		over_time(t[target], target, what, bit);
	} else {
		until(all_ended());
		turns(2);
		as_expected(&e, target, what, bit);
		if (!e.status) {
			assert_int_equal(echoed, (PLACE + target) ^ 1ull << (bit - 192));
			assert_int_equal(ends[target].len, lengths[shape]);
		}
	}
	assert_int_equal(handled - before, !e.status && bit >= 64);
	others_go_on(t, target, what, bit);
	must(inlay_task_set_response(t[target], NULL));
	must(inlay_task_set_payload(t[target], NULL));
	must(inlay_task_set_plugin(t[target], KEEP));
	sized_payload(t[target], 0);
}

static void every_bit_of_a_command(void **state)
{
	struct inlay_task *t[TASKS];
	uint32_t shape, bit;

	(void)state;
	for (shape = 0; shape < COMMAND_SHAPES; shape++) {
		hostile_scene(1);
		tasks_make(t);
		for (bit = 0; bit < BITS; bit++)
			spoiled_command(t, (enum command_shape)shape, bit);
		assert_int_equal(line->conn.strays + desk->worker.strays, 0);
		assert_int_equal(line->host.broken, 0);
		assert_int_equal(inlay_pool_num_free(desk->pull), 4);
		tasks_free(t);
		hostile_free();
	}
}

/*
 * The same with the keys behind a command's head: what the key opens is wrong, and the command is malformed, or says more than the host
 * has, which the window knows; or it is another key, which breaks the connection. Nothing is written to the host's memory that was not to
 * be.
 */
static void every_bit_of_the_keys(void **state)
{
	struct inlay_task *t[TASKS];
	uint32_t bit, i;

	(void)state;
	for (bit = 0; bit < 2 * INLAY_TASK_KEY * 8; bit++) {
		const uint32_t in_key = bit % (INLAY_TASK_KEY * 8), payload_key = bit < INLAY_TASK_KEY * 8;
		const bool rkey = in_key < 32;
		uint64_t bytes = LARGE;
		struct inlay_sq *sq;
		struct expected e;
		uint8_t *byte;

		/* A connection for each that breaks it; on the other devices an eighth of them */
		if (rkey && in_key % 8 && getenv("INLAY_TEST_AGAIN"))
			continue;
		if (rkey || in_key == 32) {
			hostile_scene(1);
			tasks_make(t);
		}
		sq = &line->host.link.sq;
		memset(ends, 0, sizeof(ends));
		if (in_key >= 64)
			bytes ^= 1ull << (in_key - 64);
		e = expect(INLAY_TASK_BY_WORKER, -EBADMSG);
		if (!payload_key && bytes > LARGE && bytes <= INLAY_SGE_MAX)
			e = expect(INLAY_TASK_BY_HANDLER, 0);
		fill(outside.at, LARGE, bit);
		memset(outside.at + LARGE, 0x5a, LARGE);
		for (i = 1; i < TASKS; i++)
			must(inlay_task_submit(t[i]));
		until(num_kept == TASKS - 1);
		must(inlay_task_set_plugin(t[0], BACK));
		must(inlay_task_set_payload(t[0], out));
		must(inlay_task_set_response(t[0], in));
		must(inlay_task_submit_quiet(t[0]));
		byte = sq->last + INLAY_DS + 4;
		assert_true(byte[0] == INLAY_TASK_WIRE && byte[2] == (INLAY_TASK_PAYLOAD_KEY | INLAY_TASK_RESPONSE_KEY));
		byte += INLAY_TASK_HEAD + bit / 8;
		if (byte >= sq->buf + ((size_t)sq->mask + 1) * INLAY_WQEBB)
			byte -= ((size_t)sq->mask + 1) * INLAY_WQEBB; /* what is inline wraps */
		*byte ^= (uint8_t)(1 << bit % 8);
		inlay_task_host_flush(&line->host);
		if (rkey) {
			until(all_ended() == TASKS && line->conn.broken);
			for (i = 0; i < TASKS; i++) {
				assert_int_equal(ends[i].times, 1);
				assert_int_equal(ends[i].by, INLAY_TASK_BY_CONNECTION);
				assert_int_equal(ends[i].status, line->host.broken);
			}
			assert_true(line->host.broken < 0);
			while (num_kept)
				assert_int_equal(inlay_task_cmd_answer(kept[--num_kept], 0), -ENOTCONN);
			/* What either device may still use comes back when it has given back all that was posted */
			for (i = 0; i < TASKS; i++)
				assert_true(i == 0 || !away[i]);
			until(t[0]->state == INLAY_TASK_IDLE && inlay_pool_num_free(desk->pull) == 4);
			assert_false(away[0]);
			assert_int_equal(inlay_sq_pending(&line->host.link.sq), 0);
		} else {
			until(all_ended());
			as_expected(&e, 0, "keys", bit);
			others_go_on(t, 0, "keys", bit);
		}
		if (!rkey && !e.status)
			assert_int_equal(differs(outside.at + LARGE, LARGE, bit), LARGE);
		else
			assert_true(all_bytes(outside.at + LARGE, LARGE, 0x5a));
		assert_int_equal(differs(outside.at, LARGE, bit), LARGE);
		assert_int_equal(inlay_pool_num_free(desk->pull), 4);
		must(inlay_task_set_response(t[0], NULL));
		must(inlay_task_set_payload(t[0], NULL));
		must(inlay_task_set_plugin(t[0], KEEP));
		if (rkey || in_key == 127) {
			assert_int_equal(line->host.strays, 0);
			tasks_free(t);
			hostile_free();
		}
	}
}

enum answer_shape { EMPTY, INLINE, LONG, WROTE, REFUSAL, ANSWER_SHAPES };

static const struct {
	const char *name;
	uint32_t kind, length;
	int status;
} answers[ANSWER_SHAPES] = {
	{"an empty answer", INLAY_TASK_ANSWER, 0, 0},
	{"an inline answer", INLAY_TASK_ANSWER, 40, -ENODATA},
	{"a gathered answer", INLAY_TASK_ANSWER, 2000, -E2BIG},
	{"a response by a key", INLAY_TASK_WRITTEN, WRITTEN, -EPERM},
	{"a refusal", INLAY_TASK_REFUSED, 0, -ENOENT},
};

/* What becomes of an answer one of whose head's bits is wrong */
static struct expected of_answer(enum answer_shape shape, uint32_t bit, uint32_t *length)
{
	const struct expected bad = expect(INLAY_TASK_BY_HOST, -EBADMSG);
	const uint32_t kind = answers[shape].kind;
	int status = answers[shape].status;

	*length = answers[shape].length;
	switch (bit / 8) {
	case 0: /* version */
	case 8: case 9: case 10: case 11: case 12: case 13: case 14: case 15: return expect(INLAY_TASK_BY_NOBODY, 0);
	case 1: return bad; /* kind: those that there are do not agree with length and status, or are granted nothing */
	case 2: case 3:
		status = -(-status ^ 1 << (bit - 16));
		if (status < -INLAY_TASK_STATUS_MAX || (kind == INLAY_TASK_REFUSED && !status))
			return bad;
		break;
	case 4: case 5: case 6: case 7:
		*length ^= 1u << (bit - 32);
		/* Only what was written elsewhere is not in the message to be counted */
		if (kind != INLAY_TASK_WRITTEN || *length > LARGE)
			return bad;
		break;
	default: break; /* plugin and destination: the context alone decides */
	}
	return expect(kind == INLAY_TASK_REFUSED ? INLAY_TASK_BY_WORKER : INLAY_TASK_BY_HANDLER, status);
}

/* Posts the answer, and does not ring for it */
static void post_answer(struct inlay_task_cmd *cmd, enum answer_shape shape)
{
	struct inlay_buf *buf = NULL;

	switch (shape) {
	case WROTE:
		must(inlay_pool_alloc(desk->pool, &buf));
		inlay_buf_set_data(buf, inlay_buf_head(buf), WRITTEN);
		fill(inlay_buf_data(buf), WRITTEN, WRITTEN);
		must(inlay_task_cmd_answer_buf(cmd, answers[shape].status, buf));
		must(inlay_buf_dec_refcount(buf, NULL));
		break;
	case REFUSAL: /* as when it has not come to a handler */
		inlay_task_cmd_taken_(cmd);
		inlay_task_cmd_finish_(cmd, INLAY_TASK_REFUSED, answers[shape].status, 0);
		break;
	default:
		fill(cmd->response, answers[shape].length, answers[shape].length);
		cmd->response_len = answers[shape].length;
		must(inlay_task_cmd_answer(cmd, answers[shape].status));
	}
}

/* late: its task was completed by its deadline before it comes */
static void spoiled_answer(struct inlay_task **t, enum answer_shape shape, uint32_t bit, bool late)
{
	const uint32_t target = (bit + bit / 8) % TASKS;
	const char *what = answers[shape].name;
	uint32_t taken = heard(), before = reused, length, i;
	struct expected e = of_answer(shape, bit, &length);
	uint8_t *head;

	memset(ends, 0, sizeof(ends));
	t[target]->deadline = clock_now + 10;
	if (shape == WROTE)
		must(inlay_task_set_response(t[target], in));
	for (i = 0; i < TASKS; i++)
		must(inlay_task_submit(t[i]));
	until(num_kept == TASKS);
	if (late) {
		clock_now += 10;
		until(all_ended());
		assert_int_equal(ends[target].status, -ETIMEDOUT);
		assert_int_equal(line->host.outstanding, TASKS);
	}
	post_answer(take_kept(target), shape);
	head = line->conn.link.sq.last + INLAY_DS + 4;
	assert_true(head[0] == INLAY_TASK_WIRE && head[1] == answers[shape].kind);
	head[bit / 8] ^= (uint8_t)(1 << bit % 8);
	inlay_task_worker_flush_(&desk->worker);
	if (late && shape != WROTE) {
		/* It has no task any more: it is the one that was still to come, whatever it says */
		until(line->host.outstanding == TASKS - 1);
		turns(2);
	} else if (late && e.by != INLAY_TASK_BY_NOBODY) {
		until(reused == before + 1);
		turns(2);
	} else if (late) {
		until(heard() != taken);
		turns(2);
		assert_int_equal(t[target]->state, INLAY_TASK_QUARANTINE);
		assert_int_equal(line->host.outstanding, TASKS - 1);
		must(inlay_task_revoke(t[target]));
		until(reused == before + 1);
	} else if (e.by == INLAY_TASK_BY_NOBODY) {
		until(heard() != taken || all_ended());
		turns(2);
		over_time(t[target], target, what, bit);
	} else {
		until(all_ended());
		turns(2);
		as_expected(&e, target, what, bit);
		assert_int_equal(ends[target].len, e.status == -EBADMSG ? 0 : length);
	}
	if (late) {
		assert_int_equal(ends[target].times, 1);
		assert_int_equal(inlay_task_status(t[target]), -ETIMEDOUT);
		assert_int_equal(t[target]->state, INLAY_TASK_IDLE);
	}
	others_go_on(t, target, what, bit);
	must(inlay_task_set_response(t[target], NULL));
}

static void every_bit_of_an_answer(void **state)
{
	struct inlay_task *t[TASKS];
	uint32_t shape, bit, late;

	(void)state;
	for (shape = 0; shape < ANSWER_SHAPES; shape++)
		for (late = 0; late < 2; late++) {
			hostile_scene(1);
			tasks_make(t);
			for (bit = 0; bit < BITS; bit++)
				spoiled_answer(t, (enum answer_shape)shape, bit, late);
			assert_int_equal(line->conn.strays + desk->worker.strays, 0);
			assert_int_equal(line->host.broken, 0);
			tasks_free(t);
			hostile_free();
		}
}

/*
 * Answers for nobody, as many as there are tasks, and then more than commands are outstanding: the count of those never gets below what is
 * in flight.
 */
static void nobodys_answers(void **state)
{
	uint8_t msg[INLAY_TASK_HEAD];
	struct inlay_task_message a;
	struct inlay_task *t[TASKS];
	uint32_t round, i, strays = 0;

	(void)state;
	hostile_scene(1);
	tasks_make(t);
	memset(&a, 0, sizeof(a));
	a.kind = INLAY_TASK_ANSWER;
	a.ids.context = 0x123456789abcdef0;
	message_write(msg, &a);
	for (round = 0; round < 3; round++) {
		memset(ends, 0, sizeof(ends));
		for (i = 0; i < TASKS; i++) {
			t[i]->deadline = clock_now + (i < 4 ? 10 : 1000000);
			must(inlay_task_submit(t[i]));
		}
		until(num_kept == TASKS);
		/* A worker that speaks unasked */
		for (i = 0; i < 3; i++, strays++) {
			must(inlay_post_send_inline(&line->conn.link.sq, msg, sizeof(msg), INLAY_SIGNALED));
			inlay_sq_ring(&line->conn.link.sq);
			until(line->host.strays == strays + 1);
		}
		assert_int_equal(all_ended(), 0);
		/* Whatever it says is the credit for one more command */
		assert_int_equal(line->host.outstanding, TASKS - 3);
		clock_now += 10;
		until(all_ended() == 4);
		/* The four are answered all the same, and so are the others: each of those is completed, once, with success */
		answer_kept();
		until(all_ended() == TASKS);
		turns(5);
		for (i = 0; i < TASKS; i++) {
			assert_int_equal(ends[i].times, 1);
			assert_int_equal(ends[i].status, i < 4 ? -ETIMEDOUT : 0);
		}
		assert_int_equal(line->host.outstanding, 0);
		strays = line->host.strays;
	}
	tasks_free(t);
	hostile_free();
}

/* ---- other operations than a send ---- */

enum operation { SEND_IMM, SEND_INV, WRITE_IMM, WRITE_IMM_DATA, OPERATIONS };

/* Posts a message by such an operation. rkey: of a window at the peer */
static void post_operation(struct inlay_sq *sq, enum operation operation, const void *msg, uint32_t len, uint32_t rkey)
{
	struct ibv_sge sge = {(uintptr_t)msg, len, 0};

	switch (operation) {
	case SEND_IMM: must(wr_post(sq, MLX5_OPCODE_SEND_IMM, wr_imm(wr_sge(&sge, 1), 0x12345678), INLAY_INLINE | INLAY_SIGNALED)); break;
	case SEND_INV: must(wr_post(sq, MLX5_OPCODE_SEND_INVAL, wr_at(wr_sge(&sge, 1), 0, rkey), INLAY_INLINE | INLAY_SIGNALED)); break;
	case WRITE_IMM: must(wr_post(sq, MLX5_OPCODE_RDMA_WRITE_IMM, wr_imm(wr_at(wr_sge(NULL, 0), 0, 0), 0x12345678), INLAY_SIGNALED)); break;
	default: must(wr_post(sq, MLX5_OPCODE_RDMA_WRITE_IMM, wr_imm(wr_at(wr_sge(&sge, 1), 0, rkey), 0x12345678), INLAY_INLINE | INLAY_SIGNALED)); break;
	}
	inlay_sq_ring(sq);
}

/* A window of the test's own at one side, for those operations who need one. Its key is mw->rkey + 1 */
static struct ibv_mw *window(struct inlay_task_link *l)
{
	struct ibv_mw *mw = ibv_alloc_mw(dev.pd, IBV_MW_TYPE_2);
	struct ibv_sge memory = {(uintptr_t)spot.at, 4096, spot.mr->lkey};
	struct inlay_umr umr;

	assert_non_null(mw);
	inlay_umr_window(l->qp->qp_num, mw->rkey + 1, &memory, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED, &umr);
	must(inlay_post_umr(&l->sq, mw->rkey, &umr, INLAY_SIGNALED));
	inlay_sq_ring(&l->sq);
	until(!inlay_sq_pending(&l->sq));
	return mw;
}

/* All tasks as often as three times, echoed: every receive of both sides is in use, and comes round */
static void all_go_on(struct inlay_task **t)
{
	uint32_t round, i;

	for (i = 0; i < TASKS; i++) {
		must(inlay_task_set_plugin(t[i], ECHO));
		must(inlay_task_set_payload(t[i], NULL));
		must(inlay_task_set_response(t[i], NULL));
	}
	for (round = 0; round < 3; round++) {
		memset(ends, 0, sizeof(ends));
		for (i = 0; i < TASKS; i++) {
			sized_payload(t[i], round * 70 + i);
			must(inlay_task_submit(t[i]));
		}
		until(all_ended() == TASKS);
		for (i = 0; i < TASKS; i++) {
			assert_int_equal(ends[i].times, 1);
			assert_int_equal(ends[i].status, 0);
			assert_int_equal(ends[i].by, INLAY_TASK_BY_HANDLER);
			assert_int_equal(ends[i].len, round * 70 + i);
			assert_int_equal(differs(inlay_buf_data(inlay_task_response(t[i])), round * 70 + i, round * 70 + i),
					 round * 70 + i);
		}
	}
	assert_int_equal(line->host.outstanding, 0);
}

/*
 * The worker answers a task by one: it is counted, its receive is posted again, and nobody is answered. The others are, and the task itself
 * ends by its deadline, and is then no longer outstanding.
 */
static void other_operations_to_the_host(void **state)
{
	uint8_t msg[INLAY_TASK_HEAD];
	struct inlay_task *t[TASKS];
	struct inlay_task_message a;
	struct inlay_task_cmd *third;
	uint32_t operation, i, posted;
	struct ibv_mw *mw;

	(void)state;
	for (operation = 0; operation < OPERATIONS; operation++) {
		hostile_scene(1);
		tasks_make(t);
		mw = window(&line->host.link);
		must(inlay_task_set_payload(t[0], out));
		must(inlay_task_set_response(t[0], in));
		t[3]->deadline = clock_now + 10;
		fill(outside.at, LARGE, operation);
		memset(outside.at + LARGE, 0x5a, LARGE);
		for (i = 0; i < TASKS; i++)
			must(inlay_task_submit(t[i]));
		until(num_kept == TASKS);
		/* Word for word a good answer to a task */
		memset(&a, 0, sizeof(a));
		a.kind = INLAY_TASK_ANSWER;
		a.ids.context = t[3]->ids.context;
		a.ids.plugin = KEEP;
		a.ids.destination = PLACE + 3;
		message_write(msg, &a);
		third = take_kept(3);
		posted = line->host.link.rq.pi;
		post_operation(&line->conn.link.sq, (enum operation)operation, msg, sizeof(msg), mw->rkey + 1);
		until(line->host.strays);
		turns(5);
		assert_int_equal(line->host.strays, 1);
		assert_int_equal(line->host.link.rq.pi, posted + 1);
		assert_int_equal(line->host.broken, 0);
		assert_int_equal(all_ended(), 0);
		assert_int_equal(line->host.outstanding, TASKS - 1);
		assert_int_equal(line->host.limit, TASKS);
		/* Its deadline */
		clock_now += 10;
		until(all_ended());
		turns(2);
		assert_int_equal(all_ended(), 1);
		assert_int_equal(ends[3].times, 1);
		assert_int_equal(ends[3].status, -ETIMEDOUT);
		assert_int_equal(ends[3].by, INLAY_TASK_BY_HOST);
		until(t[3]->state == INLAY_TASK_IDLE);
		assert_int_equal(line->host.outstanding, TASKS - 1);
		/* The others */
		i = 0;
		while (kept[i]->ids.destination != PLACE)
			i++;
		must(inlay_task_cmd_answer_buf(kept[i], 0, kept[i]->pulled));
		kept[i] = kept[--num_kept];
		answer_kept();
		until(all_ended() == TASKS);
		for (i = 0; i < TASKS; i++) {
			assert_int_equal(ends[i].times, 1);
			assert_int_equal(t[i]->state, INLAY_TASK_IDLE);
			if (i != 3) {
				assert_int_equal(ends[i].status, 0);
				assert_int_equal(ends[i].by, INLAY_TASK_BY_HANDLER);
			}
		}
		assert_int_equal(differs(outside.at + LARGE, LARGE, operation), LARGE);
		assert_int_equal(line->host.outstanding, 0);
		/* And the answer itself, when it comes at last, is nobody's */
		must(inlay_task_cmd_answer(third, 0));
		until(line->host.strays == 2);
		assert_int_equal(ends[3].times, 1);
		all_go_on(t);
		assert_int_equal(line->host.strays, 2);
		assert_int_equal(line->host.broken, 0);
		assert_false(line->conn.broken);
		assert_int_equal(line->conn.strays + desk->worker.strays, 0);
		assert_int_equal(inlay_pool_num_free(desk->pull), 4);
		tasks_free(t);
		must(ibv_dealloc_mw(mw));
		hostile_free();
	}
}

/*
 * A worker takes a task's own window away from it. Devices may refuse to close it once more, which costs the connection: the task is
 * completed, once, all the same, and its memory comes back.
 */
static void window_taken_away(void **state)
{
	uint8_t msg[INLAY_TASK_HEAD] = {0};
	struct inlay_task *t[TASKS];
	struct inlay_task_cmd *cmd;
	uint32_t i;

	(void)state;
	hostile_scene(1);
	tasks_make(t);
	must(inlay_task_set_payload(t[0], out));
	must(inlay_task_set_response(t[0], in));
	for (i = 0; i < TASKS; i++)
		must(inlay_task_submit(t[i]));
	until(num_kept == TASKS);
	cmd = take_kept(0);
	post_operation(&line->conn.link.sq, SEND_INV, msg, sizeof(msg), cmd->response_key.rkey);
	until(heard() != TASKS);
	assert_int_equal(all_ended(), 0);
	assert_int_equal(line->host.broken, 0);
	/* It comes last, so that the others have been answered when its windows are closed */
	for (i = 1; i < TASKS; i++)
		must(inlay_task_cmd_answer(take_kept(i), 0));
	must(inlay_task_cmd_answer(cmd, 0));
	until(all_ended() == TASKS);
	for (i = 0; i < TASKS; i++) {
		assert_int_equal(ends[i].times, 1);
		assert_int_equal(ends[i].status, 0);
		assert_int_equal(ends[i].by, INLAY_TASK_BY_HANDLER);
	}
	until(t[0]->state == INLAY_TASK_IDLE);
	assert_int_equal(all_ended(), TASKS);
	assert_int_equal(line->host.strays, 1);
	for (i = 0; i < TASKS; i++)
		assert_false(away[i]);
	tasks_free(t);
	hostile_free();
}

/*
 * A host commands by one: it is counted, no handler hears of it, its receive is posted again, and nobody is told that it was malformed. Its
 * other tasks, and another host, are served as before.
 */
static void other_operations_to_the_worker(void **state)
{
	struct inlay_task *t[TASKS], *other = NULL;
	struct inlay_task_message c;
	struct inlay_task_message a;
	uint8_t msg[INLAY_TASK_MESSAGE_MIN];
	uint32_t operation, len, i, before, posted;
	struct inlay_rq *rq;
	struct ibv_mw *mw;

	(void)state;
	for (operation = 0; operation < OPERATIONS; operation++) {
		hostile_scene(2);
		tasks_make(t);
		must(inlay_task_alloc(&lines[1]->host, KEEP, NULL, &other));
		other->ids.destination = PLACE + TASKS;
		must(inlay_task_submit(other));
		for (i = 0; i < 3; i++)
			must(inlay_task_submit(t[i]));
		until(num_kept == 4);
		mw = window(&line->conn.link);
		/* Word for word a good command */
		memset(&c, 0, sizeof(c));
		c.ids.context = t[0]->ids.context;
		c.ids.plugin = ECHO;
		c.kind = INLAY_TASK_COMMAND;
		len = message_write(msg, &c);
		before = handled;
		posted = line->conn.link.rq.pi;
		rq = &line->host.link.rq;
		post_operation(&line->host.link.sq, (enum operation)operation, msg, len, mw->rkey + 1);
		until(line->host.strays);
		turns(5);
		assert_int_equal(handled, before);
		assert_int_equal(line->conn.strays, 1);
		assert_int_equal(desk->worker.strays, 0);
		assert_int_equal(line->conn.link.rq.pi, posted + 1);
		assert_false(line->conn.broken);
		assert_null(inlay_task_worker_gone(&desk->worker));
		/* What the host got for it lies in the receive that it has posted last */
		assert_int_equal(line->host.strays, 1);
		must(inlay_task_message_read_(&a, line->host.slot_of[(rq->pi - 1) & line->host.mask], INLAY_TASK_HEAD));
		assert_int_equal(a.kind, INLAY_TASK_REFUSED);
		assert_int_equal(a.status, -EBADMSG);
		assert_true(a.ids.context == UINT64_MAX);
		assert_true(!a.ids.plugin && !a.ids.destination && !a.length);
		/* Its tasks */
		assert_int_equal(all_ended(), 0);
		assert_int_equal(line->host.outstanding, 2);
		for (i = 0; i < 3; i++)
			must(inlay_task_cmd_answer(take_kept(i), -EDOM));
		until(all_ended() == 3);
		for (i = 0; i < 3; i++) {
			assert_int_equal(ends[i].times, 1);
			assert_int_equal(ends[i].by, INLAY_TASK_BY_HANDLER);
			assert_int_equal(ends[i].status, -EDOM);
		}
		all_go_on(t);
		assert_int_equal(handled, before + 3 * TASKS);
		assert_int_equal(line->host.broken, 0);
		assert_false(line->conn.broken);
		assert_int_equal(line->conn.strays, 1);
		assert_int_equal(line->host.strays, 1);
		assert_true(line->conn.commands == line->conn.answers);
		/* The other one */
		assert_int_equal(lines[1]->conn.strays, 0);
		must(inlay_task_cmd_answer(take_kept(TASKS), -EDOM));
		until(inlay_task_status(other) != -EINPROGRESS);
		assert_int_equal(inlay_task_status(other), -EDOM);
		must(inlay_task_set_plugin(other, ECHO));
		for (i = 0; i < 3 * TASKS; i++) {
			sized_payload(other, i * 50);
			must(inlay_task_submit(other));
			until(inlay_task_status(other) != -EINPROGRESS);
			assert_int_equal(inlay_task_status(other), 0);
			assert_int_equal(inlay_task_by(other), INLAY_TASK_BY_HANDLER);
			assert_int_equal(differs(inlay_buf_data(inlay_task_response(other)), i * 50, i * 50), i * 50);
		}
		assert_false(lines[1]->conn.broken);
		must(inlay_task_release(other));
		tasks_free(t);
		must(ibv_dealloc_mw(mw));
		hostile_free();
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_bit_of_a_command),
		cmocka_unit_test(every_bit_of_the_keys),
		cmocka_unit_test(every_bit_of_an_answer),
		cmocka_unit_test(nobodys_answers),
		cmocka_unit_test(other_operations_to_the_host),
		cmocka_unit_test(window_taken_away),
		cmocka_unit_test(other_operations_to_the_worker),
	};

	return cmocka_run_group_tests_name("task_hostile", tests, dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") ||
	       again_trapped();
}
