/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sync.c: WQEs that need no peer: copies inside the device (MMO), DUMP, WAIT and SEND_EN.
 *
 *   MMO      opmod 1: 16 bytes of metadata that name 64 bytes for the device's own use, then source and
 *            destination. The QP must have been allowed to, by INIT2INIT
 *   DUMP     reads its data segments and drops what it has read
 *   WAIT     opmod 0: until a CQ has had so many CQEs in all; the QP must be a cross-channel master
 *            opmod 1: until 8 bytes of memory compare with a value; opmod 2: likewise the clock
 *   SEND_EN  lets another QP, which must be a slave, execute its WQEs before an index
 *
 *   queue      | 0 | 0 | index | number |                 WAIT with opmod 0, SEND_EN
 *   condition  | inverted 1 bit, condition 4 | lkey | address, action 3 | value | mask |
 *
 * A slave's WQEs are executed as far as SEND_EN has said; its doorbells start nothing. The index may
 * go round the ring any number of times: what lies there is executed again, and its own index is not
 * looked at. A WQE that waits is looked at again in each round of the engine.
 */
#include <string.h>
#include "eng.h"

#define SCRATCH 64u                     /* bytes that an MMO names besides its data */

enum { COND_ALWAYS, COND_EQUAL, COND_BIGGER, COND_SMALLER, COND_CYCLIC_BIGGER, COND_CYCLIC_SMALLER };
enum { WAIT_CQ, WAIT_DATA, WAIT_TIME };

static uint64_t be64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
	return be64toh(v);
}

static uint32_t be32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
	return be32toh(v);
}

/* Pieces of so many bytes at most, each by its keys; the rest of a long list of pieces is refused */
static uint8_t copy(struct rcq *q, const struct seglist *to, const struct seglist *from)
{
	static uint8_t drop[ENG_CHUNK_LOCAL];
	struct iovec dst[ENG_IOVS], src[ENG_IOVS];
	unsigned nd, ns;
	uint64_t off, len;

	for (off = 0; off < from->total; off += len) {
		len = from->total - off < ENG_CHUNK_LOCAL ? from->total - off : ENG_CHUNK_LOCAL;
		dst[0] = (struct iovec){ drop, len };
		nd = 1;
		if (!mem_vec(q->qp, from, off, len, 0, src, &ns) ||
		    (to && !mem_vec(q->qp, to, off, len, IBV_ACCESS_LOCAL_WRITE, dst, &nd)) || mem_copy(dst, nd, src, ns, len) != MEM_OK)
			return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
	}
	return 0;
}

static struct seg pointer(const uint8_t *at)
{
	const uint32_t len = be32(at);

	return (struct seg){ be64(at + 8), len ? len : 1u << 31, be32(at + 4), NULL };
}

static uint8_t mmo(struct rcq *q, unsigned opmod, const uint8_t *at, const uint8_t *end)
{
	struct seglist from = { .n = 1 }, to = { .n = 1 };

	if (opmod != 1 || end - at != 48 || be32(at) || !q->qp->mmo || (be32(at + 16) | be32(at + 32)) & MLX5_INLINE_SEG)
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	from.s[0] = pointer(at + 16);
	to.s[0] = pointer(at + 32);
	from.total = from.s[0].len;
	to.total = to.s[0].len;
	if (from.total != to.total)
		return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
	if (!mem_ok(q->qp, be32(at + 4), be64(at + 8), SCRATCH, IBV_ACCESS_LOCAL_WRITE) ||
	    !mem_segs_ok(q->qp, &from, 0) || !mem_segs_ok(q->qp, &to, IBV_ACCESS_LOCAL_WRITE))
		return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
	return copy(q, &to, &from);
}

static uint8_t dump(struct rcq *q, unsigned opmod, const uint8_t *at, const uint8_t *end)
{
	struct seglist from = { .n = 0 };

	for (; at < end; at += 16) {
		if (be32(at) & MLX5_INLINE_SEG)
			return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
		from.s[from.n] = pointer(at);
		from.total += from.s[from.n++].len;
	}
	if (opmod || !from.n)
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	return copy(q, NULL, &from);
}

static uint8_t send_en(struct rcq *q, unsigned opmod, const uint8_t *at, const uint8_t *end)
{
	struct sd_qp *slave;
	struct rcq *p;
	uint16_t index;

	if (opmod || end - at != 16 || be64(at) || !q->qp->cd_master)
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	slave = sd_qp_find(be32(at + 12));
	p = slave ? slave->eng : NULL;
	if (!p || slave->ctx != q->qp->ctx || !slave->cd_slave_send)
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	index = be32(at + 8);
	/* Never back */
	if ((int16_t)(index - p->enabled) > 0)
		p->enabled = index;
	sq_ring(p);
	eng_wake();
	return 0;
}

/* Does the value compare with what there is? */
static bool holds(unsigned op, uint64_t value, uint64_t is, uint64_t mask)
{
	const uint64_t v = value & mask, x = is & mask;
	bool yes = true;

	switch (op & 0xf) {
	case COND_EQUAL: yes = v == x; break;
	case COND_BIGGER: yes = v > x; break;
	case COND_SMALLER: yes = v < x; break;
	case COND_CYCLIC_BIGGER: yes = (int64_t)(v - x) > 0; break;
	case COND_CYCLIC_SMALLER: yes = (int64_t)(v - x) < 0; break;
	}
	return yes != !!(op & 0x10);
}

/* -1: not yet; else the syndrome */
static int wait(struct rcq *q, unsigned opmod, const uint8_t *at, const uint8_t *end)
{
	uint64_t is = eng_now();
	struct iovec to = { &is, 8 }, from[ENG_IOVS];
	struct sd_cq *cq;
	unsigned n, op;

	if (opmod == WAIT_CQ) {
		if (end - at != 16 || be64(at) || !q->qp->cd_master)
			return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
		cq = sd_cq_find(be32(at + 12));
		if (!cq || cq->ctx != q->qp->ctx)
			return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
		/* The index has 24 bits, as that of the CQ's record */
		return ((cq->pi - be32(at + 8)) & 0xffffff) < 0x800000 ? 0 : -1;
	}
	op = be32(at);
	if (opmod > WAIT_TIME || end - at != 32 || op & ~0x1fu || (op & 0xf) > COND_CYCLIC_SMALLER)
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	if (opmod == WAIT_DATA) {
		/* An action other than to try again: an error CQE. Others are not known */
		if (be64(at + 8) & 6)
			return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
		if (!mem_pieces(q->qp, be32(at + 4), be64(at + 8) & ~7ull, 8, 0, from, &n) || mem_copy(&to, 1, from, n, 8) != MEM_OK)
			return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
		is = be64toh(is);
	}
	if (holds(op, be64(at + 16), is, be64(at + 24)))
		return 0;
	return opmod == WAIT_DATA && be64(at + 8) & 1 ? MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR : -1;
}

bool sync_is(uint8_t opcode)
{
	return opcode == SYNC_WAIT || opcode == SYNC_SEND_EN || opcode == SYNC_DUMP || opcode == MLX5_OPCODE_MMO;
}

int sync_run(struct rcq *q, uint8_t opcode, unsigned opmod, const uint8_t *at, const uint8_t *end)
{
	switch (opcode) {
	case SYNC_WAIT:
		return wait(q, opmod, at, end);
	case SYNC_SEND_EN:
		return send_en(q, opmod, at, end);
	case SYNC_DUMP:
		return dump(q, opmod, at, end);
	default:
		return mmo(q, opmod, at, end);
	}
}
