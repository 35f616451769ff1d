/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * task_ucx.c: a command and its answer as UCX active messages, between two processes on one software device each, of one fabric.
 *
 *   PROGRAM worker SOCKET N             answers each message with 8 bytes of it; SOCKET is a path that is not there yet
 *   PROGRAM host SOCKET N               N operations of each case, with the clock
 *   PROGRAM count SOCKET N              without it, for callgrind
 *
 * Cases are sizes of 8, 64 and 200 bytes, and batches of 1 and 32: so many are sent before the first answer is waited for. Without the
 * clock the host sleeps before it looks for answers, so that few looks find nothing. What it does is in three functions:
 *
 *   send_SIZE_BATCH   ucp_am_send_nbx, once a message
 *   look_SIZE_BATCH   ucp_worker_progress, also when nothing has come
 *   idle              ucp_worker_progress when nothing is outstanding: what a look costs that finds nothing
 *
 * It prints "looks CASE LOOKS EMPTY", how many there were and how many of them found nothing; with the clock "CASE ucx NS": sends and looks
 * that have found something, less what the clock takes, the least of all stretches.
 */
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <ucp/api/ucp.h>
#include <unistd.h>
#include "rounds.h"

/* A function of its own for a profiler: neither inlined nor changed, nor one with another of the same code */
#ifdef __clang__
#define COUNTED static __attribute__((noinline))
#else
#define COUNTED static __attribute__((noipa))
#endif
#define STRETCH 64u            /* operations of one timing */

static ucp_worker_h worker;
static ucp_ep_h ep;
static int sock;
static uint64_t came;          /* messages, or answers */
static int host, clocked = 1;
static uint8_t payload[256];
static const ucp_request_param_t none;

/* ---- meeting, for addresses ---- */

static void tell(const void *p, size_t len)
{
	NEED(send(sock, p, len, MSG_NOSIGNAL) == (ssize_t)len, "send");
}

static void hear(void *p, size_t len)
{
	NEED(recv(sock, p, len, MSG_WAITALL) == (ssize_t)len, "the other side");
}

static void meet_at(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int s, i;

	NEED(strlen(path) < sizeof(a.sun_path), "a short path");
	strcpy(a.sun_path, path);
	if (host) {
		for (i = 0; i < 400; i++) {
			sock = socket(AF_UNIX, SOCK_STREAM, 0);
			if (!connect(sock, (struct sockaddr *)&a, sizeof(a)))
				break;
			close(sock);
			sock = -1;
			usleep(50000);
		}
		NEED(sock >= 0, "connect");
	} else {
		s = socket(AF_UNIX, SOCK_STREAM, 0);
		NEED(!bind(s, (struct sockaddr *)&a, sizeof(a)) && !listen(s, 1), "listen");
		sock = accept(s, NULL, NULL);
		NEED(sock >= 0, "accept");
	}
}

/* ---- messages ---- */

static void finish_send(void *req)
{
	if (UCS_PTR_IS_ERR(req))
		die("ucp_am_send_nbx failed");
	if (req)
		ucp_request_free(req); /* it completes by itself */
}

static ucs_status_t arrived(void *arg, const void *header, size_t header_len, void *data, size_t len, const ucp_am_recv_param_t *param)
{
	uint64_t answer;

	came++;
	if (!host) {
		memcpy(&answer, data, 8);
		finish_send(ucp_am_send_nbx(ep, 1, NULL, 0, &answer, 8, &none));
	}
	return UCS_OK;
}

static void empty(unsigned n)
{
	if (!n && host && !clocked)
		usleep(20);
	else if (!n)
		sched_yield();
}

/* What the clock takes by itself, of the time between two looks at it */
static double tick(void)
{
	double best = 1e9, t;

	for (int i = 0; i < 1000; i++) {
		t = now();
		t = now() - t;
		best = t < best ? t : best;
	}
	return best;
}

COUNTED unsigned idle(void)
{
	return ucp_worker_progress(worker);
}

