// SPDX-License-Identifier: BSD-3-Clause
/*
 * Two ranks of an MPI program: calls that callgrind collects for bench/mpi, each kind in a function of its own. FILE
 * is of a page.
 */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CALLS 64 // bench/mpi divides by it
#define MAX_LEN 65536

static char bufs[CALLS][MAX_LEN];
static MPI_Request reqs[CALLS];
static volatile int *met; // one word for each rank, in a file
static int rank;

// Both ranks have come here. MPI must not make progress meanwhile, so it is not asked; then the device has time to
// deliver
static void meet(void)
{
	met[rank]++;
	__sync_synchronize();
	while (met[!rank] < met[rank])
		usleep(1000);
	usleep(300000);
}

__attribute__((noinline)) void send_calls(void)
{
	for (int i = 0; i < CALLS; i++)
		MPI_Send(bufs[i], 8, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
}

static void recv_calls(void)
{
	for (int i = 0; i < CALLS; i++)
		MPI_Recv(bufs[i], 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

__attribute__((noinline)) void kept_calls(void)
{
	recv_calls();
}

__attribute__((noinline)) void there_calls(void)
{
	recv_calls();
}

__attribute__((noinline)) void irecv_calls(void)
{
	for (int i = 0; i < CALLS; i++)
		MPI_Irecv(bufs[i], 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &reqs[i]);
}

__attribute__((noinline)) void wait_calls(void)
{
	for (int i = 0; i < CALLS; i++)
		MPI_Wait(&reqs[i], MPI_STATUS_IGNORE);
}

static void fill(int round)
{
	for (int i = 0; i < CALLS; i++)
		memset(bufs[i], rank ? 0 : round + i, 8);
}

static void verify(int round)
{
	for (int i = 0; i < CALLS; i++)
		for (int j = 0; j < 8; j++)
			if (bufs[i][j] != (char)(round + i)) {
				fprintf(stderr, "message %d of round %d is not what was sent\n", i, round);
				MPI_Abort(MPI_COMM_WORLD, 1);
			}
}

// A message, and its answer
static void ping(size_t len)
{
	if (!rank)
		MPI_Send(bufs[0], (int)len, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
	MPI_Recv(bufs[0], (int)len, MPI_BYTE, !rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (rank)
		MPI_Send(bufs[0], (int)len, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
}

// CALLS messages, and an answer
static void window(size_t len)
{
	for (int i = 0; i < CALLS; i++)
		if (rank)
			MPI_Irecv(bufs[i], (int)len, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &reqs[i]);
		else
			MPI_Isend(bufs[i], (int)len, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &reqs[i]);
	MPI_Waitall(CALLS, reqs, MPI_STATUSES_IGNORE);
	if (rank)
		MPI_Send(&rank, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
	else
		MPI_Recv(&(int){0}, 1, MPI_INT, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void count(void)
{
	for (int i = 0; i < 200; i++)
		ping(8);
	for (int i = 0; i < 4; i++)
		window(8);
	for (int round = 1; round <= 4; round++) { // not counted, kept by MPI, only there, awaited
		fill(round);
		if (rank && round == 4)
			irecv_calls();
		meet();
		if (!rank) {
			if (round == 2)
				send_calls();
			else
				for (int i = 0; i < CALLS; i++)
					MPI_Send(bufs[i], 8, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
			if (round <= 2)
				MPI_Send(bufs[0], 8, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
		}
		meet();
		if (!rank)
			continue;
		if (round <= 2)
			MPI_Probe(0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (round == 1)
			recv_calls();
		else if (round == 2)
			kept_calls();
		else if (round == 3)
			there_calls();
		else
			wait_calls();
		verify(round);
		if (round <= 2)
			MPI_Recv(bufs[0], 8, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
}

int main(int argc, char **argv)
{
	int fd = argc > 1 ? open(argv[1], O_RDWR) : -1;

	if (fd < 0)
		return 2;
	met = (volatile int *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (met == MAP_FAILED)
		return 2;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	count();
	MPI_Finalize();
	return 0;
}
