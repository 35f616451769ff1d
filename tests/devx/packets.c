/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * packets.c: packets into queues made by commands: RQs of their own, plain and striding; several on one RMP, linked and cyclic; by rules
 * and by RSS. Every packet must come to the queue that it is for, byte for byte, and every buffer come back.
 */
#include "rig.h"
#include <inlay/devx/packets.h>
#include "raw.h"

#define TAG 0x7654u
#define ENTRIES 64u             /* more than a batch can use up */
#define MOST 4u                 /* RQs */
#define OWN 8u                  /* beside flags of RMPs: an RQ with a ring of its own */
#define SLOT 2048u              /* bytes of a buffer, at most */

static const uint8_t macs[2][6] = {{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 7}};

/* RQs on one CQ, and what they receive into */
static struct {
	struct inlay_devx_cq cq;
	struct inlay_devx_srq rmp;
	struct inlay_devx_rq rq[MOST];
	struct inlay_devx_rss rss[MOST];
	struct inlay_devx_flow flow[MOST];
	struct inlay_strides shape;
	uint32_t cqes, cqe_size, zip, mini; /* of the CQ */
	uint32_t posted, left[ENTRIES], lefts; /* of an RMP: buffers that it has not */
	uint8_t *buf;
	struct ibv_mr *mr;
} r;
static struct {
	uint8_t at[ROOM];
	uint32_t len, to, hash;
} out[BATCH];

static int packets_open(void **state)
{
	if (rig_open(state))
		return -1;
	sender_open();
	return 0;
}

static int packets_close(void **state)
{
	sender_close();
	return rig_close(state);
}

static int packets_empty(void **state)
{
	memset(&r, 0, sizeof(r));
	r.cqes = 4096;
	r.cqe_size = 64;
	return rig_empty(state);
}

#define packets_test(f) TEST_WITH(f, packets_empty, NULL)

static void common_open(void)
{
	struct inlay_devx_cq_attr attr;

	need_ethernet();
	attr = cq_want(r.cqes, r.cqe_size);
	attr.flags = r.zip;
	attr.mini = r.mini;
	must(inlay_devx_cq_create(&r.cq, dev.ctx, &attr));
	r.buf = (uint8_t *)pages(ENTRIES * SLOT);
	r.mr = made(ibv_reg_mr(dev.pd, r.buf, ENTRIES * SLOT, IBV_ACCESS_LOCAL_WRITE));
}

static void common_close(void)
{
	for (uint32_t i = 0; i < MOST; i++) {
		must(inlay_devx_flow_destroy(&r.flow[i]));
		must(inlay_devx_rss_destroy(&r.rss[i]));
	}
	for (uint32_t i = 0; i < MOST; i++) {
		must(inlay_devx_rq_destroy(&r.rq[i]));
		must(inlay_devx_rq_destroy(&r.rq[i]));
	}
	must(inlay_devx_srq_destroy(&r.rmp));
	assert_int_equal(r.cq.cq.reserved, r.zip == INLAY_DEVX_CQ_ENHANCED);
	must(inlay_devx_cq_destroy(&r.cq));
	must(ibv_dereg_mr(r.mr));
	free(r.buf);
}

static struct inlay_devx_rq_attr rq_want(uint32_t wqes, uint32_t stride, uint32_t flags)
{
	struct inlay_devx_rq_attr attr = {.cq = &r.cq.cq, .ring = place_ring(wqes * stride),
					  .record = place_record(), .pdn = rig.pdn, .wqes = wqes, .stride = stride,
					  .user_index = 0x5a0000, .flags = flags, .strides = r.shape};

	return attr;
}

