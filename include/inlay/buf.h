/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf.h: buffers: descriptors of memory in maps, with keys, data, reference counts and lists.
 * Inventories and pools hand them out.
 *
 *   inlay_inventory_get_by_data(inv, &map, header, 64, &head);
 *   inlay_inventory_get_by_data(inv, &map, payload, len, &next);
 *   inlay_buf_chain_list(head, next);                            one list, and one reference for it
 *   inlay_post_bufs(&sq, MLX5_OPCODE_RDMA_WRITE, &wr, head, INLAY_SIGNALED);   one gather list
 *   ...
 *   inlay_buf_dec_refcount(head, NULL);                          its completion: both are back
 *
 *   buf/buf.h        the buffer: data, references, lists
 *   buf/inventory.h  descriptors for any memory; copies, growth; for one thread or many
 *   buf/pool.h       buffers of one size, each with its slice of a map; arrays
 *   buf/post.h       lists as gather lists
 *   buf/store.h      internal: where descriptors lie
 *
 * All state is in the caller's memory. A descriptor is one cache line.
 *
 * Threads: one owner at a time for each object. A shared inventory is for many threads.
 */
#ifndef INLAY_BUF_H
#define INLAY_BUF_H /* a trial: names may change */

#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/buf/buf.h>
#include <inlay/buf/inventory.h>
#include <inlay/buf/pool.h>
#include <inlay/buf/post.h>

INLAY_CASTS_END_
#endif
