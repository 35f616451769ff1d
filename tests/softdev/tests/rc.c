/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rc.c: is the device that the other tests stand on right? Its objects, reliable connections,
 * errors and events; driven through libibverbs alone.
 *
 * Two queue pairs of this process talk to each other. A test that expects nothing to happen says so
 * with a short wait.
 */
#include "rig.h"
#include <signal.h>

/* ---- the device ---- */

static void attributes(UNUSED void **state)
{
	struct ibv_device_attr_ex ex;
	struct ibv_device_attr a;
	struct ibv_port_attr p;
	union ibv_gid g;
	uint16_t pkey;
	int full = 0;

	assert_int_equal(ibv_query_device(ctx, &a), 0);
	assert_int_equal(a.vendor_id, 0x02c9);          /* the adapter's OUI, not its PCI vendor */
	assert_int_equal(a.vendor_part_id, 0x101b);     /* a ConnectX-6 */
	assert_int_equal(a.max_qp_wr, 32768);
	assert_int_equal(a.max_sge, 30);
	assert_int_equal(a.max_qp_rd_atom, 16);
	assert_int_equal(a.atomic_cap, IBV_ATOMIC_HCA);
	assert_int_equal(a.phys_port_cnt, 1);
	assert_true(strlen(a.fw_ver) > 0);
	assert_int_equal(a.node_guid, ibv_get_device_guid(ctx->device));
	assert_int_equal(ibv_query_device_ex(ctx, NULL, &ex), 0);
	assert_memory_equal(&ex.orig_attr, &a, sizeof(a));
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(port.active_mtu, IBV_MTU_4096);
	assert_int_equal(ibv_query_port(ctx, 0, &p), EINVAL);
	assert_int_equal(ibv_query_port(ctx, 2, &p), EINVAL);
	for (int i = 0; i < port.gid_tbl_len; i++) {
		assert_int_equal(ibv_query_gid(ctx, 1, i, &g), 0);
		full += g.global.interface_id != 0;
	}
	assert_int_equal(full, port.link_layer == IBV_LINK_LAYER_ETHERNET ? 4 : 1);
	assert_int_not_equal(ibv_query_gid(ctx, 1, port.gid_tbl_len, &g), 0);
	assert_int_equal(ibv_query_pkey(ctx, 1, 0, &pkey), 0);
	assert_int_equal(be16toh(pkey), 0xffff);
	assert_int_equal(ibv_get_pkey_index(ctx, 1, pkey), 0);
}

static void gid_table(UNUSED void **state)
{
	struct ibv_gid_entry e[32], one;
	ssize_t n = ibv_query_gid_table(ctx, e, ARRAY(e), 0);

	assert_int_equal(n, port.link_layer == IBV_LINK_LAYER_ETHERNET ? 4 : 1);
	for (ssize_t i = 0; i < n; i++) {
		assert_int_equal(ibv_query_gid_ex(ctx, 1, e[i].gid_index, &one, 0), 0);
		assert_memory_equal(&one, &e[i], sizeof(one));
		assert_int_equal(e[i].gid_type, port.link_layer != IBV_LINK_LAYER_ETHERNET ? IBV_GID_TYPE_IB :
				 i & 1 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1);
	}
	assert_int_equal(ibv_query_gid_ex(ctx, 1, n, &one, 0), ENODATA);
	assert_int_equal(ibv_query_gid_ex(ctx, 1, port.gid_tbl_len, &one, 0), EINVAL);
	assert_int_equal(ibv_query_gid_ex(ctx, 2, 0, &one, 0), EINVAL);
}

