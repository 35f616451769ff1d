/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * limits.c: what is full answers -FI_EAGAIN or waits, what fails leaves nothing behind, what does not exist
 * says so: rings, queues, tables, set-up calls, settings, threads.
 */
#include <pthread.h>
#include "rig.h"
#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_rma.h>

#define CAPS (FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE)
#define MANY 3000
#define LARGE (256u << 10)
#define UNEXPECTED 250 /* more than there are bounce buffers at first, by less than FI_INLAY_RECEIVES */
#define REGIONS 8 /* FI_INLAY_CACHE_REGIONS: the least */

static uint8_t out[LARGE], in[64][LARGE];

/* ---- Full ---- */

/* More than the ring holds, of every protocol, while the receiver does not look: then all of it arrives in order. */
static void test_full_ring(void **state)
{
	static const size_t lens[] = {8, 100, 1000, EAGER};
	static int contexts[MANY];
	uint32_t i, k, sent, refused, value;
	struct done *d;
	int there;

	(void)state;
	pair_open(CAPS, 0);
	must(fi_trecv(pair.b.ep, in[0], 8, NULL, pair.to_a, 1, 0, &there));
	must(again(fi_tinject(pair.a.ep, out, 8, pair.to_b, 1)));
	good(&pair.b, &there);
	for (k = 0; k < ARRAY(lens); k++) {
		sides[1] = NULL; /* b does not look */
		for (sent = refused = 0; refused < 3 && sent < MANY; sent++) {
			ssize_t r;

			memcpy(out, &sent, 4);
			while ((r = fi_tsend(pair.a.ep, out, lens[k], NULL, pair.to_b, 2, &contexts[sent])) ==
			       -FI_EAGAIN && refused < 3) {
				refused++;
				for (i = 0; i < 50; i++)
					poll_all();
			}
			if (r)
				break;
		}
		assert_int_equal(refused, 3);
		assert_true(sent >= 30 && sent < MANY);
		sides[1] = &pair.b;
		for (i = 0; i < sent; i++) {
			must(fi_trecv(pair.b.ep, in[0], EAGER, NULL, pair.to_a, 2, 0, &there));
			d = good(&pair.b, &there);
			memcpy(&value, in[0], 4);
			assert_int_equal(value, i);
			assert_int_equal(d->e.len, lens[k]);
		}
		for (i = 0; i < sent; i++)
			good(&pair.a, &contexts[i]);
	}
	pair_close();
}

/* A post refused with -FI_EAGAIN makes progress: whoever only tries again, and reads no queue, gets through. */
static void test_refused(void **state)
{
	uint32_t i;

	(void)state;
	pair_open(CAPS, 0);
	sides[0] = &pair.b;
	sides[1] = NULL; /* nobody polls a */
	for (i = 0; i < MANY; i++)
		must(again(fi_tinject(pair.a.ep, out, 8, pair.to_b, 1)));
	sides[1] = &pair.a;
	pair_close();
}

/* More large messages at a time than the ring has room for reads, in either order. */
static void test_many_large(void **state)
{
	static int here[64], there[64];
	uint32_t i, early;

	(void)state;
	pair_open(CAPS, 0);
	for (early = 0; early < 2; early++) {
		memset(in, 0, sizeof(in));
		fill(out, LARGE, early);
		for (i = 0; i < 64 && early; i++)
			must(fi_trecv(pair.b.ep, in[i], LARGE, NULL, pair.to_a, i, 0, &there[i]));
		for (i = 0; i < 64; i++)
			must(again(fi_tsend(pair.a.ep, out, LARGE, NULL, pair.to_b, i, &here[i])));
		for (i = 0; i < 64 && !early; i++)
			must(fi_trecv(pair.b.ep, in[i], LARGE, NULL, pair.to_a, i, 0, &there[i]));
		for (i = 0; i < 64; i++) {
			good(&pair.a, &here[i]);
			good(&pair.b, &there[i]);
			assert_int_equal(differs(in[i], LARGE, early), LARGE);
		}
	}
	pair_close();
}

