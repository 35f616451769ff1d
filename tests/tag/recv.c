/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * recv.c: receives in the table and the NIC's list together: what the NIC gets, is told, gives back.
 */
#include "rig.h"

static struct inlay_match match;
static struct inlay_tag_rx rx;
static void *match_memory;

static void rx_open(uint32_t tags, uint32_t bbs, uint64_t ignored, uint32_t min_len)
{
	usual_list(tags, bbs);
	match_memory = made(aligned_alloc(64, inlay_match_size(64)));
	must(inlay_match_init(&match, match_memory, inlay_match_size(64), 64, ignored, 1));
	must(inlay_tag_rx_init(&rx, &match, &t.list, min_len));
}

static void rx_close(void)
{
	whole(&t.list);
	free(match_memory);
	tm_close(&t);
}

/* A receive of len bytes in buffer n: its handle; whether the NIC has it */
static uint64_t rx_post(uint64_t tag, uint32_t n, uint32_t len, uint64_t cookie, uint32_t in_hw)
{
	struct ibv_sge sge = piece(&t.rx, n * TAG_ROOM, len);
	struct inlay_match_found found;

	must(inlay_tag_rx_post(&rx, tag, EXACT, &sge, cookie, &found));
	assert_int_equal(found.in_hw, in_hw);
	return found.handle;
}

/* What the next completion is */
static int rx_next(struct inlay_tag_wc *wc)
{
	int kind = inlay_tag_rx_complete(&rx, cqe_wait(&t.cq.cq), 64, wc);

	if (kind >= 0 && (wc->opcode == IBV_WC_TM_NO_TAG || (wc->opcode == IBV_WC_TM_RECV && !(wc->flags & BOTH))))
		must(inlay_srq_release(&t.xrq.srq, inlay_cq_peek(&t.cq.cq)));
	inlay_cq_advance(&t.cq.cq, 1);
	return kind;
}

/* The receive's one completion; no message is unexpected before it */
static struct inlay_tag_wc rx_done(uint64_t cookie)
{
	struct inlay_tag_wc wc;

	while (rx_next(&wc) != INLAY_TAG_RX_DONE)
		assert_int_not_equal(wc.app_op, INLAY_TAG_UNEXPECTED);
	assert_int_equal(wc.wr_id, cookie);
	return wc;
}

/* Tells the device all there is to tell, and lets it hear */
static void told(void)
{
	inlay_tag_rx_flush(&rx);
	settle();
}

/* A message that was handed out and has not arrived is not told to the device, whatever is posted in between: it would give the next
   one to the receive that takes the first. */
devx_test(told_after_arrival)
{
	struct inlay_match_found found;
	struct inlay_tag_wc wc;
	int kind, messages = 0;

	rx_open(4, 16, 0, 0);
	entries(&t, 4);
	eager(&t, 0x222, 0, 0, 10);
	assert_int_equal(rx_next(&wc), INLAY_TAG_RX_MESSAGE);
	rx_post(0x222, 0, 100, 22, 1);
	told();
	eager(&t, 0x222, 0, 0, 10);
	assert_true(inlay_tag_rx_arrive(&rx, 0x222, 1, 1, &found) == 1 && found.cookie == 22);
	inlay_tag_rx_flush(&rx);
	while (!messages || inlay_tag_rx_listed_(&rx)) {
		kind = rx_next(&wc);
		assert_true(kind == INLAY_TAG_RX_NOTHING || kind == INLAY_TAG_RX_MESSAGE);
		if (kind == INLAY_TAG_RX_NOTHING)
			continue;
		assert_int_equal(inlay_tag_rx_arrive(&rx, 0x222, 2, 1, &found), 0);
		messages++;
	}
	assert_int_equal(messages, 1);
	rx_close();
}

