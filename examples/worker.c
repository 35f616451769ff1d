/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * worker.c: a worker for command tasks: hosts connect to it and have its plugins work for them. See
 * worker --help; offload.c is such a host, plugins/meet.h says how the two meet.
 *
 *   set_up        a device, memory for payloads that come by a key, plugins, the worker
 *   listen_at     a socket on loopback or in the file system, and the address file
 *   serve         the loop: commands, sockets, and sleep when there is neither
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <inlay/inlay.h>
#include <inlay/task.h>
#include "common/program.h"
#include "common/publish.h"
#include "plugins/echo.h"
#include "plugins/load.h"
#include "plugins/meet.h"
#include "plugins/rdma.h"
#include "plugins/rdmo.h"

#define MAX_HOSTS 256u
#define PULL_EACH 4u                    /* payloads by key of a host that are here at a time */
#define GREETING_TIME 5000000000u       /* ns that a host has for its greeting, all of it */
#define GREETERS 32u                    /* extra places, for guests that have not greeted yet */
#define MAX_GUESTS (MAX_HOSTS + GREETERS)

/* Who has come: a socket, and once it has greeted, a connection */
struct guest {
	int fd;                         /* -1: nobody */
	uint32_t got;
	uint32_t leaving;               /* as soon as plugins have given its commands back */
	uint64_t since;
	struct inlay_task_conn *conn;
	void *memory;
	uint8_t greeting[MEET_GREETING];
};

static struct {
	const char *file, *device, *bind, *unix_path, *folders[16], *loads[MEET_PLUGINS];
	uint32_t num_folders, num_loads, hosts, idle, port, pull;
} opt = {.bind = "127.0.0.1", .hosts = 16, .idle = 60, .pull = 65536};

static struct inlay_task_worker worker;
static struct inlay_task_worker_params params;
static struct inlay_task_entry entries[MEET_PLUGINS] = {
	{ECHO_ID, &echo_plugin, NULL}, {RDMA_ID, &rdma_plugin, NULL}, {RDMO_ID, &rdmo_plugin, NULL}};
static uint32_t num_entries = 3;
static struct plugin_object objects[MEET_PLUGINS];
static struct guest guests[MAX_GUESTS];
static uint8_t token[MEET_TOKEN];
static int listener = -1;
static volatile sig_atomic_t ended;
static struct {
	uint64_t hosts, refused, commands, strays;
} count;

static const char *remove_socket;

static void tidy(void)
{
	publish_end();
	if (remove_socket)
		unlink(remove_socket);
}

static void end(int sig)
{
	(void)sig;
	ended = 1;
}

/* ---- Set-up ---- */

/* What payloads by a key are read to. */
static struct inlay_pool *make_pool(struct ibv_pd *pd)
{
	static struct inlay_mmap map;
	uint32_t num = PULL_EACH * opt.hosts;
	size_t size = (size_t)num * opt.pull;
	uint8_t *at = memory(size);
	struct ibv_mr *mr = ibv_reg_mr(pd, at, size, IBV_ACCESS_LOCAL_WRITE);
	struct inlay_keys keys = {mr ? mr->lkey : 0, INLAY_NO_KEY};
	struct inlay_pool *pool;
	int err;

	if (!mr)
		die("cannot register %zu bytes: %s", size, strerror(errno));
	err = inlay_mmap_create(&map, memory(inlay_mmap_size(1, 1)), inlay_mmap_size(1, 1), 1, 1);
	if (!err)
		err = inlay_mmap_add_dev(&map, pd);
	if (!err)
		err = inlay_mmap_add(&map, inlay_source_keys((uintptr_t)at, size, keys));
	if (!err)
		err = inlay_mmap_start(&map);
	if (!err)
		err = inlay_pool_create(memory(inlay_pool_size(num)), inlay_pool_size(num), num, opt.pull, &map, &pool);
	if (!err)
		err = inlay_pool_start(pool);
	if (err)
		die("no pool: %s", strerror(-err));
	return pool;
}