/* Deadlock at default settings: both sides' sends hold every registration of their caches, and still each side reads. */
static void test_registrations_held(void **state)
{
	static int here[2][REGIONS], there[2][REGIONS];
	uint32_t i, k;

	(void)state;
	pair_open(CAPS, 0);
	for (i = 0; i < 2 * REGIONS; i++)
		must(again(fi_tsend(i & 1 ? pair.b.ep : pair.a.ep, in[i], LARGE / 2, NULL,
				    i & 1 ? pair.to_a : pair.to_b, i / 2, &here[i & 1][i / 2])));
	for (i = 0; i < 2 * REGIONS; i++)
		must(fi_trecv(i & 1 ? pair.b.ep : pair.a.ep, in[2 * REGIONS + i], LARGE / 2, NULL,
			      i & 1 ? pair.to_a : pair.to_b, i / 2, 0, &there[i & 1][i / 2]));
	for (k = 0; k < 2; k++)
		for (i = 0; i < REGIONS; i++) {
			good(k ? &pair.b : &pair.a, &here[k][i]);
			good(k ? &pair.b : &pair.a, &there[k][i]);
		}
	pair_close();
}

/* userfaultfds of this process */
static int watches(void)
{
	char path[64], to[64];
	int fd, n = 0;

	for (fd = 0; fd < 1024; fd++) {
		memset(to, 0, sizeof(to));
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n += readlink(path, to, sizeof(to) - 1) > 0 && strstr(to, "userfaultfd");
	}
	return n;
}

/* munmap hung while a forked child lived, which had a userfaultfd of the closed domain. */
static void test_fork(void **state)
{
	int here, status;
	pid_t pid;

	(void)state;
	pair_open(CAPS, 0);
	must(again(fi_tsend(pair.a.ep, out, LARGE, NULL, pair.to_b, 1, &here)));
	if (!watches()) {
		print_message("# skipped: userfaultfd is not permitted\n");
		pair_close();
		skip();
	}
	pid = fork();
	if (!pid)
		_exit(watches());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	pair_close();
}

/* Out of memory for messages that nobody has asked for: they wait, and do not block the completions of sends. */
static void test_no_memory(void **state)
{
	uint32_t i, value, round;
	int here, there;

	(void)state;
	need_softdev("failing set-up calls");
	pair_open(CAPS, 0);
	must(again(fi_tinject(pair.a.ep, out, 8, pair.to_b, 1)));
	must(again(fi_tinject(pair.b.ep, out, 8, pair.to_a, 1)));
	/* Often enough to notice an entry that does not come back */
	for (round = 0; round < 6; round++) {
		must(softdev_fault("setup=ENOMEM@*"));
		for (i = 0; i < UNEXPECTED; i++) {
			memcpy(in[1], &i, sizeof(i));
			must(again(fi_tsend(pair.a.ep, in[1], i % 3 ? 1000 : 8, NULL, pair.to_b, 2, &here)));
			good(&pair.a, &here);
		}
		must(again(fi_tsend(pair.b.ep, out, 8, NULL, pair.to_a, 1, &there)));
		good(&pair.b, &there);
		must(softdev_fault(NULL));
		for (i = 0; i < UNEXPECTED; i++) {
			must(fi_trecv(pair.b.ep, in[0], EAGER, NULL, pair.to_a, 2, 0, &there));
			good(&pair.b, &there);
			memcpy(&value, in[0], sizeof(value));
			assert_int_equal(value, i);
		}
	}
	pair_close();
}

/* Completions that nobody reads are kept, more than the queue had room for at first. */
static void test_unread(void **state)
{
	static int contexts[MANY];
	struct fi_cq_tagged_entry e;
	uint32_t i;
	int here;

	(void)state;
	pair_open(CAPS, 0);
	for (i = 0; i < MANY; i++)
		must(fi_trecv(pair.b.ep, in[0], 8, NULL, FI_ADDR_UNSPEC, i, 0, &contexts[i]));
	for (i = 0; i < MANY; i++) {
		must(again(fi_tinject(pair.a.ep, out, 8, pair.to_b, i)));
		if (i % 500 == 0)
			fi_cq_read(pair.b.cq, &e, 0); /* drives it, and takes nothing */
	}
	for (i = 0; i < MANY; i++)
		assert_ptr_equal(next(&pair.b)->e.op_context, &contexts[i]);
	must(fi_trecv(pair.b.ep, in[0], 8, NULL, FI_ADDR_UNSPEC, 1, 0, &here));
	must(fi_cancel(&pair.b.ep->fid, &here));
	bad(&pair.b, &here, FI_ECANCELED);
	pair_close();
}

