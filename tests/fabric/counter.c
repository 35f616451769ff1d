/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * counter.c: counters: each counts its kind, whether or not a CQ is told; failures are counted apart. And waiting
 * for completions, while another thread sends: fi_cq_sread, the descriptor and fi_trywait, fi_cq_signal.
 */
#include "rig.h"
#include <poll.h>
#include <pthread.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

enum { SEND, RECV, READ, WRITE, KINDS };

static const uint64_t kinds[KINDS] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE};
static struct fid_cntr **const counters = pair.a.counters;
static struct side *const a = &pair.a, *const b = &pair.b;
static uint8_t memory[4096];
static struct fid_mr *mr;
static uint64_t key;
static char c;

/* The first side with counters. selective: nothing is told that is not asked for */
static void open_both(bool selective)
{
	const uint64_t caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
	struct fi_cntr_attr attr = {};

	side_make(a, info_for(hints_for(caps)), selective ? FI_SELECTIVE_COMPLETION : 0, FI_WAIT_NONE);
	for (int i = 0; i < KINDS; i++) {
		must(fi_cntr_open(a->domain, &attr, &counters[i], NULL));
		must(fi_ep_bind(a->ep, &counters[i]->fid, kinds[i]));
	}
	assert_int_equal(fi_ep_bind(a->ep, &counters[0]->fid, FI_SEND), -FI_EINVAL);
	assert_int_equal(fi_ep_bind(a->ep, &counters[0]->fid, FI_REMOTE_WRITE), -FI_ENOSYS);
	assert_int_equal(fi_close(&counters[0]->fid), -FI_EBUSY);
	side_enable(a);
	side_open(b, info_for(hints_for(caps)), 0);
	pair.to_b = insert(a, b->name);
	pair.to_a = insert(b, a->name);
	must(fi_mr_reg(b->domain, memory, sizeof(memory), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL));
	key = fi_mr_key(mr);
}

static void close_both(void)
{
	must(fi_close(&mr->fid));
	side_close(b);
	side_close(a);
}

/* Polls until each has counted so many */
static void are(uint64_t sends, uint64_t recvs, uint64_t reads, uint64_t writes)
{
	const uint64_t want[KINDS] = {sends, recvs, reads, writes};

	for (int i = 0; i < KINDS; i++) {
		wait_polling(fi_cntr_read(counters[i]) >= want[i]);
		must(fi_cntr_wait(counters[i], want[i], 0));
		assert_int_equal(fi_cntr_read(counters[i]), want[i]);
		assert_int_equal(fi_cntr_readerr(counters[i]), 0);
	}
}

static void counting(bool selective)
{
	static uint8_t out[100000], in[100000];
	static const size_t sizes[] = {0, 8, 100, 5000, 100000};
	const uint64_t to = (uintptr_t)memory;
	uint64_t sends = 0, recvs = 0, reads = 0, writes = 0, old, value = 1;

	open_both(selective);
	for (size_t i = 0; i < 5; i++) {
		must(again(fi_trecv(b->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, in)));
		must(again(fi_tsend(a->ep, out, sizes[i], NULL, pair.to_b, 1, &c)));
		good(b, in);
		are(++sends, recvs, reads, writes);
		must(again(fi_trecv(a->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 2, 0, &c)));
		must(again(fi_tsend(b->ep, out, sizes[i], NULL, pair.to_a, 2, out)));
		good(b, out);
		are(sends, ++recvs, reads, writes);
	}
	for (size_t i = 0; i < 4; i++) {
		const size_t len = sizes[i] % 4096;

		must(again(fi_recv(b->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in)));
		must(again(fi_inject(a->ep, out, sizes[i], pair.to_b)));
		good(b, in);
		are(++sends, recvs, reads, writes);
		must(again(fi_write(a->ep, out, len, NULL, pair.to_b, to, key, &c)));
		must(again(fi_inject_write(a->ep, out, len, pair.to_b, to, key)));
		must(again(fi_inject_atomic(a->ep, &value, 1, pair.to_b, to, key, FI_UINT64, FI_SUM)));
		must(again(fi_inject_atomic(a->ep, &value, 1, pair.to_b, to, key, FI_UINT32, FI_SUM)));
		are(sends, recvs, reads, writes += 4);
		must(again(fi_read(a->ep, in, len, NULL, pair.to_b, to, key, &c)));
		must(again(fi_fetch_atomic(a->ep, &value, 1, NULL, &old, NULL, pair.to_b, to, key, FI_UINT32, FI_SUM,
					   &c)));
		are(sends, recvs, reads += 2, writes);
	}
	/* The CQ has been told of those with a completion, or of none */
	wait_polling(a->last - a->first >= (selective ? 0 : 5 + 5 + 4 + 8));
	poll_all();
	assert_int_equal(a->last - a->first, selective ? 0 : 5 + 5 + 4 + 8);
	for (size_t i = a->first; i != a->last; i++)
		assert_int_equal(a->log[i % LOG].err.err, 0);
	if (selective) {
		must(again(tsend_flags(a, pair.to_b, out, 8, 3, in, FI_COMPLETION)));
		good(a, in);
		are(++sends, recvs, reads, writes);
		/* Failures are always told */
		must(again(fi_trecv(a->ep, in, 8, NULL, pair.to_b, 4, 0, in)));
		must(fi_cancel(&a->ep->fid, in));
		bad(a, in, FI_ECANCELED);
	}
	close_both();
}

