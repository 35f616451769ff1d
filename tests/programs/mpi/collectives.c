/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collective operations, each against what this rank computes by itself: it knows what all others hold.
 */
#include "world.h"

static MPI_Comm comm;
static int n, self;             /* of comm */
static uint64_t step;

/* Item k of what rank r holds: small, so that a sum of them is exact in any type */
static long item(int r, long k)
{
	return (long)(chance(step, (uint64_t)r, (uint64_t)k) % 50) - 20;
}

static long *vector(long count)
{
	long *v = malloc(((size_t)count + 1) * sizeof *v);

	if (!v)
		die("no memory");
	v[count] = 12345;
	return v;
}

static long *mine(long count)
{
	long *v = vector(count), k;

	for (k = 0; k < count; k++)
		v[k] = item(self, k);
	return v;
}

static void done(long *v, long count)
{
	EXPECT(v[count] == 12345);
	verified((size_t)count * sizeof *v);
	free(v);
}

/* ---- reductions ---- */

static long combined(int op, long a, long b)
{
	switch (op) {
	case 0:
		return a + b;
	case 1:
		return a < b ? a : b;
	case 2:
		return a > b ? a : b;
	case 3:
		return a ^ b;
	default: /* of the user's, which may not change places: two-digit numbers that are put behind one another */
		return (a * 31 + b) % 1000003;
	}
}

static void users(void *in, void *inout, int *len, MPI_Datatype *type)
{
	long *a = in, *b = inout;
	int k;

	(void)type;
	/* Associative: pairs (31^length, value) in one number */
	for (k = 0; k < *len; k++) {
		long pa = a[k] >> 32, va = a[k] & 0xffffffff, pb = b[k] >> 32, vb = b[k] & 0xffffffff;

		b[k] = (pa * pb % 1000003) << 32 | (va * pb + vb) % 1000003;
	}
}

/* What the ranks of [from, to) hold at k, combined */
static long of_ranks(int op, int from, int to, long k)
{
	long v = op == 4 ? item(from, k) + 20 : item(from, k);

	for (from++; from < to; from++)
		v = combined(op, v, op == 4 ? item(from, k) + 20 : item(from, k));
	return op == 4 ? v % 1000003 : v;
}

static long plain(int op, long v)
{
	return op == 4 ? v & 0xffffffff : v;
}

static void reductions(int count, MPI_Op user)
{
	const MPI_Op ops[] = { MPI_SUM, MPI_MIN, MPI_MAX, MPI_BXOR, user };
	long *in, *out, *all, k;
	int op, root, r;
	int *each = malloc((size_t)n * sizeof *each), at = 0;

	for (op = 0; op < 5; op++) {
		step++;
		doing("reduction %d of %d", op, count);
		root = (int)(chance(step, 1, 2) % (uint64_t)n);
		in = mine(count);
		for (k = 0; op == 4 && k < count; k++)
			in[k] = 31l << 32 | (in[k] + 20);

		out = vector(count);
		MPI_Reduce(in, out, count, MPI_LONG, ops[op], root, comm);
		for (k = 0; self == root && k < count; k++)
			EXPECT(plain(op, out[k]) == of_ranks(op, 0, n, k));
		MPI_Allreduce(in, out, count, MPI_LONG, ops[op], comm);
		for (k = 0; k < count; k++)
			EXPECT(plain(op, out[k]) == of_ranks(op, 0, n, k));
		MPI_Scan(in, out, count, MPI_LONG, ops[op], comm);
		for (k = 0; k < count; k++)
			EXPECT(plain(op, out[k]) == of_ranks(op, 0, self + 1, k));
		MPI_Exscan(in, out, count, MPI_LONG, ops[op], comm);
		for (k = 0; self && k < count; k++)
			EXPECT(plain(op, out[k]) == of_ranks(op, 0, self, k));
		memcpy(out, in, (size_t)count * sizeof *out);
		MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_LONG, ops[op], comm);
		for (k = 0; k < count; k++)
			EXPECT(plain(op, out[k]) == of_ranks(op, 0, n, k));
		done(out, count);
		free(in);

		all = mine((long)count * n);
		for (k = 0; op == 4 && k < (long)count * n; k++)
			all[k] = 31l << 32 | (all[k] + 20);
		out = vector(count);
		MPI_Reduce_scatter_block(all, out, count, MPI_LONG, ops[op], comm);
		for (k = 0; k < count; k++)
			EXPECT(plain(op, out[k]) == of_ranks(op, 0, n, (long)count * self + k));
		done(out, count);
		for (r = 0, at = 0; r < n; r++) {
			each[r] = count * (r % 3);
			at += r < self ? each[r] : 0;
		}
		out = vector(each[self]);
		free(all);
		all = mine((long)count * n * 3);
		for (k = 0; op == 4 && k < (long)count * n * 3; k++)
			all[k] = 31l << 32 | (all[k] + 20);
		MPI_Reduce_scatter(all, out, each, MPI_LONG, ops[op], comm);
		for (k = 0; k < each[self]; k++)
			EXPECT(plain(op, out[k]) == of_ranks(op, 0, n, at + k));
		done(out, each[self]);
		free(all);
	}
	free(each);
}

