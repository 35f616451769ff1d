/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * atomic.c: fi_atomic, fi_fetch_atomic, fi_compare_atomic and their variants.
 *
 * The device executes types of 8 bytes, and of 4 if it has extended atomics, element by element:
 * integer sums by fetch-and-add, bit operations and swaps by masked atomics, all else by repeated
 * compare-and-swap. Other types go as messages. The README says what is atomic to what.
 *
 * Either way an operation is stored as the message that it is or could be. The answer has the same
 * layout, with an errno in place of op and type, and the old values in place of the operands.
 */
#include "message.h"
#include <complex.h>

struct request {
	uint64_t landing;         /* of the device's old values. What follows is the message */
	struct wire wire;         /* segments: op << 8 | type; tag: the remote address */
	uint64_t handle;          /* of the answer, if FLAG_ANSWER asks for one */
	struct target {
		uint32_t key, count;
	} target;
	uint8_t values[];         /* operands, then what they are compared with */
} __attribute__((packed));

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
#define INTEGER(X, name) X(name, name##_t, uint64_t, ORDERED BITS(name##_t))

/* In the order of enum fi_datatype: name, type, type to calculate in, operations beside ANY. */
#define TYPES(X) \
	INTEGER(X, int8) INTEGER(X, uint8) INTEGER(X, int16) INTEGER(X, uint16) \
	INTEGER(X, int32) INTEGER(X, uint32) INTEGER(X, int64) INTEGER(X, uint64) \
	X(float, float, float, ORDERED) \
	X(double, double, double, ORDERED) \
	X(float_complex, float complex, float complex, ) \
	X(double_complex, double complex, double complex, ) \
	X(long_double, long double, long double, ORDERED) \
	X(long_double_complex, long double complex, long double complex, )

/* Applies op to old. False: the type has no such op. */
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

/* The most elements of a call: a bounce buffer holds operands, comparands and header. 0: none. */
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

static struct request *request_of(const struct op *op)
{
	return (struct request *)(void *)op->bounce->data;
}

/* ---- At the caller ---- */

static size_t size_of(const struct request *r)
{
	return types[r->wire.segments & 255].size;
}

/* The new value of the current element, if its old value is `old`. */
static uint64_t native_next(const struct op *op, uint64_t old)
{
	const struct request *r = request_of(op);
	const uint8_t *operand = r->values + size_of(r) * op->asked;
	uint64_t next = 0;

	types[r->wire.segments & 255].combine((enum fi_op)(r->wire.segments >> 8), &old, operand,
					      operand + size_of(r) * r->target.count, &next);
	return next;
}

/* The current element's comparand or mask; 0 if there is none. */
static uint64_t native_compare(const struct op *op)
{
	const struct request *r = request_of(op);
	uint64_t compare = 0;

	if (compares((enum fi_op)(r->wire.segments >> 8)))
		memcpy(&compare, r->values + size_of(r) * (op->asked + r->target.count), size_of(r));
	return compare;
}

/* How the device executes an operation. able: what both sides' devices can do. */
static uint8_t step_of(enum fi_datatype type, enum fi_op op, uint8_t able)
{
	if (op == FI_ATOMIC_READ || (op == FI_SUM && type <= FI_UINT64))
		return STEP_ADD;
	if (types[type].size == 8 && !(able & ABLE_MASKED_8))
		return STEP_COMPARE;
	return op == FI_BXOR ? STEP_XOR :
	       op == FI_BOR || op == FI_BAND || op == FI_ATOMIC_WRITE || op == FI_MSWAP ? STEP_BITS : STEP_COMPARE;
}

