/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * umr.c: what a QP does by itself, by libmlx5's own functions. UMR: signatures, what mlx5dv_mkey_check() says of wrong ones, keys
 * with signatures that another process uses. WQEs written by hand and posted by mlx5dv_wr_raw_wqe, as UCC posts its own.
 */
#include "rig.h"

#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)
#define BLOCKS 200u               /* more than one frame of the fabric */
#define RAW (BLOCKS * 512)
#define WIRE (BLOCKS * 520)
#define OPCODE_WAIT 0x0f
#define OPCODE_DUMP 0x23

static struct ibv_qp_ex *ex;      /* of s[0] */
static struct mlx5dv_qp_ex *dv;

/* s[0] with a QP that has these operations of mlx5dv */
static void open_dv(uint64_t ops)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_RC, .pd = pd, .cap = usual.cap,
					    .send_ops_flags = IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
					    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS };
	struct mlx5dv_qp_init_attr attr = { .create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE, .send_ops_flags = ops,
					    .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS };

	open_side(s, &usual);
	must(ibv_destroy_qp(s->qp));
	init.send_cq = s->scq;
	init.recv_cq = s->rcq;
	init.cap.max_inline_data = 512;
	s->qp = made(mlx5dv_create_qp(ctx, &init, &attr));
	ex = ibv_qp_to_qp_ex(s->qp);
	dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
}

static void open_own(uint64_t ops)
{
	open_dv(ops);
	bring_up(s->qp, s->qp->qp_num, &usual);
}

static void start(uint64_t id, unsigned flags)
{
	ibv_wr_start(ex);
	ex->wr_id = id;
	ex->wr_flags = IBV_SEND_SIGNALED | flags;
}

static void done(uint64_t id, enum ibv_wc_status status)
{
	must(ibv_wr_complete(ex));
	expect(s->scq, id, status);
}

/* ---- signatures ---- */

static struct mlx5dv_mkey *key;

/* The key covers len bytes of s[0], with signatures as attr says; NULL: none */
static void configure(uint32_t len, const struct mlx5dv_sig_block_attr *attr)
{
	struct mlx5dv_mkey_conf_attr conf = { .conf_flags = attr ? 0 : MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR };
	struct ibv_sge l = sge(s, 0, len);

	start(1, IBV_SEND_INLINE);
	mlx5dv_wr_mkey_configure(dv, key, attr ? 3 : 2, &conf);
	mlx5dv_wr_set_mkey_access_flags(dv, RIGHTS);
	mlx5dv_wr_set_mkey_layout_list(dv, 1, &l);
	if (attr)
		mlx5dv_wr_set_mkey_sig_block(dv, attr);
	done(1, IBV_WC_SUCCESS);
}

static void make_key(void)
{
	struct mlx5dv_mkey_init_attr a = { .pd = pd, .max_entries = 8, .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT |
										       MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE };

	key = mlx5dv_create_mkey(&a);
	skip_if(!key && errno == EOPNOTSUPP, "this device has no signatures");
	assert_non_null(key);
}

static enum mlx5dv_mkey_err_type error_of(struct mlx5dv_mkey_err *err)
{
	must(mlx5dv_mkey_check(key, err));
	return err->err_type;
}

static void transfer(struct side *by, enum ibv_wr_opcode op, struct ibv_sge l, uint32_t rkey)
{
	wr = (struct ibv_send_wr){ .wr_id = 3, .sg_list = &l, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED,
				   .wr.rdma = { .rkey = rkey } };
	post_done(by, &wr);
}

/* Sent from one to the other by the same QP */
static void sent(struct ibv_sge from, struct ibv_sge to)
{
	must(post_recv(s, 2, &to, 1));
	transfer(s, IBV_WR_SEND, from, 0);
	wc = next_wc(s->rcq);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 1024);
}

