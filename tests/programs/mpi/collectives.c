/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collective operations, each blocking and immediate, against what this rank computes by itself: it knows what all others hold.
 */
#include "world.h"

enum what { BCAST, GATHER, ALLGATHER, SCATTER, ALLTOALL, GATHERV, ALLGATHERV, SCATTERV, ALLTOALLV, REDUCE, ALLREDUCE, SCAN, EXSCAN,
	    REDUCE_SCATTER, WHATS };

static const char *const names[] = { "bcast", "gather", "allgather", "scatter", "alltoall", "gatherv", "allgatherv", "scatterv",
				     "alltoallv", "reduce", "allreduce", "scan", "exscan", "reduce_scatter_block" };

static MPI_Comm comm;
static int n, self;             /* of comm */
static uint64_t step;
static MPI_Op user;

#define HOLE (-12345)           /* what stays as it was */

/* Item k of what rank r holds: small, so that a sum of them is exact */
static long item(int r, long k)
{
	return (long)(chance(step, (uint64_t)r, (uint64_t)k) % 50) - 20;
}

/* ---- reductions ---- */

enum { SUM, MIN, MAXIMUM, XOR, USERS, OPS };

/* Not commutative: x -> a x + b, as a << 32 | b; one after the other */
#define PRIME 1000003

static long pair_of(long v)
{
	return 31l << 32 | (v + 20);
}

static long combined(int op, long a, long b)
{
	switch (op) {
	case SUM:
		return a + b;
	case MIN:
		return a < b ? a : b;
	case MAXIMUM:
		return a > b ? a : b;
	case XOR:
		return a ^ b;
	default:
		return ((a >> 32) * (b >> 32) % PRIME) << 32 | ((a & 0xffffffff) * (b >> 32) + (b & 0xffffffff)) % PRIME;
	}
}

static void users(void *in, void *inout, int *len, MPI_Datatype *type)
{
	int k;

	(void)type;
	for (k = 0; k < *len; k++)
		((long *)inout)[k] = combined(USERS, ((long *)in)[k], ((long *)inout)[k]);
}

static long held(int op, int r, long k)
{
	return op == USERS ? pair_of(item(r, k)) : item(r, k);
}

/* What the ranks before `to` hold at k, combined */
static long of_ranks(int op, int to, long k)
{
	long v = held(op, 0, k);
	int r;

	for (r = 1; r < to; r++)
		v = combined(op, v, held(op, r, k));
	return v;
}

/* ---- each of them ---- */

struct task {
	enum what what;
	int count, root, op;
	int *counts, *at, *from, *from_at; /* of those with a "v" */
	long *in, *out, room;
};

/* Rank r's share in those with a "v" */
static int share(int r, int count)
{
	return (int)((long)count * ((r + (int)step) % 3) / 2);
}

/* What comes at k of `out`; HOLE: nothing does */
static long expected(const struct task *t, long k)
{
	const bool root = self == t->root;
	const int count = t->count, r = (int)(k / (count + 1)), slot = 2 * count + 1, at = (int)(k % slot);
	const long i = k % (count + 1);

	switch (t->what) {
	case BCAST:
		return k < count ? item(t->root, k) : HOLE;
	case GATHER:
	case ALLGATHER:
		return (root || t->what == ALLGATHER) && k < (long)count * n ? item((int)(k / count), k % count) : HOLE;
	case SCATTER:
		return k < count ? item(t->root, (long)count * self + k) : HOLE;
	case ALLTOALL:
		return k < (long)count * n ? item((int)(k / count), (long)count * self + k % count) : HOLE;
	case GATHERV:
	case ALLGATHERV:
		return (root || t->what == ALLGATHERV) && r < n && i < share(r, count) ? item(r, i) : HOLE;
	case SCATTERV:
		return k < share(self, count) ? item(t->root, (long)(count + 1) * self + k) : HOLE;
	case ALLTOALLV: /* from rank r into slot n - 1 - r */
		return k / slot < n && at < share(self + n - 1 - (int)(k / slot), count) ?
			       item(n - 1 - (int)(k / slot), (long)slot * self + at) : HOLE;
	case REDUCE:
	case ALLREDUCE:
		return (root || t->what == ALLREDUCE) && k < count ? of_ranks(t->op, n, k) : HOLE;
	case SCAN:
		return k < count ? of_ranks(t->op, self + 1, k) : HOLE;
	case EXSCAN:
		return self && k < count ? of_ranks(t->op, self, k) : HOLE;
	default:
		return k < count ? of_ranks(t->op, n, (long)count * self + k) : HOLE;
	}
}

#define CALL(blocking, immediate, ...) (request ? immediate(__VA_ARGS__, comm, request) : blocking(__VA_ARGS__, comm))

