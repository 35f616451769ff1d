/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oracle_send.h: send queues: a table of every opcode, length, gather list, flag and ring position that wraps, doorbells, limits, requests
 * at random, and what single kinds have beside these.
 */
#ifndef TESTS_QUEUE_ORACLE_SEND_H
#define TESTS_QUEUE_ORACLE_SEND_H

#include "oracle.h"

/* The slots at which a WQE of bbs wraps, then some at which it does not; ends with -1. Of a ring of n */
static int slot_of(uint32_t n, uint32_t bbs, unsigned i)
{
	if (i + 1 < bbs)
		return (int)(n - bbs + 1 + i);
	switch (i + 1 - bbs) {
	case 0: return 0;
	case 1: return (int)(n - bbs);
	case 2: return (int)(n / 2);
	default: return -1;
	}
}

static struct ibv_qp_cap cap_of(uint32_t wr, uint32_t sge, uint32_t inl)
{
	struct ibv_qp_cap cap = {.max_send_wr = wr, .max_send_sge = sge, .max_inline_data = inl};

	return cap;
}

static void table_open(struct trio *t)
{
	struct ibv_qp_cap cap = cap_of(has_op(UMR) ? 4 : 2, K->dv ? 4 : MAX_SGE, K->max_inline);

	trio_open(t, &cap, K->lean, INLAY_UAR_SERIAL);
	assert_int_equal(inlay_sq_type(&t->sq), K->type);
	if (!K->dv)
		assert_int_equal(t->cap.max_inline_data, K->max_inline);
	assert_true(t->bbs >= 32);
}

/*
 * Where libmlx5 (44 and today's) writes what the device cannot mean. A segmented packet's header that passes the ring's end: it leaves 32
 * bytes free behind it. One that ends there: it writes the length of inline payload, and ibv_wr_set_sge its pointer, behind the ring.
 */
static bool libmlx5_wrong(const struct trio *t, const struct req *r, uint32_t pos)
{
	uint32_t end = (pos & (t->bbs - 1)) * 64 + 32 + (r->hdr_len - 2 + 15) / 16 * 16;

	return K->family == PACKET && r->op == TSO && end >= t->bbs * 64;
}

/* What comes behind a change of a key: it has libmlx5's fence, and what follows has none */
static void followed(struct trio *t, unsigned way)
{
	struct req r;

	req_make(&r, rnd_below(2) ? SEND : WRITE_IMM, rnd_below(2), 1, 0, &t->cap);
	run(t, rnd_below(APIS), way, false, &r, 1);
	assert_int_equal(t->fence, 0);
}

/* One request at every slot that matters, through both of libmlx5's interfaces, with every set of flags in `sets` */
static void everywhere(struct trio *t, struct req *r, unsigned way, unsigned first, unsigned sets)
{
	unsigned from = is_dci() || (r->op >= UMR && r->op <= COPY) ? (unsigned)WR : 0, i, f, api;
	unsigned to = from || r->op == BIND1 ? from : (unsigned)WR;
	static unsigned turn;
	int slot;

	/* Flags are where they are whatever follows: RC sees all of them with everything, the others two in turn */
	if (K->type != IBV_QPT_RC && sets > 2) {
		first = turn++ * 3;
		sets = 2;
	}
	for (i = 0; (slot = slot_of(t->bbs, req_bbs(r), i)) >= 0; i++)
		for (f = first; f < first + sets; f++)
			for (api = from; api <= to; api++) {
				if (libmlx5_wrong(t, r, (uint32_t)slot))
					continue;
				r->flags = f & (FLAG_SETS - 1);
				r->list = (f ^ api) & 1;
				r->av_last = f >> 1 & 1;
				/* ibv_wr_* writes the length as it stands, ibv_post_send and inlay always 8 */
				if (is_atomic(r->op))
					r->sge[0].length = api == WR ? 8 : 1 + rnd_below(64);
				go_to(t, (uint32_t)slot);
				run(t, api, way, false, r, 1);
				if (is_window(r->op))
					followed(t, f % WAYS);
			}
}

