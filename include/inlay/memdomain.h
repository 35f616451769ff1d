/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/memdomain.h: memory domains, as in SPDK: translate, copy and clear memory that the CPU may
 * be unable to reach.
 *
 *   memdomain/domain.h   registry, domains, operations, this process's memory; start here
 *   memdomain/rdma.h     a domain over a memory map: keys, RDMA reads and writes
 *
 * Threads: any number may use a registry and its domains; see memdomain/domain.h.
 */
#ifndef INLAY_MEMDOMAIN_H
#define INLAY_MEMDOMAIN_H /* a trial: names may change */

#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/memdomain/domain.h>
#include <inlay/memdomain/rdma.h>

INLAY_CASTS_END_
#endif
