/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim.h: the device of the simulation: the calls of verbs and mlx5dv that the provider makes, in place of the
 * libraries', and queues in plain memory, in mlx5's formats. It does one thing at a time, when it is told to: executes a
 * work request, acknowledges one, flushes one, delivers a datagram. Random numbers say which, and what becomes of it.
 * Time, random bytes and the memory for buffers are the simulation's too.
 *
 * A life is what one process has of the device: a context with its queues. Of all that can go wrong in the
 * provider's use of the device, nothing is forgiven: a key that is none, an entry beyond the queue, a lost object.
 */
#ifndef TESTS_FABRIC_SIM_H
#define TESTS_FABRIC_SIM_H

#include "rig.h"
#include "next.h"
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>

#define RING 128u           /* WQEBBs of the largest ring */
#define QPNS (1u << 21)
#define KEYS (1u << 17)
#define FLIGHT 8192u        /* datagrams under way */
#define DATAGRAM 168u
#define GRH 40u
#define CHUNK (1u << 20)    /* bytes of the provider's pools of buffers */
#define RETRY 30000000u     /* nanoseconds without an answer until a connection fails */
#define HUB_QPS 8192u       /* of the first node, */
#define MANY_QPS 128u       /* and of others, in larger runs */
#define FEW_QPS 24u         /* or in small ones, where their numbers are used again */
#define REAL 1000000000000000000ull /* when time began */

struct qp {
	struct ibv_qp qp;
	struct life *life;
	struct qp *free;
	uint32_t k;             /* its number, of the life's */
	struct ibv_qp_cap cap;
	uint32_t wqebbs;
	uint32_t *record;
	uint16_t posted, sent, acked; /* WQEBBs that were shown, executed, told of */
	uint32_t active;        /* its place in nic.active + 1, or 0 */
	uint32_t dest, sq_psn, rq_psn;
	uint32_t held;          /* an entry of the SRQ + 1, for a message that has come in part */
	uint64_t give_up;       /* when it stops trying again; 0: it has not begun to */
	uint8_t syndrome;       /* of its next error, */
	uint8_t breaks;         /* and of one to come */
	bool cut;               /* what it sends is lost */
	uint32_t greeted;       /* the CQE of a hello that says that its other side is ready; 0: none */
	bool last;              /* it is in ERR, and has not said that it takes no more receives */
	uint8_t ring[RING * 64] __attribute__((aligned(64)));
};

struct key {
	struct ibv_mr mr;       /* lkey 0: none */
	struct life *life;
	unsigned access;
	uint32_t next;          /* free */
};

struct datagram {
	uint64_t at;            /* not before */
	uint32_t from, to;
	uint8_t data[DATAGRAM];
};

struct life {
	struct verbs_context context;
	uint64_t page[512] __attribute__((aligned(4096))); /* doorbells */
	uint32_t (*records)[2]; /* of its queue pairs, by k */
	uint16_t *seen;         /* what they said when they were last looked at */
	struct qp **qps;
	uint32_t top;           /* above all k */
	uint32_t objects;       /* to be freed */
	struct ibv_pd pd, rings; /* rings: with the register */
	struct ibv_td td;
	struct cq {
		struct ibv_cq_ex cq;
		struct mlx5_cqe64 *cqes;
		uint32_t count, produced, record[2];
	} cq;
	struct srq *srq;
	struct qp *events[64];  /* that take no more receives */
	uint32_t event_cnt;
	uint32_t node;
	uint32_t rail;          /* 1, or 2 of the second device */
	struct life *second;    /* its process has of another device; or NULL */
	uint64_t down;          /* its port is, until then */
	bool dead;              /* nothing of it works any more */
	bool frozen;            /* its process stands still, and its queue pairs work */
	bool closing;
	uint64_t ahead;         /* its time, when it is closing and waits */
	struct app *app;
};

static struct ibv_device the_device;
static const bool infiniband;