static void table_of(unsigned op, bool inl)
{
	static const uint8_t sets[] = {0, SIG, SIG | SOL | FENCE};
	uint32_t size, last = last_size(op, inl, &T), n = 0;
	struct req r;

	for (size = first_size(op, inl); size <= last; size++)
		for (unsigned pattern = 0; pattern < patterns_of(op, size); pattern++, n++) {
			req_make(&r, op, inl, size, pattern, &T.cap);
			/* In one piece, by pointers, and all that has few sizes: with every set of flags. Cut: one, each way in turn */
			if (inl && pattern) {
				everywhere(&T, &r, n % WAYS, n / WAYS * 3, 1);
				continue;
			}
			everywhere(&T, &r, PLAIN, is_window(op) || op == UMR ? n : 0,
				   is_window(op) || op == UMR || op == RAW ? 1 : FLAG_SETS);
			for (unsigned way = CONST; way < WAYS && op < BIND1; way++)
				for (unsigned s = 0; s < (way == CONST ? ARRAY(sets) : 1); s++) {
					if (!inl && size > 8 && way != IOV)
						continue;
					req_make(&r, op, inl, size, pattern, &T.cap);
					everywhere(&T, &r, way, sets[(n + s) % ARRAY(sets)], 1);
				}
		}
}

static void table(void)
{
	table_open(&T);
	for (uint32_t op = 0; op < OPS; op++)
		for (uint32_t inl = 0; inl <= has_inline(op) && K->table >> op & 1; inl++)
			table_of(op, inl);
	trio_close(&T);
}

static void random_runs(void)
{
	const uint64_t want = env_number("ORACLE_CASES", 100000), seed = env_number("ORACLE_SEED", rnd());
	const bool full = K->ops >> BIND1 || is_dci();
	static struct req r[MAX_BATCH];
	uint32_t rings = 0, n;
	unsigned api;

	print_message("# ORACLE_SEED=%llu ORACLE_CASES=%llu\n", (unsigned long long)seed, (unsigned long long)want);
	rnd_state = seed;
	while (requests < want) {
		const uint64_t with = K->dv || (!full && rnd_below(2)) ? K->lean : is_dci() || rnd_below(2) ? K->full : 0;
		/* full, which is what a QP of ibv_create_qp gets too, leaves less for the payload */
		const uint32_t longest = (with == K->lean ? K->max_inline : K->max_inline_full) + 1;
		struct ibv_qp_cap cap = cap_of((has_op(UMR) ? 3 : 0) + (1u << rnd_below(8)) + rnd_below(3),
					       1 + rnd_below(rnd_below(2) || K->dv ? 4 : MAX_SGE), rnd_below(rnd_below(2) ? 129 : longest));
		uint64_t until = requests + 500 + rnd_below(8000);

		trio_open(&T, &cap, with, rnd_below(4) ? INLAY_UAR_SERIAL : INLAY_UAR_LOCKED);
		rings++;
		while (requests < until && requests < want) {
			if (rnd_below(2))
				complete(&T, rnd_below(T.head - T.tail + 1));
			n = batch_random(r, 1 + (rnd_below(2) ? 0 : rnd_below(MAX_BATCH)), &T, &api);
			if (n)
				run(&T, api, rnd_below(WAYS), n > 1 && rnd_below(2), r, n);
			else
				complete(&T, 1 + rnd_below(T.head - T.tail));
		}
		complete_all(&T);
		trio_close(&T);
	}
	print_message("# %u rings\n", rings);
}

/* What both refuse, or inlay where libmlx5 cannot be asked: nothing is written */
static struct inlay_sq untouched;

static void refused_by(int lib, int lib_says, int in, int in_says)
{
	assert_int_equal(lib, lib_says);
	assert_int_equal(in, in_says);
	assert_true(all_bytes(T.ring, T.bbs * 64, 0xa5));
	assert_memory_equal(&T.sq, &untouched, sizeof(untouched));
}

