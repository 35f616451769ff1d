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
	uint8_t *slots;
	uint32_t bytes;
	int err;
	struct inlay_uar uar;
	struct inlay_qpn_table table;
	struct endpoint ep[ENDPOINTS];
} __attribute__((aligned(64)));

/* The buffer of an SRQ entry. */
INLAY_ALWAYS const struct am_header *slot(const struct transport *t, uint32_t index)
{
	return (const struct am_header *)(const void *)(t->slots + (size_t)index * SLOT);
}

/* ---- What a transport's caller calls ---- */

/* 8 bytes to a remote address, signaled, rung for at once. */
COUNTED int count_put_short_(struct endpoint *ep, uint64_t raddr, uint32_t rkey, const uint64_t *value)
{
	return inlay_post_write_inline(&ep->sq, raddr, rkey, value, sizeof(*value), INLAY_SIGNALED | INLAY_RING);
}

/* One SGE of registered memory, signaled, rung for at once by BlueFlame. */
COUNTED int count_put_zcopy_(struct endpoint *ep, uint64_t raddr, uint32_t rkey, uint64_t addr, uint32_t len,
			     uint32_t lkey)
{
	struct inlay_cursor at;

	if (INLAY_UNLIKELY(inlay_sq_begin(&ep->sq, 1, &at)))
		return -EAGAIN;
	at = inlay_seg_raddr(at, raddr, rkey);
	at = inlay_seg_data(at, addr, len, lkey);
	return inlay_sq_commit_ring(&ep->sq, at, MLX5_OPCODE_RDMA_WRITE, 0, INLAY_SIGNALED, 0);
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
	return inlay_sq_commit_ring(&ep->sq, at, MLX5_OPCODE_SEND, 0, INLAY_SIGNALED, 0);
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

/* A message whose slot the handler may keep: its CQE and its entry go back first. */
__attribute__((noinline)) static int received(struct transport *t, const struct mlx5_cqe64 *cqe)
{
	const struct am_header *header = slot(t, inlay_cqe_wqe_counter(cqe));
	uint32_t len = inlay_cqe_byte_count(cqe);

	if (inlay_cqe_is_error(cqe) || INLAY_UNLIKELY(inlay_srq_release(&t->srq, cqe) < 0))
		return broken(t, cqe);
	inlay_cq_advance(&t->cq, 1);
	return t->message(t, header, len);
}

/*
 * A message that the handler uses in place, in the CQE or in its slot: the CQE goes back after it. The
 * entry may go back before, as long as the handler posts no receives.
 */
INLAY_ALWAYS int received_held(struct transport *t, const struct mlx5_cqe64 *cqe)
{
	const void *data;

	if (inlay_cqe_is_error(cqe))
		return broken(t, cqe);
	data = inlay_cqe_is_scattered(cqe) ? inlay_cqe_payload(cqe, 64) : slot(t, inlay_cqe_wqe_counter(cqe));
	if (INLAY_UNLIKELY(!data) || INLAY_UNLIKELY(inlay_srq_release(&t->srq, cqe) < 0))
		return broken(t, cqe);
	t->message(t, (const struct am_header *)data, inlay_cqe_byte_count(cqe));
	inlay_cq_advance(&t->cq, 1);
	return 1;
}

/* One completion, or none: how many were handled, or a negative errno. held: constant. */
INLAY_ALWAYS int progress_one(struct transport *t, int held)
{
	const struct mlx5_cqe64 *cqe = inlay_cq_peek(&t->cq);

	if (!cqe)
		return 0;
	if (inlay_cqe_opcode(cqe) == MLX5_CQE_REQ)
		return sent(t, cqe);
	return held ? received_held(t, cqe) : received(t, cqe);
}

COUNTED int count_progress_(struct transport *t)
{
	return progress_one(t, 0);
}

COUNTED int count_progress_held_(struct transport *t)
{
	return progress_one(t, 1);
}

/* The entry of a message whose slot is free again, as it was. */
COUNTED int count_give_back_(struct transport *t)
{
	int err = inlay_srq_repost(&t->srq);

	inlay_srq_ring(&t->srq);
	return err;
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

static void set_up(struct transport *t)
{
	uint32_t i;

	memset(cqes, 0xf0, sizeof(cqes));
	NEED(!inlay_uar_init(&t->uar, reg, 256, INLAY_UAR_SERIAL) &&
	     !inlay_cq_init(&t->cq, cqes, ENTRIES, 64, cq_record, NULL, 3) &&
	     !inlay_srq_init(&t->srq, entries, ENTRIES, 32, srq_record), "making rings");
	inlay_qpn_table_init(&t->table, &page, sizeof(page));
	t->slots = slots;
	t->message = message;
	for (i = 0; i < ENDPOINTS; i++) {
		struct endpoint *ep = &t->ep[i];

		NEED(!inlay_sq_init(&ep->sq, rings[i], RING, records[i], 0x1000 + i, 16, &t->uar) &&
		     !inlay_qpn_table_add(&t->table, 0x1000 + i, ep), "making an endpoint");
		ep->credits = RING;
		ep->done = done;
	}
	for (i = 0; i < ENTRIES; i++) {
		struct ibv_sge sge = {(uintptr_t)slots + (size_t)i * SLOT, SLOT, 5};

		NEED(!inlay_srq_prepare(&t->srq, i, &sge, 1), "inlay_srq_prepare");
	}
	while (!inlay_srq_repost(&t->srq))
		;
	inlay_srq_ring(&t->srq);
}

/* Laps: an operation to each endpoint, or a completion of each; the other side's part is not timed. */
static uint32_t completions, slot_next;
static uint8_t payload[128] = {1, 2, 3, 4, 5, 6, 7, 8};

enum what {SHORT, ZCOPY, AM};

static int post(struct transport *t, enum what what, uint32_t i, uint32_t len)
{
	struct endpoint *ep = &t->ep[i];
	uint64_t value = i;

	if (what == SHORT)
		return count_put_short_(ep, 0x1000 + i, 77, &value);
	if (what == ZCOPY)
		return count_put_zcopy_(ep, 0x1000 + i, 77, 0x2000, len, 5);
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
			bad |= progress_one(t, 0) != 1;
		for (i = 0; i < LAP; i++) {
			bad |= inlay_sq_pending(&t->ep[i].sq) != 0;
			t->ep[i].credits = RING;
		}
		NEED(!bad, "an operation");
	}
	return seconds;
}

/* Messages, and their entries posted again */
static double messages(int held, int give, uint64_t n)
{
	static const uint8_t message[18] = {7, 0, 99};
	struct transport *t = &transport;
	double seconds = 0, start;
	uint64_t done;
	uint32_t i;

	for (done = 0; done < n; done += LAP) {
		int bad = 0;

		for (i = 0; i < LAP; i++, slot_next = (slot_next + 1) % ENTRIES)
			complete(completions++, MLX5_CQE_RESP_SEND, 0x1000 + i, slot_next, held ? message : NULL,
				 held ? 18 : 64);
		start = now();
		for (i = 0; !give && i < LAP; i++)
			bad |= (held ? count_progress_held_(t) : count_progress_(t)) != 1;
		for (i = 0; give && i < LAP; i++)
			bad |= progress_one(t, 0) != 1;
		start = give ? now() : start;
		for (i = 0; give && i < LAP; i++)
			bad |= count_give_back_(t);
		seconds += now() - start;
		while (!give && !inlay_srq_repost(&t->srq))
			;
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
BY(put_zcopy, sends(ZCOPY, 64, 0, n))
BY(am_short_8, sends(AM, 8, 0, n))
BY(am_short_40, sends(AM, 40, 0, n))
BY(am_short_100, sends(AM, 100, 0, n))
BY(progress_send, sends(SHORT, 8, 1, n))
BY(progress_message, messages(0, 0, n))
BY(progress_held, messages(1, 0, n))
BY(give_back, messages(0, 1, n))

int main(void)
{
	static const struct {
		const char *row;
		double (*run)(void *arg, uint64_t n);
		const char *includes;
	} rows[] = {
		{"put_short 8 B", put_short, "credit, WQE, record, BlueFlame"},
		{"put_zcopy 1 SGE", put_zcopy, "credit, WQE, record, BlueFlame"},
		{"am_short 8 B", am_short_8, "10 B of header, run-time length"},
		{"am_short 40 B", am_short_40, "10 B of header, run-time length"},
		{"am_short 100 B", am_short_100, "10 B of header, run-time length"},
		{"progress: a send done", progress_send, "QP lookup, credit, callback"},
		{"progress: a message", progress_message, "entry back, callback"},
		{"progress: a message, held", progress_held, "callback on it in place, entry back"},
		{"receive posted again", give_back, "entry, record"},
		{"progress: nothing there", nothing, "peek"},
	};

	set_up(&transport);
	memset(slots, 7, sizeof(slots));
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct way way = {"inlay", rows[i].run, &transport, rows[i].includes};

		bench_row("transport", rows[i].row, &way, 1, LAP);
	}
	return 0;
}
