/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * atomic.c: every operation on every type, against plain arithmetic: what is at the peer afterwards, what comes
 * back, what the completions tell; and who needs the peer's help. Many at once at the same place are in soak.c.
 */
#include "rig.h"
#include <rdma/fi_atomic.h>
#include <complex.h>

#define BYTES 65536u

static uint8_t theirs[BYTES] __attribute__((aligned(4096)));
static struct fid_mr *mr;
static char context;

/* ---- The same by plain arithmetic ---- */

struct value {
	uint64_t bits;            /* integers, extended to 64 bits as their sign asks */
	long double re, im;
};

static const struct type {
	size_t size;
	char kind;                /* i: signed, u: unsigned, f: real, c: complex */
} types[FI_DATATYPE_LAST] = {
	{1, 'i'}, {1, 'u'}, {2, 'i'}, {2, 'u'}, {4, 'i'}, {4, 'u'}, {8, 'i'}, {8, 'u'}, {4, 'f'}, {8, 'f'}, {8, 'c'},
	{16, 'c'},
	{sizeof(long double), 'f'}, {2 * sizeof(long double), 'c'},
};

static bool integer(unsigned t)
{
	return types[t].kind == 'i' || types[t].kind == 'u';
}

static size_t part_of(unsigned t)
{
	return types[t].size / (types[t].kind == 'c' ? 2 : 1);
}

static long double load_real(size_t size, const uint8_t *at)
{
	union { float f; double d; long double l; } r;

	memcpy(&r, at, size);
	return size == sizeof(r.f) ? (long double)r.f : size == sizeof(r.d) ? (long double)r.d : r.l;
}

static void store_real(size_t size, uint8_t *at, long double v)
{
	const double d = (double)v;
	const float f = (float)v;
	long double l;

	memset(&l, 0, sizeof(l)); /* also what is no part of it */
	l = v;
	memcpy(at, size == sizeof(f) ? (const void *)&f : size == sizeof(d) ? (const void *)&d : (const void *)&l, size);
}

static struct value load(unsigned t, const uint8_t *at)
{
	const unsigned shift = 64 - 8 * (unsigned)types[t].size;
	struct value v = {0, 0, 0};

	if (integer(t)) {
		memcpy(&v.bits, at, types[t].size);
		v.bits <<= shift;
		v.bits = types[t].kind == 'i' ? (uint64_t)((int64_t)v.bits >> shift) : v.bits >> shift;
	} else {
		v.re = load_real(part_of(t), at);
		v.im = types[t].kind == 'c' ? load_real(part_of(t), at + part_of(t)) : 0;
	}
	return v;
}

static void store(unsigned t, uint8_t *at, struct value v)
{
	if (integer(t))
		memcpy(at, &v.bits, types[t].size);
	else
		store_real(part_of(t), at, v.re);
	if (types[t].kind == 'c')
		store_real(part_of(t), at + part_of(t), v.im);
}

static struct value some(unsigned t)
{
	struct value v = {0, 0, 0};

	if (integer(t)) {
		v.bits = rnd() % 3 ? rnd() : rnd() % 3;
		return load(t, (const uint8_t *)&v.bits);
	}
	/* No zero with a sign comes of them: what is the same has the same bits */
	v.re = (long double)(rnd() % 9);
	v.im = types[t].kind == 'c' ? (long double)(rnd() % 9) : 0;
	return v;
}

static bool same(struct value a, struct value b)
{
	return a.bits == b.bits && a.re == b.re && a.im == b.im;
}

static bool yes(struct value a)
{
	return a.bits || a.re != 0 || a.im != 0;
}

static bool less(unsigned t, struct value a, struct value b)
{
	return types[t].kind == 'i' ? (int64_t)a.bits < (int64_t)b.bits :
	       types[t].kind == 'u' ? a.bits < b.bits : a.re < b.re;
}

static struct value truth(unsigned t, bool is)
{
	return integer(t) ? (struct value){is, 0, 0} : (struct value){0, is, 0};
}

static struct value plain(unsigned t, enum fi_op op, struct value o, struct value v, struct value c)
{
	switch (op) {
	case FI_MIN: return less(t, v, o) ? v : o;
	case FI_MAX: return less(t, o, v) ? v : o;
	case FI_SUM: return (struct value){o.bits + v.bits, o.re + v.re, o.im + v.im};
	case FI_PROD: return (struct value){o.bits * v.bits, o.re * v.re - o.im * v.im, o.re * v.im + o.im * v.re};
	case FI_LOR: return truth(t, yes(o) || yes(v));
	case FI_LAND: return truth(t, yes(o) && yes(v));
	case FI_LXOR: return truth(t, yes(o) != yes(v));
	case FI_BOR: return (struct value){o.bits | v.bits, o.re, o.im};
	case FI_BAND: return (struct value){o.bits & v.bits, o.re, o.im};
	case FI_BXOR: return (struct value){o.bits ^ v.bits, o.re, o.im};
	case FI_ATOMIC_WRITE: return v;
	case FI_CSWAP: return same(c, o) ? v : o;
	case FI_CSWAP_NE: return same(c, o) ? o : v;
	case FI_CSWAP_LE: return less(t, o, c) ? o : v;
	case FI_CSWAP_LT: return less(t, c, o) ? v : o;
	case FI_CSWAP_GE: return less(t, c, o) ? o : v;
	case FI_CSWAP_GT: return less(t, o, c) ? v : o;
	case FI_MSWAP: return (struct value){(v.bits & c.bits) | (o.bits & ~c.bits), o.re, o.im};
	default: return o;
	}
}

