/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peers.c: peers that come at the same time, late or never, that close, die, or come back as another
 * incarnation: whoever waits for one is told, and nothing hangs.
 */
#include "rig.h"
#include <sys/prctl.h>

#define CAPS (FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE)
#define LONG (1u << 20)
#define RECEIVES 16 /* of an endpoint: the least */
#define INCARNATION 40 /* its place in a name */
#define OTHERS 12

static uint8_t out[LONG], in[LONG];

static void open_one(struct side *s)
{
	side_open(s, info_for(hints_for(CAPS)), 0);
}

/* A message each way, which proves a connection */
static void ping(struct side *x, fi_addr_t to_y, struct side *y, fi_addr_t to_x)
{
	int here, there;

	must(fi_trecv(y->ep, in, 8, NULL, to_x, 1, 0, &there));
	must(again(fi_tsend(x->ep, "question", 8, NULL, to_y, 1, &here)));
	good(x, &here);
	assert_memory_equal(in, "question", (good(y, &there), 8));
	must(fi_trecv(x->ep, in, 8, NULL, to_y, 1, 0, &there));
	must(again(fi_tsend(y->ep, "and back", 8, NULL, to_x, 1, &here)));
	good(y, &here);
	assert_memory_equal(in, "and back", (good(x, &there), 8));
}

/* Sends to a peer until it is known to have failed: then a send ends in an error, and so does an inject. */
static int failure(struct side *s, fi_addr_t to)
{
	double end = now() + DEADLINE;
	struct done *d;
	int here;

	do {
		assert_true(now() < end);
		must(again(fi_tsend(s->ep, out, 8, NULL, to, 1, &here)));
		d = done_of(s, &here);
	} while (!d->err.err);
	assert_true(d->err.flags & FI_SEND);
	return again(fi_tinject(s->ep, out, 8, to, 1)) == -d->err.err ? d->err.err : -1;
}

/* ---- Both at once ---- */

static void test_both(void **state)
{
	int here[2], there[2], i;

	(void)state;
	for (i = 0; i < 5; i++) {
		pair_open(CAPS, 0);
		must(fi_trecv(pair.a.ep, in, 8, NULL, pair.to_b, 1, 0, &there[0]));
		must(fi_trecv(pair.b.ep, in + 8, 8, NULL, pair.to_a, 1, 0, &there[1]));
		/* Neither has seen the other's hello */
		assert_int_equal(fi_tsend(pair.a.ep, out, 8, NULL, pair.to_b, 1, &here[0]), -FI_EAGAIN);
		assert_int_equal(fi_tsend(pair.b.ep, out, 8, NULL, pair.to_a, 1, &here[1]), -FI_EAGAIN);
		must(again(fi_tsend(pair.a.ep, out, 8, NULL, pair.to_b, 1, &here[0])));
		must(again(fi_tsend(pair.b.ep, out, 8, NULL, pair.to_a, 1, &here[1])));
		good(&pair.a, &here[0]);
		good(&pair.b, &here[1]);
		good(&pair.a, &there[0]);
		good(&pair.b, &there[1]);
		pair_close();
	}
}

/* Hellos that are lost, doubled and late */
static void test_faults(void **state)
{
	static const char *const specs[] = {"drop@1", "drop@1-2", "drop@1-3", "drop@/3", "dup@*", "delay=300ms@1",
					    "delay=300ms@2", "delay=150ms@/4,dup@/3,drop@/5"};
	size_t i;

	(void)state;
	need_softdev("losing messages");
	for (i = 0; i < ARRAY(specs); i++) {
		pair_open(CAPS, 0);
		must(softdev_fault(specs[i]));
		ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
		must(softdev_fault(NULL));
		ping(&pair.b, pair.to_a, &pair.a, pair.to_b);
		pair_close();
	}
}

