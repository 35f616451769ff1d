/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * umr.c: keys that UMRs of inlay's have made, used by real transfers between QPs and compared with a plain model of what they cover:
 * lists, interleaved memory, tables, parts of them, every field of the key. Block signatures against long divisions
 * of polynomials. What cannot be done is refused by the device with an error of the WQE.
 */
#include "rig.h"
#include <endian.h>
#include <inlay/devx.h>

#define BYTES (1u << 17)
#define ROOM 48u
#define COVER 30000u                            /* bytes that a key covers at most */
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static struct end a, b;                         /* b has the keys */
static struct inlay_devx_psv psvs[2];
static uint32_t place[COVER], covers;           /* where in b's buffer each byte of the key lies */
static uint8_t model[BYTES];

struct key { struct mlx5dv_mkey *dv; struct inlay_devx_mkey devx; uint32_t key; uint64_t start; };

static uint32_t my_pdn(void)
{
	uint32_t pdn;

	must(inlay_pdn_from_pd(&pdn, dev.pd));
	return pdn;
}

/* One of libmlx5's or of a command's own */
static struct key key_make(bool devx, bool with_signature)
{
	struct mlx5dv_mkey_init_attr init = {};
	struct inlay_devx_mkey_attr attr = {};
	struct key k = {};

	if (devx) {
		attr.pdn = my_pdn();
		attr.addr = k.start = rnd_below(2) ? 0 : rnd() >> 8;
		attr.tag = (uint8_t)rnd();
		assert_int_equal(inlay_devx_mkey_create_umr(&k.devx, dev.ctx, &attr, 0, with_signature), -EINVAL);
		assert_int_equal(inlay_devx_mkey_create_umr(&k.devx, dev.ctx, &attr, 65536, with_signature), -EINVAL);
		must(inlay_devx_mkey_create_umr(&k.devx, dev.ctx, &attr, ROOM, with_signature));
		k.key = k.devx.key;
		return k;
	}
	init.pd = dev.pd;
	init.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | (with_signature ? MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE : 0);
	init.max_entries = ROOM;
	k.dv = made(mlx5dv_create_mkey(&init));
	k.key = k.dv->lkey;
	return k;
}

static void key_free(struct key *k)
{
	if (k->dv)
		must(mlx5dv_destroy_mkey(k->dv));
	else
		must(inlay_devx_mkey_destroy(&k->devx));
}

static void pair_up(void)
{
	struct opt opt = opt_of(IBV_QPT_RC, BYTES);

	opt.cap.max_send_wr = 64;
	ends_make(&a, &b, &opt);
	end_take(&a, INLAY_UAR_SERIAL);
	end_take(&b, INLAY_UAR_SERIAL);
}

static void pair_down(void)
{
	end_free(&a);
	end_free(&b);
}

static void cover(uint32_t from, uint32_t n)
{
	for (; n; n--)
		place[covers++] = from++;
}

static uint16_t pieces(struct ibv_sge *sge, uint16_t most)
{
	uint16_t n = (uint16_t)(1 + rnd_below(most)), i;
	uint32_t at = 0;

	/* Next to each other in memory are places that do not overlap; in the key they are mixed */
	for (i = 0, covers = 0; i < n; i++) {
		uint32_t len = rnd_below(6) ? 1 + rnd_below(COVER / ROOM) : 1 + rnd_below(4);

		at += rnd_below(500);
		sge[i] = sge_of(&b, at, len);
		at += len;
	}
	for (i = 0; i < n; i++) {
		uint16_t other = (uint16_t)rnd_below(n);
		struct ibv_sge swap = sge[i];

		sge[i] = sge[other];
		sge[other] = swap;
	}
	for (i = 0; i < n; i++)
		cover((uint32_t)(sge[i].addr - (uintptr_t)b.buf), sge[i].length);
	return n;
}

static uint16_t stripes(struct mlx5dv_mr_interleaved *part, uint16_t most, uint32_t *rounds)
{
	uint16_t n = (uint16_t)(1 + rnd_below(most)), i;
	uint32_t r, at = 0;

	*rounds = 1 + rnd_below(20);
	for (i = 0; i < n; i++) {
		part[i].bytes_count = 1 + rnd_below(COVER / *rounds / n - 1);
		part[i].bytes_skip = rnd_below(40);
		part[i].lkey = b.mr->lkey;
		part[i].addr = (uintptr_t)b.buf + at;
		at += *rounds * (part[i].bytes_count + part[i].bytes_skip) + rnd_below(100);
	}
	for (r = 0, covers = 0; r < *rounds; r++)
		for (i = 0; i < n; i++)
			cover((uint32_t)(part[i].addr - (uintptr_t)b.buf) + r * (part[i].bytes_count + part[i].bytes_skip),
			      part[i].bytes_count);
	return n;
}

