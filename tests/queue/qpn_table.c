/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * qpn_table.c: the table from QP numbers to objects, against a plain array of all 2^24 of them: numbers that lie close together and far
 * apart, pages that run out, come back and are given later.
 */
#include "common.h"
#include "given.h"

#define NUMBERS (1u << 24)
#define PAGE 4096u /* numbers */

static struct inlay_qpn_table *table;
static void *model[NUMBERS];
static uint32_t used[NUMBERS / PAGE], spare;

static int seed(UNUSED void **state)
{
	rnd_seed();
	table = (struct inlay_qpn_table *)given(sizeof(*table));
	return 0;
}

static int done(UNUSED void **state)
{
	given_free(table);
	return 0;
}

/* Every number there is */
static void same_everywhere(void)
{
	for (uint32_t qpn = 0; qpn < NUMBERS; qpn++)
		if (inlay_qpn_table_find(table, qpn) != model[qpn])
			fail_msg("0x%x: %p, not %p", qpn, inlay_qpn_table_find(table, qpn), model[qpn]);
}

/* In a few runs, at the ends of runs and of all numbers, or anywhere */
static uint32_t some_qpn(void)
{
	static const uint32_t base[] = {0, 0x45, 0xfff, 0x1000, 0x7ff000, 0x800000, 0xabc123, 0xfff000};

	switch (rnd_below(16)) {
	case 0: return (uint32_t)rnd() & (NUMBERS - 1);
	case 1: return NUMBERS - 1 - rnd_below(3);
	default: return (base[rnd_below(ARRAY(base))] + rnd_below(40)) & (NUMBERS - 1);
	}
}

static void add(uint32_t qpn, void *object)
{
	int want = model[qpn] ? -EEXIST : used[qpn / PAGE] || spare ? 0 : -ENOBUFS;

	assert_int_equal(inlay_qpn_table_add(table, qpn, object), want);
	if (want)
		return;
	spare -= !used[qpn / PAGE]++;
	model[qpn] = object;
}

static void take_out(uint32_t qpn)
{
	assert_ptr_equal(inlay_qpn_table_remove(table, qpn), model[qpn]);
	spare += model[qpn] && !--used[qpn / PAGE];
	model[qpn] = NULL;
}

TEST(random_steps)
{
	void *given_later[4], *page[3 + 2 * 4];
	uint32_t s, grown = 0, refused = 0;
	uint8_t *mem = (uint8_t *)given(3 * INLAY_QPN_PAGE + 100);

	memset(model, 0, sizeof(model));
	memset(used, 0, sizeof(used));
	/* What is over is no page */
	inlay_qpn_table_init(table, mem, 3 * INLAY_QPN_PAGE + 100);
	spare = 3;
	same_everywhere();
	for (s = 0; s < 2000000; s++) {
		uint32_t qpn = some_qpn();

		assert_ptr_equal(inlay_qpn_table_find(table, qpn), model[qpn]);
		if (rnd_below(2)) {
			refused += !model[qpn] && !used[qpn / PAGE] && !spare;
			add(qpn, (void *)(uintptr_t)(1 + rnd_below(1u << 31)));
		} else if (rnd_below(100) < (s / 3000 % 2 ? 95 : 40)) {
			take_out(qpn);
		}
		if (!spare && rnd_below(1000) == 0)
			assert_null(inlay_qpn_table_shrink(table));
		if (s % 400000 == 399999 && grown < 4) {
			/* Pages that came later, and memory too small for one */
			given_later[grown] = given(2 * INLAY_QPN_PAGE + 64 * grown);
			inlay_qpn_table_grow(table, given_later[grown], INLAY_QPN_PAGE - 1);
			inlay_qpn_table_grow(table, given_later[grown], 2 * INLAY_QPN_PAGE + 64 * grown);
			spare += 2;
			grown++;
		}
	}
	assert_true(refused > 1000);
	same_everywhere();
	/* Empty again, it has all its pages. Each can be had back, and serves again */
	for (s = 0; s < NUMBERS; s++)
		if (model[s])
			take_out(s);
	assert_int_equal(spare, 3 + 2 * grown);
	for (s = 0; s < spare; s++)
		page[s] = made(inlay_qpn_table_shrink(table));
	assert_null(inlay_qpn_table_shrink(table));
	while (s)
		inlay_qpn_table_grow(table, page[--s], INLAY_QPN_PAGE);
	for (s = 0; s < 3 + 2 * grown; s++)
		add(s * 17 * PAGE + 5, &model[s]);
	assert_int_equal(inlay_qpn_table_add(table, 5 * PAGE, table), -ENOBUFS);
	same_everywhere();
	given_free(mem);
	while (grown)
		given_free(given_later[--grown]);
}

/* Arguments that are none; a table without memory */
TEST(edges)
{
	void *mem = given(INLAY_QPN_PAGE);

	inlay_qpn_table_init(table, NULL, 0);
	assert_int_equal(inlay_qpn_table_add(table, 1, table), -ENOBUFS);
	assert_null(inlay_qpn_table_remove(table, 1));
	inlay_qpn_table_grow(table, mem, INLAY_QPN_PAGE);
	assert_int_equal(inlay_qpn_table_add(table, NUMBERS, table), -EINVAL);
	assert_int_equal(inlay_qpn_table_add(table, 0xffffffff, table), -EINVAL);
	assert_int_equal(inlay_qpn_table_add(table, 1, NULL), -EINVAL);
	assert_null(inlay_qpn_table_remove(table, NUMBERS));
	must(inlay_qpn_table_add(table, 3, table));
	assert_ptr_equal(inlay_qpn_table_find(table, 3), table);
	assert_null(inlay_qpn_table_find(table, 0));
	given_free(mem);
}

int main(void)
{
	return run_all(seed, done);
}
