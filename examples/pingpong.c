/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pingpong.c: latency and bandwidth of RDMA writes or sends between two queue pairs, by message
 * size. libibverbs makes the queues; every post, doorbell and completion is inlay's. Copy from it:
 *
 *   common/side.h              queues and a doorbell register, to RTS
 *   post, progress             the data path
 *   latency, bandwidth         the two loops
 *
 * The two sides are processes: this one and its child, or a server and a client with the same
 * options. Verified are all messages of the first loop and the last window of the second one.
 */
#define _GNU_SOURCE
#include <inlay/inlay.h>
#include "common/pattern.h"
#include "common/peer.h"
#include "common/side.h"

#define INLINE 64u          /* shorter payloads travel in the WQE */
#define SIGNAL_EVERY 32u    /* messages for one completion, in the first loop */
#define STRIDE(size) (((size) + 63) / 64 * 64)

static struct {
	const char *device, *bind, *op, *host;
	uint32_t port, gid_index, tclass, tcp_port, min, max, iters, window;
	int server, sends;
} opt = {.bind = "127.0.0.1", .op = "write", .port = 1, .gid_index = UINT32_MAX, .tcp_port = 18515, .min = 2, .max = 65536,
	 .iters = 500, .window = 64};

/* Sent by each side to the other, before they connect. */
static struct hello {
	char terms[64];                 /* what is measured: the same on both sides */
	uint8_t record[INLAY_CONNECT_SIZE];
	uint64_t addr_be;               /* memory */
	uint32_t rkey_be, zero;
} mine, theirs;

static struct side side;
static struct ibv_mr *mr;
static uint8_t *mem;             /* the pattern | landing slots */
static size_t first_slot, bytes; /* their offset; all of it */

/* A loop over messages of one size. Message i lands in slot i % slots. */
static struct loop {
	uint32_t size, slots;
	uint64_t messages, sends, receives, received; /* sends completed; receives posted, completed */
} loop;

/* ---- Set-up ---- */

