/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/memdomain/domain.h: memory domains. A domain is memory that the CPU may be unable to reach
 * (another host's, an accelerator's), with its owner's callbacks that describe, copy or clear it. A
 * registry lists the domains of a process.
 *
 *   inlay_memdomain_registry_init(&reg);
 *   inlay_memdomain_create(&reg, memory, sizeof(memory), 1000, NULL, "gpu0", &d);
 *   inlay_memdomain_set_pull(d, gpu_pull);
 *   ...
 *   struct inlay_memdomain_copy copy = {.src_iov = theirs, .src_iovcnt = 2, .dst_iov = ours,
 *                                       .dst_iovcnt = 1, .done = done, .arg = request};
 *   for (d = inlay_memdomain_first(&reg, "gpu0"); d; d = inlay_memdomain_next(d, "gpu0"))
 *           if (inlay_memdomain_pull(d, &copy) == 0) ...     done is called, now or later
 *   ...
 *   while (inlay_memdomain_destroy(d) == -EBUSY) ...         a walk still holds it
 *
 * Invariants:
 *   - An operation that returns 0 calls done exactly once, perhaps before it returns. One that
 *     fails never calls it.
 *   - Vectors stay in place until done. struct inlay_memdomain_copy is read only during the call.
 *   - inlay_memdomain_first and _next return a domain that the caller holds; _next releases its
 *     argument. After a walk that ends early, call inlay_memdomain_put.
 *   - A held domain can be used, even when it has left the registry. An operation in progress does
 *     not hold its domain: the caller holds or owns it until done.
 *   - The registry outlives its domains and walks.
 *
 * Threads: any thread may call any function, except inlay_memdomain_registry_init. An operation is
 * as thread-safe as its callback. No lock is held while a callback runs.
 * Sources: SPDK's include/spdk/dma.h and lib/dma/dma.c.
 */
#ifndef INLAY_MEMDOMAIN_DOMAIN_H
#define INLAY_MEMDOMAIN_DOMAIN_H

#include <sys/uio.h>
#include <inlay/base.h>

/* How a domain's memory is reached. Values as SPDK's; any other value is allowed. */
enum inlay_memdomain_type {
	INLAY_MEMDOMAIN_RDMA = 0,         /* RDMA: protection domain, key, address */
	INLAY_MEMDOMAIN_DMA = 1,          /* plain addresses */
	INLAY_MEMDOMAIN_ACCEL = 2,
	INLAY_MEMDOMAIN_VENDOR_FIRST = 1000,
	INLAY_MEMDOMAIN_VENDOR_LAST = 1999,
};

struct inlay_memdomain;

/* A translation: the memory as dst_domain reaches it. */
struct inlay_memdomain_result {
	size_t size;                      /* bytes of this struct */
	uint32_t iov_count;               /* pieces: one in iov, more in iovs */
	struct iovec iov;
	struct iovec *iovs;               /* the callback's memory, valid until the last user is done */
	struct inlay_memdomain *dst_domain;
	uint32_t lkey, rkey;              /* if dst_domain is of type RDMA */
};

struct inlay_memdomain_translation_ctx {
	size_t size;                      /* bytes of this struct */
	void *ibv_qp;
};

/* The user context of a domain of type RDMA */
struct inlay_memdomain_rdma_ctx {
	size_t size;                      /* bytes of this struct */
	void *ibv_pd;
};

/* What a domain is created with. */
struct inlay_memdomain_ctx {
	size_t size;                      /* bytes of this struct; fields beyond them count as 0 */
	void *user_ctx;
	size_t user_ctx_size;             /* bytes at user_ctx to copy; 0: only the pointer is kept */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_memdomain_result) == 56, "as SPDK's");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_result, rkey) == 52, "as SPDK's");

/* Ends an operation. rc: 0 or a negative errno. */
typedef void (*inlay_memdomain_done)(void *arg, int rc);

/*
 * What pull, push and transfer copy: all bytes of the source; the destination may be longer. Either
 * side may be in any pieces. Zero what is not used.
 */
