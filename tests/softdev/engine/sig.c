/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sig.c: block signatures: keys whose data have a signature behind every block, in memory, on the
 * wire or in both.
 *
 *   memory   | block | signature | block | signature | ...
 *   raw      | block | block | ...
 *   wire     | block | signature | ...         its own size of block, its own signature
 *
 * What leaves through such a key is read from memory, checked and stripped as memory has it, and
 * gets what the wire has; what arrives goes the other way. T10-DIF is 8 bytes, big-endian: guard
 * (CRC-16 or IP checksum), application tag, reference tag. A CRC is 4 bytes, little-endian, begins
 * with its seed and ends inverted. In masks, bit 7 is the most significant byte of a signature's
 * value.
 *
 * Lengths. Of a gather or scatter entry they count memory's bytes, or raw ones where only memory
 * has signatures; of a remote access, the wire's. Accesses are made of whole blocks.
 *
 * A wrong signature stops nothing. The first one after the key was told to look again (the error
 * bit of a UMR) is told of by a CQE of its own, in front of that of the transfer; and the PSV of
 * that domain must be set again before the key's next use.
 */
#include <stdlib.h>
#include <string.h>
#include "eng.h"

#define SIZE_BLOCK 2            /* of a BSF */
#define MAX_WIRE (16u << 20)    /* bytes of a message */

/* ---- values ---- */

static uint16_t crc16(uint16_t crc, const uint8_t *p, uint64_t n)
{
	for (; n; n--, p++) {
		crc ^= *p << 8;
		for (int i = 0; i < 8; i++)
			crc = crc & 0x8000 ? crc << 1 ^ 0x8bb7 : crc << 1;
	}
	return crc;
}

static uint32_t crc32(uint32_t crc, const uint8_t *p, uint64_t n, uint32_t poly)
{
	for (; n; n--, p++) {
		crc ^= *p;
		for (int i = 0; i < 8; i++)
			crc = crc & 1 ? crc >> 1 ^ poly : crc >> 1;
	}
	return ~crc;
}

