/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * umr.c: UMR WQEs on keys that a command made to be filled (mlx5dv_create_mkey(), CREATE_MKEY with
 * umr_en).
 *
 *   +16   umr ctrl   flags, octwords of the translation, its offset or octwords of the BSF, mask
 *   +64   mkey       the new values of what the mask names; the rest does not count
 *   +128  inline     the translation, padded to 64 bytes, and the BSF, 64 bytes
 *         or         a data segment: where the translation lies
 *
 * A translation is a list of KLMs, one entry after the other; or a block that repeats: so many
 * rounds of so many entries, each with a stride. With an offset it replaces a part of a list. A
 * refusal is an error of the WQE, and then nothing has changed. The size of entities cannot be
 * changed.
 */
#include <stdlib.h>
#include <string.h>
#include "eng.h"

#define MALFORMED MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR
#define REFUSED MLX5_CQE_SYNDROME_MW_BIND_ERR
#define REPEAT 0x400u             /* where a KLM has its key */
#define CHECK_NOT_FREE (2 << 5)

/* Bits of the mask that mlx5dv.h does not name */
#define MASK_PD (1ull << 7)
#define MASK_RINVAL (1ull << 8)
#define MASK_LOCAL_READ (1ull << 17)
#define MASK_RELAXED (1ull << 25 | 1ull << 47)

/* One octword of a list */
static struct sd_klm entry(const uint8_t *at, bool repeats)
{
	struct mlx5_wqe_umr_repeat_ent_seg e;
	struct mlx5_wqe_umr_klm_seg k;

	_Static_assert(sizeof e == 16 && sizeof k == 16 && sizeof(struct mlx5_wqe_umr_repeat_block_seg) == 16, "octwords");
	memcpy(&e, at, sizeof e);
	memcpy(&k, at, sizeof k);
	if (repeats)
		return (struct sd_klm){ be16toh(e.byte_count), be32toh(e.memkey), be64toh(e.va), be16toh(e.stride) };
	return (struct sd_klm){ be32toh(k.byte_count), be32toh(k.mkey), be64toh(k.address), 0 };
}

/* Is it a right translation? *n entries; *round bytes of one that repeats, else 0 */
static bool list_ok(const struct sd_mr *mr, const uint8_t *at, uint32_t octs, uint64_t offset, uint32_t *n, uint64_t *round)
{
	struct mlx5_wqe_umr_repeat_block_seg rb;

	memcpy(&rb, at, sizeof rb);
	*n = octs;
	*round = 0;
	if (be32toh(rb.op) != REPEAT)
		return !offset || !mr->round;
	*n = be16toh(rb.num_ent);
	for (uint32_t i = 0; i < *n && i + 1 < octs; i++)
		*round += entry(at + 16 + 16 * i, true).length;
	return *n < octs && *round && *round == be32toh(rb.byte_count) && !offset;
}

static void set_list(struct sd_mr *mr, const uint8_t *at, uint64_t offset, uint32_t n, uint64_t round)
{
	struct mlx5_wqe_umr_repeat_block_seg rb;

	memcpy(&rb, at, sizeof rb);
	for (uint32_t i = 0; i < n; i++)
		mr->list[offset + i] = entry(at + 16 * (i + !!round), round);
	mr->entries = offset + n > mr->entries || !offset ? offset + n : mr->entries;
	mr->round = round;
	mr->rounds = be32toh(rb.repeat_count);
}

/* The translation, into memory of its own; NULL and the syndrome where it is not right */
static uint8_t *translation(struct rcq *q, bool here, uint32_t octs, const uint8_t **at, const uint8_t *end, uint8_t *synd)
{
	static struct iovec v[ENG_IOVS];
	uint8_t *list = malloc(octs * 16);
	struct mlx5_wqe_data_seg d;
	unsigned n;

	*synd = MALFORMED;
	if (!list)
		return NULL;
	if (here) {
		if (octs % 4 || end - *at < (ptrdiff_t)octs * 16)
			goto bad;
		memcpy(list, *at, octs * 16);
		*at += octs * 16;
		return list;
	}
	if (end - *at != sizeof d)
		goto bad;
	memcpy(&d, *at, sizeof d);
	*at += sizeof d;
	if (be32toh(d.byte_count) < octs * 16)
		goto bad;
	*synd = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
	if (mem_pieces(q->qp, be32toh(d.lkey), be64toh(d.addr), octs * 16, 0, v, &n) &&
	    mem_copy(&(struct iovec){ list, octs * 16 }, 1, v, n, octs * 16) == MEM_OK)
		return list;
bad:
	free(list);
	return NULL;
}

