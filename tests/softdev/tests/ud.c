/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ud.c: datagrams: their headers by every address, keys, address handles, groups; on RoCE and on InfiniBand. traffic.c has the
 * rest.
 */
#include "rig.h"
#include <netinet/in.h>

#define GROUP_LID 0xc001

static const struct how *how_ud(void)
{
	static struct how how;

	how = how_of_type(IBV_QPT_UD);
	return &how;
}

/* The way to this very port by its GID at index, or on InfiniBand without one (index -1) */
static struct ibv_ah_attr to_self(int index)
{
	struct ibv_ah_attr a;

	memset(&a, 0, sizeof(a));
	a.port_num = 1;
	a.dlid = port.lid;
	if (index >= 0) {
		a.is_global = 1;
		must(ibv_query_gid(ctx, 1, index, &a.grh.dgid));
		a.grh.sgid_index = index;
		a.grh.hop_limit = 33;
		a.grh.traffic_class = 0x48;
		a.grh.flow_label = 0x54321;
	}
	return a;
}

static struct ibv_ah *ah_of(struct ibv_ah_attr a)
{
	struct ibv_ah *ah = ibv_create_ah(pd, &a);

	assert_non_null(ah);
	return ah;
}

static struct ibv_ah *ah; /* to the port itself */

static int setup_ud(void **state)
{
	if (setup(state))
		return -1;
	ah = own_ah();
	return 0;
}

static int teardown_ud(void **state)
{
	return ibv_destroy_ah(ah) || teardown(state);
}

static struct ibv_send_wr datagram(enum ibv_wr_opcode op, uint64_t id, struct ibv_sge *sg, int n, struct ibv_ah *ah, uint32_t qpn)
{
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = sg, .num_sge = n, .opcode = op, .send_flags = IBV_SEND_SIGNALED };

	address(&wr, ah, qpn);
	return wr;
}

static struct ibv_send_wr to_second(uint64_t id, size_t off, uint32_t len)
{
	sg = sge(&s[0], off, len);
	return datagram(IBV_WR_SEND, id, &sg, 1, ah, s[1].qp->qp_num);
}

