/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap.h: memory: where it is, who may access it, and with which keys. Start with map.h.
 *
 *   mmap/map.h      memory maps: ranges, devices, start and stop; from an address to its keys
 *   mmap/source.h   kinds of memory: host memory, dmabufs, device memory, keys; permissions
 *   mmap/blob.h     a map for another process: export and import
 *   mmap/cache.h    a registration cache, for buffers that come from anywhere
 *   mmap/monitor.h  the kernel's reports of unmapped memory, for such caches
 *   mmap/pci.h      a map for a device across PCIe, by device commands: included by name only
 *   mmap/lookup.h   internal: the table of a map
 *
 * Keys are in host order. Threads: one owner sets up a map, and any thread searches a started one.
 * A cache has one owner; any thread may invalidate memory in it (inlay_cache_post).
 */
#ifndef INLAY_MMAP_H
#define INLAY_MMAP_H /* a trial: names may change */

#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/mmap/source.h>
#include <inlay/mmap/map.h>
#include <inlay/mmap/blob.h>
#include <inlay/mmap/cache.h>
#include <inlay/mmap/monitor.h>

INLAY_CASTS_END_
#endif
