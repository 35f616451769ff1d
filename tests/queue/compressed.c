/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * compressed.c: completion rings, plain and compressed, and batches. A model of the device writes random streams of CQEs, and compresses
 * them, from the layout that the kernel's en_rx.c reads (basic and enhanced) and UCX's ib_mlx5.c (enhanced, requester); every way to read a
 * CQ must give the stream back. Any bytes: fuzz/cqe.c. No device.
 *
 *   COMPRESSED_STREAMS    streams, 4,000 by default
 */
#include "rig.h"
#include "given.h"
#include <endian.h>

#define MOST 256

struct ring {
	uint8_t *buf;
	uint32_t size, stride;
	volatile uint32_t dbrec[2];
	struct inlay_cq cq;
	/* the device */
	bool plain, enhanced;    /* plain: it never compresses */
	uint32_t format, pi;
	struct mlx5_cqe64 last;  /* the CQE written last, the title of enhanced blocks; bad: there is none */
	bool title;
	/* what was sent and not yet read */
	struct mlx5_cqe64 sent[MOST];
	uint32_t halves[MOST];   /* of a plain ring: the seed of what is in front of each */
	uint32_t head, tail, told; /* told: the consumer index in the record */
};

static uint8_t *slot(struct ring *r, uint32_t i)
{
	return r->buf + (size_t)(i & (r->size - 1)) * r->stride + r->stride - 64;
}

static void ring_open(struct ring *r, bool plain)
{
	static const uint32_t ends[] = {0x100, 0x10000, 0x1000000, 0};

	memset(r, 0, sizeof(*r));
	r->plain = plain;
	r->size = plain ? 1u << rnd_below(9) : 2u << rnd_below(7);
	r->stride = rnd_below(2) ? 64 : 128;
	r->enhanced = !plain && rnd_below(2);
	r->format = rnd_below(5);
	if (r->format < 2 && rnd_below(2))
		r->format |= INLAY_MINI_STRIDES;
	r->buf = (uint8_t *)given((size_t)r->size * r->stride);
	memset(r->buf, 0xf0, (size_t)r->size * r->stride);
	must(inlay_cq_init(&r->cq, r->buf, r->size, r->stride, r->dbrec, NULL, 1));
	if (!plain)
		must(inlay_cq_set_compression(&r->cq, r->format, r->enhanced));
	/* As if so many had come and gone: some laps before the lap's number or an index is 0 again, or none */
	r->pi = r->told = r->cq.ci = rnd_below(4) ? ends[rnd_below(ARRAY(ends))] * (rnd_below(2) ? r->size : 1) - rnd_below(3 * r->size) : 0;
	r->dbrec[0] = htobe32(r->pi & 0xffffff);
	r->cq.next = r->cq.begin + (size_t)(r->pi & (r->size - 1)) * r->stride;
	r->cq.lap = (uint16_t)(r->enhanced ? r->pi / r->size & 0xff : (r->pi / r->size & 1) << 8);
	for (uint32_t i = r->pi; i != r->pi + r->size; i++) {
		slot(r, i)[62] = (uint8_t)(i / r->size - 1);
		slot(r, i)[63] = (uint8_t)(0xf0 | !(i / r->size & 1));
	}
}

static uint32_t room(struct ring *r)
{
	uint32_t used = r->pi - r->cq.ci;

	return r->size - r->enhanced - used;
}

/* The last two bytes of the slot make it the program's */
static void give(struct ring *r, uint32_t i, uint8_t op_own)
{
	uint8_t *s = slot(r, i);

	s[63] = (uint8_t)(op_own & ~1) | (i / r->size & 1);
	if (r->enhanced)
		s[62] = (uint8_t)(i / r->size);
}

static void expect(struct ring *r, const struct mlx5_cqe64 *cqe)
{
	r->sent[r->tail++ % MOST] = *cqe;
}

