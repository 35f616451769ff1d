/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * queues.c: queues that device commands made carry traffic: one row for each kind of CQ, register,
 * flag and peer; collapsed and out of order; memory keys; and what the device says of a CQ when it is
 * asked. The queues themselves are proved by tests/queue, two processes by tests/tag.
 */
#include "common.h"
#include "rig.h"

/* ---- All operations ---- */

devx_test(pairs)
{
	static const struct { const char *name; struct how a, b; } rows[] = {
		{"two by commands", {.verbs = false}, {.verbs = false}},
		{"one of verbs", {.verbs = false}, {.verbs = true}},
		{"CQEs of 64 and 128, scatter", {.cqe_size = 64, .scatter = 32}, {.cqe_size = 128, .scatter = 64}},
		{"less scatter than a CQE has room for", {.cqe_size = 128, .scatter = 32}, {.cqe_size = 128}},
		{"BlueFlame", {.blueflame = true}, {.verbs = false}},
		{"a user index, one CQ", {.flags = INLAY_DEVX_QP_USER_INDEX}, {.one_cq = true}},
		{"short rings", {.bbs = 16, .wqes = 4}, {.blueflame = true, .bbs = 8, .wqes = 1}},
		{"UC", {.type = INLAY_QP_ST_UC}, {.type = INLAY_QP_ST_UC}},
	};
	static const enum op uc[] = {OP_WRITE_IMM, OP_SEND_IMM, OP_SEND_INLINE};
	static struct side a, b;

	for (size_t i = 0; i < ARRAY(rows); i++) {
		print_message("# %s\n", rows[i].name);
		rig_empty(NULL);
		sides_make(&a, &rows[i].a, &b, &rows[i].b);
		if (rows[i].a.type != INLAY_QP_ST_UC)
			exercise(&a, &b, 80);
		else /* completes when it is gone: what has arrived is looked at */
			for (size_t j = 0; j < 30; j++)
				operate(j & 1 ? &a : &b, j & 1 ? &b : &a, uc[rnd_below(ARRAY(uc))], rnd_below(100), (uint32_t)j + 1);
		sides_free(&a, &b);
	}
}

/* A CQ of which each completion is written over the one before: what a transport does that looks at the counter only */
devx_test(collapsed)
{
	struct inlay_devx_path path = path_usual();
	struct inlay_devx_cq_attr attr;
	struct inlay_query_cq_out out;
	struct inlay_devx_qp_attr want;
	const struct mlx5_cqe64 *only;
	struct inlay_devx_cq cq, rcq;
	struct inlay_devx_qp qp;
	uint32_t cqes, index, n;

	for (cqes = 1; cqes <= 8; cqes *= 8) {
		rig_empty(NULL);
		attr = cq_want(cqes, cqes == 1 ? 64 : 128);
		attr.flags = INLAY_DEVX_CQ_COLLAPSED;
		must(inlay_devx_cq_create(&cq, dev.ctx, &attr));
		must(context(&cq, CQ, cq.cqn, &out));
		assert_true(inlay_cqc_get(&out.cqc, INLAY_CQC_CC) && inlay_cqc_get(&out.cqc, INLAY_CQC_OI));
		cq_open(&rcq, 64, 64);
		want = qp_want(cq.cq.cqn, rcq.cq.cqn, 64, 16);
		must(inlay_devx_qp_create(&qp, dev.ctx, &want));
		must(qp_to_itself(&qp, &path));
		only = (const struct mlx5_cqe64 *)(const void *)cq.cq.begin;
		for (n = 0; n < 200; n++) {
			index = inlay_sq_index(&qp.sq);
			must(inlay_post(&qp.sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED | INLAY_RING));
			await(only->op_own >> 4 == MLX5_CQE_REQ && inlay_cqe_wqe_counter(only) == (index & 0xffff));
			assert_int_equal(inlay_sq_release(&qp.sq, only), 1);
		}
		must(inlay_devx_qp_destroy(&qp));
		must(inlay_devx_cq_destroy(&rcq));
		must(inlay_devx_cq_destroy(&cq));
	}
}

