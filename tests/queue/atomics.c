/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * atomics.c: extended atomics: their WQEs against a second encoder, their effect on memory against a model that goes bit by bit, and
 * what is refused. libmlx5 posts none of them: the second encoder writes what UCX's rc_mlx5.inl and the
 * libmlx5 of MLNX_OFED 4 write. Environment: ATOMIC_CASES, steps of each random run.
 */
#include "rig.h"
#include <endian.h>

static struct inlay_atomics can;

static uint32_t cases(uint32_t usually)
{
	const char *env = getenv("ATOMIC_CASES");

	return env && *env ? (uint32_t)strtoul(env, NULL, 0) : usually;
}

static bool has(uint32_t size)
{
	return can.sizes & size;
}

static int open_atomics(void **state)
{
	if (dev_open(state))
		return -1;
	if (inlay_atomics_query(&can, dev.ctx, NULL) == -EINVAL)
		return -1;
	/* The software device has 4 to 64 bytes; those of 8 are in host order */
	return softdev_present() && (can.sizes != 0x7c || can.sizes_dc != 0x7c || can.sizes_be != 0x74) ? -1 : 0;
}

enum form { FA32, ADD, SWAP, AND, OR, XOR, CAS, FORMS };

struct op {
	enum form form;
	uint32_t size;
	bool cs;
	uint64_t v[4];          /* swap, compare, swap mask, compare mask; or add, boundary */
};

static uint64_t some(void)
{
	switch (rnd_below(6)) {
	case 0: return 0;
	case 1: return ~UINT64_C(0);
	case 2: return UINT64_C(1) << rnd_below(64);
	case 3: return rnd() & rnd() & rnd();
	default: return rnd();
	}
}

/* now_: the word's value, so that comparisons succeed half of the time */
static void op_random(struct op *o, enum form form, uint32_t size, uint64_t now_)
{
	memset(o, 0, sizeof(*o));
	o->form = form;
	o->size = size;
	o->cs = form == SWAP || form == AND || form == OR || form == CAS;
	for (uint32_t i = 0; i < 4; i++)
		o->v[i] = some();
	switch (form) {
	case FA32: o->v[1] = 0; break;
	case SWAP: o->v[1] = o->v[3] = 0; break;
	case AND: o->v[2] = ~o->v[0]; o->v[1] = o->v[3] = 0; break;
	case OR: o->v[2] = o->v[0]; o->v[1] = o->v[3] = 0; break;
	case XOR: o->v[1] = ~UINT64_C(0); break;
	case CAS: o->v[1] = rnd_below(2) ? now_ ^ (some() & ~o->v[3]) : o->v[1]; break;
	default: break;
	}
}

static int op_post(struct inlay_sq *sq, const struct op *o, uint64_t raddr, uint32_t rkey, const struct ibv_sge *sge, uint32_t flags)
{
	const struct inlay_wr wr = wr_at(wr_sge(sge, 1), raddr, rkey);
	const uint64_t v = o->v[0];

	switch (o->form) {
	case FA32: return wr_atomic(sq, inlay_masked_add(v, 0), wr, flags);
	case ADD: return wr_atomic(sq, inlay_masked_add(v, o->v[1]), wr, flags);
	case SWAP: return wr_atomic(sq, inlay_masked_swap(v, o->v[2]), wr, flags);
	case AND: return wr_atomic(sq, inlay_masked_swap(v, ~v), wr, flags);
	case OR: return wr_atomic(sq, inlay_masked_swap(v, v), wr, flags);
	case XOR: return wr_atomic(sq, inlay_masked_add(v, ~(uint64_t)0), wr, flags);
	default: return wr_atomic(sq, inlay_masked_cmp_swap(o->v[1], o->v[3], v, o->v[2]), wr, flags);
	}
}

/* The same with a size that the compiler knows */
static int op_post_constant(struct inlay_sq *sq, const struct op *o, uint64_t raddr, uint32_t rkey, const struct ibv_sge *sge, uint32_t flags)
{
	struct ibv_sge four = {sge->addr, 4, sge->lkey}, eight = {sge->addr, 8, sge->lkey};

	if (sge->length == 4)
		return op_post(sq, o, raddr, rkey, &four, flags);
	return op_post(sq, o, raddr, rkey, sge->length == 8 ? &eight : sge, flags);
}

