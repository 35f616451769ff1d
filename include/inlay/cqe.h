/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/cqe.h: the layout of completions (CQEs), and functions that read their 64 bytes. queue.h
 * finds CQEs and frees them.
 *
 *   if (inlay_cqe_is_error(cqe))
 *           fprintf(stderr, "%s\n", inlay_syndrome_text(inlay_cqe_syndrome(cqe)));
 *   ep = find(inlay_cqe_qpn(cqe));
 *   i = inlay_cqe_wqe_counter(cqe) & (inlay_rq_size(&rq) - 1);
 *   data = inlay_cqe_data(cqe, inlay_cq_cqe_size(&cq), buffers[i]);
 *   handle(ep, data, inlay_cqe_byte_count(cqe));
 *
 *   +0    32 bytes    payload scattered to the CQE; or packet information of a receive:
 *   +12   RSS hash    Ethernet; +16 its type
 *   +17   ml_path     the low bits of the LID it was sent to
 *   +20   checksum    Ethernet
 *   +22   slid        LID of the sender
 *   +24   flags_rqpn  UD: GRH << 28 | SL << 24 | QPN of the sender
 *   +28   hds_ip_ext  Ethernet: the checks that the packet passed
 *   +29   l4_hdr_type_etc  Ethernet: L4 << 4 | L3 << 2 | VLAN tag stripped
 *   +30   vlan_info   the stripped tag
 *   +32   srqn_uidx   user index of the QP (CQE version 1), low 24 bits
 *   +36   imm         immediate, invalidated rkey
 *   +44   byte_cnt    bytes received, read, or swapped; undefined for a send or write
 *   +48   timestamp
 *   +56   sop | qpn   opcode of the send WQE << 24 | QPN            both send and receive side;
 *                     of an Ethernet receive, the flow tag
 *   +60   wqe_counter first WQEBB of the send WQE, or index of the receive WQE
 *   +63   op_own      opcode << 4 | scatter 64, scatter 32, solicited, owner
 *
 * An error CQE (struct mlx5_err_cqe) keeps +32, +56, +60 and +63, with the vendor's syndrome at +54
 * and the syndrome at +55.
 *
 *   local length error                S longer than the device takes; R longer than the receive WQE
 *   local QP operation error          S R the WQE is malformed, or not for this QP
 *   local protection error            S R an lkey does not allow what its SGE asks for
 *   work request flushed              S R not executed: the QP was in error already
 *   memory window bind error          S the window could not be bound
 *   bad response                      S the peer's response makes no sense
 *   local access error                R the peer wrote where it may not
 *   remote invalid request            S refused: too long for the peer's receive, or not allowed
 *   remote access error               S the rkey does not allow it
 *   remote operation error            S the peer failed on its own: see its completions
 *   transport retry counter exceeded  S no ACK after all retries: the peer cannot be reached,
 *                                       packets are lost, or its QP is not yet in RTR or RTS
 *   RNR retry counter exceeded        S the peer has posted no receive
 *   remote aborted                    S the peer gave up
 *
 * S: of a send queue's WQE, R: of a receive. What it means for the queue:
 *
 *   RC, XRC, DCI         any of them: the QP is in error, everything outstanding is flushed; see
 *                        queue.h, "A QP in error"
 *   DCI with streams     S: the WQE's stream alone, unless too many have failed: devx/qp.h
 *   UC, UD, raw packet   S: the send queue stops and is flushed (IBV_QPS_SQE), receives go on; once
 *                        all is flushed, ibv_modify_qp to RTS starts it again (raw packet: only
 *                        through RESET). R: as above
 *   MLX5_CQE_SIG_ERR     nothing: inlay_cqe_sig_error (cqe/signature.h)
 *
 * Look at the first error of a queue: the flushes after it say nothing more.
 *
 * Scatter to CQE. By default the device puts a received payload of up to 32 bytes (64 in a 128-byte
 * CQE) into the CQE instead of the buffer. With MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE or sq_sig_all
 * it also does so for the result of an RDMA read or atomic; with
 * MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE it never does. libmlx5 copies the payload to the buffer;
 * inlay leaves it in the CQE, where inlay_cqe_data finds it.
 *
 * Compression. If the CQ was created with it, the device may write one block for n CQEs that differ
 * in only eight bytes each. The n CQEs still own n slots.
 *
 *   basic     slot 0      a CQE with both scatter bits set and byte_cnt n: the title, which all share
 *             slots 1, 8, 16 ..  8 mini CQEs each; the first is that of slot 0 itself
 *   enhanced  slot 0      +0 up to 7 mini CQEs; +63 (n - 1) << 4 | both scatter bits. The CQE before is the
 *                         title, and +62 of every slot counts the ring's laps instead of the owner bit
 *
 *   mini CQE  +0  be32 RSS hash; or be16 checksum, be16 stride index; or of a send: be16 WQE counter, opcode
 *             +4  be32 byte count. All else, an immediate too, is the title's
 *
 * inlay_cq_unzip (queue/cq.h) writes out the CQEs in their slots.
 *
 * Threads: pure functions of their arguments. A CQE belongs to the caller until inlay_cq_advance.
 * Sources: mlx5dv.h (layouts), libmlx5's cq.c and Linux's mlx5/device.h (meaning), the PRM's
 * "Completion Queue Entry" and "Completion with Error" tables; for errors IBTA 10.3.1 and 11.6.2.
 */
