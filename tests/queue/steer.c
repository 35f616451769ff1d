/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * steer.c: rules and RSS. Each rule takes the packets that a plain reading of its fields says; each packet goes to the queue that its
 * Toeplitz hash, computed here from the published definition, says. Striding queues, plain and compressed CQEs.
 */
#include "raw.h"

#define TAG 0x123456u

static int open_sender(void **state)
{
	if (dev_open(state))
		return -1;
	sender_open();
	return 0;
}

static int close_sender(void **state)
{
	sender_close();
	return dev_close(state);
}

TEST(rules)
{
	uint32_t round, i, taken = 0, passed = 0;
	struct ibv_cq *ibcq;
	struct inlay_cq cq;
	struct inlay_rq rq;
	struct ibv_qp *to;
	struct ibv_mr *mr;
	uint8_t *in;

	need_ethernet();
	ibcq = ibv_create_cq(dev.ctx, 64, NULL, NULL, 0);
	in = (uint8_t *)pages(ROOM);
	mr = ibv_reg_mr(dev.pd, in, ROOM, IBV_ACCESS_LOCAL_WRITE);
	assert_true(ibcq && mr);
	to = raw_qp(dev.pd, ibcq, 1, 4);
	must(inlay_cq_from_cq(&cq, ibcq, NULL));
	must(inlay_rq_from_qp(&rq, to, &cq, NULL));
	for (round = 0; round < 150; round++) {
		struct inlay_flow_match m = random_rule(TAG);
		struct ibv_flow *flow;

		must(inlay_flow_create(&flow, to, &m, NULL));
		for (i = 0; i < 24; i++) {
			struct shape s = random_packet(i);
			struct ibv_sge sge = {(uintptr_t)in, ROOM, mr->lkey};
			const struct mlx5_cqe64 *cqe;

			must(inlay_post_recv(&rq, &sge, 1));
			inlay_rq_ring(&rq);
			send_packet();
			if (!takes(&m, &s)) {
				nothing_came(&cq);
				/* Its buffer is for the next */
				rq.pi--;
				inlay_rq_ring(&rq);
				passed++;
				continue;
			}
			cqe = cqe_wait(&cq);
			assert_int_equal(inlay_cqe_byte_count(cqe), p.len < 60 ? 60 : p.len); /* the shortest Ethernet frame */
			if (m.tag)
				assert_int_equal(inlay_cqe_flow_tag(cqe), m.tag);
			assert_memory_equal(in, p.at, p.l3);
			assert_int_equal(inlay_rq_release(&rq, cqe), 1);
			inlay_cq_advance(&cq, 1);
			taken++;
		}
		must(ibv_destroy_flow(flow));
	}
	printf("# %u taken, %u passed\n", taken, passed);
	assert_true(taken > 100 && passed > 100);
	must(ibv_destroy_qp(to));
	inlay_rq_fini(&rq);
	must(ibv_destroy_cq(ibcq));
	must(ibv_dereg_mr(mr));
	free(in);
}

