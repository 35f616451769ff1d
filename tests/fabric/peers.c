/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peers.c: peers that come at the same time, late or never, that close, die, or come back as another
 * incarnation: whoever waits for one is told, and nothing hangs.
 */
#include "rig.h"

#define CAPS (FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE)
#define LONG (1u << 20)
#define RECEIVES 16 /* of an endpoint: the least */
#define INCARNATION 5 /* its place in a name, which has words of 8 bytes */
#define OTHERS 12
#define NOBODIES 40 /* more than hellos are said at a time, and than peers whose time is looked at */

static uint8_t out[LONG], in[LONG];
static int here, there, msg, large;

static void open_one(struct side *s)
{
	side_open(s, info_for(hints_for(CAPS)), 0);
}

/* Sends to a peer until it is known to have failed: then a send ends in an error, and so does an inject. */
static int failure(struct side *s, fi_addr_t to)
{
	double end = now() + DEADLINE;
	struct done *d;

	do {
		assert_true(now() < end);
		must(again(fi_tsend(s->ep, out, 8, NULL, to, 1, &here)));
		d = done_of(s, &here);
	} while (!d->err.err);
	assert_true(d->err.flags & FI_SEND);
	return again(fi_tinject(s->ep, out, 8, to, 1)) == -d->err.err ? d->err.err : -1;
}

/* A tagged and an untagged receive of what this peer sends next */
static void wait_for(struct side *s, fi_addr_t from)
{
	must(fi_trecv(s->ep, in, 8, NULL, from, 1, 0, &there));
	must(fi_recv(s->ep, in, 8, NULL, from, &msg));
}

static void are_told(struct side *s, int err)
{
	bad(s, &there, err);
	bad(s, &msg, err);
}

/* ---- Both at once, and neither ---- */

/* Sends wait for their connection, and none overtakes another. */
static void test_both(UNUSED void **state)
{
	static const size_t lens[] = {8, 150, 40000, 3000, 0, 64};
	struct side *s[] = {&pair.a, &pair.b};
	int sends[2][6], recvs[2][6], i, k;

	for (i = 0; i < 5; i++) {
		pair_open(CAPS, 0);
		for (k = 0; k < 12; k++) { /* neither has seen the other's hello */
			const fi_addr_t to = k % 2 ? pair.to_a : pair.to_b;

			must(fi_tsend(s[k % 2]->ep, out, lens[k / 2], NULL, to, 1, &sends[k % 2][k / 2]));
			must(fi_trecv(s[k % 2]->ep, in + 50000 * k, 50000, NULL, to, 1, 0, &recvs[k % 2][k / 2]));
		}
		for (k = 0; k < 12; k++) {
			good(s[k % 2], &sends[k % 2][k / 2]);
			assert_int_equal(good(s[k % 2], &recvs[k % 2][k / 2])->e.len, lens[k / 2]);
		}
		pair_close();
	}
}

/* Hellos that are lost, doubled and late */
static void test_faults(UNUSED void **state)
{
	static const char *const specs[] = {"drop@1", "drop@1-2", "drop@1-3", "drop@/3", "dup@*", "delay=300ms@1",
					    "delay=300ms@2", "delay=150ms@/4,dup@/3,drop@/5"};

	need_softdev("losing messages");
	for (size_t i = 0; i < ARRAY(specs); i++) {
		pair_open(CAPS, 0);
		must(softdev_fault(specs[i]));
		ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
		must(softdev_fault(NULL));
		ping(&pair.b, pair.to_a, &pair.a, pair.to_b);
		pair_close();
	}
}

