/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/wqe/print.h: prints a WQE, segment by segment.
 *
 * Threads: reads the ring; the caller keeps it from changing.
 */
#ifndef INLAY_WQE_PRINT_H
#define INLAY_WQE_PRINT_H /* names are stable until 1.0 */

#include <stdio.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/wqe/eth.h>
#include <inlay/wqe/segment.h>
#include <inlay/wqe/sync.h>

/* The name of a send opcode (MLX5_OPCODE_*, INLAY_OPCODE_*), or "unknown opcode". */
INLAY_COLD const char *inlay_opcode_name_(uint8_t opcode)
{
	switch (opcode) {
	case MLX5_OPCODE_NOP: return "NOP";
	case MLX5_OPCODE_SEND: return "SEND";
	case MLX5_OPCODE_SEND_IMM: return "SEND_IMM";
	case MLX5_OPCODE_SEND_INVAL: return "SEND_INVAL";
	case MLX5_OPCODE_RDMA_WRITE: return "RDMA_WRITE";
	case MLX5_OPCODE_RDMA_WRITE_IMM: return "RDMA_WRITE_IMM";
	case MLX5_OPCODE_RDMA_READ: return "RDMA_READ";
	case MLX5_OPCODE_ATOMIC_CS: return "ATOMIC_CS";
	case MLX5_OPCODE_ATOMIC_FA: return "ATOMIC_FA";
	case MLX5_OPCODE_ATOMIC_MASKED_CS: return "ATOMIC_MASKED_CS";
	case MLX5_OPCODE_ATOMIC_MASKED_FA: return "ATOMIC_MASKED_FA";
	case MLX5_OPCODE_UMR: return "UMR";
	case MLX5_OPCODE_SET_PSV: return "SET_PSV";
	case MLX5_OPCODE_MMO: return "MMO";
	case INLAY_OPCODE_WAIT: return "WAIT";
	case INLAY_OPCODE_SEND_EN: return "SEND_EN";
	case INLAY_OPCODE_DUMP: return "DUMP";
	case MLX5_OPCODE_TSO: return "TSO";
	case INLAY_OPCODE_MULTI_PACKET: return "MULTI_PACKET";
	default: return "unknown opcode";
	}
}

/* Reads a 16-byte unit of a WQE, wrapping, and begins its line. */
INLAY_COLD void inlay_wqe_unit_(FILE *out, const void *ring, uint32_t bytes, uint32_t index, uint32_t unit,
				uint32_t w[4])
{
	uint64_t at = ((uint64_t)index * INLAY_WQEBB + (uint64_t)unit * INLAY_DS) % bytes;
	int i;

	__builtin_memcpy(w, (const uint8_t *)ring + at, INLAY_DS);
	for (i = 0; i < 4; i++)
		w[i] = inlay_from_be32(w[i]);
	fprintf(out, "  +%-4u %08x %08x %08x %08x  ", unit * INLAY_DS, w[0], w[1], w[2], w[3]);
}

/*
 * Prints a send WQE, at most 63 units, a line for each: raw words, then their meaning. For
 * debugging.
 *
 * ring   beginning of the ring; bytes its size, a multiple of 64, more than 0
 * index  the WQE's first WQEBB; taken modulo the ring
 * type   of the QP, enum ibv_qp_type (a DCI: IBV_QPT_DRIVER), for what follows the control segment;
 *        0 if it is not known
 */
