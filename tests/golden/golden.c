/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * golden.c: writes the golden bytes to stdout (README.md): requests at random, always the same ones, are posted by libmlx5 to queues of the
 * software device, which executes nothing; and completions at random are put into a CQ, and read by libmlx5.
 *
 * Twins of each queue pair take every request. Their rings were filled with 00 and with ff: a byte that differs was not written.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include "softdev.h"

#define must(ok)                                                                  \
	do {                                                                      \
		if (!(ok)) {                                                      \
			fprintf(stderr, "golden.c:%d: %s\n", __LINE__, #ok);      \
			exit(1);                                                  \
		}                                                                 \
	} while (0)

static uint64_t rnd_state = 1;
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static uint64_t rnd(void)
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 7;
	rnd_state ^= rnd_state << 17;
	return rnd_state * UINT64_C(0x2545f4914f6cdd1d);
}

static uint32_t below(uint32_t n)
{
	return (uint32_t)(rnd() >> 32) % n;
}

static struct mlx5dv_qp view(struct ibv_qp *qp)
{
	struct mlx5dv_qp dv = {.comp_mask = 0};

	must(!mlx5dv_init_obj(&(struct mlx5dv_obj){.qp = {qp, &dv}}, MLX5DV_OBJ_QP));
	return dv;
}

/* What both have; ".." where they differ, because neither was written to */
static void bytes(const char *name, const uint8_t *a, const uint8_t *b, uint32_t n)
{
	printf("%s", name);
	for (uint32_t i = 0; i < n; i++)
		if (a[i] == b[i])
			printf("%02x", a[i]);
		else
			printf("..");
}

static void put(uint8_t *at, uint64_t value, uint32_t n)
{
	while (n--)
		at[n] = (uint8_t)value, value >>= 8;
}

/* ---- Sends ---- */

static const struct { const char *name; enum ibv_wr_opcode op; } ops[] = {
	{"SEND", IBV_WR_SEND}, {"SEND_IMM", IBV_WR_SEND_WITH_IMM}, {"RDMA_WRITE", IBV_WR_RDMA_WRITE},
	{"RDMA_WRITE_IMM", IBV_WR_RDMA_WRITE_WITH_IMM}, {"SEND_INVAL", IBV_WR_SEND_WITH_INV}, {"RDMA_READ", IBV_WR_RDMA_READ},
	{"ATOMIC_CS", IBV_WR_ATOMIC_CMP_AND_SWP}, {"ATOMIC_FA", IBV_WR_ATOMIC_FETCH_AND_ADD},
	{"UMR", IBV_WR_DRIVER1}, {"MASKED_CS", IBV_WR_DRIVER1}, {"MASKED_FA", IBV_WR_DRIVER1}, {"SEND", IBV_WR_SEND}, {"TSO", IBV_WR_TSO},
};
enum { UMR = 8, MASKED_CS, MASKED_FA, PACKET, TSO };

static const struct { const char *name; enum ibv_qp_type type; uint32_t first, ops, requests; } types[] = {
	{"RC", IBV_QPT_RC, 0, 8, 450}, {"UC", IBV_QPT_UC, 0, 4, 180}, {"UD", IBV_QPT_UD, 0, 2, 200}, {"XRC", IBV_QPT_XRC_SEND, 0, 8, 200},
	{"DC", IBV_QPT_DRIVER, 0, 8, 220}, {"RC", IBV_QPT_RC, UMR, 3, 200}, {"RAW", IBV_QPT_RAW_PACKET, PACKET, 2, 120},
};
enum { DV = 5, RAW }; /* the first has the mlx5dv functions; the second wants Ethernet */
static struct mlx5dv_mkey *mkey;