/* Other types: the sum, and where the greatest is */
static void reduced_types(int count)
{
	double *d = malloc(2 * (size_t)count * sizeof *d);
	short *s = malloc(2 * (size_t)count * sizeof *s);
	struct {
		double value;
		int at;
	} *where = malloc(2 * (size_t)count * sizeof *where);
	int k, r, best;

	doing("sums of %d of other types", count);
	step++;
	for (k = 0; k < count; k++) {
		d[k] = (double)item(self, k) / 4;
		s[k] = (short)item(self, k);
		where[k].value = (double)item(self, k);
		where[k].at = self;
	}
	MPI_Allreduce(d, d + count, count, MPI_DOUBLE, MPI_SUM, comm);
	MPI_Allreduce(s, s + count, count, MPI_SHORT, MPI_MAX, comm);
	MPI_Allreduce(where, where + count, count, MPI_DOUBLE_INT, MPI_MAXLOC, comm);
	for (k = 0; k < count; k++) {
		for (r = 1, best = 0; r < n; r++)
			best = item(r, k) > item(best, k) ? r : best;
		EXPECT(d[count + k] == (double)of_ranks(0, 0, n, k) / 4);
		EXPECT(s[count + k] == (short)of_ranks(2, 0, n, k));
		EXPECT(where[count + k].value == (double)item(best, k) && where[count + k].at == best);
	}
	verified(26 * (size_t)count);
	free(d);
	free(s);
	free(where);
}

/* ---- moves ---- */

/* Rank r's share in those with a "v" */
static int share(int r, int count)
{
	return (int)((long)count * ((r + (int)step) % 3) / 2);
}

static void moves(int count)
{
	int *counts = malloc(4 * (size_t)n * sizeof *counts), *at = counts + n, *from = at + n, *from_at = from + n;
	long *in, *out, k, total;
	int root, r, sum;

	step++;
	root = (int)(chance(step, 3, 4) % (uint64_t)n);
	doing("bcast of %d from %d", count, root);
	out = mine(count);
	MPI_Bcast(out, count, MPI_LONG, root, comm);
	for (k = 0; k < count; k++)
		EXPECT(out[k] == item(root, k));
	done(out, count);

	doing("gather of %d to %d, allgather", count, root);
	total = (long)count * n;
	in = mine(count);
	out = vector(total);
	MPI_Gather(in, count, MPI_LONG, out, count, MPI_LONG, root, comm);
	for (k = 0; self == root && k < total; k++)
		EXPECT(out[k] == item((int)(k / count), k % count));
	MPI_Allgather(in, count, MPI_LONG, out, count, MPI_LONG, comm);
	for (k = 0; k < total; k++)
		EXPECT(out[k] == item((int)(k / count), k % count));
	done(out, total);
	free(in);

	doing("scatter of %d from %d", count, root);
	in = mine(total);
	out = vector(count);
	MPI_Scatter(in, count, MPI_LONG, out, count, MPI_LONG, root, comm);
	for (k = 0; k < count; k++)
		EXPECT(out[k] == item(root, (long)count * self + k));
	done(out, count);

	doing("alltoall of %d", count);
	out = vector(total);
	MPI_Alltoall(in, count, MPI_LONG, out, count, MPI_LONG, comm);
	for (k = 0; k < total; k++)
		EXPECT(out[k] == item((int)(k / count), (long)count * self + k % count));
	memcpy(out, in, (size_t)total * sizeof *out);
	MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, count, MPI_LONG, comm);
	for (k = 0; k < total; k++)
		EXPECT(out[k] == item((int)(k / count), (long)count * self + k % count));
	done(out, total);
	free(in);

	doing("gatherv, allgatherv, scatterv of %d", count);
	for (r = 0, sum = 0; r < n; r++) {
		counts[r] = share(r, count);
		at[r] = sum + r; /* with a hole between them */
		sum += counts[r];
	}
	total = sum + n;
	in = mine(total);
	out = vector(total);
	for (k = 0; k < total; k++)
		out[k] = -1;
	MPI_Allgatherv(in, counts[self], MPI_LONG, out, counts, at, MPI_LONG, comm);
	for (r = 0; r < n; r++) {
		for (k = 0; k < counts[r]; k++)
			EXPECT(out[at[r] + k] == item(r, k));
		EXPECT(out[at[r] + counts[r]] == -1);
	}
	memset(out, 0, (size_t)total * sizeof *out);
	MPI_Gatherv(in, counts[self], MPI_LONG, out, counts, at, MPI_LONG, root, comm);
	for (r = 0; self == root && r < n; r++) {
		for (k = 0; k < counts[r]; k++)
			EXPECT(out[at[r] + k] == item(r, k));
	}
	MPI_Scatterv(in, counts, at, MPI_LONG, out, counts[self], MPI_LONG, root, comm);
	for (k = 0; k < counts[self]; k++)
		EXPECT(out[k] == item(root, at[self] + k));
	done(out, total);
	free(in);

	doing("alltoallv, alltoallw of %d", count);
	for (r = 0; r < n; r++) { /* to r: the share of self + r, whichever way */
		counts[r] = from[r] = share(self + r, count);
		at[r] = r * (2 * count + 1);
		from_at[r] = (n - 1 - r) * (2 * count + 1);
	}
	total = (2l * count + 1) * n;
	in = mine(total);
	out = vector(total);
	MPI_Alltoallv(in, counts, at, MPI_LONG, out, from, from_at, MPI_LONG, comm);
	for (r = 0; r < n; r++) {
		for (k = 0; k < from[r]; k++)
			EXPECT(out[from_at[r] + k] == item(r, (2l * count + 1) * self + k));
	}
	{
		MPI_Datatype *types = malloc((size_t)n * sizeof(MPI_Datatype));

		for (r = 0; r < n; r++) {
			types[r] = MPI_LONG;
			at[r] *= (int)sizeof(long);
			from_at[r] *= (int)sizeof(long);
		}
		memset(out, 0, (size_t)total * sizeof *out);
		MPI_Alltoallw(in, counts, at, types, out, from, from_at, types, comm);
		for (r = 0; r < n; r++) {
			for (k = 0; k < from[r]; k++)
				EXPECT(out[from_at[r] / (int)sizeof(long) + k] == item(r, (2l * count + 1) * self + k));
		}
		free(types);
	}
	done(out, total);
	free(in);
	free(counts);
}

