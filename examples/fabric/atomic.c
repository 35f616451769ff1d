/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * atomic.c: fi_atomic, fi_fetch_atomic, fi_compare_atomic and their kin.
 *
 * Types of 8 bytes are the device's, one element after the other: sums of integers by fetch-and-add,
 * everything else by compare-and-swap, again and again until nobody came between. So all of them are atomic
 * to each other, and need nobody at the peer.
 *
 * Other types, and what the device does not do, go as messages, which the peer carries out when it makes
 * progress:
 *
 *   +0   kind, flags, op << 8 | type in the place of segments, address in that of the tag
 *   +12  8 bytes: handle                        FLAG_HANDLE: an answer is awaited
 *   +..  key, number of elements                4 bytes each
 *   +..  operands, then what they are compared with
 *
 *   answer: kind, flags, errno in the place of segments, handle in that of the tag, old values (FLAG_FETCH)
 */
#include <complex.h>
#include "fabric.h"

struct ask {
	uint32_t key, count;
};

/* An operation, in any of its forms: FI_WRITE: nothing comes back; FI_READ: old values do. */
struct atomic {
	const struct fi_ioc *iov, *compare;
	size_t iovs, compares, results;
	const struct fi_ioc *result;
	fi_addr_t addr;
	uint64_t remote, key;
	enum fi_datatype type;
	enum fi_op op;
	void *context;
	uint64_t flags;
};

/* ---- Values ---- */

#define ANY(T, U) \
	case FI_SUM: r = (T)((U)o + (U)v); break; \
	case FI_PROD: r = (T)((U)o * (U)v); break; \
	case FI_LOR: r = o || v; break; \
	case FI_LAND: r = o && v; break; \
	case FI_LXOR: r = !o != !v; break; \
	case FI_ATOMIC_READ: r = o; break; \
	case FI_ATOMIC_WRITE: r = v; break; \
	case FI_CSWAP: r = c == o ? v : o; break; \
	case FI_CSWAP_NE: r = c != o ? v : o; break;
#define ORDERED \
	case FI_MIN: r = v < o ? v : o; break; \
	case FI_MAX: r = v > o ? v : o; break; \
	case FI_CSWAP_LE: r = c <= o ? v : o; break; \
	case FI_CSWAP_LT: r = c < o ? v : o; break; \
	case FI_CSWAP_GE: r = c >= o ? v : o; break; \
	case FI_CSWAP_GT: r = c > o ? v : o; break;
#define BITS(T) \
	case FI_BOR: r = (T)(o | v); break; \
	case FI_BAND: r = (T)(o & v); break; \
	case FI_BXOR: r = (T)(o ^ v); break; \
	case FI_MSWAP: r = (T)((v & c) | (o & ~c)); break;

/* What becomes of old by op; false: there is no such op for the type. */
#define COMBINE(name, T, U, more) \
	static bool name(enum fi_op op, const void *old, const void *operand, const void *compare, void *to) \
	{ \
		T o, v, c, r; \
\
		memcpy(&o, old, sizeof(o)); \
		memcpy(&v, operand, sizeof(v)); \
		memcpy(&c, compare, sizeof(c)); \
		switch (op) { \
		ANY(T, U) \
		more \
		default: \
			return false; \
		} \
		memcpy(to, &r, sizeof(r)); \
		return true; \
	}

COMBINE(combine_int8, int8_t, uint64_t, ORDERED BITS(int8_t))
COMBINE(combine_uint8, uint8_t, uint64_t, ORDERED BITS(uint8_t))
COMBINE(combine_int16, int16_t, uint64_t, ORDERED BITS(int16_t))
COMBINE(combine_uint16, uint16_t, uint64_t, ORDERED BITS(uint16_t))
COMBINE(combine_int32, int32_t, uint64_t, ORDERED BITS(int32_t))
COMBINE(combine_uint32, uint32_t, uint64_t, ORDERED BITS(uint32_t))
COMBINE(combine_int64, int64_t, uint64_t, ORDERED BITS(int64_t))
COMBINE(combine_uint64, uint64_t, uint64_t, ORDERED BITS(uint64_t))
COMBINE(combine_float, float, float, ORDERED)
COMBINE(combine_double, double, double, ORDERED)
COMBINE(combine_long_double, long double, long double, ORDERED)
COMBINE(combine_float_complex, float complex, float complex, )
COMBINE(combine_double_complex, double complex, double complex, )
COMBINE(combine_long_double_complex, long double complex, long double complex, )

