/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * twins.c: what inlay writes beside what libmlx5 writes, on a device that executes it. The oracles (oracle.h) compare far more, on the
 * software device, which can be kept from executing; this program asks the same of any device, in a few hundred requests.
 *
 * The twins are three queue pairs that are made alike. The same request goes to each in turn, from the same memory to the same memory: by
 * libmlx5 to one whose ring was filled with 00, by libmlx5 to one with ff, and by inlay. Each must complete and move the data. Then the
 * WQEs must be the same, where both of libmlx5's are, and so must the doorbell records.
 */
#include "common.h"

#define AREA 4096u      /* bytes of each of the areas: source, target, results */
#define ROUNDS 3u       /* with other flags each */
#define IMM 0x01020304u

enum op { SEND, SEND_IMM, WRITE, WRITE_IMM, READ, CAS, FAA, OPS };

static const enum ibv_wr_opcode verb[OPS] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
					     IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};

struct request {
	uint32_t op, len, round;
	uint32_t pieces;        /* SGEs, 0: inline */
	struct ibv_sge sge[4];
	uint32_t num;
	uint64_t remote;
};

struct twin {
	struct end end, peer;   /* a datagram's is the first one's */
	uint8_t *ring;
	uint32_t *record;
};

static struct twin twins[3];

static struct inlay_uar uar;
static struct ibv_ah *ah;
static struct inlay_av av;
static struct ibv_mr *mr;
static uint8_t *source, *target, *result;
static uint32_t ring_bytes;
static uint64_t wqes, bytes;

static void by_libmlx5(struct twin *t, struct request *r)
{
	struct ibv_send_wr wr = {
		.sg_list = r->sge, .num_sge = (int)r->num, .opcode = verb[r->op], .imm_data = IMM,
	}, *bad;

	wr.send_flags = IBV_SEND_SIGNALED | (r->pieces ? 0 : IBV_SEND_INLINE) | (r->round == 1 ? IBV_SEND_SOLICITED : 0) |
			(r->round == 2 ? IBV_SEND_FENCE : 0);
	if (ah) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = twins[0].peer.qp->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	} else if (r->op >= CAS) {
		wr.wr.atomic.remote_addr = r->remote;
		wr.wr.atomic.rkey = mr->rkey;
		wr.wr.atomic.compare_add = 5;
		wr.wr.atomic.swap = r->op == CAS ? 9 : 0;
	} else {
		wr.wr.rdma.remote_addr = r->remote;
		wr.wr.rdma.rkey = mr->rkey;
	}
	must(ibv_post_send(t->end.qp, &wr, &bad));
}

static void by_inlay(struct twin *t, struct request *r)
{
	const uint32_t flags = INLAY_SIGNALED | (r->pieces ? 0 : INLAY_INLINE) | (r->round == 1 ? INLAY_SOLICITED : 0) |
			       (r->round == 2 ? INLAY_FENCE_SMALL_AND_FENCE : 0);
	struct inlay_sq *sq = &t->end.sq;
	const struct ibv_sge *sge = r->sge;
	const uint32_t n = r->num, rkey = mr->rkey;

	switch (r->op) {
	case SEND: must(ah ? wr_post(sq, MLX5_OPCODE_SEND, wr_to(wr_sge(sge, n), &av), flags) : inlay_post_send(sq, sge, n, flags)); break;
	case SEND_IMM: must(ah ? wr_post(sq, MLX5_OPCODE_SEND_IMM, wr_imm(wr_to(wr_sge(sge, n), &av), IMM), flags) : wr_post(sq, MLX5_OPCODE_SEND_IMM, wr_imm(wr_sge(sge, n), IMM), flags)); break;
	case WRITE: must(inlay_post_write(sq, r->remote, rkey, sge, n, flags)); break;
	case WRITE_IMM: must(wr_post(sq, MLX5_OPCODE_RDMA_WRITE_IMM, wr_imm(wr_at(wr_sge(sge, n), r->remote, rkey), IMM), flags)); break;
	case READ: must(inlay_post_read(sq, r->remote, rkey, sge, n, flags)); break;
	case CAS: must(wr_atomic(sq, inlay_atomic_cmp_swap(5, 9), wr_at(wr_sge(sge, 1), r->remote, rkey), flags)); break;
	default: must(wr_atomic(sq, inlay_atomic_add(5), wr_at(wr_sge(sge, 1), r->remote, rkey), flags));
	}
	inlay_sq_ring(sq);
}

