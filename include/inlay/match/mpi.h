/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/match/mpi.h: MPI's communicator, source and tag in the 64 bits that are matched.
 *
 *    63              48 47                    26 25                        0
 *   +------------------+------------------------+---------------------------+
 *   |     context      |         source         |            tag            |     inlay_mpi_usual: 16 + 22 + 26 bits
 *   +------------------+------------------------+---------------------------+
 *
 *   inlay_mpi_pack_recv(inlay_mpi_usual(), comm, source, tag, &bits, &mask);     INLAY_MPI_ANY for either or both
 *   inlay_match_post(&m, bits, mask, (uintptr_t)request, &found);
 *
 * A source and a tag are an int each, which leaves no bit of 64 for the communicator. So each of the three has a width of its own, and
 * what does not fit is refused. The usual layout has 65,536 context ids (of point-to-point and collective communication together),
 * 4,194,304 ranks of one communicator, and tags up to 67,108,863, which is what MPI_TAG_UB has to say then; MPI asks for 32,767 at least.
 * A library whose own traffic has negative tags gives it a context id of its own, where any-tag receives of the user do not look.
 *
 * Threads: pure functions.
 * Sources: MPI 4.0, 3.2.3 (the envelope), 3.2.4 (wildcards), 9.1.2 (MPI_TAG_UB).
 */
#ifndef INLAY_MATCH_MPI_H
#define INLAY_MATCH_MPI_H

#include <inlay/base.h>

struct inlay_mpi_layout {
	uint8_t context_bits;
	uint8_t source_bits;
	uint8_t tag_bits;
	uint8_t reserved;
};

#define INLAY_MPI_ANY (-1)                /* any source, any tag: whatever the MPI's own constants are */

/* 16, 22 and 26 bits. */
INLAY_ALWAYS struct inlay_mpi_layout inlay_mpi_usual(void)
{
	struct inlay_mpi_layout l;

	l.context_bits = 16;
	l.source_bits = 22;
	l.tag_bits = 26;
	l.reserved = 0;
	return l;
}

/* Returns 0; -EINVAL for widths that are not 1 .. 32 bits, of source and tag 31, or more than 64 together. */
INLAY_FN int inlay_mpi_layout_init(struct inlay_mpi_layout *l, uint32_t context_bits, uint32_t source_bits, uint32_t tag_bits)
{
	if (context_bits - 1 > 31 || source_bits - 1 > 30 || tag_bits - 1 > 30 || context_bits + source_bits + tag_bits > 64)
		return -EINVAL;
	l->context_bits = (uint8_t)context_bits;
	l->source_bits = (uint8_t)source_bits;
	l->tag_bits = (uint8_t)tag_bits;
	l->reserved = 0;
	return 0;
}

/* What MPI_TAG_UB is with this layout. */
INLAY_FN int32_t inlay_mpi_tag_max(struct inlay_mpi_layout l)
{
	return (int32_t)(((uint32_t)1 << l.tag_bits) - 1);
}

/*
 * What a message is matched by.
 *
 * Returns 0 and *packed; -EINVAL when one of the three is negative or has more bits than the layout gives it.
 */
INLAY_ALWAYS int inlay_mpi_pack(struct inlay_mpi_layout l, uint32_t context, int32_t source, int32_t tag, uint64_t *packed)
{
	if (INLAY_UNLIKELY((uint64_t)context >> l.context_bits || source < 0 || source >> l.source_bits || tag < 0 || tag >> l.tag_bits))
		return -EINVAL;
	*packed = ((uint64_t)context << l.source_bits | (uint32_t)source) << l.tag_bits | (uint32_t)tag;
	return 0;
}

/*
 * What a receive is posted with. source and tag may be INLAY_MPI_ANY, the communicator may not.
 *
 * Returns 0, *packed and *mask; -EINVAL as inlay_mpi_pack.
 */
INLAY_ALWAYS int inlay_mpi_pack_recv(struct inlay_mpi_layout l, uint32_t context, int32_t source, int32_t tag, uint64_t *packed,
				     uint64_t *mask)
{
	uint64_t wild = 0;

	if (source == INLAY_MPI_ANY) {
		wild = (((uint64_t)1 << l.source_bits) - 1) << l.tag_bits;
		source = 0;
	}
	if (tag == INLAY_MPI_ANY) {
		wild |= ((uint64_t)1 << l.tag_bits) - 1;
		tag = 0;
	}
	*mask = ~wild;
	return inlay_mpi_pack(l, context, source, tag, packed);
}

/* What MPI_Status and whoever delivers has to know, of a message's 64 bits. */
INLAY_FN uint32_t inlay_mpi_context(struct inlay_mpi_layout l, uint64_t packed)
{
	return (uint32_t)(packed >> (l.source_bits + l.tag_bits) & (((uint64_t)1 << l.context_bits) - 1));
}

INLAY_FN int32_t inlay_mpi_source(struct inlay_mpi_layout l, uint64_t packed)
{
	return (int32_t)(packed >> l.tag_bits & (((uint64_t)1 << l.source_bits) - 1));
}

INLAY_FN int32_t inlay_mpi_tag(struct inlay_mpi_layout l, uint64_t packed)
{
	return (int32_t)(packed & (((uint64_t)1 << l.tag_bits) - 1));
}

#endif
