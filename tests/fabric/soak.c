/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soak.c: four actors do all the provider can do with each other and with themselves, in random order, and check
 * every byte: tagged and untagged messages in all forms, writes, reads, atomics, peek, claim, cancel, multi-receive.
 * First each is a process, and messages are lost, late and twice; then they are threads, two on each endpoint.
 *
 *   SOAK_SECONDS   how long each goes on, 1; whatever has begun is finished
 */
#include "rig.h"
#include <pthread.h>
#include <sys/prctl.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#define ACTORS 4u
#define DEPTH 8u          /* messages under way, in each direction between two */
#define PER_ROUND 48u
#define MOST 150000u
#define CAPS (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_SOURCE | FI_MULTI_RECV)
#define MULTI (4 * MOST)  /* a multi-receive's buffer */

/* Also in threads and other processes, which cmocka does not know */
#define holds(what)                                                                        \
	do {                                                                               \
		if (!(what)) {                                                             \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
			abort();                                                           \
		}                                                                          \
	} while (0)

enum { IDLE, BUSY, PEEKED, DONE };
enum { TAGGED, CONTROL, NEVER, UNTAGGED };

struct request {
	struct fi_context context;
	int state;                /* DONE is said by the thread that has read the completion */
	int err;
	size_t len;               /* as the completion says */
	uint64_t data;
	uint32_t seq;
	uint8_t *buf;
};

/* What an actor has to do with another one */
struct lane {
	struct request out[DEPTH], in[DEPTH], rma;
	uint32_t sent, posted, got, usent, ugot;
	uint32_t next, seed, len; /* of rma */
	uint8_t *window;          /* what was written there, and what was read */
	uint64_t add, old, result, added, seen, swapped;
	uint32_t add4, old4;
};

/* What the others must know of one */
struct card {
	uint8_t name[NAME];
	uint64_t base, key;
};

/* In memory that others write to: a window for each, and words */
struct shared {
	uint8_t window[ACTORS][MOST];
	uint64_t sum, swap[ACTORS];
	uint32_t sum4;
};

struct actor {
	unsigned me;
	bool alone;               /* on its endpoint: it receives untagged messages */
	struct side *s;
	struct card cards[ACTORS];
	fi_addr_t addr[ACTORS];
	struct lane lanes[ACTORS];
	struct request multi[2], control;
	struct shared *shared;
	struct fid_mr *mr;
	uint64_t random;
	double end;
};

static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static uint32_t roll(struct actor *a, uint32_t n)
{
	return (uint32_t)(mix(a->random += 0x9e3779b97f4a7c15) >> 32) % n;
}

/* Of a message: everything about it follows */
static uint64_t message(unsigned kind, unsigned from, unsigned to, uint32_t seq)
{
	return mix(((uint64_t)kind << 60 | (uint64_t)from << 56 | (uint64_t)to << 52 | seq) + 1);
}

enum { SEND, SENDV, SENDDATA, INJECT, INJECTDATA, DELIVERED, MATCHED, COPIED, WAYS };

static unsigned way_of(uint64_t m)
{
	return m % WAYS;
}

static size_t len_of(uint64_t m)
{
	size_t most = way_of(m) == INJECT || way_of(m) == INJECTDATA ? EAGER : MOST, len = 1ul << (m >> 8) % 18;

	len += (m >> 16) % len - 1;
	return len < most ? len : most;
}

static bool has_data(uint64_t m)
{
	return way_of(m) == SENDDATA || way_of(m) == INJECTDATA || (way_of(m) >= DELIVERED && m >> 63);
}

static uint64_t tag_of(unsigned kind, unsigned from, unsigned to, uint32_t seq)
{
	return (uint64_t)seq << 16 | from << 8 | to << 4 | kind;
}

/* ---- Completions ---- */

static bool is(const struct request *r, int state)
{
	return __atomic_load_n(&r->state, __ATOMIC_ACQUIRE) == state;
}

static void set(struct request *r, int state)
{
	__atomic_store_n(&r->state, state, __ATOMIC_RELEASE);
}

static void post_multi(struct actor *a, struct request *r);

