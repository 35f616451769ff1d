/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * packet.c: raw packets through libibverbs alone: queue pairs, flow rules, checksums, VLAN tags,
 * segmentation, two devices, two processes. What comes out is checked from the standards, and by
 * tcpdump.
 */
#include "rig.h"
#include "packets.h"

#define DEVICES 2
#define RINGS 256
#define ROOM 2048u                /* bytes of a receive buffer */
#define TSO_HEADER 160

struct node {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq, *rcq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t *buf;
	unsigned posted, taken;
};

static struct node node[DEVICES];
static struct packet p;
static const uint8_t here[6] = {2, 0, 0, 0, 0, 1}, there[6] = {2, 0, 0, 0, 0, 2}, group[6] = {0x33, 0x33, 0, 0, 0, 9};

/* A rule as verbs wants it: the attributes, then up to four specifications */
struct rule {
	struct ibv_flow_attr attr;
	uint8_t spec[512];
};

static void rule_init(struct rule *r, enum ibv_flow_attr_type type, unsigned priority)
{
	memset(r, 0, sizeof(*r));
	r->attr = (struct ibv_flow_attr){ .type = type, .size = sizeof(r->attr), .priority = priority, .port = 1 };
}

static void *rule_add(struct rule *r, enum ibv_flow_spec_type type, size_t size)
{
	/* Of 4 bytes' alignment, as every spec; this one is a header only */
	struct ibv_flow_spec_action_drop *s = (void *)(r->spec + r->attr.size - sizeof(r->attr));

	s->type = type;
	s->size = size;
	r->attr.size += size;
	r->attr.num_of_specs++;
	return s;
}

static void rule_mac(struct rule *r, const uint8_t mac[6])
{
	struct ibv_flow_spec_eth *e = rule_add(r, IBV_FLOW_SPEC_ETH, sizeof(*e));

	memcpy(e->val.dst_mac, mac, 6);
	memset(e->mask.dst_mac, 0xff, 6);
}

static void rule_port(struct rule *r, enum ibv_flow_spec_type type, uint16_t to)
{
	struct ibv_flow_spec_tcp_udp *t = rule_add(r, type, sizeof(*t));

	t->val.dst_port = htobe16(to);
	t->mask.dst_port = 0xffff;
}

static struct ibv_flow *rule_to(struct rule *r, struct ibv_qp *qp)
{
	struct ibv_flow *f = ibv_create_flow(qp, &r->attr);

	assert_non_null(f);
	return f;
}

static struct ibv_flow *mac_to(const uint8_t mac[6], struct ibv_qp *qp)
{
	struct rule r;

	rule_init(&r, IBV_FLOW_ATTR_NORMAL, 0);
	rule_mac(&r, mac);
	return rule_to(&r, qp);
}

/* ---- nodes ---- */

static struct ibv_qp *raw_qp(struct node *n, uint32_t flags)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = n->cq, .recv_cq = n->rcq, .qp_type = IBV_QPT_RAW_PACKET, .pd = n->pd,
					    .cap = { .max_send_wr = 64, .max_recv_wr = RINGS, .max_send_sge = 4, .max_recv_sge = 1,
						     .max_inline_data = 256 },
					    .max_tso_header = TSO_HEADER, .create_flags = flags,
					    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER |
							 IBV_QP_INIT_ATTR_CREATE_FLAGS };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp *qp = ibv_create_qp_ex(n->ctx, &init);

	assert_non_null(qp);
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT));
	a.qp_state = IBV_QPS_RTR;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE));
	return qp;
}

static void refill(struct node *n)
{
	for (; n->posted - n->taken < RINGS; n->posted++) {
		struct ibv_sge sg = { (uintptr_t)n->buf + HALF + n->posted % RINGS * ROOM, ROOM, n->mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = n->posted, .sg_list = &sg, .num_sge = 1 }, *bad;

		must(ibv_post_recv(n->qp, &wr, &bad));
	}
}