static void filled(void)
{
	const struct mlx5_cqe64 *cqe;

	inlay_sq_ring(&b.sq);
	cqe = cqe_wait(&b.cq);
	assert_int_equal(inlay_cqe_send_opcode(cqe), MLX5_OPCODE_UMR);
	sent(&b);
}

enum { PEER_WRITES, RECV_IN, PEER_READS, SEND_OUT, WAYS };

static bool is_out(unsigned way)
{
	return way >= PEER_READS;
}

/* The key's bytes from `addr` on, to or from a's buffer. here: bytes that a sees; there: what entries of b's own count */
static void transfer(const struct key *k, uint64_t addr, uint32_t here, uint32_t there, unsigned way)
{
	struct ibv_sge mine = sge_of(&a, 0, here), key = {addr, there, k->key};

	switch (way) {
	case PEER_WRITES: must(inlay_post_write(&a.sq, addr, k->key, &mine, 1, INLAY_SIGNALED | INLAY_RING)); break;
	case PEER_READS: must(inlay_post_read(&a.sq, addr, k->key, &mine, 1, INLAY_SIGNALED | INLAY_RING)); break;
	case RECV_IN:
		must(inlay_post_recv(&b.rq, &key, 1));
		inlay_rq_ring(&b.rq);
		must(inlay_post_send(&a.sq, &mine, 1, INLAY_SIGNALED | INLAY_RING));
		break;
	default:
		post_recv(&a, 0, here);
		must(inlay_post_send(&b.sq, &key, 1, INLAY_SIGNALED | INLAY_RING | INLAY_FENCE_INITIATOR_SMALL));
	}
}

static void done(uint32_t here, unsigned way)
{
	struct end *to = way == SEND_OUT ? &a : &b;

	sent(way == SEND_OUT ? &b : &a);
	if (way == SEND_OUT || way == RECV_IN)
		received(to, MLX5_CQE_RESP_SEND, here, (uint32_t)inlay_cqe_wqe_counter(cqe_wait(&to->rxcq)));
}

/* n bytes from `from` on of the key, in all four ways; all of b's memory is compared */
static void through(const struct key *k, uint32_t from, uint32_t n)
{
	for (uint32_t way = 0; way < WAYS; way++) {
		fill(b.buf, BYTES, (uint32_t)rnd());
		fill(a.buf, n, (uint32_t)rnd());
		memcpy(model, b.buf, BYTES);
		for (uint32_t i = 0; !is_out(way) && i < n; i++)
			model[place[from + i]] = a.buf[i];
		transfer(k, k->start + from, n, n, way);
		done(n, way);
		assert_memory_equal(b.buf, model, BYTES);
		for (uint32_t i = 0; is_out(way) && i < n; i++)
			assert_int_equal(a.buf[i], b.buf[place[from + i]]);
	}
}

static void whole_and_parts(const struct key *k)
{
	through(k, 0, covers);
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t from = rnd_below(covers);

		through(k, from, 1 + rnd_below(covers - from));
	}
}

/* The peer's access fails, and costs the pair */
static void refused(uint64_t addr, uint32_t key, bool write)
{
	struct ibv_sge mine = sge_of(&a, 0, 8);
	const struct mlx5_cqe64 *cqe;

	memset(b.buf, 0x77, BYTES);
	if (write)
		must(inlay_post_write(&a.sq, addr, key, &mine, 1, INLAY_SIGNALED | INLAY_RING));
	else
		must(inlay_post_read(&a.sq, addr, key, &mine, 1, INLAY_SIGNALED | INLAY_RING));
	cqe = cqe_wait(&a.cq);
	assert_int_equal(inlay_cqe_status(cqe), IBV_WC_REM_ACCESS_ERR);
	assert_true(all_bytes(b.buf, BYTES, 0x77));
	pair_down();
	pair_up();
}

static struct inlay_umr filling(const struct key *k, uint64_t mask, const struct ibv_sge *list, uint32_t n, uint64_t len)
{
	struct inlay_umr umr = {
		.mask = INLAY_UMR_MASK_FILL | mask, .len = len, .access = RIGHTS, .tag = (uint8_t)k->key,
		.entries = (uint16_t)n, .list = list,
	};

	return umr;
}

static void change(const struct key *k, const struct inlay_umr *umr)
{
	must(inlay_post_umr(&b.sq, k->key, umr, INLAY_SIGNALED));
	filled();
}

static int post_stripes(const struct key *k, const struct mlx5dv_mr_interleaved *part, uint16_t n, uint32_t rounds)
{
	struct inlay_umr umr = filling(k, INLAY_UMR_MASK_ACCESS, NULL, 0, covers);

	umr.interleaved = part;
	umr.entries = n;
	umr.rounds = rounds;
	return inlay_post_umr(&b.sq, k->key, &umr, INLAY_SIGNALED);
}

