/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * raw.h: what the tests of received packets share: a raw packet QP that sends them, rules and a plain reading of their fields, the
 * Toeplitz hash. Packets come from softdev/tests/packets.h.
 */
#ifndef TESTS_RAW_H
#define TESTS_RAW_H

#include "common.h"
#include "softdev/tests/packets.h"

#define ROOM 2048u
#define BATCH 40u

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
static struct packet p; /* the one that send_packet sends */

UNUSED static struct ibv_qp *raw_qp(struct ibv_pd *pd, struct ibv_cq *cq, uint32_t send, uint32_t recv)
{
	struct ibv_qp_init_attr init = {};
	struct ibv_qp *qp;
	uint32_t cqes;

	init.qp_type = IBV_QPT_RAW_PACKET;
	init.send_cq = init.recv_cq = cq;
	init.cap.max_send_wr = send;
	init.cap.max_recv_wr = recv;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	cqes = inlay_send_cqes(&init);
	qp = made(ibv_create_qp(pd, &init));
	assert_int_equal(view_qp(qp).sq.wqe_cnt, cqes);
	raw_up(qp);
	return qp;
}

/* On the open device; nothing, where there are no packets */
static inline void sender_open(void)
{
	if (dev.port.link_layer != IBV_LINK_LAYER_ETHERNET)
		return;
	t.out = (uint8_t *)pages(BATCH * ROOM);
	t.mr = ibv_reg_mr(dev.pd, t.out, BATCH * ROOM, IBV_ACCESS_LOCAL_WRITE);
	t.scq = ibv_create_cq(dev.ctx, 255, NULL, NULL, 0);
	assert_true(t.mr && t.scq);
	must(inlay_uar_create(&t.uar, dev.pd, INLAY_UAR_SERIAL, NULL));
	t.qp = raw_qp(t.uar.pd, t.scq, BATCH, 0);
	must(inlay_cq_from_cq(&t.cq, t.scq, NULL));
	must(inlay_sq_from_qp(&t.sq, t.qp, &t.uar, &t.cq, NULL));
}

static inline void sender_close(void)
{
	if (dev.port.link_layer != IBV_LINK_LAYER_ETHERNET)
		return;
	must(ibv_destroy_qp(t.qp));
	inlay_sq_fini(&t.sq);
	must(inlay_uar_destroy(&t.uar, NULL));
	must(ibv_destroy_cq(t.scq));
	must(ibv_dereg_mr(t.mr));
	free(t.out);
}

static inline void need_ethernet(void)
{
	if (dev.port.link_layer != IBV_LINK_LAYER_ETHERNET)
		skip();
}

/* n packets of t.out, each in `ROOM` bytes, to their completion: then they have been delivered */
UNUSED static void send_packets(const uint32_t *lens, uint32_t n)
{
	const struct mlx5_cqe64 *cqe;
	struct ibv_sge sge[BATCH];

	for (uint32_t i = 0; i < n; i++) {
		sge[i].addr = (uintptr_t)t.out + i * ROOM;
		sge[i].length = lens[i];
		sge[i].lkey = t.mr->lkey;
	}
	assert_int_equal(inlay_post_packets(&t.sq, inlay_eth_csum(INLAY_CSUM_L3 | INLAY_CSUM_L4), sge, n, INLAY_SIGNALED | INLAY_RING), n);
	cqe = cqe_wait(&t.cq);
	assert_true(!inlay_cqe_is_error(cqe) && inlay_sq_release(&t.sq, cqe) > 0);
	inlay_cq_advance(&t.cq, 1);
}

UNUSED static void send_packet(void)
{
	memcpy(t.out, p.at, p.len);
	send_packets(&p.len, 1);
}

/* ---- rules ---- */

/* What has been sent has been delivered already, on the software device */
UNUSED static void nothing_came(struct inlay_cq *cq)
{
	if (!softdev_present())
		settle();
	assert_null(inlay_cq_peek(cq));
}

static inline bool zeros(const uint8_t *at, size_t n)
{
	return all_bytes(at, n, 0);
}

/* Does the rule take the packet in p, of this shape? */
UNUSED static bool takes(const struct inlay_flow_match *m, const struct shape *s)
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

/* A rule of some fields, with `tag` or none, of packets that random_packet makes */
UNUSED static struct inlay_flow_match random_rule(uint32_t tag)
{
	static const uint8_t v4[2][16] = {{10, 1, 2, 3}, {10, 4, 5, 6}};
	static const uint8_t v6[2][16] = {{0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, {0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};
	struct inlay_flow_match m = {};

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
	m.tag = rnd_below(2) ? tag : 0;
	return m;
}

/* Into p, number i; returns its shape */
UNUSED static struct shape random_packet(uint32_t i)
{
	struct shape s = {i % 3 ? 0u : 1u, i % 2 ? 4u : rnd_below(8) ? 6u : 0, rnd_below(2) ? 6u : 17u, 0, 0, 30, (uint16_t)(80 + rnd_below(2))};

	if (!s.version)
		s.proto = 0;
	packet_make(&p, &s, rnd_below(4) ? here : there, there);
	return s;
}

/* The key and the definition of Microsoft's "RSS hashing functions" */
UNUSED static const uint8_t key[] = "\x6d\x5a\x56\xda\x25\x5b\x0e\xc2\x41\x67\x25\x3d\x43\xa3\x8f\xb0\xd0\xca\x2b\xcb"
				    "\xae\x7b\x30\xb4\x77\xcb\x2d\xa3\x80\x30\xf2\x0c\x6a\x42\xb7\x3b\xbe\xac\x01\xfa";

UNUSED static uint32_t toeplitz(const uint8_t *in, uint32_t n)
{
	uint32_t hash = 0, bit, k;

	for (bit = 0; bit < 8 * n; bit++)
		if (in[bit / 8] >> (7 - bit % 8) & 1)
			for (k = 0; k < 32; k++)
				hash ^= (uint32_t)(key[(bit + k) / 8] >> (7 - (bit + k) % 8) & 1) << (31 - k);
	return hash;
}

#endif
