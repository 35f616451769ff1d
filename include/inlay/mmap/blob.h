/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap/blob.h: a memory map in another process: what is exported, how it looks on the way, what is checked when it arrives.
 *
 *   One side                                                       The other
 *
 *   len = inlay_mmap_export_size(&map);
 *   inlay_mmap_export_rdma(&map, pd, blob, &len);  -- len bytes -->  size = inlay_mmap_import_size(blob, len);
 *                                                                  memory = aligned_alloc(64, size);
 *                                                                  inlay_mmap_create_from_export(&theirs, memory, size, pd, blob, len,
 *                                                                                                NULL);
 *                                                                  if (!inlay_mmap_remote(&theirs, raddr, n, INLAY_RDMA_WRITE, &rkey))
 *                                                                          inlay_post_write(&sq, raddr, rkey, ...);
 *
 * In DOCA a blob belongs to the map, which frees it. Here the caller gives the memory, and keeps the bytes as long as they are of use:
 * until the map is stopped. Then the blob is stale. A stale blob still imports, since nobody could see it, and a post to what it names ends
 * with a remote access error; the map's keys are gone. Exporting again gives the same bytes; for another device of the map, other keys.
 *
 * A blob, little-endian throughout
 *
 *   +0   magic        "inlaymap"
 *   +8   version      2    1
 *   +10  kind         2    1 RDMA, 2 PCI
 *   +12  length       4    bytes, from the magic to the checksum
 *   +16  permissions  4    what is granted on any of the ranges: INLAY_RDMA_READ | ...
 *   +20  ranges       4    how many, 1 at least
 *   +24  code bytes   4    0, or 16 .. 64
 *   +28  reserved     4    0
 *   +32  only PCI: vhca 4, reserved 4, access key 32: whose memory keys the other side makes aliases of, and the secret for it (pci.h)
 *   ...  for each range: start 8, bytes 8, rkey 4, permissions 4
 *        permissions: 2 read, 4 write, 8 atomic by RDMA; 16 read, 32 read and write over PCI. These numbers are the blob's own
 *   ...  code         a message authentication code of all before it, when both sides have a key
 *   ...  checksum     4    CRC-32C of all before it
 *
 * Only what is granted is inside: ranges without any RDMA permission are left out, local keys and local permissions too. Blobs name keys
 * that open memory: pass them through a channel that nobody reads.
 *
 * The checksum finds what went wrong by accident. Who must fear worse gives a key to both sides: inlay_mmap_set_mac before export, and
 * struct inlay_mmap_import at import. The function behind it is the caller's, of a library that he trusts; with OpenSSL it is
 *
 *   static int make(void *key, const void *data, size_t len, uint8_t *code)
 *   {
 *           return HMAC(EVP_sha256(), key, 32, data, len, code, NULL) ? 0 : -EIO;
 *   }
 *   struct inlay_mac mac = {make, key, 32};
 *
 * Either both sides have one or neither: a blob without a code is refused by who has a key, and one with a code by who has none. A code
 * does not tell whether the blob is fresh: put a nonce into what the key is made of where replays matter.
 *
 * What arrives is looked at in this order, and no pointer is formed before the lengths have been found right:
 *
 *   -EPROTO    shorter than any blob, another magic, another version
 *   -EINVAL    a length that is not the blob's, or not what its counts make
 *              (inlay_mmap_create_from_export looks at the memory that it was given here)
 *   -EBADMSG   the checksum; the code, or one where none should be, or none where one should be
 *   -EINVAL    unknown kinds or bits, a vhca of more than 16 bits, nothing granted, a range that is empty, overlaps another or goes beyond the end of the address space,
 *              or that grants what the head does not
 *
 * The blob may lie where the other side can write, in a ring that it fills by RDMA for instance: inlay_mmap_create_from_export copies it
 * first, and looks at, has authenticated and uses the copy. inlay_blob_check looks at the bytes in place: who goes on reading these copies
 * them himself.
 *
 * Threads: as map.h's set-up.
 * Sources: DOCA's documentation of doca_mmap (export and create_from_export); RFC 3720, appendix B.4 (CRC-32C and its examples).
 */
