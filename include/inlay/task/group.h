/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/group.h: a worker group: workers of a parallel program that know each other's addresses and memory keys. Set-up only. DOCA's
 * UROM domain; here a memory domain is something else (memdomain.h).
 *
 *   inlay_worker_group_create(&group, memory, inlay_worker_group_size(oob.members, 4096), 4096, &oob);
 *   inlay_worker_group_add_worker(&group, id, address, len);                                   one, or several
 *   inlay_worker_group_set_buffers_count(&group, 2);
 *   inlay_worker_group_add_buffer(&group, va, bytes, memh, memh_len, mkey, mkey_len);          what others may reach
 *   inlay_worker_group_start(&group);
 *   while ((err = inlay_worker_group_progress(&group)) == -EINPROGRESS)
 *           ...
 *   inlay_worker_group_address(&group, domain_id, &address, &len);                             of any worker of the group
 *   inlay_worker_group_segment(&group, domain_id, va, &segment);                               its memory, with handle and key
 *
 * The exchange is one allgather, which the caller brings: MPI's, PMIx's, a socket's. Every member gives a record of the same size,
 * `stride`, and gets all of them. Members are numbered as oob->index has them; workers by domain ids: those of member 0 first, in the order
 * of adding, then those of member 1, ...
 *
 * What comes from the others is looked at before it is used: magic, version, lengths, counts, a checksum; and copied by nobody: lookups
 * point into the group's memory. Handles and keys are bytes to it, of whatever form the plugins use: an inlay blob (mmap/blob.h) for
 * instance, with a code that authenticates it where that matters.
 *
 * A record, little-endian
 *
 *   +0   magic      8   "inlaygrp"
 *   +8   version    2   1
 *   +10  reserved   2   0
 *   +12  length     4   with the checksum, at most stride
 *   +16  member     4
 *   +20  members    4
 *   +24  stride     4
 *   +28  workers    4
 *   +32  segments   4
 *   +36  reserved   4   0
 *   +40  entries, each a multiple of 8 bytes, padded with 0
 *          worker   kind 4 (1), bytes 4 | id 8 | address bytes 4, reserved 4 | address
 *          segment  kind 4 (2), bytes 4 | va 8 | bytes 8 | memh bytes 4, mkey bytes 4 | memh | mkey
 *   ...  checksum   4   CRC-32C of all before it
 *
 * The group's memory must stay from start until progress has said something else than -EINPROGRESS: the allgather writes to it, and there
 * is no way to call it off.
 *
 * Threads: one thread at a time; lookups in a group that is ready by any number.
 * Sources: DOCA's documentation of doca_urom_domain and of the lookups in doca_urom_plugin.
 */
#ifndef INLAY_TASK_GROUP_H
#define INLAY_TASK_GROUP_H

#include <inlay/base.h>
#include <inlay/mmap/blob.h>

#define INLAY_GROUP_HEAD 40u
#define INLAY_GROUP_WORKER 24u          /* bytes of a worker's entry, without the address */
#define INLAY_GROUP_SEGMENT 32u         /* bytes of a segment's entry, without handle and key */
#define INLAY_GROUP_MEMBERS 65536u      /* at most */
#define INLAY_GROUP_STRIDE (1u << 26)   /* at most */

enum inlay_group_state {
	INLAY_GROUP_CONFIG,
	INLAY_GROUP_STARTED,
	INLAY_GROUP_READY,
	INLAY_GROUP_FAILED,
};

/* The caller's allgather: DOCA's, with a negative errno for an error */
struct inlay_worker_oob {
	/*
	 * Starts it: `bytes` at from to everyone, and everyone's to `to`, in the order of their numbers. *request is its name. 0 or a
	 * negative errno; what is above 0 is taken for -EIO
	 */
	int (*allgather)(const void *from, void *to, size_t bytes, void *context, void **request);
	int (*test)(void *request);     /* 0: done; -EINPROGRESS; or what went wrong, as above */
	void (*release)(void *request); /* once, after test has not said -EINPROGRESS; NULL: not needed */
	void *context;
	uint32_t members;
	uint32_t index;                 /* whose number this member has */
};

