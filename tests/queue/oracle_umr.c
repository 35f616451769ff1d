/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oracle_umr.c: changes of memory keys, signatures and raw WQEs, byte for byte as libmlx5's: see oracle.h. The device is stepped.
 *
 * libmlx5 keeps the state of a key in a struct of its own behind the two numbers that it shows. The requests here bring one each, so
 * that keys, PSVs and states are any; `layout` sees that a real key has the same.
 */
#include "common.h"
#include "oracle_send.h"

#define ALL_UMR (MLX5DV_QP_EX_WITH_MR_INTERLEAVED | MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MKEY_CONFIGURE | MLX5DV_QP_EX_WITH_RAW_WQE)
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* ---- libmlx5's struct of a key ---- */

struct lib_psv {
	uint32_t index;
	void *obj;
};

struct lib_domain {
	int type;               /* 0: none, 1: CRC, 2: T10-DIF */
	union {
		struct mlx5dv_sig_t10dif dif;
		struct mlx5dv_sig_crc crc;
	} sig;
	enum mlx5dv_block_size size;
};

struct lib_sig {
	struct lib_psv *psv[2];
	struct lib_domain domain[2];
	uint32_t flags;
	uint8_t check_mask, copy_mask;
	int state;              /* 0: none yet, 2: set by an earlier UMR, 3: by this one */
	struct {
		uint16_t syndrome;
		uint64_t expected, actual, offset;
		uint8_t type, domain;
	} error;
	uint32_t errors;
	bool exists, updated;
};

struct lib_key {
	struct mlx5dv_mkey key;
	void *obj;
	uint16_t entries;
	uint64_t length;
	struct lib_sig *sig;
	void *crypto;
};

static void layout(void **state)
{
	struct mlx5dv_mkey_init_attr attr = {.pd = dev.pd, .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, .max_entries = 20};
	struct lib_key *key;

	(void)state;
	need_softdev("the oracle");
	attr.create_flags |= MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE;
	key = (struct lib_key *)(void *)mlx5dv_create_mkey(&attr);
	assert_non_null(key);
	assert_int_equal(key->entries, 20);
	assert_true(key->obj && !key->crypto && key->sig);
	assert_true(key->sig->errors == 1 && !key->sig->exists && key->sig->updated && key->sig->state == 0);
	assert_true(key->sig->psv[0]->index && key->sig->psv[0]->index != key->sig->psv[1]->index);
	must(mlx5dv_destroy_mkey(&key->key));
}

/* ---- libmlx5's way ---- */

static void raw_build(const struct req *r, uint32_t qpn, uint16_t index, uint8_t *wqe)
{
	struct mlx5_wqe_ctrl_seg c;

	memcpy(wqe, data + r->raddr % (DATA_BYTES - 1024), r->nsge * 16);
	memcpy(&c, wqe, sizeof(c));
	c.opmod_idx_opcode = htobe32((uint32_t)r->a << 24 | (uint32_t)index << 8 | (uint8_t)r->b);
	c.qpn_ds = htobe32(qpn << 8 | r->nsge);
	memcpy(wqe, &c, sizeof(c));
}

static void lib_layout(struct mlx5dv_qp_ex *q, const struct req *r)
{
	if (r->umr.layout == LIST)
		mlx5dv_wr_set_mkey_layout_list(q, (uint16_t)r->nsge, r->sge);
	else if (r->umr.layout == INTERLEAVED)
		mlx5dv_wr_set_mkey_layout_interleaved(q, r->umr.rounds, (uint16_t)r->nsge, r->umr.part);
}

