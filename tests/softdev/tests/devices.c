/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * devices.c: several devices in one process: each is somebody, they reach each other, and what is
 * one's is no good at another. Then the same of ports: the third is the second device's
 */
#include "rig.h"

#define DEVICES 3                 /* as main() has them */

/* The way to a device by the GID at an index, or on InfiniBand by LID */
static struct ibv_ah_attr way(int to, int index)
{
	struct ibv_ah_attr a = {};

	a.port_num = port_num;
	a.dlid = devices[to].port.lid;
	if (is_roce()) {
		a.is_global = 1;
		must(ibv_query_gid(devices[to].ctx, devices[to].port_num, index, &a.grh.dgid));
		a.grh.sgid_index = index;
		a.grh.hop_limit = 64;
	}
	return a;
}

static void up(struct ibv_qp *qp, struct ibv_ah_attr ah, uint32_t dest)
{
	struct how how = usual;

	how.retry_cnt = 1;
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) {
		struct ibv_qp_attr a = attr_for(state, dest, &how);

		a.ah_attr = ah;
		must(ibv_modify_qp(qp, &a, mask_for(qp->qp_type, state)));
	}
}

static void open_at(int i, struct side *side, enum ibv_qp_type type)
{
	struct how how = usual;

	how.type = type;
	at_device(i);
	open_side(side, &how);
}

/* A QP of the one device whose packets go to `to` of the others, connected to one of another */
static void connect(int i, int j, int to, int index)
{
	open_at(i, &s[0], IBV_QPT_RC);
	open_at(j, &s[1], IBV_QPT_RC);
	up(s[1].qp, way(i, index), s[0].qp->qp_num);
	at_device(i);
	up(s[0].qp, way(to, index), s[1].qp->qp_num);
}

/* ---- tests ---- */

TEST(identities)
{
	for (int i = 0; i < DEVICES; i++) {
		struct ibv_device *dev = devices[i].ctx->device;
		struct ibv_port_attr none;
		struct ibv_device_attr a;
		char name[24];

		must(ibv_query_device(devices[i].ctx, &a));
		snprintf(name, sizeof(name), "mlx5_%d", i / a.phys_port_cnt);
		assert_string_equal(ibv_get_device_name(dev), name);
		assert_true(mlx5dv_is_supported(dev));
		assert_int_equal(a.node_guid, ibv_get_device_guid(dev));
		assert_int_equal(ibv_query_port(devices[i].ctx, a.phys_port_cnt + 1, &none), EINVAL);
		assert_int_equal(devices[i].port.state, IBV_PORT_ACTIVE);
		for (int j = 0; j < i; j++) {
			struct ibv_device *other = devices[j].ctx->device;

			assert_int_equal(a.node_guid == ibv_get_device_guid(other), dev == other);
			assert_int_equal(strcmp(dev->dev_name, other->dev_name) != 0, dev != other);
			assert_int_equal(strcmp(dev->ibdev_path, other->ibdev_path) != 0, dev != other);
			assert_true(is_roce() || devices[i].port.lid != devices[j].port.lid);
			for (int k = 0; k < 16; k++) {
				union ibv_gid g, h;

				must(ibv_query_gid(devices[i].ctx, devices[i].port_num, k / 4, &g));
				must(ibv_query_gid(devices[j].ctx, devices[j].port_num, k % 4, &h));
				if (g.global.interface_id)
					assert_memory_not_equal(&g, &h, sizeof(g));
			}
		}
	}
}

TEST(reach_each_other)
{
	for (int i = 0; i < DEVICES; i++)
		for (int j = 0; j < DEVICES; j++)
			for (int index = 0; i != j && index < (is_roce() ? 4 : 1); index++) {
				connect(i, j, j, index);
				writes(s, 5000, false);
				sends(s, 100000, true);
				reads(s, 5000);
				close_pair(s);
			}
}

