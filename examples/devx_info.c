/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * devx_info.c: prints what a device can do, as the device itself reports it: the capabilities that a
 * data path chooses by, as text or as JSON.
 *
 * JSON has the fields by name: a number for each limit as the device encodes it (log_... is the
 * exponent of a power of two), true or false for each ability, lists for sets, and null for a group
 * that the device does not have.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <inlay/devx/call.h>
#include <inlay/devx/ifc.h>
#include "common/program.h"

enum kind {
	FLAG,
	NUMBER,
	BYTES,
	LOG,       /* 2^n of something */
	LOG_BYTES, /* 2^n bytes */
	SCALED,    /* unit * 2^n / 2 */
	SCALED_BYTES,
	NAME,      /* one of names */
	SET,       /* bit n: names[n] */
	SIZES,     /* bit n: 2^n bytes */
	TYPES,     /* 64 bits: bit n is type n */
	EVENTS     /* 256 bits, by name */
};

struct row {
	const char *key; /* in JSON, in lower case */
	enum kind kind;
	uint32_t field;  /* made by INLAY_BITS */
	const char *text;
	const char *const *names; /* ends with NULL */
	uint32_t unit;
};

struct group {
	const char *key, *text;
	enum inlay_cap_type type;
	uint32_t needs; /* field of the general capabilities; 0: none */
	struct row rows[32];
};

/* The general capabilities, and those of the group that is printed */
static struct inlay_query_hca_cap_out general, other;

static const char *const port_types[] = {"InfiniBand", "Ethernet", NULL};
static const char *const timestamps[] = {"free-running", "real-time", "free-running or real-time", NULL};
static const char *const fences[] = {"strong", "small", "none", NULL};
static const char *const atomics[] = {"compare-swap", "fetch-add", "masked compare-swap", "masked fetch-add", NULL};
static const char *const roce_versions[] = {"v1", "bit 1", "v2", NULL};
static const char *const orders[] = {"big-endian", "host", NULL};
static const char *const cross[] = {"bit 0", "bit 1", "bit 2", "bit 3", "bit 4", "bit 5", "bit 6", "bit 7",
				     "local mkey to remote mkey", NULL};

#define ROW(kind, cap, field, text) {#field, kind, INLAY_##cap##_##field, text, NULL, 0}
#define ROW_NAMES(kind, cap, field, text, names) {#field, kind, INLAY_##cap##_##field, text, names, 0}
#define ROW_SCALED(kind, cap, field, text, unit) {#field, kind, INLAY_##cap##_##field, text, NULL, unit}

