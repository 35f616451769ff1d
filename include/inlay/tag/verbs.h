/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/tag/verbs.h: the interface of tag/list.h on a TM SRQ of verbs (ibv_create_srq_ex with IBV_SRQT_TM), through ibv_post_srq_ops and
 * an extended CQ: for code that has such an SRQ. All of it calls libmlx5.
 *
 *   inlay_tag_verbs_add(&tv, wr_id, recv_wr_id, tag, mask, &sge, IBV_OPS_SIGNALED, &handle);      posted and rung at once
 *   ...
 *   for (more = !ibv_start_poll(cq, &attr); more; more = !ibv_next_poll(cq))
 *           if (inlay_tag_verbs_complete(&tv, cq, &wc) > 0) ...
 *
 * The CQ must have been made with IBV_WC_EX_WITH_TM_INFO, IBV_WC_EX_WITH_BYTE_LEN and serve one TM SRQ and nothing else.
 *
 * What it inherits of libmlx5 (rdma-core 44):
 *   - operations and completions on two threads can deadlock while the command ring looks full: one thread for both;
 *   - an unsignaled DEL frees the entry at once, and the completion of a message that was faster hits whatever has it then: this adapter
 *     signals every DEL and swallows the completion that was not asked for;
 *   - credit of the command ring comes back with signaled operations only: this adapter signals every 16th, which a ring of fewer
 *     (max_ops) never reaches: it would be full for ever;
 *   - the phase is compared without a modulus, and with what ADDs have told only: the counts are given modulo 2^16, and each ADD tells
 *     again what the NIC knows, so that the compare of its completion is right;
 *     IBV_WC_TM_SYNC_REQ of an unexpected message is computed here; that of a DEL or a SYNC means nothing and is left out;
 *   - handles have no generation: one that is out of date is not seen. The second completion of a receive has no tag: wc.tag and wc.app_ctx
 *     are 0 there, keep them from the first;
 *   - an error on a tagged buffer is taken for one of an SRQ entry: the tag is lost, and wr_id is that of some entry;
 *   - a cancelled rendezvous is told as a plain receive: wc.opcode is IBV_WC_RECV with status IBV_WC_TM_RNDV_INCOMPLETE;
 *   - a batch that fails in its middle rings with a half-built WQE: this adapter posts one operation at a time.
 *
 * Threads: one owner, of SRQ and CQ.
 * Sources: ibv_post_srq_ops(3), ibv_create_cq_ex(3); libmlx5's qp.c and cq.c.
 */
#ifndef INLAY_TAG_VERBS_H
#define INLAY_TAG_VERBS_H

#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/tag/list.h>

struct inlay_tag_verbs {
	struct ibv_srq *srq;
	uint16_t unexpected; /* messages handed out, modulo 2^16 */
	uint16_t synced;     /* of which the NIC has been told */
	uint32_t quiet;      /* operations since the last signaled one */
};

/* What an operation's wr_id is when its completion is not the caller's. */
#define INLAY_TAG_VERBS_OWN (~(uint64_t)0)

/* A TM SRQ that nobody else posts operations to, made with max_ops of 16 or more. Returns 0, or -EINVAL for none. */
INLAY_COLD int inlay_tag_verbs_init(struct inlay_tag_verbs *tv, struct ibv_srq *srq)
{
	if (!srq)
		return -EINVAL;
	tv->srq = srq;
	tv->unexpected = 0;
	tv->synced = 0;
	tv->quiet = 0;
	return 0;
}

/* Posts one operation, whose flags are the caller's. */
INLAY_FN int inlay_tag_verbs_post(struct inlay_tag_verbs *tv, struct ibv_ops_wr *wr)
{
	struct ibv_ops_wr *bad;
	int err;

	INLAY_CHECK(wr->wr_id != INLAY_TAG_VERBS_OWN, "a wr_id of all ones is the adapter's own");
	if (!(wr->flags & IBV_OPS_SIGNALED) && (wr->opcode == IBV_WR_TAG_DEL || tv->quiet >= 15)) {
		wr->flags |= IBV_OPS_SIGNALED;
		wr->wr_id = INLAY_TAG_VERBS_OWN;
	}
	wr->next = NULL;
	wr->tm.unexpected_cnt = wr->flags & IBV_OPS_TM_SYNC ? tv->unexpected : tv->synced;
	/* Again what the NIC knows: libmlx5 compares with what the last ADD has told, as if no other operation told anything. */
	if (wr->opcode == IBV_WR_TAG_ADD)
		wr->flags |= IBV_OPS_TM_SYNC;
	err = ibv_post_srq_ops(tv->srq, wr, &bad);
	if (err)
		return err == ENOMEM ? wr->opcode == IBV_WR_TAG_ADD ? -ENOSPC : -EAGAIN : -err;
	tv->quiet = wr->flags & IBV_OPS_SIGNALED ? 0 : tv->quiet + 1;
	if (wr->flags & IBV_OPS_TM_SYNC)
		tv->synced = (uint16_t)wr->tm.unexpected_cnt;
	return 0;
}

