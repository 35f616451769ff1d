/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * offload.c: a host that has a worker do its work: echoes, puts into memory, sends with tags, each
 * as a command task; and computes meanwhile. The worker is worker.c, started here or elsewhere. See
 * offload --help.
 *
 *   prepare   memory that the worker may write to, and endpoints
 *   row       many commands, one at a time, with a doorbell for each, with one for all
 *   overlap   puts whose payload the worker fetches while this process computes
 *
 * plugins/client.h has the way to the worker, and the single command.
 * Every byte is looked at, beside the clock.
 */
#define _GNU_SOURCE
#include <inlay/inlay.h>
#include "plugins/client.h"
#include "plugins/echo.h"

#define MAX_WINDOW 16u /* operations in flight; a send with its receive is two commands, and a worker takes 32 */
#define MAX_SIZE 4000u
#define LARGE (32u << 10)               /* of a put that goes by a key */
#define LARGE_PUTS 4u
#define SLOT 4096u

static struct {
	const char *file, *device;
	uint32_t iters, size, window;
} opt = {.iters = 2000, .size = 32, .window = MAX_WINDOW};

static struct inlay_task *tasks[2 * MAX_WINDOW];
static struct inlay_mmap map;
static uint8_t *mem;                    /* where puts go: MAX_WINDOW slots, LARGE_PUTS larger ones, a counter */
static struct inlay_task_link link_;    /* this side of the first endpoint */
static uint64_t far, ends[2],
	mapped; /* handles: of the endpoint to this side, of two that are connected to each other, of mem */
static uint64_t *times, echo_id, finished;

#define LARGE_AT ((size_t)MAX_WINDOW * SLOT)
#define COUNTER_AT (LARGE_AT + (size_t)LARGE_PUTS * LARGE)
#define MEM_BYTES (COUNTER_AT + SLOT)

static void check(const uint8_t *at, uint32_t len, uint64_t seed, const char *what)
{
	static uint8_t should[LARGE];

	fill(should, len, seed);
	if (memcmp(at, should, len))
		die("%s %llu: other bytes than were sent", what, (unsigned long long)seed);
}

/* ---- Memory that the worker may write to, and three endpoints ---- */

static void prepare(void)
{
	struct inlay_task_caps caps = {.pd = client.pd,
				       .sends = 8,
				       .max_gather = 1,
				       .access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
						 IBV_ACCESS_REMOTE_ATOMIC};
	uint8_t theirs[2][INLAY_TASK_ADDRESS], blob[512];
	size_t len = sizeof(blob);

	for (uint32_t i = 0; i < 2 * MAX_WINDOW; i++)
		need(inlay_task_alloc(&client.host, 0, NULL, &tasks[i]), "a task");
	mem = memory(MEM_BYTES);
	client_export(&map, mem, MEM_BYTES, blob, &len);
	mapped = client_map(blob, len);

	/*
	 * One endpoint's other side is a queue pair here, which does nothing but let the worker in
	 */
	caps.ibcq = ibv_create_cq(client.pd->context, 256, NULL, NULL, 0);
	if (!caps.ibcq)
		die("no completion queue: %s", strerror(errno));
	link_.self.role = INLAY_TASK_HOST;
	link_.self.message = SLOT;
	link_.self.receives = 16;
	need(inlay_task_link_create(&link_, &caps, &client.host.params.path, NULL), "a queue pair");
	far = client_endpoint(theirs[0]);
	need(inlay_task_link_connect(&link_, theirs[0], INLAY_TASK_ADDRESS, INLAY_TASK_HOST, NULL),
	     "connecting to the endpoint");
	client_connect_endpoint(far, &link_.self);

	/* Two are connected to each other: what goes into the one comes out of the other */
	for (int i = 0; i < 2; i++)
		ends[i] = client_endpoint(theirs[i]);
	for (int i = 0; i < 2; i++)
		client_connect_endpoint(ends[i], theirs[!i]);
}

/* ---- Many commands ---- */

enum kind { ECHO, PUT, TAG_SEND };

