/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap/blob.h: a memory map for another process: the owner exports a blob of bytes, the other
 * side checks and imports it.
 *
 *   len = sizeof(blob);                                                     the owner
 *   inlay_mmap_export_rdma(&map, pd, blob, &len);
 *
 *   size = inlay_mmap_import_size(blob, len);                               the other side
 *   memory = aligned_alloc(64, size);
 *   inlay_mmap_create_from_export(&theirs, memory, size, pd, blob, len, NULL);
 *   if (!inlay_mmap_remote(&theirs, raddr, n, INLAY_RDMA_WRITE, &rkey))
 *           inlay_post_write(&sq, raddr, rkey, ...);
 *
 * Invariants:
 *   - A blob names the ranges with remote permissions, with rkeys and without lkeys. Anyone with
 *     the blob can access the memory: pass it through a private channel.
 *   - A blob is valid until the map is stopped. A stale blob still imports; posts that use it end
 *     with a remote access error.
 *   - Import reads a copy, so a peer may write to the blob meanwhile. It checks in this order:
 *
 *       -EPROTO    shorter than any blob; another magic or version
 *       -EINVAL    a length that differs from the blob's, or from what its counts add up to
 *       -EBADMSG   a wrong checksum or MAC; an unexpected or missing MAC
 *       -EINVAL    unknown kinds or bits, nothing granted; a range that is empty, wraps around,
 *                  overlaps another, or grants more than the head
 *
 * The bytes, little-endian: struct inlay_blob; a struct inlay_blob_range for each range; with a
 * key, a message authentication code (MAC) of all bytes before it; the CRC-32C of all before it.
 *
 * The checksum detects accidents. Against attacks, both sides share a key: the owner sets map.mac,
 * and the other side passes the same (HMAC of a library, see examples/shared_memory.c). A MAC does
 * not prove that a blob is fresh: if replays matter, derive the key from a nonce.
 *
 * Threads: as the set-up part of map.h.
 * Sources: DOCA's documentation of doca_mmap; RFC 3720, appendix B.4 (CRC-32C).
 */
#ifndef INLAY_MMAP_BLOB_H
#define INLAY_MMAP_BLOB_H /* a trial: names may change */

#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/mmap/lookup.h>
#include <inlay/mmap/map.h>
#include <inlay/mmap/source.h>

#define INLAY_BLOB_VERSION 3u

enum inlay_blob_kind { INLAY_BLOB_RDMA = 1, INLAY_BLOB_PCI = 2 };

/* The first bytes of a blob */
struct inlay_blob {
	char magic[8];                  /* "inlaymap" */
	uint16_t version;
	uint16_t kind;                  /* enum inlay_blob_kind */
	uint32_t bytes;                 /* of all, with the checksum */
	uint32_t permissions;           /* enum inlay_access: those of RDMA, or those of PCI */
	uint32_t ranges;                /* at least 1 */
	uint32_t code_bytes;            /* 0, or 16 .. 64 */
	uint32_t vhca;                  /* PCI: the function whose keys these are (pci.h) */
	uint8_t access_key[32];         /* PCI */
};

struct inlay_blob_range {
	uint64_t start, len;
	uint32_t rkey;                  /* PCI: of the key that aliases are made of */
	uint32_t access;                /* bits of permissions */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_blob) == 64 && sizeof(struct inlay_blob_range) == 24, "no holes");

/* Makes a message authentication code */
struct inlay_mac {
	/* Writes `bytes` bytes to code. Returns 0 or a negative errno. */
	int (*make)(void *context, const void *data, size_t len, uint8_t *code);
	void *context;                  /* the key, in the form that make wants */
	uint32_t bytes;                 /* 16 .. 64, a multiple of 4 */
};

