/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/tag/list.h: the NIC's list of tagged receives: operations on it, and what it completes.
 *
 *   inlay_tag_add(&list, wr_id, recv_wr_id, tag, mask, &sge, IBV_OPS_SIGNALED, &handle);
 *   inlay_tag_ring(&list);                                           one doorbell for all that was posted
 *   ...
 *   while ((cqe = inlay_cq_peek(&cq))) {
 *           struct inlay_tag_wc wc;
 *
 *           if (inlay_tag_owns(&list, cqe) && inlay_tag_complete(&list, cqe, cq.stride, &wc) > 0)
 *                   switch (wc.opcode) ...
 *           inlay_cq_advance(&cq, 1);
 *   }
 *
 * The list lives in the NIC, behind an XRQ: a shared receive queue that matches tags. Operations are WQEs of one WQEBB on the send queue of
 * a QP that is connected to itself and receives through that XRQ, the command QP:
 *
 *   +0    ctrl    opcode 0x28, index, QPN, DS 4 (ADD) or 3
 *   +16   tag     operation << 4 | flags | be16 index | be16 sw_cnt at +6 | be64 tag at +16 | be64 mask at +24
 *   +48   data    the buffer; ADD only
 *
 * Which entry an ADD takes. The NIC keeps one entry more than it holds tags, the dummy at the list's end: an ADD fills that entry, and
 * names in `index` the one that becomes the next dummy. So the entry of the next ADD is known when this one is posted, and entries are
 * handed out in the order in which they were freed. The handle is the entry's number with a generation above it, so that one kept for too
 * long is refused.
 *
 * When an entry is free again: when its receive has completed, or its DEL has succeeded, and the completions of all operations that name
 * it have come. Every DEL asks the NIC for a completion, signaled or not: whether it came too late is known to nobody else, and the entry
 * may not be used before it is known. inlay_tag_complete swallows what was not signaled. Credit of the command queue comes back with these
 * completions; where many ADDs in a row are unsignaled, one in a quarter of the ring asks for one too.
 *
 * Unexpected messages and the phase. The NIC counts the messages that matched nothing (modulo 2^16). From such a message on, what is newly
 * added stays disabled until the software says that it has seen as many: it might be that the message, already on its way
 * to the software, is the one that the new tag waits for. inlay_tag_complete counts as it hands them out; an operation with
 * IBV_OPS_TM_SYNC carries the count. So: look at all completions, match each unexpected message against what is about to be added, and
 * only then add with IBV_OPS_TM_SYNC. When the completion of an operation has IBV_WC_TM_SYNC_REQ, the NIC had counted more by then: the
 * tag stays disabled until another operation with IBV_OPS_TM_SYNC is posted after the missing messages have been handed out. tag/recv.h
 * does this by itself. All compares are modulo 2^16, with fewer than 2^15 unexpected messages between two synchronisations: an unexpected
 * message has IBV_WC_TM_SYNC_REQ too when 2^14 are reached.
 *
 * Room in the CQ: a completion for each WQEBB of the command ring, two for each tag (consumed, expected), one for each XRQ entry.
 *
 * Threads: one owner at a time, the same as of the CQ: there is no lock, hence no order between two.
 * Sources: ibv_post_srq_ops(3), ibv_create_cq_ex(3); libmlx5's qp.c (mlx5_post_srq_ops) and cq.c (handle_tag_matching), whose bytes these
 * are.
 */
#ifndef INLAY_TAG_LIST_H
#define INLAY_TAG_LIST_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/cqe.h>
#include <inlay/wqe.h>
#include <inlay/queue/sq.h>
#include <inlay/tag/wire.h>

#define INLAY_OPCODE_TAG 0x28u
#define INLAY_CQE_APP_TAG 1u   /* mlx5_cqe64.app of all completions of tag matching */
#define INLAY_TAG_MAX 32767u   /* tags of one list: within half of the phase's 2^16 */

/* Operations of the tag segment, and its flags. */
enum inlay_tag_op {
	INLAY_TAG_NOP = 0,
	INLAY_TAG_APPEND = 1,
	INLAY_TAG_REMOVE = 2,
};

enum inlay_tag_seg_flags {
	INLAY_TAG_SW_CNT = 0x40,  /* sw_cnt is valid */
	INLAY_TAG_CQE_REQ = 0x80, /* a completion is asked for; the control segment does not ask */
};