/* ---- several at once, on two communicators ---- */

static void at_once(int count, MPI_Comm other)
{
	MPI_Request request[8];
	long *in = NULL, *v[6], k;
	int i, sum = -1, total = 0, root;

	doing("several at once, of %d", count);
	step++;
	root = (int)(chance(step, 5, 6) % (uint64_t)n);
	in = mine((long)count * n);
	for (i = 0; i < 6; i++)
		v[i] = vector((long)count * n);
	for (k = 0; k < count; k++)
		v[0][k] = item(self, k);
	MPI_Ibcast(v[0], count, MPI_LONG, root, comm, &request[0]);
	MPI_Iallreduce(in, v[1], count, MPI_LONG, MPI_SUM, comm, &request[1]);
	MPI_Iallreduce(&self, &sum, 1, MPI_INT, MPI_SUM, other, &request[2]);
	MPI_Ialltoall(in, count, MPI_LONG, v[2], count, MPI_LONG, comm, &request[3]);
	MPI_Iallgather(in, count, MPI_LONG, v[3], count, MPI_LONG, comm, &request[4]);
	MPI_Ireduce(in, v[4], count, MPI_LONG, MPI_MAX, root, comm, &request[5]);
	MPI_Iscan(in, v[5], count, MPI_LONG, MPI_SUM, comm, &request[6]);
	MPI_Ibarrier(other, &request[7]);
	MPI_Waitall(8, request, MPI_STATUSES_IGNORE);
	for (i = 0; i < n; i++)
		total += i % 2 == self % 2 ? i : 0;
	EXPECT(sum == total);
	for (k = 0; k < count; k++) {
		EXPECT(v[0][k] == item(root, k) && v[1][k] == of_ranks(0, 0, n, k));
		EXPECT(self != root || v[4][k] == of_ranks(2, 0, n, k));
		EXPECT(v[5][k] == of_ranks(0, 0, self + 1, k));
	}
	for (k = 0; k < (long)count * n; k++) {
		EXPECT(v[2][k] == item((int)(k / count), (long)count * self + k % count));
		EXPECT(v[3][k] == item((int)(k / count), k % count));
	}
	for (i = 0; i < 6; i++)
		done(v[i], (long)count * n);
	free(in);
}

void collectives(void)
{
	static const int counts[] = { 1, 3, 130, 1025, 20000, 150001 };
	MPI_Comm half, subset;
	MPI_Op user;
	int i, k;

	MPI_Op_create(users, 0, &user);
	for (k = 0; k < rounds; k++) {
		step = (uint64_t)k << 32; /* rank 0 took no part in the last steps */
		MPI_Comm_split(MPI_COMM_WORLD, 0, -me, &comm); /* the other way round */
		MPI_Comm_rank(comm, &self);
		MPI_Comm_size(comm, &n);
		EXPECT(n == ranks && self == ranks - 1 - me);
		MPI_Comm_split(comm, self % 2, self, &half);
		for (i = 0; i < (rounds > 1 ? 6 : 5); i++) {
			moves(counts[i]);
			if (i < 5) {
				reductions(counts[i] / (i == 4 ? 4 : 1), user);
				reduced_types(counts[i]);
				at_once(counts[i], half);
			}
			MPI_Barrier(comm);
		}
		MPI_Comm_free(&half);
		MPI_Comm_free(&comm);
		MPI_Comm_split(MPI_COMM_WORLD, me ? 1 : MPI_UNDEFINED, me, &subset); /* all but one */
		if (me) {
			comm = subset;
			MPI_Comm_rank(comm, &self);
			MPI_Comm_size(comm, &n);
			moves(100);
			reductions(100, user);
			MPI_Comm_free(&comm);
		} else {
			EXPECT(subset == MPI_COMM_NULL);
		}
	}
	MPI_Op_free(&user);
}
