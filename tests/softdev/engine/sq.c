/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sq.c: the requester.
 *
 * It copies a WQE from the ring once, checks it, and executes the copy. The WQE becomes an "op"
 * until its answer is there. Ops complete in order: an op that failed waits for earlier ones, then
 * its error CQE is written and the QP stops. A retry forgets the op and all later ones and fetches
 * their WQEs again; they are still in the ring.
 *
 * UC and UD have no answers: an op is done when it was sent. An error moves the QP to SQE, as the
 * InfiniBand architecture says and mlx5 does. Later WQEs are flushed, and so are those posted
 * before the program moves the QP back to RTS. The receive side goes on. An error that a fault
 * specification asks for stops a QP of any type.
 *
 * Time: RNR waits for what the responder asked, up to 1 ms, plus a twentieth of the rest; tests are
 * quick and the codes keep their order. A request without an answer is tried again after the
 * timeout of the QP, at least 1 and at most 200 ms, retry_cnt times: about 1.5 s at most. Time does
 * not pass on a stepped device: a WQE that must wait is tried once in each softdev_execute() or
 * softdev_run(), and each try counts as one retry.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "eng.h"

#define CE_FIRST_ERR 1
#define BUDGET (1u << 20)       /* bytes that one sq_run() moves */

struct rcq *eng_self;

/* Carried out here; nothing goes to the peer */
static bool is_local(uint8_t opcode)
{
	return opcode == MLX5_OPCODE_NOP || opcode == MLX5_OPCODE_UMR || opcode == MLX5_OPCODE_SET_PSV || opcode == MLX5_OPCODE_TAG_MATCHING ||
	       sync_is(opcode);
}

static struct op *op_at(struct rcq *q, unsigned i)
{
	return &q->ops[(q->head + i) % ENG_OPS];
}

static void op_free(struct rcq *q, struct op *op)
{
	if (op->rndv)
		tm_launched(op->rndv, false);
	if (op->segs)
		q->rd--;
	free(op->segs);
	free(op->bounce);
	op->segs = NULL;
	op->bounce = NULL;
}

static void drop_from(struct rcq *q, unsigned i)
{
	while (q->count > i)
		op_free(q, op_at(q, --q->count));
	q->streaming = false;
}

void sq_reset(struct rcq *q)
{
	drop_from(q, 0);
	q->sq_ci = q->sq_pi = q->enabled = 0;
	q->fetched_bytes = 0;
	q->halted = q->err = false;
	q->wait_until = q->wait_step = 0;
	dc_streams_forget(q);
}

bool sq_ring(struct rcq *q)
{
	struct sd_qp *qp = q->qp;
	uint16_t pi;

	/* libmlx5 clears the record only after the command that resets the QP */
	if (qp->state < IBV_QPS_RTR || !qp->wqebb_cnt)
		return false;
	/* What was never let go is flushed all the same */
	if (qp->cd_slave_send && !q->err) {
		q->sq_pi = q->enabled;
		return q->sq_ci != q->sq_pi;
	}
	pi = be32toh(__atomic_load_n(&qp->dbrec[1], __ATOMIC_ACQUIRE));
	if ((uint16_t)(pi - q->sq_ci) > qp->wqebb_cnt) {
		/* More than the ring holds: no index can be trusted any more */
		q->sq_pi = q->sq_ci;
		if (!q->err && qp->state >= IBV_QPS_RTS) {
			sq_enter_err(q);
			sd_up.async_qp(qp, IBV_EVENT_QP_FATAL);
		}
		return false;
	}
	q->sq_pi = pi;
	return q->sq_ci != q->sq_pi;
}

/* Copies up to bytes of the ring from WQEBB idx on; false: not accessible */
static bool ring_read(struct rcq *q, uint16_t idx, void *to, unsigned bytes)
{
	size_t size = (size_t)q->qp->wqebb_cnt << 6, at = (size_t)(idx & (q->qp->wqebb_cnt - 1)) << 6;
	size_t first = size - at < bytes ? size - at : bytes;
	struct iovec d = { to, bytes }, s[2] = { { q->qp->sq + at, first }, { q->qp->sq, bytes - first } };

	return mem_copy(&d, 1, s, first < bytes ? 2 : 1, bytes) == MEM_OK;
}

/* The next bytes of the `posted` WQEBBs: as on hardware, one read brings several WQEs */
static bool fetch(struct rcq *q, unsigned posted, unsigned bytes)
{
	unsigned at = (uint16_t)(q->sq_ci - q->fetched_at) << 6;

	if (q->fetched_step != eng_step || at + bytes > q->fetched_bytes) {
		q->fetched_at = q->sq_ci;
		q->fetched_step = eng_step;
		q->fetched_bytes = posted << 6 < sizeof q->fetched ? posted << 6 : sizeof q->fetched;
		at = 0;
		if (!ring_read(q, q->sq_ci, q->fetched, q->fetched_bytes)) {
			q->fetched_bytes = 0;
			return false;
		}
	}
	memcpy(q->body.wqe, q->fetched + at, bytes);
	return true;
}

/* ---- flush ---- */

#define LAST_WQE_NS 1000000ull