/* To RTS, before which libmlx5 posts nothing; connected to itself */
static void qp_up(struct ibv_qp *qp, enum ibv_qp_type type)
{
	const int rc = type == IBV_QPT_RC, uc = type == IBV_QPT_UC, ud = type == IBV_QPT_UD, raw = type == IBV_QPT_RAW_PACKET,
		  path = rc || uc || type == IBV_QPT_XRC_SEND;
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .ah_attr = {.dlid = 1, .port_num = 1},
		.max_rd_atomic = 8, .max_dest_rd_atomic = 8, .min_rnr_timer = 1, .port_num = 1, .timeout = 14,
	};

	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT |
			    (raw ? 0 : IBV_QP_PKEY_INDEX) | (ud ? IBV_QP_QKEY : path ? IBV_QP_ACCESS_FLAGS : 0)));
	a.qp_state = IBV_QPS_RTR;
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | (ud || raw ? 0 : IBV_QP_PATH_MTU) | (path ? IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN : 0) |
			    (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)));
	a.qp_state = IBV_QPS_RTS;
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | (raw ? 0 : IBV_QP_SQ_PSN) |
			    (ud || uc || raw ? 0 : IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)));
}

static struct ibv_qp *qp_make(uint32_t t)
{
	const enum ibv_qp_type type = types[t].type;
	const uint32_t recv = type != IBV_QPT_XRC_SEND && type != IBV_QPT_DRIVER, by_ops = type == IBV_QPT_DRIVER || t == DV;
	struct ibv_qp_init_attr_ex a = {
		.send_cq = cq, .recv_cq = type == IBV_QPT_XRC_SEND ? NULL : cq, .qp_type = type, .pd = pd, .max_tso_header = 64,
		.comp_mask = IBV_QP_INIT_ATTR_PD | (by_ops ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : t == RAW ? IBV_QP_INIT_ATTR_MAX_TSO_HEADER : 0),
		.cap = {512, recv * 256, 4, recv * 4, t == DV ? 512 : 64},
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV |
				  IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
				  IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = t == DV ? MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS : MLX5DV_QP_INIT_ATTR_MASK_DC,
		.dc_init_attr = {.dc_type = MLX5DV_DCTYPE_DCI}, .send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_RAW_WQE,
	};
	struct ibv_qp *qp = by_ops ? mlx5dv_create_qp(ctx, &a, &dv) : ibv_create_qp_ex(ctx, &a);

	must(qp);
	qp_up(qp, type);
	return qp;
}

struct request {
	struct ibv_send_wr wr;
	struct ibv_sge sge[4];
	struct ibv_ah_attr path;
	struct ibv_ah *ah;
	uint8_t payload[64], seed;
	uint32_t number, qkey;  /* of the destination; of the memory key */
	uint64_t key, raddr, value[4];  /* swap, compare, their masks; or what to add, and the boundary */
	uint32_t op, rkey, access;
};

