/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rx.c: the responder.
 *
 * It executes requests in the order of their PSN. A request that finds no receive WQE is answered
 * with RNR; all that follow are dropped until it comes again, as on the wire. Where a NIC would
 * send no answer (no such QP, wrong state, wrong PSN), it answers RP_UNREACH. The requester counts
 * that as a lost packet and need not wait for a timer.
 *
 * UC has no answers. A message may start with any PSN. Only the last PSN is remembered, and a
 * second copy of that message is dropped. A message that cannot be taken (no receive WQE, too long,
 * bad key, missing right) is lost and stops nothing. The QP stops for faults of its own, as with
 * RC: a receive WQE that cannot be read, or that names memory which cannot be written.
 */
#include <errno.h>
#include <string.h>
#include "eng.h"

void rx_fail(struct rcq *q, const enum ibv_event_type *event)
{
	/* It ends the connection and the DCI, and the DCT goes on with others */
	if (q->qp->type == SD_QPT_DCT) {
		q->nak_fatal = true;
		q->in_msg = false;
		return;
	}
	if (event && !q->err)
		sd_up.async_qp(q->qp, *event);
	/* A QP connected to itself: its failing request gets its own CQE first, and stops the QP then */
	if (q != eng_self)
		sq_enter_err(q);
}

static enum reply fail_event(struct rcq *q, enum reply r)
{
	enum ibv_event_type event = r == RP_ACCESS ? IBV_EVENT_QP_ACCESS_ERR : r == RP_INVAL ? IBV_EVENT_QP_REQ_ERR : IBV_EVENT_QP_FATAL;

	rx_fail(q, &event);
	return r;
}

/* A request that asks for what it may not have */
static enum reply refuse(struct rcq *q, enum reply r)
{
	if (reliable(q->qp))
		return fail_event(q, r);
	q->in_msg = false;
	return r;
}

/* The failing message had taken a receive WQE: its CQE tells */
static enum reply fail_recv(struct rcq *q, enum reply r, uint8_t synd, uint8_t vendor)
{
	rx_error(q, synd, vendor);
	rx_fail(q, NULL);
	return r;
}

void rx_error(struct rcq *q, uint8_t synd, uint8_t vendor)
{
	if (tm_cq(q->qp)) {
		tm_error(q, synd, vendor);
		return;
	}
	cqe_error(q->qp->recv_cq, q, true, 0, q->wqe_idx, synd, vendor);
	q->wqe_held = false;
}

void rx_access_fault(struct rcq *q)
{
	fail_event(q, RP_ACCESS);
}

/* ---- receive WQEs ---- */

#define PATIENCE 30000000ull    /* ns */

static bool rq_empty(struct rcq *q)
{
	if (q->wqe_held)
		return false;
	if (q->qp->srq)
		return srq_empty(q->qp->srq);
	return !q->qp->rq || (be32toh(__atomic_load_n(&q->qp->dbrec[0], __ATOMIC_ACQUIRE)) & 0xffff) == q->rq_ci;
}

/* Data segments up to the stride's end or to the one with the invalid key */
void rx_scatter(struct rcq *q, const struct mlx5_wqe_data_seg *d, unsigned max)
{
	unsigned i;

	q->rx.n = 0;
	q->rx.total = 0;
	for (i = 0; i < max; i++) {
		uint32_t len = be32toh(d[i].byte_count), key = be32toh(d[i].lkey);

		if (key == MLX5_INVALID_LKEY)
			break;
		len = len ? len & 0x7fffffff : 1u << 31;
		q->rx.s[q->rx.n++] = (struct seg){ be64toh(d[i].addr), len, key, NULL };
		q->rx.total += len;
	}
}

/*
 * Out of order, messages take WQEs in the order in which they arrive, which here is any: one of the
 * first few that are left. None is passed over for so long that a program which posts half a ring at
 * a time would write it again.
 */
#define AHEAD 8u

static unsigned any_of(struct rcq *q, unsigned posted)
{
	unsigned most = q->qp->rq_cnt / 2 < AHEAD ? q->qp->rq_cnt / 2 : AHEAD, free[AHEAD], n = 0, i;

	for (i = 0; i < most && i < posted; i++)
		if (!(q->early >> i & 1))
			free[n++] = i;
	if (!n)
		return 0;
	q->random = q->random * 1664525 + 1013904223;
	return free[(q->random >> 8) % n];
}

