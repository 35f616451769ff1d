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
#include "message.h"
#include <complex.h>

struct ask {
	uint32_t key, count;
};

/* An operation, in any of its forms. */
struct atomic {
	const struct fi_ioc *iov, *compare, *result;
	size_t iovs, compares, results;
	fi_addr_t addr;
	uint64_t remote, key;
	enum fi_datatype type;
	enum fi_op op;
	void *context;
	uint64_t flags;           /* FI_WRITE: nothing comes back; FI_READ: old values do */
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

#define INTEGER(T) ORDERED BITS(T)

/* In the order of enum fi_datatype: name, type, type to calculate in, operations beside ANY. */
#define TYPES(X) \
	X(int8, int8_t, uint64_t, INTEGER(int8_t)) \
	X(uint8, uint8_t, uint64_t, INTEGER(uint8_t)) \
	X(int16, int16_t, uint64_t, INTEGER(int16_t)) \
	X(uint16, uint16_t, uint64_t, INTEGER(uint16_t)) \
	X(int32, int32_t, uint64_t, INTEGER(int32_t)) \
	X(uint32, uint32_t, uint64_t, INTEGER(uint32_t)) \
	X(int64, int64_t, uint64_t, INTEGER(int64_t)) \
	X(uint64, uint64_t, uint64_t, INTEGER(uint64_t)) \
	X(float, float, float, ORDERED) \
	X(double, double, double, ORDERED) \
	X(float_complex, float complex, float complex, ) \
	X(double_complex, double complex, double complex, ) \
	X(long_double, long double, long double, ORDERED) \
	X(long_double_complex, long double complex, long double complex, )

/* What becomes of old by op; false: there is no such op for the type. */
#define COMBINE(name, T, U, more) \
	static bool combine_##name(enum fi_op op, const void *old, const void *operand, const void *compare, void *to) \
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

TYPES(COMBINE)

#define ENTRY(name, T, ...) {sizeof(T), combine_##name},

static const struct {
	size_t size;
	bool (*combine)(enum fi_op op, const void *old, const void *operand, const void *compare, void *to);
} types[FI_DATATYPE_LAST] = {TYPES(ENTRY)};

static bool compares(enum fi_op op)
{
	return op >= FI_CSWAP && op <= FI_MSWAP;
}

/* The elements that one call may have: operands, comparisons and the rest fill a bounce buffer. 0: none. */
static size_t most(enum fi_datatype type, enum fi_op op)
{
	static const long double complex zero;
	long double complex to;

	if ((unsigned int)type >= FI_DATATYPE_LAST || !types[type].combine(op, &zero, &zero, &zero, &to))
		return 0;
	return (settings.eager - 64) / types[type].size / 2;
}

static size_t elements(const struct fi_ioc *v, size_t n)
{
	size_t sum = 0;

	while (n--)
		sum += v[n].count;
	return sum;
}

static uint8_t *gather(uint8_t *to, const struct fi_ioc *v, size_t n, size_t size)
{
	for (; n--; v++)
		to = (uint8_t *)mempcpy(to, v->addr, v->count * size);
	return to;
}

/* An operation that goes on in b. */
static struct op *new_op(struct endpoint *ep, struct peer *p, const struct atomic *a, uint8_t kind, uint32_t done,
			 struct buf *b)
{
	struct op *op = op_begin(ep, kind, p, a->context, done);
	size_t i;

