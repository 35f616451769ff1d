/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oracle_send.h: the tests of a send queue that are the same for every kind of QP: tables of every opcode, length, gather list, flag and
 * ring position that wraps, doorbells, limits, and requests at random. What a kind has beside is in its own program.
 */
#ifndef TESTS_ORACLE_SEND_H
#define TESTS_ORACLE_SEND_H

#include "oracle.h"

/* The slots at which a WQE of bbs wraps, then some at which it does not; ends with -1. Of a ring of n */
UNUSED static int slot_of(uint32_t n, uint32_t bbs, unsigned i)
{
	if (i + 1 < bbs)
		return (int)(n - bbs + 1 + i);
	switch (i + 1 - bbs) {
	case 0: return 0;
	case 1: return (int)(n - bbs);
	case 2: return (int)(n / 2);
	default: return -1;
	}
}

UNUSED static const struct ibv_qp_cap *table_cap(void)
{
	static struct ibv_qp_cap cap;

	memset(&cap, 0, sizeof(cap));
	cap.max_send_wr = 2;
	cap.max_send_sge = MAX_SGE;
	cap.max_inline_data = K->max_inline;
	return &cap;
}

UNUSED static void table_open(struct trio *t)
{
	trio_open(t, table_cap(), K->lean, INLAY_UAR_SERIAL);
	assert_int_equal(t->cap.max_inline_data, K->max_inline);
	assert_int_equal(t->bbs, 32);
}

/*
 * Where libmlx5 writes what the device cannot mean. A segmented packet's header that passes the ring's end: it leaves 32 bytes free behind
 * it. One that ends there: it writes the length of inline payload, and ibv_wr_set_sge its pointer, behind the ring.
 */
UNUSED static bool libmlx5_wrong(const struct trio *t, const struct req *r, uint32_t pos)
{
	uint32_t end = (pos & (t->bbs - 1)) * 64 + 32 + (r->hdr_len - 2 + 15) / 16 * 16;

	return K->type == IBV_QPT_RAW_PACKET && r->op == TSO && end >= t->bbs * 64;
}

/* One request at every slot that matters, through both of libmlx5's interfaces, with every set of flags in `sets` */
UNUSED static void everywhere(struct trio *t, struct req *r, unsigned way, unsigned first, unsigned sets)
{
	uint32_t bbs = (req_ds(r) + 3) / 4;
	static unsigned turn;
	unsigned i, f, api;
	int slot;

	/* Flags are where they are whatever follows: RC sees all of them with everything, the others two in turn */
	if (K->type != IBV_QPT_RC && sets > 2) {
		first = turn++ * 3;
		sets = 2;
	}
	for (i = 0; (slot = slot_of(t->bbs, bbs, i)) >= 0; i++)
		for (f = first; f < first + sets; f++)
			for (api = 0; api < APIS; api++) {
				if (libmlx5_wrong(t, r, (uint32_t)slot))
					continue;
				r->flags = f & (FLAG_SETS - 1);
				r->list = (f ^ api) & 1;
				r->av_last = f >> 1 & 1;
				go_to(t, (uint32_t)slot);
				run(t, api, way, false, r, 1);
			}
}
/* ---- tests: send queue ---- */

/* Inline, one buffer, every length */
UNUSED static void inline_single(void **state)
{
	uint32_t op, len;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (op = SEND; op <= WRITE_IMM; op++)
		for (len = 0; has_op(op) && len <= K->max_inline; len++) {
			req_init(&r, op, 0);
			req_inline(&r, len);
			everywhere(&T, &r, PLAIN, 0, FLAG_SETS);
		}
	trio_close(&T);
	counted("inline, one buffer");
}

