/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/base.h: what every other header stands on: version, compiler, bits, byte order, copies,
 * locks, fences, checks and status codes. It includes nothing of mlx5 or libibverbs.
 *
 * Names
 * -----
 * A name that ends in an underscore is internal and may change at any time. Everything else that
 * starts with inlay_ or INLAY_ is public. Posts and segments put the verb first (inlay_post_write,
 * inlay_seg_raddr), because that is how code that posts is read; everything else is
 * inlay_<object>_<verb>. A suffix _be marks a big-endian value; all other values are in host order.
 *
 * Status codes
 * ------------
 * A function returns 0 (or a count) or a negative errno. A function with only one reason to return
 * nothing may return NULL instead. Each kind of failure has one errno:
 *
 *   -EINVAL   an argument is wrong               -EBUSY     the object is in use
 *   -ENOBUFS  the caller's memory is too small   -EBADFD    the object is in the wrong state
 *   -EAGAIN   full or empty at the moment:       -EPERM     the memory does not permit it
 *             something must come back first     -ENOTSUP   the device or this header cannot
 *   -ENOSPC   full for good                      -EPROTO    the device or a peer said something
 *   -E2BIG    it can never fit                              impossible
 *   -ENODATA  nothing to take                    -ENOTCONN  not connected
 *   -ENOENT   no such thing                      others     the errno of the call that failed
 *   -EEXIST   it is there already
 *
 * Set-up functions that can refuse for many reasons take `const char **why` as their last argument.
 * It may be NULL. On failure it is set to a sentence that says what was wrong. The sentence is
 * static, or lies in the object that refused.
 *
 * Checks
 * ------
 * INLAY_CHECKED (0 or 1, default 0) turns preconditions, the rules that a correct caller never
 * breaks, into an abort with a message that names the rule. At 0 they cost nothing. It changes no
 * struct, so translation units of both kinds link together. What depends on data from outside (a
 * completion, a peer's bytes) and every documented error is checked at 0 as well.
 */
#ifndef INLAY_BASE_H
#define INLAY_BASE_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#define INLAY_VERSION_MAJOR 0
#define INLAY_VERSION_MINOR 1
#define INLAY_VERSION_PATCH 0
#define INLAY_VERSION (INLAY_VERSION_MAJOR * 10000 + INLAY_VERSION_MINOR * 100 + INLAY_VERSION_PATCH)

#if !defined(__GNUC__)
#error "inlay needs gcc or clang"
#endif
#if !defined(__x86_64__) && !defined(__aarch64__)
#error "inlay knows the fences of x86-64 and aarch64 only"
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "inlay needs a little-endian machine"
#endif

#ifndef INLAY_CHECKED
#define INLAY_CHECKED 0
#endif

/*
 * How functions are declared:
 *
 *   INLAY_FN      small functions
 *   INLAY_ALWAYS  functions whose constant arguments must fold, whatever their size
 *   INLAY_APART   parts of the data path that would only take room in the caller's loop: always called
 *   INLAY_COLD    set-up, printing and errors, kept out of the caller's loop
 *
 * A foreign-function interface defines INLAY_FN itself, to nothing, in one translation unit. All of
 * inlay's functions are then exported by that object.
 */
#ifdef INLAY_FN
#define INLAY_ALWAYS INLAY_FN
#define INLAY_APART INLAY_FN
#define INLAY_COLD INLAY_FN
#else
#define INLAY_FN static inline
#define INLAY_ALWAYS static inline __attribute__((always_inline))
#define INLAY_APART static __attribute__((noinline, unused))
#define INLAY_COLD static inline __attribute__((cold))
#endif

#define INLAY_LIKELY(x) __builtin_expect(!!(x), 1)
#define INLAY_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define INLAY_CACHE_LINE 64

#ifdef __cplusplus
#define INLAY_STATIC_ASSERT(cond, text) static_assert(cond, text)
#else
#define INLAY_STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif

#if INLAY_CHECKED
#include <stdio.h>
#include <stdlib.h>
/* Names the rule that the caller of `function` broke, and aborts. */
INLAY_COLD __attribute__((noreturn)) void inlay_check_failed(const char *function, const char *rule)
{
	fprintf(stderr, "inlay: %s: %s\n", function, rule);
	abort();
}
#define INLAY_CHECK(cond, rule) (INLAY_LIKELY(cond) ? (void)0 : inlay_check_failed(__func__, rule))
#else
/* The compiler reads the operand but never evaluates it, so a check can neither rot nor warn. */
#define INLAY_CHECK(cond, rule) ((void)sizeof(!(cond)))
#endif

/* Sets *why, when there is one, and gives back err: the last line of a refusal. */
INLAY_COLD int inlay_refuse_(int err, const char **why, const char *text)
{
	if (why)
		*why = text;
	return err;
}

/* ------------------------------------------------------------------------------------------------
 * Bits and sizes
 */

/* Whether n is a power of two; 0 is not. */
INLAY_FN int inlay_is_pow2(uint64_t n)
{
	return n && !(n & (n - 1));
}

/* The smallest k with 2^k >= n; 0 for n = 0. */
INLAY_FN uint32_t inlay_log2_ceil(uint64_t n)
{
	return n < 2 ? 0 : 64u - (uint32_t)__builtin_clzll(n - 1);
}

/* n rounded up to a multiple of `to`, a power of two. The caller knows that n is not near 2^64. */
INLAY_FN uint64_t inlay_round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) & ~(to - 1);
}

