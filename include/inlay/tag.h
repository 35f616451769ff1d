/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/tag.h: tagged messages, matched by a NIC that can do it (ConnectX-5 to -7) and by match.h
 * in software. Transports start at tag/recv.h.
 *
 *   tag/message.h  tagged messages: their headers, and how to send them
 *   tag/list.h     the NIC's list: add, delete, synchronise; completions
 *   tag/recv.h     receives in the software's table and the NIC's list, in one order
 *
 * Threads: one owner at a time for list, table and CQ together.
 */
#ifndef INLAY_TAG_H
#define INLAY_TAG_H /* a trial: names may change */

#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/tag/list.h>
#include <inlay/tag/message.h>
#include <inlay/tag/recv.h>

INLAY_CASTS_END_
#endif
