/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap/pci.h: a memory map on the other side of PCI: what a host exports and its BlueField imports, or one function of a device and
 * another. What is imported has local keys: the importing device reads and writes the memory as if it were its own, without a peer.
 *
 *   The owner                                                      The other side
 *
 *   inlay_mmap_set_permissions(&map, INLAY_PCI_READ_WRITE);
 *   inlay_mmap_start(&map);
 *   n = inlay_mmap_pci_size(&map);                                 size = inlay_mmap_import_pci_size(blob, len);
 *   state = aligned_alloc(64, n);                                  memory = aligned_alloc(64, size);
 *   inlay_mmap_export_pci(&map, pd, state, n, blob, &len);  -->    inlay_mmap_create_from_export_pci(&theirs, memory, size, pd,
 *                                                                                                    blob, len, NULL);
 *                                                                  r = inlay_mmap_find(&theirs, addr, bytes);
 *                                                                  sge.addr = addr;  sge.lkey = r->lkey;
 *   inlay_mmap_stop(&map);                                         ... and posts that name it fail from then on
 *
 * How it is done
 * --------------
 * For each range that has a PCI permission the owner makes an indirect key (KSM) over the range's own, which grants no more than that
 * permission (and relaxed ordering only where the device has it for such keys), and allows it to whoever brings 32 random bytes (ALLOW_OTHER_VHCA_ACCESS). These bytes, the function's number (vhca_id) and
 * the keys' indices are in the blob: who has the blob has the memory. The other side makes an alias of each key.
 *
 * Stopping the map, or destroying it, destroys the indirect keys first: aliases then stand for nothing, and importing the blob again fails.
 * Exporting for the same device again gives the same blob; for another device of the map, keys of its own and a state of its own.
 *
 * Addresses are the owner's, as in blobs of RDMA. The range's rkey is INLAY_NO_KEY: an imported map is not exported further.
 *
 * Both contexts must be open for device commands (inlay_devx_open; ibv_open_device where the kernel gives them to everybody), and both
 * devices must know aliases: inlay_mmap_cap_export_pci, inlay_mmap_cap_create_from_export_pci.
 *
 * Threads: as map.h's set-up.
 * Sources: DOCA's documentation of doca_mmap (export_pci, create_from_export); devx/ifc/object.h; UCX's ib_mlx5dv_md.c (that the key must
 * be indirect, its pieces of 2 GiB, which capability bits tell).
 */
#ifndef INLAY_MMAP_PCI_H
#define INLAY_MMAP_PCI_H

#include <sys/random.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/devx/call.h>
#include <inlay/devx/ifc/cmd.h>
#include <inlay/devx/ifc/hca.h>
#include <inlay/devx/ifc/object.h>
#include <inlay/devx/mkey.h>
#include <inlay/mmap/blob.h>
#include <inlay/mmap/lookup.h>
#include <inlay/mmap/map.h>
#include <inlay/verbs.h>

#define INLAY_PCI_LOG_PIECE 31u           /* what one entry of an indirect key covers */
#define INLAY_PCI_KEY_TO_KEY 0x100u       /* cross_vhca_object_to_object_supported: a local key may stand for a remote one */
#define INLAY_PCI_KEY_ALLOWED 0x4u        /* allowed_object_for_other_vhca_access: keys */

/* The device's objects of a map exported for one device, or imported. In the caller's memory. */
struct inlay_mmap_pci {
	struct inlay_mmap_pci *next;      /* of the map's other devices */
	const struct ibv_pd *pd;
	struct inlay_devx_mkey *keys;     /* of each range, in the order of adding; obj NULL: not exported. Imported: aliases */
	uint32_t num;
	uint32_t vhca;
	uint8_t access_key[32];
	struct inlay_devx_error error;    /* of the last command that failed */
};

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up: all of it
 */

/* ---- What a device can do ---- */

/*
 * QUERY_HCA_CAP, of which a refusal means that the device cannot: -ENOTSUP. What may pass stays what it is: -EIO, -ENOMEM, -EAGAIN, -EBUSY.
 */
