/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * parse.c: any bytes as heads of commands and answers, as addresses, as exported maps, as records of a worker group or a connection, as
 * headers of tagged messages, as WQEs, and as what a device answers to commands. All lie at the end of an allocation, so that a sanitizer
 * sees what is read behind them. For libFuzzer (make fuzz), and for tests/task/fuzz.c.
 *
 * Input: a byte that says as what, then the bytes; those of an address, a map or a record get their checksum and their lengths set right,
 * unless that byte says not to. Of a map it also says whether it is for the other side of PCI, and which code it carries.
 */
#include "fuzz.h"
#include "../posts.h"
#include "../../examples/plugins/group.h"
#include <inlay/devx.h>
#include <inlay/devx/packets.h>
#include <inlay/mmap/pci.h>
#include <inlay/queue/masked.h>
#include <inlay/queue/user_index.h>
#include <inlay/tag.h>

#define PARSE_MEMBERS 3u
#define PARSE_STRIDE 512u

/* Bits of the first byte: lengths and checksum are set right; a map has PCI's part, a code that is wrong, a code of 64 bytes */
enum { PARSE_SEALED = 4, PARSE_PCI = 16, PARSE_CODE = 32, PARSE_FORGED = 64, PARSE_CODE_64 = 128 };

/* How many of each were read well: none would mean that this file writes what no reader knows. */
static struct {
	uint32_t messages, addresses, maps, pci_maps, coded_maps, groups, records, answers, wqes;
} parse_read;

/* ---- A device: it answers what the input says, or does what it is asked to ---- */

static struct {
	struct ibv_context context;
	struct ibv_pd pd;
	struct fuzz_in *in;             /* NULL: it does what it is asked to */
	uint32_t objects;
	int failed;                     /* in any command */
	uint8_t out[64];                /* how the last answer begins */
} parse_device;

static struct mlx5dv_devx_obj *parse_object(void)
{
	parse_device.objects++;
	return (struct mlx5dv_devx_obj *)malloc(1);
}

/* The owner of the memory refuses some aliases (14), and has withdrawn others (15). */
static uint32_t parse_denied(uint32_t key)
{
	return (key & 15) >= 14 ? key & 15 : 0;
}

/* It has all capabilities, and makes the aliases that are allowed. */
static int parse_obey(const uint8_t *in, uint8_t *out, size_t outlen)
{
	if (in[0] == 1 && !in[1]) { /* QUERY_HCA_CAP */
		memset(out + 16, 0xff, outlen - 16);
	} else {
		memcpy(out + 8, in + 20, 4); /* the alias's number is the key's */
		out[0] = parse_denied(in[23]) == 14 ? 5 : 0;
		out[19] = parse_denied(in[23]) == 15;
	}
	return out[0] ? EREMOTEIO : 0;
}

static int parse_command(const void *in, size_t inlen, void *out, size_t outlen)
{
	static const int errors[4] = {0, EREMOTEIO, EINVAL, 0};
	size_t n;
	int err;

	sure(inlen >= 16 && outlen >= 16);
	if (!parse_device.in)
		return parse_obey((const uint8_t *)in, (uint8_t *)out, outlen);
	err = errors[fuzz_8(parse_device.in) & 3];
	n = fuzz_16(parse_device.in);
	if (err != EINVAL)
		fuzz_bytes(parse_device.in, (uint8_t *)out, n < outlen ? n : outlen);
	memset(parse_device.out, 0, sizeof(parse_device.out));
	memcpy(parse_device.out, out, outlen < sizeof(parse_device.out) ? outlen : sizeof(parse_device.out));
	parse_device.failed |= err || parse_device.out[0];
	return err;
}

bool mlx5dv_is_supported(struct ibv_device *device)
{
	(void)device;
	return true;
}

int mlx5dv_init_obj(struct mlx5dv_obj *obj, uint64_t type)
{
	sure(type == MLX5DV_OBJ_PD && obj->pd.in == &parse_device.pd);
	obj->pd.out->pdn = 5;
	return 0;
}

int mlx5dv_devx_general_cmd(struct ibv_context *context, const void *in, size_t inlen, void *out, size_t outlen)
{
	sure(context == &parse_device.context);
	return parse_command(in, inlen, out, outlen);
}

