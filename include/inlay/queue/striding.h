/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/striding.h: striding (multi-packet) receive queues: each buffer takes many packets.
 *
 *   inlay_striding_post(&rq, (uintptr_t)buf[i], lkey);          buffers of strides << log_size bytes
 *   inlay_rq_ring(&rq.rq);
 *   ...
 *   done = inlay_striding_take(&rq, cqe, &at);                  one good CQE (inlay_cqe_is_special)
 *   if (done < 0) ...                                           no device writes such a CQE
 *   if (at.len)                                                 0: a filler, which is no packet
 *           handle(buf[at.wqe] + at.offset, at.len);
 *   if (done) {                                                 buf[at.wqe] gets no more packets
 *           buf[at.wqe] = other;                                not needed if nobody uses its packets
 *           inlay_striding_post(&rq, (uintptr_t)other, lkey);
 *           inlay_rq_ring(&rq.rq);                              also inlay_rq_room, inlay_rq_fini
 *   }
 *
 *   WQE   +0   next segment  be16 at +2: index of the WQE behind it. Cyclic queues do not read it
 *         +16  data          one buffer: length, key, address
 *         +32  end           lkey 0x100, when the ring's WQEs are longer
 *   CQE   +2   wqe_id        the WQE
 *         +44  byte_cnt      filler << 31 | strides used << 16 | bytes of the packet; an expanded
 *                            INLAY_MINI_FTAG_STRIDX has no strides: they follow from the bytes
 *         +60  wqe_counter   the first of them
 *
 * A packet takes consecutive strides of one buffer. If the buffer has too few left for the next
 * packet, a filler uses up the rest; it has a CQE of its own.
 *
 * Invariants:
 *   - The device fills the buffers in the order of their WQEs, and uses up all strides of one
 *     before it goes on. Counting the strides of the CQEs is enough to know which buffer they are
 *     in: wqe_id says the same (DPDK asserts it), and in a block of compressed CQEs only the title
 *     has one. It is not read. A packet's first stride must be the one that the count expects;
 *     otherwise a CQE was lost.
 *   - Each stride may have a CQE of its own. inlay_striding_reserve_ makes room for all.
 *   - After an error CQE call inlay_striding_error, which says whether the queue has stopped. If so,
 *     reset its WQ or RQ, free what is left in its CQ (inlay_cq_clean_index: completions of packets
 *     name no QP) and call inlay_striding_reset: all buffers are the caller's.
 *
 * A shared striding queue (inlay_striding_srq: an SRQ or RMP, devx/srq.h; an XRQ is untested) is an
 * inlay_srq whose entries come back with their last stride. Several QPs fill its entries side by side:
 *
 *   sge.length = strides << log_size;                           or one SGE for each stride
 *   while (... i < buffers)
 *           inlay_post_srq_recv(&rq.srq, &sge_of_buffer[i], 1, i);
 *   inlay_srq_ring(&rq.srq);
 *   ...
 *   done = inlay_striding_srq_take(&rq, cqe, &at);
 *   buffer = inlay_srq_user(&rq.srq, at.wqe);
 *   if (done > 0)                                               its last packet: the entry is empty,
 *           inlay_post_srq_recv(&rq.srq, &sge, 1, other);       and takes another buffer, or this one
 *                                                               when its packets have been used
 *
 * In a compressed block only the title names the entry, so the block must end with that entry.
 *
 * The callback of inlay_cq_clean must call inlay_striding_srq_take for each good completion.
 * inlay_srq_gone is not for a striding queue: it would give an entry back with its first stride.
 *
 * An error CQE of a shared queue names an entry that several QPs may be filling, so do not take it.
 * That entry does not come back; in a cyclic queue, neither do those posted after it. The others
 * stay in use. When too few are left, destroy the queue after its QPs and RQs, and create it again:
 * its buffers are the caller's then.
 *
 * Threads: one owner at a time.
 * Sources: the kernel's en_rx.c (mlx5e_handle_rx_cqe_mpwrq, which reads wqe_id: its queues are linked
 * lists) and DPDK's mlx5_rx.c (mlx5_rx_burst_mprq) for the CQE and for counting strides in order,
 * DPDK's mlx5_rxq.c for the WQE. libmlx5's own post to a striding WQ leaves the next segment out.
 */
