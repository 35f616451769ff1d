/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim.c: many endpoints of the provider in one process, on the device of sim.h, for many seeds. What happens in a seed
 * repeats bit for bit: who does what next, what the device does, when; which datagrams are lost, late or twice;
 * which connections break, which ports go down; who dies and comes back in the same place. Others learn of that later,
 * or never: then it is a stranger.
 *
 * Every message arrives once, in order, in the right buffer with its bytes, or its operations end with an error; an
 * error needs a reason: the connection was broken, over both devices if there are two, or one of the peers has died.
 * After the last fault everything comes to an end. Then what was broken is connected again, and all work.
 *
 *   SIM_SEEDS   how many seeds of 8 peers (200); SIM_RAILS with two devices (100); SIM_MANY of 64, all to all (1)
 *   SIM_SEED    the first one (1)
 *   SIM_PEERS   of the hub (200)
 *   SIM_TRACE   says what happens
 */
#include "sim.h"
#include <malloc.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#define LONG 29000u         /* FI_INLAY_EAGER: few buffers in a chunk, so that they run out */
#define OPS 65536u
#define LIVES 4608u         /* at most, in a seed */
#define SEATS 72u           /* where their buffers are */
#define SLOTS 16u           /* buffers for sends, and for receives, of one that lives */
#define SPARE 4u            /* for receives at the end */
#define SMALL 8192u
#define LARGE (LONG + 2000u)
#define ROOM (LARGE + 64u)
#define WINDOW 64u          /* bytes that one may write to another: 32 written, a sum of 8 and one of 2 */
#define POISON 0x5a
#define TAGS 3u
#define ADDRS 8192u         /* in an address vector */
#define WANTS 6u
#define STEPS_TO_END 200000u /* times peers */

enum { SEND, RECV, WRITE, READ, FETCH, FETCH_16 };
enum { WANTED, POSTED, GOOD, BAD };

/* An operation of the application's; its place in ops is its number, and that of a message */
struct op {
	struct fi_context context;
	uint8_t kind, state;
	bool tagged, inject, data, any_tag, cancelled;
	struct app *app, *peer; /* whose, and with whom; receives: from whom, or NULL */
	uint32_t len, tag;
	uint32_t order;         /* of receives: when it was posted */
	uint64_t level;         /* of completion */
	uint8_t *buf;
	struct op *met;         /* of sends: the receive */
	struct op *next;        /* of sends: the next one to the same peer */
	uint64_t result;
	uint64_t posted;        /* the step; UINT64_MAX: not yet */
};

/* What one has to do with another */
struct tie {
	struct op *first, *last; /* messages */
	fi_addr_t addr;
	bool broken;            /* their connection is, over each device, */
	uint64_t mended;        /* or was until this step; 0: never */
	bool busy, known;       /* an operation on the window is under way; `written` is what is there */
	bool counts, counts_16; /* sum and sum_16 are what is there */
	bool stale;             /* its address is to be removed and inserted again */
	uint32_t written, told, came; /* told: writes that told the other; came: how often that was seen */
	uint64_t sum;
	uint16_t sum_16;
};

struct app {
	struct life *life;
	uint32_t index, node;
	bool alive, lazy;       /* lazy: posts few receives before the end */
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_mr *mr;
	uint8_t *window;        /* WINDOW bytes for each life, */
	uint64_t key;           /* and their key */
	uint8_t name[NAME];
	uint8_t *small[SLOTS], *rooms[SLOTS], *large; /* large: NULL while it is used */
	uint32_t smalls, free_rooms; /* that are free */
	uint16_t *who;          /* whose an address is */
	struct op *wants[WANTS];
	uint32_t want_cnt;
	uint32_t any[2];        /* receives of any message that are posted: untagged, tagged */
	uint32_t budget;        /* operations that it still begins */
};

static struct sim {
	uint64_t seed;
	uint32_t nodes, lives, app_cnt, op_cnt;
	uint32_t first;         /* that still does something, but for the hub */
	uint32_t settled;       /* operations before this one are */
	uint32_t orders;
	bool hub, directed, ending, starved; /* starved: there was no memory now and then */
	struct app *target;     /* to whom many send while there is none */
	struct app *at[LIVES];  /* of each node, who lives there, */
	uint64_t back[LIVES];   /* or when somebody does again */
	struct tie *pairs;
	uint32_t rails;         /* devices of each. What follows is not of one seed */
	struct app *apps[LIVES];
	struct op ops[OPS];
	struct fid_fabric *fabric;
	struct fi_info *infos[2]; /* receives name their sender: no, yes */
	uint8_t *seats[SEATS];
	uint64_t received, failed, deaths, cuts, returns; /* in one test */
} sim;

static void wrong(const char *file, int line, const char *what)
{
	print_error("%s:%d: not so in seed %lu, %u peers, step %lu: %s\n", file, line, (unsigned long)sim.seed, sim.nodes,
		    (unsigned long)nic.steps, what);
	fflush(NULL);
	_exit(1);
}

static struct tie *pair_of(const struct app *a, const struct app *b)
{
	return &sim.pairs[!sim.hub ? a->index * sim.lives + b->index : a->index ? sim.lives + a->index : b->index];
}

/* Whether an operation with this one may fail */
static bool excused(const struct op *op, const struct app *peer)
{
	const struct tie *t = pair_of(op->app, peer);

	return t->broken || op->posted <= t->mended || !op->app->alive || !peer->alive;
}

/* Whether a connection over one of these devices is of use, as both sides know */
static bool lives(const struct app *a, const struct app *b, uint32_t rails)
{
	struct qp *q, *to;

	for (const struct life *l = a->life; l; l = l->second)
		for (uint32_t i = 2; i < l->top && l->rail & rails; i++) {
			q = l->qps[i];
			to = q && !q->breaks ? responder(q) : NULL;
			if (to && to->life->app == b && responder(to) == q && !to->breaks && greeted(q) + greeted(to))
				return true;
		}
	return false;
}