static void umr_of_lib(struct lib *l, const struct req *r)
{
	struct mlx5dv_qp_ex *q = mlx5dv_qp_ex_from_ibv_qp_ex(l->qpx);
	struct mlx5dv_mkey_conf_attr conf = {.conf_flags = 0};
	struct lib_psv psv[2] = {{r->umr.psv[0], NULL}, {r->umr.psv[1], NULL}};
	struct lib_sig sig;
	struct lib_key key;
	uint8_t wqe[1024];
	unsigned i;

	if (r->op == RAW) {
		raw_build(r, l->qp->qp_num, (uint16_t)r->rkey, wqe);
		mlx5dv_wr_raw_wqe(q, wqe);
		return;
	}
	memset(&key, 0, sizeof(key));
	memset(&sig, 0, sizeof(sig));
	key.key.lkey = key.key.rkey = r->rkey;
	key.entries = 64;
	if (r->umr.sig) {
		key.sig = &sig;
		sig.psv[0] = &psv[0];
		sig.psv[1] = &psv[1];
		sig.errors = r->umr.errors;
		sig.updated = r->umr.seen;
		if (r->umr.sig == KEY_KEPT)
			sig.state = 2 + (r->umr.order & 1);
		else if (r->umr.sig == KEY_OFF)
			sig.state = r->umr.order & 1;
		for (i = 0; r->umr.sig == KEY_KEPT && i < 2; i++)
			if (i ? r->umr.attr.wire : r->umr.attr.mem) {
				const struct mlx5dv_sig_block_domain *d = &r->umr.domain[i];

				sig.domain[i].type = d->sig_type == MLX5DV_SIG_TYPE_CRC ? 1 : 2;
				sig.domain[i].size = d->block_size;
				if (d->sig_type == MLX5DV_SIG_TYPE_CRC)
					sig.domain[i].sig.crc = r->umr.crc[i];
				else
					sig.domain[i].sig.dif = r->umr.dif[i];
			}
		if (r->umr.sig == KEY_OFF && r->umr.order & 2) {
			conf.conf_flags = MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR;
			sig.state = 2 + (r->umr.order & 1);
		}
	}
	l->qpx->wr_flags |= IBV_SEND_INLINE;
	if (r->umr.simple && r->umr.access && r->umr.layout == LIST && r->umr.sig != KEY_SIGNED && !conf.conf_flags) {
		mlx5dv_wr_mr_list(q, &key.key, r->umr.rights, (uint16_t)r->nsge, (struct ibv_sge *)(uintptr_t)r->sge);
		return;
	}
	if (r->umr.simple && r->umr.access && r->umr.layout == INTERLEAVED && r->umr.sig != KEY_SIGNED && !conf.conf_flags) {
		mlx5dv_wr_mr_interleaved(q, &key.key, r->umr.rights, r->umr.rounds, (uint16_t)r->nsge,
					 (struct mlx5dv_mr_interleaved *)(uintptr_t)r->umr.part);
		return;
	}
	mlx5dv_wr_mkey_configure(q, &key.key, (uint8_t)(r->umr.access + !!r->umr.layout + (r->umr.sig == KEY_SIGNED)), &conf);
	/* The setters in any order */
	for (i = 0; i < 3; i++)
		switch ((r->umr.order / 4 + i * (1 + r->umr.order % 2)) % 3) {
		case 0:
			if (r->umr.access)
				mlx5dv_wr_set_mkey_access_flags(q, r->umr.rights);
			break;
		case 1:
			lib_layout(q, r);
			break;
		default:
			if (r->umr.sig == KEY_SIGNED)
				mlx5dv_wr_set_mkey_sig_block(q, &r->umr.attr);
		}
}

/* ---- inlay's ---- */

