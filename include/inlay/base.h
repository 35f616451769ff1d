/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/base.h: what all other headers need: version, compiler, checks, status codes, bits, byte
 * order, copies, fences, locks. Includes nothing from mlx5 or libibverbs.
 *
 * Names. A name that ends in an underscore is internal and may change at any time. Everything else
 * that starts with inlay_ or INLAY_ is public, except in this header, which mostly serves the
 * others. Public here: the version, the checks, byte order, inlay_fence_polled (between polling
 * memory and reading what arrived), inlay_fence_reg and inlay_fence_reg_full (between writes to
 * device memory, dm.h).
 *
 * Posts are inlay_post_<operation>, segments inlay_seg_<segment>, others inlay_<object>_<verb or
 * field>. The suffix _be marks a big-endian value; all other values are in host order.
 *
 * Status codes. A function returns 0 (or a count) or a negative errno, or a pointer that is NULL on
 * failure (inlay_device_open also sets errno). Each kind of failure has one errno:
 *
 *   -EINVAL   an argument is wrong               -EBUSY     the object is in use
 *   -ENOBUFS  the caller's memory is too small   -EBADFD    the object is in the wrong state
 *   -EAGAIN   full or empty at the moment        -EPERM     the memory does not permit it
 *   -ENOSPC   full for good                      -ENOTSUP   the device or this header cannot
 *   -E2BIG    it can never fit                   -EPROTO    the device or a peer said something
 *   -ENODATA  nothing to take                               impossible; another version's object
 *   -ENOENT   no such thing                      -ENOTCONN  not connected
 *   -EEXIST   it is there already                others     the errno of the call that failed
 *
 * One exception: inlay_task_release refuses a task in use with -EPERM, as DOCA does.
 *
 * Set-up functions that can fail for many reasons take `const char **why` last; it may be NULL. On
 * failure *why points to a sentence that is static or stored in the object that refused.
 *
 * Checks. With INLAY_CHECKED 1 (default 0), a broken precondition aborts and names the rule; with 0
 * none is checked. Structs are the same in both, so their object files link together. Both check
 * outside data (a completion's kind and counter, a peer's bytes) and return the documented errors.
 * A completion's QPN is checked only with INLAY_CHECKED, where a function says so.
 *
 * Probes. With INLAY_USDT 1 (default 0; needs <sys/sdt.h>), the data path has static probes for
 * bpftrace, perf and gdb: each is a nop in the code and a note in the ELF file.
 *
 *   inlay:post     QPN, index, opcode            a send WQE was written
 *   inlay:full     QPN, WQEBBs pending, wanted   the send ring had no room for a WQE
 *   inlay:ring     QPN, index, WQEBBs pending    the record now covers all WQEs before index
 *   inlay:poll     CQN, index, opcode            inlay_cq_peek found a completion
 *   inlay:advance  CQN, index, completions       that many slots were freed, from index on
 *   inlay:error    QPN, WQE counter, syndrome    inlay_cqe_is_error found an error
 *
 *   bpftrace -e 'usdt:./program:inlay:full { @[arg0] = count(); }'
 */
#ifndef INLAY_BASE_H
#define INLAY_BASE_H /* names are stable until 1.0 */

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#define INLAY_VERSION_MAJOR 0
#define INLAY_VERSION_MINOR 2
#define INLAY_VERSION_PATCH 0
#define INLAY_VERSION (INLAY_VERSION_MAJOR * 10000 + INLAY_VERSION_MINOR * 100 + INLAY_VERSION_PATCH)

/*
 * Versions with the same number have the same structs. Objects to which others are attached carry
 * it; attaching to another number is refused (-EPROTO).
 */
#define INLAY_ABI (INLAY_VERSION_MAJOR ? 100 * INLAY_VERSION_MAJOR : INLAY_VERSION_MINOR)

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

#ifndef INLAY_USDT
#define INLAY_USDT 0
#endif
#if INLAY_USDT
#ifndef STAP_SDT_ARG_CONSTRAINT
#define STAP_SDT_ARG_CONSTRAINT nr /* no memory operand: gdb cannot read one that has a symbol */
#endif
#include <sys/sdt.h>
#define INLAY_PROBE_IF_(cond, name, a, b, c) \
	do { \
		if (cond) \
			DTRACE_PROBE3(inlay, name, a, b, c); \
	} while (0)
