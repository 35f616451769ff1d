/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * explain.c: what inlay_sq_explain says of a queue that does not complete, for each cause that it knows; and what a transport with a WQE
 * encoder of its own needs: WQEs that it has written, raw flags, a register that it shares, a count of WQEs.
 */
#include "rig.h"

static struct pair p;

static int up(UNUSED void **state)
{
	pair_make(&p, &usual);
	p.a.sq.cq = &p.a.cq;
	return 0;
}

static int down(UNUSED void **state)
{
	pair_free(&p);
	return 0;
}

static void write_8(uint32_t flags)
{
	static const uint64_t value = 5;

	must(inlay_post_write_inline(&p.a.sq, raddr_of(&p.b, 0), p.b.mr->rkey, &value, 8, flags));
}

enum { NEW, UNRUNG, UNDER_WAY, UNSIGNALED, FULL, COMPLETED, NO_CQ, OTHER_RECORD, OTHER_WQE, LONGER_WQE, RELEASED, STOPPED, RESET, FINISHED, CAUSES };

/* What is said of each: a line each, in this order, and no other */
static const char *const says[CAUSES][4] = {
	{"everything posted was released"}, {"1 WQEBBs are posted and not rung for"}, {"nothing is wrong here"},
	{"none of them is signaled"}, {"none of them is signaled", "the ring is full"},
	{"its CQ holds a completion, one of QP"}, {"it was taken over without a CQ"},
	{"the doorbell record says 77, the queue ", "its CQ holds"}, {" begins no WQE", "its CQ holds"},
	{" begins no WQE", "its CQ holds"}, {"everything posted was released"},
	{"none of them is signaled", "its CQ holds a completion, an error of QP", "the QP is in ERR"},
	{"everything posted was released", "the QP is in RESET"}, {"not attached"},
};

/* Each state of the queue is made from the one before */
static void cause(uint32_t i)
{
	static uint16_t record;
	struct inlay_sq *sq = &p.a.sq;
	uint8_t *only = inlay_sq_wqe(sq, inlay_sq_index(sq) - 1) + 7; /* from COMPLETED on: the NOP's length */

	switch (i) {
	case UNRUNG: write_8(INLAY_SIGNALED); break;
	case UNDER_WAY: inlay_sq_ring(sq); break;
	case UNSIGNALED: sent(&p.a); write_8(INLAY_RING); settle(); break;
	case FULL:
		while (inlay_sq_room(sq) > 1)
			write_8(0);
		write_8(INLAY_RING);
		settle();
		break;
	case COMPLETED:
		must(inlay_sq_release_until(sq, inlay_sq_index(sq)) < 1);
		must(inlay_post(sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED | INLAY_RING));
		cqe_wait(&p.a.cq);
		break;
	case NO_CQ: sq->cq = NULL; sq->verbs = NULL; break; /* as inlay_sq_init leaves it */
	case OTHER_RECORD:
		sq->cq = &p.a.cq;
		sq->verbs = p.a.qp;
		record = *sq->dbrec;
		*sq->dbrec = inlay_to_be16(77);
		break;
	case OTHER_WQE: *sq->dbrec = record; *only &= 0xc0; break;
	case LONGER_WQE: *only |= 5; break;
	case RELEASED: *only = (uint8_t)((*only & 0xc0) | 1); sent(&p.a); break;
	case STOPPED:
		qp_to(p.a.qp, IBV_QPS_ERR);
		must(inlay_post(sq, MLX5_OPCODE_NOP, NULL, INLAY_RING));
		cqe_wait(&p.a.cq);
		break;
	case RESET:
		must(inlay_sq_release(sq, inlay_cq_peek(&p.a.cq)) != 1);
		inlay_cq_advance(&p.a.cq, 1);
		qp_to(p.a.qp, IBV_QPS_RESET);
		inlay_sq_reset(sq);
		break;
	case FINISHED: inlay_sq_fini(sq); break;
	}
}

TEST_WITH(each_cause, up, down)
{
	char *text = NULL, *line, *rest;
	size_t len;
	FILE *out;

	for (uint32_t i = 0; i < CAUSES; i++) {
		cause(i);
		if (i == UNDER_WAY && !stepped())
			continue; /* it may have completed already */
		out = made(open_memstream(&text, &len));
		inlay_sq_explain(out, &p.a.sq);
		fclose(out);
		rest = text;
		line = strsep(&rest, "\n");
		if (strstr(line, "0x"))
			line = strsep(&rest, "\n");
		for (uint32_t j = 0; says[i][j]; j++, line = strsep(&rest, "\n"))
			if (!line || !strstr(line, says[i][j]))
				fail_msg("row %u: not \"%s\" but: %s", i, says[i][j], line ? line : "no more");
		if (line && *line)
			fail_msg("row %u: more: %s", i, line);
		free(text);
	}
}

/* WQEs written by hand at the queue's place, of one WQEBB and of two, over the ring's end */
TEST_WITH(written, up, down)
{
	struct inlay_sq *sq = &p.a.sq;
	uint8_t data[100];

	for (uint32_t i = 0; i < 3 * inlay_sq_size(sq); i++) {
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
	for (uint32_t i = 0; i < 5; i++)
		must(inlay_post(sq, MLX5_OPCODE_NOP, NULL, i == 4 ? INLAY_SIGNALED | INLAY_RING : 0));
	assert_int_equal(inlay_sq_wqes(sq), 5);
	sent(&p.a);
	assert_int_equal(inlay_sq_wqes(sq), 0);
}

/* Every raw byte is flags of a post, unless its fence is none; commit says how many WQEBBs */
TEST_WITH(raw_flags, up, down)
{
	struct inlay_cursor at;

	for (uint32_t byte = 0; byte < 256; byte++)
		assert_int_equal(inlay_flags_ok_(INLAY_RAW_FLAGS(byte)), byte >> 5 <= 4 && !(byte & 0x15));
	must(inlay_sq_begin(&p.a.sq, 3, &at));
	at = inlay_seg_raddr(at, raddr_of(&p.b, 0), p.b.mr->rkey);
	at = inlay_seg_inline(at, p.a.buf, 60);
	assert_int_equal(inlay_sq_commit(&p.a.sq, at, MLX5_OPCODE_RDMA_WRITE, 0, INLAY_SIGNALED | INLAY_RING, 0), 2);
	sent(&p.a);
}

/* Both halves of the register in turn, whoever writes */
TEST_WITH(shared_register, up, down)
{
	struct inlay_uar *uar = p.a.sq.uar, unknown = {};
	uint8_t *first = inlay_uar_toggle(uar), *second = inlay_uar_toggle(uar);

	assert_ptr_equal(first < second ? first : second, uar->reg);
	assert_int_equal(first > second ? first - second : second - first, uar->size);
	assert_null(inlay_uar_toggle(&unknown));
}

TEST(devices)
{
	const char *why = NULL, *names[] = {ibv_get_device_name(dev.ctx->device), NULL};
	struct ibv_context *ctx;

	for (uint32_t i = 0; i < ARRAY(names); i++) {
		ctx = made(inlay_device_open(names[i], &why));
		assert_true(mlx5dv_is_supported(ctx->device));
		must(ibv_close_device(ctx));
	}
	errno = 0;
	assert_null(inlay_device_open("no such device", &why));
	assert_int_equal(errno, ENODEV);
	assert_string_equal(why, "no mlx5 device has this name");
}

int main(void)
{
	return run_all(dev_open, dev_close);
}