/* Receives out of order: completions come in the order of the messages, and say which WQE; half the ring is posted at a time */
devx_test(out_of_order)
{
	static const struct how how = {.wqes = 32, .flags = INLAY_DEVX_QP_OOO};
	uint32_t i, posted = 0, early = 0;
	static struct side a, b;
	struct ibv_sge to;

	sides_make(&a, &how, &b, &how);
	assert_int_equal(inlay_rq_size(b.rq), 16);
	for (i = 0; i < 300; i++) {
		const struct mlx5_cqe64 *cqe;
		uint16_t at;

		/* Each WQE has a place of its own */
		for (; i % 16 == 0 && inlay_rq_room(b.rq); posted++) {
			to = piece(&b, posted % 32 * 64, 64);
			must(inlay_post_recv(b.rq, &to, 1));
		}
		inlay_rq_ring(b.rq);
		must(inlay_post_send_inline(a.sq, &i, 4, INLAY_SIGNALED | INLAY_RING));
		cqe = cqe_wait(b.rxcq);
		at = inlay_cqe_wqe_counter(cqe);
		assert_true(inlay_cqe_opcode(cqe) == MLX5_CQE_RESP_SEND && !memcmp(b.buf + at % 32 * 64, &i, 4));
		early += at != (uint16_t)i;
		assert_int_equal(inlay_rq_release_ooo(b.rq, cqe), 1);
		inlay_cq_advance(b.rxcq, 1);
		take_sent(&a, i, NULL);
	}
	assert_true(early > 30);
	sides_free(&a, &b);
}

/* ---- Memory keys ---- */

/* One operation with a key, in each of the ways that there are; its syndrome, 0 for a good one */
static uint8_t use(struct side *a, struct side *b, int way, uint64_t addr, uint32_t key, uint32_t len)
{
	struct ibv_sge keyed = {addr, len, key}, mine = piece(a, 0, len);
	const struct mlx5_cqe64 *cqe;
	uint8_t syndrome;

	must(way == 0 ? inlay_post_write(a->sq, at_peer(b, 0), b->mr->rkey, &keyed, 1, INLAY_SIGNALED | INLAY_RING) :
	     way == 1 ? inlay_post_read(a->sq, at_peer(b, 0), b->mr->rkey, &keyed, 1, INLAY_SIGNALED | INLAY_RING) :
	     way == 2 ? inlay_post_write(a->sq, addr, key, &mine, 1, INLAY_SIGNALED | INLAY_RING) :
			inlay_post_read(a->sq, addr, key, &mine, 1, INLAY_SIGNALED | INLAY_RING));
	cqe = cqe_wait(a->cq);
	syndrome = inlay_cqe_is_error(cqe) ? inlay_cqe_syndrome(cqe) : 0;
	assert_true(0 < inlay_sq_release(a->sq, cqe));
	inlay_cq_advance(a->cq, 1);
	return syndrome;
}

