/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/memdomain.h: memory domains, as in SPDK: describe, copy and clear memory that the CPU may
 * be unable to reach. The caller's registry lists them.
 *
 *   inlay_memdomain_registry_init(&reg);
 *   inlay_memdomain_system_attach(inlay_memdomain_system(&reg));           this process's memory
 *   inlay_memdomain_rdma_create(&r, &reg, &map, pd, "mlx5_0");             a peer's, by RDMA
 *   inlay_memdomain_pull(&r.domain, &copy);
 *
 *   memdomain/domain.h   registry, domains, callbacks, operations; start here
 *   memdomain/system.h   callbacks for this process's own memory
 *   memdomain/rdma.h     a domain over a memory map: keys, RDMA reads and writes
 *
 * Threads: any number may use a registry and its domains; see memdomain/domain.h.
 */
#ifndef INLAY_MEMDOMAIN_H
#define INLAY_MEMDOMAIN_H

#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/memdomain/domain.h>
#include <inlay/memdomain/system.h>
#include <inlay/memdomain/rdma.h>

INLAY_CASTS_END_
#endif
