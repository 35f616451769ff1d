/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oracle_to.c: the send queues of XRC QPs and DCIs, whose WQEs name their destination, byte for byte as libmlx5's: see oracle.h. The program
 * runs once for XRC and then again for DC, on RoCE and on InfiniBand. The device is stepped.
 *
 * libmlx5 never writes a compact address vector. What it writes of the long one is compared here, and the compact one is the same without its
 * end: wqe.c, and to.c, where the device reads it.
 */
#include "common.h"
#include "oracle_send.h"

/* ---- constants ---- */

/* Call sites at which opcode, number of SGEs or inline length, and flags are constants */
#define LEN(n) case (n): return inlay_post_to_send_inline(sq, &r->av, (const void *)(uintptr_t)r->sge[0].addr, (n), INLAY_SIGNALED);
#define WLEN(n) case (n): return inlay_post_to_write_inline(sq, &r->av, &there, (const void *)(uintptr_t)r->sge[0].addr, (n), INLAY_SIGNALED);
#define LEN8(f, n) f(n) f((n) + 1) f((n) + 2) f((n) + 3) f((n) + 4) f((n) + 5) f((n) + 6) f((n) + 7)

static __attribute__((noinline)) int const_inline(struct inlay_sq *sq, const struct req *r)
{
	switch (r->sge[0].length) {
	LEN8(LEN, 0) LEN8(LEN, 8) LEN8(LEN, 24) LEN8(LEN, 40) LEN8(LEN, 56) LEN(92) LEN(93) LEN(172) LEN(173) LEN(256) LEN(716)
	default: return in_plain(sq, r);
	}
}

static __attribute__((noinline)) int const_write_inline(struct inlay_sq *sq, const struct req *r)
{
	struct inlay_remote there = {r->raddr, r->rkey};

	switch (r->sge[0].length) {
	LEN8(WLEN, 0) LEN8(WLEN, 8) LEN8(WLEN, 24) LEN8(WLEN, 40) LEN8(WLEN, 56) WLEN(92) WLEN(93) WLEN(172) WLEN(173) WLEN(256)
	default: return in_plain(sq, r);
	}
}

INLAY_ALWAYS int const_sges(struct inlay_sq *sq, const struct req *r, uint8_t op, uint32_t flags)
{
	switch (r->nsge) {
	case 0: return in_to(sq, r, op, r->sge, 0, flags);
	case 1: return in_to(sq, r, op, r->sge, 1, flags);
	case 2: return in_to(sq, r, op, r->sge, 2, flags);
	case 3: return in_to(sq, r, op, r->sge, 3, flags);
	case 4: return in_to(sq, r, op, r->sge, 4, flags);
	case 5: return in_to(sq, r, op, r->sge, 5, flags);
	default: return in_plain(sq, r);
	}
}

#define CONST_FN(name, op, flags)                                                                                                  \
	static __attribute__((noinline)) int name(struct inlay_sq *sq, const struct req *r)                                        \
	{                                                                                                                          \
		return const_sges(sq, r, op, flags);                                                                               \
	}

CONST_FN(const_send, SEND, INLAY_SIGNALED)
CONST_FN(const_send_any, SEND, in_flags(r))
CONST_FN(const_write, WRITE, INLAY_SIGNALED)
CONST_FN(const_write_any, WRITE, in_flags(r))
CONST_FN(const_imm, WRITE_IMM, in_flags(r))
CONST_FN(const_read, READ, in_flags(r))

/* The function whose constants are r's */
static int in_constant(struct inlay_sq *sq, const struct req *r)
{
	bool usual_flags = r->flags == SIG && !r->stream;

	if (r->op == SEND)
		return usual_flags && r->inl && r->nsge == 1 ? const_inline(sq, r) : usual_flags && !r->inl ? const_send(sq, r) :
									       const_send_any(sq, r);
	if (r->op == WRITE)
		return usual_flags && r->inl && r->nsge == 1 ? const_write_inline(sq, r) : usual_flags && !r->inl ? const_write(sq, r) :
										     const_write_any(sq, r);
	return r->op == WRITE_IMM ? const_imm(sq, r) : r->op == READ ? const_read(sq, r) : in_plain(sq, r);
}

/* ---- tests ---- */