static const struct {
	size_t size;
	bool (*combine)(enum fi_op op, const void *old, const void *operand, const void *compare, void *to);
} types[FI_DATATYPE_LAST] = {
	{1, combine_int8}, {1, combine_uint8}, {2, combine_int16}, {2, combine_uint16}, {4, combine_int32},
	{4, combine_uint32}, {8, combine_int64}, {8, combine_uint64}, {4, combine_float}, {8, combine_double},
	{8, combine_float_complex}, {16, combine_double_complex}, {sizeof(long double), combine_long_double},
	{2 * sizeof(long double), combine_long_double_complex},
};

#define LARGEST_TYPE (2 * sizeof(long double))

static bool compares(enum fi_op op)
{
	return op >= FI_CSWAP && op <= FI_MSWAP;
}

/* The elements that one call may have: operands, comparisons and the rest fill a bounce buffer. 0: none. */
static size_t most(enum fi_datatype type, enum fi_op op)
{
	const uint8_t zero[LARGEST_TYPE] = {0};
	uint8_t to[LARGEST_TYPE];

	if ((unsigned int)type >= FI_DATATYPE_LAST || !types[type].combine(op, zero, zero, zero, to))
		return 0;
	return (settings.eager - 64) / types[type].size / 2;
}

/* ---- The caller's memory ---- */

static size_t elements(const struct fi_ioc *v, size_t n)
{
	size_t sum = 0;

	while (n--)
		sum += v[n].count;
	return sum;
}

static uint8_t *gather(uint8_t *to, const struct fi_ioc *v, size_t n, size_t size)
{
	size_t i;

	for (i = 0; i < n; i++) {
		memcpy(to, v[i].addr, v[i].count * size);
		to += v[i].count * size;
	}
	return to;
}

static void scatter(const struct op *op, const uint8_t *from, size_t len)
{
	size_t n;
	uint32_t i;

	for (i = 0; i < op->iovs && len; i++, from += n, len -= n) {
		n = op->iov[i].iov_len < len ? op->iov[i].iov_len : len;
		memcpy(op->iov[i].iov_base, from, n);
	}
}

/* ---- By the device ---- */

/* One at work, in its bounce buffer. */
struct native {
	uint64_t landing;         /* the device writes the old value here */
	uint64_t expected;        /* compare-and-swap: of this */
	uint64_t remote;
	uint32_t key, count, at;
	uint8_t type, op;
	enum { FINAL, LOOKED, TRIED } step; /* what landing is: the old value; a look at it; or the old value if as expected */
	uint64_t operand[];       /* count of them; old values take their places. Then count to compare with */
};

/* The WQE of the next step. 0, -FI_EAGAIN or -FI_ENOTSUP. */
static int native_post(struct peer *p, struct op *op, struct native *n, uint32_t lkey)
{
	const bool integer = n->type == FI_INT64 || n->type == FI_UINT64;
	const uint64_t remote = n->remote + 8ull * n->at, operand = n->operand[n->at], compare = n->operand[n->count + n->at];
	struct ibv_sge sge = {(uintptr_t)&n->landing, 8, lkey};
	struct slot *slot = peer_slot(p);
	uint64_t next;
	int err;

	if (n->step == TRIED) {
		types[n->type].combine((enum fi_op)n->op, &n->expected, &operand, &compare, &next);
		err = inlay_post_cmp_swap(&p->sq, remote, n->key, n->expected, next, &sge, INLAY_SIGNALED | INLAY_RING);
	} else if (integer && n->op == FI_CSWAP) {
		n->step = FINAL;
		err = inlay_post_cmp_swap(&p->sq, remote, n->key, compare, operand, &sge, INLAY_SIGNALED | INLAY_RING);
	} else {
		n->step = (integer && n->op == FI_SUM) || n->op == FI_ATOMIC_READ ? FINAL : LOOKED;
		err = inlay_post_fetch_add(&p->sq, remote, n->key, n->op == FI_SUM && n->step == FINAL ? operand : 0, &sge,
					   INLAY_SIGNALED | INLAY_RING);
	}
	if (err)
		return err == -EAGAIN ? -FI_EAGAIN : -FI_EOPNOTSUPP;
	slot->kind = SLOT_RMA;
	slot->what = op;
	return 0;
}

