/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From one rank to one: every kind of send to every kind of receive and probe, of all sizes, truncation, cancelling. What is
 * in the air at the same time is storm.c's.
 */
#include "world.h"

enum { TAG_STEP, TAG_BACK };

static MPI_Comm comm;
static uint8_t *out, *in;
static uint64_t step;

static uint64_t key_of(int from, int to)
{
	return chance(step, (uint64_t)from << 32 | (unsigned)to, 99);
}

static void is_from(const MPI_Status *status, int source, int tag, size_t len)
{
	int count;

	MPI_Get_count(status, MPI_BYTE, &count);
	if (status->MPI_SOURCE != source || status->MPI_TAG != tag || count != (int)len)
		die("received %d bytes from %d with tag %d, not %zu from %d with tag %d", count, status->MPI_SOURCE, status->MPI_TAG,
		    len, source, tag);
}

/* ---- every kind of send to every kind of receive ---- */

enum sends { SEND, SSEND, BSEND, RSEND, SENDRECV, ISEND, ISSEND, IBSEND, IRSEND, SEND_INIT, SENDS };
enum receives { IRECV, RECV_INIT, RECV, PROBE, IPROBE, MPROBE, IMPROBE, RECEIVES };

static void send_by(enum sends how, size_t len, int to, int tag, MPI_Request *request)
{
	int n = (int)len;

	switch (how) {
	case SEND: MPI_Send(out, n, MPI_BYTE, to, tag, comm); break;
	case SSEND: MPI_Ssend(out, n, MPI_BYTE, to, tag, comm); break;
	case BSEND: MPI_Bsend(out, n, MPI_BYTE, to, tag, comm); break;
	case RSEND: MPI_Rsend(out, n, MPI_BYTE, to, tag, comm); break;
	case ISSEND: MPI_Issend(out, n, MPI_BYTE, to, tag, comm, request); break;
	case IBSEND: MPI_Ibsend(out, n, MPI_BYTE, to, tag, comm, request); break;
	case IRSEND: MPI_Irsend(out, n, MPI_BYTE, to, tag, comm, request); break;
	case SEND_INIT:
		MPI_Send_init(out, n, MPI_BYTE, to, tag, comm, request);
		MPI_Start(request);
		break;
	default: MPI_Isend(out, n, MPI_BYTE, to, tag, comm, request);
	}
	sent(to);
}

static void receive_by(enum receives how, size_t room, int from, int tag, MPI_Request *request, MPI_Status *status)
{
	MPI_Message message;
	MPI_Status probed;
	int flag = 0, n;

	switch (how) {
	case IRECV:
		MPI_Irecv(in, (int)room, MPI_BYTE, from, tag, comm, request);
		return;
	case RECV_INIT:
		MPI_Recv_init(in, (int)room, MPI_BYTE, from, tag, comm, request);
		MPI_Start(request);
		return;
	case PROBE:
		MPI_Probe(from, tag, comm, &probed);
		flag = 1;
		break;
	case IPROBE:
		while (!flag)
			MPI_Iprobe(from, tag, comm, &flag, &probed);
		break;
	case MPROBE:
		MPI_Mprobe(from, tag, comm, &message, &probed);
		MPI_Get_count(&probed, MPI_BYTE, &n);
		MPI_Mrecv(in, n, MPI_BYTE, &message, status);
		break;
	case IMPROBE:
		while (!flag)
			MPI_Improbe(from, tag, comm, &flag, &message, &probed);
		MPI_Get_count(&probed, MPI_BYTE, &n);
		MPI_Imrecv(in, n, MPI_BYTE, &message, request);
		MPI_Wait(request, status);
		break;
	default:
		MPI_Recv(in, (int)room, MPI_BYTE, from, tag, comm, status);
		return;
	}
	if (how == PROBE || how == IPROBE) {
		MPI_Get_count(&probed, MPI_BYTE, &n);
		MPI_Recv(in, n, MPI_BYTE, probed.MPI_SOURCE, probed.MPI_TAG, comm, status);
	}
	EXPECT(probed.MPI_SOURCE == status->MPI_SOURCE && probed.MPI_TAG == status->MPI_TAG);
}

/*
 * Each rank sends to the one `shift` further on, maybe itself. Late: the messages are there before they are received, and wait for it.
 * Otherwise receives are posted first.
 */