static void node_open(struct node *n, uint32_t flags)
{
	n->cq = ibv_create_cq(n->ctx, 255, NULL, NULL, 0);
	n->rcq = ibv_create_cq(n->ctx, 2 * RINGS, NULL, NULL, 0);
	n->buf = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	n->mr = ibv_reg_mr(n->pd, n->buf, SIZE, ALL_ACCESS);
	assert_true(n->cq && n->rcq && n->mr);
	n->qp = raw_qp(n, flags);
	n->posted = n->taken = 0;
	refill(n);
}

static void node_close(struct node *n)
{
	expect_nothing(n->rcq);
	must(ibv_destroy_qp(n->qp));
	must(ibv_dereg_mr(n->mr));
	must(ibv_destroy_cq(n->cq));
	must(ibv_destroy_cq(n->rcq));
	munmap(n->buf, SIZE);
}

static int open_all(UNUSED void **state)
{
	int n;

	list = ibv_get_device_list(&n);
	if (!list || n != DEVICES)
		return -1;
	for (int i = 0; i < DEVICES; i++) {
		node[i].ctx = ibv_open_device(list[i]);
		node[i].pd = node[i].ctx ? ibv_alloc_pd(node[i].ctx) : NULL;
		if (!node[i].pd)
			return -1;
	}
	ctx = node[0].ctx;
	pd = node[0].pd;
	return 0;
}

static int close_all(UNUSED void **state)
{
	for (int i = 0; i < DEVICES; i++)
		if (ibv_dealloc_pd(node[i].pd) || ibv_close_device(node[i].ctx))
			return -1;
	ibv_free_device_list(list);
	return 0;
}

/* Sends p and waits for the completion */
static void send_packet(struct node *n, unsigned flags)
{
	struct ibv_sge sg = { (uintptr_t)n->buf, p.len, n->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 4, .sg_list = &sg, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | flags };
	struct ibv_send_wr *bad;

	memcpy(n->buf, p.at, p.len);
	must(ibv_post_send(n->qp, &wr, &bad));
	expect_op(n->cq, 4, IBV_WC_SEND);
}

/* The next packet that came */
static const uint8_t *receive(struct node *n, struct ibv_wc *wc)
{
	*wc = expect_op(n->rcq, n->taken, IBV_WC_RECV);
	return n->buf + HALF + n->taken++ % RINGS * ROOM;
}

static void came(struct node *n, bool yes)
{
	struct ibv_wc wc;

	if (!yes) {
		expect_nothing(n->rcq);
		return;
	}
	assert_memory_equal(receive(n, &wc), p.at, p.len);
	assert_int_equal(wc.byte_len, p.len < 60 ? 60 : p.len);
}

/* ---- tests ---- */

static void capabilities(UNUSED void **state)
{
	struct mlx5dv_context dv = { .comp_mask = MLX5DV_CONTEXT_MASK_SWP };
	struct ibv_device_attr_ex a;

	must(ibv_query_device_ex(ctx, NULL, &a));
	assert_true(a.orig_attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM && a.orig_attr.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING);
	assert_int_equal(a.raw_packet_caps, IBV_RAW_PACKET_CAP_CVLAN_STRIPPING | IBV_RAW_PACKET_CAP_IP_CSUM);
	assert_int_equal(a.tso_caps.supported_qpts, 1 << IBV_QPT_RAW_PACKET);
	assert_int_equal(a.tso_caps.max_tso, 256 << 10);
	must(mlx5dv_query_device(ctx, &dv));
	assert_true(dv.flags & MLX5DV_CONTEXT_FLAGS_ENHANCED_MPW);
	assert_int_equal(dv.sw_parsing_caps.sw_parsing_offloads, 7);
}