/* A key of a umem, and two of its pieces: as lkey and as rkey, across the pieces and a byte too far. Their bits: builders.c */
devx_test(keys)
{
	enum { PAGE = INLAY_DEVX_PAGE };
	const uint64_t addr = UINT64_MAX - 3 * PAGE + 1, list_at = 0x7777000123;
	static struct side a, b;
	struct inlay_devx_mkey key[3];
	struct ibv_sge sge[2];
	uint64_t box[128];
	uint8_t *memory;
	const uint32_t access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct inlay_devx_mkey_attr attr = {addr, 3 * PAGE - 1, place_ring(3 * PAGE), rig.pdn, access, 0, 0x77, {0, 0, 0}};

	memory = rig.memory + attr.memory.offset;
	must(inlay_devx_mkey_create(&key[0], dev.ctx, &attr));
	assert_int_equal(key[0].key & 0xff, 0x77);
	/* In other orders: bytes PAGE .. 2 * PAGE, then 0 .. PAGE; of any length, and of a page each */
	sge[0] = (struct ibv_sge){addr + PAGE, PAGE, key[0].key};
	sge[1] = (struct ibv_sge){addr, PAGE, key[0].key};
	for (uint32_t i = 1; i < 3; i++) {
		attr.addr = list_at;
		attr.len = 2 * PAGE;
		attr.log_entity = i == 2 ? 12 : 0;
		must(inlay_devx_mkey_create_list(&key[i], dev.ctx, &attr, sge, 2, box, sizeof(box)));
	}
	sides_make(&a, &plain, &b, &plain);
	for (uint32_t i = 0; i < 3; i++) {
		const uint64_t start = i ? list_at : addr, len = i ? 2 * PAGE : 3 * PAGE - 1;
		const uint64_t at = PAGE - 50; /* of the key: across a page, and across both pieces */

		for (uint32_t way = 0; way < 4; way++) {
			uint8_t *far = way < 2 ? b.buf : a.buf, bytes[100], *low = memory + (i ? 2 * PAGE - 50 : at), *high = memory + (i ? 0 : PAGE);
			const bool out = way == 0 || way == 3; /* of the key */

			fill(bytes, 100, 10 * i + way);
			memcpy(out ? low : far, bytes, out ? 50 : 100);
			memcpy(out ? high : far, bytes + (out ? 50 : 0), out ? 50 : 100);
			assert_int_equal(use(&a, &b, (int)way, start + at, key[i].key, 100), 0);
			assert_memory_equal(out ? far : low, bytes, 50);
			assert_memory_equal(out ? far + 50 : high, bytes + 50, 50);
			assert_int_equal(use(&a, &b, (int)way, start + len - 7, key[i].key, 8),
					 way < 2 ? MLX5_CQE_SYNDROME_LOCAL_PROT_ERR : MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
			sides_free(&a, &b);
			sides_make(&a, &plain, &b, &plain);
		}
	}
	assert_int_equal(inlay_devx_umem_dereg(&rig.umem), -EBUSY);
	sides_free(&a, &b);
	for (uint32_t i = 3; i--;) {
		must(inlay_devx_mkey_destroy(&key[i]));
		must(inlay_devx_mkey_destroy(&key[i]));
	}
}

/* ---- What the device says ---- */

/* A ring begins as it was before its first completion; what a device without stride indices compresses for a striding queue */
devx_test(cq_as_it_was_made)
{
	struct inlay_devx_cq_attr attr;
	struct inlay_query_cq_out c;
	struct inlay_devx_cq cq;
	uint32_t eqn, log, i;

	must(mlx5dv_devx_query_eqn(dev.ctx, 0, &eqn));
	for (log = 0; log < 11; log++) {
		const bool zip = log >= 6 && !(log & 1);
		const uint32_t size = log & 2 ? 128 : 64, mini = zip ? size / 128 : 0;
		const struct { enum inlay_cqc_field field; uint64_t value; } said[] = {
			{INLAY_CQC_STATUS, INLAY_CQ_STATUS_OK}, {INLAY_CQC_CQE_SZ, log >> 1 & 1}, {INLAY_CQC_OI, log & 1},
			{INLAY_CQC_LOG_CQ_SIZE, log}, {INLAY_CQC_UAR_PAGE, rig.uar.page_id}, {INLAY_CQC_CQ_PERIOD, log * 100},
			{INLAY_CQC_CQ_MAX_COUNT, log * 1000}, {INLAY_CQC_C_EQN_OR_APU_ELEMENT, eqn}, {INLAY_CQC_DBR_UMEM_ID, rig.umem.id},
			{INLAY_CQC_DBR_ADDR, 0}, {INLAY_CQC_PRODUCER_COUNTER, 0}, {INLAY_CQC_CONSUMER_COUNTER, 0},
			{INLAY_CQC_MINI_CQE_RES_FORMAT, mini}, {INLAY_CQC_MINI_CQE_RES_FORMAT_EXT, 0},
		};

		rig_empty(NULL);
		attr = cq_want(1u << log, size);
		memset(rig.memory + attr.ring.offset, 0, (size_t)size << log); /* 0 would be a completion */
		memset(rig.memory + attr.record.offset, 0xff, 8);
		attr.period = (uint16_t)(log * 100);
		attr.count = (uint16_t)(log * 1000);
		attr.flags = log & 1 ? INLAY_DEVX_CQ_IGNORE_OVERRUN : zip ? INLAY_DEVX_CQ_ENHANCED : 0;
		attr.mini = zip ? mini | INLAY_MINI_STRIDES : 0;
		must(inlay_devx_cq_create(&cq, dev.ctx, &attr));
		assert_true(!inlay_cq_peek(&cq.cq) && all_bytes(rig.memory + attr.record.offset, 4, 0));
		for (i = 0; i < 1u << log; i++)
			assert_int_equal(rig.memory[attr.ring.offset + (i + 1) * size - 1] >> 4, 0xf);
		assert_int_equal(cq.cq.mini, attr.mini);
		must(context(&cq, CQ, cq.cqn, &c));
		for (i = 0; i < ARRAY(said); i++)
			if (inlay_cqc_get(&c.cqc, said[i].field) != said[i].value)
				fail_msg("CQ of 2^%u: field 0x%x is %lu", log, said[i].field, (unsigned long)inlay_cqc_get(&c.cqc, said[i].field));
		assert_int_equal(inlay_devx_umem_dereg(&rig.umem), -EBUSY);
		must(inlay_devx_cq_destroy(&cq));
		must(inlay_devx_cq_destroy(&cq));
		assert_int_equal(context(&cq, CQ, cq.cqn, &c), -EINVAL);
	}
}

int main(void)
{
	return rig_here() && (run_all(rig_open, rig_close) || again_with("SOFTDEV_LINK", "ib") ||
			      again_with("SOFTDEV_MANUAL", "1") || again_trapped());
}
