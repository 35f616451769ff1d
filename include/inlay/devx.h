/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx.h: device commands (DEVX): their layouts, sending them, and objects made by them: the
 * queues of queue.h, without verbs objects. Set-up only.
 *
 *   inlay_devx_open(device, &ctx);                       verbs work on it too
 *   inlay_pdn_from_pd(&pdn, pd);                         PDs, MRs and AHs come from verbs
 *   inlay_devx_umem_reg(&umem, ctx, memory, bytes, IBV_ACCESS_LOCAL_WRITE, INLAY_DEVX_PAGE);
 *   inlay_devx_uar_alloc(&uar, ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL);
 *   inlay_devx_cq_create(&cq, ctx, &cq_attr);            ring and record, uar, CQEs
 *   if (inlay_devx_qp_create(&qp, ctx, &qp_attr))        the same, pdn, CQs
 *           puts(inlay_devx_error_text(&qp.error, text, sizeof(text)));
 *   inlay_devx_qp_address(&qp, &path, &mine);            exchange mine for peer
 *   inlay_devx_qp_connect(&qp, &path, &peer);
 *   inlay_post_write_inline(&qp.sq, raddr, rkey, &value, 8, INLAY_SIGNALED);
 *   inlay_sq_ring(&qp.sq);                               from here on it is queue.h
 *
 *   devx/ifc.h    layouts of commands and contexts    devx/call.h   opening, sending, errors
 *   devx/umem.h   memory that commands may name       devx/uar.h    doorbell registers
 *   devx/event.h  asynchronous queries, events        devx/cq.h     completion queue
 *   devx/path.h   addresses and paths                 devx/qp.h     queue pair: RC, UC, UD, DCI
 *   devx/srq.h    shared receive queue, tag matching  devx/dct.h    dynamically connected target
 *   devx/mkey.h   memory key: of a umem, of keys
 *   devx/packets.h, by name: receive queues of packets, RSS and flow rules
 *
 * Invariants:
 *   - An object is a struct in the caller's memory: the queue of queue.h, the handle (obj), the
 *     number, and the error of the last call on it. Its ring, record and register are in use until
 *     it is destroyed. Every ctx is a context from inlay_devx_open; objects belong to one context.
 *   - A create that fails leaves no object, and obj is NULL. Destroying a struct that is zeroed,
 *     failed or destroyed does nothing. A number that does not fit its field is refused: -EINVAL.
 *   - Objects of verbs and of commands mix by number: a QP made here may use a verbs CQ, SRQ
 *     (inlay_srqn_from_srq) and PD, and its peer may be a verbs QP. Poll such a CQ with inlay:
 *     libmlx5 does not know the QP.
 *   - Destroy in this order: flow rules; RSS; QPs, DCTs and RQs; shared queues; CQs; memory keys;
 *     the register; umems; PDs; event channels; the context. Destroying what is in use returns
 *     -EBUSY and changes nothing.
 *
 * Threads: any number of threads may send commands, with one thread per object. Create and destroy
 * the QPs of a register in one thread at a time.
 */
#ifndef INLAY_DEVX_H
#define INLAY_DEVX_H /* a trial: names may change */

#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/devx/ifc.h>
#include <inlay/devx/call.h>
#include <inlay/devx/umem.h>
#include <inlay/devx/uar.h>
#include <inlay/devx/event.h>
#include <inlay/devx/cq.h>
#include <inlay/devx/path.h>
#include <inlay/devx/qp.h>
#include <inlay/devx/srq.h>
#include <inlay/devx/dct.h>
#include <inlay/devx/mkey.h>

INLAY_CASTS_END_
#endif
