/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * decode.c: what inlay_post writes is decoded as what it was asked for, and posted again writes the same bytes; other WQEs have the
 * segments that they are built of; any bytes are decoded without a read outside the ring.
 *
 * ORACLE_CASES: random requests (100,000).
 */
#include "rig.h"
#include <inlay/queue/masked.h>
#include <inlay/queue/packet.h>
#include <inlay/queue/sync.h>
#include <inlay/queue/umr.h>
#include <sys/mman.h>

#define MOST 16u /* pieces of a request */

static const uint32_t types[] = {0, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_DRIVER, IBV_QPT_XRC_SEND};
static const uint32_t opcodes[] = {MLX5_OPCODE_NOP, MLX5_OPCODE_SEND, MLX5_OPCODE_SEND_IMM, MLX5_OPCODE_SEND_INVAL, MLX5_OPCODE_RDMA_WRITE,
				   MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_OPCODE_RDMA_READ};

static uint8_t ring[64 * 64] __attribute__((aligned(64))), again[64 * 64] __attribute__((aligned(64)));
static uint8_t reg[512] __attribute__((aligned(512)));
static uint8_t data[1024];
static uint32_t record[2];
static struct inlay_uar uar;
static struct inlay_sq sq;

static uint64_t cases(void)
{
	const char *env = getenv("ORACLE_CASES");

	return env && *env ? strtoull(env, NULL, 0) : 100000;
}

static void sq_make(uint32_t wqebbs, uint32_t type, uint32_t index)
{
	memset(ring, (int)rnd(), sizeof(ring));
	must(inlay_uar_init(&uar, reg, 256, INLAY_UAR_DOORBELL));
	must(inlay_sq_init(&sq, ring, wqebbs, record, (uint32_t)rnd() & 0xffffff, 63, &uar));
	inlay_sq_set_type(&sq, type, 1);
	inlay_sq_set_atomics(&sq, ~0u);
	sq.pi = index;
}

/* A request, and beside it all its pieces in one list, empty ones left out */
struct request {
	uint32_t type, opcode, flags, num;
	struct inlay_wr wr;
	struct inlay_av to;
	struct ibv_sge sge[MOST];
	struct iovec iov[MOST];
	uint32_t lkeys[MOST];
	struct inlay_iov list;
	struct ibv_sge want[MOST];
};

