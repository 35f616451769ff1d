/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport.c: a transport in miniature, for its instructions to be counted: 32 endpoints on one serial
 * register, one CQ and one SRQ, driven by one thread. It keeps its own credit, looks up the endpoint of a
 * completion by its QP number and calls the caller back. Active messages have a 10-byte header.
 *
 * Rings in plain memory, completions written by hand: no device. peers/transport_ucx.c is the same by UCX.
 */
#include <inlay/queue.h>
#include "bench.h"

#define ENDPOINTS 32u
#define RING 64u
#define ENTRIES 1024u
#define SLOT 256u
#define LAP ENDPOINTS

struct transport;

struct endpoint {
	struct inlay_sq sq;
	int32_t credits; /* WQEBBs of the transport's own account */
	int (*done)(struct endpoint *ep);
	uint64_t completed;
} __attribute__((aligned(64)));

/* The transport's header of an active message: what kind, and the caller's 8 bytes. */
struct am_header {
	uint16_t id;
	uint64_t user;
} __attribute__((packed));

struct transport {
	struct inlay_cq cq;
	struct inlay_srq srq;
	int (*message)(struct transport *t, const struct am_header *header, uint32_t len);
	uint32_t bytes;
	int err;
	struct inlay_uar uar;
	struct inlay_qpn_table table;
	struct endpoint ep[ENDPOINTS];
} __attribute__((aligned(64)));

/* ---- What a transport's caller calls ---- */

/* 8 bytes to a remote address, signaled, rung for at once; and any number of bytes that fits. */
COUNTED int count_put_short_(struct endpoint *ep, uint64_t raddr, uint32_t rkey, const uint64_t *value)
{
	return inlay_post_write_inline(&ep->sq, raddr, rkey, value, sizeof(*value), INLAY_SIGNALED | INLAY_RING);
}

COUNTED int count_put_any_(struct endpoint *ep, uint64_t raddr, uint32_t rkey, const void *data, uint32_t len)
{
	return inlay_post_write_inline(&ep->sq, raddr, rkey, data, len, INLAY_SIGNALED | INLAY_RING);
}

/* One buffer of registered memory, signaled, rung for at once by BlueFlame. */
INLAY_ALWAYS int zcopy(struct endpoint *ep, uint32_t opcode, uint64_t raddr, uint32_t rkey, uint64_t addr, uint32_t len,
		       uint32_t lkey)
{
	struct inlay_cursor at;

	if (INLAY_UNLIKELY(inlay_sq_begin(&ep->sq, 1, &at)))
		return -EAGAIN;
	at = inlay_seg_raddr(at, raddr, rkey);
	at = inlay_seg_data(at, addr, len, lkey);
	inlay_sq_commit(&ep->sq, at, opcode, 0, INLAY_SIGNALED | INLAY_RING, 0);
	return 0;
}

COUNTED int count_put_zcopy_(struct endpoint *ep, uint64_t raddr, uint32_t rkey, uint64_t addr, uint32_t len,
			     uint32_t lkey)
{
	return zcopy(ep, MLX5_OPCODE_RDMA_WRITE, raddr, rkey, addr, len, lkey);
}

COUNTED int count_get_zcopy_(struct endpoint *ep, uint64_t raddr, uint32_t rkey, uint64_t addr, uint32_t len,
			     uint32_t lkey)
{
	return zcopy(ep, MLX5_OPCODE_RDMA_READ, raddr, rkey, addr, len, lkey);
}

/* Header and payload of an active message whose WQE takes bbs WQEBBs, in one inline segment. */
INLAY_ALWAYS int am_write(struct endpoint *ep, uint32_t bbs, uint16_t id, uint64_t user, const void *data, size_t len)
{
	struct inlay_cursor at = inlay_sq_begin_counted(&ep->sq, bbs);
	struct am_header *header;
	uint8_t *p;

	at = inlay_seg_inline_open(at, (uint32_t)(sizeof(*header) + len), sizeof(*header), &p);
	header = (struct am_header *)(void *)p;
	header->id = id;
	header->user = user;
	at = inlay_seg_inline_append(at, data, (uint32_t)len);
	inlay_sq_commit(&ep->sq, at, MLX5_OPCODE_SEND, 0, INLAY_SIGNALED | INLAY_RING, 0);
	return 0;
}