static uint16_t sum16(const uint8_t *p, unsigned n)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < n; i += 2)
		sum += p[i] << 8 | p[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* ---- data ---- */

static void headers_of(const struct ibv_wc *wc, const uint8_t *h, int index, uint32_t len, bool imm)
{
	/* What follows the header on the wire: base and datagram headers, the immediate, the data padded to words, the invariant CRC */
	unsigned behind = 12 + 8 + 4 * imm + ((len + 3) & ~3u) + 4;
	struct ibv_gid_entry e;

	assert_int_equal(!!(wc->wc_flags & IBV_WC_GRH), index >= 0);
	if (index < 0)
		return;
	must(ibv_query_gid_ex(ctx, 1, index, &e, 0));
	if (e.gid_type == IBV_GID_TYPE_ROCE_V2 && !e.gid.global.subnet_prefix) {
		/* IPv4: in the last 20 bytes, those before it say nothing */
		assert_int_equal(h[20], 0x45);
		assert_int_equal(h[21], 0x48);
		assert_int_equal(h[22] << 8 | h[23], 20 + 8 + behind);
		assert_int_equal(h[28], 33);
		assert_int_equal(h[29], IPPROTO_UDP);
		assert_int_equal(sum16(h + 20, 20), 0xffff);
		assert_memory_equal(h + 32, e.gid.raw + 12, 4);
		assert_memory_equal(h + 36, e.gid.raw + 12, 4);
		return;
	}
	/* IPv6's header is the same as the GRH */
	assert_int_equal(h[0] >> 4, 6);
	assert_int_equal((h[0] << 4 | h[1] >> 4) & 0xff, 0x48);
	if (e.gid_type != IBV_GID_TYPE_ROCE_V2) {
		assert_int_equal((h[1] & 15) << 16 | h[2] << 8 | h[3], 0x54321);
		assert_int_equal(h[6], 0x1b);
		assert_int_equal(h[4] << 8 | h[5], behind);
	} else {
		assert_int_equal(h[6], IPPROTO_UDP);
		assert_int_equal(h[4] << 8 | h[5], 8 + behind);
	}
	assert_int_equal(h[7], 33);
	assert_memory_equal(h + 8, &e.gid, 16);
	assert_memory_equal(h + 24, &e.gid, 16);
}

/* From s[0] to s[1] and back over an address made of what came in */
static void there_and_back(struct side s[2], int index, uint32_t len, bool imm)
{
	struct ibv_ah *ah = ah_of(to_self(index)), *back;
	const struct ibv_grh *grh = (struct ibv_grh *)(s[1].buf + 64);
	struct ibv_sge sg = sge(&s[0], 0, len);
	struct ibv_send_wr wr = datagram(imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, 6, &sg, 1, ah, s[1].qp->qp_num);
	struct ibv_ah_attr attr;
	struct ibv_wc wc;

	fill(s[0].buf, HALF, len);
	recv_at(&s[1], 5, 64, GRH_BYTES + len);
	post_done(&s[0], &wr);
	wc = expect_op(s[1].rcq, 5, IBV_WC_RECV);
	assert_true(is_roce() || wc.slid == port.lid);
	headers_of(&wc, s[1].buf + 64, index, len, imm);
	assert_memory_equal(s[1].buf + 64 + GRH_BYTES, s[0].buf, len);
	must(ibv_destroy_ah(ah));

	must(ibv_init_ah_from_wc(ctx, 1, &wc, (struct ibv_grh *)grh, &attr));
	assert_int_equal(attr.is_global, index >= 0);
	assert_true(index < 0 || (attr.grh.sgid_index == index && attr.grh.traffic_class == 0x48));
	back = ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)grh, 1);
	assert_non_null(back);
	recv_at(&s[0], 7, HALF, GRH_BYTES + 16);
	sg = sge(&s[1], 64, 16);
	wr = datagram(IBV_WR_SEND, 8, &sg, 1, back, wc.src_qp);
	post_done(&s[1], &wr);
	wc = expect_op(s[0].rcq, 7, IBV_WC_RECV);
	assert_int_equal(wc.src_qp, s[1].qp->qp_num);
	assert_memory_equal(s[0].buf + HALF + GRH_BYTES, s[1].buf + 64, 16);
	must(ibv_destroy_ah(back));
}

/* By each GID there is, and on InfiniBand without one */
static void headers(UNUSED void **state)
{
	static const uint32_t sizes[] = { 0, 1, 3, 4, 1023, 4096 };
	union ibv_gid g;
	unsigned ways = 0;

	open_pair(s, how_ud());
	for (int index = is_roce() ? 0 : -1; index < port.gid_tbl_len; index++) {
		if (index >= 0 && (ibv_query_gid(ctx, 1, index, &g) || !g.global.interface_id))
			continue;
		ways++;
		for (unsigned i = 0; i < 2 * ARRAY(sizes); i++)
			there_and_back(s, index, sizes[i / 2], i % 2);
	}
	assert_int_equal(ways, is_roce() ? 4 : 2);
	close_pair(s);
}

/* InfiniBand: the right LID, and a GRH that means somebody else */
static void strange_header(UNUSED void **state)
{
	struct ibv_ah_attr a = to_self(0);
	struct ibv_ah *strange;

	a.grh.dgid.raw[13] ^= 0x55;
	strange = ah_of(a);
	open_pair(s, how_ud());
	recv_at(&s[1], 1, 0, 4096);
	wr = to_second(2, 0, 16);
	wr.wr.ud.ah = strange;
	post_done(&s[0], &wr);
	wr = to_second(2, 0, 32);
	post_done(&s[0], &wr);
	assert_int_equal(expect_op(s[1].rcq, 1, IBV_WC_RECV).byte_len, GRH_BYTES + 32);
	must(ibv_destroy_ah(strange));
	close_pair(s);
}

