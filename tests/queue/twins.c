/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * twins.c: what inlay writes beside what libmlx5 writes, on a device that executes it. The oracles
 * (oracle.h) compare far more, on the software device, which can be kept from executing; this program
 * asks the same of any device, in a few hundred requests.
 *
 * The twins are three queue pairs that are made alike. The same request goes to each in turn, from the
 * same memory to the same memory: by libmlx5 to one whose ring was filled with 00, by libmlx5 to one
 * with ff, and by inlay. Each must complete and move the data. Then the WQEs must be the same, where
 * both of libmlx5's are, and so must the doorbell records.
 */
#include "common.h"

#define AREA 4096u      /* bytes of each of the areas: source, target, results */
#define ROUNDS 3u       /* with other flags each */

enum op { SEND, SEND_IMM, WRITE, WRITE_IMM, READ, CAS, FAA, OPS };

static const enum ibv_wr_opcode verb[OPS] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
					     IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};

struct request {
	enum op op;
	uint32_t len, pieces;   /* bytes; SGEs, 0: inline */
	uint32_t round;
};

struct twin {
	struct end end, peer;   /* a datagram's is the first one's */
	uint8_t *ring;
	volatile uint32_t *record;
	uint32_t bbs;           /* WQEBBs of the ring */
};

static struct twin twins[3];
static struct inlay_uar uar;
static struct ibv_ah *ah;
static struct inlay_av av;
static struct ibv_mr *mr;
static uint8_t *memory;
static uint64_t wqes, bytes;

#define SOURCE memory
#define TARGET (memory + AREA)
#define RESULT (memory + 2 * AREA)
#define HEADER (ah ? 40u : 0u) /* in front of a datagram */

static uint32_t gather(const struct request *r, struct ibv_sge *sge)
{
	uint32_t n = r->pieces ? r->pieces : 1, i, at = 0;

	for (i = 0; i < n; i++) {
		uint32_t len = i + 1 < n ? r->len / n : r->len - at;

		sge[i].addr = (uintptr_t)(r->op == READ ? TARGET : r->op >= CAS ? RESULT : SOURCE) + at;
		sge[i].length = len;
		sge[i].lkey = mr->lkey;
		at += len;
	}
	return n;
}

static uint64_t remote(const struct request *r)
{
	return (uintptr_t)(r->op == READ ? SOURCE : TARGET);
}

static void polled(struct ibv_cq *cq, struct ibv_wc *wc)
{
	int n;

	await((n = ibv_poll_cq(cq, 1, wc)) != 0);
	assert_int_equal(n, 1);
	assert_int_equal(wc->status, IBV_WC_SUCCESS);
}

static void by_libmlx5(struct twin *t, const struct request *r)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge[4];
	struct ibv_wc wc;

	memset(&wr, 0, sizeof(wr));
	wr.num_sge = (int)gather(r, sge);
	wr.sg_list = sge;
	wr.opcode = verb[r->op];
	wr.imm_data = 0x01020304;
	wr.send_flags = IBV_SEND_SIGNALED | (r->pieces ? 0 : IBV_SEND_INLINE) | (r->round == 1 ? IBV_SEND_SOLICITED : 0) |
			(r->round == 2 ? IBV_SEND_FENCE : 0);
	if (ah) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = twins[0].peer.qp->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	} else if (r->op >= CAS) {
		wr.wr.atomic.remote_addr = remote(r);
		wr.wr.atomic.rkey = mr->rkey;
		wr.wr.atomic.compare_add = 5;
		wr.wr.atomic.swap = r->op == CAS ? 9 : 0;
	} else {
		wr.wr.rdma.remote_addr = remote(r);
		wr.wr.rdma.rkey = mr->rkey;
	}
	must(ibv_post_send(t->end.qp, &wr, &bad));
	polled(t->end.scq, &wc);
}

