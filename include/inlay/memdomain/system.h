/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/memdomain/system.h: a domain of this process's own memory, whose operations copy.
 *
 *   inlay_memdomain_system_attach(inlay_memdomain_system(&reg));      the system domain, or one of your own
 *
 *   inlay_memdomain_pull(d, NULL, from, 3, to, 5, done, request);     any splits: 3 pieces into 5
 *
 *   src_iov   |-------a-------|--b--|----------c----------|          as many bytes as it has are copied,
 *   dst_iov   |--1--|----2----|---------3---------|----4----|.....|  what dst_iov has more stays as it was
 *
 * The operation is complete when it returns: done(arg, 0) is called just before, in the caller's thread. A vector that cannot be (the
 * destination shorter than the source, a sum beyond SIZE_MAX, bytes at NULL) answers -EINVAL, and nothing has been copied. Source and
 * destination do not overlap, unless each byte is copied onto itself. Other callers' contexts are not looked at.
 *
 * The copies are inlay's own and call nothing: 64 bytes at a time, on x86-64 by the CPU's string move from a kilobyte on.
 *
 * Threads: any number, on different memory.
 * Sources: SPDK's include/spdk/dma.h (the callbacks' duties).
 */
#ifndef INLAY_MEMDOMAIN_SYSTEM_H
#define INLAY_MEMDOMAIN_SYSTEM_H

#include <inlay/base.h>
#include <inlay/wqe.h>
#include <inlay/memdomain/domain.h>

#define INLAY_MEMDOMAIN_STRING 1024u /* bytes from which on the string instructions, which take some time to start, are faster */

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path
 */

typedef uint64_t inlay_memdomain_vector __attribute__((vector_size(16)));

/* 64 bytes, of which all are read before any is written. */
INLAY_ALWAYS void inlay_memdomain_copy64(uint8_t *to, const uint8_t *from)
{
	inlay_memdomain_vector a, b, c, d;

	__builtin_memcpy(&a, from, 16);
	__builtin_memcpy(&b, from + 16, 16);
	__builtin_memcpy(&c, from + 32, 16);
	__builtin_memcpy(&d, from + 48, 16);
	__builtin_memcpy(to, &a, 16);
	__builtin_memcpy(to + 16, &b, 16);
	__builtin_memcpy(to + 32, &c, 16);
	__builtin_memcpy(to + 48, &d, 16);
	/* Keeps the compiler from making a call of memcpy of the loop that this is in. */
	__asm__ volatile("" ::: "memory");
}

INLAY_ALWAYS void inlay_memdomain_zero64(uint8_t *at)
{
	const inlay_memdomain_vector zero = {0, 0};

	__builtin_memcpy(at, &zero, 16);
	__builtin_memcpy(at + 16, &zero, 16);
	__builtin_memcpy(at + 32, &zero, 16);
	__builtin_memcpy(at + 48, &zero, 16);
	__asm__ volatile("" ::: "memory");
}

/* Copies any number of bytes that do not overlap. */
INLAY_FN void inlay_memdomain_copy(uint8_t *to, const uint8_t *from, size_t len)
{
	size_t n;

#if defined(__x86_64__)
	if (len >= INLAY_MEMDOMAIN_STRING) {
		__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(len) : : "memory");
		return;
	}
#endif
	if (len < 64) {
		inlay_copy(to, from, len);
		return;
	}
	/* The first ones as they lie, then whole lines, then the last ones, some of them twice. */
	inlay_memdomain_copy64(to, from);
	for (n = 64 - (uintptr_t)to % 64; n + 64 <= len; n += 64)
		inlay_memdomain_copy64(to + n, from + n);
	if (n < len)
		inlay_memdomain_copy64(to + len - 64, from + len - 64);
}

/* Zeroes any number of bytes. */
INLAY_FN void inlay_memdomain_zero(uint8_t *at, size_t len)
{
	uint64_t zero[2];
	size_t n;

	zero[0] = zero[1] = 0; /* with an initialiser, some compiler calls memset */
#if defined(__x86_64__)
	if (len >= INLAY_MEMDOMAIN_STRING) {
		__asm__ volatile("rep stosb" : "+D"(at), "+c"(len) : "a"(zero[0]) : "memory");
		return;
	}
#endif
	if (len >= 64) {
		inlay_memdomain_zero64(at);
		for (n = 64 - (uintptr_t)at % 64; n + 64 <= len; n += 64)
			inlay_memdomain_zero64(at + n);
		if (n < len)
			inlay_memdomain_zero64(at + len - 64);
		return;
	}
	for (; len >= 16; at += 16, len -= 16) {
		__builtin_memcpy(at, zero, 16);
		__asm__ volatile("" ::: "memory");
	}
	inlay_copy(at, zero, len);
}

/* The bytes of a vector. Returns 0, or -EINVAL for a sum that does not fit or for bytes at NULL. */
INLAY_FN int inlay_memdomain_total(const struct iovec *iov, uint32_t iovcnt, size_t *total)
{
	size_t sum = 0;
	uint32_t i;

	for (i = 0; i < iovcnt; i++)
		if (INLAY_UNLIKELY((!iov[i].iov_base && iov[i].iov_len) || __builtin_add_overflow(sum, iov[i].iov_len, &sum)))
			return -EINVAL;
	*total = sum;
	return 0;
}

