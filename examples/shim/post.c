/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Posting: turns verbs' work requests into inlay's posts. Refuses what libmlx5 refuses, with the same
 * errno.
 */
#include "shim.h"

/* libmlx5 takes a negative number for 0. */
static inline uint32_t sges_of(int num_sge)
{
	return num_sge > 0 ? (uint32_t)num_sge : 0;
}

/* ---- What ibv_post_send and ibv_wr_* share ---- */

/*
 * Computes how many sends may be posted: as many as verbs promised, minus those not yet polled, even
 * if the ring could hold more. Returns the credit of the last polled send, and so of all before it,
 * to inlay's queue. The ring then has room for that many sends of any length.
 */
static bool refill(struct shim_sq *sq)
{
	uint32_t tail = __atomic_load_n(&sq->tail, __ATOMIC_ACQUIRE), index = inlay_sq_index(&sq->q);

	sq->room = sq->max_sends - (sq->head - tail);
	if (!sq->room)
		return false;
	inlay_sq_release_until(&sq->q, index - (uint16_t)(index - __atomic_load_n(&sq->done, __ATOMIC_RELAXED)));
	return true;
}

/* Whether one more send may be posted. */
static inline bool room(struct shim_sq *sq)
{
	return INLAY_LIKELY(sq->room) || refill(sq);
}

/* libmlx5's errno for an error of inlay's posts. */
static int errno_of(int err)
{
	return err == -EAGAIN || err == -E2BIG ? ENOMEM : -err;
}

/* The INLAY_* flags for a request's IBV_SEND_* flags: bits are shifted rather than tested. */
static inline uint32_t flags_of(struct shim_sq *sq, unsigned int send_flags)
{
	uint32_t signaled = (send_flags & IBV_SEND_SIGNALED) * (INLAY_SIGNALED / IBV_SEND_SIGNALED);
	uint32_t solicited = (send_flags & IBV_SEND_SOLICITED) * (INLAY_SOLICITED / IBV_SEND_SOLICITED);

	return sq->always | signaled | solicited |
	       (send_flags & IBV_SEND_FENCE ? (uint32_t)INLAY_FENCE_SMALL_AND_FENCE : sq->fence);
}

/* Remembers the last send, which begins at WQEBB `index`. */
static inline void remember(struct shim_sq *sq, uint32_t index, uint64_t wr_id, uint32_t opcode)
{
	struct shim_send *send = &sq->sends[index & (inlay_sq_size(&sq->q) - 1)];

	send->wr_id = wr_id;
	send->number = sq->head++;
	sq->room--;
	send->opcode = (uint16_t)opcode;
	send->end = (uint16_t)inlay_sq_index(&sq->q);
}

/* ---- ibv_post_send ---- */

enum {
	POSTED = 1, /* and remembered */
};

/* A change of a memory window's key. */
static int post_change(struct shim_sq *sq, const struct ibv_send_wr *wr, uint32_t flags)
{
	uint32_t index = inlay_sq_index(&sq->q);
	int err;

	if (wr->opcode == IBV_WR_BIND_MW)
		err = inlay_post_bind_mw(&sq->q, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info, flags);
	else
		err = inlay_post_local_inv(&sq->q, wr->invalidate_rkey, flags);
	if (err)
		return err;
	/* Its CQE only says that a key was changed. */
	remember(sq, index, wr->wr_id, wr->opcode == IBV_WR_BIND_MW ? IBV_WC_BIND_MW : IBV_WC_LOCAL_INV);
	sq->fence = INLAY_FENCE_INITIATOR_SMALL;
	return POSTED;
}

/*
 * Posts one work request. num_sge, INLAY_INLINE in flags and `to`, the destination or NULL, are
 * constants where that pays. Returns 0; POSTED if the send has been remembered too; or an error.
 */