static void life_cycles(UNUSED void **state)
{
	struct ibv_qp_init_attr init = { .cap = usual.cap, .qp_type = IBV_QPT_RC };
	struct ibv_pd *p = ibv_alloc_pd(ctx);
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	static uint8_t buf[8192];
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	assert_non_null(p);
	assert_non_null(ch);
	mr = ibv_reg_mr(p, buf, sizeof(buf), ALL_ACCESS);
	assert_non_null(mr);
	cq = ibv_create_cq(ctx, 100, NULL, ch, 0);
	assert_non_null(cq);
	assert_int_equal(cq->cqe, 127);
	init.send_cq = init.recv_cq = cq;
	qp = ibv_create_qp(p, &init);
	assert_non_null(qp);
	assert_true(init.cap.max_send_wr >= 64 && init.cap.max_recv_wr >= 64 && init.cap.max_inline_data >= 64);
	assert_int_equal(state_of(qp), IBV_QPS_RESET);

	assert_int_equal(ibv_dealloc_pd(p), EBUSY);
	assert_int_equal(ibv_destroy_cq(cq), EBUSY);
	assert_int_equal(ibv_destroy_comp_channel(ch), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(p), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
	assert_int_equal(ibv_dealloc_pd(p), 0);
}

static void refusals(UNUSED void **state)
{
	struct ibv_qp_init_attr init = { .cap = usual.cap, .qp_type = IBV_QPT_RC };
	struct ibv_qp_init_attr_ex ex = { .qp_type = IBV_QPT_UD, .pd = pd, .create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB,
					  .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS };
	struct ibv_cq *cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	static uint8_t buf[8192];

	assert_non_null(cq);
	assert_null(ibv_create_cq(ctx, 0, NULL, NULL, 0));
	assert_null(ibv_create_cq(ctx, 1 << 23, NULL, NULL, 0));
	assert_null(ibv_create_cq(ctx, 10, NULL, NULL, 999));
	assert_null(ibv_reg_mr(pd, buf, 0, ALL_ACCESS));
	assert_null(ibv_reg_mr(pd, (void *)4096, 4096, ALL_ACCESS));
	assert_int_equal(errno, EFAULT);
	assert_null(ibv_reg_mr(pd, buf, (size_t)1 << 46, IBV_ACCESS_LOCAL_WRITE));
	assert_null(ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_ON_DEMAND));
	assert_null(ibv_reg_mr_iova(pd, buf, sizeof(buf), (uintptr_t)buf + 1, ALL_ACCESS));
	init.send_cq = init.recv_cq = cq;
	init.cap.max_send_wr = 1 << 20;
	assert_null(ibv_create_qp(pd, &init));
	init.cap = usual.cap;
	init.cap.max_send_sge = 100;
	assert_null(ibv_create_qp(pd, &init));
	init.cap = usual.cap;
	init.cap.max_inline_data = 4096;
	assert_null(ibv_create_qp(pd, &init));
	init.cap = usual.cap;
	ex.cap = usual.cap;
	ex.send_cq = ex.recv_cq = cq;
	assert_null(ibv_create_qp_ex(ctx, &ex));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* Memory that may not be written may be sent from, and no more */
static void read_only_memory(UNUSED void **state)
{
	void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;

	assert_null(ibv_reg_mr(pd, p, 4096, IBV_ACCESS_LOCAL_WRITE));
	mr = ibv_reg_mr(pd, p, 4096, IBV_ACCESS_REMOTE_READ);
	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(p, 4096);
}

static void keys(UNUSED void **state)
{
	static uint8_t buf[4096];
	struct ibv_mr *mr[300];
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	uint32_t lkey, rkey;

	for (unsigned i = 0; i < ARRAY(mr); i++) {
		mr[i] = ibv_reg_mr(pd, buf, sizeof(buf), ALL_ACCESS);
		assert_non_null(mr[i]);
		if (softdev_present())
			assert_int_not_equal(mr[i]->lkey >> 8, mr[i]->rkey >> 8);
		for (unsigned j = 0; j < i; j++)
			assert_true(mr[i]->lkey != mr[j]->lkey && mr[i]->rkey != mr[j]->rkey);
	}
	/* Rights and domain change under the key, memory does not */
	lkey = mr[0]->lkey;
	rkey = mr[0]->rkey;
	must(ibv_rereg_mr(mr[0], IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE));
	assert_true(mr[0]->lkey == lkey && mr[0]->rkey == rkey);
	must(ibv_rereg_mr(mr[0], IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0));
	assert_true(mr[0]->lkey == lkey && mr[0]->rkey == rkey);
	must(ibv_rereg_mr(mr[0], IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buf, sizeof(buf), 0));
	assert_true(mr[0]->lkey != lkey && mr[0]->rkey != rkey);
	for (unsigned i = 0; i < ARRAY(mr); i++)
		assert_int_equal(ibv_dereg_mr(mr[i]), 0);
	must(ibv_dealloc_pd(other));
}

static void thread_domain(UNUSED void **state)
{
	struct ibv_td_init_attr ti = { .comp_mask = 0 };
	struct ibv_td *td = ibv_alloc_td(ctx, &ti);
	struct ibv_parent_domain_init_attr pi = { .pd = pd, .td = td };
	struct ibv_cq *cq = ibv_create_cq(ctx, 10, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .cap = usual.cap, .qp_type = IBV_QPT_RC };
	struct ibv_pd *parent;
	struct ibv_qp *qp;

	assert_non_null(td);
	parent = ibv_alloc_parent_domain(ctx, &pi);
	assert_non_null(parent);
	qp = ibv_create_qp(parent, &init);
	assert_non_null(qp);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	assert_int_equal(ibv_dealloc_td(td), 0);
}

/* A context that is closed with everything still there */
static void abandoned(UNUSED void **state)
{
	struct ibv_context *c = ibv_open_device(list[0]);
	struct ibv_pd *p;
	struct ibv_cq *cq;
	struct ibv_qp_init_attr init = { .cap = usual.cap, .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp;
	static uint8_t buf[4096];

	assert_non_null(c);
	p = ibv_alloc_pd(c);
	cq = ibv_create_cq(c, 10, NULL, ibv_create_comp_channel(c), 0);
	init.send_cq = init.recv_cq = cq;
	qp = ibv_create_qp(p, &init);
	assert_non_null(qp);
	assert_non_null(ibv_reg_mr(p, buf, sizeof(buf), ALL_ACCESS));
	bring_up(qp, qp->qp_num, &usual);
	assert_int_equal(ibv_close_device(c), 0);
}

/* ---- data ---- */

static const uint32_t sizes[] = { 1, 4, 31, 32, 33, 63, 64, 65, 255, 1024, 1025, 4096, 5000, 70000, HALF };

static void atomics(struct side s[2])
{
	struct ibv_sge sg = sge(&s[0], 0, 8);
	struct ibv_send_wr wr = request(IBV_WR_ATOMIC_CMP_AND_SWP, 1, &sg, 1, &s[1], 8);
	volatile uint64_t *here = (uint64_t *)s[0].buf, *there = (uint64_t *)(s[1].buf + 8);

	*there = 100;
	wr.wr.atomic.compare_add = 100;
	wr.wr.atomic.swap = 0x123456789abcdef0;
	post_done(&s[0], &wr);
	assert_int_equal(*here, 100);
	assert_int_equal(*there, 0x123456789abcdef0);
	wr.wr_id = 2;
	post(&s[0], &wr); /* does not compare equal now */
	expect_op(s[0].scq, 2, IBV_WC_COMP_SWAP);
	assert_int_equal(*here, 0x123456789abcdef0);
	assert_int_equal(*there, 0x123456789abcdef0);
	wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, 3, &sg, 1, &s[1], 8);
	wr.wr.atomic.compare_add = 0x10;
	post_done(&s[0], &wr);
	assert_int_equal(*here, 0x123456789abcdef0);
	assert_int_equal(*there, 0x123456789abcdf00);
}

static void every_opcode(struct side s[2])
{
	for (unsigned i = 0; i < ARRAY(sizes); i++) {
		writes(s, sizes[i], false);
		writes(s, sizes[i], true);
		sends(s, sizes[i], false);
		sends(s, sizes[i], true);
		reads(s, sizes[i]);
	}
	atomics(s);
}

static void opcodes(UNUSED void **state)
{
	open_pair(s, &usual);
	every_opcode(s);
	close_pair(s);
}

/* Every WQE signaled: libmlx5 then lets the device put small READ results into the CQE */
static void opcodes_sig_all(UNUSED void **state)
{
	struct how how = usual;

	how.sig_all = true;
	open_pair(s, &how);
	every_opcode(s);
	close_pair(s);
}

static void opcodes_128(UNUSED void **state)
{
	struct how how = usual;

	setenv("MLX5_CQE_SIZE", "128", 1);
	how.sig_all = true;
	open_pair(s, &how);
	unsetenv("MLX5_CQE_SIZE");
	every_opcode(s);
	close_pair(s);
}

/* Without data: the message is there all the same */
static void empty_messages(UNUSED void **state)
{
	open_pair(s, &usual);
	memset(s[1].buf, 0xaa, SIZE);
	assert_int_equal(post_recv(&s[1], 1, NULL, 0), 0);
	wr = request(IBV_WR_SEND, 2, NULL, 0, &s[1], 0);
	post_done(&s[0], &wr);
	wc = expect_op(s[1].rcq, 1, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, 0);
	/* An empty access needs no valid key */
	wr = request(IBV_WR_RDMA_WRITE, 3, NULL, 0, &s[1], 0);
	wr.wr.rdma.rkey = 0;
	post_done(&s[0], &wr);
	assert_true(all_bytes(s[1].buf, SIZE, 0xaa));
	close_pair(s);
}

/* The same through the extended interface */
static void wr_interface(UNUSED void **state)
{
	struct how how = usual;
	struct ibv_qp_ex *qx;
	struct ibv_sge sg[3];
	struct ibv_data_buf in[2];
	volatile uint64_t *there;

	how.ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
		  IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	open_pair(s, &how);
	qx = ibv_qp_to_qp_ex(s[0].qp);
	there = (uint64_t *)(s[1].buf + 4096);
	fill(s[0].buf, SIZE, 99);
	memset(s[1].buf, 0, SIZE);
	*there = 5;

	ibv_wr_start(qx);
	qx->wr_id = 1;
	qx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qx, s[1].mr->rkey, (uintptr_t)s[1].buf);
	ibv_wr_set_sge(qx, s[0].mr->lkey, (uintptr_t)s[0].buf, 3000);
	qx->wr_id = 2;
	ibv_wr_rdma_write(qx, s[1].mr->rkey, (uintptr_t)s[1].buf + 8192);
	in[0] = (struct ibv_data_buf){ s[0].buf + 1, 13 };
	in[1] = (struct ibv_data_buf){ s[0].buf + 100, 40 };
	ibv_wr_set_inline_data_list(qx, 2, in);
	qx->wr_id = 3;
	ibv_wr_rdma_write(qx, s[1].mr->rkey, (uintptr_t)s[1].buf + 12288);
	for (int i = 0; i < 3; i++)
		sg[i] = sge(&s[0], 1000 * i, 500 + i);
	ibv_wr_set_sge_list(qx, 3, sg);
	qx->wr_id = 4;
	ibv_wr_atomic_cmp_swp(qx, s[1].mr->rkey, (uintptr_t)there, 5, 6);
	ibv_wr_set_sge(qx, s[0].mr->lkey, (uintptr_t)s[0].buf + HALF, 8);
	qx->wr_id = 5;
	ibv_wr_atomic_fetch_add(qx, s[1].mr->rkey, (uintptr_t)there, 10);
	ibv_wr_set_sge(qx, s[0].mr->lkey, (uintptr_t)s[0].buf + HALF + 8, 8);
	qx->wr_id = 6;
	ibv_wr_rdma_read(qx, s[1].mr->rkey, (uintptr_t)s[1].buf);
	ibv_wr_set_sge(qx, s[0].mr->lkey, (uintptr_t)s[0].buf + HALF + 64, 3000);
	assert_int_equal(ibv_wr_complete(qx), 0);
	expect_op(s[0].scq, 1, IBV_WC_RDMA_WRITE);
	expect_op(s[0].scq, 2, IBV_WC_RDMA_WRITE);
	expect_op(s[0].scq, 3, IBV_WC_RDMA_WRITE);
	expect_op(s[0].scq, 4, IBV_WC_COMP_SWAP);
	expect_op(s[0].scq, 5, IBV_WC_FETCH_ADD);
	expect_op(s[0].scq, 6, IBV_WC_RDMA_READ);
	assert_memory_equal(s[1].buf, s[0].buf, 3000);
	assert_memory_equal(s[1].buf + 8192, s[0].buf + 1, 13);
	assert_memory_equal(s[1].buf + 8205, s[0].buf + 100, 40);
	assert_memory_equal(s[1].buf + 12288, s[0].buf, 500);
	assert_memory_equal(s[1].buf + 12788, s[0].buf + 1000, 501);
	assert_memory_equal(s[1].buf + 13289, s[0].buf + 2000, 502);
	assert_memory_equal(s[0].buf + HALF + 64, s[0].buf, 3000);
	assert_int_equal(*(uint64_t *)(s[0].buf + HALF), 5);
	assert_int_equal(*(uint64_t *)(s[0].buf + HALF + 8), 6);
	assert_int_equal(*there, 16);

	recv_at(&s[1], 20, HALF, 100);
	recv_at(&s[1], 21, HALF + 128, 100);
	recv_at(&s[1], 22, HALF + 256, 100);
	ibv_wr_start(qx);
	qx->wr_id = 7;
	ibv_wr_send(qx);
	ibv_wr_set_inline_data(qx, s[0].buf, 50);
	qx->wr_id = 8;
	ibv_wr_send_imm(qx, htobe32(77));
	ibv_wr_set_sge(qx, s[0].mr->lkey, (uintptr_t)s[0].buf + 50, 60);
	qx->wr_id = 9;
	ibv_wr_rdma_write_imm(qx, s[1].mr->rkey, (uintptr_t)s[1].buf + HALF + 512, htobe32(78));
	ibv_wr_set_sge(qx, s[0].mr->lkey, (uintptr_t)s[0].buf + 7, 9);
	assert_int_equal(ibv_wr_complete(qx), 0);
	expect_op(s[0].scq, 7, IBV_WC_SEND);
	expect_op(s[0].scq, 8, IBV_WC_SEND);
	expect_op(s[0].scq, 9, IBV_WC_RDMA_WRITE);
	wc = expect_op(s[1].rcq, 20, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, 50);
	wc = expect_op(s[1].rcq, 21, IBV_WC_RECV);
	assert_int_equal(be32toh(wc.imm_data), 77);
	wc = expect_op(s[1].rcq, 22, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(be32toh(wc.imm_data), 78);
	assert_memory_equal(s[1].buf + HALF, s[0].buf, 50);
	assert_memory_equal(s[1].buf + HALF + 128, s[0].buf + 50, 60);
	assert_memory_equal(s[1].buf + HALF + 512, s[0].buf + 7, 9);

	/* Aborted: as if it had never been */
	ibv_wr_start(qx);
	qx->wr_id = 10;
	ibv_wr_rdma_write(qx, s[1].mr->rkey, (uintptr_t)s[1].buf);
	ibv_wr_set_sge(qx, s[0].mr->lkey, (uintptr_t)s[0].buf, 3000);
	ibv_wr_abort(qx);
	expect_nothing(s[0].scq);
	close_pair(s);
}

static void gather_and_scatter(UNUSED void **state)
{
	struct ibv_sge from[3], to[4];

	open_pair(s, &usual);
	fill(s[0].buf, SIZE, 5);
	memset(s[1].buf, 0xaa, SIZE);
	for (int i = 0; i < 3; i++)
		from[i] = sge(&s[0], 10000 * i + i, 1001 + 777 * i);
	to[0] = sge(&s[1], 100, 1);
	to[1] = sge(&s[1], 200, 2000);
	to[2] = sge(&s[1], 50000, 3);
	to[3] = sge(&s[1], 60000, 4000);
	assert_int_equal(post_recv(&s[1], 1, to, 4), 0);
	wr = request(IBV_WR_SEND, 2, from, 3, &s[1], 0);
	post_done(&s[0], &wr);
	wc = expect_op(s[1].rcq, 1, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, 1001 + 1778 + 2555);
	{
		uint8_t *flat = malloc(wc.byte_len), *got = malloc(wc.byte_len);

		memcpy(flat, s[0].buf, 1001);
		memcpy(flat + 1001, s[0].buf + 10001, 1778);
		memcpy(flat + 2779, s[0].buf + 20002, 2555);
		memcpy(got, s[1].buf + 100, 1);
		memcpy(got + 1, s[1].buf + 200, 2000);
		memcpy(got + 2001, s[1].buf + 50000, 3);
		memcpy(got + 2004, s[1].buf + 60000, wc.byte_len - 2004);
		assert_memory_equal(flat, got, wc.byte_len);
		free(flat);
		free(got);
	}
	assert_int_equal(s[1].buf[101], 0xaa);
	assert_int_equal(s[1].buf[50003], 0xaa);
	/* READ into several places */
	fill(s[1].buf, SIZE, 6);
	wr = request(IBV_WR_RDMA_READ, 3, from, 3, &s[1], 12345);
	post_done(&s[0], &wr);
	assert_memory_equal(s[0].buf, s[1].buf + 12345, 1001);
	assert_memory_equal(s[0].buf + 10001, s[1].buf + 12345 + 1001, 1778);
	assert_memory_equal(s[0].buf + 20002, s[1].buf + 12345 + 2779, 2555);
	close_pair(s);
}

/* Inline data are taken at the post: they need no key, and may change at once */
static void inline_data(UNUSED void **state)
{
	struct how how = usual;
	struct ibv_sge sg[2];
	uint8_t data[600], copy[600];

	how.cap.max_inline_data = 600;
	open_pair(s, &how);
	for (uint32_t len = 0; len <= 600; len += 29) {
		fill(data, sizeof(data), len);
		memcpy(copy, data, sizeof(data));
		memset(s[1].buf, 0xaa, 4096);
		sg[0] = (struct ibv_sge){ .addr = (uintptr_t)data, .length = len / 3, .lkey = 0xdead };
		sg[1] = (struct ibv_sge){ .addr = (uintptr_t)data + len / 3, .length = len - len / 3, .lkey = 0 };
		wr = request(IBV_WR_RDMA_WRITE, len, sg, 2, &s[1], 3);
		wr.send_flags |= IBV_SEND_INLINE;
		post(&s[0], &wr);
		memset(data, 0, sizeof(data));
		expect_op(s[0].scq, len, IBV_WC_RDMA_WRITE);
		assert_memory_equal(s[1].buf + 3, copy, len);
		assert_int_equal(s[1].buf[3 + len], 0xaa);
	}
	close_pair(s);
}

/* A fenced send waits for the READ before it, whose result it sends on */
static void fence(UNUSED void **state)
{
	struct ibv_sge a, b;
	struct ibv_send_wr wr[2];

	open_pair(s, &usual);
	for (int i = 0; i < 20; i++) {
		fill(s[1].buf, HALF, i + 1);
		a = sge(&s[0], 0, 70000);
		b = sge(&s[0], 0, 70000);
		wr[0] = request(IBV_WR_RDMA_READ, 1, &a, 1, &s[1], 0);
		wr[1] = request(IBV_WR_RDMA_WRITE, 2, &b, 1, &s[1], HALF);
		wr[1].send_flags |= IBV_SEND_FENCE;
		wr[0].next = &wr[1];
		post(&s[0], wr);
		expect_op(s[0].scq, 1, IBV_WC_RDMA_READ);
		expect_op(s[0].scq, 2, IBV_WC_RDMA_WRITE);
		assert_memory_equal(s[1].buf + HALF, s[1].buf, 70000);
	}
	close_pair(s);
}

static void unsignaled(UNUSED void **state)
{
	struct ibv_sge sg[10];
	struct ibv_send_wr wr[10];

	open_pair(s, &usual);
	fill(s[0].buf, 4096, 1);
	for (int i = 0; i < 10; i++) {
		sg[i] = sge(&s[0], 100 * i, 100);
		wr[i] = request(IBV_WR_RDMA_WRITE, i, &sg[i], 1, &s[1], 100 * i);
		wr[i].send_flags = i == 9 ? IBV_SEND_SIGNALED : 0;
		wr[i].next = i < 9 ? &wr[i + 1] : NULL;
	}
	post(&s[0], wr);
	expect_op(s[0].scq, 9, IBV_WC_RDMA_WRITE);
	expect_nothing(s[0].scq);
	assert_memory_equal(s[0].buf, s[1].buf, 1000);
	close_pair(s);
}

/* The rings go round several times, with WQEs of every size */
static void wrap_around(UNUSED void **state)
{
	struct how how = usual;
	struct ibv_sge sg[4];

	how.cap.max_send_wr = 8;
	how.cap.max_recv_wr = 8;
	how.cap.max_inline_data = 200;
	how.cqe = 15;
	open_pair(s, &how);
	fill(s[0].buf, SIZE, 11);
	for (unsigned i = 0; i < 2000; i++) {
		uint32_t len = 1 + i % 190, from = i % 1000;
		int n = 1 + i % 4;

		for (int j = 0; j < n; j++)
			sg[j] = sge(&s[0], from + j * 50, 50);
		if (i % 3 == 0) {
			n = 1;
			sg[0] = sge(&s[0], from, len);
		} else {
			len = 50 * n;
		}
		recv_at(&s[1], i, 256 * (i % 16), 256);
		wr = request(IBV_WR_SEND, i, sg, n, &s[1], 0);
		wr.send_flags = IBV_SEND_SIGNALED | (i % 3 ? 0 : IBV_SEND_INLINE);
		post_done(&s[0], &wr);
		wc = expect_op(s[1].rcq, i, IBV_WC_RECV);
		assert_int_equal(wc.byte_len, len);
		assert_memory_equal(s[1].buf + 256 * (i % 16), s[0].buf + from, len);
	}
	close_pair(s);
}

/* A QP that is its own peer */
static void self(UNUSED void **state)
{
	struct side s;

	open_side(&s, &usual);
	bring_up(s.qp, s.qp->qp_num, &usual);
	fill(s.buf, 4096, 3);
	recv_at(&s, 1, 4096, 4096);
	sg = sge(&s, 0, 4096);
	wr = request(IBV_WR_SEND, 2, &sg, 1, &s, 0);
	post_done(&s, &wr);
	expect_op(s.rcq, 1, IBV_WC_RECV);
	assert_memory_equal(s.buf, s.buf + 4096, 4096);
	close_side(&s);
}

/* An address of its own choosing for the same memory */
static void iova(UNUSED void **state)
{
	struct ibv_mr *mr;

	open_pair(s, &usual);
	mr = ibv_reg_mr_iova(pd, s[1].buf, 8192, 0x7000, ALL_ACCESS);
	assert_non_null(mr);
	fill(s[0].buf, 4096, 8);
	wr = first_to_second(IBV_WR_RDMA_WRITE, 1, 0, 4096, 0);
	wr.wr.rdma.remote_addr = 0x7000 + 100;
	wr.wr.rdma.rkey = mr->rkey;
	post_done(&s[0], &wr);
	assert_memory_equal(s[1].buf + 100, s[0].buf, 4096);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	close_pair(s);
}

/*
 * What mlx5dv can ask for beside verbs; and an extended CQ, whose timestamps become wall-clock time
 */
static void vendor_interface(UNUSED void **state)
{
	struct ibv_cq_init_attr_ex ci = { .cqe = 63, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
					  .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK };
	struct mlx5dv_cq_init_attr dci = { .comp_mask = 0 };
	struct mlx5dv_qp_init_attr dqi = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
					   .create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE };
	struct ibv_qp_init_attr_ex qi = { .cap = usual.cap, .qp_type = IBV_QPT_RC, .pd = pd, .comp_mask = IBV_QP_INIT_ATTR_PD };
	struct mlx5dv_context dv = { .comp_mask = MLX5DV_CONTEXT_MASK_CQE_COMPRESION | MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE };
	struct ibv_poll_cq_attr pa = { .comp_mask = 0 };
	struct timespec t;
	struct ibv_cq_ex *cx;
	struct mlx5dv_cq dc = { .comp_mask = 0 };
	struct mlx5dv_obj obj;
	struct side s;
	int64_t off;
	double end;

	assert_int_equal(mlx5dv_query_device(ctx, &dv), 0);
	assert_true(dv.flags & MLX5DV_CONTEXT_FLAGS_CQE_V1);
	assert_int_equal(dv.cqe_comp_caps.max_num, 64);
	open_side(&s, &usual);
	dci = (struct mlx5dv_cq_init_attr){ .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, .cqe_size = 128 };
	cx = mlx5dv_create_cq(ctx, &ci, &dci);
	assert_non_null(cx);
	obj.cq.in = ibv_cq_ex_to_cq(cx);
	obj.cq.out = &dc;
	assert_int_equal(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), 0);
	assert_int_equal(dc.cqe_size, 128);
	assert_int_equal(dc.cqe_cnt, 64);
	assert_int_equal(ibv_destroy_qp(s.qp), 0);
	qi.send_cq = ibv_cq_ex_to_cq(cx);
	qi.recv_cq = s.rcq;
	s.qp = mlx5dv_create_qp(ctx, &qi, &dqi);
	assert_non_null(s.qp);
	bring_up(s.qp, s.qp->qp_num, &usual);
	fill(s.buf + 64, 16, 4);
	sg = sge(&s, 0, 16);
	wr = request(IBV_WR_RDMA_READ, 5, &sg, 1, &s, 64);
	post(&s, &wr);
	for (end = now() + PATIENCE; ibv_start_poll(cx, &pa) && now() < end;)
		usleep(20);
	assert_int_equal(cx->status, IBV_WC_SUCCESS);
	assert_int_equal(cx->wr_id, 5);
	assert_int_equal(ibv_wc_read_opcode(cx), IBV_WC_RDMA_READ);
	assert_int_equal(ibv_wc_read_byte_len(cx), 16);
	clock_gettime(CLOCK_REALTIME, &t);
	off = t.tv_sec * 1000000000ll + t.tv_nsec - (int64_t)ibv_wc_read_completion_wallclock_ns(cx);
	assert_true(off > -100000000ll && off < 6000000000ll);
	ibv_end_poll(cx);
	assert_memory_equal(s.buf, s.buf + 64, 16);
	close_side(&s);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cx)), 0);
}

