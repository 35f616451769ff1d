/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/base.h: what every other header stands on: version, compiler, byte order, fences, checks, status codes.
 *
 * Includes nothing of mlx5 and nothing of libibverbs.
 *
 * Status codes
 * ------------
 * A function returns 0 (or a count) or a negative errno. One that has a single reason to give nothing may return NULL. The table
 * maps the codes of DOCA, for those who come from there:
 *
 *   DOCA_ERROR_...       here          DOCA_ERROR_...         here
 *   INVALID_VALUE        -EINVAL       FULL                   -ENOSPC
 *   NO_MEMORY            -ENOMEM       AGAIN                  -EAGAIN
 *   NOT_PERMITTED        -EPERM        IO_FAILED              -EIO
 *   BAD_STATE            -EBADFD       TIME_OUT               -ETIMEDOUT
 *   IN_USE               -EBUSY        NOT_CONNECTED          -ENOTCONN
 *   NOT_FOUND            -ENOENT       CONNECTION_RESET       -ECONNRESET
 *   ALREADY_EXIST        -EEXIST       CONNECTION_ABORTED     -ECONNABORTED
 *   NOT_SUPPORTED        -ENOTSUP      CONNECTION_INPROGRESS  -EINPROGRESS
 *   TOO_BIG              -E2BIG        UNSUPPORTED_VERSION    -EPROTO
 *   EMPTY                -ENODATA      BAD_CONFIG             -EINVAL
 *   SHUTDOWN             -ESHUTDOWN    DRIVER                 -ENODEV
 *   INITIALIZATION       -ENODEV       OPERATING_SYSTEM       -errno of the call
 *   SKIPPED              -ECANCELED    UNKNOWN, UNEXPECTED    -EIO
 *
 * Checks
 * ------
 * INLAY_CHECKED (0 or 1, default 0) turns preconditions, the rules that a correct caller never breaks, into an abort with a
 * message that names the rule. At 0 they cost nothing. It changes no struct, so translation units of both kinds link together. What
 * depends on data from outside (a completion, a peer's bytes) and every documented error is checked at 0 as well.
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
 *   INLAY_FN      small ones
 *   INLAY_ALWAYS  those whose constant arguments must fold, whatever the compiler thinks of their size
 *   INLAY_APART   parts of the data path that would only take room in the caller's loop: always called
 *   INLAY_COLD    set-up, printing and errors, out of the caller's loop; inline in name, so that what nobody calls leaves no trace
 *
 * A foreign-function interface defines INLAY_FN itself, to nothing, in one translation unit, and finds all of inlay's functions exported
 * by that object.
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
INLAY_COLD __attribute__((noreturn)) void inlay_check_failed(const char *function, const char *rule)
{
	fprintf(stderr, "inlay: %s: %s\n", function, rule);
	abort();
}
#define INLAY_CHECK(cond, rule) (INLAY_LIKELY(cond) ? (void)0 : inlay_check_failed(__func__, rule))
#else
/* The operand is looked at by the compiler and never evaluated, so that a check cannot rot or warn. */
#define INLAY_CHECK(cond, rule) ((void)sizeof(!(cond)))
#endif

/* ------------------------------------------------------------------------------------------------
 * Bits and sizes
 */

/* Whether n is a power of two; 0 is not. */
INLAY_FN int inlay_is_pow2(uint64_t n)
{
	return n && !(n & (n - 1));
}

/* n rounded up to a multiple of `to`, a power of two. The caller knows that n is not near 2^64. */
INLAY_FN uint64_t inlay_round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) & ~(to - 1);
}

/* ------------------------------------------------------------------------------------------------------------------------
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

/* ------------------------------------------------------------------------------------------------------------------------
 * Fences, each named by what it orders. They all keep the compiler from moving memory accesses across.
 *
 *   name                      x86-64    aarch64      stands between
 *   inlay_fence_wqe_record    -         dmb oshst    stores to a WQE | the doorbell record that hands it over
 *   inlay_fence_recv_record   -         dmb osh      stores to a receive WQE, and the last loads from the buffer that it names | the
 *                                                    doorbell record that hands both to the device
 *   inlay_fence_record_reg    sfence    dmb oshst    the doorbell record | a write to the doorbell register
 *   inlay_fence_reg           sfence    dsb st       a write to the register | whatever follows
 *   inlay_fence_polled        -         dmb oshld    the load of what is polled (a CQE's owner bit, the last byte of an RDMA write) |
 *                                                    loads of what the device wrote before it
 *   inlay_fence_cqe_free      -         dmb oshld    the last loads from a CQE | the consumer record that frees it
 *
 * x86-64: stores to write-back memory become visible in program order, and so do loads, devices included; only the
 * write-combining register page needs sfence, once to keep the register write behind the record, once to push it out
 * and to keep the next one from merging with it. libmlx5 spends an lfence on a CQE; write-back memory does not need it.
 *
 * aarch64: the outer-shareable domain is the one the device is in, and a dmb orders stores to normal memory before those to the register as
 * well. The one dsb is there for its other effect: it waits until the register write has left, as sfence does. oshld orders earlier
 * loads before later loads and stores; osh everything before everything behind, which only handing a buffer back needs.
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

INLAY_ALWAYS void inlay_fence_reg(void)
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
