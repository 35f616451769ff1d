/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shared_memory.c: two processes share memory. The owner exports a notice board that may be read and written and a counter that may be added to, and
 * sends the blob, with a message authentication code, through a socket. The guest imports it and posts: writes a notice, reads
 * it back, counts itself. Then the owner stops its map, and the guest finds the door closed.
 *
 * The guest asks its map before it posts: what is not granted is refused at home, with an errno, and not by the owner's device, with an
 * error completion that costs the connection.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <infiniband/verbs.h>
#include <inlay/inlay.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#define BOARD 4096

static const char *who;

static void need(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "shared_memory: %s: %s failed\n", who, what);
		exit(1);
	}
}

/* ---- The code that both sides put under a blob: any function of any library ---- */

static uint8_t key[32] = "what only owner and guest know";

static int hmac(void *k, const void *data, size_t len, uint8_t *code)
{
	return HMAC(EVP_sha256(), k, sizeof(key), data, len, code, NULL) ? 0 : -EIO;
}

static const struct inlay_mac mac = {hmac, key, 32};

/* ---- Verbs as ever: a device, a queue pair, and the way to the other's ---- */

struct address {
	uint32_t qpn;
	uint16_t lid;
	union ibv_gid gid;
};

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *ibcq;
	struct ibv_qp *qp;
	struct ibv_port_attr port;
	struct inlay_uar uar;
	struct inlay_sq sq;
	struct inlay_cq cq;
	int wire;                       /* to the other process */
};

static void tell(struct side *s, const void *data, size_t len)
{
	need(send(s->wire, data, len, MSG_NOSIGNAL) == (ssize_t)len, "talking to the other process");
}

static void hear(struct side *s, void *data, size_t len)
{
	need(recv(s->wire, data, len, MSG_WAITALL) == (ssize_t)len, "hearing from the other process");
}

static void open_side(struct side *s)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct address mine, peer;

	for (int i = 0; list && list[i] && !s->ctx; i++)
		if (mlx5dv_is_supported(list[i]))
			s->ctx = ibv_open_device(list[i]);
	need(s->ctx != NULL, "opening an mlx5 device");
	ibv_free_device_list(list);
	s->pd = ibv_alloc_pd(s->ctx);
	need(s->pd && !inlay_uar_create(&s->uar, s->pd, INLAY_UAR_SERIAL, NULL), "a doorbell register");
	s->ibcq = ibv_create_cq(s->ctx, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = s->ibcq, .recv_cq = s->ibcq, .qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 16,
					.max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64}};
	s->qp = s->ibcq ? ibv_create_qp(s->uar.pd, &init) : NULL;
	need(s->qp && !ibv_query_port(s->ctx, 1, &s->port) && !ibv_query_gid(s->ctx, 1, 0, &mine.gid), "a queue pair");
	mine.qpn = s->qp->qp_num;
	mine.lid = s->port.lid;
	tell(s, &mine, sizeof(mine));
	hear(s, &peer, sizeof(peer));

	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1,
				.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC};
	need(!ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "modify to INIT");
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = s->port.active_mtu;
	a.dest_qp_num = peer.qpn;
	a.max_dest_rd_atomic = a.max_rd_atomic = 1;
	a.min_rnr_timer = 12;
	a.ah_attr.port_num = 1;
	a.ah_attr.dlid = peer.lid;
	if (s->port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		a.ah_attr.is_global = 1;
		a.ah_attr.grh.hop_limit = 64;
		a.ah_attr.grh.dgid = peer.gid;
	}
	need(!ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "modify to RTR");
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 14;
	a.retry_cnt = a.rnr_retry = 7;
	need(!ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			    IBV_QP_MAX_QP_RD_ATOMIC), "modify to RTS");
	need(!inlay_sq_from_qp(&s->sq, s->qp, &s->uar, NULL, NULL) && !inlay_cq_from_cq(&s->cq, s->ibcq, NULL), "taking over the queues");
	tell(s, &mine, sizeof(mine)); /* both are ready */
	hear(s, &peer, sizeof(peer));
}

static void close_side(struct side *s)
{
	inlay_sq_fini(&s->sq);
	need(!ibv_destroy_qp(s->qp) && !ibv_destroy_cq(s->ibcq) && !inlay_uar_destroy(&s->uar, NULL) && !ibv_dealloc_pd(s->pd) &&
	     !ibv_close_device(s->ctx), "closing down");
}

/* Rings for what was posted and waits for it: 0, or what the device says went wrong */
static int finish(struct side *s)
{
	time_t end = time(NULL) + 10;
	const struct mlx5_cqe64 *cqe;
	int status = 0;

	inlay_sq_ring(&s->sq);
	while (!(cqe = inlay_cq_peek(&s->cq)))
		need(time(NULL) < end, "waiting for the completion");
	if (inlay_cqe_is_error(cqe))
		status = inlay_cqe_status(cqe);
	need(0 < inlay_sq_release(&s->sq, cqe), "the completion");
	inlay_cq_advance(&s->cq, 1);
	return status;
}

/* ---- The owner ---- */