/* A key whose top bit is set means the sender's own */
static void controlled_key(UNUSED void **state)
{
	struct how how = *how_ud();
	struct ibv_qp_attr a;

	open_pair(s, &how);
	recv_at(&s[1], 1, 0, 100);
	wr = to_second(2, 0, 16);
	wr.wr.ud.remote_qkey = 0x80000000;
	post_done(&s[0], &wr);
	expect_op(s[1].rcq, 1, IBV_WC_RECV);
	/* The receiver's key changed meanwhile: in RTS that is allowed */
	memset(&a, 0, sizeof(a));
	a.qp_state = IBV_QPS_RTS;
	a.qkey = 0x55;
	must(ibv_modify_qp(s[1].qp, &a, IBV_QP_STATE | IBV_QP_QKEY));
	recv_at(&s[1], 3, 0, 100);
	post_done(&s[0], &wr);
	expect_nothing(s[1].rcq);
	wr.wr.ud.remote_qkey = 0x55;
	post_done(&s[0], &wr);
	expect_op(s[1].rcq, 3, IBV_WC_RECV);
	close_pair(s);
}

/* ---- address handles ---- */

static void bad_handles(UNUSED void **state)
{
	static const struct {
		bool roce;
		uint8_t port, global, sgid;
	} rows[] = { { false, 0, 1, 0 }, { false, 2, 1, 0 }, { true, 1, 0, 0 }, { true, 1, 1, 9 /* an empty entry */ }, { true, 1, 1, 255 } };
	struct ibv_ah_attr a;
	struct ibv_pd *p = ibv_alloc_pd(ctx);
	struct ibv_ah *ah;

	for (unsigned i = 0; i < ARRAY(rows); i++) {
		a = to_self(0);
		a.port_num = rows[i].port;
		a.is_global = rows[i].global;
		a.grh.sgid_index = rows[i].sgid;
		assert_true((rows[i].roce && !is_roce()) || !ibv_create_ah(p, &a));
	}
	/* The kernel's, and with it the domain, is in use as long as there is a handle */
	a = to_self(0);
	ah = ibv_create_ah(p, &a);
	assert_non_null(ah);
	assert_true(!is_roce() || ibv_dealloc_pd(p) == EBUSY);
	must(ibv_destroy_ah(ah));
	must(ibv_dealloc_pd(p));
}

/* ---- groups ---- */

static union ibv_gid group(uint8_t n)
{
	union ibv_gid g;

	memset(&g, 0, sizeof(g));
	g.raw[0] = 0xff;
	g.raw[1] = 0x12;
	g.raw[2] = 0x40;
	g.raw[3] = 0x1b;
	g.raw[4] = 0xff;
	g.raw[5] = 0xff;
	g.raw[15] = n;
	return g;
}

static struct ibv_ah *group_ah(uint8_t n)
{
	struct ibv_ah_attr a = to_self(0);

	a.grh.dgid = group(n);
	a.dlid = GROUP_LID + n;
	return ah_of(a);
}

