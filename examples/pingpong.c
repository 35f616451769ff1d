/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pingpong.c: latency and message rate between two queue pairs, by message size. libibverbs makes
 * the queues; every post, doorbell and completion is inlay's. Copy from it what you need:
 *
 *   make_side, connect_side          queues and memory, a doorbell register of one's own, to RTS
 *   post, poll_sends, poll_receive   the data path
 *   run_latency, run_rate            the two loops
 *
 * The two sides are one process (one thread drives both in turn), two processes, or a server and a
 * client. The same loops serve all three: each is given the sides that live in this process, NULL
 * for the one that does not.
 *
 * common/ has the rest: arguments and results (plan.h), the other process (peer.h), messages whose
 * every byte is verified (pattern.h). The clock stops while a message is checked, except in a rate
 * of sends, reads or atomics.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdbool.h>
#include <infiniband/verbs.h>
#include <inlay/inlay.h>
#include "common/pattern.h"
#include "common/plan.h"

#define CHECKED_MEMORY (4u << 20) /* bytes of landing slots that a rate of writes may use, to be checked less often */
#define SIGNAL_EVERY 32           /* latency: messages for one completion */

/* What a loop does. Message i lands in slot i % slots; a batch has one doorbell and completion */
struct phase {
	uint32_t size, warmup, slots, stride, batch;
	uint64_t iters;              /* warm-up included */
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
	uint64_t send_cqes, receives, received; /* of this phase: completions, receives posted, messages received */
	struct inlay_connect_record here;
	struct hello self, peer;     /* what this side says, what the peer has said */
	uint64_t raddr;              /* the peer's memory */
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct side *local[2];        /* the sides of this process: client, server */

/* Both sides have come as far as this. A client in a long run sends pulses. */
static void meet(void)
{
	peer_meet(!local[0]);
}

/* ---- Memory: what lies where. Both sides reckon with the same plan and come to the same layout. ---- */

static struct {
	uint64_t counter, slots, bytes;
} at;                                /* offsets in mem, and its size */

static uint32_t slot_stride(uint32_t size)
{
	return (size + 63) / 64 * 64;
}

/* Nobody is told of a written message: a rate of writes pauses to have its messages checked. */
static bool rate_pauses(void)
{
	return plan.verify && plan.op == OP_WRITE;
}

/* Slots of a rate in so many bytes: a window of them, or more if that means fewer pauses. */
static uint32_t rate_slots(uint32_t size, uint64_t bytes)
{
	uint64_t n = bytes / slot_stride(size);

	n = n < MAX_WINDOW ? n : MAX_WINDOW;
	return rate_pauses() && n > plan.window ? (uint32_t)n : plan.window;
}

static void lay_out(void)
{
	at.counter = pattern_bytes(plan.size_max);
	at.slots = (at.counter + 64 + 4095) / 4096 * 4096;
	at.bytes = at.slots + (uint64_t)rate_slots(plan.size_max, CHECKED_MEMORY) * slot_stride(plan.size_max);
}

/* Where message i lands. */
static uint64_t landing_at(const struct phase *ph, uint64_t i)
{
	return at.slots + i % ph->slots * ph->stride;
}

/* ---- Set-up ---- */

/* Memory, queues, and inlay's view of them. */
static void make_side(struct side *s)
{
	const int access =
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	uint32_t depth = plan.window > 2 * SIGNAL_EVERY ? plan.window : 2 * SIGNAL_EVERY;
	struct ibv_qp_init_attr like = {.qp_type = IBV_QPT_RC, .cap = {depth, plan.window, 1, 1, plan.max_inline}};
	struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_RC, .cap = like.cap, .comp_mask = IBV_QP_INIT_ATTR_PD};
	/* Receives come to the buffer, however short. The other way: inlay_cqe_payload */
	struct mlx5dv_qp_init_attr dv = {.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
					 .create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE};
	struct inlay_connect_attr attr = plan_connect_attr();
	int err;

	lay_out();
	s->mem = memory(at.bytes);
	pattern_fill(s->mem, plan.size_max);
	s->mr = ibv_reg_mr(pd, s->mem, at.bytes, access);
	if (!s->mr)
		die("ibv_reg_mr of %llu bytes: %s", (unsigned long long)at.bytes, strerror(errno));
	s->self.rkey = s->mr->rkey;
	s->self.high = (uint32_t)((uintptr_t)s->mem >> 32);
	s->self.low = (uint32_t)(uintptr_t)s->mem;
	s->self.bytes = (uint32_t)at.bytes;