/* Can the comparison fail? Each byte of a destination, spoiled on inlay's side, must be seen and named */
static void self_check(void **state)
{
	uint32_t i, begin, bytes = is_xrc() ? 4 : 48;
	FILE *was = report_to;
	char *text = NULL;
	size_t len = 0;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (i = 0; i < bytes + 2 * is_dci(); i++) {
		char place[32];
		int wrong;

		complete_all(&T);
		req_init(&r, WRITE, SIG);
		r.stream = is_dci() ? 1 << 16 : 0;
		req_inline(&r, 100);
		begin = T.pos;
		fill_free(&T);
		/* The bit that says how long it is would be seen, but not by this */
		if (i < bytes)
			((uint8_t *)&r.av)[i] ^= 1;
		must(post_lib(&T.a, WR, &r, 1, T.head));
		must(post_lib(&T.b, WR, &r, 1, T.head));
		if (i >= bytes)
			r.stream ^= i == bytes ? 0x100 : 1;
		must(in_plain(&T.sq, &r));
		inlay_sq_ring(&T.sq);
		T.start[T.head++ & 0xffff] = T.pos;
		must(swap_qpn(T.a.ring + (begin & (T.bbs - 1)) * 64, T.a.qp->qp_num, T.qp->qp_num, begin));
		must(swap_qpn(T.b.ring + (begin & (T.bbs - 1)) * 64, T.b.qp->qp_num, T.qp->qp_num, begin));
		must(swap_qpn(T.a.reg + T.a.half * T.size, T.a.qp->qp_num, T.qp->qp_num, begin));
		must(swap_qpn(T.b.reg + T.b.half * T.size, T.b.qp->qp_num, T.qp->qp_num, begin));
		T.pos += (req_ds(&r) + 3) / 4;
		T.a.half ^= 1;
		T.b.half ^= 1;
		T.half ^= 1;
		report_to = open_memstream(&text, &len);
		assert_non_null(report_to);
		wrong = check_batch(&T, &r, 1, begin);
		fclose(report_to);
		report_to = was;
		assert_int_equal(wrong, 1);
		snprintf(place, sizeof(place), "+%u byte %u:", i < bytes ? (16 + i) & ~15u : 0, i < bytes ? i & 15 : 9 + i - bytes);
		assert_non_null(strstr(text, place));
		assert_non_null(strstr(text, is_xrc() ? "xrc     srqn" : "av      key"));
		assert_non_null(strstr(text, "raddr   "));
		free(text);
	}
	trio_close(&T);
	cases = requests = compared = 0;
}

/* Numbers, keys and streams with each bit set, with every handle, and put together from their parts */
static void addresses(void **state)
{
	struct inlay_av_base base;
	struct inlay_av_grh grh;
	struct req r;
	uint32_t i, k;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (i = 0; i < MAX_PEERS; i++)
		for (k = 0; k < 64 + 24 + 16; k++) {
			req_init(&r, k & 1 ? WRITE : SEND, SIG);
			r.qpn = k < 64 ? rnd_below(1 << 24) : k < 64 + 24 ? 1u << (k - 64) : 0xffffff;
			if (is_dci()) {
				r.to = peers[i];
				r.key = k < 64 ? UINT64_C(1) << k : rnd();
				r.stream = k < 64 + 24 ? r.stream : 1u << 16 | 1u << (k - 64 - 24);
				must(inlay_av_from_ah(&r.av, r.to, 0, 0));
				inlay_av_to_dct(&r.av, r.qpn, r.key);
				if (k & 2) {
					inlay_av_split(&r.av, &base, &grh);
					inlay_av_join_dct(&r.av, &base, &grh, r.key);
				}
			} else {
				inlay_av_init_xrc(&r.av, r.qpn);
			}
			if (k & 4)
				req_inline(&r, 1 + rnd_below(32));
			else
				req_pointer(&r, some_length());
			if (T.head - T.tail == T.cap.max_send_wr)
				complete_all(&T);
			run(&T, is_xrc() ? k & 1 : (unsigned)WR, PLAIN, false, &r, 1);
		}
	trio_close(&T);
	counted("addresses");
}

/* Once more in a process of its own: the kind, and the link, which is settled when the device is opened */
static int again(char *program, const char *kind, const char *link)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		setenv("SOFTDEV_LINK", link, 1);
		setenv("ORACLE_KIND", kind, 1);
		execl("/proc/self/exe", program, (char *)NULL);
		_exit(127);
	}
	return pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
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
	const char *kind = getenv("ORACLE_KIND");
	struct kind with_windows = kind && !strcmp(kind, "dc") ? dci_kind : xrc_kind;
	int bad;

	(void)argc;
	with_windows.ops |= 1 << INV;
	about(&with_windows);
	in_const = in_constant;
	bad = cmocka_run_group_tests_name(is_dci() ? "oracle: DC" : "oracle: XRC", tests, open_group, close_group);
	if (kind || !softdev_present())
		return bad;
	return again(argv[0], "dc", "roce") | again(argv[0], "dc", "ib") | bad;
}