static void taken(struct rcq *q, unsigned ahead)
{
	for (q->early |= 1u << ahead; q->early & 1; q->early >>= 1)
		q->rq_ci++;
}

int rx_take(struct rcq *q)
{
	struct sd_qp *qp = q->qp;
	struct mlx5_wqe_data_seg d[ENG_SEGS];
	struct iovec v[2], w;
	uint16_t posted;
	unsigned max, at, ahead, skip = qp->linked || qp->strides.log_size ? sizeof(struct mlx5_wqe_srq_next_seg) : 0;
	struct mlx5_wqe_srq_next_seg next;

	/* Taken for a message that did not come to its end */
	if (q->wqe_held)
		return 0;
	if (qp->srq)
		return srq_take(q);
	if (rq_empty(q))
		return RX_NONE;
	posted = (be32toh(__atomic_load_n(&qp->dbrec[0], __ATOMIC_ACQUIRE)) & 0xffff) - q->rq_ci;
	if (posted > qp->rq_cnt)
		return RX_BAD;
	ahead = qp->ordering == SD_OOO_ALL ? any_of(q, posted) : 0;
	at = qp->linked ? q->rq_head : (q->rq_ci + ahead) & (qp->rq_cnt - 1);
	if (at >= qp->rq_cnt)
		return RX_BAD;
	max = ((1u << qp->rq_shift) - skip) / sizeof d[0];
	max = max < ENG_SEGS ? max : ENG_SEGS;
	v[0] = (struct iovec){ &next, skip };
	v[1] = (struct iovec){ d, max * sizeof d[0] };
	w = (struct iovec){ qp->rq + ((size_t)at << qp->rq_shift), skip + v[1].iov_len };
	if (mem_copy(v + !skip, skip ? 2 : 1, &w, 1, w.iov_len) != MEM_OK)
		return RX_BAD;
	rx_scatter(q, d, max);
	q->wqe_idx = qp->linked ? at : q->rq_ci + ahead;
	q->rq_head = qp->linked ? be16toh(next.next_wqe_index) : 0;
	taken(q, ahead);
	q->stride = 0;
	q->wqe_held = true;
	q->starves = 0;
	return 0;
}

/*
 * A message of UC or UD, or a packet, that finds no receive WQE is lost. But a program that has to share a
 * processor with its own device and with its peer's would lose what it never loses beside an
 * adapter, so one that comes from another process waits for the program to have had its turn. Once:
 * after that, all are lost until there is a receive WQE again.
 */
static bool starves(const struct sd_qp *qp, enum ibv_qp_type type)
{
	struct rcq *q = qp ? qp->eng : NULL;
	uint64_t now;

	if (!q || q->err || qp->type != type || qp->state < IBV_QPS_RTR || qp->state > IBV_QPS_SQE || !rq_empty(q))
		return false;
	now = eng_now();
	q->starves = q->starves ? q->starves : now;
	return now - q->starves < PATIENCE;
}

bool rx_starves(const struct frame *f)
{
	struct rcq *q;
	struct sd_qp *qp;

	/* A packet names nobody: it waits for all that could receive it */
	if (f->kind == FR_RAW) {
		for (q = eng_all; q; q = q->next)
			if ((q->qp->rq || q->qp->wq) && starves(q->qp, IBV_QPT_RAW_PACKET))
				return true;
		return false;
	}
	qp = f->dst == UD_MCAST ? NULL : sd_qp_find(f->dst);
	if (f->kind == FR_UD)
		return starves(qp, IBV_QPT_UD);
	return f->kind == FR_REQ && !f->off && f->opcode != MLX5_OPCODE_RDMA_WRITE && starves(qp, IBV_QPT_UC);
}