static const struct group groups[] = {
	{"function", "Function and ports", INLAY_CAP_GENERAL, 0, {
		ROW(NUMBER, HCA_CAP, VHCA_ID, "VHCA"),
		ROW_NAMES(NAME, HCA_CAP, PORT_TYPE, "port type", port_types),
		ROW(NUMBER, HCA_CAP, NUM_PORTS, "ports"),
		ROW(FLAG, HCA_CAP, ROCE, "RoCE"),
		ROW_SCALED(SCALED, HCA_CAP, GID_TABLE_SIZE, "GIDs of a port", 16),
		ROW(LOG_BYTES, HCA_CAP, LOG_MAX_MSG, "longest message"),
		ROW(NUMBER, HCA_CAP, CQE_VERSION, "CQE version"),
		ROW(NUMBER, HCA_CAP, DEVICE_FREQUENCY_KHZ, "clock, kHz"),
		ROW_NAMES(NAME, HCA_CAP, SQ_TS_FORMAT, "timestamps, SQ", timestamps),
		ROW_NAMES(NAME, HCA_CAP, RQ_TS_FORMAT, "timestamps, RQ", timestamps),
		ROW(TYPES, HCA_CAP, GENERAL_OBJ_TYPES, "general objects, types"),
	}},
	{"transports", "Transports", INLAY_CAP_GENERAL, 0, {
		ROW(FLAG, HCA_CAP, RC, "RC"),
		ROW(FLAG, HCA_CAP, UC, "UC"),
		ROW(FLAG, HCA_CAP, UD, "UD"),
		ROW(FLAG, HCA_CAP, DCT, "DC"),
		ROW(FLAG, HCA_CAP, COMPACT_ADDRESS_VECTOR, "compact address vector"),
	}},
	{"doorbells", "Doorbells", INLAY_CAP_GENERAL, 0, {
		ROW(FLAG, HCA_CAP, BF, "BlueFlame"),
		ROW_SCALED(SCALED_BYTES, HCA_CAP, LOG_BF_REG_SIZE, "BlueFlame copy", 1),
		ROW_SCALED(SCALED_BYTES, HCA_CAP, LOG_UAR_PAGE_SZ, "UAR page", 8192),
	}},
	{"queues", "Queues and objects", INLAY_CAP_GENERAL, 0, {
		ROW(BYTES, HCA_CAP, MAX_WQE_SZ_SQ, "send WQE"),
		ROW(BYTES, HCA_CAP, MAX_WQE_SZ_RQ, "receive WQE"),
		ROW(BYTES, HCA_CAP, MAX_WQE_SZ_SQ_DC, "send WQE, DC"),
		ROW(LOG, HCA_CAP, LOG_MAX_QP, "QPs"),
		ROW(LOG, HCA_CAP, LOG_MAX_QP_SZ, "QP, WQEs"),
		ROW(LOG, HCA_CAP, LOG_MAX_CQ, "CQs"),
		ROW(LOG, HCA_CAP, LOG_MAX_CQ_SZ, "CQ, CQEs"),
		ROW(LOG, HCA_CAP, LOG_MAX_SRQ, "SRQs"),
		ROW(LOG, HCA_CAP, LOG_MAX_SRQ_SZ, "SRQ, WQEs"),
		ROW(LOG, HCA_CAP, LOG_MAX_RMP, "RMPs"),
		ROW(LOG, HCA_CAP, LOG_MAX_XRQ, "XRQs"),
		ROW(LOG, HCA_CAP, LOG_MAX_WQ_SZ, "SQ, RQ, RMP, XRQ, WQEs"),
		ROW(LOG, HCA_CAP, LOG_MAX_PD, "PDs"),
		ROW(LOG, HCA_CAP, LOG_MAX_MKEY, "mkeys"),
		ROW(LOG, HCA_CAP, LOG_MAX_UMEM, "umems"),
		ROW(LOG, HCA_CAP, LOG_MAX_UCTX, "user contexts"),
		ROW(LOG, HCA_CAP, LOG_MAX_RA_REQ_QP, "reads and atomics begun, RC"),
		ROW(LOG, HCA_CAP, LOG_MAX_RA_RES_QP, "reads and atomics answered, RC"),
		ROW(LOG, HCA_CAP, LOG_MAX_RA_REQ_DC, "reads and atomics begun, DC"),
		ROW(LOG, HCA_CAP, LOG_MAX_RA_RES_DC, "reads and atomics answered, DC"),
	}},
	{"cqes", "CQEs", INLAY_CAP_GENERAL, 0, {
		ROW(FLAG, HCA_CAP, CQ_OI, "overrun can be ignored"),
		ROW(FLAG, HCA_CAP, CQ_MODERATION, "moderation"),
		ROW(FLAG, HCA_CAP, SCTR_DATA_CQE, "payload in the CQE"),
		ROW(FLAG, HCA_CAP, DC_REQ_SCAT_DATA_CQE, "payload in the CQE, DC requester"),
		ROW(FLAG, HCA_CAP, CQE_128_ALWAYS, "padded to 128 bytes"),
		ROW(FLAG, HCA_CAP, CQE_COMPRESSION, "compression, 64 bytes"),
		ROW(FLAG, HCA_CAP, CQE_COMPRESSION_128, "compression, 128 bytes"),
		ROW(FLAG, HCA_CAP, MINI_CQE_RESP_STRIDE_INDEX, "stride index in mini CQEs"),
		ROW(FLAG, HCA_CAP, ENHANCED_CQE_COMPRESSION, "enhanced compression"),
		ROW(NUMBER, HCA_CAP, CQE_COMPRESSION_TIMEOUT, "compression time-out, us"),
		ROW(NUMBER, HCA_CAP, CQE_COMPRESSION_MAX_NUM, "compressed CQEs, at most"),
	}},
	{"sync", "Waits and copies", INLAY_CAP_GENERAL, 0, {
		ROW(FLAG, HCA_CAP, CD, "cross-channel queues"),
		ROW(FLAG, HCA_CAP, WAIT_ON_DATA, "WAIT for memory"),
		ROW(FLAG, HCA_CAP, WAIT_ON_TIME, "WAIT for the clock"),
		ROW(FLAG, HCA_CAP, DMA_MMO_QP, "QPs copy memory"),
		ROW(LOG_BYTES, HCA_CAP, LOG_DMA_MMO_MAX_SIZE, "longest copy"),
	}},
	{"tag_matching", "Tag matching", INLAY_CAP_GENERAL, 0, {
		ROW(FLAG, HCA_CAP, TAG_MATCHING, "tag matching"),
		ROW(LOG, HCA_CAP, LOG_TAG_MATCHING_LIST_SZ, "list"),
		ROW(FLAG, HCA_CAP, RNDV_OFFLOAD_RC, "rendezvous, RC"),
		ROW(FLAG, HCA_CAP, RNDV_OFFLOAD_DC, "rendezvous, DC"),
	}},
	{"mkeys", "Memory keys", INLAY_CAP_GENERAL, 0, {
		ROW(FLAG, HCA_CAP, FIXED_BUFFER_SIZE, "KSM"),
		ROW(LOG, HCA_CAP, LOG_MAX_KLM_LIST_SIZE, "KLM and KSM entries"),
		ROW(NUMBER, HCA_CAP, MAX_INDIRECTION, "levels of indirection"),
		ROW(FLAG, HCA_CAP, NULL_MKEY, "null mkey"),
		ROW_NAMES(NAME, HCA_CAP, UMR_FENCE, "fence of a UMR", fences),
		ROW(FLAG, HCA_CAP, UMR_EXTENDED_TRANSLATION_OFFSET, "UMR, extended offset"),
		ROW(FLAG, HCA_CAP, UMR_MODIFY_ENTITY_SIZE_DISABLED, "UMR cannot change the entity size"),
		ROW(FLAG, HCA_CAP, UMR_MODIFY_ATOMIC_DISABLED, "UMR cannot change atomics"),
		ROW(FLAG, HCA_CAP, UMR_INDIRECT_MKEY_DISABLED, "no indirect mkeys by UMR"),
		ROW(FLAG, HCA_CAP, RELAXED_ORDERING_WRITE, "relaxed ordering, writes"),
		ROW(FLAG, HCA_CAP, RELAXED_ORDERING_READ, "relaxed ordering, reads, as PCI has it"),
		ROW(FLAG, HCA_CAP, PCI_RELAXED_ORDERED_READ, "relaxed ordering, reads"),
		ROW(FLAG, HCA_CAP, RELAXED_ORDERING_WRITE_UMR, "relaxed ordering by UMR, writes"),
		ROW(FLAG, HCA_CAP, RELAXED_ORDERING_READ_UMR, "relaxed ordering by UMR, reads"),
	}},
	{"atomic", "Atomics", INLAY_CAP_ATOMIC, INLAY_HCA_CAP_ATOMIC, {
		ROW_NAMES(SET, ATOMIC_CAP, ATOMIC_OPERATIONS, "operations", atomics),
		ROW(SIZES, ATOMIC_CAP, ATOMIC_SIZE_QP, "bytes, RC"),
		ROW(SIZES, ATOMIC_CAP, ATOMIC_SIZE_DC, "bytes, DC"),
		ROW_NAMES(NAME, ATOMIC_CAP, ATOMIC_REQ_8B_ENDIANNESS_MODE, "8-byte answers, byte order", orders),
	}},
	{"roce", "RoCE", INLAY_CAP_ROCE, INLAY_HCA_CAP_ROCE, {
		ROW_NAMES(SET, ROCE_CAP, ROCE_VERSION, "versions", roce_versions),
		ROW(NUMBER, ROCE_CAP, R_ROCE_MIN_SRC_UDP_PORT, "UDP source port, lowest"),
		ROW(NUMBER, ROCE_CAP, R_ROCE_MAX_SRC_UDP_PORT, "UDP source port, highest"),
		ROW(FLAG, ROCE_CAP, FL_RC_QP_WHEN_ROCE_DISABLED, "forced loopback, RoCE off"),
		ROW(FLAG, ROCE_CAP, FL_RC_QP_WHEN_ROCE_ENABLED, "forced loopback, RoCE on"),
		ROW_NAMES(NAME, ROCE_CAP, QP_TS_FORMAT, "timestamps, QP", timestamps),
	}},
	{"general_2", "More, and access by other functions", INLAY_CAP_GENERAL_2, INLAY_HCA_CAP_HCA_CAP_2, {
		ROW(LOG_BYTES, HCA_CAP_2, LOG_MIN_MKEY_ENTITY_SIZE, "least KSM entry"),
		ROW_NAMES(SET, HCA_CAP_2, CROSS_VHCA_OBJECT_TO_OBJECT_SUPPORTED, "objects for others'", cross),
		ROW(TYPES, HCA_CAP_2, ALLOWED_OBJECT_FOR_OTHER_VHCA_ACCESS, "may be allowed, bits"),
	}},
	{"events", "Events to subscribe to", INLAY_CAP_EVENT, INLAY_HCA_CAP_EVENT_CAP, {
		{"AFFILIATED_EVENTS", EVENTS, INLAY_BITS(0, 64), "of an object", NULL, 0},
		{"UNAFFILIATED_EVENTS", EVENTS, INLAY_BITS(0x100, 64), "of the device", NULL, 0},
	}},
};