	if (!op)
		return NULL;
	op->bounce = b;
	op->len = 0;
	op->iovs = (uint8_t)a->results;
	for (i = 0; i < a->results; i++) {
		op->iov[i].iov_base = a->result[i].addr;
		op->iov[i].iov_len = a->result[i].count * types[a->type].size;
		op->len += op->iov[i].iov_len;
	}
	op->buf = (uint8_t *)op->iov[0].iov_base;
	return op;
}

/* ---- By the device ---- */

struct native {
	uint64_t landing;         /* the device writes the old value here */
	uint64_t expected;        /* compare-and-swap of this, which at first is a guess */
	uint64_t remote;
	uint32_t key, count, at;
	bool adds;                /* by fetch-and-add */
	uint8_t type, op;
	uint64_t values[];        /* count operands, which become old values; count to compare with, or zeros */
};

static struct native *native_of(const struct op *op)
{
	return (struct native *)(void *)op->bounce->data;
}

/* The WQE of the next step. 0, -FI_EAGAIN; -FI_EOPNOTSUPP: the device has no atomics. */
static int native_post(struct peer *p, struct op *op)
{
	struct native *n = native_of(op);
	const uint64_t *operand = &n->values[n->at], remote = n->remote + 8ull * n->at;
	struct ibv_sge sge = {(uintptr_t)&n->landing, 8, op->bounce->lkey};
	struct slot *slot = peer_slot(p), next = {op, SLOT_OP, 0};
	uint64_t swap;
	int err;

	if (n->adds) {
		err = inlay_post_fetch_add(&p->sq, remote, n->key, *operand, &sge, INLAY_SIGNALED | INLAY_RING);
	} else {
		types[n->type].combine((enum fi_op)n->op, &n->expected, operand, operand + n->count, &swap);
		err = inlay_post_cmp_swap(&p->sq, remote, n->key, n->expected, swap, &sge, INLAY_SIGNALED | INLAY_RING);
	}
	if (!err)
		*slot = next;
	return err;
}

static void native_end(struct endpoint *ep, struct op *op, int err)
{
	struct native *n = native_of(op);

	if (!err)
		message_scatter(op, (const uint8_t *)n->values, op->len);
	buf_give(&ep->bounce, op->bounce);
	op_end(ep, op, err);
}

/* Goes on, now or when there is room. */
static void native_go(struct endpoint *ep, struct op *op)
{
	struct peer *p = op->peer;
	int err = peer_open_to(p) ? native_post(p, op) : p->err ? -p->err : -FI_ECONNRESET;

	if (err == -FI_EAGAIN)
		wait_for_room(ep, op);
	else if (err)
		native_end(ep, op, -err);
}

void atomic_step(struct endpoint *ep, struct op *op, int err)
{
	struct native *n = native_of(op);
	uint64_t *operand = &n->values[n->at], swap;

	if (err) {
		native_end(ep, op, err);
		return;
	}
	if (!n->adds && n->landing != n->expected) {
		types[n->type].combine((enum fi_op)n->op, &n->landing, operand, operand + n->count, &swap);
		n->expected = n->landing;
		if (swap != n->landing) {
			native_go(ep, op);
			return;
		}
	}
	*operand = n->landing;
	if (++n->at == n->count) {
		native_end(ep, op, 0);
		return;
	}
	n->expected = operand[1 + n->count];
	native_go(ep, op);
}

static int native_start(struct endpoint *ep, struct peer *p, const struct atomic *a, size_t count, uint32_t done)
{
	struct buf *b = buf_take(&ep->bounce);
	struct op *op = b ? new_op(ep, p, a, OP_NATIVE, done, b) : NULL;
	struct native *n;
	int err = -FI_EAGAIN;

	if (op) {
		n = native_of(op);
		memset(n, 0, sizeof(*n) + 2 * count * sizeof(*n->values));
		n->remote = a->remote;
		n->key = (uint32_t)a->key;
		n->count = (uint32_t)count;
		n->type = (uint8_t)a->type;
		n->op = (uint8_t)a->op;
		n->adds = a->op == FI_ATOMIC_READ || (a->op == FI_SUM && a->type <= FI_UINT64);
		gather((uint8_t *)n->values, a->iov, a->iovs, 8);
		gather((uint8_t *)(n->values + count), a->compare, a->compares, 8);
		n->expected = n->values[count];
		err = native_post(p, op);
		if (!err)
			return 0;
		op_drop(ep, op);
	}
	if (b)
		buf_give(&ep->bounce, b);
	return err;
}

/* ---- By message ---- */

/* A buffer that begins with the header. */
static struct buf *new_message(struct endpoint *ep, uint8_t kind, uint8_t flags, unsigned int segments, uint64_t tag)
{
	const struct wire wire = {kind, flags, (uint16_t)segments, tag};
	struct buf *b = buf_take(&ep->bounce);