static void request_random(struct request *r)
{
	static const uint32_t fences[] = {0, INLAY_FENCE_INITIATOR_SMALL, INLAY_FENCE, INLAY_FENCE_STRONG, INLAY_FENCE_SMALL_AND_FENCE};
	uint32_t i, n, total = 0, inl;

	memset(r, 0, sizeof(*r));
	r->type = types[rnd_below(ARRAY(types))];
	do
		r->opcode = opcodes[rnd_below(ARRAY(opcodes))];
	while (r->type && r->opcode && !inlay_post_fits_(r->type, r->opcode, r->type >= IBV_QPT_UD));
	r->flags = fences[rnd_below(5)] | (rnd_below(2) ? INLAY_SIGNALED : 0) | (rnd_below(2) ? INLAY_SOLICITED : 0);
	if (r->type == IBV_QPT_DRIVER && rnd_below(2))
		r->flags |= INLAY_STREAM(1 + rnd_below(65535));
	if (r->opcode == MLX5_OPCODE_NOP)
		return;
	inl = r->opcode != MLX5_OPCODE_RDMA_READ && rnd_below(2);
	if (r->type == IBV_QPT_XRC_SEND) {
		inlay_av_init_xrc(&r->to, (uint32_t)rnd() & 0xffffff);
	} else if (r->type == IBV_QPT_UD || r->type == IBV_QPT_DRIVER) {
		fill((uint8_t *)&r->to, sizeof(r->to), (uint32_t)rnd());
		if (r->type == IBV_QPT_DRIVER && rnd_below(2))
			r->to.av.dqp_dct &= inlay_to_be32(0x7fffffff);
		else
			r->to.av.dqp_dct |= inlay_to_be32(0x80000000);
	}
	r->wr.to = r->type >= IBV_QPT_UD ? &r->to : NULL;
	r->wr.raddr = inlay_post_raddr_(r->opcode) ? rnd() : 0;
	r->wr.rkey = r->wr.raddr || r->opcode == MLX5_OPCODE_SEND_INVAL ? (uint32_t)rnd() : 0;
	r->wr.imm_be = r->opcode == MLX5_OPCODE_SEND_IMM || r->opcode == MLX5_OPCODE_RDMA_WRITE_IMM ? (uint32_t)rnd() : 0;
	n = rnd_below(4) ? 1 : rnd_below(MOST + 1);
	for (i = 0; i < n; i++) {
		uint32_t most = rnd_below(2) ? 16 : (900 - total) / (n - i);
		struct ibv_sge s = {inl ? (uintptr_t)data + rnd_below(64) : rnd(), rnd_below(8) ? rnd_below(most + 1) : 0,
				    inl ? 0 : (uint32_t)rnd()};

		if (!inl && s.length && rnd_below(4) == 0)
			s.length = (uint32_t)rnd() & 0x7fffffff;
		total += inl ? s.length : 0;
		r->sge[i] = s;
		r->iov[i].iov_base = (void *)(uintptr_t)s.addr;
		r->iov[i].iov_len = s.length;
		r->lkeys[i] = s.lkey;
		if (s.length)
			r->want[r->num++] = s;
	}
	r->flags |= inl ? INLAY_INLINE : 0;
	switch (n == 1 ? rnd_below(3) : rnd_below(2)) {
	case 0:
		r->wr.sge = r->sge;
		r->wr.num_sge = n;
		break;
	case 1:
		r->list.iov = r->iov;
		r->list.num = n;
		r->list.lkeys = r->lkeys;
		r->wr.iov = &r->list;
		break;
	default: r->wr = wr_piece(r->wr, r->sge);
	}
}

static void pieces_same(const struct request *r, const struct inlay_decoded *d)
{
	uint8_t got[1024], want[1024];
	uint32_t i, n, len;

	if (!(r->flags & INLAY_INLINE)) {
		assert_int_equal(d->wr.num_sge, r->num);
		for (i = 0; i < r->num; i++)
			assert_memory_equal(&d->sge[i], &r->want[i], sizeof(r->want[i]));
		return;
	}
	for (i = n = 0; i < r->num; n += r->want[i++].length)
		memcpy(want + n, (const void *)(uintptr_t)r->want[i].addr, r->want[i].length);
	for (i = len = 0; i < d->wr.num_sge; len += d->sge[i++].length)
		memcpy(got + len, (const void *)(uintptr_t)d->sge[i].addr, d->sge[i].length);
	assert_int_equal(len, n);
	assert_memory_equal(got, want, n);
}

TEST(requests)
{
	uint64_t i, max = cases(), wrapped = 0, refused = 0;
	struct inlay_decoded d;
	struct request r;

	fill(data, sizeof(data), 11);
	for (i = 0; i < max; i++) {
		uint32_t bbs = 1u << rnd_below(7), index = (uint32_t)rnd(), flags;
		int err;

		request_random(&r);
		sq_make(bbs, r.type, index);
		err = inlay_post(&sq, r.opcode, &r.wr, r.flags);
		if (err) { /* longer than the ring */
			refused++;
			continue;
		}
		assert_int_equal(inlay_wqe_decode(ring, bbs, index, r.type, &d), inlay_sq_pending(&sq));
		wrapped += (index & (bbs - 1)) + inlay_sq_pending(&sq) > bbs;
		flags = r.flags & ~(r.num ? 0 : INLAY_INLINE);
		assert_true(d.is_request && d.opcode == r.opcode && d.flags == flags && !d.opmod);
		assert_true(d.qpn == inlay_sq_qpn(&sq) && d.index == (index & 0xffff));
		assert_true(d.wr.raddr == r.wr.raddr && d.wr.rkey == r.wr.rkey && d.wr.imm_be == r.wr.imm_be && !d.wr.to == !r.wr.to);
		if (d.wr.to)
			assert_memory_equal(d.wr.to, &r.to, 16 * inlay_av_ds(&r.to));
		pieces_same(&r, &d);
		must(decoded_again(&d, ring, again, bbs, r.type));
	}
	print_message("# %llu requests, %llu wrapped, %llu did not fit\n", (unsigned long long)max, (unsigned long long)wrapped,
		      (unsigned long long)refused);
	assert_true(max < 1000 || (wrapped > max / 50 && refused < max / 3));
}

