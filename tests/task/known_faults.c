/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * known_faults.c: faults that public plugins of remote workers have, each shown not to be here: one test for each, named after it.
 */
#include "scene.h"
#include <sys/mman.h>

#define FAIL 0x99u

static uint32_t opened, closed, handled;
static uint32_t quarantined;             /* callbacks of tasks in quarantine */
static uint8_t sight[4096];               /* the last command, as it came */
static uint32_t sight_len;

static void see(const struct inlay_task_cmd *cmd)
{
	sight_len = (uint32_t)(cmd->payload - inlay_task_cmd_message_(cmd)) + cmd->payload_len;
	if (cmd->pulled)
		sight_len = INLAY_TASK_HEAD + INLAY_TASK_KEY + (cmd->response_key.bytes ? INLAY_TASK_KEY : 0);
	memcpy(sight, inlay_task_cmd_message_(cmd), sight_len);
	handled++;
}

static int refuse(void *plugin, struct inlay_task_cmd *cmd)
{
	(void)plugin;
	see(cmd);
	return -EDOM;
}


static const struct inlay_task_plugin plugin_fail = PLUGIN("fail", refuse);
static const struct inlay_task_entry entries[] = {
	{ECHO, &plugin_echo, NULL}, {KEEP, &plugin_keep, NULL}, {FAIL, &plugin_fail, NULL}, {BACK, &plugin_back, NULL}};

static void note_end(struct inlay_task *task, uint64_t user_data, uint64_t host_user_data)
{
	(void)host_user_data;
	assert_int_equal(user_data, task->user_data);
	completed++;
	quarantined += task->state == INLAY_TASK_QUARANTINE;
}

static struct inlay_task_host_params host_params(void)
{
	struct inlay_task_host_params p = inlay_task_host_default();

	p.tasks = 6;
	p.in_flight = 4;
	p.windows = 2;
	p.period = 0;
	p.reusable = count_reused;
	return p;
}

static struct inlay_task_worker_params worker_params(void)
{
	struct inlay_task_worker_params p = inlay_task_worker_default();

	p.connections = 1;
	p.credits = 8;
	p.spare = 4;
	p.period = 0;
	return p;
}

static void faults_scene(void)
{
	hp = host_params();
	wp = worker_params();
	handled = quarantined = 0;
	seen = see;
	scene_make(1, 2, entries, ARRAY(entries));
}

static struct inlay_task *numbered_task(uint64_t plugin)
{
	struct inlay_task *t = NULL;

	must(inlay_task_alloc(&line->host, plugin, note_end, &t));
	t->user_data = 42 + (uint32_t)t->ids.context;
	return t;
}

static void byte_payload(struct inlay_task *t, uint32_t len, uint8_t byte)
{
	struct inlay_buf *buf = inlay_task_payload(t);

	inlay_buf_set_data(buf, inlay_buf_head(buf), len);
	memset(inlay_buf_data(buf), byte, len);
}

/* Any bytes, from one side to the other */
static void raw(struct inlay_task_link *l, const void *bytes, uint32_t len)
{
	must(inlay_post_send_inline(&l->sq, bytes, len, INLAY_SIGNALED));
	inlay_sq_ring(&l->sq);
}

/* The connection still does what it is for */
static void still_works(void)
{
	struct inlay_task *t = numbered_task(ECHO);
	uint32_t before = completed;

	byte_payload(t, 200, 0x21);
	must(inlay_task_submit(t));
	until(completed == before + 1);
	assert_int_equal(inlay_task_status(t), 0);
	assert_int_equal(t->response_len, 200);
	must(inlay_task_release(t));
}

/* ---- the faults ---- */

