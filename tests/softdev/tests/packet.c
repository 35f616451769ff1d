/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * packet.c: raw packets through libibverbs alone: queue pairs, which of several flow rules, rules by mask, segmentation, lengths, two
 * devices, two processes. Rules by field, tags, tunnels: queue/steer.c, queue/packet.c.
 */
#include "rig.h"
#include "packets.h"

#define DEVICES 2
#define RINGS 256
#define ROOM 2048u                /* bytes of a receive buffer */

struct node {
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

static struct ibv_flow *rule_to(struct rule *r, struct ibv_qp *qp)
{
	return made(ibv_create_flow(qp, &r->attr));
}

static struct ibv_flow *mac_to(const uint8_t mac[6], struct ibv_qp *qp)
{
	struct rule r;

	rule_init(&r, IBV_FLOW_ATTR_NORMAL, 0);
	rule_mac(&r, mac);
	return rule_to(&r, qp);
}

/* ---- nodes ---- */

static uint32_t create_flags;

static struct ibv_qp *raw_qp(struct node *n)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = n->cq, .recv_cq = n->rcq, .qp_type = IBV_QPT_RAW_PACKET,
					    .cap = { .max_send_wr = 64, .max_recv_wr = RINGS, .max_send_sge = 4, .max_recv_sge = 1 },
					    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_MAX_TSO_HEADER,
					    .create_flags = create_flags, .max_tso_header = 128, .pd = devices[n - node].pd };
	struct ibv_qp *qp = made(ibv_create_qp_ex(devices[n - node].ctx, &init));

	bring_up(qp, 0, &usual);
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

static void node_open(struct node *n)
{
	n->cq = ibv_create_cq(devices[n - node].ctx, 255, NULL, NULL, 0);
	n->rcq = ibv_create_cq(devices[n - node].ctx, 2 * RINGS, NULL, NULL, 0);
	n->buf = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	n->mr = ibv_reg_mr(devices[n - node].pd, n->buf, SIZE, ALL_ACCESS);
	assert_true(n->cq && n->rcq && n->mr);
	n->qp = raw_qp(n);
	n->posted = n->taken = 0;
	refill(n);
}

static void node_close(struct node *n)
{
	expect_nothing(n->rcq);
	must(ibv_destroy_qp(n->qp) || ibv_dereg_mr(n->mr) || ibv_destroy_cq(n->cq) || ibv_destroy_cq(n->rcq));
	munmap(n->buf, SIZE);
}

static void nodes_open(void)
{
	node_open(&node[0]);
	node_open(&node[1]);
}

static void nodes_close(void)
{
	node_close(&node[0]);
	node_close(&node[1]);
}

