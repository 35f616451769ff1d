/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/sync.h: posts that wait for something, let another queue send, or move local memory
 * without a peer.
 *
 * A chain. The device answers a message by itself, whenever it comes: no processor is in between.
 *
 *   attr.flags = INLAY_DEVX_QP_CD_SLAVE;   ... slave: connected to the QP that gets the answer (devx/qp.h)
 *   attr.flags = INLAY_DEVX_QP_CD_MASTER;  ... master: connected to itself
 *
 *   inlay_post_send_inline(&slave.sq, "answer", 6, 0);            rung for or not: it does not start
 *   inlay_post_wait_cq(&master.sq, cqn, received + 1, 0);         until the next CQE of that CQ
 *   inlay_post_send_enable(&master.sq, slave.qpn, inlay_sq_index(&slave.sq), INLAY_SIGNALED);
 *   inlay_sq_ring(&master.sq);                                    arms the chain
 *
 * Invariants:
 *   - A WAIT holds back its own queue only, in order. It is done when its condition has been true
 *     once; a WAIT that never is blocks the queue until the QP moves to ERR.
 *   - Waiting for a CQ and SEND_EN need a QP made with INLAY_DEVX_QP_CD_MASTER; SEND_EN also a slave.
 *     Verbs has no flag for them. Waiting for data or time works on any QP of a device that has
 *     wait_on_data or wait_on_time (devx/ifc/hca.h).
 *   - A slave's WQEs start when SEND_EN has said so, whether or not they were rung for. Fill them,
 *     then ring for the SEND_EN: its doorbell orders their bytes too.
 *   - A copy needs a QP that is allowed to: INLAY_DEVX_QP_MMO, or mlx5dv_create_qp with
 *     MLX5DV_QP_EX_WITH_MEMCPY. RC and DC only.
 *   - Without the right QP, these WQEs end in error completions, not here.
 *
 * Flags and results are those of inlay_post, without INLAY_INLINE and, except for copies,
 * without INLAY_SOLICITED.
 *
 * Threads: one owner of the queue at a time. Sources: wqe/sync.h; mlx5dv_wr_post(3) (memcpy).
 */
#ifndef INLAY_QUEUE_SYNC_H
#define INLAY_QUEUE_SYNC_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/wqe.h>
#include <inlay/wqe/sync.h>
#include <inlay/queue/post.h>
#include <inlay/queue/sq.h>

INLAY_ALWAYS void inlay_sync_flags_(uint32_t flags)
{
	INLAY_CHECK(!(flags & (INLAY_INLINE | INLAY_SOLICITED)), "no payload to inline, and no peer's CQE");
}

/* A WQE that names another queue. */
INLAY_ALWAYS int inlay_sync_queue_(struct inlay_sq *sq, uint32_t opcode, uint32_t index, uint32_t number,
				   uint32_t flags)
{
	struct inlay_cursor at;
	int err = inlay_sq_begin(sq, 1, &at);

	if (INLAY_UNLIKELY(err))
		return err;
	inlay_sync_flags_(flags);
	at = inlay_seg_queue(at, index, number);
	return inlay_sq_commit(sq, at, opcode, 0, flags, 0);
}

/* A WQE that compares. */
INLAY_ALWAYS int inlay_sync_wait_(struct inlay_sq *sq, uint32_t opmod, uint32_t cond, const struct ibv_sge *word,
				  uint64_t value, uint64_t mask, uint32_t flags)
{
	struct inlay_cursor at;
	int err = inlay_sq_begin(sq, 1, &at);

	if (INLAY_UNLIKELY(err))
		return err;
	inlay_sync_flags_(flags);
	at = inlay_seg_condition(at, cond, word->addr, word->lkey, value, mask);
	return inlay_sq_commit(sq, at, INLAY_OPCODE_WAIT, opmod, flags, 0);
}