/* One --load ID:NAME, found in the folders. */
static void load(const char *what, struct plugin_object *object)
{
	char *name;
	uint64_t id = strtoull(what, &name, 0);
	int err;

	if (name == what || *name != ':' || !id)
		die("--load wants ID:NAME, with an ID of 1 or more, not '%s'", what);
	name++;
	if (!opt.num_folders)
		die("--load %s: from where? --folder names an absolute folder", what);
	err = plugin_load(object, opt.folders, opt.num_folders, name);
	if (err == -EPERM)
		die("plugin %s: others than root and this user could have written it or its folder", name);
	if (err)
		die("plugin %s: %s", name, strerror(-err));
	entries[num_entries].id = id;
	entries[num_entries++].plugin = object->plugin;
}

static void set_up(struct ibv_pd *pd)
{
	const char *why;

	params = inlay_task_worker_default();
	params.connections = opt.hosts;
	params.plugins = entries;
	params.num_plugins = num_entries;
	params.pool = make_pool(pd);
	params.channel = ibv_create_comp_channel(pd->context);
	if (!params.channel || fcntl(params.channel->fd, F_SETFL, O_NONBLOCK))
		die("no completion channel: %s", strerror(errno));
	if (inlay_task_worker_create(&worker, pd, &params, &why))
		die("no worker: %s", why);
	for (uint32_t i = 0; i < num_entries; i++)
		printf("plugin %llu %s\n", (unsigned long long)entries[i].id, entries[i].plugin->name);
}

static void listen_at(void)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	char hex[2 * MEET_TOKEN + 1], line[512];
	socklen_t len = sizeof(in);
	mode_t mask;
	int err;

	listener = socket(opt.unix_path ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (opt.unix_path) {
		if (strlen(opt.unix_path) >= sizeof(un.sun_path) || strpbrk(opt.unix_path, " \t\n"))
			die("--unix %s: a path of less than %zu bytes without blanks", opt.unix_path,
			    sizeof(un.sun_path));
		strcpy(un.sun_path, opt.unix_path);
		mask = umask(0177);
		err = bind(listener, (struct sockaddr *)&un, sizeof(un));
		umask(mask);
		remove_socket = err ? NULL : opt.unix_path;
	} else {
		if (inet_pton(AF_INET, opt.bind, &in.sin_addr) != 1)
			die("--bind %s: an IPv4 address is wanted", opt.bind);
		err = bind(listener, (struct sockaddr *)&in, sizeof(in));
	}
	if (err || listen(listener, 16) || (!opt.unix_path && getsockname(listener, (struct sockaddr *)&in, &len)))
		die("cannot listen at %s: %s", opt.unix_path ? opt.unix_path : opt.bind, strerror(errno));
	if (getrandom(token, sizeof(token), 0) != sizeof(token))
		die("no random numbers: %s", strerror(errno));
	for (uint32_t i = 0; i < MEET_TOKEN; i++)
		sprintf(hex + 2 * (size_t)i, "%02x", token[i]);
	if (opt.unix_path)
		snprintf(line, sizeof(line), "inlay-worker 1 unix %s - %s\n", opt.unix_path, hex);
	else
		snprintf(line, sizeof(line), "inlay-worker 1 tcp %s %u %s\n", opt.bind, ntohs(in.sin_port), hex);
	publish(opt.file, line);
	printf("ready: %s\n", opt.file);
	fflush(stdout);
}

/* ---- Hosts ---- */

