/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oracle_ud.c: datagrams, byte for byte as libmlx5's: see oracle.h. The address handles are of every kind that the port has, and the whole
 * program runs again on an InfiniBand port. The device is stepped.
 */
#include "common.h"
#include "oracle_send.h"

/* ---- constants ---- */

#define LEN(n) case (n): return inlay_post_ud_send_inline(sq, &r->av, (const void *)(uintptr_t)r->sge[0].addr, (n), flags);
#define LEN4(n) LEN(n) LEN((n) + 1) LEN((n) + 2) LEN((n) + 3)

/* Call sites at which opcode, number of SGEs or inline length, and flags are constants */
INLAY_ALWAYS int const_inline(struct inlay_sq *sq, const struct req *r, uint32_t flags)
{
	switch (r->sge[0].length) {
	LEN4(0) LEN4(4) LEN4(8) LEN4(12) LEN4(16) LEN4(24) LEN4(28) LEN4(32) LEN4(42) LEN4(48) LEN4(58) LEN4(76) LEN(92) LEN(93) LEN(124)
	LEN(125) LEN(172) LEN(173) LEN(256) LEN(892)
	default: return in_plain(sq, r);
	}
}

INLAY_ALWAYS int const_sges(struct inlay_sq *sq, const struct req *r, uint8_t op, uint32_t flags)
{
	switch (r->nsge) {
	case 0: return in_datagram(sq, r, op, r->sge, 0, flags);
	case 1: return in_datagram(sq, r, op, r->sge, 1, flags);
	case 2: return in_datagram(sq, r, op, r->sge, 2, flags);
	case 3: return in_datagram(sq, r, op, r->sge, 3, flags);
	case 4: return in_datagram(sq, r, op, r->sge, 4, flags);
	case 5: return in_datagram(sq, r, op, r->sge, 5, flags);
	default: return in_plain(sq, r);
	}
}

#define CONST_FN(name, call)                                                                                                       \
	static __attribute__((noinline)) int name(struct inlay_sq *sq, const struct req *r)                                        \
	{                                                                                                                          \
		return call;                                                                                                       \
	}

CONST_FN(const_signaled, const_inline(sq, r, INLAY_SIGNALED))
CONST_FN(const_unsignaled, const_inline(sq, r, 0))
CONST_FN(const_send, const_sges(sq, r, SEND, INLAY_SIGNALED))
CONST_FN(const_send_inline, const_sges(sq, r, SEND, INLAY_INLINE))
CONST_FN(const_send_flags, const_sges(sq, r, SEND, in_flags(r)))
CONST_FN(const_imm, const_sges(sq, r, SEND_IMM, INLAY_SIGNALED))
CONST_FN(const_imm_inline, const_sges(sq, r, SEND_IMM, INLAY_INLINE))
CONST_FN(const_imm_flags, const_sges(sq, r, SEND_IMM, in_flags(r)))

/* The function whose constants are r's */
static int in_constant(struct inlay_sq *sq, const struct req *r)
{
	if (r->op == SEND && r->inl && r->nsge == 1 && !(r->flags & ~SIG))
		return r->flags ? const_signaled(sq, r) : const_unsignaled(sq, r);
	if (r->inl && !r->flags)
		return r->op == SEND ? const_send_inline(sq, r) : const_imm_inline(sq, r);
	if (!r->inl && r->flags == SIG)
		return r->op == SEND ? const_send(sq, r) : const_imm(sq, r);
	return r->op == SEND ? const_send_flags(sq, r) : const_imm_flags(sq, r);
}

/* ---- tests ---- */

/* The port whose address handles these are */
static void right_port(void **state)
{
	const char *link = getenv("SOFTDEV_LINK");
	unsigned i, k, global = 0, v1 = 0;

	(void)state;
	need_softdev("the oracle");
	assert_int_equal(dev.port.link_layer, link && !strcmp(link, "ib") ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET);
	for (i = 0; i < MAX_PEERS; i++) {
		struct mlx5dv_obj obj;
		struct mlx5dv_ah dv;

		memset(&obj, 0, sizeof(obj));
		obj.ah.in = peers[i];
		obj.ah.out = &dv;
		must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH));
		for (k = 0; k < 16 && !dv.av->rgid[k]; k++)
			;
		global += k < 16;
		v1 += !dv.av->rlid;
	}
	/* Both kinds that either port has: with and without GRH, version 1 and 2 */
	if (dev.port.link_layer == IBV_LINK_LAYER_INFINIBAND)
		assert_int_equal(global, MAX_PEERS / 2);
	else
		assert_true(v1 > 0 && v1 < MAX_PEERS && global == MAX_PEERS);
}

