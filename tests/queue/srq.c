/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * srq.c: shared receive queues on a device: several queue pairs of two types take from one, entries of every shape, the limit event. The
 * list itself, full, empty and with completions that cannot be, is in rings.c; queue pairs that fail are in storm.c.
 */
#include "rig.h"
#include <endian.h>

#define SLOT 512u

/* A shared queue, its memory, and what belongs to each entry */
struct shared {
	struct ibv_srq *ib;
	struct inlay_srq srq;
	uint8_t *buf;
	struct ibv_mr *mr;
	uint32_t len[8192];       /* of each entry: what it was posted with, or 0 */
};

static void shared_make(struct shared *s, uint32_t wr, uint32_t sge)
{
	struct ibv_srq_init_attr attr;

	memset(s, 0, sizeof(*s));
	memset(&attr, 0, sizeof(attr));
	attr.attr.max_wr = wr;
	attr.attr.max_sge = sge;
	s->ib = ibv_create_srq(dev.pd, &attr);
	assert_non_null(s->ib);
	must(inlay_srq_from_srq(&s->srq, s->ib, NULL, NULL));
	assert_true(inlay_srq_room(&s->srq) >= wr);
	assert_true(s->srq.max_sge >= sge);
	s->buf = (uint8_t *)pages((size_t)s->srq.wqe_cnt * SLOT);
	s->mr = ibv_reg_mr(dev.pd, s->buf, (size_t)s->srq.wqe_cnt * SLOT, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(s->mr);
}

static void shared_free(struct shared *s)
{
	must(ibv_destroy_srq(s->ib));
	must(ibv_dereg_mr(s->mr));
	free(s->buf);
}

static uint8_t *slot_of(const struct shared *s, uint32_t index)
{
	return s->buf + (size_t)index * SLOT;
}

/* Posts the next entry with the slot of its number; one that has it already as it is, now and then. The entry's own bytes tell that */
static int give(struct shared *s, uint32_t len)
{
	uint32_t index = inlay_srq_index(&s->srq);
	struct ibv_sge sge;
	int ret;

	assert_in_range(index, 0, ARRAY(s->len) - 1);
	if (s->len[index])
		assert_true(inlay_srq_user(&s->srq, index) == ((uint64_t)s->len[index] << 32 | index));
	if (s->len[index] == len && rnd_below(2))
		return inlay_srq_repost(&s->srq);
	sge.addr = (uintptr_t)slot_of(s, index);
	sge.length = len;
	sge.lkey = s->mr->lkey;
	ret = inlay_post_srq_recv(&s->srq, &sge, 1);
	if (!ret) {
		s->len[index] = len;
		inlay_srq_set_user(&s->srq, index, (uint64_t)len << 32 | index);
	}
	return ret;
}

static struct opt receiving(struct shared *s, enum ibv_qp_type type)
{
	struct opt opt = opt_of(type, 1 << 16);

	opt.srq = s ? s->ib : NULL;
	return opt;
}

/* a sends, b receives through the shared queue */
static void shared_pair(struct end *a, struct end *b, struct shared *s, enum ibv_qp_type type, int cqe_size, bool scatter)
{
	struct opt from = receiving(NULL, type), to = receiving(s, type);

	from.cqe_size = to.cqe_size = cqe_size;
	to.scatter = scatter;
	end_make(a, &from);
	end_make(b, &to);
	ends_connect(a, b);
	end_take(a, INLAY_UAR_DOORBELL);
	end_take(b, INLAY_UAR_DOORBELL);
}

/* ---- several queue pairs ---- */

enum { PAIRS = 4, DATAGRAM = PAIRS - 1 };

/*
 * Three RC queue pairs and one of datagrams receive from one queue, each into a CQ of its own. What came is looked at, kept for a while,
 * and given back in random order. A message says who sent it and its number, so that none is lost, doubled or mixed up; each entry's memory
 * is written by the one message that took it.
 */
static void several(void **state)
{
	struct end a[PAIRS], b[PAIRS];
	struct mlx5_cqe64 kept[64];
	struct shared s;
	struct inlay_av av;
	uint32_t sent_to[PAIRS] = {0}, got_from[PAIRS] = {0}, flying = 0, posted = 0, n = 0, i, k, total = 0, disorder = 0;
	double end = now() + DEADLINE;

	(void)state;
	shared_make(&s, 63, 1);
	for (i = 0; i < PAIRS; i++)
		shared_pair(&a[i], &b[i], &s, i == DATAGRAM ? IBV_QPT_UD : IBV_QPT_RC, i & 1 ? 128 : 64, false);
	av = av_to(&b[DATAGRAM]);
	memset(s.buf, 0x22, (size_t)s.srq.wqe_cnt * SLOT);
	while (total < 5000) {
		for (k = rnd_below(20); k && inlay_srq_room(&s.srq); k--, posted++)
			must(give(&s, SLOT));
		inlay_srq_ring(&s.srq);
		/* No more than can be received: a datagram would be lost */
		for (k = rnd_below(30); k && flying < posted; k--) {
			uint32_t word[64], len = 8 + rnd_below(248);

			i = rnd_below(PAIRS);
			if (inlay_sq_room(&a[i].sq) < 8)
				continue;
			memset(word, 0x33, sizeof(word));
			word[0] = i;
			word[1] = sent_to[i]++;
			if (i == DATAGRAM)
				must(inlay_post_ud_send_inline(&a[i].sq, &av, word, len < 128 ? len : 128, INLAY_SIGNALED));
			else
				must(inlay_post_send_inline(&a[i].sq, word, len < 128 ? len : 128, INLAY_SIGNALED));
			inlay_sq_ring(&a[i].sq);
			flying++;
		}
		for (i = 0; i < PAIRS; i++) {
			const struct mlx5_cqe64 *cqe;

			while ((cqe = inlay_cq_peek(&a[i].cq)))
				sent(&a[i]);
			while (n < ARRAY(kept) && (cqe = inlay_cq_peek(&b[i].rxcq))) {
				uint32_t index = inlay_cqe_wqe_counter(cqe), len = inlay_cqe_byte_count(cqe), word[2];
				uint8_t *slot = slot_of(&s, index);
				const uint32_t head = i == DATAGRAM ? INLAY_GRH : 0;

				assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_RESP_SEND);
				assert_int_equal(inlay_cqe_qpn(cqe), b[i].qp->qp_num);
				memcpy(word, slot + head, sizeof(word));
				assert_int_equal(word[0], i);
				assert_int_equal(word[1], got_from[i]);
				assert_true(all_bytes(slot + head + 8, len - head - 8, 0x33));
				assert_true(all_bytes(slot + len, SLOT - len, 0x22));
				memset(slot, 0x22, SLOT);
				got_from[i]++;
				kept[n++] = *cqe;
				inlay_cq_advance(&b[i].rxcq, 1);
				flying--;
				posted--;
				total++;
				end = now() + DEADLINE;
			}
		}
		assert_int_equal(inlay_srq_pending(&s.srq), posted + n);
		assert_int_equal(inlay_srq_posted(&s.srq), posted + total);
		for (k = rnd_below(n + 1); k; k--) {
			i = rnd_below(n);
			disorder += i != 0;
			assert_true(0 < inlay_srq_release(&s.srq, &kept[i]));
			assert_int_equal(inlay_srq_release(&s.srq, &kept[i]), -EPROTO);
			kept[i] = kept[--n];
		}
		assert_int_equal(inlay_srq_room(&s.srq) + inlay_srq_pending(&s.srq), s.srq.wqe_cnt - 1);
		if (now() > end)
			fail_msg("%u of messages, and no more", total);
		step();
	}
	assert_true(disorder > 300);
	for (i = 0; i < PAIRS; i++) {
		assert_true(got_from[i] > 100);
		while (inlay_sq_pending(&a[i].sq))
			sent(&a[i]);
		end_free(&a[i]);
		end_free(&b[i]);
	}
	shared_free(&s);
}

