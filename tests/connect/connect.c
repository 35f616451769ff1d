/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * connect.c: the record that two sides exchange (of any bytes: tests/fuzz/parse.c); what a queue pair is after
 * each step, as the device tells it; traffic over what was connected; refusals, which leave things
 * as they were.
 */
#include "common.h"
#include "next.h"

/* ---- between connect.h and libibverbs: what is called, and what it answers ---- */

static struct {
	struct ibv_gid_entry table[8]; /* in place of the device's GIDs, if there are any */
	unsigned gids;
	struct ibv_ece has, set;       /* has.vendor_id: the device supports ECE */
	uint32_t mask;                 /* what it takes of an offer */
	int set_ece, set_ece_err;      /* calls; what they return */
	enum ibv_qp_state set_at;      /* the queue pair's state then */
	enum ibv_qp_state fail;        /* ibv_modify_qp to this one fails, with EIO */
	enum ibv_port_state port;      /* in place of the port's, if not 0 */
	uint32_t port_flags;
	enum ibv_mtu mtu;              /* of the port, if not 0 */
} fake;

int _ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
		      uint32_t flags, size_t size)
{
	if (fake.gids) {
		if (index >= fake.gids || !fake.table[index].port_num)
			return ENODATA;
		*entry = fake.table[index];
		return 0;
	}
	return NEXT(_ibv_query_gid_ex)(ctx, port, index, entry, flags, size);
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (fake.has.vendor_id) {
		*ece = fake.has;
		if (qp->state == IBV_QPS_RTS)
			ece->options = fake.set.options & fake.mask;
		return 0;
	}
	return NEXT(ibv_query_ece)(qp, ece);
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	fake.set_ece++;
	fake.set = *ece;
	fake.set_at = qp->state;
	return fake.set_ece_err;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	if (fake.fail && attr->qp_state == fake.fail)
		return EIO;
	return NEXT(ibv_modify_qp)(qp, attr, mask);
}

static int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *, size_t);

static int fake_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	int err = query_port(ctx, port, attr, size);

	if (fake.port)
		attr->state = fake.port;
	if (fake.mtu)
		attr->active_mtu = fake.mtu;
	attr->flags |= (uint8_t)fake.port_flags;
	return err;
}

static int on_roce(void)
{
	return dev.port.link_layer == IBV_LINK_LAYER_ETHERNET;
}

/* ---- the record ---- */

static struct inlay_connect_record random_record(void)
{
	static const uint8_t types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	struct inlay_connect_record r = {};

	r.type = types[rnd_below(3)];
	r.link = (uint8_t)rnd_below(3);
	r.mtu = (uint8_t)(1 + rnd_below(5));
	r.sl = (uint8_t)rnd_below(r.link ? 8 : 16);
	r.traffic_class = (uint8_t)rnd();
	r.rd_atomic = r.type == IBV_QPT_RC ? (uint8_t)rnd() : 0;
	r.qpn = 1 + rnd_below(0xffffff);
	r.psn = rnd_below(1 << 24);
	fill(r.gid, sizeof(r.gid), (uint32_t)rnd());
	r.gid[0] = 0x20;
	if (r.link == INLAY_CONNECT_IB) {
		r.lid = (uint16_t)(1 + rnd_below(0xbfff));
		r.flags = rnd_below(2) ? INLAY_CONNECT_GLOBAL : 0;
	} else {
		fill(r.mac, sizeof(r.mac), (uint32_t)rnd());
		r.mac[0] &= 0xfe;
	}
	if (r.type == IBV_QPT_UD) {
		r.qkey = (uint32_t)rnd();
	} else {
		r.ece_vendor = rnd_below(1 << 24);
		r.ece_options = (uint32_t)rnd();
	}
	return r;
}

