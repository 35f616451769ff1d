/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * devx_info.c: what a device can do, by its own word: the capabilities that a data path chooses by, as text or as JSON.
 *
 * JSON has a number for each limit as the device says it (log_... is the exponent of a power of two), true or false for each ability, lists
 * for sets, and null for all of a group that the device does not have.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/devx/call.h>
#include <inlay/devx/ifc.h>
#include <inlay/devx/info.h>
#include "common/program.h"

enum kind {
	FLAG,
	NUMBER,
	BYTES,
	LOG,       /* 2^n of something */
	LOG_BYTES, /* 2^n bytes */
	NAME,      /* one of names */
	SET,       /* bit n: names[n] */
	SIZES,     /* bit n: 2^n bytes */
	TYPES,     /* 64 bits: bit n is type n */
	EVENTS     /* 256 bits, by name */
};

struct row {
	const char *key;
	enum kind kind;
	size_t at; /* in struct inlay_devx_info */
	const char *text;
	const char *const *names; /* ends with NULL */
};

struct group {
	const char *key, *text;
	uint32_t have; /* the capabilities that it needs */
	struct row rows[40];
};

#define ROW(kind, field, text) {#field, kind, offsetof(struct inlay_devx_info, field), text, NULL}
#define ROW_NAMES(kind, field, text, names) {#field, kind, offsetof(struct inlay_devx_info, field), text, names}

static const char *const port_types[] = {"InfiniBand", "Ethernet", NULL};
static const char *const timestamps[] = {"free-running", "real-time", "free-running or real-time", NULL};
static const char *const contexts[] = {"RAW_TX", "INTERNAL_DEV_RES", "bit 2", "RDMA_CTRL", "RDMA_CTRL_OTHER_VHCA", NULL};
static const char *const relaxed[] = {"no", "where PCI has it on", "yes", NULL};
static const char *const fences[] = {"strong", "small", "none", NULL};
static const char *const atomics[] = {"compare-swap", "fetch-add", "masked compare-swap", "masked fetch-add", NULL};
static const char *const roce_versions[] = {"v1", "bit 1", "v2", NULL};
static const char *const odp_ops[] = {"send", "receive", "write", "read", "atomic", "SRQ receive", NULL};
static const char *const inline_modes[] = {"L2", "as the port says", "not required", NULL};
static const char *const cross[] = {"bit 0", "bit 1", "bit 2", "bit 3", "bit 4", "bit 5", "bit 6", "bit 7",
				     "local mkey to remote mkey", NULL};