/* CRC-32C (Castagnoli), as in iSCSI. */
INLAY_COLD uint32_t inlay_crc32c(const void *data, size_t len)
{
	const uint8_t *p = (const uint8_t *)data;
	uint32_t table[16], crc = 0xffffffffu, i, bit;
	size_t at;

	/* Four bits at a time */
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

/* -EINVAL for an invalid mac. NULL is allowed. */
INLAY_COLD int inlay_mac_check_(const struct inlay_mac *mac)
{
	return mac && (!mac->make || mac->bytes < 16 || mac->bytes > 64 || mac->bytes % 4) ? -EINVAL : 0;
}

/* The offset of range i; with the number of ranges, of the code. */
INLAY_COLD size_t inlay_blob_at_(uint32_t i)
{
	return sizeof(struct inlay_blob) + (size_t)i * sizeof(struct inlay_blob_range);
}

INLAY_COLD size_t inlay_blob_bytes_(const struct inlay_blob *head)
{
	return inlay_blob_at_(head->ranges) + head->code_bytes + 4;
}

/* Writes head, code and checksum. mac: NULL for no code. Returns 0, or the error of mac->make. */
INLAY_COLD int inlay_blob_seal_(uint8_t *blob, const struct inlay_blob *head, const struct inlay_mac *mac)
{
	size_t code = inlay_blob_at_(head->ranges), end = code + head->code_bytes;
	uint32_t crc;
	int err;

	__builtin_memcpy(blob, head, sizeof(*head));
	err = mac ? mac->make(mac->context, blob, code, blob + code) : 0;
	crc = inlay_crc32c(blob, end);
	__builtin_memcpy(blob + end, &crc, sizeof(crc));
	return err;
}

/* Reads the head and checks all lengths: later reads stay inside. Returns 0, -EPROTO or -EINVAL. */
INLAY_COLD int inlay_blob_head_(struct inlay_blob *head, const uint8_t *blob, size_t len)
{
	if (len < sizeof(*head) + 4)
		return -EPROTO;
	__builtin_memcpy(head, blob, sizeof(*head));
	if (__builtin_memcmp(head->magic, "inlaymap", 8) || head->version != INLAY_BLOB_VERSION)
		return -EPROTO;
	return head->bytes == len && inlay_blob_bytes_(head) == len ? 0 : -EINVAL;
}

/* Checks the code in constant time. Returns 0, -EBADMSG, or the error of mac->make. */
INLAY_COLD int inlay_blob_code_(const uint8_t *blob, const struct inlay_blob *head, const struct inlay_mac *mac)
{
	size_t at = inlay_blob_at_(head->ranges);
	uint8_t code[64];
	uint32_t i, wrong = 0;
	int err;

	if (head->code_bytes != (mac ? mac->bytes : 0))
		return -EBADMSG;
	err = mac ? mac->make(mac->context, blob, at, code) : 0;
	if (err)
		return err;
	for (i = 0; i < head->code_bytes; i++)
		wrong |= (uint32_t)(code[i] ^ blob[at + i]);
	return wrong ? -EBADMSG : 0;
}

/* Reads the head and checks all but overlaps. Returns 0, or an error of the table at the top. */
INLAY_COLD int inlay_blob_check_(struct inlay_blob *head, const uint8_t *blob, size_t len, const struct inlay_mac *mac)
{
	struct inlay_blob_range r;
	uint32_t i, of_kind, crc;
	int err = inlay_blob_head_(head, blob, len);

	if (err)
		return err;
	crc = inlay_crc32c(blob, len - 4);
	if (__builtin_memcmp(blob + len - 4, &crc, sizeof(crc)))
		return -EBADMSG;
	err = inlay_blob_code_(blob, head, mac);
	if (err)
		return err;
	of_kind = head->kind == INLAY_BLOB_RDMA ? INLAY_RDMA_ANY : head->kind == INLAY_BLOB_PCI ? INLAY_PCI_ANY : 0;
	if (!head->permissions || head->permissions & ~of_kind || inlay_access_check_(head->permissions) ||
	    !head->ranges || head->vhca > 0xffff)
		return -EINVAL;
	for (i = 0; i < head->ranges; i++) {
		__builtin_memcpy(&r, blob + inlay_blob_at_(i), sizeof(r));
		if (inlay_range_bad_(r.start, r.len) || !r.access || r.access & ~head->permissions)
			return -EINVAL;
	}
	return 0;
}

/* Checks an export's arguments and makes the head. Returns the device's index, or an error. */
INLAY_COLD int inlay_mmap_export_(const struct inlay_mmap *m, const struct ibv_pd *pd, struct inlay_blob *head,
				  uint16_t kind, const void *buf, size_t *len)
{
	int dev = inlay_mmap_dev_(m, pd);
	uint32_t i, granted;
	size_t room;

	if (m->state_ != INLAY_MMAP_STARTED_ || m->imported)
		return -EBADFD;
	__builtin_memset(head, 0, sizeof(*head));
	for (i = 0; i < m->num_ranges; i++) {
		granted = inlay_mmap_granted_(m, i, kind == INLAY_BLOB_RDMA ? INLAY_RDMA_ANY : INLAY_PCI_ANY);
		head->permissions |= granted;
		head->ranges += !!granted;
	}
	if (!head->ranges)
		return -EPERM;
	if (!pd || !len || (!buf && *len) || inlay_mac_check_(m->mac))
		return -EINVAL;
	if (dev < 0)
		return dev;
	__builtin_memcpy(head->magic, "inlaymap", 8);
	head->version = INLAY_BLOB_VERSION;
	head->kind = kind;
	head->code_bytes = m->mac ? m->mac->bytes : 0;
	head->bytes = (uint32_t)inlay_blob_bytes_(head);
	room = *len;
	*len = head->bytes;
	return room < head->bytes ? -ENOBUFS : dev;
}

/* Writes the blob. The key of range i is at key + i * step; NULL: its rkey on device dev. */
INLAY_COLD int inlay_mmap_write_blob_(struct inlay_mmap *m, uint8_t *buf, const struct inlay_blob *head, uint32_t dev,
				      const uint8_t *key, size_t step)
{
	struct inlay_blob_range r;
	uint32_t i, n = 0;
	int err;

	for (i = 0; i < m->num_ranges; i++) {
		r.start = m->sources[i].start;
		r.len = m->sources[i].len;
		r.access = inlay_mmap_granted_(m, i, head->permissions);
		r.rkey = inlay_mmap_keys_(m, i, dev).rkey;
		if (key)
			__builtin_memcpy(&r.rkey, key + i * step, sizeof(r.rkey));
		if (r.access)
			__builtin_memcpy(buf + inlay_blob_at_(n++), &r, sizeof(r));
	}
	err = inlay_blob_seal_(buf, head, m->mac);
	m->exported |= !err;
	return err;
}

/*
 * Writes the blob with which another process accesses the map's ranges by RDMA. If it succeeds, the
 * map is exported.
 *
 * pd   the map's device to which the other process's queues are connected
 * len  in: bytes at buf, 0 to ask; out: bytes of the blob, also with -ENOBUFS
 *
 * Returns 0; -EBADFD when the map is not started, or imported; -EPERM when no range has an RDMA
 * permission; -EINVAL for a bad argument or mac; -ENOENT when pd is not one of the map's devices;
 * -ENOBUFS when buf is too small; or the error of mac->make.
 */
INLAY_COLD int inlay_mmap_export_rdma(struct inlay_mmap *m, const struct ibv_pd *pd, void *buf, size_t *len)
{
	struct inlay_blob head;
	int dev = inlay_mmap_export_(m, pd, &head, INLAY_BLOB_RDMA, buf, len);

	return dev < 0 ? dev : inlay_mmap_write_blob_(m, (uint8_t *)buf, &head, (uint32_t)dev, NULL, 0);
}

/* Bytes of pci.h's part: a struct inlay_mmap_pci, and a key for each range. */
INLAY_COLD size_t inlay_mmap_pci_bytes_(uint32_t ranges)
{
	return (ranges + (size_t)1) * INLAY_CACHE_LINE;
}

/* Bytes of memory that a map of this blob needs; 0 for an invalid head, or too many ranges. */
INLAY_COLD size_t inlay_mmap_import_size(const void *blob, size_t len)
{
	struct inlay_blob head;
	size_t size;

	if (!blob || inlay_blob_head_(&head, (const uint8_t *)blob, len))
		return 0;
	size = inlay_mmap_size(1, head.ranges);
	return size && head.kind == INLAY_BLOB_PCI ? size + inlay_mmap_pci_bytes_(head.ranges) : size;
}

/* As inlay_mmap_create_from_export, for a blob of this kind, but the table is still empty. */
INLAY_COLD int inlay_mmap_import_(struct inlay_mmap *made, struct inlay_blob *head, void *memory, size_t size,
				  struct ibv_pd *pd, const void *blob, size_t len, const struct inlay_mac *mac,
				  uint32_t kind)
{
	struct inlay_keys keys = {INLAY_NO_KEY, INLAY_NO_KEY};
	struct inlay_blob_range r;
	uint32_t i;
	int err;

	if (!pd || !blob || inlay_mac_check_(mac))
		return -EINVAL;
	err = inlay_blob_head_(head, (const uint8_t *)blob, len);
	if (err)
		return err;
	if (head->code_bytes != (mac ? mac->bytes : 0))
		return -EBADMSG;
	err = inlay_mmap_create(made, memory, size, 1, head->ranges);
	if (err)
		return err;
	/* It lies where the longer index will be. Its length says that it has as many ranges. */
	__builtin_memcpy(memory, blob, len);
	err = inlay_blob_check_(head, (const uint8_t *)memory, len, mac);
	if (err)
		return err;
	if (head->kind != kind)
		return -ENOTSUP;
	for (i = 0; i < head->ranges; i++) {
		__builtin_memcpy(&r, (const uint8_t *)memory + inlay_blob_at_(i), sizeof(r));
		keys.rkey = r.rkey;
		made->sources[i] = inlay_source_keys(r.start, (size_t)r.len, keys);
		made->sources[i].limit = r.access;
	}
	made->num_ranges = head->ranges;
	made->devs[made->num_devs++] = pd;
	made->permissions = head->permissions;
	made->imported = 1;
	made->state_ = INLAY_MMAP_STARTED_;
	return 0;
}

/*
 * Makes a map of another process's memory, without lkeys; usable at once for posts
 * (inlay_mmap_remote) and buffers.
 *
 * memory     aligned to a cache line; the map's until it is destroyed
 * size       bytes, at least inlay_mmap_import_size(blob, len)
 * pd         the map's only device: of the queues that will use it
 * blob, len  must not overlap memory
 * mac        of the code that the blob must carry, used during the call; NULL: no code
 *
 * Returns 0; an error of the table at the top; -EINVAL for a bad argument; -ENOBUFS when size is
 * too small; -ENOTSUP for a valid PCI blob (pci.h); or the error of mac->make. On failure *m is
 * unchanged, and memory may have been written.
 */
INLAY_COLD int inlay_mmap_create_from_export(struct inlay_mmap *m, void *memory, size_t size, struct ibv_pd *pd,
					     const void *blob, size_t len, const struct inlay_mac *mac)
{
	struct inlay_mmap made;
	struct inlay_blob head;
	int err;

	if (!m)
		return -EINVAL;
	err = inlay_mmap_import_(&made, &head, memory, size, pd, blob, len, mac, INLAY_BLOB_RDMA);
	if (!err && inlay_mmap_publish_(&made))
		err = -EINVAL;
	if (!err)
		*m = made;
	return err;
}

#endif
