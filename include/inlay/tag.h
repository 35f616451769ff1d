/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/tag.h: tag matching by the NIC, and together with the software's.
 *
 * The rooms, each with its manual:
 *
 *   tag/wire.h   what goes in front of a tagged message
 *   tag/send.h   tagged messages: eager, rendezvous
 *   tag/list.h   the NIC's list: add, delete, synchronise; completions
 *   tag/recv.h   software's table and the NIC's list, in one order
 *
 * NICs that match tags are ConnectX-5 to -7. The software's table (match.h) needs none; tag/recv.h works with it alone, and gives the NIC
 * what it may have where there is a list.
 */
#ifndef INLAY_TAG_H
#define INLAY_TAG_H

#include <inlay/tag/list.h>
#include <inlay/tag/recv.h>
#include <inlay/tag/send.h>
#include <inlay/tag/wire.h>

#endif
