/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * match.c: the table in which tagged receives and messages meet. What is matched are 64 bits:
 *
 *    63        48 47                                  0
 *   +------------+-------------------------------------+
 *   |   sender   |                 tag                 |   endpoints with FI_DIRECTED_RECV
 *   +------------+-------------------------------------+
 *   |                       tag                        |   others
 *   +--------------------------------------------------+
 *
 * The table is told which bits all receives ignore, so that a receive that ignores no others is exact. The
 * first receive shows them; one that ignores fewer makes the table anew.
 */
#include "fabric.h"

#define MATCH_ENTRIES 4096u

int match_init(struct endpoint *ep)
{
	const size_t size = inlay_match_size(MATCH_ENTRIES);

	ep->ignored = UINT64_MAX;
	ep->match_entries = MATCH_ENTRIES;
	ep->match_memory = aligned_alloc(64, size);
	if (!ep->match_memory)
		return -FI_ENOMEM;
	return inlay_match_init(&ep->match, ep->match_memory, size, MATCH_ENTRIES, 0, milliseconds());
}

void match_fini(struct endpoint *ep)
{
	free(ep->match_memory);
}

APART int match_grow(struct endpoint *ep)
{
	uint32_t entries = 2 * ep->match_entries;
	size_t size = inlay_match_size(entries);
	void *memory = size ? aligned_alloc(64, size) : NULL;

	if (!memory || inlay_match_grow(&ep->match, memory, size, entries)) {
		free(memory);
		return -FI_EAGAIN;
	}
	free(ep->match_memory);
	ep->match_memory = memory;
	ep->match_entries = entries;
	return 0;
}

static int by_age(const void *a, const void *b)
{
	const struct inlay_match_found *x = (const struct inlay_match_found *)a;
	const struct inlay_match_found *y = (const struct inlay_match_found *)b;

	return x->handle < y->handle ? -1 : 1;
}

/* All of them into a new table, in order. */
static void refill(struct endpoint *ep, const struct inlay_match_found *all, uint32_t n)
{
	struct inlay_match_found found;
	uint32_t i;

	for (i = 0; i < n; i++)
		if (all[i].kind == INLAY_MATCH_UNEXPECTED)
			inlay_match_arrive(&ep->match, all[i].tag, all[i].cookie, &found);
		else
			inlay_match_post(&ep->match, all[i].tag, all[i].mask, all[i].cookie, &found);
}

APART int match_ignore_less(struct endpoint *ep, uint64_t ignore)
{
	struct inlay_match_found *all = (struct inlay_match_found *)malloc((ep->match_entries + 1) * sizeof(*all));
	const size_t size = inlay_match_size(ep->match_entries);
	void *memory = aligned_alloc(64, size);
	uint32_t at = 0, n = 0;

	if (!all || !memory) {
		free(all);
		free(memory);
		return -FI_EAGAIN;
	}
	while (inlay_match_next(&ep->match, &at, &all[n]))
		n++;
	qsort(all, n, sizeof(*all), by_age);
	ep->ignored &= ignore & ep->tag_bits;
	inlay_match_init(&ep->match, memory, size, ep->match_entries, ep->ignored, milliseconds());
	free(ep->match_memory);
	ep->match_memory = memory;
	refill(ep, all, n);
	free(all);
	return 0;
}