	s->ibscq = ibv_create_cq(ctx, (int)inlay_send_cqes(&like), NULL, NULL, 0);
	s->ibrcq = ibv_create_cq(ctx, (int)inlay_recv_cqes(&like), NULL, NULL, 0);
	if (!s->ibscq || !s->ibrcq)
		die("ibv_create_cq: %s", strerror(errno));

	/*
	 * A register of one's own, so that a WQE may be copied into it (BlueFlame); one would do for all
	 * queues of a thread. It comes with a PD. Where there is none to be had (some virtual machines),
	 * the QP's own does, with doorbells only.
	 */
	err = inlay_uar_create(&s->uar, pd, INLAY_UAR_SERIAL, &why);
	if (err != -ENOTSUP)
		need(err, "a doorbell register");
	why = NULL;
	init.pd = err ? pd : s->uar.pd;
	init.send_cq = s->ibscq;
	init.recv_cq = s->ibrcq;
	s->qp = mlx5dv_create_qp(ctx, &init, &dv);
	if (!s->qp)
		die("no queue pair with %u requests and %u bytes inline: %s", depth, plan.max_inline, strerror(errno));
	if (err)
		need(inlay_uar_from_qp(&s->uar, s->qp, &why), "the QP's register");
	need(inlay_cq_from_cq(&s->scq, s->ibscq, &why), "the send CQ");
	need(inlay_cq_from_cq(&s->rcq, s->ibrcq, &why), "the receive CQ");
	need(inlay_sq_from_qp(&s->sq, s->qp, &s->uar, &s->scq, &why), "the send queue");
	need(inlay_rq_from_qp(&s->rq, s->qp, &s->rcq, &why), "the receive queue");
	need(inlay_connect_local(&s->here, s->qp, &attr, &why), ibv_get_device_name(ctx->device));
	inlay_connect_pack(&s->here, s->self.record);
}

/* To RTS. What the peer has said of itself has come from outside. */
static void connect_side(struct side *s)
{
	struct inlay_connect_attr attr = plan_connect_attr();
	struct inlay_connect_record there;

	s->raddr = (uint64_t)s->peer.high << 32 | s->peer.low;
	if (s->peer.bytes != s->self.bytes || s->raddr > UINT64_MAX - s->peer.bytes)
		die("the peer's memory makes no sense");
	need(inlay_connect_unpack(&there, s->peer.record, INLAY_CONNECT_SIZE, &why), "the peer");
	need(inlay_connect_rts(s->qp, &s->here, &there, &attr, &why), "the peer");
}

/* The QP goes, and the send queue leaves its register, before the register goes. */
static void free_side(struct side *s)
{
	if (ibv_destroy_qp(s->qp))
		die("cannot destroy the queue pair: %s", strerror(errno));
	inlay_sq_fini(&s->sq);
	if (ibv_destroy_cq(s->ibscq) || ibv_destroy_cq(s->ibrcq) ||
	    (s->uar.td && inlay_uar_destroy(&s->uar, NULL)) || ibv_dereg_mr(s->mr))
		die("cannot take the queues down: %s", strerror(errno));
	free(s->mem);
}

/* ---- The data path ---- */

static __attribute__((noinline, cold, noreturn)) void failed(const struct mlx5_cqe64 *cqe)
{
	/* Often the peer has just died, and its closed socket says so better. */
	if (peer_left(500))
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
	uint8_t *message = pattern_message(s->mem, i);
	struct ibv_sge from = {(uintptr_t)message, ph->size, s->mr->lkey};
	struct ibv_sge to = {(uintptr_t)s->mem + landing, ph->size, s->mr->lkey};
	struct inlay_wr add = {.raddr = raddr + at.counter, .rkey = s->peer.rkey, .data = s->mem + landing, .lkey = s->mr->lkey};

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
		return inlay_post_read(&s->sq, raddr + (uint64_t)(message - s->mem), s->peer.rkey, &to, 1, flags);
	default:
		return inlay_post_atomic(&s->sq, inlay_atomic_add(1), &add, flags);
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
		die("message %llu has %u bytes, not %u", (unsigned long long)s->received, inlay_cqe_byte_count(cqe),
		    ph->size);
	inlay_cq_advance(&s->rcq, 1);
	s->received++;
	return true;
}