static struct nic {
	uint64_t now;           /* nanoseconds */
	uint64_t steps;
	uint64_t trace;         /* hash of all that has happened */
	uint32_t few;           /* queue pairs of a node but the first */
	uint32_t next_k[8192];  /* by node */
	uint32_t key_cnt, free_key; /* free_key: + 1 */
	uint32_t flying;
	uint32_t loss, later;   /* in 1000: datagrams that are lost; that come much later, too */
	struct life *starving;  /* has no memory for more buffers; or NULL */
	bool loud;              /* What follows is not of one seed */
	struct life *opening;   /* whose context is opened next; NULL: nobody's */
	struct life probe;      /* nobody */
	struct qp *qps[QPNS], *free, *active[QPNS];
	uint32_t active_cnt;
	struct key keys[KEYS];
	struct datagram flight[FLIGHT];
	uint64_t reads, hellos; /* in one test */
} nic;

static struct { void *at[512]; uint32_t n; } chunks;

static void joined(struct app *a, struct app *b, uint32_t rail); /* a new connection between them can be used */
static void __attribute__((noreturn)) wrong(const char *file, int line, const char *what);

/* Also below the provider's calls */
#define sure(what) do { if (!(what)) wrong(__FILE__, __LINE__, #what); } while (0)

#define SAY(...)                                                                              \
	do {                                                                                  \
		if (nic.loud)                                                                 \
			fprintf(stderr, "%lu: ", (unsigned long)nic.steps), fprintf(stderr, __VA_ARGS__); \
	} while (0)

static void trace(uint64_t a, uint64_t b)
{
	nic.trace = (nic.trace ^ a ^ b << 32 ^ b >> 32) * 0x9e3779b97f4a7c15;
	nic.trace ^= nic.trace >> 29;
}

static bool chance(uint32_t in_1000)
{
	return rnd_below(1000) < in_1000;
}

static uint32_t get32(const uint8_t *at)
{
	uint32_t be;

	memcpy(&be, at, 4);
	return inlay_from_be32(be);
}

static uint64_t get64(const uint8_t *at)
{
	return (uint64_t)get32(at) << 32 | get32(at + 4);
}

static struct life *life_of(struct ibv_context *context)
{
	return (struct life *)(void *)((uint8_t *)context - offsetof(struct verbs_context, context));
}

static struct qp *qp_of(struct ibv_qp *qp)
{
	return (struct qp *)(void *)qp;
}

static struct cq *cq_of(struct ibv_cq *cq)
{
	return &life_of(cq->context)->cq;
}

static uint64_t *page_of(struct ibv_context *context)
{
	return life_of(context)->page;
}

#include "standins.h"

/* ---- Time, random bytes, memory ---- */

static bool nic_step(void);

/* Libraries may have threads, whose time is the real one. */
static __thread bool simulates;

int clock_gettime(clockid_t clock, struct timespec *t)
{
	struct life *l = nic.opening;
	uint64_t ns = 0;

	if (!simulates)
		return NEXT(clock_gettime)(clock, t);
	if (l && l->closing) { /* others do not live that fast */
		if (l->dead || !nic_step())
			l->ahead += l->dead ? 1000000000 : 1000000;
		nic.now += 5000;
		ns = l->ahead;
	}
	nic.now += 100;
	ns += nic.now + (clock == CLOCK_REALTIME ? REAL : 1000000000);
	t->tv_sec = (time_t)(ns / 1000000000);
	t->tv_nsec = (long)(ns % 1000000000);
	return 0;
}

RETURNS(int, timespec_get, (struct timespec *t, int base), (clock_gettime(CLOCK_REALTIME, t), base))

ssize_t getrandom(void *at, size_t len, unsigned flags)
{
	uint64_t x = simulates ? rnd() : 0;

	if (!simulates)
		return NEXT(getrandom)(at, len, flags);
	memcpy(at, &x, len < 8 ? len : 8);
	return (ssize_t)len;
}

/* Without a monitor, which would have a thread: registrations are not kept. */
long sim_syscall(long number, long a, long b, long c, long d, long e, long f) __asm__("syscall");
long sim_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	errno = number == SYS_userfaultfd ? ENOSYS : errno;
	return number == SYS_userfaultfd ? -1 : NEXT(syscall)(number, a, b, c, d, e, f);
}

/* Chunks of buffers are used again, because fresh pages take longer than all else; and sometimes there is none. */
void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
	if (simulates && len == CHUNK && flags & MAP_ANONYMOUS && nic.opening) {
		if (nic.opening == nic.starving) {
			errno = ENOMEM;
			return MAP_FAILED;
		}
		if (chunks.n) {
			at = chunks.at[--chunks.n];
			memset(at, 0, CHUNK);
			return at;
		}
	}
	return NEXT(mmap)(at, len, prot, flags, fd, offset);
}