/* ---- Other WQEs ---- */

enum other { CAS, FAA, FAA_TO, CS_8, FA_8, FA_4, COPY, PACKET, MANY, BIND, SIGN, TABLE, PSV, RAW_SEND, READ_INLINE, TWO_INLINE, LATE_INLINE, EMPTY_DATA, OTHERS };

static const struct {
	uint32_t type, opcode;
	uint8_t segments[16]; /* kind, units, and so on */
} others[OTHERS] = {
	{IBV_QPT_RC, MLX5_OPCODE_ATOMIC_CS, {INLAY_SEGMENT_RADDR, 1, INLAY_SEGMENT_ATOMIC, 1, INLAY_SEGMENT_DATA, 1}},
	{IBV_QPT_RC, MLX5_OPCODE_ATOMIC_FA, {INLAY_SEGMENT_RADDR, 1, INLAY_SEGMENT_ATOMIC, 1, INLAY_SEGMENT_DATA, 1}},
	{IBV_QPT_DRIVER, MLX5_OPCODE_ATOMIC_FA,
	 {INLAY_SEGMENT_AV, 3, INLAY_SEGMENT_RADDR, 1, INLAY_SEGMENT_ATOMIC, 1, INLAY_SEGMENT_DATA, 1}},
	{IBV_QPT_RC, MLX5_OPCODE_ATOMIC_MASKED_CS, {INLAY_SEGMENT_RADDR, 1, INLAY_SEGMENT_MASKED, 2, INLAY_SEGMENT_DATA, 1}},
	{IBV_QPT_RC, MLX5_OPCODE_ATOMIC_MASKED_FA, {INLAY_SEGMENT_RADDR, 1, INLAY_SEGMENT_MASKED, 1, INLAY_SEGMENT_DATA, 1}},
	{IBV_QPT_RC, MLX5_OPCODE_ATOMIC_MASKED_FA, {INLAY_SEGMENT_RADDR, 1, INLAY_SEGMENT_MASKED, 1, INLAY_SEGMENT_DATA, 1}},
	{IBV_QPT_RC, MLX5_OPCODE_MMO, {INLAY_SEGMENT_SCRATCH, 1, INLAY_SEGMENT_DATA, 1, INLAY_SEGMENT_DATA, 1}},
	{IBV_QPT_RAW_PACKET, MLX5_OPCODE_TSO, {INLAY_SEGMENT_ETH, 5, INLAY_SEGMENT_DATA, 1}},
	{IBV_QPT_RAW_PACKET, INLAY_OPCODE_MULTI_PACKET, {INLAY_SEGMENT_ETH, 1, INLAY_SEGMENT_INLINE, 2, INLAY_SEGMENT_DATA, 1}},
	{IBV_QPT_RC, MLX5_OPCODE_UMR, {INLAY_SEGMENT_UMR, 3, INLAY_SEGMENT_MKEY, 4, INLAY_SEGMENT_KLM, 4}},
	{IBV_QPT_RC, MLX5_OPCODE_UMR, {INLAY_SEGMENT_UMR, 3, INLAY_SEGMENT_MKEY, 4, INLAY_SEGMENT_KLM, 4, INLAY_SEGMENT_BSF, 4}},
	{IBV_QPT_RC, MLX5_OPCODE_UMR, {INLAY_SEGMENT_UMR, 3, INLAY_SEGMENT_MKEY, 4, INLAY_SEGMENT_DATA, 1}},
	{IBV_QPT_RC, MLX5_OPCODE_SET_PSV, {INLAY_SEGMENT_PSV, 1}},
	{IBV_QPT_RAW_PACKET, MLX5_OPCODE_SEND, {INLAY_SEGMENT_ETH, 1, INLAY_SEGMENT_DATA, 1}},
	{IBV_QPT_RC, MLX5_OPCODE_RDMA_READ, {INLAY_SEGMENT_RADDR, 1, INLAY_SEGMENT_INLINE, 1}},
	{IBV_QPT_RC, MLX5_OPCODE_SEND, {INLAY_SEGMENT_INLINE, 2, INLAY_SEGMENT_INLINE, 1}},
	{IBV_QPT_RC, MLX5_OPCODE_SEND, {INLAY_SEGMENT_DATA, 1, INLAY_SEGMENT_INLINE, 1}},
	{IBV_QPT_RC, MLX5_OPCODE_SEND, {INLAY_SEGMENT_DATA, 1, INLAY_SEGMENT_DATA, 1}},
};

