/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * packets.c: Ethernet packets to a striding receive queue, and what their completions say of them:
 * checks, VLAN tag, the flow rule's tag. The same program sends the packets. Buffers
 * come back when their last stride is used up.
 *
 * On a NIC the port must loop packets back to itself. On the software device it does.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <net/ethernet.h>
#include <inlay/inlay.h>
#include <inlay/steer.h>
#include <inlay/cqe/packet.h>
#include <inlay/queue/packet.h>
#include "common/program.h"

enum { BUFFERS = 4, BURST = 16, LONGEST = 1518, HEADERS = 14 + 4 + 20 + 8, VLAN = 42, PORT = 4791, TAG = 7 };

static const struct inlay_strides strides = {.log_number = 9, .log_size = 8};
static const uint8_t here[6] = {2, 0, 0, 0, 0, 1}; /* the address that the rule takes */

/* ---- Receiving ---- */

static struct inlay_packet_queue q;
static struct inlay_rss rss;
static struct ibv_flow *flow;
static struct ibv_mr *mr;
static uint8_t *buffers;
static const size_t size = 1u << (9 + 8); /* of a buffer */

static void receive_open(struct ibv_pd *pd, uint32_t flags)
{
	struct inlay_flow_match match = {.type = ETHERTYPE_IP, .proto = IPPROTO_UDP, .dport = PORT, .tag = TAG};

	need(inlay_packet_queue_create(&q, pd, BUFFERS, &strides, flags, &why), "a striding queue");
	buffers = memory(BUFFERS * size);
	mr = ibv_reg_mr(pd, buffers, BUFFERS * size, IBV_ACCESS_LOCAL_WRITE);
	must(mr != NULL, "registering the buffers");
	for (unsigned i = 0; i < BUFFERS; i++)
		need(inlay_striding_post(&q.rq, (uintptr_t)(buffers + i * size), mr->lkey), "posting a buffer");
	inlay_rq_ring(&q.rq.rq);

	/* The packets' way: a rule, RSS over all queues, of which there is one. */
	memcpy(match.mac, here, sizeof(here));
	need(inlay_rss_create(&rss, pd, &q.wq, 1, 0, &why), "RSS");
	need(inlay_flow_create(&flow, rss.qp, &match, &why), "the flow rule");
}

/* What has come, to `handle`. Returns the packets. */
static unsigned receive(void (*handle)(const uint8_t *packet, uint32_t len, const struct mlx5_cqe64 *cqe))
{
	const struct mlx5_cqe64 *cqe;
	struct inlay_packet_at at;
	unsigned packets = 0;

	while ((cqe = inlay_cq_peek(&q.cq))) {
		if (inlay_cqe_is_special(cqe)) {
			if (inlay_cqe_is_compressed(cqe) && inlay_cq_unzip(&q.cq) > 0)
				continue;
			die("a completion in error: %s", inlay_syndrome_text(inlay_cqe_syndrome(cqe)));
		}
		int done = inlay_striding_take(&q.rq, cqe, &at);
		must(done >= 0, "a completion of the striding queue");
		if (at.len) {
			handle(buffers + at.wqe * size + at.offset, at.len, cqe);
			packets++;
		}
		inlay_cq_advance(&q.cq, 1);
		if (done) { /* nobody holds its packets: the same buffer again */
			inlay_striding_recycle(&q.rq);
			inlay_rq_ring(&q.rq.rq);
		}
	}
	return packets;
}

static void receive_close(void)
{
	must(!ibv_destroy_flow(flow), "destroying the rule");
	need(inlay_rss_destroy(&rss, &why), "destroying RSS");
	need(inlay_packet_queue_destroy(&q, &why), "destroying the queue");
	must(!ibv_dereg_mr(mr), "closing down");
}

/* ---- The packets ---- */

static uint32_t seen, sent;

/* UDP in IPv4 on a VLAN; the device fills the checksums in. */
static uint32_t make(uint8_t *packet, uint32_t number)
{
	uint32_t len = HEADERS + 18 + number * 37 % (LONGEST - HEADERS - 17);
	uint8_t head[HEADERS] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, VLAN, 8, 0,
				 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1};
	uint16_t words[] = {htons(49152), htons(PORT), htons((uint16_t)(len - 14 - 4 - 20)), 0};
	uint16_t ip_len = htons((uint16_t)(len - 14 - 4));

	memcpy(head + 20, &ip_len, 2);
	memcpy(head + 38, words, 8);
	memcpy(packet, head, HEADERS);
	memset(packet + HEADERS, (int)number, len - HEADERS);
	memcpy(packet + HEADERS, &number, 4);
	return len;
}

