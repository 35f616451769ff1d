/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * steer.c: rules and RSS. Each rule takes the packets that a plain reading of its fields says; each packet goes to the queue that its
 * Toeplitz hash, computed here from the published definition, says. Striding queues, plain and compressed CQEs; two CQE sizes.
 */
#include "common.h"
#include "softdev/tests/packets.h"

#define ROOM 2048u
#define BATCH 40u
#define TAG 0x123456u

static const uint8_t here[6] = {2, 0, 0, 0, 0, 1}, there[6] = {2, 0, 0, 0, 0, 2};

static struct {
	struct ibv_cq *scq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct inlay_uar uar;
	struct inlay_cq cq;
	struct inlay_sq sq;
	uint8_t *out;
} t;
static struct packet p;

static struct ibv_qp *raw_qp(struct ibv_pd *pd, struct ibv_cq *cq, uint32_t send, uint32_t recv)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	struct ibv_qp *qp;

	memset(&init, 0, sizeof(init));
	memset(&a, 0, sizeof(a));
	init.qp_type = IBV_QPT_RAW_PACKET;
	init.send_cq = init.recv_cq = cq;
	init.cap.max_send_wr = send;
	init.cap.max_recv_wr = recv;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	qp = ibv_create_qp(pd, &init);
	assert_non_null(qp);
	a.qp_state = IBV_QPS_INIT;
	a.port_num = 1;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT));
	qp_to(qp, IBV_QPS_RTR);
	qp_to(qp, IBV_QPS_RTS);
	return qp;
}

static int open_sender(void **state)
{
	if (dev_open(state))
		return -1;
	if (dev.port.link_layer != IBV_LINK_LAYER_ETHERNET)
		return 0;
	t.out = (uint8_t *)pages(BATCH * ROOM);
	t.mr = ibv_reg_mr(dev.pd, t.out, BATCH * ROOM, IBV_ACCESS_LOCAL_WRITE);
	t.scq = ibv_create_cq(dev.ctx, 255, NULL, NULL, 0);
	assert_true(t.mr && t.scq);
	must(inlay_uar_create(&t.uar, dev.pd, INLAY_UAR_SERIAL, NULL));
	t.qp = raw_qp(t.uar.pd, t.scq, BATCH, 0);
	must(inlay_cq_from_cq(&t.cq, t.scq, NULL));
	must(inlay_sq_from_qp(&t.sq, t.qp, &t.uar, &t.cq, NULL));
	return 0;
}

static int close_sender(void **state)
{
	if (dev.port.link_layer != IBV_LINK_LAYER_ETHERNET)
		return dev_close(state);
	must(ibv_destroy_qp(t.qp));
	inlay_sq_fini(&t.sq);
	must(inlay_uar_destroy(&t.uar, NULL));
	must(ibv_destroy_cq(t.scq));
	must(ibv_dereg_mr(t.mr));
	return dev_close(state);
}

static void need_ethernet(void)
{
	if (dev.port.link_layer != IBV_LINK_LAYER_ETHERNET)
		skip();
}

/* n packets of t.out, each in `ROOM` bytes, to their completion: then they have been delivered */
static void send_packets(const uint32_t *lens, uint32_t n)
{
	const struct mlx5_cqe64 *cqe;
	struct ibv_sge sge[BATCH];
	uint32_t i;

	for (i = 0; i < n; i++) {
		sge[i].addr = (uintptr_t)t.out + i * ROOM;
		sge[i].length = lens[i];
		sge[i].lkey = t.mr->lkey;
	}
	assert_int_equal(inlay_post_packets(&t.sq, inlay_eth_csum(INLAY_CSUM_L3 | INLAY_CSUM_L4), sge, n, INLAY_SIGNALED | INLAY_RING), n);
	cqe = cqe_wait(&t.cq);
	assert_true(!inlay_cqe_is_error(cqe) && inlay_sq_release(&t.sq, cqe) > 0);
	inlay_cq_advance(&t.cq, 1);
}