static void oversize_command_sent(void **state)
{
	struct inlay_task *t;
	struct inlay_buf *piece, *list = NULL;
	uint32_t pi, i;

	(void)state;
	faults_scene();
	t = numbered_task(ECHO);
	pi = line->host.link.sq.pi;
	/* Longer than a message, and than what the worker reads by a key */
	must(inlay_task_set_payload(t, out));
	line->host.link.peer.largest = LARGE - 1;
	assert_int_equal(inlay_task_submit(t), -E2BIG);
	assert_int_equal(inlay_task_submit_quiet(t), -E2BIG);
	assert_int_equal(inlay_task_try_submit(t), -E2BIG);
	line->host.link.peer.largest = 0;
	inlay_buf_set_data(out, outside.at, line->host.payload_max + 1);
	assert_int_equal(inlay_task_submit(t), -E2BIG);
	line->host.link.peer.largest = LARGE;
	/* In pieces: together longer than a message; more than may be gathered */
	must(inlay_inventory_get_by_data(inv, &outside.map, outside.at, line->host.payload_max, &list));
	must(inlay_inventory_get_by_data(inv, &outside.map, outside.at, 1, &piece));
	must(inlay_buf_chain_list(list, piece));
	must(inlay_task_set_payload(t, list));
	assert_int_equal(inlay_task_submit(t), -E2BIG);
	inlay_buf_set_data(list, outside.at, 1);
	for (i = 0; i < 3; i++) {
		must(inlay_inventory_get_by_data(inv, &outside.map, outside.at, 1, &piece));
		must(inlay_buf_chain_list(list, piece));
	}
	assert_int_equal(inlay_task_submit(t), -E2BIG);
	assert_int_equal(t->state, INLAY_TASK_IDLE);
	assert_int_equal(line->host.link.sq.pi, pi);
	assert_int_equal(line->host.outstanding, 0);
	for (i = 0; i < 10; i++)
		turn();
	assert_int_equal(line->conn.commands, 0);
	/* The longest that fits does, without a key */
	line->host.link.peer.largest = 0;
	must(inlay_task_set_payload(t, out));
	inlay_buf_set_data(out, outside.at, line->host.payload_max);
	must(inlay_task_submit(t));
	until(completed == 1);
	assert_int_equal(t->response_len, line->host.payload_max);
	must(inlay_task_release(t));
	must(inlay_buf_dec_refcount(list, NULL));
	/* The handler cannot answer with more than there is room for, either */
	t = numbered_task(KEEP);
	must(inlay_task_submit(t));
	until(num_kept == 1);
	assert_int_equal(inlay_task_cmd_answer_data(kept[0], 0, outside.at, kept[0]->response_max + 1), -E2BIG);
	must(inlay_task_cmd_answer_data(kept[0], 0, outside.at, kept[0]->response_max));
	until(completed == 2);
	must(inlay_task_release(t));
	scene_free();
}

static void context_taken_from_the_response(void **state)
{
	uint8_t msg[INLAY_TASK_HEAD + 8];
	struct inlay_task_message a;
	struct inlay_task *t, *idle;
	uint32_t i, taken;

	(void)state;
	faults_scene();
	idle = numbered_task(ECHO);
	must(inlay_task_submit(idle));
	until(completed == 1);
	t = numbered_task(KEEP);
	must(inlay_task_submit(t));
	until(num_kept == 1);
	memset(&a, 0, sizeof(a));
	memset(msg, 0xff, sizeof(msg));
	taken = line->host.link.rq.pi;
	/* What is another's context, or nobody's, completes nobody */
	for (i = 0; i < 11; i++) {
		const uint64_t contexts[] = {
			t->ids.context + (1ull << 32), t->ids.context - (1ull << 32), t->ids.context + 1, idle->ids.context, idle->ids.context - (1ull << 32),
			6, 0xffffffff, UINT64_MAX, (uint64_t)(uintptr_t)t, t->ids.context + (3ull << 32), idle->ids.context - (3ull << 32)
		};

		a.kind = i & 1 ? INLAY_TASK_REFUSED : INLAY_TASK_ANSWER;
		a.status = -EIO;
		a.ids.context = contexts[i];
		a.length = i & 1 ? 0 : 8;
		message_write(msg, &a);
		raw(&line->conn.link, msg, INLAY_TASK_HEAD + a.length);
		taken++;
		until(line->host.link.rq.pi == taken);
	}
	assert_int_equal(completed, 1);
	assert_int_equal(inlay_task_status(t), -EINPROGRESS);
	assert_int_equal(inlay_task_status(idle), 0);
	/* An error keeps the context: the callback gets its own user data (see done) */
	must(inlay_task_cmd_answer(kept[0], -ENODATA));
	until(completed == 2);
	assert_int_equal(inlay_task_status(t), -ENODATA);
	must(inlay_task_set_plugin(t, FAIL));
	must(inlay_task_submit(t));
	until(completed == 3);
	assert_int_equal(inlay_task_status(t), -EDOM);
	/* An answer that cannot be, to a task in flight, completes it, and no one else */
	must(inlay_task_set_plugin(t, KEEP));
	must(inlay_task_submit(t));
	until(num_kept == 2);
	a.ids.context = t->ids.context;
	a.kind = INLAY_TASK_ANSWER;
	a.length = 9;
	message_write(msg, &a);
	raw(&line->conn.link, msg, INLAY_TASK_HEAD + 8);
	until(completed == 4);
	assert_int_equal(inlay_task_status(t), -EBADMSG);
	assert_int_equal(inlay_task_by(t), INLAY_TASK_BY_HOST);
	must(inlay_task_cmd_answer(kept[1], 0)); /* it has come twice now */
	until(line->host.link.rq.pi == taken + 4);
	still_works();
	must(inlay_task_release(t));
	must(inlay_task_release(idle));
	scene_free();
}

