/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * umr.c: keys that UMRs of inlay's have made, used by real transfers between QPs and compared with a plain model of what they cover:
 * lists, interleaved memory, tables, parts of them, every field of the key. Block signatures against checksums of other making: zlib's
 * CRC-32, and long divisions of polynomials. What cannot be done is refused by the device with an error of the WQE.
 */
#include "rig.h"
#include <zlib.h>
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

/* ---- keys ---- */

struct key {
	struct mlx5dv_mkey *dv;
	struct inlay_devx_mkey devx;
	uint32_t key;
	uint64_t start;
};

static uint32_t my_pdn(void)
{
	uint32_t pdn;

	must(inlay_pdn_from_pd(&pdn, dev.pd));
	return pdn;
}

/* One of libmlx5's or of a command's own */
static struct key key_make(bool devx, bool with_signature)
{
	struct mlx5dv_mkey_init_attr init;
	struct inlay_devx_mkey_attr attr;
	struct key k;

	memset(&k, 0, sizeof(k));
	memset(&init, 0, sizeof(init));
	memset(&attr, 0, sizeof(attr));
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
	k.dv = mlx5dv_create_mkey(&init);
	assert_non_null(k.dv);
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

/* ---- layouts, and the model of them ---- */

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

/* ---- transfers ---- */

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
	uint32_t i, way;

	for (way = 0; way < WAYS; way++) {
		fill(b.buf, BYTES, (uint32_t)rnd());
		fill(a.buf, n, (uint32_t)rnd());
		memcpy(model, b.buf, BYTES);
		for (i = 0; !is_out(way) && i < n; i++)
			model[place[from + i]] = a.buf[i];
		transfer(k, k->start + from, n, n, way);
		done(n, way);
		assert_memory_equal(b.buf, model, BYTES);
		for (i = 0; is_out(way) && i < n; i++)
			assert_int_equal(a.buf[i], b.buf[place[from + i]]);
	}
}

