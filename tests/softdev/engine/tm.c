/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tm.c: tag matching: the list of tagged buffers of a shared receive queue, what messages do with
 * it, and the rendezvous that the device does by itself. It does not matter what made the SRQ or
 * its QPs (verbs or a command): a QP matches when its shared queue has a struct sd_tm.
 *
 * List. Entries have indices; one of them is the dummy at the tail. APPEND fills the dummy and
 * makes the entry that it names the next dummy, so the append before it settles the place of an
 * append; the first one is entry 0. An entry is free, in the list, or taken: matched by a message
 * whose data are not all there. The command QP is an RC QP on the SRQ that is connected to itself.
 * These fail with LOCAL_QP_OP_ERR and stop the QP: opcode 0x28 on any other QP; an unknown or short
 * operation; an index beyond the list; an APPEND that names the dummy, or an entry that is not free
 * (the list is full). The list stays, and messages still match. APPEND does not look at the key;
 * arriving bytes do. REMOVE of an entry that is not in the list is no error: its CQE lacks the
 * success bit.
 *
 * Phase. The device counts unexpected messages (EAGER and RNDV) modulo 2^16. An entry appended
 * while the program's count differs matches nothing until an operation brings the same count; such
 * entries are always the last of the list. An unexpected message counts when its first bytes are
 * taken, and not before there is an SRQ WQE for them. If it then fails, and so never completes, the
 * count goes back.
 *
 * Messages start with a TMH. EAGER and RNDV look for the first enabled entry with (TMH.tag & mask)
 * == tag. Everything else goes whole to an SRQ WQE, as NO_TAG: opcodes NO_TAG and FIN, unknown
 * opcodes, and messages shorter than their first byte says (16 bytes, RNDV 32), empty ones
 * included.
 *   EAGER, match   payload to the buffer. One packet: CONSUMED_MSG. More than the path's MTU:
 *                  CONSUMED, then EXPECTED
 *   RNDV, match    CONSUMED; a READ of RVH.len bytes on the QP that it came on; EXPECTED; FIN to
 *                  the peer: TMH and RVH with opcode 2, 32 bytes. Software must do it when the
 *                  buffer is smaller than RVH.len, the SRQ does no rendezvous, the QP is a DCT or
 *                  may send no READs (max_rd_atomic 0), RVH.len is beyond the largest message, or
 *                  the request is longer than 64 bytes. Then the request itself goes to the buffer:
 *                  CONSUMED_MSG_SW_RNDV, or beyond the MTU CONSUMED_SW_RNDV, then EXPECTED
 *   no match       whole to an SRQ WQE: UNEXPECTED
 * A striding queue takes what goes to an SRQ WQE packet by packet, each into strides of its own, and
 * with a CQE of its own. The last has bit 30 of byte_cnt, and the immediate. All of a message, of at
 * most 16 MiB, is taken at once: it waits for as many strides as it needs.
 * A payload, or a request left to software, longer than its buffer fails with LOCAL_LENGTH_ERR. A
 * key that is not of the QP's protection domain fails with LOCAL_PROT_ERR. The QP stops, as with
 * any receive. No source says how an adapter shows that the buffer was tagged. Here the error CQE
 * has app, app_op (CONSUMED_MSG, or EXPECTED after CONSUMED) and app_info in the usual places, and
 * wqe_counter 0. A tagged buffer whose data will never come (the QP left the receiving states, the
 * READ failed) ends with MSG_COMPLETION_CANCELED.
 *
 * All these CQEs go to the CQ of the SRQ. They carry its user index and the number of the QP that
 * the message came on. The READ and the FIN are ordinary messages, with retries and faults, but no
 * WQEs: they have no CQE, and softdev_execute() does not count them.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "eng.h"

enum { TM_CONSUMED = 1, TM_EXPECTED, TM_UNEXPECTED, TM_NO_TAG, TM_APPEND, TM_REMOVE, TM_NOOP, TM_CONSUMED_SW_RNDV = 9, TM_CONSUMED_MSG,
       TM_CONSUMED_MSG_SW_RNDV, TM_CANCELED };
enum { OP_NOP, OP_APPEND, OP_REMOVE };
enum { SW_CNT = 0x40, CQE_REQ = 0x80 };
enum { FREE, LISTED, DISABLED, TAKEN };

