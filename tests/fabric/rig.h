/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rig.h: endpoints of the libfabric provider for a test: several in one process, all of them polled
 * together, their completions kept in order until the test asks for them.
 *
 * The provider is the one that was built with the same checks as the test. It is used through libfabric
 * only.
 */
#ifndef TESTS_FABRIC_RIG_H
#define TESTS_FABRIC_RIG_H

#include "common.h"
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define VERSION FI_VERSION(1, 17)
#define SIDES 16
#define LOG 16384
#define NAME 48             /* bytes of an address */
#define EAGER 8192          /* the default of FI_INLAY_EAGER */

/* A completion, good or bad */
struct done {
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err; /* err.err 0: a good one */
	fi_addr_t source;
};

struct side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	uint8_t name[NAME];
	struct done log[LOG];
	size_t first, last;
};

static struct side *sides[SIDES]; /* that are open, and polled */

/* ---- Opening and closing ---- */

UNUSED static bool over_dc(void)
{
	const char *transport = getenv("FI_INLAY_TRANSPORT");

	return transport && !strcmp(transport, "dc");
}

static void use_provider(void)
{
	const char *b = getenv("B");
	char path[4096];

	snprintf(path, sizeof(path), "%s%s", b ? b : "build", INLAY_CHECKED ? "/checked" : "");
	setenv("FI_PROVIDER_PATH", path, 1);
}

UNUSED static struct fi_info *hints_for(uint64_t caps)
{
	struct fi_info *hints = fi_allocinfo();

	assert_non_null(hints);
	hints->caps = caps;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->fabric_attr->prov_name = strdup("inlay");
	return hints;
}

/* Frees hints. */
UNUSED static struct fi_info *info_for(struct fi_info *hints)
{
	struct fi_info *info = NULL;

	must(fi_getinfo(VERSION, NULL, NULL, 0, hints, &info));
	fi_freeinfo(hints);
	return info;
}

/* An endpoint of what info describes, which is freed with it. bind: flags of the CQ */
static void side_open(struct side *s, struct fi_info *info, uint64_t bind)
{
	struct fi_cq_attr cq;
	struct fi_av_attr av;
	size_t len = NAME;
	int i;

	memset(s, 0, sizeof(*s));
	memset(&cq, 0, sizeof(cq));
	memset(&av, 0, sizeof(av));
	cq.format = FI_CQ_FORMAT_TAGGED;
	s->info = info;
	must(fi_fabric(info->fabric_attr, &s->fabric, NULL));
	must(fi_domain(s->fabric, info, &s->domain, NULL));
	assert_int_equal((uintptr_t)s->domain % 64, 0); /* the registration cache in it is aligned */
	must(fi_av_open(s->domain, &av, &s->av, NULL));
	must(fi_cq_open(s->domain, &cq, &s->cq, NULL));
	must(fi_endpoint(s->domain, info, &s->ep, s));
	must(fi_ep_bind(s->ep, &s->av->fid, 0));
	must(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV | bind));
	must(fi_enable(s->ep));
	must(fi_getname(&s->ep->fid, s->name, &len));
	assert_int_equal(len, NAME);
	for (i = 0; sides[i]; i++)
		assert_true(i < SIDES - 1);
	sides[i] = s;
}

static void side_close(struct side *s)
{
	int i;

	for (i = 0; sides[i] != s; i++)
		assert_true(i < SIDES - 1);
	for (; i < SIDES - 1; i++)
		sides[i] = sides[i + 1];
	must(fi_close(&s->ep->fid));
	must(fi_close(&s->cq->fid));
	must(fi_close(&s->av->fid));
	must(fi_close(&s->domain->fid));
	must(fi_close(&s->fabric->fid));
	fi_freeinfo(s->info);
}

/* The address of a name in a side's vector */
static fi_addr_t insert(struct side *s, const void *name)
{
	fi_addr_t addr = FI_ADDR_NOTAVAIL;

	assert_int_equal(fi_av_insert(s->av, name, 1, &addr, 0, NULL), 1);
	return addr;
}

/* ---- Completions ---- */

static void poll_side(struct side *s)
{
	struct done *d = &s->log[s->last % LOG];
	ssize_t n;

	memset(d, 0, sizeof(*d));
	n = fi_cq_readfrom(s->cq, &d->e, 1, &d->source);
	if (n == -FI_EAVAIL) {
		assert_int_equal(fi_cq_readerr(s->cq, &d->err, 0), 1);
		assert_true(d->err.err > 0);
		d->e.op_context = d->err.op_context;
		d->e.flags = d->err.flags;
		n = 1;
	}
	if (n == -FI_EAGAIN)
		return;
	assert_int_equal(n, 1);
	s->last++;
	assert_true(s->last - s->first < LOG);
}

static void poll_all(void)
{
	int i;

	for (i = 0; i < SIDES && sides[i]; i++)
		poll_side(sides[i]);
	step();
}

/* The next completion of a side */
UNUSED static struct done *next(struct side *s)
{
	double end = now() + DEADLINE;

	while (s->first == s->last) {
		poll_all();
		if (now() > end)
			fail_msg("no completion came");
	}
	return &s->log[s->first++ % LOG];
}

/* The completion of this context, whichever others came before; these stay in the log */
static struct done *done_of(struct side *s, const void *context)
{
	double end = now() + DEADLINE;
	struct done found;
	size_t i, k;

	for (i = s->first;;) {
		for (; i != s->last; i++) {
			if (s->log[i % LOG].e.op_context != context)
				continue;
			found = s->log[i % LOG];
			for (k = i; k != s->first; k--)
				s->log[k % LOG] = s->log[(k - 1) % LOG];
			s->log[s->first % LOG] = found;
			return &s->log[s->first++ % LOG];
		}
		poll_all();
		if (now() > end)
			fail_msg("no completion of this operation came");
	}
}

/* A good one */
UNUSED static struct done *good(struct side *s, const void *context)
{
	struct done *d = done_of(s, context);

	if (d->err.err)
		fail_msg("failed: %s, %s", fi_strerror(d->err.err),
			 fi_cq_strerror(s->cq, d->err.prov_errno, NULL, NULL, 0));
	return d;
}

/* A bad one, for this reason */
UNUSED static struct done *bad(struct side *s, const void *context, int err)
{
	struct done *d = done_of(s, context);

	assert_int_equal(d->err.err, err);
	return d;
}

/* Nothing has come, and nothing comes */
UNUSED static void nothing(struct side *s)
{
	int i;

	for (i = 0; i < 20; i++) {
		poll_all();
		usleep(500);
	}
	assert_int_equal(s->first, s->last);
}

/* A call that may want to be tried again */
#define again(call)                                               \
	({                                                        \
		double end_ = now() + DEADLINE;                   \
		ssize_t r_;                                       \
		while ((r_ = (call)) == -FI_EAGAIN) {             \
			poll_all();                               \
			if (now() > end_)                         \
				fail_msg("again and again: %s", #call); \
		}                                                 \
		r_;                                               \
	})

/* ---- Two that know each other ---- */

struct pair {
	struct side a, b;
	fi_addr_t to_b, to_a;
};

static struct pair pair;

UNUSED static void pair_open(uint64_t caps, uint64_t bind)
{
	side_open(&pair.a, info_for(hints_for(caps)), bind);
	side_open(&pair.b, info_for(hints_for(caps)), bind);
	pair.to_b = insert(&pair.a, pair.b.name);
	pair.to_a = insert(&pair.b, pair.a.name);
}

UNUSED static void pair_close(void)
{
	side_close(&pair.a);
	side_close(&pair.b);
}

#endif
