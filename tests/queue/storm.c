/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * storm.c: four processes post all operations to each other at random, over RC (with and without a
 * shared receive queue), UC, XRC, DC, UD and raw packets, while messages are lost, late and doubled.
 * Now and then a WQE fails, by a wrong key or because the peer has no receive. Its queue pair is then
 * drained, reset and connected again, and goes on (include/inlay/recovery.md). Every byte is checked.
 * Each WQE and each receive comes back exactly once, and packets use each stride of their buffers. On
 * reliable queue pairs each message arrives once, in order, and each atomic is executed once.
 *
 *   SOAK_SECONDS       how long, 0.5; what has begun is finished
 *   INLAY_TEST_SEED    where the random numbers begin
 */
#include "rig.h"
#include <inlay/connect.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define ACTORS 4u
#define DEPTH 32u         /* WQEs under way on a queue pair; WQE i uses buffer i here and place i at the peer */
#define ROOM 2048u        /* bytes of each buffer and place */
#define MOST 1500u        /* bytes of a block */
#define PER_ROUND 16u
#define ENTRIES 127u      /* of a shared receive queue */
#define DC_KEY 0x7777
#define ETHER 14u         /* bytes of a packet's header */
#define BUFFERS 4u        /* of packets */
#define WRONG 0x55aa00    /* changes a key */
#define ANY UINT32_MAX
#define ENOUGH 10000u     /* WQEs of an actor, in which each operation occurs: about 10 seconds */

enum kind { RC, RCS, UC, XRC, DC, UD, RAW, KINDS };
#define WITH_KEYS (1u << RC | 1u << RCS)
#define RELIABLE (WITH_KEYS | 1u << XRC | 1u << DC)
#define NO_UD (RELIABLE | 1u << UC)
#define NO_RAW (NO_UD | 1u << UD)
#define ALL (NO_RAW | 1u << RAW)

enum {
	SEND, SEND_IMM, SEND_DONE, WRITE, WRITE_IMM, READ, ATOMIC, NOP, REFER, BIND, INVALIDATE, LOOK_UP, WINDOW, TWICE,
	BREAK, RANDOM, READ_BACK = RANDOM, SEND_THROUGH, WINDOW_BACK, PROVE, OPS
};
enum state { DRAINS, WAITS, ALMOST, UP }; /* WAITS for the peer's record, then until it is as far */
enum { SHUT, BUSY, OPEN, CLOSING };
enum { HELLO, BROKEN, RECORD, READY, ARRIVED, GO };

/* At the front of each message and of whatever is written: all about its bytes */
struct head {
	uint32_t len, seed;
	uint32_t told;            /* as an immediate */
	uint32_t done;            /* the window that the sender no longer needs */
};

/* One WQE, until it comes back */
struct did {
	unsigned what;            /* an operation */
	struct lane *lane;
	uint32_t index, seq;      /* of the WQE; of its message */
	uint32_t len, seed;
	bool signaled;
	uint64_t before, after;   /* the word of an atomic; before: the lane's, too */
	uint8_t *buf;
};

/* What an actor has to do with another one by queue pairs of one kind */
struct lane {
	unsigned peer, kind;
	uint32_t next, acked;               /* messages: to be sent, known to have arrived */
	uint32_t got, expected, generation; /* from the peer */
	uint32_t proved;
	uint64_t word, may[2 * DEPTH];      /* the word at the peer that only this lane changes, or what it may be */
	unsigned mays;
	bool unsure, asked;
	uint32_t key, used, finished;       /* the peer's window */
	struct ibv_mw *mw;                  /* for the peer */
	unsigned window;
	struct inlay_av av;
};

/* A queue pair; of XRC, the two that a pair of actors has */
struct tube {
	enum kind kind;
	unsigned peer;
	enum state state;
	uint32_t generation;
	struct ibv_qp *qp, *rqp;
	struct inlay_sq sq;
	struct inlay_rq rq;
	struct did did[DEPTH];
	uint32_t head, count;
	uint64_t posted, good, bad, given, taken;
	bool failed, nop, last;             /* last: LAST_WQE_REACHED */
	bool refers;                        /* the UMR key is in use */
	uint8_t *bufs;                      /* of rq */
	struct mlx5dv_mkey *key;
	struct inlay_connect_record here, there;
	uint32_t heard[2];                  /* of XRC: the numbers at the peer */
	bool record, ready;
};

struct control {
	uint32_t type, kind, generation, qpn, rqpn, srqn, rkey, value;
	uint64_t base;
	uint8_t record[2][INLAY_CONNECT_SIZE];
};

/* In memory that others write to and read from */
struct shared {
	uint64_t pattern[ROOM / 8];
	uint64_t board[ACTORS][KINDS];           /* the key of the window that is open for them */
	uint64_t words[ACTORS][KINDS];
	uint8_t window[ACTORS][KINDS][ROOM], place[ACTORS][KINDS][DEPTH][ROOM];
};

struct stack {
	struct ibv_srq *ib;
	struct inlay_srq srq;
	uint8_t *left[ENTRIES + 2]; /* buffers that it has not: one more than it has empty entries */
	uint32_t lefts;
};

static unsigned me;
static int wires[ACTORS];         /* sockets to the others, by which they meet and recover */
static struct control cards[ACTORS];
static struct lane lanes[KINDS][ACTORS];
static struct tube tubes[4 * (ACTORS - 1) + 3], *by_kind[KINDS][ACTORS];
static unsigned tube_count;
static struct inlay_uar uar;
static struct inlay_cq cq;
static struct ibv_cq *ibcq;
static struct stack srq, xsrq;
static const struct inlay_strides strides = {9, 6, 2};
static struct inlay_packet_queue packets;
static uint8_t *packet_bufs;
static uint32_t packet_buf, packet_strides; /* the buffer in use, and how many of its strides are used */
static struct ibv_qp *dct;
static struct ibv_xrcd *xrcd;
static struct inlay_atomics can;
static struct shared *shared;
static struct ibv_mr *mr, *local;
static uint8_t *arena, *arena_at;
static uint32_t target, arrived, again;
static bool going, ending;
static double latest, idle;   /* the last turn; seconds since something came */
static const char *why = "";
static const struct ibv_qp_cap caps = {.max_send_wr = 64, .max_send_sge = 3, .max_inline_data = 128};

#define ARENA (4u << 20)

/* Also outside of cmocka's tests */
#define holds(what)                                                                                                     \
	do {                                                                                                            \
		if (!(what)) {                                                                                          \
			fprintf(stderr, "%s:%d: actor %u: not so: %s\n", __FILE__, __LINE__, me, #what);                \
			abort();                                                                                        \
		}                                                                                                       \
	} while (0)

static bool in(uint32_t kinds, unsigned kind)
{
	return kinds >> kind & 1;
}

/* Are there queue pairs of this kind? InfiniBand has no raw packets */
static bool is(unsigned kind)
{
	return kind != RAW || packet_bufs;
}

static uint8_t *take(size_t len)
{
	uint8_t *p = arena_at;

	arena_at += len;
	holds(arena_at <= arena + ARENA);
	return p;
}

static struct ibv_sge here(const void *p, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)p, len, local->lkey};

	return sge;
}

