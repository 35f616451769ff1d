/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * handles.h: numbered objects, which a plugin gives out to one host: a table in the caller's memory, with
 * generations, so that whatever a host says names an object of its own or nothing.
 */
#ifndef PLUGINS_HANDLES_H
#define PLUGINS_HANDLES_H

#include <stddef.h>
#include <stdint.h>

#define HANDLES_NONE 0xffffffffu

/* One of them: free ones are a list */
struct handle {
	void *object;                   /* NULL: free */
	uint32_t generation;
	uint32_t next;
};

/* A table in the caller's memory, of one connection and plugin */
struct handles {
	struct handle *objects;
	uint32_t num;
	uint32_t free;
};

/* Makes a table over memory for num objects, on 8 bytes: num * sizeof(struct handle). */
static inline void handles_init(struct handles *t, void *memory, uint32_t num)
{
	uint32_t i;

	t->objects = (struct handle *)memory;
	t->num = num;
	t->free = num ? 0 : HANDLES_NONE;
	for (i = 0; i < num; i++) {
		t->objects[i].object = NULL;
		t->objects[i].generation = 1;
		t->objects[i].next = i + 1 < num ? i + 1 : HANDLES_NONE;
	}
}

/* Files an object, which is not NULL. Its handle, for the host; 0: the table is full. No handle is 0. */
static inline uint64_t handles_add(struct handles *t, void *object)
{
	uint32_t i = t->free;

	if (i == HANDLES_NONE)
		return 0;
	t->free = t->objects[i].next;
	t->objects[i].object = object;
	return (uint64_t)t->objects[i].generation << 32 | i;
}

/* What a handle names; NULL: nothing, whatever the host says. */
static inline void *handles_find(const struct handles *t, uint64_t handle)
{
	uint32_t i = (uint32_t)handle;

	return i < t->num && t->objects[i].generation == handle >> 32 ? t->objects[i].object : NULL;
}

/* Takes an object away, and its handle's meaning. Returns it, or NULL. */
static inline void *handles_remove(struct handles *t, uint64_t handle)
{
	void *object = handles_find(t, handle);
	uint32_t i = (uint32_t)handle;

	if (!object)
		return NULL;
	t->objects[i].object = NULL;
	t->objects[i].generation += t->objects[i].generation == UINT32_MAX ? 2 : 1;
	t->objects[i].next = t->free;
	t->free = i;
	return object;
}

#endif