static bool flush_sends(struct rcq *q)
{
	struct sd_qp *qp = q->qp;
	bool did = false;

	q->fetched_bytes = 0; /* the index may pass all 65,536 without a fetch */
	while (q->sq_ci != q->sq_pi) {
		struct mlx5_wqe_ctrl_seg c;
		unsigned bbs, left = (uint16_t)(q->sq_pi - q->sq_ci);

		if (!ring_read(q, q->sq_ci, &c, sizeof c)) {
			q->sq_ci = q->sq_pi;
			break;
		}
		bbs = ((be32toh(c.qpn_ds) & 0x3f) + 3) / 4;
		bbs = bbs ? bbs : 1;
		if ((c.fm_ce_se >> 2 & 3) != CE_FIRST_ERR)
			cqe_error(qp->send_cq, q, false, be32toh(c.opmod_idx_opcode) & 0xff, q->sq_ci,
				  MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0xf9);
		q->sq_ci += bbs < left ? bbs : left;
		did = true;
	}
	return did;
}

/* The receive WQE that it has taken from an SRQ comes back first. Then it takes no more, and says so */
static bool flush_held(struct rcq *q)
{
	const bool did = q->wqe_held || q->last_wqe;

	if (q->last_wqe > eng_now())
		return false;
	if (q->wqe_held && !q->qp->no_flush)
		rx_error(q, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0xf9);
	if (q->last_wqe)
		sd_up.async_qp(q->qp, IBV_EVENT_QP_LAST_WQE_REACHED);
	q->last_wqe = 0;
	q->wqe_held = false;
	return did;
}

bool sq_flush(struct rcq *q)
{
	struct sd_qp *qp = q->qp;
	bool did = flush_sends(q);
	uint16_t pi;

	tm_flush(q);
	did |= flush_held(q);
	/* What lies in an SRQ is not this QP's */
	if (!qp->rq || qp->no_flush)
		return did;
	pi = be32toh(__atomic_load_n(&qp->dbrec[0], __ATOMIC_ACQUIRE));
	if ((uint16_t)(pi - q->rq_ci) > qp->rq_cnt)
		return did;
	for (; q->rq_ci != pi; q->rq_ci++, q->early >>= 1, did = true)
		if (!(q->early & 1))
			cqe_error(qp->recv_cq, q, true, 0, q->rq_ci, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0xf9);
	return did;
}

void sq_enter_err(struct rcq *q)
{
	if (q->err)
		return;
	q->err = true;
	q->qp->state = IBV_QPS_ERR;
	if (q->count)
		q->sq_ci = op_at(q, 0)->idx;
	drop_from(q, 0);
	q->halted = q->in_msg = false;
	if ((eng_is_stepped && !eng_is_trap) || q->qp->cd_slave_send)
		sq_ring(q);
	/* As an adapter's, an SRQ's last entry comes back long after the command, or the error, that stops the QP */
	if (q->qp->srq && !q->qp->wq && q->qp->type != SD_QPT_DCT && q->qp->type != IBV_QPT_XRC_RECV)
		q->last_wqe = eng_is_stepped ? 1 : eng_now() + LAST_WQE_NS;
	sq_flush(q);
	eng_wake();
}

static void enter_sqe(struct rcq *q)
{
	q->qp->state = IBV_QPS_SQE;
	drop_from(q, 0);
	q->halted = false;
	q->wait_until = 0;
	if (eng_is_stepped && !eng_is_trap)
		sq_ring(q);
	if (!q->err)
		flush_sends(q);
}

/* ---- completion ---- */

static void good_cqe(struct rcq *q, struct op *op)
{
	struct mlx5_cqe64 c;
	uint8_t format = 0;

	memset(&c, 0, sizeof c);
	if (op->to_cqe == 32) {
		memcpy(&c, op->resp, 32);
		format = 4;
	} else if (op->to_cqe) {
		format = 8;
	}
	c.srqn_uidx = htobe32(q->qp->uidx);
	if (is_rd(op->opcode))
		c.byte_cnt = htobe32(op->total);
	c.timestamp = htobe64(eng_now());
	c.sop_drop_qpn = htobe32((uint32_t)op->opcode << 24 | q->qp->qpn);
	c.wqe_counter = htobe16(op->idx);
	c.op_own = MLX5_CQE_REQ << 4 | format;
	cqe_put(q->qp->send_cq, q, &c, format == 8 ? op->resp : NULL, false);
}

static void refill(struct rcq *q)
{
	q->rnr_left = q->qp->attr.rnr_retry & 7;
	q->retry_left = q->qp->attr.retry_cnt & 7;
}

static void retire(struct rcq *q)
{
	while (q->count && op_at(q, 0)->done) {
		struct op op = *op_at(q, 0);

		op_free(q, op_at(q, 0));
		q->head = (q->head + 1) % ENG_OPS;
		q->count--;
		if (op.synd) {
			if (!op.rndv)
				cqe_error(q->qp->send_cq, q, false, op.opcode, op.idx, op.synd, op.vendor);
			if (!q->count)
				q->sq_ci = op.idx + op.bbs;
			if (q->qp->streams && !op.fatal && (dc_stream_failed(q, op.stream) || dc_stream_fails(q, op.stream))) {
				q->halted = false;
				q->wait_until = 0;
				refill(q);
				return;
			}
			if (reliable(q->qp) || op.fatal)
				sq_enter_err(q);
			else
				enter_sqe(q);
			return;
		}
		if (op.rndv)
			tm_answered(q, op.rndv);
		else if (op.ce & 2 || q->qp->sig_all)
			good_cqe(q, &op);
	}
	if (q->draining && !q->count) {
		q->draining = false;
		sd_up.async_qp(q->qp, IBV_EVENT_SQ_DRAINED);
	}
}

