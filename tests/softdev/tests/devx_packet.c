/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * devx_packet.c: packets into queues by device commands: states of RQs, what is refused. Traffic, rules by field, and
 * compressed CQEs: tests/devx/packets.c.
 */
#include "rig_devx.h"
#include "rig_wq.h"

static struct sender tx;
static struct mlx5dv_devx_obj *td;
static uint32_t tdn;
static uint8_t *mem;
static struct ibv_mr *mr;

enum { LINKED, CYCLIC, LINKED_STRIDING, CYCLIC_STRIDING };

static void open_common(void)
{
	struct cmd c = command(0x816, 0x10, 0x10);

	empty_arena();
	td = must_create(&c, &tdn);
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
	must(destroy(td));
}

static struct dcq dcq;
static struct reader rx;

static void open_reader(void)
{
	open_cq(&dcq, 9, 64);
	rx = (struct reader){ .buf = dcq.buf, .cnt = 512, .dbrec = dcq.dbrec };
}

/* ---- queues ---- */

struct drq {
	struct mlx5dv_devx_obj *obj;
	uint32_t rqn;
	struct ring ring;
};

static struct cmd rq_command(struct ring *r, unsigned type, unsigned log, unsigned log_entry)
{
	struct cmd c = command(0x908, 0x110, 0x10);
	size_t buf = part((size_t)1 << (log + log_entry)), record = part(8);

	SET(&c, { 0x100 + 0x3, 1, 1 }, { 0x100 + 0xd, 1, 1 }, { 0x100 + 0x28, 24, 0x1234 }, { 0x100 + 0x48, 24, dcq.cqn });
	set_wq(&c, WQ, type, log, record, buf);
	IN(WQ + 0x10c, 4, log_entry);
	*r = (struct ring){ .buf = arena.p + buf, .cnt = 1u << log, .size = 1u << log_entry,
			    .dbrec = (uint32_t *)(void *)(arena.p + record), .link = type == CYCLIC ? 0 : 16 };
	return c;
}

static unsigned rq_to(struct drq *q, unsigned is, unsigned to)
{
	struct cmd c = command_of(0x909, 0x110, 0x10, q->rqn);

	SET(&c, { 0x40, 4, is }, { 0x100 + 0x8, 4, to });
	return modify(q->obj, &c);
}

static void rq_open(struct drq *q, struct cmd *c)
{
	q->obj = must_create(c, &q->rqn);
	assert_int_equal(rq_to(q, 0, 1), OK);
}

static struct mlx5dv_devx_obj *tir_to(uint32_t rqn)
{
	struct cmd c = command(0x900, 0x110, 0x10);
	uint32_t n;

	SET(&c, { 0x100 + 0xe8, 24, rqn }, { 0x100 + 0x128, 24, tdn });
	return must_create(&c, &n);
}

/* ---- rules ---- */

struct match {
	size_t size;
	uint8_t bytes[512];
};

static struct mlx5dv_flow_matcher *matcher(struct match *mask, uint16_t priority)
{
	struct mlx5dv_flow_matcher_attr a = { .type = IBV_FLOW_ATTR_NORMAL, .priority = priority, .match_criteria_enable = 1,
					      .match_mask = (struct mlx5dv_flow_match_parameters *)(void *)mask };
	struct mlx5dv_flow_matcher *m = mlx5dv_create_flow_matcher(ctx, &a);

	assert_non_null(m);
	return m;
}

static struct match mac_of(const uint8_t mac[6])
{
	struct match m = { .size = 64 };

	memcpy(m.bytes + 8, mac, 6);
	return m;
}

static const uint8_t ones[6] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

/* To a TIR, or dropped */
static struct ibv_flow *rule(struct mlx5dv_flow_matcher *m, struct match *value, struct mlx5dv_devx_obj *tir, uint32_t tag)
{
	struct mlx5dv_flow_action_attr a[2] = { { .type = tir ? MLX5DV_FLOW_ACTION_DEST_DEVX : MLX5DV_FLOW_ACTION_DROP, .obj = tir },
						 { .type = MLX5DV_FLOW_ACTION_TAG, .tag_value = tag } };

	return mlx5dv_create_flow(m, (struct mlx5dv_flow_match_parameters *)(void *)value, 2, a);
}

/* ---- tests ---- */

/* The packet in p goes, and this comes of it */
static struct mlx5_cqe64 sent_one(void)
{
	send_packet(&tx);
	return cqe_next(&rx);
}