static void put_plain(struct ring *r, struct mlx5_cqe64 *cqe)
{
	r->halves[r->tail % MOST] = r->pi;
	if (r->plain && r->stride == 128)
		fill(slot(r, r->pi) - 64, 64, r->pi);
	memcpy(slot(r, r->pi), cqe, 64);
	give(r, r->pi, cqe->op_own);
	r->pi++;
	expect(r, cqe);
	r->last = *cqe;
	r->title = !(cqe->op_own & 0x80);
}

static struct mlx5_cqe64 random_cqe(void)
{
	static const uint8_t opcodes[] = {0, 1, 2, 3, 4, 2, 2};
	struct mlx5_cqe64 cqe;
	uint8_t *raw = (uint8_t *)&cqe;

	for (size_t i = 0; i < 64; i++)
		raw[i] = (uint8_t)rnd();
	cqe.sop_drop_qpn = htobe32(rnd_below(256) << 24 | (1 + rnd_below(3)));
	cqe.srqn_uidx = htobe32(rnd_below(256) << 24 | (1 + rnd_below(3)));
	cqe.op_own = (uint8_t)(opcodes[rnd_below(ARRAY(opcodes))] << 4 | rnd_below(2) << 1 | rnd_below(3) << 2);
	if (rnd_below(12) == 0)
		cqe.op_own = (rnd_below(2) ? MLX5_CQE_REQ_ERR : MLX5_CQE_RESP_ERR) << 4;
	return cqe;
}

/* What mini CQE `mini` makes of the CQE before it: `cqe` becomes the one that it stands for */
static void mini_of(struct ring *r, struct mlx5_cqe64 *cqe, uint8_t *mini, bool first)
{
	uint8_t *raw = (uint8_t *)cqe;
	uint16_t before = be16toh(cqe->wqe_counter), step = 1;
	uint32_t format = r->format & 7;

	if (r->format & INLAY_MINI_STRIDES)
		step = be32toh(cqe->byte_cnt) >> 16 & 0x7fff;
	for (int i = 0; i < 8; i++)
		mini[i] = (uint8_t)rnd();
	memcpy(raw + 44, mini + 4, 4);
	if (cqe->op_own >> 4 == 0) { /* a send */
		memcpy(raw + 60, mini, 2);
		raw[56] = mini[2];
		return;
	}
	if (!first)
		cqe->wqe_counter = htobe16((uint16_t)(before + step));
	if (format == 0)
		memcpy(raw + 12, mini, 4);
	if (format == 1 || format == 3)
		memcpy(raw + 20, mini, 2);
	if (format == 2) {
		raw[57] = mini[4];
		raw[58] = mini[0];
		raw[59] = mini[1];
		raw[44] = raw[45] = 0;
	}
	if (format == 4)
		raw[29] = mini[0];
	if (format >= 2)
		memcpy(raw + 60, mini + 2, 2);
}

static void put_basic(struct ring *r, uint32_t n)
{
	struct mlx5_cqe64 cqe = random_cqe(), title;
	uint8_t minis[MOST][8];

	cqe.op_own &= 0x72;
	title = cqe;
	for (uint32_t i = 0; i < n; i++) {
		mini_of(r, &cqe, minis[i], !i);
		expect(r, &cqe);
	}
	for (uint32_t i = 0; i < n; i += 8)
		memcpy(slot(r, r->pi + (i ? i : 1)), minis[i], n - i < 8 ? 8 * (n - i) : 64);
	title.byte_cnt = htobe32(n);
	memcpy(slot(r, r->pi), &title, 64);
	give(r, r->pi, title.op_own | 0x0c);
	r->pi += n;
	r->title = false;
}

static void put_enhanced(struct ring *r, uint32_t n)
{
	uint8_t minis[8][8];

	memset(minis, 0x5a, sizeof(minis));
	r->last.op_own &= 0xf2;
	for (uint32_t i = 0; i < n; i++) {
		mini_of(r, &r->last, minis[i], false);
		expect(r, &r->last);
	}
	memcpy(slot(r, r->pi), minis, 64);
	give(r, r->pi, (uint8_t)((n - 1) << 4 | 0x0c));
	slot(r, r->pi)[63] = (uint8_t)((n - 1) << 4 | 0x0c);
	r->pi += n;
}