/* Operation i of a kind: its commands' tasks, filled. Returns how many. */
static uint32_t build(enum kind kind, uint64_t i, struct inlay_task **t)
{
	struct inlay_buf *buf = inlay_task_payload(t[0]);

	switch (kind) {
	case ECHO:
		inlay_task_set_plugin(t[0], echo_id);
		need(inlay_buf_set_data(buf, inlay_buf_head(buf), opt.size), "a payload of that length");
		fill(inlay_buf_head(buf), opt.size, i);
		return 1;
	case PUT:
		fill(client_request(t[0], RDMA_PUT, far, mapped, (uintptr_t)mem + i % opt.window * SLOT, opt.size),
		     opt.size, i);
		return 1;
	default:
		client_request(t[0], RDMA_TAG_RECV, 0, i, INLAY_MATCH_EXACT, opt.size);
		fill(client_request(t[1], RDMA_TAG_SEND, ends[i & 1], i, 0, opt.size), opt.size, i);
		return 2;
	}
}

/* What it has done. */
static void verify(enum kind kind, uint64_t i, struct inlay_task **t, uint32_t commands)
{
	struct inlay_buf *response = inlay_task_response(t[0]);
	uint32_t len = (uint32_t)inlay_buf_data_len(response);
	uint8_t *at = inlay_buf_data(response);

	for (uint32_t k = 0; k < commands; k++)
		need(inlay_task_status(t[k]), "a command");
	switch (kind) {
	case ECHO:
		if (len != opt.size)
			die("echo %llu: %u bytes", (unsigned long long)i, len);
		check(at, len, i, "echo");
		break;
	case PUT:
		check(mem + i % opt.window * SLOT, opt.size, i, "put");
		break;
	default:
		if (len != 8 + opt.size || memcmp(at, &i, 8))
			die("tag %llu: another message", (unsigned long long)i);
		check(at + 8, opt.size, i, "tag send");
	}
}

/*
 * opt.iters operations, `batch` at a time, which are waited for before the next ones. Returns
 * operations per second, by the median of batches; their times are in `times`, sorted.
 */
static double run(enum kind kind, uint32_t batch, int one_doorbell)
{
	uint64_t from, next = 0;
	uint32_t commands = 1, i, n;

	for (n = 0; next < opt.iters; n++) {
		for (i = 0; i < batch; i++)
			commands = build(kind, next + i, tasks + 2 * (size_t)i);
		from = now_ns();
		for (i = 0; i < batch * commands; i++) {
			struct inlay_task *t = tasks[2 * (i / commands) + i % commands];

			need(inlay_task_submit(t, one_doorbell ? 0 : INLAY_RING), "a command");
		}
		inlay_sq_ring(&client.host.link.sq);
		for (i = 0; i < batch; i++)
			for (uint32_t k = 0; k < commands; k++)
				client_wait(tasks[2 * i + k]);
		times[n] = now_ns() - from;
		for (i = 0; i < batch; i++)
			verify(kind, next + i, tasks + 2 * (size_t)i, commands);
		next += batch;
		finished += (uint64_t)batch * commands;
	}
	qsort(times, n, sizeof(*times), order_of_times);
	return batch * 1e9 / (double)times[n / 2];
}

static void row(const char *name, enum kind kind)
{
	double single = run(kind, 1, 1), each, one;

	printf("%-9s %9.0f", name, single);
	for (int k = 0; k < 3; k++)
		printf(" %8.1f", (double)percentile(times, opt.iters, (const double[]){50, 99, 99.9}[k]) / 1000);
	each = run(kind, opt.window, 0);
	one = run(kind, opt.window, 1);
	printf(" %12.0f %12.0f %8.2fx\n", each, one, one / each);
}

/* ---- Computing meanwhile ---- */

static uint64_t sink;

/* Some arithmetic: a slice of it. */
static void compute(void)
{
	for (uint32_t i = 0; i < 2000; i++)
		sink = (sink ^ i) * 0x2545f4914f6cdd1dull + (sink >> 29);
}

static void put_large(struct inlay_buf **bufs, uint32_t n)
{
	for (uint32_t i = 0; i < LARGE_PUTS; i++) {
		struct rdma_request r = {RDMA_PUT, LARGE, far, mapped, (uintptr_t)mem + LARGE_AT + (size_t)i * LARGE,
					 0,	   0,	  NULL};
		uint8_t *at = inlay_buf_head(bufs[i]);

		rdma_request_write(at, &r);
		fill(at + RDMA_HEAD, LARGE, n + i);
		need(inlay_task_submit(tasks[i], 0), "a large put");
	}
	inlay_sq_ring(&client.host.link.sq);
}

