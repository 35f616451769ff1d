/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mem.c: the memory of the program as the device sees it. A key names a range and its rights. The
 * pages may still be gone, since nothing pins them, so the kernel makes every copy:
 * process_vm_readv() on our own process returns an error where a load would raise SIGSEGV. It also
 * keeps sanitizers from taking a DMA for a data race.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "eng.h"

/* ---- keys ---- */

#define MAX_ROUNDS 65536u               /* of a repeated list, in one access */
#define DEPTH 4                         /* of indirect keys in indirect keys */

struct walk {
	struct sd_pd *pd;               /* NULL: beyond an alias, where the PDs of the other function count */
	uint32_t qpn;
	bool plain;                     /* signatures do not count */
	struct iovec *v;                /* NULL: only asks */
	unsigned n;
};

static bool add(struct walk *w, uint8_t *p, uint64_t len)
{
	struct iovec *last = w->v && w->n ? &w->v[w->n - 1] : NULL;

	if (!w->v || !len)
		return true;
	if (last && (uint8_t *)last->iov_base + last->iov_len == p) {
		last->iov_len += len;
		return true;
	}
	if (w->n == ENG_IOVS)
		return false;
	w->v[w->n++] = (struct iovec){ p, len };
	return true;
}

static bool walk(struct walk *w, uint32_t key, uint64_t addr, uint64_t len, unsigned access, unsigned depth);

/*
 * What an entry of a list names is written to or read locally, whatever rights the list's own key
 * has given
 */
static bool walk_list(struct walk *w, const struct sd_mr *mr, uint64_t off, uint64_t len, unsigned access, unsigned depth)
{
	const unsigned writes = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	unsigned inner = access & writes ? IBV_ACCESS_LOCAL_WRITE : 0;
	uint64_t round = 0;
	uint32_t i = 0;

	if (!depth)
		return false;
	if (mr->round) {
		round = off / mr->round;
		off %= mr->round;
		/* So many pieces would fit into no copy, and to count them takes long */
		if (round >= mr->rounds || len / mr->round > MAX_ROUNDS)
			return !len;
	}
	if (mr->kind == SD_KEY_KSM) {
		if (off >> mr->log_entity >= mr->entries)
			return !len;
		i = off >> mr->log_entity;
		off &= (1ull << mr->log_entity) - 1;
	}
	for (; len && i < mr->entries; i++) {
		const struct sd_klm *e = &mr->list[i];
		uint64_t size = mr->kind == SD_KEY_KSM ? 1ull << mr->log_entity : e->length, part;

		part = off >= size ? 0 : size - off < len ? size - off : len;
		if (part && !walk(w, e->key, e->addr + round * e->stride + off, part, inner, depth - 1))
			return false;
		len -= part;
		off -= part ? off : size;
		if (mr->round && i + 1 == mr->entries && ++round < mr->rounds)
			i = -1;
	}
	return !len;
}

static bool walk(struct walk *w, uint32_t key, uint64_t addr, uint64_t len, unsigned access, unsigned depth)
{
	struct sd_mr *mr = sd_mr_find(key, access & MEM_REMOTE);

	if (!mr || mr->kind == SD_KEY_FREE || (w->pd && mr->pd != w->pd))
		return false;
	if (mr->kind == SD_KEY_ALIAS) {
		struct walk beyond = { .v = w->v, .n = w->n };
		struct sd_mr *to = sd_mr_find(mr->alias_key, true);

		if (!w->pd || !to || to->serial != mr->alias_serial)
			return false;
		beyond.pd = to->pd;
		if (!walk(&beyond, mr->alias_key, addr, len, access, depth))
			return false;
		w->n = beyond.n;
		return true;
	}
	/* Only sig.c reads and writes what has signatures */
	if (mr->sig.enabled && !(w->plain && depth == DEPTH))
		return false;
	if (!mr->mw && mr->qpn && mr->qpn != w->qpn)
		return false;
	if ((mr->access & access) != access || (!(access & MEM_ALL) && mr->no_local_read))
		return false;
	/* A window is for the other side only, while it is bound, and one of type 2 only through its QP */
	if (mr->mw && (!mr->under || (mr->mw == 2 && mr->qpn != w->qpn)))
		return false;
	if (addr < mr->iova || addr - mr->iova > mr->length || len > mr->length - (addr - mr->iova))
		return false;
	if (mr->kind == SD_KEY_MTT)
		return add(w, mr->addr + (addr - mr->iova), len);
	return walk_list(w, mr, addr - mr->iova, len, access, depth);
}