/* Heads that are wrong in one way each, of a message of that many bytes */
static uint32_t wrong_command(uint8_t *msg, uint32_t kind)
{
	struct inlay_task_message c;
	uint32_t bytes;

	memset(msg, 0, 128);
	memset(&c, 0, sizeof(c));
	c.ids.plugin = ECHO;
	c.ids.context = UINT64_MAX - 5;
	c.kind = INLAY_TASK_COMMAND;
	if (kind >= 12)
		c.flags = INLAY_TASK_PAYLOAD_KEY | INLAY_TASK_RESPONSE_KEY;
	c.payload.rkey = c.response.rkey = 0x1234;
	c.payload.bytes = c.response.bytes = c.length = 8;
	bytes = message_write(msg, &c) + (c.flags ? 0 : 8);
	switch (kind) {
	case 0: return 0;
	case 1: return 1;
	case 2: return INLAY_TASK_HEAD - 1;
	case 3: msg[0]++; break;
	case 4: msg[1] = INLAY_TASK_ANSWER; break;
	case 5: msg[2] = 4; break;
	case 6: msg[3] = 1; break;
	case 7: msg[4]++; break;
	case 8: memset(msg + 4, 0xff, 4); break;                      /* 2^32 - 1 */
	case 9: msg[4] = 0xe0; memset(msg + 5, 0xff, 3); break;       /* and the head's 32: 0 */
	case 10: msg[4] = 0xe8; memset(msg + 5, 0xff, 3); break;      /* 8 */
	case 11: msg[7] = 0x80; break;
	case 12: return INLAY_TASK_HEAD;
	case 13: return INLAY_TASK_HEAD + INLAY_TASK_KEY;
	case 14: return bytes - 1;
	case 15: return bytes + 1;
	case 16: msg[4]++; break;                                     /* not what the key opens */
	case 17: memset(msg + INLAY_TASK_HEAD + 8, 0xff, 8); break;
	case 18: memset(msg + 4, 0, 4); memset(msg + INLAY_TASK_HEAD + 8, 0, 8); break;
	case 19: msg[INLAY_TASK_HEAD + 4] = 1; break;
	case 20: memset(msg + INLAY_TASK_HEAD + INLAY_TASK_KEY + 8, 0xff, 8); break;
	case 21: msg[INLAY_TASK_HEAD + INLAY_TASK_KEY + 12] = 1; break; /* 2^32 + 8 */
	case 22: msg[4] = msg[INLAY_TASK_HEAD + 8] = 0; msg[7] = msg[INLAY_TASK_HEAD + 11] = 0x80; break; /* 2^31: unread memory to a handler */
	default: return UINT32_MAX;
	}
	return bytes;
}

