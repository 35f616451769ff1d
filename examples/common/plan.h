/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plan.h: what pingpong.c measures: as arguments, as two sides agree on it, as the head of its
 * results.
 */
#ifndef COMMON_PLAN_H
#define COMMON_PLAN_H

#include <inlay/inlay.h>
#include "figures.h"
#include "peer.h"

#define MAX_SIZE (8u << 20)
#define MAX_WINDOW 4096u
#define MAX_ITERS 10000000u
#define MAX_MEMORY (256u << 20)      /* bytes of landing slots */

enum op { OP_WRITE, OP_SEND, OP_READ, OP_ATOMIC };
static const char *const op_names[] = {"write", "send", "read", "atomic"};

/* The client decides. The server checks it as it checks its own arguments. */
static struct plan {
	uint32_t op, size_min, size_max, iters, window, max_inline, verify, rate_only;
} plan = {OP_WRITE, 2, 65536, 0, 64, 64, 1, 0};

static struct {
	const char *device, *bind, *host, *json, *plot;
	uint32_t port, gid_index, mtu, sl, tclass, tcp_port, processes;
	int server, sized;
} opt = {.bind = "127.0.0.1", .port = 1, .tcp_port = 18515, .gid_index = UINT32_MAX};

/* ---- What the sides tell each other ---- */

#define HELLO_MAGIC 0x696e6c61u
#define HELLO_VERSION 3u
#define HELLO_WORDS (2 + sizeof(struct plan) / 4 + 4)

/* On the wire: words in network order, then the record. */
struct hello {
	uint32_t magic, version;
	struct plan plan;
	uint32_t rkey, high, low, bytes; /* the side's memory */
	uint8_t record[INLAY_CONNECT_SIZE];
};

static inline void hello_turn(struct hello *h)
{
	for (uint32_t i = 0, *words = &h->magic; i < HELLO_WORDS; i++)
		words[i] = htobe32(words[i]);
}

static inline void hello_tell(struct hello h)
{
	h.magic = HELLO_MAGIC;
	h.version = HELLO_VERSION;
	h.plan = plan;
	hello_turn(&h);
	peer_tell(&h, sizeof(h));
}

/* Nothing in it but magic and version is checked here. */
static inline void hello_hear(struct hello *h)
{
	peer_move(0, h, sizeof(*h), "no greeting from");
	hello_turn(h);
	if (h->magic != HELLO_MAGIC)
		die("the peer is no pingpong");
	if (h->version != HELLO_VERSION)
		die("the peer is another version of pingpong");
}

/* NULL, or what is wrong with a plan: our own, or one that a client sent. */
static inline const char *plan_fault(const struct plan *p)
{
	if (p->op > OP_ATOMIC || p->verify > 1 || p->rate_only > 1)
		return "no such operation";
	if (p->size_min < 1 || p->size_min > p->size_max || p->size_max > MAX_SIZE)
		return "sizes go from 1 byte to 8 MB, the smaller one first";
	if (p->op == OP_ATOMIC && (p->size_min != 8 || p->size_max != 8))
		return "an atomic has 8 bytes";
	if (p->iters > MAX_ITERS)
		return "too many iterations";
	if (p->window < 2 || p->window > MAX_WINDOW)
		return "a window has 2 to 4096 messages";
	if (p->max_inline > 1024)
		return "at most 1024 bytes are inline";
	if ((uint64_t)p->window * ((p->size_max + 63) / 64 * 64) > MAX_MEMORY)
		return "window times size is more than 256 MB";
	return NULL;
}

/* ---- Arguments ---- */

static void plan_op(const char *text)
{
	for (plan.op = 0; plan.op <= OP_ATOMIC && strcmp(text, op_names[plan.op]); plan.op++)
		;
	if (plan.op > OP_ATOMIC)
		wrong("--op is write, send, read or atomic, not '%s'", text);
}