#else
#define INLAY_PROBE_IF_(cond, name, a, b, c) ((void)0)
#endif
#define INLAY_PROBE_(name, a, b, c) INLAY_PROBE_IF_(1, name, a, b, c)

/*
 * CUDA. Under nvcc, and in clang's CUDA mode, all functions but INLAY_COLD are compiled for the CPU
 * and for the GPU (gpu.h).
 */
#if defined(__CUDACC__) || defined(__CUDA__)
#define INLAY_BOTH_ __attribute__((host, device))
#define INLAY_GPU_FN_ __attribute__((device)) static inline
#else
#define INLAY_BOTH_
#endif

/*
 * How functions are declared. For a foreign-function interface, define INLAY_FN as nothing in one
 * translation unit; its object then exports every function.
 *
 *   INLAY_FN      small functions
 *   INLAY_ALWAYS  functions of any size whose constant arguments must fold
 *   INLAY_APART   long or rare parts of the data path: never inlined, one copy per object
 *   INLAY_COLD    set-up, printing and errors, kept out of the caller's loop
 */
#ifdef INLAY_FN
#define INLAY_ALWAYS INLAY_FN
#define INLAY_APART INLAY_FN
#define INLAY_COLD INLAY_FN
#else
#define INLAY_FN INLAY_BOTH_ static inline
#define INLAY_ALWAYS INLAY_BOTH_ static inline __attribute__((always_inline))
#define INLAY_APART INLAY_BOTH_ static __attribute__((noinline, unused))
#define INLAY_COLD static inline __attribute__((cold))
#endif

/* Before a function for CPU and GPU that calls an INLAY_COLD one: silences nvcc. */
#if defined(__NVCC__) && defined(__CUDACC__)
#define INLAY_CALLS_COLD_ _Pragma("nv_exec_check_disable")
#else
#define INLAY_CALLS_COLD_
#endif

/* Stands before the return type: the compiler warns a caller that ignores the result. */
#define INLAY_RESULT __attribute__((warn_unused_result))

/* Between these two, -Wold-style-cast is silent in C++. */
#ifdef __cplusplus
#define INLAY_CASTS_BEGIN_ _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wold-style-cast\"")
#define INLAY_CASTS_END_ _Pragma("GCC diagnostic pop")
#else
#define INLAY_CASTS_BEGIN_
#define INLAY_CASTS_END_
#endif

INLAY_CASTS_BEGIN_

#ifdef __CUDA_ARCH__
#define INLAY_KNOWN_(x) 1 /* what a branch for constants does is right for variables */
#define INLAY_HIDE_(x) ((void)0)
#define INLAY_HIDE2_(x, y) ((void)0)
#define INLAY_HIDE_WQE_(p) __builtin_assume(!((uintptr_t)(p) & 63))
#else
#define INLAY_KNOWN_(x) __builtin_constant_p(x)
#define INLAY_HIDE_(x) __asm__("" : "+r"(x)) /* the compiler forgets what it knows of x */
#define INLAY_HIDE2_(x, y) __asm__("" : "+r"(x), "+r"(y))
#define INLAY_HIDE_WQE_(p) INLAY_HIDE_(p)
#endif

#define INLAY_PRAGMA_(text) _Pragma(#text)
#if defined(__NVCC__) && defined(__CUDACC__)
#define INLAY_UNROLL_(n) INLAY_PRAGMA_(unroll n)
#else
#define INLAY_UNROLL_(n) INLAY_PRAGMA_(GCC unroll n)
#endif

#define INLAY_LIKELY(x) __builtin_expect(!!(x), 1)
#define INLAY_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define INLAY_CACHE_LINE 64
#define INLAY_SGE_MAX 0x7fffffffu /* bytes of an SGE: 31 bits, and 0 stands for 2^31 */

#ifdef __cplusplus
#define INLAY_STATIC_ASSERT(cond, text) static_assert(cond, text)
#else
#define INLAY_STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif

#if INLAY_CHECKED
#include <stdio.h>
#include <stdlib.h>
/* Names the rule that the caller of `function` broke, and aborts. */
INLAY_BOTH_ INLAY_COLD __attribute__((noreturn)) void inlay_check_failed(const char *function, const char *rule)
{
#ifdef __CUDA_ARCH__
	(void)function, (void)rule;
	for (;;) /* names nothing: a GPU's printf belongs to CUDA's runtime */
		__asm__ volatile("trap;");
#else
	fprintf(stderr, "inlay: %s: %s\n", function, rule);
	abort();
#endif
}
#define INLAY_CHECK(cond, rule) (INLAY_LIKELY(cond) ? (void)0 : inlay_check_failed(__func__, rule))
#else
/* Compiled but never evaluated, so a check can neither rot nor warn. */
#define INLAY_CHECK(cond, rule) ((void)sizeof(!(cond)))
#endif