static void produce(struct ring *r)
{
	while (room(r) && rnd_below(4)) {
		uint32_t n = 1 + rnd_below(r->enhanced ? 7 : rnd_below(2) ? 9 : room(r));
		struct mlx5_cqe64 cqe = random_cqe();

		if (n > room(r))
			n = room(r);
		if (r->enhanced && r->title && rnd_below(2))
			put_enhanced(r, n);
		else if (!r->plain && !r->enhanced && n > 1 && rnd_below(2))
			put_basic(r, n);
		else
			put_plain(r, &cqe);
	}
}

static void alike(const struct ring *r, struct mlx5_cqe64 want, const struct mlx5_cqe64 *got)
{
	struct mlx5_cqe64 seen = *got;

	want.op_own &= 0xfe;
	seen.op_own &= 0xfe;
	if (r->enhanced)
		want.signature = seen.signature;
	assert_memory_equal(&want, &seen, 64);
}

static void same(struct ring *r, const struct mlx5_cqe64 *got)
{
	assert_true(r->head < r->tail);
	alike(r, r->sent[r->head % MOST], got);
	if (r->plain && r->stride == 128)
		assert_int_equal(differs(got - 1, 64, r->halves[r->head % MOST]), 64);
	r->head++;
}

/* Frees some, and mostly says so */
static void freed(struct ring *r, uint32_t n)
{
	if (rnd_below(4)) {
		inlay_cq_advance(&r->cq, n);
		r->told = r->cq.ci;
	} else {
		inlay_cq_advance_quiet(&r->cq, n);
	}
}

/* One that is special: unzipped, or checked and freed. Whether it was an error */
static bool special(struct ring *r, const struct mlx5_cqe64 *cqe)
{
	if (inlay_cqe_is_compressed(cqe)) {
		assert_in_range(inlay_cq_unzip(&r->cq), 1, r->size);
		return false;
	}
	assert_true(inlay_cqe_is_error(cqe));
	same(r, cqe);
	freed(r, 1);
	return true;
}

static void read_singly(struct ring *r)
{
	const struct mlx5_cqe64 *cqe;

	while (rnd_below(50) && (cqe = inlay_cq_peek(&r->cq))) {
		assert_int_equal(inlay_cqe_is_special(cqe), inlay_cqe_is_error(cqe) || inlay_cqe_is_compressed(cqe));
		if (inlay_cqe_is_special(cqe)) {
			special(r, cqe);
			continue;
		}
		same(r, cqe);
		freed(r, 1);
	}
}

static void read_arrays(struct ring *r)
{
	uint16_t counters[MOST + 1];
	uint32_t lengths[MOST + 1], max = rnd_below(MOST), n, i;
	const struct mlx5_cqe64 *cqe;

	counters[max] = 0xbeef;
	lengths[max] = 0xdeadbeef;
	n = inlay_cq_decode(&r->cq, counters, lengths, max);
	assert_in_range(n, 0, max);
	assert_true(counters[max] == 0xbeef && lengths[max] == 0xdeadbeef);
	for (i = 0; i < n; i++, r->head++) {
		assert_int_equal(counters[i], be16toh(r->sent[r->head % MOST].wqe_counter));
		assert_int_equal(lengths[i], be32toh(r->sent[r->head % MOST].byte_cnt));
	}
	if (rnd_below(2)) {
		inlay_cq_update(&r->cq);
		r->told = r->cq.ci;
	}
	cqe = inlay_cq_peek(&r->cq);
	if (n < max && cqe)
		assert_true(special(r, cqe));
}

struct gone { struct mlx5_cqe64 cqes[MOST]; uint32_t n; };

static void note_gone(const struct mlx5_cqe64 *cqe, void *arg)
{
	struct gone *g = (struct gone *)arg;

	g->cqes[g->n++] = *cqe;
}