static void by_inlay(struct twin *t, const struct request *r)
{
	const uint32_t flags = INLAY_SIGNALED | (r->pieces ? 0 : INLAY_INLINE) | (r->round == 1 ? INLAY_SOLICITED : 0) |
			       (r->round == 2 ? INLAY_FENCE_SMALL_AND_FENCE : 0);
	const uint32_t imm = 0x01020304;
	struct inlay_sq *sq = &t->end.sq;
	struct ibv_sge sge[4];
	uint32_t n = gather(r, sge);

	switch (r->op) {
	case SEND: must(ah ? inlay_post_ud_send(sq, &av, sge, n, flags) : inlay_post_send(sq, sge, n, flags)); break;
	case SEND_IMM: must(ah ? inlay_post_ud_send_imm(sq, &av, imm, sge, n, flags) : inlay_post_send_imm(sq, imm, sge, n, flags)); break;
	case WRITE: must(inlay_post_write(sq, remote(r), mr->rkey, sge, n, flags)); break;
	case WRITE_IMM: must(inlay_post_write_imm(sq, remote(r), mr->rkey, imm, sge, n, flags)); break;
	case READ: must(inlay_post_read(sq, remote(r), mr->rkey, sge, n, flags)); break;
	case CAS: must(inlay_post_cmp_swap(sq, remote(r), mr->rkey, 5, 9, sge, flags)); break;
	default: must(inlay_post_fetch_add(sq, remote(r), mr->rkey, 5, sge, flags));
	}
	inlay_sq_ring(sq);
	sent(&t->end);
}

/* A receive at the peer, for what takes one */
static void receive(struct twin *t)
{
	struct ibv_sge sge = {(uintptr_t)TARGET, AREA, mr->lkey};
	struct ibv_recv_wr wr, *bad;

	memset(&wr, 0, sizeof(wr));
	wr.sg_list = &sge;
	wr.num_sge = 1;
	must(ibv_post_recv(t->peer.qp, &wr, &bad));
}

static void received(struct twin *t, const struct request *r)
{
	struct ibv_wc wc;

	polled(t->peer.rcq, &wc);
	if (r->op != SEND)
		assert_int_equal(wc.imm_data, 0x01020304);
	if (r->op != WRITE_IMM)
		assert_int_equal(wc.byte_len, r->len + HEADER);
}

static void run(const struct request *r)
{
	const uint8_t fill_with[3] = {0x00, 0xff, 0xa5};
	const bool takes = r->op <= WRITE_IMM && r->op != WRITE;
	uint32_t i, j, from = inlay_sq_index(&twins[2].end.sq), ds;
	uint64_t word = 5;

	for (i = 0; i < 3; i++) {
		struct twin *t = &twins[i], *to = ah ? &twins[0] : t;

		fill(SOURCE, AREA, 1 + r->len);
		memset(TARGET, 0x33, AREA);
		if (r->op >= CAS)
			memcpy(TARGET, &word, 8);
		/* Nothing is outstanding: the device reads the ring when it is rung for */
		memset(t->ring, fill_with[i], t->bbs * 64);
		if (takes)
			receive(to);
		if (i < 2)
			by_libmlx5(t, r);
		else
			by_inlay(t, r);
		if (takes)
			received(to, r);
		if (r->op >= CAS) {
			word = r->op == CAS ? 9 : 10;
			assert_memory_equal(TARGET, &word, 8);
			word = 5;
			assert_memory_equal(RESULT, &word, 8);
		} else {
			assert_int_equal(differs(TARGET + HEADER, r->len, 1 + r->len), r->len);
			assert_true(all_bytes(TARGET + HEADER + r->len, AREA - HEADER - r->len, 0x33));
		}
	}
	ds = twins[2].ring[(from & (twins[2].bbs - 1)) * 64 + 7] & 0x3f;
	for (j = 0; j < ds * 16; j++) {
		uint32_t at = ((from & (twins[2].bbs - 1)) * 64 + j) & (twins[2].bbs * 64 - 1);

		if (j >= 4 && j < 7) {
			/* Its own number */
			for (i = 0; i < 3; i++)
				assert_int_equal(twins[i].ring[at], twins[i].end.qp->qp_num >> 8 * (6 - j) & 0xff);
		} else if (twins[0].ring[at] != twins[1].ring[at]) {
			continue;
		} else if (twins[0].ring[at] != twins[2].ring[at]) {
			fail_msg("op %u, %u bytes in %u pieces: byte %u is 0x%02x, of libmlx5 0x%02x", r->op, r->len, r->pieces, j,
				 twins[2].ring[at], twins[0].ring[at]);
		}
		bytes++;
	}
	for (i = 0; i < 2; i++)
		assert_int_equal(twins[i].record[MLX5_SND_DBR], twins[2].record[MLX5_SND_DBR]);
	assert_int_equal(inlay_from_be32(twins[2].record[MLX5_SND_DBR]) & 0xffff, inlay_sq_index(&twins[2].end.sq) & 0xffff);
	wqes++;
}