static void plan_sizes(const char *text)
{
	char *dash = strchr(text, '-');

	if (dash)
		*dash = 0;
	plan.size_min = plan.size_max = number("size", text, 1, MAX_SIZE);
	if (dash)
		plan.size_max = number("size", dash + 1, 1, MAX_SIZE);
	opt.sized = 1;
}

static const struct option_of plan_options[] = {
	{"device", "NAME", "mlx5 device (the first one)", .string = &opt.device},
	{"port", "N", "its port (1)", .number = &opt.port, .min = 1, .max = 255},
	{"gid-index", "N", "RoCE: entry of the GID table (the best one)", .number = &opt.gid_index, .max = 255},
	{"mtu", "BYTES", "256, 512, 1024, 2048 or 4096 (the port's)", .number = &opt.mtu, .min = 256, .max = 4096},
	{"sl", "N", "service level (the peer's)", .number = &opt.sl, .max = 15},
	{"tclass", "N", "traffic class (the peer's)", .number = &opt.tclass, .max = 255},
	{"tcp-port", "N", "where they meet; a server with 0 tells which (18515)", .number = &opt.tcp_port,
	 .max = 65535},
	{"bind", "ADDRESS", "where a server listens (127.0.0.1: for this machine only)", .string = &opt.bind},
	{"timeout", "S", "seconds without a sign of the peer; a server waits 12 times that to be found (10)",
	 .number = &peer.timeout, .min = 1, .max = 3600},
	{"processes", "N", "without a role: 1 or 2 (2 from four CPUs on)", .number = &opt.processes, .min = 1,
	 .max = 2},
	{"op", "OP", "write, send, read or atomic (write)", .call = plan_op},
	{"size", "N[-M]", "one size, or the powers of two from N to M; k and M are understood (2-64k)",
	 .call = plan_sizes},
	{"iters", "N", "messages for each figure (1000 to 20000)", .number = &plan.iters, .min = 1, .max = MAX_ITERS},
	{"window", "N", "messages under way when the rate is measured (64)", .number = &plan.window, .min = 2,
	 .max = MAX_WINDOW},
	{"inline", "N", "payloads up to N bytes travel in the work request (64)", .number = &plan.max_inline,
	 .max = 1024},
	{"rate", NULL, "only the rate", .number = &plan.rate_only, .max = 1},
	{"no-verify", NULL, "do not check what arrives", .number = &plan.verify, .max = 0},
	{"json", "FILE", "results for programs", .string = &opt.json},
	{"plot", "FILE.png", "a picture, by gnuplot", .string = &opt.plot},
	{NULL, NULL, NULL, NULL, NULL, 0, 0, NULL}};

static inline void plan_parse(int argc, char **argv)
{
	int left = arguments(
		argc, argv,
		"Latency and message rate between two queue pairs of an mlx5 device, by message size. Without\n"
		"a role both sides run here. A server learns from its client what is measured.",
		"[server | client HOST]", plan_options);
	const char *fault;

	if (opt.mtu & (opt.mtu - 1))
		wrong("--mtu is 256, 512, 1024, 2048 or 4096, not %u", opt.mtu);
	if (plan.op == OP_ATOMIC && !opt.sized)
		plan.size_min = plan.size_max = 8;
	fault = plan_fault(&plan);
	if (fault)
		wrong("%s", fault);
	opt.server = left == 1 && !strcmp(argv[0], "server");
	opt.host = left == 2 && !strcmp(argv[0], "client") ? argv[1] : NULL;
	if (left && !opt.server && !opt.host)
		wrong("the arguments are nothing, or 'server', or 'client HOST' (try --help)");
	if (opt.server && (opt.json || opt.plot))
		wrong("the results are the client's: give it --json and --plot");
	if (opt.host && !opt.tcp_port)
		wrong("a client needs the port that its server told (--tcp-port)");
}