static void recv_cqe(struct rcq *q, const struct frame *f, uint8_t opcode, const uint8_t *data)
{
	struct sd_qp *qp = q->qp;
	struct sd_cq *tm = tm_cq(qp);
	uint8_t data64[64], format = 0;
	struct mlx5_cqe64 c;

	memset(&c, 0, sizeof c);
	if (data && qp->scatter_rsp == 64) {
		memset(data64, 0, sizeof data64);
		memcpy(data64, data, f->total);
		format = 8;
	} else if (data) {
		memcpy(&c, data, f->total);
		format = 4;
	}
	/* A DCT is told whom to answer */
	if (qp->type == SD_QPT_DCT) {
		c.slid = htobe16(f->slid);
		c.flags_rqpn = htobe32(f->src);
	}
	c.srqn_uidx = htobe32(tm ? qp->srq->uidx : qp->uidx);
	c.imm_inval_pkey = f->opcode == MLX5_OPCODE_SEND || f->opcode == MLX5_OPCODE_RDMA_WRITE ? 0 : f->imm;
	c.byte_cnt = htobe32(f->total);
	c.timestamp = htobe64(eng_now());
	c.sop_drop_qpn = htobe32(qp->qpn);
	c.wqe_counter = htobe16(q->wqe_idx);
	c.op_own = opcode << 4 | format | (f->solicited ? 2 : 0);
	q->wqe_held = false;
	cqe_put(tm ? tm : qp->recv_cq, tm ? (void *)qp->srq->tm : q, &c, format == 8 ? data64 : NULL, f->solicited);
}

/*
 * A message in several frames: each must continue the one before, else it belongs to an attempt
 * that has been answered
 */
static bool continues(struct rcq *q, const struct frame *f)
{
	return q->in_msg && q->msg_op == f->opcode && q->msg_off == f->off && (q->qp->type != IBV_QPT_UC || q->uc_psn == f->psn);
}

static enum reply advance(struct rcq *q, const struct frame *f)
{
	q->msg_off += f->len;
	if (q->msg_off < f->total)
		return RP_MORE;
	q->in_msg = false;
	q->rpsn = (q->rpsn + 1) & 0xffffff;
	return RP_ACK;
}

static void begin(struct rcq *q, const struct frame *f)
{
	q->in_msg = true;
	q->msg_op = f->opcode;
	q->msg_off = 0;
}

/* Nothing to receive it with */
static enum reply not_ready(struct rcq *q)
{
	struct sd_counters *c = sd_counters(q->qp);

	if (c)
		c->no_buffer++;
	q->in_msg = false;
	q->nak_wait = reliable(q->qp);
	return RP_RNR;
}

/* The pieces after the first skip bytes */
static const struct iovec *after(const struct iovec *v, unsigned *n, size_t skip, struct iovec part[ENG_IOVS])
{
	unsigned i = 0;

	while (i < *n && skip >= v[i].iov_len)
		skip -= v[i++].iov_len;
	*n -= i;
	memcpy(part, v + i, *n * sizeof *part);
	if (*n)
		part[0] = (struct iovec){ (char *)part[0].iov_base + skip, part[0].iov_len - skip };
	return part;
}

static enum reply rx_send(struct rcq *q, const struct frame *f, const struct iovec *src, unsigned ns)
{
	struct sd_qp *qp = q->qp;
	bool tm = tm_cq(qp);
	struct iovec dst[ENG_IOVS], part[ENG_IOVS];
	const struct seglist *to;
	uint8_t small[64], opcode;
	uint64_t off, len, total;
	unsigned nd, skip;
	enum reply r;
	bool to_cqe, sig, whole;

