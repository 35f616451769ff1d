/* SPDX-License-Identifier: BSD-3-Clause */
/* kernels.h: what kernels.cu and the programs that run it share: requests, and the posts that are compared, one kernel for each. */
#ifndef GPU_KERNELS_H
#define GPU_KERNELS_H

struct request {
	struct inlay_wr wr;
	uint64_t a, b, c, d; /* operands of atomics */
	uint32_t flags;
};

struct answer {
	int begin, post;
	uint32_t ticket, wrong;
};

/* What a thread that reads is given, and what it says: parts that failed or are done, answers that are wrong. */
enum { READ_THREADS = 64, READ_SLOTS = 3 };
struct reader {
	uint32_t parts, wrong, failed, done;
	uint64_t slot[READ_SLOTS];
};

/* The 8 bytes at an address, and the key for them. */
#define READ_ANSWER(raddr) ((raddr) * 0x9e3779b97f4a7c15ull ^ 0x5a5a)
#define READ_RKEY(raddr) ((uint32_t)((raddr) * 0xbf58476d1ce4e5b9ull >> 32))
#define READ_LKEY 0x4c4c4c4cu

/* A WAIT for 8 bytes, by hand */
INLAY_FN int wait_for(struct inlay_sq *sq, const struct request *r)
{
	struct inlay_cursor at;
	int err = inlay_sq_begin(sq, 1, &at);

	if (err)
		return err;
	at = inlay_seg_condition(at, INLAY_WAIT_EQUAL, r->wr.raddr & ~7ull, r->wr.lkey, r->a, r->b);
	return inlay_sq_commit(sq, at, INLAY_OPCODE_WAIT, INLAY_OPMOD_WAIT_DATA, r->flags & INLAY_SIGNALED, 0) - 1;
}

/* A receive queue and its CQ, of one thread */
struct receiver {
	struct inlay_rq rq;
	struct inlay_cq cq;
	uint8_t cqes[128] __attribute__((aligned(64))), ring[128];
	uint32_t record[2], cq_record[2], bytes;
	int err;
};

/* Posts a receive, and takes a completion */
INLAY_FN void receive(struct receiver *me, const struct ibv_sge *sge, uint32_t num)
{
	const struct mlx5_cqe64 *cqe;

	me->err = inlay_post_recv(&me->rq, sge, num);
	inlay_rq_ring(&me->rq);
	cqe = inlay_cq_peek(&me->cq);
	if (!cqe)
		return;
	me->bytes = inlay_cqe_byte_count(cqe);
	me->err |= inlay_rq_release(&me->rq, cqe);
	inlay_cq_advance(&me->cq, 1);
}

/* name, type of the QP, the post to `part` of request `r` */
#define KERNELS(X)                                                                                                               \
	X(post_write, IBV_QPT_RC, inlay_post(&part, MLX5_OPCODE_RDMA_WRITE, &r->wr, r->flags))                                   \
	X(post_write_imm, IBV_QPT_RC, inlay_post(&part, MLX5_OPCODE_RDMA_WRITE_IMM, &r->wr, r->flags))                           \
	X(post_read, IBV_QPT_RC, inlay_post(&part, MLX5_OPCODE_RDMA_READ, &r->wr, r->flags & ~INLAY_INLINE))                     \
	X(post_send, IBV_QPT_RC, inlay_post(&part, MLX5_OPCODE_SEND, &r->wr, r->flags))                                          \
	X(post_send_imm, IBV_QPT_RC, inlay_post(&part, MLX5_OPCODE_SEND_IMM, &r->wr, r->flags))                                  \
	X(post_send_inval, IBV_QPT_RC, inlay_post(&part, MLX5_OPCODE_SEND_INVAL, &r->wr, r->flags))                              \
	X(post_nop, IBV_QPT_RC, inlay_post(&part, MLX5_OPCODE_NOP, NULL, r->flags & INLAY_SIGNALED))                             \
	X(post_wait, IBV_QPT_RC, wait_for(&part, r))                                                                             \
	X(post_write8, IBV_QPT_RC, inlay_post_write_inline(&part, r->wr.raddr, r->wr.rkey, &r->a, 8, INLAY_SIGNALED))            \
	X(post_dci, IBV_QPT_DRIVER, inlay_post(&part, MLX5_OPCODE_RDMA_WRITE, &r->wr, r->flags))                                 \
	X(post_dci_read, IBV_QPT_DRIVER, inlay_post(&part, MLX5_OPCODE_RDMA_READ, &r->wr, r->flags & ~INLAY_INLINE))             \
	X(post_dci_add, IBV_QPT_DRIVER, inlay_post_atomic(&part, inlay_atomic_add(r->a), &r->wr, r->flags & ~INLAY_INLINE))      \
	X(post_ud_imm, IBV_QPT_UD, inlay_post(&part, MLX5_OPCODE_SEND_IMM, &r->wr, r->flags))                                    \
	X(post_ud, IBV_QPT_UD, inlay_post(&part, MLX5_OPCODE_SEND, &r->wr, r->flags))                                            \
	X(post_add, IBV_QPT_RC, inlay_post_atomic(&part, inlay_atomic_add(r->a), &r->wr, r->flags & ~INLAY_INLINE))              \
	X(post_cas, IBV_QPT_RC, inlay_post_atomic(&part, inlay_atomic_cmp_swap(r->a, r->b), &r->wr, r->flags & ~INLAY_INLINE))   \
	X(post_masked_add, IBV_QPT_RC, inlay_post_atomic(&part, inlay_masked_add(r->a, r->b), &r->wr, r->flags & ~INLAY_INLINE)) \
	X(post_masked_cas, IBV_QPT_RC,                                                                                           \
	  inlay_post_atomic(&part, inlay_masked_cmp_swap(r->a, r->b, r->c, r->d), &r->wr, r->flags & ~INLAY_INLINE))

#endif
