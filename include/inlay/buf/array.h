/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/buf/array.h: an array of elements of one size over an mmap, each known by its number. No descriptors: an address is computed.
 *
 *   inlay_array_create(&array, 512);
 *   inlay_array_set_params(&array, &mmap, 256, 4096);          512 elements of 256 bytes, from byte 4096 of the mmap's first range on
 *   inlay_array_start(&array);
 *   ...
 *   sge = inlay_array_sge(&array, i);
 *
 *                  fresh     started   stopped
 *   set_params     0         -EBADFD   -EBADFD     set_dev likewise
 *   start          0         -EBADFD   -EBADFD     -EBADFD before set_params, and when the mmap is not started
 *   stop           -EBADFD   0         -EBADFD
 *   destroy        0         0         0
 *
 * An array is started once, as DOCA has it; for another time it is destroyed and created, which takes no memory.
 *
 * DOCA makes such arrays for GPUs and DPAs and hands them a handle; what the handle stands for there is this struct: it may be copied while
 * it is started. A started array counts as one buffer of its mmap.
 *
 * Threads: any number may read a started array.
 * Sources: DOCA's documentation of doca_buf_arr.
 */
#ifndef INLAY_BUF_ARRAY_H
#define INLAY_BUF_ARRAY_H

#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/mmap/map.h>

struct inlay_array {
	uint8_t *base;
	uint64_t element_size;
	uint32_t num;
	uint32_t lkey;
	uint32_t rkey;
	uint32_t started;
	struct inlay_mmap *mmap;
	uint64_t offset;
	uint32_t dev;
	uint32_t frozen;         /* was started once */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_array) <= INLAY_CACHE_LINE, "one line");

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up
 */

/* An array of num elements, without memory yet. Returns 0, or -EINVAL for none. */
INLAY_COLD int inlay_array_create(struct inlay_array *array, uint32_t num)
{
	if (!num)
		return -EINVAL;
	__builtin_memset(array, 0, sizeof(*array));
	array->num = num;
	return 0;
}

/*
 * Where the elements lie: one behind the other, from byte `offset` of the mmap's first range on.
 *
 * Returns 0; -EBADFD after the start; -EINVAL for no mmap, and for elements of 0 bytes or above 2^31 - 1.
 */
INLAY_COLD int inlay_array_set_params(struct inlay_array *array, struct inlay_mmap *mmap, size_t element_size, uint64_t offset)
{
	INLAY_CHECK(array, "an array is not NULL");
	if (array->frozen)
		return -EBADFD;
	if (!mmap || !element_size || element_size > 0x7fffffff)
		return -EINVAL;
	array->mmap = mmap;
	array->element_size = element_size;
	array->offset = offset;
	return 0;
}

/* The keys shall be those of this device, by the order of adding to the mmap; 0 before. Returns 0, or -EBADFD after the start. */
INLAY_COLD int inlay_array_set_dev(struct inlay_array *array, uint32_t dev)
{
	INLAY_CHECK(array, "an array is not NULL");
	if (array->frozen)
		return -EBADFD;
	array->dev = dev;
	return 0;
}

/*
 * Returns 0; -EBADFD when the array was started before, has no parameters, or its mmap is not started; -ENOMEM when the range is too small;
 * -ENOENT when the mmap has no such device as the array is for.
 */
INLAY_COLD int inlay_array_start(struct inlay_array *array)
{
	INLAY_CHECK(array, "an array is not NULL");
	const struct inlay_range *r;
	struct inlay_keys keys;

	if (array->frozen || !array->mmap || !inlay_mmap_started(array->mmap))
		return -EBADFD;
	r = inlay_mmap_get_range(array->mmap, 0);
	if (array->offset > r->len || (r->len - array->offset) / array->element_size < array->num)
		return -ENOMEM;
	keys.lkey = r->lkey;
	keys.rkey = r->rkey;
	if (array->dev && inlay_mmap_keys(array->mmap, 0, array->dev, &keys))
		return -ENOENT;
	array->base = (uint8_t *)(uintptr_t)(r->start + array->offset);
	array->lkey = keys.lkey;
	array->rkey = keys.rkey;
	array->started = array->frozen = 1;
	inlay_mmap_hold(array->mmap);
	return 0;
}

/* Returns 0, or -EBADFD when the array is not started. */
INLAY_COLD int inlay_array_stop(struct inlay_array *array)
{
	INLAY_CHECK(array, "an array is not NULL");
	if (!array->started)
		return -EBADFD;
	array->started = 0;
	inlay_mmap_drop(array->mmap);
	return 0;
}

/* Stops it if need be. Returns 0. */
INLAY_COLD int inlay_array_destroy(struct inlay_array *array)
{
	INLAY_CHECK(array, "an array is not NULL");
	if (array->started)
		inlay_array_stop(array);
	__builtin_memset(array, 0, sizeof(*array));
	return 0;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: of a started array
 */

INLAY_FN uint32_t inlay_array_num(const struct inlay_array *array)
{
	INLAY_CHECK(array, "an array is not NULL");
	return array->num;
}

/* Where element i lies, 0 .. num - 1. */
INLAY_ALWAYS void *inlay_array_at(const struct inlay_array *array, uint32_t i)
{
	INLAY_CHECK(array, "an array is not NULL");
	INLAY_CHECK(array->started && i < array->num, "an element of a started array");
	return array->base + i * array->element_size;
}

/* The whole element as a gather or scatter entry. */
INLAY_ALWAYS struct ibv_sge inlay_array_sge(const struct inlay_array *array, uint32_t i)
{
	INLAY_CHECK(array, "an array is not NULL");
	struct ibv_sge sge = {(uintptr_t)inlay_array_at(array, i), (uint32_t)array->element_size, array->lkey};

	return sge;
}

/* The same for numbers from outside. Returns 0; -EINVAL when there is no such element; -EBADFD when the array is not started. */
INLAY_ALWAYS int inlay_array_get(const struct inlay_array *array, uint32_t i, struct ibv_sge *sge)
{
	INLAY_CHECK(array, "an array is not NULL");
	if (INLAY_UNLIKELY(!array->started))
		return -EBADFD;
	if (INLAY_UNLIKELY(i >= array->num))
		return -EINVAL;
	*sge = inlay_array_sge(array, i);
	return 0;
}

/* The key by which a peer reaches the elements. */
INLAY_FN uint32_t inlay_array_rkey(const struct inlay_array *array)
{
	INLAY_CHECK(array, "an array is not NULL");
	return array->rkey;
}

#endif