#ifndef INLAY_CQE_H
#define INLAY_CQE_H /* names are stable until 1.0 */

#include <stdio.h>
#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_

enum inlay_cqe_bits {
	INLAY_CQE_OWNER = 1 << 0,
	INLAY_CQE_SOLICITED = 1 << 1,
	INLAY_CQE_SCATTER_32 = 1 << 2,
	INLAY_CQE_SCATTER_64 = 1 << 3,
	INLAY_CQE_COMPRESSED = 3 << 2, /* both scatter bits: a block of mini CQEs */
	INLAY_CQE_ERROR = 1 << 7, /* the opcode's top bit: set in SIG_ERR, REQ_ERR, RESP_ERR and INVALID, else clear */
};

/* Offsets in the packet information that mlx5dv.h does not name. */
#define INLAY_CQE_HASH_ 12u
#define INLAY_CQE_HASH_TYPE_ 16u
#define INLAY_CQE_CSUM_ 20u

#define INLAY_GRH 40u /* bytes in front of a UD payload in the receive buffer, counted by inlay_cqe_byte_count */

#define INLAY_CQE_AT_(field, at) (offsetof(struct mlx5_cqe64, field) == at)
#define INLAY_ERR_AT_(field, at) (offsetof(struct mlx5_err_cqe, field) == at)
INLAY_STATIC_ASSERT(sizeof(struct mlx5_cqe64) == 64 && INLAY_CQE_AT_(ml_path, 17) && INLAY_CQE_AT_(slid, 22) &&
		    INLAY_CQE_AT_(flags_rqpn, 24) && INLAY_CQE_AT_(hds_ip_ext, 28) && INLAY_CQE_AT_(l4_hdr_type_etc, 29) &&
		    INLAY_CQE_AT_(vlan_info, 30) && INLAY_CQE_AT_(srqn_uidx, 32) &&
		    INLAY_CQE_AT_(imm_inval_pkey, 36) && INLAY_CQE_AT_(byte_cnt, 44) && INLAY_CQE_AT_(timestamp, 48) &&
		    INLAY_CQE_AT_(sop_drop_qpn, 56) && INLAY_CQE_AT_(wqe_counter, 60) && INLAY_CQE_AT_(op_own, 63), "CQE");
INLAY_STATIC_ASSERT(sizeof(struct mlx5_err_cqe) == 64 && INLAY_ERR_AT_(srqn, 32) &&
		    INLAY_ERR_AT_(vendor_err_synd, 54) && INLAY_ERR_AT_(syndrome, 55) && INLAY_ERR_AT_(s_wqe_opcode_qpn, 56) &&
		    INLAY_ERR_AT_(wqe_counter, 60) && INLAY_ERR_AT_(op_own, 63), "error CQE");

/* ---- Errors and printing ---- */

/* The syndrome of an error CQE, MLX5_CQE_SYNDROME_*. Only for a CQE that inlay_cqe_is_error reports. */
INLAY_FN uint8_t inlay_cqe_syndrome(const struct mlx5_cqe64 *cqe)
{
	return ((const uint8_t *)cqe)[offsetof(struct mlx5_err_cqe, syndrome)];
}

/* The vendor's syndrome, for its support staff. Only for a CQE that inlay_cqe_is_error reports. */
INLAY_FN uint8_t inlay_cqe_vendor_syndrome(const struct mlx5_cqe64 *cqe)
{
	return ((const uint8_t *)cqe)[offsetof(struct mlx5_err_cqe, vendor_err_synd)];
}

