/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/memdomain/domain.h: memory domains and their registry. A domain is memory that the CPU may
 * be unable to reach (another host's, an accelerator's). Its owner sets callbacks that translate,
 * copy or clear it.
 *
 *   inlay_memdomain_registry_init(&reg);
 *   inlay_memdomain_create(&reg, memory, sizeof(memory), 1000, NULL, "gpu0", &d);
 *   inlay_memdomain_set_pull(d, gpu_pull);
 *   ...
 *   for (d = inlay_memdomain_first(&reg, "gpu0"); d; d = inlay_memdomain_next(d, "gpu0"))
 *           if (inlay_memdomain_pull(d, &copy) == 0) ...     calls copy.done, now or later
 *
 * Invariants:
 *   - An operation that returns 0 calls done exactly once, perhaps before it returns. An operation
 *     that fails never calls done. Vectors stay valid until done.
 *   - inlay_memdomain_first and _next return a held domain, which can be used even after it has
 *     left the registry. _next releases its argument; inlay_memdomain_put ends a walk early.
 *   - An operation does not hold its domain: the caller holds or owns it until done.
 *   - The registry outlives its domains and walks.
 *
 * Threads: any thread may call any function, except inlay_memdomain_registry_init. An operation is
 * as thread-safe as its callback. No lock is held while a callback runs.
 * Sources: SPDK's include/spdk/dma.h and lib/dma/dma.c.
 */
#ifndef INLAY_MEMDOMAIN_DOMAIN_H
#define INLAY_MEMDOMAIN_DOMAIN_H /* a trial: names may change */

#include <sys/uio.h>
#include <inlay/base.h>

/* How to reach a domain's memory. Values as in SPDK; any other value is allowed. */
enum inlay_memdomain_type {
	INLAY_MEMDOMAIN_RDMA = 0,         /* by keys of a PD */
	INLAY_MEMDOMAIN_DMA = 1,          /* by plain addresses */
	INLAY_MEMDOMAIN_ACCEL = 2,
	INLAY_MEMDOMAIN_VENDOR_FIRST = 1000,
	INLAY_MEMDOMAIN_VENDOR_LAST = 1999,
};

struct inlay_memdomain;

/* A translation: the memory as dst_domain reaches it. */
struct inlay_memdomain_result {
	size_t size;                      /* bytes of this struct */
	uint32_t iov_count;               /* 1: use iov; else iovs */
	struct iovec iov;
	struct iovec *iovs;               /* owned by the callback, valid until invalidated */
	struct inlay_memdomain *dst_domain;
	uint32_t lkey, rkey;              /* if dst_domain has type RDMA */
};

struct inlay_memdomain_translation_ctx {
	size_t size;                      /* bytes of this struct */
	void *ibv_qp;
};

/* The user context of a domain of type RDMA. */
struct inlay_memdomain_rdma_ctx {
	size_t size;                      /* bytes of this struct */
	void *ibv_pd;
};

/* The context of a domain, an argument of its creation. */
struct inlay_memdomain_ctx {
	size_t size;                      /* bytes of this struct; fields beyond them are read as 0 */
	void *user_ctx;
	size_t user_ctx_size;             /* bytes to copy from user_ctx; 0: keep the pointer alone */
};

/* Reports the end of an operation. rc: 0 or a negative errno. */
typedef void (*inlay_memdomain_done)(void *arg, int rc);

/*
 * What pull, push and transfer copy: all bytes of the source; the destination may be longer. Read
 * only during the call. Unused fields are 0.
 */
struct inlay_memdomain_copy {
	const struct iovec *src_iov, *dst_iov;
	uint32_t src_iovcnt, dst_iovcnt;
	void *src_ctx, *dst_ctx;          /* for the callbacks of the source's and destination's domains */
	inlay_memdomain_done done;        /* may be NULL */
	void *arg;                        /* for done */
	struct inlay_memdomain *src;      /* transfer: the source's domain; NULL: this process's memory */
	const struct inlay_memdomain_result *translation; /* transfer: read this instead of src_iov */
};

/* Callbacks. Arguments and results are those of the functions of the same names below. */
typedef int (*inlay_memdomain_translate_cb)(struct inlay_memdomain *src, void *src_ctx, struct inlay_memdomain *dst,
					    struct inlay_memdomain_translation_ctx *dst_ctx, void *addr, size_t len,
					    struct inlay_memdomain_result *result);
typedef int (*inlay_memdomain_copy_cb)(struct inlay_memdomain *d, const struct inlay_memdomain_copy *copy);
typedef int (*inlay_memdomain_memzero_cb)(struct inlay_memdomain *d, void *ctx, const struct iovec *iov,
					  uint32_t iovcnt, inlay_memdomain_done done, void *arg);
