/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * burst.c: bursts, queues without a doorbell record, moderated signaling, what lists refuse, on plain memory. A queue that is
 * posted to through copies is in every respect like its twin that is posted to directly; a ring whose WQEs are signaled as inlay_sq_signal
 * says is never full without a completion to come.
 */
#include "common.h"
#include <endian.h>

#define REG 256
#define MAX_BBS 256

struct side {
	uint8_t reg[2 * REG] __attribute__((aligned(2 * REG)));
	uint8_t ring[MAX_BBS * 64] __attribute__((aligned(64)));
	uint32_t dbrec[2];
	struct inlay_uar uar;
	struct inlay_sq sq;
};

static struct side direct, through;
static uint8_t payload[1024];

static void side_open(struct side *e, uint32_t bbs)
{
	memset(e, 0, sizeof(*e));
	must(inlay_uar_init(&e->uar, e->reg, REG, INLAY_UAR_SERIAL));
	must(inlay_sq_init(&e->sq, e->ring, bbs, e->dbrec, 0x1234, 63, &e->uar));
}

/* A WQE of 1 to 63 units, of which the number says everything */
static int post(struct inlay_sq *sq, uint32_t number, uint32_t longest)
{
	uint32_t len = number * 37 % (longest * 64 - 20), flags = number & 1 ? INLAY_SIGNALED : 0;

	if (number % 3 == 0)
		return inlay_post_write_inline(sq, number, 77, payload + number % 8, 8, flags);
	return inlay_post_send_inline(sq, payload + number % 8, len, flags);
}

/* The WQE at index, which is outstanding, is released with all before it */
static void release(struct side *e, uint32_t index)
{
	struct mlx5_cqe64 cqe;

	memset(&cqe, 0, sizeof(cqe));
	cqe.wqe_counter = htobe16((uint16_t)index);
	cqe.sop_drop_qpn = htobe32(0x1234);
	cqe.op_own = MLX5_CQE_REQ << 4;
	assert_true(inlay_sq_release(&e->sq, &cqe) > 0);
}

static void same_state(void)
{
	const struct inlay_sq *a = &direct.sq, *b = &through.sq;

	assert_int_equal(inlay_sq_index(a), inlay_sq_index(b));
	assert_int_equal(inlay_sq_rung(a), inlay_sq_rung(b));
	assert_int_equal(inlay_sq_pending(a), inlay_sq_pending(b));
	assert_int_equal(a->last - a->buf, b->last - b->buf);
	assert_true(a->last_ds == b->last_ds && a->copy_max == b->copy_max && a->short_from == b->short_from);
	assert_memory_equal(direct.dbrec, through.dbrec, sizeof(direct.dbrec));
	assert_memory_equal(direct.reg, through.reg, sizeof(direct.reg));
	assert_memory_equal(direct.ring, through.ring, sizeof(direct.ring));
}

static void twins(void **state)
{
	uint32_t bbs, round, number = 0, full = 0, longest, start[MAX_BBS], head, tail;

	(void)state;
	for (bbs = 1; bbs <= MAX_BBS; bbs *= 2) {
		side_open(&direct, bbs);
		side_open(&through, bbs);
		longest = bbs < 15 ? bbs : 15;
		for (round = head = tail = 0; round < 3000; round++) {
			struct inlay_sq burst = through.sq;
			uint32_t n = rnd_below(2 * bbs + 2) / (1 + rnd_below(3)), i;
			int a = 0, b = 0;

			for (i = 0; i < n && !a; i++, number++) {
				uint32_t index = inlay_sq_index(&direct.sq);

				a = post(&direct.sq, number, longest);
				b = post(&burst, number, longest);
				assert_int_equal(a, b);
				if (!a)
					start[head++ % MAX_BBS] = index;
			}
			if (a) {
				assert_int_equal(a, -EAGAIN);
				full++;
			}
			inlay_sq_join(&through.sq, &burst);
			same_state();
			/* Now and then the next burst is rung for together with this one */
			if (rnd_below(4)) {
				if (rnd_below(2)) {
					inlay_sq_ring(&direct.sq);
					inlay_sq_ring(&through.sq);
				} else {
					inlay_sq_ring_doorbell(&direct.sq);
					inlay_sq_ring_doorbell(&through.sq);
				}
			}
			if (inlay_sq_index(&direct.sq) == inlay_sq_rung(&direct.sq) && head != tail && rnd_below(2)) {
				tail += 1 + rnd_below(head - tail);
				release(&direct, start[(tail - 1) % MAX_BBS]);
				release(&through, start[(tail - 1) % MAX_BBS]);
			}
			same_state();
		}
		assert_true(full > 20);
		full = 0;
	}
}

