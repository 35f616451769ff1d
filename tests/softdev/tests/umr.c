/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * umr.c: UMR as libmlx5 writes it: signatures, what mlx5dv_mkey_check() says of wrong ones, keys with signatures that another process
 * uses; and UMR WQEs of any content, which must end in a completion and leave a device that works. The library's functions alone.
 */
#include "rig.h"

#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)
#define BLOCKS 200u               /* more than one frame of the fabric */
#define RAW (BLOCKS * 512)
#define WIRE (BLOCKS * 520)

static struct mlx5dv_mkey *make_key(uint32_t flags)
{
	struct mlx5dv_mkey_init_attr a = { .pd = pd, .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | flags, .max_entries = 8 };

	return mlx5dv_create_mkey(&a);
}

static void open_dv(struct side *s)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_RC, .pd = pd, .cap = usual.cap,
					    .send_ops_flags = IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND,
					    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS };
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
		.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE | MLX5DV_QP_EX_WITH_RAW_WQE,
	};

	open_side(s, &usual);
	must(ibv_destroy_qp(s->qp));
	init.send_cq = s->scq;
	init.recv_cq = s->rcq;
	init.cap.max_inline_data = 512;
	s->qp = mlx5dv_create_qp(ctx, &init, &dv);
	assert_non_null(s->qp);
}

/* The key covers len bytes of s at 0, with signatures as attr says; NULL: none */
static void configure(struct side *s, struct mlx5dv_mkey *key, uint32_t len, const struct mlx5dv_sig_block_attr *attr)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(s->qp);
	struct mlx5dv_qp_ex *dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
	struct mlx5dv_mkey_conf_attr conf = { .conf_flags = attr ? 0 : MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR };
	struct ibv_sge l = sge(s, 0, len);

	ibv_wr_start(ex);
	ex->wr_id = 1;
	ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	mlx5dv_wr_mkey_configure(dv, key, attr ? 3 : 2, &conf);
	mlx5dv_wr_set_mkey_access_flags(dv, RIGHTS);
	mlx5dv_wr_set_mkey_layout_list(dv, 1, &l);
	if (attr)
		mlx5dv_wr_set_mkey_sig_block(dv, attr);
	must(ibv_wr_complete(ex));
	expect(s->scq, 1, IBV_WC_SUCCESS);
}