static void begin(struct task *t, MPI_Request *request)
{
	const MPI_Op ops[] = { MPI_SUM, MPI_MIN, MPI_MAX, MPI_BXOR, user };
	const int count = t->count, root = t->root, slot = t->what == ALLTOALLV ? 2 * count + 1 : count + 1;
	const MPI_Op op = ops[t->op];
	long *in = t->in, *out = t->out, k;
	int r;

	for (k = 0; k < t->room; k++) {
		in[k] = held(t->what >= REDUCE ? t->op : SUM, self, k);
		out[k] = HOLE;
	}
	for (r = 0; r < n; r++) {
		t->counts[r] = t->from[r] = t->what == ALLTOALLV ? share(self + r, count) : share(r, count);
		t->at[r] = r * slot;
		t->from_at[r] = (n - 1 - r) * slot;
	}
	for (k = 0; t->what == BCAST && k < count; k++)
		out[k] = self == root ? in[k] : HOLE;
#define ONE in, count, MPI_LONG, out, count, MPI_LONG
	switch (t->what) {
	case BCAST: CALL(MPI_Bcast, MPI_Ibcast, out, count, MPI_LONG, root); break;
	case GATHER: CALL(MPI_Gather, MPI_Igather, ONE, root); break;
	case ALLGATHER: CALL(MPI_Allgather, MPI_Iallgather, ONE); break;
	case SCATTER: CALL(MPI_Scatter, MPI_Iscatter, ONE, root); break;
	case ALLTOALL: CALL(MPI_Alltoall, MPI_Ialltoall, ONE); break;
	case GATHERV:
		CALL(MPI_Gatherv, MPI_Igatherv, in, t->counts[self], MPI_LONG, out, t->counts, t->at, MPI_LONG, root);
		break;
	case ALLGATHERV:
		CALL(MPI_Allgatherv, MPI_Iallgatherv, in, t->counts[self], MPI_LONG, out, t->counts, t->at, MPI_LONG);
		break;
	case SCATTERV:
		CALL(MPI_Scatterv, MPI_Iscatterv, in, t->counts, t->at, MPI_LONG, out, t->counts[self], MPI_LONG, root);
		break;
	case ALLTOALLV:
		CALL(MPI_Alltoallv, MPI_Ialltoallv, in, t->counts, t->at, MPI_LONG, out, t->from, t->from_at, MPI_LONG);
		break;
	case REDUCE: CALL(MPI_Reduce, MPI_Ireduce, in, out, count, MPI_LONG, op, root); break;
	case ALLREDUCE: CALL(MPI_Allreduce, MPI_Iallreduce, in, out, count, MPI_LONG, op); break;
	case SCAN: CALL(MPI_Scan, MPI_Iscan, in, out, count, MPI_LONG, op); break;
	case EXSCAN: CALL(MPI_Exscan, MPI_Iexscan, in, out, count, MPI_LONG, op); break;
	default: CALL(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, in, out, count, MPI_LONG, op);
	}
}

static void end(struct task *t)
{
	long k, v;

	for (k = 0; k < t->room; k++) {
		v = expected(t, k);
		if (t->out[k] != v && !(t->what == EXSCAN && !self)) /* there it may be anything */
			die("%s of %d, root %d, operation %d: item %ld is %ld, not %ld", names[t->what], t->count, t->root, t->op, k,
			    t->out[k], v);
	}
	verified((size_t)t->count * sizeof(long));
}

/* All of them, one after the other or at once */
static void all(int count, bool at_once)
{
	struct task tasks[WHATS], *t;
	MPI_Request request[WHATS];
	int i;

	step++;
	for (i = 0; i < WHATS; i++) {
		t = &tasks[i];
		*t = (struct task){ .what = (enum what)i, .count = count, .root = (int)(chance(step, 1, (uint64_t)i) % (uint64_t)n),
				    .op = (int)(chance(step, 2, (uint64_t)i) % OPS), .room = (2l * count + 1) * n + 8 };
		t->counts = malloc(4 * (size_t)n * sizeof *t->counts);
		t->at = t->counts + n;
		t->from = t->at + n;
		t->from_at = t->from + n;
		t->in = malloc((size_t)t->room * sizeof(long));
		t->out = malloc((size_t)t->room * sizeof(long));
		doing("%s of %d%s", names[i], count, at_once ? ", with others" : "");
		begin(t, at_once ? &request[i] : NULL);
		if (!at_once)
			end(t);
	}
	if (at_once)
		MPI_Waitall(WHATS, request, MPI_STATUSES_IGNORE);
	for (i = 0; i < WHATS; i++) {
		t = &tasks[i];
		if (at_once)
			end(t);
		free(t->counts);
		free(t->in);
		free(t->out);
	}
}

static void on(MPI_Comm some, const int *counts, int many)
{
	int i, k;

	comm = some;
	MPI_Comm_rank(comm, &self);
	MPI_Comm_size(comm, &n);
	for (i = 0; i < many; i++)
		for (k = 0; k < OPS; k++)
			all(counts[i] / (k ? 1 + k % 3 : 1), k % 2);
	MPI_Barrier(comm);
}

void collectives(void)
{
	static const int counts[] = { 1, 3, 130, 1025, 20000, 150001 };
	MPI_Comm some;
	int k;

	MPI_Op_create(users, 0, &user);
	for (k = 0; k < rounds; k++) {
		step = (uint64_t)k << 32; /* rank 0 took no part in the last steps */
		MPI_Comm_split(MPI_COMM_WORLD, 0, -me, &some); /* the other way round */
		on(some, counts, rounds > 1 ? 6 : 5);
		MPI_Comm_free(&some);
		MPI_Comm_split(MPI_COMM_WORLD, me ? 1 : MPI_UNDEFINED, me, &some); /* all but one */
		if (me) {
			on(some, counts + 2, 1);
			MPI_Comm_free(&some);
		}
	}
	MPI_Op_free(&user);
}