/* What libmlx5 reads of a wrong block, and what is not checked; queue/umr.c has every kind of signature and of error */
TEST(checked)
{
	struct mlx5dv_sig_t10dif dif = { .bg_type = MLX5DV_SIG_T10DIF_CRC, .app_tag = 0xabcd, .ref_tag = 7,
					 .flags = MLX5DV_SIG_T10DIF_FLAG_REF_REMAP };
	struct mlx5dv_sig_block_domain d = { .sig_type = MLX5DV_SIG_TYPE_T10DIF, .sig.dif = &dif, .block_size = MLX5DV_BLOCK_SIZE_512 };
	struct mlx5dv_sig_block_attr attr = { .mem = &d, .check_mask = 0xff };
	struct mlx5dv_mkey_err err;
	struct ibv_sge l, plain;

	make_key();
	open_own(MLX5DV_QP_EX_WITH_MKEY_CONFIGURE);
	fill(s->buf + HALF, 1024, 5);
	l = (struct ibv_sge){ .addr = 0, .length = 1024, .lkey = key->lkey };
	plain = sge(s, HALF, 1024);
	/* Two blocks arrive, and memory has their signatures */
	configure(1040, &attr);
	sent(plain, l);
	assert_memory_equal(s->buf, s->buf + HALF, 512);
	assert_memory_equal(s->buf + 520, s->buf + HALF + 512, 512);
	assert_int_equal(s->buf[514] << 8 | s->buf[515], 0xabcd);
	assert_int_equal(s->buf[1039], 8);
	for (int wrong = 1; wrong >= 0; wrong--) { /* the second one's reference tag */
		s->buf[1039] ^= 0x20;
		configure(1040, &attr);
		sent(l, plain);
		assert_int_equal(error_of(&err), wrong ? MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG : MLX5DV_MKEY_NO_ERR);
		assert_true(!wrong || (err.err.sig.offset == 520 && err.err.sig.actual_value == 8 && err.err.sig.expected_value == (8 ^ 0x20)));
	}
	assert_int_equal(error_of(&err), MLX5DV_MKEY_NO_ERR);
	s->buf[513] ^= 0x20; /* the first one's guard */
	configure(1040, &attr);
	sent(l, plain);
	assert_int_equal(error_of(&err), MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD);
	assert_int_equal(err.err.sig.actual_value ^ err.err.sig.expected_value, 0x20);
	s->buf[513] ^= 0x20;
	/* A change of something else keeps the signatures, and begins anew with them */
	start(1, IBV_SEND_INLINE);
	mlx5dv_wr_mkey_configure(dv, key, 1, &(struct mlx5dv_mkey_conf_attr){ 0 });
	mlx5dv_wr_set_mkey_access_flags(dv, RIGHTS);
	done(1, IBV_WC_SUCCESS);
	sent(l, plain);
	assert_int_equal(error_of(&err), MLX5DV_MKEY_NO_ERR);
	/* An application tag of ones is not checked, where that is asked for */
	dif.flags |= MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE;
	s->buf[514] = s->buf[515] = 0xff;
	s->buf[0] ^= 1;
	configure(1040, &attr);
	sent(l, plain);
	assert_int_equal(error_of(&err), MLX5DV_MKEY_NO_ERR);
	/* Without signatures again */
	configure(1024, NULL);
	sent(l, plain);
	assert_memory_equal(s->buf, s->buf + HALF, 1024);
	close_side(s);
	must(mlx5dv_destroy_mkey(key));
}

/* Another process: the wire's form comes here, goes back, is read and is written */
static int other(void)
{
	struct card theirs;

	if (setup(NULL))
		return 1;
	theirs = open_remote(&first_process, s, &usual);
	recv_at(s, 1, 0, WIRE);
	tell(&first_process);
	assert_int_equal(next_wc(s->rcq).byte_len, WIRE);
	hear(&first_process);
	for (int i = 0; i < 2; i++) /* to plain memory, and through the key */
		transfer(s, IBV_WR_SEND, sge(s, 0, WIRE), 0);
	transfer(s, IBV_WR_RDMA_READ, sge(s, HALF, WIRE), theirs.rkey);
	assert_memory_equal(s->buf, s->buf + HALF, WIRE);
	hear(&first_process);
	transfer(s, IBV_WR_RDMA_WRITE, sge(s, HALF, WIRE), theirs.rkey);
	tell(&first_process);
	hear(&first_process);
	close_side(s);
	return 0;
}