/* Op i has failed; younger ones are forgotten until the flush */
static void fail(struct rcq *q, unsigned i, uint8_t synd, uint8_t vendor)
{
	struct op *op = op_at(q, i);

	drop_from(q, i + 1);
	q->sq_ci = op->idx + op->bbs;
	op->done = true;
	op->synd = synd;
	op->vendor = vendor;
	q->halted = true;
	retire(q);
}

static void fail_oldest(struct rcq *q, uint8_t synd, uint8_t vendor)
{
	unsigned i;

	for (i = 0; i < q->count && op_at(q, i)->done; i++)
		;
	if (i < q->count)
		fail(q, i, synd, vendor);
}

/* Back to op i. A younger one that had failed by itself, and waited for this one, is tried again too */
static void again(struct rcq *q, unsigned i, uint64_t us)
{
	struct op *op = op_at(q, i);

	q->halted = false;
	q->sq_ci = op->idx;
	q->npsn = op->psn;
	drop_from(q, i);
	q->wait_until = eng_now() + us * 1000;
	q->wait_step = eng_step;
}

static uint64_t rnr_us(unsigned code)
{
	static const uint16_t tens[32] = { 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
					   2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152 };
	uint64_t us = code & 31 ? tens[code & 31] * 10u : 655360;

	return us <= 1000 ? us : 1000 + (us - 1000) / 20;
}

static uint64_t timeout_us(struct rcq *q)
{
	unsigned t = q->qp->attr.timeout & 31;
	uint64_t us = t && t < 16 ? 4096ull << t >> 10 : 200000;

	return us < 1000 ? 1000 : us < 200000 ? us : 200000;
}

/* What the responder said about op i */
static void take_reply(struct rcq *q, unsigned i, enum reply r, unsigned rnr_timer)
{
	switch (r) {
	case RP_RNR:
		if (q->rnr_left == 0) {
			fail(q, i, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, 0x87);
			return;
		}
		if (q->rnr_left != 7)
			q->rnr_left--;
		again(q, i, rnr_us(rnr_timer));
		return;
	case RP_UNREACH:
		if (q->retry_left == 0) {
			fail_oldest(q, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, 0x81);
			return;
		}
		q->retry_left--;
		again(q, i, timeout_us(q));
		return;
	case RP_INVAL:
		fail(q, i, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, 0x8a);
		return;
	case RP_ACCESS:
		fail(q, i, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0x88);
		return;
	case RP_OPERR:
		fail(q, i, MLX5_CQE_SYNDROME_REMOTE_OP_ERR, 0x89);
		return;
	case RP_SRC_FAULT:
		fail(q, i, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x52);
		return;
	default:
		return;
	}
}

void sq_peer_dead(struct rcq *q)
{
	if (!q->err && reliable(q->qp))
		fail_oldest(q, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, 0x81);
}

/* ---- fetch and decode ---- */

/* Data segments from at to end; false: one runs past the end */
bool sq_parse_data(const uint8_t *at, const uint8_t *end, struct seglist *l, bool *has_inline)
{
	l->n = 0;
	l->total = 0;
	*has_inline = false;
	while (at < end) {
		struct mlx5_wqe_data_seg d;
		struct seg *s = &l->s[l->n];
		uint32_t bc;

		memcpy(&d, at, sizeof d);
		bc = be32toh(d.byte_count);
		if (bc & MLX5_INLINE_SEG) {
			bc &= ~MLX5_INLINE_SEG;
			if (bc > (size_t)(end - at) - 4)
				return false;
			*s = (struct seg){ 0, bc, 0, at + 4 };
			*has_inline = true;
			at += (bc + 4 + 15) & ~15u;
		} else {
			*s = (struct seg){ be64toh(d.addr), bc ? bc : 1u << 31, be32toh(d.lkey), NULL };
			at += sizeof d;
			if (bc == 0 && s->key == MLX5_INVALID_LKEY)
				continue;
		}
		l->total += s->len;
		l->n++;
	}
	return true;
}

/* Which operations a QP of this type has */
static bool has_opcode(enum ibv_qp_type type, uint8_t opcode)
{
	switch (opcode) {
	case MLX5_OPCODE_NOP:
	case MLX5_OPCODE_SEND:
	case SYNC_WAIT:
	case SYNC_SEND_EN:
	case SYNC_DUMP:
		return true;
	case MLX5_OPCODE_TSO:
	case OPCODE_MULTI_PACKET:
		return type == IBV_QPT_RAW_PACKET;
	case MLX5_OPCODE_SEND_IMM:
		return type != IBV_QPT_RAW_PACKET;
	case MLX5_OPCODE_RDMA_WRITE:
	case MLX5_OPCODE_RDMA_WRITE_IMM:
		return type != IBV_QPT_UD && type != IBV_QPT_RAW_PACKET;
	case MLX5_OPCODE_UMR:
		return type != IBV_QPT_UD;
	case MLX5_OPCODE_SEND_INVAL:
		return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
	case MLX5_OPCODE_RDMA_READ:
	case MLX5_OPCODE_ATOMIC_CS:
	case MLX5_OPCODE_ATOMIC_FA:
	case MLX5_OPCODE_ATOMIC_MASKED_CS:
	case MLX5_OPCODE_ATOMIC_MASKED_FA:
		return type == IBV_QPT_RC || type == SD_QPT_DCI || type == IBV_QPT_XRC_SEND;
	case MLX5_OPCODE_MMO:
		return type == IBV_QPT_RC || type == SD_QPT_DCI;
	case MLX5_OPCODE_TAG_MATCHING:
	case MLX5_OPCODE_SET_PSV:
		return type == IBV_QPT_RC;
	}
	return false;
}