/* The check value of each block is computed by the device itself: a key that generates it, then one that checks it */
static void checked(UNUSED void **state)
{
	struct mlx5dv_sig_t10dif dif = { .bg_type = MLX5DV_SIG_T10DIF_CRC, .app_tag = 0xabcd, .ref_tag = 7,
					 .flags = MLX5DV_SIG_T10DIF_FLAG_REF_REMAP };
	struct mlx5dv_sig_block_domain d = { .sig_type = MLX5DV_SIG_TYPE_T10DIF, .sig.dif = &dif, .block_size = MLX5DV_BLOCK_SIZE_512 };
	struct mlx5dv_sig_block_attr attr = { .mem = &d, .check_mask = 0xff };
	static const struct {
		unsigned at, type;
	} wrong[] = { { 520 + 3, MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD }, { 520 + 512, MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD },
		      { 520 + 515, MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG }, { 520 + 519, MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG } };
	struct mlx5dv_mkey *key = make_key(MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE);
	struct mlx5dv_mkey_err err;
	struct ibv_sge l, to;
	uint8_t clean[1040];
	struct side s;

	if (!key && errno == EOPNOTSUPP) {
		print_message("# skipped: this device has no signatures\n");
		skip();
	}
	assert_non_null(key);
	open_dv(&s);
	bring_up(s.qp, s.qp->qp_num, &usual);
	fill(s.buf + HALF, 1024, 5);
	/* Two blocks arrive, and memory has their signatures */
	configure(&s, key, 1040, &attr);
	l = (struct ibv_sge){ .addr = 0, .length = 1024, .lkey = key->lkey };
	to = sge(&s, HALF, 1024);
	must(post_recv(&s, 2, &l, 1));
	post_done(&s, &(struct ibv_send_wr){ .wr_id = 3, .sg_list = &to, .num_sge = 1, .opcode = IBV_WR_SEND,
					     .send_flags = IBV_SEND_SIGNALED });
	expect(s.rcq, 2, IBV_WC_SUCCESS);
	memcpy(clean, s.buf, 1040);
	assert_memory_equal(clean, s.buf + HALF, 512);
	assert_memory_equal(clean + 520, s.buf + HALF + 512, 512);
	assert_int_equal(clean[514] << 8 | clean[515], 0xabcd);
	assert_int_equal(clean[519], 7);
	assert_int_equal(clean[1039], 8);
	for (unsigned i = 0; i <= ARRAY(wrong); i++) {
		memcpy(s.buf, clean, 1040);
		if (i < ARRAY(wrong))
			s.buf[wrong[i].at] ^= 0x20;
		configure(&s, key, 1040, &attr);
		memset(s.buf + HALF, 0, 2048);
		to = sge(&s, HALF, 1024);
		must(post_recv(&s, 2, &to, 1));
		post_done(&s, &(struct ibv_send_wr){ .wr_id = 3, .sg_list = &l, .num_sge = 1, .opcode = IBV_WR_SEND,
						     .send_flags = IBV_SEND_SIGNALED });
		assert_int_equal(next_wc(s.rcq).byte_len, 1024);
		must(mlx5dv_mkey_check(key, &err));
		if (i == ARRAY(wrong)) {
			assert_int_equal(err.err_type, MLX5DV_MKEY_NO_ERR);
			continue;
		}
		assert_int_equal(err.err_type, wrong[i].type);
		assert_int_equal(err.err.sig.offset, 520);
		assert_true(err.err.sig.expected_value != err.err.sig.actual_value);
		if (wrong[i].type == MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG)
			assert_true(err.err.sig.expected_value == (8 ^ 0x20) && err.err.sig.actual_value == 8);
		if (wrong[i].type == MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG)
			assert_true(err.err.sig.expected_value == (0xabcd ^ 0x20) && err.err.sig.actual_value == 0xabcd);
		must(mlx5dv_mkey_check(key, &err));
		assert_int_equal(err.err_type, MLX5DV_MKEY_NO_ERR);
	}
	/* An application tag of ones is not checked, where that is asked for */
	dif.flags |= MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE;
	memcpy(s.buf, clean, 1040);
	s.buf[514] = s.buf[515] = 0xff;
	s.buf[0] ^= 1;
	configure(&s, key, 1040, &attr);
	must(post_recv(&s, 2, &to, 1));
	post_done(&s, &(struct ibv_send_wr){ .wr_id = 3, .sg_list = &l, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED });
	expect(s.rcq, 2, IBV_WC_SUCCESS);
	must(mlx5dv_mkey_check(key, &err));
	assert_int_equal(err.err_type, MLX5DV_MKEY_NO_ERR);
	/* Without signatures again */
	configure(&s, key, 1024, NULL);
	must(post_recv(&s, 2, &to, 1));
	post_done(&s, &(struct ibv_send_wr){ .wr_id = 3, .sg_list = &l, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED });
	expect(s.rcq, 2, IBV_WC_SUCCESS);
	assert_memory_equal(s.buf, s.buf + HALF, 1024);
	close_side(&s);
	must(mlx5dv_destroy_mkey(key));
}

/* ---- another process ---- */

static struct ibv_send_wr all_of(enum ibv_wr_opcode op, struct ibv_sge *sg, uint64_t raddr, uint32_t rkey)
{
	return (struct ibv_send_wr){ .wr_id = 3, .sg_list = sg, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED,
				     .wr.rdma = { .remote_addr = raddr, .rkey = rkey } };
}

