/* SPDX-License-Identifier: BSD-3-Clause */
/* Posting: verbs' work requests become inlay's posts. What is refused, and with which errno, is what libmlx5 refuses. */
#include "shim.h"

/* To libmlx5 fewer than none are none. */
static inline uint32_t sges_of(int num_sge)
{
	return num_sge > 0 ? (uint32_t)num_sge : 0;
}

/* ---- What ibv_post_send and ibv_wr_* share ---- */

/*
 * Looks how many sends may be posted: as many as verbs promised, whatever else the ring would hold, less those that were not polled. Gives
 * the headers the credit of the last one that was, and so of all before it; the ring then has room for that many, however long.
 */
static bool refill(struct shim_sq *sq)
{
	uint32_t tail = __atomic_load_n(&sq->tail, __ATOMIC_ACQUIRE);
	struct mlx5_cqe64 cqe;

	sq->room = sq->max_sends - (sq->head - tail);
	if (!sq->room)
		return false;
	cqe.wqe_counter = inlay_to_be16(__atomic_load_n(&sq->done, __ATOMIC_RELAXED));
	inlay_sq_release(&sq->q, &cqe); /* -EPROTO: there was none */
	return true;
}

/* Whether one more send may be posted. */
static inline bool room(struct shim_sq *sq)
{
	return INLAY_LIKELY(sq->room) || refill(sq);
}

/* INLAY_* of a request's IBV_SEND_*: bits are moved rather than tested. */
static inline uint32_t flags_of(struct shim_sq *sq, unsigned int send_flags)
{
	uint32_t signaled = (send_flags & IBV_SEND_SIGNALED) * (INLAY_SIGNALED / IBV_SEND_SIGNALED);
	uint32_t solicited = (send_flags & IBV_SEND_SOLICITED) * (INLAY_SOLICITED / IBV_SEND_SOLICITED);

	return sq->always | signaled | solicited | (send_flags & IBV_SEND_FENCE ? (uint32_t)INLAY_FENCE_SMALL_AND_FENCE : sq->fence);
}

/* Remembers the send that begins at WQEBB `index` and is being posted. */
static inline void remember(struct shim_sq *sq, uint16_t index, uint64_t wr_id, uint32_t opcode)
{
	struct shim_send *send = &sq->sends[index & (inlay_sq_size(&sq->q) - 1)];

	send->wr_id = wr_id;
	send->number = sq->head++;
	sq->room--;
	send->opcode = opcode;
}

/* ---- ibv_post_send ---- */

/* One work request. num_sge and INLAY_INLINE in flags are constants where that pays. */
INLAY_ALWAYS int post(struct shim_qp *qp, const struct ibv_send_wr *wr, uint32_t num_sge, uint32_t flags)
{
	struct inlay_sq *q = &qp->sq.q;
	const struct ibv_sge *sge = wr->sg_list;

	switch (wr->opcode) {
	case IBV_WR_SEND:
		return inlay_post_send(q, sge, num_sge, flags);
	case IBV_WR_SEND_WITH_IMM:
		return inlay_post_send_imm(q, wr->imm_data, sge, num_sge, flags);
	case IBV_WR_SEND_WITH_INV:
		return inlay_post_send_inv(q, wr->invalidate_rkey, sge, num_sge, flags);
	case IBV_WR_RDMA_WRITE:
		return inlay_post_write(q, wr->wr.rdma.remote_addr, wr->wr.rdma.rkey, sge, num_sge, flags);
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return inlay_post_write_imm(q, wr->wr.rdma.remote_addr, wr->wr.rdma.rkey, wr->imm_data, sge, num_sge, flags);
	case IBV_WR_RDMA_READ:
		return inlay_post_read(q, wr->wr.rdma.remote_addr, wr->wr.rdma.rkey, sge, num_sge, flags & ~(uint32_t)INLAY_INLINE);
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return num_sge != 1 ? -EINVAL : inlay_post_fetch_add(q, wr->wr.atomic.remote_addr, wr->wr.atomic.rkey,
								      wr->wr.atomic.compare_add, sge, flags & ~(uint32_t)INLAY_INLINE);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return num_sge != 1 ? -EINVAL : inlay_post_cmp_swap(q, wr->wr.atomic.remote_addr, wr->wr.atomic.rkey,
								     wr->wr.atomic.compare_add, wr->wr.atomic.swap, sge,
								     flags & ~(uint32_t)INLAY_INLINE);
	case IBV_WR_LOCAL_INV:
		return inlay_post_local_inv(q, wr->invalidate_rkey, flags & ~(uint32_t)INLAY_INLINE);
	case IBV_WR_BIND_MW:
		return inlay_post_bind_mw(q, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info,
					  flags & ~(uint32_t)INLAY_INLINE);
	default:
		return -EINVAL;
	}
}