/* A record is what it was after its way over the wire, and its bytes are those that the header's table names */
TEST(round_trip)
{
	for (int i = 0; i < 500; i++) {
		struct inlay_connect_record in = random_record(), out;
		uint8_t blob[INLAY_CONNECT_SIZE + 1], want[INLAY_CONNECT_SIZE] = {1};
		uint32_t last = in.type == IBV_QPT_UD ? in.qkey : in.ece_options;

		blob[INLAY_CONNECT_SIZE] = 0x5a;
		inlay_connect_pack(&in, blob);
		assert_int_equal(blob[INLAY_CONNECT_SIZE], 0x5a);
		must(inlay_connect_unpack(&out, blob, INLAY_CONNECT_SIZE, NULL));
		assert_memory_equal(&in, &out, sizeof(in));

		want[1] = (uint8_t)(in.type | in.link << 4 | (in.flags ? 0x40 : 0));
		want[2] = (uint8_t)(in.mtu | in.sl << 4);
		want[3] = in.traffic_class;
		want[4] = in.rd_atomic;
		for (int k = 0; k < 3; k++) {
			want[5 + k] = (uint8_t)(in.qpn >> 8 * k);
			want[8 + k] = (uint8_t)(in.psn >> 8 * k);
			want[33 + k] = (uint8_t)(in.ece_vendor >> 8 * k);
		}
		memcpy(want + 11, in.gid, 16);
		if (in.link)
			memcpy(want + 27, in.mac, 6);
		want[27] |= (uint8_t)in.lid;
		want[28] |= (uint8_t)(in.lid >> 8);
		for (int k = 0; k < 4; k++)
			want[36 + k] = (uint8_t)(last >> 8 * k);
		assert_memory_equal(blob, want, sizeof(want));
		/* A bit is wrong: refused, or another record; no two messages mean the same */
		for (int bit = i % 8; bit < 8 * INLAY_CONNECT_SIZE; bit += 8) {
			blob[bit / 8] ^= (uint8_t)(1 << bit % 8);
			memcpy(want, blob, sizeof(want));
			if (!inlay_connect_unpack(&out, blob, INLAY_CONNECT_SIZE, NULL))
				inlay_connect_pack(&out, want);
			assert_memory_equal(blob, want, sizeof(want));
			assert_true(bit >= 8 || inlay_connect_unpack(&out, blob, INLAY_CONNECT_SIZE, NULL));
			blob[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
	}
}

/* Each way in which bytes are no record has its sentence */
TEST(told_why)
{
	static const struct {
		int at;
		uint8_t value, roce;
		const char *say;
	} cases[] = {
		{0, 0, 1, "version 1"},
		{0, 2, 1, "version 1"},
		{1, IBV_QPT_RAW_PACKET | 2 << 4, 1, "neither RC nor UC nor UD"},
		{1, 0x20, 1, "neither RC"},
		{1, IBV_QPT_RC | 3 << 4, 1, "neither InfiniBand nor RoCE"},
		{1, 0x80 | IBV_QPT_RC | 2 << 4, 1, "neither InfiniBand"},
		{1, 0x40 | IBV_QPT_RC | 2 << 4, 1, "neither InfiniBand"},
		{2, 0, 1, "MTU"},
		{2, 6, 1, "MTU"},
		{2, 15, 0, "MTU"},
		{2, 0x83, 1, "sl above 7"},
		{5, 0, 1, "queue pair 0"},
		{11, 0xff, 1, "GID or MAC"},
		{27, 1, 1, "GID or MAC"},
		{28, 0xc0, 0, "LID"},
		{27, 0, 0, "no address"},
		{1, 0x40 | IBV_QPT_RC, 0, "no address"}, /* a GRH, and no GID */
		{29, 1, 0, "LID"}, {30, 1, 0, "LID"}, {31, 1, 0, "LID"}, {32, 1, 0, "LID"},
		{1, IBV_QPT_UC | 2 << 4, 1, "cannot have"},
	};
	struct inlay_connect_record r, roce, ib, out;
	uint8_t blob[INLAY_CONNECT_SIZE];

	memset(&r, 0, sizeof(r));
	r.type = IBV_QPT_RC;
	r.mtu = IBV_MTU_1024;
	r.qpn = 5;
	r.rd_atomic = 16;
	ib = roce = r;
	ib.lid = 9;
	roce.link = INLAY_CONNECT_ROCE_V2;
	roce.gid[0] = 0x20;
	for (size_t i = 0; i < ARRAY(cases); i++) {
		const char *why = NULL;

		inlay_connect_pack(cases[i].roce ? &roce : &ib, blob);
		must(inlay_connect_unpack(&out, blob, sizeof(blob), &why));
		blob[cases[i].at] = cases[i].value;
		assert_int_equal(inlay_connect_unpack(&out, blob, sizeof(blob), &why), -EPROTO);
		if (!strstr(why, cases[i].say))
			fail_msg("case %zu: %s", i, why);
	}
	/* Every length but one, and nothing is changed */
	memset(&r, 0xa5, sizeof(r));
	out = r;
	for (size_t len = 0; len < 2 * sizeof(blob); len++)
		if (len != sizeof(blob))
			assert_int_equal(inlay_connect_unpack(&out, blob, len, NULL), -EPROTO);
	assert_memory_equal(&out, &r, sizeof(r));
	/* A datagram's record has no ECE; a GID is one host's: not nothing, not a group of IPv4, not of its net 0 */
	for (int i = 0; i < 4; i++) {
		static const uint8_t gids[][16] = {
			{0}, {0}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 224, 0, 0, 1}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 1},
		};

		r = roce;
		r.type = i ? IBV_QPT_RC : IBV_QPT_UD;
		r.rd_atomic = i ? 16 : 0;
		if (i)
			memcpy(r.gid, gids[i], 16);
		inlay_connect_pack(&r, blob);
		blob[33] = !i;
		assert_int_equal(inlay_connect_unpack(&out, blob, sizeof(blob), NULL), -EPROTO);
	}
}

/* ---- the GID ---- */

static struct ibv_gid_entry gid(const char *text, uint32_t type)
{
	struct ibv_gid_entry e = {};
	unsigned at[8];

