/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tag_pingpong.c: two processes exchange tagged messages as MPI has them. The matching is
 * inlay_tag_rx's: the software's table, and where the device has tag matching and allows device
 * commands the NIC's list as well. Copy from it what you need:
 *
 *   tag/queues.h              set-up: queues with the NIC's list behind an XRQ, and plain ones
 *   isend, irecv, cancel      requests: eager, rendezvous beyond EAGER_MAX; exact and wildcard receives
 *   progress                  peek, complete, arrive, advance; then flush
 *   order                     what MPI promises, tried: order, unexpected messages, cancel
 *   pingpong                  latency, each message verified
 *
 * With the NIC's list each process has two QPs, both of which receive through the XRQ. What it
 * posts goes out on one of them; the other, to which the peer's is connected, has no send queue of
 * ours: the NIC reads the payload of a rendezvous on it, and sends the FIN.
 *
 *     rank 0   out --------> in    rank 1    out: messages, reads and FINs of software
 *              in  <-------- out             in: FINs of the NIC
 *
 * Without it there is one QP, with an ordinary SRQ. The bytes on the wire are the same.
 */
#define _GNU_SOURCE
#include <sys/time.h>
#include "tag/queues.h"

/* ---- The data path ---- */

static void post_done(struct side *s, int err, uint16_t index, struct request *whose)
{
	/* A transport queues what gets -EAGAIN; here SENDS_KEPT is more than there can be */
	must(!err, "posting to the send queue");
	s->sends[index & (inlay_sq_size(s->sq) - 1)] = whose;
	inlay_sq_ring(s->sq);
}

/* A rendezvous that software ends: reads, then tells the sender. One completion for both */
static void read_payload(struct side *s, struct request *r, const struct inlay_tmh *tmh, const uint8_t *at,
			 uint32_t len)
{
	struct inlay_rvh rvh;

	must(!inlay_rvh_get(at, len, &rvh) && rvh.len <= r->len, "taking a rendezvous no longer than its receive");
	struct ibv_sge sge = {.addr = (uintptr_t)r->buf, .length = rvh.len, .lkey = s->mr->lkey};
	must(!inlay_post_read(s->sq, rvh.va, rvh.rkey, &sge, 1, 0), "the rendezvous' read");
	const uint16_t index = inlay_sq_index(s->sq);
	post_done(s, inlay_tag_send_fin(s->sq, tmh->app_ctx, tmh->tag, &rvh, INLAY_SIGNALED | INLAY_FENCE_STRONG),
		  index, r);
	r->tag = tmh->tag;
	r->got = rvh.len;
	s->counts.reads++;
}

/* A message, TMH in front, that software has matched with a receive */
static void deliver(struct side *s, struct request *r, const uint8_t *at, uint32_t len)
{
	struct inlay_tmh tmh;

	must(!inlay_tmh_get(at, len, &tmh), "the header of a message");
	s->counts.software++;
	if (tmh.opcode == IBV_TMH_RNDV) {
		read_payload(s, r, &tmh, at, len);
		return;
	}
	must(len - INLAY_TMH_BYTES <= r->len, "taking a message no longer than its receive");
	r->tag = tmh.tag;
	r->got = len - INLAY_TMH_BYTES;
	memcpy(r->buf, at + INLAY_TMH_BYTES, r->got);
	r->done = 1;
}

/* The peer has read what we sent: what it says is looked at before it is believed */
static void finished(struct side *s, const struct inlay_tmh *tmh, const uint8_t *at, uint32_t len)
{
	struct request *r = tmh->app_ctx < RNDVS ? s->rndvs[tmh->app_ctx] : NULL;
	struct inlay_rvh rvh;

	must(r && !inlay_rvh_get(at, len, &rvh) && rvh.va == (uintptr_t)r->buf && rvh.len == r->len,
	     "knowing what a FIN is of");
	s->rndvs[tmh->app_ctx] = NULL;
	r->done = 1;
}

