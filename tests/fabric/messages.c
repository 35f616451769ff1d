/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * messages.c: what messages and one-sided operations refuse, when their completions come, and what memory they
 * use. Every way to send, receive, read and write is in soak.c.
 */
#include "rig.h"
#include <rdma/fi_rma.h>
#include <sys/mman.h>

#define CAPS (FI_MSG | FI_DIRECTED_RECV | FI_SOURCE | FI_RMA)
#define BYTES (4 * EAGER)
#define TAG 0x0000f00dcafe1234ull

static uint8_t ours[BYTES] __attribute__((aligned(4096))), theirs[BYTES] __attribute__((aligned(4096)));
static struct fid_mr *mr, *local;
static char here, there;

/* Nothing of it has happened */
TEST(test_refused)
{
	const uint64_t at = (uintptr_t)theirs, key = fi_mr_key(mr);
	struct iovec v[5] = {{ours, 1}, {ours, 1}, {ours, 1}, {ours, 1}, {ours, 1}};
	struct fid_ep *a = pair.a.ep, *b = pair.b.ep;
	const fi_addr_t to = pair.to_b, none = 77;
	struct fid_mr *other;
	const struct {
		const char *what;
		ssize_t is, expected;
	} rows[] = {
		{"a tagged inject that is too long", fi_tinject(a, ours, EAGER + 1, to, TAG), -FI_EMSGSIZE},
		{"an inject that is too long", fi_inject(a, ours, EAGER + 1, to), -FI_EMSGSIZE},
		{"a send of 5 pieces", fi_tsendv(a, v, NULL, 5, to, TAG, NULL), -FI_EINVAL},
		{"a receive of 5 pieces", fi_trecvv(b, v, NULL, 5, FI_ADDR_UNSPEC, TAG, 0, NULL), -FI_EINVAL},
		{"a send to nobody", fi_tsend(a, ours, 1, NULL, none, TAG, NULL), -FI_EADDRNOTAVAIL},
		{"a receive from nobody", fi_trecv(b, ours, 1, NULL, none, TAG, 0, NULL), -FI_EADDRNOTAVAIL},
		{"a write of 5 pieces", fi_writev(a, v, NULL, 5, to, at, key, NULL), -FI_EINVAL},
		{"an injected write that is too long", fi_inject_write(a, ours, EAGER + 1, to, at, key), -FI_EMSGSIZE},
		{"a write to nobody", fi_write(a, ours, 1, NULL, none, at, key, NULL), -FI_EADDRNOTAVAIL},
		{"no memory", fi_mr_reg(pair.a.domain, ours, 0, FI_READ, 0, 0, 0, &other, NULL), -FI_EINVAL},
		{"memory of 2 pieces", fi_mr_regv(pair.a.domain, v, 2, FI_READ, 0, 0, 0, &other, NULL), -FI_EINVAL},
	};

	for (size_t i = 0; i < ARRAY(rows); i++)
		if (rows[i].is != rows[i].expected)
			fail_msg("%s: %zd", rows[i].what, rows[i].is);
	nothing();
}

/* What a send's completion waits for: at once, the peer's device, the peer, the receive. */
TEST(test_levels)
{
	static const struct {
		uint64_t level;
		bool before_progress, before_receive;
	} rows[] = {{FI_INJECT_COMPLETE, true, true}, {FI_TRANSMIT_COMPLETE, false, true},
		    {FI_DELIVERY_COMPLETE, false, true}, {FI_MATCH_COMPLETE, false, false}};
	static const size_t lens[] = {0, 8, 100, 4000};
	struct fi_cq_tagged_entry e;

	for (size_t i = 0; i < ARRAY(rows); i++)
		for (size_t k = 0; k < ARRAY(lens); k++) {
			fill(ours, lens[k], 7);
			must(again(tsend_flags(&pair.a, pair.to_b, ours, lens[k], TAG, &here, rows[i].level)));
			if (rows[i].before_progress) {
				assert_int_equal(fi_cq_read(pair.a.cq, &e, 1), 1);
				assert_ptr_equal(e.op_context, &here);
			} else if (rows[i].before_receive) {
				good(&pair.a, &here);
			} else {
				nothing();
			}
			memset(theirs, 0, lens[k]);
			must(fi_trecv(pair.b.ep, theirs, lens[k], NULL, pair.to_a, TAG, 0, &there));
			good(&pair.b, &there);
			assert_int_equal(differs(theirs, lens[k], 7), lens[k]);
			if (!rows[i].before_receive)
				good(&pair.a, &here);
		}
	nothing();
}

