/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * receive.c: which receive gets which message, and what else can be done with either: truncation, cancel,
 * peek, claim, discard, multi-receive, order.
 */
#include "rig.h"

#define CAPS (FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE | FI_MULTI_RECV)
#define LONG (3 * EAGER + 5)

static uint8_t out[LONG], in[LONG + 8];
static struct side other;
static fi_addr_t from_other, other_to_b;
static int here, there;

/* len bytes of `seed` from a to b, which nobody has asked for. The device has them when this returns. */
static void send_tagged(struct side *s, fi_addr_t to, size_t len, uint64_t tag, uint32_t seed, void *context)
{
	fill(out, len, seed);
	must(again(fi_tsend(s->ep, out, len, NULL, to, tag, context)));
	if (len <= EAGER)
		good(s, context);
}

static void got(struct side *s, void *context, size_t len, uint64_t tag, uint32_t seed)
{
	struct done *d = good(s, context);

	assert_int_equal(d->e.len, len);
	assert_true(d->e.tag == tag);
	assert_int_equal(differs(in, len, seed), len);
}

/*
 * A receive that ignores fewer bits than all before, twice: the messages and receives that are there stay in order.
 * The first test: nothing has been received yet.
 */
TEST(test_ignore)
{
	enum { N = 30 };
	static const uint64_t ignored[] = {3ull << 32, 2ull << 32, 1ull << 32}; /* by the receives of messages 1 and 2 */
	int waits[N], stays, get;
	uint64_t i, k, tag;

	for (i = 0; i < N; i++)
		must(fi_trecv(pair.b.ep, in, 8, NULL, pair.to_a, 0x100, 3ull << 32, &waits[i]));
	must(fi_trecv(pair.b.ep, in, 8, NULL, pair.to_a, 0x300, 1ull << 32, &stays));
	for (i = 0; i < N; i++)
		send_tagged(&pair.a, pair.to_b, 8, 0x200 | (i % 4) << 32, (uint32_t)i, &here);
	for (k = 0; k < N; k++) {
		i = k < 2 ? 2 - k : k == 2 ? 0 : k;
		tag = 0x200 | (i % 4) << 32;
		must(fi_trecv(pair.b.ep, in, 8, NULL, pair.to_a, k < 2 ? tag : 0x200, ignored[k < 2 ? i : 0], &get));
		got(&pair.b, &get, 8, tag, (uint32_t)i);
	}
	for (i = 0; i < N; i++) {
		tag = 0x100 | (i % 4) << 32;
		send_tagged(&pair.a, pair.to_b, 8, tag, (uint32_t)i, &here);
		got(&pair.b, &waits[i], 8, tag, (uint32_t)i);
	}
	/* What one of the two has ignored, and the other not */
	send_tagged(&pair.a, pair.to_b, 8, 0x300 | 2ull << 32, 1, &here);
	send_tagged(&pair.a, pair.to_b, 8, 0x300, 2, &here);
	got(&pair.b, &stays, 8, 0x300, 2);
	must(fi_trecv(pair.b.ep, in, 8, NULL, pair.to_a, 0x300 | 2ull << 32, 0, &get));
	got(&pair.b, &get, 8, 0x300 | 2ull << 32, 1);
}

/* ---- Cancel ---- */

TEST(test_cancel)
{
	static const struct fi_msg untagged = {0};
	int first, second, msg;

	must(fi_trecv(pair.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &first));
	must(fi_trecv(pair.b.ep, in, 8, NULL, pair.to_a, 1, 0, &second));
	must(fi_recv(pair.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &msg));
	must(fi_cancel(&pair.b.ep->fid, &first));
	must(fi_cancel(&pair.b.ep->fid, &msg));
	assert_int_equal(fi_cancel(&pair.b.ep->fid, &first), -FI_ENOENT);
	assert_int_equal(fi_cancel(&pair.b.ep->fid, &here), -FI_ENOENT);
	assert_true(bad(&pair.b, &first, FI_ECANCELED)->err.flags & FI_TAGGED);
	assert_true(bad(&pair.b, &msg, FI_ECANCELED)->err.flags & FI_MSG);
	send_tagged(&pair.a, pair.to_b, 8, 1, 3, &here);
	got(&pair.b, &second, 8, 1, 3);
	assert_int_equal(fi_cancel(&pair.b.ep->fid, &second), -FI_ENOENT);
	assert_int_equal(fi_recvmsg(pair.b.ep, &untagged, FI_PEEK), -FI_EOPNOTSUPP);
}

/* ---- Peek, claim, discard ---- */