static void request_make(struct request *r, uint32_t t)
{
	struct ibv_send_wr *wr = &r->wr;
	uint32_t i, op = types[t].first + below(types[t].ops), atomic = op == 6 || op == 7, masked = op == MASKED_CS || op == MASKED_FA;
	uint64_t raddr = rnd(), a = rnd(), b = rnd();
	uint32_t rkey = (uint32_t)rnd(), flags = below(8);

	memset(r, 0, sizeof(*r));
	r->op = op;
	wr->opcode = ops[op].op;
	wr->send_flags = (flags & 1 ? IBV_SEND_SIGNALED : 0) | (flags & 2 ? IBV_SEND_SOLICITED : 0) | (flags & 4 ? IBV_SEND_FENCE : 0);
	wr->sg_list = r->sge;
	wr->num_sge = atomic ? 1 : (int)below(5);
	if (op == 1 || op == 3)
		wr->imm_data = htobe32((uint32_t)rnd());
	else if (op == 4)
		wr->invalidate_rkey = (uint32_t)rnd();
	for (i = 0; i < (uint32_t)wr->num_sge; i++) {
		r->sge[i].addr = rnd();
		r->sge[i].length = atomic ? 8 : 1 + (uint32_t)(rnd() >> 33 >> below(31)) % 0x7fffffff;
		r->sge[i].lkey = (uint32_t)rnd();
	}
	r->seed = (uint8_t)rnd();
	for (i = 0; i < sizeof(r->payload); i++)
		r->payload[i] = (uint8_t)(r->seed + 7 * i);
	if (op < 5 && below(2)) {
		wr->send_flags |= IBV_SEND_INLINE;
		wr->num_sge = 1;
		r->sge[0].addr = (uintptr_t)r->payload;
		r->sge[0].length = below(65);
	}
	if (atomic)
		wr->wr = (__typeof__(wr->wr)){.atomic = {raddr, a, op == 6 ? b : 0, rkey}};
	else
		wr->wr = (__typeof__(wr->wr)){.rdma = {raddr, rkey}};
	r->raddr = raddr;
	r->rkey = rkey;
	r->number = (uint32_t)rnd() & 0xffffff;
	r->qkey = (uint32_t)rnd() & 0x7fffffff;
	r->key = rnd();
	if (t >= DV) {
		wr->num_sge = masked ? 1 : 1 + (int)below(4);
		r->access = below(16);
		for (i = 0; i < 4; i++) {
			r->value[i] = rnd() >> (a & 1 ? 0 : 32);
			r->sge[i] = (struct ibv_sge){rnd(), masked ? a & 1 ? 8 : 4 : 1 + below(0xffff), (uint32_t)rnd()};
		}
		if (t == RAW && b & 1)
			wr->send_flags |= IBV_SEND_IP_CSUM;
		if (op == TSO)
			wr->tso = (__typeof__(wr->tso)){r->payload, (uint16_t)(14 + below(51)), (uint16_t)(64 + below(8937))};
	}
	if (types[t].type == IBV_QPT_XRC_SEND)
		wr->qp_type.xrc.remote_srqn = r->number;
	if (types[t].type != IBV_QPT_UD && types[t].type != IBV_QPT_DRIVER)
		return;
	r->path.port_num = 1;
	r->path.sl = (uint8_t)below(16);
	r->path.dlid = (uint16_t)rnd();
	r->path.src_path_bits = (uint8_t)below(128);
	r->path.is_global = (uint8_t)below(2);
	if (r->path.is_global) {
		r->path.grh.traffic_class = (uint8_t)rnd();
		r->path.grh.hop_limit = (uint8_t)rnd();
		r->path.grh.flow_label = below(1 << 20);
		for (i = 0; i < 16; i++)
			r->path.grh.dgid.raw[i] = (uint8_t)rnd();
	}
	r->ah = ibv_create_ah(pd, &r->path);
	must(r->ah);
	if (types[t].type == IBV_QPT_UD) {
		wr->wr.ud.ah = r->ah;
		wr->wr.ud.remote_qpn = r->number;
		wr->wr.ud.remote_qkey = r->qkey;
	}
}

/* DC has the newer interface only */
static void post_dc(struct ibv_qp *qp, struct request *r)
{
	struct ibv_qp_ex *q = ibv_qp_to_qp_ex(qp);
	const struct ibv_send_wr *wr = &r->wr;

	ibv_wr_start(q);
	q->wr_flags = wr->send_flags;
	switch (wr->opcode) {
	case IBV_WR_SEND: ibv_wr_send(q); break;
	case IBV_WR_SEND_WITH_IMM: ibv_wr_send_imm(q, wr->imm_data); break;
	case IBV_WR_SEND_WITH_INV: ibv_wr_send_inv(q, wr->invalidate_rkey); break;
	case IBV_WR_RDMA_WRITE: ibv_wr_rdma_write(q, r->rkey, r->raddr); break;
	case IBV_WR_RDMA_WRITE_WITH_IMM: ibv_wr_rdma_write_imm(q, r->rkey, r->raddr, wr->imm_data); break;
	case IBV_WR_RDMA_READ: ibv_wr_rdma_read(q, r->rkey, r->raddr); break;
	case IBV_WR_ATOMIC_CMP_AND_SWP: ibv_wr_atomic_cmp_swp(q, r->rkey, r->raddr, wr->wr.atomic.compare_add, wr->wr.atomic.swap); break;
	default: ibv_wr_atomic_fetch_add(q, r->rkey, r->raddr, wr->wr.atomic.compare_add);
	}
	mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(q), r->ah, r->number, r->key);
	if (wr->send_flags & IBV_SEND_INLINE)
		ibv_wr_set_inline_data(q, r->payload, r->sge[0].length);
	else
		ibv_wr_set_sge_list(q, (size_t)wr->num_sge, r->sge);
	must(!ibv_wr_complete(q));
}

