/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * devx/info.h: answers of QUERY_HCA_CAP, cut off anywhere and of random bytes, against the memory's end; fields that are not taken as they
 * are; and what the device of the test says, beside what verbs say of it.
 *
 * softdev: --devx
 */
#include "common.h"
#include <inlay/devx/info.h>
#include <sys/mman.h>

static const enum inlay_cap_type types[] = {
	INLAY_CAP_GENERAL, INLAY_CAP_GENERAL_2, INLAY_CAP_ATOMIC, INLAY_CAP_ROCE,
	INLAY_CAP_ODP, INLAY_CAP_ETHERNET, INLAY_CAP_DEVICE_MEMORY, INLAY_CAP_EVENT,
};

#define WHOLE sizeof(struct inlay_query_hca_cap_out)

/* An answer of any length gives what it and zeroes behind it would give, and nothing is read behind it. */
static void any_length(void **state)
{
	uint8_t *room = (uint8_t *)mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *end;
	static uint8_t padded[WHOLE];
	struct inlay_devx_info of_short, of_padded;
	size_t t, len, i;

	(void)state;
	assert_true(room != MAP_FAILED);
	end = room + 3 * 4096;
	assert_int_equal(mprotect(end, 4096, PROT_NONE), 0);
	for (t = 0; t < ARRAY(types); t++) {
		for (len = 0; len <= WHOLE; len += len < 300 || rnd_below(2) ? 1 : rnd_below(40)) {
			uint8_t *out = end - len;

			memset(padded, 0, sizeof(padded));
			for (i = 0; i < len; i++)
				padded[i] = out[i] = (uint8_t)(i ? rnd() : 0);
			memset(&of_short, 0, sizeof(of_short));
			memset(&of_padded, 0, sizeof(of_padded));
			if (len < 16) {
				assert_int_equal(inlay_devx_info_read(&of_short, types[t], out, len), -ENODATA);
				assert_memory_equal(&of_short, &of_padded, sizeof(of_short));
				continue;
			}
			must(inlay_devx_info_read(&of_short, types[t], out, len));
			must(inlay_devx_info_read(&of_padded, types[t], padded, sizeof(padded)));
			assert_memory_equal(&of_short, &of_padded, sizeof(of_short));
			assert_int_equal(of_short.have, 1u << t);
		}
	}
	munmap(room, 4 * 4096);
}

/* Random bytes, statuses among them: taken when the status is 0, else nothing is. */
static void any_answer(void **state)
{
	static uint8_t out[WHOLE];
	struct inlay_devx_info info, before;
	int i;

	(void)state;
	memset(&info, 0, sizeof(info));
	for (i = 0; i < 3000; i++) {
		size_t len = 16 + rnd_below(WHOLE - 16 + 1), k;
		uint32_t type = rnd_below(4) ? (uint32_t)types[rnd_below(ARRAY(types))] : rnd_below(0x40);
		int err, known = 0;

		for (k = 0; k < len; k++)
			out[k] = (uint8_t)rnd();
		if (rnd_below(3))
			out[0] = 0;
		for (k = 0; k < ARRAY(types); k++)
			known |= (uint32_t)types[k] == type;
		before = info;
		err = inlay_devx_info_read(&info, (enum inlay_cap_type)type, out, len);
		if (out[0] || !known) {
			assert_int_equal(err, out[0] ? -EIO : -EINVAL);
			assert_memory_equal(&info, &before, sizeof(info));
		} else {
			assert_int_equal(err, 0);
		}
	}
	assert_int_equal(info.have, (1u << ARRAY(types)) - 1);
}

static struct inlay_devx_info general(const struct inlay_query_hca_cap_out *out)
{
	struct inlay_devx_info info;

	memset(&info, 0, sizeof(info));
	must(inlay_devx_info_read(&info, INLAY_CAP_GENERAL, out, sizeof(*out)));
	return info;
}