static void peek(struct side *s, fi_addr_t from, uint64_t tag, uint64_t ignore, uint64_t flags, void *context)
{
	const struct iovec iov = {in, LONG};
	const struct fi_msg_tagged m = {&iov, NULL, flags & FI_PEEK ? 0 : 1, from, tag, ignore, context, 0};

	must(fi_trecvmsg(s->ep, &m, flags));
}

/* ---- Order and senders ---- */

#define MANY 6000u

/*
 * More messages than the table has room for at first, in an order of chance, from two senders, with their number: receives of
 * one sender and tag complete in their order.
 */
TEST(test_many)
{
	static uint32_t number[MANY], count[2][4], seen[2][4];
	uint32_t i, k, posted = 0, way, tag;
	struct done *d;

	for (i = 0; i < MANY; i++) {
		way = rnd_below(2);
		tag = rnd_below(4);
		number[0] = count[way][tag]++;
		must(again(fi_tinject((way ? &other : &pair.a)->ep, number, 4, way ? other_to_b : pair.to_b, tag)));
		poll_all();
	}
	for (k = 0; k < 8; k++)
		for (i = 0; i < count[k / 4][k % 4]; i++, posted++)
			must(again(fi_trecv(pair.b.ep, &number[posted], 4, NULL, k / 4 ? from_other : pair.to_a, k % 4, 0,
					    &number[posted])));
	for (i = 0; i < MANY; i++) {
		d = next(&pair.b);
		assert_int_equal(d->err.err, 0);
		assert_int_equal(*(uint32_t *)d->e.op_context, seen[d->source == from_other][d->e.tag]++);
	}
}

/* ---- Receives and messages as they come, against a model ---- */

#define STEPS 1000

static struct entry {
	fi_addr_t from;
	uint64_t tag, ignore, data;
	size_t len;
	bool open;
} posted[STEPS], came[STEPS];
static uint8_t room[STEPS][EAGER + 8]; /* of the receives, and what must stay as it was */
static uint32_t receives, messages;

static bool fits(const struct entry *r, const struct entry *m)
{
	return r->open && m->open && (r->from == FI_ADDR_UNSPEC || r->from == m->from) &&
	       !((r->tag ^ m->tag) & ~r->ignore);
}

/* Of what message k holds. Those that are read later are all the same. */
static uint32_t seed_of(uint32_t k)
{
	return came[k].len > EAGER ? STEPS : k;
}

/* Message k has a receive, or was thrown away. */
static void is_gone(uint32_t k)
{
	came[k].open = false;
	if (came[k].len > EAGER)
		good(came[k].from == pair.to_a ? &pair.a : &other, &came[k]);
}

/* Receive i has met message k. */
static void meet(uint32_t i, uint32_t k)
{
	const size_t len = came[k].len < posted[i].len ? came[k].len : posted[i].len;
	struct done *d = bad(&pair.b, &posted[i], len < came[k].len ? FI_ETRUNC : 0);

	if (len < came[k].len)
		assert_true(d->err.len == len && d->err.olen == came[k].len - len && d->err.tag == came[k].tag &&
			    (d->err.flags & (FI_RECV | FI_TAGGED)) == (FI_RECV | FI_TAGGED));
	else
		assert_true(d->e.len == len && d->e.tag == came[k].tag && d->source == came[k].from && d->e.data == came[k].data);
	assert_int_equal(differs(room[i], len, seed_of(k)), len);
	assert_true(all_bytes(room[i] + len, 8, 0xaa));
	posted[i].open = false;
	is_gone(k);
}

/* What a receive or a peek asks for. Returns the first message that fits. */
static uint32_t ask(struct entry *r)
{
	static const fi_addr_t any = FI_ADDR_UNSPEC;
	const fi_addr_t *froms[] = {&pair.to_a, &from_other, &any};
	uint32_t k;

	r->from = *froms[rnd_below(3)];
	r->tag = rnd_below(3);
	r->ignore = rnd_below(4) ? 0 : 3;
	r->open = true;
	for (k = 0; k < messages && !fits(r, &came[k]); k++)
		;
	return k;
}

static void post_one(bool mixed)
{
	const uint32_t i = receives++, k = ask(&posted[i]);

	/* A receive that takes any eager message may be the device's */
	posted[i].len = mixed && rnd_below(2) ? rnd_below(4) * rnd_below(1000) : EAGER;
	memset(room[i], 0xaa, sizeof(room[i]));
	must(fi_trecv(pair.b.ep, room[i], posted[i].len, NULL, posted[i].from, posted[i].tag, posted[i].ignore, &posted[i]));
	if (k < messages)
		meet(i, k);
}