int munmap(void *at, size_t len)
{
	if (simulates && len == CHUNK && nic.opening && chunks.n < ARRAY(chunks.at)) {
		chunks.at[chunks.n++] = at;
		return 0;
	}
	return NEXT(munmap)(at, len);
}

/* ---- Verbs: the device ---- */

#define FREES(name, object) RETURNS(int, name, (struct object *o), (life_of(o->context)->objects--, 0))

FREES(dealloc_td, ibv_td)
FREES(ibv_dealloc_pd, ibv_pd)
FREES(ibv_destroy_cq, ibv_cq)
FREES(ibv_destroy_srq, ibv_srq)
RETURNS(void, ibv_free_device_list, (UNUSED struct ibv_device **list), )
RETURNS(const char *, ibv_get_device_name, (UNUSED struct ibv_device *device), "sim")
RETURNS(int, mlx5dv_devx_general_cmd, (UNUSED struct ibv_context *context, UNUSED const void *in, UNUSED size_t inlen,
	UNUSED void *out, UNUSED size_t outlen), EOPNOTSUPP) /* no masked atomics */

/* The life's only object of its kind */
#define MAKES(type, member) \
	(life_of(c)->objects++, life_of(c)->member = (struct type){.context = c}, &life_of(c)->member)

RETURNS(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context *c), MAKES(ibv_pd, pd))
static RETURNS(struct ibv_td *, alloc_td, (struct ibv_context *c, UNUSED struct ibv_td_init_attr *a), MAKES(ibv_td, td))
static RETURNS(struct ibv_pd *, alloc_parent, (struct ibv_context *c, UNUSED struct ibv_parent_domain_init_attr *a),
	MAKES(ibv_pd, rings))

static struct ibv_cq_ex *create_cq(struct ibv_context *context, struct ibv_cq_init_attr_ex *init)
{
	struct life *l = life_of(context);

	sure(!l->cq.cqes);
	l->cq.count = 1u << inlay_log2_ceil(init->cqe + 1);
	l->cq.cqes = (struct mlx5_cqe64 *)aligned_alloc(4096, l->cq.count * sizeof(*l->cq.cqes));
	for (uint32_t i = 0; i < l->cq.count; i++)
		l->cq.cqes[i].op_own = MLX5_CQE_INVALID << 4;
	l->cq.cq.context = context;
	l->objects++;
	return &l->cq.cq;
}

static struct ibv_device *the_list[2] = {&the_device};

RETURNS(struct ibv_device **, ibv_get_device_list, (int *n), (n ? *n = 1 : 0, the_list))

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct life *l = nic.opening ? nic.opening : &nic.probe;

	if (l->objects && l->second)
		l = l->second;
	l->context = (struct verbs_context){
		.context = {.abi_compat = __VERBS_ABI_IS_EXTENDED, .device = device, .async_fd = -1},
		.sz = sizeof(l->context), .alloc_parent_domain = alloc_parent, .alloc_td = alloc_td,
		.dealloc_td = dealloc_td, .query_port = query_port, .create_cq_ex = create_cq,
	};
	l->objects++;
	return &l->context.context;
}

int ibv_close_device(struct ibv_context *context)
{
	struct life *l = life_of(context);

	sure(!--l->objects || l == &nic.probe); /* libfabric's other providers look at the device, too */
	return 0;
}

/* ---- Verbs: memory. A key that was given back is the first to be given out again. ---- */

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t len, int access)
{
	struct life *l = life_of(pd->context);
	uint32_t i = nic.free_key ? nic.free_key - 1 : nic.key_cnt++;
	struct key *k = &nic.keys[i];

	sure(i < KEYS);
	if (nic.free_key)
		nic.free_key = k->next;
	k->life = l;
	k->access = (unsigned)access;
	l->objects++;
	return key_fill(&k->mr, pd, at, len, (i + 1) << 8, (i + 1) << 8);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct key *k = (struct key *)(void *)mr;

	sure(mr->lkey);
	mr->lkey = mr->rkey = 0;
	k->next = nic.free_key;
	nic.free_key = (uint32_t)(k - nic.keys) + 1;
	k->life->objects--;
	return 0;
}

