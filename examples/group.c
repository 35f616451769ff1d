/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * group.c: a parallel program whose processes have a worker each, which put into each other's
 * memory, around a ring. What they must know of each other for that, they learn through a worker
 * group (plugins/group.h): one allgather. See group --help.
 *
 *   member 0          member 1          member 2
 *   host, segment     host, segment     host, segment <-- puts of worker 1, and so on: those of worker 2 go to member 0
 *    | commands        | commands        | commands
 *   worker 0          worker 1          worker 2
 *
 * A parallel program would give its own allgather, MPI's or PMIx's, and nothing else would change.
 */
#define _GNU_SOURCE
#include "plugins/client.h"
#include "plugins/group.h"

#define MAX_WORKERS 16u
#define SEGMENT (64u << 10)
#define PIECE 4000u             /* of a put, which goes with its command */
#define STRIDE 1024u            /* of a member's record */

static struct {
	const char *device;
	uint32_t workers;
} opt = {.workers = 3};

static struct worker_group group;
static struct inlay_task_link way_in;   /* a queue pair that lets the left neighbour's worker into the segment */
static struct ibv_cq *way_in_cq;
static struct inlay_mmap map;
static uint8_t *segment;                /* at the same address in all members, as a symmetric heap is */
static uint64_t ep;                     /* of this member's worker, to its right neighbour */

/* ---- The allgather ---- */

static struct {
	int fd;
	uint8_t *to;
	size_t left;
} gather;

static uint64_t deadline(void)
{
	return now_ns() + client.timeout * 1000000000ull;
}

static int gather_all(const void *from, void *to, size_t bytes, void *context, void **request)
{
	(void)context;
	gather.to = to;
	gather.left = bytes * opt.workers;
	*request = &gather;
	return socket_move(gather.fd, 1, (void *)(uintptr_t)from, bytes, deadline());
}

static int gathered(void *request)
{
	ssize_t n = recv(gather.fd, gather.to, gather.left, MSG_DONTWAIT);

	(void)request;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? -EINPROGRESS : -errno;
	if (!n)
		return -ECONNRESET;
	gather.to += n;
	gather.left -= (size_t)n;
	return gather.left ? -EINPROGRESS : 0;
}

/* Nobody goes on before all have come here. */
static void barrier(void)
{
	uint64_t here = 0, all[MAX_WORKERS], end = deadline();
	void *request;
	int err = gather_all(&here, all, sizeof(here), NULL, &request);

	while (!err && (err = gathered(request)) == -EINPROGRESS) {
		client_progress();
		err = now_ns() > end ? -ETIMEDOUT : 0;
	}
	need(err, "a barrier");
}

/* The process that has started them: so many bytes of each go to all. */
static void hand_round(const int *fds, size_t bytes)
{
	static uint8_t all[MAX_WORKERS * STRIDE];
	uint32_t i;

	for (i = 0; i < opt.workers; i++)
		need(socket_move(fds[i], 0, all + i * bytes, bytes, deadline()), "hearing a member");
	for (i = 0; i < opt.workers; i++)
		need(socket_move(fds[i], 1, all, bytes * opt.workers, deadline()), "telling a member");
}

/* ---- A member ---- */

static void introduce(uint32_t index)
{
	struct worker_group_oob oob = {gather_all, gathered, NULL, NULL, opt.workers, index};
	struct inlay_task_caps caps = {
		.pd = client.pd, .sends = 8, .max_gather = 1, .access = IBV_ACCESS_REMOTE_WRITE};
	struct worker_group_segment mine;
	size_t size = worker_group_size(opt.workers, STRIDE), len;
	uint8_t address[INLAY_TASK_ADDRESS], blob[512];

	need(worker_group_create(&group, memory(size), size, STRIDE, &oob), "a group");
	ep = client_endpoint(address);
	need(worker_group_add_worker(&group, (uint64_t)client.child, address, sizeof(address)),
	     "a worker of the group");

	caps.ibcq = way_in_cq = ibv_create_cq(client.pd->context, 256, NULL, NULL, 0);
	if (!caps.ibcq)
		die("no completion queue: %s", strerror(errno));
	way_in.self.role = INLAY_TASK_HOST;
	way_in.self.message = PIECE;
	way_in.self.receives = 16;
	need(inlay_task_link_create(&way_in, &caps, &client.host.params.path, NULL), "a queue pair");
	len = sizeof(blob);
	client_export(&map, segment, SEGMENT, blob, &len);
	mine = (struct worker_group_segment){(uintptr_t)segment, SEGMENT, &way_in.self, blob, INLAY_TASK_ADDRESS, (uint32_t)len};
	need(worker_group_add_buffer(&group, &mine), "a segment");
	need(worker_group_start(&group), "the exchange");
}

/*
 * This member's worker comes to the right neighbour's segment, and the left neighbour's to this
 * one's. The segment's handle.
 */