struct inlay_syndrome_ {
	uint8_t syndrome;
	uint8_t status; /* enum ibv_wc_status, from libmlx5's table: mlx5_handle_error_cqe */
	const char *text;
};

/* The entry of a syndrome; the last one if it is unknown. */
INLAY_COLD const struct inlay_syndrome_ *inlay_syndrome_find_(uint8_t syndrome)
{
	static const struct inlay_syndrome_ table[] = {
		{MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, IBV_WC_LOC_LEN_ERR, "local length error"},
		{MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, IBV_WC_LOC_QP_OP_ERR, "local QP operation error"},
		{MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, IBV_WC_LOC_PROT_ERR, "local protection error"},
		{MLX5_CQE_SYNDROME_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR, "work request flushed"},
		{MLX5_CQE_SYNDROME_MW_BIND_ERR, IBV_WC_MW_BIND_ERR, "memory window bind error"},
		{MLX5_CQE_SYNDROME_BAD_RESP_ERR, IBV_WC_BAD_RESP_ERR, "bad response"},
		{MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR, "local access error"},
		{MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, IBV_WC_REM_INV_REQ_ERR, "remote invalid request"},
		{MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR, "remote access error"},
		{MLX5_CQE_SYNDROME_REMOTE_OP_ERR, IBV_WC_REM_OP_ERR, "remote operation error"},
		{MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR, "transport retry counter exceeded"},
		{MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, "RNR retry counter exceeded"},
		{MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR, IBV_WC_REM_ABORT_ERR, "remote aborted"},
		{0, IBV_WC_GENERAL_ERR, "unknown syndrome"},
	};
	const struct inlay_syndrome_ *s = table;

	while (s->syndrome && s->syndrome != syndrome)
		s++;
	return s;
}

/* A syndrome in words, or "unknown syndrome". */
INLAY_COLD const char *inlay_syndrome_text(uint8_t syndrome)
{
	return inlay_syndrome_find_(syndrome)->text;
}

/*
 * The status that ibv_poll_cq would report: IBV_WC_SUCCESS unless inlay_cqe_is_error,
 * IBV_WC_GENERAL_ERR for an unknown syndrome or opcode.
 */
INLAY_COLD enum ibv_wc_status inlay_cqe_status(const struct mlx5_cqe64 *cqe)
{
	uint8_t opcode = cqe->op_own >> 4;

	if (!(cqe->op_own & INLAY_CQE_ERROR))
		return IBV_WC_SUCCESS;
	if (opcode != MLX5_CQE_REQ_ERR && opcode != MLX5_CQE_RESP_ERR)
		return IBV_WC_GENERAL_ERR;
	return (enum ibv_wc_status)inlay_syndrome_find_(inlay_cqe_syndrome(cqe))->status;
}

/* The name of a CQE opcode (inlay_cqe_opcode). */
INLAY_COLD const char *inlay_cqe_opcode_name(uint8_t opcode)
{
	switch (opcode) {
	case MLX5_CQE_REQ: return "REQ";
	case MLX5_CQE_RESP_WR_IMM: return "RESP_WR_IMM";
	case MLX5_CQE_RESP_SEND: return "RESP_SEND";
	case MLX5_CQE_RESP_SEND_IMM: return "RESP_SEND_IMM";
	case MLX5_CQE_RESP_SEND_INV: return "RESP_SEND_INV";
	case MLX5_CQE_RESIZE_CQ: return "RESIZE_CQ";
	case MLX5_CQE_NO_PACKET: return "NO_PACKET";
	case MLX5_CQE_SIG_ERR: return "SIG_ERR";
	case MLX5_CQE_REQ_ERR: return "REQ_ERR";
	case MLX5_CQE_RESP_ERR: return "RESP_ERR";
	case MLX5_CQE_INVALID: return "INVALID";
	default: return "unknown CQE opcode";
	}
}