static void joined(struct app *a, struct app *b, uint32_t rail)
{
	struct tie *t = pair_of(a, b), *other = pair_of(b, a);

	SAY("%u and %u are connected, %u\n", a->index, b->index, rail);
	if (t->broken && rail > 1) /* what ended is begun anew by the first */
		return;
	if (t->broken || (t->mended && !lives(a, b, 3 - rail)))
		t->mended = other->mended = nic.steps;
	t->broken = other->broken = false;
}

static void parted(struct app *a, struct app *b, bool all)
{
	if (a->alive && b->alive && (all || !lives(a, b, 3)))
		pair_of(a, b)->broken = pair_of(b, a)->broken = true;
}

/* A call of the provider's, by this one */
#define BY(a, call) ({ __typeof__(call) r_; nic.opening = (a)->life; r_ = (call); rung((a)->life); nic.opening = NULL; r_; })

/* ---- Lives ---- */

static uint8_t *seat(uint32_t s)
{
	const size_t len = SLOTS * (SMALL + ROOM) + LARGE;

	if (!sim.seats[s]) {
		sim.seats[s] = (uint8_t *)mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memset(sim.seats[s], POISON, len);
	}
	return sim.seats[s];
}

static void meet(struct app *a, struct app *b)
{
	*pair_of(a, b) = (struct tie){.addr = FI_ADDR_NOTAVAIL, .known = true, .counts = true, .counts_16 = true};
}

static struct app *app_open(uint32_t node)
{
	struct app *a = (struct app *)calloc(1, sizeof(*a));
	struct life *l = (struct life *)aligned_alloc(4096, sim.rails * inlay_round_up(sizeof(*l), 4096));
	const uint32_t room = node ? nic.few : HUB_QPS, windows = sim.hub ? 1 : sim.lives;
	struct fi_info *info = sim.infos[sim.directed];
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE};
	struct fi_av_attr av = {.count = 0};
	size_t len = NAME;
	uint8_t *at;

	sure(sim.app_cnt < sim.lives);
	a->life = nic.opening = l;
	a->index = sim.app_cnt++;
	a->node = node;
	a->alive = true;
	a->lazy = chance(500);
	for (uint32_t r = 0; r < sim.rails; r++, l++) {
		*l = (struct life){.app = a, .node = node + r * sim.nodes, .rail = r + 1};
		l->second = l->rail < sim.rails ? l + 1 : NULL;
		l->records = (uint32_t(*)[2])calloc(room, sizeof(*l->records));
		l->seen = (uint16_t *)calloc(room, sizeof(*l->seen));
		l->qps = (struct qp **)calloc(room, sizeof(struct qp *));
	}
	must(fi_domain(sim.fabric, info, &a->domain, NULL));
	must(fi_av_open(a->domain, &av, &a->av, NULL));
	must(fi_cq_open(a->domain, &cq, &a->cq, NULL));
	must(fi_endpoint(a->domain, info, &a->ep, NULL));
	must(fi_ep_bind(a->ep, &a->av->fid, 0));
	must(fi_ep_bind(a->ep, &a->cq->fid, FI_TRANSMIT | FI_RECV));
	must(fi_enable(a->ep));
	must(fi_getname(&a->ep->fid, a->name, &len));
	a->window = (uint8_t *)calloc(windows, WINDOW);
	must(fi_mr_reg(a->domain, a->window, windows * WINDOW, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &a->mr, NULL));
	a->key = fi_mr_key(a->mr);
	nic.opening = NULL;
	at = seat(!sim.hub ? node : node ? 1 + node % (SEATS - 1) : 0);
	for (uint32_t i = 0; i < SLOTS; i++, at += SMALL + ROOM) {
		a->small[i] = at;
		a->rooms[i] = at + SMALL;
	}
	a->large = at;
	a->smalls = a->free_rooms = SLOTS;
	a->who = (uint16_t *)calloc(ADDRS, sizeof(*a->who));
	sim.apps[a->index] = a;
	for (uint32_t i = sim.hub && a->index ? a->index : 0; i <= a->index; i++) {
		meet(a, sim.apps[sim.hub ? 0 : i]);
		meet(sim.apps[sim.hub ? 0 : i], a);
	}
	sim.at[node] = a;
	trace(node, 0xb0000000u + a->index);
	SAY("%u opens on %u\n", a->index, node);
	return a;
}

static void learn(struct app *a, struct app *b)
{
	struct tie *p = pair_of(a, b);

	if (p->addr != FI_ADDR_NOTAVAIL)
		return;
	assert_int_equal(BY(a, fi_av_insert(a->av, b->name, 1, &p->addr, 0, NULL)), 1);
	sure(p->addr < ADDRS);
	a->who[p->addr] = (uint16_t)b->index;
}

static void forget(struct app *a, struct app *b)
{
	struct tie *p = pair_of(a, b);

	if (p->addr != FI_ADDR_NOTAVAIL)
		must(BY(a, fi_av_remove(a->av, &p->addr, 1, 0)));
	p->addr = FI_ADDR_NOTAVAIL;
	p->stale = false;
}

static void app_free(struct app *a)
{
	free(a->life);
	free(a);
}

/*
 * Its process ends. dead: nothing of it is sent any more; else it says goodbye. A frozen one's queue pairs go on: it
 * stands for a process that does nothing.
 */