/*
 * The operands of an extended atomic, behind its remote address. The modifier of the opcode is 8 and
 * log2 of the bytes, less 2
 */
static bool parse_masked(struct rcq *q, uint8_t opcode, unsigned opmod, const uint8_t **at, const uint8_t *end)
{
	unsigned size = 4u << (opmod & 7), bytes = operand_bytes(opcode, size);

	if (opmod >> 3 != 1 || size > SD_MAX_ATOMIC || end - *at < (ptrdiff_t)((bytes + 15) & ~15u))
		return false;
	memcpy(q->body.operands, *at, bytes);
	q->body.log_size = (opmod & 7) + 2;
	*at += (bytes + 15) & ~15u;
	return true;
}

/* READs and atomics in flight. The context has a logarithm: a DCI that asked for none has one */
static unsigned may_await(const struct sd_qp *qp)
{
	unsigned wanted = qp->type == SD_QPT_DCI && !qp->attr.max_rd_atomic ? 1 : qp->attr.max_rd_atomic;

	return wanted < SD_MAX_RD_ATOMIC ? wanted : SD_MAX_RD_ATOMIC;
}

/* The WQE in body.wqe, of ds * 16 bytes: fills op and body. Returns the syndrome */
static uint8_t decode(struct rcq *q, struct op *op, const struct mlx5_wqe_ctrl_seg *c, unsigned ds)
{
	const uint8_t *at = q->body.wqe + 16, *end = q->body.wqe + ds * 16;
	struct sd_qp *qp = q->qp;
	struct mlx5_wqe_raddr_seg r;
	struct mlx5_wqe_atomic_seg a;
	bool remote = is_rd(op->opcode) || op->opcode == MLX5_OPCODE_RDMA_WRITE || op->opcode == MLX5_OPCODE_RDMA_WRITE_IMM, inl;

	q->body.imm = c->imm;
	q->body.fm = c->fm_ce_se >> 5;
	q->body.se = c->fm_ce_se & MLX5_WQE_CTRL_SOLICITED;
	q->body.off = 0;
	if (!has_opcode(qp->type, op->opcode))
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	if (is_local(op->opcode)) {
		q->body.segs.n = 0;
		return 0;
	}
	if (qp->type == IBV_QPT_RAW_PACKET)
		return raw_decode(q, op, at, end);
	if (qp->type == IBV_QPT_UD || qp->type == SD_QPT_DCI) {
		uint8_t synd = ud_decode(q, &at, end);

		if (synd)
			return synd;
	}
	if (qp->type == IBV_QPT_XRC_SEND) {
		uint32_t srqn;

		if (end - at < 16)
			return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
		memcpy(&srqn, at, sizeof srqn);
		at += 16;
		q->body.srqn = be32toh(srqn) & 0xffffff;
	}
	if (remote) {
		if (end - at < (ptrdiff_t)sizeof r)
			return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
		memcpy(&r, at, sizeof r);
		at += sizeof r;
		q->body.raddr = be64toh(r.raddr);
		q->body.rkey = be32toh(r.rkey);
	}
	if (op->opcode == MLX5_OPCODE_ATOMIC_CS || op->opcode == MLX5_OPCODE_ATOMIC_FA) {
		if (end - at < (ptrdiff_t)sizeof a)
			return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
		memcpy(&a, at, sizeof a);
		at += sizeof a;
		q->body.swap_add = be64toh(a.swap_add);
		q->body.compare = be64toh(a.compare);
	}
	if (is_masked(op->opcode) && !parse_masked(q, op->opcode, be32toh(c->opmod_idx_opcode) >> 24, &at, end))
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	if (!sq_parse_data(at, end, &q->body.segs, &inl))
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	op->total = q->body.segs.total;
	op->sig = sig_in(qp, &q->body.segs, false);
	if (op->sig && (!sig_wire(qp, &q->body.segs, false, &op->total) || op->opcode == MLX5_OPCODE_ATOMIC_CS ||
			op->opcode == MLX5_OPCODE_ATOMIC_FA))
		return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
	if (!is_rd(op->opcode)) {
		if (op->total > (qp->type == IBV_QPT_UD ? UD_MTU : SD_MAX_MSG) || (qp->max_msg && op->total > qp->max_msg))
			return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
		return op->sig || mem_segs_ok(qp, &q->body.segs, 0) ? 0 : MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
	}
	if (inl || !may_await(qp))
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	if (op->opcode == MLX5_OPCODE_RDMA_READ ? op->total > SD_MAX_MSG : op->total != (is_masked(op->opcode) ? 1u << q->body.log_size : 8))
		return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
	return op->sig || mem_segs_ok(qp, &q->body.segs, IBV_ACCESS_LOCAL_WRITE) ? 0 : MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
}

