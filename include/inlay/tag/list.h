/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/tag/list.h: the NIC's list of tagged receives, its operations and its completions. Most
 * callers want tag/recv.h, which keeps this list and the software's table in one order.
 *
 *   inlay_tag_list_add(&list, wr_id, tag, mask, &sge, IBV_OPS_TM_SYNC, &handle);
 *   inlay_sq_ring(&sq);                                    one doorbell for all that was posted
 *   ...
 *   if (inlay_tag_list_owns(&list, cqe) &&                 cqe: of inlay_cq_peek
 *       inlay_tag_list_complete(&list, cqe, inlay_cq_cqe_size(&cq), &wc) > 0)
 *           switch (wc.opcode) ...
 *
 * Invariants:
 *   - A receive completes, with IBV_WC_TM_DATA_VALID or an error, or a DEL of it succeeds. Until
 *     then the NIC may use its buffer.
 *   - An entry is free once its receive and all operations that name it have completed. A handle is
 *     an entry and a generation of 16 bits: forget it when its receive completes, because it is
 *     valid again after 65,536 uses of the entry.
 *   - The NIC completes every DEL, and one operation in each quarter of the ring, so that credit
 *     comes back. The caller sees only the completions it asked for.
 *   - An operation that fails breaks the command QP: recreate the XRQ, its QP and the list.
 *   - In the CQ, reserve one CQE for each WQEBB of the command ring, two for each tag, and one for
 *     each XRQ entry (inlay_cq_reserve).
 *
 * The phase: after an unexpected message, the NIC matches no newly added tag until the software
 * reports the same count of such messages (modulo 2^16), because the tag may be for a message that
 * the software has not seen yet. So take all completions, match each unexpected message against the
 * receives to be added, then add with IBV_OPS_TM_SYNC, which reports what inlay_tag_list_complete
 * counted. IBV_WC_TM_SYNC_REQ in a completion asks for a report soon: the NIC has counted more, or
 * 2^14 messages are not reported.
 *
 * Operations are WQEs of one WQEBB on the command QP (devx/srq.h). The list ends in a dummy entry,
 * which an ADD fills; the ADD's index names the next dummy.
 *
 *   +0    ctrl    opcode 0x28, index, QPN, DS 4 (ADD) or 3
 *   +16   tag     ADD 1, DEL 2, SYNC 0 << 4 | flags | be16 index | be16 sw_cnt at +6 | tag | mask
 *   +48   data    the buffer; ADD only
 *
 * Threads: one owner at a time for list and CQ together.
 * Sources: ibv_post_srq_ops(3), ibv_create_cq_ex(3); libmlx5's qp.c (mlx5_post_srq_ops) and cq.c
 * (handle_tag_matching): the same bytes.
 */
#ifndef INLAY_TAG_LIST_H
#define INLAY_TAG_LIST_H /* a trial: names may change */

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/cqe.h>
#include <inlay/wqe.h>
#include <inlay/queue/sq.h>

#define INLAY_OPCODE_TAG 0x28u
#define INLAY_CQE_APP_TAG 1u   /* mlx5_cqe64.app of all completions of tag matching */

/* mlx5_cqe64.app_op */
enum inlay_tag_app {
	INLAY_TAG_CONSUMED = 1,          /* matched, payload to come; the CQE has the TMH */
	INLAY_TAG_EXPECTED = 2,          /* the payload is there; no TMH */
	INLAY_TAG_UNEXPECTED = 3,        /* matched nothing: in an entry of the XRQ */
	INLAY_TAG_NO_TAG = 4,            /* not to be matched: in an entry of the XRQ */
	INLAY_TAG_APPENDED = 5, INLAY_TAG_REMOVED = 6, INLAY_TAG_NOOP = 7,
	INLAY_TAG_CONSUMED_SW_RNDV = 9,  /* a rendezvous that software must end: TMH and RVH go to the buffer */
	INLAY_TAG_CONSUMED_MSG = 10,     /* matched, and the payload is there */
	INLAY_TAG_CONSUMED_MSG_SW_RNDV = 11, /* both */
	INLAY_TAG_CANCELED = 12,         /* a rendezvous under way was cancelled */
};