static int pending(void)
{
	for (uint32_t i = 0; i < LARGE_PUTS; i++)
		if (inlay_task_status(tasks[i]) == -EINPROGRESS)
			return 1;
	return 0;
}

static void verify_large(uint32_t n)
{
	for (uint32_t i = 0; i < LARGE_PUTS; i++) {
		need(inlay_task_status(tasks[i]), "a large put");
		check(mem + LARGE_AT + (size_t)i * LARGE, LARGE, n + i, "large put");
	}
	finished += LARGE_PUTS;
}

/*
 * Puts of payloads that the worker fetches by a key: without computing; computing for about as
 * long; both at once, a slice of computing between two looks at the tasks.
 */
static void overlap(void)
{
	size_t piece = RDMA_HEAD + LARGE, size = inlay_inventory_size(LARGE_PUTS);
	uint8_t *from = memory(LARGE_PUTS * piece);
	struct inlay_buf *bufs[LARGE_PUTS] = {NULL};
	struct inlay_inventory *inv;
	struct inlay_mmap m;
	uint64_t start, alone, work, both;
	uint32_t slices = 0, i, done = 0;

	need(inlay_mmap_create(&m, memory(inlay_mmap_size(1, 1)), inlay_mmap_size(1, 1), 1, 1), "a map");
	need(inlay_mmap_add_dev(&m, client.pd), "a map");
	need(inlay_mmap_add(&m, inlay_source_host(from, LARGE_PUTS * piece)), "a map");
	need(inlay_mmap_set_permissions(&m, INLAY_LOCAL_READ_WRITE | INLAY_MW_BIND), "a map");
	need(inlay_mmap_start(&m), "starting the map");
	need(inlay_inventory_create(memory(size), size, LARGE_PUTS, &inv), "buffers");
	need(inlay_inventory_start(inv), "buffers");
	for (i = 0; i < LARGE_PUTS; i++) {
		need(inlay_inventory_get_by_data(inv, &m, from + i * piece, piece, &bufs[i]), "a buffer");
		inlay_task_set_plugin(tasks[i], client.rdma);
		need(inlay_task_set_payload(tasks[i], bufs[i]), "a payload");
	}
	start = now_ns();
	put_large(bufs, 0);
	for (i = 0; i < LARGE_PUTS; i++)
		client_wait(tasks[i]);
	alone = now_ns() - start;
	verify_large(0);

	start = now_ns();
	for (slices = 0; now_ns() - start < alone; slices++)
		compute();
	work = now_ns() - start;

	start = now_ns();
	put_large(bufs, 100);
	while (done < slices || pending()) {
		if (done < slices)
			compute();
		done += done < slices;
		client_progress();
		if (now_ns() - start > client.timeout * 1000000000ull)
			die("no answer within %u s", client.timeout);
	}
	both = now_ns() - start;
	verify_large(100);
	printf("overlap: %u puts of %u bytes take %.0f us, computing %.0f us, both at once %.0f us\n", LARGE_PUTS,
	       LARGE, (double)alone / 1e3, (double)work / 1e3, (double)both / 1e3);
	for (i = 0; i < LARGE_PUTS; i++) {
		need(inlay_task_set_payload(tasks[i], NULL), "a payload");
		inlay_buf_dec_refcount(bufs[i], NULL);
	}
	need(inlay_inventory_destroy(inv), "the inventory's end");
	need(inlay_mmap_destroy(&m), "the map's end");
	free(from);
}

/* ---- What else the plugin can, and what it refuses ---- */

static void expect(int found, int wanted, const char *what)
{
	if (found != wanted)
		die("%s: %s, not %s", what, strerror(-found), strerror(-wanted));
	finished++;
}

