/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * client.h: what offload.c and group.c have in common as hosts: a worker, started by them or by
 * somebody else, and commands for it.
 *
 *   client_spawn, client_end       a worker that lies beside the program
 *   client_connect, client_plugin  the way to it, and what it can do; client_disconnect
 *   client_call                    one command of rdma's and its answer; client_request and client_wait: in two steps
 *   client_endpoint, _map          what rdma's commands name; client_export: memory as others may name it
 *
 * One worker for a program: what there is of it, is in `client`. Every function ends the program
 * when something is wrong.
 */
#ifndef PLUGINS_CLIENT_H
#define PLUGINS_CLIENT_H

#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <inlay/inlay.h>
#include <inlay/task.h>
#include "../common/program.h"
#include "meet.h"
#include "rdma.h"

extern char **environ;

static struct {
	struct inlay_task_host host;
	struct ibv_pd *pd;
	struct inlay_task *task;        /* client_call's */
	struct meet_plugin plugins[MEET_PLUGINS];
	uint32_t num_plugins;
	uint32_t timeout;               /* s that anything may take */
	uint64_t rdma;                  /* the plugin's id */
	int fd;
	pid_t child;
	char folder[64];
} client = {.timeout = 30, .fd = -1};

/* ---- The worker ---- */

static inline void client_tidy(void)
{
	char file[80];

	if (client.child > 0)
		kill(client.child, SIGKILL);
	if (*client.folder) {
		snprintf(file, sizeof(file), "%s/address", client.folder);
		unlink(file);
		rmdir(client.folder);
	}
}

/* Starts the worker that lies beside this program, and waits for its address file. */
static inline void client_spawn(const char *device, char *file, size_t bytes)
{
	char path[4096],
		*args[] = {path, "--idle", "30", file, device ? "--device" : NULL, (char *)(uintptr_t)device, NULL};
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 8);
	uint64_t until = now_ns() + client.timeout * 1000000000ull;
	int err;

	if (n <= 0)
		die("where is this program? %s", strerror(errno));
	path[n] = 0;
	strcpy(strrchr(path, '/') + 1, "worker");
	strcpy(client.folder, "/tmp/inlay.XXXXXX");
	if (!mkdtemp(client.folder)) {
		*client.folder = 0;
		die("no folder in /tmp: %s", strerror(errno));
	}
	snprintf(file, bytes, "%s/address", client.folder);
	err = posix_spawn(&client.child, path, NULL, NULL, args, environ);
	if (err) {
		client.child = 0;
		die("%s: %s", path, strerror(err));
	}
	while (access(file, R_OK)) {
		if (waitpid(client.child, NULL, WNOHANG) == client.child) {
			client.child = 0;
			die("the worker has not started");
		}
		if (now_ns() > until)
			die("the worker is not there within %u s", client.timeout);
		usleep(2000);
	}
}

/* The worker that was started here ends when it is told to. */
static inline void client_end(void)
{
	uint64_t until = now_ns() + client.timeout * 1000000000ull;
	int status = 0;

	if (!client.child)
		return;
	kill(client.child, SIGTERM);
	while (waitpid(client.child, &status, WNOHANG) != client.child) {
		if (now_ns() > until)
			die("the worker does not end");
		usleep(1000);
	}
	client.child = 0;
	if (status)
		die("the worker did not end well");
}

static inline uint64_t client_plugin(const char *name)
{
	for (uint32_t i = 0; i < client.num_plugins; i++)
		if (!strcmp(client.plugins[i].name, name))
			return client.plugins[i].id;
	die("the worker has no plugin %s", name);
}

static inline void client_connect(const char *file)
{
	struct inlay_task_host_params p = inlay_task_host_default();
	struct meet_place place;
	int err = meet_place_read(file, &place);

	p.windows = 1;
	if (err)
		die("%s: %s", file, err == -EPROTO ? "no worker's address" : strerror(-err));
	need(inlay_task_host_create(&client.host, memory(inlay_task_host_size(&p)), inlay_task_host_size(&p), client.pd,
				    &p, NULL),
	     "a host");
	client.fd = meet_worker(&place, &client.host, client.plugins, &client.num_plugins);
	if (client.fd < 0)
		die("the worker at %s %s %s: %s", place.kind, place.where, place.port, meet_why(client.fd));
	client.rdma = client_plugin("rdma");
	need(inlay_task_alloc(&client.host, 0, NULL, &client.task), "a task");
}

/* The end of the host, and of the worker that was started here. */
static inline void client_disconnect(void)
{
	inlay_task_link_break(&client.host.link);
	while (inlay_task_host_destroy(&client.host))
		inlay_task_host_progress(&client.host, 64);
	close(client.fd);
	client_end();
}