/* As many connections as the settings say, and no more: who is too many is told. */
static void test_peers(void **state)
{
	static struct side hub, spoke[5];
	fi_addr_t to[5];
	int here, there, i;

	(void)state;
	side_open(&hub, info_for(hints_for(CAPS)), 0);
	for (i = 0; i < 5; i++) {
		side_open(&spoke[i], info_for(hints_for(CAPS)), 0);
		to[i] = insert(&hub, spoke[i].name);
		insert(&spoke[i], hub.name);
	}
	for (i = 0; i < 4; i++) {
		must(fi_trecv(spoke[i].ep, in[0], 8, NULL, 0, 1, 0, &there));
		must(again(fi_tsend(hub.ep, out, 8, NULL, to[i], 1, &here)));
		good(&hub, &here);
		good(&spoke[i], &there);
	}
	must(fi_tsend(hub.ep, out, 8, NULL, to[4], 1, &here));
	bad(&hub, &here, FI_ENOSPC);
	assert_int_equal(fi_tinject(hub.ep, out, 8, to[4], 1), -FI_ENOSPC);
	/* The others go on */
	must(fi_trecv(spoke[2].ep, in[0], 8, NULL, 0, 1, 0, &there));
	must(again(fi_tinject(hub.ep, out, 8, to[2], 1)));
	good(&spoke[2], &there);
	for (i = 0; i < 5; i++)
		side_close(&spoke[i]);
	side_close(&hub);
}

/* ---- Set-up that fails ---- */

/* Opens an endpoint by hand: 0, or the errno of the step that failed; nothing is left open. */
static int try_open(struct fi_info *info)
{
	struct fid_fabric *fabric = NULL;
	struct fid_domain *domain = NULL;
	struct fid_av *av = NULL;
	struct fid_cq *cq = NULL;
	struct fid_ep *ep = NULL;
	struct fi_cq_attr cqa;
	struct fi_av_attr ava;
	int err;

	memset(&cqa, 0, sizeof(cqa));
	memset(&ava, 0, sizeof(ava));
	err = fi_fabric(info->fabric_attr, &fabric, NULL);
	if (!err)
		err = fi_domain(fabric, info, &domain, NULL);
	if (!err)
		err = fi_av_open(domain, &ava, &av, NULL);
	if (!err)
		err = fi_cq_open(domain, &cqa, &cq, NULL);
	if (!err)
		err = fi_endpoint(domain, info, &ep, NULL);
	if (!err)
		err = fi_ep_bind(ep, &av->fid, 0);
	if (!err)
		err = fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV);
	if (!err)
		err = fi_enable(ep);
	if (ep)
		must(fi_close(&ep->fid));
	if (cq)
		must(fi_close(&cq->fid));
	if (av)
		must(fi_close(&av->fid));
	if (domain)
		must(fi_close(&domain->fid));
	if (fabric)
		must(fi_close(&fabric->fid));
	return err;
}

static void test_setup_fails(void **state)
{
	struct fi_info *info = info_for(hints_for(CAPS));
	char spec[32];
	int n, err, bad_ones = 0;

	(void)state;
	need_softdev("failing set-up calls");
	for (n = 1; n < 40; n++) { /* the library tries some of them again */
		snprintf(spec, sizeof(spec), "setup=ENOMEM@%d", n);
		must(softdev_fault(spec));
		err = try_open(info);
		assert_true(err <= 0);
		bad_ones += err < 0;
		must(softdev_fault(NULL));
	}
	assert_true(bad_ones > 10);
	must(try_open(info));
	fi_freeinfo(info);
}

/* A connection that cannot be made: the send says so, and a later one may succeed. */
static void test_connection_fails(void **state)
{
	char spec[32];
	int n, here, there, failures = 0;
	struct done *d;

	(void)state;
	need_softdev("failing set-up calls");
	for (n = 1; n < 14; n++) {
		pair_open(CAPS, 0);
		snprintf(spec, sizeof(spec), "setup=ENOMEM@%d", n);
		must(fi_trecv(pair.b.ep, in[0], 8, NULL, FI_ADDR_UNSPEC, 1, 0, &there));
		must(softdev_fault(spec));
		must(again(fi_tsend(pair.a.ep, out, 8, NULL, pair.to_b, 1, &here)));
		must(softdev_fault(NULL));
		d = done_of(&pair.a, &here);
		failures += d->err.err != 0;
		if (!d->err.err)
			good(&pair.b, &there);
		pair_close();
	}
	assert_true(failures > 2);
}

