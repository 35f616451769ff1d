/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/striding.h: a striding (multi-packet) receive queue: each buffer takes many packets.
 *
 *   inlay_striding_post(&rq, (uintptr_t)buf[i], lkey);          every buffer: strides << log_size bytes
 *   inlay_striding_ring(&rq);
 *   ...
 *   done = inlay_striding_take(&rq, cqe, &at);                  one good CQE (inlay_cqe_is_special)
 *   if (done < 0) ...                                           no device writes such a CQE
 *   if (at.len)                                                 0: a filler, which is no packet
 *           handle(buf[at.wqe] + at.offset, at.len);
 *   if (done) {                                                 buf[at.wqe] gets no more packets
 *           buf[at.wqe] = other;                                not needed if nobody uses its packets
 *           inlay_striding_post(&rq, (uintptr_t)other, lkey);
 *           inlay_striding_ring(&rq);
 *   }
 *
 *   WQE   +0   next segment  be16 at +2: index of the WQE behind it. Cyclic queues do not read it
 *         +16  data          one buffer: length, key, address
 *         +32  end           lkey 0x100, when the ring's WQEs are longer
 *   CQE   +44  byte_cnt      filler << 31 | strides used << 16 | bytes of the packet
 *         +60  wqe_counter   the first of them
 *
 * A packet lies in strides of one buffer, one behind the other. When the next packet needs more
 * than are left of it, a filler, which has a CQE of its own, uses them up.
 *
 * Invariants:
 *   - The device fills the buffers in the order of their WQEs, and uses up all strides of one
 *     before it goes on. Counting the strides of the CQEs is enough to know which buffer they are
 *     in: wqe_id, at +2 of a CQE, is not read. A block of compressed CQEs has but one.
 *   - Each stride may have a CQE of its own. inlay_striding_reserve makes room for all.
 *   - An error CQE carries no strides: do not take it. The queue has stopped then. Reset its WQ or
 *     RQ, clean the CQ (inlay_cq_clean) and call inlay_striding_reset: all buffers are the caller's.
 *
 * Threads: one owner at a time.
 * Sources: the kernel's en_rx.c (mlx5e_handle_rx_cqe_mpwrq) and DPDK's mlx5_rx.c
 * (mlx5_rx_burst_mprq) for the CQE and for counting strides in order, DPDK's mlx5_rxq.c for the
 * WQE. libmlx5's own post to a striding WQ leaves the next segment out.
 */
#ifndef INLAY_QUEUE_STRIDING_H
#define INLAY_QUEUE_STRIDING_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/cqe.h>
#include <inlay/wqe.h>
#include <inlay/queue/cq.h>
#include <inlay/queue/rq.h>

/* A striding receive queue. */
struct inlay_striding {
	struct inlay_rq rq;       /* of WQEs */
	uint32_t strides;         /* of a buffer */
	uint32_t left;            /* of the oldest buffer; 0: nothing is posted */
	uint32_t bytes;           /* of a buffer */
	uint32_t log_size;        /* of a stride */
	uint32_t shift;           /* bytes that the device leaves free before each packet */
};

/* Where a packet is. */
struct inlay_packet_at {
	uint32_t wqe;             /* in which buffer: the place of its WQE in the ring */
	uint32_t offset;          /* where in it */
	uint32_t len;             /* bytes; 0: there is none */
};

/* ---- Set-up ---- */

/*
 * Describes a fresh striding ring, 16-byte aligned; buf, wqe_cnt, wqe_size (here 32 .. 1024) and
 * dbrec as in inlay_rq_init.
 *
 * log_strides  of each buffer, 0 .. 16: their number
 * log_size     6 .. 13: their bytes
 * shift        0, or 2 for a queue created with the two-byte shift, which aligns IP headers
 *
 * Returns 0, or -EINVAL for an argument out of its range.
 */
INLAY_COLD int inlay_striding_init(struct inlay_striding *rq, void *buf, uint32_t wqe_cnt, uint32_t wqe_size,
				   volatile uint32_t *dbrec, uint32_t log_strides, uint32_t log_size, uint32_t shift)
{
	uint32_t i;
	int err;

	if (wqe_size < 2 * INLAY_DS || log_strides > 16 || log_size < 6 || log_size > 13 || (shift && shift != 2))
		return -EINVAL;
	err = inlay_rq_init(&rq->rq, buf, wqe_cnt, wqe_size, dbrec);
	if (err)
		return err;
	rq->strides = 1u << log_strides;
	rq->left = 0;
	rq->bytes = rq->strides << log_size;
	rq->log_size = log_size;
	rq->shift = shift;
	for (i = 0; i < wqe_cnt; i++) {
		uint8_t *wqe = rq->rq.buf + (size_t)i * wqe_size;

		__builtin_memset(wqe, 0, INLAY_DS);
		inlay_wqe_next(wqe, (uint16_t)((i + 1) & rq->rq.mask));
	}
	return 0;
}

