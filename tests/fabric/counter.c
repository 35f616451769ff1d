/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * counter.c: counters: each counts its kind, whether or not a CQ is told; failures are counted apart.
 */
#include "rig.h"
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

enum { SEND, RECV, READ, WRITE, KINDS };

static const uint64_t kinds[KINDS] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE};
static struct fid_cntr *counters[KINDS];
static struct side a, b;
static fi_addr_t to_b, to_a;
static uint8_t memory[4096];
static struct fid_mr *mr;

/* As side_open, with counters. selective: nothing is told that is not asked for */
static void counted_open(struct side *s, bool selective)
{
	struct fi_cntr_attr attr;
	struct fi_cq_attr cq;
	struct fi_av_attr av;
	size_t len = NAME;
	int i;

	memset(s, 0, sizeof(*s));
	memset(&attr, 0, sizeof(attr));
	memset(&cq, 0, sizeof(cq));
	memset(&av, 0, sizeof(av));
	cq.format = FI_CQ_FORMAT_TAGGED;
	s->info = info_for(hints_for(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC));
	must(fi_fabric(s->info->fabric_attr, &s->fabric, NULL));
	must(fi_domain(s->fabric, s->info, &s->domain, NULL));
	must(fi_av_open(s->domain, &av, &s->av, NULL));
	must(fi_cq_open(s->domain, &cq, &s->cq, NULL));
	must(fi_endpoint(s->domain, s->info, &s->ep, s));
	must(fi_ep_bind(s->ep, &s->av->fid, 0));
	must(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV | (selective ? FI_SELECTIVE_COMPLETION : 0)));
	for (i = 0; i < KINDS; i++) {
		must(fi_cntr_open(s->domain, &attr, &counters[i], NULL));
		must(fi_ep_bind(s->ep, &counters[i]->fid, kinds[i]));
	}
	assert_int_equal(fi_ep_bind(s->ep, &counters[0]->fid, FI_SEND), -FI_EINVAL);
	assert_int_equal(fi_ep_bind(s->ep, &counters[0]->fid, FI_REMOTE_WRITE), -FI_ENOSYS);
	assert_int_equal(fi_close(&counters[0]->fid), -FI_EBUSY);
	must(fi_enable(s->ep));
	must(fi_getname(&s->ep->fid, s->name, &len));
	sides[0] = s;
}

static void open_both(bool selective)
{
	counted_open(&a, selective);
	side_open(&b, info_for(hints_for(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC)), 0);
	to_b = insert(&a, b.name);
	to_a = insert(&b, a.name);
	must(fi_mr_reg(b.domain, memory, sizeof(memory), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL));
}

static void close_both(void)
{
	int i;

	must(fi_close(&mr->fid));
	side_close(&b);
	sides[0] = NULL;
	must(fi_close(&a.ep->fid));
	for (i = 0; i < KINDS; i++)
		must(fi_close(&counters[i]->fid));
	must(fi_close(&a.cq->fid));
	must(fi_close(&a.av->fid));
	must(fi_close(&a.domain->fid));
	must(fi_close(&a.fabric->fid));
	fi_freeinfo(a.info);
}