/* Memory that cannot be registered: the send says so, or the receive does, and its sender is told that it is over. */
static void test_registration_fails(void **state)
{
	int here, there;

	(void)state;
	need_softdev("failing set-up calls");
	pair_open(CAPS, 0);
	must(fi_trecv(pair.b.ep, in[0], 8, NULL, pair.to_a, 1, 0, &there));
	must(again(fi_tinject(pair.a.ep, out, 8, pair.to_b, 1)));
	good(&pair.b, &there);

	must(softdev_fault("setup=EINVAL@*"));
	assert_int_equal(fi_tsend(pair.a.ep, out, LARGE, NULL, pair.to_b, 1, &here), -FI_EINVAL);
	must(softdev_fault(NULL));
	nothing(&pair.a);
	must(again(fi_tsend(pair.a.ep, out, LARGE, NULL, pair.to_b, 1, &here)));
	must(softdev_fault("setup=EINVAL@*"));
	must(fi_trecv(pair.b.ep, in[1], LARGE, NULL, pair.to_a, 1, 0, &there));
	bad(&pair.b, &there, FI_EINVAL);
	good(&pair.a, &here);
	must(softdev_fault(NULL));

	/* It was the device's mood */
	must(again(fi_tsend(pair.a.ep, out, LARGE, NULL, pair.to_b, 1, &here)));
	must(fi_trecv(pair.b.ep, in[1], LARGE, NULL, pair.to_a, 1, 0, &there));
	good(&pair.b, &there);
	good(&pair.a, &here);
	assert_int_equal(differs(in[1], LARGE, 1), LARGE);
	pair_close();
}

/* Messages with wrong bits: in headers, handles, addresses and hellos. What comes of it is open, but it ends. */
static void test_corrupt(void **state)
{
	static const size_t lens[] = {0, 1, 8, 40, 150, 1000, EAGER, 4 * EAGER};
	static int contexts[64];
	struct fi_msg_tagged m;
	struct iovec iov;
	uint32_t round, i;
	int there;

	(void)state;
	need_softdev("corrupting messages");
	for (round = 0; round < 24; round++) {
		pair_open(CAPS, 0);
		if (round & 1) {
			must(fi_trecv(pair.b.ep, in[0], 8, NULL, pair.to_a, 1, 0, &there));
			must(again(fi_tinject(pair.a.ep, out, 8, pair.to_b, 1)));
			good(&pair.b, &there);
		}
		must(softdev_fault(round & 2 ? "corrupt@*" : "corrupt@/3"));
		for (i = 0; i < 64; i++) {
			memset(&m, 0, sizeof(m));
			iov.iov_base = out;
			iov.iov_len = lens[i % ARRAY(lens)];
			m.msg_iov = &iov;
			m.iov_count = 1;
			m.addr = pair.to_b;
			m.context = &contexts[i];
			m.tag = i % 5;
			fi_tsendmsg(pair.a.ep, &m, i & 8 ? FI_DELIVERY_COMPLETE : i & 16 ? FI_REMOTE_CQ_DATA : 0);
			fi_trecv(pair.b.ep, in[i], LARGE, NULL, i & 32 ? pair.to_a : FI_ADDR_UNSPEC, i % 5, 0, &there);
			fi_recv(pair.b.ep, in[i], LARGE, NULL, FI_ADDR_UNSPEC, &there);
			poll_all();
		}
		for (i = 0; i < 200; i++)
			poll_all();
		must(softdev_fault(NULL));
		pair_close();
	}
	pair_open(CAPS, 0);
	must(fi_trecv(pair.b.ep, in[0], 8, NULL, pair.to_a, 1, 0, &there));
	must(again(fi_tinject(pair.a.ep, out, 8, pair.to_b, 1)));
	good(&pair.b, &there);
	pair_close();
}

/* ---- Selective completion ---- */