static uint32_t number_of(const struct mlx5_cqe64 *cqe, bool by_index)
{
	return be32toh(by_index ? cqe->srqn_uidx : cqe->sop_drop_qpn) & 0xffffff;
}

/* The CQEs of one QP leave the ring, and it is told of them, newest first; those of others stay, in order */
static void clean(struct ring *r)
{
	static struct gone lost, gone;
	uint32_t number = 1 + rnd_below(4), i, kept = r->head, removed;
	bool by_index = rnd_below(2), tells = rnd_below(2);

	for (i = r->head, lost.n = gone.n = 0; i != r->tail; i++)
		if (number_of(&r->sent[i % MOST], by_index) == number) {
			lost.cqes[lost.n++] = r->sent[i % MOST];
		} else {
			r->halves[kept % MOST] = r->halves[i % MOST];
			r->sent[kept++ % MOST] = r->sent[i % MOST];
		}
	removed = (by_index ? inlay_cq_clean_index : inlay_cq_clean)(&r->cq, number, tells ? note_gone : NULL, &gone);
	assert_int_equal(removed, lost.n);
	assert_int_equal(gone.n, tells ? removed : 0);
	for (i = 0; i < gone.n; i++)
		alike(r, lost.cqes[removed - 1 - i], &gone.cqes[i]);
	r->tail = kept;
	r->told = removed ? r->cq.ci : r->told;
	/* The QP is gone: no block of its follows */
	if (number_of(&r->last, by_index) == number)
		r->title = false;
}

TEST(streams)
{
	const char *env = getenv("COMPRESSED_STREAMS");
	int i, k, n = env && *env ? atoi(env) : 4000;

	for (i = 0; i < n; i++) {
		struct ring r;

		ring_open(&r, rnd_below(4) == 0);
		for (k = 0; k < 60; k++) {
			produce(&r);
			switch (rnd_below(7)) {
			case 0: case 1: case 2: read_singly(&r); break;
			case 3: case 4: case 5: read_arrays(&r); break;
			case 6: clean(&r); break;
			}
			assert_int_equal(r.pi - r.cq.ci, r.tail - r.head);
			assert_int_equal(r.dbrec[0], htobe32(r.told & 0xffffff));
		}
		while (r.head != r.tail)
			read_singly(&r);
		assert_null(inlay_cq_peek(&r.cq));
		assert_int_equal(r.pi, r.cq.ci);
		given_free(r.buf);
	}
}

/* Blocks behind good CQEs, of any count, of a title that is an error or a block: none removes a CQE, even if it would go round over them */
TEST(hostile_clean)
{
	uint32_t i, k, n, start, refused = 0;

	for (i = 0; i < 5000; i++) {
		const struct mlx5_cqe64 *got;
		struct mlx5_cqe64 cqe;
		struct ring r;

		ring_open(&r, false);
		start = r.pi;
		n = 1 + rnd_below(r.size - 1);
		for (; r.pi - start < n; put_plain(&r, &cqe))
			cqe = random_cqe();
		for (k = 0; k < 2 && r.pi - start < r.size; k++, r.pi++) {
			n = r.enhanced ? 1 + rnd_below(15) : rnd_below(2 * r.size + 2);
			cqe.byte_cnt = htobe32(n);
			memcpy(slot(&r, r.pi), &cqe, 64);
			give(&r, r.pi, cqe.op_own | 0x0c);
			if (r.enhanced)
				slot(&r, r.pi)[63] = (uint8_t)((n - 1) << 4 | 0x0c);
			refused += n > r.size - (r.pi - start);
		}
		inlay_cq_clean(&r.cq, 999, NULL, NULL);
		while (r.head != r.tail) {
			got = made(inlay_cq_peek(&r.cq));
			same(&r, got);
			inlay_cq_advance(&r.cq, 1);
		}
		given_free(r.buf);
	}
	assert_true(refused > 100);
}

