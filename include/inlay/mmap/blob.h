/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap/blob.h: a memory map for another process: exported as a blob of bytes, which the other
 * side checks and imports.
 *
 *   len = inlay_mmap_export_size(&map);                                     the owner
 *   inlay_mmap_export_rdma(&map, pd, blob, &len);
 *
 *   size = inlay_mmap_import_size(blob, len);                               the other side
 *   memory = aligned_alloc(64, size);
 *   inlay_mmap_create_from_export(&theirs, memory, size, pd, blob, len, NULL);
 *   if (!inlay_mmap_remote(&theirs, raddr, n, INLAY_RDMA_WRITE, &rkey))
 *           inlay_post_write(&sq, raddr, rkey, ...);
 *
 * Invariants:
 *   - A blob holds only ranges with remote permissions, and neither lkeys nor local permissions.
 *     Its rkeys open memory, so pass it through a private channel.
 *   - A blob is valid until the map is stopped. A stale blob still imports; posts that use it end
 *     with a remote access error. Exporting again gives the same bytes.
 *   - Import copies the blob first, so a peer that still writes to it does no harm. It checks in
 *     this order:
 *
 *       -EPROTO    shorter than any blob; another magic or version
 *       -EINVAL    a length that differs from the blob's, or from what its counts add up to
 *       -EBADMSG   a wrong checksum or code; an unexpected or missing code
 *       -EINVAL    unknown kinds or bits, nothing granted; a range that is empty, wraps around,
 *                  overlaps another, or grants more than the head
 *
 * The checksum detects accidents. Against attacks, both sides share a key: the owner sets map.mac,
 * and the other side passes the same struct inlay_mac. The caller provides make; with OpenSSL:
 *
 *   static int make(void *key, const void *data, size_t len, uint8_t *code)
 *   {
 *           return HMAC(EVP_sha256(), key, 32, data, len, code, NULL) ? 0 : -EIO;
 *   }
 *   struct inlay_mac mac = {make, key, 32};
 *
 * A code does not prove that a blob is fresh: if replays matter, derive the key from a nonce.
 *
 * The bytes, little-endian:
 *
 *   +0   magic        "inlaymap"
 *   +8   version      2    2
 *   +10  kind         2    1 RDMA, 2 PCI
 *   +12  length       4    bytes, from the magic to the checksum
 *   +16  permissions  4    bits of enum inlay_access: those of RDMA, or those of PCI
 *   +20  ranges       4    at least 1
 *   +24  code bytes   4    0, or 16 .. 64
 *   +28  reserved     4    0
 *   +32  PCI only     vhca 4 (the function whose keys these are), reserved 4, access key 32 (pci.h)
 *   ...  each range   start 8, bytes 8, rkey 4, permissions 4
 *   ...  code         with a key: a message authentication code of all bytes before it
 *   ...  checksum     4    CRC-32C of all bytes before it
 *
 * Threads: as the set-up part of map.h.
 * Sources: DOCA's documentation of doca_mmap; RFC 3720, appendix B.4 (CRC-32C).
 */
#ifndef INLAY_MMAP_BLOB_H
#define INLAY_MMAP_BLOB_H

#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/mmap/lookup.h>
#include <inlay/mmap/map.h>
#include <inlay/mmap/source.h>

#define INLAY_BLOB_VERSION 2u
#define INLAY_BLOB_HEAD_ 32u            /* bytes */
#define INLAY_BLOB_PCI_ 40u             /* bytes after the head, PCI only */
#define INLAY_BLOB_RANGE_ 24u           /* bytes of a range */

enum inlay_blob_kind_ {
	INLAY_BLOB_RDMA_ = 1,
	INLAY_BLOB_OVER_PCI_ = 2
};

/* The head of a blob, host order */
struct inlay_blob {
	uint32_t kind;                  /* enum inlay_blob_kind_ */
	uint32_t permissions;           /* enum inlay_access */
	uint32_t ranges;
	uint32_t code_bytes;
	uint32_t vhca;                  /* PCI */
	uint8_t access_key[32];         /* PCI */
};

/* Writes `bytes` bytes of value, little-endian. */
INLAY_COLD void inlay_blob_put(uint8_t *at, uint64_t value, uint32_t bytes)
{
	uint32_t i;

	for (i = 0; i < bytes; i++)
		at[i] = (uint8_t)(value >> 8 * i);
}

/* Reads a little-endian value of `bytes` bytes. */
INLAY_COLD uint64_t inlay_blob_get(const uint8_t *at, uint32_t bytes)
{
	uint64_t value = 0;
	uint32_t i;

	for (i = 0; i < bytes; i++)
		value |= (uint64_t)at[i] << 8 * i;
	return value;
}

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