struct inlay_memdomain_copy {
	const struct iovec *src_iov, *dst_iov;
	uint32_t src_iovcnt, dst_iovcnt;
	void *src_ctx, *dst_ctx;          /* for the callbacks of the source's and destination's domains */
	inlay_memdomain_done done;        /* may be NULL */
	void *arg;                        /* for done */
	/* For transfer only; else NULL */
	struct inlay_memdomain *src;      /* the source's domain; NULL: this process's memory */
	const struct inlay_memdomain_result *translation; /* copied in place of src_iov */
};

/* The callbacks, with the arguments and results of the functions of the same names below. */
typedef int (*inlay_memdomain_translate_cb)(struct inlay_memdomain *src, void *src_ctx, struct inlay_memdomain *dst,
					    struct inlay_memdomain_translation_ctx *dst_ctx, void *addr, size_t len,
					    struct inlay_memdomain_result *result);
typedef int (*inlay_memdomain_copy_cb)(struct inlay_memdomain *d, const struct inlay_memdomain_copy *copy);
typedef int (*inlay_memdomain_memzero_cb)(struct inlay_memdomain *d, void *ctx, const struct iovec *iov,
					  uint32_t iovcnt, inlay_memdomain_done done, void *arg);
typedef void (*inlay_memdomain_invalidate_cb)(struct inlay_memdomain *d, void *ctx, const struct iovec *iov,
					      uint32_t iovcnt);

/* Followed in memory by the copy of the user's context, then the id. */
struct inlay_memdomain {
	inlay_memdomain_translate_cb translate;
	inlay_memdomain_copy_cb pull, push, transfer;
	inlay_memdomain_memzero_cb memzero;
	inlay_memdomain_invalidate_cb invalidate;
	struct inlay_memdomain_registry *registry; /* NULL: destroyed */
	int32_t type;
	uint32_t host;                    /* 1: its addresses are this process's */
	struct inlay_memdomain *next, *prev; /* walks and the registry write from here on */
	char *id;
	struct inlay_memdomain_ctx ctx;   /* size 0: none */
	uint32_t holders;
	uint32_t dead;                    /* being destroyed; in the list until no caller holds it */
	uint64_t reserved;
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain, next) == INLAY_CACHE_LINE, "operations read one line");
INLAY_STATIC_ASSERT(sizeof(struct inlay_memdomain) == 2 * INLAY_CACHE_LINE, "a domain has two lines");

struct inlay_memdomain_registry {
	struct inlay_memdomain system;    /* the head of the list */
	struct inlay_memdomain *last;
	uint32_t lock;
	uint16_t abi;                     /* INLAY_ABI */
	char id[8];
} __attribute__((aligned(INLAY_CACHE_LINE)));

/* ---- Set-up: registry ---- */

/*
 * Makes a registry, aligned to a cache line. It lists the system domain: type DMA, id "system", no
 * callbacks (see system.h). Returns 0, or -EINVAL for NULL or wrong alignment.
 */
INLAY_COLD int inlay_memdomain_registry_init(struct inlay_memdomain_registry *reg)
{
	if (!reg || (uintptr_t)reg % INLAY_CACHE_LINE)
		return -EINVAL;
	__builtin_memset(reg, 0, sizeof(*reg));
	__builtin_memcpy(reg->id, "system", sizeof("system"));
	reg->system.registry = reg;
	reg->system.type = INLAY_MEMDOMAIN_DMA;
	reg->system.host = 1;
	reg->system.id = reg->id;
	reg->last = &reg->system;
	reg->abi = INLAY_ABI;
	return 0;
}

/* The system domain: this process's memory. It lives as long as the registry. */
INLAY_FN struct inlay_memdomain *inlay_memdomain_system(struct inlay_memdomain_registry *reg)
{
	return reg ? &reg->system : NULL;
}