/* What cannot be a rule; all that no other rule takes */
TEST(no_rules)
{
	static const struct { struct inlay_flow_match m; } bad[] = {
		{{{0}, 0, 0, 6, {0}, {0}, 0, 0, 0, 0, 0}},           /* TCP, but of which IP? */
		{{{0}, 0, 0x88b5, 17, {0}, {0}, 0, 0, 0, 0, 0}},
		{{{0}, 0, 0x0800, 1, {0}, {0}, 0, 0, 0, 0, 0}},      /* ICMP */
		{{{0}, 0, 0x0800, 0, {0}, {0}, 0, 80, 0, 0, 0}},     /* port 80 of what? */
		{{{0}, 0, 0x0800, 0, {0}, {0}, 80, 0, 0, 0, 0}},
		{{{0}, 0, 0, 0, {10}, {0}, 0, 0, 0, 0, 0}}, {{{0}, 0, 0, 0, {0}, {10}, 0, 0, 0, 0, 0}},
		{{{0}, 0x1000, 0, 0, {0}, {0}, 0, 0, 0, 0, 0}},
		{{{0}, 1, 0, 0, {0}, {0}, 0, 0, 0, 1u << 24, 0}},
		{{{2}, 0, 0, 0, {0}, {0}, 0, 0, 0, 0, 2}},           /* a port that there is not */
	};
	struct inlay_flow_match all = {};
	struct ibv_flow *flow;
	const char *why;
	struct ibv_qp *to;

	need_ethernet();
	to = raw_qp(dev.pd, t.scq, 1, 4);
	for (uint32_t i = 0; i < ARRAY(bad); i++) {
		why = NULL;
		assert_int_equal(inlay_flow_create(&flow, to, &bad[i].m, &why), -EINVAL);
		assert_true(why && !flow);
	}
	must(inlay_flow_create(&flow, to, &all, &why));
	must(ibv_destroy_flow(flow));
	must(ibv_destroy_qp(to));
}

#define QUEUES 5u

struct queue { struct inlay_packet_queue in; uint8_t *buf; struct ibv_mr *mr; uint32_t came, index; };

static const struct inlay_strides strides = {10, 6, 2}; /* 1,024 of 64 bytes; the two-byte shift */

static void queue_open(struct queue *q, uint32_t flags)
{
	q->came = 0;
	must(inlay_packet_queue_create(&q->in, dev.pd, 3, &strides, flags, NULL));
	q->buf = (uint8_t *)pages(4 * 65536);
	q->mr = made(ibv_reg_mr(dev.pd, q->buf, 4 * 65536, IBV_ACCESS_LOCAL_WRITE));
	for (uint32_t i = 0; i < 4; i++)
		must(inlay_striding_post(&q->in.rq, (uintptr_t)q->buf + i * 65536, q->mr->lkey));
	assert_int_equal(inlay_rq_room(&q->in.rq.rq), 0);
	inlay_rq_ring(&q->in.rq.rq);
	q->index = 0xffffff;
	if (inlay_wq_user_index(q->in.wq, &q->index, NULL) == -ENOTSUP && !softdev_present())
		skip(); /* no DEVX */
}

static void queue_close(struct queue *q)
{
	must(inlay_packet_queue_destroy(&q->in, NULL));
	must(inlay_packet_queue_destroy(&q->in, NULL));
	must(ibv_dereg_mr(q->mr));
	free(q->buf);
}

/* A packet that one of the queues must have, after what has come before; batches of them, so that CQEs are compressed */
struct sent { uint8_t at[256]; uint32_t len, hash; };

static void come(struct queue *q, const struct sent *s, bool compressed)
{
	struct inlay_packet_at at = {0, 0, 0};
	const struct mlx5_cqe64 *cqe;
	int done;

	do {
		cqe = cqe_wait(&q->in.cq);
		if (inlay_cqe_is_special(cqe)) {
			assert_true(compressed && inlay_cqe_is_compressed(cqe));
			assert_true(inlay_cq_unzip(&q->in.cq) > 0);
			q->came++;
		}
		done = inlay_striding_take(&q->in.rq, cqe, &at);
		assert_in_range(done, 0, 1);
		if (at.len) {
			assert_int_equal(at.len, s->len);
			assert_int_equal(at.offset % 64, 2);
			assert_memory_equal(q->buf + at.wqe * 65536 + at.offset, s->at, 24);
			assert_int_equal(inlay_cqe_flow_tag(cqe), TAG);
			assert_int_equal(inlay_cqe_user_index(cqe), q->index);
			if (!compressed) {
				assert_int_equal(inlay_cqe_rss_hash(cqe), s->hash);
				assert_int_equal(inlay_cqe_rss_type(cqe), INLAY_RSS_IPV4 | INLAY_RSS_UDP);
				assert_int_equal(inlay_cqe_checks(cqe), MLX5_CQE_L2_OK | MLX5_CQE_L3_OK | MLX5_CQE_L4_OK);
			}
		}
		inlay_cq_advance(&q->in.cq, 1);
		if (done) {
			inlay_striding_recycle(&q->in.rq);
			inlay_rq_ring(&q->in.rq.rq);
		}
	} while (!at.len);
}