/* Sends p and waits for the completion */
static void send_packet(struct node *n)
{
	struct ibv_sge sg = { (uintptr_t)n->buf, p.len, n->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 4, .sg_list = &sg, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM }, *bad;

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

/* Sends p: so many copies come to the first and to the second, and no more */
static void goes(unsigned first, unsigned second)
{
	struct ibv_wc wc;

	send_packet(&node[0]);
	for (unsigned i = 0; i < first + second; i++) {
		const uint8_t *at = receive(&node[i >= first], &wc);

		assert_memory_equal(at, p.at, p.l3);
		assert_memory_equal(at + p.data, p.at + p.data, p.len - p.data);
		assert_int_equal(wc.byte_len, p.len < 60 ? 60 : p.len);
	}
	expect_nothing(node[0].rcq);
	expect_nothing(node[1].rcq);
}

/* ---- another process: first, while this one has sent nothing ---- */

static void nth_packet(unsigned i)
{
	packet_make(&p, &(struct shape){ .version = 4, .proto = 17, .payload = 40 + i }, there, here);
}

/* Receives what the first sends to `there`, in order, and counts it */
static int receiver(void)
{
	struct ibv_flow *f;

	if (open_devices(NULL))
		return 1;
	node_open(&node[1]);
	f = mac_to(there, node[1].qp);
	tell(&first_process);
	for (unsigned i = 0; i < 500; i++) {
		struct ibv_wc wc;

		nth_packet(i);
		assert_memory_equal(receive(&node[1], &wc) + p.data, p.at + p.data, 40 + i);
		assert_true(wc.wc_flags & IBV_WC_IP_CSUM_OK);
		refill(&node[1]);
		if (i % 100 == 99)
			tell(&first_process);
	}
	must(ibv_destroy_flow(f));
	node_close(&node[1]);
	return close_devices(NULL);
}

TEST(processes)
{
	struct peer other = start_peer("receiver", NULL);

	hear(&other);
	node_open(&node[0]);
	for (unsigned i = 0; i < 500; i++) {
		nth_packet(i);
		send_packet(&node[0]);
		/* Packets have no other brake than the one whom they go to */
		if (i % 100 == 99)
			hear(&other);
	}
	assert_int_equal(end_peer(&other), 0);
	node_close(&node[0]);
}

/* ---- in this one ---- */

/* What the kernel and the device refuse; by field: hostile.c */
TEST(refused)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 1, .max_send_sge = 1 } };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };
	struct rule r;
	struct ibv_flow *f;
	struct ibv_qp *rc;

	node_open(&node[0]);
	init.send_cq = init.recv_cq = node[0].cq;
	rc = made(ibv_create_qp(pd, &init));
	rule_init(&r, IBV_FLOW_ATTR_ALL_DEFAULT, 0); /* which has no header */
	rule_mac(&r, here);
	must_refuse(ibv_create_flow(node[0].qp, &r.attr), EINVAL);
	rule_init(&r, IBV_FLOW_ATTR_NORMAL, 0);
	rule_mac(&r, here);
	assert_null(ibv_create_flow(rc, &r.attr));
	must(ibv_destroy_qp(rc));
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

/* Which of several rules: priorities, defaults, groups, sniffers, copies, drops, tags */
TEST(which_rule)
{
	static const struct shape udp = { .version = 4, .proto = 17, .payload = 40 };
	struct ibv_flow_spec_action_tag *tag;
	struct ibv_flow *f[6];
	struct rule r;

	nodes_open();
	packet_make(&p, &udp, there, here);
	/* Everything, unless a rule takes it */
	rule_init(&r, IBV_FLOW_ATTR_ALL_DEFAULT, 0);
	f[0] = rule_to(&r, node[1].qp);
	goes(0, 1);
	rule_init(&r, IBV_FLOW_ATTR_NORMAL, 5);
	rule_mac(&r, there);
	rule_add(&r, IBV_FLOW_SPEC_ACTION_DROP, sizeof(struct ibv_flow_spec_action_drop));
	f[1] = rule_to(&r, node[1].qp);
	goes(0, 0);
	/* A better rule */
	rule_init(&r, IBV_FLOW_ATTR_NORMAL, 2);
	rule_mac(&r, there);
	tag = rule_add(&r, IBV_FLOW_SPEC_ACTION_TAG, sizeof(*tag));
	tag->tag_id = 0xabcdef;
	f[2] = rule_to(&r, node[1].qp);
	goes(0, 1);
	/* One before it that lets everything go on: two copies */
	rule_init(&r, IBV_FLOW_ATTR_NORMAL, 1);
	r.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	f[3] = rule_to(&r, node[1].qp);
	goes(0, 2);
	must(ibv_destroy_flow(f[3]) || ibv_destroy_flow(f[2]) || ibv_destroy_flow(f[1]) || ibv_destroy_flow(f[0]));
	/* A sniffer sees what others get; groups go to their default */
	rule_init(&r, IBV_FLOW_ATTR_SNIFFER, 0);
	f[0] = rule_to(&r, node[0].qp);
	f[1] = mac_to(there, node[1].qp);
	rule_init(&r, IBV_FLOW_ATTR_MC_DEFAULT, 0);
	f[2] = rule_to(&r, node[1].qp);
	goes(1, 1);
	packet_make(&p, &udp, group, here);
	goes(1, 1);
	packet_make(&p, &udp, here, there);
	goes(1, 0);
	must(ibv_destroy_flow(f[0]) | ibv_destroy_flow(f[1]) | ibv_destroy_flow(f[2]));
	nodes_close();
}