static void test_selective(void **state)
{
	struct fi_msg_tagged m;
	struct iovec iov = {out, 8};
	int here, there;

	(void)state;
	pair_open(CAPS, FI_SELECTIVE_COMPLETION);
	memset(&m, 0, sizeof(m));
	m.msg_iov = &iov;
	m.iov_count = 1;
	m.addr = pair.to_b;
	m.context = &here;
	m.tag = 1;
	must(again(fi_tsend(pair.a.ep, out, 8, NULL, pair.to_b, 1, &here)));
	must(again(fi_tsend(pair.a.ep, out, 1000, NULL, pair.to_b, 1, &here)));
	must(again(fi_tsend(pair.a.ep, out, LARGE, NULL, pair.to_b, 1, &here)));
	must(again(fi_tsendmsg(pair.a.ep, &m, FI_COMPLETION)));
	good(&pair.a, &here);
	must(fi_trecv(pair.b.ep, in[0], LARGE, NULL, pair.to_a, 1, 0, &there));
	must(fi_trecv(pair.b.ep, in[1], LARGE, NULL, pair.to_a, 1, 0, &there));
	must(fi_trecv(pair.b.ep, in[2], LARGE, NULL, pair.to_a, 1, 0, &there));
	iov.iov_base = in[3];
	m.addr = pair.to_a;
	m.context = &there;
	must(fi_trecvmsg(pair.b.ep, &m, FI_COMPLETION));
	good(&pair.b, &there);
	nothing(&pair.a);
	nothing(&pair.b);
	/* Failures are always told */
	must(fi_trecv(pair.b.ep, in[0], 8, NULL, pair.to_a, 1, 0, &there));
	must(fi_cancel(&pair.b.ep->fid, &there));
	bad(&pair.b, &there, FI_ECANCELED);
	pair_close();
}

/* ---- Threads ---- */

#define ROUNDS 2000

struct worker {
	struct side *s;
	fi_addr_t to;
	uint64_t tag, numbers[ROUNDS];
	uint32_t good, sent;
};

/*
 * Sends numbers to the other side and receives the other's, of its own tag; no lock but the provider's. ThreadSanitizer
 * sees a lockless read of what FI_SETOPSFLAG writes (tx_done).
 */
static void *work(void *arg)
{
	struct worker *w = (struct worker *)arg;
	uint64_t sent = 0, got = 0, value = 0, flags = FI_TRANSMIT;
	struct fi_cq_tagged_entry e;
	bool posted = false;
	static __thread char mark;

	while (sent < ROUNDS || got < ROUNDS) {
		if (!posted && got < ROUNDS)
			posted = !fi_trecv(w->s->ep, &value, 8, NULL, w->to, w->tag, 0, &w->good);
		if (sent < ROUNDS && sent <= got + 16) {
			w->numbers[sent] = sent;
			sent += !fi_tsend(w->s->ep, &w->numbers[sent], 8, NULL, w->to, w->tag, &w->sent);
		}
		if (fi_control(&w->s->ep->fid, FI_SETOPSFLAG, &flags))
			return &mark;
		/* Whichever thread reads a completion marks it for the one that waits */
		if (fi_cq_read(w->s->cq, &e, 1) == 1)
			__atomic_fetch_add((uint32_t *)e.op_context, 1, __ATOMIC_RELEASE);
		if (posted && __atomic_load_n(&w->good, __ATOMIC_ACQUIRE) > got) {
			if (value != got)
				return &mark;
			got++;
			posted = false;
		}
	}
	return NULL;
}

static void test_threads(void **state)
{
	static struct worker w[4];
	pthread_t t[4];
	void *wrong;
	int i;

	(void)state;
	for (i = 0; i < 2; i++) {
		struct fi_info *hints = hints_for(CAPS);

		hints->domain_attr->threading = FI_THREAD_SAFE;
		side_open(i ? &pair.b : &pair.a, info_for(hints), 0);
	}
	pair.to_b = insert(&pair.a, pair.b.name);
	pair.to_a = insert(&pair.b, pair.a.name);
	for (i = 0; i < 4; i++) {
		w[i].s = i & 1 ? &pair.b : &pair.a;
		w[i].to = i & 1 ? pair.to_a : pair.to_b;
		w[i].tag = (uint64_t)i / 2;
		w[i].good = 0;
	}
	for (i = 0; i < 4; i++)
		must(pthread_create(&t[i], NULL, work, &w[i]));
	for (i = 0; i < 4; i++) {
		must(pthread_join(t[i], &wrong));
		assert_null(wrong);
		assert_int_equal(w[i].good, ROUNDS);
	}
	pair_close();
}

/* ---- What is offered, and what is not ---- */