/* Each is answered, and none reaches a handler; with a task's context, that task is told */
static void malformed_command_never_answered(void **state)
{
	struct inlay_task_message c;
	uint8_t msg[128];
	uint32_t kind, bytes;
	struct inlay_task *t;

	(void)state;
	faults_scene();
	for (kind = 0; (bytes = wrong_command(msg, kind)) != UINT32_MAX; kind++) {
		uint64_t answers = line->conn.answers;

		assert_int_equal(inlay_task_message_read_(&c, msg, bytes), kind == 4 ? 0 : -EBADMSG); /* an answer */
		/* Without a whole head of this version it names nobody: not the task whose context is 0 */
		assert_true(c.ids.context == UINT64_MAX - (kind < 4 ? 0 : 5));
		raw(&line->host.link, msg, bytes);
		until(line->conn.answers == answers + 1 && line->host.strays == kind + 1);
		assert_int_equal(handled, 0);
	}
	assert_int_equal(kind, 23);
	t = numbered_task(ECHO);
	for (kind = 3; kind < 12; kind++) {
		if (kind == 3)
			continue; /* of another version nothing is believed: only a deadline or the connection's end helps */
		byte_payload(t, 8, 0);
		must(inlay_task_submit_quiet(t));
		wrong_command(msg, kind);
		memcpy(inlay_sq_wqe(&line->host.link.sq, t->end - 1) + INLAY_DS + 4, msg, 8);
		inlay_task_host_flush(&line->host);
		until(inlay_task_status(t) != -EINPROGRESS);
		assert_int_equal(inlay_task_status(t), -EBADMSG);
		assert_int_equal(inlay_task_by(t), INLAY_TASK_BY_WORKER);
	}
	assert_int_equal(handled, 0);
	still_works();
	must(inlay_task_release(t));
	scene_free();
}

/* Both parsers, on messages that end where the page does: nothing beyond a message is read, and what is accepted is inside of it */
static void lengths_added_with_overflow(void **state)
{
	static const uint32_t lengths[] = {0,	       1,	   7,	       8,	   9,	       0x7fffffff, 0x80000000,
					   0xffffffdf, 0xffffffe0, 0xffffffe1, 0xffffffe8, 0xfffffff8, 0xffffffff};
	uint8_t *page = (uint8_t *)mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *msg;
	uint32_t bytes, i, flags, kind, good = 0;
	struct inlay_task_message a, c;

	(void)state;
	assert_true(page != MAP_FAILED);
	must(mprotect(page + 4096, 4096, PROT_NONE));
	for (bytes = 0; bytes <= 100; bytes++) {
		msg = page + 4096 - bytes;
		for (i = 0; i < ARRAY(lengths); i++) {
			for (flags = 0; flags < 4; flags++) {
				uint64_t first = inlay_task_first_(INLAY_TASK_COMMAND, flags, lengths[i]);

				memset(msg, 0, bytes);
				if (bytes > 40) /* both keys say what the head does */
					msg[40] = (uint8_t)lengths[i];
				if (bytes > 56)
					msg[56] = 8;
				memcpy(msg, &first, bytes < 8 ? bytes : 8);
				if (inlay_task_message_read_(&c, msg, bytes))
					continue;
				good++;
				assert_true(c.at <= bytes);
				if (c.flags & INLAY_TASK_PAYLOAD_KEY)
					assert_true(c.at == bytes && c.length == c.payload.bytes);
				else
					assert_true((uint64_t)c.at + c.length == bytes);
			}
			for (kind = 0; kind < 6; kind++) { /* the command's was tried above */
				uint64_t first = inlay_task_first_(kind, 1, lengths[i]);

				memset(msg, 0, bytes);
				memcpy(msg, &first, bytes < 8 ? bytes : 8);
				if (kind == INLAY_TASK_COMMAND || inlay_task_message_read_(&a, msg, bytes))
					continue;
				good++;
				assert_true(a.kind == INLAY_TASK_ANSWER ? (uint64_t)INLAY_TASK_HEAD + a.length == bytes
									: bytes == INLAY_TASK_HEAD);
			}
		}
	}
	assert_true(good > 20);
	munmap(page, 8192);
}

