/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/mmap/pci.h: a memory map for a device across PCIe: between a host and its BlueField, or
 * between two functions of one device. The importing device accesses the memory as its own, with
 * lkeys and without a peer. Include this header by name.
 *
 *   inlay_mmap_set_permissions(&map, INLAY_PCI_READ_WRITE);                 the owner
 *   inlay_mmap_start(&map);
 *   keys = aligned_alloc(64, n = inlay_mmap_pci_size(&map));
 *   inlay_mmap_export_pci(&map, pd, keys, n, blob, &len);
 *
 *   memory = aligned_alloc(64, size = inlay_mmap_import_size(blob, len));   the other side
 *   inlay_mmap_create_from_export_pci(&theirs, memory, size, pd, blob, len, NULL);
 *   sge.lkey = inlay_mmap_find(&theirs, addr, bytes)->lkey;
 *
 * Invariants:
 *   - Both contexts are open for device commands (inlay_devx_open).
 *   - Export creates an indirect key (KSM) over each range's key, with the range's PCI permission.
 *     The blob holds 32 random bytes with which the other side makes aliases of these keys
 *     (ALLOW_OTHER_VHCA_ACCESS). Anyone with the blob can access the memory.
 *   - Stopping the map destroys these keys: aliases become invalid, and the blob no longer imports.
 *   - Exporting again for the same device gives the same blob. Each device has its own keys.
 *   - Addresses are the owner's. Imported ranges have INLAY_NO_KEY as rkey.
 *
 * Threads: as the set-up part of map.h.
 * Sources: DOCA's documentation of doca_mmap; devx/ifc.h; UCX's ib_mlx5dv_md.c (indirect keys,
 * entries of 2 GiB, the capabilities).
 */
#ifndef INLAY_MMAP_PCI_H
#define INLAY_MMAP_PCI_H /* a trial: names may change */

#include <sys/random.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/devx/call.h>
#include <inlay/devx/ifc.h>
#include <inlay/devx/mkey.h>
#include <inlay/mmap/blob.h>
#include <inlay/mmap/lookup.h>
#include <inlay/mmap/map.h>
#include <inlay/mmap/source.h>
#include <inlay/verbs.h>

#define INLAY_PCI_LOG_PIECE_ 31u          /* what one entry of an indirect key covers */
#define INLAY_PCI_KEY_TO_KEY_ 0x100u      /* cross_vhca_object_to_object_supported: local mkey to remote mkey */
#define INLAY_PCI_KEY_ALLOWED_ 0x4u       /* allowed_object_for_other_vhca_access: mkey */

/* Device objects of a map that was exported for one device, or imported; in the caller's memory */
struct inlay_mmap_pci {
	struct inlay_mmap_pci *next;      /* of the map's other devices */
	const struct ibv_pd *pd;          /* Imported: NULL, as vhca and access_key are 0 */
	struct inlay_devx_mkey *keys;     /* by range; obj NULL: not exported. Imported: aliases */
	uint32_t num;
	uint32_t vhca;
	uint8_t access_key[32];
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_mmap_pci) <= INLAY_CACHE_LINE &&
		    sizeof(struct inlay_devx_mkey) <= INLAY_CACHE_LINE, "as inlay_mmap_pci_bytes_ counts");

/*
 * Checks that the device can export and import memory over PCI, and its context takes device
 * commands. *vhca: the number of its function. Returns 0; -ENOTSUP if not; -EIO, -ENOMEM, -EAGAIN
 * or -EBUSY if it does not answer now.
 */
INLAY_COLD int inlay_mmap_cap_pci(struct ibv_context *ctx, uint32_t *vhca)
{
	struct inlay_query_hca_cap_out cap;
	uint64_t to_key = 0, allowed = 0;
	int err;

	if (!mlx5dv_is_supported(ctx->device))
		return -ENOTSUP;
	err = inlay_devx_query_cap(ctx, INLAY_CAP_GENERAL, &cap, NULL);
	if (!err && inlay_hca_cap_get(&cap.cap, INLAY_HCA_CAP_HCA_CAP_2) &&
	    inlay_hca_cap_get(&cap.cap, INLAY_HCA_CAP_FIXED_BUFFER_SIZE)) {
		*vhca = (uint32_t)inlay_hca_cap_get(&cap.cap, INLAY_HCA_CAP_VHCA_ID);
		err = inlay_devx_query_cap(ctx, INLAY_CAP_GENERAL_2, &cap, NULL);
		to_key = inlay_hca_cap_get(&cap.cap, INLAY_HCA_CAP_2_CROSS_VHCA_OBJECT_TO_OBJECT_SUPPORTED);
		allowed = inlay_hca_cap_get(&cap.cap, INLAY_HCA_CAP_2_ALLOWED_OBJECT_FOR_OTHER_VHCA_ACCESS);
	}
	if (err == -EIO || err == -ENOMEM || err == -EAGAIN || err == -EBUSY)
		return err;
	return !err && to_key & INLAY_PCI_KEY_TO_KEY_ && allowed & INLAY_PCI_KEY_ALLOWED_ ? 0 : -ENOTSUP;
}

