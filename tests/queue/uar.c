/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * uar.c: doorbell registers: whose they are and what is written into them. libmlx5 gives one register to several QPs once a context has
 * more than a few of them; no two QPs may then copy WQEs into it unless they take turns.
 *
 * The software device's doorbell page is plain memory, and a stepped device does not look at it: what was written can be read. That is
 * done by looking at the bytes; all the rest runs on any device.
 */
#include "rig.h"

#define QPS 20

/* QPs that write to themselves, with a ring and a part of the buffer each */
struct self {
	struct end e;
	uint32_t id;
	uint32_t count; /* what it has posted */
};

static void self_make(struct self *s, uint32_t id, struct ibv_pd *pd, const struct opt *base)
{
	struct opt opt = *base;

	opt.pd = pd;
	opt.one_cq = true;
	opt.bytes = 64 << 10;
	end_make(&s->e, &opt);
	qp_init(s->e.qp, &opt);
	qp_connect(s->e.qp, s->e.qp->qp_num, &opt);
	must(inlay_cq_from_cq(&s->e.cq, s->e.scq, NULL));
	s->id = id;
	s->count = 0;
}

/* A write of len bytes, inline, to the place of message number count; what it carries tells who and which */
static int self_post(struct self *s, uint32_t len, uint32_t flags)
{
	uint8_t data[256];
	int ret;

	fill(data, len, s->id << 20 | s->count);
	ret = inlay_post_write_inline(&s->e.sq, raddr_of(&s->e, s->count % 256 * 256), s->e.mr->rkey, data, len, flags);
	s->count += !ret;
	return ret;
}

/* Takes completions until nothing is outstanding */
static void self_drain(struct self *s)
{
	while (inlay_sq_pending(&s->e.sq))
		sent(&s->e);
}

static void self_is(const struct self *s, uint32_t message, uint32_t len)
{
	assert_int_equal(differs(s->e.buf + message % 256 * 256, len, s->id << 20 | message), len);
}

/* ---- the register's bytes ---- */

static void paint(const struct inlay_uar *uar)
{
	memset(uar->reg, 0xee, 2 * (size_t)uar->size);
}

/* Fails when a half holds anything but: nothing; 8 bytes of a doorbell; one whole WQE of one of the QPs. Returns the WQEs' number */
static uint32_t look(const struct inlay_uar *uar, struct self *selves, uint32_t n)
{
	uint32_t half, wqes = 0, i, k;

	for (half = 0; half < 2; half++) {
		const uint8_t *reg = uar->reg + half * uar->size;
		uint32_t qpn = (uint32_t)reg[4] << 16 | reg[5] << 8 | reg[6], ds = reg[7], bytes = (ds + 3) / 4 * 64;
		uint32_t index = (uint32_t)reg[1] << 8 | reg[2];

		if (all_bytes(reg, uar->size, 0xee))
			continue;
		for (i = 0; i < n && selves[i].e.qp->qp_num != qpn; i++)
			;
		if (i == n)
			fail_msg("the register speaks of QP 0x%x, which is not there", qpn);
		if (all_bytes(reg + 8, uar->size - 8, 0xee)) {
			/* A doorbell: names a WQE of that QP */
			for (k = 0; k < 8; k++)
				assert_int_equal(reg[k], selves[i].e.sq.buf[((size_t)(index & selves[i].e.sq.mask) * 64) + k]);
			continue;
		}
		assert_in_range(bytes, 64, uar->size);
		wqes++;
		for (k = 0; k < bytes; k++) {
			const struct inlay_sq *sq = &selves[i].e.sq;

			assert_int_equal(reg[k], sq->buf[((size_t)index * 64 + k) % (((size_t)sq->mask + 1) * 64)]);
		}
		/* Behind it lies what an earlier, longer copy left, or nothing */
	}
	return wqes;
}

/* ---- tests ---- */

