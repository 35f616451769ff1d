/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * packet.c: raw packets posted by inlay and executed by the device, from one queue pair to another: single packets, bursts, multi-packet WQEs,
 * segmentation, tags, tunnels, at every place of the ring. What comes out is checked from the standards (softdev/tests/packets.h).
 *
 * What libmlx5 has no name for is held against a second source: DPDK's drivers/common/mlx5/mlx5_prm.h and Linux's include/linux/mlx5/qp.h,
 * quoted in `layouts`.
 */
#include "common.h"
#include "softdev/tests/packets.h"

#define RING 64u                /* WQEBBs, at least: libmlx5 rounds up */
#define BUFFERS 128u
#define ROOM 2048u
#define BYTES (BUFFERS * ROOM)
#define BATCH 100u              /* packets of a burst */
#define TAG 0xabc123u           /* of the flow rule */

static const uint8_t here[6] = {2, 0, 0, 0, 0, 1}, there[6] = {2, 0, 0, 0, 0, 2};

static struct {
	struct ibv_cq *scq, *rcq;
	struct ibv_qp *qp, *to;
	struct ibv_flow *flow;
	struct ibv_mr *mr;
	struct inlay_uar uar, uar_to;
	struct inlay_cq cq, rxcq;
	struct inlay_sq sq;
	struct inlay_rq rq;
	uint8_t *out, *in;      /* what is sent, what was received */
	uint32_t taken;
} t;
static struct packet p;

static struct ibv_qp *raw_qp(struct ibv_pd *pd, struct ibv_cq *cq, uint32_t send, uint32_t recv)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq, .recv_cq = cq,
		.cap = {.max_send_wr = send, .max_recv_wr = recv, .max_send_sge = 4, .max_recv_sge = 1, .max_inline_data = 200},
		.qp_type = IBV_QPT_RAW_PACKET, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER,
		.pd = pd, .max_tso_header = 128,
	};

	return made(ibv_create_qp_ex(dev.ctx, &init));
}

static void buffer_post(uint32_t i)
{
	struct ibv_sge sge = {(uintptr_t)t.in + i % BUFFERS * ROOM, ROOM, t.mr->lkey};

	must(inlay_post_recv(&t.rq, &sge, 1));
}

static int open_packets(void **state)
{
	struct inlay_flow_match rule = {};
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	if (dev_open(state))
		return -1;
	if (dev.port.link_layer != IBV_LINK_LAYER_ETHERNET)
		return 0;
	t.out = (uint8_t *)pages(2 * BYTES);
	t.in = t.out + BYTES;
	t.mr = ibv_reg_mr(dev.pd, t.out, 2 * BYTES, IBV_ACCESS_LOCAL_WRITE);
	t.scq = ibv_create_cq(dev.ctx, 1023, NULL, NULL, 0);
	t.rcq = ibv_create_cq(dev.ctx, 1023, NULL, NULL, 0);
	assert_true(t.mr && t.scq && t.rcq);
	must(inlay_uar_create(&t.uar, dev.pd, INLAY_UAR_SERIAL, NULL));
	t.qp = raw_qp(t.uar.pd, t.scq, RING / 4, 0);
	t.to = raw_qp(dev.pd, t.rcq, 1, BUFFERS);
	must(inlay_cq_from_cq(&t.cq, t.scq, NULL));
	must(inlay_cq_from_cq(&t.rxcq, t.rcq, NULL));
	must(inlay_sq_from_qp(&t.sq, t.qp, &t.uar, &t.cq, NULL));
	must(inlay_rq_from_qp(&t.rq, t.to, &t.rxcq, NULL));
	raw_up(t.qp);
	/* "Raw packet receives posted in INIT": on RTR libmlx5 sets their record to 0, so they are rung for after it */
	must(ibv_modify_qp(t.to, &init, IBV_QP_STATE | IBV_QP_PORT));
	for (uint32_t i = 0; i < BUFFERS; i++)
		buffer_post(i);
	inlay_rq_ring(&t.rq);
	qp_to(t.to, IBV_QPS_RTR);
	assert_int_equal(*t.rq.dbrec, 0);
	inlay_rq_ring(&t.rq);
	memcpy(rule.mac, there, 6);
	rule.tag = TAG;
	must(inlay_flow_create(&t.flow, t.to, &rule, NULL));
	return 0;
}