	if (b) {
		memcpy(b->data, &wire, sizeof(wire));
		b->len = sizeof(wire);
		b->flags = 0;
	}
	return b;
}

/* There is room. */
static void post_message(struct peer *p, struct buf *b)
{
	struct ibv_sge sge = {(uintptr_t)b->data, b->len, b->lkey};
	struct slot *slot = peer_slot(p);

	slot->kind = SLOT_BUF;
	slot->what = b;
	inlay_post_send(&p->sq, &sge, 1, INLAY_SIGNALED | INLAY_RING);
}

static int message_start(struct endpoint *ep, struct peer *p, const struct atomic *a, size_t count, uint32_t done)
{
	const bool answer = (a->flags & FI_READ) || (a->flags & (FI_DELIVERY_COMPLETE | SILENT)) == FI_DELIVERY_COMPLETE;
	const uint8_t flags = (answer ? FLAG_HANDLE : 0) | (a->flags & FI_READ ? FLAG_FETCH : 0);
	const struct ask ask = {(uint32_t)a->key, (uint32_t)count};
	const size_t size = types[a->type].size;
	struct op *op = NULL;
	struct buf *b;
	uint8_t *to;

	if (!inlay_sq_room(&p->sq))
		return -FI_EAGAIN;
	b = new_message(ep, WIRE_ATOMIC, flags, (unsigned int)a->op << 8 | (unsigned int)a->type, a->remote);
	if (!b)
		return -FI_EAGAIN;
	to = b->data + sizeof(struct wire);
	if (answer) {
		op = new_op(ep, p, a, OP_ATOMIC, done, NULL);
		if (!op) {
			buf_give(&ep->bounce, b);
			return -FI_EAGAIN;
		}
		inlay_put64(to, op_handle(op));
		to += 8;
	} else {
		b->context = a->context;
		b->flags = done;
	}
	to = (uint8_t *)mempcpy(to, &ask, sizeof(ask));
	to = gather(gather(to, a->iov, a->iovs, size), a->compare, a->compares, size);
	b->len = (uint32_t)(to - b->data);
	post_message(p, b);
	return 0;
}

/* ---- At the peer ---- */

/* Writes the old values to old. Returns how many bytes, or a negative errno. */
static int carry_out(struct endpoint *ep, const struct message *m, uint8_t *old)
{
	const enum fi_datatype type = (enum fi_datatype)(m->segments & 255);
	const enum fi_op op = (enum fi_op)(m->segments >> 8);
	const unsigned int operands = op == FI_ATOMIC_READ ? 0 : compares(op) ? 2 : 1;
	const uint64_t access = (operands ? FI_REMOTE_WRITE : 0) |
				(!operands || m->flags & FLAG_FETCH ? FI_REMOTE_READ : 0);
	const uint8_t *v = m->payload + sizeof(struct ask);
	uint8_t *at = (uint8_t *)(uintptr_t)m->tag, *end;
	struct ask ask;
	size_t size, len;

	if (!most(type, op) || m->len < sizeof(ask))
		return -FI_EINVAL;
	memcpy(&ask, m->payload, sizeof(ask));
	size = types[type].size;
	len = ask.count * size;
	if (ask.count > most(type, op) || m->len != sizeof(ask) + operands * len || m->tag & ((size < 8 ? size : 8) - 1))
		return -FI_EINVAL;
	if (!mr_find(ep->domain, ask.key, m->tag, len, access))
		return -FI_EACCES;
	for (end = at + len; at < end; at += size, old += size, v += size) {
		memcpy(old, at, size);
		types[type].combine(op, old, operands ? v : old, operands == 2 ? v + len : old, at);
	}
	return (int)len;
}

static int asked(struct endpoint *ep, struct peer *p, const struct message *m)
{
	struct buf *b = new_message(ep, WIRE_ANSWER, m->flags & FLAG_FETCH, 0, m->handle);
	struct op *op;
	int n;

	if (!b)
		return -FI_EAGAIN;
	n = carry_out(ep, m, b->data + b->len);
	if (n < 0) {
		WARN(FI_LOG_EP_DATA, "an atomic operation of a peer is refused: %s\n", fi_strerror(-n));
		((struct wire *)(void *)b->data)->segments = (uint16_t)-n;
	} else if (m->flags & FLAG_FETCH) {
		b->len += (uint32_t)n;
	}
	if (!(m->flags & FLAG_HANDLE)) {
		buf_give(&ep->bounce, b);
	} else if (inlay_sq_room(&p->sq)) {
		post_message(p, b);
	} else if ((op = op_begin(ep, OP_ANSWER, p, NULL, 0))) {
		op->bounce = b;
		wait_for_room(ep, op);
	} else {
		WARN(FI_LOG_EP_DATA, "no memory for an answer\n");
		buf_give(&ep->bounce, b);
	}
	return 0;
}

int atomic_arrived(struct endpoint *ep, struct peer *p, const struct message *m)
{
	struct op *op;

	if (m->kind == WIRE_ATOMIC)
		return asked(ep, p, m);
	op = op_of(ep, m->tag);
	if (op && op->kind == OP_ATOMIC && op->peer == p) {
		if (!m->segments)
			message_scatter(op, m->payload, m->len < op->len ? m->len : op->len);
		op_end(ep, op, m->segments);
	}
	return 0;
}

void atomic_again(struct endpoint *ep, struct op *op)
{
	struct peer *p = op->peer;

	if (op->kind == OP_NATIVE) {
		native_go(ep, op);
	} else if (!peer_open_to(p)) {
		buf_give(&ep->bounce, op->bounce);
		op_give(ep, op);
	} else if (inlay_sq_room(&p->sq)) {
		post_message(p, op->bounce);
		op_give(ep, op);
	} else {
		wait_for_room(ep, op);
	}
}

/* ---- What the application calls ---- */

int atomic_query(struct fid_domain *fid, enum fi_datatype type, enum fi_op op, struct fi_atomic_attr *attr, uint64_t flags)
{
	attr->count = most(type, op);
	if (!attr->count || flags & FI_TAGGED || !(flags & FI_COMPARE_ATOMIC) == compares(op) ||
	    (op == FI_ATOMIC_READ && !(flags & FI_FETCH_ATOMIC)))
		return -FI_EOPNOTSUPP;
	attr->size = types[type].size;
	return 0;
}

static ssize_t atomic_any(struct endpoint *ep, const struct atomic *a)
{
	const uint32_t done = done_flags(ep, FI_ATOMIC | (a->flags & (FI_READ | FI_WRITE)), a->flags);
	const size_t count = a->iovs ? elements(a->iov, a->iovs) : elements(a->result, a->results);
	struct fi_atomic_attr attr;
	struct peer *p;
	int err;

	if (a->iovs > IOV_LIMIT || a->compares > IOV_LIMIT || a->results > IOV_LIMIT)
		return -FI_EINVAL;
	err = atomic_query(NULL, a->type, a->op, &attr, a->compares ? FI_COMPARE_ATOMIC : a->results ? FI_FETCH_ATOMIC : 0);
	if (err)
		return err;
	if (!count || count > attr.count || (a->compares && elements(a->compare, a->compares) != count) ||
	    (a->results && elements(a->result, a->results) != count))
		return -FI_EINVAL;
	p = peer_for(ep, a->addr, a->context, done, a->flags, &err);
	if (!p)
		return err;
	err = types[a->type].size == 8 && !(a->remote & 7) ? native_start(ep, p, a, count, done) : -FI_EOPNOTSUPP;
	return err == -FI_EOPNOTSUPP ? message_start(ep, p, a, count, done) : err;
}

static ssize_t atomic(struct fid_ep *fid, const struct fi_ioc *iov, size_t iovs, const struct fi_ioc *compare, size_t compares,
		      const struct fi_ioc *result, size_t results, fi_addr_t addr, uint64_t remote, uint64_t key,
		      enum fi_datatype type, enum fi_op op, void *context, uint64_t flags)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid);
	struct atomic a = {iov, compare, result, op == FI_ATOMIC_READ ? 0 : iovs, compares, results, addr, remote, key, type,
			   op, context, flags | (results ? FI_READ : FI_WRITE)};

	enter(ep);
	return leave(ep, atomic_any(ep, &a));
}

