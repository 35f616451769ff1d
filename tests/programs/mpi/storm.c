/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Everyone sends to anyone, at random, and receives whatever comes, by receives for any source and tag or by probes. Each message says what
 * it is; its bytes follow from that. All know how many there are. By one thread, or by several of each rank at the same time, each with a
 * communicator of its own, beside collective operations.
 *
 * Open MPI 4.1 over libfabric (mtl/ofi) never ends a synchronous send that MPI_Mprobe or MPI_Improbe has found.
 */
#include "world.h"

#define LARGEST 200000
#define FLYING 24

struct head {
	uint32_t from, number, tag, len;
};

#define THREADS 4

static __thread uint64_t salt; /* of a thread */

static int target(int from, int number)
{
	return (int)(chance(77 + salt, (uint64_t)from, (uint64_t)number) % (unsigned)ranks);
}

static size_t length(int from, int number)
{
	uint64_t random = chance(78 + salt, (uint64_t)from, (uint64_t)number);

	return sizeof(struct head) + some_size(random >> 3, random % 8 ? 3000 : LARGEST - sizeof(struct head));
}

static uint32_t tag_of(int from, int number)
{
	return (uint32_t)(chance(79 + salt, (uint64_t)from, (uint64_t)number) % 1000);
}

static uint64_t key_of(int from, int number)
{
	return chance(80 + salt, (uint64_t)from, (uint64_t)number);
}

/* Receives are matched in their order: so messages of one source come in theirs */
static void came(const uint8_t *p, const MPI_Status *status, uint32_t *next)
{
	struct head h;
	int count;

	MPI_Get_count(status, MPI_BYTE, &count);
	EXPECT(count >= (int)sizeof h);
	memcpy(&h, p, sizeof h);
	EXPECT((int)h.from == status->MPI_SOURCE && (int)h.tag == status->MPI_TAG && (int)h.len == count);
	while (target((int)h.from, (int)next[h.from]) != me)
		next[h.from]++;
	if (h.number != next[h.from]++)
		die("message %u of %u comes before %u", h.number, h.from, next[h.from] - 1);
	EXPECT(h.len == length((int)h.from, (int)h.number) && h.tag == tag_of((int)h.from, (int)h.number));
	check(p + sizeof h, h.len - sizeof h, key_of((int)h.from, (int)h.number), "a message of the storm");
	around_check(p, LARGEST, "a message of the storm");
}

static void blow(MPI_Comm comm, int messages)
{
	MPI_Request sending[FLYING], receiving[FLYING];
	uint8_t *out[FLYING], *in[FLYING];
	uint32_t *next = calloc((size_t)ranks, sizeof *next);
	int number = 0, posted = 0, received = 0, total = 0, flag, i, r;
	MPI_Status status;
	MPI_Message message;
	struct head h;

	for (i = 0; i < FLYING; i++) {
		out[i] = around_alloc(LARGEST);
		in[i] = around_alloc(LARGEST);
		sending[i] = receiving[i] = MPI_REQUEST_NULL;
	}
	for (r = 0; r < ranks; r++) {
		for (i = 0; i < messages; i++)
			total += target(r, i) == me;
	}
	while (number < messages || received < total) {
		if (!salt)
			doing("a storm: %d of %d sent, %d of %d received", number, messages, received, total);
		if (number < messages) {
			MPI_Testany(FLYING, sending, &i, &flag, MPI_STATUS_IGNORE);
			if (flag && i == MPI_UNDEFINED)
				i = 0;
			for (r = 0; !flag && r < FLYING; r++) {
				if (sending[r] == MPI_REQUEST_NULL) {
					i = r;
					flag = 1;
				}
			}
			if (flag) {
				h.from = (uint32_t)me;
				h.number = (uint32_t)number;
				h.tag = tag_of(me, number);
				h.len = (uint32_t)length(me, number);
				memcpy(out[i], &h, sizeof h);
				fill(out[i] + sizeof h, h.len - sizeof h, key_of(me, number));
				r = target(me, number++);
				if (h.tag % 5 == 0 && !over("mtl", "ofi"))
					MPI_Issend(out[i], (int)h.len, MPI_BYTE, r, (int)h.tag, comm, &sending[i]);
				else
					MPI_Isend(out[i], (int)h.len, MPI_BYTE, r, (int)h.tag, comm, &sending[i]);
				sent(r);
			}
		}
		if (number / 100 % 2 && posted == received) { /* now and then without receives */
			MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &message, &status);
			if (flag) {
				MPI_Get_count(&status, MPI_BYTE, &r);
				MPI_Mrecv(in[0], r, MPI_BYTE, &message, &status);
				came(in[0], &status, next);
				posted = ++received;
			}
			continue;
		}
		while ((number / 100 % 2 == 0 || posted == received) && posted < total && posted < received + FLYING) {
			MPI_Irecv(in[posted % FLYING], LARGEST, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &receiving[posted % FLYING]);
			posted++;
		}
		for (flag = 1; flag && received < posted;) {
			MPI_Test(&receiving[received % FLYING], &flag, &status);
			if (flag)
				came(in[received++ % FLYING], &status, next);
		}
	}
	MPI_Waitall(FLYING, sending, MPI_STATUSES_IGNORE);
	for (i = 0; i < FLYING; i++) {
		around_free(out[i]);
		around_free(in[i]);
	}
	free(next);
	MPI_Barrier(comm);
	MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &status);
	EXPECT(!flag);
}

void storm(void)
{
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	blow(comm, rounds > 1 ? 1500 * rounds : 400);
	MPI_Comm_free(&comm);
}

struct thread {
	pthread_t id;
	uint64_t salt;
	MPI_Comm comm;
};

static void *talk(void *arg)
{
	const struct thread *t = arg;

	salt = t->salt;
	blow(t->comm, rounds > 1 ? 400 * rounds : 120);
	return NULL;
}

void threads(void)
{
	struct thread t[THREADS];
	MPI_Comm another;
	long sum;

	doing("%d threads each", THREADS);
	if (!threaded)
		die("threads want -t");
	MPI_Comm_dup(MPI_COMM_WORLD, &another);
	for (int i = 0; i < THREADS; i++) {
		t[i].salt = 1000u * (unsigned)(i + 1);
		MPI_Comm_dup(MPI_COMM_WORLD, &t[i].comm);
	}
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&t[i].id, NULL, talk, &t[i]))
			die("no thread");
	for (int i = 0; i < 100; i++) {
		sum = me + i;
		MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_LONG, MPI_SUM, another);
		EXPECT(sum == (long)ranks * (ranks - 1) / 2 + (long)ranks * i);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(t[i].id, NULL);
		MPI_Comm_free(&t[i].comm);
	}
	MPI_Comm_free(&another);
}