/* What the kernel and the device refuse */
static void refused(UNUSED void **state)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 1, .max_send_sge = 1 } };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };
	struct rule r;
	struct ibv_flow *f;
	struct ibv_qp *rc;
	struct ibv_flow_spec_eth *e;

	node_open(&node[0], 0);
	init.send_cq = init.recv_cq = node[0].cq;
	rc = ibv_create_qp(pd, &init);
	assert_non_null(rc);
	rule_init(&r, IBV_FLOW_ATTR_NORMAL, 0);
	rule_mac(&r, here);
	assert_null(ibv_create_flow(rc, &r.attr));
	assert_int_equal(errno, EINVAL);
	must(ibv_destroy_qp(rc));
	r.attr.port = 2;
	assert_null(ibv_create_flow(node[0].qp, &r.attr));
	assert_int_equal(errno, EINVAL);
	r.attr.port = 1;
	r.attr.priority = 16;
	assert_null(ibv_create_flow(node[0].qp, &r.attr));
	assert_int_equal(errno, ENOMEM);
	r.attr.priority = 0;
	r.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
	assert_null(ibv_create_flow(node[0].qp, &r.attr));
	assert_int_equal(errno, EOPNOTSUPP);
	r.attr.flags = 0;
	r.attr.type = IBV_FLOW_ATTR_ALL_DEFAULT;
	assert_null(ibv_create_flow(node[0].qp, &r.attr));
	assert_int_equal(errno, EINVAL);
	rule_init(&r, IBV_FLOW_ATTR_NORMAL, 0);
	e = rule_add(&r, IBV_FLOW_SPEC_ETH | IBV_FLOW_SPEC_INNER, sizeof(*e));
	assert_null(ibv_create_flow(node[0].qp, &r.attr));
	/* A queue pair stays as long as rules lead to it */
	f = mac_to(here, node[0].qp);
	assert_int_equal(ibv_destroy_qp(node[0].qp), EBUSY);
	must(ibv_destroy_flow(f));
	/* It needs its port, and nothing else */
	must(ibv_modify_qp(node[0].qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_INIT;
	assert_int_equal(ibv_modify_qp(node[0].qp, &a, IBV_QP_STATE), EINVAL);
	node_close(&node[0]);
}

/* A packet comes where rules lead it: by each field, whatever its mask */
static void rules(UNUSED void **state)
{
	static const struct shape tcp = { .version = 4, .proto = 6, .payload = 100 }, udp = { .version = 6, .proto = 17, .payload = 33 },
				  plain = { .payload = 60 }, tagged = { .tags = 1, .version = 4, .proto = 17, .payload = 40, .port = 4000 };
	static const struct shape *const shapes[] = { &tcp, &udp, &plain, &tagged };
	unsigned what, k;

	node_open(&node[0], 0);
	node_open(&node[1], 0);
	for (what = 0; what < 14; what++) {
		struct ibv_flow_spec_ipv4_ext *v4;
		struct ibv_flow_spec_ipv6 *v6;
		struct ibv_flow_spec_eth *e;
		unsigned want = 0;        /* bits of the shapes that match */
		struct ibv_flow *f;
		struct rule r;

		rule_init(&r, IBV_FLOW_ATTR_NORMAL, what);
		switch (what) {
		case 0: rule_mac(&r, there); want = 15; break;
		case 1: rule_mac(&r, group); break;
		case 2:
			e = rule_add(&r, IBV_FLOW_SPEC_ETH, sizeof(*e));
			memcpy(e->val.src_mac, here, 6);
			memset(e->mask.src_mac, 0xff, 3); /* half of it */
			want = 15;
			break;
		case 3:
			e = rule_add(&r, IBV_FLOW_SPEC_ETH, sizeof(*e));
			e->val.ether_type = htobe16(0x88b5);
			e->mask.ether_type = 0xffff;
			want = 4;
			break;
		case 4:
			e = rule_add(&r, IBV_FLOW_SPEC_ETH, sizeof(*e));
			e->val.vlan_tag = htobe16(100);
			e->mask.vlan_tag = htobe16(0xfff);
			want = 8;
			break;
		case 5: rule_mac(&r, there); rule_port(&r, IBV_FLOW_SPEC_TCP, 80); want = 1; break;
		case 6: rule_port(&r, IBV_FLOW_SPEC_UDP, 80); want = 2; break;
		case 7: rule_port(&r, IBV_FLOW_SPEC_UDP, 4000); want = 8; break;
		case 8: case 9: case 10:
			v4 = rule_add(&r, IBV_FLOW_SPEC_IPV4_EXT, sizeof(*v4));
			v4->val.dst_ip = htobe32(what == 9 ? 0x0a040507 : 0x0a040506);
			v4->mask.dst_ip = htobe32(what == 9 ? 0xfffffffe : 0xffffffff);
			v4->val.proto = what == 10 ? 17 : 6;
			v4->mask.proto = what == 9 ? 0 : 0xff;
			want = what == 8 ? 1 : what == 9 ? 9 : 8;
			/* 0x0a040507 under that mask has its last bit clear in the packet only */
			if (what == 9)
				v4->val.dst_ip = htobe32(0x0a040506);
			break;
		case 11: case 12:
			v6 = rule_add(&r, IBV_FLOW_SPEC_IPV6, sizeof(*v6));
			memcpy(v6->val.dst_ip, "\x20\x01\x0d\xb8", 4);
			memset(v6->mask.dst_ip, 0xff, 4);
			v6->val.flow_label = htobe32(what == 11 ? 0x12345 : 0x12346);
			v6->mask.flow_label = htobe32(0xfffff);
			v6->val.traffic_class = 0x20;
			v6->mask.traffic_class = 0xff;
			want = what == 11 ? 2 : 0;
			break;
		case 13: want = 15; break; /* no specification: everything */
		}
		f = rule_to(&r, node[1].qp);
		for (k = 0; k < 4; k++) {
			packet_make(&p, shapes[k], there, here);
			send_packet(&node[0], 0);
			came(&node[1], want >> k & 1);
			refill(&node[1]);
		}
		must(ibv_destroy_flow(f));
	}
	node_close(&node[0]);
	node_close(&node[1]);
}

/* Which of several rules: priorities, defaults, groups, sniffers, copies, drops, tags */
static void which_rule(UNUSED void **state)
{
	static const struct shape udp = { .version = 4, .proto = 17, .payload = 40 };
	struct ibv_flow_spec_action_tag *tag;
	struct ibv_flow *f[6];
	struct rule r;

	/* Three queue pairs of two devices; the second device's is the sender's peer */
	node_open(&node[0], 0);
	node_open(&node[1], 0);
	packet_make(&p, &udp, there, here);
	/* Everything, unless a rule takes it */
	rule_init(&r, IBV_FLOW_ATTR_ALL_DEFAULT, 0);
	f[0] = rule_to(&r, node[1].qp);
	send_packet(&node[0], 0);
	came(&node[1], true);
	rule_init(&r, IBV_FLOW_ATTR_NORMAL, 5);
	rule_mac(&r, there);
	rule_add(&r, IBV_FLOW_SPEC_ACTION_DROP, sizeof(struct ibv_flow_spec_action_drop));
	f[1] = rule_to(&r, node[1].qp);
	send_packet(&node[0], 0);
	came(&node[1], false);
	/* A better rule */
	rule_init(&r, IBV_FLOW_ATTR_NORMAL, 2);
	rule_mac(&r, there);
	tag = rule_add(&r, IBV_FLOW_SPEC_ACTION_TAG, sizeof(*tag));
	tag->tag_id = 0xabcdef;
	f[2] = rule_to(&r, node[1].qp);
	send_packet(&node[0], 0);
	came(&node[1], true);
	/* One before it that lets everything go on: two copies */
	rule_init(&r, IBV_FLOW_ATTR_NORMAL, 1);
	r.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	f[3] = rule_to(&r, node[1].qp);
	send_packet(&node[0], 0);
	came(&node[1], true);
	came(&node[1], true);
	must(ibv_destroy_flow(f[3]));
	must(ibv_destroy_flow(f[2]));
	must(ibv_destroy_flow(f[1]));
	must(ibv_destroy_flow(f[0]));
	/* A sniffer sees what others get; groups go to their default */
	rule_init(&r, IBV_FLOW_ATTR_SNIFFER, 0);
	f[0] = rule_to(&r, node[0].qp);
	f[1] = mac_to(there, node[1].qp);
	rule_init(&r, IBV_FLOW_ATTR_MC_DEFAULT, 0);
	f[2] = rule_to(&r, node[1].qp);
	send_packet(&node[0], 0);
	came(&node[0], true);
	came(&node[1], true);
	packet_make(&p, &udp, group, here);
	send_packet(&node[0], 0);
	came(&node[0], true);
	came(&node[1], true);
	packet_make(&p, &udp, here, there);
	send_packet(&node[0], 0);
	came(&node[0], true);
	came(&node[1], false);
	must(ibv_destroy_flow(f[0]) | ibv_destroy_flow(f[1]) | ibv_destroy_flow(f[2]));
	node_close(&node[0]);
	node_close(&node[1]);
}

/* Headers that say anything: what is no header is left alone, and the device survives */
static void broken_headers(UNUSED void **state)
{
	struct ibv_flow *f;
	struct ibv_wc wc;
	unsigned i, k;

	node_open(&node[0], 0);
	node_open(&node[1], 0);
	f = mac_to(there, node[1].qp);
	for (i = 0; i < 3000; i++) {
		struct shape s = { .version = i & 1 ? 6 : 4, .proto = i & 2 ? 17 : 6, .tags = i / 4 % 3, .payload = i % 200 };
		const uint8_t *at;

		packet_make(&p, &s, there, here);
		for (k = 0; k < 1 + i % 7; k++)
			p.at[12 + rnd() % (p.data - 12)] = (uint8_t)rnd();
		/* A header longer than its packet; a packet that is to end before its header does */
		if (i % 5 == 0)
			p.at[p.l3] |= 0xf;
		if (i % 3 == 0)
			packet16(p.at + p.l3 + (s.version == 4 ? 2 : 4), rnd() % 90);
		send_packet(&node[0], IBV_SEND_IP_CSUM);
		at = receive(&node[1], &wc);
		assert_int_equal(wc.byte_len, p.len < 60 ? 60 : p.len);
		assert_memory_equal(at, p.at, 14);
		refill(&node[1]);
	}
	must(ibv_destroy_flow(f));
	node_close(&node[0]);
	node_close(&node[1]);
}

/* A tag goes to the CQE: to the program it is the packet without it */
static void stripping(UNUSED void **state)
{
	static const struct shape s = { .version = 4, .proto = 17, .tags = 1, .payload = 100 };
	struct ibv_flow *f;
	struct ibv_wc wc;
	const uint8_t *at;

	node_open(&node[0], 0);
	node_open(&node[1], IBV_QP_CREATE_CVLAN_STRIPPING);
	f = mac_to(there, node[1].qp);
	packet_make(&p, &s, there, here);
	send_packet(&node[0], IBV_SEND_IP_CSUM);
	at = receive(&node[1], &wc);
	assert_int_equal(wc.byte_len, p.len - 4);
	assert_memory_equal(at, p.at, 12);
	assert_int_equal(packet_u16(at + 12), 0x0800);
	assert_true(packet_l3_good(at, 14, p.len - 4) && packet_l4_good(at, 14, 34, 17, p.len - 4));
	assert_true(wc.wc_flags & IBV_WC_IP_CSUM_OK);
	must(ibv_destroy_flow(f));
	node_close(&node[0]);
	node_close(&node[1]);
}

/* Lengths: what is too short, too long, longer than the buffer, without a buffer */
static void lengths(UNUSED void **state)
{
	static const struct shape tiny = { .payload = 3 }, large = { .payload = ROOM };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };
	struct ibv_flow *f;
	struct ibv_wc wc;

	node_open(&node[0], 0);
	node_open(&node[1], 0);
	f = mac_to(there, node[1].qp);
	packet_make(&p, &tiny, there, here);
	send_packet(&node[0], 0);
	assert_memory_equal(receive(&node[1], &wc), p.at, p.len);
	assert_int_equal(wc.byte_len, 60);
	/* Longer than the buffer: its receiver fails */
	packet_make(&p, &large, there, here);
	send_packet(&node[0], 0);
	wc = next_wc(node[1].rcq);
	assert_int_equal(wc.status, IBV_WC_LOC_LEN_ERR);
	for (unsigned i = 0; i < RINGS - 2; i++)
		assert_int_equal(next_wc(node[1].rcq).status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(state_of(node[1].qp), IBV_QPS_ERR);
	must(ibv_modify_qp(node[1].qp, &a, IBV_QP_STATE));
	/* Longer than any MTU: its sender does */
	packet_make(&p, &(struct shape){ .payload = 12000 }, there, here);
	memcpy(node[0].buf, p.at, p.len);
	{
		struct ibv_sge sg = { (uintptr_t)node[0].buf, p.len, node[0].mr->lkey };
		struct ibv_send_wr wr = { .wr_id = 5, .sg_list = &sg, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

		must(ibv_post_send(node[0].qp, &wr, &bad));
		expect(node[0].cq, 5, IBV_WC_LOC_LEN_ERR);
		assert_int_equal(state_of(node[0].qp), IBV_QPS_SQE);
		a.qp_state = IBV_QPS_RTS;
		assert_int_equal(ibv_modify_qp(node[0].qp, &a, IBV_QP_STATE), EINVAL);
		assert_int_equal(state_of(node[0].qp), IBV_QPS_SQE);
	}
	must(ibv_destroy_flow(f));
	node_close(&node[0]);
	node_close(&node[1]);
}

/* WQEs of several packets, by hand: a tag to insert is refused */
static void several(UNUSED void **state)
{
	static const struct { uint32_t tag; enum ibv_wc_status status; } rows[] = {
		{ 0, IBV_WC_SUCCESS }, { 0x80000005, IBV_WC_LOC_QP_OP_ERR }, { 0x80010000, IBV_WC_LOC_QP_OP_ERR },
	};

	for (size_t i = 0; i < ARRAY(rows); i++) {
		struct mlx5dv_qp dq = { .comp_mask = 0 };
		struct mlx5dv_obj obj;
		uint32_t *w;

		node_open(&node[0], 0);
		packet_make(&p, &(struct shape){ .payload = 60 }, there, here);
		obj.qp.in = node[0].qp;
		obj.qp.out = &dq;
		must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP));
		w = dq.sq.buf;
		memset(w, 0, 64);
		w[0] = htobe32(0x29);
		w[1] = htobe32(node[0].qp->qp_num << 8 | 4);
		w[2] = htobe32(MLX5_WQE_CTRL_CQ_UPDATE);
		w[7] = htobe32(rows[i].tag);
		memcpy(node[0].buf, p.at, p.len);
		for (unsigned k = 8; k < 16; k += 4) {
			w[k] = htobe32(p.len);
			w[k + 1] = htobe32(node[0].mr->lkey);
			*(uint64_t *)(w + k + 2) = htobe64((uintptr_t)node[0].buf);
		}
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		dq.dbrec[MLX5_SND_DBR] = htobe32(1);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		*(volatile uint64_t *)dq.bf.reg = *(uint64_t *)w;
		assert_int_equal(next_wc(node[0].cq).status, rows[i].status);
		node_close(&node[0]);
	}
}

