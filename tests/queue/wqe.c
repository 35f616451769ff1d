/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wqe.c: the encoders, the cursor, the copy and the printer of wqe.h. No device: what is expected is written down here from mlx5dv.h's
 * structs, or modelled byte by byte.
 */
#include "rig.h"
#include <endian.h>
#include <sys/mman.h>

/* Flags of a post, any of them with one fence at most; *fm_ce_se: what they are to be in the last byte */
static uint32_t some_flags(uint8_t *fm_ce_se)
{
	static const uint32_t fences[] = {0, INLAY_FENCE_INITIATOR_SMALL, INLAY_FENCE, INLAY_FENCE_STRONG, INLAY_FENCE_SMALL_AND_FENCE};
	uint32_t mode = rnd_below(5), more = rnd_below(16);

	*fm_ce_se = (uint8_t)(mode << 5 | (more & 1 ? MLX5_WQE_CTRL_CQ_UPDATE : 0) | (more & 2 ? MLX5_WQE_CTRL_SOLICITED : 0));
	return fences[mode] | (more & 1 ? INLAY_SIGNALED : 0) | (more & 2 ? INLAY_SOLICITED : 0) | (more & 4 ? INLAY_INLINE : 0) |
	       (more & 8 ? INLAY_RING : 0);
}

/* Random fields, all 16 bytes and no other; with a stream too, which is a flag whose place mlx5dv.h knows */
TEST(ctrl)
{
	uint8_t mem[48] __attribute__((aligned(16)));
	struct mlx5_wqe_ctrl_seg want;

	for (int i = 0; i < 100000; i++) {
		uint32_t index = (uint32_t)rnd(), qpn = (uint32_t)rnd() & 0xffffff, ds = 1 + rnd_below(63), imm = (uint32_t)rnd(), flags;
		uint8_t opcode = (uint8_t)rnd(), opmod = (uint8_t)rnd(), old = (uint8_t)rnd();

		memset(&want, 0, sizeof(want));
		flags = some_flags(&want.fm_ce_se);
		if (i & 1) {
			want.dci_stream_channel_id = htobe16((uint16_t)(i / 2));
			want.fm_ce_se &= (uint8_t)~0xe0;
			flags = INLAY_STREAM(i / 2 & 0xffff) | (flags & (INLAY_SIGNALED | INLAY_SOLICITED | INLAY_INLINE | INLAY_RING));
		}
		assert_true(inlay_flags_ok_(flags));
		want.opmod_idx_opcode = htobe32((uint32_t)opmod << 24 | (index & 0xffff) << 8 | opcode);
		want.qpn_ds = htobe32(qpn << 8 | ds);
		want.imm = imm;
		memset(mem, old, sizeof(mem));
		inlay_wqe_ctrl(mem + 16, index, (uint32_t)opmod << 24 | opcode, (uint64_t)qpn << 8, ds, flags, imm);
		assert_memory_equal(mem + 16, &want, 16);
		assert_true(all_bytes(mem, 16, old) && all_bytes(mem + 32, 16, old));
	}
}

/* No flag of verbs is inlay's, alone or not; what is not made of the seven flags is none, nor are two fences */
TEST(flags)
{
	static const uint32_t fences[] = {INLAY_FENCE_INITIATOR_SMALL, INLAY_FENCE, INLAY_FENCE_STRONG, INLAY_FENCE_SMALL_AND_FENCE};
	const uint32_t others = INLAY_SIGNALED | INLAY_SOLICITED | INLAY_INLINE | INLAY_RING;
	uint32_t i, k, f;
	uint8_t last;

	assert_int_equal(INLAY_SIGNALED >> 24, MLX5_WQE_CTRL_CQ_UPDATE);
	assert_int_equal(INLAY_SOLICITED >> 24, MLX5_WQE_CTRL_SOLICITED);
	assert_int_equal(INLAY_FENCE_SMALL_AND_FENCE >> 24, MLX5_WQE_CTRL_FENCE);
	assert_int_equal(INLAY_FENCE_INITIATOR_SMALL >> 24, MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE);
	assert_int_equal(INLAY_FENCE >> 24, 0x40);
	assert_int_equal(INLAY_FENCE_STRONG >> 24, 0x60);
	assert_int_equal((INLAY_INLINE | INLAY_RING) >> 24, 0);
	/* All of IBV_SEND_*, IBV_ACCESS_* and what may be added to them, the latter's optional bits excepted */
	for (i = 1; i < 1 << 16; i++)
		assert_false(inlay_flags_ok_(i) || inlay_flags_ok_(i | others) || inlay_flags_ok_(i | INLAY_FENCE));
	for (i = 0; i < 4; i++)
		for (k = 0; k < 4; k++)
			assert_int_equal(inlay_flags_ok_(fences[i] | fences[k]), i == k);
	for (i = 0; i < 500000; i++) {
		f = rnd_below(4) ? some_flags(&last) ^ (rnd_below(2) ? 1u << rnd_below(32) : 0) : (uint32_t)rnd();
		for (k = 0; k < 4 && (f & ~others) != fences[k]; k++)
			;
		assert_int_equal(inlay_flags_ok_(f), k < 4 || !(f & ~others) || (f & 1u << 21 && inlay_flags_ok_(f & ~0x20ffffu)));
	}
}