/* A message in a multi-receive's buffer: which one is in its data */
static void in_multi(struct actor *a, const struct fi_cq_tagged_entry *e, fi_addr_t source)
{
	unsigned from;
	uint64_t m;

	for (from = 0; from < ACTORS && a->addr[from] != source; from++)
		;
	holds(from < ACTORS && e->flags & FI_REMOTE_CQ_DATA);
	m = message(UNTAGGED, from, a->me, (uint32_t)e->data);
	holds(e->len == len_of(m) && differs(e->buf, e->len, (uint32_t)m) == e->len);
	a->lanes[from].ugot++;
}

static void completed(struct actor *a, const struct fi_cq_tagged_entry *e, fi_addr_t source, int err)
{
	struct request *r = (struct request *)e->op_context;

	if (!r) { /* data of somebody's write */
		holds(!err && e->flags & FI_REMOTE_WRITE && e->data == e->len);
		return;
	}
	if (r == &a->multi[0] || r == &a->multi[1]) {
		holds(!err);
		if (e->flags & FI_RECV)
			in_multi(a, e, source);
		if (e->flags & FI_MULTI_RECV)
			set(r, IDLE);
		return;
	}
	r->err = err;
	r->len = e->len;
	r->data = e->data;
	set(r, is(r, PEEKED) && !err ? PEEKED + DONE : DONE);
}

static void look(struct actor *a)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry bad;
	fi_addr_t source;
	ssize_t n;
	int i;

	memset(&e, 0, sizeof(e));
	memset(&bad, 0, sizeof(bad));
	n = fi_cq_readfrom(a->s->cq, &e, 1, &source);
	if (n == -FI_EAVAIL && fi_cq_readerr(a->s->cq, &bad, 0) == 1) {
		e.op_context = bad.op_context;
		completed(a, &e, FI_ADDR_NOTAVAIL, bad.err);
	} else if (n == 1) {
		completed(a, &e, source, 0);
	} else {
		holds(n == -FI_EAGAIN || n == -FI_EAVAIL); /* another thread has taken the error */
		sched_yield();
	}
	for (i = 0; a->alone && i < 2; i++)
		if (is(&a->multi[i], IDLE))
			post_multi(a, &a->multi[i]);
}

static void post_multi(struct actor *a, struct request *r)
{
	struct iovec iov = {r->buf, MULTI};
	struct fi_msg m;
	ssize_t n;

	memset(&m, 0, sizeof(m));
	m.msg_iov = &iov;
	m.iov_count = 1;
	m.addr = FI_ADDR_UNSPEC;
	m.context = r;
	n = fi_recvmsg(a->s->ep, &m, FI_MULTI_RECV | FI_COMPLETION);
	holds(!n || n == -FI_EAGAIN);
	if (!n)
		set(r, BUSY);
}

/* ---- Messages ---- */

static ssize_t post_send(struct actor *a, unsigned to, unsigned kind, uint64_t h, uint32_t seq, struct request *r)
{
	const uint64_t tag = tag_of(kind, a->me, to, seq), data = kind == UNTAGGED ? seq : h;
	const uint64_t flags = has_data(h) || kind == UNTAGGED ? FI_REMOTE_CQ_DATA : 0;
	const size_t len = len_of(h);
	struct fid_ep *ep = a->s->ep;
	struct iovec iov[3] = {{r->buf, len / 3}, {r->buf + len / 3, 0}, {r->buf + len / 3, len - len / 3}};
	struct fi_msg_tagged m = {iov, NULL, 3, a->addr[to], tag, 0, r, data};
	struct fi_msg u = {iov, NULL, 3, a->addr[to], r, data};
	const uint64_t levels[] = {FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE, FI_INJECT_COMPLETE};

	if (kind == UNTAGGED && way_of(h) < INJECT)
		return fi_senddata(ep, r->buf, len, NULL, data, a->addr[to], r);
	if (kind == UNTAGGED && way_of(h) < DELIVERED)
		return fi_injectdata(ep, r->buf, len, data, a->addr[to]);
	if (kind == UNTAGGED)
		return fi_sendmsg(ep, &u, FI_COMPLETION | flags | levels[way_of(h) - DELIVERED]);
	switch (way_of(h)) {
	case SEND:
		return fi_tsend(ep, r->buf, len, NULL, a->addr[to], tag, r);
	case SENDV:
		return fi_tsendv(ep, iov, NULL, 3, a->addr[to], tag, r);
	case SENDDATA:
		return fi_tsenddata(ep, r->buf, len, NULL, data, a->addr[to], tag, r);
	case INJECT:
		return fi_tinject(ep, r->buf, len, a->addr[to], tag);
	case INJECTDATA:
		return fi_tinjectdata(ep, r->buf, len, data, a->addr[to], tag);
	default:
		return fi_tsendmsg(ep, &m, FI_COMPLETION | flags | levels[way_of(h) - DELIVERED]);
	}
}

