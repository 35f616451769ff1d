/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * srq.c: a shared receive queue on a device: entries of every shape, given back in any order or posted again as they are. The list itself,
 * full, empty and with completions that cannot be, is in rings.c; queue pairs of several types that share one, and fail, are in storm.c.
 */
#include "rig.h"

#define SLOT 512u
#define BATCH 12u

static struct end a, b;
static struct inlay_srq srq;

static uint8_t *slot_of(uint32_t index)
{
	return b.buf + (size_t)index * SLOT;
}

/* Entry i of a batch: pieces with gaps, empty ones left out. Returns its index; its own bytes tell its length */
static uint32_t give(struct ibv_sge *sge)
{
	uint32_t index = inlay_srq_index(&srq), num = rnd_below(srq.max_sge + 1), total = 0, k;

	memset(slot_of(index), 0x22, SLOT);
	if (inlay_srq_user(&srq, index) && rnd_below(2)) {
		must(inlay_srq_repost(&srq));
		return index;
	}
	for (k = 0; k < 33; k++) {
		sge[k] = sge_of(&b, (size_t)index * SLOT + 15 * k, k < num && rnd_below(3) ? 1 + rnd_below(12) : 0);
		total += sge[k].length;
	}
	assert_int_equal(inlay_post_srq_recv(&srq, sge, srq.max_sge + 1), -EINVAL);
	/* A number that the compiler knows */
	if (srq.max_sge == 1)
		assert_int_equal(inlay_post_srq_recv(&srq, sge, 2), -EINVAL);
	must(inlay_post_srq_recv(&srq, sge, num));
	inlay_srq_set_user(&srq, index, (uint64_t)total << 32 | 1);
	return index;
}

static void pieces(void **state)
{
	static struct ibv_sge sge[64][33];
	struct ibv_srq_init_attr attr;
	struct mlx5_cqe64 kept[BATCH];
	struct opt opt = opt_of(IBV_QPT_RC, 64 * SLOT);
	struct ibv_srq *ib;
	uint32_t max, i, k, round, index, done, total;

	(void)state;
	for (max = 1; max <= 16; max = max * 2 + (max > 2)) {
		memset(&attr, 0, sizeof(attr));
		attr.attr.max_wr = 16;
		attr.attr.max_sge = max;
		ib = ibv_create_srq(dev.pd, &attr);
		assert_non_null(ib);
		must(inlay_srq_from_srq(&srq, ib, NULL, NULL));
		assert_true(inlay_srq_room(&srq) >= 16 && srq.max_sge >= max && srq.wqe_cnt <= 64);
		for (i = 0; i < srq.wqe_cnt; i++)
			inlay_srq_set_user(&srq, i, 0);
		opt.srq = NULL;
		end_make(&a, &opt);
		opt.srq = ib;
		end_make(&b, &opt);
		ends_connect(&a, &b);
		end_take(&a, INLAY_UAR_DOORBELL);
		end_take(&b, INLAY_UAR_DOORBELL);
		for (round = 0; round < 12; round++) {
			for (i = 0; i < BATCH; i++) {
				struct ibv_sge from;

				index = give(sge[inlay_srq_index(&srq)]);
				total = (uint32_t)(inlay_srq_user(&srq, index) >> 32);
				inlay_srq_ring(&srq);
				assert_int_equal(inlay_srq_posted(&srq), BATCH * round + i + 1);
				fill(a.buf, total, i);
				from = sge_of(&a, 0, total);
				must(inlay_post_send(&a.sq, &from, 1, INLAY_SIGNALED | INLAY_RING));
				kept[i] = *cqe_wait(&b.rxcq);
				inlay_cq_advance(&b.rxcq, 1);
				assert_int_equal(inlay_cqe_opcode(&kept[i]), MLX5_CQE_RESP_SEND);
				assert_int_equal(inlay_cqe_wqe_counter(&kept[i]), index);
				assert_int_equal(inlay_cqe_byte_count(&kept[i]), total);
				for (k = done = 0; k < 33; k++) {
					const uint8_t *at = slot_of(index) + 15 * k;

					assert_memory_equal(at, a.buf + done, sge[index][k].length);
					assert_true(all_bytes(at + sge[index][k].length, 15 - sge[index][k].length, 0x22));
					done += sge[index][k].length;
				}
				sent(&a);
			}
			for (i = BATCH; i; i--) {
				k = rnd_below(i);
				assert_true(0 < inlay_srq_release(&srq, &kept[k]));
				kept[k] = kept[i - 1];
			}
			assert_int_equal(inlay_srq_room(&srq), srq.wqe_cnt - 1);
		}
		end_free(&a);
		end_free(&b);
		must(ibv_destroy_srq(ib));
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces),
	};

	return cmocka_run_group_tests_name("srq", tests, dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