#ifndef INLAY_QUEUE_STRIDING_H
#define INLAY_QUEUE_STRIDING_H /* a trial: names may change */

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/cqe.h>
#include <inlay/wqe.h>
#include <inlay/queue/cq.h>
#include <inlay/queue/rq.h>
#include <inlay/queue/srq.h>

/* The shape of each buffer. */
struct inlay_strides {
	uint32_t log_number;      /* log2 of its strides, 0 .. 16 */
	uint32_t log_size;        /* log2 of a stride's bytes, 6 .. 13 */
	uint32_t shift;           /* bytes left free before each packet: 0, or 2, which aligns IP headers */
};

/* The same, as the data path uses it. */
struct inlay_strided_ {
	uint32_t strides;
	uint32_t bytes;           /* strides << log_size */
	uint32_t log_size;
	uint32_t shift;
};

/* A striding receive queue. */
struct inlay_striding {
	struct inlay_rq rq;       /* of buffers: ring it, ask it for room, finish it */
	uint32_t left;            /* strides of the oldest buffer; 0: nothing is posted */
	struct inlay_strided_ of;
};

/* A shared one. */
struct inlay_striding_srq {
	struct inlay_srq srq;     /* of entries: post to it, and ring it */
	struct inlay_strided_ of;
};

/* Where a packet is. */
struct inlay_packet_at {
	uint32_t wqe;             /* in which buffer: the place of its WQE in the ring */
	uint32_t offset;          /* where in it */
	uint32_t len;             /* bytes; 0: there is none */
};

/* ---- Set-up ---- */

INLAY_COLD int inlay_strides_ok_(const struct inlay_strides *shape)
{
	return shape->log_number <= 16 && shape->log_size >= 6 && shape->log_size <= 13 &&
	       (!shape->shift || shape->shift == 2);
}

INLAY_COLD void inlay_strided_init_(struct inlay_strided_ *of, const struct inlay_strides *shape)
{
	of->strides = 1u << shape->log_number;
	of->bytes = of->strides << shape->log_size;
	of->log_size = shape->log_size;
	of->shift = shape->shift;
}

/*
 * Describes a fresh striding ring, 16-byte aligned; buf, wqe_cnt, wqe_size (here 32 .. 1024) and
 * dbrec as in inlay_rq_init. Returns 0, or -EINVAL for an argument out of its range.
 */
INLAY_COLD INLAY_RESULT int inlay_striding_init(struct inlay_striding *rq, void *buf, uint32_t wqe_cnt,
						uint32_t wqe_size, volatile uint32_t *dbrec,
						const struct inlay_strides *shape)
{
	uint32_t i;
	int err;

	if (wqe_size < 2 * INLAY_DS || !inlay_strides_ok_(shape))
		return -EINVAL;
	err = inlay_rq_init(&rq->rq, buf, wqe_cnt, wqe_size, dbrec);
	if (err)
		return err;
	rq->left = 0;
	inlay_strided_init_(&rq->of, shape);
	for (i = 0; i < wqe_cnt; i++) {
		uint8_t *wqe = rq->rq.buf + (size_t)i * wqe_size;

		__builtin_memset(wqe, 0, INLAY_DS);
		inlay_wqe_next_(wqe, (uint16_t)((i + 1) & rq->rq.mask));
	}
	return 0;
}

/*
 * Makes rq->srq, fresh from inlay_srq_init or inlay_srq_init_cyclic, a striding queue. Returns 0, or
 * -EINVAL for an impossible shape.
 */
INLAY_COLD INLAY_RESULT int inlay_striding_srq_init(struct inlay_striding_srq *rq, const struct inlay_strides *shape)
{
	uint32_t i;

	if (!inlay_strides_ok_(shape))
		return -EINVAL;
	inlay_strided_init_(&rq->of, shape);
	for (i = 0; i < rq->srq.wqe_cnt; i++)
		__builtin_memset(inlay_srq_wqe(&rq->srq, i) + INLAY_SRQ_USED_, 0, 2);
	return 0;
}

/* Reserve a CQE for each stride; as inlay_sq_reserve_. */
INLAY_COLD int inlay_striding_reserve_(struct inlay_striding *rq, struct inlay_cq *cq, const char **why)
{
	return inlay_cq_reserve_for_(cq, rq->of.strides * (rq->rq.mask + 1), &rq->rq.cq, &rq->rq.reserved, why);
}