/* Flags of the tag segment: sw_cnt holds a count; the device writes a CQE. */
#define INLAY_TAG_SW_CNT_ 0x40u
#define INLAY_TAG_CQE_REQ_ 0x80u

/* Bits of an entry's state; a free entry has none. */
enum inlay_tag_state_ {
	INLAY_TAG_LISTED_ = 1,     /* its receive has not completed */
	INLAY_TAG_MATCHED_ = 2,    /* consumed, payload to come */
	INLAY_TAG_SW_RNDV_ = 4,    /* consumed by a rendezvous that software ends */
	INLAY_TAG_DELETING_ = 8,   /* a DEL is under way */
	INLAY_TAG_TABLE_ = 16,     /* recv.h: recv_wr_id is the receive's handle in the matcher */
};

/* One tag of the list. */
struct inlay_tag_entry_ {
	uint64_t recv_wr_id;
	uint64_t tag;        /* of its message, from the first completion to the second */
	uint32_t app_ctx;
	uint32_t size;       /* bytes of its buffer */
	uint16_t next;       /* of a free entry: the one used after it */
	uint16_t generation; /* of its handle */
	uint16_t owed;       /* completions until it is free */
	uint8_t state;       /* enum inlay_tag_state_ */
};

/* An operation, by its WQEBB */
struct inlay_tag_filed_ {
	uint64_t wr_id;
	uint16_t entry;
	uint16_t count;      /* of unexpected messages, last told to the NIC */
	uint8_t app_op;      /* of its completion */
	uint8_t asked;       /* the NIC completes it */
	uint8_t signaled;    /* the caller sees the completion */
};

struct inlay_tag_list {
	struct inlay_sq *sq;
	struct inlay_tag_entry_ *entries;
	struct inlay_tag_filed_ *filed;
	uint32_t done;       /* all operations before this index are complete */
	uint32_t max_tags;
	uint32_t room;       /* tags that may be added now */
	uint16_t head;       /* the NIC's dummy, which the next ADD fills */
	uint16_t tail;       /* the entry that was freed last */
	uint16_t unexpected; /* messages handed out, modulo 2^16 */
	uint16_t synced;     /* the count last reported to the NIC */
	uint32_t user_index; /* of the XRQ, as in its CQEs */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_tag_list) <= INLAY_CACHE_LINE, "an operation touches one line of its list");

/* A completion. */
struct inlay_tag_wc {
	uint64_t wr_id;      /* of the operation or receive; for an XRQ message, its entry (cyclic: modulo the size) */
	uint64_t tag;        /* of a matched message; 0 without one, or with an error */
	const void *payload; /* in the CQE, when it is not in the buffer: valid until the CQE is freed; else NULL */
	uint32_t app_ctx;    /* of a matched message */
	uint32_t byte_len;   /* received; in an XRQ entry with the TMH. More than the buffer only with LOC_LEN_ERR */
	uint32_t handle;     /* of the entry; stale once its receive has completed */
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode; /* IBV_WC_TM_ADD, TM_DEL, TM_SYNC, TM_RECV or TM_NO_TAG */
	uint32_t flags;      /* IBV_WC_TM_SYNC_REQ, IBV_WC_TM_MATCH, IBV_WC_TM_DATA_VALID */
	uint8_t app_op;      /* enum inlay_tag_app; 0 for an error of an operation or an XRQ entry */
};

/* ---- Set-up ---- */

/* Bytes for a list of max_tags, 1 .. INLAY_TAG_MAX, and a ring of wqebb_cnt, 2^n <= 32768; else 0. */
INLAY_FN size_t inlay_tag_list_size(uint32_t max_tags, uint32_t wqebb_cnt)
{
	if (!max_tags || max_tags > INLAY_TAG_MAX || !wqebb_cnt || wqebb_cnt & (wqebb_cnt - 1) || wqebb_cnt > 32768)
		return 0;
	return ((size_t)max_tags + 1) * sizeof(struct inlay_tag_entry_) + wqebb_cnt * sizeof(struct inlay_tag_filed_);
}