static void test_info(void **state)
{
	struct fi_info *info, *hints;
	unsigned i;

	(void)state;
	for (i = 0; i < 14; i++) {
		hints = hints_for(i == 0 ? FI_MULTICAST : CAPS);
		hints->ep_attr->type = i == 1 ? FI_EP_MSG : i == 2 ? FI_EP_DGRAM : FI_EP_RDM;
		hints->tx_attr->inject_size = i == 3 ? 1 << 20 : 0;
		hints->tx_attr->iov_limit = i == 4 ? 99 : 0;
		hints->ep_attr->mem_tag_format = i == 5 ? UINT64_MAX : 0;
		hints->domain_attr->name = i == 6 ? strdup("nobody") : NULL;
		hints->domain_attr->data_progress = i == 7 ? FI_PROGRESS_AUTO : FI_PROGRESS_UNSPEC;
		hints->domain_attr->cq_data_size = i == 8 ? 9 : 0;
		hints->tx_attr->msg_order = i == 9 ? FI_ORDER_STRICT : 0;
		hints->ep_attr->max_msg_size = i == 10 ? SIZE_MAX : 0;
		hints->rx_attr->comp_order = i == 11 ? FI_ORDER_STRICT : 0;
		hints->domain_attr->max_ep_srx_ctx = i == 12 ? 1 : 0;
		info = NULL;
		assert_int_equal(fi_getinfo(VERSION, NULL, NULL, 0, hints, &info), i < 13 ? -FI_ENODATA : 0);
		assert_true(i < 13 ? !info : info != NULL);
		fi_freeinfo(info);
		fi_freeinfo(hints);
	}
	/* Tags have all bits where nothing else is matched */
	info = info_for(hints_for(FI_TAGGED));
	assert_true(info->ep_attr->mem_tag_format == 0xaaaaaaaaaaaaaaaaull && !(info->caps & FI_DIRECTED_RECV));
	fi_freeinfo(info);
	info = info_for(hints_for(FI_TAGGED | FI_DIRECTED_RECV));
	assert_true(info->ep_attr->mem_tag_format == 0xaaaaaaaaaaaaull && info->caps & FI_DIRECTED_RECV);
	fi_freeinfo(info);
	/* MPICH's tags: there are fewer senders then, but not too few */
	hints = hints_for(FI_TAGGED | FI_DIRECTED_RECV);
	hints->ep_attr->mem_tag_format = UINT64_MAX >> 9;
	info = info_for(hints);
	assert_int_equal(__builtin_clzll(info->ep_attr->mem_tag_format), 9);
	fi_freeinfo(info);
	hints = hints_for(FI_TAGGED | FI_DIRECTED_RECV);
	hints->ep_attr->mem_tag_format = UINT64_MAX >> 7;
	assert_int_equal(fi_getinfo(VERSION, NULL, NULL, 0, hints, &info), -FI_ENODATA);
	fi_freeinfo(hints);
}

/* An endpoint whose receives name nobody: all 64 bits of the tag count. */
static void test_wide_tags(void **state)
{
	int here, there;

	(void)state;
	pair_open(FI_TAGGED, 0);
	must(fi_trecv(pair.b.ep, in[0], 8, NULL, FI_ADDR_UNSPEC, 1ull << 63 | 5, 0, &there));
	must(again(fi_tsend(pair.a.ep, out, 8, NULL, pair.to_b, 5, &here)));
	good(&pair.a, &here);
	nothing(&pair.b);
	must(again(fi_tsend(pair.a.ep, out, 8, NULL, pair.to_b, 1ull << 63 | 5, &here)));
	assert_true(good(&pair.b, &there)->e.tag == (1ull << 63 | 5));
	pair_close();
}

static struct side third;

/* Receives that name their sender, with 55 bits of tag: one's message is not another's */
static void test_wide_directed(void **state)
{
	struct side *const open[] = {&pair.a, &pair.b, &third};
	const uint64_t tag = 1ull << 54 | 5;
	struct fi_info *hints;
	fi_addr_t to_b, from_c;
	int here[2], there;
	unsigned i;

	(void)state;
	for (i = 0; i < ARRAY(open); i++) {
		hints = hints_for(FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE);
		hints->ep_attr->mem_tag_format = UINT64_MAX >> 9;
		side_open(open[i], info_for(hints), 0);
	}
	pair.to_b = insert(&pair.a, pair.b.name);
	to_b = insert(&third, pair.b.name);
	from_c = insert(&pair.b, third.name);
	insert(&pair.b, pair.a.name);
	must(fi_trecv(pair.b.ep, in[0], 8, NULL, from_c, tag, 0, &there));
	must(again(fi_tsend(pair.a.ep, out, 8, NULL, pair.to_b, tag, &here[0])));
	must(again(fi_tsend(third.ep, out, 8, NULL, to_b, 5, &here[1])));
	good(&pair.a, &here[0]);
	good(&third, &here[1]);
	nothing(&pair.b);
	must(again(fi_tsend(third.ep, out, 8, NULL, to_b, tag, &here[1])));
	assert_true(good(&pair.b, &there)->e.tag == tag);
	side_close(&third);
	pair_close();
}

