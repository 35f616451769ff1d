/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma.c: every way to read and write a peer's memory, at sizes on both sides of each border: the bytes, those
 * next to them, and what both sides are told; keys that do not fit.
 */
#include "rig.h"
#include <rdma/fi_rma.h>

#define MOST ((1u << 20) + 3)
#define AROUND 64u
#define DATA 0x1122334455667788ull

enum way { WRITE, WRITEV, WRITEMSG, WRITEDATA, INJECT, INJECTDATA, READ, READV, READMSG, WAYS };

static uint8_t *ours, *theirs;
static struct fid_mr *mr, *local;

/* Both sides of what fits a WQE, a bounce buffer, a page, and larger ones */
static const size_t sizes[] = {
	0, 1, 8, 28, 29, 44, 45, 64, 171, 172, 173, 188, 189, 1000, 4097, EAGER, EAGER + 1, 65536, MOST
};

static size_t cut(struct iovec *iov, uint8_t *buf, size_t len, unsigned how)
{
	size_t n = 1 + how % 4, i, at = 0, part;

	for (i = 0; i < n; i++, at += part) {
		part = i == n - 1 ? len - at : how & 1 && i == 1 ? 0 : (len - at) / 3;
		iov[i].iov_base = buf + at;
		iov[i].iov_len = part;
	}
	return n;
}

static ssize_t go(enum way way, uint64_t remote, size_t len, void *context, unsigned how)
{
	void *desc = how & 8 ? fi_mr_desc(local) : NULL, *descs[4] = {desc, desc, NULL, desc};
	uint8_t *buf = ours + AROUND;
	struct fid_ep *ep = pair.a.ep;
	struct fi_rma_iov at = {remote, len, fi_mr_key(mr)};
	struct fi_msg_rma m;
	struct iovec iov[4];
	size_t n = cut(iov, buf, len, how);

	memset(&m, 0, sizeof(m));
	m.msg_iov = iov;
	m.iov_count = n;
	m.desc = how & 16 ? descs : NULL;
	m.addr = pair.to_b;
	m.rma_iov = &at;
	m.rma_iov_count = 1;
	m.context = context;
	m.data = DATA;
	switch (way) {
	case WRITE:
		return fi_write(ep, buf, len, desc, pair.to_b, remote, at.key, context);
	case WRITEV:
		return fi_writev(ep, iov, m.desc, n, pair.to_b, remote, at.key, context);
	case WRITEMSG:
		return fi_writemsg(ep, &m, FI_COMPLETION | FI_DELIVERY_COMPLETE | (how & 64 ? FI_REMOTE_CQ_DATA : 0));
	case WRITEDATA:
		return fi_writedata(ep, buf, len, desc, DATA, pair.to_b, remote, at.key, context);
	case INJECT:
		return fi_inject_write(ep, buf, len, pair.to_b, remote, at.key);
	case INJECTDATA:
		return fi_inject_writedata(ep, buf, len, DATA, pair.to_b, remote, at.key);
	case READ:
		return fi_read(ep, buf, len, desc, pair.to_b, remote, at.key, context);
	case READV:
		return fi_readv(ep, iov, m.desc, n, pair.to_b, remote, at.key, context);
	default:
		return fi_readmsg(ep, &m, FI_COMPLETION);
	}
}

static bool injects(enum way way)
{
	return way == INJECT || way == INJECTDATA;
}

static void one(enum way way, size_t len, unsigned how)
{
	const bool read = way >= READ, data = way == WRITEDATA || way == INJECTDATA || (way == WRITEMSG && how & 64);
	uint8_t *from = (read ? theirs : ours) + AROUND, *to = (read ? ours : theirs) + AROUND;
	const uint32_t seed = (uint32_t)rnd();
	struct done *d;
	uint64_t last;

	memset(ours, 0xa5, MOST + 2 * AROUND);
	memset(theirs, 0x5a, MOST + 2 * AROUND);
	fill(from, len, seed);
	must(again(go(way, (uintptr_t)theirs + AROUND, len, &how, how)));
	if (injects(way)) {
		memset(ours, 0xa5, MOST + 2 * AROUND); /* is ours again */
		/* A read comes after it */
		must(again(fi_read(pair.a.ep, &last, 8, NULL, pair.to_b, (uintptr_t)theirs, fi_mr_key(mr), &how)));
	}
	d = good(&pair.a, &how);
	assert_int_equal(d->e.flags, FI_RMA | (read || injects(way) ? FI_READ : FI_WRITE));
	if (data) {
		d = next(&pair.b);
		assert_int_equal(d->err.err, 0);
		assert_null(d->e.op_context);
		assert_int_equal(d->e.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
		assert_int_equal(d->e.data, DATA);
		assert_int_equal(d->e.len, len);
	}
	assert_int_equal(differs(to, len, seed), len);
	assert_true(all_bytes(to - AROUND, AROUND, read ? 0xa5 : 0x5a));
	assert_true(all_bytes(to + len, AROUND, read ? 0xa5 : 0x5a));
}

static void test_all(UNUSED void **state)
{
	unsigned how;
	size_t i;
	int way;

	for (way = 0; way < WAYS; way++) {
		for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
			if (injects((enum way)way) && sizes[i] > EAGER)
				continue;
			for (how = 0; how < 128; how += 1 + rnd() % 31)
				one((enum way)way, sizes[i], how);
		}
	}
	nothing(&pair.a);
	nothing(&pair.b);
}