/* What has this place in the peer's memory */
static struct remote theirs(const struct lane *l, const void *mine)
{
	const uint64_t offset = (uint64_t)((const uint8_t *)mine - (uint8_t *)shared);
	struct remote r = {cards[l->peer].base + offset, cards[l->peer].rkey};

	return r;
}

static uint32_t told_of(const struct tube *t, const struct lane *l)
{
	return (uint32_t)t->kind << 29 | me << 27 | (t->generation & 127) << 20 | l->next;
}

static void put_block(struct did *d, uint32_t told, uint32_t done)
{
	uint32_t most = told >> 29 >= UD ? 1024 : MOST;
	struct head h;

	h.len = d->len = (uint32_t)sizeof(h) + rnd_below(rnd_below(2) ? 100 : most - (uint32_t)sizeof(h));
	h.seed = (uint32_t)rnd();
	h.told = told;
	h.done = done;
	memcpy(d->buf, &h, sizeof(h));
	fill(d->buf + sizeof(h), h.len - sizeof(h), h.seed);
}

/* Makes a block a packet: local addresses, and the type for experiments */
static void put_ether(struct did *d)
{
	const uint8_t ether[ETHER] = {2, 0, 0, 0, 0, (uint8_t)d->lane->peer, 2, 0, 0, 0, 0, (uint8_t)me, 0x88, 0xb5};

	memmove(d->buf + ETHER, d->buf, d->len);
	memcpy(d->buf, ether, ETHER);
	d->len += ETHER;
}

static struct head block_of(const void *p, size_t len)
{
	struct head h;

	memcpy(&h, p, sizeof(h));
	holds(h.len >= sizeof(h) && h.len <= len);
	holds(differs((const uint8_t *)p + sizeof(h), h.len - sizeof(h), h.seed) == h.len - sizeof(h));
	return h;
}

/* ---- Operations ---- */

enum writes { OTHER, BLOCK, MESSAGE }; /* a block of bytes; one that takes a receive */

/* weight: how often at random; then: what follows at once, on reliable queue pairs */
static struct op { uint32_t kinds, weight; enum writes writes; unsigned then; } ops[OPS] = {
	/* SEND          */ {ALL, 8, MESSAGE, 0},
	/* SEND_IMM      */ {NO_RAW, 8, MESSAGE, 0},
	/* SEND_DONE     */ {WITH_KEYS, 30, MESSAGE, 0},         /* the peer's window was used: invalidates it or says so */
	/* WRITE         */ {NO_UD, 8, BLOCK, READ_BACK},
	/* WRITE_IMM     */ {NO_UD, 8, MESSAGE, READ_BACK},
	/* READ          */ {RELIABLE, 6, OTHER, 0},             /* of a pattern */
	/* ATOMIC        */ {RELIABLE, 12, OTHER, 0},
	/* NOP           */ {ALL, 2, OTHER, 0},
	/* REFER         */ {WITH_KEYS, 6, OTHER, SEND_THROUGH}, /* a key over the next WQE's buffer, in three pieces */
	/* BIND          */ {WITH_KEYS, 12, OTHER, 0},           /* a window for the peer */
	/* INVALIDATE    */ {WITH_KEYS, 30, OTHER, 0},
	/* LOOK_UP       */ {WITH_KEYS, 6, OTHER, 0},            /* is there a window of the peer's? */
	/* WINDOW        */ {WITH_KEYS, 30, BLOCK, WINDOW_BACK}, /* written through it */
	/* TWICE         */ {1u << RAW, 8, MESSAGE, 0},          /* two packets of one WQE */
	/* BREAK         */ {ALL, 1, OTHER, 0},                  /* a wrong key, of the peer's memory or of one's own */
	/* READ_BACK     */ {RELIABLE, 0, OTHER, 0},             /* what the WQE before has written */
	/* SEND_THROUGH  */ {WITH_KEYS, 0, MESSAGE, 0},
	/* WINDOW_BACK   */ {WITH_KEYS, 0, OTHER, 0},
	/* PROVE         */ {RELIABLE, 0, OTHER, 0},             /* what the words of the atomics are */
};

static uint64_t counts[OPS][KINDS]; /* of those done; BREAK: of those refused */

/* Three pieces, some of them empty. Returns whether they could be inline, and are to be */
static uint32_t pieces(const struct did *d, struct ibv_sge *sge)
{
	uint32_t a = rnd_below(d->len + 1), b = rnd_below(d->len - a + 1);

	sge[0] = here(d->buf, a);
	sge[1] = here(d->buf + a, b);
	sge[2] = here(d->buf + a + b, d->len - a - b);
	return d->len <= caps.max_inline_data && rnd_below(2) ? INLAY_INLINE : 0;
}

/* One post, with the destination in it or without; the opcode is a constant to the compiler */
INLAY_ALWAYS int put(struct tube *t, const struct lane *l, uint32_t opcode, struct inlay_wr wr, uint32_t flags)
{
	return in(1u << XRC | 1u << DC | 1u << UD, t->kind) ? wr_post(&t->sq, opcode, wr_to(wr, &l->av), flags)
							    : wr_post(&t->sq, opcode, wr, flags);
}

static int atomic(struct tube *t, struct lane *l, struct did *d, uint32_t flags)
{
	const struct remote r = theirs(l, &shared->words[me][t->kind]);
	const uint32_t form = rnd_below(9);
	const uint64_t v = rnd(), m = rnd(), was = l->word;
	const uint64_t to[] = {was + v, v, was, (was & ~m) | (v & m), was & v, was | v, was ^ v, was + v,
			       (was & ~(uint64_t)UINT32_MAX) | (uint32_t)(was + v)};
	struct ibv_sge sge = here(d->buf, form == 8 ? 4 : 8);
	struct inlay_atomic op;
	struct inlay_wr wr;
	int err;

	d->seed = form;
	d->len = sge.length;
	d->before = was;
	d->after = to[form];
	switch (form) {
	case 0: op = inlay_atomic_add(v); break;
	case 1: op = inlay_atomic_cmp_swap(was, v); break;
	case 2: op = inlay_atomic_cmp_swap(~was, v); break;
	case 3: op = inlay_masked_cmp_swap(was, v, v, m); break;
	case 4: op = inlay_masked_swap(v, ~v); break;
	case 5: op = inlay_masked_swap(v, v); break;
	case 6: op = inlay_masked_add(v, ~(uint64_t)0); break;
	case 7: op = inlay_masked_add(v, 0); break;
	default: op = inlay_masked_add((uint32_t)v, 0);
	}
	wr = wr_at(wr_sge(&sge, 1), r.addr, r.rkey);
	wr.to = in(1u << XRC | 1u << DC, t->kind) ? &l->av : NULL;
	err = form ? wr_atomic(&t->sq, op, wr, flags) : wr_atomic(&t->sq, inlay_atomic_add(v), wr, flags);
	if (!err)
		l->word = to[form];
	return err == -ENOTSUP ? -EAGAIN : err; /* a device that has no such atomic */
}