/* Checks the result of a post for which the caller has reserved room. */
INLAY_ALWAYS void inlay_had_room_(int err)
{
	INLAY_CHECK(!err, "there was room for the post");
	(void)err;
}

/* Sets *why and returns err. */
INLAY_COLD int inlay_refuse_(int err, const char **why, const char *text)
{
	if (why)
		*why = text;
	return err;
}

/* ---- Bits and sizes ---- */

/* Whether n is a power of two; 0 is not. */
INLAY_FN int inlay_is_pow2(uint64_t n)
{
	return n && !(n & (n - 1));
}

#ifdef __CUDA_ARCH__
#ifdef __NVCC__
#define INLAY_ONES_(n) ((uint32_t)__popc(n))
#define INLAY_LAST_(n) (31 - (uint32_t)__clz((int)(n)))
#else
#define INLAY_ONES_(n) ((uint32_t)__builtin_popcount(n))
#define INLAY_LAST_(n) (31 - (uint32_t)__builtin_clz(n))
#endif
#define INLAY_CTZ_(n) INLAY_ONES_(~(n) & ((n) - 1))
#else
/* Without the compiler's word for it, which calls a function where there is no instruction */
INLAY_FN uint32_t inlay_ones_(uint32_t n)
{
	n -= (n >> 1) & 0x55555555;
	n = (n & 0x33333333) + ((n >> 2) & 0x33333333);
	return (((n + (n >> 4)) & 0x0f0f0f0f) * 0x01010101) >> 24;
}
#define INLAY_ONES_(n) inlay_ones_(n)
#define INLAY_CTZ_(n) ((uint32_t)__builtin_ctz(n))
#endif

/* The smallest k with 2^k >= n; 0 for n = 0. */
INLAY_FN uint32_t inlay_log2_ceil(uint64_t n)
{
	return n < 2 ? 0 : 64u - (uint32_t)__builtin_clzll(n - 1);
}

/* n rounded up to a multiple of `to`, a power of two. The sum must not overflow. */
INLAY_FN uint64_t inlay_round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) & ~(to - 1);
}

#ifdef __CUDA_ARCH__
#define INLAY_SWAP16_(x) ((uint16_t)(inlay_swap32_(x) >> 16))
#define INLAY_SWAP32_(x) inlay_swap32_(x)
#define INLAY_SWAP64_(x) inlay_swap64_(x)
INLAY_GPU_FN_ uint32_t inlay_swap32_(uint32_t x)
{
	__asm__("prmt.b32 %0, %0, 0, 0x0123;" : "+r"(x));
	return x;
}

INLAY_GPU_FN_ uint64_t inlay_swap64_(uint64_t x)
{
	__asm__("{\n\t.reg .b32 lo, hi;\n\tmov.b64 {lo, hi}, %0;\n\tprmt.b32 lo, lo, 0, 0x0123;\n\t"
		"prmt.b32 hi, hi, 0, 0x0123;\n\tmov.b64 %0, {hi, lo};\n\t}" : "+l"(x));
	return x;
}
#else
#define INLAY_SWAP16_(x) __builtin_bswap16(x)
#define INLAY_SWAP32_(x) __builtin_bswap32(x)
#define INLAY_SWAP64_(x) __builtin_bswap64(x)
#endif

/* ---- Byte order ---- */

/* The value in big-endian order, or a big-endian value in host order. */
INLAY_FN uint16_t inlay_to_be16(uint16_t host)
{
	return INLAY_SWAP16_(host);
}

INLAY_FN uint32_t inlay_to_be32(uint32_t host)
{
	return INLAY_SWAP32_(host);
}

INLAY_FN uint64_t inlay_to_be64(uint64_t host)
{
	return INLAY_SWAP64_(host);
}

INLAY_FN uint16_t inlay_from_be16(uint16_t be)
{
	return INLAY_SWAP16_(be);
}

INLAY_FN uint32_t inlay_from_be32(uint32_t be)
{
	return INLAY_SWAP32_(be);
}