/* mlx5_cqe64.app_op */
enum inlay_tag_app {
	INLAY_TAG_CONSUMED = 1,          /* matched, the payload is to come; TMH is in the CQE */
	INLAY_TAG_EXPECTED = 2,          /* the payload is there; no TMH */
	INLAY_TAG_UNEXPECTED = 3,        /* matched nothing: in an entry of the XRQ */
	INLAY_TAG_NO_TAG = 4,            /* not to be matched: in an entry of the XRQ */
	INLAY_TAG_APPENDED = 5,
	INLAY_TAG_REMOVED = 6,
	INLAY_TAG_NOOP = 7,
	INLAY_TAG_CONSUMED_SW_RNDV = 9,  /* matched, rendezvous that the software must end: TMH and RVH go to the buffer */
	INLAY_TAG_CONSUMED_MSG = 10,     /* matched, and the payload is there */
	INLAY_TAG_CONSUMED_MSG_SW_RNDV = 11,
	INLAY_TAG_CANCELED = 12,         /* of a rendezvous under way */
};

/* One tag of the list. */
struct inlay_tag_entry {
	uint64_t recv_wr_id;
	uint64_t tag;        /* of the message that took it, from the first completion to the second */
	uint32_t app_ctx;
	uint32_t size;       /* bytes of its buffer */
	uint16_t next;       /* of a free entry: the one that is used after it */
	uint16_t generation; /* of its handle: goes on with each use */
	uint16_t owed;       /* completions that are yet to come before it is free; 0: it is */
	uint8_t state;       /* enum inlay_tag_state */
	uint8_t zero;
};

enum inlay_tag_state {
	INLAY_TAG_LISTED = 1,    /* its receive has not completed */
	INLAY_TAG_MATCHED = 2,   /* consumed, the payload is to come */
	INLAY_TAG_SW_RNDV = 4,   /* consumed by a rendezvous that the software ends */
	INLAY_TAG_DELETING = 8,  /* a DEL is under way */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_tag_entry) == 32, "two entries to a cache line");

/* One operation in the command ring, filed under its WQEBB. */
struct inlay_tag_posted {
	uint64_t wr_id;
	uint16_t entry;
	uint16_t sw_cnt;     /* what the NIC has been told by then */
	uint16_t generation; /* of the entry: an ADD that was not asked for may be long over */
	uint8_t op;          /* enum inlay_tag_op */
	uint8_t told;        /* enum inlay_tag_told */
};

enum inlay_tag_told {
	INLAY_TAG_ASKED = 1,    /* the NIC completes it */
	INLAY_TAG_SIGNALED = 2, /* and the caller hears of it */
};

struct inlay_tag_list {
	struct inlay_sq *sq;
	struct inlay_tag_entry *entries;
	struct inlay_tag_posted *ops;
	uint32_t done;       /* WQEBBs of the command ring up to which all is known */
	uint32_t quiet;      /* operations posted since the last that the NIC completes */
	uint32_t max_tags;
	uint32_t count;      /* tags that may be added now: free entries, less the dummy */
	uint16_t head;       /* the NIC's dummy: the entry that the next ADD fills */
	uint16_t tail;       /* the entry that was freed last */
	uint16_t unexpected; /* messages that inlay_tag_complete has handed out, modulo 2^16 */
	uint16_t synced;     /* of which the NIC has been told */
	uint32_t user_index; /* of the XRQ, as its completions carry it */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_tag_list) <= INLAY_CACHE_LINE, "an operation touches one line of its list");

/* A completion. */
struct inlay_tag_wc {
	uint64_t wr_id;      /* TM_ADD, TM_DEL, TM_SYNC: the operation's. TM_RECV with TM_MATCH or TM_DATA_VALID: the receive's recv_wr_id.
	                        Without them, and TM_NO_TAG: the XRQ entry's number, for inlay_srq_release */
	uint64_t tag;        /* of a matched message; 0 where there is none, or not known (an error) */
	const void *payload; /* of a matched message in the CQE, not in its buffer: valid until the CQE is freed; else NULL */
	uint32_t app_ctx;    /* likewise of the matched message */
	uint32_t byte_len;   /* bytes received. TM_RECV with TM_DATA_VALID: more than its buffer has only with IBV_WC_LOC_LEN_ERR; and
	                        what lies in an XRQ entry, there with its TMH */
	uint32_t handle;     /* of the entry spoken of; of the matched receive it is no longer good once TM_DATA_VALID is there */
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode; /* IBV_WC_TM_ADD, TM_DEL, TM_SYNC, TM_RECV or TM_NO_TAG */
	uint32_t flags;      /* IBV_WC_TM_SYNC_REQ, IBV_WC_TM_MATCH, IBV_WC_TM_DATA_VALID */
	uint8_t app_op;      /* enum inlay_tag_app, as the NIC said it; 0 for a flushed or failed operation, and an error of an XRQ entry */
};

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up
 */

