/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keys over other keys: mlx5dv_wr_mkey_configure with its setters, and mlx5dv_wr_mr_*, which are
 * the same in one call. The setters fill in a struct inlay_umr; the last one posts it.
 *
 * Signatures. libmlx5 keeps state for each key (its PSVs, past errors, whether they were reported)
 * and offers no way to read it. So the shim keeps its own copy, and answers mlx5dv_mkey_check for
 * keys that one of inlay's QPs has configured.
 */
#include <errno.h>
#include <stdlib.h>
#include "shim.h"

static void post(struct shim_qp *qp);

/* The change that a setter belongs to; NULL after an error. */
static struct shim_change *change_of(struct mlx5dv_qp_ex *dv)
{
	struct shim_qp *qp = shim_qp_of_dv(dv);

	if (!qp->change->key)
		shim_wr_fail(&qp->sq, EINVAL);
	return qp->sq.err ? NULL : qp->change;
}

/* The end of a setter. */
static void set(struct mlx5dv_qp_ex *dv, int err)
{
	struct shim_qp *qp = shim_qp_of_dv(dv);

	if (err)
		shim_wr_fail(&qp->sq, err);
	else if (!--qp->change->setters)
		post(qp);
}

static void wr_mkey_configure(struct mlx5dv_qp_ex *dv, struct mlx5dv_mkey *mkey, uint8_t num_setters,
			      struct mlx5dv_mkey_conf_attr *attr)
{
	struct shim_qp *qp = shim_qp_of_dv(dv);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp->qp);
	struct shim_change *c = qp->change;
	struct shim_key *key = shim_find(mkey);

	c->key = NULL;
	/* The flag: lists lie in the WQE. */
	if (!(ex->wr_flags & IBV_SEND_INLINE) || attr->comp_mask || !key || key->has_crypto ||
	    attr->conf_flags & ~(uint32_t)MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR)
		shim_wr_fail(&qp->sq, EOPNOTSUPP);
	if (!shim_wr_room(&qp->sq, ex, 1))
		return;
	key->used = true;
	if (attr->conf_flags & MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR) {
		key->state = SHIM_SIG_NONE;
		key->attr.mem = key->attr.wire = NULL;
	} else if (key->state == SHIM_SIG_NEW) {
		key->state = SHIM_SIG_SET;
	}
	__builtin_memset(&c->umr, 0, sizeof(c->umr));
	c->umr.mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY;
	c->umr.tag = (uint8_t)mkey->lkey;
	c->key = key;
	c->setters = num_setters;
	if (!num_setters)
		post(qp);
}

static void wr_set_mkey_access_flags(struct mlx5dv_qp_ex *dv, uint32_t access)
{
	const uint32_t all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			     IBV_ACCESS_REMOTE_ATOMIC;
	struct shim_change *c = change_of(dv);
	bool twice = c && c->umr.mask & INLAY_UMR_MASK_ACCESS;

	if (!c)
		return;
	c->umr.mask |= INLAY_UMR_MASK_ACCESS;
	c->umr.access = access;
	set(dv, twice || access & ~all ? EINVAL : 0);
}

/* For both layouts: parts, or else sge. */
static void set_layout(struct mlx5dv_qp_ex *dv, uint32_t rounds, uint16_t n, const struct mlx5dv_mr_interleaved *parts,
		       const struct ibv_sge *sge)
{
	const struct shim_sq *sq = &shim_qp_of_dv(dv)->sq;
	struct shim_change *c = change_of(dv);
	uint32_t i;

	if (!c)
		return;
	if (n > c->key->entries || (n + (parts ? 1u : 0u)) * INLAY_DS > sq->max_inline + 4) {
		set(dv, ENOMEM);
		return;
	}
	if (c->umr.list || c->umr.interleaved) {
		set(dv, EINVAL);
		return;
	}
	for (i = 0; i < n; i++) {
		if (parts)
			c->interleaved[i] = parts[i];
		else
			c->list[i] = sge[i];
		c->umr.len += parts ? (uint64_t)parts[i].bytes_count * rounds : sge[i].length;
	}
	c->umr.mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN;
	c->umr.entries = n;
	c->umr.rounds = rounds;
	if (parts)
		c->umr.interleaved = c->interleaved;
	else
		c->umr.list = c->list;
	set(dv, 0);
}