#define APP_TM 1
#define NIL 0xffffffffu
#define TMH 16u
#define RVH 16u

struct entry {
	uint64_t tag, mask;
	struct seg buf;                 /* of 0 bytes: none */
	uint32_t prev, next;
	uint8_t state;
};

struct sd_tm {
	struct sd_cq *cq;
	bool rndv;
	uint32_t size, head, tail, dummy;
	uint16_t hw, sw;                /* unexpected messages: ours, and what the program said last */
	struct entry at[];
};

/* A rendezvous under way: first the READ, then the FIN */
struct rndv {
	struct rndv *next;
	uint32_t entry;
	bool fin, launched;
	uint64_t va;
	uint32_t rkey;
	struct seg buf;                 /* of RVH.len bytes */
	uint8_t head[TMH + RVH];
};

static struct sd_tm *tm_of(const struct rcq *q)
{
	return q->qp->srq ? q->qp->srq->tm : NULL;
}

/* ---- for the rooms above ---- */

int sd_tm_new(struct sd_srq *srq, unsigned log_list_size, struct sd_cq *cq, bool rndv)
{
	uint32_t size = log_list_size <= SD_LOG_TM_LIST ? 1u << log_list_size : 0;
	struct sd_tm *tm;

	if (size < 2)
		return EINVAL;
	tm = calloc(1, sizeof *tm + size * sizeof tm->at[0]);
	if (!tm)
		return ENOMEM;
	tm->cq = cq;
	tm->rndv = rndv;
	tm->size = size;
	tm->head = tm->tail = NIL;
	cq->refs++;
	srq->tm = tm;
	return 0;
}

void sd_tm_free(struct sd_srq *srq)
{
	struct sd_tm *tm = srq->tm;

	if (!tm)
		return;
	cqe_purge(tm->cq, tm);
	tm->cq->refs--;
	free(tm);
	srq->tm = NULL;
}

void sd_tm_query(const struct sd_srq *srq, uint16_t *append_next, uint16_t *sw_phase, uint16_t *hw_phase)
{
	*append_next = srq->tm->dummy;
	*sw_phase = srq->tm->sw;
	*hw_phase = srq->tm->hw;
}

struct sd_cq *tm_cq(const struct sd_qp *qp)
{
	return qp->srq && qp->srq->tm ? qp->srq->tm->cq : NULL;
}

/* ---- the list ---- */

static void unlist(struct sd_tm *tm, uint32_t i, uint8_t state)
{
	struct entry *e = &tm->at[i];

	*(e->prev == NIL ? &tm->head : &tm->at[e->prev].next) = e->next;
	*(e->next == NIL ? &tm->tail : &tm->at[e->next].prev) = e->prev;
	e->state = state;
}

static void sync(struct sd_tm *tm, uint16_t sw)
{
	uint32_t i;

	tm->sw = sw;
	for (i = tm->tail; sw == tm->hw && i != NIL && tm->at[i].state == DISABLED; i = tm->at[i].prev)
		tm->at[i].state = LISTED;
}

/* With bytes of 0, none is meant where the key says so, 2^31 otherwise */
static struct seg segment(const uint8_t *at)
{
	struct mlx5_wqe_data_seg d;
	uint32_t len, key;

	memcpy(&d, at, sizeof d);
	len = be32toh(d.byte_count);
	key = be32toh(d.lkey);
	return (struct seg){ be64toh(d.addr), len || key == MLX5_INVALID_LKEY ? len : 1u << 31, key, NULL };
}

static bool append(struct sd_tm *tm, uint16_t next, const struct mlx5_wqe_tm_seg *s, const uint8_t *at, const uint8_t *end)
{
	struct seg buf;

	if (end - at < (ptrdiff_t)sizeof(struct mlx5_wqe_data_seg))
		return false;
	buf = segment(at);
	if (buf.len > 1u << 31 || next >= tm->size || next == tm->dummy || tm->at[next].state != FREE)
		return false;
	tm->at[tm->dummy] = (struct entry){ .tag = be64toh(s->append_tag), .mask = be64toh(s->append_mask), .buf = buf, .prev = tm->tail,
					    .next = NIL, .state = tm->sw == tm->hw ? LISTED : DISABLED };
	*(tm->tail == NIL ? &tm->head : &tm->at[tm->tail].next) = tm->dummy;
	tm->tail = tm->dummy;
	tm->dummy = next;
	return true;
}