/* ---- Each of them ---- */

enum way { ATOMIC, ATOMICV, ATOMICMSG, INJECT, FETCH, FETCHV, FETCHMSG, COMPARE, COMPAREV, COMPAREMSG, WAYS };

/* One place after the other: what needs no answer may look at its place after this test has moved on */
static uint8_t *spot;
static unsigned spots;

static uint8_t operand[BYTES], compare[BYTES], result[BYTES], expected[BYTES], old[BYTES];

static ssize_t go(enum way way, enum fi_datatype t, enum fi_op op, size_t n, size_t split)
{
	const uint64_t at = (uintptr_t)spot, key = fi_mr_key(mr), delivered = FI_COMPLETION | FI_DELIVERY_COMPLETE;
	const size_t size = types[t].size;
	struct fi_ioc v[2] = {{operand, split}, {operand + split * size, n - split}};
	struct fi_ioc c[2] = {{compare, n - split}, {compare + (n - split) * size, split}};
	struct fi_ioc r[2] = {{result, split}, {result + split * size, n - split}};
	struct fi_rma_ioc there = {at, n, key};
	struct fid_ep *ep = pair.a.ep;
	const struct fi_msg_atomic m = {v, NULL, 2, pair.to_b, &there, 1, t, op, &context, 0};

	switch (way) {
	case ATOMIC: return fi_atomic(ep, operand, n, NULL, pair.to_b, at, key, t, op, &context);
	case ATOMICV: return fi_atomicv(ep, v, NULL, 2, pair.to_b, at, key, t, op, &context);
	case ATOMICMSG: return fi_atomicmsg(ep, &m, delivered);
	case INJECT: return fi_inject_atomic(ep, operand, n, pair.to_b, at, key, t, op);
	case FETCH: return fi_fetch_atomic(ep, operand, n, NULL, result, NULL, pair.to_b, at, key, t, op, &context);
	case FETCHV: return fi_fetch_atomicv(ep, v, NULL, 2, r, NULL, 2, pair.to_b, at, key, t, op, &context);
	case FETCHMSG: return fi_fetch_atomicmsg(ep, &m, r, NULL, 2, delivered);
	case COMPARE:
		return fi_compare_atomic(ep, operand, n, NULL, compare, NULL, result, NULL, pair.to_b, at, key, t, op,
					 &context);
	case COMPAREV: return fi_compare_atomicv(ep, v, NULL, 2, c, NULL, 2, r, NULL, 2, pair.to_b, at, key, t, op, &context);
	default: return fi_compare_atomicmsg(ep, &m, c, NULL, 2, r, NULL, 2, delivered);
	}
}

static void one(enum way way, enum fi_datatype t, enum fi_op op, size_t n)
{
	const size_t size = types[t].size;
	struct value o, v, c;
	bool right;

	spot = theirs + (spots++ & 7) * (BYTES / 8);
	memset(spot, 0xa5, BYTES / 8);
	memset(result, 0x5a, BYTES);
	for (size_t i = 0; i < n; i++) {
		o = some(t);
		v = some(t);
		c = rnd() % 2 ? o : some(t);
		store(t, spot + i * size, o);
		store(t, old + i * size, o);
		store(t, operand + i * size, v);
		store(t, compare + i * size, c);
		store(t, expected + i * size, plain(t, op, o, v, c));
	}
	must(again(go(way, t, op, n, rnd() % (n + 1))));
	if (way == INJECT)
		memset(operand, 0, BYTES);
	else
		assert_int_equal(good(&pair.a, &context)->e.flags, FI_ATOMIC | (way >= FETCH ? FI_READ : FI_WRITE));
	/* Without an answer it comes after the call: before a later message, or step by step by the device */
	if (way <= INJECT && way != ATOMICMSG) {
		ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
		for (size_t i = 0; i < n; i++)
			wait_polling(same(load(t, spot + i * size), load(t, expected + i * size)));
	}
	right = all_bytes(spot + n * size, 64, 0xa5) && all_bytes(result + (way >= FETCH ? n * size : 0), 64, 0x5a);
	for (size_t i = 0; i < n; i++)
		right &= same(load(t, spot + i * size), load(t, expected + i * size)) &&
			 (way < FETCH || same(load(t, result + i * size), load(t, old + i * size)));
	if (!right)
		fail_msg("way %d, type %d, op %d, %zu elements", way, t, op, n);
}