static void wr_set_mkey_layout_list(struct mlx5dv_qp_ex *dv, uint16_t n, const struct ibv_sge *sge)
{
	set_layout(dv, 0, n, NULL, sge);
}

static void wr_set_mkey_layout_interleaved(struct mlx5dv_qp_ex *dv, uint32_t rounds, uint16_t n,
					   const struct mlx5dv_mr_interleaved *parts)
{
	set_layout(dv, rounds, n, parts, NULL);
}

static void wr_mr_list(struct mlx5dv_qp_ex *dv, struct mlx5dv_mkey *mkey, uint32_t access, uint16_t n,
		       struct ibv_sge *sge)
{
	struct mlx5dv_mkey_conf_attr attr = {};

	wr_mkey_configure(dv, mkey, 2, &attr);
	wr_set_mkey_access_flags(dv, access);
	set_layout(dv, 0, n, NULL, sge);
}

static void wr_mr_interleaved(struct mlx5dv_qp_ex *dv, struct mlx5dv_mkey *mkey, uint32_t access, uint32_t rounds,
			      uint16_t n, struct mlx5dv_mr_interleaved *parts)
{
	struct mlx5dv_mkey_conf_attr attr = {};

	wr_mkey_configure(dv, mkey, 2, &attr);
	wr_set_mkey_access_flags(dv, access);
	set_layout(dv, rounds, n, parts, NULL);
}

/* ---- signatures ---- */

/* A domain's copy, in the key. */
static void copy_domain(struct shim_key *key, unsigned int which, const struct mlx5dv_sig_block_domain *domain)
{
	key->domain[which] = *domain;
	if (domain->sig_type == MLX5DV_SIG_TYPE_CRC) {
		key->sig[which].crc = *domain->sig.crc;
		key->domain[which].sig.crc = &key->sig[which].crc;
	} else {
		key->sig[which].dif = *domain->sig.dif;
		key->domain[which].sig.dif = &key->sig[which].dif;
	}
}

static void wr_set_mkey_sig_block(struct mlx5dv_qp_ex *dv, const struct mlx5dv_sig_block_attr *attr)
{
	const uint32_t psv[2] = {0, 0};
	struct shim_change *c = change_of(dv);
	struct mlx5dv_sig_block_attr plain;
	struct inlay_bsf bsf;

	if (!c)
		return;
	/* Checks the domains. libmlx5 checks the copy mask at the end. */
	plain = *attr;
	plain.flags &= ~(uint32_t)MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK;
	if (!c->key->has_sig || c->key->state == SHIM_SIG_NEW || inlay_bsf_block(&plain, psv, &bsf)) {
		set(dv, EINVAL);
		return;
	}
	c->key->attr = *attr;
	c->key->attr.mem = attr->mem ? &c->key->domain[0] : NULL;
	c->key->attr.wire = attr->wire ? &c->key->domain[1] : NULL;
	if (attr->mem)
		copy_domain(c->key, 0, attr->mem);
	if (attr->wire)
		copy_domain(c->key, 1, attr->wire);
	c->key->state = SHIM_SIG_NEW;
	set(dv, 0);
}

/* What else a key with signatures changes. Returns whether its PSVs must be set too. */
static bool add_signature(struct shim_key *key, struct inlay_umr *umr)
{
	bool counted = key->counted;

	if (key->state < SHIM_SIG_SET)
		umr->mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE;
	if (!counted) {
		umr->mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR;
		umr->flags |= key->errors & 1 ? 0 : INLAY_UMR_SIG_ERR;
		key->counted = true;
	}
	return key->state == SHIM_SIG_NEW || (!counted && key->state == SHIM_SIG_SET);
}

