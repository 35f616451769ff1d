/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * list.c: the NIC's list of tags on an XRQ made by commands: operations, every kind of completion, what is
 * on the wire, CQEs that cannot be, counters beyond 16 bits.
 */
#include "rig.h"

/* ---- message.h: headers ---- */

devx_test(headers)
{
	struct inlay_rvh rvh = {0x0102030405060708, 0x11121314, 0x21222324}, back;
	static const uint8_t want[32] = {IBV_TMH_RNDV, 0, 0, 0, 0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
					 1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24};
	struct inlay_tmh tmh, old;
	uint8_t at[48];

	for (uint32_t i = 0; i < 8; i++) { /* at any place */
		memcpy(at + i, want, sizeof(want));
		must(inlay_tmh_get(at + i, 16, &tmh));
		assert_true(tmh.opcode == IBV_TMH_RNDV && tmh.app_ctx == 0x31323334 && tmh.tag == 0x4142434445464748);
		must(inlay_rvh_get(at + i, 32, &back));
		assert_memory_equal(&back, &rvh, sizeof(rvh));
	}
	old = tmh;
	for (uint32_t len = 0; len < 32; len++) {
		assert_true(len >= 16 || inlay_tmh_get(at, len, &tmh) == -EPROTO);
		assert_int_equal(inlay_rvh_get(at, len, &back), -EPROTO);
	}
	for (uint32_t i = IBV_TMH_EAGER + 1; i < 256; i++) {
		at[0] = (uint8_t)i;
		assert_int_equal(inlay_tmh_get(at, 40, &tmh), -EPROTO);
	}
	assert_true(!memcmp(&tmh, &old, sizeof(tmh)) && !memcmp(&back, &rvh, sizeof(rvh)));
}

/* ---- set-up ---- */

devx_test(sizes)
{
	static const uint32_t bad[][2] = {{0, 16}, {INLAY_TAG_MAX + 1, 16}, {4, 0}, {4, 12}, {4, 65536}};
	const size_t need = inlay_tag_list_size(4, 16);
	struct inlay_tag_list list;
	uint8_t *memory = (uint8_t *)pages(4096);

	usual_list(4, 16);
	for (uint32_t i = 0; i < ARRAY(bad); i++)
		assert_int_equal(inlay_tag_list_size(bad[i][0], bad[i][1]), 0);
	assert_int_equal(need, 5 * 32 + 16 * 16);
	const struct {
		void *memory; size_t size; uint32_t tags; struct inlay_sq *sq; uint32_t user_index; int err;
	} rows[] = {
		{NULL, SIZE_MAX, 4, &t.cmd.sq, UIDX, -EINVAL}, {memory + 8, SIZE_MAX, 4, &t.cmd.sq, UIDX, -EINVAL},
		{memory, SIZE_MAX, 0, &t.cmd.sq, UIDX, -EINVAL}, {memory, SIZE_MAX, 4, NULL, UIDX, -EINVAL},
		{memory, SIZE_MAX, 4, &t.cmd.sq, 1u << 24, -EINVAL}, {memory, need - 1, 4, &t.cmd.sq, UIDX, -ENOBUFS},
		{memory, need, 4, &t.cmd.sq, UIDX, 0},
	};
	for (uint32_t i = 0; i < ARRAY(rows); i++)
		assert_int_equal(inlay_tag_list_init(&list, rows[i].memory, rows[i].size, rows[i].tags, rows[i].sq,
						     rows[i].user_index), rows[i].err);
	whole(&list);
	free(memory);
	tm_close(&t);
}

/* ---- operations ---- */

devx_test(operations)
{
	uint32_t handle[3], i;
	struct inlay_tag_wc wc;

	usual_list(3, 16);
	/* Nothing is seen before it is rung, and all of it after */
	for (i = 0; i < 3; i++)
		must(try_add(&t, i, i, 100 + i, EXACT, i == 1 ? IBV_OPS_SIGNALED : 0, &handle[i]));
	assert_int_equal(t.list.room, 0);
	assert_null(inlay_cq_peek(&t.cq.cq));
	inlay_sq_ring(&t.cmd.sq);
	assert_int_equal(expect(&t, IBV_WC_TM_ADD, IBV_WC_SUCCESS, 1001, 0).handle, handle[1]);
	expect_nothing(&t.cq.cq);
	whole(&t.list);
	matched(&t, 101, 1001);
	matched(&t, 102, 1002);
	whole(&t.list);
	assert_int_equal(t.list.room, 2);
	/* A DEL that nobody asked for is asked for all the same, and swallowed */
	must(inlay_tag_list_del(&t.list, 5, handle[0], 0));
	inlay_sq_ring(&t.cmd.sq);
	assert_true(take(&t, &wc) == 0 && t.list.room == 3 && !t.cmd.sq.pending);
	unexpected(&t, 100);
	assert_int_equal(inlay_tag_list_unsynced_(&t.list), 1);
	sync_now(&t, 6);
	assert_int_equal(inlay_tag_list_unsynced_(&t.list), 0);
	/* A SYNC without its flag tells nothing, and so hears that there is something to tell */
	unexpected(&t, 100);
	must(inlay_tag_list_sync(&t.list, 7, IBV_OPS_SIGNALED));
	inlay_sq_ring(&t.cmd.sq);
	expect(&t, IBV_WC_TM_SYNC, IBV_WC_SUCCESS, 7, IBV_WC_TM_SYNC_REQ);
	assert_int_equal(inlay_tag_list_unsynced_(&t.list), 1);
	/* On an ADD and on a DEL */
	handle[0] = add(&t, 8, 0, 1, EXACT);
	matched(&t, 1, 1008);
	handle[0] = add(&t, 9, 0, 1, EXACT);
	unexpected(&t, 2);
	del(&t, 10, handle[0]);
	assert_int_equal(inlay_tag_list_unsynced_(&t.list), 0);
	/* By mask, oldest first, and without a buffer */
	add(&t, 11, 0, 0xab00, 0xff00);
	must(inlay_tag_list_add(&t.list, 1012, 0, 0, NULL, IBV_OPS_SIGNALED, NULL));
	inlay_sq_ring(&t.cmd.sq);
	expect(&t, IBV_WC_TM_ADD, IBV_WC_SUCCESS, 1012, 0);
	add(&t, 13, 0, 0xab33, EXACT);
	matched(&t, 0xab33, 1011);
	eager(&t, 0xab33, 1, 0, 0);
	wc = expect(&t, IBV_WC_TM_RECV, IBV_WC_SUCCESS, 1012, BOTH);
	assert_int_equal(wc.byte_len, 0);
	matched(&t, 0xab33, 1013);
	whole(&t.list);
	assert_int_equal(t.list.room, 3);
	tm_close(&t);
}