INLAY_ALWAYS int post(struct shim_sq *sq, const struct ibv_send_wr *wr, const struct inlay_av *to, uint32_t num_sge,
		      uint32_t flags)
{
	struct inlay_wr r = {.raddr = wr->wr.rdma.remote_addr, .rkey = wr->wr.rdma.rkey, .imm_be = wr->imm_data, .to = to,
			     .sge = wr->sg_list, .num_sge = num_sge};
	const uint32_t plain = flags & ~(uint32_t)INLAY_INLINE;
	struct inlay_sq *q = &sq->q;

	switch (wr->opcode) {
	case IBV_WR_SEND:
		return inlay_post(q, MLX5_OPCODE_SEND, &r, flags);
	case IBV_WR_SEND_WITH_IMM:
		return inlay_post(q, MLX5_OPCODE_SEND_IMM, &r, flags);
	case IBV_WR_SEND_WITH_INV:
		r.rkey = wr->invalidate_rkey;
		return inlay_post(q, MLX5_OPCODE_SEND_INVAL, &r, flags);
	case IBV_WR_RDMA_WRITE:
		return inlay_post(q, MLX5_OPCODE_RDMA_WRITE, &r, flags);
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return inlay_post(q, MLX5_OPCODE_RDMA_WRITE_IMM, &r, flags);
	case IBV_WR_RDMA_READ:
		return inlay_post(q, MLX5_OPCODE_RDMA_READ, &r, plain);
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		if (num_sge != 1)
			return -EINVAL;
		r.raddr = wr->wr.atomic.remote_addr;
		r.rkey = wr->wr.atomic.rkey;
		r.data = (const void *)(uintptr_t)wr->sg_list->addr;
		r.lkey = wr->sg_list->lkey;
		r.num_sge = 0;
		if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
			return inlay_post_atomic(q, inlay_atomic_add(wr->wr.atomic.compare_add), &r, plain);
		return inlay_post_atomic(q, inlay_atomic_cmp_swap(wr->wr.atomic.compare_add, wr->wr.atomic.swap), &r, plain);
	case IBV_WR_LOCAL_INV:
	case IBV_WR_BIND_MW:
		return post_change(sq, wr, plain);
	default:
		return -EINVAL;
	}
}

/* A request that names its destination. */
static int post_to(struct shim_qp *qp, const struct ibv_send_wr *wr, uint32_t num_sge, uint32_t flags)
{
	const struct mlx5_wqe_av *to;
	struct inlay_av av;

	if (inlay_sq_type(&qp->sq.q) == IBV_QPT_UD) {
		to = shim_av(wr->wr.ud.ah);
		if (INLAY_UNLIKELY(!to))
			return -ENOMEM;
		if (INLAY_UNLIKELY(wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_IMM))
			return -EINVAL;
		inlay_av_init(&av, to, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
	} else {
		inlay_av_init_xrc(&av, wr->qp_type.xrc.remote_srqn);
	}
	return post(&qp->sq, wr, &av, num_sge, flags);
}

/* The offloads for a packet. False: the device lacks one. */
static bool eth_of(const struct shim_qp *qp, unsigned int send_flags, struct inlay_eth *eth)
{
	bool csum = send_flags & IBV_SEND_IP_CSUM;

	*eth = inlay_eth_csum(csum ? INLAY_CSUM_L3 | INLAY_CSUM_L4 : 0);
	return !csum || qp->context->csum;
}

static bool tso_ok(const struct shim_sq *sq, uint32_t hdr_sz, uint32_t mss)
{
	return hdr_sz >= 14 && hdr_sz <= sq->max_tso_header && mss && mss < 16384;
}

/* One packet. */
static int post_packet(struct shim_qp *qp, const struct ibv_send_wr *wr, uint32_t num_sge, uint32_t flags)
{
	struct inlay_eth eth;
	uint64_t total = 0;
	uint32_t i;

	if (!eth_of(qp, wr->send_flags, &eth))
		return -EINVAL;
	if (wr->opcode == IBV_WR_SEND)
		return inlay_post_packet(&qp->sq.q, eth, wr->sg_list, num_sge, flags);
	if (wr->opcode != IBV_WR_TSO || !tso_ok(&qp->sq, wr->tso.hdr_sz, wr->tso.mss))
		return -EINVAL;
	for (i = 0; i < num_sge; i++)
		total += wr->sg_list[i].length;
	if (total > qp->context->max_tso)
		return -EINVAL;
	return inlay_post_tso(&qp->sq.q, inlay_eth_mss(eth, wr->tso.mss), wr->tso.hdr, wr->tso.hdr_sz, wr->sg_list,
			      num_sge, flags);
}

/* A request on one of the other QP types; each finds its destination in a different place. */
INLAY_APART int post_other(struct shim_qp *qp, const struct ibv_send_wr *wr, uint32_t num_sge, uint32_t flags)
{
	switch (inlay_sq_type(&qp->sq.q)) {
	case IBV_QPT_UD:
	case IBV_QPT_XRC_SEND:
		return post_to(qp, wr, num_sge, flags);
	case IBV_QPT_RAW_PACKET:
		return post_packet(qp, wr, num_sge, flags);
	default: /* a DCI's destination is in no request */
		return -EINVAL;
	}
}

/* Whether they fit the inline limit. */
static bool inline_ok(const struct shim_sq *sq, const struct ibv_send_wr *wr)
{
	uint64_t total = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++)
		total += wr->sg_list[i].length;
	/* The part of a packet that the device always wants inline does not count. */
	return total <= sq->max_inline + inlay_sq_min_inline(&sq->q);
}