static uint16_t checksum(uint16_t seed, const uint8_t *p, uint64_t n)
{
	uint64_t sum = seed;

	for (; n > 1; n -= 2, p += 2)
		sum += p[0] << 8 | p[1];
	if (n)
		sum += *p << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* The signature of block i, left-aligned */
static uint64_t value_of(const struct sd_sig_domain *d, const uint8_t *block, uint64_t i)
{
	uint16_t guard;

	switch (d->kind) {
	case SD_SIG_CRC32:
		return (uint64_t)crc32(d->seed, block, d->block, 0xedb88320) << 32;
	case SD_SIG_CRC32C:
		return (uint64_t)crc32(d->seed, block, d->block, 0x82f63b78) << 32;
	default:
		guard = d->kind == SD_SIG_DIF_CRC ? crc16(d->seed, block, d->block) : checksum(d->seed, block, d->block);
		return (uint64_t)guard << 48 | (uint64_t)d->app_tag << 32 | (uint32_t)(d->ref_tag + (d->count ? i : 0));
	}
}

static unsigned sig_bytes(const struct sd_sig_domain *d)
{
	return !d->kind ? 0 : d->kind <= SD_SIG_CRC32C ? 4 : 8;
}

static void put(const struct sd_sig_domain *d, uint64_t v, uint8_t *to)
{
	uint32_t crc = htole32(v >> 32);
	uint64_t dif = htobe64(v);

	if (d->kind <= SD_SIG_CRC32C)
		memcpy(to, &crc, 4);
	else
		memcpy(to, &dif, 8);
}

static uint64_t get(const struct sd_sig_domain *d, const uint8_t *from)
{
	uint32_t crc;
	uint64_t dif;

	if (d->kind <= SD_SIG_CRC32C) {
		memcpy(&crc, from, 4);
		return (uint64_t)le32toh(crc) << 32;
	}
	memcpy(&dif, from, 8);
	return be64toh(dif);
}

static uint64_t bytes_of(uint8_t mask)
{
	uint64_t v = 0;

	for (int i = 0; i < 8; i++)
		v |= mask >> i & 1 ? 0xffull << 8 * i : 0;
	return v;
}

/* ---- what a BSF says ---- */

static bool domain(const uint8_t *bsf, bool wire, uint8_t selector, struct sd_sig_domain *d, uint32_t *psv)
{
	static const uint32_t sizes[] = { 0, 512, 520, 4096, 4160, 0, 4048 };
	const uint8_t *inl = bsf + (wire ? 32 : 48);
	uint32_t be;

	memcpy(&be, bsf + (wire ? 8 : 12), 4);
	*psv = be32toh(be) & 0xffffff;
	if (selector > 6 || !sizes[selector])
		return false;
	d->block = sizes[selector];
	d->escape = 0;
	d->count = false;
	switch (be32toh(be) >> 24) {
	case 0x22: case 0x23:
		d->kind = SD_SIG_CRC32;
		break;
	case 0x42: case 0x43:
		d->kind = SD_SIG_CRC32C;
		break;
	case 0:
		/* Valid, refreshed, repeated; a known guard; all bits of the application tag */
		if (inl[0] != 0xc0 || inl[1] || (inl[8] != 1 && inl[8] != 2) || (inl[9] & ~8) != 0x80 || inl[13] & ~0x43 ||
		    (inl[13] & 3) == 3)
			return false;
		d->kind = inl[8] == 1 ? SD_SIG_DIF_CRC : SD_SIG_DIF_SUM;
		d->seed = inl[9] & 8 ? 0xffff : 0;
		d->app_tag = inl[2] << 8 | inl[3];
		d->ref_tag = (uint32_t)inl[4] << 24 | inl[5] << 16 | inl[6] << 8 | inl[7];
		d->app_mask = inl[14] << 8 | inl[15];
		d->count = inl[13] & 0x40;
		d->escape = inl[13] & 3;
		return true;
	default:
		return false;
	}
	d->seed = be32toh(be) >> 24 & 1 ? 0 : 0xffffffff;
	return true;
}

/* false: not one that this device knows. Transactions and encryption are not claimed */
bool sig_parse(struct sd_pd *pd, const uint8_t *bsf, struct sd_sig *to)
{
	struct sd_sig s = { .room = true, .valid = true, .check = bsf[1] };
	bool same = bsf[0] & 0x10, mem = bsf[3], wire = same || bsf[2];
	struct sd_psv *psv;

	if (bsf[0] >> 6 != SIZE_BLOCK || bsf[0] & 0x2f || (!mem && !wire) || (same && !mem))
		return false;
	for (int i = 16; i < 32; i++)
		if (bsf[i])
			return false;
	if (mem && !domain(bsf, false, bsf[3], &s.memory, &s.psv[0]))
		return false;
	if (wire && !domain(bsf, true, same ? bsf[3] : bsf[2], &s.wire, &s.psv[1]))
		return false;
	/* CRCs that differ in their seeds alone are copied, if it is asked for; a CRC and T10-DIF never */
	if (same && sig_bytes(&s.memory) != sig_bytes(&s.wire))
		return false;
	s.copy = same ? bsf[2] : 0;
	for (int i = 0; i < 2; i++) {
		psv = (i ? wire : mem) ? sd_psv_find(s.psv[i]) : NULL;
		if ((i ? wire : mem) && (!psv || psv->pd != pd))
			return false;
	}
	s.enabled = to->enabled;
	s.errors = to->errors;
	s.armed = to->armed;
	*to = s;
	return true;
}

uint8_t sig_set_psv(struct rcq *q, const uint8_t *at, const uint8_t *end)
{
	struct sd_psv *psv;
	uint32_t w[2];

	if (end - at != 16)
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	memcpy(w, at, sizeof(w));
	psv = sd_psv_find(be32toh(w[0]));
	if (!psv || psv->pd != q->qp->pd || w[1])
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	psv->ready = true;
	return 0;
}

/* ---- access ---- */

static struct sd_mr *signed_key(const struct sd_qp *qp, uint32_t key, bool remote)
{
	struct sd_mr *mr = sd_mr_find(key, remote);

	return mr && mr->kind == SD_KEY_KLM && mr->sig.enabled && mr->pd == qp->pd ? mr : NULL;
}

bool sig_in(const struct sd_qp *qp, const struct seglist *l, bool remote)
{
	for (unsigned i = 0; i < l->n; i++)
		if (!l->s[i].inl && signed_key(qp, l->s[i].key, remote))
			return true;
	return false;
}

/* Bytes that blocks take in a domain; blocks of bytes: false where they are not whole */
static uint64_t with(const struct sd_sig_domain *d, uint64_t raw)
{
	return d->kind ? raw / d->block * (d->block + sig_bytes(d)) : raw;
}

static bool without(const struct sd_sig_domain *d, uint64_t bytes, uint64_t *raw)
{
	uint64_t stride = d->kind ? d->block + sig_bytes(d) : 1;

	*raw = bytes / stride * (d->kind ? d->block : 1);
	return !(bytes % stride);
}

/* An access in raw bytes. wire: len is what the wire has, addr still as the access counts */
static bool raw_of(const struct sd_mr *mr, bool remote, bool wire, uint64_t addr, uint64_t len, uint64_t *off, uint64_t *bytes)
{
	static const struct sd_sig_domain none;
	const struct sd_sig *s = &mr->sig;
	const struct sd_sig_domain *count = remote ? &s->wire : s->wire.kind ? &s->memory : &none;

	if (!s->valid || addr < mr->iova || !without(count, addr - mr->iova, off) || !without(wire ? &s->wire : count, len, bytes))
		return false;
	for (int i = 0; i < 2; i++) {
		const struct sd_sig_domain *d = i ? &s->wire : &s->memory;

		if (d->kind && (*off % d->block || *bytes % d->block || !sd_psv_find(s->psv[i]) || !sd_psv_find(s->psv[i])->ready))
			return false;
	}
	return true;
}

/* What a list is on the wire; false: not whole blocks, or nothing that can be accessed */
bool sig_wire(const struct sd_qp *qp, const struct seglist *l, bool remote, uint64_t *total)
{
	*total = 0;
	for (unsigned i = 0; i < l->n; i++) {
		struct sd_mr *mr = l->s[i].inl ? NULL : signed_key(qp, l->s[i].key, remote);
		uint64_t off, raw;

		if (!mr)
			*total += l->s[i].len;
		else if (raw_of(mr, remote, false, l->s[i].addr, l->s[i].len, &off, &raw))
			*total += with(&mr->sig.wire, raw);
		else
			return false;
	}
	return *total <= MAX_WIRE;
}

struct sig_cqe {
	uint8_t rsvd0[16];
	uint32_t expected_sig, actual_sig, expected_ref, actual_ref;
	uint16_t syndrome;
	uint8_t type, domain;
	uint32_t mkey;
	uint64_t offset;
	uint8_t rsvd1[8];
	uint32_t qpn;
	uint8_t rsvd2[3];
	uint8_t op_own;
};

_Static_assert(sizeof(struct sig_cqe) == sizeof(struct mlx5_cqe64) && offsetof(struct sig_cqe, mkey) == 36 &&
	       offsetof(struct sig_cqe, qpn) == 56, "a signature error's CQE");

static void wrong(struct rcq *q, struct sd_mr *mr, bool remote, bool receive, bool wire, uint64_t i, uint64_t found, uint64_t meant)
{
	const struct sd_sig_domain *d = wire ? &mr->sig.wire : &mr->sig.memory;
	uint64_t bad = (found ^ meant) & bytes_of(mr->sig.check);
	struct sd_psv *psv = sd_psv_find(mr->sig.psv[wire]);
	struct sig_cqe c = {
		.expected_sig = htobe32(found >> 32), .actual_sig = htobe32(meant >> 32), .expected_ref = htobe32(found),
		.actual_ref = htobe32(meant), .domain = !wire, .mkey = htobe32(mr->key), .op_own = MLX5_CQE_SIG_ERR << 4,
		.offset = htobe64(i * (d->block + sig_bytes(d))), .qpn = htobe32(q->qp->qpn),
	};
	struct mlx5_cqe64 cqe;

	/* The first of the three alone */
	c.syndrome = htobe16(d->kind <= SD_SIG_CRC32C || bad >> 48 ? 1 << 13 : bad >> 32 ? 1 << 12 : 1 << 11);
	if (psv)
		psv->ready = false;
	if (!mr->sig.armed)
		return;
	mr->sig.armed = false;
	memcpy(&cqe, &c, sizeof(cqe));
	cqe_put(remote || receive ? q->qp->recv_cq : q->qp->send_cq, q, &cqe, NULL, false);
}

/* Checks block i of what comes in, and makes the signature of what goes out where it ends there */
static void check(struct rcq *q, struct sd_mr *mr, bool remote, bool receive, bool wire, uint64_t i, const uint8_t *block)
{
	const struct sd_sig_domain *d = wire ? &mr->sig.wire : &mr->sig.memory;
	uint64_t found = get(d, block + d->block), meant = value_of(d, block, i), mask = bytes_of(mr->sig.check);

	if (d->kind > SD_SIG_CRC32C) {
		if (d->escape && (found >> 32 & 0xffff) == 0xffff && (d->escape == 1 || (uint32_t)found == 0xffffffff))
			return;
		mask &= ~((uint64_t)(uint16_t)~d->app_mask << 32);
	} else {
		mask &= 0xffffffffull << 32;
	}
	if ((found ^ meant) & mask)
		wrong(q, mr, remote, receive, wire, i, found, meant);
}

/* From one form to the other: raw bytes, from block `first` of each domain on */
static void convert(struct rcq *q, struct sd_mr *mr, bool remote, bool receive, uint64_t off, uint64_t raw, const uint8_t *from, uint8_t *to)
{
	bool from_wire = receive;
	const struct sd_sig_domain *in = from_wire ? &mr->sig.wire : &mr->sig.memory;
	const struct sd_sig_domain *out = from_wire ? &mr->sig.memory : &mr->sig.wire;
	unsigned n = sig_bytes(in), m = sig_bytes(out);
	uint64_t copied = in->kind && out->kind ? bytes_of(mr->sig.copy) : 0, i, k;
	uint8_t *plain = malloc(raw ? raw : 1);

	if (!plain)
		return;
	for (i = 0, k = 0; k < raw; i++) {
		uint64_t size = in->kind ? in->block : raw;

		if (in->kind)
			check(q, mr, remote, receive, from_wire, off / in->block + i, from + i * (size + n));
		memcpy(plain + k, from + i * (size + n), size);
		k += size;
	}
	for (i = 0, k = 0; k < raw; i++) {
		uint64_t size = out->kind ? out->block : raw, v;

		memcpy(to + i * (size + m), plain + k, size);
		if (out->kind) {
			v = value_of(out, plain + k, off / out->block + i);
			if (copied)
				v = (v & ~copied) | (get(in, from + i * (size + n) + size) & copied);
			put(out, v, to + i * (size + m) + size);
		}
		k += size;
	}
	free(plain);
}

/* A list's bytes to or from the wire; wire bytes in all. The syndrome's side: MEM_SRC, MEM_DST */
static int all(struct rcq *q, const struct seglist *l, bool remote, bool receive, uint8_t *buf, uint64_t len)
{
	unsigned access = receive ? (remote ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_LOCAL_WRITE) : remote ? IBV_ACCESS_REMOTE_READ : 0;
	static struct iovec v[ENG_IOVS];
	int bad = receive ? MEM_DST : MEM_SRC;

	for (unsigned i = 0, n; i < l->n && len; i++) {
		const struct seg *s = &l->s[i];
		struct sd_mr *mr = s->inl ? NULL : signed_key(q->qp, s->key, remote);
		uint64_t part = s->len < len ? s->len : len, off, raw, memory;
		struct iovec b = { buf, part };
		uint8_t *bytes;
		int err;

		if (s->inl) {
			memcpy(buf, s->inl, part);
		} else if (!mr) {
			if (!mem_pieces(q->qp, s->key, s->addr, part, access, v, &n) ||
			    (receive ? mem_copy(v, n, &b, 1, part) : mem_copy(&b, 1, v, n, part)) != MEM_OK)
				return bad;
		} else {
			if (!raw_of(mr, remote, false, s->addr, s->len, &off, &raw))
				return bad;
			part = with(&mr->sig.wire, raw);
			if (part > len) {
				part = len;
				if (!raw_of(mr, remote, true, s->addr, part, &off, &raw))
					return bad;
			}
			memory = with(&mr->sig.memory, raw);
			if (!mem_pieces_plain(q->qp, s->key, remote, mr->iova + with(&mr->sig.memory, off), memory, access, v, &n))
				return bad;
			bytes = malloc(memory ? memory : 1);
			b = (struct iovec){ bytes, memory };
			err = !bytes ? bad : receive ? MEM_OK : mem_copy(&b, 1, v, n, memory);
			if (err == MEM_OK)
				convert(q, mr, remote, receive, off, raw, receive ? buf : bytes, receive ? bytes : buf);
			if (err == MEM_OK && receive)
				err = mem_copy(v, n, &b, 1, memory);
			free(bytes);
			if (err != MEM_OK)
				return bad;
		}
		buf += part;
		len -= part;
	}
	return len ? bad : MEM_OK;
}

uint8_t *sig_stage(struct rcq *q, uint64_t len)
{
	uint8_t *p = len <= MAX_WIRE ? realloc(q->stage, len ? len : 1) : NULL;

	if (p)
		q->stage = p;
	return p;
}

const uint8_t *sig_read(struct rcq *q, const struct seglist *l)
{
	static uint8_t *buf;
	uint64_t total;
	uint8_t *p = sig_wire(q->qp, l, true, &total) && total == l->total ? realloc(buf, total ? total : 1) : NULL;

	if (!p)
		return NULL;
	buf = p;
	return all(q, l, true, false, buf, total) == MEM_OK ? buf : NULL;
}

int sig_gather(struct rcq *q, const struct seglist *l, bool remote, uint8_t *to, uint64_t len)
{
	return all(q, l, remote, false, to, len);
}

int sig_scatter(struct rcq *q, const struct seglist *l, bool remote, uint8_t *from, uint64_t len)
{
	return all(q, l, remote, true, from, len);
}
