/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fences.c: the program that tests/queue/fences.t runs one instruction at a time: every kind of post, ring, poll and arming, once.
 *
 * It has no library: what it touches is what stands here. The arrays are what the device sees; fences.pl knows them by name.
 */
#include <inlay/queue.h>
#include <inlay/queue/batch.h>

#define SCENARIO __attribute__((noinline, used))
#define DEVICE_SEES __attribute__((aligned(4096), used))

uint8_t wqes[64 * 64] DEVICE_SEES, rwqes[64 * 64] DEVICE_SEES, swqes[64 * 64] DEVICE_SEES, reg[4096] DEVICE_SEES, cq_page[4096] DEVICE_SEES;
struct mlx5_cqe64 cqes[64] DEVICE_SEES;
uint32_t record[2] DEVICE_SEES, rrecord[2] DEVICE_SEES, srecord[2] DEVICE_SEES, cq_record[2] DEVICE_SEES;
struct inlay_uar uar DEVICE_SEES;
char lock_offset[offsetof(struct inlay_uar, lock)] DEVICE_SEES; /* its size is the offset */

struct inlay_sq sq;
struct inlay_rq rq;
struct inlay_srq srq;
struct inlay_av av;
struct inlay_cq cq;
uint64_t payload[64];
uint32_t sum;

/* A WQE copied into the register; one that is too long to be copied in line */
#define COPY_AND_RING(name, len)                                                                                                 \
	SCENARIO void name(void)                                                                                                 \
	{                                                                                                                        \
		(void)!inlay_post_write_inline(&sq, 0x1000, 7, payload, len, INLAY_SIGNALED);                                    \
		inlay_sq_ring(&sq);                                                                                              \
	}
COPY_AND_RING(s_copy, 8)
COPY_AND_RING(s_copy_long, 200)

/* The same in one call, which a caller that rings every WQE uses. */
SCENARIO void s_commit_ring(void)
{
	(void)!inlay_post_write_inline(&sq, 0x1000, 7, payload, 8, INLAY_SIGNALED | INLAY_RING);
}

/* One WQE of one queue on a register of each kind: serial with libmlx5's fence, doorbells only, locked */
#define SEND_AND_RING(name)                                                                                                      \
	SCENARIO void name(void)                                                                                                 \
	{                                                                                                                        \
		(void)!inlay_post_send_inline(&sq, payload, 8, INLAY_SIGNALED);                                                  \
		inlay_sq_ring(&sq);                                                                                              \
	}
SEND_AND_RING(s_full)
SEND_AND_RING(s_shared)
SEND_AND_RING(s_locked)

SCENARIO void s_doorbell(void)
{
	struct ibv_sge sge = {0x2000, 8, 5};

	(void)!inlay_post_write(&sq, 0x1000, 7, &sge, 1, INLAY_SIGNALED);
	inlay_sq_ring_doorbell(&sq);
}

/* Two WQEs, one doorbell. */
SCENARIO void s_batch(void)
{
	const struct inlay_wr wr = {.raddr = 0x1000, .rkey = 7, .data = payload, .len = 8, .lkey = 5};

	(void)!inlay_post(&sq, MLX5_OPCODE_RDMA_WRITE, &wr, 0);
	(void)!inlay_post_atomic(&sq, inlay_atomic_add(1), &wr, INLAY_SIGNALED);
	inlay_sq_ring(&sq);
}

/* Its address vector fills a WQEBB, and the payload lies in the next. */
SCENARIO void s_datagram(void)
{
	const struct inlay_wr wr = {.to = inlay_av_long(&av), .data = payload, .len = 8};

	(void)!inlay_post(&sq, MLX5_OPCODE_SEND, &wr, INLAY_SIGNALED | INLAY_INLINE);
	inlay_sq_ring(&sq);
}

SCENARIO void s_shared_receive(void)
{
	struct ibv_sge sge = {0x2000, 64, 5};

	(void)!inlay_post_srq_recv(&srq, &sge, 1, 5);
	inlay_srq_ring(&srq);
}

/* The entry goes back to the list, which the device sees again only when it is posted. */
SCENARIO int s_shared_poll(void)
{
	const struct mlx5_cqe64 *cqe = inlay_cq_peek(&cq);

	if (!cqe || inlay_cqe_is_error(cqe))
		return -1;
	sum += inlay_cqe_byte_count(cqe);
	if (inlay_srq_release(&srq, cqe) < 0)
		return -1;
	inlay_cq_advance(&cq, 1);
	return 0;
}

SCENARIO void s_receive(void)
{
	struct ibv_sge sge = {0x2000, 64, 5};

	(void)!inlay_post_recv(&rq, &sge, 1);
	inlay_rq_ring(&rq);
}

SCENARIO int s_poll(void)
{
	const struct mlx5_cqe64 *cqe = inlay_cq_peek(&cq);

	if (!cqe || inlay_cqe_is_error(cqe))
		return -1;
	sum += inlay_cqe_byte_count(cqe) + inlay_cqe_qpn(cqe);
	inlay_sq_release(&sq, cqe);
	inlay_cq_advance(&cq, 1);
	return 0;
}