/* What becomes of a word, bit by bit from the lowest on */
static uint64_t model(const struct op *o, uint64_t was)
{
	const uint64_t all = ~UINT64_C(0) >> (64 - 8 * o->size);
	uint64_t to = 0, bit, carry = 0;

	if (o->cs && (was ^ o->v[1]) & o->v[3] & all)
		return was;
	for (bit = 1; bit & all; bit <<= 1) {
		int is = !!(was & bit), with = !!(o->v[0] & bit), sum;

		if (o->cs) {
			sum = o->v[2] & bit ? with : is;
		} else {
			sum = is + with + (int)carry;
			carry = o->v[1] & bit ? 0 : (uint64_t)sum >> 1;
		}
		to |= sum & 1 ? bit : 0;
	}
	return to;
}

#define RING_BBS 16u

static uint8_t ring[RING_BBS * 64] __attribute__((aligned(4096))), want[RING_BBS * 64], reg[4096] __attribute__((aligned(4096)));

/* Big-endian, byte by byte, anywhere in the ring */
static uint32_t put_be(uint32_t at, uint64_t value, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		want[(at + i) % sizeof(want)] = (uint8_t)(value >> 8 * (bytes - 1 - i));
	return at + bytes;
}

/* The second encoder. Returns the WQEBBs */
static uint32_t want_wqe(const struct op *o, uint32_t index, uint32_t qpn, uint64_t raddr, uint32_t rkey, const struct ibv_sge *sge,
			 uint8_t fm_ce_se)
{
	const uint32_t count = o->cs ? 4 : 2, body = (count * o->size + 15) / 16, ds = 3 + body, log = (uint32_t)__builtin_ctz(o->size);
	uint32_t at = index * 64, i, end;

	at = put_be(at, 8 | (log - 2), 1);
	at = put_be(at, index & 0xffff, 2);
	at = put_be(at, o->cs ? 0x14 : 0x15, 1);
	at = put_be(at, qpn, 3);
	at = put_be(at, ds, 1);
	at = put_be(at, fm_ce_se, 4);
	at = put_be(at, 0, 4);
	at = put_be(at, raddr, 8);
	at = put_be(at, rkey, 4);
	at = put_be(at, 0, 4);
	end = at + 16 * body;
	for (i = 0; i < count; i++)
		at = put_be(at, o->v[i], o->size);
	while (at < end)
		at = put_be(at, 0, 1);
	at = put_be(at, o->size, 4);
	at = put_be(at, sge->lkey, 4);
	put_be(at, sge->addr, 8);
	return (ds + 3) / 4;
}