/* Posts receives: no more than the phase still needs, no more than there are slots. */
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

		if (*(volatile uint8_t *)(s->mem + landing_at(ph, i) + last) != pattern_message(s->mem, i)[last])
			return false;
		/*
		 * No completion tells of a written message. Adapters write a message in ascending
		 * order, so its last byte says that all are there; the fence keeps the loads of the
		 * others after that of the last.
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
	const uint8_t *got = s->mem + landing_at(ph, i);
	uint64_t old;

	memcpy(&old, got, sizeof(old));
	if (plan.verify && plan.op == OP_ATOMIC && old != i)
		die("atomic %llu found the counter at %llu", (unsigned long long)i, (unsigned long long)old);
	if (plan.verify && plan.op != OP_ATOMIC)
		pattern_check(got, s->mem, i, ph->size);
}

/* Waits, with an eye on the peer and on the time. */
static void spin(struct wait *w)
{
	/* Errors show on the send side, whatever is waited for. */
	for (int k = peer_wait(w) ? 0 : 2; k < 2; k++)
		if (local[k])
			poll_sends(local[k]);
}

/* ---- The two measurements. client and server: the sides of this process, NULL for one that is elsewhere. ---- */

/* Clears the last phase's messages; posts receives of sides that receive at first. */
static void begin_phase(const struct phase *ph, bool answered)
{
	for (int k = 0; k < 2; k++) {
		struct side *s = local[k];

		if (!s)
			continue;
		memset(s->mem + at.counter, 0, at.bytes - at.counter);
		s->send_cqes = s->receives = s->received = 0;
		if (plan.op == OP_SEND && (k || answered))
			post_receives(s, ph);
	}
	meet();
}

/* Posts message i and rings, with BlueFlame: the way for a single message. */
static void send_one(struct side *s, const struct phase *ph, uint64_t i)
{
	bool each = plan.op == OP_READ || plan.op == OP_ATOMIC || i % SIGNAL_EVERY == SIGNAL_EVERY - 1 ||
		    i == ph->iters - 1;
	struct wait w = {0, 0, 0};
	int err;

	while ((err = post(s, ph, i, each ? INLAY_SIGNALED : 0)) == -EAGAIN) {
		poll_sends(s);
		spin(&w);
	}
	need(err, "a post");
	inlay_sq_ring(&s->sq);
}

static void await(struct side *s, const struct phase *ph, uint64_t i)
{
	struct wait w = {0, 0, 0};

	while (!arrived(s, ph, i))
		spin(&w);
}

/* One message at a time, there and back. Reads and atomics are a round trip by themselves. */
static void run_latency(struct side *client, struct side *server, const struct phase *ph, uint64_t *ns)
{
	struct side *both[2] = {client, plan.op == OP_READ || plan.op == OP_ATOMIC ? NULL : server};
	struct wait w = {0, 0, 0};
	uint64_t start = 0;

	for (uint64_t i = 0; (both[0] || both[1]) && i < ph->iters; i++) {
		if (client) {
			start = now_ns();
			send_one(client, ph, i);
		}
		if (both[1]) {
			await(both[1], ph, i);
			send_one(both[1], ph, i);
		}
		if (client) {
			await(client, ph, i);
			ns[i] = now_ns() - start;
		}
		/* The clock is stopped. Both ends do the same, so neither waits for the other. */
		for (int k = 0; k < 2; k++)
			if (both[k]) {
				check(both[k], ph, i);
				if (plan.op == OP_SEND)
					post_receives(both[k], ph);
				poll_sends(both[k]);
			}
		if (client && i % 256 == 0)
			peer_pulse();
	}
	/* Nothing may be under way when the next phase begins: the last message is signaled. */
	for (int k = 0; k < 2; k++)
		for (; both[k] && inlay_sq_pending(&both[k]->sq); spin(&w))
			poll_sends(both[k]);
}

/* Messages from .. to - 1, as many at a time as the window allows, a doorbell for each batch. */
static void run_stretch(struct side *client, struct side *server, const struct phase *ph, uint64_t from, uint64_t to)
{
	uint64_t posted = from, done = from, checked = from;
	struct wait w = {0, 0, 0};

	while ((client && done < to) || (server && plan.op == OP_SEND && server->received < to)) {
		uint64_t before = done + (server ? server->received : 0);

		if (client) {
			uint64_t n = to - posted < ph->batch ? to - posted : ph->batch;

			if (n && posted + n - checked <= plan.window) {
				for (uint64_t last = posted + n; posted < last; posted++)
					need(post(client, ph, posted, posted == last - 1 ? INLAY_SIGNALED : 0),
					     "a post");
				inlay_sq_ring_doorbell(&client->sq);
			}
			poll_sends(client);
			/* Whole batches, but for the last: completions count messages. */
			done = client->send_cqes * ph->batch < to ? client->send_cqes * ph->batch : to;
			for (; checked < done; checked++)
				if (plan.op == OP_READ || plan.op == OP_ATOMIC)
					check(client, ph, checked);
		}
		if (server && plan.op == OP_SEND) {
			for (uint32_t n = 0; n < 16 && poll_receive(server, ph); n++)
				check(server, ph, server->received - 1);
			post_receives(server, ph);
		}
		if (client)
			peer_pulse();
		if (done + (server ? server->received : 0) == before)
			spin(&w);
		else
			w.since = 0;
	}
}

