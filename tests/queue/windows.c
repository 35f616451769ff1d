/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * windows.c: memory windows: bound, used by the peer, closed in every way, and refused from then on; at every place of the ring; on RC and
 * UC, of both types.
 */
#include "rig.h"
#include <endian.h>

#define BASE 0x2000u
#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* b's memory is the peer's through windows only */
static struct opt windowed(enum ibv_qp_type type)
{
	struct opt opt = opt_of(type, 1 << 16);

	opt.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
	opt.qp_access = type == IBV_QPT_UC ? IBV_ACCESS_REMOTE_WRITE : REMOTE;
	/* WQEs of the usual kind are short here, a bind is not */
	opt.cap.max_send_sge = 1;
	opt.cap.max_inline_data = 8;
	return opt;
}

static void window_pair(struct end *a, struct end *b, enum ibv_qp_type type)
{
	struct opt opt = windowed(type);

	ends_make(a, b, &opt);
	end_take(a, INLAY_UAR_DOORBELL);
	end_take(b, INLAY_UAR_SERIAL);
}

static uint32_t recv_word(struct end *e, const struct mlx5_cqe64 **cqe)
{
	uint32_t word;

	*cqe = cqe_wait(&e->rxcq);
	assert_false(inlay_cqe_is_error(*cqe));
	memcpy(&word, e->buf, sizeof(word));
	assert_true(0 < inlay_rq_release(&e->rq, *cqe));
	inlay_cq_advance(&e->rxcq, 1);
	return word;
}

/* b binds and tells a the key, in one doorbell: the fence keeps the message behind the window */
static uint32_t bind(struct end *a, struct end *b, struct ibv_mw *mw, uint32_t len, uint32_t access)
{
	uint32_t key = ibv_inc_rkey(mw->rkey), at = b->sq.pi, told;
	const struct mlx5_cqe64 *cqe;
	struct ibv_mw_bind_info info;

	info.mr = b->mr;
	info.addr = raddr_of(b, BASE);
	info.length = len;
	info.mw_access_flags = access;
	post_recv(a, 0, 64);
	must(inlay_post_bind_mw(&b->sq, mw, key, &info, INLAY_SIGNALED));
	assert_int_equal(b->sq.pi - at, 3);
	mw->rkey = key;
	must(inlay_post_send_inline(&b->sq, &key, sizeof(key), INLAY_SIGNALED | INLAY_FENCE_INITIATOR_SMALL));
	inlay_sq_ring(&b->sq);
	told = recv_word(a, &cqe);
	assert_int_equal(told, key);
	cqe = cqe_wait(&b->cq);
	assert_int_equal(inlay_cqe_send_opcode(cqe), MLX5_OPCODE_UMR);
	assert_int_equal(inlay_cqe_wqe_counter(cqe), at & 0xffff);
	sent(b);
	sent(b);
	assert_int_equal(inlay_sq_pending(&b->sq), 0);
	return told;
}

static const struct mlx5_cqe64 *access_window(struct end *a, bool write, uint64_t addr, uint32_t key, uint32_t len)
{
	struct ibv_sge sge = sge_of(a, 0x4000, len);

	if (write)
		must(inlay_post_write(&a->sq, addr, key, &sge, 1, INLAY_SIGNALED));
	else
		must(inlay_post_read(&a->sq, addr, key, &sge, 1, INLAY_SIGNALED));
	inlay_sq_ring(&a->sq);
	return cqe_wait(&a->cq);
}

/* Written and read through the window, all of it and parts of it; not a byte beside it */
static void reaches(struct end *a, struct end *b, uint64_t start, uint32_t key, uint32_t len, bool reads)
{
	uint32_t i;

	for (i = 0; i < 4; i++) {
		uint32_t from = i ? rnd_below(len) : 0, n = i ? 1 + rnd_below(len - from) : len, tag = (uint32_t)rnd();

		memset(b->buf + BASE - 16, 0x22, len + 32);
		fill(a->buf + 0x4000, n, tag);
		access_window(a, true, start + from, key, n);
		sent(a);
		if (!reads)
			settle(); /* UC: sent is not yet there */
		assert_int_equal(differs(b->buf + BASE + from, n, tag), n);
		assert_true(all_bytes(b->buf + BASE - 16, 16 + from, 0x22));
		assert_true(all_bytes(b->buf + BASE + from + n, len - from - n + 16, 0x22));
		if (!reads)
			continue;
		memset(a->buf + 0x4000, 0, n);
		access_window(a, false, start + from, key, n);
		sent(a);
		assert_int_equal(differs(a->buf + 0x4000, n, tag), n);
	}
}

