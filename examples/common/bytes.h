/* SPDX-License-Identifier: BSD-3-Clause */
/* bytes.h: numbers in messages, little-endian as this machine. */
#ifndef EXAMPLES_BYTES_H
#define EXAMPLES_BYTES_H

#include <stdint.h>

static inline void put_le(uint8_t *at, uint64_t value, uint32_t bytes)
{
	__builtin_memcpy(at, &value, bytes);
}

static inline uint64_t get_le(const uint8_t *at, uint32_t bytes)
{
	uint64_t value = 0;

	__builtin_memcpy(&value, at, bytes);
	return value;
}

#endif
