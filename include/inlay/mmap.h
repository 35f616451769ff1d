/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap.h: memory: where it is, who may reach it, and by which keys. This includes
 *
 *   mmap/map.h     the memory map: ranges, devices, start and stop; from an address to a key
 *   mmap/source.h  what a map is made of: host memory, dmabufs, device memory, keys; permissions
 *   mmap/blob.h    a map for another process: export and import
 *   mmap/cache.h   a registration cache, for buffers that come from anywhere
 *   mmap/monitor.h the kernel's reports of unmapped memory, for such caches
 *
 * and not mmap/pci.h, a map for the other side of PCI, which takes device commands.
 */
#ifndef INLAY_MMAP_H
#define INLAY_MMAP_H

#include <inlay/mmap/source.h>
#include <inlay/mmap/map.h>
#include <inlay/mmap/blob.h>
#include <inlay/mmap/cache.h>
#include <inlay/mmap/monitor.h>

#endif
