/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * loop.c: the smallest complete program. Two queue pairs of this process, and one RDMA write from
 * the first into the memory of the second: set up with libibverbs, then posted, rung and completed
 * by inlay.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <infiniband/verbs.h>
#include <inlay/inlay.h>

static const char *why; /* the reason, from a function of inlay that has refused */

static void need(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "loop: %s failed%s%s\n", what, why ? ": " : "", why ? why : "");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static uint64_t target; /* what the write shall change */
	uint64_t value = 0x1122334455667788;
	time_t end = time(NULL) + 10;
	struct inlay_uar uar;
	struct inlay_sq sq;
	struct inlay_cq cq;

	if (argc > 1) {
		int help = !strcmp(argv[1], "--help");

		fprintf(help ? stdout : stderr, help ? "usage: loop\n\nOne RDMA write on the first mlx5 device.\n" :
			"loop: no arguments are wanted (try --help)\n");
		return help ? 0 : 2;
	}

	/* Set-up. The register comes first: a queue pair that is created in uar.pd rings it. */
	struct ibv_context *ctx = inlay_device_open(NULL, &why);
	need(ctx != NULL, "no mlx5 device: opening");
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	need(pd && !inlay_uar_create(&uar, pd, INLAY_UAR_SERIAL, &why), "a doorbell register");
	struct ibv_mr *mr = ibv_reg_mr(pd, &target, sizeof(target), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp_cap cap = {.max_send_wr = 16, .max_send_sge = 1, .max_inline_data = 64};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = cap};
	struct ibv_cq *ibcq = ibv_create_cq(ctx, (int)inlay_send_cqes(&init), NULL, NULL, 0);
	need(mr && ibcq, "ibv_reg_mr or ibv_create_cq");
	init.send_cq = init.recv_cq = ibcq;
	struct ibv_qp *peer = ibv_create_qp(pd, &init), *qp = ibv_create_qp(uar.pd, &init);
	need(qp && peer, "ibv_create_qp");
	need(!inlay_connect_pair(qp, peer, NULL, &why), "connecting");
	need(!inlay_cq_from_cq(&cq, ibcq, &why), "taking over the completion queue");
	need(!inlay_sq_from_qp(&sq, qp, &uar, &cq, &why), "taking over the send queue");

	/* The data path: post, ring, */
	need(!inlay_post_write_inline(&sq, (uintptr_t)&target, mr->rkey, &value, sizeof(value), INLAY_SIGNALED),
	     "the post");
	inlay_sq_ring(&sq);

	/* poll, use, advance. */
	const struct mlx5_cqe64 *cqe;
	while (!(cqe = inlay_cq_peek(&cq)))
		need(time(NULL) < end, "waiting for the completion");
	if (inlay_cqe_is_error(cqe))
		inlay_cqe_print(stderr, cqe);
	need(!inlay_cqe_is_error(cqe) && inlay_sq_release(&sq, cqe) > 0, "the write");
	inlay_cq_advance(&cq, 1);
	need(*(volatile uint64_t *)&target == value && !inlay_sq_pending(&sq), "finding the value");
	printf("loop: on %s, wrote 0x%llx and found it\n", ibv_get_device_name(ctx->device), (unsigned long long)value);

	/* Down again: the QP, then its queue's place on the register and the CQ, then these. */
	need(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer), "destroying the queue pairs");
	inlay_sq_fini(&sq);
	need(!ibv_destroy_cq(ibcq), "destroying the completion queue");
	need(!inlay_uar_destroy(&uar, &why) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(ctx),
	     "closing down");
	return 0;
}
