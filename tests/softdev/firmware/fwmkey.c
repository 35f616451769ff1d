/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fwmkey.c: keys that commands make: of a umem, of lists of other keys, and aliases of the keys of
 * another function.
 *
 * They are entries of the table of all keys (mr.c). A list may name keys that do not exist: the
 * entry is looked up at each access. So an access through an alias fails after the key that it
 * names is gone.
 */
#include <stdlib.h>
#include <string.h>
#include "firmware.h"

#define MKC 0x80u                 /* bit at which the context lies in the boxes */
#define LIST 0x110u               /* byte at which the translation begins */
#define OCTWORD 16u
#define MIN_PAGE 12u              /* log */
#define MAX_PAGE 31u
#define MAX_LIST 65536u           /* entries: log_max_klm_list_size */
#define BSF 4u                    /* octwords */

enum { PA, MTT, KLM, KSM };

static uint32_t mkc_access(const uint8_t *mkc)
{
	return (sd_get(mkc, 0x14, 1) ? IBV_ACCESS_LOCAL_WRITE : 0) | (sd_get(mkc, 0x13, 1) ? IBV_ACCESS_REMOTE_READ : 0) |
	       (sd_get(mkc, 0x12, 1) ? IBV_ACCESS_REMOTE_WRITE : 0) | (sd_get(mkc, 0x11, 1) ? IBV_ACCESS_REMOTE_ATOMIC : 0);
}

/* Encryption and keys for one QP are not claimed; umems are never on demand. A BSF is one for signatures */
static bool mkc_ok(const uint8_t *mkc)
{
	bool bsf = sd_get(mkc, 0x61, 1);

	return sd_get(mkc, 0x20, 24) == 0xffffff && sd_clear(mkc, 0x0, 1) && sd_clear(mkc, 0x1a, 2) && sd_clear(mkc, 0x62, 1) &&
	       sd_get(mkc, 0x100, 32) == (bsf ? BSF : 0) && (!bsf || sd_get(mkc, 0x10, 1)) && sd_clear(mkc, 0x1e0, 32);
}

/* Pages of a umem. Where the first byte lies in its page, both sides must agree */
static uint8_t mtt(struct sd_devx_cmd *c, const uint8_t *mkc, struct host_mr *hm)
{
	unsigned log = sd_get(mkc, 0x1da, 6);
	uint64_t page, pages;
	uint8_t status;

	if (sd_get(mkc, 0x60, 1) || !hm->m.length || log < MIN_PAGE || log > MAX_PAGE)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	page = 1ull << log;
	pages = (hm->m.iova % page + hm->m.length + page - 1) / page;
	if (sd_get(mkc, 0x1a0, 32) < (pages + 1) / 2)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	status = sd_umem_get(c, sd_get(c->in, 0x320, 32), sd_get(c->in, 0x340, 64), hm->m.length,
			     hm->m.access & ~(uint32_t)IBV_ACCESS_REMOTE_READ, &hm->umem, &hm->m.addr);
	if (status)
		return status;
	if (((uintptr_t)hm->m.addr ^ hm->m.iova) % page) {
		sd_umem_put(hm->umem);
		hm->umem = NULL;
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	}
	return SD_ST_OK;
}

static uint8_t list(struct sd_devx_cmd *c, const uint8_t *mkc, struct host_mr *hm)
{
	uint32_t n = sd_get(c->in, 0x300, 32);
	uint64_t reach = 0;

	if (n > sd_get(mkc, 0x1a0, 32) || n > MAX_LIST)
		return SD_FAIL(c, n > MAX_LIST ? SD_ST_LIMIT : SD_ST_BAD_PARAM);
	if (c->inlen < LIST + (size_t)n * OCTWORD)
		return SD_FAIL(c, SD_ST_BAD_INLEN);
	hm->m.room = hm->m.kind == SD_KEY_KLM && sd_get(mkc, 0x10, 1) ? sd_get(mkc, 0x1a0, 32) : 0;
	if (hm->m.room > MAX_LIST)
		return SD_FAIL(c, SD_ST_LIMIT);
	hm->m.list = calloc(hm->m.room > n ? hm->m.room : n ? n : 1, sizeof(*hm->m.list));
	if (!hm->m.list)
		return SD_FAIL(c, SD_ST_NO_RES);
	hm->m.entries = n;
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *e = c->in + LIST + i * OCTWORD;

		hm->m.list[i] = (struct sd_klm){ sd_get(e, 0, 32), sd_get(e, 0x20, 32), sd_get(e, 0x40, 64), 0 };
		reach += hm->m.list[i].length;
	}
	if (sd_get(mkc, 0x60, 1))
		return SD_ST_OK;
	if (hm->m.kind == SD_KEY_KSM ? hm->m.length && (hm->m.length - 1) >> hm->m.log_entity >= n : reach < hm->m.length)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	return SD_ST_OK;
}