/* Polls until each has counted so many */
static void are(uint64_t sends, uint64_t recvs, uint64_t reads, uint64_t writes)
{
	const uint64_t want[KINDS] = {sends, recvs, reads, writes};
	double end = now() + DEADLINE;
	int i;

	for (i = 0; i < KINDS; i++) {
		while (fi_cntr_read(counters[i]) < want[i]) {
			poll_all();
			assert_true(now() < end);
		}
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
	uint64_t sends = 0, recvs = 0, reads = 0, writes = 0, old, value = 1, key;
	struct fi_msg_tagged m;
	struct iovec iov = {out, 8};
	char c;
	size_t i;

	open_both(selective);
	key = fi_mr_key(mr);
	for (i = 0; i < 5; i++) {
		must(again(fi_trecv(b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, in)));
		must(again(fi_tsend(a.ep, out, sizes[i], NULL, to_b, 1, &c)));
		good(&b, in);
		are(++sends, recvs, reads, writes);
		must(again(fi_trecv(a.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 2, 0, &c)));
		must(again(fi_tsend(b.ep, out, sizes[i], NULL, to_a, 2, out)));
		good(&b, out);
		are(sends, ++recvs, reads, writes);
	}
	for (i = 0; i < 4; i++) {
		must(again(fi_recv(b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in)));
		must(again(fi_inject(a.ep, out, sizes[i], to_b)));
		good(&b, in);
		are(++sends, recvs, reads, writes);
		must(again(fi_write(a.ep, out, sizes[i] % 4096, NULL, to_b, to, key, &c)));
		must(again(fi_inject_write(a.ep, out, sizes[i] % 4096, to_b, to, key)));
		must(again(fi_inject_atomic(a.ep, &value, 1, to_b, to, key, FI_UINT64, FI_SUM)));
		must(again(fi_inject_atomic(a.ep, &value, 1, to_b, to, key, FI_UINT32, FI_SUM)));
		are(sends, recvs, reads, writes += 4);
		must(again(fi_read(a.ep, in, sizes[i] % 4096, NULL, to_b, to, key, &c)));
		must(again(fi_fetch_atomic(a.ep, &value, 1, NULL, &old, NULL, to_b, to, key, FI_UINT32, FI_SUM, &c)));
		are(sends, recvs, reads += 2, writes);
	}
	/* The CQ has been told of those with a completion, or of none */
	for (i = 0; i < 50; i++)
		poll_all();
	for (i = a.first; i != a.last; i++)
		assert_int_equal(a.log[i % LOG].err.err, 0);
	assert_int_equal(a.last - a.first, selective ? 0 : 5 + 5 + 4 + 8);
	if (selective) {
		memset(&m, 0, sizeof(m));
		m.msg_iov = &iov;
		m.iov_count = 1;
		m.addr = to_b;
		m.tag = 3;
		m.context = &m;
		must(again(fi_tsendmsg(a.ep, &m, FI_COMPLETION)));
		good(&a, &m);
		are(++sends, recvs, reads, writes);
	}
	close_both();
}

static void test_all(UNUSED void **state)
{
	counting(false);
}

static void test_selective(UNUSED void **state)
{
	counting(true);
}

static void test_values(UNUSED void **state)
{
	struct fid_cntr *c;
	struct fi_cntr_attr attr;

	open_both(false);
	c = counters[SEND];
	must(fi_cntr_add(c, 7));
	assert_int_equal(fi_cntr_read(c), 7);
	must(fi_cntr_set(c, 3));
	must(fi_cntr_wait(c, 3, -1));
	assert_int_equal(fi_cntr_wait(c, 4, 20), -FI_ETIMEDOUT);
	must(fi_cntr_adderr(c, 2));
	must(fi_cntr_adderr(c, 2));
	assert_int_equal(fi_cntr_readerr(c), 4);
	must(fi_cntr_seterr(c, 0));
	memset(&attr, 0, sizeof(attr));
	attr.wait_obj = FI_WAIT_FD;
	assert_int_equal(fi_cntr_open(a.domain, &attr, &c, NULL), -FI_ENOSYS);
	close_both();
}

/* A write to where none is allowed; what was injected fails silently, but is counted */
static void test_failures(UNUSED void **state)
{
	double end = now() + DEADLINE;
	char c;

	open_both(true);
	must(again(fi_write(a.ep, memory, 8, NULL, to_b, (uintptr_t)memory, fi_mr_key(mr), &c)));
	must(again(fi_inject_write(a.ep, memory, 8, to_b, (uintptr_t)memory, fi_mr_key(mr) ^ 0x100)));
	must(again(fi_write(a.ep, memory, 8, NULL, to_b, (uintptr_t)memory, fi_mr_key(mr), &c)));
	while (fi_cntr_readerr(counters[WRITE]) < 2) {
		poll_all();
		assert_true(now() < end);
	}
	assert_int_equal(fi_cntr_read(counters[WRITE]), 1);
	assert_int_equal(fi_cntr_readerr(counters[WRITE]), 2);
	bad(&a, &a, FI_EACCES);
	bad(&a, &c, FI_EACCES);
	nothing(&a);
	close_both();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all),
		cmocka_unit_test(test_selective),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_failures),
	};

	use_provider();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