	if (f->off == 0) {
		q->in_msg = false;
		switch (tm ? tm_begin(q, f, src, ns) : rx_take(q)) {
		case RX_NONE:
			return not_ready(q);
		case RX_BAD:
			return fail_event(q, RP_OPERR);
		case RX_SRC:
			return RP_SRC_FAULT;
		case RX_KEY:
			return fail_recv(q, RP_OPERR, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x51);
		}
		if (f->opcode == MLX5_OPCODE_SEND_INVAL && window_invalid(qp, be32toh(f->imm)))
			return fail_event(q, RP_ACCESS);
		if (sig_in(qp, &q->rx, false) && !sig_wire(qp, &q->rx, false, &q->rx.total))
			return fail_recv(q, RP_OPERR, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x51);
		if (f->total > q->rx.total && qp->type == IBV_QPT_UC)
			return refuse(q, RP_INVAL);
		if (tm && q->tm.tagged ? f->total - q->tm.skip > q->tm.to.total : f->total > q->rx.total)
			return fail_recv(q, RP_INVAL, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, 0x6b);
		begin(q, f);
	} else if (!continues(q, f)) {
		return RP_STALE;
	}
	/* The header of a message that goes to a tagged buffer stays out of it */
	skip = tm && q->tm.tagged ? q->tm.skip : 0;
	to = tm && q->tm.tagged ? &q->tm.to : &q->rx;
	total = f->total - skip;
	off = f->off ? f->off - skip : 0;
	len = f->off ? f->len : f->len - skip;
	if (skip && !f->off)
		src = after(src, &ns, skip, part);
	/* With signatures, and for strides, the message is put together first */
	sig = !tm && sig_in(qp, to, false);
	whole = sig || tm_strides(q);
	if (whole) {
		uint8_t *stage = off ? q->stage : sig_stage(q, total);

		dst[0] = (struct iovec){ stage + off, len };
		nd = 1;
	}
	if (whole ? !dst[0].iov_base : !mem_vec(qp, to, off, len, IBV_ACCESS_LOCAL_WRITE, dst, &nd))
		return fail_recv(q, RP_OPERR, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x51);
	/* Scattered to the CQE, the payload does not go to memory at all: libmlx5 copies it there */
	to_cqe = !whole && total && total == len && total <= qp->scatter_rsp && (!tm || tm_inline(q, total));
	if (to_cqe) {
		dst[0] = (struct iovec){ small, len };
		nd = 1;
	}
	switch (mem_copy(dst, nd, src, ns, len)) {
	case MEM_SRC:
		return RP_SRC_FAULT;
	case MEM_DST:
		return fail_recv(q, RP_OPERR, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x52);
	}
	if (sig && off + len == total && sig_scatter(q, to, false, q->stage, total) != MEM_OK)
		return fail_recv(q, RP_OPERR, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x52);
	if (tm)
		tm_taken(q);
	opcode = f->opcode == MLX5_OPCODE_SEND_IMM ? MLX5_CQE_RESP_SEND_IMM :
		 f->opcode == MLX5_OPCODE_SEND_INVAL ? MLX5_CQE_RESP_SEND_INV : MLX5_CQE_RESP_SEND;
	if (whole && !sig && off + len == total) {
		int got = tm_scatter(q, f, opcode);

		if (got == RX_NONE)
			return not_ready(q);
		if (got == RX_BAD)
			return fail_event(q, RP_OPERR);
		if (got) {
			r = got == RX_LONG ? fail_recv(q, RP_INVAL, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, 0x6b) :
					     fail_recv(q, RP_OPERR, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x51);
			srq_put_strides(q);
			return r;
		}
	}
	r = advance(q, f);
	/* The key may have gone meanwhile; it goes now, before the program is told */
	if (r == RP_ACK && f->opcode == MLX5_OPCODE_SEND_INVAL) {
		if (window_invalid(qp, be32toh(f->imm)))
			return fail_event(q, RP_ACCESS);
		window_free(sd_mr_find(be32toh(f->imm), true));
	}
	if (r == RP_ACK)
		(tm ? tm_done : recv_cqe)(q, f, opcode, to_cqe ? small : NULL);
	return r;
}

/* What a request names of this side's memory, as a list of one */
static struct seglist remote_list(const struct frame *f)
{
	struct seglist l;

	l.n = f->total ? 1 : 0;
	l.total = f->total;
	l.s[0] = (struct seg){ f->raddr, f->total, f->rkey, NULL };
	return l;
}

