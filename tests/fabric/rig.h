/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rig.h: endpoints of the libfabric provider, several in one process, polled together. Their completions
 * stay in order until the test asks for them.
 *
 * The provider is the one that was built with the same checks as the test.
 */
#ifndef TESTS_FABRIC_RIG_H
#define TESTS_FABRIC_RIG_H

#include "common.h"
#include <sys/prctl.h>
#include <sys/wait.h>
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
	struct fid_cntr *counters[4]; /* of the test's, bound to ep */
	uint8_t name[NAME];
	size_t first, last;
	struct done log[LOG];
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
	setenv("FI_VERBS_DEVICE_NAME", "none", 1); /* libfabric's own provider tries out the largest queues of each */
	setenv("FI_INLAY_PEERS", "64", 0); /* else each endpoint has a CQ of 8 MiB, most of the time that opening one takes */
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

/* All but enabling it: an endpoint of what info describes, which is freed with it. bind: flags of the CQ. 0 or an errno */
static int side_try(struct side *s, struct fi_info *info, uint64_t bind, enum fi_wait_obj wait)
{
	struct fi_cq_attr cq = {};
	struct fi_av_attr av = {};
	int err;

	memset(s, 0, offsetof(struct side, log));
	cq.format = FI_CQ_FORMAT_TAGGED;
	cq.wait_obj = wait;
	s->info = info;
	if ((err = fi_fabric(info->fabric_attr, &s->fabric, NULL)) || (err = fi_domain(s->fabric, info, &s->domain, NULL)) ||
	    (err = fi_av_open(s->domain, &av, &s->av, NULL)) || (err = fi_cq_open(s->domain, &cq, &s->cq, NULL)) ||
	    (err = fi_endpoint(s->domain, info, &s->ep, s)) || (err = fi_ep_bind(s->ep, &s->av->fid, 0)))
		return err;
	assert_int_equal((uintptr_t)s->domain % 64, 0); /* the registration cache in it is aligned */
	return fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV | bind);
}

static void side_make(struct side *s, struct fi_info *info, uint64_t bind, enum fi_wait_obj wait)
{
	must(side_try(s, info, bind, wait));
}

static void side_enable(struct side *s)
{
	size_t len = NAME;
	int i;

	must(fi_enable(s->ep));
	must(fi_getname(&s->ep->fid, s->name, &len));
	assert_int_equal(len, NAME);
	for (i = 0; sides[i]; i++)
		assert_true(i < SIDES - 1);
	sides[i] = s;
}

UNUSED static void side_open(struct side *s, struct fi_info *info, uint64_t bind)
{
	side_make(s, info, bind, FI_WAIT_NONE);
	side_enable(s);
}

/* Polled again, or no longer */
UNUSED static void looks(struct side *s, bool yes)
{
	int i;

	for (i = 0; sides[i] && sides[i] != s; i++)
		assert_true(i < SIDES - 1);
	if (yes)
		sides[i] = s;
	for (; !yes && i < SIDES - 1; i++)
		sides[i] = sides[i + 1];
}

static void side_close(struct side *s)
{
	struct fid *const made[] = {s->ep ? &s->ep->fid : NULL,
		s->counters[0] ? &s->counters[0]->fid : NULL, s->counters[1] ? &s->counters[1]->fid : NULL,
		s->counters[2] ? &s->counters[2]->fid : NULL, s->counters[3] ? &s->counters[3]->fid : NULL,
		s->cq ? &s->cq->fid : NULL, s->av ? &s->av->fid : NULL, s->domain ? &s->domain->fid : NULL,
		s->fabric ? &s->fabric->fid : NULL};

	looks(s, false);
	for (size_t i = 0; i < ARRAY(made); i++)
		if (made[i])
			must(fi_close(made[i]));
	fi_freeinfo(s->info);
}

/* The address of a name in a side's vector */
static fi_addr_t insert(struct side *s, const void *name)
{
	fi_addr_t addr = FI_ADDR_NOTAVAIL;

	assert_int_equal(fi_av_insert(s->av, name, 1, &addr, 0, NULL), 1);
	return addr;
}

/* ---- Other processes ---- */

struct process {
	pid_t pid;
	int to, from;       /* its input, and its descriptor 3 */
};

/* This program again, with two settings of its own, if they have a name */
UNUSED static struct process spawn(const char *arg, const char *name, const char *value, const char *name2, const char *value2)
{
	struct process p;
	int down[2], up[2];

	must(pipe(down));
	must(pipe(up));
	p.pid = fork();
	if (!p.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(down[0], 0);
		dup2(up[1], 3);
		if (name)
			setenv(name, value, 1);
		if (name2)
			setenv(name2, value2, 1);
		execl("/proc/self/exe", "again", arg, NULL);
		_exit(127);
	}
	close(down[0]);
	close(up[1]);
	p.to = down[1];
	p.from = up[0];
	return p;
}