/* Lists and interleaved memory, in the WQE or as a table in memory; then a part of a list in the place of another */
TEST(layouts)
{
	struct mlx5dv_mr_interleaved part[ROOM - 1];
	uint8_t *table = (uint8_t *)pages(4096);
	struct ibv_mr *mr = made(ibv_reg_mr(dev.pd, table, 4096, 0));
	struct ibv_sge sge[ROOM], four[4];
	const struct inlay_umr others = {
		.flags = (uint32_t)MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET | INLAY_UMR_CHECK_NOT_FREE,
		.entries = 4, .list = four, .offset = 4,
	};
	struct inlay_umr umr;
	uint32_t turn, i, rounds = 0, round, units;
	struct key k;

	pair_up();
	for (turn = 0; turn < 32; turn++) {
		const bool list = turn / 2 % 2, in_memory = turn / 4 % 2;
		uint16_t n = list ? pieces(sge, ROOM) : stripes(part, 12, &rounds);

		k = key_make(turn % 2, false);
		memset(table, 0, 4096);
		for (i = round = 0; i < n; i++) {
			if (list)
				inlay_wqe_klm(table + 16 * i, sge[i].addr, sge[i].length, sge[i].lkey);
			else
				inlay_wqe_interleaved_(table + 16 * (i + 1), &part[i]);
			round += list ? 0 : part[i].bytes_count;
		}
		if (!list)
			inlay_wqe_rounds_(table, round, rounds, n);
		units = list ? n : n + 1u;
		umr = filling(&k, INLAY_UMR_MASK_ACCESS, NULL, 0, covers);
		umr.table.addr = (uintptr_t)table;
		umr.table.length = (units + 3) / 4 * 64;
		umr.table.lkey = mr->lkey;
		if (in_memory)
			must(inlay_post_umr(&b.sq, k.key, &umr, INLAY_SIGNALED));
		else if (list)
			must(inlay_post_umr_list(&b.sq, k.key, RIGHTS, sge, n, INLAY_SIGNALED));
		else
			must(post_stripes(&k, part, n, rounds));
		filled();
		whole_and_parts(&k);
		if (list && in_memory) {
			/* Entries 4 .. 7 become others; those that are there stay, and the rest of the key moves along */
			for (i = 0, covers = 0; i < 8; i++) {
				sge[i] = sge_of(&b, 1000 * i, 100 + i);
				four[i % 4] = sge_of(&b, 1000 * i + 50, 100 + i);
				cover(1000 * i + (i / 4) * 50, 100 + i);
			}
			must(inlay_post_umr_list(&b.sq, k.key, RIGHTS, sge, 8, 0));
			change(&k, &others);
			whole_and_parts(&k);
		}
		if (turn < 8)
			refused(k.start + covers - 7, k.key, turn % 2);
		key_free(&k);
	}
	pair_down();
	must(ibv_dereg_mr(mr));
	free(table);
}