static ssize_t atomic_msg(struct fid_ep *fid, const struct fi_msg_atomic *m, const struct fi_ioc *compare, size_t compares,
			  const struct fi_ioc *result, size_t results, uint64_t flags)
{
	if (m->rma_iov_count != 1 || flags & FI_REMOTE_CQ_DATA)
		return -FI_EINVAL;
	return atomic(fid, m->msg_iov, m->iov_count, compare, compares, result, results, m->addr, m->rma_iov->addr,
		      m->rma_iov->key, m->datatype, m->op, m->context, flags);
}

static ssize_t write1(struct fid_ep *fid, const void *buf, size_t count, void *desc, fi_addr_t addr, uint64_t remote,
		      uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	struct fi_ioc v = {(void *)(uintptr_t)buf, count};

	return atomic(fid, &v, 1, NULL, 0, NULL, 0, addr, remote, key, type, op, context, tx_flags(fid));
}

static ssize_t writev1(struct fid_ep *fid, const struct fi_ioc *iov, void **desc, size_t count, fi_addr_t addr,
		       uint64_t remote, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	return atomic(fid, iov, count, NULL, 0, NULL, 0, addr, remote, key, type, op, context, tx_flags(fid));
}

static ssize_t writemsg(struct fid_ep *fid, const struct fi_msg_atomic *m, uint64_t flags)
{
	return atomic_msg(fid, m, NULL, 0, NULL, 0, flags);
}

