/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * devices.c: several devices in one process: each is somebody, they reach each other, and what is
 * one's is no good at another
 */
#include "rig.h"

#define DEVICES 3

struct node {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_port_attr port;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t *buf;
};

static struct node node[DEVICES];

static int open_all(UNUSED void **state)
{
	int n;

	list = ibv_get_device_list(&n);
	if (!list || n != DEVICES) {
		print_error("%d devices, not %d\n", n, DEVICES);
		return -1;
	}
	for (int i = 0; i < DEVICES; i++) {
		struct node *d = &node[i];

		d->ctx = ibv_open_device(list[i]);
		if (!d->ctx || ibv_query_port(d->ctx, 1, &d->port) || !(d->pd = ibv_alloc_pd(d->ctx)))
			return -1;
		d->buf = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		d->cq = ibv_create_cq(d->ctx, 255, NULL, NULL, 0);
		d->mr = ibv_reg_mr(d->pd, d->buf, SIZE, ALL_ACCESS);
		if (!d->cq || !d->mr)
			return -1;
	}
	ctx = node[0].ctx;
	pd = node[0].pd;
	port = node[0].port;
	sgid = is_roce() ? 3 : 0;
	return 0;
}

static int close_all(UNUSED void **state)
{
	for (int i = 0; i < DEVICES; i++)
		if (ibv_dereg_mr(node[i].mr) || ibv_destroy_cq(node[i].cq) || ibv_dealloc_pd(node[i].pd) || ibv_close_device(node[i].ctx))
			return -1;
	ibv_free_device_list(list);
	return 0;
}

static struct ibv_qp *a_qp(struct node *d, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = { .send_cq = d->cq, .recv_cq = d->cq, .cap = usual.cap, .qp_type = type };
	struct ibv_qp *qp = ibv_create_qp(d->pd, &init);

	assert_non_null(qp);
	return qp;
}

/* The way from one to another by the GID at an index of both, or on InfiniBand by LID */
static struct ibv_ah_attr way(struct node *to, int index)
{
	struct ibv_ah_attr a;

	memset(&a, 0, sizeof(a));
	a.port_num = 1;
	a.dlid = to->port.lid;
	if (is_roce()) {
		a.is_global = 1;
		must(ibv_query_gid(to->ctx, 1, index, &a.grh.dgid));
		a.grh.sgid_index = index;
		a.grh.hop_limit = 64;
	}
	return a;
}

static void up(struct ibv_qp *qp, struct ibv_ah_attr ah, uint32_t dest)
{
	struct how how = usual;

	how.type = qp->qp_type;
	how.retry_cnt = 1;
	for (int s = IBV_QPS_INIT; s <= IBV_QPS_RTS; s++) {
		struct ibv_qp_attr a = attr_for(s, dest, &how);

		a.ah_attr = ah;
		must(ibv_modify_qp(qp, &a, mask_for(qp->qp_type, s)));
	}
}

static void connect(struct node *a, struct node *b, int index)
{
	a->qp = a_qp(a, IBV_QPT_RC);
	b->qp = a_qp(b, IBV_QPT_RC);
	up(a->qp, way(b, index), b->qp->qp_num);
	up(b->qp, way(a, index), a->qp->qp_num);
}

static void disconnect(struct node *a, struct node *b)
{
	must(ibv_destroy_qp(a->qp));
	must(ibv_destroy_qp(b->qp));
}

static struct ibv_send_wr write_to(struct node *from, struct ibv_sge *sg, uint32_t len, struct node *to)
{
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = sg, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED };

	*sg = (struct ibv_sge){ .addr = (uintptr_t)from->buf, .length = len, .lkey = from->mr->lkey };
	wr.wr.rdma.remote_addr = (uintptr_t)to->buf + HALF;
	wr.wr.rdma.rkey = to->mr->rkey;
	return wr;
}