static void send_packet(void)
{
	memcpy(t.out, p.at, p.len);
	send_packets(&p.len, 1);
}

/* ---- rules ---- */

static bool zeros(const uint8_t *at, size_t n)
{
	return all_bytes(at, n, 0);
}

/* Does the rule take the packet in p, of this shape? */
static bool takes(const struct inlay_flow_match *m, const struct shape *s)
{
	const uint8_t *ip = p.at + p.l3, *l4 = p.at + p.l4;
	unsigned alen = m->type == 0x0800 ? 4 : 16, src = m->type == 0x0800 ? 12 : 8;
	unsigned type = s->version == 4 ? 0x0800 : s->version == 6 ? 0x86dd : 0x88b5;

	return (zeros(m->mac, 6) || !memcmp(m->mac, p.at, 6)) && (!m->type || m->type == type) &&
	       (!m->vlan || (s->tags && (packet_u16(p.at + 14) & 0xfff) == m->vlan)) &&
	       (zeros(m->src, 16) || !memcmp(m->src, ip + src, alen)) &&
	       (zeros(m->dst, 16) || !memcmp(m->dst, ip + src + alen, alen)) &&
	       (!m->proto || (s->version && s->proto == m->proto)) && (!m->sport || packet_u16(l4) == m->sport) &&
	       (!m->dport || packet_u16(l4 + 2) == m->dport);
}