devx_test(linked)
{
	struct ibv_sge sge;
	struct ibv_ops_wr wr[6], *bad = NULL;
	uint32_t i;

	usual_list(3, 16);
	sge = piece(&t.rx, 0, TAG_ROOM);
	for (i = 0; i < 3; i++) {
		wr[i] = op_wr(i + 1, IBV_WR_TAG_ADD, IBV_OPS_SIGNALED, &wr[i + 1]);
		wr[i].tm.add.sg_list = &sge;
		wr[i].tm.add.num_sge = 1;
	}
	wr[3] = op_wr(4, IBV_WR_TAG_DEL, IBV_OPS_SIGNALED, &wr[4]);
	wr[4] = op_wr(5, IBV_WR_TAG_SYNC, IBV_OPS_SIGNALED, NULL);
	/* The handle of an operation before it, as a program may know it: the third entry, of generation 0 */
	wr[3].tm.handle = 2;
	must(inlay_tag_list_post_ops(&t.list, wr, &bad));
	assert_null(bad);
	for (i = 0; i < 3; i++)
		assert_int_equal(expect(&t, IBV_WC_TM_ADD, IBV_WC_SUCCESS, i + 1, 0).handle, wr[i].tm.handle);
	assert_int_equal(wr[2].tm.handle, 2);
	expect(&t, IBV_WC_TM_DEL, IBV_WC_SUCCESS, 4, 0);
	expect(&t, IBV_WC_TM_SYNC, IBV_WC_SUCCESS, 5, 0);
	matched(&t, 2, 1002);
	/* libmlx5 rings for a batch of which the last does not fit, with that one half built. One place is free, and only the first is done */
	for (i = 0; i < 2; i++) {
		wr[i] = op_wr(10 + i, IBV_WR_TAG_ADD, IBV_OPS_SIGNALED, i ? NULL : &wr[1]);
		wr[i].tm.add.sg_list = &sge;
		wr[i].tm.add.num_sge = 1;
	}
	must(try_add(&t, 9, 0, 9, EXACT, 0, &i));
	assert_int_equal(inlay_tag_list_post_ops(&t.list, wr, &bad), -EAGAIN);
	assert_true(bad == &wr[1] && inlay_sq_rung(&t.cmd.sq) == inlay_sq_index(&t.cmd.sq));
	expect(&t, IBV_WC_TM_ADD, IBV_WC_SUCCESS, 10, 0);
	expect_nothing(&t.cq.cq);
	matched(&t, 10, 1010);
	matched(&t, 9, 1009);
	/* What is wrong, in each place: those before it are done, those behind it not */
	for (i = 0; i < 6; i++) {
		struct ibv_ops_wr first = op_wr(20, IBV_WR_TAG_SYNC, IBV_OPS_SIGNALED, &wr[0]);

		bad = NULL;
		wr[0] = op_wr(21, i == 0 ? (enum ibv_ops_wr_opcode)77 : i == 1 ? IBV_WR_TAG_DEL : IBV_WR_TAG_ADD, IBV_OPS_SIGNALED, &wr[1]);
		wr[1] = op_wr(22, IBV_WR_TAG_SYNC, IBV_OPS_SIGNALED, NULL);
		wr[0].tm.handle = i == 1 ? 99 : 0;
		wr[0].flags |= i == 4 ? IBV_OPS_TM_SYNC : 0;
		wr[0].tm.unexpected_cnt = i == 4;
		wr[0].tm.add.num_sge = (const int[]){0, 0, 2, -1, 0, 1}[i]; /* of no list */
		assert_int_equal(inlay_tag_list_post_ops(&t.list, &first, &bad), i == 1 ? -ENOENT : -EINVAL);
		assert_ptr_equal(bad, &wr[0]);
		expect(&t, IBV_WC_TM_SYNC, IBV_WC_SUCCESS, 20, 0);
		expect_nothing(&t.cq.cq);
		whole(&t.list);
	}
	/* The counts: all of those between what was told and what was handed out */
	for (i = 0; i < 3; i++)
		unexpected(&t, 77);
	wr[0] = op_wr(30, IBV_WR_TAG_SYNC, SYNCED, NULL);
	wr[0].tm.unexpected_cnt = 2 + 65536;
	must(inlay_tag_list_post_ops(&t.list, wr, &bad));
	expect(&t, IBV_WC_TM_SYNC, IBV_WC_SUCCESS, 30, IBV_WC_TM_SYNC_REQ);
	assert_int_equal(inlay_tag_list_unsynced_(&t.list), 1);
	for (wr[0].tm.unexpected_cnt = 1; wr[0].tm.unexpected_cnt <= 4; wr[0].tm.unexpected_cnt += 3)
		assert_int_equal(inlay_tag_list_post_ops(&t.list, wr, &bad), -EINVAL);
	wr[0].tm.unexpected_cnt = 3;
	must(inlay_tag_list_post_ops(&t.list, wr, &bad));
	expect(&t, IBV_WC_TM_SYNC, IBV_WC_SUCCESS, 30, 0);
	matched(&t, 1, 1001);
	tm_close(&t);
}