/* Buffers that are unmapped and come back at the same address: no stale registration is used. */
TEST(test_unmapped)
{
	const size_t len = 1 << 18;
	uint8_t *from = NULL, *to = NULL;

	for (uint32_t i = 0; i < 12; i++) {
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

/* Memory that was read-only when the application registered it: written from it as it is, read into anew */
TEST(test_read_only)
{
	uint8_t *memory = (uint8_t *)mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const uint64_t at = (uintptr_t)theirs, key = fi_mr_key(mr);
	struct fid_mr *given;

	must(fi_mr_reg(pair.a.domain, memory, BYTES, FI_READ | FI_WRITE, 0, 0, 0, &given, NULL));
	fill(theirs, BYTES, 1);
	must(again(fi_write(pair.a.ep, memory, BYTES / 2, fi_mr_desc(given), pair.to_b, at, key, &here)));
	good(&pair.a, &here);
	assert_true(all_bytes(theirs, BYTES / 2, 0));
	must(mprotect(memory, BYTES, PROT_READ | PROT_WRITE));
	must(again(fi_read(pair.a.ep, memory, BYTES, fi_mr_desc(given), pair.to_b, at, key, &here)));
	good(&pair.a, &here);
	assert_memory_equal(memory, theirs, BYTES);
	must(fi_close(&given->fid));
	must(munmap(memory, BYTES));
}

/* More writes at a time than a ring has room for */
TEST(test_many)
{
	static char contexts[700];

	for (unsigned i = 0; i < 700; i++) {
		ours[i] = (uint8_t)rnd();
		must(again(fi_write(pair.a.ep, ours + i, 1, i & 1 ? NULL : fi_mr_desc(local), pair.to_b,
				    (uintptr_t)theirs + i, fi_mr_key(mr), &contexts[i])));
	}
	for (unsigned i = 0; i < 700; i++)
		good(&pair.a, &contexts[i]);
	assert_memory_equal(ours, theirs, 700);
}

/* A fenced write is not begun before a large message to the same peer has been read. */
TEST(test_fence)
{
	const struct fi_rma_iov to = {(uintptr_t)theirs, 8, fi_mr_key(mr)};
	struct iovec iov = {ours, 8};
	struct fi_msg_rma m = {&iov, NULL, 1, pair.to_b, &to, 1, &here, 0};
	char large;

	memset(theirs, 0xa5, 8);
	memset(ours, 0x5a, 2 * EAGER);
	must(again(fi_tsend(pair.a.ep, ours, 2 * EAGER, NULL, pair.to_b, 1, &large)));
	for (int i = 0; i < 100; i++) {
		assert_int_equal(fi_writemsg(pair.a.ep, &m, FI_FENCE), -FI_EAGAIN);
		poll_all();
	}
	assert_true(all_bytes(theirs, 8, 0xa5));
	must(fi_trecv(pair.b.ep, theirs + 4096, 2 * EAGER, NULL, FI_ADDR_UNSPEC, 1, 0, &there));
	must(again(fi_writemsg(pair.a.ep, &m, FI_FENCE | FI_COMPLETION)));
	assert_ptr_equal(next(&pair.a)->e.op_context, &large);
	good(&pair.a, &here);
	good(&pair.b, &there);
	assert_true(all_bytes(theirs, 8, 0x5a));
}

/* Memory that may be read only, and what lies beyond it: the connection fails, and says why. Last of all */
TEST(test_key)
{
	const uint64_t at = (uintptr_t)theirs;
	struct fid_mr *readable;

	must(fi_mr_reg(pair.b.domain, theirs, 100, FI_REMOTE_READ, 0, 0, 0, &readable, NULL));
	memset(theirs, 1, 200);
	must(again(fi_read(pair.a.ep, ours, 100, NULL, pair.to_b, at, fi_mr_key(readable), &here)));
	good(&pair.a, &here);
	assert_true(all_bytes(ours, 100, 1));
	must(again(fi_write(pair.a.ep, ours + 200, 100, NULL, pair.to_b, at, fi_mr_key(readable), &here)));
	bad(&pair.a, &here, FI_EACCES);
	assert_true(all_bytes(theirs, 200, 1));
	must(again(fi_write(pair.a.ep, ours, 1, NULL, pair.to_b, at, fi_mr_key(mr), &there)));
	bad(&pair.a, &there, FI_EACCES);
	must(fi_close(&readable->fid));
}

static int set_up(UNUSED void **state)
{
	pair_open(CAPS, 0);
	must(fi_mr_reg(pair.b.domain, theirs, BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL));
	must(fi_mr_reg(pair.a.domain, ours, BYTES, FI_READ | FI_WRITE, 0, 0, 0, &local, NULL));
	return 0;
}

static int close_all(UNUSED void **state)
{
	must(fi_close(&mr->fid));
	must(fi_close(&local->fid));
	pair_close();
	return 0;
}

int main(void)
{
	use_provider();
	return run_all(set_up, close_all) || again_with("FI_INLAY_TAG_OFFLOAD", "64");
}
