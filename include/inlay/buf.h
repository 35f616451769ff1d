/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf.h: buffers: descriptors of memory in mmaps, with a window, a reference count and the keys to post them; and where they come
 * from.
 *
 * The idea.   mmap (keys) --get--> buffer (window) --chain--> list --post--> device --completion--> dec_refcount: all back
 *
 *   inlay_inventory_get_by_data(inv, &mmap, header, 64, &head);
 *   inlay_inventory_get_by_data(inv, &mmap, payload, len, &next);
 *   inlay_buf_chain_list(head, next);                                one list, and one reference for it
 *   inlay_post_write_bufs(&sq, raddr, rkey, head, INLAY_SIGNALED);   one gather list
 *   ...
 *   inlay_buf_dec_refcount(head, NULL);                              its completion: both are back
 *
 * The rooms, each with its manual:
 *
 *   buf/buf.h        the buffer: window, references, lists
 *   buf/inventory.h  descriptors for any memory; dup, expand, batches
 *   buf/pool.h       buffers of one size, each with its slice of an mmap
 *   buf/array.h      elements by number, without descriptors
 *   buf/shared.h     an inventory for many threads, by a magazine each
 *   buf/post.h       lists as gather lists
 *
 * All of it lives in memory that the caller gives, and nothing allocates. Descriptors are one cache line each; a get writes that line, a
 * release only a byte beside it.
 *
 * Threads: inventories, pools and buffers have one owner at a time; shared inventories are for all.
 */
#ifndef INLAY_BUF_H
#define INLAY_BUF_H

#include <inlay/buf/buf.h>
#include <inlay/buf/inventory.h>
#include <inlay/buf/pool.h>
#include <inlay/buf/array.h>
#include <inlay/buf/shared.h>
#include <inlay/buf/post.h>

#endif