static const struct group groups[] = {
	{"function", "Function and ports", INLAY_INFO_GENERAL, {
		ROW(NUMBER, vhca_id, "VHCA"),
		ROW_NAMES(NAME, port_type, "port type", port_types),
		ROW(NUMBER, num_ports, "ports"),
		ROW(FLAG, roce, "RoCE"),
		ROW(NUMBER, gid_table_size, "GIDs of a port"),
		ROW(LOG_BYTES, log_max_msg, "longest message"),
		ROW(NUMBER, cqe_version, "CQE version"),
		ROW_NAMES(SET, uctx_cap, "user contexts may get", contexts),
		ROW(NUMBER, device_frequency_khz, "clock, kHz"),
		ROW_NAMES(NAME, sq_ts_format, "timestamps, SQ", timestamps),
		ROW_NAMES(NAME, rq_ts_format, "timestamps, RQ", timestamps),
		ROW(TYPES, general_obj_types, "general objects, types"),
		ROW(FLAG, access_register_user, "registers by command"),
	}},
	{"transports", "Transports", INLAY_INFO_GENERAL, {
		ROW(FLAG, rc, "RC"),
		ROW(FLAG, uc, "UC"),
		ROW(FLAG, ud, "UD"),
		ROW(FLAG, xrc, "XRC"),
		ROW(FLAG, dc, "DC"),
		ROW(FLAG, set_deth_sqpn, "UD as another QPN"),
		ROW(FLAG, compact_address_vector, "compact address vector"),
	}},
	{"doorbells", "Doorbells", INLAY_INFO_GENERAL, {
		ROW(FLAG, bf, "BlueFlame"),
		ROW(BYTES, bf_size, "BlueFlame copy"),
		ROW(BYTES, uar_page_size, "UAR page"),
		ROW(FLAG, send_dbr_mode_no_dbr_int, "SQ without record, internal"),
		ROW(FLAG, send_dbr_mode_no_dbr_ext, "SQ without record, external"),
	}},
	{"queues", "Queues and objects", INLAY_INFO_GENERAL, {
		ROW(BYTES, max_wqe_sq, "send WQE"),
		ROW(BYTES, max_wqe_rq, "receive WQE"),
		ROW(BYTES, max_wqe_sq_dc, "send WQE, DC"),
		ROW(LOG, log_max_qp, "QPs"),
		ROW(LOG, log_max_qp_sz, "QP, WQEs"),
		ROW(LOG, log_max_cq, "CQs"),
		ROW(LOG, log_max_cq_sz, "CQ, CQEs"),
		ROW(LOG, log_max_srq, "SRQs"),
		ROW(LOG, log_max_srq_sz, "SRQ, WQEs"),
		ROW(LOG, log_max_rmp, "RMPs"),
		ROW(LOG, log_max_xrq, "XRQs"),
		ROW(LOG, log_max_wq_sz, "SQ, RQ, RMP, XRQ, WQEs"),
		ROW(LOG, log_max_pd, "PDs"),
		ROW(LOG, log_max_mkey, "mkeys"),
		ROW(LOG, log_max_umem, "umems"),
		ROW(LOG, log_max_uctx, "user contexts"),
		ROW(LOG, log_max_ra_req_qp, "reads and atomics begun, RC"),
		ROW(LOG, log_max_ra_res_qp, "reads and atomics answered, RC"),
		ROW(LOG, log_max_ra_req_dc, "reads and atomics begun, DC"),
		ROW(LOG, log_max_ra_res_dc, "reads and atomics answered, DC"),
		ROW(FLAG, cross_domain, "WAIT and SEND_EN"),
		ROW(FLAG, basic_cyclic_rcv_wqe, "cyclic RMP without links"),
	}},
	{"cqes", "CQEs", INLAY_INFO_GENERAL, {
		ROW(FLAG, cq_oi, "overrun can be ignored"),
		ROW(FLAG, cq_resize, "CQs can be resized"),
		ROW(FLAG, cq_moderation, "moderation"),
		ROW(FLAG, sctr_data_cqe, "payload in the CQE"),
		ROW(FLAG, dc_req_scat_data_cqe, "payload in the CQE, DC requester"),
		ROW(FLAG, cqe_128_always, "padded to 128 bytes"),
		ROW(FLAG, cqe_compression, "compression, 64 bytes"),
		ROW(FLAG, cqe_compression_128, "compression, 128 bytes"),
		ROW(FLAG, mini_cqe_resp_stride_index, "stride index in mini CQEs"),
		ROW(FLAG, enhanced_cqe_compression, "enhanced compression"),
		ROW(NUMBER, cqe_compression_timeout, "compression time-out, us"),
		ROW(NUMBER, cqe_compression_max_num, "compressed CQEs, at most"),
	}},
	{"striding", "Striding receive queues", INLAY_INFO_GENERAL, {
		ROW(FLAG, striding_rq, "Ethernet"),
		ROW(FLAG, ib_striding_wq, "InfiniBand"),
		ROW(FLAG, ext_stride_num_range, "fewer than 512 strides"),
		ROW(LOG_BYTES, log_min_stride_sz_rq, "shortest stride"),
		ROW(LOG_BYTES, log_max_stride_sz_rq, "longest stride"),
	}},
	{"tag_matching", "Tag matching", INLAY_INFO_GENERAL, {
		ROW(FLAG, tag_matching, "tag matching"),
		ROW(LOG, log_tag_matching_list_sz, "list"),
		ROW(FLAG, rndv_offload_rc, "rendezvous, RC"),
		ROW(FLAG, rndv_offload_dc, "rendezvous, DC"),
	}},
	{"mkeys", "Memory keys", INLAY_INFO_GENERAL, {
		ROW(FLAG, ksm, "KSM"),
		ROW(LOG, log_max_klm_list_size, "KLM and KSM entries"),
		ROW(LOG_BYTES, log_min_mkey_entity_size, "least KSM entry"),
		ROW(NUMBER, max_indirection, "levels of indirection"),
		ROW(FLAG, null_mkey, "null mkey"),
		ROW_NAMES(NAME, umr_fence, "fence of a UMR", fences),
		ROW(FLAG, umr_extended_translation_offset, "UMR, extended offset"),
		ROW(FLAG, umr_modify_entity_size_disabled, "UMR cannot change the entity size"),
		ROW(FLAG, umr_modify_atomic_disabled, "UMR cannot change atomics"),
		ROW(FLAG, umr_indirect_mkey_disabled, "no indirect mkeys by UMR"),
		ROW(FLAG, relaxed_ordering_write, "relaxed ordering, writes"),
		ROW_NAMES(NAME, relaxed_ordering_read, "relaxed ordering, reads", relaxed),
		ROW(FLAG, relaxed_ordering_write_umr, "relaxed ordering by UMR, writes"),
		ROW(FLAG, relaxed_ordering_read_umr, "relaxed ordering by UMR, reads"),
		ROW(FLAG, dma_mmo_qp, "DMA by WQE"),
		ROW(LOG_BYTES, log_dma_mmo_max_size, "DMA by WQE, longest"),
	}},
	{"lag", "Link aggregation", INLAY_INFO_GENERAL, {
		ROW(NUMBER, num_lag_ports, "ports"),
		ROW(FLAG, lag_tx_port_affinity, "choice of the port"),
		ROW(FLAG, init2_lag_tx_port_affinity, "choice of the port in INIT2RTR"),
		ROW(NUMBER, lag_dct, "DCT"),
	}},
	{"atomic", "Atomics", INLAY_INFO_ATOMIC, {
		ROW_NAMES(SET, atomic_operations, "operations", atomics),
		ROW(SIZES, atomic_size_qp, "bytes, RC"),
		ROW(SIZES, atomic_size_dc, "bytes, DC"),
		ROW(FLAG, atomic_8b_host_order, "8-byte answers in the host's order"),
	}},
	{"roce", "RoCE", INLAY_INFO_ROCE, {
		ROW_NAMES(SET, roce_version, "versions", roce_versions),
		ROW(NUMBER, roce_udp_sport_min, "UDP source port, lowest"),
		ROW(NUMBER, roce_udp_sport_max, "UDP source port, highest"),
		ROW(FLAG, fl_rc_qp_when_roce_disabled, "forced loopback, RoCE off"),
		ROW(FLAG, fl_rc_qp_when_roce_enabled, "forced loopback, RoCE on"),
		ROW_NAMES(NAME, qp_ts_format, "timestamps, QP", timestamps),
	}},
	{"odp", "On-demand paging", INLAY_INFO_ODP, {
		ROW_NAMES(SET, odp_rc, "RC", odp_ops),
		ROW_NAMES(SET, odp_ud, "UD", odp_ops),
		ROW_NAMES(SET, odp_xrc, "XRC", odp_ops),
		ROW_NAMES(SET, odp_dc, "DC", odp_ops),
	}},
	{"device_memory", "Device memory", INLAY_INFO_DEVICE_MEMORY, {
		ROW(FLAG, memic, "there is"),
		ROW(BYTES, max_memic_size, "largest piece"),
		ROW(LOG_BYTES, log_min_memic_alloc_size, "smallest piece"),
		ROW(NUMBER, memic_operations, "operations, mask"),
	}},
	{"cross_vhca", "Access by other functions", INLAY_INFO_GENERAL_2, {
		ROW_NAMES(SET, cross_vhca_object_to_object, "objects for others'", cross),
		ROW(TYPES, allowed_object_for_other_vhca, "may be allowed, bits"),
	}},
	{"ethernet", "Ethernet", INLAY_INFO_ETHERNET, {
		ROW(NUMBER, max_lso_cap, "LSO, log2 of the bytes"),
		ROW_NAMES(NAME, wqe_inline_mode, "headers inline", inline_modes),
		ROW(FLAG, multi_pkt_send_wqe, "several packets in a WQE"),
		ROW(FLAG, swp, "software parsing"),
		ROW(FLAG, scatter_fcs, "FCS delivered"),
	}},
	{"events", "Events to subscribe to", INLAY_INFO_EVENT, {
		ROW(EVENTS, affiliated_events, "of an object"),
		ROW(EVENTS, unaffiliated_events, "of the device"),
	}},
};

