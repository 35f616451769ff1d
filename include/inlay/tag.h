/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/tag.h: tagged messages, matched by the NIC where it can (ConnectX-5 to -7) and by match.h
 * in software. Each header has its own manual; transports start at tag/recv.h.
 *
 *   tag/message.h  tagged messages: their headers, and how to send them
 *   tag/list.h     the NIC's list: add, delete, synchronise; completions
 *   tag/recv.h     receives in the software's table and the NIC's list, in one order
 */
#ifndef INLAY_TAG_H
#define INLAY_TAG_H

#include <inlay/tag/list.h>
#include <inlay/tag/message.h>
#include <inlay/tag/recv.h>

#endif