static enum reply rx_write(struct rcq *q, const struct frame *f, const struct iovec *src, unsigned ns)
{
	bool imm = f->opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
	struct sd_qp *qp = q->qp;
	struct seglist l = remote_list(f);
	bool sig = sig_in(qp, &l, true);
	struct iovec dst[ENG_IOVS];
	uint64_t wire;
	enum reply r;
	unsigned nd;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE))
		return refuse(q, RP_INVAL);
	if (f->off == 0) {
		q->in_msg = false;
		if (sig ? !sig_wire(qp, &l, true, &wire) || wire != f->total || !sig_stage(q, wire) :
		    f->total && !mem_ok(qp, f->rkey, f->raddr, f->total, IBV_ACCESS_REMOTE_WRITE))
			return refuse(q, RP_ACCESS);
		begin(q, f);
	} else if (!continues(q, f)) {
		return RP_STALE;
	}
	/* The receive WQE is needed only at the end; looking at once saves writing twice */
	if (imm && rq_empty(q))
		return not_ready(q);
	if (sig && f->len) {
		dst[0] = (struct iovec){ q->stage + f->off, f->len };
		if (mem_copy(dst, 1, src, ns, f->len) != MEM_OK)
			return RP_SRC_FAULT;
		if (f->off + f->len == f->total && sig_scatter(q, &l, true, q->stage, f->total) != MEM_OK)
			return refuse(q, RP_ACCESS);
	} else if (f->len) {
		/* Again for each piece: the key may have gone meanwhile */
		if (!mem_pieces(qp, f->rkey, f->raddr + f->off, f->len, IBV_ACCESS_REMOTE_WRITE, dst, &nd))
			return refuse(q, RP_ACCESS);
		switch (mem_copy_in_order(qp->ordering == SD_IN_ORDER, dst, nd, src, ns, f->len)) {
		case MEM_SRC:
			return RP_SRC_FAULT;
		case MEM_DST:
			return refuse(q, RP_ACCESS);
		}
	}
	r = advance(q, f);
	if (r == RP_ACK && imm) {
		if (rx_take(q) != 0)
			return fail_event(q, RP_OPERR);
		recv_cqe(q, f, MLX5_CQE_RESP_WR_IMM, NULL);
	}
	return r;
}

static enum reply rx_read(struct rcq *q, const struct frame *f, struct rx_out *out)
{
	struct sd_qp *qp = q->qp;
	struct seglist l = remote_list(f);
	bool sig = sig_in(qp, &l, true);
	const uint8_t *bytes;
	uint64_t wire;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) || !qp->attr.max_dest_rd_atomic)
		return fail_event(q, RP_INVAL);
	if (f->off == 0) {
		q->in_msg = false;
		if (sig ? !sig_wire(qp, &l, true, &wire) || wire != f->total :
		    f->total && !mem_ok(qp, f->rkey, f->raddr, f->total, IBV_ACCESS_REMOTE_READ))
			return fail_event(q, RP_ACCESS);
		begin(q, f);
	} else if (!continues(q, f)) {
		return RP_STALE;
	}
	out->n = 0;
	/* For another process it is asked for as a whole, and read piece by piece afterwards */
	if (sig && f->len && f->len <= ENG_CHUNK_LOCAL) {
		bytes = sig_read(q, &l);
		if (!bytes)
			return fail_event(q, RP_ACCESS);
		out->v[out->n++] = (struct iovec){ (void *)(bytes + f->off), f->len };
	} else if (f->len && f->len <= ENG_CHUNK_LOCAL &&
		   !mem_pieces(qp, f->rkey, f->raddr + f->off, f->len, IBV_ACCESS_REMOTE_READ, out->v, &out->n)) {
		return fail_event(q, RP_ACCESS);
	}
	return advance(q, f);
}

static enum reply rx_atomic(struct rcq *q, const struct frame *f, struct rx_out *out)
{
	struct sd_qp *qp = q->qp;
	struct iovec v[ENG_IOVS];
	uint8_t *p;
	unsigned n;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) || !qp->attr.max_dest_rd_atomic || f->raddr & 7)
		return fail_event(q, RP_INVAL);
	if (!mem_pieces(qp, f->rkey, f->raddr, 8, IBV_ACCESS_REMOTE_ATOMIC, v, &n))
		return fail_event(q, RP_ACCESS);
	p = v[0].iov_base;
	if (n != 1 || (uintptr_t)p & 7)
		return fail_event(q, RP_INVAL);
	if (mem_atomic(p, f->opcode == MLX5_OPCODE_ATOMIC_CS, f->swap_add, f->compare, out->old) != 0)
		return fail_event(q, RP_ACCESS);
	q->rpsn = (q->rpsn + 1) & 0xffffff;
	return RP_ACK;
}

