/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * buffers.c: payloads and responses in buffers of the caller's: lists, buffers without keys or without windows, buffers that are
 * given back, responses that get nothing or are elsewhere. Time is the test's own.
 */
#include "scene.h"

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
		plain();
		usual_scene(1, 4);
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
			must(inlay_buf_chain_list(inlay_task_payload(t), all));
		else
			must(inlay_buf_chain_list(head, all));
		if (way & 2)
			must(inlay_buf_chain_list(way & 1 ? inlay_task_payload(t) : head, last));
		if (!(way & 1))
			must(inlay_task_set_payload(t, head));
		must(inlay_task_set_response(t, in));
		answered(t, 9000, way);
		assert_int_equal(line->host.broken, 0);
		must(inlay_task_set_payload(t, NULL));
		must(inlay_task_release(t));
		/* A list that was behind the task's own is one again */
		must(inlay_buf_dec_refcount(head, NULL));
		if (way & 1)
			must(inlay_buf_dec_refcount(all, NULL));
		if (!(way & 2))
			must(inlay_buf_dec_refcount(last, NULL));
		must(inlay_inventory_destroy(near));
		scene_free();
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
	plain();
	usual_scene(1, 4);
	t = task(ECHO);
	must(inlay_inventory_create(line->near_memory, inlay_inventory_size(NEAR), NEAR, &near));
	must(inlay_inventory_start(near));
	must(inlay_inventory_get_by_data(near, &outside.map, outside.at, 100, &first));
	must(inlay_inventory_get_by_data(near, &outside.map, outside.at + 100, 50, &second));
	fill(outside.at, 150, 3);
	must(inlay_buf_chain_list(inlay_task_payload(t), first));
	must(inlay_buf_chain_list(inlay_task_payload(t), second));
	answered(t, 150, 3);
	must(inlay_task_release(t));
	u = task(ECHO);
	assert_ptr_equal(u, t);
	assert_int_equal(inlay_buf_list_bytes(inlay_task_payload(u)), 0);
	assert_null(inlay_buf_next(inlay_task_payload(u)));
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
	scene_free();
}

/* Written to the caller's buffer, which is then taken away: there is none of it in the answer */
static void response_elsewhere(void **state)
{
	struct inlay_buf *all = NULL, *r;
	struct inlay_task *t;

	(void)state;
	plain();
	usual_scene(1, 4);
	must(inlay_inventory_get_by_data(inv, &outside.map, outside.at, 9000, &all));
	fill(outside.at, 9000, 5);
	t = task(BACK);
	must(inlay_task_set_payload(t, all));
	must(inlay_task_set_response(t, in));
	answered(t, 9000, 5);
	must(inlay_task_set_response(t, NULL));
	r = inlay_task_response(t);
	assert_int_equal(inlay_buf_data_len(r), 0);
	assert_true(inlay_buf_fits_(r->head, r->len, r->data, r->data_len));
	/* One that is in the answer is there, as before */
	must(inlay_task_set_payload(t, NULL));
	must(inlay_task_set_plugin(t, ECHO));
	payload(t, 70, 6);
	answered(t, 70, 6);
	must(inlay_task_release(t));
	must(inlay_buf_dec_refcount(all, NULL));
	scene_free();
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
	plain();
	usual_scene(1, 4);
	room = (line->host.message - INLAY_TASK_HEAD);
	must(inlay_mmap_create(&map, memory, inlay_mmap_size(1, 1), 1, 1));
	must(inlay_mmap_add_dev(&map, dev.pd));
	must(inlay_mmap_add(&map, inlay_source_keys((uintptr_t)at, LARGE, none)));
	must(inlay_mmap_start(&map));
	must(inlay_inventory_get_by_addr(inv, &map, at, room, &small));
	must(inlay_inventory_get_by_addr(inv, &map, at, room + 1, &large));
	t = task(ECHO);
	inlay_buf_set_data(small, at, 8);
	must(inlay_task_set_payload(t, small));
	assert_int_equal(inlay_task_try_submit(t), -EINVAL);
	must(inlay_task_set_payload(t, NULL));
	inlay_buf_set_data(small, at, 0);
	payload(t, 500, 7);
	must(inlay_task_set_response(t, large));
	pi = line->host.link.sq.pi;
	assert_int_equal(inlay_task_try_submit(t), -EINVAL);
	assert_int_equal(t->state, INLAY_TASK_IDLE);
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
	scene_free();
	must(inlay_mmap_destroy(&map));
	free(memory);
	free(at);
}