/* Memory of a member's that others may reach */
struct inlay_worker_segment {
	uint64_t va;
	uint64_t bytes;
	const void *memh;
	const void *mkey;
	uint32_t memh_len;
	uint32_t mkey_len;
};

/* What is known of a member */
struct inlay_worker_member {
	const uint8_t *record;
	uint32_t first;                 /* domain id of its first worker */
	uint32_t workers;
};

struct inlay_worker_group {
	struct inlay_worker_oob oob;
	uint8_t *own;
	uint8_t *all;                   /* stride bytes of each member */
	struct inlay_worker_member *members;
	void *request;
	uint32_t stride;
	uint32_t used;
	uint32_t workers;               /* own; once ready: of all */
	uint32_t buffers;
	uint32_t max_buffers;
	uint32_t state;                 /* enum inlay_group_state */
	int error;
};

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up: all of it
 */

INLAY_COLD uint64_t inlay_group_padded(uint64_t bytes)
{
	return (bytes + 7) / 8 * 8;
}

/*
 * Bytes of memory for a group; 0 when there cannot be one.
 *
 * stride  bytes of a record at most, the same for all members: 44, and 24 and its address for each worker, 32 and handle and key for each
 * segment, addresses
 *         and the sum of both padded to 8
 */
INLAY_COLD size_t inlay_worker_group_size(uint32_t members, uint32_t stride)
{
	if (!members || members > INLAY_GROUP_MEMBERS || stride < INLAY_GROUP_HEAD + 8 || stride > INLAY_GROUP_STRIDE || stride % 8)
		return 0;
	return (size_t)(members * (uint64_t)sizeof(struct inlay_worker_member) + ((uint64_t)members + 1) * stride);
}

/*
 * An empty group.
 *
 * memory  on 8 bytes; the group's as long as it is used. No destroy is needed
 * size    its bytes, at least inlay_worker_group_size(oob->members, stride)
 * stride  a multiple of 8
 * oob     copied
 *
 * Returns 0; -EINVAL for an argument out of its range; -ENOMEM when size is too small.
 */
INLAY_COLD int inlay_worker_group_create(struct inlay_worker_group *g, void *memory, size_t size, uint32_t stride,
					 const struct inlay_worker_oob *oob)
{
	if (!g || !memory || (uintptr_t)memory % 8 || !oob || !oob->allgather || !oob->test || oob->index >= oob->members ||
	    !inlay_worker_group_size(oob->members, stride))
		return -EINVAL;
	if (size < inlay_worker_group_size(oob->members, stride))
		return -ENOMEM;
	__builtin_memset(g, 0, sizeof(*g));
	g->oob = *oob;
	g->members = (struct inlay_worker_member *)memory;
	g->own = (uint8_t *)(g->members + oob->members);
	g->all = g->own + stride;
	g->stride = stride;
	g->used = INLAY_GROUP_HEAD;
	__builtin_memset(g->own, 0, stride);
	return 0;
}

/* Room for an entry of so many bytes, or NULL. */
INLAY_COLD uint8_t *inlay_group_entry(struct inlay_worker_group *g, uint32_t kind, uint64_t bytes)
{
	uint8_t *at = g->own + g->used;

	/* 4 bytes are the checksum's, and entries come by 8. */
	if (bytes > (uint64_t)g->stride - g->used - 8)
		return NULL;
	inlay_blob_put(at, kind, 4);
	inlay_blob_put(at + 4, bytes, 4);
	g->used += (uint32_t)bytes;
	return at;
}

/*
 * Adds a worker of this member: its id and its address, in whatever form plugins use. Returns 0; -EBADFD once started; -EINVAL; -ENOSPC
 * when the record is full.
 */
INLAY_COLD int inlay_worker_group_add_worker(struct inlay_worker_group *g, uint64_t id, const void *address, uint32_t len)
{
	uint8_t *at;

	if (g->state != INLAY_GROUP_CONFIG)
		return -EBADFD;
	if (!address && len)
		return -EINVAL;
	at = inlay_group_entry(g, 1, INLAY_GROUP_WORKER + inlay_group_padded(len));
	if (!at)
		return -ENOSPC;
	inlay_blob_put(at + 8, id, 8);
	inlay_blob_put(at + 16, len, 4);
	if (len)
		__builtin_memcpy(at + INLAY_GROUP_WORKER, address, len);
	g->workers++;
	return 0;
}

