/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * counter.c: counters of completions: fi_cntr_*. One is bound to endpoints for sends, receives, reads or writes,
 * and counts all of these, also those of which a completion queue is not told. Reading one drives its
 * endpoints.
 *
 * What is to be counted at the sending side says so in the flags of its completion, so that endpoints without
 * counters pay nothing there.
 */
#include <poll.h>
#include "fabric.h"

struct counter {
	struct fid_cntr fid;
	struct domain *domain;
	uint64_t good, bad;
	struct endpoint **endpoints; /* each as often as it is bound */
	uint32_t users;
};

/* Which of an endpoint's counters. */
static unsigned int place(uint64_t flags)
{
	return flags & FI_READ ? COUNT_READ : flags & FI_WRITE ? COUNT_WRITE : flags & FI_RECV ? COUNT_RECV : COUNT_SEND;
}

uint32_t done_flags(const struct endpoint *ep, uint64_t kind, uint64_t flags)
{
	const bool quiet = ep->tx_selective && !(flags & FI_COMPLETION);

	if (ep->counters[place(kind)])
		return (uint32_t)kind | DONE_COUNT | (flags & SILENT ? DONE_MUTE : quiet ? DONE_QUIET : 0);
	return flags & SILENT ? 0 : (uint32_t)kind | (quiet ? DONE_ERROR : 0);
}

static void count(struct endpoint *ep, unsigned int at, int err)
{
	if (err)
		ep->counters[at]->bad++;
	else
		ep->counters[at]->good++;
}

APART void counter_tx(struct endpoint *ep, void *context, uint32_t flags, int err, uint8_t syndrome)
{
	const uint32_t kind = flags & ~(DONE_COUNT | DONE_QUIET | DONE_MUTE);

	count(ep, place(kind), err);
	if (err && !(flags & DONE_MUTE))
		cq_fail(ep->tx_cq, context, kind, err, syndrome);
	if (!err && !(flags & (DONE_MUTE | DONE_QUIET)))
		cq_add(ep->tx_cq, context, kind, 0, NULL, 0, 0, FI_ADDR_NOTAVAIL);
}

APART void counter_rx(struct endpoint *ep, int err)
{
	count(ep, COUNT_RECV, err);
}

/* ---- Binding ---- */

int counter_bind(struct endpoint *ep, struct fid *fid, uint64_t flags)
{
	static const uint64_t kinds[COUNTERS] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE};
	struct counter *c = container_of(fid, struct counter, fid.fid);
	struct endpoint **endpoints;
	unsigned int i;

	if (!flags || flags & ~(uint64_t)(FI_SEND | FI_RECV | FI_READ | FI_WRITE))
		return -FI_ENOSYS; /* nobody here sees what peers read and write */
	for (i = 0; i < COUNTERS; i++) {
		if (!(flags & kinds[i]))
			continue;
		if (ep->counters[i])
			return -FI_EINVAL;
		endpoints = (struct endpoint **)realloc(c->endpoints, (c->users + 1) * sizeof(*endpoints));
		if (!endpoints)
			return -FI_ENOMEM;
		c->endpoints = endpoints;
		endpoints[c->users++] = ep;
		ep->counters[i] = c;
	}
	return 0;
}

void counter_unbind(struct endpoint *ep)
{
	struct counter *c;
	unsigned int i;
	uint32_t k;

	for (i = 0; i < COUNTERS; i++) {
		c = ep->counters[i];
		for (k = 0; c && k < c->users; k++)
			if (c->endpoints[k] == ep) {
				c->endpoints[k] = c->endpoints[--c->users];
				break;
			}
	}
}

/* ---- What the application calls ---- */

static struct counter *counter_from(struct fid_cntr *fid)
{
	return container_of(fid, struct counter, fid);
}

static void look(struct counter *c, uint64_t *good, uint64_t *bad)
{
	uint32_t i;

	domain_enter(c->domain);
	for (i = 0; i < c->users; i++)
		progress(c->endpoints[i]);
	*good = c->good;
	*bad = c->bad;
	domain_leave(c->domain);
}

static uint64_t counter_read(struct fid_cntr *fid)
{
	uint64_t good, bad;

	look(counter_from(fid), &good, &bad);
	return good;
}

static uint64_t counter_readerr(struct fid_cntr *fid)
{
	uint64_t good, bad;

	look(counter_from(fid), &good, &bad);
	return bad;
}

/* *at becomes value, or value more. */
static int change(struct counter *c, uint64_t *at, uint64_t value, bool add)
{
	domain_enter(c->domain);
	*at = value + (add ? *at : 0);
	domain_leave(c->domain);
	return 0;
}

static int counter_add(struct fid_cntr *fid, uint64_t value)
{
	return change(counter_from(fid), &counter_from(fid)->good, value, true);
}

static int counter_set(struct fid_cntr *fid, uint64_t value)
{
	return change(counter_from(fid), &counter_from(fid)->good, value, false);
}

static int counter_adderr(struct fid_cntr *fid, uint64_t value)
{
	return change(counter_from(fid), &counter_from(fid)->bad, value, true);
}

static int counter_seterr(struct fid_cntr *fid, uint64_t value)
{
	return change(counter_from(fid), &counter_from(fid)->bad, value, false);
}

/* Looks again and again, after a while with naps: nothing wakes a counter. */
static int counter_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
	const uint64_t end = milliseconds() + (uint64_t)(timeout < 0 ? 0 : timeout);
	uint64_t good, bad, before;
	unsigned int looks;

	look(counter_from(fid), &good, &before);
	for (looks = 0; good < threshold; looks++) {
		look(counter_from(fid), &good, &bad);
		if (bad != before)
			return -FI_EAVAIL;
		if (timeout >= 0 && good < threshold && milliseconds() >= end)
			return -FI_ETIMEDOUT;
		if (looks > 10000)
			poll(NULL, 0, 1);
	}
	return 0;
}

static int counter_close(struct fid *fid)
{
	struct counter *c = container_of(fid, struct counter, fid.fid);

	if (c->users)
		return -FI_EBUSY;
	c->domain->users--;
	free(c->endpoints);
	free(c);
	return 0;
}

static struct fi_ops fid_ops = {
	sizeof(struct fi_ops), counter_close, no_bind, no_control, no_ops_open, no_tostr, no_ops_set,
};
static struct fi_ops_cntr counter_ops = {
	sizeof(struct fi_ops_cntr), counter_read, counter_readerr, counter_add, counter_set, counter_wait, counter_adderr,
	counter_seterr,
};

int counter_open(struct fid_domain *fid, struct fi_cntr_attr *attr, struct fid_cntr **out, void *context)
{
	struct counter *c;

	if (attr && (attr->events != FI_CNTR_EVENTS_COMP || (attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC)))
		return -FI_ENOSYS;
	c = (struct counter *)calloc(1, sizeof(*c));
	if (!c)
		return -FI_ENOMEM;
	c->domain = container_of(fid, struct domain, fid);
	c->domain->users++;
	c->fid.fid.fclass = FI_CLASS_CNTR;
	c->fid.fid.context = context;
	c->fid.fid.ops = &fid_ops;
	c->fid.ops = &counter_ops;
	*out = &c->fid;
	return 0;
}