/* What the device cuts is, put together again, what was posted; each segment is right, and tcpdump finds no fault in it */
static void segmentation(UNUSED void **state)
{
	char name[] = "/tmp/packetXXXXXX";
	int fd = mkstemp(name), total = 0, wanted = 0;
	struct ibv_flow *f;
	FILE *capture;
	unsigned i;

	assert_true(fd >= 0);
	close(fd);
	capture = capture_open(name);
	assert_non_null(capture);
	node_open(&node[0], 0);
	node_open(&node[1], 0);
	f = mac_to(there, node[1].qp);
	for (i = 0; i < 60; i++) {
		struct shape s = { .version = i & 1 ? 6 : 4, .proto = 6, .tags = i % 3, .options = i % 5 == 0 ? 8 : 0,
				   .tcp_options = i % 4 * 4, .payload = 1 + i * 541 % 15000 };
		uint32_t mss = 100 + i * 37 % 1300, off, n, k;
		struct ibv_sge sg[2];
		struct ibv_send_wr wr = { .wr_id = 6, .sg_list = sg, .num_sge = 2, .opcode = IBV_WR_TSO,
					  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM }, *bad;

		packet_make(&p, &s, there, here);
		memcpy(node[0].buf, p.at, p.len);
		sg[0] = (struct ibv_sge){ (uintptr_t)node[0].buf + p.data, s.payload / 3, node[0].mr->lkey };
		sg[1] = (struct ibv_sge){ sg[0].addr + sg[0].length, s.payload - sg[0].length, node[0].mr->lkey };
		wr.tso.hdr = p.at;
		wr.tso.hdr_sz = (uint16_t)p.data;
		wr.tso.mss = (uint16_t)mss;
		must(ibv_post_send(node[0].qp, &wr, &bad));
		expect_op(node[0].cq, 6, IBV_WC_TSO);
		for (off = 0, k = 0; off < s.payload; off += n, k++) {
			bool last = s.payload - off <= mss;
			struct ibv_wc wc;
			const uint8_t *at = receive(&node[1], &wc);
			uint32_t len;

			n = last ? s.payload - off : mss;
			len = p.data + n;
			assert_int_equal(wc.byte_len, len < 60 ? 60 : len);
			assert_memory_equal(at + p.data, p.at + p.data + off, n);
			assert_memory_equal(at, p.at, p.l3);
			assert_true(packet_l3_good(at, p.l3, len) && packet_l4_good(at, p.l3, p.l4, 6, len));
			if (s.version == 4)
				assert_int_equal(packet_u16(at + p.l3 + 4), (0xfffd + k) & 0xffff);
			assert_int_equal(packet_u32(at + p.l4 + 4), 0xfffff800u + off);
			assert_int_equal(at[p.l4 + 13], 0x10 | (last ? 0x09 : 0) | (k ? 0 : 0x80));
			capture_add(capture, at, len);
			total++;
			refill(&node[1]);
		}
	}
	fclose(capture);
	wanted = capture_count(name, "", "cksum 0x");
	if (wanted < 0) {
		print_message("# tcpdump is not installed\n");
	} else {
		/* Options of IPv6 and two tags are in the way of a filter, not of the dissector */
		assert_int_equal(wanted, total);
		assert_int_equal(capture_count(name, "", "(correct)"), total);
		assert_int_equal(capture_count(name, "", "incorrect") + capture_count(name, "", " bad ") + capture_count(name, "", "[bad ") +
				 capture_count(name, "", "truncated"), 0); /* not a checksum that ends with 0xbad */
	}
	unlink(name);
	must(ibv_destroy_flow(f));
	node_close(&node[0]);
	node_close(&node[1]);
}