INLAY_COLD uint32_t inlay_blob_ranges_at_(uint32_t kind)
{
	return kind == INLAY_BLOB_OVER_PCI_ ? INLAY_BLOB_HEAD_ + INLAY_BLOB_PCI_ : INLAY_BLOB_HEAD_;
}

INLAY_COLD uint64_t inlay_blob_bytes_(uint32_t kind, uint32_t ranges, uint32_t code_bytes)
{
	return inlay_blob_ranges_at_(kind) + (uint64_t)ranges * INLAY_BLOB_RANGE_ + code_bytes + 4;
}

INLAY_COLD void inlay_blob_begin_(uint8_t *blob, const struct inlay_blob *head)
{
	__builtin_memcpy(blob, "inlaymap", 8);
	inlay_blob_put(blob + 8, INLAY_BLOB_VERSION, 2);
	inlay_blob_put(blob + 10, head->kind, 2);
	inlay_blob_put(blob + 12, inlay_blob_bytes_(head->kind, head->ranges, head->code_bytes), 4);
	inlay_blob_put(blob + 16, head->permissions, 4);
	inlay_blob_put(blob + 20, head->ranges, 4);
	inlay_blob_put(blob + 24, head->code_bytes, 4);
	inlay_blob_put(blob + 28, 0, 4);
	if (head->kind == INLAY_BLOB_OVER_PCI_) {
		inlay_blob_put(blob + 32, head->vhca, 4);
		inlay_blob_put(blob + 36, 0, 4);
		__builtin_memcpy(blob + 40, head->access_key, 32);
	}
}

INLAY_COLD void inlay_blob_set_range_(uint8_t *blob, const struct inlay_blob *head, uint32_t i,
				      const struct inlay_range *r)
{
	uint8_t *at = blob + inlay_blob_ranges_at_(head->kind) + (uint64_t)i * INLAY_BLOB_RANGE_;

	inlay_blob_put(at, r->start, 8);
	inlay_blob_put(at + 8, r->len, 8);
	inlay_blob_put(at + 16, r->rkey, 4);
	inlay_blob_put(at + 20, r->access, 4);
}

/* Writes code and checksum. mac: NULL for no code. Returns 0, or the error of mac->make. */
INLAY_COLD int inlay_blob_seal_(uint8_t *blob, const struct inlay_blob *head, const struct inlay_mac *mac)
{
	uint64_t end = inlay_blob_bytes_(head->kind, head->ranges, head->code_bytes) - 4;
	int err = 0;

	if (mac)
		err = mac->make(mac->context, blob, (size_t)(end - head->code_bytes), blob + end - head->code_bytes);
	if (!err)
		inlay_blob_put(blob + end, inlay_crc32c(blob, (size_t)end), 4);
	return err;
}

/* Reads the head and checks all lengths: later reads stay inside. Returns 0, -EPROTO or -EINVAL. */
INLAY_COLD int inlay_blob_head_(struct inlay_blob *head, const uint8_t *blob, size_t len)
{
	if (len < INLAY_BLOB_HEAD_ + 4 || __builtin_memcmp(blob, "inlaymap", 8) ||
	    inlay_blob_get(blob + 8, 2) != INLAY_BLOB_VERSION)
		return -EPROTO;
	__builtin_memset(head, 0, sizeof(*head));
	head->kind = (uint32_t)inlay_blob_get(blob + 10, 2);
	head->permissions = (uint32_t)inlay_blob_get(blob + 16, 4);
	head->ranges = (uint32_t)inlay_blob_get(blob + 20, 4);
	head->code_bytes = (uint32_t)inlay_blob_get(blob + 24, 4);
	if (inlay_blob_get(blob + 12, 4) != len || inlay_blob_bytes_(head->kind, head->ranges, head->code_bytes) != len)
		return -EINVAL;
	if (head->kind == INLAY_BLOB_OVER_PCI_) {
		head->vhca = (uint32_t)inlay_blob_get(blob + 32, 4);
		__builtin_memcpy(head->access_key, blob + 40, 32);
	}
	return 0;
}

