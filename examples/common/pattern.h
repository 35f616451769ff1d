/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pattern.h: messages whose every byte can be verified. Both sides hold the same pattern. Message i
 * is the pattern from 64 * (i % PATTERN_STEPS) on, so no two messages in a row look alike, and
 * nothing needs to be filled between them.
 */
#ifndef COMMON_PATTERN_H
#define COMMON_PATTERN_H

#include "program.h"

#define PATTERN_STEPS 4099u             /* a prime: what lay in a slot before was another message */

/* Bytes of a pattern whose messages have up to so many bytes. */
static inline size_t pattern_bytes(uint32_t size)
{
	return ((size_t)size + 63) / 64 * 64 + PATTERN_STEPS * 64;
}

/*
 * Writes it: a hash of the place, and never 0, which is what an untouched slot holds. The last byte
 * of a written message tells that it is there. So that it can, a byte differs from the one 128
 * bytes back, and from the one as many ahead after the last step: messages may land in two slots by
 * turns.
 */
static inline void pattern_fill(uint8_t *at, uint32_t size)
{
	const uint32_t back = 2 * 64, around = (PATTERN_STEPS - 2) * 64;

	for (uint32_t i = 0; i < pattern_bytes(size); i++) {
		uint32_t x = i * 0x9e3779b1u;

		x = (x ^ x >> 16) * 0x846ca68bu;
		x ^= x >> 16;
		do
			at[i] = (uint8_t)(1 + x++ % 255);
		while ((i >= back && at[i] == at[i - back]) || (i >= around && at[i] == at[i - around]));
	}
}

static inline uint8_t *pattern_message(uint8_t *pattern, uint64_t i)
{
	return pattern + i % PATTERN_STEPS * 64;
}

/* Ends the program unless message i has arrived. */
static inline void pattern_check(const uint8_t *got, const uint8_t *pattern, uint64_t i, uint32_t size)
{
	const uint8_t *want = pattern + i % PATTERN_STEPS * 64;
	uint32_t k = 0;

	if (!memcmp(got, want, size))
		return;
	while (k < size - 1 && got[k] == want[k])
		k++;
	die("message %llu of %u bytes: byte %u is 0x%02x, not 0x%02x", (unsigned long long)i, size, k, got[k], want[k]);
}

#endif