/* One datagram, likewise. */
INLAY_ALWAYS int post_ud(struct shim_qp *qp, const struct ibv_send_wr *wr, uint32_t num_sge, uint32_t flags)
{
	const struct mlx5_wqe_av *to = shim_av(wr->wr.ud.ah);
	struct inlay_av av;

	if (INLAY_UNLIKELY(!to))
		return -ENOMEM;
	inlay_av_init(&av, to, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
	switch (wr->opcode) {
	case IBV_WR_SEND:
		return inlay_post_ud_send(&qp->sq.q, &av, wr->sg_list, num_sge, flags);
	case IBV_WR_SEND_WITH_IMM:
		return inlay_post_ud_send_imm(&qp->sq.q, &av, wr->imm_data, wr->sg_list, num_sge, flags);
	default:
		return -EINVAL;
	}
}

INLAY_ALWAYS int post_any(struct shim_qp *qp, const struct ibv_send_wr *wr, uint32_t num_sge, uint32_t flags)
{
	return inlay_sq_type(&qp->sq.q) == IBV_QPT_UD ? post_ud(qp, wr, num_sge, flags) : post(qp, wr, num_sge, flags);
}

/* The opcode of a completion whose CQE says no more than that a key was changed. */
static uint32_t changes_key(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_BIND_MW ? IBV_WC_BIND_MW : wr->opcode == IBV_WR_LOCAL_INV ? IBV_WC_LOCAL_INV : 0;
}

static int post_one(struct shim_qp *qp, const struct ibv_send_wr *wr)
{
	struct shim_sq *sq = &qp->sq;
	uint32_t flags, index, num_sge = sges_of(wr->num_sge);
	uint64_t total = 0;
	uint32_t i;
	int err;

	if (INLAY_UNLIKELY(!room(sq) || wr->num_sge > sq->max_sge))
		return ENOMEM;
	flags = flags_of(sq, wr->send_flags);
	index = inlay_sq_index(&sq->q);
	if (wr->send_flags & IBV_SEND_INLINE) {
		for (i = 0; i < num_sge; i++)
			total += wr->sg_list[i].length;
		if (INLAY_UNLIKELY(total > sq->max_inline))
			return ENOMEM;
		err = num_sge == 1 ? post_any(qp, wr, 1, flags | INLAY_INLINE) : post_any(qp, wr, num_sge, flags | INLAY_INLINE);
	} else {
		err = num_sge == 1 ? post_any(qp, wr, 1, flags) : post_any(qp, wr, num_sge, flags);
	}
	if (INLAY_UNLIKELY(err))
		return -err;
	remember(sq, index, wr->wr_id, changes_key(wr));
	sq->fence = changes_key(wr) ? INLAY_FENCE_INITIATOR_SMALL : 0;
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
	/* What came before a bad one goes out. One alone is copied into the register, several ring a doorbell. */
	inlay_sq_ring(&qp->sq.q);
	shim_release(&qp->sq.lock);
	return err;
}

/* ---- ibv_wr_*: the WQE is built as the calls come, with inlay's cursor ---- */

/* What nobody calls on a QP of inlay's: there the shim keeps its own pointer, so that these calls, four a post, need not look it up. */
static struct shim_sq *sq_of(struct ibv_qp_ex *ex)
{
	return (struct shim_sq *)ex->wr_set_xrc_srqn;
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct shim_sq *sq = sq_of(ex);

	shim_acquire(&sq->lock);
	sq->err = 0;
	sq->begun = sq->head;
	sq->begun_fence = sq->fence;
}

/* Takes back what was posted since ibv_wr_start: no doorbell has told the device of it. */
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

/* An error stays until ibv_wr_complete reports it; the calls in between do nothing. */
static void fail(struct shim_sq *sq, int err)
{
	if (!sq->err)
		sq->err = err;
}

/*
 * Every builder begins here, and goes on with *at, which it leaves in sq->at. setters: how many calls complete the WQE. How long it becomes
 * they do not know yet: it is begun as the longest, for which there is always room below max_sends. Returns false when there is or was an
 * error.
 */
INLAY_ALWAYS bool begin(struct shim_sq *sq, struct ibv_qp_ex *ex, uint8_t opcode, uint32_t imm_be, uint8_t setters, struct inlay_cursor *at)
{
	if (INLAY_UNLIKELY(!room(sq) || inlay_sq_begin(&sq->q, sq->longest, at)))
		fail(sq, ENOMEM);
	if (INLAY_UNLIKELY(sq->err))
		return false;
	sq->opcode = opcode;
	sq->imm_be = imm_be;
	sq->flags = flags_of(sq, ex->wr_flags);
	sq->fence = 0;
	sq->missing = setters;
	return true;
}

/* Every setter ends here; the last one completes the WQE. */
INLAY_ALWAYS void set(struct shim_sq *sq, struct ibv_qp_ex *ex, struct inlay_cursor at)
{
	if (INLAY_UNLIKELY(--sq->missing)) {
		sq->at = at;
		return;
	}
	remember(sq, (uint16_t)at.index, ex->wr_id, 0);
	inlay_sq_commit(&sq->q, at, sq->opcode, 0, sq->flags, sq->imm_be);
}

/* A datagram's address may be set before or after its data: its place is kept. */
INLAY_ALWAYS void wr_plain(struct ibv_qp_ex *ex, uint8_t opcode, uint32_t imm_be)
{
	struct shim_sq *sq = sq_of(ex);
	bool ud = inlay_sq_type(&sq->q) == IBV_QPT_UD;
	struct inlay_cursor at;

	if (INLAY_UNLIKELY(!begin(sq, ex, opcode, imm_be, ud ? 2 : 1, &at)))
		return;
	if (ud) {
		sq->address = at;
		at.at += sizeof(struct inlay_av);
		at.ds += sizeof(struct inlay_av) / INLAY_DS;
	}
	sq->at = at;
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

	if (INLAY_LIKELY(begin(sq, ex, opcode, imm_be, 1, &at)))
		sq->at = inlay_seg_raddr(at, remote_addr, rkey);
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

INLAY_ALWAYS void wr_atomic(struct ibv_qp_ex *ex, uint8_t opcode, uint32_t rkey, uint64_t remote_addr, uint64_t swap_add, uint64_t compare)
{
	struct shim_sq *sq = sq_of(ex);
	struct inlay_cursor at;

	if (INLAY_LIKELY(begin(sq, ex, opcode, 0, 1, &at)))
		sq->at = inlay_seg_atomic(inlay_seg_raddr(at, remote_addr, rkey), swap_add, compare);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t compare, uint64_t swap)
{
	wr_atomic(ex, MLX5_OPCODE_ATOMIC_CS, rkey, remote_addr, swap, compare);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t add)
{
	wr_atomic(ex, MLX5_OPCODE_ATOMIC_FA, rkey, remote_addr, add, 0);
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct shim_sq *sq = sq_of(ex);

	if (INLAY_LIKELY(!sq->err))
		set(sq, ex, length ? inlay_seg_data(sq->at, addr, length, lkey) : sq->at);
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *sg_list)
{
	struct shim_sq *sq = sq_of(ex);

	if (INLAY_UNLIKELY((int64_t)num_sge > sq->max_sge))
		fail(sq, ENOMEM);
	if (INLAY_LIKELY(!sq->err))
		set(sq, ex, inlay_seg_sges(sq->at, sg_list, (uint32_t)num_sge));
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct shim_sq *sq = sq_of(ex);

	if (INLAY_UNLIKELY(length > sq->max_inline))
		fail(sq, ENOMEM);
	if (INLAY_LIKELY(!sq->err))
		set(sq, ex, inlay_seg_inline(sq->at, addr, (uint32_t)length));
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
			fail(sq, ENOMEM);
			break;
		}
		if (buf_list[i].length)
			sge[n++] = (struct ibv_sge){.addr = (uintptr_t)buf_list[i].addr, .length = (uint32_t)buf_list[i].length};
	}
	if (INLAY_LIKELY(!sq->err))
		set(sq, ex, inlay_seg_inlinev(sq->at, sge, n, (uint32_t)total));
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn, uint32_t remote_qkey)
{
	const struct mlx5_wqe_av *to = shim_av(ah);
	struct shim_sq *sq = sq_of(ex);
	struct inlay_av av;

	if (INLAY_UNLIKELY(!to))
		fail(sq, ENOMEM);
	if (INLAY_UNLIKELY(sq->err))
		return;
	inlay_av_init(&av, to, remote_qpn, remote_qkey);
	inlay_seg_av(sq->address, &av);
	set(sq, ex, sq->at);
}