static const struct {
	uint32_t type;
	const char *name;
} events[] = {
	{INLAY_EVENT_COMP, "COMP"},
	{INLAY_EVENT_PATH_MIG, "PATH_MIG"},
	{INLAY_EVENT_COMM_EST, "COMM_EST"},
	{INLAY_EVENT_SQ_DRAINED, "SQ_DRAINED"},
	{INLAY_EVENT_CQ_ERROR, "CQ_ERROR"},
	{INLAY_EVENT_WQ_CATAS_ERROR, "WQ_CATAS_ERROR"},
	{INLAY_EVENT_PATH_MIG_FAILED, "PATH_MIG_FAILED"},
	{INLAY_EVENT_INTERNAL_ERROR, "INTERNAL_ERROR"},
	{INLAY_EVENT_PORT_CHANGE, "PORT_CHANGE"},
	{INLAY_EVENT_WQ_INVAL_REQ_ERROR, "WQ_INVAL_REQ_ERROR"},
	{INLAY_EVENT_WQ_ACCESS_ERROR, "WQ_ACCESS_ERROR"},
	{INLAY_EVENT_SRQ_CATAS_ERROR, "SRQ_CATAS_ERROR"},
	{INLAY_EVENT_SRQ_LAST_WQE, "SRQ_LAST_WQE"},
	{INLAY_EVENT_SRQ_RQ_LIMIT, "SRQ_RQ_LIMIT"},
	{INLAY_EVENT_XRQ_ERROR, "XRQ_ERROR"},
	{INLAY_EVENT_DCT_DRAINED, "DCT_DRAINED"},
	{INLAY_EVENT_DCT_KEY_VIOLATION, "DCT_KEY_VIOLATION"},
};

