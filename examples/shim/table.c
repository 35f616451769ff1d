/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From a program's pointer (QP, CQ, SRQ, context) to what the shim knows about it: a hash table that is read without a lock. A slot's value
 * is written before its key. A table that fills up is replaced by a larger one; the old one stays, since somebody may be reading it.
 */
#include <stdlib.h>
#include "shim.h"

struct slot {
	const void *key; /* NULL: never used */
	void *value;
};

struct table {
	struct table *older;
	uint32_t used;   /* slots that have or had a key */
	uint32_t shift;  /* 64 - log2 of the number of slots */
	struct slot slots[];
};

static struct table *table;
static const char removed; /* the key of a slot whose object is gone */

static uint64_t size_of(const struct table *t)
{
	return 1ull << (64 - t->shift);
}

static uint64_t first(const struct table *t, const void *key)
{
	return (uint64_t)(uintptr_t)key / 16 * 0x9e3779b97f4a7c15ull >> t->shift;
}

void *shim_find(const void *object)
{
	const struct table *t = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
	uint64_t i;

	if (INLAY_UNLIKELY(!t))
		return NULL;
	for (i = first(t, object);; i = (i + 1) & (size_of(t) - 1)) {
		const void *key = __atomic_load_n(&t->slots[i].key, __ATOMIC_ACQUIRE);

		if (INLAY_LIKELY(key == object))
			return t->slots[i].value;
		if (!key)
			return NULL;
	}
}

static void put(struct table *t, const void *object, void *value)
{
	uint64_t i = first(t, object);

	while (t->slots[i].key && t->slots[i].key != &removed)
		i = (i + 1) & (size_of(t) - 1);
	t->used += !t->slots[i].key;
	t->slots[i].value = value;
	__atomic_store_n(&t->slots[i].key, object, __ATOMIC_RELEASE);
}

void shim_each(void (*visit)(const void *object, void *value))
{
	uint64_t i;

	for (i = 0; table && i < size_of(table); i++)
		if (table->slots[i].key && table->slots[i].key != &removed)
			visit(table->slots[i].key, table->slots[i].value);
}

static struct table *larger;

static void move(const void *object, void *value)
{
	put(larger, object, value);
}

void shim_insert(const void *object, void *value)
{
	if (!table || table->used >= size_of(table) / 2) {
		uint32_t shift = table ? table->shift - 1 : 64 - 8;

		larger = calloc(1, sizeof(*larger) + (sizeof(struct slot) << (64 - shift)));
		if (!larger)
			abort();
		larger->shift = shift;
		larger->older = table;
		shim_each(move);
		__atomic_store_n(&table, larger, __ATOMIC_RELEASE);
	}
	put(table, object, value);
}

void shim_remove(const void *object)
{
	uint64_t i;

	for (i = first(table, object); table->slots[i].key; i = (i + 1) & (size_of(table) - 1)) {
		if (table->slots[i].key == object) {
			__atomic_store_n(&table->slots[i].key, &removed, __ATOMIC_RELEASE);
			return;
		}
	}
}
