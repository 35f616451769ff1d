/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * objects.c: umems, registers and objects by device commands, one by one: where they may lie, what
 * is refused and by whom, addresses; transitions of QPs from every state.
 */
#include "common.h"
#include "rig.h"
#include <inlay/devx/packets.h>

#define PAGE INLAY_DEVX_PAGE

/* ---- Umems, registers ---- */

/* Where a ring of so many bytes is that begins there, with its record at the umem's beginning */
static uint8_t *ring_at(struct inlay_devx_place place, uint64_t bytes)
{
	struct inlay_devx_place first = {place.umem, 0};
	uint32_t *record;
	uint8_t *ring;

	return inlay_devx_places_(place, bytes, first, &ring, &record) ? NULL : ring;
}

static void *record_at(struct inlay_devx_place place)
{
	uint32_t *record;
	uint8_t *ring;

	return inlay_devx_places_(place, 0, place, &ring, &record) ? NULL : record;
}

devx_test(umems)
{
	/* A umem of this many pages that begins so far behind a page; where a ring of so many bytes may be in it; 0: a record */
	static const struct { uint64_t pages, begin, page, offset, ring; bool good; } rows[] = {
		{3, 0, 0, 0, 3 * PAGE, true}, {3, 0, 0, 0, 3 * PAGE + 1, false}, {3, 0, 0, PAGE, 64, false}, {3, 0, 0, PAGE, 0, true},
		{3, 0, 0, PAGE + 4, 0, false}, {3, 0, 0, 3 * PAGE - 8, 0, true}, {3, 0, 0, 3 * PAGE, 0, false}, {3, 0, 0, UINT64_MAX - 7, 0, false},
		{8, 0, 2 * PAGE | PAGE, 2 * PAGE, 64, true}, {8, 0, 2 * PAGE | PAGE, PAGE, 64, false}, {8, 64, PAGE, PAGE, 64, false},
		{8, 64, PAGE, 0, 64, false}, {8, 64, PAGE, 0, 0, true}, /* a ring begins on a page, wherever its umem does */
	};
	struct inlay_devx_umem umem, again;
	struct inlay_devx_place place;
	const uint8_t *at;

	for (size_t i = 0; i < ARRAY(rows); i++) {
		uint8_t *memory = rig.memory + rows[i].begin;

		must(inlay_devx_umem_reg(&umem, dev.ctx, memory, rows[i].pages * PAGE, IBV_ACCESS_LOCAL_WRITE, rows[i].page));
		assert_true(umem.addr == memory && umem.len == rows[i].pages * PAGE && umem.page == (rows[i].page & ~(rows[i].page >> 1)));
		place.umem = &umem;
		place.offset = rows[i].offset;
		at = rows[i].ring ? ring_at(place, rows[i].ring) : (const uint8_t *)record_at(place);
		if (at != (rows[i].good ? memory + rows[i].offset : NULL))
			fail_msg("row %zu: at %p of %p", i, (const void *)at, (const void *)memory);
		must(inlay_devx_umem_dereg(&umem));
		must(inlay_devx_umem_dereg(&umem)); /* nothing */
		assert_null(record_at(place));
	}
	place.umem = NULL;
	assert_null(record_at(place));
	must(inlay_devx_umem_reg(&umem, dev.ctx, rig.memory, PAGE, 0, 0));
	must(inlay_devx_umem_reg(&again, dev.ctx, rig.memory, PAGE, 0, 0));
	assert_int_not_equal(again.id, umem.id);
	must(inlay_devx_umem_dereg(&again));
	must(inlay_devx_umem_dereg(&umem));
	/* What cannot be */
	assert_int_equal(inlay_devx_umem_reg_dmabuf(&umem, dev.ctx, 0, 0, PAGE, 0, 0), -EINVAL);
	assert_int_equal(inlay_devx_umem_reg(&umem, dev.ctx, rig.memory, PAGE, 0, PAGE | 2048), -EINVAL);
	assert_int_equal(inlay_devx_umem_reg(&umem, dev.ctx, rig.memory, PAGE, IBV_ACCESS_REMOTE_WRITE, 0), -EINVAL);
	assert_true(inlay_devx_umem_reg_dmabuf(&umem, dev.ctx, -1, 0, PAGE, 0, PAGE) == -EBADF && !umem.umem);
	must(inlay_devx_umem_dereg(&umem));
}