static uint8_t destroy(void *obj)
{
	return sd_mr_free(obj) ? SD_ST_BUSY : SD_ST_OK;
}

static void forget(struct host_mr *hm)
{
	sd_umem_put(hm->umem);
	free(hm->m.list);
	free(hm);
}

static uint8_t fill(struct sd_devx_cmd *c, struct host_mr *hm)
{
	const uint8_t *mkc = c->in + MKC / 8;
	unsigned mode = sd_get(mkc, 0x3, 3) << 2 | sd_get(mkc, 0x16, 2);
	bool unfilled = sd_get(mkc, 0x1, 1);
	struct sd_mr *m = &hm->m;

	m->pd = sd_devx_pd(c, sd_get(mkc, 0x68, 24));
	if (!m->pd)
		return SD_FAIL(c, SD_ST_BAD_RES);
	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!sd_clear(c->in, 0x60, 1) || !sd_clear(c->in, 0x62, 30) || !mkc_ok(mkc) || mode < MTT || mode > KSM)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	m->iova = sd_get(mkc, 0x80, 64);
	m->length = sd_get(mkc, 0x60, 1) ? ~0ull - m->iova : sd_get(mkc, 0xc0, 64);
	m->access = mkc_access(mkc);
	m->no_local_read = !sd_get(mkc, 0x15, 1);
	m->kind = mode == KLM ? SD_KEY_KLM : mode == KSM ? SD_KEY_KSM : SD_KEY_MTT;
	if (m->iova + m->length < m->iova)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (mode == KSM) {
		m->log_entity = sd_get(mkc, 0x1da, 6);
		if (m->log_entity < MIN_PAGE)
			return SD_FAIL(c, SD_ST_BAD_PARAM);
	}
	/* What atomics are done through begins and ends where the largest of them may */
	if (mode != MTT && m->access & IBV_ACCESS_REMOTE_ATOMIC && (m->iova % 8 || (m->length % 8 && !sd_get(mkc, 0x60, 1))))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (mode != MTT && sd_get(c->in, 0x61, 1))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	m->sig.room = m->sig.enabled = sd_get(mkc, 0x61, 1);
	m->sig.armed = true;
	m->peer_invalidates = sd_get(mkc, 0x67, 1);
	/* What is to be filled by a UMR is a list: of pages and of KSMs this device knows none */
	if (unfilled) {
		m->room = sd_get(mkc, 0x1a0, 32);
		if (!sd_get(mkc, 0x10, 1) || mode != KLM || !m->room || m->room > MAX_LIST)
			return SD_FAIL(c, SD_ST_BAD_PARAM);
		m->kind = SD_KEY_FREE;
		m->list = calloc(m->room, sizeof(*m->list));
		return m->list ? SD_ST_OK : SD_FAIL(c, SD_ST_NO_RES);
	}
	return mode == MTT ? mtt(c, mkc, hm) : list(c, mkc, hm);
}

static uint8_t mkey_create(struct sd_devx_cmd *c)
{
	struct host_mr *hm = calloc(1, sizeof(*hm));
	uint8_t status = hm ? fill(c, hm) : SD_FAIL(c, SD_ST_NO_RES);

	if (status)
		goto free;
	memcpy(hm->mkc, c->in + MKC / 8, sizeof(hm->mkc));
	hm->command = true;
	if (sd_mr_add(&hm->m, sd_get(hm->mkc, 0x38, 8))) {
		status = SD_FAIL(c, SD_ST_LIMIT);
		goto free;
	}
	sd_set(c->out, 0x48, 24, hm->m.key >> 8);
	status = sd_devx_made(c, hm->m.key >> 8, hm, destroy);
	if (status)
		sd_mr_free(hm);
	return status;
free:
	if (hm)
		forget(hm);
	return status;
}

static struct host_mr *by_index(uint32_t index)
{
	struct sd_mr *mr = sd_mr_index(index << 8);

	return mr && mr->key >> 8 == index ? sd_container(mr, struct host_mr, m) : NULL;
}