static int close_packets(void **state)
{
	if (dev.port.link_layer != IBV_LINK_LAYER_ETHERNET)
		return dev_close(state);
	must(ibv_destroy_flow(t.flow));
	must(ibv_destroy_qp(t.qp));
	must(ibv_destroy_qp(t.to));
	inlay_sq_fini(&t.sq);
	inlay_rq_fini(&t.rq);
	must(inlay_uar_destroy(&t.uar, NULL));
	must(ibv_destroy_cq(t.scq));
	must(ibv_destroy_cq(t.rcq));
	must(ibv_dereg_mr(t.mr));
	return dev_close(state);
}

static void need_packets(void)
{
	if (dev.port.link_layer != IBV_LINK_LAYER_ETHERNET)
		skip();
}

/* Sends complete, and everything is free again */
static void all_sent(void)
{
	while (inlay_sq_pending(&t.sq)) {
		const struct mlx5_cqe64 *cqe = cqe_wait(&t.cq);

		if (inlay_cqe_is_error(cqe))
			inlay_cqe_print(stderr, cqe);
		assert_int_equal(inlay_cqe_status(cqe), IBV_WC_SUCCESS);
		assert_true(0 < inlay_sq_release(&t.sq, cqe));
		inlay_cq_advance(&t.cq, 1);
	}
}

/* What the completion says of a packet: its sum, and the type and checks of its IP header */
static void described(const struct mlx5_cqe64 *cqe, const uint8_t *at, uint32_t len)
{
	uint32_t l3 = 12, type;

	for (type = packet_u16(at + l3); type == 0x8100 || type == 0x88a8; type = packet_u16(at + l3))
		l3 += 4;
	l3 += 2;
	assert_int_equal(inlay_cqe_checksum(cqe), packet_sum(at + l3, len - l3, 0));
	assert_int_equal(inlay_cqe_vlan(cqe), -ENOENT);
	assert_int_equal(inlay_cqe_flow_tag(cqe), TAG);
	if (type == 0x0800 && at[l3] >> 4 == 4) {
		assert_int_equal(inlay_cqe_l3_type(cqe), MLX5_CQE_L3_HDR_TYPE_IPV4);
		assert_int_equal(!!(inlay_cqe_checks(cqe) & MLX5_CQE_L3_OK), packet_sum(at + l3, (at[l3] & 15) * 4, 0) == 0xffff);
	} else if (type == 0x86dd && at[l3] >> 4 == 6) {
		assert_int_equal(inlay_cqe_l3_type(cqe), MLX5_CQE_L3_HDR_TYPE_IPV6);
	}
}

/* The next packet, of len bytes; its buffer is posted again */
static const uint8_t *received(uint32_t len)
{
	const struct mlx5_cqe64 *cqe = cqe_wait(&t.rxcq);
	uint32_t index;

	must(inlay_qp_user_index(t.to, &index, NULL));
	assert_int_equal(inlay_cqe_user_index(cqe), index);
	assert_int_equal(inlay_cqe_status(cqe), IBV_WC_SUCCESS);
	assert_int_equal(inlay_cqe_byte_count(cqe), len < 60 ? 60 : len);
	described(cqe, t.in + t.taken % BUFFERS * ROOM, inlay_cqe_byte_count(cqe));
	assert_true(0 < inlay_rq_release(&t.rq, cqe));
	inlay_cq_advance(&t.rxcq, 1);
	buffer_post(t.taken);
	inlay_rq_ring(&t.rq);
	return t.in + t.taken++ % BUFFERS * ROOM;
}

static struct ibv_sge sge_at(const void *at, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)at, len, t.mr->lkey};

	return sge;
}