static void owner(struct side *s)
{
	static char board[BOARD] __attribute__((aligned(64)));
	static uint64_t counter;
	void *memory = aligned_alloc(64, inlay_mmap_size(1, 2));
	struct inlay_source sources[2];
	struct inlay_mmap map;
	uint8_t blob[256];
	size_t len = sizeof(blob);
	char word;

	need(memory && !inlay_mmap_create(&map, memory, inlay_mmap_size(1, 2), 1, 2), "making a map");
	sources[0] = inlay_source_host(board, sizeof(board));
	sources[0].limit = INLAY_LOCAL_READ_WRITE | INLAY_RDMA_READ | INLAY_RDMA_WRITE;
	sources[1] = inlay_source_host(&counter, sizeof(counter));
	sources[1].limit = INLAY_LOCAL_READ_WRITE | INLAY_RDMA_ATOMIC;
	need(!inlay_mmap_add_dev(&map, s->pd) && !inlay_mmap_add(&map, sources[0]) && !inlay_mmap_add(&map, sources[1]), "filling the map");
	need(!inlay_mmap_set_permissions(&map, INLAY_LOCAL_READ_WRITE | INLAY_RDMA_READ | INLAY_RDMA_WRITE | INLAY_RDMA_ATOMIC), "permissions");
	need(!inlay_mmap_set_mac(&map, &mac) && !inlay_mmap_start(&map), "starting the map");
	need(!inlay_mmap_export_rdma(&map, s->pd, blob, &len), "the export");
	tell(s, &len, sizeof(len));
	tell(s, blob, len);

	hear(s, &word, 1); /* the guest has done */
	printf("owner: the board says \"%s\", %llu counted\n", board, (unsigned long long)counter);
	need(!strcmp(board, "the guest was here") && counter == 1, "finding what the guest did");
	need(!inlay_mmap_stop(&map), "stopping the map");
	tell(s, &word, 1);
	hear(s, &word, 1);
	need(!strcmp(board, "the guest was here"), "closing the door");
	need(!inlay_mmap_destroy(&map), "destroying the map");
	free(memory);
}

/* ---- The guest ---- */

static void guest(struct side *s)
{
	static char notice[64] __attribute__((aligned(64))) = "the guest was here", back[64] __attribute__((aligned(64)));
	struct ibv_mr *mr = ibv_reg_mr(s->pd, back, sizeof(back), IBV_ACCESS_LOCAL_WRITE);
	struct inlay_mmap_import how = {.mac = &mac};
	struct inlay_mmap map;
	uint32_t rkey = 0;
	uint8_t blob[256];
	size_t len, size;
	char word = 0;

	need(mr != NULL, "ibv_reg_mr");
	hear(s, &len, sizeof(len));
	need(len <= sizeof(blob), "a blob of this length");
	hear(s, blob, len);
	size = inlay_mmap_import_size(blob, len);
	void *memory = size ? aligned_alloc(64, size) : NULL;
	blob[40] ^= 1; /* on the way, somebody changes it: that is seen */
	need(memory && inlay_mmap_create_from_export(&map, memory, size, s->pd, blob, len, &how) == -EBADMSG, "refusing a forged blob");
	blob[40] ^= 1;
	need(!inlay_mmap_create_from_export(&map, memory, size, s->pd, blob, len, &how), "the import");

	const uint64_t board = inlay_mmap_source(&map, 0)->start, counter = inlay_mmap_source(&map, 1)->start;
	struct ibv_sge sge = {.addr = (uintptr_t)back, .length = sizeof(back), .lkey = mr->lkey};

	need(!inlay_mmap_remote(&map, board, sizeof(notice), INLAY_RDMA_WRITE, &rkey), "the board's key");
	need(!inlay_post_write_inline(&s->sq, board, rkey, notice, sizeof(notice), INLAY_SIGNALED) && !finish(s), "the write");
	need(!inlay_post_read(&s->sq, board, rkey, &sge, 1, INLAY_SIGNALED) && !finish(s), "the read");
	need(!memcmp(back, notice, sizeof(notice)), "reading what was written");
	need(!inlay_mmap_remote(&map, counter, 8, INLAY_RDMA_ATOMIC, &rkey), "the counter's key");
	need(!inlay_post_fetch_add(&s->sq, counter, rkey, 1, &sge, INLAY_SIGNALED) && !finish(s), "the addition");

	/* What is not granted is known here */
	need(inlay_mmap_remote(&map, counter, 8, INLAY_RDMA_WRITE, &rkey) == -EPERM, "being refused the counter");
	need(inlay_mmap_remote(&map, board + BOARD - 8, 16, INLAY_RDMA_READ, &rkey) == -ENOENT, "being refused what is behind the board");
	tell(s, &word, 1);

	/* The owner has stopped its map: nobody tells this one, and the owner's device refuses */
	hear(s, &word, 1);
	need(!inlay_mmap_remote(&map, board, 8, INLAY_RDMA_WRITE, &rkey), "the board's key");
	need(!inlay_post_write_inline(&s->sq, board, rkey, "too late", 8, INLAY_SIGNALED) && finish(s) == IBV_WC_REM_ACCESS_ERR,
	     "finding the door closed");
	printf("guest: wrote, read and counted; then the door was closed\n");
	tell(s, &word, 1);
	need(!inlay_mmap_destroy(&map) && !ibv_dereg_mr(mr), "cleaning up");
	free(memory);
}

int main(void)
{
	struct side s = {.wire = -1};
	int ends[2], status = 0;

	/* Two processes before there is a device: none survives a fork */
	who = "parent";
	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
	pid_t child = fork();
	need(child >= 0, "fork");
	who = child ? "owner" : "guest";
	s.wire = ends[!child];
	close(ends[!!child]);
	open_side(&s);
	(child ? owner : guest)(&s);
	close_side(&s);
	if (child)
		need(waitpid(child, &status, 0) == child && !status, "the guest's process");
	return 0;
}