static void refused(void)
{
	static const uint64_t windows[] = {(UINT64_C(1) << 31) + 1, UINT64_C(1) << 32, ~UINT64_C(0)};
	static const uint32_t copies[] = {0, (UINT32_C(1) << 31) + 1, UINT32_MAX, 8};
	struct mlx5dv_sig_block_domain *d;
	struct req r;

	table_open(&T);
	untouched = T.sq;
	memset(T.ring, 0xa5, T.bbs * 64);
	for (uint32_t op = BIND1; has_op(op) && op <= BIND2; op++)
		for (uint32_t k = 0; k < ARRAY(windows); k++) {
			req_make(&r, op, false, 0, 0, &T.cap);
			r.bind.length = windows[k];
			refused_by(post_lib(&T.a, op == BIND2 ? k & 1 : (uint32_t)POST_SEND, &r, 1, 0), EOPNOTSUPP,
				   in_plain(&T.sq, &r), -ENOTSUP);
		}
	for (uint32_t k = 0; has_op(COPY) && k < ARRAY(copies); k++) {
		req_init(&r, COPY, SIG);
		req_pointer(&r, copies[k]);
		req_pointer(&r, copies[k] + (k == 3)); /* unlike, which libmlx5 cannot be told */
		refused_by(k == 3 ? EINVAL : post_lib(&T.a, WR, &r, 1, 0), EINVAL, in_plain(&T.sq, &r), -EINVAL);
	}
	for (uint32_t k = 0; has_op(UMR) && k < 12; k++) {
		req_make(&r, UMR, false, 1, LIST + LAYOUTS * KEY_SIGNED, &T.cap);
		d = r.umr.domain;
		r.umr.attr.mem = &d[0];
		r.umr.attr.wire = &d[1];
		d[0].sig_type = MLX5DV_SIG_TYPE_CRC;
		d[0].sig.crc = &r.umr.crc[0];
		d[1].sig_type = MLX5DV_SIG_TYPE_T10DIF;
		d[1].sig.dif = &r.umr.dif[1];
		switch (k) {
		case 0: r.umr.attr.mem = r.umr.attr.wire = NULL; break;
		case 1: r.umr.attr.flags = MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK; break;
		case 2: r.umr.attr.flags = 2; break;
		case 3: r.umr.attr.comp_mask = 1; break;
		case 4: d[1].comp_mask = 1; break;
		case 5: d[0].block_size = (enum mlx5dv_block_size)5; break;
		case 6: d[0].sig_type = (enum mlx5dv_sig_type)2; break;
		case 7: r.umr.crc[0].seed = 1; break;
		case 8: r.umr.crc[0].type = (enum mlx5dv_sig_crc_type)3; break;
		case 9: r.umr.dif[1].bg = 1; break;
		case 10: r.umr.dif[1].bg_type = (enum mlx5dv_sig_t10dif_bg_type)2; break;
		default: r.umr.dif[1].flags = 8; break;
		}
		refused_by(post_lib(&T.a, WR, &r, 1, 0), EINVAL, in_plain(&T.sq, &r), -EINVAL);
	}
	trio_close(&T);
}

static int burst(struct inlay_sq *sq, const struct req *r, unsigned n)
{
	static struct ibv_sge sge[MAX_BATCH];

	for (unsigned i = 0; i < n; i++)
		sge[i] = r[i].sge[0];
	return inlay_post_packets(sq, inlay_eth_csum(INLAY_CSUM_L3 | INLAY_CSUM_L4), sge, n, in_flags(&r[n - 1])) != (int)n;
}