devx_test(full)
{
	uint32_t handle[8], more, i;
	struct inlay_tag_wc wc;

	usual_list(7, 16);
	for (i = 0; i < 7; i++)
		must(try_add(&t, i, i, i, EXACT, 0, &handle[i]));
	more = 0x12345678;
	assert_int_equal(try_add(&t, 7, 7, 7, EXACT, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC, &more), -EAGAIN);
	assert_int_equal(more, 0x12345678);
	inlay_sq_ring(&t.cmd.sq);
	whole(&t.list);
	/* What asks for no completion asks for one from time to time: no ring is full for ever */
	for (i = 0; i < 9; i++)
		must(inlay_tag_list_sync(&t.list, 50, 0));
	assert_int_equal(inlay_tag_list_sync(&t.list, 51, 0), -EAGAIN);
	assert_int_equal(inlay_tag_list_del(&t.list, 51, handle[0], 0), -EAGAIN);
	inlay_sq_ring(&t.cmd.sq);
	for (i = 0; i < 4; i++)
		assert_int_equal(take(&t, &wc), 0);
	expect_nothing(&t.cq.cq);
	assert_int_equal(inlay_sq_room(&t.cmd.sq), 16);
	whole(&t.list);
	for (i = 0; i < 7; i++)
		must(inlay_tag_list_del(&t.list, i, handle[i], IBV_OPS_SIGNALED));
	inlay_sq_ring(&t.cmd.sq);
	/* Free only when it is known that they are: then again the whole list */
	assert_int_equal(t.list.room, 0);
	for (i = 0; i < 7; i++)
		expect(&t, IBV_WC_TM_DEL, IBV_WC_SUCCESS, i, 0);
	assert_int_equal(t.list.room, 7);
	tm_close(&t);
}

devx_test(handles)
{
	uint32_t a, b, i;

	usual_list(1, 16);
	a = add(&t, 1, 0, 5, EXACT);
	for (i = 0; i < 4; i++)
		assert_int_equal(inlay_tag_list_del(&t.list, 2, (const uint32_t[]){a + 1, a + 2, a + 0x10000, ~0u}[i], 0), -ENOENT);
	must(inlay_tag_list_del(&t.list, 3, a, IBV_OPS_SIGNALED));
	assert_int_equal(inlay_tag_list_del(&t.list, 3, a, IBV_OPS_SIGNALED), -EBUSY);
	inlay_sq_ring(&t.cmd.sq);
	expect(&t, IBV_WC_TM_DEL, IBV_WC_SUCCESS, 3, 0);
	assert_int_equal(inlay_tag_list_del(&t.list, 3, a, IBV_OPS_SIGNALED), -ENOENT);
	/* The other entry, then this one again, of which the old handle is none */
	b = add(&t, 4, 0, 5, EXACT);
	assert_int_not_equal(a & 0xffff, b & 0xffff);
	matched(&t, 5, 1004);
	assert_int_equal(inlay_tag_list_del(&t.list, 5, b, 0), -ENOENT);
	b = add(&t, 6, 0, 5, EXACT);
	assert_int_equal(a & 0xffff, b & 0xffff);
	assert_int_equal(inlay_tag_list_del(&t.list, 7, a, 0), -ENOENT);
	del(&t, 8, b);
	whole(&t.list);
	tm_close(&t);
}

/* ---- kinds of completions ---- */

/* A header of any kind, and bytes behind it; its answer has come */
static void raw(const void *head, uint32_t head_len, uint32_t len)
{
	uint32_t index = inlay_sq_index(t.tx.sq);
	struct ibv_sge sge[2];

	memcpy(t.tx.buf + 3 * QUARTER, head, head_len);
	sge[0] = piece(&t.tx, 3 * QUARTER, head_len);
	sge[1] = piece(&t.tx, 11, len);
	must(inlay_post_send(t.tx.sq, sge, 2, INLAY_SIGNALED | INLAY_RING));
	take_sent(&t.tx, index, NULL);
}