/* Makes an empty list of num keys, in memory of inlay_mmap_pci_bytes_(num). */
INLAY_COLD struct inlay_mmap_pci *inlay_mmap_pci_init_(void *memory, uint32_t num)
{
	struct inlay_mmap_pci *pci = (struct inlay_mmap_pci *)memory;

	__builtin_memset(memory, 0, inlay_mmap_pci_bytes_(num));
	pci->keys = (struct inlay_devx_mkey *)(void *)(pci + 1);
	pci->num = num;
	return pci;
}

/* Destroys all keys that it can of one export or import. Returns how many stay. */
INLAY_COLD int inlay_mmap_pci_drop_(struct inlay_mmap_pci *pci)
{
	int stay = 0;
	uint32_t i;

	for (i = 0; i < pci->num; i++)
		stay += !!inlay_devx_mkey_destroy(&pci->keys[i]);
	return stay;
}

INLAY_COLD int inlay_mmap_pci_release_(struct inlay_mmap *m)
{
	while (m->pci_ && !inlay_mmap_pci_drop_(m->pci_))
		m->pci_ = m->pci_->next;
	return m->pci_ != NULL;
}

/* Entries of a range's indirect key, which begins at a multiple of an entry's length. */
INLAY_COLD uint64_t inlay_mmap_pci_pieces_(const struct inlay_source *s)
{
	return ((s->start + (s->len - 1)) >> INLAY_PCI_LOG_PIECE_) - (s->start >> INLAY_PCI_LOG_PIECE_) + 1;
}

/*
 * Bytes for the keys of one export; 0: nothing is granted, an imported map, or a granted range in
 * more than INLAY_DEVX_PIECES (4078) pieces of 2 GiB.
 */
INLAY_COLD size_t inlay_mmap_pci_size(const struct inlay_mmap *m)
{
	uint64_t most = 0, n;
	uint32_t i;

	for (i = 0; i < inlay_mmap_(m)->num_ranges; i++) {
		n = inlay_mmap_granted_(m, i, INLAY_PCI_ANY) ? inlay_mmap_pci_pieces_(&m->sources[i]) : 0;
		most = n > most ? n : most;
	}
	if (!most || most > INLAY_DEVX_PIECES || m->imported)
		return 0;
	/* After the keys, scratch memory to create the longest. */
	return (size_t)(inlay_mmap_pci_bytes_(m->num_ranges) +
			inlay_round_up(most * sizeof(struct ibv_sge), INLAY_CACHE_LINE) +
			inlay_round_up(inlay_devx_mkey_size((uint32_t)most), INLAY_CACHE_LINE));
}