static void app_close(struct app *a, bool dead)
{
	struct fid *const mr = &a->mr->fid, *const ep = &a->ep->fid; /* what others write comes until this is closed */
	struct fid *const made[] = {dead ? mr : ep, dead ? ep : mr, &a->cq->fid, &a->av->fid, &a->domain->fid};
	struct life *l = a->life;

	SAY("%u %s\n", a->index, dead ? "dies" : "closes");
	trace(a->index, 0xb1000000u + dead);
	a->alive = false;
	for (; l; l = l->second)
		l->dead = dead;
	nic.opening = a->life;
	nic.opening->closing = true;
	for (uint32_t i = 0; i < ARRAY(made); i++)
		must(fi_close(made[i]));
	nic.opening = NULL;
	for (l = a->life; l; l = l->second) {
		sure(l->frozen || !l->objects);
		l->dead = !l->frozen;
		free(l->cq.cqes);
		free(l->srq->entries);
		free(l->srq);
		free(l->records);
		free(l->seen);
		free(l->qps);
	}
	free(a->window);
	free(a->who);
	a->window = NULL;
	for (uint32_t i = 0; i < sim.op_cnt; i++)
		if (sim.ops[i].app == a && sim.ops[i].state <= POSTED) {
			if (sim.ops[i].kind == RECV)
				memset(sim.ops[i].buf, POISON, ROOM);
			sim.ops[i].state = BAD;
		}
	if (sim.at[a->node] == a)
		sim.at[a->node] = NULL;
}

/* ---- Bytes ---- */

static uint8_t byte_of(uint32_t id, uint32_t i)
{
	return i < 4 ? (uint8_t)(id >> 8 * i) : (uint8_t)((id * 2654435761u + i * 40503u) >> 11);
}

static void put(uint8_t *at, uint32_t len, uint32_t id)
{
	for (uint32_t i = 0; i < len; i++)
		at[i] = byte_of(id, i);
}

static bool is(const uint8_t *at, uint32_t len, uint32_t id)
{
	uint32_t i;

	for (i = 0; i < len && at[i] == byte_of(id, i); i++)
		;
	return i == len;
}

/* ---- Operations ---- */

static struct op *op_new(struct app *a, struct app *peer, uint8_t kind)
{
	struct op *op = &sim.ops[sim.op_cnt++];

	sure(sim.op_cnt < OPS);
	*op = (struct op){.kind = kind, .app = a, .peer = peer, .posted = UINT64_MAX};
	return op;
}

static uint32_t number(const struct op *op)
{
	return (uint32_t)(op - sim.ops);
}

/* It has ended. Its buffer is the application's again, which uses it at once. */
static void op_end(struct op *op, bool good)
{
	struct app *a = op->app;

	sure(op->state <= POSTED);
	op->state = good ? GOOD : BAD;
	trace(number(op), 0xc0000000u + good);
	SAY("%u of %u ends %s\n", number(op), a->index, good ? "well" : "badly");
	sim.failed += !good;
	if (op->kind == RECV) {
		a->rooms[a->free_rooms++] = op->buf;
		a->any[op->tagged] -= op->any_tag && !op->peer;
	} else if (op->len > SMALL) {
		a->large = op->buf;
	} else {
		memset(op->buf, 0xdd, op->len);
		a->small[a->smalls++] = op->buf;
	}
	if (op->kind > RECV)
		pair_of(a, op->peer)->busy = false;
}

static ssize_t call(struct op *op)
{
	struct app *a = op->app, *b = op->peer;
	const fi_addr_t to = pair_of(a, b)->addr;
	const uint64_t there = (uintptr_t)b->window + (sim.hub ? 0 : a->index * WINDOW), id = number(op), flags = FI_COMPLETION | op->level;
	struct iovec iov = {op->buf, op->len};
	struct fi_msg_tagged t = {&iov, NULL, 1, to, op->tag, 0, op, id};
	struct fi_msg m = {&iov, NULL, 1, to, op, id};
	const uint64_t key = b->key;
	static uint64_t one = 1;

	switch (op->kind) {
	case SEND:
		if (op->level)
			return op->tagged ? fi_tsendmsg(a->ep, &t, flags | (op->data ? FI_REMOTE_CQ_DATA : 0)) :
					    fi_sendmsg(a->ep, &m, flags | (op->data ? FI_REMOTE_CQ_DATA : 0));
		if (op->inject && op->data)
			return op->tagged ? fi_tinjectdata(a->ep, op->buf, op->len, id, to, op->tag) :
					    fi_injectdata(a->ep, op->buf, op->len, id, to);
		if (op->inject)
			return op->tagged ? fi_tinject(a->ep, op->buf, op->len, to, op->tag) : fi_inject(a->ep, op->buf, op->len, to);
		if (op->data)
			return op->tagged ? fi_tsenddata(a->ep, op->buf, op->len, NULL, id, to, op->tag, op) :
					    fi_senddata(a->ep, op->buf, op->len, NULL, id, to, op);
		return op->tagged ? fi_tsend(a->ep, op->buf, op->len, NULL, to, op->tag, op) :
				    fi_send(a->ep, op->buf, op->len, NULL, to, op);
	case WRITE:
		return op->data ? fi_writedata(a->ep, op->buf, op->len, NULL, a->index, to, there, key, op) :
				  fi_write(a->ep, op->buf, op->len, NULL, to, there, key, op);
	case READ:
		return fi_read(a->ep, op->buf, op->len, NULL, to, there, key, op);
	case FETCH:
		return fi_fetch_atomic(a->ep, &one, 1, NULL, &op->result, NULL, to, there + 32, key, FI_UINT64, FI_SUM, op);
	default:
		return fi_fetch_atomic(a->ep, &one, 1, NULL, &op->result, NULL, to, there + 40, key, FI_UINT16, FI_SUM, op);
	}
}

/* Tries to post one that is wanted. Whether that is over. */
static bool post(struct op *op)
{
	struct app *a = op->app;
	struct tie *p = pair_of(a, op->peer);
	ssize_t r;

	if (p->addr == FI_ADDR_NOTAVAIL)
		learn(a, op->peer);
	op->posted = nic.steps;
	r = BY(a, call(op));
	if (r == -FI_EAGAIN)
		return false;
	trace(number(op), 0xc1000000u + (uint64_t)r);
	SAY("%u of %u to %u, kind %u, %u bytes: %zd\n", number(op), a->index, op->peer->index, op->kind, op->len, r);
	if (r) {
		sure(op->inject && excused(op, op->peer));
		p->stale = true;
		op_end(op, false);
		return true;
	}
	if (op->kind == SEND) {
		*(p->last ? &p->last->next : &p->first) = op;
		p->last = op;
	}
	if (op->state == WANTED)
		op->state = POSTED;
	if (op->inject)
		op_end(op, true);
	return true;
}