static void test_addresses(void **state)
{
	uint8_t name[2 * NAME];
	fi_addr_t addr[3];
	char text[128];
	size_t len = sizeof(text);
	int errors[2];

	(void)state;
	pair_open(CAPS, 0);
	/* Not an address; one good and one bad; the same one twice */
	memset(name, 0, sizeof(name));
	assert_int_equal(fi_av_insert(pair.a.av, name, 1, addr, 0, NULL), 0);
	assert_true(addr[0] == FI_ADDR_NOTAVAIL);
	memcpy(name + NAME, pair.b.name, NAME);
	assert_int_equal(fi_av_insert(pair.a.av, name, 2, addr, FI_SYNC_ERR, errors), 1);
	assert_true(addr[0] == FI_ADDR_NOTAVAIL && addr[1] != FI_ADDR_NOTAVAIL && errors[0] == FI_EINVAL && !errors[1]);
	len = NAME;
	must(fi_av_lookup(pair.a.av, addr[1], name, &len));
	assert_int_equal(len, NAME);
	assert_memory_equal(name, pair.b.name, NAME);
	len = sizeof(text);
	assert_string_equal(fi_av_straddr(pair.a.av, name, text, &len), text);
	assert_true(!strncmp(text, "inlay://[", 9) && len == strlen(text) + 1);
	must(fi_av_remove(pair.a.av, &addr[1], 1, 0));
	assert_int_equal(fi_av_remove(pair.a.av, &addr[1], 1, 0), -FI_EINVAL);
	assert_int_equal(fi_av_lookup(pair.a.av, addr[1], name, &len), -FI_EINVAL);
	/* What is in use is not closed */
	assert_int_equal(fi_close(&pair.a.av->fid), -FI_EBUSY);
	assert_int_equal(fi_close(&pair.a.cq->fid), -FI_EBUSY);
	assert_int_equal(fi_close(&pair.a.domain->fid), -FI_EBUSY);
	assert_int_equal(fi_close(&pair.a.fabric->fid), -FI_EBUSY);
	pair_close();
}

static int set_up(void **state)
{
	(void)state;
	fill(out, sizeof(out), 1);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	memset(sides, 0, sizeof(sides));
	return softdev_present() ? softdev_fault(NULL) : 0;
}