static ssize_t inject(struct fid_ep *fid, const void *buf, size_t count, fi_addr_t addr, uint64_t remote, uint64_t key,
		      enum fi_datatype type, enum fi_op op)
{
	struct fi_ioc v = {(void *)(uintptr_t)buf, count};

	return atomic(fid, &v, 1, NULL, 0, NULL, 0, addr, remote, key, type, op, NULL, SILENT);
}

static ssize_t fetch(struct fid_ep *fid, const void *buf, size_t count, void *desc, void *result, void *result_desc,
		     fi_addr_t addr, uint64_t remote, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	struct fi_ioc v = {(void *)(uintptr_t)buf, count}, r = {result, count};

	return atomic(fid, &v, 1, NULL, 0, &r, 1, addr, remote, key, type, op, context, tx_flags(fid));
}

static ssize_t fetchv(struct fid_ep *fid, const struct fi_ioc *iov, void **desc, size_t count, struct fi_ioc *result,
		      void **result_desc, size_t results, fi_addr_t addr, uint64_t remote, uint64_t key,
		      enum fi_datatype type, enum fi_op op, void *context)
{
	return atomic(fid, iov, count, NULL, 0, result, results, addr, remote, key, type, op, context, tx_flags(fid));
}

static ssize_t fetchmsg(struct fid_ep *fid, const struct fi_msg_atomic *m, struct fi_ioc *result, void **result_desc,
			size_t results, uint64_t flags)
{
	return atomic_msg(fid, m, NULL, 0, result, results, flags);
}

static ssize_t compare1(struct fid_ep *fid, const void *buf, size_t count, void *desc, const void *compare,
			void *compare_desc, void *result, void *result_desc, fi_addr_t addr, uint64_t remote, uint64_t key,
			enum fi_datatype type, enum fi_op op, void *context)
{
	struct fi_ioc v = {(void *)(uintptr_t)buf, count}, c = {(void *)(uintptr_t)compare, count}, r = {result, count};

	return atomic(fid, &v, 1, &c, 1, &r, 1, addr, remote, key, type, op, context, tx_flags(fid));
}

static ssize_t comparev(struct fid_ep *fid, const struct fi_ioc *iov, void **desc, size_t count,
			const struct fi_ioc *compare, void **compare_desc, size_t compares, struct fi_ioc *result,
			void **result_desc, size_t results, fi_addr_t addr, uint64_t remote, uint64_t key,
			enum fi_datatype type, enum fi_op op, void *context)
{
	return atomic(fid, iov, count, compare, compares, result, results, addr, remote, key, type, op, context,
		      tx_flags(fid));
}

static ssize_t comparemsg(struct fid_ep *fid, const struct fi_msg_atomic *m, const struct fi_ioc *compare,
			  void **compare_desc, size_t compares, struct fi_ioc *result, void **result_desc, size_t results,
			  uint64_t flags)
{
	return atomic_msg(fid, m, compare, compares, result, results, flags);
}

#define VALID(name, kind) \
	static int name(struct fid_ep *fid, enum fi_datatype type, enum fi_op op, size_t *count) \
	{ \
		struct fi_atomic_attr attr; \
		int err = atomic_query(NULL, type, op, &attr, kind); \
\
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