/*
 * Describes the empty tag list of a fresh XRQ. Returns 0; -EINVAL for an argument out of range;
 * -ENOBUFS when size is too small.
 *
 * memory      aligned to 64; in use as long as the list
 * size        bytes of memory, at least inlay_tag_list_size()
 * max_tags    what the XRQ was made for
 * sq          send queue of the command QP; nothing else posts to it. For an ADD and a DEL of each
 *             tag, and a SYNC, it needs 2 * max_tags + 2 WQEBBs
 * user_index  of the XRQ (xrqc.user_index), 24 bits: tells the lists of one CQ apart
 */
INLAY_COLD int inlay_tag_list_init(struct inlay_tag_list *list, void *memory, size_t size, uint32_t max_tags,
				   struct inlay_sq *sq, uint32_t user_index)
{
	size_t need = sq ? inlay_tag_list_size(max_tags, inlay_sq_size(sq)) : 0;
	uint32_t i;

	if (!need || !memory || (uintptr_t)memory % INLAY_CACHE_LINE || user_index >> 24)
		return -EINVAL;
	if (size < need)
		return -ENOBUFS;
	__builtin_memset(memory, 0, need);
	__builtin_memset(list, 0, sizeof(*list));
	list->sq = sq;
	list->entries = (struct inlay_tag_entry_ *)memory;
	list->filed = (struct inlay_tag_filed_ *)(void *)(list->entries + max_tags + 1);
	list->done = inlay_sq_index(sq);
	list->max_tags = list->room = max_tags;
	list->tail = (uint16_t)max_tags;
	list->user_index = user_index;
	for (i = 0; i < max_tags; i++)
		list->entries[i].next = (uint16_t)(i + 1);
	return 0;
}

/* ---- Data path: operations ---- */

/* Unexpected messages handed out, and not yet reported to the NIC */
INLAY_FN uint32_t inlay_tag_list_unsynced_(const struct inlay_tag_list *list)
{
	return (uint16_t)(list->unexpected - list->synced);
}

/* An entry whose receive has not completed, or NULL */
INLAY_ALWAYS struct inlay_tag_entry_ *inlay_tag_list_entry_(const struct inlay_tag_list *list, uint32_t index)
{
	if (index > list->max_tags || !(list->entries[index].state & INLAY_TAG_LISTED_))
		return NULL;
	return &list->entries[index];
}

INLAY_ALWAYS uint32_t inlay_tag_list_handle_(const struct inlay_tag_list *list, uint32_t index)
{
	return (uint32_t)list->entries[index].generation << 16 | index;
}

INLAY_ALWAYS struct inlay_tag_filed_ *inlay_tag_list_filed_(const struct inlay_tag_list *list, uint32_t index)
{
	return &list->filed[index & (inlay_sq_size(list->sq) - 1)];
}