/*
 * Posts the change, alone or with the one or two WQEs that set the key's PSVs. The last WQE is the
 * one that completes.
 */
static void post(struct shim_qp *qp)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp->qp);
	struct shim_change *c = qp->change;
	struct shim_sq *sq = &qp->sq;
	struct shim_key *key = c->key;
	uint32_t index = inlay_sq_index(&sq->q), flags = sq->flags, psv[2], wqes = 1, i;
	bool psvs = key->has_sig && add_signature(key, &c->umr);
	int err;

	c->key = NULL;
	sq->fence = INLAY_FENCE_INITIATOR_SMALL;
	if (!psvs) {
		shim_wr_posted(sq, ex, inlay_post_umr(&sq->q, key->key->lkey, &c->umr, flags), index, IBV_WC_DRIVER1);
		return;
	}
	wqes += !!key->attr.mem + !!key->attr.wire;
	psv[0] = key->psv[0].psv;
	psv[1] = key->psv[1].psv;
	if (key->state == SHIM_SIG_NEW &&
	    (inlay_umr_ds(&c->umr) - 8) * INLAY_DS + sizeof(struct inlay_bsf) > sq->max_inline + 4)
		shim_wr_fail(sq, ENOMEM);
	if (!shim_wr_room(sq, ex, wqes))
		return;
	if (key->state == SHIM_SIG_NEW) {
		err = inlay_post_umr_sig(&sq->q, key->key->lkey, &c->umr, &key->attr, psv, flags);
	} else {
		err = inlay_post_umr(&sq->q, key->key->lkey, &c->umr, flags & ~(uint32_t)INLAY_SIGNALED);
		for (i = 0; i < 2 && !err; i++) {
			const struct mlx5dv_sig_block_domain *domain = i ? key->attr.wire : key->attr.mem;
			uint32_t quiet = !i && key->attr.wire ? INLAY_SIGNALED : 0;
			uint32_t fence = flags >> 29 ? 0 : INLAY_FENCE_INITIATOR_SMALL;

			if (domain)
				err = inlay_post_set_psv(&sq->q, psv[i], inlay_psv_value(domain),
							 (flags & ~quiet) | fence);
		}
	}
	/* The PSVs' WQEs have one WQEBB each. */
	shim_wr_posted(sq, ex, err, index, IBV_WC_DRIVER1);
	for (i = 1; i < wqes && !err; i++)
		shim_wr_posted(sq, ex, 0, inlay_sq_index(&sq->q) - (wqes - i), IBV_WC_DRIVER1);
	sq->fence = INLAY_FENCE_INITIATOR_SMALL;
}

static void wr_set_mkey_crypto(struct mlx5dv_qp_ex *dv, const struct mlx5dv_crypto_attr *attr)
{
	(void)attr;
	shim_wr_fail(&shim_qp_of_dv(dv)->sq, EOPNOTSUPP);
}

void shim_key_install(struct mlx5dv_qp_ex *dv)
{
	dv->wr_mr_list = wr_mr_list;
	dv->wr_mr_interleaved = wr_mr_interleaved;
	dv->wr_mkey_configure = wr_mkey_configure;
	dv->wr_set_mkey_access_flags = wr_set_mkey_access_flags;
	dv->wr_set_mkey_layout_list = wr_set_mkey_layout_list;
	dv->wr_set_mkey_layout_interleaved = wr_set_mkey_layout_interleaved;
	dv->wr_set_mkey_sig_block = wr_set_mkey_sig_block;
	dv->wr_set_mkey_crypto = wr_set_mkey_crypto;
}

/* ---- creating, destroying and checking keys ---- */