/* Another start and length; then one more field, after which something is refused, and something else may not be */
TEST(fields)
{
	enum { END, START, RIGHT, TAG, FREE, INVALIDATED, BY_PEER, DOMAIN_, QPN, CASES };
	struct ibv_pd *pd = made(ibv_alloc_pd(dev.ctx));
	struct ibv_sge sge;
	uint32_t turn, pdn;

	must(inlay_pdn_from_pd(&pdn, pd));
	pair_up();
	for (turn = 0; turn < CASES; turn++) {
		struct key k = key_make(turn % 2, false);
		struct inlay_umr umr;
		uint32_t old = k.key;
		uint64_t at;

		sge = sge_of(&b, 4096, 4096);
		covers = 0;
		cover(4096, 4096);
		umr = filling(&k, INLAY_UMR_MASK_ACCESS | INLAY_UMR_MASK_REMOTE_INVALIDATE, &sge, 1, 4096);
		umr.flags = turn == BY_PEER ? INLAY_UMR_REMOTE_INVALIDATE : 0;
		change(&k, &umr);
		memset(&umr, 0, sizeof(umr));
		umr.mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR | MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN;
		umr.flags = INLAY_UMR_CHECK_NOT_FREE;
		umr.start = k.start = at = 0x123456789000 + turn;
		umr.len = covers = 1000;
		change(&k, &umr);
		whole_and_parts(&k);
		memset(&umr, 0, sizeof(umr));
		switch (turn) {
		case END: at += 993; break;
		case START: at--; break;
		case RIGHT: /* no writing any more, and reading still */
			umr.mask = INLAY_UMR_MASK_ACCESS;
			umr.access = IBV_ACCESS_REMOTE_READ;
			change(&k, &umr);
			sge = sge_of(&a, 0, 8);
			must(inlay_post_read(&a.sq, k.start, k.key, &sge, 1, INLAY_SIGNALED | INLAY_RING));
			sent(&a);
			break;
		case TAG: /* the old key is none */
			umr.mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY;
			umr.tag = (uint8_t)(old + 1);
			change(&k, &umr);
			k.key = (old & ~0xffu) | ((old + 1) & 0xff);
			whole_and_parts(&k);
			break;
		case FREE:
			umr.mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE;
			umr.flags = INLAY_UMR_FREE;
			change(&k, &umr);
			break;
		case INVALIDATED: /* as a window is */
			must(inlay_post_local_inv(&b.sq, k.key, INLAY_SIGNALED));
			filled();
			break;
		case BY_PEER:
			post_recv(&b, 0, 64);
			must(wr_post(&a.sq, MLX5_OPCODE_SEND_INVAL, wr_at(wr_sge(NULL, 0), 0, k.key), INLAY_SIGNALED | INLAY_RING));
			sent(&a);
			assert_int_equal(inlay_cqe_invalidated_rkey(cqe_wait(&b.rxcq)), k.key);
			break;
		case DOMAIN_: /* no QP of this one may use it */
			umr.mask = INLAY_UMR_MASK_PD;
			umr.pdn = pdn;
			change(&k, &umr);
			break;
		default: /* this QP's alone: its peer's requests arrive at it, and nobody else's */
			umr.mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN;
			umr.qpn = inlay_sq_qpn(&b.sq);
			change(&k, &umr);
			whole_and_parts(&k);
			pair_down();
			pair_up();
		}
		refused(at, old, turn == RIGHT || rnd_below(2));
		key_free(&k);
	}
	pair_down();
	must(ibv_dealloc_pd(pd));
}

/* What the device must refuse: an error of the WQE, and the key is as it was */
TEST(not_done)
{
	static const struct row {
		const char *name;
		uint64_t mask;                /* beside FILL's */
		uint32_t flags, entries, pdn, offset;
		bool new_key, bad_key, table;
		enum ibv_wc_status status;
	} rows[] = {
		{"too long", 0, 0, ROOM + 4, 0, 0, false, false, false, IBV_WC_LOC_QP_OP_ERR},
		{"a free one wanted", 0, MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE, 1, 0, 0, false, false, false, IBV_WC_MW_BIND_ERR},
		{"a used one wanted", 0, INLAY_UMR_CHECK_NOT_FREE, 1, 0, 0, true, false, false, IBV_WC_MW_BIND_ERR},
		{"entity", INLAY_UMR_MASK_LOG_ENTITY, 0, 1, 0, 0, false, false, false, IBV_WC_LOC_QP_OP_ERR},
		{"no signatures", MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE, 0, 1, 0, 0, false, false, false, IBV_WC_LOC_QP_OP_ERR},
		{"offset", 0, MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET, 1, 0, ROOM, false, false, false, IBV_WC_LOC_QP_OP_ERR},
		{"table", 0, 0, 0, 0, 0, false, false, true, IBV_WC_LOC_PROT_ERR},
		{"domain", INLAY_UMR_MASK_PD, 0, 1, 0xfffffe, 0, false, false, false, IBV_WC_LOC_QP_OP_ERR},
		{"key", 0, 0, 1, 0, 0, false, true, false, IBV_WC_LOC_QP_OP_ERR},
	};
	const struct opt opt = opt_of(IBV_QPT_RC, 4096);
	struct ibv_sge sge[ROOM + 4];
	struct inlay_umr umr;
	struct end c, d;
	struct key k;

	for (uint32_t i = 0; i < ARRAY(rows); i++) {
		const struct row *r = &rows[i];

		print_message("# %s\n", r->name);
		k = key_make(i % 2, false);
		pair_up();
		ends_make(&c, &d, &opt); /* one of these breaks */
		end_take(&c, INLAY_UAR_SERIAL);
		for (uint32_t n = 0; n < ARRAY(sge); n++)
			sge[n] = sge_of(&b, 0, 512);
		umr = filling(&k, INLAY_UMR_MASK_ACCESS, sge, 1, 512);
		if (!r->new_key)
			change(&k, &umr);
		umr = filling(&k, r->mask, r->table ? NULL : sge, r->entries, 4);
		umr.access = 0;
		umr.flags = r->flags;
		umr.pdn = r->pdn;
		umr.offset = r->offset;
		if (r->table)
			umr.table = sge_of(&b, 0, 64);
		umr.table.lkey = 0x123456;
		must(inlay_post_umr(&c.sq, r->bad_key ? 0xffffff00 : k.key, &umr, INLAY_SIGNALED | INLAY_RING));
		assert_true(inlay_cqe_is_error(cqe_wait(&c.cq)));
		if (!r->bad_key)
			assert_int_equal(inlay_cqe_status(inlay_cq_peek(&c.cq)), r->status);
		/* The 512 bytes are there still */
		covers = 0;
		cover(0, 512);
		if (r->new_key)
			refused(k.start, k.key, true);
		else
			through(&k, 0, 512);
		end_free(&c);
		end_free(&d);
		pair_down();
		key_free(&k);
	}
}

