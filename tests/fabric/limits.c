/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * limits.c: what is full answers -FI_EAGAIN or waits, what fails leaves nothing behind, what does not exist
 * says so: rings, queues, tables, set-up calls, settings.
 */
#include "rig.h"
#include <sys/mman.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_rma.h>

#define CAPS (FI_MSG | FI_DIRECTED_RECV | FI_SOURCE)
#define MANY 3000
#define LARGE (256u << 10)
#define UNEXPECTED 250 /* more than there are bounce buffers at first, by less than FI_INLAY_RECEIVES */
#define REGIONS 8 /* FI_INLAY_CACHE_REGIONS: the least */
#define RECEIVES 100 /* FI_INLAY_RECEIVES */
#define BUFFERS 8 /* FI_INLAY_BUFFERS */
#define PEERS 4 /* FI_INLAY_PEERS */

static uint8_t out[LARGE], in[64][LARGE];
static int here, there, contexts[MANY];

static void open_connected(uint64_t more)
{
	pair_open(CAPS | more, 0);
	ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
}

/* MiB of this process that are in memory */
static long resident(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long pages = 0;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%*d %ld", &pages), 1);
	fclose(f);
	return pages >> 8;
}

/* The next message with this tag has this number in it. Returns its length. */
static size_t comes(struct side *s, fi_addr_t from, uint64_t tag, uint32_t number)
{
	size_t len;

	must(fi_trecv(s->ep, in[0], EAGER, NULL, from, tag, 0, &there));
	len = good(s, &there)->e.len;
	assert_memory_equal(in[0], &number, sizeof(number));
	return len;
}

/* Messages with their number, more than `least`, until three have been refused. Returns how many were not. */
static uint32_t send_all(struct side *s, fi_addr_t to, size_t len, uint32_t least)
{
	uint32_t sent = 0, refused = 0;
	ssize_t r;

	while (refused < 3) {
		memcpy(out, &sent, sizeof(sent));
		r = fi_tsend(s->ep, out, len, NULL, to, 2, &contexts[sent]);
		assert_true(!r || r == -FI_EAGAIN);
		sent += !r;
		assert_true(sent < MANY);
		refused += r && sent > least;
		for (uint32_t i = 0; r && i < 50; i++)
			poll_all();
	}
	return sent;
}

/* ---- Full ---- */

/* More than the ring holds, of every protocol, while the receiver does not look: then all of it arrives in order. */
CASE(test_full_ring)
{
	static const size_t lens[] = {8, 100, 1000, EAGER};
	uint32_t i, k, sent;

	open_connected(0);
	for (k = 0; k < ARRAY(lens); k++) {
		looks(&pair.b, false);
		sent = send_all(&pair.a, pair.to_b, lens[k], 0);
		assert_true(sent >= 30);
		looks(&pair.b, true);
		for (i = 0; i < sent; i++)
			assert_int_equal(comes(&pair.b, pair.to_a, 2, i), lens[k]);
		for (i = 0; i < sent; i++)
			good(&pair.a, &contexts[i]);
	}
	pair_close();
}

/* A post refused with -FI_EAGAIN makes progress: whoever only tries again, and reads no queue, gets through. */
CASE(test_progress)
{
	struct fi_cq_err_entry e = {};
	size_t i;

	pair_open(CAPS, 0);
	looks(&pair.a, false);
	for (i = 0; i < MANY; i++)
		must(again(fi_tinject(pair.a.ep, out, 8, pair.to_b, 1)));
	looks(&pair.a, true);
	nothing();
	/* So does asking for an error that there is not: OpenSHMEM's mt_membar does nothing else, for ever */
	looks(&pair.b, false);
	must(fi_trecv(pair.b.ep, in[0], LARGE, NULL, pair.to_a, 2, 0, &there));
	must(again(fi_tsend(pair.a.ep, out, LARGE, NULL, pair.to_b, 2, &here)));
	wait_polling(fi_cq_readerr(pair.b.cq, &e, 0) != -FI_EAGAIN || holds_done(&pair.a, &here, &i));
	good(&pair.a, &here);
	looks(&pair.b, true);
	good(&pair.b, &there);
	pair_close();
}

/*
 * n large messages to b, and to a, received early or late: more than the ring has room for reads; or, which was a
 * deadlock at default settings, the sends of both hold every registration of their caches.
 */
static void large(uint32_t n, uint32_t ways, bool early)
{
	static int sends[2][64], recvs[2][64];
	struct side *const s[] = {&pair.a, &pair.b};
	const size_t len = LARGE / ways;

	pair_open(CAPS, 0);
	memset(in, 0, sizeof(in));
	fill(out, len, n);
	for (uint32_t turn = 0; turn < 2; turn++)
		for (uint32_t i = 0; i < n; i++)
			for (uint32_t k = 0; k < ways; k++) {
				const fi_addr_t to = k ? pair.to_a : pair.to_b, from = k ? pair.to_b : pair.to_a;

				/* Each of its own memory, if registrations are to be used up */
				if (turn == early)
					must(again(fi_tsend(s[k]->ep, ways > 1 ? in[32 + 16 * k + i] : out, len, NULL, to, i,
							    &sends[k][i])));
				else
					must(fi_trecv(s[!k]->ep, in[16 * k + i], len, NULL, from, i, 0, &recvs[k][i]));
			}
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < ways; k++) {
			good(s[k], &sends[k][i]);
			good(s[!k], &recvs[k][i]);
			if (ways == 1)
				assert_int_equal(differs(in[i], len, n), len);
		}
	pair_close();
}