static int umr_of_inlay(struct inlay_sq *sq, const struct req *r, uint32_t flags)
{
	uint32_t quiet = flags & ~(uint32_t)INLAY_SIGNALED, fence = flags >> 29 ? 0 : INLAY_FENCE_INITIATOR_SMALL, i;
	struct inlay_umr umr;
	uint8_t wqe[1024];
	int err;

	if (r->op == RAW) {
		raw_build(r, rnd_below(1 << 24), (uint16_t)rnd(), wqe);
		return inlay_post_raw(sq, wqe, 0);
	}
	if (r->umr.access && !r->umr.sig && r->umr.layout == LIST && r->umr.order & 1)
		return inlay_post_umr_list(sq, r->rkey, r->umr.rights, r->sge, (uint16_t)r->nsge, flags);
	if (r->umr.access && !r->umr.sig && r->umr.layout == INTERLEAVED && r->umr.order & 1)
		return inlay_post_umr_interleaved(sq, r->rkey, r->umr.rights, r->umr.part, (uint16_t)r->nsge, r->umr.rounds, flags);
	memset(&umr, 0, sizeof(umr));
	umr.mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY;
	umr.tag = (uint8_t)r->rkey;
	if (r->umr.access) {
		umr.mask |= INLAY_UMR_MASK_ACCESS;
		umr.access = r->umr.rights;
	}
	if (r->umr.layout) {
		umr.mask |= INLAY_UMR_MASK_FILL;
		umr.entries = (uint16_t)r->nsge;
		umr.list = r->umr.layout == LIST ? r->sge : NULL;
		umr.interleaved = r->umr.layout == INTERLEAVED ? r->umr.part : NULL;
		umr.rounds = r->umr.rounds;
		for (i = 0; i < r->nsge; i++)
			umr.len += umr.list ? r->sge[i].length : (uint64_t)r->umr.part[i].bytes_count * r->umr.rounds;
	}
	if (r->umr.sig && r->umr.seen) {
		umr.mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR;
		umr.flags = r->umr.errors & 1 ? INLAY_UMR_SIG_ERR : 0;
	}
	if (r->umr.sig == KEY_OFF)
		umr.mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE;
	if (r->umr.sig == KEY_SIGNED)
		return inlay_post_umr_sig(sq, r->rkey, &umr, &r->umr.attr, r->umr.psv, flags);
	err = inlay_post_umr(sq, r->rkey, &umr, req_psvs(r) ? quiet : flags);
	if (!err && req_psvs(r) && r->umr.attr.mem)
		err = inlay_post_set_psv(sq, r->umr.psv[0], inlay_psv_value(r->umr.attr.mem), (r->umr.attr.wire ? quiet : flags) | fence);
	if (!err && req_psvs(r) && r->umr.attr.wire)
		err = inlay_post_set_psv(sq, r->umr.psv[1], inlay_psv_value(r->umr.attr.wire), flags | fence);
	return err;
}

/* ---- requests ---- */

static void domain_random(struct req *r, unsigned i)
{
	struct mlx5dv_sig_block_domain *d = &r->umr.domain[i];

	memset(d, 0, sizeof(*d));
	d->block_size = (enum mlx5dv_block_size)rnd_below(MLX5DV_BLOCK_SIZE_4160 + 1);
	r->umr.dif[i].bg_type = rnd_below(2) ? MLX5DV_SIG_T10DIF_CRC : MLX5DV_SIG_T10DIF_CSUM;
	r->umr.dif[i].bg = rnd_below(2) ? 0xffff : 0;
	r->umr.dif[i].app_tag = (uint16_t)rnd();
	r->umr.dif[i].ref_tag = (uint32_t)rnd();
	r->umr.dif[i].flags = (uint16_t)rnd_below(8);
	r->umr.crc[i].type = (enum mlx5dv_sig_crc_type)rnd_below(3);
	r->umr.crc[i].seed = !rnd_below(2) ? 0 : r->umr.crc[i].type == MLX5DV_SIG_CRC_TYPE_CRC64_XP10 ? UINT64_MAX : UINT32_MAX;
	d->sig_type = rnd_below(2) ? MLX5DV_SIG_TYPE_CRC : MLX5DV_SIG_TYPE_T10DIF;
	if (d->sig_type == MLX5DV_SIG_TYPE_CRC)
		d->sig.crc = &r->umr.crc[i];
	else
		d->sig.dif = &r->umr.dif[i];
}

/* The signature's part. Half of the time both domains are alike, but for a part of it */
static void sig_random(struct req *r)
{
	domain_random(r, 0);
	domain_random(r, 1);
	if (rnd_below(2)) {
		r->umr.domain[1] = r->umr.domain[0];
		if (rnd_below(2))
			r->umr.dif[1] = r->umr.dif[0];
		r->umr.crc[1] = r->umr.crc[0];
		if (rnd_below(2))
			r->umr.crc[1].seed ^= r->umr.crc[1].type == MLX5DV_SIG_CRC_TYPE_CRC64_XP10 ? UINT64_MAX : UINT32_MAX;
		if (r->umr.domain[1].sig_type == MLX5DV_SIG_TYPE_CRC)
			r->umr.domain[1].sig.crc = &r->umr.crc[1];
		else
			r->umr.domain[1].sig.dif = &r->umr.dif[1];
		switch (rnd_below(4)) {
		case 0: r->umr.dif[1].bg ^= 0xffff; break;
		case 1: r->umr.dif[1].app_tag ^= 1; break;
		case 2: r->umr.dif[1].ref_tag ^= 1; break;
		}
	}
	memset(&r->umr.attr, 0, sizeof(r->umr.attr));
	r->umr.attr.mem = rnd_below(3) ? &r->umr.domain[0] : NULL;
	r->umr.attr.wire = !r->umr.attr.mem || rnd_below(3) ? &r->umr.domain[1] : NULL;
	r->umr.attr.check_mask = (uint8_t)rnd();
	r->umr.attr.copy_mask = (uint8_t)rnd();
	if (r->umr.attr.mem && r->umr.attr.wire && r->umr.domain[0].sig_type == r->umr.domain[1].sig_type &&
	    r->umr.domain[0].block_size == r->umr.domain[1].block_size &&
	    (r->umr.domain[0].sig_type == MLX5DV_SIG_TYPE_T10DIF || r->umr.crc[0].type == r->umr.crc[1].type))
		r->umr.attr.flags = rnd_below(2) ? MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK : 0;
	r->umr.psv[0] = rnd_below(1 << 24);
	r->umr.psv[1] = rnd_below(1 << 24);
}