static void twins_of(enum ibv_qp_type type, const char *name)
{
	static const uint32_t lens[] = {1, 8, 16, 28, 29, 32, 44, 60, 64, 100, 128, 500, 1024};
	struct request r;
	struct opt opt = usual;
	struct ibv_ah_attr path = own_path();
	struct mlx5dv_qp dv;
	uint32_t i, l;

	memset(twins, 0, sizeof(twins));
	memory = (uint8_t *)pages(3 * AREA);
	mr = ibv_reg_mr(dev.pd, memory, 3 * AREA, ALL_ACCESS);
	assert_non_null(mr);
	opt.type = type;
	opt.bytes = 4096;
	opt.cap.max_send_wr = 16;
	must(inlay_uar_create(&uar, dev.pd, INLAY_UAR_SERIAL, NULL));
	for (i = 0; i < 3; i++) {
		opt.pd = i == 2 ? uar.pd : NULL;
		end_make(&twins[i].end, &opt);
		opt.pd = NULL;
		end_make(&twins[i].peer, &opt);
		ends_connect(&twins[i].end, &twins[i].peer);
		dv = view_qp(twins[i].end.qp);
		twins[i].ring = (uint8_t *)dv.sq.buf;
		twins[i].bbs = dv.sq.wqe_cnt;
		twins[i].record = (volatile uint32_t *)dv.dbrec;
		assert_int_equal(twins[i].bbs, twins[0].bbs);
	}
	must(inlay_cq_from_cq(&twins[2].end.cq, twins[2].end.scq, NULL));
	must(inlay_sq_from_qp(&twins[2].end.sq, twins[2].end.qp, &uar, &twins[2].end.cq, NULL));
	if (type == IBV_QPT_UD) {
		ah = ibv_create_ah(dev.pd, &path);
		assert_non_null(ah);
		must(inlay_av_from_ah(&av, ah, twins[0].peer.qp->qp_num, QKEY));
	}
	wqes = bytes = 0;
	for (r.round = 0; r.round < ROUNDS; r.round++)
		for (l = 0; l < ARRAY(lens); l++)
			for (i = 0; i < OPS; i++) {
				r.op = (enum op)i;
				r.len = i >= CAS ? 8 : lens[l];
				if ((type != IBV_QPT_RC && i >= READ) || (ah && i > SEND_IMM) || (i >= CAS && (l || dev.attr.atomic_cap == IBV_ATOMIC_NONE)))
					continue;
				for (r.pieces = i >= READ; r.pieces <= (i >= CAS ? 1u : 3u); r.pieces++)
					if (r.pieces ? r.len >= r.pieces : r.len <= usual.cap.max_inline_data)
						run(&r);
			}
	print_message("# %s: %llu WQEs and records are libmlx5's, %llu bytes\n", name, (unsigned long long)wqes, (unsigned long long)bytes);
	if (ah)
		must(ibv_destroy_ah(ah));
	ah = NULL;
	must(ibv_destroy_qp(twins[2].end.qp));
	twins[2].end.qp = NULL;
	inlay_sq_fini(&twins[2].end.sq);
	for (i = 0; i < 3; i++) {
		end_free(&twins[i].end);
		end_free(&twins[i].peer);
	}
	must(inlay_uar_destroy(&uar, NULL));
	must(ibv_dereg_mr(mr));
	free(memory);
}

static void types(void **state)
{
	(void)state;
	twins_of(IBV_QPT_RC, "RC");
	twins_of(IBV_QPT_UC, "UC");
	twins_of(IBV_QPT_UD, "UD");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(types),
	};

	return cmocka_run_group_tests_name("twins", tests, dev_open, dev_close);
}
