/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * parse.c: any bytes as heads of commands and answers, as addresses, as exported maps, as records of a worker group or a connection, as
 * headers of tagged messages, and as what a device answers to commands. All lie at the end of an allocation, so that a sanitizer sees what
 * is read behind them. For libFuzzer (make fuzz), and for tests/task/fuzz.c.
 *
 * Input: a byte that says as what, then the bytes; those of an address, a map or a record get their checksum and their lengths set right,
 * unless that byte says not to.
 */
#include "fuzz.h"
#include <inlay/devx.h>

#define PARSE_MEMBERS 3u
#define PARSE_STRIDE 512u

/* How many of each were read well: none would mean that this file writes what no reader knows. */
static struct {
	uint32_t messages, addresses, maps, groups, records;
} parse_read;

/* What is read well is what would be written. */
static void parse_message(const uint8_t *at, uint32_t n)
{
	uint8_t again[INLAY_TASK_MESSAGE_MIN];
	struct inlay_task_message m;

	if (!inlay_task_message_read_(&m, at, n)) {
		sure(m.flags & INLAY_TASK_PAYLOAD_KEY ? m.at == n && m.length == m.payload.bytes :
		     m.kind == INLAY_TASK_WRITTEN ? m.at == n : (uint64_t)m.at + m.length == n);
		sure(m.status <= 0 && m.status >= -INLAY_TASK_STATUS_MAX && (m.kind != INLAY_TASK_REFUSED || (m.status && !m.length)));
		parse_read.messages++;
		sure(message_write(again, &m) == m.at && m.at <= n && !memcmp(again, at, m.at));
	} else if (n < INLAY_TASK_HEAD || at[0] != INLAY_TASK_WIRE) {
		sure(m.ids.context == UINT64_MAX && !m.ids.plugin && !m.ids.destination);
	}
}

static void parse_address(const uint8_t *at, uint32_t n)
{
	uint8_t again[INLAY_TASK_ADDRESS];
	struct inlay_task_address a;
	uint32_t role;

	for (role = INLAY_TASK_HOST; role <= INLAY_TASK_WORKER; role++)
		if (!inlay_task_address_read(&a, at, n, role, NULL)) {
			parse_read.addresses++;
			inlay_task_address_write(again, &a);
			sure(n == INLAY_TASK_ADDRESS && a.role == role && !memcmp(again, at, n));
			sure(a.receives && a.message >= INLAY_TASK_MESSAGE_MIN && !(a.at.qpn >> 24) && !(a.at.psn >> 24));
		}
}

static void parse_map(const uint8_t *at, uint32_t n)
{
	size_t size = inlay_mmap_import_size(at, n);
	struct inlay_blob head;
	struct inlay_range r;
	struct inlay_mmap m;
	uint32_t i, rkey;
	void *memory;
	int err;

	if (!size)
		return;
	sure(size < 64 * (size_t)n + 4096);
	memory = aligned_alloc(64, (size + 63) / 64 * 64);
	sure(memory);
	if (!inlay_mmap_create_from_export(&m, memory, size, (struct ibv_pd *)memory, at, n, NULL)) {
		parse_read.maps++;
		sure(!inlay_blob_head_(&head, at, n));
		for (i = 0; i < head.ranges; i++) {
			inlay_blob_range_(at, &head, i, &r);
			err = inlay_mmap_remote(&m, r.start, r.len, r.access, &rkey);
			sure(r.rkey == INLAY_NO_KEY ? err == -EPERM : !err && rkey == r.rkey);
		}
		sure(!inlay_mmap_destroy(&m));
	}
	free(memory);
}