/* On a list without rendezvous, also in more than one packet */
devx_test(software_rendezvous)
{
	struct inlay_rvh rvh;
	struct inlay_tag_wc wc;
	static const struct tagged_how how = {.tags = 4, .bbs = 16, .no_rndv = true};
	uint8_t head[32];

	tm_open(&t, &how);
	rvh = rvh_of(0, 100);
	add(&t, 1, 0, 1, EXACT);
	must(inlay_tag_send_rndv(t.tx.sq, 2, 1, &rvh, NULL, 0, INLAY_SIGNALED | INLAY_RING));
	take_sent(&t.tx, 0, NULL);
	wc = expect(&t, IBV_WC_TM_RECV, IBV_WC_TM_RNDV_INCOMPLETE, 1001, BOTH);
	assert_int_equal(wc.byte_len, 32);
	add(&t, 2, 0, 1, EXACT);
	raw(head, head_put(head, IBV_TMH_RNDV, 3, 1, &rvh), 2000);
	for (int i = 0; i < 2; i++) {
		wc = expect(&t, IBV_WC_TM_RECV, IBV_WC_TM_RNDV_INCOMPLETE, 1002, i ? IBV_WC_TM_DATA_VALID : IBV_WC_TM_MATCH);
		assert_true(wc.tag == 1 && wc.app_ctx == 3);
		assert_int_equal(wc.app_op, i ? INLAY_TAG_EXPECTED : INLAY_TAG_CONSUMED_SW_RNDV);
	}
	assert_true(wc.byte_len == 2032 && !memcmp(t.rx.buf, head, 32));
	whole(&t.list);
	tm_close(&t);
}

devx_test(no_tag)
{
	struct inlay_tag_wc wc;
	uint8_t head[16];

	usual_list(4, 16);
	add(&t, 1, 0, 0, 0);
	entries(&t, 2);
	raw(head, head_put(head, IBV_TMH_NO_TAG, 3, 1, NULL), 500);
	wc = expect(&t, IBV_WC_TM_NO_TAG, IBV_WC_SUCCESS, 0, 0);
	assert_int_equal(wc.byte_len, 516);
	came(&t, t.rx.buf + slot_of(&t, 0) + 16, 11, 500);
	raw(head, 3, 0);
	wc = expect(&t, IBV_WC_TM_NO_TAG, IBV_WC_SUCCESS, 1, 0);
	assert_true(!inlay_tag_list_unsynced_(&t.list) && wc.byte_len == 3);
	tm_close(&t);
}

/* Payload in the first half of a 128-byte CQE, matched or not */
devx_test(in_the_cqe)
{
	static const uint8_t with_data[] = {INLAY_TAG_UNEXPECTED, INLAY_TAG_NO_TAG, INLAY_TAG_CONSUMED_MSG};
	static const uint32_t lengths[] = {0, 1, 32, 33, 48, 64, 65, 100};
	struct inlay_tag_wc wc;
	static const struct tagged_how how = {.tags = 4, .bbs = 16, .cqe_size = 128, .scatter = 64};
	struct mlx5_cqe64 *cqe;
	struct ibv_sge sge;
	uint64_t slot[16];
	uint32_t i, handle = 0;

	tm_open(&t, &how);
	for (i = 0; i < ARRAY(lengths); i++) {
		add(&t, i, 0, 5, EXACT);
		memset(t.rx.buf, 0, 128);
		eager(&t, 5, i, 77, lengths[i]);
		wc = expect(&t, IBV_WC_TM_RECV, IBV_WC_SUCCESS, i + 1000, BOTH);
		assert_true(wc.byte_len == lengths[i] && wc.tag == 5 && wc.app_ctx == i);
		assert_int_equal(wc.payload != NULL, lengths[i] && lengths[i] <= 64);
		came(&t, wc.payload ? t.data : t.rx.buf, 77, lengths[i]);
		entries(&t, 1);
		memset(t.rx.buf + slot_of(&t, i), 0, 128);
		eager(&t, 6, i, 77, lengths[i]);
		wc = expect(&t, IBV_WC_TM_RECV, IBV_WC_SUCCESS, (t.posted - 1) & 63, 0);
		assert_true(wc.byte_len == lengths[i] + 16 && (wc.payload != NULL) == (lengths[i] <= 48));
		came(&t, (wc.payload ? t.data : t.rx.buf + slot_of(&t, wc.wr_id)) + 16, 77, lengths[i]);
		sync_now(&t, 1);
	}
	/* More than the buffer would have held, from a device that looks at the CQE's place only: made by hand */
	sge = piece(&t.rx, 0, 20);
	must(inlay_tag_list_add(&t.list, 2, 5, EXACT, &sge, IBV_OPS_SIGNALED, &handle));
	inlay_sq_ring(&t.cmd.sq);
	expect(&t, IBV_WC_TM_ADD, IBV_WC_SUCCESS, 2, 0);
	cqe = (struct mlx5_cqe64 *)(void *)(slot + 8);
	memset(slot, 0, sizeof(slot));
	cqe->app = INLAY_CQE_APP_TAG;
	cqe->app_op = INLAY_TAG_CONSUMED_MSG;
	cqe->app_info = inlay_to_be16((uint16_t)handle);
	cqe->op_own = MLX5_CQE_RESP_SEND << 4 | INLAY_CQE_SCATTER_64;
	cqe->byte_cnt = inlay_to_be32(21);
	/* 64 bytes of a CQE that has no first half, or more of them than there are */
	for (i = 0; i < ARRAY(with_data); i++) {
		cqe->app_op = with_data[i];
		cqe->byte_cnt = inlay_to_be32(21);
		assert_int_equal(inlay_tag_list_complete(&t.list, cqe, 64, &wc), -EPROTO);
		cqe->byte_cnt = inlay_to_be32(65);
		assert_int_equal(inlay_tag_list_complete(&t.list, cqe, 128, &wc), -EPROTO);
	}
	/* Then from one that says that they are in the buffer; as many as it has are no error */
	for (i = 22; i >= 20; i--) {
		if (i < 22) {
			must(inlay_tag_list_add(&t.list, 2, 5, EXACT, &sge, IBV_OPS_SIGNALED, &handle));
			inlay_sq_ring(&t.cmd.sq);
			expect(&t, IBV_WC_TM_ADD, IBV_WC_SUCCESS, 2, 0);
			cqe->app_info = inlay_to_be16((uint16_t)handle);
			cqe->op_own = MLX5_CQE_RESP_SEND << 4;
		}
		cqe->byte_cnt = inlay_to_be32(i);
		assert_int_equal(inlay_tag_list_complete(&t.list, cqe, 128, &wc), 1);
		assert_true(wc.status == (i == 20 ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR) && wc.wr_id == 2);
		assert_ptr_equal(wc.payload, i == 22 ? slot : NULL);
		whole(&t.list);
	}
	tm_close(&t);
}

