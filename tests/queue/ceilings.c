/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ceilings.c: the functions whose instructions tests/queue/ceilings.t counts, and a loop that calls them on rings in plain memory: those that
 * no benchmark counts (tests/house/counts.t).
 *
 * Each function is what a caller's loop would hold, and is counted whole: from its first instruction to its return. The rings are longer
 * than the loop, so that every round is the common case and costs the same.
 */
#include <inlay/queue.h>
#include <inlay/queue/batch.h>
#include <inlay/queue/masked.h>
#include <inlay/queue/packet.h>
#include <inlay/queue/striding.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 200
#define RING 256
#define COUNTED __attribute__((noinline))

struct ep {
	struct inlay_srq srq;
	struct inlay_striding rq;
	struct inlay_cq cq;
	struct inlay_packet_at at;
	int err;
} __attribute__((aligned(64)));

/* A function that makes one call */
#define CALL(name, arguments, call) COUNTED int inlay_##name arguments { return call; }
/* And one that rings for it, unless it failed */
#define CALL_RING(name, arguments, call, ring)                                                                                   \
	COUNTED int inlay_##name arguments                                                                                       \
	{                                                                                                                        \
		int err = call;                                                                                                  \
                                                                                                                                 \
		return err ? err : ring(sq);                                                                                     \
	}
#define SGE(addr, len, lkey) (&(struct ibv_sge){addr, len, lkey})
#define WR(...) (&(struct inlay_wr){__VA_ARGS__})
#define BOTH inlay_eth_csum(INLAY_CSUM_L3 | INLAY_CSUM_L4)
#define RING_IT (INLAY_SIGNALED | INLAY_RING)

CALL_RING(ud_inline, (struct inlay_sq *sq, const struct inlay_av *av, const uint64_t *value),
	  inlay_post(sq, MLX5_OPCODE_SEND, WR(.to = inlay_av_long(av), .data = value, .len = sizeof(*value)), INLAY_SIGNALED | INLAY_INLINE), inlay_sq_ring)
CALL_RING(ud_sge, (struct inlay_sq *sq, const struct inlay_av *av, uint64_t addr, uint32_t len, uint32_t lkey),
	  inlay_post(sq, MLX5_OPCODE_SEND, WR(.to = inlay_av_long(av), .data = (void *)addr, .len = len, .lkey = lkey), INLAY_SIGNALED), inlay_sq_ring_doorbell)
CALL(add_4, (struct inlay_sq *sq, uint64_t raddr, uint32_t rkey, uint32_t add, uint64_t addr, uint32_t lkey),
     inlay_post_atomic(sq, inlay_masked_add(add, 0),
		       WR(.raddr = raddr, .rkey = rkey, .data = (void *)addr, .len = 4, .lkey = lkey), RING_IT))
/* To a DC target on InfiniBand, commit and ring in one */
CALL(dc_inline, (struct inlay_sq *sq, const struct inlay_av *to, const uint64_t *value),
     inlay_post(sq, MLX5_OPCODE_SEND, WR(.to = to, .data = value, .len = sizeof(*value)), RING_IT | INLAY_INLINE))
/* One SGE each, checksums, one doorbell: a WQE each, and all in one */
CALL(packets, (struct inlay_sq *sq, const struct ibv_sge *sge, uint32_t n), inlay_post_packets(sq, BOTH, sge, n, RING_IT))
CALL(multi_packet, (struct inlay_sq *sq, const struct ibv_sge *sge, uint32_t n), inlay_post_packets_multi(sq, BOTH, sge, n, RING_IT))
#define BURST 32

COUNTED int inlay_srq_give(struct inlay_srq *srq, uint64_t addr, uint32_t len, uint32_t lkey)
{
	int err = inlay_post_srq_recv(srq, SGE(addr, len, lkey), 1, addr);

	if (!err)
		inlay_srq_ring(srq);
	return err;
}

__attribute__((noinline, cold)) int ep_error(struct ep *ep, const struct mlx5_cqe64 *cqe)
{
	ep->err = (int)inlay_cqe_status(cqe);
	return -ep->err;
}

COUNTED int inlay_srq_poll(struct ep *ep)
{
	const struct mlx5_cqe64 *cqe = inlay_cq_peek(&ep->cq);

	if (!cqe)
		return 0;
	if (inlay_cqe_is_error(cqe) || inlay_srq_release(&ep->srq, cqe) < 0)
		return ep_error(ep, cqe);
	inlay_cq_advance(&ep->cq, 1);
	return 1;
}