/* The vector forms against the scalar one, on rings of every sort */
TEST(scans)
{
	uint8_t slots[32 * 128];
	uint32_t longest = 0;

	for (int i = 0; i < 300000; i++) {
		uint32_t stride = rnd_below(2) ? 64 : 128, n = rnd_below(33), own = rnd_below(2) ? 0x100 : 0xff, k, want;
		uint32_t lap = own == 0xff ? rnd_below(256) : rnd_below(2) << 8, bad = rnd_below(40);

		for (k = 0; k < 32; k++) {
			uint8_t *tail = slots + (size_t)k * stride + 60;
			uint8_t op_own = (uint8_t)(rnd_below(8) << 4 | rnd_below(3) << 2 | rnd_below(2) << 1 | lap >> 8);

			tail[0] = (uint8_t)rnd();
			tail[1] = (uint8_t)rnd();
			tail[2] = own == 0xff ? (uint8_t)lap : (uint8_t)rnd();
			tail[3] = op_own;
			if (own == 0xff)
				tail[3] ^= (uint8_t)rnd_below(2);
			if (k == bad || rnd_below(60) == 0)
				tail[2 + rnd_below(2)] = (uint8_t)rnd();
		}
		want = inlay_scan_by_1_(slots, stride, n, lap, own);
		longest = want > longest ? want : longest;
		assert_int_equal(inlay_scan_by_4_(slots, stride, n, lap, own), want);
		assert_int_equal(inlay_scan_by_8_(slots, stride, n, lap, own), want);
		assert_int_equal(inlay_scan_(slots, stride, n, lap, own), want);
	}
	assert_int_equal(longest, 32);
}

/* Formats; room for the title of the enhanced layout */
TEST(set_up)
{
	static uint8_t buf[8 * 64] __attribute__((aligned(64)));
	volatile uint32_t dbrec[2];
	struct inlay_cq cq;
	const char *why;

	must(inlay_cq_init(&cq, buf, 8, 64, dbrec, NULL, 1));
	for (uint32_t i = 0; i < 1000; i++)
		assert_int_equal(inlay_cq_set_compression(&cq, i, 0), i <= 4 || i == 8 || i == 9 ? 0 : -EINVAL);
	must(inlay_cq_set_compression(&cq, INLAY_MINI_CSUM, 0));
	must(inlay_cq_reserve(&cq, 8, &why));
	assert_int_equal(inlay_cq_set_compression(&cq, INLAY_MINI_HASH, 1), -ENOSPC);
	inlay_cq_unreserve(&cq, 1);
	must(inlay_cq_set_compression(&cq, INLAY_MINI_HASH, 1));
	assert_int_equal(inlay_cq_reserve(&cq, 1, &why), -ENOSPC);
}

/* Blocks of every length; up to 7 in the enhanced layout, 2 to the ring's size in the basic one */
TEST(blocks)
{
	static uint8_t buf[32 * 64] __attribute__((aligned(64)));
	volatile uint32_t dbrec[2];
	struct inlay_cq cq;
	int enhanced;

	for (uint32_t n = 0; n < 80; n++) {
		struct mlx5_cqe64 *cqe = (struct mlx5_cqe64 *)(void *)buf;
		const uint32_t len = n / 2;

		enhanced = n & 1;
		if (enhanced && len - 1 > 15)
			continue; /* has four bits */
		memset(buf, 0, sizeof(buf));
		must(inlay_cq_init(&cq, buf, 32, 64, dbrec, NULL, 1));
		must(inlay_cq_set_compression(&cq, INLAY_MINI_HASH, enhanced));
		buf[sizeof(buf) - 1] = MLX5_CQE_RESP_SEND << 4; /* the title of the enhanced one */
		cqe->byte_cnt = htobe32(len);
		cqe->op_own = (uint8_t)((enhanced ? len - 1 : (uint32_t)MLX5_CQE_RESP_SEND) << 4 | 0x0c);
		assert_int_equal(inlay_cq_unzip(&cq), (enhanced ? len <= 7 : len >= 2 && len <= 32) ? (int)len : -EPROTO);
	}
}

int main(void)
{
	return run_all(open_nothing, NULL);
}