/* Reads range i of a blob whose head was read. Its lkey is INLAY_NO_KEY, its id i. */
INLAY_COLD void inlay_blob_range_(const uint8_t *blob, const struct inlay_blob *head, uint32_t i, struct inlay_range *r)
{
	const uint8_t *at = blob + inlay_blob_ranges_at_(head->kind) + (uint64_t)i * INLAY_BLOB_RANGE_;

	r->start = inlay_blob_get(at, 8);
	r->len = inlay_blob_get(at + 8, 8);
	r->rkey = (uint32_t)inlay_blob_get(at + 16, 4);
	r->access = (uint32_t)inlay_blob_get(at + 20, 4);
	r->lkey = INLAY_NO_KEY;
	r->id = i;
}

/* Checks the code in constant time. Returns 0, -EBADMSG, or the error of mac->make. */
INLAY_COLD int inlay_blob_code_(const uint8_t *blob, const struct inlay_blob *head, const struct inlay_mac *mac)
{
	uint64_t at = inlay_blob_bytes_(head->kind, head->ranges, head->code_bytes) - 4 - head->code_bytes;
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
 * Reads the head and checks the whole blob, but not for overlaps. mac: of the code that it must
 * carry, or NULL. Returns 0, or an error of the table at the top.
 */
INLAY_COLD int inlay_blob_check_(struct inlay_blob *head, const uint8_t *blob, size_t len, const struct inlay_mac *mac)
{
	struct inlay_range r;
	uint32_t i, of_kind;
	int err = inlay_blob_head_(head, blob, len);

	if (err)
		return err;
	if (inlay_blob_get(blob + len - 4, 4) != inlay_crc32c(blob, len - 4))
		return -EBADMSG;
	err = inlay_blob_code_(blob, head, mac);
	if (err)
		return err;
	of_kind = head->kind == INLAY_BLOB_RDMA_ ? INLAY_RDMA_ANY :
		  head->kind == INLAY_BLOB_OVER_PCI_ ? INLAY_PCI_ANY : 0;
	if (!head->permissions || head->permissions & ~of_kind || inlay_access_check_(head->permissions) ||
	    !head->ranges || inlay_blob_get(blob + 28, 4))
		return -EINVAL;
	if (head->kind == INLAY_BLOB_OVER_PCI_ && (head->vhca > 0xffff || inlay_blob_get(blob + 36, 4)))
		return -EINVAL;
	for (i = 0; i < head->ranges; i++) {
		inlay_blob_range_(blob, head, i, &r);
		if (inlay_range_bad_(r.start, r.len) || !r.access || r.access & ~head->permissions)
			return -EINVAL;
	}
	return 0;
}

/* Makes a blob's head without PCI's part. Returns the blob's bytes; 0: nothing is granted. */
INLAY_COLD size_t inlay_mmap_blob_head_(const struct inlay_mmap *m, uint32_t kind, uint32_t mask,
					struct inlay_blob *head)
{
	uint32_t i, granted;

	INLAY_CHECK(m, "a map is not NULL");
	__builtin_memset(head, 0, sizeof(*head));
	head->kind = kind;
	head->code_bytes = m->mac ? m->mac->bytes : 0;
	for (i = 0; i < m->num_ranges && m->state_ != INLAY_MMAP_IMPORTED_; i++) {
		granted = inlay_mmap_granted_(m, i, mask);
		head->permissions |= granted;
		head->ranges += !!granted;
	}
	return head->ranges ? (size_t)inlay_blob_bytes_(kind, head->ranges, head->code_bytes) : 0;
}

/* Checks an export's arguments. Returns the device's index or an error; *len: the blob's bytes. */
INLAY_COLD int inlay_mmap_exportable_(const struct inlay_mmap *m, const struct ibv_pd *pd, size_t bytes,
				      const void *buf, size_t *len)
{
	size_t room;

	if (m->state_ != INLAY_MMAP_STARTED_)
		return -EBADFD;
	if (!bytes)
		return -EPERM;
	if (!pd || !len || (!buf && *len) || inlay_mac_check_(m->mac))
		return -EINVAL;
	if (inlay_mmap_dev_(m, pd) < 0)
		return -ENOENT;
	room = *len;
	*len = bytes;
	return room < bytes ? -ENOBUFS : inlay_mmap_dev_(m, pd);
}

/* Writes the blob. The key of range i is at key + i * step; NULL: its rkey on device dev. */
INLAY_COLD int inlay_mmap_write_blob_(struct inlay_mmap *m, uint8_t *buf, const struct inlay_blob *head, uint32_t dev,
				      const uint8_t *key, size_t step)
{
	struct inlay_range r;
	uint32_t i, n = 0;
	int err;

	inlay_blob_begin_(buf, head);
	for (i = 0; i < m->num_ranges; i++) {
		r.start = m->sources_[i].start;
		r.len = m->sources_[i].len;
		r.access = inlay_mmap_granted_(m, i, head->permissions);
		r.rkey = inlay_mmap_keys_(m, i, dev).rkey;
		if (key)
			__builtin_memcpy(&r.rkey, key + i * step, sizeof(r.rkey));
		if (r.access)
			inlay_blob_set_range_(buf, head, n++, &r);
	}
	err = inlay_blob_seal_(buf, head, m->mac);
	m->exported |= !err;
	return err;
}

/* Bytes of the blob, in any state; 0 if nothing is granted to RDMA, or the map is imported. */
INLAY_COLD size_t inlay_mmap_export_size(const struct inlay_mmap *m)
{
	struct inlay_blob head;

	return inlay_mmap_blob_head_(m, INLAY_BLOB_RDMA_, INLAY_RDMA_ANY, &head);
}

/*
 * Writes the blob with which another process accesses the map's ranges by RDMA. If it succeeds, the
 * map is exported.
 *
 * pd   the map's device to which the other process's queues are connected
 * len  in: bytes at buf; out: bytes of the blob, also with -ENOBUFS
 *
 * Returns 0; -EBADFD when the map is not started; -EPERM when no range has an RDMA permission;
 * -EINVAL for a bad argument or mac; -ENOENT when pd is not one of the map's devices; -ENOBUFS when
 * buf is too small; or the error of mac->make.
 */
INLAY_COLD int inlay_mmap_export_rdma(struct inlay_mmap *m, const struct ibv_pd *pd, void *buf, size_t *len)
{
	struct inlay_blob head;
	size_t bytes = inlay_mmap_blob_head_(m, INLAY_BLOB_RDMA_, INLAY_RDMA_ANY, &head);
	int dev = inlay_mmap_exportable_(m, pd, bytes, buf, len);

	return dev < 0 ? dev : inlay_mmap_write_blob_(m, (uint8_t *)buf, &head, (uint32_t)dev, NULL, 0);
}

/* Bytes of memory that a map of this blob needs; 0 for an invalid head, or too many ranges. */
INLAY_COLD size_t inlay_mmap_import_size(const void *blob, size_t len)
{
	struct inlay_blob head;

	return !blob || inlay_blob_head_(&head, (const uint8_t *)blob, len) ? 0 : inlay_mmap_size(1, head.ranges);
}

/* As inlay_mmap_create_from_export, for a blob of this kind, but the table is still empty. */
INLAY_COLD int inlay_mmap_import_(struct inlay_mmap *made, struct inlay_blob *head, void *memory, size_t size,
				  struct ibv_pd *pd, const void *blob, size_t len, const struct inlay_mac *mac,
				  uint32_t kind)
{
	struct inlay_keys keys = {INLAY_NO_KEY, INLAY_NO_KEY};
	struct inlay_range r;
	uint32_t i;
	int err;

	if (!pd || !blob || inlay_mac_check_(mac))
		return -EINVAL;
	err = inlay_blob_head_(head, (const uint8_t *)blob, len);
	if (err)
		return err;
	if (head->code_bytes != (mac ? mac->bytes : 0))
		return -EBADMSG;
	if (!memory || (uintptr_t)memory % INLAY_CACHE_LINE || !inlay_mmap_size(1, head->ranges))
		return -EINVAL;
	if (size < inlay_mmap_size(1, head->ranges))
		return -ENOBUFS;
	/* The copy lies where the table's index will be, which is longer, and written later. */
	__builtin_memcpy(memory, blob, len);
	err = inlay_blob_check_(head, (const uint8_t *)memory, len, mac);
	if (err)
		return err;
	if (head->kind != kind)
		return -ENOTSUP;
	err = inlay_mmap_create(made, memory, size, 1, head->ranges);
	if (err)
		return err;
	for (i = 0; i < head->ranges; i++) {
		inlay_blob_range_((const uint8_t *)memory, head, i, &r);
		keys.rkey = r.rkey;
		made->sources_[i] = inlay_source_keys(r.start, (size_t)r.len, keys);
		made->sources_[i].limit = r.access;
	}
	made->num_ranges = head->ranges;
	made->devs[made->num_devs++] = pd;
	made->permissions = head->permissions;
	made->state_ = INLAY_MMAP_IMPORTED_;
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
	err = inlay_mmap_import_(&made, &head, memory, size, pd, blob, len, mac, INLAY_BLOB_RDMA_);
	if (err)
		return err;
	if (inlay_mmap_publish_(&made))
		return -EINVAL;
	*m = made;
	return 0;
}

#endif