/*
 * Small READ results come in the CQE where every WQE has one, and libmlx5 copies them at the poll;
 * elsewhere they come into memory without anybody's help.
 */
static void scatter_to_cqe(UNUSED void **state)
{
	struct how how = usual;

	if (getenv("MLX5_SCATTER_TO_CQE"))
		return;
	for (int all = 0; all < 2; all++) {
		how.sig_all = all;
		open_pair(s, &how);
		fill(s[1].buf, 16, 4);
		wr = first_to_second(IBV_WR_RDMA_READ, 5, 0, 16, 0);
		post(&s[0], &wr);
		usleep(50000);
		for (double end = now() + PATIENCE; !all && memcmp(s[0].buf, s[1].buf, 16) && now() < end;)
			usleep(20);
		if (all)
			assert_true(all_bytes(s[0].buf, 16, 0));
		else
			assert_memory_equal(s[0].buf, s[1].buf, 16);
		expect_op(s[0].scq, 5, IBV_WC_RDMA_READ);
		assert_memory_equal(s[0].buf, s[1].buf, 16);
		close_pair(s);
	}
}

/* Reset and up again: the rings start afresh */
static void reset_and_reuse(UNUSED void **state)
{
	open_pair(s, &usual);
	for (int i = 0; i < 3; i++) {
		writes(s, 100, true);
		sends(s, 200, false);
		recv_at(&s[1], 50, 0, 64); /* stays in the ring */
		for (int j = 0; j < 2; j++)
			assert_int_equal(move(s[j].qp, IBV_QPS_RESET, 0, &usual), 0);
		for (int j = 0; j < 2; j++)
			bring_up(s[j].qp, s[!j].qp->qp_num, &usual);
	}
	close_pair(s);
}