bool mem_ok(struct sd_qp *qp, uint32_t key, uint64_t addr, uint64_t len, unsigned access)
{
	struct walk w = { .pd = qp->pd, .qpn = qp->qpn };

	return walk(&w, key, addr, len, access, DEPTH);
}

static bool more_pieces(struct sd_qp *qp, uint32_t key, uint64_t addr, uint64_t len, unsigned access, struct iovec *v, unsigned *n)
{
	struct walk w = { .pd = qp->pd, .qpn = qp->qpn, .v = v, .n = *n };

	if (!walk(&w, key, addr, len, access, DEPTH))
		return false;
	*n = w.n;
	return true;
}

bool mem_pieces_plain(struct sd_qp *qp, uint32_t key, bool remote, uint64_t addr, uint64_t len, unsigned access, struct iovec *v, unsigned *n)
{
	struct walk w = { .pd = qp->pd, .qpn = qp->qpn, .plain = true, .v = v };
	bool ok = remote == !!(access & MEM_REMOTE) && walk(&w, key, addr, len, access, DEPTH);

	*n = w.n;
	return ok;
}

bool mem_pieces(struct sd_qp *qp, uint32_t key, uint64_t addr, uint64_t len, unsigned access, struct iovec *v, unsigned *n)
{
	*n = 0;
	return more_pieces(qp, key, addr, len, access, v, n);
}

bool mem_segs_ok(struct sd_qp *qp, const struct seglist *l, unsigned access)
{
	unsigned i;

	for (i = 0; i < l->n; i++)
		if (!l->s[i].inl && !mem_ok(qp, l->s[i].key, l->s[i].addr, l->s[i].len, access))
			return false;
	return true;
}

bool mem_vec(struct sd_qp *qp, const struct seglist *l, uint64_t off, uint64_t len, unsigned access, struct iovec *v, unsigned *n)
{
	unsigned i;

	*n = 0;
	for (i = 0; i < l->n && len; i++) {
		const struct seg *s = &l->s[i];
		uint64_t part;

		if (off >= s->len) {
			off -= s->len;
			continue;
		}
		part = s->len - off < len ? s->len - off : len;
		if (s->inl) {
			if (*n == ENG_IOVS)
				return false;
			v[(*n)++] = (struct iovec){ (uint8_t *)s->inl + off, part };
		} else if (!more_pieces(qp, s->key, s->addr + off, part, access, v, n)) {
			return false;
		}
		len -= part;
		off = 0;
	}
	return len == 0;
}

/* ---- copies ---- */

static ssize_t self_copy(const struct iovec *local, unsigned nl, const struct iovec *remote, unsigned nr, bool write)
{
	return syscall(write ? SYS_process_vm_writev : SYS_process_vm_readv, (long)sd_self, local, (long)nl, remote, (long)nr, 0L);
}

/*
 * Piece by piece through a buffer: finds out which side failed, or finishes what the single call
 * could not
 */
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
 * A write's last byte lands last, as adapters do and as programs rely on that spin on it; first where
 * nothing is promised, so that who relies on it is found out. The kernel's copy promises no order
 * within itself, so that byte is a copy of its own.
 */
