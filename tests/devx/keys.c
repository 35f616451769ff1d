/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * keys.c: memory keys by device commands, of a umem (MTT) and of other keys (KLM, KSM): used
 * by posts as lkey and as rkey, at any address of theirs, across the borders of their pieces and
 * beyond their ends; and gone. Their rights: builders.c.
 */
#include "common.h"
#include "rig.h"

#define PAGE INLAY_DEVX_PAGE
#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static struct how plain; /* all 0 */
static struct side a, b;

/* A key's range as it is to the posts, and where each of its bytes lies */
struct range {
	struct inlay_devx_mkey key;
	uint64_t addr, len;
	uint8_t **at; /* of every byte */
	bool atomics; /* by a peer */
};

static void range_init(struct range *r, uint64_t addr, uint64_t len)
{
	memset(r, 0, sizeof(*r));
	r->addr = addr;
	r->len = len;
	r->atomics = true;
	r->at = (uint8_t **)malloc(len * sizeof(*r->at));
	assert_non_null(r->at);
}

static void range_free(struct range *r)
{
	must(inlay_devx_mkey_destroy(&r->key));
	free(r->at);
}

static void spread(struct range *r, uint64_t offset, const uint8_t *from, uint32_t len)
{
	uint32_t i;

	for (i = 0; i < len; i++)
		*r->at[offset + i] = from[i];
}

static uint32_t gathered(struct range *r, uint64_t offset, const uint8_t *from, uint32_t len)
{
	uint32_t i;

	for (i = 0; i < len && *r->at[offset + i] == from[i]; i++)
		;
	return i;
}

/* Rings, and the completion of that WQE: its syndrome, 0 for a good one */
static uint8_t outcome(struct side *s)
{
	const struct mlx5_cqe64 *cqe;
	uint8_t syndrome = 0;

	inlay_sq_ring(s->sq);
	cqe = cqe_wait(s->cq);
	if (inlay_cqe_is_error(cqe))
		syndrome = inlay_cqe_syndrome(cqe);
	assert_true(0 < inlay_sq_release(s->sq, cqe));
	inlay_cq_advance(s->cq, 1);
	return syndrome;
}

static void up_again(void)
{
	must(inlay_devx_qp_to_reset(&a.qp));
	inlay_cq_clean(a.cq, a.qpn, NULL, NULL);
	inlay_cq_clean(a.rxcq, a.qpn, NULL, NULL);
	must(inlay_devx_qp_to_reset(&b.qp));
	inlay_cq_clean(b.cq, b.qpn, NULL, NULL);
	inlay_cq_clean(b.rxcq, b.qpn, NULL, NULL);
	side_connect(&a, &b);
	side_connect(&b, &a);
}

/* Everything that a post does with a key, at random places of its range: the device and the peer read it and write to it */
static void use(struct range *r, uint32_t n)
{
	static uint8_t bytes[8192];
	struct ibv_sge sge, mine;
	uint64_t offset, word, old;
	uint32_t i, len;

	for (i = 0; i < n; i++) {
		len = 1 + rnd_below(r->len < sizeof(bytes) ? (uint32_t)r->len : (uint32_t)sizeof(bytes));
		offset = rnd() % (r->len - len + 1);
		if (rnd_below(8) == 0)
			offset = rnd_below(2) ? 0 : r->len - len;
		fill(bytes, len, i + 1);
		mine.addr = r->addr + offset;
		mine.length = len;
		mine.lkey = r->key.key;
		sge = piece(&a, 0, len);
		switch (rnd_below(5)) {
		case 0:
			spread(r, offset, bytes, len);
			must(inlay_post_write(a.sq, at_peer(&b, 0), b.mr->rkey, &mine, 1, INLAY_SIGNALED));
			assert_int_equal(outcome(&a), 0);
			assert_int_equal(differs(b.buf, len, i + 1), len);
			break;
		case 1:
			memcpy(b.buf, bytes, len);
			must(inlay_post_read(a.sq, at_peer(&b, 0), b.mr->rkey, &mine, 1, INLAY_SIGNALED));
			assert_int_equal(outcome(&a), 0);
			assert_int_equal(gathered(r, offset, bytes, len), len);
			break;
		case 2: /* here a is the peer */
			memcpy(a.buf, bytes, len);
			must(inlay_post_write(a.sq, mine.addr, r->key.key, &sge, 1, INLAY_SIGNALED));
			assert_int_equal(outcome(&a), 0);
			assert_int_equal(gathered(r, offset, bytes, len), len);
			break;
		case 3:
			spread(r, offset, bytes, len);
			must(inlay_post_read(a.sq, mine.addr, r->key.key, &sge, 1, INLAY_SIGNALED));
			assert_int_equal(outcome(&a), 0);
			assert_int_equal(differs(a.buf, len, i + 1), len);
			break;
		default: /* an atomic, whose 8 bytes lie in one piece */
			offset = rnd() % (r->len - 7);
			offset += (8 - (r->addr + offset) % 8) % 8;
			if (!r->atomics || offset + 8 > r->len || (uintptr_t)r->at[offset] % 8 || r->at[offset + 7] != r->at[offset] + 7)
				break;
			memcpy(&word, r->at[offset], 8);
			must(inlay_post_fetch_add(a.sq, r->addr + offset, r->key.key, i, &sge, INLAY_SIGNALED));
			assert_int_equal(outcome(&a), 0);
			assert_memory_equal(a.buf, &word, 8);
			memcpy(&old, r->at[offset], 8);
			assert_true(old == word + i);
		}
	}
}

