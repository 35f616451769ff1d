/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tables.c: the lock, the tables of what has a number, and the program's memory.
 *
 * Regions and windows are entries of one table. An rkey is index << 16 | slot << 8 | variant. Each
 * new region or window takes the next variant; a bind changes the variant to that of the work
 * request. The lkey of a region of verbs has LOCAL instead of the slot. An adapter uses one number
 * for both; here a program that swaps the two finds out. The index comes first, so that keys are
 * small numbers as on an adapter: libmlx5 reads flags from the first bits of an rkey when the FIN
 * of a rendezvous is in a CQE.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base.h"

#define PAGE 4096ull
#define LOCAL 0xe5u               /* no slot */

pthread_mutex_t sd_lock = PTHREAD_MUTEX_INITIALIZER;
pid_t sd_self;
SD_OWN unsigned sd_slot;

/* Numbers, and the objects in the order in which they were made */
struct table {
	struct sd_numbers n;
	struct sd_entry *first, **tail;
};
static SD_OWN struct table qps = { .n = { .max = SD_MAX_QP, .first = 0x40 }, .tail = &qps.first };
static SD_OWN struct table cqs = { .n = { .max = SD_MAX_CQ, .first = 0x40 }, .tail = &cqs.first };
static SD_OWN struct table srqs = { .n = { .max = SD_MAX_SRQ, .first = 0x40 }, .tail = &srqs.first };
static SD_OWN struct table uars = { .n = { .max = SD_MAX_UAR, .first = 1 }, .tail = &uars.first };
static SD_OWN struct sd_numbers mrs = { .max = SD_MAX_MR, .first = 1 }, pds = { .max = SD_MAX_PD, .first = 1 };
static uint8_t variant[SD_MAX_MR];
SD_OWN struct sd_numbers sd_domains[SD_DOMAINS] = {
	[SD_XRC_DOMAIN] = { .max = SD_MAX_DOMAIN, .first = 1 }, [SD_TRANSPORT_DOMAIN] = { .max = SD_MAX_DOMAIN, .first = 1 },
	[SD_PSV] = { .max = SD_MAX_DOMAIN, .first = 1 }, [SD_COUNTERS] = { .max = 256, .first = 1 },
};

_Static_assert(LOCAL >= SD_MAX_SLOTS && LOCAL <= 0xff, "no rkey has it");
_Static_assert(!offsetof(struct sd_qp, entry) && !offsetof(struct sd_cq, entry) && !offsetof(struct sd_srq, entry) &&
	       !offsetof(struct sd_uar, entry),
	       "an entry is the object");