static bool wants(struct app *a)
{
	const uint32_t i = a->want_cnt ? rnd_below(a->want_cnt) : 0;

	if (!a->want_cnt || !post(a->wants[i]))
		return false;
	a->wants[i] = a->wants[--a->want_cnt];
	return true;
}

/* A message to another, of this length */
static struct op *message(struct app *a, struct app *b, uint32_t len)
{
	struct op *op;

	if (len > SMALL ? !a->large : !a->smalls)
		return NULL;
	op = op_new(a, b, SEND);
	op->len = len;
	op->tag = rnd_below(TAGS);
	op->tagged = chance(850);
	op->buf = len > SMALL ? a->large : a->small[--a->smalls];
	if (len > SMALL)
		a->large = NULL;
	put(op->buf, len, number(op));
	op->data = len > LONG || len < 4 || chance(500);
	a->wants[a->want_cnt++] = op;
	return op;
}

/* Of a message to this one, on every side of the protocols' limits */
static uint32_t length(const struct app *to)
{
	return to == sim.target ? 192 + rnd_below(600) : chance(50) ? LONG + 1 + rnd_below(1900) :
	       chance(100) ? rnd_below(SMALL) : chance(300) ? 192 + rnd_below(400) :
	       chance(300) ? rnd_below(180) : rnd_below(24);
}

static bool begin(struct app *a, struct app *b)
{
	const uint32_t kind = rnd_below(16);
	struct tie *p = pair_of(a, b);
	struct op *op;

	if (kind < 12) {
		op = message(a, b, length(b));
		if (!op)
			return false;
		op->level = chance(100) ? FI_DELIVERY_COMPLETE : chance(b == sim.target ? 500 : 300) ? FI_MATCH_COMPLETE : 0;
		op->data |= op->level != 0;
		op->inject = !op->level && op->len <= LONG && chance(300);
		return true;
	}
	if (p->busy || !a->smalls)
		return false;
	p->busy = true;
	op = op_new(a, b, kind == 12 ? WRITE : kind == 13 ? READ : kind == 14 ? FETCH : FETCH_16);
	op->buf = a->small[--a->smalls];
	op->len = 32;
	op->data = chance(300);
	if (op->kind == WRITE)
		put(op->buf, op->len, number(op));
	a->wants[a->want_cnt++] = op;
	return true;
}

static bool receive(struct app *a, struct app *from, bool tagged, bool any)
{
	const fi_addr_t addr = from ? pair_of(a, from)->addr : FI_ADDR_UNSPEC;
	struct op *op;
	ssize_t r;

	if (!a->free_rooms)
		return false;
	op = op_new(a, from, RECV);
	op->tagged = tagged;
	op->any_tag = any;
	op->tag = rnd_below(TAGS);
	op->len = LARGE;
	op->buf = a->rooms[--a->free_rooms];
	op->order = ++sim.orders;
	op->state = POSTED;
	op->posted = nic.steps;
	r = BY(a, tagged ? fi_trecv(a->ep, op->buf, op->len, NULL, addr, op->tag, any ? 3 : 0, op) :
			   fi_recv(a->ep, op->buf, op->len, NULL, addr, op));
	if (r) {
		sure(r == -FI_EAGAIN);
		a->rooms[a->free_rooms++] = op->buf;
		sim.op_cnt--;
		return false;
	}
	a->any[tagged] += any && !from;
	SAY("receive %u of %u from %d, %s %u %u\n", number(op), a->index, from ? (int)from->index : -1,
	    tagged ? "tag" : "untagged", op->tag, any);
	return true;
}

/* ---- Completions ---- */

static bool takes(const struct op *r, const struct op *s)
{
	return r->tagged == s->tagged && (!r->peer || r->peer == s->app) && (!r->tagged || r->any_tag || r->tag == s->tag);
}

/* A receive has taken a message: was it that one's turn? */
static void took(struct op *r, struct op *s)
{
	bool before = true;

	sure(s->kind == SEND && s->peer == r->app && takes(r, s) && !s->met && s->state != WANTED);
	s->met = r;
	for (struct op *o = pair_of(s->app, s->peer)->first; o; o = o->next) {
		if (o == s)
			before = false;
		else if (o->met)
			sure(before ? o->met->order < r->order || !takes(r, o) : r->order < o->met->order || !takes(o->met, s));
	}
	sure(!before);
}

static void received(struct app *a, struct op *r, const struct fi_cq_tagged_entry *e, fi_addr_t source)
{
	uint32_t id = (uint32_t)e->data, i;
	struct op *s;

	if (!(e->flags & FI_REMOTE_CQ_DATA))
		id = r->buf[0] | r->buf[1] << 8 | r->buf[2] << 16 | (uint32_t)r->buf[3] << 24;
	sure(id < sim.op_cnt);
	s = &sim.ops[id];
	SAY("%u of %u takes %u of %u\n", number(r), a->index, id, s->app->index);
	sure(e->len == s->len && e->buf == r->buf && s->data == ((e->flags & FI_REMOTE_CQ_DATA) != 0));
	sure(!r->tagged || e->tag == s->tag);
	sure(is(r->buf, s->len, id));
	for (i = s->len; i < s->len + 64; i++)
		sure(r->buf[i] == POISON);
	sure(source == FI_ADDR_NOTAVAIL || a->who[source] == s->app->index);
	took(r, s);
	memset(r->buf, POISON, s->len);
	sim.received++;
	op_end(r, true);
}