/* Posts an operation, and files it. An ADD's handle comes out in wr->tm.handle. Returns as add and del below. */
INLAY_ALWAYS int inlay_tag_list_operate_(struct inlay_tag_list *list, struct ibv_ops_wr *wr)
{
	const uint32_t add = wr->opcode == IBV_WR_TAG_ADD, del = wr->opcode == IBV_WR_TAG_DEL;
	const uint32_t signaled = (wr->flags & IBV_OPS_SIGNALED) != 0, sync = (wr->flags & IBV_OPS_TM_SYNC) != 0;
	const uint32_t quarter = (inlay_sq_size(list->sq) - 1) / 4; /* of the ring, as a mask */
	const uint32_t asked = del || signaled || !(~inlay_sq_index(list->sq) & quarter);
	const uint32_t index = add ? list->head : del ? wr->tm.handle & 0xffff : 0;
	const uint16_t count = sync ? (uint16_t)wr->tm.unexpected_cnt : 0;
	const struct ibv_sge *sge = add && wr->tm.add.num_sge ? wr->tm.add.sg_list : NULL;
	struct inlay_tag_entry_ *entry = del ? inlay_tag_list_entry_(list, index) : &list->entries[index];
	struct inlay_tag_filed_ *filed;
	struct inlay_cursor at;

	if (del && INLAY_UNLIKELY(!entry || inlay_tag_list_handle_(list, index) != wr->tm.handle))
		return -ENOENT;
	if (del && INLAY_UNLIKELY(entry->state & INLAY_TAG_DELETING_))
		return -EBUSY;
	if (INLAY_UNLIKELY((add && !list->room) || inlay_sq_begin(list->sq, 1, &at)))
		return -EAGAIN;
	if (sync)
		list->synced = count;
	filed = inlay_tag_list_filed_(list, at.index);
	filed->wr_id = wr->wr_id;
	filed->entry = (uint16_t)index;
	filed->count = list->synced;
	filed->app_op = (uint8_t)(add ? INLAY_TAG_APPENDED : del ? INLAY_TAG_REMOVED : INLAY_TAG_NOOP);
	filed->asked = (uint8_t)asked;
	filed->signaled = (uint8_t)signaled;
	if (add) {
		wr->tm.handle = inlay_tag_list_handle_(list, index);
		entry->recv_wr_id = wr->tm.add.recv_wr_id;
		entry->size = sge ? sge->length : 0;
		entry->owed = (uint16_t)(1 + asked); /* 1: its receive */
		entry->state = INLAY_TAG_LISTED_;
		list->head = entry->next;
		list->room--;
	} else if (del) {
		entry->owed++;
		entry->state |= INLAY_TAG_DELETING_;
	}
	inlay_put64(at.at, (add ? 1u : del ? 2u : 0u) << 4 |
		    (asked * INLAY_TAG_CQE_REQ_ | sync * INLAY_TAG_SW_CNT_) << 8 |
		    (uint32_t)inlay_to_be16((uint16_t)(add ? list->head : index)) << 16 |
		    (uint64_t)inlay_to_be16(count) << 48);
	inlay_put64(at.at + 8, 0);
	inlay_put64(at.at + 16, add ? inlay_to_be64(wr->tm.add.tag) : 0);
	inlay_put64(at.at + 24, add ? inlay_to_be64(wr->tm.add.mask) : 0);
	at.at += 2 * INLAY_DS;
	at.ds += 2 + add;
	if (sge && sge->length)
		inlay_wqe_data(at.at, sge->addr, sge->length, sge->lkey);
	else if (add)
		inlay_wqe_data_end_(at.at);
	return inlay_sq_finish_(list->sq, at, INLAY_OPCODE_TAG, 0, 0, 0);
}

/*
 * Adds a tag to the end of the list. The first message with (its tag & mask) == tag goes to the
 * buffer. The NIC sees nothing before inlay_sq_ring(). Returns 0, or -EAGAIN when list or command
 * ring are full.
 *
 * wr_id   shown by the completions of the operation and of the receive
 * sge     the buffer, host order, at most INLAY_SGE_MAX bytes; NULL or length 0: none
 * flags   IBV_OPS_SIGNALED: inlay_tag_list_complete shows the operation's completion.
 *         IBV_OPS_TM_SYNC: the caller has dealt with all unexpected messages handed out
 * handle  names the tag to inlay_tag_list_del; may be NULL
 */
INLAY_ALWAYS int inlay_tag_list_add(struct inlay_tag_list *list, uint64_t wr_id, uint64_t tag, uint64_t mask,
				    const struct ibv_sge *sge, int flags, uint32_t *handle)
{
	struct ibv_ops_wr wr = {wr_id, NULL, IBV_WR_TAG_ADD, flags, {list->unexpected, 0,
				{wr_id, (struct ibv_sge *)(uintptr_t)sge, sge != NULL, tag, mask}}};
	int err = inlay_tag_list_operate_(list, &wr);

	if (!err && handle)
		*handle = wr.tm.handle;
	return err;
}

/*
 * Removes a tag, unless a message has already matched it. The completion's status is IBV_WC_SUCCESS
 * when the receive is out and its buffer free, IBV_WC_TM_ERR when the receive completes instead.
 * Returns 0; -ENOENT for a stale handle; -EBUSY when a DEL of it is under way; -EAGAIN when the
 * command ring is full.
 */
INLAY_ALWAYS int inlay_tag_list_del(struct inlay_tag_list *list, uint64_t wr_id, uint32_t handle, int flags)
{
	struct ibv_ops_wr wr = {wr_id, NULL, IBV_WR_TAG_DEL, flags, {list->unexpected, handle, {0, NULL, 0, 0, 0}}};

	return inlay_tag_list_operate_(list, &wr);
}