/* ---- message.h: what another QP of any kind receives ---- */

devx_test(on_the_wire)
{
	uint8_t expected[4096], data[1024];
	struct side a, b;
	struct inlay_rvh rvh;
	struct ibv_sge sge[3], room;
	uint32_t i, k, n, len, off, index;

	sides_make(&a, &plain, &b, &plain);
	fill(a.buf, BYTES, 1);
	fill(data, sizeof(data), 5);
	for (i = 0; i < 300; i++) {
		uint32_t ctx = (uint32_t)rnd(), kind = i % 4;
		uint64_t tag = rnd();

		room = piece(&b, 0, 4096);
		memset(b.buf, 0, 4096);
		must(inlay_post_recv(b.rq, &room, 1));
		inlay_rq_ring(b.rq);
		for (k = rnd_below(3); k--;)
			must(inlay_post(a.sq, MLX5_OPCODE_NOP, NULL, 0));
		index = inlay_sq_index(a.sq);
		rvh.va = rnd();
		rvh.rkey = (uint32_t)rnd();
		rvh.len = (uint32_t)rnd();
		n = head_put(expected, kind < 2 ? IBV_TMH_EAGER : kind == 2 ? IBV_TMH_RNDV : IBV_TMH_FIN, ctx, tag, kind < 2 ? NULL : &rvh);
		if (kind < 2) { /* SGEs, or the same bytes inline */
			k = rnd_below(4);
			for (off = 0; off < k; off++) {
				sge[off] = piece(&a, rnd_below(1000), rnd_below(4) ? rnd_below(kind ? 90 : 1000) : 0);
				memcpy(expected + n, (void *)(uintptr_t)sge[off].addr, sge[off].length);
				n += sge[off].length;
			}
			must(inlay_tag_send_eager(a.sq, ctx, tag, sge, k, INLAY_SIGNALED | (kind ? INLAY_INLINE : 0)));
		} else {
			len = kind == 2 ? rnd_below(33) : 0;
			must(kind == 2 ? inlay_tag_send_rndv(a.sq, ctx, tag, &rvh, data, len, INLAY_SIGNALED) :
					 inlay_tag_send_fin(a.sq, ctx, tag, &rvh, INLAY_SIGNALED));
			memcpy(expected + n, data, len);
			n += len;
		}
		inlay_sq_ring(a.sq);
		take_received(&b, MLX5_CQE_RESP_SEND, n, 0, NULL);
		assert_true(!memcmp(b.buf, expected, n) && !b.buf[n]);
		take_sent(&a, index, NULL);
	}
	/* What does not fit */
	memset(sge, 0, sizeof(sge));
	assert_int_equal(inlay_tag_send_eager(a.sq, 0, 0, NULL, INLAY_MAX_DS + 1, 0), -EINVAL);
	assert_int_equal(inlay_tag_send_rndv(a.sq, 0, 0, &rvh, data, 33, 0), -EINVAL);
	for (i = 0; i < 4; i++) {
		sge[1].length = (const uint32_t[]){1000, 1009, 0x7fffffff, 0xffffffff}[i];
		assert_int_equal(inlay_tag_send_eager(a.sq, 0, 0, sge, 2, INLAY_INLINE), -EINVAL);
	}
	index = inlay_sq_index(a.sq);
	sge[0].length = 1; /* a whole WQEBB */
	for (i = 0; i < 64; i++)
		must(inlay_tag_send_eager(a.sq, 0, 0, sge, 1, 0));
	assert_int_equal(inlay_tag_send_eager(a.sq, 0, 0, NULL, 0, 0), -EAGAIN);
	assert_int_equal(inlay_tag_send_fin(a.sq, 0, 0, &rvh, 0), -EAGAIN);
	sides_free(&a, &b);
}

/* ---- errors ---- */