/* room: 16-byte units that libmlx5 grants for layout and signature */
static void umr_random(struct req *r, unsigned flags, unsigned layout_is, unsigned sig, uint32_t n, uint32_t room)
{
	uint32_t i;

	req_init(r, UMR, flags);
	memset(&r->umr, 0, offsetof(__typeof__(r->umr), part));
	r->umr.sig = (uint8_t)sig;
	r->umr.access = (uint8_t)rnd_below(2);
	r->umr.rights = (uint32_t)rnd() & RIGHTS;
	r->umr.errors = (uint8_t)rnd();
	r->umr.seen = (uint8_t)rnd_below(2);
	r->umr.order = (uint8_t)rnd();
	r->umr.simple = (uint8_t)rnd_below(2);
	r->umr.rounds = (uint32_t)rnd();
	r->umr.layout = (uint8_t)layout_is;
	sig_random(r);
	if (sig == KEY_SIGNED)
		room = room >= 4 ? room - 4 : 0;
	room = room / 4 * 4;
	if (n + (layout_is == INTERLEAVED) > room)
		r->umr.layout = NO_LAYOUT;
	for (i = 0; r->umr.layout && i < n; i++) {
		r->umr.part[i].addr = rnd();
		r->umr.part[i].lkey = (uint32_t)rnd();
		r->umr.part[i].bytes_count = rnd_below(65536);
		r->umr.part[i].bytes_skip = rnd_below(65536 - r->umr.part[i].bytes_count);
		/* rdma-core 44 counts the length of a key in an int, and has the right one below 2^31 only */
		req_pointer(r, n == 1 ? some_length() : rnd_below(5) ? rnd_below(0x7fffffff / n) : 0);
	}
	if (n)
		r->umr.rounds = rnd_below(rnd_below(2) ? 0x7fffffff / 65536 / n : 100);
}

static void any_wqe(struct req *r, uint32_t ds)
{
	req_init(r, RAW, 0);
	r->nsge = ds;
}

static uint32_t room_of(const struct trio *t)
{
	return (t->cap.max_inline_data + 4) / 16;
}

/* ---- tests ---- */

static void umr_open(struct trio *t)
{
	struct ibv_qp_cap cap = {.max_send_wr = 4, .max_send_sge = 4, .max_inline_data = 700};

	trio_open(t, &cap, K->lean, INLAY_UAR_SERIAL);
	assert_true(t->bbs >= 32);
}

/* Every layout, every number of entries, every state of a signature, at every slot at which it wraps and some others */
static void changes(void **state)
{
	uint32_t n, layout_is, sig, i, k;
	struct req r;
	int slot;

	(void)state;
	need_softdev("the oracle");
	umr_open(&T);
	for (layout_is = NO_LAYOUT; layout_is <= INTERLEAVED; layout_is++)
		for (n = 0; n <= (layout_is ? MAX_SGE + 4 : 0); n++)
			for (sig = KEY_PLAIN; sig <= KEY_SIGNED; sig++)
				for (k = 0; k < (layout_is ? 2 : 40); k++) {
					umr_random(&r, n + k, layout_is, sig, n, room_of(&T));
					assert_int_equal(r.umr.layout, layout_is);
					for (i = 0; (slot = slot_of(T.bbs, (req_ds(&r) + 3) / 4 + req_psvs(&r), i)) >= 0; i++) {
						r.flags = (uint8_t)rnd_below(FLAG_SETS);
						go_to(&T, (uint32_t)slot);
						run(&T, WR, PLAIN, false, &r, 1);
					}
				}
	trio_close(&T);
	counted("changes");
}

