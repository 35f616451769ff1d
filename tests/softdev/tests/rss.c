/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rss.c: WQs through libibverbs alone: packets spread over several by a hash, errors and states, what is refused. Other hashes, tags,
 * strides, compressed CQEs: queue/steer.c, devx/packets.c. Rings of noise: hostile.c.
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
	mr = made(ibv_reg_mr(pd, mem, SIZE, ALL_ACCESS));
}

static void close_common(void)
{
	must(ibv_dereg_mr(mr));
	munmap(mem, SIZE);
	sender_close(&tx);
}

static void open_cq(void)
{
	cq = made(ibv_create_cq(ctx, 511, NULL, NULL, 0));
	reader_open(&rx, cq);
}

static int to_state(struct ibv_wq *wq, enum ibv_wq_state state)
{
	struct ibv_wq_attr a = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = state };

	return ibv_modify_wq(wq, &a);
}

static void wq_open(unsigned i, const struct mlx5dv_striding_rq_init_attr *strides)
{
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = pd, .cq = cq };
	struct mlx5dv_wq_init_attr dv = { .comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ };
	struct mlx5dv_rwq d = {};

	if (strides)
		dv.striding_rq_attrs = *strides;
	q[i].wq = made(strides ? mlx5dv_create_wq(ctx, &init, &dv) : ibv_create_wq(ctx, &init));
	must(mlx5dv_init_obj(&(struct mlx5dv_obj){ .rwq = { q[i].wq, &d } }, MLX5DV_OBJ_RWQ));
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

	for (unsigned i = 0; i < n; i++)
		wq[i] = q[i].wq;
	return made(ibv_create_rwq_ind_table(ctx, &init));
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

	memcpy(r.eth.val.dst_mac, here, 6);
	memset(r.eth.mask.dst_mac, 0xff, 6);
	return made(ibv_create_flow(qp, &r.attr));
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
	  { 0x3f, 0xfe, 0x25, 0x01, 0x02, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1 }, 2794, 1766, 0x2cc18cd5, 0x40207d3d },
	{ 6, { 0x3f, 0xfe, 5, 1, 0, 8, 0, 0, 2, 0x60, 0x97, 0xff, 0xfe, 0x40, 0xef, 0xab },
	  { 0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 }, 14230, 4739, 0x0f0c461c, 0xdde51bbf },
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

TEST(spread)
{
	struct ibv_rwq_ind_table *t;

	open_common();
	open_cq();
	for (unsigned i = 0; i < WQS; i++) {
		wq_open(i, NULL);
		refill(i);
	}
	t = table_of(WQS);
	for (unsigned row = 0; row < 8; row++) {
		const unsigned version = row & 1 ? 6 : 4, proto = row & 2 ? 17 : 6, ports = row >> 2;
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
			uint32_t hash = v->version != version ? 0 : ports ? v->all : v->ip;
			uint8_t type = hash ? (version == 4 ? 5 : 10) | (ports ? (proto == 6 ? 0x50 : 0xa0) : 0) : 0;
			struct mlx5_cqe64 c;

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
		must(ibv_destroy_flow(f) || ibv_destroy_qp(qp));
	}
	must(ibv_destroy_rwq_ind_table(t));
	no_cqe(&rx);
	for (unsigned i = 0; i < WQS; i++)
		must(ibv_destroy_wq(q[i].wq));
	must(ibv_destroy_cq(cq));
	close_common();
}

/* ---- errors ---- */

static void restart(void)
{
	must(to_state(q[0].wq, IBV_WQS_RESET));
	must(to_state(q[0].wq, IBV_WQS_RDY));
	q[0].ring.pi = 0;
}