/* A sender that the address vector does not have yet: its message is there when it has. */
static void test_unknown(void **state)
{
	int any, named, here;
	fi_addr_t to_b, to_a;

	(void)state;
	open_one(&pair.a);
	open_one(&pair.b);
	to_b = insert(&pair.a, pair.b.name);
	must(fi_trecv(pair.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &any));
	must(again(fi_tsend(pair.a.ep, out, 8, NULL, to_b, 1, &here)));
	must(again(fi_tsend(pair.a.ep, out, 8, NULL, to_b, 2, &here)));
	assert_true(good(&pair.b, &any)->source == FI_ADDR_NOTAVAIL);
	good(&pair.a, &here);
	good(&pair.a, &here);
	to_a = insert(&pair.b, pair.a.name);
	must(fi_trecv(pair.b.ep, in, 8, NULL, to_a, 2, 0, &named));
	assert_true(good(&pair.b, &named)->source == to_a);
	ping(&pair.b, to_a, &pair.a, to_b);
	pair_close();
}

/* ---- Late, and never ---- */

static void test_late(void **state)
{
	int here, there, i;

	(void)state;
	pair_open(CAPS, 0);
	sides[1] = NULL; /* b does not look for a while */
	for (i = 0; i < 20; i++) {
		assert_int_equal(fi_tsend(pair.a.ep, out, 8, NULL, pair.to_b, 1, &here), -FI_EAGAIN);
		poll_all();
		usleep(2000);
	}
	sides[1] = &pair.b;
	must(fi_trecv(pair.b.ep, in, 8, NULL, pair.to_a, 1, 0, &there));
	must(again(fi_tsend(pair.a.ep, out, 8, NULL, pair.to_b, 1, &here)));
	good(&pair.a, &here);
	good(&pair.b, &there);
	pair_close();
}

static void test_never(void **state)
{
	int there, other;

	(void)state;
	pair_open(CAPS, 0);
	must(fi_trecv(pair.a.ep, in, 8, NULL, pair.to_b, 1, 0, &there));
	must(fi_recv(pair.a.ep, in, 8, NULL, pair.to_b, &other));
	sides[1] = NULL;
	assert_int_equal(failure(&pair.a, pair.to_b), FI_ETIMEDOUT);
	bad(&pair.a, &there, FI_ETIMEDOUT);
	bad(&pair.a, &other, FI_ETIMEDOUT);
	sides[1] = &pair.b;
	/* It comes after all: it is told that nobody waits any more, or begins anew */
	assert_int_equal(failure(&pair.a, pair.to_b), FI_ETIMEDOUT);
	pair_close();
}

/* ---- Another incarnation ---- */

static void test_incarnation(void **state)
{
	uint8_t name[NAME];
	uint64_t incarnation;
	fi_addr_t older;
	int there;

	(void)state;
	pair_open(CAPS, 0);
	memcpy(name, pair.b.name, NAME);
	memcpy(&incarnation, name + INCARNATION, 8);
	incarnation--;
	memcpy(name + INCARNATION, &incarnation, 8);
	older = insert(&pair.a, name);
	must(fi_trecv(pair.a.ep, in, 8, NULL, older, 1, 0, &there));
	assert_int_equal(failure(&pair.a, older), FI_ECONNRESET);
	bad(&pair.a, &there, FI_ECONNRESET);
	/* The one that is there now is another peer */
	ping(&pair.a, pair.to_b, &pair.b, pair.to_a);

	pair_close();
}

/* A younger one than the one that is there: nobody is */
static void test_younger(void **state)
{
	uint8_t name[NAME];
	uint64_t incarnation;
	fi_addr_t younger;
	int here;

	(void)state;
	pair_open(CAPS, 0);
	memcpy(name, pair.b.name, NAME);
	memcpy(&incarnation, name + INCARNATION, 8);
	incarnation += 1000;
	memcpy(name + INCARNATION, &incarnation, 8);
	younger = insert(&pair.a, name);
	assert_int_equal(fi_tsend(pair.a.ep, out, 8, NULL, younger, 1, &here), -FI_EAGAIN);
	assert_int_equal(failure(&pair.a, younger), FI_ETIMEDOUT);
	pair_close();
}