/* Whatever the NIC has can be taken back: room for its DELs is kept, where ADDs whose completions nobody asked for hold some of it. */
static void take_back(uint32_t held)
{
	struct inlay_match_found found;
	struct inlay_tag_wc wc;
	uint32_t i, in_hw = 0, canceled = 0;
	uint64_t handle[7];
	struct ibv_sge sge;

	rx_open(7, 16, 0, 0);
	for (i = 0; i < held; i++) {
		rx_post(i, 0, 100, i, 1);
		inlay_tag_rx_flush(&rx);
		eager(&t, i, 0, 0, 10);
		rx_done(i);
	}
	assert_int_equal(inlay_sq_room(&t.cmd.sq), 16 - held);
	sge = piece(&t.rx, 0, 100);
	for (i = 0; i < 7; i++) {
		must(inlay_tag_rx_post(&rx, i, EXACT, &sge, i, &found));
		handle[i] = found.handle;
		in_hw += found.in_hw;
	}
	assert_int_equal(in_hw, 6);
	/* Nor does the device hear of messages in that room */
	for (i = 0; i < 3; i++) {
		t.list.unexpected++;
		inlay_tag_rx_flush(&rx);
	}
	assert_int_equal(inlay_sq_room(&t.cmd.sq), in_hw);
	for (i = 0; i < 7; i++)
		canceled += (uint32_t)inlay_tag_rx_cancel(&rx, handle[i], &found);
	assert_int_equal(canceled, 7 - in_hw);
	inlay_tag_rx_flush(&rx);
	while (canceled < 7)
		canceled += rx_next(&wc) == INLAY_TAG_RX_CANCELED;
	assert_int_equal(t.list.room, 7);
	rx_close();
}

devx_test(room_to_take_back)
{
	take_back(3);
	take_back(2);
	/* A ring that is too short for that is refused */
	rx_open(7, 16, 0, 0);
	assert_int_equal(inlay_tag_rx_init(&rx, &match, NULL, 0), 0);
	t.list.max_tags = 8;
	assert_int_equal(inlay_tag_rx_init(&rx, &match, &t.list, 0), -EINVAL);
	t.list.max_tags = 7;
	rx_close();
}

/* The NIC ignores what the table does, and has no buffer that is too short to be worth it. */
devx_test(what_the_nic_gets)
{
	const uint64_t protocol = (uint64_t)1 << 63;

	rx_open(4, 16, protocol, 100);
	rx_post(7, 0, 99, 6, 0);
	rx_post(5, 0, 100, 7, 1);
	told();
	eager(&t, 5 | protocol, 1, 0, 10);
	assert_true(rx_done(7).tag == (5 | protocol));
	rx_close();
}

/* Half of the phase's range is never reached: the device hears of 2^14 messages even if nobody flushes. */
devx_test(told_in_time)
{
	struct inlay_match_found found;
	struct inlay_tag_wc wc;

	rx_open(4, 16, 0, 0);
	for (uint32_t i = 0; i < 1u << 14; i++) {
		assert_int_equal(inlay_tag_list_unsynced_(&t.list), i);
		if (i % 32 == 0)
			entries(&t, 32);
		must(inlay_tag_rx_post(&rx, 1, EXACT, NULL, i, &found));
		eager(&t, 1, 0, 0, 10);
		assert_int_equal(rx_next(&wc), INLAY_TAG_RX_MESSAGE);
		assert_int_equal(inlay_tag_rx_arrive(&rx, 1, i, 1, &found), 1);
	}
	assert_int_equal(inlay_tag_list_unsynced_(&t.list), 0);
	inlay_tag_rx_flush(&rx);
	rx_post(1, 0, 100, 1, 1);
	told();
	eager(&t, 1, 1, 0, 10);
	rx_done(1);
	rx_close();
}