static void traffic(struct node *a, struct node *b)
{
	static const uint32_t sizes[] = { 1, 64, 1000, 5000, 100000 };

	for (unsigned i = 0; i < ARRAY(sizes); i++) {
		struct ibv_send_wr wr, *bad;
		struct ibv_recv_wr rwr, *rbad;
		struct ibv_sge sg;
		struct ibv_wc wc;

		fill(a->buf, sizes[i], i + 3);
		memset(b->buf + HALF, 0, sizes[i]);
		wr = write_to(a, &sg, sizes[i], b);
		must(ibv_post_send(a->qp, &wr, &bad));
		expect_op(a->cq, 1, IBV_WC_RDMA_WRITE);
		assert_memory_equal(b->buf + HALF, a->buf, sizes[i]);

		memset(b->buf + HALF, 0, sizes[i]);
		sg = (struct ibv_sge){ .addr = (uintptr_t)b->buf + HALF, .length = sizes[i], .lkey = b->mr->lkey };
		rwr = (struct ibv_recv_wr){ .wr_id = 2, .sg_list = &sg, .num_sge = 1 };
		must(ibv_post_recv(b->qp, &rwr, &rbad));
		wr = write_to(a, &sg, sizes[i], b);
		wr.opcode = IBV_WR_SEND;
		must(ibv_post_send(a->qp, &wr, &bad));
		expect_op(a->cq, 1, IBV_WC_SEND);
		wc = expect_op(b->cq, 2, IBV_WC_RECV);
		assert_int_equal(wc.byte_len, sizes[i]);
		assert_memory_equal(b->buf + HALF, a->buf, sizes[i]);

		wr = write_to(a, &sg, sizes[i], b);
		wr.opcode = IBV_WR_RDMA_READ;
		sg.addr += 2 * 100000;
		must(ibv_post_send(a->qp, &wr, &bad));
		expect_op(a->cq, 1, IBV_WC_RDMA_READ);
		assert_memory_equal(a->buf + 2 * 100000, b->buf + HALF, sizes[i]);
	}
}

/* ---- tests ---- */

static void identities(UNUSED void **state)
{
	for (int i = 0; i < DEVICES; i++) {
		struct ibv_device_attr a, b;
		char name[24];

		snprintf(name, sizeof(name), "mlx5_%d", i);
		assert_string_equal(ibv_get_device_name(list[i]), name);
		assert_true(mlx5dv_is_supported(list[i]));
		must(ibv_query_device(node[i].ctx, &a));
		assert_int_equal(a.node_guid, ibv_get_device_guid(list[i]));
		assert_int_equal(node[i].port.state, IBV_PORT_ACTIVE);
		for (int j = 0; j < i; j++) {
			must(ibv_query_device(node[j].ctx, &b));
			assert_int_not_equal(a.node_guid, b.node_guid);
			assert_string_not_equal(list[i]->dev_name, list[j]->dev_name);
			assert_string_not_equal(list[i]->ibdev_path, list[j]->ibdev_path);
			if (!is_roce())
				assert_int_not_equal(node[i].port.lid, node[j].port.lid);
			for (int k = 0; k < 4; k++) {
				union ibv_gid g, h;

				if (ibv_query_gid(node[i].ctx, 1, k, &g) || !g.global.interface_id)
					continue;
				for (int l = 0; l < 4; l++)
					if (!ibv_query_gid(node[j].ctx, 1, l, &h))
						assert_memory_not_equal(&g, &h, sizeof(g));
			}
		}
	}
}

static void reach_each_other(UNUSED void **state)
{
	for (int i = 0; i < DEVICES; i++)
		for (int j = 0; j < DEVICES; j++)
			for (int index = 0; index < (is_roce() ? 4 : 1); index++) {
				if (i == j)
					continue;
				connect(&node[i], &node[j], index);
				traffic(&node[i], &node[j]);
				disconnect(&node[i], &node[j]);
			}
}

