/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soak.c: four actors do all the provider can do with each other and with themselves, in random order, and check every
 * byte and completion: every way to send, receive, read and write, at sizes on both sides of each protocol's border
 * or at random, atomics, peek, claim, cancel, multi-receive. First each is a process, and messages are lost, late and
 * twice; then they are threads, two on each endpoint.
 *
 *   SOAK_SECONDS   how long each goes on, else ROUNDS rounds; whatever has begun is finished
 */
#include "rig.h"
#include <pthread.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#define ACTORS 4u
#define DEPTH 8u          /* messages under way, in each direction between two */
#define PER_ROUND 48u
#define ROUNDS 2u
#define SUMS 5u
#define MOST 150000u
#define CAPS (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_SOURCE | FI_MULTI_RECV)
#define MULTI (4 * MOST)  /* a multi-receive's buffer */
#define PIECE 16384u      /* FI_INLAY_PIECE */
#define WINDOW (MOST + 2 * AROUND)
#define AROUND 64u        /* bytes next to what is written or read, which stay as they were */

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
	struct fi_cq_tagged_entry e; /* as the completion says */
	fi_addr_t source;
	uint32_t seq;
	uint8_t *buf;
};

/* What an actor has to do with another one */
struct lane {
	struct request out[DEPTH], in[DEPTH], rma;
	uint32_t sent, posted, got, usent, ugot;
	uint32_t next, at, len, way; /* of rma */
	uint8_t *window, *model;  /* what was written there, and what was read; what must be there */
	struct fid_mr *mr;        /* of window */
	uint64_t add, old, result, seen, swapped;
	uint64_t added[SUMS + 1]; /* how often; and the data that went with writes */
	uint8_t one[16], before[16];
	unsigned sum;             /* the last one's type, in sums */
};

/* What the others must know of one */
struct card {
	uint8_t name[NAME];
	uint64_t base, key;
};

/* What all count up in everybody's memory: by the device alone, in a loop, and with the peer's help */
static const struct {
	enum fi_datatype type;
	size_t size;
} sums[] = {{FI_UINT64, 8}, {FI_UINT32, 4}, {FI_FLOAT, 4}, {FI_DOUBLE, 8}, {FI_LONG_DOUBLE, 16}};

static void number(unsigned sum, void *at, uint64_t n)
{
	const uint32_t u = (uint32_t)n;
	const float f = (float)n;
	const double b = (double)n;
	long double l;

	memset(&l, 0, sizeof(l)); /* also what is no part of it */
	l = (long double)n;
	memcpy(at, sum == 0 ? (const void *)&n : sum == 1 ? (const void *)&u : sum == 2 ? (const void *)&f :
		   sum == 3 ? (const void *)&b : (const void *)&l, sums[sum].size);
}

/* In memory that others write to: a window for each, and words */
struct shared {
	uint8_t window[ACTORS][WINDOW];
	uint64_t swap[ACTORS];
	uint8_t sum[SUMS][16];
};