/* A message in an entry of the receive queue, or in its CQE. The entry is posted again */
static void arrived(struct side *s, const struct mlx5_cqe64 *cqe, const void *in_cqe, uint32_t len, int from_nic)
{
	const uint32_t b = (uint32_t)inlay_srq_user(s->srq, inlay_cqe_wqe_counter(cqe));
	struct inlay_match_found found;
	struct inlay_tmh tmh;

	uint32_t kept = b;

	must(len <= BOUNCE, "the receive queue");
	const uint8_t *at = in_cqe ? in_cqe : bounce(s, b);

	must(!inlay_tmh_get(at, len, &tmh) && tmh.opcode != IBV_TMH_NO_TAG, "the header of a message");
	if (tmh.opcode == IBV_TMH_FIN) {
		finished(s, &tmh, at, len);
	} else {
		switch (inlay_tag_rx_arrive(&s->rx, tmh.tag, b, from_nic, &found)) {
		case 1:
			deliver(s, (struct request *)(uintptr_t)found.cookie, at, len);
			break;
		case 0: /* Unexpected: it stays where it is, and another buffer takes its place. A transport has flow control here */
			if (in_cqe)
				memcpy(bounce(s, b), in_cqe, len);
			s->held[b] = len;
			must(s->spares != 0, "having buffers for unexpected messages");
			kept = s->spare[--s->spares];
			break;
		default: must(0, "the table of receives");
		}
	}
	must(!inlay_srq_release(s->srq, cqe), "giving back an entry");
	post_bounce(s, kept);
}