/* Posts a step to the device, whose answer goes to the start of the request. 0 or -FI_EAGAIN. */
static int post_step(struct peer *p, const struct op *op)
{
	const struct request *r = request_of(op);
	const enum fi_op what = (enum fi_op)(r->wire.segments >> 8);
	const uint32_t size = (uint32_t)size_of(r), flags = INLAY_SIGNALED | INLAY_RING;
	const struct inlay_wr wr = {.raddr = r->wire.tag + size * op->asked, .rkey = r->target.key,
				    .to = settings.dc ? &p->target : NULL,
				    .data = r, .len = size, .lkey = op->bounce->lkey};
	struct inlay_atomic todo;
	uint64_t v = 0;

	if (op->step == STEP_COMPARE)
		v = native_next(op, op->data);
	else if (what != FI_ATOMIC_READ)
		memcpy(&v, r->values + size * op->asked, size);
	if (op->step == STEP_ADD)
		todo = size == 8 ? inlay_atomic_add(v) : inlay_masked_add(v, 0);
	else if (op->step == STEP_COMPARE)
		todo = size == 8 ? inlay_atomic_cmp_swap(op->data, v) :
				   inlay_masked_cmp_swap(op->data, UINT64_MAX, v, UINT64_MAX);
	else
		todo = op->step == STEP_XOR ? inlay_masked_add(v, ~(uint64_t)0) :
		       what == FI_BOR ? inlay_masked_swap(v, v) :
		       what == FI_BAND ? inlay_masked_swap(v, ~v) :
		       inlay_masked_swap(v, what == FI_MSWAP ? native_compare(op) : UINT64_MAX);
	return inlay_post_atomic(&p->sq, todo, &wr, flags);
}

/* Posts the message, which ends an OP_MESSAGE, or the device's next step. 0 or -FI_EAGAIN. */
static int post(struct peer *p, struct op *op)
{
	struct request *r = request_of(op);
	struct slot next = {op, SLOT_OP, 0}, *slot;
	int err;

	if (op->kind != OP_NATIVE) {
		err = bounced_send(p, &r->wire, op->bounce->len, NULL, 0, op->context, op->kind == OP_MESSAGE ? (uint32_t)op->flags : 0);
		if (!err && op->kind == OP_MESSAGE)
			op_drop(p->ep, op);
		return err;
	}
	if (peer_begin(p))
		return -FI_EAGAIN;
	slot = peer_slot(p);
	err = post_step(p, op);
	if (!err)
		*slot = next;
	return err;
}

void atomic_again(struct endpoint *ep, struct op *op)
{
	struct peer *p = op->peer;
	int err = peer_open_to(p) ? post(p, op) : p->err ? -p->err : -FI_ECONNRESET;

	if (err == -FI_EAGAIN)
		wait_for_room(ep, op);
	else if (err)
		op_end(ep, op, -err);
}

void atomic_step(struct endpoint *ep, struct op *op, int err)
{
	struct request *r = request_of(op);
	const uint64_t expected = op->data;
	const uint32_t size = (uint32_t)size_of(r);
	const bool extended = size == 4 || op->step == STEP_XOR || op->step == STEP_BITS;

	op->data = extended ? inlay_atomic_answer(&ep->domain->atomics, &r->landing, size) : r->landing;
	if (err || op->step != STEP_COMPARE || op->data == expected || native_next(op, op->data) == op->data) {
		memcpy(r->values + size * op->asked, &op->data, size);
		op->asked += !err;
		op->data = native_compare(op); /* a guess. A wrong one costs one more step */
	}
	if (op->asked == r->target.count)
		message_scatter(op, r->values, op->len);
	if (err || op->asked == r->target.count)
		op_end(ep, op, err);
	else
		atomic_again(ep, op);
}