	assert_int_equal(
		sscanf(text, "%x:%x:%x:%x:%x:%x:%x:%x", at, at + 1, at + 2, at + 3, at + 4, at + 5, at + 6, at + 7), 8);
	for (int i = 0; i < 8; i++) {
		e.gid.raw[2 * i] = (uint8_t)(at[i] >> 8);
		e.gid.raw[2 * i + 1] = (uint8_t)at[i];
	}
	e.gid_type = type;
	e.port_num = 1;
	return e;
}

/* Of every set of GIDs in every order, the best: each is listed after what it is better than */
TEST(choice)
{
	struct ibv_gid_entry all[6];
	struct inlay_connect_record r;
	const char *why;

	if (!on_roce()) {
		print_message("# skipped: InfiniBand uses the first GID\n");
		skip();
	}
	all[0] = gid("0:0:0:0:0:0:0:0", IBV_GID_TYPE_ROCE_V2);
	all[1] = gid("ff02:0:0:0:0:0:0:1", IBV_GID_TYPE_ROCE_V2);
	all[2] = gid("0:0:0:0:0:ffff:0a00:0001", IBV_GID_TYPE_ROCE_V1);
	all[3] = gid("fe80:0:0:0:1:2:3:4", IBV_GID_TYPE_ROCE_V2);
	all[4] = gid("fe12:db8:0:0:0:0:0:1", IBV_GID_TYPE_ROCE_V2); /* not of the link alone */
	all[5] = gid("0:0:0:0:0:ffff:0a00:0001", IBV_GID_TYPE_ROCE_V2);
	for (int i = 0; i < 300; i++) {
		int best = 1, want = -1;

		memset(&fake, 0, sizeof(fake));
		fake.gids = ARRAY(fake.table);
		for (uint32_t k = 0; k < fake.gids; k++) {
			int which = (int)rnd_below(ARRAY(all) + 4) - 4;

			if (which < 0)
				continue; /* an index without a GID */
			fake.table[k] = all[which];
			fake.table[k].gid_index = k;
			if (which > best) {
				best = which;
				want = (int)k;
			}
		}
		memset(&r, 0, sizeof(r));
		why = NULL;
		if (want < 0) {
			assert_int_equal(inlay_connect_port(&r, dev.ctx, 1, -1, &why), -ENOENT);
			assert_non_null(strstr(why, "no address"));
			continue;
		}
		must(inlay_connect_port(&r, dev.ctx, 1, -1, &why));
		assert_int_equal(r.gid_index, want);
		assert_memory_equal(r.gid, all[best].gid.raw, 16);
		assert_int_equal(r.link, best == 2 ? INLAY_CONNECT_ROCE_V1 : INLAY_CONNECT_ROCE_V2);
		/* A caller that names one gets that one, or a refusal */
		for (int k = 0; k < (int)fake.gids; k++)
			if (fake.table[k].port_num) {
				must(inlay_connect_port(&r, dev.ctx, 1, k, &why));
				assert_memory_equal(r.gid, fake.table[k].gid.raw, 16);
				assert_int_equal(r.gid_index, k);
			} else {
				assert_int_equal(inlay_connect_port(&r, dev.ctx, 1, k, &why), -ENOENT);
			}
	}
	memset(&fake, 0, sizeof(fake));
	assert_int_equal(inlay_connect_port(&r, dev.ctx, 1, 300, &why), -ENOENT);
}

/* ---- queue pairs ---- */

static struct opt kind(enum ibv_qp_type type)
{
	struct opt opt = usual;

	opt.type = type;
	opt.bytes = 1 << 16;
	return opt;
}

static struct ibv_qp_attr asked(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a = {};

	must(ibv_query_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU, &init));
	assert_int_equal(a.qp_state, qp->state);
	return a;
}

static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};

/* Of an attribute: what a caller chooses, and where the device says it of queue pairs of these types, on paths with a GRH */
enum { RC = 1, UC = 2, GRH = 4 };
static const struct {
	const char *name;
	size_t at, bytes, there, wide;
	uint32_t chosen, of;
} chosen[] = {
#define CHOSEN(field, value, theirs, of)                                                                                                 \
	{#field, offsetof(struct inlay_connect_attr, field), sizeof(((struct inlay_connect_attr *)0)->field),                            \
	 offsetof(struct ibv_qp_attr, theirs), sizeof(((struct ibv_qp_attr *)0)->theirs), value, of}
	CHOSEN(sl, 3, ah_attr.sl, RC | UC), CHOSEN(port, 1, ah_attr.port_num, RC | UC), CHOSEN(hop_limit, 9, ah_attr.grh.hop_limit, GRH),
	CHOSEN(traffic_class, 106, ah_attr.grh.traffic_class, GRH), CHOSEN(flow_label, 0x12345, ah_attr.grh.flow_label, GRH),
	CHOSEN(rd_atomic, 5, max_dest_rd_atomic, RC), CHOSEN(timeout, 11, timeout, RC), CHOSEN(retry_count, 6, retry_cnt, RC),
	CHOSEN(rnr_retry, 5, rnr_retry, RC), CHOSEN(min_rnr_timer, 7, min_rnr_timer, RC),
};