/* A byte too far, at either end, for the device itself and for a peer */
static void bounds(struct range *r)
{
	uint32_t i, len = r->len < 64 ? (uint32_t)r->len : 64;
	struct ibv_sge mine, sge;

	for (i = 0; i < 6; i++) {
		mine.addr = i & 1 ? r->addr - 1 : r->addr + r->len - len + 1;
		mine.length = len;
		mine.lkey = r->key.key;
		sge = piece(&a, 0, len);
		if (i < 2)
			must(inlay_post_write(a.sq, at_peer(&b, 0), b.mr->rkey, &mine, 1, INLAY_SIGNALED));
		else if (i < 4)
			must(inlay_post_write(a.sq, mine.addr, r->key.key, &sge, 1, INLAY_SIGNALED));
		else
			must(inlay_post_read(a.sq, mine.addr, r->key.key, &sge, 1, INLAY_SIGNALED));
		assert_int_equal(outcome(&a), i < 2 ? MLX5_CQE_SYNDROME_LOCAL_PROT_ERR : MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
		up_again();
	}
}

static struct inlay_devx_mkey_attr want(uint64_t addr, uint64_t len, uint32_t access)
{
	struct inlay_devx_mkey_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.addr = addr;
	attr.len = len;
	attr.pdn = rig.pdn;
	attr.access = access;
	attr.tag = (uint8_t)rnd();
	return attr;
}

static void key_of_umem(struct range *r, uint64_t addr, uint64_t len, uint32_t access)
{
	struct inlay_devx_mkey_attr attr = want(addr, len, access);
	uint64_t i;

	range_init(r, addr, len);
	attr.memory = place_ring(len);
	must(inlay_devx_mkey_create(&r->key, dev.ctx, &attr));
	assert_int_equal(r->key.key & 0xff, attr.tag);
	for (i = 0; i < len; i++)
		r->at[i] = rig.memory + attr.memory.offset + i;
}

/* Pieces of parts of other ranges */
static void key_of_keys(struct range *r, uint64_t addr, struct range *parts, uint32_t n, uint32_t log_entity)
{
	static uint64_t box[8192];
	struct inlay_devx_mkey_attr attr;
	struct ibv_sge sge[64];
	uint64_t offset[64], total = 0, at = 0, j;
	uint32_t i, unit = addr % 8 ? 1 : rnd_below(2) ? 8 : 1;

	assert_true(n <= 64);
	for (i = 0; i < n; i++) {
		sge[i].length = log_entity ? 1u << log_entity : unit * (1 + rnd_below((uint32_t)parts[i].len / unit));
		offset[i] = rnd() % (parts[i].len - sge[i].length + 1) & ~(uint64_t)(unit - 1);
		sge[i].addr = parts[i].addr + offset[i];
		sge[i].lkey = parts[i].key.key;
		total += sge[i].length;
	}
	range_init(r, addr, total);
	attr = want(addr, total, IBV_ACCESS_LOCAL_WRITE | REMOTE);
	r->atomics = addr % 8 == 0 && total % 8 == 0;
	if (!r->atomics)
		attr.access &= ~(uint32_t)IBV_ACCESS_REMOTE_ATOMIC;
	attr.log_entity = log_entity;
	assert_true(inlay_devx_mkey_size(n) <= sizeof(box) && !inlay_devx_mkey_size(0) && !inlay_devx_mkey_size(INLAY_DEVX_PIECES + 1));
	assert_in_range(inlay_devx_mkey_size(INLAY_DEVX_PIECES), 16 * INLAY_DEVX_PIECES, INLAY_DEVX_BOX_MAX);
	assert_int_equal(inlay_devx_mkey_create_list(&r->key, dev.ctx, &attr, sge, n, box,
						     inlay_devx_mkey_size(n) - 1), -ENOBUFS);
	attr.len = total + 1;
	assert_int_equal(inlay_devx_mkey_create_list(&r->key, dev.ctx, &attr, sge, n, box, sizeof(box)), -EINVAL);
	attr.len = total;
	must(inlay_devx_mkey_create_list(&r->key, dev.ctx, &attr, sge, n, box, sizeof(box)));
	memset(box, 0xff, sizeof(box)); /* not needed any more */
	for (i = 0; i < n; i++)
		for (j = 0; j < sge[i].length && at < r->len; j++)
			r->at[at++] = parts[i].at[offset[i] + j];
}

static void open_pair(void)
{
	sides_make(&a, &plain, &b, &plain);
}

static void of_a_umem(void **state)
{
	static const uint64_t lengths[] = {64, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE + 1, 10 * PAGE};
	struct inlay_query_mkey_out out;
	struct range r;
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY(lengths); i++) {
		rig_empty(NULL);
		open_pair();
		/* Addresses that nobody has, and one that ends where addresses end */
		key_of_umem(&r, i == 2 ? UINT64_MAX - 2 * PAGE + 1 : 0x7777777000 * (i + 1), lengths[i],
			    IBV_ACCESS_LOCAL_WRITE | REMOTE);
		must(context(&r.key, MKEY, key >> 8, &out));
		assert_int_equal(inlay_mkc_get(&out.mkc, INLAY_MKC_PD), rig.pdn);
		assert_true(inlay_mkc_get(&out.mkc, INLAY_MKC_START_ADDR) == r.addr);
		assert_true(inlay_mkc_get(&out.mkc, INLAY_MKC_LEN) == r.len);
		assert_int_equal(inlay_mkc_get(&out.mkc, INLAY_MKC_MKEY_7_0), r.key.key & 0xff);
		assert_int_equal(inlay_mkc_get(&out.mkc, INLAY_MKC_ACCESS_MODE_1_0), INLAY_MKEY_MTT);
		use(&r, 60);
		bounds(&r);
		use(&r, 20);
		range_free(&r);
		sides_free(&a, &b);
	}
}