static enum reply rx_masked(struct rcq *q, const struct frame *f, const struct iovec *src, unsigned ns, struct rx_out *out)
{
	const unsigned size = 1u << (f->log_size & 31), bytes = operand_bytes(f->opcode, size);
	uint8_t operands[4 * SD_MAX_ATOMIC];
	struct iovec v[ENG_IOVS], to = { operands, bytes };
	struct sd_qp *qp = q->qp;
	unsigned n;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) || !qp->attr.max_dest_rd_atomic || size < 4 ||
	    size > qp->max_atomic || f->total != size || f->len != bytes || f->raddr & (size - 1))
		return fail_event(q, RP_INVAL);
	if (mem_copy(&to, 1, src, ns, bytes) != MEM_OK)
		return RP_SRC_FAULT;
	if (!mem_pieces(qp, f->rkey, f->raddr, size, IBV_ACCESS_REMOTE_ATOMIC, v, &n))
		return fail_event(q, RP_ACCESS);
	if (n != 1 || (uintptr_t)v[0].iov_base & (size - 1))
		return fail_event(q, RP_INVAL);
	if (mem_masked(v[0].iov_base, f->opcode == MLX5_OPCODE_ATOMIC_MASKED_CS, size, operands, out->old) != 0)
		return fail_event(q, RP_ACCESS);
	q->rpsn = (q->rpsn + 1) & 0xffffff;
	return RP_ACK;
}

static void count(struct sd_counters *c, uint8_t opcode)
{
	c->writes += opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
	c->reads += opcode == MLX5_OPCODE_RDMA_READ;
	c->atomics += is_atomic(opcode);
}

static bool listens(const struct sd_qp *qp)
{
	return qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD || qp->state == IBV_QPS_SQE;
}

enum reply rx_request(struct rcq *q, const struct frame *f, const struct iovec *src, unsigned ns, struct rx_out *out)
{
	struct sd_qp *qp = q->qp;
	struct sd_counters *c = sd_counters(qp);
	const enum ibv_qp_type type = qp->type == SD_QPT_DCT ? SD_QPT_DCI : qp->type == IBV_QPT_XRC_RECV ? IBV_QPT_XRC_SEND :
				      qp->type == IBV_QPT_XRC_SEND ? IBV_QPT_XRC_RECV : qp->type;

	if (q->err || type != f->type || f->src != q->peer || f->dev != qp->dev ||
	    (qp->type == SD_QPT_DCT && q->nak_fatal) || !listens(qp))
		return q->nak_fatal ? RP_STALE : RP_UNREACH;
	if (eng_cqs_dead(qp) || fault_deaf(qp->dev))
		return RP_UNREACH;
	if (qp->type == IBV_QPT_UC) {
		if (f->off == 0 && f->psn == q->uc_psn)
			return RP_STALE;
		if (f->off == 0)
			q->uc_psn = f->psn;
	} else if (f->dup) {
		/* Its PSN was there already. Also when that one was sent back to wait: this is not the attempt that is waited for */
		if (c)
			c->duplicates++;
		return RP_STALE;
	} else if (f->psn != q->rpsn) {
		return q->nak_wait ? RP_STALE : RP_UNREACH;
	}
	if (f->off == 0)
		q->nak_wait = false;
	if (qp->state == IBV_QPS_RTR && !q->comm_est && qp->type != SD_QPT_DCT) {
		q->comm_est = true;
		sd_up.async_qp(qp, IBV_EVENT_COMM_EST);
	}
	if (qp->type == IBV_QPT_XRC_RECV && !xrc_aim(q, f->srqn))
		return refuse(q, RP_INVAL);
	if (f->total > SD_MAX_MSG || f->off > f->total || (!is_masked(f->opcode) && f->len > f->total - f->off))
		return refuse(q, RP_INVAL);
	if (f->len == 0 && f->off != f->total)
		return refuse(q, RP_INVAL);
	if (qp->type == IBV_QPT_UC && f->opcode != MLX5_OPCODE_SEND && f->opcode != MLX5_OPCODE_SEND_IMM &&
	    f->opcode != MLX5_OPCODE_RDMA_WRITE && f->opcode != MLX5_OPCODE_RDMA_WRITE_IMM)
		return refuse(q, RP_INVAL);
	if (c && f->off == 0)
		count(c, f->opcode);
	switch (f->opcode) {
	case MLX5_OPCODE_SEND:
	case MLX5_OPCODE_SEND_IMM:
	case MLX5_OPCODE_SEND_INVAL:
		return rx_send(q, f, src, ns);
	case MLX5_OPCODE_RDMA_WRITE:
	case MLX5_OPCODE_RDMA_WRITE_IMM:
		return rx_write(q, f, src, ns);
	case MLX5_OPCODE_RDMA_READ:
		return rx_read(q, f, out);
	case MLX5_OPCODE_ATOMIC_CS:
	case MLX5_OPCODE_ATOMIC_FA:
		return rx_atomic(q, f, out);
	case MLX5_OPCODE_ATOMIC_MASKED_CS:
	case MLX5_OPCODE_ATOMIC_MASKED_FA:
		return rx_masked(q, f, src, ns, out);
	}
	return fail_event(q, RP_INVAL);
}

