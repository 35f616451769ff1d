/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads of each rank that call MPI at the same time: messages of their own, messages of all of them through one communicator, and
 * collective operations beside them.
 */
#include "world.h"

#define THREADS 4
#define ROOM 100000

static MPI_Comm own[THREADS], shared, another;

struct thread {
	pthread_t id;
	int index;
};

static uint64_t key_of(int from, int to, int thread, int i)
{
	return chance(55 + (uint64_t)thread, (uint64_t)from << 32 | (unsigned)to, (uint64_t)i);
}

static size_t length(int thread, int i)
{
	return some_size(chance(66, (uint64_t)thread, (uint64_t)i), ROOM);
}

static void *talk(void *arg)
{
	const struct thread *t = arg;
	int i, r, n, steps = 120 * rounds;
	uint8_t *out = around_alloc(ROOM), *in = around_alloc(ROOM);
	MPI_Request request;
	MPI_Status status;
	MPI_Message message;
	size_t len;
	long sum;

	for (i = 0; i < steps; i++) {
		int to = (me + 1 + i % ranks) % ranks, from = (2 * ranks + me - 1 - i % ranks) % ranks;

		/* A communicator for each thread: any source, any tag */
		len = length(t->index, i);
		fill(out, len, key_of(me, to, t->index, i));
		MPI_Isend(out, (int)len, MPI_BYTE, to, i, own[t->index], &request);
		sent(to);
		if (i % 3) {
			MPI_Recv(in, ROOM, MPI_BYTE, from, MPI_ANY_TAG, own[t->index], &status);
		} else {
			MPI_Mprobe(MPI_ANY_SOURCE, i, own[t->index], &message, &status);
			MPI_Get_count(&status, MPI_BYTE, &n);
			EXPECT(n == (int)len);
			MPI_Mrecv(in, n, MPI_BYTE, &message, &status);
		}
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		EXPECT(status.MPI_SOURCE == from && status.MPI_TAG == i);
		check(in, len, key_of(from, me, t->index, i), "received by a thread");

		/* One for all: a tag for each thread */
		fill(out, len, ~key_of(me, to, t->index, i));
		MPI_Irecv(in, ROOM, MPI_BYTE, MPI_ANY_SOURCE, t->index * steps + i, shared, &request);
		MPI_Send(out, (int)len, MPI_BYTE, to, t->index * steps + i, shared);
		sent(to);
		MPI_Wait(&request, &status);
		EXPECT(status.MPI_SOURCE == from);
		check(in, len, ~key_of(from, me, t->index, i), "received by one of the threads");

		if (t->index == 0 && i % 5 == 0) {
			sum = me + i;
			MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_LONG, MPI_SUM, another);
			EXPECT(sum == (long)ranks * (ranks - 1) / 2 + (long)ranks * i);
			for (r = 0; r < ranks; r++) {
				fill(out, len, key_of(r, r, t->index, i));
				if (r != me)
					memset(out, 0, len);
				MPI_Bcast(out, (int)len, MPI_BYTE, r, another);
				check(out, len, key_of(r, r, t->index, i), "broadcast");
			}
		}
	}
	around_check(in, ROOM, "received by threads");
	around_free(in);
	around_free(out);
	return NULL;
}

void threads(void)
{
	struct thread t[THREADS];
	int i;

	doing("%d threads each", THREADS);
	if (!threaded)
		die("threads want -t");
	MPI_Comm_dup(MPI_COMM_WORLD, &shared);
	MPI_Comm_dup(MPI_COMM_WORLD, &another);
	for (i = 0; i < THREADS; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &own[i]);
		t[i].index = i;
	}
	for (i = 0; i < THREADS; i++) {
		if (pthread_create(&t[i].id, NULL, talk, &t[i]))
			die("no thread");
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i].id, NULL);
	for (i = 0; i < THREADS; i++)
		MPI_Comm_free(&own[i]);
	MPI_Comm_free(&another);
	MPI_Comm_free(&shared);
}
