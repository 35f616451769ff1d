/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pingpong.c: latency and message rate between two queue pairs, by message size. Set up with libibverbs; every post, doorbell and
 * completion is inlay's. Copy from it what you need:
 *
 *   open_device, make_side, connect_side    queues and memory, a doorbell register of one's own
 *   post, poll_sends, poll_receives         the data path
 *   run_latency, run_rate                   the two loops
 *
 * The two sides are one process (one thread drives both in turn), two processes, or a server and a client. The same loops
 * serve all three: each is given the sides that live in this process, NULL for the one that does not.
 *
 * Verification. All sides hold the same pattern. Message i is the pattern from 64 * (i % 4099) on, so no two messages of a row look alike
 * and nothing needs to be filled between them; checking one is a memcmp. The clock is stopped for it, but in a rate of sends, reads or
 * atomics.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <infiniband/verbs.h>
#include <inlay/inlay.h>

#define MAX_SIZE (8u << 20)
#define MAX_WINDOW 4096u
#define MAX_ITERS 10000000u
#define MAX_MEMORY (256u << 20)      /* bytes of landing slots */
#define CHECKED_MEMORY (4u << 20)    /* bytes of landing slots that a rate of writes may use beyond its window, to be checked less often */
#define PATTERN_STEPS 4099u          /* a prime above MAX_WINDOW: whatever lay in a slot before was another message */
#define SIGNAL_EVERY 32              /* latency: one completion for so many messages */
#define ACCEPT_FACTOR 12             /* a server waits so many timeouts for its client */

enum op { OP_WRITE, OP_SEND, OP_READ, OP_ATOMIC };
static const char *const op_names[] = {"write", "send", "read", "atomic"};

/* What both sides must agree on. The client decides; the server checks it as it checks its own arguments. */
struct plan {
	uint32_t op, size_min, size_max, iters, window, max_inline, verify, rate_only;
};

/* Where one side's memory is. How the side is reached is in a record of connect.h. */
struct address {
	uint32_t rkey, addr_high, addr_low, bytes;
};

/* One row of the table: what a loop is to do. iters is 0 in a plan for "as many as fit the size". */
struct phase {
	uint32_t size, warmup;
	uint64_t iters;              /* warm-up included */
	uint32_t slots, stride;      /* message i lands in slot i % slots */
	uint32_t batch;              /* messages for one doorbell and one completion */
};

/* One end of the connection, in this process */
struct side {
	struct inlay_uar uar;
	struct inlay_sq sq;
	struct inlay_rq rq;
	struct inlay_cq scq, rcq;
	struct ibv_qp *qp;
	struct ibv_cq *ibscq, *ibrcq;
	struct ibv_mr *mr;
	uint8_t *mem;                /* the pattern | the atomics' counter | landing slots */
	uint64_t send_cqes;          /* of this phase */
	uint64_t receives;           /* posted, of this phase */
	uint64_t received;
	struct address self, peer;
	struct inlay_connect_record here;
	uint8_t record[INLAY_CONNECT_SIZE]; /* the peer's, as it came */
	uint64_t raddr;              /* the peer's memory */
};

struct result {
	uint32_t size;
	double lat[5];               /* min, median, p99, p99.9, max, in us */
	double rate;                 /* messages per second */
};

static const char *const lat_names[] = {"min", "median", "p99", "p99.9", "max"};

static struct plan plan = {OP_WRITE, 2, 65536, 0, 64, 64, 1, 0};
static struct {
	const char *device, *bind, *host, *json, *plot;
	uint32_t port, mtu, sl, tcp_port, processes, timeout;
	int gid_index;               /* -1: find one */
	bool server;
} opt = {.bind = "127.0.0.1", .port = 1, .tcp_port = 18515, .timeout = 10, .gid_index = -1};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_port_attr port;
static struct ibv_device_attr device;
static const char *why;              /* inlay refused something, and this is the reason */
static struct side *local[2];        /* the sides of this process: client, server */
static int tcp = -1;                 /* to the other process; -1: there is none */
static pid_t child;                  /* the other process, when we started it */
static bool is_child, few_cpus;

/* ------------------------------------------------------------------------------------------------------------------------
 * Time and trouble
 */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* One line on stderr, and the end. */