/* Two pages between two that nobody may touch */
static uint8_t *red_zones(void)
{
	uint8_t *p = (uint8_t *)mmap(NULL, 4 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	must(mprotect(p + 4096, 2 * 4096, PROT_READ | PROT_WRITE));
	return p + 4096;
}

/* Any length and alignment, at either end of memory that nobody may leave: neither a load nor a store does, nor a byte beside it */
TEST(copy)
{
	uint8_t *from = red_zones(), *to = red_zones(), want[1300];
	size_t len, a, b, all;

	for (len = 0; len <= 1100; len++)
		for (a = 0; a < 64; a += len < 160 ? 1 : 5)
			for (b = 0; b < 64; b += len < 160 ? 1 : 7) {
				uint8_t *f = b < 32 ? from + b : from + 8192 + 32 - b - len, *t;

				all = len + a % 32;
				t = a < 32 ? to : to + 8192 - all;
				memset(t, 0xa5, all);
				memset(want, 0xa5, all);
				fill(f, len, (uint32_t)(len + b));
				memcpy(want + (a < 32 ? a : 0), f, len);
				inlay_copy(t + (a < 32 ? a : 0), f, len);
				assert_memory_equal(t, want, all);
			}
	must(munmap(from - 4096, 4 * 4096));
	must(munmap(to - 4096, 4 * 4096));
}

enum kind { RADDR, ATOMIC, DATA, SGES, INLINE, INLINEV, OPEN, KINDS };

/* A ring with what lies around it, and the model: what it should hold */
struct ring {
	uint8_t mem[64 + 1024 + 64] __attribute__((aligned(64)));
	uint8_t want[64 + 1024 + 64];
	uint32_t bytes, start; /* start: of the WQE, a byte offset */
	uint32_t at;           /* bytes the model has written, from start on */
	struct inlay_cursor c;
};

static void ring_begin(struct ring *r, uint32_t bbs, uint32_t index)
{
	memset(r->mem, 0xa5, sizeof(r->mem));
	memset(r->want, 0xa5, sizeof(r->want));
	r->bytes = bbs * 64;
	r->start = index % bbs * 64;
	r->at = 16;
	r->c.begin = r->mem + 64;
	r->c.end = r->c.begin + r->bytes;
	r->c.wqe = r->c.begin + r->start;
	r->c.at = r->c.wqe + 16;
	r->c.index = index;
	r->c.ds = 1;
	r->c.bbs = bbs;
	r->c.fill = r->c.at;
	r->c.left = 0;
}

static void model_put(struct ring *r, const void *data, uint32_t len)
{
	const uint8_t *p = (const uint8_t *)data;

	for (uint32_t i = 0; i < len; i++)
		r->want[64 + (r->start + r->at++) % r->bytes] = p[i];
}

static void model_align(struct ring *r)
{
	r->at = (r->at + 15) & ~15u; /* padding keeps what the ring held */
}

static void ring_same(const struct ring *r)
{
	assert_memory_equal(r->mem, r->want, sizeof(r->mem));
	assert_int_equal(r->c.ds, r->at / 16);
	/* Where the next segment would go: the end and the beginning are the same place */
	assert_int_equal((uint32_t)(r->c.at - r->c.begin) % r->bytes, (r->start + r->at) % r->bytes);
	assert_true(r->c.at >= r->c.begin && r->c.at <= r->c.end);
}

static void put_data(struct ring *r, uint64_t addr, uint32_t len, uint32_t lkey)
{
	struct mlx5_wqe_data_seg seg = {htobe32(len), htobe32(lkey), htobe64(addr)};

	model_put(r, &seg, sizeof(seg));
}

static uint8_t payload[1024];

/* An open segment whose first `head` bytes are written in place, the others in pieces of any size, empty ones among them */
static struct inlay_cursor open_and_fill(struct inlay_cursor c, uint32_t len, uint32_t head)
{
	uint32_t done, n;
	uint8_t *p;

	c = inlay_seg_inline_open(c, len, head, &p);
	assert_true(p + head <= c.end);
	memcpy(p, payload, head);
	for (done = head; done < len; done += n) {
		n = rnd_below(4) ? 1 + rnd_below(len - done) : rnd_below(2);
		assert_int_equal(c.left, len - done);
		c = inlay_seg_inline_append(c, payload + done, n);
	}
	assert_int_equal(c.left, 0);
	return c;
}

/* Appends a segment of that kind, len payload bytes where it has any, to ring and model */
static void append(struct ring *r, enum kind kind, uint32_t len)
{
	uint64_t a = rnd(), b = rnd();
	uint32_t key = (uint32_t)rnd(), head = htobe32(len | 0x80000000), part, i, n;
	struct mlx5_wqe_atomic_seg atomic = {htobe64(a), htobe64(b)};
	const struct inlay_atomic swap = inlay_atomic_cmp_swap(b, a);
	struct mlx5_wqe_raddr_seg raddr = {htobe64(a), htobe32(key), 0};
	struct ibv_sge sge[6];

	switch (kind) {
	case RADDR: r->c = inlay_seg_raddr(r->c, a, key); model_put(r, &raddr, sizeof(raddr)); break;
	case ATOMIC: r->c = inlay_seg_atomic(r->c, 8, &swap); model_put(r, &atomic, sizeof(atomic)); break;
	case DATA: r->c = inlay_seg_data(r->c, a, len + 1, key); put_data(r, a, len + 1, key); break;
	case SGES: /* an empty one, a full one, two empty ones */
		memset(sge, 0, sizeof(sge));
		sge[1].addr = a;
		sge[1].length = len + 1;
		sge[1].lkey = key;
		r->c = inlay_seg_sges(r->c, sge, 4);
		put_data(r, a, len + 1, key);
		break;
	default:
		fill(payload, len, (uint32_t)a);
		for (i = n = 0; i < 6; i++, n += part) { /* six pieces of any length, empty ones among them */
			part = i == 5 ? len - n : rnd_below(3) ? rnd_below(len - n + 1) : 0;
			sge[i].addr = (uintptr_t)payload + n;
			sge[i].length = part;
			sge[i].lkey = 0;
		}
		r->c = kind == INLINEV ? inlay_seg_inlinev(r->c, sge, 6, len) : kind == INLINE || !len ? inlay_seg_inline(r->c, payload, len) :
			open_and_fill(r->c, len, rnd_below((len < 12 ? len : 12) + 1));
		if (len) {
			model_put(r, &head, 4);
			model_put(r, payload, len);
			model_align(r);
		}
	}
}

/* The Ethernet segment comes first, and its header may wrap. Of a short header libmlx5 clears 18 bytes */
static void append_eth(struct ring *r)
{
	uint32_t most = r->bytes - 30 < 255 ? r->bytes - 30 : 255, len = rnd_below(4) ? 14 + rnd_below(most - 13) : 0, zero = 0;
	struct inlay_eth eth = inlay_eth_mss(inlay_eth_csum(0xf0), 0x1234);
	uint16_t size = htobe16((uint16_t)len);

	fill(payload, len, len);
	r->c = inlay_seg_eth(r->c, eth, len ? payload : NULL, len);
	model_put(r, &eth, len ? 12 : 16);
	if (len) {
		model_put(r, &size, 2);
		model_put(r, payload, len);
		model_put(r, &zero, len < 18 ? 18 - len : 0);
	}
	model_align(r);
}

/* Random WQEs of many segments, which start at any place of the ring and go to its last unit */
TEST(cursor)
{
	struct ring r;

	for (int i = 0; i < 200000; i++) {
		ring_begin(&r, 1u << rnd_below(5), (uint32_t)rnd());
		if (rnd_below(2))
			append_eth(&r);
		while (r.at + 16 <= r.bytes) {
			uint32_t kind = rnd_below(KINDS), left = r.bytes - r.at;

			append(&r, (enum kind)kind, kind < INLINE ? 1 : rnd_below(left - 3));
		}
		ring_same(&r);
	}
}

static char *printed(const void *ring, uint32_t bytes, uint32_t index, uint32_t type)
{
	char *text = NULL;
	size_t len;
	FILE *out = made(open_memstream(&text, &len));

	inlay_wqe_print(out, ring, bytes, index, type);
	fclose(out);
	return text;
}

#define CTRL_IS(opcode, index, opmod, qpn, ds, fm, ce, se, imm) "ctrl    " opcode " index " index " opmod " opmod " qpn " qpn \
	" ds " ds " sig 0x0 fm " fm " ce " ce " se " se " imm " imm
#define AV_2 "av      MAC, traffic class, hop limit, flow label", "av      GID"

/* A WQE at `index` of a ring, and what its units are said to be; the last that is written here is said of all that follow */
static const struct { uint32_t type, bytes, index; const char *notes[12]; uint32_t words[32]; } golden[] = {
	{0, 64, 0x123, {CTRL_IS("RDMA_WRITE", "291", "0x0", "0xabcd", "4", "0", "2", "0", "0x0"), "raddr   0x00007f0012345678 rkey 0xcafe",
			"inline  16 bytes", "payload"},
	 {0x00012308, 0x00abcd04, 0x00000008, 0, 0x00007f00, 0x12345678, 0xcafe, 0, 0x80000010, 0x61626364, 0x65666768, 0x696a6b6c, 0x6d6e6f70}},
	{0, 64, 0xffffffff, {CTRL_IS("ATOMIC_CS", "65535", "0x0", "0x40", "4", "2", "2", "0", "0x0"), "raddr   0x0000000000001000 rkey 0x11",
			     "atomic  swap_add 0x0000000100000002 compare 0x0000000300000004",
			     "data    8 bytes lkey 0x22 addr 0x0000000000002000"},
	 {0x00ffff11, 0x00004004, 0x00000048, 0, 0, 0x1000, 0x11, 0, 1, 2, 3, 4, 8, 0x22, 0, 0x2000}},
	/* Wraps: the fourth and fifth data segment lie at the ring's beginning */
	{0, 128, 3, {CTRL_IS("SEND_IMM", "512", "0x0", "0x40", "6", "4", "0", "1", "0x1020304"), "data    1 bytes lkey 0x33 addr 0x0000000000008000",
		     "data    2 bytes lkey 0x33 addr 0x0000000000008001", "data    3 bytes lkey 0x33 addr 0x0000000000008002",
		     "data    8 bytes lkey 0x33 addr 0x0000000000009000", "data    16 bytes lkey 0x33 addr 0xfffffffffffffff0"},
	 {8, 0x33, 0, 0x9000, 16, 0x33, 0xffffffff, 0xfffffff0, 0, 0, 0, 0, 0, 0, 0, 0,
	  0x0002000b, 0x00004006, 0x00000082, 0x01020304, 1, 0x33, 0, 0x8000, 2, 0x33, 0, 0x8001, 3, 0x33, 0, 0x8002}},
	{0, 64, 7, {"ctrl    unknown opcode index 0 opmod 0xff qpn 0xffffff ds 2 sig 0xff fm 7 ce 3 se 1 imm 0xffffffff", "inline  2147483647 bytes"},
	 {0xff000077, 0xffffff02, 0xff0000ff, 0xffffffff, 0xffffffff, 1, 2, 3}},
	{0, 64, 0, {CTRL_IS("NOP", "0", "0x0", "0x0", "0", "0", "0", "0", "0x0")}, {0}},
	/* Extended atomics, waits, copies */
	{0, 128, 0, {CTRL_IS("ATOMIC_MASKED_CS", "0", "0x9", "0x5", "5", "0", "0", "0", "0x0"), "raddr   0x0000000100000002 rkey 0x3",
		     "swap, compare, their masks", "swap, compare, their masks", "data    8 bytes lkey 0x33 addr 0x0000000000000010"},
	 {0x09000014, 0x505, 0, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 0x33, 0, 0x10}},
	{0, 128, 0, {CTRL_IS("ATOMIC_MASKED_FA", "0", "0x9", "0x5", "4", "0", "0", "0", "0x0"), "raddr   0x0000000100000002 rkey 0x3", "add, boundary",
		     "data    8 bytes lkey 0x33 addr 0x0000000000000010"},
	 {0x09000015, 0x504, 0, 0, 1, 2, 3, 0, 1, 2, 3, 4, 8, 0x33, 0, 0x10}},
	{0, 128, 0, {CTRL_IS("WAIT", "0", "0x1", "0x5", "3", "0", "0", "0", "0x0"), "wait    condition 0x11 lkey 0x33 addr 0x0000000000000010",
		     "wait    value 0x0000000100000002 mask 0x0000000300000004"},
	 {0x0100000f, 0x503, 0, 0, 0x11, 0x33, 0, 0x10, 1, 2, 3, 4}},
	{0, 128, 0, {CTRL_IS("WAIT", "0", "0x0", "0x5", "2", "0", "0", "0", "0x0"), "queue   cqn 0x44 index 9"},
	 {0x0000000f, 0x502, 0, 0, 0, 0, 9, 0x44}},
	{0, 128, 0, {CTRL_IS("MMO", "0", "0x1", "0x5", "4", "0", "0", "0", "0x0"), "scratch lkey 0x33 addr 0x0000000000000040",
		     "data    0 bytes lkey 0x0 addr 0x0000000000000000"},
	 {0x0100002f, 0x504, 0, 0, 0, 0x33, 0, 0x40}},
	{0, 128, 0, {CTRL_IS("SET_PSV", "0", "0x0", "0x5", "2", "0", "0", "0", "0x0"), "psv     0x44 begins with 0x0000001100000022"},
	 {0x00000020, 0x502, 0, 0, 0x44, 0, 0x11, 0x22}},
	/* Packets */
	{IBV_QPT_RAW_PACKET, 128, 0, {CTRL_IS("SEND", "0", "0x0", "0x5", "3", "0", "0", "0", "0x0"),
				      "eth     checks 0xc0 mss 0 metadata 0x7 tag 0x88a8 0x0005", "data    60 bytes lkey 0x33 addr 0x0000000000000010"},
	 {0x0000000a, 0x503, 0, 0, 0, 0xc0000000, 7, 0x80010005, 60, 0x33, 0, 0x10}},
	{0, 128, 0, {CTRL_IS("TSO", "0", "0x0", "0x5", "5", "0", "0", "0", "0x0"), "eth     checks 0x40 mss 1460 metadata 0x0 header 18 bytes", "payload",
		     "data    5 bytes lkey 0x6 addr 0x0000000700000008", "data    9 bytes lkey 0x33 addr 0x0000000000000010"},
	 {0x0000000e, 0x505, 0, 0, 0, 0x400005b4, 0, 0x00120200, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0x33, 0, 0x10}},
	{0, 128, 0, {CTRL_IS("MULTI_PACKET", "0", "0x0", "0x5", "4", "0", "0", "0", "0x0"),
		     "eth     checks 0x80 mss 0 metadata 0x0 header 0 bytes parsed 0x11223344 flags 0x21", "inline  10 bytes",
		     "data    60 bytes lkey 0x33 addr 0x0000000000000010"},
	 {0x00000029, 0x504, 0, 0, 0x11223344, 0x80210000, 0, 0, 0x8000000a, 1, 2, 3, 60, 0x33, 0, 0x10}},
	/* A UD queue's, and a change of a window's key */
	{IBV_QPT_UD, 128, 0, {CTRL_IS("SEND", "2", "0x0", "0x47", "6", "0", "2", "1", "0x0"), "av      qkey 0x11223344 qpn 0x12ab sl 5 lid 4660", AV_2,
			      "data    64 bytes lkey 0x33 addr 0x0000000000008000", "inline  3 bytes"},
	 {0x0000020a, 0x00004706, 0x0000000a, 0, 0x11223344, 0, 0x800012ab, 0x05001234, 0xaabb, 0xccddeeff, 0x40, 0x80000001,
	  0xfe800000, 0, 0, 1, 64, 0x33, 0, 0x8000, 0x80000003, 0x61626300}},
	{0, 192, 0, {CTRL_IS("UMR", "0", "0x0", "0x47", "12", "0", "2", "0", "0x1100"), "umr", "umr", "umr", "mkey", "mkey", "mkey", "mkey", "klm", "klm",
		     "klm", "bsf"},
	 {0x00000025, 0x0000470c, 0x00000008, 0x1100, 0xb0000000, 0x00030000, 0, 0x203c6041}},
	/* WQEs with a destination: of a DCI in both forms, of an XRC QP; a NOP has none */
	{IBV_QPT_DRIVER, 128, 0, {CTRL_IS("ATOMIC_CS", "2", "0x0", "0x47", "7", "0", "2", "0", "0x0"),
				  "av      key 0x1122334455667788 dctn 0x12ab sl 5 lid 4660", AV_2, "raddr   0x0000000000001000 rkey 0x11",
				  "atomic  swap_add 0x0000000100000002 compare 0x0000000300000004",
				  "data    8 bytes lkey 0x22 addr 0x0000000000002000"},
	 {0x00000211, 0x00004707, 0x00000508, 0, 0x11223344, 0x55667788, 0x800012ab, 0x05001234, 0xaabb, 0xccddeeff, 0x40, 0x80000001,
	  0xfe800000, 0, 0, 1, 0, 0x1000, 0x11, 0, 1, 2, 3, 4, 8, 0x22, 0, 0x2000}},
	{IBV_QPT_DRIVER, 64, 0, {CTRL_IS("SEND", "2", "0x0", "0x47", "3", "0", "2", "0", "0x0"),
				 "av      key 0x1122334455667788 dctn 0x12ab sl 5 lid 4660", "data    64 bytes lkey 0x33 addr 0x0000000000008000"},
	 {0x0000020a, 0x00004703, 0x00000008, 0, 0x11223344, 0x55667788, 0x000012ab, 0x05001234, 64, 0x33, 0, 0x8000}},
	{IBV_QPT_DRIVER, 64, 0, {CTRL_IS("NOP", "0", "0x0", "0x47", "1", "0", "2", "0", "0x0")}, {0, 0x4701, 8, 0}},
	{IBV_QPT_XRC_SEND, 64, 0, {CTRL_IS("RDMA_WRITE", "2", "0x0", "0x47", "4", "0", "2", "0", "0x0"), "xrc     srqn 0xabcdef",
				   "raddr   0x00007f0012345678 rkey 0xcafe", "data    64 bytes lkey 0x33 addr 0x0000000000008000"},
	 {0x00000208, 0x00004704, 0x00000008, 0, 0x00abcdef, 0, 0, 0, 0x00007f00, 0x12345678, 0xcafe, 0, 64, 0x33, 0, 0x8000}},
};

static const char malformed[] = "  malformed: a length or a segment does not fit\n";

TEST(print_golden)
{
	struct inlay_decoded d;
	static const uint32_t sizes[] = {0, 1, 63, 65, 96, 127, 0xffffffff};
	uint32_t i, k, unit, at, len;
	char want[2000], *text;

	for (i = 0; i < ARRAY(golden); i++) {
		uint32_t ring[48] = {0};
		const char *note = golden[i].notes[0];

		for (k = 0; k < ARRAY(golden[i].words); k++)
			ring[k] = htobe32(golden[i].words[k]);
		at = golden[i].index % (golden[i].bytes / 64) * 16;
		for (unit = len = 0; !unit || unit < (golden[i].words[at + 1] & 63); unit++) {
			const uint32_t *w = ring + (at + unit * 4) % (golden[i].bytes / 4);

			note = golden[i].notes[unit] ? golden[i].notes[unit] : note;
			len += (uint32_t)snprintf(want + len, sizeof(want) - len, "  +%-4u %08x %08x %08x %08x  %s\n", unit * 16, be32toh(w[0]),
						  be32toh(w[1]), be32toh(w[2]), be32toh(w[3]), note);
		}
		if (inlay_wqe_decode(ring, golden[i].bytes / 64, golden[i].index, golden[i].type, &d) < 0)
			strcat(want, malformed);
		text = printed(ring, golden[i].bytes, golden[i].index, golden[i].type);
		assert_string_equal(text, want);
		free(text);
	}
	for (i = 0; i < ARRAY(sizes); i++) {
		/* Not even looked at: nothing is there */
		text = printed((const void *)16, sizes[i], 0, 0);
		snprintf(want, sizeof(want), "wqe: %u bytes are not a ring\n", sizes[i]);
		assert_string_equal(text, want);
		free(text);
	}
}

/* Random bytes between two pages that cannot be read: any line may come out, never more than 63, and no read leaves the ring */
TEST(print_hostile)
{
	uint8_t *mem = red_zones(), *ring;
	struct inlay_decoded d;

	for (int i = 0; i < 3000; i++) {
		uint32_t bytes = 64 * (1 + rnd_below(i % 2 ? 4 : 64)), k, lines = 0, ds, index = (uint32_t)rnd();
		char *text, *p;

		ring = i & 1 ? mem : mem + 8192 - bytes;
		for (k = 0; k < bytes; k++)
			ring[k] = rnd_below(4) ? (uint8_t)rnd() : 0xff;
		ds = ring[(uint64_t)index * 64 % bytes + 7] & 0x3f;
		text = printed(ring, bytes, index, 0);
		for (p = text; *p; p++)
			lines += *p == '\n';
		ds = ds && (ds + 3) / 4 <= bytes / 64 ? ds : 1; /* of what is longer than the ring, the control segment */
		if (inlay_wqe_decode(ring, bytes / 64, index, 0, &d) < 0) {
			assert_non_null(strstr(text, malformed));
			lines--;
		}
		assert_int_equal(lines, ds);
		free(text);
	}
	must(munmap(mem - 4096, 4 * 4096));
}

/* The path is the address handle's, number and key the caller's (libmlx5's: oracle_send.h). Compact: 16 bytes, no bit 31 */
TEST(av)
{
	struct inlay_av made, dct;
	struct mlx5_wqe_av path, want;
	struct ring r;

	for (uint32_t i = 0; i < 2000; i++) {
		const uint32_t number = (uint32_t)rnd() & 0xffffff, qkey = (uint32_t)rnd();
		const uint64_t key = rnd();

		fill(&path, sizeof(path), i);
		memset((uint8_t *)&path + 4, 0, 4);
		inlay_av_init(&made, &path, number, qkey);
		assert_int_equal(inlay_av_ds(&made), 3);
		assert_ptr_equal(inlay_av_long(&made), &made);
		dct = made;
		inlay_av_to_dct(&dct, number ^ 5, key);
		want = path;
		want.key.dc_key = htobe64(key);
		want.dqp_dct = htobe32((number ^ 5) | 1u << 31);
		assert_memory_equal(&dct, &want, sizeof(want));
		dct.av.dqp_dct &= htobe32(~(1u << 31));
		assert_int_equal(inlay_av_ds(&dct), 1);
		/* As a segment, each form */
		ring_begin(&r, 2, i);
		r.c = i & 1 ? inlay_seg_av(r.c, &made, 3) : inlay_seg_av(r.c, &dct, 1);
		model_put(&r, i & 1 ? &made : &dct, i & 1 ? 48 : 16);
		ring_same(&r);
	}
}

TEST(names)
{
	static const struct { uint8_t opcode; const char *name; } known[] = {
		{0x00, "NOP"}, {0x01, "SEND_INVAL"}, {0x08, "RDMA_WRITE"}, {0x09, "RDMA_WRITE_IMM"}, {0x0a, "SEND"}, {0x0b, "SEND_IMM"},
		{0x0e, "TSO"}, {0x0f, "WAIT"}, {0x10, "RDMA_READ"}, {0x11, "ATOMIC_CS"}, {0x12, "ATOMIC_FA"}, {0x14, "ATOMIC_MASKED_CS"},
		{0x15, "ATOMIC_MASKED_FA"}, {0x17, "SEND_EN"}, {0x20, "SET_PSV"}, {0x23, "DUMP"}, {0x25, "UMR"}, {0x29, "MULTI_PACKET"},
		{0x2f, "MMO"}, {0, NULL},
	};
	uint32_t opcode, i = 0;

	for (opcode = 0; opcode < 256; opcode++)
		assert_string_equal(inlay_opcode_name_((uint8_t)opcode),
				    known[i].name && known[i].opcode == opcode ? known[i++].name : "unknown opcode");
}

int main(void)
{
	return run_all(open_nothing, NULL);
}