/*
 * Returns messages per second. Checked writes go in stretches of as many messages as there are
 * slots. Between two of them nothing is under way, the clock is stopped, and the server looks at
 * every slot before the client may write to it again.
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

static void measure(uint32_t size, struct figures *f)
{
	struct phase ph = {.size = size, .slots = 2, .stride = slot_stride(size)};
	uint64_t *ns, n = plan.iters ? plan.iters : size <= 8192 ? 2000 : 1000;

	memset(f, 0, sizeof(*f));
	f->size = size;
	if (!plan.rate_only) {
		ph.warmup = (uint32_t)(n < 1000 ? n / 10 : 100);
		ph.iters = n + ph.warmup;
		ns = memory(ph.iters * sizeof(*ns));
		begin_phase(&ph, true);
		run_latency(local[0], local[1], &ph, ns);
		meet();
		figures_latency(f, ns + ph.warmup, n, plan.op == OP_WRITE || plan.op == OP_SEND ? 2 : 1);
		free(ns);
	}
	ph.iters = plan.iters ? plan.iters : size <= 4096 ? 20000 : 20000ull * 4096 / size + 500;
	ph.slots = rate_slots(size, at.bytes - at.slots);
	ph.batch = plan.window / 4 ? plan.window / 4 : 1;
	begin_phase(&ph, false);
	f->rate = run_rate(local[0], local[1], &ph);
	meet();
}

/* ---- The run ---- */

static void open_ours(void)
{
	pd = open_pd(opt.device);
	ctx = pd->context;
}

/* Makes the sides of this process and connects them, with each other or with the peer's. */
static void set_up(struct side sides[2])
{
	const char *fault;

	plan_find_peer();
	if (!peer.is_child)
		open_ours(); /* the child does so later: what is wrong is said once */
	if (opt.server || peer.is_child) {
		local[1] = &sides[1];
		hello_hear(&sides[1].peer);
		fault = plan_fault(&sides[1].peer.plan);
		if (fault)
			die("the client wants what cannot be: %s", fault);
		plan = sides[1].peer.plan;
		if (peer.is_child)
			open_ours();
		make_side(local[1]);
		hello_tell(sides[1].self);
	} else {
		local[0] = &sides[0];
		make_side(local[0]);
		if (peer.wire < 0) {
			local[1] = &sides[1];
			make_side(local[1]);
			sides[0].peer = sides[1].self;
			sides[1].peer = sides[0].self;
		} else {
			hello_tell(sides[0].self);
			hello_hear(&sides[0].peer);
			if (memcmp(&sides[0].peer.plan, &plan, sizeof(plan)))
				die("the server answers another question");
		}
	}
	for (int k = 0; k < 2; k++)
		if (local[k])
			connect_side(local[k]);
	meet();
}

int main(int argc, char **argv)
{
	static struct side sides[2];
	const char *device, *link;
	struct figures f[32];
	FILE *json;
	int n = 0;

	signal(SIGPIPE, SIG_IGN);
	plan_parse(argc, argv);
	json = plan_files();
	set_up(sides);
	device = ibv_get_device_name(ctx->device);
	link = sides[!local[0]].here.link == INLAY_CONNECT_IB ? "InfiniBand" : "RoCE";
	if (local[0])
		plan_head(device, link);
	for (uint32_t size = plan.size_min; size <= plan.size_max; size = 2u << (31 - __builtin_clz(size)), n++) {
		measure(size, &f[n]);
		if (local[0])
			figures_row(&f[n]);
	}
	for (int k = 0; k < 2; k++)
		if (local[k])
			free_side(local[k]);
	if (opt.server)
		printf("served a client: %s, %u to %u bytes\n", op_names[plan.op], plan.size_min, plan.size_max);
	peer_join();
	if (local[0])
		printf("\n%s%s.\n", plan.verify ? "Verified: every " : "Nothing was verified",
		       !plan.verify ? "" : plan.op == OP_ATOMIC ? "old value of the counter" : "byte of every message");
	if (fflush(stdout) || ferror(stdout))
		die("the results could not all be written to standard output");
	if (local[0])
		plan_save(json, device, link, f, n);
	return 0;
}