/* What is not offered says so, and can be called. */
static void test_missing(UNUSED void **state)
{
	union {
		struct fid_domain *domain;
		struct fid_ep *ep;
		struct fid_pep *pep;
		struct fid_stx *stx;
		struct fid_wait *wait;
		struct fid_poll *poll;
		struct fid_mc *mc;
		struct fid_av_set *set;
		void *ops;
	} out;
	struct side *s = &pair.a;
	struct fid_eq *eq;
	size_t len = 0;

#define MISSING(call) assert_int_equal(call, -FI_ENOSYS)
	pair_open(CAPS, 0);
	MISSING(fi_passive_ep(s->fabric, s->info, &out.pep, NULL));
	MISSING(fi_wait_open(s->fabric, NULL, &out.wait));
	MISSING(fi_domain2(s->fabric, s->info, &out.domain, 1, NULL));
	MISSING(fi_endpoint2(s->domain, s->info, &out.ep, 1, NULL));
	MISSING(fi_scalable_ep(s->domain, s->info, &out.ep, NULL));
	MISSING(fi_poll_open(s->domain, NULL, &out.poll));
	MISSING(fi_stx_context(s->domain, NULL, &out.stx, NULL));
	MISSING(fi_srx_context(s->domain, NULL, &out.ep, NULL));
	MISSING(fi_query_collective(s->domain, FI_BARRIER, NULL, 0));
	MISSING(fi_av_insertsvc(s->av, "localhost", "1", NULL, 0, NULL));
	MISSING(fi_av_insertsym(s->av, "localhost", 1, "1", 1, NULL, 0, NULL));
	MISSING(fi_av_set(s->av, NULL, &out.set, NULL));
	MISSING(fi_open_ops(&s->domain->fid, "", 0, &out.ops, NULL));
	MISSING(fi_set_ops(&s->domain->fid, "", 0, NULL, NULL));
	MISSING(fi_control(&s->domain->fid, FI_GETWAIT, &out));
	MISSING(fi_tx_context(s->ep, 0, NULL, &out.ep, NULL));
	MISSING(fi_rx_context(s->ep, 0, NULL, &out.ep, NULL));
	MISSING(s->ep->ops->tx_size_left(s->ep)); /* the calls are deprecated */
	MISSING(s->ep->ops->rx_size_left(s->ep));
	MISSING(fi_setname(&s->ep->fid, out.ops, 0));
	MISSING(fi_getpeer(s->ep, out.ops, &len));
	MISSING(fi_connect(s->ep, NULL, NULL, 0));
	MISSING(fi_accept(s->ep, NULL, 0));
	MISSING(fi_shutdown(s->ep, 0));
	MISSING(fi_join(s->ep, NULL, 0, &out.mc, NULL));
	MISSING(fi_barrier(s->ep, 0, NULL));
	MISSING(fi_barrier2(s->ep, 0, 1, NULL));
	MISSING(fi_broadcast(s->ep, NULL, 0, NULL, 0, 0, FI_INT8, 0, NULL));
	MISSING(fi_alltoall(s->ep, NULL, 0, NULL, NULL, NULL, 0, FI_INT8, 0, NULL));
	MISSING(fi_allgather(s->ep, NULL, 0, NULL, NULL, NULL, 0, FI_INT8, 0, NULL));
	MISSING(fi_allreduce(s->ep, NULL, 0, NULL, NULL, NULL, 0, FI_INT8, FI_SUM, 0, NULL));
	MISSING(fi_reduce_scatter(s->ep, NULL, 0, NULL, NULL, NULL, 0, FI_INT8, FI_SUM, 0, NULL));
	MISSING(fi_reduce(s->ep, NULL, 0, NULL, NULL, NULL, 0, 0, FI_INT8, FI_SUM, 0, NULL));
	MISSING(fi_scatter(s->ep, NULL, 0, NULL, NULL, NULL, 0, 0, FI_INT8, 0, NULL));
	MISSING(fi_gather(s->ep, NULL, 0, NULL, NULL, NULL, 0, 0, FI_INT8, 0, NULL));
	must(fi_eq_open(s->fabric, NULL, &eq, NULL));
	MISSING(fi_eq_write(eq, 0, NULL, 0, 0));
	must(fi_close(&eq->fid));
	pair_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_full_ring, tear_down),
		cmocka_unit_test_teardown(test_refused, tear_down),
		cmocka_unit_test_teardown(test_many_large, tear_down),
		cmocka_unit_test_teardown(test_registrations_held, tear_down),
		cmocka_unit_test_teardown(test_fork, tear_down),
		cmocka_unit_test_teardown(test_no_memory, tear_down),
		cmocka_unit_test_teardown(test_unread, tear_down),
		cmocka_unit_test_teardown(test_peers, tear_down),
		cmocka_unit_test_teardown(test_setup_fails, tear_down),
		cmocka_unit_test_teardown(test_connection_fails, tear_down),
		cmocka_unit_test_teardown(test_registration_fails, tear_down),
		cmocka_unit_test_teardown(test_corrupt, tear_down),
		cmocka_unit_test_teardown(test_selective, tear_down),
		cmocka_unit_test_teardown(test_threads, tear_down),
		cmocka_unit_test_teardown(test_info, tear_down),
		cmocka_unit_test_teardown(test_wide_tags, tear_down),
		cmocka_unit_test_teardown(test_wide_directed, tear_down),
		cmocka_unit_test_teardown(test_addresses, tear_down),
		cmocka_unit_test_teardown(test_missing, tear_down),
	};

	use_provider();
	setenv("FI_INLAY_PEERS", "4", 1);
	setenv("FI_INLAY_RECEIVES", "100", 1);
	setenv("FI_INLAY_CACHE_REGIONS", "8", 1);
	setenv("FI_INLAY_CONNECT_MS", "2000", 1);
	return cmocka_run_group_tests(tests, set_up, NULL);
}