TEST(between_processes)
{
	struct mlx5dv_sig_t10dif dif = { .bg_type = MLX5DV_SIG_T10DIF_CSUM, .app_tag = 0x1234, .ref_tag = 0xfffffff0,
					 .flags = MLX5DV_SIG_T10DIF_FLAG_REF_REMAP };
	struct mlx5dv_sig_block_domain d = { .sig_type = MLX5DV_SIG_TYPE_T10DIF, .sig.dif = &dif, .block_size = MLX5DV_BLOCK_SIZE_512 };
	struct mlx5dv_sig_block_attr attr = { .wire = &d, .check_mask = 0xff };
	static uint8_t raw[RAW];
	struct mlx5dv_mkey_err err;
	struct card mine;
	struct ibv_sge l;
	struct peer p;

	skip_if(getenv("SOFTDEV_MANUAL"), "this device is alone");
	make_key();
	fill(raw, RAW, 11);
	p = start_peer("other", "");
	open_dv(MLX5DV_QP_EX_WITH_MKEY_CONFIGURE);
	mine = card_of(s);
	mine.rkey = key->rkey;
	bring_up(s->qp, exchange(&p, mine).qpn, &usual);
	memcpy(s->buf, raw, RAW);
	configure(RAW, &attr);
	recv_at(s, 5, HALF, WIRE);
	l = (struct ibv_sge){ .addr = 0, .length = RAW, .lkey = key->lkey };
	must(post_recv(s, 6, &l, 1));
	hear(&p);
	transfer(s, IBV_WR_SEND, l, 0);
	memset(s->buf, 0, RAW);
	tell(&p);
	assert_int_equal(next_wc(s->rcq).byte_len, WIRE);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		const uint8_t *b = s->buf + HALF + i * 520;
		uint32_t ref;

		memcpy(&ref, b + 516, 4);
		assert_memory_equal(b, raw + i * 512, 512);
		assert_int_equal(b[514] << 8 | b[515], 0x1234);
		assert_int_equal(be32toh(ref), 0xfffffff0 + i);
	}
	assert_int_equal(next_wc(s->rcq).byte_len, WIRE);
	assert_memory_equal(s->buf, raw, RAW);
	tell(&p);
	hear(&p);
	assert_memory_equal(s->buf, raw, RAW);
	assert_int_equal(error_of(&err), MLX5DV_MKEY_NO_ERR);
	tell(&p);
	assert_int_equal(end_peer(&p), 0);
	close_side(s);
	must(mlx5dv_destroy_mkey(key));
}

/* ---- by hand; devx/sync.c has the other conditions ---- */

static uint64_t wqe[126]; /* the longest that there is */

/* ds: units of 16 bytes, the control segment's among them */
static void raw_wqe(uint64_t id, unsigned opcode, unsigned opmod, unsigned ds)
{
	mlx5dv_set_ctrl_seg((struct mlx5_wqe_ctrl_seg *)(void *)wqe, 0, opcode, opmod, s->qp->qp_num, MLX5_WQE_CTRL_CQ_UPDATE, ds, 0, 0);
	start(id, 0);
	mlx5dv_wr_raw_wqe(dv, wqe);
}

/* UCC waits for equality of 4 of 8 bytes with a value and a mask in the host's order, as they lie in memory */
TEST(waits)
{
	volatile uint32_t *flag;

	open_own(MLX5DV_QP_EX_WITH_RAW_WQE);
	flag = (volatile uint32_t *)(void *)(s->buf + 128);
	flag[0] = 100;
	flag[1] = 9;
	wqe[2] = htobe64(1ull << 32 | s->mr->lkey);
	wqe[3] = htobe64((uintptr_t)flag);
	wqe[4] = 0x07000064;
	wqe[5] = 0xffffffff;
	raw_wqe(1, OPCODE_WAIT, 1, 3);
	must(ibv_wr_complete(ex));
	expect_nothing(s->scq);
	__atomic_store_n(flag, 0x07000064, __ATOMIC_RELEASE);
	expect(s->scq, 1, IBV_WC_SUCCESS);
	raw_wqe(2, MLX5_OPCODE_NOP, 0, 63);
	done(2, IBV_WC_SUCCESS);
	mlx5dv_set_data_seg((struct mlx5_wqe_data_seg *)(void *)(wqe + 2), SIZE, s->mr->lkey, (uintptr_t)s->buf);
	raw_wqe(4, OPCODE_DUMP, 0, 2);
	done(4, IBV_WC_SUCCESS);
	/* A QP that is no master waits for no CQ */
	wqe[2] = wqe[3] = 0;
	raw_wqe(1, OPCODE_WAIT, 0, 2);
	done(1, IBV_WC_LOC_QP_OP_ERR);
	close_side(s);
}