/* Its own packets to a group come back to a queue pair, if it wants them; those to its own address do */
TEST(own_groups)
{
	static const struct shape udp = { .version = 4, .proto = 17, .payload = 40 };
	struct ibv_flow *f[2];
	struct rule r;

	for (unsigned blocked = 0; blocked < 2; blocked++) {
		create_flags = blocked ? IBV_QP_CREATE_BLOCK_SELF_MCAST_LB : 0;
		nodes_open();
		create_flags = 0;
		for (unsigned i = 0; i < 2; i++) {
			rule_init(&r, IBV_FLOW_ATTR_ALL_DEFAULT, 0);
			f[i] = rule_to(&r, node[i].qp);
		}
		packet_make(&p, &udp, group, here);
		goes(!blocked, 1);
		packet_make(&p, &udp, here, here);
		goes(1, 1);
		must(ibv_destroy_flow(f[0]) || ibv_destroy_flow(f[1]));
		nodes_close();
	}
}

/* A header that a rule names must be there, whatever the fields: of all but a VLAN tag none is asked for */
TEST(no_such_header)
{
	static const struct {
		enum ibv_flow_spec_type type;
		size_t size;
		struct shape without, with;
	} rows[] = {
		{ IBV_FLOW_SPEC_ETH, sizeof(struct ibv_flow_spec_eth), { .version = 4, .proto = 17 }, { .tags = 1, .version = 4, .proto = 17 } },
		{ IBV_FLOW_SPEC_IPV4_EXT, sizeof(struct ibv_flow_spec_ipv4_ext), { .version = 6, .proto = 17 }, { .version = 4, .proto = 17 } },
		{ IBV_FLOW_SPEC_IPV6, sizeof(struct ibv_flow_spec_ipv6), { .version = 4, .proto = 17 }, { .version = 6, .proto = 17 } },
		{ IBV_FLOW_SPEC_TCP, sizeof(struct ibv_flow_spec_tcp_udp), { .version = 4, .proto = 17 }, { .version = 4, .proto = 6 } },
		{ IBV_FLOW_SPEC_UDP, sizeof(struct ibv_flow_spec_tcp_udp), { .version = 6, .proto = 6 }, { .version = 6, .proto = 17 } },
	};

	nodes_open();
	for (unsigned i = 0; i < ARRAY(rows); i++) {
		struct ibv_flow *f;
		struct rule r;

		rule_init(&r, IBV_FLOW_ATTR_NORMAL, 0);
		rule_mac(&r, there);
		if (rows[i].type == IBV_FLOW_SPEC_ETH)
			((struct ibv_flow_spec_eth *)(void *)r.spec)->mask.vlan_tag = htobe16(0x1000);
		else
			rule_add(&r, rows[i].type, rows[i].size);
		f = rule_to(&r, node[1].qp);
		packet_make(&p, &rows[i].without, there, here);
		goes(0, 0);
		packet_make(&p, &rows[i].with, there, here);
		goes(0, 1);
		must(ibv_destroy_flow(f));
	}
	nodes_close();
}