/* Any bytes of any length, at every slot */
static void raw(void **state)
{
	uint32_t ds, i;
	struct req r;
	int slot;

	(void)state;
	need_softdev("the oracle");
	umr_open(&T);
	assert_true(T.sq.max_ds > 30);
	for (ds = 1; ds <= T.sq.max_ds; ds++) {
		any_wqe(&r, ds);
		for (i = 0; (slot = slot_of(T.bbs, (ds + 3) / 4, i)) >= 0; i++) {
			go_to(&T, (uint32_t)slot);
			run(&T, WR, PLAIN, ds > 16 && rnd_below(2), &r, 1);
		}
	}
	trio_close(&T);
	counted("raw");
}

/* Domains and masks at random, and what must be refused by both */
static void signatures(void **state)
{
	struct req r;
	uint32_t k;

	(void)state;
	need_softdev("the oracle");
	umr_open(&T);
	for (k = 0; k < 20000; k++) {
		umr_random(&r, rnd_below(FLAG_SETS), rnd_below(3), KEY_SIGNED, rnd_below(8), room_of(&T));
		complete_all(&T);
		run(&T, WR, PLAIN, false, &r, 1);
	}
	trio_close(&T);
	counted("signatures");
}

static void refused(void **state)
{
	struct inlay_sq before;
	struct req r;
	uint32_t k;

	(void)state;
	need_softdev("the oracle");
	umr_open(&T);
	before = T.sq;
	memset(T.ring, 0xa5, T.bbs * 64);
	for (k = 0; k < 12; k++) {
		umr_random(&r, SIG, LIST, KEY_SIGNED, 1, room_of(&T));
		r.umr.attr.mem = &r.umr.domain[0];
		r.umr.attr.wire = &r.umr.domain[1];
		r.umr.domain[0].sig_type = MLX5DV_SIG_TYPE_CRC;
		r.umr.domain[0].sig.crc = &r.umr.crc[0];
		r.umr.domain[1].sig_type = MLX5DV_SIG_TYPE_T10DIF;
		r.umr.domain[1].sig.dif = &r.umr.dif[1];
		switch (k) {
		case 0: r.umr.attr.mem = r.umr.attr.wire = NULL; break;
		case 1: r.umr.attr.flags = MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK; break;
		case 2: r.umr.attr.flags = 2; break;
		case 3: r.umr.attr.comp_mask = 1; break;
		case 4: r.umr.domain[1].comp_mask = 1; break;
		case 5: r.umr.domain[0].block_size = (enum mlx5dv_block_size)5; break;
		case 6: r.umr.domain[0].sig_type = (enum mlx5dv_sig_type)2; break;
		case 7: r.umr.crc[0].seed = 1; break;
		case 8: r.umr.crc[0].type = (enum mlx5dv_sig_crc_type)3; break;
		case 9: r.umr.dif[1].bg = 1; break;
		case 10: r.umr.dif[1].bg_type = (enum mlx5dv_sig_t10dif_bg_type)2; break;
		default: r.umr.dif[1].flags = 8; break;
		}
		assert_int_equal(post_lib(&T.a, WR, &r, 1, 0), EINVAL);
		assert_int_equal(in_plain(&T.sq, &r), -EINVAL);
		assert_true(all_bytes(T.ring, T.bbs * 64, 0xa5));
		assert_memory_equal(&T.sq, &before, sizeof(before));
	}
	trio_close(&T);
}