static void spread_over(uint32_t n, bool compressed, uint32_t rounds)
{
	static struct sent sent[BATCH];
	uint32_t round, i, to[BATCH], lens[BATCH], size = n & (n - 1) ? INLAY_RSS_QUEUES : n, all[QUEUES] = {0}, blocks = 0;
	struct ibv_wq *wqs[QUEUES];
	struct queue q[QUEUES];
	struct inlay_flow_match m = {.type = 0x0800, .proto = 17, .tag = TAG};
	struct ibv_flow *flow;
	struct inlay_rss rss;
	const char *why;

	assert_memory_equal(inlay_rss_key_(), key, INLAY_RSS_KEY); /* the hashes below need the first 16 bytes */
	for (i = 0; i < n; i++) {
		queue_open(&q[i], compressed ? INLAY_PACKETS_COMPRESSED : 0);
		wqs[i] = q[i].in.wq;
	}
	must(inlay_rss_create(&rss, dev.pd, wqs, n, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_PORT_UDP |
						       IBV_RX_HASH_DST_PORT_UDP, &why));
	must(inlay_flow_create(&flow, rss.qp, &m, &why));
	for (round = 0; round < rounds; round++) {
		for (i = 0; i < ARRAY(sent); i++) {
			struct shape s = {0, 4, 17, 0, 0, 18 + rnd_below(180), (uint16_t)(1 + rnd_below(60000))};
			uint8_t in[12];

			packet_make(&p, &s, here, there);
			packet16(p.at + p.l3 + 14, rnd_below(65536));
			memcpy(in, p.at + p.l3 + 12, 8);
			memcpy(in + 8, p.at + p.l4, 4);
			memcpy(sent[i].at, p.at, 24);
			sent[i].len = p.len;
			sent[i].hash = toeplitz(in, 12);
			to[i] = sent[i].hash % size % n;
			all[to[i]]++;
			/* The device fills in the IP header's checksum, at 24 */
			memcpy(t.out + i * ROOM, p.at, p.len);
			lens[i] = p.len;
		}
		send_packets(lens, BATCH);
		for (i = 0; i < ARRAY(sent); i++)
			come(&q[to[i]], &sent[i], compressed);
	}
	for (i = 0; i < n; i++) {
		expect_nothing(&q[i].in.cq);
		assert_true(all[i] > rounds * ARRAY(sent) / n / 2);
		blocks += q[i].came;
	}
	assert_int_equal(blocks != 0, compressed);
	assert_int_equal(inlay_rss_destroy(&rss, &why), -EBUSY); /* a rule leads to it */
	must(ibv_destroy_flow(flow));
	must(inlay_rss_destroy(&rss, &why));
	must(inlay_rss_destroy(&rss, &why));
	for (i = 0; i < n; i++)
		queue_close(&q[i]);
}

TEST(spread)
{
	need_ethernet();
	spread_over(4, false, 60);
	spread_over(3, false, 60);
	spread_over(5, true, 60);
}

