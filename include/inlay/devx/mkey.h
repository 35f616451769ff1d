/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/mkey.h: memory keys made by device commands: of a umem's memory, or of pieces that
 * other keys cover.
 *
 *   struct inlay_devx_mkey_attr attr;
 *   struct inlay_devx_mkey key;
 *
 *   memset(&attr, 0, sizeof(attr));
 *   attr.pdn = pdn;
 *   attr.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
 *   attr.addr = (uintptr_t)buffer;                     the address that posts will use
 *   attr.len = bytes;
 *   attr.memory.umem = &umem;
 *   inlay_devx_mkey_create(&key, ctx, &attr);          key.key is both lkey and rkey
 *   inlay_devx_mkey_destroy(&key);                     before its umem or its pieces' keys
 *
 * A key for UMR covers nothing until a send queue fills it (inlay_post_umr_list, queue/umr.h), as
 * often as the caller likes: inlay_devx_mkey_create_umr.
 *
 * A key over keys (KLM) covers n pieces in order as one range: piece i is sge[i].length bytes at
 * sge[i].addr of sge[i].lkey, and attr.addr is the address of the first. With attr.log_entity, all
 * pieces have 2^log_entity bytes (KSM), and the device finds one without a search.
 *
 * With IBV_ACCESS_REMOTE_ATOMIC, attr.addr and attr.len of a key of pieces are multiples of 8.
 * Relaxed ordering is optional, as with ibv_reg_mr: a device without it makes an ordered key. The
 * low byte of a key is attr.tag. Choose a new one each time, so that a destroyed key does not match
 * a newer one with the same index.
 *
 * Threads: as device commands.
 * Sources: devx/ifc.h; Linux, infiniband/hw/mlx5/devx.c and mr.c; UCX's ib_mlx5dv_md.c (KSM).
 */
#ifndef INLAY_DEVX_MKEY_H
#define INLAY_DEVX_MKEY_H /* a trial: names may change */

#include <inlay/devx/call.h>
#include <inlay/devx/ifc.h>
#include <inlay/devx/umem.h>
#include <inlay/wqe/umr.h>

#define INLAY_DEVX_PIECES 4078u /* the most that an inbox holds */

/* What to create. Zero it first. */
struct inlay_devx_mkey_attr {
	uint64_t addr;                  /* of the range, for posts and peers; of a umem a multiple of 4096 */
	uint64_t len;                   /* bytes, 1 at least */
	struct inlay_devx_place memory; /* for inlay_devx_mkey_create; on a page in the umem and for the CPU */
	uint32_t pdn;                   /* 24 bits */
	uint32_t access;                /* IBV_ACCESS_LOCAL_WRITE, _REMOTE_*, _RELAXED_ORDERING. Local reads always */
	uint32_t log_entity;            /* log2 of each piece's length, 12 .. 31; 0: each has its own */
	uint8_t tag;                    /* low byte of the key */
	uint8_t reserved[3];
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_create_mkey_in) + INLAY_DEVX_PIECES * INLAY_DS <=
		    INLAY_DEVX_BOX_MAX, "the inbox of the longest list");

/* The key and its object. */
struct inlay_devx_mkey {
	struct mlx5dv_devx_obj *obj;   /* NULL if not created */
	uint32_t key;                  /* lkey and rkey, host order */
	uint32_t reserved;
	struct inlay_devx_error error; /* of the last call on it */
};