/* Inline, gathered, every length in several splits, some with empty buffers */
UNUSED static void inline_gather(void **state)
{
	uint32_t op, len, left, k, n = 0;
	struct req r;
	unsigned split;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (op = SEND; op <= WRITE_IMM; op++)
		for (len = 0; has_op(op) && len <= K->max_inline; len++)
			for (split = 0; split < 8; split++) {
				req_init(&r, op, 0);
				r.inl = 1;
				switch (split) {
				case 0: /* nothing at all, or two halves */
					for (k = 0; len && k < 2; k++)
						req_inline(&r, k ? len - len / 2 : len / 2);
					break;
				case 1:
					req_inline(&r, 0);
					req_inline(&r, len);
					break;
				case 2:
					req_inline(&r, len);
					req_inline(&r, 0);
					break;
				case 3:
					req_inline(&r, len / 3);
					req_inline(&r, 0);
					req_inline(&r, len - len / 3);
					break;
				case 4: /* the header's 12 bytes, then the rest */
					req_inline(&r, len < 12 ? len : 12);
					req_inline(&r, len < 12 ? 0 : len - 12);
					break;
				case 5: /* as many as there may be */
					for (left = len, k = 0; k < MAX_SGE; k++) {
						uint32_t piece = k + 1 == MAX_SGE ? left : len / MAX_SGE;

						req_inline(&r, piece);
						left -= piece;
					}
					break;
				default: /* at random, every third empty */
					for (left = len, k = 0; k < 7; k++) {
						uint32_t piece = k == 6 ? left : rnd_below(3) ? rnd_below(left + 1) : 0;

						req_inline(&r, piece);
						left -= piece;
					}
					break;
				}
				everywhere(&T, &r, n % 2 ? PLAIN : CURSOR, n * 3, 1);
				n++;
			}
	trio_close(&T);
	counted("inline, gathered");
}

/* Pointers: every number of them, with empty ones in several positions */
UNUSED static void pointers(void **state)
{
	uint32_t op, n, i;
	unsigned pattern;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (op = SEND; op <= READ; op++)
		for (n = 0; has_op(op) && n <= MAX_SGE; n++)
			for (pattern = 0; pattern < 9; pattern++) {
				req_init(&r, op, 0);
				for (i = 0; i < n; i++)
					req_pointer(&r, is_empty(pattern, i, n) ? 0 : some_length());
				everywhere(&T, &r, PLAIN, 0, FLAG_SETS);
			}
	trio_close(&T);
	counted("pointers");
}

/* The same posts with constant arguments, and by the cursor: other code, same bytes */
UNUSED static void constants_and_cursor(void **state)
{
	static const uint8_t sets[] = {0, SIG, SIG | SOL | FENCE};
	uint32_t op, n, i, len;
	unsigned way, pattern, s;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (way = CONST; way < WAYS; way++) {
		for (op = SEND; op <= WRITE; op += WRITE - SEND)
			for (len = 0; has_op(op) && len <= K->max_inline; len++)
				for (s = 0; s < ARRAY(sets); s++) {
					req_init(&r, op, 0);
					req_inline(&r, len);
					everywhere(&T, &r, way, sets[s], 1);
				}
		for (op = SEND; op <= READ; op++)
			for (n = 0; has_op(op) && n <= 8; n++)
				for (pattern = 0; pattern < 9; pattern++)
					for (s = 0; s < ARRAY(sets); s++) {
						req_init(&r, op, 0);
						for (i = 0; i < n; i++)
							req_pointer(&r, is_empty(pattern, i, n) ? 0 : some_length());
						everywhere(&T, &r, way, sets[s], 1);
						if (op == READ)
							continue;
						req_init(&r, op, 0);
						r.inl = 1;
						for (i = 0; i < n; i++)
							req_inline(&r, is_empty(pattern, i, n) ? 0 : 1 + rnd_below(80));
						everywhere(&T, &r, way, sets[s], 1);
					}
	}
	trio_close(&T);
	counted("constants and cursor");
}

/* ---- tests: doorbells ---- */

/* A raw packet's buffer. Its first bytes may be read */
UNUSED static void req_readable(struct req *r, uint32_t len)
{
	req_pointer(r, len);
	r->sge[r->nsge - 1].addr = (uintptr_t)data + rnd_below(DATA_BYTES - 1024);
}

UNUSED static void packet_of_ds(struct req *r, uint32_t ds)
{
	uint32_t l2 = inline_l2(), left = ds - (l2 ? 3 : 2);

	req_init(r, SEND, rnd_below(FLAG_SETS));
	if (left > 1 && rnd_below(2)) {
		req_inline(r, l2 + left * 16 - 4 - rnd_below(16));
		return;
	}
	/* A header of 18 bytes and nothing else: in two pieces, for ibv_wr_* sends one twice */
	req_readable(r, left ? 19 + rnd_below(900) : 9);
	if (!left)
		req_readable(r, 9);
	while (req_ds(r) < ds)
		req_pointer(r, some_length());
}

/* 16-byte units of the shortest WQE */
UNUSED static uint32_t least_ds(void)
{
	return K->type == IBV_QPT_RAW_PACKET ? 3 : K->fixed / 16;
}