/* ---- errors ---- */

/* The first request fails, later ones flush, and the QP is in the error state */
static void fails_with(struct side s[2], struct ibv_send_wr *wr, enum ibv_wc_status status)
{
	struct ibv_sge sg = sge(&s[0], 0, 8);
	struct ibv_send_wr later = request(IBV_WR_RDMA_WRITE, 101, &sg, 1, &s[1], 0);

	recv_at(&s[0], 100, 0, 64);
	wr->wr_id = 77;
	wr->next = &later;
	post(&s[0], wr);
	expect(s[0].scq, 77, status);
	expect(s[0].scq, 101, IBV_WC_WR_FLUSH_ERR);
	expect(s[0].rcq, 100, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(state_of(s[0].qp), IBV_QPS_ERR);
	/* What is posted now flushes as well, signaled or not */
	later.wr_id = 102;
	later.send_flags = 0;
	post(&s[0], &later);
	expect(s[0].scq, 102, IBV_WC_WR_FLUSH_ERR);
	recv_at(&s[0], 103, 0, 64);
	expect(s[0].rcq, 103, IBV_WC_WR_FLUSH_ERR);
}

static void local_length(UNUSED void **state)
{
	open_pair(s, &usual);
	memset(s[1].buf, 0xaa, SIZE);
	recv_at(&s[1], 1, 0, 99);
	recv_at(&s[1], 2, 0, 99);
	wr = first_to_second(IBV_WR_SEND, 3, 0, 100, 0);
	fails_with(s, &wr, IBV_WC_REM_INV_REQ_ERR);
	expect(s[1].rcq, 1, IBV_WC_LOC_LEN_ERR);
	expect(s[1].rcq, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(state_of(s[1].qp), IBV_QPS_ERR);
	assert_true(all_bytes(s[1].buf + 99, SIZE - 99, 0xaa));
	close_pair(s);
}

static void local_protection(UNUSED void **state)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct ibv_sge sg[2];

	for (unsigned i = 0; i < ARRAY(ops); i++) {
		for (int what = 0; what < 4; what++) {
			open_pair(s, &usual);
			recv_at(&s[1], 1, 0, 4096);
			sg[0] = sge(&s[0], 0, 8);
			if (what == 0)
				sg[0].lkey ^= 0x80;             /* a variant that is not there */
			else if (what == 1)
				sg[0].addr = (uintptr_t)s[0].buf + SIZE - 7;
			else if (what == 2)
				sg[0].addr = (uintptr_t)s[0].buf - 1;
			else
				sg[0].addr = UINT64_MAX - 3;    /* addr + length wraps */
			wr = request(ops[i], 3, sg, 1, &s[1], 0);
			fails_with(s, &wr, IBV_WC_LOC_PROT_ERR);
			assert_int_equal(state_of(s[1].qp), IBV_QPS_RTS);
			close_pair(s);
		}
	}
	/* The second of two segments */
	open_pair(s, &usual);
	sg[0] = sge(&s[0], 0, 8);
	sg[1] = sge(&s[0], SIZE - 4, 8);
	wr = request(IBV_WR_RDMA_WRITE, 3, sg, 2, &s[1], 0);
	fails_with(s, &wr, IBV_WC_LOC_PROT_ERR);
	close_pair(s);
}

/*
 * Adapters have one key for both sides; here each is good for its own, so that a program that takes
 * the wrong one finds out
 */
static void swapped_keys(UNUSED void **state)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD };

	if (!softdev_present()) {
		print_message("# skipped: a NIC has one key for both sides\n");
		skip();
	}
	for (unsigned i = 0; i < ARRAY(ops); i++) {
		open_pair(s, &usual);
		recv_at(&s[1], 1, 0, 4096);
		sg = sge(&s[0], 0, 8);
		sg.lkey = s[0].mr->rkey;
		wr = request(ops[i], 3, &sg, 1, &s[1], 0);
		fails_with(s, &wr, IBV_WC_LOC_PROT_ERR);
		close_pair(s);
		if (ops[i] == IBV_WR_SEND)
			continue;
		open_request(&usual, ops[i], 3, 8, 0);
		*(ops[i] == IBV_WR_ATOMIC_FETCH_AND_ADD ? &wr.wr.atomic.rkey : &wr.wr.rdma.rkey) = s[1].mr->lkey;
		fails_with(s, &wr, IBV_WC_REM_ACCESS_ERR);
		close_pair(s);
	}
	/* The receiver's own */
	open_pair(s, &usual);
	sg = sge(&s[1], 0, 64);
	sg.lkey = s[1].mr->rkey;
	must(post_recv(&s[1], 1, &sg, 1));
	wr = first_to_second(IBV_WR_SEND, 3, 0, 64, 0);
	fails_with(s, &wr, IBV_WC_REM_OP_ERR);
	expect(s[1].rcq, 1, IBV_WC_LOC_PROT_ERR);
	close_pair(s);
}