/* A buffer that is used up is posted again */
COUNTED int inlay_striding_poll(struct ep *s)
{
	const struct mlx5_cqe64 *cqe = inlay_cq_peek(&s->cq);
	int done;

	if (!cqe)
		return 0;
	if (inlay_cqe_is_special(cqe) || (done = inlay_striding_take(&s->rq, cqe, &s->at)) < 0)
		return s->err = -1;
	inlay_cq_advance(&s->cq, 1);
	if (INLAY_UNLIKELY(done)) {
		inlay_striding_recycle(&s->rq);
		inlay_rq_ring(&s->rq.rq);
	}
	return 1;
}

static void need(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "ceilings: %s\n", what);
		exit(1);
	}
}

/* n completions at once, of a compressed block: of stride indices, of the enhanced layout */
#define DECODE(name, n) \
	COUNTED uint32_t inlay_##name##_##n(struct inlay_cq *cq, uint16_t *counters, uint32_t *lengths) \
	{ return inlay_cq_decode(cq, counters, lengths, n); }
DECODE(indices, 64)
DECODE(sevens, 63)

/* All packets there are, from compressed blocks, with buffers that are not used up */
COUNTED uint32_t inlay_striding_unzip_64(struct ep *s)
{
	const struct mlx5_cqe64 *cqe;
	uint32_t n = 0;

	while ((cqe = inlay_cq_peek(&s->cq))) {
		if (inlay_cqe_is_special(cqe)) {
			if (!inlay_cqe_is_compressed(cqe) || inlay_cq_unzip(&s->cq) < 0)
				break;
			continue;
		}
		if (inlay_striding_take(&s->rq, cqe, &s->at) < 0)
			break;
		inlay_cq_advance(&s->cq, 1);
		n++;
	}
	return n;
}

static uint8_t ring[8192 * 64] __attribute__((aligned(4096))), reg[4096] __attribute__((aligned(4096)));
static struct mlx5_cqe64 cqes[RING] __attribute__((aligned(4096)));
static uint8_t entries[RING * 32] __attribute__((aligned(4096)));
static uint32_t record[2], cq_record[2];
static struct inlay_uar uar;

/* Queues that are new; the send queue's ring neither comes round nor fills up, unless it is to be polled */
static void fresh(struct inlay_sq *sq, uint32_t bbs)
{
	record[1] = 0;
	need(!inlay_uar_init(&uar, reg, 256, INLAY_UAR_SERIAL) && !inlay_sq_init(sq, ring, bbs, record, 0x1234, 16, &uar), "send queue");
}

static void fresh_cq(struct inlay_cq *cq, uint32_t format, uint32_t enhanced)
{
	memset(cqes, 0xf0, sizeof(cqes));
	need(!inlay_cq_init(cq, cqes, RING, 64, cq_record, NULL, 3) && !inlay_cq_set_compression(cq, format, enhanced), "CQ");
}