/* The outermost VLAN tag of a packet, in the packet or in the CQE */
TEST(strips)
{
	static const struct shape s = {1, 4, 17, 0, 0, 100, 5000};
	struct ibv_device_attr_ex can;
	struct inlay_flow_match m = {.vlan = 100, .type = 0x0800};

	need_ethernet();
	must(ibv_query_device_ex(dev.ctx, NULL, &can));
	if (!(can.raw_packet_caps & IBV_RAW_PACKET_CAP_CVLAN_STRIPPING)) {
		assert_false(softdev_present());
		print_message("# skipped: the device strips no tags\n");
		skip();
	}
	for (uint32_t strip = 0; strip < 2; strip++) {
		struct inlay_packet_at at = {0, 0, 0};
		const struct mlx5_cqe64 *cqe;
		struct ibv_flow *flow;
		struct inlay_rss rss;
		struct queue q;

		queue_open(&q, strip ? INLAY_PACKETS_STRIP_VLAN : 0);
		must(inlay_rss_create(&rss, dev.pd, &q.in.wq, 1, 0, NULL));
		must(inlay_flow_create(&flow, rss.qp, &m, NULL));
		packet_make(&p, &s, here, there);
		send_packet();
		cqe = cqe_wait(&q.in.cq);
		assert_int_equal(inlay_striding_take(&q.in.rq, cqe, &at), 0);
		assert_int_equal(at.len, p.len - 4 * strip);
		assert_int_equal(inlay_cqe_vlan(cqe), strip ? (int)packet_u16(p.at + 14) : -ENOENT);
		assert_memory_equal(q.buf + at.offset, p.at, 12);
		assert_memory_equal(q.buf + at.offset + 12, p.at + 12 + 4 * strip, 8);
		inlay_cq_advance(&q.in.cq, 1);
		must(ibv_destroy_flow(flow));
		must(inlay_rss_destroy(&rss, NULL));
		queue_close(&q);
	}
}

TEST(no_spread)
{
	static const struct { uint32_t buffers, flags; struct inlay_strides strides; } bad[] = {
		{0, 0, {10, 6, 0}}, {1, 0, {10, 6, 0}}, {32769, 0, {9, 6, 0}},
		{4, 4, {10, 6, 0}}, {4, 0, {17, 6, 0}}, {4, 0, {10, 5, 0}}, {4, 0, {10, 6, 1}},
		{32768, 0, {9, 6, 0}},  /* too many CQEs */
		{4, 0, {2, 6, 0}},      /* what the device refuses */
	};
	struct inlay_packet_queue none;
	struct ibv_wq *wqs[3];
	struct queue q[3];
	struct inlay_rss rss;
	const char *why;

	need_ethernet();
	for (uint32_t i = 0; i < ARRAY(bad); i++) {
		why = NULL;
		assert_int_equal(inlay_packet_queue_create(&none, dev.pd, bad[i].buffers, &bad[i].strides, bad[i].flags, &why), -EINVAL);
		assert_true(why && !none.wq && !none.ibcq);
	}
	for (uint32_t i = 0; i < 3; i++) {
		queue_open(&q[i], 0);
		wqs[i] = q[i].in.wq;
	}
	assert_int_equal(inlay_rss_create(&rss, dev.pd, wqs, 0, 0, &why), -EINVAL);
	assert_int_equal(inlay_rss_create(&rss, dev.pd, wqs, 2, 0, &why), -EINVAL);
	assert_int_equal(inlay_rss_create(&rss, dev.pd, wqs, INLAY_RSS_QUEUES + 1, IBV_RX_HASH_SRC_IPV4, &why), -EINVAL);
	/* The device's own refusals: nothing is left behind */
	assert_true(inlay_rss_create(&rss, dev.pd, wqs, 2, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_SRC_IPV6, &why) < 0);
	assert_true(inlay_rss_create(&rss, dev.pd, wqs, 3, UINT64_C(1) << 40, &why) < 0);
	assert_true(!rss.qp && !rss.table);
	must(inlay_rss_destroy(&rss, &why));
	must(inlay_rss_create(&rss, dev.pd, wqs, 1, 0, &why));
	must(inlay_rss_destroy(&rss, &why));
	for (uint32_t i = 0; i < 3; i++)
		queue_close(&q[i]);
}

int main(void)
{
	return run_all(open_sender, close_sender);
}