/* With the same key, as long as only the rights change */
static void changed_rights(UNUSED void **state)
{
	open_request(&usual, IBV_WR_RDMA_WRITE, 3, 8, 0);
	post_done(&s[0], &wr);
	must(ibv_rereg_mr(s[1].mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
	wr.opcode = IBV_WR_RDMA_READ;
	post_done(&s[0], &wr);
	wr.opcode = IBV_WR_RDMA_WRITE;
	fails_with(s, &wr, IBV_WC_REM_ACCESS_ERR);
	close_pair(s);
}

/*
 * A context by a file that came from somewhere: its objects are the same, and live as long as
 * either file
 */
static void imported(UNUSED void **state)
{
	struct ibv_context *other;
	struct ibv_mr *mr;
	struct ibv_dm *dm;
	struct ibv_pd *p;
	uint32_t word = 77;

	assert_null(ibv_import_device(STDERR_FILENO));
	for (int first = 0; first < 2; first++) {
		struct ibv_context *c = ibv_open_device(list[0]);
		struct ibv_alloc_dm_attr a = { .length = 64 };
		struct ibv_pd *theirs = ibv_alloc_pd(c);
		struct ibv_dm *memory = ibv_alloc_dm(c, &a);
		struct ibv_mr *region;
		int fd = dup(c->cmd_fd);

		assert_non_null(memory);
		region = ibv_reg_mr(theirs, &word, sizeof(word), ALL_ACCESS);
		assert_non_null(region);
		other = ibv_import_device(fd);
		assert_non_null(other);
		assert_int_equal(other->num_comp_vectors, c->num_comp_vectors);
		p = ibv_import_pd(other, theirs->handle);
		mr = ibv_import_mr(p, region->handle);
		dm = ibv_import_dm(other, memory->handle);
		assert_true(p && mr && dm);
		assert_null(ibv_import_pd(other, 1u << 30));
		assert_true(mr->lkey == region->lkey && mr->rkey == region->rkey && mr->length == sizeof(word));
		must(ibv_memcpy_to_dm(memory, 0, &word, 4));
		word = 0;
		must(ibv_memcpy_from_dm(&word, dm, 0, 4));
		assert_int_equal(word, 77);
		ibv_unimport_dm(dm);
		ibv_unimport_mr(mr);
		if (first)
			must(ibv_close_device(c));
		/* Objects of its own, in a domain that is the other's */
		mr = ibv_reg_mr(p, &word, sizeof(word), ALL_ACCESS);
		assert_non_null(mr);
		must(ibv_dereg_mr(mr));
		ibv_unimport_pd(p);
		must(ibv_close_device(other));
		if (!first)
			must(ibv_close_device(c));
	}
	/* Nothing of this one's has gone with it */
	open_pair(s, &usual);
	writes(s, 100, false);
	close_pair(s);
}

/* The key is good, but it may not be written to locally */
static void local_write_permission(UNUSED void **state)
{
	struct how how = usual;

	how.access = IBV_ACCESS_REMOTE_READ;
	open_request(&how, IBV_WR_RDMA_READ, 3, 8, 0);
	fails_with(s, &wr, IBV_WC_LOC_PROT_ERR);
	close_pair(s);
	open_pair(s, &how);
	recv_at(&s[1], 1, 0, 4096);
	wr = first_to_second(IBV_WR_SEND, 3, 0, 8, 0);
	fails_with(s, &wr, IBV_WC_REM_OP_ERR);
	expect(s[1].rcq, 1, IBV_WC_LOC_PROT_ERR);
	close_pair(s);
}

/* A memory region is good only within its protection domain */
static void other_domain(UNUSED void **state)
{
	struct ibv_pd *p = ibv_alloc_pd(ctx);
	struct ibv_mr *mr;

	open_pair(s, &usual);
	mr = ibv_reg_mr(p, s[0].buf, SIZE, ALL_ACCESS);
	sg = sge(&s[0], 0, 8);
	sg.lkey = mr->lkey;
	wr = request(IBV_WR_RDMA_WRITE, 3, &sg, 1, &s[1], 0);
	fails_with(s, &wr, IBV_WC_LOC_PROT_ERR);
	close_pair(s);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	open_pair(s, &usual);
	mr = ibv_reg_mr(p, s[1].buf, SIZE, ALL_ACCESS);
	wr = first_to_second(IBV_WR_RDMA_WRITE, 3, 0, 8, 0);
	wr.wr.rdma.rkey = mr->rkey;
	fails_with(s, &wr, IBV_WC_REM_ACCESS_ERR);
	close_pair(s);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(p), 0);
}

static void remote_access(UNUSED void **state)
{
	static const struct {
		enum ibv_wr_opcode op;
		int needs;
	} ops[] = {
		{ IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE },
		{ IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC },
		{ IBV_WR_ATOMIC_CMP_AND_SWP, IBV_ACCESS_REMOTE_ATOMIC },
	};
	struct how how;

	for (unsigned i = 0; i < ARRAY(ops); i++)
		for (int what = 0; what < 5; what++) {
			size_t off = 0;

			how = usual;
			if (what == 0)
				how.access &= ~ops[i].needs;
			else if (what == 1)
				off = SIZE;
			else if (what == 2)
				off = SIZE - 7;
			open_pair(s, &how);
			memset(s[1].buf, 0xaa, SIZE);
			sg = sge(&s[0], 0, 8);
			if (ops[i].needs == IBV_ACCESS_REMOTE_ATOMIC && what == 2)
				off = SIZE; /* would be unaligned, which is another error */
			wr = request(ops[i].op, 3, &sg, 1, &s[1], off);
			if (what == 3)
				ops[i].needs == IBV_ACCESS_REMOTE_ATOMIC ? (wr.wr.atomic.rkey ^= 0x40) : (wr.wr.rdma.rkey ^= 0x40);
			else if (what == 4)
				ops[i].needs == IBV_ACCESS_REMOTE_ATOMIC ? (wr.wr.atomic.remote_addr = UINT64_MAX - 7) :
									   (wr.wr.rdma.remote_addr = UINT64_MAX - 3);
			fails_with(s, &wr, IBV_WC_REM_ACCESS_ERR);
			assert_true(all_bytes(s[1].buf, SIZE, 0xaa));
			close_pair(s);
		}
}

/* The region would allow it, the queue pair does not */
static void qp_access(UNUSED void **state)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct how how = usual;

	how.qp_access = IBV_ACCESS_LOCAL_WRITE;
	for (unsigned i = 0; i < ARRAY(ops); i++) {
		open_request(&how, ops[i], 3, 8, 0);
		post(&s[0], &wr);
		wc = next_wc(s[0].scq);
		assert_true(wc.status == IBV_WC_REM_INV_REQ_ERR || wc.status == IBV_WC_REM_ACCESS_ERR);
		close_pair(s);
	}
}