static void of_other_keys(void **state)
{
	struct range parts[64], r, over;
	uint32_t n, i, log;

	(void)state;
	for (n = 1; n <= 16; n = n * 2 + 1)
		for (log = 0; log <= 12; log += 12) {
			rig_empty(NULL);
			open_pair();
			for (i = 0; i < n; i++)
				key_of_umem(&parts[i], 0x10000000 * (i + 1), PAGE + PAGE * rnd_below(3),
					    IBV_ACCESS_LOCAL_WRITE | REMOTE);
			key_of_keys(&r, 0x5500000000, parts, n, log);
			use(&r, 60);
			bounds(&r);
			use(&r, 20);
			/* A list over a list, not of all of it */
			key_of_keys(&over, 0x6600000123, &r, 1, 0);
			if (over.len >= 8)
				use(&over, 50);
			range_free(&over);
			range_free(&r);
			for (i = 0; i < n; i++)
				range_free(&parts[i]);
			sides_free(&a, &b);
		}
}

/* A key that is gone opens nothing any more, nor does another variant of one that is there */
static void gone(void **state)
{
	struct range r;
	struct ibv_sge sge;
	uint32_t key;

	(void)state;
	open_pair();
	key_of_umem(&r, 0x40000000, PAGE, IBV_ACCESS_LOCAL_WRITE | REMOTE);
	key = r.key.key;
	sge = piece(&a, 0, 8);
	must(inlay_post_write(a.sq, r.addr, key ^ 1, &sge, 1, INLAY_SIGNALED));
	assert_int_equal(outcome(&a), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
	assert_int_equal(inlay_devx_umem_dereg(&rig.umem), -EBUSY);
	must(inlay_devx_mkey_destroy(&r.key));
	must(inlay_devx_mkey_destroy(&r.key));
	up_again();
	must(inlay_post_write(a.sq, r.addr, key, &sge, 1, INLAY_SIGNALED));
	assert_int_equal(outcome(&a), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
	range_free(&r);
	sides_free(&a, &b);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		devx_test(of_a_umem),
		devx_test(of_other_keys),
		devx_test(gone),
	};

	if (!rig_here())
		return 0;
	return cmocka_run_group_tests_name("devx_keys", tests, rig_open, rig_close) ||
	       again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