static void whole_and_parts(const struct key *k)
{
	uint32_t i;

	through(k, 0, covers);
	for (i = 0; i < 3; i++) {
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

/* ---- tests: what a key covers ---- */

/* Lists and interleaved memory; filled anew as often as one likes */
static void layouts(void **state)
{
	struct mlx5dv_mr_interleaved part[ROOM - 1];
	struct ibv_sge sge[ROOM];
	uint32_t turn, rounds, again;

	(void)state;
	pair_up();
	for (turn = 0; turn < 24; turn++) {
		struct key k = key_make(turn % 2, false);

		for (again = 0; again < 3; again++) {
			if ((turn / 2 + again) % 2) {
				uint16_t n = pieces(sge, ROOM);

				must(inlay_post_umr_list(&b.sq, k.key, RIGHTS, sge, n, INLAY_SIGNALED));
			} else {
				uint16_t n = stripes(part, 12, &rounds);

				must(inlay_post_umr_interleaved(&b.sq, k.key, RIGHTS, part, n, rounds, INLAY_SIGNALED));
			}
			filled();
			whole_and_parts(&k);
		}
		if (turn < 8)
			refused(k.start + covers - 7, k.key, turn % 2);
		key_free(&k);
	}
	pair_down();
}

/* The translation in memory: of either form; then a part of a list in the place of another */
static void tables(void **state)
{
	struct mlx5dv_mr_interleaved part[ROOM - 1];
	uint8_t *table = (uint8_t *)pages(4096);
	struct ibv_mr *mr = ibv_reg_mr(dev.pd, table, 4096, 0);
	struct ibv_sge sge[ROOM];
	struct inlay_umr umr;
	uint32_t turn, i;

	(void)state;
	assert_non_null(mr);
	pair_up();
	for (turn = 0; turn < 24; turn++) {
		struct key k = key_make(turn % 2, false);
		uint32_t rounds, units;
		uint16_t n;

		memset(table, 0, 4096);
		memset(&umr, 0, sizeof(umr));
		if (turn % 3) {
			n = pieces(sge, ROOM);
			for (i = 0; i < n; i++)
				inlay_wqe_klm(table + 16 * i, sge[i].addr, sge[i].length, sge[i].lkey);
			units = n;
		} else {
			uint32_t round = 0;

			n = stripes(part, 12, &rounds);
			for (i = 0; i < n; i++) {
				inlay_wqe_interleaved(table + 16 * (i + 1), &part[i]);
				round += part[i].bytes_count;
			}
			inlay_wqe_rounds(table, round, rounds, n);
			units = n + 1;
		}
		umr.mask = INLAY_UMR_MASK_FILL | INLAY_UMR_MASK_ACCESS;
		umr.tag = (uint8_t)k.key;
		umr.access = RIGHTS;
		umr.len = covers;
		umr.table.addr = (uintptr_t)table;
		umr.table.length = (units + 3) / 4 * 64;
		umr.table.lkey = mr->lkey;
		must(inlay_post_umr(&b.sq, k.key, &umr, INLAY_SIGNALED));
		filled();
		whole_and_parts(&k);
		if (turn % 3) {
			/* Entries 4 .. 7 become others; those that are there stay, and the rest of the key moves along */
			struct ibv_sge four[4];

			if (n < 8)
				n = 8;
			for (i = 0; i < 8; i++)
				sge[i] = sge_of(&b, 1000 * i, 100 + i);
			for (i = 0, covers = 0; i < 8; i++)
				cover(1000 * i + (i / 4) * 50, 100 + i);
			must(inlay_post_umr_list(&b.sq, k.key, RIGHTS, sge, 8, 0));
			for (i = 0; i < 4; i++)
				four[i] = sge_of(&b, 1000 * (i + 4) + 50, 104 + i);
			memset(&umr, 0, sizeof(umr));
			umr.flags = (uint32_t)MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET | INLAY_UMR_CHECK_NOT_FREE;
			umr.offset = 4;
			umr.list = four;
			umr.entries = 4;
			must(inlay_post_umr(&b.sq, k.key, &umr, INLAY_SIGNALED));
			filled();
			whole_and_parts(&k);
		}
		key_free(&k);
	}
	pair_down();
	must(ibv_dereg_mr(mr));
	free(table);
}

/* ---- tests: other fields ---- */

static void change(struct key *k, struct inlay_umr *umr)
{
	must(inlay_post_umr(&b.sq, k->key, umr, INLAY_SIGNALED));
	filled();
	memset(umr, 0, sizeof(*umr));
}

static void fields(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(dev.ctx);
	uint32_t turn, pdn, old;
	struct inlay_umr umr;
	struct ibv_sge sge;

	(void)state;
	assert_non_null(pd);
	must(inlay_pdn_from_pd(&pdn, pd));
	memset(&umr, 0, sizeof(umr));
	pair_up();
	for (turn = 0; turn < 8; turn++) {
		struct key k = key_make(turn % 2, false);

		sge = sge_of(&b, 4096, 4096);
		covers = 0;
		cover(4096, 4096);
		must(inlay_post_umr_list(&b.sq, k.key, RIGHTS, &sge, 1, INLAY_SIGNALED));
		filled();
		/* Another start, and shorter; the list stays */
		umr.mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR | MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN;
		umr.flags = INLAY_UMR_CHECK_NOT_FREE;
		umr.start = k.start = 0x123456789000 + turn;
		umr.len = covers = 1000;
		change(&k, &umr);
		whole_and_parts(&k);
		switch (turn) {
		case 0:
			refused(k.start + 993, k.key, true);
			break;
		case 1:
			refused(k.start - 1, k.key, false);
			break;
		case 2: /* no writing any more, and reading still */
			umr.mask = INLAY_UMR_MASK_ACCESS;
			umr.access = IBV_ACCESS_REMOTE_READ;
			change(&k, &umr);
			sge = sge_of(&a, 0, 8);
			must(inlay_post_read(&a.sq, k.start, k.key, &sge, 1, INLAY_SIGNALED | INLAY_RING));
			sent(&a);
			refused(k.start, k.key, true);
			break;
		case 3: /* another low byte: the old key is none */
			old = k.key;
			umr.mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY;
			umr.tag = (uint8_t)(old + 1);
			change(&k, &umr);
			k.key = (old & ~0xffu) | ((old + 1) & 0xff);
			whole_and_parts(&k);
			refused(k.start, old, false);
			break;
		case 4: /* free */
			umr.mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE;
			umr.flags = INLAY_UMR_FREE;
			change(&k, &umr);
			refused(k.start, k.key, true);
			break;
		case 5: /* invalidated, as a window is */
			must(inlay_post_local_inv(&b.sq, k.key, INLAY_SIGNALED));
			filled();
			refused(k.start, k.key & ~0xffu, true);
			break;
		case 6: /* another PD: no QP of this one may use it */
			umr.mask = INLAY_UMR_MASK_PD;
			umr.pdn = pdn;
			change(&k, &umr);
			refused(k.start, k.key, false);
			break;
		default: /* this QP's alone: its peer's requests arrive at it, and nobody else's */
			umr.mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN;
			umr.qpn = inlay_sq_qpn(&b.sq);
			change(&k, &umr);
			whole_and_parts(&k);
			pair_down();
			pair_up();
			refused(k.start, k.key, true);
		}
		key_free(&k);
	}
	pair_down();
	must(ibv_dealloc_pd(pd));
}

/* The peer invalidates a key that allows it, and no other */
static void by_the_peer(void **state)
{
	struct ibv_sge sge;
	uint32_t turn;

	(void)state;
	pair_up();
	for (turn = 0; turn < 4; turn++) {
		struct key k = key_make(turn % 2, false);
		const struct mlx5_cqe64 *cqe;
		struct inlay_umr umr;

		sge = sge_of(&b, 0, 4096);
		memset(&umr, 0, sizeof(umr));
		umr.mask = INLAY_UMR_MASK_FILL | INLAY_UMR_MASK_ACCESS | INLAY_UMR_MASK_REMOTE_INVALIDATE;
		umr.flags = turn < 2 ? INLAY_UMR_REMOTE_INVALIDATE : 0;
		umr.access = RIGHTS;
		umr.tag = (uint8_t)k.key;
		umr.list = &sge;
		umr.entries = 1;
		umr.len = 4096;
		change(&k, &umr);
		post_recv(&b, 0, 64);
		must(inlay_post_send_inv(&a.sq, k.key, NULL, 0, INLAY_SIGNALED | INLAY_RING));
		if (turn < 2) {
			sent(&a);
			cqe = cqe_wait(&b.rxcq);
			assert_int_equal(inlay_cqe_invalidated_rkey(cqe), k.key);
			refused(k.start, k.key, false);
		} else {
			assert_true(inlay_cqe_is_error(cqe_wait(&a.cq)));
			pair_down();
			pair_up();
		}
		key_free(&k);
	}
	pair_down();
}

/* What the device must refuse: an error of the WQE, and the key is as it was */
static void not_done(void **state)
{
	enum { TOO_LONG, FREE_WANTED, USED_WANTED, ENTITY, NO_SIGNATURES, BAD_OFFSET, NO_TABLE, NO_PD, NO_KEY, BAD_PSV, CASES };
	struct mlx5dv_sig_crc crc = {MLX5DV_SIG_CRC_TYPE_CRC32, 0};
	struct mlx5dv_sig_block_domain domain;
	struct mlx5dv_sig_block_attr attr;
	struct ibv_sge sge[ROOM + 4], one;
	uint32_t way, i;

	(void)state;
	memset(&domain, 0, sizeof(domain));
	memset(&attr, 0, sizeof(attr));
	domain.sig_type = MLX5DV_SIG_TYPE_CRC;
	domain.sig.crc = &crc;
	attr.wire = &domain;
	for (way = 0; way < CASES; way++) {
		struct key k = key_make(way % 2, way == BAD_PSV);
		const uint32_t bad[2] = {0xfffff0, 0xfffff1};
		uint32_t key = k.key, want = IBV_WC_LOC_QP_OP_ERR;
		const struct mlx5_cqe64 *cqe;
		struct opt opt = opt_of(IBV_QPT_RC, 4096);
		struct inlay_umr umr;
		struct end c, d;

		pair_up();
		ends_make(&c, &d, &opt); /* one of these breaks */
		end_take(&c, INLAY_UAR_SERIAL);
		one = sge_of(&b, 0, 512);
		for (i = 0; i < ARRAY(sge); i++)
			sge[i] = one;
		memset(&umr, 0, sizeof(umr));
		umr.mask = INLAY_UMR_MASK_FILL | INLAY_UMR_MASK_ACCESS;
		if (way == BAD_PSV)
			umr.mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE; /* it has room for signatures, and none */
		umr.access = RIGHTS;
		umr.tag = (uint8_t)k.key;
		umr.list = &one;
		umr.entries = 1;
		umr.len = 512;
		if (way != USED_WANTED)
			change(&k, &umr);
		memset(&umr, 0, sizeof(umr));
		umr.mask = INLAY_UMR_MASK_FILL;
		umr.tag = (uint8_t)k.key;
		umr.list = &one;
		umr.entries = 1;
		umr.len = 4;
		switch (way) {
		case TOO_LONG:
			umr.list = sge;
			umr.entries = ROOM + 4;
			break;
		case FREE_WANTED:
			umr.flags = MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE;
			want = IBV_WC_MW_BIND_ERR;
			break;
		case USED_WANTED:
			umr.flags = INLAY_UMR_CHECK_NOT_FREE;
			want = IBV_WC_MW_BIND_ERR;
			break;
		case ENTITY:
			umr.mask |= INLAY_UMR_MASK_LOG_ENTITY;
			break;
		case NO_SIGNATURES:
			umr.mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE;
			break;
		case BAD_OFFSET:
			umr.flags = MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET;
			umr.offset = ROOM;
			break;
		case NO_TABLE:
			umr.list = NULL;
			umr.entries = 0;
			umr.table = sge_of(&b, 0, 64);
			umr.table.lkey = 0x123456;
			want = IBV_WC_LOC_PROT_ERR;
			break;
		case NO_PD:
			umr.mask |= INLAY_UMR_MASK_PD;
			umr.pdn = 0xfffffe;
			break;
		case NO_KEY:
			key = 0xffffff00;
			break;
		}
		if (way == BAD_PSV)
			must(inlay_post_umr_sig(&c.sq, key, &umr, &attr, bad, INLAY_SIGNALED));
		else
			must(inlay_post_umr(&c.sq, key, &umr, INLAY_SIGNALED));
		inlay_sq_ring(&c.sq);
		cqe = cqe_wait(&c.cq);
		assert_true(inlay_cqe_is_error(cqe));
		if (way != NO_KEY)
			assert_int_equal(inlay_cqe_status(cqe), want);
		/* The 512 bytes are there still */
		covers = 0;
		cover(0, 512);
		if (way == USED_WANTED)
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
	uint64_t rest = 0, top = 1ull << (bits - 1), all = top | (top - 1);
	uint64_t i, total = 8ull * n + bits;

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
	uint32_t seed = s->ones ? 0xffffffff : 0, crc, sum, k, ref;
	uint16_t guard;

	if (s->kind <= CRC32C) {
		crc = s->kind == CRC32 ? (uint32_t)crc32(~seed, block, s->block)
				       : ~mirrored((uint32_t)remainder_of(block, s->block, 32, 0x1edc6f41, seed, true));
		to[0] = (uint8_t)crc;
		to[1] = (uint8_t)(crc >> 8);
		to[2] = (uint8_t)(crc >> 16);
		to[3] = (uint8_t)(crc >> 24);
		return;
	}
	if (s->kind == DIF_CRC) {
		guard = (uint16_t)remainder_of(block, s->block, 16, 0x8bb7, seed & 0xffff, false);
	} else {
		for (k = 0, sum = seed & 0xffff; k < s->block; k += 2) {
			sum += (uint32_t)block[k] * 256 + block[k + 1];
			if (sum > 0xffff)
				sum -= 0xffff;
		}
		guard = (uint16_t)~sum;
	}
	ref = s->dif.ref_tag + (s->dif.flags & MLX5DV_SIG_T10DIF_FLAG_REF_REMAP ? i : 0);
	to[0] = (uint8_t)(guard >> 8);
	to[1] = (uint8_t)guard;
	to[2] = (uint8_t)(s->dif.app_tag >> 8);
	to[3] = (uint8_t)s->dif.app_tag;
	to[4] = (uint8_t)(ref >> 24);
	to[5] = (uint8_t)(ref >> 16);
	to[6] = (uint8_t)(ref >> 8);
	to[7] = (uint8_t)ref;
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

static void known_values(void **state)
{
	uint8_t nine[] = "123456789";

	(void)state;
	/* The check values of the catalogues of CRCs */
	assert_int_equal(crc32(0, nine, 9), 0xcbf43926);
	assert_int_equal(~mirrored((uint32_t)remainder_of(nine, 9, 32, 0x04c11db7, 0xffffffff, true)), 0xcbf43926);
	assert_int_equal(~mirrored((uint32_t)remainder_of(nine, 9, 32, 0x1edc6f41, 0xffffffff, true)), 0xe3069283);
	assert_int_equal(remainder_of(nine, 9, 16, 0x8bb7, 0, false), 0xd0db);
}

/* ---- tests: signatures ---- */

static uint8_t raw[BYTES], wire[BYTES], mem[BYTES];
static uint32_t n_raw, n_wire, n_mem;

/* b's key over `mem`, which lies in two pieces at 0; first: with the bit that makes the device look for errors */
static void sig_key(struct key *k, const struct sig *m, const struct sig *w, bool copy, uint8_t check, uint32_t errors)
{
	const uint32_t psv[2] = {psvs[0].psv, psvs[1].psv};
	struct mlx5dv_sig_block_attr attr;
	struct inlay_umr umr;
	struct ibv_sge sge[2];

	memset(&attr, 0, sizeof(attr));
	attr.mem = m ? &m->domain : NULL;
	attr.wire = w ? &w->domain : NULL;
	attr.check_mask = check;
	if (copy) {
		attr.flags = MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK;
		attr.copy_mask = 0;
	}
	sge[0] = sge_of(&b, 0, n_mem / 3);
	sge[1] = sge_of(&b, n_mem / 3, n_mem - n_mem / 3);
	memset(&umr, 0, sizeof(umr));
	umr.mask = INLAY_UMR_MASK_FILL | INLAY_UMR_MASK_ACCESS | MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR;
	umr.flags = errors % 2 ? INLAY_UMR_SIG_ERR : 0;
	umr.access = RIGHTS;
	umr.tag = (uint8_t)k->key;
	umr.list = sge;
	umr.entries = 2;
	umr.len = n_mem;
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
static void good(struct key *k, const struct sig *m, const struct sig *w, bool copy, uint32_t errors)
{
	unsigned way;

	for (way = 0; way < WAYS; way++) {
		bool out = is_out(way);

		forms(m, w);
		memcpy(out ? b.buf : a.buf, out ? mem : wire, out ? n_mem : n_wire);
		sig_key(k, m, w, copy, check_all(out ? m ? m : w : w ? w : m), errors);
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
	uint64_t found = 0, want = 0;
	struct inlay_sig_error e;
	uint8_t *form, sig[8];

	forms(m, w);
	memset(&e, 0, sizeof(e));
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
	sig_key(k, m, w, false, (uint8_t)mask, errors);
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
	memcpy(sig, form + block * (in->block + len) + in->block, len);
	memcpy(&found, sig, 8);
	found = len == 8 ? be64toh(found) : (uint64_t)(sig[0] | sig[1] << 8 | sig[2] << 16 | (uint32_t)sig[3] << 24) << 32;
	sig_make(in, form + block * (in->block + len), block, sig);
	memcpy(&want, sig, 8);
	want = len == 8 ? be64toh(want) : (uint64_t)(sig[0] | sig[1] << 8 | sig[2] << 16 | (uint32_t)sig[3] << 24) << 32;
	assert_true(e.found == found && e.computed == want && found != want);
	return errors + 1;
}

static void signatures(void **state)
{
	static const enum mlx5dv_block_size sizes[] = {MLX5DV_BLOCK_SIZE_512, MLX5DV_BLOCK_SIZE_520, MLX5DV_BLOCK_SIZE_4048,
						       MLX5DV_BLOCK_SIZE_4096, MLX5DV_BLOCK_SIZE_4160};
	uint32_t kind, turn, errors;

	(void)state;
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
			good(&k, &m, NULL, false, errors);
			good(&k, NULL, &m, false, errors);
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
			good(&k, &m, &w, turn % 2, errors);
			if (kind > CRC32C) {
				w.dif.app_tag ^= 0x1234;
				w.dif.ref_tag += 77;
				good(&k, &m, &w, false, errors);
			}
			errors = bad(&k, &m, &w, SEND_OUT, errors);
			errors = bad(&k, &m, &w, RECV_IN, errors);
			/* Another kind on the wire */
			sig_random(&w, (kind + 1 + rnd_below(KINDS - 1)) % KINDS, sizes[turn]);
			good(&k, &m, &w, false, errors);
			key_free(&k);
		}
	pair_down();
	must(inlay_devx_psv_destroy(&psvs[0]));
	must(inlay_devx_psv_destroy(&psvs[1]));
}

/* ---- tests: what other projects write ---- */

/* SPDK's three UMRs (lib/mlx5/mlx5_umr.c): a list without rights or key, one with a CRC over a whole transfer, one with encryption */
static void as_spdk(void **state)
{
	uint8_t ring[16 * 64], crypto[64], *w;
	const uint32_t seed = 0xffffffff, psv = 0x1234;
	uint32_t record[2] = {0, 0}, turn, at;
	static uint8_t page[512] __attribute__((aligned(512)));
	static uint8_t place_of_ring[sizeof(ring)] __attribute__((aligned(64)));
	struct inlay_bsf bsf;
	struct inlay_umr umr;
	struct inlay_uar uar;
	struct inlay_sq sq;
	struct ibv_sge sge[5];

	(void)state;
	memset(sge, 0, sizeof(sge));
	for (at = 0; at < 5; at++) {
		sge[at].addr = 0x1000 * at;
		sge[at].length = 64 + at;
		sge[at].lkey = 0x77;
	}
	fill(crypto, sizeof(crypto), 9);
	memset(&uar, 0, sizeof(uar));
	must(inlay_uar_init(&uar, page, 256, INLAY_UAR_SERIAL));
	must(inlay_sq_init(&sq, place_of_ring, 16, record, 0x42, 20, &uar));
	for (turn = 0; turn < 3; turn++) {
		memset(&umr, 0, sizeof(umr));
		umr.mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN;
		umr.len = 0x12345;
		umr.list = sge;
		umr.entries = 5;
		if (turn == 1) {
			memset(&bsf, 0, sizeof(bsf));
			bsf.size_same = INLAY_BSF_TRANSACTION;
			bsf.check_mask = 0xff;
			bsf.raw_be = inlay_to_be32(0x12345);
			bsf.wire_transaction_be = inlay_to_be32((uint32_t)(INLAY_BSF_CRC32C | (seed ? 0 : INLAY_BSF_SEED_0)) << 24 | psv);
			bsf.init_check_be = inlay_to_be32(INLAY_BSF_WIRE_INIT | INLAY_BSF_WIRE_CHECK);
			umr.bsf = &bsf;
			umr.mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR;
			umr.flags = INLAY_UMR_SIG_ERR;
		} else if (turn == 2) {
			umr.bsf = crypto;
		}
		assert_int_equal(inlay_umr_ds(&umr), turn ? 20 : 16);
		must(inlay_post_umr(&sq, 0xabcd42, &umr, INLAY_SIGNALED));
		/* Read with SPDK's structs: offsets and values as its functions set them */
		at = turn == 0 ? 0 : turn == 1 ? 4 : 9;
		memset(ring, 0, sizeof(ring));
		memcpy(ring, place_of_ring + at * 64, (turn ? 5 : 4) * 64);
		w = ring;
		assert_true(w[3] == 0x25 && w[7] == (turn ? 20 : 16) && w[13] == 0xab && w[14] == 0xcd && w[15] == 0x42);
		assert_true(w[16] == 0x80 && w[21] == 8 && w[23] == (turn ? 4 : 0));
		assert_int_equal(be64toh(*(uint64_t *)(void *)(w + 24)), turn == 1 ? 0x20000201 : 0x20000001);
		assert_int_equal(be64toh(*(uint64_t *)(void *)(w + 88)), 0x12345);
		assert_int_equal(be32toh(*(uint32_t *)(void *)(w + 76)), turn == 1 ? 1u << 26 : 0);
		assert_int_equal(be32toh(*(uint32_t *)(void *)(w + 128 + 64)), 68);
		assert_true(all_bytes(w + 128 + 80, 48, 0));
		if (turn == 1) {
			static const uint8_t want[32] = {0x40, 0xff, 0, 0, 0x00, 0x01, 0x23, 0x45, 0, 0, 0, 0, 0, 0, 0, 0,
							 0x30, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x00, 0x12, 0x34, 0, 0, 0, 0};

			assert_memory_equal(w + 256, want, 32);
			assert_true(all_bytes(w + 288, 32, 0));
		} else if (turn == 2) {
			assert_memory_equal(w + 256, crypto, 64);
		}
	}
	must(inlay_post_set_psv(&sq, psv, (uint64_t)seed << 32, 0));
	w = place_of_ring + 14 * 64;
	assert_true(all_bytes(w + 12, 4, 0));
	assert_true(w[3] == 0x20 && w[7] == 2 && w[18] == 0x12 && w[19] == 0x34 && w[24] == 0xff && w[27] == 0xff && w[28] == 0);
	inlay_sq_fini(&sq);
}

/* Longer than a WQE can be, longer than the ring, and a ring that is full: nothing is written */
static void no_room(void **state)
{
	static uint8_t page[512] __attribute__((aligned(512))), ring[8 * 64] __attribute__((aligned(64)));
	struct mlx5dv_sig_crc crc = {MLX5DV_SIG_CRC_TYPE_CRC32, 0};
	struct mlx5dv_sig_block_domain d;
	struct mlx5dv_sig_block_attr attr;
	static struct ibv_sge sge[65540];
	static struct mlx5dv_mr_interleaved parts[65540];
	uint32_t record[2] = {0, 0}, psv[2] = {1, 2};
	struct inlay_sq sq, was;
	struct inlay_uar uar;
	struct inlay_umr umr;
	uint8_t wqe[1024];

	(void)state;
	memset(&uar, 0, sizeof(uar));
	memset(&d, 0, sizeof(d));
	memset(&attr, 0, sizeof(attr));
	memset(wqe, 0, sizeof(wqe));
	memset(ring, 0x5a, sizeof(ring));
	d.sig_type = MLX5DV_SIG_TYPE_CRC;
	d.sig.crc = &crc;
	attr.mem = attr.wire = &d;
	must(inlay_uar_init(&uar, page, 256, INLAY_UAR_SERIAL));
	must(inlay_sq_init(&sq, ring, 8, record, 0x42, 20, &uar));
	was = sq;
	assert_int_equal(inlay_post_umr_list(&sq, 1, 0, sge, 53, 0), -EINVAL);
	assert_int_equal(inlay_post_umr_list(&sq, 1, 0, sge, 52, 0), -E2BIG);
	/* Too many by more than 16 bits */
	assert_int_equal(inlay_post_umr_list(&sq, 1, 0, sge, ARRAY(sge), 0), -EINVAL);
	assert_int_equal(inlay_post_umr_interleaved(&sq, 1, 0, parts, ARRAY(parts), 1, 0), -EINVAL);
	memset(&umr, 0, sizeof(umr));
	umr.list = sge;
	umr.entries = 13; /* 2 + 4 + 1 WQEBBs, and 2 PSVs */
	assert_int_equal(inlay_post_umr_sig(&sq, 1, &umr, &attr, psv, 0), -E2BIG);
	attr.mem = attr.wire = NULL;
	assert_int_equal(inlay_post_umr_sig(&sq, 1, &umr, &attr, psv, 0), -EINVAL);
	attr.mem = attr.wire = &d;
	assert_int_equal(inlay_post_raw(&sq, wqe, 0), -EINVAL);
	wqe[7] = 21;
	assert_int_equal(inlay_post_raw(&sq, wqe, 0), -EINVAL);
	assert_memory_equal(&sq, &was, sizeof(sq));
	assert_true(all_bytes(ring, sizeof(ring), 0x5a));
	umr.entries = 5;
	must(inlay_post_nop(&sq, 0));
	was = sq;
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
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_spdk),
		cmocka_unit_test(no_room),
		cmocka_unit_test(layouts),
		cmocka_unit_test(tables),
		cmocka_unit_test(fields),
		cmocka_unit_test(by_the_peer),
		cmocka_unit_test(not_done),
		cmocka_unit_test(known_values),
		cmocka_unit_test(signatures),
	};

	return cmocka_run_group_tests_name("UMR", tests, dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1");
}