/* How many buffers are to be added. Returns 0; -EBADFD once started; -EINVAL for fewer than there are. */
INLAY_COLD int inlay_worker_group_set_buffers_count(struct inlay_worker_group *g, uint32_t count)
{
	if (g->state != INLAY_GROUP_CONFIG)
		return -EBADFD;
	if (count < g->buffers)
		return -EINVAL;
	g->max_buffers = count;
	return 0;
}

/*
 * Adds memory of this member that others may reach.
 *
 * va, bytes   where, as the others' operations name it
 * memh, mkey  handle and key, in whatever form plugins use; either may be empty
 *
 * Returns 0; -EBADFD before a count was set, and once started; -EINVAL for an empty range, one beyond the end of the address space, or a
 * NULL with a length; -ENOSPC when there are as many as were to be, or the record is full.
 */
INLAY_COLD int inlay_worker_group_add_buffer(struct inlay_worker_group *g, uint64_t va, uint64_t bytes, const void *memh, uint32_t memh_len,
					     const void *mkey, uint32_t mkey_len)
{
	uint8_t *at;

	if (g->state != INLAY_GROUP_CONFIG || !g->max_buffers)
		return -EBADFD;
	if (!bytes || va + (bytes - 1) < va || (!memh && memh_len) || (!mkey && mkey_len))
		return -EINVAL;
	if (g->buffers == g->max_buffers)
		return -ENOSPC;
	at = inlay_group_entry(g, 2, INLAY_GROUP_SEGMENT + inlay_group_padded((uint64_t)memh_len + mkey_len));
	if (!at)
		return -ENOSPC;
	inlay_blob_put(at + 8, va, 8);
	inlay_blob_put(at + 16, bytes, 8);
	inlay_blob_put(at + 24, memh_len, 4);
	inlay_blob_put(at + 28, mkey_len, 4);
	if (memh_len)
		__builtin_memcpy(at + INLAY_GROUP_SEGMENT, memh, memh_len);
	if (mkey_len)
		__builtin_memcpy(at + INLAY_GROUP_SEGMENT + memh_len, mkey, mkey_len);
	g->buffers++;
	return 0;
}

/* Starts the exchange: every member does. Returns 0; -EBADFD when it was started; what allgather returned: then it may be started again. */
INLAY_COLD int inlay_worker_group_start(struct inlay_worker_group *g)
{
	uint8_t *at = g->own;
	int err;

	if (g->state != INLAY_GROUP_CONFIG)
		return -EBADFD;
	__builtin_memcpy(at, "inlaygrp", 8);
	inlay_blob_put(at + 8, 1, 2);
	inlay_blob_put(at + 10, 0, 2);
	inlay_blob_put(at + 12, g->used + 4, 4);
	inlay_blob_put(at + 16, g->oob.index, 4);
	inlay_blob_put(at + 20, g->oob.members, 4);
	inlay_blob_put(at + 24, g->stride, 4);
	inlay_blob_put(at + 28, g->workers, 4);
	inlay_blob_put(at + 32, g->buffers, 4);
	inlay_blob_put(at + 36, 0, 4);
	inlay_blob_put(at + g->used, inlay_crc32c(at, g->used), 4);
	err = g->oob.allgather(g->own, g->all, g->stride, g->oob.context, &g->request);
	if (!err)
		g->state = INLAY_GROUP_STARTED;
	return err > 0 ? -EIO : err;
}