/* What am_short sends in several WQEBBs, or cannot. */
__attribute__((noinline)) static int am_long(struct endpoint *ep, uint16_t id, uint64_t user, const void *data,
					     size_t len)
{
	size_t bbs = (INLAY_DS + 4 + sizeof(struct am_header) + len + INLAY_WQEBB - 1) / INLAY_WQEBB;

	if (bbs > (inlay_sq_max_ds(&ep->sq) + 3) / 4)
		return -EINVAL;
	if (ep->credits < (int32_t)bbs)
		return -EAGAIN;
	ep->credits -= (int32_t)bbs;
	return am_write(ep, (uint32_t)bbs, id, user, data, len);
}

/* An active message of `user` and len bytes of data, len known at run time, up to the QP's inline limit. */
COUNTED int count_am_short_(struct endpoint *ep, uint16_t id, uint64_t user, const void *data, size_t len)
{
	if (INLAY_UNLIKELY(len > INLAY_WQEBB - INLAY_DS - 4 - sizeof(struct am_header)))
		return am_long(ep, id, user, data, len);
	if (INLAY_UNLIKELY(!ep->credits))
		return -EAGAIN;
	ep->credits--;
	return am_write(ep, 1, id, user, data, len);
}

__attribute__((noinline, cold)) static int broken(struct transport *t, const struct mlx5_cqe64 *cqe)
{
	t->err = (int)inlay_cqe_status(cqe);
	return -EIO;
}

__attribute__((noinline)) static int sent(struct transport *t, const struct mlx5_cqe64 *cqe)
{
	struct endpoint *ep = (struct endpoint *)inlay_qpn_table_find(&t->table, inlay_cqe_qpn(cqe));
	int freed;

	if (INLAY_UNLIKELY(!ep) || INLAY_UNLIKELY((freed = inlay_sq_release(&ep->sq, cqe)) < 0))
		return broken(t, cqe);
	inlay_cq_advance(&t->cq, 1);
	ep->credits += freed;
	return ep->done(ep);
}

/* A message, used in place, in the CQE or in its slot: entry and CQE go back after it. */
__attribute__((noinline)) static int received(struct transport *t, const struct mlx5_cqe64 *cqe)
{
	const void *data;

	if (inlay_cqe_is_error(cqe))
		return broken(t, cqe);
	data = inlay_cqe_is_scattered(cqe) ? inlay_cqe_data(cqe, 64, NULL) :
	       (const void *)(uintptr_t)inlay_srq_user(&t->srq, inlay_cqe_wqe_counter(cqe));
	if (INLAY_UNLIKELY(!data))
		return broken(t, cqe);
	t->message(t, (const struct am_header *)data, inlay_cqe_byte_count(cqe));
	if (INLAY_UNLIKELY(inlay_srq_recycle(&t->srq, cqe)))
		return broken(t, cqe);
	inlay_cq_advance(&t->cq, 1);
	return 1;
}

/* One completion, or none: how many were handled, or a negative errno. */
INLAY_ALWAYS int progress_one(struct transport *t)
{
	const struct mlx5_cqe64 *cqe = inlay_cq_peek(&t->cq);

	if (!cqe)
		return 0;
	return inlay_cqe_opcode(cqe) == MLX5_CQE_REQ ? sent(t, cqe) : received(t, cqe);
}

COUNTED int count_progress_(struct transport *t)
{
	return progress_one(t);
}

/* ---- The other side: rings in plain memory, and completions written by hand ---- */

/* The callbacks: they say how many operations they have ended. */
static int done(struct endpoint *ep)
{
	ep->completed++;
	return 1;
}

static int message(struct transport *t, const struct am_header *header, uint32_t len)
{
	(void)header;
	t->bytes += len;
	return 1;
}