static void rules(void **state)
{
	static const uint8_t v4[2][16] = {{10, 1, 2, 3}, {10, 4, 5, 6}};
	static const uint8_t v6[2][16] = {{0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, {0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};
	uint32_t round, i, taken = 0, passed = 0, posted = 0;
	struct ibv_cq *ibcq;
	struct inlay_cq cq;
	struct inlay_rq rq;
	struct ibv_qp *to;
	struct ibv_mr *mr;
	uint8_t *in;

	(void)state;
	need_ethernet();
	ibcq = ibv_create_cq(dev.ctx, 64, NULL, NULL, 0);
	in = (uint8_t *)pages(ROOM);
	mr = ibv_reg_mr(dev.pd, in, ROOM, IBV_ACCESS_LOCAL_WRITE);
	assert_true(ibcq && mr);
	to = raw_qp(dev.pd, ibcq, 1, 4);
	must(inlay_cq_from_cq(&cq, ibcq, NULL));
	must(inlay_rq_from_qp(&rq, to, &cq, NULL));
	for (round = 0; round < 150; round++) {
		struct inlay_flow_match m;
		struct ibv_flow *flow;

		memset(&m, 0, sizeof(m));
		if (rnd_below(2))
			memcpy(m.mac, here, 6);
		m.type = (uint16_t)(rnd_below(3) == 0 ? 0 : rnd_below(2) ? 0x0800 : 0x86dd);
		m.vlan = rnd_below(3) ? 0 : 100;
		m.priority = (uint16_t)rnd_below(4);
		if (m.type) {
			const uint8_t (*a)[16] = m.type == 0x0800 ? v4 : v6;

			memcpy(m.src, a[rnd_below(2)], rnd_below(3) ? 0 : 16);
			memcpy(m.dst, a[rnd_below(2)], rnd_below(3) ? 0 : 16);
			m.proto = (uint8_t)(rnd_below(2) ? 0 : rnd_below(2) ? 6 : 17);
			m.sport = m.proto && rnd_below(3) == 0 ? 5000 : 0;
			m.dport = (uint16_t)(m.proto && rnd_below(2) ? 80 + rnd_below(2) : 0);
		}
		if (zeros(m.mac, 6) && !m.type && !m.vlan)
			memcpy(m.mac, here, 6);
		m.tag = rnd_below(2) ? TAG : 0;
		must(inlay_flow_create(&flow, to, &m, NULL));
		for (i = 0; i < 24; i++) {
			struct shape s = {i % 3 ? 0u : 1u, i % 2 ? 4u : rnd_below(8) ? 6u : 0, rnd_below(2) ? 6u : 17u, 0, 0, 30, (uint16_t)(80 + rnd_below(2))};
			struct ibv_sge sge = {(uintptr_t)in, ROOM, mr->lkey};
			const struct mlx5_cqe64 *cqe;

			if (!s.version)
				s.proto = 0;
			packet_make(&p, &s, rnd_below(4) ? here : there, there);
			must(inlay_post_recv(&rq, &sge, 1));
			inlay_rq_ring(&rq);
			posted++;
			send_packet();
			if (!takes(&m, &s)) {
				expect_nothing(&cq);
				/* Its buffer is for the next */
				rq.pi--;
				inlay_rq_ring(&rq);
				posted--;
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
}

/* What cannot be a rule; all that no other rule takes */
static void no_rules(void **state)
{
	static const struct {
		struct inlay_flow_match m;
	} bad[] = {
		{{{0}, 0, 0, 6, {0}, {0}, 0, 0, 0, 0, 0}},           /* TCP, but of which IP? */
		{{{0}, 0, 0x88b5, 17, {0}, {0}, 0, 0, 0, 0, 0}},
		{{{0}, 0, 0x0800, 1, {0}, {0}, 0, 0, 0, 0, 0}},      /* ICMP */
		{{{0}, 0, 0x0800, 0, {0}, {0}, 0, 80, 0, 0, 0}},     /* port 80 of what? */
		{{{0}, 0, 0x0800, 0, {0}, {0}, 80, 0, 0, 0, 0}},
		{{{0}, 0, 0, 0, {10}, {0}, 0, 0, 0, 0, 0}},
		{{{0}, 0, 0, 0, {0}, {10}, 0, 0, 0, 0, 0}},
		{{{0}, 0x1000, 0, 0, {0}, {0}, 0, 0, 0, 0, 0}},
		{{{0}, 1, 0, 0, {0}, {0}, 0, 0, 0, 1u << 24, 0}},
		{{{2}, 0, 0, 0, {0}, {0}, 0, 0, 0, 0, 2}},           /* a port that there is not */
	};
	struct inlay_flow_match all;
	struct ibv_flow *flow;
	const char *why;
	struct ibv_qp *to;
	uint32_t i;

	(void)state;
	need_ethernet();
	to = raw_qp(dev.pd, t.scq, 1, 4);
	for (i = 0; i < ARRAY(bad); i++) {
		why = NULL;
		assert_int_equal(inlay_flow_create(&flow, to, &bad[i].m, &why), -EINVAL);
		assert_true(why && !flow);
	}
	memset(&all, 0, sizeof(all));
	must(inlay_flow_create(&flow, to, &all, &why));
	must(ibv_destroy_flow(flow));
	must(ibv_destroy_qp(to));
}

/* ---- RSS ---- */

#define QUEUES 5u

struct queue {
	struct ibv_cq *ibcq;
	struct ibv_wq *wq;
	struct inlay_cq cq;
	struct inlay_striding rq;
	uint8_t *buf;
	struct ibv_mr *mr;
	uint32_t came;
};

static const struct mlx5dv_striding_rq_init_attr shape = {6, 10, 1}; /* 1,024 strides of 64 bytes; the two-byte shift */

static void queue_open(struct queue *q, int format, uint32_t cqe_size)
{
	struct mlx5dv_wq_init_attr striding;
	struct mlx5dv_cq_init_attr zip;
	struct ibv_cq_init_attr_ex cqes;
	struct ibv_wq_init_attr init;
	struct ibv_wq_attr ready;
	uint32_t i;

	memset(q, 0, sizeof(*q));
	memset(&striding, 0, sizeof(striding));
	memset(&zip, 0, sizeof(zip));
	memset(&cqes, 0, sizeof(cqes));
	memset(&init, 0, sizeof(init));
	memset(&ready, 0, sizeof(ready));
	cqes.cqe = 4 * 1024;
	zip.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE | (format < 0 ? 0 : MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE);
	zip.cqe_size = (uint16_t)cqe_size;
	zip.cqe_comp_res_format = format == INLAY_MINI_HASH ? MLX5DV_CQE_RES_FORMAT_HASH :
				  format == INLAY_MINI_CSUM ? MLX5DV_CQE_RES_FORMAT_CSUM : MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX;
	q->ibcq = ibv_cq_ex_to_cq(mlx5dv_create_cq(dev.ctx, &cqes, &zip));
	assert_non_null(q->ibcq);
	must(inlay_cq_from_cq(&q->cq, q->ibcq, NULL));
	if (format >= 0)
		must(inlay_cq_set_compression(&q->cq, (uint32_t)format | (format == INLAY_MINI_CSUM_STRIDX ? 0 : INLAY_MINI_STRIDES), 0));
	init.wq_type = IBV_WQT_RQ;
	init.max_wr = 4;
	init.max_sge = 1;
	init.pd = dev.pd;
	init.cq = q->ibcq;
	striding.comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ;
	striding.striding_rq_attrs = shape;
	q->wq = mlx5dv_create_wq(dev.ctx, &init, &striding);
	assert_non_null(q->wq);
	must(inlay_striding_from_wq(&q->rq, q->wq, &shape, &q->cq, NULL));
	ready.attr_mask = IBV_WQ_ATTR_STATE;
	ready.wq_state = IBV_WQS_RDY;
	must(ibv_modify_wq(q->wq, &ready));
	q->buf = (uint8_t *)pages(4 * 65536);
	q->mr = ibv_reg_mr(dev.pd, q->buf, 4 * 65536, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(q->mr);
	for (i = 0; i < 4; i++)
		must(inlay_striding_post(&q->rq, (uintptr_t)q->buf + i * 65536, q->mr->lkey));
	inlay_striding_ring(&q->rq);
}

static void queue_close(struct queue *q)
{
	must(ibv_destroy_wq(q->wq));
	inlay_striding_fini(&q->rq);
	must(ibv_destroy_cq(q->ibcq));
	must(ibv_dereg_mr(q->mr));
	free(q->buf);
}

/* The key and the definition of Microsoft's "RSS hashing functions" */
static uint32_t toeplitz(const uint8_t *in, uint32_t n)
{
	static const uint8_t key[] = "\x6d\x5a\x56\xda\x25\x5b\x0e\xc2\x41\x67\x25\x3d\x43\xa3\x8f\xb0\xd0\xca\x2b\xcb"
				     "\xae\x7b\x30\xb4\x77\xcb\x2d\xa3\x80\x30\xf2\x0c\x6a\x42\xb7\x3b\xbe\xac\x01\xfa";
	uint32_t hash = 0, bit, k;

	for (bit = 0; bit < 8 * n; bit++)
		if (in[bit / 8] >> (7 - bit % 8) & 1)
			for (k = 0; k < 32; k++)
				hash ^= (uint32_t)(key[(bit + k) / 8] >> (7 - (bit + k) % 8) & 1) << (31 - k);
	return hash;
}

/* A packet that one of the queues must have, after what has come before; batches of them, so that CQEs are compressed */
struct sent {
	uint8_t at[256];
	uint32_t len, hash;
};

static void come(struct queue *q, const struct sent *s, bool compressed)
{
	struct inlay_packet_at at = {0, 0, 0};
	const struct mlx5_cqe64 *cqe;
	int done;

	do {
		cqe = cqe_wait(&q->cq);
		if (inlay_cqe_is_special(cqe)) {
			assert_true(compressed && inlay_cqe_is_compressed(cqe));
			assert_true(inlay_cq_unzip(&q->cq) > 0);
			q->came++;
		}
		done = inlay_striding_take(&q->rq, cqe, &at);
		assert_in_range(done, 0, 1);
		if (at.len) {
			assert_int_equal(at.len, s->len);
			assert_int_equal(at.offset % 64, 2);
			assert_memory_equal(q->buf + at.wqe * 65536 + at.offset, s->at, 24);
			assert_int_equal(inlay_cqe_flow_tag(cqe), TAG);
			if (!compressed)
				assert_int_equal(inlay_cqe_rss_hash(cqe), s->hash);
			if (!compressed)
				assert_int_equal(inlay_cqe_rss_type(cqe), INLAY_RSS_IPV4 | INLAY_RSS_UDP);
			if (!compressed)
				assert_int_equal(inlay_cqe_checks(cqe), MLX5_CQE_L2_OK | MLX5_CQE_L3_OK | MLX5_CQE_L4_OK);
		}
		inlay_cq_advance(&q->cq, 1);
		if (done) {
			inlay_striding_recycle(&q->rq);
			inlay_striding_ring(&q->rq);
		}
	} while (!at.len);
}

static void spread_over(uint32_t n, int format, uint32_t cqe_size, uint32_t rounds)
{
	static struct sent sent[BATCH];
	uint32_t round, i, to[BATCH], lens[BATCH], size = n & (n - 1) ? INLAY_RSS_QUEUES : n, all[QUEUES] = {0}, blocks = 0;
	struct ibv_wq *wqs[QUEUES];
	struct queue q[QUEUES];
	struct inlay_flow_match m;
	struct ibv_flow *flow;
	struct inlay_rss rss;
	const char *why;

	for (i = 0; i < n; i++) {
		queue_open(&q[i], format, cqe_size);
		wqs[i] = q[i].wq;
	}
	must(inlay_rss_create(&rss, dev.pd, wqs, n, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_PORT_UDP |
						       IBV_RX_HASH_DST_PORT_UDP, &why));
	memset(&m, 0, sizeof(m));
	m.type = 0x0800;
	m.proto = 17;
	m.tag = TAG;
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
			come(&q[to[i]], &sent[i], format >= 0);
	}
	for (i = 0; i < n; i++) {
		expect_nothing(&q[i].cq);
		assert_true(all[i] > rounds * ARRAY(sent) / n / 2);
		blocks += q[i].came;
	}
	if (format >= 0)
		assert_true(blocks);
	assert_int_equal(inlay_rss_destroy(&rss, &why), -EBUSY); /* a rule leads to it */
	must(ibv_destroy_flow(flow));
	must(inlay_rss_destroy(&rss, &why));
	must(inlay_rss_destroy(&rss, &why));
	for (i = 0; i < n; i++)
		queue_close(&q[i]);
}

static void spread(void **state)
{
	(void)state;
	need_ethernet();
	spread_over(4, -1, 64, 60);
	spread_over(3, -1, 128, 60);
	spread_over(5, INLAY_MINI_CSUM_STRIDX, 64, 60);
	spread_over(2, INLAY_MINI_HASH, 64, 60);
	spread_over(2, INLAY_MINI_CSUM, 128, 60);
}

static void no_spread(void **state)
{
	struct ibv_wq *wqs[3];
	struct queue q[3];
	struct inlay_rss rss;
	const char *why;
	uint32_t i;

	(void)state;
	need_ethernet();
	for (i = 0; i < 3; i++) {
		queue_open(&q[i], -1, 64);
		wqs[i] = q[i].wq;
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
	for (i = 0; i < 3; i++)
		queue_close(&q[i]);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(rules),
		cmocka_unit_test(no_rules),
		cmocka_unit_test(spread),
		cmocka_unit_test(no_spread),
	};

	return cmocka_run_group_tests_name("steer", tests, open_sender, close_sender);
}
