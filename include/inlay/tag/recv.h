/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/tag/recv.h: tagged receives in the software's table and the NIC's list, in MPI's order; on
 * NICs that do not match tags, in the table alone.
 *
 *   inlay_tag_rx_init(&rx, &match, &list, 1024);                    shorter ones stay in software
 *
 *   inlay_tag_rx_post(&rx, tag, mask, &sge, (uintptr_t)req, &found);   as inlay_match_post
 *
 *   while ((cqe = inlay_cq_peek(&cq))) {       of inlay_tag_list_owns; handle each before the next
 *           switch (inlay_tag_rx_complete(&rx, cqe, inlay_cq_cqe_size(&cq), &wc)) {
 *           case INLAY_TAG_RX_DONE: done(wc.wr_id, wc.tag, wc.byte_len); break;
 *           case INLAY_TAG_RX_MESSAGE:                      in XRQ entry wc.wr_id: read its TMH
 *                   if (inlay_tag_rx_arrive(&rx, tmh.tag, message, 1, &found) == 1)
 *                           deliver(message, found.cookie);
 *           ...
 *           }
 *           inlay_cq_advance(&cq, 1);
 *   }
 *   inlay_tag_rx_flush(&rx);                                        no CQE is left: rings
 *
 * Invariants:
 *   - Every receive is in the table, which decides order; some are in the NIC's list too. The NIC
 *     gets a receive only if no older one that it lacks could match the same message.
 *   - A message that the NIC could not match goes through the table. If the receive found there is
 *     in the NIC too, the NIC has disabled it (list.h, the phase): the software takes it back by a
 *     DEL and may use its buffer at once.
 *   - After inlay_tag_rx_arrive, the next post or inlay_tag_rx_flush tells the NIC that the
 *     software has the message.
 *   - A receive leaves the table with the first completion that names it, or when it is cancelled.
 *
 * Threads: one owner at a time for list, table and CQ together.
 */
#ifndef INLAY_TAG_RECV_H
#define INLAY_TAG_RECV_H /* a trial: names may change */

#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/match.h>
#include <inlay/tag/list.h>

struct inlay_tag_rx {
	struct inlay_match *match;
	struct inlay_tag_list *list; /* NULL: software alone */
	uint32_t min_len;
	uint32_t waiting;        /* messages from _complete that have not come to _arrive */
};

/* Kinds of completions. wc.wr_id is a receive's cookie, or the XRQ entry of a message. */
enum inlay_tag_rx_kind {
	INLAY_TAG_RX_NOTHING = 0,  /* nothing to do */
	INLAY_TAG_RX_MATCHED = 1,  /* a receive has its message, whose payload is to come: tag, app_ctx */
	INLAY_TAG_RX_DONE = 2,     /* a receive is complete: tag, app_ctx, byte_len; payload when it is in the CQE */
	INLAY_TAG_RX_RNDV = 3,     /* the software must end the receive's rendezvous: TMH and RVH are in its buffer */
	INLAY_TAG_RX_CANCELED = 4, /* a cancelled receive has left the list: the NIC no longer uses its buffer */
	INLAY_TAG_RX_MESSAGE = 5,  /* an unexpected message: inlay_tag_rx_arrive is next */
	INLAY_TAG_RX_PLAIN = 6,    /* a message without a tag, or an error of an XRQ entry */
	INLAY_TAG_RX_FAILED = 7,   /* a receive has failed: wc.status; RNDV_INCOMPLETE: its message was cancelled */
	INLAY_TAG_RX_BROKEN = 8,   /* the command queue has failed: the list and its receives are lost */
};

/* ---- Set-up ---- */

/*
 * Joins a table, which may grow later, and a list, both empty. Returns 0, or -EINVAL.
 *
 * list     NULL: none. Its command ring needs 2 * max_tags + 2 WQEBBs
 * min_len  bytes; receives with a smaller buffer stay in software, where short messages cost less
 */
INLAY_COLD int inlay_tag_rx_init(struct inlay_tag_rx *rx, struct inlay_match *match, struct inlay_tag_list *list,
				 uint32_t min_len)
{
	if (!match || (list && inlay_sq_size(list->sq) < 2 * list->max_tags + 2))
		return -EINVAL;
	rx->match = match;
	rx->list = list;
	rx->min_len = min_len;
	rx->waiting = 0;
	return 0;
}