/* A connection record; the headers of a tagged message; an event, and the answer to a command. */
static void parse_others(const uint8_t *at, uint32_t n)
{
	uint8_t again[INLAY_CONNECT_SIZE];
	struct inlay_connect_record record;
	char text[INLAY_DEVX_TEXT];
	struct inlay_devx_event event;
	struct inlay_devx_error error;
	struct inlay_tmh tmh;
	struct inlay_rvh rvh;
	int err;

	if (n && !inlay_connect_unpack(&record, at, n, NULL)) {
		parse_read.records++;
		inlay_connect_pack(&record, again);
		sure(n == sizeof(again) && !memcmp(again, at, n));
	}
	if (!inlay_tmh_get(at, n, &tmh))
		sure(n >= INLAY_TMH_BYTES && tmh.tag == fuzz_be64(at + 8) && tmh.app_ctx == fuzz_be32(at + 4));
	if (!inlay_rvh_get(at, n, &rvh))
		sure(n >= INLAY_TMH_BYTES + INLAY_RVH_BYTES && rvh.va == fuzz_be64(at + 16) && rvh.len == fuzz_be32(at + 28));
	memset(&event, 0, sizeof(event));
	event.cookie = 9;
	inlay_devx_event_parse_(at, n, &event);
	sure(event.cookie == 9 && event.bytes == (n < 64 ? n : 64) && !memcmp(&event.eqe, at, event.bytes));
	if (n < 32)
		return;
	for (err = 0; err <= EREMOTEIO; err += EREMOTEIO) {
		sure(inlay_devx_result(err, at, at + 16, &error) == error.err && (!err || error.err) && (error.err || !at[16]));
		sure(!error.err || error.status == at[16]);
		inlay_devx_error_text(&error, text, sizeof(text));
		sure(strlen(text) < sizeof(text) - 1);
	}
}

/* ---- Worker groups ---- */

static const uint8_t *parse_record;     /* of each member but this one */

static int parse_allgather(const void *from, void *to, size_t bytes, void *context, void **request)
{
	uint32_t i;

	sure(bytes == PARSE_STRIDE);
	memcpy(to, from, bytes);
	for (i = 1; i < PARSE_MEMBERS; i++) {
		uint8_t *at = (uint8_t *)to + i * bytes;
		uint32_t length, crc;

		memcpy(at, parse_record, bytes);
		inlay_blob_put(at + 16, i, 4);
		length = (uint32_t)inlay_blob_get(at + 12, 4);
		if (context && length >= 4 && length <= bytes) {
			crc = inlay_crc32c(at, length - 4);
			inlay_blob_put(at + length - 4, crc, 4);
		}
	}
	*request = to;
	return 0;
}

static int parse_test(void *request)
{
	return request ? 0 : -EINVAL;
}

static void parse_inside(const struct inlay_worker_group *g, const void *at, uint64_t n)
{
	uint32_t i;

	for (i = 0; i < PARSE_MEMBERS; i++) {
		const uint8_t *record = g->all + i * PARSE_STRIDE;
		uint64_t length = inlay_blob_get(record + 12, 4);

		if ((const uint8_t *)at >= record + INLAY_GROUP_HEAD && (const uint8_t *)at <= record + length - 4 &&
		    n <= (uint64_t)(record + length - 4 - (const uint8_t *)at))
			return;
	}
	sure(!"in a record");
}

/* The entries of a record, by another reading: workers of it, or -1 when it is none. */
static int parse_entries(const uint8_t *record)
{
	uint64_t length = inlay_blob_get(record + 12, 4), at = 40, need, workers = 0, segments = 0;

	if (length < 44 || length > PARSE_STRIDE)
		return -1;
	for (length -= 4; at < length; at += need) {
		uint64_t kind, bytes;

		if (length - at < 24)
			return -1;
		kind = inlay_blob_get(record + at, 4);
		bytes = inlay_blob_get(record + at + 4, 4);
		if (kind == 1)
			need = 24 + inlay_blob_get(record + at + 16, 4);
		else if (kind == 2 && length - at >= 32)
			need = 32 + inlay_blob_get(record + at + 24, 4) + inlay_blob_get(record + at + 28, 4);
		else
			return -1;
		need = (need + 7) / 8 * 8;
		if (need != bytes || need > length - at)
			return -1;
		workers += kind == 1;
		segments += kind == 2;
	}
	return workers == inlay_blob_get(record + 28, 4) && segments == inlay_blob_get(record + 32, 4) ? (int)workers : -1;
}