int mem_copy_in_order(bool last, const struct iovec *dst, unsigned nd, const struct iovec *src, unsigned ns, uint64_t len)
{
	struct iovec body[ENG_IOVS], d, s;
	const struct iovec *at = src;
	uint64_t left = --len;
	unsigned n = 0;
	int err = MEM_OK;

	for (; n < nd && left >= dst[n].iov_len; n++) {
		body[n] = dst[n];
		left -= dst[n].iov_len;
	}
	d = (struct iovec){ (uint8_t *)dst[n].iov_base + left, 1 };
	body[n] = (struct iovec){ dst[n].iov_base, left };
	if (last)
		err = mem_copy(body, n + 1, src, ns, len);
	if (err != MEM_OK)
		return err;
	for (left = len; left >= at->iov_len; at++)
		left -= at->iov_len;
	s = (struct iovec){ (char *)at->iov_base + left, 1 };
	err = mem_copy(&d, 1, &s, 1, 1);
	return err == MEM_OK && !last ? mem_copy(body, n + 1, src, ns, len) : err;
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

/* Is the word there, and may it be written? */
static bool word_ok(uint8_t *p, unsigned size, void *value)
{
	long page = sysconf(_SC_PAGESIZE);
	struct iovec b = { value, size }, r = { p, size };

	/* The read shows that the page is there; that it can be written is asked where the kernel knows how (5.14) */
	if (self_copy(&b, 1, &r, 1, false) != (ssize_t)size)
		return false;
#ifdef MADV_POPULATE_WRITE
	{
		static int known = -1;
		long probe;

		if (known < 0)
			known = madvise((void *)((uintptr_t)&probe & -(uintptr_t)page), page, MADV_POPULATE_WRITE) == 0;
		if (known && madvise((void *)((uintptr_t)p & -(uintptr_t)page), page, MADV_POPULATE_WRITE) != 0)
			return false;
	}
#endif
	return true;
}

int mem_atomic(uint8_t *p, bool cs, uint64_t swap_add, uint64_t compare, uint64_t *old)
{
	uint64_t *w = (uint64_t *)(void *)p;

	if (!word_ok(p, 8, old))
		return -1;
	/* One instruction, so that the program's own atomics see it whole; a NIC promises that only towards other NIC atomics */
	if (cs) {
		*old = compare;
		__atomic_compare_exchange_n(w, old, swap_add, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	} else {
		*old = __atomic_fetch_add(w, swap_add, __ATOMIC_SEQ_CST);
	}
	return 0;
}

/* ---- extended atomics ---- */

/*
 * What becomes of v, n words of `bits` bits each, the first the most significant. CS: the bits of
 * the swap mask change if v equals compare in all bits of the compare mask. FA: a bit of the
 * boundary is the last of its field, and nothing is carried past it.
 */
static void masked(uint64_t *v, unsigned n, unsigned bits, bool cs, const uint64_t *operand)
{
	const uint64_t *swap = operand, *compare = operand + n, *swap_mask = compare + n, *compare_mask = swap_mask + n;
	const uint64_t *add = operand, *boundary = operand + n;
	unsigned i, carry = 0;

	for (i = 0; cs && i < n; i++)
		if ((v[i] ^ compare[i]) & compare_mask[i])
			return;
	for (i = 0; cs && i < n; i++)
		v[i] = (v[i] & ~swap_mask[i]) | (swap[i] & swap_mask[i]);
	for (i = n; !cs && i-- > 0;) {
		uint64_t sum = (v[i] & ~boundary[i]) + carry, top = 1ull << (bits - 1), all = top | (top - 1);
		bool over = sum < carry;

		sum += add[i] & ~boundary[i];
		over |= bits == 64 ? sum < (add[i] & ~boundary[i]) : sum > all;
		v[i] = (sum ^ ((v[i] ^ add[i]) & boundary[i])) & all;
		carry = over;
	}
}

int mem_masked(uint8_t *p, bool cs, unsigned size, const uint8_t *operands, uint64_t old[SD_MAX_ATOMIC / 8])
{
	const unsigned n = size > 8 ? size / 8 : 1, count = cs ? 4 : 2;
	uint64_t operand[4 * SD_MAX_ATOMIC / 8], v[SD_MAX_ATOMIC / 8];
	struct iovec b = { v, size }, w = { p, size };
	uint32_t half, was;
	unsigned i;

	if (!word_ok(p, size, v))
		return -1;
	for (i = 0; i < count * n; i++) {
		if (size == 4) {
			memcpy(&half, operands + 4 * i, 4);
			operand[i] = be32toh(half);
		} else {
			memcpy(&operand[i], operands + 8 * i, 8);
			operand[i] = be64toh(operand[i]);
		}
	}
	/* All but 8 bytes are answered in big-endian order: atomic_req_8B_endianness_mode is about 8 alone */
	if (size == 4) {
		was = __atomic_load_n((uint32_t *)(void *)p, __ATOMIC_SEQ_CST);
		do {
			v[0] = was;
			masked(v, 1, 32, cs, operand);
		} while (!__atomic_compare_exchange_n((uint32_t *)(void *)p, &was, (uint32_t)v[0], false, __ATOMIC_SEQ_CST,
						      __ATOMIC_SEQ_CST));
		half = htobe32(was);
		memcpy(old, &half, 4);
	} else if (size == 8) {
		old[0] = __atomic_load_n((uint64_t *)(void *)p, __ATOMIC_SEQ_CST);
		do {
			v[0] = old[0];
			masked(v, 1, 64, cs, operand);
		} while (!__atomic_compare_exchange_n((uint64_t *)(void *)p, &old[0], v[0], false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
	} else {
		/* Atomic towards the device's own: all of them are done under sd_lock */
		for (i = 0; i < n; i++)
			old[i] = htobe64(v[i]);
		masked(v, n, 64, cs, operand);
		if (self_copy(&b, 1, &w, 1, true) != (ssize_t)size)
			return -1;
	}
	return 0;
}