/* ---- answers to another process ---- */

static int answer(struct rcq *q, uint8_t kind, uint8_t code, uint32_t psn, uint32_t epoch, const uint64_t *old)
{
	struct frame a = {
		.kind = kind, .code = code, .psn = psn, .epoch = epoch, .src = q->qp->qpn, .dst = q->peer,
		.imm = q->qp->attr.min_rnr_timer,
	};

	if (old)
		memcpy(a.old, old, sizeof a.old);
	return wire_send(q->slot, q->inst, &a, NULL, 0);
}

/*
 * An acknowledge covers all before it, so only the last one is kept; it goes out before any other
 * answer
 */
static void flush_ack(struct rcq *q)
{
	if (q->ack_due && answer(q, FR_ACK, 0, q->ack_psn, q->ack_epoch, NULL) != -EAGAIN)
		q->ack_due = false;
}

static struct job *waiting_nak(struct rcq *q)
{
	struct job *j;

	for (j = q->jobs; j < q->jobs + q->njobs; j++)
		if (j->kind == FR_NAK)
			return j;
	return NULL;
}

/*
 * After the answers to earlier READs: those were executed. One is enough, since the requester goes back to it. Packets left over from an
 * earlier connection may be refused many times; they must not fill the list.
 */
static void nak(struct rcq *q, const struct frame *f, enum reply r)
{
	struct job *j = waiting_nak(q);

	if (j && j->epoch == f->epoch)
		return;
	if (j)
		memmove(j, j + 1, (size_t)(q->jobs + --q->njobs - j) * sizeof *j);
	if (q->njobs < ENG_JOBS)
		q->jobs[q->njobs++] = (struct job){ .kind = FR_NAK, .code = r, .psn = f->psn, .epoch = f->epoch };
}

void rx_frame(unsigned slot, uint64_t inst, const struct frame *f, const uint8_t *payload)
{
	struct sd_qp *qp = sd_qp_find(f->dst);
	struct rcq *q = !qp ? NULL : qp->type == SD_QPT_DCT ? dc_responder(qp, slot, inst, f) : qp->eng;
	struct iovec src = { (void *)payload, f->len };
	enum reply r = RP_UNREACH;
	struct rx_out out;
	struct job *j;

	/* No answers: UC has none, and a copy got its own with the first */
	if (f->type == IBV_QPT_UC || f->dup) {
		if (q && q->slot == slot && q->inst == inst)
			rx_request(q, f, &src, 1, &out);
		return;
	}
	if (q && q->slot == slot && q->inst == inst) {
		bool rd = is_rd(f->opcode);
		struct frame g = *f;

		if (rd) {
			/* A READ is asked for at once and answered in pieces */
			g.off = 0;
			g.total = f->opcode == MLX5_OPCODE_ATOMIC_CS || f->opcode == MLX5_OPCODE_ATOMIC_FA ? 8 : f->total;
			if (!is_masked(f->opcode))
				g.len = g.total <= SD_MAX_MSG ? g.total : 0;
		}
		if (rd && !q->err && listens(qp) && f->psn == q->rpsn && q->njobs - !!waiting_nak(q) >= qp->attr.max_dest_rd_atomic)
			r = fail_event(q, RP_INVAL);
		else
			r = rx_request(q, &g, &src, 1, &out);
		if (r == RP_ACK && rd && q->njobs < ENG_JOBS) {
			j = &q->jobs[q->njobs++];
			*j = (struct job){
				.kind = f->opcode == MLX5_OPCODE_RDMA_READ ? FR_READ : FR_ATOMIC, .psn = f->psn, .epoch = f->epoch,
				.rkey = f->rkey, .srqn = f->srqn, .raddr = f->raddr, .total = g.total,
			};
			if (is_atomic(f->opcode))
				memcpy(j->old, out.old, sizeof j->old);
			eng_wake();
			return;
		}
	}
	switch (r) {
	case RP_ACK:
		q->ack_due = true;
		q->ack_psn = f->psn;
		q->ack_epoch = f->epoch;
		break;
	case RP_INVAL:
	case RP_ACCESS:
	case RP_OPERR:
		/* What else the peer has sent gets no answer */
		q->nak_fatal = true;
		/* fall through */
	case RP_RNR:
	case RP_UNREACH:
		if (q && q->slot == slot && q->inst == inst) {
			nak(q, f, r);
		} else {
			struct frame a = { .kind = FR_NAK, .code = r, .psn = f->psn, .epoch = f->epoch, .src = f->dst, .dst = f->src };

			wire_send(slot, inst, &a, NULL, 0);
		}
		break;
	default:
		break;
	}
}