/* Creates the indirect key of range r over its key on device dev, and allows aliases of it. */
INLAY_COLD int inlay_mmap_pci_key_(struct inlay_mmap *m, uint32_t r, uint32_t dev, struct inlay_mmap_pci *pci,
				   uint32_t pdn, uint8_t *scratch)
{
	struct inlay_allow_other_vhca_access_in in;
	struct ibv_context *ctx = m->devs[dev]->context;
	struct ibv_sge *sge = (struct ibv_sge *)(void *)scratch;
	struct inlay_devx_mkey_attr attr;
	struct inlay_cmd_out out;
	uint32_t n = (uint32_t)inlay_mmap_pci_pieces_(&m->sources[r]), i;
	int err;

	__builtin_memset(&attr, 0, sizeof(attr));
	attr.addr = m->sources[r].start >> INLAY_PCI_LOG_PIECE_ << INLAY_PCI_LOG_PIECE_;
	attr.len = m->sources[r].start - attr.addr + m->sources[r].len;
	attr.pdn = pdn;
	attr.log_entity = INLAY_PCI_LOG_PIECE_;
	attr.access = inlay_access_verbs_(inlay_mmap_granted_(m, r, INLAY_PCI_ANY | INLAY_RELAXED_ORDERING));
	for (i = 0; i < n; i++) {
		sge[i].addr = attr.addr + ((uint64_t)i << INLAY_PCI_LOG_PIECE_);
		sge[i].length = 0;
		sge[i].lkey = inlay_mmap_keys_(m, r, dev).lkey;
	}
	scratch += inlay_round_up(n * sizeof(*sge), INLAY_CACHE_LINE);
	err = inlay_devx_mkey_create_list(&pci->keys[r], ctx, &attr, sge, n, scratch, inlay_devx_mkey_size(n));
	if (err)
		return err;
	__builtin_memset(&in, 0, sizeof(in));
	inlay_cmd_in_set(&in.cmd, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_ALLOW_OTHER_VHCA_ACCESS);
	inlay_allow_other_vhca_access_in_set(&in, INLAY_ALLOW_OTHER_VHCA_ACCESS_IN_OBJECT_TYPE_TO_BE_ACCESSED,
					     INLAY_OBJ_MKEY);
	inlay_allow_other_vhca_access_in_set(&in, INLAY_ALLOW_OTHER_VHCA_ACCESS_IN_OBJECT_ID_TO_BE_ACCESSED,
					     pci->keys[r].key >> 8);
	__builtin_memcpy(in.access_key, pci->access_key, sizeof(in.access_key));
	return inlay_devx_command(ctx, &in, sizeof(in), &out, sizeof(out), NULL);
}

/* Creates all keys of one export and adds it to the map. On failure no key is left. */
INLAY_COLD int inlay_mmap_pci_make_(struct inlay_mmap *m, uint32_t dev, uint8_t *memory)
{
	struct inlay_mmap_pci *pci;
	uint32_t r, pdn = 0, vhca = 0;
	int err = inlay_mmap_cap_pci(m->devs[dev]->context, &vhca);

	err = err ? err : inlay_pdn_from_pd(&pdn, m->devs[dev]);
	if (err)
		return err;
	pci = inlay_mmap_pci_init_(memory, m->num_ranges);
	pci->pd = m->devs[dev];
	pci->vhca = vhca;
	memory += inlay_mmap_pci_bytes_(m->num_ranges);
	if (getrandom(pci->access_key, sizeof(pci->access_key), 0) < 0) /* all of it, or an error */
		return -errno;
	for (r = 0; r < m->num_ranges && !err; r++)
		if (inlay_mmap_granted_(m, r, INLAY_PCI_ANY))
			err = inlay_mmap_pci_key_(m, r, dev, pci, pdn, memory);
	if (err) {
		inlay_mmap_pci_drop_(pci);
		return err;
	}
	pci->next = m->pci_;
	m->pci_ = pci;
	m->pci_release_ = inlay_mmap_pci_release_;
	return 0;
}

/*
 * Writes the blob with which a device across PCIe accesses the map's ranges. If it succeeds, the
 * map is exported.
 *
 * pd            one of the map's devices, open for device commands
 * memory, size  for the keys, aligned to a cache line: inlay_mmap_pci_size() bytes, the map's until
 *               it is stopped. May be NULL if the map was exported for this device before
 * len           in: bytes at buf, 0 to ask; out: bytes of the blob, also with -ENOBUFS
 *
 * Returns as inlay_mmap_export_rdma, but for a PCI permission; also -ENOBUFS when memory is too
 * small; -EINVAL for a range in more than 4078 pieces of 2 GiB; -ENOTSUP when the device cannot, or
 * the context takes no device commands; the negative errno of getrandom, QUERY_HCA_CAP, CREATE_MKEY
 * or ALLOW_OTHER_VHCA_ACCESS.
 */
INLAY_COLD int inlay_mmap_export_pci(struct inlay_mmap *m, const struct ibv_pd *pd, void *memory, size_t size,
				     void *buf, size_t *len)
{
	struct inlay_blob head;
	int dev = inlay_mmap_export_(m, pd, &head, INLAY_BLOB_PCI, buf, len), err;
	struct inlay_mmap_pci *pci;

	if (dev < 0)
		return dev;
	if (!inlay_mmap_pci_size(m))
		return -EINVAL;
	for (pci = m->pci_; pci && pci->pd != pd; pci = pci->next)
		;
	if (!pci) {
		if (size < inlay_mmap_pci_size(m))
			return -ENOBUFS;
		if (!memory || (uintptr_t)memory % INLAY_CACHE_LINE)
			return -EINVAL;
		err = inlay_mmap_pci_make_(m, (uint32_t)dev, (uint8_t *)memory);
		if (err)
			return err;
		pci = m->pci_;
	}
	head.vhca = pci->vhca;
	__builtin_memcpy(head.access_key, pci->access_key, sizeof(head.access_key));
	return inlay_mmap_write_blob_(m, (uint8_t *)buf, &head, (uint32_t)dev, (const uint8_t *)&pci->keys[0].key,
				      sizeof(*pci->keys));
}