struct actor {
	unsigned me;
	bool alone;               /* on its endpoint: it receives untagged messages */
	struct side *s;
	struct card cards[ACTORS];
	fi_addr_t addr[ACTORS];
	struct lane lanes[ACTORS];
	struct request multi[2], plain[3], control;
	fi_addr_t named;          /* by plain[1] */
	struct shared *shared;
	struct fid_mr *mr;
	uint64_t random;
	double seconds, end;
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

/* What just fits, and does not fit, a WQEBB, a CQE, a WQE, a small buffer, a bounce buffer, a piece, a window of them */
static const uint32_t borders[] = {0,   1,   8,   12,  13,  19,  20,  21,  24,  25,  28,  29,  32,   33,   44,    45,
				   63,  64,  65,  160, 168, 169, 171, 172, 173, 176, 177, 180, 181, 188, 189, 191,
				   192, 193, 1000, 4097, EAGER, EAGER + 1, PIECE, PIECE + 1, 4 * PIECE, 4 * PIECE + 1, MOST};

static uint32_t some_len(uint64_t m, uint32_t most)
{
	uint32_t len = 1u << (m >> 8) % 18;

	len = m >> 62 & 1 ? borders[(m >> 8) % ARRAY(borders)] : len + (uint32_t)(m >> 16) % len - 1;
	return len < most ? len : most;
}

static size_t len_of(uint64_t m)
{
	return some_len(m, way_of(m) == INJECT || way_of(m) == INJECTDATA ? EAGER : MOST);
}

static bool has_data(uint64_t m)
{
	return way_of(m) == SENDDATA || way_of(m) == INJECTDATA || (way_of(m) >= DELIVERED && m >> 63);
}

/* Of a write */
static uint64_t data_of(size_t len, unsigned to)
{
	return (uint64_t)~(uint32_t)len << 32 | to << 28 | len;
}

static uint64_t came[ACTORS];     /* such data: two actors have one queue for them */

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

/* An untagged message, in whichever receive: which one it is, is in its data */
static void untagged(struct actor *a, const struct fi_cq_tagged_entry *e, fi_addr_t source, const uint8_t *buf)
{
	unsigned from;
	uint64_t m;

	for (from = 0; from < ACTORS && a->addr[from] != source; from++)
		;
	holds(from < ACTORS && (e->flags & ~FI_MULTI_RECV) == (FI_RECV | FI_MSG | FI_REMOTE_CQ_DATA));
	m = message(UNTAGGED, from, a->me, (uint32_t)e->data);
	holds(e->len == len_of(m) && differs(buf, e->len, (uint32_t)m) == e->len);
	a->lanes[from].ugot++;
}

static bool one_of(const struct request *r, const struct request *all, size_t n)
{
	return r >= all && r < all + n;
}

static void completed(struct actor *a, const struct fi_cq_tagged_entry *e, fi_addr_t source, int err)
{
	struct request *r = (struct request *)e->op_context;
	unsigned to;

	if (!r) { /* data of somebody's write */
		to = (e->data >> 28) % ACTORS;
		holds(!err && e->flags == (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
		holds(e->data == data_of(e->len, to));
		__atomic_fetch_add(&came[to], 1, __ATOMIC_RELAXED);
	} else if (one_of(r, a->multi, 2)) {
		holds(!err);
		if (e->flags & FI_RECV)
			untagged(a, e, source, (const uint8_t *)e->buf);
		if (e->flags & FI_MULTI_RECV)
			set(r, IDLE);
	} else if (one_of(r, a->plain, ARRAY(a->plain)) && err) {
		holds(r == &a->plain[1] && err == FI_ECONNRESET && !a->alone); /* its sender has left before us */
	} else if (one_of(r, a->plain, ARRAY(a->plain))) {
		holds(r != &a->plain[1] || source == a->named);
		untagged(a, e, source, r->buf);
		holds(all_bytes(r->buf + e->len, AROUND, 0xdd));
		set(r, IDLE);
	} else {
		r->err = err;
		r->e = *e;
		r->source = source;
		set(r, is(r, PEEKED) && !err ? PEEKED + DONE : DONE);
	}
}

static void post_untagged(struct actor *a);

static void look(struct actor *a)
{
	struct fi_cq_tagged_entry e = {};
	struct fi_cq_err_entry bad = {};
	uint64_t flags = FI_TRANSMIT;
	fi_addr_t source;
	ssize_t n;

	n = fi_cq_readfrom(a->s->cq, &e, 1, &source);
	if (n == -FI_EAVAIL && fi_cq_readerr(a->s->cq, &bad, 0) == 1) {
		e.op_context = bad.op_context;
		completed(a, &e, FI_ADDR_NOTAVAIL, bad.err);
	} else if (n == 1) {
		completed(a, &e, source, 0);
	} else {
		holds(n == -FI_EAGAIN || n == -FI_EAVAIL); /* another thread has taken the error */
		step();
	}
	if (a->alone)
		post_untagged(a);
	else /* which was a race with a send's lockless look at it */
		holds(!fi_control(&a->s->ep->fid, FI_SETOPSFLAG, &flags));
}

/* Each way to receive untagged messages: several into a buffer, or one in up to three pieces */
static void post_untagged(struct actor *a)
{
	struct fid_ep *ep = a->s->ep;

	for (unsigned i = 0; i < ARRAY(a->multi) + ARRAY(a->plain); i++) {
		const bool multi = i < ARRAY(a->multi);
		struct request *r = multi ? &a->multi[i] : &a->plain[i - ARRAY(a->multi)];
		struct iovec iov[3] = {{r->buf, multi ? MULTI : 100}, {r->buf + 100, 0}, {r->buf + 100, MOST - 100 + AROUND}};
		struct fi_msg m = {iov, NULL, multi ? 1 : 3, FI_ADDR_UNSPEC, r, 0};
		ssize_t n;

		if (!is(r, IDLE))
			continue;
		if (!multi)
			memset(r->buf, 0xdd, MOST + AROUND);
		set(r, BUSY);
		if (r == &a->plain[1])
			a->named = a->addr[roll(a, ACTORS)];
		n = multi || r == &a->plain[0] ? fi_recvmsg(ep, &m, FI_COMPLETION | (multi ? FI_MULTI_RECV : 0)) :
		    r == &a->plain[1]          ? fi_recvv(ep, iov, NULL, 3, a->named, r) :
						 fi_recv(ep, r->buf, MOST + AROUND, NULL, FI_ADDR_UNSPEC, r);
		holds(!n || n == -FI_EAGAIN);
		if (n)
			set(r, IDLE);
	}
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
	case SEND: return fi_tsend(ep, r->buf, len, NULL, a->addr[to], tag, r);
	case SENDV: return fi_tsendv(ep, iov, NULL, 3, a->addr[to], tag, r);
	case SENDDATA: return fi_tsenddata(ep, r->buf, len, NULL, data, a->addr[to], tag, r);
	case INJECT: return fi_tinject(ep, r->buf, len, a->addr[to], tag);
	case INJECTDATA: return fi_tinjectdata(ep, r->buf, len, data, a->addr[to], tag);
	default: return fi_tsendmsg(ep, &m, FI_COMPLETION | flags | levels[way_of(h) - DELIVERED]);
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
	/* A send that is over had its completion, and none other */
	holds(!is(r, DONE) || (!r->err && r->e.flags == (FI_SEND | (r->seq == TAGGED ? FI_TAGGED : FI_MSG))));
	set(r, BUSY);
	r->seq = kind;
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
	const size_t len = len_of(h), room = roll(a, 2) ? len : MOST;
	const uint64_t ignore = roll(a, 2) ? 0 : 0x7ull << 48;
	struct iovec iov[4] = {{r->buf, len / 3}, {r->buf + len / 3, 0}, {r->buf + len / 3, len / 3},
			       {r->buf + len / 3 * 2, room - len / 3 * 2}};
	struct fi_msg_tagged m = {iov, NULL, 4, roll(a, 2) ? a->addr[from] : FI_ADDR_UNSPEC, tag ^ (ignore & 5ull << 48),
				  ignore, r, 0};
	const unsigned way = flags ? 2 : roll(a, 3);

	memset(r->buf, 0xdd, MOST + AROUND);
	set(r, flags & FI_PEEK ? PEEKED : BUSY);
	while (way == 0 ? fi_trecv(a->s->ep, r->buf, room, NULL, m.addr, m.tag, ignore, r) :
	       way == 1 ? fi_trecvv(a->s->ep, iov, NULL, 4, m.addr, m.tag, ignore, r) :
			  fi_trecvmsg(a->s->ep, &m, flags | FI_COMPLETION))
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
		holds(!r->err && r->e.len == len_of(h) && differs(r->buf, r->e.len, (uint32_t)h) == r->e.len);
		holds(r->e.flags == (FI_RECV | FI_TAGGED | (has_data(h) ? FI_REMOTE_CQ_DATA : 0)));
		holds(r->e.tag == tag_of(TAGGED, from, a->me, r->seq) && r->source == a->addr[from]);
		holds(!has_data(h) || r->e.data == h);
		holds(all_bytes(r->buf + r->e.len, MOST + AROUND - r->e.len, 0xdd));
		l->got++;
		set(r, IDLE);
	} else if (is(r, IDLE) && l->posted < target) {
		r->seq = l->posted++;
		post_recv(a, from, r, roll(a, 3) ? 0 : roll(a, 2) ? FI_PEEK | FI_CLAIM : FI_COMPLETION);
	}
}

/* ---- Memory ---- */

/* 1: there is no completion */
static ssize_t write_out(struct actor *a, unsigned to, uint64_t at, uint64_t key)
{
	struct lane *l = &a->lanes[to];
	const size_t len = l->len;
	uint8_t *buf = l->window + AROUND;
	void *desc = roll(a, 2) ? fi_mr_desc(l->mr) : NULL, *descs[4] = {desc, NULL, desc, desc};
	struct iovec iov[3] = {{buf, len / 2}, {buf + len / 2, 0}, {buf + len / 2, len - len / 2}};
	struct fi_rma_iov there = {at, len, key};
	struct fi_msg_rma m = {iov, desc ? descs : NULL, 3, a->addr[to], &there, 1, &l->rma, data_of(len, to)};
	struct fid_ep *ep = a->s->ep;

	switch (l->way) {
	case 0: return fi_write(ep, buf, len, desc, m.addr, at, key, &l->rma);
	case 1: return fi_writedata(ep, buf, len, desc, m.data, m.addr, at, key, &l->rma);
	case 2: return fi_writemsg(ep, &m, FI_COMPLETION | FI_DELIVERY_COMPLETE | FI_REMOTE_CQ_DATA);
	case 3: return fi_writev(ep, iov, m.desc, 3, m.addr, at, key, &l->rma);
	case 4: return fi_inject_write(ep, buf, len, m.addr, at, key) ? -FI_EAGAIN : 1;
	default: return fi_inject_writedata(ep, buf, len, m.data, m.addr, at, key) ? -FI_EAGAIN : 1;
	}
}

/* What was written and what is next to it */
static ssize_t read_back(struct actor *a, unsigned to, uint64_t at, uint64_t key)
{
	struct lane *l = &a->lanes[to];
	const size_t len = l->len + 2 * AROUND;
	void *desc = roll(a, 2) ? fi_mr_desc(l->mr) : NULL, *descs[3] = {NULL, desc, desc};
	struct iovec iov[3] = {{l->window, len / 3}, {l->window + len / 3, 0}, {l->window + len / 3, len - len / 3}};
	struct fi_rma_iov there = {at - AROUND, len, key};
	struct fi_msg_rma m = {iov, desc ? descs : NULL, 3, a->addr[to], &there, 1, &l->rma, 0};

	memset(l->window, 0xdd, len + AROUND);
	switch (roll(a, 3)) {
	case 0: return fi_read(a->s->ep, l->window, len, desc, m.addr, there.addr, key, &l->rma);
	case 1: return fi_readv(a->s->ep, iov, m.desc, 3, m.addr, there.addr, key, &l->rma);
	default: return fi_readmsg(a->s->ep, &m, FI_COMPLETION);
	}
}

/* Write and read back; count up, in two widths; exchange: one after the other. Returns whether all have been done. */
static bool memory_next(struct actor *a, unsigned to)
{
	struct lane *l = &a->lanes[to];
	const uint64_t base = a->cards[to].base, key = a->cards[to].key;
	const fi_addr_t dest = a->addr[to];
	const uint64_t at = base + offsetof(struct shared, window) + (uint64_t)a->me * WINDOW + AROUND + l->at;
	const uint64_t sum = base + offsetof(struct shared, sum);
	struct fid_ep *ep = a->s->ep;
	struct request *r = &l->rma;
	ssize_t n = 1;

	if (is(r, BUSY))
		return false;
	holds(!is(r, DONE) || (!r->err && r->e.flags == (l->next == 2 ? FI_RMA | FI_WRITE :
							 l->next == 3 ? FI_RMA | FI_READ : FI_ATOMIC | FI_READ)));
	set(r, BUSY);
	switch (l->next) {
	case 0:
		l->way = roll(a, 6);
		l->len = some_len(mix(roll(a, UINT32_MAX)), l->way < 4 ? MOST : EAGER);
		l->at = roll(a, MOST - l->len + 1);
		fill(l->window + AROUND, l->len, roll(a, UINT32_MAX));
		memcpy(l->model + AROUND + l->at, l->window + AROUND, l->len);
		l->next = 1;
		set(r, IDLE);
		return false;
	case 1:
		n = write_out(a, to, at, key);
		l->added[SUMS] += n != -FI_EAGAIN && (l->way == 1 || l->way == 2 || l->way == 5); /* with data */
		break;
	case 2: n = read_back(a, to, at, key); break;
	case 3:
		holds(!memcmp(l->window, l->model + l->at, l->len + 2 * AROUND));
		holds(all_bytes(l->window + l->len + 2 * AROUND, AROUND, 0xdd));
		l->add = 1;
		n = fi_inject_atomic(ep, &l->add, 1, dest, sum, key, FI_UINT64, FI_SUM) ? -FI_EAGAIN : 1;
		l->added[0] += n == 1;
		break;
	case 4:
		n = fi_fetch_atomic(ep, &l->add, 1, NULL, &l->old, NULL, dest, sum, key, FI_UINT64, FI_SUM, r);
		l->added[0] += !n;
		break;
	case 5:
		holds(l->old >= l->seen + 1);
		l->seen = l->old + 1;
		l->sum = 1 + roll(a, SUMS - 1);
		number(l->sum, l->one, 1);
		n = fi_fetch_atomic(ep, l->one, 1, NULL, l->before, NULL, dest, sum + 16 * l->sum, key,
				    sums[l->sum].type, FI_SUM, r);
		l->added[l->sum] += !n;
		break;
	case 6:
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
	l->next = n == -FI_EAGAIN ? l->next : (l->next + 1) % 8;
	return !l->next && n == 1;
}

/* ---- Together ---- */

static void tell(struct actor *a, unsigned to, uint64_t value)
{
	while (fi_tinject(a->s->ep, &value, sizeof(value), a->addr[to], tag_of(CONTROL, a->me, to, 0)))
		look(a);
}

/* Receives a word; or cancels, as nobody sends it */
static uint64_t told_as(struct actor *a, unsigned from, unsigned kind)
{
	const uint64_t tag = tag_of(kind, from, a->me, 0);
	uint64_t value = 0;

	set(&a->control, BUSY);
	while (fi_trecv(a->s->ep, &value, sizeof(value), NULL, a->addr[from], tag, 0, &a->control))
		look(a);
	holds(kind != NEVER || !fi_cancel(&a->s->ep->fid, &a->control));
	while (is(&a->control, BUSY))
		look(a);
	holds(a->control.err == (kind == NEVER ? FI_ECANCELED : 0));
	return value;
}

static uint64_t told(struct actor *a, unsigned from)
{
	return told_as(a, from, CONTROL);
}

/* All have come here. Returns what the first one says to all. */
static uint64_t meet(struct actor *a, uint64_t value)
{
	if (a->me) {
		tell(a, 0, 0);
		return told(a, 0);
	}
	for (unsigned i = 1; i < ACTORS; i++)
		told(a, i);
	for (unsigned i = 1; i < ACTORS; i++)
		tell(a, i, value);
	return value;
}

static bool finished(const struct actor *a, uint32_t target)
{
	for (unsigned i = 0; i < ACTORS; i++) {
		const struct lane *l = &a->lanes[i];

		if (l->sent < target || l->got < target || (a->alone && (l->usent < target || l->ugot < target)))
			return false;
		for (unsigned k = 0; k < DEPTH; k++)
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
	told_as(a, a->me, NEVER);
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
	for (i = 0; i < ARRAY(a->plain); i++)
		a->plain[i].buf = (uint8_t *)pages(MOST + AROUND);
	for (i = 0; i < ACTORS; i++) {
		struct lane *l = &a->lanes[i];

		for (k = 0; k < DEPTH; k++) {
			l->out[k].buf = (uint8_t *)pages(MOST);
			l->in[k].buf = (uint8_t *)pages(MOST + AROUND);
		}
		l->window = (uint8_t *)pages(WINDOW + AROUND);
		l->model = (uint8_t *)pages(WINDOW);
		holds(!fi_mr_reg(a->s->domain, l->window, WINDOW + AROUND, FI_READ | FI_WRITE, 0, 0, 0, &l->mr, NULL));
	}
	do
		one_round(a, target += PER_ROUND);
	while (meet(a, a->seconds ? now() < a->end : target < ROUNDS * PER_ROUND));
	/* Nothing was counted twice or not at all */
	for (k = 0; k <= SUMS; k++) {
		uint8_t expected[16];

		for (i = 0; i < ACTORS; i++)
			tell(a, i, a->lanes[i].added[k]);
		for (i = 0, sum = 0; i < ACTORS; i++)
			sum += told(a, i);
		if (k == SUMS)
			break;
		number(k, expected, sum);
		holds(!memcmp(expected, a->shared->sum[k], sums[k].size > 10 ? 10 : sums[k].size));
	}
	for (a->end = now() + DEADLINE; __atomic_load_n(&came[a->me], __ATOMIC_RELAXED) != sum; look(a))
		holds(now() < a->end);
	a->alone = false; /* no more receives: who hears first that all are done leaves */
	meet(a, 0);
	for (i = 0; i < ACTORS; i++)
		holds(!fi_close(&a->lanes[i].mr->fid));
	return (void *)(uintptr_t)target;
}

/* What the others need of an actor on this endpoint */
static void set_up(struct actor *a, unsigned me, struct side *s, bool alone)
{
	const char *seconds = getenv("SOAK_SECONDS");

	a->me = me;
	a->s = s;
	a->alone = alone;
	a->seconds = seconds && *seconds ? atof(seconds) : 0;
	a->end = now() + a->seconds;
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

	side_open(&s, info_for(hints_for(CAPS)), 0);
	must(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)));
	set_up(a, me, &s, true);
	holds(write(3, &a->cards[me], sizeof(struct card)) == sizeof(struct card));
	holds(read(0, a->cards, sizeof(a->cards)) == sizeof(a->cards));
	for (unsigned i = 0; i < ACTORS; i++)
		a->addr[i] = insert(&s, a->cards[i].name);
	act(a);
	must(fi_close(&a->mr->fid));
	side_close(&s);
	exit(0);
}

static void run_processes(const char *faults, const char *link)
{
	const bool softdev = softdev_present();
	struct card cards[ACTORS];
	struct process p[ACTORS];
	char me[2];

	if (stepped()) {
		print_message("# skipped: a stepped device reaches no other process\n");
		skip();
	}
	for (unsigned i = 0; i < ACTORS; i++) {
		snprintf(me, sizeof(me), "%u", i);
		p[i] = spawn(me, softdev ? "SOFTDEV_FAULT" : NULL, faults, softdev ? "SOFTDEV_LINK" : NULL, link);
		assert_int_equal(read(p[i].from, &cards[i], sizeof(cards[i])), sizeof(cards[i]));
	}
	for (unsigned i = 0; i < ACTORS; i++)
		assert_int_equal(write(p[i].to, cards, sizeof(cards)), sizeof(cards));
	for (unsigned i = 0; i < ACTORS; i++)
		assert_int_equal(reap(&p[i]), 0);
}

static void test_processes(UNUSED void **state)
{
	run_processes("drop@/300,delay=300@/40,dup@/30", "roce");
}

static void test_infiniband(UNUSED void **state)
{
	need_softdev("another link layer");
	run_processes("drop@/211,delay=2ms@/97,dup@/13", "ib");
}

/* ---- As threads ---- */

static void test_threads(UNUSED void **state)
{
	struct side *const s[] = {&pair.a, &pair.b};
	fi_addr_t addr[2][2];
	pthread_t t[ACTORS];

	pair_open_as(CAPS, 0, FI_THREAD_SAFE, FI_WAIT_NONE);
	for (unsigned i = 0; i < 4; i++)
		addr[i / 2][i % 2] = i == 1 ? pair.to_b : i == 2 ? pair.to_a : insert(s[i / 2], s[i % 2]->name);
	for (unsigned i = 0; i < ACTORS; i++)
		set_up(&actors[i], i, s[i % 2], false);
	for (unsigned i = 0; i < ACTORS; i++)
		for (unsigned k = 0; k < ACTORS; k++) {
			actors[i].cards[k] = actors[k].cards[k];
			actors[i].addr[k] = addr[i % 2][k % 2];
		}
	for (unsigned i = 0; i < ACTORS; i++)
		must(pthread_create(&t[i], NULL, act, &actors[i]));
	for (unsigned i = 0; i < ACTORS; i++) {
		must(pthread_join(t[i], NULL));
		must(fi_close(&actors[i].mr->fid)); /* all have met: nobody writes to it any more */
	}
	pair_close();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_processes),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_infiniband),
	};
	/* In short runs a link layer for each way to match tags */
	const bool brief = !getenv("SOAK_SECONDS") && !over_dc();

	use_provider();
	setenv("FI_INLAY_TIMEOUT", "14", 0);
	setenv("FI_INLAY_PIECE", "16384", 0);
	if (argc > 1)
		process((unsigned)atoi(argv[1]));
	return _cmocka_run_group_tests("soak", tests + (brief && getenv("INLAY_TEST_AGAIN")), brief ? 2 : 3, NULL, NULL) ||
	       again_with("FI_INLAY_TAG_OFFLOAD", "64");
}