uint8_t umr_fill(struct rcq *q, struct sd_mr *mr, const uint8_t *at, const uint8_t *end)
{
#define RIGHT(name, verbs) \
	{ MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_##name, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_##name, IBV_ACCESS_##verbs }
	static const struct {
		uint64_t mask;
		uint8_t flag;
		uint32_t right;
	} rights[] = { RIGHT(LOCAL_WRITE, LOCAL_WRITE), RIGHT(REMOTE_READ, REMOTE_READ), RIGHT(REMOTE_WRITE, REMOTE_WRITE),
		       RIGHT(ATOMIC, REMOTE_ATOMIC) };
	uint64_t known = MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY | MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN |
			 MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR | MASK_PD | MASK_RINVAL |
			 MASK_LOCAL_READ | MASK_RELAXED, mask, offset, round = 0, start, length;
	struct mlx5_wqe_mkey_context_seg m;
	struct mlx5_wqe_umr_ctrl_seg u;
	struct sd_sig sig = mr->sig;
	uint32_t octs, bsf, qpn, flags, n = 0, more;
	struct sd_pd *pd = mr->pd;
	bool free_now = mr->kind == SD_KEY_FREE;
	uint8_t *list = NULL, synd = MALFORMED;

	if (end - at < (ptrdiff_t)(sizeof u + sizeof m))
		return MALFORMED;
	memcpy(&u, at, sizeof u);
	memcpy(&m, at + sizeof u, sizeof m);
	at += sizeof u + sizeof m;
	mask = be64toh(u.mkey_mask);
	octs = be16toh(u.klm_octowords);
	memcpy(&more, u.rsvd1, sizeof more);
	offset = u.flags & MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET ? (uint64_t)be32toh(more) << 16 | be16toh(u.translation_offset) : 0;
	bsf = u.flags & MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET ? 0 : be16toh(u.bsf_octowords);
	qpn = be32toh(m.qpn_mkey) >> 8;
	flags = be32toh(m.flags_pd);
	if (mr->sig.room)
		known |= MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR | MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE;
	for (int i = 0; i < 4; i++)
		known |= rights[i].mask;
	if (mask & ~known || u.flags & 7 || (u.flags & MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE && u.flags & CHECK_NOT_FREE))
		return MALFORMED;
	if ((u.flags & MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE && !free_now) || (u.flags & CHECK_NOT_FREE && free_now) ||
	    (u.flags & MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN && mr->qpn && mr->qpn != q->qp->qpn))
		return REFUSED;
	if (mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN && qpn != 0xffffff && qpn != q->qp->qpn)
		return MALFORMED;
	if (mask & MASK_PD) {
		pd = sd_pd_find(flags & 0xffffff);
		if (!pd || pd->ctx != mr->pd->ctx)
			return MALFORMED;
	}
	start = mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR ? be64toh(m.start_addr) : mr->iova;
	length = !(mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN) ? mr->length : flags >> 31 ? ~0ull - start : be64toh(m.len);
	if (start + length < start || octs > mr->room || offset > mr->room - octs)
		return MALFORMED;
	if (octs) {
		list = translation(q, u.flags & MLX5_WQE_UMR_CTRL_FLAG_INLINE, octs, &at, end, &synd);
		if (!list)
			return synd;
		if (!list_ok(mr, list, octs, offset, &n, &round))
			goto out;
	}
	if (bsf) {
		if (bsf != 4 || !mr->sig.room || !(u.flags & MLX5_WQE_UMR_CTRL_FLAG_INLINE) || end - at < 64 || !sig_parse(pd, at, &sig))
			goto out;
		at += 64;
	}
	if (at != end)
		goto out;
	/* Nothing is refused from here on */
	synd = 0;
	if (octs)
		set_list(mr, list, offset, n, round);
	for (int i = 0; i < 4; i++)
		if (mask & rights[i].mask)
			mr->access = (mr->access & ~rights[i].right) | (m.access_flags & rights[i].flag ? rights[i].right : 0);
	if (mask & MASK_LOCAL_READ)
		mr->no_local_read = !(m.access_flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ);
	mr->iova = start;
	mr->length = length;
	if (mask & MASK_RINVAL)
		mr->peer_invalidates = flags >> 24 & 1;
	if (mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN)
		mr->qpn = qpn == 0xffffff ? 0 : qpn;
	mr->pd->refs--;
	mr->pd = pd;
	mr->pd->refs++;
	if (mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE)
		mr->kind = m.free & MLX5_WQE_MKEY_CONTEXT_FREE ? SD_KEY_FREE : SD_KEY_KLM;
	if (mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY)
		mr->key = mr->lkey = (mr->key & ~0xffu) | (be32toh(m.qpn_mkey) & 0xff);
	if (mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE)
		sig.enabled = flags >> 30 & 1;
	if (mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR) {
		sig.armed |= sig.errors != (flags >> 26 & 1);
		sig.errors = flags >> 26 & 1;
	}
	mr->sig = sig;
out:
	free(list);
	return synd;
}

bool umr_invalid(struct sd_qp *qp, uint32_t key)
{
	struct sd_mr *mr = sd_mr_find(key, true);

	return !mr || !mr->peer_invalidates || mr->pd != qp->pd || mr->kind == SD_KEY_FREE;
}