INLAY_ALWAYS int post_one(struct shim_qp *qp, const struct ibv_send_wr *wr)
{
	struct shim_sq *sq = &qp->sq;
	uint32_t flags, index;
	int err;

	if (INLAY_UNLIKELY(!room(sq) || wr->num_sge > sq->max_sge))
		return ENOMEM;
	flags = flags_of(sq, wr->send_flags);
	index = inlay_sq_index(&sq->q);
	if (wr->send_flags & IBV_SEND_INLINE) {
		flags |= INLAY_INLINE;
		if (INLAY_LIKELY(wr->num_sge == 1) ? wr->sg_list->length > sq->max_inline && !inline_ok(sq, wr) :
						     !inline_ok(sq, wr))
			return ENOMEM;
	}
	if (INLAY_UNLIKELY(!sq->connected))
		err = post_other(qp, wr, sges_of(wr->num_sge), flags);
	else if (INLAY_UNLIKELY(wr->num_sge != 1))
		err = post(sq, wr, NULL, sges_of(wr->num_sge), flags);
	else if (flags & INLAY_INLINE)
		err = post(sq, wr, NULL, 1, flags | INLAY_INLINE);
	else
		err = post(sq, wr, NULL, 1, flags & ~(uint32_t)INLAY_INLINE);
	if (INLAY_UNLIKELY(err))
		return err == POSTED ? 0 : errno_of(err);
	remember(sq, index, wr->wr_id, 0);
	sq->fence = 0;
	return 0;
}

int shim_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct shim_qp *qp = shim_find(ibqp);
	int err = 0;

	if (INLAY_UNLIKELY(!qp))
		return ((struct shim_context *)shim_find(ibqp->context))->ops.post_send(ibqp, wr, bad_wr);
	shim_acquire(&qp->sq.lock);
	for (; wr; wr = wr->next) {
		err = post_one(qp, wr);
		if (INLAY_UNLIKELY(err)) {
			*bad_wr = wr;
			break;
		}
	}
	/*
	 * Requests before a bad one go out: a single one as a BlueFlame copy, several by a doorbell.
	 */
	inlay_sq_ring(&qp->sq.q);
	shim_release(&qp->sq.lock);
	return err;
}

/* ---- ibv_wr_*: the WQE is built as the calls come, with inlay's cursor ---- */

/*
 * Verbs gives comp_mask no meaning: the shim keeps its pointer there, so that these calls, four a
 * post, find it.
 */
static struct shim_qp *qp_of(struct ibv_qp_ex *ex)
{
	return (struct shim_qp *)(uintptr_t)ex->comp_mask;
}

static struct shim_sq *sq_of(struct ibv_qp_ex *ex)
{
	return &qp_of(ex)->sq;
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct shim_sq *sq = sq_of(ex);

	shim_acquire(&sq->lock);
	sq->err = 0;
	sq->begun = sq->head;
	sq->begun_fence = sq->fence;
}

/* Takes back the posts since ibv_wr_start. No doorbell was rung for them. */
static void undo(struct shim_sq *sq)
{
	inlay_sq_undo(&sq->q, inlay_sq_rung(&sq->q));
	sq->room += sq->head - sq->begun;
	sq->head = sq->begun;
	sq->fence = sq->begun_fence;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct shim_sq *sq = sq_of(ex);
	int err = INLAY_UNLIKELY(sq->max_sge < 0) ? EINVAL : sq->err;

	if (INLAY_UNLIKELY(err))
		undo(sq);
	else
		inlay_sq_ring(&sq->q);
	shim_release(&sq->lock);
	return err;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	struct shim_sq *sq = sq_of(ex);

	undo(sq);
	shim_release(&sq->lock);
}

/* An error is kept until ibv_wr_complete reports it. Until then the calls do nothing. */
void shim_wr_fail(struct shim_sq *sq, int err)
{
	if (!sq->err)
		sq->err = err;
}

/*
 * The cursor of the WQE being built, behind its first `ds` units, with room for `bbs` WQEBBs. All
 * else follows from the queue, so nothing is kept between the calls.
 */
