/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue.h: send queue, receive queues, completion queue and the doorbell register they ring: rings, indices, credit, doorbells.
 *
 * The idea.  Sending:    post -> post -> ring          Completing:   peek -> use -> advance
 *
 *   inlay_post_write(&sq, raddr, rkey, &sge, 1, INLAY_SIGNALED);      fills the ring; the device does not look yet
 *   inlay_sq_ring(&sq);                                               one doorbell for all that was posted
 *
 *   const struct mlx5_cqe64 *cqe = inlay_cq_peek(&cq);                NULL: nothing there
 *   if (cqe) {
 *           if (inlay_cqe_is_error(cqe)) ...
 *           inlay_sq_release(&sq, cqe);                               credit back, in WQEBBs
 *           inlay_cq_advance(&cq, 1);                                 the slot back
 *   }
 *
 * The rooms, each with its manual:
 *
 *   queue/uar.h   the doorbell register, and who may copy into it
 *   queue/sq.h    send queue: ring, credit, doorbells
 *   queue/post.h  what is posted to it
 *   queue/rq.h    receive queue
 *   queue/srq.h   shared receive queue
 *   queue/cq.h    completion queue, events
 *
 * A QP in error. The device flushes what is outstanding, and each flush CQE gives its credit back as any other does. To go on:
 *
 *   ibv_modify_qp to ERR, unless it is there already               stops it; with an SRQ, wait for IBV_EVENT_QP_LAST_WQE_REACHED
 *   inlay_post_nop(&sq, INLAY_SIGNALED);  inlay_sq_ring(&sq)       one that can only be flushed: its completion is the last. Without it, a
 *                                                                  last WQE that was done unsignaled would be waited for in vain
 *   poll and release until inlay_sq_pending and inlay_rq_pending are 0    inlay_sq_owed: completions yet to come, at most
 *   ibv_modify_qp to RESET
 *   inlay_cq_clean(&cq, qpn, its SRQ or NULL)                      each of its CQs. For who does not care for the rest: from RESET on
 *   inlay_sq_reset(&sq);  inlay_rq_reset(&rq)
 *   ibv_modify_qp to INIT, RTR, RTS; post
 *
 * Room for completions. A CQ is to hold one CQE for each WQE that can be outstanding in the queues that complete to it: where it overruns,
 * it is dead, and its QPs go into error without a CQE that says so (IBV_EVENT_CQ_ERR does).
 *
 * Threads: every queue has one owner at a time. Only the register may be shared, as its mode says; attaching queues to it and detaching
 * them (inlay_sq_init, inlay_sq_from_qp, inlay_sq_fini) is for one thread at a time. After fork() only the parent uses the queues.
 *
 * Set-up is in verbs.h, which fills these structs from ibv objects. Who has rings from elsewhere calls inlay_sq_init and its sisters.
 * Sources: libmlx5's qp.c and cq.c (what the device is told and when), the PRM's "Doorbells" and "UAR" chapters.
 */
#ifndef INLAY_QUEUE_H
#define INLAY_QUEUE_H

#include <inlay/queue/uar.h>
#include <inlay/queue/sq.h>
#include <inlay/queue/post.h>
#include <inlay/queue/rq.h>
#include <inlay/queue/srq.h>
#include <inlay/queue/cq.h>

#endif