/* A buffer that a submit cannot use, as a payload and as a response: nothing is posted */
static void submit_refuses(struct inlay_task *t, struct inlay_buf *buf)
{
	uint32_t pi = inlay_sq_index(&line->host.link.sq);

	must(inlay_task_set_payload(t, buf));
	assert_int_equal(inlay_task_try_submit(t), -EINVAL);
	must(inlay_task_set_payload(t, NULL));
	must(inlay_task_set_response(t, buf));
	assert_int_equal(inlay_task_try_submit(t), -EINVAL);
	must(inlay_task_set_response(t, NULL));
	assert_int_equal(t->state, INLAY_TASK_IDLE);
	assert_int_equal(inlay_sq_index(&line->host.link.sq), pi);
}

/* Buffers that were given back, or are not the head of their list: for a task, and for a worker's answer, which may be a list of 16 */
static void unusable(void **state)
{
	struct inlay_buf *piece[17];
	struct inlay_inventory *more;
	struct inlay_task *t;
	void *memory = pages(inlay_inventory_size(ARRAY(piece)));
	uint32_t i;

	(void)state;
	plain();
	usual_scene(1, 4);
	must(inlay_inventory_create(memory, inlay_inventory_size(ARRAY(piece)), ARRAY(piece), &more));
	must(inlay_inventory_start(more));
	for (i = 0; i < ARRAY(piece); i++) {
		must(inlay_inventory_get_by_data(more, &outside.map, outside.at + 10 * i, 10, &piece[i]));
		if (i && i < 16)
			must(inlay_buf_chain_list(piece[0], piece[i]));
	}
	fill(outside.at, 160, 3);
	t = task(KEEP);
	payload(t, 8, 1);
	submit_refuses(t, piece[1]);
	piece[16]->data_len++;
	submit_refuses(t, piece[16]);
	piece[16]->data_len--;
	must(inlay_task_try_submit(t));
	until(num_kept == 1);
	assert_int_equal(inlay_task_cmd_answer_buf(kept[0], 0, piece[1]), -EINVAL);
	must(inlay_buf_chain_list(piece[0], piece[16]));
	assert_int_equal(inlay_task_cmd_answer_buf(kept[0], 0, piece[0]), -E2BIG);
	must(inlay_buf_unchain_list(piece[0], piece[16]));
	must(inlay_buf_dec_refcount(piece[16], NULL));
	assert_int_equal(inlay_task_cmd_answer_buf(kept[0], 0, piece[16]), -EINVAL);
	must(inlay_task_cmd_answer_buf(kept[0], 0, piece[0]));
	until_done(t);
	good(t, 160, 3);
	submit_refuses(t, piece[16]);
	must(inlay_task_release(t));
	until(inlay_buf_refcount(piece[0]) == 1);
	must(inlay_buf_dec_refcount(piece[0], NULL));
	must(inlay_inventory_destroy(more));
	scene_free();
	free(memory);
}

static void empty_response(void **state)
{
	struct inlay_buf *small = NULL, *five[6] = {NULL};
	struct inlay_task *t, *others[TASKS];
	uint32_t way, i;

	(void)state;
	plain();
	hp.tasks = 2 * TASKS;
	hp.max_gather = 4;
	usual_scene(1, 4);
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
			t->deadline = clock_now + 5;
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
				inlay_task_worker_flush_(&desk->worker);
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
		if (inlay_buf_data_len(small) || inlay_buf_data_len(inlay_task_response(t)))
			fail_msg("way %u, status %d: %u bytes of response", way, inlay_task_status(t), (uint32_t)inlay_buf_data_len(small));
		assert_ptr_equal(inlay_buf_data(small), outside.at + 2 * LARGE + 800);
		switch (way) {
		case 0:
			assert_int_equal(inlay_task_status(t), -EMSGSIZE);
			assert_int_equal(t->response_len, 240);
			break;
		case 1: assert_int_equal(inlay_task_status(t), -ENOENT); break;
		case 2:
			assert_int_equal(inlay_task_status(t), -ETIMEDOUT);
			must(inlay_task_cmd_answer_data(kept[0], 0, kept[0]->payload, 200));
			until(!line->host.outstanding);
			assert_int_equal(inlay_buf_data_len(small), 0);
			break;
		case 3:
			assert_int_equal(inlay_task_status(t), -ECANCELED);
			until(num_kept == 1);
			must(inlay_task_cmd_answer(kept[0], 0));
			break;
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
		until(t->state == INLAY_TASK_IDLE);
	}
	must(inlay_task_set_response(t, NULL));
	must(inlay_task_release(t));
	must(inlay_buf_dec_refcount(small, NULL));
	scene_free();
}

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
	plain();
	usual_scene(1, 4);
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
			assert_int_equal(t->state, INLAY_TASK_IDLE);
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
		assert_int_equal(line->host.broken, 0);
		must(inlay_buf_dec_refcount(large, NULL));
		must(inlay_buf_dec_refcount(small, NULL));
		must(inlay_buf_dec_refcount(response, NULL));
		must(inlay_mmap_destroy(&map));
	}
	scene_free();
	free(memory);
	free(at);
}

