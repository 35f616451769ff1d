/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap.h: memory: where it is, who may reach it, and by which keys.
 *
 *   inlay_mmap_create(&map, memory, inlay_mmap_size(1, 4), 1, 4);   one device, four ranges
 *   inlay_mmap_add_dev(&map, pd);
 *   inlay_mmap_add(&map, inlay_source_host(buffer, bytes));
 *   inlay_mmap_set_permissions(&map, INLAY_LOCAL_READ_WRITE | INLAY_RDMA_WRITE);
 *   inlay_mmap_start(&map);
 *   r = inlay_mmap_find(&map, addr, len);                           r->lkey, r->rkey
 *   inlay_mmap_export_rdma(&map, pd, blob, &len);                   for a peer
 *
 *   mmap/map.h     the memory map: ranges, devices, start and stop; from an address to a key
 *   mmap/source.h  what a map is made of: host memory, dmabufs, device memory, keys; permissions
 *   mmap/blob.h    a map for another process: export and import
 *   mmap/cache.h   a registration cache, for buffers that come from anywhere
 *   mmap/monitor.h the kernel's reports of unmapped memory, for such caches
 *   mmap/pci.h     a map for the other side of PCI, by device commands: included by name only
 *   mmap/lookup.h  internal: the table of a map
 *
 * All objects lie in memory that the caller gives. Keys are in host order.
 *
 * Threads: one owner sets a map up; any thread may look up in one that is started. A cache has one
 * owner, and any thread may post to it.
 */
#ifndef INLAY_MMAP_H
#define INLAY_MMAP_H

#include <inlay/mmap/source.h>
#include <inlay/mmap/map.h>
#include <inlay/mmap/blob.h>
#include <inlay/mmap/cache.h>
#include <inlay/mmap/monitor.h>

#endif
