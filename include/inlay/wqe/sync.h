/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/wqe/sync.h: segments of WQEs that wait, let another queue send, or move local memory:
 * opcodes WAIT, SEND_EN, DUMP and MMO. queue/sync.h posts local copies; the others are written by
 * hand.
 *
 *   WAIT (0x0f)      opmod 0  +16  | 0 | 0 | index | CQN |              until the CQ has had so many CQEs
 *                    opmod 1  +16  | condition | lkey | address |       until 8 bytes of memory compare
 *                             +32  | value | mask |
 *                    opmod 2  as opmod 1, without lkey and address      until the device's clock compares
 *   SEND_EN (0x17)            +16  | 0 | 0 | index | QPN |              the QP may send up to that index
 *   DUMP (0x23)               +16  data pointers                        read, and nothing else
 *   MMO (0x2f)       opmod 1  +16  data pointer of scratch, length 0    a copy inside the device
 *                             +32  data pointer of the source
 *                             +48  data pointer of the destination
 *
 * Each but a long DUMP is one WQEBB.
 *
 * Threads: pure functions of their arguments. Sources: DPDK's mlx5_prm.h, mlx5_txpp.c and mlx5_tx.h
 * (WAIT, SEND_EN); UCC's tl_mlx5_wqe.c (WAIT on data); gpunetio's doca_gpunetio_dev_verbs_qp.cuh
 * (WAIT, DUMP); libmlx5's wqe.h (MMO).
 */
#ifndef INLAY_WQE_SYNC_H
#define INLAY_WQE_SYNC_H /* names are stable until 1.0 */

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/wqe/segment.h>

#define INLAY_OPCODE_WAIT 0x0fu
#define INLAY_OPCODE_SEND_EN 0x17u
#define INLAY_OPCODE_DUMP 0x23u

INLAY_STATIC_ASSERT(MLX5_OPCODE_MMO == 0x2f, "opcode");

/* Opcode modifiers of WAIT, and the one of MMO that copies. */
enum inlay_opmod {
	INLAY_OPMOD_WAIT_CQ = 0, INLAY_OPMOD_WAIT_DATA = 1, INLAY_OPMOD_WAIT_TIME = 2, INLAY_OPMOD_MMO_DMA = 1
};

/*
 * A WAIT on data or time ends when value & mask, as written in the WQE, is equal to, bigger or
 * smaller than what is there, likewise masked. The cyclic ones compare modulo 2^64. INVERT, added to
 * one of them, negates it.
 */
enum inlay_wait_cond {
	INLAY_WAIT_ALWAYS = 0, INLAY_WAIT_EQUAL = 1, INLAY_WAIT_BIGGER = 2, INLAY_WAIT_SMALLER = 3,
	INLAY_WAIT_CYCLIC_BIGGER = 4, INLAY_WAIT_CYCLIC_SMALLER = 5, INLAY_WAIT_INVERT = 0x10
};

/* Appends the segment of a WAIT for a CQ, or of a SEND_EN: number is a CQN or a QPN. */
INLAY_ALWAYS struct inlay_cursor inlay_seg_queue(struct inlay_cursor c, uint32_t index, uint32_t number)
{
	uint8_t *seg = inlay_seg_at(c);

	INLAY_CHECK(!(number >> 24), "a queue's number has 24 bits");
	inlay_put64(seg, 0);
	inlay_put64(seg + 8, inlay_to_be64((uint64_t)index << 32 | number));
	return inlay_seg_done(c, seg);
}

/*
 * Appends the two units of a WAIT for data or time.
 *
 * cond   enum inlay_wait_cond
 * addr   of 8 bytes, 8-byte aligned, of a key with local read; 0 and lkey 0 for time
 * value  and mask: host order. The device reads the 8 bytes as a big-endian number
 */
INLAY_ALWAYS struct inlay_cursor inlay_seg_condition(struct inlay_cursor c, uint32_t cond, uint64_t addr, uint32_t lkey,
						     uint64_t value, uint64_t mask)
{
	uint8_t *seg = inlay_seg_at(c);

	INLAY_CHECK(cond <= (INLAY_WAIT_CYCLIC_SMALLER | INLAY_WAIT_INVERT) && (cond & 0xf) <= INLAY_WAIT_CYCLIC_SMALLER,
		    "the condition is one of enum inlay_wait_cond");
	/* The address's low bits say what the device does meanwhile; 0: it polls. */
	INLAY_CHECK(addr % 8 == 0, "what is waited for is 8-byte aligned");
	inlay_put64(seg, inlay_to_be64((uint64_t)cond << 32 | lkey));
	inlay_put64(seg + 8, inlay_to_be64(addr));
	c = inlay_seg_done(c, seg);
	seg = inlay_seg_at(c);
	inlay_put64(seg, inlay_to_be64(value));
	inlay_put64(seg + 8, inlay_to_be64(mask));
	return inlay_seg_done(c, seg);
}

INLAY_CASTS_END_
#endif