/* n RQs on an RMP with these flags, or one of its own; number i has user index 0x5a0000 + i */
static void queues_open(uint32_t n, uint32_t flags)
{
	const bool striding = flags & INLAY_DEVX_SRQ_STRIDING;
	struct inlay_devx_srq_attr rmp;
	struct inlay_devx_rq_attr attr;
	struct inlay_query_rq_out q;

	if (flags & OWN) {
		attr = rq_want(ENTRIES, striding ? 32 : 16, striding ? INLAY_DEVX_RQ_STRIDING : INLAY_DEVX_RQ_STRIP_VLAN);
		must(inlay_devx_rq_create(&r.rq[0], dev.ctx, &attr));
		record_is_clear(attr.record);
		assert_int_equal(r.cq.cq.reserved, (striding ? ENTRIES << r.shape.log_number : ENTRIES) + (r.zip == INLAY_DEVX_CQ_ENHANCED));
		must(context(&r.rq[0], RQ, rqn, &q));
		assert_int_equal(inlay_rqc_get(&q.rqc, INLAY_RQC_STATE), INLAY_WQ_STATE_RDY);
		assert_int_equal(inlay_rqc_get(&q.rqc, INLAY_RQC_VSD), striding);
		assert_int_equal(inlay_rqc_get(&q.rqc, INLAY_RQC_USER_INDEX), 0x5a0000);
		assert_int_equal(inlay_rqc_get(&q.rqc, INLAY_RQC_CQN), r.cq.cq.cqn);
		return;
	}
	rmp = srq_want(ENTRIES, 64, flags);
	rmp.strides = r.shape;
	rmp.cq = &r.cq.cq;
	must(inlay_devx_srq_create(&r.rmp, dev.ctx, &rmp));
	attr = (struct inlay_devx_rq_attr){.cq = &r.cq.cq, .rmpn = r.rmp.srqn, .flags = INLAY_DEVX_RQ_SHARED};
	for (uint32_t i = 0; i < n; i++) {
		attr.user_index = 0x5a0000 + i;
		must(inlay_devx_rq_create(&r.rq[i], dev.ctx, &attr));
	}
	assert_int_equal(inlay_devx_srq_destroy(&r.rmp), -EBUSY);
	for (r.lefts = 0; r.lefts < ENTRIES; r.lefts++)
		r.left[r.lefts] = r.lefts;
}

/* All for macs[i] goes to RQ number i */
static void lead(uint32_t i)
{
	struct inlay_flow_match m = {};

	must(inlay_devx_rss_create(&r.rss[i], dev.ctx, &r.rq[i].rqn, 1, 0));
	memcpy(m.mac, macs[i], 6);
	m.tag = TAG;
	must(inlay_devx_flow_create(&r.flow[i], dev.ctx, &r.rss[i], &m, NULL));
	assert_int_equal(inlay_devx_rss_destroy(&r.rss[i]), -EBUSY);
	assert_int_equal(inlay_devx_rq_destroy(&r.rq[i]), -EBUSY);
}

/* A batch, each for one of the first n RQs; at most `most` bytes */
static void send_batch(uint32_t n, uint32_t most)
{
	uint32_t i, lens[BATCH];

	for (i = 0; i < BATCH; i++) {
		struct shape s = {0, 4, 17, 0, 0, 18 + rnd_below(most - 60), (uint16_t)(1 + rnd_below(60000))};
		uint8_t in[12];

		out[i].to = rnd_below(n);
		packet_make(&p, &s, macs[out[i].to], there);
		packet16(p.at + p.l3 + 14, rnd_below(65536));
		memcpy(in, p.at + p.l3 + 12, 8);
		memcpy(in + 8, p.at + p.l4, 4);
		out[i].hash = toeplitz(in, 12);
		out[i].len = lens[i] = p.len;
		memcpy(out[i].at, p.at, p.len);
		memcpy(t.out + i * ROOM, p.at, p.len);
	}
	send_packets(lens, BATCH);
}

/* What came is packet i of the batch, but for the checksums that the device fills in */
static void check_packet(const uint8_t *at, uint32_t len, uint32_t i, const struct mlx5_cqe64 *cqe)
{
	assert_true(len == out[i].len && !memcmp(at, out[i].at, p.l3 + 10));
	assert_memory_equal(at + p.l3 + 12, out[i].at + p.l3 + 12, p.l4 + 6 - p.l3 - 12);
	assert_memory_equal(at + p.data, out[i].at + p.data, len - p.data);
	assert_true(inlay_cqe_user_index(cqe) == 0x5a0000 + out[i].to && inlay_cqe_flow_tag(cqe) == TAG);
}