INLAY_FN uint64_t inlay_from_be64(uint64_t be)
{
	return INLAY_SWAP64_(be);
}

typedef uint32_t inlay_word_ __attribute__((may_alias));
typedef uint64_t inlay_pair_ __attribute__((may_alias));

/* Stores a value that is already in device byte order, on a CPU at any alignment. */
INLAY_ALWAYS void inlay_put32(void *at, uint32_t value)
{
#ifdef __CUDA_ARCH__
	*(inlay_word_ *)at = value; /* its memcpy stores bytes */
#else
	__builtin_memcpy(at, &value, sizeof(value));
#endif
}

INLAY_ALWAYS void inlay_put64(void *at, uint64_t value)
{
#ifdef __CUDA_ARCH__
	*(inlay_pair_ *)at = value;
#else
	__builtin_memcpy(at, &value, sizeof(value));
#endif
}

/* Adjacent stores. On a GPU all values are computed first, so that the compiler merges the stores. */
#ifdef __CUDA_ARCH__
INLAY_GPU_FN_ void INLAY_PUT_TWO_(void *at, uint64_t first, uint64_t second)
{
	inlay_put64(at, first);
	inlay_put64((uint8_t *)at + 8, second);
}

INLAY_GPU_FN_ void INLAY_PUT_THREE_(void *at, uint32_t first, uint32_t second, uint64_t third)
{
	inlay_put32(at, first);
	inlay_put32((uint8_t *)at + 4, second);
	inlay_put64((uint8_t *)at + 8, third);
}
#else
#define INLAY_PUT_TWO_(at, first, second) (inlay_put64(at, first), inlay_put64((uint8_t *)(at) + 8, second))
#define INLAY_PUT_THREE_(at, first, second, third) \
	(inlay_put32(at, first), inlay_put32((uint8_t *)(at) + 4, second), inlay_put64((uint8_t *)(at) + 8, third))
#endif

/* ---- Copies ---- */

/*
 * Copies len bytes between blocks that do not overlap, without calling libc. A constant length
 * becomes a few moves. A variable one is copied from both ends, which overlap in the middle: no
 * tail is left to branch over.
 */
INLAY_ALWAYS void inlay_copy(void *to, const void *from, size_t len)
{
	uint8_t *d = (uint8_t *)to;
	const uint8_t *s = (const uint8_t *)from;

#ifdef __CUDA_ARCH__
	size_t i, words = ((uintptr_t)d | (uintptr_t)s) & 3 ? 0 : len / 4;

	for (i = 0; i < words; i++)
		((inlay_word_ *)to)[i] = ((const inlay_word_ *)from)[i];
	for (i = 4 * words; i < len; i++)
		d[i] = s[i];
	return;
#endif
	/* An SGE of a zero-based key has address 0, and is never inlined. Without this test gcc warns. */
	if (INLAY_KNOWN_(!s) && !s)
		return;
	if (INLAY_KNOWN_(len) && len && len <= 64) {
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
		INLAY_HIDE2_(d, s); /* gcc would warn of a small object, although len excludes it */
		__builtin_memcpy(d, s, 16);
		__builtin_memcpy(d + len - 16, s + len - 16, 16);
	} else if (len <= 64) {
		INLAY_HIDE2_(d, s);
		__builtin_memcpy(d, s, 16);
		__builtin_memcpy(d + 16, s + 16, 16);
		__builtin_memcpy(d + len - 32, s + len - 32, 16);
		__builtin_memcpy(d + len - 16, s + len - 16, 16);
	} else {
		INLAY_HIDE_(s);
		/* The asm keeps the compiler from turning the loop into a memcpy. */
		for (; INLAY_UNLIKELY(len > 128); len -= 64, d += 64, s += 64) {
			__builtin_memcpy(d, s, 64);
			__asm__ volatile("" ::: "memory");
		}
		__builtin_memcpy(d, s, 64);
		__builtin_memcpy(d + len - 64, s + len - 64, 64);
	}
}

#if defined(__CUDA_ARCH__)
#define INLAY_FENCE_(x86, arm, gpu) __asm__ volatile(gpu ::: "memory")
#elif defined(__aarch64__)
#define INLAY_FENCE_(x86, arm, gpu) __asm__ volatile(arm ::: "memory")
#else
#define INLAY_FENCE_(x86, arm, gpu) __asm__ volatile(x86 ::: "memory")
#endif

/* ---- Fences ---- */

