/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/memdomain.h: memory domains, after SPDK's, on a registry that the caller owns.
 *
 * The rooms, each with its manual:
 *
 *   memdomain/domain.h   registry, domains, callbacks, operations
 *   memdomain/system.h   a domain of this process's own memory
 *   memdomain/rdma.h     a domain over a memory map: keys, RDMA reads and writes
 */
#ifndef INLAY_MEMDOMAIN_H
#define INLAY_MEMDOMAIN_H

#include <inlay/memdomain/domain.h>
#include <inlay/memdomain/system.h>
#include <inlay/memdomain/rdma.h>

#endif