/* Where a program signals: bytes of the WQE at index */
static bool is_signaled(const struct side *e, uint32_t index)
{
	return e->ring[(index & e->sq.mask) * 64 + 11] & MLX5_WQE_CTRL_CQ_UPDATE;
}

static void moderation(void **state)
{
	uint32_t bbs, every, round, index, k, head, tail, oldest, stuck = 0, start[MAX_BBS];
	struct inlay_cursor at;

	(void)state;
	for (bbs = 2; bbs <= MAX_BBS; bbs *= 2)
		for (every = 1; every <= bbs / 2; every *= 2) {
			side_open(&direct, bbs);
			for (round = head = tail = 0; round < 2000; round++) {
				k = 1 + rnd_below(rnd_below(2) || every > 16 ? (every > 15 ? 15 : every) : 1);
				/* An upper bound does as well */
				if (!inlay_sq_begin(&direct.sq, k, &at)) {
					uint32_t bound = k + rnd_below(2) * rnd_below(every - k + 1), n;

					for (n = 1; n < k; n++) /* one unit in each further WQEBB at least */
						at = inlay_seg_inline(at, payload, 60);
					start[head++ % MAX_BBS] = inlay_sq_index(&direct.sq);
					inlay_sq_commit(&direct.sq, at, MLX5_OPCODE_SEND, 0, inlay_sq_signal(&direct.sq, bound, every), 0);
					continue;
				}
				stuck++;
				for (oldest = tail; oldest != head && !is_signaled(&direct, start[oldest % MAX_BBS]); oldest++)
					;
				assert_int_not_equal(oldest, head);
				release(&direct, start[oldest % MAX_BBS]);
				tail = oldest + 1;
			}
		}
	assert_true(stuck > 1000);
	/* WQEs of one WQEBB: exactly every eighth */
	side_open(&direct, 64);
	for (index = 0; index < 64; index++) {
		must(inlay_post(&direct.sq, MLX5_OPCODE_NOP, NULL, inlay_sq_signal(&direct.sq, 1, 8)));
		assert_int_equal(is_signaled(&direct, index), index % 8 == 7);
	}
}

/* What a post of struct iovec refuses leaves the queue as it was. What it writes is compared with libmlx5's in oracle.c */
static void lists(void **state)
{
	static const struct {
		const char *name;
		uint32_t opcode, num, flags;
		size_t len; /* of each entry */
		int want;
	} posts[] = {
		{"an entry that no data segment holds", MLX5_OPCODE_RDMA_WRITE, 1, 0, 0x80000000u, -EINVAL},
		{"more bytes than there are", MLX5_OPCODE_SEND, 1, INLAY_INLINE, SIZE_MAX, -EINVAL},
		{"more bytes than a WQE holds", MLX5_OPCODE_SEND, 2, INLAY_INLINE, 600, -EINVAL},
		{"one entry more than a WQE holds", MLX5_OPCODE_SEND, 63, 0, 1, -EINVAL},
		{"more entries than are looked at", MLX5_OPCODE_SEND, 70, 0, 1, -EINVAL},
		{"the same, all empty", MLX5_OPCODE_SEND, 70, 0, 0, -EINVAL},
		{"inline so many fit", MLX5_OPCODE_SEND, 70, INLAY_INLINE, 1, 0},
		{"as pointers 62", MLX5_OPCODE_SEND, 62, 0, 1, 0},
		{"again", MLX5_OPCODE_SEND, 62, 0, 1, 0},
		{"and again", MLX5_OPCODE_SEND, 62, 0, 1, 0},
		{"a full ring", MLX5_OPCODE_SEND, 62, 0, 1, -EAGAIN},
	};
	static struct iovec iov[70];
	struct inlay_iov from = {iov, 1, 5, NULL};
	struct remote to = {0x1000, 77};
	struct inlay_sq before;
	uint32_t i, k;

	(void)state;
	side_open(&direct, 64);
	for (k = 0; k < ARRAY(posts); k++) {
		for (i = 0; i < ARRAY(iov); i++) {
			iov[i].iov_base = payload;
			iov[i].iov_len = posts[k].len;
		}
		from.num = posts[k].num;
		before = direct.sq;
		if (wr_post(&direct.sq, posts[k].opcode, wr_iov(&from, NULL, posts[k].opcode == MLX5_OPCODE_RDMA_WRITE ? &to : NULL, 0), posts[k].flags) != posts[k].want ||
		    (posts[k].want && memcmp(&before, &direct.sq, sizeof(before))))
			fail_msg("%s", posts[k].name);
		if (posts[k].flags && !posts[k].want)
			assert_int_equal(inlay_sq_pending(&direct.sq), 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(twins),
		cmocka_unit_test(moderation),
		cmocka_unit_test(lists),
	};

	fill(payload, sizeof(payload), 3);
	return cmocka_run_group_tests_name("bursts", tests, NULL, NULL);
}
