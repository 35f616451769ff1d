/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * umem.c: memory that a program registers so that its commands can name it.
 *
 * The device does not pin it: the program must keep it mapped, as it keeps an MR.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "firmware.h"

static SD_OWN struct sd_numbers umems = { .max = SD_MAX_UMEM, .first = 1 };

static void discard(struct sd_umem *u)
{
	if (u->mapped)
		munmap(u->mapped, (size_t)(u->addr - (uint8_t *)u->mapped) + u->length);
	free(u);
}

int sd_umem_add(struct sd_umem *u)
{
	int err = sd_number_new(&umems, u, &u->id);

	if (err)
		discard(u);
	return err;
}

int sd_umem_free(struct sd_umem *u)
{
	if (u->refs)
		return EBUSY;
	umems.at[u->id] = NULL;
	discard(u);
	return 0;
}

uint8_t sd_umem_get(struct sd_devx_cmd *c, uint32_t id, uint64_t offset, uint64_t length, bool write, struct sd_umem **u, uint8_t **at)
{
	struct sd_umem *m = sd_number_get(&umems, id);

	*u = NULL;
	*at = NULL;
	if (!m || m->ctx != c->ctx)
		return SD_FAIL(c, SD_ST_BAD_RES);
	if (length && (offset > m->length || length > m->length - offset))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (length && write && !(m->access & IBV_ACCESS_LOCAL_WRITE))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	m->refs++;
	*u = m;
	*at = offset <= m->length ? m->addr + offset : NULL;
	return SD_ST_OK;
}

void sd_umem_put(struct sd_umem *u)
{
	if (u)
		u->refs--;
}