static bool json;

/* A string as JSON wants it. What comes from the device is bytes that nobody has checked. */
static void quoted(const char *s)
{
	putchar('"');
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			printf("\\%c", *s);
		else if ((unsigned char)*s < 0x20 || (unsigned char)*s > 0x7e)
			printf("\\u%04x", (unsigned char)*s);
		else
			putchar(*s);
	}
	putchar('"');
}

/* One more of a list; text: `what`, JSON: in quotes or, for a number, not */
static void item(int *n, const char *what, bool number)
{
	fputs(*n ? ", " : "", stdout);
	++*n;
	if (json && !number)
		quoted(what);
	else
		fputs(what, stdout);
}

static void print_bytes(uint64_t n)
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
	unsigned i = 0;

	for (; n >= 1024 && n % 1024 == 0 && i < 4; i++)
		n /= 1024;
	printf("%" PRIu64 " %s", n, units[i]);
}

static unsigned long count(const char *const *names)
{
	unsigned long n = 0;

	while (names[n])
		n++;
	return n;
}

static void print_list(const struct row *row, const void *at)
{
	uint64_t bits[4] = {0};
	char text[32];
	int n = 0;

	if (row->kind == EVENTS) {
		memcpy(bits, at, sizeof(bits));
	} else if (row->kind == TYPES) {
		memcpy(bits, at, 8);
	} else {
		uint32_t word;

		memcpy(&word, at, sizeof(word));
		bits[0] = word;
	}
	if (json)
		putchar('[');
	for (unsigned i = 0; i < 256; i++) {
		const char *name = text;

		if (!(bits[i / 64] >> i % 64 & 1))
			continue;
		snprintf(text, sizeof(text), row->kind == SIZES ? "%llu" : row->kind == TYPES ? "%llu" : "bit %llu",
			 row->kind == SIZES ? 1ull << (i % 64) : (unsigned long long)i);
		if (row->kind == SET && i < count(row->names))
			name = row->names[i];
		if (row->kind == EVENTS) {
			snprintf(text, sizeof(text), "type 0x%02x", i);
			for (size_t e = 0; e < sizeof(events) / sizeof(events[0]); e++)
				if (events[e].type == i)
					name = events[e].name;
		}
		item(&n, name, row->kind == SIZES || row->kind == TYPES);
	}
	if (json)
		putchar(']');
	else if (!n)
		putchar('-');
}