/* Entries of every shape: pieces with gaps, empty ones left out; and one piece too many */
static void pieces(void **state)
{
	uint32_t max, i, k, num;

	(void)state;
	for (max = 1; max <= 16; max = max * 2 + (max > 2)) {
		struct shared s;
		struct end a, b;

		shared_make(&s, 16, max);
		shared_pair(&a, &b, &s, IBV_QPT_RC, 64, false);
		for (i = 0; i < 60; i++) {
			uint32_t len[33], total = 0, index = inlay_srq_index(&s.srq), tag = (uint32_t)rnd(), done;
			const struct mlx5_cqe64 *cqe;
			struct ibv_sge sge[33];

			num = rnd_below(s.srq.max_sge + 1);
			memset(slot_of(&s, index), 0x22, SLOT);
			for (k = 0; k < 33; k++) {
				len[k] = rnd_below(3) ? 1 + rnd_below(12) : 0;
				sge[k].addr = (uintptr_t)slot_of(&s, index) + 15 * k;
				sge[k].length = len[k];
				sge[k].lkey = s.mr->lkey;
				total += k < num ? len[k] : 0;
			}
			assert_int_equal(inlay_post_srq_recv(&s.srq, sge, s.srq.max_sge + 1), -EINVAL);
			/* A number that the compiler knows */
			if (s.srq.max_sge == 1)
				assert_int_equal(inlay_post_srq_recv(&s.srq, sge, 2), -EINVAL);
			must(inlay_post_srq_recv(&s.srq, sge, num));
			inlay_srq_ring(&s.srq);
			fill(a.buf, total, tag);
			sge[0] = sge_of(&a, 0, total);
			must(inlay_post_send(&a.sq, sge, 1, INLAY_SIGNALED));
			inlay_sq_ring(&a.sq);
			cqe = cqe_wait(&b.rxcq);
			assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_RESP_SEND);
			assert_int_equal(inlay_cqe_wqe_counter(cqe), index);
			assert_int_equal(inlay_cqe_byte_count(cqe), total);
			for (k = done = 0; k < 33; k++) {
				uint32_t here = k < num ? len[k] : 0;
				const uint8_t *at = slot_of(&s, index) + 15 * k;

				assert_memory_equal(at, a.buf + done, here);
				assert_true(all_bytes(at + here, 15 - here, 0x22));
				done += here;
			}
			assert_true(0 < inlay_srq_release(&s.srq, cqe));
			inlay_cq_advance(&b.rxcq, 1);
			sent(&a);
		}
		end_free(&a);
		end_free(&b);
		shared_free(&s);
	}
}