/* The parts that a command may have, keys, are inside of its message or it is none */
static void appended_parts_overrun_the_payload(void **state)
{
	uint8_t *page = (uint8_t *)mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct inlay_task_message c, got;
	uint32_t bytes, full;
	uint8_t msg[64];

	(void)state;
	assert_true(page != MAP_FAILED);
	must(mprotect(page + 4096, 4096, PROT_NONE));
	memset(&c, 0, sizeof(c));
	c.kind = INLAY_TASK_COMMAND;
	c.flags = INLAY_TASK_PAYLOAD_KEY | INLAY_TASK_RESPONSE_KEY;
	c.length = 100;
	c.payload.bytes = 100;
	c.response.bytes = INLAY_SGE_MAX;
	full = message_write(msg, &c);
	assert_int_equal(full, 64);
	for (bytes = 0; bytes <= full; bytes++) {
		memcpy(page + 4096 - bytes, msg, bytes);
		assert_int_equal(inlay_task_message_read_(&got, page + 4096 - bytes, bytes), bytes == full ? 0 : -EBADMSG);
	}
	munmap(page, 8192);
}

/* What is written is read, whatever it is; and these are the bytes, wherever it was compiled */
static void pack_and_unpack_defined_apart(void **state)
{
	static const uint8_t command[] = {
		1, 1, 3, 0, 8, 7, 6, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 1, 2, 3, 4, 5, 6, 7, 8,
		9, 10, 11, 12, 13, 14, 15, 16,
		0xdd, 0xcc, 0xbb, 0xaa, 0, 0, 0, 0, 8, 7, 6, 0, 0, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0, 0x10, 0x32, 0x54, 0x76, 0, 0, 0, 0
	};
	static const uint8_t answer[] = {
		1, 2, 0xff, 0x0f, 4, 3, 0, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
		15, 16
	};
	struct inlay_task_message a, b, c, d;
	uint8_t msg[64];
	uint32_t i, bytes;

	(void)state;
	must(inlay_task_message_read_(&c, command, sizeof(command)));
	assert_true(c.ids.context == 0x8877665544332211 && c.ids.plugin == 0x0807060504030201 && c.ids.destination == 0x100f0e0d0c0b0a09);
	assert_true(c.length == 0x060708 && c.payload.rkey == 0xaabbccdd && c.response.rkey == 0x01020304);
	assert_true(c.response.bytes == 0x76543210);
	assert_int_equal(message_write(msg, &c), sizeof(command));
	assert_memory_equal(msg, command, sizeof(command));
	must(inlay_task_message_read_(&a, answer, INLAY_TASK_HEAD + 0x304));
	assert_true(a.ids.context == c.ids.context && a.ids.plugin == c.ids.plugin && a.ids.destination == c.ids.destination);
	assert_int_equal(a.status, -4095);
	message_write(msg, &a);
	assert_memory_equal(msg, answer, sizeof(answer));
	for (i = 0; i < 100000; i++) {
		memset(&c, 0, sizeof(c));
		memset(&d, 0xee, sizeof(d));
		c.kind = INLAY_TASK_COMMAND;
		c.ids.context = rnd();
		c.ids.plugin = rnd();
		c.ids.destination = rnd();
		c.flags = rnd_below(4);
		c.length = c.flags & INLAY_TASK_PAYLOAD_KEY ? 1 + rnd_below(INLAY_SGE_MAX) : rnd_below(1u << 24);
		if (c.flags & INLAY_TASK_PAYLOAD_KEY) {
			c.payload.rkey = (uint32_t)rnd();
			c.payload.bytes = c.length;
		}
		if (c.flags & INLAY_TASK_RESPONSE_KEY) {
			c.response.rkey = (uint32_t)rnd();
			c.response.bytes = 1 + rnd_below(INLAY_SGE_MAX);
		}
		bytes = message_write(msg, &c);
		c.at = bytes;
		must(inlay_task_message_read_(&d, msg, bytes + (c.flags & INLAY_TASK_PAYLOAD_KEY ? 0 : c.length)));
		assert_true(d.ids.context == c.ids.context && d.ids.plugin == c.ids.plugin && d.ids.destination == c.ids.destination && d.flags == c.flags);
		assert_true(d.length == c.length && d.at == c.at);
		assert_true(d.payload.rkey == c.payload.rkey && d.response.rkey == c.response.rkey);
		assert_true(d.payload.bytes == c.payload.bytes && d.response.bytes == c.response.bytes);
		a.kind = INLAY_TASK_ANSWER + rnd_below(3);
		a.status = a.kind == INLAY_TASK_REFUSED ? -1 - (int)rnd_below(4095) : -(int)rnd_below(4096);
		a.length = a.kind == INLAY_TASK_REFUSED ? 0 : rnd_below(1u << 24);
		a.ids.context = c.ids.context;
		message_write(msg, &a);
		must(inlay_task_message_read_(&b, msg, INLAY_TASK_HEAD + (a.kind == INLAY_TASK_ANSWER ? a.length : 0)));
		assert_true(b.ids.context == a.ids.context && b.kind == a.kind && b.status == a.status && b.length == a.length);
	}
}

