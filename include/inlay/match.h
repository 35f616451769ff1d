/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/match.h: tag matching in software: which receive takes which message, in MPI's order.
 *
 *   match/table.h  posted receives and unexpected messages, exact and by mask; start here
 *   match/mpi.h    MPI's communicator, source and tag in 64 bits
 */
#ifndef INLAY_MATCH_H
#define INLAY_MATCH_H

#include <inlay/match/table.h>
#include <inlay/match/mpi.h>

#endif