/* Anything that a raw packet QP sends: packets of 18 bytes and more, in readable memory as far as the header may reach */
UNUSED static void raw_random(struct req *r, const struct trio *t)
{
	uint32_t op = rnd_below(3) ? SEND : TSO, n, k, left, first;

	req_init(r, op, rnd_below(FLAG_SETS));
	r->list = (uint8_t)rnd_below(2);
	if (op == TSO) {
		r->hdr_len = (uint16_t)(14 + rnd_below(TSO_HEADER - 13));
		r->mss = (uint16_t)(1 + rnd_below(16383));
		for (k = 0; k < r->hdr_len; k++)
			r->hdr[k] = (uint8_t)rnd();
	}
	r->inl = t->cap.max_inline_data >= (op == TSO ? 19u + TSO_HEADER : 19u) && rnd_below(2);
	/* Of 18 bytes in one piece, all of them header, ibv_wr_* sends the header twice */
	first = 19 + rnd_below(60);
	if (r->inl) {
		left = 19 + rnd_below(t->cap.max_inline_data - (op == TSO ? TSO_HEADER : 0) - 18);
		n = 1 + rnd_below(t->cap.max_send_sge < 4 ? t->cap.max_send_sge : 4);
		for (k = 0; k < n; k++) {
			uint32_t piece = k + 1 == n ? left : rnd_below(4) ? rnd_below(left + 1) : 0;

			req_inline(r, piece);
			left -= piece;
		}
		return;
	}
	/* Headers in pieces, some of them empty */
	n = 1 + rnd_below(t->cap.max_send_sge);
	for (k = 0; k < n; k++) {
		uint32_t piece = k + 1 == n && first ? first : rnd_below(3) ? rnd_below(first + 1) : 0;

		if (first)
			req_readable(r, piece);
		else
			req_pointer(r, rnd_below(5) ? 1 + rnd_below(4096) : 0);
		first -= first ? piece : 0;
	}
}

/* A send of that length: control segment, address vector where there is one, payload */
UNUSED static void req_of_ds(struct req *r, uint32_t ds)
{
	uint32_t fixed = K->fixed / 16, i;

	if (K->type == IBV_QPT_RAW_PACKET) {
		packet_of_ds(r, ds);
	} else if (ds > fixed && rnd_below(2)) {
		req_init(r, SEND, rnd_below(FLAG_SETS));
		req_inline(r, (ds - fixed) * 16 - 4 - rnd_below(ds == fixed + 1 ? 12 : 16));
	} else {
		req_init(r, SEND, rnd_below(FLAG_SETS));
		for (i = fixed; i < ds; i++)
			req_pointer(r, some_length());
	}
	assert_int_equal(req_ds(r), ds);
}

/* Every length of WQE, shorter and longer than the register, at every slot; the register in the mode given */
UNUSED static void doorbells_in(uint32_t mode)
{
	static struct req r[MAX_BATCH];
	const struct ibv_qp_cap cap = {.max_send_wr = 16, .max_send_sge = 5, .max_inline_data = 140};
	uint32_t fixed = least_ds(), ds, slot, rings, n, i;
	unsigned api;

	/* Long ones: up to twice the register and more */
	trio_open(&T, table_cap(), K->lean, mode);
	for (ds = fixed; ds <= 31; ds++)
		for (slot = 0; slot < T.bbs; slot++)
			for (api = 0; api < APIS; api++) {
				req_of_ds(&r[0], ds);
				go_to(&T, slot);
				run(&T, api, PLAIN, false, &r[0], 1);
				/* A WQE that libmlx5 does not copy either: the doorbell asked for by name writes the same */
				if (ds > 1 && ds <= 16)
					continue;
				go_to(&T, slot);
				run(&T, api, PLAIN, true, &r[0], 1);
			}
	trio_close(&T);
	/* Batches: one doorbell for all, rung either way; many rings in a row, singles among them */
	trio_open(&T, &cap, K->lean, mode);
	for (rings = 0; rings < 20000; rings++) {
		complete(&T, rnd_below(T.head - T.tail + 1));
		n = T.cap.max_send_wr - (T.head - T.tail);
		if (!n) {
			complete_all(&T);
			n = T.cap.max_send_wr;
		}
		n = 1 + rnd_below(rnd_below(2) ? 1 : n);
		for (i = 0; i < n; i++)
			req_of_ds(&r[i], fixed + rnd_below(5));
		run(&T, rnd_below(APIS), PLAIN, n > 1 && rnd_below(2), r, n);
	}
	trio_close(&T);
}