/* An operation on another's window */
static void window_done(struct op *op, bool good)
{
	struct tie *p = pair_of(op->app, op->peer);

	if (op->kind == WRITE) {
		p->known = good;
		p->written = number(op) + 1;
		p->told += op->data;
	} else if (op->kind == READ && good && p->known) {
		sure(p->written ? is(op->buf, 32, p->written - 1) : all_bytes(op->buf, 32, 0));
	} else if (op->kind == FETCH) {
		sure(!good || !p->counts || op->result == p->sum);
		p->sum = op->result + 1;
		p->counts = good;
	} else if (op->kind == FETCH_16) {
		sure(!good || !p->counts_16 || (uint16_t)op->result == p->sum_16);
		p->sum_16 = (uint16_t)(op->result + 1);
		p->counts_16 = good;
	}
}

static void completed(struct app *a, const struct fi_cq_tagged_entry *e, fi_addr_t source)
{
	struct op *op = (struct op *)e->op_context;

	if (!op) {
		sure(e->flags & FI_REMOTE_WRITE && e->data < sim.app_cnt && e->len == 32);
		pair_of(sim.apps[e->data], a)->came++;
		return;
	}
	sure(op >= sim.ops && op < sim.ops + sim.op_cnt && op->app == a && op->state == POSTED);
	if (op->kind == RECV) {
		received(a, op, e, source);
		return;
	}
	if (op->kind > RECV)
		window_done(op, true);
	op_end(op, true);
}

static void failed(struct app *a, const struct fi_cq_err_entry *e)
{
	struct op *op = (struct op *)e->op_context, *s;

	trace(0xee, (uint64_t)e->err);
	if (!op)
		return; /* of an inject */
	SAY("%u of %u fails: %s, %u\n", number(op), a->index, fi_strerror(e->err), (unsigned)e->prov_errno);
	sure(op >= sim.ops && op < sim.ops + sim.op_cnt && op->app == a && op->state == POSTED);
	if (op->kind == RECV) {
		memset(op->buf, POISON, ROOM);
		if (op->cancelled && e->err == FI_ECANCELED) {
			op_end(op, false);
			return;
		}
		if (e->flags & FI_REMOTE_CQ_DATA) { /* a message that came, and could not be read */
			sure(e->data < sim.op_cnt);
			s = &sim.ops[e->data];
			sure(s->state != GOOD && excused(s, a));
			took(op, s);
		} else {
			sure(op->peer && excused(op, op->peer));
		}
		op_end(op, false);
		return;
	}
	sure(excused(op, op->peer));
	/* A peer that has come back says that its last life is over. */
	sure(e->err != FI_ETIMEDOUT || !sim.at[op->peer->node] || nic.now < sim.back[op->peer->node] + 15000000000u);
	if (op->kind > RECV)
		window_done(op, false);
	pair_of(a, op->peer)->stale |= sim.ending || chance(500);
	op_end(op, false);
}

/* Whether there were some */
static bool poll_cq(struct app *a)
{
	static const uint32_t counts[] = {1, 2, 8, 200};
	struct fi_cq_tagged_entry e[200];
	struct fi_cq_err_entry bad;
	const uint32_t count = counts[rnd_below(4)];
	fi_addr_t from[200];
	ssize_t n, i;

	memset(from, 0xff, sizeof(from));
	n = chance(500) ? BY(a, fi_cq_read(a->cq, e, count)) : BY(a, fi_cq_readfrom(a->cq, e, count, from));
	if (n == -FI_EAGAIN)
		return false;
	if (n == -FI_EAVAIL) {
		memset(&bad, 0, sizeof(bad));
		assert_int_equal(fi_cq_readerr(a->cq, &bad, 0), 1);
		failed(a, &bad);
		return true;
	}
	sure(n > 0 && n <= (ssize_t)count);
	for (i = 0; i < n; i++)
		completed(a, &e[i], from[i]);
	return true;
}

/* ---- One thing happens ---- */

static struct app *anyone(void)
{
	return sim.apps[sim.hub && !rnd_below(4) ? 0 : sim.first + rnd_below(sim.app_cnt - sim.first)];
}

/* Another that it can send to; NULL: none was found */
static struct app *known(struct app *a)
{
	struct app *b;

	for (int i = 0; i < 8; i++) {
		b = sim.hub && a->index ? sim.apps[0] : sim.target && chance(700) ? sim.target : anyone();
		if (pair_of(a, b)->addr != FI_ADDR_NOTAVAIL)
			return b;
	}
	return NULL;
}

/* One whose address is to be inserted again, or NULL */
static struct app *stale(struct app *a)
{
	const uint32_t n = sim.hub ? 1 : sim.app_cnt, from = rnd_below(n);
	struct app *b;

	for (uint32_t i = 0; i < n; i++) {
		b = sim.apps[(from + i) % n];
		if (pair_of(a, b)->stale && b->alive && pair_of(a, b)->addr != FI_ADDR_NOTAVAIL)
			return b;
	}
	return NULL;
}

static bool app_step(struct app *a)
{
	struct app *b;
	uint32_t n;

	switch (rnd_below(16)) {
	case 0 ... 1: return wants(a);
	case 2 ... 3:
		if (!a->budget || a->want_cnt == WANTS || !(b = known(a)) || !begin(a, b))
			return false;
		a->budget--;
		return true;
	case 4 ... 5:
		if (sim.ending)
			return (!a->any[1] && receive(a, NULL, true, true)) || (!a->any[0] && receive(a, NULL, false, true));
		if (a->free_rooms <= SPARE || (a->lazy && chance(950)) || a == sim.target)
			return false;
		b = sim.directed && chance(300) ? known(a) : NULL;
		return receive(a, b, chance(850), chance(400));
	case 6:
		b = stale(a);
		if (b) {
			forget(a, b);
			learn(a, b);
		}
		return b != NULL;
	case 7:
		if (sim.ending || sim.hub || !chance(50))
			return false;
		b = anyone();
		if (b->alive)
			learn(a, b);
		return false;
	default: /* it reads often for each time that it does something else */
		for (n = rnd_below(64); n && !poll_cq(a); n--)
			;
		return n != 0;
	}
}

static uint32_t idle;