/* Bytes of memory for a list of max_tags tags whose command queue has wqebb_cnt WQEBBs. 0: one of them is out of range. */
INLAY_FN size_t inlay_tag_list_size(uint32_t max_tags, uint32_t wqebb_cnt)
{
	if (!max_tags || max_tags > INLAY_TAG_MAX || !inlay_is_pow2(wqebb_cnt) || wqebb_cnt > 32768)
		return 0;
	return ((size_t)max_tags + 1) * sizeof(struct inlay_tag_entry) + wqebb_cnt * sizeof(struct inlay_tag_posted);
}

/*
 * Describes the empty tag list of a fresh XRQ.
 *
 * memory      inlay_tag_list_size bytes, 64-byte aligned; the caller's for as long as the list is used
 * max_tags    what the XRQ was made for, 1 .. INLAY_TAG_MAX: its matching list has room for one more
 * sq          the send queue of its command QP, to which nothing else is posted. 2 * max_tags + 2 WQEBBs have room for an ADD and a DEL of
 *             each tag, and a SYNC
 * user_index  of the XRQ (xrqc.user_index), which its completions carry: tells lists on one CQ apart
 *
 * Returns 0, or -EINVAL.
 */
INLAY_COLD int inlay_tag_list_init(struct inlay_tag_list *list, void *memory, uint32_t max_tags, struct inlay_sq *sq,
				   uint32_t user_index)
{
	size_t size = sq ? inlay_tag_list_size(max_tags, inlay_sq_size(sq)) : 0;
	uint32_t i;

	if (!size || !memory || (uintptr_t)memory % INLAY_CACHE_LINE || user_index >> 24)
		return -EINVAL;
	__builtin_memset(memory, 0, size);
	list->sq = sq;
	list->entries = (struct inlay_tag_entry *)memory;
	list->ops = (struct inlay_tag_posted *)(list->entries + max_tags + 1);
	list->done = inlay_sq_index(sq);
	list->quiet = 0;
	list->max_tags = max_tags;
	list->count = max_tags;
	list->head = 0;
	list->tail = (uint16_t)max_tags;
	list->unexpected = 0;
	list->synced = 0;
	list->user_index = user_index;
	for (i = 0; i < max_tags; i++)
		list->entries[i].next = (uint16_t)(i + 1);
	return 0;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path
 */

/* Tags that may be added now. */
INLAY_FN uint32_t inlay_tag_room(const struct inlay_tag_list *list)
{
	return list->count;
}

/* Unexpected messages that were handed out and of which the NIC has not been told. */
INLAY_FN uint32_t inlay_tag_unsynced(const struct inlay_tag_list *list)
{
	return (uint16_t)(list->unexpected - list->synced);
}

/* The entry that a handle names, or NULL when it is out of date. */
INLAY_FN struct inlay_tag_entry *inlay_tag_find(const struct inlay_tag_list *list, uint32_t handle)
{
	struct inlay_tag_entry *entry;

	if ((handle & 0xffff) > list->max_tags)
		return NULL;
	entry = &list->entries[handle & 0xffff];
	return (entry->state & INLAY_TAG_LISTED) && entry->generation == handle >> 16 ? entry : NULL;
}

/*
 * The tag segment, of 32 bytes.
 *
 * op      enum inlay_tag_op
 * flags   enum inlay_tag_seg_flags
 * index   APPEND: the entry that becomes the dummy; REMOVE: the entry
 * sw_cnt  unexpected messages handled, with INLAY_TAG_SW_CNT
 * tag     and mask, of APPEND, in host order
 *
 * Same bytes as libmlx5's set_tm_seg, and zeros where that leaves what was there before.
 */
INLAY_ALWAYS void inlay_wqe_tag(void *seg, uint32_t op, uint32_t flags, uint16_t index, uint16_t sw_cnt, uint64_t tag, uint64_t mask)
{
	uint8_t *at = (uint8_t *)seg;

	inlay_put64(at, op << 4 | flags << 8 | (uint64_t)inlay_to_be16(index) << 16 | (uint64_t)inlay_to_be16(sw_cnt) << 48);
	inlay_put64(at + 8, 0);
	inlay_put64(at + 16, inlay_to_be64(tag));
	inlay_put64(at + 24, inlay_to_be64(mask));
}

/* Writes one operation and files it. There must be room in the ring. */
INLAY_ALWAYS void inlay_tag_commit(struct inlay_tag_list *list, struct inlay_cursor at, uint32_t op, uint64_t wr_id, uint16_t entry,
				   uint16_t index, uint64_t tag, uint64_t mask, const struct ibv_sge *sge, int flags)
{
	struct inlay_tag_posted *posted = &list->ops[at.index & (inlay_sq_size(list->sq) - 1)];
	int asked = op == INLAY_TAG_REMOVE || (flags & IBV_OPS_SIGNALED) || list->quiet >= (inlay_sq_size(list->sq) - 1) / 4;
	uint32_t seg_flags = asked ? (uint32_t)INLAY_TAG_CQE_REQ : 0;

	if (flags & IBV_OPS_TM_SYNC) {
		seg_flags |= INLAY_TAG_SW_CNT;
		list->synced = list->unexpected;
	}
	posted->wr_id = wr_id;
	posted->entry = entry;
	posted->sw_cnt = list->synced;
	posted->generation = list->entries[entry].generation;
	posted->op = (uint8_t)op;
	posted->told = (uint8_t)((asked ? INLAY_TAG_ASKED : 0) | (flags & IBV_OPS_SIGNALED ? INLAY_TAG_SIGNALED : 0));
	list->quiet = asked ? 0 : list->quiet + 1;
	inlay_wqe_tag(at.at, op, seg_flags, index, flags & IBV_OPS_TM_SYNC ? list->synced : 0, tag, mask);
	at.at += 2 * INLAY_DS;
	at.ds = 3;
	if (op == INLAY_TAG_APPEND) {
		if (sge && sge->length)
			inlay_wqe_data(at.at, sge->addr, sge->length, sge->lkey);
		else
			inlay_wqe_data_end(at.at);
		at.ds = 4;
	}
	if (op != INLAY_TAG_NOP)
		list->entries[entry].owed = (uint16_t)(list->entries[entry].owed + (asked != 0));
	inlay_sq_commit(list->sq, at, INLAY_OPCODE_TAG, 0, 0, 0);
}

/*
 * What the three operations share.
 *
 * wr_id       of the operation, shown by its completion
 * flags       IBV_OPS_SIGNALED: inlay_tag_complete tells of its end. IBV_OPS_TM_SYNC: the NIC hears of all unexpected messages that were
 *             handed out, which the caller has handled by now
 *
 * Not visible to the NIC before inlay_tag_ring(). -EAGAIN: the command ring is full; complete, and post again. Nothing was written.
 */

/*
 * Adds a tag to the end of the list: the first message with (its tag & mask) == tag goes to the buffer.
 *
 * recv_wr_id  shown by the receive's completions
 * sge         the buffer, host order, at most 2^31 - 1 bytes; NULL or of length 0: the message is empty. It is the NIC's until the receive
 *             has completed with IBV_WC_TM_DATA_VALID or an error, or a DEL with success
 * handle      out: names the tag to inlay_tag_del; may be NULL
 *
 * Returns 0; -ENOSPC when the list is full, -EAGAIN.
 */
INLAY_ALWAYS int inlay_tag_add(struct inlay_tag_list *list, uint64_t wr_id, uint64_t recv_wr_id, uint64_t tag, uint64_t mask,
			       const struct ibv_sge *sge, int flags, uint32_t *handle)
{
	uint16_t index = list->head;
	struct inlay_tag_entry *entry = &list->entries[index];
	struct inlay_cursor at;

	if (INLAY_UNLIKELY(!list->count))
		return -ENOSPC;
	if (INLAY_UNLIKELY(inlay_sq_begin(list->sq, 1, &at)))
		return -EAGAIN;
	entry->recv_wr_id = recv_wr_id;
	entry->size = sge ? sge->length : 0;
	entry->owed = 1; /* its receive */
	entry->state = INLAY_TAG_LISTED;
	list->head = entry->next;
	list->count--;
	inlay_tag_commit(list, at, INLAY_TAG_APPEND, wr_id, index, entry->next, tag, mask, sge, flags);
	if (handle)
		*handle = (uint32_t)entry->generation << 16 | index;
	return 0;
}

/*
 * Takes a tag out of the list, if no message takes it before. Its completion, when signaled, has status IBV_WC_SUCCESS: the receive will
 * not complete and its buffer is the caller's again; or IBV_WC_TM_ERR: a message was faster, and the receive completes or has completed.
 *
 * Returns 0; -ENOENT when the handle is out of date: its receive has completed, or it was deleted; -EALREADY when a DEL is under way;
 * -EAGAIN.
 */
INLAY_ALWAYS int inlay_tag_del(struct inlay_tag_list *list, uint64_t wr_id, uint32_t handle, int flags)
{
	struct inlay_tag_entry *entry = inlay_tag_find(list, handle);
	struct inlay_cursor at;

	if (INLAY_UNLIKELY(!entry))
		return -ENOENT;
	if (INLAY_UNLIKELY(entry->state & INLAY_TAG_DELETING))
		return -EALREADY;
	if (INLAY_UNLIKELY(inlay_sq_begin(list->sq, 1, &at)))
		return -EAGAIN;
	entry->state |= INLAY_TAG_DELETING;
	inlay_tag_commit(list, at, INLAY_TAG_REMOVE, wr_id, (uint16_t)handle, (uint16_t)handle, 0, 0, NULL, flags);
	return 0;
}

/* Changes nothing, and with IBV_OPS_TM_SYNC tells the NIC of the unexpected messages handled. Returns 0, or -EAGAIN. */
INLAY_ALWAYS int inlay_tag_sync(struct inlay_tag_list *list, uint64_t wr_id, int flags)
{
	struct inlay_cursor at;

	if (INLAY_UNLIKELY(inlay_sq_begin(list->sq, 1, &at)))
		return -EAGAIN;
	inlay_tag_commit(list, at, INLAY_TAG_NOP, wr_id, 0, 0, 0, 0, NULL, flags);
	return 0;
}

/* Shows the NIC all operations posted so far; does nothing when there are none. */
INLAY_ALWAYS void inlay_tag_ring(struct inlay_tag_list *list)
{
	inlay_sq_ring(list->sq);
}

/*
 * Posts a linked list of operations as ibv_post_srq_ops does, under one doorbell. An ADD's handle comes out in wr->tm.handle, as of
 * inlay_tag_add. With IBV_OPS_TM_SYNC the NIC is told wr->tm.unexpected_cnt, modulo 2^16.
 *
 * Returns 0; or what the operation that could not be posted returned, -EINVAL for an opcode that is none, more than one SGE or one at NULL, a count of
 * unexpected messages beyond those handed out. *bad_wr is then that operation; those before it are posted and rung, and of it and those
 * behind it nothing is.
 */
INLAY_FN int inlay_tag_post_ops(struct inlay_tag_list *list, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad_wr)
{
	uint16_t unexpected = list->unexpected;
	int err = 0;

	for (; wr; wr = wr->next) {
		if (wr->flags & IBV_OPS_TM_SYNC) {
			/* Between what the NIC knows and what was handed out: beyond, a tag would be enabled before its message is seen. */
			if ((uint16_t)((uint16_t)wr->tm.unexpected_cnt - list->synced) > (uint16_t)(unexpected - list->synced)) {
				err = -EINVAL;
				break;
			}
			list->unexpected = (uint16_t)wr->tm.unexpected_cnt;
		}
		switch (wr->opcode) {
		case IBV_WR_TAG_ADD:
			err = wr->tm.add.num_sge < 0 || wr->tm.add.num_sge > !!wr->tm.add.sg_list ? -EINVAL :
			      inlay_tag_add(list, wr->wr_id, wr->tm.add.recv_wr_id, wr->tm.add.tag, wr->tm.add.mask,
					    wr->tm.add.num_sge ? wr->tm.add.sg_list : NULL, wr->flags, &wr->tm.handle);
			break;
		case IBV_WR_TAG_DEL:
			err = inlay_tag_del(list, wr->wr_id, wr->tm.handle, wr->flags);
			break;
		case IBV_WR_TAG_SYNC:
			err = inlay_tag_sync(list, wr->wr_id, wr->flags);
			break;
		default:
			err = -EINVAL;
		}
		list->unexpected = unexpected;
		if (err)
			break;
	}
	if (err)
		*bad_wr = wr;
	inlay_tag_ring(list);
	return err;
}

/*
 * Whether a CQE is of this list: of its command queue, or of its XRQ: tag matching, and errors, of a tagged buffer or of an entry of the
 * XRQ; the latter do not say that they are of tag matching. No other queue on the CQ may have the XRQ's user_index.
 *
 * Nobody tells how a NIC says that an error is one of a tagged buffer. Here it is where app says tag matching, as on other completions, and
 * app_info the entry; without app it is taken for one of an XRQ entry.
 */
INLAY_ALWAYS int inlay_tag_owns(const struct inlay_tag_list *list, const struct mlx5_cqe64 *cqe)
{
	if (inlay_cqe_is_send(cqe))
		return inlay_cqe_qpn(cqe) == inlay_sq_qpn(list->sq);
	return (cqe->app == INLAY_CQE_APP_TAG || inlay_cqe_is_error(cqe)) &&
	       (inlay_from_be32(cqe->srqn_uidx) & 0xffffff) == list->user_index;
}

/* One completion less is owed of an entry; with the last it is free, behind all others. */
INLAY_ALWAYS void inlay_tag_settle(struct inlay_tag_list *list, uint16_t index, uint32_t completions)
{
	struct inlay_tag_entry *entry = &list->entries[index];

	entry->owed = (uint16_t)(entry->owed - completions);
	if (entry->owed)
		return;
	entry->state = 0;
	entry->generation++;
	list->entries[list->tail].next = index;
	list->tail = index;
	list->count++;
}

/* Where the oldest operation is that the NIC was asked to complete; pi where there is none. */
INLAY_FN uint32_t inlay_tag_oldest(const struct inlay_tag_list *list)
{
	uint32_t at;

	for (at = list->done; at != inlay_sq_index(list->sq) && !(list->ops[at & (inlay_sq_size(list->sq) - 1)].told & INLAY_TAG_ASKED); at++)
		;
	return at;
}

/* All is known up to this operation, and with it: credit goes back. */
INLAY_ALWAYS void inlay_tag_known(struct inlay_tag_list *list, uint32_t at)
{
	list->done = at + 1;
	inlay_sq_release_until(list->sq, list->done);
}

INLAY_ALWAYS enum ibv_wc_opcode inlay_tag_wc_opcode(uint32_t op)
{
	return op == INLAY_TAG_APPEND ? IBV_WC_TM_ADD : op == INLAY_TAG_REMOVE ? IBV_WC_TM_DEL : IBV_WC_TM_SYNC;
}

/* The command queue failed: the operation that the CQE names did not happen, and the ones before it that were not asked for did. */
INLAY_COLD int inlay_tag_failed(struct inlay_tag_list *list, const struct mlx5_cqe64 *cqe, struct inlay_tag_wc *wc)
{
	uint32_t ahead = (uint16_t)(inlay_cqe_wqe_counter(cqe) - list->done), at = list->done + ahead, due;
	const struct inlay_tag_posted *posted = &list->ops[at & (inlay_sq_size(list->sq) - 1)];
	struct inlay_tag_entry *entry = &list->entries[posted->entry];

	/* Those that were asked for have a completion each. */
	if (ahead >= inlay_sq_index(list->sq) - list->done || inlay_tag_oldest(list) - list->done < ahead || !inlay_cqe_is_error(cqe))
		return -EPROTO;
	inlay_tag_known(list, at);
	wc->wr_id = posted->wr_id;
	wc->status = inlay_cqe_status(cqe);
	wc->opcode = inlay_tag_wc_opcode(posted->op);
	if (posted->op == INLAY_TAG_NOP)
		return 1;
	wc->handle = (uint32_t)posted->generation << 16 | posted->entry;
	if (posted->generation != entry->generation)
		return 1;
	due = posted->told & INLAY_TAG_ASKED;
	/* A tag that was never added is not received; one that was not removed still may be. */
	if (posted->op == INLAY_TAG_APPEND && (entry->state & INLAY_TAG_LISTED))
		due++;
	entry->state &= (uint8_t)~(posted->op == INLAY_TAG_APPEND ? INLAY_TAG_LISTED : INLAY_TAG_DELETING);
	if (due)
		inlay_tag_settle(list, posted->entry, due);
	return 1;
}

/* The end of an operation that the NIC was asked to complete. */
INLAY_FN int inlay_tag_operation(struct inlay_tag_list *list, const struct mlx5_cqe64 *cqe, struct inlay_tag_wc *wc)
{
	uint32_t op = cqe->app_op == INLAY_TAG_APPENDED ? INLAY_TAG_APPEND :
		      cqe->app_op == INLAY_TAG_REMOVED ? INLAY_TAG_REMOVE : INLAY_TAG_NOP;
	uint32_t at = inlay_tag_oldest(list), completions = 1;
	const struct inlay_tag_posted *posted = &list->ops[at & (inlay_sq_size(list->sq) - 1)];
	struct inlay_tag_entry *entry = &list->entries[posted->entry];

	if (INLAY_UNLIKELY(at == inlay_sq_index(list->sq) || posted->op != op || inlay_cqe_is_error(cqe)))
		return -EPROTO;
	if (op == INLAY_TAG_REMOVE) {
		if (!(inlay_from_be32(cqe->tm_cqe.success) & MLX5_TMC_SUCCESS))
			wc->status = IBV_WC_TM_ERR;
		else if (INLAY_UNLIKELY((entry->state & (INLAY_TAG_LISTED | INLAY_TAG_MATCHED)) != INLAY_TAG_LISTED))
			return -EPROTO;
		else
			completions = 2; /* the receive will not complete any more */
		entry->state &= (uint8_t)~INLAY_TAG_DELETING;
	}
	inlay_tag_known(list, at);
	wc->wr_id = posted->wr_id;
	wc->opcode = inlay_tag_wc_opcode(op);
	if (inlay_from_be16(cqe->tm_cqe.hw_phase_cnt) != posted->sw_cnt)
		wc->flags = IBV_WC_TM_SYNC_REQ;
	if (op != INLAY_TAG_NOP) {
		wc->handle = (uint32_t)entry->generation << 16 | posted->entry;
		inlay_tag_settle(list, posted->entry, completions);
	}
	return (posted->told & INLAY_TAG_SIGNALED) != 0;
}

/* A tagged receive: consumed, done, or both. */
INLAY_FN int inlay_tag_received(struct inlay_tag_list *list, const struct mlx5_cqe64 *cqe, uint32_t cqe_size, struct inlay_tag_wc *wc)
{
	uint16_t index = inlay_from_be16(cqe->app_info);
	struct inlay_tag_entry *entry;
	uint8_t app_op = cqe->app_op;
	int error = inlay_cqe_is_error(cqe), last = error || (app_op != INLAY_TAG_CONSUMED && app_op != INLAY_TAG_CONSUMED_SW_RNDV);

	if (INLAY_UNLIKELY(index > list->max_tags))
		return -EPROTO;
	entry = &list->entries[index];
	if (INLAY_UNLIKELY(!(entry->state & INLAY_TAG_LISTED)))
		return -EPROTO;
	/* EXPECTED is the second one, always; an error and CANCELED may be; all else is the first. */
	if (INLAY_UNLIKELY(!error && app_op != INLAY_TAG_CANCELED && !(entry->state & INLAY_TAG_MATCHED) != (app_op != INLAY_TAG_EXPECTED)))
		return -EPROTO;
	wc->opcode = IBV_WC_TM_RECV;
	wc->wr_id = entry->recv_wr_id;
	wc->handle = (uint32_t)entry->generation << 16 | index;
	if (INLAY_UNLIKELY(error)) {
		wc->status = inlay_cqe_status(cqe);
		wc->flags = IBV_WC_TM_MATCH;
		goto settle;
	}
	if (app_op == INLAY_TAG_EXPECTED || app_op == INLAY_TAG_CANCELED) {
		/* Their CQEs have no TMH: what the first one said. */
		if (entry->state & INLAY_TAG_MATCHED) {
			wc->tag = entry->tag;
			wc->app_ctx = entry->app_ctx;
		}
		wc->flags = IBV_WC_TM_DATA_VALID | (app_op == INLAY_TAG_CANCELED ? (uint32_t)IBV_WC_TM_MATCH : 0);
	} else {
		wc->tag = inlay_from_be64(cqe->tmh.tag);
		wc->app_ctx = inlay_from_be32(cqe->tmh.app_ctx);
		wc->flags = IBV_WC_TM_MATCH | (last ? (uint32_t)IBV_WC_TM_DATA_VALID : 0);
	}
	if (app_op == INLAY_TAG_CONSUMED_SW_RNDV || app_op == INLAY_TAG_CONSUMED_MSG_SW_RNDV || app_op == INLAY_TAG_CANCELED ||
	    (entry->state & INLAY_TAG_SW_RNDV))
		wc->status = IBV_WC_TM_RNDV_INCOMPLETE;
	if (!last) {
		entry->state |= INLAY_TAG_MATCHED;
		if (app_op == INLAY_TAG_CONSUMED_SW_RNDV)
			entry->state |= INLAY_TAG_SW_RNDV;
		entry->tag = wc->tag;
		entry->app_ctx = wc->app_ctx;
		return 1;
	}
	wc->byte_len = inlay_cqe_byte_count(cqe);
	if (INLAY_UNLIKELY(inlay_cqe_is_scattered(cqe))) {
		/* The 32 bytes of a CQE hold its TMH: only the first half of a 128-byte one has room for a payload. */
		if ((cqe->op_own & INLAY_CQE_SCATTER_32) || cqe_size != 128 || wc->byte_len > 64)
			return -EPROTO;
		wc->payload = cqe - 1;
	}
	/* A device looks at the CQE's place only, or lies: who believes it reads beyond the buffer. */
	if (INLAY_UNLIKELY(wc->byte_len > entry->size))
		wc->status = IBV_WC_LOC_LEN_ERR;
settle:
	entry->state &= (uint8_t)~INLAY_TAG_LISTED;
	inlay_tag_settle(list, index, 1);
	return 1;
}

/*
 * Takes in a completion of this list (inlay_tag_owns), before it is freed.
 *
 * cqe_size  the CQ's, 64 or 128 (inlay_cq.stride)
 * wc        filled in full when the answer is 1
 *
 * Returns 1; 0 when there is nothing to tell: the end of an operation that was not signaled; -EPROTO for a CQE that cannot be: of an entry
 * that nothing is owed of, an operation that was not posted (a device gone mad, a CQE counted twice); the list is as it was.
 *
 * The statuses and flags are those of ibv_start_poll's CQ. An unexpected message is IBV_WC_TM_RECV without flags, as libmlx5 says it
 * (ibv_create_cq_ex(3) has IBV_WC_RECV), with IBV_WC_TM_SYNC_REQ from 2^14 on. An error of an XRQ entry is IBV_WC_TM_NO_TAG.
 */
INLAY_FN int inlay_tag_complete(struct inlay_tag_list *list, const struct mlx5_cqe64 *cqe, uint32_t cqe_size, struct inlay_tag_wc *wc)
{
	wc->wr_id = 0;
	wc->tag = 0;
	wc->payload = NULL;
	wc->app_ctx = 0;
	wc->byte_len = 0;
	wc->handle = 0;
	wc->status = IBV_WC_SUCCESS;
	wc->opcode = IBV_WC_TM_NO_TAG;
	wc->flags = 0;
	wc->app_op = inlay_cqe_is_send(cqe) ? 0 : cqe->app_op;
	if (INLAY_UNLIKELY(inlay_cqe_is_send(cqe)))
		return inlay_tag_failed(list, cqe, wc);
	if (INLAY_UNLIKELY(inlay_cqe_is_error(cqe) && cqe->app != INLAY_CQE_APP_TAG)) {
		wc->wr_id = inlay_cqe_wqe_counter(cqe);
		wc->status = inlay_cqe_status(cqe);
		wc->app_op = 0;
		return 1;
	}
	switch (cqe->app_op) {
	case INLAY_TAG_CONSUMED:
	case INLAY_TAG_EXPECTED:
	case INLAY_TAG_CONSUMED_SW_RNDV:
	case INLAY_TAG_CONSUMED_MSG:
	case INLAY_TAG_CONSUMED_MSG_SW_RNDV:
	case INLAY_TAG_CANCELED:
		return inlay_tag_received(list, cqe, cqe_size, wc);
	case INLAY_TAG_APPENDED:
	case INLAY_TAG_REMOVED:
	case INLAY_TAG_NOOP:
		return inlay_tag_operation(list, cqe, wc);
	case INLAY_TAG_UNEXPECTED:
	case INLAY_TAG_NO_TAG:
		break;
	default:
		return -EPROTO;
	}
	if (cqe->app_op == INLAY_TAG_UNEXPECTED)
		wc->opcode = IBV_WC_TM_RECV;
	wc->wr_id = inlay_cqe_wqe_counter(cqe);
	wc->status = inlay_cqe_status(cqe);
	if (INLAY_UNLIKELY(inlay_cqe_is_error(cqe)))
		return 1;
	wc->byte_len = inlay_cqe_byte_count(cqe);
	wc->payload = inlay_cqe_payload(cqe, cqe_size);
	if (INLAY_UNLIKELY(!wc->payload && inlay_cqe_is_scattered(cqe)))
		return -EPROTO;
	if (cqe->app_op == INLAY_TAG_UNEXPECTED) {
		list->unexpected++;
		if (inlay_tag_unsynced(list) >= 1u << 14)
			wc->flags = IBV_WC_TM_SYNC_REQ;
	}
	return 1;
}

#endif
