/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/qpn_table.h: finds the caller's object by the QP number of a completion: two loads
 * and no test, for any 24-bit number.
 *
 *   inlay_qpn_table_init(&table, mem, 2 * INLAY_QPN_PAGE);  enough for 1000 QPs
 *   inlay_qpn_table_add(&table, qp->qp_num, ep);
 *   ...
 *   struct ep *ep = (struct ep *)inlay_qpn_table_find(&table, inlay_cqe_qpn(cqe));
 *   ...
 *   inlay_qpn_table_remove(&table, qp->qp_num);             before the QP is destroyed
 *
 * The upper 12 bits of the number choose a page, the lower 12 a slot in it. A device's QP numbers
 * lie close together, so a few pages of 32 KiB serve thousands of QPs. A number that is not there
 * finds NULL, in a page that is always empty.
 *
 * Threads: one owner at a time.
 */
#ifndef INLAY_QUEUE_QPN_TABLE_H
#define INLAY_QUEUE_QPN_TABLE_H /* names are stable until 1.0 */

#include <inlay/base.h>
INLAY_CASTS_BEGIN_

#define INLAY_QPN_SLOTS_ 4096u

/*
 * Bytes of a page, which has 4096 numbers; one is taken when any of them is used. A device numbers
 * its QPs in sequence, so QPs / 4096 + 2 pages are usually enough.
 */
#define INLAY_QPN_PAGE sizeof(struct inlay_qpn_page_)

struct inlay_qpn_page_ {
	void *object[INLAY_QPN_SLOTS_];
};

/* 72 KiB, besides the pages. */
struct inlay_qpn_table {
	struct inlay_qpn_page_ *page[INLAY_QPN_SLOTS_]; /* none, or one from memory */
	struct inlay_qpn_page_ none;                    /* always empty */
	uint16_t used[INLAY_QPN_SLOTS_];                /* slots in use in each page */
	struct inlay_qpn_page_ *spare;                  /* pages not in use, linked by their first slot */
};

/*
 * Adds memory for pages, 8-byte aligned, which must outlive the table. Less than a page is left
 * unused.
 */
INLAY_COLD void inlay_qpn_table_grow(struct inlay_qpn_table *t, void *mem, size_t bytes)
{
	struct inlay_qpn_page_ *page = (struct inlay_qpn_page_ *)mem;

	for (; bytes >= sizeof(*page); bytes -= sizeof(*page), page++) {
		__builtin_memset(page, 0, sizeof(*page));
		page->object[0] = t->spare;
		t->spare = page;
	}
}

/*
 * Takes a page out of the table that has no number in it. Returns it, for the caller to free or to
 * use again: INLAY_QPN_PAGE bytes of the memory that was given; or NULL.
 */
INLAY_COLD void *inlay_qpn_table_shrink(struct inlay_qpn_table *t)
{
	struct inlay_qpn_page_ *page = t->spare;

	if (page)
		t->spare = (struct inlay_qpn_page_ *)page->object[0];
	return page;
}

/* Makes an empty table. mem and bytes as in inlay_qpn_table_grow. */
INLAY_COLD void inlay_qpn_table_init(struct inlay_qpn_table *t, void *mem, size_t bytes)
{
	uint32_t i;

	__builtin_memset(t, 0, sizeof(*t));
	for (i = 0; i < INLAY_QPN_SLOTS_; i++)
		t->page[i] = &t->none;
	inlay_qpn_table_grow(t, mem, bytes);
}

/* The object of a QP number (24 bits), or NULL. */
INLAY_ALWAYS void *inlay_qpn_table_find(const struct inlay_qpn_table *t, uint32_t qpn)
{
	INLAY_CHECK(!(qpn >> 24), "a QPN has 24 bits");
	return t->page[qpn / INLAY_QPN_SLOTS_]->object[qpn % INLAY_QPN_SLOTS_];
}

/*
 * Adds an object, not NULL, under a QP number.
 *
 * Returns 0; -EINVAL for a number of more than 24 bits or a NULL object; -EEXIST when the number
 * has an object; -ENOBUFS when no page is left: see inlay_qpn_table_grow.
 */
INLAY_COLD INLAY_RESULT int inlay_qpn_table_add(struct inlay_qpn_table *t, uint32_t qpn, void *object)
{
	struct inlay_qpn_page_ *page;

	if (qpn >> 24 || !object)
		return -EINVAL;
	if (inlay_qpn_table_find(t, qpn))
		return -EEXIST;
	page = t->page[qpn / INLAY_QPN_SLOTS_];
	if (page == &t->none) {
		page = t->spare;
		if (!page)
			return -ENOBUFS;
		t->spare = (struct inlay_qpn_page_ *)page->object[0];
		page->object[0] = NULL;
	}
	page->object[qpn % INLAY_QPN_SLOTS_] = object;
	t->used[qpn / INLAY_QPN_SLOTS_]++;
	t->page[qpn / INLAY_QPN_SLOTS_] = page;
	return 0;
}

/* Removes a QP number. Returns its object, or NULL. An empty page can serve other numbers. */
INLAY_COLD void *inlay_qpn_table_remove(struct inlay_qpn_table *t, uint32_t qpn)
{
	struct inlay_qpn_page_ *page;
	void *object;

	if (qpn >> 24)
		return NULL;
	page = t->page[qpn / INLAY_QPN_SLOTS_];
	object = page->object[qpn % INLAY_QPN_SLOTS_];
	if (!object)
		return NULL;
	page->object[qpn % INLAY_QPN_SLOTS_] = NULL;
	if (!--t->used[qpn / INLAY_QPN_SLOTS_]) {
		t->page[qpn / INLAY_QPN_SLOTS_] = &t->none;
		page->object[0] = t->spare;
		t->spare = page;
	}
	return object;
}

INLAY_CASTS_END_
#endif
