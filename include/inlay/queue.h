/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue.h: send queue, receive queues, completion queue and the doorbell register they ring.
 *
 *   err = inlay_post_write(&sq, raddr, rkey, &sge, 1, INLAY_SIGNALED);   not yet seen by the device
 *   inlay_sq_ring(&sq);                                                  one doorbell for all posts
 *
 *   const struct mlx5_cqe64 *cqe = inlay_cq_peek(&cq);             NULL: no completion
 *   if (cqe) {
 *           if (inlay_cqe_is_error(cqe)) ...
 *           inlay_sq_release(&sq, cqe);                            returns credit, in WQEBBs
 *           inlay_cq_advance(&cq, 1);                              returns the slot
 *   }
 *
 * One thread can drive any number of send queues through one serial register and one CQ. Each
 * header has its own manual:
 *
 *   queue/uar.h        doorbell register: who may ring it, and how
 *   queue/cq.h         completion queue, room for completions, events
 *   queue/sq.h         send queue: ring, credit, doorbells
 *   queue/post.h       sends, writes, reads
 *   queue/atomic.h     atomics
 *   queue/rq.h         receive queue
 *   queue/srq.h        shared receive queue
 *   queue/qpn_table.h  from the QP number in a completion to the caller's object
 *
 * Included by name:
 *
 *   queue/batch.h      decodes many receives at once, compressed CQEs too
 *   queue/ooo.h        receive queue that the device consumes out of order
 *   queue/user_index.h queues whose completions carry a user index, not a QP number
 *   queue/striding.h   receive queue that puts many packets into each buffer
 *   queue/packet.h     Ethernet packets
 *   queue/masked.h     masked atomics
 *   queue/umr.h        mkey updates
 *   queue/sync.h       copies of local memory by the device
 *   queue/raw.h        WQEs that the caller has built elsewhere
 *
 * A QP in error. The device flushes every outstanding WQE, and flush CQEs return credit like any
 * other. To use the QP again (examples/recover.c, include/inlay/recovery.md):
 *
 *   1. ibv_modify_qp to ERR, unless it is there. With an SRQ, wait for IBV_EVENT_QP_LAST_WQE_REACHED.
 *   2. Post a signaled NOP and ring. Its flush CQE is the last, and returns the credit of unsignaled
 *      WQEs before it. On -EAGAIN, ring, poll and release, then post it again. Not needed if every
 *      WQE was signaled.
 *   3. Poll and release until inlay_sq_pending and inlay_rq_pending are 0.
 *   4. ibv_modify_qp to RESET. Without an SRQ, callers that need no flush CQEs start here.
 *   5. inlay_cq_clean(&cq, qpn, inlay_srq_gone, &srq) on each of its CQs; NULL, NULL without an SRQ.
 *   6. inlay_sq_reset(&sq), inlay_rq_reset(&rq).
 *   7. ibv_modify_qp to INIT, RTR, RTS; post.
 *
 * To end a QP: ibv_destroy_qp, inlay_cq_clean on each of its CQs, inlay_sq_fini, inlay_rq_fini.
 * With an SRQ, do step 1 first, even if the QP is idle: an entry that the device has fetched would
 * be lost.
 *
 * Order. WQEs start and complete in order, but do not all wait for the results of earlier ones. A
 * WQE that depends on a read or an atomic needs INLAY_FENCE; one that uses a changed key needs
 * INLAY_FENCE_INITIATOR_SMALL. include/inlay/ordering.md has the table, with sources.
 *
 * Counters. Indices count modulo 2^32 and are masked only at use, so the difference of two readings
 * is the traffic in between: inlay_sq_index (WQEBBs posted), inlay_sq_rung (rung for),
 * inlay_rq_index (receives posted). inlay_sq_pending and inlay_rq_pending count what has not been
 * given back; inlay_sq_room and inlay_rq_room say how much may be posted now, inlay_srq_room how
 * many entries are empty. Another thread may read inlay_sq_index, inlay_sq_pending, inlay_sq_room
 * and inlay_rq_index: each is one aligned word, which may be out of date. Do not read the others
 * from another thread. Static probes show single events (INLAY_USDT, base.h).
 *
 * Threads: every queue has one owner at a time; a register is shared as its mode says. After fork()
 * only the parent uses the queues.
 *
 * verbs.h fills these structs from ibv objects; inlay_sq_init and the other init functions take
 * rings from elsewhere.
 */
#ifndef INLAY_QUEUE_H
#define INLAY_QUEUE_H /* names are stable until 1.0 */

#include <inlay/queue/uar.h>
#include <inlay/queue/cq.h>
#include <inlay/queue/sq.h>
#include <inlay/queue/post.h>
#include <inlay/queue/atomic.h>
#include <inlay/queue/rq.h>
#include <inlay/queue/srq.h>
#include <inlay/queue/qpn_table.h>

#endif