static struct ibv_wc completes(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	await(ibv_poll_cq(cq, 1, &wc) != 0);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	return wc;
}

/* By one of the twins, from an empty ring to a full target: nothing is outstanding, the device reads the ring when it is rung for */
static void move(uint32_t i, struct request *r)
{
	struct ibv_sge all = {(uintptr_t)target, AREA, mr->lkey};
	const uint32_t header = ah ? 40 : 0;
	const uint64_t five = 5, after = r->op == CAS ? 9 : 10;
	struct twin *t = &twins[i], *to = ah ? &twins[0] : t;
	struct ibv_recv_wr wr = {.sg_list = &all, .num_sge = 1}, *bad;
	struct ibv_wc wc;

	fill(source, AREA, 1 + r->len);
	memset(target, 0x33, AREA);
	if (r->op >= CAS)
		memcpy(target, &five, 8);
	memset(t->ring, i == 0 ? 0 : i == 1 ? 0xff : 0xa5, ring_bytes);
	if (r->op <= WRITE_IMM && r->op != WRITE)
		must(ibv_post_recv(to->peer.qp, &wr, &bad));
	if (i < 2) {
		by_libmlx5(t, r);
		completes(t->end.scq);
	} else {
		by_inlay(t, r);
		sent(&t->end);
	}
	if (r->op <= WRITE_IMM && r->op != WRITE) {
		wc = completes(to->peer.rcq);
		assert_true(r->op == SEND || wc.imm_data == IMM);
		assert_true(r->op == WRITE_IMM || wc.byte_len == r->len + header);
	}
	if (r->op >= CAS) {
		assert_memory_equal(target, &after, 8);
		assert_memory_equal(result, &five, 8);
		return;
	}
	assert_int_equal(differs(target + header, r->len, 1 + r->len), r->len);
	assert_true(all_bytes(target + header + r->len, AREA - header - r->len, 0x33));
}

static void run(struct request *r)
{
	uint32_t i, k, n = r->pieces ? r->pieces : 1, from = inlay_sq_index(&twins[2].end.sq) * 64 & (ring_bytes - 1), at;

	for (r->num = i = 0; i < n; i++, r->num++) {
		at = i * (r->len / n);
		r->sge[i].addr = (uintptr_t)(r->op == READ ? target : r->op >= CAS ? result : source) + at;
		r->sge[i].length = i + 1 < n ? r->len / n : r->len - at;
		r->sge[i].lkey = mr->lkey;
	}
	r->remote = (uintptr_t)(r->op == READ ? source : target);
	for (i = 0; i < 3; i++)
		move(i, r);
	for (k = 0; k < (twins[2].ring[from + 7] & 0x3fu) * 16; k++, bytes++) {
		at = (from + k) & (ring_bytes - 1);
		for (i = 0; i < 3 && k >= 4 && k < 7; i++) /* its own number */
			assert_int_equal(twins[i].ring[at], twins[i].end.qp->qp_num >> 8 * (6 - k) & 0xff);
		if ((k < 4 || k >= 7) && twins[0].ring[at] == twins[1].ring[at] && twins[0].ring[at] != twins[2].ring[at])
			fail_msg("op %u, %u bytes in %u pieces: byte %u is 0x%02x, of libmlx5 0x%02x", r->op, r->len, r->pieces, k,
				 twins[2].ring[at], twins[0].ring[at]);
	}
	for (i = 0; i < 2; i++)
		assert_int_equal(twins[i].record[MLX5_SND_DBR], twins[2].record[MLX5_SND_DBR]);
	assert_int_equal(inlay_from_be32(twins[2].record[MLX5_SND_DBR]) & 0xffff, inlay_sq_index(&twins[2].end.sq) & 0xffff);
	wqes++;
}