static void native_end(struct endpoint *ep, struct op *op, int err)
{
	struct buf *b = (struct buf *)(void *)op->buf;
	struct native *n = (struct native *)(void *)b->data;

	if (!err)
		scatter(op, (const uint8_t *)n->operand, 8 * (size_t)n->count);
	tx_done(ep, op->context, (uint32_t)op->flags, err, op->peer->syndrome);
	buf_give(&ep->bounce, b);
	op_give(ep, op);
}

/* Goes on, now or when there is room. */
static void native_go(struct endpoint *ep, struct op *op)
{
	struct buf *b = (struct buf *)(void *)op->buf;
	int err = peer_open_to(op->peer) ? native_post(op->peer, op, (struct native *)(void *)b->data, b->lkey) : -(op->peer->err ? op->peer->err : FI_ECONNRESET);

	if (err == -FI_EAGAIN)
		wait_for_room(ep, op);
	else if (err)
		native_end(ep, op, -err);
}

/* A step is done. */
static void native_done(struct endpoint *ep, struct op *op, int err)
{
	struct native *n = (struct native *)(void *)((struct buf *)(void *)op->buf)->data;
	uint64_t next = n->landing;

	if (err) {
		native_end(ep, op, err);
		return;
	}
	if (n->step == LOOKED || (n->step == TRIED && n->landing != n->expected)) {
		types[n->type].combine((enum fi_op)n->op, &n->landing, &n->operand[n->at], &n->operand[n->count + n->at], &next);
		n->expected = n->landing;
		n->step = TRIED;
	} else {
		n->step = FINAL;
	}
	if (n->step == TRIED && next != n->landing) {
		native_go(ep, op);
		return;
	}
	n->step = FINAL;
	n->operand[n->at++] = n->landing;
	if (n->at == n->count)
		native_end(ep, op, 0);
	else
		native_go(ep, op);
}

static struct op *new_op(struct endpoint *ep, struct peer *p, const struct atomic *a, uint8_t kind, uint32_t done)
{
	struct op *op = op_take(ep, kind);
	size_t i;

	if (!op)
		return NULL;
	op->peer = p;
	op->context = a->context;
	op->flags = done;
	op->regions = 0;
	op->buf = NULL;
	op->iovs = (uint8_t)a->results;
	for (i = 0; i < a->results; i++) {
		op->iov[i].iov_base = a->result[i].addr;
		op->iov[i].iov_len = a->result[i].count * types[a->type].size;
	}
	return op;
}

/* 0 or a negative errno; -FI_EOPNOTSUPP: the device has no atomics. */
static int native_start(struct endpoint *ep, struct peer *p, const struct atomic *a, size_t count, uint32_t done)
{
	struct buf *b = buf_take(&ep->bounce);
	struct native *n;
	struct op *op;
	int err = -FI_EAGAIN;

	if (!b)
		return err;
	n = (struct native *)(void *)b->data;
	n->remote = a->remote;
	n->key = (uint32_t)a->key;
	n->count = (uint32_t)count;
	n->at = 0;
	n->type = (uint8_t)a->type;
	n->op = (uint8_t)a->op;
	n->step = FINAL;
	gather((uint8_t *)n->operand, a->iov, a->iovs, 8);
	gather((uint8_t *)(n->operand + count), a->compare, a->compares, 8);
	op = new_op(ep, p, a, OP_NATIVE, done);
	if (op) {
		op->buf = (uint8_t *)b;
		err = native_post(p, op, n, b->lkey);
		if (!err)
			return 0;
		op_give(ep, op);
	}
	buf_give(&ep->bounce, b);
	return err;
}

/* ---- By message ---- */