INLAY_ALWAYS struct inlay_cursor cursor(struct shim_sq *sq, uint32_t ds, uint32_t bbs)
{
	struct inlay_cursor at = inlay_sq_begin_counted(&sq->q, bbs);

	at.at = at.wqe + (size_t)ds * INLAY_DS;
	at.ds = ds;
	if (ds > 4 && INLAY_UNLIKELY(at.at > at.end))
		at.at -= at.end - at.begin;
	return at;
}

/*
 * Every builder begins here and continues at *at. The destination comes first. Its space is
 * reserved, since it may be set before or after the data. The WQE's length is not known yet, but
 * below max_sends there is always room for the longest. Returns false after an error.
 */
INLAY_ALWAYS bool begin(struct shim_sq *sq, struct ibv_qp_ex *ex, uint8_t opcode, uint32_t imm_be,
			struct inlay_cursor *at)
{
	if (INLAY_UNLIKELY(!room(sq) || inlay_sq_room(&sq->q) < sq->longest))
		shim_wr_fail(sq, ENOMEM);
	if (INLAY_UNLIKELY(sq->err))
		return false;
	sq->opcode = opcode;
	sq->imm_be = imm_be;
	sq->flags = flags_of(sq, ex->wr_flags);
	sq->fence = 0;
	*at = cursor(sq, 1, sq->longest);
	if (INLAY_UNLIKELY(sq->to)) {
		sq->missing = 1;
		*at = cursor(sq, 1 + sq->to, sq->longest);
	}
	return true;
}

/* As above, for requests that one of inlay's posts writes as a whole. */
bool shim_wr_room(struct shim_sq *sq, struct ibv_qp_ex *ex, uint32_t n)
{
	if (INLAY_UNLIKELY(sq->room < n && (!refill(sq) || sq->room < n)))
		shim_wr_fail(sq, ENOMEM);
	if (INLAY_UNLIKELY(sq->err))
		return false;
	sq->flags = flags_of(sq, ex->wr_flags);
	sq->fence = 0;
	return true;
}

/* The end of such a request. index: of the WQE; opcode: as in remember. */
void shim_wr_posted(struct shim_sq *sq, struct ibv_qp_ex *ex, int err, uint32_t index, uint32_t opcode)
{
	if (INLAY_UNLIKELY(err))
		shim_wr_fail(sq, errno_of(err));
	else
		remember(sq, index, ex->wr_id, opcode);
}

/* Completes the WQE. */
INLAY_ALWAYS void finish(struct shim_sq *sq, struct ibv_qp_ex *ex, struct inlay_cursor at, uint32_t flags)
{
	inlay_sq_commit(&sq->q, at, sq->opcode, 0, flags, sq->imm_be);
	remember(sq, at.index, ex->wr_id, 0);
}

/* Every setter ends here; the last one completes the WQE. */
INLAY_ALWAYS void set(struct shim_sq *sq, struct ibv_qp_ex *ex, struct inlay_cursor at)
{
	if (INLAY_UNLIKELY(sq->missing)) {
		sq->missing--;
		sq->ds = (uint32_t)at.ds;
		return;
	}
	finish(sq, ex, at, sq->flags);
}

INLAY_ALWAYS void wr_plain(struct ibv_qp_ex *ex, uint8_t opcode, uint32_t imm_be)
{
	struct shim_sq *sq = sq_of(ex);
	struct inlay_cursor at;

	if (INLAY_LIKELY(begin(sq, ex, opcode, imm_be, &at)))
		sq->ds = (uint32_t)at.ds;
}

static void wr_send(struct ibv_qp_ex *ex)
{
	wr_plain(ex, MLX5_OPCODE_SEND, 0);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm_data)
{
	wr_plain(ex, MLX5_OPCODE_SEND_IMM, imm_data);
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t invalidate_rkey)
{
	wr_plain(ex, MLX5_OPCODE_SEND_INVAL, inlay_to_be32(invalidate_rkey));
}