static void print_value(const struct row *row, const struct inlay_devx_info *info)
{
	const void *at = (const char *)info + row->at;
	uint32_t value;

	if (row->kind >= SET) {
		print_list(row, at);
		return;
	}
	memcpy(&value, at, sizeof(value));
	if (row->kind == FLAG) {
		fputs(json ? (value ? "true" : "false") : value ? "yes" : "no", stdout);
	} else if (row->kind == NAME) {
		if (value >= count(row->names))
			printf(json ? "\"value %u\"" : "value %u", value);
		else if (json)
			quoted(row->names[value]);
		else
			fputs(row->names[value], stdout);
	} else if (json || row->kind == NUMBER) {
		printf("%u", value);
	} else if (row->kind == BYTES) {
		print_bytes(value);
	} else if (!value) {
		putchar('-');
	} else if (value > 63) {
		printf("2^%u", value);
	} else if (row->kind == LOG) {
		printf("%llu", 1ull << value);
	} else {
		print_bytes(1ull << value);
	}
}

static void print_info(const struct inlay_devx_info *info)
{
	for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++) {
		const struct group *group = &groups[g];
		bool have = (info->have & group->have) == group->have;

		if (json)
			printf(",\n  \"%s\": %s", group->key, have ? "{" : "null");
		else
			printf("\n%s%s\n", group->text, have ? "" : ": none");
		for (const struct row *row = group->rows; have && row->key; row++) {
			if (json)
				printf("%s\n    \"%s\": ", row == group->rows ? "" : ",", row->key);
			else
				printf("  %-36s", row->text);
			print_value(row, info);
			if (!json)
				putchar('\n');
		}
		if (json && have)
			printf("\n  }");
	}
}

/* The board's parameter set, as text; "" where the device does not tell */
static void get_psid(struct ibv_context *ctx, char psid[17])
{
	struct inlay_query_adapter_out out;
	struct inlay_cmd_in in;

	memset(&in, 0, sizeof(in));
	memset(psid, 0, 17);
	inlay_cmd_in_set(&in, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_QUERY_ADAPTER);
	if (inlay_devx_command(ctx, &in, sizeof(in), &out, sizeof(out), NULL) == 0)
		memcpy(psid, out.psid, 16);
	for (char *c = psid; *c; c++)
		if (*c < 0x20 || *c > 0x7e)
			*c = '?';
}

int main(int argc, char **argv)
{
	static uint32_t as_json;
	static const struct option_of options[] = {
		{"json", NULL, "as JSON", .number = &as_json, .max = 1},
		{NULL, NULL, NULL, NULL, NULL, 0, 0, NULL}};
	struct ibv_device **list, *device;
	struct inlay_devx_error error;
	struct inlay_devx_info info;
	struct ibv_device_attr attr;
	struct ibv_context *ctx;
	char text[INLAY_DEVX_TEXT], psid[17];
	const char *name;
	int left, err;

	left = arguments(argc, argv, "What a device can do, by its own word: the one named DEVICE, or the first mlx5 device.", "[DEVICE]",
			 options);
	if (left > 1)
		wrong("one device, or none, is wanted (try --help)");
	json = as_json;
	list = ibv_get_device_list(NULL);
	device = find_device(list, left ? argv[0] : NULL);
	name = ibv_get_device_name(device);
	err = inlay_devx_open(&ctx, device);
	if (err)
		die("%s takes no commands: %s (needs mlx5 with DEVX in kernel and firmware)", name, strerror(-err));
	err = inlay_devx_info_query(ctx, &info, &error);
	if (err) {
		fprintf(stderr, "devx_info: %s does not say what it can do: %s\n", name, inlay_devx_error_text(&error, text, sizeof(text)));
	} else {
		memset(&attr, 0, sizeof(attr));
		if (ibv_query_device(ctx, &attr))
			memset(&attr, 0, sizeof(attr));
		attr.fw_ver[sizeof(attr.fw_ver) - 1] = 0;
		get_psid(ctx, psid);
		printf(json ? "{\n  \"device\": " : "Device ");
		json ? quoted(name) : (void)fputs(name, stdout);
		printf(json ? ",\n  \"firmware\": " : ", firmware ");
		json ? quoted(attr.fw_ver) : (void)fputs(attr.fw_ver, stdout);
		printf(json ? ",\n  \"part\": %u,\n  \"psid\": " : ", part %u", attr.vendor_part_id);
		if (json)
			quoted(psid);
		else
			printf("%s%s\n", *psid ? ", PSID " : "", psid);
		print_info(&info);
		if (json)
			printf("\n}\n");
	}
	ibv_close_device(ctx);
	ibv_free_device_list(list);
	return err ? 1 : 0;
}