/* A buffer that begins with the header. */
static struct buf *message_of(struct endpoint *ep, uint8_t kind, uint8_t flags, uint16_t segments, uint64_t tag)
{
	struct buf *b = buf_take(&ep->bounce);
	struct wire *wire;

	if (!b)
		return NULL;
	wire = (struct wire *)(void *)b->data;
	wire->kind = kind;
	wire->flags = flags;
	wire->segments = segments;
	wire->tag = tag;
	b->len = sizeof(*wire);
	b->flags = 0;
	return b;
}

/* There is room. */
static void message_post(struct peer *p, struct buf *b)
{
	struct slot *slot = peer_slot(p);
	struct ibv_sge sge = {(uintptr_t)b->data, b->len, b->lkey};

	slot->kind = SLOT_BUF;
	slot->what = b;
	inlay_post_send(&p->sq, &sge, 1, INLAY_SIGNALED | INLAY_RING);
}

static int message_start(struct endpoint *ep, struct peer *p, const struct atomic *a, size_t count, uint32_t done)
{
	const bool answer = (a->flags & FI_READ) || ((a->flags & FI_DELIVERY_COMPLETE) && !(a->flags & SILENT));
	const struct ask ask = {(uint32_t)a->key, (uint32_t)count};
	const size_t size = types[a->type].size;
	struct op *op = NULL;
	struct buf *b;

	if (!inlay_sq_room(&p->sq))
		return -FI_EAGAIN;
	b = message_of(ep, WIRE_ATOMIC, (uint8_t)((answer ? FLAG_HANDLE : 0) | (a->flags & FI_READ ? FLAG_FETCH : 0)),
		       (uint16_t)((unsigned int)a->op << 8 | (unsigned int)a->type), a->remote);
	if (!b)
		return -FI_EAGAIN;
	if (answer) {
		op = new_op(ep, p, a, OP_ATOMIC, done);
		if (!op) {
			buf_give(&ep->bounce, b);
			return -FI_EAGAIN;
		}
		inlay_put64(b->data + b->len, op_handle(op));
		b->len += 8;
	} else {
		b->context = a->context;
		b->flags = done;
	}
	memcpy(b->data + b->len, &ask, sizeof(ask));
	b->len += (uint32_t)sizeof(ask);
	b->len = (uint32_t)(gather(gather(b->data + b->len, a->iov, a->iovs, size), a->compare, a->compares, size) - b->data);
	message_post(p, b);
	return 0;
}

/* ---- At the peer ---- */

/* Atomic also to loads and stores of the application's; by one thread at a time in this domain. */
static void carry_out(enum fi_datatype type, enum fi_op op, uint8_t *at, const uint8_t *operand, const uint8_t *compare,
		      uint8_t *old)
{
	const size_t size = types[type].size;

#define EXCHANGE(T) \
	do { \
		T was_ = __atomic_load_n((T *)(void *)at, __ATOMIC_ACQUIRE), next_; \
\
		do \
			types[type].combine(op, &was_, operand, compare, &next_); \
		while (!__atomic_compare_exchange_n((T *)(void *)at, &was_, next_, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)); \
		memcpy(old, &was_, sizeof(T)); \
	} while (0)

	switch (size) {
	case 1:
		EXCHANGE(uint8_t);
		return;
	case 2:
		EXCHANGE(uint16_t);
		return;
	case 4:
		EXCHANGE(uint32_t);
		return;
	case 8:
		EXCHANGE(uint64_t);
		return;
	default:
		memcpy(old, at, size);
		types[type].combine(op, old, operand, compare, at);
	}
}

static int check(struct endpoint *ep, const struct message *m, const struct ask *ask, size_t size, bool operand, bool compare)
{
	const uint64_t access = FI_REMOTE_WRITE | (m->flags & FLAG_FETCH ? FI_REMOTE_READ : 0);
	const size_t bytes = ask->count * size;

	if (m->len != sizeof(*ask) + bytes * ((operand ? 1 : 0) + (compare ? 1 : 0)))
		return FI_EINVAL;
	return mr_find(ep->domain, ask->key, m->tag, bytes, operand ? access : FI_REMOTE_READ) ? 0 : FI_EACCES;
}