/* ---- signatures, of other making ---- */

/* The remainder of the message times x^bits by the polynomial: schoolbook division, a bit at a time, of the bits in the order given */
static uint64_t remainder_of(const uint8_t *p, uint32_t n, unsigned bits, uint64_t poly, uint64_t first, bool low_first)
{
	uint64_t rest = 0, top = 1ull << (bits - 1), all = top | (top - 1), i, total = 8ull * n + bits;

	for (i = 0; i < total; i++) {
		uint64_t bit = i < 8ull * n ? p[i / 8] >> (low_first ? i % 8 : 7 - i % 8) & 1 : 0, out = rest & top;

		/* What the register begins with is added to the first bits */
		if (i < bits)
			bit ^= first >> (bits - 1 - i) & 1;
		rest = (rest << 1 | bit) & all;
		if (out)
			rest ^= poly;
	}
	return rest;
}

static uint32_t mirrored(uint32_t v)
{
	uint32_t r = 0, i;

	for (i = 0; i < 32; i++)
		r |= (v >> i & 1) << (31 - i);
	return r;
}

enum { CRC32, CRC32C, DIF_CRC, DIF_SUM, KINDS };

struct sig {
	unsigned kind;
	uint32_t block, ones;
	struct mlx5dv_sig_t10dif dif;
	struct mlx5dv_sig_crc crc;
	struct mlx5dv_sig_block_domain domain;
};

static uint32_t sig_len(const struct sig *s)
{
	return !s ? 0 : s->kind <= CRC32C ? 4 : 8;
}

/* The bytes behind block i */
static void sig_make(const struct sig *s, const uint8_t *block, uint32_t i, uint8_t *to)
{
	uint32_t seed = s->ones ? 0xffffffff : 0, sum = seed & 0xffff, k, poly;
	uint64_t be;

	if (s->kind <= CRC32C) {
		poly = s->kind == CRC32 ? 0x04c11db7 : 0x1edc6f41;
		sum = htole32(~mirrored((uint32_t)remainder_of(block, s->block, 32, poly, seed, true)));
		memcpy(to, &sum, 4);
		return;
	}
	for (k = 0; k < s->block; k += 2) {
		sum += (uint32_t)block[k] * 256 + block[k + 1];
		sum -= sum > 0xffff ? 0xffff : 0;
	}
	sum = s->kind == DIF_CRC ? (uint16_t)remainder_of(block, s->block, 16, 0x8bb7, seed & 0xffff, false) : (uint16_t)~sum;
	be = htobe64((uint64_t)sum << 48 | (uint64_t)s->dif.app_tag << 32 |
		     (uint32_t)(s->dif.ref_tag + (s->dif.flags & MLX5DV_SIG_T10DIF_FLAG_REF_REMAP ? i : 0)));
	memcpy(to, &be, 8);
}

/* As the device tells of one */
static uint64_t value_of(const uint8_t *sig, uint32_t len)
{
	uint64_t be;
	uint32_t le;

	memcpy(&be, sig, 8);
	memcpy(&le, sig, 4);
	return len == 8 ? be64toh(be) : (uint64_t)le32toh(le) << 32;
}

/* raw bytes with a signature behind each block; returns the length */
static uint32_t signed_form(const struct sig *s, const uint8_t *raw, uint32_t n, uint8_t *to)
{
	uint32_t i, len = sig_len(s);

	if (!s) {
		memcpy(to, raw, n);
		return n;
	}
	for (i = 0; i * s->block < n; i++) {
		memcpy(to + i * (s->block + len), raw + i * s->block, s->block);
		sig_make(s, raw + i * s->block, i, to + i * (s->block + len) + s->block);
	}
	return i * (s->block + len);
}

