/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI program that verifies every byte that it receives and every result. Started with the names of its parts, or for all of
 * them:
 *
 *   mpi [-r ROUNDS] [-s SEED] [-t] [PART]...      -t: with MPI_THREAD_MULTIPLE, which the part "threads" needs
 *
 * Each rank says at the end how many messages it sent to others; rank 0 what was verified.
 */
#include "world.h"
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

#define LIMIT 480               /* seconds */

int me, ranks, rounds = 1;
uint64_t seed = 1;
bool threaded;

static char what[200] = "starting";
static unsigned long long bytes, messages;

void doing(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
}

void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "rank %d, seed %llu, %s: ", me, (unsigned long long)seed, what);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	MPI_Abort(MPI_COMM_WORLD, 1);
	abort();
}

static void out_of_time(int sig)
{
	char text[300];
	ssize_t r;

	(void)sig;
	r = write(2, text, (size_t)snprintf(text, sizeof text, "rank %d is out of time: %s\n", me, what));
	_exit(r > 0 ? 1 : 2);
}

void verified(size_t n)
{
	__atomic_fetch_add(&bytes, n, __ATOMIC_RELAXED);
}

void sent(int to)
{
	__atomic_fetch_add(&messages, to != me, __ATOMIC_RELAXED);
}

uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

uint64_t chance(uint64_t a, uint64_t b, uint64_t c)
{
	return mix(mix(mix(seed ^ mix(a)) ^ b) ^ c);
}

size_t some_size(uint64_t random, size_t max)
{
	size_t top = 0, n;

	while ((size_t)1 << top < max)
		top++;
	n = (size_t)1 << random % (top + 1);
	random >>= 8;
	n = random % 2 ? n + random / 2 % 5 - 2 : random / 2 % (2 * n);
	return n > (size_t)1 << 40 ? 0 : n < max ? n : max;
}

uint8_t *around_alloc(size_t len)
{
	uint8_t *p = malloc(len + 2 * AROUND);

	if (!p)
		die("no memory for %zu bytes", len);
	memset(p, 0xa5, AROUND);
	memset(p + AROUND + len, 0xa5, AROUND);
	return p + AROUND;
}

void around_check(const uint8_t *p, size_t len, const char *name)
{
	for (size_t i = 0; i < AROUND; i++) {
		if (p[i - AROUND] != 0xa5 || p[len + i] != 0xa5)
			die("%s: memory next to the buffer of %zu bytes was written to", name, len);
	}
}

void around_free(uint8_t *p)
{
	free(p - AROUND);
}

void fill(uint8_t *p, size_t len, uint64_t key)
{
	uint64_t v;
	size_t i, n;

	for (i = 0; i < len; i += n) {
		v = mix(key + i);
		n = len - i < 8 ? len - i : 8;
		memcpy(p + i, &v, n);
	}
}

void check(const uint8_t *p, size_t len, uint64_t key, const char *name)
{
	uint64_t v;
	size_t i, n;

	for (i = 0; i < len; i += n) {
		v = mix(key + i);
		n = len - i < 8 ? len - i : 8;
		if (memcmp(p + i, &v, n))
			die("%s: wrong data at byte %zu to %zu of %zu", name, i, i + n - 1, len);
	}
	verified(len);
}

bool over(const char *framework, const char *component)
{
	char name[40];
	const char *is;

	snprintf(name, sizeof name, "OMPI_MCA_%s", framework);
	is = getenv(name);
	return is && !strcmp(is, component);
}

static const struct part {
	const char *name;
	void (*run)(void);
} parts[] = {
	{ "p2p", p2p },
	{ "rma", rma },
	{ "threads", threads },
	{ "storm", storm },
};

int main(int argc, char **argv)
{
	unsigned long long all = 0, mine;
	const struct part *p;
	int opt, level, i;
	bool named;

	signal(SIGALRM, out_of_time);
	alarm(LIMIT);
	while ((opt = getopt(argc, argv, "r:s:t")) != -1) {
		switch (opt) {
		case 'r':
			rounds = atoi(optarg);
			break;
		case 's':
			seed = strtoull(optarg, NULL, 10);
			break;
		case 't':
			threaded = true;
			break;
		default: return 2;
		}
	}
	MPI_Init_thread(&argc, &argv, threaded ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (threaded && level != MPI_THREAD_MULTIPLE)
		die("no MPI_THREAD_MULTIPLE");
	for (i = optind; i < argc; i++) {
		for (p = parts; p < parts + sizeof parts / sizeof *parts && strcmp(p->name, argv[i]); p++)
			;
		if (p == parts + sizeof parts / sizeof *parts)
			die("no part %s", argv[i]);
	}
	for (p = parts; p < parts + sizeof parts / sizeof *parts; p++) {
		named = optind == argc && (threaded || p->run != threads);
		for (i = optind; i < argc; i++)
			named |= !strcmp(p->name, argv[i]);
		if (!named)
			continue;
		p->run();
		doing("after %s", p->name);
		mine = bytes;
		bytes = 0;
		MPI_Reduce(&mine, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
		if (!me)
			printf("%s: verified %llu bytes\n", p->name, all);
	}
	doing("ending");
	printf("rank %d of %d sent %llu messages\n", me, ranks, messages);
	fflush(stdout);
	MPI_Finalize();
	return 0;
}