/* Prints a CQE: one line of fields, four of raw words. For debugging. */
INLAY_COLD void inlay_cqe_print(FILE *out, const struct mlx5_cqe64 *cqe)
{
	uint32_t w[16], i;
	uint8_t opcode = cqe->op_own >> 4;

	__builtin_memcpy(w, cqe, sizeof(w));
	fprintf(out, "  %s qpn 0x%x uidx 0x%x wqe_counter %u byte_cnt %u imm 0x%08x owner %u",
		inlay_cqe_opcode_name(opcode), inlay_from_be32(w[14]) & 0xffffff, inlay_from_be32(w[8]) & 0xffffff,
		inlay_from_be32(w[15]) >> 16, inlay_from_be32(w[11]), inlay_from_be32(w[9]), cqe->op_own & 1);
	if (opcode == MLX5_CQE_REQ_ERR || opcode == MLX5_CQE_RESP_ERR)
		fprintf(out, " syndrome 0x%02x (%s) vendor 0x%02x", inlay_cqe_syndrome(cqe),
			inlay_syndrome_text(inlay_cqe_syndrome(cqe)), inlay_cqe_vendor_syndrome(cqe));
	fputc('\n', out);
	for (i = 0; i < 16; i += 4)
		fprintf(out, "  +%-3u %08x %08x %08x %08x\n", i * 4, inlay_from_be32(w[i]), inlay_from_be32(w[i + 1]),
			inlay_from_be32(w[i + 2]), inlay_from_be32(w[i + 3]));
}

/* ---- Data path: fields in host order unless the name says _be ---- */

/*
 * MLX5_CQE_REQ for the send side, MLX5_CQE_RESP_* for the receive side, MLX5_CQE_REQ_ERR or
 * MLX5_CQE_RESP_ERR.
 */
INLAY_FN uint8_t inlay_cqe_opcode(const struct mlx5_cqe64 *cqe)
{
	return cqe->op_own >> 4;
}

/* Whether the CQE reports an error or has an invalid opcode; see inlay_cqe_status. */
INLAY_ALWAYS int inlay_cqe_is_error(const struct mlx5_cqe64 *cqe)
{
	INLAY_PROBE_IF_(cqe->op_own & INLAY_CQE_ERROR, error, inlay_from_be32(cqe->sop_drop_qpn) & 0xffffff,
			inlay_from_be16(cqe->wqe_counter), inlay_cqe_syndrome(cqe));
	return (int)INLAY_UNLIKELY((cqe->op_own & INLAY_CQE_ERROR) != 0);
}

/* Whether it is a compressed block: call inlay_cq_unzip. Never true on a CQ without compression. */
INLAY_ALWAYS int inlay_cqe_is_compressed(const struct mlx5_cqe64 *cqe)
{
	return (cqe->op_own & INLAY_CQE_COMPRESSED) == INLAY_CQE_COMPRESSED;
}

/* inlay_cqe_is_compressed or inlay_cqe_is_error, in one test. */
INLAY_ALWAYS int inlay_cqe_is_special(const struct mlx5_cqe64 *cqe)
{
	return (int)INLAY_UNLIKELY((cqe->op_own & (INLAY_CQE_ERROR | INLAY_CQE_COMPRESSED)) >= INLAY_CQE_COMPRESSED);
}

/* Whether it completes a send WQE, successful or not. */
INLAY_ALWAYS int inlay_cqe_is_send(const struct mlx5_cqe64 *cqe)
{
	return INLAY_LIKELY(!(cqe->op_own & 0xf0)) || cqe->op_own >> 4 == MLX5_CQE_REQ_ERR;
}

/* Whether it completes a receive. Good ones have bit 7 clear and an opcode other than REQ, which is 0. */
INLAY_ALWAYS int inlay_cqe_is_recv_(const struct mlx5_cqe64 *cqe)
{
	return INLAY_LIKELY((int8_t)cqe->op_own > 0xf) || cqe->op_own >> 4 == MLX5_CQE_RESP_ERR;
}

/* Number of the QP that sent or received, with an SRQ too; of an Ethernet receive, the flow tag. */
INLAY_FN uint32_t inlay_cqe_qpn(const struct mlx5_cqe64 *cqe)
{
	return inlay_from_be32(cqe->sop_drop_qpn) & 0xffffff;
}

/*
 * The user index of the QP, or of the SRQ for a receive of an XRC or tag matching SRQ: its creator
 * chose it; for verbs objects libmlx5 did. CQE version 1 (MLX5DV_CONTEXT_FLAGS_CQE_V1). Also in an
 * error CQE.
 */
INLAY_FN uint32_t inlay_cqe_user_index(const struct mlx5_cqe64 *cqe)
{
	return inlay_from_be32(cqe->srqn_uidx) & 0xffffff;
}

/* Opcode of the send WQE, MLX5_OPCODE_*; undefined for a receive. */
INLAY_FN uint8_t inlay_cqe_send_opcode(const struct mlx5_cqe64 *cqe)
{
	return (uint8_t)(inlay_from_be32(cqe->sop_drop_qpn) >> 24);
}