static __attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...)
{
	va_list args;

	if (isatty(STDOUT_FILENO))
		printf("\r\033[K");
	fflush(stdout);
	fprintf(stderr, "pingpong: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

/* The other process has gone. One that we started, or that started us, has said why itself, unless it was killed. */
static __attribute__((noreturn)) void peer_gone(void)
{
	int status = 0;

	if (is_child)
		exit(1);
	if (child && waitpid(child, &status, 0) == child && !WIFSIGNALED(status))
		exit(1);
	if (child)
		die("the other process was killed by signal %d", WTERMSIG(status));
	die("the peer closed the connection");
}

/* Has the peer closed the connection, or does it within so many ms? Asks for the end itself: unread pulses may lie before it. */
static bool peer_closed(int ms)
{
	struct pollfd p = {tcp, POLLRDHUP, 0};

	return tcp >= 0 && poll(&p, 1, ms) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

/* ------------------------------------------------------------------------------------------------------------------------
 * The TCP connection: addresses at first, then a token at the end of each phase. Nothing that comes in is believed.
 */

/* Waits until the socket is ready, at most until end; false: the time is over. */
static bool tcp_ready(int fd, short events, uint64_t end)
{
	struct pollfd p = {fd, events, 0};
	uint64_t now;
	int n;

	do {
		now = now_ns();
		n = poll(&p, 1, now < end ? (int)((end - now) / 1000000) + 1 : 0);
	} while ((n < 0 && errno == EINTR) || (n == 0 && now < end));
	return n > 0;
}

/* Sends or receives all of buf; what: the name of what is waited for. */
static void tcp_move(bool out, void *buf, size_t len, const char *what)
{
	uint64_t end = now_ns() + opt.timeout * 1000000000ull;
	uint8_t *p = buf;

	while (len) {
		ssize_t n;

		if (!tcp_ready(tcp, out ? POLLOUT : POLLIN, end))
			die("%s the peer within %u s", what, opt.timeout);
		n = out ? send(tcp, p, len, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(tcp, p, len, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n <= 0)
			peer_gone();
		p += n;
		len -= (size_t)n;
	}
}

static void tcp_write(void *from, size_t len)
{
	tcp_move(true, from, len, "nothing is taken by");
}

#define TOKEN_PULSE 0x50554c53u      /* "still at it" */
#define TOKEN_STEP 0x53544550u

/* Both sides have come as far as this. A client in a long run sends pulses, which only prove that it lives. */
static void meet(void)
{
	uint32_t token = htobe32(TOKEN_STEP);

	if (tcp < 0)
		return;
	tcp_write(&token, sizeof(token));
	do
		tcp_move(false, &token, sizeof(token), "no word from");
	while (be32toh(token) == TOKEN_PULSE && !local[0]);
	if (be32toh(token) != TOKEN_STEP)
		die("the peer is out of step: 0x%08x", be32toh(token));
}

/*
 * A greeting is a magic number, the plan and the address, word by word in network order, and the record of connect.h. Plan and address
 * are structs of words and nothing else, so that a loop can convert them.
 */
#define HELLO_MAGIC 0x696e6c61u
#define HELLO_VERSION 3u             /* 3: a record of connect.h */
#define PLAN_WORDS (sizeof(struct plan) / 4)
#define ADDRESS_WORDS (sizeof(struct address) / 4)

static void send_hello(const struct side *s)
{
	uint32_t words[2 + PLAN_WORDS + ADDRESS_WORDS + INLAY_CONNECT_SIZE / 4] = {HELLO_MAGIC, HELLO_VERSION};
	const size_t record = 2 + PLAN_WORDS + ADDRESS_WORDS;

	memcpy(words + 2, &plan, sizeof(plan));
	memcpy(words + 2 + PLAN_WORDS, &s->self, sizeof(s->self));
	for (size_t i = 0; i < record; i++)
		words[i] = htobe32(words[i]);
	inlay_connect_pack(&s->here, (uint8_t *)(words + record));
	tcp_write(words, sizeof(words));
}

/* The peer's plan and address, neither of which is checked here: plan_fault and connect_side do. */
static void read_hello(struct plan *theirs, struct side *s)
{
	uint32_t words[2 + PLAN_WORDS + ADDRESS_WORDS];

	tcp_move(false, words, sizeof(words), "no greeting from");
	for (size_t i = 0; i < sizeof(words) / 4; i++)
		words[i] = be32toh(words[i]);
	if (words[0] != HELLO_MAGIC)
		die("the peer is no pingpong");
	if (words[1] != HELLO_VERSION)
		die("the peer is another version of pingpong");
	memcpy(theirs, words + 2, sizeof(*theirs));
	memcpy(&s->peer, words + 2 + PLAN_WORDS, sizeof(s->peer));
	tcp_move(false, s->record, sizeof(s->record), "no greeting from");
}

/* The server's socket, bound and listening. Tells the port, which with --tcp-port 0 is the kernel's choice. */
static int tcp_listen(void)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *list;
	struct sockaddr_storage name;
	socklen_t len = sizeof(name);
	char service[16], actual[16] = "?";
	int fd, on = 1, err;
	bool loopback;

	snprintf(service, sizeof(service), "%u", opt.tcp_port);
	err = getaddrinfo(opt.bind, service, &hints, &list);
	if (err)
		die("%s: %s", opt.bind, gai_strerror(err));
	fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) || bind(fd, list->ai_addr, list->ai_addrlen) ||
	    listen(fd, 1) || getsockname(fd, (struct sockaddr *)&name, &len))
		die("cannot listen at %s, port %u: %s", opt.bind, opt.tcp_port, strerror(errno));
	freeaddrinfo(list);
	getnameinfo((struct sockaddr *)&name, len, NULL, 0, actual, sizeof(actual), NI_NUMERICSERV);
	loopback = name.ss_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)&name)->sin6_addr) :
						ntohl(((struct sockaddr_in *)&name)->sin_addr.s_addr) >> 24 == 127;
	printf("waiting for a client at %s, port %s%s\n", opt.bind, actual, loopback ? " (--bind ADDR for other machines)" : "");
	fflush(stdout);
	return fd;
}