/* Defaults and what was chosen, as the device says that it has them; a peer that asks for less, and says nothing of classes */
TEST(attributes)
{
	for (size_t t = 0; t < 2 * ARRAY(types); t++) {
		struct inlay_connect_attr attr = inlay_connect_defaults(), *pass = t & 1 ? &attr : NULL;
		const enum ibv_qp_type type = types[t / 2];
		const int rc = type == IBV_QPT_RC, ud = type == IBV_QPT_UD, global = on_roce() || t & 1;
		struct inlay_connect_record here, there;
		struct opt opt = kind(type);
		uint8_t blob[INLAY_CONNECT_SIZE];
		struct ibv_qp_attr a;
		const char *why = NULL;
		struct end e;

		if (pass) {
			for (size_t i = 0; i < ARRAY(chosen); i++)
				memcpy((uint8_t *)&attr + chosen[i].at, &chosen[i].chosen, chosen[i].bytes);
			attr.gid_index = on_roce() ? 1 : 0;
			attr.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
			attr.qkey = 0x76543210;
			attr.mtu = IBV_MTU_512;
			attr.flags = INLAY_CONNECT_GLOBAL;
		}
		end_make(&e, &opt);
		must(inlay_connect_local(&here, e.qp, pass, &why));
		a = asked(e.qp);
		assert_true(a.qp_state == IBV_QPS_INIT && a.port_num == 1 && a.pkey_index == 0);
		if (ud)
			assert_int_equal(a.qkey, attr.qkey);
		else
			assert_int_equal(a.qp_access_flags & ALL_ACCESS & ~IBV_ACCESS_LOCAL_WRITE,
					 rc ? attr.access : attr.access & IBV_ACCESS_REMOTE_WRITE);
		assert_true(here.type == type && here.qpn == e.qp->qp_num);
		assert_int_equal(here.rd_atomic, rc ? attr.rd_atomic : 0);
		assert_int_equal(here.mtu, pass ? IBV_MTU_512 : dev.port.active_mtu);
		assert_int_equal(here.lid, on_roce() ? 0 : dev.port.lid);
		assert_int_equal(here.link, on_roce() ? INLAY_CONNECT_ROCE_V2 : INLAY_CONNECT_IB);
		if (softdev_present())
			assert_int_equal(here.gid_index, !on_roce() ? 0 : pass ? 1 : 3);

		inlay_connect_pack(&here, blob);
		must(inlay_connect_unpack(&there, blob, sizeof(blob), &why));
		there.qpn = 0xabcdef;
		there.psn = 0x123456;
		there.mtu = IBV_MTU_256;
		there.rd_atomic = rc ? 3 : 0;
		there.sl = there.traffic_class = 0;
		must(inlay_connect_rts(e.qp, &here, ud ? NULL : &there, pass, &why));
		a = asked(e.qp);
		assert_true(a.qp_state == IBV_QPS_RTS && a.sq_psn == here.psn && !why);
		for (size_t i = 0; i < ARRAY(chosen) && !ud; i++) {
			uint32_t has = 0, want = 0;

			memcpy(&has, (uint8_t *)&a + chosen[i].there, chosen[i].wide);
			memcpy(&want, (uint8_t *)&attr + chosen[i].at, chosen[i].bytes);
			if (chosen[i].of & ((rc ? RC : UC) | (global ? GRH : 0)) && has != want)
				fail_msg("type %d: %s is %u, not %u", type, chosen[i].name, has, want);
		}
		if (!ud) {
			assert_true(a.path_mtu == IBV_MTU_256 && a.dest_qp_num == 0xabcdef && a.rq_psn == 0x123456);
			assert_int_equal(a.ah_attr.is_global, global);
			assert_int_equal(a.ah_attr.dlid, on_roce() ? a.ah_attr.dlid : dev.port.lid);
			assert_true(!global || (!memcmp(a.ah_attr.grh.dgid.raw, here.gid, 16) && a.ah_attr.grh.sgid_index == here.gid_index));
			assert_true(!rc || a.max_rd_atomic == 3);
		}
		end_free(&e);
	}
}