devx_test(registers)
{
	struct inlay_devx_uar a, b, nc;

	must(inlay_devx_uar_alloc(&a, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL));
	must(inlay_devx_uar_alloc(&b, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_LOCKED));
	must(inlay_devx_uar_alloc(&nc, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_NC, INLAY_UAR_DOORBELL));
	assert_true(a.uar.reg != b.uar.reg && a.uar.reg != nc.uar.reg);
	assert_true(a.uar.size >= 64 && inlay_is_pow2(a.uar.size) && !nc.uar.size);
	assert_true((uintptr_t)a.uar.reg % (2 * a.uar.size) == 0 && a.uar.reg >= a.page && a.uar.reg < a.page + PAGE);
	assert_int_equal(a.uar.mode, INLAY_UAR_SERIAL);
	a.uar.queues = 1;
	assert_int_equal(inlay_devx_uar_free(&a), -EBUSY);
	a.uar.queues = 0;
	must(inlay_devx_uar_free(&a));
	must(inlay_devx_uar_free(&a));
	must(inlay_devx_uar_free(&b));
	must(inlay_devx_uar_free(&nc));
	assert_true(inlay_devx_uar_alloc(&a, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, 77) == -EINVAL && !a.devx);
}

/* ---- Queues ---- */

devx_test(sizes)
{
	static const struct { uint32_t bbs, wqes, stride; size_t bytes; } rows[] = {
		{64, 64, 64, 8192}, {64, 0, 0, 4096}, {0, 4, 16, 64}, {0, 2, 16, 0}, {63, 0, 0, 0}, {0, 3, 64, 0}, {65536, 0, 0, 0},
		{0, 32768, 1024, 1u << 25}, {0, 65536, 64, 0}, {0, 64, 2048, 0}, {0, 64, 48, 0}, {0, 64, 8, 0},
	};

	for (size_t i = 0; i < ARRAY(rows); i++)
		if (inlay_devx_qp_bytes_(rows[i].bbs, rows[i].wqes, rows[i].stride) != rows[i].bytes)
			fail_msg("%u %u %u", rows[i].bbs, rows[i].wqes, rows[i].stride);
}

/* ---- What cannot be, and what just can ---- */

enum kind { CQ, QP, RMP, XRQ, DCT, KEY, LIST, RQ };

union attr {
	struct inlay_devx_cq_attr cq;
	struct inlay_devx_qp_attr qp;
	struct inlay_devx_srq_attr srq;
	struct inlay_devx_dct_attr dct;
	struct inlay_devx_mkey_attr mkey;
	struct inlay_devx_rq_attr rq;
};

/* A row's object with these fields changed is made, or refused: with a status by the device, else before there was a command */
struct row {
	const char *name;
	enum kind kind;
	struct { size_t at, bytes; uint64_t to; } change[3];
	int err;
	uint8_t status;
};