/* A packet that has come, as p but for its checksums, which are right */
static void right(const uint8_t *at, const struct packet *q, unsigned proto)
{
	assert_true(packet_l3_good(at, q->l3, q->len) && packet_l4_good(at, q->l3, q->l4, proto, q->len));
	assert_memory_equal(at, q->at, q->l3 + 10);
	assert_memory_equal(at + q->data, q->at + q->data, q->len - q->data);
}

static struct inlay_eth sums(void)
{
	return inlay_eth_csum(INLAY_CSUM_L3 | INLAY_CSUM_L4);
}

/* What DPDK and Linux call these, and where they put them: Linux's struct mlx5_wqe_eth_seg */
TEST(layouts)
{
	static const struct { const char *name; uint32_t at, bytes, first, then; } rows[] = {
		{"swp_outer_l4_offset and the next", 0, 4, 0, 0}, {"cs_flags", 4, 1, 0x90, 0x90}, {"swp_flags", 5, 1, 0, 0},
		{"mss", 6, 2, 0x1234, 0x2001}, {"flow_table_metadata", 8, 4, 0, 0},
		/* Linux: MLX5_ETH_WQE_INSERT_VLAN | MLX5_ETH_WQE_SVLAN; DPDK: MLX5_ETH_WQE_VLAN_INSERT, bit 31 of both together */
		{"insert_type", 12, 2, 1 << 15 | 1, 1 << 15}, {"insert_vlan_tci", 14, 2, 0x6123, 0x1eee},
	};
	struct inlay_eth eth[2];
	uint32_t i, k, n, got;

	assert_int_equal(sizeof(eth[0]), 16);
	/* DPDK: MLX5_OPCODE_ENHANCED_MPSW, MLX5_WQE_SIZE_MAX, MLX5_ESEG_MIN_INLINE_SIZE */
	assert_true(INLAY_OPCODE_MULTI_PACKET == 0x29 && INLAY_MULTI_PACKET_DS * 16 == 60 * 16 && INLAY_L2_INLINE == 18);
	assert_int_equal(MLX5_OPCODE_TSO, 0x0e);
	/* Linux: MLX5_ETH_WQE_L3_INNER_CSUM and so on */
	assert_true(INLAY_CSUM_INNER_L3 == 1 << 4 && INLAY_CSUM_INNER_L4 == 1 << 5 && INLAY_CSUM_L3 == 1 << 6 && INLAY_CSUM_L4 == 1 << 7);
	eth[0] = inlay_eth_mss(inlay_eth_vlan(inlay_eth_csum(INLAY_CSUM_L4 | INLAY_CSUM_INNER_L3), 0x6123, 1), 0x1234);
	/* Said again, each is what was said last, and nothing else changes */
	eth[1] = inlay_eth_mss(inlay_eth_vlan(eth[0], 0x1eee, 0), 0x2001);
	for (i = 0; i < ARRAY(rows); i++)
		for (k = 0; k < 2; k++) {
			for (got = n = 0; n < rows[i].bytes; n++)
				got = got << 8 | ((const uint8_t *)&eth[k])[rows[i].at + n];
			if (got != (k ? rows[i].then : rows[i].first))
				fail_msg("%s: 0x%x", rows[i].name, got);
		}
}