/* A look at a message, which stays, is claimed and then received or thrown away, or is thrown away at once */
static void peek_one(void)
{
	static const uint64_t flags[] = {0, FI_CLAIM, FI_CLAIM, FI_DISCARD};
	static struct fi_context claim;
	struct entry r;
	const uint32_t k = ask(&r), way = rnd_below(4);
	const double end = now() + DEADLINE;
	struct done *d;

	if (k == messages) {
		peek(&pair.b, r.from, r.tag, r.ignore, FI_PEEK, &claim);
		bad(&pair.b, &claim, FI_ENOMSG);
		return;
	}
	do { /* until it is there */
		peek(&pair.b, r.from, r.tag, r.ignore, FI_PEEK | flags[way], &claim);
		d = done_of(&pair.b, &claim);
		poll_all();
	} while (d->err.err == FI_ENOMSG && now() < end);
	assert_int_equal(d->err.err, 0);
	assert_true((d->e.flags | FI_REMOTE_CQ_DATA) == (FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA));
	if (way < 3)
		assert_true(d->e.len == came[k].len && d->e.tag == came[k].tag && d->source == came[k].from && d->e.data == came[k].data);
	if (!way)
		return;
	if (way < 3)
		peek(&pair.b, r.from, r.tag, r.ignore, FI_CLAIM | (way == 2 ? FI_DISCARD : 0), &claim);
	if (way == 1)
		got(&pair.b, &claim, came[k].len, came[k].tag, seed_of(k));
	else if (way == 2)
		good(&pair.b, &claim);
	is_gone(k);
}

static void send_one(bool way, uint64_t data)
{
	static uint8_t large[LONG];
	struct side *s = way ? &pair.a : &other;
	const uint32_t k = messages++;
	uint8_t *buf;

	came[k] = (struct entry){way ? pair.to_a : from_other, rnd_below(3), 0, data, 0, true};
	came[k].len = rnd_below(2) ? rnd_below(4000) : rnd_below(3) ? rnd_below(200) : LONG;
	buf = came[k].len > EAGER ? large : out;
	fill(buf, came[k].len, seed_of(k));
	must(again(fi_tsenddata(s->ep, buf, came[k].len, NULL, data, way ? pair.to_b : other_to_b,
				came[k].tag, &came[k])));
	if (came[k].len <= EAGER)
		good(s, &came[k]);
	else /* it is there */
		through(s, way ? pair.to_b : other_to_b, &pair.b, came[k].from);
}

static void meet_receive(uint32_t k)
{
	uint32_t i;

	for (i = 0; i < receives && !fits(&posted[i], &came[k]); i++)
		;
	if (i < receives)
		meet(i, k);
}

static void cancel(uint32_t i)
{
	if (!posted[i].open)
		return;
	must(fi_cancel(&pair.b.ep->fid, &posted[i]));
	assert_ptr_equal(bad(&pair.b, &posted[i], FI_ECANCELED)->err.buf, room[i]);
	posted[i].open = false;
}

static void model(bool mixed)
{
	uint32_t i;

	receives = messages = 0;
	while (receives < STEPS && messages + 2 <= STEPS) {
		const bool way = rnd_below(2) != 0;
		const uint32_t first = messages;

		if (!rnd_below(8)) /* the device may have taken receives in */
			ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
		switch (rnd_below(8)) {
		case 0: /* the second one's acknowledgement says that all of the first one has come */
			send_one(way, 1ull << 40); /* more data than go with what the device matches */
			/* fallthrough */
		case 1:
			send_one(way, 5);
			for (i = first; i < messages; i++)
				meet_receive(i);
			break;
		case 2:
			i = rnd_below(receives + 1);
			if (i < receives)
				cancel(i);
			break;
		case 3: peek_one(); break;
		default: post_one(mixed);
		}
	}
	/* What is left over */
	for (i = 0; i < receives; i++)
		cancel(i);
	for (i = 0; i < messages; i++)
		if (came[i].open) {
			must(fi_trecv(pair.b.ep, in, LONG, NULL, came[i].from, came[i].tag, 0, &there));
			got(&pair.b, &there, came[i].len, came[i].tag, seed_of(i));
			is_gone(i);
		}
	nothing();
}

TEST(test_model)
{
	model(false);
	model(true);
}

/*
 * With FI_INLAY_TAG_OFFLOAD, a message is in its receive's buffer before anybody looks. It may come before the device
 * knows of the receive: not always.
 */