static struct inlay_cursor hand(struct inlay_cursor at, enum other other)
{
	struct ibv_sge memory[3] = {{0x1000, 64, 7}, {0x2000, 64, 8}, {0x3000, 64, 9}};
	struct inlay_umr umr;
	uint32_t zero = 0;

	switch (other) {
	case PACKET: return inlay_seg_data(inlay_seg_eth(at, inlay_eth_mss(inlay_eth_csum(0), 100), data, 54), 0x1000, 64, 7);
	case MANY: return inlay_seg_data(inlay_seg_inline(inlay_seg_eth(at, inlay_eth_csum(0), NULL, 0), data, 20), 0x1000, 64, 7);
	case RAW_SEND: return inlay_seg_data(inlay_seg_eth(at, inlay_eth_vlan(inlay_eth_csum(0), 5, 1), NULL, 0), 0x1000, 64, 7);
	case BIND:
	case SIGN:
	case TABLE:
		memset(&umr, 0, sizeof(umr));
		if (other == TABLE)
			umr.table = memory[0];
		else
			umr.list = memory;
		umr.entries = other == TABLE ? 0 : 3;
		umr.bsf = other == SIGN ? data : NULL;
		return inlay_seg_umr(at, &umr);
	case PSV: return inlay_seg_psv_(at, 5, 6);
	case READ_INLINE: return inlay_seg_inline(inlay_seg_raddr(at, 1, 2), data, 4);
	case TWO_INLINE: return inlay_seg_inline(inlay_seg_inline(at, data, 13), data, 12);
	case LATE_INLINE: return inlay_seg_inline(inlay_seg_data(at, 1, 2, 3), data, 12);
	default:
		at = inlay_seg_data(at, 1, 2, 3);
		return inlay_seg_data(at, 1, zero, 3); /* the device's 2^31 bytes: inlay_post writes none */
	}
}

static void post_other(enum other other)
{
	struct ibv_sge a = {0x1000, 64, 7}, b = {0x2000, 64, 8}, c = {0x3000, 64, 9}, old = {0x4000, other == FA_4 ? 4u : 8u, 10};
	struct inlay_wr wr = wr_at(wr_sge(&old, 1), 0x5000, 11);
	struct inlay_av to = {};
	struct inlay_cursor at;

	to.av.dqp_dct = inlay_to_be32(0x80000005);
	switch (other) {
	case CAS: must(wr_atomic(&sq, inlay_atomic_cmp_swap(1, 2), wr, INLAY_SIGNALED)); return;
	case FAA: must(wr_atomic(&sq, inlay_atomic_add(1), wr, INLAY_SIGNALED)); return;
	case FAA_TO: must(wr_atomic(&sq, inlay_atomic_add(1), wr_to(wr, &to), INLAY_SIGNALED)); return;
	case CS_8: must(wr_atomic(&sq, inlay_masked_cmp_swap(1, 2, 3, 4), wr, INLAY_SIGNALED)); return;
	case FA_8:
	case FA_4: must(wr_atomic(&sq, inlay_masked_add(1, 2), wr, INLAY_SIGNALED)); return;
	case COPY: must(inlay_post_memcpy(&sq, &a, &b, &c, INLAY_SIGNALED)); return;
	default:
		at = inlay_sq_begin_counted(&sq, 4);
		inlay_sq_commit(&sq, hand(at, other), others[other].opcode, 0, INLAY_SIGNALED, 0);
	}
}