struct mlx5dv_devx_obj *mlx5dv_devx_obj_create(struct ibv_context *context, const void *in, size_t inlen, void *out, size_t outlen)
{
	sure(context == &parse_device.context);
	errno = parse_command(in, inlen, out, outlen);
	return errno ? NULL : parse_object();
}

#define PARSE_CALL(name, type)                                                            \
	int name(type *about, const void *in, size_t inlen, void *out, size_t outlen)      \
	{                                                                                  \
		sure(about);                                                               \
		return parse_command(in, inlen, out, outlen);                              \
	}

PARSE_CALL(mlx5dv_devx_obj_query, struct mlx5dv_devx_obj)
PARSE_CALL(mlx5dv_devx_obj_modify, struct mlx5dv_devx_obj)
PARSE_CALL(mlx5dv_devx_wq_query, struct ibv_wq)

int mlx5dv_devx_obj_destroy(struct mlx5dv_devx_obj *obj)
{
	sure(obj && parse_device.objects--);
	free(obj);
	return 0;
}

/* As many of the next bytes as the input says. libmlx5 does not return how many. */
int mlx5dv_devx_get_async_cmd_comp(struct mlx5dv_devx_cmd_comp *answers, struct mlx5dv_devx_async_cmd_hdr *to, size_t len)
{
	size_t n = fuzz_16(parse_device.in);

	(void)answers;
	if (n > len)
		return ENOSPC;
	fuzz_bytes(parse_device.in, (uint8_t *)to, n);
	return 0;
}

ssize_t mlx5dv_devx_get_event(struct mlx5dv_devx_event_channel *channel, struct mlx5dv_devx_async_event_hdr *to, size_t len)
{
	size_t n = fuzz_8(parse_device.in);

	(void)channel;
	n = n < len ? n : len;
	fuzz_bytes(parse_device.in, (uint8_t *)to, n);
	return (ssize_t)n;
}

/* What is read well is what would be written. */
static void parse_message(const uint8_t *at, uint32_t n)
{
	uint8_t again[INLAY_TASK_MESSAGE_MIN];
	struct inlay_task_message m;

	if (!inlay_task_message_read_(&m, at, n)) {
		sure(m.flags & INLAY_TASK_PAYLOAD_KEY ? m.at == n && m.length == m.payload.bytes :
		     m.kind == INLAY_TASK_WRITTEN ? m.at == n : (uint64_t)m.at + m.length == n);
		sure(m.status <= 0 && m.status >= -INLAY_TASK_STATUS_MAX);
		parse_read.messages++;
		sure(message_write(again, &m) == m.at && m.at <= n && !memcmp(again, at, m.at));
	} else if (n < INLAY_TASK_HEAD || at[0] != INLAY_TASK_VERSION) {
		sure(m.ids.context == UINT64_MAX && !m.ids.plugin && !m.ids.destination);
	}
}

static void parse_address(const uint8_t *at, uint32_t n)
{
	struct inlay_connect_record r;
	struct inlay_task_address a;

	for (uint32_t role = INLAY_TASK_HOST; role <= INLAY_TASK_WORKER; role++)
		if (!inlay_task_address_read_(&a, &r, at, n, role, NULL)) {
			parse_read.addresses++;
			sure(n == INLAY_TASK_ADDRESS && a.role == role && !memcmp(&a, at, n));
			sure(a.receives && a.message >= INLAY_TASK_MESSAGE_MIN && !(r.qpn >> 24) && !(r.psn >> 24));
		}
}

/* A code that depends on a key and on all bytes. */
static int parse_make(void *key, const void *data, size_t len, uint8_t *code)
{
	const struct inlay_mac *mac = (const struct inlay_mac *)key;

	for (uint32_t i = 0; i < mac->bytes; i += 4)
		put_le(code + i, inlay_crc32c(data, len) * (2 * i + 1), 4);
	return 0;
}

static void parse_mac(struct inlay_mac *mac, uint32_t what)
{
	mac->make = parse_make;
	mac->context = mac;
	mac->bytes = what & PARSE_CODE_64 ? 64 : 16;
}