/* A side that leaves the classes open takes its peer's; one that does not keeps its own */
TEST(classes)
{
	struct inlay_connect_record here = random_record(), there;
	struct inlay_connect_attr attr = inlay_connect_defaults();
	struct ibv_ah_attr ah;

	/* As the header promises them */
	assert_true(attr.gid_index == -1 && attr.qkey == 0x11111111 && attr.port == 1 && attr.hop_limit == 64 && attr.rd_atomic == 16);
	assert_int_equal(attr.access, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	assert_true(attr.timeout == 14 && attr.retry_count == 7 && attr.rnr_retry == 7 && attr.min_rnr_timer == 12);
	while (here.link != INLAY_CONNECT_ROCE_V2)
		here = random_record();
	there = here;
	for (int i = 0; i < 4; i++) {
		here.sl = i & 1 ? 2 : 0;
		here.traffic_class = i & 1 ? 96 : 0;
		there.sl = i & 2 ? 5 : 0;
		there.traffic_class = i & 2 ? 104 : 0;
		must(inlay_connect_path_(&ah, &here, &there, &attr, NULL));
		assert_int_equal(ah.sl, i & 1 ? 2 : i & 2 ? 5 : 0);
		assert_int_equal(ah.grh.traffic_class, i & 1 ? 96 : i & 2 ? 104 : 0);
	}
}

static void receive(struct end *e, size_t offset, size_t len)
{
	struct ibv_sge sge = sge_of(e, offset, len);

	must(inlay_post_recv(&e->rq, &sge, 1));
	inlay_rq_ring(&e->rq);
}

static void arrived(struct end *e, uint32_t bytes)
{
	const struct mlx5_cqe64 *cqe = cqe_wait(&e->rxcq);

	assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_RESP_SEND);
	assert_int_equal(inlay_cqe_byte_count(cqe), bytes);
	inlay_cq_advance(&e->rxcq, 1);
}

static void message(struct end *from, struct end *to, uint32_t seed)
{
	struct ibv_sge sge = sge_of(from, 0, 3000);

	fill(from->buf, 3000, seed);
	must(inlay_post_send(&from->sq, &sge, 1, INLAY_SIGNALED));
	inlay_sq_ring(&from->sq);
	sent(from);
	arrived(to, 3000);
	assert_int_equal(differs(to->buf + 4096, 3000, seed), 3000);
}

/* The addresses of datagrams that cannot be; those that can: queue/to.c */
TEST(no_address)
{
	struct inlay_connect_record here = {}, there;
	const char *why = NULL;
	struct inlay_av av;

	must(inlay_connect_port(&here, dev.ctx, 1, -1, NULL));
	here.type = IBV_QPT_UD;
	there = here;
	there.qpn = 5;
	must(inlay_connect_av(&av, dev.pd, &here, &there, NULL, &why));
	assert_null(why);
	there.type = IBV_QPT_RC;
	assert_int_equal(inlay_connect_av(&av, dev.pd, &here, &there, NULL, &why), -ENOTSUP);
	assert_non_null(strstr(why, "UD"));
	there.type = IBV_QPT_UD;
	there.link = on_roce() ? INLAY_CONNECT_IB : INLAY_CONNECT_ROCE_V2;
	assert_int_equal(inlay_connect_av(&av, dev.pd, &here, &there, NULL, &why), -ENOTSUP);
	there.link = here.link;
	there.gid[15] ^= 0x55; /* nobody's, where the software device can tell */
	assert_true(!on_roce() || !softdev_present() || inlay_connect_av(&av, dev.pd, &here, &there, NULL, &why) < 0);
}

static void refused(struct ibv_qp *qp, int err, int expected, const char *why, const char *say, enum ibv_qp_state left)
{
	assert_int_equal(err, expected);
	assert_non_null(why);
	if (!strstr(why, say))
		fail_msg("'%s' does not say '%s'", why, say);
	assert_int_equal(asked(qp).qp_state, left);
}

#define DC_KEY 0x1122334455667788u

/* By one line: two queue pairs, or one and itself; a DC initiator */
TEST(one_line)
{
	struct inlay_connect_attr attr = inlay_connect_defaults();
	struct mlx5dv_qp_init_attr dv;
	struct ibv_qp_init_attr_ex a;
	const char *why = NULL;
	struct end e[2];
	struct ibv_qp *dci;
	int err;

	for (uint32_t t = 0; t < ARRAY(types); t++) {
		const struct opt opt = kind(types[t]);

		end_make(&e[0], &opt);
		end_make(&e[1], &opt);
		must(inlay_connect_pair(e[0].qp, e[t == 1 ? 0 : 1].qp, NULL, &why));
		assert_int_equal(asked(e[0].qp).qp_state, IBV_QPS_RTS);
		assert_int_equal(asked(e[1].qp).qp_state, t == 1 ? IBV_QPS_RESET : IBV_QPS_RTS);
		err = inlay_connect_pair(e[0].qp, e[1].qp, NULL, &why);
		refused(e[0].qp, err, -EBADFD, why, "neither in RESET", IBV_QPS_RTS);
		end_free(&e[0]);
		if (!t) {
			memset(&a, 0, sizeof(a));
			memset(&dv, 0, sizeof(dv));
			a.qp_type = IBV_QPT_DRIVER;
			a.send_cq = a.recv_cq = e[1].scq;
			a.pd = dev.pd;
			a.comp_mask = IBV_QP_INIT_ATTR_PD;
			a.cap.max_send_wr = 4;
			a.cap.max_send_sge = 1;
			dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
			dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
			dci = made(mlx5dv_create_qp(dev.ctx, &a, &dv));
			attr.sl = 16;
			err = inlay_connect_dc(NULL, dci, 0, &attr, &why);
			refused(dci, err, -EINVAL, why, "service level", IBV_QPS_RESET);
			attr.sl = 0;
			attr.mtu = IBV_MTU_512;
			attr.timeout = 17;
			must(inlay_connect_dc(NULL, dci, 0, &attr, NULL));
			assert_int_equal(asked(dci).qp_state, IBV_QPS_RTS);
			assert_true(asked(dci).path_mtu == IBV_MTU_512 && asked(dci).timeout == 17 && asked(dci).max_rd_atomic == 16);
			err = inlay_connect_dc(NULL, dci, 0, NULL, &why);
			refused(dci, err, -EBADFD, why, "neither in RESET nor in INIT", IBV_QPS_RTS);
			must(ibv_destroy_qp(dci));
		}
		end_free(&e[1]);
	}
}