INLAY_ALWAYS void wr_remote(struct ibv_qp_ex *ex, uint8_t opcode, uint32_t imm_be, uint32_t rkey, uint64_t remote_addr)
{
	struct shim_sq *sq = sq_of(ex);
	struct inlay_cursor at;

	if (INLAY_LIKELY(begin(sq, ex, opcode, imm_be, &at)))
		sq->ds = (uint32_t)inlay_seg_raddr(at, remote_addr, rkey).ds;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	wr_remote(ex, MLX5_OPCODE_RDMA_WRITE, 0, rkey, remote_addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, __be32 imm_data)
{
	wr_remote(ex, MLX5_OPCODE_RDMA_WRITE_IMM, imm_data, rkey, remote_addr);
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	wr_remote(ex, MLX5_OPCODE_RDMA_READ, 0, rkey, remote_addr);
}

INLAY_ALWAYS void wr_atomic(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, struct inlay_atomic op)
{
	struct shim_sq *sq = sq_of(ex);
	struct inlay_cursor at;

	if (INLAY_LIKELY(begin(sq, ex, (uint8_t)op.opcode, 0, &at)))
		sq->ds = (uint32_t)inlay_seg_atomic(inlay_seg_raddr(at, remote_addr, rkey), 8, &op).ds;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t compare,
			      uint64_t swap)
{
	wr_atomic(ex, rkey, remote_addr, inlay_atomic_cmp_swap(compare, swap));
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t add)
{
	wr_atomic(ex, rkey, remote_addr, inlay_atomic_add(add));
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct shim_sq *sq = sq_of(ex);
	struct inlay_cursor at;

	if (INLAY_UNLIKELY(sq->err))
		return;
	at = cursor(sq, sq->ds, sq->longest);
	set(sq, ex, length ? inlay_seg_data(at, addr, length, lkey) : at);
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *sg_list)
{
	struct shim_sq *sq = sq_of(ex);

	if (INLAY_UNLIKELY((int64_t)num_sge > sq->max_sge))
		shim_wr_fail(sq, ENOMEM);
	if (INLAY_LIKELY(!sq->err))
		set(sq, ex, inlay_seg_sges(cursor(sq, sq->ds, sq->longest), sg_list, (uint32_t)num_sge));
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct shim_sq *sq = sq_of(ex);

	if (INLAY_UNLIKELY(length > sq->max_inline))
		shim_wr_fail(sq, ENOMEM);
	if (INLAY_LIKELY(!sq->err))
		set(sq, ex, inlay_seg_inline(cursor(sq, sq->ds, sq->longest), addr, (uint32_t)length));
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf, const struct ibv_data_buf *buf_list)
{
	struct shim_sq *sq = sq_of(ex);
	struct ibv_sge sge[INLAY_MAX_DS * INLAY_DS];
	size_t total = 0, i;
	uint32_t n = 0;

	for (i = 0; i < num_buf; i++) {
		total += buf_list[i].length;
		if (total > sq->max_inline) {
			shim_wr_fail(sq, ENOMEM);
			break;
		}
		if (buf_list[i].length)
			sge[n++] = (struct ibv_sge){.addr = (uintptr_t)buf_list[i].addr,
						    .length = (uint32_t)buf_list[i].length};
	}
	if (INLAY_LIKELY(!sq->err))
		set(sq, ex, inlay_seg_inlinev(cursor(sq, sq->ds, sq->longest), sge, n, (uint32_t)total));
}

/*
 * The setters of one piece on a connected QP, which most posts use. They come last, and only control,
 * remote address and atomic segments precede the data. A WQE that ends in its first WQEBB needs no
 * code for destinations, streams or the ring's end.
 */
INLAY_ALWAYS struct inlay_cursor first_cursor(struct shim_sq *sq)
{
	uint32_t ds = sq->ds;

	INLAY_CHECK(ds >= 1 && ds <= 3, "an operation is begun before its data is set");
	if (ds < 1 || ds > 3)
		__builtin_unreachable();
	return cursor(sq, ds, 1);
}

static void wr_set_connected_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct shim_sq *sq = sq_of(ex);
	struct inlay_cursor at;

	if (INLAY_UNLIKELY(sq->err))
		return;
	at = first_cursor(sq);
	if (INLAY_LIKELY(length))
		at = inlay_seg_data(at, addr, length, lkey);
	finish(sq, ex, at, sq->flags & INLAY_POST_FLAGS_);
}

static void wr_set_connected_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct shim_sq *sq = sq_of(ex);

	if (INLAY_UNLIKELY(sq->err || length > sq->max_inline || length > INLAY_WQEBB - 4 - sq->ds * INLAY_DS)) {
		wr_set_inline_data(ex, addr, length);
		return;
	}
	finish(sq, ex, inlay_seg_inline(first_cursor(sq), addr, (uint32_t)length), sq->flags & INLAY_POST_FLAGS_);
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn, uint32_t remote_qkey)
{
	const struct mlx5_wqe_av *to = shim_av(ah);
	struct shim_sq *sq = sq_of(ex);
	struct inlay_av av;

	if (INLAY_UNLIKELY(!to))
		shim_wr_fail(sq, ENOMEM);
	if (INLAY_UNLIKELY(sq->err))
		return;
	inlay_av_init(&av, to, remote_qpn, remote_qkey);
	inlay_seg_av(cursor(sq, 1, sq->longest), &av, 3);
	set(sq, ex, cursor(sq, sq->ds, sq->longest));
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t remote_srqn)
{
	struct shim_sq *sq = sq_of(ex);
	struct inlay_av av;

	if (INLAY_UNLIKELY(sq->err))
		return;
	inlay_av_init_xrc(&av, remote_srqn);
	inlay_seg_av(cursor(sq, 1, sq->longest), &av, 1);
	set(sq, ex, cursor(sq, sq->ds, sq->longest));
}

