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
#include <inlay/wqe/decode.h>
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

/* Prints what unit k of a segment means. */
INLAY_COLD void inlay_wqe_print_unit_(FILE *out, const struct inlay_decoded *d, uint32_t kind, uint32_t k,
				      const uint32_t w[4], uint32_t type)
{
	switch (kind) {
	case INLAY_SEGMENT_ETH:
		if (k)
			break;
		fprintf(out, "eth     checks 0x%x mss %u metadata 0x%x ", w[1] >> 24, w[1] & 0xffff, w[2]);
		if (w[3] >> 16 & INLAY_ETH_VLAN_)
			fprintf(out, "tag 0x%x 0x%04x", w[3] >> 16 & INLAY_ETH_SVLAN_ ? 0x88a8 : 0x8100, w[3] & 0xffff);
		else
			fprintf(out, "header %u bytes", w[3] >> 16);
		if (w[0])
			fprintf(out, " parsed 0x%08x flags 0x%x", w[0], w[1] >> 16 & 0xff);
		fprintf(out, "\n");
		return;
	case INLAY_SEGMENT_XRC: fprintf(out, "xrc     srqn 0x%x\n", w[0]); return;
	case INLAY_SEGMENT_AV:
		if (k) {
			fprintf(out, "av      %s\n", k == 1 ? "MAC, traffic class, hop limit, flow label" : "GID");
			return;
		}
		if (type == IBV_QPT_DRIVER)
			fprintf(out, "av      key 0x%08x%08x dctn 0x%x", w[0], w[1], w[2] & 0xffffff);
		else
			fprintf(out, "av      qkey 0x%x qpn 0x%x", w[0], w[2] & 0xffffff);
		fprintf(out, " sl %u lid %u\n", w[3] >> 24 & 15, w[3] & 0xffff);
		return;
	case INLAY_SEGMENT_RADDR: fprintf(out, "raddr   0x%08x%08x rkey 0x%x\n", w[0], w[1], w[2]); return;
	case INLAY_SEGMENT_ATOMIC:
		fprintf(out, "atomic  swap_add 0x%08x%08x compare 0x%08x%08x\n", w[0], w[1], w[2], w[3]);
		return;
	case INLAY_SEGMENT_MASKED:
		fprintf(out, "%s\n", d->opcode == MLX5_OPCODE_ATOMIC_MASKED_CS ? "swap, compare, their masks" : "add, boundary");
		return;
	case INLAY_SEGMENT_CONDITION:
		fprintf(out, k ? "wait    value 0x%08x%08x mask 0x%08x%08x\n" : "wait    condition 0x%x lkey 0x%x addr 0x%08x%08x\n",
			w[0], w[1], w[2], w[3]);
		return;
	case INLAY_SEGMENT_QUEUE:
		fprintf(out, "queue   %s 0x%x index %u\n", d->opcode == INLAY_OPCODE_WAIT ? "cqn" : "qpn", w[3], w[2]);
		return;
	case INLAY_SEGMENT_SCRATCH: fprintf(out, "scratch lkey 0x%x addr 0x%08x%08x\n", w[1], w[2], w[3]); return;
	case INLAY_SEGMENT_UMR: fprintf(out, "umr\n"); return;
	case INLAY_SEGMENT_MKEY: fprintf(out, "mkey\n"); return;
	case INLAY_SEGMENT_KLM: fprintf(out, "klm\n"); return;
	case INLAY_SEGMENT_BSF: fprintf(out, "bsf\n"); return;
	case INLAY_SEGMENT_PSV: fprintf(out, "psv     0x%x begins with 0x%08x%08x\n", w[0], w[2], w[3]); return;
	case INLAY_SEGMENT_DATA: fprintf(out, "data    %u bytes lkey 0x%x addr 0x%08x%08x\n", w[0], w[1], w[2], w[3]); return;
	default:
		if (k)
			break;
		fprintf(out, "inline  %u bytes\n", w[0] & ~(uint32_t)MLX5_INLINE_SEG);
		return;
	}
	fprintf(out, "payload\n");
}

/*
 * Prints a send WQE, at most 63 units, a line for each: raw words, then their meaning. For
 * debugging. Arguments as for inlay_wqe_decode, but bytes: the ring's size, a multiple of 64, more
 * than 0.
 */
INLAY_COLD void inlay_wqe_print(FILE *out, const void *ring, uint32_t bytes, uint32_t index, uint32_t type)
{
	struct inlay_segment segment = {0, 0, 1, 0};
	uint32_t w[4], unit, i, k;
	struct inlay_decoded d;
	int err;

	if (bytes < INLAY_WQEBB || bytes % INLAY_WQEBB) {
		fprintf(out, "wqe: %u bytes are not a ring\n", bytes);
		return;
	}
	err = inlay_wqe_decode(ring, bytes / INLAY_WQEBB, index, type, &d);
	for (i = 0; i <= d.num_segments; i++) {
		for (k = 0; k < segment.units; k++) {
			unit = segment.at + k;
			inlay_wqe_words_(ring, bytes / INLAY_WQEBB, index, unit, w);
			fprintf(out, "  +%-4u %08x %08x %08x %08x  ", unit * INLAY_DS, w[0], w[1], w[2], w[3]);
			if (!unit)
				fprintf(out, "ctrl    %s index %u opmod 0x%x qpn 0x%x ds %u sig 0x%x fm %u ce %u se %u imm 0x%x\n",
					inlay_opcode_name_((uint8_t)d.opcode), d.index, d.opmod, d.qpn, d.ds, w[2] >> 24,
					w[2] >> 5 & 7, w[2] >> 2 & 3, w[2] >> 1 & 1, w[3]);
			else
				inlay_wqe_print_unit_(out, &d, segment.kind, k, w, type);
		}
		if (i < d.num_segments)
			segment = d.segment[i];
	}
	if (err < 0)
		fprintf(out, "  malformed: a length or a segment does not fit\n");
}

INLAY_CASTS_END_
#endif