/* At each place of a ring; and then each shorter length, which cuts a segment or leaves some out */
TEST(segments)
{
	struct inlay_decoded d, cut;
	uint32_t other, index, i, ds;
	const uint8_t *want;

	for (other = 0; other < OTHERS; other++)
		for (index = 0; index < 8; index++) {
			sq_make(8, others[other].type, index);
			post_other((enum other)other);
			assert_int_equal(inlay_wqe_decode(ring, 8, index, others[other].type, &d), inlay_sq_pending(&sq));
			assert_true(!d.is_request && d.opcode == others[other].opcode && d.flags == INLAY_SIGNALED);
			assert_int_equal(d.opmod, other == CS_8 || other == FA_8 ? 9 : other == FA_4 ? 8 : other == COPY);
			want = others[other].segments;
			for (i = 0, ds = 1; i < d.num_segments; ds += d.segment[i++].units) {
				assert_int_equal(d.segment[i].kind, want[2 * i]);
				assert_int_equal(d.segment[i].units, want[2 * i + 1]);
				assert_int_equal(d.segment[i].at, ds);
			}
			assert_true(!want[2 * i] && ds == d.ds);
			if (other <= FA_4) {
				assert_true(d.wr.raddr == 0x5000 && d.wr.rkey == 11 && !d.wr.to == (other != FAA_TO));
				assert_true(d.wr.num_sge == 1 && d.sge[0].addr == 0x4000 && d.sge[0].length == (other == FA_4 ? 4 : 8) && d.sge[0].lkey == 10);
			}
			for (ds = 0; ds < d.ds; ds++) {
				inlay_sq_wqe(&sq, index)[7] = (uint8_t)ds;
				if (inlay_wqe_decode(ring, 8, index, others[other].type, &cut) > 0) {
					i = cut.num_segments;
					assert_true(ds && (d.segment[i].at == ds || d.segment[i - 1].kind == INLAY_SEGMENT_BSF));
				} else {
					assert_true(!cut.is_request && cut.num_segments <= d.num_segments);
				}
			}
		}
	assert_int_equal(inlay_wqe_decode(ring, 0, 0, 0, &d), -EINVAL);
	ring[7] = 0;
	assert_int_equal(inlay_wqe_decode(ring, 8, 0, 0, &d), -EPROTO);
	ring[7] = 5;
	assert_int_equal(inlay_wqe_decode(ring, 1, 0, 0, &d), -EPROTO);
	assert_int_equal(d.num_segments, 0);
}

