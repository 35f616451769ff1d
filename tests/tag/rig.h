/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rig.h: what the tests of tag matching share, besides devx/rig.h: an XRQ with its list, a QP on it, and the QP's peer.
 *
 * The receiver's buffer: the first quarter is for tags, the second for the entries of the XRQ. The sender's is free.
 */
#ifndef TESTS_TAG_RIG_H
#define TESTS_TAG_RIG_H

#include "devx/rig.h"
#include <inlay/tag.h>

#define UIDX 0x4711u
#define EXACT INLAY_MATCH_EXACT
#define BOTH (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID)
#define SYNCED (IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC)

struct tagged {
	struct inlay_devx_cq cq;
	struct inlay_devx_srq xrq;
	struct inlay_devx_qp cmd;
	struct inlay_tag_list list;
	void *memory;
	struct side rx, tx;
	uint32_t slot;            /* bytes of an entry of the XRQ */
	uint32_t posted;          /* entries, ever */
	uint8_t data[64];         /* what came in the last CQE */
	bool dead;                /* the connection has failed, on purpose */
};

/* What a test wants; 0: 64-byte CQEs, no scatter, rendezvous by the device */
struct tagged_how {
	uint32_t tags, bbs, entries, slot, cqe_size, scatter;
	bool no_rndv;
};

UNUSED static void tm_open(struct tagged *t, const struct tagged_how *how)
{
	struct inlay_devx_srq_attr attr;
	struct inlay_devx_path path = path_usual();
	struct inlay_devx_qp_attr qp;
	struct how rx = {.cqe_size = how->cqe_size, .scatter = how->scatter}, tx = {.bbs = 256};
	size_t size;

	memset(t, 0, sizeof(*t));
	cq_open(&t->cq, 1024, how->cqe_size ? how->cqe_size : 64);
	attr = srq_want(how->entries ? how->entries : 64, 32, 0);
	attr.cqn = t->cq.cq.cqn;
	attr.tags = how->tags;
	attr.user_index = UIDX;
	attr.flags = how->no_rndv ? 0 : INLAY_DEVX_SRQ_RNDV;
	must(inlay_devx_srq_create(&t->xrq, dev.ctx, &attr));
	qp = qp_on(INLAY_QP_ST_RC, t->cq.cq.cqn, how->bbs, t->xrq.srqn);
	must(inlay_devx_qp_create(&t->cmd, dev.ctx, &qp));
	must(qp_to_itself(&t->cmd, &path));
	size = inlay_tag_list_size(how->tags, how->bbs);
	assert_true(size > 0);
	t->memory = made(aligned_alloc(64, (size + 63) & ~(size_t)63));
	must(inlay_tag_list_init(&t->list, t->memory, size, how->tags, &t->cmd.sq, UIDX));
	t->slot = how->slot ? how->slot : 2048;
	rx.srqn = t->xrq.srqn;
	sides_make(&t->rx, &rx, &t->tx, &tx);
	fill(t->tx.buf, BYTES, 1);
}

UNUSED static void tm_close(struct tagged *t)
{
	if (!t->dead)
		expect_nothing(&t->cq.cq);
	sides_free(&t->rx, &t->tx);
	must(inlay_devx_qp_destroy(&t->cmd));
	must(inlay_devx_srq_destroy(&t->xrq));
	must(inlay_devx_cq_destroy(&t->cq));
	free(t->memory);
}

/* Where entry i of the XRQ puts its message */
static inline size_t slot_of(const struct tagged *t, uint64_t i)
{
	return QUARTER + (size_t)i * t->slot % (2 * QUARTER);
}

static inline struct inlay_tmh tmh_at(const uint8_t *at, size_t len)
{
	struct inlay_tmh tmh = {};

	must(inlay_tmh_get(at, len, &tmh));
	return tmh;
}

/* A TMH, and an RVH if there is one, as they are on the wire: their length */
UNUSED static uint32_t head_put(uint8_t *to, uint8_t opcode, uint32_t ctx, uint64_t tag, const struct inlay_rvh *rvh)
{
	const struct ibv_tmh tmh = {.opcode = opcode, .app_ctx = htobe32(ctx), .tag = htobe64(tag)};

	memcpy(to, &tmh, 16);
	if (!rvh)
		return 16;
	inlay_put64(to + 16, htobe64(rvh->va));
	inlay_put32(to + 24, htobe32(rvh->rkey));
	inlay_put32(to + 28, htobe32(rvh->len));
	return 32;
}

/* n entries of the XRQ, each in the place of its number */
UNUSED static void entries(struct tagged *t, uint32_t n)
{
	struct ibv_sge sge;

	while (n--) {
		sge = piece(&t->rx, slot_of(t, t->xrq.srq.head), t->slot);
		must(inlay_post_srq_recv(&t->xrq.srq, &sge, 1, t->posted));
		t->posted++;
	}
	inlay_srq_ring(&t->xrq.srq);
}