#ifndef INLAY_MMAP_BLOB_H
#define INLAY_MMAP_BLOB_H

#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/mmap/lookup.h>
#include <inlay/mmap/map.h>

#define INLAY_BLOB_VERSION 1u
#define INLAY_BLOB_HEAD 32u             /* bytes before what belongs to the kind */
#define INLAY_BLOB_PCI 40u              /* bytes of what belongs to PCI */
#define INLAY_BLOB_RANGE 24u            /* bytes of a range */

enum inlay_blob_kind {
	INLAY_BLOB_KIND_RDMA = 1,
	INLAY_BLOB_KIND_PCI = 2
};

/* The head of a blob, in host order */
struct inlay_blob {
	uint32_t kind;                  /* enum inlay_blob_kind */
	uint32_t permissions;
	uint32_t ranges;
	uint32_t code_bytes;
	uint32_t vhca;                  /* PCI */
	uint8_t access_key[32];         /* PCI */
};

/* What inlay_mmap_create_from_export may be told beside the blob. Zeroed: nothing. */
struct inlay_mmap_import {
	const struct inlay_mac *mac;    /* the code that the blob must carry; NULL: it must have none. Used during the call only */
	uint64_t user_data;             /* of the map */
};

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up: all of it
 */

/* ---- Bytes ---- */

INLAY_COLD void inlay_blob_put(uint8_t *at, uint64_t value, uint32_t bytes)
{
	uint32_t i;

	for (i = 0; i < bytes; i++)
		at[i] = (uint8_t)(value >> 8 * i);
}

INLAY_COLD uint64_t inlay_blob_get(const uint8_t *at, uint32_t bytes)
{
	uint64_t value = 0;
	uint32_t i;

	for (i = 0; i < bytes; i++)
		value |= (uint64_t)at[i] << 8 * i;
	return value;
}

/* Permissions as a blob has them, by their bit; no other is ever in one. */
static const uint32_t inlay_blob_access[6] = {0, INLAY_RDMA_READ, INLAY_RDMA_WRITE, INLAY_RDMA_ATOMIC, INLAY_PCI_READ_ONLY,
					      INLAY_PCI_READ_WRITE};

INLAY_COLD uint32_t inlay_blob_from_access(uint32_t access)
{
	uint32_t i, wire = 0;

	for (i = 1; i < 6; i++)
		wire |= access & inlay_blob_access[i] ? 1u << i : 0;
	return wire;
}

/* All ones for an unknown bit. */
INLAY_COLD uint32_t inlay_blob_to_access(uint32_t wire)
{
	uint32_t i, access = 0;

	for (i = 1; i < 6; i++)
		access |= wire >> i & 1 ? inlay_blob_access[i] : 0;
	return wire & ~0x3eu ? UINT32_MAX : access;
}

/* CRC-32C (Castagnoli), as iSCSI and the processors' instructions have it. */
INLAY_COLD uint32_t inlay_crc32c(const void *data, size_t len)
{
	const uint8_t *p = (const uint8_t *)data;
	uint32_t table[16], crc = 0xffffffffu, i, bit;
	size_t at;

	/* Of what four bits make */
	for (i = 0; i < 16; i++)
		for (table[i] = i, bit = 0; bit < 4; bit++)
			table[i] = table[i] >> 1 ^ (0x82f63b78u & (0u - (table[i] & 1)));
	for (at = 0; at < len; at++) {
		crc ^= p[at];
		crc = crc >> 4 ^ table[crc & 15];
		crc = crc >> 4 ^ table[crc & 15];
	}
	return ~crc;
}

/* ---- Writing ---- */

/* Where the ranges begin. */
INLAY_COLD uint32_t inlay_blob_ranges_at(uint32_t kind)
{
	return kind == INLAY_BLOB_KIND_PCI ? INLAY_BLOB_HEAD + INLAY_BLOB_PCI : INLAY_BLOB_HEAD;
}

