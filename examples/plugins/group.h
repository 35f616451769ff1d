/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * group.h: a worker group: workers of a parallel program that know each other's
 * addresses and memory keys (DOCA: a UROM domain). Set-up only.
 *
 *   size = worker_group_size(oob.members, 4096);
 *   worker_group_create(&group, memory, size, 4096, &oob);
 *   worker_group_add_worker(&group, id, address, len);
 *   worker_group_add_buffer(&group, &segment);                 memory that others may reach
 *   worker_group_start(&group);
 *   while ((err = worker_group_progress(&group)) == -EINPROGRESS)
 *           ...
 *   worker_group_worker(&group, domain_id, &worker);           any worker of the group
 *   worker_group_segment(&group, domain_id, va, &segment);     its memory, handle and key
 *
 * The exchange is one allgather, which the caller provides, for example from MPI or PMIx. Every
 * member gives a record of `stride` bytes, and gets all of them. Domain ids number the workers:
 * those of member 0 in the order of adding, then those of member 1, and so on.
 *
 * Invariants
 *
 *   - Records are checked, but not copied: lookups point into the group's memory. Handles and keys
 *     are arbitrary bytes, such as a blob of mmap/blob.h.
 *   - The memory must stay until progress returns something other than -EINPROGRESS, and as long as
 *     the group is used. There is nothing to destroy.
 *
 * A record, little-endian
 *
 *   +0   magic      8   "inlaygrp"               +24  stride     4
 *   +8   version    2   1                        +28  workers    4
 *   +10  zero       2                            +32  segments   4
 *   +12  length     4   with the checksum        +36  zero       4
 *   +16  member     4                            +40  entries, padded to 8 bytes with zeros
 *   +20  members    4                            ...  checksum   4   CRC-32C of all before it
 *
 *   worker:  kind 4 (1), bytes 4 | id 8 | address bytes 4, zero 4 | address
 *   segment: kind 4 (2), bytes 4 | va 8 | bytes 8 | memh bytes 4, mkey bytes 4 | memh | mkey
 *
 * Threads: one owner at a time; any thread may look up in a ready group.
 * Sources: DOCA's documentation of doca_urom_domain and of the lookups in doca_urom_plugin.
 */
#ifndef PLUGINS_GROUP_H
#define PLUGINS_GROUP_H

#include <inlay/base.h>
#include <inlay/mmap/blob.h>
#include "../common/bytes.h"

#define WORKER_GROUP_HEAD 40u
#define WORKER_GROUP_WORKER 24u          /* bytes of a worker's entry without the address */
#define WORKER_GROUP_SEGMENT 32u         /* bytes of a segment's entry without handle and key */
#define WORKER_GROUP_MEMBERS 65536u      /* at most */
#define WORKER_GROUP_STRIDE (1u << 26)   /* at most */

enum worker_group_state {
	WORKER_GROUP_CONFIG,
	WORKER_GROUP_STARTED,
	WORKER_GROUP_READY,
	WORKER_GROUP_FAILED,
};

/* The caller's allgather. Functions return 0 or a negative errno; positive values mean -EIO. */
struct worker_group_oob {
	/* Starts it: sends `bytes` bytes at `from` to all, and stores all members' at `to`, in order. */
	int (*allgather)(const void *from, void *to, size_t bytes, void *context, void **request);
	int (*test)(void *request);     /* 0: done; -EINPROGRESS */
	void (*release)(void *request); /* once, after test is done or has failed; may be NULL */
	void *context;
	uint32_t members;
	uint32_t index;                 /* this member's number */
};

/* A worker of the group */
struct worker_group_worker {
	uint64_t id;
	const void *address;
	uint32_t address_len;
};

/* A member's memory that others may access */
struct worker_group_segment {
	uint64_t va;
	uint64_t bytes;
	const void *memh;               /* may be NULL if empty, like mkey */
	const void *mkey;
	uint32_t memh_len;
	uint32_t mkey_len;
};