static uint8_t vendor_of(uint8_t synd)
{
	return synd == MLX5_CQE_SYNDROME_LOCAL_PROT_ERR ? 0x51 : synd == MLX5_CQE_SYNDROME_WR_FLUSH_ERR ? 0xf9 : synd == MLX5_CQE_SYNDROME_MW_BIND_ERR ? 0x78 : 0x68;
}

/* The youngest op was sent whole, and no answer will come */
static void gone(struct rcq *q)
{
	struct op *op = op_at(q, q->count - 1);

	op->sent = op->done = true;
	q->streaming = false;
	retire(q);
}

static void make_frame(struct rcq *q, const struct op *op, uint64_t len, struct frame *f)
{
	*f = (struct frame){
		.len = len, .kind = FR_REQ, .type = q->qp->type, .opcode = op->opcode, .solicited = q->body.se,
		.dst = q->peer, .dc_key = q->dc_key, .srqn = q->body.srqn, .slid = sd_lid(q->qp->dev),
		.dev = q->path_dev, .src = q->qp->qpn, .psn = op->psn, .epoch = q->epoch, .imm = q->body.imm, .rkey = q->body.rkey,
		.raddr = q->body.raddr, .total = op->total, .off = q->body.off, .swap_add = q->body.swap_add,
		.compare = q->body.compare, .log_size = is_masked(op->opcode) ? q->body.log_size : 0,
	};
}

/* What goes along with a request for data: an extended atomic's operands */
static void add_operands(struct rcq *q, struct frame *f, struct iovec *src, unsigned *ns)
{
	if (!is_masked(f->opcode))
		return;
	f->len = operand_bytes(f->opcode, 1u << f->log_size);
	src[0] = (struct iovec){ q->body.operands, f->len };
	*ns = 1;
}

/*
 * The first bytes of the op, for a fault: once more, when it has left and is to come twice and the
 * responder knows its PSN by now; or alone. p: the responder, or NULL: in another process
 */
static void send_first(struct rcq *q, const struct op *op, struct rcq *p, uint64_t most, bool dup)
{
	struct iovec src[ENG_IOVS];
	struct rx_out out;
	unsigned ns = 0;
	struct frame f;

	make_frame(q, op, op->segs ? 0 : op->total < most ? op->total : most, &f);
	f.off = 0;
	f.dup = dup;
	if (!mem_vec(q->qp, &q->body.segs, 0, f.len, 0, src, &ns))
		return;
	add_operands(q, &f, src, &ns);
	if (p)
		rx_request(p, &f, src, ns, &out);
	else
		wire_send(q->slot, q->inst, &f, src, ns);
}

/* The first bytes of a message that then fails */
static void send_part(struct rcq *q, const struct op *op, uint64_t most)
{
	const bool local = q->peer >> 16 == sd_slot || eng_is_stepped;
	const struct sd_qp *peer = local ? sd_qp_find(q->peer) : NULL;
	struct rcq *p = peer ? peer->eng : NULL;

	if (q->qp->type == IBV_QPT_RC && !op->segs && p != q && !p == !local)
		send_first(q, op, p, most < ENG_CHUNK_WIRE ? most : ENG_CHUNK_WIRE, false);
}

/* A message that fails has come half way: the responder holds the receive WQE that it took for it */
static void break_off(struct rcq *q, const struct op *op)
{
	if (op->total / 2)
		send_part(q, op, op->total / 2);
}

/* What a fault specification wants of the youngest op, before its first byte goes */
static void faults(struct rcq *q)
{
	unsigned last = q->count - 1;
	struct op *op = op_at(q, last);
	struct fault_act act = fault_message(q->qp->dev, op->total);

	op->corrupt = act.corrupt;
	op->dup = act.dup;
	q->body.held = false;
	if (act.last && !act.syndrome)
		send_part(q, op, op->total);
	if (act.last)
		fault_fall(q->qp->dev);
	if (act.syndrome) {
		op->fatal = true;
		break_off(q, op);
		fail(q, last, act.syndrome, 0);
	} else if (act.down && reliable(q->qp)) {
		fail_oldest(q, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, 0x81);
	} else if ((act.drop || act.down) && !reliable(q->qp)) {
		gone(q);
	} else if (act.drop && q->retry_left == 0) {
		fail(q, last, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, 0x81);
	} else if (act.drop) {
		take_reply(q, last, RP_UNREACH, 0);
	} else if (act.delay_us) {
		q->body.held = true;
		q->wait_until = eng_now() + act.delay_us * 1000ull;
		q->wait_step = eng_step;
	}
}

/* A READ or an atomic remembers where its data go. False: it must wait */
static bool await_data(struct rcq *q, struct op *op)
{
	unsigned max = may_await(q->qp);
	size_t size = offsetof(struct seglist, s) + q->body.segs.n * sizeof(struct seg);

	op->segs = q->rd < max ? malloc(size) : NULL;
	if (!op->segs)
		return false;
	memcpy(op->segs, &q->body.segs, size);
	q->rd++;
	return true;
}

