/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rails.c: two devices. Long transfers go over both, and when the port of one goes down, at any point of a mixed
 * stream, nothing is lost and nothing comes twice.
 */
#include "rig.h"
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#define CAPS (FI_RMA | FI_ATOMIC)
#define OPS 64
#define BIG 40000u
#define POINTS 200
#define TAG 3
#define KINDS 8
#define EMPTY 3000 /* more than a completion queue has room for at first */

static uint8_t out[OPS][BIG], in[OPS][BIG];
static struct {
	uint64_t counter;
	uint8_t board[OPS][BIG], constants[BIG];
} shared;
static uint64_t old[OPS], back[OPS], answers[OPS];
static int ops[OPS], recvs[OPS], replies[OPS];
static struct fid_mr *mr;

static void is(const uint8_t *there, uint32_t len, uint32_t n)
{
	assert_int_equal(differs(there, len, n), len);
}

/* Both are connected over both devices when a long message, which b reads, and a long read of a's make both move. */
static void open_both(void)
{
	const double end = now() + DEADLINE;
	unsigned long was, one, two;
	int sent, came;

	pair_open(CAPS, 0);
	must(fi_mr_reg(pair.b.domain, &shared, sizeof(shared), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL));
	ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
	do {
		assert_true(now() < end);
		was = softdev_sent(1);
		must(fi_trecv(pair.b.ep, in[0], BIG, NULL, FI_ADDR_UNSPEC, TAG, 0, &came));
		must(again(fi_tsend(pair.a.ep, out[0], BIG, NULL, pair.to_b, TAG, &sent)));
		good(&pair.a, &sent);
		good(&pair.b, &came);
		one = softdev_sent(1);
		must(again(fi_read(pair.a.ep, in[0], BIG, NULL, pair.to_b, (uintptr_t)shared.constants, fi_mr_key(mr), &came)));
		good(&pair.a, &came);
		two = softdev_sent(1);
	} while (one < was + 2 || two < one + 2);
}

static void close_both(void)
{
	must(fi_close(&mr->fid));
	pair_close();
}

/* A message in one direction or both, a read, a write or an atomic operation: the nth of a stream. */
static void begin(uint32_t n)
{
	static const uint32_t lens[KINDS] = {8, 150, 3000, BIG};
	struct side *a = &pair.a;
	const uint64_t key = fi_mr_key(mr), board = (uintptr_t)shared.board[n];

	switch (n % KINDS) {
	case 4:
		must(again(fi_write(a->ep, out[n], BIG, NULL, pair.to_b, board, key, &ops[n])));
		break;
	case 5:
		must(again(fi_read(a->ep, in[n], BIG, NULL, pair.to_b, (uintptr_t)shared.constants, key, &ops[n])));
		break;
	case 6:
		old[n] = 1;
		must(again(fi_fetch_atomic(a->ep, &old[n], 1, NULL, &answers[n], NULL, pair.to_b, (uintptr_t)&shared.counter, key,
					   FI_UINT64, FI_SUM, &ops[n])));
		break;
	case 7:
		must(again(fi_writedata(a->ep, out[n], 100, NULL, n, pair.to_b, board, key, &ops[n])));
		break;
	default:
		must(again(fi_tsend(a->ep, out[n], lens[n % KINDS], NULL, pair.to_b, TAG, &ops[n])));
		must(again(fi_tinject(pair.b.ep, &old[n], 8, pair.to_a, TAG)));
	}
}

static bool is_message(uint32_t n)
{
	return n % KINDS < 4;
}

static void end(uint32_t n)
{
	struct done *d;

	good(&pair.a, &ops[n]);
	if (is_message(n)) {
		d = good(&pair.b, &recvs[n]);
		is(in[n], (uint32_t)d->e.len, n);
		assert_int_equal(d->e.len, n % 4 == 0 ? 8 : n % 4 == 1 ? 150 : n % 4 == 2 ? 3000 : BIG);
		good(&pair.a, &replies[n]);
		assert_int_equal(back[n], old[n]);
	} else if (n % KINDS == 4) {
		is(shared.board[n], BIG, n);
	} else if (n % KINDS == 5) {
		is(in[n], BIG, 1000);
	} else if (n % KINDS == 6) {
		assert_int_equal(answers[n], n / KINDS);
	} else if (n % KINDS == 7) {
		d = good(&pair.b, NULL);
		assert_int_equal(d->e.data, n);
		is(shared.board[n], 100, n);
	}
}

/* The order of the receives is that of the sends: they all have one tag. */
static void expect(uint32_t from, uint32_t to)
{
	for (; from < to; from++)
		if (is_message(from)) {
			must(fi_trecv(pair.b.ep, in[from], BIG, NULL, FI_ADDR_UNSPEC, TAG, 0, &recvs[from]));
			must(fi_trecv(pair.a.ep, &back[from], 8, NULL, FI_ADDR_UNSPEC, TAG, 0, &replies[from]));
		}
}

static void stream(void)
{
	uint32_t n;

	memset(in, 0, sizeof(in));
	shared.counter = 0;
	memset(shared.board, 0, sizeof(shared.board));
	expect(0, OPS / 2);
	for (n = 0; n < OPS; n++) {
		old[n] = n;
		begin(n);
	}
	expect(OPS / 2, OPS);
	for (n = 0; n < OPS; n++)
		end(n);
	assert_int_equal(shared.counter, OPS / KINDS);
	nothing();
}

static void test_stripes(UNUSED void **state)
{
	unsigned long was[2];
	uint32_t n, i;

	need_softdev("counting messages");
	open_both();
	for (n = 3; n < 6; n++) {
		for (i = 0; i < 2; i++)
			was[i] = softdev_sent(i);
		expect(n, n + 1);
		begin(n);
		end(n);
		for (i = 0; i < 2; i++)
			assert_true(softdev_sent(i) > was[i] + 3);
	}
	stream();
	for (n = 0; n < EMPTY; n++)
		must(again(fi_write(pair.a.ep, NULL, 0, NULL, pair.to_b, (uintptr_t)shared.constants, fi_mr_key(mr), &ops[0])));
	for (n = 0; n < EMPTY; n++)
		good(&pair.a, &ops[0]);
	close_both();
}

static void test_deaths(UNUSED void **state)
{
	char spec[32];
	uint32_t n;

	need_softdev("taking ports down");
	for (n = 0; n < POINTS; n++) {
		open_both();
		snprintf(spec, sizeof(spec), "down=%u@%u", n % 2, n + 1);
		must(softdev_fault(spec));
		stream();
		close_both();
		must(softdev_fault(NULL));
	}
}

/* Both: the peer is gone. */
static void test_both(UNUSED void **state)
{
	int sent;

	need_softdev("taking ports down");
	open_both();
	must(softdev_fault("down=0@1,down=1@1"));
	must(again(fi_tsend(pair.a.ep, out[0], 8, NULL, pair.to_b, TAG, &sent)));
	bad(&pair.a, &sent, FI_EHOSTUNREACH);
	close_both();
}

int main(void)
{
	const struct CMUnitTest tests[] = {T(test_stripes), T(test_deaths), T(test_both)};
	uint32_t n;

	use_provider();
	setenv("FI_INLAY_RAILS", "2", 1);
	setenv("FI_INLAY_PIECE", "4096", 1);
	for (n = 0; n < OPS; n++)
		fill(out[n], BIG, n);
	fill(shared.constants, BIG, 1000);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
