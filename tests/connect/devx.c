/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * devx.c: a queue pair of verbs and one of device commands, which know only each other's
 * record.
 */
#include "devx/rig.h"

static void over_the_wire(const struct inlay_connect_record *from, struct inlay_connect_record *to)
{
	uint8_t blob[INLAY_CONNECT_SIZE];

	inlay_connect_pack(from, blob);
	must(inlay_connect_unpack(to, blob, sizeof(blob), NULL));
}

/* All operations of both ways; what one side leaves open it takes from the other */
static void verbs_and_commands(void **state)
{
	static const uint32_t types[] = {INLAY_QP_ST_RC, INLAY_QP_ST_UC};

	(void)state;
	for (unsigned t = 0; t < ARRAY(types); t++)
		for (int global = 0; global < 2; global++) {
			struct inlay_connect_attr attr = inlay_connect_defaults();
			struct inlay_connect_record here, there, at_here, at_there;
			struct ibv_qp_init_attr init;
			struct inlay_query_qp_out q;
			struct ibv_qp_attr a;
			struct how how;
			static struct side v, d;

			memset(&how, 0, sizeof(how));
			how.type = types[t];
			side_make(&d, &how);
			how.verbs = true;
			side_make(&v, &how);
			attr.access = ALL_ACCESS & ~IBV_ACCESS_LOCAL_WRITE;
			attr.sl = 3;
			/* One of them has a class, and the other takes it */
			attr.traffic_class = t ? 104 : 0;
			d.path.traffic_class = t ? 0 : 104;
			attr.flags = global ? INLAY_CONNECT_GLOBAL : 0;
			must(inlay_connect_local(&here, v.verbs.qp, &attr, NULL));
			d.path.gid_index = here.gid_index;
			d.path.psn = 0x123456;
			must(inlay_devx_qp_address(&d.qp, &d.path, &there));
			over_the_wire(&here, &at_there);
			over_the_wire(&there, &at_here);
			must(inlay_devx_address_resolve(&at_there, dev.pd, &d.path));
			must(inlay_devx_qp_connect(&d.qp, &d.path, &at_there));
			must(inlay_connect_rts(v.verbs.qp, &here, &at_here, &attr, NULL));

			must(context(&d.qp, QP, qpn, &q));
			must(ibv_query_qp(v.verbs.qp, &a, IBV_QP_AV | IBV_QP_RQ_PSN | IBV_QP_PATH_MTU, &init));
			assert_int_equal(a.path_mtu, inlay_qpc_get(&q.qpc, INLAY_QPC_MTU));
			assert_int_equal(a.path_mtu, IBV_MTU_1024); /* path_usual's */
			assert_int_equal(a.rq_psn, 0x123456);
			if (dev.port.link_layer == IBV_LINK_LAYER_ETHERNET) {
				assert_int_equal(a.ah_attr.grh.traffic_class, 104);
				assert_int_equal(inlay_ads_get(&q.qpc.primary, INLAY_ADS_ETH_PRIO), 3);
				assert_int_equal(inlay_ads_get(&q.qpc.primary, INLAY_ADS_TCLASS), 104);
				assert_int_equal(inlay_ads_get(&q.qpc.primary, INLAY_ADS_DSCP),
						 here.link == INLAY_CONNECT_ROCE_V2 ? 104 >> 2 : 0);
				assert_memory_equal(q.qpc.primary.rgid_rip, here.gid, 16);
			} else {
				assert_int_equal(a.ah_attr.is_global, global);
				assert_int_equal(inlay_ads_get(&q.qpc.primary, INLAY_ADS_GRH), global);
				assert_int_equal(inlay_ads_get(&q.qpc.primary, INLAY_ADS_SL), 3);
			}
			if (types[t] == INLAY_QP_ST_RC)
				exercise(&v, &d, 100);
			for (uint32_t i = 0; i < 20; i++)
				operate(i & 1 ? &v : &d, i & 1 ? &d : &v, OP_SEND, 100 * i, i);
			sides_free(&v, &d);
		}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		devx_test(verbs_and_commands),
	};

	if (!rig_here())
		return 0;
	return cmocka_run_group_tests_name("connect_devx", tests, rig_open, rig_close) ||
	       again_with("SOFTDEV_LINK", "ib");
}