/* ---- ECE ---- */

TEST(ece)
{
	/* here's vendor and options, the peer's; whether the device is told, and what it says then */
	static const struct {
		uint32_t vendor, options, peer, peer_options, flags;
		int told;
	} cases[] = {
		{0x15b3, 0xf0f0f0f0, 0x15b3, 0x30303030, 0, 1},
		{0x15b3, 0xf0f0f0f0, 0x2c9, 0x30303030, 0, 0},
		{0x15b3, 0xf0f0f0f0, 0, 0, 0, 0},
		{0x15b3, 0xf0f0f0f0, 0x15b3, 0, 0, 0},
		{0x15b3, 0, 0x15b3, 0x30303030, 0, 0},
		{0x15b3, 0xf0f0f0f0, 0x15b3, 0x30303030, INLAY_CONNECT_NO_ECE, 0},
		{0x1000000, 1, 0, 1, 0, 0}, /* a vendor that no record holds */
	};

	for (size_t i = 0; i < ARRAY(cases); i++)
		for (size_t t = 0; t < ARRAY(types); t++) {
			struct inlay_connect_attr attr = inlay_connect_defaults();
			const int ud = types[t] == IBV_QPT_UD, told = cases[i].told && !ud;
			struct inlay_connect_record here, there;
			struct opt opt = kind(types[t]);
			uint8_t blob[INLAY_CONNECT_SIZE];
			struct end e;

			memset(&fake, 0, sizeof(fake));
			fake.has.vendor_id = cases[i].vendor;
			fake.has.options = cases[i].options;
			fake.mask = 0x20202020;
			attr.flags = cases[i].flags;
			end_make(&e, &opt);
			must(inlay_connect_local(&here, e.qp, &attr, NULL));
			if (ud || cases[i].flags || cases[i].vendor >> 24) {
				assert_int_equal(here.ece_vendor, 0);
				assert_int_equal(here.ece_options, 0);
			} else {
				assert_int_equal(here.ece_vendor, cases[i].vendor);
				assert_int_equal(here.ece_options, cases[i].options);
			}
			inlay_connect_pack(&here, blob);
			must(inlay_connect_unpack(&there, blob, sizeof(blob), NULL));
			if (!ud) {
				there.ece_vendor = cases[i].peer;
				there.ece_options = cases[i].peer_options;
			}
			must(inlay_connect_rts(e.qp, &here, ud ? NULL : &there, &attr, NULL));
			assert_int_equal(fake.set_ece, told);
			if (told) {
				assert_int_equal(fake.set_at, IBV_QPS_INIT);
				assert_int_equal(fake.set.vendor_id, cases[i].peer);
				assert_int_equal(fake.set.options, cases[i].peer_options);
				assert_int_equal(fake.set.comp_mask, 0);
			}
			/* A side that answers afterwards says what the device took */
			assert_int_equal(here.ece_options, told ? 0x20202020 : 0);
			end_free(&e);
		}
	memset(&fake, 0, sizeof(fake));
}

/* ---- refusals ---- */

#define NO_FAKE (enum ibv_mtu)0, IBV_PORT_NOP, IBV_QPT_RC