/* 0, or -FI_EAGAIN: it is to come again, since there is no memory for an answer. */
static int asked(struct endpoint *ep, struct peer *p, const struct message *m)
{
	const enum fi_datatype type = (enum fi_datatype)(m->segments & 255);
	const enum fi_op op = (enum fi_op)(m->segments >> 8);
	const bool operand = op != FI_ATOMIC_READ, compare = compares(op);
	struct buf *answer = message_of(ep, WIRE_ANSWER, m->flags & FLAG_FETCH, 0, m->handle);
	const uint8_t none[LARGEST_TYPE] = {0}, *v = operand ? m->payload + sizeof(struct ask) : none;
	size_t size, i;
	struct ask ask = {0, 0};
	struct op *later;
	int err = FI_EINVAL;

	if (!answer)
		return -FI_EAGAIN;
	if (most(type, op) && m->len >= sizeof(ask)) {
		memcpy(&ask, m->payload, sizeof(ask));
		size = types[type].size;
		if (ask.count <= most(type, op))
			err = m->tag & ((size < 8 ? size : 8) - 1) ? FI_EINVAL : check(ep, m, &ask, size, operand, compare);
		for (i = 0; !err && i < ask.count; i++, v += operand ? size : 0) {
			carry_out(type, op, (uint8_t *)(uintptr_t)m->tag + i * size, v, compare ? v + ask.count * size : v,
				  answer->data + answer->len);
			answer->len += m->flags & FLAG_FETCH ? (uint32_t)size : 0;
		}
	}
	if (err)
		WARN(FI_LOG_EP_DATA, "an atomic operation of a peer is refused: %s\n", fi_strerror(err));
	if (!(m->flags & FLAG_HANDLE)) {
		buf_give(&ep->bounce, answer);
		return 0;
	}
	((struct wire *)(void *)answer->data)->segments = (uint16_t)err;
	if (inlay_sq_room(&p->sq)) {
		message_post(p, answer);
		return 0;
	}
	later = op_take(ep, OP_ANSWER);
	if (!later) {
		WARN(FI_LOG_EP_DATA, "no memory for an answer\n");
		buf_give(&ep->bounce, answer);
		return 0;
	}
	later->peer = p;
	later->buf = (uint8_t *)answer;
	wait_for_room(ep, later);
	return 0;
}

static void answered(struct endpoint *ep, struct peer *p, const struct message *m)
{
	struct op *op = op_of(ep, m->tag);

	if (!op || op->kind != OP_ATOMIC || op->peer != p)
		return;
	if (!m->segments)
		scatter(op, m->payload, m->len);
	atomic_end(ep, op, m->segments);
}

/* ---- What the provider's other files call ---- */

int atomic_arrived(struct endpoint *ep, struct peer *p, const struct message *m)
{
	if (m->kind == WIRE_ATOMIC)
		return asked(ep, p, m);
	answered(ep, p, m);
	return 0;
}

void atomic_end(struct endpoint *ep, struct op *op, int err)
{
	tx_done(ep, op->context, (uint32_t)op->flags, err, op->peer->syndrome);
	op_give(ep, op);
}

void atomic_step(struct endpoint *ep, struct op *op, int err)
{
	native_done(ep, op, err);
}

void atomic_again(struct endpoint *ep, struct op *op)
{
	struct peer *p = op->peer;

	if (op->kind == OP_NATIVE) {
		native_go(ep, op);
	} else if (peer_open_to(p) && !inlay_sq_room(&p->sq)) {
		wait_for_room(ep, op);
	} else {
		if (peer_open_to(p))
			message_post(p, (struct buf *)(void *)op->buf);
		else
			buf_give(&ep->bounce, (struct buf *)(void *)op->buf);
		op_give(ep, op);
	}
}

int atomic_query(struct fid_domain *fid, enum fi_datatype type, enum fi_op op, struct fi_atomic_attr *attr, uint64_t flags)
{
	(void)fid;
	if (flags & FI_TAGGED || (flags & FI_COMPARE_ATOMIC ? !compares(op) : compares(op)))
		return -FI_EOPNOTSUPP;
	if (op == FI_ATOMIC_READ && !(flags & FI_FETCH_ATOMIC))
		return -FI_EOPNOTSUPP;
	attr->count = most(type, op);
	attr->size = attr->count ? types[type].size : 0;
	return attr->count ? 0 : -FI_EOPNOTSUPP;
}