/* ---- the limit ---- */

static bool limit_event(const struct shared *s, int ms)
{
	struct pollfd fd = {dev.ctx->async_fd, POLLIN, 0};
	struct ibv_async_event event;

	settle();
	if (poll(&fd, 1, ms) != 1)
		return false;
	must(ibv_get_async_event(dev.ctx, &event));
	assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_ptr_equal(event.element.srq, s->ib);
	ibv_ack_async_event(&event);
	return true;
}

/* Once for each arming, when fewer are left than asked for: what verbs sees is what inlay posts */
static void limit(void **state)
{
	struct ibv_srq_attr attr;
	struct shared s;
	struct end a, b;
	uint32_t round, i, left;

	(void)state;
	shared_make(&s, 31, 1);
	shared_pair(&a, &b, &s, IBV_QPT_RC, 64, false);
	for (round = 0; round < 8; round++) {
		uint32_t at = 1 + rnd_below(20);

		while (inlay_srq_room(&s.srq))
			must(give(&s, SLOT));
		inlay_srq_ring(&s.srq);
		memset(&attr, 0, sizeof(attr));
		attr.srq_limit = at;
		must(ibv_modify_srq(s.ib, &attr, IBV_SRQ_LIMIT));
		for (left = inlay_srq_pending(&s.srq); left; left--) {
			const struct mlx5_cqe64 *cqe;

			if (left == at) {
				must(ibv_query_srq(s.ib, &attr));
				assert_int_equal(attr.srq_limit, at);
			}
			must(inlay_post_send_inline(&a.sq, &left, sizeof(left), INLAY_SIGNALED));
			inlay_sq_ring(&a.sq);
			cqe = cqe_wait(&b.rxcq);
			assert_true(0 < inlay_srq_release(&s.srq, cqe));
			inlay_cq_advance(&b.rxcq, 1);
			sent(&a);
			if (left == at || left == at + 1 || left == at - 1)
				assert_int_equal(limit_event(&s, left == at ? 5000 : 0), left == at);
		}
		assert_false(limit_event(&s, 0));
		must(ibv_query_srq(s.ib, &attr));
		assert_int_equal(attr.srq_limit, 0);
		for (i = 0; i < rnd_below(3); i++) {
			must(give(&s, SLOT));
			inlay_srq_ring(&s.srq);
		}
	}
	end_free(&a);
	end_free(&b);
	shared_free(&s);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(several),
		cmocka_unit_test(pieces),
		cmocka_unit_test(limit),
	};

	return cmocka_run_group_tests_name("srq", tests, dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