/* In RESET it stays in RESET */
TEST(refused_local)
{
	/* One attribute, or what the port or the queue pair is in place of it */
#define AT(field) offsetof(struct inlay_connect_attr, field), sizeof(((struct inlay_connect_attr *)0)->field)
	const struct {
		size_t at, bytes;
		uint32_t value;
		int err;
		const char *say;
		enum ibv_mtu mtu;
		enum ibv_port_state port;
		enum ibv_qp_type type;
	} rows[] = {
		{AT(port), 200, -EINVAL, "no such port", NO_FAKE},
		{AT(gid_index), on_roce() ? 200u : 500u, -ENOENT, "no GID of this index", NO_FAKE},
		{AT(mtu), 6, -EINVAL, "MTU", NO_FAKE},
		{AT(mtu), IBV_MTU_2048, -EINVAL, "MTU", IBV_MTU_1024, IBV_PORT_NOP, IBV_QPT_RC},
		{AT(sl), on_roce() ? 8u : 16u, -EINVAL, "service level", NO_FAKE},
		{AT(flags), 1 << 9, -EINVAL, "flags", NO_FAKE},
		{AT(access), IBV_ACCESS_LOCAL_WRITE, -EINVAL, "access", NO_FAKE},
		{AT(timeout), 32, -EINVAL, "range", NO_FAKE},
		{AT(retry_count), 8, -EINVAL, "range", NO_FAKE},
		{AT(rnr_retry), 8, -EINVAL, "range", NO_FAKE},
		{AT(min_rnr_timer), 32, -EINVAL, "range", NO_FAKE},
		{AT(flow_label), 1 << 20, -EINVAL, "range", NO_FAKE},
		{AT(pkey_index), 60000, -EINVAL, "P_Key", NO_FAKE},
		{AT(port), 1, -ENETDOWN, "not active", (enum ibv_mtu)0, IBV_PORT_DOWN, IBV_QPT_RC},
		{AT(port), 1, -ENOTSUP, "only RC, UC and UD", (enum ibv_mtu)0, IBV_PORT_NOP, IBV_QPT_RAW_PACKET},
	};
	struct inlay_connect_attr attr;
	struct inlay_connect_record here;
	struct opt opt = kind(IBV_QPT_RC);
	const char *why = NULL;
	struct end e;
	int err;

	end_make(&e, &opt);
	for (size_t i = 0; i < ARRAY(rows); i++) {
		attr = inlay_connect_defaults();
		memcpy((uint8_t *)&attr + rows[i].at, &rows[i].value, rows[i].bytes);
		fake.mtu = rows[i].mtu;
		fake.port = rows[i].port;
		e.qp->qp_type = rows[i].type;
		why = NULL;
		err = inlay_connect_local(&here, e.qp, &attr, &why);
		assert_int_equal(inlay_connect_local(&here, e.qp, &attr, NULL), rows[i].err);
		e.qp->qp_type = IBV_QPT_RC;
		refused(e.qp, err, rows[i].err, why, rows[i].say, IBV_QPS_RESET);
	}
	memset(&fake, 0, sizeof(fake));

	/* More than the device has is what it has */
	attr = inlay_connect_defaults();
	attr.rd_atomic = 255;
	must(inlay_connect_local(&here, e.qp, &attr, NULL));
	assert_int_equal(here.rd_atomic, dev.attr.max_qp_rd_atom < dev.attr.max_qp_init_rd_atom ? dev.attr.max_qp_rd_atom
						 : dev.attr.max_qp_init_rd_atom);
	/* Again, with other wishes */
	must(inlay_connect_local(&here, e.qp, NULL, NULL));
	assert_int_equal(here.rd_atomic, 16);
	qp_to(e.qp, IBV_QPS_ERR);
	err = inlay_connect_local(&here, e.qp, NULL, &why);
	refused(e.qp, err, -EBADFD, why, "neither in RESET nor in INIT", IBV_QPS_ERR);
	end_free(&e);
}