static const struct did *after(const struct tube *t, const struct did *d)
{
	return &t->did[((size_t)(d - t->did) + 1) % DEPTH];
}

/* The WQE before; its buffer is not used again before this one has come back */
static const struct did *before(const struct tube *t, const struct did *d)
{
	return &t->did[((size_t)(d - t->did) + DEPTH - 1) % DEPTH];
}

static int build(struct tube *t, struct lane *l, struct did *d, uint32_t flags)
{
	const unsigned at = (unsigned)(d - t->did), what = d->what;
	const uint8_t *next = after(t, d)->buf;
	struct remote r = theirs(l, shared->place[me][t->kind][at]);
	struct ibv_mw_bind_info info = {mr, (uintptr_t)shared->window[l->peer][t->kind], ROOM,
					IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
	const uint32_t told = told_of(t, l), small = flags | INLAY_FENCE_INITIATOR_SMALL;
	const bool word = rnd_below(2);
	const struct inlay_eth plain = inlay_eth_csum(0);
	struct ibv_sge sge[3], one, two[2];

	if (ops[what].writes) {
		put_block(d, told, what == SEND_DONE && word ? l->finished : 0);
		if (t->kind == RAW)
			put_ether(d);
	} else {
		d->len = what == READ ? rnd_below(MOST) : what == PROVE || what == LOOK_UP ? 8 : before(t, d)->len;
		memset(d->buf, 0, ROOM);
	}
	flags |= pieces(d, sge) & (ops[what].writes ? ANY : 0);
	one = here(d->buf, d->len);
	two[0] = two[1] = one;
	switch (what) {
	case SEND: return t->kind == RAW ? inlay_post_packet(&t->sq, plain, sge, 3, flags) : put(t, l, MLX5_OPCODE_SEND, wr_sge(sge, 3), flags);
	case SEND_IMM: return put(t, l, MLX5_OPCODE_SEND_IMM, wr_imm(wr_sge(sge, 3), htobe32(told)), flags | INLAY_SOLICITED);
	case SEND_DONE:
		flags |= INLAY_FENCE;
		return word ? inlay_post_send(&t->sq, sge, 3, flags)
			    : wr_post(&t->sq, MLX5_OPCODE_SEND_INVAL, wr_at(wr_sge(sge, 3), 0, l->finished), flags);
	case WRITE: return put(t, l, MLX5_OPCODE_RDMA_WRITE, wr_there(wr_sge(sge, 3), &r), flags);
	case WRITE_IMM: return put(t, l, MLX5_OPCODE_RDMA_WRITE_IMM, wr_imm(wr_there(wr_sge(sge, 3), &r), htobe32(told)), flags);
	case READ:
		d->seed = rnd_below(ROOM - MOST);
		r = theirs(l, (uint8_t *)shared->pattern + d->seed);
		return put(t, l, MLX5_OPCODE_RDMA_READ, wr_there(wr_sge(sge, 3), &r), flags);
	case READ_BACK:
		r = theirs(l, shared->place[me][t->kind][before(t, d) - t->did]);
		return put(t, l, MLX5_OPCODE_RDMA_READ, wr_there(wr_sge(sge, 3), &r), flags);
	case PROVE:
		d->before = l->word;
		d->seed = l->acked;
		r = theirs(l, &shared->words[me][t->kind]);
		return put(t, l, MLX5_OPCODE_RDMA_READ, wr_there(wr_sge(&one, 1), &r), flags | INLAY_FENCE);
	case LOOK_UP:
		r = theirs(l, &shared->board[me][t->kind]);
		return put(t, l, MLX5_OPCODE_RDMA_READ, wr_there(wr_sge(&one, 1), &r), flags);
	case ATOMIC: return atomic(t, l, d, flags);
	case REFER:
		sge[0] = here(next, 700);
		sge[1] = here(next + 700, 13);
		sge[2] = here(next + 713, ROOM - 713);
		return inlay_post_umr_list(&t->sq, t->key->lkey, IBV_ACCESS_LOCAL_WRITE, sge, 3, small);
	case SEND_THROUGH:
		one.addr = 0;
		one.lkey = t->key->lkey;
		return inlay_post_send(&t->sq, &one, 1, small);
	case BIND: return inlay_post_bind_mw(&t->sq, l->mw, ibv_inc_rkey(l->mw->rkey), &info, flags);
	case INVALIDATE: return inlay_post_local_inv(&t->sq, l->mw->rkey, flags);
	case WINDOW: case WINDOW_BACK:
		r = theirs(l, shared->window[me][t->kind]);
		r.rkey = l->key;
		return what == WINDOW ? put(t, l, MLX5_OPCODE_RDMA_WRITE, wr_there(wr_sge(sge, 3), &r), flags)
				      : put(t, l, MLX5_OPCODE_RDMA_READ, wr_there(wr_sge(sge, 3), &r), flags);
	case TWICE: return inlay_post_packets_multi(&t->sq, plain, two, 2, flags) == 2 ? 0 : -EAGAIN;
	case BREAK:
		d->len = 40;
		one = here(d->buf, d->len);
		*(!in(RELIABLE, t->kind) || word ? &one.lkey : &r.rkey) ^= WRONG;
		if (t->kind == RAW)
			return inlay_post_packet(&t->sq, plain, &one, 1, flags);
		return t->kind == UD ? put(t, l, MLX5_OPCODE_SEND, wr_sge(&one, 1), flags)
				     : put(t, l, MLX5_OPCODE_RDMA_WRITE, wr_there(wr_sge(&one, 1), &r), flags);
	default: return inlay_post(&t->sq, MLX5_OPCODE_NOP, NULL, flags);
	}
}

/* Is there what the operation needs? */
static bool possible(const struct tube *t, const struct lane *l, unsigned what)
{
	switch (what) {
	case SEND_DONE: return l->finished;
	case ATOMIC: return !l->unsure;
	case REFER: return !t->refers;
	case BIND: return l->window == SHUT;
	case INVALIDATE: return l->window == CLOSING;
	case WINDOW: return l->key;
	default: return true;
	}
}

/* Posts one WQE and files it. False: there is no room, or nothing to do it with */
static bool post(struct tube *t, struct lane *l, unsigned what, uint32_t flags)
{
	struct did *d = &t->did[(t->head + t->count) % DEPTH];
	uint8_t *buf = d->buf;
	int err;

	if (!possible(t, l, what))
		return false;
	memset(d, 0, sizeof(*d));
	d->buf = buf;
	d->what = what;
	d->lane = l;
	d->index = inlay_sq_index(&t->sq);
	d->signaled = flags & INLAY_SIGNALED;
	err = build(t, l, d, flags);
	holds(!err || err == -EAGAIN);
	if (err)
		return false;
	d->seq = ops[what].writes == MESSAGE ? l->next++ : ANY;
	t->count++;
	t->posted++;
	holds(t->count < DEPTH); /* the buffer before the oldest WQE is still compared with */
	l->asked |= what == PROVE;
	t->refers |= what == SEND_THROUGH;
	if (what == SEND_DONE)
		l->finished = 0;
	if (what == WINDOW_BACK) {
		l->used = l->finished = l->key;
		l->key = 0;
	}
	if (what == BIND) {
		l->mw->rkey = ibv_inc_rkey(l->mw->rkey);
		l->window = BUSY;
	}
	if (what == INVALIDATE) {
		shared->board[l->peer][t->kind] = 0;
		l->window = BUSY;
	}
	return true;
}

/* Something for a queue pair that is up. The WQEs posted last in a round are signaled */
static void next(struct tube *t)
{
	struct lane *l = &lanes[t->kind][t->peer == me ? (me + 1 + rnd_below(ACTORS - 1)) % ACTORS : t->peer];
	uint32_t all = 0, n, what;

	/* The longest chain has four */
	if (t->count > DEPTH - 6 || rnd_below(3) == 0) {
		inlay_sq_ring(&t->sq);
		return;
	}
	if (l->next >= target || (l->unsure && !l->asked)) {
		if (in(RELIABLE, t->kind) && !l->asked && (l->unsure || (l->acked == target && l->proved != target)))
			post(t, l, PROVE, INLAY_SIGNALED);
		else if (t->count && !t->did[(t->head + t->count - 1) % DEPTH].signaled)
			post(t, l, NOP, INLAY_SIGNALED);
		return;
	}
	for (what = 0; what < RANDOM; what++)
		all += in(ops[what].kinds, t->kind) ? ops[what].weight : 0;
	n = rnd_below(all);
	for (what = 0; !in(ops[what].kinds, t->kind) || n >= ops[what].weight; what++)
		n -= in(ops[what].kinds, t->kind) ? ops[what].weight : 0;
	if (!post(t, l, what, what == BREAK || rnd_below(2) ? INLAY_SIGNALED : 0) || !in(RELIABLE, t->kind))
		return;
	while ((what = ops[what].then) && post(t, l, what, rnd_below(3) ? INLAY_SIGNALED : 0))
		;
}

/* ---- What comes back ---- */

static void tell(unsigned to, uint32_t type, const struct tube *t, struct control *c)
{
	struct control none = {};

	c = c ? c : &none;
	c->type = type;
	if (t) {
		c->kind = t->kind;
		c->generation = t->generation;
	}
	holds(send(wires[to], c, sizeof(*c), 0) == sizeof(*c));
}

static bool paired(const struct tube *t)
{
	return t->peer != me;
}

static void stop(struct tube *t)
{
	qp_to(t->qp, IBV_QPS_ERR);
	if (t->rqp)
		qp_to(t->rqp, IBV_QPS_ERR);
	t->state = DRAINS;
}

static void fails(struct tube *t)
{
	if (t->state != UP && t->state != ALMOST)
		return;
	stop(t);
	if (paired(t))
		tell(t->peer, BROKEN, t, NULL);
}

static void done_atomic(const struct did *d)
{
	uint64_t was;

	memcpy(&was, d->buf, sizeof(was));
	was = d->seed > 2 ? inlay_atomic_answer(&can, d->buf, d->len) : was;
	holds(was == (d->len == 4 ? (uint32_t)d->before : d->before));
}

static void proved(struct lane *l, const struct did *d)
{
	uint64_t is;
	unsigned i;

	memcpy(&is, d->buf, sizeof(is));
	for (i = 0; i < l->mays && l->may[i] != is; i++)
		;
	holds(l->mays ? i < l->mays : is == d->before);
	l->word = l->mays ? is : l->word;
	l->mays = 0;
	l->unsure = l->asked = false;
	l->proved = d->seed;
}

static void done(struct tube *t, struct did *d)
{
	struct lane *l = d->lane;
	uint64_t key;

	switch (d->what) {
	case READ: holds(!memcmp(d->buf, (uint8_t *)shared->pattern + d->seed, d->len)); break;
	case READ_BACK: case WINDOW_BACK: holds(!memcmp(d->buf, before(t, d)->buf, d->len)); break;
	case ATOMIC: done_atomic(d); break;
	case PROVE: proved(l, d); break;
	case SEND_THROUGH: t->refers = false; break;
	case INVALIDATE: l->window = SHUT; break;
	case BREAK: holds(!"a wrong key is refused"); break;
	case BIND: l->window = OPEN; shared->board[l->peer][t->kind] = l->mw->rkey; break;
	case LOOK_UP:
		memcpy(&key, d->buf, sizeof(key));
		if (key != l->used)
			l->key = (uint32_t)key;
		break;
	default: break;
	}
}

static void undone(struct did *d)
{
	struct lane *l = d->lane;

	if (d->what != ATOMIC)
		return;
	l->unsure = true;
	if (!l->mays)
		l->may[l->mays++] = d->before;
	l->may[l->mays++] = d->after;
}

/* A completion of the send side ends its WQE, and those before it that were good and unsignaled */
static void sent_by(struct tube *t, const struct mlx5_cqe64 *cqe)
{
	const bool good = !inlay_cqe_is_error(cqe);
	enum ibv_wc_status status = inlay_cqe_status(cqe);
	struct did *d;

	do {
		bool last, fine;

		holds(t->count);
		d = &t->did[t->head];
		last = (uint16_t)d->index == inlay_cqe_wqe_counter(cqe);
		fine = good || !last;
		holds(last || (!d->signaled && !t->failed));
		if (last && !good && !t->failed && status != IBV_WC_WR_FLUSH_ERR && status != IBV_WC_RETRY_EXC_ERR &&
		    status != IBV_WC_RNR_RETRY_EXC_ERR && d->what != BREAK) {
			inlay_wqe_print(stderr, t->sq.buf, inlay_sq_size(&t->sq) * INLAY_WQEBB, inlay_cqe_wqe_counter(cqe), inlay_sq_type(&t->sq));
			fprintf(stderr, "kind %u, %s\n", t->kind, ibv_wc_status_str(status));
			holds(!"only what is meant to fail does");
		}
		if (d->seq != ANY && (fine || !in(RELIABLE, t->kind))) {
			holds(d->seq == d->lane->acked);
			d->lane->acked++;
		}
		fine ? done(t, d) : undone(d);
		counts[d->what][t->kind] += fine || (d->what == BREAK && status != IBV_WC_WR_FLUSH_ERR);
		t->good += fine;
		t->bad += !fine;
		t->head = (t->head + 1) % DEPTH;
		t->count--;
		if (last)
			break;
	} while (true);
	holds(inlay_sq_release(&t->sq, cqe) > 0);
	t->failed |= !good;
	if (!good)
		fails(t);
}

static void arrived_from(unsigned from, unsigned kind, uint32_t told)
{
	struct lane *l = &lanes[kind][from];
	uint32_t generation = told >> 20 & 127, seq = told & 0xfffff;

	holds(told >> 29 == kind && (told >> 27 & 3) == from);
	if (!in(RELIABLE, kind)) {
		holds(kind >= UD || seq >= l->got);
		l->got = seq + 1 > l->got ? seq + 1 : l->got;
		return;
	}
	/* After a failure, what has arrived may come once more */
	holds(generation != l->generation || l->expected == ANY ? seq <= l->got : seq == l->expected);
	l->generation = generation;
	l->expected = seq + 1;
	l->got += seq == l->got;
}

static void give(struct tube *t)
{
	/* RC: each third connection is one whose receivers have no buffers */
	if (t->kind == RC && t->generation % 3 == 1)
		return;
	while (inlay_rq_room(&t->rq)) {
		struct ibv_sge sge = here(t->bufs + ROOM * (inlay_rq_index(&t->rq) & (inlay_rq_size(&t->rq) - 1)), ROOM);

		must(inlay_post_recv(&t->rq, &sge, 1));
		t->given++;
	}
	inlay_rq_ring(&t->rq);
}

static void give_stack(struct stack *s)
{
	while (inlay_srq_room(&s->srq)) {
		struct ibv_sge sge = here(s->left[--s->lefts], ROOM);

		must(inlay_post_srq_recv(&s->srq, &sge, 1, sge.addr));
	}
	inlay_srq_ring(&s->srq);
}

/* A completed entry goes back with its buffer, with another one, or empty */
static void give_back(struct stack *s, const struct mlx5_cqe64 *cqe)
{
	uint8_t *buf = (uint8_t *)(uintptr_t)inlay_srq_user(&s->srq, inlay_cqe_wqe_counter(cqe));
	struct ibv_sge sge = here(s->left[s->lefts - 1], ROOM);

	switch (rnd_below(3)) {
	case 0: must(inlay_srq_recycle(&s->srq, cqe)); break;
	case 1: must(inlay_srq_replace(&s->srq, cqe, &sge, 1, sge.addr)); s->left[s->lefts - 1] = buf; break;
	default:
		must(inlay_srq_release(&s->srq, cqe));
		s->left[s->lefts++] = buf;
	}
	holds(s->lefts == inlay_srq_room(&s->srq) + 1);
	if (inlay_srq_room(&s->srq) > rnd_below(8))
		give_stack(s);
	else
		inlay_srq_ring(&s->srq);
}

static void window_used(struct lane *l, uint32_t key, unsigned now_it_is)
{
	holds(l->window == OPEN && key == l->mw->rkey);
	block_of(shared->window[l->peer][l->kind], ROOM);
	l->window = now_it_is;
	if (now_it_is == SHUT)
		shared->board[l->peer][l->kind] = 0;
}

static struct tube *tube_of(uint32_t qpn)
{
	for (unsigned i = 0; i < tube_count; i++)
		if (tubes[i].qp->qp_num == qpn || (tubes[i].rqp && tubes[i].rqp->qp_num == qpn))
			return &tubes[i];
	holds(qpn == dct->qp_num);
	return NULL;
}

static void received_by(struct tube *t, const struct mlx5_cqe64 *cqe)
{
	const unsigned kind = t ? t->kind : DC, grh = kind == UD ? INLAY_GRH : 0;
	struct stack *s = kind == XRC ? &xsrq : kind == RCS || kind == DC ? &srq : NULL;
	const uint8_t *data = s ? (const uint8_t *)(uintptr_t)inlay_srq_user(&s->srq, inlay_cqe_wqe_counter(cqe))
				: t->bufs + ROOM * (inlay_cqe_wqe_counter(cqe) & (inlay_rq_size(&t->rq) - 1));
	uint8_t opcode = inlay_cqe_opcode(cqe);

	if (inlay_cqe_is_error(cqe)) {
		holds(t && inlay_cqe_status(cqe) == IBV_WC_WR_FLUSH_ERR);
		fails(t);
	} else if (opcode == MLX5_CQE_RESP_WR_IMM) {
		uint32_t told = be32toh(inlay_cqe_imm_be(cqe));

		arrived_from(told >> 27 & 3, kind, told);
	} else {
		struct head h;

		data = (const uint8_t *)inlay_cqe_data(cqe, inlay_cq_cqe_size(&cq), data) + grh;
		h = block_of(data, ROOM - grh);
		holds(inlay_cqe_byte_count(cqe) == h.len + grh);
		holds(opcode != MLX5_CQE_RESP_SEND_IMM || be32toh(inlay_cqe_imm_be(cqe)) == h.told);
		arrived_from(h.told >> 27 & 3, kind, h.told);
		if (opcode == MLX5_CQE_RESP_SEND_INV)
			window_used(&lanes[kind][t->peer], inlay_cqe_invalidated_rkey(cqe), SHUT);
		else if (h.done)
			window_used(&lanes[kind][t->peer], h.done, CLOSING);
	}
	if (s) {
		give_back(s, cqe);
		return;
	}
	holds(inlay_rq_release(&t->rq, cqe) == 1);
	t->taken++;
	if (t->state == UP || t->state == ALMOST)
		give(t);
}

/* A packet is in the strides after the last one's, or if it is too long for them, in the next buffer */
static void packet_by(const struct mlx5_cqe64 *cqe)
{
	const uint32_t at_stride = packet_strides;
	struct inlay_packet_at at;
	struct head h;
	int done;

	holds(!inlay_cqe_is_special(cqe));
	done = inlay_striding_take(&packets.rq, cqe, &at);
	holds(done >= 0 && at.wqe == packet_buf);
	packet_strides += inlay_cqe_byte_count(cqe) >> 16 & 0x7fff;
	if (at.len) {
		const uint8_t *data = packet_bufs + (at.wqe << (strides.log_number + strides.log_size)) + at.offset;

		holds(at.offset == (at_stride << strides.log_size) + strides.shift);
		holds(data[5] == me && data[ETHER - 2] == 0x88 && data[ETHER - 1] == 0xb5);
		h = block_of(data + ETHER, at.len - ETHER);
		holds(at.len == (h.len + ETHER < 60 ? 60 : h.len + ETHER)); /* the shortest frame */
		arrived_from(data[11], RAW, h.told);
	}
	holds(done == (packet_strides == 1u << strides.log_number));
	if (!done)
		return;
	packet_buf = (packet_buf + 1) % BUFFERS;
	packet_strides = 0;
	inlay_striding_recycle(&packets.rq);
	inlay_rq_ring(&packets.rq.rq);
}

/* All completions that are there */
static bool poll_all(void)
{
	const struct mlx5_cqe64 *cqe;
	bool any = false;

	while ((cqe = inlay_cq_peek(&cq))) {
		struct tube *t = tube_of(inlay_cqe_qpn(cqe));

		inlay_cqe_is_send(cqe) ? sent_by(t, cqe) : received_by(t, cqe);
		inlay_cq_advance(&cq, 1);
		any = true;
	}
	while (packet_bufs && (cqe = inlay_cq_peek(&packets.cq))) {
		packet_by(cqe);
		inlay_cq_advance(&packets.cq, 1);
		any = true;
	}
	return any;
}

/* ---- Recovery ---- */

/* All has come back: a last NOP and what was posted before it, receives, a shared queue's entry that the device held */
static bool drained(struct tube *t)
{
	const uint32_t flags = INLAY_SIGNALED | INLAY_RING;

	t->nop = t->nop || post(t, &lanes[t->kind][t->peer], NOP, flags);
	return t->nop && !t->count && t->given == t->taken && (t->kind != RCS || t->last) && !inlay_cq_peek(&cq);
}

static struct inlay_connect_attr attr_of(const struct tube *t)
{
	struct inlay_connect_attr attr = inlay_connect_defaults();

	attr.access |= IBV_ACCESS_REMOTE_ATOMIC;
	attr.qkey = QKEY;
	attr.min_rnr_timer = 1;
	attr.rnr_retry = t->kind == RC && t->generation % 3 == 1 ? 1 : 7;
	return attr;
}

static void reset_lane(struct lane *l)
{
	if (in(RELIABLE, l->kind)) {
		l->next = l->acked;
		l->expected = l->kind == DC ? l->expected : ANY; /* a target's does not change */
	}
	l->asked = false;
	l->key = l->used = l->finished = 0;
	l->window = SHUT;
	shared->board[l->peer][l->kind] = 0;
	if (l->mw)
		must(ibv_dealloc_mw(l->mw));
	l->mw = in(WITH_KEYS, l->kind) ? ibv_alloc_mw(dev.pd, IBV_MW_TYPE_2) : NULL;
}

/* From here on as new; the first time, too */
static void begin(struct tube *t)
{
	struct inlay_connect_attr attr;
	struct control c = {};

	qp_to(t->qp, IBV_QPS_RESET);
	holds(!inlay_cq_clean(&cq, t->qp->qp_num, NULL, NULL));
	holds(!inlay_sq_pending(&t->sq));
	inlay_sq_reset(&t->sq);
	if (t->bufs)
		inlay_rq_reset(&t->rq);
	if (t->rqp)
		qp_to(t->rqp, IBV_QPS_RESET);
	for (unsigned i = 0; i < ACTORS; i++)
		if (i != me && (i == t->peer || !paired(t)))
			reset_lane(&lanes[t->kind][i]);
	t->generation++;
	t->failed = t->nop = t->last = t->refers = t->ready = false;
	t->state = paired(t) ? WAITS : UP;
	attr = attr_of(t);
	if (t->kind == DC)
		must(inlay_connect_dc(&t->here, t->qp, 0, &attr, &why));
	else if (t->kind == RAW)
		raw_up(t->qp);
	else if (t->kind != XRC)
		must(inlay_connect_local(&t->here, t->qp, &attr, &why));
	if (t->bufs)
		give(t);
	if (t->kind == UD)
		must(inlay_connect_rts(t->qp, &t->here, NULL, &attr, &why));
	if (!paired(t))
		return;
	c.qpn = t->qp->qp_num;
	c.rqpn = t->rqp ? t->rqp->qp_num : 0;
	if (t->kind != XRC)
		inlay_connect_pack(&t->here, c.record[0]);
	tell(t->peer, RECORD, t, &c);
}

static void go_on(struct tube *t)
{
	if (t->state == DRAINS && drained(t))
		begin(t);
	if (t->state == WAITS && t->record) {
		struct inlay_connect_attr attr = attr_of(t);

		if (t->kind == XRC) {
			/* Others than before: the wire may still hold what the last connection sent */
			const uint32_t psn = (t->generation + 1) * 0x9e3779 & 0xffffff;

			xrc_connect(t->qp, t->heard[1], psn);
			xrc_connect(t->rqp, t->heard[0], psn);
		} else {
			must(inlay_connect_rts(t->qp, &t->here, &t->there, &attr, &why));
		}
		t->record = false;
		t->state = ALMOST;
		tell(t->peer, READY, t, NULL);
	}
	if (t->state == ALMOST && t->ready)
		t->state = UP;
}

static void hear(unsigned from, const struct control *c)
{
	struct tube *t = by_kind[c->kind][from];

	switch (c->type) {
	case BROKEN:
		holds(t->state == DRAINS || t->state == WAITS || t->generation == c->generation);
		fails(t);
		break;
	case RECORD:
		holds(!t->record);
		t->record = true;
		t->heard[0] = c->qpn;
		t->heard[1] = c->rqpn;
		if (t->kind != XRC)
			must(inlay_connect_unpack(&t->there, c->record[0], INLAY_CONNECT_SIZE, &why));
		break;
	case READY: t->ready = true; break;
	case ARRIVED: arrived++; break;
	default:
		holds(c->type == GO);
		going = true;
		again = c->value;
	}
}

static void events(void)
{
	struct pollfd fd = {dev.ctx->async_fd, POLLIN, 0};
	struct ibv_async_event event;

	while (poll(&fd, 1, 0) == 1) {
		must(ibv_get_async_event(dev.ctx, &event));
		for (unsigned i = 0; i < tube_count; i++)
			if (event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == tubes[i].qp)
				tubes[i].last = true;
		ibv_ack_async_event(&event);
	}
}

static void stuck(void)
{
	for (unsigned i = 0; i < tube_count; i++)
		fprintf(stderr, "actor %u, kind %u, to %u: state %u, generation %u, %u WQEs and %lu receives are out\n", me,
			tubes[i].kind, tubes[i].peer, tubes[i].state, tubes[i].generation, tubes[i].count,
			tubes[i].given - tubes[i].taken);
	abort();
}

/* Whatever has come: completions, events, words of the others */
static void turn(void)
{
	bool any = false, events_due = false;
	const double last = latest;
	struct control c;

	for (unsigned i = 0; i < ACTORS; i++)
		while (i != me && recv(wires[i], &c, sizeof(c), MSG_DONTWAIT) == sizeof(c)) {
			hear(i, &c);
			any = true;
		}
	any |= poll_all();
	for (unsigned i = 0; i < tube_count; i++)
		events_due |= tubes[i].state == DRAINS && tubes[i].kind == RCS;
	if (events_due)
		events();
	for (unsigned i = 0; i < tube_count; i++)
		if (tubes[i].state != UP && !ending)
			go_on(&tubes[i]);
	latest = now();
	/* On a busy machine all four may have stood still */
	idle = any ? 0 : idle + (latest - last < 0.01 ? latest - last : 0.01);
	if (any)
		return;
	if (idle > DEADLINE)
		stuck();
	usleep(50); /* the device and the others need the CPU */
}

/* All have come here. Returns what the first one says to all */
static uint32_t meet(uint32_t value)
{
	if (me) {
		tell(0, ARRIVED, NULL, NULL);
		while (!going)
			turn();
		going = false;
		return again;
	}
	while (arrived < ACTORS - 1)
		turn();
	arrived -= ACTORS - 1;
	for (unsigned i = 1; i < ACTORS; i++) {
		struct control c = {.value = value};

		tell(i, GO, NULL, &c);
	}
	return value;
}

/* ---- An actor's life ---- */

static void stack_open(struct stack *s, struct ibv_xrcd *of)
{
	s->ib = srq_plain_or_xrc(ENTRIES, of, ibcq);
	must(inlay_srq_from_srq(&s->srq, s->ib, &cq, &why));
	holds(inlay_srq_size(&s->srq) < ARRAY(s->left));
	while (s->lefts <= inlay_srq_size(&s->srq))
		s->left[s->lefts++] = take(ROOM);
	give_stack(s);
}

/* All packets that are for this actor */
static void packets_open(void)
{
	struct inlay_flow_match match = {.mac = {2, 0, 0, 0, 0, (uint8_t)me}, .type = 0x88b5};
	struct ibv_flow *flow;
	struct inlay_rss rss;
	uint32_t i, bytes;

	must(inlay_packet_queue_create(&packets, dev.pd, BUFFERS, &strides, 0, &why));
	bytes = 1u << (strides.log_number + strides.log_size);
	packet_bufs = take(BUFFERS * bytes);
	for (i = 0; i < BUFFERS; i++)
		must(inlay_striding_post(&packets.rq, (uintptr_t)packet_bufs + i * bytes, local->lkey));
	inlay_rq_ring(&packets.rq.rq);
	must(inlay_rss_create(&rss, dev.pd, &packets.wq, 1, 0, &why));
	must(inlay_flow_create(&flow, rss.qp, &match, &why));
}

static void tube_open(enum kind kind, unsigned peer)
{
	struct mlx5dv_mkey_init_attr key = {dev.pd, MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 4};
	struct tube *t = &tubes[tube_count++];
	struct opt opt = usual;

	t->kind = kind;
	t->peer = peer;
	t->generation = ANY;
	by_kind[kind][peer] = t;
	opt.type = kind == UC ? IBV_QPT_UC : kind == UD ? IBV_QPT_UD : kind == RAW ? IBV_QPT_RAW_PACKET : IBV_QPT_RC;
	opt.scatter = kind == RAW; /* has no such flag */
	opt.pd = uar.pd;
	opt.cap = caps;
	opt.cap.max_recv_wr = kind == RCS || kind == RAW ? 0 : DEPTH;
	opt.cap.max_recv_sge = 1;
	opt.srq = kind == RCS ? srq.ib : NULL;
	t->rqp = kind == XRC ? xrc_make(xrcd, NULL, NULL, NULL) : NULL;
	t->qp = kind == DC ? dc_make(uar.pd, ibcq, NULL, 0, &caps)
			   : kind == XRC ? xrc_make(NULL, uar.pd, ibcq, &caps) : qp_make(&opt, ibcq, ibcq);
	must(inlay_sq_from_qp(&t->sq, t->qp, &uar, &cq, &why));
	if (kind == RAW && !t->sq.multi_packet)
		ops[TWICE].kinds = 0;
	inlay_sq_set_atomics(&t->sq, kind == DC ? can.sizes_dc : can.sizes);
	if (in(1u << RC | 1u << UC | 1u << UD, kind)) {
		must(inlay_rq_from_qp(&t->rq, t->qp, &cq, &why));
		t->bufs = take(ROOM * inlay_rq_size(&t->rq));
	}
	for (unsigned i = 0; i < DEPTH; i++)
		t->did[i].buf = take(ROOM);
	if (in(WITH_KEYS, kind)) {
		t->key = mlx5dv_create_mkey(&key);
		holds(t->key);
	}
	begin(t);
}

/* Objects, and what the others must know of them */
static void set_up(void)
{
	struct inlay_connect_attr attr = inlay_connect_defaults();
	struct opt opt = usual;
	struct inlay_connect_record dct_here;

	arena = arena_at = (uint8_t *)pages(ARENA);
	shared = (struct shared *)pages(sizeof(*shared));
	fill(shared->pattern, ROOM, 77);
	local = ibv_reg_mr(dev.pd, arena, ARENA, IBV_ACCESS_LOCAL_WRITE);
	mr = ibv_reg_mr(dev.pd, shared, sizeof(*shared), ALL_ACCESS | IBV_ACCESS_MW_BIND);
	xrcd = xrcd_open();
	opt.cqe = 16383;
	ibcq = cq_make(&opt);
	holds(local && mr);
	must(inlay_cq_from_cq(&cq, ibcq, &why));
	must(inlay_uar_create(&uar, dev.pd, INLAY_UAR_SERIAL, &why));
	inlay_atomics_query(&can, dev.ctx, NULL);
	stack_open(&srq, NULL);
	stack_open(&xsrq, xrcd);
	for (unsigned i = 0; i < ACTORS; i++)
		for (unsigned k = 0; k < KINDS; k++) {
			lanes[k][i].peer = i;
			lanes[k][i].kind = k;
			lanes[k][i].generation = lanes[k][i].expected = 0;
		}
	dct = dc_make(dev.pd, ibcq, srq.ib, DC_KEY, NULL);
	attr.access |= IBV_ACCESS_REMOTE_ATOMIC;
	must(inlay_connect_dc(&dct_here, dct, 1, &attr, &why));
	must(inlay_srqn_from_srq(&cards[me].srqn, xsrq.ib));
	cards[me].base = (uintptr_t)shared;
	cards[me].rkey = mr->rkey;
	inlay_connect_pack(&dct_here, cards[me].record[0]);
	tube_open(DC, me);
	tube_open(UD, me);
	if (dev.port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		packets_open();
		tube_open(RAW, me);
	}
	inlay_connect_pack(&by_kind[UD][me]->here, cards[me].record[1]);
	for (unsigned i = 0; i < ACTORS; i++)
		if (i != me)
			tell(i, HELLO, NULL, &cards[me]);
	for (unsigned i = 0; i < ACTORS; i++) {
		struct inlay_connect_record r;

		if (i == me)
			continue;
		holds(recv(wires[i], &cards[i], sizeof(cards[i]), 0) == sizeof(cards[i]) && cards[i].type == HELLO);
		must(inlay_connect_unpack(&r, cards[i].record[0], INLAY_CONNECT_SIZE, &why));
		must(inlay_connect_av(&lanes[DC][i].av, dev.pd, &by_kind[DC][me]->here, &r, NULL, &why));
		inlay_av_to_dct(&lanes[DC][i].av, r.qpn, DC_KEY);
		must(inlay_connect_unpack(&r, cards[i].record[1], INLAY_CONNECT_SIZE, &why));
		must(inlay_connect_av(&lanes[UD][i].av, dev.pd, &by_kind[UD][me]->here, &r, NULL, &why));
		inlay_av_init_xrc(&lanes[XRC][i].av, cards[i].srqn);
	}
	for (unsigned i = 0; i < ACTORS; i++)
		for (unsigned k = 0; k < DC && i != me; k++)
			tube_open((enum kind)k, i);
}

static bool finished(void)
{
	for (unsigned i = 0; i < tube_count; i++)
		if (tubes[i].state != UP || tubes[i].count)
			return false;
	for (unsigned i = 0; i < ACTORS; i++)
		for (unsigned k = 0; k < KINDS; k++)
			if (i != me && is(k) && (lanes[k][i].acked != target || (in(RELIABLE, k) && lanes[k][i].proved != target)))
				return false;
	return true;
}

/* Everything has come back: each WQE, each receive; and what the unreliable ones wrote is whole */
static void account(void)
{
	ending = true;
	for (unsigned i = 0; i < tube_count; i++)
		stop(&tubes[i]);
	for (unsigned i = 0; i < tube_count; i++) {
		struct tube *t = &tubes[i];

		while (!drained(t))
			turn();
		holds(t->posted == t->good + t->bad && !inlay_sq_pending(&t->sq));
		holds(!t->bufs || !inlay_rq_pending(&t->rq));
	}
	for (unsigned i = 0; i < ACTORS; i++)
		for (unsigned k = 0; k < KINDS; k++)
			for (unsigned n = 0; n < DEPTH; n++)
				if (*(uint32_t *)(void *)shared->place[i][k][n])
					block_of(shared->place[i][k][n], ROOM);
	for (unsigned i = 0; i < ACTORS; i++)
		while (i != me && is(RAW) && !lanes[RAW][i].got && softdev_present()) /* a real port need not loop them back */
			turn();
	for (unsigned i = 0; i < ACTORS; i++)
		for (unsigned k = 0; k < KINDS && i != me; k++)
			holds(in(RELIABLE, k) ? lanes[k][i].got == target : lanes[k][i].got <= target);
}

/* Of enough WQEs, no operation may be missing on any kind of queue pair, nor a recovery */
static void report(void)
{
	uint64_t good = 0, bad = 0, times[KINDS] = {0}, sum = 0, least = UINT64_MAX;

	for (unsigned i = 0; i < tube_count; i++) {
		good += tubes[i].good;
		bad += tubes[i].bad;
		times[tubes[i].kind] += tubes[i].generation;
		sum += tubes[i].generation;
	}
	for (unsigned k = 0; k < KINDS; k++)
		for (unsigned i = 0; i < OPS; i++) {
			if (!in(ops[i].kinds, k) || !is(k))
				continue;
			if (good >= ENOUGH && !(counts[i][k] && times[k]))
				fprintf(stderr, "kind %u: operation %u %lu times, %lu recoveries\n", k, i, counts[i][k], times[k]);
			least = counts[i][k] < least ? counts[i][k] : least;
			least = times[k] < least ? times[k] : least;
		}
	printf("# actor %u: %lu WQEs, %lu failed or were flushed, %lu connections recovered, "
	       "each kind and operation at least %lu times\n", me, good, bad, sum, least);
	holds(least || good < ENOUGH);
}

static int act(void)
{
	const char *seconds = getenv("SOAK_SECONDS");
	double end = now() + (seconds ? atof(seconds) : 0.5);

	latest = now();
	must(dev_open(NULL));
	rnd_state = rnd_state * 1000 + me;
	set_up();
	do {
		target += PER_ROUND;
		while (!finished()) {
			struct tube *t = &tubes[rnd_below(tube_count)];

			if (t->state == UP)
				next(t);
			if (rnd_below(4) == 0)
				turn();
		}
	} while (meet(now() < end && target < 1u << 19)); /* a message's number has 20 bits */
	account();
	meet(0);
	report();
	return 0;
}

static void four(const char *faults, const char *link)
{
	const char *seed = getenv("INLAY_TEST_SEED");
	int pair[ACTORS][ACTORS], sockets[2], status, bad = 0;
	char mine[ACTORS + 1][12], *argv[ACTORS + 3] = {NULL};
	pid_t pids[ACTORS];
	unsigned i, k;

	if (stepped()) {
		print_message("# skipped: a stepped device reaches no other process\n");
		skip();
	}
	for (i = 0; i < ACTORS; i++)
		for (k = 0, pair[i][i] = -1; k < i; k++) {
			must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets));
			pair[i][k] = sockets[0];
			pair[k][i] = sockets[1];
		}
	fflush(NULL);
	for (i = 0; i < ACTORS; i++) {
		argv[0] = argv[1] = mine[ACTORS];
		snprintf(mine[ACTORS], sizeof(mine[0]), "%u", i);
		for (k = 0; k < ACTORS; k++) {
			snprintf(mine[k], sizeof(mine[0]), "%d", pair[i][k]);
			argv[2 + k] = mine[k];
		}
		pids[i] = fork();
		if (!pids[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (softdev_present()) {
				setenv("SOFTDEV_FAULT", faults, 1);
				setenv("SOFTDEV_LINK", link, 1);
			}
			execv("/proc/self/exe", argv);
			_exit(127);
		}
	}
	for (i = 0; i < ACTORS; i++) {
		pid_t ended = wait(&status);

		assert_true(ended > 0);
		for (k = 0; k < ACTORS; k++) {
			if (pids[k] == ended)
				pids[k] = 0;
			else if (status && !bad && pids[k])
				kill(pids[k], SIGKILL); /* they would wait for the one that failed */
		}
		bad |= status;
	}
	for (i = 0; i < ACTORS * ACTORS; i++)
		close(pair[i / ACTORS][i % ACTORS]);
	if (bad)
		fail_msg("with INLAY_TEST_SEED=%s, SOFTDEV_FAULT=%s, SOFTDEV_LINK=%s", seed ? seed : "1", faults, link);
}

TEST(roce)
{
	four("drop@/300,delay=300@/40,dup@/30", "roce");
}

TEST(infiniband)
{
	need_softdev("another link layer");
	four("drop@/211,delay=2ms@/97,dup@/13", "ib");
}

int main(int argc, char **argv)
{
	if (argc == ACTORS + 2) {
		me = (unsigned)atoi(argv[1]);
		for (unsigned i = 0; i < ACTORS; i++)
			wires[i] = atoi(argv[2 + i]);
		return act();
	}
	return run_all(NULL, NULL);
}