/* The two changes of a memory window's key: no setter follows them. */
static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t invalidate_rkey)
{
	struct shim_sq *sq = sq_of(ex);
	uint32_t index = inlay_sq_index(&sq->q);

	if (INLAY_UNLIKELY(!shim_wr_room(sq, ex, 1)))
		return;
	shim_wr_posted(sq, ex, inlay_post_local_inv(&sq->q, invalidate_rkey, sq->flags), index, IBV_WC_LOCAL_INV);
	sq->fence = INLAY_FENCE_INITIATOR_SMALL;
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *bind_info)
{
	struct shim_sq *sq = sq_of(ex);
	uint32_t index = inlay_sq_index(&sq->q);

	if (INLAY_UNLIKELY(!shim_wr_room(sq, ex, 1)))
		return;
	shim_wr_posted(sq, ex, inlay_post_bind_mw(&sq->q, mw, rkey, bind_info, sq->flags), index, IBV_WC_BIND_MW);
	sq->fence = INLAY_FENCE_INITIATOR_SMALL;
}

/* ---- raw packets ---- */

static void wr_send_packet(struct ibv_qp_ex *ex)
{
	struct shim_sq *sq = sq_of(ex);
	struct inlay_cursor at;

	if (INLAY_UNLIKELY(!eth_of(qp_of(ex), ex->wr_flags, &sq->eth)))
		shim_wr_fail(sq, EINVAL);
	if (INLAY_LIKELY(begin(sq, ex, MLX5_OPCODE_SEND, 0, &at)) && !inlay_sq_min_inline(&sq->q))
		sq->ds = (uint32_t)inlay_seg_eth(at, sq->eth, NULL, 0).ds;
}

static void wr_send_tso(struct ibv_qp_ex *ex, void *hdr, uint16_t hdr_sz, uint16_t mss)
{
	struct shim_sq *sq = sq_of(ex);
	struct inlay_cursor at;

	if (INLAY_UNLIKELY(!eth_of(qp_of(ex), ex->wr_flags, &sq->eth) || !tso_ok(sq, hdr_sz, mss)))
		shim_wr_fail(sq, EINVAL);
	if (INLAY_LIKELY(begin(sq, ex, MLX5_OPCODE_TSO, 0, &at)))
		sq->ds = (uint32_t)inlay_seg_eth(at, inlay_eth_mss(sq->eth, mss), hdr, hdr_sz).ds;
}

/*
 * The setters for a device that wants a packet's header inline. The header is part of the data, so
 * the packet is posted as a whole. For segmentation the header is known from the start.
 */
static void packet(struct ibv_qp_ex *ex, const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	struct shim_sq *sq = sq_of(ex);
	uint32_t index = inlay_sq_index(&sq->q);

	if (INLAY_LIKELY(!sq->err))
		shim_wr_posted(sq, ex, inlay_post_packet(&sq->q, sq->eth, sge, num_sge, sq->flags | flags), index, 0);
}

static void wr_set_packet_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *sg_list)
{
	struct shim_sq *sq = sq_of(ex);

	if (INLAY_UNLIKELY(sq->opcode == MLX5_OPCODE_TSO)) {
		wr_set_sge_list(ex, num_sge, sg_list);
		return;
	}
	if (INLAY_UNLIKELY((int64_t)num_sge > sq->max_sge))
		shim_wr_fail(sq, ENOMEM);
	packet(ex, sg_list, (uint32_t)num_sge, 0);
}

static void wr_set_packet_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = {addr, length, lkey};

	wr_set_packet_sge_list(ex, 1, &sge);
}

