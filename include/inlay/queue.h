/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue.h: send queue, receive queues, completion queue and the doorbell register they ring.
 *
 *   inlay_post_write(&sq, raddr, rkey, &sge, 1, INLAY_SIGNALED);      fills the ring; the device does not look yet
 *   inlay_sq_ring(&sq);                                               one doorbell for everything posted
 *
 *   const struct mlx5_cqe64 *cqe = inlay_cq_peek(&cq);                NULL: nothing there
 *   if (cqe) {
 *           if (inlay_cqe_is_error(cqe)) ...
 *           inlay_sq_release(&sq, cqe);                               credit back, in WQEBBs
 *           inlay_cq_advance(&cq, 1);                                 the slot back
 *   }
 *
 * One thread can drive any number of send queues through one serial register and one CQ. Each
 * header has its own manual:
 *
 *   queue/uar.h        the doorbell register: who may ring it, and how
 *   queue/cq.h         completion queue, room for completions, events
 *   queue/sq.h         send queue: ring, credit, doorbells
 *   queue/post.h       what is posted to it
 *   queue/atomic.h     posts of atomics
 *   queue/rq.h         receive queue
 *   queue/srq.h        shared receive queue
 *   queue/qpn_table.h  finds the caller's object by the QP number of a completion
 *
 * Included by name:
 *
 *   queue/batch.h      many receives at once, compressed ones too
 *   queue/ooo.h        receive queue whose WQEs are taken in any order
 *   queue/user_index.h queues whose receives name no QP
 *   queue/striding.h   receive queue whose buffers take many packets each
 *   queue/packet.h     posts of Ethernet packets
 *   queue/masked.h     extended atomics
 *   queue/umr.h        posts that change memory keys
 *   queue/sync.h       copies of local memory by the device's DMA engine
 *   queue/raw.h        posts a WQE of the caller's
 *
 * A QP in error. The device flushes all outstanding WQEs, and flush CQEs return credit like any
 * others. To use the QP again (examples/recover.c; include/inlay/recovery.md has more):
 *
 *   ibv_modify_qp to ERR, unless it is there already           stops it; with an SRQ, wait for
 *                                                              IBV_EVENT_QP_LAST_WQE_REACHED
 *   inlay_post(&sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED); inlay_sq_ring(&sq)    its flush CQE is the last. Without it, the
 *                                                              credit of a last WQE that succeeded
 *                                                              unsignaled would never come back.
 *                                                              Not needed if all were signaled;
 *                                                              on -EAGAIN, poll first
 *   poll and release until nothing is pending                  inlay_sq_pending, inlay_rq_pending
 *   ibv_modify_qp to RESET
 *   inlay_cq_clean(&cq, qpn, inlay_srq_gone, &srq)             each of its CQs; NULL, NULL without an SRQ.
 *                                                              Callers that need no flush CQEs
 *                                                              start at RESET
 *   inlay_sq_reset(&sq);  inlay_rq_reset(&rq)
 *   ibv_modify_qp to INIT, RTR, RTS; post
 *
 * To end a QP. With an SRQ, first ERR and IBV_EVENT_QP_LAST_WQE_REACHED as above, even if the QP
 * is idle: an entry that the device has fetched for it would be lost.
 *
 *   ibv_destroy_qp(qp)
 *   inlay_cq_clean(&cq, qpn, inlay_srq_gone, &srq)             what was not polled; each of its CQs
 *   inlay_sq_fini(&sq);  inlay_rq_fini(&rq)                    their room in the CQ
 *
 * Order. WQEs start and complete in order, but not all wait for the results of those before them:
 * what depends on a read or an atomic needs INLAY_FENCE, what uses a changed key
 * INLAY_FENCE_INITIATOR_SMALL. include/inlay/ordering.md has the table, with sources.
 *
 * Counters. The queues keep no statistics, but their indices count on, modulo 2^32, and are masked
 * only at use. The difference of two readings is the traffic in between. Another thread may read
 * them too: each is one aligned word, which may be a little old.
 *
 *              so far                                    now
 *   inlay_sq   inlay_sq_index: WQEBBs posted             inlay_sq_pending, inlay_sq_room
 *              inlay_sq_rung: WQEBBs rung for
 *              index - pending: WQEBBs given back
 *   inlay_rq   inlay_rq_index: receives posted           inlay_rq_pending, inlay_rq_room
 *              index - pending: receives given back
 *   inlay_srq                                            inlay_srq_room
 *
 * A striding queue counts in the inlay_rq or inlay_srq that it holds.
 *
 * Probes show single events (INLAY_USDT, base.h).
 *
 * Threads: every queue has one owner at a time, unless its name says shared. A register may be
 * shared as its mode says.
 * After fork() only the parent uses the queues.
 *
 * verbs.h fills these structs from ibv objects; for rings from elsewhere there is inlay_sq_init and
 * so on.
 */
#ifndef INLAY_QUEUE_H
#define INLAY_QUEUE_H

#include <inlay/queue/uar.h>
#include <inlay/queue/cq.h>
#include <inlay/queue/sq.h>
#include <inlay/queue/post.h>
#include <inlay/queue/atomic.h>
#include <inlay/queue/rq.h>
#include <inlay/queue/srq.h>
#include <inlay/queue/qpn_table.h>

#endif