static void tcp_accept(void)
{
	uint64_t end = now_ns() + opt.timeout * ACCEPT_FACTOR * 1000000000ull;
	int fd = tcp_listen(), on = 1;

	if (!tcp_ready(fd, POLLIN, end))
		die("no client came within %u s", opt.timeout * ACCEPT_FACTOR);
	tcp = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	if (tcp < 0)
		die("accept: %s", strerror(errno));
	setsockopt(tcp, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	close(fd);
}

static void tcp_connect(void)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list, *a;
	uint64_t end = now_ns() + opt.timeout * 1000000000ull;
	char service[16];
	int err, on = 1;
	socklen_t len = sizeof(err);

	snprintf(service, sizeof(service), "%u", opt.tcp_port);
	err = getaddrinfo(opt.host, service, &hints, &list);
	if (err)
		die("%s: %s", opt.host, gai_strerror(err));
	for (a = list, err = ENOENT; a && tcp < 0; a = a->ai_next) {
		int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		err = fd < 0 || connect(fd, a->ai_addr, a->ai_addrlen) ? errno : 0;
		if (err == EINPROGRESS) {
			err = ETIMEDOUT;
			if (tcp_ready(fd, POLLOUT, end))
				getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
		}
		if (!err)
			tcp = fd;
		else if (fd >= 0)
			close(fd);
	}
	freeaddrinfo(list);
	if (tcp < 0)
		die("cannot connect to %s, port %u: %s", opt.host, opt.tcp_port, strerror(err));
	setsockopt(tcp, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Memory: what lies where. Both sides reckon with the same plan and come to the same layout.
 */

static uint32_t slot_stride(uint32_t size)
{
	return (size + 63) / 64 * 64;
}

static uint64_t counter_at(void)
{
	return slot_stride(plan.size_max) + PATTERN_STEPS * 64;
}

static uint64_t slots_at(void)
{
	return (counter_at() + 64 + 4095) / 4096 * 4096;
}

/* Does a rate pause to have its messages checked? A write announces itself to nobody, so it can be checked only while nothing moves. */
static bool rate_pauses(void)
{
	return plan.verify && plan.op == OP_WRITE;
}

/* How many slots a rate has: a window of them, or more where that means fewer pauses. */
static uint32_t rate_slots(uint32_t size, uint64_t bytes)
{
	uint64_t n = bytes / slot_stride(size);

	n = n < MAX_WINDOW ? n : MAX_WINDOW;
	return rate_pauses() && n > plan.window ? (uint32_t)n : plan.window;
}

static uint64_t slot_bytes(void)
{
	return (uint64_t)rate_slots(plan.size_max, CHECKED_MEMORY) * slot_stride(plan.size_max);
}

static uint64_t memory_bytes(void)
{
	return slots_at() + slot_bytes();
}

/*
 * Byte i of the pattern, those before it being there. A hash, so that it has no period. It is never 0, which is what an untouched slot
 * holds. And as the last byte of a written message tells that it is there, it must differ from that of the message that lay in the
 * same of latency's two slots before: 128 bytes back, or after the pattern's last step, so many ahead.
 */
static uint8_t pattern(const uint8_t *mem, uint32_t i)
{
	const uint32_t back = 2 * 64, around = (PATTERN_STEPS - 2) * 64;
	uint32_t x = i;
	uint8_t byte;

	x = (x ^ x >> 16) * 0x7feb352du;
	x = (x ^ x >> 15) * 0x846ca68bu;
	x ^= x >> 16;
	do
		byte = (uint8_t)(1 + x++ % 255);
	while ((i >= back && byte == mem[i - back]) || (i >= around && byte == mem[i - around]));
	return byte;
}

/* Where message i begins in the pattern. */
static uint64_t message_at(uint64_t i)
{
	return i % PATTERN_STEPS * 64;
}

/* Where message i lands. */
static uint64_t landing_at(const struct phase *ph, uint64_t i)
{
	return slots_at() + i % ph->slots * ph->stride;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up: libibverbs
 */

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL), *dev = NULL;
	int err;

	for (int i = 0; list && list[i] && !dev; i++)
		if (opt.device ? !strcmp(opt.device, ibv_get_device_name(list[i])) : mlx5dv_is_supported(list[i]))
			dev = list[i];
	if (!dev && opt.device)
		die("no device %s (ibv_devices lists what there is)", opt.device);
	if (!dev)
		die("no mlx5 device (tests/softdev/run starts a program on the software one)");
	if (!mlx5dv_is_supported(dev))
		die("%s is not an mlx5 device", opt.device);
	ctx = ibv_open_device(dev);
	if (!ctx)
		die("%s: cannot open: %s", ibv_get_device_name(dev), strerror(errno));
	ibv_free_device_list(list);
	err = ibv_query_device(ctx, &device);
	if (err)
		die("ibv_query_device: %s", strerror(err));
	if (!opt.port || opt.port > device.phys_port_cnt)
		die("%s has no port %u, only 1 to %u", ibv_get_device_name(ctx->device), opt.port, device.phys_port_cnt);
	err = ibv_query_port(ctx, (uint8_t)opt.port, &port);
	if (err)
		die("ibv_query_port: %s", strerror(err));
	pd = ibv_alloc_pd(ctx);
	if (!pd)
		die("ibv_alloc_pd: %s", strerror(errno));
}

/* The defaults of connect.h, but for what was asked for. A peer that is gone shows as an error completion within a second or so. */
static struct inlay_connect_attr connect_attr(void)
{
	struct inlay_connect_attr attr = inlay_connect_defaults();

	attr.port = (uint8_t)opt.port;
	attr.gid_index = opt.gid_index;
	attr.mtu = (uint8_t)opt.mtu;
	attr.sl = (uint8_t)opt.sl;
	attr.access |= IBV_ACCESS_REMOTE_ATOMIC;
	attr.min_rnr_timer = 1; /* 10 us: a receive is missing only for a moment */
	return attr;
}

/* Memory, queues and inlay's view of them. */
static void make_side(struct side *s)
{
	struct inlay_connect_attr attr;
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	uint32_t depth = plan.window > 2 * SIGNAL_EVERY ? plan.window : 2 * SIGNAL_EVERY;
	struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD};
	/* Receives come to the buffer, however short: one place to look at. The other way: inlay_cqe_payload. */
	struct mlx5dv_qp_init_attr dv = {.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
					 .create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE};
	uint64_t bytes = memory_bytes();
	int err;

	s->mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->mem == MAP_FAILED)
		die("no memory for %llu bytes", (unsigned long long)bytes);
	for (uint32_t i = 0; i < counter_at(); i++)
		s->mem[i] = pattern(s->mem, i);
	s->mr = ibv_reg_mr(pd, s->mem, bytes, access);
	if (!s->mr)
		die("ibv_reg_mr of %llu bytes: %s", (unsigned long long)bytes, strerror(errno));

	s->ibscq = ibv_create_cq(ctx, (int)depth, NULL, NULL, 0);
	s->ibrcq = ibv_create_cq(ctx, (int)depth, NULL, NULL, 0);
	if (!s->ibscq || !s->ibrcq)
		die("ibv_create_cq: %s", strerror(errno));

	/*
	 * A register that nobody else rings, so that a WQE may be copied into it (BlueFlame). It comes with its own PD. Where there is none
	 * to be had (some virtual machines), the QP's own does, with doorbells only.
	 */
	err = inlay_uar_create(&s->uar, pd, INLAY_UAR_SERIAL, NULL);
	if (err && err != -ENOTSUP)
		die("inlay_uar_create: %s", strerror(-err));
	init.pd = err ? pd : s->uar.pd;
	init.send_cq = s->ibscq;
	init.recv_cq = s->ibrcq;
	init.cap.max_send_wr = depth;
	init.cap.max_recv_wr = plan.window;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	init.cap.max_inline_data = plan.max_inline;
	s->qp = mlx5dv_create_qp(ctx, &init, &dv);
	if (!s->qp && errno == EINVAL && plan.max_inline) {
		init.cap.max_inline_data = 0;
		if (mlx5dv_create_qp(ctx, &init, &dv))
			die("the device takes no QP with %u bytes inline", plan.max_inline);
		errno = EINVAL;
	}
	if (!s->qp)
		die("cannot create a QP with %u requests and %u bytes inline: %s", depth, plan.max_inline, strerror(errno));

	err = init.pd == pd ? inlay_uar_from_qp(&s->uar, s->qp, NULL) : 0;
	err = err ? err : inlay_sq_from_qp(&s->sq, s->qp, &s->uar, NULL, NULL);
	err = err ? err : inlay_rq_from_qp(&s->rq, s->qp, NULL, NULL);
	err = err ? err : inlay_cq_from_cq(&s->scq, s->ibscq, NULL);
	err = err ? err : inlay_cq_from_cq(&s->rcq, s->ibrcq, NULL);
	if (err)
		die("taking over the queues: %s", strerror(-err));

	attr = connect_attr();
	if (inlay_connect_local(&s->here, s->qp, &attr, &why))
		die("%s, port %u: %s", ibv_get_device_name(ctx->device), opt.port, why);
	s->self.rkey = s->mr->rkey;
	s->self.addr_high = (uint32_t)((uintptr_t)s->mem >> 32);
	s->self.addr_low = (uint32_t)(uintptr_t)s->mem;
	s->self.bytes = (uint32_t)bytes;
}