TEST(test_offload)
{
	const char *setting = getenv("FI_INLAY_TAG_OFFLOAD");
	double end = now() + DEADLINE;
	uint32_t seed = 0;
	bool early;

	if (!setting || !atoi(setting))
		return;
	do {
		must(fi_trecv(pair.b.ep, in, LONG, NULL, FI_ADDR_UNSPEC, 9, 3, &there));
		ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
		fill(out, 3000, ++seed);
		must(fi_tsend(pair.a.ep, out, 3000, NULL, pair.to_b, 9, &here));
		while (pair.a.first == pair.a.last && now() < end)
			poll_side(&pair.a); /* it is in b's memory when this ends */
		early = differs(in, 3000, seed) == 3000;
		got(&pair.b, &there, 3000, 9, seed);
		good(&pair.a, &here);
	} while (!early && now() < end);
	assert_true(early);
}

/*
 * A receive that waits alone, and what may happen before its message comes. It gets the first of two messages, and
 * the receive behind it, posted before or after, the second.
 */
TEST(test_front)
{
	enum { ALONE, SAME, ANY, PEEKED, CANCELLED, TRUNCATED, OTHER, EVERY };
	static const size_t lens[] = {0, 8, 12, 13, 20, 21, 200, EAGER};
	static uint8_t second[EAGER];
	struct fid_ep *beside;
	struct done *d;
	int a, b, c;

	for (size_t n = 0; n < 2 * EVERY * ARRAY(lens); n++) {
		const size_t i = n % ARRAY(lens), way = n / ARRAY(lens) % EVERY, len = lens[i];
		const size_t room = way == TRUNCATED ? len - 1 : len;
		const uint64_t data = n < EVERY * ARRAY(lens) ? FI_REMOTE_CQ_DATA : 0, tag = 1ull << i;

		if (way == TRUNCATED && !len)
			continue;
		must(fi_trecv(pair.b.ep, in, room, NULL, pair.to_a, tag, 0, &a));
		if (way == SAME || way == ANY)
			must(fi_trecv(pair.b.ep, second, len, NULL, way == ANY ? FI_ADDR_UNSPEC : pair.to_a, tag,
				      way == ANY ? ~0ull : 0, &b));
		if (way == PEEKED) {
			peek(&pair.b, pair.to_a, tag, 0, FI_PEEK, &c);
			bad(&pair.b, &c, FI_ENOMSG);
		} else if (way == CANCELLED) {
			must(fi_cancel(&pair.b.ep->fid, &a));
			assert_ptr_equal(bad(&pair.b, &a, FI_ECANCELED)->err.buf, in);
			must(fi_trecv(pair.b.ep, in, len, NULL, pair.to_a, tag, 0, &a));
		} else if (way == OTHER) {
			send_tagged(&pair.a, pair.to_b, 8, tag << 1, 3, &here);
		}
		fill(out, len, 1);
		must(again(data ? fi_tsenddata(pair.a.ep, out, len, NULL, 77, pair.to_b, tag, &here) :
				  fi_tsend(pair.a.ep, out, len, NULL, pair.to_b, tag, &here)));
		good(&pair.a, &here);
		send_tagged(&pair.a, pair.to_b, len, tag, 2, &here);
		d = bad(&pair.b, &a, way == TRUNCATED ? FI_ETRUNC : 0);
		assert_int_equal(differs(in, room, 1), room);
		if (way != TRUNCATED)
			assert_true(d->e.len == len && d->e.tag == tag && d->source == pair.to_a &&
				    d->e.flags == (FI_RECV | FI_TAGGED | data) && (!data || d->e.data == 77));
		if (way != SAME && way != ANY)
			must(fi_trecv(pair.b.ep, second, len, NULL, pair.to_a, tag, 0, &b));
		assert_int_equal(good(&pair.b, &b)->e.len, len);
		assert_int_equal(differs(second, len, 2), len);
		if (way == OTHER) {
			must(fi_trecv(pair.b.ep, in, 8, NULL, pair.to_a, tag << 1, 0, &c));
			got(&pair.b, &c, 8, tag << 1, 3);
		}
	}
	/* It outlives another endpoint of its CQ */
	must(fi_endpoint(pair.b.domain, pair.b.info, &beside, NULL));
	must(fi_ep_bind(beside, &pair.b.av->fid, 0));
	must(fi_ep_bind(beside, &pair.b.cq->fid, FI_TRANSMIT | FI_RECV));
	must(fi_enable(beside));
	must(fi_trecv(pair.b.ep, in, 8, NULL, pair.to_a, 1, 0, &a));
	must(fi_close(&beside->fid));
	send_tagged(&pair.a, pair.to_b, 8, 1, 1, &here);
	got(&pair.b, &a, 8, 1, 1);
	nothing();
}