/* ---- Every kind of queue ---- */

/* Posts what there is room for; buffers of a striding queue of its own come back where they are taken */
static void refill(uint32_t flags)
{
	const bool striding = flags & INLAY_DEVX_SRQ_STRIDING, rmp = !(flags & OWN);
	struct ibv_sge sge = {0, SLOT, r.mr->lkey};

	if (rmp) {
		while (inlay_srq_room(&r.rmp.srq)) {
			sge.addr = (uintptr_t)r.buf + r.left[--r.lefts] * SLOT;
			must(inlay_post_srq_recv(&r.rmp.srq, &sge, 1, r.left[r.lefts]));
		}
		inlay_srq_ring(&r.rmp.srq);
		return;
	}
	while (inlay_rq_room(&r.rq[0].rq)) {
		sge.addr = (uintptr_t)r.buf + r.posted++ % ENTRIES * SLOT;
		if (striding)
			must(inlay_striding_post(&r.rq[0].striding, sge.addr, sge.lkey));
		else
			must(inlay_post_recv(&r.rq[0].rq, &sge, 1));
	}
	inlay_rq_ring(&r.rq[0].rq);
}

/* Packet i of the batch. Returns the fillers before it */
static uint32_t take_packet(uint32_t flags, uint32_t i)
{
	uint32_t fillers = 0;

	for (;; fillers++) {
		const struct mlx5_cqe64 *cqe = cqe_next(&r.cq.cq);
		struct inlay_packet_at at = {0, 0, 0};
		int done = 0;

		assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_RESP_SEND);
		if (flags & INLAY_DEVX_SRQ_STRIDING) {
			done = flags & OWN ? inlay_striding_take(&r.rq[0].striding, cqe, &at) :
					     inlay_striding_srq_take(&r.rmp.striding, cqe, &at);
			assert_in_range(done, 0, 1);
		} else {
			at.wqe = inlay_cqe_wqe_counter(cqe) % ENTRIES;
			at.len = inlay_cqe_byte_count(cqe);
			done = flags & OWN ? inlay_rq_release(&r.rq[0].rq, cqe) : 1 + inlay_srq_release(&r.rmp.srq, cqe);
			assert_int_equal(done, 1);
		}
		/* An entry keeps its buffer's number until it has another */
		if (!(flags & OWN))
			at.wqe = (uint32_t)inlay_srq_user(&r.rmp.srq, at.wqe);
		if (done && !(flags & OWN))
			r.left[r.lefts++] = at.wqe;
		if (at.len)
			check_packet(r.buf + at.wqe * SLOT + at.offset, at.len, i, cqe);
		if (done && flags & OWN && flags & INLAY_DEVX_SRQ_STRIDING)
			inlay_striding_recycle(&r.rq[0].striding);
		inlay_cq_advance(&r.cq.cq, 1);
		if (at.len)
			return fillers;
	}
}

/*
 * rqs        on the queue; of more than 2 RSS decides, else the MAC
 * zip, mini  of the CQ
 */