/* What is made into something else on the way */
static void derived(void **state)
{
	struct inlay_query_hca_cap_out out;
	struct inlay_hca_cap *cap = &out.cap.general;
	struct inlay_devx_info info;
	uint32_t i;

	(void)state;
	memset(&out, 0, sizeof(out));
	info = general(&out);
	assert_int_equal(info.bf_size, 0);
	assert_int_equal(info.gid_table_size, 8);
	assert_int_equal(info.relaxed_ordering_read, 0);
	inlay_hca_cap_set(cap, INLAY_HCA_CAP_LOG_BF_REG_SIZE, 9);
	assert_int_equal(general(&out).bf_size, 0); /* no BlueFlame, whatever its size */
	inlay_hca_cap_set(cap, INLAY_HCA_CAP_BF, 1);
	assert_int_equal(general(&out).bf_size, 256);
	inlay_hca_cap_set(cap, INLAY_HCA_CAP_LOG_BF_REG_SIZE, 31);
	assert_int_equal(general(&out).bf_size, 1u << 30);
	for (i = 0; i <= 4; i++) {
		inlay_hca_cap_set(cap, INLAY_HCA_CAP_GID_TABLE_SIZE, i);
		assert_int_equal(general(&out).gid_table_size, 8u << i);
	}
	inlay_hca_cap_set(cap, INLAY_HCA_CAP_GID_TABLE_SIZE, 0xffff);
	assert_int_equal(general(&out).gid_table_size, 0);
	inlay_hca_cap_set(cap, INLAY_HCA_CAP_LOG_UAR_PAGE_SZ, 4);
	assert_int_equal(general(&out).uar_page_size, 65536);
	inlay_hca_cap_set(cap, INLAY_HCA_CAP_LOG_UAR_PAGE_SZ, 0xffff);
	assert_int_equal(general(&out).uar_page_size, 0);
	inlay_hca_cap_set(cap, INLAY_HCA_CAP_RELAXED_ORDERING_READ, 1);
	assert_int_equal(general(&out).relaxed_ordering_read, 1);
	inlay_hca_cap_set(cap, INLAY_HCA_CAP_PCI_RELAXED_ORDERED_READ, 1);
	assert_int_equal(general(&out).relaxed_ordering_read, 2);
	inlay_hca_cap_set(cap, INLAY_HCA_CAP_VHCA_ID, 0xfedc);
	assert_int_equal(general(&out).vhca_id, 0xfedc);

	memset(&out, 0, sizeof(out));
	inlay_odp_ops_set(&out.cap.odp.rc, INLAY_ODP_OPS_SEND, 1);
	inlay_odp_ops_set(&out.cap.odp.rc, INLAY_ODP_OPS_SRQ_RECEIVE, 1);
	inlay_odp_ops_set(&out.cap.odp.dc, INLAY_ODP_OPS_READ, 1);
	must(inlay_devx_info_read(&info, INLAY_CAP_ODP, &out, sizeof(out)));
	assert_int_equal(info.odp_rc, INLAY_INFO_ODP_SEND | INLAY_INFO_ODP_SRQ_RECEIVE);
	assert_int_equal(info.odp_dc, INLAY_INFO_ODP_READ);
	assert_int_equal(info.odp_ud | info.odp_xrc, 0);

	memset(&out, 0, sizeof(out));
	((uint8_t *)&out.cap)[5] = 0x08;  /* type 0x13: bit 19 of the first big-endian word, its byte 5 */
	((uint8_t *)&out.cap)[63] = 0x01; /* type 0xc0: bit 0 of the last word */
	must(inlay_devx_info_read(&info, INLAY_CAP_EVENT, &out, sizeof(out)));
	for (i = 0; i < 1000; i++) {
		assert_int_equal(inlay_devx_info_event(&info, i, 1), i == INLAY_EVENT_SRQ_LAST_WQE);
		assert_int_equal(inlay_devx_info_event(&info, i, 0), i == 0xc0);
	}

	memset(&out, 0, sizeof(out));
	for (i = 0; i < 4; i++) {
		inlay_atomic_cap_set(&out.cap.atomic, INLAY_ATOMIC_CAP_ATOMIC_REQ_8B_ENDIANNESS_MODE, i);
		must(inlay_devx_info_read(&info, INLAY_CAP_ATOMIC, &out, sizeof(out)));
		assert_int_equal(info.atomic_8b_host_order, i == 1);
	}
}

static struct ibv_device *find(struct ibv_device **list)
{
	const char *name = getenv("INLAY_TEST_DEVICE");
	int i;

	for (i = 0; list && list[i]; i++)
		if (name && *name ? !strcmp(ibv_get_device_name(list[i]), name) : mlx5dv_is_supported(list[i]))
			return list[i];
	return NULL;
}

static void of_the_device(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL), *device = find(list);
	struct mlx5dv_context dv;
	struct inlay_devx_error error;
	struct inlay_devx_info info;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct ibv_context *ctx;

	(void)state;
	assert_non_null(device);
	if (inlay_devx_open(&ctx, device)) {
		print_message("# skipped: the device takes no commands\n");
		ibv_free_device_list(list);
		skip();
	}
	must(inlay_devx_info_query(ctx, &info, &error));
	must(error.err);
	must(ibv_query_device(ctx, &attr));
	must(ibv_query_port(ctx, 1, &port));
	memset(&dv, 0, sizeof(dv));
	must(mlx5dv_query_device(ctx, &dv));
	assert_true(info.have & INLAY_INFO_GENERAL);
	assert_true(info.log_max_uctx > 0);
	assert_int_equal(info.port_type, port.link_layer == IBV_LINK_LAYER_ETHERNET ? INLAY_PORT_ETH : INLAY_PORT_IB);
	assert_int_equal(info.roce, info.port_type == INLAY_PORT_ETH);
	assert_int_equal(!!(info.have & INLAY_INFO_ROCE), info.roce);
	assert_int_equal(1u << info.log_max_msg, port.max_msg_sz);
	assert_true((1ull << info.log_max_cq_sz) - 1 >= (uint64_t)attr.max_cqe);
	assert_true((1ull << info.log_max_qp) >= (uint64_t)attr.max_qp);
	assert_int_equal(1 << info.log_max_ra_req_qp, attr.max_qp_init_rd_atom);
	assert_int_equal(1 << info.log_max_ra_res_qp, attr.max_qp_rd_atom);
	assert_true(info.have & INLAY_INFO_ATOMIC);
	assert_true(info.atomic_operations & INLAY_ATOMIC_OP_FETCH_ADD);
	assert_true(info.atomic_size_qp & 1 << 3);
	assert_int_equal(!!(dv.flags & MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP), info.cqe_compression_128);
	assert_int_equal(!!(dv.flags & MLX5DV_CONTEXT_FLAGS_CQE_V1), info.cqe_version);
	if (info.have & INLAY_INFO_EVENT)
		assert_int_equal(inlay_devx_info_event(&info, INLAY_EVENT_SRQ_LAST_WQE, 1), 1);

	/* A type that nobody has */
	assert_true(inlay_devx_info_one(ctx, &info, (enum inlay_cap_type)0x7f, &error) < 0);
	must(ibv_close_device(ctx));
	ibv_free_device_list(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_length),
		cmocka_unit_test(any_answer),
		cmocka_unit_test(derived),
		cmocka_unit_test(of_the_device),
	};

	rnd_seed();
	alarm(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