/*
 * Every handle, and numbers and keys with each bit set: on a UD QP only, and by each of inlay's two ways to an address vector. What the
 * caller did not give must stay as the handle has it.
 */
static void addresses(void **state)
{
	struct mlx5dv_obj obj;
	struct mlx5dv_ah dv;
	struct req r;
	uint32_t i, k, api;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (i = 0; i < MAX_PEERS; i++)
		for (k = 0; k < 32 + 24 + 4; k++)
			for (api = 0; api < APIS; api++) {
				req_init(&r, k & 1, SIG);
				r.to = peers[i];
				r.qkey = k < 32 ? 1u << k : (uint32_t)rnd();
				r.qpn = k < 32 ? rnd_below(1 << 24) : k < 32 + 24 ? 1u << (k - 32) : k & 1 ? 0 : 0xffffff;
				if (k & 2) {
					memset(&obj, 0, sizeof(obj));
					obj.ah.in = r.to;
					obj.ah.out = &dv;
					must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH));
					inlay_av_init(&r.av, dv.av, r.qpn, r.qkey);
				} else {
					must(inlay_av_from_ah(&r.av, r.to, r.qpn, r.qkey));
				}
				if (k & 4)
					req_inline(&r, 1 + rnd_below(32));
				else
					req_pointer(&r, some_length());
				if (T.head - T.tail == T.cap.max_send_wr)
					complete_all(&T);
				run(&T, api, PLAIN, false, &r, 1);
			}
	trio_close(&T);
	counted("addresses");
}

/* Can the comparison fail? Each byte of a datagram's address vector, spoiled on inlay's side, must be seen and named */
static void self_check(void **state)
{
	FILE *was = report_to;
	uint32_t i, begin;
	char *text = NULL;
	size_t len = 0;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (i = 0; i < sizeof(r.av); i++) {
		char place[32];
		int wrong;

		complete_all(&T);
		req_init(&r, SEND_IMM, SIG);
		req_inline(&r, 100);
		begin = T.pos;
		fill_free(&T);
		((uint8_t *)&r.av)[i] ^= 1;
		post_batch(&T, i & 1, PLAIN, false, &r, 1);
		report_to = open_memstream(&text, &len);
		assert_non_null(report_to);
		wrong = check_batch(&T, &r, 1, begin);
		fclose(report_to);
		report_to = was;
		assert_int_equal(wrong, 1);
		snprintf(place, sizeof(place), "+%u byte %u:", (16 + i) & ~15u, i & 15);
		assert_non_null(strstr(text, place));
		assert_non_null(strstr(text, "av      qkey"));
		assert_non_null(strstr(text, "inline  100 bytes"));
		free(text);
	}
	trio_close(&T);
	cases = requests = compared = 0;
}

/* Once more in a process of its own: what the link is is settled when the device is opened */
static int again_on_ib(char *program)
{
	int status;
	pid_t pid;

	if (!softdev_present() || getenv("SOFTDEV_LINK"))
		return 0;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		setenv("SOFTDEV_LINK", "ib", 1);
		execl("/proc/self/exe", program, (char *)NULL);
		_exit(127);
	}
	return pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(right_port),
		cmocka_unit_test(self_check),
		cmocka_unit_test(addresses),
		cmocka_unit_test(inline_single),
		cmocka_unit_test(inline_gather),
		cmocka_unit_test(pointers),
		cmocka_unit_test(constants_and_cursor),
		cmocka_unit_test(doorbells),
		cmocka_unit_test(index_wraps),
		cmocka_unit_test(limits),
		cmocka_unit_test(random_runs),
	};
	int bad;

	(void)argc;
	about(&ud_kind);
	in_const = in_constant;
	bad = cmocka_run_group_tests_name("oracle: UD", tests, open_group, close_group);
	return again_on_ib(argv[0]) | bad;
}