INLAY_COLD int inlay_striding_srq_reserve_(struct inlay_striding_srq *rq, struct inlay_cq *cq, const char **why)
{
	return inlay_cq_reserve_for_(cq, rq->of.strides * rq->srq.wqe_cnt, &rq->srq.cq, &rq->srq.reserved, why);
}

/* As inlay_rq_reset: nothing is posted. */
INLAY_COLD void inlay_striding_reset(struct inlay_striding *rq)
{
	inlay_rq_reset(&rq->rq);
	rq->left = 0;
}

/* ---- Data path ---- */

INLAY_ALWAYS void inlay_striding_posted_(struct inlay_striding *rq)
{
	rq->rq.pi++;
	if (INLAY_UNLIKELY(!rq->left))
		rq->left = rq->of.strides;
}

/*
 * Fills the next WQE: the buffer at addr, of strides << log_size bytes, becomes number at.wqe of the
 * packets in it, which counts from 0 round the ring. Returns 0, or -EAGAIN when the ring is full.
 * The device sees nothing before inlay_rq_ring(&rq->rq).
 */
INLAY_ALWAYS INLAY_RESULT int inlay_striding_post(struct inlay_striding *rq, uint64_t addr, uint32_t lkey)
{
	struct ibv_sge sge;
	uint8_t *wqe;

	INLAY_CHECK(rq && rq->rq.buf, "the queue is not NULL, nor finished");
	if (INLAY_UNLIKELY(!inlay_rq_room(&rq->rq)))
		return -EAGAIN;
	sge.addr = addr;
	sge.length = rq->of.bytes;
	sge.lkey = lkey;
	wqe = rq->rq.buf + (size_t)(rq->rq.pi & rq->rq.mask) * rq->rq.stride;
	inlay_wqe_recv_(wqe + INLAY_DS, wqe + rq->rq.stride, &sge, 1);
	inlay_striding_posted_(rq);
	return 0;
}

/*
 * Posts the next WQE unchanged, with the buffer that it held one lap ago. In a full ring that is the
 * buffer just used up. Visible after inlay_rq_ring(&rq->rq).
 */
INLAY_ALWAYS void inlay_striding_recycle(struct inlay_striding *rq)
{
	INLAY_CHECK(rq && rq->rq.buf && inlay_rq_room(&rq->rq), "the ring is not full, nor finished");
	INLAY_CHECK(rq->rq.pi > rq->rq.mask, "the WQE has been written");
	inlay_striding_posted_(rq);
}

/* Takes n strides, at most `left`, off the oldest buffer. Returns 1 if they were its last. */
INLAY_ALWAYS int inlay_striding_use_(struct inlay_striding *rq, uint32_t n)
{
	rq->left -= n;
	if (INLAY_LIKELY(rq->left))
		return 0;
	rq->rq.limit++;
	if (inlay_rq_pending(&rq->rq))
		rq->left = rq->of.strides;
	return 1;
}

/* Strides of a packet whose byte_cnt gives only its bytes; 0 if it gives anything else. */
INLAY_ALWAYS uint32_t inlay_striding_needs_(const struct inlay_strided_ *of, uint32_t count)
{
	__asm__ volatile("" ::: "memory"); /* reloads, so that the common path saves no registers */
	return count - 1 < 0xffff ? (count + of->shift + (1u << of->log_size) - 1) >> of->log_size : 0;
}