/* States: only a ready RQ receives; what comes back from one that stops; VLAN tags */
static void states(UNUSED void **state)
{
	struct shape tagged = { .tags = 1, .payload = 80 };
	struct match mask = mac_of(ones), value = mac_of(here);
	struct mlx5dv_flow_matcher *m;
	struct mlx5dv_devx_obj *tir;
	struct ibv_flow *flow;
	struct mlx5_cqe64 cqe;
	struct drq q;
	struct cmd c;

	if (!is_roce())
		return;
	open_common();
	for (unsigned flush = 0; flush < 2; flush++) {
		empty_arena();
		open_reader();
		c = rq_command(&q.ring, CYCLIC, 2, 4);
		IN(0x100 + 0xd, 1, flush);
		q.obj = must_create(&c, &q.rqn);
		tir = tir_to(q.rqn);
		m = matcher(&mask, 0);
		flow = rule(m, &value, tir, 77);
		assert_non_null(flow);
		for (unsigned i = 0; i < 3; i++)
			post_buffer(&q.ring, (uintptr_t)mem, 1024, mr->lkey);
		plain_packet(100);
		send_packet(&tx);
		no_cqe(&rx);
		assert_int_equal(rq_to(&q, 0, 1), OK);
		assert_int_equal(be32toh(sent_one().byte_cnt), 100);
		/* vsd says that tags stay, until it does not */
		packet_make(&p, &tagged, here, there);
		cqe = sent_one();
		assert_int_equal(be32toh(cqe.byte_cnt), p.len);
		assert_int_equal(cqe.l4_hdr_type_etc & 1, 0);
		c = command_of(0x909, 0x110, 0x10, q.rqn);
		SET(&c, { 0x40, 4, 1 }, { 0x100 + 0x8, 4, 1 });
		MODIFY(q.obj, 0x80, 64, 8, BAD_PARAM);
		MODIFY(q.obj, 0x80, 64, 2, OK);
		cqe = sent_one();
		assert_int_equal(be32toh(cqe.byte_cnt), p.len - 4);
		assert_int_equal(cqe.l4_hdr_type_etc & 1, 1);
		assert_int_equal(be16toh(cqe.vlan_info), packet_u16(p.at + 14));
		/* It fails by itself: a command must know that */
		post_buffer(&q.ring, (uintptr_t)mem, 64, mr->lkey);
		post_buffer(&q.ring, (uintptr_t)mem, 64, mr->lkey);
		cqe = sent_one();
		assert_int_equal(syndrome_of(&cqe), MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
		if (flush) {
			cqe = cqe_next(&rx);
			assert_int_equal(syndrome_of(&cqe), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
		}
		no_cqe(&rx);
		assert_int_equal(rq_to(&q, 1, 0), BAD_RES_STATE);
		assert_int_equal(rq_to(&q, 3, 1), BAD_RES_STATE);
		assert_int_equal(rq_to(&q, 3, 0), OK);
		assert_int_equal(rq_to(&q, 0, 1), OK);
		q.ring.pi = 0;
		post_buffer(&q.ring, (uintptr_t)mem, 1024, mr->lkey);
		cqe = sent_one();
		assert_int_equal(op_of(&cqe), MLX5_CQE_RESP_SEND);
		assert_int_equal(be16toh(cqe.wqe_counter), 0);
		assert_int_equal(mlx5dv_destroy_flow_matcher(m), EBUSY);
		assert_int_equal(destroy(tir), EBUSY);
		must(ibv_destroy_flow(flow));
		must(mlx5dv_destroy_flow_matcher(m));
		must(destroy(tir));
		must(destroy(q.obj));
		must(destroy(dcq.obj));
	}
	close_common();
}

/* Rules by matcher: the lower number comes first; what is refused */
static void rules(UNUSED void **state)
{
	static const struct {
		size_t size;
		unsigned byte;
		uint8_t criteria;
		uint32_t flags;
		bool good;
	} masks[] = {
		/* Of other headers, of what is no field, too long; criteria that do not fit; flags */
		{ 64, 8, 1, 0, true }, { 128, 8, 1, 0, true }, { 128, 70, 1, 0, false }, { 64, 0x18, 1, 0, false }, { 64, 8, 3, 0, false },
		{ 64, 8, 0, 0, false }, { 64, 8, 1, IBV_FLOW_ATTR_FLAGS_EGRESS, false },
	};
	struct match mask = mac_of(ones), value = mac_of(here), odd = mask;
	struct mlx5dv_flow_matcher_attr a = { .type = IBV_FLOW_ATTR_NORMAL,
					      .match_mask = (struct mlx5dv_flow_match_parameters *)(void *)&odd };
	struct mlx5dv_flow_matcher *m, *n;
	struct mlx5dv_devx_obj *tir;
	struct ibv_flow *flow, *drop;
	struct drq q;
	struct cmd c;

	if (!is_roce())
		return;
	open_common();
	open_reader();
	c = rq_command(&q.ring, CYCLIC, 8, 4);
	rq_open(&q, &c);
	tir = tir_to(q.rqn);
	post_buffer(&q.ring, (uintptr_t)mem, 4096, mr->lkey);
	for (unsigned first = 0; first < 2; first++) {
		m = matcher(&mask, 5);
		n = matcher(&mask, first ? 4 : 6);
		flow = rule(m, &value, tir, 9);
		drop = rule(n, &value, NULL, 0);
		assert_true(flow && drop);
		plain_packet(100);
		send_packet(&tx);
		if (!first)
			assert_int_equal(be32toh(cqe_next(&rx).sop_drop_qpn), 9);
		no_cqe(&rx);
		must(ibv_destroy_flow(flow) || ibv_destroy_flow(drop));
		must(mlx5dv_destroy_flow_matcher(m) || mlx5dv_destroy_flow_matcher(n));
	}
	for (unsigned i = 0; i < ARRAY(masks); i++) {
		odd = mask;
		odd.size = masks[i].size;
		odd.bytes[masks[i].byte] = 0xff;
		a.match_criteria_enable = masks[i].criteria;
		a.flags = masks[i].flags;
		m = mlx5dv_create_flow_matcher(ctx, &a);
		if (!m == masks[i].good)
			fail_msg("mask %u", i);
		if (m)
			must(mlx5dv_destroy_flow_matcher(m));
	}
	/* Values of another length, a tag too large, an object that is no TIR, a number too high */
	m = matcher(&mask, 0);
	odd = mask;
	odd.size = 128;
	assert_null(rule(m, &odd, tir, 0));
	assert_null(rule(m, &value, tir, 1 << 24));
	assert_null(rule(m, &value, q.obj, 0));
	must(mlx5dv_destroy_flow_matcher(m));
	m = matcher(&mask, 16);
	assert_null(rule(m, &value, tir, 0));
	must(mlx5dv_destroy_flow_matcher(m));
	must(destroy(tir));
	must(destroy(q.obj));
	must(destroy(dcq.obj));
	close_common();
}

/* What striding queues may be, and who may have a striding RMP */
static void refusals(UNUSED void **state)
{
	static const struct wrong rq_wrong[] = {
		{ "4 strides", WQ + 0x134, 4, 9, BAD_PARAM }, { "2 strides", WQ + 0x134, 4, 8, BAD_PARAM },
		{ "no room for a pointer", WQ + 0x10c, 4, 4, BAD_PARAM }, { "entries too long", WQ + 0x10c, 4, 10, BAD_PARAM },
		{ "wq_type", WQ, 4, 5, BAD_PARAM }, { "umem", WQ + 0x160, 32, 0xfff0, BAD_RES },
	};
	struct mlx5dv_devx_obj *rmp, *rq;
	struct ring r;
	struct dqp qp;
	struct cmd c, made;
	uint32_t n;

	empty_arena();
	open_reader();
	for (unsigned type = LINKED_STRIDING; type <= CYCLIC_STRIDING; type++) {
		made = rq_command(&r, type, 3, 5);
		refuse_all(&made, rq_wrong, ARRAY(rq_wrong));
		if (!is_roce())
			continue;
		c = made;
		SET(&c, { WQ + 0x134, 4, 3 - 9 }, { WQ + 0x138, 1, 1 }, { WQ + 0x13d, 3, 5 });
		rq = must_create(&c, &n);
		c = query_of(0x90b, rq, n, 0x110);
		EXPECT(&c, { WQ, 4, type }, { WQ + 0x134, 4, 3 - 9 + 16 }, { WQ + 0x138, 1, 1 }, { WQ + 0x13d, 3, 5 });
		must(destroy(rq));
	}
	c = command(0x90c, 0x110, 0x10);
	memcpy(c.in + WQ / 8, made.in + WQ / 8, 0x40);
	IN(RMPC + 0x8, 4, 1);
	if (is_roce()) {
		refuse_all(&c, rq_wrong, ARRAY(rq_wrong));
		REFUSE(&c, { "no links", RMPC + 0x20, 1, 1, BAD_PARAM });
		rmp = must_create(&c, &n);
		c = qp_command(&qp, RC, 4, 0, dcq.cqn, dcq.cqn, n);
		REFUSE(&c, { "a striding RMP", QPC + 0x565, 3, 1, BAD_RES });
		must(destroy(rmp));
	} else {
		REFUSE(&c, { "striding", WQ, 4, 3, BAD_PARAM });
	}
	must(destroy(dcq.obj));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(states), TEST(rules), TEST(refusals),
	};

	return devx_main(tests, ARRAY(tests), false);
}
