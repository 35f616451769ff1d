/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * messages.c: every way to send and receive, at sizes on both sides of each protocol's border: the bytes
 * and everything that the completions tell.
 */
#include "rig.h"
#include <sys/mman.h>

#define CAPS (FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE)
#define MOST ((1u << 20) + 3)
#define DATA 0x1122334455667788ull
#define TAG 0x0000f00dcafe1234ull

enum way { SEND, SENDV, SENDMSG, SENDDATA, INJECT, INJECTDATA, WAYS };

static uint8_t *out, *in;

/* Sizes on both sides of what fits a WQEBB, a CQE, a WQE, a small buffer, a bounce buffer, a piece */
static const size_t sizes[] = {0,  1,   8,   12,  13,  19,  20,  21,  24,  25,   32,   33,   44,    63,    64,   65,
			       160, 168, 169, 176, 177, 180, 181, 191, 192, 193, 1000, EAGER, EAGER + 1, 65536, MOST};

/* A cut of the buffer into as many pieces as are allowed, empty ones among them */
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

static ssize_t send_way(enum way way, bool tagged, size_t len, void *context, unsigned how)
{
	struct fid_ep *ep = pair.a.ep;
	fi_addr_t to = pair.to_b;
	struct fi_msg_tagged t;
	struct fi_msg m;
	struct iovec iov[4];
	size_t n = cut(iov, out, len, how);

	memset(&t, 0, sizeof(t));
	memset(&m, 0, sizeof(m));
	t.msg_iov = m.msg_iov = iov;
	t.iov_count = m.iov_count = n;
	t.addr = m.addr = to;
	t.context = m.context = context;
	t.data = m.data = DATA;
	t.tag = TAG;
	switch (way) {
	case SEND:
		return tagged ? fi_tsend(ep, out, len, NULL, to, TAG, context) :
				fi_send(ep, out, len, NULL, to, context);
	case SENDV:
		return tagged ? fi_tsendv(ep, iov, NULL, n, to, TAG, context) : fi_sendv(ep, iov, NULL, n, to, context);
	case SENDMSG:
		return tagged ? fi_tsendmsg(ep, &t, FI_REMOTE_CQ_DATA) : fi_sendmsg(ep, &m, FI_REMOTE_CQ_DATA);
	case SENDDATA:
		return tagged ? fi_tsenddata(ep, out, len, NULL, DATA, to, TAG, context) :
				fi_senddata(ep, out, len, NULL, DATA, to, context);
	case INJECT:
		return tagged ? fi_tinject(ep, out, len, to, TAG) : fi_inject(ep, out, len, to);
	default:
		return tagged ? fi_tinjectdata(ep, out, len, DATA, to, TAG) : fi_injectdata(ep, out, len, DATA, to);
	}
}

/* A receive of len bytes in pieces, in one of its ways */
static void recv_way(bool tagged, size_t len, void *context, unsigned how)
{
	struct fid_ep *ep = pair.b.ep;
	struct fi_msg_tagged t;
	struct fi_msg m;
	struct iovec iov[4];
	size_t n = cut(iov, in, len, how / 4);
	fi_addr_t from = how & 1 ? pair.to_a : FI_ADDR_UNSPEC;
	uint64_t ignore = how & 2 ? 0xff00 : 0, tag = TAG ^ (ignore & 0x1200);

	memset(&t, 0, sizeof(t));
	memset(&m, 0, sizeof(m));
	t.msg_iov = m.msg_iov = iov;
	t.iov_count = m.iov_count = n;
	t.addr = m.addr = from;
	t.context = m.context = context;
	t.tag = tag;
	t.ignore = ignore;
	if (n == 1)
		must(tagged ? fi_trecv(ep, in, len, NULL, from, tag, ignore, context) :
			      fi_recv(ep, in, len, NULL, from, context));
	else if (n == 2)
		must(tagged ? fi_trecvv(ep, iov, NULL, n, from, tag, ignore, context) :
			      fi_recvv(ep, iov, NULL, n, from, context));
	else
		must(tagged ? fi_trecvmsg(ep, &t, 0) : fi_recvmsg(ep, &m, 0));
}