static void send_next(struct actor *a, unsigned to, unsigned kind)
{
	struct lane *l = &a->lanes[to];
	uint32_t *seq = kind == TAGGED ? &l->sent : &l->usent;
	const uint64_t h = message(kind, a->me, to, *seq);
	const bool injected = way_of(h) == INJECT || way_of(h) == INJECTDATA;
	struct request *r = l->out;
	ssize_t n;

	while (r < l->out + DEPTH && is(r, BUSY))
		r++;
	if (r == l->out + DEPTH)
		return;
	holds(!is(r, DONE) || !r->err);
	set(r, BUSY);
	fill(r->buf, len_of(h), (uint32_t)h);
	n = post_send(a, to, kind, h, *seq, r);
	holds(!n || n == -FI_EAGAIN);
	*seq += !n;
	if (n || injected) {
		memset(r->buf, 0xee, len_of(h)); /* is ours again */
		set(r, IDLE);
	}
}

static void post_recv(struct actor *a, unsigned from, struct request *r, uint64_t flags)
{
	const uint64_t h = message(TAGGED, from, a->me, r->seq), tag = tag_of(TAGGED, from, a->me, r->seq);
	const size_t len = len_of(h);
	struct iovec iov[2] = {{r->buf, len / 2}, {r->buf + len / 2, MOST - len / 2}};
	struct fi_msg_tagged m = {iov, NULL, 2, roll(a, 2) ? a->addr[from] : FI_ADDR_UNSPEC, tag, 0, r, 0};

	memset(r->buf, 0xdd, MOST);
	set(r, flags & FI_PEEK ? PEEKED : BUSY);
	while (flags ? fi_trecvmsg(a->s->ep, &m, flags | FI_COMPLETION) :
	       fi_trecv(a->s->ep, r->buf, MOST, NULL, m.addr, tag, 0, r))
		look(a);
}

static void receive_next(struct actor *a, unsigned from, uint32_t target)
{
	struct lane *l = &a->lanes[from];
	struct request *r = &l->in[roll(a, DEPTH)];
	uint64_t h;

	if (is(r, PEEKED + DONE)) {
		post_recv(a, from, r, FI_CLAIM);
	} else if (is(r, DONE) && r->err == FI_ENOMSG) {
		post_recv(a, from, r, 0);
	} else if (is(r, DONE)) {
		h = message(TAGGED, from, a->me, r->seq);
		holds(!r->err && r->len == len_of(h) && differs(r->buf, r->len, (uint32_t)h) == r->len);
		holds(!has_data(h) || r->data == h);
		holds(all_bytes(r->buf + r->len, MOST - r->len, 0xdd));
		l->got++;
		set(r, IDLE);
	} else if (is(r, IDLE) && l->posted < target) {
		r->seq = l->posted++;
		post_recv(a, from, r, roll(a, 3) ? 0 : roll(a, 2) ? FI_PEEK | FI_CLAIM : FI_COMPLETION);
	}
}

/* ---- Memory ---- */