static int start(struct endpoint *ep, struct peer *p, const struct atomic *a, size_t count, uint32_t done)
{
	const bool fetch = (a->flags & FI_READ) != 0;
	const bool answer = fetch || (a->flags & (FI_DELIVERY_COMPLETE | SILENT)) == FI_DELIVERY_COMPLETE;
	const uint8_t flags = WIRE_ATOMIC | FLAG_HANDLE | (answer ? FLAG_ANSWER : 0) | (fetch ? FLAG_FETCH : 0);
	const uint16_t what = (uint16_t)((unsigned int)a->op << 8 | (unsigned int)a->type);
	const size_t size = types[a->type].size;
	const uint8_t need = size == 8 ? ABLE_8 : size == 4 ? ABLE_4 : 0;
	const bool native = p->able & need && !(a->remote & (size - 1));
	struct request *r;
	struct op *op;
	int err;

	if (native && !(ep->domain->able & need))
		return -FI_EOPNOTSUPP;
	op = op_with_buf(ep, native ? OP_NATIVE : answer ? OP_ATOMIC : OP_MESSAGE, p, a->context, done);
	if (!op)
		return -FI_EAGAIN;
	op->len = a->results ? count * size : 0;
	op->iovs = (uint8_t)a->results;
	for (size_t i = 0; i < a->results; i++)
		op->iov[i] = (struct iovec){a->result[i].addr, a->result[i].count * size};
	op->buf = (uint8_t *)op->iov[0].iov_base;
	op->step = step_of(a->type, a->op, p->able & ep->domain->able);
	op->asked = 0;
	r = request_of(op);
	*r = (struct request){0, {0, flags, what, a->remote}, op_handle(op), {(uint32_t)a->key, (uint32_t)count}};
	op->bounce->len = (uint32_t)(gather(gather(r->values, a->iov, a->iovs, size), a->compare, a->compares, size) -
				     (uint8_t *)&r->wire);
	if (native)
		op->data = native_compare(op);
	err = post(p, op);
	if (err)
		op_drop(ep, op);
	return err;
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
	const uint8_t *v = m->payload + sizeof(struct target);
	uint8_t *at = (uint8_t *)(uintptr_t)m->tag, *end;
	struct target target;
	size_t size, len;

	if (!most(type, op) || m->len < sizeof(target))
		return -FI_EINVAL;
	memcpy(&target, m->payload, sizeof(target));
	size = types[type].size;
	len = target.count * size;
	if (target.count > most(type, op) || m->len != sizeof(target) + operands * len || m->tag & ((size < 8 ? size : 8) - 1))
		return -FI_EINVAL;
	if (!mr_find(ep->domain, target.key, m->tag, len, access))
		return -FI_EACCES;
	for (end = at + len; at < end; at += size, old += size, v += size) {
		memcpy(old, at, size);
		types[type].combine(op, old, operands ? v : old, operands == 2 ? v + len : old, at);
	}
	return (int)len;
}

static int asked(struct endpoint *ep, struct peer *p, const struct message *m)
{
	struct op *op = op_with_buf(ep, OP_MESSAGE, p, NULL, 0);
	struct request *r;
	int n;

	if (!op)
		return -FI_EAGAIN;
	r = request_of(op);
	n = carry_out(ep, m, r->values);
	if (n < 0)
		WARN(FI_LOG_EP_DATA, "an atomic operation of a peer is refused: %s\n", fi_strerror(-n));
	*r = (struct request){0, {0, WIRE_ANSWER | FLAG_HANDLE, (uint16_t)(n < 0 ? -n : 0), 0}, m->handle, {0, 0}};
	op->bounce->len = (uint32_t)(sizeof(*r) - sizeof(r->landing) + (n > 0 && m->flags & FLAG_FETCH ? (size_t)n : 0));
	if (m->flags & FLAG_ANSWER)
		atomic_again(ep, op);
	else
		op_drop(ep, op);
	return 0;
}

int atomic_arrived(struct endpoint *ep, struct peer *p, const struct message *m)
{
	const size_t len = m->len - sizeof(struct target);
	struct op *op;

	if (m->kind == WIRE_ATOMIC)
		return asked(ep, p, m);
	op = op_of(ep, m->handle);
	if (op && op->kind == OP_ATOMIC && op->peer == p && m->len >= sizeof(struct target)) {
		if (!m->segments)
			message_scatter(op, m->payload + sizeof(struct target), len < op->len ? len : op->len);
		op_end(ep, op, m->segments);
	}
	return 0;
}

/* ---- Calls of the application ---- */

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
	const uint64_t kind = a->compares ? FI_COMPARE_ATOMIC : a->results ? FI_FETCH_ATOMIC : 0;
	const size_t count = a->iovs ? elements(a->iov, a->iovs) : elements(a->result, a->results);
	struct fi_atomic_attr attr;
	struct peer *p;
	int err;

	if (a->iovs > IOV_LIMIT || a->compares > IOV_LIMIT || a->results > IOV_LIMIT)
		return -FI_EINVAL;
	err = atomic_query(NULL, a->type, a->op, &attr, kind);
	if (err)
		return err;
	if (!count || count > attr.count || (a->compares && elements(a->compare, a->compares) != count) ||
	    (a->results && elements(a->result, a->results) != count))
		return -FI_EINVAL;
	p = peer_for(ep, a->addr, a->context, done, a->flags, &err);
	if (!p)
		return err;
	return start(ep, p, a, count, done);
}