/* A group spans devices, and a datagram comes to the device of its address alone */
TEST(datagrams)
{
	union ibv_gid g = { .raw = { 0xff, 0x12, [15] = 9 } };
	struct ibv_ah_attr to, second;
	struct side all[DEVICES];
	struct ibv_ah *ah[2];

	at_device(0);
	to = way(0, 0);
	second = way(1, sgid);
	to.is_global = 1;
	to.grh.hop_limit = 1;
	to.grh.dgid = g;
	to.dlid = 0xc009;
	for (int i = 0; i < DEVICES; i++) {
		open_at(i, &all[i], IBV_QPT_UD);
		up(all[i].qp, to, 0);
		recv_at(&all[i], 2, HALF, 4096);
		recv_at(&all[i], 2, HALF, 4096);
		if (i)
			must(ibv_attach_mcast(all[i].qp, &g, 0xc009));
	}
	ah[0] = ibv_create_ah(devices[0].pd, &to);
	ah[1] = ibv_create_ah(devices[0].pd, &second);
	for (int one = 0; one < 2; one++) {
		sg = sge(&all[0], 0, 200);
		wr = request(IBV_WR_SEND, 1, &sg, 1, &all[0], 0);
		address(&wr, ah[one], one ? all[1].qp->qp_num : 0xffffff);
		fill(all[0].buf, 200, 7 + one);
		post_done(&all[0], &wr);
		for (int i = 1; i < (one ? 2 : DEVICES); i++) {
			assert_int_equal(expect_op(all[i].rcq, 2, IBV_WC_RECV).src_qp, all[0].qp->qp_num);
			assert_memory_equal(all[i].buf + HALF + GRH_BYTES, all[0].buf, 200);
		}
	}
	for (int i = 0; i < DEVICES; i++) {
		expect_nothing(all[i].rcq);
		if (i)
			must(ibv_detach_mcast(all[i].qp, &g, 0xc009));
		close_side(&all[i]);
	}
	must(ibv_destroy_ah(ah[0]) || ibv_destroy_ah(ah[1]));
}

/* The QPN of the peer at the address of another device, and keys and objects that are good at home only */
TEST(not_shared)
{
	struct ibv_qp_init_attr init = { .cap = usual.cap, .qp_type = IBV_QPT_RC };

	for (int k = 0; k < 3; k++) {
		static const enum ibv_wc_status status[] = { IBV_WC_RETRY_EXC_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_ACCESS_ERR };

		connect(0, 1, k ? 1 : 2, sgid);
		init.send_cq = init.recv_cq = s[1].scq;
		assert_null(ibv_create_qp(devices[0].pd, &init));
		wr = first_to_second(IBV_WR_RDMA_WRITE, 1, 0, 8, 0);
		if (k == 1)
			sg.lkey = s[1].mr->lkey;
		if (k == 2)
			aim(&wr, (uintptr_t)s[0].buf, s[0].mr->rkey);
		post(&s[0], &wr);
		expect(s[0].scq, 1, status[k]);
		if (k == 2) {
			assert_ptr_equal(expect_event(devices[1].ctx, IBV_EVENT_QP_ACCESS_ERR), s[1].qp);
			assert_false(readable(devices[0].ctx->async_fd, 2));
		}
		close_pair(s);
	}
}

/* A port that a fault takes down neither sends nor receives; the message at which its own port falls has come */
TEST(port_down)
{
	for (int k = 0; k < 4; k++) {
		const int down = k % 2, from = k / 2;
		struct ibv_async_event ev;
		struct ibv_port_attr p;

		connect(from, !from, !from, sgid);
		must(softdev_fault(down ? "down=1@2" : "down=0@2"));
		for (int i = 1; i <= 3; i++) {
			memset(s[0].buf, i, 8);
			wr = first_to_second(IBV_WR_RDMA_WRITE, i, 0, 8, 0);
			post(&s[0], &wr);
			expect(s[0].scq, i, i == 1 ? IBV_WC_SUCCESS : i == 2 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR);
		}
		assert_true(all_bytes(s[1].buf, 8, down == from ? 2 : 1));
		/* Both ports may be one device's, which hears of both */
		do {
			must(ibv_get_async_event(devices[down].ctx, &ev));
			ibv_ack_async_event(&ev);
		} while (ev.event_type != IBV_EVENT_PORT_ERR || ev.element.port_num != devices[down].port_num);
		for (int i = 0; i < 2; i++) {
			must(ibv_query_port(devices[i].ctx, devices[i].port_num, &p));
			assert_int_equal(p.state, i == down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE);
		}
		must(softdev_fault(NULL));
		close_pair(s);
	}
}

int main(void)
{
	skip_all_if(!softdev_present(), "as many devices as one wants need the software device");
	setenv("SOFTDEV_DEVICES", getenv("SOFTDEV_PORTS") ? "2" : "3", 1); /* read when devices are first asked for */
	return run_all(open_devices, close_devices) + again_with("SOFTDEV_LINK", "ib") +
	       (getenv("SOFTDEV_LINK") ? 0 : again_with("SOFTDEV_PORTS", "2"));
}