/* The command queue stops: what it had is told, and is not in the list */
devx_test(command_queue_fails)
{
	uint32_t handle[4], i, n = 0;
	struct inlay_tag_wc wc;

	usual_list(4, 16);
	handle[0] = add(&t, 1, 0, 1, EXACT);
	must(try_add(&t, 2, 1, 2, EXACT, 0, &handle[1]));
	inlay_sq_ring(&t.cmd.sq);
	sync_now(&t, 3);
	must(inlay_devx_qp_modify(&t.cmd, INLAY_QP_STATE_ERR, NULL, NULL));
	must(try_add(&t, 10, 2, 3, EXACT, 0, &handle[2]));
	must(inlay_tag_list_del(&t.list, 11, handle[2], 0));
	must(inlay_tag_list_del(&t.list, 12, handle[0], IBV_OPS_SIGNALED));
	must(inlay_tag_list_sync(&t.list, 13, IBV_OPS_SIGNALED));
	must(try_add(&t, 14, 3, 4, EXACT, IBV_OPS_SIGNALED, &handle[3]));
	inlay_sq_ring(&t.cmd.sq);
	for (i = 0; i < 5; i++) {
		assert_int_equal(take(&t, &wc), 1);
		assert_true(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 10 + n + (n == 0 || n == 4 ? 1000 : 0));
		assert_int_equal(wc.app_op, 0);
		assert_int_equal(wc.opcode, n == 0 || n == 4 ? IBV_WC_TM_ADD : n == 3 ? IBV_WC_TM_SYNC : IBV_WC_TM_DEL);
		if (wc.opcode != IBV_WC_TM_SYNC)
			assert_int_equal(wc.handle, handle[n < 2 ? 2 : n == 2 ? 0 : 3]);
		n++;
	}
	expect_nothing(&t.cq.cq);
	/* What the NIC has goes on matching */
	matched(&t, 1, 1001);
	matched(&t, 2, 1002);
	tm_close(&t);
}

/* libmlx5 has no case for it and says IBV_WC_RECV with success's flags */
devx_test(cancelled_is_no_receive)
{
	struct inlay_rvh rvh;
	struct inlay_tag_wc wc;

	usual_list(4, 16);
	add(&t, 1, 0, 6, EXACT);
	matched(&t, 6, 1001);
	add(&t, 2, 0, 6, EXACT);
	/* A key that is none: the device's READ fails, and with it the connection */
	rvh = rvh_of(0, 1000);
	rvh.rkey ^= 0x55aa00;
	must(inlay_tag_send_rndv(t.tx.sq, 0x99, 6, &rvh, NULL, 0, INLAY_SIGNALED | INLAY_RING));
	expect(&t, IBV_WC_TM_RECV, IBV_WC_SUCCESS, 1002, IBV_WC_TM_MATCH);
	wc = expect(&t, IBV_WC_TM_RECV, IBV_WC_TM_RNDV_INCOMPLETE, 1002, BOTH);
	assert_true(wc.app_op == INLAY_TAG_CANCELED && wc.tag == 6 && wc.app_ctx == 0x99 && !wc.byte_len);
	assert_int_equal(t.list.room, 4);
	whole(&t.list);
	t.dead = true;
	tm_close(&t);
}

/* libmlx5 takes the error of a tagged buffer for one of an SRQ entry: it frees entry 0, and the tag is lost */
devx_test(error_of_a_tagged_buffer)
{
	struct inlay_tag_wc wc;
	struct ibv_sge sge;
	uint32_t room;

	usual_list(4, 16);
	entries(&t, 3);
	room = inlay_srq_room(&t.xrq.srq);
	add(&t, 1, 0, 4, EXACT);
	sge = piece(&t.rx, 0, 50);
	must(inlay_tag_list_add(&t.list, 1002, 5, EXACT, &sge, IBV_OPS_SIGNALED, NULL));
	inlay_sq_ring(&t.cmd.sq);
	expect(&t, IBV_WC_TM_ADD, IBV_WC_SUCCESS, 1002, 0);
	post_eager(5, 51);
	failed_sender(IBV_WC_REM_INV_REQ_ERR);
	wc = expect(&t, IBV_WC_TM_RECV, IBV_WC_LOC_LEN_ERR, 1002, IBV_WC_TM_MATCH);
	assert_true((wc.handle & 0xffff) == 1 && inlay_srq_room(&t.xrq.srq) == room && t.list.room == 3);
	whole(&t.list);
	tm_close(&t);
}

/* An entry of the XRQ that is too small: its error, not a tag's */
devx_test(entry_too_small)
{
	static const struct tagged_how how = {.tags = 4, .bbs = 16, .slot = 64};

	tm_open(&t, &how);
	entries(&t, 1);
	post_eager(2, 100);
	failed_sender(IBV_WC_REM_INV_REQ_ERR);
	expect(&t, IBV_WC_TM_NO_TAG, IBV_WC_LOC_LEN_ERR, 0, 0);
	assert_true(!inlay_tag_list_unsynced_(&t.list) && t.list.room == 4);
	tm_close(&t);
}

/* ---- CQEs that cannot be ---- */