EXPORT struct mlx5dv_mkey *mlx5dv_create_mkey(struct mlx5dv_mkey_init_attr *attr)
{
	struct mlx5dv_mkey *mkey = NEXT(mlx5dv_create_mkey)(attr);
	struct shim_key *key = mkey && shim_find(attr->pd->context) ? calloc(1, sizeof(*key)) : NULL;
	uint32_t pdn = 0;

	if (!key)
		return mkey;
	key->kind = SHIM_KEY;
	key->key = mkey;
	key->entries = attr->max_entries;
	key->has_sig = attr->create_flags & MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE;
	key->has_crypto = attr->create_flags & MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO;
	if (key->has_sig && (inlay_pdn_from_pd(&pdn, attr->pd) ||
			     inlay_devx_psv_create(&key->psv[0], attr->pd->context, pdn) ||
			     inlay_devx_psv_create(&key->psv[1], attr->pd->context, pdn))) {
		inlay_devx_psv_destroy(&key->psv[0]);
		NEXT(mlx5dv_destroy_mkey)(mkey);
		free(key);
		errno = ENOMEM;
		return NULL;
	}
	pthread_mutex_lock(&shim_lock);
	shim_insert(mkey, key);
	pthread_mutex_unlock(&shim_lock);
	return mkey;
}

EXPORT int mlx5dv_destroy_mkey(struct mlx5dv_mkey *mkey)
{
	struct shim_key *key = shim_find(mkey);
	int err;

	pthread_mutex_lock(&shim_lock);
	if (key)
		shim_remove(mkey);
	err = NEXT(mlx5dv_destroy_mkey)(mkey);
	if (err && key)
		shim_insert(mkey, key);
	pthread_mutex_unlock(&shim_lock);
	if (err || !key)
		return err;
	inlay_devx_psv_destroy(&key->psv[0]);
	inlay_devx_psv_destroy(&key->psv[1]);
	free(key);
	return 0;
}

/* Records what a polled CQE says about a transfer through a key. */
static const struct inlay_sig_error *told;

static void note(const void *object, void *value)
{
	struct shim_key *key = value;

	if (key->kind != SHIM_KEY || key->key != object || (key->key->lkey ^ told->key) >> 8)
		return;
	key->error = *told;
	key->wrong = true;
	key->counted = false;
	key->errors++;
}

void shim_key_error(const struct mlx5_cqe64 *cqe)
{
	struct inlay_sig_error error;

	pthread_mutex_lock(&shim_lock);
	told = &error;
	if (inlay_cqe_sig_error(cqe, &error))
		shim_each(note);
	pthread_mutex_unlock(&shim_lock);
}

EXPORT int _mlx5dv_mkey_check(struct mlx5dv_mkey *mkey, struct mlx5dv_mkey_err *err_info, size_t err_info_size)
{
	struct shim_key *key = shim_find(mkey);
	const struct mlx5dv_sig_block_domain *domain;
	struct mlx5dv_sig_err *sig = &err_info->err.sig;
	uint32_t shift = 32;
	uint64_t mask = UINT64_MAX;

	if (!key || !key->has_sig || !key->used)
		return NEXT(_mlx5dv_mkey_check)(mkey, err_info, err_info_size);
	err_info->err_type = MLX5DV_MKEY_NO_ERR;
	if (!key->wrong)
		return 0;
	domain = key->error.memory ? key->attr.mem : key->attr.wire;
	if (!domain)
		return EINVAL;
	err_info->err_type = (enum mlx5dv_mkey_err_type)key->error.kind;
	sig->offset = key->error.offset;
	if (key->error.kind == MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG) {
		shift = 0;
		mask = UINT32_MAX;
	} else if (key->error.kind == MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG) {
		mask = UINT16_MAX;
	} else if (domain->sig_type == MLX5DV_SIG_TYPE_T10DIF) {
		shift = 48;
	} else if (domain->sig.crc->type == MLX5DV_SIG_CRC_TYPE_CRC64_XP10) {
		shift = 0;
	}
	sig->expected_value = key->error.found >> shift & mask;
	sig->actual_value = key->error.computed >> shift & mask;
	key->wrong = false;
	return 0;
}