/* Bytes of a whole blob. */
INLAY_COLD uint64_t inlay_blob_bytes(uint32_t kind, uint32_t ranges, uint32_t code_bytes)
{
	return inlay_blob_ranges_at(kind) + (uint64_t)ranges * INLAY_BLOB_RANGE + code_bytes + 4;
}

/* Writes the head, to inlay_blob_bytes() bytes of memory; the ranges and the seal are to follow. */
INLAY_COLD void inlay_blob_begin(uint8_t *blob, const struct inlay_blob *head)
{
	__builtin_memcpy(blob, "inlaymap", 8);
	inlay_blob_put(blob + 8, INLAY_BLOB_VERSION, 2);
	inlay_blob_put(blob + 10, head->kind, 2);
	inlay_blob_put(blob + 12, inlay_blob_bytes(head->kind, head->ranges, head->code_bytes), 4);
	inlay_blob_put(blob + 16, inlay_blob_from_access(head->permissions), 4);
	inlay_blob_put(blob + 20, head->ranges, 4);
	inlay_blob_put(blob + 24, head->code_bytes, 4);
	inlay_blob_put(blob + 28, 0, 4);
	if (head->kind == INLAY_BLOB_KIND_PCI) {
		inlay_blob_put(blob + 32, head->vhca, 4);
		inlay_blob_put(blob + 36, 0, 4);
		__builtin_memcpy(blob + 40, head->access_key, 32);
	}
}

/* Writes range i. */
INLAY_COLD void inlay_blob_set_range(uint8_t *blob, const struct inlay_blob *head, uint32_t i, const struct inlay_range *r)
{
	uint8_t *at = blob + inlay_blob_ranges_at(head->kind) + (uint64_t)i * INLAY_BLOB_RANGE;

	inlay_blob_put(at, r->start, 8);
	inlay_blob_put(at + 8, r->len, 8);
	inlay_blob_put(at + 16, r->rkey, 4);
	inlay_blob_put(at + 20, inlay_blob_from_access(r->access), 4);
}

/* Writes code and checksum. mac: NULL when head->code_bytes is 0. Returns 0, or what mac->make returned. */
INLAY_COLD int inlay_blob_seal(uint8_t *blob, const struct inlay_blob *head, const struct inlay_mac *mac)
{
	uint64_t end = inlay_blob_bytes(head->kind, head->ranges, head->code_bytes) - 4;
	int err = 0;

	if (mac)
		err = mac->make(mac->context, blob, (size_t)(end - head->code_bytes), blob + end - head->code_bytes);
	if (!err)
		inlay_blob_put(blob + end, inlay_crc32c(blob, (size_t)end), 4);
	return err;
}

/* ---- Reading ---- */

/* Takes the head apart, and sees to it that the lengths are right: all reading after this stays inside. Returns 0, -EPROTO or -EINVAL. */
INLAY_COLD int inlay_blob_head(struct inlay_blob *head, const uint8_t *blob, size_t len)
{
	if (len < INLAY_BLOB_HEAD + 4 || __builtin_memcmp(blob, "inlaymap", 8) || inlay_blob_get(blob + 8, 2) != INLAY_BLOB_VERSION)
		return -EPROTO;
	__builtin_memset(head, 0, sizeof(*head));
	head->kind = (uint32_t)inlay_blob_get(blob + 10, 2);
	head->permissions = inlay_blob_to_access((uint32_t)inlay_blob_get(blob + 16, 4));
	head->ranges = (uint32_t)inlay_blob_get(blob + 20, 4);
	head->code_bytes = (uint32_t)inlay_blob_get(blob + 24, 4);
	if (inlay_blob_get(blob + 12, 4) != len || inlay_blob_bytes(head->kind, head->ranges, head->code_bytes) != len)
		return -EINVAL;
	if (head->kind == INLAY_BLOB_KIND_PCI) {
		head->vhca = (uint32_t)inlay_blob_get(blob + 32, 4);
		__builtin_memcpy(head->access_key, blob + 40, 32);
	}
	return 0;
}