enum { BEYOND, BEFORE, NO_RIGHT, OLD_KEY, UNBOUND, INVALIDATED, BY_PEER, OTHER_QP, WAYS };

/* Refused, with the right error, and nothing of the memory is touched. It costs the pair */
static void refused(struct end *a, struct end *b, bool write, uint64_t addr, uint32_t key)
{
	const struct mlx5_cqe64 *cqe;

	memset(b->buf + BASE - 256, 0x77, 8192);
	fill(a->buf + 0x4000, 64, 5);
	cqe = access_window(a, write, addr, key, 8);
	assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_REQ_ERR);
	assert_int_equal(inlay_cqe_status(cqe), IBV_WC_REM_ACCESS_ERR);
	assert_true(0 < inlay_sq_release(&a->sq, cqe));
	inlay_cq_advance(&a->cq, 1);
	assert_true(all_bytes(b->buf + BASE - 256, 8192, 0x77));
}

static void closed(enum ibv_mw_type type, int way, uint32_t turn)
{
	struct ibv_mw *mw = ibv_alloc_mw(dev.pd, type);
	const uint32_t len = 8 + rnd_below(4000), rights = way == NO_RIGHT ? IBV_ACCESS_REMOTE_READ : REMOTE;
	const uint32_t zero = type == IBV_MW_TYPE_2 && way != BEFORE && rnd_below(2) ? IBV_ACCESS_ZERO_BASED : 0;
	const struct mlx5_cqe64 *cqe;
	struct ibv_mw_bind_info none;
	struct end a, b, c, d;
	uint32_t key, old, i;
	uint64_t start;

	assert_non_null(mw);
	window_pair(&a, &b, IBV_QPT_RC);
	start = zero ? 0 : raddr_of(&b, BASE);
	/* So that binds begin everywhere in the ring, and go over its end */
	for (i = 0; i < turn; i++) {
		must(inlay_post_nop(&b.sq, i + 1 == turn || i % 64 == 63 ? INLAY_SIGNALED : 0));
		if (i + 1 < turn && i % 64 != 63)
			continue;
		inlay_sq_ring(&b.sq);
		sent(&b);
	}
	key = bind(&a, &b, mw, len, rights | zero);
	if (way != NO_RIGHT)
		reaches(&a, &b, start, key, len, true);
	switch (way) {
	case BEYOND:
		refused(&a, &b, rnd_below(2), start + len - 7, key);
		break;
	case BEFORE:
		refused(&a, &b, rnd_below(2), start - 1, key);
		break;
	case NO_RIGHT:
		access_window(&a, false, start, key, 8);
		sent(&a);
		refused(&a, &b, true, start, key);
		break;
	case OLD_KEY:
		/* One of type 2 must be free to be bound anew */
		if (type == IBV_MW_TYPE_2) {
			must(inlay_post_local_inv(&b.sq, key, INLAY_SIGNALED));
			inlay_sq_ring(&b.sq);
			sent(&b);
		}
		old = key;
		key = bind(&a, &b, mw, len, rights | zero);
		assert_int_not_equal(old, key);
		reaches(&a, &b, start, key, len, true);
		refused(&a, &b, rnd_below(2), start, old);
		break;
	case UNBOUND:
		memset(&none, 0, sizeof(none));
		old = b.sq.pi;
		must(inlay_post_bind_mw(&b.sq, mw, ibv_inc_rkey(key), &none, INLAY_SIGNALED));
		assert_int_equal(b.sq.pi - old, 2);
		mw->rkey = ibv_inc_rkey(key);
		inlay_sq_ring(&b.sq);
		sent(&b);
		refused(&a, &b, rnd_below(2), start, rnd_below(2) ? key : mw->rkey);
		break;
	case INVALIDATED:
		old = b.sq.pi;
		must(inlay_post_local_inv(&b.sq, key, INLAY_SIGNALED));
		assert_int_equal(b.sq.pi - old, 2);
		inlay_sq_ring(&b.sq);
		cqe = cqe_wait(&b.cq);
		assert_int_equal(inlay_cqe_send_opcode(cqe), MLX5_OPCODE_UMR);
		sent(&b);
		refused(&a, &b, rnd_below(2), start, key);
		break;
	case BY_PEER:
		post_recv(&b, 0, 64);
		i = (uint32_t)rnd();
		must(inlay_post_send_inv(&a.sq, key, NULL, 0, INLAY_SIGNALED));
		inlay_sq_ring(&a.sq);
		recv_word(&b, &cqe);
		assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_RESP_SEND_INV);
		assert_int_equal(inlay_cqe_invalidated_rkey(cqe), key);
		sent(&a);
		refused(&a, &b, rnd_below(2), start, key);
		break;
	default:
		/* One of type 2 is its own QP's, one of type 1 everybody's in the domain */
		window_pair(&c, &d, IBV_QPT_RC);
		if (type == IBV_MW_TYPE_2)
			refused(&c, &b, rnd_below(2), start, key);
		else
			reaches(&c, &b, start, key, len, true);
		end_free(&c);
		end_free(&d);
	}
	must(ibv_dealloc_mw(mw));
	end_free(&a);
	end_free(&b);
}