static uint8_t reg[4096] __attribute__((aligned(4096))), rings[ENDPOINTS][RING * 64] __attribute__((aligned(4096)));
static uint8_t entries[ENTRIES * 32] __attribute__((aligned(4096))), slots[ENTRIES * SLOT] __attribute__((aligned(64)));
static struct mlx5_cqe64 cqes[ENTRIES] __attribute__((aligned(4096)));
static uint32_t records[ENDPOINTS][2], srq_record[1], cq_record[2];
static struct inlay_qpn_page_ page;
static struct transport transport;
static uint32_t completions, slot_next;

/* Completion number n, as the device writes it. */
static void complete(uint32_t n, uint8_t opcode, uint32_t qpn, uint32_t counter, const void *data, uint32_t len)
{
	struct mlx5_cqe64 *cqe = &cqes[n % ENTRIES];

	memset(cqe, 0, 63);
	if (data)
		memcpy(cqe, data, len);
	cqe->byte_cnt = inlay_to_be32(len);
	cqe->sop_drop_qpn = inlay_to_be32(qpn);
	cqe->wqe_counter = inlay_to_be16((uint16_t)counter);
	cqe->op_own = (uint8_t)(opcode << 4 | (data ? INLAY_CQE_SCATTER_32 : 0) | ((n / ENTRIES) & 1));
}

static void set_up(struct transport *t, int cyclic)
{
	struct ibv_sge sge = {(uintptr_t)slots, SLOT, 5};
	uint32_t i;

	memset(cqes, 0xf0, sizeof(cqes));
	NEED(!inlay_uar_init(&t->uar, reg, 256, INLAY_UAR_SERIAL) &&
	     !inlay_cq_init(&t->cq, cqes, ENTRIES, 64, cq_record, NULL, 3) &&
	     !(cyclic ? inlay_srq_init_cyclic(&t->srq, entries, ENTRIES, 32, srq_record) :
			inlay_srq_init(&t->srq, entries, ENTRIES, 32, srq_record)), "making rings");
	completions = slot_next = 0;
	inlay_qpn_table_init(&t->table, &page, sizeof(page));
	t->message = message;
	for (i = 0; i < ENDPOINTS; i++) {
		struct endpoint *ep = &t->ep[i];

		NEED(!inlay_sq_init(&ep->sq, rings[i], RING, records[i], 0x1000 + i, 16, &t->uar) &&
		     !inlay_qpn_table_add(&t->table, 0x1000 + i, ep), "making an endpoint");
		ep->credits = RING;
		ep->done = done;
	}
	for (; !inlay_post_srq_recv(&t->srq, &sge, 1, sge.addr); sge.addr += SLOT)
		;
	inlay_srq_ring(&t->srq);
}

/* Laps: an operation to each endpoint, or a completion of each; the other side's part is not timed. */
static uint8_t payload[128] = {1, 2, 3, 4, 5, 6, 7, 8};

enum what {SHORT, ANY, PUT, GET, AM};

static int post(struct transport *t, enum what what, uint32_t i, uint32_t len)
{
	struct endpoint *ep = &t->ep[i];
	uint64_t value = i;

	if (what == SHORT)
		return count_put_short_(ep, 0x1000 + i, 77, &value);
	if (what == ANY)
		return count_put_any_(ep, 0x1000 + i, 77, payload, len);
	if (what == PUT)
		return count_put_zcopy_(ep, 0x1000 + i, 77, 0x2000, len, 5);
	if (what == GET)
		return count_get_zcopy_(ep, 0x1000 + i, 77, 0x2000, len, 5);
	return count_am_short_(ep, 7, value, payload, len);
}