/* Does nothing but carry IBV_OPS_TM_SYNC. Returns 0, or -EAGAIN when the command ring is full. */
INLAY_ALWAYS int inlay_tag_list_sync(struct inlay_tag_list *list, uint64_t wr_id, int flags)
{
	struct ibv_ops_wr wr = {wr_id, NULL, IBV_WR_TAG_SYNC, flags, {list->unexpected, 0, {0, NULL, 0, 0, 0}}};

	return inlay_tag_list_operate_(list, &wr);
}

/*
 * Posts and rings a linked list of operations, as ibv_post_srq_ops does. An ADD's handle comes out
 * in wr->tm.handle. IBV_OPS_TM_SYNC reports wr->tm.unexpected_cnt, modulo 2^16. Returns 0; -EINVAL
 * for an unknown opcode, a wrong number of SGEs, or a count beyond the messages handed out or below
 * the last report; or an error of add, del or sync. Then *bad_wr is the operation that failed;
 * those before it are posted and rung, and no others.
 */
INLAY_FN int inlay_tag_list_post_ops(struct inlay_tag_list *list, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad_wr)
{
	int err = 0;

	for (; wr && !err; wr = wr->next) {
		if ((uint32_t)wr->opcode > IBV_WR_TAG_SYNC ||
		    (wr->opcode == IBV_WR_TAG_ADD && (uint32_t)wr->tm.add.num_sge > (wr->tm.add.sg_list ? 1u : 0u)) ||
		    (wr->flags & IBV_OPS_TM_SYNC &&
		     (uint16_t)(wr->tm.unexpected_cnt - list->synced) > inlay_tag_list_unsynced_(list)))
			err = -EINVAL;
		else
			err = inlay_tag_list_operate_(list, wr);
		if (err)
			*bad_wr = wr;
	}
	inlay_sq_ring(list->sq);
	return err;
}

/* ---- Data path: completions ---- */

/*
 * Whether a CQE belongs to this list's command queue or XRQ. No other queue on the CQ may have the
 * XRQ's user_index. No document says how an error CQE names a tagged buffer: here, app is
 * INLAY_CQE_APP_TAG and app_info the entry; any other error is an XRQ entry's.
 */
INLAY_ALWAYS int inlay_tag_list_owns(const struct inlay_tag_list *list, const struct mlx5_cqe64 *cqe)
{
	if (inlay_cqe_is_send(cqe))
		return inlay_cqe_qpn(cqe) == inlay_sq_qpn(list->sq);
	return (cqe->app == INLAY_CQE_APP_TAG || inlay_cqe_is_error(cqe)) &&
	       (inlay_from_be32(cqe->srqn_uidx) & 0xffffff) == list->user_index;
}

/* Counts completions of an entry. The last one frees it. */
INLAY_ALWAYS void inlay_tag_list_settle_(struct inlay_tag_list *list, uint16_t index, uint32_t completions)
{
	struct inlay_tag_entry_ *entry = &list->entries[index];

	entry->owed = (uint16_t)(entry->owed - completions);
	if (entry->owed)
		return;
	entry->state = 0;
	entry->generation++;
	list->entries[list->tail].next = index;
	list->tail = index;
	list->room++;
}

INLAY_CALLS_COLD_
/*
 * The completion of an operation, and of those before it that the NIC does not complete. An error,
 * which names its WQEBB, loses the list: no entry is freed.
 */
INLAY_FN int inlay_tag_list_operation_(struct inlay_tag_list *list, const struct mlx5_cqe64 *cqe,
				       struct inlay_tag_wc *wc)
{
	const int failed = inlay_cqe_is_send(cqe);
	uint32_t due = 1, oldest = list->done, at;
	const struct inlay_tag_filed_ *filed;
	struct inlay_tag_entry_ *entry;