/* What libmlx5 has in mlx5dv only. To a masked atomic it adds the index and the queue pair */
static void post_dv(struct ibv_qp *qp, struct request *r)
{
	struct mlx5dv_qp_ex *q = mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(qp));
	const uint32_t flags = r->wr.send_flags, size = r->sge[0].length, n = r->op == UMR ? 0 : r->op == MASKED_CS ? 4 : 2, ds = 3 + (n * size + 15) / 16;
	uint8_t wqe[128] = {[0] = size == 8 ? 9 : 8, [3] = r->op == MASKED_CS ? 0x14 : 0x15, [7] = (uint8_t)ds};

	ibv_wr_start(ibv_qp_to_qp_ex(qp));
	ibv_qp_to_qp_ex(qp)->wr_flags = flags | IBV_SEND_INLINE;
	mkey->lkey = r->number;
	wqe[11] = (flags & IBV_SEND_SIGNALED ? 8 : 0) | (flags & IBV_SEND_SOLICITED ? 2 : 0) | (flags & IBV_SEND_FENCE ? 128 : 0);
	put(wqe + 16, r->raddr, 8);
	put(wqe + 24, r->rkey, 4);
	for (uint32_t i = 0; i < n; i++)
		put(wqe + 32 + i * size, r->value[i], size);
	mlx5dv_set_data_seg((struct mlx5_wqe_data_seg *)(void *)(wqe + 16 * ds - 16), size, r->sge[0].lkey, r->sge[0].addr);
	if (r->op == UMR)
		mlx5dv_wr_mr_list(q, mkey, r->access, (uint16_t)r->wr.num_sge, r->sge);
	else
		mlx5dv_wr_raw_wqe(q, wqe);
	must(!ibv_wr_complete(ibv_qp_to_qp_ex(qp)));
}

static void meaning(const struct request *r, uint32_t t, uint32_t index, uint32_t qpn)
{
	const struct ibv_send_wr *wr = &r->wr;
	const struct ibv_global_route *g = &r->path.grh;
	static int after_umr;   /* then libmlx5 puts the weakest fence */
	uint32_t i, k = r->op, masked = k == MASKED_CS || k == MASKED_FA;

	printf("wqe qp=%s op=%s index=%u qpn=0x%x signaled=%d solicited=%d fence=%d", types[t].name, ops[k].name, index, qpn,
	       !!(wr->send_flags & IBV_SEND_SIGNALED), !!(wr->send_flags & IBV_SEND_SOLICITED), !!(wr->send_flags & IBV_SEND_FENCE));
	if (k == 1 || k == 3)
		printf(" imm=0x%x", be32toh(wr->imm_data));
	if (k == 4)
		printf(" invalidate=0x%x", wr->invalidate_rkey);
	if (types[t].type == IBV_QPT_XRC_SEND)
		printf(" srqn=0x%x", r->number);
	if (types[t].type == IBV_QPT_UD)
		printf(" to_qpn=0x%x qkey=0x%x", r->number, r->qkey);
	if (types[t].type == IBV_QPT_DRIVER)
		printf(" to_dctn=0x%x dc_key=0x%" PRIx64, r->number, r->key);
	if (r->ah)
		printf(" sl=%u dlid=%u path_bits=%u", r->path.sl, r->path.dlid, r->path.src_path_bits);
	if (r->path.is_global) {
		printf(" tclass=%u hops=%u flow=0x%x gid=", g->traffic_class, g->hop_limit, g->flow_label);
		for (i = 0; i < 16; i++)
			printf("%02x", g->dgid.raw[i]);
	}
	if (k == 2 || k == 3 || (k >= 5 && k < UMR) || masked)
		printf(" raddr=0x%" PRIx64 " rkey=0x%x", r->raddr, r->rkey);
	if (k == 6)
		printf(" compare=0x%" PRIx64 " swap=0x%" PRIx64, wr->wr.atomic.compare_add, wr->wr.atomic.swap);
	if (k == 7)
		printf(" add=0x%" PRIx64, wr->wr.atomic.compare_add);
	if (k == UMR)
		printf(" mkey=0x%x access=0x%x small_fence=%d", r->number, r->access, after_umr && !(wr->send_flags & IBV_SEND_FENCE));
	after_umr = k == UMR;
	for (i = 0; masked && i < (k == MASKED_CS ? 4 : 2); i++)
		printf(" %s=0x%" PRIx64, (const char *[]){"swap", "compare", "swap_mask", "compare_mask", "add", "boundary"}
		       [i + (k == MASKED_FA ? 4 : 0)], r->value[i]);
	if (t == RAW)
		printf(" checksums=%d", !!(wr->send_flags & IBV_SEND_IP_CSUM));
	if (k == TSO)
		printf(" mss=%u header=%u@%u", wr->tso.mss, wr->tso.hdr_sz, r->seed);
	if (wr->send_flags & IBV_SEND_INLINE)
		printf(" inline=%u@%u", r->sge[0].length, r->seed);
	for (i = 0; !(wr->send_flags & IBV_SEND_INLINE) && i < (uint32_t)wr->num_sge; i++)
		printf("%s0x%" PRIx64 ":%u:0x%x", i ? "," : " sge=", r->sge[i].addr, r->sge[i].length, r->sge[i].lkey);
}