/* An endpoint closes: those that wait for it are told, and its successor has another address. */
static void test_closes(void **state)
{
	int there, msg, large, i;
	fi_addr_t to_new, to_a;
	struct side again_b;

	(void)state;
	for (i = 0; i < 3; i++) {
		pair_open(CAPS, 0);
		ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
		must(fi_trecv(pair.a.ep, in, 8, NULL, pair.to_b, 1, 0, &there));
		must(fi_recv(pair.a.ep, in, 8, NULL, pair.to_b, &msg));
		must(again(fi_tsend(pair.a.ep, out, LONG, NULL, pair.to_b, 1, &large)));
		/* What b has sent before it closes arrives */
		must(again(fi_tinject(pair.b.ep, "last one", 8, pair.to_a, 2)));
		side_close(&pair.b);
		bad(&pair.a, &there, FI_ECONNRESET);
		bad(&pair.a, &msg, FI_ECONNRESET);
		bad(&pair.a, &large, FI_ECONNRESET);
		must(fi_trecv(pair.a.ep, in, 8, NULL, FI_ADDR_UNSPEC, 2, 0, &there));
		good(&pair.a, &there);
		assert_memory_equal(in, "last one", 8);
		assert_int_equal(failure(&pair.a, pair.to_b), FI_ECONNRESET);
		open_one(&again_b);
		to_new = insert(&pair.a, again_b.name);
		to_a = insert(&again_b, pair.a.name);
		ping(&pair.a, to_new, &again_b, to_a);
		side_close(&again_b);
		side_close(&pair.a);
	}
}

/* A connection that broke stays so until the address is removed; then it is made anew, at both ends. */
static void test_again(void **state)
{
	int here, i;

	(void)state;
	need_softdev("breaking a connection");
	pair_open(CAPS, 0);
	for (i = 0; i < 3; i++) {
		ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
		must(softdev_fault("syndrome=0x15@1"));
		must(again(fi_tsend(pair.a.ep, out, 8, NULL, pair.to_b, 1, &here)));
		bad(&pair.a, &here, FI_EHOSTUNREACH);
		must(softdev_fault(NULL));
		assert_int_equal(failure(&pair.a, pair.to_b), FI_EHOSTUNREACH);
		must(fi_av_remove(pair.a.av, &pair.to_b, 1, 0));
		assert_int_equal(fi_tsend(pair.a.ep, out, 8, NULL, pair.to_b, 1, &here), -FI_EADDRNOTAVAIL);
		pair.to_b = insert(&pair.a, pair.b.name);
		/* The other side learns of it by itself, or by the new hello; then it receives again */
		must(again(fi_tinject(pair.a.ep, out, 8, pair.to_b, 3)));
		must(fi_trecv(pair.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 3, 0, &here));
		assert_true(good(&pair.b, &here)->source == pair.to_a);
	}
	ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
	pair_close();
}

/* Stale rendezvous: a message that waits for its receive does not outlive its connection, and the buffer is not read. */
static void test_stale_rendezvous(void **state)
{
	int here[2], there[3];

	(void)state;
	need_softdev("breaking a connection");
	pair_open(CAPS, 0);
	must(again(fi_tsend(pair.a.ep, out, LONG, NULL, pair.to_b, 2, &here[0])));
	must(again(fi_send(pair.a.ep, out, LONG, NULL, pair.to_b, &here[1])));
	ping(&pair.a, pair.to_b, &pair.b, pair.to_a);
	must(softdev_fault("syndrome=0x15@1"));
	assert_int_equal(failure(&pair.a, pair.to_b), FI_EHOSTUNREACH);
	must(softdev_fault(NULL));
	bad(&pair.a, &here[0], FI_EHOSTUNREACH);
	bad(&pair.a, &here[1], FI_EHOSTUNREACH);
	must(fi_av_remove(pair.a.av, &pair.to_b, 1, 0));
	pair.to_b = insert(&pair.a, pair.b.name);
	must(again(fi_tinject(pair.a.ep, out, 8, pair.to_b, 3)));
	must(fi_trecv(pair.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 3, 0, &there[2]));
	good(&pair.b, &there[2]);
	must(fi_trecv(pair.b.ep, in, LONG, NULL, pair.to_a, 2, 0, &there[0]));
	must(fi_recv(pair.b.ep, in, LONG, NULL, pair.to_a, &there[1]));
	bad(&pair.b, &there[0], FI_ECONNRESET);
	bad(&pair.b, &there[1], FI_ECONNRESET);
	pair_close();
}