/* Begins what tag matching asks for, which is no WQE. False: it must wait */
static bool launch_own(struct rcq *q)
{
	struct op *op = op_at(q, q->count);

	*op = (struct op){ .idx = q->sq_ci, .psn = q->npsn };
	tm_request(q, op);
	if (is_rd(op->opcode) && !await_data(q, op))
		return false;
	tm_launched(op->rndv, true);
	q->count++;
	q->npsn = (q->npsn + 1) & 0xffffff;
	q->streaming = true;
	faults(q);
	return true;
}

/*
 * Memory with signatures: what the wire has instead of it lies in the op. A READ's is filled by the
 * answer. Returns the syndrome
 */
static uint8_t through_signatures(struct rcq *q, struct op *op)
{
	op->bounce = malloc(op->total ? op->total : 1);
	if (!op->bounce)
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	if (is_rd(op->opcode))
		return 0;
	if (sig_gather(q, &q->body.segs, false, op->bounce, op->total) != MEM_OK)
		return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
	q->body.segs.n = 1;
	q->body.segs.total = op->total;
	q->body.segs.s[0] = (struct seg){ 0, op->total, 0, op->bounce };
	return 0;
}

/* Takes the next WQE out of the ring and makes it an op. False: it must wait */
static bool launch(struct rcq *q)
{
	struct sd_qp *qp = q->qp;
	unsigned queued = (uint16_t)(q->sq_pi - q->sq_ci), left = queued < qp->wqebb_cnt ? queued : qp->wqebb_cnt, ds = 0;
	unsigned bytes = left << 6 < ENG_WQE_MAX ? left << 6 : ENG_WQE_MAX;
	struct mlx5_wqe_ctrl_seg c;
	struct op *op = op_at(q, q->count);
	uint8_t synd = 0;

	*op = (struct op){ .idx = q->sq_ci, .bbs = 1, .psn = q->npsn };
	memset(&c, 0, sizeof c);
	if (!fetch(q, left, bytes)) {
		synd = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	} else {
		memcpy(&c, q->body.wqe, sizeof c);
		op->opcode = be32toh(c.opmod_idx_opcode) & 0xff;
		op->ce = c.fm_ce_se >> 2 & 3;
		op->stream = be16toh(c.dci_stream_channel_id);
		ds = be32toh(c.qpn_ds) & 0xff;
		if (ds < 1 || ds * 16 > SD_MAX_SQ_DESC || ds * 16 > bytes || be32toh(c.qpn_ds) >> 8 != qp->qpn ||
		    (!qp->cd_slave_send && (be32toh(c.opmod_idx_opcode) >> 8 & 0xffff) != q->sq_ci)) {
			synd = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
		} else {
			op->bbs = (ds + 3) / 4;
			/* What comes after a failed one is not looked at until the program has the stream reset */
			if (qp->streams && dc_stream_failed(q, op->stream)) {
				if (q->count)
					return false;
				synd = MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
			} else {
				synd = decode(q, op, &c, ds);
			}
		}
	}
	/* Any fence waits for the answers to earlier READs and atomics; the strong one for everything */
	if (!synd && q->body.fm && (q->body.fm == 3 ? q->count : q->rd))
		return false;
	/* A retry of an elder would execute it again */
	if (!synd && is_local(op->opcode) && op->opcode != MLX5_OPCODE_NOP && op->opcode != SYNC_WAIT && op->opcode != SYNC_SEND_EN && q->count)
		return false;
	if (!synd && sync_is(op->opcode)) {
		int ret = sync_run(q, op->opcode, be32toh(c.opmod_idx_opcode) >> 24, q->body.wqe + 16, q->body.wqe + ds * 16);

		/* It is looked at again soon, whatever the device sleeps for */
		if (ret < 0) {
			q->wait_until = eng_now() + 20000;
			q->wait_step = 0;
			return false;
		}
		synd = ret;
	}
	if (!synd && op->opcode == MLX5_OPCODE_UMR)
		synd = window_umr(q, &c, q->body.wqe + 16, q->body.wqe + ds * 16);
	if (!synd && op->opcode == MLX5_OPCODE_SET_PSV)
		synd = sig_set_psv(q, q->body.wqe + 16, q->body.wqe + ds * 16);
	if (!synd && qp->type == SD_QPT_DCI && !is_local(op->opcode) && !dc_aim(q))
		return false;
	if (!synd && op->opcode == MLX5_OPCODE_TAG_MATCHING)
		synd = tm_command(q, q->sq_ci, q->body.wqe + 16, q->body.wqe + ds * 16);
	if (!synd && is_rd(op->opcode)) {
		if (!await_data(q, op))
			return false;
		if ((op->ce & 2 || qp->sig_all) && op->total && op->total <= qp->scatter_req && !op->sig)
			op->to_cqe = qp->scatter_req;
	}
	if (!synd && op->sig)
		synd = through_signatures(q, op);
	q->count++;
	q->sq_ci += op->bbs;
	if (synd || is_local(op->opcode)) {
		op->local = op->done = true;
		if (synd)
			fail(q, q->count - 1, synd, vendor_of(synd));
		return true;
	}
	q->npsn = (q->npsn + 1) & 0xffffff;
	q->streaming = true;
	faults(q);
	return true;
}