/* Any eight bytes of it near an address of ours, or four a local key, either byte order? */
static void no_secrets(void)
{
	const uint64_t ours[] = {(uintptr_t)line->host_memory, (uintptr_t)line->conn_memory, (uintptr_t)line, (uintptr_t)outside.at,
				 (uintptr_t)sight, (uintptr_t)&ours, (uintptr_t)desk->pulled.at, (uintptr_t)out};
	const uint32_t keys[] = {outside.mr->lkey, line->host.mr->lkey, outside.mr->rkey, line->host.mr->rkey, line->conn.mr->lkey};
	uint32_t i, k;

	for (i = 0; i + 8 <= sight_len; i++) {
		uint64_t word = inlay_task_get64_(sight + i);

		for (k = 0; k < ARRAY(ours); k++)
			assert_true(word >> 24 != ours[k] >> 24 && __builtin_bswap64(word) >> 24 != ours[k] >> 24);
	}
	for (i = 0; i + 4 <= sight_len; i++) {
		uint32_t word = inlay_task_get32_(sight + i);

		for (k = 0; k < ARRAY(keys); k++)
			assert_true(word != keys[k] && __builtin_bswap32(word) != keys[k]);
	}
}

static void pointers_on_the_wire(void **state)
{
	struct inlay_task *t;
	uint64_t context;
	uint32_t i;

	(void)state;
	faults_scene();
	t = numbered_task(ECHO);
	for (i = 0; i < 5; i++) {
		if (i < 3) {
			byte_payload(t, i == 0 ? 8 : i == 1 ? 80 : 3000, 0);
		} else {
			memset(outside.at, 0, LARGE);
			must(inlay_task_set_plugin(t, BACK));
			must(inlay_task_set_payload(t, out));
			must(inlay_task_set_response(t, in));
		}
		context = t->ids.context;
		assert_int_equal((uint32_t)(context), (uint32_t)t->ids.context);
		must(inlay_task_submit(t));
		until(completed == i + 1);
		assert_int_equal(inlay_task_status(t), 0);
		assert_true(sight_len >= INLAY_TASK_HEAD);
		no_secrets();
		assert_true(inlay_task_get64_(sight + 8) == context);
		/* The next generation: not near to this one, which differs from none that is by a bit only */
		assert_true(t->ids.context == context + (3ull << 32));
	}
	must(inlay_task_release(t));
	scene_free();
}

/* A key that opens nothing, for the payload and for the response: an error, never a success; and the other tasks are told too */
static void unknown_key_counted_as_success(void **state)
{
	struct inlay_task *t, *other;
	uint32_t way;
	uint8_t *wqe;

	(void)state;
	for (way = 0; way < 2; way++) {
		faults_scene();
		t = numbered_task(BACK);
		other = numbered_task(KEEP);
		must(inlay_task_submit(other));
		until(num_kept == 1);
		must(inlay_task_set_payload(t, out));
		must(inlay_task_set_response(t, in));
		must(inlay_task_submit_quiet(t));
		/* The last WQE has head and keys inline: another key's number */
		wqe = inlay_sq_wqe(&line->host.link.sq, t->end - 2);
		wqe[INLAY_DS + 4 + INLAY_TASK_HEAD + (way ? INLAY_TASK_KEY : 0) + 1] ^= 0x55;
		inlay_task_host_flush(&line->host);
		until(completed == 2);
		assert_int_equal(inlay_task_by(t), INLAY_TASK_BY_CONNECTION);
		assert_true(inlay_task_status(t) < 0);
		assert_int_equal(inlay_task_by(other), INLAY_TASK_BY_CONNECTION);
		assert_true(inlay_task_status(other) < 0);
		assert_int_equal(handled, 1 + way);
		until(line->conn.broken);
		assert_int_equal(inlay_task_cmd_answer(kept[0], 0), -ENOTCONN);
		/* Its windows were open: it is the caller's when the device has given everything back, and not before */
		until(t->state == INLAY_TASK_IDLE);
		assert_int_equal(inlay_sq_pending(&line->host.link.sq), 0);
		assert_int_equal(inlay_rq_pending(&line->host.link.rq), 0);
		assert_int_equal(reused, quarantined);
		assert_true(quarantined <= 1);
		assert_int_equal(completed, 2);
		must(inlay_task_release(t));
		must(inlay_task_release(other));
		scene_free();
	}
}