/* A connection that breaks while a message comes in costs no entry of the shared receive queue: there are fewer. */
static void test_entries(void **state)
{
	int here, i;

	(void)state;
	need_softdev("breaking a connection");
	pair_open(CAPS, 0);
	for (i = 0; i < 2 * RECEIVES; i++) {
		must(again(fi_tinject(pair.a.ep, out, 8, pair.to_b, 3)));
		must(fi_trecv(pair.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 3, 0, &here));
		good(&pair.b, &here);
		must(softdev_fault("syndrome=0x15@1")); /* half of the message comes */
		must(again(fi_tsend(pair.a.ep, out, 100, NULL, pair.to_b, 1, &here)));
		bad(&pair.a, &here, FI_EHOSTUNREACH);
		must(softdev_fault(NULL));
		must(fi_av_remove(pair.a.av, &pair.to_b, 1, 0));
		pair.to_b = insert(&pair.a, pair.b.name);
	}
	pair_close();
}

/* An inject that is lost with its peer after all makes an error entry, with the endpoint's context. */
static void test_inject(void **state)
{
	static const size_t lens[] = {8, 100, 1000};
	unsigned i;
	int there;

	(void)state;
	need_softdev("breaking a connection");
	pair_open(CAPS, 0);
	for (i = 0; i < 2 * ARRAY(lens); i++) {
		const bool tagged = i & 1;
		struct done *d;

		must(again(fi_tinject(pair.a.ep, out, 8, pair.to_b, 1)));
		must(fi_trecv(pair.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &there));
		good(&pair.b, &there);
		must(softdev_fault("syndrome=0x15@1"));
		must(again(tagged ? fi_tinject(pair.a.ep, out, lens[i / 2], pair.to_b, 1) :
				    fi_inject(pair.a.ep, out, lens[i / 2], pair.to_b)));
		d = bad(&pair.a, &pair.a, FI_EHOSTUNREACH);
		assert_int_equal(d->e.flags, FI_SEND | (tagged ? FI_TAGGED : FI_MSG));
		must(softdev_fault(NULL));
		nothing(&pair.a);
		must(fi_av_remove(pair.a.av, &pair.to_b, 1, 0));
		pair.to_b = insert(&pair.a, pair.b.name);
	}
	pair_close();
}

/* ---- Other processes ---- */

struct process {
	pid_t pid;
	int to, from;
};

static void all_of(ssize_t n, size_t len)
{
	assert_int_equal(n, len);
}

/* This program again, as the one below; it says its name, and is told ours. setting: of its own, or NULL */
static struct process spawn(struct side *s, fi_addr_t *to, const char *setting, const char *value)
{
	struct process p;
	int down[2], up[2];
	uint8_t name[NAME];

	must(pipe(down));
	must(pipe(up));
	p.pid = fork();
	if (!p.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(down[0], 0);
		dup2(up[1], 3);
		if (setting)
			setenv(setting, value, 1);
		execl("/proc/self/exe", "peers", "other", NULL);
		_exit(127);
	}
	close(down[0]);
	close(up[1]);
	p.to = down[1];
	p.from = up[0];
	all_of(read(p.from, name, NAME), NAME);
	all_of(write(p.to, s->name, NAME), NAME);
	*to = insert(s, name);
	return p;
}

static void reap(struct process *p)
{
	int status;

	kill(p->pid, SIGKILL);
	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
	close(p->to);
	close(p->from);
}