/* Its exit status */
UNUSED static int reap(struct process *p)
{
	int status;

	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
	close(p->to);
	close(p->from);
	return status;
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

/* The provider looks at the time once in so many polls, and the device has nothing new for most of them */
static void poll_all(void)
{
	static unsigned polls;

	for (int i = 0; i < SIDES && sides[i]; i++)
		poll_side(sides[i]);
	if (++polls % 16 == 0)
		step();
}

/* Until something holds */
#define wait_polling(what) await_by(poll_all(), what)

/* The next completion of a side */
UNUSED static struct done *next(struct side *s)
{
	wait_polling(s->first != s->last);
	return &s->log[s->first++ % LOG];
}

static bool holds_done(const struct side *s, const void *context, size_t *i)
{
	for (*i = s->first; *i != s->last && s->log[*i % LOG].e.op_context != context; ++*i)
		;
	return *i != s->last;
}

/* The completion of this context, whichever others came before; these stay in the log */
static struct done *done_of(struct side *s, const void *context)
{
	struct done found;
	size_t i;

	wait_polling(holds_done(s, context, &i));
	found = s->log[i % LOG];
	for (; i != s->first; i--)
		s->log[i % LOG] = s->log[(i - 1) % LOG];
	s->log[s->first % LOG] = found;
	return &s->log[s->first++ % LOG];
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

/* A call that may want to be tried again */
#define again(call)                                          \
	({                                                   \
		ssize_t r_;                                  \
		wait_polling((r_ = (call)) != -FI_EAGAIN);   \
		r_;                                          \
	})

/* A test that failed leaves what it had open: the next one begins without. */
UNUSED static int tear_down(UNUSED void **state)
{
	memset(sides, 0, sizeof(sides));
	return softdev_present() ? softdev_fault(NULL) : 0;
}

#define T(test) cmocka_unit_test_teardown(test, tear_down)
#define CASE(test) TEST_WITH(test, NULL, tear_down)

/* ---- Messages ---- */

#define PING 0x7ffffull /* a tag that tests do not use otherwise */

/* A message gets through, which needs a connection. Returns whose it was. */
static fi_addr_t through(struct side *x, fi_addr_t to, struct side *y, fi_addr_t from)
{
	static uint64_t number;
	uint64_t came = 0;
	char there;

	number++;
	must(again(fi_trecv(y->ep, &came, sizeof(came), NULL, from, PING, 0, &there)));
	must(again(fi_tinject(x->ep, &number, sizeof(number), to, PING)));
	from = good(y, &there)->source;
	assert_int_equal(came, number);
	return from;
}

/* There and back */
UNUSED static void ping(struct side *x, fi_addr_t to_y, struct side *y, fi_addr_t to_x)
{
	through(x, to_y, y, to_x);
	through(y, to_x, x, to_y);
}

UNUSED static ssize_t tsend_flags(struct side *s, fi_addr_t to, const void *buf, size_t len, uint64_t tag, void *context,
				  uint64_t flags)
{
	struct iovec iov = {(void *)(uintptr_t)buf, len};
	struct fi_msg_tagged m = {&iov, NULL, 1, to, tag, 0, context, 0};

	return fi_tsendmsg(s->ep, &m, flags);
}

/* ---- Two that know each other ---- */

struct pair {
	struct side a, b;
	fi_addr_t to_b, to_a;
};

static struct pair pair;

/* FI_TAGGED, and what caps adds */
UNUSED static void pair_open_as(uint64_t caps, uint64_t bind, enum fi_threading threading, enum fi_wait_obj wait)
{
	struct side *both[] = {&pair.a, &pair.b};
	struct fi_info *hints;

	for (int i = 0; i < 2; i++) {
		hints = hints_for(FI_TAGGED | caps);
		hints->domain_attr->threading = threading;
		side_make(both[i], info_for(hints), bind, wait);
		side_enable(both[i]);
	}
	pair.to_b = insert(&pair.a, pair.b.name);
	pair.to_a = insert(&pair.b, pair.a.name);
}

UNUSED static void pair_open(uint64_t caps, uint64_t bind)
{
	pair_open_as(caps, bind, FI_THREAD_DOMAIN, FI_WAIT_NONE);
}

UNUSED static void pair_close(void)
{
	side_close(&pair.a);
	side_close(&pair.b);
}

/* What was under way between the two has come, and has told nobody anything that was not asked for. */
UNUSED static void nothing(void)
{
	for (int i = 0; i < 2; i++)
		ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
	assert_int_equal(pair.a.first, pair.a.last);
	assert_int_equal(pair.b.first, pair.b.last);
}

#endif
