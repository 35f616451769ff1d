/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ifc.c: what tests/devx/ifc.t disassembles: the inbox of the same CREATE_CQ, built by inlay and by
 * mlx5dv.h's DEVX_SET, from constants and from what a caller knows at run time; one field out of an
 * outbox. With MAIN: that all ways give the same bytes.
 */
#include <infiniband/mlx5dv.h>
#include <inlay/devx/ifc.h>
#include <stdio.h>
#include <string.h>

struct numbers {
	uint32_t uar, eqn, umem, dbr;
	uint64_t umem_offset, dbr_offset;
};

/* ---- inlay ---- */

static inline __attribute__((always_inline)) void inlay_fill(struct inlay_create_cq_in *in, const struct numbers *n)
{
	memset(in, 0, sizeof(*in));
	inlay_cmd_in_set(&in->cmd, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_CREATE_CQ);
	inlay_cqc_set(&in->cqc, INLAY_CQC_CQE_SZ, INLAY_CQE_SZ_128);
	inlay_cqc_set(&in->cqc, INLAY_CQC_CC, 1);
	inlay_cqc_set(&in->cqc, INLAY_CQC_OI, 1);
	inlay_cqc_set(&in->cqc, INLAY_CQC_CQE_COMP_EN, 1);
	inlay_cqc_set(&in->cqc, INLAY_CQC_MINI_CQE_RES_FORMAT, 3);
	inlay_cqc_set(&in->cqc, INLAY_CQC_LOG_CQ_SIZE, 12);
	inlay_cqc_set(&in->cqc, INLAY_CQC_CQ_PERIOD, 16);
	inlay_cqc_set(&in->cqc, INLAY_CQC_CQ_MAX_COUNT, 32);
	inlay_cqc_set(&in->cqc, INLAY_CQC_UAR_PAGE, n->uar);
	inlay_cqc_set(&in->cqc, INLAY_CQC_C_EQN_OR_APU_ELEMENT, n->eqn);
	inlay_cqc_set(&in->cqc, INLAY_CQC_DBR_UMEM_VALID, 1);
	inlay_cqc_set(&in->cqc, INLAY_CQC_DBR_UMEM_ID, n->dbr);
	inlay_cqc_set(&in->cqc, INLAY_CQC_DBR_ADDR, n->dbr_offset);
	inlay_create_cq_in_set(in, INLAY_CREATE_CQ_IN_CQ_UMEM_ID, n->umem);
	inlay_create_cq_in_set(in, INLAY_CREATE_CQ_IN_CQ_UMEM_OFFSET, n->umem_offset);
	inlay_create_cq_in_set(in, INLAY_CREATE_CQ_IN_CQ_UMEM_VALID, 1);
}

static const struct numbers fixed = {0x1234, 7, 0x55, 0x66, 0x10000, 0x40};

void sink(const void *in);

void inlay_constants(void)
{
	struct inlay_create_cq_in in;

	inlay_fill(&in, &fixed);
	sink(&in);
}

void inlay_numbers(const struct numbers *n)
{
	struct numbers own = *n;
	struct inlay_create_cq_in in;

	inlay_fill(&in, &own);
	sink(&in);
}

uint64_t inlay_one_bit(const struct inlay_query_hca_cap_out *out)
{
	return inlay_hca_cap_get(&out->cap.general, INLAY_HCA_CAP_TAG_MATCHING);
}

uint64_t inlay_number(const struct inlay_cmd_out *out)
{
	return inlay_cmd_out_get(out, INLAY_CMD_OUT_NUMBER);
}

uint64_t inlay_dword_field(const struct inlay_query_qp_out *out)
{
	return inlay_qpc_get(&out->qpc, INLAY_QPC_HW_RQ_COUNTER);
}

/* ---- mlx5dv.h's macros, on a layout of just these fields ---- */

struct mlx5_ifc_tiny_cq_bits {
	uint8_t opcode[16], pad_10[0x70], status[4], pad_84[2], dbr_umem_valid[1], pad_87[1], cqe_sz[3],
		cc[1], pad_8c[2], oi[1], pad_8f[2], cqe_comp_en[1], mini_cqe_res_format[2], pad_94[12],
		dbr_umem_id[32], pad_c0[0x23], log_cq_size[5], uar_page[24], pad_100[4], cq_period[12],
		cq_max_count[16], eqn[32], pad_140[0x100], dbr_addr[64], cq_umem_offset[64], cq_umem_id[32],
		cq_umem_valid[1], pad_2e1[0x59f];
};

static inline __attribute__((always_inline)) void devx_fill(void *in, const struct numbers *n)
{
	memset(in, 0, DEVX_ST_SZ_BYTES(tiny_cq));
	DEVX_SET(tiny_cq, in, opcode, 0x400);
	DEVX_SET(tiny_cq, in, cqe_sz, 1);
	DEVX_SET(tiny_cq, in, cc, 1);
	DEVX_SET(tiny_cq, in, oi, 1);
	DEVX_SET(tiny_cq, in, cqe_comp_en, 1);
	DEVX_SET(tiny_cq, in, mini_cqe_res_format, 3);
	DEVX_SET(tiny_cq, in, log_cq_size, 12);
	DEVX_SET(tiny_cq, in, cq_period, 16);
	DEVX_SET(tiny_cq, in, cq_max_count, 32);
	DEVX_SET(tiny_cq, in, uar_page, n->uar);
	DEVX_SET(tiny_cq, in, eqn, n->eqn);
	DEVX_SET(tiny_cq, in, dbr_umem_valid, 1);
	DEVX_SET(tiny_cq, in, dbr_umem_id, n->dbr);
	DEVX_SET64(tiny_cq, in, dbr_addr, n->dbr_offset);
	DEVX_SET(tiny_cq, in, cq_umem_id, n->umem);
	DEVX_SET64(tiny_cq, in, cq_umem_offset, n->umem_offset);
	DEVX_SET(tiny_cq, in, cq_umem_valid, 1);
}

void devx_constants(void)
{
	uint32_t in[DEVX_ST_SZ_DW(tiny_cq)];

	devx_fill(in, &fixed);
	sink(in);
}

void devx_numbers(const struct numbers *n)
{
	struct numbers own = *n;
	uint32_t in[DEVX_ST_SZ_DW(tiny_cq)];

	devx_fill(in, &own);
	sink(in);
}

#ifdef MAIN
static struct inlay_create_cq_in sunk[4];
static int sinks;

void sink(const void *in)
{
	memcpy(&sunk[sinks++], in, sizeof(sunk[0]));
}

int main(void)
{
	int i;

	if (DEVX_ST_SZ_BYTES(tiny_cq) != sizeof(sunk[0]))
		return 1;
	inlay_constants();
	inlay_numbers(&fixed);
	devx_constants();
	devx_numbers(&fixed);
	for (i = 1; i < 4; i++)
		if (memcmp(&sunk[0], &sunk[i], sizeof(sunk[0])))
			return 1 + i;
	return 0;
}
#endif
