/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * srq.c: a shared receive queue on a device: buffers in pieces of every shape, recycled, replaced and released in any order, in a list
 * that is full or not. The list itself, and completions that cannot be, are in srq_ring.c; queue pairs of several types that share one,
 * and fail, are in storm.c.
 */
#include "rig.h"

#define SLOT 512u
#define SLOTS 66u
#define BATCH 12u

static struct end a, b;
static struct inlay_srq srq;
static struct given {
	struct ibv_sge sge[33];
	uint32_t num;
} given[SLOTS]; /* what is in each place of b's buffer: its number is the user word */
static uint32_t left[SLOTS], lefts, total; /* places that the queue has not; bytes of each */

/* A place: pieces with gaps, some of them empty */
static uint32_t shape(void)
{
	const uint32_t slot = left[--lefts];
	struct given *g = &given[slot];
	uint32_t k, at = slot * SLOT, rest = total;

	memset(b.buf + at, 0x22, SLOT);
	g->num = total ? 1 + rnd_below(srq.max_sge) : rnd_below(srq.max_sge + 1);
	for (k = 0; k < ARRAY(g->sge); k++) {
		const uint32_t len = k + 1 == g->num ? rest : k < g->num ? rnd_below(rest + 1) / 2 * rnd_below(2) : 0;

		g->sge[k] = sge_of(&b, at, len);
		at += len + rnd_below(4);
		rest -= len;
	}
	return slot;
}

static void give(void)
{
	const uint32_t slot = shape();

	assert_int_equal(inlay_post_srq_recv(&srq, given[slot].sge, srq.max_sge + 1, 0), -EINVAL);
	/* A number that the compiler knows */
	if (srq.max_sge == 1)
		assert_int_equal(inlay_post_srq_recv(&srq, given[slot].sge, 2, 0), -EINVAL);
	must(inlay_post_srq_recv(&srq, given[slot].sge, given[slot].num, slot));
}

static void come_back(const struct mlx5_cqe64 *cqe)
{
	const uint32_t slot = (uint32_t)inlay_srq_user(&srq, inlay_cqe_wqe_counter(cqe)), how = rnd_below(3);

	if (how == 0) {
		memset(b.buf + slot * SLOT, 0x22, SLOT);
		must(inlay_srq_recycle(&srq, cqe));
		return;
	}
	if (how == 1) {
		const uint32_t other = shape();

		must(inlay_srq_replace(&srq, cqe, given[other].sge, given[other].num, other));
	} else {
		must(inlay_srq_release(&srq, cqe));
	}
	left[lefts++] = slot;
}

static void message(struct mlx5_cqe64 *kept)
{
	struct ibv_sge from = sge_of(&a, 0, rnd_below(total + 1));
	uint8_t expected[SLOT];
	uint32_t slot, k, done = 0, n;

	fill(a.buf, total, (uint32_t)rnd());
	must(inlay_post_send(&a.sq, &from, 1, INLAY_SIGNALED | INLAY_RING));
	*kept = *cqe_wait(&b.rxcq);
	inlay_cq_advance(&b.rxcq, 1);
	sent(&a);
	assert_int_equal(inlay_cqe_opcode(kept), MLX5_CQE_RESP_SEND);
	assert_int_equal(inlay_cqe_byte_count(kept), from.length);
	slot = (uint32_t)inlay_srq_user(&srq, inlay_cqe_wqe_counter(kept));
	assert_true(slot < SLOTS);
	memset(expected, 0x22, SLOT);
	for (k = 0; k < given[slot].num; k++, done += n) {
		const struct ibv_sge *sge = &given[slot].sge[k];

		n = sge->length < from.length - done ? sge->length : from.length - done;
		memcpy(expected + (sge->addr - raddr_of(&b, slot * SLOT)), a.buf + done, n);
	}
	assert_memory_equal(b.buf + slot * SLOT, expected, SLOT);
}

TEST(pieces)
{
	static const uint32_t most[] = {1, 1, 2, 4, 4, 9, 16};
	struct mlx5_cqe64 kept[BATCH];
	struct opt opt = opt_of(IBV_QPT_RC, SLOTS * SLOT);
	struct ibv_srq *ib;
	uint32_t row, i, k, round;

	for (row = 0; row < ARRAY(most); row++) {
		total = row % 4 ? 1 + rnd_below(200) : 0;
		ib = made(new_srq(16, most[row]));
		must(inlay_srq_from_srq(&srq, ib, NULL, NULL));
		assert_true(inlay_srq_room(&srq) > 16 && srq.max_sge >= most[row] && srq.wqe_cnt < SLOTS);
		for (lefts = 0; lefts <= srq.wqe_cnt; lefts++)
			left[lefts] = lefts;
		opt.srq = NULL;
		end_make(&a, &opt);
		opt.srq = ib;
		end_make(&b, &opt);
		ends_connect(&a, &b);
		end_take(&a, INLAY_UAR_DOORBELL);
		end_take(&b, INLAY_UAR_DOORBELL);
		for (round = 0; round < 12; round++) {
			while (inlay_srq_room(&srq) && (srq.wqe_cnt - inlay_srq_room(&srq) <= BATCH || rnd_below(8)))
				give();
			inlay_srq_ring(&srq);
			for (i = 0; i < BATCH; i++)
				message(&kept[i]);
			for (; i; i--) {
				k = rnd_below(i);
				come_back(&kept[k]);
				kept[k] = kept[i - 1];
			}
			assert_int_equal(lefts, inlay_srq_room(&srq) + 1);
		}
		end_free(&a);
		end_free(&b);
		must(ibv_destroy_srq(ib));
	}
}

int main(void)
{
	return run_all(dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