/* All that there is, in batches, in rings of any size: what oracle_send.h's runs do not know is mixed in */
static void mixed(void **state)
{
	static struct req r[MAX_BATCH];
	uint64_t want = env_number("ORACLE_CASES", 100000), seed = env_number("ORACLE_SEED", (uint64_t)(now() * 1e9)), until;
	uint32_t rings = 0, n, i, most, wqes;

	(void)state;
	need_softdev("the oracle");
	print_message("# ORACLE_SEED=%llu ORACLE_CASES=%llu\n", (unsigned long long)seed, (unsigned long long)want);
	rnd_state = seed;
	while (requests < want) {
		struct ibv_qp_cap cap = {.max_send_wr = 3 + (1u << rnd_below(6)), .max_send_sge = 1 + rnd_below(8),
					 .max_inline_data = rnd_below(765)};

		trio_open(&T, &cap, K->lean, rnd_below(4) ? INLAY_UAR_SERIAL : INLAY_UAR_LOCKED);
		rings++;
		for (until = requests + 500 + rnd_below(8000); requests < until && requests < want;) {
			if (rnd_below(2))
				complete(&T, rnd_below(T.head - T.tail + 1));
			if (T.head - T.tail + 3 > T.cap.max_send_wr)
				complete_all(&T);
			most = T.cap.max_send_wr - (T.head - T.tail);
			n = 1 + (rnd_below(2) ? 0 : rnd_below(most < MAX_BATCH ? most : MAX_BATCH));
			for (i = 0, wqes = 0; i < n && wqes + 3 <= most; i++) {
				uint32_t what = rnd_below(4), ds = T.sq.max_ds;

				if (what == 0)
					req_random(&r[i], &T);
				else if (what == 1)
					any_wqe(&r[i], 1 + rnd_below(rnd_below(2) && ds > 8 ? 8 : ds));
				else
					umr_random(&r[i], rnd_below(FLAG_SETS), rnd_below(3), rnd_below(4), rnd_below(rnd_below(2) ? 5 : 35),
						   room_of(&T));
				if (r[i].op == BIND1)
					r[i].op = INV;
				wqes += 1 + req_psvs(&r[i]);
			}
			run(&T, WR, rnd_below(WAYS), i > 1 && rnd_below(2), r, i);
		}
		complete_all(&T);
		trio_close(&T);
	}
	print_message("# %u rings\n", rings);
	counted("at random");
}

/* Can the comparison fail? Each bit of what a signature is made of, and each byte after both have written it */
static void self_check(void **state)
{
	FILE *was = report_to, *null = fopen("/dev/null", "w");
	uint32_t i, begin;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	assert_non_null(null);
	umr_open(&T);
	go_to(&T, T.bbs - 2);
	umr_random(&r, SIG, LIST, KEY_SIGNED, 7, room_of(&T));
	r.umr.attr.mem = &r.umr.domain[0];
	begin = T.pos;
	fill_free(&T);
	post_batch(&T, WR, PLAIN, false, &r, 1);
	assert_int_equal(check_batch(&T, &r, 1, begin), 0);
	for (i = 0; i < 6 * 64; i++) {
		uint32_t at = ((T.bbs - 2) * 64 + i) & (T.bbs * 64 - 1);
		/* The immediate of a SET_PSV is left alone, and the end of its WQEBB */
		bool known = i < 5 * 64 + 12 || (i >= 5 * 64 + 16 && i < 5 * 64 + 32);

		report_to = null;
		T.ring[at] ^= 1;
		assert_int_equal(check_batch(&T, &r, 1, begin), known);
		T.ring[at] ^= 1;
		report_to = was;
	}
	fclose(null);
	trio_close(&T);
	cases = requests = compared = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layout),
		cmocka_unit_test(self_check),
		cmocka_unit_test(changes),
		cmocka_unit_test(raw),
		cmocka_unit_test(signatures),
		cmocka_unit_test(refused),
		cmocka_unit_test(mixed),
	};
	const struct CMUnitTest raws[] = {cmocka_unit_test(raw)};
	struct kind rc = rc_kind, uc = uc_kind, ud = ud_kind;
	int bad;

	lib_umr = umr_of_lib;
	in_umr = umr_of_inlay;
	rc.ops |= 1 << BIND2 | 1 << INV;
	rc.lean = rc.full;
	rc.max_inline = rc.max_inline_full;
	rc.dv = ALL_UMR;
	uc.dv = ud.dv = MLX5DV_QP_EX_WITH_RAW_WQE;
	about(&rc);
	bad = cmocka_run_group_tests_name("oracle: UMR, signatures, raw WQEs", tests, open_group, close_group);
	about(&uc);
	bad |= cmocka_run_group_tests_name("oracle: raw WQEs, UC", raws, open_group, close_group);
	about(&ud);
	return bad | cmocka_run_group_tests_name("oracle: raw WQEs, UD", raws, open_group, close_group);
}
