/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * explain.c: what inlay_sq_explain says of a queue that does not complete, for each cause that it knows; and what a transport with a WQE
 * encoder of its own needs: WQEs that it has written, raw flags, a register that it shares, a count of WQEs.
 */
#include "rig.h"

static struct pair p;

static int up(void **state)
{
	(void)state;
	pair_make(&p, &usual);
	p.a.sq.cq = &p.a.cq;
	return 0;
}

static int down(void **state)
{
	(void)state;
	pair_free(&p);
	return 0;
}

/* Whether it says this; and, with only, nothing else */
static void says(const struct inlay_sq *sq, const char *what, bool only)
{
	char *text = NULL, *line;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	inlay_sq_explain(out, sq);
	fclose(out);
	if (!strstr(text, what))
		fail_msg("not \"%s\" but: %s", what, text);
	line = strchr(text, '\n');
	if (only && line[1] && strchr(line + 1, '\n')[1])
		fail_msg("more than \"%s\": %s", what, text);
	free(text);
}

static void causes(void **state)
{
	struct ibv_qp_attr attr;
	uint64_t value = 5;
	struct inlay_sq none;
	uint16_t record;

	(void)state;
	memset(&none, 0, sizeof(none));
	says(&none, "not attached", true);
	says(&p.a.sq, "nothing is posted", true);
	must(inlay_post_write_inline(&p.a.sq, raddr_of(&p.b, 0), p.b.mr->rkey, &value, 8, INLAY_SIGNALED));
	says(&p.a.sq, "1 WQEBBs are posted and not rung for", true);
	inlay_sq_ring(&p.a.sq);
	if (stepped())
		says(&p.a.sq, "nothing is wrong here", true);
	sent(&p.a);
	must(inlay_post_write_inline(&p.a.sq, raddr_of(&p.b, 0), p.b.mr->rkey, &value, 8, INLAY_RING));
	settle();
	says(&p.a.sq, "none of them is signaled", true);
	must(inlay_post(&p.a.sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED | INLAY_RING));
	cqe_wait(&p.a.cq);
	says(&p.a.sq, "its CQ holds a completion, one of QP", true);
	record = *p.a.sq.dbrec;
	*p.a.sq.dbrec = inlay_to_be16(77);
	says(&p.a.sq, "the doorbell record says 77, the queue ", false);
	*p.a.sq.dbrec = record;
	sent(&p.a);
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_ERR;
	must(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE));
	must(inlay_post(&p.a.sq, MLX5_OPCODE_NOP, NULL, INLAY_RING));
	says(&p.a.sq, "the QP is in ERR", false);
	cqe_wait(&p.a.cq);
	says(&p.a.sq, "its CQ holds a completion, an error of QP", false);
	must(inlay_sq_release(&p.a.sq, inlay_cq_peek(&p.a.cq)) != 1);
	inlay_cq_advance(&p.a.cq, 1);
}

/* WQEs written by hand at the queue's place, of one WQEBB and of two, over the ring's end */
static void written(void **state)
{
	struct inlay_sq *sq = &p.a.sq;
	uint8_t data[100];
	uint32_t i;

	(void)state;
	for (i = 0; i < 3 * inlay_sq_size(sq); i++) {
		const uint32_t len = i % 3 ? 8 : 60, index = inlay_sq_index(sq), bbs = i % 3 ? 1 : 2;
		struct inlay_cursor at = inlay_cursor_init(sq->buf, inlay_sq_size(sq), index, bbs);
		const uint32_t byte = (4u << 5) | 8; /* small and fence, a CQE */

		fill(data, len, i);
		at = inlay_seg_raddr(at, raddr_of(&p.b, 0), p.b.mr->rkey);
		at = inlay_seg_inline(at, data, len);
		inlay_wqe_ctrl(at.wqe, index, MLX5_OPCODE_RDMA_WRITE, (uint64_t)inlay_sq_qpn(sq) << 8, at.ds, INLAY_RAW_FLAGS(byte), 0);
		assert_int_equal(at.wqe[11], byte);
		assert_int_equal(inlay_sq_commit_written(sq, (uint32_t)at.ds, i % 2 ? INLAY_RING : 0), bbs);
		assert_int_equal(inlay_sq_wqes(sq), 1);
		inlay_sq_ring(sq);
		sent(&p.a);
		assert_int_equal(differs(p.b.buf, len, i), len);
	}
	for (i = 0; i < 5; i++)
		must(inlay_post(sq, MLX5_OPCODE_NOP, NULL, i == 4 ? INLAY_SIGNALED | INLAY_RING : 0));
	assert_int_equal(inlay_sq_wqes(sq), 5);
	sent(&p.a);
	assert_int_equal(inlay_sq_wqes(sq), 0);
}

/* Every raw byte is flags of a post, unless its fence is none; commit says how many WQEBBs */
static void raw_flags(void **state)
{
	struct inlay_cursor at;
	uint32_t byte;

	(void)state;
	for (byte = 0; byte < 256; byte++)
		assert_int_equal(inlay_flags_ok_(INLAY_RAW_FLAGS(byte)), byte >> 5 <= 4 && !(byte & 0x15));
	must(inlay_sq_begin(&p.a.sq, 3, &at));
	at = inlay_seg_raddr(at, raddr_of(&p.b, 0), p.b.mr->rkey);
	at = inlay_seg_inline(at, p.a.buf, 60);
	assert_int_equal(inlay_sq_commit(&p.a.sq, at, MLX5_OPCODE_RDMA_WRITE, 0, INLAY_SIGNALED | INLAY_RING, 0), 2);
	sent(&p.a);
}

/* Both halves of the register in turn, whoever writes */
static void shared_register(void **state)
{
	struct inlay_uar *uar = p.a.sq.uar, unknown;
	uint8_t *first = inlay_uar_toggle(uar), *second = inlay_uar_toggle(uar);

	(void)state;
	assert_ptr_equal(first < second ? first : second, uar->reg);
	assert_int_equal(first > second ? first - second : second - first, uar->size);
	memset(&unknown, 0, sizeof(unknown));
	assert_null(inlay_uar_toggle(&unknown));
}

static void devices(void **state)
{
	const char *why = NULL, *names[] = {ibv_get_device_name(dev.ctx->device), NULL};
	struct ibv_context *ctx;
	uint32_t i;

	(void)state;
	for (i = 0; i < ARRAY(names); i++) {
		ctx = inlay_device_open(names[i], &why);
		assert_non_null(ctx);
		assert_true(mlx5dv_is_supported(ctx->device));
		must(ibv_close_device(ctx));
	}
	assert_null(inlay_device_open("no such device", &why));
	assert_string_equal(why, "no mlx5 device has this name");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(causes, up, down),
		cmocka_unit_test_setup_teardown(written, up, down),
		cmocka_unit_test_setup_teardown(raw_flags, up, down),
		cmocka_unit_test_setup_teardown(shared_register, up, down),
		cmocka_unit_test(devices),
	};

	return cmocka_run_group_tests_name("explain", tests, dev_open, dev_close);
}