/* The wire's form comes here, goes back, is read and is written */
static int other(void)
{
	struct card theirs;
	struct ibv_send_wr wr;
	struct ibv_sge l;
	struct side s;

	if (setup(NULL))
		return 1;
	theirs = open_remote(&first_process, &s, &usual);
	recv_at(&s, 1, 0, WIRE);
	tell(&first_process);
	assert_int_equal(next_wc(s.rcq).byte_len, WIRE);
	hear(&first_process);
	l = sge(&s, 0, WIRE);
	for (int i = 0; i < 2; i++) { /* to plain memory, and through the key */
		wr = all_of(IBV_WR_SEND, &l, 0, 0);
		post_done(&s, &wr);
	}
	l = sge(&s, HALF, WIRE);
	wr = all_of(IBV_WR_RDMA_READ, &l, 0, theirs.rkey);
	post_done(&s, &wr);
	assert_memory_equal(s.buf, s.buf + HALF, WIRE);
	hear(&first_process);
	wr = all_of(IBV_WR_RDMA_WRITE, &l, 0, theirs.rkey);
	post_done(&s, &wr);
	tell(&first_process);
	hear(&first_process);
	close_side(&s);
	return 0;
}

static void between_processes(UNUSED void **state)
{
	struct mlx5dv_sig_t10dif dif = { .bg_type = MLX5DV_SIG_T10DIF_CSUM, .app_tag = 0x1234, .ref_tag = 0xfffffff0,
					 .flags = MLX5DV_SIG_T10DIF_FLAG_REF_REMAP };
	struct mlx5dv_sig_block_domain d = { .sig_type = MLX5DV_SIG_TYPE_T10DIF, .sig.dif = &dif, .block_size = MLX5DV_BLOCK_SIZE_512 };
	struct mlx5dv_sig_block_attr attr = { .wire = &d, .check_mask = 0xff };
	struct mlx5dv_mkey *key = make_key(MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE);
	uint8_t *raw = malloc(RAW);
	struct mlx5dv_mkey_err err;
	struct card mine, theirs;
	struct ibv_send_wr wr;
	struct ibv_sge l;
	struct peer p;
	struct side s;

	if ((!key && errno == EOPNOTSUPP) || getenv("SOFTDEV_MANUAL")) {
		print_message("# skipped: this device has no signatures, or is alone\n");
		skip();
	}
	assert_non_null(key);
	fill(raw, RAW, 11);
	p = start_peer("other", "");
	open_dv(&s);
	mine = card_of(&s);
	mine.rkey = key->rkey;
	theirs = exchange(&p, mine);
	bring_up(s.qp, theirs.qpn, &usual);
	memcpy(s.buf, raw, RAW);
	configure(&s, key, RAW, &attr);
	recv_at(&s, 5, HALF, WIRE);
	l = (struct ibv_sge){ .addr = 0, .length = RAW, .lkey = key->lkey };
	must(post_recv(&s, 6, &l, 1));
	hear(&p);
	wr = all_of(IBV_WR_SEND, &l, 0, 0);
	post_done(&s, &wr);
	memset(s.buf, 0, RAW);
	tell(&p);
	assert_int_equal(next_wc(s.rcq).byte_len, WIRE);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		const uint8_t *b = s.buf + HALF + i * 520;
		uint32_t ref;

		memcpy(&ref, b + 516, 4);
		assert_memory_equal(b, raw + i * 512, 512);
		assert_int_equal(b[514] << 8 | b[515], 0x1234);
		assert_int_equal(be32toh(ref), 0xfffffff0 + i);
	}
	assert_int_equal(next_wc(s.rcq).byte_len, WIRE);
	assert_memory_equal(s.buf, raw, RAW);
	tell(&p);
	hear(&p);
	assert_memory_equal(s.buf, raw, RAW);
	must(mlx5dv_mkey_check(key, &err));
	assert_int_equal(err.err_type, MLX5DV_MKEY_NO_ERR);
	tell(&p);
	assert_int_equal(end_peer(&p), 0);
	close_side(&s);
	must(mlx5dv_destroy_mkey(key));
	free(raw);
}

/* ---- any WQE ---- */

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { TEST(checked), TEST(between_processes), };

	if (argc > 1 && !strcmp(argv[1], "other"))
		return other();
	return cmocka_run_group_tests(tests, setup, teardown);
}
