/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/memdomain/domain.h: memory domains: a registry, and what may be done with memory of another kind.
 *
 * A domain stands for memory that the CPU may not reach: another host's, an accelerator's, a buffer that does not exist yet. Who owns such
 * memory makes a domain and sets callbacks; who handles data asks the domain to describe it in another's terms (translate), to bring it
 * here (pull), to take it there (push), to move it between two domains (transfer), to zero it, or says that a translation is no longer used
 * (invalidate). The functions, their answers and the structs are those of SPDK's dma.h.
 *
 *   struct inlay_memdomain_registry reg;                       the caller's, one for all who shall see each other's domains
 *   static uint8_t memory[1024] __attribute__((aligned(64)));  at least inlay_memdomain_size(&ctx, "gpu0")
 *
 *   inlay_memdomain_registry_init(&reg);                       the system domain is in it, always the first
 *   inlay_memdomain_create(&d, &reg, memory, sizeof(memory), 1000, &ctx, "gpu0");
 *   inlay_memdomain_set_pull(d, pull);
 *   ...
 *   for (d = inlay_memdomain_first(&reg, "gpu0"); d; d = inlay_memdomain_next(d, "gpu0"))
 *           if (inlay_memdomain_pull(d, NULL, from, 2, to, 1, done, request) == 0) ...      done is called, or has been
 *   ...
 *   while (inlay_memdomain_destroy(d) == -EBUSY)               somebody walks over it
 *           ...;
 *
 * The completion callback of pull, push, transfer and memzero is called exactly once if the operation answered 0, and never otherwise. It
 * may be called before the operation returns: what it needs is ready before the call, and what it may free is not touched after. NULL for
 * who needs no word. A callback's other answers come back as they are, whatever their sign.
 *
 * Who holds what. inlay_memdomain_first and inlay_memdomain_next hand out a domain held; next lets go of the one before, a walk that ends
 * early calls inlay_memdomain_put. A domain that is held may be used: its memory stays, though it may have left the registry. An operation
 * under way does not hold its domain: who starts it does, or owns the domain. destroy takes a domain out of all walks at once, and answers
 * -EBUSY until nobody holds it; its memory is the caller's when it answers 0.
 *
 * Threads: what each function guarantees stands above it. The registry's lock is held for a list operation and never while a
 * callback runs, so that callbacks may call everything here.
 *
 * Where SPDK's ways are left:
 *   1. A domain without id is passed over by a walk for an id (SPDK compares with NULL, and crashes).
 *   2. The step to the next domain is taken under one lock and from a domain that is held (SPDK lets go of the lock half way, and goes on
 *      from a domain that may be freed). destroy knows its users (SPDK's frees under them).
 *   3. NULLs and lengths answer -EINVAL in every build (SPDK asserts in debug builds and dereferences in others).
 *   4. inlay_memdomain_user_context always writes the size (SPDK leaves it as it was when there is none), and the context's user_ctx points
 *      to the domain's copy (SPDK: to the caller's memory, long gone perhaps).
 * And there is no global state and no allocation: the registry is an argument.
 *
 * A callback belongs to the object file that set it: unset it before that is unloaded.
 *
 * Sources: SPDK's include/spdk/dma.h and lib/dma/dma.c.
 */
#ifndef INLAY_MEMDOMAIN_DOMAIN_H
#define INLAY_MEMDOMAIN_DOMAIN_H

#include <sched.h>
#include <sys/uio.h>
#include <inlay/base.h>

/* What may reach a domain's memory. Values as SPDK's; others are taken too. */
enum inlay_memdomain_type {
	INLAY_MEMDOMAIN_RDMA = 0,         /* RDMA: protection domain, key, address */
	INLAY_MEMDOMAIN_DMA = 1,          /* plain addresses */
	INLAY_MEMDOMAIN_ACCEL = 2,
	INLAY_MEMDOMAIN_VENDOR_FIRST = 1000,
	INLAY_MEMDOMAIN_VENDOR_LAST = 1999,
};

struct inlay_memdomain;

struct inlay_memdomain_rdma_keys {
	uint32_t lkey, rkey;
};

