/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * loop.c: the smallest complete program. Two queue pairs of this process, one RDMA write from the first into the memory of the
 * second: set up with libibverbs, then posted, rung and completed by inlay.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <infiniband/verbs.h>
#include <inlay/inlay.h>

static void need(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "loop: %s failed\n", what);
		exit(1);
	}
}

/* The first mlx5 device; NULL: there is none. */
static struct ibv_context *open_mlx5(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && list[i] && !ctx; i++)
		if (mlx5dv_is_supported(list[i]))
			ctx = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return ctx;
}

/* Reset to ready-to-send, connected to queue pair number peer on the same port. */
static void connect_qp(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	struct ibv_port_attr port;

	need(!ibv_query_port(qp->context, 1, &port), "ibv_query_port");
	need(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "modify to INIT");
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = port.active_mtu;
	a.dest_qp_num = peer;
	a.max_dest_rd_atomic = 1;
	a.min_rnr_timer = 12;
	a.ah_attr.port_num = 1;
	a.ah_attr.dlid = port.lid;
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET) { /* RoCE: addressed by GID; ours, since we talk to ourselves */
		a.ah_attr.is_global = 1;
		a.ah_attr.grh.hop_limit = 64;
		need(!ibv_query_gid(qp->context, 1, 0, &a.ah_attr.grh.dgid), "ibv_query_gid");
	}
	need(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "modify to RTR");
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 14;
	a.retry_cnt = a.rnr_retry = 7;
	a.max_rd_atomic = 1;
	need(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			    IBV_QP_MAX_QP_RD_ATOMIC), "modify to RTS");
}

int main(void)
{
	static uint64_t target; /* what the write shall change */
	uint64_t value = 0x1122334455667788;
	time_t end = time(NULL) + 10;
	struct inlay_uar uar;
	struct inlay_sq sq;
	struct inlay_cq cq;

	/* Set-up. The register is made first: the queue pair created in uar.pd is the only one that rings it. */
	struct ibv_context *ctx = open_mlx5();
	need(ctx != NULL, "opening an mlx5 device");
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	need(pd && !inlay_uar_create(&uar, pd, INLAY_UAR_EXCLUSIVE), "a doorbell register");
	struct ibv_mr *mr = ibv_reg_mr(pd, &target, sizeof(target), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_cq *ibcq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	need(mr && ibcq, "ibv_reg_mr or ibv_create_cq");
	struct ibv_qp_init_attr init = {.send_cq = ibcq, .recv_cq = ibcq, .qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 16,
					.max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64}};
	struct ibv_qp *peer = ibv_create_qp(pd, &init), *qp = ibv_create_qp(uar.pd, &init);
	need(qp && peer, "ibv_create_qp");
	connect_qp(qp, peer->qp_num);
	connect_qp(peer, qp->qp_num);
	need(!inlay_sq_from_qp(&sq, qp, &uar), "taking over the send queue");
	need(!inlay_cq_from_cq(&cq, ibcq), "taking over the completion queue");

	/* The data path: post, ring, */
	need(!inlay_post_write_inline(&sq, (uintptr_t)&target, mr->rkey, &value, sizeof(value), INLAY_SIGNALED), "the post");
	inlay_sq_ring(&sq);

	/* poll, use, advance. */
	const struct mlx5_cqe64 *cqe;
	while (!(cqe = inlay_cq_peek(&cq)))
		need(time(NULL) < end, "waiting for the completion");
	if (inlay_cqe_is_error(cqe))
		inlay_cqe_print(stderr, cqe);
	need(!inlay_cqe_is_error(cqe) && !inlay_sq_release(&sq, cqe), "the write");
	inlay_cq_advance(&cq, 1);
	need(*(volatile uint64_t *)&target == value && !inlay_sq_pending(&sq), "finding the value");
	printf("loop: on %s, wrote 0x%llx and found it\n", ibv_get_device_name(ctx->device), (unsigned long long)value);

	/* Down again: the queue leaves its register before the register goes. */
	inlay_sq_fini(&sq);
	need(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer) && !ibv_destroy_cq(ibcq), "destroying the queues");
	need(!inlay_uar_destroy(&uar) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(ctx), "closing down");
	return 0;
}