INLAY_COLD int inlay_mmap_pci_ask(struct ibv_context *ctx, uint32_t type, struct inlay_query_hca_cap_out *cap)
{
	int err = inlay_devx_query_cap(ctx, type, cap, NULL);

	return !err || err == -EIO || err == -ENOMEM || err == -EAGAIN || err == -EBUSY ? err : -ENOTSUP;
}

/*
 * Does the device know keys of other functions? vhca: its number, or NULL. relaxed: whether CREATE_MKEY knows relaxed ordering, reads and
 * writes; or NULL. Returns 0; -ENOTSUP when it does not, or the context does no
 * device commands; -EIO, -ENOMEM, -EAGAIN or -EBUSY when it does not say.
 */
INLAY_COLD int inlay_mmap_pci_cap(struct ibv_context *ctx, uint32_t *vhca, int *relaxed)
{
	struct inlay_query_hca_cap_out cap;
	int err;

	if (!mlx5dv_is_supported(ctx->device))
		return -ENOTSUP;
	err = inlay_mmap_pci_ask(ctx, INLAY_CAP_GENERAL, &cap);
	if (err)
		return err;
	if (!inlay_hca_cap_get(&cap.cap.general, INLAY_HCA_CAP_HCA_CAP_2) ||
	    !inlay_hca_cap_get(&cap.cap.general, INLAY_HCA_CAP_FIXED_BUFFER_SIZE))
		return -ENOTSUP;
	if (vhca)
		*vhca = (uint32_t)inlay_hca_cap_get(&cap.cap.general, INLAY_HCA_CAP_VHCA_ID);
	if (relaxed)
		*relaxed = inlay_hca_cap_get(&cap.cap.general, INLAY_HCA_CAP_RELAXED_ORDERING_WRITE) &&
			   inlay_hca_cap_get(&cap.cap.general, INLAY_HCA_CAP_RELAXED_ORDERING_READ);
	err = inlay_mmap_pci_ask(ctx, INLAY_CAP_GENERAL_2, &cap);
	if (err)
		return err;
	if (!(inlay_hca_cap_2_get(&cap.cap.general_2, INLAY_HCA_CAP_2_CROSS_VHCA_OBJECT_TO_OBJECT_SUPPORTED) & INLAY_PCI_KEY_TO_KEY) ||
	    !(inlay_hca_cap_2_get(&cap.cap.general_2, INLAY_HCA_CAP_2_ALLOWED_OBJECT_FOR_OTHER_VHCA_ACCESS) & INLAY_PCI_KEY_ALLOWED))
		return -ENOTSUP;
	return 0;
}

/* Can memory be exported over PCI from this device? 1, or 0: it cannot, or this context does no device commands. */
INLAY_COLD int inlay_mmap_cap_export_pci(struct ibv_context *ctx)
{
	return !inlay_mmap_pci_cap(ctx, NULL, NULL);
}

/* And imported? */
INLAY_COLD int inlay_mmap_cap_create_from_export_pci(struct ibv_context *ctx)
{
	return !inlay_mmap_pci_cap(ctx, NULL, NULL);
}

/* ---- Objects ---- */

/* Destroys the objects of one export or import. Returns 0, or the negative errno of the first that cannot go; the others went. */
INLAY_COLD int inlay_mmap_pci_drop(struct inlay_mmap_pci *pci)
{
	int err = 0, this_one;
	uint32_t i;

	for (i = 0; i < pci->num; i++) {
		this_one = inlay_devx_mkey_destroy(&pci->keys[i]);
		if (!err)
			err = this_one;
	}
	return err;
}

/* The same for all of a map: what map.h calls before it deregisters, and at the end. */
INLAY_COLD int inlay_mmap_pci_release(struct inlay_mmap *m)
{
	int err;

	while (m->pci) {
		err = inlay_mmap_pci_drop(m->pci);
		if (err)
			return err;
		m->pci = m->pci->next;
	}
	return 0;
}

/* ---- Export ---- */

/* Entries of the indirect key of a range: it begins where an entry's length divides the address. */
INLAY_COLD uint64_t inlay_mmap_pci_pieces(const struct inlay_range *r)
{
	uint64_t base = r->start >> INLAY_PCI_LOG_PIECE;

	return ((r->start + (r->len - 1)) >> INLAY_PCI_LOG_PIECE) - base + 1;
}