/* The packet with number `seen`, without its tag. */
static void check(const uint8_t *packet, uint32_t len, const struct mlx5_cqe64 *cqe)
{
	static uint8_t want[LONGEST];
	uint32_t want_len = make(want, seen);

	must(len == want_len - 4 && !memcmp(packet + 34 + 8, want + HEADERS, len - 42), "finding what was sent");
	must(inlay_cqe_flow_tag(cqe) == TAG, "finding the rule's tag");
	must(inlay_cqe_vlan(cqe) >= 0 && (inlay_cqe_vlan(cqe) & 0xfff) == VLAN, "finding the VLAN");
	must(inlay_cqe_checks(cqe) == (MLX5_CQE_L2_OK | MLX5_CQE_L3_OK | MLX5_CQE_L4_OK), "the checksums");
	seen++;
}

int main(int argc, char **argv)
{
	uint32_t packets = 10000, compress = 0;
	struct option_of options[] = {{.name = "packets", .value = "N", .help = "to send; 10000", .number = &packets, .min = 1, .max = 1u << 30},
				      {.name = "compress", .help = "compressed completions", .number = &compress, .max = 1},
				      {.name = NULL}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RAW_PACKET, .cap = {.max_send_wr = 2 * BURST, .max_send_sge = 1}};
	struct inlay_eth eth = inlay_eth_csum(INLAY_CSUM_L3 | INLAY_CSUM_L4);
	struct ibv_sge sge[BURST];
	struct inlay_uar uar;
	struct inlay_cq done;
	struct inlay_sq sq;
	uint64_t end;

	arguments(argc, argv, "Sends Ethernet packets to a striding receive queue of its own.", "", options);
	struct ibv_context *ctx = open_device(NULL);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	must(pd != NULL, "a protection domain");
	receive_open(pd, INLAY_PACKETS_STRIP_VLAN | (compress ? INLAY_PACKETS_COMPRESSED : 0));

	/* The sender. */
	need(inlay_uar_create(&uar, pd, INLAY_UAR_SERIAL, &why), "a doorbell register");
	init.send_cq = init.recv_cq = ibv_create_cq(ctx, (int)inlay_send_cqes(&init), NULL, NULL, 0);
	must(init.send_cq != NULL, "creating the sender's completion queue");
	struct ibv_qp *qp = ibv_create_qp(uar.pd, &init);
	must(qp != NULL, "creating the sender");
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), "INIT");
	attr.qp_state = IBV_QPS_RTR;
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "RTR");
	attr.qp_state = IBV_QPS_RTS;
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "RTS");
	need(inlay_cq_from_cq(&done, init.send_cq, &why), "taking over the sender's completion queue");
	need(inlay_sq_from_qp(&sq, qp, &uar, &done, &why), "taking over the sender");
	uint8_t *frames = memory(BURST * 2048);
	struct ibv_mr *from = ibv_reg_mr(pd, frames, BURST * 2048, 0);
	must(from != NULL, "registering the frames");

	/* Bursts that the buffers surely hold; after each, all must have come. */
	end = now_ns() + 30000000000u;
	while (seen < packets) {
		uint32_t n = packets - seen < BURST ? packets - seen : BURST;
		const struct mlx5_cqe64 *cqe;

		for (uint32_t i = 0; i < n; i++) {
			sge[i].addr = (uintptr_t)(frames + i * 2048);
			sge[i].length = make(frames + i * 2048, sent++);
			sge[i].lkey = from->lkey;
		}
		must(inlay_post_packets(&sq, eth, sge, n, INLAY_SIGNALED | INLAY_RING) == (int)n, "sending");
		for (int out = 1; out || seen < sent; receive(check)) {
			if ((cqe = inlay_cq_peek(&done))) {
				must(!inlay_cqe_is_error(cqe) && inlay_sq_release(&sq, cqe) > 0, "the sends");
				inlay_cq_advance(&done, 1);
				out = inlay_sq_pending(&sq) != 0;
			}
			must(now_ns() < end, "waiting for packets");
		}
	}
	printf("packets: %u sent, %u found\n", sent, seen);

	receive_close();
	must(!ibv_destroy_qp(qp), "destroying the sender");
	inlay_sq_fini(&sq);
	must(!ibv_destroy_cq(init.send_cq) && !ibv_dereg_mr(from), "closing down");
	need(inlay_uar_destroy(&uar, &why), "closing down");
	must(!ibv_dealloc_pd(pd) && !ibv_close_device(ctx), "closing down");
	return 0;
}