/* Reserves a CQE for each stride of the ring's buffers; see inlay_sq_reserve. */
INLAY_COLD int inlay_striding_reserve(struct inlay_striding *rq, struct inlay_cq *cq, const char **why)
{
	uint32_t n = rq->strides * (rq->rq.mask + 1);
	int err = inlay_cq_reserve(cq, n, why);

	if (!err) {
		rq->rq.cq = cq;
		rq->rq.reserved = n;
	}
	return err;
}

/* Gives back the queue's CQEs. Call it when its WQ or RQ is destroyed. */
INLAY_COLD void inlay_striding_fini(struct inlay_striding *rq)
{
	inlay_rq_fini(&rq->rq);
}

/* As inlay_rq_reset: nothing is posted. */
INLAY_COLD void inlay_striding_reset(struct inlay_striding *rq)
{
	inlay_rq_reset(&rq->rq);
	rq->left = 0;
}

/* ---- Data path ---- */

/* Bytes of a buffer. */
INLAY_FN uint32_t inlay_striding_bytes(const struct inlay_striding *rq)
{
	return rq->bytes;
}

/* Buffers that may be posted now. */
INLAY_FN uint32_t inlay_striding_room(const struct inlay_striding *rq)
{
	return inlay_rq_room(&rq->rq);
}

INLAY_ALWAYS void inlay_striding_posted_(struct inlay_striding *rq)
{
	rq->rq.pi++;
	if (INLAY_UNLIKELY(!rq->left))
		rq->left = rq->strides;
}

/*
 * Fills the next WQE: the buffer at addr, of inlay_striding_bytes, becomes number at.wqe of the
 * packets in it, which counts from 0 round the ring. Returns 0, or -EAGAIN when the ring is full.
 * The device sees nothing before inlay_striding_ring().
 */
INLAY_ALWAYS int inlay_striding_post(struct inlay_striding *rq, uint64_t addr, uint32_t lkey)
{
	struct ibv_sge sge;
	uint8_t *wqe;

	INLAY_CHECK(rq, "the queue is not NULL");
	if (INLAY_UNLIKELY(!inlay_rq_room(&rq->rq)))
		return -EAGAIN;
	sge.addr = addr;
	sge.length = rq->bytes;
	sge.lkey = lkey;
	wqe = rq->rq.buf + (size_t)(rq->rq.pi & rq->rq.mask) * rq->rq.stride;
	inlay_wqe_recv(wqe + INLAY_DS, wqe + rq->rq.stride, &sge, 1);
	inlay_striding_posted_(rq);
	return 0;
}

/*
 * Posts the buffer that the next WQE held a lap ago once more, without writing it: of a ring that is
 * kept full, the buffer that has come back. Visible after inlay_striding_ring().
 */
INLAY_ALWAYS void inlay_striding_recycle(struct inlay_striding *rq)
{
	INLAY_CHECK(rq && inlay_rq_room(&rq->rq), "the ring is not full");
	INLAY_CHECK(rq->rq.pi > rq->rq.mask, "the WQE has been written");
	inlay_striding_posted_(rq);
}

/* Shows the device all buffers posted so far: writes the doorbell record. */
INLAY_ALWAYS void inlay_striding_ring(struct inlay_striding *rq)
{
	inlay_rq_ring(&rq->rq);
}

/*
 * Counts the strides of one good receive completion, and says where its packet is. Once for each,
 * in their order.
 *
 * Returns 1 when the buffer at->wqe has been used up: it gets no more packets, and its WQE may be
 * posted; else 0. -EPROTO for a CQE that no device writes (no stride, strides or bytes beyond the
 * buffer, nothing posted); then neither the queue nor *at has changed.
 */
INLAY_ALWAYS int inlay_striding_take(struct inlay_striding *rq, const struct mlx5_cqe64 *cqe,
				     struct inlay_packet_at *at)
{
	uint32_t count, n, offset, len;

	INLAY_CHECK(rq && cqe && at, "none is NULL");
	INLAY_CHECK(!inlay_cqe_is_special(cqe), "neither an error nor a compressed block");
	count = inlay_cqe_byte_count(cqe);
	n = count >> 16 & 0x7fff;
	len = count & 0xffff;
	offset = ((uint32_t)inlay_cqe_wqe_counter(cqe) << rq->log_size) + rq->shift;
	if (INLAY_UNLIKELY(n - 1 >= rq->left))
		return -EPROTO;
	if (INLAY_UNLIKELY((int32_t)count < 0))
		offset = len = 0;
	else if (INLAY_UNLIKELY(offset + len > rq->bytes))
		return -EPROTO;
	at->wqe = rq->rq.limit & rq->rq.mask;
	at->offset = offset;
	at->len = len;
	rq->left -= n;
	if (INLAY_LIKELY(rq->left))
		return 0;
	rq->rq.limit++;
	if (inlay_rq_pending(&rq->rq))
		rq->left = rq->strides;
	return 1;
}

#endif
