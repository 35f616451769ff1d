/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/wqe.h: the layout of work-queue entries (WQEs): segments, flags, encoders, a decoder, a
 * printer. queue.h places WQEs in a ring, counts credit and rings the doorbell.
 *
 *   struct inlay_cursor at;                              from inlay_sq_begin (queue/sq.h)
 *   at = inlay_seg_raddr(at, raddr, rkey);               each segment is appended
 *   at = inlay_seg_data(at, addr, len, lkey);
 *   at = inlay_seg_inline(at, tail, tail_len);
 *
 * A send WQE is a run of 16-byte units (its DS count) in a ring of 64-byte units (WQEBBs): a
 * control segment, then what the opcode needs, then local data as pointers or inline.
 *
 *        0        4         8   9     11       12
 *   +0   | opmod  | qpn<<8  |sig| rsvd|fm|ce|se| imm / rkey to invalidate |   control
 *        | index  | DS      |
 *        | opcode |         |
 *   +16  | address vector: key, QPN, path, MAC, GID                        |   destination      (UD, DC: 16, 48)
 *   +16  | SRQN             | 0                                           |   destination      (XRC)
 *   +16  | remote address   | rkey             | 0                        |   remote address   (RDMA, atomic)
 *   +32  | swap or add      | compare or 0                                |   atomic           (atomic)
 *   +16  | offsets | checksums | mss | metadata | header size | header  |   Ethernet         (raw packet)
 *   +..  | byte count       | lkey             | local address            |   data pointer     (one per SGE)
 *   +..  | 1<<31 | count    | payload ...                                 |   inline data      (padded to 16)
 *
 * Invariants:
 *   - All fields are big-endian, except the payload.
 *   - A WQE starts on a WQEBB and may run past the ring's end to its beginning, as libmlx5's does.
 *     Only the payload of an inline segment is ever split there.
 *   - The cursor is passed and returned by value. When the segments are known at compile time,
 *     the DS count is a constant, and within one WQEBB nothing tests for the ring's end.
 *   - The device reads a byte count of 0 as 2^31, so empty SGEs are left out, as in libmlx5.
 *   - A receive WQE is a run of data segments, ended by lkey 0x100 if the stride has room for more.
 *     An SRQ entry starts with 16 bytes of its own; the be16 at +2 is the next entry's number.
 *
 * The parts, each with its own manual:
 *
 *   wqe/segment.h  flags, control, remote address, data, inline; the cursor; receive WQEs
 *   wqe/av.h       destinations: address vectors of UD and DC, XRC's shared receive queue
 *   wqe/atomic.h   operands of atomics
 *   wqe/decode.h   a WQE as the request that it was, or as segments
 *   wqe/print.h    a printer
 *
 * With decode.h come wqe/sync.h (waits, other queues, local copies) and wqe/eth.h (Ethernet
 * segments of raw packets). Included by name, or by the posts that use it: wqe/umr.h (mkey
 * updates, signatures).
 *
 * Threads: no shared state; calls on different memory do not interfere. Sources: mlx5dv.h
 * (layouts), Linux include/linux/mlx5/qp.h (fence modes), the PRM's "Work Queue Element" chapter;
 * libmlx5's qp.c for what is left out, padded or zeroed.
 */
#ifndef INLAY_WQE_H
#define INLAY_WQE_H /* names are stable until 1.0 */

#include <inlay/wqe/segment.h>
#include <inlay/wqe/av.h>
#include <inlay/wqe/atomic.h>
#include <inlay/wqe/decode.h>
#include <inlay/wqe/print.h>

#endif