/* ------------------------------------------------------------------------------------------------
 * Byte order. The same function serves both ways; the name says which way the value goes.
 */
INLAY_FN uint16_t inlay_to_be16(uint16_t host)
{
	return __builtin_bswap16(host);
}

INLAY_FN uint32_t inlay_to_be32(uint32_t host)
{
	return __builtin_bswap32(host);
}

INLAY_FN uint64_t inlay_to_be64(uint64_t host)
{
	return __builtin_bswap64(host);
}

INLAY_FN uint16_t inlay_from_be16(uint16_t be)
{
	return __builtin_bswap16(be);
}

INLAY_FN uint32_t inlay_from_be32(uint32_t be)
{
	return __builtin_bswap32(be);
}

INLAY_FN uint64_t inlay_from_be64(uint64_t be)
{
	return __builtin_bswap64(be);
}
/* Stores of values that are in the device's byte order already, to any alignment. */
INLAY_ALWAYS void inlay_put32(void *at, uint32_t value)
{
	__builtin_memcpy(at, &value, sizeof(value));
}

INLAY_ALWAYS void inlay_put64(void *at, uint64_t value)
{
	__builtin_memcpy(at, &value, sizeof(value));
}

/* ------------------------------------------------------------------------------------------------
 * Copies
 */

/*
 * Copies len bytes without calling libc, and touches no byte beyond them. A constant length becomes
 * a few moves. Any other length is copied by moves from both ends that overlap in the middle, so
 * that there is no tail to branch over. The blocks must not overlap.
 */
INLAY_ALWAYS void inlay_copy(void *to, const void *from, size_t len)
{
	uint8_t *d = (uint8_t *)to;
	const uint8_t *s = (const uint8_t *)from;

	if (__builtin_constant_p(len) && len && len <= 64) {
		__builtin_memcpy(d, s, len);
	} else if (INLAY_LIKELY(len <= 16)) {
		if (INLAY_LIKELY(len >= 8)) {
			__builtin_memcpy(d, s, 8);
			__builtin_memcpy(d + len - 8, s + len - 8, 8);
		} else if (len >= 4) {
			__builtin_memcpy(d, s, 4);
			__builtin_memcpy(d + len - 4, s + len - 4, 4);
		} else if (len) {
			d[0] = s[0];
			d[len / 2] = s[len / 2];
			d[len - 1] = s[len - 1];
		}
	} else if (len <= 32) {
		__asm__("" : "+r"(s)); /* of a small object gcc would warn here, though len keeps it away */
		__builtin_memcpy(d, s, 16);
		__builtin_memcpy(d + len - 16, s + len - 16, 16);
	} else if (len <= 64) {
		__asm__("" : "+r"(s));
		__builtin_memcpy(d, s, 32);
		__builtin_memcpy(d + len - 32, s + len - 32, 32);
	} else {
		__asm__("" : "+r"(s));
		/*
		 * The empty asm in the loop keeps the compiler from turning it back into a call of
		 * memcpy.
		 */
		for (; INLAY_UNLIKELY(len > 128); len -= 64, d += 64, s += 64) {
			__builtin_memcpy(d, s, 64);
			__asm__ volatile("" ::: "memory");
		}
		__builtin_memcpy(d, s, 64);
		__builtin_memcpy(d + len - 64, s + len - 64, 64);
	}
}