/* Range i of a blob whose head has been read. Its lkey is INLAY_NO_KEY, its id i. */
INLAY_COLD void inlay_blob_range(const uint8_t *blob, const struct inlay_blob *head, uint32_t i, struct inlay_range *r)
{
	const uint8_t *at = blob + inlay_blob_ranges_at(head->kind) + (uint64_t)i * INLAY_BLOB_RANGE;

	r->start = inlay_blob_get(at, 8);
	r->len = inlay_blob_get(at + 8, 8);
	r->rkey = (uint32_t)inlay_blob_get(at + 16, 4);
	r->access = inlay_blob_to_access((uint32_t)inlay_blob_get(at + 20, 4));
	r->lkey = INLAY_NO_KEY;
	r->id = i;
}

/* Is the code right? Takes the same time wherever it is wrong. Returns 0, -EBADMSG, or what mac->make returned. */
INLAY_COLD int inlay_blob_code(const uint8_t *blob, const struct inlay_blob *head, const struct inlay_mac *mac)
{
	uint64_t at = inlay_blob_bytes(head->kind, head->ranges, head->code_bytes) - 4 - head->code_bytes;
	uint8_t code[64];
	uint32_t i, wrong = 0;
	int err;

	if (head->code_bytes != (mac ? mac->bytes : 0))
		return -EBADMSG;
	if (!mac)
		return 0;
	err = mac->make(mac->context, blob, (size_t)at, code);
	if (err)
		return err;
	for (i = 0; i < mac->bytes; i++)
		wrong |= (uint32_t)(code[i] ^ blob[at + i]);
	return wrong ? -EBADMSG : 0;
}

/*
 * Reads a blob's head and checks the whole blob, but not whether its ranges overlap.
 *
 * mac  the code that it must carry, or NULL
 *
 * Returns 0, or an error of the table at the top.
 */
INLAY_COLD int inlay_blob_check(struct inlay_blob *head, const uint8_t *blob, size_t len, const struct inlay_mac *mac)
{
	struct inlay_range r;
	uint32_t i, of_kind;
	int err = inlay_blob_head(head, blob, len);

	if (err)
		return err;
	if (inlay_blob_get(blob + len - 4, 4) != inlay_crc32c(blob, len - 4))
		return -EBADMSG;
	err = inlay_blob_code(blob, head, mac);
	if (err)
		return err;
	of_kind = head->kind == INLAY_BLOB_KIND_RDMA ? INLAY_RDMA_ANY : head->kind == INLAY_BLOB_KIND_PCI ? INLAY_PCI_ANY : 0;
	if (!head->permissions || head->permissions & ~of_kind || inlay_mmap_access_check(head->permissions) || !head->ranges ||
	    inlay_blob_get(blob + 28, 4) || (head->kind == INLAY_BLOB_KIND_PCI && (head->vhca > 0xffff || inlay_blob_get(blob + 36, 4))))
		return -EINVAL;
	for (i = 0; i < head->ranges; i++) {
		inlay_blob_range(blob, head, i, &r);
		if (inlay_range_check(&r) || !r.access || r.access & ~head->permissions)
			return -EINVAL;
	}
	return 0;
}

/* ---- Export ---- */

/* What of these permissions a range grants to others. */
INLAY_COLD uint32_t inlay_mmap_granted(const struct inlay_mmap *m, uint32_t i, uint32_t mask)
{
	return m->permissions & m->sources[i].limit & mask;
}

/* How many ranges grant any of these permissions to others. */
INLAY_COLD uint32_t inlay_mmap_count_granted(const struct inlay_mmap *m, uint32_t mask)
{
	uint32_t i, n = 0;

	for (i = 0; i < m->num_ranges; i++)
		n += !!inlay_mmap_granted(m, i, mask);
	return n;
}