CASE(test_many_large)
{
	large(64, 1, false);
	large(64, 1, true);
	large(REGIONS, 2, false);
}

/* userfaultfds of this process */
static int watches(void)
{
	char path[64];
	int fd, n = 0;

	for (fd = 0; fd < 1024; fd++) {
		char to[64] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n += readlink(path, to, sizeof(to) - 1) > 0 && strstr(to, "userfaultfd");
	}
	return n;
}

/* munmap hung while a forked child lived, which had a userfaultfd of the closed domain. */
CASE(test_fork)
{
	int status;
	pid_t pid;

	open_connected(0);
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
CASE(test_no_memory)
{
	need_softdev("failing set-up calls");
	open_connected(0);
	/* Often enough to notice an entry that does not come back */
	for (uint32_t round = 0; round < 6; round++) {
		must(softdev_fault("setup=ENOMEM@*"));
		for (uint32_t i = 0; i < UNEXPECTED; i++) {
			memcpy(in[1], &i, sizeof(i));
			must(again(fi_tsend(pair.a.ep, in[1], i % 3 ? 1000 : 8, NULL, pair.to_b, 2, &here)));
			good(&pair.a, &here);
		}
		must(again(fi_tsend(pair.b.ep, out, 8, NULL, pair.to_a, 1, &there)));
		good(&pair.b, &there);
		must(softdev_fault(NULL));
		for (uint32_t i = 0; i < UNEXPECTED; i++)
			comes(&pair.b, pair.to_a, 2, i);
	}
	pair_close();
}

/*
 * Messages that nobody asks for, until the buffers are used up: then the sender is refused, memory grows no more, what b
 * itself sends and writes completes, and all of them are still there. FLOOD: at least so many.
 */
CASE(test_flood)
{
	const char *flood = getenv("FLOOD");
	const uint32_t least = flood ? (uint32_t)atoi(flood) : 4095 * BUFFERS + 1;
	const long first = resident();
	uint32_t n = 0, i, refused = 0;
	double begun = now();
	struct fid_mr *mr;

	open_connected(FI_RMA);
	must(fi_mr_reg(pair.a.domain, in[1], 1000, FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL));
	while (n < least || refused < 1000) {
		ssize_t r = fi_tinject(pair.a.ep, &n, sizeof(n), pair.to_b, n);

		assert_true(!r || r == -FI_EAGAIN);
		n += !r;
		refused = r ? refused + 1 : 0;
		if (r)
			poll_all();
		assert_true(n < (flood ? 2 * least : 4096 * (BUFFERS + 1)));
	}
	print_message("# %u messages, %ld MiB, %.1f s\n", n, resident() - first, now() - begun);
	assert_true(flood || resident() - first < 64);
	for (i = 0; i < 10; i++) {
		fill(out, 1000, i);
		must(again(fi_write(pair.b.ep, out, 1000, NULL, pair.to_a, (uintptr_t)in[1], fi_mr_key(mr), &here)));
		good(&pair.b, &here);
		assert_int_equal(differs(in[1], 1000, i), 1000);
		must(fi_trecv(pair.a.ep, in[2], 1000, NULL, pair.to_b, 3, 0, &there));
		must(again(fi_tsend(pair.b.ep, out, 1000, NULL, pair.to_a, 3, &here)));
		good(&pair.a, &there);
		good(&pair.b, &here);
	}
	if (!flood) /* the first that found no buffer needs none now */
		assert_int_equal(comes(&pair.b, pair.to_a, 4095 * BUFFERS, 4095 * BUFFERS), sizeof(n));
	for (i = 0; i < n; i++)
		if (flood || i != 4095 * BUFFERS)
			assert_int_equal(comes(&pair.b, pair.to_a, i, i), sizeof(i));
	must(fi_close(&mr->fid));
	pair_close();
}

/* Completions that nobody reads are kept, more than the queue had room for at first. */
CASE(test_unread)
{
	struct fi_cq_tagged_entry e;

	pair_open(CAPS, 0);
	for (uint32_t i = 0; i < MANY; i++)
		must(fi_trecv(pair.b.ep, in[0], 8, NULL, FI_ADDR_UNSPEC, i, 0, &contexts[i]));
	for (uint32_t i = 0; i < MANY; i++) {
		must(again(fi_tinject(pair.a.ep, out, 8, pair.to_b, i)));
		if (i % 500 == 0)
			fi_cq_read(pair.b.cq, &e, 0); /* drives it, and takes nothing */
	}
	for (uint32_t i = 0; i < MANY; i++)
		assert_ptr_equal(next(&pair.b)->e.op_context, &contexts[i]);
	must(fi_trecv(pair.b.ep, in[0], 8, NULL, FI_ADDR_UNSPEC, 1, 0, &here));
	must(fi_cancel(&pair.b.ep->fid, &here));
	bad(&pair.b, &here, FI_ECANCELED);
	pair_close();
}

static struct side hub, spoke[2 * PEERS];

static void hub_open(void)
{
	side_open(&hub, info_for(hints_for(CAPS | FI_TAGGED)), 0);
	for (uint32_t i = 0; i < ARRAY(spoke); i++) {
		side_open(&spoke[i], info_for(hints_for(CAPS | FI_TAGGED)), 0);
		insert(&spoke[i], hub.name);
	}
}

static void hub_close(uint32_t first)
{
	for (; first < ARRAY(spoke); first++)
		side_close(&spoke[first]);
	side_close(&hub);
}

/*
 * More peers than may be sent to at a time: all are reached. While as many as may be take no messages, another one waits, and
 * nothing is lost.
 */
CASE(test_peers)
{
	uint32_t i, k, sent[PEERS];
	fi_addr_t to[ARRAY(spoke)];

	hub_open();
	for (i = 0; i < ARRAY(spoke); i++)
		to[i] = insert(&hub, spoke[i].name);
	for (k = 0; k < 3; k++)
		for (i = 0; i < ARRAY(spoke); i++)
			ping(&hub, to[i], &spoke[i], 0);
	for (i = 0; i < PEERS; i++) {
		looks(&spoke[i], false);
		sent[i] = send_all(&hub, to[i], sizeof(k), RECEIVES);
	}
	assert_int_equal(fi_tsend(hub.ep, out, 8, NULL, to[PEERS], 2, &there), -FI_EAGAIN);
	for (i = 0; i < PEERS; i++) {
		looks(&spoke[i], true);
		for (k = 0; k < sent[i]; k++) {
			comes(&spoke[i], 0, 2, k);
			good(&hub, &contexts[k]);
		}
	}
	ping(&hub, to[PEERS], &spoke[PEERS], 0);
	hub_close(0);
}

/* 64 peers, or as many as TURNS says, each with a queue pair, where only PEERS may be sent to at a time: they take turns. */
CASE(test_turns)
{
	const uint32_t n = getenv("TURNS") ? (uint32_t)atoi(getenv("TURNS")) : 64;
	struct { struct fid_ep *ep; fi_addr_t to; uint32_t got; } *const t = (__typeof__(t))calloc(n, sizeof(*t));
	uint32_t i, round;
	uint8_t name[NAME];
	size_t len = NAME;

	hub_open();
	for (i = 0; i < n; i++) {
		must(fi_endpoint(spoke[0].domain, spoke[0].info, &t[i].ep, NULL));
		must(fi_ep_bind(t[i].ep, &spoke[0].av->fid, 0));
		must(fi_ep_bind(t[i].ep, &spoke[0].cq->fid, FI_TRANSMIT | FI_RECV));
		must(fi_enable(t[i].ep));
		must(fi_getname(&t[i].ep->fid, name, &len));
		t[i].to = insert(&hub, name);
	}
	for (round = 1; round < 3; round++) {
		for (i = 0; i < n; i++) {
			must(fi_trecv(t[i].ep, &t[i].got, sizeof(t[i].got), NULL, 0, round, 0, &t[i]));
			len = i * round;
			must(again(fi_tinject(hub.ep, &len, sizeof(t[i].got), t[i].to, round)));
		}
		for (i = 0; i < n; i++) {
			good(&spoke[0], &t[i]);
			assert_int_equal(t[i].got, i * round);
		}
	}
	for (i = 0; i < n; i++)
		must(fi_close(&t[i].ep->fid));
	hub_close(0);
	free(t);
}

/* It is not reached, however often it asks. */
static void waits(struct side *s)
{
	for (uint32_t i = 0; i < 500; i++, poll_all())
		assert_int_equal(fi_tinject(s->ep, out, 8, 0, 0), i < 64 ? 0 : -FI_EAGAIN);
}

/* Strangers connect until there are as many as the settings say; whom the address vector has is no stranger. */
CASE(test_strangers)
{
	hub_open();
	for (uint32_t i = 0; i < PEERS; i++)
		through(&spoke[i], 0, &hub, FI_ADDR_UNSPEC);
	waits(&spoke[PEERS]);
	insert(&hub, spoke[PEERS].name);
	through(&spoke[PEERS], 0, &hub, 0);
	waits(&spoke[PEERS + 1]);
	side_close(&spoke[0]);
	through(&spoke[PEERS + 1], 0, &hub, FI_ADDR_UNSPEC);
	waits(&spoke[PEERS + 2]);
	insert(&hub, spoke[1].name);
	through(&spoke[PEERS + 2], 0, &hub, FI_ADDR_UNSPEC);
	hub_close(1);
}

/* ---- Set-up that fails ---- */

/* Opens an endpoint: 0, or the errno of the step that failed; nothing is left open. */
static int try_open(const struct fi_info *info)
{
	static struct side s;
	int err = side_try(&s, fi_dupinfo(info), 0, FI_WAIT_NONE);

	if (!err)
		err = fi_enable(s.ep);
	if (err && s.ep)
		assert_int_equal(fi_enable(s.ep), -FI_EOPBADSTATE);
	side_close(&s);
	return err;
}

/* Each set-up call of opening and of connecting: what fails says so, and a later try may succeed. */
CASE(test_setup_fails)
{
	struct fi_info *info = info_for(hints_for(CAPS));
	int n, err, failures = 0;
	char spec[32];

	need_softdev("failing set-up calls");
	for (n = 1; n < 40; n++) { /* the library tries some of them again */
		snprintf(spec, sizeof(spec), "setup=ENOMEM@%d", n);
		must(softdev_fault(spec));
		err = try_open(info);
		assert_true(err <= 0);
		failures += err < 0;
		must(softdev_fault(NULL));
	}
	assert_true(failures > 10);
	must(try_open(info));
	fi_freeinfo(info);
	for (n = 1, failures = 0; n < 14; n++) {
		pair_open(CAPS, 0);
		snprintf(spec, sizeof(spec), "setup=ENOMEM@%d", n);
		must(fi_trecv(pair.b.ep, in[0], 8, NULL, FI_ADDR_UNSPEC, 1, 0, &there));
		must(softdev_fault(spec));
		must(again(fi_tsend(pair.a.ep, out, 8, NULL, pair.to_b, 1, &here)));
		must(softdev_fault(NULL));
		if (done_of(&pair.a, &here)->err.err)
			failures++;
		else
			good(&pair.b, &there);
		pair_close();
	}
	assert_true(failures > 2);
}

/*
 * Memory that the application has registered and names: nothing else is registered. Then memory that cannot
 * be: the send says so, or the receive does, and its sender is told that it is over.
 */
CASE(test_registration)
{
	struct iovec source = {out, LARGE}, target = {in[1], LARGE};
	struct fid_mr *from, *to;
	struct fid_ep *a, *b;
	void *read, *written;

	need_softdev("failing set-up calls");
	open_connected(0);
	a = pair.a.ep;
	b = pair.b.ep;
	must(fi_mr_reg(pair.a.domain, out, LARGE, FI_SEND, 0, 0, 0, &from, NULL));
	must(fi_mr_reg(pair.b.domain, in[1], LARGE, FI_RECV, 0, 0, 0, &to, NULL));
	read = fi_mr_desc(from);
	written = fi_mr_desc(to);
	must(softdev_fault("setup=EINVAL@*"));
	for (uint32_t i = 0; i < 4; i++) {
		fill(out, LARGE, i);
		must(i == 0 ? fi_recv(b, in[1], LARGE, written, pair.to_a, &there) :
		     i == 1 ? fi_trecv(b, in[1], LARGE, written, pair.to_a, 1, 0, &there) :
		     i == 2 ? fi_recvv(b, &target, &written, 1, pair.to_a, &there) :
			      fi_trecvv(b, &target, &written, 1, pair.to_a, 1, 0, &there));
		must(again(i == 0 ? fi_send(a, out, LARGE, read, pair.to_b, &here) :
			   i == 1 ? fi_tsend(a, out, LARGE, read, pair.to_b, 1, &here) :
			   i == 2 ? fi_sendv(a, &source, &read, 1, pair.to_b, &here) :
				    fi_tsendv(a, &source, &read, 1, pair.to_b, 1, &here)));
		good(&pair.a, &here);
		good(&pair.b, &there);
		assert_int_equal(differs(in[1], LARGE, i), LARGE);
	}
	must(fi_close(&from->fid));
	must(fi_close(&to->fid));
	assert_int_equal(fi_tsend(a, out, LARGE, NULL, pair.to_b, 1, &here), -FI_EINVAL);
	must(softdev_fault(NULL));
	nothing();
	memset(in[1], 0, LARGE);
	for (int i = 0; i < 2; i++) { /* the second time the device is in a better mood */
		must(again(fi_tsend(a, out, LARGE, NULL, pair.to_b, 1, &here)));
		must(softdev_fault(i ? NULL : "setup=EINVAL@*"));
		must(fi_trecv(b, in[1], LARGE, NULL, pair.to_a, 1, 0, &there));
		assert_int_equal(bad(&pair.b, &there, i ? 0 : FI_EINVAL)->err.len, 0);
		good(&pair.a, &here);
		must(softdev_fault(NULL));
	}
	assert_int_equal(differs(in[1], LARGE, 3), LARGE);
	pair_close();
}

/*
 * FI_DELIVERY_COMPLETE of a write: it completes when a second message, which reads from what was written, is over. Short
 * ones end where the registration does.
 */
CASE(test_delivery)
{
	static const struct { size_t len; uint64_t flags; } rows[] = {{8, 0}, {8, FI_INJECT}, {1000, FI_INJECT}, {1000, 0}, {LARGE, 0}};
	static uint8_t page[4096] __attribute__((aligned(4096)));
	struct fid_mr *mr;

	need_softdev("failing messages");
	for (uint32_t i = 0; i < ARRAY(rows); i++) {
		const size_t len = rows[i].len;
		uint8_t *target = len == LARGE ? in[1] : page + sizeof(page) - len;

		open_connected(FI_RMA);
		must(fi_mr_reg(pair.b.domain, target, len, FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL));
		for (uint32_t fails = 0; fails < 2; fails++) {
			const struct fi_rma_iov to = {(uintptr_t)target, len, fi_mr_key(mr)};
			const struct iovec from = {out, len};
			const struct fi_msg_rma m = {&from, NULL, 1, pair.to_b, &to, 1, &here, 0};

			memset(target, 0, len);
			fill(out, len, i + fails);
			must(softdev_fault(fails ? "syndrome=0x13@2" : "syndrome=0x13@3-"));
			must(again(fi_writemsg(pair.a.ep, &m, FI_DELIVERY_COMPLETE | FI_COMPLETION | rows[i].flags)));
			bad(&pair.a, &here, fails ? FI_EACCES : 0);
			assert_int_equal(differs(target, len, i + fails), len);
			must(softdev_fault(NULL));
		}
		must(fi_close(&mr->fid));
		pair_close();
	}
}

/* Messages with wrong bits: in headers, handles, addresses and hellos. What comes of it is open, but it ends. */
CASE(test_corrupt)
{
	static const size_t lens[] = {0, 1, 8, 40, 150, 1000, EAGER, 4 * EAGER};

	need_softdev("corrupting messages");
	for (uint32_t round = 0; round < 8; round++) {
		pair_open(CAPS, 0);
		if (round & 1)
			through(&pair.a, pair.to_b, &pair.b, pair.to_a);
		must(softdev_fault(round & 2 ? "corrupt@*" : "corrupt@/3"));
		for (uint32_t i = 0; i < 64; i++) {
			tsend_flags(&pair.a, pair.to_b, out, lens[i % ARRAY(lens)], i % 5, &contexts[i],
				    i & 8 ? FI_DELIVERY_COMPLETE : i & 16 ? FI_REMOTE_CQ_DATA : 0);
			fi_trecv(pair.b.ep, in[i], LARGE, NULL, i & 32 ? pair.to_a : FI_ADDR_UNSPEC, i % 5, 0, &there);
			fi_recv(pair.b.ep, in[i], LARGE, NULL, FI_ADDR_UNSPEC, &there);
			poll_all();
		}
		for (uint32_t i = 0; i < 200; i++)
			poll_all();
		must(softdev_fault(NULL));
		pair_close();
	}
	open_connected(0);
	pair_close();
}

/* ---- What is offered, and what is not ---- */

/* Each row asks for something that no endpoint has, but for the last */
CASE(test_info)
{
	static uint8_t addr[NAME + 1];
	struct fi_info *info, *hints;

	for (unsigned i = 0; i < 22; i++) {
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
		hints->tx_attr->size = i == 13 ? 65 : 64;
		hints->ep_attr->max_order_raw_size = i == 14;
		hints->domain_attr->mr_iov_limit = i == 15 ? 2 : 1;
		hints->domain_attr->cntr_cnt = i == 16 ? SIZE_MAX : 1;
		hints->src_addr = i == 17 || i == 18 ? memcpy(malloc(NAME), addr, NAME) : NULL; /* not of this format; not ours */
		hints->src_addrlen = i == 17 ? NAME - 1 : NAME;
		hints->dest_addr = i == 19 ? malloc(NAME + 1) : NULL;
		hints->dest_addrlen = NAME + 1;
		hints->caps |= i == 20 ? FI_RMA | FI_RMA_EVENT : 0;
		info = NULL;
		if (fi_getinfo(VERSION, NULL, NULL, 0, hints, &info) != (i < 21 ? -FI_ENODATA : 0) || (i < 21) != !info)
			fail_msg("row %u", i);
		fi_freeinfo(info);
		fi_freeinfo(hints);
	}
}

/*
 * Modes of registration: who does not know those of remote memory gets the rest, who asks for it nothing.
 * Bits of tags: all where nothing else is matched; with MPICH's there are fewer senders, but not too few.
 */
CASE(test_modes)
{
	static const int all = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	static const uint64_t wide = 0xaaaaaaaaaaaaaaaa, directed = FI_TAGGED | FI_DIRECTED_RECV;
	const struct {
		uint64_t caps;
		uint32_t version;
		int modes, mode;
		uint64_t tags, format;
	} rows[] = {{0, VERSION, all | FI_MR_LOCAL, all, 0, wide >> 16}, {0, VERSION, 0, 0, 0, wide >> 16},
		    {0, VERSION, FI_MR_ALLOCATED, FI_MR_ALLOCATED, 0, wide >> 16}, {FI_TAGGED, VERSION, 0, 0, 0, wide},
		    {FI_RMA, VERSION, FI_MR_ALLOCATED, -1, 0, 0}, {FI_RMA, VERSION, FI_MR_BASIC, FI_MR_BASIC, 0, wide},
		    {FI_RMA, FI_VERSION(1, 4), FI_MR_UNSPEC, FI_MR_BASIC, 0, wide},
		    {FI_RMA, VERSION, FI_MR_SCALABLE, -1, 0, 0}, {directed, VERSION, 0, 0, 0, wide >> 16},
		    {FI_MSG, VERSION, FI_MR_SCALABLE, FI_MR_SCALABLE, 0, wide},
		    {directed, VERSION, 0, 0, UINT64_MAX >> 9, wide >> 9},
		    {directed, VERSION, 0, -1, UINT64_MAX >> 7, 0}};

	for (unsigned i = 0; i < ARRAY(rows); i++) {
		struct fi_info *hints = hints_for(rows[i].caps), *info = NULL;

		hints->domain_attr->mr_mode = rows[i].modes;
		hints->ep_attr->mem_tag_format = rows[i].tags;
		fi_getinfo(rows[i].version, NULL, NULL, 0, hints, &info);
		if ((info ? info->domain_attr->mr_mode : -1) != rows[i].mode ||
		    (info ? info->ep_attr->mem_tag_format : 0) != rows[i].format ||
		    (info && rows[i].caps && (info->caps ^ rows[i].caps) & FI_DIRECTED_RECV) ||
		    (info && (info->caps & FI_RMA) && rows[i].mode != all && rows[i].mode != FI_MR_BASIC))
			fail_msg("row %u", i);
		fi_freeinfo(info);
		fi_freeinfo(hints);
	}
}

/* Source and destination: a node must be this host, any service will do. */
CASE(test_addresses_asked)
{
	static const struct {
		const char *node, *service;
		uint64_t flags;
		int result;
	} rows[] = {{NULL, NULL, FI_SOURCE, -FI_ENODATA}, {NULL, "9228", FI_SOURCE, 0}, {"localhost", NULL, FI_SOURCE, 0},
		    {"127.0.0.1", "9228", FI_SOURCE, 0}, {"localhost", NULL, FI_SOURCE | FI_NUMERICHOST, -FI_ENODATA},
		    {"192.0.2.1", "9228", FI_SOURCE, -FI_ENODATA}, {"127.0.0.1", "9228", 0, -FI_ENODATA},
		    {NULL, "9228", 0, -FI_ENODATA}};
	struct fi_info *info, *hints = hints_for(CAPS);

	for (unsigned i = 0; i < ARRAY(rows); i++) {
		info = NULL;
		if (fi_getinfo(VERSION, rows[i].node, rows[i].service, rows[i].flags, hints, &info) != rows[i].result)
			fail_msg("row %u", i);
		assert_true(!info == !!rows[i].result);
		if (info)
			assert_true(info->src_addrlen == NAME && info->src_addr && !info->dest_addr);
		fi_freeinfo(info);
	}
	fi_freeinfo(hints);
}

/* What an answer says is good as a hint. And the address vector */
CASE(test_addresses)
{
	struct fi_info *again, *hints;
	uint8_t name[2 * NAME];
	fi_addr_t addr[3];
	char text[128];
	size_t len = sizeof(text);
	int errors[2];

	pair_open(CAPS, 0);
	hints = fi_dupinfo(pair.a.info);
	hints->dest_addr = memcpy(malloc(NAME), pair.b.name, NAME);
	hints->dest_addrlen = NAME;
	must(fi_getinfo(VERSION, NULL, NULL, 0, hints, &again));
	assert_memory_equal(again->src_addr, hints->src_addr, NAME);
	assert_int_equal(again->dest_addrlen, NAME);
	assert_memory_equal(again->dest_addr, pair.b.name, NAME);
	fi_freeinfo(again);
	/* What says where the source is makes no difference then */
	memset(hints->src_addr, 0, NAME);
	must(fi_getinfo(VERSION, "127.0.0.1", NULL, FI_SOURCE, hints, &again));
	assert_memory_equal(again->src_addr, pair.a.info->src_addr, NAME);
	fi_freeinfo(again);
	fi_freeinfo(hints);
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

/* The device, which outlives the fi_info that it was copied from */
CASE(test_nic)
{
	struct fi_info *info = info_for(hints_for(CAPS)), *copy = fi_dupinfo(info);
	const struct fid_nic *nic;

	fi_freeinfo(info);
	nic = copy->nic;
	assert_int_equal(nic->fid.fclass, FI_CLASS_NIC);
	assert_string_equal(nic->device_attr->name, copy->domain_attr->name);
	assert_string_equal(nic->device_attr->driver, "mlx5_core");
	assert_true(!strncmp(nic->device_attr->vendor_id, "0x", 2) && !strncmp(nic->device_attr->device_id, "0x", 2));
	assert_true(strchr(nic->device_attr->firmware, '.') && nic->device_attr->device_version[0]);
	assert_int_equal(nic->bus_attr->bus_type, FI_BUS_PCI);
	assert_int_equal(nic->link_attr->state, FI_LINK_UP);
	assert_non_null(strchr(nic->link_attr->address, ':'));
	assert_non_null(nic->link_attr->network_type);
	assert_int_equal(fi_control(&copy->nic->fid, FI_GETWAIT, NULL), -FI_ENOSYS);
	if (softdev_present()) {
		assert_int_equal(nic->bus_attr->attr.pci.domain_id, 0x7f00);
		assert_int_equal(nic->link_attr->mtu, 4096);
		assert_int_equal(nic->link_attr->speed, 100000000000);
	}
	fi_freeinfo(copy);
}

/* ---- Promises of the attributes, kept to the brim ---- */

/* As many short messages as tx_attr says, whatever was sent before, with nobody looking. As many receives */
CASE(test_queue_sizes)
{
	const uint32_t size = 64;
	size_t i, receives;

	memset(out, 0, 32);
	open_connected(0);
	assert_int_equal(pair.a.info->tx_attr->size, size);
	for (uint32_t before = 0; before < 40; before++) {
		for (i = 0; i < before; i++)
			must(again(fi_tinject(pair.a.ep, out, 8, pair.to_b, 1)));
		for (i = 0; i < size; i++)
			must(fi_tsend(pair.a.ep, out, 32, NULL, pair.to_b, 2, &contexts[i]));
		for (i = 0; i < size; i++) {
			good(&pair.a, &contexts[i]);
			assert_int_equal(comes(&pair.b, pair.to_a, 2, 0), 32);
		}
		for (i = 0; i < before; i++)
			assert_int_equal(comes(&pair.b, pair.to_a, 1, 0), 8);
	}
	receives = pair.b.info->rx_attr->size;
	for (i = 0; i < receives; i++)
		must(fi_trecv(pair.b.ep, in[0], 8, NULL, pair.to_a, i, 0, i + 1 < receives ? &here : &there));
	must(again(fi_tinject(pair.a.ep, out, 8, pair.to_b, receives - 1)));
	good(&pair.b, &there);
	pair_close();
}

/* The longest messages and injects, in as many pieces as are allowed, and no byte more; nobody reads the longest. */
CASE(test_sizes)
{
	struct iovec v[4], w[4];
	struct fi_msg_tagged m = {v, NULL, 4, 0, 0, 0, &here, 0};
	struct fi_rma_iov to = {0, 0, 0};
	struct fi_msg_rma r = {v, NULL, 4, 0, &to, 1, &here, 0};
	struct fid_mr *mr;
	size_t i, inject, max, part;
	uint8_t *large;
	struct done *d;

	open_connected(FI_RMA);
	assert_true(pair.a.info->tx_attr->iov_limit == 4 && pair.b.info->rx_attr->iov_limit == 4 &&
		    pair.a.info->tx_attr->rma_iov_limit == 1);
	inject = pair.a.info->tx_attr->inject_size;
	max = pair.a.info->ep_attr->max_msg_size;
	part = max / 4;
	m.addr = r.addr = pair.to_b;
	fill(out, inject, 9);
	for (i = 0; i < 4; i++) {
		v[i].iov_base = out + i * (inject / 4);
		w[i].iov_base = in[0] + i * (inject / 4);
		v[i].iov_len = w[i].iov_len = inject / 4;
	}
	must(fi_trecvv(pair.b.ep, w, NULL, 4, pair.to_a, 0, 0, &there));
	must(again(fi_tsendmsg(pair.a.ep, &m, FI_INJECT | FI_COMPLETION)));
	memset(out, 0, inject);
	good(&pair.a, &here);
	good(&pair.b, &there);
	assert_int_equal(differs(in[0], inject, 9), inject);
	v[3].iov_len++;
	assert_int_equal(fi_tsendmsg(pair.a.ep, &m, FI_INJECT), -FI_EMSGSIZE);

	/* The same memory over and over */
	large = (uint8_t *)mmap(NULL, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(large != MAP_FAILED);
	must(fi_mr_reg(pair.a.domain, large, part, FI_SEND | FI_WRITE, 0, 0, 0, &mr, NULL));
	r.desc = (void *[]){fi_mr_desc(mr), fi_mr_desc(mr), fi_mr_desc(mr), fi_mr_desc(mr)};
	for (i = 0; i < 4; i++) {
		v[i].iov_base = large;
		v[i].iov_len = part + (i == 3);
	}
	assert_int_equal(fi_tsendmsg(pair.a.ep, &m, 0), -FI_EMSGSIZE);
	assert_int_equal(fi_writemsg(pair.a.ep, &r, 0), -FI_EMSGSIZE);
	v[3].iov_len--;
	must(again(fi_tsendmsg(pair.a.ep, &m, FI_COMPLETION)));
	m = (struct fi_msg_tagged){NULL, NULL, 0, pair.to_a, 0, 0, &there, 0};
	do {
		must(fi_trecvmsg(pair.b.ep, &m, FI_PEEK | FI_DISCARD));
		d = done_of(&pair.b, &there);
	} while (d->err.err == FI_ENOMSG);
	assert_true(!d->err.err && d->e.len == max);
	good(&pair.a, &here);
	must(again(fi_writemsg(pair.a.ep, &r, FI_COMPLETION))); /* to nowhere */
	bad(&pair.a, &here, FI_EACCES);
	must(fi_close(&mr->fid));
	must(munmap(large, part));
	pair_close();
}

/* The top bit of a tag counts, and with directed receives the sender beside it */
static void wide(uint64_t caps, uint64_t format, uint64_t tag)
{
	static struct side third;
	struct side *const open[] = {&pair.a, &pair.b, &third};
	const bool directed = caps & FI_DIRECTED_RECV;
	struct fi_info *hints;
	fi_addr_t to_b, from_c;
	struct done *d;

	for (unsigned i = 0; i < ARRAY(open); i++) {
		hints = hints_for(FI_TAGGED | FI_SOURCE | caps);
		hints->ep_attr->mem_tag_format = format;
		side_open(open[i], info_for(hints), 0);
	}
	pair.to_b = insert(&pair.a, pair.b.name);
	to_b = insert(&third, pair.b.name);
	from_c = insert(&pair.b, third.name);
	insert(&pair.b, pair.a.name);
	must(fi_trecv(pair.b.ep, in[0], 8, NULL, directed ? from_c : FI_ADDR_UNSPEC, tag, 0, &there));
	if (directed) {
		must(again(fi_tsend(pair.a.ep, out, 8, NULL, pair.to_b, tag, &here)));
		good(&pair.a, &here);
	}
	must(again(fi_tsend(third.ep, out, 8, NULL, to_b, 5, &here)));
	good(&third, &here);
	must(again(fi_tsend(third.ep, out, 8, NULL, to_b, tag, &here)));
	d = good(&pair.b, &there);
	assert_true(d->e.tag == tag && d->source == from_c);
	side_close(&third);
	pair_close();
}

CASE(test_wide_tags)
{
	wide(0, 0, 1ull << 63 | 5);
	wide(FI_DIRECTED_RECV, UINT64_MAX >> 9, 1ull << 54 | 5);
}

/* What is not offered says so, and can be called. */
CASE(test_missing)
{
	struct side *s = &pair.a;
	struct fid_eq *eq;
	size_t len = 0;

#define MISSING(call) assert_int_equal(call, -FI_ENOSYS)
	pair_open(CAPS, 0);
	MISSING(fi_passive_ep(s->fabric, s->info, NULL, NULL));
	MISSING(fi_wait_open(s->fabric, NULL, NULL));
	MISSING(fi_domain2(s->fabric, s->info, NULL, 1, NULL));
	MISSING(fi_endpoint2(s->domain, s->info, NULL, 1, NULL));
	MISSING(fi_scalable_ep(s->domain, s->info, NULL, NULL));
	MISSING(fi_poll_open(s->domain, NULL, NULL));
	MISSING(fi_stx_context(s->domain, NULL, NULL, NULL));
	MISSING(fi_srx_context(s->domain, NULL, NULL, NULL));
	MISSING(fi_query_collective(s->domain, FI_BARRIER, NULL, 0));
	MISSING(fi_av_insertsvc(s->av, "localhost", "1", NULL, 0, NULL));
	MISSING(fi_av_insertsym(s->av, "localhost", 1, "1", 1, NULL, 0, NULL));
	MISSING(fi_av_set(s->av, NULL, NULL, NULL));
	MISSING(fi_open_ops(&s->domain->fid, "", 0, NULL, NULL));
	MISSING(fi_set_ops(&s->domain->fid, "", 0, NULL, NULL));
	MISSING(fi_control(&s->domain->fid, FI_GETWAIT, NULL));
	MISSING(fi_tx_context(s->ep, 0, NULL, NULL, NULL));
	MISSING(fi_rx_context(s->ep, 0, NULL, NULL, NULL));
	MISSING(s->ep->ops->tx_size_left(s->ep)); /* the calls are deprecated */
	MISSING(s->ep->ops->rx_size_left(s->ep));
	MISSING(fi_setname(&s->ep->fid, NULL, 0));
	MISSING(fi_getpeer(s->ep, NULL, &len));
	MISSING(fi_connect(s->ep, NULL, NULL, 0));
	MISSING(fi_accept(s->ep, NULL, 0));
	MISSING(fi_shutdown(s->ep, 0));
	MISSING(fi_join(s->ep, NULL, 0, NULL, NULL));
	must(fi_eq_open(s->fabric, NULL, &eq, NULL));
	MISSING(fi_eq_write(eq, 0, NULL, 0, 0));
	assert_string_equal(fi_eq_strerror(eq, FI_EINVAL, NULL, NULL, 0), fi_strerror(FI_EINVAL));
	must(fi_close(&eq->fid));
	pair_close();
}

int main(void)
{
	use_provider();
	setenv("FI_INLAY_PEERS", "4", 1);
	setenv("FI_INLAY_RECEIVES", "100", 1);
	setenv("FI_INLAY_CACHE_REGIONS", "8", 1);
	setenv("FI_INLAY_BUFFERS", getenv("FLOOD") ? "4096" : "8", 1);
	return run_all(NULL, NULL);
}