static void parse_ranges(struct inlay_mmap *m, const uint8_t *at, uint32_t n, const struct inlay_mac *mac, int pci)
{
	struct inlay_blob_range r;
	struct inlay_keys keys;
	struct inlay_blob head;
	uint8_t code[64];
	uint32_t i, rkey = 0;
	int err;

	sure(!inlay_blob_head_(&head, at, n) && head.kind == (pci ? INLAY_BLOB_PCI : INLAY_BLOB_RDMA));
	sure(head.code_bytes == (mac ? mac->bytes : 0));
	if (mac) {
		mac->make(mac->context, at, n - 4 - mac->bytes, code);
		sure(!memcmp(code, at + n - 4 - mac->bytes, mac->bytes));
	}
	for (i = 0; i < head.ranges; i++) {
		memcpy(&r, at + inlay_blob_at_(i), sizeof(r));
		err = inlay_mmap_remote(m, r.start, r.len, r.access, &rkey);
		sure(pci || r.rkey == INLAY_NO_KEY ? err == -EPERM : !err && rkey == r.rkey);
		sure(!inlay_mmap_keys(m, i, m->devs[0], &keys) && keys.lkey == (pci ? r.rkey & ~255u : INLAY_NO_KEY));
		sure(!pci || !parse_denied(r.rkey >> 8));
	}
	parse_read.maps += !pci;
	parse_read.pci_maps += !!pci;
	parse_read.coded_maps += !!mac;
}

static void parse_map(const uint8_t *at, uint32_t n, uint32_t what)
{
	size_t size = inlay_mmap_import_size(at, n);
	int read[2] = {0, 0}, pci;
	struct inlay_mac mac;
	struct inlay_mmap m;
	void *memory;

	if (!size)
		return;
	sure(size < 64 * (size_t)n + 4096);
	memory = aligned_alloc(64, (size + 63) / 64 * 64);
	sure(memory);
	parse_mac(&mac, what);
	for (pci = 0; pci < 2; pci++) {
		read[pci] = (pci ? inlay_mmap_create_from_export_pci : inlay_mmap_create_from_export)(
			&m, memory, size, &parse_device.pd, at, n, what & PARSE_CODE ? &mac : NULL);
		if (!read[pci]) {
			parse_ranges(&m, at, n, what & PARSE_CODE ? &mac : NULL, pci);
			sure(!inlay_mmap_destroy(&m));
		}
		sure(!parse_device.objects);
	}
	sure((read[0] || read[1] == -ENOTSUP) && (read[1] || read[0] == -ENOTSUP));
	free(memory);
}

/* A ring whose WQEs anyone has written: what is said to be a request posts the same bytes again. */
static void parse_wqes(const uint8_t *at, uint32_t n)
{
	static const uint32_t types[] = {0, IBV_QPT_RC, IBV_QPT_UD, IBV_QPT_DRIVER, IBV_QPT_XRC_SEND, IBV_QPT_RAW_PACKET};
	static uint8_t copy[16 * INLAY_WQEBB] __attribute__((aligned(64)));
	struct inlay_decoded d;
	uint32_t bbs, i, k;
	int got;

	for (bbs = 1; bbs < 16 && 2 * bbs * INLAY_WQEBB <= n; bbs *= 2)
		;
	at += n - bbs * INLAY_WQEBB;
	for (k = 0; k < sizeof(types) / sizeof(types[0]); k++)
		for (i = 0; i < bbs; i++) {
			got = inlay_wqe_decode(at, bbs, i, types[k], &d);
			sure(got == -EPROTO || (got > 0 && got <= (int)bbs));
			sure(!d.is_request || got > 0);
			if (!d.is_request || d.index % bbs != i)
				continue;
			parse_read.wqes++;
			sure(!decoded_again(&d, at, copy, bbs, types[k]));
		}
}

/* A connection record; the headers of a tagged message; a ring; an event, and the answer to a command. */
static void parse_others(const uint8_t *at, uint32_t n)
{
	uint8_t again[INLAY_CONNECT_SIZE];
	struct inlay_connect_record record;
	char text[INLAY_DEVX_TEXT];
	struct inlay_devx_event event;
	struct inlay_devx_error error;
	struct inlay_tmh tmh;
	struct inlay_rvh rvh;

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
	if (n >= INLAY_WQEBB)
		parse_wqes(at, n);
	if (n < 32)
		return;
	for (int err = 0; err <= EREMOTEIO; err += EREMOTEIO) {
		sure(inlay_devx_result(err, at, at + 16, &error) == error.err && (!err || error.err) && (error.err || !at[16]));
		sure(!error.err || error.status == at[16]);
		inlay_devx_error_text(&error, text, sizeof(text));
		sure(strlen(text) < sizeof(text) - 1);
	}
}