static void progress_taken_for_ones_own(void **state)
{
	struct inlay_task *mine, *others;
	uint32_t n = 0;
	double end = now() + DEADLINE;

	(void)state;
	faults_scene();
	mine = numbered_task(KEEP);
	others = numbered_task(ECHO);
	must(inlay_task_submit(mine));
	must(inlay_task_submit(others));
	while (!n) {
		step();
		inlay_task_worker_progress(&desk->worker, 1, 16);
		step();
		n = inlay_task_host_progress(&line->host, 1, 16);
		assert_true(now() < end);
	}
	/* One was completed, and it tells which */
	assert_int_equal(n, 1);
	assert_int_equal(inlay_task_status(mine), -EINPROGRESS);
	assert_int_equal(inlay_task_status(others), 0);
	must(inlay_task_cmd_answer(kept[0], -EXDEV));
	until(inlay_task_status(mine) != -EINPROGRESS);
	assert_int_equal(inlay_task_status(mine), -EXDEV);
	must(inlay_task_release(mine));
	must(inlay_task_release(others));
	scene_free();
}

#if defined(__GLIBC__) && !SANITIZED
/* All that this thread asks for while it counts */
#ifdef __cplusplus
extern "C" {
#endif
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);
#ifdef __cplusplus
}
#define NOTHROW noexcept
#else
#define NOTHROW
#endif

static __thread volatile int counting; /* volatile: compilers know that malloc does not look at it */
static volatile uint32_t allocations;

void *malloc(size_t n) NOTHROW
{
	allocations = allocations + (counting != 0);
	return __libc_malloc(n);
}

void *calloc(size_t n, size_t size) NOTHROW
{
	allocations = allocations + (counting != 0);
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n) NOTHROW
{
	allocations = allocations + (counting != 0);
	return __libc_realloc(p, n);
}

void free(void *p) NOTHROW
{
	allocations = allocations + (counting != 0 && p);
	__libc_free(p);
}

/* Submits, handlers, answers, completions by every way, and not one call of the allocator */
static void allocation_per_command(void **state)
{
	void *probe;
	struct inlay_task *t;
	uint32_t i;

	(void)state;
	if (getenv("SOFTDEV_TRAP"))
		return; /* there the device works in the thread that posts */
	faults_scene();
	counting = 1;
	probe = malloc(1); /* that it counts at all */
	__asm__ volatile("" : "+r"(probe));
	free(probe);
	counting = 0;
	assert_true(allocations > 0);
	allocations = 0;
	t = numbered_task(ECHO);
	for (i = 0; i < 300; i++) {
		double end = now() + DEADLINE;

		counting = 1;
		inlay_task_set_plugin(t, i % 5 == 4 ? 99 : i % 3 == 2 ? BACK : ECHO);
		inlay_task_set_payload(t, i % 3 == 2 ? out : NULL);
		inlay_task_set_response(t, i % 3 == 2 ? in : NULL);
		if (i % 3 != 2)
			byte_payload(t, i % 3 ? 2000 : 20, 1);
		i % 2 ? inlay_task_submit(t) : inlay_task_try_submit(t);
		while (inlay_task_status(t) == -EINPROGRESS && now() < end) {
			counting = 0;
			step();
			counting = 1;
			inlay_task_worker_progress(&desk->worker, 1, 16);
			inlay_task_host_progress(&line->host, 1, 16);
		}
		inlay_task_release(t);
		inlay_task_alloc(&line->host, ECHO, note_end, &t);
		t->user_data = 42;
		counting = 0;
		assert_int_equal(completed, i + 1);
	}
	assert_int_equal(allocations, 0);
	must(inlay_task_release(t));
	scene_free();
}
#endif

