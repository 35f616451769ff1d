/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx.h: device commands: their layouts, how they are sent and what comes back, and the memory, registers and events that go with them.
 * Set-up only; calls libibverbs and libmlx5.
 *
 *   devx/ifc.h    the layouts of commands
 *   devx/call.h   opening, sending, errors
 *   devx/umem.h   memory that commands may name
 *   devx/uar.h    doorbell registers, event queues of completion vectors
 *   devx/event.h  asynchronous queries, events
 *
 * What the kernel refuses
 * -----------------------
 * A context that is open for commands is a user of its own to the device: its objects are of no use to others. The kernel lets through what is
 * on its lists (devx/ifc/cmd.h says for each command by which call), and answers -EINVAL to the rest before the device sees it: whatever
 * destroys, allocates registers or event queues, moves a QP to SQD; memory by physical address; an mkey without a umem or other keys.
 */
#ifndef INLAY_DEVX_H
#define INLAY_DEVX_H

#include <inlay/devx/ifc.h>
#include <inlay/devx/call.h>
#include <inlay/devx/umem.h>
#include <inlay/devx/uar.h>
#include <inlay/devx/event.h>

#endif