void sd_once(uint32_t key, const char *fmt, ...)
{
	static uint32_t seen[64];
	static unsigned n;
	va_list ap;

	for (unsigned i = 0; i < n; i++)
		if (seen[i] == key)
			return;
	if (n == sizeof(seen) / sizeof(seen[0]))
		return;
	seen[n++] = key;
	fputs("softdev: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

int sd_number_new(struct sd_numbers *n, void *obj, uint32_t *number)
{
	if (!n->at) {
		n->at = calloc(n->max, sizeof(*n->at));
		if (!n->at)
			return ENOMEM;
		n->next = n->first;
	}
	for (uint32_t tries = n->first; tries < n->max; tries++) {
		uint32_t i = n->next;

		n->next = i + 1 < n->max ? i + 1 : n->first;
		if (!n->at[i]) {
			n->at[i] = obj;
			*number = i;
			return 0;
		}
	}
	return ENOMEM;
}

void *sd_number_get(const struct sd_numbers *n, uint32_t i)
{
	return n->at && i < n->max ? n->at[i] : NULL;
}

static int add(struct table *t, void *obj, uint32_t *number)
{
	int err = sd_number_new(&t->n, obj, number);

	if (err)
		return err;
	*t->tail = obj;
	t->tail = &(*t->tail)->next;
	return 0;
}

static void drop(struct table *t, void *obj, uint32_t number)
{
	struct sd_entry **at;

	for (at = &t->first; *at != obj; at = &(*at)->next)
		;
	*at = (*at)->next;
	if (!*at)
		t->tail = at;
	t->n.at[number] = NULL;
}

static void *next(const struct table *t, const void *obj)
{
	return obj ? ((const struct sd_entry *)obj)->next : t->first;
}

/* ---- QPs, CQs, SRQs ---- */

int sd_qp_add(struct sd_qp *qp)
{
	int err = add(&qps, qp, &qp->qpn);

	qp->qpn |= sd_slot << 16;
	return err;
}

void sd_qp_drop(struct sd_qp *qp)
{
	drop(&qps, qp, qp->qpn & 0xffff);
}

struct sd_qp *sd_qp_find(uint32_t qpn)
{
	struct sd_qp *qp = sd_number_get(&qps.n, qpn & 0xffff);

	return qp && qp->qpn == qpn ? qp : NULL;
}

struct sd_qp *sd_qp_next(struct sd_qp *qp)
{
	return next(&qps, qp);
}

int sd_cq_add(struct sd_cq *cq)
{
	return add(&cqs, cq, &cq->cqn);
}

void sd_cq_drop(struct sd_cq *cq)
{
	drop(&cqs, cq, cq->cqn);
}

struct sd_cq *sd_cq_find(uint32_t cqn)
{
	return sd_number_get(&cqs.n, cqn);
}

struct sd_cq *sd_cq_next(struct sd_cq *cq)
{
	return next(&cqs, cq);
}

int sd_srq_add(struct sd_srq *srq)
{
	int err = add(&srqs, srq, &srq->srqn);

	srq->srqn |= sd_slot << 16;
	return err;
}

void sd_srq_drop(struct sd_srq *srq)
{
	drop(&srqs, srq, srq->srqn & 0xffff);
}

struct sd_srq *sd_srq_find(uint32_t srqn)
{
	struct sd_srq *srq = sd_number_get(&srqs.n, srqn & 0xffff);

	return srq && srq->srqn == srqn ? srq : NULL;
}

struct sd_srq *sd_srq_next(struct sd_srq *srq)
{
	return next(&srqs, srq);
}

/* ---- regions and windows ---- */

struct sd_mr *sd_mr_find(uint32_t key, bool remote)
{
	struct sd_mr *mr = sd_number_get(&mrs, key >> 16);

	/* No command sets the low byte of an alias, so it does not count */
	return mr && !(((remote ? mr->key : mr->lkey) ^ key) >> (mr->kind == SD_KEY_ALIAS ? 8 : 0)) ? mr : NULL;
}

struct sd_mr *sd_mr_index(uint32_t key)
{
	return sd_number_get(&mrs, key >> 16);
}

void sd_mr_new_key(struct sd_mr *mr, uint32_t index, bool command)
{
	mr->key = index << 16 | sd_slot << 8 | ++variant[index];
	mr->lkey = mr->mw ? 0 : command ? mr->key : (mr->key & ~0xff00u) | LOCAL << 8;
}

int sd_mr_add(struct sd_mr *mr, int low)
{
	static uint64_t serial;
	uint32_t index;
	int err = sd_number_new(&mrs, mr, &index);

	if (err)
		return err;
	mr->pd->refs++;
	mr->serial = ++serial;
	if (low >= 0)
		variant[index] = low - 1;
	sd_mr_new_key(mr, index, low >= 0);
	return 0;
}

void sd_mr_drop(struct sd_mr *mr)
{
	mrs.at[mr->key >> 16] = NULL;
	variant[mr->key >> 16] = mr->key;
	mr->pd->refs--;
}

/* ---- PDs, PSVs, counters ---- */

int sd_pd_new(struct sd_ctx *ctx, struct sd_pd **made)
{
	struct sd_pd *pd = calloc(1, sizeof(*pd));
	int err = pd ? sd_number_new(&pds, pd, &pd->pdn) : ENOMEM;

	if (err) {
		free(pd);
		return err;
	}
	pd->ctx = ctx;
	*made = pd;
	return 0;
}

int sd_pd_free(struct sd_pd *pd)
{
	if (pd->refs)
		return EBUSY;
	pds.at[pd->pdn] = NULL;
	free(pd);
	return 0;
}

struct sd_pd *sd_pd_find(uint32_t pdn)
{
	return sd_number_get(&pds, pdn);
}

struct sd_psv *sd_psv_find(uint32_t number)
{
	struct sd_domain *d = sd_number_get(&sd_domains[SD_PSV], number);

	return d ? &d->psv : NULL;
}

struct sd_counters *sd_counters(const struct sd_qp *qp)
{
	struct sd_domain *d = qp->counter_set ? sd_number_get(&sd_domains[SD_COUNTERS], qp->counter_set) : NULL;

	return d && d->ctx == qp->ctx ? &d->counters : NULL;
}

/* ---- doorbell pages ---- */

int sd_uar_new(struct sd_ctx *ctx, struct sd_uar **made)
{
	struct sd_uar *u = calloc(1, sizeof(*u));
	int err = u ? add(&uars, u, &u->page_id) : ENOMEM;

	if (err) {
		free(u);
		return err;
	}
	u->st_dev = ctx->st_dev;
	u->st_ino = ctx->st_ino;
	u->offset = (SD_UAR_FIRST_PAGE + u->page_id) * PAGE;
	u->ctx = ctx;
	u->refs = 1;
	u->page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ctx->fd, (off_t)u->offset);
	if (u->page != MAP_FAILED) {
		*made = u;
		return 0;
	}
	err = errno;
	drop(&uars, u, u->page_id);
	free(u);
	return err;
}

struct sd_uar *sd_uar_get(const struct sd_ctx *ctx, uint32_t page_id)
{
	struct sd_uar *u = sd_number_get(&uars.n, page_id);

	if (!u || u->ctx != ctx)
		return NULL;
	u->refs++;
	return u;
}

void sd_uar_put(struct sd_uar *u)
{
	if (--u->refs)
		return;
	drop(&uars, u, u->page_id);
	/* A later page of this number must start empty, as it would come from another context's file anyway */
	memset(u->page, 0, PAGE);
	munmap(u->page, PAGE);
	free(u);
}

struct sd_uar *sd_uar_next(struct sd_uar *u)
{
	return next(&uars, u);
}

/* ---- memory of the program ---- */

/*
 * The kernel pins pages and refuses what is not there; this asks the map. Lines are "start-end rwxp
 * ...", in order
 */
bool sd_mem_ok(uint64_t addr, uint64_t len, bool write)
{
	uint64_t at = addr, end = addr + len;
	char *line = NULL;
	size_t size = 0;
	FILE *f;

	if (!addr || !len || end < addr)
		return false;
	f = fopen("/proc/self/maps", "re");
	if (!f)
		return true;
	while (at < end && getline(&line, &size, f) > 0) {
		unsigned long long from, to;
		char perm[5];

		if (sscanf(line, "%llx-%llx %4s", &from, &to, perm) != 3 || to <= at)
			continue;
		if (from > at || perm[0] != 'r' || (write && perm[1] != 'w'))
			break;
		at = to;
	}
	free(line);
	fclose(f);
	return at >= end;
}