/* Rules by mask: which bytes of a packet each field of the mask is */
TEST(matched)
{
	static const struct shape tcp4 = { .version = 4, .proto = 6 }, udp4 = { .tags = 1, .version = 4, .proto = 17 },
				  tcp6 = { .tags = 2, .version = 6, .proto = 6 }, udp6 = { .version = 6, .proto = 17 };
	enum { L2, L3, L4, BITS };
	static const struct {
		const struct shape *shape;
		unsigned at, bytes, from, off; /* in the mask; from where in the packet, or what no byte of it is */
	} rows[] = {
		{ &udp6, 0x0, 6, L2, 6 }, { &udp6, 0x8, 6, L2, 0 }, { &udp6, 0x6, 2, L2, 12 }, { &tcp6, 0x6, 2, L2, 20 },
		{ &udp4, 0xe, 2, L2, 14 }, { &tcp4, 0x10, 1, L3, 9 }, { &udp4, 0x11, 1, L3, 1 }, { &udp4, 0x1b, 1, L3, 8 },
		{ &tcp4, 0x2c, 4, L3, 12 }, { &tcp4, 0x3c, 4, L3, 16 }, { &udp6, 0x10, 1, L3, 6 }, { &tcp6, 0x1b, 1, L3, 7 },
		{ &tcp6, 0x20, 32, L3, 8 }, { &tcp6, 0x14, 4, L4, 0 }, { &udp6, 0x1c, 4, L4, 0 }, { &tcp4, 0x13, 1, L4, 13 },
		/* The class of traffic; a tag of either type, or none, IP's version, TCP's ninth bit */
		{ &tcp6, 0x11, 1, BITS, 0x20 }, { &tcp4, 0x12, 1, BITS, 0x08 }, { &udp4, 0x12, 1, BITS, 0x88 }, { &tcp6, 0x12, 1, BITS, 0x4c },
	};

	nodes_open();
	for (unsigned i = 0; i < 2 * ARRAY(rows); i++) {
		const unsigned row = i / 2, at = rows[row].at, bytes = rows[row].bytes, wrong = i % 2;
		struct { size_t size; uint8_t bytes[64]; } mask = { .size = 64 }, value = { .size = 64 };
		struct mlx5dv_flow_matcher_attr a = { .type = IBV_FLOW_ATTR_NORMAL, .match_criteria_enable = 1, .match_mask = (void *)&mask };
		struct mlx5dv_flow_action_attr to = { .type = MLX5DV_FLOW_ACTION_DEST_IBV_QP, .qp = node[1].qp };
		struct mlx5dv_flow_matcher *m;
		struct ibv_flow *f;

		packet_make(&p, rows[row].shape, there, here);
		memset(mask.bytes + at, 0xff, bytes);
		if (rows[row].from == BITS)
			value.bytes[at] = (uint8_t)rows[row].off;
		else
			memcpy(value.bytes + at, p.at + (const unsigned[]){ 0, p.l3, p.l4 }[rows[row].from] + rows[row].off, bytes);
		value.bytes[at + bytes - 1] ^= (uint8_t)wrong;
		m = made(mlx5dv_create_flow_matcher(devices[1].ctx, &a));
		f = made(mlx5dv_create_flow(m, (void *)&value, 1, &to));
		assert_int_equal(mlx5dv_destroy_flow_matcher(m), EBUSY);
		goes(0, !wrong);
		must(ibv_destroy_flow(f) || mlx5dv_destroy_flow_matcher(m));
		a.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
		must_refuse(mlx5dv_create_flow_matcher(devices[1].ctx, &a), EOPNOTSUPP);
	}
	nodes_close();
}

/* What is cut up: the headers of each segment */
TEST(segments)
{
	static const struct shape shapes[] = { { .version = 4, .proto = 6, .payload = 1000 },
		{ .tags = 1, .version = 6, .proto = 6, .options = 8, .tcp_options = 12, .payload = 900 }, { .version = 4, .proto = 17, .payload = 9 } };
	enum { MSS = 300, UDP = 2 };
	struct ibv_send_wr *bad;
	struct ibv_flow *f;
	struct ibv_wc wc;

	nodes_open();
	f = mac_to(there, node[1].qp);
	for (unsigned i = 0; i < ARRAY(shapes); i++) {
		const unsigned all = shapes[i].payload;

		packet_make(&p, &shapes[i], there, here);
		memcpy(node[0].buf, p.at, p.len);
		sg = (struct ibv_sge){ (uintptr_t)node[0].buf + p.data, all, node[0].mr->lkey };
		wr = (struct ibv_send_wr){ .wr_id = 4, .sg_list = &sg, .num_sge = 1, .opcode = IBV_WR_TSO,
					   .send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM, .tso = { p.at, p.data, MSS } };
		must(ibv_post_send(node[0].qp, &wr, &bad));
		expect(node[0].cq, 4, i == UDP ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_SUCCESS);
		for (unsigned off = 0, n; off < all && i != UDP; off += n) {
			const uint8_t *at = receive(&node[1], &wc);

			n = all - off < MSS ? all - off : MSS;
			assert_int_equal(wc.byte_len, p.data + n);
			assert_memory_equal(at + p.data, p.at + p.data + off, n);
			assert_true(packet_l3_good(at, p.l3, p.data + n) && packet_l4_good(at, p.l3, p.l4, 6, p.data + n));
			assert_true(shapes[i].version == 6 || packet_u16(at + p.l3 + 4) == ((0xfffd + off / MSS) & 0xffff));
			assert_int_equal(packet_u32(at + p.l4 + 4), 0xfffff800u + off);
			assert_int_equal(at[p.l4 + 13], 0x10 | (off + n == all ? 0x09 : 0) | (off ? 0 : 0x80));
		}
	}
	must(ibv_destroy_flow(f));
	nodes_close();
}

