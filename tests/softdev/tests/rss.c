/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rss.c: WQs through libibverbs alone: packets spread over several by a hash; VLAN tags, tags of rules, checksums; errors and states;
 * what is refused. Compressed CQEs and packets in strides: devx_packet.c, devx/packets.c.
 */
#include "rig_wq.h"

#define WQS 4
#define ROOM 2048u

static struct sender tx;
static struct ibv_cq *cq;
static struct reader rx;
static struct ibv_mr *mr;
static uint8_t *mem;

static struct {
	struct ibv_wq *wq;
	struct ring ring;
	unsigned taken;
} q[WQS];

/* Microsoft's */
static uint8_t key[40] = {
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
	0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
};

static void open_common(void)
{
	sender_open(&tx);
	mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mr = ibv_reg_mr(pd, mem, SIZE, ALL_ACCESS);
	assert_non_null(mr);
}

static void close_common(void)
{
	must(ibv_dereg_mr(mr));
	munmap(mem, SIZE);
	sender_close(&tx);
}

static void open_cq(bool strides)
{
	cq = ibv_create_cq(ctx, 511, NULL, NULL, 0);
	assert_non_null(cq);
	reader_open(&rx, cq, 0, strides);
}

static int to_state(struct ibv_wq *wq, enum ibv_wq_state state)
{
	struct ibv_wq_attr a = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = state };

	return ibv_modify_wq(wq, &a);
}

static void wq_open(unsigned i, uint32_t flags, const struct mlx5dv_striding_rq_init_attr *strides)
{
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = pd, .cq = cq, .create_flags = flags,
					 .comp_mask = IBV_WQ_INIT_ATTR_FLAGS };
	struct mlx5dv_wq_init_attr dv = { .comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ };
	struct mlx5dv_obj obj;
	struct mlx5dv_rwq d;

	if (strides)
		dv.striding_rq_attrs = *strides;
	q[i].wq = strides ? mlx5dv_create_wq(ctx, &init, &dv) : ibv_create_wq(ctx, &init);
	assert_non_null(q[i].wq);
	memset(&d, 0, sizeof(d));
	obj.rwq.in = q[i].wq;
	obj.rwq.out = &d;
	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_RWQ));
	q[i].ring = (struct ring){ .buf = d.buf, .cnt = d.wqe_cnt, .size = d.stride,
				  .dbrec = (volatile uint32_t *)d.dbrec, .link = strides ? 16 : 0 };
	q[i].taken = 0;
	must(to_state(q[i].wq, IBV_WQS_RDY));
}

static void refill(unsigned i)
{
	while (q[i].ring.pi - q[i].taken < q[i].ring.cnt)
		post_buffer(&q[i].ring, (uintptr_t)mem + (i * 8 + q[i].ring.pi % 8) * ROOM, ROOM, mr->lkey);
}

static struct ibv_rwq_ind_table *table_of(unsigned n)
{
	struct ibv_wq *wq[WQS];
	struct ibv_rwq_ind_table_init_attr init = { .log_ind_tbl_size = (uint32_t)__builtin_ctz(n), .ind_tbl = wq };
	struct ibv_rwq_ind_table *t;

	for (unsigned i = 0; i < n; i++)
		wq[i] = q[i].wq;
	t = ibv_create_rwq_ind_table(ctx, &init);
	assert_non_null(t);
	return t;
}

static struct ibv_qp_init_attr_ex rss_attr(struct ibv_rwq_ind_table *t, uint64_t fields)
{
	return (struct ibv_qp_init_attr_ex){
		.qp_type = IBV_QPT_RAW_PACKET, .pd = pd, .rwq_ind_tbl = t,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.rx_hash_conf = { IBV_RX_HASH_FUNC_TOEPLITZ, sizeof(key), key, fields },
	};
}

static struct ibv_qp *rss_qp(struct ibv_rwq_ind_table *t, uint64_t fields)
{
	struct ibv_qp_init_attr_ex a = rss_attr(t, fields);
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &a);

	assert_non_null(qp);
	return qp;
}