devx_test(hostile)
{
	uint32_t i, k, lost, refused = 0, handle[8] = {0};
	struct inlay_tag_list list;
	struct inlay_tag_wc wc;
	uint64_t slot[16];        /* 128 bytes: what is before the CQE is there */
	struct mlx5_cqe64 *cqe = (struct mlx5_cqe64 *)(void *)(slot + 8);
	void *memory = pages(4096);
	struct inlay_sq sq;
	struct inlay_uar uar;
	uint64_t ring[16 * 8 + 8];
	uint32_t dbrec[2];
	uint8_t *buf = (uint8_t *)(((uintptr_t)ring + 63) & ~(uintptr_t)63);

	for (i = 0; i < 500; i++) {
		memset(slot, 0, sizeof(slot));
		must(inlay_uar_init(&uar, (uint8_t *)memory + 2048, 256, INLAY_UAR_DOORBELL));
		must(inlay_sq_init(&sq, buf, 16, dbrec, 99, 63, &uar));
		must(inlay_tag_list_init(&list, memory, 4096 / 2, 6, &sq, UIDX));
		/* From time to time something is posted; all that comes back is noise of the right form */
		for (lost = k = 0; k < 60; k++) {
			int told;

			switch (rnd_below(8)) {
			case 0:
			case 1:
				inlay_tag_list_add(&list, k, k, EXACT, NULL, (int)rnd_below(2), &handle[rnd_below(8)]);
				break;
			case 2:
				inlay_tag_list_del(&list, k, rnd_below(2) ? handle[rnd_below(8)] : rnd_below(8), (int)rnd_below(2));
				break;
			case 3: inlay_tag_list_sync(&list, k, (int)rnd_below(2)); break;
			default:
				cqe->app = INLAY_CQE_APP_TAG;
				cqe->app_op = (uint8_t)(rnd_below(10) ? rnd_below(13) : rnd());
				cqe->app_info = inlay_to_be16((uint16_t)(rnd_below(10) ? rnd_below(8) : rnd()));
				cqe->wqe_counter = inlay_to_be16((uint16_t)(rnd_below(10) ? list.done + rnd_below(6) : rnd()));
				cqe->byte_cnt = inlay_to_be32(rnd_below(10) ? rnd_below(100) : (uint32_t)rnd());
				cqe->tm_cqe.success = inlay_to_be32(rnd_below(2) << 31);
				cqe->tm_cqe.hw_phase_cnt = (uint16_t)rnd();
				cqe->srqn_uidx = inlay_to_be32(UIDX);
				cqe->sop_drop_qpn = inlay_to_be32(99);
				cqe->op_own = (uint8_t)(rnd_below(4) ? (uint32_t)MLX5_CQE_RESP_SEND :
							rnd_below(2) ? (uint32_t)MLX5_CQE_REQ_ERR : rnd_below(16));
				cqe->op_own = (uint8_t)(cqe->op_own << 4 | (rnd_below(3) ? 0 : rnd_below(16)));
				if (rnd_below(10) == 0)
					cqe->app = 0;
				if (!inlay_tag_list_owns(&list, cqe))
					break;
				told = inlay_tag_list_complete(&list, cqe, rnd_below(2) ? 64 : 128, &wc);
				assert_true(told == 0 || told == 1 || told == -EPROTO);
				refused += told < 0;
				lost |= told > 0 && inlay_cqe_is_send(cqe);
				if (told > 0 && wc.payload)
					assert_true(wc.byte_len <= 64);
			}
			if (!lost)
				whole(&list);
		}
	}
	assert_true(refused > 250);
	free(memory);
}

/* ... each kind by itself: refused, and all is as it was */
devx_test(impossible)
{
	struct inlay_tag_list before, *list = &t.list;
	struct inlay_tag_entry_ entries_[5];
	struct inlay_tag_wc wc;
	struct mlx5_cqe64 cqe;
	static const struct { uint8_t opcode, app_op; uint16_t entry; uint32_t success; } bad[] = {
		{MLX5_CQE_RESP_SEND, INLAY_TAG_EXPECTED, 0, 0},         /* not consumed */
		{MLX5_CQE_RESP_SEND, INLAY_TAG_CONSUMED_MSG, 1, 0},     /* consumed already */
		{MLX5_CQE_NO_PACKET, INLAY_TAG_CONSUMED, 1, 0},
		{MLX5_CQE_RESP_SEND, INLAY_TAG_CONSUMED_MSG, 2, 0},     /* not in the list */
		{MLX5_CQE_RESP_SEND, INLAY_TAG_CONSUMED_MSG, 5, 0},     /* beyond it */
		{MLX5_CQE_RESP_SEND, INLAY_TAG_CONSUMED_MSG, 65535, 0}, {MLX5_CQE_RESP_SEND, INLAY_TAG_CANCELED, 2, 0},
		{MLX5_CQE_RESP_ERR, INLAY_TAG_CONSUMED_MSG, 3, 0},
		{MLX5_CQE_NO_PACKET, INLAY_TAG_APPENDED, 0, 1},         /* of another operation than the oldest */
		{MLX5_CQE_NO_PACKET, INLAY_TAG_NOOP, 0, 1},
		{MLX5_CQE_NO_PACKET, INLAY_TAG_REMOVED, 1, 1},          /* what is consumed cannot be removed */
		{MLX5_CQE_RESP_ERR, INLAY_TAG_REMOVED, 1, 1},
		{MLX5_CQE_RESP_SEND, 0, 0, 0},                          /* no such kinds */
		{MLX5_CQE_RESP_SEND, 8, 0, 0}, {MLX5_CQE_RESP_SEND, 13, 0, 0},
		{MLX5_CQE_REQ, INLAY_TAG_REMOVED, 1, 1},                /* a command queue completes none as sends */
	};

	usual_list(4, 16);
	add(&t, 1, 0, 1, EXACT);
	add(&t, 2, 1, 2, EXACT);
	eager(&t, 2, 0, 0, 3000);
	expect(&t, IBV_WC_TM_RECV, IBV_WC_SUCCESS, 1002, IBV_WC_TM_MATCH);
	must(inlay_tag_list_del(list, 3, 1, IBV_OPS_SIGNALED));
	before = *list;
	memcpy(entries_, list->entries, sizeof(entries_));
	for (uint32_t i = 0; i < ARRAY(bad); i++) {
		cqe = (struct mlx5_cqe64){.app = INLAY_CQE_APP_TAG, .app_op = bad[i].app_op,
					  .app_info = inlay_to_be16(bad[i].entry)};
		cqe.tm_cqe.success = inlay_to_be32(bad[i].success << 31);
		cqe.op_own = (uint8_t)(bad[i].opcode << 4);
		if (inlay_tag_list_complete(list, &cqe, 64, &wc) != -EPROTO)
			fail_msg("%u was taken", i);
		assert_memory_equal(list, &before, sizeof(before));
		assert_memory_equal(list->entries, entries_, sizeof(entries_));
	}
	/* Flushes of what was not posted, or of what lies behind one that must complete by itself */
	must(inlay_tag_list_sync(list, 4, 0));
	before = *list;
	for (uint32_t i = 1; i < 65536; i += i < 20 ? 1 : 1000) {
		cqe = (struct mlx5_cqe64){.wqe_counter = inlay_to_be16((uint16_t)(list->done + i)),
					  .op_own = MLX5_CQE_REQ_ERR << 4};
		assert_int_equal(inlay_tag_list_complete(list, &cqe, 64, &wc), -EPROTO);
	}
	assert_memory_equal(list, &before, sizeof(before));
	inlay_sq_ring(list->sq);
	expect(&t, IBV_WC_TM_RECV, IBV_WC_SUCCESS, 1002, IBV_WC_TM_DATA_VALID);
	expect(&t, IBV_WC_TM_DEL, IBV_WC_TM_ERR, 3, 0);
	matched(&t, 1, 1001);
	whole(list);
	tm_close(&t);
}