static void test_counting(UNUSED void **state)
{
	counting(false);
	counting(true);
}

/* Values; then a write to where none is allowed. What was injected fails silently, but is counted */
static void test_values(UNUSED void **state)
{
	const uint64_t to = (uintptr_t)memory;
	struct fi_cntr_attr attr = {};
	struct fid_cntr *n;

	open_both(true);
	n = counters[SEND];
	must(fi_cntr_add(n, 7));
	assert_int_equal(fi_cntr_read(n), 7);
	must(fi_cntr_set(n, 3));
	must(fi_cntr_wait(n, 3, -1));
	assert_int_equal(fi_cntr_wait(n, 4, 20), -FI_ETIMEDOUT);
	must(fi_cntr_adderr(n, 2));
	must(fi_cntr_adderr(n, 2));
	assert_int_equal(fi_cntr_readerr(n), 4);
	must(fi_cntr_seterr(n, 0));
	attr.wait_obj = FI_WAIT_FD;
	assert_int_equal(fi_cntr_open(a->domain, &attr, &n, NULL), -FI_ENOSYS);
	must(again(fi_write(a->ep, memory, 8, NULL, pair.to_b, to, key, &c)));
	must(again(fi_inject_write(a->ep, memory, 8, pair.to_b, to, key ^ 0x100)));
	must(again(fi_write(a->ep, memory, 8, NULL, pair.to_b, to, key, &c)));
	wait_polling(fi_cntr_readerr(counters[WRITE]) >= 2);
	assert_int_equal(fi_cntr_read(counters[WRITE]), 1);
	assert_int_equal(fi_cntr_readerr(counters[WRITE]), 2);
	bad(a, a, FI_EACCES);
	bad(a, &c, FI_EACCES);
	poll_all();
	assert_int_equal(a->first, a->last);
	close_both();
}

/* ---- Waiting, while another thread sends ---- */

#define ROUNDS 40

static int asleep; /* the round in which the main thread is about to sleep, from 1 */

/* Waits for a number, sends the next one */
static void *answer(void *arg)
{
	struct fi_cq_tagged_entry e;
	uint64_t n = 0, sent;

	for (int i = 0; i < ROUNDS; i++) {
		must((int)fi_trecv(b->ep, &n, sizeof(n), NULL, pair.to_a, 7, 0, &n));
		assert_int_equal((int)fi_cq_sread(b->cq, &e, 1, NULL, -1), 1);
		assert_ptr_equal(e.op_context, &n);
		sent = n + 1;
		while (i % 3 == 0 && __atomic_load_n(&asleep, __ATOMIC_ACQUIRE) <= i)
			sched_yield();
		while (fi_tsend(b->ep, &sent, sizeof(sent), NULL, pair.to_a, 7, &sent) == -FI_EAGAIN)
			;
		assert_int_equal(fi_cq_sread(b->cq, &e, 1, NULL, -1), 1);
		assert_ptr_equal(e.op_context, &sent);
	}
	return arg;
}