/* Copies one vector into another that is split otherwise. Returns 0, or -EINVAL for what the manual says: then nothing has been copied. */
INLAY_FN int inlay_memdomain_copyv(const struct iovec *dst_iov, uint32_t dst_iovcnt, const struct iovec *src_iov, uint32_t src_iovcnt)
{
	size_t left, room, src_at = 0, dst_at = 0;

	if (INLAY_UNLIKELY(inlay_memdomain_total(src_iov, src_iovcnt, &left) || inlay_memdomain_total(dst_iov, dst_iovcnt, &room) ||
			   left > room))
		return -EINVAL;
	while (left) {
		size_t n = src_iov->iov_len - src_at, to = dst_iov->iov_len - dst_at;

		if (n > to)
			n = to;
		inlay_memdomain_copy((uint8_t *)dst_iov->iov_base + dst_at, (const uint8_t *)src_iov->iov_base + src_at, n);
		left -= n;
		src_at += n;
		dst_at += n;
		if (src_at == src_iov->iov_len) {
			src_iov++;
			src_at = 0;
		}
		if (dst_at == dst_iov->iov_len) {
			dst_iov++;
			dst_at = 0;
		}
	}
	return 0;
}

/* The end that all share: the word, if the answer is 0 and somebody wants it. */
INLAY_FN int inlay_memdomain_finish(int rc, inlay_memdomain_done done, void *arg)
{
	if (!rc && done)
		done(arg, 0);
	return rc;
}

/* Pull: a copy. */
INLAY_FN int inlay_memdomain_system_pull(struct inlay_memdomain *src, void *src_ctx, const struct iovec *src_iov, uint32_t src_iovcnt,
					 const struct iovec *dst_iov, uint32_t dst_iovcnt, inlay_memdomain_done done, void *arg)
{
	(void)src;
	(void)src_ctx;
	return inlay_memdomain_finish(inlay_memdomain_copyv(dst_iov, dst_iovcnt, src_iov, src_iovcnt), done, arg);
}

/* Push: a copy. */
INLAY_FN int inlay_memdomain_system_push(struct inlay_memdomain *dst, void *dst_ctx, const struct iovec *dst_iov, uint32_t dst_iovcnt,
					 const struct iovec *src_iov, uint32_t src_iovcnt, inlay_memdomain_done done, void *arg)
{
	(void)dst;
	(void)dst_ctx;
	return inlay_memdomain_finish(inlay_memdomain_copyv(dst_iov, dst_iovcnt, src_iov, src_iovcnt), done, arg);
}

/*
 * Transfer: a copy from the translation's pieces, when there is a translation, which must be to dst; else from src_iov, when src is NULL, a
 * system domain or attached here; else it is src's pull, with all its answers, and -ENOTSUP when src has none.
 */
INLAY_FN int inlay_memdomain_system_transfer(struct inlay_memdomain *dst, void *dst_ctx, const struct iovec *dst_iov, uint32_t dst_iovcnt,
					     struct inlay_memdomain *src, void *src_ctx, const struct iovec *src_iov, uint32_t src_iovcnt,
					     struct inlay_memdomain_result *translation, inlay_memdomain_done done, void *arg)
{
	(void)dst_ctx;
	if (translation) {
		src_iov = inlay_memdomain_pieces(translation, &src_iovcnt);
		if (translation->dst_domain != dst || src_iovcnt != translation->iov_count)
			return -EINVAL;
	} else if (src && !__atomic_load_n(&src->host, __ATOMIC_RELAXED)) {
		return inlay_memdomain_pull(src, src_ctx, src_iov, src_iovcnt, dst_iov, dst_iovcnt, done, arg);
	}
	return inlay_memdomain_finish(inlay_memdomain_copyv(dst_iov, dst_iovcnt, src_iov, src_iovcnt), done, arg);
}

/* Memzero. */
INLAY_FN int inlay_memdomain_system_memzero(struct inlay_memdomain *d, void *ctx, const struct iovec *iov, uint32_t iovcnt,
					    inlay_memdomain_done done, void *arg)
{
	size_t total;
	uint32_t i;

	(void)d;
	(void)ctx;
	if (INLAY_UNLIKELY(inlay_memdomain_total(iov, iovcnt, &total)))
		return -EINVAL;
	for (i = 0; i < iovcnt; i++)
		inlay_memdomain_zero((uint8_t *)iov[i].iov_base, iov[i].iov_len);
	return inlay_memdomain_finish(0, done, arg);
}

/* Translate: the same address, to a system domain or one attached here; -ENOTSUP to any other. */
INLAY_FN int inlay_memdomain_system_translate(struct inlay_memdomain *src, void *src_ctx, struct inlay_memdomain *dst,
					      struct inlay_memdomain_translation_ctx *dst_ctx, void *addr, size_t len,
					      struct inlay_memdomain_result *result)
{
	(void)src;
	(void)src_ctx;
	(void)dst_ctx;
	if (!__atomic_load_n(&dst->host, __ATOMIC_RELAXED))
		return -ENOTSUP;
	result->size = sizeof(*result);
	result->iov_count = 1;
	result->iov.iov_base = addr;
	result->iov.iov_len = len;
	result->iovs = NULL;
	result->dst_domain = dst;
	result->rdma.lkey = 0;
	result->rdma.rkey = 0;
	return 0;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up
 */

/*
 * Makes a domain one of this process's memory: sets its callbacks, but the one of invalidate, for which there is nothing to do. Returns 0,
 * or -EINVAL for NULL. Threads: any time, as setting callbacks is.
 */
INLAY_COLD int inlay_memdomain_system_attach(struct inlay_memdomain *d)
{
	if (!d)
		return -EINVAL;
	__atomic_store_n(&d->host, 1, __ATOMIC_RELAXED);
	inlay_memdomain_set_translation(d, inlay_memdomain_system_translate);
	inlay_memdomain_set_pull(d, inlay_memdomain_system_pull);
	inlay_memdomain_set_push(d, inlay_memdomain_system_push);
	inlay_memdomain_set_transfer(d, inlay_memdomain_system_transfer);
	return inlay_memdomain_set_memzero(d, inlay_memdomain_system_memzero);
}

#endif