typedef void (*inlay_memdomain_invalidate_cb)(struct inlay_memdomain *d, void *ctx, const struct iovec *iov,
					      uint32_t iovcnt);

/* The copies of the user's context and of the id follow it in memory. */
struct inlay_memdomain {
	inlay_memdomain_translate_cb translate;
	inlay_memdomain_copy_cb pull, push, transfer;
	inlay_memdomain_memzero_cb memzero;
	inlay_memdomain_invalidate_cb invalidate;
	struct inlay_memdomain_registry *registry; /* NULL: destroyed */
	int32_t type;
	uint32_t host;                    /* 1: memory of this process */
	struct inlay_memdomain *next, *prev; /* from here on, walks and the registry write */
	const char *id;
	struct inlay_memdomain_ctx ctx;   /* size 0: none */
	uint32_t holders;
	uint32_t dead;                    /* destroyed, but held: walks skip it */
} __attribute__((aligned(INLAY_CACHE_LINE)));

INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain, next) == INLAY_CACHE_LINE, "operations read one line");
INLAY_STATIC_ASSERT(sizeof(struct inlay_memdomain) == 2 * INLAY_CACHE_LINE, "a domain has two lines");

struct inlay_memdomain_registry {
	struct inlay_memdomain system;    /* the head of the list */
	struct inlay_memdomain *last;
	uint32_t lock;
	uint16_t abi;                     /* INLAY_ABI */
} __attribute__((aligned(INLAY_CACHE_LINE)));

/* ---- Set-up ---- */

/*
 * Initialises a registry, aligned to a cache line, with the system domain: type DMA, id "system",
 * no callbacks. Returns 0, or -EINVAL for NULL or wrong alignment.
 */
INLAY_COLD int inlay_memdomain_registry_init(struct inlay_memdomain_registry *reg)
{
	if (!reg || (uintptr_t)reg % INLAY_CACHE_LINE)
		return -EINVAL;
	__builtin_memset(reg, 0, sizeof(*reg));
	reg->system.registry = reg;
	reg->system.type = INLAY_MEMDOMAIN_DMA;
	reg->system.host = 1;
	reg->system.id = "system";
	reg->last = &reg->system;
	reg->abi = INLAY_ABI;
	return 0;
}

/* The system domain: this process's memory. NULL for NULL. */
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

/* Copies a context, with 0 in each field that ctx->size does not cover. */
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

/* Bytes for a domain with this context and id, either of which may be NULL. SIZE_MAX: too large. */
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
 * ctx     copied, with the bytes at user_ctx; may be NULL
 * id      a name, copied; need not be unique, may be NULL
 *
 * Returns 0; -EINVAL for a NULL registry, memory or domain, wrong alignment, or ctx->size 0;
 * -ENOBUFS for fewer bytes than inlay_memdomain_size; -EPROTO for another version's registry. On
 * failure nothing is written.
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
	__builtin_memset(d, 0, sizeof(*d));
	more = (uint8_t *)(d + 1);
	d->registry = reg;
	d->type = type;
	d->ctx = inlay_memdomain_ctx_(ctx);
	if (d->ctx.user_ctx && d->ctx.user_ctx_size) {
		__builtin_memcpy(more, d->ctx.user_ctx, d->ctx.user_ctx_size);
		d->ctx.user_ctx = more;
		more += d->ctx.user_ctx_size;
	}
	if (id)
		d->id = (const char *)__builtin_memcpy(more, id, __builtin_strlen(id) + 1);
	inlay_lock(&reg->lock);
	d->prev = reg->last;
	reg->last->next = d;
	reg->last = d;
	inlay_unlock(&reg->lock);
	*domain = d;
	return 0;
}

/*
 * Destroys a domain; walks no longer find it. Returns 0: the memory is the caller's, or d is NULL;
 * -EBUSY: held, call again; -EINVAL for the system domain; -EBADFD for a destroyed domain.
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
		/* Unheld, and under the lock no walk can take hold of it. */
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

/* Releases a held domain. NULL is allowed. */
INLAY_FN void inlay_memdomain_put(struct inlay_memdomain *d)
{
	if (!d)
		return;
	INLAY_CHECK(__atomic_load_n(&d->holders, __ATOMIC_RELAXED) > 0, "a domain that is put is held");
	__atomic_fetch_sub(&d->holders, 1, __ATOMIC_RELEASE);
}

/* Holds the next live domain with the id after prev, or the first if prev is NULL. Releases prev. */
INLAY_COLD struct inlay_memdomain *inlay_memdomain_step_(struct inlay_memdomain_registry *reg,
							 struct inlay_memdomain *prev, const char *id)
{
	struct inlay_memdomain *d;

