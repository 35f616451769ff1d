/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/memdomain.h: memory domains, as SPDK has them: describe, copy and clear memory that the CPU
 * may be unable to reach. A registry, which the caller owns, lists them.
 *
 *   memdomain/domain.h   registry, domains, callbacks, operations; start here
 *   memdomain/system.h   callbacks for this process's own memory
 *   memdomain/rdma.h     a domain over a memory map: keys, RDMA reads and writes
 */
#ifndef INLAY_MEMDOMAIN_H
#define INLAY_MEMDOMAIN_H

#include <inlay/memdomain/domain.h>
#include <inlay/memdomain/system.h>
#include <inlay/memdomain/rdma.h>

#endif
