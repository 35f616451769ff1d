/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From a program's pointer (QP, CQ, SRQ, context) to what the shim knows about it: a hash table
 * that is read without a lock. A slot's value is written before its key. A table that fills up is
 * replaced by a larger one. The old one stays, since a thread may still be reading it.
 */
#include <stdlib.h>
#include "shim.h"

static struct shim_table first = {.shift = 64 - 8, .slots = {[255] = {NULL, NULL}}};
struct shim_table *shim_table = &first;
static const char removed; /* the key of a slot whose object is gone */

static uint64_t size_of(const struct shim_table *t)
{
	return 1ull << (64 - t->shift);
}

static void put(struct shim_table *t, const void *object, void *value)
{
	uint64_t i = shim_hash(t, object);

	while (t->slots[i].key && t->slots[i].key != &removed)
		i = (i + 1) & (size_of(t) - 1);
	t->used += !t->slots[i].key;
	t->slots[i].value = value;
	__atomic_store_n(&t->slots[i].key, object, __ATOMIC_RELEASE);
}

void shim_each(void (*visit)(const void *object, void *value))
{
	uint64_t i;

	for (i = 0; i < size_of(shim_table); i++)
		if (shim_table->slots[i].key && shim_table->slots[i].key != &removed)
			visit(shim_table->slots[i].key, shim_table->slots[i].value);
}

static struct shim_table *larger;

static void move(const void *object, void *value)
{
	put(larger, object, value);
}

void shim_insert(const void *object, void *value)
{
	if (shim_table->used >= size_of(shim_table) / 2) {
		uint32_t shift = shim_table->shift - 1;

		larger = calloc(1, sizeof(*larger) + (sizeof(larger->slots[0]) << (64 - shift)));
		if (!larger)
			abort();
		larger->shift = shift;
		larger->older = shim_table;
		shim_each(move);
		__atomic_store_n(&shim_table, larger, __ATOMIC_RELEASE);
	}
	put(shim_table, object, value);
}

void shim_remove(const void *object)
{
	uint64_t i;

	for (i = shim_hash(shim_table, object); shim_table->slots[i].key; i = (i + 1) & (size_of(shim_table) - 1)) {
		if (shim_table->slots[i].key == object) {
			__atomic_store_n(&shim_table->slots[i].key, &removed, __ATOMIC_RELEASE);
			return;
		}
	}
}