/* What a burst and a multi-packet WQE carry arrives whole and in order; a full ring is an answer */
TEST(bursts)
{
	static struct packet all[BATCH];
	struct shape s = {0, 4, 6, 0, 0, 0, 0};
	struct ibv_sge sge[BATCH];
	uint32_t turn, i, n, how;
	int got;

	need_packets();
	for (turn = 0; turn < 150; turn++) {
		how = turn % 3;
		n = 1 + rnd_below(how == 0 ? inlay_sq_size(&t.sq) : how == 1 ? BATCH : 20);
		if (how == 0 && n > BATCH)
			n = BATCH;
		for (i = 0; i < n; i++) {
			s.payload = how == 2 ? rnd_below(120) : rnd_below(1200);
			packet_make(&all[i], &s, there, here);
			memcpy(t.out + i * ROOM, all[i].at, all[i].len);
			sge[i] = sge_at(t.out + i * ROOM, all[i].len);
		}
		if (how == 0)
			got = inlay_post_packets(&t.sq, sums(), sge, n, INLAY_SIGNALED | INLAY_RING);
		else
			got = inlay_post_packets_multi(&t.sq, sums(), sge, n, INLAY_SIGNALED | INLAY_RING | (how == 2 ? INLAY_INLINE : 0));
		assert_int_equal(got, n);
		if (how == 1)
			assert_int_equal(inlay_sq_pending(&t.sq), (n > 58 ? 15 : 0) + ((n > 58 ? n - 58 : n) + 2 + 3) / 4);
		for (i = 0; i < n; i++)
			right(received(all[i].len), &all[i], 6);
		all_sent();
	}
	/* No room: what fits, then nothing; and it all comes */
	packet_make(&p, &s, there, here);
	memcpy(t.out, p.at, p.len);
	for (i = 0; i < BATCH; i++)
		sge[i] = sge_at(t.out, p.len);
	for (how = 0; how < 2; how++) {
		for (n = 0; (got = how ? inlay_post_packets_multi(&t.sq, sums(), sge, 37, INLAY_SIGNALED) :
			     inlay_post_packets(&t.sq, sums(), sge, 37, INLAY_SIGNALED)) > 0; n += (uint32_t)got)
			if (n > BUFFERS / 2)
				break;
		if (!how) {
			assert_int_equal(n, inlay_sq_size(&t.sq));
			assert_int_equal(got, -EAGAIN);
		}
		inlay_sq_ring(&t.sq);
		for (n += got > 0 ? (uint32_t)got : 0; n; n--)
			right(received(p.len), &p, 6);
		all_sent();
	}
}

