/* SPDX-License-Identifier: BSD-3-Clause */
/* posts.h: requests for inlay_post in one expression, in C and C++. */
#ifndef TESTS_POSTS_H
#define TESTS_POSTS_H

#include <string.h>
#include <inlay/queue.h>

/* Memory of the peer */
struct remote {
	uint64_t addr;
	uint32_t rkey;
};

/* As a piece of its own instead of a list of one */
INLAY_ALWAYS struct inlay_wr wr_piece(struct inlay_wr wr, const struct ibv_sge *sge)
{
	wr.data = (const void *)(uintptr_t)sge->addr;
	wr.len = sge->length;
	wr.lkey = sge->lkey;
	wr.num_sge = 0;
	return wr;
}

INLAY_ALWAYS struct inlay_wr wr_sge(const struct ibv_sge *sge, uint32_t num)
{
	struct inlay_wr wr = {0, 0, 0, NULL, NULL, 0, 0, sge, num, 0, NULL};

	return __builtin_constant_p(num) && num == 1 ? wr_piece(wr, sge) : wr;
}

INLAY_ALWAYS struct inlay_wr wr_buf(const void *data, uint32_t len, uint32_t lkey)
{
	struct inlay_wr wr = {0, 0, 0, NULL, data, len, lkey, NULL, 0, 0, NULL};

	return wr;
}

INLAY_ALWAYS struct inlay_wr wr_at(struct inlay_wr wr, uint64_t raddr, uint32_t rkey)
{
	wr.raddr = raddr;
	wr.rkey = rkey;
	return wr;
}

INLAY_ALWAYS struct inlay_wr wr_there(struct inlay_wr wr, const struct remote *there)
{
	return there ? wr_at(wr, there->addr, there->rkey) : wr;
}

INLAY_ALWAYS struct inlay_wr wr_to(struct inlay_wr wr, const struct inlay_av *to)
{
	wr.to = to;
	return wr;
}

INLAY_ALWAYS struct inlay_wr wr_imm(struct inlay_wr wr, uint32_t imm_be)
{
	wr.imm_be = imm_be;
	return wr;
}

/* A list of struct iovec. key_be: of SEND_INVAL, the key to invalidate; else an immediate */
INLAY_ALWAYS struct inlay_wr wr_iov(const struct inlay_iov *iov, const struct inlay_av *to, const struct remote *there, uint32_t imm_be)
{
	struct inlay_wr wr = {0, inlay_from_be32(imm_be), imm_be, to, NULL, 0, 0, NULL, 0, 0, iov};

	return wr_there(wr, there);
}

INLAY_ALWAYS int wr_post(struct inlay_sq *sq, uint32_t opcode, struct inlay_wr wr, uint32_t flags)
{
	return inlay_post(sq, opcode, &wr, flags);
}

INLAY_ALWAYS int wr_atomic(struct inlay_sq *sq, struct inlay_atomic op, struct inlay_wr wr, uint32_t flags)
{
	if (wr.num_sge == 1) /* without optimisation nothing is known to be constant */
		wr = wr_piece(wr, wr.sge);
	return inlay_post_atomic(sq, op, &wr, flags);
}

/*
 * Posts again what a WQE was decoded as, at its place in `copy`: a ring like the WQE's, of a power of two, 64-byte aligned. What was there
 * is inverted first, the padding of inline data excepted. Returns 0 if the two rings are equal.
 */
__attribute__((unused)) static int decoded_again(struct inlay_decoded *d, const uint8_t *ring, uint8_t *copy, uint32_t wqebbs, uint32_t type)
{
	static uint8_t reg[512] __attribute__((aligned(512)));
	uint32_t record[2] = {0, 0}, bytes = d->ds * 16, k;
	struct inlay_uar uar;
	struct inlay_sq sq;
	int err;

	memcpy(copy, ring, wqebbs * 64);
	if (d->flags & INLAY_INLINE)
		bytes = d->segment[d->num_segments - 1].at * 16u + 4 + d->sge[0].length + (d->wr.num_sge > 1 ? d->sge[1].length : 0);
	for (k = 0; k < bytes; k++)
		copy[(d->index * 64 + k) & (wqebbs * 64 - 1)] ^= 0xff;
	err = inlay_uar_init(&uar, reg, 256, INLAY_UAR_DOORBELL);
	err = err ? err : inlay_sq_init(&sq, copy, wqebbs, record, d->qpn, 63, &uar);
	if (err)
		return err;
	inlay_sq_set_type(&sq, type, 0);
	sq.pi = d->index;
	err = inlay_post(&sq, d->opcode, &d->wr, d->flags);
	inlay_sq_fini(&sq);
	return err ? err : memcmp(copy, ring, wqebbs * 64);
}

#endif