/* What a translation gives. */
struct inlay_memdomain_result {
	size_t size;                      /* bytes of this struct */
	uint32_t iov_count;               /* 1: the piece is iov. More: they are at iovs. Read it with inlay_memdomain_pieces */
	struct iovec iov;
	struct iovec *iovs;               /* the translating callback's, until what uses it is done */
	struct inlay_memdomain *dst_domain;
	struct inlay_memdomain_rdma_keys rdma; /* when dst_domain is of type RDMA */
};

struct inlay_memdomain_translation_rdma {
	void *ibv_qp;
};

/* What the destination adds to the question. */
struct inlay_memdomain_translation_ctx {
	size_t size;                      /* bytes of this struct */
	struct inlay_memdomain_translation_rdma rdma;
};

/* The user context of a domain of type RDMA. */
struct inlay_memdomain_rdma_ctx {
	size_t size;                      /* bytes of this struct */
	void *ibv_pd;
};

/* What a domain is created with. */
struct inlay_memdomain_ctx {
	size_t size;                      /* bytes of this struct that are there */
	void *user_ctx;
	size_t user_ctx_size;             /* bytes at user_ctx, which are copied; 0: only the pointer is kept */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_memdomain_result) == 56, "as SPDK's");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_result, iov_count) == 8, "as SPDK's");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_result, iov) == 16, "as SPDK's");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_result, iovs) == 32, "as SPDK's");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_result, dst_domain) == 40, "as SPDK's");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_result, rdma.lkey) == 48, "as SPDK's");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_result, rdma.rkey) == 52, "as SPDK's");
INLAY_STATIC_ASSERT(sizeof(struct inlay_memdomain_translation_ctx) == 16, "as SPDK's");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_translation_ctx, rdma.ibv_qp) == 8, "as SPDK's");
INLAY_STATIC_ASSERT(sizeof(struct inlay_memdomain_rdma_ctx) == 16, "as SPDK's");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_rdma_ctx, ibv_pd) == 8, "as SPDK's");
INLAY_STATIC_ASSERT(sizeof(struct inlay_memdomain_ctx) == 24, "as SPDK's");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_ctx, user_ctx) == 8, "as SPDK's");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_ctx, user_ctx_size) == 16, "as SPDK's");

/* Says that an operation is over: 0 or a negative errno. */
typedef void (*inlay_memdomain_done)(void *arg, int rc);

/*
 * The six callbacks. Arguments and duties are those of the functions that call them, below; none is called with NULL for what is tested
 * there.
 */
typedef int (*inlay_memdomain_translate_cb)(struct inlay_memdomain *src, void *src_ctx, struct inlay_memdomain *dst,
					    struct inlay_memdomain_translation_ctx *dst_ctx, void *addr, size_t len,
					    struct inlay_memdomain_result *result);
typedef int (*inlay_memdomain_pull_cb)(struct inlay_memdomain *src, void *src_ctx, const struct iovec *src_iov, uint32_t src_iovcnt,
				       const struct iovec *dst_iov, uint32_t dst_iovcnt, inlay_memdomain_done done, void *arg);
typedef int (*inlay_memdomain_push_cb)(struct inlay_memdomain *dst, void *dst_ctx, const struct iovec *dst_iov, uint32_t dst_iovcnt,
				       const struct iovec *src_iov, uint32_t src_iovcnt, inlay_memdomain_done done, void *arg);
typedef int (*inlay_memdomain_transfer_cb)(struct inlay_memdomain *dst, void *dst_ctx, const struct iovec *dst_iov, uint32_t dst_iovcnt,
					   struct inlay_memdomain *src, void *src_ctx, const struct iovec *src_iov, uint32_t src_iovcnt,
					   struct inlay_memdomain_result *translation, inlay_memdomain_done done, void *arg);
typedef int (*inlay_memdomain_memzero_cb)(struct inlay_memdomain *domain, void *ctx, const struct iovec *iov, uint32_t iovcnt,
					  inlay_memdomain_done done, void *arg);
typedef void (*inlay_memdomain_invalidate_cb)(struct inlay_memdomain *domain, void *ctx, const struct iovec *iov, uint32_t iovcnt);

struct inlay_memdomain_registry;

