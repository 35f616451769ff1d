/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * given.h: memory for objects that live in the caller's: on a cache line, and behind it a page that
 * nobody may touch. All of it is near to each other, which a sanitizer's heap is not.
 */
#ifndef TESTS_GIVEN_H
#define TESTS_GIVEN_H

#include <sys/mman.h>

static inline void *given(size_t n)
{
	size_t bytes = (n + 63) / 64 * 64, all = (bytes + 4095) / 4096 * 4096 + 8192;
	uint8_t *base = (uint8_t *)mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(base != MAP_FAILED && bytes);
	*(size_t *)base = all;
	must(mprotect(base + all - 4096, 4096, PROT_NONE));
	/* What was there before is of no meaning */
	memset(base + all - 4096 - bytes, 0xa5, bytes);
	return base + all - 4096 - bytes;
}

static inline void given_free(void *memory)
{
	uint8_t *base = (uint8_t *)((uintptr_t)memory & ~(uintptr_t)4095) - 4096;

	must(munmap(base, *(size_t *)base));
}

#endif
