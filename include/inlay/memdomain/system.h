/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/memdomain/system.h: callbacks for a domain of this process's memory: the CPU does the work.
 *
 *   inlay_memdomain_system_attach(inlay_memdomain_system(&reg));     or a domain of your own
 *   inlay_memdomain_pull(d, &copy);
 *
 *   src_iov   |-------a-------|--b--|----------c----------|          all of these bytes are copied
 *   dst_iov   |--1--|----2----|---------3---------|----4----|.....|  further ones do not change
 *
 * Invariants:
 *   - An operation calls done(arg, 0) before it returns 0.
 *   - An operation returns -EINVAL, and copies nothing, when the destination is shorter than the
 *     source, a sum of lengths overflows, or a piece with bytes is at address 0.
 *   - Source and destination may not overlap, unless each byte is copied onto itself.
 *
 * Threads: any number, on different memory.
 */
#ifndef INLAY_MEMDOMAIN_SYSTEM_H
#define INLAY_MEMDOMAIN_SYSTEM_H

#include <inlay/base.h>
#include <inlay/memdomain/domain.h>

#define INLAY_MEMDOMAIN_STRING_ 1024u /* bytes: from here on, x86-64's string instruction is faster */

/* ---- Data path ---- */

INLAY_FN void inlay_memdomain_move_(uint8_t *to, const uint8_t *from, size_t len)
{
#if defined(__x86_64__) && !defined(__CUDA_ARCH__)
	if (len >= INLAY_MEMDOMAIN_STRING_) {
		__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(len) : : "memory");
		return;
	}
#endif
	inlay_copy(to, from, len);
}

INLAY_FN void inlay_memdomain_clear_(uint8_t *at, size_t len)
{
	static const uint8_t zero[64] = {0};

	for (; len > sizeof(zero); at += sizeof(zero), len -= sizeof(zero)) {
		inlay_copy(at, zero, sizeof(zero));
		__asm__ volatile("" ::: "memory"); /* keeps the compiler from calling memset */
	}
	inlay_copy(at, zero, len);
}

/*
 * Pull, push and transfer. A transfer copies the pieces of its translation, which must be to d.
 * Without one, it copies from this process's memory, or else returns what the source's pull
 * returns.
 */
INLAY_FN int inlay_memdomain_system_copy_(struct inlay_memdomain *d, const struct inlay_memdomain_copy *copy)
{
	const struct iovec *src, *dst = copy->dst_iov;
	size_t left, n, src_at = 0, dst_at = 0;

	if (!copy->translation && copy->src && !__atomic_load_n(&copy->src->host, __ATOMIC_RELAXED))
		return inlay_memdomain_pull(copy->src, copy);
	if (INLAY_UNLIKELY(inlay_memdomain_source_(d, copy, 1, &src, &left)))
		return -EINVAL;
	for (; left; left -= n, src_at += n, dst_at += n) {
		for (; src_at == src->iov_len; src_at = 0)
			src++;
		for (; dst_at == dst->iov_len; dst_at = 0)
			dst++;
		n = src->iov_len - src_at;
		if (n > dst->iov_len - dst_at)
			n = dst->iov_len - dst_at;
		inlay_memdomain_move_((uint8_t *)dst->iov_base + dst_at, (const uint8_t *)src->iov_base + src_at, n);
	}
	if (copy->done)
		copy->done(copy->arg, 0);
	return 0;
}

INLAY_FN int inlay_memdomain_system_memzero_(struct inlay_memdomain *d, void *ctx, const struct iovec *iov,
					     uint32_t iovcnt, inlay_memdomain_done done, void *arg)
{
	size_t total;

	(void)d;
	(void)ctx;
	if (INLAY_UNLIKELY(inlay_memdomain_total_(iov, iovcnt, 1, &total)))
		return -EINVAL;
	for (; iovcnt; iov++, iovcnt--)
		inlay_memdomain_clear_((uint8_t *)iov->iov_base, iov->iov_len);
	if (done)
		done(arg, 0);
	return 0;
}

/* Translates to a domain of this process's memory, at the same address; -ENOTSUP for any other. */
INLAY_FN int inlay_memdomain_system_translate_(struct inlay_memdomain *src, void *src_ctx, struct inlay_memdomain *dst,
					       struct inlay_memdomain_translation_ctx *dst_ctx, void *addr, size_t len,
					       struct inlay_memdomain_result *result)
{
	(void)src;
	(void)src_ctx;
	(void)dst_ctx;
	if (!__atomic_load_n(&dst->host, __ATOMIC_RELAXED))
		return -ENOTSUP;
	inlay_memdomain_describe_(result, dst, addr, len, 0, 0);
	return 0;
}

/* ---- Set-up ---- */

/*
 * Makes d a domain of this process's memory: sets all callbacks except invalidate. Returns 0, or
 * -EINVAL for NULL.
 */
INLAY_COLD int inlay_memdomain_system_attach(struct inlay_memdomain *d)
{
	if (!d)
		return -EINVAL;
	__atomic_store_n(&d->host, 1, __ATOMIC_RELAXED);
	inlay_memdomain_set_translation(d, inlay_memdomain_system_translate_);
	inlay_memdomain_set_pull(d, inlay_memdomain_system_copy_);
	inlay_memdomain_set_push(d, inlay_memdomain_system_copy_);
	inlay_memdomain_set_transfer(d, inlay_memdomain_system_copy_);
	return inlay_memdomain_set_memzero(d, inlay_memdomain_system_memzero_);
}

#endif