static uint8_t mkey_query(struct sd_devx_cmd *c)
{
	struct host_mr *hm = by_index(sd_get(c->in, 0x48, 24));
	uint8_t e[2 * OCTWORD] = { 0 };

	if (!hm || !hm->command || hm->m.pd->ctx != c->ctx)
		return SD_FAIL(c, SD_ST_BAD_RES);
	if (!sd_clear(c->in, 0x60, 32))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	sd_devx_answer(c, MKC / 8, hm->mkc, sizeof(hm->mkc));
	for (uint32_t i = 0; i < 2 && i < hm->m.entries; i++) {
		sd_set(e + i * OCTWORD, 0, 32, hm->m.list[i].length);
		sd_set(e + i * OCTWORD, 0x20, 32, hm->m.list[i].key);
		sd_set(e + i * OCTWORD, 0x40, 64, hm->m.list[i].addr);
	}
	sd_devx_answer(c, LIST, e, sizeof(e));
	return SD_ST_OK;
}

/* ---- aliases ---- */

#define TYPE_MKEY 0xff01
#define ALIAS 0x10u               /* byte at which the alias' context lies, of 64 bytes */

static uint8_t permit(struct sd_devx_cmd *c)
{
	struct host_mr *hm;

	if (sd_get(c->in, 0x90, 16) != TYPE_MKEY)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	hm = sd_get(c->in, 0xa0, 32) <= 0xffffff ? by_index(sd_get(c->in, 0xa0, 32)) : NULL;
	if (!hm || !hm->command || hm->m.pd->ctx != c->ctx)
		return SD_FAIL(c, SD_ST_BAD_RES);
	if (hm->m.kind != SD_KEY_KLM && hm->m.kind != SD_KEY_KSM)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	memcpy(hm->secret, c->in + 0x100 / 8, sizeof(hm->secret));
	hm->permitted = true;
	return SD_ST_OK;
}

static void alias_answer(struct sd_devx_cmd *c, const uint8_t *context)
{
	uint8_t a[64];

	memcpy(a, context, sizeof(a));
	sd_set(a, 0x1d, 3, 0);
	memset(a + 0x80 / 8, 0, 32);
	sd_devx_answer(c, ALIAS, a, sizeof(a));
}

static uint8_t general_create(struct sd_devx_cmd *c)
{
	const uint8_t *a = c->in + ALIAS;
	struct host_mr *to, *hm;
	struct sd_pd *pd;
	uint8_t status;

	if (c->op_mod != TYPE_MKEY)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!sd_get(c->in, 0x60, 1) || !sd_clear(c->in, 0x61, 31) || !sd_clear(c->in, 0x40, 32) || sd_get(a, 0, 16) == c->ctx->dev)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	pd = sd_devx_pd(c, sd_get(a, 0x180, 32) & 0xffffff);
	to = sd_get(a, 0x20, 32) <= 0xffffff ? by_index(sd_get(a, 0x20, 32)) : NULL;
	/* The caller must not learn whether it is absent, not permitted or permitted with another key */
	if (!pd || !to || !to->permitted || to->m.pd->ctx->dev != sd_get(a, 0, 16) ||
	    memcmp(to->secret, a + 0x80 / 8, sizeof(to->secret)) != 0)
		return SD_FAIL(c, SD_ST_BAD_RES);
	hm = calloc(1, sizeof(*hm));
	if (!hm)
		return SD_FAIL(c, SD_ST_NO_RES);
	hm->m = (struct sd_mr){ .pd = pd, .kind = SD_KEY_ALIAS, .alias_key = to->m.key, .alias_serial = to->m.serial };
	memcpy(hm->mkc, a, sizeof(hm->mkc));
	if (sd_mr_add(&hm->m, 0)) {
		free(hm);
		return SD_FAIL(c, SD_ST_LIMIT);
	}
	sd_set(c->out, 0x40, 32, hm->m.key >> 8);
	alias_answer(c, a);
	status = sd_devx_made(c, hm->m.key >> 8, hm, destroy);
	if (status)
		sd_mr_free(hm);
	return status;
}

static uint8_t general_query(struct sd_devx_cmd *c)
{
	struct host_mr *hm = by_index(sd_get(c->in, 0x40, 32) & 0xffffff);

	if (c->op_mod != TYPE_MKEY)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (!hm || hm->m.kind != SD_KEY_ALIAS || hm->m.pd->ctx != c->ctx)
		return SD_FAIL(c, SD_ST_BAD_RES);
	sd_set(c->out, 0x40, 32, hm->m.key >> 8);
	alias_answer(c, hm->mkc);
	return SD_ST_OK;
}

const struct sd_devx_op sd_fw_mkey_ops[] = {
	{ 0x200, 0x110, 0x10, mkey_create },
	{ 0x201, 0x10, 0x50, mkey_query },
	{ 0xa00, 0x50, 0x10, general_create },
	{ 0xa02, 0x10, 0x10, general_query },
	{ 0xb16, 0x40, 0x10, permit },
	{ 0 },
};