/* In INIT it stays in INIT, with the receive that was posted, and can still be connected */
TEST(refused_rts)
{
	enum { TYPE, LINK, VERSION, FAMILY, NOBODYS_GID, NO_GID, ANOTHERS, RETRIES, MISSING, STEP, ECE, ANY, ROCE, INFINIBAND };
	static const struct {
		int what, where, err;
		const char *say;
	} rows[] = {
		{TYPE, ANY, -ENOTSUP, "another type"}, {LINK, ANY, -ENOTSUP, "InfiniBand, the other on RoCE"},
		{VERSION, ROCE, -ENOTSUP, "RoCE v1, the other's of RoCE v2"}, {FAMILY, ROCE, -ENOTSUP, "IPv4"},
		{NOBODYS_GID, ROCE, -ETIMEDOUT, "cannot be reached"}, {NO_GID, INFINIBAND, -ENOTSUP, "no GID"},
		{ANOTHERS, ANY, -EBADFD, "another queue pair's"}, {RETRIES, ANY, -EINVAL, "range"},
		{MISSING, ANY, -EINVAL, "missing"}, {STEP, ANY, -EIO, "RTR"}, {ECE, ANY, -EINVAL, "ECE"},
	};
	struct inlay_connect_record here[2], there, good, mine;
	struct opt opt = kind(IBV_QPT_RC);
	uint8_t blob[INLAY_CONNECT_SIZE];
	const char *why = NULL;
	struct end e[2];
	int err;

	for (int i = 0; i < 2; i++) {
		end_make(&e[i], &opt);
		must(inlay_connect_local(&here[i], e[i].qp, NULL, NULL));
		end_take(&e[i], INLAY_UAR_DOORBELL);
		receive(&e[i], 4096, 4096);
	}
	inlay_connect_pack(&here[1], blob);
	must(inlay_connect_unpack(&good, blob, sizeof(blob), NULL));

	for (size_t i = 0; i < ARRAY(rows); i++) {
		const bool applies = rows[i].where == ANY || (rows[i].where == ROCE) == on_roce();
		struct inlay_connect_attr attr = inlay_connect_defaults();
		bool missing = false;

		if (!applies || (rows[i].what == NOBODYS_GID && !softdev_present()))
			continue;
		mine = here[0];
		there = good;
		switch (rows[i].what) {
		case TYPE: there.type = IBV_QPT_UC; break;
		case LINK: there.link = on_roce() ? INLAY_CONNECT_IB : INLAY_CONNECT_ROCE_V2; break;
		case VERSION: there.link = INLAY_CONNECT_ROCE_V1; break;
		case FAMILY: there.gid[0] ^= 0x20; break;
		case NOBODYS_GID: there.gid[14] ^= 0x55; break;
		case NO_GID: there.flags = INLAY_CONNECT_GLOBAL; memset(there.gid, 0, 16); break;
		case ANOTHERS: mine = here[1]; break;
		case RETRIES: attr.retry_count = 9; break;
		case MISSING: missing = true; break;
		case STEP: fake.fail = IBV_QPS_RTR; break;
		default:
			mine.ece_vendor = there.ece_vendor = 0x15b3;
			mine.ece_options = there.ece_options = 7;
			fake.set_ece_err = EINVAL;
		}
		why = NULL;
		err = inlay_connect_rts(e[0].qp, &mine, missing ? NULL : &there, &attr, &why);
		refused(e[0].qp, err, rows[i].err, why, rows[i].say, IBV_QPS_INIT);
		assert_int_equal(inlay_connect_rts(e[0].qp, &mine, missing ? NULL : &there, &attr, NULL), rows[i].err);
		memset(&fake, 0, sizeof(fake));
	}

	must(inlay_connect_rts(e[0].qp, &here[0], &good, NULL, NULL));
	inlay_connect_pack(&here[0], blob);
	must(inlay_connect_unpack(&there, blob, sizeof(blob), NULL));
	/* A side that got to RTR starts over */
	fake.fail = IBV_QPS_RTS;
	why = NULL;
	err = inlay_connect_rts(e[1].qp, &here[1], &there, NULL, &why);
	refused(e[1].qp, err, -EIO, why, "in RESET", IBV_QPS_RESET);
	memset(&fake, 0, sizeof(fake));
	inlay_rq_reset(&e[1].rq);
	good.psn = here[1].psn;
	must(inlay_connect_local(&here[1], e[1].qp, NULL, NULL));
	here[1].psn = good.psn;
	receive(&e[1], 4096, 4096);
	must(inlay_connect_rts(e[1].qp, &here[1], &there, NULL, NULL));
	why = NULL;
	err = inlay_connect_rts(e[1].qp, &here[1], &there, NULL, &why);
	refused(e[1].qp, err, -EBADFD, why, "not in INIT", IBV_QPS_RTS);
	message(&e[0], &e[1], 8);
	message(&e[1], &e[0], 9);
	end_free(&e[0]);
	end_free(&e[1]);

	opt = kind(IBV_QPT_UD);
	end_make(&e[0], &opt);
	must(inlay_connect_local(&here[0], e[0].qp, NULL, NULL));
	why = NULL;
	err = inlay_connect_rts(e[0].qp, &here[0], &here[0], NULL, &why);
	refused(e[0].qp, err, -EINVAL, why, "no peer", IBV_QPS_INIT);
	end_free(&e[0]);
}

/* A port that demands a GRH is reached with one */
TEST(grh_required)
{
	struct inlay_connect_attr attr = inlay_connect_defaults();
	struct inlay_connect_record a = {}, b;
	struct ibv_ah_attr ah;

	memset(&b, 0, sizeof(b));
	must(inlay_connect_port(&a, dev.ctx, 1, -1, NULL));
	fake.port_flags = IBV_QPF_GRH_REQUIRED;
	must(inlay_connect_port(&b, dev.ctx, 1, -1, NULL));
	fake.port_flags = 0;
	assert_int_equal(b.flags, on_roce() ? 0 : INLAY_CONNECT_GLOBAL);
	must(inlay_connect_path_(&ah, &a, &b, &attr, NULL));
	assert_int_equal(ah.is_global, 1);
	must(inlay_connect_path_(&ah, &a, &a, &attr, NULL));
	assert_int_equal(ah.is_global, on_roce());
}

static int setup(void **state)
{
	int err = dev_open(state);

	if (!err) {
		query_port = verbs_get_ctx(dev.ctx)->query_port;
		verbs_get_ctx(dev.ctx)->query_port = fake_port;
	}
	return err;
}

int main(void)
{
	return run_all(setup, dev_close) || again_with("SOFTDEV_LINK", "ib");
}
