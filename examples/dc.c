/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dc.c: dynamically connected transport. One queue pair, the DCI, sends to any number of targets,
 * each named by the post itself: no connection to set up, none to keep. The other process has the
 * targets (DCTs), whose receives come from one shared receive queue. The sender sends each target a
 * message and writes into the memory of its process.
 */
#define _GNU_SOURCE
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/inlay.h>
#include "common/peer.h"

#define MOST 64                         /* targets */
#define TEXT 64                         /* bytes of a message, and of a target's place on the board */

static uint32_t targets = 4;

/* What the targets' process tells: its targets and the keys to them, its board and the key to that. */
struct notice {
	uint8_t target[MOST][INLAY_CONNECT_SIZE];
	uint64_t key[MOST];
	uint64_t board;
	uint32_t rkey;
};

/* ---- What both sides have ---- */

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *ibcq;
	struct inlay_cq cq;
};

static void open_side(struct side *s, uint32_t cqes)
{
	s->pd = open_pd(NULL);
	s->ctx = s->pd->context;
	s->ibcq = ibv_create_cq(s->ctx, (int)cqes, NULL, NULL, 0);
	must(s->ibcq && !inlay_cq_from_cq(&s->cq, s->ibcq, &why), "a completion queue");
}

static void close_side(struct side *s)
{
	must(!ibv_destroy_cq(s->ibcq) && !ibv_dealloc_pd(s->pd) && !ibv_close_device(s->ctx), "closing down");
}

static struct ibv_qp *create(struct side *s, struct ibv_qp_init_attr_ex *a, struct mlx5dv_dc_init_attr dc)
{
	struct mlx5dv_qp_init_attr dv = {.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC, .dc_init_attr = dc};

	a->qp_type = IBV_QPT_DRIVER;
	a->send_cq = a->recv_cq = s->ibcq;
	a->comp_mask |= IBV_QP_INIT_ATTR_PD;
	return mlx5dv_create_qp(s->ctx, a, &dv);
}

/* The oldest completion, which has to come and to be good. */
static const struct mlx5_cqe64 *next(struct side *s)
{
	time_t end = time(NULL) + 10;
	const struct mlx5_cqe64 *cqe;

	while (!(cqe = inlay_cq_peek(&s->cq)))
		must(time(NULL) < end, "waiting for a completion");
	if (inlay_cqe_is_error(cqe))
		inlay_cqe_print(stderr, cqe);
	must(!inlay_cqe_is_error(cqe), "a transfer");
	return cqe;
}

/* ---- The targets ---- */

static void receiver(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = MOST, .max_sge = 1}};
	char (*text)[TEXT] = memory(2 * MOST * TEXT), (*board)[TEXT] = text + MOST;
	struct notice n = {.board = (uintptr_t)board};
	struct inlay_connect_record here;
	struct ibv_qp *dct[MOST];
	struct side s = {.pd = NULL};
	struct ibv_srq *ibsrq;
	struct inlay_srq srq;
	struct ibv_mr *mr;
	uint32_t i;
	char word;

	open_side(&s, inlay_srq_cqes(MOST));
	ibsrq = ibv_create_srq(s.pd, &init);
	must(ibsrq && !inlay_srq_from_srq(&srq, ibsrq, &s.cq, &why), "a shared receive queue");
	mr = ibv_reg_mr(s.pd, text, 2 * MOST * TEXT, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	must(mr != NULL, "ibv_reg_mr");
	n.rkey = mr->rkey;
	for (i = 0; i < targets; i++) {
		struct ibv_qp_init_attr_ex a = {.srq = ibsrq, .pd = s.pd};
		/* Whoever has the record, with the target's number, and the key may send to it */
		struct mlx5dv_dc_init_attr dc = {.dc_type = MLX5DV_DCTYPE_DCT, .dct_access_key = 0x1dea0000 + i};

		dct[i] = create(&s, &a, dc);
		must(dct[i] && !inlay_connect_dc(&here, dct[i], 1, NULL, &why), "a DC target");
		inlay_connect_pack(&here, n.target[i]);
		n.key[i] = dc.dct_access_key;
	}
	/* Buffers go to whichever target is sent to: the entry of a receive says which it was */
	for (i = 0; i < targets; i++) {
		struct ibv_sge sge = {.addr = (uintptr_t)text[i], .length = TEXT, .lkey = mr->lkey};

		must(!inlay_post_srq_recv(&srq, &sge, 1, i), "posting a receive");
	}
	inlay_srq_ring(&srq);
	peer_tell(&n, sizeof(n));

	for (i = 0; i < targets; i++) {
		const struct mlx5_cqe64 *cqe = next(&s);
		uint32_t qpn = inlay_cqe_qpn(cqe), len = inlay_cqe_byte_count(cqe), k;

		for (k = 0; k < targets && dct[k]->qp_num != qpn; k++)
			;
		must(k < targets, "finding the target");
		must(len <= TEXT, "the message");
		printf("target %u: \"%.*s\"\n", k, (int)len, text[inlay_srq_user(&srq, inlay_cqe_wqe_counter(cqe))]);
		must(!inlay_srq_release(&srq, cqe), "the entry");
		inlay_cq_advance(&s.cq, 1);
	}
	peer_hear(&word, 1); /* all writes are complete */
	for (i = 0; i < targets; i++)
		must(atoi(board[i]) == (int)i + 1, "finding what was written");
	printf("%u places of the board are as written\n", targets);
	for (i = 0; i < targets; i++)
		must(!ibv_destroy_qp(dct[i]), "destroying a target");
	inlay_srq_fini(&srq);
	must(!ibv_destroy_srq(ibsrq) && !ibv_dereg_mr(mr), "cleaning up");
	close_side(&s);
	free(text);
}