/* ---- Multi-receive ---- */

static void post_multi(uint8_t *buf, size_t len, void *context)
{
	const struct iovec iov = {buf, len};
	const struct fi_msg m = {&iov, NULL, 1, FI_ADDR_UNSPEC, context, 0};

	must(fi_recvmsg(pair.b.ep, &m, FI_MULTI_RECV));
}

TEST(test_multi)
{
	static const struct fi_msg_tagged tagged = {0};
	static const size_t lens[] = {0, 8, 100, EAGER, LONG, 5, 7, 1};
	static const size_t all = 108 + EAGER + LONG; /* with the large one */
	const struct {
		size_t room, fit;     /* bytes, and how many messages until less than the least is left */
		bool early;           /* posted before the messages come */
	} cases[] = {{all + 100, 5, true}, {all + LONG + 6, 6, true}, {all + LONG + 7, 7, true}, {all + 2 * LONG, 8, true},
		     {all + 2 * LONG, 5, false}};
	static uint8_t room[4 * LONG];
	size_t least = LONG + 2, i, k, at, sent;
	struct done *d;
	int multi, after;

	must(fi_setopt(&pair.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)));
	for (k = 0; k < ARRAY(cases); k++) {
		bool over = false;

		if (cases[k].early)
			post_multi(room, cases[k].room, &multi);
		sent = cases[k].early ? ARRAY(lens) : 5; /* a large one is not sent until it is read */
		for (i = 0; i < sent; i++) {
			fill(out, lens[i], (uint32_t)i);
			must(again(fi_send(pair.a.ep, out, lens[i], NULL, pair.to_b, &here)));
			if (lens[i] <= EAGER || cases[k].early)
				good(&pair.a, &here);
		}
		if (!cases[k].early) {
			for (i = 0; i < 20; i++)
				poll_all();
			post_multi(room, cases[k].room, &multi);
			good(&pair.a, &here);
		}
		/* One after the other, though a large one may complete after small ones behind it */
		for (i = at = 0; i < cases[k].fit; i++, at += lens[i - 1]) {
			while (d = good(&pair.b, &multi), d->e.buf != room + at || d->e.len != lens[i])
				pair.b.log[pair.b.last++ % LOG] = *d;
			assert_int_equal(differs(room + at, lens[i], (uint32_t)i), lens[i]);
			assert_true((d->e.flags & (FI_RECV | FI_MSG)) == (FI_RECV | FI_MSG));
			over |= (d->e.flags & FI_MULTI_RECV) != 0;
		}
		if (cases[k].fit < sent) {
			/* The buffer is given back, once, and what came later waits for another receive */
			if (!over)
				assert_int_equal(good(&pair.b, &multi)->e.flags, FI_MULTI_RECV);
			for (; i < sent; i++) {
				must(fi_recv(pair.b.ep, in, LONG, NULL, FI_ADDR_UNSPEC, &after));
				good(&pair.b, &after);
				assert_int_equal(differs(in, lens[i], (uint32_t)i), lens[i]);
			}
		} else {
			assert_false(over);
			must(fi_cancel(&pair.b.ep->fid, &multi));
			bad(&pair.b, &multi, FI_ECANCELED);
		}
		nothing();
	}
	least = 1;
	must(fi_setopt(&pair.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)));
	memset(room, 0xaa, 100);
	post_multi(room, 60, &multi);
	must(again(fi_send(pair.a.ep, out, 61, NULL, pair.to_b, &here)));
	good(&pair.a, &here);
	good(&pair.b, &multi); /* errors come last */
	d = bad(&pair.b, &multi, FI_ETRUNC);
	assert_true(d->err.len == 60 && d->err.olen == 1 && all_bytes(room + 60, 40, 0xaa));
	assert_int_equal(fi_trecvmsg(pair.b.ep, &tagged, FI_MULTI_RECV), -FI_EINVAL);
}

static int set_up(UNUSED void **state)
{
	pair_open(CAPS, 0);
	side_open(&other, info_for(hints_for(CAPS)), 0);
	other_to_b = insert(&other, pair.b.name);
	from_other = insert(&pair.b, other.name);
	return 0;
}

/* While a receive waits */
static int close_all(UNUSED void **state)
{
	must(fi_trecv(pair.b.ep, in, 8, NULL, pair.to_a, 1, 0, &there));
	side_close(&other);
	pair_close();
	return 0;
}

int main(void)
{
	rnd_seed();
	use_provider();
	return run_all(set_up, close_all) || again_with("FI_INLAY_TAG_OFFLOAD", "8");
}