#ifndef INLAY_GPU_SCOPE
#define INLAY_GPU_SCOPE "sys"
#endif
#define INLAY_GPU_FENCE_ "fence.acq_rel." INLAY_GPU_SCOPE ";"

/*
 * Each fence is named by what it orders. The compiler moves no memory access across any of them.
 *
 *   name                     x86-64   aarch64     stands between
 *   inlay_fence_wqe_record   -        dmb oshst   stores to a WQE, or to slots of a CQ | the doorbell record
 *                                                 that hands them over
 *   inlay_fence_recv_record  -        dmb osh     stores to a receive WQE, and the last loads from its
 *                                                 buffer | the record that hands both to the device
 *   inlay_fence_record_reg   sfence   dmb oshst   the doorbell record | a write to the doorbell register
 *   inlay_fence_reg_line     -        dgh         whole 64-byte lines written to a register that one
 *                                                 thread uses | whatever follows
 *   inlay_fence_reg          sfence   dmb oshst   8 bytes written to a register, or any write before an
 *                                                 unlock | the next write to the register
 *   inlay_fence_reg_full     sfence   dsb st      any write to a register | whatever follows
 *   inlay_fence_polled       -        dmb oshld   the load of what is polled (a CQE's owner bit, the last
 *                                                 byte of an RDMA write) | loads of data written before
 *   inlay_fence_cqe_free     -        dmb oshld   the last loads from a CQE | the record that frees it
 *
 * x86-64. For write-back memory the CPU keeps all these orders by itself, also towards devices. Only
 * the doorbell register is write-combining: its stores collect in a buffer until the buffer is full
 * or an sfence drains it. One sfence keeps the register write after the record. A full line of 64
 * bytes then leaves by itself; 8 bytes would stay and could merge with the next doorbell, so they
 * need a second sfence.
 *
 * aarch64. The device is in the outer-shareable domain, and a dmb also orders stores to normal
 * memory before stores to the register. Register writes leave in finite time; dgh tells the CPU not
 * to wait for more, which is enough for a full line. A dmb keeps two doorbells apart. Only a dsb
 * waits until the write has left; libmlx5 uses one (INLAY_UAR_FULL_FENCE, queue/uar.h). oshld
 * orders earlier loads before later loads and stores. osh orders everything; only handing back a
 * buffer needs it.
 *
 * A GPU (gpu.h) executes fence.acq_rel for each, of the scope INLAY_GPU_SCOPE, and none for
 * reg_line and reg: its doorbells do not combine, and gpu.h orders them by a releasing store.
 *
 * The light fences after a register write are safe because every doorbell first executes
 * inlay_fence_record_reg: its sfence drains all of this CPU's write-combining buffers, its dmb
 * keeps this doorbell's writes behind those of the one before.
 */
INLAY_ALWAYS void inlay_fence_wqe_record(void)
{
	INLAY_FENCE_("", "dmb oshst", INLAY_GPU_FENCE_);
}

INLAY_ALWAYS void inlay_fence_recv_record(void)
{
	INLAY_FENCE_("", "dmb osh", INLAY_GPU_FENCE_);
}

INLAY_ALWAYS void inlay_fence_record_reg(void)
{
	INLAY_FENCE_("sfence", "dmb oshst", INLAY_GPU_FENCE_);
}

INLAY_ALWAYS void inlay_fence_reg_line(void)
{
	INLAY_FENCE_("", "hint #6", ""); /* dgh, in the spelling that every assembler knows */
}

INLAY_ALWAYS void inlay_fence_reg(void)
{
	INLAY_FENCE_("sfence", "dmb oshst", "");
}

INLAY_ALWAYS void inlay_fence_reg_full(void)
{
	INLAY_FENCE_("sfence", "dsb st", INLAY_GPU_FENCE_);
}

INLAY_ALWAYS void inlay_fence_polled(void)
{
	INLAY_FENCE_("", "dmb oshld", INLAY_GPU_FENCE_);
}

INLAY_ALWAYS void inlay_fence_cqe_free(void)
{
	INLAY_FENCE_("", "dmb oshld", INLAY_GPU_FENCE_);
}

/* ---- Single loads and stores of what a device, or another thread, reads or writes ---- */

#ifdef __CUDA_ARCH__
#define INLAY_LOAD_(p) (*(const volatile __typeof__(*(p)) *)(p))
#define INLAY_STORE_(p, v) ((void)(*(volatile __typeof__(*(p)) *)(p) = (v)))
#else
#define INLAY_LOAD_(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define INLAY_STORE_(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
#endif