static uint64_t look_up(uint32_t left, uint32_t right)
{
	struct worker_group_segment s = {0};
	struct worker_group_worker w = {0};

	need(worker_group_segment(&group, right, (uintptr_t)segment, &s), "the right neighbour's segment");
	if (s.bytes != SEGMENT || s.memh_len != INLAY_TASK_ADDRESS)
		die("the right neighbour has another segment");
	client_connect_endpoint(ep, s.memh);
	need(worker_group_worker(&group, left, &w), "the left neighbour's worker");
	need(inlay_task_link_connect(&way_in, w.address, w.address_len, INLAY_TASK_HOST, NULL),
	     "letting the left neighbour's worker in");
	return client_map(s.mkey, s.mkey_len);
}

static void put_all(uint64_t mapped, uint32_t index)
{
	struct rdma_request put = {.op = RDMA_PUT, .ep = ep, .map = mapped}, flush = {.op = RDMA_FLUSH, .ep = ep};
	static uint8_t data[SEGMENT];

	fill(data, SEGMENT, index);
	for (uint32_t at = 0; at < SEGMENT; at += put.bytes) {
		put.addr = (uintptr_t)segment + at;
		put.bytes = SEGMENT - at < PIECE ? SEGMENT - at : PIECE;
		need(client_call(&put, data + at, NULL, 0), "a put");
	}
	need(client_call(&flush, NULL, NULL, 0), "a flush");
}

static void member(uint32_t index)
{
	uint32_t left = (index + opt.workers - 1) % opt.workers, right = (index + 1) % opt.workers;
	static uint8_t should[SEGMENT];
	struct worker_group_worker worker = {0};
	uint64_t mapped, end = deadline();
	char file[80];
	int err;

	atexit(client_tidy);
	client_spawn(opt.device, file, sizeof(file));
	client.pd = open_pd(opt.device);
	client_connect(file);
	introduce(index);
	while ((err = worker_group_progress(&group)) == -EINPROGRESS && now_ns() < end)
		client_progress();
	need(err, "the exchange");
	mapped = look_up(left, right);
	barrier(); /* whoever puts is let in */
	put_all(mapped, index);
	barrier(); /* all has been put */
	fill(should, SEGMENT, left);
	if (memcmp(segment, should, SEGMENT))
		die("member %u: other bytes than worker %u has put", index, left);
	need(worker_group_worker(&group, left, &worker), "the left neighbour's worker");
	printf("member %u: %u bytes by worker %u, process %llu, every byte verified\n", index, SEGMENT, left,
	       (unsigned long long)worker.id);
	fflush(stdout);
	client_disconnect();
	need(inlay_task_link_destroy(&way_in), "the queue pair's end");
	need(-ibv_destroy_cq(way_in_cq), "the completion queue's end");
	need(inlay_mmap_destroy(&map), "the map's end");
}

/* ---- All of them ---- */

static const struct option_of options[] = {
	{"workers", "N", "2 to 16 (3)", .number = &opt.workers, .min = 2, .max = MAX_WORKERS},
	{"device", "NAME", "mlx5 device (the first one)", .string = &opt.device},
	{"timeout", "S", "seconds that anything may take (30)", .number = &client.timeout, .min = 1, .max = 600},
	{NULL, NULL, NULL, NULL, NULL, 0, 0, NULL}};

static int fds[MAX_WORKERS];           /* to the members */
static uint32_t members;

/* However it ends: members see that the first process has gone, and end before it. */
static void gone(void)
{
	while (members)
		close(fds[--members]);
	while (wait(NULL) > 0)
		;
}

int main(int argc, char **argv)
{
	int pair[2], status, bad = 0;
	uint32_t i, k;

	arguments(argc, argv, "Workers that put into each other's memory, around a ring.", "", options);
	need_device(opt.device);
	segment = memory(SEGMENT);
	for (i = 0; i < opt.workers; i++) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
			die("no sockets: %s", strerror(errno));
		switch (fork()) {
		case -1: die("no process: %s", strerror(errno));
		case 0:
			/*
			 * The others' ends would keep them from seeing that the first process has
			 * gone.
			 */
			close(pair[0]);
			for (k = 0; k < i; k++)
				close(fds[k]);
			gather.fd = pair[1];
			member(i);
			return ferror(stdout) ? 1 : 0;
		}
		close(pair[1]);
		fds[i] = pair[0];
	}
	members = opt.workers;
	atexit(gone);
	hand_round(fds, STRIDE);
	hand_round(fds, sizeof(uint64_t));
	hand_round(fds, sizeof(uint64_t));
	while (wait(&status) > 0)
		bad |= status;
	if (bad)
		die("a member has failed");
	printf("%u workers, all segments as they should be\n", opt.workers);
	return fflush(stdout) || ferror(stdout) ? 1 : 0;
}