/* A domain, at the begin of the memory that it was created in; the copy of the user's context follows, then the id. */
struct inlay_memdomain {
	inlay_memdomain_translate_cb translate;
	inlay_memdomain_pull_cb pull;
	inlay_memdomain_push_cb push;
	inlay_memdomain_transfer_cb transfer;
	inlay_memdomain_memzero_cb memzero;
	inlay_memdomain_invalidate_cb invalidate;
	struct inlay_memdomain_registry *registry; /* NULL: destroyed */
	int32_t type;
	uint32_t host;                    /* its addresses are this process's, as the system domain's are */
	/* What registry and holders write: a line of its own, so that who walks does not disturb who operates. */
	struct inlay_memdomain *next, *prev;
	char *id;
	struct inlay_memdomain_ctx ctx;   /* size 0: none */
	uint32_t holders;
	uint32_t dead;                    /* destroyed, and stays in the list for those who hold it */
	uint64_t reserved;
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain, next) == INLAY_CACHE_LINE, "an operation touches one line of its domain");
INLAY_STATIC_ASSERT(sizeof(struct inlay_memdomain) == 2 * INLAY_CACHE_LINE, "a domain is two lines and what was copied");

/* A registry. In caller memory, aligned as a cache line. */
struct inlay_memdomain_registry {
	struct inlay_memdomain system;    /* the head of the list, which never leaves it */
	struct inlay_memdomain *last;
	uint32_t lock;
	uint32_t count;                   /* domains that a walk finds */
	char id[8];
} __attribute__((aligned(INLAY_CACHE_LINE)));

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up: registry
 */

INLAY_COLD void inlay_memdomain_lock(struct inlay_memdomain_registry *reg)
{
	uint32_t spins = 0;

	while (__atomic_exchange_n(&reg->lock, 1, __ATOMIC_ACQUIRE))
		while (__atomic_load_n(&reg->lock, __ATOMIC_RELAXED))
			if (++spins % 64 == 0)
				sched_yield();
}

INLAY_COLD void inlay_memdomain_unlock(struct inlay_memdomain_registry *reg)
{
	__atomic_store_n(&reg->lock, 0, __ATOMIC_RELEASE);
}

/*
 * Makes a registry with the system domain alone in it: type DMA, id "system", no callback set.
 *
 * reg  of the caller, aligned as a cache line (as the struct is, but malloc does not see to it), until inlay_memdomain_registry_fini
 *      answers 0
 *
 * Returns 0, or -EINVAL for NULL and for one that is not aligned. Threads: before anybody uses it.
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
	reg->count = 1;
	return 0;
}

/*
 * Ends a registry, whose memory is then the caller's. Returns 0, or -EBUSY while it has a domain beside the system domain or that one is
 * held.
 * Threads: after all others have ended.
 */
INLAY_COLD int inlay_memdomain_registry_fini(struct inlay_memdomain_registry *reg)
{
	if (!reg)
		return -EINVAL;
	if (reg->last != &reg->system || __atomic_load_n(&reg->system.holders, __ATOMIC_ACQUIRE))
		return -EBUSY;
	reg->system.registry = NULL;
	reg->last = NULL;
	return 0;
}

/* The system domain: this process's memory. Not held, and need not be. NULL for a NULL registry only. */
INLAY_FN struct inlay_memdomain *inlay_memdomain_system(struct inlay_memdomain_registry *reg)
{
	return reg ? &reg->system : NULL;
}

/* Domains that a walk would find. Threads: any time; another thread may change it at once. */
INLAY_COLD uint32_t inlay_memdomain_count(struct inlay_memdomain_registry *reg)
{
	return reg ? __atomic_load_n(&reg->count, __ATOMIC_RELAXED) : 0;
}