/* "RDMA", "DMA", "ACCEL", "VENDOR_SPECIFIC" for 1000 .. 1999, or "UNKNOWN". */
INLAY_COLD const char *inlay_memdomain_type_name(int type)
{
	if (type >= INLAY_MEMDOMAIN_VENDOR_FIRST && type <= INLAY_MEMDOMAIN_VENDOR_LAST)
		return "VENDOR_SPECIFIC";
	return type == INLAY_MEMDOMAIN_RDMA ? "RDMA" : type == INLAY_MEMDOMAIN_DMA ? "DMA" :
	       type == INLAY_MEMDOMAIN_ACCEL ? "ACCEL" : "UNKNOWN";
}

/* ---- Set-up: domains ---- */

/* The caller's context with 0 for each field that ctx->size does not cover. */
INLAY_COLD struct inlay_memdomain_ctx inlay_memdomain_ctx_(const struct inlay_memdomain_ctx *ctx)
{
	struct inlay_memdomain_ctx c = {0, NULL, 0};

	if (ctx)
		c.size = ctx->size < sizeof(c) ? ctx->size : sizeof(c);
	if (c.size >= offsetof(struct inlay_memdomain_ctx, user_ctx_size))
		c.user_ctx = ctx->user_ctx;
	if (c.size == sizeof(c))
		c.user_ctx_size = ctx->user_ctx_size;
	return c;
}

/* Bytes for a domain with this context and id, which may be NULL. SIZE_MAX: too large. */
INLAY_COLD size_t inlay_memdomain_size(const struct inlay_memdomain_ctx *ctx, const char *id)
{
	struct inlay_memdomain_ctx c = inlay_memdomain_ctx_(ctx);
	size_t copied = c.user_ctx ? c.user_ctx_size : 0, len = id ? __builtin_strlen(id) + 1 : 0;

	if (copied > SIZE_MAX / 2)
		return SIZE_MAX;
	return inlay_round_up(sizeof(struct inlay_memdomain) + copied + len, INLAY_CACHE_LINE);
}

/*
 * Creates a domain and appends it to the registry.
 *
 * memory  size bytes, aligned to a cache line; in use until inlay_memdomain_destroy returns 0
 * type    enum inlay_memdomain_type, or any other value
 * ctx     for inlay_memdomain_context, or NULL; copied with the bytes at user_ctx
 * id      a name, which is copied, or NULL; several domains may have the same
 *
 * Returns 0; -EINVAL for a NULL registry, memory or domain, wrong alignment, or ctx->size 0;
 * -ENOBUFS when size is less than inlay_memdomain_size; -EPROTO for a registry of another version of
 * inlay. On failure nothing is written.
 */
INLAY_COLD int inlay_memdomain_create(struct inlay_memdomain_registry *reg, void *memory, size_t size, int type,
				      const struct inlay_memdomain_ctx *ctx, const char *id,
				      struct inlay_memdomain **domain)
{
	size_t need = inlay_memdomain_size(ctx, id);
	struct inlay_memdomain *d = (struct inlay_memdomain *)memory;
	uint8_t *more;

	if (!reg || !memory || !domain || (ctx && !ctx->size) || (uintptr_t)memory % INLAY_CACHE_LINE)
		return -EINVAL;
	if (size < need || need == SIZE_MAX)
		return -ENOBUFS;
	if (reg->abi != INLAY_ABI)
		return -EPROTO;
	more = (uint8_t *)memory + sizeof(*d);
	__builtin_memset(d, 0, sizeof(*d));
	d->registry = reg;
	d->type = type;
	d->ctx = inlay_memdomain_ctx_(ctx);
	if (d->ctx.user_ctx && d->ctx.user_ctx_size) {
		__builtin_memcpy(more, d->ctx.user_ctx, d->ctx.user_ctx_size);
		d->ctx.user_ctx = more;
		more += d->ctx.user_ctx_size;
	}
	if (id) {
		d->id = (char *)more;
		__builtin_memcpy(more, id, __builtin_strlen(id) + 1);
	}
	inlay_lock(&reg->lock);
	d->prev = reg->last;
	reg->last->next = d;
	reg->last = d;
	inlay_unlock(&reg->lock);
	*domain = d;
	return 0;
}