static bool allowed(const struct life *l, uint32_t key, uint64_t at, size_t len, unsigned access)
{
	const struct key *k = &nic.keys[((key >> 8) - 1) % KEYS];

	return key && k->mr.lkey == key && k->life == l && (k->access & access) == access && at >= (uintptr_t)k->mr.addr &&
	       at + len <= (uintptr_t)k->mr.addr + k->mr.length;
}

/* ---- Verbs: queue pairs ---- */

static uint32_t qpn_of(uint32_t node, uint32_t k)
{
	return node ? HUB_QPS + MANY_QPS * node + k : k;
}

static void activate(struct qp *q)
{
	if (q->active)
		return;
	nic.active[nic.active_cnt++] = q;
	q->active = nic.active_cnt;
}

static void deactivate(struct qp *q)
{
	if (!q->active)
		return;
	nic.active[q->active - 1] = nic.active[--nic.active_cnt];
	nic.active[q->active - 1]->active = q->active;
	q->active = 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct life *l = life_of(pd->context);
	const uint32_t room = l->node ? nic.few : HUB_QPS;
	struct qp *q = nic.free;
	uint32_t *k = &nic.next_k[l->node], n;

	if (q)
		nic.free = q->free;
	else
		q = (struct qp *)aligned_alloc(64, sizeof(*q));
	memset(q, 0, offsetof(struct qp, ring));
	q->life = l;
	if (init->qp_type == IBV_QPT_UD) {
		q->k = 1; /* whoever lives there */
	} else {
		for (n = 0; n < room && (!q->k || nic.qps[qpn_of(l->node, q->k)]); n++)
			q->k = 2 + (*k)++ % (room - 2);
	}
	q->record = l->records[q->k];
	qp_fill(q, pd, init, qpn_of(l->node, q->k));
	sure(pd == &l->rings && q->wqebbs <= RING && !nic.qps[q->qp.qp_num]);
	nic.qps[q->qp.qp_num] = q;
	l->qps[q->k] = q;
	l->seen[q->k] = 0;
	l->top = l->top > q->k ? l->top : q->k + 1;
	l->objects++;
	return &q->qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct qp *q = qp_of(qp);
	struct life *l = q->life;
	uint32_t i, n;

	l->objects--;
	if (l->frozen)
		return 0;
	for (i = n = 0; i < l->event_cnt; i++)
		if (l->events[i] != q)
			l->events[n++] = l->events[i];
	l->event_cnt = n;
	deactivate(q);
	nic.qps[qp->qp_num] = NULL;
	l->qps[q->k] = NULL;
	q->free = nic.free;
	nic.free = q;
	return 0;
}

static bool down(const struct qp *q)
{
	return nic.now < q->life->down;
}

/* Where its requests go; NULL: nowhere */
static struct qp *responder(const struct qp *q)
{
	struct qp *to = nic.qps[q->dest % QPNS];

	return to && !q->cut && !down(q) && !down(to) && !to->life->dead &&
	       to->qp.state >= IBV_QPS_RTR && to->qp.state < IBV_QPS_ERR &&
	       to->qp.qp_type == IBV_QPT_RC && to->dest == q->qp.qp_num && to->rq_psn == q->sq_psn ? to : NULL;
}

/* Whether the provider knows that both sides are ready. */
static bool greeted(const struct qp *q)
{
	return q->greeted && ((inlay_from_be32(q->life->cq.record[0]) - q->greeted) & 0xffffff) < 0x800000;
}