static void wr_set_packet_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf, const struct ibv_data_buf *buf_list)
{
	struct shim_sq *sq = sq_of(ex);
	struct ibv_sge sge[INLAY_MAX_DS];
	size_t total = 0, i;

	if (INLAY_UNLIKELY(sq->opcode == MLX5_OPCODE_TSO)) {
		wr_set_inline_data_list(ex, num_buf, buf_list);
		return;
	}
	for (i = 0; i < num_buf && i < INLAY_MAX_DS; i++) {
		sge[i] = (struct ibv_sge){.addr = (uintptr_t)buf_list[i].addr, .length = (uint32_t)buf_list[i].length};
		total += buf_list[i].length;
	}
	if (INLAY_UNLIKELY(i < num_buf || total > sq->max_inline + inlay_sq_min_inline(&sq->q)))
		shim_wr_fail(sq, ENOMEM);
	packet(ex, sge, (uint32_t)i, INLAY_INLINE);
}

static void wr_set_packet_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buf = {addr, length};

	wr_set_packet_inline_data_list(ex, 1, &buf);
}

/* ---- mlx5dv_wr_* ---- */

static void wr_set_dc_addr(struct mlx5dv_qp_ex *dv, struct ibv_ah *ah, uint32_t remote_dctn, uint64_t remote_dc_key)
{
	const struct mlx5_wqe_av *to = shim_av(ah);
	struct shim_qp *qp = shim_qp_of_dv(dv);
	struct shim_sq *sq = &qp->sq;
	struct inlay_av av;

	if (INLAY_UNLIKELY(!to))
		shim_wr_fail(sq, ENOMEM);
	if (INLAY_UNLIKELY(sq->err))
		return;
	inlay_av_init(&av, to, 0, 0);
	inlay_av_to_dct(&av, remote_dctn, remote_dc_key);
	inlay_seg_av(cursor(sq, 1, sq->longest), &av, 3);
	set(sq, ibv_qp_to_qp_ex(qp->qp), cursor(sq, sq->ds, sq->longest));
}

static void wr_set_dc_addr_stream(struct mlx5dv_qp_ex *dv, struct ibv_ah *ah, uint32_t remote_dctn,
				  uint64_t remote_dc_key, uint16_t stream_id)
{
	shim_qp_of_dv(dv)->sq.flags |= INLAY_STREAM(stream_id);
	wr_set_dc_addr(dv, ah, remote_dctn, remote_dc_key);
}

static void wr_raw_wqe(struct mlx5dv_qp_ex *dv, const void *wqe)
{
	struct shim_qp *qp = shim_qp_of_dv(dv);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp->qp);
	uint32_t index = inlay_sq_index(&qp->sq.q);

	if (INLAY_LIKELY(shim_wr_room(&qp->sq, ex, 1)))
		shim_wr_posted(&qp->sq, ex, inlay_post_raw(&qp->sq.q, wqe, 0), index, IBV_WC_DRIVER2);
}

static void wr_memcpy(struct mlx5dv_qp_ex *dv, uint32_t dest_lkey, uint64_t dest_addr, uint32_t src_lkey,
		      uint64_t src_addr, size_t length)
{
	struct shim_qp *qp = shim_qp_of_dv(dv);
	struct ibv_sge to = {dest_addr, (uint32_t)length, dest_lkey}, from = {src_addr, (uint32_t)length, src_lkey};
	struct ibv_sge scratch = {(uintptr_t)qp->opaque, sizeof(qp->opaque), qp->opaque_mr ? qp->opaque_mr->lkey : 0};
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp->qp);
	uint32_t index = inlay_sq_index(&qp->sq.q);

	if (INLAY_UNLIKELY(!length || length > qp->context->max_copy || !qp->opaque_mr))
		shim_wr_fail(&qp->sq, EINVAL);
	if (INLAY_LIKELY(shim_wr_room(&qp->sq, ex, 1)))
		shim_wr_posted(&qp->sq, ex, inlay_post_memcpy(&qp->sq.q, &to, &from, &scratch, qp->sq.flags), index,
			       IBV_WC_DRIVER3);
}

/*
 * Fills in the operations of the QP's type, as libmlx5 does, whatever the program asked for.
 */
void shim_wr_install(struct ibv_qp_ex *ex)
{
	uint32_t type = ex->qp_base.qp_type;
	struct shim_qp *qp = shim_find(ex);

	ex->comp_mask = (uintptr_t)qp;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	if (type == IBV_QPT_RAW_PACKET) {
		ex->wr_send = wr_send_packet;
		ex->wr_send_tso = wr_send_tso;
		if (!inlay_sq_min_inline(&qp->sq.q))
			return;
		ex->wr_set_sge = wr_set_packet_sge;
		ex->wr_set_sge_list = wr_set_packet_sge_list;
		ex->wr_set_inline_data = wr_set_packet_inline_data;
		ex->wr_set_inline_data_list = wr_set_packet_inline_data_list;
		return;
	}
	if (qp->sq.connected) {
		ex->wr_set_sge = wr_set_connected_sge;
		ex->wr_set_inline_data = wr_set_connected_inline_data;
	}
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	if (type == IBV_QPT_UD) {
		ex->wr_set_ud_addr = wr_set_ud_addr;
		return;
	}
	ex->wr_send_inv = wr_send_inv;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_local_inv = wr_local_inv;
	if (type == IBV_QPT_UC)
		return;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	if (type == IBV_QPT_XRC_SEND)
		ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
}