/* ---- another process ---- */

/* Receives what the first sends to `there`, in order, and counts it */
static int receiver(void)
{
	struct ibv_flow *f;
	unsigned i;

	if (open_all(NULL))
		return 1;
	node_open(&node[1], 0);
	f = mac_to(there, node[1].qp);
	tell(&first_process);
	for (i = 0; i < 500; i++) {
		struct shape s = { .version = 4, .proto = 17, .payload = 40 + i };
		struct ibv_wc wc;

		packet_make(&p, &s, there, here);
		assert_memory_equal(receive(&node[1], &wc) + p.data, p.at + p.data, s.payload);
		assert_true(wc.wc_flags & IBV_WC_IP_CSUM_OK);
		refill(&node[1]);
		if (i % 100 == 99)
			tell(&first_process);
	}
	must(ibv_destroy_flow(f));
	node_close(&node[1]);
	return close_all(NULL);
}

static void processes(UNUSED void **state)
{
	struct peer other = start_peer("receiver", NULL);
	unsigned i;

	hear(&other);
	node_open(&node[0], 0);
	for (i = 0; i < 500; i++) {
		struct shape s = { .version = 4, .proto = 17, .payload = 40 + i };

		packet_make(&p, &s, there, here);
		send_packet(&node[0], IBV_SEND_IP_CSUM);
		/* Packets have no other brake than the one whom they go to */
		if (i % 100 == 99)
			hear(&other);
	}
	assert_int_equal(end_peer(&other), 0);
	node_close(&node[0]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(processes), TEST(capabilities), TEST(refused), TEST(rules), TEST(which_rule), TEST(broken_headers), TEST(stripping),
		TEST(lengths), TEST(several), TEST(segmentation),
	};

	setenv("SOFTDEV_DEVICES", "2", 1);
	if (argc == 2)
		return strcmp(argv[1], "receiver") ? 1 : receiver();
	if (!softdev_present()) {
		print_message("# skipped: rules for everything need the software device\n1..0\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, open_all, close_all);
}