static void unreliable(UNUSED void **state)
{
	struct ibv_ah_attr there = way(&node[1], sgid), nowhere = way(&node[2], sgid), self = way(&node[0], sgid);
	struct ibv_ah *ah = ibv_create_ah(node[0].pd, &there), *wrong = ibv_create_ah(node[0].pd, &nowhere), *back;
	struct ibv_qp *a = a_qp(&node[0], IBV_QPT_UD), *b = a_qp(&node[1], IBV_QPT_UD);
	struct ibv_sge sg = { .addr = (uintptr_t)node[1].buf, .length = 4096, .lkey = node[1].mr->lkey };
	struct ibv_recv_wr rwr = { .wr_id = 2, .sg_list = &sg, .num_sge = 1 }, *rbad;
	struct ibv_send_wr wr, *bad;
	struct ibv_ah_attr attr;

	assert_non_null(ah);
	assert_non_null(wrong);
	up(a, self, 0);
	up(b, self, 0);
	must(ibv_post_recv(b, &rwr, &rbad));
	fill(node[0].buf, 200, 7);
	/* The number is right, the device is not */
	wr = write_to(&node[0], &sg, 200, &node[1]);
	wr.opcode = IBV_WR_SEND;
	wr.wr.ud.ah = wrong;
	wr.wr.ud.remote_qpn = b->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	must(ibv_post_send(a, &wr, &bad));
	expect_op(node[0].cq, 1, IBV_WC_SEND);
	expect_nothing(node[1].cq);
	wr.wr.ud.ah = ah;
	must(ibv_post_send(a, &wr, &bad));
	expect_op(node[0].cq, 1, IBV_WC_SEND);
	wc = expect_op(node[1].cq, 2, IBV_WC_RECV);
	assert_memory_equal(node[1].buf + GRH_BYTES, node[0].buf, 200);
	assert_int_equal(wc.src_qp, a->qp_num);
	must(ibv_init_ah_from_wc(node[1].ctx, 1, &wc, (struct ibv_grh *)node[1].buf, &attr));
	if (is_roce())
		assert_memory_equal(&attr.grh.dgid, &self.grh.dgid, 16);
	else
		assert_int_equal(attr.dlid, node[0].port.lid);
	/* And back */
	back = ibv_create_ah_from_wc(node[1].pd, &wc, (struct ibv_grh *)node[1].buf, 1);
	assert_non_null(back);
	sg = (struct ibv_sge){ .addr = (uintptr_t)node[0].buf + HALF, .length = 4096, .lkey = node[0].mr->lkey };
	must(ibv_post_recv(a, &rwr, &rbad));
	wr = write_to(&node[1], &sg, 100, &node[0]);
	wr.opcode = IBV_WR_SEND;
	wr.wr.ud.ah = back;
	wr.wr.ud.remote_qpn = wc.src_qp;
	wr.wr.ud.remote_qkey = QKEY;
	must(ibv_post_send(b, &wr, &bad));
	expect_op(node[1].cq, 1, IBV_WC_SEND);
	expect_op(node[0].cq, 2, IBV_WC_RECV);
	assert_memory_equal(node[0].buf + HALF + GRH_BYTES, node[1].buf, 100);
	must(ibv_destroy_qp(a));
	must(ibv_destroy_qp(b));
	must(ibv_destroy_ah(ah));
	must(ibv_destroy_ah(wrong));
	must(ibv_destroy_ah(back));
}