/* The first WQEBB of a send WQE, or the index of a receive WQE, modulo 2^16. */
INLAY_FN uint16_t inlay_cqe_wqe_counter(const struct mlx5_cqe64 *cqe)
{
	return inlay_from_be16(cqe->wqe_counter);
}

/*
 * Bytes received, or read by an RDMA read or atomic, as the device says: nothing compares them with
 * the length of a buffer.
 */
INLAY_FN uint32_t inlay_cqe_byte_count(const struct mlx5_cqe64 *cqe)
{
	return inlay_from_be32(cqe->byte_cnt);
}

/* The immediate as the peer gave it (ibv_wc.imm_data). RESP_SEND_IMM and RESP_WR_IMM only. */
INLAY_FN uint32_t inlay_cqe_imm_be(const struct mlx5_cqe64 *cqe)
{
	return cqe->imm_inval_pkey;
}

/* The rkey that the peer invalidated (ibv_wc.invalidated_rkey). RESP_SEND_INV only. */
INLAY_FN uint32_t inlay_cqe_invalidated_rkey(const struct mlx5_cqe64 *cqe)
{
	return inlay_from_be32(cqe->imm_inval_pkey);
}

/* Who sent a datagram; see also ibv_init_ah_from_wc(3). */
struct inlay_sender {
	uint32_t qpn;
	uint16_t slid;     /* LID; InfiniBand only */
	uint8_t sl;        /* of the message */
	uint8_t path_bits; /* low bits of the LID that the message was sent to (ibv_wc.dlid_path_bits) */
	uint8_t has_grh;   /* 1: the INLAY_GRH bytes before the payload hold a GRH or IP header */
};

/* The sender. Receives of a UD QP only. */
INLAY_ALWAYS struct inlay_sender inlay_cqe_sender(const struct mlx5_cqe64 *cqe)
{
	uint32_t word = inlay_from_be32(cqe->flags_rqpn);
	struct inlay_sender sender = {word & 0xffffff, inlay_from_be16(cqe->slid), (uint8_t)(word >> 24 & 0xf),
				      (uint8_t)(cqe->ml_path & 0x7f), (word >> 28 & 3) != 0};

	return sender;
}

/*
 * The device's clock at completion, in ticks (ibv_wc_read_completion_ts, mlx5dv_ts_to_ns). For a
 * queue whose clock is INLAY_TS_REAL_TIME (devx/ifc.h), seconds << 32 | nanoseconds since 1970. Not
 * in an error CQE.
 */
INLAY_FN uint64_t inlay_cqe_timestamp(const struct mlx5_cqe64 *cqe)
{
	return inlay_from_be64(cqe->timestamp);
}

/* Whether the payload is in the CQE. The buffer is then unchanged. */
INLAY_FN int inlay_cqe_is_scattered(const struct mlx5_cqe64 *cqe)
{
	return (cqe->op_own & (INLAY_CQE_SCATTER_32 | INLAY_CQE_SCATTER_64)) != 0;
}

/*
 * Where the payload is: in buf, the receive WQE's buffer (may be NULL), unless the device scattered
 * it to the CQE: up to 32 bytes in the CQE itself, or up to 64 in the first half of a 128-byte CQE.
 * A payload in the CQE is valid until the CQE is freed.
 *
 * cqe_size  of the CQ, 64 or 128: inlay_cq_cqe_size
 *
 * Returns NULL for a faulty CQE (a byte count too large for its place, 64 bytes in a 64-byte CQE).
 * The device checks the length only against the CQE, so the payload may be longer than the receive
 * WQE; libmlx5 reports that as IBV_WC_LOC_LEN_ERR.
 */
INLAY_FN const void *inlay_cqe_data(const struct mlx5_cqe64 *cqe, uint32_t cqe_size, const void *buf)
{
	if (INLAY_LIKELY(!inlay_cqe_is_scattered(cqe)))
		return buf;
	if (cqe->op_own & INLAY_CQE_SCATTER_32)
		return inlay_cqe_byte_count(cqe) <= 32 ? cqe : NULL;
	return cqe_size == 128 && inlay_cqe_byte_count(cqe) <= 64 ? cqe - 1 : NULL;
}

/* ---- Data path: compressed CQEs ---- */