/* Every form, every size, at every slot of the ring; what the WQE does not have stays as it was */
TEST(bytes)
{
	static const struct {
		uint32_t flags;
		uint8_t byte;
	} flags[] = {{0, 0}, {INLAY_SIGNALED, 8}, {INLAY_SIGNALED | INLAY_SOLICITED, 10}, {INLAY_FENCE, 2 << 5},
		     {INLAY_SIGNALED | INLAY_FENCE_STRONG | INLAY_RING, 8 | 3 << 5}};
	uint32_t i, max = cases(200000), record[2] = {0, 0}, seen[RING_BBS] = {0}, rung = 0;
	struct inlay_uar uar;
	struct inlay_sq sq;

	if (getenv("INLAY_TEST_AGAIN")) {
		print_message("# skipped: no device has a part in it\n");
		skip();
	}
	must(inlay_uar_init(&uar, reg, 256, INLAY_UAR_SERIAL));
	must(inlay_sq_init(&sq, ring, RING_BBS, record, 0xabcdef, 63, &uar));
	inlay_sq_set_atomics(&sq, ~0u);
	for (i = 0; i < max; i++) {
		const uint64_t raddr = rnd();
		enum form form = (enum form)rnd_below(FORMS);
		uint32_t size = form == FA32 ? 4 : 4u << rnd_below(2), f = rnd_below(ARRAY(flags));
		struct ibv_sge sge = {rnd(), size, (uint32_t)rnd()};
		uint32_t rkey = (uint32_t)rnd(), index = inlay_sq_index(&sq), bbs;
		struct op o;

		op_random(&o, form, size, 0);
		memset(ring, 0x5a + (i & 1), sizeof(ring));
		memcpy(want, ring, sizeof(want));
		seen[index % RING_BBS] |= 1u << form;
		bbs = want_wqe(&o, index, 0xabcdef, raddr, rkey, &sge, flags[f].byte);
		must((rnd_below(2) ? op_post_constant : op_post)(&sq, &o, raddr, rkey, &sge, flags[f].flags));
		if (memcmp(ring, want, sizeof(ring))) {
			inlay_wqe_print(stderr, ring, sizeof(ring), index, 0);
			inlay_wqe_print(stderr, want, sizeof(want), index, 0);
			fail_msg("form %u of %u bytes at %u", form, size, index % RING_BBS);
		}
		assert_int_equal(inlay_sq_index(&sq) - index, bbs);
		if (flags[f].flags & INLAY_RING)
			rung = inlay_sq_index(&sq) & 0xffff;
		assert_int_equal(be32toh(record[1]), rung);
		must(inlay_sq_release_until(&sq, inlay_sq_index(&sq)) != (int)bbs);
	}
	for (i = 0; max >= 200000 && i < RING_BBS; i++)
		assert_int_equal(seen[i], (1u << FORMS) - 1);
	inlay_sq_fini(&sq);
}

/* Batches of atomics of all forms on a few words: each answer, and in the end every byte */
TEST(forms)
{
	enum { WORDS = 64, BATCH = 8 };
	uint32_t i, k, done, max = cases(40000), count[FORMS] = {0};
	uint8_t shadow[WORDS * 8];
	struct opt opt = opt_of(IBV_QPT_RC, 1 << 16);
	struct pair p;

	if (!has(4) || !has(8)) {
		print_message("# skipped: the device has no extended atomics\n");
		skip();
	}
	pair_make(&p, &opt);
	inlay_sq_set_atomics(&p.a.sq, can.sizes);
	for (i = 0; i < sizeof(shadow); i++)
		shadow[i] = p.b.buf[i] = (uint8_t)rnd();
	for (done = 0; done < max; done += BATCH) {
		uint64_t was[BATCH], v;
		uint32_t size[BATCH];

		for (i = 0; i < BATCH; i++) {
			enum form form = (enum form)rnd_below(FORMS);
			struct ibv_sge sge;
			struct op o;

			size[i] = form == FA32 ? 4 : 4u << rnd_below(2);
			k = rnd_below(8 * WORDS / size[i]) * size[i];
			was[i] = 0;
			memcpy(&was[i], shadow + k, size[i]); /* of 4 bytes: the low half */
			op_random(&o, form, size[i], was[i]);
			sge = sge_of(&p.a, i * 8, size[i]);
			must(op_post(&p.a.sq, &o, raddr_of(&p.b, k), p.b.mr->rkey, &sge, i + 1 == BATCH ? INLAY_SIGNALED : 0));
			v = model(&o, was[i]);
			memcpy(shadow + k, &v, size[i]);
			count[form]++;
		}
		inlay_sq_ring(&p.a.sq);
		sent(&p.a);
		for (i = 0; i < BATCH; i++)
			assert_true(inlay_atomic_answer(&can, p.a.buf + i * 8, size[i]) == was[i]);
		assert_memory_equal(p.b.buf, shadow, sizeof(shadow));
	}
	for (i = 0; max >= 10000 && i < FORMS; i++)
		assert_int_not_equal(count[i], 0);
	assert_true(all_bytes(p.b.buf + sizeof(shadow), 64, 0));
	pair_free(&p);
}