static void parse_group(const uint8_t *bytes, uint32_t n, int sealed)
{
	struct inlay_worker_oob oob = {parse_allgather, parse_test, NULL, sealed ? &oob : NULL, PARSE_MEMBERS, 0};
	size_t size = inlay_worker_group_size(PARSE_MEMBERS, PARSE_STRIDE);
	uint8_t *memory = (uint8_t *)malloc(size), record[PARSE_STRIDE];
	struct inlay_worker_segment s;
	struct inlay_worker_group g;
	struct inlay_group_worker w;
	uint32_t i;
	int err;

	sure(memory);
	memset(record, 0, sizeof(record));
	memcpy(record + 8, bytes, n < sizeof(record) - 8 ? n : sizeof(record) - 8);
	if (sealed) {
		memcpy(record, "inlaygrp", 8);
		inlay_blob_put(record + 8, 1, 4);
		inlay_blob_put(record + 20, PARSE_MEMBERS, 4);
		inlay_blob_put(record + 24, PARSE_STRIDE, 4);
		inlay_blob_put(record + 36, 0, 4);
		inlay_blob_put(record + 12, inlay_blob_get(record + 12, 2), 4);
	}
	parse_record = record;
	sure(!inlay_worker_group_create(&g, memory, size, PARSE_STRIDE, &oob));
	sure(!inlay_worker_group_add_worker(&g, 9, "address", 8));
	sure(!inlay_worker_group_start(&g));
	err = inlay_worker_group_progress(&g);
	parse_read.groups += !err;
	sure(err || (parse_entries(g.all + PARSE_STRIDE) >= 0 && g.workers == 1 + 2 * (uint32_t)parse_entries(g.all + PARSE_STRIDE)));
	for (i = 0; i <= g.workers; i++) {
		if (!inlay_worker_group_worker(&g, i, &w))
			parse_inside(&g, w.address, w.address_len);
		else
			sure(err || i == g.workers);
		if (!inlay_worker_group_segment(&g, i, inlay_blob_get(record + 48, 8), &s)) {
			parse_inside(&g, s.memh, s.memh_len);
			parse_inside(&g, s.mkey, s.mkey_len);
		}
	}
	free(memory);
}

static void parse_input(const uint8_t *data, size_t size)
{
	uint32_t n = (uint32_t)(size ? size - 1 : 0), what = size ? *data : 0, crc;
	uint8_t *at = (uint8_t *)calloc(n ? n : 1, 1);

	sure(at);
	if (n)
		memcpy(at, data + 1, n);
	if ((what & 12) == 4 && n >= INLAY_TASK_ADDRESS) {
		if ((what & 3) == 1) {
			memcpy(at, "inlaytsk", 8);
			inlay_blob_put(at + 8, INLAY_TASK_ADDRESS_VERSION, 2);
			inlay_blob_put(at + 12, n = INLAY_TASK_ADDRESS, 4);
			crc = inlay_crc32c(at, n - 4);
			inlay_blob_put(at + n - 4, crc, 4);
		}
		if ((what & 3) == 2) {
			memcpy(at, "inlaymap", 8);
			inlay_blob_put(at + 8, INLAY_BLOB_VERSION, 2);
			inlay_blob_put(at + 10, INLAY_BLOB_RDMA_, 2);
			n = 36 + (n - 36) / 24 * 24;
			inlay_blob_put(at + 12, n, 4);
			inlay_blob_put(at + 20, (n - 36) / 24, 4);
			inlay_blob_put(at + 24, 0, 8);
			crc = inlay_crc32c(at, n - 4);
			inlay_blob_put(at + n - 4, crc, 4);
		}
		if (n != size - 1) {
			at = (uint8_t *)realloc(at, n);
			sure(at);
		}
	}
	switch (what & 8 ? 4 : what & 3) {
	case 4: parse_others(at, n); break;
	case 0: parse_message(at, n); break;
	case 1: parse_address(at, n); break;
	case 2: parse_map(at, n); break;
	default: parse_group(at, n, what & 4);
	}
	free(at);
}

FUZZ_TARGET(parse_input)