static struct ibv_flow *flow_to(struct ibv_qp *qp, uint32_t tag)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
		struct ibv_flow_spec_action_tag tag;
	} r = {
		{ .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(r), .num_of_specs = 2, .port = 1 },
		{ .type = IBV_FLOW_SPEC_ETH, .size = sizeof(r.eth) },
		{ .type = IBV_FLOW_SPEC_ACTION_TAG, .size = sizeof(r.tag), .tag_id = tag },
	};
	struct ibv_flow *f;

	memcpy(r.eth.val.dst_mac, here, 6);
	memset(r.eth.mask.dst_mac, 0xff, 6);
	f = ibv_create_flow(qp, &r.attr);
	assert_non_null(f);
	return f;
}

/* ---- the hash ---- */

struct vector {
	unsigned version;
	uint8_t src[16], dst[16];
	uint16_t sport, dport;
	uint32_t ip, all;         /* hashes: of the addresses, and with the ports */
};

/* "Verifying the RSS hash calculation", Microsoft */
static const struct vector vectors[] = {
	{ 4, { 66, 9, 149, 187 }, { 161, 142, 100, 80 }, 2794, 1766, 0x323e8fc2, 0x51ccc178 },
	{ 4, { 199, 92, 111, 2 }, { 65, 69, 140, 83 }, 14230, 4739, 0xd718262a, 0xc626b0ea },
	{ 4, { 24, 19, 198, 95 }, { 12, 22, 207, 184 }, 12898, 38024, 0xd2d0a5de, 0x5c2b394a },
	{ 4, { 38, 27, 205, 30 }, { 209, 142, 163, 6 }, 48228, 2217, 0x82989176, 0xafc7327f },
	{ 4, { 153, 39, 163, 191 }, { 202, 188, 127, 2 }, 44251, 1303, 0x5d1809c5, 0x10e828a2 },
	{ 6, { 0x3f, 0xfe, 0x25, 0x01, 0x02, 0, 0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, 7 },
	  { 0x3f, 0xfe, 0x25, 0x01, 0x02, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1 },
	  2794, 1766, 0x2cc18cd5, 0x40207d3d },
	{ 6, { 0x3f, 0xfe, 5, 1, 0, 8, 0, 0, 2, 0x60, 0x97, 0xff, 0xfe, 0x40, 0xef, 0xab },
	  { 0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 },
	  14230, 4739, 0x0f0c461c, 0xdde51bbf },
	{ 6, { 0x3f, 0xfe, 0x19, 0, 0x45, 0x45, 0, 3, 2, 0, 0xf8, 0xff, 0xfe, 0x21, 0x67, 0xcf },
	  { 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0xf8, 0xff, 0xfe, 0x21, 0x67, 0xcf }, 44251, 38024, 0x4b61e985, 0x02d1feef },
};

static void vector_packet(const struct vector *v, unsigned proto)
{
	struct shape shape = { .version = v->version, .proto = proto, .payload = 30 };
	uint8_t *ip;

	packet_make(&p, &shape, here, there);
	ip = p.at + p.l3;
	if (v->version == 4) {
		memcpy(ip + 12, v->src, 4);
		memcpy(ip + 16, v->dst, 4);
	} else {
		memcpy(ip + 8, v->src, 16);
		memcpy(ip + 24, v->dst, 16);
	}
	packet16(p.at + p.l4, v->sport);
	packet16(p.at + p.l4 + 2, v->dport);
}

/* The packet in p has gone to queue i */
static struct mlx5_cqe64 came_to(unsigned i)
{
	struct mlx5_cqe64 c = cqe_next(&rx);
	const uint8_t *at = mem + (i * 8 + q[i].taken % 8) * ROOM;

	assert_int_equal(op_of(&c), MLX5_CQE_RESP_SEND);
	assert_int_equal(be16toh(c.wqe_counter), q[i].taken);
	assert_memory_equal(at, p.at, 14);
	q[i].taken++;
	refill(i);
	return c;
}