static void sig_random(struct sig *s, unsigned kind, enum mlx5dv_block_size size)
{
	static const uint32_t sizes[] = {512, 520, 4048, 4096, 4160};

	memset(s, 0, sizeof(*s));
	s->kind = kind;
	s->block = sizes[size];
	s->ones = rnd_below(2);
	s->dif.bg_type = kind == DIF_CRC ? MLX5DV_SIG_T10DIF_CRC : MLX5DV_SIG_T10DIF_CSUM;
	s->dif.bg = s->ones ? 0xffff : 0;
	s->dif.app_tag = (uint16_t)rnd_below(0xffff);
	s->dif.ref_tag = (uint32_t)rnd();
	s->dif.flags = rnd_below(2) ? MLX5DV_SIG_T10DIF_FLAG_REF_REMAP : 0;
	s->crc.type = kind == CRC32 ? MLX5DV_SIG_CRC_TYPE_CRC32 : MLX5DV_SIG_CRC_TYPE_CRC32C;
	s->crc.seed = s->ones ? 0xffffffff : 0;
	s->domain.sig_type = kind <= CRC32C ? MLX5DV_SIG_TYPE_CRC : MLX5DV_SIG_TYPE_T10DIF;
	s->domain.block_size = size;
	if (kind <= CRC32C)
		s->domain.sig.crc = &s->crc;
	else
		s->domain.sig.dif = &s->dif;
}

static uint8_t check_all(const struct sig *s)
{
	return s->kind <= CRC32C ? MLX5DV_SIG_MASK_CRC32 : 0xff;
}

static uint8_t raw[BYTES], wire[BYTES], mem[BYTES];
static uint32_t n_raw, n_wire, n_mem;

/* b's key over `mem`, which lies in two pieces at 0; first: with the bit that makes the device look for errors */
static void sig_key(struct key *k, const struct sig *m, const struct sig *w, uint8_t check, uint32_t errors)
{
	const uint32_t psv[2] = {psvs[0].psv, psvs[1].psv};
	struct mlx5dv_sig_block_attr attr = {
		.mem = m ? &m->domain : NULL, .wire = w ? &w->domain : NULL, .check_mask = check,
	};
	struct ibv_sge sge[2] = {sge_of(&b, 0, n_mem / 3), sge_of(&b, n_mem / 3, n_mem - n_mem / 3)};
	struct inlay_umr umr = filling(k, INLAY_UMR_MASK_ACCESS | MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR, sge, 2, n_mem);

	umr.flags = errors % 2 ? INLAY_UMR_SIG_ERR : 0;
	must(inlay_post_umr_sig(&b.sq, k->key, &umr, &attr, psv, INLAY_SIGNALED));
	inlay_sq_ring(&b.sq);
	assert_int_equal(inlay_cqe_send_opcode(cqe_wait(&b.cq)), MLX5_OPCODE_SET_PSV);
	sent(&b);
	assert_int_equal(inlay_sq_pending(&b.sq), 0);
}

/* The CQ that a wrong signature is told of in */
static struct inlay_cq *error_cq(unsigned way)
{
	return way == SEND_OUT ? &b.cq : &b.rxcq;
}

static void forms(const struct sig *m, const struct sig *w)
{
	fill(raw, n_raw, (uint32_t)rnd());
	n_mem = signed_form(m, raw, n_raw, mem);
	n_wire = signed_form(w, raw, n_raw, wire);
	memset(a.buf, 0xa1, BYTES);
	memset(b.buf, 0xb2, BYTES);
}

/* Generated, stripped, converted: the right bytes arrive, and no error is told of */
static void good(struct key *k, const struct sig *m, const struct sig *w, uint32_t errors)
{
	for (unsigned way = 0; way < WAYS; way++) {
		bool out = is_out(way);

		forms(m, w);
		memcpy(out ? b.buf : a.buf, out ? mem : wire, out ? n_mem : n_wire);
		sig_key(k, m, w, check_all(out ? m ? m : w : w ? w : m), errors);
		transfer(k, k->start, n_wire, w ? n_mem : n_raw, way);
		done(n_wire, way);
		expect_nothing(error_cq(way));
		assert_memory_equal(out ? a.buf : b.buf, out ? wire : mem, out ? n_wire : n_mem);
		assert_true(all_bytes(b.buf + n_mem, BYTES - n_mem, 0xb2));
		assert_true(all_bytes(a.buf + n_wire, BYTES - n_wire, 0xa1));
	}
}