/* Extended atomics of 4, 8 and 16 bytes: what becomes of memory, what is answered, what is refused */
TEST(masked)
{
	enum { CS = MLX5_OPCODE_ATOMIC_MASKED_CS, FA = MLX5_OPCODE_ATOMIC_MASKED_FA };
	static const struct {
		unsigned opcode, opmod, off, len;
		uint64_t before[2], operands[8], after[2];
		enum ibv_wc_status status;
	} rows[] = {
		{ FA, 8, 0, 4, { 0xfffffff0 }, { 0x21, 0 }, { 0x11 }, 0 }, { FA, 8, 4, 4, { 0x8000ffff }, { 0x80000001, 0x8000 }, { 0 }, 0 },
		{ FA, 9, 8, 8, { ~0ull }, { 3, 0 }, { 2 }, 0 }, { FA, 9, 0, 8, { 0xff0000007f }, { 0x100000001, 1ull << 39 }, { 0x80 }, 0 },
		{ FA, 10, 0, 16, { 1, ~0ull }, { 5, 1, 0, 0 }, { 7, 0 }, 0 }, { FA, 10, 16, 16, { 1, ~0ull }, { 5, 1, 0, 1ull << 63 }, { 6, 0 }, 0 },
		{ FA, 10, 0, 16, { 1, ~0ull }, { ~0ull, ~0ull, 0, 0 }, { 1, ~1ull }, 0 },
		{ CS, 8, 0, 4, { 0x12345678 }, { 0xffffffff, 0x12000000, 0xff, 0xff000000 }, { 0x123456ff }, 0 },
		{ CS, 8, 0, 4, { 0x12345678 }, { 0xffffffff, 0x13000000, 0xff, 0xff000000 }, { 0x12345678 }, 0 },
		{ CS, 9, 0, 8, { 0xf0 }, { 0x0f, 0xf0, ~0ull, ~0ull }, { 0x0f }, 0 },
		{ CS, 10, 0, 16, { 7, 9 }, { 1, 2, 7, 8, ~0ull, 2, 15, 14 }, { 1, 11 }, 0 },
		{ CS, 10, 0, 16, { 7, 9 }, { 1, 2, 7, 0, ~0ull, 2, 15, 8 }, { 7, 9 }, 0 },
		{ FA, 8, 2, 4, .status = IBV_WC_REM_INV_REQ_ERR }, { FA, 9, 4, 8, .status = IBV_WC_REM_INV_REQ_ERR },
		{ FA, 10, 8, 16, .status = IBV_WC_REM_INV_REQ_ERR }, { FA, 9, 0, 4, .status = IBV_WC_LOC_LEN_ERR },
		{ FA, 13, 0, 128, .status = IBV_WC_LOC_QP_OP_ERR }, { FA, 1, 0, 8, .status = IBV_WC_LOC_QP_OP_ERR },
		{ FA, 9, SIZE, 8, .status = IBV_WC_REM_ACCESS_ERR },
	};

	for (unsigned i = 0; i < ARRAY(rows); i++) {
		const unsigned size = 4u << (rows[i].opmod & 7), n = size > 8 ? size / 8 : 1, count = (rows[i].opcode == CS ? 4 : 2) * n;
		const unsigned ds = 3 + (count * size / n + 15) / 16;

		open_own(MLX5DV_QP_EX_WITH_RAW_WQE);
		memset(wqe, 0, sizeof(wqe));
		wqe[2] = htobe64((uintptr_t)s->buf + rows[i].off);
		wqe[3] = htobe64((uint64_t)s->mr->rkey << 32);
		for (unsigned k = 0; k < 8; k++)
			if (size == 4)
				((uint32_t *)(void *)(wqe + 4))[k] = htobe32((uint32_t)rows[i].operands[k]);
			else
				wqe[4 + k] = htobe64(rows[i].operands[k]);
		mlx5dv_set_data_seg((struct mlx5_wqe_data_seg *)(void *)(wqe + 2 * ds - 2), rows[i].len, s->mr->lkey, (uintptr_t)s->buf + HALF);
		memcpy(s->buf + rows[i].off % SIZE, rows[i].before, 16);
		raw_wqe(i, rows[i].opcode, rows[i].opmod, ds);
		done(i, rows[i].status);
		/* All but those of 8 bytes are answered in the wire's order */
		for (unsigned k = 0; k < n && !rows[i].status; k++) {
			uint64_t was = size == 8 ? rows[i].before[k] : htobe64(rows[i].before[k] << (size == 4 ? 32 : 0));

			assert_memory_equal(s->buf + rows[i].off + 8 * k, &rows[i].after[k], size / n);
			assert_memory_equal(s->buf + HALF + 8 * k, &was, size / n);
		}
		close_side(s);
	}
}

TEST(copies)
{
	open_own(MLX5DV_QP_EX_WITH_MEMCPY);
	for (uint32_t i = 0, len = 1; len <= SIZE / 2; i++, len = 3 * len + 1) {
		fill(s->buf, len, i);
		memset(s->buf + SIZE / 2, 0, SIZE / 2);
		start(i, 0);
		mlx5dv_wr_memcpy(dv, s->mr->lkey, (uintptr_t)s->buf + SIZE / 2, s->mr->lkey, (uintptr_t)s->buf, len);
		done(i, IBV_WC_SUCCESS);
		assert_memory_equal(s->buf, s->buf + SIZE / 2, len);
		assert_true(len == SIZE / 2 || s->buf[SIZE / 2 + len] == 0);
	}
	close_side(s);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "other"))
		return other();
	return run_all(setup, teardown);
}