/* Both changes of a memory window's key are complete as they are. */
static void changed_key(struct shim_sq *sq, struct ibv_qp_ex *ex, int err, uint16_t index, uint32_t opcode)
{
	if (INLAY_UNLIKELY(err)) {
		fail(sq, -err);
		return;
	}
	remember(sq, index, ex->wr_id, opcode);
	sq->fence = INLAY_FENCE_INITIATOR_SMALL;
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t invalidate_rkey)
{
	struct shim_sq *sq = sq_of(ex);
	uint16_t index = inlay_sq_index(&sq->q);
	struct inlay_cursor at;

	if (INLAY_LIKELY(begin(sq, ex, MLX5_OPCODE_UMR, 0, 0, &at)))
		changed_key(sq, ex, inlay_post_local_inv(&sq->q, invalidate_rkey, sq->flags), index, IBV_WC_LOCAL_INV);
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *bind_info)
{
	struct shim_sq *sq = sq_of(ex);
	uint16_t index = inlay_sq_index(&sq->q);
	struct inlay_cursor at;

	if (INLAY_LIKELY(begin(sq, ex, MLX5_OPCODE_UMR, 0, 0, &at)))
		changed_key(sq, ex, inlay_post_bind_mw(&sq->q, mw, rkey, bind_info, sq->flags), index, IBV_WC_BIND_MW);
}