/* Fills in what all kinds of keys share, and sends the command. */
INLAY_COLD int inlay_devx_mkey_send_(struct inlay_devx_mkey *key, struct ibv_context *ctx,
				     const struct inlay_devx_mkey_attr *attr, struct inlay_create_mkey_in *in,
				     size_t inlen)
{
	uint32_t writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC, access = attr->access;
	uint32_t all = IBV_ACCESS_LOCAL_WRITE | writes | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING;
	struct inlay_query_hca_cap_out cap;
	uint32_t index;
	int err;

	if (access & ~all || attr->pdn >> 24 || (access & writes && !(access & IBV_ACCESS_LOCAL_WRITE)))
		return inlay_devx_refuse_(&key->error, -EINVAL, "impossible access, or too large a PD number");
	inlay_mkc_set(&in->mkc, INLAY_MKC_LR, 1);
	inlay_mkc_set(&in->mkc, INLAY_MKC_LW, !!(access & IBV_ACCESS_LOCAL_WRITE));
	inlay_mkc_set(&in->mkc, INLAY_MKC_RR, !!(access & IBV_ACCESS_REMOTE_READ));
	inlay_mkc_set(&in->mkc, INLAY_MKC_RW, !!(access & IBV_ACCESS_REMOTE_WRITE));
	inlay_mkc_set(&in->mkc, INLAY_MKC_A, !!(access & IBV_ACCESS_REMOTE_ATOMIC));
	if (access & IBV_ACCESS_RELAXED_ORDERING) {
		/* A device without the capability refuses the bit. */
		err = inlay_devx_query_cap(ctx, INLAY_CAP_GENERAL, &cap, &key->error);
		if (err)
			return err;
		inlay_mkc_set(&in->mkc, INLAY_MKC_RELAXED_ORDERING_WRITE,
			      inlay_hca_cap_get(&cap.cap, INLAY_HCA_CAP_RELAXED_ORDERING_WRITE));
		inlay_mkc_set(&in->mkc, INLAY_MKC_RELAXED_ORDERING_READ,
			      inlay_hca_cap_get(&cap.cap, INLAY_HCA_CAP_RELAXED_ORDERING_READ) |
				      inlay_hca_cap_get(&cap.cap, INLAY_HCA_CAP_PCI_RELAXED_ORDERED_READ));
	}
	inlay_mkc_set(&in->mkc, INLAY_MKC_QPN, 0xffffff);
	inlay_mkc_set(&in->mkc, INLAY_MKC_MKEY_7_0, attr->tag);
	inlay_mkc_set(&in->mkc, INLAY_MKC_PD, attr->pdn);
	inlay_mkc_set(&in->mkc, INLAY_MKC_START_ADDR, attr->addr);
	inlay_mkc_set(&in->mkc, INLAY_MKC_LEN, attr->len);
	err = inlay_devx_make_(ctx, in, inlen, &key->obj, &index, &key->error);
	if (!err)
		key->key = index << 8 | attr->tag;
	return err;
}

/*
 * Creates a key of memory in a umem. Returns 0; -EINVAL for an impossible attribute, or memory
 * outside of its umem or not on a 4096-byte page (round memory and attr.addr down); -EPERM when the
 * key grants writing and the umem does not; else the negative errno of CREATE_MKEY or
 * QUERY_HCA_CAP. On failure key->obj is NULL.
 */
INLAY_COLD int inlay_devx_mkey_create(struct inlay_devx_mkey *key, struct ibv_context *ctx,
				      const struct inlay_devx_mkey_attr *attr)
{
	const struct inlay_devx_umem *umem;
	struct inlay_create_mkey_in in;
	uint64_t octwords;

	INLAY_CHECK(key && ctx && attr, "no argument is NULL");
	umem = attr->memory.umem;
	__builtin_memset(key, 0, sizeof(*key));
	octwords = ((attr->len + INLAY_DEVX_PAGE - 1) / INLAY_DEVX_PAGE + 1) / 2; /* 8 bytes per page */
	if (!umem || !umem->umem || !attr->len || attr->len > UINT64_MAX - attr->addr || octwords >> 32 ||
	    attr->memory.offset > umem->len || attr->len > umem->len - attr->memory.offset)
		return inlay_devx_refuse_(&key->error, -EINVAL, "the memory is not in its umem, or too long");
	if ((attr->addr | attr->memory.offset | (uintptr_t)umem->addr) % INLAY_DEVX_PAGE)
		return inlay_devx_refuse_(&key->error, -EINVAL, "the memory does not begin on a page");
	if (attr->access & IBV_ACCESS_LOCAL_WRITE && !(umem->access & IBV_ACCESS_LOCAL_WRITE))
		return inlay_devx_refuse_(&key->error, -EPERM, "the key grants writing and the umem does not");
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_CREATE_MKEY, 0);
	inlay_mkc_set(&in.mkc, INLAY_MKC_ACCESS_MODE_1_0, INLAY_MKEY_MTT);
	inlay_mkc_set(&in.mkc, INLAY_MKC_LOG_PAGE_SIZE, 12);
	inlay_mkc_set(&in.mkc, INLAY_MKC_TRANSLATIONS_OCTWORD_SIZE, octwords);
	inlay_create_mkey_in_set(&in, INLAY_CREATE_MKEY_IN_TRANSLATIONS_OCTWORD_ACTUAL_SIZE, octwords);
	inlay_create_mkey_in_set(&in, INLAY_CREATE_MKEY_IN_MKEY_UMEM_VALID, 1);
	inlay_create_mkey_in_set(&in, INLAY_CREATE_MKEY_IN_MKEY_UMEM_ID, umem->id);
	inlay_create_mkey_in_set(&in, INLAY_CREATE_MKEY_IN_MKEY_UMEM_OFFSET, attr->memory.offset);
	return inlay_devx_mkey_send_(key, ctx, attr, &in, sizeof(in));
}