/* A completion of the NIC's list */
static void matched(struct side *s, const struct mlx5_cqe64 *cqe)
{
	struct inlay_tag_wc wc;
	int kind = inlay_tag_rx_complete(&s->rx, cqe, inlay_cq_cqe_size(s->cq), &wc);
	struct request *r = (struct request *)(uintptr_t)wc.wr_id;
	struct inlay_tmh tmh;

	switch (kind) {
	case INLAY_TAG_RX_NOTHING:
	case INLAY_TAG_RX_MATCHED: /* The payload is to come */
		break;
	case INLAY_TAG_RX_DONE:
		if (wc.payload)
			memcpy(r->buf, wc.payload, wc.byte_len);
		r->got = wc.byte_len;
		r->tag = wc.tag;
		r->done = 1;
		s->counts.nic++;
		break;
	case INLAY_TAG_RX_RNDV: /* The NIC leaves the reading to us */
		must(!inlay_tmh_get(r->buf, wc.byte_len, &tmh), "the header of a rendezvous");
		s->counts.nic++;
		read_payload(s, r, &tmh, r->buf, wc.byte_len);
		break;
	case INLAY_TAG_RX_CANCELED:
		r->done = r->cancelled = 1;
		break;
	case INLAY_TAG_RX_MESSAGE:
	case INLAY_TAG_RX_PLAIN:
		must(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
		arrived(s, cqe, wc.payload, wc.byte_len, kind == INLAY_TAG_RX_MESSAGE);
		break;
	default:
		inlay_cqe_print(stderr, cqe);
		must(0, kind < 0 ? "a completion of the NIC's list" : ibv_wc_status_str(wc.status));
	}
}

/* Deals with each completion before it looks at the next. Returns how many there were */
static int progress(struct side *s)
{
	const struct mlx5_cqe64 *cqe;
	struct request *r;
	int n = 0;

	for (; (cqe = inlay_cq_peek(s->cq)); n++) {
		if (s->nic && inlay_tag_list_owns(&s->list, cqe)) {
			matched(s, cqe);
		} else if (inlay_cqe_is_error(cqe)) {
			inlay_cqe_print(stderr, cqe);
			must(0, "the connection");
		} else if (inlay_cqe_is_send(cqe)) {
			r = s->sends[inlay_cqe_wqe_counter(cqe) & (inlay_sq_size(s->sq) - 1)];
			must(inlay_sq_release(s->sq, cqe) > 0, "a send's completion");
			if (r)
				r->done = 1;
		} else {
			arrived(s, cqe, inlay_cqe_data(cqe, inlay_cq_cqe_size(s->cq), NULL), inlay_cqe_byte_count(cqe), 0);
		}
		inlay_cq_advance(s->cq, 1);
	}
	if (n)
		inlay_srq_ring(s->srq);
	inlay_tag_rx_flush(&s->rx); /* With or without completions: it also rings for the receives that were posted */
	return n;
}

static void wait_for(struct side *s, const struct request *r)
{
	struct wait w = {0, 0, 0};

	while (!r->done)
		if (!progress(s))
			peer_wait(&w);
		else
			w.since = 0;
}

/* The buffer stays as it is until r->done: at once, when it was acknowledged, or with the FIN */
static void isend(struct side *s, struct request *r, int32_t tag, uint8_t *buf, uint32_t len)
{
	struct inlay_rvh rvh = {.va = (uintptr_t)buf, .rkey = s->mr->rkey, .len = len};
	struct ibv_sge sge = {.addr = (uintptr_t)buf, .length = len, .lkey = s->mr->lkey};
	const time_t end = time(NULL) + WAIT;
	uint32_t slot = 0;
	uint64_t bits;

	*r = (struct request){.buf = buf, .len = len};
	must(!inlay_mpi_pack(COMM, rank, tag, &bits, NULL), "a tag of this size");
	while (inlay_sq_room(s->sq) < SENDS_KEPT)
		must(progress(s) || time(NULL) < end, "getting on before the deadline");
	const uint16_t index = inlay_sq_index(s->sq);
	if (len <= INLINE_MAX) {
		post_done(s, inlay_tag_send_eager(s->sq, 0, bits, &sge, 1, INLAY_SIGNALED | INLAY_INLINE), index, NULL);
		r->done = 1;
	} else if (len <= EAGER_MAX) {
		post_done(s, inlay_tag_send_eager(s->sq, 0, bits, &sge, 1, INLAY_SIGNALED), index, r);
	} else {
		while (slot < RNDVS && s->rndvs[slot])
			slot++;
		must(slot < RNDVS, "having room for one more rendezvous");
		s->rndvs[slot] = r;
		post_done(s, inlay_tag_send_rndv(s->sq, slot, bits, &rvh, NULL, 0, INLAY_SIGNALED), index, NULL);
	}
}

/* source and tag: what is wanted, or INLAY_MPI_ANY */
static void irecv(struct side *s, struct request *r, int32_t source, int32_t tag, uint8_t *buf, uint32_t len)
{
	struct ibv_sge sge = {.addr = (uintptr_t)buf, .length = len, .lkey = s->mr->lkey};
	struct inlay_match_found found;
	uint64_t bits, mask;
	int err;

	*r = (struct request){.buf = buf, .len = len};
	must(!inlay_mpi_pack(COMM, source, tag, &bits, &mask), "a tag of this size");
	err = inlay_tag_rx_post(&s->rx, bits, mask, &sge, (uintptr_t)r, &found);
	must(err >= 0, "posting a receive");
	if (!err) {
		r->handle = found.handle;
		return;
	}
	deliver(s, r, bounce(s, (uint32_t)found.cookie), s->held[found.cookie]); /* It was here before */
	s->spare[s->spares++] = (uint32_t)found.cookie;
}

/* Cancels r, now or later, unless its message is faster. r->done tells the end */
static void cancel(struct side *s, struct request *r)
{
	struct inlay_match_found found;

	if (inlay_tag_rx_cancel(&s->rx, r->handle, &found) == 1)
		r->done = r->cancelled = 1;
}

static void barrier(struct side *s)
{
	progress(s); /* What was posted is visible to the NIC before the peer goes on */
	peer_meet(0);
}

/* Receive r is to hold message k, of that length and tag */
static void expect(struct side *s, struct request *r, int32_t tag, uint32_t k, uint32_t len)
{
	int32_t got_source, got_tag;

	wait_for(s, r);
	must(!r->cancelled && r->got == len && !memcmp(r->buf, message_of(s, k), len),
	     "finding each byte of a message");
	inlay_mpi_unpack(r->tag, &got_source, &got_tag);
	must(got_tag == tag && got_source == !rank, "tag and source");
}

/* ---- What MPI promises ---- */

static void order_sender(struct side *s)
{
	static const struct { int32_t tag; uint32_t len; } out[] = {{5, 100}, {6, 20000}, {5, 3000}, {1, 8}, {8, 2000},
								     {8, 30000}, {7, 8192}, {9, 64}, {9, 0}};
	struct request r[9], late;

	for (uint32_t k = 0; k < 9; k++) {
		isend(s, &r[k], out[k].tag, message_of(s, k), out[k].len);
		if (k == 3)
			barrier(s); /* Up to here: before there are receives but the last one's */
	}
	for (uint32_t k = 0; k < 9; k++)
		wait_for(s, &r[k]);
	barrier(s);
	isend(s, &late, 11, message_of(s, 9), 20000);
	wait_for(s, &late);
}

static void order_receiver(struct side *s)
{
	const int32_t any = INLAY_MPI_ANY;
	struct inlay_match_found found;
	struct request r[LANDINGS];

	/* Unexpected: in the order in which they were sent, of those that match */
	irecv(s, &r[0], !rank, 1, landing(s, 0), 8);
	expect(s, &r[0], 1, 3, 8);
	must(inlay_match_count(&s->match, INLAY_MATCH_UNEXPECTED) == 3, "keeping what nobody waits for");
	must(inlay_match_probe(&s->match, 0, 0, &found) == 1 && (found.tag & INLAY_MPI_TAG_MAX) == 5,
	     "a probe for anything");
	irecv(s, &r[0], !rank, any, landing(s, 0), ORDER_MAX);
	irecv(s, &r[1], !rank, 5, landing(s, 1), ORDER_MAX);
	irecv(s, &r[2], any, any, landing(s, 2), ORDER_MAX);
	expect(s, &r[0], 5, 0, 100);
	expect(s, &r[1], 5, 2, 3000);
	expect(s, &r[2], 6, 1, 20000);

	/*
	 * Expected: by the oldest receive that matches, wherever it is. The fourth is too small for
	 * the NIC, and keeps the fifth from it
	 */
	irecv(s, &r[0], any, any, landing(s, 0), ORDER_MAX);
	irecv(s, &r[1], !rank, 7, landing(s, 1), ORDER_MAX);
	irecv(s, &r[2], !rank, 8, landing(s, 2), ORDER_MAX);
	irecv(s, &r[3], any, 9, landing(s, 3), 64);
	irecv(s, &r[4], !rank, any, landing(s, 4), ORDER_MAX);
	irecv(s, &r[5], !rank, 10, landing(s, 5), ORDER_MAX);
	irecv(s, &r[6], any, 10, landing(s, 6), 512);
	barrier(s);
	expect(s, &r[2], 8, 5, 30000);
	expect(s, &r[0], 8, 4, 2000);
	expect(s, &r[4], 9, 8, 0);
	expect(s, &r[3], 9, 7, 64);
	expect(s, &r[1], 7, 6, 8192);

	/* Cancelled, from list and table: nothing was sent to them */
	cancel(s, &r[5]);
	cancel(s, &r[6]);
	wait_for(s, &r[5]);
	wait_for(s, &r[6]);
	must(r[5].cancelled && r[6].cancelled, "cancelling what nothing was sent to");

	/* A cancel that races with the message: either cancels, or the message is received */
	irecv(s, &r[0], !rank, 11, landing(s, 0), ORDER_MAX);
	barrier(s);
	cancel(s, &r[0]);
	wait_for(s, &r[0]);
	if (r[0].cancelled)
		irecv(s, &r[0], any, 11, landing(s, 0), ORDER_MAX);
	expect(s, &r[0], 11, 9, 20000);
}

/* ---- Latency ---- */

/* Every fourth receive takes anything */
static void irecv_next(struct side *s, struct request *r, uint32_t k, uint32_t len)
{
	irecv(s, r, k % 4 == 3 ? INLAY_MPI_ANY : !rank, k % 4 == 3 ? INLAY_MPI_ANY : (int32_t)(k % 1024),
	      landing(s, k % 2), len);
}

/* Both verify what they receive. Receives are there before their messages */
static void pingpong(struct side *s, uint32_t len, uint32_t iterations, uint64_t *ns)
{
	struct request ping[2] = {{.done = 1}, {.done = 1}}, pong[2];
	struct counts all, theirs;

	s->counts = (struct counts){0};
	irecv_next(s, &pong[0], 0, len);
	barrier(s);
	for (uint32_t k = 0; k < iterations; k++) {
		struct request *in = &pong[k % 2], *out = &ping[k % 2];
		uint64_t begin = now_ns();

		if (!rank)
			isend(s, out, (int32_t)(k % 1024), message_of(s, k), len);
		wait_for(s, in);
		ns[k] = (now_ns() - begin) / 2;
		wait_for(s, &ping[(k + 1) % 2]); /* of rank 1: from the buffer that is the next receive's */
		if (k + 1 < iterations)
			irecv_next(s, &pong[(k + 1) % 2], k + 1, len);
		if (rank)
			isend(s, out, (int32_t)(k % 1024), in->buf, len);
		expect(s, in, (int32_t)(k % 1024), k, len);
	}
	wait_for(s, &ping[0]);
	wait_for(s, &ping[1]);
	peer_swap(&s->counts, &theirs, sizeof(theirs));
	all = (struct counts){s->counts.nic + theirs.nic, s->counts.software + theirs.software,
			      s->counts.reads + theirs.reads};
	must(all.nic + all.software == 2 * (uint64_t)iterations, "counting the messages");
	if (rank)
		return;
	qsort(ns, iterations, sizeof(*ns), order_of_times);
	printf("%9u  %-10s  %10.2f  %10llu  %10llu  %10llu\n", len, len > EAGER_MAX ? "rendezvous" : "eager",
	       (double)ns[iterations / 2] / 1000, (unsigned long long)all.nic, (unsigned long long)all.software,
	       (unsigned long long)all.reads);
	fflush(stdout);
}

/* ---- */

static struct {
	const char *device;
	uint32_t iterations, size, software;
} opt = {.iterations = 200, .size = UINT32_MAX};

static const struct option_of options[] = {
	{"iterations", "N", "messages each way for a size (200)", .number = &opt.iterations, .min = 1, .max = 1000000},
	{"size", "N", "that many bytes only, up to 16M (a table of sizes)", .number = &opt.size, .max = LENGTH_MAX},
	{"device", "NAME", "mlx5 device (the first one)", .string = &opt.device},
	{"software", NULL, "matches in software alone, where the device could do it too", .number = &opt.software,
	 .max = 1},
	{NULL, NULL, NULL, NULL, NULL, 0, 0, NULL}};

int main(int argc, char **argv)
{
	static uint32_t sizes[] = {0, 8, 64, 512, 1024, 4096, 8192, 16384, 65536, 262144, 1048576};
	uint32_t n = sizeof(sizes) / sizeof(sizes[0]);
	static struct side s;
	uint64_t *ns;

	arguments(argc, argv,
		  "Two processes exchange tagged messages through an mlx5 device, as MPI would. Up to 8192 bytes a\n"
		  "message is eager, beyond a rendezvous. The latency is the median of half a round trip.",
		  "", options);
	if (opt.size != UINT32_MAX) {
		sizes[0] = opt.size;
		n = 1;
	}
	need_device(opt.device);
	peer.timeout = 3 * WAIT;
	rank = peer_fork();
	ns = memory(opt.iterations * sizeof(*ns));
	open_side(&s, opt.device, (int)opt.software, sizes[n - 1] > ORDER_MAX ? sizes[n - 1] : ORDER_MAX);

	for (int receiver = 0; receiver < 2; receiver++) {
		(rank == receiver ? order_receiver : order_sender)(&s);
		barrier(&s);
	}
	if (!rank)
		printf("order, unexpected messages, cancel: as MPI has them\n%9s  %-10s  %10s  %10s  %10s  %10s\n",
		       "bytes", "protocol", "usec", "by NIC", "software", "read by it");
	for (uint32_t i = 0; i < n; i++)
		pingpong(&s, sizes[i], opt.iterations, ns);
	barrier(&s);
	close_side(&s);
	free(ns);
	peer_join();
	return fflush(stdout) || ferror(stdout) ? 1 : 0;
}