/* It fails. A message may have come in part. */
static void qp_error(struct qp *q, uint8_t syndrome)
{
	if (q->qp.state == IBV_QPS_ERR)
		return;
	trace(q->qp.qp_num, 0xe000u + syndrome);
	SAY("queue pair %u of node %u to %u fails, %u\n", q->qp.qp_num, q->life->node, q->dest, syndrome);
	q->qp.state = IBV_QPS_ERR;
	q->syndrome = syndrome;
	q->last = true;
	if (chance(250) && srq_has(q->life->srq))
		q->held = srq_take(q->life->srq) + 1;
	activate(q);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct qp *q = qp_of(qp), *to;

	sure(mask & IBV_QP_STATE);
	if (attr->qp_state == IBV_QPS_ERR) {
		qp_error(q, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
		return 0;
	}
	if (mask & IBV_QP_DEST_QPN) {
		q->dest = attr->dest_qp_num;
		q->rq_psn = attr->rq_psn;
	}
	if (mask & IBV_QP_SQ_PSN)
		q->sq_psn = attr->sq_psn;
	qp->state = attr->qp_state;
	to = q->qp.qp_type == IBV_QPT_RC && qp->state == IBV_QPS_RTS ? responder(q) : NULL;
	if (to && to->qp.state == IBV_QPS_RTS)
		joined(q->life->app, to->life->app, q->life->rail);
	return 0;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct life *l = life_of(context);

	if (!l->event_cnt)
		return -1;
	event->event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
	event->element.qp = &l->events[--l->event_cnt]->qp;
	return 0;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct life *l = life_of(pd->context);
	const uint32_t count = inlay_srq_cqes(init->attr.max_wr);

	sure(!l->srq);
	l->srq = (struct srq *)calloc(1, sizeof(*l->srq));
	l->objects++;
	return srq_fill(l->srq, pd, count, (uint8_t *)aligned_alloc(64, 32 * count));
}

/* ---- What it does ---- */

/* Looks at the records of a life whose register was written to */
static void rung(struct life *l)
{
	if (l->second)
		rung(l->second);
	if (!(l->page[0] | l->page[32]))
		return;
	l->page[0] = l->page[32] = 0;
	for (uint32_t k = 1; k < l->top; k++)
		if ((uint16_t)(l->records[k][1] >> 16) != l->seen[k]) {
			l->seen[k] = (uint16_t)(l->records[k][1] >> 16);
			l->qps[k]->posted = inlay_from_be16(l->seen[k]);
			activate(l->qps[k]);
		}
}

static bool cq_full(const struct life *l, uint32_t n)
{
	return ((l->cq.produced - inlay_from_be32(l->cq.record[0])) & 0xffffff) + n > l->cq.count;
}

static struct mlx5_cqe64 *cqe_next(struct life *l, const struct qp *q, uint32_t opcode, uint32_t len, uint32_t counter)
{
	struct mlx5_cqe64 *cqe = &l->cq.cqes[l->cq.produced & (l->cq.count - 1)];

	sure(!cq_full(l, 1));
	*cqe = (struct mlx5_cqe64){
		.byte_cnt = inlay_to_be32(len), .sop_drop_qpn = inlay_to_be32(q->qp.qp_num),
		.wqe_counter = inlay_to_be16((uint16_t)counter),
		.op_own = (uint8_t)(opcode << 4 | (l->cq.produced / l->cq.count & 1))};
	l->cq.produced++;
	return cqe;
}

static void cqe_error(const struct qp *q, uint32_t opcode, uint8_t syndrome, uint32_t counter)
{
	((struct mlx5_err_cqe *)(void *)cqe_next(q->life, q, opcode, 0, counter))->syndrome = syndrome;
}

/* A message of a connection, or a datagram behind its GRH. from: the datagram's sender */
static void arrive(struct qp *q, const uint8_t *data, uint32_t len, uint32_t from)
{
	struct life *l = q->life;
	const uint32_t entry = srq_take(l->srq);
	const uint8_t *e = l->srq->entries + 32 * entry;
	struct mlx5_cqe64 *cqe = cqe_next(l, q, MLX5_CQE_RESP_SEND, len, entry);

	sure(len <= get32(e + 16) && allowed(l, get32(e + 20), get64(e + 24), len, IBV_ACCESS_LOCAL_WRITE));
	if (from)
		cqe->flags_rqpn = inlay_to_be32(1u << 28 | from);
	if (len <= 32) {
		memcpy(cqe, data, len);
		cqe->op_own |= INLAY_CQE_SCATTER_32;
	} else {
		memcpy((void *)(uintptr_t)get64(e + 24), data, len);
	}
}

struct wqe {
	uint32_t opcode, ds, flags, bbs;
	uint8_t at[1024];
};

static void wqe_at(const struct qp *q, uint16_t index, struct wqe *w)
{
	uint32_t i;

	for (i = 0, w->bbs = 1; i < w->bbs; i++) {
		memcpy(w->at + 64 * i, q->ring + 64 * ((index + i) & (q->wqebbs - 1)), 64);
		w->ds = get32(w->at + 4) & 0x3f;
		w->bbs = (w->ds + 3) / 4;
	}
	w->opcode = get32(w->at) & 0xff;
	w->flags = w->at[11];
	sure((get32(w->at) >> 8 & 0xffff) == index && get32(w->at + 4) >> 8 == q->qp.qp_num && w->ds);
}

/* Bytes of a WQE from unit ds on, to or from memory of the sender's */
static uint32_t gather(const struct qp *q, struct wqe *w, uint32_t ds, uint8_t *to)
{
	uint32_t len = 0, n;

	while (ds < w->ds) {
		const uint8_t *s = w->at + 16 * ds;

		n = get32(s) & 0x7fffffff;
		if (get32(s) >> 31) {
			memcpy(to + len, s + 4, n);
			ds += (4 + n + 15) / 16;
		} else {
			sure(allowed(q->life, get32(s + 4), get64(s + 8), n, 0));
			memcpy(to + len, (void *)(uintptr_t)get64(s + 8), n);
			ds++;
		}
		len += n;
	}
	return len;
}

static void scatter(const struct qp *q, const struct wqe *w, uint32_t ds, const uint8_t *from)
{
	for (; ds < w->ds; ds++) {
		const uint8_t *s = w->at + 16 * ds;

		sure(allowed(q->life, get32(s + 4), get64(s + 8), get32(s), IBV_ACCESS_LOCAL_WRITE));
		memcpy((void *)(uintptr_t)get64(s + 8), from, get32(s));
		from += get32(s);
	}
}

static void fly(const struct qp *q, const uint8_t *data, uint32_t to)
{
	uint32_t copies = chance(nic.loss) ? 0 : chance(50) ? 2 : 1, later = chance(nic.later);
	struct datagram *d;

	while (copies + later && nic.flying < FLIGHT && !down(q)) {
		d = &nic.flight[nic.flying++];
		*d = (struct datagram){.from = q->qp.qp_num, .to = to};
		d->at = nic.now + rnd_below(copies ? chance(100) ? 30000000 : 20000 : 3000000000u);
		memcpy(d->data, data, DATAGRAM);
		copies -= copies != 0;
		later -= !copies && later;
	}
}

/* The next request. False: it has to wait. */
static bool execute(struct qp *q)
{
	static uint8_t data[1 << 17];
	struct qp *to = NULL;
	struct life *l;
	struct wqe w;
	uint64_t at, old, new;
	uint32_t len, key;

	wqe_at(q, q->sent, &w);
	if (q->qp.qp_type == IBV_QPT_UD) {
		sure(w.opcode == MLX5_OPCODE_SEND && gather(q, &w, 4, data) == DATAGRAM);
		trace(q->qp.qp_num, 0xd0000000u);
		nic.hellos++;
		fly(q, data, get32(w.at + 24) & 0xffffff);
		q->sent += (uint16_t)w.bbs;
		return true;
	}
	if (q->breaks) {
		qp_error(q, q->breaks);
		return true;
	}
	to = responder(q);
	if (!to) {
		to = nic.qps[q->dest % QPNS];
		sure(!to || q->cut || to->life->dead || to->qp.state != IBV_QPS_RTS || to->sq_psn != q->rq_psn ||
		     down(q) || down(to)); /* it is not another one's */
		if (!q->give_up)
			q->give_up = nic.now + RETRY;
		if (nic.now < q->give_up)
			return false;
		qp_error(q, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
		return true;
	}
	l = to->life;
	if (w.opcode == MLX5_OPCODE_SEND && (l->frozen || !srq_has(l->srq) || cq_full(l, 1)))
		return false;
	q->give_up = 0;
	trace(q->qp.qp_num, w.opcode << 16 | q->sent);
	at = get64(w.at + 16);
	key = get32(w.at + 24);
	switch (w.opcode) {
	case MLX5_OPCODE_NOP:
		break;
	case MLX5_OPCODE_SEND:
		len = gather(q, &w, 1, data);
		arrive(to, data, len, 0);
		break;
	case MLX5_OPCODE_RDMA_WRITE:
		len = gather(q, &w, 2, data);
		sure(!len || allowed(l, key, at, len, IBV_ACCESS_REMOTE_WRITE));
		if (len)
			memcpy((void *)(uintptr_t)at, data, len);
		break;
	case MLX5_OPCODE_RDMA_READ:
		len = get32(w.at + 32);
		sure(w.ds == 3 && allowed(l, key, at, len, IBV_ACCESS_REMOTE_READ));
		scatter(q, &w, 2, (const uint8_t *)(uintptr_t)at);
		nic.reads++;
		break;
	default:
		sure((w.opcode == MLX5_OPCODE_ATOMIC_FA || w.opcode == MLX5_OPCODE_ATOMIC_CS) && w.ds == 4);
		sure(at % 8 == 0 && allowed(l, key, at, 8, IBV_ACCESS_REMOTE_ATOMIC));
		memcpy(&old, (void *)(uintptr_t)at, 8);
		new = w.opcode == MLX5_OPCODE_ATOMIC_FA ? old + get64(w.at + 32) : old == get64(w.at + 40) ? get64(w.at + 32) : old;
		memcpy((void *)(uintptr_t)at, &new, 8);
		scatter(q, &w, 3, (const uint8_t *)&old);
	}
	q->sent += (uint16_t)w.bbs;
	return true;
}

/* The oldest request has been answered, or is flushed. */
static void acknowledge(struct qp *q)
{
	struct wqe w;

	wqe_at(q, q->acked, &w);
	if (q->qp.state == IBV_QPS_ERR) {
		cqe_error(q, MLX5_CQE_REQ_ERR, q->syndrome, q->acked);
		q->syndrome = MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
	} else if (w.flags & MLX5_WQE_CTRL_CQ_UPDATE) {
		cqe_next(q->life, q, MLX5_CQE_REQ, 0, q->acked);
	}
	q->acked += (uint16_t)w.bbs;
	if ((int16_t)(q->sent - q->acked) < 0)
		q->sent = q->acked;
}

/* A queue pair does one thing, if it can. */
static bool qp_step(struct qp *q)
{
	const bool error = q->qp.state == IBV_QPS_ERR;
	struct life *l = q->life;

	if (l->dead || q->qp.state < IBV_QPS_RTS) {
		deactivate(q);
		return false;
	}
	if (error && q->held) {
		cqe_error(q, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, q->held - 1);
		q->held = 0;
	} else if (error && q->last && (chance(300) || q->acked == q->posted)) {
		if (l->event_cnt == ARRAY(l->events))
			return false;
		l->events[l->event_cnt++] = q;
		q->last = false;
	} else if (error ? q->acked != q->posted : q->acked != q->sent && (q->sent == q->posted || chance(500))) {
		if (l->frozen)
			q->acked = q->sent;
		else
			acknowledge(q);
	} else if (!error && q->sent != q->posted) {
		return execute(q);
	} else {
		deactivate(q);
	}
	return true;
}

static bool deliver(void)
{
	const uint32_t i = nic.flying ? rnd_below(nic.flying) : 0;
	struct datagram *d = &nic.flight[i];
	uint8_t data[GRH + DATAGRAM] = {0};
	struct qp *q, *from, *to;

	if (!nic.flying || d->at > nic.now)
		return false;
	trace(d->to, 0xa0000000u);
	SAY("datagram %u to %u: kind %u, flags %u, attempt %u, yours %u\n", d->from, d->to, d->data[4], d->data[5], d->data[8],
	    d->data[12]);
	q = nic.qps[d->to % QPNS];
	if (q && q->qp.qp_type == IBV_QPT_UD && q->qp.state == IBV_QPS_RTS && !q->life->dead &&
	    !q->life->frozen && !down(q) && srq_has(q->life->srq) && !cq_full(q->life, 1)) {
		data[8] = data[24] = 0xfd;
		data[23] = data[39] = 1;
		memcpy(data + GRH, d->data, DATAGRAM);
		arrive(q, data, sizeof(data), d->from);
		from = nic.qps[(d->data[85] | d->data[86] << 8 | d->data[87] << 16) % QPNS];
		if (d->data[5] & 2 && from && (to = responder(from)) && to->life == q->life)
			to->greeted = q->life->cq.produced;
	}
	*d = nic.flight[--nic.flying];
	return true;
}

static bool nic_step(void)
{
	if (nic.opening)
		rung(nic.opening);
	return rnd_below(4) && nic.active_cnt ? qp_step(nic.active[rnd_below(nic.active_cnt)]) : deliver();
}

#endif