	while (oldest != inlay_sq_index(list->sq) && !inlay_tag_list_filed_(list, oldest)->asked)
		oldest++;
	at = failed ? list->done + (uint16_t)(inlay_cqe_wqe_counter(cqe) - list->done) : oldest;
	filed = inlay_tag_list_filed_(list, at);
	entry = &list->entries[filed->entry];
	/* Asked ones before a failed one had completions of their own. */
	if (INLAY_UNLIKELY(at == inlay_sq_index(list->sq) || at - list->done > oldest - list->done ||
			   inlay_cqe_is_error(cqe) != failed || (!failed && filed->app_op != cqe->app_op)))
		return -EPROTO;
	if (!failed && filed->app_op == INLAY_TAG_REMOVED) {
		if (!(inlay_from_be32(cqe->tm_cqe.success) & MLX5_TMC_SUCCESS))
			wc->status = IBV_WC_TM_ERR;
		else if (INLAY_UNLIKELY((entry->state & (INLAY_TAG_LISTED_ | INLAY_TAG_MATCHED_)) != INLAY_TAG_LISTED_))
			return -EPROTO;
		else
			due = 2; /* the receive will not complete */
		entry->state &= (uint8_t)~INLAY_TAG_DELETING_;
	}
	if (!failed && inlay_from_be16(cqe->tm_cqe.hw_phase_cnt) != filed->count)
		wc->flags = IBV_WC_TM_SYNC_REQ;
	list->done = at + 1;
	inlay_sq_release_until(list->sq, list->done);
	wc->wr_id = filed->wr_id;
	wc->opcode = (enum ibv_wc_opcode)(IBV_WC_TM_ADD + (filed->app_op - INLAY_TAG_APPENDED));
	if (filed->app_op != INLAY_TAG_NOOP)
		wc->handle = inlay_tag_list_handle_(list, filed->entry);
	if (filed->app_op != INLAY_TAG_NOOP && !failed)
		inlay_tag_list_settle_(list, filed->entry, due);
	return failed || filed->signaled;
}

/* A tagged receive: consumed, done, or both */
INLAY_FN int inlay_tag_list_received_(struct inlay_tag_list *list, const struct mlx5_cqe64 *cqe, uint32_t cqe_size,
				      struct inlay_tag_wc *wc)
{
	const uint16_t index = inlay_from_be16(cqe->app_info);
	const uint8_t app_op = cqe->app_op;
	const int error = inlay_cqe_is_error(cqe);
	const int last = error || (app_op != INLAY_TAG_CONSUMED && app_op != INLAY_TAG_CONSUMED_SW_RNDV);
	struct inlay_tag_entry_ *entry = inlay_tag_list_entry_(list, index);

	/* EXPECTED is always the second one; an error and CANCELED may be; others are the first. */
	if (INLAY_UNLIKELY(!entry || (!error && app_op != INLAY_TAG_CANCELED &&
				      !(entry->state & INLAY_TAG_MATCHED_) != (app_op != INLAY_TAG_EXPECTED))))
		return -EPROTO;
	wc->opcode = IBV_WC_TM_RECV;
	wc->wr_id = entry->recv_wr_id;
	wc->handle = inlay_tag_list_handle_(list, index);
	if (INLAY_UNLIKELY(error)) {
		wc->flags = IBV_WC_TM_MATCH;
		goto settle;
	}
	if (app_op != INLAY_TAG_EXPECTED && app_op != INLAY_TAG_CANCELED) {
		wc->tag = inlay_from_be64(cqe->tmh.tag);
		wc->app_ctx = inlay_from_be32(cqe->tmh.app_ctx);
	} else if (entry->state & INLAY_TAG_MATCHED_) { /* no TMH: it was in the first one */
		wc->tag = entry->tag;
		wc->app_ctx = entry->app_ctx;
	}
	wc->flags = (app_op != INLAY_TAG_EXPECTED ? (uint32_t)IBV_WC_TM_MATCH : 0) |
		    (last ? (uint32_t)IBV_WC_TM_DATA_VALID : 0);
	if (app_op == INLAY_TAG_CONSUMED_SW_RNDV)
		entry->state |= INLAY_TAG_SW_RNDV_;
	if (app_op == INLAY_TAG_CONSUMED_MSG_SW_RNDV || app_op == INLAY_TAG_CANCELED ||
	    entry->state & INLAY_TAG_SW_RNDV_)
		wc->status = IBV_WC_TM_RNDV_INCOMPLETE;
	if (!last) {
		entry->state |= INLAY_TAG_MATCHED_;
		entry->tag = wc->tag;
		entry->app_ctx = wc->app_ctx;
		return 1;
	}
	wc->byte_len = inlay_cqe_byte_count(cqe);
	if (INLAY_UNLIKELY(inlay_cqe_is_scattered(cqe))) {
		/* The TMH takes the 32 bytes: only a 128-byte CQE holds a payload, before it. */
		if ((cqe->op_own & INLAY_CQE_SCATTER_32) || cqe_size != 128 || wc->byte_len > 64)
			return -EPROTO;
		wc->payload = cqe - 1;
	}
	/* A caller that trusts a faulty device's length would read beyond its buffer. */
	if (INLAY_UNLIKELY(wc->byte_len > entry->size))
		wc->status = IBV_WC_LOC_LEN_ERR;
settle:
	entry->state &= (uint8_t)~INLAY_TAG_LISTED_;
	inlay_tag_list_settle_(list, index, 1);
	return 1;
}