INLAY_COLD void inlay_wqe_print(FILE *out, const void *ring, uint32_t bytes, uint32_t index, uint32_t type)
{
	uint32_t w[4], unit, ds, opcode, opmod, left, atomic, masked, raddr, eth, to = 0;

	if (bytes < INLAY_WQEBB || bytes % INLAY_WQEBB) {
		fprintf(out, "wqe: %u bytes are not a ring\n", bytes);
		return;
	}
	inlay_wqe_unit_(out, ring, bytes, index, 0, w);
	opcode = w[0] & 0xff;
	opmod = w[0] >> 24;
	ds = w[1] & 0x3f;
	atomic = opcode == MLX5_OPCODE_ATOMIC_CS || opcode == MLX5_OPCODE_ATOMIC_FA;
	/* Units of operands */
	masked = opcode == MLX5_OPCODE_ATOMIC_MASKED_CS ? 4 : opcode == MLX5_OPCODE_ATOMIC_MASKED_FA ? 2 : 0;
	masked = (masked * (4u << (opmod & 7)) + INLAY_DS - 1) / INLAY_DS;
	raddr = atomic || masked || opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM ||
		opcode == MLX5_OPCODE_RDMA_READ;
	fprintf(out, "ctrl    %s index %u opmod 0x%x qpn 0x%x ds %u sig 0x%x fm %u ce %u se %u imm 0x%x\n",
		inlay_opcode_name_((uint8_t)opcode), w[0] >> 8 & 0xffff, w[0] >> 24, w[1] >> 8, ds, w[2] >> 24,
		w[2] >> 5 & 7, w[2] >> 2 & 3, w[2] >> 1 & 1, w[3]);
	eth = opcode == MLX5_OPCODE_TSO || opcode == INLAY_OPCODE_MULTI_PACKET ||
	      (opcode == MLX5_OPCODE_SEND && type == IBV_QPT_RAW_PACKET);
	/* Units of the destination; 1 until the vector shows its length. */
	if (raddr || opcode == MLX5_OPCODE_SEND || opcode == MLX5_OPCODE_SEND_IMM || opcode == MLX5_OPCODE_SEND_INVAL)
		to = type == IBV_QPT_UD || type == IBV_QPT_DRIVER || type == IBV_QPT_XRC_SEND;
	for (unit = 1, left = 0; unit < ds; unit++) {
		inlay_wqe_unit_(out, ring, bytes, index, unit, w);
		if (left) {
			left = left > INLAY_DS ? left - INLAY_DS : 0;
			fprintf(out, "payload\n");
		} else if (eth && unit == 1) {
			fprintf(out, "eth     checks 0x%x mss %u metadata 0x%x ", w[1] >> 24, w[1] & 0xffff, w[2]);
			if (w[3] >> 16 & INLAY_ETH_VLAN_) {
				fprintf(out, "tag 0x%x 0x%04x", w[3] >> 16 & INLAY_ETH_SVLAN_ ? 0x88a8 : 0x8100, w[3] & 0xffff);
			} else {
				left = w[3] >> 16 > 2 ? (w[3] >> 16) - 2 : 0;
				fprintf(out, "header %u bytes", w[3] >> 16);
			}
			if (w[0])
				fprintf(out, " parsed 0x%08x flags 0x%x", w[0], w[1] >> 16 & 0xff);
			fprintf(out, "\n");
		} else if (to && unit == 1 && type == IBV_QPT_XRC_SEND) {
			fprintf(out, "xrc     srqn 0x%x\n", w[0]);
		} else if (to && unit == 1) {
			to = w[2] & MLX5_EXTENDED_UD_AV ? 3 : 1;
			if (type == IBV_QPT_DRIVER)
				fprintf(out, "av      key 0x%08x%08x dctn 0x%x", w[0], w[1], w[2] & 0xffffff);
			else
				fprintf(out, "av      qkey 0x%x qpn 0x%x", w[0], w[2] & 0xffffff);
			fprintf(out, " sl %u lid %u\n", w[3] >> 24 & 15, w[3] & 0xffff);
		} else if (unit <= to) {
			fprintf(out, "av      %s\n", unit == 2 ? "MAC, traffic class, hop limit, flow label" : "GID");
		} else if (opcode == INLAY_OPCODE_WAIT && opmod) {
			fprintf(out, unit == 1 ? "wait    condition 0x%x lkey 0x%x addr 0x%08x%08x\n" :
						 "wait    value 0x%08x%08x mask 0x%08x%08x\n", w[0], w[1], w[2], w[3]);
		} else if (opcode == INLAY_OPCODE_WAIT || opcode == INLAY_OPCODE_SEND_EN) {
			fprintf(out, "queue   %s 0x%x index %u\n", opcode == INLAY_OPCODE_WAIT ? "cqn" : "qpn", w[3], w[2]);
		} else if (opcode == MLX5_OPCODE_MMO && unit == 1) {
			fprintf(out, "scratch lkey 0x%x addr 0x%08x%08x\n", w[1], w[2], w[3]);
		} else if (opcode == MLX5_OPCODE_UMR) {
			fprintf(out, "%s\n", unit < 4 ? "umr" : unit < 8 ? "mkey" : "klm");
		} else if (opcode == MLX5_OPCODE_SET_PSV) {
			fprintf(out, "psv     0x%x begins with 0x%08x%08x\n", w[0], w[2], w[3]);
		} else if (unit == 1 + to && raddr) {
			fprintf(out, "raddr   0x%08x%08x rkey 0x%x\n", w[0], w[1], w[2]);
		} else if (unit == 2 + to && atomic) {
			fprintf(out, "atomic  swap_add 0x%08x%08x compare 0x%08x%08x\n", w[0], w[1], w[2], w[3]);
		} else if (unit > 1 + to && unit < 2 + to + masked) {
			fprintf(out, "%s\n", opcode == MLX5_OPCODE_ATOMIC_MASKED_CS ? "swap, compare, their masks" : "add, boundary");
		} else if (w[0] & MLX5_INLINE_SEG) {
			w[0] &= ~(uint32_t)MLX5_INLINE_SEG;
			left = w[0] > INLAY_DS - 4 ? w[0] - (INLAY_DS - 4) : 0;
			fprintf(out, "inline  %u bytes\n", w[0]);
		} else {
			fprintf(out, "data    %u bytes lkey 0x%x addr 0x%08x%08x\n", w[0], w[1], w[2], w[3]);
		}
	}
}

INLAY_CASTS_END_
#endif