UNUSED static void doorbells(void **state)
{
	(void)state;
	need_softdev("the oracle");
	doorbells_in(INLAY_UAR_SERIAL);
	doorbells_in(INLAY_UAR_LOCKED);
	counted("doorbells");
}

/* ---- tests: at random ---- */

/* To and from anywhere, up to 2^31 bytes */
UNUSED static void req_copy(struct req *r)
{
	uint32_t len = rnd_below(8) ? some_length() : UINT32_C(1) << 31;

	req_pointer(r, len);
	req_pointer(r, len);
}

UNUSED static void req_random(struct req *r, const struct trio *t)
{
	uint32_t op, n, k, left;

	if (K->type == IBV_QPT_RAW_PACKET) {
		raw_random(r, t);
		return;
	}
	do
		op = rnd_below(OPS);
	while (!has_op(op));
	req_init(r, op, rnd_below(FLAG_SETS));
	r->list = (uint8_t)rnd_below(2);
	r->av_last = (uint8_t)rnd_below(2);
	if (is_window(op))
		return;
	if (op == COPY) {
		req_copy(r);
		return;
	}
	if (is_atomic(r->op)) {
		req_pointer(r, 8);
		return;
	}
	n = rnd_below(4) ? rnd_below(4) : rnd_below(t->cap.max_send_sge + 1);
	if (n > t->cap.max_send_sge)
		n = t->cap.max_send_sge;
	r->inl = r->op != READ && rnd_below(2);
	left = rnd_below(t->cap.max_inline_data + 1);
	if (rnd_below(2) && left > 64)
		left = rnd_below(65);
	for (k = 0; k < n; k++) {
		if (r->inl) {
			uint32_t piece = k + 1 == n ? left : rnd_below(4) ? rnd_below(left + 1) : 0;

			req_inline(r, piece);
			left -= piece;
		} else {
			req_pointer(r, rnd_below(5) ? some_length() : 0);
		}
	}
}

/* n of them; the interface of libmlx5's that knows them all */
UNUSED static unsigned batch_random(struct req *r, unsigned n, const struct trio *t)
{
	unsigned api = t->a.qpx ? rnd_below(APIS) : (unsigned)POST_SEND, i;
	uint32_t pos = t->pos;

	for (i = 0; i < n; i++) {
		do
			req_random(&r[i], t);
		while (libmlx5_wrong(t, &r[i], pos) || (i && api == POST_SEND && r[i].op == TSO)); /* in a list it forgets where to begin */
		pos += (req_ds(&r[i]) + 3) / 4;
		if (r[i].op == BIND1)
			api = POST_SEND; /* ibv_wr_bind_mw is for type 2 */
		if (r[i].op == COPY)
			api = WR;
	}
	return api;
}

UNUSED static void random_runs(void **state)
{
	static struct req r[MAX_BATCH];
	uint64_t want = env_number("ORACLE_CASES", 100000), seed = env_number("ORACLE_SEED", (uint64_t)(now() * 1e9)), rings = 0;

	(void)state;
	need_softdev("the oracle");
	print_message("# ORACLE_SEED=%llu ORACLE_CASES=%llu\n", (unsigned long long)seed, (unsigned long long)want);
	rnd_state = seed;
	while (requests < want) {
		const uint64_t ops[] = {K->lean, K->lean, K->full, is_dci() ? K->full : 0};
		uint64_t with = K->dv ? K->lean : ops[K->ops >> BIND1 ? 2 + rnd_below(2) : rnd_below(4)], until = requests + 500 + rnd_below(8000);
		struct ibv_qp_cap cap;

		memset(&cap, 0, sizeof(cap));
		cap.max_send_wr = (1u << rnd_below(8)) + rnd_below(3);
		cap.max_send_sge = 1 + rnd_below(rnd_below(2) ? 4 : MAX_SGE);
		/* FULL, which is what a QP of ibv_create_qp gets too, leaves less for the payload */
		cap.max_inline_data = rnd_below(rnd_below(2) ? 129 : (with == K->lean ? K->max_inline : K->max_inline_full) + 1);
		trio_open(&T, &cap, with, rnd_below(4) ? INLAY_UAR_SERIAL : INLAY_UAR_LOCKED);
		rings++;
		while (requests < until && requests < want) {
			uint32_t n, most, api;

			if (rnd_below(2))
				complete(&T, rnd_below(T.head - T.tail + 1));
			if (T.head - T.tail == T.cap.max_send_wr)
				complete(&T, 1 + rnd_below(T.head - T.tail));
			most = T.cap.max_send_wr - (T.head - T.tail);
			n = 1 + (rnd_below(2) ? 0 : rnd_below(most < MAX_BATCH ? most : MAX_BATCH));
			api = batch_random(r, n, &T);
			run(&T, api, rnd_below(WAYS), n > 1 && rnd_below(2), r, n);
		}
		complete_all(&T);
		trio_close(&T);
	}
	print_message("# %llu rings\n", (unsigned long long)rings);
	counted("at random");
}