/* A byte of the incoming side wrong: the transfer goes on, and one CQE in front of its own says what and where */
static uint32_t bad(struct key *k, const struct sig *m, const struct sig *w, unsigned way, uint32_t errors)
{
	bool out = is_out(way);
	const struct sig *in = out ? m : w;
	uint32_t len = sig_len(in), blocks = n_raw / in->block, block = rnd_below(blocks), at, kind, mask;
	uint64_t found;
	struct inlay_sig_error e = {};
	uint8_t *form, sig[8];

	forms(m, w);
	form = out ? mem : wire;
	sig_make(in, raw + block * in->block, block, sig);
	/* In the data, or in the signature: guard, application tag, reference tag */
	at = rnd_below(2) ? rnd_below(in->block) : in->block + rnd_below(len);
	form[block * (in->block + len) + at] ^= 0x40;
	memcpy(out ? b.buf : a.buf, form, out ? n_mem : n_wire);
	kind = at < in->block || in->kind <= CRC32C || at < in->block + 2 ? MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD :
	       at < in->block + 4 ? MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG : MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG;
	mask = check_all(in);
	/* Parts that are not asked for are not checked */
	if (kind != MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD && rnd_below(3) == 0)
		mask = MLX5DV_SIG_MASK_T10DIF_GUARD;
	sig_key(k, m, w, (uint8_t)mask, errors);
	transfer(k, k->start, n_wire, w ? n_mem : n_raw, way);
	if (mask == MLX5DV_SIG_MASK_T10DIF_GUARD && kind != MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD) {
		done(n_wire, way);
		expect_nothing(error_cq(way));
		return errors;
	}
	cqe_wait(error_cq(way));
	assert_true(inlay_cqe_is_error(inlay_cq_peek(error_cq(way))));
	assert_int_equal(inlay_cqe_sig_error(inlay_cq_peek(error_cq(way)), &e), 1);
	inlay_cq_advance(error_cq(way), 1);
	done(n_wire, way);
	expect_nothing(error_cq(way));
	assert_int_equal(e.key, k->key);
	assert_int_equal(e.qpn, inlay_sq_qpn(&b.sq));
	assert_int_equal(e.kind, kind);
	assert_int_equal(e.memory, out);
	assert_int_equal(e.offset, block * (in->block + len));
	/* found is what the block carries; computed what it should */
	found = value_of(form + block * (in->block + len) + in->block, len);
	sig_make(in, form + block * (in->block + len), block, sig);
	assert_true(e.found == found && e.computed == value_of(sig, len) && found != e.computed);
	return errors + 1;
}

TEST(signatures)
{
	static const enum mlx5dv_block_size sizes[] = {MLX5DV_BLOCK_SIZE_512, MLX5DV_BLOCK_SIZE_520, MLX5DV_BLOCK_SIZE_4048,
						       MLX5DV_BLOCK_SIZE_4096, MLX5DV_BLOCK_SIZE_4160};
	const uint8_t nine[] = "123456789";
	uint32_t kind, turn, errors;

	/* The check values of the catalogues of CRCs */
	assert_int_equal(~mirrored((uint32_t)remainder_of(nine, 9, 32, 0x04c11db7, 0xffffffff, true)), 0xcbf43926);
	assert_int_equal(~mirrored((uint32_t)remainder_of(nine, 9, 32, 0x1edc6f41, 0xffffffff, true)), 0xe3069283);
	assert_int_equal(remainder_of(nine, 9, 16, 0x8bb7, 0, false), 0xd0db);
	must(inlay_devx_psv_create(&psvs[0], dev.ctx, my_pdn()));
	must(inlay_devx_psv_create(&psvs[1], dev.ctx, my_pdn()));
	pair_up();
	for (kind = 0; kind < KINDS; kind++)
		for (turn = 0; turn < 5; turn++) {
			struct key k = key_make(turn % 2, true);
			struct sig m, w;

			errors = 1;
			sig_random(&m, kind, sizes[turn]);
			n_raw = m.block * (1 + rnd_below(4));
			good(&k, &m, NULL, errors);
			good(&k, NULL, &m, errors);
			errors = bad(&k, &m, NULL, SEND_OUT, errors);
			errors = bad(&k, NULL, &m, RECV_IN, errors);
			errors = bad(&k, &m, NULL, PEER_READS, errors);
			errors = bad(&k, NULL, &m, PEER_WRITES, errors);
			/* The same on both sides: copied, or computed anew; then other tags */
			w = m;
			if (kind <= CRC32C)
				w.domain.sig.crc = &w.crc;
			else
				w.domain.sig.dif = &w.dif;
			good(&k, &m, &w, errors);
			if (kind > CRC32C) {
				w.dif.app_tag ^= 0x1234;
				w.dif.ref_tag += 77;
				good(&k, &m, &w, errors);
			}
			errors = bad(&k, &m, &w, SEND_OUT, errors);
			errors = bad(&k, &m, &w, RECV_IN, errors);
			/* Another kind on the wire */
			sig_random(&w, (kind + 1 + rnd_below(KINDS - 1)) % KINDS, sizes[turn]);
			good(&k, &m, &w, errors);
			key_free(&k);
		}
	pair_down();
	must(inlay_devx_psv_destroy(&psvs[0]));
	must(inlay_devx_psv_destroy(&psvs[1]));
}

static uint8_t page[512] __attribute__((aligned(512))), ring[8 * 64] __attribute__((aligned(64)));
static uint32_t record[2];