TEST(test_all)
{
	static const uint64_t flags[] = {0, FI_FETCH_ATOMIC, FI_COMPARE_ATOMIC};
	int i, kinds[3] = {0, 0, 0};
	struct fi_atomic_attr attr;

	for (i = 0; i < WAYS * FI_DATATYPE_LAST * FI_ATOMIC_OP_LAST; i++) {
		const enum way way = (enum way)(i / (FI_DATATYPE_LAST * FI_ATOMIC_OP_LAST));
		const enum fi_datatype type = (enum fi_datatype)(i / FI_ATOMIC_OP_LAST % FI_DATATYPE_LAST);
		const enum fi_op op = (enum fi_op)(i % FI_ATOMIC_OP_LAST);
		const int kind = way < FETCH ? 0 : way < COMPARE ? 1 : 2;

		if (fi_query_atomic(pair.a.domain, type, op, &attr, flags[kind])) {
			assert_int_equal(again(go(way, type, op, 1, 1)), -FI_EOPNOTSUPP);
			continue;
		}
		kinds[kind]++;
		assert_int_equal(attr.size, types[type].size);
		one(way, type, op, rnd() % 3 ? 1 : 5);
		if (rnd() % 16 == 0)
			one(way, type, op, attr.count);
		assert_int_equal(go(way, type, op, attr.count + 1, 1), -FI_EINVAL);
	}
	/* 8 types of integers, 3 of reals, 3 of complex numbers */
	assert_int_equal(kinds[0], 4 * (8 * 11 + 3 * 8 + 3 * 6));
	assert_int_equal(kinds[1], 3 * (8 * 12 + 3 * 9 + 3 * 7));
	assert_int_equal(kinds[2], 3 * (8 * 7 + 3 * 6 + 3 * 2));
	nothing();
}

/* Types of 8 and 4 bytes are the device's, whatever the operation: the peer need not make progress. */
TEST(test_alone)
{
	static const enum fi_op ops[] = {FI_SUM, FI_PROD, FI_BOR, FI_BAND, FI_BXOR, FI_ATOMIC_WRITE, FI_CSWAP, FI_MSWAP};

	for (unsigned t = FI_INT8; t <= FI_UINT64; t++)
		for (unsigned i = 0; i < ARRAY(ops); i++) {
			const bool native = types[t].size == 8 || types[t].size == 4;
			double end = now() + DEADLINE;

			spot = theirs;
			must(again(go(ops[i] >= FI_CSWAP ? COMPARE : FETCH, (enum fi_datatype)t, ops[i], 3, 1)));
			for (unsigned k = 0; (native ? now() < end : k < 100) && pair.a.first == pair.a.last; k++, step())
				poll_side(&pair.a);
			assert_int_equal(pair.a.last - pair.a.first, native);
			good(&pair.a, &context);
		}
}

/* The peer refuses what it must: wrong keys, memory that is not there or not to be written, odd addresses */
TEST(test_refused)
{
	const uint64_t end = (uintptr_t)theirs + BYTES, key = fi_mr_key(mr);
	uint16_t v = 1, old = 0;
	struct fid_mr *readable;

	must(fi_mr_reg(pair.b.domain, theirs, BYTES, FI_REMOTE_READ, 0, 0, 0, &readable, NULL));
	const struct {
		uint64_t at, key;
		enum fi_op op;
		int err;
	} rows[] = {{end - 4, key ^ 0x100, FI_SUM, FI_EACCES}, {end, key, FI_SUM, FI_EACCES},
		    {end - 4, fi_mr_key(readable), FI_SUM, FI_EACCES}, {end - 5, key, FI_SUM, FI_EINVAL},
		    {end - 4, fi_mr_key(readable), FI_ATOMIC_READ, 0}};

	for (size_t i = 0; i < ARRAY(rows); i++) {
		must(again(fi_fetch_atomic(pair.a.ep, rows[i].op == FI_SUM ? &v : NULL, 1, NULL, &old, NULL, pair.to_b,
					   rows[i].at, rows[i].key, FI_UINT16, rows[i].op, &context)));
		bad(&pair.a, &context, rows[i].err);
	}
	must(fi_close(&readable->fid));
}

static int set_up(UNUSED void **state)
{
	pair_open(FI_RMA | FI_ATOMIC | FI_MSG, 0);
	must(fi_mr_reg(pair.b.domain, theirs, BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL));
	return 0;
}

static int close_all(UNUSED void **state)
{
	must(fi_close(&mr->fid));
	pair_close();
	return 0;
}

int main(void)
{
	use_provider();
	return run_all(set_up, close_all);
}