uint8_t tm_command(struct rcq *q, uint16_t idx, const uint8_t *at, const uint8_t *end)
{
	struct sd_tm *tm = tm_of(q);
	struct mlx5_wqe_tm_seg s;
	struct mlx5_cqe64 c;
	uint16_t index, about = 0;
	uint8_t op, app_op = TM_NOOP;
	bool success = true;

	if (!tm || q->qp->attr.dest_qp_num != q->qp->qpn || end - at < (ptrdiff_t)sizeof s)
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	memcpy(&s, at, sizeof s);
	op = s.opcode >> 4;
	index = be16toh(s.index);
	if (op > OP_REMOVE || (op == OP_REMOVE && index >= tm->size))
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	if (s.flags & SW_CNT)
		sync(tm, be16toh(s.sw_cnt));
	if (op == OP_APPEND) {
		app_op = TM_APPEND;
		about = tm->dummy;
		if (!append(tm, index, &s, at + sizeof s, end))
			return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	} else if (op == OP_REMOVE) {
		app_op = TM_REMOVE;
		about = index;
		success = tm->at[index].state == LISTED || tm->at[index].state == DISABLED;
		if (success)
			unlist(tm, index, FREE);
	}
	if (!(s.flags & CQE_REQ))
		return 0;
	memset(&c, 0, sizeof c);
	c.tm_cqe.success = htobe32(success ? MLX5_TMC_SUCCESS : 0);
	c.tm_cqe.hw_phase_cnt = htobe16(tm->hw);
	c.srqn_uidx = htobe32(q->qp->srq->uidx);
	c.app = APP_TM;
	c.app_op = app_op;
	c.app_info = htobe16(about);
	c.timestamp = htobe64(eng_now());
	c.sop_drop_qpn = htobe32((uint32_t)MLX5_OPCODE_TAG_MATCHING << 24 | q->qp->qpn);
	c.wqe_counter = htobe16(idx);
	c.op_own = MLX5_CQE_NO_PACKET << 4;
	cqe_put(tm->cq, tm, &c, NULL, false);
	return 0;
}

/* ---- messages ---- */

static uint32_t match(const struct sd_tm *tm, uint64_t tag)
{
	uint32_t i;

	for (i = tm->head; i != NIL && tm->at[i].state == LISTED; i = tm->at[i].next)
		if ((tag & tm->at[i].mask) == tm->at[i].tag)
			return i;
	return NIL;
}

/*
 * A CQE about entry, or about the SRQ WQE that q holds where there is none. f is the message that
 * it ends, NULL for none; data are those that go into the CQE
 */
static void tell(struct rcq *q, const struct frame *f, uint8_t opcode, uint8_t app_op, uint32_t entry, uint32_t bytes, const uint8_t *data)
{
	struct sd_tm *tm = tm_of(q);
	bool imm = opcode == MLX5_CQE_RESP_SEND_IMM || opcode == MLX5_CQE_RESP_SEND_INV, big = q->qp->scatter_rsp == 64;
	uint8_t data64[64] = { 0 };
	struct mlx5_cqe64 c;

	memset(&c, 0, sizeof c);
	if (data)
		memcpy(big ? data64 : (uint8_t *)&c, data, bytes);
	if (app_op == TM_CONSUMED || (app_op >= TM_CONSUMED_SW_RNDV && app_op <= TM_CONSUMED_MSG_SW_RNDV))
		memcpy(&c.tmh, q->tm.head, sizeof c.tmh);
	c.srqn_uidx = htobe32(q->qp->srq->uidx);
	c.imm_inval_pkey = imm ? f->imm : 0;
	c.app = APP_TM;
	c.app_op = app_op;
	c.app_info = htobe16(entry == NIL ? 0 : entry);
	c.byte_cnt = htobe32(bytes);
	c.timestamp = htobe64(eng_now());
	c.sop_drop_qpn = htobe32(q->qp->qpn);
	c.wqe_counter = htobe16(entry == NIL ? q->wqe_idx : 0);
	if (entry == NIL && q->qp->srq->strides.log_size) {
		c.rsvd20[2] = q->stride >> 8;
		c.rsvd20[3] = q->stride;
	}
	if (f && q->qp->type == SD_QPT_DCT) {
		c.slid = htobe16(f->slid);
		c.flags_rqpn = htobe32(f->src);
	}
	c.op_own = opcode << 4 | (!data ? 0 : big ? 8 : 4) | (f && f->solicited ? 2 : 0);
	cqe_put(tm->cq, tm, &c, data && big ? data64 : NULL, f && f->solicited);
}