static bool read_piece(struct rcq *q, struct job *j)
{
	uint64_t len = j->total - j->off < ENG_CHUNK_WIRE ? j->total - j->off : ENG_CHUNK_WIRE;
	struct frame a = {
		.kind = FR_READ, .psn = j->psn, .epoch = j->epoch, .src = q->qp->qpn, .dst = q->peer,
		.len = len, .off = j->off, .total = j->total,
	};
	struct frame whole = { .raddr = j->raddr, .rkey = j->rkey, .total = j->total };
	struct seglist l = remote_list(&whole);
	struct iovec v[ENG_IOVS];
	const uint8_t *bytes;
	unsigned n = 0;
	int ret = -EFAULT;

	/* A later request may have been for another SRQ */
	if (q->qp->type == IBV_QPT_XRC_RECV && !xrc_aim(q, j->srqn))
		ret = -EFAULT;
	else if (len && sig_in(q->qp, &l, true)) {
		bytes = sig_read(q, &l);
		v[0] = (struct iovec){ (void *)(bytes + j->off), len };
		ret = bytes ? wire_send(q->slot, q->inst, &a, v, 1) : -EFAULT;
	} else if (!len || mem_pieces(q->qp, j->rkey, j->raddr + j->off, len, IBV_ACCESS_REMOTE_READ, v, &n))
		ret = wire_send(q->slot, q->inst, &a, v, n);
	if (ret == -EFAULT) {
		q->njobs = j - q->jobs + 1;
		*j = (struct job){ .kind = FR_NAK, .code = RP_ACCESS, .psn = j->psn, .epoch = j->epoch };
		fail_event(q, RP_ACCESS);
		return true;
	}
	if (ret == -EAGAIN)
		return false;
	j->off += len;
	if (j->off >= j->total || ret == -EPIPE)
		memmove(q->jobs, q->jobs + 1, --q->njobs * sizeof *j);
	return true;
}

bool rx_run(struct rcq *q)
{
	bool did = false;

	if (q->ack_due && wire_room(q->slot)) {
		flush_ack(q);
		did = !q->ack_due;
	}
	while (q->njobs && wire_room(q->slot)) {
		struct job *j = &q->jobs[0];

		flush_ack(q);
		if (q->ack_due)
			break;
		if (j->kind == FR_READ) {
			if (!read_piece(q, j))
				break;
		} else {
			if (answer(q, j->kind, j->code, j->psn, j->epoch, j->old) == -EAGAIN)
				break;
			memmove(q->jobs, q->jobs + 1, --q->njobs * sizeof *j);
		}
		did = true;
	}
	return did;
}

void rx_answers(void)
{
	struct rcq *q;

	for (q = eng_all; q; q = q->next)
		if (q->ack_due || q->njobs)
			rx_run(q);
	wire_flush();
}

void rx_drop(struct rcq *q)
{
	flush_ack(q);
	if (q->njobs)
		answer(q, FR_NAK, q->jobs[0].kind == FR_NAK ? q->jobs[0].code : RP_UNREACH, q->jobs[0].psn, q->jobs[0].epoch, NULL);
	q->njobs = 0;
}