/* A completion, by fi_cq_sread or by the descriptor p; `asleep` is told before */
static ssize_t wait_one(struct pollfd *p, int round)
{
	struct fi_cq_tagged_entry e;
	struct fid *fid = &a->cq->fid;
	ssize_t n;

	if (!p) {
		__atomic_store_n(&asleep, round + 1, __ATOMIC_RELEASE);
		return fi_cq_sread(a->cq, &e, 1, NULL, (int)(1000 * DEADLINE));
	}
	while ((n = fi_cq_read(a->cq, &e, 1)) == -FI_EAGAIN)
		if (fi_trywait(a->fabric, &fid, 1) == 0) {
			__atomic_store_n(&asleep, round + 1, __ATOMIC_RELEASE);
			assert_int_equal(poll(p, 1, (int)(1000 * DEADLINE)), 1);
		}
	return n;
}

static void test_waits(void **state)
{
	const enum fi_wait_obj kind = (enum fi_wait_obj)(uintptr_t)*state;
	struct fi_cq_tagged_entry e;
	struct pollfd p = {-1, POLLIN, 0};
	uint64_t n = 1, back = 0;
	pthread_t thread;
	ssize_t r;

	pair_open_as(0, 0, FI_THREAD_SAFE, kind);
	assert_int_equal(fi_cq_sread(a->cq, &e, 1, NULL, 0), -FI_EAGAIN);
	assert_int_equal(fi_cq_sread(a->cq, &e, 1, NULL, 30), -FI_EAGAIN);
	if (kind == FI_WAIT_FD)
		must(fi_control(&a->cq->fid, FI_GETWAIT, &p.fd));
	asleep = 0;
	assert_int_equal(pthread_create(&thread, NULL, answer, NULL), 0);
	for (int i = 0; i < ROUNDS; i++, n = back + 10) {
		must((int)fi_trecv(a->ep, &back, sizeof(back), NULL, pair.to_b, 7, 0, NULL));
		while ((r = fi_tsend(a->ep, &n, sizeof(n), NULL, pair.to_b, 7, NULL)) == -FI_EAGAIN)
			fi_cq_sread(a->cq, &e, 1, NULL, 1);
		must((int)r);
		assert_int_equal(wait_one(p.fd < 0 ? NULL : &p, i), 1);
		assert_int_equal(wait_one(p.fd < 0 ? NULL : &p, i), 1);
		assert_int_equal(back, n + 1);
	}
	pthread_join(thread, NULL);
	pair_close();
}

static void *signals(void *cq)
{
	must(fi_cq_signal((struct fid_cq *)cq));
	return NULL;
}

/* A signal ends a wait that has begun, or the next one */
static void test_signal(UNUSED void **state)
{
	struct fi_cq_tagged_entry e;
	pthread_t thread;

	pair_open_as(0, 0, FI_THREAD_SAFE, FI_WAIT_UNSPEC);
	assert_int_equal(pthread_create(&thread, NULL, signals, a->cq), 0);
	assert_int_equal(fi_cq_sread(a->cq, &e, 1, NULL, -1), -FI_EAGAIN);
	pthread_join(thread, NULL);
	pair_close();
}

/* Those that cannot be waited for say so */
static void test_no_waiting(UNUSED void **state)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_attr attr = {};
	struct fid_cq *cq;
	struct fid *fid;
	int fd;

	pair_open(0, 0);
	fid = &a->cq->fid;
	assert_int_equal(fi_cq_sread(a->cq, &e, 1, NULL, 0), -FI_ENOSYS);
	assert_int_equal(fi_cq_signal(a->cq), -FI_ENOSYS);
	assert_int_equal(fi_control(fid, FI_GETWAIT, &fd), -FI_ENOSYS);
	assert_int_equal(fi_trywait(a->fabric, &fid, 1), -FI_EINVAL);
	attr.wait_obj = FI_WAIT_MUTEX_COND;
	assert_int_equal(fi_cq_open(a->domain, &attr, &cq, NULL), -FI_ENOSYS);
	pair_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_counting), T(test_values), T(test_signal), T(test_no_waiting),
		{"test_sread", test_waits, NULL, tear_down, (void *)FI_WAIT_UNSPEC},
		{"test_descriptor", test_waits, NULL, tear_down, (void *)FI_WAIT_FD},
	};

	use_provider();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