packets_test(traffic)
{
	enum { LINKED, CYCLIC, STRIDING, Z = INLAY_DEVX_CQ_COMPRESSED, E = INLAY_DEVX_CQ_ENHANCED };
	static const struct {
		const char *name;
		uint32_t flags, rqs, zip, mini, cqe_size;
		struct inlay_strides shape;
	} rows[] = {
		{"own", OWN, 1, 0, 0, 64, {0, 0, 0}}, {"own, striding", OWN | STRIDING, 1, 0, 0, 64, {5, 6, 2}},
		{"linked", LINKED, 2, 0, 0, 64, {0, 0, 0}}, {"cyclic", CYCLIC, 2, 0, 0, 64, {0, 0, 0}},
		{"linked, striding", LINKED | STRIDING, 2, 0, 0, 64, {3, 8, 0}},
		{"cyclic, striding", CYCLIC | STRIDING, 2, 0, 0, 64, {3, 8, 2}},
		{"spread over three", LINKED | STRIDING, 3, 0, 0, 64, {5, 6, 0}},
		{"spread over four", LINKED | STRIDING, 4, 0, 0, 64, {5, 6, 0}},
		{"own, compressed", OWN | STRIDING, 1, Z, INLAY_MINI_CSUM_STRIDX, 128, {4, 7, 2}},
		{"own, enhanced", OWN | STRIDING, 1, E, INLAY_MINI_L34H_STRIDX, 64, {4, 7, 0}},
		{"own, compressed hashes", OWN | STRIDING, 1, Z, INLAY_MINI_HASH | INLAY_MINI_STRIDES, 64, {4, 7, 2}},
		{"own, enhanced checksums", OWN | STRIDING, 1, E, INLAY_MINI_CSUM | INLAY_MINI_STRIDES, 128, {4, 7, 0}},
		{"linked, enhanced", LINKED | STRIDING, 2, E, INLAY_MINI_CSUM_STRIDX, 64, {4, 7, 2}},
		{"cyclic, compressed", CYCLIC | STRIDING, 2, Z, INLAY_MINI_L34H_STRIDX, 64, {4, 7, 0}},
	};
	const uint64_t fields = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;
	uint32_t i, k, round, fillers, before, most, rqns[MOST];
	struct inlay_flow_match m;

	need_ethernet();
	for (i = 0; i < ARRAY(rows); i++) {
		const uint32_t n = rows[i].rqs, flags = rows[i].flags, size = n & (n - 1) ? INLAY_RSS_QUEUES : n;
		const bool striding = flags & STRIDING;

		print_message("# %s\n", rows[i].name);
		packets_empty(NULL);
		r.shape = rows[i].shape;
		r.zip = rows[i].zip;
		r.mini = rows[i].mini;
		r.cqe_size = rows[i].cqe_size;
		common_open();
		queues_open(n, flags);
		for (k = 0; k < n && n <= 2; k++)
			lead(k);
		if (n > 2) {
			for (k = 0; k < n; k++)
				rqns[k] = r.rq[k].rqn;
			must(inlay_devx_rss_create(&r.rss[0], dev.ctx, rqns, n, fields));
			m = (struct inlay_flow_match){.type = 0x0800, .proto = 17, .tag = TAG};
			must(inlay_devx_flow_create(&r.flow[0], dev.ctx, &r.rss[0], &m, NULL));
		}
		most = striding ? (1u << (r.shape.log_number + r.shape.log_size)) - r.shape.shift : 1500;
		before = blocks;
		for (round = fillers = 0; round < 40; round++) {
			/* An RQ on a queue that others use too may stop and start at any time */
			if (round == 20 && !(flags & OWN))
				must(inlay_devx_rq_reset(&r.rq[0]));
			refill(flags);
			send_batch(n > 2 ? 1 : n, r.zip ? round & 1 ? 120 : 600 : most > 1500 ? 1500 : most);
			for (k = 0; k < BATCH; k++) {
				if (n > 2)
					out[k].to = out[k].hash % size % n;
				fillers += take_packet(flags, k);
			}
		}
		nothing_came(&r.cq.cq);
		assert_true(!striding == !fillers && (!r.zip || blocks - before > 80));
		if (flags & OWN) {
			must(inlay_devx_rq_reset(&r.rq[0]));
			assert_int_equal(inlay_rq_room(&r.rq[0].rq), ENTRIES);
		}
		common_close();
	}
}

