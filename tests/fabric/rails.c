/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rails.c: two devices. Long transfers go over both. When one dies, at any point of a mixed stream, nothing
 * is lost and nothing comes twice. When both do, everything ends, and the two can meet again.
 */
#include "rig.h"
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#define CAPS (FI_RMA | FI_ATOMIC)
#define OPS 64
#define BIG 40000u
#define POINTS 25  /* of each kind of death */
#define KINDS 8
#define EMPTY 3000 /* more than a completion queue has room for at first */
#define OLD 1      /* a tag; those of streams are larger */

static const uint32_t lens[KINDS] = {8, 150, 3000, BIG, BIG, BIG, 8, 100};
static uint8_t out[OPS][BIG], in[OPS][BIG];
static struct {
	uint64_t counter;
	uint8_t board[OPS][BIG], constants[BIG];
} shared;
static uint64_t old[OPS], back[OPS], answers[OPS], tag = OLD, written;
static int ops[OPS], recvs[OPS], replies[OPS];
static bool went[OPS], mortal; /* mortal: both connections may end, and what is under way with them */
static struct fid_mr *mr;

#define is(there, len, n) assert_int_equal(differs(there, len, n), len)

static void open_two(uint64_t flags)
{
	flags |= FI_TRANSMIT;
	pair_open_as(CAPS, 0, FI_THREAD_DOMAIN, FI_WAIT_FD);
	must(fi_mr_reg(pair.b.domain, &shared, sizeof(shared), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL));
	must(fi_control(&pair.a.ep->fid, FI_SETOPSFLAG, &flags));
	ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
}

static void close_two(void)
{
	must(fi_close(&mr->fid));
	pair_close();
}

/* A message in each direction, a write, a read or an atomic operation: the nth of a stream. */
static void begin(uint32_t n)
{
	struct fid_ep *a = pair.a.ep;
	const uint32_t k = n % KINDS, len = lens[k];
	const uint64_t key = fi_mr_key(mr), board = (uintptr_t)shared.board[n], counter = (uintptr_t)&shared.counter;

	old[n] = k == 6 ? 1 : n;
	must(again(k == 4 ? fi_write(a, out[n], len, NULL, pair.to_b, board, key, &ops[n]) :
		   k == 5 ? fi_read(a, in[n], len, NULL, pair.to_b, (uintptr_t)shared.constants, key, &ops[n]) :
		   k == 6 ? fi_fetch_atomic(a, &old[n], 1, NULL, &answers[n], NULL, pair.to_b, counter, key, FI_UINT64,
					    FI_SUM, &ops[n]) :
		   k == 7 ? fi_writedata(a, out[n], len, NULL, n, pair.to_b, board, key, &ops[n]) :
		   n & KINDS ? fi_tsenddata(a, out[n], len, NULL, n, pair.to_b, tag, &ops[n]) :
			       fi_tsend(a, out[n], len, NULL, pair.to_b, tag, &ops[n])));
	if (k < 4)
		assert_true(!again(fi_tinject(pair.b.ep, &old[n], 8, pair.to_a, tag)) || mortal);
}

/* A completion, if it is good, as all are but those of mortals */
static struct done *ended(struct side *s, const void *context)
{
	struct done *d = mortal ? done_of(s, context) : good(s, context);

	return d->err.err ? NULL : d;
}

/* After ops[n] has ended */
static void check(uint32_t n)
{
	const uint32_t k = n % KINDS;
	struct done *d = k < 4 ? ended(&pair.b, &recvs[n]) : NULL;

	assert_true(k > 3 || d || !went[n]);
	if (d) {
		assert_int_equal(d->e.len, lens[k]);
		assert_int_equal(d->e.data, n & KINDS ? n : 0);
		is(in[n], lens[k], n);
	}
	if (k < 4 && ended(&pair.a, &replies[n]))
		assert_int_equal(back[n], old[n]);
	if (k == 4 && went[n])
		is(shared.board[n], BIG, n);
	if (k == 5 && went[n])
		is(in[n], BIG, 1000);
	if (k == 6 && went[n])
		assert_int_equal(answers[n], n / KINDS);
	if (k == 7 && !mortal) { /* in any order */
		n = (uint32_t)good(&pair.b, NULL)->e.data;
		is(shared.board[n], lens[k], n);
		assert_false(written >> n & 1);
		written |= 1ull << n;
	}
}

/* The order of the receives is that of the sends: they all have one tag. */
static void expect(uint32_t from, uint32_t to)
{
	for (; from < to; from++)
		if (from % KINDS < 4) {
			must(fi_trecv(pair.b.ep, in[from], BIG, NULL, FI_ADDR_UNSPEC, tag, 0, &recvs[from]));
			must(fi_trecv(pair.a.ep, &back[from], 8, NULL, FI_ADDR_UNSPEC, tag, 0, &replies[from]));
		}
}

/* Until a message, a write and a read each go over both devices */
static void until_both(void)
{
	const double end = now() + DEADLINE;
	unsigned long was;

	for (uint32_t n = 3; n < 6; n += softdev_sent(1) > was + 3) {
		assert_true(now() < end);
		was = softdev_sent(1);
		expect(n, n + 1);
		begin(n);
		went[n] = ended(&pair.a, &ops[n]);
		check(n);
	}
}