/* ------------------------------------------------------------------------------------------------
 * Fences, each named by what it orders. All of them keep the compiler from moving memory accesses
 * across.
 *
 *   name                     x86-64   aarch64     stands between
 *   inlay_fence_wqe_record   -        dmb oshst   stores to a WQE | the doorbell record that hands it over
 *   inlay_fence_recv_record  -        dmb osh     stores to a receive WQE, and the last loads from its
 *                                                 buffer | the record that hands both to the device
 *   inlay_fence_record_reg   sfence   dmb oshst   the doorbell record | a write to the doorbell register
 *   inlay_fence_reg_line     -        dgh         whole 64-byte lines written to a register that one
 *                                                 thread uses | whatever follows
 *   inlay_fence_reg          sfence   dmb oshst   8 bytes written to a register, or any write before an
 *                                                 unlock | the next write to the register
 *   inlay_fence_reg_full     sfence   dsb st      any write to a register | whatever follows
 *   inlay_fence_polled       -        dmb oshld   the load of what is polled (a CQE's owner bit, the last
 *                                                 byte of an RDMA write) | loads of what came before it
 *   inlay_fence_cqe_free     -        dmb oshld   the last loads from a CQE | the record that frees it
 *
 * x86-64. Stores to write-back memory become visible in program order, and so do loads, also to
 * devices. Only the doorbell register is mapped write-combining: its stores collect in a buffer and
 * leave when the buffer is full or at an sfence. One sfence keeps the register write after the
 * record. After the write, a line of 64 bytes is full and leaves by itself; 8 bytes would stay and
 * could merge with the next doorbell, so they need the second sfence. libmlx5 spends an lfence on
 * each CQE, which write-back memory does not need.
 *
 * aarch64. The device is in the outer-shareable domain, and a dmb orders stores to normal memory
 * before stores to the register as well. Register writes leave in finite time; dgh tells the CPU
 * not to wait for more, which is all that a full line needs. A dmb keeps two doorbells apart. Only a
 * dsb waits until the write has left, as libmlx5 does; a register can be told to do the same
 * (INLAY_UAR_FULL_FENCE in queue/uar.h). oshld orders earlier loads before later loads and stores;
 * osh orders everything, which only handing back a buffer needs.
 *
 * The fence before the register write makes the light fences after it safe: every post executes one,
 * and it drains all of this CPU's write-combining buffers, not just those of one queue.
 */
INLAY_ALWAYS void inlay_fence_wqe_record(void)
{
#if defined(__aarch64__)
	__asm__ volatile("dmb oshst" ::: "memory");
#else
	__asm__ volatile("" ::: "memory");
#endif
}

INLAY_ALWAYS void inlay_fence_recv_record(void)
{
#if defined(__aarch64__)
	__asm__ volatile("dmb osh" ::: "memory");
#else
	__asm__ volatile("" ::: "memory");
#endif
}

INLAY_ALWAYS void inlay_fence_record_reg(void)
{
#if defined(__aarch64__)
	__asm__ volatile("dmb oshst" ::: "memory");
#else
	__asm__ volatile("sfence" ::: "memory");
#endif
}

INLAY_ALWAYS void inlay_fence_reg_line(void)
{
#if defined(__aarch64__)
	__asm__ volatile("hint #6" ::: "memory"); /* dgh, in the spelling that every assembler knows */
#else
	__asm__ volatile("" ::: "memory");
#endif
}

INLAY_ALWAYS void inlay_fence_reg(void)
{
#if defined(__aarch64__)
	__asm__ volatile("dmb oshst" ::: "memory");
#else
	__asm__ volatile("sfence" ::: "memory");
#endif
}

INLAY_ALWAYS void inlay_fence_reg_full(void)
{
#if defined(__aarch64__)
	__asm__ volatile("dsb st" ::: "memory");
#else
	__asm__ volatile("sfence" ::: "memory");
#endif
}

INLAY_ALWAYS void inlay_fence_polled(void)
{
#if defined(__aarch64__)
	__asm__ volatile("dmb oshld" ::: "memory");
#else
	__asm__ volatile("" ::: "memory");
#endif
}

INLAY_ALWAYS void inlay_fence_cqe_free(void)
{
#if defined(__aarch64__)
	__asm__ volatile("dmb oshld" ::: "memory");
#else
	__asm__ volatile("" ::: "memory");
#endif
}

/* ------------------------------------------------------------------------------------------------
 * Locks: one word, 0 when free. They are for a few instructions at a time.
 */

/* Tells the CPU that this is a wait. */
INLAY_ALWAYS void inlay_relax(void)
{
#if defined(__aarch64__)
	__asm__ volatile("yield");
#else
	__asm__ volatile("pause");
#endif
}

/* Takes the lock if it is free, and says whether it did. */
INLAY_ALWAYS int inlay_lock_try(uint32_t *lock)
{
	return !__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE);
}

INLAY_ALWAYS void inlay_lock(uint32_t *lock)
{
	while (!inlay_lock_try(lock))
		while (__atomic_load_n(lock, __ATOMIC_RELAXED))
			inlay_relax();
}

INLAY_ALWAYS void inlay_unlock(uint32_t *lock)
{
	__atomic_store_n(lock, 0, __ATOMIC_RELEASE);
}

#endif
