/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/tag/recv.h: tagged receives in software and in the NIC's list at once, in one order, MPI's.
 *
 *   inlay_tag_rx_init(&rx, memory, &match, &list, 1024);             buffers below 1024 bytes stay in software
 *
 *   switch (inlay_tag_rx_post(&rx, tag, mask, &sge, (uintptr_t)req, &found)) {
 *   case 1: deliver(message(found.cookie), req); break;              was there before
 *   case 0: req->handle = found.handle; break;                       posted, in the NIC too or not
 *   }
 *
 *   while ((cqe = inlay_cq_peek(&cq))) {                             one after the other, each dealt with before the next
 *           if (inlay_tag_owns(&list, cqe))
 *                   switch (inlay_tag_rx_complete(&rx, cqe, cq.stride, &ev)) {
 *                   case INLAY_TAG_RX_DONE: done(ev.cookie, ev.wc.tag, ev.wc.byte_len); break;
 *                   case INLAY_TAG_RX_MESSAGE:                       in XRQ entry ev.wc.wr_id: read its TMH
 *                           if (inlay_tag_rx_arrive(&rx, tmh.tag, message, 1, &found) == 1)
 *                                   deliver(message, found.cookie);
 *                   ...
 *                   }
 *           inlay_cq_advance(&cq, 1);
 *   }
 *   inlay_tag_rx_flush(&rx);                                         when nothing is there any more: rings
 *
 * Every receive is in the software's table (match/table.h), which decides order; some are in the NIC's list as well. The rules:
 *
 *   1. A receive goes to the NIC only when no older receive that the NIC does not have could match the same message.
 *   2. A message that the NIC could not match goes through the table. The receive that it finds there may be in the NIC's list: it was
 *      added when the message was on its way, and is disabled there since the NIC counted one message more than it was told of. The
 *      software takes it back (a DEL) and has the buffer at once.
 *   3. The NIC is told of an unexpected message only after inlay_tag_rx_arrive has had it: with the next receive, or by a NOP of
 *      inlay_tag_rx_flush, so that no tag stays disabled.
 *   4. What the NIC consumes leaves the table with the first completion that says so.
 *   5. A cancel leaves the table at once and is a DEL for what is in the NIC: either it succeeds (INLAY_TAG_RX_CANCELED), or the NIC was
 *      faster and the receive completes as any other. Never both.
 *
 * Without a list (NULL) all of it is the software's table, and inlay_tag_rx_complete is not called: tag-matching NICs are the exception.
 *
 * Threads: one owner, of list, table and CQ.
 * Sources: MPI 4.0, 3.5; ibv_post_srq_ops(3), on phases; UCX's ucp/tag/offload.c for what a transport offloads, its rules being narrower.
 */
#ifndef INLAY_TAG_RECV_H
#define INLAY_TAG_RECV_H

#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/match.h>
#include <inlay/tag/list.h>

struct inlay_tag_rx {
	struct inlay_match *match;
	struct inlay_tag_list *list; /* NULL: software alone */
	uint64_t *receives;      /* of each entry of the list: its receive's handle in the table, or one of the two below */
	uint32_t min_len;
	uint32_t waiting;        /* messages handed out by inlay_tag_rx_complete, not yet seen by inlay_tag_rx_arrive */
};

#define INLAY_TAG_RX_TAKEN (~(uint64_t)0)     /* a message took it in software, the DEL is under way */
#define INLAY_TAG_RX_CANCELLING (~(uint64_t)1)

enum inlay_tag_rx_kind {
	INLAY_TAG_RX_NOTHING = 0,  /* nothing to do */
	INLAY_TAG_RX_MATCHED = 1,  /* a receive has its message, whose payload is to come: tag, app_ctx */
	INLAY_TAG_RX_DONE = 2,     /* a receive is complete: tag, app_ctx, byte_len; payload when it is in the CQE */
	INLAY_TAG_RX_RNDV = 3,     /* a receive's message is a rendezvous that the software must end: TMH and RVH are in its buffer */
	INLAY_TAG_RX_CANCELED = 4, /* a receive was taken out by inlay_tag_rx_cancel: its buffer is the caller's */
	INLAY_TAG_RX_MESSAGE = 5,  /* an unexpected message in XRQ entry wc.wr_id: inlay_tag_rx_arrive is next */
	INLAY_TAG_RX_PLAIN = 6,    /* a message without a tag (a FIN among them), or an error, in XRQ entry wc.wr_id */
	INLAY_TAG_RX_FAILED = 7,   /* a receive has failed: wc.status. IBV_WC_TM_RNDV_INCOMPLETE: its message was cancelled, no data come */
	INLAY_TAG_RX_BROKEN = 8,   /* the command queue has failed: the list is lost, its receives with it */
};

struct inlay_tag_rx_event {
	uint64_t cookie;           /* the receive's; 0 where there is none */
	struct inlay_tag_wc wc;
};

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up
 */

/* Bytes of memory beside a list of max_tags tags; 0 without a list. */
INLAY_FN size_t inlay_tag_rx_size(uint32_t max_tags)
{
	return max_tags ? ((size_t)max_tags + 1) * sizeof(uint64_t) : 0;
}