/*
 * Counts the strides of one good receive completion, and says where its packet is. Once for each,
 * in their order.
 *
 * Returns 1 when the buffer at->wqe has been used up: it gets no more packets, and its WQE may be
 * posted; else 0. -EPROTO when a CQE was lost, and for a CQE that no device writes (zero strides;
 * strides or bytes beyond the buffer; nothing posted); then neither the queue nor *at has changed.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_striding_take(struct inlay_striding *rq, const struct mlx5_cqe64 *cqe,
						  struct inlay_packet_at *at)
{
	uint32_t count, first, n, offset, len;

	INLAY_CHECK(rq && cqe && at, "none is NULL");
	INLAY_CHECK(!inlay_cqe_is_special(cqe), "neither an error nor a compressed block");
	count = inlay_cqe_byte_count(cqe);
	n = inlay_cqe_strides_(count);
	first = inlay_cqe_wqe_counter(cqe);
	offset = (first << rq->of.log_size) + rq->of.shift;
	len = count & 0xffff;
	if (INLAY_UNLIKELY(n - 1 >= rq->left)) {
		n = inlay_striding_needs_(&rq->of, count);
		if (n - 1 >= rq->left)
			return -EPROTO;
	}
	if (INLAY_UNLIKELY((int32_t)count < 0))
		offset = len = 0;
	else if (INLAY_UNLIKELY(first != rq->of.strides - rq->left) || INLAY_UNLIKELY(offset + len > rq->of.bytes))
		return -EPROTO;
	at->wqe = rq->rq.limit & rq->rq.mask;
	at->offset = offset;
	at->len = len;
	return inlay_striding_use_(rq, n);
}

/*
 * Takes an error CQE, in its turn among the good ones. The local QP operation, local protection and
 * flush errors stop the queue. After any other the device goes on, and the strides that the CQE
 * names have been used up without a packet.
 *
 * Returns 1 or 0 as inlay_striding_take, with *wqe the buffer; -EBADFD when the queue has stopped;
 * -EPROTO for another CQE, or more strides than the buffer has left. Source: mlx5_rx_err_handle (DPDK).
 */
INLAY_COLD INLAY_RESULT int inlay_striding_error(struct inlay_striding *rq, const struct mlx5_cqe64 *cqe, uint32_t *wqe)
{
	uint32_t n;

	INLAY_CHECK(rq && cqe && wqe, "none is NULL");
	if (inlay_cqe_opcode(cqe) != MLX5_CQE_RESP_ERR)
		return -EPROTO;
	switch (inlay_cqe_syndrome(cqe)) {
	case MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR:
	case MLX5_CQE_SYNDROME_LOCAL_PROT_ERR:
	case MLX5_CQE_SYNDROME_WR_FLUSH_ERR:
		return -EBADFD;
	}
	n = inlay_cqe_strides_(inlay_cqe_byte_count(cqe));
	if (n > rq->left || !rq->left)
		return -EPROTO;
	*wqe = rq->rq.limit & rq->rq.mask;
	return inlay_striding_use_(rq, n);
}

/*
 * As inlay_striding_take, for a shared queue: entries come back in any order, empty. Of a good
 * completion of a packet.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_striding_srq_take(struct inlay_striding_srq *rq, const struct mlx5_cqe64 *cqe,
						      struct inlay_packet_at *at)
{
	uint32_t index, count, n, offset, len;
	uint16_t used;
	uint8_t *entry;

	INLAY_CHECK(rq && cqe && at, "none is NULL");
	INLAY_CHECK(!inlay_cqe_is_special(cqe), "neither an error nor a compressed block");
	count = inlay_cqe_byte_count(cqe);
	n = inlay_cqe_strides_(count);
	if (INLAY_UNLIKELY(!n))
		n = inlay_striding_needs_(&rq->of, count);
	offset = ((uint32_t)inlay_cqe_wqe_counter(cqe) << rq->of.log_size) + rq->of.shift;
	len = count & 0xffff;
	if (INLAY_UNLIKELY((int32_t)count < 0))
		offset = len = 0;
	else if (INLAY_UNLIKELY(offset + len > rq->of.bytes))
		return -EPROTO;
	index = inlay_from_be16(cqe->wqe_id);
	entry = inlay_srq_entry_(&rq->srq, index);
	if (INLAY_UNLIKELY(!entry) || INLAY_UNLIKELY(entry[INLAY_SRQ_STATE_]))
		return -EPROTO;
	__builtin_memcpy(&used, entry + INLAY_SRQ_USED_, sizeof(used));
	if (INLAY_UNLIKELY(n - 1 >= rq->of.strides - used))
		return -EPROTO;
	at->wqe = rq->srq.cnt ? index : index & (rq->srq.wqe_cnt - 1);
	at->offset = offset;
	at->len = len;
	n += used;
	used = n == rq->of.strides ? 0 : (uint16_t)n;
	__builtin_memcpy(entry + INLAY_SRQ_USED_, &used, sizeof(used));
	if (INLAY_LIKELY(used))
		return 0;
	inlay_srq_free_(&rq->srq, index);
	return 1;
}

INLAY_CASTS_END_
#endif