/* Bursts of many, as a list of libmlx5's */
static void bursts(void)
{
	const struct ibv_qp_cap cap = cap_of(40, 1, 0);
	static struct req r[MAX_BATCH];
	uint32_t turn, n, i;

	trio_open(&T, &cap, K->lean, INLAY_UAR_SERIAL);
	for (turn = 0; turn < 3000; turn++) {
		complete(&T, rnd_below(T.head - T.tail + 1));
		if (T.head - T.tail == T.cap.max_send_wr)
			complete_all(&T);
		n = 1 + rnd_below(T.cap.max_send_wr - (T.head - T.tail));
		n = n < MAX_BATCH ? n : MAX_BATCH;
		for (i = 0; i < n; i++) {
			req_make(&r[i], SEND, false, 1, 0, &T.cap);
			r[i].flags = i + 1 == n && turn & 1 ? SIG : 0;
			r[i].csum = 1;
		}
		in_batch = burst;
		run(&T, turn >> 1 & 1, PLAIN, n > 1, r, n);
		in_batch = NULL;
	}
	trio_close(&T);
}

static void refused_packets(void)
{
	struct inlay_eth eth = inlay_eth_csum(0), mss = inlay_eth_mss(eth, 1), vlan = inlay_eth_vlan(eth, 5, 0);
	struct ibv_sge none = {(uintptr_t)data, 0, 1}, sge[2] = {none, {(uintptr_t)data, 17, 1}}, packet = {(uintptr_t)data, 60, 1};
	struct ibv_sge huge = {(uintptr_t)data, 0xfffffff0, 1}, too_long = {(uintptr_t)data, 925, 1};
	uint32_t i, l2 = inline_l2();

	table_open(&T);
	untouched = T.sq;
	memset(T.ring, 0xa5, T.bbs * 64);
	{
		const struct { int is, says; } rows[] = {
			{inlay_post_packet(&T.sq, eth, sge, 0, 0), -EINVAL},
			{inlay_post_packet(&T.sq, eth, sge, 1, 0), -EINVAL},
			{inlay_post_packet(&T.sq, eth, sge, 1, INLAY_INLINE), -EINVAL},
			{inlay_post_tso(&T.sq, mss, data, 13, sge, 2, 0), -EINVAL},
			{inlay_post_tso(&T.sq, mss, data, 256, sge, 2, 0), -EINVAL},
			{inlay_post_tso(&T.sq, mss, data, 54, sge, 1, 0), -EINVAL},
			{inlay_post_tso(&T.sq, inlay_eth_vlan(mss, 5, 0), data, 54, sge, 2, 0), -EINVAL},
			{inlay_post_packets(&T.sq, eth, sge, 0, 0), 0},
			{inlay_post_packets_multi(&T.sq, eth, sge, 0, INLAY_INLINE), 0},
			{l2 ? inlay_post_packet(&T.sq, eth, sge, 2, 0) : -EINVAL, -EINVAL},
			{l2 ? inlay_post_packet(&T.sq, vlan, &packet, 1, 0) : -EINVAL, -EINVAL},
			{l2 ? inlay_post_packets_multi(&T.sq, eth, &packet, 1, 0) : -ENOTSUP, -ENOTSUP},
			{inlay_post_packets_multi(&T.sq, vlan, &packet, 1, 0), -ENOTSUP},
			{inlay_post_packets_multi(&T.sq, inlay_eth_vlan(eth, 0, 1), &packet, 1, INLAY_INLINE), -ENOTSUP},
			{inlay_post_packets_multi(&T.sq, eth, &huge, 1, INLAY_INLINE), -EINVAL},
			{inlay_post_packets_multi(&T.sq, eth, &too_long, 1, INLAY_INLINE), -EINVAL},
		};

		for (i = 0; i < ARRAY(rows); i++)
			if (rows[i].is != rows[i].says)
				fail_msg("row %u gives %d, not %d", i, rows[i].is, rows[i].says);
	}
	inlay_sq_set_packet_(&T.sq, l2, 0);
	assert_int_equal(inlay_post_packets_multi(&T.sq, eth, &packet, 1, 0), -ENOTSUP);
	inlay_sq_set_packet_(&T.sq, l2, 1);
	refused_by(0, 0, 0, 0);
	trio_close(&T);
}