/*
 * Destroys a domain; one thread per domain. Walks no longer find it, even after -EBUSY.
 *
 * Returns 0: the memory is no longer used (also for NULL); -EBUSY: it is held, call again; -EINVAL
 * for the system domain; -EBADFD for a destroyed domain.
 */
INLAY_COLD int inlay_memdomain_destroy(struct inlay_memdomain *d)
{
	struct inlay_memdomain_registry *reg;
	int err = -EBUSY;

	if (!d)
		return 0;
	reg = d->registry;
	if (!reg)
		return -EBADFD;
	if (d == &reg->system)
		return -EINVAL;
	inlay_lock(&reg->lock);
	d->dead = 1;
	if (!__atomic_load_n(&d->holders, __ATOMIC_ACQUIRE)) {
		/* No walk is at it, and none can reach it: walks step under the lock. */
		d->prev->next = d->next;
		if (d->next)
			d->next->prev = d->prev;
		else
			reg->last = d->prev;
		d->registry = NULL;
		err = 0;
	}
	inlay_unlock(&reg->lock);
	return err;
}

/* Holds a domain once more; the caller holds or owns it. Returns d, which may be NULL. */
INLAY_FN struct inlay_memdomain *inlay_memdomain_hold(struct inlay_memdomain *d)
{
	if (d)
		__atomic_fetch_add(&d->holders, 1, __ATOMIC_RELAXED);
	return d;
}

/* Releases a held domain. NULL is allowed. */
INLAY_FN void inlay_memdomain_put(struct inlay_memdomain *d)
{
	if (!d)
		return;
	INLAY_CHECK(__atomic_load_n(&d->holders, __ATOMIC_RELAXED) > 0, "a domain that is put is held");
	__atomic_fetch_sub(&d->holders, 1, __ATOMIC_RELEASE);
}

/* Holds the first live domain from d on with the id. Under the lock. */
INLAY_COLD struct inlay_memdomain *inlay_memdomain_seek_(struct inlay_memdomain *d, const char *id)
{
	for (; d; d = d->next)
		if (!d->dead && (!id || (d->id && !__builtin_strcmp(d->id, id))))
			break;
	return inlay_memdomain_hold(d);
}

/* Begins a walk in order of creation: the first domain with this id (NULL: any), or NULL. */
INLAY_COLD struct inlay_memdomain *inlay_memdomain_first(struct inlay_memdomain_registry *reg, const char *id)
{
	struct inlay_memdomain *d;

	if (!reg)
		return NULL;
	inlay_lock(&reg->lock);
	d = inlay_memdomain_seek_(&reg->system, id);
	inlay_unlock(&reg->lock);
	return d;
}

/* Continues a walk, releases prev. A walk finds each domain that exists throughout exactly once. */
INLAY_COLD struct inlay_memdomain *inlay_memdomain_next(struct inlay_memdomain *prev, const char *id)
{
	struct inlay_memdomain_registry *reg;
	struct inlay_memdomain *d;

	if (!prev)
		return NULL;
	INLAY_CHECK(__atomic_load_n(&prev->holders, __ATOMIC_RELAXED) > 0, "a walk goes on from a domain it holds");
	reg = prev->registry;
	inlay_lock(&reg->lock);
	d = inlay_memdomain_seek_(prev->next, id);
	inlay_unlock(&reg->lock);
	inlay_memdomain_put(prev);
	return d;
}

/*
 * int inlay_memdomain_set_...(struct inlay_memdomain *d, ... cb): sets a callback; NULL unsets it.
 * Returns 0, or -EINVAL for a NULL domain. The callback sees what was written before it was set.
 */
#define INLAY_MEMDOMAIN_SET_(function, callback, type)                                                        \
	INLAY_COLD int function(struct inlay_memdomain *d, type cb)                                           \
	{                                                                                                     \
		return d ? __atomic_store_n(&d->callback, cb, __ATOMIC_RELEASE), 0 : -EINVAL;                 \
	}