static void sends(uint32_t t)
{
	struct ibv_qp *qp[2];
	struct mlx5dv_qp dv[2];
	struct ibv_send_wr *bad;
	static const uint8_t none[8];
	uint8_t wqe[2][1024], reg[2][8];
	const uint32_t qpn = 0x10203 + t, number = htobe32(qpn << 8);
	uint32_t i, k, n, at = 0, bytes_of_wqe, next;
	struct request r;

	for (k = 0; k < 2; k++) {
		qp[k] = qp_make(t);
		dv[k] = view(qp[k]);
		memset(dv[k].sq.buf, k ? 0xff : 0, dv[k].sq.wqe_cnt * 64);
	}
	for (n = 0; n < types[t].requests; n++, at = next) {
		request_make(&r, t);
		for (k = 0; k < 2; k++) {
			memset(dv[k].bf.reg, 0, 2 * dv[k].bf.size);
			if (types[t].type == IBV_QPT_DRIVER)
				post_dc(qp[k], &r);
			else if (t == DV)
				post_dv(qp[k], &r);
			else
				must(!ibv_post_send(qp[k], &r.wr, &bad));
			for (i = 0; i < sizeof(wqe[k]); i++)
				wqe[k][i] = ((uint8_t *)dv[k].sq.buf)[(at * 64 + i) & (dv[k].sq.wqe_cnt * 64 - 1)];
			for (i = 0; i < 2; i++) /* one half of the register was written to */
				if (memcmp((uint8_t *)dv[k].bf.reg + i * dv[k].bf.size, none, 8))
					memcpy(reg[k], (uint8_t *)dv[k].bf.reg + i * dv[k].bf.size, 8);
			memcpy(wqe[k] + 4, &number, 3); /* their own numbers */
			memcpy(reg[k] + 4, &number, 3);
		}
		bytes_of_wqe = (wqe[0][7] & 0x3fu) * 16;
		next = at + (bytes_of_wqe + 63) / 64;
		meaning(&r, t, at, qpn);
		bytes(" bytes=", wqe[0], wqe[1], bytes_of_wqe);
		printf("\n");
		must(be32toh(dv[0].dbrec[MLX5_SND_DBR]) == next);
		if (n % 4 == 0) {
			printf("doorbell queue=send next=%u", next);
			bytes(" record=", (uint8_t *)&dv[0].dbrec[MLX5_SND_DBR], (uint8_t *)&dv[1].dbrec[MLX5_SND_DBR], 4);
			bytes(" register=", reg[0], reg[1], 8);
			printf("\n");
		}
		if (r.ah)
			must(!ibv_destroy_ah(r.ah));
	}
	must(!ibv_destroy_qp(qp[0]) && !ibv_destroy_qp(qp[1]));
}

/* ---- Receives ---- */