/* A queue that is not told of sizes has none, and one without atomics gets none; sizes that no atomic has */
TEST(refused_here)
{
	static const struct { uint32_t told, size; int want; } rows[] = {
		{0, 4, -ENOTSUP}, {0, 8, -ENOTSUP}, {4, 8, -ENOTSUP}, {56, 0, -EINVAL}, {56, 1, -EINVAL}, {56, 2, -EINVAL}, {56, 3, -EINVAL},
		{56, 5, -EINVAL}, {56, 12, -EINVAL}, {56, 16, -EINVAL}, {56, 0x80000004, -EINVAL}, {56, 8, 0},
	};
	uint32_t record[2] = {0, 0}, i;
	struct ibv_sge sge = {0x1000, 4, 1};
	struct inlay_uar uar;
	struct inlay_sq sq, before;
	int got;

	must(inlay_uar_init(&uar, reg, 256, INLAY_UAR_SERIAL));
	must(inlay_sq_init(&sq, ring, RING_BBS, record, 5, 12, &uar));
	before = sq;
	for (i = 0; i < ARRAY(rows); i++) {
		sq = before;
		sge.length = rows[i].size;
		if (rows[i].told)
			inlay_sq_set_atomics(&sq, rows[i].told);
		got = wr_atomic(&sq, inlay_masked_add(1, 0), wr_at(wr_sge(&sge, 1), 0x2000, 1), 0);
		if (got != rows[i].want)
			fail_msg("row %u: %d", i, got);
	}
	sge.length = 4;
	inlay_sq_set_atomics(&sq, ~0u);
	while (inlay_sq_room(&sq))
		must(inlay_post(&sq, MLX5_OPCODE_NOP, NULL, 0));
	assert_int_equal(wr_atomic(&sq, inlay_masked_add(1, 0), wr_at(wr_sge(&sge, 1), 0x2000, 1), 0), -EAGAIN);
	sq = before;
	inlay_sq_set_type(&sq, 0, 0);
	inlay_sq_set_atomics(&sq, ~0u);
	assert_int_equal(wr_atomic(&sq, inlay_masked_add(1, 0), wr_at(wr_sge(&sge, 1), 0x2000, 1), 0), -ENOTSUP);
	inlay_sq_fini(&sq);
}

/* What the device refuses: the completion of the WQE at hand, which a post would not have made */
TEST(refused_there)
{
	enum { UNALIGNED, RIGHTS, KEY, LENGTH, MODIFIER, SIZE, SHORT, CASES };
	static const enum ibv_wc_status status[CASES] = {
		IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_QP_OP_ERR,
		IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOC_QP_OP_ERR};
	const struct inlay_atomic all = inlay_masked_add(~(uint64_t)0, ~(uint64_t)0);
	struct inlay_cursor at;
	struct pair p;

	need_softdev("the device's refusals");
	for (uint32_t n = 0; n < 2 * CASES; n++) {
		const uint32_t i = n / 2, size = n % 2 ? 8 : 4, opmod = inlay_opmod_atomic(size);
		struct opt opt = opt_of(IBV_QPT_RC, 4096);

		if (i == RIGHTS)
			opt.qp_access &= ~IBV_ACCESS_REMOTE_ATOMIC;
		pair_make(&p, &opt);
		must(inlay_sq_begin(&p.a.sq, 6, &at));
		at = inlay_seg_raddr(at, raddr_of(&p.b, i == UNALIGNED ? size / 2 : 0), p.b.mr->rkey ^ (i == KEY ? 0x55aa00 : 0));
		if (i != SHORT)
			at = inlay_seg_atomic(at, size, &all);
		at = inlay_seg_data(at, (uintptr_t)p.a.buf, i == LENGTH ? size / 2 : size, p.a.mr->lkey);
		inlay_sq_commit(&p.a.sq, at, MLX5_OPCODE_ATOMIC_MASKED_FA, i == MODIFIER ? opmod & 7 : i == SIZE ? 8 | 5 : opmod,
				INLAY_SIGNALED | INLAY_RING, 0);
		/* In the place of short operands the data segment is taken for them, and then there are no data */
		assert_int_equal(inlay_cqe_status(cqe_wait(&p.a.cq)), i == SHORT && size <= 8 ? IBV_WC_LOC_LEN_ERR : status[i]);
		inlay_cq_advance(&p.a.cq, 1);
		assert_true(all_bytes(p.b.buf, 4096, 0));
		pair_free(&p);
	}
}

int main(void)
{
	return run_all(open_atomics, dev_close) || again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
