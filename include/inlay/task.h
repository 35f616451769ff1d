/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task.h: command tasks: a host sends commands to a worker, on a BlueField, another machine
 * or the same one, and gets one answer to each. This is DOCA UROM's worker command task as inline
 * code on two queue pairs; a command costs about as much as a send.
 *
 *   host                                                        worker
 *
 *   inlay_task_alloc(&host, PLUGIN, done, &task);
 *   ... write the payload ...
 *   inlay_task_submit(task, INLAY_RING);        -- one WQE -->   plugin->command(plugin, cmd)
 *   inlay_task_host_progress(&host, 32);        <-- one WQE --   return 0, or answer it later
 *   done(task, ...)                             status and response
 *
 *   task/task.h     a task: allocate, fill, submit, cancel, release
 *   task/host.h     the host: set-up, progress of its tasks
 *   task/cmd.h      a command at the worker, the plugin's interface, answers
 *   task/worker.h   the worker and its connections: set-up, progress
 *   task/wire.h     messages, addresses, and one end of a connection
 *
 * Invariants: every submitted task completes once; every command is answered once; all that a peer
 * sends is checked; no system call, lock or allocation on the data path.
 *
 * A dead peer breaks the connection only when something is sent to it: within 1.4 s with the
 * default paths. A side with nothing else to send sends a probe once a second:
 *
 *   inlay_rq_ring(&link.rq);   a worker: post receives before the probe's doorbell sends answers
 *   err = inlay_post_write(&link.sq, 0, 0, NULL, 0, INLAY_SIGNALED | INLAY_RING);
 *
 * To sleep, give params.channel. When progress returns 0, and worker.dirty is NULL, arm with
 * inlay_cq_arm(&cq, 0) and call progress again; if it returns 0 again, wait for the channel. After
 * each event of ibv_get_cq_event call inlay_cq_event(&cq) and ibv_ack_cq_events.
 *
 * Set-up functions that fail say what failed in *why, and leave nothing behind unless a verbs object
 * cannot be freed. Objects, and the memory given to them, begin on a cache line, better on a page,
 * and stay until they are destroyed.
 *
 * Threads: a host with its tasks has one owner at a time, and so has a worker with its connections
 * and commands.
 * Sources: DOCA's documentation of doca_urom, doca_urom_plugin and doca_pe; the InfiniBand
 * specification, volume 1, on acknowledge timeouts and type 2 memory windows; Linux's nvme-rdma,
 * which waits for a command's send as well as its answer.
 */
#ifndef INLAY_TASK_H
#define INLAY_TASK_H /* a trial: names may change */

#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/task/host.h>
#include <inlay/task/worker.h>

INLAY_CASTS_END_
#endif
