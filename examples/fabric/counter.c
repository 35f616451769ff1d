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
	uint64_t values[2];       /* good, bad */
	struct endpoints endpoints; /* each as often as it is bound */
};

/* The counter that counts what an endpoint sends, reads or writes. */
static struct counter *counter_of(const struct endpoint *ep, uint64_t kind)
{
	return ep->counters[kind & FI_READ ? COUNT_READ : kind & FI_WRITE ? COUNT_WRITE : COUNT_SEND];
}

uint32_t done_flags(const struct endpoint *ep, uint64_t kind, uint64_t flags)
{
	const bool quiet = flags & SILENT || (ep->tx_selective && !(flags & FI_COMPLETION));

	if (counter_of(ep, kind))
		return (uint32_t)kind | DONE_COUNT | (quiet ? DONE_QUIET : 0);
	return (uint32_t)kind | (quiet ? DONE_ERROR : 0);
}

APART void counter_tx(struct endpoint *ep, void *context, uint32_t flags, int err, uint8_t syndrome)
{
	const uint32_t kind = flags & ~(DONE_ERROR | DONE_COUNT | DONE_QUIET);

	if (flags & DONE_COUNT)
		counter_of(ep, kind)->values[err != 0]++;
	if (err && !context && flags & (DONE_ERROR | DONE_QUIET)) {
		WARN(FI_LOG_EP_DATA, "an operation without a context is lost: %s\n", fi_strerror(err));
		context = ep->fid.fid.context;
	}
	if (err)
		cq_fail(ep->tx_cq, context, kind, err, syndrome);
	else if (!(flags & (DONE_ERROR | DONE_QUIET)))
		cq_add(ep->tx_cq, context, kind, 0, NULL, 0, 0, FI_ADDR_NOTAVAIL);
}

APART void counter_rx(struct endpoint *ep, int err)
{
	ep->counters[COUNT_RECV]->values[err != 0]++;
}

/* ---- Binding ---- */

int counter_bind(struct endpoint *ep, struct fid *fid, uint64_t flags)
{
	static const uint64_t kinds[COUNTERS] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE};
	struct counter *c = container_of(fid, struct counter, fid.fid);
	unsigned int i;

	if (!flags || flags & ~(uint64_t)(FI_SEND | FI_RECV | FI_READ | FI_WRITE))
		return -FI_ENOSYS; /* nobody here sees what peers read and write */
	for (i = 0; i < COUNTERS; i++) {
		if (!(flags & kinds[i]))
			continue;
		if (ep->counters[i])
			return -FI_EINVAL;
		if (endpoints_add(&c->endpoints, ep))
			return -FI_ENOMEM;
		ep->counters[i] = c;
	}
	return 0;
}

void counter_unbind(struct endpoint *ep)
{
	unsigned int i;

	for (i = 0; i < COUNTERS; i++)
		if (ep->counters[i])
			endpoints_remove(&ep->counters[i]->endpoints, ep);
}

/* ---- What the application calls ---- */

/* bad: 0: successes, 1: failures. */
static uint64_t value(struct fid_cntr *fid, int bad)
{
	struct counter *c = container_of(fid, struct counter, fid);
	uint64_t found;
	uint32_t i;

	enter(c->domain);
	for (i = 0; i < c->endpoints.count; i++)
		progress(c->endpoints.list[i]);
	found = c->values[bad];
	leave(c->domain, 0);
	return found;
}

#define READ(name, bad) \
	static uint64_t name(struct fid_cntr *fid) \
	{ \
		return value(fid, bad); \
	}

#define CHANGE(name, bad, how) \
	static int name(struct fid_cntr *fid, uint64_t by) \
	{ \
		struct counter *c = container_of(fid, struct counter, fid); \
\
		enter(c->domain); \
		c->values[bad] how by; \
		return (int)leave(c->domain, 0); \
	}

READ(counter_read, 0)
READ(counter_readerr, 1)
CHANGE(counter_add, 0, +=)
CHANGE(counter_set, 0, =)
CHANGE(counter_adderr, 1, +=)
CHANGE(counter_seterr, 1, =)

/* Looks again and again, after a while with naps: nothing wakes a counter. */
static int counter_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
	const uint64_t end = milliseconds() + (uint64_t)timeout, before = value(fid, 1);
	unsigned int looks;

	for (looks = 0; value(fid, 0) < threshold; looks++) {
		if (value(fid, 1) != before)
			return -FI_EAVAIL;
		if (timeout >= 0 && milliseconds() >= end)
			return -FI_ETIMEDOUT;
		if (looks > 10000)
			poll(NULL, 0, 1);
	}
	return 0;
}

static int counter_close(struct fid *fid)
{
	struct counter *c = container_of(fid, struct counter, fid.fid);

	if (c->endpoints.count)
		return -FI_EBUSY;
	c->domain->users--;
	free(c->endpoints.list);
	free(c);
	return 0;
}

static struct fi_ops fid_ops = FID_OPS(counter_close, no_bind, no_control);
static struct fi_ops_cntr counter_ops = {
	sizeof(struct fi_ops_cntr), counter_read, counter_readerr, counter_add, counter_set, counter_wait,
	counter_adderr, counter_seterr,
};

int counter_open(struct fid_domain *fid, struct fi_cntr_attr *attr, struct fid_cntr **out, void *context)
{
	struct counter *c;

	if (attr && (attr->events != FI_CNTR_EVENTS_COMP ||
		     (attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC)))
		return -FI_ENOSYS;
	c = (struct counter *)calloc(1, sizeof(*c));
	if (!c)
		return -FI_ENOMEM;
	c->domain = container_of(fid, struct domain, fid);
	c->domain->users++;
	fid_init(&c->fid.fid, FI_CLASS_CNTR, context, &fid_ops);
	c->fid.ops = &counter_ops;
	*out = &c->fid;
	return 0;
}