/* Every endpoint posts, and is told that it is sent: which of both is timed, and collected */
static double sends(enum what what, uint32_t len, int timed, uint64_t n)
{
	struct transport *t = &transport;
	double seconds = 0, start;
	uint64_t done;
	uint32_t i;

	for (done = 0; done < n; done += LAP) {
		int bad = 0;

		for (i = 0; i < LAP; i++)
			complete(completions + i, MLX5_CQE_REQ, 0x1000 + i, inlay_sq_index(&t->ep[i].sq), NULL, 0);
		for (i = 0; timed && i < LAP; i++)
			bad |= inlay_post_write_inline(&t->ep[i].sq, 0x1000, 77, payload, 8,
						       INLAY_SIGNALED | INLAY_RING);
		start = now();
		for (i = 0; !timed && i < LAP; i++)
			bad |= post(t, what, i, len);
		for (i = 0; timed && i < LAP; i++)
			bad |= count_progress_(t) != 1;
		seconds += now() - start;
		completions += LAP;
		for (i = 0; !timed && i < LAP; i++)
			bad |= progress_one(t) != 1;
		for (i = 0; i < LAP; i++) {
			bad |= inlay_sq_pending(&t->ep[i].sq) != 0;
			t->ep[i].credits = RING;
		}
		NEED(!bad, "an operation");
	}
	return seconds;
}

/* Messages of 64 bytes in their slots, or of 18 in their CQEs. */
static double messages(int in_cqe, uint64_t n)
{
	static const uint8_t message[18] = {7, 0, 99};
	struct transport *t = &transport;
	double seconds = 0, start;
	uint64_t done;
	uint32_t i;

	for (done = 0; done < n; done += LAP) {
		int bad = 0;

		for (i = 0; i < LAP; i++, slot_next = (slot_next + 1) % ENTRIES)
			complete(completions++, MLX5_CQE_RESP_SEND, 0x1000 + i, slot_next, in_cqe ? message : NULL,
				 in_cqe ? 18 : 64);
		start = now();
		for (i = 0; i < LAP; i++)
			bad |= count_progress_(t) != 1;
		seconds += now() - start;
		inlay_srq_ring(&t->srq);
		NEED(!bad, "a message");
	}
	return seconds;
}

static double nothing(void *arg, uint64_t n)
{
	double start = now();

	for (uint64_t i = 0; i < n; i++)
		NEED(!count_progress_((struct transport *)arg), "finding nothing");
	return now() - start;
}

#define BY(name, call) static double name(void *arg, uint64_t n) { (void)arg; return call; }
BY(put_short, sends(SHORT, 8, 0, n))
BY(put_short_40, sends(ANY, 40, 0, n))
BY(put_short_100, sends(ANY, 100, 0, n))
BY(put_zcopy, sends(PUT, 64, 0, n))
BY(get_zcopy, sends(GET, 64, 0, n))
BY(am_short_8, sends(AM, 8, 0, n))
BY(am_short_40, sends(AM, 40, 0, n))
BY(am_short_100, sends(AM, 100, 0, n))
BY(progress_send, sends(SHORT, 8, 1, n))
BY(progress_message, messages(0, n))
BY(progress_in_cqe, messages(1, n))

int main(void)
{
	static const struct {
		const char *row;
		double (*run)(void *arg, uint64_t n);
		const char *includes;
		int cyclic;
	} rows[] = {
		{"put_short 8 B", put_short, "credit, WQE, record, BlueFlame", 0},
		{"put_short 40 B", put_short_40, "the same, run-time length", 0},
		{"put_short 100 B", put_short_100, "the same, run-time length", 0},
		{"put_zcopy 1 SGE", put_zcopy, "credit, WQE, record, BlueFlame", 0},
		{"get_zcopy 1 SGE", get_zcopy, "credit, WQE, record, BlueFlame", 0},
		{"am_short 8 B", am_short_8, "10 B of header, run-time length", 0},
		{"am_short 40 B", am_short_40, "10 B of header, run-time length", 0},
		{"am_short 100 B", am_short_100, "10 B of header, run-time length", 0},
		{"progress: a send done", progress_send, "QP lookup, credit, callback", 0},
		{"progress: a message", progress_message, "callback, entry back with its buffer", 0},
		{"progress: a message in its CQE", progress_in_cqe, "callback, entry back with its buffer", 0},
		{"progress: a message, cyclic SRQ", progress_message, "callback, entry back with its buffer", 1},
		{"progress: nothing there", nothing, "peek", 0},
	};

	memset(slots, 7, sizeof(slots));
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct way way = {"inlay", rows[i].run, &transport, rows[i].includes};

		set_up(&transport, rows[i].cyclic);
		bench_row("transport", rows[i].row, &way, 1, LAP);
	}
	return 0;
}