/* A message that fills what the worker receives into, with a key in it */
static void full_message(void **state)
{
	struct inlay_task *t;
	uint32_t len;

	(void)state;
	plain();
	usual_scene(1, 4);
	t = task(ECHO);
	must(inlay_task_set_response(t, in));
	/* A task that is out is busy, whatever has become of its buffers */
	payload(t, 8, 1);
	must(inlay_task_submit_quiet(t));
	must(inlay_buf_chain_list(in, out));
	assert_int_equal(inlay_task_try_submit(t), -EBUSY);
	must(inlay_buf_unchain_list(in, out));
	inlay_task_host_flush(&line->host);
	until_done(t);
	good(t, 8, 1);
	len = line->host.payload_max - INLAY_TASK_KEY;
	assert_int_equal(INLAY_TASK_HEAD + INLAY_TASK_KEY + len, wp.message);
	payload(t, len, 9);
	answered(t, len, 9);
	must(inlay_task_release(t));
	scene_free();
}

/* A task's own payload that is longer than a message goes by a key, too */
static void own_payload_by_a_key(void **state)
{
	struct inlay_task *t;

	(void)state;
	plain();
	hp.payload = 9000;
	usual_scene(1, 4);
	t = task(BACK);
	payload(t, 9000, 7);
	must(inlay_task_set_response(t, in));
	answered(t, 9000, 7);
	assert_int_equal(line->host.broken, 0);
	must(inlay_task_release(t));
	scene_free();
}

/* One command at a time, and as much inline as can be: the rings are still eight times as long as the longest WQE */
static void smallest_rings(void **state)
{
	struct inlay_task *t;
	uint32_t len;

	(void)state;
	plain();
	hp.tasks = hp.in_flight = wp.credits = wp.spare = 1;
	hp.max_inline = wp.max_inline = 512;
	for (hp.windows = 0; hp.windows <= 2; hp.windows++) {
		usual_scene(1, 2);
		assert_true(inlay_sq_size(&line->host.link.sq) >= 8 * inlay_task_inline_bbs_(32 + 512));
		assert_true(inlay_sq_size(&line->conn.link.sq) >= 8 * inlay_task_inline_bbs_(512));
		t = task(ECHO);
		for (len = 0; len < 600; len += 7) {
			payload(t, len, len);
			answered(t, len, len);
		}
		fill(outside.at, LARGE, 8);
		must(inlay_task_set_plugin(t, BACK));
		must(inlay_task_set_payload(t, out));
		if (hp.windows)
			must(inlay_task_set_response(t, in));
		/* It needs two windows, or one: the host has one less */
		if (hp.windows < 2)
			assert_int_equal(inlay_task_submit(t), -E2BIG);
		else
			answered(t, LARGE, 8);
		must(inlay_task_release(t));
		scene_free();
	}
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
	plain();
	usual_scene(1, 4);
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
		/* The worker may read the payload and write the response, and no more */
		if (windows == 2)
			assert_int_equal(inlay_sq_wqe(sq, first + 1)[2] & 0x70, 0x10);
		assert_int_equal(inlay_sq_wqe(sq, first + 3 * windows - 2)[2] & 0x70, 0x20);
		wqe = inlay_sq_wqe(sq, first + 3 * windows);
		assert_int_equal(wqe[3], MLX5_OPCODE_SEND);
		assert_int_equal(wqe[11] & 0xe0, MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE);
		inlay_task_host_flush(&line->host);
		until(inlay_task_status(t) != -EINPROGRESS);
		must(inlay_task_status(t));
	}
	must(inlay_task_release(t));
	must(inlay_buf_dec_refcount(all, NULL));
	scene_free();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(payload_behind_an_empty_head),
		cmocka_unit_test(list_left_behind),
		cmocka_unit_test(response_elsewhere),
		cmocka_unit_test(response_without_key),
		cmocka_unit_test(unusable),
		cmocka_unit_test(empty_response),
		cmocka_unit_test(memory_without_windows),
		cmocka_unit_test(full_message),
		cmocka_unit_test(own_payload_by_a_key),
		cmocka_unit_test(smallest_rings),
		cmocka_unit_test(command_waits_for_its_windows),
	};

	return cmocka_run_group_tests_name("task_buffers", tests, dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") ||
	       again_trapped();
}
