/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/match/mpi.h: MPI's communicator, source and tag as the 64 bits that are matched. A library
 * may pack other widths: the table sees only 64 bits.
 *
 *    63              48 47                    26 25                        0
 *   +------------------+------------------------+---------------------------+
 *   |     context      |         source         |            tag            |
 *   +------------------+------------------------+---------------------------+
 *
 *   inlay_mpi_pack_recv(comm, source, tag, &bits, &mask);      INLAY_MPI_ANY for either or both
 *   inlay_match_post(&m, bits, mask, (uintptr_t)request, &found);
 *
 * These widths give 65,536 contexts (point-to-point and collective ones together), 4,194,304 ranks
 * in one communicator, and tags up to INLAY_MPI_TAG_MAX, the library's MPI_TAG_UB. Give internal
 * messages with negative tags a context of their own.
 *
 * Threads: pure functions. Sources: MPI 4.0, 3.2.3 (the envelope), 3.2.4 (wildcards), 9.1.2
 * (MPI_TAG_UB).
 */
#ifndef INLAY_MATCH_MPI_H
#define INLAY_MATCH_MPI_H

#include <inlay/base.h>

#define INLAY_MPI_ANY (-1)                /* any source or tag; MPI's own constants may differ */
#define INLAY_MPI_SOURCE_MAX 0x3fffff
#define INLAY_MPI_TAG_MAX 0x3ffffff

/* A message's 64 bits. Returns 0, or -EINVAL when one of the three is out of range. */
INLAY_ALWAYS int inlay_mpi_pack(uint32_t context, int32_t source, int32_t tag, uint64_t *packed)
{
	if (INLAY_UNLIKELY(context > 0xffff || (uint32_t)source > INLAY_MPI_SOURCE_MAX ||
			   (uint32_t)tag > INLAY_MPI_TAG_MAX))
		return -EINVAL;
	*packed = (uint64_t)context << 48 | (uint64_t)(uint32_t)source << 26 | (uint32_t)tag;
	return 0;
}

/* A receive's bits and mask. As above, but source and tag may be INLAY_MPI_ANY. */
INLAY_ALWAYS int inlay_mpi_pack_recv(uint32_t context, int32_t source, int32_t tag, uint64_t *packed,
				     uint64_t *mask)
{
	*mask = ~(uint64_t)0;
	if (source == INLAY_MPI_ANY) {
		*mask ^= (uint64_t)INLAY_MPI_SOURCE_MAX << 26;
		source = 0;
	}
	if (tag == INLAY_MPI_ANY) {
		*mask ^= INLAY_MPI_TAG_MAX;
		tag = 0;
	}
	return inlay_mpi_pack(context, source, tag, packed);
}

/* The parts of a message's 64 bits, for MPI_Status; the context is in the upper 16. */
INLAY_FN int32_t inlay_mpi_source(uint64_t packed)
{
	return (int32_t)(packed >> 26 & INLAY_MPI_SOURCE_MAX);
}

INLAY_FN int32_t inlay_mpi_tag(uint64_t packed)
{
	return (int32_t)(packed & INLAY_MPI_TAG_MAX);
}

#endif