/* The index that goes into the WQE has 16 bits, and so have record and CQE: three times round, on small WQEs in long batches */
UNUSED static void index_wraps(void **state)
{
	const struct ibv_qp_cap cap = {.max_send_wr = 64, .max_send_sge = 1};
	static struct req r[MAX_BATCH];
	uint32_t n;
	unsigned api;

	(void)state;
	need_softdev("the oracle");
	trio_open(&T, &cap, K->lean, INLAY_UAR_SERIAL);
	while (T.pos < 3 * 65536 + 100) {
		n = 1 + rnd_below(MAX_BATCH);
		if (T.head - T.tail + n > T.cap.max_send_wr)
			complete_all(&T);
		api = batch_random(r, n, &T);
		run(&T, api, PLAIN, false, r, n);
	}
	complete_all(&T);
	trio_close(&T);
	counted("index wrap");
}

/* ---- tests: limits ---- */

/*
 * What libmlx5 refuses. Where inlay accepts it, it is because it draws another line, on purpose:
 *   - libmlx5 limits the payload, to the same number of bytes or SGEs for each opcode: what is left of the QP's longest WQE
 *     when the longest opcode's segments are taken off. inlay limits the WQE: a send may use the room of the remote address
 *     and atomic segments that it does not have. One WQEBB is legal on every QP.
 *   - libmlx5 counts SGEs that are empty, inlay those that are written.
 *   - libmlx5 looks at the QP's state; inlay does not know it.
 * inlay refuses nothing that libmlx5 accepts, and a refused post writes nothing.
 */
UNUSED static void limits_of(const struct ibv_qp_cap *cap, uint64_t ops)
{
	struct inlay_sq before;
	uint32_t op, len, n, i, refused = 0, more = 0;
	unsigned api, way;
	struct req r;
	int lib, in;

	trio_open(&T, cap, ops, INLAY_UAR_SERIAL);
	before = T.sq;
	/*
	 * inlay's limit is no longer than the WQE that the QP was made for (payload, its header, the longest opcode's segments),
	 * or than a masked swap: two units more than a fetch-and-add has before its answer
	 */
	assert_true(T.sq.max_ds * 16 <= T.cap.max_inline_data + 4 + (ops == K->lean ? K->overhead : K->overhead_full) ||
		    T.sq.max_ds * 16 <= K->overhead_full + 32);
	for (op = SEND; op <= READ; op++)
		for (len = 0; has_op(op) && len <= 1100; len++)
			for (api = 0; api < (T.a.qpx ? 2u : 1u); api++)
				for (way = 0; way < 2; way++) {
					req_init(&r, op, SIG);
					if (op == READ) {
						/* Pointers; len is their number */
						if (len > MAX_SGE + 4)
							break;
						for (i = 0; i < len; i++)
							req_pointer(&r, way && i == 0 ? 0 : 1);
					} else {
						req_inline(&r, way ? len / 2 : len);
						if (way && cap->max_send_sge > 1)
							req_inline(&r, len - len / 2);
					}
					lib = post_lib(&T.a, api, &r, 1, 0);
					memset(T.ring, 0xa5, T.bbs * 64);
					in = in_plain(&T.sq, &r);
					if (lib) {
						assert_int_equal(lib, ENOMEM);
						refused++;
						more += !in;
					}
					if (!in) {
						assert_true(req_ds(&r) <= T.sq.max_ds || req_ds(&r) <= 4);
						assert_true(req_ds(&r) * 16 <= T.bbs * 64);
					} else {
						assert_true(lib != 0);
						assert_true(in == -EINVAL || in == -E2BIG);
						assert_true(req_ds(&r) > T.sq.max_ds || req_ds(&r) * 16 > T.bbs * 64);
						assert_true(all_bytes(T.ring, T.bbs * 64, 0xa5));
						assert_memory_equal(&T.sq, &before, sizeof(before));
					}
					T.sq = before;
					/* Back to the beginning, for libmlx5 has no credit to go on */
					if (!lib) {
						struct mlx5_cqe64 cqe;
						struct ibv_wc wc;

						cqe_for(&cqe, MLX5_CQE_REQ, MLX5_OPCODE_SEND, T.a.qp->qp_num, T.a.uidx, 0);
						cqe.wqe_counter = htobe16((uint16_t)T.pos);
						assert_int_equal(softdev_inject_cqes(T.cqn, &cqe, 1, 0), 1);
						assert_int_equal(ibv_poll_cq(T.cq, 1, &wc), 1);
						T.pos += (req_ds(&r) + 3) / 4;
					}
				}
	/* Sums that do not fit 32 bits, and lengths near the end of them */
	for (n = 1; n <= 4; n++) {
		static const uint32_t huge[] = {1009, 0x7fffffff, 0x80000000, 0xfffffffc, 0xffffffff};

		for (i = 0; i < ARRAY(huge); i++) {
			req_init(&r, K->type == IBV_QPT_UD ? SEND : WRITE, SIG);
			for (len = 0; len < n; len++)
				req_inline(&r, len + 1 == n ? huge[i] : 0xffffffff);
			memset(T.ring, 0xa5, T.bbs * 64);
			assert_int_equal(in_plain(&T.sq, &r), -EINVAL);
			assert_true(all_bytes(T.ring, T.bbs * 64, 0xa5));
			assert_memory_equal(&T.sq, &before, sizeof(before));
		}
	}
	trio_close(&T);
	print_message("# sge %u inline %u: libmlx5 refused %u, of which inlay takes %u as a WQE that is short enough\n",
		      cap->max_send_sge, cap->max_inline_data, refused, more);
}