/* ---- execution ---- */

/*
 * Bytes of a READ or an atomic have come for the requester: MEM_DST when its own memory refuses
 * them
 */
static int take_data(struct rcq *q, struct op *op, uint64_t off, uint64_t len, const struct iovec *src, unsigned ns)
{
	struct iovec dst[ENG_IOVS], bad;
	uint64_t value;
	unsigned nd;
	int err;

	if (op->sig) {
		dst[0] = (struct iovec){ op->bounce + off, len };
		nd = 1;
	} else if (!mem_vec(q->qp, op->segs, off, len, IBV_ACCESS_LOCAL_WRITE, dst, &nd)) {
		return MEM_DST;
	}
	if (op->corrupt && off == 0) {
		bad = (struct iovec){ (void *)mem_spoil(src, ns, len), len };
		if (!bad.iov_base)
			return MEM_SRC;
		src = &bad;
		ns = 1;
	}
	if (op->to_cqe) {
		dst[0] = (struct iovec){ op->resp + off, len };
		nd = 1;
	}
	err = mem_copy(dst, nd, src, ns, len);
	if (err == MEM_OK && op->sig && off + len == op->total)
		err = sig_scatter(q, op->segs, false, op->bounce, op->total);
	if (op->to_cqe && q->qp->cqe_atomic_be && op->opcode != MLX5_OPCODE_RDMA_READ && op->total == 8) {
		memcpy(&value, op->resp, sizeof value);
		value = htobe64(value);
		memcpy(op->resp, &value, sizeof value);
	}
	return err;
}

/*
 * The bytes of a piece, or of the spoiled copy that a fault makes of the first; false: the op has
 * failed
 */
static bool piece(struct rcq *q, struct op *op, uint64_t len, struct iovec *src, unsigned *ns)
{
	bool ok = mem_vec(q->qp, &q->body.segs, q->body.off, len, 0, src, ns);

	if (ok && op->corrupt && q->body.off == 0) {
		src[0] = (struct iovec){ (void *)mem_spoil(src, *ns, len), len };
		*ns = 1;
		ok = src[0].iov_base;
	}
	if (!ok)
		fail(q, q->count - 1, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x51);
	return ok;
}

/* The next piece of the streaming op, to a QP of this process. Returns the bytes moved */
static uint64_t step_local(struct rcq *q)
{
	unsigned last = q->count - 1, ns = 0;
	struct op *op = op_at(q, last);
	struct sd_qp *pqp = sd_qp_find(q->peer);
	struct rcq *p = pqp ? pqp->eng : NULL;
	uint64_t left = op->total - q->body.off, len = left < ENG_CHUNK_LOCAL ? left : ENG_CHUNK_LOCAL;
	struct iovec src[ENG_IOVS];
	struct rx_out out;
	enum reply r = RP_UNREACH;
	struct frame f;

	out.n = 0;
	memset(out.old, 0, sizeof out.old);
	make_frame(q, op, len, &f);
	if (!op->segs && !piece(q, op, len, src, &ns))
		return 0;
	add_operands(q, &f, src, &ns);
	if (pqp && pqp->type == SD_QPT_DCT)
		p = dc_responder(pqp, sd_slot, 0, &f);
	eng_self = p == q ? q : NULL;
	if (p)
		r = rx_request(p, &f, src, ns, &out);
	if (p && op->dup && (r == RP_ACK || q->qp->type == IBV_QPT_UC))
		send_first(q, op, p, ENG_CHUNK_LOCAL, true);
	eng_self = NULL;
	if (q->qp->type == IBV_QPT_UC && r != RP_ACK && r != RP_MORE && r != RP_SRC_FAULT) {
		gone(q);
		if (p == q && r == RP_OPERR)
			sq_enter_err(q);
		return len + 256;
	}
	if (r != RP_ACK && r != RP_MORE) {
		take_reply(q, last, r, p ? p->qp->attr.min_rnr_timer : 0);
		return 0;
	}
	refill(q);
	if (op->segs && len) {
		if (op->opcode != MLX5_OPCODE_RDMA_READ) {
			out.v[0] = (struct iovec){ out.old, len };
			out.n = 1;
		}
		switch (take_data(q, op, q->body.off, len, out.v, out.n)) {
		case MEM_SRC:
			if (p != q)
				rx_access_fault(p);
			take_reply(q, last, RP_ACCESS, 0);
			return 0;
		case MEM_DST:
			fail(q, last, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x52);
			return 0;
		}
	}
	q->body.off += len;
	if (r == RP_ACK)
		gone(q);
	return len + 256;
}