/* Sends back what comes with tag 1, until it is killed. What comes with other tags stays. */
static void other_process(void)
{
	static struct side s;
	uint8_t name[NAME];
	fi_addr_t to;
	int here;

	open_one(&s);
	all_of(write(3, s.name, NAME), NAME);
	all_of(read(0, name, NAME), NAME);
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
static void test_dies(void **state)
{
	int here, there, msg, large, i;
	struct process p;
	fi_addr_t to;

	(void)state;
	open_one(&pair.a);
	for (i = 0; i < 3; i++) {
		p = spawn(&pair.a, &to, NULL, NULL);
		must(fi_trecv(pair.a.ep, in, 8, NULL, to, 1, 0, &there));
		must(again(fi_tsend(pair.a.ep, "question", 8, NULL, to, 1, &here)));
		good(&pair.a, &here);
		good(&pair.a, &there);
		assert_memory_equal(in, "question", 8);
		must(fi_trecv(pair.a.ep, in, 8, NULL, to, 1, 0, &there));
		must(fi_recv(pair.a.ep, in, 8, NULL, to, &msg));
		if (i == 1)
			must(again(fi_tsend(pair.a.ep, out, LONG, NULL, to, 2, &large)));
		reap(&p);
		if (i == 2)
			assert_int_equal(failure(&pair.a, to), FI_EHOSTUNREACH);
		/* Nothing is sent to it, and still it is found out */
		bad(&pair.a, &there, FI_EHOSTUNREACH);
		bad(&pair.a, &msg, FI_EHOSTUNREACH);
		if (i == 1)
			bad(&pair.a, &large, FI_EHOSTUNREACH);
		assert_int_equal(failure(&pair.a, to), FI_EHOSTUNREACH);
	}
	nothing(&pair.a);
	side_close(&pair.a);
}

/* A process dies while messages to others are under way, more of them than there are initiators: these arrive. */
static void test_others(void **state)
{
	static struct side other[OTHERS];
	static char here[3 * OTHERS], there[3 * OTHERS], dead[3 * OTHERS];
	static const size_t lens[3] = {8, 1000, LONG};
	fi_addr_t to[OTHERS], to_dead;
	struct process p;
	int i, k;

	(void)state;
	open_one(&pair.a);
	p = spawn(&pair.a, &to_dead, NULL, NULL);
	must(again(fi_tinject(pair.a.ep, out, 8, to_dead, 2)));
	for (i = 0; i < OTHERS; i++) {
		open_one(&other[i]);
		to[i] = insert(&pair.a, other[i].name);
		ping(&pair.a, to[i], &other[i], insert(&other[i], pair.a.name));
	}
	reap(&p);
	for (i = 0; i < (int)sizeof(out); i++)
		out[i] = (uint8_t)rnd();
	for (k = 0; k < 3 * OTHERS; k++) {
		const size_t len = lens[k / OTHERS];

		i = k % OTHERS;
		must(again(fi_tsend(pair.a.ep, out, len, NULL, to_dead, 2, &dead[k])));
		must(again(fi_tsend(pair.a.ep, out, len, NULL, to[i], 1, &here[k])));
		must(fi_trecv(other[i].ep, in, len, NULL, FI_ADDR_UNSPEC, 1, 0, &there[k]));
		memset(in, 0, len);
		good(&other[i], &there[k]);
		assert_memory_equal(in, out, len);
		good(&pair.a, &here[k]);
	}
	for (k = 0; k < 3 * OTHERS; k++)
		bad(&pair.a, &dead[k], FI_EHOSTUNREACH);
	for (i = 0; i < OTHERS; i++)
		side_close(&other[i]);
	side_close(&pair.a);
}

/* A peer takes no messages, and those to it stand still. The others' do not, more of them than there are initiators. */
static void test_stuck(void **state)
{
	static struct side other[OTHERS];
	static char here[4 * RECEIVES], there[4 * RECEIVES];
	struct side *stuck = &other[OTHERS - 1];
	fi_addr_t to[OTHERS], back[OTHERS];
	int i, k;

	(void)state;
	open_one(&pair.a);
	for (i = 0; i < OTHERS; i++) {
		open_one(&other[i]);
		to[i] = insert(&pair.a, other[i].name);
		back[i] = insert(&other[i], pair.a.name);
		ping(&pair.a, to[i], &other[i], back[i]);
	}
	sides[OTHERS] = NULL; /* it does not look for a while */
	for (k = 0; k < 4 * RECEIVES; k++)
		must(again(fi_tsend(pair.a.ep, &k, sizeof(k), NULL, to[OTHERS - 1], 2, &here[k])));
	for (i = 0; i < 2 * (OTHERS - 1); i++)
		ping(&pair.a, to[i % (OTHERS - 1)], &other[i % (OTHERS - 1)], back[i % (OTHERS - 1)]);
	sides[OTHERS] = stuck;
	for (k = 0; k < 4 * RECEIVES; k++) {
		must(fi_trecv(stuck->ep, in, sizeof(k), NULL, back[OTHERS - 1], 2, 0, &there[k]));
		good(stuck, &there[k]);
		assert_memory_equal(in, &k, sizeof(k));
		good(&pair.a, &here[k]);
	}
	for (i = 0; i < OTHERS; i++)
		side_close(&other[i]);
	side_close(&pair.a);
}

/* A test that failed leaves what it had open: the next one begins without. */
static int tear_down(void **state)
{
	(void)state;
	memset(sides, 0, sizeof(sides));
	return softdev_present() ? softdev_fault(NULL) : 0;
}

/* Processes whose settings do not go together refuse each other. */
static void test_settings(void **state)
{
	const char *offload = getenv("FI_INLAY_TAG_OFFLOAD");
	struct process p;
	fi_addr_t to;
	int i, there;

	(void)state;
	open_one(&pair.a);
	p = spawn(&pair.a, &to, "FI_INLAY_EAGER", "4096");
	assert_int_equal(failure(&pair.a, to), FI_ECONNREFUSED);
	reap(&p);
	p = spawn(&pair.a, &to, "FI_INLAY_TRANSPORT", over_dc() ? "rc" : "dc");
	assert_int_equal(failure(&pair.a, to), FI_ECONNREFUSED);
	reap(&p);
	p = spawn(&pair.a, &to, "FI_INLAY_EAGER", "8200"); /* a multiple of 16 is taken: 8192 */
	must(again(fi_tinject(pair.a.ep, out, 8, to, 2)));
	reap(&p);
	/* Whether the device matches tags is each side's own affair */
	p = spawn(&pair.a, &to, "FI_INLAY_TAG_OFFLOAD", offload && atoi(offload) ? "0" : "32");
	for (i = 0; i < 20; i++) {
		must(fi_trecv(pair.a.ep, in, i & 1 ? 8 : EAGER, NULL, to, 1, 0, &there));
		must(again(fi_tinject(pair.a.ep, &i, sizeof(i), to, 1)));
		good(&pair.a, &there);
		assert_memory_equal(in, &i, sizeof(i));
	}
	reap(&p);
	side_close(&pair.a);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_both, tear_down),
		cmocka_unit_test_teardown(test_faults, tear_down),
		cmocka_unit_test_teardown(test_unknown, tear_down),
		cmocka_unit_test_teardown(test_late, tear_down),
		cmocka_unit_test_teardown(test_incarnation, tear_down),
		cmocka_unit_test_teardown(test_closes, tear_down),
		cmocka_unit_test_teardown(test_again, tear_down),
		cmocka_unit_test_teardown(test_stale_rendezvous, tear_down),
		cmocka_unit_test_teardown(test_entries, tear_down),
		cmocka_unit_test_teardown(test_inject, tear_down),
		cmocka_unit_test_teardown(test_dies, tear_down),
		cmocka_unit_test_teardown(test_others, tear_down),
		cmocka_unit_test_teardown(test_stuck, tear_down),
		cmocka_unit_test_teardown(test_settings, tear_down),
	};
	const struct CMUnitTest hasty[] = {
		cmocka_unit_test_teardown(test_never, tear_down),
		cmocka_unit_test_teardown(test_younger, tear_down),
	};

	(void)argv;
	use_provider();
	setenv("FI_INLAY_RECEIVES", "16", 1);
	setenv("FI_INLAY_TIMEOUT", "14", 1);
	setenv("FI_INLAY_KEEPALIVE_MS", "100", 1);
	if (argc > 1)
		other_process();
	if (getenv("FI_INLAY_CONNECT_MS")) { /* is set below: only those that are to wait in vain have little time */
		unsetenv("INLAY_TEST_AGAIN");
		return cmocka_run_group_tests(hasty, NULL, NULL) || again_with("FI_INLAY_TAG_OFFLOAD", "64");
	}
	return cmocka_run_group_tests(tests, NULL, NULL) || again_with("FI_INLAY_TAG_OFFLOAD", "64") ||
	       again_with("FI_INLAY_CONNECT_MS", "1000");
}