/* Returns the bytes of the inbox for n pieces; 0 unless n is 1 .. INLAY_DEVX_PIECES. */
INLAY_COLD size_t inlay_devx_mkey_size(uint32_t n)
{
	return !n || n > INLAY_DEVX_PIECES ? 0 : sizeof(struct inlay_create_mkey_in) + n * INLAY_DS;
}

/*
 * Creates a key of n pieces that other keys cover; attr->memory is not used.
 *
 * sge        address and lkey, and length if log_entity is 0. The keys are of the same PD and
 * outlive
 *            this one; they may grant less than attr->access
 * box, size  scratch memory, aligned to 8, inlay_devx_mkey_size(n) bytes at least
 *
 * Returns 0; -EINVAL for an impossible attribute or number of pieces, or pieces shorter than
 * attr->len; -ENOBUFS when size is too small; else as inlay_devx_mkey_create. KSM needs
 * fixed_buffer_size.
 */
INLAY_COLD int inlay_devx_mkey_create_list(struct inlay_devx_mkey *key, struct ibv_context *ctx,
					   const struct inlay_devx_mkey_attr *attr, const struct ibv_sge *sge,
					   uint32_t n, void *box, size_t size)
{
	size_t bytes = inlay_devx_mkey_size(n);
	struct inlay_create_mkey_in *in = (struct inlay_create_mkey_in *)box;
	uint64_t total = 0;
	uint32_t i;

	INLAY_CHECK(key && ctx && attr && (sge || !n), "no argument is NULL");
	__builtin_memset(key, 0, sizeof(*key));
	if (!bytes || !attr->len || attr->len > UINT64_MAX - attr->addr || !box || (uintptr_t)box % 8 ||
	    (attr->log_entity && (attr->log_entity < 12 || attr->log_entity > 31)))
		return inlay_devx_refuse_(&key->error, -EINVAL, "an impossible number or length of pieces, or box");
	if (size < bytes)
		return inlay_devx_refuse_(&key->error, -ENOBUFS, "the box is too small: inlay_devx_mkey_size");
	inlay_devx_inbox_(in, bytes, INLAY_CMD_OP_CREATE_MKEY, 0);
	for (i = 0; i < n; i++) {
		total += attr->log_entity ? 1ULL << attr->log_entity : sge[i].length;
		inlay_wqe_klm((uint8_t *)(in + 1) + i * INLAY_DS, sge[i].addr, attr->log_entity ? 0 : sge[i].length,
			      sge[i].lkey);
	}
	if (total < attr->len)
		return inlay_devx_refuse_(&key->error, -EINVAL, "the pieces are shorter than the key");
	inlay_mkc_set(&in->mkc, INLAY_MKC_ACCESS_MODE_1_0, attr->log_entity ? INLAY_MKEY_KSM : INLAY_MKEY_KLM);
	inlay_mkc_set(&in->mkc, INLAY_MKC_LOG_PAGE_SIZE, attr->log_entity);
	inlay_mkc_set(&in->mkc, INLAY_MKC_TRANSLATIONS_OCTWORD_SIZE, n);
	inlay_create_mkey_in_set(in, INLAY_CREATE_MKEY_IN_TRANSLATIONS_OCTWORD_ACTUAL_SIZE, n);
	return inlay_devx_mkey_send_(key, ctx, attr, in, bytes);
}