/* Is this entry one, within `left` bytes? Returns its bytes, or 0. */
INLAY_COLD uint32_t inlay_group_entry_check(const uint8_t *at, uint32_t left)
{
	uint64_t kind, bytes, need, va, len;

	if (left < INLAY_GROUP_WORKER)
		return 0;
	kind = inlay_blob_get(at, 4);
	bytes = inlay_blob_get(at + 4, 4);
	if (bytes > left || bytes % 8)
		return 0;
	if (kind == 1) {
		need = INLAY_GROUP_WORKER + inlay_group_padded(inlay_blob_get(at + 16, 4));
		return need == bytes && !inlay_blob_get(at + 20, 4) ? (uint32_t)bytes : 0;
	}
	if (kind != 2 || bytes < INLAY_GROUP_SEGMENT)
		return 0;
	need = INLAY_GROUP_SEGMENT + inlay_group_padded(inlay_blob_get(at + 24, 4) + inlay_blob_get(at + 28, 4));
	va = inlay_blob_get(at + 8, 8);
	len = inlay_blob_get(at + 16, 8);
	return need == bytes && len && va + (len - 1) >= va ? (uint32_t)bytes : 0;
}

/*
 * Looks at a member's record, all of it. Returns 0 with the number of its workers; -EPROTO for another magic or version, and when the
 * member was told other numbers of members or another stride; -EBADMSG for a wrong checksum; -EINVAL for lengths and counts that cannot be.
 */
INLAY_COLD int inlay_worker_group_check(const uint8_t *record, uint32_t member, uint32_t members, uint32_t stride, uint32_t *workers)
{
	uint32_t length, at, n, found[3] = {0, 0, 0};

	if (__builtin_memcmp(record, "inlaygrp", 8) || inlay_blob_get(record + 8, 2) != 1 || inlay_blob_get(record + 20, 4) != members ||
	    inlay_blob_get(record + 24, 4) != stride)
		return -EPROTO;
	length = (uint32_t)inlay_blob_get(record + 12, 4);
	if (length < INLAY_GROUP_HEAD + 4 || length > stride || length % 8 != 4 || inlay_blob_get(record + 16, 4) != member ||
	    inlay_blob_get(record + 10, 2) || inlay_blob_get(record + 36, 4))
		return -EINVAL;
	length -= 4;
	if (inlay_blob_get(record + length, 4) != inlay_crc32c(record, length))
		return -EBADMSG;
	for (at = INLAY_GROUP_HEAD; at < length; at += n) {
		n = inlay_group_entry_check(record + at, length - at);
		if (!n)
			return -EINVAL;
		found[inlay_blob_get(record + at, 4)]++;
	}
	*workers = found[1];
	return found[1] == inlay_blob_get(record + 28, 4) && found[2] == inlay_blob_get(record + 32, 4) ? 0 : -EINVAL;
}

/*
 * Goes on with the exchange.
 *
 * Returns 0: the group is ready; -EINPROGRESS; -EBADFD when it was not started; what the allgather's test returned; an error of
 * inlay_worker_group_check, when a member's record is not right. An error is for good.
 */
INLAY_COLD int inlay_worker_group_progress(struct inlay_worker_group *g)
{
	uint32_t i, n = 0, total = 0;
	int err;

	if (g->state != INLAY_GROUP_STARTED)
		return g->state == INLAY_GROUP_READY ? 0 : g->state == INLAY_GROUP_FAILED ? g->error : -EBADFD;
	err = g->oob.test(g->request);
	if (err == -EINPROGRESS)
		return err;
	if (g->oob.release)
		g->oob.release(g->request);
	g->request = NULL;
	err = err > 0 ? -EIO : err;
	for (i = 0; i < g->oob.members && !err; i++) {
		const uint8_t *record = g->all + (uint64_t)i * g->stride;

		err = inlay_worker_group_check(record, i, g->oob.members, g->stride, &n);
		if (!err && total + n < total)
			err = -EINVAL;
		g->members[i].record = record;
		g->members[i].first = total;
		g->members[i].workers = n;
		total += n;
	}
	g->workers = total;
	g->error = err;
	g->state = err ? INLAY_GROUP_FAILED : INLAY_GROUP_READY;
	return err;
}

/* Workers of the whole group, once it is ready: domain ids are 0 .. this - 1. */
INLAY_COLD uint32_t inlay_worker_group_workers(const struct inlay_worker_group *g)
{
	return g->state == INLAY_GROUP_READY ? g->workers : 0;
}