static void one(enum way way, bool tagged, size_t len, bool early, unsigned how)
{
	bool silent = way == INJECT || way == INJECTDATA, data = way == SENDMSG || way == SENDDATA || way == INJECTDATA;
	uint64_t kind = tagged ? FI_TAGGED : FI_MSG;
	int here, there;
	struct done *d;

	fill(out, len, how);
	memset(in, 0, len + 8);
	if (early)
		recv_way(tagged, len, &there, how);
	must(again(send_way(way, tagged, len, &here, how)));
	if (silent)
		memset(out, 0xee, len);
	else if (len <= EAGER)
		assert_int_equal(good(&pair.a, &here)->e.flags, FI_SEND | kind);
	if (!early) {
		poll_all();
		recv_way(tagged, len, &there, how);
	}
	d = good(&pair.b, &there);
	assert_int_equal(d->e.flags, FI_RECV | kind | (data ? FI_REMOTE_CQ_DATA : 0));
	assert_int_equal(d->e.len, len);
	if (data)
		assert_true(d->e.data == DATA);
	if (tagged)
		assert_true(d->e.tag == TAG);
	assert_true(d->source == pair.to_a);
	assert_int_equal(differs(in, len, how), len);
	assert_true(all_bytes(in + len, 8, 0));
	if (!silent && len > EAGER)
		assert_int_equal(good(&pair.a, &here)->e.flags, FI_SEND | kind);
}

static void test_all(void **state)
{
	unsigned way, tagged, early, i, how = 0;

	(void)state;
	for (way = SEND; way < WAYS; way++)
		for (tagged = 0; tagged < 2; tagged++)
			for (early = 0; early < 2; early++)
				for (i = 0; i < ARRAY(sizes); i++, how++)
					if (sizes[i] <= EAGER || (way != INJECT && way != INJECTDATA))
						one((enum way)way, tagged, sizes[i], early, how);
	nothing(&pair.a);
	nothing(&pair.b);
}

/* An inject of more than fits is refused, and changes nothing. */
static void test_too_long(void **state)
{
	struct iovec iov[5] = {{out, 1}, {out, 1}, {out, 1}, {out, 1}, {out, 1}};

	(void)state;
	assert_int_equal(fi_tinject(pair.a.ep, out, EAGER + 1, pair.to_b, TAG), -FI_EMSGSIZE);
	assert_int_equal(fi_inject(pair.a.ep, out, EAGER + 1, pair.to_b), -FI_EMSGSIZE);
	assert_int_equal(fi_tsendv(pair.a.ep, iov, NULL, 5, pair.to_b, TAG, NULL), -FI_EINVAL);
	assert_int_equal(fi_trecvv(pair.b.ep, iov, NULL, 5, FI_ADDR_UNSPEC, TAG, 0, NULL), -FI_EINVAL);
	assert_int_equal(fi_tsend(pair.a.ep, out, 1, NULL, 77, TAG, NULL), -FI_EADDRNOTAVAIL);
	assert_int_equal(fi_trecv(pair.b.ep, in, 1, NULL, 77, TAG, 0, NULL), -FI_EADDRNOTAVAIL);
	nothing(&pair.a);
	nothing(&pair.b);
}