/* The next completion: what inlay_tag_list_complete says of it */
UNUSED static int take(struct tagged *t, struct inlay_tag_wc *wc)
{
	const struct mlx5_cqe64 *cqe = cqe_wait(&t->cq.cq);
	int told;

	assert_true(inlay_tag_list_owns(&t->list, cqe));
	told = inlay_tag_list_complete(&t->list, cqe, t->cq.cq.stride, wc);
	if (told < 0) {
		inlay_cqe_print(stderr, cqe);
		fail_msg("completion refused: %d", told);
	}
	if (told && wc->payload) {
		assert_true(wc->byte_len <= 64);
		memcpy(t->data, wc->payload, wc->byte_len);
	}
	if (told && (wc->opcode == IBV_WC_TM_NO_TAG || (wc->opcode == IBV_WC_TM_RECV && !(wc->flags & BOTH))))
		must(inlay_srq_release(&t->xrq.srq, cqe));
	inlay_cq_advance(&t->cq.cq, 1);
	return told;
}

/* The next one that there is something to tell of, of this kind */
UNUSED static struct inlay_tag_wc expect(struct tagged *t, enum ibv_wc_opcode opcode, enum ibv_wc_status status, uint64_t wr_id,
					 uint32_t flags)
{
	struct inlay_tag_wc wc;

	while (!take(t, &wc))
		;
	if (wc.opcode != opcode || wc.status != status || wc.wr_id != wr_id || wc.flags != flags)
		fail_msg("opcode %d, status %d, wr %d, flags 0x%x, app_op %d; not %d, %d, %d, 0x%x", wc.opcode, wc.status, (int)wc.wr_id,
			 wc.flags, wc.app_op, opcode, status, (int)wr_id, flags);
	return wc;
}

#define TAG_ROOM 4096u            /* bytes of a tag's buffer */

/* Adds a tag whose buffer is the n-th of the first quarter; wr_id is id + 1000. Not rung */
UNUSED static int try_add(struct tagged *t, uint64_t id, uint32_t n, uint64_t tag, uint64_t mask, int flags, uint32_t *handle)
{
	struct ibv_sge sge = piece(&t->rx, (size_t)n * TAG_ROOM % QUARTER, TAG_ROOM);

	return inlay_tag_list_add(&t->list, id + 1000, tag, mask, &sge, flags, handle);
}

/* The same, rung, and its completion taken */
UNUSED static uint32_t add(struct tagged *t, uint64_t id, uint32_t n, uint64_t tag, uint64_t mask)
{
	struct inlay_tag_wc wc;
	uint32_t handle = 0;

	must(try_add(t, id, n, tag, mask, SYNCED, &handle));
	inlay_sq_ring(t->list.sq);
	wc = expect(t, IBV_WC_TM_ADD, IBV_WC_SUCCESS, id + 1000, 0);
	assert_int_equal(wc.handle, handle);
	return handle;
}

UNUSED static void sync_now(struct tagged *t, uint64_t id)
{
	must(inlay_tag_list_sync(&t->list, id, SYNCED));
	inlay_sq_ring(t->list.sq);
	expect(t, IBV_WC_TM_SYNC, IBV_WC_SUCCESS, id, 0);
}

/* Takes a tag out that is there */
UNUSED static void del(struct tagged *t, uint64_t id, uint32_t handle)
{
	must(inlay_tag_list_del(&t->list, id, handle, SYNCED));
	inlay_sq_ring(t->list.sq);
	assert_int_equal(expect(t, IBV_WC_TM_DEL, IBV_WC_SUCCESS, id, 0).handle, handle);
}

/* An eager message of len bytes from off of the sender's buffer; the answer has come when it returns */
UNUSED static void eager(struct tagged *t, uint64_t tag, uint32_t ctx, size_t off, size_t len)
{
	uint32_t index = inlay_sq_index(t->tx.sq);
	struct ibv_sge sge = piece(&t->tx, off, len);

	must(inlay_tag_send_eager(t->tx.sq, ctx, tag, &sge, 1, INLAY_SIGNALED | INLAY_RING));
	take_sent(&t->tx, index, NULL);
}

/* What lies at `at` came from off of the sender's buffer */
UNUSED static void came(const struct tagged *t, const uint8_t *at, size_t off, size_t len)
{
	assert_memory_equal(at, t->tx.buf + off, len);
}

/* A message that matches, in one packet, and its only completion */
UNUSED static void matched(struct tagged *t, uint64_t tag, uint64_t recv_wr_id)
{
	struct inlay_tag_wc wc;

	eager(t, tag, 7, 11, 100);
	wc = expect(t, IBV_WC_TM_RECV, IBV_WC_SUCCESS, recv_wr_id, BOTH);
	assert_true(wc.tag == tag && wc.app_ctx == 7 && wc.byte_len == 100);
}