/*
 * Waits until a CQ has had `index` CQEs since its creation. The comparison is cyclic in 24 bits: the
 * CQ may be at most 2^23 CQEs away on either side.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_wait_cq(struct inlay_sq *sq, uint32_t cqn, uint32_t index, uint32_t flags)
{
	return inlay_sync_queue_(sq, INLAY_OPCODE_WAIT, index & 0xffffff, cqn, flags);
}

/*
 * Waits until 8 bytes of local memory compare with a value.
 *
 * word     address, 8-byte aligned, and lkey; the length is taken as 8
 * cond     enum inlay_wait_cond: INLAY_WAIT_EQUAL, or INLAY_WAIT_SMALLER if value is to be smaller
 *          than the word
 * value    what the word is compared with, in the bits of mask. Both in host order; the word is a
 *          big-endian number
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_wait_data(struct inlay_sq *sq, const struct ibv_sge *word, uint32_t cond, uint64_t value,
				      uint64_t mask, uint32_t flags)
{
	INLAY_CHECK(word, "the word is not NULL");
	return inlay_sync_wait_(sq, INLAY_OPMOD_WAIT_DATA, cond, word, value, mask, flags);
}

/*
 * Waits until the device's clock is past `time`, in the clock's own unit and format: that of the
 * timestamps in the queue's CQEs.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_wait_time(struct inlay_sq *sq, uint64_t time, uint32_t flags)
{
	const struct ibv_sge none = {0, 0, 0};

	return inlay_sync_wait_(sq, INLAY_OPMOD_WAIT_TIME, INLAY_WAIT_CYCLIC_SMALLER, &none, time, ~(uint64_t)0, flags);
}

/*
 * Lets a slave QP execute what lies in its send ring before `index` (inlay_sq_index of its queue,
 * after the posts). The low 16 bits count; it never moves back.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_send_enable(struct inlay_sq *sq, uint32_t qpn, uint32_t index, uint32_t flags)
{
	return inlay_sync_queue_(sq, INLAY_OPCODE_SEND_EN, index & 0xffff, qpn, flags);
}

/*
 * Has the device read local memory and drop what it reads. What the device itself wrote there before
 * is visible to the memory's processor afterwards. Use it with INLAY_FENCE after reads into GPU memory.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_dump(struct inlay_sq *sq, const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	INLAY_CHECK(sq && (sge || !num_sge), "queue and SGEs are not NULL");
	inlay_sync_flags_(flags);
	inlay_flags_check_(flags);
	return inlay_post_sges_(sq, 0, (uint64_t)num_sge << 32, sge, inlay_post_what_(INLAY_OPCODE_DUMP, flags, 0), NULL);
}

/*
 * Copies local memory, by the device's DMA engine.
 *
 *   +16  0 | lkey | scratch address
 *   +32  length | lkey | from
 *   +48  length | lkey | to
 *
 * to, from  of the same length, 1 .. 2^31 bytes, at most the device's 2^log_dma_mmo_max_size
 * scratch   address and lkey of 64 bytes that the device may write to; one per queue is enough, and
 *           the length is not looked at
 *
 * Returns also -EINVAL for other lengths. Same bytes as mlx5dv_wr_memcpy, which has a scratch place
 * of its own per PD.
 */
INLAY_ALWAYS INLAY_RESULT int inlay_post_memcpy(struct inlay_sq *sq, const struct ibv_sge *to, const struct ibv_sge *from,
				   const struct ibv_sge *scratch, uint32_t flags)
{
	struct inlay_cursor at;
	uint32_t len;
	int err;

	INLAY_CHECK(sq && to && from && scratch, "no argument is NULL");
	INLAY_CHECK(!(flags & INLAY_INLINE), "a copy has no payload to inline");
	INLAY_CHECK(!sq->type || sq->type == IBV_QPT_RC || sq->type == IBV_QPT_DRIVER, "the QP's type has the operation");
	len = to->length;
	if (INLAY_UNLIKELY(len - 1 > INLAY_SGE_MAX || len != from->length))
		return -EINVAL;
	err = inlay_sq_begin(sq, 1, &at);
	if (INLAY_UNLIKELY(err))
		return err;
	len &= INLAY_SGE_MAX; /* 0 is 2^31 */
	at = inlay_seg_mmo(at, scratch->addr, scratch->lkey);
	at = inlay_seg_data(at, from->addr, len, from->lkey);
	at = inlay_seg_data(at, to->addr, len, to->lkey);
	return inlay_sq_commit(sq, at, MLX5_OPCODE_MMO, INLAY_OPMOD_MMO_DMA, flags, 0);
}

#endif
