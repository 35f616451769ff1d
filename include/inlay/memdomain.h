/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/memdomain.h: memory domains, after SPDK's, on a registry that the caller owns.
 *
 * The rooms, each with its manual:
 *
 *   memdomain/domain.h   registry, domains, callbacks, operations
 *   memdomain/system.h   a domain of this process's own memory
 */
#ifndef INLAY_MEMDOMAIN_H
#define INLAY_MEMDOMAIN_H

#include <inlay/memdomain/domain.h>
#include <inlay/memdomain/system.h>

#endif
