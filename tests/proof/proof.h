/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * proof.h: what stands before a header's text when Frama-C reads it (tests/proof/run). What the checker cannot
 * read is replaced here; README.md lists what is assumed by that.
 */
#ifndef TESTS_PROOF_PROOF_H
#define TESTS_PROOF_PROOF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*@ requires \valid((uint8_t *)to + (0 .. n - 1));
  @ requires \valid_read((const uint8_t *)from + (0 .. n - 1));
  @ requires \separated((uint8_t *)to + (0 .. n - 1), (const uint8_t *)from + (0 .. n - 1));
  @ assigns ((uint8_t *)to)[0 .. n - 1] \from ((const uint8_t *)from)[0 .. n - 1];
  @ assigns \result \from to;
  @ ensures \result == to;
  @*/
void *memcpy(void *to, const void *from, size_t n);

/*@ requires \valid((uint8_t *)to + (0 .. n - 1));
  @ assigns ((uint8_t *)to)[0 .. n - 1] \from c;
  @ assigns \result \from to;
  @ ensures \result == to;
  @*/
void *memset(void *to, int c, size_t n);

/*@ requires \valid_read((const uint8_t *)a + (0 .. n - 1));
  @ requires \valid_read((const uint8_t *)b + (0 .. n - 1));
  @ assigns \result \from ((const uint8_t *)a)[0 .. n - 1], ((const uint8_t *)b)[0 .. n - 1];
  @*/
int memcmp(const void *a, const void *b, size_t n);

/* Any value at all. */
/*@ assigns \result \from \nothing; */
uint64_t any64(void);

/* Any bytes. */
/*@ requires \valid((uint8_t *)to + (0 .. n - 1));
  @ assigns ((uint8_t *)to)[0 .. n - 1] \from \nothing;
  @ ensures \initialized((uint8_t *)to + (0 .. n - 1));
  @*/
void any_bytes(void *to, size_t n);

/* Nobody may come here: the checker wants a proof that nobody does. */
/*@ requires \false;
  @ assigns \nothing;
  @*/
void never(void);

/*@ assigns \result \from x;
  @ ensures 0 <= \result <= 63;
  @*/
int proof_zeros(uint64_t x);

static uint64_t proof_swap(uint64_t x, uint32_t bytes)
{
	uint64_t y = 0;

	/*@ loop unroll 8; */
	for (uint32_t i = 0; i < bytes; i++)
		y |= (x >> 8 * i & 0xff) << 8 * (bytes - 1 - i);
	return y;
}

/* The other half of a doorbell register: the checker cannot follow an exclusive or of a pointer. */
static uint8_t *proof_half(uint8_t *at, uint32_t size);

#define __builtin_memcpy memcpy
#define __builtin_memset memset
#define __builtin_memcmp memcmp
#define __builtin_bswap16(x) ((uint16_t)proof_swap(x, 2))
#define __builtin_bswap32(x) ((uint32_t)proof_swap(x, 4))
#define __builtin_bswap64(x) proof_swap(x, 8)
#define __builtin_clzll(x) proof_zeros(x)
#define __builtin_ctzll(x) proof_zeros(x)
#define __builtin_ctz(x) (proof_zeros(x) & 31)
#define __builtin_unreachable() never()
#define __builtin_expect(x, likely) (x)
#define __builtin_constant_p(x) PROOF_CONSTANT
#define __atomic_load_n(at, order) (*(at))
#define __atomic_store_n(at, value, order) ((void)(*(at) = (value)))
#define __atomic_exchange_n(at, value, order) any64()
#define __atomic_compare_exchange_n(at, old, value, weak, order, fail) \
	(*(at) == *(old) ? (*(at) = (value), 1) : (*(old) = *(at), 0))

/* Assembly has no effect that the checker must know of: fences, and hints to the compiler. */
#define __asm__(...)
#define volatile(...) ("")
#define __clang__ 1

#endif