/*
 * A full ring. libmlx5 counts WQEs, each as long as the QP's longest, and inlay counts WQEBBs: so inlay takes at least as
 * many, and of short ones more.
 */
UNUSED static void full_of(const struct ibv_qp_cap *cap)
{
	uint32_t fixed = K->fixed / 16, n, k, ds;
	struct req r;

	for (ds = fixed; ds <= 60; ds += ds < 5 ? 1 : 11) {
		trio_open(&T, cap, K->lean, INLAY_UAR_SERIAL);
		if (ds > fixed && (ds - fixed) * 16 - 4 > T.cap.max_inline_data) {
			trio_close(&T);
			break;
		}
		req_init(&r, SEND, 0);
		if (ds > fixed)
			req_inline(&r, (ds - fixed) * 16 - 4);
		/* The one too many by ibv_post_send: ibv_wr_* would build it over the WQE before */
		for (n = 0; !post_lib(&T.a, n < T.cap.max_send_wr ? n & 1 : (uint32_t)POST_SEND, &r, 1, 0); n++)
			;
		assert_int_equal(n, T.cap.max_send_wr);
		for (k = 0; !in_plain(&T.sq, &r); k++)
			;
		assert_int_equal(k, T.bbs / ((ds + 3) / 4));
		assert_true(k >= n);
		assert_int_equal(in_plain(&T.sq, &r), -EAGAIN);
		assert_int_equal(inlay_sq_room(&T.sq), T.bbs - k * ((ds + 3) / 4));
		trio_close(&T);
	}
}

UNUSED static void limits(void **state)
{
	const struct ibv_qp_cap cap[] = {
		{.max_send_wr = 1, .max_send_sge = 1},
		{.max_send_wr = 4, .max_send_sge = 1},
		{.max_send_wr = 4, .max_send_sge = 4, .max_inline_data = 64},
		{.max_send_wr = 16, .max_send_sge = 13, .max_inline_data = 100},
		{.max_send_wr = 2, .max_send_sge = MAX_SGE, .max_inline_data = K->max_inline_full < 764 ? K->max_inline_full : 764},
	};
	struct ibv_qp_cap most = *table_cap();
	uint32_t i;

	(void)state;
	need_softdev("the oracle");
	for (i = 0; i < ARRAY(cap); i++) {
		limits_of(&cap[i], K->lean);
		limits_of(&cap[i], is_dci() ? K->full : 0);
		full_of(&cap[i]);
	}
	limits_of(&most, K->lean);
	full_of(&most);
	counted("limits");
}

#endif