/* "RDMA", "DMA", "ACCEL", "VENDOR_SPECIFIC" for 1000 .. 1999, "UNKNOWN" for all others. */
INLAY_COLD const char *inlay_memdomain_type_name(int type)
{
	switch (type) {
	case INLAY_MEMDOMAIN_RDMA: return "RDMA";
	case INLAY_MEMDOMAIN_DMA: return "DMA";
	case INLAY_MEMDOMAIN_ACCEL: return "ACCEL";
	default: return type >= INLAY_MEMDOMAIN_VENDOR_FIRST && type <= INLAY_MEMDOMAIN_VENDOR_LAST ? "VENDOR_SPECIFIC" : "UNKNOWN";
	}
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up: domains
 */

/* Whether ctx->size covers all of a field that ends `end` bytes from the begin. */
INLAY_COLD int inlay_memdomain_ctx_has(const struct inlay_memdomain_ctx *ctx, size_t end)
{
	return ctx && ctx->size >= end;
}

/* The bytes of user context that a creation copies. */
INLAY_COLD size_t inlay_memdomain_ctx_copied(const struct inlay_memdomain_ctx *ctx)
{
	return inlay_memdomain_ctx_has(ctx, sizeof(*ctx)) && ctx->user_ctx ? ctx->user_ctx_size : 0;
}

/* Bytes of memory that a domain with this context and id takes; either may be NULL. SIZE_MAX for a context that no memory holds. */
INLAY_COLD size_t inlay_memdomain_size(const struct inlay_memdomain_ctx *ctx, const char *id)
{
	size_t size = sizeof(struct inlay_memdomain), copied = inlay_memdomain_ctx_copied(ctx), len = id ? __builtin_strlen(id) + 1 : 0;

	if (copied > SIZE_MAX / 2)
		return SIZE_MAX;
	return (size + copied + len + INLAY_CACHE_LINE - 1) / INLAY_CACHE_LINE * INLAY_CACHE_LINE;
}

/*
 * Creates a domain and puts it at the end of the registry.
 *
 * domain  where the domain's address comes: that of memory
 * memory  size bytes of the caller's, aligned as a cache line, until inlay_memdomain_destroy answers 0
 * type    any value
 * ctx     NULL, or what inlay_memdomain_context shall give: ctx->size bytes of it are copied at most, and user_ctx_size bytes at user_ctx
 * id      NULL, or a name, copied; several domains may share it
 *
 * Returns 0; -EINVAL for a domain, registry or ctx->size of 0, or memory that is not aligned; -ENOMEM when memory is NULL or size too
 * small. On failure nothing is written. Threads: safe beside create, destroy and walks; a walk under way finds the domain or does not.
 */
INLAY_COLD int inlay_memdomain_create(struct inlay_memdomain **domain, struct inlay_memdomain_registry *reg, void *memory, size_t size,
				      int type, const struct inlay_memdomain_ctx *ctx, const char *id)
{
	size_t need = inlay_memdomain_size(ctx, id), copied = inlay_memdomain_ctx_copied(ctx);
	struct inlay_memdomain *d = (struct inlay_memdomain *)memory;
	uint8_t *more;

	if (!domain || !reg || (ctx && !ctx->size) || (uintptr_t)memory % INLAY_CACHE_LINE)
		return -EINVAL;
	if (!memory || size < need || need == SIZE_MAX)
		return -ENOMEM;
	__builtin_memset(memory, 0, sizeof(*d));
	more = (uint8_t *)memory + sizeof(*d);
	d->registry = reg;
	d->type = type;
	if (ctx) {
		d->ctx.size = ctx->size < sizeof(*ctx) ? ctx->size : sizeof(*ctx);
		if (inlay_memdomain_ctx_has(ctx, offsetof(struct inlay_memdomain_ctx, user_ctx_size)))
			d->ctx.user_ctx = ctx->user_ctx;
		if (inlay_memdomain_ctx_has(ctx, sizeof(*ctx)))
			d->ctx.user_ctx_size = ctx->user_ctx_size;
	}
	if (copied) {
		d->ctx.user_ctx = more;
		__builtin_memcpy(more, ctx->user_ctx, copied);
		more += copied;
	}
	if (id) {
		d->id = (char *)more;
		__builtin_memcpy(more, id, __builtin_strlen(id) + 1);
	}
	inlay_memdomain_lock(reg);
	d->prev = reg->last;
	reg->last->next = d;
	reg->last = d;
	__atomic_store_n(&reg->count, reg->count + 1, __ATOMIC_RELAXED);
	inlay_memdomain_unlock(reg);
	*domain = d;
	return 0;
}

/*
 * Destroys a domain: from now on no walk finds it, and when nobody holds it, it is gone.
 *
 * Returns 0: its memory is the caller's (and for NULL, which does nothing); -EBUSY: somebody still holds it: call again, until it answers
 * 0; -EPERM for the system domain; -EINVAL for a domain that is gone. Threads: safe beside create and walks, and beside who holds it; one
 * thread destroys a domain.
 */
INLAY_COLD int inlay_memdomain_destroy(struct inlay_memdomain *d)
{
	struct inlay_memdomain_registry *reg;
	int err = 0;

	if (!d)
		return 0;
	reg = d->registry;
	if (!reg)
		return -EINVAL;
	if (d == &reg->system)
		return -EPERM;
	inlay_memdomain_lock(reg);
	if (!d->dead) {
		d->dead = 1;
		__atomic_store_n(&reg->count, reg->count - 1, __ATOMIC_RELAXED);
	}
	if (__atomic_load_n(&d->holders, __ATOMIC_ACQUIRE)) {
		err = -EBUSY;
	} else {
		/* Nobody stands on it and nobody can get there: a walk steps under the lock. */
		d->prev->next = d->next;
		if (d->next)
			d->next->prev = d->prev;
		else
			reg->last = d->prev;
		d->registry = NULL;
	}
	inlay_memdomain_unlock(reg);
	return err;
}

/* Holds a domain once more, for who holds or owns it. Threads: any time. */
INLAY_FN struct inlay_memdomain *inlay_memdomain_hold(struct inlay_memdomain *d)
{
	if (d)
		__atomic_fetch_add(&d->holders, 1, __ATOMIC_RELAXED);
	return d;
}

/* Lets go of a domain: the last thing that the caller does with it. NULL does nothing. Threads: any time. */
INLAY_FN void inlay_memdomain_put(struct inlay_memdomain *d)
{
	if (!d)
		return;
	INLAY_CHECK(__atomic_load_n(&d->holders, __ATOMIC_RELAXED) > 0, "what is let go of is held");
	__atomic_fetch_sub(&d->holders, 1, __ATOMIC_RELEASE);
}

/* The first from d on that lives and has the id, held. Under the lock. */
INLAY_COLD struct inlay_memdomain *inlay_memdomain_seek(struct inlay_memdomain *d, const char *id)
{
	for (; d; d = d->next)
		if (!d->dead && (!id || (d->id && !__builtin_strcmp(d->id, id))))
			break;
	return inlay_memdomain_hold(d);
}

/*
 * The first domain, or the first that has the id; held. NULL when there is none. id NULL: the system domain. Threads: safe beside create,
 * destroy and other walks.
 */
INLAY_COLD struct inlay_memdomain *inlay_memdomain_first(struct inlay_memdomain_registry *reg, const char *id)
{
	struct inlay_memdomain *d;

	if (!reg)
		return NULL;
	inlay_memdomain_lock(reg);
	d = inlay_memdomain_seek(&reg->system, id);
	inlay_memdomain_unlock(reg);
	return d;
}

/*
 * The domain that follows prev, in order of creation, or the next that has the id; held. Lets go of prev, which the caller holds and which
 * may have been destroyed meanwhile. NULL when there is none, and for prev NULL. Threads: safe beside create, destroy and other walks; a
 * walk finds every domain that is there from its begin to its end, once.
 */
INLAY_COLD struct inlay_memdomain *inlay_memdomain_next(struct inlay_memdomain *prev, const char *id)
{
	struct inlay_memdomain_registry *reg;
	struct inlay_memdomain *d;

	if (!prev)
		return NULL;
	INLAY_CHECK(__atomic_load_n(&prev->holders, __ATOMIC_RELAXED) > 0, "a walk goes on from a domain that it holds");
	reg = prev->registry;
	inlay_memdomain_lock(reg);
	d = inlay_memdomain_seek(prev->next, id);
	/* Inside the lock, or the destroyer could take prev away before its registry's lock is found. */
	inlay_memdomain_put(prev);
	inlay_memdomain_unlock(reg);
	return d;
}

/*
 * Set or, with NULL, unset a callback. Return 0, or -EINVAL for a NULL domain. Threads: any time; an operation calls the old one or the
 * new one, and finds what was written before the new one was set.
 */
INLAY_COLD int inlay_memdomain_set_translation(struct inlay_memdomain *d, inlay_memdomain_translate_cb cb)
{
	return d ? __atomic_store_n(&d->translate, cb, __ATOMIC_RELEASE), 0 : -EINVAL;
}

INLAY_COLD int inlay_memdomain_set_pull(struct inlay_memdomain *d, inlay_memdomain_pull_cb cb)
{
	return d ? __atomic_store_n(&d->pull, cb, __ATOMIC_RELEASE), 0 : -EINVAL;
}

INLAY_COLD int inlay_memdomain_set_push(struct inlay_memdomain *d, inlay_memdomain_push_cb cb)
{
	return d ? __atomic_store_n(&d->push, cb, __ATOMIC_RELEASE), 0 : -EINVAL;
}

INLAY_COLD int inlay_memdomain_set_transfer(struct inlay_memdomain *d, inlay_memdomain_transfer_cb cb)
{
	return d ? __atomic_store_n(&d->transfer, cb, __ATOMIC_RELEASE), 0 : -EINVAL;
}

INLAY_COLD int inlay_memdomain_set_memzero(struct inlay_memdomain *d, inlay_memdomain_memzero_cb cb)
{
	return d ? __atomic_store_n(&d->memzero, cb, __ATOMIC_RELEASE), 0 : -EINVAL;
}

INLAY_COLD int inlay_memdomain_set_invalidate(struct inlay_memdomain *d, inlay_memdomain_invalidate_cb cb)
{
	return d ? __atomic_store_n(&d->invalidate, cb, __ATOMIC_RELEASE), 0 : -EINVAL;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: what was said at creation. It never changes. Threads: any time, on a domain that is held or owned.
 */

/* The context, whose size is what was copied of it and whose user_ctx points to the domain's copy; NULL when there is none. */
INLAY_FN struct inlay_memdomain_ctx *inlay_memdomain_context(struct inlay_memdomain *d)
{
	return d && d->ctx.size ? &d->ctx : NULL;
}

/*
 * The domain's copy of the user's context and in *size, which may be NULL, its bytes; NULL and 0 when nothing was copied. Aligned as a
 * cache line.
 */
INLAY_FN void *inlay_memdomain_user_context(struct inlay_memdomain *d, size_t *size)
{
	size_t copied = d && d->ctx.user_ctx ? d->ctx.user_ctx_size : 0;

	if (size)
		*size = copied;
	return copied ? d->ctx.user_ctx : NULL;
}

/* The type that it was created with; -EINVAL for NULL. */
INLAY_FN int inlay_memdomain_type(const struct inlay_memdomain *d)
{
	return d ? d->type : -EINVAL;
}

/* The id, or NULL. */
INLAY_FN const char *inlay_memdomain_id(const struct inlay_memdomain *d)
{
	return d ? d->id : NULL;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path: operations. Each calls one callback, and answers what that answers. Without being called: -EINVAL for a NULL where one is not
 * allowed, -ENOTSUP where the callback is not set. Threads: on a domain that is held or owned, as safe as its callback.
 */

/* The pieces of a translation that answered 0, and in *count how many: no reader needs to know of the two forms. NULL: there is none. */
INLAY_FN const struct iovec *inlay_memdomain_pieces(const struct inlay_memdomain_result *result, uint32_t *count)
{
	const struct iovec *pieces = result->iov_count == 1 ? &result->iov : result->iov_count ? result->iovs : NULL;

	*count = pieces ? result->iov_count : 0;
	return pieces;
}

/*
 * Describes len bytes at addr of src, as dst sees them; nothing is moved. Calls src's callback.
 *
 * src_ctx, dst_ctx   whatever the callback wants to know, or NULL; addr and len too are the callback's to judge
 * result             of the caller; meaningless unless 0 is answered
 *
 * What was translated must be invalidated when it is no longer used, if src has a callback for that.
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

/*
 * The same for each piece of a vector, piece i into results[i].
 *
 * done  may be NULL; how many were translated: all, or those before the one whose answer is returned
 */
INLAY_FN int inlay_memdomain_translatev(struct inlay_memdomain *src, void *src_ctx, struct inlay_memdomain *dst,
					struct inlay_memdomain_translation_ctx *dst_ctx, const struct iovec *iov, uint32_t iovcnt,
					struct inlay_memdomain_result *results, uint32_t *done)
{
	int rc = iov ? 0 : -EINVAL;
	uint32_t i;

	for (i = 0; !rc && i < iovcnt; i++)
		rc = inlay_memdomain_translate(src, src_ctx, dst, dst_ctx, iov[i].iov_base, iov[i].iov_len, results ? &results[i] : NULL);
	if (done)
		*done = rc && i ? i - 1 : i;
	return rc;
}

/*
 * Copies from src to this process's memory. dst_iov has room for all that src_iov has.
 */
INLAY_FN int inlay_memdomain_pull(struct inlay_memdomain *src, void *src_ctx, const struct iovec *src_iov, uint32_t src_iovcnt,
				  const struct iovec *dst_iov, uint32_t dst_iovcnt, inlay_memdomain_done done, void *arg)
{
	inlay_memdomain_pull_cb cb;

	if (INLAY_UNLIKELY(!src || !src_iov || !dst_iov))
		return -EINVAL;
	cb = __atomic_load_n(&src->pull, __ATOMIC_ACQUIRE);
	return INLAY_LIKELY(cb != NULL) ? cb(src, src_ctx, src_iov, src_iovcnt, dst_iov, dst_iovcnt, done, arg) : -ENOTSUP;
}

/* Copies from this process's memory to dst. */
INLAY_FN int inlay_memdomain_push(struct inlay_memdomain *dst, void *dst_ctx, const struct iovec *dst_iov, uint32_t dst_iovcnt,
				  const struct iovec *src_iov, uint32_t src_iovcnt, inlay_memdomain_done done, void *arg)
{
	inlay_memdomain_push_cb cb;

	if (INLAY_UNLIKELY(!dst || !dst_iov || !src_iov))
		return -EINVAL;
	cb = __atomic_load_n(&dst->push, __ATOMIC_ACQUIRE);
	return INLAY_LIKELY(cb != NULL) ? cb(dst, dst_ctx, dst_iov, dst_iovcnt, src_iov, src_iovcnt, done, arg) : -ENOTSUP;
}

/*
 * Copies from src to dst. Calls dst's callback. src NULL: this process's memory. translation NULL, or src_iov as dst sees it, which is then
 * what is copied from.
 */
INLAY_FN int inlay_memdomain_transfer(struct inlay_memdomain *dst, void *dst_ctx, const struct iovec *dst_iov, uint32_t dst_iovcnt,
				      struct inlay_memdomain *src, void *src_ctx, const struct iovec *src_iov, uint32_t src_iovcnt,
				      struct inlay_memdomain_result *translation, inlay_memdomain_done done, void *arg)
{
	inlay_memdomain_transfer_cb cb;

	if (INLAY_UNLIKELY(!dst || !dst_iov || !src_iov))
		return -EINVAL;
	cb = __atomic_load_n(&dst->transfer, __ATOMIC_ACQUIRE);
	return INLAY_LIKELY(cb != NULL) ? cb(dst, dst_ctx, dst_iov, dst_iovcnt, src, src_ctx, src_iov, src_iovcnt, translation, done, arg) :
					  -ENOTSUP;
}

/* Fills memory of the domain with zeros. -EINVAL for iovcnt 0 as well. */
INLAY_FN int inlay_memdomain_memzero(struct inlay_memdomain *d, void *ctx, const struct iovec *iov, uint32_t iovcnt,
				     inlay_memdomain_done done, void *arg)
{
	inlay_memdomain_memzero_cb cb;

	if (INLAY_UNLIKELY(!d || !iov || !iovcnt))
		return -EINVAL;
	cb = __atomic_load_n(&d->memzero, __ATOMIC_ACQUIRE);
	return INLAY_LIKELY(cb != NULL) ? cb(d, ctx, iov, iovcnt, done, arg) : -ENOTSUP;
}

/* Says that what was translated is no longer used. Nothing happens where the callback is not set, nor for a NULL domain. */
INLAY_FN void inlay_memdomain_invalidate(struct inlay_memdomain *d, void *ctx, const struct iovec *iov, uint32_t iovcnt)
{
	inlay_memdomain_invalidate_cb cb = d ? __atomic_load_n(&d->invalidate, __ATOMIC_ACQUIRE) : NULL;

	if (cb)
		cb(d, ctx, iov, iovcnt);
}

#endif