/* As inlay_tag_add, and visible to the NIC at once. -ENOSPC: the list or the command ring is full, libmlx5 does not say which. */
INLAY_FN int inlay_tag_verbs_add(struct inlay_tag_verbs *tv, uint64_t wr_id, uint64_t recv_wr_id, uint64_t tag, uint64_t mask,
				 struct ibv_sge *sge, int flags, uint32_t *handle)
{
	struct ibv_ops_wr wr;
	int err;

	wr.wr_id = wr_id;
	wr.opcode = IBV_WR_TAG_ADD;
	wr.flags = flags;
	wr.tm.handle = 0;
	wr.tm.add.recv_wr_id = recv_wr_id;
	wr.tm.add.sg_list = sge;
	wr.tm.add.num_sge = sge && sge->length ? 1 : 0;
	wr.tm.add.tag = tag;
	wr.tm.add.mask = mask;
	err = inlay_tag_verbs_post(tv, &wr);
	if (!err && handle)
		*handle = wr.tm.handle;
	return err;
}

/* As inlay_tag_del, of a handle whose receive has not completed. -EAGAIN: the command ring is full. */
INLAY_FN int inlay_tag_verbs_del(struct inlay_tag_verbs *tv, uint64_t wr_id, uint32_t handle, int flags)
{
	struct ibv_ops_wr wr;

	wr.wr_id = wr_id;
	wr.opcode = IBV_WR_TAG_DEL;
	wr.flags = flags;
	wr.tm.handle = handle;
	return inlay_tag_verbs_post(tv, &wr);
}

/* As inlay_tag_sync. -EAGAIN: the command ring is full. */
INLAY_FN int inlay_tag_verbs_sync(struct inlay_tag_verbs *tv, uint64_t wr_id, int flags)
{
	struct ibv_ops_wr wr;

	wr.wr_id = wr_id;
	wr.opcode = IBV_WR_TAG_SYNC;
	wr.flags = flags;
	return inlay_tag_verbs_post(tv, &wr);
}

/*
 * The completion that ibv_start_poll or ibv_next_poll has just shown. Of an unexpected message and one without a tag, wc.wr_id is what
 * ibv_post_srq_recv was given.
 *
 * Returns 1, or 0 when there is nothing to tell.
 */
INLAY_FN int inlay_tag_verbs_complete(struct inlay_tag_verbs *tv, struct ibv_cq_ex *cq, struct inlay_tag_wc *wc)
{
	struct ibv_wc_tm_info info;

	wc->wr_id = cq->wr_id;
	wc->status = cq->status;
	wc->tag = 0;
	wc->app_ctx = 0;
	wc->payload = NULL;
	wc->byte_len = 0;
	wc->handle = 0;
	wc->flags = 0;
	wc->app_op = 0;
	wc->opcode = IBV_WC_TM_NO_TAG;
	if (cq->status != IBV_WC_SUCCESS && cq->status != IBV_WC_TM_ERR && cq->status != IBV_WC_TM_RNDV_INCOMPLETE)
		return wc->wr_id != INLAY_TAG_VERBS_OWN;
	wc->opcode = ibv_wc_read_opcode(cq);
	wc->flags = ibv_wc_read_wc_flags(cq) & (IBV_WC_TM_SYNC_REQ | IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
	if (wc->opcode == IBV_WC_TM_ADD || wc->opcode == IBV_WC_TM_DEL || wc->opcode == IBV_WC_TM_SYNC) {
		if (wc->opcode != IBV_WC_TM_ADD)
			wc->flags &= ~(uint32_t)IBV_WC_TM_SYNC_REQ;
		return wc->wr_id != INLAY_TAG_VERBS_OWN;
	}
	if (wc->flags & IBV_WC_TM_MATCH) {
		ibv_wc_read_tm_info(cq, &info);
		wc->tag = info.tag;
		wc->app_ctx = info.priv;
	}
	if (!(wc->flags & IBV_WC_TM_MATCH) || (wc->flags & IBV_WC_TM_DATA_VALID))
		wc->byte_len = ibv_wc_read_byte_len(cq);
	if (wc->opcode == IBV_WC_TM_RECV && !(wc->flags & (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID))) {
		tv->unexpected++;
		wc->flags = (uint16_t)(tv->unexpected - tv->synced) >= 1u << 14 ? (uint32_t)IBV_WC_TM_SYNC_REQ : 0;
	}
	return 1;
}

#endif
