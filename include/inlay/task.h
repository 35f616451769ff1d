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
 *   task/host.h     the host: set-up, progress
 *   task/cmd.h      a command at the worker, the plugin's interface, answers
 *   task/worker.h   the worker and its connections: set-up, progress
 *   task/wire.h     messages and addresses
 *   task/link.h     one end of a connection
 *
 * Invariants: every submitted task completes once; every command is answered once; all that a peer
 * sends is checked; no system call, lock or allocation on the data path.
 *
 * Threads: a host with its tasks has one owner at a time, and so has a worker with its connections.
 */
#ifndef INLAY_TASK_H
#define INLAY_TASK_H

#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/task/host.h>
#include <inlay/task/worker.h>

INLAY_CASTS_END_
#endif