/* A message by shared memory, for a receive that the NIC has: its buffer is not free, until the NIC gives it back or has used it */
devx_test(nic_has_the_receive)
{
	struct inlay_match_found found;
	struct inlay_tag_wc wc;
	int faster, kind;

	rx_open(4, 16, 0, 0);
	for (faster = 0; faster < 2; faster++) {
		rx_post(5, 0, 100, 55, 1);
		told();
		if (faster)
			eager(&t, 5, 0, 0, 10);
		assert_true(inlay_tag_rx_arrive(&rx, 5, 1, 0, &found) == -EBUSY && found.cookie == 55);
		inlay_tag_rx_flush(&rx);
		while ((kind = rx_next(&wc)) == INLAY_TAG_RX_NOTHING)
			;
		assert_true(kind == (faster ? INLAY_TAG_RX_DONE : INLAY_TAG_RX_CANCELED) && wc.wr_id == 55);
	}
	while (inlay_tag_rx_listed_(&rx))
		assert_int_equal(rx_next(&wc), INLAY_TAG_RX_NOTHING);
	assert_int_equal(inlay_tag_rx_arrive(&rx, 5, 1, 0, &found), 0);
	rx_close();
}

/* A receive that both sides have matched is refused. One whose rendezvous the NIC cancels has failed, with no header in its buffer. */
devx_test(device_disagrees)
{
	struct inlay_match_found found;
	struct inlay_tag_wc wc;
	struct mlx5_cqe64 cqe;
	uint64_t handle;

	rx_open(4, 16, 0, 0);
	cqe = (struct mlx5_cqe64){.app = INLAY_CQE_APP_TAG, .op_own = MLX5_CQE_RESP_SEND << 4};
	must(inlay_tag_list_sync(&t.list, 9, SYNCED));
	cqe.app_op = INLAY_TAG_NOOP;
	assert_int_equal(inlay_tag_rx_complete(&rx, &cqe, 64, &wc), INLAY_TAG_RX_NOTHING);
	cqe.app_op = INLAY_TAG_NO_TAG;
	assert_int_equal(inlay_tag_rx_complete(&rx, &cqe, 64, &wc), INLAY_TAG_RX_PLAIN);
	rx_post(5, 0, 100, 55, 1);
	cqe.app_op = INLAY_TAG_CANCELED;
	assert_int_equal(inlay_tag_rx_complete(&rx, &cqe, 64, &wc), INLAY_TAG_RX_FAILED);
	assert_true(wc.wr_id == 55 && inlay_match_count(&match, INLAY_MATCH_POSTED) == 0);
	handle = rx_post(6, 0, 100, 66, 1);
	cqe.app_op = INLAY_TAG_UNEXPECTED;
	assert_int_equal(inlay_tag_rx_complete(&rx, &cqe, 64, &wc), INLAY_TAG_RX_MESSAGE);
	assert_int_equal(inlay_tag_rx_arrive(&rx, 6, 1, 1, &found), 1);
	assert_int_equal(inlay_tag_rx_cancel(&rx, handle, &found), -ENOENT);
	cqe.app_op = INLAY_TAG_CONSUMED_MSG;
	cqe.app_info = inlay_to_be16(1);
	assert_int_equal(inlay_tag_rx_complete(&rx, &cqe, 64, &wc), -EPROTO);
	/* A message that failed is no message; the command queue's error is the end */
	cqe.op_own = MLX5_CQE_RESP_ERR << 4;
	cqe.app_op = INLAY_TAG_UNEXPECTED;
	((struct mlx5_err_cqe *)(void *)&cqe)->syndrome = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
	assert_int_equal(inlay_tag_rx_complete(&rx, &cqe, 64, &wc), INLAY_TAG_RX_PLAIN);
	assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
	rx_post(7, 0, 100, 77, 1);
	cqe.op_own = MLX5_CQE_REQ_ERR << 4;
	((struct mlx5_err_cqe *)(void *)&cqe)->syndrome = MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
	cqe.wqe_counter = inlay_to_be16((uint16_t)t.list.done);
	assert_int_equal(inlay_tag_rx_complete(&rx, &cqe, 64, &wc), INLAY_TAG_RX_BROKEN);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	/* What was made up is not in the device: nothing was rung */
	t.dead = true;
	free(match_memory);
	tm_close(&t);
}

int main(void)
{
	return rig_here() && on_each(run_all(rig_open, rig_close));
}