/* A sender that the address vector does not have yet: its message is there when it has. */
static void test_unknown(UNUSED void **state)
{
	open_one(&pair.a);
	open_one(&pair.b);
	pair.to_b = insert(&pair.a, pair.b.name);
	must(fi_trecv(pair.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &there));
	must(again(fi_tinject(pair.a.ep, out, 8, pair.to_b, 1)));
	must(again(fi_tinject(pair.a.ep, out, 8, pair.to_b, 2)));
	assert_true(good(&pair.b, &there)->source == FI_ADDR_NOTAVAIL);
	pair.to_a = insert(&pair.b, pair.a.name);
	must(fi_trecv(pair.b.ep, in, 8, NULL, pair.to_a, 2, 0, &there));
	assert_true(good(&pair.b, &there)->source == pair.to_a);
	ping(&pair.b, pair.to_a, &pair.a, pair.to_b);
	pair_close();
}

static void test_late(UNUSED void **state)
{
	pair_open(CAPS, 0);
	looks(&pair.b, false);
	for (int i = 0; i < 2000; i++) {
		assert_int_equal(fi_tsend(pair.a.ep, out, 8, NULL, pair.to_b, 1, &here), i < 64 ? 0 : -FI_EAGAIN);
		poll_all();
	}
	assert_true(pair.a.first == pair.a.last);
	looks(&pair.b, true);
	for (int i = 0; i < 64; i++)
		good(&pair.a, &here);
	ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
	pair_close();
}

/* ---- Another incarnation ---- */

static fi_addr_t insert_incarnation(int64_t later)
{
	int64_t name[NAME / 8];

	memcpy(name, pair.b.name, NAME);
	name[INCARNATION] += later;
	return insert(&pair.a, name);
}

static void test_never(UNUSED void **state)
{
	pair_open(CAPS, 0);
	/* A younger incarnation: nobody is there */
	assert_int_equal(failure(&pair.a, insert_incarnation(1000)), FI_ETIMEDOUT);
	wait_for(&pair.a, pair.to_b);
	looks(&pair.b, false);
	assert_int_equal(failure(&pair.a, pair.to_b), FI_ETIMEDOUT);
	are_told(&pair.a, FI_ETIMEDOUT);
	looks(&pair.b, true);
	/* It comes after all: it is told that nobody waits any more, or begins anew */
	assert_int_equal(failure(&pair.a, pair.to_b), FI_ETIMEDOUT);
	pair_close();
}

/* An older one than the one that is there, which is another peer */
static void test_older(UNUSED void **state)
{
	fi_addr_t older;

	pair_open(CAPS, 0);
	older = insert_incarnation(-1);
	wait_for(&pair.a, older);
	assert_int_equal(failure(&pair.a, older), FI_ECONNRESET);
	are_told(&pair.a, FI_ECONNRESET);
	ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
	pair_close();
}

/* Many who do not answer do not keep us from one who does. */
static void test_nobody(UNUSED void **state)
{
	struct inlay_connect_record record;
	uint8_t name[NAME];

	pair_open(CAPS, 0);
	memcpy(name, pair.b.name, NAME);
	must(inlay_connect_unpack(&record, name, INLAY_CONNECT_SIZE, NULL));
	for (uint32_t i = 0; i < NOBODIES; i++) {
		record.qpn = 0x800000 + i; /* no queue pair has it */
		inlay_connect_pack(&record, name);
		fi_tsend(pair.a.ep, out, 8, NULL, insert(&pair.a, name), 1, &here);
	}
	ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
	pair_close();
}

/* An endpoint closes: those that wait for it are told, and its successor has another address. */
static void test_closes(UNUSED void **state)
{
	for (int i = 0; i < 3; i++) {
		pair_open(CAPS, 0);
		ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
		wait_for(&pair.a, pair.to_b);
		must(again(fi_tsend(pair.a.ep, out, LONG, NULL, pair.to_b, 1, &large)));
		/* What b has sent before it closes arrives */
		must(again(fi_tinject(pair.b.ep, "last one", 8, pair.to_a, 2)));
		side_close(&pair.b);
		are_told(&pair.a, FI_ECONNRESET);
		bad(&pair.a, &large, FI_ECONNRESET);
		must(fi_trecv(pair.a.ep, in, 8, NULL, FI_ADDR_UNSPEC, 2, 0, &there));
		good(&pair.a, &there);
		assert_memory_equal(in, "last one", 8);
		assert_int_equal(failure(&pair.a, pair.to_b), FI_ECONNRESET);
		open_one(&pair.b);
		pair.to_b = insert(&pair.a, pair.b.name);
		pair.to_a = insert(&pair.b, pair.a.name);
		ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
		pair_close();
	}
}