/* All that leads packets to the one WQ, and that */
static void close_one(struct ibv_flow *f, struct ibv_qp *qp, struct ibv_rwq_ind_table *t)
{
	must(ibv_destroy_flow(f));
	must(ibv_destroy_qp(qp));
	must(ibv_destroy_rwq_ind_table(t));
	must(ibv_destroy_wq(q[0].wq));
	must(ibv_destroy_cq(cq));
}

static void spread(UNUSED void **state)
{
	enum { SRC = 1, DST = 2, V6 = 2, SPORT = 4, DPORT = 5, UDP = 2 };
	struct ibv_rwq_ind_table *t;

	open_common();
	open_cq(false);
	for (unsigned i = 0; i < WQS; i++) {
		wq_open(i, 0, NULL);
		refill(i);
	}
	t = table_of(WQS);
	for (unsigned version = 4; version <= 6; version += 2)
		for (unsigned proto = 6; proto <= 17; proto += 11)
			for (unsigned ports = 0; ports < 2; ports++) {
				uint64_t fields = (uint64_t)(IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4) << (version == 6 ? 2 : 0);
				struct ibv_flow *f;
				struct ibv_qp *qp;

				if (ports)
					fields |= (uint64_t)(IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP) << (proto == 17 ? 2 : 0);
				qp = rss_qp(t, fields);
				f = flow_to(qp, 5);
				assert_int_equal(ibv_destroy_rwq_ind_table(t), EBUSY);
				for (unsigned i = 0; i < ARRAY(vectors); i++) {
					const struct vector *v = &vectors[i];
					uint32_t hash = ports ? v->all : v->ip;
					uint8_t type = (uint8_t)((version == 4 ? 5 : 10) | (ports ? (proto == 6 ? 0x50 : 0xa0) : 0));
					struct mlx5_cqe64 c;

					if (v->version != version)
						hash = type = 0;
					vector_packet(v, proto);
					send_packet(&tx);
					c = came_to(hash % WQS);
					assert_int_equal(hash_of(&c), hash);
					assert_int_equal(((uint8_t *)&c)[16], type);
					assert_int_equal(be32toh(c.sop_drop_qpn), 5);
					assert_int_equal(c.hds_ip_ext & (MLX5_CQE_L3_OK | MLX5_CQE_L4_OK), MLX5_CQE_L3_OK | MLX5_CQE_L4_OK);
					assert_int_equal(c.l4_hdr_type_etc, (proto == 6 ? 1 : 2) << 4 | (v->version == 4 ? 2 : 1) << 2);
					/* Without the ports asked for there is no hash */
					vector_packet(v, proto ^ 6 ^ 17);
					send_packet(&tx);
					c = came_to(ports ? 0 : hash % WQS);
					assert_int_equal(hash_of(&c), ports ? 0 : hash);
				}
				/* What is no IP at all */
				plain_packet(200);
				send_packet(&tx);
				came_to(0);
				assert_int_equal(ibv_destroy_qp(qp), EBUSY);
				must(ibv_destroy_flow(f));
				must(ibv_destroy_qp(qp));
			}
	/* One queue and no hash */
	must(ibv_destroy_rwq_ind_table(t));
	t = table_of(1);
	{
		struct ibv_qp *qp = rss_qp(t, 0);
		struct ibv_flow *f = flow_to(qp, 1);
		struct mlx5_cqe64 c;

		vector_packet(&vectors[0], 6);
		send_packet(&tx);
		c = came_to(0);
		assert_int_equal(hash_of(&c), 0);
		must(ibv_destroy_flow(f));
		must(ibv_destroy_qp(qp));
	}
	must(ibv_destroy_rwq_ind_table(t));
	no_cqe(&rx);
	for (unsigned i = 0; i < WQS; i++)
		must(ibv_destroy_wq(q[i].wq));
	must(ibv_destroy_cq(cq));
	close_common();
}

/* ---- tags ---- */