#define EVENT(name) {INLAY_EVENT_##name, #name}

static const struct {
	uint32_t type;
	const char *name;
} events[] = {
	EVENT(COMP), EVENT(PATH_MIG), EVENT(COMM_EST), EVENT(SQ_DRAINED), EVENT(CQ_ERROR), EVENT(WQ_CATAS_ERROR),
	EVENT(PATH_MIG_FAILED), EVENT(INTERNAL_ERROR), EVENT(PORT_CHANGE), EVENT(WQ_INVAL_REQ_ERROR),
	EVENT(WQ_ACCESS_ERROR), EVENT(SRQ_CATAS_ERROR), EVENT(SRQ_LAST_WQE), EVENT(SRQ_RQ_LIMIT),
	EVENT(XRQ_ERROR), EVENT(DCT_DRAINED), EVENT(DCT_KEY_VIOLATION)
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

static void print_list(const struct row *row, const void *cap)
{
	uint64_t bits[4] = {0};
	char text[32];
	int n = 0;

	for (uint32_t i = 0; i < (row->kind == EVENTS ? 4 : 1); i++)
		bits[i] = inlay_bits_get(cap, row->field + 64 * i);
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

static void print_value(const struct row *row, const void *cap)
{
	uint64_t value;

	if (row->kind >= SET) {
		print_list(row, cap);
		return;
	}
	value = inlay_bits_get(cap, row->field);
	if (row->kind == FLAG) {
		fputs(json ? (value ? "true" : "false") : value ? "yes" : "no", stdout);
	} else if (row->kind == NAME) {
		if (value >= count(row->names))
			printf(json ? "\"value %" PRIu64 "\"" : "value %" PRIu64, value);
		else if (json)
			quoted(row->names[value]);
		else
			fputs(row->names[value], stdout);
	} else if (json || row->kind == NUMBER) {
		printf("%" PRIu64, value);
	} else if (row->kind == BYTES) {
		print_bytes(value);
	} else if (row->unit) {
		value = value < 32 ? (uint64_t)row->unit << value >> 1 : 0;
		if (row->kind == SCALED)
			printf("%" PRIu64, value);
		else
			print_bytes(value);
	} else if (!value) {
		putchar('-');
	} else if (value > 63) {
		printf("2^%" PRIu64, value);
	} else if (row->kind == LOG) {
		printf("%llu", 1ull << value);
	} else {
		print_bytes(1ull << value);
	}
}

static void print_group(const struct group *group, const void *cap)
{
	if (json)
		printf(",\n  \"%s\": %s", group->key, cap ? "{" : "null");
	else
		printf("\n%s%s\n", group->text, cap ? "" : ": none");
	for (const struct row *row = group->rows; cap && row->key; row++) {
		if (json) {
			printf("%s\n    \"", row == group->rows ? "" : ",");
			for (const char *c = row->key; *c; c++)
				putchar(tolower((unsigned char)*c));
			printf("\": ");
		} else {
			printf("  %-40s", row->text);
		}
		print_value(row, cap);
		if (!json)
			putchar('\n');
	}
	if (json && cap)
		printf("\n  }");
}

/* Each group that the device has: its type is asked for, unless it is the general one */
static void print_all(struct ibv_context *ctx)
{
	for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++) {
		const struct group *group = &groups[g];
		const void *cap = &general.cap;

		if (group->needs)
			cap = inlay_bits_get(&general.cap, group->needs) &&
			      !inlay_devx_query_cap(ctx, group->type, &other, NULL) ? &other.cap : NULL;
		print_group(group, cap);
	}
}

int main(int argc, char **argv)
{
	static uint32_t as_json;
	static const struct option_of options[] = {
		{"json", NULL, "as JSON", .number = &as_json, .max = 1},
		{NULL, NULL, NULL, NULL, NULL, 0, 0, NULL}};
	struct ibv_device **list, *device;
	struct inlay_devx_error error;
	struct ibv_device_attr attr;
	struct ibv_context *ctx;
	char text[INLAY_DEVX_TEXT];
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
	err = inlay_devx_open(device, &ctx);
	if (err)
		die("%s takes no commands: %s (needs mlx5 with DEVX in kernel and firmware)", name, strerror(-err));
	err = inlay_devx_query_cap(ctx, INLAY_CAP_GENERAL, &general, &error);
	if (err) {
		fprintf(stderr, "devx_info: %s does not say what it can do: %s\n", name,
			inlay_devx_error_text(&error, text, sizeof(text)));
	} else {
		memset(&attr, 0, sizeof(attr));
		if (ibv_query_device(ctx, &attr))
			memset(&attr, 0, sizeof(attr));
		attr.fw_ver[sizeof(attr.fw_ver) - 1] = 0;
		printf(json ? "{\n  \"device\": " : "Device ");
		json ? quoted(name) : (void)fputs(name, stdout);
		printf(json ? ",\n  \"firmware\": " : ", firmware ");
		json ? quoted(attr.fw_ver) : (void)fputs(attr.fw_ver, stdout);
		printf(json ? ",\n  \"part\": %u" : ", part %u\n", attr.vendor_part_id);
		print_all(ctx);
		if (json)
			printf("\n}\n");
	}
	ibv_close_device(ctx);
	ibv_free_device_list(list);
	return err ? 1 : 0;
}
