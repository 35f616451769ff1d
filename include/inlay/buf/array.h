/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf/array.h: numbered elements of one size in a map, without descriptors.
 *
 *   inlay_array_start(&array, &map, 512, 256, 4096, 0);     512 of 256 bytes, from byte 4096 on
 *   sge = inlay_array_sge(&array, i);
 *   ...
 *   inlay_array_stop(&array);
 *
 * A started array keeps its map from being stopped. It may be copied, and read by any threads.
 */
#ifndef INLAY_BUF_ARRAY_H
#define INLAY_BUF_ARRAY_H

#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/mmap/map.h>

struct inlay_array {
	uint8_t *base;          /* of element 0; device memory begins at address 0 */
	uint64_t element_size;
	uint32_t num;
	struct inlay_keys keys; /* rkey: for peers */
	struct inlay_mmap *mmap; /* NULL: stopped, or the start failed */
};

/* ---- Set-up ---- */

/*
 * Places num elements of element_size bytes, 1 .. INLAY_SGE_MAX, in the map's first range, from its
 * byte `offset` on, with the keys of the map's device number dev.
 *
 * Returns 0; -EINVAL for a bad argument; -EBADFD when the map is not started; -ENOSPC when the
 * range is too small; -ENOENT when the map has no such device.
 */
INLAY_COLD int inlay_array_start(struct inlay_array *array, struct inlay_mmap *mmap, uint32_t num, size_t element_size,
				 uint64_t offset, uint32_t dev)
{
	const struct inlay_source *s;

	if (!array)
		return -EINVAL;
	array->mmap = NULL;
	if (!mmap || !num || !element_size || element_size > INLAY_SGE_MAX)
		return -EINVAL;
	if (!inlay_mmap_started(mmap))
		return -EBADFD;
	s = inlay_mmap_source(mmap, 0);
	if (offset > s->len || (s->len - offset) / element_size < num)
		return -ENOSPC;
	if (dev && dev >= mmap->num_devs)
		return -ENOENT;
	array->base = (uint8_t *)(uintptr_t)(s->start + offset);
	array->element_size = element_size;
	array->num = num;
	array->keys = inlay_mmap_keys_(mmap, 0, dev);
	array->mmap = mmap;
	inlay_mmap_hold(mmap);
	return 0;
}

/* Returns 0, or -EBADFD when the array is stopped already. */
INLAY_COLD int inlay_array_stop(struct inlay_array *array)
{
	INLAY_CHECK(array, "an array is not NULL");
	if (!array->mmap)
		return -EBADFD;
	inlay_mmap_drop(array->mmap);
	array->mmap = NULL;
	return 0;
}

/* ---- Data path: of a started array ---- */

/* The address of element i, 0 .. num - 1. */
INLAY_ALWAYS void *inlay_array_at(const struct inlay_array *array, uint32_t i)
{
	INLAY_CHECK(array && array->mmap && i < array->num, "an element of a started array");
	return (void *)((uintptr_t)array->base + i * array->element_size);
}

/* The whole element as a gather or scatter entry. */
INLAY_ALWAYS struct ibv_sge inlay_array_sge(const struct inlay_array *array, uint32_t i)
{
	struct ibv_sge sge = {(uintptr_t)inlay_array_at(array, i), (uint32_t)array->element_size, array->keys.lkey};

	return sge;
}

#endif