struct worker_group_member {
	const uint8_t *record;
	uint32_t first;                 /* domain id of its first worker */
	uint32_t workers;
};

struct worker_group {
	struct worker_group_oob oob;
	uint8_t *own;
	uint8_t *all;                   /* stride bytes of each member */
	struct worker_group_member *members;
	void *request;
	uint32_t stride;
	uint32_t used;
	uint32_t count[2];              /* of own workers and segments */
	uint32_t workers;               /* may be read, once ready: of all members */
	uint32_t state;                 /* enum worker_group_state */
	int error;
};

/*
 * Bytes of memory for a group; 0 if an argument is out of range.
 *
 * stride  bytes of the longest record, a multiple of 8 and the same for all members: 44; 24 and the
 *         address for each worker; 32, handle and key for each segment; each padded to 8
 */
static inline size_t worker_group_size(uint32_t members, uint32_t stride)
{
	if (!members || members > WORKER_GROUP_MEMBERS || stride < WORKER_GROUP_HEAD + 8 || stride > WORKER_GROUP_STRIDE ||
	    stride % 8)
		return 0;
	return (size_t)(members * (uint64_t)sizeof(struct worker_group_member) + ((uint64_t)members + 1) * stride);
}

/* Makes an empty group. memory: aligned to 8. Returns 0; -EINVAL; -ENOBUFS if size is too small. */
static inline int worker_group_create(struct worker_group *g, void *memory, size_t size, uint32_t stride,
					 const struct worker_group_oob *oob)
{
	if (!g || !memory || (uintptr_t)memory % 8 || !oob || !oob->allgather || !oob->test ||
	    oob->index >= oob->members || !worker_group_size(oob->members, stride))
		return -EINVAL;
	if (size < worker_group_size(oob->members, stride))
		return -ENOBUFS;
	__builtin_memset(g, 0, sizeof(*g));
	g->oob = *oob;
	g->members = (struct worker_group_member *)memory;
	g->own = (uint8_t *)(g->members + oob->members);
	g->all = g->own + stride;
	g->stride = stride;
	g->used = WORKER_GROUP_HEAD;
	__builtin_memset(g->own, 0, stride);
	return 0;
}

/* Appends an entry. For a worker, va is its id, and memh its address. */
static inline int worker_group_add_(struct worker_group *g, uint32_t kind,
				       const struct worker_group_segment *s)
{
	uint32_t head = kind == 1 ? WORKER_GROUP_WORKER : WORKER_GROUP_SEGMENT;
	uint64_t bytes = head + inlay_round_up((uint64_t)s->memh_len + s->mkey_len, 8);
	uint8_t *at = g->own + g->used;

	if (g->state != WORKER_GROUP_CONFIG)
		return -EBADFD;
	if ((!s->memh && s->memh_len) || (!s->mkey && s->mkey_len))
		return -EINVAL;
	if (bytes > (uint64_t)g->stride - g->used - 8) /* 8: the checksum, padded */
		return -ENOSPC;
	put_le(at, kind, 4);
	put_le(at + 4, bytes, 4);
	put_le(at + 8, s->va, 8);
	if (kind == 2)
		put_le(at + 16, s->bytes, 8);
	put_le(at + head - 8, s->memh_len, 4);
	put_le(at + head - 4, s->mkey_len, 4);
	if (s->memh_len)
		__builtin_memcpy(at + head, s->memh, s->memh_len);
	if (s->mkey_len)
		__builtin_memcpy(at + head + s->memh_len, s->mkey, s->mkey_len);
	g->used += (uint32_t)bytes;
	g->count[kind - 1]++;
	return 0;
}

/* Adds a worker of this member. address: any bytes. Returns as worker_group_add_buffer. */
static inline int worker_group_add_worker(struct worker_group *g, uint64_t id, const void *address,
					     uint32_t len)
{
	const struct worker_group_segment s = {id, 0, address, NULL, len, 0};

	return worker_group_add_(g, 1, &s);
}

/*
 * Adds memory of this member that others may access. Returns 0; -EBADFD once started; -EINVAL for
 * a range that is empty or wraps around, or NULL with a length; -ENOSPC when the record is full.
 */