/* ---- Commands ---- */

static inline void client_progress(void)
{
	static uint64_t probed;
	uint64_t now = now_ns();

	if (!inlay_task_host_progress(&client.host, 64))
		sched_yield();
	/* A worker that has died in silence is noticed by this. */
	if (now - probed > 1000000000 && !inlay_post_write(&client.host.link.sq, 0, 0, NULL, 0, INLAY_SIGNALED | INLAY_RING))
		probed = now;
	if (client.host.broken)
		die("the connection to the worker has broken: %s", strerror(-client.host.broken));
}

static inline void client_wait(const struct inlay_task *t)
{
	uint64_t until = now_ns() + client.timeout * 1000000000ull;

	while (inlay_task_status(t) == -EINPROGRESS) {
		client_progress();
		if (now_ns() > until)
			die("no answer within %u s", client.timeout);
	}
}

/* Fills a task's payload with a request, and makes room for its data: returns where. */
static inline uint8_t *client_request(struct inlay_task *t, uint32_t op, uint64_t ep, uint64_t where, uint64_t addr,
				      uint32_t bytes)
{
	struct rdma_request r = {op, bytes, ep, where, addr, 0, 0, NULL};
	struct inlay_buf *buf = inlay_task_payload(t);
	uint8_t *at = inlay_buf_head(buf);

	rdma_request_write(at, &r);
	inlay_task_set_plugin(t, client.rdma);
	need(inlay_buf_set_data(buf, at, RDMA_HEAD + (rdma_has_data(op) ? bytes : 0)), "a request of that length");
	return at + RDMA_HEAD;
}

/*
 * One command of rdma's, and its answer: status as returned, the response's first `len` bytes,
 * which must be all.
 */
static inline int client_call(const struct rdma_request *r, const void *data, void *response, uint32_t len)
{
	struct inlay_task *t = client.task;
	uint8_t *at = client_request(t, r->op, r->ep, r->map, r->addr, r->bytes);

	inlay_put64(at - 16, r->a);
	inlay_put64(at - 8, r->b);
	if (data)
		memcpy(at, data, r->bytes);
	need(inlay_task_submit(t, INLAY_RING), "a command");
	client_wait(t);
	if (inlay_task_status(t))
		return inlay_task_status(t);
	if (t->response_len != len)
		die("operation %u: a response of %u bytes, not %u", r->op, t->response_len, len);
	if (len)
		memcpy(response, inlay_buf_data(inlay_task_response(t)), len);
	return 0;
}

/* A new endpoint of the worker's: its handle; address: for the other side. */
static inline uint64_t client_endpoint(uint8_t *address)
{
	struct rdma_request r = {.op = RDMA_EP};
	uint8_t response[8 + INLAY_TASK_ADDRESS];

	need(client_call(&r, NULL, response, sizeof(response)), "an endpoint");
	memcpy(address, response + 8, INLAY_TASK_ADDRESS);
	return rdma_get64(response);
}

static inline void client_connect_endpoint(uint64_t ep, const void *address)
{
	struct rdma_request r = {.op = RDMA_CONNECT, .ep = ep, .bytes = INLAY_TASK_ADDRESS};

	need(client_call(&r, address, NULL, 0), "connecting an endpoint");
}

/* ---- Memory ---- */

/* A map of memory that others may read and write, and its blob, of *len bytes at most. */
static inline void client_export(struct inlay_mmap *map, void *at, size_t bytes, void *blob, size_t *len)
{
	const uint32_t all = INLAY_LOCAL_READ_WRITE | INLAY_RDMA_READ | INLAY_RDMA_WRITE | INLAY_RDMA_ATOMIC;

	need(inlay_mmap_create(map, memory(inlay_mmap_size(1, 1)), inlay_mmap_size(1, 1), 1, 1), "a map");
	need(inlay_mmap_add_dev(map, client.pd), "a map");
	need(inlay_mmap_add(map, inlay_source_host(at, bytes)), "a map");
	need(inlay_mmap_set_permissions(map, all), "a map");
	need(inlay_mmap_start(map), "starting the map");
	need(inlay_mmap_export_rdma(map, client.pd, blob, len), "the export");
}

/* Gives a blob to the worker: the map's handle there. */
static inline uint64_t client_map(const void *blob, size_t len)
{
	struct rdma_request r = {.op = RDMA_MAP, .bytes = (uint32_t)len};
	uint8_t response[8];

	need(client_call(&r, blob, response, 8), "giving a map to the worker");
	return rdma_get64(response);
}

/* Bytes that differ from one seed to the next. */
static inline void fill(uint8_t *at, uint32_t len, uint64_t seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;

	for (uint32_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		at[i] = (uint8_t)(x >> 32);
	}
}

#endif