static void cancel(struct rcq *q, uint32_t entry)
{
	tm_of(q)->at[entry].state = FREE;
	tell(q, NULL, MLX5_CQE_RESP_SEND, TM_CANCELED, entry, 0, NULL);
}

#define LAST (1u << 30)
#define FILLER (1u << 31)

bool tm_strides(const struct rcq *q)
{
	return tm_of(q) && !q->tm.tagged && q->qp->srq->strides.log_size;
}

/* Those of a packet */
static uint32_t strides_of(const struct rcq *q, uint32_t len)
{
	const struct sd_strides *s = &q->qp->srq->strides;

	return len ? (len + s->shift + (1u << s->log_size) - 1) >> s->log_size : 1;
}

static bool strides_enough(const struct rcq *q, uint32_t total)
{
	const uint32_t mtu = 128u << q->qp->attr.path_mtu;

	return srq_packets(q->qp->srq, strides_of(q, total < mtu ? total : mtu)) >= (total ? (total + mtu - 1) / mtu : 1);
}

static void strides_told(struct rcq *q, const struct frame *f, uint8_t opcode, uint32_t strides, uint32_t bytes)
{
	tell(q, f, opcode, q->tm.app_op, NIL, strides << 16 | bytes, NULL);
	q->stride += strides;
	q->wqe_held = q->stride < 1u << q->qp->srq->strides.log_count;
	srq_put_strides(q);
}

int tm_scatter(struct rcq *q, const struct frame *f, uint8_t opcode)
{
	const struct sd_strides *s = &q->qp->srq->strides;
	const uint32_t mtu = 128u << q->qp->attr.path_mtu, all = 1u << s->log_count;
	struct iovec dst[ENG_IOVS], src;
	struct frame part = *f;
	uint32_t off = 0, len, need;
	unsigned n;
	int r;

	if (!strides_enough(q, f->total))
		return RX_NONE;
	do {
		len = f->total - off < mtu ? f->total - off : mtu;
		need = strides_of(q, len);
		part.solicited = f->solicited && off + len == f->total;
		while (!(r = srq_take_strides(q)) && need <= all && need > all - q->stride)
			strides_told(q, &part, MLX5_CQE_RESP_SEND, all - q->stride, FILLER);
		if (r)
			return r;
		if (need > all || ((uint64_t)q->stride << s->log_size) + s->shift + len > q->rx.total)
			return RX_LONG;
		src = (struct iovec){ q->stage + off, len };
		if (!mem_vec(q->qp, &q->rx, ((uint64_t)q->stride << s->log_size) + s->shift, len, IBV_ACCESS_LOCAL_WRITE, dst, &n) ||
		    mem_copy(dst, n, &src, 1, len) != MEM_OK)
			return RX_KEY;
		off += len;
		strides_told(q, &part, off == f->total ? opcode : MLX5_CQE_RESP_SEND, need, off == f->total ? LAST | len : len);
	} while (off < f->total);
	return 0;
}

static void forget(struct rcq *q)
{
	free(q->tm.job);
	q->tm.job = NULL;
	q->tm.begun = q->tm.tagged = false;
}

/* What was under way does not go on */
static void abandon(struct rcq *q)
{
	if (q->tm.begun && q->tm.tagged)
		cancel(q, q->tm.entry);
	else if (q->tm.begun && q->tm.app_op == TM_UNEXPECTED)
		tm_of(q)->hw--;
	forget(q);
}

