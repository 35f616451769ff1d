/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task.h: command tasks: a host gives commands to a worker, on a BlueField, another machine or this one, and gets one answer for
 * each. DOCA UROM's worker command task, as inline code on two queue pairs: a command costs about what a send costs.
 *
 *   host                                                             worker
 *   inlay_task_alloc_init(&host, PLUGIN, done, &task);
 *   ... write the payload ...
 *   inlay_task_submit(task);                  --- one WQE --->       plugin->command(plugin, cmd): cmd->payload, cmd->response
 *   inlay_task_host_progress(&host, now, 32); <--- one WQE ---       return 0, or later: inlay_task_cmd_answer(cmd, 0)
 *   done(task, ...): its status, its response
 *
 * The rooms, each with its manual:
 *
 *   task/wire.h      what goes over the wire, and the addresses
 *   task/link.h      one end of a connection: set-up only
 *   task/host.h      the host's side: set-up, and what holds for tasks
 *   task/submit.h    tasks allocated, filled, submitted
 *   task/progress.h  tasks completed
 *   task/worker.h    the worker's side: set-up, and what holds for handlers
 *   task/conn.h      its connections
 *   task/serve.h     commands received, handed out, answered
 *   task/plugin.h    plugins loaded at run time
 *   task/group.h     workers that know each other: addresses and keys by an allgather
 *
 * Threads: a host, and a worker with its connections, have one owner at a time each.
 */
#ifndef INLAY_TASK_H
#define INLAY_TASK_H

#include <inlay/task/wire.h>
#include <inlay/task/link.h>
#include <inlay/task/host.h>
#include <inlay/task/submit.h>
#include <inlay/task/progress.h>
#include <inlay/task/worker.h>
#include <inlay/task/conn.h>
#include <inlay/task/serve.h>
#include <inlay/task/plugin.h>
#include <inlay/task/group.h>

#endif