/* To RTS. The peer's address has come from outside. */
static void connect_side(struct side *s)
{
	struct inlay_connect_attr attr = connect_attr();
	const struct address *p = &s->peer;
	struct inlay_connect_record there;

	s->raddr = (uint64_t)p->addr_high << 32 | p->addr_low;
	if (p->bytes != s->self.bytes || s->raddr > UINT64_MAX - p->bytes)
		die("the peer's address makes no sense");
	if (inlay_connect_unpack(&there, s->record, sizeof(s->record), &why) ||
	    inlay_connect_rts(s->qp, &s->here, &there, &attr, &why))
		die("%s", why);
}

/* The send queue leaves its register and the QP goes before the register does. */
static void free_side(struct side *s)
{
	inlay_sq_fini(&s->sq);
	if (ibv_destroy_qp(s->qp) || ibv_destroy_cq(s->ibscq) || ibv_destroy_cq(s->ibrcq) || (s->uar.td && inlay_uar_destroy(&s->uar, NULL)) ||
	    ibv_dereg_mr(s->mr))
		die("cannot take the queues down: %s", strerror(errno));
	munmap(s->mem, memory_bytes());
}

/* ------------------------------------------------------------------------------------------------------------------------
 * The data path
 */

static __attribute__((noinline, cold, noreturn)) void failed(const struct mlx5_cqe64 *cqe)
{
	/* Often the peer has just died, and its closed socket says so better. Of what it had open, that may be closed last. */
	if (peer_closed(500))
		peer_gone();
	if (!inlay_cqe_is_error(cqe))
		die("a completion that fits nothing: %s", inlay_cqe_opcode_name(inlay_cqe_opcode(cqe)));
	die("%s failed: %s (syndrome 0x%02x, vendor's 0x%02x)", inlay_cqe_is_send(cqe) ? op_names[plan.op] : "receive",
	    inlay_syndrome_text(inlay_cqe_syndrome(cqe)), inlay_cqe_syndrome(cqe), inlay_cqe_vendor_syndrome(cqe));
}

/* Posts message i. The device does not see it before a ring. Returns what inlay_post_* returns. */
static int post(struct side *s, const struct phase *ph, uint64_t i, uint32_t flags)
{
	uint64_t landing = landing_at(ph, i), raddr = s->raddr;
	uint8_t *message = s->mem + message_at(i);
	struct ibv_sge from = {(uintptr_t)message, ph->size, s->mr->lkey};
	struct ibv_sge to = {(uintptr_t)s->mem + landing, ph->size, s->mr->lkey};

	switch (plan.op) {
	case OP_WRITE:
		if (ph->size <= plan.max_inline)
			return inlay_post_write_inline(&s->sq, raddr + landing, s->peer.rkey, message, ph->size, flags);
		return inlay_post_write(&s->sq, raddr + landing, s->peer.rkey, &from, 1, flags);
	case OP_SEND:
		if (ph->size <= plan.max_inline)
			return inlay_post_send_inline(&s->sq, message, ph->size, flags);
		return inlay_post_send(&s->sq, &from, 1, flags);
	case OP_READ:
		return inlay_post_read(&s->sq, raddr + message_at(i), s->peer.rkey, &to, 1, flags);
	default:
		return inlay_post_fetch_add(&s->sq, raddr + counter_at(), s->peer.rkey, 1, &to, flags);
	}
}

/* Takes what has completed on the send side: counts it, gives credit back. */
static void poll_sends(struct side *s)
{
	const struct mlx5_cqe64 *cqe;

	while ((cqe = inlay_cq_peek(&s->scq)) != NULL) {
		if (inlay_cqe_is_error(cqe) || inlay_sq_release(&s->sq, cqe) < 0)
			failed(cqe);
		inlay_cq_advance(&s->scq, 1);
		s->send_cqes++;
	}
}

/* Takes one received message, if there is one. */
static bool poll_receive(struct side *s, const struct phase *ph)
{
	const struct mlx5_cqe64 *cqe = inlay_cq_peek(&s->rcq);

	if (!cqe)
		return false;
	if (inlay_cqe_is_error(cqe) || inlay_rq_release(&s->rq, cqe) < 0)
		failed(cqe);
	if (inlay_cqe_byte_count(cqe) != ph->size)
		die("message %llu has %u bytes, not %u", (unsigned long long)s->received, inlay_cqe_byte_count(cqe), ph->size);
	inlay_cq_advance(&s->rcq, 1);
	s->received++;
	return true;
}

/* Posts receives for the messages to come: never more than the phase still needs, never more than there are slots. */
static void post_receives(struct side *s, const struct phase *ph)
{
	uint64_t before = s->receives;

	while (s->receives < ph->iters && s->receives - s->received < ph->slots) {
		struct ibv_sge to = {(uintptr_t)s->mem + landing_at(ph, s->receives), ph->size, s->mr->lkey};

		if (inlay_post_recv(&s->rq, &to, 1))
			break;
		s->receives++;
	}
	if (s->receives != before)
		inlay_rq_ring(&s->rq);
}

/* Is message i here? */
static bool arrived(struct side *s, const struct phase *ph, uint64_t i)
{
	if (plan.op == OP_SEND)
		return s->received > i || poll_receive(s, ph);
	if (plan.op == OP_WRITE) {
		uint64_t last = ph->size - 1;

		if (*(volatile uint8_t *)(s->mem + landing_at(ph, i) + last) != s->mem[message_at(i) + last])
			return false;
		/*
		 * No completion tells of a written message. Adapters write a message in ascending order, so its last byte says that all
		 * are there; the fence keeps the loads of the others, by compiler or CPU, from being done before that of the last.
		 */
		inlay_fence_polled();
		return true;
	}
	poll_sends(s);
	return s->send_cqes > i;
}