/* ---- Device commands ---- */

/* A call fails if and only if one of its commands did, and says so. */
static void parse_said(int err, const struct inlay_devx_error *error)
{
	char text[INLAY_DEVX_TEXT];

	sure(!err == !parse_device.failed && error->err == err && (!error->status || err));
	inlay_devx_error_text(error, text, sizeof(text));
	sure(strlen(text) < sizeof(text) - 1);
	parse_read.answers += !err;
}

static void parse_create(uint32_t what)
{
	struct ibv_context *ctx = &parse_device.context;
	struct inlay_devx_mkey_attr attr;
	struct inlay_devx_mkey key;
	struct inlay_devx_psv psv;
	int err;

	if (what) {
		memset(&attr, 0, sizeof(attr));
		attr.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
		attr.tag = 7;
		err = inlay_devx_mkey_create_umr(&key, ctx, &attr, 4, 0); /* asks for capabilities first */
		parse_said(err, &key.error);
		sure(!err == !!key.obj && (err || key.key == (fuzz_be32(parse_device.out + 8) << 8 | 7)));
		sure(!inlay_devx_mkey_destroy(&key));
	} else {
		err = inlay_devx_psv_create(&psv, ctx, 1);
		parse_said(err, &psv.error);
		sure(!err == !!psv.obj && (err || psv.psv == (fuzz_be32(parse_device.out + 16) & 0xffffff)));
		sure(!inlay_devx_psv_destroy(&psv));
	}
}

static void parse_query(uint32_t what)
{
	struct ibv_context *ctx = &parse_device.context;
	struct inlay_query_hca_cap_out *cap = (struct inlay_query_hca_cap_out *)malloc(sizeof(*cap));
	uint32_t vhca = 0, index;
	struct inlay_devx_error error;
	struct inlay_atomics can;
	struct ibv_wq wq;
	uint8_t mac[6];
	int err;

	sure(cap);
	if (what == 0) {
		err = inlay_devx_query_cap(ctx, INLAY_CAP_GENERAL, cap, &error);
		parse_said(err, &error);
		sure(err || inlay_hca_cap_get(&cap->cap, INLAY_HCA_CAP_VHCA_ID) ==
			    (fuzz_be32(parse_device.out + 20) & 0xffff));
	} else if (what == 1) {
		err = inlay_devx_roce_mac_(ctx, 1, 0, mac, &error);
		parse_said(err, &error);
		sure(err || !memcmp(mac, parse_device.out + 34, 6));
	} else if (what == 2) {
		err = inlay_atomics_query(&can, ctx, NULL);
		sure(err == (parse_device.failed ? -ENOTSUP : 0) && !(err && can.sizes));
		sure(!((can.sizes | can.sizes_dc) & ~0xfffcu) && !(can.sizes_be & ~can.sizes));
	} else if (what == 3) {
		memset(&wq, 0, sizeof(wq));
		wq.context = ctx;
		err = inlay_wq_user_index(&wq, &index, NULL);
		sure(err == (parse_device.failed ? -ENOTSUP : 0));
		sure(err || index == (fuzz_be32(parse_device.out + 36) & 0xffffff));
	} else {
		err = inlay_mmap_cap_pci(ctx, &vhca);
		sure(err != 0 || !parse_device.failed);
		sure(!err || err == -ENOTSUP || err == -EIO || err == -ENOMEM || err == -EAGAIN || err == -EBUSY);
		sure(vhca <= 0xffff);
	}
	free(cap);
}

/* An RQ is reset from the state that the input says. */
static void parse_reset(void)
{
	struct inlay_devx_rq rq = {};

	rq.flags = INLAY_DEVX_RQ_SHARED;
	rq.obj = parse_object();
	parse_said(inlay_devx_rq_reset(&rq), &rq.error);
	sure(!inlay_devx_rq_destroy(&rq));
}