/* ---- What the application calls ---- */

static ssize_t atomic_any(struct endpoint *ep, const struct atomic *a)
{
	const uint32_t done = done_flags(ep, FI_ATOMIC | (a->flags & (FI_READ | FI_WRITE)), a->flags);
	const bool operand = a->op != FI_ATOMIC_READ;
	struct fi_atomic_attr attr;
	struct peer *p;
	size_t count;
	int err;

	if (a->iovs > IOV_LIMIT || a->compares > IOV_LIMIT || a->results > IOV_LIMIT)
		return -FI_EINVAL;
	err = atomic_query(NULL, a->type, a->op, &attr, a->compares ? FI_COMPARE_ATOMIC : a->results ? FI_FETCH_ATOMIC : 0);
	if (err)
		return err;
	count = elements(operand ? a->iov : a->result, operand ? a->iovs : a->results);
	if (!count || count > attr.count || (a->compares && elements(a->compare, a->compares) != count) ||
	    (a->results && elements(a->result, a->results) != count))
		return -FI_EINVAL;
	p = peer_of(ep, a->addr);
	if (!p)
		return -FI_EADDRNOTAVAIL;
	err = peer_need(ep, p);
	if (err && err != -FI_EAGAIN && !(a->flags & SILENT)) {
		tx_done(ep, a->context, done, -err, p->syndrome);
		return 0;
	}
	if (err)
		return err;
	if (types[a->type].size == 8 && !(a->remote & 7)) {
		err = native_start(ep, p, a, count, done);
		if (err != -FI_EOPNOTSUPP)
			return err;
	}
	return message_start(ep, p, a, count, done);
}

static ssize_t atomic(struct fid_ep *fid, const struct fi_ioc *iov, size_t iovs, const struct fi_ioc *compare, size_t compares,
		      const struct fi_ioc *result, size_t results, fi_addr_t addr, uint64_t remote, uint64_t key,
		      enum fi_datatype type, enum fi_op op, void *context, uint64_t flags)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid);
	struct atomic a = {iov, compare, op == FI_ATOMIC_READ ? 0 : iovs, compares, results, result, addr, remote, key, type, op,
			   context, flags | (results ? FI_READ : FI_WRITE)};

	enter(ep);
	return leave(ep, atomic_any(ep, &a));
}

#define DEFAULTS(fid) (container_of(fid, struct endpoint, fid)->tx_flags)

static ssize_t atomic_msg(struct fid_ep *fid, const struct fi_msg_atomic *m, const struct fi_ioc *compare, size_t compares,
			  const struct fi_ioc *result, size_t results, uint64_t flags)
{
	if (m->rma_iov_count != 1 || flags & FI_REMOTE_CQ_DATA)
		return -FI_EINVAL;
	return atomic(fid, m->msg_iov, m->iov_count, compare, compares, result, results, m->addr, m->rma_iov->addr,
		      m->rma_iov->key, m->datatype, m->op, m->context, flags);
}

static struct fi_ioc ioc(const void *buf, size_t count)
{
	struct fi_ioc v;

	v.addr = (void *)(uintptr_t)buf;
	v.count = count;
	return v;
}

static ssize_t write1(struct fid_ep *fid, const void *buf, size_t count, void *desc, fi_addr_t addr, uint64_t remote,
		      uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	struct fi_ioc v = ioc(buf, count);

	(void)desc;
	return atomic(fid, &v, 1, NULL, 0, NULL, 0, addr, remote, key, type, op, context, DEFAULTS(fid));
}

static ssize_t writev1(struct fid_ep *fid, const struct fi_ioc *iov, void **desc, size_t count, fi_addr_t addr,
		       uint64_t remote, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	(void)desc;
	return atomic(fid, iov, count, NULL, 0, NULL, 0, addr, remote, key, type, op, context, DEFAULTS(fid));
}