static bool for_software(const struct rcq *q, const struct seg *buf, uint64_t request, uint32_t len)
{
	bool able = tm_of(q)->rndv && q->qp->type == IBV_QPT_RC && q->qp->attr.max_rd_atomic;

	return !able || request > ENG_TM_HEAD || len > buf->len || len > SD_MAX_MSG;
}

static int rendezvous(struct rcq *q)
{
	struct rndv *j = calloc(1, sizeof *j);
	struct ibv_rvh r;

	if (!j)
		return RX_BAD;
	memcpy(j->head, q->tm.head, sizeof j->head);
	memcpy(&r, j->head + TMH, sizeof r);
	j->head[0] = IBV_TMH_FIN;
	j->entry = q->tm.entry;
	j->va = be64toh(r.va);
	j->rkey = be32toh(r.rkey);
	j->buf = tm_of(q)->at[j->entry].buf;
	j->buf.len = be32toh(r.len);
	q->tm.job = j;
	return j->buf.len && !mem_ok(q->qp, j->buf.key, j->buf.addr, j->buf.len, IBV_ACCESS_LOCAL_WRITE) ? RX_KEY : 0;
}

int tm_begin(struct rcq *q, const struct frame *f, const struct iovec *src, unsigned ns)
{
	uint32_t want = f->total < ENG_TM_HEAD ? f->total : ENG_TM_HEAD, hit = NIL;
	uint8_t head[ENG_TM_HEAD] = { 0 };
	struct sd_tm *tm = tm_of(q);
	struct iovec to = { head, want };
	const struct seg *buf;
	struct ibv_rvh r;
	struct ibv_tmh h;

	if (f->len < want)
		return RX_BAD;
	if (mem_copy(&to, 1, src, ns, want) != MEM_OK)
		return RX_SRC;
	/* A message that was begun and did not end was that of a peer which has failed since, and has come up again */
	abandon(q);
	memcpy(q->tm.head, head, sizeof head);
	memcpy(&h, head, sizeof h);
	memcpy(&r, head + TMH, sizeof r);
	q->tm.skip = 0;
	q->tm.app_op = TM_NO_TAG;
	if ((h.opcode == IBV_TMH_EAGER && f->total >= TMH) || (h.opcode == IBV_TMH_RNDV && f->total >= TMH + RVH)) {
		q->tm.app_op = TM_UNEXPECTED;
		hit = match(tm, be64toh(h.tag));
	}
	if (tm_strides(q) && hit == NIL) {
		q->rx.n = 0;
		q->rx.total = f->total;
		return strides_enough(q, f->total) ? 0 : RX_NONE;
	}
	if (hit == NIL)
		return rx_take(q);
	buf = &tm->at[hit].buf;
	q->tm.tagged = true;
	q->tm.entry = hit;
	q->tm.to.n = buf->len > 0;
	q->tm.to.total = buf->len;
	q->tm.to.s[0] = *buf;
	q->tm.app_op = TM_CONSUMED_MSG;
	q->tm.two = f->total > 128u << q->qp->attr.path_mtu;
	if (h.opcode == IBV_TMH_EAGER) {
		q->tm.skip = TMH;
		return 0;
	}
	if (for_software(q, buf, f->total, be32toh(r.len))) {
		q->tm.app_op = TM_CONSUMED_MSG_SW_RNDV;
		return 0;
	}
	q->tm.skip = f->total;
	q->tm.two = true;
	return rendezvous(q);
}

void tm_taken(struct rcq *q)
{
	struct sd_tm *tm = tm_of(q);

	if (q->tm.begun)
		return;
	q->tm.begun = true;
	if (q->tm.tagged)
		unlist(tm, q->tm.entry, TAKEN);
	else if (q->tm.app_op == TM_UNEXPECTED)
		tm->hw++;
	if (!q->tm.tagged || !q->tm.two)
		return;
	tell(q, NULL, MLX5_CQE_NO_PACKET, q->tm.app_op == TM_CONSUMED_MSG ? TM_CONSUMED : TM_CONSUMED_SW_RNDV, q->tm.entry, 0, NULL);
	q->tm.app_op = TM_EXPECTED;
}