static void turn(void)
{
	struct app *a;
	bool did;

	nic.steps++;
	if (rnd_below(16) < 9) {
		did = nic_step();
	} else {
		a = anyone();
		did = a->alive && !a->life->frozen && app_step(a);
	}
	idle = did ? 0 : idle + 1;
	nic.now += rnd_below(2000);
	if (idle > 4 * (sim.app_cnt - sim.first) + 32) {
		nic.now += 1000000 + rnd_below(sim.ending ? 50000000 : 15000000);
		idle /= 2;
	}
}

/* ---- Faults ---- */

/* A port is down for some time, also for connections that are being made. */
static void unplug(void)
{
	struct app *a = anyone();
	struct life *l = chance(500) ? a->life : a->life->second;

	if (!a->alive)
		return;
	SAY("port %u of %u goes down\n", l->rail, a->index);
	l->down = sim.back[a->node] = nic.now + rnd_below(100000000);
	for (uint32_t i = 0; i < sim.app_cnt; i++)
		parted(a, sim.apps[i], false);
}

/* A connection over this device breaks. Whether there was one */
static bool cut_one(struct life *l, struct app *b)
{
	static const uint8_t why[] = {[2] = MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, MLX5_CQE_SYNDROME_REMOTE_OP_ERR};
	struct qp *q, *to;
	uint32_t i, n;

	for (i = 2; i < l->top; i++) {
		q = l->qps[i];
		to = q ? responder(q) : NULL;
		if (!to || to->life->app != b)
			continue;
		SAY("cut between %u and %u, %u\n", l->app->index, b->index, l->rail);
		sim.cuts++;
		n = rnd_below(4);
		q->cut = n & 1;
		to->cut = n != 2;
		q->breaks = to->breaks = why[n];
		parted(l->app, b, n == 3); /* which is not for want of an answer, and so ends both */
		return true;
	}
	return false;
}

/* A connection breaks. Best is one whose message waits there for its receive. */
static void cut(void)
{
	struct op *op = NULL;
	struct life *l;
	struct app *a, *b;
	uint32_t n, rails = sim.rails > 1 ? 1 + rnd_below(3) : 1;
	bool did = false;

	if (!sim.op_cnt)
		return;
	for (n = 0; n < 200; n++) {
		op = &sim.ops[rnd_below(sim.op_cnt)];
		if (op->kind == SEND && op->state == POSTED && op->level == FI_MATCH_COMPLETE && !op->met && op->app->alive && op->peer->alive &&
		    (!sim.target || op->peer == sim.target || n > 150))
			break;
	}
	if (n == 200 && chance(500))
		return;
	a = n < 200 ? op->app : anyone();
	b = n < 200 ? op->peer : anyone();
	if (!a->alive || !b->alive)
		return;
	for (l = a->life; l; l = l->second)
		if (l->rail & rails)
			did |= cut_one(l, b);
	if (!did)
		return;
	if (pair_of(a, b)->broken) {
		pair_of(a, b)->stale = sim.target || chance(700);
		pair_of(b, a)->stale = sim.target || chance(700);
	}
	op = a->want_cnt < WANTS ? message(a, b, rnd_below(600)) : NULL;
	if (op && chance(700))
		op->level = FI_MATCH_COMPLETE;
	if (op)
		op->data = true;
}

/* There is no memory for what comes, much of it to one that receives nothing; then there is. */
static void starve(void)
{
	sim.target = sim.target ? NULL : anyone();
	nic.starving = sim.target ? sim.target->life : NULL;
	if (!nic.starving)
		return;
	sim.starved = sim.target->lazy = true;
	for (uint32_t i = 0; i < sim.app_cnt; i++)
		sim.apps[i]->budget += 3;
}

static void die(void)
{
	struct app *a = anyone();

	if (!a->alive || sim.app_cnt == sim.lives)
		return;
	sim.deaths++;
	if (a == sim.target)
		starve();
	app_close(a, chance(700));
	sim.back[a->node] = nic.now + rnd_below(300000000);
}

static void come_back(uint32_t node)
{
	struct app *a = app_open(node);

	sim.returns++;
	sim.back[node] = nic.now;
	a->budget = 12;
	for (uint32_t i = 0; i < sim.app_cnt; i++)
		if (sim.apps[i]->alive && chance(700))
			learn(a, sim.apps[i]);
	for (uint32_t i = 0; i < sim.app_cnt; i++) /* some hear of it later, if at all */
		if (sim.apps[i]->alive && chance(300))
			learn(sim.apps[i], a);
}

static void faults(void)
{
	switch (rnd_below(9 + sim.rails)) {
	case 0 ... 3: cut(); break;
	case 4: die(); break;
	case 5: nic.loss = rnd_below(500); break;
	case 6: nic.later = rnd_below(300); break;
	case 7: starve(); break;
	case 10: unplug(); break;
	default:
		for (uint32_t i = 0; i < sim.nodes; i++)
			if (!sim.at[i] && nic.now >= sim.back[i] && sim.app_cnt < sim.lives)
				come_back(i);
	}
}

/* ---- Ends ---- */

/*
 * Whether an operation has come to its end, and its message to its receive. One that came when there was no memory is
 * dropped if its connection breaks.
 */
static bool over(const struct op *op)
{
	const bool must_come = op->kind == SEND && op->state == GOOD && !op->met && op->peer->alive &&
			       !((op->inject || sim.starved) && excused(op, op->peer));

	return !must_come && (op->kind == RECV || op->state > POSTED || !op->app->alive);
}

static void drain(void)
{
	uint64_t end = nic.steps + (uint64_t)STEPS_TO_END * sim.nodes;
	struct op *op;

	while (sim.settled < sim.op_cnt) {
		op = &sim.ops[sim.settled];
		if (over(op)) {
			sim.settled++;
			continue;
		}
		turn();
		if (nic.steps > end) {
			print_error("operation %u of %u with %u, kind %u, state %u, met %d, does not end\n", number(op), op->app->index,
				    op->peer->index, op->kind, op->state, op->met != NULL);
			sure(!"everything ends");
		}
	}
}