/* The same through a socket; 0 and still streaming: no room */
static uint64_t step_wire(struct rcq *q)
{
	unsigned last = q->count - 1, n = 0;
	struct op *op = op_at(q, last);
	uint64_t left = op->total - q->body.off, len = left < ENG_CHUNK_WIRE ? left : ENG_CHUNK_WIRE;
	struct iovec src[ENG_IOVS];
	struct frame f;
	int ret;

	if (!wire_room(q->slot))
		return 0;
	if (op->segs)
		len = 0;
	make_frame(q, op, len, &f);
	if (!piece(q, op, len, src, &n))
		return 0;
	add_operands(q, &f, src, &n);
	ret = wire_send(q->slot, q->inst, &f, src, n);
	if (ret == -EAGAIN)
		return 0;
	if (ret == -EFAULT) {
		fail(q, last, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x52);
		return 0;
	}
	if (ret && q->qp->type == IBV_QPT_UC) {
		gone(q);
		return 256;
	}
	if (ret) {
		sq_peer_dead(q);
		return 0;
	}
	q->body.off += len;
	if (op->segs || q->body.off >= op->total) {
		if (op->dup)
			send_first(q, op, NULL, ENG_CHUNK_WIRE, true);
		op->sent = true;
		q->streaming = false;
		if (q->qp->type == IBV_QPT_UC)
			gone(q);
	}
	return len + 256;
}

/* A datagram is one piece, and so are raw packets */
static uint64_t step_ud(struct rcq *q)
{
	struct op *op = op_at(q, q->count - 1);
	uint64_t moved = op->total + 256;
	uint8_t synd = 0;
	bool stop = false;

	if (q->qp->type == IBV_QPT_UD ? !ud_send(q, op, &synd, &stop) : !raw_send(q, op, &synd))
		return 0;
	if (synd)
		fail(q, q->count - 1, synd, 0x52);
	else
		gone(q);
	if (stop)
		sq_enter_err(q);
	return moved;
}

/* Executes up to max WQEs, adding to *executed; true: something moved */
bool sq_run(struct rcq *q, unsigned max, unsigned *executed)
{
	struct sd_qp *qp = q->qp;
	uint64_t moved = 0;
	unsigned n = 0;
	bool did = false;
	uint16_t ci;

	if (qp->state == IBV_QPS_SQE && !q->err)
		return flush_sends(q);
	while (!q->err && !q->halted && !eng_cqs_dead(qp)) {
		if (!q->streaming) {
			bool own = tm_pending(q);

			if ((moved >= BUDGET && !eng_is_stepped) || qp->state != IBV_QPS_RTS || q->count == ENG_OPS ||
			    (!own && (n >= max || q->sq_ci == q->sq_pi)))
				break;
			if (eng_is_stepped ? q->wait_step == eng_step : q->wait_until && eng_now() < q->wait_until)
				break;
			q->wait_until = 0;
			ci = q->sq_ci;
			if (own ? !launch_own(q) : !launch(q))
				break;
			did = true;
			n += q->sq_ci != ci;
			if (!q->streaming)
				retire(q);
			continue;
		}
		if (q->body.held) {
			if (eng_is_stepped ? q->wait_step == eng_step : eng_now() < q->wait_until)
				break;
			q->body.held = false;
			q->wait_until = 0;
		}
		if (moved >= BUDGET && !eng_is_stepped)
			break;
		if (qp->type == IBV_QPT_UD || qp->type == IBV_QPT_RAW_PACKET) {
			uint64_t m = step_ud(q);

			if (!m)
				break;
			moved += m;
		} else if (q->peer >> 16 == sd_slot || eng_is_stepped) {
			uint64_t m;

			ci = q->sq_ci;
			m = step_local(q);

			/* Sent back to wait: not executed */
			if (!m && !q->err && !q->halted && q->sq_ci != ci)
				n--;
			moved += m;
		} else {
			uint64_t m = step_wire(q);

			if (!m && q->streaming)
				break;
			moved += m;
		}
		did = true;
	}
	*executed += n;
	return did;
}

/* ---- answers from another process ---- */

void sq_response(struct rcq *q, const struct frame *f, const uint8_t *payload)
{
	struct op *op = NULL;
	unsigned i;

	if (q->err || !reliable(q->qp) || f->epoch != q->epoch || f->src != q->peer)
		return;
	for (i = 0; i < q->count; i++) {
		op = op_at(q, i);
		if (!op->local && op->psn == f->psn)
			break;
	}
	if (i == q->count)
		return;
	switch (f->kind) {
	case FR_ACK:
	case FR_NAK: {
		unsigned k;

		/* Covers all before it; READs and atomics wait for their data */
		for (k = 0; k < i + (f->kind == FR_ACK); k++)
			if (op_at(q, k)->sent && !op_at(q, k)->segs)
				op_at(q, k)->done = true;
		if (f->kind == FR_ACK)
			refill(q);
		else if (!op->done)
			take_reply(q, i, f->code, f->imm);
		break;
	}
	case FR_READ:
		if (op->opcode != MLX5_OPCODE_RDMA_READ || op->done || f->off != op->off || f->len > op->total - op->off ||
		    (!f->len && op->total))
			return;
		if (take_data(q, op, f->off, f->len, &(struct iovec){ (void *)payload, f->len }, 1) != MEM_OK) {
			fail(q, i, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x52);
			return;
		}
		op->off += f->len;
		op->done = op->off == op->total;
		refill(q);
		break;
	case FR_ATOMIC:
		if (!is_atomic(op->opcode) || op->done)
			return;
		if (take_data(q, op, 0, op->total, &(struct iovec){ (void *)f->old, op->total }, 1) != MEM_OK) {
			fail(q, i, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x52);
			return;
		}
		op->done = true;
		refill(q);
		break;
	}
	retire(q);
}