/* The most entries that one of the exported ranges has; 0: nothing is exported, or one is too large for a key. */
INLAY_COLD uint32_t inlay_mmap_pci_most(const struct inlay_mmap *m)
{
	uint64_t most = 0, n;
	uint32_t i;

	for (i = 0; i < m->num_ranges; i++) {
		n = inlay_mmap_granted(m, i, INLAY_PCI_ANY) ? inlay_mmap_pci_pieces(&m->ranges[i]) : 0;
		most = n > most ? n : most;
	}
	return most > INLAY_DEVX_PIECES ? 0 : (uint32_t)most;
}

/*
 * Bytes of memory for the state of one export of this map; 0 when nothing is granted over PCI, a range has more than 8,000 GB, or the map
 * was imported.
 */
INLAY_COLD size_t inlay_mmap_pci_size(const struct inlay_mmap *m)
{
	INLAY_CHECK(m, "a map is not NULL");
	uint32_t most = m->flags & INLAY_MMAP_FROM_EXPORT ? 0 : inlay_mmap_pci_most(m);

	if (!most)
		return 0;
	return (size_t)(inlay_mmap_lines(sizeof(struct inlay_mmap_pci)) +
			inlay_mmap_lines((uint64_t)m->num_ranges * sizeof(struct inlay_devx_mkey)) +
			inlay_mmap_lines((uint64_t)most * sizeof(struct ibv_sge)) + inlay_mmap_lines(inlay_devx_mkey_size(most)));
}

/* Bytes of the blob that inlay_mmap_export_pci writes, in any state; 0 when nothing is granted over PCI, or for a map that was imported. */
INLAY_COLD size_t inlay_mmap_export_pci_size(const struct inlay_mmap *m)
{
	INLAY_CHECK(m, "a map is not NULL");
	uint32_t n = m->flags & INLAY_MMAP_FROM_EXPORT ? 0 : inlay_mmap_count_granted(m, INLAY_PCI_ANY);

	return n ? (size_t)inlay_blob_bytes(INLAY_BLOB_KIND_PCI, n, m->mac ? m->mac->bytes : 0) : 0;
}

/*
 * The indirect key of range r, over the one that it has with device dev, and the permission to use it from elsewhere. mask: permissions that
 * the device knows.
 */
INLAY_COLD int inlay_mmap_pci_key(struct inlay_mmap *m, uint32_t r, uint32_t dev, struct inlay_mmap_pci *pci, uint32_t pdn,
				  uint32_t mask, uint8_t *scratch)
{
	uint32_t granted = inlay_mmap_granted(m, r, mask), n, i;
	const struct inlay_range *range = &m->ranges[r];
	struct inlay_allow_other_vhca_access_in in;
	struct ibv_context *ctx = m->devs[dev]->context;
	struct ibv_sge *sge = (struct ibv_sge *)(void *)scratch;
	struct inlay_devx_mkey_attr attr;
	struct inlay_cmd_out out;
	int err;

	n = (uint32_t)inlay_mmap_pci_pieces(range);
	__builtin_memset(&attr, 0, sizeof(attr));
	attr.addr = range->start >> INLAY_PCI_LOG_PIECE << INLAY_PCI_LOG_PIECE;
	attr.len = range->start - attr.addr + range->len;
	attr.pdn = pdn;
	attr.log_entity = INLAY_PCI_LOG_PIECE;
	attr.access = (granted & INLAY_PCI_READ_WRITE ? (uint32_t)IBV_ACCESS_LOCAL_WRITE : 0) |
		      (granted & INLAY_RELAXED_ORDERING ? (uint32_t)IBV_ACCESS_RELAXED_ORDERING : 0);
	for (i = 0; i < n; i++) {
		sge[i].addr = attr.addr + ((uint64_t)i << INLAY_PCI_LOG_PIECE);
		sge[i].length = 0;
		sge[i].lkey = m->keys[(uint64_t)r * m->stride + dev].lkey;
	}
	scratch += inlay_mmap_lines((uint64_t)n * sizeof(*sge));
	err = inlay_devx_mkey_create_list(&pci->keys[r], ctx, &attr, sge, n, scratch, inlay_devx_mkey_size(n));
	if (err) {
		pci->error = pci->keys[r].error;
		return err;
	}
	__builtin_memset(&in, 0, sizeof(in));
	inlay_cmd_in_set(&in.cmd, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_ALLOW_OTHER_VHCA_ACCESS);
	inlay_allow_other_vhca_access_in_set(&in, INLAY_ALLOW_OTHER_VHCA_ACCESS_IN_OBJECT_TYPE_TO_BE_ACCESSED, INLAY_OBJ_MKEY);
	inlay_allow_other_vhca_access_in_set(&in, INLAY_ALLOW_OTHER_VHCA_ACCESS_IN_OBJECT_ID_TO_BE_ACCESSED, pci->keys[r].key >> 8);
	__builtin_memcpy(in.access_key, pci->access_key, sizeof(in.access_key));
	return inlay_devx_command(ctx, &in, sizeof(in), &out, sizeof(out), &pci->error);
}