static void unaligned_atomic(UNUSED void **state)
{
	open_request(&usual, IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 8, 4);
	fails_with(s, &wr, IBV_WC_REM_INV_REQ_ERR);
	close_pair(s);
}

static void receiver_not_ready(UNUSED void **state)
{
	struct how how = usual;

	how.rnr_retry = 2;
	open_request(&how, IBV_WR_SEND, 3, 8, 0);
	fails_with(s, &wr, IBV_WC_RNR_RETRY_EXC_ERR);
	assert_int_equal(state_of(s[1].qp), IBV_QPS_RTS);
	close_pair(s);
	/* 7 is for ever: the receive may come late */
	how.rnr_retry = 7;
	open_request(&how, IBV_WR_SEND, 3, 8, 0);
	post(&s[0], &wr);
	expect_nothing(s[0].scq);
	recv_at(&s[1], 1, 0, 8);
	expect_op(s[0].scq, 3, IBV_WC_SEND);
	expect_op(s[1].rcq, 1, IBV_WC_RECV);
	close_pair(s);
}

static void nobody_there(UNUSED void **state)
{
	struct how how = usual;

	how.retry_cnt = 1;
	open_pair(s, &how);
	assert_int_equal(move(s[1].qp, IBV_QPS_RESET, 0, &how), 0);
	wr = first_to_second(IBV_WR_RDMA_WRITE, 3, 0, 8, 0);
	fails_with(s, &wr, IBV_WC_RETRY_EXC_ERR);
	close_pair(s);
}

/* What was done before the error completes before it, and nothing twice */
static void error_in_the_middle(UNUSED void **state)
{
	struct ibv_send_wr wr[6];
	struct ibv_sge sg[6];

	open_pair(s, &usual);
	fill(s[0].buf, 4096, 9);
	memset(s[1].buf, 0xaa, 4096);
	for (int i = 0; i < 6; i++) {
		sg[i] = sge(&s[0], 8 * i, 8);
		wr[i] = request(IBV_WR_RDMA_WRITE, i, &sg[i], 1, &s[1], 8 * i);
		wr[i].send_flags = i == 1 || i == 4 ? 0 : IBV_SEND_SIGNALED;
		wr[i].next = i < 5 ? &wr[i + 1] : NULL;
	}
	wr[3].wr.rdma.rkey ^= 1;
	post(&s[0], wr);
	expect(s[0].scq, 0, IBV_WC_SUCCESS);
	expect(s[0].scq, 2, IBV_WC_SUCCESS);
	expect(s[0].scq, 3, IBV_WC_REM_ACCESS_ERR);
	expect(s[0].scq, 4, IBV_WC_WR_FLUSH_ERR);
	expect(s[0].scq, 5, IBV_WC_WR_FLUSH_ERR);
	expect_nothing(s[0].scq);
	assert_memory_equal(s[1].buf, s[0].buf, 24);
	assert_true(all_bytes(s[1].buf + 24, 24, 0xaa));
	close_pair(s);
}