static ssize_t write_out(struct actor *a, unsigned to, struct request *r, uint64_t at, uint64_t key, uint8_t *buf,
			 size_t len)
{
	struct iovec iov[2] = {{buf, len / 2}, {buf + len / 2, len - len / 2}};
	struct fi_rma_iov there = {at, len, key};
	struct fi_msg_rma m = {iov, NULL, 2, a->addr[to], &there, 1, r, len};
	const fi_addr_t dest = a->addr[to];

	switch (a->lanes[to].seed % (len > EAGER ? 3 : 5)) {
	case 0:
		return fi_write(a->s->ep, buf, len, NULL, dest, at, key, r);
	case 1:
		return fi_writedata(a->s->ep, buf, len, NULL, len, dest, at, key, r);
	case 2:
		return fi_writemsg(a->s->ep, &m, FI_COMPLETION | FI_DELIVERY_COMPLETE | FI_REMOTE_CQ_DATA);
	case 3:
		return fi_inject_write(a->s->ep, buf, len, dest, at, key) ? -FI_EAGAIN : 1;
	default:
		return fi_inject_writedata(a->s->ep, buf, len, len, dest, at, key) ? -FI_EAGAIN : 1;
	}
}

/* Write and read back; count up, in two widths; exchange: one after the other. Returns whether all have been done. */
static bool memory_next(struct actor *a, unsigned to)
{
	struct lane *l = &a->lanes[to];
	const uint64_t base = a->cards[to].base, key = a->cards[to].key;
	const fi_addr_t dest = a->addr[to];
	const uint64_t at = base + offsetof(struct shared, window) + (uint64_t)a->me * MOST;
	struct fid_ep *ep = a->s->ep;
	struct request *r = &l->rma;
	ssize_t n = 1;

	if (is(r, BUSY))
		return false;
	holds(!r->err);
	set(r, BUSY);
	switch (l->next) {
	case 0:
		l->seed = roll(a, UINT32_MAX);
		l->len = 1 + roll(a, roll(a, 2) ? 400 : MOST);
		fill(l->window, l->len, l->seed);
		n = write_out(a, to, r, at, key, l->window, l->len);
		break;
	case 1:
		memset(l->window, 0, l->len);
		n = fi_read(ep, l->window, l->len, NULL, dest, at, key, r);
		break;
	case 2:
		holds(differs(l->window, l->len, l->seed) == l->len);
		l->add = 1;
		n = fi_inject_atomic(ep, &l->add, 1, dest, base + offsetof(struct shared, sum), key, FI_UINT64, FI_SUM);
		l->added += !n;
		n = n ? n : 1;
		break;
	case 3:
		n = fi_fetch_atomic(ep, &l->add, 1, NULL, &l->old, NULL, dest, base + offsetof(struct shared, sum), key,
				    FI_UINT64, FI_SUM, r);
		l->added += !n;
		break;
	case 4:
		holds(l->old >= l->seen + 1);
		l->seen = l->old + 1;
		l->add4 = 3;
		n = fi_fetch_atomic(ep, &l->add4, 1, NULL, &l->old4, NULL, dest, base + offsetof(struct shared, sum4),
				    key, FI_UINT32, FI_SUM, r);
		break;
	case 5:
		holds(l->old4 % 3 == 0);
		l->add = l->swapped + 1;
		n = fi_compare_atomic(ep, &l->add, 1, NULL, &l->swapped, NULL, &l->result, NULL, dest,
				      base + offsetof(struct shared, swap) + 8ul * a->me, key, FI_UINT64, FI_CSWAP, r);
		break;
	default:
		holds(l->result == l->swapped);
		l->swapped++;
	}
	holds(n == 0 || n == 1 || n == -FI_EAGAIN);
	if (n)
		set(r, IDLE);
	l->next = n == -FI_EAGAIN ? l->next : (l->next + 1) % 7;
	return !l->next && n == 1;
}

/* ---- Together ---- */

static void tell(struct actor *a, unsigned to, uint64_t value)
{
	while (fi_tinject(a->s->ep, &value, sizeof(value), a->addr[to], tag_of(CONTROL, a->me, to, 0)))
		look(a);
}

static uint64_t told(struct actor *a, unsigned from)
{
	uint64_t value = 0;

	set(&a->control, BUSY);
	while (fi_trecv(a->s->ep, &value, sizeof(value), NULL, a->addr[from], tag_of(CONTROL, from, a->me, 0), 0,
			&a->control))
		look(a);
	while (is(&a->control, BUSY))
		look(a);
	holds(!a->control.err);
	return value;
}