/* The next CQEs are errors of these WQEs: the first of its own kind, the others flushed */
static void errors_of(unsigned first, unsigned end, uint8_t syndrome)
{
	for (unsigned i = first; i < end; i++) {
		struct mlx5_cqe64 c = cqe_next(&rx);

		assert_int_equal(syndrome_of(&c), i == first ? syndrome : MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
		assert_int_equal(be16toh(c.wqe_counter), i);
	}
	no_cqe(&rx);
}

TEST(stopped)
{
	static const struct mlx5dv_striding_rq_init_attr shape = { 6, 4, 0 };
	struct ibv_rwq_ind_table *t;
	struct mlx5_cqe64 c;
	struct ibv_flow *f;
	struct ibv_qp *qp;

	open_common();
	for (unsigned strides = 0; strides < 2; strides++) {
		struct ring *r = &q[0].ring;

		open_cq();
		wq_open(0, strides ? &shape : NULL);
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
		errors_of(0, 3, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
		plain_packet(100);
		send_packet(&tx);
		no_cqe(&rx);
		/* Reset, and it works again */
		restart();
		post_buffer(r, (uintptr_t)mem, 1024, mr->lkey);
		send_packet(&tx);
		c = cqe_next(&rx);
		assert_int_equal(op_of(&c), MLX5_CQE_RESP_SEND);
		assert_int_equal(be32toh(c.byte_cnt), strides ? 2 << 16 | 100 : 100);
		/* Stopped by a command: a WQE of which strides were used comes back as well */
		post_buffer(r, (uintptr_t)mem, 1024, mr->lkey);
		must(to_state(q[0].wq, IBV_WQS_ERR));
		errors_of(!strides, 2, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
		/* A key that does not exist */
		restart();
		post_buffer(r, (uintptr_t)mem, 1024, mr->lkey ^ 0x5500);
		send_packet(&tx);
		errors_of(0, 1, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
		/* More posted than the ring holds: nothing can be trusted, and an event says so */
		restart();
		*r->dbrec = htobe32(100);
		send_packet(&tx);
		assert_ptr_equal(expect_event(ctx, IBV_EVENT_WQ_FATAL), q[0].wq);
		no_cqe(&rx);
		must(ibv_destroy_flow(f) || ibv_destroy_qp(qp) || ibv_destroy_rwq_ind_table(t));
		must(ibv_destroy_wq(q[0].wq) || ibv_destroy_cq(cq));
	}
	close_common();
}

/* ---- refusals ---- */

TEST(refusals)
{
	const uint64_t v4 = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4;
	/* Another function; a short key; both versions, both protocols, nothing with several queues, what is unknown */
	const struct {
		uint8_t function, key_len;
		uint64_t fields;
		int err;
	} rows[] = {
		{ 2, 40, v4, EOPNOTSUPP }, { 1, 39, v4, EINVAL }, { 1, 40, v4 | IBV_RX_HASH_SRC_IPV6, EINVAL },
		{ 1, 40, IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_UDP, EINVAL }, { 1, 40, 0, EINVAL },
		{ 1, 40, v4 | IBV_RX_HASH_IPSEC_SPI, EOPNOTSUPP }, { 1, 40, v4 | IBV_RX_HASH_INNER, EOPNOTSUPP }, { 1, 40, v4, 0 },
	};
	struct ibv_wq_attr flags = { .attr_mask = IBV_WQ_ATTR_FLAGS };
	struct ibv_wq_init_attr wq = { .wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = pd, .comp_mask = IBV_WQ_INIT_ATTR_FLAGS };
	struct ibv_rwq_ind_table *t;
	struct ibv_qp_init_attr_ex a;
	struct ibv_device_attr_ex ex;

	must(ibv_query_device_ex(ctx, NULL, &ex));
	assert_int_equal(ex.rss_caps.supported_qpts, 1 << IBV_QPT_RAW_PACKET);
	assert_int_equal(ex.rss_caps.rx_hash_function, IBV_RX_HASH_FUNC_TOEPLITZ);
	assert_int_equal(ex.rss_caps.rx_hash_fields_mask, 0xff);
	open_cq();
	for (unsigned i = 0; i < 2; i++)
		wq_open(i, NULL);
	t = table_of(2);
	for (unsigned i = 0; i < ARRAY(rows); i++) {
		struct ibv_qp *qp;

		a = rss_attr(t, rows[i].fields);
		a.rx_hash_conf.rx_hash_function = rows[i].function;
		a.rx_hash_conf.rx_hash_key_len = rows[i].key_len;
		errno = 0;
		qp = ibv_create_qp_ex(ctx, &a);
		if (errno != rows[i].err || !qp != !!rows[i].err)
			fail_msg("row %u: errno %d", i, errno);
		if (!qp)
			continue;
		/* It does nothing but receive */
		assert_int_not_equal(move(qp, IBV_QPS_INIT, 0, &usual), 0);
		must(ibv_destroy_qp(qp));
	}
	assert_int_equal(ibv_destroy_wq(q[1].wq), EBUSY);
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

TEST(states)
{
	struct ibv_wq_attr a = { .attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE, .curr_wq_state = IBV_WQS_ERR,
				 .wq_state = IBV_WQS_RESET };
	const struct {
		uint32_t wr, sge;
		enum ibv_wq_type type;
	} bad[] = { { 1u << 20, 1, IBV_WQT_RQ }, { 8, 100, IBV_WQT_RQ }, { 8, 1, IBV_WQT_RQ + 1 } };

	open_cq();
	wq_open(0, NULL);
	/* It is not where it is said to be */
	assert_int_not_equal(ibv_modify_wq(q[0].wq, &a), 0);
	assert_int_equal(q[0].wq->state, IBV_WQS_RDY);
	must(to_state(q[0].wq, IBV_WQS_ERR));
	must(to_state(q[0].wq, IBV_WQS_RESET));
	must(to_state(q[0].wq, IBV_WQS_RDY));
	assert_int_equal(ibv_destroy_cq(cq), EBUSY);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	for (unsigned i = 0; i < ARRAY(bad); i++) {
		struct ibv_wq_init_attr init = { .wq_type = bad[i].type, .max_wr = bad[i].wr, .max_sge = bad[i].sge, .pd = pd, .cq = cq };

		assert_null(ibv_create_wq(ctx, &init));
	}
	must(ibv_destroy_wq(q[0].wq) || ibv_destroy_cq(cq));
}

int main(void)
{
	return run_all(setup, teardown);
}