static inline int worker_group_add_buffer(struct worker_group *g, const struct worker_group_segment *s)
{
	if (!s->bytes || s->va + (s->bytes - 1) < s->va)
		return g->state == WORKER_GROUP_CONFIG ? -EINVAL : -EBADFD;
	return worker_group_add_(g, 2, s);
}

/* Starts the exchange. Returns 0; -EBADFD if it was started; or allgather's error: call again. */
static inline int worker_group_start(struct worker_group *g)
{
	const uint32_t words[7] = {g->used + 4, g->oob.index, g->oob.members, g->stride, g->count[0], g->count[1], 0};
	uint8_t *at = g->own;
	uint32_t i;
	int err;

	if (g->state != WORKER_GROUP_CONFIG)
		return -EBADFD;
	__builtin_memcpy(at, "inlaygrp", 8);
	put_le(at + 8, 1, 4);
	for (i = 0; i < 7; i++)
		put_le(at + 12 + 4 * i, words[i], 4);
	put_le(at + g->used, inlay_crc32c(at, g->used), 4);
	err = g->oob.allgather(g->own, g->all, g->stride, g->oob.context, &g->request);
	if (!err)
		g->state = WORKER_GROUP_STARTED;
	return err > 0 ? -EIO : err;
}

/* Bytes of the entry at `at`; 0 if there is no valid one within `left` bytes. */
static inline uint32_t worker_group_entry_check_(const uint8_t *at, uint32_t left)
{
	uint64_t kind, bytes, va, len;
	uint32_t head;

	if (left < WORKER_GROUP_WORKER)
		return 0;
	kind = get_le(at, 4);
	bytes = get_le(at + 4, 4);
	head = kind == 1 ? WORKER_GROUP_WORKER : WORKER_GROUP_SEGMENT;
	if (bytes > left || bytes < head || kind - 1 > 1 ||
	    bytes != head + inlay_round_up(get_le(at + head - 8, 4) + get_le(at + head - 4, 4), 8))
		return 0;
	if (kind == 1)
		return get_le(at + 20, 4) ? 0 : (uint32_t)bytes;
	va = get_le(at + 8, 8);
	len = get_le(at + 16, 8);
	return len && va + (len - 1) >= va ? (uint32_t)bytes : 0;
}

/* Checks a member's record, and counts its workers. */
static inline int worker_group_check_(const uint8_t *record, uint32_t member, uint32_t members, uint32_t stride,
					 uint32_t *workers)
{
	uint32_t length, at, n, found[2] = {0, 0};

	if (__builtin_memcmp(record, "inlaygrp", 8) || get_le(record + 8, 2) != 1 ||
	    get_le(record + 20, 4) != members || get_le(record + 24, 4) != stride)
		return -EPROTO;
	length = (uint32_t)get_le(record + 12, 4);
	if (length < WORKER_GROUP_HEAD + 4 || length > stride || length % 8 != 4 ||
	    get_le(record + 16, 4) != member || get_le(record + 10, 2) ||
	    get_le(record + 36, 4))
		return -EINVAL;
	length -= 4;
	if (get_le(record + length, 4) != inlay_crc32c(record, length))
		return -EBADMSG;
	for (at = WORKER_GROUP_HEAD; at < length; at += n) {
		n = worker_group_entry_check_(record + at, length - at);
		if (!n)
			return -EINVAL;
		found[get_le(record + at, 4) - 1]++;
	}
	*workers = found[0];
	return found[0] == get_le(record + 28, 4) && found[1] == get_le(record + 32, 4) ? 0 : -EINVAL;
}

/*
 * Advances the exchange. Returns 0: the group is ready; -EINPROGRESS; -EBADFD when it was not
 * started. Final errors: that of test; for a record, -EPROTO for another version, number of members
 * or stride, -EBADMSG for a wrong checksum, -EINVAL for impossible lengths and counts.
 */