/* All have come here. Returns what the first one says to all. */
static uint64_t meet(struct actor *a, uint64_t value)
{
	unsigned i;

	if (a->me) {
		tell(a, 0, 0);
		return told(a, 0);
	}
	for (i = 1; i < ACTORS; i++)
		told(a, i);
	for (i = 1; i < ACTORS; i++)
		tell(a, i, value);
	return value;
}

static void cancelled(struct actor *a)
{
	set(&a->control, BUSY);
	while (fi_trecv(a->s->ep, a->multi[0].buf, 8, NULL, FI_ADDR_UNSPEC, tag_of(NEVER, a->me, a->me, 0), 0,
			&a->control))
		look(a);
	holds(!fi_cancel(&a->s->ep->fid, &a->control));
	while (is(&a->control, BUSY))
		look(a);
	holds(a->control.err == FI_ECANCELED);
}

static bool finished(const struct actor *a, uint32_t target)
{
	unsigned i, k;

	for (i = 0; i < ACTORS; i++) {
		const struct lane *l = &a->lanes[i];

		if (l->sent < target || l->got < target || (a->alone && (l->usent < target || l->ugot < target)))
			return false;
		for (k = 0; k < DEPTH; k++)
			if (is(&l->out[k], BUSY))
				return false;
	}
	return true;
}

static void one_round(struct actor *a, uint32_t target)
{
	bool memory[ACTORS] = {false};
	unsigned i;

	while (!finished(a, target) || !memory[0] || !memory[1] || !memory[2] || !memory[3]) {
		i = roll(a, ACTORS);
		if (a->lanes[i].sent < target && roll(a, 2))
			send_next(a, i, TAGGED);
		if (a->alone && a->lanes[i].usent < target && roll(a, 2))
			send_next(a, i, UNTAGGED);
		receive_next(a, i, target);
		if (!memory[i])
			memory[i] = memory_next(a, i);
		look(a);
	}
	cancelled(a);
}

static void *act(void *arg)
{
	struct actor *a = (struct actor *)arg;
	uint64_t sum = 0;
	uint32_t target = 0;
	unsigned i, k;

	a->random = 1000 * a->me + (getenv("INLAY_TEST_SEED") ? strtoull(getenv("INLAY_TEST_SEED"), NULL, 0) : 1);
	for (i = 0; i < 2; i++)
		a->multi[i].buf = (uint8_t *)pages(MULTI);
	for (i = 0; i < ACTORS; i++) {
		for (k = 0; k < DEPTH; k++) {
			a->lanes[i].out[k].buf = (uint8_t *)pages(MOST);
			a->lanes[i].in[k].buf = (uint8_t *)pages(MOST);
		}
		a->lanes[i].window = (uint8_t *)pages(MOST);
	}
	do
		one_round(a, target += PER_ROUND);
	while (meet(a, now() < a->end));
	/* Nothing was counted twice or not at all */
	for (i = 0; i < ACTORS; i++)
		tell(a, i, a->lanes[i].added);
	for (i = 0; i < ACTORS; i++)
		sum += told(a, i);
	holds(sum == __atomic_load_n(&a->shared->sum, __ATOMIC_RELAXED));
	meet(a, 0);
	return (void *)(uintptr_t)target;
}

/* What the others need of an actor on this endpoint */
static void set_up(struct actor *a, unsigned me, struct side *s, bool alone)
{
	const char *seconds = getenv("SOAK_SECONDS");

	a->me = me;
	a->s = s;
	a->alone = alone;
	a->end = now() + (seconds ? atof(seconds) : 0.5);
	a->shared = (struct shared *)pages(sizeof(*a->shared));
	holds(!fi_mr_reg(s->domain, a->shared, sizeof(*a->shared), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &a->mr,
			 NULL));
	memcpy(a->cards[me].name, s->name, NAME);
	a->cards[me].base = (uintptr_t)a->shared;
	a->cards[me].key = fi_mr_key(a->mr);
}