#define TARGET fi_addr_t addr, uint64_t remote, uint64_t key, enum fi_datatype type, enum fi_op op

static ssize_t atomic(struct fid_ep *fid, const struct fi_ioc *iov, size_t iovs, const struct fi_ioc *compare,
		      size_t compares, const struct fi_ioc *result, size_t results, TARGET, void *context,
		      uint64_t flags)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid);
	struct atomic a = {iov, compare, result, op == FI_ATOMIC_READ ? 0 : iovs, compares, results, addr, remote, key,
			   type, op, context, flags | (results ? FI_READ : FI_WRITE)};

	enter(ep);
	a.flags |= flags & OF_ENDPOINT ? ep->tx_flags : 0;
	return leave_post(ep, atomic_any(ep, &a));
}

#define MSG struct fid_ep *fid, const struct fi_msg_atomic *m
#define IOV struct fid_ep *fid, const struct fi_ioc *iov, void **desc, size_t n
#define COMPARE const struct fi_ioc *compare, void **compare_desc, size_t compares
#define RESULT struct fi_ioc *result, void **result_desc, size_t results

static ssize_t comparemsg(MSG, COMPARE, RESULT, uint64_t flags)
{
	if (m->rma_iov_count != 1 || flags & FI_REMOTE_CQ_DATA)
		return -FI_EINVAL;
	return atomic(fid, m->msg_iov, m->iov_count, compare, compares, result, results, m->addr, m->rma_iov->addr,
		      m->rma_iov->key, m->datatype, m->op, m->context, flags);
}

CALL(fetchmsg, (MSG, RESULT, uint64_t flags), comparemsg(fid, m, NULL, NULL, 0, result, NULL, results, flags))
CALL(writemsg, (MSG, uint64_t flags), comparemsg(fid, m, NULL, NULL, 0, NULL, NULL, 0, flags))
CALL(comparev, (IOV, COMPARE, RESULT, TARGET, void *context),
     atomic(fid, iov, n, compare, compares, result, results, addr, remote, key, type, op, context, OF_ENDPOINT))
CALL(fetchv, (IOV, RESULT, TARGET, void *context),
     atomic(fid, iov, n, NULL, 0, result, results, addr, remote, key, type, op, context, OF_ENDPOINT))
CALL(writev1, (IOV, TARGET, void *context),
     atomic(fid, iov, n, NULL, 0, NULL, 0, addr, remote, key, type, op, context, OF_ENDPOINT))

#define BUF struct fid_ep *fid, const void *buf, size_t count
#define IOC(buf) &(struct fi_ioc){(void *)(uintptr_t)(buf), count}, 1

CALL(compare1, (BUF, void *desc, const void *compare, void *compare_desc, void *result, void *result_desc, TARGET, void *context),
     atomic(fid, IOC(buf), IOC(compare), IOC(result), addr, remote, key, type, op, context, OF_ENDPOINT))
CALL(fetch, (BUF, void *desc, void *result, void *result_desc, TARGET, void *context),
     atomic(fid, IOC(buf), NULL, 0, IOC(result), addr, remote, key, type, op, context, OF_ENDPOINT))
CALL(write1, (BUF, void *desc, TARGET, void *context),
     atomic(fid, IOC(buf), NULL, 0, NULL, 0, addr, remote, key, type, op, context, OF_ENDPOINT))
CALL(inject, (BUF, TARGET), atomic(fid, IOC(buf), NULL, 0, NULL, 0, addr, remote, key, type, op, NULL, SILENT))

#define VALID(name, kind) \
	static int name(struct fid_ep *fid, enum fi_datatype type, enum fi_op op, size_t *count) \
	{ \
		*count = most(type, op); \
		return atomic_query(NULL, type, op, &(struct fi_atomic_attr){0, 0}, kind); \
	}

VALID(write_valid, 0)
VALID(fetch_valid, FI_FETCH_ATOMIC)
VALID(compare_valid, FI_COMPARE_ATOMIC)

struct fi_ops_atomic atomic_ops = {sizeof(struct fi_ops_atomic), write1, writev1, writemsg, inject, fetch, fetchv,
	fetchmsg, compare1, comparev, comparemsg, write_valid, fetch_valid, compare_valid};