static void type_1(void **state)
{
	static const int ways[] = {BEYOND, BEFORE, NO_RIGHT, OLD_KEY, UNBOUND, OTHER_QP};
	uint32_t i;

	(void)state;
	for (i = 0; i < 4 * ARRAY(ways); i++)
		closed(IBV_MW_TYPE_1, ways[i % ARRAY(ways)], rnd_below(600));
}

static void type_2(void **state)
{
	uint32_t i;

	(void)state;
	for (i = 0; i < 5 * WAYS; i++)
		closed(IBV_MW_TYPE_2, (int)(i % WAYS), rnd_below(600));
}

/* UC binds as well; what is refused is lost there without a word */
static void uc(void **state)
{
	struct ibv_mw *mw = ibv_alloc_mw(dev.pd, IBV_MW_TYPE_2);
	struct end a, b;
	uint32_t key;

	(void)state;
	assert_non_null(mw);
	window_pair(&a, &b, IBV_QPT_UC);
	key = bind(&a, &b, mw, 1000, IBV_ACCESS_REMOTE_WRITE);
	reaches(&a, &b, raddr_of(&b, BASE), key, 1000, false);
	must(inlay_post_local_inv(&b.sq, key, INLAY_SIGNALED));
	inlay_sq_ring(&b.sq);
	sent(&b);
	memset(b.buf + BASE, 0x77, 1000);
	access_window(&a, true, raddr_of(&b, BASE), key, 8);
	sent(&a);
	settle();
	assert_true(all_bytes(b.buf + BASE, 1000, 0x77));
	must(ibv_dealloc_mw(mw));
	end_free(&a);
	end_free(&b);
}

/* What cannot be bound: refused by inlay, or by the device with an error of the WQE */
static void not_bound(void **state)
{
	struct ibv_mw_bind_info info;
	uint32_t i;

	(void)state;
	for (i = 0; i < 4; i++) {
		struct ibv_mw *mw = ibv_alloc_mw(dev.pd, IBV_MW_TYPE_2);
		const struct mlx5_cqe64 *cqe;
		struct inlay_sq was;
		struct end a, b;
		struct ibv_mr *mr;

		assert_non_null(mw);
		window_pair(&a, &b, IBV_QPT_RC);
		mr = ibv_reg_mr(dev.pd, b.buf, 4096, ALL_ACCESS); /* not to be bound to */
		assert_non_null(mr);
		info.mr = i == 1 ? mr : b.mr;
		info.addr = raddr_of(&b, i == 2 ? b.opt.bytes - 7 : 0);
		info.length = i == 0 ? (1ull << 31) + 1 : 8;
		info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
		was = b.sq;
		if (i == 0) {
			assert_int_equal(inlay_post_bind_mw(&b.sq, mw, ibv_inc_rkey(mw->rkey), &info, INLAY_SIGNALED), -ENOTSUP);
			assert_memory_equal(&b.sq, &was, sizeof(was));
			info.length = 1ull << 31; /* the device's to refuse: the MR is not that long */
		}
		if (i == 3)
			must(inlay_post_local_inv(&b.sq, mw->rkey, 0)); /* which nobody has bound */
		else
			must(inlay_post_bind_mw(&b.sq, mw, ibv_inc_rkey(mw->rkey), &info, 0));
		inlay_sq_ring(&b.sq);
		cqe = cqe_wait(&b.cq);
		assert_int_equal(inlay_cqe_status(cqe), IBV_WC_MW_BIND_ERR);
		assert_int_equal(inlay_cqe_send_opcode(cqe), MLX5_OPCODE_UMR);
		assert_true(0 < inlay_sq_release(&b.sq, cqe));
		assert_int_equal(inlay_sq_pending(&b.sq), 0);
		inlay_cq_advance(&b.cq, 1);
		must(ibv_dereg_mr(mr));
		must(ibv_dealloc_mw(mw));
		end_free(&a);
		end_free(&b);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(type_1),
		cmocka_unit_test(type_2),
		cmocka_unit_test(uc),
		cmocka_unit_test(not_bound),
	};

	return cmocka_run_group_tests_name("windows", tests, dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
