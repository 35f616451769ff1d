/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oracle_rc.c: the send queue of an RC QP, byte for byte as libmlx5's: see oracle.h. The device is stepped.
 */
#include "common.h"
#include "oracle_send.h"

/* ---- constants ---- */

/* Call sites at which opcode, number of SGEs or inline length, and flags are constants; many functions, for the compiler's sake */
#define LEN(n) case (n): return is_send ? inlay_post_send_inline(sq, p, (n), flags) :                                              \
					  inlay_post_write_inline(sq, r->raddr, r->rkey, p, (n), flags);
#define LEN4(n) LEN(n) LEN((n) + 1) LEN((n) + 2) LEN((n) + 3)

INLAY_ALWAYS int const_inline(struct inlay_sq *sq, const struct req *r, int is_send, int high, uint32_t flags)
{
	const void *p = (const void *)(uintptr_t)r->sge[0].addr;

	if (high) {
		switch (r->sge[0].length) {
		LEN(36) LEN(40) LEN4(42) LEN(48) LEN(59) LEN4(60) LEN(64) LEN(65) LEN(76) LEN(77) LEN(92) LEN(96) LEN(107) LEN4(108)
		LEN(128) LEN(172) LEN(173) LEN(256) LEN(908)
		default: return in_plain(sq, r);
		}
	}
	switch (r->sge[0].length) {
	LEN4(0) LEN4(4) LEN4(8) LEN4(12) LEN4(16) LEN(20) LEN(24) LEN4(26) LEN(30) LEN(31) LEN(32) LEN(33)
	default: return in_plain(sq, r);
	}
}

INLAY_ALWAYS int const_sges(struct inlay_sq *sq, const struct req *r, uint8_t op, uint32_t flags)
{
	switch (r->nsge) {
	case 0: return in_post(sq, r, op, r->sge, 0, flags);
	case 1: return in_post(sq, r, op, r->sge, 1, flags);
	case 2: return in_post(sq, r, op, r->sge, 2, flags);
	case 3: return in_post(sq, r, op, r->sge, 3, flags);
	case 5: return in_post(sq, r, op, r->sge, 5, flags);
	default: return in_plain(sq, r);
	}
}

#define CONST_FN(name, call)                                                                                                       \
	static __attribute__((noinline)) int name(struct inlay_sq *sq, const struct req *r)                                        \
	{                                                                                                                          \
		return call;                                                                                                       \
	}
