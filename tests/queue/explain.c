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

static uint16_t record;

/* The states of a queue, each made from the one before: the rows of causes */
static void write_8(uint32_t flags)
{
	static const uint64_t value = 5;

	must(inlay_post_write_inline(&p.a.sq, raddr_of(&p.b, 0), p.b.mr->rkey, &value, 8, flags));
}

static void unrung(void)
{
	write_8(INLAY_SIGNALED);
}

static void under_way(void)
{
	inlay_sq_ring(&p.a.sq);
}

static void unsignaled(void)
{
	sent(&p.a);
	write_8(INLAY_RING);
	settle();
}

static void full(void)
{
	while (inlay_sq_room(&p.a.sq) > 1)
		write_8(0);
	write_8(INLAY_RING);
	settle();
}

static void completed(void)
{
	must(inlay_sq_release_until(&p.a.sq, inlay_sq_index(&p.a.sq)) < 1);
	must(inlay_post(&p.a.sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED | INLAY_RING));
	cqe_wait(&p.a.cq);
}

/* As inlay_sq_init leaves it */
static void without_cq(void)
{
	p.a.sq.cq = NULL;
	p.a.sq.verbs = NULL;
}

static void other_record(void)
{
	p.a.sq.cq = &p.a.cq;
	p.a.sq.verbs = p.a.qp;
	record = *p.a.sq.dbrec;
	*p.a.sq.dbrec = inlay_to_be16(77);
}

/* Where the NOP's length is */
static uint8_t *only_wqe(void)
{
	return inlay_sq_wqe(&p.a.sq, inlay_sq_index(&p.a.sq) - 1) + 7;
}

static void other_wqe(void)
{
	*p.a.sq.dbrec = record;
	*only_wqe() &= 0xc0;
}

static void longer_wqe(void)
{
	*only_wqe() |= 5;
}

static void released(void)
{
	*only_wqe() = (uint8_t)((*only_wqe() & 0xc0) | 1);
	sent(&p.a);
}

static void stopped(void)
{
	qp_to(p.a.qp, IBV_QPS_ERR);
	must(inlay_post(&p.a.sq, MLX5_OPCODE_NOP, NULL, INLAY_RING));
	cqe_wait(&p.a.cq);
}

static void reset(void)
{
	must(inlay_sq_release(&p.a.sq, inlay_cq_peek(&p.a.cq)) != 1);
	inlay_cq_advance(&p.a.cq, 1);
	qp_to(p.a.qp, IBV_QPS_RESET);
	inlay_sq_reset(&p.a.sq);
}

static void finished(void)
{
	inlay_sq_fini(&p.a.sq);
}

static const struct {
	void (*make)(void);
	const char *says[3]; /* a line each, in this order, and no other */
} causes[] = {
	{NULL, {"everything posted was released"}},
	{unrung, {"1 WQEBBs are posted and not rung for"}},
	{under_way, {"nothing is wrong here"}},
	{unsignaled, {"none of them is signaled"}},
	{full, {"none of them is signaled", "the ring is full"}},
	{completed, {"its CQ holds a completion, one of QP"}},
	{without_cq, {"it was taken over without a CQ"}},
	{other_record, {"the doorbell record says 77, the queue ", "its CQ holds"}},
	{other_wqe, {" begins no WQE", "its CQ holds"}},
	{longer_wqe, {" begins no WQE", "its CQ holds"}},
	{released, {"everything posted was released"}},
	{stopped, {"none of them is signaled", "its CQ holds a completion, an error of QP", "the QP is in ERR"}},
	{reset, {"everything posted was released", "the QP is in RESET"}},
	{finished, {"not attached"}},
};

static void each_cause(void **state)
{
	char *text = NULL, *line, *rest;
	uint32_t i, j;
	size_t len;
	FILE *out;

	(void)state;
	for (i = 0; i < ARRAY(causes); i++) {
		if (causes[i].make)
			causes[i].make();
		if (causes[i].make == under_way && !stepped())
			continue; /* it may have completed already */
		out = open_memstream(&text, &len);
		assert_non_null(out);
		inlay_sq_explain(out, &p.a.sq);
		fclose(out);
		rest = text;
		line = strsep(&rest, "\n");
		if (strstr(line, "0x"))
			line = strsep(&rest, "\n");
		for (j = 0; j < ARRAY(causes[i].says) && causes[i].says[j]; j++, line = strsep(&rest, "\n"))
			if (!line || !strstr(line, causes[i].says[j]))
				fail_msg("row %u: not \"%s\" but: %s", i, causes[i].says[j], line ? line : "no more");
		if (line && *line)
			fail_msg("row %u: more: %s", i, line);
		free(text);
	}
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
	errno = 0;
	assert_null(inlay_device_open("no such device", &why));
	assert_int_equal(errno, ENODEV);
	assert_string_equal(why, "no mlx5 device has this name");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(each_cause, up, down),
		cmocka_unit_test_setup_teardown(written, up, down),
		cmocka_unit_test_setup_teardown(raw_flags, up, down),
		cmocka_unit_test_setup_teardown(shared_register, up, down),
		cmocka_unit_test(devices),
	};

	return cmocka_run_group_tests_name("explain", tests, dev_open, dev_close);
}