static ssize_t writemsg(struct fid_ep *fid, const struct fi_msg_atomic *m, uint64_t flags)
{
	return atomic_msg(fid, m, NULL, 0, NULL, 0, flags);
}

static ssize_t inject(struct fid_ep *fid, const void *buf, size_t count, fi_addr_t addr, uint64_t remote, uint64_t key,
		      enum fi_datatype type, enum fi_op op)
{
	struct fi_ioc v = ioc(buf, count);

	return atomic(fid, &v, 1, NULL, 0, NULL, 0, addr, remote, key, type, op, NULL, SILENT);
}

static ssize_t fetch(struct fid_ep *fid, const void *buf, size_t count, void *desc, void *result, void *result_desc,
		     fi_addr_t addr, uint64_t remote, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	struct fi_ioc v = ioc(buf, count), r = ioc(result, count);

	(void)desc, (void)result_desc;
	return atomic(fid, &v, 1, NULL, 0, &r, 1, addr, remote, key, type, op, context, DEFAULTS(fid));
}

static ssize_t fetchv(struct fid_ep *fid, const struct fi_ioc *iov, void **desc, size_t count, struct fi_ioc *result,
		      void **result_desc, size_t results, fi_addr_t addr, uint64_t remote, uint64_t key,
		      enum fi_datatype type, enum fi_op op, void *context)
{
	(void)desc, (void)result_desc;
	return atomic(fid, iov, count, NULL, 0, result, results, addr, remote, key, type, op, context, DEFAULTS(fid));
}

static ssize_t fetchmsg(struct fid_ep *fid, const struct fi_msg_atomic *m, struct fi_ioc *result, void **result_desc,
			size_t results, uint64_t flags)
{
	(void)result_desc;
	return atomic_msg(fid, m, NULL, 0, result, results, flags);
}

static ssize_t compare1(struct fid_ep *fid, const void *buf, size_t count, void *desc, const void *compare,
			void *compare_desc, void *result, void *result_desc, fi_addr_t addr, uint64_t remote, uint64_t key,
			enum fi_datatype type, enum fi_op op, void *context)
{
	struct fi_ioc v = ioc(buf, count), c = ioc(compare, count), r = ioc(result, count);

	(void)desc, (void)compare_desc, (void)result_desc;
	return atomic(fid, &v, 1, &c, 1, &r, 1, addr, remote, key, type, op, context, DEFAULTS(fid));
}

static ssize_t comparev(struct fid_ep *fid, const struct fi_ioc *iov, void **desc, size_t count,
			const struct fi_ioc *compare, void **compare_desc, size_t compares, struct fi_ioc *result,
			void **result_desc, size_t results, fi_addr_t addr, uint64_t remote, uint64_t key,
			enum fi_datatype type, enum fi_op op, void *context)
{
	(void)desc, (void)compare_desc, (void)result_desc;
	return atomic(fid, iov, count, compare, compares, result, results, addr, remote, key, type, op, context,
		      DEFAULTS(fid));
}

static ssize_t comparemsg(struct fid_ep *fid, const struct fi_msg_atomic *m, const struct fi_ioc *compare,
			  void **compare_desc, size_t compares, struct fi_ioc *result, void **result_desc, size_t results,
			  uint64_t flags)
{
	(void)compare_desc, (void)result_desc;
	return atomic_msg(fid, m, compare, compares, result, results, flags);
}

#define VALID(name, kind) \
	static int name(struct fid_ep *fid, enum fi_datatype type, enum fi_op op, size_t *count) \
	{ \
		struct fi_atomic_attr attr; \
		int err = atomic_query(NULL, type, op, &attr, kind); \
\
		(void)fid; \
		if (!err) \
			*count = attr.count; \
		return err; \
	}

VALID(write_valid, 0)
VALID(fetch_valid, FI_FETCH_ATOMIC)
VALID(compare_valid, FI_COMPARE_ATOMIC)

struct fi_ops_atomic atomic_ops = {
	sizeof(struct fi_ops_atomic), write1, writev1, writemsg, inject, fetch, fetchv, fetchmsg, compare1, comparev,
	comparemsg, write_valid, fetch_valid, compare_valid,
};