#define INLAY_MINI_CQES 8u /* in one array of the basic layout; the enhanced one has at most 7 */

/* What the mini CQEs of receives carry beside the byte count, as the CQ's context numbers it. */
enum inlay_mini_format {
	INLAY_MINI_HASH,         /* RSS hash: MLX5DV_CQE_RES_FORMAT_HASH */
	INLAY_MINI_CSUM,         /* checksum: MLX5DV_CQE_RES_FORMAT_CSUM */
	INLAY_MINI_FTAG_STRIDX,  /* flow tag (its first byte at +4, the others at +0), stride index */
	INLAY_MINI_CSUM_STRIDX,  /* checksum, stride index: MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX */
	INLAY_MINI_L34H_STRIDX,  /* types of the L3 and L4 headers, stride index */
	INLAY_MINI_STRIDES = 8,  /* or'ed to the first two, of a striding queue: WQE counters count strides */
};

INLAY_COLD int inlay_mini_ok_(uint32_t format)
{
	return format <= INLAY_MINI_L34H_STRIDX || (format & ~(uint32_t)INLAY_MINI_STRIDES) <= INLAY_MINI_CSUM;
}

/* How many CQEs a block stands for; 0 if no device writes such a block. */
INLAY_ALWAYS uint32_t inlay_cqe_block_(const struct mlx5_cqe64 *cqe, int enhanced)
{
	uint32_t n = enhanced ? (cqe->op_own >> 4) + 1u : inlay_cqe_byte_count(cqe);

	return n < (enhanced ? 1 : 2) || (enhanced && n >= INLAY_MINI_CQES) ? 0 : n;
}

#define INLAY_CQE_STRIDES_ 0x7fffu

/* Strides of a packet in a striding queue, as byte_cnt says. */
INLAY_ALWAYS uint32_t inlay_cqe_strides_(uint32_t byte_cnt)
{
	return byte_cnt >> 16 & INLAY_CQE_STRIDES_;
}

/* By how much WQE counters grow from this receive to the next. */
INLAY_ALWAYS uint32_t inlay_cqe_step_(const struct mlx5_cqe64 *cqe, uint32_t format)
{
	return format & INLAY_MINI_STRIDES ? inlay_cqe_strides_(inlay_cqe_byte_count(cqe)) : 1;
}

#define INLAY_MINI_REQ_ 16u /* the mini CQEs of sends, whatever the format of the CQ */

/*
 * Turns the title, or a copy of it, into the CQE that a mini CQE stands for. format: enum
 * inlay_mini_format, or INLAY_MINI_REQ_. counter: this receive's; on return, the next one's.
 */
INLAY_ALWAYS void inlay_cqe_expand_(struct mlx5_cqe64 *cqe, const uint8_t *mini, uint32_t format, uint32_t *counter)
{
	uint8_t *to = (uint8_t *)cqe;

	__builtin_memcpy(&cqe->byte_cnt, mini + 4, 4);
	cqe->wqe_counter = inlay_to_be16((uint16_t)*counter);
	*counter += inlay_cqe_step_(cqe, format);
	switch (format & ~(uint32_t)INLAY_MINI_STRIDES) {
	case INLAY_MINI_REQ_:
		__builtin_memcpy(&cqe->wqe_counter, mini, 2);
		to[offsetof(struct mlx5_cqe64, sop_drop_qpn)] = mini[2];
		return;
	case INLAY_MINI_HASH:
		__builtin_memcpy(to + INLAY_CQE_HASH_, mini, 4);
		return;
	case INLAY_MINI_CSUM:
		__builtin_memcpy(to + INLAY_CQE_CSUM_, mini, 2);
		return;
	case INLAY_MINI_FTAG_STRIDX:
		to[offsetof(struct mlx5_cqe64, sop_drop_qpn) + 1] = mini[4];
		__builtin_memcpy(to + offsetof(struct mlx5_cqe64, sop_drop_qpn) + 2, mini, 2);
		/* Without strides: DPDK also uses only the length. */
		__builtin_memset(to + offsetof(struct mlx5_cqe64, byte_cnt), 0, 2);
		break;
	case INLAY_MINI_CSUM_STRIDX:
		__builtin_memcpy(to + INLAY_CQE_CSUM_, mini, 2);
		break;
	default:
		cqe->l4_hdr_type_etc = mini[0];
		break;
	}
	__builtin_memcpy(&cqe->wqe_counter, mini + 2, 2);
}

INLAY_CASTS_END_
#endif