/* A queue stops at a packet that is too long, and starts again */
packets_test(stops)
{
	struct inlay_devx_rq_attr attr;
	const struct mlx5_cqe64 *cqe;
	struct inlay_query_rq_out q;
	uint32_t turn, i, errors;

	common_open();
	attr = rq_want(4, 32, 0);
	attr.user_index = 0x5a0000;
	must(inlay_devx_rq_create(&r.rq[0], dev.ctx, &attr));
	lead(0);
	for (turn = 0; turn < 3; turn++) {
		for (i = 0; i < 4; i++) {
			struct ibv_sge sge = {(uintptr_t)r.buf + i * SLOT, turn == 1 ? SLOT : 40, r.mr->lkey};

			must(inlay_post_recv(&r.rq[0].rq, &sge, 1));
		}
		inlay_rq_ring(&r.rq[0].rq);
		send_batch(1, 300);
		for (errors = 0, i = 0; i < 4; i++) {
			cqe = cqe_wait(&r.cq.cq);
			errors += inlay_cqe_is_error(cqe);
			if (turn != 1)
				assert_int_equal(inlay_cqe_syndrome(cqe), i ? MLX5_CQE_SYNDROME_WR_FLUSH_ERR : MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
			assert_int_equal(inlay_rq_release(&r.rq[0].rq, cqe), 1);
			inlay_cq_advance(&r.cq.cq, 1);
		}
		assert_int_equal(errors, turn == 1 ? 0 : 4);
		must(context(&r.rq[0], RQ, rqn, &q));
		assert_int_equal(inlay_rqc_get(&q.rqc, INLAY_RQC_STATE), turn == 1 ? INLAY_WQ_STATE_RDY : INLAY_WQ_STATE_ERR);
		must(inlay_devx_rq_reset(&r.rq[0]));
		assert_int_equal(inlay_rq_room(&r.rq[0].rq), 4);
	}
	common_close();
	assert_int_equal(inlay_devx_rq_reset(&r.rq[0]), -EINVAL);
}

/* ---- Rules ---- */

packets_test(rules)
{
	uint32_t round, i, taken = 0, passed = 0;
	struct inlay_devx_rq_attr attr;

	common_open();
	attr = rq_want(4, 16, 0);
	must(inlay_devx_rq_create(&r.rq[0], dev.ctx, &attr));
	must(inlay_devx_rss_create(&r.rss[0], dev.ctx, &r.rq[0].rqn, 1, 0));
	for (round = 0; round < 30; round++) {
		struct inlay_flow_match m = random_rule(TAG);

		must(inlay_devx_flow_create(&r.flow[0], dev.ctx, &r.rss[0], &m, NULL));
		for (i = 0; i < 12; i++) {
			struct shape s = random_packet(i);
			struct ibv_sge sge = {(uintptr_t)r.buf, ROOM, r.mr->lkey};
			const struct mlx5_cqe64 *cqe;

			if (inlay_rq_room(&r.rq[0].rq))
				must(inlay_post_recv(&r.rq[0].rq, &sge, 1));
			inlay_rq_ring(&r.rq[0].rq);
			send_packet();
			if (!takes(&m, &s)) {
				nothing_came(&r.cq.cq);
				passed++;
				continue;
			}
			cqe = cqe_wait(&r.cq.cq);
			assert_int_equal(inlay_cqe_byte_count(cqe), p.len < 60 ? 60 : p.len);
			assert_memory_equal(r.buf, p.at, p.l3);
			if (m.tag)
				assert_int_equal(inlay_cqe_flow_tag(cqe), m.tag);
			assert_int_equal(inlay_rq_release(&r.rq[0].rq, cqe), 1);
			inlay_cq_advance(&r.cq.cq, 1);
			taken++;
		}
		must(inlay_devx_flow_destroy(&r.flow[0]));
		must(inlay_devx_flow_destroy(&r.flow[0]));
	}
	printf("# %u taken, %u passed\n", taken, passed);
	assert_true(taken > 20 && passed > 20);
	common_close();
}

/* What cannot be, and leaves nothing behind */
packets_test(refused)
{
	static const struct inlay_flow_match bad[] = {
		{{0}, 0, 0, 6, {0}, {0}, 0, 0, 0, 0, 0},          /* TCP, but of which IP? */
		{{0}, 0, 0x0800, 1, {0}, {0}, 0, 0, 0, 0, 0},     /* ICMP */
		{{0}, 0, 0x0800, 0, {0}, {0}, 0, 80, 0, 0, 0},    /* port 80 of what? */
		{{0}, 0, 0, 0, {10}, {0}, 0, 0, 0, 0, 0}, {{0}, 0x1000, 0, 0, {0}, {0}, 0, 0, 0, 0, 0},
		{{0}, 1, 0, 0, {0}, {0}, 0, 0, 0, 1u << 24, 0},
		{{2}, 0, 0, 0, {0}, {0}, 0, 0, 0, 0, 2},          /* a second port */
	};
	static const struct {
		uint32_t n, flip; /* one of more bits, or another */
		uint64_t fields;
		uint32_t opcode;
	} spread[] = {
		{0, 0, 0, 0}, {2, 0, 0, 0}, {INLAY_RSS_QUEUES + 1, 0, IBV_RX_HASH_SRC_IPV4, 0}, {1, 0, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_SRC_IPV6, 0},
		{1, 0, IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_UDP, 0}, {1, 0, UINT64_C(1) << 40, 0}, {1, 0, 1u << 8, 0},
		{1, 0x5000000, 0, 0}, {1, 0x5000000, IBV_RX_HASH_SRC_IPV4, 0}, /* cut, it is that RQ */
		{1, 0xfffffe, IBV_RX_HASH_SRC_IPV4, INLAY_CMD_OP_CREATE_RQT}, {1, 0xfffffe, 0, INLAY_CMD_OP_CREATE_TIR},
	};
	struct inlay_devx_rq_attr good, attr;
	struct inlay_flow_match all = {};
	const char *why;
	uint32_t i, n;

	r.shape.log_number = 3;
	r.shape.log_size = 6;
	common_open();
	good = rq_want(4, 32, INLAY_DEVX_RQ_STRIDING);
	attr = good;
	attr.flags = INLAY_DEVX_RQ_SHARED;
	attr.rmpn = 0xfffffe;
	assert_int_equal(inlay_devx_rq_create(&r.rq[0], dev.ctx, &attr), -EINVAL);
	assert_int_equal(r.rq[0].error.opcode, INLAY_CMD_OP_CREATE_RQ);
	must(inlay_devx_rq_create(&r.rq[0], dev.ctx, &good));

	for (i = 0; i < ARRAY(spread); i++) {
		n = spread[i].flip >> 24 ? r.rq[0].rqn | spread[i].flip : spread[i].flip ? spread[i].flip : r.rq[0].rqn;
		assert_int_equal(inlay_devx_rss_create(&r.rss[0], dev.ctx, &n, spread[i].n, spread[i].fields), -EINVAL);
		if (r.rss[0].error.opcode != spread[i].opcode)
			fail_msg("spread %u: opcode 0x%x", i, r.rss[0].error.opcode);
	}
	assert_true(!r.rss[0].obj && !r.rss[0].table && !r.rss[0].domain);
	assert_int_equal(inlay_devx_flow_create(&r.flow[0], dev.ctx, &r.rss[0], &all, &why), -EINVAL);
	must(inlay_devx_rss_create(&r.rss[0], dev.ctx, &r.rq[0].rqn, 1, IBV_RX_HASH_SRC_IPV4));
	for (i = 0; i < ARRAY(bad); i++) {
		why = NULL;
		assert_int_equal(inlay_devx_flow_create(&r.flow[0], dev.ctx, &r.rss[0], &bad[i], &why), -EINVAL);
		assert_true(why && !r.flow[0].flow && !r.flow[0].matcher);
	}
	must(inlay_devx_flow_create(&r.flow[0], dev.ctx, &r.rss[0], &all, &why));
	common_close();
}

int main(void)
{
	return rig_here() && run_all(packets_open, packets_close);
}
