/* SPDX-License-Identifier: BSD-3-Clause */
/* ud.c: datagrams on RoCE and on InfiniBand: headers by every address, keys, address handles, groups. traffic.c has the rest. */
#include "rig.h"
#include <netinet/in.h>

#define GROUP_LID 0xc001

/* The way to this very port by its GID at index, or on InfiniBand without one (index -1) */
static struct ibv_ah_attr to_self(int index)
{
	struct ibv_ah_attr a = { .port_num = 1, .dlid = port.lid, .sl = is_roce() ? 0 : 3 };

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

/* From one side to a QP, and it is sent */
static void send_to(struct side *from, size_t off, uint32_t len, struct ibv_ah *by, uint32_t qpn, uint32_t qkey)
{
	sg = sge(from, off, len);
	wr = (struct ibv_send_wr){ .wr_id = 6, .sg_list = &sg, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM,
				   .send_flags = IBV_SEND_SIGNALED, .imm_data = htobe32(len) };
	address(&wr, by, qpn);
	wr.wr.ud.remote_qkey = qkey;
	post_done(from, &wr);
}

/* It comes in at an offset, header and all */
static struct ibv_wc comes(struct side *to, uint64_t id, size_t off, const uint8_t *from, uint32_t len, uint32_t qpn)
{
	struct ibv_wc wc = expect_op(to->rcq, id, IBV_WC_RECV);

	assert_int_equal(wc.byte_len, GRH_BYTES + len);
	assert_int_equal(wc.src_qp, qpn);
	assert_int_equal(be32toh(wc.imm_data), len);
	assert_memory_equal(to->buf + off + GRH_BYTES, from, len);
	return wc;
}

/* ---- headers ---- */

static uint16_t sum16(const uint8_t *p, unsigned n)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < n; i += 2)
		sum += p[i] << 8 | p[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

static void headers_of(const uint8_t *h, int index, uint32_t len)
{
	/* What follows on the wire: base and datagram headers, the immediate, the data padded to words, the invariant CRC */
	const unsigned behind = 12 + 8 + 4 + ((len + 3) & ~3u) + 4;
	struct ibv_gid_entry e;
	bool v2;

	must(ibv_query_gid_ex(ctx, 1, index, &e, 0));
	v2 = e.gid_type == IBV_GID_TYPE_ROCE_V2;
	if (v2 && !e.gid.global.subnet_prefix) {
		/* IPv4: in the last 20 bytes, those before it say nothing */
		assert_true(h[20] == 0x45 && h[21] == 0x48 && h[28] == 33 && h[29] == IPPROTO_UDP);
		assert_int_equal(h[22] << 8 | h[23], 20 + 8 + behind);
		assert_int_equal(sum16(h + 20, 20), 0xffff);
		assert_memory_equal(h + 32, e.gid.raw + 12, 4);
		assert_memory_equal(h + 36, e.gid.raw + 12, 4);
		return;
	}
	/* IPv6's header is the same as the GRH */
	assert_int_equal(h[0] >> 4, 6);
	assert_int_equal((h[0] << 4 | h[1] >> 4) & 0xff, 0x48);
	assert_true(v2 || ((h[1] & 15) << 16 | h[2] << 8 | h[3]) == 0x54321);
	assert_int_equal(h[6], v2 ? IPPROTO_UDP : 0x1b);
	assert_int_equal(h[4] << 8 | h[5], v2 ? 8 + behind : behind);
	assert_int_equal(h[7], 33);
	assert_memory_equal(h + 8, &e.gid, 16);
	assert_memory_equal(h + 24, &e.gid, 16);
}

/* By each GID there is, and on InfiniBand without one; queue/queue.c answers */
TEST(headers)
{
	static const uint32_t sizes[] = { 0, 1, 3, 4, 1023, 4096 };
	const struct how how = how_of_type(IBV_QPT_UD);
	union ibv_gid g;
	unsigned ways = 0;

	open_pair(s, &how);
	for (int index = is_roce() ? 0 : -1; index < port.gid_tbl_len; index++) {
		if (index >= 0 && (ibv_query_gid(ctx, 1, index, &g) || !g.global.interface_id))
			continue;
		ways++;
		for (unsigned i = 0; i < ARRAY(sizes); i++) {
			struct ibv_ah_attr attr = to_self(index);
			struct ibv_ah *there = ibv_create_ah(pd, &attr);

			fill(s[0].buf, HALF, sizes[i]);
			recv_at(&s[1], 5, 64, GRH_BYTES + sizes[i]);
			send_to(&s[0], 0, sizes[i], there, s[1].qp->qp_num, QKEY);
			wc = comes(&s[1], 5, 64, s[0].buf, sizes[i], s[0].qp->qp_num);
			assert_true(is_roce() || (wc.slid == port.lid && wc.sl == 3));
			assert_int_equal(!!(wc.wc_flags & IBV_WC_GRH), index >= 0);
			if (index >= 0)
				headers_of(s[1].buf + 64, index, sizes[i]);
			must(ibv_destroy_ah(there));
		}
	}
	assert_int_equal(ways, is_roce() ? 4 : 2);
	close_pair(s);
}

/* A key whose top bit is set means the sender's own; the receiver's may change in RTS */
TEST(controlled_key)
{
	const struct how how = how_of_type(IBV_QPT_UD);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS, .qkey = 0x55 };

	open_pair(s, &how);
	recv_at(&s[1], 1, 0, 100);
	send_to(&s[0], 200, 16, ah, s[1].qp->qp_num, 0x80000000);
	comes(&s[1], 1, 0, s[0].buf + 200, 16, s[0].qp->qp_num);
	must(ibv_modify_qp(s[1].qp, &a, IBV_QP_STATE | IBV_QP_QKEY));
	recv_at(&s[1], 3, 0, 100);
	send_to(&s[0], 200, 16, ah, s[1].qp->qp_num, 0x80000000);
	expect_nothing(s[1].rcq);
	send_to(&s[0], 200, 16, ah, s[1].qp->qp_num, 0x55);
	comes(&s[1], 3, 0, s[0].buf + 200, 16, s[0].qp->qp_num);
	close_pair(s);
}