/* Random WQEs and spoiled ones, between pages that nobody may touch: what decodes as a request posts to the same bytes */
TEST(hostile)
{
	uint8_t *zone = (uint8_t *)mmap(NULL, 3 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *at;
	uint64_t i, max = cases(), good = 0, bad = 0;
	struct inlay_decoded d;
	struct request r;
	int n;

	assert_true(zone != MAP_FAILED);
	must(mprotect(zone + 4096, 4096, PROT_READ | PROT_WRITE));
	for (i = 0; i < max; i++) {
		uint32_t bbs = 1u << rnd_below(7), index = (uint32_t)rnd(), k, bytes = bbs * 64;
		uint8_t *wqe;

		request_random(&r);
		sq_make(bbs, r.type, index);
		for (k = 0; k < bytes; k += 8)
			inlay_put64(ring + k, rnd());
		if (inlay_post(&sq, r.opcode, &r.wr, r.flags))
			continue;
		at = i & 1 ? zone + 4096 : zone + 8192 - bytes;
		wqe = inlay_sq_wqe(&sq, index);
		for (k = rnd_below(4); k; k--) {
			if (rnd_below(2))
				wqe[rnd_below(64)] = (uint8_t)rnd();
			else
				wqe[rnd_below(64)] ^= (uint8_t)(1u << rnd_below(8));
		}
		if (rnd_below(8) == 0)
			wqe[7] = (uint8_t)rnd(); /* any length */
		wqe[1] = (uint8_t)(index >> 8);
		wqe[2] = (uint8_t)index;
		memcpy(at, ring, bytes);
		n = inlay_wqe_decode(at, bbs, index, r.type, &d);
		for (k = 0; k < d.num_segments; k++)
			assert_true(d.segment[k].units && d.segment[k].at + d.segment[k].units <= d.ds);
		if (n < 0) {
			assert_true(n == -EPROTO && !d.is_request);
			bad++;
			continue;
		}
		assert_true(n == (int)(d.ds + 3) / 4 && n <= (int)bbs);
		good += d.is_request;
		if (d.is_request && decoded_again(&d, at, again, bbs, r.type)) {
			inlay_wqe_print(stderr, at, bytes, index, r.type);
			inlay_wqe_print(stderr, again, bytes, index, r.type);
			fail();
		}
	}
	print_message("# %llu are requests, %llu are no WQEs\n", (unsigned long long)good, (unsigned long long)bad);
	assert_true(max < 1000 || (good > max / 5 && bad > max / 50));
	must(munmap(zone, 3 * 4096));
}

/* libmlx5's WQEs (tests/golden/golden.txt): those of inlay_post are requests, which write the same bytes. What libmlx5 leaves alone is 0 */
TEST(golden)
{
	static const struct { const char *name; uint32_t type; } names[] = {
		{"RC", IBV_QPT_RC}, {"UC", IBV_QPT_UC}, {"UD", IBV_QPT_UD}, {"XRC", IBV_QPT_XRC_SEND}, {"DC", IBV_QPT_DRIVER},
		{"RAW", IBV_QPT_RAW_PACKET},
	};
	FILE *f = made(fopen("tests/golden/golden.txt", "re"));
	uint32_t n = 0, again_n = 0, i, index, k, byte;
	char line[4096], type[8];
	struct inlay_decoded d;
	const char *at;

	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "wqe qp=%7s op=%*s index=%u", type, &index) != 2)
			continue;
		for (k = 0; strcmp(names[k].name, type); k++)
			assert_true(k + 1 < ARRAY(names));
		memset(ring, 0, sizeof(ring));
		at = strstr(line, " bytes=") + 7;
		for (i = 0; at[2 * i] != '\n'; i++) {
			byte = 0;
			assert_true(at[2 * i] == '.' || sscanf(at + 2 * i, "%2x", &byte) == 1);
			ring[(index * 64 + i) % sizeof(ring)] = (uint8_t)byte;
		}
		assert_int_equal(inlay_wqe_decode(ring, 64, index, names[k].type, &d), (i + 63) / 64);
		assert_int_equal(d.is_request, names[k].type != IBV_QPT_RAW_PACKET && !strstr(line, "op=ATOMIC") && !strstr(line, "op=MASKED") &&
						       !strstr(line, "op=UMR"));
		assert_int_equal(!!(d.flags & INLAY_SIGNALED), !!strstr(line, " signaled=1"));
		if (d.is_request)
			must(decoded_again(&d, ring, again, 64, names[k].type));
		again_n += d.is_request;
		n++;
	}
	assert_true(n == 1570 && again_n > 1000);
	fclose(f);
}

int main(void)
{
	return run_all(open_nothing, NULL);
}