static void parse_asynchronous(uint32_t words)
{
	struct mlx5dv_devx_event_channel channel = {};
	struct mlx5dv_devx_cmd_comp answers = {};
	struct inlay_devx_error error;
	struct inlay_devx_event event;
	uint64_t *buf, id;
	int err;

	if (!words) {
		err = inlay_devx_event_get(&channel, &event);
		sure((!err || err == -EIO) && event.bytes <= sizeof(event.eqe));
		return;
	}
	buf = (uint64_t *)malloc(words * sizeof(*buf));
	sure(buf);
	err = inlay_devx_answer(&answers, buf, words * sizeof(*buf), &id, &error);
	sure(error.err == err);
	if (err == -ENOBUFS) {
		sure(id == UINT64_MAX);
	} else {
		sure(id == buf[0] && error.status == (err ? ((uint8_t *)(buf + 1))[0] : 0));
		parse_read.answers += !err;
	}
	free(buf);
}

/* A byte that says which call, then the device's answers to it, until nothing is left. */
static void parse_commands(const uint8_t *at, uint32_t n)
{
	struct fuzz_in in = {at, at + n};
	uint32_t op;

	parse_device.in = &in;
	while (in.at < in.end) {
		op = fuzz_8(&in);
		parse_device.failed = 0;
		switch (op & 7) {
		case 0:
		case 1: parse_create(op & 1); break;
		case 2: parse_reset(); break;
		case 3: parse_asynchronous(op >> 3); break;
		default: parse_query((op >> 3) % 5);
		}
		sure(!parse_device.objects);
	}
	parse_device.in = NULL;
}

/* ---- Worker groups ---- */

static const uint8_t *parse_record;     /* of each member but this one */

static int parse_allgather(const void *from, void *to, size_t bytes, void *context, void **request)
{
	sure(bytes == PARSE_STRIDE);
	memcpy(to, from, bytes);
	for (uint32_t i = 1; i < PARSE_MEMBERS; i++) {
		uint8_t *at = (uint8_t *)to + i * bytes;
		uint32_t length, crc;

		memcpy(at, parse_record, bytes);
		put_le(at + 16, i, 4);
		length = (uint32_t)get_le(at + 12, 4);
		if (context && length >= 4 && length <= bytes) {
			crc = inlay_crc32c(at, length - 4);
			put_le(at + length - 4, crc, 4);
		}
	}
	*request = to;
	return 0;
}

static int parse_test(void *request)
{
	return request ? 0 : -EINVAL;
}

static void parse_inside(const struct worker_group *g, const void *at, uint64_t n)
{
	for (uint32_t i = 0; i < PARSE_MEMBERS; i++) {
		const uint8_t *record = g->all + i * PARSE_STRIDE;
		uint64_t length = get_le(record + 12, 4);

		if ((const uint8_t *)at >= record + WORKER_GROUP_HEAD && (const uint8_t *)at <= record + length - 4 &&
		    n <= (uint64_t)(record + length - 4 - (const uint8_t *)at))
			return;
	}
	sure(!"in a record");
}

/* The entries of a record, by another reading: workers of it, or -1 when it is none. */
static int parse_entries(const uint8_t *record)
{
	uint64_t length = get_le(record + 12, 4), at = 40, need, workers = 0, segments = 0;

	if (length < 44 || length > PARSE_STRIDE)
		return -1;
	for (length -= 4; at < length; at += need) {
		uint64_t kind, bytes;

		if (length - at < 24)
			return -1;
		kind = get_le(record + at, 4);
		bytes = get_le(record + at + 4, 4);
		if (kind == 1)
			need = 24 + get_le(record + at + 16, 4);
		else if (kind == 2 && length - at >= 32)
			need = 32 + get_le(record + at + 24, 4) + get_le(record + at + 28, 4);
		else
			return -1;
		need = (need + 7) / 8 * 8;
		if (need != bytes || need > length - at)
			return -1;
		workers += kind == 1;
		segments += kind == 2;
	}
	return workers == get_le(record + 28, 4) && segments == get_le(record + 32, 4) ? (int)workers : -1;
}