/* A message that nothing matches */
UNUSED static void unexpected(struct tagged *t, uint64_t tag)
{
	uint32_t index = t->xrq.srq.head;
	struct inlay_tag_wc wc;
	struct inlay_tmh tmh;

	entries(t, 1);
	eager(t, tag, 9, 11, 100);
	while (!take(t, &wc))
		;
	assert_true(wc.opcode == IBV_WC_TM_RECV && wc.status == IBV_WC_SUCCESS);
	assert_true((wc.flags & ~(uint32_t)IBV_WC_TM_SYNC_REQ) == 0 && wc.wr_id == index && wc.byte_len == 116);
	assert_int_equal(wc.app_op, INLAY_TAG_UNEXPECTED);
	if (wc.payload)
		return;
	tmh = tmh_at(t->rx.buf + slot_of(t, index), wc.byte_len);
	assert_true(tmh.tag == tag && tmh.app_ctx == 9 && tmh.opcode == IBV_TMH_EAGER);
	came(t, t->rx.buf + slot_of(t, index) + INLAY_TMH_BYTES, 11, 100);
}

/* That the list holds together: every entry is free, once, or the dummy, or is owed something */
UNUSED static void whole(const struct inlay_tag_list *list)
{
	uint32_t i, n = 0, free_ones = 0, asked = 0;
	static uint8_t seen[INLAY_TAG_MAX + 1];

	memset(seen, 0, sizeof(seen));
	for (i = list->head;; i = list->entries[i].next) {
		assert_true(i <= list->max_tags && !seen[i] && !list->entries[i].owed && !list->entries[i].state);
		seen[i] = 1;
		free_ones++;
		if (i == list->tail)
			break;
	}
	assert_int_equal(free_ones, list->room + 1);
	assert_true(list->sq->pending == list->sq->pi - list->done && list->sq->pending <= list->sq->mask + 1);
	for (i = 0; i <= list->max_tags; i++) {
		if (seen[i])
			continue;
		assert_true(list->entries[i].owed > 0 && list->entries[i].owed <= 3);
		asked += list->entries[i].owed - ((list->entries[i].state & INLAY_TAG_LISTED_) != 0);
	}
	for (i = list->done; i != list->sq->pi; i++) {
		const struct inlay_tag_filed_ *posted = &list->filed[i & list->sq->mask];

		n += posted->app_op != INLAY_TAG_NOOP && posted->asked;
	}
	assert_int_equal(asked, n);
}

/* ---- one list, as most tests have it ---- */

UNUSED static struct tagged t;

UNUSED static void usual_list(uint32_t tags, uint32_t bbs)
{
	const struct tagged_how how = {.tags = tags, .bbs = bbs};

	tm_open(&t, &how);
}

UNUSED static void failed_sender(enum ibv_wc_status status)
{
	const struct mlx5_cqe64 *cqe = cqe_wait(t.tx.cq);

	assert_true(inlay_cqe_is_error(cqe) && inlay_cqe_status(cqe) == status);
	inlay_cq_advance(t.tx.cq, 1);
	t.dead = true;
}

UNUSED static void post_eager(uint64_t tag, size_t len)
{
	struct ibv_sge sge = piece(&t.tx, 0, len);

	must(inlay_tag_send_eager(t.tx.sq, 0, tag, &sge, 1, INLAY_SIGNALED | INLAY_RING));
}

/* n unexpected messages, in batches; their completions are taken */
UNUSED static void many_unexpected(uint32_t n)
{
	static uint32_t made;
	struct ibv_sge sge = {(uintptr_t)&made, sizeof(made), 0};
	struct inlay_tag_wc wc;
	uint32_t batch, i, index;

	for (; n; n -= batch) {
		batch = n < 48 ? n : 48;
		entries(&t, batch);
		index = inlay_sq_index(t.tx.sq);
		for (i = 0; i < batch; i++) {
			index = inlay_sq_index(t.tx.sq);
			must(inlay_tag_send_eager(t.tx.sq, ++made, 0x5707, &sge, 1, (i + 1 == batch ? INLAY_SIGNALED : 0) | INLAY_INLINE));
		}
		inlay_sq_ring(t.tx.sq);
		take_sent(&t.tx, index, NULL);
		for (i = 0; i < batch; i++) {
			assert_true(take(&t, &wc) == 1 && wc.app_op == INLAY_TAG_UNEXPECTED);
			assert_int_equal((wc.flags & IBV_WC_TM_SYNC_REQ) != 0, inlay_tag_list_unsynced_(&t.list) >= 1u << 14);
		}
	}
}

UNUSED static struct inlay_rvh rvh_of(size_t off, uint32_t len)
{
	return (struct inlay_rvh){at_peer(&t.tx, off), t.tx.mr->rkey, len};
}

UNUSED static struct ibv_ops_wr op_wr(uint64_t id, enum ibv_ops_wr_opcode opcode, int flags, struct ibv_ops_wr *next)
{
	struct ibv_ops_wr wr = {.wr_id = id, .next = next, .opcode = opcode, .flags = flags};

	if (opcode == IBV_WR_TAG_ADD) {
		wr.tm.add.recv_wr_id = id + 1000;
		wr.tm.add.tag = id;
		wr.tm.add.mask = EXACT;
	}
	return wr;
}

/* The programs run on each kind of device */
UNUSED static int on_each(int failed)
{
	return failed || again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}

#endif