static void plain_queue(struct inlay_uar *uar, struct inlay_sq *sq)
{
	memset(uar, 0, sizeof(*uar));
	memset(ring, 0x5a, sizeof(ring));
	must(inlay_uar_init(uar, page, 256, INLAY_UAR_SERIAL));
	must(inlay_sq_init(sq, ring, 8, record, 0x42, 20, uar));
}

/* SPDK's CRC over a whole transfer (lib/mlx5/mlx5_umr.c): the BSF that its structs give */
TEST(as_spdk)
{
	static const uint8_t want[64] = {0x40, 0xff, 0, 0, 0, 1, 0x23, 0x45, 0, 0, 0, 0, 0, 0, 0, 0,
					 0x30, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0x12, 0x34};
	struct ibv_sge sge = {0x1000, 64, 0x77};
	struct inlay_bsf bsf = {};
	const struct inlay_umr umr = {.entries = 1, .list = &sge, .bsf = &bsf};
	struct inlay_uar uar;
	struct inlay_sq sq;

	plain_queue(&uar, &sq);
	bsf.size_same = INLAY_BSF_TRANSACTION;
	bsf.check_mask = 0xff;
	bsf.raw_be = inlay_to_be32(0x12345);
	bsf.wire_transaction_be = inlay_to_be32((uint32_t)INLAY_BSF_CRC32C << 24 | 0x1234);
	bsf.init_check_be = inlay_to_be32(INLAY_BSF_WIRE_INIT | INLAY_BSF_WIRE_CHECK);
	must(inlay_post_umr(&sq, 0xabcd42, &umr, INLAY_SIGNALED));
	assert_int_equal(ring[7], 16);
	assert_memory_equal(ring + 192, want, sizeof(want));
	inlay_sq_fini(&sq);
}

/* Longer than a WQE can be, longer than the ring, and a ring that is full: nothing is written */
TEST(no_room)
{
	static struct ibv_sge sge[65540];
	struct mlx5dv_sig_crc crc = {MLX5DV_SIG_CRC_TYPE_CRC32, 0};
	struct mlx5dv_sig_block_domain d = {.sig_type = MLX5DV_SIG_TYPE_CRC, .sig = {.crc = &crc}};
	struct mlx5dv_sig_block_attr attr = {.mem = &d, .wire = &d}, none = {};
	uint32_t psv[2] = {1, 2};
	struct inlay_sq sq, was;
	struct inlay_uar uar;
	struct inlay_umr umr = {};
	uint8_t wqe[1024] = {};

	plain_queue(&uar, &sq);
	was = sq;
	assert_int_equal(inlay_post_umr_list(&sq, 1, 0, sge, 53, 0), -EINVAL);
	assert_int_equal(inlay_post_umr_list(&sq, 1, 0, sge, 52, 0), -E2BIG);
	/* Too many by more than 16 bits */
	assert_int_equal(inlay_post_umr_list(&sq, 1, 0, sge, ARRAY(sge), 0), -EINVAL);
	umr.list = sge;
	umr.entries = 13; /* 2 + 4 + 1 WQEBBs, and 2 PSVs */
	assert_int_equal(inlay_post_umr_sig(&sq, 1, &umr, &attr, psv, 0), -E2BIG);
	assert_int_equal(inlay_post_umr_sig(&sq, 1, &umr, &none, psv, 0), -EINVAL);
	assert_int_equal(inlay_post_raw(&sq, wqe, 0), -EINVAL);
	wqe[7] = 21;
	assert_int_equal(inlay_post_raw(&sq, wqe, 0), -EINVAL);
	assert_memory_equal(&sq, &was, sizeof(sq));
	assert_true(all_bytes(ring, sizeof(ring), 0x5a));
	umr.entries = 5;
	must(inlay_post(&sq, MLX5_OPCODE_NOP, NULL, 0));
	assert_int_equal(inlay_post_umr_sig(&sq, 1, &umr, &attr, psv, 0), 0);
	assert_int_equal(inlay_sq_room(&sq), 0);
	was = sq;
	wqe[7] = 1;
	assert_int_equal(inlay_post_raw(&sq, wqe, 0), -EAGAIN);
	assert_int_equal(inlay_post_set_psv(&sq, 1, 0, 0), -EAGAIN);
	assert_int_equal(inlay_post_umr(&sq, 1, &umr, 0), -EAGAIN);
	assert_int_equal(inlay_post_umr_sig(&sq, 1, &umr, &attr, psv, 0), -EAGAIN);
	umr.entries = 53; /* for which no room would be enough */
	assert_int_equal(inlay_post_umr_sig(&sq, 1, &umr, &attr, psv, 0), -EINVAL);
	assert_memory_equal(&sq, &was, sizeof(sq));
	inlay_sq_fini(&sq);
}

int main(void)
{
	return run_all(dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1");
}
