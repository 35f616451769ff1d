/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mem.c: the program's memory as a device sees it. A key names a range and its rights; the pages behind it may be gone all the
 * same, since nothing pins them here, so every copy is the kernel's: process_vm_readv() on ourselves reports what would be a
 * SIGSEGV. (It also keeps sanitizers from taking a DMA for a data race.)
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "eng.h"

uint8_t *mem_check(struct sd_qp *qp, uint32_t key, uint64_t addr, uint64_t len, unsigned access)
{
	struct sd_mr *mr = sd_mr_find(key);

	if (!mr || mr->pd != qp->pd || (mr->access & access) != access)
		return NULL;
	/* A window is for the other side only, while it is bound, and one of type 2 only through its QP */
	if (mr->mw && (!(access & MEM_REMOTE) || !mr->under || (mr->mw == 2 && mr->qpn != qp->qpn)))
		return NULL;
	if (addr < mr->iova || addr - mr->iova > mr->length || len > mr->length - (addr - mr->iova))
		return NULL;
	return mr->addr + (addr - mr->iova);
}

bool mem_segs_ok(struct sd_qp *qp, const struct seglist *l, unsigned access)
{
	unsigned i;

	for (i = 0; i < l->n; i++)
		if (!l->s[i].inl && !mem_check(qp, l->s[i].key, l->s[i].addr, l->s[i].len, access))
			return false;
	return true;
}

bool mem_vec(struct sd_qp *qp, const struct seglist *l, uint64_t off, uint64_t len, unsigned access, struct iovec *v, unsigned *n)
{
	unsigned i, k = 0;

	for (i = 0; i < l->n && len; i++) {
		const struct seg *s = &l->s[i];
		uint64_t part;
		uint8_t *p;

		if (off >= s->len) {
			off -= s->len;
			continue;
		}
		part = s->len - off < len ? s->len - off : len;
		p = s->inl ? (uint8_t *)s->inl + off : mem_check(qp, s->key, s->addr + off, part, access);
		if (!p)
			return false;
		v[k].iov_base = p;
		v[k++].iov_len = part;
		len -= part;
		off = 0;
	}
	*n = k;
	return len == 0;
}

/* A pid that is ours also after a fork */
static ssize_t self_copy(const struct iovec *local, unsigned nl, const struct iovec *remote, unsigned nr, bool write)
{
	return syscall(write ? SYS_process_vm_writev : SYS_process_vm_readv, (long)getpid(), local, (long)nl, remote, (long)nr, 0L);
}

/* Piece by piece through a buffer: finds out which side failed, or finishes what the single call could not */
static int slow_copy(const struct iovec *dst, const struct iovec *src, uint64_t len)
{
	char buf[4096];
	uint64_t doff = 0, soff = 0;

	while (len) {
		struct iovec b, s, d;
		uint64_t part = sizeof buf;

		while (soff == src->iov_len)
			src++, soff = 0;
		while (doff == dst->iov_len)
			dst++, doff = 0;
		part = part < src->iov_len - soff ? part : src->iov_len - soff;
		part = part < dst->iov_len - doff ? part : dst->iov_len - doff;
		part = part < len ? part : len;
		b = (struct iovec){ buf, part };
		s = (struct iovec){ (char *)src->iov_base + soff, part };
		d = (struct iovec){ (char *)dst->iov_base + doff, part };
		if (self_copy(&b, 1, &s, 1, false) != (ssize_t)part)
			return MEM_SRC;
		if (self_copy(&b, 1, &d, 1, true) != (ssize_t)part)
			return MEM_DST;
		soff += part;
		doff += part;
		len -= part;
	}
	return MEM_OK;
}

int mem_copy(const struct iovec *dst, unsigned nd, const struct iovec *src, unsigned ns, uint64_t len)
{
	if (!len)
		return MEM_OK;
	if (self_copy(dst, nd, src, ns, false) == (ssize_t)len)
		return MEM_OK;
	return slow_copy(dst, src, len);
}

/*
 * A write's last byte lands last, as adapters do and as programs rely on that spin on it. The kernel's copy promises no order within
 * itself, so that byte is a copy of its own.
 */
int mem_copy_in_order(uint8_t *dst, const struct iovec *src, unsigned ns, uint64_t len)
{
	struct iovec d = { dst, len - 1 }, last;
	int err = mem_copy(&d, 1, src, ns, len - 1);

	if (err != MEM_OK)
		return err;
	for (len--; len >= src->iov_len; src++)
		len -= src->iov_len;
	d = (struct iovec){ dst + d.iov_len, 1 };
	last = (struct iovec){ (char *)src->iov_base + len, 1 };
	return mem_copy(&d, 1, &last, 1, 1);
}

const uint8_t *mem_spoil(const struct iovec *src, unsigned ns, uint64_t len)
{
	static uint8_t *copy;
	struct iovec d;

	if (!copy)
		copy = malloc(ENG_CHUNK_LOCAL);
	d = (struct iovec){ copy, len };
	if (!copy || len > ENG_CHUNK_LOCAL || mem_copy(&d, 1, src, ns, len) != MEM_OK)
		return NULL;
	if (len)
		copy[len / 2] ^= 0x10;
	return copy;
}

int mem_atomic(uint8_t *p, bool cs, uint64_t swap_add, uint64_t compare, uint64_t *old)
{
	long page = sysconf(_SC_PAGESIZE);
	struct iovec b = { old, 8 }, r = { p, 8 };
	uint64_t *w = (uint64_t *)(void *)p;

	/* The read shows that the page is there; that it can be written is asked where the kernel knows how (5.14) */
	if (self_copy(&b, 1, &r, 1, false) != 8)
		return -1;
#ifdef MADV_POPULATE_WRITE
	{
		static int known = -1;
		long probe;

		if (known < 0)
			known = madvise((void *)((uintptr_t)&probe & -(uintptr_t)page), page, MADV_POPULATE_WRITE) == 0;
		if (known && madvise((void *)((uintptr_t)p & -(uintptr_t)page), page, MADV_POPULATE_WRITE) != 0)
			return -1;
	}
#endif
	/* One instruction, so that the program's own atomics see it whole; a NIC promises that only towards other NIC atomics */
	if (cs) {
		*old = compare;
		__atomic_compare_exchange_n(w, old, swap_add, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	} else {
		*old = __atomic_fetch_add(w, swap_add, __ATOMIC_SEQ_CST);
	}
	return 0;
}