static void say(int fd, int err, const struct inlay_task_address *address)
{
	uint8_t welcome[MEET_WELCOME + MEET_PLUGINS * MEET_ENTRY];
	uint32_t n = err ? 0 : num_entries;

	meet_welcome_write(welcome, err, n, address);
	for (uint32_t i = 0; i < n; i++)
		meet_entry_write(welcome + MEET_WELCOME + i * MEET_ENTRY, entries[i].id, entries[i].plugin->name);
	/* A fresh socket has room for it. One that has not is no host's. */
	if (send(fd, welcome, MEET_WELCOME + n * MEET_ENTRY, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		shutdown(fd, SHUT_RDWR);
}

static void leave(struct guest *g)
{
	if (g->conn) {
		g->leaving = 1;
		if (inlay_task_conn_destroy(g->conn))
			return;
		count.commands += g->conn->taken;
		count.strays += g->conn->strays;
		free(g->conn);
		free(g->memory);
	} else {
		count.refused++;
	}
	close(g->fd);
	memset(g, 0, sizeof(*g));
	g->fd = -1;
}

/* A whole greeting is there. */
static void welcome(struct guest *g)
{
	size_t size = inlay_task_conn_size(&params);
	int err = meet_greeting_read(g->greeting, token);

	if (!err && worker.num_conns == opt.hosts)
		err = -ENOSPC;
	if (!err) {
		g->conn = memory(sizeof(*g->conn));
		g->memory = memory(size);
		err = inlay_task_conn_create(g->conn, g->memory, size, &worker, g->greeting + 32,
					     INLAY_TASK_ADDRESS, NULL);
		if (err) {
			free(g->conn);
			free(g->memory);
			g->conn = NULL;
		}
	}
	say(g->fd, err, err ? NULL : &g->conn->link.self);
	if (err)
		leave(g);
	else
		count.hosts++;
}

/* Something is to be read from a host, or it has gone. */
static void hear(struct guest *g)
{
	uint8_t more;
	ssize_t n;

	if (g->conn)
		n = recv(g->fd, &more, 1, MSG_DONTWAIT);
	else
		n = recv(g->fd, g->greeting + g->got, MEET_GREETING - g->got, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	/* Nothing is said after the greeting. */
	if (n <= 0 || g->conn) {
		leave(g);
		return;
	}
	g->got += (uint32_t)n;
	if (g->got == MEET_GREETING)
		welcome(g);
}

/* Who has not said in time what it wants. Whoever it is, it is told. */
static void send_away(struct guest *g, int err)
{
	say(g->fd, err, NULL);
	leave(g);
}

/* Takes all that have come. If too many say nothing, the oldest of those goes. */
static void come(uint64_t now)
{
	struct guest *g, *place, *oldest;
	uint32_t silent;
	int fd;

	while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		place = oldest = NULL;
		silent = 0;
		for (g = guests; g < guests + MAX_GUESTS; g++) {
			if (g->fd < 0) {
				place = g;
			} else if (!g->conn) {
				silent++;
				oldest = !oldest || g->since < oldest->since ? g : oldest;
			}
		}
		if (silent == GREETERS) {
			send_away(oldest, -EAGAIN);
			place = oldest;
		}
		/* There are as many connections as hosts at most: there is a place. */
		memset(place, 0, sizeof(*place));
		place->fd = fd;
		place->since = now++;
		hear(place);
	}
}

/* Looks at all sockets and the worker's descriptor, or sleeps on them for so many ms. */
static void look(uint64_t now, int sleep_ms)
{
	struct pollfd p[MAX_GUESTS + 2];
	struct guest *who[MAX_GUESTS + 2];
	uint32_t n = 2;

	p[0] = (struct pollfd){listener, POLLIN, 0};
	p[1] = (struct pollfd){sleep_ms ? params.channel->fd : -1, POLLIN, 0};
	for (struct guest *g = guests; g < guests + MAX_GUESTS; g++) {
		if (g->fd >= 0 && (g->leaving || (g->conn && g->conn->broken)))
			leave(g);
		else if (g->fd >= 0 && !g->conn && now > g->since + GREETING_TIME)
			send_away(g, -ETIMEDOUT);
		if (g->fd < 0 || g->leaving)
			continue;
		who[n] = g;
		p[n++] = (struct pollfd){g->fd, POLLIN, 0};
	}
	if (poll(p, n, sleep_ms) <= 0)
		return;
	for (uint32_t i = 2; i < n; i++)
		if (p[i].revents)
			hear(who[i]);
	if (p[0].revents)
		come(now);
}

/* Whether a handler has something to do, which only plugins' progress finds. */
static int busy(void)
{
	for (struct guest *g = guests; g < guests + MAX_GUESTS; g++)
		if (g->conn && g->conn->kept)
			return 1;
	return 0;
}

/* Whether the worker may sleep on its channel: then that wakes it for the next completion. */
static int arm(void)
{
	struct ibv_cq *cq;
	void *context;

	while (!ibv_get_cq_event(params.channel, &cq, &context)) {
		inlay_cq_event(&worker.cq);
		ibv_ack_cq_events(cq, 1);
	}
	return !worker.dirty && !inlay_cq_arm(&worker.cq, 0) && !inlay_cq_peek(&worker.cq);
}

static void serve(void)
{
	uint64_t now = now_ns(), last = now, looked = 0, alone = now, probed = now;

	while (!ended) {
		now = now_ns();
		if (inlay_task_worker_progress(&worker, 64))
			last = now;
		if (worker.num_conns)
			alone = now;
		else if (opt.idle && now - alone > opt.idle * 1000000000ull)
			break;
		if (now - last > 1000000 && !busy() && arm()) {
			look(now, 50);
			looked = now;
		} else if (now - looked > 1000000) {
			look(now, 0);
			looked = now;
		} else if (now != last) {
			sched_yield();
		}
		/* A host whose machine has died does not close its socket. */
		if (now - probed > 1000000000) {
			for (struct guest *g = guests; g < guests + MAX_GUESTS; g++)
				if (g->conn && !g->conn->broken &&
				    !inlay_post_write(&g->conn->link.sq, 0, 0, NULL, 0, INLAY_SIGNALED | INLAY_RING))
					probed = now;
		}
	}
}

/* ---- Arguments ---- */

static void add_folder(const char *text)
{
	if (*text != '/')
		wrong("--folder wants an absolute folder, not '%s'", text);
	if (opt.num_folders == 16)
		wrong("too many folders");
	opt.folders[opt.num_folders++] = text;
}

static void add_load(const char *text)
{
	if (opt.num_loads + num_entries == MEET_PLUGINS)
		wrong("too many plugins");
	opt.loads[opt.num_loads++] = text;
}

static const struct option_of options[] = {
	{"device", "NAME", "mlx5 device (the first one)", .string = &opt.device},
	{"bind", "ADDRESS", "where to listen by TCP (127.0.0.1)", .string = &opt.bind},
	{"port", "N", "and at which port (any)", .number = &opt.port, .max = 65535},
	{"unix", "PATH", "listens at a Unix socket instead", .string = &opt.unix_path},
	{"hosts", "N", "at most so many at a time, up to 256 (16)", .number = &opt.hosts, .min = 1, .max = MAX_HOSTS},
	{"pull", "BYTES", "the largest payload by a key, 4k to 16M (64k)", .number = &opt.pull, .min = 4096,
	 .max = 16u << 20},
	{"folder", "DIR", "where plugins are loaded from: absolute, writable by nobody else; up to 16 of them",
	 .call = add_folder},
	{"load", "ID:NAME", "loads NAME.so from the first such folder that has it", .call = add_load},
	{"idle", "SECONDS", "ends when no host has been there for so long; 0: never (60)", .number = &opt.idle,
	 .max = 86400},
	{NULL, NULL, NULL, NULL, NULL, 0, 0, NULL}};

int main(int argc, char **argv)
{
	struct sigaction on_end = {.sa_handler = end};

	if (arguments(
		    argc, argv,
		    "Serves hosts with command tasks. Writes to FILE where it is to be found, for its owner alone, and\n"
		    "removes it at its end: SIGTERM and SIGINT end it in order.\n"
		    "Plugins that are built in: 1 echo, 2 rdma, 3 rdmo.",
		    "FILE", options) != 1)
		wrong("one address file is wanted (try --help)");
	opt.file = argv[0];
	atexit(tidy);
	sigaction(SIGTERM, &on_end, NULL);
	sigaction(SIGINT, &on_end, NULL);
	sigaction(SIGHUP, &on_end, NULL);
	for (uint32_t i = 0; i < MAX_GUESTS; i++)
		guests[i].fd = -1;
	for (uint32_t i = 0; i < opt.num_loads; i++)
		load(opt.loads[i], &objects[i]);
	set_up(open_pd(opt.device));
	listen_at();
	serve();
	for (struct guest *g = guests; g < guests + MAX_GUESTS; g++)
		for (uint64_t until = now_ns() + 1000000000; g->fd >= 0;
		     inlay_task_worker_progress(&worker, 64)) {
			leave(g);
			if (now_ns() > until)
				die("a plugin does not give its commands back");
		}
	printf("%llu hosts, %llu refused; %llu commands, %llu strays\n", (unsigned long long)count.hosts,
	       (unsigned long long)count.refused, (unsigned long long)count.commands,
	       (unsigned long long)(count.strays + worker.strays));
	if (inlay_task_worker_destroy(&worker))
		die("the worker does not end");
	for (uint32_t i = 0; i < opt.num_loads; i++)
		plugin_unload(&objects[i]);
	return fflush(stdout) || ferror(stdout) ? 1 : 0;
}