/* ---- Words that threads of a GPU share (gpu.h). On a CPU, loads acquire and stores release ---- */

INLAY_ALWAYS uint32_t inlay_gpu_load_(const uint32_t *p, int acquire)
{
#ifdef __CUDA_ARCH__
	uint32_t v;

	if (acquire)
		__asm__ volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	else
		__asm__ volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
#else
	(void)acquire;
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
#endif
}

INLAY_ALWAYS void inlay_gpu_store_(uint32_t *p, uint32_t v, int release)
{
#ifdef __CUDA_ARCH__
	if (release)
		__asm__ volatile("st.release.gpu.global.b32 [%0], %1;" : : "l"(p), "r"(v) : "memory");
	else
		__asm__ volatile("st.relaxed.gpu.global.b32 [%0], %1;" : : "l"(p), "r"(v) : "memory");
#else
	(void)release;
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
#endif
}

INLAY_ALWAYS void inlay_gpu_doorbell_(uint64_t *reg, uint64_t v)
{
#ifdef __CUDA_ARCH__
	__asm__ volatile("st.mmio.relaxed.sys.global.b64 [%0], %1;" : : "l"(reg), "l"(v) : "memory");
#else
	INLAY_STORE_(reg, v);
	inlay_fence_reg();
#endif
}

/* Stores v if *was is there, else sets *was. Returns whether it stored. */
INLAY_ALWAYS int inlay_gpu_cas_(uint32_t *p, uint32_t *was, uint32_t v)
{
#ifdef __CUDA_ARCH__
	uint32_t old = *was;

	__asm__ volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], %2, %3;" : "=r"(*was) : "l"(p), "r"(old), "r"(v) : "memory");
	return *was == old;
#else
	return __atomic_compare_exchange_n(p, was, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
#endif
}

/* ---- Lanes of a warp; a thread of the CPU is a lane 0 ---- */

INLAY_ALWAYS uint32_t inlay_lane_(void)
{
	uint32_t lane = 0;

#ifdef __CUDA_ARCH__
	__asm__("mov.u32 %0, %%laneid;" : "=r"(lane));
#endif
	return lane;
}

/* The value that the highest of the lanes passed. It orders no memory. */
INLAY_ALWAYS uint32_t inlay_of_last_(uint32_t lanes, uint32_t v)
{
#ifdef __CUDA_ARCH__
	__asm__ volatile("shfl.sync.idx.b32 %0, %0, %1, 31, %2;" : "+r"(v) : "r"(INLAY_LAST_(lanes)), "r"(lanes));
#endif
	(void)lanes;
	return v;
}

/* Waits for the lanes. Each then sees what the others stored before. */
INLAY_ALWAYS void inlay_lanes_meet_(uint32_t lanes)
{
#ifdef __CUDA_ARCH__
	__asm__ volatile("bar.warp.sync %0;" : : "r"(lanes) : "memory");
#endif
	(void)lanes;
}

/* ---- Locks: one word, 0 when free; for a few instructions at a time ---- */

/* Tells the CPU that this is a spin loop. */
INLAY_ALWAYS void inlay_relax(void)
{
#ifndef __CUDA_ARCH__
	INLAY_FENCE_("pause", "yield", "");
#endif
}

/* Takes the lock if it is free. Returns whether it did. */
INLAY_ALWAYS int inlay_lock_try(uint32_t *lock)
{
#ifdef __CUDA_ARCH__
	uint32_t was;

	__asm__ volatile("atom.acquire." INLAY_GPU_SCOPE ".exch.b32 %0, [%1], 1;" : "=r"(was) : "l"(lock) : "memory");
	return !was;
#else
	return !__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE);
#endif
}

INLAY_ALWAYS void inlay_lock(uint32_t *lock)
{
	while (!inlay_lock_try(lock))
		while (INLAY_LOAD_(lock))
			inlay_relax();
}

INLAY_ALWAYS void inlay_unlock(uint32_t *lock)
{
#ifdef __CUDA_ARCH__
	__asm__ volatile("st.release." INLAY_GPU_SCOPE ".b32 [%0], 0;" : : "l"(lock) : "memory");
#else
	__atomic_store_n(lock, 0, __ATOMIC_RELEASE);
#endif
}

INLAY_CASTS_END_

#endif