#define CASE(size, batch)														\
	COUNTED void send_##size##_##batch(void)											\
	{																\
		finish_send(ucp_am_send_nbx(ep, 1, NULL, 0, payload, size, &none));							\
	}																\
	COUNTED unsigned look_##size##_##batch(void)											\
	{																\
		return ucp_worker_progress(worker);											\
	}																\
	static void case_##size##_##batch(uint64_t ops)											\
	{																\
		uint64_t n, end, looks = 0, empties = 0, i;										\
		double best = 1e9, sum = 0, t, one, own = tick();									\
		unsigned found;														\
																	\
		for (n = 0; n < ops;) {													\
			end = came + batch;												\
			t = clocked ? now() : 0;											\
			for (i = 0; i < batch; i++)											\
				send_##size##_##batch();										\
			sum += clocked ? now() - t - own : 0;										\
			if (!clocked)													\
				usleep(batch * 20);											\
			while (came < end) {												\
				t = clocked ? now() : 0;										\
				found = look_##size##_##batch();									\
				one = clocked ? now() - t - own : 0;									\
				looks++;												\
				if (found)												\
					sum += one;											\
				else													\
					empties++;											\
				empty(found);												\
			}														\
			n += batch;													\
			if (n % STRETCH)												\
				continue;												\
			best = sum < best ? sum : best;											\
			sum = 0;													\
		}															\
		printf("looks %d-%d %llu %llu\n", size, batch, (unsigned long long)looks, (unsigned long long)empties);			\
		if (clocked)														\
			printf("%d-%d ucx %.2f\n", size, batch, best * 1e9 / STRETCH);							\
	}

CASE(8, 1)
CASE(64, 1)
CASE(200, 1)
CASE(8, 32)
CASE(64, 32)
CASE(200, 32)

int main(int argc, char **argv)
{
	static void (*const cases[])(uint64_t) = {case_8_1, case_64_1, case_200_1, case_8_32, case_64_32, case_200_32};
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
	ucp_worker_params_t single = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
	ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
					    .id = 1, .cb = arrived};
	ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
	ucp_address_t *address;
	ucp_context_h context;
	ucp_config_t *config;
	uint64_t len, theirs, n, i;
	uint8_t blob[4096];
	size_t size;
	int found;

	if (argc != 4 || (strcmp(argv[1], "worker") && strcmp(argv[1], "host") && strcmp(argv[1], "count")))
		die("usage: task_ucx worker|host|count SOCKET N");
	host = argv[1][0] != 'w';
	clocked = argv[1][0] != 'c';
	n = (strtoull(argv[3], NULL, 10) + STRETCH - 1) / STRETCH * STRETCH;
	alarm(100);
	meet_at(argv[2]);
	NEED(!ucp_config_read(NULL, NULL, &config) && !ucp_init(&params, config, &context), "ucp_init");
	ucp_config_release(config);
	NEED(!ucp_worker_create(context, &single, &worker), "ucp_worker_create");
	NEED(!ucp_worker_set_am_recv_handler(worker, &handler), "ucp_worker_set_am_recv_handler");
	NEED(!ucp_worker_get_address(worker, &address, &size), "ucp_worker_get_address");
	len = size;
	tell(&len, sizeof(len));
	tell(address, size);
	hear(&theirs, sizeof(theirs));
	NEED(theirs <= sizeof(blob), "an address");
	hear(blob, theirs);
	to.address = (ucp_address_t *)blob;
	NEED(!ucp_ep_create(worker, &to, &ep), "ucp_ep_create");
	if (!host) {
		/* What warms up, and all cases */
		while (came < STRETCH + 6 * n)
			empty(ucp_worker_progress(worker));
		/* The last answers leave */
		while (recv(sock, &len, 1, MSG_DONTWAIT) < 0)
			empty(ucp_worker_progress(worker));
		_exit(0);
	}
	for (i = 0; i < STRETCH; i++) {
		finish_send(ucp_am_send_nbx(ep, 1, NULL, 0, payload, 8, &none));
		while (came <= i)
			empty(ucp_worker_progress(worker));
	}
	/* Connected: what is left of the way there is over */
	for (i = 0; i < 1000; i++)
		empty(ucp_worker_progress(worker));
	ucp_ep_print_info(ep, stderr);
	for (i = 0; i < 6; i++)
		cases[i](n);
	for (i = 0; i < 100; i++)
		empty(ucp_worker_progress(worker));
	for (i = 0, found = 0; i < 1000; i++)
		found += idle() != 0;
	printf("idle 1000 %d\n", found);
	fflush(stdout);
	tell(&len, 1);
	_exit(0);
}