/* Likewise, but a QP for which no mlx5 operations were asked for has only a DCI's destinations. */
void shim_dv_install(struct shim_qp *qp)
{
	struct mlx5dv_qp_ex *dv = mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(qp->qp));
	uint32_t type = qp->qp->qp_type;

	dv->comp_mask = (uintptr_t)qp;
	if (type == IBV_QPT_DRIVER) {
		dv->wr_set_dc_addr = wr_set_dc_addr;
		dv->wr_set_dc_addr_stream = wr_set_dc_addr_stream;
	}
	if (qp->dv_ops)
		dv->wr_raw_wqe = wr_raw_wqe;
	if (type == IBV_QPT_DRIVER || (type == IBV_QPT_RC && qp->dv_ops))
		dv->wr_memcpy = wr_memcpy;
	if (type == IBV_QPT_RC && qp->dv_ops)
		shim_key_install(dv);
}

/* ---- ibv_bind_mw: a window of type 1, whose key the provider chooses ---- */
int shim_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr wr = {.wr_id = bind->wr_id, .opcode = IBV_WR_BIND_MW, .send_flags = bind->send_flags}, *bad;
	int err;

	if (INLAY_UNLIKELY(!shim_find(qp)))
		return ((struct shim_context *)shim_find(qp->context))->ops.bind_mw(qp, mw, bind);
	if (bind->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED)
		return errno = EINVAL;
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = bind->bind_info;
	err = shim_post_send(qp, &wr, &bad);
	if (!err)
		mw->rkey = wr.bind_mw.rkey;
	return err;
}

/* ---- ibv_post_recv, ibv_post_srq_recv ---- */
int shim_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct shim_qp *qp = shim_find(ibqp);
	struct shim_rq *rq;
	int err = 0;

	if (INLAY_UNLIKELY(!qp))
		return ((struct shim_context *)shim_find(ibqp->context))->ops.post_recv(ibqp, wr, bad_wr);
	rq = &qp->rq;
	shim_acquire(&rq->lock);
	for (; wr; wr = wr->next) {
		if (INLAY_UNLIKELY(!rq->wr_ids)) {
			err = ENOMEM; /* no receive queue, or an SRQ's */
		} else {
			if (INLAY_UNLIKELY(!inlay_rq_room(&rq->q))) {
				uint32_t tail = __atomic_load_n(&rq->tail, __ATOMIC_ACQUIRE);

				inlay_rq_release_until(&rq->q, tail);
			}
			if (INLAY_UNLIKELY(!rq->ready))
				err = EINVAL;
			else
				err = -inlay_post_recv(&rq->q, wr->sg_list, sges_of(wr->num_sge));
		}
		if (INLAY_UNLIKELY(err)) {
			if (err == EAGAIN)
				err = ENOMEM;
			*bad_wr = wr;
			break;
		}
		rq->wr_ids[rq->head++ & rq->q.mask] = wr->wr_id;
	}
	if (INLAY_LIKELY(rq->wr_ids))
		inlay_rq_ring(&rq->q);
	shim_release(&rq->lock);
	return err;
}

int shim_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct shim_srq *srq = shim_find(ibsrq);
	int err = 0;

	if (INLAY_UNLIKELY(!srq || srq->owner != SHIM_INLAY) && !shim_take_srq(ibsrq))
		return ((struct shim_context *)shim_find(ibsrq->context))->ops.post_srq_recv(ibsrq, wr, bad_wr);
	shim_acquire(&srq->lock);
	for (; wr; wr = wr->next) {
		/* libmlx5 takes one less, all of which the device sees at once. */
		err = inlay_srq_room(&srq->q) > 1 ?
			      inlay_post_srq_recv(&srq->q, wr->sg_list, sges_of(wr->num_sge), wr->wr_id) : -EAGAIN;
		if (INLAY_UNLIKELY(err)) {
			err = err == -EAGAIN ? ENOMEM : -err;
			*bad_wr = wr;
			break;
		}
	}
	inlay_srq_ring(&srq->q);
	shim_release(&srq->lock);
	return err;
}
