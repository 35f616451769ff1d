/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap.h: memory: where it is, who may reach it, by which keys.
 *
 *   mmap/lookup.h  from an address and a length to a range and its keys
 *   mmap/map.h     the memory map: ranges, devices, permissions, states
 *   mmap/blob.h    a map in another process: export and import
 *   mmap/cache.h   a registration cache, for buffers of anybody's
 *   mmap/monitor.h the kernel's reports of unmapped memory, for such caches
 */
#ifndef INLAY_MMAP_H
#define INLAY_MMAP_H

#include <inlay/mmap/lookup.h>
#include <inlay/mmap/map.h>
#include <inlay/mmap/blob.h>
#include <inlay/mmap/pci.h>
#include <inlay/mmap/cache.h>
#include <inlay/mmap/monitor.h>

#endif