INLAY_MEMDOMAIN_SET_(inlay_memdomain_set_translation, translate, inlay_memdomain_translate_cb)
INLAY_MEMDOMAIN_SET_(inlay_memdomain_set_pull, pull, inlay_memdomain_copy_cb)
INLAY_MEMDOMAIN_SET_(inlay_memdomain_set_push, push, inlay_memdomain_copy_cb)
INLAY_MEMDOMAIN_SET_(inlay_memdomain_set_transfer, transfer, inlay_memdomain_copy_cb)
INLAY_MEMDOMAIN_SET_(inlay_memdomain_set_memzero, memzero, inlay_memdomain_memzero_cb)
INLAY_MEMDOMAIN_SET_(inlay_memdomain_set_invalidate, invalidate, inlay_memdomain_invalidate_cb)

/* ---- Data path ---- */

/* The ctx of the domain's creation; user_ctx points to the copy. NULL: there was none. */
INLAY_FN struct inlay_memdomain_ctx *inlay_memdomain_context(struct inlay_memdomain *d)
{
	return d && d->ctx.size ? &d->ctx : NULL;
}

/* The copy of the user's context, and its bytes in *size, unless size is NULL. NULL and 0: none. */
INLAY_FN void *inlay_memdomain_user_context(struct inlay_memdomain *d, size_t *size)
{
	size_t copied = d && d->ctx.user_ctx ? d->ctx.user_ctx_size : 0;

	if (size)
		*size = copied;
	return copied ? d->ctx.user_ctx : NULL;
}

/* The type, or -EINVAL for NULL. */
INLAY_FN int inlay_memdomain_type(const struct inlay_memdomain *d)
{
	return d ? d->type : -EINVAL;
}

/* The id; NULL when there is none, or d is NULL. */
INLAY_FN const char *inlay_memdomain_id(const struct inlay_memdomain *d)
{
	return d ? d->id : NULL;
}

/*
 * Operations. Each calls one callback and returns its result; -EINVAL, without the call, for a NULL
 * that is not allowed; -ENOTSUP when the callback is not set.
 */

/*
 * Describes len bytes at addr of src as dst reaches them. Copies nothing. Calls src's callback,
 * which checks addr and len. After the last use of the result, call inlay_memdomain_invalidate.
 */
INLAY_FN int inlay_memdomain_translate(struct inlay_memdomain *src, void *src_ctx, struct inlay_memdomain *dst,
				       struct inlay_memdomain_translation_ctx *dst_ctx, void *addr, size_t len,
				       struct inlay_memdomain_result *result)
{
	inlay_memdomain_translate_cb cb;

	if (INLAY_UNLIKELY(!src || !dst || !result))
		return -EINVAL;
	cb = __atomic_load_n(&src->translate, __ATOMIC_ACQUIRE);
	return INLAY_LIKELY(cb != NULL) ? cb(src, src_ctx, dst, dst_ctx, addr, len, result) : -ENOTSUP;
}

INLAY_FN int inlay_memdomain_copy_(struct inlay_memdomain *d, inlay_memdomain_copy_cb cb,
				   const struct inlay_memdomain_copy *copy)
{
	if (INLAY_UNLIKELY(!d || !copy || !copy->src_iov || !copy->dst_iov))
		return -EINVAL;
	return INLAY_LIKELY(cb != NULL) ? cb(d, copy) : -ENOTSUP;
}

/* Copies from src's memory (copy->src_iov) to this process's (copy->dst_iov). */
INLAY_FN int inlay_memdomain_pull(struct inlay_memdomain *src, const struct inlay_memdomain_copy *copy)
{
	return inlay_memdomain_copy_(src, src ? __atomic_load_n(&src->pull, __ATOMIC_ACQUIRE) : NULL, copy);
}

/* Copies from this process's memory (copy->src_iov) to dst's (copy->dst_iov). */
INLAY_FN int inlay_memdomain_push(struct inlay_memdomain *dst, const struct inlay_memdomain_copy *copy)
{
	return inlay_memdomain_copy_(dst, dst ? __atomic_load_n(&dst->push, __ATOMIC_ACQUIRE) : NULL, copy);
}