/*
 * Joins a table and a list, both empty.
 *
 * memory   inlay_tag_rx_size(list->max_tags) bytes, 8-byte aligned; NULL without a list
 * list     NULL: none. Its command ring has at least 2 * max_tags + 2 WQEBBs, so that what was added can always be taken back: no more
 *          than 16,383 tags
 * min_len  bytes; receives with a smaller buffer stay in software: matching a short message there costs less than the operation
 *
 * Returns 0, or -EINVAL.
 */
INLAY_COLD int inlay_tag_rx_init(struct inlay_tag_rx *rx, void *memory, struct inlay_match *match, struct inlay_tag_list *list,
				 uint32_t min_len)
{
	if (!match || (list && (!memory || (uintptr_t)memory % sizeof(uint64_t) || inlay_sq_size(list->sq) < 2 * list->max_tags + 2)))
		return -EINVAL;
	rx->match = match;
	rx->list = list;
	rx->receives = list ? (uint64_t *)memory : NULL;
	rx->min_len = min_len;
	rx->waiting = 0;
	return 0;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path
 */

/* Tags in the NIC's list, or on the way out of it. */
INLAY_FN uint32_t inlay_tag_rx_listed(const struct inlay_tag_rx *rx)
{
	return rx->list->max_tags - rx->list->count;
}

/* Tells the NIC of the messages that have arrived, all of them, if there is room for more than the DELs to come. */
INLAY_FN void inlay_tag_rx_sync(struct inlay_tag_rx *rx)
{
	if (!rx->waiting && inlay_sq_room(rx->list->sq) > inlay_tag_rx_listed(rx))
		(void)inlay_tag_sync(rx->list, 0, IBV_OPS_TM_SYNC);
}

/*
 * Posts a receive.
 *
 * tag, mask  a message matches when (its tag & mask) == (tag & mask)
 * sge        the buffer, host order; NULL: it stays in software. An eager message that is longer ends the sender's connection when the NIC
 *            has the receive (IBV_WC_LOC_LEN_ERR), and is the caller's to cut when software has it
 * cookie     the caller's name for it
 *
 * Returns 1: an unexpected message was there, *found is it, nothing was posted. 0: posted, found->handle names it to inlay_tag_rx_cancel;
 * whether the NIC has it is found->in_hw. -EAGAIN: the table is full. The NIC sees it after inlay_tag_rx_flush or inlay_tag_ring.
 */
INLAY_FN int inlay_tag_rx_post(struct inlay_tag_rx *rx, uint64_t tag, uint64_t mask, const struct ibv_sge *sge, uint64_t cookie,
			       struct inlay_match_found *found)
{
	struct inlay_tag_list *list = rx->list;
	uint32_t handle;
	int offload, err;

	/* Room is kept in the ring for a DEL of each tag, and for a NOP. */
	offload = list && sge && sge->length >= rx->min_len && list->count && inlay_sq_room(list->sq) > inlay_tag_rx_listed(rx) + 2 &&
		  !inlay_match_hw_blocked(rx->match, tag, mask);
	err = inlay_match_post(rx->match, tag, mask, cookie, found);
	if (err || !offload)
		return err;
	/* recv_wr_id is the cookie: the second completion needs it when the receive is out of the table. */
	err = inlay_tag_add(list, 0, cookie, found->tag, found->mask, sge, rx->waiting ? 0 : IBV_OPS_TM_SYNC, &handle);
	if (INLAY_UNLIKELY(err))
		return 0;
	rx->receives[handle & 0xffff] = found->handle;
	inlay_match_set_hw(rx->match, found->handle, handle);
	found->in_hw = 1;
	found->hw = handle;
	return 0;
}

/*
 * Looks for the receive of an unexpected message: of an INLAY_TAG_RX_MESSAGE, or of one that came another way (shared memory, another
 * NIC). Receives that one of these may match are posted with sge NULL: the NIC would fill a buffer that has its message already.
 *
 * tag       of its TMH
 * cookie    the caller's name for the message
 * from_nic  whether it is the message of an INLAY_TAG_RX_MESSAGE
 *
 * Returns 1: *found is the receive that takes it, its buffer is the caller's: copy, or read if it is a rendezvous. 0: kept, *found is the
 * message. -EAGAIN: the table is full; call again when there is room, and before any later message: until then the NIC's new tags stay
 * disabled. -EPROTO: *found takes it, and the NIC has lost count of that receive: it may still write to its buffer.
 */
INLAY_FN int inlay_tag_rx_arrive(struct inlay_tag_rx *rx, uint64_t tag, uint64_t cookie, int from_nic, struct inlay_match_found *found)
{
	int matched = inlay_match_arrive(rx->match, tag, cookie, found);

	INLAY_CHECK(!from_nic || rx->waiting, "each message of the NIC arrives once");
	if (INLAY_UNLIKELY(matched < 0))
		return matched;
	INLAY_CHECK(from_nic || !matched || !found->in_hw, "what the NIC has no other message may match");
	if (from_nic)
		rx->waiting--;
	if (matched && found->in_hw) {
		/* Disabled, and so not touched by the NIC: its buffer can be used now. */
		if (INLAY_UNLIKELY(inlay_tag_del(rx->list, 0, found->hw, 0)))
			return -EPROTO;
		rx->receives[found->hw & 0xffff] = INLAY_TAG_RX_TAKEN;
	}
	/* Behind that: it must not enable what was taken back. */
	if (from_nic && INLAY_UNLIKELY(inlay_tag_unsynced(rx->list) >= 1u << 14))
		inlay_tag_rx_sync(rx);
	return matched;
}

/*
 * Cancels a receive.
 *
 * Returns 1: it is out, its buffer is the caller's; *found is it. 0: the NIC has it: either INLAY_TAG_RX_CANCELED follows or it completes.
 * -ENOENT: it is out already, completed, matched or cancelled. The NIC sees the operation after inlay_tag_rx_flush or inlay_tag_ring.
 */
INLAY_FN int inlay_tag_rx_cancel(struct inlay_tag_rx *rx, uint64_t handle, struct inlay_match_found *found)
{
	int err = inlay_match_cancel(rx->match, handle, found);

	if (err)
		return err;
	if (!found->in_hw)
		return 1;
	err = inlay_tag_del(rx->list, found->cookie, found->hw, IBV_OPS_SIGNALED);
	INLAY_CHECK(!err, "what is in the table and in the list can be taken out of the list");
	(void)err;
	rx->receives[found->hw & 0xffff] = INLAY_TAG_RX_CANCELLING;
	return 0;
}

/*
 * Takes in a completion of the list (inlay_tag_owns), before it is freed.
 *
 * Returns enum inlay_tag_rx_kind and fills *ev, or -EPROTO for a CQE that cannot be (inlay_tag_complete), or for a receive that both sides
 * have matched.
 */
INLAY_FN int inlay_tag_rx_complete(struct inlay_tag_rx *rx, const struct mlx5_cqe64 *cqe, uint32_t cqe_size, struct inlay_tag_rx_event *ev)
{
	struct inlay_match_found found;
	uint64_t *receive;
	int told = inlay_tag_complete(rx->list, cqe, cqe_size, &ev->wc);

	ev->cookie = 0;
	if (told < 0)
		return told;
	if (!told)
		return INLAY_TAG_RX_NOTHING;
	switch (ev->wc.opcode) {
	case IBV_WC_TM_ADD:
	case IBV_WC_TM_SYNC:
	case IBV_WC_TM_DEL:
		if (ev->wc.status == IBV_WC_SUCCESS && ev->wc.opcode == IBV_WC_TM_DEL) {
			ev->cookie = ev->wc.wr_id;
			return INLAY_TAG_RX_CANCELED;
		}
		/* TM_ERR: a message was faster, and its completion tells. */
		return ev->wc.status == IBV_WC_SUCCESS || ev->wc.status == IBV_WC_TM_ERR ? INLAY_TAG_RX_NOTHING : INLAY_TAG_RX_BROKEN;
	case IBV_WC_TM_RECV:
		if (!(ev->wc.flags & (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID))) {
			if (ev->wc.status != IBV_WC_SUCCESS)
				return INLAY_TAG_RX_PLAIN;
			rx->waiting++;
			return INLAY_TAG_RX_MESSAGE;
		}
		break;
	default:
		return INLAY_TAG_RX_PLAIN;
	}
	ev->cookie = ev->wc.wr_id;
	receive = &rx->receives[ev->wc.handle & 0xffff];
	/* Out of the table with the first of its completions. A cancelled one is out already; TAKEN is no handle. */
	if (*receive && *receive != INLAY_TAG_RX_CANCELLING && inlay_match_cancel(rx->match, *receive, &found))
		return -EPROTO;
	*receive = 0;
	/* Of a message that was cancelled there is not even a header in the buffer. */
	if (INLAY_UNLIKELY((ev->wc.status != IBV_WC_SUCCESS && ev->wc.status != IBV_WC_TM_RNDV_INCOMPLETE) ||
			   ev->wc.app_op == INLAY_TAG_CANCELED))
		return INLAY_TAG_RX_FAILED;
	if (!(ev->wc.flags & IBV_WC_TM_DATA_VALID))
		return INLAY_TAG_RX_MATCHED;
	return ev->wc.status == IBV_WC_SUCCESS ? INLAY_TAG_RX_DONE : INLAY_TAG_RX_RNDV;
}

/*
 * When no completion is left: rings for what was posted, and tells the NIC of the unexpected messages that have arrived, if it has
 * tags that might be disabled for want of it.
 */
INLAY_FN void inlay_tag_rx_flush(struct inlay_tag_rx *rx)
{
	if (!rx->list)
		return;
	if (inlay_tag_unsynced(rx->list) && inlay_tag_rx_listed(rx))
		inlay_tag_rx_sync(rx);
	inlay_tag_ring(rx->list);
}

#endif