static void twins_of(enum ibv_qp_type type, const char *name)
{
	static const uint32_t lens[] = {1, 8, 16, 28, 29, 32, 44, 60, 64, 100, 128, 500, 1024};
	const uint32_t ops = type == IBV_QPT_UD ? SEND_IMM + 1 : type == IBV_QPT_UC ? READ : dev.attr.atomic_cap ? OPS : CAS;
	struct ibv_ah_attr path = own_path();
	struct opt opt = usual;
	struct request r;

	source = (uint8_t *)pages(3 * AREA);
	target = source + AREA;
	result = target + AREA;
	mr = made(ibv_reg_mr(dev.pd, source, 3 * AREA, ALL_ACCESS));
	opt.type = type;
	opt.bytes = 4096;
	opt.cap.max_send_wr = 16;
	must(inlay_uar_create(&uar, dev.pd, INLAY_UAR_SERIAL, NULL));
	for (uint32_t i = 0; i < 3; i++) {
		struct mlx5dv_qp dv;

		opt.pd = i == 2 ? uar.pd : NULL;
		end_make(&twins[i].end, &opt);
		opt.pd = NULL;
		end_make(&twins[i].peer, &opt);
		ends_connect(&twins[i].end, &twins[i].peer);
		dv = view_qp(twins[i].end.qp);
		twins[i].ring = (uint8_t *)dv.sq.buf;
		twins[i].record = (uint32_t *)dv.dbrec;
		assert_true(!i || ring_bytes == dv.sq.wqe_cnt * 64);
		ring_bytes = dv.sq.wqe_cnt * 64;
	}
	must(inlay_cq_from_cq(&twins[2].end.cq, twins[2].end.scq, NULL));
	must(inlay_sq_from_qp(&twins[2].end.sq, twins[2].end.qp, &uar, &twins[2].end.cq, NULL));
	if (type == IBV_QPT_UD) {
		ah = made(ibv_create_ah(dev.pd, &path));
		must(inlay_av_from_ah(&av, ah, twins[0].peer.qp->qp_num, QKEY));
	}
	wqes = bytes = 0;
	for (r.round = 0; r.round < ROUNDS; r.round++)
		for (uint32_t l = 0; l < ARRAY(lens); l++)
			for (r.op = 0; r.op < ops && (r.op < CAS || !l); r.op++)
				for (r.len = r.op >= CAS ? 8 : lens[l], r.pieces = r.op >= READ; r.pieces <= (r.op >= CAS ? 1u : 3u); r.pieces++)
					if (r.pieces ? r.len >= r.pieces : r.len <= usual.cap.max_inline_data)
						run(&r);
	print_message("# %s: %llu WQEs and records are libmlx5's, %llu bytes\n", name, (unsigned long long)wqes, (unsigned long long)bytes);
	if (ah)
		must(ibv_destroy_ah(ah));
	ah = NULL;
	must(ibv_destroy_qp(twins[2].end.qp));
	twins[2].end.qp = NULL;
	inlay_sq_fini(&twins[2].end.sq);
	for (uint32_t i = 0; i < 3; i++) {
		end_free(&twins[i].end);
		end_free(&twins[i].peer);
	}
	must(inlay_uar_destroy(&uar, NULL));
	must(ibv_dereg_mr(mr));
	free(source);
}

TEST(types)
{
	twins_of(IBV_QPT_RC, "RC");
	twins_of(IBV_QPT_UC, "UC");
	twins_of(IBV_QPT_UD, "UD");
}

int main(void)
{
	return run_all(dev_open, dev_close);
}