/* All keys of one export. On failure none is left. */
INLAY_COLD int inlay_mmap_pci_make(struct inlay_mmap *m, uint32_t dev, struct inlay_mmap_pci *pci, uint8_t *memory)
{
	uint32_t r, pdn = 0, vhca = 0;
	int relaxed = 0, err = inlay_mmap_pci_cap(m->devs[dev]->context, &vhca, &relaxed);

	if (!err)
		err = inlay_pdn_from_pd(&pdn, m->devs[dev]);
	if (err)
		return err;
	__builtin_memset(pci, 0, sizeof(*pci));
	memory += inlay_mmap_lines(sizeof(*pci));
	pci->keys = (struct inlay_devx_mkey *)(void *)memory;
	pci->num = m->num_ranges;
	pci->pd = m->devs[dev];
	pci->vhca = vhca;
	__builtin_memset(pci->keys, 0, pci->num * sizeof(*pci->keys));
	memory += inlay_mmap_lines((uint64_t)pci->num * sizeof(*pci->keys));
	if (getrandom(pci->access_key, sizeof(pci->access_key), 0) != (ssize_t)sizeof(pci->access_key))
		return -EIO;
	for (r = 0; r < m->num_ranges && !err; r++)
		if (inlay_mmap_granted(m, r, INLAY_PCI_ANY))
			err = inlay_mmap_pci_key(m, r, dev, pci, pdn, INLAY_PCI_ANY | (relaxed ? INLAY_RELAXED_ORDERING : 0), memory);
	if (err)
		inlay_mmap_pci_drop(pci);
	return err;
}

/*
 * Writes the blob by which the other side of PCI reaches the map's ranges. The map is exported from then on.
 *
 * pd            one of the map's devices, open for device commands
 * memory, size  for the keys, on a cache line: inlay_mmap_pci_size() bytes, the map's until it is stopped. Not touched when the map is
 *               exported for this device already, and may be NULL then
 * buf           memory for the blob: inlay_mmap_export_pci_size() bytes
 * len           in: its bytes; out: the blob's, also with -ENOSPC
 *
 * Returns 0; -EPERM by state, and when no range has a PCI permission; -EINVAL, also for a range of more than 8,000 GB; -ENOENT when pd is
 * not one of the map's devices; -ENOSPC when buf is too small; -ENOMEM when size is; -ENOTSUP when the device cannot, or the context does
 * no device commands; the negative errno of QUERY_HCA_CAP, CREATE_MKEY or ALLOW_OTHER_VHCA_ACCESS; what the map's mac returned. Only
 * success marks the map as exported; after failure no key is left, unless it came from the mac.
 */