/* Lengths: what is too short, too long, longer than the buffer, without a buffer */
TEST(lengths)
{
	static const struct shape tiny = { .payload = 3 }, large = { .payload = ROOM };
	struct ibv_send_wr *bad;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };
	struct ibv_flow *f;
	struct ibv_wc wc;

	nodes_open();
	f = mac_to(there, node[1].qp);
	packet_make(&p, &tiny, there, here);
	send_packet(&node[0]);
	assert_memory_equal(receive(&node[1], &wc), p.at, p.len);
	assert_int_equal(wc.byte_len, 60);
	/* Longer than the buffer: its receiver fails */
	packet_make(&p, &large, there, here);
	send_packet(&node[0]);
	wc = next_wc(node[1].rcq);
	assert_int_equal(wc.status, IBV_WC_LOC_LEN_ERR);
	for (unsigned i = 0; i < RINGS - 2; i++)
		assert_int_equal(next_wc(node[1].rcq).status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(state_of(node[1].qp), IBV_QPS_ERR);
	must(ibv_modify_qp(node[1].qp, &a, IBV_QP_STATE));
	/* Longer than any MTU: its sender does */
	sg = (struct ibv_sge){ (uintptr_t)node[0].buf, 12014, node[0].mr->lkey };
	wr = (struct ibv_send_wr){ .wr_id = 5, .sg_list = &sg, .num_sge = 1, .opcode = IBV_WR_SEND };
	must(ibv_post_send(node[0].qp, &wr, &bad));
	expect(node[0].cq, 5, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(state_of(node[0].qp), IBV_QPS_SQE);
	a.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(node[0].qp, &a, IBV_QP_STATE), EINVAL);
	assert_int_equal(state_of(node[0].qp), IBV_QPS_SQE);
	must(ibv_destroy_flow(f));
	nodes_close();
}

/* What a queue pair received and nobody polled goes with it, though such completions do not name it */
TEST(unpolled)
{
	struct node *n = &node[0];
	struct ibv_sge sg;
	struct ibv_recv_wr wr = { .wr_id = 9, .sg_list = &sg, .num_sge = 1 }, *bad;
	struct ibv_flow *first, *second;
	struct ibv_cq *rcq;
	struct ibv_qp *last;

	node_open(n);
	rcq = n->rcq;
	n->rcq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	last = raw_qp(n);
	sg = (struct ibv_sge){ (uintptr_t)n->buf + HALF / 2, ROOM, n->mr->lkey };
	must(ibv_post_recv(last, &wr, &bad));
	first = mac_to(here, n->qp);
	second = mac_to(there, last);
	packet_make(&p, &(struct shape){ .version = 4, .proto = 17, .payload = 40 }, here, there);
	send_packet(n);
	packet_make(&p, &(struct shape){ .version = 4, .proto = 17, .payload = 40 }, there, here);
	send_packet(n);
	expect_op(n->rcq, 9, IBV_WC_RECV); /* so the first has come, too */
	must(ibv_destroy_flow(first) || ibv_destroy_flow(second) || ibv_destroy_qp(n->qp) || ibv_destroy_qp(last) ||
	     ibv_destroy_cq(n->rcq));
	n->rcq = rcq;
	expect_nothing(n->rcq);
	n->qp = raw_qp(n);
	node_close(n);
}

int main(int argc, char **argv)
{
	setenv("SOFTDEV_DEVICES", "2", 1);
	if (argc == 2)
		return strcmp(argv[1], "receiver") ? 1 : receiver();
	skip_all_if(!softdev_present(), "rules for everything need the software device");
	return run_all(open_devices, close_devices);
}