/* Every pair works: those whose connection was broken, again. */
static void heal(bool all)
{
	struct app *a, *b;
	uint32_t i, j, round, left, first;

	for (round = 0, left = 1; left; round++) {
		sure(round < 30);
		first = sim.op_cnt;
		for (i = 0; i < 2 * sim.app_cnt; i++) /* first all learn, since few strangers may come */
			for (j = 0; j < sim.app_cnt; j++) {
				a = sim.apps[i % sim.app_cnt];
				b = sim.apps[j];
				if (!a->alive || !b->alive || (!all && !pair_of(a, b)->broken))
					continue;
				if (pair_of(a, b)->stale)
					forget(a, b);
				learn(a, b);
				while (i >= sim.app_cnt && (a->want_cnt == WANTS || !message(a, b, 8)))
					turn();
			}
		drain();
		for (left = 0; first < sim.op_cnt; first++)
			left += sim.ops[first].kind == SEND && sim.ops[first].state == BAD;
	}
	for (i = 0; i < sim.app_cnt; i++)
		for (j = 0; j < sim.app_cnt; j++)
			pair_of(sim.apps[i], sim.apps[j])->broken &= sim.rails > 1; /* what is over may show later */
}

/* Each write that was to tell of itself has done so once, unless its connection broke. */
static void tellings(void)
{
	const struct tie *t;

	for (uint32_t i = 0; i < sim.app_cnt; i++)
		for (uint32_t j = 0; j < sim.app_cnt; j++) {
			t = pair_of(sim.apps[i], sim.apps[j]);
			if (sim.apps[i]->alive && sim.apps[j]->alive)
				sure(t->mended ? t->came <= t->told : t->came == t->told);
		}
}

/* Receives that no message came for end once. */
static void cancel(void)
{
	uint32_t i, left = 1, rounds;
	struct op *op;
	int r;

	for (i = 0; i < sim.op_cnt; i++) {
		op = &sim.ops[i];
		if (op->kind != RECV || op->state != POSTED || !op->app->alive)
			continue;
		r = BY(op->app, fi_cancel(&op->app->ep->fid, op));
		sure(!r || r == -FI_ENOENT); /* its completion has not been read yet */
		op->cancelled = !r;
	}
	for (rounds = 0; left; rounds++) {
		sure(rounds < 100000);
		nic.now += (sim.rails - 1) * 1000000; /* a sender may have died half connected */
		nic_step();
		for (i = left = 0; i < sim.app_cnt; i++)
			left += sim.apps[i]->alive && poll_cq(sim.apps[i]);
		for (i = 0; i < sim.op_cnt; i++)
			left += sim.ops[i].kind == RECV && sim.ops[i].state == POSTED && sim.ops[i].app->alive;
	}
}

/* ---- A seed ---- */

static void begin_seed(uint64_t seed, uint32_t nodes, uint32_t lives, bool hub)
{
	memset(&sim, 0, offsetof(struct sim, rails));
	memset(&nic, 0, offsetof(struct nic, loud));
	rnd_state = seed * 0x9e3779b97f4a7c15 + nodes;
	sim.seed = seed;
	sim.nodes = nodes;
	sim.lives = lives;
	sim.hub = hub;
	sim.directed = chance(500);
	sim.pairs = (struct tie *)malloc(sizeof(*sim.pairs) * lives * (hub ? 2 : lives));
	nic.few = nodes > 16 ? MANY_QPS : FEW_QPS;
	nic.loss = rnd_below(300);
	nic.later = rnd_below(100);
	idle = 0;
}

static void end_seed(void)
{
	for (uint32_t i = 0; i < sim.app_cnt; i++)
		if (sim.apps[i]->alive)
			app_close(sim.apps[i], i % 4 != 0);
	sure(!nic.active_cnt);
	for (uint32_t i = 0; i < sim.app_cnt; i++)
		app_free(sim.apps[i]);
	free(sim.pairs);
}

static void no_more_faults(void)
{
	sim.ending = true;
	nic.loss = nic.later = 0;
	nic.starving = NULL;
	sim.target = NULL;
}

static uint64_t run(uint64_t seed, uint32_t nodes)
{
	const uint32_t extra = nodes > 16 ? 8 : 16;
	uint32_t i, j, end;

	begin_seed(seed, nodes, nodes + extra, false);
	for (i = 0; i < nodes; i++)
		app_open(i)->budget = nodes > 16 ? 3 * nodes : 30;
	for (i = 0; i < nodes; i++)
		for (j = 0; j < nodes; j++)
			if (nodes > 16 || chance(700))
				learn(sim.apps[i], sim.apps[j]);
	if (chance(300))
		starve();
	end = nodes * (1000 + rnd_below(4000));
	while (nic.steps < end) {
		turn();
		if (!rnd_below(400))
			faults();
	}
	no_more_faults();
	drain();
	heal(false);
	heal(true);
	tellings();
	cancel();
	end_seed();
	SAY("seed %lu, %u peers: hash %016lx\n", (unsigned long)seed, nodes, (unsigned long)nic.trace);
	return nic.trace;
}

static uint32_t setting(const char *name, uint32_t normal)
{
	const char *env = getenv(name);

	return env && *env ? (uint32_t)strtoul(env, NULL, 0) : normal;
}

/* much: all kinds of things must have happened */
static void report(const char *what, uint64_t hash, bool much)
{
	print_message("# %s: %lu messages received, %lu operations failed, %lu cuts, %lu deaths, %lu returns, %lu hellos, %lu reads; "
		      "hash %016lx\n", what, (unsigned long)sim.received, (unsigned long)sim.failed, (unsigned long)sim.cuts,
		      (unsigned long)sim.deaths, (unsigned long)sim.returns, (unsigned long)nic.hellos, (unsigned long)nic.reads,
		      (unsigned long)hash);
	assert_true(!much || (sim.received > 1000 && sim.failed > 1000 && sim.cuts > 100 && sim.deaths && sim.returns &&
			      nic.hellos > 1000 && nic.reads > 100));
	sim.received = sim.failed = sim.cuts = sim.deaths = sim.returns = nic.hellos = nic.reads = 0;
}