/* Creates an alias of the owner's key. */
INLAY_COLD int inlay_mmap_pci_alias_(struct inlay_devx_mkey *key, const struct inlay_blob *head, uint32_t owner,
				     struct ibv_context *ctx, uint32_t pdn)
{
	struct inlay_create_alias_out out;
	struct inlay_create_alias_in in;
	int err;

	__builtin_memset(&in, 0, sizeof(in));
	inlay_cmd_in_set(&in.cmd, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_CREATE_GENERAL_OBJECT);
	inlay_cmd_in_set(&in.cmd, INLAY_CMD_IN_OP_MOD, INLAY_OBJ_MKEY);
	inlay_cmd_in_set(&in.cmd, INLAY_CMD_IN_ALIAS_OBJECT, 1);
	inlay_alias_set(&in.alias, INLAY_ALIAS_VHCA_ID_TO_BE_ACCESSED, head->vhca);
	inlay_alias_set(&in.alias, INLAY_ALIAS_OBJECT_ID_TO_BE_ACCESSED, owner >> 8);
	inlay_alias_set(&in.alias, INLAY_ALIAS_METADATA_PD, pdn);
	__builtin_memcpy(in.alias.access_key, head->access_key, sizeof(in.alias.access_key));
	err = inlay_devx_create(ctx, &in, sizeof(in), &out, sizeof(out), &key->obj, &key->error);
	if (err)
		return key->error.status == INLAY_CMD_STATUS_BAD_RES ? -EPERM : err;
	key->key = (uint32_t)inlay_cmd_out_get(&out.cmd, INLAY_CMD_OUT_OBJ_ID) << 8;
	return inlay_alias_get(&out.alias, INLAY_ALIAS_STATUS) ? -EPERM : 0;
}

/*
 * Makes a map of another side's memory across PCIe, usable at once, with lkeys, as local memory of
 * pd's device. Arguments and errors as inlay_mmap_create_from_export.
 *
 * Returns also -EINVAL for a blob that the same function of the device exported; -ENOTSUP for a
 * valid RDMA blob, when the device cannot, or the context takes no device commands; -EPERM when the
 * owner refuses: its map was stopped, or the access key is wrong; the negative errno of
 * QUERY_HCA_CAP or CREATE_GENERAL_OBJECT. On failure no alias is left.
 */
INLAY_COLD int inlay_mmap_create_from_export_pci(struct inlay_mmap *m, void *memory, size_t size, struct ibv_pd *pd,
						 const void *blob, size_t len, const struct inlay_mac *mac)
{
	struct inlay_mmap_pci *pci;
	struct inlay_mmap made;
	struct inlay_blob head;
	uint32_t i, pdn = 0, own = 0;
	size_t maps;
	int err;

	if (!m)
		return -EINVAL;
	err = inlay_mmap_import_(&made, &head, memory, size, pd, blob, len, mac, INLAY_BLOB_PCI);
	if (err)
		return err;
	maps = inlay_mmap_size(1, head.ranges);
	if (size < maps + inlay_mmap_pci_bytes_(head.ranges))
		return -ENOBUFS;
	err = inlay_mmap_cap_pci(pd->context, &own);
	err = err ? err : own == head.vhca ? -EINVAL : inlay_pdn_from_pd(&pdn, pd);
	if (err)
		return err;
	pci = inlay_mmap_pci_init_((uint8_t *)memory + maps, head.ranges);
	for (i = 0; i < head.ranges && !err; i++) {
		err = inlay_mmap_pci_alias_(&pci->keys[i], &head, made.sources[i].of.keys.rkey, pd->context, pdn);
		made.sources[i].of.keys.lkey = pci->keys[i].key;
		made.sources[i].of.keys.rkey = INLAY_NO_KEY;
	}
	err = err ? err : inlay_mmap_publish_(&made) ? -EINVAL : 0;
	if (err) {
		inlay_mmap_pci_drop_(pci);
		return err;
	}
	made.pci_ = pci;
	made.pci_release_ = inlay_mmap_pci_release_;
	*m = made;
	return 0;
}

INLAY_CASTS_END_
#endif