#define SET(type, field, value) \
	{offsetof(struct inlay_devx_##type##_attr, field), sizeof(((struct inlay_devx_##type##_attr *)0)->field), (uintptr_t)(value)}
#define NOT {0, 0, 0}
#define ONE_(err, status, kind, type, f, v) {#kind ": " #f " = " #v, kind, {SET(type, f, v), NOT, NOT}, err, status}
#define TWO_(err, status, kind, type, f, v, f2, v2) \
	{#kind ": " #f " = " #v ", " #f2 " = " #v2, kind, {SET(type, f, v), SET(type, f2, v2), NOT}, err, status}
#define THREE_(err, status, kind, type, f, v, f2, v2, f3, v3) \
	{#kind ": " #f " = " #v ", " #f2 " = " #v2, kind, {SET(type, f, v), SET(type, f2, v2), SET(type, f3, v3)}, err, status}
#define ONE(...) ONE_(__VA_ARGS__)
#define TWO(...) TWO_(__VA_ARGS__)
#define THREE(...) THREE_(__VA_ARGS__)
#define NO -EINVAL, 0
#define BAD_RES -EINVAL, INLAY_CMD_STATUS_BAD_RES

static struct inlay_devx_cq some_cq;
static struct inlay_devx_srq some_rmp;
static struct inlay_devx_mkey some_key;

static union attr good(enum kind kind)
{
	union attr a = {};

	rig.records = 1024;
	rig.rings = RECORDS + (1u << 20);
	switch (kind) {
	case CQ: a.cq = cq_want(64, 64); break;
	case QP: a.qp = qp_want(some_cq.cq.cqn, some_cq.cq.cqn, 64, 64); break;
	case RMP: a.srq = srq_want(16, 64, 0); break;
	case XRQ:
		a.srq = srq_want(16, 64, 0);
		a.srq.cqn = some_cq.cq.cqn;
		a.srq.tags = 4;
		break;
	case DCT: a.dct = (struct inlay_devx_dct_attr){0, rig.pdn, some_cq.cq.cqn, some_rmp.srqn, 0, 0, 0}; break;
	case KEY:
	case LIST:
		a.mkey = (struct inlay_devx_mkey_attr){.addr = 0x10000, .len = 2 * PAGE, .memory = place_ring(2 * PAGE),
						       .pdn = rig.pdn, .access = IBV_ACCESS_LOCAL_WRITE};
		break;
	case RQ:
		a.rq = (struct inlay_devx_rq_attr){.cq = &some_cq.cq, .ring = place_ring(PAGE), .record = place_record(),
						   .pdn = rig.pdn, .wqes = 4, .stride = 32, .flags = INLAY_DEVX_RQ_STRIDING,
						   .strides = {3, 6, 0}};
		break;
	}
	return a;
}

static void attempt(const struct row *row)
{
	static union {
		struct inlay_devx_cq cq; struct inlay_devx_qp qp; struct inlay_devx_srq srq; struct inlay_devx_dct dct;
		struct inlay_devx_mkey mkey; struct inlay_devx_rq rq;
	} made;
	static uint64_t box[128];
	struct inlay_devx_path path = path_usual();
	struct ibv_sge sge[2] = {{0x10000, PAGE, some_key.key}, {0x10000, PAGE, some_key.key}};
	uint32_t queues = rig.uar.uar.queues, opcode = 0, i;
	struct inlay_devx_error error = {};
	union attr a = good(row->kind);
	bool there = false;
	int err = 0;

	for (i = 0; i < 3; i++) {
		const uint64_t to = row->change[i].to;

		memcpy((uint8_t *)&a + row->change[i].at, &to, row->change[i].bytes);
	}
#define CASE(what, type, op, call) \
	case what: \
		err = call; \
		error = made.type.error; \
		there = made.type.obj; \
		opcode = INLAY_CMD_OP_CREATE_##op; \
		must(inlay_devx_##type##_destroy(&made.type)); \
		break
	switch (row->kind) {
	CASE(CQ, cq, CQ, inlay_devx_cq_create(&made.cq, dev.ctx, &a.cq));
	CASE(QP, qp, QP, inlay_devx_qp_create(&made.qp, dev.ctx, &a.qp));
	CASE(RMP, srq, RMP, inlay_devx_srq_create(&made.srq, dev.ctx, &a.srq));
	CASE(XRQ, srq, XRQ, inlay_devx_srq_create(&made.srq, dev.ctx, &a.srq));
	CASE(DCT, dct, DCT, inlay_devx_dct_create(&made.dct, dev.ctx, &a.dct, &path));
	CASE(KEY, mkey, MKEY, inlay_devx_mkey_create(&made.mkey, dev.ctx, &a.mkey));
	CASE(LIST, mkey, MKEY, inlay_devx_mkey_create_list(&made.mkey, dev.ctx, &a.mkey, sge, 2, box, sizeof(box)));
	CASE(RQ, rq, RQ, inlay_devx_rq_create(&made.rq, dev.ctx, &a.rq));
	}
#undef CASE
	if (err != row->err || error.err != err || there != !err || error.status != (rig.errno_only ? 0 : row->status) ||
	    (err && (error.why != NULL) == (row->status != 0)) || (row->status && error.opcode != opcode) ||
	    rig.uar.uar.queues != queues || some_cq.cq.reserved)
		fail_msg("%s: %d, status 0x%x, %s; opcode 0x%x", row->name, err, error.status, error.why ? error.why : "", error.opcode);
}

devx_test(made_or_refused)
{
	struct inlay_devx_umem mute, strange = rig.umem, huge = rig.umem;
	struct inlay_devx_uar other = rig.uar;
	const uint32_t cqn = 0x5aa5, high = 1u << 24; /* of nothing; a 25th bit */
	struct inlay_devx_mkey_attr key;
	struct inlay_devx_psv psv;

	cq_open(&some_cq, 64, 64);
	srq_open(&some_rmp, 16, 0);
	key = good(KEY).mkey;
	must(inlay_devx_mkey_create(&some_key, dev.ctx, &key));
	must(inlay_devx_umem_reg(&mute, dev.ctx, rig.memory, ARENA, 0, PAGE));
	strange.id ^= 0x5aa5;
	other.page_id ^= 0x5aa5;
	huge.len = UINT64_MAX;
	const struct row rows[] = {
		ONE(0, 0, CQ, cq, period, 4095), ONE(NO, CQ, cq, cqe_size, 32), ONE(NO, CQ, cq, uar, NULL),
		ONE(NO, CQ, cq, cqes, 63), TWO(NO, CQ, cq, cqes, 1u << 23, ring.umem, &huge),
		ONE(NO, CQ, cq, flags, 16), ONE(NO, CQ, cq, flags, INLAY_DEVX_CQ_COLLAPSED | INLAY_DEVX_CQ_COMPRESSED),
		ONE(NO, CQ, cq, period, 4096), ONE(NO, CQ, cq, mini, 5),
		ONE(NO, CQ, cq, mini, INLAY_MINI_CSUM_STRIDX | INLAY_MINI_STRIDES),
		ONE(NO, CQ, cq, ring.offset, 8 * PAGE + 64), ONE(NO, CQ, cq, record.offset, 1028),
		ONE(-EPERM, 0, CQ, cq, ring.umem, &mute), ONE(-ENOENT, 0, CQ, cq, vector, 1u << 20),
		ONE(BAD_RES, CQ, cq, ring.umem, &strange), ONE(BAD_RES, CQ, cq, record.umem, &strange),
		ONE(BAD_RES, CQ, cq, uar, &other), TWO(0, 0, QP, qp, max_ds, 63, user_index, 0xffffff),
		TWO(0, 0, QP, qp, rq_wqes, 0, flags, INLAY_DEVX_QP_MMO), ONE(NO, QP, qp, type, INLAY_QP_ST_DCT),
		ONE(NO, QP, qp, type, INLAY_QP_ST_RAW),
		ONE(NO, QP, qp, type, INLAY_QP_ST_DCI), /* without a shared queue */
		ONE(NO, QP, qp, sq_bbs, 65), ONE(NO, QP, qp, uar, NULL), ONE(NO, QP, qp, max_ds, 64),
		ONE(NO, QP, qp, rq_type, INLAY_RQ_TYPE_SHARED), /* and a queue of its own */
		ONE(NO, QP, qp, rq_type, INLAY_RQ_TYPE_NONE), TWO(NO, QP, qp, rq_wqes, 1, flags, INLAY_DEVX_QP_OOO),
		ONE(NO, QP, qp, log_streams, 1), /* of no DCI */
		ONE(NO, QP, qp, log_errored_streams, 1), ONE(NO, QP, qp, scatter_req, 16),
		ONE(NO, QP, qp, scatter_res, 48), TWO(NO, QP, qp, type, INLAY_QP_ST_UC, flags, INLAY_DEVX_QP_MMO),
		TWO(NO, QP, qp, sq_bbs, 0, flags, INLAY_DEVX_QP_CD_MASTER),
		TWO(NO, QP, qp, sq_bbs, 0, flags, INLAY_DEVX_QP_CD_SLAVE),
		TWO(NO, QP, qp, sq_bbs, 0, flags, INLAY_DEVX_QP_MMO), ONE(NO, QP, qp, flags, 128),
		ONE(NO, QP, qp, flags, INLAY_DEVX_QP_RNDV), /* and a send queue */
		ONE(NO, QP, qp, ring.offset, 8 * PAGE + 64), ONE(NO, QP, qp, ring.umem, NULL),
		ONE(NO, QP, qp, record.umem, NULL), ONE(NO, QP, qp, pdn, rig.pdn | high),
		ONE(NO, QP, qp, send_cqn, some_cq.cq.cqn | high), ONE(NO, QP, qp, recv_cqn, some_cq.cq.cqn | 1u << 31),
		TWO(NO, QP, qp, user_index, high, flags, INLAY_DEVX_QP_USER_INDEX),
		THREE(NO, QP, qp, srqn, some_rmp.srqn | high, rq_type, INLAY_RQ_TYPE_SHARED, rq_wqes, 0),
		ONE(BAD_RES, QP, qp, ring.umem, &strange), ONE(BAD_RES, QP, qp, record.umem, &strange),
		ONE(BAD_RES, QP, qp, send_cqn, cqn), ONE(BAD_RES, QP, qp, recv_cqn, cqn),
		ONE(BAD_RES, QP, qp, pdn, rig.pdn ^ 0x5aa5), ONE(BAD_RES, QP, qp, uar, &other),
		THREE(BAD_RES, QP, qp, srqn, 0x5aa5a5, rq_type, INLAY_RQ_TYPE_SHARED, rq_wqes, 0),
		ONE(NO, RMP, srq, entries, 12), ONE(NO, RMP, srq, entries, 1),
		TWO(NO, RMP, srq, entries, 65536, ring.umem, &huge), ONE(NO, RMP, srq, stride, 16), ONE(NO, RMP, srq, stride, 48),
		TWO(NO, RMP, srq, stride, 2048, ring.umem, &huge),
		ONE(NO, RMP, srq, flags, INLAY_DEVX_SRQ_STRIDING), /* of no shape */
		ONE(NO, RMP, srq, flags, INLAY_DEVX_SRQ_RNDV), /* of an XRQ */
		ONE(NO, RMP, srq, flags, INLAY_DEVX_SRQ_DC), ONE(NO, RMP, srq, cqn, some_cq.cq.cqn),
		ONE(NO, RMP, srq, user_index, 1), ONE(NO, RMP, srq, pdn, rig.pdn | high),
		ONE(BAD_RES, RMP, srq, ring.umem, &strange), ONE(BAD_RES, RMP, srq, record.umem, &strange),
		ONE(BAD_RES, RMP, srq, pdn, rig.pdn ^ 0x5aa5), TWO(0, 0, XRQ, srq, user_index, 0xffffff, tags, 1),
		ONE(NO, XRQ, srq, tags, INLAY_TAG_MAX + 1), ONE(NO, XRQ, srq, user_index, high),
		ONE(NO, XRQ, srq, flags, 16), ONE(NO, XRQ, srq, cqn, some_cq.cq.cqn | high),
		ONE(NO, XRQ, srq, pdn, rig.pdn | high), ONE(BAD_RES, XRQ, srq, cqn, cqn),
		TWO(0, 0, DCT, dct, user_index, 0xffffff, flags, INLAY_DEVX_DCT_USER_INDEX), ONE(NO, DCT, dct, srqn, 0),
		ONE(NO, DCT, dct, scatter_res, 32), ONE(NO, DCT, dct, flags, 8), ONE(NO, DCT, dct, pdn, rig.pdn | high),
		ONE(NO, DCT, dct, cqn, some_cq.cq.cqn | high), ONE(NO, DCT, dct, srqn, some_rmp.srqn | high),
		ONE(NO, DCT, dct, user_index, high), ONE(BAD_RES, DCT, dct, pdn, rig.pdn ^ 0x5aa5),
		ONE(BAD_RES, DCT, dct, cqn, cqn), ONE(BAD_RES, DCT, dct, srqn, some_rmp.srqn ^ 0x5aa5),
		ONE(NO, KEY, mkey, len, 0), ONE(NO, KEY, mkey, len, ARENA + 1),
		TWO(NO, KEY, mkey, len, ARENA + 1, memory.offset, 0),
		THREE(NO, KEY, mkey, len, (1ull << 45) + 1, memory.offset, 0, memory.umem, &huge),
		ONE(NO, KEY, mkey, addr, 0x10008), ONE(NO, KEY, mkey, addr, UINT64_MAX - PAGE + 1),
		ONE(NO, KEY, mkey, memory.offset, 8 * PAGE + 8), ONE(NO, KEY, mkey, memory.offset, ARENA - PAGE),
		ONE(NO, KEY, mkey, memory.offset, ARENA + PAGE), ONE(NO, KEY, mkey, memory.umem, NULL),
		ONE(NO, KEY, mkey, access, IBV_ACCESS_REMOTE_WRITE),
		ONE(NO, KEY, mkey, access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND),
		ONE(NO, KEY, mkey, pdn, rig.pdn | high), ONE(-EPERM, 0, KEY, mkey, memory.umem, &mute),
		TWO(0, 0, KEY, mkey, memory.umem, &mute, access, 0), ONE(BAD_RES, KEY, mkey, memory.umem, &strange),
		ONE(BAD_RES, KEY, mkey, pdn, rig.pdn ^ 0x5aa5), ONE(0, 0, LIST, mkey, log_entity, 12),
		ONE(NO, LIST, mkey, len, 0), ONE(NO, LIST, mkey, len, 2 * PAGE + 1),
		TWO(NO, LIST, mkey, log_entity, 12, len, 2 * PAGE + 1),
		TWO(NO, LIST, mkey, log_entity, 31, len, (2ull << 31) + 1), ONE(NO, LIST, mkey, log_entity, 11),
		ONE(NO, LIST, mkey, log_entity, 32), ONE(NO, LIST, mkey, addr, UINT64_MAX - PAGE),
		ONE(NO, LIST, mkey, pdn, rig.pdn | high),
		TWO(-EINVAL, INLAY_CMD_STATUS_BAD_PARAM, LIST, mkey, len, PAGE + 4, access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC),
		ONE(NO, RQ, rq, cq, NULL), ONE(NO, RQ, rq, wqes, 3), ONE(NO, RQ, rq, stride, 16),
		TWO(NO, RQ, rq, flags, 0, stride, 8), TWO(NO, RQ, rq, flags, 0, stride, 48), TWO(NO, RQ, rq, stride, 2048, ring.umem, &huge),
		TWO(NO, RQ, rq, wqes, 65536, ring.umem, &huge),
		ONE(NO, RQ, rq, pdn, high), ONE(NO, RQ, rq, user_index, high), ONE(NO, RQ, rq, flags, 8),
		ONE(NO, RQ, rq, flags, INLAY_DEVX_RQ_STRIDING | INLAY_DEVX_RQ_SHARED),
		ONE(NO, RQ, rq, strides.log_number, 2), ONE(NO, RQ, rq, strides.log_number, 17),
		ONE(NO, RQ, rq, strides.log_size, 14), ONE(NO, RQ, rq, strides.shift, 1),
		ONE(NO, RQ, rq, record.offset, 1028), ONE(NO, RQ, rq, ring.umem, NULL),
		ONE(-ENOSPC, 0, RQ, rq, wqes, 64),
	};
	for (size_t i = 0; i < ARRAY(rows); i++)
		attempt(&rows[i]);
	assert_true(inlay_devx_psv_create(&psv, dev.ctx, high) == -EINVAL && !psv.obj);
	must(inlay_devx_mkey_destroy(&some_key));
	must(inlay_devx_umem_dereg(&mute));
	must(inlay_devx_srq_destroy(&some_rmp));
	must(inlay_devx_cq_destroy(&some_cq));
}

/* The MAC that the device tells of its own GID, and that the kernel finds for it, are one */
devx_test(addresses)
{
	struct inlay_connect_record mine, found;
	struct inlay_devx_path path;
	static struct side s;

	side_make(&s, &plain);
	path = s.path;
	path.mtu = 0;
	must(inlay_devx_qp_address(&s.qp, &path, &mine));
	assert_true(mine.lid == dev.port.lid && mine.mtu == dev.port.active_mtu);
	assert_int_equal(mine.link == INLAY_CONNECT_IB, dev.port.link_layer != IBV_LINK_LAYER_ETHERNET);
	assert_memory_equal(mine.gid, dev.gid.raw, 16);
	found = mine;
	memset(found.mac, 0, sizeof(found.mac));
	must(inlay_devx_address_resolve(&found, dev.pd, &path));
	assert_memory_equal(&mine, &found, sizeof(mine));
	path.global = 1;
	must(inlay_devx_qp_address(&s.qp, &path, &found));
	assert_int_equal(found.flags, found.link == INLAY_CONNECT_IB ? (uint32_t)INLAY_CONNECT_GLOBAL : mine.flags);
	path.port = 9;
	assert_true(inlay_devx_qp_address(&s.qp, &path, &mine) < 0);
	assert_string_equal(s.qp.error.why, "the device has no such port");
	assert_true(inlay_devx_qp_modify(&s.qp, INLAY_QP_STATE_INIT, &path, NULL) < 0);
	path.port = 1;
	path.rnr_retry = 8;
	assert_int_equal(inlay_devx_qp_modify(&s.qp, INLAY_QP_STATE_INIT, &path, NULL), -EINVAL);
	path.rnr_retry = 7;
	assert_int_equal(s.qp.state, INLAY_QP_STATE_RST);
	path.port = 1;
	path.gid_index = 15;
	if (found.link != INLAY_CONNECT_IB)
		assert_int_equal(inlay_devx_qp_address(&s.qp, &path, &mine), -ENOENT);
	side_free(&s);
}

/* ---- Transitions ---- */

static uint32_t state_of(struct inlay_devx_qp *qp)
{
	struct inlay_query_qp_out out;

	must(context(qp, QP, qpn, &out));
	return (uint32_t)inlay_qpc_get(&out.qpc, INLAY_QPC_STATE);
}

enum { TO_INIT, TO_RTR, TO_RTS, TO_ERROR, TO_RESET, MOVES };

static int move(struct inlay_devx_qp *qp, uint32_t to, const struct inlay_devx_path *path, const struct inlay_connect_record *peer)
{
	return inlay_devx_qp_modify(qp, to, to == INLAY_QP_STATE_ERR || to == INLAY_QP_STATE_RST ? NULL : path,
				    to == INLAY_QP_STATE_RTR ? peer : NULL);
}

/* From each state by each transition, of QPs of each type */
devx_test(transitions)
{
	static const uint32_t opcodes[MOVES] = {INLAY_CMD_OP_RST2INIT_QP, INLAY_CMD_OP_INIT2RTR_QP, INLAY_CMD_OP_RTR2RTS_QP,
						INLAY_CMD_OP_2ERR_QP, INLAY_CMD_OP_2RST_QP};
	static const uint32_t after[MOVES] = {INLAY_QP_STATE_INIT, INLAY_QP_STATE_RTR, INLAY_QP_STATE_RTS, INLAY_QP_STATE_ERR,
					      INLAY_QP_STATE_RST};
	static const uint32_t types[] = {INLAY_QP_ST_RC, INLAY_QP_ST_UC, INLAY_QP_ST_UD};
	struct inlay_connect_record mine, *peer;
	static struct side s;
	uint32_t type, from, to, i, was;
	bool good;

	for (type = 0; type < ARRAY(types); type++) {
		const struct how how = {.type = types[type]};

		rig_empty(NULL);
		side_make(&s, &how);
		must(inlay_devx_qp_address(&s.qp, &s.path, &mine));
		peer = types[type] == INLAY_QP_ST_UD ? NULL : &mine;
		/* A peer where none should be, and none where one should be */
		must(inlay_devx_qp_modify(&s.qp, INLAY_QP_STATE_INIT, &s.path, NULL));
		assert_int_equal(inlay_devx_qp_modify(&s.qp, INLAY_QP_STATE_RTR, &s.path, peer ? NULL : &mine), -EINVAL);
		assert_int_equal(state_of(&s.qp), INLAY_QP_STATE_INIT);
		for (from = 0; from <= MOVES - 1; from++)
			for (to = 0; to < MOVES; to++) {
				must(inlay_devx_qp_modify(&s.qp, INLAY_QP_STATE_RST, NULL, NULL));
				for (i = 0; from < TO_ERROR && i <= from; i++)
					must(move(&s.qp, after[i], &s.path, peer));
				if (from == TO_ERROR)
					must(inlay_devx_qp_modify(&s.qp, INLAY_QP_STATE_ERR, NULL, NULL));
				was = after[from];
				assert_int_equal(s.qp.state, was);
				good = to >= TO_ERROR || to == (from == TO_RESET ? (uint32_t)TO_INIT : from + 1);
				good = good && !(from == TO_ERROR && to < TO_ERROR);
				if (good) {
					must(move(&s.qp, after[to], &s.path, peer));
					assert_int_equal(s.qp.error.err, 0);
				} else {
					assert_int_equal(move(&s.qp, after[to], &s.path, peer), -EINVAL);
					assert_int_equal(s.qp.error.status, rig.errno_only ? 0 : INLAY_CMD_STATUS_BAD_QP_STATE);
					assert_true(s.qp.error.err == -EINVAL && !s.qp.error.op_mod && !s.qp.error.syndrome == rig.errno_only);
				}
				assert_true(s.qp.error.opcode == opcodes[to] && s.qp.state == (good ? after[to] : was));
				assert_int_equal(state_of(&s.qp), s.qp.state);
			}
		assert_int_equal(move(&s.qp, INLAY_QP_STATE_SQD, &s.path, NULL), -EINVAL);
		/* Connected from INIT too */
		must(inlay_devx_qp_modify(&s.qp, INLAY_QP_STATE_RST, NULL, NULL));
		must(inlay_devx_qp_modify(&s.qp, INLAY_QP_STATE_INIT, &s.path, NULL));
		must(inlay_devx_qp_connect(&s.qp, &s.path, peer));
		assert_int_equal(s.qp.state, INLAY_QP_STATE_RTS);
		/* Destroyed from wherever it is; then nothing moves any more */
		side_free(&s);
		memset(&s.qp, 0, sizeof(s.qp));
		for (to = 0; to < MOVES; to++)
			assert_int_equal(move(&s.qp, after[to], &s.path, peer), -EINVAL);
		assert_int_equal(inlay_devx_qp_address(&s.qp, &s.path, &mine), -EINVAL);
	}
}

int main(void)
{
	return rig_here() && (run_all(rig_open, rig_close) || again_with("SOFTDEV_LINK", "ib") ||
			      again_trapped() || again_errno());
}