INLAY_COLD int inlay_mmap_export_pci(struct inlay_mmap *m, const struct ibv_pd *pd, void *memory, size_t size, void *buf, size_t *len)
{
	INLAY_CHECK(m, "a map is not NULL");
	int dev = inlay_mmap_exportable(m, pd, INLAY_PCI_ANY), err;
	size_t room, bytes = inlay_mmap_export_pci_size(m);
	struct inlay_mmap_pci *pci;
	struct inlay_blob head;
	struct inlay_range r;
	uint32_t i, n = 0;

	if (dev < 0)
		return dev;
	if (!len || (!buf && *len) || !inlay_mmap_pci_size(m))
		return -EINVAL;
	room = *len;
	*len = bytes;
	if (room < bytes)
		return -ENOSPC;
	for (pci = m->pci; pci && pci->pd != pd; pci = pci->next)
		;
	if (!pci) {
		if (size < inlay_mmap_pci_size(m))
			return -ENOMEM;
		if (!memory || (uintptr_t)memory % INLAY_CACHE_LINE)
			return -EINVAL;
		pci = (struct inlay_mmap_pci *)memory;
		err = inlay_mmap_pci_make(m, (uint32_t)dev, pci, (uint8_t *)memory);
		if (err)
			return err;
		pci->next = m->pci;
		m->pci = pci;
		m->pci_release = inlay_mmap_pci_release;
	}
	__builtin_memset(&head, 0, sizeof(head));
	head.kind = INLAY_BLOB_KIND_PCI;
	head.ranges = inlay_mmap_count_granted(m, INLAY_PCI_ANY);
	head.code_bytes = m->mac ? m->mac->bytes : 0;
	head.vhca = pci->vhca;
	__builtin_memcpy(head.access_key, pci->access_key, sizeof(head.access_key));
	for (i = 0; i < m->num_ranges; i++)
		head.permissions |= inlay_mmap_granted(m, i, INLAY_PCI_ANY);
	inlay_blob_begin((uint8_t *)buf, &head);
	for (i = 0; i < m->num_ranges; i++) {
		r = m->ranges[i];
		r.access = inlay_mmap_granted(m, i, INLAY_PCI_ANY);
		r.rkey = pci->keys[i].key;
		if (r.access)
			inlay_blob_set_range((uint8_t *)buf, &head, n++, &r);
	}
	err = inlay_blob_seal((uint8_t *)buf, &head, m->mac);
	if (!err)
		m->flags |= INLAY_MMAP_EXPORTED;
	return err;
}

/* ---- Import ---- */

/* Bytes of memory that a map made from this blob of PCI needs. 0: no blob, or more ranges than there may be. */
INLAY_COLD size_t inlay_mmap_import_pci_size(const void *blob, size_t len)
{
	struct inlay_blob head;

	if (!blob || inlay_blob_head(&head, (const uint8_t *)blob, len) || !inlay_mmap_size(1, head.ranges))
		return 0;
	return (size_t)(inlay_mmap_size(1, head.ranges) + inlay_mmap_lines(sizeof(struct inlay_mmap_pci)) +
			inlay_mmap_lines((uint64_t)head.ranges * sizeof(struct inlay_devx_mkey)));
}

/* An alias of the owner's key. owner: as the blob has it. */
INLAY_COLD int inlay_mmap_pci_alias(struct inlay_mmap_pci *pci, uint32_t i, struct ibv_context *ctx, uint32_t pdn, uint32_t owner)
{
	struct inlay_devx_mkey *key = &pci->keys[i];
	struct inlay_create_alias_out out;
	struct inlay_create_alias_in in;
	int err;

	__builtin_memset(&in, 0, sizeof(in));
	inlay_general_in_set(&in.cmd, INLAY_GENERAL_IN_OPCODE, INLAY_CMD_OP_CREATE_GENERAL_OBJECT);
	inlay_general_in_set(&in.cmd, INLAY_GENERAL_IN_OBJ_TYPE, INLAY_OBJ_MKEY);
	inlay_general_in_set(&in.cmd, INLAY_GENERAL_IN_ALIAS_OBJECT, 1);
	inlay_alias_set(&in.alias, INLAY_ALIAS_VHCA_ID_TO_BE_ACCESSED, pci->vhca & 0xffff);
	inlay_alias_set(&in.alias, INLAY_ALIAS_OBJECT_ID_TO_BE_ACCESSED, owner >> 8);
	inlay_alias_set(&in.alias, INLAY_ALIAS_METADATA_PD, pdn);
	__builtin_memcpy(in.alias.access_key, pci->access_key, sizeof(in.alias.access_key));
	err = inlay_devx_create(ctx, &in, sizeof(in), &out, sizeof(out), &key->obj, &key->error);
	pci->error = key->error;
	if (err)
		return key->error.status == INLAY_CMD_STATUS_BAD_RES ? -EPERM : err;
	key->key = (uint32_t)inlay_general_out_get(&out.cmd, INLAY_GENERAL_OUT_OBJ_ID) << 8;
	return inlay_alias_get(&out.alias, INLAY_ALIAS_STATUS) ? -EPERM : 0;
}