static void vlan(UNUSED void **state)
{
	struct ibv_wq_attr a = { .attr_mask = IBV_WQ_ATTR_FLAGS, .flags_mask = IBV_WQ_FLAGS_CVLAN_STRIPPING };
	struct shape shape = { .tags = 1, .version = 4, .proto = 17, .payload = 100 };
	struct ibv_rwq_ind_table *t;
	struct mlx5_cqe64 c;
	struct ibv_flow *f;
	struct ibv_qp *qp;

	open_common();
	open_cq(false);
	wq_open(0, IBV_WQ_FLAGS_CVLAN_STRIPPING, NULL);
	refill(0);
	t = table_of(1);
	qp = rss_qp(t, 0);
	f = flow_to(qp, 0xabcdef);
	for (unsigned strip = 2; strip--;) {
		packet_make(&p, &shape, here, there);
		send_packet(&tx);
		c = cqe_next(&rx);
		assert_int_equal(be32toh(c.byte_cnt), p.len - (strip ? 4 : 0));
		assert_int_equal(c.l4_hdr_type_etc & 1, strip);
		assert_int_equal(be16toh(c.vlan_info), strip ? packet_u16(p.at + 14) : 0);
		assert_int_equal(be32toh(c.sop_drop_qpn), 0xabcdef);
		assert_memory_equal(mem + q[0].taken * ROOM + (strip ? 12 : 16), p.at + 16, 10);
		q[0].taken++;
		must(ibv_modify_wq(q[0].wq, &a));
	}
	close_one(f, qp, t);
	close_common();
}

/* ---- errors ---- */