/* Fills in what the QP's type has; libmlx5 does the same, whatever the program said it would use. */
void shim_wr_install(struct ibv_qp_ex *ex)
{
	uint32_t type = ex->qp_base.qp_type;
	struct shim_qp *qp = shim_find(ex);

	ex->wr_set_xrc_srqn = (void (*)(struct ibv_qp_ex *, uint32_t))&qp->sq;

	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
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
}

/* ---- mlx5dv_wr_mr_*: keys over pieces of others ---- */

static void wr_mr(struct mlx5dv_qp_ex *dv, struct mlx5dv_mkey *mkey, uint32_t access, uint32_t rounds, uint16_t n,
		  const struct mlx5dv_mr_interleaved *parts, const struct ibv_sge *sge)
{
	struct shim_qp *qp = shim_find(dv);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp->qp);
	struct shim_sq *sq = &qp->sq;
	uint16_t index = inlay_sq_index(&sq->q);
	struct inlay_cursor at;

	if (!begin(sq, ex, MLX5_OPCODE_UMR, 0, 0, &at))
		return;
	/* libmlx5's limits; it wants the flag, since the list lies in the WQE */
	if (!(ex->wr_flags & IBV_SEND_INLINE)) {
		fail(sq, EOPNOTSUPP);
		return;
	}
	if ((n + (parts ? 1u : 0u)) * INLAY_DS > sq->max_inline + 4) {
		fail(sq, ENOMEM);
		return;
	}
	changed_key(sq, ex, parts ? inlay_post_umr_interleaved(&sq->q, mkey->lkey, access, parts, n, rounds, sq->flags)
				  : inlay_post_umr_list(&sq->q, mkey->lkey, access, sge, n, sq->flags), index, IBV_WC_DRIVER1);
}

static void wr_mr_list(struct mlx5dv_qp_ex *dv, struct mlx5dv_mkey *mkey, uint32_t access, uint16_t n, struct ibv_sge *sge)
{
	wr_mr(dv, mkey, access, 0, n, NULL, sge);
}

static void wr_mr_interleaved(struct mlx5dv_qp_ex *dv, struct mlx5dv_mkey *mkey, uint32_t access, uint32_t rounds, uint16_t n,
			      struct mlx5dv_mr_interleaved *parts)
{
	wr_mr(dv, mkey, access, rounds, n, parts, NULL);
}

void shim_dv_install(struct mlx5dv_qp_ex *dv)
{
	dv->wr_mr_list = wr_mr_list;
	dv->wr_mr_interleaved = wr_mr_interleaved;
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
		uint16_t index = inlay_srq_index(&srq->q);

		err = inlay_post_srq_recv(&srq->q, wr->sg_list, sges_of(wr->num_sge));
		if (INLAY_UNLIKELY(err)) {
			err = err == -EAGAIN ? ENOMEM : -err;
			*bad_wr = wr;
			break;
		}
		srq->wr_ids[index] = wr->wr_id;
	}
	inlay_srq_ring(&srq->q);
	shim_release(&srq->lock);
	return err;
}
