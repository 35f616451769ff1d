/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided operations: put, get, accumulate and their kin, in epochs of every kind, on memory of each kind of window.
 */
#include "world.h"

#define ROOM (1u << 20)         /* bytes of a window */

static MPI_Win win;
static uint8_t *memory;
static uint64_t step;
static MPI_Aint *base;          /* of each rank, in a dynamic window; 0 in others */
static bool early;              /* Open MPI 4's osc/ucx: a request of rget may be done before the data is there (its pull request 10536) */

static uint64_t key_of(int from, int to)
{
	return chance(step, (uint64_t)from << 32 | (unsigned)to, 98);
}

/* ---- epochs ---- */

enum epoch { FENCE, LOCK, LOCK_ALL, PSCW, EPOCHS };

static const char *const epochs[] = { "fence", "lock", "lock_all", "post, start, complete, wait" };
static MPI_Group everyone;

static void open_epoch(enum epoch e, int target)
{
	switch (e) {
	case FENCE: MPI_Win_fence(0, win); break;
	case LOCK:
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Win_lock(step % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, target, 0, win);
		break;
	case LOCK_ALL:
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Win_lock_all(0, win);
		break;
	default:
		MPI_Win_post(everyone, 0, win);
		MPI_Win_start(everyone, 0, win);
	}
}

/* After it everybody has done what they wanted at everybody, and it shows */
static void close_epoch(enum epoch e, int target)
{
	switch (e) {
	case FENCE: MPI_Win_fence(0, win); break;
	case LOCK: MPI_Win_unlock(target, win); break;
	case LOCK_ALL:
		MPI_Win_flush(target, win);
		MPI_Win_unlock_all(win);
		break;
	default:
		MPI_Win_complete(win);
		MPI_Win_wait(win);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, win); /* what came is seen by loads */
	MPI_Win_unlock(me, win);
}

/* Between the steps everybody may look at their memory and change it */
static void own(bool mine)
{
	if (mine) {
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, win);
	} else {
		MPI_Win_unlock(me, win);
		MPI_Barrier(MPI_COMM_WORLD);
	}
}

/* ---- bytes ---- */

