/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx.h: device commands (DEVX): their layouts, how they are sent and what comes back, and whole objects made by them: queues of
 * queue.h without a verbs object behind them. Set-up only; calls libibverbs and libmlx5.
 *
 *   inlay_devx_open(&ctx, device);                                    instead of ibv_open_device; verbs work on it as ever
 *   inlay_pdn_from_pd(&pdn, pd);                                      verbs.h: PDs, MRs, address handles stay those of verbs
 *   inlay_devx_umem_reg_pages(&umem, ctx, memory, bytes, IBV_ACCESS_LOCAL_WRITE, INLAY_DEVX_PAGE);
 *   inlay_devx_uar_alloc(&uar, ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL);
 *   inlay_devx_cq_create(&cq, ctx, &cq_attr);                         where in umem ring and record are, which uar, how many CQEs
 *   inlay_devx_qp_create(&qp, ctx, &qp_attr);                         the same, and pdn, cq.cq.cqn
 *   inlay_devx_qp_address(&qp, &path, &mine);                         mine to the peer, peer from it
 *   inlay_devx_qp_connect(&qp, &path, &peer);
 *   inlay_post_write_inline(&qp.sq, raddr, rkey, &value, 8, INLAY_SIGNALED);
 *   inlay_sq_ring(&qp.sq);                                            from here on it is queue.h
 *   ... inlay_cq_peek(&cq.cq) ...
 *
 * The rooms, each with its manual:
 *
 *   devx/ifc.h    layouts of commands and contexts; fields by offset and width
 *   devx/call.h   opening, sending, errors
 *   devx/info.h   what the device can do, as the data path chooses by it
 *   devx/umem.h   memory that commands may name
 *   devx/uar.h    doorbell registers, event queues of completion vectors
 *   devx/event.h  asynchronous queries, events
 *   devx/cq.h     completion queue
 *   devx/path.h   addresses, and the way between them
 *   devx/qp.h     queue pair: RC, UC, UD, DCI; transitions, connecting
 *   devx/rmp.h    shared receive queue
 *   devx/xrq.h    shared receive queue with tag matching
 *   devx/dct.h    dynamically connected target
 *   devx/mkey.h   memory keys: of a umem, of other keys
 *
 * Builders. What is built lies in the caller's memory: a struct with the queue of queue.h in it, the object's handle (obj), its number, and
 * the error of the last command on it. A ring's size is told by inlay_devx_..._size. A builder that fails leaves nothing behind and obj
 * NULL; a struct that is zeroed, failed or destroyed can be destroyed again, which does nothing.
 *
 * Objects of verbs and of commands mix, by their numbers, as long as one context made both: a QP made here under a CQ of verbs (polled by
 * inlay), on a verbs SRQ (inlay_srqn_from_srq), in a verbs PD; a peer need not know. What libmlx5 polls it must have made: it knows no
 * other QP.
 *
 * Destroying: what uses before what is used. QPs and DCTs; XRQs and RMPs; CQs; memory keys; the register; umems; PDs; event channels and
 * the context. What still is in use answers -EBUSY and stays.
 *
 * What the kernel refuses
 * -----------------------
 * A context that is open for commands is a user of its own to the device, its objects are of no use to others. The kernel lets through what
 * is on its lists (devx/ifc/cmd.h says for each command by which call), and answers -EINVAL to the rest before the device sees it: whatever
 * destroys by number; UARs and event queues; moving a QP to SQD; DRAIN_DCT. Memory comes from umems alone, never by physical address, and
 * a memory key has a umem or other keys behind it. A CQ's event queue must be one of the kernel's: inlay_devx_eqn.
 *
 * Threads: any number of device commands at a time, each object by one of them; queues as queue.h has it. A builder that is given a
 * register counts the queue there: for one thread at a time.
 */
#ifndef INLAY_DEVX_H
#define INLAY_DEVX_H

#include <inlay/devx/ifc.h>
#include <inlay/devx/call.h>
#include <inlay/devx/info.h>
#include <inlay/devx/umem.h>
#include <inlay/devx/uar.h>
#include <inlay/devx/event.h>
#include <inlay/devx/cq.h>
#include <inlay/devx/path.h>
#include <inlay/devx/qp.h>
#include <inlay/devx/rmp.h>
#include <inlay/devx/xrq.h>
#include <inlay/devx/dct.h>
#include <inlay/devx/mkey.h>

#endif