static void stopped(UNUSED void **state)
{
	static const struct mlx5dv_striding_rq_init_attr shape = { 6, 4, 0 };
	struct ibv_rwq_ind_table *t;
	struct mlx5_cqe64 c;
	struct ibv_flow *f;
	struct ibv_qp *qp;

	open_common();
	for (unsigned strides = 0; strides < 2; strides++) {
		struct ring *r = &q[0].ring;

		open_cq(strides);
		wq_open(0, 0, strides ? &shape : NULL);
		t = table_of(1);
		qp = rss_qp(t, 0);
		f = flow_to(qp, 1);
		/* Nothing is posted: lost */
		plain_packet(100);
		send_packet(&tx);
		no_cqe(&rx);
		/* Longer than the buffer: this WQE says so, the others come back, and nothing more is received */
		for (unsigned i = 0; i < 3; i++)
			post_buffer(r, (uintptr_t)mem + i * 1024, 1024, mr->lkey);
		plain_packet(1100);
		send_packet(&tx);
		c = cqe_next(&rx);
		assert_int_equal(syndrome_of(&c), MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
		assert_int_equal(be16toh(c.wqe_counter), 0);
		for (unsigned i = 1; i < 3; i++) {
			c = cqe_next(&rx);
			assert_int_equal(syndrome_of(&c), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
			assert_int_equal(be16toh(c.wqe_counter), i);
		}
		plain_packet(100);
		send_packet(&tx);
		no_cqe(&rx);
		/* Reset, and it works again */
		must(to_state(q[0].wq, IBV_WQS_RESET));
		must(to_state(q[0].wq, IBV_WQS_RDY));
		r->pi = 0;
		post_buffer(r, (uintptr_t)mem, 1024, mr->lkey);
		send_packet(&tx);
		c = cqe_next(&rx);
		assert_int_equal(op_of(&c), MLX5_CQE_RESP_SEND);
		assert_int_equal(be32toh(c.byte_cnt), strides ? 2 << 16 | 100 : 100);
		/* Stopped by a command: a WQE of which strides were used comes back as well */
		post_buffer(r, (uintptr_t)mem, 1024, mr->lkey);
		must(to_state(q[0].wq, IBV_WQS_ERR));
		for (unsigned i = strides ? 0 : 1; i < 2; i++) {
			c = cqe_next(&rx);
			assert_int_equal(syndrome_of(&c), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
			assert_int_equal(be16toh(c.wqe_counter), i);
		}
		/* A key that does not exist */
		must(to_state(q[0].wq, IBV_WQS_RESET));
		must(to_state(q[0].wq, IBV_WQS_RDY));
		r->pi = 0;
		post_buffer(r, (uintptr_t)mem, 1024, mr->lkey ^ 0x5500);
		send_packet(&tx);
		c = cqe_next(&rx);
		assert_int_equal(syndrome_of(&c), MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
		/* More posted than the ring holds: nothing can be trusted, and an event says so */
		must(to_state(q[0].wq, IBV_WQS_RESET));
		must(to_state(q[0].wq, IBV_WQS_RDY));
		*r->dbrec = htobe32(100);
		send_packet(&tx);
		assert_ptr_equal(expect_event(ctx, IBV_EVENT_WQ_FATAL), q[0].wq);
		no_cqe(&rx);
		close_one(f, qp, t);
	}
	close_common();
}

/* Posted to and polled by libmlx5: what it makes of a WQ's completions */
static void by_libmlx5(UNUSED void **state)
{
	struct shape shape = { .tags = 1, .version = 4, .proto = 17, .payload = 100 };
	struct ibv_cq_init_attr_ex cq_init = { .cqe = 63,
					       .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_FLOW_TAG | IBV_WC_EX_WITH_CVLAN };
	struct ibv_poll_cq_attr poll = { .comp_mask = 0 };
	struct ibv_rwq_ind_table *t;
	struct ibv_cq_ex *cqx;
	struct ibv_flow *f;
	struct ibv_qp *qp;

	open_common();
	for (unsigned extended = 0; extended < 2; extended++) {
		cqx = extended ? ibv_create_cq_ex(ctx, &cq_init) : NULL;
		cq = extended ? ibv_cq_ex_to_cq(cqx) : ibv_create_cq(ctx, 63, NULL, NULL, 0);
		assert_non_null(cq);
		wq_open(0, IBV_WQ_FLAGS_CVLAN_STRIPPING, NULL);
		t = table_of(1);
		qp = rss_qp(t, 0);
		f = flow_to(qp, 0x123);
		for (unsigned i = 0; i < 40; i++) {
			struct ibv_sge sg = { (uintptr_t)mem + i % 8 * ROOM, ROOM, mr->lkey };
			struct ibv_recv_wr wr = { .wr_id = 100 + i, .sg_list = &sg, .num_sge = 1 }, *bad;
			struct ibv_wc wc;
			double end = now() + PATIENCE;

			must(ibv_post_wq_recv(q[0].wq, &wr, &bad));
			packet_make(&p, &shape, here, there);
			send_packet(&tx);
			if (!extended) {
				wc = expect_op(cq, 100 + i, IBV_WC_RECV);
				assert_int_equal(wc.byte_len, p.len - 4);
				continue;
			}
			while (ibv_start_poll(cqx, &poll))
				assert_true(now() < end);
			assert_int_equal(cqx->status, IBV_WC_SUCCESS);
			assert_int_equal(cqx->wr_id, 100 + i);
			assert_int_equal(ibv_wc_read_opcode(cqx), IBV_WC_RECV);
			assert_int_equal(ibv_wc_read_byte_len(cqx), p.len - 4);
			assert_int_equal(ibv_wc_read_flow_tag(cqx), 0x123);
			assert_int_equal(ibv_wc_read_cvlan(cqx), packet_u16(p.at + 14));
			ibv_end_poll(cqx);
		}
		close_one(f, qp, t);
	}
	close_common();
}

/* Rings and records of noise: WQs stop, and nothing else happens */
static void hostile(UNUSED void **state)
{
	open_common();
	for (unsigned round = 0; round < 300; round++) {
		struct mlx5dv_striding_rq_init_attr shape = { 6 + rnd() % 3, 3 + rnd() % 3, rnd() % 2 };
		const bool strides = round % 2;
		struct ibv_rwq_ind_table *t;
		struct ibv_async_event event;
		struct ring *r = &q[0].ring;
		struct mlx5_cqe64 c;
		struct ibv_flow *f;
		struct ibv_qp *qp;

		open_cq(strides);
		wq_open(0, 0, strides ? &shape : NULL);
		t = table_of(1);
		qp = rss_qp(t, 0);
		f = flow_to(qp, 1);
		for (unsigned i = 0; i < r->cnt * r->size / 4; i++)
			((uint32_t *)(void *)r->buf)[i] = rnd() & (rnd() % 2 ? 0x0f00ff0f : ~0u);
		/* Some that are nearly right */
		for (unsigned i = 0; i < r->cnt; i++)
			if (rnd() % 4)
				post_buffer(r, (uintptr_t)mem + rnd() % SIZE, rnd() % 4096, rnd() % 8 ? mr->lkey : rnd());
		if (rnd() % 4 == 0)
			*r->dbrec = htobe32(rnd() & (rnd() % 2 ? 15 : ~0u));
		for (unsigned i = 0; i < 20; i++) {
			plain_packet(60 + rnd() % (rnd() % 4 ? 200 : 1400));
			send_packet(&tx);
		}
		for (unsigned n = 0; cqe_poll(&rx, &c); n++)
			assert_true(n < 64);
		must(ibv_destroy_flow(f));
		must(ibv_destroy_qp(qp));
		must(ibv_destroy_rwq_ind_table(t));
		while (readable(ctx->async_fd, 0)) {
			must(ibv_get_async_event(ctx, &event));
			assert_int_equal(event.event_type, IBV_EVENT_WQ_FATAL);
			ibv_ack_async_event(&event);
		}
		must(ibv_destroy_wq(q[0].wq));
		must(ibv_destroy_cq(cq));
	}
	close_common();
}

/* ---- refusals ---- */

static int refused(const struct ibv_qp_init_attr_ex *a)
{
	struct ibv_qp_init_attr_ex copy = *a;

	errno = 0;
	assert_null(ibv_create_qp_ex(ctx, &copy));
	return errno;
}

static void refusals(UNUSED void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_wq_attr flags = { .attr_mask = IBV_WQ_ATTR_FLAGS, .flags_mask = IBV_WQ_FLAGS_SCATTER_FCS };
	const uint64_t v4 = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4;
	struct ibv_wq_init_attr wq = { .wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = pd, .comp_mask = IBV_WQ_INIT_ATTR_FLAGS };
	struct ibv_rwq_ind_table *t;
	struct ibv_qp_init_attr_ex a;
	struct ibv_device_attr_ex ex;
	struct ibv_qp *qp;

	must(ibv_query_device_ex(ctx, NULL, &ex));
	assert_int_equal(ex.rss_caps.supported_qpts, 1 << IBV_QPT_RAW_PACKET);
	assert_int_equal(ex.rss_caps.rx_hash_function, IBV_RX_HASH_FUNC_TOEPLITZ);
	assert_int_equal(ex.rss_caps.rx_hash_fields_mask, 0xff);
	open_cq(false);
	for (unsigned i = 0; i < 2; i++)
		wq_open(i, 0, NULL);
	t = table_of(2);
	a = rss_attr(t, v4);
	a.rx_hash_conf.rx_hash_function = 2;
	assert_int_equal(refused(&a), EOPNOTSUPP);
	a = rss_attr(t, v4);
	a.rx_hash_conf.rx_hash_key_len = 39;
	assert_int_equal(refused(&a), EINVAL);
	/* Both versions, both protocols, nothing with several queues, what is unknown */
	a = rss_attr(t, v4 | IBV_RX_HASH_SRC_IPV6);
	assert_int_equal(refused(&a), EINVAL);
	a = rss_attr(t, IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_UDP);
	assert_int_equal(refused(&a), EINVAL);
	a = rss_attr(t, 0);
	assert_int_equal(refused(&a), EINVAL);
	a = rss_attr(t, v4 | IBV_RX_HASH_IPSEC_SPI);
	assert_int_equal(refused(&a), EOPNOTSUPP);
	a = rss_attr(t, v4 | IBV_RX_HASH_INNER);
	assert_int_equal(refused(&a), EOPNOTSUPP);
	/* It does nothing but receive */
	a = rss_attr(t, v4);
	a.send_cq = cq;
	a.cap.max_send_wr = a.cap.max_send_sge = 1;
	assert_int_not_equal(refused(&a), 0);
	a = rss_attr(t, v4);
	a.qp_type = IBV_QPT_UD;
	assert_int_not_equal(refused(&a), 0);
	qp = rss_qp(t, v4);
	assert_int_not_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
	assert_int_equal(ibv_destroy_rwq_ind_table(t), EBUSY);
	must(ibv_destroy_qp(qp));
	must(ibv_destroy_rwq_ind_table(t));
	/* WQs: of the flags only one is offered */
	wq.cq = cq;
	for (unsigned bit = 1; bit < 4; bit++) {
		wq.create_flags = 1u << bit;
		assert_null(ibv_create_wq(ctx, &wq));
		flags.flags_mask = flags.flags = 1u << bit;
		assert_int_not_equal(ibv_modify_wq(q[0].wq, &flags), 0);
	}
	for (unsigned i = 0; i < 2; i++)
		must(ibv_destroy_wq(q[i].wq));
	must(ibv_destroy_cq(cq));
}

/* ---- WQs themselves ---- */

#define WITH_CQ(name) cmocka_unit_test_setup_teardown(name, with_cq, without_cq)

static int with_cq(UNUSED void **state)
{
	open_cq(false);
	return 0;
}

static int without_cq(UNUSED void **state)
{
	return ibv_destroy_cq(cq);
}

static struct ibv_wq *a_wq(uint32_t wr, uint32_t sge)
{
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = wr, .max_sge = sge, .pd = pd, .cq = cq };
	struct ibv_wq *wq = ibv_create_wq(ctx, &init);

	assert_non_null(wq);
	assert_true(init.max_wr >= wr && init.max_sge >= sge);
	return wq;
}

static void made_and_moved(UNUSED void **state)
{
	struct ibv_wq_attr a = { .attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE, .curr_wq_state = IBV_WQS_ERR,
				 .wq_state = IBV_WQS_RESET };
	struct ibv_wq *wq = a_wq(64, 4), *other = a_wq(10, 1);

	assert_int_equal(wq->wq_type, IBV_WQT_RQ);
	assert_int_not_equal(wq->wq_num, other->wq_num);
	assert_int_equal(wq->state, IBV_WQS_RESET);
	must(to_state(wq, IBV_WQS_RDY));
	assert_int_equal(wq->state, IBV_WQS_RDY);
	assert_int_equal(other->state, IBV_WQS_RESET);
	/* It is not where it is said to be */
	assert_int_not_equal(ibv_modify_wq(wq, &a), 0);
	assert_int_equal(wq->state, IBV_WQS_RDY);
	must(to_state(wq, IBV_WQS_ERR));
	must(to_state(wq, IBV_WQS_RESET));
	must(to_state(wq, IBV_WQS_RDY));
	/* In use: the CQ and the domain */
	assert_int_equal(ibv_destroy_cq(cq), EBUSY);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	must(ibv_destroy_wq(wq));
	must(ibv_destroy_wq(other));
}

static void tables(UNUSED void **state)
{
	struct ibv_wq *wq[8], *twice[8];
	struct ibv_rwq_ind_table_init_attr init = { .log_ind_tbl_size = 3, .ind_tbl = wq };
	struct ibv_rwq_ind_table *t, *u;

	for (unsigned i = 0; i < ARRAY(wq); i++) {
		wq[i] = a_wq(8, 1);
		must(to_state(wq[i], IBV_WQS_RDY));
		twice[i] = wq[i & 1];
	}
	t = ibv_create_rwq_ind_table(ctx, &init);
	assert_non_null(t);
	init.ind_tbl = twice;
	u = ibv_create_rwq_ind_table(ctx, &init);
	assert_non_null(u);
	assert_int_not_equal(t->ind_tbl_num, u->ind_tbl_num);
	/* A WQ in a table cannot be destroyed */
	assert_int_equal(ibv_destroy_wq(wq[5]), EBUSY);
	must(ibv_destroy_rwq_ind_table(t));
	must(ibv_destroy_wq(wq[5]));
	assert_int_equal(ibv_destroy_wq(wq[1]), EBUSY);
	must(ibv_destroy_rwq_ind_table(u));
	for (unsigned i = 0; i < ARRAY(wq); i++)
		if (i != 5)
			must(ibv_destroy_wq(wq[i]));
}

static void wq_refusals(UNUSED void **state)
{
	struct ibv_wq_init_attr good = { .wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = pd, .cq = cq }, a;
	struct ibv_device_attr_ex ex;

	must(ibv_query_device_ex(ctx, NULL, &ex));
	assert_true(ex.max_wq_type_rq > 0);
	a = good;
	a.max_wr = 1u << 20;
	assert_null(ibv_create_wq(ctx, &a));
	a = good;
	a.max_sge = 100;
	assert_null(ibv_create_wq(ctx, &a));
	a = good;
	a.wq_type = IBV_WQT_RQ + 1;
	assert_null(ibv_create_wq(ctx, &a));
}

/* Striding WQs: what the device says it takes is what it takes */
static void striding(UNUSED void **state)
{
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = pd, .cq = cq };
	struct mlx5dv_context caps = { .comp_mask = MLX5DV_CONTEXT_MASK_STRIDING_RQ };
	struct mlx5dv_striding_rq_caps *can = &caps.striding_rq_caps;
	struct mlx5dv_wq_init_attr dv = { .comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ };
	uint32_t size, strides;
	struct ibv_wq *wq;

	must(mlx5dv_query_device(ctx, &caps));
	if (!can->supported_qpts) {
		dv.striding_rq_attrs = (struct mlx5dv_striding_rq_init_attr){ 11, 9, 0 };
		assert_null(mlx5dv_create_wq(ctx, &init, &dv));
		return;
	}
	assert_int_equal(can->supported_qpts, 1 << IBV_QPT_RAW_PACKET);
	assert_true(can->min_single_stride_log_num_of_bytes < can->max_single_stride_log_num_of_bytes);
	assert_true(can->min_single_wqe_log_num_of_strides < can->max_single_wqe_log_num_of_strides);
	for (size = can->min_single_stride_log_num_of_bytes - 1; size <= can->max_single_stride_log_num_of_bytes + 1; size++)
		for (strides = can->min_single_wqe_log_num_of_strides - 1; strides <= can->max_single_wqe_log_num_of_strides + 1; strides++) {
			bool good = size >= can->min_single_stride_log_num_of_bytes && size <= can->max_single_stride_log_num_of_bytes &&
				    strides >= can->min_single_wqe_log_num_of_strides && strides <= can->max_single_wqe_log_num_of_strides;

			dv.striding_rq_attrs = (struct mlx5dv_striding_rq_init_attr){ size, strides, size & 1 };
			wq = mlx5dv_create_wq(ctx, &init, &dv);
			assert_int_equal(wq != NULL, good);
			if (!wq)
				continue;
			must(to_state(wq, IBV_WQS_RDY));
			must(ibv_destroy_wq(wq));
		}
}

/* A context that is closed with everything still there */
static void abandoned(UNUSED void **state)
{
	struct ibv_context *c = ibv_open_device(list[0]);
	struct ibv_rwq_ind_table_init_attr ti = { .log_ind_tbl_size = 0 };
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1 };
	struct ibv_wq *wq;

	assert_non_null(c);
	init.pd = ibv_alloc_pd(c);
	init.cq = ibv_create_cq(c, 10, NULL, NULL, 0);
	wq = ibv_create_wq(c, &init);
	assert_non_null(wq);
	ti.ind_tbl = &wq;
	assert_non_null(ibv_create_rwq_ind_table(c, &ti));
	must(ibv_close_device(c));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(spread), TEST(vlan), TEST(stopped), TEST(by_libmlx5), TEST(hostile), TEST(refusals),
		WITH_CQ(made_and_moved), WITH_CQ(tables), WITH_CQ(wq_refusals), WITH_CQ(striding), TEST(abandoned),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