static void put_and_get(enum epoch e, size_t len, bool requests)
{
	int shift = (int)(++step % (unsigned)ranks), to = (me + 1 + shift) % ranks, from = (2 * ranks + me - 1 - shift) % ranks;
	uint8_t *out = around_alloc(len), *in = around_alloc(len);
	MPI_Aint at = (MPI_Aint)(chance(step, 1, 1) % (ROOM / 2 - len + 1)), i;
	MPI_Request request;

	doing("put and get of %zu bytes, %s", len, epochs[e]);
	own(true);
	memset(memory, 0xa5, ROOM / 2);
	fill(memory + ROOM / 2, len, key_of(me, me) + 1);
	own(false);
	fill(out, len, key_of(me, to));
	requests = requests && (e == LOCK || e == LOCK_ALL);
	open_epoch(e, to);
	if (requests) {
		MPI_Rput(out, (int)len, MPI_BYTE, to, base[to] + at, (int)len, MPI_BYTE, win, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		memset(out, 0, len);
		MPI_Rget(in, (int)len, MPI_BYTE, to, base[to] + ROOM / 2, (int)len, MPI_BYTE, win, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		if (early)
			MPI_Win_flush(to, win);
		check(in, len, key_of(to, to) + 1, "got by request");
	} else {
		MPI_Put(out, (int)len, MPI_BYTE, to, base[to] + at, (int)len, MPI_BYTE, win);
		if (e == LOCK_ALL) {
			MPI_Win_flush_local(to, win);
			memset(out, 0, len);
		}
		MPI_Get(in, (int)len, MPI_BYTE, to, base[to] + ROOM / 2, (int)len, MPI_BYTE, win);
	}
	sent(to);
	close_epoch(e, to);
	check(in, len, key_of(to, to) + 1, "got");
	around_check(in, len, "got");
	own(true);
	check(memory + at, len, key_of(from, me), "put here");
	for (i = 0; i < ROOM / 2; i++)
		EXPECT((i >= at && i < at + (MPI_Aint)len) || memory[i] == 0xa5);
	own(false);
	around_free(in);
	around_free(out);
}

/* ---- sums and other operations, by all at the same place ---- */

#define ITEMS 37

static const char *const ops[] = { "sum", "min", "max", "product", "and", "or", "xor", "logical and", "logical or", "replace", "nothing" };

enum { AND = 4, REPLACE = 9, NOTHING };

static MPI_Op op_of(unsigned op)
{
	const MPI_Op all[] = { MPI_SUM, MPI_MIN, MPI_MAX, MPI_PROD, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_REPLACE, MPI_NO_OP };

	return all[op];
}

static long applied(unsigned op, long a, long b)
{
	const long all[] = { a + b, a < b ? a : b, a > b ? a : b, a * b, a & b, a | b, a ^ b, a && b, a || b, b, a };

	return all[op];
}

/* Such that sums and products of many ranks fit into a signed byte */
static long item(unsigned op, int r, long k)
{
	long v = (long)(chance(step, (uint64_t)r, (uint64_t)k) % 7);

	return op == 3 ? r % 4 ? 1 : v % 2 + 1 : v;
}

/* name, type, MPI's */
#define KINDS(x) \
	x(0, int8_t, MPI_INT8_T) x(1, int16_t, MPI_INT16_T) x(2, int32_t, MPI_INT32_T) x(3, int64_t, MPI_INT64_T) \
		x(4, float, MPI_FLOAT) x(5, double, MPI_DOUBLE)

enum { INTEGERS = 4, ALL_KINDS = 6 };

#define NAME(i, type, mpi) #type,
static const char *const kinds[] = { KINDS(NAME) };

static MPI_Datatype kind_of(unsigned kind)
{
#define IS(i, type, mpi) mpi,
	const MPI_Datatype all[] = { KINDS(IS) };

	return all[kind];
}

static void store(unsigned kind, void *p, long k, long v)
{
#define STORE(i, type, mpi) \
	if (kind == i) \
		((type *)p)[k] = (type)v;
	KINDS(STORE)
}

static long load(unsigned kind, const void *p, long k)
{
#define LOAD(i, type, mpi) \
	if (kind == i) \
		return (long)((const type *)p)[k];
	KINDS(LOAD)
	return 0;
}

/* Everyone accumulates at rank `to`; fetching, they also learn what was there before them */
static void accumulate(enum epoch e, unsigned kind, unsigned op, bool fetch)
{
	int to = (int)(++step % (uint64_t)ranks), r, ordered = op != REPLACE;
	uint8_t *out = around_alloc(8 * ITEMS), *in = around_alloc(8 * ITEMS);
	MPI_Datatype type = kind_of(kind);
	MPI_Request request;
	long k, v, x;

	doing("%s%s of %s, %s", fetch ? "get and " : "", ops[op], kinds[kind], epochs[e]);
	own(true);
	for (k = 0; k < ITEMS; k++)
		store(kind, memory, k, item(op, ranks, k));
	own(false);
	for (k = 0; k < ITEMS; k++)
		store(kind, out, k, item(op, me, k));
	open_epoch(e, to);
	if (fetch)
		MPI_Get_accumulate(out, ITEMS, type, in, ITEMS, type, to, base[to], ITEMS, type, op_of(op), win);
	else if (e == LOCK && step % 3 == 0) {
		MPI_Raccumulate(out, ITEMS, type, to, base[to], ITEMS, type, op_of(op), win, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	} else
		MPI_Accumulate(out, ITEMS, type, to, base[to], ITEMS, type, op_of(op), win);
	sent(to);
	close_epoch(e, to);
	own(true);
	for (k = 0; k < ITEMS; k++) {
		x = load(kind, memory, k);
		v = item(op, ranks, k);
		for (r = 0; me == to && ordered && r < ranks; r++)
			v = applied(op, v, item(op, r, k));
		for (r = 0; me == to && !ordered && r < ranks; r++)
			v = item(op, r, k) == x ? x : v; /* somebody's */
		if (x != v)
			die("item %ld is %ld, not %ld", k, x, v);
	}
	own(false);
	if (fetch && op == NOTHING) {
		for (k = 0; k < ITEMS; k++)
			EXPECT(load(kind, in, k) == item(op, ranks, k));
	}
	around_check(in, 8 * ITEMS, "fetched");
	verified(ITEMS);
	around_free(in);
	around_free(out);
}

/* ---- a counter of which each number is drawn once, and a lock ---- */

static void counters(unsigned kind, bool swap)
{
	long draws = rounds > 1 ? 60 : 10, all = draws * ranks, k, was, *seen = calloc((size_t)all, sizeof *seen), *sum = calloc((size_t)all, sizeof *sum);
	uint64_t one = 0, old, next, got;
	MPI_Datatype type = kind_of(kind);
	int at = (int)(++step % (uint64_t)ranks);

	doing("drawing numbers by %s of %s", swap ? "compare and swap" : "fetch and op", kinds[kind]);
	own(true);
	memset(memory, 0, 64);
	own(false);
	MPI_Win_lock_all(0, win);
	store(kind, &one, 0, 1);
	for (k = 0; k < draws; k++) {
		got = 0;
		if (!swap) {
			MPI_Fetch_and_op(&one, &got, type, at, base[at] + 8, MPI_SUM, win);
			MPI_Win_flush(at, win);
		} else {
			MPI_Fetch_and_op(NULL, &got, type, at, base[at] + 8, MPI_NO_OP, win);
			MPI_Win_flush(at, win);
			do {
				old = got;
				next = 0;
				store(kind, &next, 0, load(kind, &old, 0) + 1);
				MPI_Compare_and_swap(&next, &old, &got, type, at, base[at] + 8, win);
				MPI_Win_flush(at, win);
			} while (load(kind, &got, 0) != load(kind, &old, 0));
		}
		was = load(kind, &got, 0);
		EXPECT(was >= 0 && was < all);
		seen[was]++;
		sent(at);
	}
	MPI_Win_unlock_all(win);
	MPI_Allreduce(seen, sum, (int)all, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	for (k = 0; k < all; k++)
		EXPECT(sum[k] == 1);
	own(true);
	if (me == at)
		EXPECT(load(kind, memory + 8, 0) == all && load(3, memory, 0) == 0 && load(3, memory, 2) == 0);
	own(false);
	verified(8 * (size_t)draws);
	free(seen);
	free(sum);
}

/* On a window of the given kind, of three */
static void all_of_it(unsigned window)
{
	static const size_t lens[] = { 1, 8, 13, 64, 200, 4096, 20001, 131072, ROOM / 2 };

	for (unsigned e = 0; e < EPOCHS; e++) {
		for (unsigned i = 0; i < sizeof lens / sizeof *lens; i++)
			if (rounds > 1 || (i + e + window) % 3 == 0) /* each on each window */
				put_and_get((enum epoch)e, lens[i], i % 2);
		for (unsigned kind = 0; kind < ALL_KINDS; kind++) {
			for (unsigned op = 0; op < sizeof ops / sizeof *ops; op++) {
				if (op >= AND && op < REPLACE && kind >= INTEGERS)
					continue;
				/* Each on some window in some epoch; in long runs, all on all */
				if (rounds == 1 && (kind * 11 + op) % 12 != e * 3 + window)
					continue;
				accumulate((enum epoch)e, kind, op, true);
				if (op != NOTHING)
					accumulate((enum epoch)e, kind, op, false);
			}
		}
	}
	counters(2, false);
	counters(2, true);
	counters(3, false);
	if (!over("osc", "rdma")) /* Open MPI 4.1 dies of it over any network */
		counters(3, true);
}

void rma(void)
{
	MPI_Aint address;
	void *p;

	early = over("osc", "ucx");
	base = calloc((size_t)ranks, sizeof *base);
	MPI_Comm_group(MPI_COMM_WORLD, &everyone);
	for (int k = 0; k < rounds; k++) {
		MPI_Win_allocate(ROOM, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &p, &win);
		memory = p;
		all_of_it(0);
		MPI_Win_free(&win);

		memory = malloc(ROOM);
		MPI_Win_create(memory, ROOM, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
		all_of_it(1);
		MPI_Win_free(&win);

		MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
		MPI_Win_attach(win, memory, ROOM);
		MPI_Get_address(memory, &address);
		MPI_Allgather(&address, 1, MPI_AINT, base, 1, MPI_AINT, MPI_COMM_WORLD);
		all_of_it(2);
		memset(base, 0, (size_t)ranks * sizeof *base);
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Win_detach(win, memory);
		MPI_Win_free(&win);
		free(memory);
	}
	MPI_Group_free(&everyone);
	free(base);
}