/* A ring of 4 WQEBBs, which holds six packets in its last two; each post and its answer */
TEST(small_ring)
{
	enum { MULTI, ONE, DRAIN };
	static const struct { uint32_t how, n, len, flags; int answer; } rows[] = {
		{MULTI, 9, 60, INLAY_SIGNALED, 6}, {MULTI, 1, 60, 0, -EAGAIN}, {ONE, 1, 60, 0, -EAGAIN}, {ONE, 2, 60, 0, -EAGAIN},
		{ONE, INLAY_MAX_DS + 1, 60, 0, -EINVAL}, {ONE, 1, INLAY_MAX_DS * INLAY_DS + 32, INLAY_INLINE, -EINVAL},
		/* Inline it may fit once the ring is free: 14 units; or never */
		{MULTI, 1, 14 * 16 - 4, INLAY_INLINE, -EAGAIN}, {MULTI, 1, 14 * 16 - 3, INLAY_INLINE, -E2BIG}, {DRAIN, 0, 0, 0, 4},
		{MULTI, 1, 14 * 16 - 3, INLAY_INLINE, -E2BIG}, {MULTI, 1, 14 * 16 - 4, INLAY_INLINE, 1},
		/* The longest multi-packet WQE, which this ring never holds, and one longer */
		{MULTI, 1, (INLAY_MULTI_PACKET_DS - 2) * 16 - 4, INLAY_INLINE, -E2BIG},
		{MULTI, 1, (INLAY_MULTI_PACKET_DS - 2) * 16 - 3, INLAY_INLINE, -EINVAL},
	};
	static uint8_t ring[32 * 64] __attribute__((aligned(64))), reg[512] __attribute__((aligned(512)));
	static uint8_t data[2048];
	struct ibv_sge sge[INLAY_MAX_DS + 1];
	struct inlay_sq sq, before;
	struct inlay_uar uar;
	uint32_t record[2], i, k;

	must(inlay_uar_init(&uar, reg, 256, INLAY_UAR_DOORBELL));
	must(inlay_sq_init(&sq, ring, 4, record, 5, 63, &uar));
	inlay_sq_query_packet_(&sq, dev.ctx);
	if (t.qp) {
		assert_int_equal(sq.min_inline, t.sq.min_inline);
		assert_int_equal(sq.multi_packet, t.sq.multi_packet);
	}
	inlay_sq_set_packet_(&sq, 0, 1);
	must(inlay_post(&sq, MLX5_OPCODE_NOP, NULL, 0));
	must(inlay_post(&sq, MLX5_OPCODE_NOP, NULL, 0));
	for (i = 0; i < ARRAY(rows); i++) {
		int got;

		for (k = 0; k < ARRAY(sge); k++) {
			sge[k].addr = (uintptr_t)data;
			sge[k].length = rows[i].len;
			sge[k].lkey = 1;
		}
		got = rows[i].how == DRAIN ? inlay_sq_release_until(&sq, sq.pi) :
		      rows[i].how == ONE ? inlay_post_packet(&sq, sums(), sge, rows[i].n, rows[i].flags) :
					   inlay_post_packets_multi(&sq, sums(), sge, rows[i].n, rows[i].flags);
		if (got != rows[i].answer)
			fail_msg("row %u: %d", i, got);
		if (!i) {
			assert_int_equal(ring[2 * 64 + 7], 8);
			assert_int_equal(ring[2 * 64 + 11], 8);
		}
	}
	/* In a room of 20 WQEBBs the first WQE is no longer than the longest */
	must(inlay_sq_init(&sq, ring, 32, record, 5, 63, &uar));
	inlay_sq_set_packet_(&sq, 0, 1);
	for (i = 0; i < 12; i++)
		must(inlay_post(&sq, MLX5_OPCODE_NOP, NULL, 0));
	for (i = 0; i < ARRAY(sge); i++)
		sge[i].length = 60;
	assert_int_equal(inlay_post_packets_multi(&sq, sums(), sge, 64, 0), 64);
	assert_true(ring[12 * 64 + 7] == INLAY_MULTI_PACKET_DS && ring[27 * 64 + 7] == 8);
	for (i = 0; i < 3; i++)
		must(inlay_post_packet(&sq, sums(), sge, 1, 0));
	assert_int_equal(inlay_post_packet(&sq, sums(), sge, 1, 0), -EAGAIN);
	/* So many bytes that a count of 16-byte units would be small again */
	for (i = 0; i < 16; i++)
		sge[i].length = 0xffffffff;
	sge[16].length = 16 + 64;
	before = sq;
	assert_int_equal(inlay_post_packet(&sq, sums(), sge, 17, INLAY_INLINE), -EINVAL);
	assert_memory_equal(&sq, &before, sizeof(sq));
}

/* A tag that the device inserts, of either type */
TEST(tags)
{
	static const struct shape s = {0, 4, 17, 0, 0, 300, 0};
	struct ibv_sge sge;
	const uint8_t *at;

	need_packets();
	for (uint32_t service = 0; service < 2; service++) {
		packet_make(&p, &s, there, here);
		memcpy(t.out, p.at, p.len);
		sge = sge_at(t.out, p.len);
		must(inlay_post_packet(&t.sq, inlay_eth_vlan(sums(), 0x6123, service), &sge, 1, INLAY_SIGNALED | INLAY_RING));
		at = received(p.len + 4);
		assert_memory_equal(at, p.at, 12);
		assert_int_equal(packet_u32(at + 12), service ? 0x88a86123 : 0x81006123);
		assert_true(packet_l3_good(at, p.l3 + 4, p.len + 4) && packet_l4_good(at, p.l3 + 4, p.l4 + 4, 17, p.len + 4));
		assert_memory_equal(at + p.data + 4, p.at + p.data, p.len - p.data);
		all_sent();
	}
}