#define CONST_OP(op)                                                                                                               \
	CONST_FN(const_##op, const_sges(sq, r, op, INLAY_SIGNALED))                                                                \
	CONST_FN(const_inline_##op, const_sges(sq, r, op, INLAY_INLINE))                                                           \
	CONST_FN(const_flags_##op, const_sges(sq, r, op, in_flags(r)))

CONST_FN(const_send_low, const_inline(sq, r, 1, 0, INLAY_SIGNALED))
CONST_FN(const_send_high, const_inline(sq, r, 1, 1, in_flags(r) & ~(uint32_t)INLAY_INLINE))
CONST_FN(const_write_low, const_inline(sq, r, 0, 0, INLAY_SIGNALED | INLAY_SOLICITED | INLAY_FENCE_SMALL_AND_FENCE))
CONST_FN(const_write_high, const_inline(sq, r, 0, 1, INLAY_SIGNALED))
CONST_OP(SEND)
CONST_OP(SEND_IMM)
CONST_OP(SEND_INV)
CONST_OP(WRITE)
CONST_OP(WRITE_IMM)
CONST_FN(const_READ, const_sges(sq, r, READ, INLAY_SIGNALED))
CONST_FN(const_flags_READ, const_sges(sq, r, READ, in_flags(r)))
CONST_FN(const_CAS, in_post(sq, r, CAS, r->sge, 1, INLAY_SIGNALED))
CONST_FN(const_FAA, in_post(sq, r, FAA, r->sge, 1, INLAY_SIGNALED))

/* The function whose constants are r's; else the one whose are not */
static int in_constant(struct inlay_sq *sq, const struct req *r)
{
	static int (*const signaled[FAA + 1])(struct inlay_sq *, const struct req *) = {
		const_SEND, const_SEND_IMM, const_SEND_INV, const_WRITE, const_WRITE_IMM, const_READ, const_CAS, const_FAA};
	static int (*const inl[FAA + 1])(struct inlay_sq *, const struct req *) = {
		const_inline_SEND, const_inline_SEND_IMM, const_inline_SEND_INV, const_inline_WRITE, const_inline_WRITE_IMM};
	static int (*const any[FAA + 1])(struct inlay_sq *, const struct req *) = {
		const_flags_SEND, const_flags_SEND_IMM, const_flags_SEND_INV, const_flags_WRITE, const_flags_WRITE_IMM,
		const_flags_READ, in_plain, in_plain};

	if (r->inl && r->nsge == 1 && r->op == SEND) {
		if (r->sge[0].length > 33)
			return const_send_high(sq, r);
		if (r->flags == SIG)
			return const_send_low(sq, r);
	}
	if (r->inl && r->nsge == 1 && r->op == WRITE) {
		if (r->sge[0].length > 33 && r->flags == SIG)
			return const_write_high(sq, r);
		if (r->sge[0].length <= 33 && r->flags == (SIG | SOL | FENCE))
			return const_write_low(sq, r);
	}
	if (r->inl && !r->flags)
		return inl[r->op](sq, r);
	if (!r->inl && r->flags == SIG)
		return signaled[r->op](sq, r);
	return any[r->op](sq, r);
}


/* ---- tests ---- */

/*
 * Atomics: at every slot. ibv_wr_* writes the SGE's length as it stands and ibv_post_send always 8; inlay takes it as 8. An
 * atomic without a buffer, or with an empty one, is a WQE without data segment in libmlx5: inlay has no such thing.
 */
static void atomics(void **state)
{
	static const uint64_t edge[] = {0, 1, ~UINT64_C(0), UINT64_C(1) << 63};
	uint32_t op, slot;
	unsigned f, api, way, k;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (op = CAS; op <= FAA; op++)
		for (slot = 0; slot < T.bbs; slot++)
			for (f = 0; f < FLAG_SETS; f++)
				for (api = 0; api < APIS; api++)
					for (way = 0; way <= CURSOR; way++)
						for (k = 0; k < 6; k++) {
							req_init(&r, op, f);
							if (k < 4) {
								r.a = edge[k];
								r.b = edge[rnd_below(4)];
								r.raddr = edge[rnd_below(4)];
							}
							r.list = k & 1;
							req_pointer(&r, api == WR || way == CURSOR ? 8 : 1 + rnd_below(64));
							go_to(&T, slot);
							run(&T, api, way, false, &r, 1);
						}
	trio_close(&T);
	counted("atomics");
}

/*
 * NOP: libmlx5 has no verb for it. The expectation is written down here, from the layouts of the PRM: a control segment
 * { opmod 0 | index | opcode 0, QPN << 8 | DS 1, 0, fm_ce_se, 0 } and nothing else. All five fence modes, likewise.
 */
static void nop_by_hand(void **state)
{
	static const uint32_t flags[] = {0, INLAY_SIGNALED, INLAY_SOLICITED, INLAY_SIGNALED | INLAY_SOLICITED,
					 INLAY_SIGNALED | INLAY_FENCE_INITIATOR_SMALL, INLAY_SIGNALED | INLAY_FENCE,
					 INLAY_SIGNALED | INLAY_FENCE_STRONG, INLAY_SIGNALED | INLAY_FENCE_SMALL_AND_FENCE};
	static const uint8_t fm_ce_se[] = {0x00, 0x08, 0x02, 0x0a, 0x28, 0x48, 0x68, 0x88};
	uint8_t want[16];
	uint32_t i, pos = 0;
	unsigned f;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (i = 0; i < 3000; i++)
		for (f = 0; f < ARRAY(flags); f++, pos++) {
			uint8_t *at = T.ring + (pos & (T.bbs - 1)) * 64, *reg = T.reg + (pos & 1) * T.size;
			struct mlx5_cqe64 cqe;
			uint32_t w[2];

			w[0] = htobe32((pos & 0xffff) << 8 | 0x00);
			w[1] = htobe32(T.qp->qp_num << 8 | 1);
			memset(want, 0, sizeof(want));
			memcpy(want, w, 8);
			want[11] = fm_ce_se[f];
			memset(T.ring, 0xa5, T.bbs * 64);
			memset(T.reg, 0xa5, 2 * T.size);
			must(inlay_post_nop(&T.sq, flags[f]));
			inlay_sq_ring(&T.sq);
			assert_memory_equal(at, want, 16);
			assert_true(all_bytes(T.ring, (size_t)(at - T.ring), 0xa5));
			assert_true(all_bytes(at + 16, (size_t)(T.ring + T.bbs * 64 - at) - 16, 0xa5));
			assert_memory_equal(reg, want, 8);
			assert_true(all_bytes(reg + 8, T.size - 8, 0xa5));
			assert_true(all_bytes(T.reg + (~pos & 1) * T.size, T.size, 0xa5));
			assert_int_equal(be32toh(T.dbrec[MLX5_SND_DBR]), (pos + 1) & 0xffff);
			cqe_for(&cqe, MLX5_CQE_REQ, MLX5_OPCODE_NOP, T.qp->qp_num, 0, (uint16_t)pos);
			assert_true(0 < inlay_sq_release(&T.sq, &cqe));
		}
	/* c has gone its own way: the trio is of no use any more */
	trio_close(&T);
}

/*
 * Pointers and inline data mixed in one WQE, by the cursor. The expectation is put together from libmlx5's own segments: the
 * mixed WQE is write(raddr) + data(0) + inline(1) + data(2), each segment taken from a WQE in which libmlx5 wrote it alone.
 */
static void mixed_by_cursor(void **state)
{
	struct req p, q, h;
	uint8_t want[1024], got[1024];
	uint32_t len, slot, units, i, w;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (len = 1; len <= 300; len++)
		for (slot = 0; slot < T.bbs; slot++) {
			struct inlay_cursor at;

			units = (len + 4 + 15) / 16;
			req_init(&p, WRITE, SIG);
			req_pointer(&p, some_length());
			req_pointer(&p, some_length());
			req_init(&q, SEND, 0);
			req_inline(&q, len);
			memset(want, 0, sizeof(want));
			/* libmlx5's, at the ring's beginning: control, raddr, data 0, data 2; and control, inline 1 */
			complete_all(&T);
			go_to(&T, 0);
			memset(T.a.ring, 0, T.bbs * 64);
			h = p;
			h.list = 1;
			post_batch(&T, len & 1, PLAIN, false, &h, 1);
			memcpy(want, T.a.ring, 48);
			memcpy(want + 48 + units * 16, T.a.ring + 48, 16);
			complete_all(&T);
			go_to(&T, 8);
			memset(T.a.ring + 8 * 64, 0, 24 * 64);
			post_batch(&T, len & 1, PLAIN, false, &q, 1);
			memcpy(want + 48, T.a.ring + 8 * 64 + 16, units * 16);
			complete_all(&T);
			go_to(&T, slot);
			w = htobe32((T.pos & 0xffff) << 8 | MLX5_OPCODE_RDMA_WRITE);
			memcpy(want, &w, 4);
			w = htobe32(T.qp->qp_num << 8 | (4 + units));
			memcpy(want + 4, &w, 4);
			memset(T.ring, 0, T.bbs * 64);
			must(inlay_sq_begin(&T.sq, (4 + units + 3) / 4, &at));
			at = inlay_seg_raddr(at, p.raddr, p.rkey);
			at = inlay_seg_data(at, p.sge[0].addr, p.sge[0].length, p.sge[0].lkey);
			at = inlay_seg_inline(at, (const void *)(uintptr_t)q.sge[0].addr, len);
			at = inlay_seg_data(at, p.sge[1].addr, p.sge[1].length, p.sge[1].lkey);
			inlay_sq_commit(&T.sq, at, MLX5_OPCODE_RDMA_WRITE, 0, INLAY_SIGNALED, 0);
			for (i = 0; i < (4 + units) * 16; i++)
				got[i] = T.ring[(slot * 64 + i) & (T.bbs * 64 - 1)];
			assert_memory_equal(got, want, (4 + units) * 16);
			/* Take c's post back, so that the three are in step again: nobody has been told of it */
			inlay_sq_undo(&T.sq, inlay_sq_rung(&T.sq));
			cases++;
		}
	trio_close(&T);
	counted("mixed segments");
}

/*
 * Where inlay's user may ask for what libmlx5's cannot: a single short WQE rung by 8 bytes, and a register in doorbell-only
 * mode. By hand: the first 8 bytes of the last WQE posted, nothing else; on an exclusive register in the next half, in
 * doorbell-only mode at its beginning, always.
 */
static void doorbells_by_hand(void **state)
{
	const struct ibv_qp_cap cap = {.max_send_wr = 16, .max_send_sge = 4, .max_inline_data = 140};
	struct inlay_uar uar;
	struct inlay_sq sq;
	struct mlx5dv_qp dv;
	struct ibv_qp *qp;
	struct req r;
	uint32_t i, n, k, half = 0, last, mode;
	uint8_t *reg;

	(void)state;
	need_softdev("the oracle");
	trio_open(&T, &cap, K->lean, INLAY_UAR_SERIAL);
	qp = make_qp(dev.pd, T.cq, &cap, K->lean, NULL);
	for (mode = 0; mode < 2; mode++) {
		if (mode) {
			must(inlay_uar_from_qp(&uar, qp, NULL));
			must(inlay_sq_from_qp(&sq, qp, &uar, NULL, NULL));
		} else {
			sq = T.sq;
		}
		dv = view_qp(mode ? qp : T.qp);
		reg = (uint8_t *)dv.bf.reg;
		assert_true(dv.bf.size >= 256);
		for (i = 0; i < 5000; i++) {
			memset(reg, 0xa5, 2 * dv.bf.size);
			n = 1 + rnd_below(mode ? 3 : 1);
			for (k = 0, last = 0; k < n; k++) {
				req_of_ds(&r, 1 + rnd_below(9));
				last = sq.pi;
				must(post_inlay(&sq, rnd_below(WAYS), &r));
			}
			if (mode && rnd_below(2))
				inlay_sq_ring(&sq);
			else
				inlay_sq_ring_doorbell(&sq);
			assert_memory_equal(reg + half * dv.bf.size, (uint8_t *)dv.sq.buf + (last & (dv.sq.wqe_cnt - 1)) * 64, 8);
			assert_true(all_bytes(reg + half * dv.bf.size + 8, dv.bf.size - 8, 0xa5));
			assert_true(all_bytes(reg + !half * dv.bf.size, dv.bf.size, 0xa5));
			assert_int_equal(be32toh(dv.dbrec[MLX5_SND_DBR]), sq.pi & 0xffff);
			if (mode == 0)
				half ^= 1;
			if (inlay_sq_room(&sq) < 10) {
				struct mlx5_cqe64 cqe;

				cqe_for(&cqe, MLX5_CQE_REQ, MLX5_OPCODE_SEND, 0, 0, (uint16_t)last);
				assert_true(0 < inlay_sq_release(&sq, &cqe));
			}
			/* A ring with nothing posted is no ring */
			memset(reg, 0xa5, 2 * dv.bf.size);
			inlay_sq_ring(&sq);
			assert_true(all_bytes(reg, 2 * dv.bf.size, 0xa5));
		}
		half = 0;
	}
	inlay_sq_fini(&sq);
	must(ibv_destroy_qp(qp));
	trio_close(&T);
}

/* ---- the comparison itself ---- */

/*
 * Can it fail? A batch that compares well is spoiled at one byte after the other, and each time the comparison must say so and
 * name the place: in c's ring, register and record. A byte that libmlx5 leaves alone inside of a WQE's units is not looked at.
 */
static void self_check(void **state)
{
	static struct req r[3];
	uint32_t i, begin, caught = 0, missed = 0, tail;
	char *text = NULL, place[32];
	size_t len = 0;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	go_to(&T, 28);
	/* A single one, which wraps and is copied to the register. Its last unit ends in padding, which libmlx5 leaves alone */
	req_init(&r[0], WRITE_IMM, SIG | SOL | FENCE);
	req_inline(&r[0], 200 - 3);
	begin = T.pos;
	fill_free(&T);
	post_batch(&T, POST_SEND, PLAIN, false, r, 1);
	assert_int_equal(check_batch(&T, r, 1, begin), 0);
	for (i = 0; i < T.bbs * 64; i++) {
		bool known = T.a.ring[i] == T.b.ring[i];
		bool outside = ((i / 16 - 28 * 4) & (T.bbs * 4 - 1)) >= req_ds(r);
		FILE *out = open_memstream(&text, &len), *was = report_to;
		int wrong;

		assert_non_null(out);
		report_to = out;
		T.ring[i] ^= 1;
		wrong = check_batch(&T, r, 1, begin);
		T.ring[i] ^= 1;
		report_to = was;
		fclose(out);
		assert_int_equal(wrong, known || outside);
		if (wrong) {
			snprintf(place, sizeof(place), "byte %u (", i);
			assert_non_null(strstr(text, place));
			caught++;
		} else {
			missed++;
		}
		if (known) {
			assert_non_null(strstr(text, " libmlx5\n"));
			assert_non_null(strstr(text, " inlay\n"));
			assert_non_null(strstr(text, "raddr"));
			assert_non_null(strstr(text, "inline  197 bytes"));
			assert_non_null(strstr(text, "WRITE_IMM inline"));
		}
		free(text);
	}
	/* 16 bytes of units hold 4 + 197: 7 of the last are padding */
	tail = 16 - (4 + 197) % 16;
	assert_int_equal(missed, tail);
	for (i = 0; i < 2 * T.size; i++) {
		uint8_t *at = T.reg + i;
		uint32_t in = i % T.size;
		bool there = i / T.size == !T.half, known;
		FILE *was = report_to;
		int wrong;

		known = there && T.a.reg[!T.a.half * T.size + in] == T.b.reg[!T.b.half * T.size + in];
		report_to = fopen("/dev/null", "w");
		assert_non_null(report_to);
		*at ^= 0x80;
		wrong = check_batch(&T, r, 1, begin);
		*at ^= 0x80;
		fclose(report_to);
		report_to = was;
		assert_int_equal(wrong, known || !there);
		caught += wrong;
	}
	for (i = 0; i < 32; i++) {
		FILE *was = report_to;

		report_to = fopen("/dev/null", "w");
		assert_non_null(report_to);
		T.dbrec[MLX5_SND_DBR] ^= 1u << i;
		caught += (uint32_t)check_batch(&T, r, 1, begin);
		T.dbrec[MLX5_SND_DBR] ^= 1u << i;
		fclose(report_to);
		report_to = was;
	}
	assert_int_equal(check_batch(&T, r, 1, begin), 0);
	print_message("# %u corruptions caught, %u in bytes that libmlx5 leaves alone\n", caught, missed);
	assert_int_equal(caught, T.bbs * 64 - missed + 32 + 2 * T.size - (T.size - req_ds(r) * 16) - missed);
	trio_close(&T);
	cases = requests = compared = 0;
}

/* A request that is not the same: the comparison must see each field of it */
static void self_check_requests(void **state)
{
	FILE *was = report_to, *null = fopen("/dev/null", "w");
	struct req lib, in;
	uint32_t begin, i;

	(void)state;
	need_softdev("the oracle");
	assert_non_null(null);
	table_open(&T);
	for (i = 0; i < 9; i++) {
		complete_all(&T);
		req_init(&lib, i == 8 ? CAS : WRITE_IMM, SIG);
		if (i == 6)
			req_inline(&lib, 40);
		else
			req_pointer(&lib, 8);
		data[((uintptr_t)lib.sge[0].addr - (uintptr_t)data + 39) % DATA_BYTES] = 0;
		in = lib;
		switch (i) {
		case 0: in.imm ^= 1; break;
		case 1: in.raddr ^= 1; break;
		case 2: in.rkey ^= 1u << 31; break;
		case 3: in.flags ^= SOL; break;
		case 4: in.sge[0].lkey ^= 1; break;
		case 5: in.sge[0].addr ^= UINT64_C(1) << 63; break;
		case 6: in.sge[0].length--; break;
		case 7: in.op = WRITE; break;
		default: in.a ^= 1; break;
		}
		begin = T.pos;
		fill_free(&T);
		must(post_lib(&T.a, i & 1, &lib, 1, T.head));
		must(post_lib(&T.b, i & 1, &lib, 1, T.head));
		must(in_plain(&T.sq, &in));
		inlay_sq_ring(&T.sq);
		T.start[T.head++ & 0xffff] = T.pos;
		T.pos += (req_ds(&lib) + 3) / 4;
		must(swap_qpn(T.a.ring + (begin & 31) * 64, T.a.qp->qp_num, T.qp->qp_num, begin));
		must(swap_qpn(T.b.ring + (begin & 31) * 64, T.b.qp->qp_num, T.qp->qp_num, begin));
		T.a.half ^= 1;
		T.b.half ^= 1;
		T.half ^= 1;
		report_to = null;
		assert_int_equal(check_batch(&T, &lib, 1, begin), 1);
		report_to = was;
	}
	fclose(null);
	trio_close(&T);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(self_check),
		cmocka_unit_test(self_check_requests),
		cmocka_unit_test(inline_single),
		cmocka_unit_test(inline_gather),
		cmocka_unit_test(pointers),
		cmocka_unit_test(atomics),
		cmocka_unit_test(constants_and_cursor),
		cmocka_unit_test(mixed_by_cursor),
		cmocka_unit_test(nop_by_hand),
		cmocka_unit_test(doorbells),
		cmocka_unit_test(doorbells_by_hand),
		cmocka_unit_test(index_wraps),
		cmocka_unit_test(limits),
		cmocka_unit_test(random_runs),
	};

	about(&rc_kind);
	in_const = in_constant;
	return cmocka_run_group_tests_name("oracle: RC", tests, open_group, close_group);
}
