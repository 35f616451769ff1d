/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc/bits.h: fields of the device's big-endian structures. A structure is a C struct of
 * dwords; a field is a constant that names its first bit and its width.
 *
 *   struct inlay_create_cq_in in;
 *
 *   memset(&in, 0, sizeof(in));
 *   inlay_cmd_in_set(&in.cmd, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_CREATE_CQ);
 *   inlay_cqc_set(&in.cqc, INLAY_CQC_LOG_CQ_SIZE, 8);
 *   inlay_cqc_set(&in.cqc, INLAY_CQC_UAR_PAGE, page);
 *   inlay_bits_set(&in.cqc, INLAY_BITS(0x63, 5), 8);       any field, by its place in the reference
 *
 * Bits are counted as the device's reference counts them: bit 0 is the most significant of byte 0.
 *
 *   bit     0         8         16        24        31 | 32
 *   dword   |  byte 0 |  byte 1 |  byte 2 |  byte 3  | |  byte 4 ...
 *
 * A field of 1 .. 32 bits lies in one dword; one of 64 bits in two, the high one first. Longer ones
 * (addresses, keys, lists) are members of their struct. Each struct has its own enum of fields and
 * its own accessors, so the compiler warns about another struct's field. With constant fields and
 * the memset in sight, all sets together become one store per dword; a get is one load.
 *
 * These headers list the fields that inlay and likely users need; INLAY_BITS reaches the others.
 *
 * Threads: pure functions of the caller's memory, here and in the other headers of this folder.
 * Sources: Linux's mlx5_ifc.h, whose notation rdma-core's DEVX_SET shares; for what it lacks,
 * tests/devx/ifc.t names the second source.
 */
#ifndef INLAY_DEVX_IFC_BITS_H
#define INLAY_DEVX_IFC_BITS_H

#include <inlay/base.h>

typedef uint32_t inlay_dword __attribute__((may_alias)); /* big-endian */
typedef uint64_t inlay_two_dwords __attribute__((may_alias, aligned(4)));

/* A field: its first bit and its width, 1 .. 32 or 64. */
#define INLAY_BITS(offset, width) ((width) << 24 | (offset))

/* Returns a field, in host order. at: the structure, aligned to 4 bytes. field: an INLAY_BITS. */
INLAY_ALWAYS uint64_t inlay_bits_get(const void *at, uint32_t field)
{
	uint32_t offset = field & 0xffffff, width = field >> 24;
	const inlay_dword *dword = (const inlay_dword *)at + offset / 32;

	if (width == 64)
		return inlay_from_be64(*(const inlay_two_dwords *)dword);
	return inlay_from_be32(dword[0]) >> (32 - width - offset % 32) & 0xffffffffu >> (32 - width);
}

/*
 * Writes a field and leaves its neighbours alone. value is in host order and must fit the width:
 * checked mode aborts, unchecked mode drops the upper bits.
 */
INLAY_ALWAYS void inlay_bits_set(void *at, uint32_t field, uint64_t value)
{
	uint32_t offset = field & 0xffffff, width = field >> 24, shift, mask;
	inlay_dword *dword = (inlay_dword *)at + offset / 32;

	if (width == 64) {
		*(inlay_two_dwords *)dword = inlay_to_be64(value);
		return;
	}
	INLAY_CHECK(value >> width == 0, "a value fits the width of its field");
	shift = 32 - width - offset % 32;
	mask = 0xffffffffu >> (32 - width) << shift;
	dword[0] = (dword[0] & ~inlay_to_be32(mask)) | inlay_to_be32((uint32_t)value << shift & mask);
}

/* Asserts the size of a struct that has no fields beyond its members'. */
#define INLAY_LAYOUT_SIZE(name, size) \
	INLAY_STATIC_ASSERT(sizeof(struct inlay_##name) == (size) && (size) % 4 == 0, "the size of struct inlay_" #name)

/*
 * Defines the accessors of struct inlay_NAME, whose fields are enum inlay_NAME_field, and asserts
 * its size in bytes:
 *
 *   uint64_t inlay_NAME_get(const struct inlay_NAME *at, enum inlay_NAME_field field);
 *   void inlay_NAME_set(struct inlay_NAME *at, enum inlay_NAME_field field, uint64_t value);
 */
#define INLAY_LAYOUT(name, size) \
	INLAY_ALWAYS uint64_t inlay_##name##_get(const struct inlay_##name *at, enum inlay_##name##_field field) \
	{ \
		return inlay_bits_get(at, (uint32_t)field); \
	} \
	INLAY_ALWAYS void inlay_##name##_set(struct inlay_##name *at, enum inlay_##name##_field field, uint64_t value) \
	{ \
		inlay_bits_set(at, (uint32_t)field, value); \
	} \
	INLAY_LAYOUT_SIZE(name, size)

/* Asserts the bit at which a member begins, such as a context inside a command. */
#define INLAY_LAYOUT_AT(name, member, bit) \
	INLAY_STATIC_ASSERT(offsetof(struct inlay_##name, member) * 8 == (bit), "the place of " #member " in " #name)

#endif