/* Whose worker a domain id is, or NULL. */
INLAY_COLD const struct inlay_worker_member *inlay_worker_group_member(const struct inlay_worker_group *g, uint32_t domain_id)
{
	uint32_t low = 0, high, middle;

	if (g->state != INLAY_GROUP_READY || domain_id >= g->workers)
		return NULL;
	for (high = g->oob.members; high - low > 1;) {
		middle = low + (high - low) / 2;
		if (g->members[middle].first <= domain_id)
			low = middle;
		else
			high = middle;
	}
	return &g->members[low];
}

/* The next entry of a kind in a record that has been looked at, from *at on; NULL: there is none. *at is then behind it. */
INLAY_COLD const uint8_t *inlay_group_next(const uint8_t *record, uint32_t kind, uint32_t *at)
{
	uint32_t length = (uint32_t)inlay_blob_get(record + 12, 4) - 4;

	while (*at < length) {
		const uint8_t *entry = record + *at;

		*at += (uint32_t)inlay_blob_get(entry + 4, 4);
		if (inlay_blob_get(entry, 4) == kind)
			return entry;
	}
	return NULL;
}

/* The worker of this domain id, in its member's record; NULL: none. */
INLAY_COLD const uint8_t *inlay_worker_group_worker(const struct inlay_worker_group *g, uint32_t domain_id)
{
	const struct inlay_worker_member *m = inlay_worker_group_member(g, domain_id);
	uint32_t at = INLAY_GROUP_HEAD, i;
	const uint8_t *entry = NULL;

	for (i = 0; m && i <= domain_id - m->first; i++)
		entry = inlay_group_next(m->record, 1, &at);
	return entry;
}

/* A worker's address, in the group's memory. Returns 0; -EINVAL when the group is not ready; -ENOENT for no such domain id. */
INLAY_COLD int inlay_worker_group_address(const struct inlay_worker_group *g, uint32_t domain_id, const void **address, uint32_t *len)
{
	const uint8_t *entry = inlay_worker_group_worker(g, domain_id);

	if (!entry)
		return g->state == INLAY_GROUP_READY ? -ENOENT : -EINVAL;
	*address = entry + INLAY_GROUP_WORKER;
	*len = (uint32_t)inlay_blob_get(entry + 16, 4);
	return 0;
}

/* A worker's id. Returns as inlay_worker_group_address. */
INLAY_COLD int inlay_worker_group_id(const struct inlay_worker_group *g, uint32_t domain_id, uint64_t *id)
{
	const uint8_t *entry = inlay_worker_group_worker(g, domain_id);

	if (!entry)
		return g->state == INLAY_GROUP_READY ? -ENOENT : -EINVAL;
	*id = inlay_blob_get(entry + 8, 8);
	return 0;
}

/*
 * The segment of a worker's member that holds the address va, with handle and key: DOCA's seg_lookup, memh_lookup and mkey_lookup. Looks at
 * them in turn.
 *
 * Returns 0; -EINVAL when the group is not ready; -ENOENT for no such domain id, or when no segment holds it: *s is then undefined.
 */
INLAY_COLD int inlay_worker_group_segment(const struct inlay_worker_group *g, uint32_t domain_id, uint64_t va,
					  struct inlay_worker_segment *s)
{
	const struct inlay_worker_member *m = inlay_worker_group_member(g, domain_id);
	uint32_t at = INLAY_GROUP_HEAD;
	const uint8_t *entry;

	if (!m)
		return g->state == INLAY_GROUP_READY ? -ENOENT : -EINVAL;
	while ((entry = inlay_group_next(m->record, 2, &at))) {
		s->va = inlay_blob_get(entry + 8, 8);
		s->bytes = inlay_blob_get(entry + 16, 8);
		if (va - s->va >= s->bytes)
			continue;
		s->memh_len = (uint32_t)inlay_blob_get(entry + 24, 4);
		s->mkey_len = (uint32_t)inlay_blob_get(entry + 28, 4);
		s->memh = entry + INLAY_GROUP_SEGMENT;
		s->mkey = entry + INLAY_GROUP_SEGMENT + s->memh_len;
		return 0;
	}
	return -ENOENT;
}

#endif