/* In some b sees nothing before all is sent, else messages come before receives. In some the port returns. */
static void stream(uint32_t point)
{
	int err = 0, next;
	uint32_t n;

	tag++;
	memset(in, 0, sizeof(in));
	memset(shared.board, 0, sizeof(shared.board));
	shared.counter = written = 0;
	expect(0, OPS / 2);
	looks(&pair.b, !(point & 1));
	for (n = 0; n < OPS; n++) {
		begin(n);
		poll_all();
		if (point & 2 && n == OPS * 3 / 4)
			must(softdev_fault(NULL));
	}
	if (mortal) { /* if it lives, a loses both connections now. Then it begins anew. */
		must(softdev_fault("down=0@1,down=1@1"));
		for (; !err; err = done_of(&pair.a, &next)->err.err)
			must(again(fi_tsend(pair.a.ep, out[0], 8, NULL, pair.to_b, OLD, &next)));
		must(softdev_fault(NULL));
		must(fi_av_remove(pair.a.av, &pair.to_b, 1, 0));
		pair.to_b = insert(&pair.a, pair.b.name);
		must(again(fi_tsend(pair.a.ep, out[0], 8, NULL, pair.to_b, OLD, &next)));
		settle();
	}
	looks(&pair.b, true);
	expect(OPS / 2, OPS);
	for (n = 0; n < OPS; n++)
		went[n] = ended(&pair.a, &ops[n]);
	if (mortal)
		good(&pair.a, &next); /* and b has seen all that came before */
	for (; mortal && n--;) {
		fi_cancel(&pair.b.ep->fid, &recvs[n]);
		fi_cancel(&pair.a.ep->fid, &replies[n]);
	}
	for (n = 0; n < OPS; n++)
		check(n);
	if (mortal) { /* failed injects, and writes */
		pair.a.first = pair.a.last;
		pair.b.first = pair.b.last;
	}
	nothing();
	assert_true(shared.counter == OPS / KINDS || mortal);
	mortal = false;
}

/* Whoever sleeps is woken by a message over either device, and by the death of one. */
static void test_stripes(UNUSED void **state)
{
	struct fi_cq_tagged_entry e;
	struct fid *fid;

	need_softdev("counting messages");
	open_two(0);
	until_both();
	stream(0);
	for (int n = 0; n < EMPTY; n++)
		must(again(fi_write(pair.a.ep, NULL, 0, NULL, pair.to_b, (uintptr_t)&shared, fi_mr_key(mr), &ops[0])));
	for (int n = 0; n < EMPTY; n++)
		good(&pair.a, &ops[0]);
	fid = &pair.b.cq->fid;
	for (int i = 0; i < 3; i++) {
		must(fi_trecv(pair.b.ep, in[0], 8, NULL, FI_ADDR_UNSPEC, OLD, 0, &recvs[0]));
		wait_polling(!fi_trywait(pair.b.fabric, &fid, 1));
		must(again(fi_tsend(pair.a.ep, out[0], 8, NULL, pair.to_b, OLD, &ops[0])));
		assert_int_equal(fi_cq_sread(pair.a.cq, &e, 1, NULL, (int)DEADLINE * 1000), 1);
		assert_int_equal(fi_cq_sread(pair.b.cq, &e, 1, NULL, (int)DEADLINE * 1000), 1);
		must(softdev_fault("down=0@1"));
	}
	close_two();
}

static void test_deaths(UNUSED void **state)
{
	static const struct {
		const char *spec;
		bool early, mortal; /* early: perhaps before the second connection */
	} rows[] = {
		{.spec = "down=0@%u"}, {.spec = "down=1@%u"}, {.spec = "syndrome=0x15@%u"},
		{.spec = "down=0@%u,drop@/9,dup@/5,delay=2ms@/7"}, {.spec = "down=1@%u", .early = true},
		{.spec = "down=0@%u", .early = true, .mortal = true}, {.spec = "down=0@%u,down=1@%u", .mortal = true},
		{.spec = "syndrome=0x15@%u,syndrome=0x15@%u", .mortal = true},
		{.spec = "syndrome=0x13@%u", .mortal = true},
	};
	char spec[64];

	need_softdev("what goes wrong");
	for (uint32_t i = 0; i < ARRAY(rows) * POINTS; i++) {
		const uint32_t r = i % ARRAY(rows), point = i / ARRAY(rows), at = 7 * point + r + 1;

		open_two(point & 4 ? FI_DELIVERY_COMPLETE : 0);
		if (!rows[r].early)
			until_both();
		snprintf(spec, sizeof(spec), rows[r].spec, at, at + 40);
		must(softdev_fault(spec));
		mortal = rows[r].mortal;
		stream(point);
		mortal = !rows[r].mortal;
		stream(point);
		close_two();
	}
}

/* A write begins anew when the peer knows, too, that the connection is dead. */
static void test_repeat(UNUSED void **state)
{
	need_softdev("taking a port down");
	open_two(0);
	until_both();
	looks(&pair.b, false);
	must(softdev_fault("down=0@1"));
	must(again(fi_write(pair.a.ep, out[0], BIG, NULL, pair.to_b, (uintptr_t)shared.board[0], fi_mr_key(mr), ops)));
	for (int i = 0; i < 5000; i++)
		poll_all();
	assert_true(pair.a.first == pair.a.last);
	looks(&pair.b, true);
	good(&pair.a, &ops[0]);
	assert_memory_equal(shared.board[0], out[0], BIG);
	close_two();
}

int main(void)
{
	const struct CMUnitTest tests[] = {T(test_stripes), T(test_deaths), T(test_repeat)};

	use_provider();
	setenv("FI_INLAY_RAILS", "2", 1);
	setenv("FI_INLAY_PIECE", "4096", 1);
	setenv("FI_INLAY_PEERS", "1", 1);
	setenv("FI_INLAY_TIMEOUT", "10", 1);
	setenv("FI_INLAY_RECEIVES", "128", 1); /* with more, opening takes long */
	for (uint32_t n = 0; n < OPS; n++)
		fill(out[n], BIG, n);
	fill(shared.constants, BIG, 1000);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