static void seeds(uint32_t n, uint32_t nodes, const char *what)
{
	const uint32_t first = setting("SIM_SEED", 1);
	uint64_t hash = 0, h;

	for (uint32_t i = 0; i < n; i++) {
		h = run(first + i, nodes);
		if (i < 2 && nodes < 16)
			sure(run(first + i, nodes) == h);
		hash = hash * 31 + h;
	}
	report(what, hash, n * nodes * nodes >= 50 * 8 * 8);
}

TEST(test_few)
{
	seeds(setting("SIM_SEEDS", 200), 8, "8 peers");
}

TEST(test_many)
{
	seeds(setting("SIM_MANY", 1), 64, "64 peers");
}

/* Bytes of the heap that the simulation takes for one that is frozen */
static size_t own_bytes(const struct app *a)
{
	return malloc_usable_size((void *)(uintptr_t)a) + malloc_usable_size(a->life) + 3 * sizeof(struct qp);
}

static uint32_t connections(const struct life *l)
{
	uint32_t k, n = 0;

	for (k = 2; k < l->top; k++)
		n += l->qps[k] && l->qps[k]->qp.state == IBV_QPS_RTS;
	return n;
}

static void send_one(struct app *a, struct app *b)
{
	while (a->want_cnt == WANTS || !message(a, b, 4 + rnd_below(600)))
		turn();
}

/* The hub alone, for some time or until it has so many connections */
static void hub_lives(struct app *hub, uint64_t ns, uint32_t until)
{
	const uint64_t end = nic.now + ns;

	while (nic.now < end && (!until || connections(hub->life) != until)) {
		for (uint32_t i = 0; i < 2048; i++) {
			poll_cq(hub);
			nic_step();
		}
		nic.now += 1000000;
	}
}

/*
 * One endpoint with thousands of peers, which come in groups, talk to it both ways, and then only stay connected. It keeps
 * all connections, with little memory for each; then every other peer dies, and it notices.
 */
TEST(test_hub)
{
	const uint32_t peers = setting("SIM_PEERS", 200), group = 64;
	size_t before = 0, own = 0;
	struct app *hub, *a;
	uint32_t i, n, counted = 0;
	struct qp *q;

	assert_in_range(peers, 3 * group, LIVES - 2);
	while ((q = nic.free)) { /* all are new, and count */
		nic.free = q->free;
		free(q);
	}
	begin_seed(setting("SIM_SEED", 1), peers + 1, peers + 1, true);
	hub = app_open(0);
	sim.ending = true;
	for (n = 0; n < peers; n += i) {
		sim.first = sim.app_cnt;
		for (i = 0; i < group && n + i < peers; i++) {
			a = app_open(1 + n + i);
			learn(a, hub);
			learn(hub, a);
		}
		for (i = 0; i < group && n + i < peers; i++) {
			send_one(sim.apps[1 + n + i], hub);
			send_one(hub, sim.apps[1 + n + i]);
			send_one(sim.apps[1 + n + i], hub);
		}
		drain();
		for (i = 0; i < group && n + i < peers; i++) {
			a = sim.apps[1 + n + i];
			a->life->frozen = true;
			app_close(a, true);
			own += n ? own_bytes(a) : 0;
			counted += n != 0;
		}
		if (!n)
			before = mallinfo2().uordblks;
	}
	if (before) { /* else a sanitizer has the heap */
		before = (mallinfo2().uordblks - before - own) / counted;
		print_message("# %u peers: %zu bytes for each that is idle\n", peers, before);
		sure(before < 4096);
	}
	hub_lives(hub, 10000000000u, 0);
	assert_int_equal(connections(hub->life), peers);
	for (i = 1; i <= peers; i += 2)
		sim.apps[i]->life->dead = true;
	hub_lives(hub, 100000000000u, peers / 2);
	assert_int_equal(connections(hub->life), peers / 2);
	cancel();
	for (i = 0; i < QPNS; i++)
		if (nic.qps[i] && nic.qps[i]->life->frozen) {
			deactivate(nic.qps[i]);
			nic.qps[i]->free = nic.free;
			nic.free = nic.qps[i];
			nic.qps[i] = NULL;
		}
	end_seed();
	report("hub", nic.trace, false);
}

/* The provider reads its settings again. */
TEST(test_rails)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/libinlay-fi.so", getenv("FI_PROVIDER_PATH"));
	setenv("FI_INLAY_RAILS", "2", 1);
	setenv("FI_INLAY_PIECE", "4096", 1);
	((void (*)(void))dlsym(dlopen(path, RTLD_NOW), "fi_prov_ini"))();
	sim.rails = 2;
	seeds(setting("SIM_RAILS", 100), 8, "8 peers with two devices");
}

static int up(UNUSED void **state)
{
	mallopt(M_MMAP_THRESHOLD, 32 << 20);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	simulates = true;
	sim.rails = 1;
	nic.loud = getenv("SIM_TRACE") != NULL;
	for (int i = 0; i < 2; i++)
		sim.infos[i] = info_for(hints_for(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SOURCE | (i ? FI_DIRECTED_RECV : 0)));
	must(fi_fabric(sim.infos[0]->fabric_attr, &sim.fabric, NULL));
	return 0;
}

int main(void)
{
	char eager[16];

	snprintf(eager, sizeof(eager), "%u", LONG);
	use_provider();
	setenv("FI_INLAY_EAGER", eager, 1);
	setenv("FI_INLAY_RECEIVES", "16", 1);
	setenv("FI_INLAY_PEERS", "16", 1);
	setenv("FI_INLAY_CACHE_REGIONS", "8", 1);
	setenv("FI_INLAY_CONNECT_MS", "20000", 1);
	setenv("FI_INLAY_KEEPALIVE_MS", "2000", 1);
	return run_all(up, NULL);
}
