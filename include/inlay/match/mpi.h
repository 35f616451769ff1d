/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/match/mpi.h: MPI's communicator, source and tag as the 64 bits that are matched. The table
 * sees only 64 bits, so a library may pack other widths.
 *
 *    63              48 47                    26 25                        0
 *   +------------------+------------------------+---------------------------+
 *   |     context      |         source         |            tag            |
 *   +------------------+------------------------+---------------------------+
 *
 *   inlay_mpi_pack(context, source, tag, &bits, &mask);        INLAY_MPI_ANY for either or both
 *   inlay_match_post(&m, bits, mask, (uintptr_t)request, &found);
 *
 * These widths allow 65,536 contexts (point-to-point and collective ones together), 4,194,304 ranks
 * in a communicator, and INLAY_MPI_TAG_MAX as MPI_TAG_UB. Give internal messages with negative tags
 * a context of their own.
 *
 * Threads: pure functions. Sources: MPI 4.0, 3.2.3 (the envelope), 3.2.4 (wildcards), 9.1.2
 * (MPI_TAG_UB).
 */
#ifndef INLAY_MATCH_MPI_H
#define INLAY_MATCH_MPI_H /* a trial: names may change */

#include <inlay/base.h>

#define INLAY_MPI_ANY (-1)                /* any source or tag; MPI's own constants may differ */
#define INLAY_MPI_SOURCE_MAX 0x3fffff
#define INLAY_MPI_TAG_MAX 0x3ffffff

/*
 * Packs an envelope. mask: the bits that count, for a receive, whose source and tag may be
 * INLAY_MPI_ANY; NULL for a message. Returns 0, or -EINVAL when one of the three is out of range.
 */
INLAY_ALWAYS int inlay_mpi_pack(uint32_t context, int32_t source, int32_t tag, uint64_t *bits, uint64_t *mask)
{
	if (mask)
		*mask = ~(uint64_t)0;
	if (mask && source == INLAY_MPI_ANY) {
		*mask ^= (uint64_t)INLAY_MPI_SOURCE_MAX << 26;
		source = 0;
	}
	if (mask && tag == INLAY_MPI_ANY) {
		*mask ^= INLAY_MPI_TAG_MAX;
		tag = 0;
	}
	if (INLAY_UNLIKELY(context > 0xffff || (uint32_t)source > INLAY_MPI_SOURCE_MAX ||
			   (uint32_t)tag > INLAY_MPI_TAG_MAX))
		return -EINVAL;
	*bits = (uint64_t)context << 48 | (uint64_t)(uint32_t)source << 26 | (uint32_t)tag;
	return 0;
}

/* Source and tag of a message's 64 bits, for MPI_Status. The context is in the upper 16. */
INLAY_FN void inlay_mpi_unpack(uint64_t bits, int32_t *source, int32_t *tag)
{
	*source = (int32_t)(bits >> 26 & INLAY_MPI_SOURCE_MAX);
	*tag = (int32_t)(bits & INLAY_MPI_TAG_MAX);
}

#endif