/*
 * Copies from copy->src's memory (src_iov), or from its translation to dst, to dst's memory
 * (dst_iov). Calls dst's callback.
 */
INLAY_FN int inlay_memdomain_transfer(struct inlay_memdomain *dst, const struct inlay_memdomain_copy *copy)
{
	return inlay_memdomain_copy_(dst, dst ? __atomic_load_n(&dst->transfer, __ATOMIC_ACQUIRE) : NULL, copy);
}

/* Zeroes memory of the domain. -EINVAL also for iovcnt 0. */
INLAY_FN int inlay_memdomain_memzero(struct inlay_memdomain *d, void *ctx, const struct iovec *iov, uint32_t iovcnt,
				     inlay_memdomain_done done, void *arg)
{
	inlay_memdomain_memzero_cb cb;

	if (INLAY_UNLIKELY(!d || !iov || !iovcnt))
		return -EINVAL;
	cb = __atomic_load_n(&d->memzero, __ATOMIC_ACQUIRE);
	return INLAY_LIKELY(cb != NULL) ? cb(d, ctx, iov, iovcnt, done, arg) : -ENOTSUP;
}

/* Tells the domain that a translation is no longer used. d may be NULL, or the callback unset. */
INLAY_FN void inlay_memdomain_invalidate(struct inlay_memdomain *d, void *ctx, const struct iovec *iov, uint32_t iovcnt)
{
	inlay_memdomain_invalidate_cb cb = d ? __atomic_load_n(&d->invalidate, __ATOMIC_ACQUIRE) : NULL;

	if (cb)
		cb(d, ctx, iov, iovcnt);
}

/* Adds up a vector. Returns 0, or -EINVAL when the sum overflows or bytes lie below `lowest`. */
INLAY_FN int inlay_memdomain_total_(const struct iovec *iov, uint32_t iovcnt, uintptr_t lowest, size_t *total)
{
	uint32_t i;

	for (*total = 0, i = 0; i < iovcnt; i++)
		if (INLAY_UNLIKELY(((uintptr_t)iov[i].iov_base < lowest && iov[i].iov_len) ||
				   __builtin_add_overflow(*total, iov[i].iov_len, total)))
			return -EINVAL;
	return 0;
}

/*
 * What a copy reads, in *iov, and its bytes. Returns 0; -EINVAL for a translation to another
 * domain, for vectors as above, and for a shorter destination.
 */
INLAY_FN int inlay_memdomain_source_(const struct inlay_memdomain *d, const struct inlay_memdomain_copy *copy,
				     uintptr_t lowest, const struct iovec **iov, size_t *total)
{
	const struct inlay_memdomain_result *translation = copy->translation;
	uint32_t n = translation ? translation->iov_count : copy->src_iovcnt;
	size_t room;

	*iov = !translation ? copy->src_iov : n == 1 ? &translation->iov : translation->iovs;
	if (INLAY_UNLIKELY(translation && (translation->dst_domain != d || (n && !*iov))) ||
	    INLAY_UNLIKELY(inlay_memdomain_total_(*iov, n, lowest, total)) ||
	    INLAY_UNLIKELY(inlay_memdomain_total_(copy->dst_iov, copy->dst_iovcnt, lowest, &room)))
		return -EINVAL;
	return INLAY_UNLIKELY(*total > room) ? -EINVAL : 0;
}

INLAY_FN void inlay_memdomain_describe_(struct inlay_memdomain_result *result, struct inlay_memdomain *dst, void *addr,
					size_t len, uint32_t lkey, uint32_t rkey)
{
	result->size = sizeof(*result);
	result->iov_count = 1;
	result->iov.iov_base = addr;
	result->iov.iov_len = len;
	result->iovs = NULL;
	result->dst_domain = dst;
	result->lkey = lkey;
	result->rkey = rkey;
}

#endif