SCENARIO int s_poll_nothing(void)
{
	return inlay_cq_peek(&cq) != NULL;
}

SCENARIO void s_poll_many(void)
{
	const struct mlx5_cqe64 *cqe;

	while ((cqe = inlay_cq_peek(&cq))) {
		sum += inlay_cqe_byte_count(cqe);
		inlay_cq_advance_quiet(&cq, 1);
	}
	inlay_cq_update(&cq);
}

SCENARIO void s_arm(void)
{
	inlay_cq_arm(&cq, 0);
}

/* What a compressed block stands for is written to the slots, which the record then frees. */
SCENARIO void s_unzip(void)
{
	if (inlay_cq_peek(&cq) && inlay_cq_unzip(&cq) == 4)
		inlay_cq_advance(&cq, 4);
}

SCENARIO void s_decode(void)
{
	uint16_t counters[4];
	uint32_t lengths[4];

	if (inlay_cq_decode(&cq, counters, lengths, 4) == 4)
		inlay_cq_update(&cq);
}

/* Of two CQEs the newer one goes, and the older moves to its slot. */
SCENARIO uint32_t s_clean(void)
{
	return inlay_cq_clean(&cq, 0x123, NULL, NULL);
}

/* What a test's program usually has from the C library. */
SCENARIO void *memset(void *to, int c, size_t n)
{
	volatile uint8_t *p = (volatile uint8_t *)to;

	while (n--)
		*p++ = (uint8_t)c;
	return to;
}

SCENARIO void *memcpy(void *to, const void *from, size_t n)
{
	volatile uint8_t *p = (volatile uint8_t *)to;
	const uint8_t *q = (const uint8_t *)from;

	while (n--)
		*p++ = *q++;
	return to;
}

__attribute__((noinline)) void set_up(uint32_t mode)
{
	(void)!inlay_uar_init(&uar, reg, 256, mode);
	(void)!inlay_sq_init(&sq, wqes, 4, record, 0x123, 16, &uar);
	av.av.dqp_dct = inlay_to_be32(MLX5_EXTENDED_UD_AV);
}

__attribute__((noinline)) void set_up_receiving(void)
{
	(void)!inlay_rq_init(&rq, rwqes, 64, 64, rrecord);
	(void)!inlay_srq_init(&srq, swqes, 64, 64, srecord);
	for (uint32_t i = 0; i < 64; i++)
		cqes[i].op_own = 0xf0;
	(void)!inlay_cq_init(&cq, cqes, 64, 64, cq_record, cq_page, 3);
	for (uint32_t i = 0; i < 4; i++)
		cqes[i].op_own = (i == 1 ? MLX5_CQE_RESP_SEND : MLX5_CQE_REQ) << 4;
}

/* Two compressed blocks after those, then CQEs of two queues. */
__attribute__((noinline)) void set_up_blocks(void)
{
	uint32_t i;

	for (i = 4; i < 12; i += 4) {
		cqes[i].byte_cnt = inlay_to_be32(4);
		cqes[i].op_own = MLX5_CQE_RESP_SEND << 4 | INLAY_CQE_COMPRESSED;
	}
	for (; i < 14; i++)
		cqes[i].op_own = MLX5_CQE_REQ << 4;
	cqes[13].sop_drop_qpn = inlay_to_be32(0x123);
}

__attribute__((noinline)) void end(void)
{
#if defined(__x86_64__)
	__asm__ volatile("syscall" : : "a"(60), "D"(0) : "rcx", "r11", "memory");
#else
	register long number __asm__("x8") = 93, status __asm__("x0") = 0;
	__asm__ volatile("svc 0" : : "r"(number), "r"(status) : "memory");
#endif
}

/* The kernel aligns the stack as no caller would. */
#if defined(__x86_64__)
__attribute__((force_align_arg_pointer))
#endif
void _start(void)
{
	set_up(INLAY_UAR_SERIAL);
	set_up_receiving();
	s_copy();
	set_up(INLAY_UAR_SERIAL);
	s_copy_long();
	set_up(INLAY_UAR_SERIAL);
	s_commit_ring();
	set_up(INLAY_UAR_SERIAL | INLAY_UAR_FULL_FENCE);
	s_full();
	set_up(INLAY_UAR_SERIAL);
	s_datagram();
	set_up(INLAY_UAR_SERIAL);
	s_doorbell();
	s_batch();
	set_up(INLAY_UAR_DOORBELL);
	s_shared();
	s_poll();
	set_up(INLAY_UAR_LOCKED);
	s_locked();
	s_receive();
	s_shared_receive();
	s_shared_poll();
	s_poll_many();
	s_poll_nothing();
	s_arm();
	set_up_blocks();
	s_unzip();
	s_decode();
	s_clean();
	end();
}