/* shared: of an SRQ, whose entries libmlx5 has linked when it made the ring */
static void receives(int shared)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 255, .max_sge = 3}};
	struct ibv_srq *srq[2] = {NULL, NULL};
	struct ibv_qp *qp[2] = {NULL, NULL};
	struct ibv_recv_wr wr, *bad;
	struct ibv_sge sge[4];
	uint32_t i, k, n, stride = 0, link = shared ? 16 : 0;
	uint8_t *ring[2];
	__be32 *record[2];

	for (k = 0; k < 2; k++) {
		if (shared) {
			struct mlx5dv_srq dv = {.comp_mask = 0};

			srq[k] = ibv_create_srq(pd, &attr);
			must(srq[k] && !mlx5dv_init_obj(&(struct mlx5dv_obj){.srq = {srq[k], &dv}}, MLX5DV_OBJ_SRQ));
			ring[k] = dv.buf, record[k] = dv.dbrec, stride = dv.stride;
		} else {
			struct mlx5dv_qp dv = view(qp[k] = qp_make(0));

			ring[k] = dv.rq.buf, record[k] = &dv.dbrec[MLX5_RCV_DBR], stride = dv.rq.stride;
		}
		for (n = 0; n < 256; n++)
			memset(ring[k] + n * stride + link, k ? 0xff : 0, stride - link);
	}
	for (n = 0; n < 150; n++) {
		memset(&wr, 0, sizeof(wr));
		wr.sg_list = sge;
		wr.num_sge = (int)below(shared ? 4 : 5);
		printf("%s index=%u room=%u", shared ? "shared" : "receive", n, (stride - link) / 16);
		if (shared)
			printf(" next=%u", n + 1);
		for (i = 0; i < (uint32_t)wr.num_sge; i++) {
			sge[i].addr = rnd();
			sge[i].length = 1 + below(0x7fffffff);
			sge[i].lkey = (uint32_t)rnd();
			printf("%s0x%" PRIx64 ":%u:0x%x", i ? "," : " sge=", sge[i].addr, sge[i].length, sge[i].lkey);
		}
		for (k = 0; k < 2; k++)
			must(!(shared ? ibv_post_srq_recv(srq[k], &wr, &bad) : ibv_post_recv(qp[k], &wr, &bad)));
		bytes(" bytes=", ring[0] + n * stride, ring[1] + n * stride, stride);
		printf("\n");
		if (n % 4)
			continue;
		printf("doorbell queue=receive next=%u", n + 1);
		bytes(" record=", (uint8_t *)record[0], (uint8_t *)record[1], 4);
		printf("\n");
	}
	for (k = 0; k < 2; k++)
		must(!(shared ? ibv_destroy_srq(srq[k]) : ibv_destroy_qp(qp[k])));
}

/* ---- Completions ---- */

static uint8_t *slot(const struct mlx5dv_cq *dv, uint32_t index)
{
	return (uint8_t *)dv->buf + (size_t)(index & (dv->cqe_cnt - 1)) * dv->cqe_size;
}

/* The number by which CQEs name a QP: of its flush in the state ERR */
static uint32_t uidx_of(struct ibv_qp *qp, const struct mlx5dv_cq *dv, uint32_t index)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_wc wc;
	uint32_t be;

	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	must(!ibv_post_send(qp, &wr, &bad));
	softdev_run();
	memcpy(&be, slot(dv, index) + 32, 4);
	must(ibv_poll_cq(cq, 1, &wc) == 1 && wc.status == IBV_WC_WR_FLUSH_ERR);
	return be32toh(be) & 0xffffff;
}