/* What the arguments say of the connection. */
static inline struct inlay_connect_attr plan_connect_attr(void)
{
	struct inlay_connect_attr attr = inlay_connect_defaults();

	attr.port = (uint8_t)opt.port;
	attr.gid_index = (int)opt.gid_index;
	attr.mtu = opt.mtu ? (uint8_t)(__builtin_ctz(opt.mtu) - 7) : 0; /* IBV_MTU_256 is 1 */
	attr.sl = (uint8_t)opt.sl;
	attr.traffic_class = (uint8_t)opt.tclass;
	attr.access |= IBV_ACCESS_REMOTE_ATOMIC;
	attr.min_rnr_timer = 1; /* 10 us: a receive is missing only for a moment */
	return attr;
}

/* The other process, if there is one: started, or found. */
static inline void plan_find_peer(void)
{
	if (opt.server || opt.host)
		need_device(opt.device);
	if (opt.server)
		peer.wire = socket_accept(opt.bind, opt.tcp_port, 12 * peer.timeout);
	else if (opt.host)
		peer.wire = socket_connect(opt.host, opt.tcp_port, peer.timeout);
	else if (opt.processes ? opt.processes == 2 : peer_cpus() >= 4)
		peer_fork();
}

/* ---- Results ---- */

/* Opens what would otherwise spoil the end of a long run. Returns the file of --json, or NULL. */
static inline FILE *plan_files(void)
{
	FILE *json = NULL, *picture;

	if (opt.plot && system("command -v gnuplot >/dev/null 2>&1"))
		die("--plot needs gnuplot, which is not installed");
	if (opt.plot && (!(picture = fopen(opt.plot, "ae")) || fclose(picture)))
		die("%s: %s", opt.plot, strerror(errno));
	if (opt.json && !(json = fopen(opt.json, "we")))
		die("%s: %s", opt.json, strerror(errno));
	return json;
}

static inline const char *plan_sides(void)
{
	return opt.host ? "a server and a client" : peer.child ? "two processes" : "one process";
}

static inline const char *plan_unit(void)
{
	return plan.op == OP_WRITE || plan.op == OP_SEND ? "half round trip" : "round trip";
}

static inline void plan_head(const char *device, const char *link)
{
	printf("pingpong: %s, port %u (%s), %s, %s\n", device, opt.port, link, op_names[plan.op], plan_sides());
	if (on_softdev())
		printf("This is the software device: the times are those of a program on this machine's CPUs, not of a network.\n");
	if (!plan.rate_only)
		printf("Latency in us, %s; ", plan_unit());
	printf("rate with %u messages under way, %u to a doorbell.\n\n", plan.window,
	       plan.window / 4 ? plan.window / 4 : 1);
	figures_head(!plan.rate_only);
}

static inline void plan_save(FILE *json, const char *device, const char *link, const struct figures *f, int n)
{
	char text[1024];

	snprintf(
		text, sizeof(text),
		"\"program\": \"pingpong\", \"inlay\": \"%d.%d.%d\", \"device\": \"%s\", \"software_device\": %s,\n"
		" \"port\": %u, \"link\": \"%s\", \"op\": \"%s\", \"sides\": \"%s\", \"window\": %u, \"inline\": %u, \"verify\": %s,\n"
		" \"latency_is\": \"%s\",",
		INLAY_VERSION_MAJOR, INLAY_VERSION_MINOR, INLAY_VERSION_PATCH, device, on_softdev() ? "true" : "false",
		opt.port, link, op_names[plan.op], plan_sides(), plan.window, plan.max_inline,
		plan.verify ? "true" : "false", plan_unit());
	if (json)
		need(figures_json(json, text, f, n), opt.json);
	snprintf(text, sizeof(text), "RDMA %s%s", op_names[plan.op],
		 on_softdev() ? " on the software device: not a network" : "");
	if (opt.plot && figures_plot(opt.plot, text, f, n))
		die("gnuplot could not draw %s", opt.plot);
}

#endif