/* ---- Data path ---- */

/* Tags in the NIC's list, or on their way out of it */
INLAY_FN uint32_t inlay_tag_rx_listed_(const struct inlay_tag_rx *rx)
{
	return rx->list->max_tags - rx->list->room;
}

/* Rings what was posted, and reports the messages that have arrived. Call when no CQE is left. */
INLAY_FN void inlay_tag_rx_flush(struct inlay_tag_rx *rx)
{
	if (!rx->list)
		return;
	/* The ring keeps room for all DELs. */
	if (inlay_tag_list_unsynced_(rx->list) >= (inlay_tag_rx_listed_(rx) ? 1u : 1u << 14) &&
	    !rx->waiting && inlay_sq_room(rx->list->sq) > inlay_tag_rx_listed_(rx))
		(void)inlay_tag_list_sync(rx->list, 0, IBV_OPS_TM_SYNC);
	inlay_sq_ring(rx->list->sq);
}

/*
 * Posts a receive as inlay_match_post does, whose returns these are; found->in_hw says whether the
 * NIC gets it. The NIC sees it after inlay_tag_rx_flush or inlay_sq_ring.
 *
 * sge  the buffer, host order; NULL: the receive stays in software. If the NIC has the receive, a
 *      longer eager message ends the sender's connection (IBV_WC_LOC_LEN_ERR)
 */
INLAY_FN int inlay_tag_rx_post(struct inlay_tag_rx *rx, uint64_t tag, uint64_t mask, const struct ibv_sge *sge,
			       uint64_t cookie, struct inlay_match_found *found)
{
	struct inlay_tag_list *list = rx->list;
	struct inlay_tag_entry_ *entry;
	uint32_t handle;
	int offload, err;

	/* The ring keeps room for a DEL of each tag, and for a SYNC. */
	offload = list && sge && sge->length >= rx->min_len && inlay_sq_room(list->sq) > inlay_tag_rx_listed_(rx) + 2 &&
		  !inlay_match_hw_blocked(rx->match, tag, mask);
	err = inlay_match_post(rx->match, tag, mask, cookie, found);
	if (err || !offload)
		return err;
	if (inlay_tag_list_add(list, cookie, found->tag, found->mask, sge, rx->waiting ? 0 : IBV_OPS_TM_SYNC, &handle))
		return 0;
	entry = &list->entries[handle & 0xffff];
	entry->recv_wr_id = found->handle;
	entry->state |= INLAY_TAG_TABLE_;
	inlay_match_set_hw(rx->match, found->handle, handle);
	found->in_hw = 1;
	found->hw = handle;
	return 0;
}

/* Asks the NIC to give back a receive that has left the table. Returns as inlay_tag_list_del. */
INLAY_FN int inlay_tag_rx_recall_(struct inlay_tag_rx *rx, const struct inlay_match_found *found)
{
	struct inlay_tag_entry_ *entry = &rx->list->entries[found->hw & 0xffff];

	entry->recv_wr_id = found->cookie;
	entry->state &= (uint8_t)~INLAY_TAG_TABLE_;
	return inlay_tag_list_del(rx->list, found->cookie, found->hw, IBV_OPS_SIGNALED);
}

/*
 * Looks for the receive of an unexpected message.
 *
 * tag       of its TMH
 * from_nic  1: the message of an INLAY_TAG_RX_MESSAGE; 0: it came another way (shared memory,
 *           another NIC). Receives that such messages may match are better posted with sge NULL
 *
 * Returns 1: *found is the receive, and its buffer is free: copy, or read for a rendezvous. 0: the
 * message is kept, in *found. -EAGAIN: the table is full; call again when it has room. -EBUSY, with
 * from_nic 0: *found is the receive, and the NIC has it; it is recalled as by inlay_tag_rx_cancel.
 * INLAY_TAG_RX_CANCELED frees its buffer for the message; if it completes instead, call again. Deal
 * with -EAGAIN and -EBUSY before any later message. -EPROTO: *found is the receive, but the NIC
 * cannot be asked for it and may still write to its buffer.
 */
INLAY_FN int inlay_tag_rx_arrive(struct inlay_tag_rx *rx, uint64_t tag, uint64_t cookie, int from_nic,
				 struct inlay_match_found *found)
{
	int matched = inlay_match_arrive(rx->match, tag, cookie, found);

