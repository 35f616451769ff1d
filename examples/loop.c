/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * loop.c: the smallest complete program. Two queue pairs of this process, and one RDMA write from
 * the first into the memory of the second: set up with libibverbs, then posted, rung and completed
 * by inlay. must() ends the program unless its first argument holds.
 */
#include "common/program.h"
#include <inlay/inlay.h>

int main(int argc, char **argv)
{
	static uint64_t target; /* of the write */
	uint64_t value = 0x1122334455667788, end = now_ns() + 10000000000;
	struct inlay_uar uar;
	struct inlay_sq sq;
	struct inlay_cq cq;

	arguments(argc, argv, "One RDMA write on the first mlx5 device.", "", NULL);

	/* Set-up. The register comes first: a queue pair that is created in uar.pd rings it. */
	struct ibv_context *ctx = inlay_device_open(NULL, &why);
	must(ctx != NULL, "no mlx5 device: opening");
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	must(pd && !inlay_uar_create(&uar, pd, INLAY_UAR_SERIAL, &why), "a doorbell register");
	struct ibv_mr *mr = ibv_reg_mr(pd, &target, sizeof(target), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp_cap cap = {.max_send_wr = 16, .max_send_sge = 1, .max_inline_data = 64};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = cap};
	struct ibv_cq *ibcq = ibv_create_cq(ctx, (int)inlay_send_cqes(&init), NULL, NULL, 0);
	must(mr && ibcq, "ibv_reg_mr or ibv_create_cq");
	init.send_cq = init.recv_cq = ibcq;
	struct ibv_qp *peer = ibv_create_qp(pd, &init), *qp = ibv_create_qp(uar.pd, &init);
	must(qp && peer, "ibv_create_qp");
	must(!inlay_connect_pair(qp, peer, NULL, &why), "connecting");
	must(!inlay_cq_from_cq(&cq, ibcq, &why), "taking over the completion queue");
	must(!inlay_sq_from_qp(&sq, qp, &uar, &cq, &why), "taking over the send queue");

	/* The data path: post, ring, */
	must(!inlay_post_write_inline(&sq, (uintptr_t)&target, mr->rkey, &value, sizeof(value), INLAY_SIGNALED),
	     "the post");
	inlay_sq_ring(&sq);

	/* poll, use, advance. */
	const struct mlx5_cqe64 *cqe;
	while (!(cqe = inlay_cq_peek(&cq)))
		must(now_ns() < end, "waiting for the completion");
	if (inlay_cqe_is_error(cqe))
		inlay_cqe_print(stderr, cqe);
	must(!inlay_cqe_is_error(cqe) && inlay_sq_release(&sq, cqe) > 0, "the write");
	inlay_cq_advance(&cq, 1);
	must(*(volatile uint64_t *)&target == value && !inlay_sq_pending(&sq), "finding the value");
	printf("loop: on %s, wrote 0x%llx and found it\n", ibv_get_device_name(ctx->device), (unsigned long long)value);

	/* Down again: the QP, then its queue's place on the register and the CQ, then these. */
	must(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer), "destroying the queue pairs");
	inlay_sq_fini(&sq);
	must(!ibv_destroy_cq(ibcq), "destroying the completion queue");
	must(!inlay_uar_destroy(&uar, &why) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(ctx),
	     "closing down");
	return 0;
}