static void odds(void)
{
	uint64_t counter = (uintptr_t)mem + COUNTER_AT, was, is;
	struct rdma_request r = {.op = RDMA_ADD, .ep = far, .map = mapped, .addr = counter, .a = 5};
	struct rdma_request flush = {.op = RDMA_FLUSH, .ep = far};
	uint8_t back[100];

	expect(client_call(&r, NULL, &was, 8), 0, "an addition");
	r.op = RDMA_SWAP;
	r.b = 7;
	expect(client_call(&r, NULL, &was, 8), 0, "a swap");
	is = *(volatile uint64_t *)(mem + COUNTER_AT);
	if (was != 5 || is != 7)
		die("the counter is %llu, and was %llu", (unsigned long long)is, (unsigned long long)was);
	fill(mem, sizeof(back), 1234);
	r = (struct rdma_request){
		.op = RDMA_GET, .ep = far, .map = mapped, .addr = (uintptr_t)mem, .bytes = sizeof(back)};
	expect(client_call(&r, NULL, back, sizeof(back)), 0, "a get");
	check(back, sizeof(back), 1234, "get");
	expect(client_call(&flush, NULL, NULL, 0), 0, "a flush");
	r.op = RDMA_PUT;
	r.map = mapped + 1;
	expect(client_call(&r, back, NULL, 0), -EBADF, "a put to an unknown map");
	expect(client_call(&flush, NULL, NULL, 0), -EBADF, "the flush behind it");
	expect(client_call(&flush, NULL, NULL, 0), 0, "the next flush");
	r.map = mapped;
	r.addr = (uintptr_t)mem + MEM_BYTES - 50;
	expect(client_call(&r, back, NULL, 0), -ENOENT, "a put beyond the map");
	expect(client_call(&flush, NULL, NULL, 0), -ENOENT, "the flush behind it");
	r.ep = far + 1000;
	expect(client_call(&r, back, NULL, 0), -EBADF, "a put by an unknown endpoint");
	r.op = 1000;
	expect(client_call(&r, back, NULL, 0), -EOPNOTSUPP, "an unknown operation");
	printf("atomics, get, flush, refusals: as they should be\n");
}

/* ---- Arguments ---- */

static const struct option_of options[] = {
	{"worker", "FILE", "the worker's address file; without it, one is started", .string = &opt.file},
	{"device", "NAME", "mlx5 device (the first one)", .string = &opt.device},
	{"iters", "N", "operations of each kind (2000)", .number = &opt.iters, .min = 1, .max = 10000000},
	{"size", "BYTES", "of each, up to 4000 (32)", .number = &opt.size, .min = 1, .max = MAX_SIZE},
	{"window", "N", "in flight, up to 16 (16)", .number = &opt.window, .min = 1, .max = MAX_WINDOW},
	{"timeout", "S", "seconds without an answer (30)", .number = &client.timeout, .min = 1, .max = 600},
	{NULL, NULL, NULL, NULL, NULL, 0, 0, NULL}};

int main(int argc, char **argv)
{
	char file[80];

	arguments(argc, argv, "Gives commands to a worker, and tells how many a second.", "", options);
	need_device(opt.device);
	atexit(client_tidy);
	times = malloc(sizeof(*times) * opt.iters);
	if (!times)
		die("no memory");
	if (!opt.file)
		client_spawn(opt.device, file, sizeof(file));
	client.pd = open_pd(opt.device);
	client_connect(opt.file ? opt.file : file);
	echo_id = client_plugin("echo");
	prepare();
	if (on_softdev())
		printf("The software device: the times are those of a program, not of a network\n");
	printf("%u bytes; one at a time: operations/s and us; %u at a time: operations/s, a doorbell for each command, and one for all\n\n"
	       "%-9s %9s %8s %8s %8s %12s %12s %9s\n",
	       opt.size, opt.window, "", "single/s", "median", "p99", "p99.9", "each/s", "one/s", "gain");
	fflush(stdout);
	row("echo", ECHO);
	row("put", PUT);
	row("tag send", TAG_SEND);
	overlap();
	odds();
	printf("%llu commands, every byte verified\n", (unsigned long long)finished);
	fflush(stdout);

	client_disconnect();
	need(inlay_task_link_destroy(&link_), "the queue pair's end");
	need(inlay_mmap_destroy(&map), "the map's end");
	return ferror(stdout) ? 1 : 0;
}