	inlay_lock(&reg->lock);
	for (d = prev ? prev->next : &reg->system; d; d = d->next)
		if (!d->dead && (!id || (d->id && !__builtin_strcmp(d->id, id)))) {
			__atomic_fetch_add(&d->holders, 1, __ATOMIC_RELAXED);
			break;
		}
	inlay_unlock(&reg->lock);
	inlay_memdomain_put(prev);
	return d;
}

/* Begins a walk in order of creation: the first domain with this id (NULL: any), or NULL. */
INLAY_COLD struct inlay_memdomain *inlay_memdomain_first(struct inlay_memdomain_registry *reg, const char *id)
{
	return reg ? inlay_memdomain_step_(reg, NULL, id) : NULL;
}

/* Continues a walk and releases prev. A walk finds each domain that exists throughout exactly once. */
INLAY_COLD struct inlay_memdomain *inlay_memdomain_next(struct inlay_memdomain *prev, const char *id)
{
	INLAY_CHECK(!prev || __atomic_load_n(&prev->holders, __ATOMIC_RELAXED), "a walk goes on from a domain it holds");
	return prev ? inlay_memdomain_step_(prev->registry, prev, id) : NULL;
}

/*
 * int inlay_memdomain_set_...(struct inlay_memdomain *d, ... cb) sets a callback; NULL unsets it.
 * Returns 0, or -EINVAL for a NULL domain. The callback sees all writes before this call.
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

/* The domain's copy of its ctx; user_ctx points to the copied bytes. NULL: it has none. */
INLAY_FN struct inlay_memdomain_ctx *inlay_memdomain_context(struct inlay_memdomain *d)
{
	return d && d->ctx.size ? &d->ctx : NULL;
}

/* The copy of the bytes at user_ctx; their number in *size, unless size is NULL. NULL, 0: none. */
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
 * Each operation calls one callback and returns its result; or -EINVAL for a NULL that is not
 * allowed, -ENOTSUP when the callback is not set.
 *
 * Translates len bytes at addr of src to what dst reaches them by. Calls src's callback, which
 * checks addr and len. After the last use of the result, call inlay_memdomain_invalidate.
 */
INLAY_FN int inlay_memdomain_translate(struct inlay_memdomain *src, void *src_ctx, struct inlay_memdomain *dst,
				       struct inlay_memdomain_translation_ctx *dst_ctx, void *addr, size_t len,
				       struct inlay_memdomain_result *result)
{
	inlay_memdomain_translate_cb cb = src ? __atomic_load_n(&src->translate, __ATOMIC_ACQUIRE) : NULL;

	if (INLAY_UNLIKELY(!src || !dst || !result))
		return -EINVAL;
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

/* Copies from copy->src's memory (src_iov), or its translation to dst, to dst's (dst_iov). */
INLAY_FN int inlay_memdomain_transfer(struct inlay_memdomain *dst, const struct inlay_memdomain_copy *copy)
{
	return inlay_memdomain_copy_(dst, dst ? __atomic_load_n(&dst->transfer, __ATOMIC_ACQUIRE) : NULL, copy);
}

/* Zeroes memory of the domain. -EINVAL also for iovcnt 0. */
INLAY_FN int inlay_memdomain_memzero(struct inlay_memdomain *d, void *ctx, const struct iovec *iov, uint32_t iovcnt,
				     inlay_memdomain_done done, void *arg)
{
	inlay_memdomain_memzero_cb cb = d ? __atomic_load_n(&d->memzero, __ATOMIC_ACQUIRE) : NULL;

	if (INLAY_UNLIKELY(!d || !iov || !iovcnt))
		return -EINVAL;
	return INLAY_LIKELY(cb != NULL) ? cb(d, ctx, iov, iovcnt, done, arg) : -ENOTSUP;
}

/* Ends a translation. d may be NULL, and the callback unset. */
INLAY_FN void inlay_memdomain_invalidate(struct inlay_memdomain *d, void *ctx, const struct iovec *iov, uint32_t iovcnt)
{
	inlay_memdomain_invalidate_cb cb = d ? __atomic_load_n(&d->invalidate, __ATOMIC_ACQUIRE) : NULL;

	if (cb)
		cb(d, ctx, iov, iovcnt);
}

/* Sums the lengths. Returns 0, or -EINVAL for an overflow or a piece with bytes below `lowest`. */
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
 * The pieces that a copy reads, and their total. Returns 0; -EINVAL for a translation to another
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

/* A place in a vector. */
struct inlay_memdomain_place_ {
	const struct iovec *iov;
	size_t at;
};

/* The address of a place before the end. *len shrinks to the rest of its piece. */
INLAY_FN uint64_t inlay_memdomain_here_(struct inlay_memdomain_place_ *p, uint64_t *len)
{
	for (; p->at == p->iov->iov_len; p->at = 0)
		p->iov++;
	if (p->iov->iov_len - p->at < *len)
		*len = p->iov->iov_len - p->at;
	return (uintptr_t)p->iov->iov_base + p->at;
}

/* ---- This process's memory ---- */

INLAY_FN void inlay_memdomain_move_(uint8_t *to, const uint8_t *from, size_t len)
{
#if defined(__x86_64__) && !defined(__CUDA_ARCH__)
	if (len >= 1024) { /* the string instruction is faster */
		__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(len) : : "memory");
		return;
	}
#endif
	inlay_copy(to, from, len);
}