/* An error of an operation whose receive is long over leaves the receive that has its entry now. Other lists' CQEs are not ours. */
devx_test(entry_in_other_hands)
{
	struct mlx5_cqe64 cqe;
	struct inlay_tag_wc wc;
	uint32_t i, handle[3];

	usual_list(1, 16);
	for (i = 0; i < 3; i++) {
		must(try_add(&t, i, 0, 5, EXACT, 0, &handle[i]));
		inlay_sq_ring(&t.cmd.sq);
		if (i < 2)
			matched(&t, 5, 1000 + i);
	}
	assert_int_equal(handle[2] & 0xffff, handle[0] & 0xffff);
	cqe = (struct mlx5_cqe64){.sop_drop_qpn = inlay_to_be32(inlay_sq_qpn(&t.cmd.sq)),
				  .op_own = MLX5_CQE_REQ_ERR << 4};
	assert_true(inlay_tag_list_owns(&t.list, &cqe));
	assert_true(inlay_tag_list_complete(&t.list, &cqe, 64, &wc) == 1 && wc.wr_id == 1000);
	whole(&t.list);
	matched(&t, 5, 1002);
	cqe.sop_drop_qpn = inlay_to_be32(inlay_sq_qpn(&t.cmd.sq) + 1);
	assert_false(inlay_tag_list_owns(&t.list, &cqe));
	cqe.op_own = MLX5_CQE_RESP_SEND << 4;
	cqe.app = INLAY_CQE_APP_TAG;
	cqe.srqn_uidx = inlay_to_be32(UIDX);
	assert_true(inlay_tag_list_owns(&t.list, &cqe));
	cqe.srqn_uidx = inlay_to_be32(UIDX + 1);
	assert_false(inlay_tag_list_owns(&t.list, &cqe));
	whole(&t.list);
	tm_close(&t);
}

/* ---- counters beyond 16 bits: libmlx5 compares the device's 16 with the program's 32, and then each ADD says SYNC_REQ ---- */

devx_test(counters)
{
	uint32_t i, at = 0, to, handle;
	struct inlay_tag_wc wc;

	usual_list(4, 64);
	/* Operations, of which each uses a WQEBB */
	for (i = 0; i < 66000; i++) {
		must(inlay_tag_list_sync(&t.list, i, 0));
		if (i % 32 == 31) {
			inlay_sq_ring(&t.cmd.sq);
			while (t.cmd.sq.pending > 17)
				take(&t, &wc);
		}
	}
	assert_true(t.cmd.sq.pi > 65536);
	handle = add(&t, 1, 0, 1, EXACT);
	del(&t, 2, handle);
	/* Unexpected messages */
	for (i = 0; at < 66000; i++, at = to) {
		static const uint32_t stops[] = {1, 1000, 17000, 32767, 32768, 32769, 49000, 65535, 65536, 65537, 66000};

		to = stops[i];
		many_unexpected(to - at);
		assert_int_equal(inlay_tag_list_unsynced_(&t.list), to - at);
		/* One that was added before they were all told of is not matched, and is when they are */
		must(try_add(&t, 3, 0, 0x5707, EXACT, IBV_OPS_SIGNALED, &handle));
		inlay_sq_ring(&t.cmd.sq);
		expect(&t, IBV_WC_TM_ADD, IBV_WC_SUCCESS, 1003, IBV_WC_TM_SYNC_REQ);
		sync_now(&t, 4);
		matched(&t, 0x5707, 1003);
		del(&t, 6, add(&t, 5, 0, 1, EXACT));
	}
	whole(&t.list);
	tm_close(&t);
}

int main(void)
{
	return rig_here() && on_each(run_all(rig_open, rig_close));
}