/* What a send's completion waits for: at once, the peer's device, the peer, the receive. */
static void test_levels(void **state)
{
	static const struct {
		uint64_t level;
		bool before_progress, before_receive;
	} cases[] = {{FI_INJECT_COMPLETE, true, true}, {FI_TRANSMIT_COMPLETE, false, true},
		     {FI_DELIVERY_COMPLETE, false, true}, {FI_MATCH_COMPLETE, false, false}};
	static const size_t lens[] = {0, 8, 100, 4000};
	struct fi_msg_tagged t;
	struct iovec iov;
	size_t i, k;
	int here, there;

	(void)state;
	for (i = 0; i < ARRAY(cases); i++)
		for (k = 0; k < ARRAY(lens); k++) {
			memset(&t, 0, sizeof(t));
			fill(out, lens[k], 7);
			iov.iov_base = out;
			iov.iov_len = lens[k];
			t.msg_iov = &iov;
			t.iov_count = 1;
			t.addr = pair.to_b;
			t.tag = TAG;
			t.context = &here;
			must(again(fi_tsendmsg(pair.a.ep, &t, cases[i].level)));
			if (cases[i].before_progress) {
				struct fi_cq_tagged_entry e;

				assert_int_equal(fi_cq_read(pair.a.cq, &e, 1), 1);
				assert_ptr_equal(e.op_context, &here);
			} else if (cases[i].before_receive) {
				good(&pair.a, &here);
			} else {
				nothing(&pair.a);
			}
			memset(in, 0, lens[k]);
			must(fi_trecv(pair.b.ep, in, lens[k], NULL, pair.to_a, TAG, 0, &there));
			good(&pair.b, &there);
			assert_int_equal(differs(in, lens[k], 7), lens[k]);
			if (!cases[i].before_receive)
				good(&pair.a, &here);
		}
	nothing(&pair.a);
}

/* An endpoint sends to itself, in all protocols. */
static void test_self(void **state)
{
	fi_addr_t self = insert(&pair.a, pair.a.name);
	int here, there;
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY(sizes); i++) {
		fill(out, sizes[i], (uint32_t)i);
		memset(in, 0, sizes[i]);
		must(fi_trecv(pair.a.ep, in, sizes[i], NULL, self, 5, 0, &there));
		must(again(fi_tsend(pair.a.ep, out, sizes[i], NULL, self, 5, &here)));
		assert_true(good(&pair.a, &there)->source == self);
		good(&pair.a, &here);
		assert_int_equal(differs(in, sizes[i], (uint32_t)i), sizes[i]);
	}
}

/* Buffers that are unmapped and come back at the same address: no stale registration is used. */
static void test_unmapped(void **state)
{
	const size_t len = 1 << 18;
	uint8_t *from = NULL, *to = NULL;
	int here, there;
	uint32_t i;

	(void)state;
	for (i = 0; i < 12; i++) {
		const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (from ? MAP_FIXED : 0);

		from = (uint8_t *)mmap(from, len, PROT_READ | PROT_WRITE, flags, -1, 0);
		to = (uint8_t *)mmap(to, len, PROT_READ | PROT_WRITE, flags, -1, 0);
		assert_true(from != MAP_FAILED && to != MAP_FAILED);
		fill(from, len, i);
		if (i & 1)
			must(mprotect(from, len, PROT_READ)); /* what is sent may be read-only */
		must(fi_trecv(pair.b.ep, to, len, NULL, pair.to_a, TAG, 0, &there));
		must(again(fi_tsend(pair.a.ep, from, len, NULL, pair.to_b, TAG, &here)));
		good(&pair.b, &there);
		good(&pair.a, &here);
		assert_int_equal(differs(to, len, i), len);
		if (i % 3 == 0) {
			must(munmap(from, len));
			must(munmap(to, len));
		} else if (i % 3 == 1) {
			must(madvise(to, len, MADV_DONTNEED));
		}
	}
	munmap(from, len);
	munmap(to, len);
}

static int set_up(void **state)
{
	(void)state;
	pair_open(CAPS, 0);
	out = (uint8_t *)pages(MOST + 8);
	in = (uint8_t *)pages(MOST + 8);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	pair_close();
	free(out);
	free(in);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_levels),
		cmocka_unit_test(test_self),
		cmocka_unit_test(test_unmapped),
	};

	use_provider();
	return cmocka_run_group_tests(tests, set_up, tear_down) || again_with("FI_INLAY_TAG_OFFLOAD", "64");
}