/* ---- The sender ---- */

static void sender(void)
{
	struct ibv_qp_cap cap = {.max_send_wr = 32, .max_send_sge = 1, .max_inline_data = TEXT};
	struct ibv_qp_init_attr plain = {.qp_type = IBV_QPT_DRIVER, .cap = cap};
	struct ibv_qp_init_attr_ex a = {.cap = cap};
	struct inlay_connect_record here, there;
	struct inlay_av peers[MOST];
	struct side s = {.pd = NULL};
	struct inlay_uar uar;
	struct inlay_sq sq;
	struct ibv_qp *dci;
	struct notice n;
	char text[TEXT];
	uint32_t i;

	open_side(&s, inlay_send_cqes(&plain));
	must(!inlay_uar_create(&uar, s.pd, INLAY_UAR_SERIAL, &why), "a doorbell register");
	a.pd = uar.pd;
	dci = create(&s, &a, (struct mlx5dv_dc_init_attr){.dc_type = MLX5DV_DCTYPE_DCI});
	must(dci && !inlay_sq_from_qp(&sq, dci, &uar, &s.cq, &why), "a DCI");
	must(!inlay_connect_dc(&here, dci, 0, NULL, &why), "bringing up the DCI");

	/* Where the targets are */
	peer_hear(&n, sizeof(n));
	for (i = 0; i < targets; i++) {
		must(!inlay_connect_unpack(&there, n.target[i], INLAY_CONNECT_SIZE, &why), "reading a target's record");
		must(!inlay_connect_av(&peers[i], s.pd, &here, &there, NULL, &why), "an address");
		inlay_av_to_dct(&peers[i], there.qpn, n.key[i]);
	}

	/* A message to each, and a write to its process; one doorbell for both */
	for (i = 0; i < targets; i++) {
		struct inlay_wr wr = {.raddr = n.board + i * TEXT, .rkey = n.rkey, .to = &peers[i], .data = text};
		int len = snprintf(text, sizeof(text), "hello, number %u of %u", i, targets);
		const struct mlx5_cqe64 *cqe;

		wr.len = (uint32_t)len;
		must(!inlay_post(&sq, MLX5_OPCODE_SEND, &wr, INLAY_INLINE), "the send");
		len = snprintf(text, sizeof(text), "%u", i + 1);
		wr.len = (uint32_t)len + 1;
		must(!inlay_post(&sq, MLX5_OPCODE_RDMA_WRITE, &wr, INLAY_INLINE | INLAY_SIGNALED), "the write");
		inlay_sq_ring(&sq);
		cqe = next(&s); /* of the write, and so of the send before it */
		must(inlay_sq_release(&sq, cqe) > 0, "the completion");
		inlay_cq_advance(&s.cq, 1);
	}
	must(!inlay_sq_pending(&sq), "completing everything");
	peer_tell("", 1);
	must(!ibv_destroy_qp(dci), "destroying the DCI");
	inlay_sq_fini(&sq);
	must(!inlay_uar_destroy(&uar, &why), "the register");
	close_side(&s);
}

int main(int argc, char **argv)
{
	static const struct option_of options[] = {
		{"targets", "N", "how many targets the other process has (4)", NULL, &targets, 1, MOST, NULL},
		{NULL, NULL, NULL, NULL, NULL, 0, 0, NULL},
	};

	arguments(argc, argv, "One DCI sends to many DC targets of another process.", "", options);
	need_device(NULL);
	(peer_fork() ? receiver : sender)();
	peer_join();
	return 0;
}