/* May the map be exported with such permissions over this device? Returns the device's place, or -EPERM, -EINVAL, -ENOENT. */
INLAY_COLD int inlay_mmap_exportable(const struct inlay_mmap *m, const struct ibv_pd *pd, uint32_t mask)
{
	if (m->state != INLAY_MMAP_STARTED || !inlay_mmap_count_granted(m, mask))
		return -EPERM;
	return pd ? inlay_mmap_dev_index(m, pd) : -EINVAL;
}

/* Bytes of the blob that inlay_mmap_export_rdma writes, in any state; 0 when nothing is granted, or for a map that was imported. */
INLAY_COLD size_t inlay_mmap_export_size(const struct inlay_mmap *m)
{
	INLAY_CHECK(m, "a map is not NULL");
	uint32_t n = m->flags & INLAY_MMAP_FROM_EXPORT ? 0 : inlay_mmap_count_granted(m, INLAY_RDMA_ANY);

	return n ? (size_t)inlay_blob_bytes(INLAY_BLOB_KIND_RDMA, n, m->mac ? m->mac->bytes : 0) : 0;
}

/*
 * Writes the blob by which another process reaches the map's ranges through RDMA. The map is exported from then on.
 *
 * pd   one of the map's devices: the one that the other process's queues are connected to
 * buf  memory for the blob
 * len  in: its bytes; out: the blob's, also with -ENOSPC
 *
 * Returns 0; -EPERM by state, and when no range has an RDMA permission; -EINVAL; -ENOENT when pd is not one of the map's devices; -ENOSPC
 * when buf is too small; what the map's mac returned. Only success marks the map as exported.
 */
INLAY_COLD int inlay_mmap_export_rdma(struct inlay_mmap *m, const struct ibv_pd *pd, void *buf, size_t *len)
{
	INLAY_CHECK(m, "a map is not NULL");
	int dev = inlay_mmap_exportable(m, pd, INLAY_RDMA_ANY), err;
	size_t room, bytes = inlay_mmap_export_size(m);
	struct inlay_blob head;
	struct inlay_range r;
	uint32_t i, n = 0;

	if (dev < 0)
		return dev;
	if (!len || (!buf && *len))
		return -EINVAL;
	room = *len;
	*len = bytes;
	if (room < bytes)
		return -ENOSPC;
	__builtin_memset(&head, 0, sizeof(head));
	head.kind = INLAY_BLOB_KIND_RDMA;
	head.ranges = inlay_mmap_count_granted(m, INLAY_RDMA_ANY);
	head.code_bytes = m->mac ? m->mac->bytes : 0;
	for (i = 0; i < m->num_ranges; i++)
		head.permissions |= inlay_mmap_granted(m, i, INLAY_RDMA_ANY);
	inlay_blob_begin((uint8_t *)buf, &head);
	for (i = 0; i < m->num_ranges; i++) {
		r = m->ranges[i];
		r.access = inlay_mmap_granted(m, i, INLAY_RDMA_ANY);
		r.rkey = m->keys[(uint64_t)i * m->stride + (uint32_t)dev].rkey;
		if (r.access)
			inlay_blob_set_range((uint8_t *)buf, &head, n++, &r);
	}
	err = inlay_blob_seal((uint8_t *)buf, &head, m->mac);
	if (!err)
		m->flags |= INLAY_MMAP_EXPORTED;
	return err;
}

/* ---- Import ---- */

/*
 * Bytes of memory that a map made from this blob needs: in proportion to its length, whatever it claims. 0: no blob, or more ranges than
 * there may be.
 */
INLAY_COLD size_t inlay_mmap_import_size(const void *blob, size_t len)
{
	struct inlay_blob head;

	return !blob || inlay_blob_head(&head, (const uint8_t *)blob, len) ? 0 : inlay_mmap_size(1, head.ranges);
}

/*
 * All that is looked at before a map is made of a blob, which is copied to memory. head: filled; the rest as inlay_mmap_create_from_export.
 * Returns 0, or what that does.
 */