/* More at a time than a ring has room for */
static void test_many(UNUSED void **state)
{
	static char contexts[700];
	int i;

	for (i = 0; i < 700; i++) {
		ours[i] = (uint8_t)rnd();
		must(again(fi_write(pair.a.ep, ours + i, 1, i & 1 ? NULL : fi_mr_desc(local), pair.to_b,
						(uintptr_t)theirs + (unsigned)i, fi_mr_key(mr), &contexts[i])));
	}
	for (i = 0; i < 700; i++)
		good(&pair.a, &contexts[i]);
	assert_memory_equal(ours, theirs, 700);
}

/* A fenced write is not begun before a large message to the same peer has been read. */
static void test_fence(UNUSED void **state)
{
	const struct fi_rma_iov to = {(uintptr_t)theirs, 8, fi_mr_key(mr)};
	struct iovec iov = {ours, 8};
	struct fi_msg_rma m = {&iov, NULL, 1, pair.to_b, &to, 1, NULL, 0};
	char large, small, there;
	int i;

	memset(theirs, 0xa5, 8);
	memset(ours, 0x5a, 2 * EAGER);
	m.context = &small;
	must(again(fi_tsend(pair.a.ep, ours, 2 * EAGER, NULL, pair.to_b, 1, &large)));
	for (i = 0; i < 100; i++) {
		assert_int_equal(fi_writemsg(pair.a.ep, &m, FI_FENCE), -FI_EAGAIN);
		poll_all();
	}
	assert_true(all_bytes(theirs, 8, 0xa5));
	must(fi_trecv(pair.b.ep, theirs + 4096, 2 * EAGER, NULL, FI_ADDR_UNSPEC, 1, 0, &there));
	must(again(fi_writemsg(pair.a.ep, &m, FI_FENCE | FI_COMPLETION)));
	assert_ptr_equal(next(&pair.a)->e.op_context, &large);
	good(&pair.a, &small);
	good(&pair.b, &there);
	assert_true(all_bytes(theirs, 8, 0x5a));
}

static void test_refused(UNUSED void **state)
{
	const uint64_t to = (uintptr_t)theirs, key = fi_mr_key(mr);
	struct iovec iov[5];
	struct fid_mr *other;
	char c;

	memset(iov, 0, sizeof(iov));
	assert_int_equal(fi_writev(pair.a.ep, iov, NULL, 5, pair.to_b, to, key, &c), -FI_EINVAL);
	assert_int_equal(fi_inject_write(pair.a.ep, ours, EAGER + 1, pair.to_b, to, key), -FI_EMSGSIZE);
	assert_int_equal(fi_write(pair.a.ep, ours, 1, NULL, 999, to, key, &c), -FI_EADDRNOTAVAIL);
	assert_int_equal(fi_mr_reg(pair.a.domain, ours, 0, FI_READ, 0, 0, 0, &other, NULL), -FI_EINVAL);
	assert_int_equal(fi_mr_regv(pair.a.domain, iov, 2, FI_READ, 0, 0, 0, &other, NULL), -FI_EINVAL);
	assert_int_equal(fi_close(&pair.a.domain->fid), -FI_EBUSY);
}

/* Memory that may be read only, and what lies beyond it: the connection fails, and says why. Last of all */
static void test_key(UNUSED void **state)
{
	struct fid_mr *readable;
	char c, later;

	must(fi_mr_reg(pair.b.domain, theirs, 100, FI_REMOTE_READ, 0, 0, 0, &readable, NULL));
	memset(theirs, 1, 200);
	must(again(fi_read(pair.a.ep, ours, 100, NULL, pair.to_b, (uintptr_t)theirs, fi_mr_key(readable), &c)));
	good(&pair.a, &c);
	assert_true(all_bytes(ours, 100, 1));
	must(again(fi_write(pair.a.ep, ours + 200, 100, NULL, pair.to_b, (uintptr_t)theirs, fi_mr_key(readable), &c)));
	bad(&pair.a, &c, FI_EACCES);
	assert_true(all_bytes(theirs, 200, 1));
	must(again(fi_write(pair.a.ep, ours, 1, NULL, pair.to_b, (uintptr_t)theirs, fi_mr_key(mr), &later)));
	bad(&pair.a, &later, FI_EACCES);
	must(fi_close(&readable->fid));
}

static int set_up(void **state)
{
	(void)state;
	pair_open(FI_RMA, 0);
	ours = (uint8_t *)pages(MOST + 2 * AROUND);
	theirs = (uint8_t *)pages(MOST + 2 * AROUND);
	must(fi_mr_reg(pair.b.domain, theirs, MOST + 2 * AROUND, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL));
	must(fi_mr_reg(pair.a.domain, ours, MOST + 2 * AROUND, FI_READ | FI_WRITE, 0, 0, 0, &local, NULL));
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	must(fi_close(&mr->fid));
	must(fi_close(&local->fid));
	pair_close();
	free(ours);
	free(theirs);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_fence),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_key),
	};

	use_provider();
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