/* ---- A connection that breaks ---- */

enum how { SEND, INJECT, TINJECT };

/* ... under this operation; half of it comes */
static struct done *breaks(enum how how, size_t len)
{
	struct done *d;

	must(softdev_fault("syndrome=0x15@1"));
	must(again(how == INJECT  ? fi_inject(pair.a.ep, out, len, pair.to_b) :
		   how == TINJECT ? fi_tinject(pair.a.ep, out, len, pair.to_b, 1) :
				    fi_tsend(pair.a.ep, out, len, NULL, pair.to_b, 1, &here)));
	d = bad(&pair.a, how == SEND ? (void *)&here : &pair.a, FI_EHOSTUNREACH);
	must(softdev_fault(NULL));
	return d;
}

/* It stays so until the address is removed; then it is made anew, at both ends. */
static void renew(void)
{
	assert_int_equal(failure(&pair.a, pair.to_b), FI_EHOSTUNREACH);
	must(fi_av_remove(pair.a.av, &pair.to_b, 1, 0));
	assert_int_equal(fi_tsend(pair.a.ep, out, 8, NULL, pair.to_b, 1, &here), -FI_EADDRNOTAVAIL);
	pair.to_b = insert(&pair.a, pair.b.name);
	/* The other side learns of it by itself, or by the new hello; then it receives again */
	assert_true(through(&pair.a, pair.to_b, &pair.b, FI_ADDR_UNSPEC) == pair.to_a);
}

/* Again and again, at each kind of operation, without a loss of an entry of the shared receive queue: there are fewer */
static void test_again(UNUSED void **state)
{
	static const struct {
		enum how how;
		size_t len;
	} rows[] = {{SEND, 8}, {SEND, 100}, {INJECT, 8}, {INJECT, 100}, {INJECT, 1000}, {TINJECT, 8}, {TINJECT, 100},
		    {TINJECT, 1000}};

	need_softdev("breaking a connection");
	pair_open(CAPS, 0);
	ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
	for (unsigned i = 0; i < 4 * RECEIVES; i++) {
		const enum how how = rows[i % ARRAY(rows)].how;
		const uint64_t flags = FI_SEND | (how == INJECT ? FI_MSG : FI_TAGGED);

		assert_int_equal(breaks(how, rows[i % ARRAY(rows)].len)->e.flags, flags);
		poll_all();
		assert_int_equal(pair.a.first, pair.a.last);
		renew();
	}
	ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
	pair_close();
}

/* Stale rendezvous: a message that waits for its receive does not outlive its connection, and the buffer is not read. */
static void test_stale_rendezvous(UNUSED void **state)
{
	int sends[2];

	need_softdev("breaking a connection");
	pair_open(CAPS, 0);
	must(again(fi_tsend(pair.a.ep, out, LONG, NULL, pair.to_b, 1, &sends[0])));
	must(again(fi_send(pair.a.ep, out, LONG, NULL, pair.to_b, &sends[1])));
	ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
	breaks(SEND, 8);
	bad(&pair.a, &sends[0], FI_EHOSTUNREACH);
	bad(&pair.a, &sends[1], FI_EHOSTUNREACH);
	renew();
	must(fi_trecv(pair.b.ep, in, LONG, NULL, pair.to_a, 1, 0, &there));
	must(fi_recv(pair.b.ep, in, LONG, NULL, pair.to_a, &msg));
	are_told(&pair.b, FI_ECONNRESET);
	pair_close();
}