/* ---- address handles ---- */

TEST(bad_handles)
{
	struct ibv_pd *p = ibv_alloc_pd(ctx);
	struct ibv_ah_attr a;
	struct ibv_ah *good;

	/* The kernel's, and with it the domain, is in use as long as there is a handle */
	a = to_self(0);
	good = made(ibv_create_ah(p, &a));
	assert_true(!is_roce() || ibv_dealloc_pd(p) == EBUSY);
	must(ibv_destroy_ah(good) || ibv_dealloc_pd(p));
}

/* ---- groups ---- */

static union ibv_gid group(uint8_t n)
{
	return (union ibv_gid){ .raw = { 0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, [15] = n } };
}

/* A message to a group reaches each member once, the sender if it is one and wants that, and no other QP */
static void messages_to_groups(uint32_t create)
{
	/* Bits 0 and 1: in the group. Then those who leave the first one are in none, and may be destroyed */
	static const unsigned members[5] = { 1, 1, 3, 2, 0 };
	union ibv_gid g[2] = { group(1), group(2) };
	struct how how = how_of_type(IBV_QPT_UD);
	unsigned rights[5];
	struct ibv_ah *by[2];
	struct side s[5];

	memcpy(rights, members, sizeof(rights));
	for (unsigned i = 0; i < 2; i++) {
		struct ibv_ah_attr a = to_self(0);

		a.grh.dgid = g[i];
		a.dlid = GROUP_LID + i;
		by[i] = made(ibv_create_ah(pd, &a));
	}
	for (unsigned i = 0; i < ARRAY(s); i++) {
		how.create = i ? 0 : create;
		open_self(&s[i], &how);
		for (unsigned k = 0; k < 4; k++) /* again: nothing changes */
			if (members[i] & 1u << k % 2)
				must(ibv_attach_mcast(s[i].qp, &g[k % 2], GROUP_LID + k % 2));
		for (unsigned k = 0; k < 2; k++) /* one is left over */
			recv_at(&s[i], 50, 4096, 512);
	}
	for (unsigned round = 0; round < 6; round++) {
		const unsigned to = round % 2;
		const bool wrong_key = round == 3;

		if (round == 4) {
			assert_int_equal(ibv_destroy_qp(s[1].qp), EBUSY);
			must(ibv_detach_mcast(s[1].qp, &g[0], GROUP_LID));
			assert_int_not_equal(ibv_detach_mcast(s[1].qp, &g[0], GROUP_LID), 0);
			rights[1] = 0;
		}
		fill(s[0].buf, 300, round);
		send_to(&s[0], 0, 300, by[to], 0xffffff, wrong_key ? QKEY ^ 1 : QKEY);
		for (unsigned i = 0; i < ARRAY(s); i++) {
			if (rights[i] & 1u << to && !wrong_key && (i || !create)) {
				wc = comes(&s[i], 50, 4096, s[0].buf, 300, s[0].qp->qp_num);
				assert_true(wc.wc_flags & IBV_WC_GRH);
				assert_true(is_roce() || !memcmp(s[i].buf + 4096 + 24, &g[to], 16));
				recv_at(&s[i], 50, 4096, 512);
			}
			expect_nothing(s[i].rcq);
		}
	}
	for (unsigned i = 0; i < ARRAY(s); i++) {
		for (unsigned k = 0; k < 2; k++)
			if (rights[i] & 1u << k)
				must(ibv_detach_mcast(s[i].qp, &g[k], GROUP_LID + k));
		close_side(&s[i]);
	}
	must(ibv_destroy_ah(by[0]) || ibv_destroy_ah(by[1]));
}

TEST(groups)
{
	messages_to_groups(0);
	messages_to_groups(IBV_QP_CREATE_BLOCK_SELF_MCAST_LB);
}

TEST(bad_groups)
{
	const struct how how = how_of_type(IBV_QPT_UD);
	union ibv_gid g = group(3), unicast = gid;
	struct side ud, rc;

	open_self(&ud, &how);
	open_self(&rc, &usual);
	assert_int_equal(ibv_attach_mcast(rc.qp, &g, GROUP_LID), EINVAL);
	assert_int_equal(ibv_attach_mcast(ud.qp, &unicast, GROUP_LID), EINVAL);
	for (unsigned lid = 0xbfff; lid <= 0xffff; lid += 0x4000) { /* it means something on InfiniBand only */
		assert_int_equal(ibv_attach_mcast(ud.qp, &g, lid), is_roce() ? 0 : EINVAL);
		assert_int_equal(!ibv_detach_mcast(ud.qp, &g, lid), is_roce());
	}
	close_side(&ud);
	close_side(&rc);
}

int main(void)
{
	return run_all(setup_ah, teardown_ah) + again_with("SOFTDEV_LINK", "ib");
}