static void open_ours(void)
{
	const uint32_t depth = opt.window > 2 * SIGNAL_EVERY ? opt.window : 2 * SIGNAL_EVERY;

	side.attr = inlay_connect_defaults();
	side.attr.port = (uint8_t)opt.port;
	side.attr.gid_index = (int)opt.gid_index;
	side.attr.traffic_class = (uint8_t)opt.tclass;
	side.attr.min_rnr_timer = 1; /* 10 us: a receive is missing only for a moment */
	side_open(&side, opt.device, (struct ibv_qp_cap){depth, opt.window, 1, 1, INLINE});
	first_slot = pattern_bytes(opt.max);
	bytes = first_slot + (size_t)opt.window * STRIDE(opt.max);
	mem = memory(bytes);
	pattern_fill(mem, opt.max);
	mr = ibv_reg_mr(side.pd, mem, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	must(mr != NULL, "registering memory");
	memcpy(mine.record, side.record, sizeof(mine.record));
	mine.addr_be = htobe64((uintptr_t)mem);
	mine.rkey_be = htobe32(mr->rkey);
	peer_tell(&mine, sizeof(mine));
}

/* A server makes its side when it has heard of the client, so that what is wrong is said once. */
static void set_up(void)
{
	snprintf(mine.terms, sizeof(mine.terms), "inlay pingpong: %d %u-%u %u %u", opt.sends, opt.min, opt.max, opt.iters,
		 opt.window);
	if (!opt.server)
		open_ours();
	peer_move(0, &theirs, sizeof(theirs), "no greeting from");
	must(!memcmp(mine.terms, theirs.terms, sizeof(mine.terms)), "finding the same options on both sides");
	if (opt.server)
		open_ours();
	side_connect(&side, theirs.record);
}

/* ---- The data path ---- */

static uint8_t *slot(uint64_t i)
{
	return mem + first_slot + i % loop.slots * STRIDE(loop.size);
}

/* Posts message i. The device does not see it before a ring. */
static int post(uint64_t i, uint32_t flags)
{
	uint8_t *message = pattern_message(mem, i);
	struct ibv_sge sge = {(uintptr_t)message, loop.size, mr->lkey};
	uint64_t raddr = be64toh(theirs.addr_be) + (uint64_t)(slot(i) - mem);
	uint32_t rkey = be32toh(theirs.rkey_be);

	if (opt.sends)
		return loop.size <= INLINE ? inlay_post_send_inline(&side.sq, message, loop.size, flags) :
					     inlay_post_send(&side.sq, &sge, 1, flags);
	return loop.size <= INLINE ? inlay_post_write_inline(&side.sq, raddr, rkey, message, loop.size, flags) :
				     inlay_post_write(&side.sq, raddr, rkey, &sge, 1, flags);
}

/* As many receives as the loop still needs and there are slots. */
static void post_receives(void)
{
	const uint64_t before = loop.receives;

	for (; loop.receives < loop.messages && loop.receives - loop.received < loop.slots; loop.receives++) {
		struct ibv_sge to = {(uintptr_t)slot(loop.receives), loop.size, mr->lkey};

		need(inlay_post_recv(&side.rq, &to, 1), "a receive");
	}
	if (loop.receives != before)
		inlay_rq_ring(&side.rq);
}

static __attribute__((noinline, cold, noreturn)) void failed(const struct mlx5_cqe64 *cqe)
{
	/* Often the peer has just died, and its closed socket says so better. */
	if (peer_left(500))
		peer_gone();
	die("%s: %s (syndrome 0x%02x, vendor's 0x%02x)", inlay_cqe_opcode_name(inlay_cqe_opcode(cqe)),
	    inlay_syndrome_text(inlay_cqe_syndrome(cqe)), inlay_cqe_syndrome(cqe), inlay_cqe_vendor_syndrome(cqe));
}

/* Takes all completions. */
static void progress(void)
{
	const struct mlx5_cqe64 *cqe;

	for (; (cqe = inlay_cq_peek(&side.cq)); inlay_cq_advance(&side.cq, 1)) {
		if (inlay_cqe_is_error(cqe))
			failed(cqe);
		if (inlay_cqe_is_send(cqe)) {
			must(inlay_sq_release(&side.sq, cqe) > 0, "the completion of a send");
			loop.sends++;
		} else {
			uint8_t *to = slot(loop.received++);
			const void *data = inlay_cqe_data(cqe, inlay_cq_cqe_size(&side.cq), to); /* short: in the CQE itself */

			must(inlay_rq_release(&side.rq, cqe) == 1 && data && inlay_cqe_byte_count(cqe) == loop.size, "a message of this size");
			if (data != to)
				memcpy(to, data, loop.size);
		}
	}
}

static void await(uint64_t i)
{
	const uint32_t last = loop.size - 1;

	for (struct wait w = {0, 0, 0}; opt.sends ? loop.received <= i : *(volatile uint8_t *)(slot(i) + last) !=
	     pattern_message(mem, i)[last]; peer_wait(&w))
		progress(); /* errors show here, whatever is waited for */
	/* Only its last byte tells of a write. Adapters write it last; the others must be loaded after it. */
	inlay_fence_polled();
}

/* ---- The loops ---- */

/* Both sides begin with empty slots. */
static void begin(uint32_t size, uint32_t slots, uint64_t messages, int receives)
{
	loop = (struct loop){size, slots, messages, 0, 0, 0};
	memset(mem + first_slot, 0, bytes - first_slot);
	if (opt.sends && receives)
		post_receives();
	peer_meet(0);
}

/* With BlueFlame: the way for a single message. */
static void send_one(uint64_t i)
{
	const int signaled = i % SIGNAL_EVERY == SIGNAL_EVERY - 1 || i == loop.messages - 1;
	struct wait w = {0, 0, 0};
	int err;

	for (; (err = post(i, signaled ? INLAY_SIGNALED : 0)) == -EAGAIN; peer_wait(&w))
		progress();
	need(err, "a post");
	inlay_sq_ring(&side.sq);
}

/* One message at a time, there and back. The times go to ns. */
static void latency(uint32_t size, uint64_t *ns)
{
	begin(size, 2, opt.iters + opt.iters / 10, 1);
	for (uint64_t i = 0; i < loop.messages; i++) {
		uint64_t start = now_ns();

		if (opt.server)
			await(i);
		send_one(i);
		if (!opt.server)
			await(i);
		ns[i] = (now_ns() - start) / 2;
		pattern_check(slot(i), mem, i, size);
		if (opt.sends)
			post_receives();
		progress();
	}
	/* Nothing may be under way when the next loop begins: the last message is signaled. */
	for (struct wait w = {0, 0, 0}; inlay_sq_pending(&side.sq); peer_wait(&w))
		progress();
}

/* A window of messages under way, with a doorbell and a completion for each quarter. Returns messages per second. */
static double bandwidth(uint32_t size)
{
	const uint64_t batch = opt.window / 4 ? opt.window / 4 : 1;
	uint64_t posted = 0, before = 0, start;
	struct wait w = {0, 0, 0};

	begin(size, opt.window, (10 * (uint64_t)opt.iters / (1 + size / 4096) / batch + 1) * batch, opt.server);
	start = now_ns();
	while (opt.server ? opt.sends && loop.received < loop.messages : loop.sends * batch < loop.messages) {
		if (!opt.server && posted < loop.messages && posted + batch - loop.sends * batch <= opt.window) {
			for (uint64_t k = 1; k <= batch; k++)
				need(post(posted++, k == batch ? INLAY_SIGNALED : 0), "a post");
			inlay_sq_ring_doorbell(&side.sq);
		}
		progress();
		if (opt.server)
			post_receives();
		if (loop.sends + loop.received == before)
			peer_wait(&w);
		else
			w.since = 0;
		before = loop.sends + loop.received;
	}
	start = now_ns() - start;
	peer_meet(opt.server);
	for (uint64_t i = loop.messages < loop.slots ? 0 : loop.messages - loop.slots; opt.server && i < loop.messages; i++)
		pattern_check(slot(i), mem, i, size);
	return (double)loop.messages * 1e9 / (double)start;
}

/* ---- The program ---- */

static void sizes(const char *text)
{
	char *dash = strchr(text, '-');

	if (dash)
		*dash = 0;
	opt.min = opt.max = number("size", text, 1, 8u << 20);
	if (dash)
		opt.max = number("size", dash + 1, opt.min, 8u << 20);
}

static const struct option_of options[] = {
	{"device", "NAME", "mlx5 device (the first one)", .string = &opt.device},
	{"port", "N", "its port (1)", .number = &opt.port, .min = 1, .max = 255},
	{"gid-index", "N", "RoCE: entry of the GID table (the best one)", .number = &opt.gid_index, .max = 255},
	{"tclass", "N", "traffic class (the peer's)", .number = &opt.tclass, .max = 255},
	{"tcp-port", "N", "where they meet; a server with 0 tells which (18515)", .number = &opt.tcp_port, .max = 65535},
	{"bind", "ADDRESS", "where a server listens (127.0.0.1: for this machine only)", .string = &opt.bind},
	{"timeout", "S", "seconds without a sign of the peer; a server waits 12 times that to be found (10)",
	 .number = &peer.timeout, .min = 1, .max = 3600},
	{"op", "OP", "write or send (write)", .string = &opt.op},
	{"size", "N[-M]", "one size, or the powers of two from N to M; k and M are understood (2-64k)", .call = sizes},
	{"iters", "N", "messages of the first loop; up to 10 times as many of the second (500)", .number = &opt.iters, .min = 1,
	 .max = 10000000},
	{"window", "N", "messages under way in the second (64)", .number = &opt.window, .min = 2, .max = 4096},
	{.name = NULL}};

int main(int argc, char **argv)
{
	int left = arguments(argc, argv, "Latency and bandwidth between two queue pairs. Without a role both sides run here.",
			     "[server | client HOST]", options);
	uint64_t *ns;

	opt.sends = !strcmp(opt.op, "send");
	opt.server = left == 1 && !strcmp(argv[0], "server");
	opt.host = left == 2 && !strcmp(argv[0], "client") ? argv[1] : NULL;
	if (!opt.sends && strcmp(opt.op, "write"))
		wrong("--op is write or send, not '%s'", opt.op);
	if (left && !opt.server && !opt.host)
		wrong("the arguments are nothing, or 'server', or 'client HOST' (try --help)");
	if (opt.window * (uint64_t)STRIDE(opt.max) > 256u << 20)
		wrong("window times size is more than 256 MB");
	need_device(opt.device);
	if (opt.host)
		peer.wire = socket_connect(opt.host, opt.tcp_port, peer.timeout);
	else if (opt.server)
		peer.wire = socket_accept(opt.bind, opt.tcp_port, 12 * peer.timeout);
	else
		opt.server = peer_fork();
	set_up();

	ns = memory((opt.iters + opt.iters / 10) * sizeof(*ns));
	if (!opt.server)
		printf("pingpong: %s, port %u (%s), %s%s\n%9s %9s %9s %9s %9s %11s %10s\n", ibv_get_device_name(side.pd->context->device),
		       opt.port, side.here.link == INLAY_CONNECT_IB ? "InfiniBand" : "RoCE", opt.op,
		       on_softdev() ? ": the software device, whose times are not those of a network" : "", "bytes", "min, us",
		       "median", "99 %", "max", "messages/s", "MB/s");
	for (uint32_t size = opt.min; size <= opt.max; size = 2u << (31 - __builtin_clz(size))) {
		double rate;

		latency(size, ns);
		rate = bandwidth(size);
		qsort(ns + opt.iters / 10, opt.iters, sizeof(*ns), order_of_times);
		if (opt.server)
			continue;
		printf("%9u", size);
		for (int k = 0; k < 4; k++)
			printf(" %9.2f", (double)percentile(ns + opt.iters / 10, opt.iters, (const double[]){0, 50, 99, 100}[k]) / 1e3);
		printf(" %11.0f %10.1f\n", rate, rate * size / 1e6);
		fflush(stdout);
	}
	must(!ibv_dereg_mr(mr), "deregistering memory");
	side_close(&side);
	free(mem);
	free(ns);
	peer_join();
	if (!peer.is_child)
		printf("%s\n", opt.server ? "served a client" : "verified");
	if (fflush(stdout) || ferror(stdout))
		die("the results could not all be written to standard output");
	return 0;
}