/* ---- Other processes ---- */

/* This program again, as the one below; it says its name, and is told ours. */
static struct process start(struct side *s, fi_addr_t *to, const char *setting, const char *value)
{
	struct process p = spawn("other", setting, value, NULL, NULL);
	uint8_t name[NAME];

	assert_int_equal(read(p.from, name, NAME), NAME);
	assert_int_equal(write(p.to, s->name, NAME), NAME);
	*to = insert(s, name);
	return p;
}

static void end(struct process *p)
{
	kill(p->pid, SIGKILL);
	reap(p);
}

/* Sends back what comes with tag 1, until it is killed. What comes with other tags stays. */
static void other_process(void)
{
	static struct side s;
	uint8_t name[NAME];
	fi_addr_t to;

	open_one(&s);
	assert_int_equal(write(3, s.name, NAME), NAME);
	assert_int_equal(read(0, name, NAME), NAME);
	to = insert(&s, name);
	for (;;) {
		must(fi_trecv(s.ep, in, 8, NULL, to, 1, 0, &here));
		while (s.first == s.last)
			poll_all();
		while (s.log[s.first % LOG].err.err)
			poll_all(); /* the other side may still ask why */
		next(&s);
		must(again(fi_tinject(s.ep, in, 8, to, 1)));
	}
}

/* A process dies: in the middle of nothing, and while a message is under way. */
static void test_dies(UNUSED void **state)
{
	struct process p;
	fi_addr_t to;

	open_one(&pair.a);
	for (int i = 0; i < 3; i++) {
		p = start(&pair.a, &to, NULL, NULL);
		must(fi_trecv(pair.a.ep, in, 8, NULL, to, 1, 0, &there));
		must(again(fi_tsend(pair.a.ep, "question", 8, NULL, to, 1, &here)));
		good(&pair.a, &here);
		good(&pair.a, &there);
		assert_memory_equal(in, "question", 8);
		wait_for(&pair.a, to);
		if (i == 1)
			must(again(fi_tsend(pair.a.ep, out, LONG, NULL, to, 2, &large)));
		end(&p);
		if (i == 2)
			assert_int_equal(failure(&pair.a, to), FI_EHOSTUNREACH);
		are_told(&pair.a, FI_EHOSTUNREACH); /* nothing is sent to it, and still it is found out */
		if (i == 1)
			bad(&pair.a, &large, FI_EHOSTUNREACH);
		assert_int_equal(failure(&pair.a, to), FI_EHOSTUNREACH);
		wait_for(&pair.a, to);
		are_told(&pair.a, FI_EHOSTUNREACH);
		assert_int_equal(pair.a.first, pair.a.last);
	}
	side_close(&pair.a);
}

/*
 * A process has died, and a peer takes no messages, so that those to it stand still. Those to the others do not, which are more than
 * there are initiators.
 */