/* A comparison that should fail, or not, without a report on the terminal; *text: what it says */
static int check_quietly(const struct req *r, unsigned n, uint32_t begin, char **text)
{
	FILE *was = report_to;
	static size_t len;
	int wrong;

	report_to = made(text ? open_memstream(text, &len) : fopen("/dev/null", "w"));
	wrong = check_batch(&T, r, n, begin);
	fclose(report_to);
	report_to = was;
	return wrong;
}

/*
 * Can it fail? After a post that compares well, one byte after the other is spoiled in c's ring, register and record. The comparison
 * must say so, and name the place, unless libmlx5 left the byte alone inside of a WQE's units. Returns how many those are.
 */
static uint32_t spoil(const struct req *r, uint32_t begin)
{
	uint32_t i, ds = req_ds(r), round = (ds + 3) & ~3u, slot = (begin & (T.bbs - 1)) * 4, missed = 0, bytes = 0;
	const uint8_t *a = T.a.reg + !T.a.half * T.size, *b = T.b.reg + !T.b.half * T.size;
	char *text, place[32];

	assert_int_equal(check_batch(&T, r, 1, begin), 0);
	for (i = 0; i < T.bbs * 64; i++) {
		const uint32_t unit = (i / 16 - slot) & (T.bbs * 4 - 1);
		const bool seen = T.a.ring[i] == T.b.ring[i] || unit >= req_bbs(r) * 4 || (unit >= ds && unit < round) ||
				  (unit >= round && unit % 4 >= 2);

		T.ring[i] ^= 1;
		if (check_quietly(r, 1, begin, &text) != seen)
			fail_msg("%s: byte %u of unit %u", ops[r->op].name, i & 15, unit);
		T.ring[i] ^= 1;
		snprintf(place, sizeof(place), "byte %u (", i);
		assert_true(!seen || strstr(text, place));
		free(text);
		missed += !seen;
	}
	for (i = 0; i < T.size; i++)
		bytes += a[i] == b[i];
	for (i = 0; i < 2 * T.size; i++) {
		T.reg[i] ^= 0x80;
		assert_int_equal(check_quietly(r, 1, begin, NULL), i / T.size == T.half || a[i % T.size] == b[i % T.size] || bytes == 8);
		T.reg[i] ^= 0x80;
	}
	for (i = 0; i < 32; i++) {
		T.dbrec[MLX5_SND_DBR] ^= 1u << i;
		assert_int_equal(check_quietly(r, 1, begin, NULL), 1);
		T.dbrec[MLX5_SND_DBR] ^= 1u << i;
	}
	return missed;
}

static void self_check(void)
{
	uint32_t op, inl, begin;
	struct req r;

	table_open(&T);
	for (op = 0; op < OPS; op++)
		for (inl = 0; inl <= has_inline(op) && has_op(op); inl++) {
			go_to(&T, T.bbs - 2);
			req_make(&r, op, inl, op == TSO ? 14 : inl ? 197 : op == UMR ? 7 : 4, op == UMR ? LIST + LAYOUTS * KEY_SIGNED : 0, &T.cap);
			r.bind.length = 0x12345678;
			begin = T.pos;
			fill_free(&T);
			post_batch(&T, op == BIND1 ? POST_SEND : WR, PLAIN, false, &r, &r, 1);
			/* An immediate in each control segment, padding, XRC's reserved bytes; of a window all but key, rights, address and length */
			assert_in_range(spoil(&r, begin), 0, op == INV ? 64 : is_window(op) ? 46 : 4 * (1 + req_psvs(&r)) + 16 + 12 * is_xrc());
			if (!T.fence)
				continue;
			/* The fence that nobody asked for is compared too */
			req_make(&r, SEND, true, 8, 0, &T.cap);
			r.flags = 0;
			begin = T.pos;
			fill_free(&T);
			T.fence = 0;
			post_batch(&T, POST_SEND, PLAIN, false, &r, &r, 1);
			assert_int_equal(check_quietly(&r, 1, begin, NULL), 1);
		}
	trio_close(&T);
	cases = requests = compared = 0;
}

#endif