static struct actor actors[ACTORS];

/* ---- As processes ---- */

static void process(unsigned me)
{
	struct actor *a = &actors[0];
	const size_t least = MOST; /* what is left takes any message, or the buffer is over */
	static struct side s;
	unsigned i;

	side_open(&s, info_for(hints_for(CAPS)), 0);
	must(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)));
	set_up(a, me, &s, true);
	holds(write(3, &a->cards[me], sizeof(struct card)) == sizeof(struct card));
	holds(read(0, a->cards, sizeof(a->cards)) == sizeof(a->cards));
	for (i = 0; i < ACTORS; i++)
		a->addr[i] = insert(&s, a->cards[i].name);
	act(a);
	must(fi_close(&a->mr->fid));
	side_close(&s);
	exit(0);
}

static void run_processes(const char *faults, const char *link)
{
	struct card cards[ACTORS];
	int down[ACTORS][2], up[2], status;
	pid_t pids[ACTORS];
	unsigned i;
	char me[2];

	if (stepped()) {
		print_message("# skipped: a stepped device reaches no other process\n");
		skip();
	}
	for (i = 0; i < ACTORS; i++) {
		must(pipe(down[i]));
		must(pipe(up));
		pids[i] = fork();
		if (!pids[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			dup2(down[i][0], 0);
			dup2(up[1], 3);
			if (softdev_present()) {
				setenv("SOFTDEV_FAULT", faults, 1);
				setenv("SOFTDEV_LINK", link, 1);
			}
			snprintf(me, sizeof(me), "%u", i);
			execl("/proc/self/exe", "soak", me, NULL);
			_exit(127);
		}
		close(up[1]);
		assert_int_equal(read(up[0], &cards[i], sizeof(cards[i])), sizeof(cards[i]));
	}
	for (i = 0; i < ACTORS; i++)
		assert_int_equal(write(down[i][1], cards, sizeof(cards)), sizeof(cards));
	for (i = 0; i < ACTORS; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
}

static void test_processes(void **state)
{
	(void)state;
	run_processes("drop@/300,delay=300@/40,dup@/30", "roce");
}

static void test_infiniband(void **state)
{
	(void)state;
	need_softdev("another link layer");
	run_processes("drop@/211,delay=2ms@/97,dup@/13", "ib");
}

/* ---- As threads ---- */

static void test_threads(void **state)
{
	static struct side s[2];
	fi_addr_t addr[2][2];
	pthread_t t[ACTORS];
	unsigned i, k;

	(void)state;
	for (i = 0; i < 2; i++) {
		struct fi_info *hints = hints_for(CAPS);

		hints->domain_attr->threading = FI_THREAD_SAFE;
		side_open(&s[i], info_for(hints), 0);
	}
	for (i = 0; i < 4; i++)
		addr[i / 2][i % 2] = insert(&s[i / 2], s[i % 2].name);
	memset(actors, 0, sizeof(actors));
	for (i = 0; i < ACTORS; i++)
		set_up(&actors[i], i, &s[i % 2], false);
	for (i = 0; i < ACTORS; i++)
		for (k = 0; k < ACTORS; k++) {
			actors[i].cards[k] = actors[k].cards[k];
			actors[i].addr[k] = addr[i % 2][k % 2];
		}
	for (i = 0; i < ACTORS; i++)
		must(pthread_create(&t[i], NULL, act, &actors[i]));
	for (i = 0; i < ACTORS; i++)
		must(pthread_join(t[i], NULL));
	for (i = 0; i < ACTORS; i++)
		must(fi_close(&actors[i].mr->fid));
	for (i = 0; i < 2; i++)
		side_close(&s[i]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_processes),
		cmocka_unit_test(test_infiniband),
		cmocka_unit_test(test_threads),
	};

	use_provider();
	setenv("FI_INLAY_TIMEOUT", "14", 0);
	if (argc > 1)
		process((unsigned)atoi(argv[1]));
	return cmocka_run_group_tests(tests, NULL, NULL) || again_with("FI_INLAY_TAG_OFFLOAD", "64");
}