bool tm_inline(const struct rcq *q, uint64_t bytes)
{
	bool big = q->qp->scatter_rsp == 64;

	/* The TMH of a match lies where 32 bytes would, and a request that is left to software is for it to find in its buffer */
	if (big ? tm_of(q)->cq->cqe_size == 64 || (q->tm.tagged && !q->tm.skip) : q->tm.tagged)
		return false;
	return bytes <= q->qp->scatter_rsp;
}

void tm_done(struct rcq *q, const struct frame *f, uint8_t opcode, const uint8_t *data)
{
	struct rndv **at = &q->rndv;

	if (q->tm.job) {
		while (*at)
			at = &(*at)->next;
		*at = q->tm.job;
		q->tm.job = NULL;
	} else if (q->tm.tagged) {
		tm_of(q)->at[q->tm.entry].state = FREE;
		tell(q, f, opcode, q->tm.app_op, q->tm.entry, f->total - q->tm.skip, data);
	} else if (!tm_strides(q)) {
		tell(q, f, opcode, q->tm.app_op, NIL, f->total, data);
		q->wqe_held = false;
	}
	forget(q);
}

void tm_error(struct rcq *q, uint8_t synd, uint8_t vendor)
{
	struct sd_tm *tm = tm_of(q);
	struct mlx5_err_cqe e;
	struct mlx5_cqe64 c;

	memset(&e, 0, sizeof e);
	e.srqn = htobe32(q->qp->srq->uidx);
	e.vendor_err_synd = vendor;
	e.syndrome = synd;
	e.s_wqe_opcode_qpn = htobe32(q->qp->qpn);
	e.wqe_counter = htobe16(q->tm.tagged ? 0 : q->wqe_idx);
	e.op_own = MLX5_CQE_RESP_ERR << 4;
	memcpy(&c, &e, sizeof c);
	if (q->tm.tagged) {
		c.app = APP_TM;
		c.app_op = q->tm.app_op;
		c.app_info = htobe16(q->tm.entry);
		if (!q->tm.begun)
			unlist(tm, q->tm.entry, FREE);
		tm->at[q->tm.entry].state = FREE;
	} else {
		if (q->tm.begun && q->tm.app_op == TM_UNEXPECTED)
			tm->hw--;
		q->wqe_held = false;
	}
	forget(q);
	cqe_put(tm->cq, tm, &c, NULL, true);
}

void tm_flush(struct rcq *q)
{
	struct rndv *j;

	if (!tm_of(q))
		return;
	abandon(q);
	while ((j = q->rndv)) {
		q->rndv = j->next;
		if (!j->fin)
			cancel(q, j->entry);
		free(j);
	}
}

/* ---- rendezvous: what the device asks of the peer ---- */

static struct rndv *next_job(const struct rcq *q)
{
	struct rndv *j = q->rndv;

	while (j && j->launched)
		j = j->next;
	return j;
}

bool tm_pending(const struct rcq *q)
{
	return next_job(q);
}

void tm_request(struct rcq *q, struct op *op)
{
	struct rndv *j = next_job(q);

	q->body.segs.s[0] = j->buf;
	q->body.raddr = j->va;
	q->body.rkey = j->rkey;
	q->body.imm = 0;
	q->body.fm = 0;
	q->body.se = false;
	q->body.off = 0;
	op->opcode = MLX5_OPCODE_RDMA_READ;
	if (j->fin) {
		memcpy(q->body.wqe, j->head, sizeof j->head);
		q->body.segs.s[0] = (struct seg){ 0, sizeof j->head, 0, q->body.wqe };
		op->opcode = MLX5_OPCODE_SEND;
	}
	op->total = q->body.segs.total = q->body.segs.s[0].len;
	q->body.segs.n = op->total > 0;
	op->rndv = j;
}

void tm_launched(struct rndv *j, bool yes)
{
	j->launched = yes;
}

void tm_answered(struct rcq *q, struct rndv *j)
{
	struct rndv **at = &q->rndv;

	if (!j->fin) {
		j->fin = true;
		tm_of(q)->at[j->entry].state = FREE;
		tell(q, NULL, MLX5_CQE_RESP_SEND, TM_EXPECTED, j->entry, j->buf.len, NULL);
		return;
	}
	while (*at != j)
		at = &(*at)->next;
	*at = j->next;
	free(j);
}