static void one_of_each(void)
{
	uint64_t random = chance(++step, 0, 0);
	enum sends how = (enum sends)(random % SENDS);
	enum receives by = (enum receives)(random / SENDS % RECEIVES);
	bool late = random >> 20 & 1, any_source = random >> 21 & 1, any_tag = random >> 22 & 1;
	int shift = (int)((random >> 24) % (unsigned)ranks), tag = (int)(step % 30000);
	int to = (me + shift) % ranks, from = (me + ranks - shift) % ranks;
	size_t len = some_size(chance(step, 1, 0), step % 16 ? 70000 : MAX), room = random >> 23 & 1 ? len : len + 1000 < MAX ? len + 1000 : MAX;
	MPI_Request receiving = MPI_REQUEST_NULL, sending = MPI_REQUEST_NULL;
	int source = any_source ? MPI_ANY_SOURCE : from, as = any_tag ? MPI_ANY_TAG : tag, n;
	MPI_Status status;
	void *detached;

	if (by > RECV_INIT && how < ISEND) /* both sides would wait */
		how = (enum sends)(ISEND + how % (SENDS - ISEND));
	if (how == RSEND || how == IRSEND || how < ISEND)
		late = false;
	if ((how == RSEND || how == IRSEND) && by > RECV_INIT)
		by = IRECV;
	if ((how == SSEND || how == ISSEND) && by >= MPROBE && over("mtl", "ofi")) /* is not acknowledged: see storm.c */
		by = PROBE;
	doing("step %llu: send kind %d to receive kind %d, %zu bytes to %d ranks further%s%s%s", (unsigned long long)step, how, by, len,
	      shift, late ? ", late" : "", any_source ? ", any source" : "", any_tag ? ", any tag" : "");
	fill(out, len, key_of(me, to));
	memset(in, 0xa5, room);
	if (how == SENDRECV) {
		MPI_Sendrecv(out, (int)len, MPI_BYTE, to, tag, in, (int)room, MPI_BYTE, from, tag, comm, &status);
		sent(to);
	} else {
		if (!late && by <= RECV_INIT)
			receive_by(by, room, source, as, &receiving, &status);
		MPI_Barrier(comm);
		send_by(how, len, to, tag, &sending);
		if (late)
			MPI_Barrier(comm);
		if (late || by > RECV_INIT)
			receive_by(by, room, source, as, &receiving, &status);
		if (by <= RECV_INIT)
			MPI_Wait(&receiving, &status);
		MPI_Wait(&sending, MPI_STATUS_IGNORE);
		if (how == SEND_INIT)
			MPI_Request_free(&sending);
		if (by == RECV_INIT)
			MPI_Request_free(&receiving);
		if (how == BSEND || how == IBSEND) { /* waits for the copy to leave */
			MPI_Buffer_detach(&detached, &n);
			MPI_Buffer_attach(detached, n);
		}
		if (any_source)
			MPI_Barrier(comm);
	}
	is_from(&status, from, tag, len);
	check(in, len, key_of(from, me), "received");
	around_check(in, MAX, "received");
	for (; len < room; len++)
		EXPECT(in[len] == 0xa5);
}

/* ---- messages longer than their receive ---- */

static void truncation(size_t len, size_t room, bool late)
{
	int to = (me + 1) % ranks, from = (me + ranks - 1) % ranks, class = MPI_SUCCESS, err;
	MPI_Request receiving, sending;
	uint8_t *p = around_alloc(room);
	MPI_Status status;

	doing("%zu bytes for room of %zu%s", len, room, late ? ", late" : "");
	step++;
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* MPICH forgets whose request it was */
	fill(out, len, key_of(me, to));
	if (!late)
		MPI_Irecv(p, (int)room, MPI_BYTE, from, TAG_STEP, comm, &receiving);
	MPI_Barrier(comm);
	MPI_Isend(out, (int)len, MPI_BYTE, to, TAG_STEP, comm, &sending);
	sent(to);
	if (late) {
		MPI_Barrier(comm);
		MPI_Irecv(p, (int)room, MPI_BYTE, from, TAG_STEP, comm, &receiving);
	}
	err = MPI_Wait(&receiving, &status);
	MPI_Error_class(err, &class);
	EXPECT(class == MPI_ERR_TRUNCATE);
	around_check(p, room, "truncated");
	around_free(p);
	MPI_Wait(&sending, MPI_STATUS_IGNORE);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	one_of_each(); /* the way is free */
}

/* ---- receives that are taken back ---- */

static void cancel(void)
{
	int to = (me + 1) % ranks, from = (me + ranks - 1) % ranks, flag, i;
	MPI_Request request[8];
	MPI_Status status;

	step++;
	for (i = 0; i < 8; i++)
		MPI_Irecv(in + 1000 * i, 1000, MPI_BYTE, i % 2 ? MPI_ANY_SOURCE : from, i < 4 ? TAG_BACK : MPI_ANY_TAG, comm, &request[i]);
	for (i = 0; i < 8; i++) {
		doing("cancelling %d", i);
		if (i == 5) /* is still there */
			continue;
		MPI_Cancel(&request[i]);
		MPI_Wait(&request[i], &status);
		MPI_Test_cancelled(&status, &flag);
		EXPECT(flag);
	}
	doing("receiving after others were cancelled");
	MPI_Barrier(comm);
	fill(out, 1000, key_of(me, to));
	MPI_Send(out, 1000, MPI_BYTE, to, TAG_STEP, comm);
	sent(to);
	MPI_Wait(&request[5], &status);
	is_from(&status, from, TAG_STEP, 1000);
	check(in + 5000, 1000, key_of(from, me), "received by the one not cancelled");
	MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &status);
	EXPECT(!flag);
	MPI_Barrier(comm);
}

void p2p(void)
{
	uint8_t *room = malloc(MAX + 2 * MPI_BSEND_OVERHEAD + 1024);
	static const size_t lens[][2] = { { 9, 8 }, { 100, 0 }, { 5000, 4999 }, { 100000, 64 }, { MAX, MAX / 2 } };
	void *detached;
	int i, n;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	out = around_alloc(MAX);
	in = around_alloc(MAX);
	MPI_Buffer_attach(room, (int)(MAX + 2 * MPI_BSEND_OVERHEAD + 1024));
	for (i = 0; i < (rounds > 1 ? 600 * rounds : 150); i++)
		one_of_each();
	for (i = 0; i < rounds; i++)
		cancel();
	for (i = 0; i < 2; i++)
		for (n = 0; n < 5; n++)
			truncation(lens[n][0], lens[n][1], i);
	MPI_Buffer_detach(&detached, &n);
	around_free(in);
	around_free(out);
	free(room);
	MPI_Comm_free(&comm);
}