/* Is what landed in the slot of message i what was sent? */
static void check(const struct side *s, const struct phase *ph, uint64_t i)
{
	const uint8_t *got = s->mem + landing_at(ph, i), *want = s->mem + message_at(i);
	uint64_t old;
	uint32_t k;

	if (!plan.verify)
		return;
	if (plan.op == OP_ATOMIC) {
		memcpy(&old, got, sizeof(old));
		if (old != i)
			die("atomic %llu found the counter at %llu", (unsigned long long)i, (unsigned long long)old);
		return;
	}
	if (!memcmp(got, want, ph->size))
		return;
	for (k = 0; got[k] == want[k] && k < ph->size - 1; k++)
		;
	die("message %llu of %u bytes: byte %u is 0x%02x, not 0x%02x", (unsigned long long)i, ph->size, k, got[k], want[k]);
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Waiting: a spin that looks up now and then
 */
struct wait {
	uint64_t since, looked;
	uint32_t spins;
};

static void spin(struct wait *w)
{
	uint64_t now;

	if (++w->spins % 256)
		return;
	now = now_ns();
	if (!w->since)
		w->since = w->looked = now;
	if (now - w->looked > 1000000) {
		w->looked = now;
		/* Errors show on the send side, whatever is waited for. */
		for (int k = 0; k < 2; k++)
			if (local[k])
				poll_sends(local[k]);
		if (peer_closed(0))
			peer_gone();
		if (now - w->since > opt.timeout * 1000000000ull)
			die("nothing has moved for %u s", opt.timeout);
	}
	/* Whoever shall answer may be waiting for this very CPU. */
	if (few_cpus)
		sched_yield();
}

/* A line for whoever watches, and for a peer that only waits a sign of life; both at most so often. */
static void progress(const struct phase *ph, const char *what, uint64_t done)
{
	static uint64_t shown, pulsed;
	uint64_t now = now_ns();
	uint32_t token = htobe32(TOKEN_PULSE);

	if (tcp >= 0 && local[0] && now - pulsed > 1000000000) {
		pulsed = now;
		tcp_write(&token, sizeof(token));
	}
	if (is_child || opt.server || !isatty(STDOUT_FILENO) || now - shown < 200000000)
		return;
	shown = now;
	printf("\r%u bytes: %s, %llu of %llu\033[K", ph->size, what, (unsigned long long)done, (unsigned long long)ph->iters);
	fflush(stdout);
}

/* ------------------------------------------------------------------------------------------------------------------------
 * The two measurements. client and server: the sides of this process, NULL for one that is elsewhere.
 */

/* Clears what the last phase left and posts receives: the server's, and the client's when it will be answered. */
static void begin_phase(const struct phase *ph, bool answered)
{
	for (int k = 0; k < 2; k++) {
		struct side *s = local[k];

		if (!s)
			continue;
		memset(s->mem + counter_at(), 0, memory_bytes() - counter_at());
		s->send_cqes = s->receives = s->received = 0;
		if (plan.op == OP_SEND && (k || answered))
			post_receives(s, ph);
	}
	meet();
}

/* Posts message i and rings, with BlueFlame: the way for a single message. */
static void send_one(struct side *s, const struct phase *ph, uint64_t i)
{
	bool passive = plan.op == OP_READ || plan.op == OP_ATOMIC;
	uint32_t flags = passive || i % SIGNAL_EVERY == SIGNAL_EVERY - 1 || i == ph->iters - 1 ? INLAY_SIGNALED : 0;
	struct wait w = {0, 0, 0};
	int err;

	while ((err = post(s, ph, i, flags)) == -EAGAIN) {
		poll_sends(s);
		spin(&w);
	}
	if (err)
		die("cannot post: %s", strerror(-err));
	inlay_sq_ring(&s->sq);
}

static void await(struct side *s, const struct phase *ph, uint64_t i)
{
	struct wait w = {0, 0, 0};

	while (!arrived(s, ph, i))
		spin(&w);
}

/* One message at a time, there and back; reads and atomics are a round trip by themselves. ns: a time for each. */
static void run_latency(struct side *client, struct side *server, const struct phase *ph, uint64_t *ns)
{
	struct wait w = {0, 0, 0};
	uint64_t start = 0;

	if (plan.op == OP_READ || plan.op == OP_ATOMIC)
		server = NULL;
	for (uint64_t i = 0; (client || server) && i < ph->iters; i++) {
		if (client) {
			start = now_ns();
			send_one(client, ph, i);
		}
		if (server) {
			await(server, ph, i);
			send_one(server, ph, i);
		}
		if (client) {
			await(client, ph, i);
			ns[i] = now_ns() - start;
		}
		/* The clock is stopped. Both ends do the same now, so neither makes the other's next message wait. */
		for (int k = 0; k < 2; k++) {
			struct side *s = k ? server : client;

			if (!s)
				continue;
			check(s, ph, i);
			if (plan.op == OP_SEND)
				post_receives(s, ph);
			poll_sends(s);
		}
		if (i % 256 == 0)
			progress(ph, "latency", i);
	}
	/* Nothing may be under way when the next phase clears the slots: the last message is signaled. */
	for (int k = 0; k < 2; k++)
		for (struct side *s = k ? server : client; s && inlay_sq_pending(&s->sq); spin(&w))
			poll_sends(s);
}

/* Messages from to to - 1, as many at a time as the window allows; a batch of posts has one doorbell and one completion. */
static void run_stretch(struct side *client, struct side *server, const struct phase *ph, uint64_t from, uint64_t to)
{
	uint64_t posted = from, done = from, checked = from;
	struct wait w = {0, 0, 0};

	while ((client && done < to) || (server && plan.op == OP_SEND && server->received < to)) {
		uint64_t before = done + (server ? server->received : 0);

		if (client) {
			uint64_t n = to - posted < ph->batch ? to - posted : ph->batch;

			if (n && posted + n - checked <= plan.window) {
				for (uint64_t last = posted + n; posted < last; posted++) {
					int err = post(client, ph, posted, posted == last - 1 ? INLAY_SIGNALED : 0);

					if (err)
						die("cannot post: %s", strerror(-err));
				}
				inlay_sq_ring_doorbell(&client->sq);
			}
			poll_sends(client);
			/* Every stretch but the last is of whole batches, so that completions count the messages. */
			done = client->send_cqes * ph->batch < to ? client->send_cqes * ph->batch : to;
			if (plan.op == OP_READ || plan.op == OP_ATOMIC)
				for (; checked < done; checked++)
					check(client, ph, checked);
			checked = done;
		}
		if (server && plan.op == OP_SEND) {
			for (uint32_t n = 0; n < 16 && poll_receive(server, ph); n++)
				check(server, ph, server->received - 1);
			post_receives(server, ph);
		}
		if (done + (server ? server->received : 0) == before) {
			spin(&w);
		} else {
			w.since = 0;
			progress(ph, "rate", done);
		}
	}
}

/*
 * Returns messages per second. Checked writes go in stretches of as many messages as there are slots. Between two of them nothing is
 * under way, the clock is stopped, and the server looks at every slot before the client may write to it again.
 */
static double run_rate(struct side *client, struct side *server, const struct phase *ph)
{
	uint64_t stretch = rate_pauses() ? ph->slots / ph->batch * ph->batch : ph->iters, to, start, ns = 0;

	for (uint64_t from = 0; from < ph->iters; from = to) {
		to = ph->iters - from < stretch ? ph->iters : from + stretch;
		start = now_ns();
		run_stretch(client, server, ph, from, to);
		ns += now_ns() - start;
		if (!rate_pauses())
			continue;
		meet();
		for (uint64_t i = from; server && i < to; i++)
			check(server, ph, i);
		meet();
	}
	return (double)ph->iters / ((double)ns / 1e9);
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Percentile p of n sorted values: the smallest that at least so many of them do not exceed. */
static uint64_t percentile(const uint64_t *v, uint64_t n, double p)
{
	uint64_t k = (uint64_t)(p / 100 * (double)n + 0.999999);

	return v[k ? k - 1 : 0];
}

static void measure(uint32_t size, struct result *r)
{
	const bool there_and_back = plan.op == OP_WRITE || plan.op == OP_SEND;
	struct phase ph = {.size = size, .slots = 2, .stride = slot_stride(size)};
	uint64_t *ns, n = plan.iters ? plan.iters : size <= 8192 ? 2000 : 1000;

	r->size = size;
	if (!plan.rate_only) {
		ph.warmup = (uint32_t)(n < 1000 ? n / 10 : 100);
		ph.iters = n + ph.warmup;
		ns = calloc(ph.iters, sizeof(*ns));
		if (!ns)
			die("no memory for %llu samples", (unsigned long long)ph.iters);
		begin_phase(&ph, true);
		run_latency(local[0], local[1], &ph, ns);
		meet();
		qsort(ns + ph.warmup, n, sizeof(*ns), by_value);
		for (int k = 0; k < 5; k++)
			r->lat[k] = (double)percentile(ns + ph.warmup, n, (const double[]){0, 50, 99, 99.9, 100}[k]) / 1e3 /
				    (there_and_back ? 2 : 1);
		free(ns);
	}
	ph.iters = plan.iters ? plan.iters : size <= 4096 ? 20000 : 20000ull * 4096 / size + 500;
	ph.slots = rate_slots(size, slot_bytes());
	ph.batch = plan.window / 4 ? plan.window / 4 : 1;
	begin_phase(&ph, false);
	r->rate = run_rate(local[0], local[1], &ph);
	meet();
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Results
 */

static const char *mode_text(void)
{
	return opt.host ? "a server and a client" : child ? "two processes" : "one process";
}

static void print_head(bool software)
{
	printf("pingpong: %s, port %u (%s), %s, %s\n", ibv_get_device_name(ctx->device), opt.port,
	       port.link_layer == IBV_LINK_LAYER_ETHERNET ? "RoCE" : "InfiniBand", op_names[plan.op], mode_text());
	if (software)
		printf("This is the software device: the times are those of a program on this machine's CPUs, not of a network.\n");
	if (!plan.rate_only)
		printf("Latency in us, %s; ", plan.op == OP_WRITE || plan.op == OP_SEND ? "half the round trip" : "the round trip");
	printf("rate with %u messages under way, %u to a doorbell.\n\n%9s", plan.window, plan.window / 4 ? plan.window / 4 : 1, "bytes");
	for (int k = 0; k < 5 && !plan.rate_only; k++)
		printf(" %9s", lat_names[k]);
	printf(" %11s %10s\n", "messages/s", "MB/s");
}

static void print_row(const struct result *r)
{
	if (isatty(STDOUT_FILENO))
		printf("\r\033[K");
	printf("%9u", r->size);
	for (int k = 0; k < 5 && !plan.rate_only; k++)
		printf(" %9.2f", r->lat[k]);
	printf(" %11.0f %10.1f\n", r->rate, r->rate * r->size / 1e6);
	fflush(stdout);
}

static void print_verified(void)
{
	if (!plan.verify)
		printf("\nNothing was verified.\n");
	else if (plan.op == OP_WRITE)
		printf("\nVerified: every byte of every message. For that a rate of writes drains its window from time to time, for "
		       "each size after\nas many messages as have room, 4096 at most; with --no-verify it does not.\n");
	else
		printf("\nVerified: every %s.\n", plan.op == OP_ATOMIC ? "old value of the counter" : "byte of every message");
}

static void write_json(FILE *f, const struct result *r, int n, bool software)
{
	fprintf(f, "{\"program\": \"pingpong\", \"inlay\": \"%d.%d.%d\", \"device\": \"%s\", \"firmware\": \"%s\", "
		"\"software_device\": %s,\n",
		INLAY_VERSION_MAJOR, INLAY_VERSION_MINOR, INLAY_VERSION_PATCH, ibv_get_device_name(ctx->device), device.fw_ver,
		software ? "true" : "false");
	fprintf(f, " \"port\": %u, \"link\": \"%s\", \"op\": \"%s\", \"sides\": \"%s\", \"window\": %u, \"inline\": %u, \"verify\": %s,\n",
		opt.port, port.link_layer == IBV_LINK_LAYER_ETHERNET ? "RoCE" : "InfiniBand", op_names[plan.op], mode_text(), plan.window,
		plan.max_inline, plan.verify ? "true" : "false");
	fprintf(f, " \"latency_is\": \"%s\",\n \"results\": [",
		plan.op == OP_WRITE || plan.op == OP_SEND ? "half round trip" : "round trip");
	for (int i = 0; i < n; i++, r++) {
		fprintf(f, "%s\n  {\"bytes\": %u", i ? "," : "", r->size);
		for (int k = 0; k < 5 && !plan.rate_only; k++)
			fprintf(f, "%s\"%s\": %.3f%s", k ? ", " : ", \"latency_us\": {", lat_names[k], r->lat[k], k == 4 ? "}" : "");
		fprintf(f, ", \"messages_per_s\": %.0f, \"bytes_per_s\": %.0f}", r->rate, r->rate * r->size);
	}
	fprintf(f, "\n ]}\n");
	if (fclose(f))
		die("%s: %s", opt.json, strerror(errno));
}

static void draw(const struct result *r, int n, bool software)
{
	FILE *g = popen("gnuplot >/dev/null 2>&1", "w");

	if (!g)
		die("cannot start gnuplot: %s", strerror(errno));
	fprintf(g, "set terminal png size 900,600\nset output '");
	for (const char *c = opt.plot; *c; c++)
		fprintf(g, "%s%c", *c == '\'' ? "'" : "", *c);
	fprintf(g, "'\n$d << EOD\n");
	for (int i = 0; i < n; i++)
		fprintf(g, "%u %g %g %g\n", r[i].size, r[i].lat[1], r[i].lat[2], r[i].rate);
	fprintf(g, "EOD\nset title 'RDMA %s%s' noenhanced\nset logscale x 2\nset xlabel 'bytes'\nset grid\nset key top left\n",
		op_names[plan.op], software ? " on the software device: not a network' . '" : "");
	fprintf(g, "set y2tics\nset ytics nomirror\nset yrange [0:*]\nset y2range [0:*]\nset xrange [%g:%g]\n", r[0].size / 1.5,
		r[n - 1].size * 1.5);
	if (plan.rate_only)
		fprintf(g, "set ylabel 'messages/s'\nunset y2tics\nplot $d using 1:4 with linespoints title 'messages/s'\n");
	else
		fprintf(g, "set ylabel 'latency, us'\nset y2label 'messages/s'\nplot $d using 1:2 with linespoints title 'median latency', "
			"$d using 1:3 with linespoints title '99 %% latency', "
			"$d using 1:4 axes x1y2 with linespoints title 'messages/s'\n");
	if (pclose(g) != 0)
		die("gnuplot could not draw %s", opt.plot);
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Arguments and the run
 */

static void usage(void)
{
	printf("usage: pingpong [OPTION]... [server | client HOST]\n\n"
	       "Latency and message rate between two queue pairs of an mlx5 device, by message size. "
	       "Without a role both sides run here.\n\n"
	       "  --device D         verbs device; the default is the first mlx5 device\n"
	       "  --port P           its port (1)\n"
	       "  --gid-index G      RoCE: entry of the GID table; the default is RoCE v2's, of an IPv4 address if there is one\n"
	       "  --mtu M            256, 512, 1024, 2048 or 4096 bytes; the default is the port's\n"
	       "  --sl S             service level, 0 to 15 (0)\n"
	       "  --tcp-port T       where server and client meet (18515); for a server 0 means any free port, which it tells\n"
	       "  --bind ADDR        address that the server listens at (127.0.0.1: for this machine only)\n"
	       "  --timeout S        seconds without a sign of the peer until it is given up "
	       "(10; a server waits 12 times that to be found)\n"
	       "  --processes N      without a role: 1 or 2; the default is 2 from four CPUs on; "
	       "$PINGPONG_PROCESSES is another way to say it\n");
	printf("What the client measures; a server takes it from its client:\n"
	       "  --op OP            write, send, read or atomic (write)\n"
	       "  --size N           one size, or --sizes A-B: the powers of two from A to B (2-65536), k and M are understood\n"
	       "  --iters N          messages for each figure (about 2000 for latency, 20000 for rate)\n"
	       "  --window N         messages under way when the rate is measured (64)\n"
	       "  --inline N         payloads up to N bytes travel in the work request (64)\n"
	       "  --rate             only the rate\n"
	       "  --no-verify        do not check what arrives. The default, --verify, checks every byte of every message, "
	       "for latencies and\n"
	       "                     writes while the clock is stopped. For that a rate of writes drains its window from time to time\n"
	       "  --json FILE        results for programs\n"
	       "  --plot FILE.png    a picture, by gnuplot\n");
}

/* A number from min to max, with k or M behind it for 2^10 and 2^20. */
static uint32_t number(const char *option, const char *text, uint32_t min, uint32_t max)
{
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (*end == 'k' || *end == 'K' || *end == 'M') {
		n = n > MAX_MEMORY ? n : n << (*end == 'M' ? 20 : 10);
		end++;
	}
	if (*text < '0' || *text > '9' || *end || errno || n < min || n > max)
		die("%s is a number from %u to %u, not '%s'", option, min, max, text);
	return (uint32_t)n;
}

/* NULL, or what is wrong with a plan: our own, or one that a client sent. */
static const char *plan_fault(const struct plan *p)
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
	if ((uint64_t)p->window * slot_stride(p->size_max) > MAX_MEMORY)
		return "window times size is more than 256 MB";
	return NULL;
}

static void parse(int argc, char **argv)
{
	static const struct option longs[] = {
		{"device", 1, NULL, 'd'}, {"port", 1, NULL, 'p'}, {"gid-index", 1, NULL, 'g'}, {"mtu", 1, NULL, 'm'}, {"sl", 1, NULL, 'l'},
		{"tcp-port", 1, NULL, 't'}, {"bind", 1, NULL, 'b'}, {"timeout", 1, NULL, 'T'}, {"processes", 1, NULL, 'P'},
		{"op", 1, NULL, 'o'}, {"size", 1, NULL, 's'}, {"sizes", 1, NULL, 'S'}, {"iters", 1, NULL, 'n'}, {"window", 1, NULL, 'w'},
		{"inline", 1, NULL, 'i'}, {"rate", 0, NULL, 'r'}, {"verify", 0, NULL, 'v'}, {"no-verify", 0, NULL, 'V'},
		{"json", 1, NULL, 'j'}, {"plot", 1, NULL, 'x'}, {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0}};
	const char *env = getenv("PINGPONG_PROCESSES"), *fault;
	bool sized = false;
	char *dash;
	uint32_t n;
	int c;

	if (env && *env)
		opt.processes = number("PINGPONG_PROCESSES", env, 1, 2);
	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (c) {
		case 'd': opt.device = optarg; break;
		case 'p': opt.port = number("--port", optarg, 1, 255); break;
		case 'g': opt.gid_index = (int)number("--gid-index", optarg, 0, 255); break;
		case 'm':
			n = number("--mtu", optarg, 256, 4096);
			if (n & (n - 1))
				die("--mtu is 256, 512, 1024, 2048 or 4096, not %u", n);
			opt.mtu = (uint32_t)__builtin_ctz(n) - 7; /* IBV_MTU_256 is 1 */
			break;
		case 'l': opt.sl = number("--sl", optarg, 0, 15); break;
		case 't': opt.tcp_port = number("--tcp-port", optarg, 0, 65535); break;
		case 'b': opt.bind = optarg; break;
		case 'T': opt.timeout = number("--timeout", optarg, 1, 3600); break;
		case 'P': opt.processes = number("--processes", optarg, 1, 2); break;
		case 'o':
			for (plan.op = 0; plan.op <= OP_ATOMIC && strcmp(optarg, op_names[plan.op]); plan.op++)
				;
			if (plan.op > OP_ATOMIC)
				die("--op is write, send, read or atomic, not '%s'", optarg);
			break;
		case 's': plan.size_min = plan.size_max = number("--size", optarg, 1, MAX_SIZE); sized = true; break;
		case 'S':
			dash = strchr(optarg, '-');
			if (!dash)
				die("--sizes is two numbers, A-B, not '%s'", optarg);
			*dash = 0;
			plan.size_min = number("--sizes", optarg, 1, MAX_SIZE);
			plan.size_max = number("--sizes", dash + 1, 1, MAX_SIZE);
			sized = true;
			break;
		case 'n': plan.iters = number("--iters", optarg, 1, MAX_ITERS); break;
		case 'w': plan.window = number("--window", optarg, 2, MAX_WINDOW); break;
		case 'i': plan.max_inline = number("--inline", optarg, 0, 1024); break;
		case 'r': plan.rate_only = 1; break;
		case 'v': plan.verify = 1; break;
		case 'V': plan.verify = 0; break;
		case 'j': opt.json = optarg; break;
		case 'x': opt.plot = optarg; break;
		case 'h': usage(); exit(0);
		default: exit(2); /* getopt_long has said why */
		}
	}
	if (plan.op == OP_ATOMIC && !sized)
		plan.size_min = plan.size_max = 8;
	fault = plan_fault(&plan);
	if (fault)
		die("%s", fault);
	argc -= optind;
	argv += optind;
	if (argc && !strcmp(argv[0], "server") && argc == 1)
		opt.server = true;
	else if (argc && !strcmp(argv[0], "client") && argc == 2)
		opt.host = argv[1];
	else if (argc)
		die("the arguments are nothing, or 'server', or 'client HOST' (try --help)");
	if (opt.server && (opt.json || opt.plot))
		die("the results are the client's: give it --json and --plot");
	if (opt.host && !opt.tcp_port)
		die("a client needs the port that its server told (--tcp-port)");
}

/* Takes our half of two processes, or both halves of one; connects TCP. The device is opened where an error is said only once. */
static void take_sides(void)
{
	cpu_set_t set;
	int pair[2], cpus;

	/* Those that we may use, which taskset or a container may have made fewer. It fails only where there are more than 1024. */
	cpus = sched_getaffinity(0, sizeof(set), &set) ? CPU_SETSIZE : CPU_COUNT(&set);
	few_cpus = cpus < 4;
	if (opt.server) {
		open_device();
		tcp_accept();
	} else if (opt.host) {
		open_device();
		tcp_connect();
	} else if (opt.processes ? opt.processes == 2 : cpus >= 4) {
		/* Before the device is opened: neither its registers nor its memory survive a fork. */
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
			die("socketpair: %s", strerror(errno));
		child = fork();
		if (child < 0)
			die("fork: %s", strerror(errno));
		is_child = !child;
		tcp = pair[is_child];
		close(pair[!is_child]);
		if (!is_child)
			open_device();
	} else {
		open_device();
	}
}

/* Makes the sides of this process and connects them, with each other or with the peer's. */
static void set_up(struct side sides[2])
{
	bool client = !opt.server && !is_child;
	struct side *s = &sides[client ? 0 : 1];
	struct plan theirs = plan;
	const char *fault;

	if (tcp < 0) {
		local[0] = &sides[0];
		local[1] = &sides[1];
		make_side(local[0]);
		make_side(local[1]);
		sides[0].peer = sides[1].self;
		sides[1].peer = sides[0].self;
		inlay_connect_pack(&sides[1].here, sides[0].record);
		inlay_connect_pack(&sides[0].here, sides[1].record);
		connect_side(local[0]);
		connect_side(local[1]);
		return;
	}
	if (client) {
		make_side(s);
		send_hello(s);
		read_hello(&theirs, s);
		if (memcmp(&theirs, &plan, sizeof(plan)))
			die("the server answers another question");
	} else {
		read_hello(&theirs, s);
		fault = plan_fault(&theirs);
		if (fault)
			die("the client wants what cannot be: %s", fault);
		plan = theirs;
		if (is_child)
			open_device();
		make_side(s);
		send_hello(s);
	}
	local[client ? 0 : 1] = s;
	connect_side(s);
	meet();
}

int main(int argc, char **argv)
{
	static struct side sides[2];
	struct result results[32];
	bool software, quiet;
	FILE *json = NULL, *picture;
	int n = 0, status = 0;

	signal(SIGPIPE, SIG_IGN);
	parse(argc, argv);
	/* What would spoil the end of a long run is better known before it. */
	if (opt.plot && system("command -v gnuplot >/dev/null 2>&1"))
		die("--plot needs gnuplot, which is not installed");
	/* Only opened, so that an older picture outlives a run that fails. */
	if (opt.plot && (!(picture = fopen(opt.plot, "ae")) || fclose(picture)))
		die("%s: %s", opt.plot, strerror(errno));
	if (opt.json && !(json = fopen(opt.json, "we")))
		die("%s: %s", opt.json, strerror(errno));

	take_sides();
	set_up(sides);
	software = dlsym(RTLD_DEFAULT, "softdev_manual") != NULL;
	quiet = opt.server || is_child;
	if (!quiet)
		print_head(software);
	for (uint32_t size = plan.size_min; size <= plan.size_max; size = 2u << (31 - __builtin_clz(size))) {
		measure(size, &results[n]);
		if (!quiet)
			print_row(&results[n]);
		n++;
	}
	for (int k = 0; k < 2; k++)
		if (local[k])
			free_side(local[k]);
	if (opt.server)
		printf("served a client: %s, %u to %u bytes\n", op_names[plan.op], plan.size_min, plan.size_max);
	if (child && (waitpid(child, &status, 0) != child || status))
		die("the other process did not end well");
	if (!quiet)
		print_verified();
	if (fflush(stdout) || ferror(stdout))
		die("the results could not all be written to standard output");
	if (quiet)
		return 0;
	if (json)
		write_json(json, results, n, software);
	if (opt.plot)
		draw(results, n, software);
	return 0;
}