static void completions(void)
{
	static const uint8_t opcodes[] = {0, 0, 0, 0, 1, 2, 3, 4, 13, 14}, sent[] = {1, 8, 9, 10, 11, 16, 17, 18};
	static const uint8_t syndromes[] = {1, 2, 4, 5, 6, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x22};
	struct ibv_qp *qp = qp_make(0);
	struct mlx5dv_cq dv = {.comp_mask = 0};
	uint32_t n, i, opcode, solicited, uidx;
	struct ibv_wc wc;
	uint8_t cqe[64], *page;

	must(!mlx5dv_init_obj(&(struct mlx5dv_obj){.cq = {cq, &dv}}, MLX5DV_OBJ_CQ));
	page = (uint8_t *)dv.cq_uar + 0x20;
	uidx = uidx_of(qp, &dv, 0);
	for (n = 1; n <= 400; n++) {
		for (i = 0; i < 64; i += 8)
			put(cqe + i, rnd(), 8);
		opcode = opcodes[below(sizeof(opcodes))];
		put(cqe + 32, uidx, 4);
		put(cqe + 56, sent[below(sizeof(sent))], 1);
		put(cqe + 57, qp->qp_num, 3);
		put(cqe + 60, 0, 2);
		put(cqe + 63, opcode << 4, 1);
		if (opcode >= 13)
			put(cqe + 55, syndromes[below(sizeof(syndromes))], 1);
		must(softdev_inject_cqes(dv.cqn, cqe, 1, 0) == 1);
		memcpy(cqe, slot(&dv, n), 64);
		memset(&wc, 0, sizeof(wc));
		must(ibv_poll_cq(cq, 1, &wc) == 1);
		put(cqe + 32, 0, 4); /* libmlx5's and the device's own numbers */
		put(cqe + 57, 0x10203, 3);
		printf("cqe index=%u entries=%u status=%d", n, dv.cqe_cnt, wc.status);
		if (wc.status)
			printf(" vendor=0x%x", wc.vendor_err);
		else
			printf(" opcode=%d", wc.opcode);
		if (!wc.status && (opcode || cqe[56] >= 16))
			printf(" bytes_moved=%u", wc.byte_len);
		if (!wc.status && opcode)
			printf(" source=0x%x grh=%d slid=%u sl=%u path_bits=%u", wc.src_qp, !!(wc.wc_flags & IBV_WC_GRH), wc.slid, wc.sl,
			       wc.dlid_path_bits);
		if (!wc.status && opcode && wc.wc_flags & IBV_WC_WITH_IMM)
			printf(" imm=0x%x", be32toh(wc.imm_data));
		if (!wc.status && wc.wc_flags & IBV_WC_WITH_INV)
			printf(" invalidated=0x%x", wc.invalidated_rkey);
		bytes(" bytes=", cqe, cqe, 64);
		printf("\n");
		if (n % 4)
			continue;
		printf("doorbell queue=completion next=%u", n + 1);
		bytes(" record=", (uint8_t *)&dv.dbrec[0], (uint8_t *)&dv.dbrec[0], 4);
		printf("\n");
		if (n % 8)
			continue;
		solicited = below(2);
		memset(page, 0, 8);
		must(!ibv_req_notify_cq(cq, (int)solicited));
		put(page + 4, 0x30201, 4);
		printf("doorbell queue=arm next=%u solicited=%u cqn=0x30201", n + 1, solicited);
		bytes(" record=", (uint8_t *)&dv.dbrec[1], (uint8_t *)&dv.dbrec[1], 4);
		bytes(" register=", page, page, 8);
		printf("\n");
	}
	must(!ibv_destroy_qp(qp));
}

/* An argument asks for packets alone: on Ethernet */
int main(int argc, char **argv)
{
	struct ibv_device **list;

	setenv("MLX5_DEBUG_FILE", "/dev/null", 0);
	must(softdev_present() && !softdev_manual(1));
	list = ibv_get_device_list(NULL);
	must(list && list[0]);
	ctx = ibv_open_device(list[0]);
	must(ctx);
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 63, NULL, NULL, 0);
	must(pd && cq);
	mkey = mlx5dv_create_mkey(&(struct mlx5dv_mkey_init_attr){pd, MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 16});
	must(mkey);
	if (argc > 1 && argv[1]) {
		sends(RAW);
	} else {
		printf("# SPDX-License-Identifier: BSD-3-Clause\n# Golden bytes of mlx5: README.md. Written by golden.c through libmlx5.\n");
		completions();
		for (uint32_t t = 0; t < DV; t++)
			sends(t);
		receives(0);
		sends(DV);
		receives(1);
	}
	mkey->lkey = mkey->rkey;
	must(!mlx5dv_destroy_mkey(mkey) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(ctx));
	return 0;
}