/* The program's own way into the error state */
static void flush_by_modify(UNUSED void **state)
{
	open_pair(s, &usual);
	for (int i = 0; i < 5; i++)
		recv_at(&s[0], i, 0, 8);
	assert_int_equal(move(s[0].qp, IBV_QPS_ERR, 0, &usual), 0);
	for (int i = 0; i < 5; i++)
		expect(s[0].rcq, i, IBV_WC_WR_FLUSH_ERR);
	expect_nothing(s[0].rcq);
	close_pair(s);
}

/* A stale key is seen, also when its number is in use again */
static void stale_key(UNUSED void **state)
{
	uint32_t old;

	open_pair(s, &usual);
	old = s[1].mr->rkey;
	assert_int_equal(ibv_rereg_mr(s[1].mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, s[1].buf, SIZE, 0), 0);
	wr = first_to_second(IBV_WR_RDMA_WRITE, 3, 0, 8, 0);
	post_done(&s[0], &wr);
	wr.wr.rdma.rkey = old;
	fails_with(s, &wr, IBV_WC_REM_ACCESS_ERR);
	close_pair(s);
}

/*
 * Registered, then unmapped under the device's feet: a NIC would still have the page; we only must
 * not crash
 */
static void unmapped(UNUSED void **state)
{
	struct ibv_mr *mr;
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	open_pair(s, &usual);
	mr = ibv_reg_mr(pd, p, 4096, ALL_ACCESS);
	assert_non_null(mr);
	munmap(p, 4096);
	sg = (struct ibv_sge){ .addr = (uintptr_t)p, .length = 4096, .lkey = mr->lkey };
	wr = request(IBV_WR_RDMA_WRITE, 3, &sg, 1, &s[1], 0);
	post(&s[0], &wr);
	assert_int_not_equal(next_wc(s[0].scq).status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	close_pair(s);
}

/* ---- events ---- */

static void comp_events(UNUSED void **state)
{
	struct how how = usual;
	struct ibv_cq *cq;
	void *arg;

	how.channel = ibv_create_comp_channel(ctx);
	assert_non_null(how.channel);
	open_request(&how, IBV_WR_RDMA_WRITE, 1, 8, 0);

	/* Not armed: no event */
	post(&s[0], &wr);
	expect(s[0].scq, 1, IBV_WC_SUCCESS);
	assert_false(readable(how.channel->fd, 20));
	/* Armed: one event, and only one */
	for (int i = 0; i < 5; i++) {
		assert_int_equal(ibv_req_notify_cq(s[0].scq, 0), 0);
		assert_false(readable(how.channel->fd, 5));
		post(&s[0], &wr);
		post(&s[0], &wr);
		assert_true(readable(how.channel->fd, PATIENCE * 1000));
		assert_int_equal(ibv_get_cq_event(how.channel, &cq, &arg), 0);
		assert_ptr_equal(cq, s[0].scq);
		assert_ptr_equal(arg, &s[0]);
		ibv_ack_cq_events(cq, 1);
		expect(s[0].scq, 1, IBV_WC_SUCCESS);
		expect(s[0].scq, 1, IBV_WC_SUCCESS);
		assert_false(readable(how.channel->fd, 5));
	}
	/* Solicited only */
	assert_int_equal(ibv_req_notify_cq(s[1].rcq, 1), 0);
	for (int i = 0; i < 2; i++) {
		recv_at(&s[1], i, 0, 8);
		wr = request(IBV_WR_SEND, 2, &sg, 1, &s[1], 0);
		wr.send_flags |= i ? IBV_SEND_SOLICITED : 0;
		post(&s[0], &wr);
		expect(s[0].scq, 2, IBV_WC_SUCCESS);
		expect(s[1].rcq, i, IBV_WC_SUCCESS);
		assert_int_equal(readable(how.channel->fd, i ? PATIENCE * 1000 : 20), i);
	}
	assert_int_equal(ibv_get_cq_event(how.channel, &cq, &arg), 0);
	assert_ptr_equal(cq, s[1].rcq);
	ibv_ack_cq_events(cq, 1);
	/* Events of two queues, one never read: destroy takes it back and does not wait for it */
	assert_int_equal(ibv_req_notify_cq(s[0].scq, 0), 0);
	assert_int_equal(ibv_req_notify_cq(s[1].rcq, 0), 0);
	recv_at(&s[1], 5, 0, 8);
	post(&s[0], &wr);
	expect(s[0].scq, 2, IBV_WC_SUCCESS);
	expect(s[1].rcq, 5, IBV_WC_SUCCESS);
	close_side(&s[0]);
	assert_true(readable(how.channel->fd, PATIENCE * 1000));
	assert_int_equal(ibv_get_cq_event(how.channel, &cq, &arg), 0);
	assert_ptr_equal(cq, s[1].rcq);
	ibv_ack_cq_events(cq, 1);
	assert_false(readable(how.channel->fd, 5));
	close_side(&s[1]);
	assert_int_equal(ibv_destroy_comp_channel(how.channel), 0);
}

/*
 * Armed after the CQE has come: the event comes at once, as the CQE is one the program has not
 * taken
 */
static void late_arm(UNUSED void **state)
{
	struct how how = usual;
	struct ibv_cq *cq;
	void *arg;

	how.channel = ibv_create_comp_channel(ctx);
	open_request(&how, IBV_WR_RDMA_WRITE, 1, 8, 0);
	post(&s[0], &wr);
	usleep(20000);
	assert_int_equal(ibv_req_notify_cq(s[0].scq, 0), 0);
	assert_true(readable(how.channel->fd, PATIENCE * 1000));
	assert_int_equal(ibv_get_cq_event(how.channel, &cq, &arg), 0);
	ibv_ack_cq_events(cq, 1);
	expect(s[0].scq, 1, IBV_WC_SUCCESS);
	close_pair(s);
	assert_int_equal(ibv_destroy_comp_channel(how.channel), 0);
}

static void async_events(UNUSED void **state)
{
	struct ibv_async_event ev;
	int n = 0;

	while (readable(ctx->async_fd, 0)) { /* of earlier tests: destroyed objects leave none */
		assert_int_equal(ibv_get_async_event(ctx, &ev), 0);
		ibv_ack_async_event(&ev);
		n++;
	}
	assert_int_equal(n, 0);
	/* The responder of a forbidden access hears of it; not reading the event must not hold up the destruction */
	for (int i = 0; i < 2; i++) {
		open_request(&usual, IBV_WR_RDMA_WRITE, 3, 8, SIZE);
		post(&s[0], &wr);
		expect(s[0].scq, 3, IBV_WC_REM_ACCESS_ERR);
		assert_true(readable(ctx->async_fd, PATIENCE * 1000));
		if (!i) {
			assert_int_equal(ibv_get_async_event(ctx, &ev), 0);
			assert_int_equal(ev.event_type, IBV_EVENT_QP_ACCESS_ERR);
			assert_ptr_equal(ev.element.qp, s[1].qp);
			ibv_ack_async_event(&ev);
		}
		close_pair(s);
		assert_false(readable(ctx->async_fd, 5));
	}
}

/* A CQ that overruns is dead, and says so; what else there is lives on */
static void overrun(UNUSED void **state)
{
	struct ibv_async_event ev;
	struct how how = usual;

	how.cqe = 3;
	open_request(&how, IBV_WR_RDMA_WRITE, 1, 8, 0);
	for (int i = 0; i < 10; i++)
		post(&s[0], &wr);
	assert_true(readable(ctx->async_fd, PATIENCE * 1000));
	assert_int_equal(ibv_get_async_event(ctx, &ev), 0);
	assert_int_equal(ev.event_type, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(ev.element.cq, s[0].scq);
	ibv_ack_async_event(&ev);
	close_pair(s);
	assert_false(readable(ctx->async_fd, 5));
	open_pair(s, &usual);
	writes(s, 100, false);
	close_pair(s);
}

static int open_and_close(void)
{
	int n, ok = 0;
	struct ibv_device **l = ibv_get_device_list(&n);
	struct ibv_context *c = l && n ? ibv_open_device(l[0]) : NULL;

	if (c) {
		struct ibv_pd *p = ibv_alloc_pd(c);

		ok = p && !ibv_dealloc_pd(p) && !ibv_close_device(c);
	}
	return ok;
}

static int forked_opens(void)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(open_and_close() ? 0 : 1);
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static int before_opened;

/*
 * A child may open the device if its parent has not; if it has, the child is refused and the parent
 * does not notice
 */
static void forks(UNUSED void **state)
{
	assert_true(before_opened);
	open_pair(s, &usual);
	assert_false(forked_opens());
	writes(s, 5000, true);
	sends(s, 64, false);
	close_pair(s);
}

/* ---- two processes ---- */

/* The other process: connects, and is then in this state */
static int peer(const char *then)
{
	struct side s;

	if (setup(NULL))
		return 1;
	open_remote(&first_process, &s, &usual);
	if (strcmp(then, "rts"))
		must(move(s.qp, IBV_QPS_RESET, 0, &usual));
	if (!strcmp(then, "init"))
		must(move(s.qp, IBV_QPS_INIT, 0, &usual));
	tell(&first_process);
	hear(&first_process);
	return state_of(s.qp) != (!strcmp(then, "rts") ? IBV_QPS_RTS : !strcmp(then, "init") ? IBV_QPS_INIT : IBV_QPS_RESET);
}

static struct card reach(struct peer *other, struct side *s, const struct how *how)
{
	struct card theirs = open_remote(other, s, how);

	hear(other);
	return theirs;
}

static void part(struct peer *other, struct side *s)
{
	tell(other);
	must(end_peer(other));
	close_side(s);
}

/* A READ finds a QP that was connected once: it gets no answer, and changes nothing there */
static void read_of_reset(UNUSED void **state)
{
	static const char *const states[] = { "reset", "init" };
	struct how how = usual;

	how.retry_cnt = 1;
	for (unsigned i = 0; i < ARRAY(states); i++) {
		struct peer other = start_peer("peer", states[i]);
		struct card theirs = reach(&other, &s[0], &how);

		sg = sge(&s[0], 0, 8);
		wr = request(IBV_WR_RDMA_READ, 1, &sg, 1, &s[0], 0);
		wr.wr.rdma.remote_addr = theirs.addr;
		wr.wr.rdma.rkey = theirs.rkey;
		post(&s[0], &wr);
		expect(s[0].scq, 1, IBV_WC_RETRY_EXC_ERR);
		part(&other, &s[0]);
	}
}

/* A younger request fails before the elder is sent again: it has to wait for how that one ends */
static void elder_not_received(UNUSED void **state)
{
	struct peer other = start_peer("peer", "rts");
	struct how how = usual;
	struct ibv_send_wr two;
	struct ibv_sge none;

	how.rnr_retry = 2;
	reach(&other, &s[0], &how);
	sg = none = sge(&s[0], 0, 8);
	none.lkey ^= 0x80;
	wr = request(IBV_WR_SEND, 1, &sg, 1, &s[0], 0);
	two = request(IBV_WR_SEND, 2, &none, 1, &s[0], 0);
	wr.next = &two;
	post(&s[0], &wr);
	expect(s[0].scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	expect(s[0].scq, 2, IBV_WC_WR_FLUSH_ERR);
	part(&other, &s[0]);
}

#define READS 16 /* as many as may be under way */

/* Up again, and what it sends next has this PSN; its peer expects that of attr_for() */
static void connect_again(struct ibv_qp *qp, uint32_t dest, uint32_t psn)
{
	struct ibv_qp_attr a = attr_for(IBV_QPS_RTS, dest, &usual);

	a.sq_psn = psn;
	must(move(qp, IBV_QPS_RESET, 0, &usual));
	must(move(qp, IBV_QPS_INIT, 0, &usual));
	must(move(qp, IBV_QPS_RTR, dest, &usual));
	must(ibv_modify_qp(qp, &a, RTS_MASK));
}

/*
 * A process that was stopped finds requests of an earlier connection, and must refuse each of them.
 * It still has room for its answers to the next connection: READs, and another refusal
 */
static void many_refused(UNUSED void **state)
{
	struct side own[2];

	open_pair(own, &usual);
	for (unsigned refused = 0; refused < 2; refused++) {
		struct peer other = start_peer("peer", "rts");
		struct card theirs = reach(&other, &s[0], &usual);
		int status;

		must(kill(other.pid, SIGSTOP));
		assert_int_equal(waitpid(other.pid, &status, WUNTRACED), other.pid);
		connect_again(s[0].qp, theirs.qpn, 1);
		sg = sge(&s[0], 0, 8);
		wr = request(IBV_WR_RDMA_WRITE, 0, &sg, 1, &s[0], 0);
		wr.send_flags = 0;
		for (unsigned i = 0; i < 40; i++)
			post(&s[0], &wr);
		writes(own, 8, false); /* by then those have left */
		connect_again(s[0].qp, theirs.qpn, refused ? 1 : 0x123456);
		wr = request(IBV_WR_RDMA_READ, 0, &sg, 1, &s[0], 0);
		wr.wr.rdma.remote_addr = theirs.addr;
		wr.wr.rdma.rkey = theirs.rkey;
		for (; wr.wr_id < (refused ? 1 : READS); wr.wr_id++)
			post(&s[0], &wr);
		writes(own, 8, false);
		must(kill(other.pid, SIGCONT));
		for (unsigned i = 0; i < wr.wr_id; i++)
			expect(s[0].scq, i, refused ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
		part(&other, &s[0]);
	}
	close_pair(own);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(attributes), TEST(gid_table), TEST(life_cycles), TEST(refusals), TEST(read_only_memory),
		TEST(keys), TEST(thread_domain), TEST(abandoned), TEST(opcodes), TEST(opcodes_sig_all),
		TEST(opcodes_128), TEST(empty_messages), TEST(wr_interface), TEST(gather_and_scatter),
		TEST(inline_data), TEST(fence), TEST(unsignaled), TEST(wrap_around), TEST(self), TEST(iova),
		TEST(vendor_interface), TEST(scatter_to_cqe), TEST(reset_and_reuse), TEST(local_length),
		TEST(local_protection), TEST(swapped_keys), TEST(changed_rights), TEST(imported),
		TEST(local_write_permission), TEST(other_domain), TEST(remote_access), TEST(qp_access),
		TEST(unaligned_atomic), TEST(receiver_not_ready), TEST(nobody_there), TEST(error_in_the_middle),
		TEST(flush_by_modify), TEST(stale_key), TEST(unmapped), TEST(comp_events), TEST(late_arm),
		TEST(async_events), TEST(overrun), TEST(forks), TEST(read_of_reset), TEST(elder_not_received),
		TEST(many_refused),
	};

	if (argc == 3)
		return peer(argv[2]);
	before_opened = forked_opens();
	return cmocka_run_group_tests(tests, setup, teardown);
}