INLAY_COLD int inlay_mmap_import_check(struct inlay_blob *head, void *memory, size_t size, const struct ibv_pd *pd, const void *blob,
				       size_t len, const struct inlay_mac *mac)
{
	int err;

	if (!pd || !blob || (mac && (!mac->make || mac->bytes < 16 || mac->bytes > 64 || mac->bytes % 4)))
		return -EINVAL;
	err = inlay_blob_head(head, (const uint8_t *)blob, len);
	if (err)
		return err;
	if (head->code_bytes != (mac ? mac->bytes : 0))
		return -EBADMSG;
	if (!memory || (uintptr_t)memory % INLAY_CACHE_LINE || !inlay_mmap_size(1, head->ranges))
		return -EINVAL;
	if (size < inlay_mmap_size(1, head->ranges))
		return -ENOMEM;
	/* To where the first table's words will be: more than a blob of as many ranges takes, not written before these are read. */
	__builtin_memcpy(memory, blob, len);
	return inlay_blob_check(head, (const uint8_t *)memory, len, mac);
}

/*
 * A map of the ranges of a blob that inlay_mmap_import_check has put into memory and found sound; it finds nothing yet. The keys are those
 * of the blob, as rkeys.
 */
INLAY_COLD int inlay_mmap_import_make(struct inlay_mmap *made, void *memory, size_t size, struct ibv_pd *pd, const struct inlay_blob *head,
				      uint64_t user_data)
{
	const uint8_t *bytes = (const uint8_t *)memory;
	uint32_t i;
	int err;

	err = inlay_mmap_create(made, memory, size, 1, head->ranges);
	if (err)
		return err;
	for (i = 0; i < head->ranges; i++) {
		inlay_blob_range(bytes, head, i, &made->ranges[i]);
		made->keys[i].lkey = INLAY_NO_KEY;
		made->keys[i].rkey = made->ranges[i].rkey;
		__builtin_memset(&made->sources[i], 0, sizeof(made->sources[i]));
		made->sources[i].kind = INLAY_MMAP_KEYS;
		made->sources[i].limit = made->ranges[i].access;
	}
	made->num_ranges = head->ranges;
	made->devs[0] = pd;
	made->num_devs = 1;
	made->permissions = head->permissions;
	made->user_data = user_data;
	made->flags = INLAY_MMAP_FROM_EXPORT;
	return 0;
}

/*
 * A map of another process's memory. It is usable at once, for posts (inlay_mmap_remote) and for bufs; no local memory stands behind it,
 * and so there are no local keys.
 *
 * memory     for its ranges, on a cache line; the caller's, and the map's until it is destroyed
 * size       its bytes, at least inlay_mmap_import_size(blob, len)
 * pd         its one device: of the queues that are to be used with it
 * blob, len  copied into memory, which it does not overlap, before anything but its length is believed
 * how        the code that the blob must carry, user data; NULL: neither
 *
 * Returns 0; an error of the table at the top; -EINVAL also for an argument out of its range; -ENOMEM when size is too small; -ENOTSUP for
 * a blob of PCI that is sound, which inlay_mmap_create_from_export_pci (pci.h) is for; what the mac returned. On failure *m is as it was,
 * and memory may have been written.
 */
INLAY_COLD int inlay_mmap_create_from_export(struct inlay_mmap *m, void *memory, size_t size, struct ibv_pd *pd, const void *blob,
					     size_t len, const struct inlay_mmap_import *how)
{
	struct inlay_mmap made;
	struct inlay_blob head;
	int err;

	if (!m)
		return -EINVAL;
	err = inlay_mmap_import_check(&head, memory, size, pd, blob, len, how ? how->mac : NULL);
	if (err)
		return err;
	if (head.kind != INLAY_BLOB_KIND_RDMA)
		return -ENOTSUP;
	err = inlay_mmap_import_make(&made, memory, size, pd, &head, how ? how->user_data : 0);
	if (err)
		return err;
	if (inlay_mmap_publish(&made, head.ranges))
		return -EINVAL;
	made.state = INLAY_MMAP_IMPORTED;
	*m = made;
	return 0;
}

#endif