/* Segmentation at every place of the ring, headers that wrap among them */
TEST(segments)
{
	struct shape s = {0, 4, 6, 0, 0, 0, 0};
	uint32_t i, off, n, mss, k;
	struct ibv_sge sge[3];
	const uint8_t *at;

	need_packets();
	for (i = 0; i < 3 * inlay_sq_size(&t.sq) + 1; i++) {
		s.version = i & 1 ? 6 : 4;
		s.tags = i / 2 % 3;
		s.tcp_options = i % 5 * 4;
		s.payload = 1 + rnd_below(i & 8 ? 60 : 12000);
		mss = i & 8 ? 30 : 400 + rnd_below(1000);
		packet_make(&p, &s, there, here);
		memcpy(t.out, p.at, p.len);
		sge[0] = sge_at(t.out + p.data, s.payload / 2);
		sge[1] = sge_at(t.out + p.data, 0);
		sge[2] = sge_at(t.out + p.data + s.payload / 2, s.payload - s.payload / 2);
		/* The device fills it in, whatever it is */
		if (s.version == 4 && i & 4)
			packet16(p.at + p.l3 + 2, 0);
		must(inlay_post_tso(&t.sq, inlay_eth_mss(sums(), mss), p.at, p.data, sge, 3,
				    INLAY_SIGNALED | INLAY_RING | (i & 8 ? INLAY_INLINE : 0)));
		for (off = 0, k = 0; off < s.payload; off += n, k++) {
			n = s.payload - off < mss ? s.payload - off : mss;
			at = received(p.data + n);
			assert_memory_equal(at + p.data, p.at + p.data + off, n);
			assert_true(packet_l3_good(at, p.l3, p.data + n) && packet_l4_good(at, p.l3, p.l4, 6, p.data + n));
			assert_int_equal(packet_u32(at + p.l4 + 4), 0xfffff800u + off);
			assert_int_equal(at[p.l4 + 13] & 0x89, (off + n == s.payload ? 0x09 : 0) | (k ? 0 : 0x80));
		}
		all_sent();
		/* One WQEBB further, whatever this one's length */
		if (i % 3 == 0) {
			must(inlay_post(&t.sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED | INLAY_RING));
			all_sent();
		}
	}
}

/* A tunnel's inner packet, which the device finds (VXLAN); whole, and cut up */
TEST(tunnels)
{
	static const struct shape outer_of = {0, 4, 17, 0, 0, 0, 4789};
	static struct packet inner;
	struct shape shape = outer_of, s = {0, 4, 6, 0, 4, 0, 0};
	struct inlay_eth eth = inlay_eth_csum(INLAY_CSUM_L3 | INLAY_CSUM_L4 | INLAY_CSUM_INNER_L3 | INLAY_CSUM_INNER_L4);
	uint32_t i, from, tso, off, n, mss = 500;
	const uint8_t *at;
	struct ibv_sge sge;

	need_packets();
	for (i = 0; i < 8; i++) {
		tso = i & 2;
		s.version = i & 1 ? 6 : 4;
		s.payload = tso ? 2345 : 300;
		packet_make(&inner, &s, here, there);
		shape.payload = 8 + inner.len;
		packet_make(&p, &shape, there, here);
		memset(p.at + p.data, 0, 8);
		from = p.data + 8;
		memcpy(p.at + from, inner.at, inner.len);
		memcpy(t.out, p.at, p.len);
		if (tso) {
			sge = sge_at(t.out + from + inner.data, s.payload);
			must(inlay_post_tso(&t.sq, inlay_eth_mss(eth, mss), p.at, from + inner.data, &sge, 1, INLAY_SIGNALED | INLAY_RING));
		} else {
			sge = sge_at(t.out, p.len);
			must(inlay_post_packet(&t.sq, eth, &sge, 1, INLAY_SIGNALED | INLAY_RING));
		}
		for (off = 0; off < s.payload; off += n) {
			n = tso && s.payload - off > mss ? mss : s.payload - off;
			at = received(from + inner.data + n);
			assert_true(packet_l3_good(at, p.l3, from + inner.data + n));
			assert_true(packet_l4_good(at, p.l3, p.l4, 17, from + inner.data + n));
			assert_true(packet_l3_good(at, from + inner.l3, from + inner.data + n));
			assert_true(packet_l4_good(at, from + inner.l3, from + inner.l4, 6, from + inner.data + n));
			assert_memory_equal(at + from + inner.data, p.at + from + inner.data + off, n);
		}
		all_sent();
	}
}

int main(void)
{
	return run_all(open_packets, close_packets);
}