static void parse_group(const uint8_t *bytes, uint32_t n, int sealed)
{
	struct worker_group_oob oob = {parse_allgather, parse_test, NULL, sealed ? &oob : NULL, PARSE_MEMBERS, 0};
	size_t size = worker_group_size(PARSE_MEMBERS, PARSE_STRIDE);
	uint8_t *memory = (uint8_t *)malloc(size), record[PARSE_STRIDE];
	struct worker_group_segment s;
	struct worker_group g;
	struct worker_group_worker w;
	int err;

	sure(memory);
	memset(record, 0, sizeof(record));
	memcpy(record + 8, bytes, n < sizeof(record) - 8 ? n : sizeof(record) - 8);
	if (sealed) {
		memcpy(record, "inlaygrp", 8);
		put_le(record + 8, 1, 4);
		put_le(record + 20, PARSE_MEMBERS, 4);
		put_le(record + 24, PARSE_STRIDE, 4);
		put_le(record + 36, 0, 4);
		put_le(record + 12, get_le(record + 12, 2), 4);
	}
	parse_record = record;
	sure(!worker_group_create(&g, memory, size, PARSE_STRIDE, &oob));
	sure(!worker_group_add_worker(&g, 9, "address", 8));
	sure(!worker_group_start(&g));
	err = worker_group_progress(&g);
	parse_read.groups += !err;
	sure(err || (parse_entries(g.all + PARSE_STRIDE) >= 0 && g.workers == 1 + 2 * (uint32_t)parse_entries(g.all + PARSE_STRIDE)));
	for (uint32_t i = 0; i <= g.workers; i++) {
		if (!worker_group_worker(&g, i, &w))
			parse_inside(&g, w.address, w.address_len);
		else
			sure(err || i == g.workers);
		if (!worker_group_segment(&g, i, get_le(record + 48, 8), &s)) {
			parse_inside(&g, s.memh, s.memh_len);
			parse_inside(&g, s.mkey, s.mkey_len);
		}
	}
	free(memory);
}

/* Sets the lengths of a map, its code and its checksum. Returns its bytes, at most n. Does nothing to less than an empty map. */
static uint32_t parse_seal_map(uint8_t *at, uint32_t n, uint32_t what)
{
	uint32_t front = sizeof(struct inlay_blob), back = 4, crc;
	struct inlay_mac mac;

	parse_mac(&mac, what);
	back += what & PARSE_CODE ? mac.bytes : 0;
	if (n < front + back)
		return n;
	memcpy(at, "inlaymap", 8);
	put_le(at + 8, INLAY_BLOB_VERSION, 2);
	put_le(at + 10, what & PARSE_PCI ? 2 : 1, 2);
	n = front + back + (n - front - back) / 24 * 24;
	put_le(at + 12, n, 4);
	put_le(at + 20, (n - front - back) / 24, 4);
	put_le(at + 24, back - 4, 4);
	put_le(at + 30, 0, 2);
	if (what & PARSE_CODE && !(what & PARSE_FORGED))
		mac.make(&mac, at, n - back, at + n - back);
	crc = inlay_crc32c(at, n - 4);
	put_le(at + n - 4, crc, 4);
	return n;
}

static void parse_input(const uint8_t *data, size_t size)
{
	uint32_t n = (uint32_t)(size ? size - 1 : 0), what = size ? *data : 0, crc;
	uint8_t *at = (uint8_t *)calloc(n ? n : 1, 1);

	sure(at);
	if (n)
		memcpy(at, data + 1, n);
	if ((what & 12) == PARSE_SEALED && n >= INLAY_TASK_ADDRESS) {
		if ((what & 3) == 1) {
			memcpy(at, "inlaytsk", 8);
			put_le(at + 8, INLAY_TASK_VERSION, 2);
			put_le(at + 12, n = INLAY_TASK_ADDRESS, 4);
			crc = inlay_crc32c(at, n - 4);
			put_le(at + n - 4, crc, 4);
		}
		if ((what & 3) == 2)
			n = parse_seal_map(at, n, what);
		if (n != size - 1) {
			at = (uint8_t *)realloc(at, n);
			sure(at);
		}
	}
	parse_device.pd.context = &parse_device.context;
	switch (what & 8 ? 4 + (what & 1) : what & 3) {
	case 4: parse_others(at, n); break;
	case 5: parse_commands(at, n); break;
	case 0: parse_message(at, n); break;
	case 1: parse_address(at, n); break;
	case 2: parse_map(at, n, what); break;
	default: parse_group(at, n, what & PARSE_SEALED);
	}
	free(at);
}

FUZZ_TARGET(parse_input)