static int open_counted(void *argument, struct inlay_task_worker *worker, void **plugin)
{
	(void)worker;
	(void)plugin;
	if (argument)
		return -EHOSTDOWN;
	opened++;
	return 0;
}

static void close_counted(void *plugin)
{
	(void)plugin;
	closed++;
}

/* A plugin that cannot open, and every set-up call that fails: the creation fails, and leaves nothing (dev_close would tell) */
static void failed_start_only_logged(void **state)
{
	static const struct inlay_task_plugin p = {INLAY_PLUGIN_VERSION, INLAY_PLUGIN_LAYOUT, "p",
						   open_counted, close_counted, NULL, NULL, echo, NULL, NULL};
	static int bad;
	const struct inlay_task_entry three[] = {{1, &p, NULL}, {2, &p, NULL}, {3, &p, &bad}};
	struct inlay_task_worker_params wp = worker_params();
	struct inlay_task_host_params hp = host_params();
	struct line *l = (struct line *)pages(sizeof(*l));
	struct desk *d = (struct desk *)pages(sizeof(*d));
	void *memory, *more;
	void *hosts = pages(inlay_task_host_size(&hp));
	uint32_t n, failed = 0;
	char spec[40];
	int err;

	(void)state;
	wp.plugins = three;
	wp.num_plugins = 3;
	memory = pages(inlay_task_worker_size(&wp));
	more = pages(inlay_task_conn_size(&wp));
	opened = closed = 0;
	assert_int_equal(inlay_task_worker_create(&d->worker, memory, inlay_task_worker_size(&wp), dev.pd, &wp, NULL), -EHOSTDOWN);
	assert_int_equal(opened, 2);
	assert_int_equal(closed, 2);
	wp.num_plugins = 2;
	if (softdev_present()) {
		for (n = 1; n < 60; n++) {
			snprintf(spec, sizeof(spec), "setup=ENOSPC@%u", n);
			must(softdev_fault(spec));
			opened = closed = 0;
			err = inlay_task_worker_create(&d->worker, memory, inlay_task_worker_size(&wp), dev.pd, &wp, NULL);
			if (!err) {
				err = inlay_task_conn_create(&l->conn, more, inlay_task_conn_size(&wp), &d->worker, NULL);
				if (!err) {
					err = inlay_task_host_create(&l->host, hosts, inlay_task_host_size(&hp), dev.pd, &hp, NULL);
					if (!err)
						must(inlay_task_host_destroy(&l->host));
					must(inlay_task_conn_destroy(&l->conn));
				}
				must(inlay_task_worker_destroy(&d->worker));
			}
			assert_int_equal(opened, closed);
			failed += err != 0;
			if (!err && n > 30)
				break;
		}
		must(softdev_fault(NULL));
		assert_true(failed > 8);
		/* The same, once nothing fails */
		must(inlay_task_worker_create(&d->worker, memory, inlay_task_worker_size(&wp), dev.pd, &wp, NULL));
		must(inlay_task_worker_destroy(&d->worker));
	}
	free(memory);
	free(more);
	free(hosts);
	free(l);
	free(d);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(oversize_command_sent),
		cmocka_unit_test(context_taken_from_the_response),
		cmocka_unit_test(malformed_command_never_answered),
		cmocka_unit_test(lengths_added_with_overflow),
		cmocka_unit_test(appended_parts_overrun_the_payload),
		cmocka_unit_test(pack_and_unpack_defined_apart),
		cmocka_unit_test(pointers_on_the_wire),
		cmocka_unit_test(unknown_key_counted_as_success),
		cmocka_unit_test(progress_taken_for_ones_own),
#if defined(__GLIBC__) && !SANITIZED
		cmocka_unit_test(allocation_per_command),
#endif
		cmocka_unit_test(failed_start_only_logged),
	};

	return cmocka_run_group_tests_name("task_known_faults", tests, dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1");
}