static void test_others(UNUSED void **state)
{
	static struct side other[OTHERS];
	static char sends[3 * OTHERS], recvs[3 * OTHERS], dead[3 * OTHERS], late[3 * OTHERS];
	static const size_t lens[3] = {8, 1000, LONG};
	const int stuck = OTHERS - 1;
	fi_addr_t to[OTHERS], back[OTHERS], to_dead;
	struct process p;
	int i, k;

	open_one(&pair.a);
	p = start(&pair.a, &to_dead, NULL, NULL);
	must(again(fi_tinject(pair.a.ep, out, 8, to_dead, 2)));
	for (i = 0; i < OTHERS; i++) {
		open_one(&other[i]);
		to[i] = insert(&pair.a, other[i].name);
		back[i] = insert(&other[i], pair.a.name);
		ping(&pair.a, to[i], &other[i], back[i]);
	}
	end(&p);
	looks(&other[stuck], false);
	for (k = 0; k < 3 * OTHERS; k++) {
		const size_t len = lens[k / OTHERS];

		i = k % stuck;
		fill(out, len, (uint32_t)k);
		must(again(fi_tsend(pair.a.ep, out, 8, NULL, to[stuck], 2, &late[k])));
		must(again(fi_tsend(pair.a.ep, out, len, NULL, to_dead, 2, &dead[k])));
		must(again(fi_tsend(pair.a.ep, out, len, NULL, to[i], 1, &sends[k])));
		must(fi_trecv(other[i].ep, in, len, NULL, FI_ADDR_UNSPEC, 1, 0, &recvs[k]));
		good(&other[i], &recvs[k]);
		assert_int_equal(differs(in, len, (uint32_t)k), len);
		good(&pair.a, &sends[k]);
	}
	looks(&other[stuck], true);
	for (k = 0; k < 3 * OTHERS; k++) {
		bad(&pair.a, &dead[k], FI_EHOSTUNREACH);
		must(fi_trecv(other[stuck].ep, in, 8, NULL, back[stuck], 2, 0, &recvs[k]));
		good(&other[stuck], &recvs[k]);
		assert_int_equal(differs(in, 8, (uint32_t)k), 8);
		good(&pair.a, &late[k]);
	}
	for (i = 0; i < OTHERS; i++)
		side_close(&other[i]);
	side_close(&pair.a);
}

/* Processes whose settings do not go together refuse each other. */
static void test_settings(UNUSED void **state)
{
	const char *offload = getenv("FI_INLAY_TAG_OFFLOAD");
	const struct {
		const char *name, *value;
		int err;
	} rows[] = {{"FI_INLAY_EAGER", "4096", FI_ECONNREFUSED},
		    {"FI_INLAY_TRANSPORT", over_dc() ? "rc" : "dc", FI_ECONNREFUSED},
		    {"FI_INLAY_EAGER", "8200", 0}, /* a multiple of 16 is taken: 8192 */
		    /* Whether the device matches tags is each side's own affair */
		    {"FI_INLAY_TAG_OFFLOAD", offload && atoi(offload) ? "0" : "32", 0}};
	struct process p;
	fi_addr_t dest;

	open_one(&pair.a);
	for (size_t r = 0; r < ARRAY(rows); r++) {
		p = start(&pair.a, &dest, rows[r].name, rows[r].value);
		if (rows[r].err)
			assert_int_equal(failure(&pair.a, dest), rows[r].err);
		for (int i = 0; i < 20 && !rows[r].err; i++) {
			must(fi_trecv(pair.a.ep, in, i & 1 ? 8 : EAGER, NULL, dest, 1, 0, &there));
			must(again(fi_tinject(pair.a.ep, &i, sizeof(i), dest, 1)));
			good(&pair.a, &there);
			assert_memory_equal(in, &i, sizeof(i));
		}
		end(&p);
	}
	side_close(&pair.a);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(test_both), T(test_unknown), T(test_late), T(test_older), T(test_closes), T(test_again), T(test_stale_rendezvous),
		T(test_dies), T(test_others),
	};
	const struct CMUnitTest hellos[] = { /* who matches tags is all the same to them */
		T(test_faults), T(test_settings),
	};
	const struct CMUnitTest hasty[] = {T(test_never), T(test_nobody)};

	(void)argv;
	use_provider();
	setenv("FI_INLAY_RECEIVES", "16", 1);
	setenv("FI_INLAY_TIMEOUT", "14", 1);
	setenv("FI_INLAY_KEEPALIVE_MS", "100", 1);
	if (argc > 1)
		other_process();
	if (getenv("FI_INLAY_CONNECT_MS")) /* is set below: only those that are to wait in vain have little time */
		return cmocka_run_group_tests(hasty, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL) ||
	       (!getenv("INLAY_TEST_AGAIN") && cmocka_run_group_tests(hellos, NULL, NULL)) ||
	       again_with("FI_INLAY_TAG_OFFLOAD", "64") || again_with("FI_INLAY_CONNECT_MS", "500");
}