/* A group spans devices */
static void group(UNUSED void **state)
{
	struct ibv_ah_attr to = way(&node[0], 0);
	struct ibv_sge sg[DEVICES];
	struct ibv_qp *qp[DEVICES];
	struct ibv_send_wr wr, *bad;
	struct ibv_ah *ah;
	union ibv_gid g;

	memset(&g, 0, sizeof(g));
	g.raw[0] = 0xff;
	g.raw[1] = 0x12;
	g.raw[15] = 9;
	to.is_global = 1;
	to.grh.hop_limit = 1;
	to.grh.dgid = g;
	to.dlid = 0xc009;
	ah = ibv_create_ah(node[0].pd, &to);
	assert_non_null(ah);
	for (int i = 0; i < DEVICES; i++) {
		struct ibv_recv_wr rwr = { .wr_id = 10 + i, .sg_list = &sg[i], .num_sge = 1 }, *rbad;

		qp[i] = a_qp(&node[i], IBV_QPT_UD);
		up(qp[i], to, 0);
		sg[i] = (struct ibv_sge){ .addr = (uintptr_t)node[i].buf + HALF, .length = 4096, .lkey = node[i].mr->lkey };
		must(ibv_post_recv(qp[i], &rwr, &rbad));
		if (i)
			must(ibv_attach_mcast(qp[i], &g, 0xc009));
	}
	fill(node[0].buf, 100, 3);
	wr = write_to(&node[0], &sg[0], 100, &node[1]);
	wr.opcode = IBV_WR_SEND;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = 0xffffff;
	wr.wr.ud.remote_qkey = QKEY;
	must(ibv_post_send(qp[0], &wr, &bad));
	expect_op(node[0].cq, 1, IBV_WC_SEND);
	for (int i = 1; i < DEVICES; i++) {
		expect_op(node[i].cq, 10 + i, IBV_WC_RECV);
		assert_memory_equal(node[i].buf + HALF + GRH_BYTES, node[0].buf, 100);
	}
	expect_nothing(node[0].cq);
	for (int i = 0; i < DEVICES; i++) {
		if (i)
			must(ibv_detach_mcast(qp[i], &g, 0xc009));
		must(ibv_destroy_qp(qp[i]));
	}
	must(ibv_destroy_ah(ah));
}

/* The QPN of the peer at the address of another device: no answer */
static void wrong_address(UNUSED void **state)
{
	struct ibv_send_wr wr, *bad;

	node[0].qp = a_qp(&node[0], IBV_QPT_RC);
	node[1].qp = a_qp(&node[1], IBV_QPT_RC);
	up(node[0].qp, way(&node[2], sgid), node[1].qp->qp_num);
	up(node[1].qp, way(&node[0], sgid), node[0].qp->qp_num);
	wr = write_to(&node[0], &sg, 8, &node[1]);
	must(ibv_post_send(node[0].qp, &wr, &bad));
	expect(node[0].cq, 1, IBV_WC_RETRY_EXC_ERR);
	disconnect(&node[0], &node[1]);
}

/* Keys and objects are good at home only */
static void not_shared(UNUSED void **state)
{
	struct ibv_qp_init_attr init = { .send_cq = node[1].cq, .recv_cq = node[1].cq, .cap = usual.cap, .qp_type = IBV_QPT_RC };
	struct ibv_send_wr wr, *bad;

	assert_null(ibv_create_qp(node[0].pd, &init));
	connect(&node[0], &node[1], sgid);
	wr = write_to(&node[0], &sg, 8, &node[1]);
	sg.lkey = node[1].mr->lkey;
	must(ibv_post_send(node[0].qp, &wr, &bad));
	expect(node[0].cq, 1, IBV_WC_LOC_PROT_ERR);
	disconnect(&node[0], &node[1]);
	connect(&node[0], &node[1], sgid);
	wr = write_to(&node[0], &sg, 8, &node[1]);
	wr.wr.rdma.rkey = node[0].mr->rkey;
	wr.wr.rdma.remote_addr = (uintptr_t)node[0].buf;
	must(ibv_post_send(node[0].qp, &wr, &bad));
	expect(node[0].cq, 1, IBV_WC_REM_ACCESS_ERR);
	assert_true(readable(node[1].ctx->async_fd, PATIENCE * 1000));
	assert_false(readable(node[0].ctx->async_fd, 2));
	disconnect(&node[0], &node[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(identities), TEST(reach_each_other), TEST(unreliable), TEST(group), TEST(wrong_address),
		TEST(not_shared),
	};
	char n[16];

	if (!softdev_present()) {
		print_message("# skipped: as many devices as one wants need the software device\n1..0\n");
		return 0;
	}
	snprintf(n, sizeof(n), "%d", DEVICES);
	setenv("SOFTDEV_DEVICES", n, 1); /* read when devices are first asked for */
	return cmocka_run_group_tests(tests, open_all, close_all) + again_with("SOFTDEV_LINK", "ib");
}