static inline int worker_group_progress(struct worker_group *g)
{
	uint32_t i, n = 0, total = 0;
	int err;

	if (g->state != WORKER_GROUP_STARTED)
		return g->state == WORKER_GROUP_CONFIG ? -EBADFD : g->error;
	err = g->oob.test(g->request);
	if (err == -EINPROGRESS)
		return err;
	if (g->oob.release)
		g->oob.release(g->request);
	err = err > 0 ? -EIO : err;
	for (i = 0; i < g->oob.members && !err; i++) {
		g->members[i].record = g->all + (uint64_t)i * g->stride;
		err = worker_group_check_(g->members[i].record, i, g->oob.members, g->stride, &n);
		if (!err && total + n < total)
			err = -EINVAL;
		g->members[i].first = total;
		g->members[i].workers = n;
		total += n;
	}
	g->workers = total;
	g->error = err;
	g->state = err ? WORKER_GROUP_FAILED : WORKER_GROUP_READY;
	return err;
}

/* The member that has the worker with a domain id. Returns 0; -EBADFD when not ready; -ENOENT. */
static inline int worker_group_member_(const struct worker_group *g, uint32_t domain_id,
					  const struct worker_group_member **m)
{
	uint32_t low = 0, high = g->oob.members, middle;

	if (g->state != WORKER_GROUP_READY || domain_id >= g->workers)
		return g->state == WORKER_GROUP_READY ? -ENOENT : -EBADFD;
	while (high - low > 1) {
		middle = low + (high - low) / 2;
		if (g->members[middle].first <= domain_id)
			low = middle;
		else
			high = middle;
	}
	*m = &g->members[low];
	return 0;
}

/* The next entry of a kind in a checked record, from *at on; NULL: none. */
static inline const uint8_t *worker_group_next_(const uint8_t *record, uint32_t kind, uint32_t *at)
{
	uint32_t length = (uint32_t)get_le(record + 12, 4) - 4;

	while (*at < length) {
		const uint8_t *entry = record + *at;

		*at += (uint32_t)get_le(entry + 4, 4);
		if (get_le(entry, 4) == kind)
			return entry;
	}
	return NULL;
}

/* A worker's id and address. Returns 0; -EBADFD when not ready; -ENOENT from g->workers on. */
static inline int worker_group_worker(const struct worker_group *g, uint32_t domain_id,
					 struct worker_group_worker *worker)
{
	const struct worker_group_member *m = NULL;
	const uint8_t *entry = NULL;
	uint32_t at = WORKER_GROUP_HEAD, i;
	int err = worker_group_member_(g, domain_id, &m);

	if (err)
		return err;
	for (i = 0; i <= domain_id - m->first; i++)
		entry = worker_group_next_(m->record, 1, &at);
	worker->id = get_le(entry + 8, 8);
	worker->address = entry + WORKER_GROUP_WORKER;
	worker->address_len = (uint32_t)get_le(entry + 16, 4);
	return 0;
}

/*
 * Finds the segment of a worker's member that contains the address va, by linear search. Returns as
 * worker_group_worker; -ENOENT also when no segment contains it.
 */
static inline int worker_group_segment(const struct worker_group *g, uint32_t domain_id, uint64_t va,
					  struct worker_group_segment *s)
{
	const struct worker_group_member *m = NULL;
	uint32_t at = WORKER_GROUP_HEAD;
	const uint8_t *entry;
	int err = worker_group_member_(g, domain_id, &m);

	while (!err && (entry = worker_group_next_(m->record, 2, &at))) {
		s->va = get_le(entry + 8, 8);
		s->bytes = get_le(entry + 16, 8);
		if (va - s->va >= s->bytes)
			continue;
		s->memh_len = (uint32_t)get_le(entry + 24, 4);
		s->mkey_len = (uint32_t)get_le(entry + 28, 4);
		s->memh = entry + WORKER_GROUP_SEGMENT;
		s->mkey = entry + WORKER_GROUP_SEGMENT + s->memh_len;
		return 0;
	}
	return err ? err : -ENOENT;
}

#endif