	INLAY_CHECK(!from_nic || rx->waiting, "each message of the NIC arrives once");
	if (INLAY_UNLIKELY(matched < 0))
		return matched;
	if (from_nic)
		rx->waiting--;
	if (matched && found->in_hw && INLAY_UNLIKELY(!from_nic))
		return inlay_tag_rx_recall_(rx, found) ? -EPROTO : -EBUSY;
	/* The NIC has disabled it and does not touch its buffer. */
	if (matched && found->in_hw && INLAY_UNLIKELY(inlay_tag_list_del(rx->list, 0, found->hw, 0)))
		return -EPROTO;
	/* After the DEL: the count must not enable the receive that is taken back. */
	if (from_nic && INLAY_UNLIKELY(inlay_tag_list_unsynced_(rx->list) >= 1u << 14))
		inlay_tag_rx_flush(rx);
	return matched;
}

/*
 * Cancels a receive. Returns 1: *found is the receive, and its buffer is free. 0: the NIC has it,
 * and INLAY_TAG_RX_CANCELED or its completion follows, after inlay_tag_rx_flush. -ENOENT: it had
 * left.
 */
INLAY_FN int inlay_tag_rx_cancel(struct inlay_tag_rx *rx, uint64_t handle, struct inlay_match_found *found)
{
	int err = inlay_match_remove(rx->match, handle, found);

	if (err)
		return err;
	if (!found->in_hw)
		return 1;
	err = inlay_tag_rx_recall_(rx, found);
	INLAY_CHECK(!err, "a receive in the table and in the list can be taken out of the list");
	return 0;
}

/*
 * Decodes a completion as inlay_tag_list_complete does. Returns enum inlay_tag_rx_kind; -EPROTO for
 * an impossible CQE, or a receive that both sides have matched.
 */
INLAY_FN int inlay_tag_rx_complete(struct inlay_tag_rx *rx, const struct mlx5_cqe64 *cqe, uint32_t cqe_size,
				   struct inlay_tag_wc *wc)
{
	struct inlay_tag_entry_ *entry = inlay_tag_list_entry_(rx->list, inlay_from_be16(cqe->app_info));
	const int table = entry && entry->state & INLAY_TAG_TABLE_; /* if it is a receive */
	const int told = inlay_tag_list_complete(rx->list, cqe, cqe_size, wc);
	struct inlay_match_found found;

	if (told <= 0)
		return told; /* -EPROTO, or INLAY_TAG_RX_NOTHING */
	if (wc->opcode == IBV_WC_TM_NO_TAG)
		return INLAY_TAG_RX_PLAIN;
	if (wc->opcode != IBV_WC_TM_RECV) {
		if (wc->status != IBV_WC_SUCCESS) /* TM_ERR: a message was faster; it has its own completion */
			return wc->status == IBV_WC_TM_ERR ? INLAY_TAG_RX_NOTHING : INLAY_TAG_RX_BROKEN;
		return wc->opcode == IBV_WC_TM_DEL ? INLAY_TAG_RX_CANCELED : INLAY_TAG_RX_NOTHING;
	}
	if (!(wc->flags & (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID))) {
		rx->waiting++;
		return INLAY_TAG_RX_MESSAGE;
	}
	/* The first completion takes it out of the table, unless software has. */
	if (table) {
		if (inlay_match_remove(rx->match, wc->wr_id, &found))
			return -EPROTO;
		entry->recv_wr_id = wc->wr_id = found.cookie;
		entry->state &= (uint8_t)~INLAY_TAG_TABLE_;
	}
	/* Of a cancelled message, not even a header is in the buffer. */
	if (INLAY_UNLIKELY((wc->status != IBV_WC_SUCCESS && wc->status != IBV_WC_TM_RNDV_INCOMPLETE) ||
			   wc->app_op == INLAY_TAG_CANCELED))
		return INLAY_TAG_RX_FAILED;
	if (!(wc->flags & IBV_WC_TM_DATA_VALID))
		return INLAY_TAG_RX_MATCHED;
	return wc->status == IBV_WC_SUCCESS ? INLAY_TAG_RX_DONE : INLAY_TAG_RX_RNDV;
}

#endif