INLAY_CALLS_COLD_
/*
 * Decodes a completion that inlay_tag_list_owns, before inlay_cq_advance. Status, opcode and flags
 * are those of an extended CQ (ibv_start_poll). An unexpected message is IBV_WC_TM_RECV without
 * MATCH and DATA_VALID, an error of an XRQ entry IBV_WC_TM_NO_TAG. cqe_size: inlay_cq_cqe_size().
 * Returns 1: *wc is filled. 0: an unsignaled operation completed. -EPROTO: no completion of this
 * kind is due; the list is unchanged.
 */
INLAY_FN int inlay_tag_list_complete(struct inlay_tag_list *list, const struct mlx5_cqe64 *cqe, uint32_t cqe_size,
				     struct inlay_tag_wc *wc)
{
	__builtin_memset(wc, 0, sizeof(*wc));
	wc->opcode = IBV_WC_TM_NO_TAG;
	if (INLAY_UNLIKELY(inlay_cqe_is_error(cqe)))
		wc->status = inlay_cqe_status(cqe);
	if (INLAY_UNLIKELY(inlay_cqe_is_error(cqe)) && !inlay_cqe_is_send(cqe) &&
	    (cqe->app != INLAY_CQE_APP_TAG || cqe->app_op == INLAY_TAG_UNEXPECTED || cqe->app_op == INLAY_TAG_NO_TAG)) {
		wc->wr_id = inlay_cqe_wqe_counter(cqe);
		return 1;
	}
	wc->app_op = inlay_cqe_is_send(cqe) ? 0 : cqe->app_op;
	switch (wc->app_op) {
	case INLAY_TAG_CONSUMED: case INLAY_TAG_EXPECTED: case INLAY_TAG_CONSUMED_SW_RNDV:
	case INLAY_TAG_CONSUMED_MSG: case INLAY_TAG_CONSUMED_MSG_SW_RNDV: case INLAY_TAG_CANCELED:
		return inlay_tag_list_received_(list, cqe, cqe_size, wc);
	case INLAY_TAG_APPENDED: case INLAY_TAG_REMOVED: case INLAY_TAG_NOOP: case 0: /* 0: failed */
		return inlay_tag_list_operation_(list, cqe, wc);
	case INLAY_TAG_UNEXPECTED: case INLAY_TAG_NO_TAG:
		break;
	default:
		return -EPROTO;
	}
	wc->wr_id = inlay_cqe_wqe_counter(cqe);
	wc->byte_len = inlay_cqe_byte_count(cqe);
	wc->payload = inlay_cqe_data(cqe, cqe_size, NULL);
	if (INLAY_UNLIKELY(!wc->payload && inlay_cqe_is_scattered(cqe)))
		return -EPROTO;
	if (cqe->app_op == INLAY_TAG_UNEXPECTED) {
		wc->opcode = IBV_WC_TM_RECV;
		list->unexpected++;
		if (inlay_tag_list_unsynced_(list) >= 1u << 14)
			wc->flags = IBV_WC_TM_SYNC_REQ;
	}
	return 1;
}

#endif