/*
 * A map of memory on the other side of PCI. It is usable at once, as local memory of pd's device: by its lkeys.
 *
 * memory     for ranges and keys, on a cache line; the caller's, and the map's until it is destroyed
 * size       its bytes, at least inlay_mmap_import_pci_size(blob, len)
 * pd         its one device, open for device commands: of the queues that are to be used with it
 * blob, len  copied into memory, which it does not overlap, before anything but its length is believed
 * how        the code that the blob must carry, user data; NULL: neither
 *
 * Returns 0; an error of the table at the top of blob.h; -EINVAL also for an argument out of its range, and for a blob that this function
 * of the device has exported itself; -ENOMEM when size is too small; -ENOTSUP for a blob of RDMA that is sound, when the device cannot, or
 * the context does no device commands; -EPERM when the owner does not let in: its map was stopped, or is another; else the negative errno
 * of QUERY_HCA_CAP or CREATE_GENERAL_OBJECT; what the mac returned. On failure *m is as it was, no alias is left, and memory may have been
 * written.
 */
INLAY_COLD int inlay_mmap_create_from_export_pci(struct inlay_mmap *m, void *memory, size_t size, struct ibv_pd *pd, const void *blob,
						 size_t len, const struct inlay_mmap_import *how)
{
	uint8_t *at = (uint8_t *)memory;
	struct inlay_mmap_pci *pci;
	struct inlay_mmap made;
	struct inlay_blob head;
	uint32_t i, pdn = 0, own = 0;
	int err;

	if (!m)
		return -EINVAL;
	err = inlay_mmap_import_check(&head, memory, size, pd, blob, len, how ? how->mac : NULL);
	if (err)
		return err;
	if (head.kind != INLAY_BLOB_KIND_PCI)
		return -ENOTSUP;
	if (size < inlay_mmap_import_pci_size(memory, len))
		return -ENOMEM;
	err = inlay_mmap_pci_cap(pd->context, &own, NULL);
	if (!err && own == head.vhca)
		err = -EINVAL;
	if (!err)
		err = inlay_pdn_from_pd(&pdn, pd);
	if (!err)
		err = inlay_mmap_import_make(&made, memory, inlay_mmap_size(1, head.ranges), pd, &head, how ? how->user_data : 0);
	if (err)
		return err;
	at += inlay_mmap_size(1, head.ranges);
	pci = (struct inlay_mmap_pci *)(void *)at;
	at += inlay_mmap_lines(sizeof(*pci));
	__builtin_memset(pci, 0, sizeof(*pci));
	pci->keys = (struct inlay_devx_mkey *)(void *)at;
	pci->num = head.ranges;
	pci->pd = pd;
	pci->vhca = head.vhca;
	__builtin_memset(pci->keys, 0, pci->num * sizeof(*pci->keys));
	__builtin_memcpy(pci->access_key, head.access_key, sizeof(pci->access_key));
	for (i = 0; i < head.ranges && !err; i++) {
		err = inlay_mmap_pci_alias(pci, i, pd->context, pdn, made.ranges[i].rkey);
		made.ranges[i].lkey = made.keys[i].lkey = pci->keys[i].key;
		made.ranges[i].rkey = made.keys[i].rkey = INLAY_NO_KEY;
	}
	if (!err && inlay_mmap_publish(&made, head.ranges))
		err = -EINVAL;
	if (err) {
		inlay_mmap_pci_drop(pci);
		return err;
	}
	made.pci = pci;
	made.pci_release = inlay_mmap_pci_release;
	made.state = INLAY_MMAP_IMPORTED;
	*m = made;
	return 0;
}

#endif