/* More QPs than registers: that some share one is what the rest is about */
static void shared(void **state)
{
	struct self s[QPS];
	uint32_t i, k, same = 0, round;

	(void)state;
	for (i = 0; i < QPS; i++) {
		self_make(&s[i], i, NULL, &usual);
		must(inlay_uar_from_qp(&s[i].e.uar, s[i].e.qp, NULL));
		must(inlay_sq_from_qp(&s[i].e.sq, s[i].e.qp, &s[i].e.uar, NULL, NULL));
		for (k = 0; k < i; k++)
			same += s[k].e.uar.reg == s[i].e.uar.reg;
	}
	if (softdev_present())
		assert_true(same > 0);
	for (round = 0; round < 30; round++) {
		if (stepped())
			for (i = 0; i < QPS; i++)
				paint(&s[i].e.uar);
		for (i = 0; i < QPS; i++) {
			uint32_t n = 1 + round % 3;

			for (k = 0; k < n; k++)
				must(self_post(&s[i], 1 + (round * 7 + i) % 120, k + 1 == n ? INLAY_SIGNALED : 0));
			inlay_sq_ring(&s[i].e.sq);
			/* 8 bytes and no more, whatever was posted and however many share */
			if (stepped()) {
				const struct inlay_uar *uar = &s[i].e.uar;

				assert_memory_equal(uar->reg, s[i].e.sq.last, 8);
				assert_true(all_bytes(uar->reg + 8, 2 * uar->size - 8, 0xee));
			}
		}
		for (i = 0; i < QPS; i++) {
			self_drain(&s[i]);
			self_is(&s[i], s[i].count - 1, 1 + (round * 7 + i) % 120);
		}
	}
	for (i = 0; i < QPS; i++)
		end_free(&s[i].e);
}

/* Registers of one's own: all different, and different from those that libmlx5 hands out */
static void own(void **state)
{
	struct inlay_uar uar[QPS];
	struct self s[QPS], extra;
	uint32_t i, k, round;

	(void)state;
	for (i = 0; i < QPS; i++) {
		must(inlay_uar_create(&uar[i], dev.pd, INLAY_UAR_SERIAL, NULL));
		assert_int_equal(uar[i].mode, INLAY_UAR_SERIAL);
		self_make(&s[i], i, uar[i].pd, &usual);
		must(inlay_sq_from_qp(&s[i].e.sq, s[i].e.qp, &uar[i], NULL, NULL));
		assert_non_null(uar[i].reg);
		for (k = 0; k < i; k++)
			if (uar[k].reg == uar[i].reg)
				fail_msg("QPs %u and %u have one register", k, i);
	}
	for (i = 0; i < QPS; i++) {
		self_make(&extra, 99, NULL, &usual);
		must(inlay_uar_from_qp(&extra.e.uar, extra.e.qp, NULL));
		for (k = 0; k < QPS; k++)
			assert_ptr_not_equal(extra.e.uar.reg, uar[k].reg);
		end_free(&extra.e);
	}
	/* A second queue on the same register, for a while */
	self_make(&extra, 99, uar[0].pd, &usual);
	must(inlay_sq_from_qp(&extra.e.sq, extra.e.qp, &uar[0], NULL, NULL));
	assert_int_equal(uar[0].queues, 2);
	must(self_post(&extra, 30, INLAY_SIGNALED));
	inlay_sq_ring(&extra.e.sq);
	self_drain(&extra);
	self_is(&extra, 0, 30);
	inlay_sq_fini(&extra.e.sq);
	end_free(&extra.e);

	/* Each copies into its own register and touches no other */
	for (round = 0; round < 20; round++) {
		for (i = 0; i < QPS; i++) {
			uint32_t len = 1 + (round * 11 + i * 3) % 120;

			if (stepped())
				for (k = 0; k < QPS; k++)
					paint(&uar[k]);
			must(self_post(&s[i], len, INLAY_SIGNALED));
			inlay_sq_ring(&s[i].e.sq);
			for (k = 0; k < QPS && stepped(); k++) {
				assert_int_equal(look(&uar[k], &s[i], 1), k == i);
				if (k != i)
					assert_true(all_bytes(uar[k].reg, 2 * uar[k].size, 0xee));
			}
		}
		for (i = 0; i < QPS; i++) {
			self_drain(&s[i]);
			self_is(&s[i], round, 1 + (round * 11 + i * 3) % 120);
		}
	}
	for (i = 0; i < QPS; i++) {
		inlay_sq_fini(&s[i].e.sq);
		end_free(&s[i].e);
		must(inlay_uar_destroy(&uar[i], NULL));
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(shared),
		cmocka_unit_test(own),
	};

	return cmocka_run_group_tests_name("uar", tests, open_stepped, dev_close);
}