/* A message to a group reaches each member once, the sender if it is one, and no other QP */
static void groups(UNUSED void **state)
{
	union ibv_gid g[2] = { group(1), group(2) };
	struct ibv_ah *ah[2] = { group_ah(1), group_ah(2) };
	struct how how = *how_ud();
	struct side s[5];

	for (unsigned i = 0; i < ARRAY(s); i++) {
		open_side(&s[i], &how);
		bring_up(s[i].qp, 0, &how);
	}
	/* Group 0: the sender s[0], s[1], s[2]; group 1: s[2], s[3]; s[4] in none */
	for (int i = 0; i < 3; i++)
		must(ibv_attach_mcast(s[i].qp, &g[0], GROUP_LID + 1));
	for (int i = 2; i < 4; i++)
		must(ibv_attach_mcast(s[i].qp, &g[1], GROUP_LID + 2));
	must(ibv_attach_mcast(s[1].qp, &g[0], GROUP_LID + 1)); /* again: nothing changes */
	for (int round = 0; round < 3; round++)
		for (int to = 0; to < 2; to++) {
			fill(s[0].buf, 300, round * 2 + to);
			for (unsigned i = 0; i < ARRAY(s); i++) {
				memset(s[i].buf + 4096, 0xaa, 1024);
				if (round + to == 0)
					for (int j = 0; j < 2; j++)
						recv_at(&s[i], 50, 4096, 512); /* one is left over */
			}
			sg = sge(&s[0], 0, 300);
			wr = datagram(IBV_WR_SEND_WITH_IMM, 1, &sg, 1, ah[to], 0xffffff);
			wr.imm_data = htobe32(round);
			post_done(&s[0], &wr);
			for (unsigned i = 0; i < ARRAY(s); i++) {
				if (to ? i == 2 || i == 3 : i <= 2) {
					wc = expect_op(s[i].rcq, 50, IBV_WC_RECV);
					assert_int_equal(wc.byte_len, GRH_BYTES + 300);
					assert_int_equal(wc.src_qp, s[0].qp->qp_num);
					assert_int_equal(be32toh(wc.imm_data), round);
					assert_true(wc.wc_flags & IBV_WC_GRH);
					assert_memory_equal(s[i].buf + 4096 + GRH_BYTES, s[0].buf, 300);
					if (!is_roce())
						assert_memory_equal(s[i].buf + 4096 + 24, &g[to], 16);
					recv_at(&s[i], 50, 4096, 512);
				} else {
					assert_int_equal(ibv_poll_cq(s[i].rcq, 1, &wc), 0);
				}
			}
		}
	for (unsigned i = 0; i < ARRAY(s); i++)
		expect_nothing(s[i].rcq);
	/* The key counts here too */
	wr.wr.ud.remote_qkey = QKEY ^ 1;
	post_done(&s[0], &wr);
	for (unsigned i = 0; i < ARRAY(s); i++)
		expect_nothing(s[i].rcq);
	/* A QP that left gets nothing more; a QP in a group cannot be destroyed */
	assert_int_equal(ibv_destroy_qp(s[1].qp), EBUSY);
	must(ibv_detach_mcast(s[1].qp, &g[0], GROUP_LID + 1));
	assert_int_not_equal(ibv_detach_mcast(s[1].qp, &g[0], GROUP_LID + 1), 0);
	wr = datagram(IBV_WR_SEND, 1, &sg, 1, ah[0], 0xffffff);
	post_done(&s[0], &wr);
	expect_op(s[0].rcq, 50, IBV_WC_RECV);
	expect_op(s[2].rcq, 50, IBV_WC_RECV);
	expect_nothing(s[1].rcq);
	for (int i = 0; i < 3; i += 2)
		must(ibv_detach_mcast(s[i].qp, &g[0], GROUP_LID + 1));
	for (int i = 2; i < 4; i++)
		must(ibv_detach_mcast(s[i].qp, &g[1], GROUP_LID + 2));
	for (unsigned i = 0; i < ARRAY(s); i++)
		close_side(&s[i]);
	must(ibv_destroy_ah(ah[0]));
	must(ibv_destroy_ah(ah[1]));
}

static void bad_groups(UNUSED void **state)
{
	union ibv_gid g = group(3), unicast = gid;
	struct side s, rc;

	open_side(&s, how_ud());
	open_side(&rc, &usual);
	bring_up(s.qp, 0, how_ud());
	bring_up(rc.qp, rc.qp->qp_num, &usual);
	assert_int_equal(ibv_attach_mcast(rc.qp, &g, GROUP_LID), EINVAL);
	assert_int_equal(ibv_attach_mcast(s.qp, &unicast, GROUP_LID), EINVAL);
	/* A group's LID means something on InfiniBand only */
	assert_int_equal(ibv_attach_mcast(s.qp, &g, 0xbfff), is_roce() ? 0 : EINVAL);
	assert_int_equal(ibv_attach_mcast(s.qp, &g, 0xffff), is_roce() ? 0 : EINVAL);
	if (is_roce()) {
		must(ibv_detach_mcast(s.qp, &g, 0xbfff));
		must(ibv_detach_mcast(s.qp, &g, 0xffff));
	}
	assert_int_not_equal(ibv_detach_mcast(s.qp, &g, GROUP_LID), 0);
	close_side(&s);
	close_side(&rc);
}

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(headers), TEST(strange_header), TEST(controlled_key), TEST(bad_handles), TEST(groups),
					    TEST(bad_groups) };

	return cmocka_run_group_tests(tests, setup_ud, teardown_ud) + again_with("SOFTDEV_LINK", "ib");
}