/*
 * Creates a key without memory, for UMRs to fill: what mlx5dv_create_mkey makes.
 *
 * attr            addr, pdn, access and tag; they may change with each UMR
 * entries         room for as many pieces, 1 .. 65535; an interleaved layout takes one more
 * with_signature  room for block signatures (inlay_post_umr_sig); needs the capability sho
 *
 * Returns 0; -EINVAL for an impossible attribute or number; else as inlay_devx_mkey_create.
 */
INLAY_COLD int inlay_devx_mkey_create_umr(struct inlay_devx_mkey *key, struct ibv_context *ctx,
					  const struct inlay_devx_mkey_attr *attr, uint32_t entries, int with_signature)
{
	struct inlay_create_mkey_in in;

	INLAY_CHECK(key && ctx && attr, "no argument is NULL");
	__builtin_memset(key, 0, sizeof(*key));
	if (!entries || entries > 65535 || attr->len || attr->log_entity)
		return inlay_devx_refuse_(&key->error, -EINVAL, "an impossible number of entries, or a length");
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_CREATE_MKEY, 0);
	inlay_mkc_set(&in.mkc, INLAY_MKC_FREE, 1);
	inlay_mkc_set(&in.mkc, INLAY_MKC_UMR_EN, 1);
	inlay_mkc_set(&in.mkc, INLAY_MKC_ACCESS_MODE_1_0, INLAY_MKEY_KLM);
	inlay_mkc_set(&in.mkc, INLAY_MKC_TRANSLATIONS_OCTWORD_SIZE, inlay_round_up(entries, 4));
	if (with_signature) {
		inlay_mkc_set(&in.mkc, INLAY_MKC_BSF_EN, 1);
		inlay_mkc_set(&in.mkc, INLAY_MKC_BSF_OCTWORD_SIZE, 4);
	}
	return inlay_devx_mkey_send_(key, ctx, attr, &in, sizeof(in));
}

/* Destroys the key; the device refuses it afterwards. Returns 0, or a negative errno. */
INLAY_COLD int inlay_devx_mkey_destroy(struct inlay_devx_mkey *key)
{
	INLAY_CHECK(key, "no argument is NULL");
	return inlay_devx_drop_(&key->obj);
}

/* ---- PSVs: the running state of a signature ---- */

/* Two of them for each key with signatures: for memory and for the wire. */
struct inlay_devx_psv {
	struct mlx5dv_devx_obj *obj;   /* NULL if not created */
	uint32_t psv;                  /* its number */
	uint32_t reserved;
	struct inlay_devx_error error; /* of the last call on it */
};

/* Creates a PSV in a PD. Returns 0; -EINVAL for too large a PD number; else CREATE_PSV's errno. */
INLAY_COLD int inlay_devx_psv_create(struct inlay_devx_psv *psv, struct ibv_context *ctx, uint32_t pdn)
{
	struct inlay_create_psv_out out;
	struct inlay_cmd_in in;
	int err;

	INLAY_CHECK(psv && ctx, "no argument is NULL");
	__builtin_memset(psv, 0, sizeof(*psv));
	if (pdn >> 24)
		return inlay_devx_refuse_(&psv->error, -EINVAL, "too large a PD number");
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_CREATE_PSV, pdn);
	inlay_cmd_in_set(&in, INLAY_CMD_IN_NUM_PSV, 1);
	err = inlay_devx_create(ctx, &in, sizeof(in), &out, sizeof(out), &psv->obj, &psv->error);
	if (!err)
		psv->psv = (uint32_t)inlay_create_psv_out_get(&out, INLAY_CREATE_PSV_OUT_PSV0_INDEX);
	return err;
}

/* Destroys a PSV. Returns 0, or a negative errno. */
INLAY_COLD int inlay_devx_psv_destroy(struct inlay_devx_psv *psv)
{
	INLAY_CHECK(psv, "no argument is NULL");
	return inlay_devx_drop_(&psv->obj);
}

#endif