INLAY_FN void inlay_memdomain_clear_(uint8_t *at, size_t len)
{
	static const uint8_t zero[64] = {0};

	for (; len > sizeof(zero); at += sizeof(zero), len -= sizeof(zero)) {
		inlay_copy(at, zero, sizeof(zero));
		__asm__ volatile("" ::: "memory"); /* no memset: the data path calls nothing */
	}
	inlay_copy(at, zero, len);
}

/* Pull, push and transfer. A transfer from another domain, untranslated, is a pull by that domain. */
INLAY_FN int inlay_memdomain_system_copy_(struct inlay_memdomain *d, const struct inlay_memdomain_copy *copy)
{
	struct inlay_memdomain_place_ from = {NULL, 0}, to = {copy->dst_iov, 0};
	const uint8_t *source;
	uint8_t *dest;
	uint64_t len;
	size_t left;

	if (!copy->translation && copy->src && !__atomic_load_n(&copy->src->host, __ATOMIC_RELAXED))
		return inlay_memdomain_pull(copy->src, copy);
	if (INLAY_UNLIKELY(inlay_memdomain_source_(d, copy, 1, &from.iov, &left)))
		return -EINVAL;
	for (; left; left -= len, from.at += len, to.at += len) {
		len = left;
		source = (const uint8_t *)(uintptr_t)inlay_memdomain_here_(&from, &len);
		dest = (uint8_t *)(uintptr_t)inlay_memdomain_here_(&to, &len);
		inlay_memdomain_move_(dest, source, len);
	}
	if (copy->done)
		copy->done(copy->arg, 0);
	return 0;
}

INLAY_FN int inlay_memdomain_system_memzero_(struct inlay_memdomain *d, void *ctx, const struct iovec *iov,
					     uint32_t iovcnt, inlay_memdomain_done done, void *arg)
{
	size_t total;

	(void)d;
	(void)ctx;
	if (INLAY_UNLIKELY(inlay_memdomain_total_(iov, iovcnt, 1, &total)))
		return -EINVAL;
	for (; iovcnt; iov++, iovcnt--)
		inlay_memdomain_clear_((uint8_t *)iov->iov_base, iov->iov_len);
	if (done)
		done(arg, 0);
	return 0;
}

/* Translates to the same address in a domain of this process's memory; -ENOTSUP for any other. */
INLAY_FN int inlay_memdomain_system_translate_(struct inlay_memdomain *src, void *src_ctx, struct inlay_memdomain *dst,
					       struct inlay_memdomain_translation_ctx *dst_ctx, void *addr, size_t len,
					       struct inlay_memdomain_result *result)
{
	const struct inlay_memdomain_result found = {sizeof(found), 1, {addr, len}, NULL, dst, 0, 0};

	(void)src;
	(void)src_ctx;
	(void)dst_ctx;
	if (!__atomic_load_n(&dst->host, __ATOMIC_RELAXED))
		return -ENOTSUP;
	*result = found;
	return 0;
}

/*
 * Makes d, such as the system domain, a domain of this process's memory, which the CPU copies.
 * Returns 0, or -EINVAL for NULL. Its callbacks call done(arg, 0) before they return 0. They return
 * -EINVAL and copy nothing if the destination is shorter than the source, a sum of lengths
 * overflows, or a piece with bytes is at address 0. Source and destination may not overlap, unless
 * each byte is copied onto itself.
 */
INLAY_COLD int inlay_memdomain_system_attach(struct inlay_memdomain *d)
{
	if (!d)
		return -EINVAL;
	__atomic_store_n(&d->host, 1, __ATOMIC_RELAXED);
	inlay_memdomain_set_translation(d, inlay_memdomain_system_translate_);
	inlay_memdomain_set_pull(d, inlay_memdomain_system_copy_);
	inlay_memdomain_set_push(d, inlay_memdomain_system_copy_);
	inlay_memdomain_set_transfer(d, inlay_memdomain_system_copy_);
	return inlay_memdomain_set_memzero(d, inlay_memdomain_system_memzero_);
}

#endif