#define REPEAT(n, call)                                                                                                          \
	for (i = 0; i < (n); i++)                                                                                                \
		need(call, #call)
#define ROUND(call) REPEAT(ROUNDS, call)

static void left(const struct inlay_sq *sq, uint32_t pending)
{
	need(inlay_sq_pending(sq) == pending && inlay_from_be32(record[1]) == sq->pi, "what the rounds leave behind");
}

/* Posts that no benchmark counts */
static void run_posts(void)
{
	static const uint64_t values[] = {1, 2, 3, 4};
	struct inlay_sq sq __attribute__((aligned(64)));
	struct ibv_sge sge[BURST];
	struct inlay_av av, compact;
	uint32_t i;

	memset(&compact, 0x11, sizeof(compact));
	memset(&av, 0x99, sizeof(av));
	for (i = 0; i < BURST; i++) {
		sge[i].addr = 0x2000 + 2048 * i;
		sge[i].length = 64;
		sge[i].lkey = 5;
	}
	fresh(&sq, 8192);
	ROUND(!inlay_ud_inline(&sq, &av, values));
	ROUND(!inlay_ud_sge(&sq, &av, 0x2000 + i, 8, 5));
	ROUND(!inlay_dc_inline(&sq, &compact, values));
	left(&sq, 5 * ROUNDS);
	fresh(&sq, 8192);
	inlay_sq_set_atomics(&sq, 4 | 8);
	ROUND(!inlay_add_4(&sq, 0x1000 + 4 * i, 77, i, 0x2000, 5));
	left(&sq, ROUNDS);
	fresh(&sq, 8192);
	REPEAT(6, inlay_packets(&sq, sge, BURST) == BURST);
	left(&sq, 6 * BURST);
	REPEAT(6, inlay_multi_packet(&sq, sge, BURST) == BURST);
	left(&sq, 6 * BURST + 6 * 9);
}

/* One entry of a shared queue and one completion a round; then a striding queue, eight packets a buffer */
static void run_receives(void)
{
	static const struct inlay_strides shape = {3, 11, 0};
	struct ep p, s;
	uint32_t i;

	fresh_cq(&s.cq, INLAY_MINI_HASH, 0);
	need(!inlay_srq_init(&s.srq, entries, RING, 32, record), "SRQ");
	for (i = 0; i < ROUNDS; i++) {
		cqes[i].wqe_counter = inlay_to_be16(s.srq.head);
		need(!inlay_srq_give(&s.srq, 0x2000 + i, 64, 5), "post");
		cqes[i].op_own = MLX5_CQE_RESP_SEND << 4;
		need(inlay_srq_poll(&s) == 1, "poll");
	}
	need(inlay_srq_room(&s.srq) == RING && inlay_from_be32(record[0]) == ROUNDS, "what the rounds leave behind");
	fresh_cq(&p.cq, INLAY_MINI_HASH, 0);
	need(!inlay_striding_init(&p.rq, entries, 4, 32, record, &shape), "striding queue");
	REPEAT(4, !inlay_striding_post(&p.rq, 0x2000 + i, 5));
	for (i = 0; i < ROUNDS; i++) {
		cqes[i].byte_cnt = inlay_to_be32(1 << 16 | 64);
		cqes[i].wqe_counter = inlay_to_be16(i % 8);
		cqes[i].op_own = MLX5_CQE_RESP_SEND << 4;
		need(inlay_striding_poll(&p) == 1 && p.at.wqe == i / 8 % 4 && p.at.offset == i % 8 << 11 && p.at.len == 64, "poll");
	}
	need(inlay_from_be32(record[0]) == 4 + ROUNDS / 8, "what the rounds leave behind");
}

/* Packets of one stride each in a compressed block of 64, decoded, then unzipped and taken; receives in blocks of 7 */
static void run_blocks(void)
{
	static const struct inlay_strides shape = {9, 6, 0};
	uint32_t i, k, lengths[64];
	uint16_t counters[64];
	struct ep s;

	for (k = 0; k < 2; k++) {
		fresh_cq(&s.cq, INLAY_MINI_CSUM_STRIDX, 0);
		memset(cqes, 0, 64 * sizeof(cqes[0]));
		need(!inlay_striding_init(&s.rq, entries, 4, 32, record, &shape) && !inlay_striding_post(&s.rq, 0x2000, 5), "rings");
		for (i = 0; i < 64; i++) {
			uint32_t mini[2] = {inlay_to_be32(i), inlay_to_be32(1 << 16 | 60)};

			memcpy((uint8_t *)&cqes[i < 8 ? 1 : i & ~7u] + i % 8 * 8, mini, sizeof(mini));
		}
		cqes[0].op_own = MLX5_CQE_RESP_SEND << 4 | INLAY_CQE_COMPRESSED;
		cqes[0].byte_cnt = inlay_to_be32(64);
		if (k)
			need(inlay_striding_unzip_64(&s) == 64 && s.at.offset == 63 << 6 && s.at.len == 60, "packets");
		else
			need(inlay_indices_64(&s.cq, counters, lengths) == 64 && counters[63] == 63 && lengths[63] == (1 << 16 | 60), "indices");
	}
	fresh_cq(&s.cq, INLAY_MINI_HASH, 1);
	memset(cqes, 0, 64 * sizeof(cqes[0]));
	cqes[0].op_own = MLX5_CQE_RESP_SEND << 4;
	inlay_cq_advance(&s.cq, 1);
	for (i = 1; i < 64; i += 7)
		cqes[i].op_own = 6 << 4 | INLAY_CQE_COMPRESSED;
	need(inlay_sevens_63(&s.cq, counters, lengths) == 63 && counters[62] == 63, "blocks of 7");
}

int main(void)
{
	run_posts();
	run_blocks();
	run_receives();
	return 0;
}
